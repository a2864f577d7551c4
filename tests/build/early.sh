#!/usr/bin/env bash
# proves: no test returns before its end. A return left by mistake in a function of a test, or in a script, has
# statements after it in its block: in C (as clang-format lays it out: lint.sh) the next line is indented no less than
# the return, and in a script shellcheck finds commands that cannot be reached. (tests/run sees that the last line was
# reached; make trust plants such returns at random.)
# usage: tests/build/early.sh [FILE...]
set -u
. "$(dirname "$0")/../lib.sh"
failed=0
[ $# -gt 0 ] || set -- tests/{unit,property,paper,adversary,world,interleave,fuzz}/*.{c,h} tests/property/*.cc tests/*.h tests/{build,real,vm}/*.sh
sources=() scripts=()
for s in "$@"; do
    case $s in
    *.sh) scripts+=("$s") ;;
    *) [ ! -f "$s" ] || sources+=("$s") ;;
    esac
done
[ ${#sources[@]} = 0 ] || awk '
    FNR == 1 {inside = behind = 0}
    /^#/ {behind = 0; next}
    /^ *(\/[\/*]|\*|$)/ {next}
    {match($0, /^ */); indent = RLENGTH; line = $0; sub(/ *\/[*\/].*/, "", line)}
    behind && indent >= column {print FILENAME ":" FNR ": nothing reaches this line: " $0; bad = 1}
    {behind = 0}
    line ~ /^ *(return|break|continue|goto|exit)[ ;(]/ {inside = 1; column = indent}
    inside && line ~ /;$/ {inside = 0; behind = 1}
    END {exit bad}' "${sources[@]}" || failed=1
[ ${#scripts[@]} = 0 ] || shellcheck -s bash -i SC2317 "${scripts[@]}" || failed=1
finish $failed
