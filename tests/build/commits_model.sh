#!/usr/bin/env bash
# proves: tests/proof/twochoice_commits.pml, the machine of commits of twochoice.h as a model for spin: two committers,
# compactions, swaps in another thread, power cuts, restarts and every failure of the storage lose nothing that was
# acknowledged, never leave both slots of the mark unsynced, count a write once, and leave each open write its record.
# A bug planted into the model is found, with its shortest trace. usage: tests/build/commits_model.sh [all]
#
# Every search is complete. all (make prove): two attempts at a compaction and two power cuts; two changes; logs of three records, with two changes or beside a power cut; nine bugs.
set -u
. "$(dirname "$0")/../lib.sh"
command -v spin >/dev/null || { echo "SKIP spin is not installed"; exit 77; }
model=$PWD/tests/proof/twochoice_commits.pml
out=build/commits_model
rm -rf "$out"
mkdir -p "$out"
failed=0

# The model has the states of the header.
states() { grep -oE "\b$2(NONE|COPYING|COPIED|SWAPPING|DOUBTFUL|SOUND|TORN|LOST)\b" "$1" | sed "s/^$2//" | sort -u | xargs; }
expect "the model has the states of the header" [ "$(states "$model" '')" = "$(sed 's/COPYING_LOG/COPYING/' twochoice.h >"$out/h"; states "$out/h" TWOCHOICE_PRIV_)" ]

expect "one change, one compaction, a power cut: every state" held "$(spin_search small "$model" '-DCHANGES=1 -DATTEMPTS=1 -DCUTS=1 -DMARKS=1' -O0)"
expect "marks of two commits: every state" held "$(spin_search marks "$model" '-DCHANGES=1 -DATTEMPTS=0 -DCUTS=1 -DMARKS=4' -O0)"
room='-DATTEMPTS=1 -DMARKS=0 -DROOM=3'
if [ "${1:-}" = all ]; then
    expect "logs of three records, a power cut: every state" held "$(spin_search room_cut "$model" "$room -DCHANGES=2 -DCUTS=1")"
    expect "two compactions, two power cuts: every state" held "$(spin_search two "$model" '-DCHANGES=1 -DATTEMPTS=2 -DCUTS=2 -DMARKS=1' -DCOLLAPSE)"
    expect "two changes, two compactions, one power cut: every state" held "$(spin_search large "$model" '-DCHANGES=2 -DATTEMPTS=2 -DCUTS=1 -DMARKS=1' -DCOLLAPSE)"
fi

planted() { # NAME DEFINES SED-EXPRESSION: breadth first, so that the trace is the shortest
    sed "$3" "$model" >"$out/planted.pml"
    cmp -s "$model" "$out/planted.pml" && { bad "$1: its text is not in the model"; return; }
    found=$(spin_search planted "$PWD/$out/planted.pml" "$2" '-O0 -DBFS')
    expect "planted: $1: ${found:-not found}" eval '[[ "$found" == *violated* ]]'
    # shellcheck disable=SC2086  # several defines
    (cd "$out/planted" && spin -t $2 model.pml 2>/dev/null) | grep -vE '^(spin|#|-)|processes|^ *[0-9]+:|=|^ *timeout' | sed 's/^ *//' | grep -v '^$' >"$out/trace"
    sed 's/^/    /' "$out/trace" | paste -sd, | sed 's/,    /, /g' | fold -sw 110
}
two='-DCHANGES=1 -DATTEMPTS=2 -DCUTS=0 -DMARKS=0'
planted "a commit counts for whatever log has the number now" "$two" 's/ \&\& commit_id\[2 \* k + l\] == id\[l\]//'
if [ "${1:-}" != all ]; then finish $failed; fi
planted "a sync that came late fails for nothing in the new log" "$two" 's/!good\[k\] -> told\[l\] = true; fail(l)/!good[k] -> told[l] = true; if :: commit_id[2 * k + l] == id[l] -> fail(l) :: else -> skip fi/'
planted "a log whose sync failed in a swap is synced again" "$two" 's/-> st\[l\] = DOUBTFUL$/-> skip/'
planted "a doubtful log is sound once it is swapped in" "$two" 's/(st\[act\] == SWAPPING -> SOUND : LOST)/SOUND/'
planted "a lost log goes on after the next sync" "$two" 's/:: else -> st\[l\] = LOST/:: else -> skip/'
planted "a restart forgets which writes have ended" '-DCHANGES=1 -DATTEMPTS=0 -DCUTS=1 -DMARKS=0' 's/ended = held/ended = 0/'
planted "a compaction goes on after a callback failed" "$two" 's/^            fail(other)$/            skip/'
planted "a ceiling takes the record of an open write" "$room -DCHANGES=2 -DCUTS=1" 's/room(act, open + 1) -> used/room(act, 1) -> used/'
planted "a mark that another commit synced" '-DCHANGES=0 -DATTEMPTS=0 -DCUTS=0 -DMARKS=4' 's/\(:: else ->\)*\(  *:: commit_mark\[k\] != 0\) \&\& commit_mark\[k\] == unsynced_mark -> unsynced_mark = 0; mark_slot/\2 -> unsynced_mark = 0; mark_slot/'
finish $failed
