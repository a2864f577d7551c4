#!/usr/bin/env bash
# The demo's tenants on one device, under the kernel's mechanisms, under fio's own rates, and under uring_files.
# usage: bench/kernel/disk.sh [--quick]
# As root. The device: 12,000 requests/s and 300 MiB/s (device.bash, fuse). The tenants:
#   db      4 KiB random reads, 32 at a time, 9.4 MiB/s reserved (a fifth of the requests)
#   scan    128 KiB random reads, 64 at a time, 60 MiB/s reserved (a fifth of the bytes)
#   backup  128 KiB random reads, 16 at a time, at most 30 MiB/s (a tenth)
# Three scenes: all run; db is idle; the device gives half.
#
# The kernel has no reservations. So each mechanism is set by hand for the whole device, as its manual suggests for
# these promises: limits on scan and backup that leave db its part (blk-throttle, fio), or weights 2 : 7 : 1 (BFQ with
# low_latency off, io.cost), with blk-throttle for backup's limit. htb bounds the device time in flight; tags and token
# have 32 requests at the device.
# A row is marked if the device's own process waited for a processor for more than a twentieth of the time: then the
# device was slower than it should be. MECHANISMS="htb bfq" runs these only.
# Writes build/bench/kernel_disk.jsonl, and, with gnuplot, build/bench/kernel_disk.svg.
set -u
cd "$(dirname "$0")/../.." || exit 1
. bench/kernel/device.bash
export LC_ALL=C
seconds=5
[ "${1:-}" != --quick ] || seconds=3
begin_bench disk
known_device fuse "$dir" || { echo "SKIP bench/kernel/disk: $device_why"; exit 0; }
queue=/sys/block/${device#/dev/}/queue

tenants="db scan backup"
declare -A bs=([db]=4k [scan]=128k [backup]=128k) depth=([db]=32 [scan]=64 [backup]=16) weight=([db]=200 [scan]=700 [backup]=100)
declare -A cap=([db]=0 [scan]=272629760 [backup]=31457280) # bytes/s: scan has the part of 300 MiB/s that db and backup leave

# ---- runs: each leaves a line in $dir/rows: SCENE MECHANISM RESERVATION LIMIT BUSY P99_MS CPU_US DEVICE_WAITED
# of the device: its capacity in the scene
device_waited_ns() { awk '{print $2}' "/proc/$device_pid/schedstat"; }
row() { # SCENE MECHANISM db_bytes scan_bytes backup_bytes p99_ns cpu_us
    awk -v scene="$1" -v name="$2" -v db="$3" -v scan="$4" -v backup="$5" -v p99="$6" -v cpu="$7" -v ops="$device_ops" -v bytes="$device_bytes" \
        -v waited="$((100 * ($(device_waited_ns) - waited) / ($(date +%s%N) - began)))" 'BEGIN {
        part = scene == "half" ? 0.5 : 1
        least = scan / 62914560
        if (scene != "idle" && db / 9830400 < least) least = db / 9830400
        used = (db + scan + backup) / bytes / part
        requests = (db / 4096 + (scan + backup) / 131072) / ops / part
        if (requests > used) used = requests
        printf "%s %s %.4f %.4f %.4f %.3f %.3f %d\n", scene, name, least, backup / 31457280, used, p99 / 1e6, cpu, waited
    }' | tee -a "$dir/rows" >>"$dir/log"
}

with_fio() { # SCENE MECHANISM: one process for each tenant, in its cgroup where there are some
    local scene=$1 name=$2 t pids= args
    for t in $tenants; do
        [ "$scene:$t" != idle:db ] || continue
        args=(--name="$t" --filename="$device" --rw=randread --bs="${bs[$t]}" --iodepth="${depth[$t]}" --ioengine=io_uring --direct=1
            --time_based --ramp_time=1 --runtime="$seconds" --output-format=json --output="$dir/$t.json")
        [ "$name:${cap[$t]}" = "fio_rate:0" ] || [ "$name" != fio_rate ] || args+=(--rate="${cap[$t]}")
        (
            [ -z "$tenants_at" ] || echo "$BASHPID" >"$(group "$t")/cgroup.procs"
            exec nice -n -10 timeout -k 5 60 fio "${args[@]}" >/dev/null 2>>"$dir/log"
        ) &
        pids="$pids $!"
    done
    # shellcheck disable=SC2086
    wait $pids
    [ "$scene" != idle ] || echo '{"jobs": [{"read": {"bw_bytes": 0, "iops": 0, "total_ios": 0, "clat_ns": {}}, "usr_cpu": 0, "sys_cpu": 0}]}' >"$dir/db.json"
    # shellcheck disable=SC2046
    row "$scene" "$name" $(jq -rs 'map(.jobs[0]) | [.[].read.bw_bytes, (.[0].read.clat_ns.percentile["99.000000"] // 0),
        (map((.usr_cpu + .sys_cpu) * 1e4) | add) / (map(.read.iops) | add)] | map(tostring) | join(" ")' "$dir/db.json" "$dir/scan.json" "$dir/backup.json")
}

