#!/usr/bin/env bash
# AQuA's Figures 8 to 10 from the simulation, and what a take costs by depth and by number of classes.
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
set terminal svg size 760,420 font 'sans,13' background 'white'
set grid; set key top left
set output '$out/htb_depth.svg'
set title 'htb\_take by depth, in times of one rte\_meter trTCM check of the same run'
set xlabel 'buckets charged (1: a lone bucket)'; set ylabel 'ratio'; set yrange [0:*]
plot '$d/depth' using 1:2 with linespoints lw 2 pt 7 notitle, 2.5 with lines dt 2 lc 'grey' title 'aim at depth 2'
set output '$out/htb_classes.svg'
set title 'cost by number of classes'; set xlabel 'classes'; set ylabel 'ns'; set logscale xy; set yrange [1:*]
plot '$d/turn' with linespoints lw 2 pt 7 title 'htb\_take, in turn', \
     '$d/random' with linespoints lw 2 pt 7 title 'htb\_take, random order', \
     '$d/load' with linespoints lw 1 dt 2 lc 'grey' title 'dependent load over as much memory', \
     '$d/queues' with linespoints lw 2 pt 7 title 'submit + dispatch + complete', \
     '$d/scan' with linespoints lw 1 dt 2 title 'the same by scanning all classes'
GP
