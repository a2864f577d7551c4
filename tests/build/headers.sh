#!/usr/bin/env bash
# proves: every header compiles alone, first, twice, before and after every other one, and all of them in reverse:
# C11 and C++17, gcc and clang, 32 and 64 bits, little and big endian, without __int128 - and without a warning.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/headers
rm -rf "$out"
mkdir -p "$out"
headers=$(ls ./*.h | sed 's,^\./,,')

# What is included, one file each: alone (which is first), twice, pairs, all in reverse.
source_of() { # NAME HEADER...
    local name=$1
    shift
    printf '#include "%s"\n' "$@" >"$out/$name.c"
    # A file that declares nothing is no ISO C translation unit once everything is inline and unused.
    echo "extern int $name;" >>"$out/$name.c"
}
singles= pairs=
for a in $headers; do
    source_of "alone_${a%.h}" "$a"
    singles="$singles alone_${a%.h}"
    source_of "twice_${a%.h}" "$a" "$a"
    pairs="$pairs twice_${a%.h}"
    for b in $headers; do
        [ "$a" = "$b" ] && continue
        source_of "pair_${a%.h}_${b%.h}" "$a" "$b"
        pairs="$pairs pair_${a%.h}_${b%.h}"
    done
done
# shellcheck disable=SC2046,SC2086
source_of reverse $(printf '%s\n' $headers | sort -r)

# What one include can do to another shows in the syntax; some warnings need the optimiser and emitted bodies
# (-DQOS_API=), which the reverse order has of all headers at once. (As C11 freestanding.sh emits them, with the same
# warnings, for every compiler.)
native="gcc -std=c11 $C_WARNINGS
clang -std=c11 $C_WARNINGS
g++ -x c++ -std=c++17 $WARNINGS
clang++ -x c++ -std=c++17 $WARNINGS"
all="$native
gcc -std=c11 -DQOS_NO_INT128 $C_WARNINGS
g++ -x c++ -std=c++17 -DQOS_NO_INT128 $WARNINGS"
for tuple in $CROSS; do all="$all
$tuple-gcc -std=c11 $C_WARNINGS"; done

{
    echo "$all" | while read -r cc; do
        case $cc in *++*|*NO_INT128*) echo "$cc -I. -O1 -DQOS_API= -S -o /dev/null $out/reverse.c" ;; esac
        for s in $singles reverse; do echo "$cc -I. -fsyntax-only $out/$s.c"; done
    done
    echo "$native" | while read -r cc; do
        for s in $pairs; do echo "$cc -I. -fsyntax-only $out/$s.c"; done
    done
} >"$out/todo"
side_by_side <"$out/todo" || { echo "a header does not compile, or warns: see above"; exit 1; }
echo "$(wc -l <"$out/todo") compilations without a warning"
finish
