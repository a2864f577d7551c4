#!/usr/bin/env bash
# proves: a link from one document to another, or to a file of the repository, leads somewhere: the file exists, and so does
# the heading behind a '#'. Every file that a document names in `backticks` by its path exists too.
set -u
. "$(dirname "$0")/../lib.sh"
failed=0 links=0 names=0

# Headings of a document as anchors: lower case, blanks to '-', anything but letters, digits, '-' and '_' dropped.
anchors() { sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | tr ' ' '-' | tr -cd 'a-z0-9_\n-'; }
# A document without its blocks of code.
prose() { awk '/^```/ {code = !code; next} !code' "$1"; }

for m in README.md CHANGELOG.md examples/README.md docs/*.md; do
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
done
[ "$links" -gt 0 ] && [ "$names" -gt 0 ] || bad "no link or no file name was found: this test reads nothing"
[ $failed -eq 0 ] && echo "$links links and $names file names lead somewhere"
finish $failed
