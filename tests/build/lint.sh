#!/usr/bin/env bash
# proves: clang-format finds nothing in any source, clang-tidy and cppcheck nothing in the headers.
# usage: tests/build/lint.sh [all]     all (make lint): clang-tidy also for examples, tests, benchmarks and the headers as
# C++, cppcheck also for the examples and without __int128, and the analyser at its full depth
#
# The analyser assumes that QOS_ASSERT holds. So an invariant that it cannot find is written as an assertion, not
# suppressed. In make test it explores 4,000 states of a function instead of 225,000: a twentieth of the time. A clean
# result is remembered by a hash of the command, the depth, the checks and all compiled text (build/lint/clean/), and
# that run is not repeated.
set -u
. "$(dirname "$0")/../lib.sh"
all=${1:-}
out=build/lint
mkdir -p "$out/clean"
assume='-DQOS_ASSERT(x)=do{if(!(x))__builtin_unreachable();}while(0)'
depth="-Xclang -analyzer-config -Xclang max-nodes=4000"
[ "$all" != all ] || depth=
tools=$(clang-tidy --version; cppcheck --version; clang-format --version)
# The compiler's macros, which cppcheck does not have (without atomics tokenpool.h is an #error, which it ignores).
target="-D__GNUC__=12 -D__GCC_ATOMIC_LLONG_LOCK_FREE=2 -D__SIZEOF_INT128__=16 -D__ORDER_LITTLE_ENDIAN__=1234 -D__BYTE_ORDER__=1234"
export assume depth tools target

# Runs a command unless the same was clean before: once COMMAND... -- FILES THAT IT READS
once() {
    local command=() hash
    while [ "$1" != -- ]; do command+=("$1"); shift; done
    shift
    hash=$({ echo "${command[*]} $depth $tools $target"; cat .clang-tidy .clang-format "$@"; } 2>/dev/null | sha256sum | cut -d' ' -f1)
    [ -e "$out/clean/$hash" ] && return
    "${command[@]}" && : >"$out/clean/$hash"
}
tidy() { # FILE FLAG...
    local file=$1 reads
    reads=$(gcc -fsyntax-only -MM "${@:2}" -I. -Itests -Iexamples/common -Ibench "$file" 2>/dev/null | sed 's/^[^:]*://; s/\\$//') || reads=$file
    # shellcheck disable=SC2086
    once tidy_now "${tidy_extra[*]:-}" "$@" -- $file $reads
}
tidy_now() { # EXTRA FILE FLAG...
    local extra=$1 file=$2 log
    log=$out/$(echo "$2.$4" | tr -c 'a-z0-9+\n' _).log
    shift 2
    # shellcheck disable=SC2086
    clang-tidy --quiet $extra "$file" -- "$@" -I. -Itests -Iexamples/common -Ibench $depth >"$log" 2>&1 && return
    # What and where. The log shows how the analyser got there.
    grep -E '(error|warning):' "$log" | sed "s,^$PWD/,," | cut -c1-220
    echo "    more: $log"
    return 1
}
tidy_c() { local tidy_extra=(); tidy "$1" -x c -std=gnu11 "$assume" "${@:2}"; }
# Users of the headers include the prototypes only; otherwise the analyser would go through the same bodies again for
# each.
tidy_user() { local tidy_extra=(); tidy "$1" -x c -std=gnu11 "$assume" -DQOS_DECLARE_ONLY "${@:2}"; }
# The analyser has checked the same bodies as C; as C++ the quick checks are enough.
tidy_cxx() { local tidy_extra=('--checks=-clang-analyzer-*'); tidy "$1" -x c++ -std=c++17 "$assume" "${@:2}"; }
# Tests and benchmarks divide whole numbers for a report, include each other with other limits, compare bytes that must not have
# changed, and expand checks to two equal sides. The analyser does not see the bodies behind the prototypes here, and doubts
# every value that comes from there: it looks at headers and examples.
tidy_test() {
    local tidy_extra=('--checks=-clang-analyzer-*,-bugprone-integer-division,-bugprone-suspicious-include,-bugprone-suspicious-memory-comparison,-cert-exp42-c,-cert-flp37-c,-misc-redundant-expression')
    tidy "$1" -x c -std=gnu11 "$assume" -DQOS_DECLARE_ONLY "${@:2}"
}
format_now() { clang-format --dry-run -Werror "$@" 2>&1 | grep error; [ "${PIPESTATUS[0]}" -eq 0 ]; }
format() { once format_now "$@" -- "$@"; }
# shellcheck disable=SC2086
check_now() { cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 $target -I. "$@"; }
# What cppcheck reads for an option or a source, with the headers that a user's source includes.
check() { # FLAG... FILE...
    local arg files=()
    for arg in "$@"; do case $arg in -*) ;; *.h) files+=("$arg" qos.h) ;; *) files+=("$arg" ./*.h examples/common/*.h "${arg%/*}"/*.h) ;; esac; done
    once check_now "$@" -- "${files[@]}"
}
export -f once tidy tidy_now tidy_c tidy_user tidy_test tidy_cxx format format_now check check_now
export out

# The longest first, so that no core waits for the last one.
{
    wc -c ./*.h | sort -rn | awk '$2 ~ /\.h$/ {sub(/^\.\//, "", $2); print "tidy_c " $2}'
    for h in *.h; do
        echo "check $h"
        [ "$all" != all ] || ! grep -q '^#.*INT128' "$h" || echo "check -DQOS_NO_INT128 -U__SIZEOF_INT128__ $h" # the others have the same text
    done
    if [ "$all" = all ]; then
        for h in *.h; do echo "tidy_cxx $h"; done
        for tool in examples/*/; do
            flags=
            set -- "$tool"*.c
            [ ! -f "$1" ] || echo "check -DQOS_DECLARE_ONLY $*" # the bodies were checked above
            [ "$tool" != examples/quickstart/ ] || continue
            if [ -f "$tool/main.c" ]; then
                flags=$(says "$tool/main.c" flags)
                case $(says "$tool/main.c" compiler) in mpicc) flags="$flags $(mpicc --showme:compile 2>/dev/null)" ;; esac
            fi
            [ "$tool" != examples/nginx/ ] || flags=$(examples/nginx/build.sh --flags build/examples/ngx_http_qos_module.so) || continue
            for s in "$tool"*.c; do [ -f "$s" ] && echo "tidy_user $s $flags"; done
        done
        for s in examples/quickstart/*.c; do echo "tidy_user $s $(says "$s" flags)"; done
        for s in tests/*/*.c bench/*.c; do
            case $s in tests/plants/* | tests/proof/*) continue ;; esac # contracts: Frama-C reads them
            [ -f "$s" ] && echo "tidy_test $s $(says "$s" flags) -DFUZZ_NAME=\\\"x\\\""
        done
    fi
    find . -path ./build -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print | xargs -n 40 echo format
} >"$out/todo"
side_by_side <"$out/todo" || { echo "not clean: see above"; exit 1; }
echo "$(wc -l <"$out/todo") runs of clang-tidy, cppcheck and clang-format, no findings"
finish
