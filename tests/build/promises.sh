#!/usr/bin/env bash
# proves: every sentence of THE CONTRACT of a header that the world judges is a promise, a precondition, a definition or
# advice; each promise has an oracle in tests/world/HEADER.c or names a test that judges it; each oracle has a promise; and
# that this check finds a sentence, a promise and an oracle that lack theirs
set -u
. "$(dirname "$0")/../lib.sh"
out=build/promises
rm -rf "$out"
mkdir -p "$out"

# tests/world/HEADER.promises: a line for each sentence, in any order:
#     promise ORACLE[,ORACLE...] | words at the begin of the sentence     an oracle is a name that world_fail is given, or a
#                                                                         test that judges it: property/htb_trees
#     precondition, definition or advice | words
#     all ORACLE | why: an oracle that no sentence names (every request ends once)
# Of two headers at once (NAME_....promises) the sentences are those of docs/which-header.md below the heading that the first line
# names, and their oracles may be those of tests/world/NAME.c, too, which NAME_....c includes.
joined() { # PROMISES: its part of docs/which-header.md as a first page
    awk -v heading="$(sed -n '1s/^# Each sentence below "\([^"]*\)".*/\1/p' "$1")" 'BEGIN {print " * THE CONTRACT"}
        /^#/ {inside = $0 == "### " heading; next} inside {print " *   " $0} END {print " */"}' docs/which-header.md
}
sentences_of() { # HEADER: one sentence a line
    perl -0777 -ne '($_) = /^ \* THE CONTRACT[^\n]*\n(.*?)^ \*\//ms or exit 1; s/^ \*//mg; s/\s+/ /g; s/^ //;
        s/(?<=[.:;]) (?=(- )?[A-Z])/\n/g; s/(?<=[.,:;]) (?=- )/\n/g; print "$_\n"' "$1" | sed 's/^- //; s/ *$//' | grep -vE '^([A-Z][a-z]+( \([A-Za-z]+\))?\.)?$' # without titles, as `Limit.`
}
oracles_of() { # ADAPTER...
    perl -0777 -ne 'while (/world_fail\((.*?);/gs) { my $call = $1; $call =~ s/^.*?,\s*//s; $call =~ s/(run\.now|ps->now_ns|\bnow,|at_ns,).*|,\s*0,.*//s;
        while ($call =~ /"([a-z_]+)"/g) { print "$1\n" unless $1 eq "oracle" } }
        while (/\b[A-Z]+_FAIL\(([^,]*),/g) { my $call = $1; while ($call =~ /"([a-z_]+)"/g) { print "$1\n" } }
        print "$1\n" while /\bFAULT\(\s*"([a-z_]+)"/g;
        print join("\n", split / /, $1), "\n" while /^#define WORLD_AGAIN "no ([a-z_ ]+)"/mg;' "$@" | sort -u
}
judge() { # HEADER NAME PROMISES ADAPTER [INCLUDED]: prints what is wrong
    sentences_of "$1" >"$out/$2.sentences" || { echo "$2: has no THE CONTRACT"; return; }
    local parts=()
    for part in tests/world/"$(basename "$3" .promises)"_*.h; do [ ! -f "$part" ] || parts+=("$part"); done # what it includes
    oracles_of "$4" "${parts[@]}" tests/world/world_test.h >"$out/$2.oracles"
    oracles_of "${@:4}" "${parts[@]}" >"$out/$2.known"
    perl -e '
        my ($promises, $sentences, $oracles, $name, $known) = @ARGV;
        my (%oracle, %known, @rule, %named);
        open my $f, "<", $oracles or die; chomp, $oracle{$_} = $known{$_} = 1 while <$f>;
        open $f, "<", $known or die; chomp, $known{$_} = 1 while <$f>;
        open $f, "<", $promises or die;
        while (<$f>) {
            next if /^#|^\s*$/;
            my ($kind, $list, $words) = /^(promise|all)\s+(\S+)\s*\|\s*(.*?)\s*$/ ? ($1, $2, $3) : /^(precondition|definition|advice)\s*\|\s*(.*?)\s*$/ ? ($1, "", $2) : ();
            if (!$kind) { print "$promises: line $. is none of promise, precondition, definition, advice, all\n"; next }
            for (split /,/, $list) {
                $named{$_} = 1;
                print "$promises: line $.: there is no oracle and no test $_\n" unless $known{$_} || -f "tests/$_.c" || -f "tests/$_.sh";
            }
            print "$promises: line $.: a promise needs an oracle\n" if $kind eq "promise" && $list eq "";
            push @rule, [$kind, $words, 0];
        }
        open $f, "<", $sentences or die;
        while (my $s = <$f>) {
            chomp $s;
            my ($hit) = grep { $_->[0] ne "all" && index($s, $_->[1]) == 0 } @rule;
            if ($hit) { $hit->[2]++ } else { print "$name: no line of $promises begins as: $s\n" }
        }
        for (@rule) { print "$promises: no sentence begins with: $_->[1]\n" if $_->[0] ne "all" && !$_->[2] }
        for (sort keys %oracle) { print "$name: the oracle $_ has no promise in $promises\n" unless $named{$_} }
    ' "$3" "$out/$2.sentences" "$out/$2.oracles" "$2" "$out/$2.known"
}
bad=0
for list in tests/world/*.promises; do
    name=$(basename "$list" .promises)
    header=$name.h included=
    [ -f "$header" ] || { header=$out/$name.h included=tests/world/${name%%_*}.c; joined "$list" >"$header"; }
    included="$included $(sed -n 's|^#include "\('"$name"'_[a-z]*\.h\)"|tests/world/\1|p' "tests/world/$name.c")" # a part of it
    # shellcheck disable=SC2086
    judge "$header" "$name" "$list" "tests/world/$name.c" $included >"$out/$name.txt"
    if [ -s "$out/$name.txt" ]; then cat "$out/$name.txt"; bad=1; fi
    echo "$name: $(grep -c '^promise' "$list") promises, $(wc -l <"$out/$name.oracles") oracles, $(wc -l <"$out/$name.sentences") sentences"
done
# Planted: a new sentence, a promise whose oracle is gone, an oracle that nobody promised.
name=htb list=tests/world/htb.promises
sed 's/^ \*   That of qos.h, and:$/&\n *   - Classes are blue./' htb.h >"$out/planted.h"
judge "$out/planted.h" planted "$list" tests/world/htb.c | grep -q 'blue' || { echo "not found: a sentence without a mark"; bad=1; }
sed 's/ scale_free"/ scales_free"/' tests/world/htb.c >"$out/planted.c"
judge htb.h planted "$list" "$out/planted.c" >"$out/planted.txt"
grep -q 'no oracle and no test scale_free' "$out/planted.txt" || { echo "not found: a promise without its oracle"; bad=1; }
grep -q 'the oracle scales_free has no promise' "$out/planted.txt" || { echo "not found: an oracle without a promise"; bad=1; }
finish $bad
