#!/usr/bin/env bash
# proves: every fuzz target builds with libFuzzer and stands two seconds of it, from the committed corpus on.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/fuzzers
rm -rf "$out"
mkdir -p "$out"

smoke() {
    local name program=$out/$(basename "$1" .c) corpus
    name=$(basename "$1" .c) corpus=tests/fuzz/corpus/$(basename "$1" .c)
    mkdir -p "$program.new"
    [ -d "$corpus" ] || corpus=
    # shellcheck disable=SC2046
    clang -std=gnu11 -O1 -w -fsanitize=fuzzer,address,undefined,integer -fno-sanitize-recover=all -I. -Itests \
        $(says "$1" flags) -o "$program" "$1" $(says "$1" links) || return 1
    if ! "$program" -seed=1 -max_total_time="${QOS_FUZZ_SECONDS:-2}" -max_len=4096 -timeout=20 -artifact_prefix="$program." \
        "$program.new" $corpus >"$program.log" 2>&1; then
        tail -30 "$program.log"
        echo "replay: $program $(ls "$program".crash-* "$program".timeout-* "$program".leak-* 2>/dev/null | head -1)"
        return 1
    fi
    echo "$name: $(grep -m1 DONE "$program.log" | cut -c1-100)"
}
export -f smoke says
export out
for t in tests/fuzz/*.c; do [ "$t" = tests/fuzz/driver.c ] || echo "smoke $t"; done >"$out/todo"
side_by_side <"$out/todo" || exit 1
