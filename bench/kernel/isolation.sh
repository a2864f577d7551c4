#!/usr/bin/env bash
# Performance isolation by somebody else's measure: the four desiderata of isol-bench ("Does Linux Provide Performance Isolation
# for NVMe SSDs? Configuring cgroups for I/O Control in the NVMe Era", IISWC 2024), for the kernel's mechanisms and for ours.
# usage: bench/kernel/isolation.sh [--quick] [known|disk...]
#   overhead   n tenants with one request of 4 KiB at a time: p99 and processor time; n with 32 at a time: the device in use
#   fairness   Jain's index of 4 tenants: equal; weights 1:2:3:4; requests of 4 and of 64 KiB; reads beside writes
#   trade-off  a tenant of 4 requests of 4 KiB beside 4 of 16 requests of 64 KiB, under each setting of a mechanism's one knob:
#              what it gets and its p99, and how much of the device is in use
#   burst      a tenant of 32 requests of 4 KiB comes to such a device at full load: ms until it has nine tenths of what it then gets
# Devices: `known` (device.bash, fuse) does 12,000 requests/s and 300 MiB/s; `disk` is a file here, whose capacity is what four
# tenants of 64 KiB get of it without a mechanism. Jain's index is of device time by weight: requests / 12,000 or bytes / 300 MiB,
# the larger, on the known device; bytes, as isol-bench has it, on the disk and as a second figure.
# Mechanisms: none; throttle (blk-throttle, io.max: each tenant's part of the device, by hand); bfq (weights, low_latency off; on the
# known device only, as the disk's scheduler is not ours to change); htb, tags (uring_files). io.cost needs cgroup v2: see disk.sh.
# As root. Writes build/bench/kernel_isolation.jsonl and, with gnuplot, build/bench/kernel_isolation.svg.
set -u
cd "$(dirname "$0")/../.." || exit 1
. bench/kernel/device.bash
export LC_ALL=C
seconds=4
[ "${1:-}" != --quick ] || { seconds=2; shift; }
[ $# -gt 0 ] || set -- known disk
begin_bench isolation

# ---- one run: the tenants of this scene, then `scene MECHANISM`; $dir/result is a line for each: NAME WEIGHT REQUESTS/S BYTES/S P99_NS CPU_NS
tenant=() # NAME:RW:BS:DEPTH:WEIGHT:START
of() { cut -d: -f"$2" <<<"$1"; }
total_weight() { printf '%s\n' "${tenant[@]}" | awk -F: '{n += $5} END {print n}'; }
with_fio() { # MECHANISM
    local t name pids='' start args
    for t in "${tenant[@]}"; do
        name=$(of "$t" 1) start=$(of "$t" 6)
        args=(--name="$name" --filename="$target" --rw="$(of "$t" 2)" --bs="$(of "$t" 3)" --iodepth="$(of "$t" 4)" --ioengine=io_uring --direct=1 --size=256M
            --time_based --runtime="$((seconds - start))" --startdelay="$start" --output-format=json --output="$dir/$name.json")
        [ "$start" = 0 ] || args+=(--write_bw_log="$dir/$name" --log_avg_msec=10)
        case $1 in # the parts of the device, by weight or as the scene says
        throttle) limit "$name" "${part[$name]:-$((capacity * $(of "$t" 5) / $(total_weight)))}" ;;
        bfq) weigh "$name" "${part[$name]:-$((100 * $(of "$t" 5)))}" ;;
        esac
        (
            [ -z "$tenants_at" ] || echo "$BASHPID" >"$(group "$name")/cgroup.procs"
            exec nice -n -10 timeout -k 5 60 fio "${args[@]}" >/dev/null 2>>"$dir/log"
        ) &
        pids="$pids $!"
    done
    # shellcheck disable=SC2086
    wait $pids
    for t in "${tenant[@]}"; do
        name=$(of "$t" 1)
        [ "$1" != throttle ] || limit "$name" 0
        jq -r --arg name "$name" --arg weight "$(of "$t" 5)" '.jobs[0] | ((.usr_cpu + .sys_cpu) * .job_runtime * 1e4) as $cpu |
            (if .read.total_ios > 0 then .read else .write end) |
            "\($name) \($weight) \(.iops) \(.bw_bytes) \(.clat_ns.percentile["99.000000"] // 0) \($cpu / ([.total_ios, 1] | max))"' "$dir/$name.json"
    done >"$dir/result"
    [ ! -e "$dir/db_bw.1.log" ] || awk -F, '{print $1, $2 * 1024 * 0.01}' "$dir/db_bw.1.log" >"$dir/steps"
}
with_tool() { # htb|tags
    local t spec=() options=(--dispatch-depth "${part[depth]:-112}")
    [ "$1" = htb ] && options+=(--flight)
    [ "$1" = tags ] && options=(--dispatch-depth "${part[depth]:-32}")
    for t in "${tenant[@]}"; do
        spec+=(--tenant "$(of "$t" 1):rw=$(of "$t" 2),bs=$(of "$t" 3),depth=$(of "$t" 4),weight=$(of "$t" 5)${part[$(of "$t" 1)]:+,${part[$(of "$t" 1)]}}$(
            [ "$(of "$t" 6)" = 0 ] || echo ",start=$(of "$t" 6)s")")
    done
    rm -f "$dir/tool.json" "$dir/tool.csv"
    [ "${tenant[-1]##*:}" = 0 ] || options+=(--log "$dir/tool.csv")
    nice -n -10 timeout -k 5 90 "$tool" --file "$target" --overwrite --direct yes --scheduler "$1" "${options[@]}" --profile-time 300ms --runtime "${seconds}s" \
        --json "$dir/tool.json" "${spec[@]}" >>"$dir/log" 2>&1
    [ -s "$dir/tool.json" ] || { tail -3 "$dir/log"; : >"$dir/result"; return 1; }
    jq -r '(.with.cpu_ns / .with.requests) as $cpu | [.tenants, .with.tenants] | transpose | .[] |
        "\(.[0].name) \(.[0].weight) \(.[1].completed * .[1].bytes_per_s / ([.[1].bytes, 1] | max)) \(.[1].bytes_per_s) \(.[1].p99_ns) \($cpu)"' "$dir/tool.json" >"$dir/result"
    [ ! -e "$dir/tool.csv" ] || awk -F, -v start="$((seconds / 2))" 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i; next}
        $(at["tenant"]) == "db" && $(at["event"]) == "done" {print $(at["ns"]) / 1e6 - start * 1e3, $(at["bytes"])}' "$dir/tool.csv" >"$dir/steps"
}
scene() { # MECHANISM
    if [ -n "$queue" ]; then
        if [ "$1" = bfq ]; then echo bfq >"$queue/scheduler" && echo 0 >"$queue/iosched/low_latency"; else echo none >"$queue/scheduler"; fi
    fi
    rm -f "$dir"/steps "$dir"/*_bw.1.log
    case $1 in htb | tags) with_tool "$1" ;; *) with_fio "$1" ;; esac
}
# Of the scene that ran: the device in use; Jain's index of device time by weight, and of bytes by weight.
in_use() { awk -v ops="$ops" -v bytes="$capacity" '{n += $3; b += $4} END {u = b / bytes; v = ops ? n / ops : 0; printf "%.4f", (v > u ? v : u)}' "$dir/result"; }
jain() { # time|bytes
    awk -v ops="$ops" -v bytes="$capacity" -v what="$1" '{x = $4 / bytes; if (what == "time" && ops && $3 / ops > x) x = $3 / ops
        x /= $2; s += x; q += x * x} END {printf "%.4f", q ? s * s / NR / q : 0}' "$dir/result"
}
say() { # DESIDERATUM CASE MECHANISM METRIC VALUE UNIT
    printf '%-6s %-10s %-22s %-9s %-22s %10s %s\n' "$where" "$@"
    printf '{"bench":"kernel_isolation","case":"%s %s %s %s","metric":"%s","value":%s,"unit":"%s"}\n' "$where" "$1" "$2" "$3" "$4" "${5:-null}" "$6" >>"$out/kernel_isolation.jsonl"
}
named() { # COUNT RW BS DEPTH: tenants t1, t2, ...
    local k
    tenant=()
    for ((k = 1; k <= $1; k++)); do tenant+=("t$k:$2:$3:$4:1:0"); done
}

overhead() {
    local n m
    part=()
    for n in 1 16; do
        named "$n" randread 4k 1
        for m in $mechanisms; do
            scene "$m" || continue
            say overhead "$n one at a time" "$m" p99_us "$(awk '{if ($5 > w) w = $5} END {printf "%.1f", w / 1e3}' "$dir/result")" us
            say overhead "$n one at a time" "$m" cpu_us "$(awk '{c += $6} END {printf "%.2f", c / NR / 1e3}' "$dir/result")" us
        done
        named "$n" randread 4k 32
        for m in $mechanisms; do
            scene "$m" || continue
            say overhead "$n of 32" "$m" in_use "$(in_use)" ratio
        done
    done
}
fairness() {
    local case m
    part=()
    for case in equal weighted sizes writes; do
        case $case in
        equal) named 4 randread 4k 32 ;;
        weighted) tenant=(t1:randread:4k:32:1:0 t2:randread:4k:32:2:0 t3:randread:4k:32:3:0 t4:randread:4k:32:4:0) ;;
        sizes) tenant=(t1:randread:4k:32:1:0 t2:randread:4k:32:1:0 t3:randread:64k:32:1:0 t4:randread:64k:32:1:0) ;;
        writes) tenant=(t1:randread:16k:32:1:0 t2:randread:16k:32:1:0 t3:randwrite:16k:32:1:0 t4:randwrite:16k:32:1:0) ;;
        esac
        for m in $mechanisms; do
            scene "$m" || continue
            say fairness "$case" "$m" jain_time "$(jain time)" ratio
            say fairness "$case" "$m" jain_bytes "$(jain bytes)" ratio
            say fairness "$case" "$m" in_use "$(in_use)" ratio
        done
    done
}
beside() { # DEPTH START: db beside four that keep the device full
    tenant=(be1:randread:64k:16:1:0 be2:randread:64k:16:1:0 be3:randread:64k:16:1:0 be4:randread:64k:16:1:0 "db:randread:4k:$1:1:$2")
}
be() { for k in 1 2 3 4; do part[be$k]=$1; done; }
# The knob of each mechanism, from "utilisation first" to "db first". throttle: the others' part in percent; bfq: db's weight for
# the others' 100; htb: db's latency beside a fifth of the device; tags: requests at the device.
declare -A knobs=([none]=0 [throttle]='100 80 60 40 20' [bfq]='20 100 300 1000' [htb]='50ms 20ms 10ms 5ms 2ms' [tags]='64 32 16 8 4')
turn() { # MECHANISM KNOB
    part=()
    case $1 in
    throttle) be $((capacity * $2 / 400)) && part[db]=0 ;;
    bfq) be 100 && part[db]=$2 ;;
    htb) part[db]=reserve=20%,latency=$2 ;;
    tags) part[db]=reserve=20% part[depth]=$2 ;;
    esac
}
trade_off() {
    local m knob
    beside 4 0
    for m in $mechanisms; do
        for knob in ${knobs[$m]}; do
            turn "$m" "$knob"
            scene "$m" || continue
            say trade-off "$knob" "$m" in_use "$(in_use)" ratio
            say trade-off "$knob" "$m" db_p99_ms "$(awk '$1 == "db" {printf "%.3f", $5 / 1e6}' "$dir/result")" ms
            say trade-off "$knob" "$m" db_per_s "$(awk '$1 == "db" {printf "%.0f", $3}' "$dir/result")" /s
        done
    done
}
burst() {
    local m
    beside 32 $((seconds / 2))
    for m in $mechanisms; do
        # shellcheck disable=SC2086
        set -- ${knobs[$m]}
        turn "$m" "${3:-$1}" # the middle of its knob
        scene "$m" || continue
        # windows of 50 ms; what it then gets: the mean of the last half
        say burst "comes at full load" "$m" response_ms "$(awk -v ms=$((seconds * 500)) '$1 >= 0 {w[int($1 / 50)] += $2; if ($1 >= ms / 2) last += $2}
            END {last /= ms / 2 / 50; for (k = 0; k < ms / 50; k++) if (w[k] >= 0.9 * last && last > 0) {print (k + 1) * 50; exit} print "null"}' "$dir/steps")" ms
        say burst "comes at full load" "$m" in_use "$(in_use)" ratio
    done
}

: >"$out/kernel_isolation.jsonl"
echo "# bench kernel/isolation: kernel $(uname -r), $(nproc) processors, $seconds s each"
declare -A part=()
for where; do
    queue=
    names="be1 be2 be3 be4 db $(echo t{1..16})"
    case $where in
    known)
        known_device fuse "$dir" || { echo "$where: not measured: $device_why"; continue; }
        target=$device ops=$device_ops capacity=$device_bytes mechanisms='none'
        # shellcheck disable=SC2086
        if open_tenants $names; then
            mechanisms='none throttle' queue=/sys/block/${device#/dev/}/queue
            if grep -qw bfq "$queue/scheduler"; then mechanisms='none throttle bfq'; fi
        fi ;;
    disk)
        target=$dir/file ops=0
        dd if=/dev/urandom of="$target" bs=1M count=256 conv=fsync status=none || exit 1
        device_number=$(lsblk -nro MAJ:MIN "$(lsblk -nrpo PKNAME "$(df --output=source "$target" | tail -1)" | grep . || df --output=source "$target" | tail -1)" 2>/dev/null | head -1)
        mechanisms=none
        # shellcheck disable=SC2086
        [ -z "$device_number" ] || { open_tenants $names && mechanisms='none throttle'; }
        named 4 randread 64k 16
        capacity=1
        scene none
        capacity=$(awk '{b += $4} END {printf "%d", b}' "$dir/result")
        echo "# disk: $((capacity >> 20)) MiB/s with four tenants of 64 KiB" ;;
    *) echo "no device $where: known or disk" >&2; exit 2 ;;
    esac
    mechanisms="$mechanisms htb tags"
    for desideratum in ${DESIDERATA:-overhead fairness trade_off burst}; do
        $desideratum
    done
    close_tenants
    close_device
done

# ---- the trade-off as curves: db's p99 over what of the device is in use
command -v gnuplot >/dev/null || { echo "no figure: gnuplot is missing"; exit 0; }
points() { # DEVICE MECHANISM
    jq -r --arg of "$1 trade-off" --arg m " $2" 'select((.case | startswith($of)) and (.case | endswith($m)) and .value != null) |
        "\(.case) \(.metric) \(.value)"' "$out/kernel_isolation.jsonl" | awk '$5 == "in_use" {use = $6} $5 == "db_p99_ms" {print 100 * use, $6}'
}
panels=
for where; do
    lines= k=0
    for m in none throttle bfq htb tags; do
        k=$((k + 1))
        points "$where" $m >"$dir/$where.$m"
        [ ! -s "$dir/$where.$m" ] || lines="$lines${lines:+, }'$dir/$where.$m' with linespoints lt $k title '$m'"
    done
    [ -z "$lines" ] || panels="$panels
set title '$where'
plot $lines"
done
gnuplot <<GP || exit 1
set terminal svg size 1000,420 font 'sans,12' background 'white'
set output '$out/kernel_isolation.svg'
set grid lc rgb '#dddddd'; set border 3; set tics nomirror; set logscale y; set key bottom left
set xlabel 'device in use, %'; set ylabel 'p99 of the database, ms'
set style line 1 lw 2; set linetype 1 lc rgb '#777777' pt 7 ps 1.5; set linetype 2 lc rgb '#e69f00' pt 5 lw 2; set linetype 3 lc rgb '#cc79a7' pt 9 lw 2
set linetype 4 lc rgb '#0072b2' pt 7 lw 2; set linetype 5 lc rgb '#009e73' pt 13 lw 2
set multiplot layout 1,$# title 'A database beside four that keep the device full, under each setting of one knob' noenhanced$panels
unset multiplot
GP
echo "figure: $out/kernel_isolation.svg"
