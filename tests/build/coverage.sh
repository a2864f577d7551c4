#!/usr/bin/env bash
# proves: the tests reach 98 % of the lines (the aim is every line) and at least 95 % of the branches of every header.
# usage: tests/build/coverage.sh            checks that
#        tests/build/coverage.sh report [header]   prints the figures and what is not reached
#
# The bodies of the sanitized tests (the variant san, at a twentieth of their length: what counts is which states are
# reached, not how often) have clang's counters. These tests link them through the prototypes alone, so a function that is
# never called counts as missed; inline copies would hide it. What make test has run counts here; what is out of date is
# run again. C tests of unit/, property/, paper/ and fuzz/ that have no such variant are linked with the bodies here; so is each
# header's world: this is its run under the sanitizers, too. These are at an eightieth of their length, in a report at a
# twentieth.
# A test that shrinks a limit (`// flags: -DX_LIMIT=4`) gets bodies with that limit; the counters of a function whose
# structure is the same add up. A test that cannot be built so (QOS_ATOMIC_HOOK, QOS_NO_INT128: other bodies) says
# `// coverage: no`; one that is long and reaches ten branches or fewer that no other does, `// coverage: report`, or of one of
# its cases `// coverage: report CASE`: it counts in `report` (make coverage, make trust) alone.
set -u
. "$(dirname "$0")/../lib.sh"
mode=${1:-assert} only=${2:-}
out=build/coverage
rm -rf "$out"
mkdir -p "$out"
headers=$(ls ./*.h | sed 's,^\./,,')
scale=80
[ "$mode" = assert ] || scale=20
export QOS_TEST_SCALE=${QOS_TEST_SCALE:-$scale}
# How make compiles sanitized tests.
san=$(${MAKE:-make} --no-print-directory -s --eval='show: ; @echo "$(san)"' show) || exit 1
export san

header_of() { basename "$1" | sed 's/[_.].*//'; } # tests/unit/htb_gate.c -> htb
limits_of() { says "$1" flags | tr ' ' '\n' | grep -E '^-D(QOS|HTB|TAGS|PSHIFT|TOKENPOOL|TWOCHOICE)_' | tr '\n' ' '; }
bodies_of() { # HEADER LIMITS -> their object
    if [ -z "$2" ]; then echo "build/bodies/san_$1.o"; else echo "$out/$1_$(echo "$2" | tr -c 'A-Za-z0-9_\n' .).o"; fi
}
# The same file's name: counters of static functions go by it.
limited() { eval "$san" -fno-sanitize=all -O0 -fprofile-instr-generate -fcoverage-mapping -I. "$2" -c -o "$(bodies_of "$1" "$2")" "build/bodies/$1.c"; } # HEADER LIMITS
one() { # TEST.c
    local name program object bodies= extra= h
    name=$(basename "$1" .c) program=$out/$(echo "$1" | tr / _ | sed 's/\.c$//') object=${1#tests/}
    object=build/native/${object%.c}.o
    for h in $(bodies_of_test "$1"); do
        bodies="$bodies $(bodies_of "$h" "$([ "$h" != "$(header_of "$1")" ] || limits_of "$1")")"
    done
    if has_own_bodies "$1"; then
        object=$1
        case $1 in
        tests/fuzz/*) extra="tests/fuzz/driver.c '-DFUZZ_NAME=\"$name\"'" ;;
        tests/world/*) extra="-mllvm -asan-stack=0" ;; # its processes have stacks of their own
        esac
    fi
    case $1 in tests/world/*) extra="$extra $world_objects -lm" ;; esac
    eval "$san" -fprofile-instr-generate -fuse-ld=lld -O0 -DQOS_DECLARE_ONLY -I. -Itests "$(says "$1" flags)" -o "$program" \
        "$object" "$extra" "$bodies" "$(says "$1" links)" || { echo "$1 does not build for coverage"; return 1; }
    QOS_TEST_CASE=$(says "$1" coverage | sed -n 's/^report //p') LLVM_PROFILE_FILE=$program.profraw timeout 900 "$program" >"$program.log" 2>&1 </dev/null
    case $? in 0|77) rm -f "$program" ;; *) echo "$1 fails:"; tail -5 "$program.log"; return 1 ;; esac
}
export -f one limited says bodies_of bodies_of_test limits_of header_of has_own_bodies
world_objects=$(for s in examples/world/*.c; do echo "build/native/${s%.c}.o"; done | xargs)
export out world_objects

# Makes the verdicts of the sanitized tests; a failed one is counted there.
${MAKE:-make} --no-print-directory -s -k sanitized || true
# The long ones first.
for t in $(for h in $headers; do echo "tests/world/${h%.h}.c"; done) tests/unit/*.c tests/property/*.c tests/paper/*.c tests/fuzz/*.c; do
    [ -f "$t" ] && [ "$t" != tests/fuzz/driver.c ] && [ "$(says "$t" coverage)" != no ] || continue
    name=${t#tests/} name=${name%.c}
    case "$mode $(says "$t" coverage)" in assert\ report*) continue ;; esac
    case ${name#*/} in "$only"*) ;; *) continue ;; esac
    if [ -s "build/san/$name.profraw" ]; then echo "build/san/$name.profraw" >&5; continue; fi
    # Simulations that run natively only are long, and reach nothing new, unless they say `coverage`.
    case "$t $(says "$t" variants) $(says "$t" coverage)" in tests/paper/*" native ") continue ;; esac
    limits=$(limits_of "$t")
    [ -z "$limits" ] || echo "limited $(header_of "$t") '$limits'" >&3
    has_own_bodies "$t" || echo "build/native/$name.o" >&4
    echo "one $t"
done >"$out/todo" 3>"$out/limited" 4>"$out/objects" 5>"$out/counted"
# shellcheck disable=SC2046
${MAKE:-make} --no-print-directory -s $(cat "$out/objects") $world_objects || exit 1
sort -u "$out/limited" | side_by_side || exit 1
side_by_side <"$out/todo" || exit 1
# shellcheck disable=SC2046
llvm-profdata merge -sparse -o "$out/all.profdata" $(cat "$out/counted") "$out"/*.profraw || exit 1
[ -z "$only" ] || headers=$only.h
# Lines that were run, and branches taken either way; but for those in assertions, of which nobody wants one way.
rc=0
for h in $headers; do
    llvm-cov export -format=lcov "build/bodies/san_${h%.h}.o" -instr-profile="$out/all.profdata" "$h" |
        awk -v header="$h" -F '[:,]' '
            NR == FNR {if (/QOS_ASSERT\(/) asserted[FNR]; next}
            $1 == "DA" {lines++; missed += $3 == 0}
            $1 == "BRDA" && !($2 in asserted) {branches++; unseen += $5 == 0}
            END {
                bad = !lines || missed * 50 > lines || unseen * 20 > branches
                printf "%-12s %5d lines, %4d missed   %5d branches, %4d missed (%.1f %% reached)   %s\n",
                    header, lines, missed, branches, unseen, branches ? 100 - 100 * unseen / branches : 100, bad ? "too few" : "ok"
                exit bad
            }' "$h" - || rc=1
done
if [ "$mode" = report ]; then
    # Lists each line that was never reached, and each branch of which one way was never taken.
    for h in $headers; do llvm-cov show "build/bodies/san_${h%.h}.o" -instr-profile="$out/all.profdata" -show-branches=count "$h"; done |
        awk '/^\// || /\.h:$/ {print} /^ +[0-9]+\| +0\|/ {print} /^ *[0-9]+\|/ {line = $0}
             /Branch \(.*: 0[,\]]/ {if (line != shown) print "branch" line; shown = line; print}'
    exit 0
fi
[ $rc -eq 0 ] || echo "required: 98 % of the lines (aim: every line), 95 % of the branches; to see what is missing: tests/build/coverage.sh report [header]"
finish $rc
