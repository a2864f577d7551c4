#!/usr/bin/env bash
# Whole commands side by side, timed by hyperfine.   usage: bench/whole.sh [--quick]
# For each comparison: a table on the terminal; hyperfine's own JSON in build/bench/hyperfine-<name>.json; and, in
# build/bench/whole.jsonl, the time of each command divided by that of the first one, the reference.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C
out=build/bench
mkdir -p "$out/whole"
: >"$out/whole.jsonl"
runs=(--warmup 2 --min-runs 20)
[ "${1:-}" != --quick ] || runs=(--warmup 1 --runs 3)

# compare NAME COMMAND...     the first command is the reference; a command without its program is left out
compare() {
    local name=$1 command have=()
    shift
    for command in "$@"; do
        if command -v "${command%% *}" >/dev/null; then have+=("$command")
        else echo "$name: left out, its program is not installed: $command"; fi
    done
    [ ${#have[@]} -ge 2 ] || return 0
    echo "== $name"
    rm -f "$out/whole/$name.csv"
    hyperfine --shell=none --style basic "${runs[@]}" --export-json "$out/hyperfine-$name.json" \
        --export-csv "$out/whole/$name.csv" "${have[@]}" >"$out/whole/$name.txt" 2>"$out/whole/$name.err" ||
        { cat "$out/whole/$name.txt" "$out/whole/$name.err" >&2; exit 1; }
    grep -E '^Benchmark|Time|ran$|times' "$out/whole/$name.txt"
    # Columns are counted from the right, because a command may contain commas: mean, stddev, median, user, system,
    # min, max.
    awk -F, -v name="$name" 'NR > 1 {
        command = $0
        for (i = 0; i < 7; i++) sub(/,[^,]*$/, "", command)
        gsub(/[\\"]/, "", command)
        median = $(NF - 4)
        if (NR == 2) reference = median
        printf "{\"bench\":\"whole\",\"case\":\"%s: %s\",\"metric\":\"median\",\"value\":%.9g,\"unit\":\"s\"}\n", name, command, median
        if (NR > 2 && reference > 0)
            printf "{\"bench\":\"whole\",\"case\":\"%s: %s\",\"metric\":\"ratio_vs_reference\",\"value\":%.4g,\"unit\":\"x\"}\n",
                name, command, median / reference
    }' "$out/whole/$name.csv" >>"$out/whole.jsonl"
}

# The cost of including a header: compiling a file that includes it, beside one that includes <stdio.h> only.
compile=()
for header in '<stdio.h>' *.h; do
    base=$(basename "$header" .h | tr -d '<>.')
    case $header in '<'*) echo "#include $header" ;; *) echo "#include \"$header\"" ;; esac >"$out/whole/$base.c"
    echo 'extern int nothing;' >>"$out/whole/$base.c"
    compile+=("gcc -O2 -I. -c -o $out/whole/$base.o $out/whole/$base.c")
done
compare compile "${compile[@]}"

# The papers' experiments in simulated time. Those that take milliseconds are compared with the start of a process, the
# others with a smaller run, which shows their growth. simulate pshift takes too long to be repeated here;
# bench/pshift.cc compares its solver.
simulate=build/examples/simulate
compare simulate-htb "$simulate --help" "$simulate htb"
compare simulate-tags "$simulate --help" "$simulate tags"
compare simulate-tokenpool "$simulate tokenpool --periods 2" "$simulate tokenpool --periods 4" # twice the periods
compare simulate-twochoice "$simulate twochoice --seeds 1" "$simulate twochoice --seeds 3" # three times the bursts
