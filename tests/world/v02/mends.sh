#!/usr/bin/env bash
# Shown to see: each entry of shown.txt is a fault of version 0.2 that plain random seeds found. Its shrunk world breaks the
# named oracle with 0.2's header, and holds when mends/ENTRY.patch has mended that entry alone (without lines around: these headers
# do not change; what mends two entries has both names).
# usage: tests/world/v02/mends.sh [ENTRY...]. Status 1 if one is not shown.
set -u
cd "$(dirname "$0")/../../.." || exit 1
here=tests/world/v02
. $here/build.sh
out=build/v02/mends
rm -rf "$out" && mkdir -p "$out/plain" && tar -xJf $here/headers.tar.xz -C "$out/plain" || exit 1
bad=0

# verdict PROGRAM WORLD: the broken oracle, or holds
verdict() {
    local log
    log=$(timeout 30 "$1" --world "$2" --no-shrink 2>&1)
    case $? in
    0) echo holds ;;
    1) sed -n 's/^BROKEN \([^ ]*\) .*/\1/p' <<<"$log" | head -1 ;;
    *) echo no-verdict ;;
    esac
}

printf '%-6s %-10s %-14s %-14s %-14s %s\n' entry header oracle 0.2 mended shown
while read -r entry header oracle _ rest; do
    [ $# -eq 0 ] || [[ " $* " == *" $entry "* ]] || continue
    world=${rest#*\'}
    world=${world%%\'*}
    mkdir "$out/$entry" && cp "$out"/plain/*.h "$out/$entry" || exit 1
    mend=("$here"/mends/*"$entry"*.patch)
    patch -s -p0 -d "$out/$entry" <"${mend[0]}" || exit 1
    { [ -x "$out/plain/$header" ] || build_v02 "$out/plain" "$header"; } && build_v02 "$out/$entry" "$header" || exit 1
    before=$(verdict "$out/plain/$header" "$world")
    after=$(verdict "$out/$entry/$header" "$world")
    shown=yes
    [ "$before" = "$oracle" ] && [ "$after" = holds ] || { shown=NO; bad=1; }
    printf '%-6s %-10s %-14s %-14s %-14s %s\n' "$entry" "$header" "$oracle" "$before" "$after" "$shown"
done < <(grep '^[A-Z]' $here/shown.txt)
exit $bad
