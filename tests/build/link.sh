#!/usr/bin/env bash
# proves: QOS_API emptied in one .c file gives linkable symbols and QOS_DECLARE_ONLY the prototypes, for C and C++:
# every function of every API section is defined, every public definition is declared there, every name has its
# header's prefix, and no header has a raw `static` function. nm on the linkable build shows these symbols only:
# private functions (QOS_PRIV) are static. A planted exported one is found.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/link
rm -rf "$out"
mkdir -p "$out"
headers=$(ls ./*.h | sed 's,^\./,,')
fail=0
say() { echo "$*"; fail=1; }

printf '#define QOS_API\n' >"$out/bodies.c"
printf '#include "%s"\n' $headers | tee -a "$out/bodies.c" >"$out/includes.h"
gcc -std=c11 $C_WARNINGS -I. -O0 -c -o "$out/bodies.o" "$out/bodies.c" -aux-info "$out/bodies.aux" || exit 1
printf '#define QOS_DECLARE_ONLY\n#include "includes.h"\n' >"$out/declared.c"
gcc -std=c11 -I. -I"$out" -fsyntax-only "$out/declared.c" -aux-info "$out/declared.aux" || exit 1

# gcc's list of prototypes has lines like
#     /* ./qos.h:237:NC */ extern int qos_cmp_wide (struct qos_u128, struct qos_u128);
names() { # LIST STATE: names of the functions of our headers that are declared (C) or defined (F)
    sed -nE "s,^/\* (\./)?[a-z]+\.h:[0-9]+:.$2 \*/ [^(]*[ *]([a-z_0-9]+) \(.*,\2,p" "$1" | sort -u
}
names "$out/declared.aux" C >"$out/declared"
names "$out/bodies.aux" F >"$out/defined"
[ -s "$out/declared" ] || say "found no prototype"

while read -r name; do say "$name is declared but not defined"; done < <(comm -23 "$out/declared" "$out/defined")
while read -r name; do say "$name is public but has no prototype in the API section (private: <header>_priv_)"
done < <(comm -13 "$out/declared" "$out/defined" | grep -v '^[a-z_]*_priv_')
while read -r name; do say "$name is private but declared in the API section"; done < <(grep '^[a-z_]*_priv_' "$out/declared")
prefixes=$(printf '%s|' $headers | sed 's/\.h//g; s/|$//')
while read -r name; do say "$name has no header's prefix"; done < <(cat "$out/declared" "$out/defined" | grep -vE "^($prefixes)_")
grep -nE '^(static|inline|extern) .*[(]' $headers && say "a function without QOS_API"

# What an object with all bodies exports, against the prototypes.
exports() { nm --defined-only -g "$1" | awk '{print $NF}' | sort -u; } # OBJECT
exported_beyond() { # OBJECT HEADER: symbols of this header that are no prototype
    exports "$1" | grep -E "^${2%.h}_" | comm -13 "$out/declared" -
}
for h in $headers; do
    while read -r name; do say "$h: nm shows $name, which is not public (QOS_PRIV)"; done < <(exported_beyond "$out/bodies.o" "$h")
    grep -nE "^(QOS_API|QOS_COLD QOS_API)[^;{]*\b${h%.h}_priv_" "$h" && say "$h: a private function that is QOS_API"
done
while read -r name; do say "nm shows $name, which has no header's prefix"; done < <(exports "$out/bodies.o" | grep -vE "^($prefixes)_")
printf '#define QOS_API\n#include "qos.h"\nQOS_API int qos_priv_plant(void);\nQOS_API int qos_priv_plant(void)\n{\n    return 0;\n}\n' >"$out/plant.c"
gcc -std=c11 -I. -O0 -c -o "$out/plant.o" "$out/plant.c" && [ "$(exported_beyond "$out/plant.o" qos.h)" = qos_priv_plant ] ||
    say "a planted private symbol that is exported was not found"

# A program that uses every symbol through the prototypes alone, once from C and once from C++.
{
    printf '#define QOS_DECLARE_ONLY\n#include "includes.h"\ntypedef void (*function)(void);\n'
    printf 'extern const function table[];\nconst function table[] = {\n'
    # A prototype that needs QOS_ATOMIC_HOOK or a wider word is not in the list on this target, so each listed function
    # exists.
    sed 's/.*/    (function)\&&,/' "$out/declared"
    printf '};\nint main(void)\n{\n    unsigned i;\n    for (i = 0; i < sizeof table / sizeof *table; i++)\n'
    printf '        if (!table[i])\n            return 1;\n    return 0;\n}\n'
} >"$out/main.c"
for cc in gcc clang; do
    if [ $cc = gcc ]; then cp "$out/bodies.o" "$out/bodies_gcc.o"
    else $cc -std=c11 $C_WARNINGS -I. -O0 -c -o "$out/bodies_$cc.o" "$out/bodies.c" || fail=1; fi
    $cc -std=c11 $C_WARNINGS -I. -I"$out" -O0 -o "$out/c_$cc" "$out/main.c" "$out/bodies_$cc.o" && "$out/c_$cc" || say "C, $cc"
done
# shellcheck disable=SC2046
${MAKE:-make} --no-print-directory -s $(printf 'build/bodies/cxx_%s.o ' ${headers//.h/}) || exit 1
for cc in g++ clang++; do
    # extern "C" names: the bodies were compiled as C.
    $cc -x c++ -std=c++17 $WARNINGS -I. -I"$out" -O0 -o "$out/cxx_$cc" "$out/main.c" -x none "$out/bodies_gcc.o" &&
        "$out/cxx_$cc" || say "C++, $cc"
    # Those of g++ are the objects of the variant cxx.
    if [ $cc = g++ ]; then bodies=$(printf 'build/bodies/cxx_%s.o ' ${headers//.h/})
    else bodies=$out/bodies_$cc.o; $cc -x c++ -std=c++17 $WARNINGS -I. -I"$out" -O0 -c -o "$bodies" "$out/bodies.c" || fail=1; fi
    # shellcheck disable=SC2086
    gcc -std=c11 -I. -I"$out" -o "$out/from_$cc" "$out/main.c" $bodies || say "bodies of $cc, C program"
done
echo "$(wc -l <"$out/declared") prototypes, $(wc -l <"$out/defined") definitions"
finish $fail
