#!/usr/bin/env bash
# proves: every header compiles alone, first, twice, and before and after every other one (all of them, forward and reverse):
# C11 and C++17, gcc and clang, 32 and 64 bits, little and big endian, without __int128 - and without a warning. clang's
# -Weverything gives -Wpadded only; a C++ file that includes them by -isystem gets no warning at all; a standard older
# than C11 or C++17 gives an #error that names the needed one.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/headers
rm -rf "$out"
mkdir -p "$out"
headers=$(ls ./*.h | sed 's,^\./,,')

# What is included, one file each: alone (which is first); all forward, each of them twice, and all in reverse, so that
# each is included before and after every other one.
source_of() { # NAME HEADER...
    local name=$1
    shift
    printf '#include "%s"\n' "$@" >"$out/$name.c"
    # A file that declares nothing is no ISO C translation unit once everything is inline and unused.
    echo "extern int $name;" >>"$out/$name.c"
}
singles=
for a in $headers; do
    source_of "alone_${a%.h}" "$a"
    singles="$singles alone_${a%.h}"
done
# shellcheck disable=SC2046,SC2086
source_of forward $(for a in $headers; do echo "$a $a"; done)
# shellcheck disable=SC2046,SC2086
source_of reverse $(printf '%s\n' $headers | sort -r)

# One include can change another in syntax only. Warnings that need the optimiser and emitted bodies show
# elsewhere: freestanding.sh emits all headers as C11 with the same warnings for every compiler, the Makefile as C++17 (variant
# cxx) and without __int128 (32-bit targets). clang gives all its warnings without the optimiser.
native="gcc -std=c11 $C_WARNINGS
clang -std=c11 $C_WARNINGS
g++ -x c++ -std=c++17 $WARNINGS
clang++ -x c++ -std=c++17 $WARNINGS"
all="$native
gcc -std=c11 -DQOS_NO_INT128 $C_WARNINGS
g++ -x c++ -std=c++17 -DQOS_NO_INT128 $WARNINGS"
for tuple in $CROSS; do all="$all
$tuple-gcc -std=c11 $C_WARNINGS"; done

# All warnings of clang, with bodies emitted and not.
# With an older standard there is one error, which says what to do.
too_old() { # COMPILER FLAG...
    local said
    if said=$("$@" 2>&1); then echo "$*: compiles"; return 1; fi
    echo "$said" | grep -q '#error "qoskit needs C11 or C++17' || { echo "$*: does not say which standard is needed"; echo "$said" | head -3; return 1; }
}
export -f too_old

{
    for a in $headers; do
        for emit in "" -DQOS_API=; do
            echo "clang -std=c11 -Weverything -Wno-padded -Werror $emit -I. -fsyntax-only $out/alone_${a%.h}.c"
        done
        echo "clang++ -x c++ -std=c++17 -Weverything -Wno-c++98-compat-pedantic -Werror -isystem . -fsyntax-only $out/alone_${a%.h}.c"
        echo "g++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Wold-style-cast -Wuseless-cast -Wconversion -Werror -isystem . -fsyntax-only $out/alone_${a%.h}.c"
    done
    # Windows: clang-cl, whose system headers are not here; what clang brings itself is enough.
    for a in $headers; do echo "clang --target=x86_64-pc-windows-msvc -ffreestanding -std=c11 $C_WARNINGS -DQOS_API= -I. -fsyntax-only $out/alone_${a%.h}.c"; done
    echo "clang++ --target=x86_64-pc-windows-msvc -ffreestanding -x c++ -std=c++17 $WARNINGS -I. -fsyntax-only $out/reverse.c"
    for a in $headers; do # the line that refuses them is in qos.h
        for standard in $([ $a != qos.h ] || echo c90 gnu99) c99; do echo "too_old gcc -std=$standard -I. -fsyntax-only $out/alone_${a%.h}.c"; done
        for standard in $([ $a != qos.h ] || echo c++98 c++11) c++14; do echo "too_old clang++ -x c++ -std=$standard -I. -fsyntax-only $out/alone_${a%.h}.c"; done
    done
    echo "$all" | while read -r cc; do
        case $cc in
        gcc*NO_INT128* | *++*) echo "$cc -I. -DQOS_API= -fsyntax-only $out/reverse.c" ;;
        esac
        case $cc in *-linux-gnu*) only= ;; *) only=$singles ;; esac # a missing include is missed natively too
        for s in $only reverse; do echo "$cc -I. -fsyntax-only $out/$s.c"; done
    done
    echo "$native" | while read -r cc; do echo "$cc -I. -fsyntax-only $out/forward.c"; done
} >"$out/todo"
side_by_side <"$out/todo" || { echo "a header does not compile, or there is a warning: see above"; exit 1; }
echo "$(wc -l <"$out/todo") compilations as they should be"
finish
