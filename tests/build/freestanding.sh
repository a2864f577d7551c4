#!/usr/bin/env bash
# proves: with every body emitted, a header needs no library: no allocation, no libc call, no floating point, no wide
# division of libgcc, no atomic library, no mutable static data, no file but <stddef.h> <stdint.h> <stdbool.h>. WebAssembly is one of the targets.
# Two planted headers, one that calls malloc and one that uses a double, must fail on every target
# (the double not on i686, see below). usage: tests/build/freestanding.sh [all]     all: every target at every level
set -u
. "$(dirname "$0")/../lib.sh"
out=build/freestanding
rm -rf "$out"
mkdir -p "$out"
headers=$(ls ./*.h | sed 's,^\./,,')

# Floating point is found where there are no registers for it: the compiler refuses it (-mgeneral-regs-only) or, on
# targets without that flag, calls a soft-float helper. i686 moves its 64-bit atomics through the FPU and must keep it.
# aarch64 calls libgcc for atomics unless told not to (a kernel tells it too).
targets="gcc -mgeneral-regs-only
clang -mgeneral-regs-only
clang --target=wasm32
aarch64-linux-gnu-gcc -mgeneral-regs-only -mno-outline-atomics
arm-linux-gnueabihf-gcc -mgeneral-regs-only
i686-linux-gnu-gcc -march=i686
s390x-linux-gnu-gcc -msoft-float
riscv64-linux-gnu-gcc -march=rv64imac -mabi=lp64"

# Undefined symbols that nm -u may show. The compiler itself may call the first four; _GLOBAL_OFFSET_TABLE_ is
# position-independent code.
memory='mem(cpy|move|set|cmp)|_GLOBAL_OFFSET_TABLE_'
allowed() {
    case $1 in
    *wasm32*) echo "^($memory|__stack_pointer|__multi3)\$" ;; # the product of 128 bits
    i686*) echo "^($memory|__(u?div|u?mod|u?divmod)di[34]|__x86\.get_pc_thunk\.[a-z]+)\$" ;;
    arm*) echo "^($memory|__(u?div|u?mod|u?divmod)di[34]|__aeabi_(u?idiv|u?idivmod|u?ldivmod|mem(cpy|move|set|clr)[48]?))\$" ;;
    *) echo "^($memory)\$" ;;
    esac
}

calls() { # OBJECT WHAT: WHAT begins with the compiler
    local bad nm=nm
    case $2 in *wasm32*) nm=llvm-nm ;; esac
    bad=$($nm -u "$1" | awk '{print $NF}' | grep -vE "$(allowed "$2")")
    # For a bit scan use qos_clz64 and qos_ctz64: where there is no instruction, the builtins call libgcc.
    [ -z "$bad" ] || { echo "$2 calls" $bad; return 1; }
}

# examine OBJECT DEPENDENCIES WHAT: calls, static data, and the files that were read
examine() {
    local bad
    calls "$1" "$3" || return 1
    case $3 in *wasm32*) return 0 ;; esac # its objects have one kind of data; the files that are read are those of clang
    bad=$(nm "$1" | awk '$2 ~ /^[bBdDcC]$/ {print $3}')
    [ -z "$bad" ] || { echo "$3 has mutable static data:" $bad; return 1; }
    bad=$(tr ' ' '\n' <"$2" | grep '\.h$' | grep -v -e "^[a-z0-9]*\.h$" -e "^$out/" |
        grep -vE '/(stddef|stdint|stdint-gcc|stdbool|__stddef_max_align_t)\.h$')
    [ -z "$bad" ] || { echo "$3 includes" $bad; return 1; }
}

# check FILE LEVEL COMPILER FLAG...: one object, all checks
check() {
    local source=$1 level=$2 cc=$3 object
    shift 3
    object=$out/$(basename "$source" .c).$(echo "$cc$*$level" | tr -c 'a-z0-9\n' _).o
    if ! $cc -std=c11 $C_WARNINGS -ffreestanding -DQOS_API= -I. -I"$out" "$@" "$level" -MD -c -o "$object" "$source" 2>"$object.log"; then
        echo "$cc $* $level $source: $(grep -m1 error "$object.log" || tail -1 "$object.log")"
        return 1
    fi
    examine "$object" "${object%.o}.d" "$cc $* $level $source" || return 1
    case "$*" in *wasm32*) # it has floating point: its text must not
        llvm-objdump -d "$object" | awk '/[[:space:]]f(32|64)\./ && !/select/ {bad = 1} END {exit bad}' || # any select is f32.select here
            { echo "$cc $* $level $source uses floating point"; return 1; } ;;
    esac
}
export -f check examine calls allowed
export out memory C_WARNINGS

todo() { # FILE LEVEL...
    local source=$1 level target
    shift
    for level in "$@"; do
        while read -r target; do echo "check $source $level $target"; done <<<"$targets"
    done
}

# A header's own lines include only the three files and qos.h.
grep -Hn '^ *# *include' $headers | grep -vE ':# *include (<(stddef|stdint|stdbool)\.h>|"qos\.h")$' &&
    { echo "only <stddef.h>, <stdint.h>, <stdbool.h> and \"qos.h\" may be included"; exit 1; }

printf '#include "%s"\n' $headers >"$out/all.c"
# gcc for a kernel's code model; clang at -O2; WebAssembly. For the other targets the objects of make test are examined: gcc at -O2
# (native), -O1 or -O0, with the flags above, which show floating point (the Makefile).
todo "$out/all.c" -O0 -O2 -Os >"$out/todo"
if [ "${1:-}" != all ]; then
    sed -i -n -e "s| -O0 gcc .*|& $KERNEL_CODE|p" -e '/ -O2 clang -m/p' -e '/ -O0 clang --target/p' "$out/todo"
    ${MAKE:-make} --no-print-directory -s objects-freestanding || exit 1
    for object in build/bodies/{native,aarch64,armhf,i386,riscv64,s390x}_*.o; do
        what=$(basename "$object") what=${what/i386/i686}
        examine "$object" "$object.d" "${what/armhf/arm}" || exit 1
    done
fi
side_by_side <"$out/todo" || exit 1

# The check itself is checked: each plant must fail everywhere.
cat >"$out/plant_malloc.h" <<'END'
#include <stddef.h>
#include "qos.h"
void *malloc(size_t n);
QOS_API void *plant_buffer(size_t n);
QOS_API void *plant_buffer(size_t n) { return malloc(n); }
END
cat >"$out/plant_double.h" <<'END'
#include "qos.h"
QOS_API uint64_t plant_share(uint64_t total, uint64_t part);
QOS_API uint64_t plant_share(uint64_t total, uint64_t part) { return (uint64_t)((double)total * 0.3 / (double)part); }
END
for plant in malloc double; do
    echo "#include \"plant_$plant.h\"" >"$out/plant_$plant.c"
    todo "$out/plant_$plant.c" -O0 | while read -r line; do
        case "$plant $line" in double*i686*) continue ;; esac
        if said=$(bash -c "$line"); then
            echo "the planted header that uses $plant was not found: $line"
            exit 1
        fi
        case "$plant $said" in
        malloc*' calls malloc' | double*SSE* | double*' calls __'* | double*regs-only* | double*floating* | double*general* | double*'loating'*) ;;
        *) echo "the planted header that uses $plant failed for another reason: $said"; exit 1 ;;
        esac
    done || exit 1
done
echo "$(wc -l <"$out/todo") objects of all headers and 15 planted ones"
finish
