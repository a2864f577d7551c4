#!/usr/bin/env bash
# The reward paper's Figures 2 to 6 from the simulation, and the cost of a request by number of clients.
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
load 'bench/figures/style.gp'
set output '$out/tags_clients.svg'
set title 'Cost of a request by number of clients'; set xlabel 'clients, all backlogged'; set ylabel 'ns'
set logscale xy; set yrange [5:*]
plot '$d/ns_per_op_scan' title 'scan of all clients', \
     '$d/ns_per_op_reward' title 'tags.h, reward, with completion', \
     '$d/ns_per_op' title 'tags.h, proportional sharing', \
     '$d/ns_per_op_heap' lc rgb '#999999' dt 2 title 'replace-top on a binary heap'
GP
# On a real file. If the disk's speed changed, the run can refuse the reservation of its profile: it is repeated once,
# then the figure is left out.
rm -f "$out"/tags_hotcold.{svg,why}
for try in 1 2; do
    if examples/uring_files/hotcold.sh build/hotcold; then
        cp build/hotcold/tags_hotcold.svg "$out/"
        break
    fi
    echo "the disk changed its speed in two runs" >"$out/tags_hotcold.why"
done
[ ! -s "$out/tags_hotcold.svg" ] || rm -f "$out/tags_hotcold.why"
