#!/usr/bin/env bash
# proves: every bug of tests/plants/nbdkit/*.txt, planted into a copy of the nbdkit filter, is caught by the section of real/nbdkit that it
# names; without a bug these sections pass (real/nbdkit itself shows that)
# usage: tests/real/nbdkit_plants.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
failed=0 planted=0
try() { # SOURCE BUG TEST
    local here=$d/$2 rc=0 begin=$SECONDS
    mkdir "$here"
    cp examples/nbdkit/*.[ch] "$here/"
    if ! tests/build/plant.pl apply "tests/plants/nbdkit/$1.txt" "$2" "$here" 2>"$here/log"; then
        bad "$2: $(cat "$here/log")"
    elif ! clang -std=gnu11 -O0 -w -fPIC -shared -pthread -I. -o "$here/filter.so" "$here"/*.c >"$here/log" 2>&1; then
        bad "$2 does not compile: $(grep -m1 error "$here/log")"
    else
        for _ in 1 2; do # the machine gave no verdict
            rc=0
            QOS_TEST_FAILURES=1 FILTER=$here/filter.so timeout --kill-after=5 400 tests/real/nbdkit.sh "${3#*:}" >"$here/log" 2>&1 || rc=$?
            [ $rc = 78 ] || break
        done
        if [ "$rc" = 1 ] && grep -q '^FAILED' "$here/log"; then ok "$2, $((SECONDS - begin)) s: $(grep -m1 '^FAILED' "$here/log" | cut -c1-90)"
        elif [ "$rc" = 78 ]; then echo "LATE: $2: $(grep INCONCLUSIVE "$here/log")" # it had a witness
        else bad "$2 survived, status $rc: $(tail -n 3 "$here/log")"; fi
    fi
}
tests/build/plant.pl list tests/plants/nbdkit/*.txt >"$d/list" || exit 1
# Side by side: what a bug breaks does not depend on how fast the filter is.
while IFS=$'\t' read -r source name test _; do
    [ -z "${1:-}" ] || [ "$name" = "$1" ] || continue
    planted=$((planted + 1))
    try "$source" "$name" "$test" >"$d/$name.log" 2>&1 </dev/null &
done <"$d/list"
wait $(jobs -p)
for log in "$d"/*.log; do
    cat "$log"
    ! grep -q '^FAILED' "$log" || failed=1
    unsure=${unsure:-$(sed -n 's/^LATE: //p' "$log" | head -n 1)}
done
expect "$planted bugs were planted" [ "$planted" -gt 0 ]
expect "each has a verdict" [ "$(cat "$d"/*.log | grep -cE '^(ok|LATE|FAILED): ')" = "$planted" ]
finish $failed
