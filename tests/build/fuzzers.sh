#!/usr/bin/env bash
# proves: every fuzz target builds with libFuzzer and passes a short run that starts from the committed corpus.
#
# The headers' bodies are those of the sanitized tests, with assertions: compiling them again for libFuzzer would take most of
# the time, so it is guided here by what the target itself does; in make fuzz by all.
#
# The run is the same every time: one seed, a number of inputs (RUNS: a second or two) and no clock. Addresses are fixed,
# as libFuzzer learns from the values that a target compares, pointers included (where a sandbox forbids that, the inputs
# vary). QOS_FUZZ_RUNS overrides the number; make fuzz is the long one.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/fuzzers
rm -rf "$out"
mkdir -p "$out"

export RUNS=2000
in_place=
setarch -R true 2>/dev/null && in_place='setarch -R'
export in_place

smoke() {
    local name program=$out/$(basename "$1" .c) corpus bodies=
    name=$(basename "$1" .c) corpus=tests/fuzz/corpus/$(basename "$1" .c)
    mkdir -p "$program.new"
    [ -d "$corpus" ] || corpus=
    # shellcheck disable=SC2046
    has_own_bodies "$1" || bodies="-DQOS_DECLARE_ONLY -fprofile-instr-generate -fuse-ld=lld $(printf 'build/bodies/san_%s.o ' $(bodies_of_test "$1"))"
    # In a short run, optimising costs more than it saves.
    # shellcheck disable=SC2046,SC2086
    clang -std=gnu11 -O0 -w -fsanitize=fuzzer,address,undefined,integer -fno-sanitize-recover=all -I. -Itests \
        $(says "$1" flags) -o "$program" "$1" $bodies $(says "$1" links) || return 1
    # shellcheck disable=SC2086
    if ! $in_place "$program" -seed=1 -runs="${QOS_FUZZ_RUNS:-$RUNS}" -reload=0 -max_len=4096 -timeout=20 -artifact_prefix="$program." \
        "$program.new" $corpus >"$program.log" 2>&1; then
        tail -30 "$program.log"
        echo "replay: $program $(ls "$program".crash-* "$program".timeout-* "$program".leak-* 2>/dev/null | head -1)"
        return 1
    fi
    echo "$name: $(grep -m1 DONE "$program.log" | cut -c1-100)"
}
export -f smoke says has_own_bodies bodies_of_test
export out LLVM_PROFILE_FILE=/dev/null
# shellcheck disable=SC2046
${MAKE:-make} --no-print-directory -s $(for h in *.h; do echo "build/bodies/san_${h%.h}.o"; done) || exit 1
for t in tests/fuzz/*.c; do [ "$t" = tests/fuzz/driver.c ] || echo "smoke $t"; done >"$out/todo"
side_by_side <"$out/todo" || exit 1
finish
