#!/usr/bin/env bash
# The cost of examples/nbdkit, and how it keeps promises, beside nbdkit without a filter and with its own rate filter.
# usage: bench/nbdkit.sh [--quick]
# fio's nbd engine on the null plugin, so that only nbdkit and the filter are measured.
# Case overhead: no limit is reached. Short slices of four servers in turn: none, with the filter, none, another without
# (the control), none, rate; each divided by the mean of the slices without a filter before and after it. Requests per
# second, CPU time and context switches of the server for a request, the share of requests that the filter metered.
# Case limit: 20 MiB/s; the rate delivered, its evenness (over 100 ms), context switches for a request.
# Case exports: 8 exports, 4 connections each, all with more demand: 80 and 40 MiB/s reserved, five limited to 8, one
# without either, of 200 in all; for a minute. The rate filter knows the total only.
# PARTS="overhead limit exports", LOADS="4k_16x1 ..." (block, outstanding, connections) and ROUNDS=60 select parts.
# Writes build/bench/nbdkit.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
filter=$PWD/build/examples/nbdkit-qoskit-filter.so out=build/bench
json=$PWD/$out/nbdkit.jsonl
rounds=${ROUNDS:-60} slice=200 batch=5 seconds=6 loads=${LOADS:-4k_16x1 4k_16x4 256k_4x2} limits=$'4k 16\n64k 4\n256k 16'
parts=" ${PARTS:-overhead limit exports} " minute=60
if [ "${1:-}" = --quick ]; then
    rounds=5 seconds=1 minute=2 loads=4k_16x4 limits='64k 4'
    echo "quick: $rounds rounds, so the result is not reliable"
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
# No limit is reached: 900 GiB/s, a class with a reservation and a limit as in practice.
serve none % 1G
serve control % 1G
serve qos --filter="$filter" % 1G qos-rate=900G 'qos-class="",reserve=100G,limit=800G' qos-stats="$d/stats" qos-stats-interval=500
serve rate --filter=rate % 1G rate=7000G
serve limit_qos --filter="$filter" % 1G 'qos-class="",limit=20M'
serve limit_rate --filter=rate % 1G rate=160M # bits
classes=(qos-class=e1,reserve=80M qos-class=e2,reserve=40M qos-class=e{3..7},limit=8M qos-class=e8,weight=1)
serve exports_qos --filter="$filter" % 1G qos-rate=200M qos-bound=rate "${classes[@]}"
serve exports_rate --filter=rate % 1G rate=1600M # bits
: >"$json"
put() { printf '{"bench":"nbdkit","case":"%s","metric":"%s","value":%s,"unit":"%s"}\n' "$@" >>"$json"; }
echo "# bench nbdkit: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(nbdkit --version), $(fio --version)"

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; } # includes dead threads
switches() { cat "/proc/$1"/task/*/status 2>/dev/null | awk '/ctxt_switches/ {n += $2} END {print n + 0}'; } # of living threads
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
# A batch is one run of fio, whose jobs are the slices one after another.
turn=(none qos none control none rate)
batch() { # BLOCK DEPTH CONNECTIONS ROUNDS: adds to $d/slices and $d/cpu, a line for each batch
    local i name before=()
    {
        printf '[global]\nioengine=nbd\nthread\nrw=randread\nbs=%s\niodepth=%s\nnumjobs=%s\ngroup_reporting\nsize=1G\n' "$1" "$2" "$3"
        printf 'time_based\nruntime=%sms\n' $slice
        for ((i = 0; i <= ${#turn[@]} * $4; i++)); do
            printf '[%s]\nstonewall\nuri=nbd+unix:///?socket=%s\n' "${turn[i % ${#turn[@]}]}" "$d/${turn[i % ${#turn[@]}]}"
        done
    } >"$d/jobs"
    for name in none qos control rate; do before+=("$(ticks "${pid[$name]}")"); done
    timeout 120 fio --output-format=json --output="$d/fio.json" "$d/jobs" >"$d/fio.err" 2>&1 || { cat "$d/fio.err"; return 1; }
    sed -n '/^{/,$p' "$d/fio.json" >"$d/clean.json"
    [ "$(jq '[.jobs[].error] | add' "$d/clean.json")" = 0 ] || { echo "fio saw errors"; return 1; }
    jq -r '[.jobs[].read.iops] | map(tostring) | join(" ")' "$d/clean.json" >>"$d/slices"
    for name in none qos control rate; do
        printf '%s %s ' $(($(ticks "${pid[$name]}") - before[0])) "$(jq --arg n $name '[.jobs[] | select(.jobname == $n) | .read.total_ios] | add' "$d/clean.json")"
        before=("${before[@]:1}")
    done >>"$d/cpu"
    echo >>"$d/cpu"
}
metered() { sleep 0.8; awk '/^submitted/ {print $4}' "$d/stats"; } # requests that the filter has completed
# The median, and the two of n values between which the true median is with 95 %.
sorted=$middle'function spread(v, n,    k) {k = int(n / 2 - 0.98 * sqrt(n)); if (k < 1) k = 1; return sprintf("%.4f", middle(v, n)) sprintf(" %.4f %.4f ", v[k], v[n + 1 - k])}'
if [[ $parts == *" overhead "* ]]; then
    printf '%-16s %-24s %28s %28s %28s\n' overhead "" 'filter / none' 'rate / none' 'control / none'
    for load in $loads; do
        IFS=_x read -r block depth connections <<<"$load"
        case=overhead_$load
        : >"$d/slices"
        : >"$d/cpu"
        batch "$block" "$depth" "$connections" 1 || exit 1
        : >"$d/slices"
        : >"$d/cpu"
        first=$(metered)
        for ((i = 0; i < rounds; i += batch)); do batch "$block" "$depth" "$connections" $((rounds - i < batch ? rounds - i : batch)) || exit 1; done
        sent=$(awk '{n += $4} END {printf "%.0f", n}' "$d/cpu")
        real=$(awk "BEGIN {print ($(metered) - $first) / $sent}")
        # Requests per second: every second slice is one of the filter, the control or rate. CPU: of batches.
        read -r -a v <<<"$(awk "$sorted"'
            FILENAME ~ /slices/ {for (i = 2; i < NF; i += 2) {t = i / 2 % 3; x[t, ++n[t]] = 2 * $i / ($(i - 1) + $(i + 1))}; a[NR] = $1; m = NR; next}
            {k++; for (t = 1; t <= 3; t++) y[t % 3, k] = $(2 * t + 1) / $(2 * t + 2) / ($1 / $2); us[k] = $1 / $2}
            function all(z, t, n,    i, one) {for (i = 1; i <= n; i++) one[i] = z[t, i]; return spread(one, n)}
            END {print middle(a, m), all(x, 1, n[1]) all(x, 0, n[0]) all(x, 2, n[2]), middle(us, k) * 1e6 / tick, all(y, 1, k) all(y, 0, k) all(y, 2, k)}' \
            tick="$(getconf CLK_TCK)" "$d/slices" "$d/cpu")"
        for what in throughput cpu; do
            says=$(awk -v n="$rounds" -v w=$what -v low="${v[2]}" -v high="${v[3]}" 'BEGIN {
                if (w == "throughput") print (n < 20 ? "too few rounds" : low >= 0.97 ? "0.97 is met" : high < 0.97 ? "0.97 is missed" : "not settled")}')
            printf '%-16s %-24s %12.3f (%.3f to %.3f) %12.3f (%.3f to %.3f) %12.3f (%.3f to %.3f)  %s\n' "$load" \
                "$([ $what = cpu ] && printf '%.2f us of CPU each' "${v[0]}" || printf '%.0f requests/s' "${v[0]}")" "${v[@]:1:9}" "$says"
            put "$case" ${what}_ratio "${v[1]}" with/without
            put "$case" ${what}_low "${v[2]}" with/without
            put "$case" ${what}_high "${v[3]}" with/without
            put "$case" ${what}_ratio_rate "${v[4]}" with/without
            put "$case" ${what}_control "${v[7]}" without/without
            v=("${v[@]:10}")
        done
        read -r _ _ sw <<<"$(run none "$block" "$depth" "$connections" 1)"
        read -r _ _ sw_qos <<<"$(run qos "$block" "$depth" "$connections" 1)"
        read -r _ _ sw_rate <<<"$(run rate "$block" "$depth" "$connections" 1)"
        put "$case" switches "$sw_qos" per-request
        put "$case" switches_rate "$sw_rate" per-request
        put "$case" switches_none "$sw" per-request
        put "$case" real_work "$real" of-requests
        printf '%-16s context switches a request: filter %.2f, rate %.2f, none %.2f; the filter metered %.4f of fio'"'"'s %d requests\n' "$load" \
            "$sw_qos" "$sw_rate" "$sw" "$real" "$sent"
    done
fi

# ---- limit
# fio's rate in each 100 ms: mean and deviation, without the first 3 s: the rate filter begins with 2 s of credit.
[[ $parts != *" limit "* ]] || printf '\n%-18s %21s %21s %21s\n' 'limit of 20 MiB/s' 'delivered, qos rate' 'uneven, qos rate' 'switches, qos rate'
while read -r block depth; do
    [[ $parts == *" limit "* ]] || break
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

# ---- exports
[[ $parts == *" exports "* ]] || exit 0
for who in qos rate; do
    {
        printf '[global]\nioengine=nbd\nthread\nrw=randread\nbs=64k\niodepth=8\nnumjobs=4\ngroup_reporting\nsize=1G\ntime_based\nramp_time=3\nruntime=%s\n' $minute
        for k in 1 2 3 4 5 6 7 8; do printf '[e%s]\nnew_group\nuri=nbd+unix:///e%s?socket=%s\n' $k $k "$d/exports_$who"; done
    } >"$d/jobs"
    timeout $((minute + 60)) fio --output-format=json --output="$d/fio.json" "$d/jobs" >"$d/fio.err" 2>&1 || { cat "$d/fio.err"; exit 1; }
    sed -n '/^{/,$p' "$d/fio.json" | jq -r '.jobs[] | "\(.jobname) \(.read.bw_bytes / 1048576) \(.read.clat_ns.percentile["99.000000"] / 1e6) \(.error)"' >"$d/exports.$who"
done
printf '\n%-28s %10s %10s %10s %10s\n' '8 exports x 4, MiB/s' qos rate 'p99, ms' 'p99, ms'
paste -d' ' "$d/exports.qos" "$d/exports.rate" | while read -r name qos p99 error _ other other_p99 other_error; do
    [ "$error$other_error" = 00 ] || { echo "fio saw errors"; exit 1; }
    case $name in e1) what='80 reserved' ;; e2) what='40 reserved' ;; e8) what='neither' ;; *) what='at most 8' ;; esac
    printf '%-28s %10.2f %10.2f %10.1f %10.1f\n' "$name: $what" "$qos" "$other" "$p99" "$other_p99"
    put exports "${name}_qos" "$qos" MiB/s
    put exports "${name}_rate" "$other" MiB/s
done
