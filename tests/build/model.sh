#!/usr/bin/env bash
# proves: tests/proof/tokenpool.pml, the words of tokenpool.h as a model for spin with 3 clients and 2 monitors, has the steps
# that the header has (by their labels), and a search of its states finds no broken assertion, no end where somebody waits
# and no cycle without progress; and bugs planted into the model are found. usage: tests/build/model.sh [all]
#
# The two monitors alone are searched exhaustively: all their interleavings, pauses and deaths, and two wrong beliefs
# that the other is dead. With clients there are too many states (above 10^8 with one): that search is random in its
# order and keeps its states as bits,
# in a table of a fixed size: some million states for each seed, the same on every machine. all (make prove): a table 64
# times as large.
set -u
. "$(dirname "$0")/../lib.sh"
command -v spin >/dev/null || { echo "SKIP spin is not installed"; exit 77; }
model=$PWD/tests/proof/tokenpool.pml
out=build/model
rm -rf "$out"
mkdir -p "$out"
failed=0 bits=20 seeds="1"
[ "${1:-}" != all ] || { bits=28; seeds="1 2 3 4"; }

# Labels are comments behind code: /* P1 */, /* M2, P2 */.
labels() { grep -v '^ \*' "$1" | grep -oE '/\* ([CMPR][0-9])(, [CMPR][0-9])* \*/' | grep -oE '[CMPR][0-9]' | sort -u | xargs; }
echo "steps of the header: $(labels tokenpool.h)"
echo "steps of the model:  $(labels "$model")"
expect "the model has the labelled steps of the header" [ "$(labels tokenpool.h)" = "$(labels "$model")" ]

# search NAME MODEL DEFINES PAN-OPTIONS: the first error, or nothing
search() {
    local name=$1 file=$2 defines=$3 seed
    shift 3
    mkdir -p "$out/$name"
    # shellcheck disable=SC2086  # several defines
    (cd "$out/$name" && spin $defines -a "$file" >spin.log 2>&1 && gcc -O1 -w -DBITSTATE -DRANDOMIZE $defines -o pan pan.c) || { echo "$name does not compile"; cat "$out/$name/spin.log"; return; }
    for seed in $seeds; do
        (cd "$out/$name" && ./pan -m20000 -k2 "-RS$seed" "$@") >"$out/$name/$seed.log" 2>&1
        grep -hoE 'assertion violated.*|invalid end state \(.*|non-progress cycle \(.*' "$out/$name/$seed.log" | head -1
        [ "$name" = planted ] || echo "$name, seed $seed: $(sed -n 's/ states, stored.*/ states/p' "$out/$name/$seed.log" | xargs)" >&2
    done | head -1
}

# Every state of the two monitors; prints the first error, or that the search did not come to its end.
exhaustive() {
    local dir=$out/alone
    mkdir -p "$dir"
    (cd "$dir" && spin -DSAFETY -DALONE -a "$model" >spin.log 2>&1 && gcc -O1 -w -DSAFETY -DALONE -DMEMLIM=2000 -o pan pan.c && ./pan -m100000) >"$dir/log" 2>&1
    grep -hoE 'assertion violated.*|invalid end state \(.*|Search not completed|search depth too small' "$dir/log" | head -1
    grep -q 'errors: 0' "$dir/log" || echo "no verdict"
    echo "two monitors alone, all states: $(sed -n 's/ states, stored.*/ states/p' "$dir/log" | xargs)" >&2
}

held() { [ -z "$1" ] || { echo "$1"; return 1; }; }
expect "two monitors alone: no assertion is broken in any state" held "$(exhaustive)"
expect "no assertion is broken and nobody waits for ever" held "$(search safety "$model" -DSAFETY "-w$bits")"
few=$(search few "$model" "-DSAFETY -DFEW" -m150 "-w$bits")
expect "nor with one client and many more runs of 150 steps" held "$few"
expect "no cycle without progress" held "$(search progress "$model" '-DNP -DNFAIR=3' -l -f "-w$((bits - 1))")"

planted() { # NAME SED-EXPRESSION: one client is enough, and runs of 150 steps
    sed "$2" "$model" >"$out/planted.pml"
    cmp -s "$model" "$out/planted.pml" && { bad "$1: its text is not in the model"; return; }
    found=$(search planted "$PWD/$out/planted.pml" "-DSAFETY -DFEW" -m150 -w19)
    expect "planted: $1: ${found:-not found}" [ -n "$found" ]
}
planted "a start that counts from an old clock" 's/:: unconfirmed \&\& has -> start = (c > start -> c : start)/:: unconfirmed \&\& has -> skip/'
planted "a look that counts from an old clock" 's/unconfirmed \&\& !has ->/unconfirmed \&\& !has \&\& false ->/'
planted "an announcement that does not compare" 's/ok = (version == mine);/ok = true;/'
planted "terms that are not confirmed" 's/:: period_epoch == e \&\& period_open ->/:: true ->/'
finish $failed
