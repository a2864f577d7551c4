#!/usr/bin/env bash
# proves: packages are found by what they provide, and a target checks only for what it needs: on a system without apt
# and dpkg a target that has everything passes, and one that lacks something names it by upstream name and package;
# every row of packages.txt names how the package is found, and its targets exist
set -u
. "$(dirname "$0")/../lib.sh"
out=$PWD/build/packages
rm -rf "$out"
mkdir -p "$out/bin"
failed=0

# A system of a few commands, without apt-get, dpkg and sudo.
for c in bash env dirname mktemp rm cat sed grep awk id clang clang++ ld; do
    path=$(command -v "$c") || { echo "no $c here"; exit 1; }
    ln -s "$path" "$out/bin/$c"
done
expect "make fuzz needs clang with libFuzzer only" env PATH="$out/bin" tests/packages.sh fuzz
status=0
env PATH="$out/bin" tests/packages.sh bench >"$out/bench.txt" 2>&1 || status=$?
expect "make bench is not possible there" [ $status = 1 ]
expect "the message names the target" grep -q '^make bench needs what this system does not have:' "$out/bench.txt"
expect "the message names hyperfine and its package" grep -q 'hyperfine (Debian: hyperfine): ' "$out/bench.txt"
expect "the message does not ask for what bench does not need" [ "$(grep -ciE 'qemu|frama|libnbd|cmake' "$out/bench.txt")" = 0 ]
env PATH="$out/bin" tests/packages.sh --quiet bench >"$out/quiet.txt" 2>&1
expect "--quiet prints nothing" [ ! -s "$out/quiet.txt" ]

while IFS='|' read -r package found targets upstream why; do
    case $package in '' | '#'*) continue ;; esac
    for f in $found; do
        case $f in cmd:?* | pc:?* | h:?* | hxx:?* | runs:?* | tests/* | --*) ;; *-gcc) ;; *) bad "${package// /}: found by \"$f\"" ;; esac
    done
    for column in "$targets" "$upstream" "$why"; do [ -n "${column// /}" ] || bad "${package// /}: a column is empty"; done
    for t in $targets; do
        grep -q "tests/packages.sh \(--quiet \)\?$t\b" Makefile || bad "${package// /}: no make target asks for the packages of \"$t\""
    done
done <packages.txt
finish $failed
