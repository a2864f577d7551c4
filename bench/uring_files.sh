#!/usr/bin/env bash
# What htb.h costs in front of a real device, and `none` beside fio.   usage: bench/uring_files.sh [--quick]
# Case overhead: random 4 KiB reads at depth 32, and no limit is reached. Slices without the scheduler, with it, and
# without it again (the A/A control) take turns. Writes build/bench/uring_files.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
tool=build/examples/uring_files
out=build/bench
json=$out/uring_files.jsonl
slices=60 slice=1s fio_seconds=3 size=2G
if [ "${1:-}" = --quick ]; then
    slices=42 slice=200ms fio_seconds=1 size=1G
    echo "quick: $slices slices of $slice instead of 60 of 1 s, so the noise is larger"
fi
[ -x "$tool" ] || make -s "$tool" >/dev/null || exit 1
mkdir -p "$out"
dir=$(mktemp -d "$out/uring_files-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
file=$dir/file

echo "# bench uring_files: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), kernel $(uname -r), file system" \
    "$(df --output=fstype "$out" | tail -1)"
"$tool" --file "$file" --size "$size" --keep --overhead "$slices" --slice "$slice" --json "$json" \
    --tenant a:rw=randread,bs=4k,depth=32,reserve=20M,limit=100G || exit 1

# The peer of `none`: fio with the same requests. Both take turns.
if command -v fio >/dev/null; then
    ours=() peers=()
    for _ in 1 2 3; do
        "$tool" --file "$file" --scheduler none --runtime "${fio_seconds}s" --profile-time 300ms --json "$dir/one.json" \
            --tenant a:rw=randread,bs=4k,depth=32 >/dev/null 2>&1 || exit 1
        ours+=("$(awk -F': ' '/"requests":/ {r = $2} /"seconds":/ {s = $2} END {print r / s}' "$dir/one.json")")
        peers+=("$(fio --name=peer --filename="$file" --rw=randread --bs=4k --iodepth=32 --ioengine=io_uring --direct=1 \
            --fixedbufs --registerfiles --time_based --runtime="$fio_seconds" --output-format=terse 2>/dev/null | cut -d';' -f8)")
    done
    middle() { printf '%s\n' "$@" | sort -g | sed -n 2p; }
    ratio=$(awk "BEGIN {print $(middle "${ours[@]}") / $(middle "${peers[@]}")}")
    printf '%-18s %10.4f none/fio (requests per second, medians of 3 runs of %s s in turn)\n' none_vs_fio "$ratio" "$fio_seconds"
    printf '{"bench":"uring_files","case":"none","metric":"iops_ratio_vs_fio","value":%s,"unit":"none/fio"}\n' "$ratio" >>"$json"
fi
