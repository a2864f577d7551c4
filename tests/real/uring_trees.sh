#!/usr/bin/env bash
# proves: trees of 1, 2 and 4 threads that share their classes keep limits and reservations for the sum on a real disk, also
# proves: when the demand of a tenant moves to another thread. QOS_LONG: longer runs
# needs: io_uring
set -u
. "$(dirname "$0")/../lib.sh"
work=$(mktemp -d "$PWD/build/uring_trees-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
failed=0 unsure=
seconds=3
[ -z "${QOS_LONG:-}" ] || seconds=30
# shellcheck disable=SC2086
gcc -std=gnu11 -O2 $C_WARNINGS -D_GNU_SOURCE -I. -pthread -o "$work/trees" tests/real/peers/uring_trees.c -luring || exit 1
# Each block of 16 KiB is filled with its number.
perl -e 'print pack("Q<", $_) x 2048 for 0 .. 8191' >"$work/data" && sync "$work/data" || exit 1

for trees in 1 2 4; do
    timeout $((seconds + 60)) "$work/trees" "$work/data" "$seconds" "$trees" >"$work/out" 2>&1
    status=$?
    cat "$work/out"
    case $status in
    0) ok "$trees trees" ;;
    3) unsure="$unsure $trees" ;;
    *) bad "$trees trees: status $status" ;;
    esac
done
# Trees that share nothing must break the limit, or this test would find nothing.
timeout 60 "$work/trees" "$work/data" 1 2 apart >"$work/out" 2>&1
status=$?
cat "$work/out"
if [ "$status" = 3 ]; then unsure="$unsure 2, apart"; else
    expect "two trees apart break the limit" grep -q 'BROKEN: the limit' "$work/out"
fi
[ $failed = 0 ] || exit 1
[ -z "$unsure" ] || inconclusive "with$unsure trees: cannot tell, see above"
finish
