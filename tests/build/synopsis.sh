#!/usr/bin/env bash
# proves: the code that people copy first compiles without a warning and runs: the program in each header's first page
# and each ```c block of README.md and docs/*.md, as C11 and C++17. A program with a main must end with status 0. It
# must print the ```text block after it, if <!-- prints --> is before that block.
set -u
. "$(dirname "$0")/../lib.sh"
out=build/synopsis
rm -rf "$out"
mkdir -p "$out"

for h in *.h; do
    # From the heading to the next one (a line that begins in column 3 with capitals), without the comment's margin.
    awk '/^ \* THE CALLS/ {inside = 1; next} inside && /^ \* [A-Z][A-Z]/ {exit} inside {sub(/^ \*(     )?/, ""); print}' \
        "$h" >"$out/${h%.h}.c"
    grep -q 'main(' "$out/${h%.h}.c" || { echo "$h: no program with a main"; exit 1; }
done
for m in README.md docs/*.md; do
    awk -v out="$out/$(basename "$m" .md)" '
        /^```c$/ {file = out "_" ++n ".c"; next}
        /^<!-- prints -->$/ {prints = 1; next}
        /^```text$/ && prints {file = out "_" n ".prints"; prints = 0; next}
        /^```/ {file = ""} file {print >file}' "$m"
done

# `= {0}` clears a struct in both languages; in C++ g++ warns of a missing member.
cxx="g++ -x c++ -std=c++17 $WARNINGS -Wno-missing-field-initializers"
for s in "$out"/*.c; do
    for cc in "gcc -O1 -std=c11 $C_WARNINGS" "$cxx"; do # gcc's warnings need the optimiser
        program=${s%.c}_${cc%% *}
        if [ -f "${s%.c}.prints" ]; then echo "$cc -I. -o $program $s && $program >$program.out && diff $program.out ${s%.c}.prints"
        elif grep -q 'main(' "$s"; then echo "$cc -I. -o $program $s && $program || { echo $s: status \$?; exit 1; }"
        else echo "$cc -I. -fsyntax-only $s"; fi
    done
done >"$out/todo"
side_by_side <"$out/todo" || exit 1
echo "$(ls "$out"/*.c | wc -l) pieces of documentation compile and run"
finish
