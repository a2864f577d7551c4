#!/usr/bin/env bash
# Figures 3 and 4 of the two-choice paper from the simulation.
# usage: bench/figures/twochoice.sh OUTDIR      (run from the repository root)
set -eu
out=$1
mkdir -p "$out"
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
build/examples/simulate twochoice --seeds 3 --data "$d" >/dev/null
gnuplot <<GP
set terminal svg size 760,420 font 'sans,13' background 'white'
set grid; set key outside right
# One colour for each rule, in both figures.
array colour[7] = ['#777777', '#aa7744', '#4477cc', '#cc3311', '#118844', '#9944aa', '#000000']
set output '$out/twochoice_figure3.svg'
set title 'Figure 3: 10,000 writes of 1 MB on 1,000 servers'
set xlabel 'share of stragglers'; set ylabel 'response time, ms'; set yrange [0:*]
plot for [i=2:8] '$d/twochoice_figure3.dat' using 1:i with linespoints lw 2 lc rgb colour[i-1] \
    title word('fixed random two-choice collaborative preassign reused-probes ideal', i-1)
set output '$out/twochoice_figure4.svg'
set title 'Figure 4: the most writes that a server of each load received'
set xlabel 'background load, writes'; set ylabel 'writes'; set y2label 'servers'; set y2tics; set ytics nomirror
set style fill solid 0.3; set boxwidth 0.9; set xrange [19.5:46]
set xtics (20, 25, 30, 35, 40, 'stragglers' 45)
plot '$d/twochoice_figure4.dat' using 1:2 axes x1y2 with boxes lc 'grey' title 'servers', \
    for [i=3:8] '' using 1:i with linespoints lw 2 lc rgb colour[i-2] \
    title word('fixed random two-choice collaborative preassign reused-probes', i-2)
GP
