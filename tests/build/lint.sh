#!/usr/bin/env bash
# proves: clang-format, cppcheck and clang-tidy have nothing to say about the headers and the examples.
# usage: tests/build/lint.sh [all]     all: about tests and benchmarks too (make lint)
#
# The analyser takes QOS_ASSERT for granted, so an invariant that it cannot see is written down as one, not suppressed.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/lint
mkdir -p "$out"
assume='-DQOS_ASSERT(x)=do{if(!(x))__builtin_unreachable();}while(0)'
export assume

tidy() { # FILE FLAG...
    local file=$1 log
    log=$out/$(echo "$1.$3" | tr -c 'a-z0-9+\n' _).log
    shift
    clang-tidy --quiet "${tidy_extra[@]}" "$file" -- "$@" -I. -Itests -Iexamples/common -Ibench >"$log" 2>&1 && return
    # Where and what; how the analyser got there stands in the log.
    grep -E '(error|warning):' "$log" | sed "s,^$PWD/,," | cut -c1-220
    echo "    more: $log"
    return 1
}
tidy_c() { local tidy_extra=(); tidy "$1" -x c -std=gnu11 "$assume" "${@:2}"; }
# Users of the headers: through the prototypes, or the analyser would walk through the same bodies again for each.
tidy_user() { tidy_c "$1" -DQOS_DECLARE_ONLY "${@:2}"; }
# The analyser has seen the same bodies as C; as C++ the quick checks are enough.
tidy_cxx() { local tidy_extra=('--checks=-clang-analyzer-*'); tidy "$1" -x c++ -std=c++17 "$assume" "${@:2}"; }
format() { clang-format --dry-run -Werror "$@" 2>&1 | grep error; [ "${PIPESTATUS[0]}" -eq 0 ]; }
check() { cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -I. "$@"; }
export -f tidy tidy_c tidy_user tidy_cxx format check
export out

# The longest first, so that no core waits for the last one.
{
    wc -c ./*.h | sort -rn | awk '$2 ~ /\.h$/ {sub(/^\.\//, "", $2); print "tidy_c " $2}'
    for h in *.h; do echo "tidy_cxx $h"; done
    for tool in examples/*/; do
        flags=
        if [ -f "$tool/main.c" ]; then
            flags=$(says "$tool/main.c" flags)
            case $(says "$tool/main.c" compiler) in mpicc) flags="$flags $(mpicc --showme:compile 2>/dev/null)" ;; esac
        fi
        for s in "$tool"*.c; do [ -f "$s" ] && echo "tidy_user $s $flags"; done
    done
    if [ "${1:-}" = all ]; then
        for s in tests/*/*.c bench/*.c; do
            case $s in tests/plants/* | tests/proof/*) continue ;; esac # contracts: Frama-C reads them
            [ -f "$s" ] && echo "tidy_user $s $(says "$s" flags) -DFUZZ_NAME=\\\"x\\\""
        done
    fi
    echo "check ./*.h $(find examples -name '*.c' | tr '\n' ' ')"
    find . -path ./build -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print | xargs -n 40 echo format
} >"$out/todo"
side_by_side <"$out/todo" || { echo "not clean: see above"; exit 1; }
echo "$(wc -l <"$out/todo") runs of clang-tidy, cppcheck and clang-format, nothing to say"
finish
