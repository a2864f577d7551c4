#!/usr/bin/env bash
# What takes hours: make trust. usage: tests/trust.sh [step...]
#     early     20 planted early returns in sources and scripts of tests are noticed     (EARLY=n: so many)
#     prove     all proofs                     lint      the analyser at its full depth
#     load      real tests on a busy machine and on slow, stalling and fast disks: tests/under_load.sh
#     adversary ten minutes for each           mutate    300 mutants of each header
#     fuzz      half an hour for each header
# Without a step: all of them. Steps that went well on this commit are not done again. build/trust/log has what was done, dated.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/trust
mkdir -p "$out"
commit=$(git rev-parse HEAD)$(git diff HEAD | sha256sum | cut -c1-8)
note() { echo "$(date '+%F %T') ${commit:0:12} $*" | tee -a "$out/log"; }

early() { # early returns in a copy of the last commit
    local tree=$out/tree n plants=${EARLY:-20} source line name unnoticed=0 program
    rm -rf "$tree" && mkdir -p "$tree" && git archive HEAD | tar -x -C "$tree" || return 1
    cd "$tree" || return 1
    mapfile -t sources < <(ls tests/unit/*.c tests/property/*.c tests/interleave/*.c tests/build/*.sh tests/real/*.sh | shuf --random-source=<(yes "${SEED:-1}"))
    for ((n = 0; n < plants; n++)); do
        source=${sources[n]} name=${source#tests/} name=${name%.*}
        cp "$source" saved
        case $source in
        *.c)
            line=$(grep -n -A1 '^int main' "$source" | sed -n 's/^\([0-9]*\)-{$/\1/p')
            [ -n "$line" ] || { echo "no main in $source"; continue; }
            sed -i "${line}a return 0;" "$source"
            program=$PWD/early
            # shellcheck disable=SC2046
            gcc -std=gnu11 -O0 -w -I. -Itests $(sed -n '1,8s,^// flags: *,,p' "$source") -o "$program" "$source" \
                $(sed -n '1,8s,^// links: *,,p' "$source") || { cp saved "$source"; continue; }
            name=native/$name ;;
        *.sh) # behind a line of the first third that stands by itself
            line=$(awk 'NR > 3 && !/^#/ && /^[a-z]/ && !/[\\{|(]$/ && !/then$|do$/ {print NR}' "$source" | sed -n '2,9p' | shuf -n 1 --random-source=<(yes "$n"))
            sed -i "${line:-5}a exit 0" "$source"
            program=$source ;;
        esac
        if TEST_TIMEOUT=120 tests/run one "$name" "$program" >early.log 2>&1; grep -q '^FAIL' early.log; then
            echo "noticed    $source: $(head -1 early.log | cut -c1-120)"
        else echo "UNNOTICED  $source: line $line"; cat early.log; unnoticed=1; fi
        cp saved "$source"
    done
    return $unnoticed
}
adversary() {
    local source program end seed
    for source in tests/adversary/*.c; do
        program=build/native/adversary/$(basename "$source" .c) end=$((SECONDS + ${ADVERSARY_SECONDS:-600})) seed=1
        make -s "$program" || return 1
        while [ $SECONDS -lt $end ]; do
            echo "$program, seed $seed"
            QOS_TEST_SEED=$seed timeout 1800 "$program" || return 1
            seed=$((seed + 1))
        done
    done
}
mutate() {
    local h rc=0
    for h in *.h; do tests/mutate/mutate.py run "${h%.h}" "${MUTANTS:-300}" "${SEED:-1}" || rc=1; done
    return $rc
}
fuzz() {
    local h
    for h in *.h; do HEADER=${h%.h} SECONDS_EACH=${FUZZ_SECONDS:-1800} tests/fuzz/run.sh || return 1; done
}
prove() { make prove; }
lint() { make lint; }
load() { tests/under_load.sh; }

failed=0
for step in ${*:-early prove lint load adversary mutate fuzz}; do
    case $step in early | prove | lint | load | adversary | mutate | fuzz) ;; *) echo "no step $step: see the head of $0" >&2; exit 2 ;; esac
    [ ! -e "$out/$step.$commit" ] || { note "$step: done before"; continue; }
    note "$step: begun"
    if ("$step") >"$out/$step.log" 2>&1; then : >"$out/$step.$commit"; note "$step: good"
    else note "$step: FAILED, see $out/$step.log"; tail -n 20 "$out/$step.log"; failed=1; fi
done
exit $failed
