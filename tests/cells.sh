#!/usr/bin/env bash
# Draws what build/native/world/htb_cells has printed of its grid, and prints the ten worst cells. make cells does both.
# usage: tests/cells.sh OUTPUT-OF-HTB_CELLS PICTURE.svg      cells that were not judged stay white
#
# A tile for each device and client; in it a square for each reservation and latency. A cell's shortfall is the largest of what a
# rate lacks of 0.98, deadlines of 0.99, and the total of 0.97 of the best fixed bound's.
set -eu
cd "$(dirname "$0")/.."
[ $# = 2 ] || { sed -n 's/^# usage: //p' "$0" >&2; exit 2; }
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
# As in tests/world/htb_cells.c: name, and what the picture calls it.
cat >"$d/devices" <<'END'
1ch30 1 channel, times ±30 %
8ch10 8 channels, ±10 %
8hash30 8 channels, each its queue, ±30 %
32ch2size 32 channels, two sizes
64ch10 64 channels, ±10 %
64ch30 64 channels, ±30 %
64exp 64 channels, exponential
64hashlog 64 channels, each its queue, lognormal
16any 16 channels, in any order
64prov provisioned to its capacity
64pause20 pauses of 20 ms
64pause200 pauses of 200 ms
16gc200 channels pause 200 ms in turn
64step slower from 0.5 s on
END
cat >"$d/clients" <<'END'
one 1 at a time
two 2
four 4
thirty2 32
open10 10 %
open50 50 %
open90 90 %
onoff50 50 % on, off
burst50 50 % bursts
END
# gnuplot wants a point in each file: one outside of the picture.
printf -- '-99\t0\t1\n' | tee "$d/kept" >"$d/missed"
: >"$d/failed"
# kept: x y; missed: x y reason (1 rate, 2 deadlines, 3 total, 4 after a pause); failed: shortfall and a line of the table; title
awk -v d="$d" -v OFS='\t' '
    FNR == 1 {file++}
    file < 3 {number[$1] = FNR - 1; next}
    $3 != "total" || split($1, part, "/") != 4 || !(part[1] in number) {next}
    {
        x = 5 * number[part[2]] + (part[3] != "R20") + (part[3] ~ /R[26]00/) + (part[3] == "R600")
        y = -3 * number[part[1]] - (part[4] == "T1000")
        family = part[1] "/" part[2]
        cells++
        of[family]++
        if ($2 == "ok") {kept++; good[family]++; print x, y >>(d "/kept"); next}
        why = $0
        sub(/.*, best *[0-9.]+ ms/, "", why)
        sub(/ slow/, "", why)
        print x, y, why ~ /rate/ ? 1 : why ~ /late/ ? 2 : why ~ /total/ ? 3 : 4 >>(d "/missed")
        lacks = 0.97 - $4 / $6
        if (why ~ /db-rate/ && 0.98 - $8 > lacks) lacks = 0.98 - $8
        if (why ~ /scan-rate/ && 0.98 - $9 > lacks) lacks = 0.98 - $9
        if (why ~ /db-late/ && 0.99 - $12 > lacks) lacks = 0.99 - $12
        if (why ~ /scan-late/ && 0.99 - $13 > lacks) lacks = 0.99 - $13
        printf "%.3f  %-28s rate %5.2f %5.2f  on time %.3f %.3f  total %.3f of %.3f %s\n", lacks, $1, $8, $9, $12, $13, $4, $6, why >>(d "/failed")
    }
    END {
        if (!cells) exit 1
        for (family in of) {families++; whole += good[family] == of[family]}
        printf "%d of %d cells kept (%.1f %%), %d of %d tiles without a miss\n", kept, cells, 100 * kept / cells, whole, families >(d "/title")
    }' "$d/devices" "$d/clients" "$1" || { echo "$1 has no cell of the grid" >&2; exit 1; }
gnuplot <<GP
load 'bench/figures/style.gp'
set terminal svg size 1180,1010 font 'sans-serif,14' background rgb 'white'
set output '$2'
set datafile separator '\t'
unset grid; unset border; unset tics
set lmargin at screen 0.01; set rmargin at screen 0.99; set tmargin at screen 0.89; set bmargin at screen 0.01
set xrange [-17.5:44]; set yrange [-41.5:4]
set key at screen 0.99,0.93 top right horizontal maxrows 1 Left reverse textcolor rgb '#222222' font ',13' samplen 1
set style fill solid 1 noborder
set label "htb.h beside the best fixed bound\n$(cat "$d/title")" at screen 0.015,0.975 left font ',17'
set label "in a tile: reservation R 0.02, 0.1, 0.2, 0.6 →\nlatency T 10 ms, below it 1 ms" at -17,2.6 left tc rgb '#555555'
set label "requests outstanding" at 9,3.4 center tc rgb '#555555'
set label "offered load, of the reservation" at 31.5,3.4 center tc rgb '#555555'
colour(n) = n == 1 ? 0xd55e00 : n == 2 ? 0xe69f00 : n == 3 ? 0x0072b2 : 0x7f3fbf
plot '$d/kept' using 1:2:(0.44):(0.44) with boxxy lc rgb '#cfe8dc' title 'all is kept', \
    '$d/missed' using 1:2:(0.44):(0.44):(colour(\$3)) with boxxy lc rgb variable notitle, \
    NaN with boxes lc rgb '#d55e00' title 'a rate below 0.98', \
    NaN with boxes lc rgb '#e69f00' title 'more than 1 % late', \
    NaN with boxes lc rgb '#0072b2' title 'total below 0.97 of the best', \
    NaN with boxes lc rgb '#7f3fbf' title 'not as before 50 ms after a pause', \
    "<sed 's/ /\t/' '$d/devices'" using (-1.2):(-3 * \$0 - 0.5):2 with labels right notitle, \
    "<sed 's/ /\t/' '$d/clients'" using (5 * \$0 + 1.5):(1.6):2 with labels center notitle
GP
cat "$d/title"
bench/figures/tidy.pl "$2"
echo "the worst (shortfall, cell, db and scan):"
sort -rn "$d/failed" | head -n 10
