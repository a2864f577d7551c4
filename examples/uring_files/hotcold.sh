#!/usr/bin/env bash
# Two tenants of equal weight read one file through the page cache: "hot" a part that stays in memory, "cold" all of
# it, from the disk: the paper's SSD and disk. Proportional sharing gives both as many requests, so hot pays for cold;
# reward gives both as much time, so hot keeps what its hits earn; a reservation for cold still holds.
# usage: examples/uring_files/hotcold.sh OUTDIR [SECONDS]     (from the repository root; 768 MiB on OUTDIR's file system)
set -eu
out=$1 seconds=${2:-2}
tool=build/examples/uring_files
[ -x "$tool" ] || make -s "$tool"
mkdir -p "$out"
file=$out/hotcold.file
trap 'rm -f "$file"' EXIT
dd if=/dev/zero of="$file" bs=1M count=768 conv=fsync status=none

# Cold again: out of the page cache, but for the first 32 MiB.
run() { # NAME SCHEDULER COLD'S-TERMS [OPTIONS]
    local name=$1 scheduler=$2 terms=$3
    shift 3
    dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    head -c 32M "$file" >/dev/null
    "$tool" --file "$file" --direct no --scheduler "$scheduler" --dispatch-depth 1 --runtime "${seconds}s" \
        --profile-time 300ms --tenant hot:bs=4k,depth=4,area=32M --tenant "cold:bs=4k,depth=4$terms" \
        --json "$out/$name.json" "$@" >"$out/$name.log" 2>&1
}
rate() { jq ".with.tenants[$2].bytes_per_s" "$out/$1.json"; }

run ps tags-ps ""
run reward tags ""
# 70 % of what the profile gives cold alone: more than the half of the time that its weight entitles it to.
reserved() {
    status=0
    run reserved tags ",reserve=70%" --judge || status=$?
}
reserved
[ "$status" = 0 ] || reserved # once more, with a new profile
echo "$status" >"$out/status"
reserve=$(jq '.tenants[1].reserve_bytes_per_s' "$out/reserved.json")

printf '%-38s %14s %14s\n' "MB/s (4 KiB reads, equal weights)" "hot" "cold"
for row in "ps:proportional sharing" "reward:reward" "reserved:reward, cold reserves"; do
    name=${row%%:*}
    printf '%-38s %14.1f %14.1f\n' "${row#*:}" "$(rate "$name" 0 | awk '{print $1 / 1e6}')" "$(rate "$name" 1 | awk '{print $1 / 1e6}')"
done
awk -v r="$reserve" 'BEGIN {printf "(cold reserves %.1f MB/s)\n", r / 1e6}'

{
    echo "policy hot cold"
    echo "\"proportional sharing\" $(rate ps 0) $(rate ps 1)"
    echo "reward $(rate reward 0) $(rate reward 1)"
    echo "\"reward, cold reserves\" $(rate reserved 0) $(rate reserved 1)"
} >"$out/hotcold.dat"
gnuplot <<GP
set terminal svg size 760,420 font 'sans,13' background 'white'
set output '$out/tags_hotcold.svg'
set title 'two tenants of equal weight, buffered 4 KiB reads, one request at the device'
set style data histograms; set style fill solid 0.8 border -1; set boxwidth 0.9
set logscale y; set yrange [1:*]; set ylabel 'MB/s'; set grid y; set key top left
$(awk -v r="$reserve" 'BEGIN {printf "set label \"reserved %.0f\" at 2.2,%g; set arrow from 1.6,%g to 2.6,%g nohead dt 2\n", r / 1e6, r / 1e6 * 0.75, r / 1e6, r / 1e6}')
plot '$out/hotcold.dat' using (\$2/1e6):xtic(1) title 'hot (page cache)', '' using (\$3/1e6) title 'cold (disk)'
GP
