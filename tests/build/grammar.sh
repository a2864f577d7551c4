#!/usr/bin/env bash
# proves: every public function of every header follows one grammar: handle, now_ns, ids, amounts, outputs, in this order;
# prototype and body name their arguments alike; one shape each for init, memsize, config_error, stats, info, next_ns,
# encode and decode; no banned word; every public name (functions, macros, types, constants) begins with its header's
# prefix; every public function is used by an example or another header, or docs/ says who needs it. Each planted
# prototype that breaks the grammar is found.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/grammar
rm -rf "$out"
mkdir -p "$out"
failed=0

prototypes() { gcc -std=c11 -E -P -I. -DQOS_DECLARE_ONLY -DQOS_API=PUBLIC -include stdbool.h "$1"; } # FILE

# Macros, struct and union tags, typedefs and constants that a header adds beyond the three standard ones and qos.h.
names() { # FILE
    printf '#include <stddef.h>\n#include <stdint.h>\n#include <stdbool.h>\n' >"$out/before.h"
    [ "$(basename "$1")" = qos.h ] || echo '#include "qos.h"' >>"$out/before.h"
    gcc -std=c11 -E -dM -I. "$out/before.h" | awk '{sub(/\(.*/, "", $2); print $2}' | sort -u >"$out/before"
    gcc -std=c11 -E -dM -I. "$1" | awk '{sub(/\(.*/, "", $2); print $2}' | sort -u | comm -13 "$out/before" -
    # By line numbers: only the header's own definitions.
    gcc -std=c11 -E -I. "$1" | awk -v file="$(basename "$1")" '/^# [0-9]+ "/ {ours = index($3, "/" file "\"") || $3 == "\"" file "\""; next} ours' |
        perl -0777 -ne 's/"[^"]*"//g; print "$1\n" while /\b(?:struct|union|enum) (\w+)\s*\{/g; print "$1\n" while /\btypedef\b[^;{}]*?\b(\w+)(?: __attribute__ ?\(.*?\)\))?;/g;
            while (/\benum(?: \w+)?\s*\{([^}]*)\}/g) { print "$_\n" for map { /^\s*(\w+)/ ? $1 : () } split /,/, $1 }'
}
# Numbers in configurations that have no row in a table test (tests/config_table.h), and numbers in terms that no such test
# names: tests/unit/HEADER_*config*.c.
untested() { # HEADER FILE TEST...
    prototypes "$2" | perl -0777 -ne 's/\s+/ /g; while (/\bstruct ('"$1"'_\w*config|htb_class|tags_client) \{([^{}]*)\}/g) {
        my ($s, $f) = ($1, $2); for my $d (split /;/, $f) {
            next if $d =~ /_Bool|\*|\bvoid\b/; print "$s $_\n" for $d =~ /(\w+)(?:\[[^\]]*\])?\s*(?:,|$)/g } }' |
        while read -r struct field; do
            case $struct in *_config) row="CONFIG_(FIELD|PART)\\($struct, $field\\b" ;; *) row="\\b$field\\b" ;; esac
            grep -qE "$row" "${@:3}" || echo "struct $struct: no table test has a row for $field (tests/unit/$1_config.c)"
        done
}
# Public functions that only tests and benches use: no example, no other header and no document names them. Every
# configuration has an X_config_error; the documents say so once.
for_tests_only() { # HEADER FILE
    prototypes "$2" | perl -e '
        my $header = shift @ARGV;
        my $prototypes = do { local $/; <STDIN> };
        my %only = map { $_ => 1 } grep { !/_error$/ } $prototypes =~ /\bPUBLIC\b[^;{]*?\b(${header}_\w+) ?\(/g;
        for my $file (@ARGV) {
            open(my $f, "<", $file) or next;
            my $text = do { local $/; <$f> };
            $text =~ s{/\*.*?\*/}{}gs if $file =~ /^\w+\.h$/; # comments of a header do not count
            delete $only{$_} for $text =~ /\b(${header}_\w+)/g;
        }
        print "$_: only tests and benches use it; delete it, or say in docs/embedding.md who needs it\n" for sort keys %only' \
        "$1" README.md docs/*.md examples/*/*.[ch]* $(ls ./*.h | sed 's,^\./,,' | grep -vx "$1.h")
}
# Public functions whose body names an argument otherwise than the prototype does.
renamed() { # HEADER FILE
    gcc -std=c11 -E -P -I. -DQOS_API=PUBLIC -include stdbool.h "$2" | perl -0777 -ne '
        my %names;
        s/__attribute__ *\(\(.*?\)\)//gs;
        while (/\bPUBLIC\b[^;{}()]*?\b('"$1"'_\w+)\s*\(((?:[^(){};]|\([^()]*\))*)\)[^;{}]*[;{]/g) {
            my ($function, $list) = ($1, $2);
            my $given = join ", ", map { /(\w+)\s*(?:\[[^\]]*\]\s*)?$/ ? $1 : "?" } split /,/, $list;
            $names{$function} //= $given;
            print "$function($names{$function}) has a body with the arguments ($given)\n" if $names{$function} ne $given;
        }'
}
check() { # HEADER FILE
    prototypes "$2" | tests/build/grammar.pl "$1"
    names "$2" | sort -u | grep -viE "^$1(_|\$)|^qos_$1_h\$" | sed "s/^/$1: this name does not begin with the header's prefix: /"
}

for h in *.h; do
    { check "${h%.h}" "$h"; renamed "${h%.h}" "$h"; untested "${h%.h}" "$h" /dev/null tests/unit/"${h%.h}"_*config*.c; for_tests_only "${h%.h}" "$h"; } >"$out/$h.txt"
    if [ -s "$out/$h.txt" ]; then cat "$out/$h.txt"; failed=1; fi
    prototypes "$h" | grep -o "PUBLIC [^;]*\b${h%.h}_" | wc -l
done >"$out/log"
cat "$out/log" | grep -v '^[0-9]*$'

# Each of these, alone in a header of its own, must be found.
n=0
planted() { # COMPLAINT PROTOTYPE
    n=$((n + 1))
    printf '#include "qos.h"\nstruct plant;\nstruct plant_config { uint32_t clients; };\nstruct plant_info { uint32_t x; };\n%s\n%s\n' \
        'QOS_API const char *plant_config_error(const struct plant_config *config);' "$2" >"$out/plant.h"
    check plant "$out/plant.h" >"$out/plant.txt"
    grep -q -e "$1" "$out/plant.txt" || { bad "not found ($1): $2"; cat "$out/plant.txt"; }
}
held() { # PROTOTYPE: a correct one
    printf '#include "qos.h"\nstruct plant;\nstruct plant_config { uint32_t clients; };\nstruct plant_info { uint32_t x; };\n%s\n%s\n' \
        'QOS_API const char *plant_config_error(const struct plant_config *config);' "$1" >"$out/plant.h"
    check plant "$out/plant.h" >"$out/plant.txt"
    [ ! -s "$out/plant.txt" ] || { bad "found in a correct prototype: $1"; cat "$out/plant.txt"; }
}
s='QOS_API QOS_NODISCARD enum qos_status'
held "$s plant_take(struct plant *plant, uint64_t now_ns, uint32_t id, uint64_t n);"
held "$s plant_init(struct plant *plant, void *mem, size_t size_bytes, const struct plant_config *config);"
held "$s plant_cut(struct plant *plant, uint64_t now_ns, uint32_t id, const uint64_t *parts, size_t count, uint64_t *out, size_t max);"
held "QOS_API enum qos_status plant_info(const struct plant *plant, uint32_t id, struct plant_info *out);"
planted 'now_ns (now_ns) stands after id' "$s plant_take(struct plant *plant, uint32_t id, uint64_t now_ns, uint64_t n);"
planted 'now_ns (now_ns) stands after n' "$s plant_take(struct plant *plant, uint64_t n, uint64_t now_ns);"
planted 'id (an id) stands after n' "$s plant_take(struct plant *plant, uint64_t now_ns, uint64_t n, uint32_t id);"
planted 'cost (an amount or input) stands after out' "$s plant_take(struct plant *plant, uint64_t now_ns, uint64_t *out, uint64_t cost);"
planted 'the first argument should be the handle' "$s plant_take(uint64_t now_ns, struct plant *plant, uint64_t n);"
planted 'the handle should be called plant, not p' "$s plant_take(struct plant *p, uint64_t now_ns, uint64_t n);"
planted 'write config, not cfg' "$s plant_init(struct plant *plant, void *mem, size_t size_bytes, const struct plant_config *cfg);"
planted 'write size_bytes, not size' "$s plant_init(struct plant *plant, void *mem, size_t size, const struct plant_config *config);"
planted 'write now_ns, not now' "$s plant_take(struct plant *plant, uint64_t now, uint64_t n);"
planted 'a size is' "$s plant_read(struct plant *plant, uint64_t now_ns, uint64_t block_size);"
planted 'should be enum qos_status plant_init' "$s plant_init(struct plant *plant, const struct plant_config *config, void *mem, size_t size_bytes);"
planted 'does not begin with plant_' "$s plan_take(struct plant *plant, uint64_t now_ns, uint64_t n);"
planted 'does not name its object' "$s plant_take(struct plant_pot *pot, uint64_t now_ns, uint64_t n);"
planted 'QOS_NODISCARD is missing' "QOS_API enum qos_status plant_take(struct plant *plant, uint64_t now_ns, uint64_t n);"
planted 'struct by value' "QOS_API struct plant_info plant_look(const struct plant *plant);"
planted 'plant_stats(const handle' "QOS_API void plant_stats(const struct plant *plant, struct qos_stats *out);"
planted 'plant_info(const handle' "QOS_API void plant_info(const struct plant *plant, struct plant_info *out);"
planted 'plant_next_ns(handle' "QOS_API uint64_t plant_next_ns(const struct plant *plant);"
planted 'plant_report_encode(in' "$s plant_report_encode(void *buf, size_t size_bytes, const struct plant_info *in, size_t *len_bytes);"
planted 'plant_report_decode(buf' "$s plant_report_decode(struct plant_info *out, const void *buf, size_t size_bytes);"
planted 'should be size_t plant_memsize' "QOS_API size_t plant_memsize(uint32_t clients);"
planted 'there is no plant_pot_config_error' 'struct plant_pot_config { uint32_t x; };'
planted 'write size_bytes, not size' 'struct plant_config2_config { uint32_t size; };'
planted "header's prefix: POT_MAX" '#define POT_MAX 3'
planted "header's prefix: pot" 'struct pot { int x; };'
planted "header's prefix: EARTH" 'enum plant_ground { PLANT_SAND, EARTH };'
planted "header's prefix: pot_t" 'typedef uint32_t pot_t;'
printf 'struct plant_config { uint32_t clients; uint32_t never_tested; };\n' >"$out/plant.h"
echo '{CONFIG_FIELD(plant_config, clients), ...}, and never_tested of another struct' >"$out/plant_config.c"
[ "$(untested plant "$out/plant.h" "$out/plant_config.c" | grep -c never_tested)" = 1 ] || bad "a field that no test names was not found"
echo 'QOS_API void qos_sat_add(uint64_t a); QOS_API void qos_needed_by_nobody(uint64_t a);' >"$out/plant.h"
[ "$(for_tests_only qos "$out/plant.h" | cut -d: -f1)" = qos_needed_by_nobody ] || bad "a function that only tests use was not found"
echo 'QOS_API int plant_take(int id, int n); QOS_API int plant_take(int i, int n) { return i + n; }' >"$out/plant.h"
[ -n "$(renamed plant "$out/plant.h")" ] || bad "a body that names its arguments otherwise was not found"
echo "$n planted mistakes found; all prototypes in order"
grep -qv '^[0-9]*$' "$out/log" && failed=1
finish $failed
