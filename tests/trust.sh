#!/usr/bin/env bash
# Checks that take hours: make trust. usage: tests/trust.sh [step...]
#     whole     the tests that make test shortens (`// scale: N`, `// whole: VARIANT`), whole
#     coverage  what build/coverage.sh leaves to its report, under the sanitizers, too
#     early     20 planted early returns in sources and scripts of tests are found     (EARLY=n: n of them)
#     prove     all proofs            compilers every version of gcc and clang that is here            plant     all planted bugs
#     lint      the analyser at its full depth; freestanding.sh for every target at every level
#     real      20 runs of the real tests in a row, for a quiet machine: no failure, at most one in 20 inconclusive
#               (RUNS=n: n runs)
#     load      the real tests on a busy machine and on slow, stalling and fast disks: tests/under_load.sh
#     adversary ten minutes for each           mutate    each setting, and 300 mutants, of each header, and those that were caught before
#     world     ten minutes of fresh worlds for each header; what they find in version 0.2
#     faults    what strangers to the worlds planted into the headers: four of five are found, each within a minute
#     cells     the 1,008 cells of world/htb_cells: 99 % must reach what the best fixed bound does
#     fuzz      half an hour for each header
#     warm      10^8 warm starts of pshift.h's solver (property/pshift_warm, seeds 1 to 100)
#     cluster   20 rounds of all faults of real/cluster_etcd (CLUSTER_ROUNDS=n)
#     tenants   10^8 replies to two tenants of memcached_gate (REPLIES=n); its settings change under full load
#     matrix    all 240 rows of real/nginx_matrix, and what else nginx does to a response
#     bench     every script of bench/ runs to its end, in short (their figures are make bench's)
#     servers   every bug planted into the nginx module, memcached_gate, the nbdkit filter and uring_files is found by a real test
# Without a step: all of them. Steps that passed on this commit are not repeated. build/trust/log lists the steps with their dates.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/trust
mkdir -p "$out"
commit=$(git rev-parse HEAD)$(git diff HEAD | sha256sum | cut -c1-8)
note() { echo "$(date '+%F %T') ${commit:0:12} $*" | tee -a "$out/log"; }