# If the machine stalls while the device is measured, the tool refuses the reservations: then it is measured once more.
with_tool() { # SCENE SCHEDULER OPTION...
    run_tool "$@" || run_tool "$@" || { echo "$2, $1: no result"; tail -5 "$dir/log"; }
}
run_tool() { # status 1: no result
    local scene=$1 name=$2 start= pid i
    shift 2
    [ "$scene" != idle ] || start=,start=$((seconds + 1))s # the tenant is there, with its reservation, and idle
    rm -f "$dir/tool.json" "$dir/err"
    device_whole # the profile is of the whole device
    nice -n -10 timeout -k 5 60 "$tool" --file "$device" --direct yes --scheduler "$name" "$@" --profile-time 1s \
        --runtime "$((seconds + 1))s" --progress --json "$dir/tool.json" --tenant "db:bs=4k,depth=32,reserve=9600k$start" \
        --tenant scan:bs=128k,depth=64,reserve=60M --tenant backup:bs=128k,depth=16,limit=30M >>"$dir/log" 2>"$dir/err" &
    pid=$!
    if [ "$scene" = half ]; then
        for ((i = 0; i < 200; i++)); do
            ! grep -qs 'with QoS' "$dir/err" || break
            sleep 0.1
        done
        device_half
    fi
    wait "$pid"
    cat "$dir/err" >>"$dir/log"
    [ -s "$dir/tool.json" ] || return 1
    # shellcheck disable=SC2046
    row "$scene" "$name" $(jq -r '.with | [(.tenants[] | .bytes_each_second[1:] | add / length), (.tenants[0].p99_ns // 0), .cpu_ns / .requests / 1e3] |
        map(tostring) | join(" ")' "$dir/tool.json")
}

scenes() { # COMMAND NAME OPTION...: all, idle, half
    local scene
    [[ " ${MECHANISMS:-$2} " == *" $2 "* ]] || return 0
    for scene in all idle half; do
        waited=$(device_waited_ns) began=$(date +%s%N)
        [ "$scene" = half ] && [ "$1" = with_fio ] && device_half
        "$1" "$scene" "${@:2}"
        device_whole
    done
}

echo "# bench kernel/disk: kernel $(uname -r), $(nproc) processors, $seconds s each, the first second left out"
scenes with_fio nothing
scenes with_fio fio_rate
if open_tenants $tenants; then
    for t in $tenants; do limit "$t" "${cap[$t]}"; done
    scenes with_fio throttle
    for t in db scan; do limit "$t" 0; done
    if echo bfq >"$queue/scheduler" 2>/dev/null; then
        echo 0 >"$queue/iosched/low_latency"
        for t in $tenants; do weigh "$t" "${weight[$t]}"; done
        scenes with_fio bfq
        echo none >"$queue/scheduler"
    else
        echo "bfq: not measured: this kernel has no BFQ"
    fi
    limit backup 0
    if [ "$tenants_version" = 2 ] && [ -e "$tenants_at/io.cost.qos" ]; then
        echo "$device_number ctrl=user model=linear rbps=$device_bytes rseqiops=$device_ops rrandiops=$device_ops wbps=$device_bytes wseqiops=$device_ops wrandiops=$device_ops" >"$tenants_at/io.cost.model"
        echo "$device_number enable=1 ctrl=user rpct=0 wpct=0 min=100 max=100" >"$tenants_at/io.cost.qos"
        for t in $tenants; do echo "default ${weight[$t]}" >"$(group "$t")/io.weight"; done
        limit backup "${cap[backup]}"
        scenes with_fio iocost
        echo "$device_number enable=0" >"$tenants_at/io.cost.qos"
    elif [ "$tenants_version" = 1 ]; then
        echo "iocost: not measured: io.cost needs cgroup v2, and here the I/O controller is bound to cgroup v1"
    else
        echo "iocost: not measured: this kernel has no io.cost"
    fi
else
    echo "throttle, bfq, iocost: not measured: no cgroup file system offers an I/O controller"
fi
scenes with_tool htb --flight --dispatch-depth 112
scenes with_tool tags --dispatch-depth 32
scenes with_tool token --dispatch-depth 32

# ---- table, lines, figure
awk 'BEGIN {split("all idle half", scene); title["all"] = "all run"; title["idle"] = "db is idle"; title["half"] = "the device gives half"}
    {if (!($2 in seen)) {seen[$2] = ++n; name[n] = $2} row[$1, $2] = $0}
    END {for (s = 1; s <= 3; s++) {
        printf "\n%-22s %12s %12s %12s %12s %12s\n", title[scene[s]], "reservation", "limit", "device use", "p99 of db", "CPU per I/O"
        for (i = 1; i <= n; i++) if (split(row[scene[s], name[i]], f, " "))
            printf "%-22s %10.1f %% %10.1f %% %10.1f %% %9s ms %9.2f us%s\n", name[i], 100 * f[3], 100 * f[4], 100 * f[5], scene[s] == "idle" ? "-" : sprintf("%.1f", f[6]), f[7], (f[8] > 5 ? sprintf("  (the device waited %d %%)", f[8]) : "")
    }}' "$dir/rows"
echo "(reservation: the smaller part that db and scan got of theirs; limit: the part that backup got of its own; CPU: of the processes)"
awk '{split("reservation_least limit busy p99_ms cpu_us_per_io device_waited", m); for (i = 1; i <= 6; i++)
    printf "{\"bench\":\"kernel_disk\",\"case\":\"%s %s\",\"metric\":\"%s\",\"value\":%s,\"unit\":\"%s\"}\n", $2, $1, m[i], $(i + 2), i < 4 ? "ratio" : i == 4 ? "ms" : i == 5 ? "us" : "%"}' "$dir/rows" >"$out/kernel_disk.jsonl"
