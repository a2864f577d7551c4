#!/usr/bin/env bash
# AQuA's Figures 8 to 10 from the simulation, and the cost of a take by depth and by number of classes.
# usage: bench/figures/htb.sh OUTDIR      (run from the repository root)
set -eu
out=$1 b=build/bench/htb.jsonl
mkdir -p "$out"
build/examples/simulate htb --figures "$out" >/dev/null
[ -s "$b" ] || build/bench/htb --quick --json "$b" >/dev/null

# value of a metric by the number at the end of its case: "depth=3" -> "3 12.1"
series() { sed -n 's/.*"case":"'"$1"'=\([0-9]*\)","metric":"'"$2"'","value":\([^,]*\),.*/\1 \2/p' "$b"; }
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
series depth ratio_vs_rte_meter >"$d/depth"
series classes ns_per_take >"$d/turn"
series classes ns_per_take_random >"$d/random"
series classes ns_per_load >"$d/load"
series queues ns_per_request >"$d/queues"
series queues scan_ns_per_request >"$d/scan"
gnuplot <<GP
load 'bench/figures/style.gp'
set output '$out/htb_depth.svg'
set title 'htb_take by depth, beside one rte_meter check of the same run' noenhanced
set xlabel 'buckets charged (1: a lone bucket)'; set ylabel 'ratio'
set label 'asked at depth 2: at most 1.6' at 2,1.6 point pt 9 ps 1.2 lc rgb '#555555' tc rgb '#555555' left offset 1.5,-1.3
plot '$d/depth' notitle
unset label
set output '$out/htb_classes.svg'
set title 'Cost by number of classes'; set xlabel 'classes'; set ylabel 'ns'; set logscale xy; set yrange [1:*]
plot '$d/scan' title 'a request, by scanning all classes', \
     '$d/queues' title 'a request: submit, dispatch, complete', \
     '$d/random' title 'htb_take, random order', \
     '$d/turn' title 'htb_take, in turn', \
     '$d/load' lc rgb '#999999' dt 2 title 'one load from as much memory'
GP
