#!/usr/bin/env bash
# proves: simulate pshift --policy: pShift keeps every limit and meets the reservations whatever demand does, and fixed parts and leases
# do not where it moves or servers saturate; counted by the simulator, not by pshift.h
set -u
. "$(dirname "$0")/../lib.sh"
make -s build/examples/simulate || exit 1
out=build/policies.json failed=0
build/examples/simulate pshift --policy --json $out >build/policies.txt || { echo "it fails"; exit 1; }
every() { json $out "[.policies[] | select(.policy == \"$1\" and (.demand | test(\"$2\"))) | $3] | length > 0 and all"; }
expect "all five policies, all five demands" json $out '.policies | length == 25'
expect "pShift exceeds no limit in a period" every pShift . '.over <= 0'
expect "nor two of them in a window" every pShift . '.over_window <= 0'
expect "pShift meets the reservations that can be met, to 0.5 %" every pShift . '.unmet <= .impossible + 0.005'
expect "when servers saturate it leaves hardly anything idle" every pShift saturate '.idle < 0.02'
expect "fixed parts miss reservations when servers saturate" every 'equal parts' saturate '.unmet > 0.1'
expect "and when demand moves, even if its mean was known" every 'by demand' '^moves$' '.unmet > 0.02'
expect "leases exceed a limit" every leases saturate '.over > 0.1'
expect "dmClock with one client for a bucket meets the reservations, too" every dmClock . '.unmet <= .impossible + 0.005'
finish $failed
