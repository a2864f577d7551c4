#!/usr/bin/env bash
# Plants every bug of tests/plants/ into a copy of the headers and shows that the tests it names catch it.
# usage: tests/build/plants.sh [header]      BASELINE=1: also that these tests pass without the bug
#
# A patch begins with
#     # caught-by: property/htb_tree     a test; where several are named, each of them must catch the bug
#     # caught-by-timeout                (if need be) a hang counts: the bug makes a loop endless
# Caught means: built against the planted copy, the test ends with status 1 or dies of a signal (a fuzz target
# aborts). A patch that does not apply, a test that does not compile, that skips or passes: the bug survives.
# Every test of property/ and paper/ must be named by a plant, so that none of them is a test that cannot fail.
set -u
. "$(dirname "$0")/../lib.sh"
only=${1:-}
out=build/plants
rm -rf "$out"
mkdir -p "$out"

source_of() { # property/htb_tree -> tests/property/htb_tree.c or .cc
    local s
    for s in "tests/$1.c" "tests/$1.cc"; do [ -f "$s" ] && echo "$s" && return; done
    return 1
}

# build TEST PROGRAM HEADER_DIR
build() {
    local source compiler extra= level=-O0 # most of the time is the compiler's
    source=$(source_of "$1") || { echo "no such test"; return 1; }
    case $source in *.cc) compiler="g++ -std=c++17" ;; *) compiler="gcc -std=gnu11" ;; esac
    case $source in tests/paper/*) level=-O1 ;; esac # long simulations
    case $source in tests/fuzz/*) extra="tests/fuzz/driver.c -DFUZZ_NAME=\"$(basename "$1")\"" ;; esac
    # Unquoted on purpose: lists of flags. The planted copy comes first, so that it hides the headers of the root.
    # shellcheck disable=SC2046
    $compiler $level -w -I"$3" -I. -Itests $(says "$source" flags) -o "$2" "$source" $extra $(says "$source" links)
}

# One plant and one test -> a line: verdict plant test remark
try() {
    local patch=$1 test=$2 name dir program rc=0 verdict=SURVIVED remark= limit_s=300 # a slow machine is no verdict
    if grep -q '^# caught-by-timeout' "$patch"; then limit_s=60; fi
    name=$(basename "$patch" .patch)
    dir=$out/$name program=$out/$name/$(printf '%s' "$test" | tr / _)
    if ! build "$test" "$program" "$dir" >"$program.log" 2>&1; then
        remark="does not compile: $(grep -m1 -E 'error|no such' "$program.log")"
    else
        # The braces keep the shell's own word on a killed program out of the table.
        { QOS_TEST_FAILURES=1 timeout --kill-after=5 "$limit_s" "$program" >"$program.log" 2>&1 </dev/null || rc=$?; } 2>/dev/null
        case $rc in
        0) remark="the test passes" ;;
        1) verdict=caught remark=$(grep -m1 -E 'failed:|counts as failed' "$program.log" | cut -c1-110) ;;
        77) remark="the test was skipped" ;;
        124|137) if grep -q '^# caught-by-timeout' "$patch"; then verdict=caught; fi; remark="hangs ($limit_s s)" ;;
        *) if [ "$rc" -gt 128 ]; then verdict=caught; fi; remark="status $rc: $(tail -1 "$program.log" | cut -c1-90)" ;;
        esac
        [ "$verdict" = caught ] && rm -f "$program"
    fi
    printf '%-8s  %-34s %-34s %s\n' "$verdict" "$name" "$test" "$remark"
}

baseline() {
    local program=$out/baseline_${1//\//_}
    if build "$1" "$program" . >"$program.log" 2>&1 && timeout 300 "$program" >"$program.log" 2>&1 </dev/null; then return; fi
    printf '%-8s  %-34s %-34s %s\n' BROKEN "(no bug planted)" "$1" "fails without a bug: $program.log"
}
export -f try build source_of baseline says
export out

failed=0
shopt -s nullglob
for patch in tests/plants/"$only"*.patch; do
    name=$(basename "$patch" .patch)
    mkdir -p "$out/$name"
    cp ./*.h "$out/$name/"
    if ! patch -p1 -s -f --no-backup-if-mismatch -d "$out/$name" <"$patch" >"$out/$name/patch.log" 2>&1; then
        echo "BROKEN    $name does not apply any more (make it anew against today's header): $(tail -1 "$out/$name/patch.log")"
        failed=1
        continue
    fi
    tests=$(sed -n 's/^# caught-by: *//p' "$patch")
    [ -n "$tests" ] || { echo "BROKEN    $patch names no test (# caught-by: kind/name)"; failed=1; continue; }
    for test in $tests; do printf 'try %s %s\n' "$patch" "$test"; done
done >"$out/todo.all"
grep -v '^try ' "$out/todo.all"
grep '^try ' "$out/todo.all" >"$out/todo"
if [ -n "${BASELINE:-}" ]; then awk '{print $3}' "$out/todo" | sort -u | sed 's/^/baseline /' >>"$out/todo"; fi
side_by_side <"$out/todo" | tee "$out/table"
grep -q '^BROKEN' "$out/table" && failed=1
[ "$(grep -c '^caught ' "$out/table")" -eq "$(grep -c '^try ' "$out/todo")" ] || failed=1

for t in tests/property/"$only"*.c tests/property/"$only"*.cc tests/paper/"$only"*.c tests/paper/"$only"*.cc; do
    test=${t#tests/} test=${test%.*}
    grep -q " $test\$" "$out/todo" || { echo "no plant names $test: a test that nothing has shown to fail"; failed=1; }
done
printf '%d bugs planted; %d times a test had to catch one, %d times it did\n' "$(awk '/^try / {print $2}' "$out/todo" | sort -u |
    wc -l)" "$(grep -c '^try ' "$out/todo")" "$(grep -c '^caught ' "$out/table")"
exit $failed
