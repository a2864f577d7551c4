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
set terminal svg size 720,440 font "sans,13"
set grid
set key top right
set style data linespoints
set output "$out/pshift_5.svg"
set title "Time to solve against m (64 servers, 10,000 buckets)"
set xlabel "m, demand / reservation"
set ylabel "ms"
plot "$out/pshift_5a.data" using 1:2 title "r = 1.0, 1 thread", "" using 1:3 title "r = 1.0, 2 threads", \
     "$out/pshift_5b.data" using 1:2 title "r = 0.9, 1 thread", "" using 1:3 title "r = 0.9, 2 threads"
set output "$out/pshift_6a.svg"
set title "Weak excess removed, of what the optimum removes (10,000 buckets, r = 1.0, m = 1.1)"
set xlabel "M, buckets retained per server"
set ylabel "percent"
set logscale x
set key bottom right
plot for [i=0:5] "$out/pshift_6.data" index i using 2:3 title word("0 0.1 0.25 0.5 1 2", i + 1)
set output "$out/pshift_6b.svg"
set title "Time with the filter"
set ylabel "ms"
plot for [i=0:5] "$out/pshift_6.data" index i using 2:4 title word("0 0.1 0.25 0.5 1 2", i + 1), \
     "$out/pshift_6.data" index 3 using 2:5 with lines title "exact, s = 0.5"
set output "$out/pshift_7.svg"
set title "Growth with the buckets (64 servers, r = 1.0, m = 1.1)"
set xlabel "buckets"
set ylabel "ms"
unset logscale
set logscale y
set key top left
plot "$out/pshift_7.data" using 1:2 title "pshift", "" using 1:3 title "LEMON Preflow", "" using 1:4 title "GLPK simplex"
set output "$out/pshift_growth.svg"
set title "Time per entry (64 servers, 8 entries a bucket, m = 1.1)"
set xlabel "entries"
set ylabel "ns per entry"
unset logscale
set logscale x
set yrange [0:10]
plot "$out/pshift_growth.data" using 1:2 title "r = 0.9", "" using 1:3 title "r = 1.0", \
     "" using 1:4 title "r = 0.9, capacity in proportion to the buckets", \
     "" using 1:5 title "r = 1.0, capacity in proportion to the buckets"
PLOT
