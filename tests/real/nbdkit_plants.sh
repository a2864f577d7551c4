#!/usr/bin/env bash
# proves: every bug of tests/plants/nbdkit/*.txt, planted into a copy of the nbdkit filter, is caught by the section of real/nbdkit that it
# names; without a bug these sections pass (real/nbdkit itself shows that)
# usage: tests/real/nbdkit_plants.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
failed=0 planted=0
tests/build/plant.pl list tests/plants/nbdkit/*.txt >"$d/list" || exit 1
while IFS=$'\t' read -r source name test _; do
    [ -z "${1:-}" ] || [ "$name" = "$1" ] || continue
    planted=$((planted + 1)) here=$d/$name rc=0 begin=$SECONDS
    mkdir "$here"
    cp examples/nbdkit/*.[ch] "$here/"
    if ! tests/build/plant.pl apply "tests/plants/nbdkit/$source.txt" "$name" "$here" 2>"$here/log"; then
        bad "$name: $(cat "$here/log")"
    elif ! gcc -std=gnu11 -O0 -w -fPIC -shared -pthread -I. -o "$here/filter.so" "$here"/*.c >"$here/log" 2>&1; then
        bad "$name does not compile: $(grep -m1 error "$here/log")"
    else
        for try in 1 2; do # the machine gave no verdict
            rc=0
            QOS_TEST_FAILURES=1 FILTER=$here/filter.so timeout --kill-after=5 400 tests/real/nbdkit.sh "${test#*:}" >"$here/log" 2>&1 || rc=$?
            [ $rc = 78 ] || break
        done
        if [ "$rc" = 1 ] && grep -q '^FAILED' "$here/log"; then ok "$name, $((SECONDS - begin)) s: $(grep -m1 '^FAILED' "$here/log" | cut -c1-90)"
        elif [ "$rc" = 78 ]; then late "$name: $(grep INCONCLUSIVE "$here/log")"
        else bad "$name survived, status $rc: $(tail -n 3 "$here/log")"; fi
    fi
done <"$d/list"
expect "$planted bugs were planted" [ "$planted" -gt 0 ]
finish $failed