early() { # early returns before random statements of functions and scripts, in a copy of the last commit
    local tree=$out/tree plants=${EARLY:-20} n=0 tries=0 source line name unnoticed=0 random lines word
    rm -rf "$tree" && mkdir -p "$tree" && git archive HEAD | tar -x -C "$tree" || return 1
    cd "$tree" || return 1
    mapfile -t sources < <(ls tests/{unit,property,paper,adversary,world,interleave,fuzz}/*.c tests/{build,real}/*.sh | grep -v -e fuzz/driver.c -e build/early.sh)
    RANDOM=${SEED:-1}
    while [ $n -lt "$plants" ] && [ $tries -lt $((plants * 20)) ]; do
        tries=$((tries + 1)) random=$((RANDOM * 32768 + RANDOM))
        source=${sources[random % ${#sources[@]}]} name=${source#tests/} name=${name%.*}
        # Lines that are a whole statement and follow another one.
        case $source in
        *.c) mapfile -t lines < <(awk '/^[ \t]+[a-z].*;$/ && before ~ /[;{}]$/ && !/^ *(case|default|break|return|continue)/ {print FNR} {before = $0}' "$source") ;;
        *) mapfile -t lines < <(awk 'FNR > 6 && /^[ \t]*[a-z_]+ / && before !~ /[\\|&({'"'"']$/ && !/^ *(do|done|fi|else|elif|esac|then|exit|return|break|local)/ {print FNR} {before = $0}' "$source") ;;
        esac
        [ ${#lines[@]} -gt 0 ] || continue
        line=${lines[random / 1000 % ${#lines[@]}]}
        cp -p "$source" saved
        # The first of these that compiles; a place where none compiles is not counted.
        for word in 'return;' 'return 0;' 'exit 0'; do
            awk -v line="$line" -v word="$word" 'FNR == line {match($0, /^[ \t]*/); print substr($0, 1, RLENGTH) word} {print}' saved >"$source"
            case $source:$word in
            *.c:exit*) word=; break ;;
            *.c:*) gcc -std=gnu11 -fsyntax-only -w -Werror=return-type -DQOS_DECLARE_ONLY -DFUZZ_NAME='""' -I. -Itests $(sed -n '1,8s,^// flags: *,,p' "$source") "$source" 2>/dev/null && break ;;
            *:exit*) bash -n "$source" 2>/dev/null || word=; break ;;
            esac
        done
        if [ -n "$word" ]; then
            n=$((n + 1))
            if ! tests/build/early.sh "$source" >early.log 2>&1; then echo "noticed     $source, line $line: $word"
            elif [ "${source##*.}" = sh ] && TEST_TIMEOUT=120 tests/run one "$name" "$source" >early.log 2>&1; grep -q '^FAIL' early.log; then
                echo "found       $source, line $line: $word, by its run"
            else echo "UNNOTICED   $source, line $line: $word"; sed -n "$((line - 2)),$((line + 2))p" "$source"; unnoticed=1; fi
        fi
        cp -p saved "$source"
    done
    [ $n -eq "$plants" ] || { echo "only $n places found"; return 1; }
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
coverage() { tests/build/coverage.sh report; }
mutate() {
    local h rc=0
    tests/build/mutants.sh all || rc=1
    for h in *.h; do
        tests/mutate/mutate.py settings "${h%.h}" || rc=1
        tests/mutate/mutate.py run "${h%.h}" "${MUTANTS:-300}" "${SEED:-1}" || rc=1
    done
    return $rc
}
fuzz() {
    local h
    for h in *.h; do HEADER=${h%.h} SECONDS_EACH=${FUZZ_SECONDS:-1800} tests/fuzz/run.sh || return 1; done
}
warm() {
    local seed
    make -s build/native/property/pshift_warm || return 1
    for seed in {1..100}; do QOS_TEST_SEED=$seed build/native/property/pshift_warm || return 1; done
}
matrix() { tests/real/nginx_matrix.sh all features; }
tenants() { make -s build/examples/memcached_gate && QOS_LONG=1 tests/real/memcached_gate_tenants.sh && QOS_LONG=1 tests/real/memcached_gate.sh reload; }
servers() {
    local kind rc=0
    for kind in nginx memcached_gate nbdkit uring_files; do tests/plants/$kind.sh || rc=1; done
    return $rc
}
bench() {
    local script rc=0
    tests/packages.sh bench || return 1
    for script in bench/*.sh bench/kernel/*.sh; do
        [ "$script" = bench/report.sh ] || "$script" --quick || { echo "$script failed"; rc=1; }
    done
    return $rc
}
prove() { make prove; }
plant() { make plant; }
whole() { make whole; }
compilers() { tests/build/flags.sh all; }
lint() { make lint && tests/build/freestanding.sh all; }
world() { # fresh seeds for each header; every pair of values must have been met; 0.2's faults must still be found
    local source h rc=0
    for source in tests/world/*.worlds; do
        h=$(basename "$source" .worlds)
        make -s "build/native/world/$h" && "build/native/world/$h" --from "${SEED:-1000000}" --for "${WORLD_SECONDS:-600}" --pairs || rc=1
    done
    SECONDS_EACH=${WORLD_SECONDS:-60} tests/world/v02/run.sh || rc=1
    tests/world/v02/mends.sh || rc=1
    return $rc
}
faults() { tests/world/faults/run.sh; }
cells() {
    make -s build/native/world/htb_cells || return 1
    build/native/world/htb_cells '*' | awk '{print} / cells, .* failed$/ {n = $1; failed = $3} END {exit !(n >= 1008 && failed * 100 <= n)}'
}
cluster() { QOS_LONG=${CLUSTER_ROUNDS:-20} tests/real/cluster_etcd.sh; }
load() { tests/under_load.sh; }
real() { # continues after the last test that was done on this commit
    local run test verdict took table=$out/real.$commit.table
    make -s examples || return 1
    touch "$table"
    for ((run = 1; run <= ${RUNS:-20}; run++)); do
        for test in tests/real/*.sh tests/vm/*.sh; do
            test=${test#tests/} test=${test%.sh}
            ! grep -q "^$run $test " "$table" || continue
            tests/run one "$test" "tests/$test.sh" | sed "s/^/run $run: /"
            read -r verdict took _ <"build/verdict/${test//\//_}"
            echo "$run $test $verdict $took" >>"$table"
            [ "$verdict" = p ] || cp "build/log/${test//\//_}.log" "$out/${test//\//_}.$run.log"
        done
    done
    awk '{n++; s += $4; t[$2] += $4; runs[$2]++; if ($3 == "i") unsure[$2]++; else if ($3 != "p") {failed++; bad[$2]++}}
        END {for (k in t) {u += unsure[k]; printf "%-32s %3d runs, %5.1f s each, %d inconclusive, %d failed or skipped\n", k, runs[k], t[k] / runs[k], unsure[k], bad[k]}
            printf "%d real tests in %d s: %d failed or skipped, %d inconclusive\n", n, s, failed, u
            exit failed > 0 || u * 20 > n}' "$table"
}

failed=0
for step in ${*:-whole coverage early plant prove compilers lint real load adversary world faults cells mutate fuzz warm cluster tenants matrix bench servers}; do
    case $step in whole | coverage | early | plant | prove | compilers | lint | real | load | adversary | world | faults | cells | mutate | fuzz | warm | cluster | tenants | matrix | bench | servers) ;; *) echo "no step $step: see the head of $0" >&2; exit 2 ;; esac
    [ ! -e "$out/$step.$commit" ] || { note "$step: done before"; continue; }
    note "$step: begun"
    if ("$step") >"$out/$step.log" 2>&1; then : >"$out/$step.$commit"; note "$step: good"
    else note "$step: FAILED, see $out/$step.log"; tail -n 20 "$out/$step.log"; failed=1; fi
done
exit $failed
