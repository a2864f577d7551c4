#!/usr/bin/env bash
# The reward paper's Figures 2 to 6 from the simulation, and what a request costs by number of clients.
# usage: bench/figures/tags.sh OUTDIR      (run from the repository root)
set -eu
out=$1 b=build/bench/tags.jsonl
mkdir -p "$out"
build/examples/simulate tags --figures "$out" >/dev/null
[ -s "$b" ] || build/bench/tags --quick --json "$b" >/dev/null

# value of a metric by the number of its case: "n=1000" -> "1000 60.7"
series() { sed -n 's/.*"case":"n=\([0-9]*\)","metric":"'"$1"'","value":\([^,]*\),.*/\1 \2/p' "$b"; }
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
for m in ns_per_op ns_per_op_reward ns_per_op_heap ns_per_op_scan; do series "$m" >"$d/$m"; done
gnuplot <<GP
set terminal svg size 760,420 font 'sans,13' background 'white'
set grid; set key top left
set output '$out/tags_clients.svg'
set title 'cost of a request by number of clients'; set xlabel 'clients, all backlogged'; set ylabel 'ns'
set logscale xy; set yrange [5:1000]
plot '$d/ns_per_op' with linespoints lw 2 pt 7 title 'tags.h, proportional sharing', \
     '$d/ns_per_op_reward' with linespoints lw 2 pt 7 title 'tags.h, reward, with its completion', \
     '$d/ns_per_op_heap' with linespoints lw 1 dt 2 lc 'grey' title 'one replace-top on a binary heap', \
     '$d/ns_per_op_scan' with linespoints lw 1 dt 2 title 'scan of all clients'
GP
examples/uring_files/hotcold.sh build/hotcold
cp build/hotcold/tags_hotcold.svg "$out/"
