#!/usr/bin/env bash
# proves: reward scheduling on a real file (tags.h in uring_files): the tenant whose reads hit the page cache keeps its gain
# under reward and loses it under proportional share, and the other one's reservation still holds.
set -u
. "$(dirname "$0")/../lib.sh"
work=$(mktemp -d "$PWD/build/tags_uring-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
ok() { echo "ok: $*"; }
bad() { echo "FAILED: $*"; failed=1; }
expect() { # WHAT JQ-EXPRESSION over [ps, reward, reserved]
    if jq -es "$2" "$work/ps.json" "$work/reward.json" "$work/reserved.json" >/dev/null; then ok "$1"; else bad "$1 ($2)"; fi
}
timeout -k 5 100 examples/uring_files/hotcold.sh "$work" >"$work/table" 2>"$work/err" ||
    { cat "$work"/*.log "$work/err" | tail -30; bad "hotcold.sh ends with status $?"; exit 1; }
cat "$work/table"

expect "all three runs: submitted = completed + failed, nothing failed" \
    'all(.[]; [.with.tenants[] | .submitted == .completed + .failed and .failed == 0 and .completed > 0] | all)'
expect "proportional share: as many requests for both" \
    '.[0].with.tenants | .[0].bytes_per_s / .[1].bytes_per_s | . > 0.95 and . < 1.05'
expect "reward: hot keeps its gain (at least 3 times as much as under proportional share)" \
    '.[1].with.tenants[0].bytes_per_s > 3 * .[0].with.tenants[0].bytes_per_s'
expect "reward: cold is served too" '.[1].with.tenants[1].bytes_per_s > 0'
expect "with cold's reservation hot still gains" \
    '.[2].with.tenants[0].bytes_per_s > 1.5 * .[2].with.tenants[1].bytes_per_s'
case $(cat "$work/status") in
0) ok "cold's reservation holds, judged on the log" ;;
3) [ "$failed" = 0 ] && { tail -5 "$work/reserved.log"; echo "SKIP real/tags_uring: inconclusive: device"; exit 77; } ;;
*) tail -15 "$work/reserved.log"; bad "cold's reservation" ;;
esac
if grep -q '</svg>' "$work/tags_hotcold.svg"; then ok "the figure is a picture"; else bad "no figure"; fi
exit "$failed"
