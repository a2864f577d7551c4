#!/usr/bin/env bash
# proves: every bug of tests/plants/*.txt, planted into a copy of the headers, is caught by the tests that it names
# usage: tests/build/plants.sh [header [bug]]      BASELINE=1: all bugs, and that these tests pass without them
#
# Without arguments (make test): the fewest bugs that show that each test of property/, paper/, adversary/ and
# interleave/ can fail, each tried with the tests that it shows, random ones at half their length: those of `soon`,
# which these tests find soon, before the others, in this order; but for the tests of `later`, which take half of the
# time. The old text of the others must be there, too. BASELINE=1 (make plant, make trust) tries all bugs with all
# tests that they name.
#
# tests/build/plant.pl documents the lists and plants the bugs. Caught means: built against the planted copy, the test
# ends with status 1 or dies of a signal (a fuzz target aborts). The bug survives if its old text is not there exactly
# once, or if the test does not compile, skips or passes. Every test of property/, paper/, adversary/ and interleave/
# must be named by a plant, so that each of them can fail.
set -u
. "$(dirname "$0")/../lib.sh"
only=${1:-} bug=${2:-}
later=" property/pshift_lemon_shards paper/pshift_experiments paper/twochoice_simulation property/tags_guarantees \
property/tokenpool_traffic property/tags_shards property/htb_flight world/htb_caller world/htb_clusters world/htb_cells "
soon=" htb-force_looks_at_no_limit htb-collapse_goes_on tags-stall_charged tags-corrected_as_far_as_v_has_not_passed \
twochoice-a_stall_is_learned pshift-restart_forgives tokenpool-budget-forgotten tokenpool-kept-away-from-the-node "
out=build/plants
rm -rf "$out"
mkdir -p "$out"

source_of() { # property/htb_trees -> tests/property/htb_trees.c or .cc
    local s
    for s in "tests/$1.c" "tests/$1.cc"; do [ -f "$s" ] && echo "$s" && return; done
    return 1
}

