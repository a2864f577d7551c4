#!/usr/bin/env bash
# Draws the paper's Figures 3 and 4 from simulated periods; Figures 5 to 7, and the time by size of the problem, from the
# benchmark.
# usage: bench/figures/pshift.sh OUTDIR
set -eu
out=${1:?usage: bench/figures/pshift.sh OUTDIR}
bench=build/bench/pshift
mkdir -p "$out"
build/examples/simulate pshift --runs 2 --figures "$out" >/dev/null
for f in 5a 5b 6 7 growth; do
    "$bench" --figure $f >"$out/pshift_$f.data"
done
gnuplot <<PLOT
load "bench/figures/style.gp"
set output "$out/pshift_5.svg"
set title "pShift, Figure 5: time to solve (64 servers, 10,000 buckets)"
set xlabel "m, demand / reservation"
set ylabel "ms"
plot "$out/pshift_5a.data" using 1:2 title "r = 1.0, 1 thread", "" using 1:3 title "r = 1.0, 2 threads", \
     "$out/pshift_5b.data" using 1:2 title "r = 0.9, 1 thread", "" using 1:3 title "r = 0.9, 2 threads"
set title "pShift, Figure 6(a): weak excess removed, of what can be"
set output "$out/pshift_6a.svg"
set xlabel "M, buckets kept for each server (of 10,000)"
set ylabel "percent"
set logscale x
set xtics (100, 200, 500, 1000, 2000, 5000)
set xrange [95:5300]
set yrange [0:105]
set key title "Zipf exponent"
plot for [i=0:5] "$out/pshift_6.data" index i using 2:3 title word("0 0.1 0.25 0.5 1 2", i + 1)
set output "$out/pshift_6b.svg"
set title "pShift, Figure 6(b): time with the filter"
set ylabel "ms"
set yrange [0:*]
plot for [i=0:5] "$out/pshift_6.data" index i using 2:4 title word("0 0.1 0.25 0.5 1 2", i + 1), \
     "$out/pshift_6.data" index 3 using 2:5 with lines dt 2 lc rgb "#999999" title "all buckets (0.5)"
set output "$out/pshift_7.svg"
set title "pShift, Figure 7: time by buckets (64 servers, r = 1.0)"
set xlabel "buckets"
set ylabel "ms"
unset logscale
set xtics auto
set xrange [*:*]
set logscale y
set yrange [*:*]
unset key
set key outside bottom center horizontal noenhanced textcolor variable font ',13' title ""
plot "$out/pshift_7.data" using 1:4 title "GLPK simplex", "" using 1:3 title "LEMON Preflow", "" using 1:2 title "pshift.h"
set output "$out/pshift_growth.svg"
set title "Time by size (64 servers, 8 entries a bucket, m = 1.1)"
set xlabel "entries"
set ylabel "ns per entry"
unset logscale
set logscale x
set yrange [0:*]
plot "$out/pshift_growth.data" using 1:3 title "r = 1.0", "" using 1:5 title "r = 1.0, more capacity", \
     "" using 1:2 title "r = 0.9", "" using 1:4 title "r = 0.9, more capacity"
PLOT