command -v gnuplot >/dev/null || { echo "no figure: gnuplot is missing"; exit 0; }
awk 'function row(i, scene, k) {printf " %s", (name[i], scene, k) in v ? v[name[i], scene, k] : "nan"}
    {if (!($2 in seen)) {seen[$2] = ++n; name[n] = $2} for (i = 3; i <= 7; i++) v[$2, $1, i] = $i}
    END {for (i = 1; i <= n; i++) {printf "%s", name[i] == "fio_rate" ? "\"fio rates\"" : name[i]; for (k = 3; k <= 7; k++) {row(i, "all", k); row(i, "idle", k); row(i, "half", k)}; print ""}}' "$dir/rows" >"$dir/figure.dat"
gnuplot <<GP || exit 1
set terminal svg size 1000,760 font 'sans,12' background 'white'
set output '$out/kernel_disk.svg'
set style data histograms; set style histogram clustered gap 1; set style fill solid 0.9 noborder; set boxwidth 0.9
set grid y lc rgb '#dddddd'; set border 3; set tics nomirror; set xtics rotate by -30 font ',10'
set linetype 1 lc rgb '#0072b2'; set linetype 2 lc rgb '#e69f00'; set linetype 3 lc rgb '#009e73'
set multiplot layout 2,3 title 'A database, a scan and a backup on one device of 12,000 requests/s and 300 MiB/s' noenhanced
unset key
f = '$dir/figure.dat'
set yrange [0:150]; set ylabel '%'
set title 'Reservation met, the worse of two (at least 100)'; set arrow 1 from graph 0, first 100 to graph 1, first 100 nohead dt 2
plot f using (\$2*100 > 150 ? 150 : \$2*100):xtic(1), '' using (\$3*100 > 150 ? 150 : \$3*100), '' using (\$4*100 > 150 ? 150 : \$4*100)
set yrange [0:*]; set title 'Of its limit, the backup got (at most 100)'
plot f using (\$5*100):xtic(1), '' using (\$6*100), '' using (\$7*100)
set yrange [0:110]; set title 'Device in use'
plot f using (\$8*100):xtic(1), '' using (\$9*100), '' using (\$10*100)
unset arrow 1; set yrange [0.5:*]; set logscale y; set ylabel 'ms (logarithmic)'; set title 'p99 of the database'
plot f using 11:xtic(1) lt 1, '' using 13 lt 3
unset logscale y; set yrange [0:*]; set ylabel 'us'; set title 'CPU per I/O, of the processes'
plot f using 14:xtic(1), '' using 15, '' using 16
set title ' '; unset border; unset tics; unset ylabel; set key center center; set xrange [0:1]; set yrange [0:1]
plot NaN with boxes lt 1 title 'all run', NaN with boxes lt 2 title 'the database is idle', NaN with boxes lt 3 title 'the device gives half'
unset multiplot
GP
echo "figure: $out/kernel_disk.svg"
