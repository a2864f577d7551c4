#!/usr/bin/env bash
# proves: tests/proof/pshift_owner.pml, the protocol of owner, grants, reports and boots of pshift.h as a model for spin: in the
# searches below no order of steps breaks a limit, and its rules are needed: one that is left out is found. usage: tests/build/owner_model.sh [all] (make prove: each of nine)
#
# Complete searches: one controller and one server, both start anew once, three periods; two controllers and one server (all: two), one period.
set -u
. "$(dirname "$0")/../lib.sh"
command -v spin >/dev/null || { echo "SKIP spin is not installed"; exit 77; }
model=$PWD/tests/proof/pshift_owner.pml
out=build/owner_model failed=0
rm -rf "$out"

one='-DCONTROLLERS=1 -DSERVERS=1'
expect "one controller, one server, three periods, both start anew: every state" held "$(spin_search alone "$model" "$one -DLAST=3 -DSTARTS_S=1 -DSTARTS_C=1" -O0)"
expect "two controllers, one server, one period: every state" held "$(spin_search two "$model" '-DSERVERS=1 -DLAST=1 -DSTARTS_S=0' -O0)"
[ "${1:-}" != all ] || expect "two controllers, two servers, one period: every state" held "$(spin_search four "$model" '-DLAST=1 -DSTARTS_S=0')"

# A search in random order, which needs not be complete, with at most four seeds.
without() { # RULE DEFINES WHAT
    local dir=$out/$1 found='' seed
    mkdir -p "$dir"
    # shellcheck disable=SC2086  # several defines
    (cd "$dir" && cp "$model" model.pml && spin -D$1 $2 -a model.pml >spin.log 2>&1 && gcc -O0 -w -DSAFETY -DNOCLAIM -DBITSTATE -DT_RAND -DP_RAND -o pan pan.c) ||
        bad "$1 does not compile"
    for seed in 1 2 3 4; do
        (cd "$dir" && ulimit -t 20 && ./pan -RS$seed -m400 -w24 -E) >"$dir/log" 2>&1
        found=$(grep -o 'assertion violated.*' "$dir/log") && break
    done
    expect "found without a rule: $3: ${found:-nothing}" [ -n "$found" ]
}
without ANY_BOOT "$one -DLAST=1 -DSTARTS_S=1" "a grant is for one start of a server"
without BELIEVE '-DLAST=1 -DSTARTS_S=0' "who does not know the outcome of a swap reads the key"
if [ "${1:-}" != all ]; then finish $failed; fi
without NO_COMPARE '-DLAST=2 -DSTARTS_S=0' "a swap compares what the key holds"
without NO_WAIT '-DSERVERS=1 -DLAST=3 -DSTARTS_S=0' "the next swap comes T after its caller saw the key's number"
without FROM_REPLY '-DSERVERS=1 -DLAST=3 -DSTARTS_S=0' "the owner counts from before its swap"
without RESUME '-DLAST=1 -DSTARTS_C=1 -DSTARTS_S=0' "a process that starts anew has another nonce"
without FROM_ARRIVAL "$one -DLAST=3 -DSTARTS_S=0" "tokens end by the time of the report that their grant names"
without KEEP_TOKENS "$one -DLAST=2 -DSTARTS_S=0" "a larger period voids all tokens"
without FORGET_DEAD "$one -DLAST=1 -DSTARTS_S=1" "what was issued to a dead start is spent"
finish $failed
