#!/usr/bin/env bash
# Prints bindings.h: what a generator of bindings reads in place of the headers. Generators do not see all macros: bindgen
# none of 64 bits, cffi none at all. So here they are constants, each with its type and its value.
# usage: examples/bindings/constants.sh, in the root
set -eu
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
headers=$(printf '#include "%s"\n' ./[a-z]*.h | sed 's,\./,,')
# Public numbers: NAME TYPE, and whether bindgen misses it.
awk '/^#define (QOS|HTB|TAGS|PSHIFT|TOKENPOOL|TWOCHOICE)_[A-Z0-9_]+ +[(0-9U]/ && !/_PRIV_/ && !seen[$2]++ {
    print $2, /[^U]INT64_C/ ? "int64_t" : /INT64/ ? "uint64_t" : /\(-/ ? "int32_t" : "uint32_t", /INT64|INT32_C/ ? "missed" : "seen"}' ./*.h >"$d/names"
{
    echo "$headers"
    printf '#include <stdio.h>\nint main(void)\n{\n'
    while read -r name type seen; do
        case $type in
        int*) echo "    printf(\"$name $type $seen %lld\\n\", (long long)$name);" ;;
        *) echo "    printf(\"$name $type $seen %lluu\\n\", (unsigned long long)$name);" ;;
        esac
    done <"$d/names"
    printf '    return 0;\n}\n'
} >"$d/values.c"
"${CC:-cc}" -std=c11 -I. -o "$d/values" "$d/values.c"
"$d/values" >"$d/values.txt"
cat <<END
/* Made by make lib: what a generator of bindings reads (docs/bindings.md)   SPDX-License-Identifier: MIT */
#ifndef QOSKIT_BINDINGS_H
#define QOSKIT_BINDINGS_H
#define QOS_DECLARE_ONLY
$headers

#ifdef __clang__ /* bindgen: of 64 bits it takes enumerators only */
$(awk '$3 == "missed" {print "#undef " $1 "\nenum : " $2 " {" $1 " = " $4 "};"}' "$d/values.txt")
#else
$(awk '{print "#undef " $1 "\nstatic const " $2 " " $1 " = " $4 ";"}' "$d/values.txt")
#endif
#endif
END
