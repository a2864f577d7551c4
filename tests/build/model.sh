#!/usr/bin/env bash
# proves: tests/proof/tokenpool.pml, the words of tokenpool.h as a model for spin with two monitors and any number of
# clients, has the header's steps (by their labels), and no state of it breaks an assertion. Whichever monitor dies, a
# new epoch comes. Bugs planted into the model are found. usage: tests/build/model.sh [all]
#
# Every search is complete (the model explains why one client in detail represents all): client 0 beside others for one
# tick of time; progress: no state in which all wait. all (make prove): also client 0 and client 1 beside others for two
# ticks, clocks that are read at any time before, no cycle without progress under fair scheduling, two clients with one
# monitor in detail, and some million states of three clients with two monitors in detail (too many for an end).
set -u
. "$(dirname "$0")/../lib.sh"
command -v spin >/dev/null || { echo "SKIP spin is not installed"; exit 77; }
model=$PWD/tests/proof/tokenpool.pml
out=build/model
rm -rf "$out"
mkdir -p "$out"
failed=0

# Labels are comments behind code: /* P1 */, /* M2, P2 */.
labels() { grep -v '^ \*' "$1" | grep -oE '/\* ([CMPR][0-9])(, [CMPR][0-9])* \*/' | grep -oE '[CMPR][0-9]' | sort -u | xargs; }
echo "steps of the header: $(labels tokenpool.h)"
echo "steps of the model:  $(labels "$model")"
expect "the model has the labelled steps of the header" [ "$(labels tokenpool.h)" = "$(labels "$model")" ]

# search NAME MODEL DEFINES COMPILER-FLAGS PAN-OPTIONS: prints the first error, or why there is no verdict
search() {
    local name=$1 file=$2 defines=$3 flags=$4 dir=$out/$1 level=2
    shift 4
    case $name in planted | one_tick | waits) level=0 ;; esac # a short search
    mkdir -p "$dir"
    # shellcheck disable=SC2086  # several defines
    (cd "$dir" && spin $defines -a "$file" >spin.log 2>&1 && gcc -O"$level" -w $flags -DMEMLIM=6000 $defines -o pan pan.c) || { echo "$name does not compile"; cat "$dir/spin.log"; return; }
    (cd "$dir" && ./pan "$@") >"$dir/log" 2>&1
    grep -hoE 'assertion violated.*|invalid end state \(.*|non-progress cycle \(.*|out of memory|max search depth too small' "$dir/log" | head -1
    grep -q 'errors: ' "$dir/log" || echo "no verdict"
    [ "$name" = planted ] || echo "$name: $(sed -n 's/ states, stored.*/ states/p' "$dir/log" | xargs), $(grep -o 'errors: [0-9]*' "$dir/log"), $(sed -n 's/pan: elapsed time //p' "$dir/log")" >&2
}
safe() { search "$1" "$model" "$2" "-DSAFETY -DNOCLAIM" -m200000 -E; }
held() { [ -z "$1" ] || { echo "$1"; return 1; }; }

expect "client 0 and any number of others, two monitors, one tick: every state" held "$(safe one_tick '-DCLIENT=0 -DOTHERS=1 -DEND=1')"
expect "two monitors, one dies: no end that waits" held "$(search waits "$model" -DPROGRESS "-DSAFETY -DNOCLAIM" -m200000 -A)"
if [ "${1:-}" = all ]; then
    expect "client 0 and any number of others, two monitors: every state" held "$(safe client_0 '-DCLIENT=0 -DOTHERS=1')"
    expect "client 1 and any number of others, two monitors: every state" held "$(safe client_1 '-DCLIENT=1 -DOTHERS=2')"
    expect "client 0, clocks read at any time before: every state" held "$(safe clocks '-DCLIENT=0 -DOTHERS=1 -DANY_CLOCK')"
    expect "two clients in detail, one monitor: every state" held "$(safe two_clients '-DCLIENTS=2 -DONE_MONITOR')"
    expect "no cycle without progress" held "$(search cycles "$model" -DPROGRESS "-DNP -DNFAIR=4" -m200000 -A -l -f)"
    expect "three clients in detail, two monitors: a part of the states" held \
        "$(search three_clients "$model" -DCLIENTS=3 "-DSAFETY -DNOCLAIM -DBITSTATE -DRANDOMIZE" -m20000 -k2 -w23 -E -RS1)"
fi

planted() { # NAME DEFINES SED-EXPRESSION [PAN-OPTION]
    sed "$3" "$model" >"$out/planted.pml"
    cmp -s "$model" "$out/planted.pml" && { bad "$1: its text is not in the model"; return; }
    found=$(search planted "$PWD/$out/planted.pml" "$2" "-DSAFETY -DNOCLAIM" -m200000 "${4:--E}")
    expect "planted: $1: ${found:-not found}" eval '[[ "$found" == *violated* || "$found" == *invalid* ]]'
}
one='-DCLIENT=0 -DOTHERS=1'
# One for each property; the others with `all`.
planted "a heartbeat that makes the epoch too old" "$one" 's/age < now - oldest -> age++/age <= now - oldest -> age++/'
planted "a takeover that leaves the period word" "$one" 's/period_writer = me; holding = true;/holding = true;/'
planted "terms that are not confirmed" "$one" 's/:: period_epoch == e \&\& period_open ->/:: true ->/'
planted "tokens that live a tick longer" "$one" 's/until\[me\] = prev_at + T;/until[me] = prev_at + T + 1;/'
planted "a fill that forgets the reservation" "$one" 's/budget = put - count + .*;  /budget = put - count;  /'
planted "a lost claim before a period that begins with a claim" "$one" 's/fresh = 2 /fresh = 0 /'
planted "a swap that is not tried again" -DPROGRESS 's/:: else -> skip              \/\* a claim came/:: else -> has = false; holding = false \/* a claim came/' -A
if [ "${1:-}" = all ]; then
    planted "a start that counts from an old clock" "$one" 's/start = now - age; age = 0;$/start = (now > age -> now - age - 1 : 0); age = 0;/'
    planted "an announcement that does not compare" "$one" '/M2/,/M3/s/:: period_writer == me ->$/:: true ->/'
    planted "a lost claim two periods before" "$one" 's/fresh = 2 /fresh = 1 /'
    planted "a claim of a later pool that is forgotten" "$one" '/early != e && fresh == 0 -> 1/d'
    planted "a report before the return" "$one" 's/if :: epoch == pool_epoch -> give_back() :: else -> skip fi/skip/'
    planted "a monitor that takes the storage and does not hold it" -DPROGRESS 's/period_writer = me; holding = true;/period_writer = me;/' -A
fi
finish $failed
