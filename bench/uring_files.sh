#!/usr/bin/env bash
# The cost of htb.h in front of a real device, and the part of a device that it uses.
# usage: bench/uring_files.sh [--quick]
#   overhead      random 4 KiB reads at depth 32; no limit is reached. Slices without the scheduler, with it, and without
#                 it again (the A/A control) take turns.
#   none          uring_files without a scheduler beside fio with the same requests, in turn
#   known_device  the demo's tenants on a device of known speed: the part of it that they use, with htb.h and without
# PARTS="overhead none known_device" runs these only; PAIRS=25: pairs of runs with the peer.
# Writes build/bench/uring_files.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
. bench/kernel/device.bash
tool=build/examples/uring_files
out=build/bench
json=$out/uring_files.jsonl
parts=" ${PARTS:-overhead none known_device} "
slices=60 slice=1s fio_seconds=1 pairs=${PAIRS:-25} known_seconds=10 size=2G
if [ "${1:-}" = --quick ]; then
    slices=42 slice=200ms fio_seconds=1 pairs=3 known_seconds=4 size=1G
    echo "quick: $slices slices of $slice instead of 60 of 1 s, so the noise is larger"
fi
[ -x "$tool" ] || make -s "$tool" >/dev/null || exit 1
mkdir -p "$out"
dir=$(mktemp -d "$out/uring_files-XXXXXX") || exit 1
trap 'close_device; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
file=$dir/file

echo "# bench uring_files: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), kernel $(uname -r), file system" \
    "$(df --output=fstype "$out" | tail -1)"
[[ $parts == *" overhead "* ]] || slices=6 slice=50ms
"$tool" --file "$file" --size "$size" --keep --overhead "$slices" --slice "$slice" --json "$json" \
    --tenant a:rw=randread,bs=4k,depth=32,reserve=20M,limit=100G || exit 1

# The peer of `none`: fio with the same requests, in turn, as the disk drifts. Each run of ours is divided by the mean of fio's runs
# before and after it. Shown: the median, and the two runs between which the true median is with 95 %. Processor time
# is that of the processes.
ours() { # requests per second, ns of processor time for a request
    "$tool" --file "$file" --scheduler none --runtime "${fio_seconds}s" --profile-time 300ms --json "$dir/one.json" \
        --tenant a:rw=randread,bs=4k,depth=32 >/dev/null 2>&1 || return 1
    jq -r '.without | "\(.requests / .seconds) \(.cpu_ns / .requests)"' "$dir/one.json"
}
fios() {
    fio --name=peer --filename="$file" --rw=randread --bs=4k --iodepth=32 --ioengine=io_uring --direct=1 --fixedbufs \
        --registerfiles --time_based --runtime="$fio_seconds" --output-format=json >"$dir/fio.json" 2>/dev/null || return 1
    jq -r '.jobs[0] | "\(.read.iops) \((.usr_cpu + .sys_cpu) * 1e7 / .read.iops)"' "$dir/fio.json"
}
if [[ $parts == *" none "* ]] && command -v fio >/dev/null; then
    fios >"$dir/turns" || exit 1
    for ((i = 0; i < pairs; i++)); do { ours && fios; } >>"$dir/turns" || exit 1; done
    ratios() { awk -v c="$1" '{x[NR] = $c} END {for (i = 2; i < NR; i += 2) print 2 * x[i] / (x[i - 1] + x[i + 1])}' "$dir/turns" | sort -g; }
    spread() { ratios "$1" | awk '{x[NR] = $1} END {k = int(NR / 2 - 0.98 * sqrt(NR)); if (k < 1) k = 1
        print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2, x[k], x[NR + 1 - k]}'; }
    for what in iops cpu; do
        read -r middle low high <<<"$(spread $([ $what = iops ] && echo 1 || echo 2))"
        printf '%-18s %10.4f none/fio (%s, median of %d runs of %s s; 95 %%: %.3f to %.3f)\n' "none_vs_fio_$what" "$middle" \
            "$([ $what = iops ] && echo 'requests per second' || echo 'processor time per request')" "$pairs" "$fio_seconds" "$low" "$high"
        for value in ratio:$middle low:$low high:$high; do
            printf '{"bench":"uring_files","case":"none","metric":"%s_%s_vs_fio","value":%.6g,"unit":"none/fio"}\n' $what "${value%%:*}" "${value#*:}"
        done >>"$json"
    done
fi
[[ $parts == *" known_device "* ]] || exit 0

# A device of known speed. If the first kind does not have the known speed, the simulated one takes its place.
metric() { # METRIC VALUE UNIT
    printf '%-18s %10.4f %s\n' "$1" "$2" "$3"
    printf '{"bench":"uring_files","case":"known_device","metric":"%s","value":%.6g,"unit":"%s"}\n' "$1" "$2" "$3" >>"$json"
}
known=
for kind in throttle fuse; do
    if known_device "$kind" "$dir"; then
        demo_on_device "$dir/known.json" "$known_seconds" --compare --flight >"$dir/known.out" 2>&1
        [ -s "$dir/known.json" ] || { cat "$dir/known.out"; exit 1; }
        if device_is_known "$dir/known.json"; then known=$kind; break; fi
        echo "known_device: $kind: requests take longer than three times depth / rate without QoS; not used"
    else
        echo "known_device: $kind: $device_why"
    fi
    close_device
done
if [ -n "$known" ]; then
    echo "known_device: 12,000 requests/s and 300 MiB/s, by $known$([ "$known" = throttle ] || echo ' (simulated: bench/kernel/device.c)')"
    metric busy "$(busy "$dir/known.json" with)" "of the device"
    metric busy_none "$(busy "$dir/known.json" without)" "of the device"
    metric reservation_least "$(reservation_least "$dir/known.json")" "of the reservation"
fi
