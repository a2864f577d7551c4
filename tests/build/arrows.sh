#!/usr/bin/env bash
# proves: the arrows that tokenpool.h lists (of an engine's states, of a monitor's roles, of the estimate's moves) are those
# that unit/tokenpool_states and unit/tokenpool_capacity take by name
set -u
. "$(dirname "$0")/../lib.sh"
mkdir -p build/arrows

# "A, B -> C" is two arrows.
arrows() { perl -ne 'while (/((?:[A-Z]+, )*[A-Z]+) -> ([A-Z]+)/g) {my $to = $2; print "$_ -> $to\n" for split /, /, $1}' | sort -u; }
grep '^ \*' tokenpool.h | arrows >build/arrows/listed
grep -hE 'CHECK_CONTEXT\("|^ +\{"[A-Z]+ -> ' tests/unit/tokenpool_states.c tests/unit/tokenpool_capacity.c | arrows >build/arrows/taken
[ "$(wc -l <build/arrows/listed)" -ge 30 ] || { echo "tokenpool.h lists no arrows"; exit 1; }
diff build/arrows/listed build/arrows/taken || { echo "< listed, but not taken; > taken, but not listed"; exit 1; }
echo "$(wc -l <build/arrows/listed) arrows"
finish
