#!/usr/bin/env bash
# proves: the 128-bit product and division of qos.h are right for every operand when their digits have 4 or 8 bits
# instead of 32 (a prover does not finish them). The code is the header's own, with other widths of the types and
# constants. With 4 bits: all operands. With 8 bits: all operands of the product, and each step of algorithm D of the
# division, by all dividends and divisors whose digits decide it.
# usage: narrow.sh [all]: of those with 8 bits, every 29th factor and every 151st divisor, or all (make prove)
set -u
. "$(dirname "$0")/../lib.sh"
out=build/narrow
rm -rf "$out"
mkdir -p "$out"

body() { # FUNCTION: its text, from the line that begins it to the brace in the first column
    awk -v name="$1" '!on && $0 ~ "^QOS_(API|PRIV) .*[ *]" name "\\(" && !/;$/ {on = 1} on {print} on && /^}/ {exit}' qos.h
}
for digit in 4 8; do
    file=$out/narrow_$digit.c
    {
        echo "#define DIGIT $digit"
        echo '#include "../../tests/proof/narrow.h"'
        for f in qos_mul_wide qos_priv_div_digit qos_div_wide; do body $f; done |
            sed -E -e 's/QOS_API|QOS_PRIV/static/; s/uint64_t/word/g; s/struct qos_u128/struct wide/g' \
                -e 's/0xffffffffu/DIGIT_MASK/g; s/(>>|<<) 32\b/\1 DIGIT/g; s/>> 31\b/>> (DIGIT - 1)/g; s/64 - s\b/2 * DIGIT - s/g' \
                -e 's/UINT64_C\(1\)/1/g; s/UINT64_MAX/WORD_MAX/g; s/qos_clz64/narrow_clz/; s/qos_wrap_/narrow_wrap_/g' \
                -e 's,/\*.*\*/,,'
        echo '#include "../../tests/proof/narrow_main.h"'
    } >"$file"
    # If one number kept its width, the test would show nothing.
    if grep -nE '32|64|31|uint|0xff' <(sed '1,2d; /#include/d; /#if QOS_HAS_INT128/,/#else/d' "$file"); then
        echo "no narrow form for this line ($file)"
        exit 1
    fi
    gcc -std=gnu11 -O2 -Wall -Wextra -Wno-unused-function -o "$out/narrow_$digit" "$file" || exit 1
    "$out/narrow_$digit" "${1:-some}" || exit 1
done

# The test is tested: a missing correction, and a lost carry.
sed 's/while (q >> DIGIT ||/if (q >> DIGIT ||/' "$out/narrow_8.c" >"$out/plant_1.c"
sed 's/ + (mid >> DIGIT)//' "$out/narrow_8.c" >"$out/plant_2.c"
for n in 1 2; do
    cmp -s "$out/narrow_8.c" "$out/plant_$n.c" && { echo "planted bug $n changes nothing"; exit 1; }
    # In the first plant `break` has no loop any more: only its condition remains.
    sed -i 's/^ *break;$/;/' "$out/plant_$n.c"
    gcc -std=gnu11 -O2 -w -o "$out/plant_$n" "$out/plant_$n.c" || exit 1
    if "$out/plant_$n" some >"$out/plant_$n.log"; then echo "planted bug $n was not found"; exit 1; fi
    echo "noticed: $(tail -1 "$out/plant_$n.log")"
done
finish
