#!/usr/bin/env bash
# The worlds against the headers of version 0.2 (commit 2d666dc, frozen in headers.tar.xz): what random seeds find there in
# a minute each, shrunk. usage: tests/world/v02/run.sh [HEADER...] (SECONDS_EACH=60); then `build/v02/HEADER --help` replays.
# Status 0 if every header is broken in at least one way: a world that no longer finds old faults has gone blind.
set -u
cd "$(dirname "$0")/../../.." || exit 1
[ $# -gt 0 ] || set -- htb tags
out=build/v02
mkdir -p $out && tar -xJf tests/world/v02/headers.tar.xz -C $out || exit 1
bad=0
for h in "$@"; do
    rm -f "$out/$h"
    gcc -std=gnu11 -O2 -ffp-contract=off -DWORLD_V02=1 -DWORLD_TAGS_V02=1 -I$out -I. -Itests -o "$out/$h" "tests/world/$h.c" \
        examples/world/*.c -lm || exit 1
    "$out/$h" --for "${SECONDS_EACH:-60}" --from "${SEED:-1}" >"$out/$h.log" 2>&1
    sed -n '/^BROKEN\|shrunk:/p; /worlds broken in/,$p' "$out/$h.log"
    grep -q '^BROKEN' "$out/$h.log" || { echo "$h: nothing was found in version 0.2"; bad=1; }
done
exit $bad
