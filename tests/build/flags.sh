#!/usr/bin/env bash
# proves: the headers compile without a warning, every body emitted, at the optimisation levels and language standards
# that other scripts do not use (freestanding.sh: -O0 and -O2 as C11, -O0 for a kernel's code model; the Makefile: -O1
# and -O2; headers.sh: C++17), and give right results when the linker optimises: one test of each header, -flto, at -Os
# (gcc) or -O3 (clang). In these tests the bodies are inline, as users have them.
# usage: tests/build/flags.sh [all]     all: the same by every version of gcc and clang that is here, at every level (make trust)
set -u
. "$(dirname "$0")/../lib.sh"
out=build/flags
[ "${1:-}" = all ] || export QOS_TEST_SCALE=20 # all paths, not all cases
rm -rf "$out"
mkdir -p "$out"
printf '#define QOS_API\n' >"$out/all.c"
printf '#include "%s"\n' *.h >>"$out/all.c"
cp "$out/all.c" "$out/all.cc"

{
    # clang at -O1: the sanitized bodies; at -O3: below; gcc: freestanding.sh
    [ -z "$KERNEL_CODE" ] || echo "clang -std=gnu11 $C_WARNINGS -I. -O0 $KERNEL_CODE -ffreestanding -S -o /dev/null $out/all.c"
    for cc in gcc clang; do
        # The standard changes the warnings, not the code; C11: freestanding.sh, and C17 is C11 with its defects mended.
        echo "$cc -std=gnu2x $C_WARNINGS -I. -fsyntax-only $out/all.c"
    done
    for cxx in g++ clang++; do echo "$cxx -std=c++20 $WARNINGS -I. -fsyntax-only $out/all.cc"; done
    # The quickest test of each header that has several parts of it in one program.
    for t in qos_golden htb_config pshift_calls tags_api tokenpool_capacity twochoice_table; do
        source=tests/unit/$t.c
        [ -f "$source" ] || { echo "echo no test $source; false"; continue; }
        libs=$(says "$source" links) flags=$(says "$source" flags)
        case $t in
        htb* | tags* | qos*) echo "gcc -std=c17 -w -I. -Itests -Os -flto=1 $flags -o $out/$t $source $libs && $out/$t" ;;
        *) echo "clang -std=c17 -w -I. -Itests -O3 -flto -fuse-ld=lld $flags -o $out/$t $source $libs && $out/$t" ;;
        esac
    done
} >"$out/todo"
if [ "${1:-}" = all ]; then
    others=0
    for cc in $(ls /usr/bin /usr/local/bin | grep -xE '(gcc|clang)-[0-9]+' | sort -uV); do
        others=$((others + 1)) cxx=${cc/gcc/g++} cxx=${cxx/clang/clang++}
        for level in -O0 -O1 -O2 -O3 -Os; do echo "$cc -std=c11 $C_WARNINGS -I. $level -c -o $out/$cc$level.o $out/all.c"; done
        for std in c11 c17 gnu2x; do echo "$cc -std=$std $C_WARNINGS -I. -fsyntax-only $out/all.c"; done
        for std in c++17 c++20; do ! command -v "$cxx" >/dev/null || echo "$cxx -std=$std $WARNINGS -I. -fsyntax-only $out/all.cc"; done
        sed -nE "s,^(gcc|clang) (-std=c17 -w .*) (-Os|-O3) -flto(=1| -fuse-ld=lld) (.* -o )([^ ]*) (.*) && .*,$cc \\2 -O2 \\5\\6-$cc \\7 \\&\\& \\6-$cc,p" "$out/todo" >"$out/todo.$cc"
        [ -s "$out/todo.$cc" ] || { echo "no tests for $cc"; finish 1; }
        cat "$out/todo.$cc"
    done >"$out/todo.all"
    [ $others -gt 0 ] || { echo "no other compiler is here"; finish 1; }
    cat "$out/todo.all" >>"$out/todo"
fi
side_by_side <"$out/todo" >"$out/log" 2>&1 || { grep -E 'warning|error|failed|no test' "$out/log" | head -20; echo "see $out/log"; finish 1; }
echo "$(wc -l <"$out/todo") compilations"
finish
