#!/usr/bin/env bash
# The worlds against the headers of version 0.2 (commit 2d666dc, frozen in headers.tar.xz): what random seeds find there in
# a minute each: one shrunk world for each kind of failure (an oracle and the fields that its world needs), and whether the
# header of today holds in that world. usage: tests/world/v02/run.sh [HEADER...] (SECONDS_EACH=60 of processor, SEED=1).
# Then `build/v02/HEADER --world "..."` replays one. 0.2 elected the controllers of pshift.h itself, so of that header the
# solver alone is judged. A world that holds today may hold for another reason than the mended fault.
# Status 0 if every header but pshift.h is broken in at least one way: a world that no longer finds old faults has gone blind.
set -u
cd "$(dirname "$0")/../../.." || exit 1
. tests/world/v02/build.sh
[ $# -gt 0 ] || set -- htb tags tags_servers tokenpool twochoice pshift
out=build/v02
mkdir -p $out && tar -xJf tests/world/v02/headers.tar.xz -C $out || exit 1
bad=0
for h in "$@"; do
    rm -f "$out/$h"
    build_v02 $out "$h" && make -s "build/native/world/$h" || exit 1
    "$out/$h" --for "${SECONDS_EACH:-60}" --from "${SEED:-1}" --kinds >"$out/$h.log" 2>&1
    printf '%-10s %7s  %-14s %-13s %s\n' header 'after s' oracle today world
    while read -r _ after oracle _ world; do
        "build/native/world/$h" --world "$world" --no-shrink >/dev/null 2>&1
        case $? in 0) today=holds ;; 2) today='no such field' ;; *) today='fails, too' ;; esac
        printf '%-10s %7s  %-14s %-13s %s\n' "$h" "$after" "$oracle" "$today" "$world"
    done < <(grep '^KIND' "$out/$h.log") | tee "$out/$h.kinds"
    tail -n +1 "$out/$h.log" | grep -v '^KIND' | tail -3
    [ "$h" = pshift ] || grep -q '^KIND' "$out/$h.log" || { echo "$h: nothing was found in version 0.2"; bad=1; }
done
exit $bad