# build TEST PROGRAM HEADER_DIR HEADER: only the header with the bug is compiled again
build() {
    local source compiler extra= h objects= world= flags
    source=$(source_of "$1") || { echo "no such test"; return 1; }
    case $source in tests/world/*) world="$world_objects -ffp-contract=off -lm" ;; esac
    if ! has_own_bodies "$source"; then
        for h in $(bodies_of_test "$source"); do
            if [ "$h" = "$4" ] || [ "$4" = qos ]; then
                [ -f "$3/$h.o" ] || clang -std=gnu11 -O0 -w -I"$3" -c -o "$3/$h.o" "build/bodies/$h.c" || return 1
                objects="$objects $3/$h.o"
            else objects="$objects build/bodies/native_$h.o"; fi
        done
        # shellcheck disable=SC2046,SC2086
        gcc -I. $(says "$source" flags) -o "$2" "build/native/$1.o" $objects $world $(says "$source" links)
        return
    fi
    case $source in *.cc) compiler="g++ -std=c++17" ;; *) compiler="gcc -std=gnu11" ;; esac
    case $source in tests/fuzz/*) extra="tests/fuzz/driver.c -DFUZZ_NAME=\"$(basename "$1")\"" ;; esac
    flags=$(says "$source" flags)
    # The bugs that make test tries are found soon: compiling would be longer.
    if [ -z "${BASELINE:-}" ]; then flags=${flags//-O2/}
    else case $source in tests/interleave/* | tests/world/*) extra=-O1 ;; esac; fi
    # Unquoted on purpose: lists of flags. The planted copy comes first, so that it hides the headers of the root.
    # shellcheck disable=SC2046,SC2086
    $compiler -O0 $extra -w -I"$3" -I. -Itests $flags -o "$2" "$source" $world $(objects_in "$source")
}
# What a test links: for sources, the objects that make has compiled.
objects_in() { says "$1" links | tr ' ' '\n' | sed 's,^tests/\(.*\)\.cc$,build/\1.o,'; }

# One bug, one test (or one of its cases), and whether a hang counts -> a line: verdict bug test remark
try() { # HEADER NAME TEST[:CASE] HANG
    local header=$1 name=$1-$2 test=${3%:*} case=${3#"${3%:*}"} hang=$4 dir=$out/$1-$2 program rc=0 verdict=SURVIVED remark=
    local limit_s=300 # of processor time: a busy machine is no verdict
    local begin=$SECONDS
    if [ "$hang" = hang ]; then limit_s=60; fi
    program=$dir/$(printf '%s' "$test" | tr / _)
    if ! build "$test" "$program" "$dir" "$header" >"$program.log" 2>&1; then
        remark="does not compile: $(grep -m1 -E 'error|no such' "$program.log")"
    else
        # The braces keep the shell's message about a killed program out of the table.
        { QOS_TEST_FAILURES=1 QOS_TEST_CASE=${case#:} bash -c 'ulimit -t "$1"; exec timeout --kill-after=5 "$(($1 * 10))" "$2"' - "$limit_s" "$program" >"$program.log" 2>&1 </dev/null || rc=$?; } 2>/dev/null
        case $rc in
        0) remark="the test passes" ;;
        1) verdict=caught remark=$(grep -m1 -E 'failed:|counts as failed' "$program.log" | cut -c1-110) ;;
        77) remark="the test was skipped" ;;
        124|137|152) if [ "$hang" = hang ]; then verdict=caught; fi; remark="hangs ($limit_s s)" ;;
        *) if [ "$rc" -gt 128 ]; then verdict=caught; fi; remark="status $rc: $(tail -1 "$program.log" | cut -c1-90)" ;;
        esac
        [ "$verdict" = caught ] && rm -f "$program"
    fi
    printf '%-8s  %-34s %-34s %3d s  %s\n' "$verdict" "$name" "$test$case" $((SECONDS - begin)) "$remark"
}
# One bug, which is planted already, tried with each of its tests.
bug() { # HEADER NAME HANG TEST...
    local header=$1 name=$2 hang=$3 dir=$out/$1-$2 test
    shift 3
    [ ! -s "$dir/plant.log" ] || return
    for test in "$@"; do try "$header" "$name" "$test" "$hang"; done
    rm -f "$dir"/*.o
}

baseline() {
    local dir=$out/baseline_${1//\//_}
    mkdir -p "$dir"
    cp ./*.h "$dir/"
    if build "$1" "$dir/test" "$dir" none >"$dir/log" 2>&1 && timeout 300 "$dir/test" >"$dir/log" 2>&1 </dev/null; then return; fi
    printf '%-8s  %-34s %-34s %s\n' BROKEN "(no bug planted)" "$1" "fails without a bug: $dir/log"
}
export -f bug try build objects_in source_of baseline says has_own_bodies bodies_of_test
world_objects=$(for s in examples/world/*.c; do echo "build/native/${s%.c}.o"; done | xargs)
export out world_objects

failed=0
tests/build/plant.pl list tests/plants/*.txt >"$out/list" || exit 1
while IFS=$'\t' read -r header name tests hang; do
    [ -z "$only" ] || [ "$header" = "$only" ] || continue
    [ -z "$bug" ] || [ "$name" = "$bug" ] || continue
    [ -n "$tests" ] || { echo "tests/plants/$header.txt: $name names no test (caught by kind/name)"; failed=1; continue; }
    echo "bug $header $name $hang $tests"
done <"$out/list" >"$out/todo.all"
grep -v '^bug ' "$out/todo.all"
grep '^bug ' "$out/todo.all" >"$out/todo"
if [ -z "$only${BASELINE:-}" ]; then
    # $5 and the next ones: TEST or TEST:CASE. Each time the bug that shows most tests of those left, those of `soon`
    # before all others.
    awk -v later="$later" -v soon="$soon" '{
            line[NR] = $1 " " $2 " " $3 " " $4
            at = index(soon, " " $2 "-" $3 " ")
            early[NR] = at ? 100 * (1000 - at) : 0
            for (i = 5; i <= NF; i++) if ($i ~ /^(property|paper|adversary|interleave|world)/) names[NR] = names[NR] " " $i
        }
        function shows(b, taken,   i, n, of, test, now) {
            n = 0
            for (i = split(names[b], of, " "); i > 0; i--) {
                test = of[i]
                sub(/:.*/, "", test)
                if (test in seen || test in now || index(later, " " test " ")) continue
                now[test] = 1
                n++
                if (taken) line[b] = line[b] " " of[i]
            }
            if (taken) for (test in now) seen[test] = 1
            return n
        }
        END {
            for (;;) {
                most = 0
                for (b = 1; b <= NR; b++) if (n = shows(b, 0)) if (n + early[b] > most) {most = n + early[b]; best = b}
                if (!most) exit
                shows(best, 1)
                print line[best]
            }
        }' "$out/todo" >"$out/some" && mv "$out/some" "$out/todo"
    export QOS_TEST_SCALE=${QOS_TEST_SCALE:-2}
fi
awk '{for (i = 5; i <= NF; i++) {sub(/:.*/, "", $i); print $i}}' "$out/todo" | sort -u >"$out/tests"
objects=$(while read -r t; do [ ! -f "tests/$t.cc" ] || objects_in "tests/$t.cc" | grep '^build/'; [ ! -f "tests/$t.c" ] || has_own_bodies "tests/$t.c" || echo "build/native/$t"; done <"$out/tests")
# shellcheck disable=SC2086
${MAKE:-make} --no-print-directory -s $objects $world_objects || finish 1
cp ./*.h "$out/"
for h in $(awk '{print $2}' "$out/todo.all" | sort -u); do tests/build/plant.pl apply_all "tests/plants/$h.txt" "$out" || finish 1; done
tried=$(awk '{n += NF - 4} END {print n + 0}' "$out/todo")
if [ -n "${BASELINE:-}" ]; then sed 's/^/baseline /' "$out/tests" >>"$out/todo"; fi
side_by_side <"$out/todo" | tee "$out/table"

if [ -z "$bug" ]; then
    for t in tests/{property,paper,adversary,interleave}/"$only"*.{c,cc}; do
        [ -f "$t" ] || continue
        test=${t#tests/} test=${test%.*}
        grep -qE " $test(:| |\$)" "$out/todo.all" || { echo "no plant names $test: no bug shows that this test can fail"; failed=1; }
    done
fi
caught=$(grep -c '^caught ' "$out/table")
printf '%d bugs tried; %d times a test had to catch one, %d times it did\n' "$(grep -c '^bug ' "$out/todo")" "$tried" "$caught"
[ "$caught" -eq "$tried" ] || failed=1
for log in "$out"/*/plant.log; do
    [ ! -s "$log" ] || { echo "BROKEN    $(cat "$log")"; failed=1; }
done
# Again at the end, for readers of the log's last lines only.
if grep -v '^caught ' "$out/table"; then failed=1; fi
finish $failed
