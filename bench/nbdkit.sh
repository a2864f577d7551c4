#!/usr/bin/env bash
# What examples/nbdkit costs, and what it holds, beside nbdkit without a filter and its own rate filter.   usage: bench/nbdkit.sh [--quick]
# fio's nbd engine on the null plugin, so that nothing but nbdkit and the filter is measured. Three servers run; slices of each take
# turns, those without a filter twice (the control).
# Case overhead: nothing binds; requests per second, CPU time and context switches of the server for a request.
# Case limit: 20 MiB/s; what is delivered, how evenly (over 100 ms), context switches for a request.
# Writes build/bench/nbdkit.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
filter=$PWD/build/examples/nbdkit-qoskit-filter.so out=build/bench
json=$PWD/$out/nbdkit.jsonl
slices=7 slice=1 seconds=6 loads=$'4k 16 1\n4k 16 4\n256k 4 2' limits=$'4k 16\n64k 4\n256k 16'
if [ "${1:-}" = --quick ]; then
    slices=2 slice=0.4 seconds=1 loads=$'4k 16 1\n4k 16 4' limits='64k 4'
    echo "quick: $slices slices of $slice s, so the control is wider"
fi
[ -f "$filter" ] || make -s "$filter" >/dev/null || exit 1
fio --enghelp | grep -qw nbd || { echo "this fio has no nbd engine: nothing is measured"; exit 1; }
mkdir -p "$out"
d=$(mktemp -d) || exit 1
declare -A pid
stop() {
    [ ${#pid[@]} -eq 0 ] || kill "${pid[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$d"
}
trap stop EXIT
serve() { # NAME FILTER... : on socket $d/NAME
    local name=$1
    shift
    nbdkit -f -U "$d/$name" "${@//%/null}" 2>"$d/$name.err" &
    pid[$name]=$!
    for _ in $(seq 50); do [ -S "$d/$name" ] && return; sleep 0.1; done
    cat "$d/$name.err"
    exit 1
}
# Nothing binds: 900 GiB/s, a class with a reservation and a limit as in earnest.
serve none % 1G
serve qos --filter="$filter" % 1G qos-rate=900G 'qos-class="",reserve=100G,limit=800G'
serve rate --filter=rate % 1G rate=7000G
serve limit_qos --filter="$filter" % 1G 'qos-class="",limit=20M'
serve limit_rate --filter=rate % 1G rate=160M # bits
: >"$json"
put() { printf '{"bench":"nbdkit","case":"%s","metric":"%s","value":%s,"unit":"%s"}\n' "$@" >>"$json"; }
echo "# bench nbdkit: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(nbdkit --version), $(fio --version)"

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; } # dead threads are in it
switches() { cat "/proc/$1"/task/*/status 2>/dev/null | awk '/ctxt_switches/ {n += $2} END {print n + 0}'; } # of the living
# A slice; switches are counted in the middle of it, while all threads of the connections live.
# run SERVER BLOCK DEPTH CONNECTIONS SECONDS [OPTION...]: requests/s, CPU us and switches for a request
run() {
    local name=$1 p=${pid[$1]} cpu before after middle
    middle=$(awk "BEGIN {print $5 * 0.5}")
    cpu=$(ticks "$p")
    timeout 30 fio --name=t --thread --ioengine=nbd --uri="nbd+unix:///?socket=$d/$name" --rw=randread --bs="$2" --iodepth="$3" \
        --numjobs="$4" --group_reporting --size=1G --time_based --runtime="$(awk "BEGIN {print $5 * 1000}")ms" "${@:6}" --output-format=json --output="$d/fio.json" \
        2>/dev/null &
    local client=$!
    sleep "$(awk "BEGIN {print $5 * 0.25 + 0.3}")"
    before=$(switches "$p")
    sleep "$middle"
    after=$(switches "$p")
    wait $client
    cpu=$(($(ticks "$p") - cpu))
    sed -n '/^{/,$p' "$d/fio.json" | jq -r --argjson cpu "$cpu" --argjson sw $((after - before)) --argjson s "$middle" \
        --argjson tick $((1000000 / $(getconf CLK_TCK))) '.jobs[0].read | "\(.iops) \($cpu * $tick / .total_ios) \($sw / (.iops * $s))"'
}
middle='function middle(v, n,    i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) {t = v[j]; v[j] = v[j - 1]; v[j - 1] = t}
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}'

# ---- overhead
printf '%-18s %10s %8s %8s %8s | %9s %8s %8s %8s | %9s %7s %7s\n' overhead 'none/s' qos/none rate/none control \
    'none, us' qos/none rate/none control 'none, sw' qos rate
while read -r block depth connections; do
    : >"$d/slices"
    run none "$block" "$depth" "$connections" 0.5 >/dev/null
    for ((i = 0; i < slices; i++)); do
        echo "$(run none "$block" "$depth" "$connections" $slice) $(run qos "$block" "$depth" "$connections" $slice)" \
            "$(run rate "$block" "$depth" "$connections" $slice) $(run none "$block" "$depth" "$connections" $slice)" >>"$d/slices"
    done
    read -r none qos rate control us us_qos us_rate us_control sw sw_qos sw_rate <<<"$(awk "$middle"'
        {n = ($1 + $10) / 2; a[NR] = n; q[NR] = $4 / n; r[NR] = $7 / n; c[NR] = $10 / $1
         n = ($2 + $11) / 2; ua[NR] = n; uq[NR] = $5 / n; ur[NR] = $8 / n; uc[NR] = $11 / $2
         sa[NR] = ($3 + $12) / 2; sq[NR] = $6; sr[NR] = $9}
        END {print middle(a, NR), middle(q, NR), middle(r, NR), middle(c, NR), middle(ua, NR), middle(uq, NR), middle(ur, NR), middle(uc, NR),
             middle(sa, NR), middle(sq, NR), middle(sr, NR)}' "$d/slices")"
    printf '%-18s %10.0f %8.3f %8.3f %8.3f | %9.1f %8.3f %8.3f %8.3f | %9.2f %7.2f %7.2f\n' "$block x $depth x $connections" \
        "$none" "$qos" "$rate" "$control" "$us" "$us_qos" "$us_rate" "$us_control" "$sw" "$sw_qos" "$sw_rate"
    case=overhead_${block}_${depth}x$connections
    put "$case" throughput_ratio "$qos" with/without
    put "$case" throughput_ratio_rate "$rate" with/without
    put "$case" throughput_control "$control" without/without
    put "$case" cpu_ratio "$us_qos" with/without
    put "$case" cpu_ratio_rate "$us_rate" with/without
    put "$case" cpu_control "$us_control" without/without
    put "$case" switches "$sw_qos" per-request
    put "$case" switches_rate "$sw_rate" per-request
    put "$case" switches_none "$sw" per-request
done <<<"$loads"

# ---- limit
# What fio saw in each 100 ms: mean and deviation. Not the first 3 s: the rate filter begins with 2 s of credit.
echo
printf '%-18s %21s %21s %21s\n' 'limit of 20 MiB/s' 'delivered, qos rate' 'uneven, qos rate' 'switches, qos rate'
while read -r block depth; do
    for who in qos rate; do
        rm -f "$d"/bw*
        read -r _ _ sw <<<"$(run limit_$who "$block" "$depth" 1 $((seconds + 3)) --write_bw_log="$d/bw" --log_avg_msec=100)"
        read -r of_limit uneven <<<"$(awk -F, '$1 > 3000 {n++; s += $2; q += $2 * $2}
            END {m = s / n; v = q / n - m * m; print m / 20480, (v > 0 ? sqrt(v) : 0) / m}' "$d"/bw_bw.1.log)"
        eval "of_$who=$of_limit uneven_$who=$uneven sw_$who=$sw"
        put "limit_$block" "of_limit_$who" "$of_limit" ratio
        put "limit_$block" "uneven_$who" "$uneven" ratio
        put "limit_$block" "switches_$who" "$sw" per-request
    done
    printf '%-18s %10.4f %10.4f %10.3f %10.3f %10.2f %10.2f\n' "$block x $depth" "$of_qos" "$of_rate" "$uneven_qos" "$uneven_rate" \
        "$sw_qos" "$sw_rate"
done <<<"$limits"
