#!/usr/bin/env bash
# proves: the tests reach 98 % of the lines (the aim is every line) and at least 95 % of the branches of every header.
# usage: tests/build/coverage.sh            checks that
#        tests/build/coverage.sh report [header]   prints the figures and what is not reached
#
# All bodies are compiled once, with clang's counters, and every C test of unit/, property/, paper/ and fuzz/ links
# them through the prototypes alone: so a function that is never called counts as missed; inline copies would hide it.
# The tests are the objects of make test's native variant.
# A test that shrinks a limit (`// flags: -DX_LIMIT=4`) gets bodies with that limit; the counters of a function whose
# structure is the same add up. A test that cannot be built so (QOS_ATOMIC_HOOK, QOS_NO_INT128: other bodies) says
# `// coverage: no`.
set -u
. "$(dirname "$0")/../lib.sh"
mode=${1:-assert} only=${2:-}
out=build/coverage
rm -rf "$out"
mkdir -p "$out"
headers=$(ls ./*.h | sed 's,^\./,,')
# Long random runs add nothing here: what counts is which states are reached, not how often.
export QOS_TEST_SCALE=${QOS_TEST_SCALE:-20}

printf '#define QOS_API\n' >"$out/bodies.c"
printf '#include "%s"\n' $headers >>"$out/bodies.c"
bodies_of() { # LIMITS HEADER -> the object that has them: of all headers, or with limits of that one
    if [ -z "$1" ]; then echo "$out/bodies.o"; else echo "$out/bodies_$2_$(echo "$1" | tr -c 'A-Za-z0-9_\n' .).o"; fi
}
header_of() { basename "$1" | sed 's/_.*//'; } # tests/unit/htb_gate.c -> htb
limits_of() { says "$1" flags | tr ' ' '\n' | grep -E '^-D(QOS|HTB|TAGS|PSHIFT|TOKENPOOL|TWOCHOICE)_' | tr '\n' ' '; }
one() { # TEST.c
    local name program object bodies case extra=
    bodies=$(bodies_of "$(limits_of "$1")" "$(header_of "$1")")
    name=$(basename "$1" .c) program=$out/$(echo "$1" | tr / _ | sed 's/\.c$//') object=${1#tests/}
    object=build/native/${object%.c}.o
    if has_own_bodies "$1"; then
        object=$1
        case $1 in tests/fuzz/*) extra="tests/fuzz/driver.c -DFUZZ_NAME=\"$name\"" ;; esac
    fi
    # shellcheck disable=SC2046,SC2086
    clang -std=gnu11 -O0 -w -DQOS_DECLARE_ONLY -I. -Itests $(says "$1" flags) -fprofile-instr-generate -o "$program" \
        "$object" $extra "$bodies" $(says "$1" links) || { echo "$1 does not build for coverage"; return 1; }
    case=$(says "$1" coverage | sed -n 's/^yes //p')
    QOS_TEST_CASE=$case LLVM_PROFILE_FILE=$program.profraw timeout 300 "$program" >"$program.log" 2>&1 </dev/null
    case $? in 0|77) rm -f "$program" ;; *) echo "$1 fails:"; tail -5 "$program.log"; return 1 ;; esac
}
export -f one says bodies_of limits_of header_of has_own_bodies
export out

for t in tests/unit/*.c tests/property/*.c tests/paper/*.c tests/fuzz/*.c; do
    [ -f "$t" ] && [ "$t" != tests/fuzz/driver.c ] && [ "$(says "$t" coverage)" != no ] || continue
    case $(basename "$t") in "$only"*) ;; *) continue ;; esac
    # Simulations that run natively only are long, and reach nothing new, unless they say `coverage: yes`
    # or, for one of their cases, `coverage: yes CASE`.
    case "$t $(says "$t" variants) $(says "$t" coverage)" in tests/paper/*" native ") continue ;; esac
    limits=$(limits_of "$t") header=$(header_of "$t")
    if [ -n "$limits" ]; then
        mkdir -p "$out/$header" # the same file's name: counters of static functions go by it
        printf '#define QOS_API\n#include "qos.h"\n#include "%s.h"\n' "$header" >"$out/$header/bodies.c"
        echo "clang -std=gnu11 -O0 -I. -fprofile-instr-generate -fcoverage-mapping $limits -c -o $(bodies_of "$limits" "$header") $out/$header/bodies.c" >&3
    fi
    has_own_bodies "$t" || { object=${t#tests/}; echo "build/native/${object%.c}" >&4; }
    echo "one $t"
done >"$out/todo" 3>"$out/bodies" 4>"$out/objects"
# shellcheck disable=SC2046
${MAKE:-make} --no-print-directory -s $(cat "$out/objects") || exit 1
echo "clang -std=gnu11 -O1 -I. -fprofile-instr-generate -fcoverage-mapping -c -o $out/bodies.o $out/bodies.c" >>"$out/bodies"
sed 's/  */ /g' "$out/bodies" | sort -u | side_by_side || exit 1
side_by_side <"$out/todo" || exit 1
llvm-profdata merge -sparse -o "$out/all.profdata" "$out"/*.profraw || exit 1
[ -z "$only" ] || headers=$only.h

# Columns of llvm-cov: file, regions missed %, functions missed %, lines missed %, branches missed %.
llvm-cov report "$out/bodies.o" -instr-profile="$out/all.profdata" $headers >"$out/report.txt" || exit 1
awk -v headers="$headers" '
    {n = split($1, part, "/"); file = part[n]}
    index(" " headers " ", " " file " ") || ("\n" headers "\n") ~ ("\n" file "\n") {
        lines = $8; missed = $9; branches = $11; unseen = $12; seen++
        bad = missed * 50 > lines || unseen * 20 > branches ? "too few" : "ok"
        if (bad != "ok") failed = 1
        printf "%-12s %5d lines, %4d missed   %5d branches, %4d missed (%.1f %% reached)   %s\n",
            file, lines, missed, branches, unseen, branches ? 100 - 100 * unseen / branches : 100, bad
    }
    END {exit failed || !seen}' "$out/report.txt"
rc=$?
if [ "$mode" = report ]; then
    # Lists each line that was never reached, and each branch of which one way was never taken.
    llvm-cov show "$out/bodies.o" -instr-profile="$out/all.profdata" -show-branches=count $headers |
        awk '/^\// || /\.h:$/ {print} /^ +[0-9]+\| +0\|/ {print} /^ *[0-9]+\|/ {line = $0}
             /Branch \(.*: 0[,\]]/ {if (line != shown) print "branch" line; shown = line; print}'
    exit 0
fi
[ $rc -eq 0 ] || echo "required: 98 % of the lines (aim: every line), 95 % of the branches; to see what is missing: tests/build/coverage.sh report [header]"
finish $rc
