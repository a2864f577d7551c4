#!/usr/bin/env bash
# proves: every link from one document to another, or to a file of the repository, is valid: the file exists, and so
# does the heading after a '#'. Every file that a document names in `backticks` by its path exists too, and so does
# every function, type and constant of a header. Each fault of tests/twochoice_faults.txt has the test that it names.
set -u
. "$(dirname "$0")/../lib.sh"
failed=0 links=0 names=0 words=0

# Headings of a document as anchors: lower case, blanks to '-', anything but letters, digits, '-' and '_' dropped.
anchors() { sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | tr ' ' '-' | tr -cd 'a-z0-9_\n-'; }
# A document without its blocks of code.
prose() { awk '/^```/ {code = !code; next} !code' "$1"; }

for m in README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md examples/README.md docs/*.md; do
    dir=$(dirname "$m")
    while read -r link; do
        case $link in http://* | https://*) continue ;; esac
        links=$((links + 1))
        file=$m anchor=
        case $link in \#*) ;; *) file=$dir/${link%%#*} ;; esac
        case $link in *\#*) anchor=${link#*#} ;; esac
        [ -e "$file" ] || { bad "$m: $link: no such file"; continue; }
        [ -z "$anchor" ] || anchors "$file" | grep -qxF -- "$anchor" || bad "$m: $link: no such heading"
    done < <(prose "$m" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(|\)$//g')
    while read -r name; do
        names=$((names + 1))
        [ -e "$name" ] || bad "$m: \`$name\`: no such file"
    done < <(prose "$m" | grep -oE '`(examples|tests|bench|docs)/[A-Za-z0-9_./-]+`' | tr -d '`' | sort -u)
    [ "$m" = CHANGELOG.md ] && continue # it names things that no longer exist
    while read -r word; do # htb_take is a name of a header, pshift_cluster that of a tool
        words=$((words + 1))
        [ -e "examples/$word" ] || grep -qw -- "$word" ./*.h examples/nginx/*.c || bad "$m: \`$word\`: no header and no directive has this name"
    done < <(prose "$m" | grep -oE '`[^`/]+`' |
        grep -oE '\b((qos|htb|tags|pshift|twochoice|tokenpool)_[a-z0-9_]*[a-z0-9]|(QOS|HTB|TAGS|PSHIFT|TWOCHOICE|TOKENPOOL)_[A-Z0-9_]+)\b' | sort -u)
done
while read -r fault test what; do # what: a name, then, after two blanks, what it shows
    file=tests/$test what=${what%%  *}
    [ -e "$file" ] || file=$file.c
    grep -qF -- "$what" "$file" || bad "tests/twochoice_faults.txt: $fault: $test has no '$what'"
    names=$((names + 1))
done < <(grep '^W[0-9]' tests/twochoice_faults.txt)
[ "$links" -gt 0 ] && [ "$names" -gt 0 ] && [ "$words" -gt 0 ] || bad "no link or no name was found: this test reads nothing"
[ $failed -eq 0 ] && echo "$links links, $names file names and $words names of headers lead somewhere"
finish $failed
