#!/usr/bin/env bash
# Fuzzes the targets of one header with libFuzzer and, where there is one, AFL++.
#   HEADER=htb SECONDS_EACH=60 tests/fuzz/run.sh         three quarters of the seconds for libFuzzer, the rest for AFL++
#   HEADER=htb tests/fuzz/run.sh minimise                 merges new inputs into the small corpus of the repository
# New inputs are kept in build/fuzz/<target>/. A crash ends with status 1 and the command that replays it.
set -u
. "$(dirname "$0")/../lib.sh"
header=${HEADER:-} seconds=${SECONDS_EACH:-60} mode=${1:-fuzz}
out=build/fuzz
shopt -s nullglob
targets=
for t in tests/fuzz/"$header"*.c; do [ "$t" = tests/fuzz/driver.c ] || targets="$targets $(basename "$t" .c)"; done
[ -n "$targets" ] || { echo "no fuzz target for HEADER=$header: $(cd tests/fuzz && echo *.c)"; exit 1; }

libfuzzer() { # TARGET PROGRAM
    clang -std=gnu11 -g -O1 -w -fsanitize=fuzzer,address,undefined,integer -fno-sanitize-recover=all -I. -Itests \
        $(says "tests/fuzz/$1.c" flags) -o "$2" "tests/fuzz/$1.c" $(says "tests/fuzz/$1.c" links)
}

if [ "$mode" = minimise ]; then
    for t in $targets; do
        [ -d "$out/$t/corpus" ] || { echo "$t: nothing found yet (make fuzz HEADER=$header)"; continue; }
        [ -x "$out/$t/libfuzzer" ] || libfuzzer "$t" "$out/$t/libfuzzer" || exit 1
        rm -rf "$out/$t/small"
        mkdir -p "$out/$t/small" "tests/fuzz/corpus/$t"
        # Inputs have at most 512 bytes: make test replays the corpus every time, and people review it.
        "$out/$t/libfuzzer" -merge=1 -max_len=512 "$out/$t/small" "tests/fuzz/corpus/$t" "$out/$t/corpus" 2>"$out/$t/merge.log" ||
            { tail -20 "$out/$t/merge.log"; exit 1; }
        # Keeps sixteen of the inputs that reach new code, spread over their sizes.
        rm -f "tests/fuzz/corpus/$t"/*
        ls -S "$out/$t/small" | awk -v n="$(ls "$out/$t/small" | wc -l)" 'n <= 16 || int(NR * 16 / n) > int((NR - 1) * 16 / n)' | while read -r f; do cp "$out/$t/small/$f" "tests/fuzz/corpus/$t/"; done
        echo "$t: $(ls "tests/fuzz/corpus/$t" | wc -l) of $(ls "$out/$t/small" | wc -l) inputs kept in tests/fuzz/corpus/$t"
    done
    exit 0
fi

for t in $targets; do
    mkdir -p "$out/$t/corpus" "$out/$t/crashes"
    # Otherwise the files of an earlier run would be reported as new.
    rm -rf "$out/$t/afl" "$out/$t/crashes"/*
    seeds=
    [ -d "tests/fuzz/corpus/$t" ] && seeds=tests/fuzz/corpus/$t
    libfuzzer "$t" "$out/$t/libfuzzer" || exit 1
    share=$((seconds * 3 / 4 > 0 ? seconds * 3 / 4 : 1))
    command -v afl-clang-fast >/dev/null || share=$seconds
    echo "== $t: libFuzzer, $share s"
    if ! "$out/$t/libfuzzer" -max_total_time="$share" -max_len=4096 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="$out/$t/crashes/" "$out/$t/corpus" $seeds >"$out/$t/libfuzzer.log" 2>&1; then
        tail -30 "$out/$t/libfuzzer.log"
        for c in "$out/$t/crashes"/*; do
            echo "CRASH in $t; replay: $out/$t/libfuzzer $c"
            echo "    shrink it:       $out/$t/libfuzzer -minimize_crash=1 -runs=100000 $c"
            echo "    keep it:         cp $c tests/fuzz/corpus/$t/   (it is replayed by make test from then on)"
        done
        exit 1
    fi
    grep -E 'DONE|number_of_executed_units' "$out/$t/libfuzzer.log" | sed 's/^/   /'

    command -v afl-clang-fast >/dev/null || { echo "== $t: no AFL++ here: all of the time for libFuzzer"; continue; }
    share=$((seconds - share > 0 ? seconds - share : 1))
    echo "== $t: AFL++, $share s"
    # shellcheck disable=SC2046
    AFL_QUIET=1 afl-clang-fast -std=gnu11 -g -O2 -w -I. -Itests -DFUZZ_NAME="\"$t\"" $(says "tests/fuzz/$t.c" flags) \
        -o "$out/$t/afl_target" "tests/fuzz/$t.c" tests/fuzz/driver.c $(says "tests/fuzz/$t.c" links) >"$out/$t/afl.log" 2>&1 ||
        { cat "$out/$t/afl.log"; exit 1; }
    rm -rf "$out/$t/afl_in"
    mkdir -p "$out/$t/afl_in"
    printf 'seed' >"$out/$t/afl_in/seed"
    # AFL++ needs small seeds, and few for a short run.
    for s in $(ls -Sr "$out/$t/corpus" | head -50); do cp "$out/$t/corpus/$s" "$out/$t/afl_in/"; done
    # Leaves the machine's core pattern and frequency governor as they are; no terminal, no colours.
    QOS_FUZZ_AFL=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_SKIP_CPUFREQ=1 AFL_NO_UI=1 AFL_NO_AFFINITY=1 AFL_NO_COLOR=1 \
        timeout --kill-after=10 $((share + 60)) afl-fuzz -V "$share" -i "$out/$t/afl_in" -o "$out/$t/afl" -- \
        "$out/$t/afl_target" >>"$out/$t/afl.log" 2>&1
    rc=$?
    stats=$out/$t/afl/default/fuzzer_stats
    [ -f "$stats" ] || { tail -20 "$out/$t/afl.log"; echo "$t: AFL++ did not run (status $rc)"; exit 1; }
    grep -E '^(execs_done|corpus_count|saved_crashes|saved_hangs)' "$stats" | sed 's/^/   /'
    bad=0
    for c in "$out/$t/afl/default/crashes"/id*; do
        echo "CRASH in $t; replay: $out/$t/afl_target $c"
        bad=1
    done
    [ $bad -eq 0 ] || exit 1
    for s in "$out/$t/afl/default/queue"/id*; do cp "$s" "$out/$t/corpus/$(sha1sum <"$s" | cut -c1-40)"; done
done
echo "no crash; to keep what was found: HEADER=$header tests/fuzz/run.sh minimise"
