#!/usr/bin/env bash
# proves: trees of 1, 2 and 4 threads that share their classes keep limits and reservations for the sum on a real disk, also
# proves: when the demand of a tenant moves to another thread. QOS_LONG: longer runs
# needs: io_uring
set -u
. "$(dirname "$0")/../lib.sh"
work=$(work_dir uring_trees) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
failed=0 unsure=
seconds=2
[ -z "${QOS_LONG:-}" ] || seconds=30
# shellcheck disable=SC2086
gcc -std=gnu11 -O2 $C_WARNINGS -D_GNU_SOURCE -I. -pthread -o "$work/trees" tests/real/peers/uring_trees.c -luring || exit 1
# Each block of 16 KiB is filled with its number.
perl -e 'print pack("Q<", $_) x 2048 for 0 .. 8191' >"$work/data" && sync "$work/data" || exit 1

watch_disk "$work"
for trees in 1 2 4; do
    for try in 1 2; do
        watch_mark
        timeout $((seconds + 200)) "$work/trees" "$work/data" "$seconds" "$trees" >"$work/out" 2>&1
        status=$?
        cat "$work/out"
        [ $status = 3 ] || break
    done
    case $status in
    0) ok "$trees trees" ;;
    3) late "$trees trees: cannot tell, see above" ;;
    1)  if grep -q 'BROKEN: a reservation' "$work/out"; then expect_time "$trees trees: a reservation" false
        else bad "$trees trees: see above"; fi ;;
    *) bad "$trees trees: status $status" ;;
    esac
done
# Trees that share nothing must break the limit; otherwise this test could find nothing.
timeout 200 "$work/trees" "$work/data" 1 2 apart >"$work/out" 2>&1
status=$?
cat "$work/out"
if [ "$status" = 3 ]; then late "two trees apart: cannot tell, see above"; else
    expect_time "two trees apart break the limit" grep -q 'BROKEN: the limit' "$work/out"
fi
finish $failed
