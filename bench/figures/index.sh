#!/usr/bin/env bash
# Writes OUTDIR/index.html: each figure beside what its paper shows. One file without links to others, for light and
# dark screens. A figure that was not drawn is listed with the reason in OUTDIR/FIGURE.why, if its script left one.
# usage: bench/figures/index.sh OUTDIR      (run from the repository root)
set -eu
out=$1 list=bench/figures/gallery.txt
[ -d "$out" ] || { echo "index.sh: $out: no such directory; make figures draws what it shows" >&2; exit 2; }
text() { sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'; }
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1)
{
    cat <<'HTML'
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>qoskit: five papers, figure by figure</title>
<style>
:root { color-scheme: light dark; --page: #fbfbfa; --text: #1c1c1c; --soft: #5f5f5f; --line: #dcdcdc; --code: #efefed }
@media (prefers-color-scheme: dark) { :root { --page: #17181a; --text: #e8e8e6; --soft: #a5a5a3; --line: #3a3b3d; --code: #26272a } }
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif }
h1 { margin: 0 } h2 { margin: 3rem 0 .3rem; border-bottom: 1px solid var(--line) }
p, dl { margin: .3rem 0 } nav a { margin-right: 1rem } .soft, dt { color: var(--soft) }
code { background: var(--code); padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 1.5rem; margin-top: 1rem }
figure { margin: 0; padding: .8rem; border: 1px solid var(--line); border-radius: 6px }
figure img { width: 100%; height: auto; background: white; border-radius: 3px } figcaption { font-weight: 600; margin-bottom: .4rem }
dl { display: grid; grid-template-columns: max-content 1fr; column-gap: .8rem } dd { margin: 0 }
</style>
</head>
<body>
<h1>qoskit: five papers, figure by figure</h1>
HTML
    printf '<p class="soft">Drawn on %s on %s (%s processors). ' "$(date -u '+%Y-%m-%d')" "${machine:-an unknown processor}" "$(nproc)" | text |
        sed 's/&lt;p class="soft"&gt;/<p class="soft">/'
    printf 'Simulated figures are the same everywhere; times and real runs are not.</p>\n<nav>'
    awk -F ' *[|] *' '/^= / {sub(/^= /, "", $1); printf "<a href=\"#%s\">%s</a>\n", $1, $1}' "$list"
    printf '</nav>\n'
    open=
    while IFS= read -r line; do
        case $line in '#'* | '') continue ;; esac
        IFS='|' read -r a b c d <<<"$(printf '%s' "$line" | text)"
        a=$(echo $a) b=$(echo $b) c=$(echo $c) d=$(echo $d)
        case $a in
        '= '*)
            [ -z "$open" ] || printf '</main>\n'
            open=1
            printf '<h2 id="%s">%s</h2>\n<p>%s</p>\n<p class="soft">Drawn by <code>%s</code></p>\n<main>\n' "${a#= }" "${a#= }" "$b" "$c"
            continue ;;
        esac
        printf '<figure id="%s"><figcaption>%s</figcaption>\n' "${a%.svg}" "$b"
        if [ -s "$out/$a" ]; then
            printf '<img alt="%s" src="data:image/svg+xml;base64,%s">\n' "$b" "$(base64 -w0 "$out/$a")"
        elif [ -s "$out/${a%.svg}.why" ]; then
            printf '<p class="missing">Not drawn: %s</p>\n' "$(text <"$out/${a%.svg}.why")"
        else
            printf '<p class="missing">Not drawn in this run.</p>\n'
        fi
        printf '<dl>'
        [ -z "$c" ] || printf '<dt>paper</dt><dd>%s</dd>' "$c"
        printf '<dt>ours</dt><dd>%s</dd></dl></figure>\n' "$d"
    done <"$list"
    printf '</main>\n</body>\n</html>\n'
} >"$out/index.html.new"
mv "$out/index.html.new" "$out/index.html"
echo "$out/index.html: $(grep -c '<img ' "$out/index.html") figures, $(grep -c 'class="missing"' "$out/index.html" || true) not drawn"
