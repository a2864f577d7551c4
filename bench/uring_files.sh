#!/usr/bin/env bash
# What htb.h costs in front of a real device, and how much of a device it uses.   usage: bench/uring_files.sh [--quick]
#   overhead      random 4 KiB reads at depth 32; no limit is reached. Slices without the scheduler, with it, and without
#                 it again (the A/A control) take turns.
#   none          uring_files without a scheduler beside fio with the same requests, in turn
#   known_device  the demo's tenants on a device of known speed: the part of it that they use, with htb.h and without
# Writes build/bench/uring_files.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
. bench/kernel/device.bash
tool=build/examples/uring_files
out=build/bench
json=$out/uring_files.jsonl
slices=60 slice=1s fio_seconds=2 pairs=9 known_seconds=10 size=2G
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
"$tool" --file "$file" --size "$size" --keep --overhead "$slices" --slice "$slice" --json "$json" \
    --tenant a:rw=randread,bs=4k,depth=32,reserve=20M,limit=100G || exit 1

# The peer of `none`: fio with the same requests, in pairs, as the disk drifts. Processor time counts the processes' own.
if command -v fio >/dev/null; then
    : >"$dir/pairs"
    for ((i = 0; i < pairs; i++)); do
        "$tool" --file "$file" --scheduler none --runtime "${fio_seconds}s" --profile-time 300ms --json "$dir/one.json" \
            --tenant a:rw=randread,bs=4k,depth=32 >/dev/null 2>&1 || exit 1
        fio --name=peer --filename="$file" --rw=randread --bs=4k --iodepth=32 --ioengine=io_uring --direct=1 --fixedbufs \
            --registerfiles --time_based --runtime="$fio_seconds" --output-format=json >"$dir/fio.json" 2>/dev/null || exit 1
        jq -rn --slurpfile a "$dir/one.json" --slurpfile b "$dir/fio.json" '($a[0].without | [.requests / .seconds, .cpu_ns / .requests]) as $we |
            ($b[0].jobs[0] | [.read.iops, (.usr_cpu + .sys_cpu) * 1e7 / .read.iops]) as $fio |
            "\($we[0] / $fio[0]) \($we[1] / $fio[1])"' >>"$dir/pairs"
    done
    middle() { cut -d' ' -f"$1" "$dir/pairs" | sort -g | sed -n "$(((pairs + 1) / 2))p"; }
    printf '%-18s %10.4f none/fio (requests per second, median of %d pairs of %s s; least %.3f, most %.3f)\n' none_vs_fio \
        "$(middle 1)" "$pairs" "$fio_seconds" "$(cut -d' ' -f1 "$dir/pairs" | sort -g | head -1)" "$(cut -d' ' -f1 "$dir/pairs" | sort -g | tail -1)"
    printf '%-18s %10.4f none/fio (processor time per request, the same pairs)\n' none_cpu_vs_fio "$(middle 2)"
    printf '{"bench":"uring_files","case":"none","metric":"%s","value":%.6g,"unit":"none/fio"}\n' iops_ratio_vs_fio "$(middle 1)" \
        cpu_ratio_vs_fio "$(middle 2)" >>"$json"
fi

# A device of known speed. Where the first kind is not as it should be, the simulated one takes its place.
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
