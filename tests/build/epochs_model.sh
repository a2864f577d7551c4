#!/usr/bin/env bash
# proves: tests/proof/tokenpool_epochs.pml and tokenpool_tokens.pml, the clocks, fenced writes, epochs, reports, claims and admissions of
# tokenpool.h as models for spin: in the searches below no order of steps, pauses, deaths and clocks breaks a promise, and the
# rules are needed: one that is left out is found, with its shortest trace. usage: tests/build/epochs_model.sh [all] (make prove)
#
# Every search is complete. all: three epochs of two monitors, epochs of progress, two of tokens, two takeovers and steps back, three engines, four that admit; each of 29 rules.
set -u
. "$(dirname "$0")/../lib.sh"
command -v spin >/dev/null || { echo "SKIP spin is not installed"; exit 77; }
epochs=$PWD/tests/proof/tokenpool_epochs.pml tokens=$PWD/tests/proof/tokenpool_tokens.pml
out=build/epochs_model failed=0
rm -rf "$out"

deadline='-DMONITORS=0 -DT=4 -DLAST=4' rests='-DENGINES=2 -DLAST=1 -DRESTS'
expect "two monitors, an epoch, a takeover: every state" held "$(spin_search monitors "$epochs" '-DMONITORS=2 -DLAST=1' -O0)"
expect "an engine's deadline, four epochs, a takeover: every state" held "$(spin_search deadline "$epochs" "$deadline" -O0)"
expect "two engines of one slot that rest, an epoch: every state" held "$(spin_search rests "$tokens" "$rests")"
expect "admissions by three monitors: every state" held "$(spin_search admissions "$tokens" '-DADMISSIONS=3' -O0)"
if [ "${1:-}" = all ]; then
    expect "two monitors, three epochs, a takeover: every state" held "$(spin_search monitors_three "$epochs" '-DMONITORS=2')"
    expect "two monitors: the epoch ends while its owner runs: every state" held "$(spin_search progress "$epochs" '-DMONITORS=2 -DLAST=1 -DPROGRESS')"
    expect "two engines of one slot, two epochs: every state" held "$(spin_search tokens "$tokens" '-DENGINES=2')"
    expect "two monitors: two epochs end while their owner runs: every state" held "$(spin_search progress_two "$epochs" '-DMONITORS=2 -DLAST=2 -DPROGRESS')"
    expect "an engine's deadline, two takeovers, two steps back: every state" held "$(spin_search deadline_long "$epochs" "$deadline -DTAKES=2 -DBACKS=2" -DCOLLAPSE)"
    expect "three engines of one slot: every state" held "$(spin_search engines "$tokens" '-DENGINES=3 -DLAST=1' -DCOLLAPSE)"
    expect "admissions by four monitors: every state" held "$(spin_search admissions_four "$tokens" '-DADMISSIONS=4' -DCOLLAPSE)"
fi

without() { # RULE MODEL DEFINES WHAT [COMPILER-OPTION]: breadth first
    local found
    found=$(spin_search "$1" "$2" "$3 -D$1" "-O0 ${5--DBFS}" 2>/dev/null)
    expect "found without a rule: $4: ${found:-nothing}" eval '[[ "$found" == *violated* ]]'
    [ "${5--DBFS}" = -DBFS ] || return
    # shellcheck disable=SC2086  # several defines
    (cd "$out/$1" && spin -t $3 -D$1 model.pml 2>/dev/null) | grep -vE '^(spin|#|-)|processes|^ *[0-9]+:|=' | sed 's/^ *//' |
        grep -v '^$' | paste -sd, | sed 's/,\([^ ]\)/, \1/g' | fold -sw 110 | sed 's/^/    /'
}
without START_UNCONFIRMED "$epochs" -DMONITORS=2 "the clock after a swap says when the epoch began"
without NO_MARGIN "$epochs" "$deadline" "a link of the deadline is shorter than T"
without NO_STAMP "$tokens" -DADMISSIONS=3 "who takes the storage writes its takeover into the admissions"
if [ "${1:-}" != all ]; then finish $failed; fi
without OLD_COUNTS "$epochs" -DMONITORS=2 "the time until a monitor's clock is right again counts once"
without OLD_CONFIRMS "$epochs" -DMONITORS=2 "an old reading does not say when an epoch began"
without LOOK_KEPT "$epochs" -DMONITORS=2 "an epoch announced after the first look may have begun just now"
without TIME_OF_READ_KEPT "$epochs" "$deadline" "a read that the clock went back in has no time"
without REPORT_STORE "$tokens" -DENGINES=2 "a report is a swap of the engine's own last one"
without NO_LEVEL "$tokens" "$rests" "an engine that begins to take reads the level after it said so"
without LOOK_UNCONFIRMED "$epochs" -DMONITORS=2 "the age of another's epoch counts from the clock after the look"
without SKIPPED "$epochs" -DMONITORS=2 "a number that was never announced counts as a takeover"
without CHANGING_STORE "$epochs" -DMONITORS=2 "the announcement is a swap"
without OPEN_STORE "$epochs" -DMONITORS=2 "the end of the announcement is a swap"
without NO_BEAT "$epochs" '-DMONITORS=2 -DLAST=2 -DPROGRESS' "who takes the storage continues the heartbeat" ''
without ANY_LINKS "$epochs" "$deadline" "numbers count as epochs of T without a takeover only"
without STEP_UNNOTICED "$epochs" "$deadline" "a clock that went back has no deadline"
without NO_BUDGET "$tokens" -DENGINES=2 "what is claimed counts"
without SET_STORE "$tokens" -DENGINES=2 "the pool is set by a swap"
without ATTACH_FORGETS "$tokens" -DENGINES=2 "an engine that attaches continues from the slot's report"
without NO_X "$tokens" -DENGINES=2 "an engine that attaches counts X as spent"
without FORMER_GOES_ON "$tokens" -DENGINES=2 "an engine that finds another's report is fenced"
without ANY_TERMS "$tokens" -DENGINES=2 "terms of another epoch do not count"
without ANY_CLAIM "$tokens" -DENGINES=2 "the epoch of a claim's answer says whose tokens they are"
without CLAIM_AGAIN "$tokens" -DENGINES=2 "who emptied the pool reads it before its next claim"
without NO_LOOK "$tokens" -DADMISSIONS=3 "a monitor looks at the period word before it swaps"
without PUT_STORE "$tokens" -DADMISSIONS=3 "an admission is a swap"
without REST_SPENDS "$tokens" "$rests" "an engine that says that it rests has no token in hand"
without HEIR_KEEPS "$tokens" "$rests" "an engine that attaches to the report of one that rested reads the level"
without HEIR_FORGETS "$tokens" "$rests" "that one may have risen: what counts as spent stays counted"
finish $failed
