# One look for all figures: load it first, then set output. examples/common/plot.c has the same.
set terminal svg size 640,440 font 'sans-serif,15' background rgb 'white'
set grid lc rgb '#dddddd'
set border 3
set tics nomirror
set title font ',14'
set key outside bottom center horizontal noenhanced textcolor variable font ',13'
set xlabel offset 0,0.4
set linetype 1 lw 2 pt 7 ps 0.5 lc rgb '#0072b2'
set linetype 2 lw 2 pt 7 ps 0.5 lc rgb '#d55e00'
set linetype 3 lw 2 pt 7 ps 0.5 lc rgb '#009e73'
set linetype 4 lw 2 pt 7 ps 0.5 lc rgb '#cc79a7'
set linetype 5 lw 2 pt 7 ps 0.5 lc rgb '#e69f00'
set linetype 6 lw 2 pt 7 ps 0.5 lc rgb '#56b4e9'
set linetype 7 lw 2 pt 7 ps 0.5 lc rgb '#7f3fbf'
set linetype 8 lw 2 pt 7 ps 0.5 lc rgb '#555555'
set style data linespoints
set yrange [0:*]
