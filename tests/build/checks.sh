#!/usr/bin/env bash
# proves: a case of a test that no longer runs is noticed: with a return before its first statement, behind a condition that is
# always true, the test makes fewer checks than tests/checks.txt says; every test program has its number there, and no first line
# (`// coverage: ...`) stands behind the eighth, where nothing reads it
set -u
. "$(dirname "$0")/../lib.sh"
failed=0
d=$(mktemp -d "$PWD/build/checks-XXXXXX") || exit 1
trap 'rm -rf "$d"' EXIT
mkdir -p "$d/tests"
cp tests/run tests/checks.txt "$d/tests/"

# shellcheck disable=SC2046
${MAKE:-make} --no-print-directory -s $(for h in *.h; do echo "build/bodies/native_${h%.h}.o"; done) || exit 1
verdict() { # TEST PROGRAM: p or f, as tests/run judges it
    (cd "$d" && tests/run one "native/$1" "$2") >"$d/out" 2>&1
    cut -c1 "$d/build/verdict/native_${1//\//_}" | head -n 1
}
for pair in unit/qos_golden: unit/tags_config: unit/twochoice_golden: unit/pshift_tight:; do
    test=${pair%:*} case=${pair#*:} source=tests/${pair%:*}.c
    # Without a name: the last function without arguments before main.
    [ -n "$case" ] || case=$(sed -nE 's/^static void ([a-z_0-9]+)\(void\)$/\1/p' "$source" | tail -n 1)
    if [ -z "$case" ]; then bad "$test has no such function"; continue; fi
    perl -0pe "s/(\nstatic void \Q$case\E\(void\)\n\{\n)/\$1    if (check_state.scale)\n        return;\n/" "$source" >"$d/planted.c"
    ! cmp -s "$source" "$d/planted.c" || bad "$test: no place for a return in $case"
    bodies=
    # shellcheck disable=SC2046
    has_own_bodies "$source" || bodies="-DQOS_DECLARE_ONLY $(printf 'build/bodies/native_%s.o ' $(bodies_of_test "$source"))"
    for which in "$source" "$d/planted.c"; do
        # shellcheck disable=SC2046,SC2086
        gcc -std=gnu11 -O0 -w -I. -Itests -Itests/unit -o "$d/program" $(says "$source" flags) "$which" $bodies || { bad "$test does not compile"; continue 2; }
        got=$(cd "$PWD" && verdict "$test" "cd $PWD && $d/program")
        case $which:$got in
        "$source":p) ;;
        "$d"/*:f) ok "$test without $case: $(sed -nE 's/.*\((it made [0-9]+ checks, not [0-9]+).*/\1/p' "$d/out" | head -n 1)" ;;
        *) bad "$test, $which: verdict $got: $(tail -n 2 "$d/out")" ;;
        esac
    done
done
for source in tests/{unit,property,paper,adversary,world,interleave,fuzz}/*.c; do
    name=${source#tests/} name=${name%.c}
    [ "$name" = fuzz/driver ] || grep -q "^$name " tests/checks.txt || bad "tests/checks.txt has no number for $name: make checks"
done
for source in tests/*/*.{c,cc,sh}; do
    late=$(awk 'FNR > 8 && FNR < 30 && /^(\/\/|#) (proves|coverage|links|flags|variants|scale|whole|alone): / {print FNR ": " $0}' "$source")
    [ -z "$late" ] || bad "$source: behind the eighth line: $late"
done
finish $failed
