#!/usr/bin/env bash
# Opens OUTDIR/index.html in headless Chromium, 1200 and 400 pixels wide: checks that there is no error, that each
# figure is loaded, and that nothing is wider than the page. Leaves OUTDIR/index_1200.png and index_400.png for
# inspection.
# usage: bench/figures/check.sh OUTDIR
set -eu
out=$(cd "$1" && pwd)
command -v chromium >/dev/null || { echo "check.sh: needs Chromium (Debian: chromium)" >&2; exit 1; }
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
browser() { timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$d/profile" "$@" 2>"$d/err"; }
# The page, with a last line that counts the faults that a reader would notice.
cat "$out/index.html" - >"$d/page.html" <<'HTML'
<script>
addEventListener("load", () => {
    const images = [...document.images], wide = document.documentElement
    document.title = "images " + images.length + " broken " + images.filter(i => !i.naturalWidth).length +
        " narrow " + images.filter(i => i.clientWidth < 300).length + " beyond " + Math.max(0, wide.scrollWidth - wide.clientWidth)
})
</script>
HTML
drawn=$(grep -c '<img ' "$out/index.html")
status=0
for width in 1200 400; do
    said=$(browser --window-size=$width,1600 --virtual-time-budget=3000 --dump-dom "file://$d/page.html" | sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p')
    browser --window-size=$width,4000 --screenshot="$out/index_$width.png" "file://$out/index.html" >/dev/null || true
    if [ "$said" = "images $drawn broken 0 narrow 0 beyond 0" ] && ! grep -q 'CONSOLE.*rror' "$d/err"; then
        echo "$width pixels wide: $drawn figures, no error"
    else
        echo "$width pixels wide: $said; wanted $drawn images, none broken, none narrow, nothing beyond the page"; grep CONSOLE "$d/err" || true
        status=1
    fi
done
exit $status
