#!/usr/bin/env bash
# proves: a seed is the same world with another compiler: gcc's programs and clang's count the same events and checks, at a
# hundredth of the seeds. (C has no order of arguments and operands, so two draws in one expression are two worlds.)
set -u
. "$(dirname "$0")/../lib.sh"
command -v clang >/dev/null || { echo "SKIP clang is not installed"; exit 77; }
export QOS_TEST_SCALE=100
out=build/compilers failed=0
rm -rf "$out"
mkdir -p "$out"
one() { # TEST.c: linked with the bodies of the native test, as these draw nothing
    local name bodies=
    name=$(basename "$1" .c)
    # shellcheck disable=SC2046
    has_own_bodies "$1" || bodies="-DQOS_DECLARE_ONLY $(printf 'build/bodies/asserting_%s.o ' $(bodies_of_test "$1"))"
    # shellcheck disable=SC2046,SC2086
    clang -std=gnu11 -O0 -w -ffp-contract=off $(says "$1" flags) -I. -Itests -o "$out/$name" "$1" "$out"/*.o $bodies -lm || return 1
    figures "build/native/world/$name" >"$out/$name.gcc"
    figures "$out/$name" >"$out/$name.clang"
    rm "$out/$name"
    [ -s "$out/$name.gcc" ] && cmp "$out/$name.gcc" "$out/$name.clang" && echo "ok: $name: $(tail -n 1 "$out/$name.gcc")"
}
figures() { timeout 300 "$1" | grep -oE '[0-9]+ worlds, [0-9]+ events|[0-9]+ checks, [0-9]+ failed|digest [0-9a-f]+'; } # PROGRAM
export -f one figures says has_own_bodies bodies_of_test
export out
worlds=$(grep -lE '#include "(world_test|device_fields)\.h"|WORLD_SERVERS 1' tests/world/*.c)
# shellcheck disable=SC2046
${MAKE:-make} --no-print-directory -s $(for t in $worlds; do echo "build/native/world/$(basename "$t" .c)"; done) || exit 1
for s in examples/world/*.c; do echo "clang -std=gnu11 -O0 -w -ffp-contract=off -c -o $out/$(basename "$s" .c).o $s"; done | side_by_side || finish 1
for t in $worlds; do echo "one $t"; done | side_by_side || bad "a world is another one with clang"
finish $failed
