#!/usr/bin/env bash
# Two tenants of equal weight read through the page cache: "hot" a file that stays in memory, "cold" one that is kept
# out of it, so from the disk: like the paper's SSD and disk. Proportional sharing gives both the same number of
# requests, so hot pays for cold. Reward gives both the same time, so hot keeps the gain of its hits. A reservation for
# cold still holds, and so does a limit for hot. The reservation is judged over four times SECONDS, second by second,
# where cold kept demand and the device gave what admission counted on. If these seconds are too few, or the
# reservation is broken, it runs once more with a new profile.
# usage: examples/uring_files/hotcold.sh OUTDIR [SECONDS]     (from the repository root; 800 MiB on OUTDIR's file system)
set -eu
out=$1 seconds=${2:-2}
tool=build/examples/uring_files
[ -x "$tool" ] || make -s "$tool"
mkdir -p "$out"
file=$out/hotcold.file hot=$out/hot.file cooler=
trap '[ -z "$cooler" ] || kill "$cooler" 2>/dev/null || true; rm -f "$file" "$hot"' EXIT
dd if=/dev/zero of="$file" bs=1M count=768 conv=fsync status=none
dd if=/dev/zero of="$hot" bs=1M count=32 conv=fsync status=none

# Drops cold's file from the page cache. Once is not enough: what the profile and the run read would be hot next time.
cool() { dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none; }
run() { # NAME SCHEDULER SECONDS HOT'S-TERMS COLD'S-TERMS [OPTIONS]
    local name=$1 scheduler=$2 runtime=$3 hot_terms=$4 cold_terms=$5 status=0
    shift 5
    rm -f "$out/$name.json"
    cat "$hot" >/dev/null
    while cool && sleep 0.4; do :; done &
    cooler=$!
    "$tool" --file "$file" --direct no --scheduler "$scheduler" --dispatch-depth 1 --runtime "${runtime}s" \
        --profile-time 300ms --tenant "hot:file=$hot,bs=4k,depth=4$hot_terms" --tenant "cold:bs=4k,depth=4$cold_terms" \
        --json "$out/$name.json" "$@" >"$out/$name.log" 2>&1 || status=$?
    kill "$cooler" 2>/dev/null || true
    wait "$cooler" 2>/dev/null || true
    cooler=
    return $status
}
# The share of the device's time that hot had.
share() { jq ".with.tenants | 100 * .[0].served_ns / ((map(.served_ns) | add) + 1)" "$out/$1.json"; }
rate() { jq ".with.tenants[$2].bytes_per_s" "$out/$1.json"; }

# NAME SECONDS HOT'S-TERMS COLD'S-TERMS [OPTIONS]: judged; the status is kept.
judged() {
    status=0
    run "$1" tags "${@:2}" --judge || status=$?
    echo "$status" >"$out/$1.status"
}

run ps tags-ps "$seconds" "" ""
run reward tags "$seconds" "" ""
# 75 % of what the profile gives cold alone: more than the half of the time that its weight entitles it to.
judged reserved $((4 * seconds)) "" ",reserve=75%"
[ "$status" = 0 ] || judged reserved $((4 * seconds)) "" ",reserve=75%"
judged limited "$seconds" ",limit=20%" "" --log "$out/limited.csv"
for name in reserved limited; do
    [ -s "$out/$name.json" ] || { cat "$out/$name.log" >&2; exit "$(cat "$out/$name.status")"; }
done
reserve=$(jq '.tenants[1].reserve_bytes_per_s' "$out/reserved.json")

printf '%-38s %14s %14s %22s\n' "MB/s (4 KiB reads, equal weights)" "hot" "cold" "time of hot"
for row in "ps:proportional sharing" "reward:reward" "reserved:reward, cold reserves" "limited:reward, hot is limited"; do
    name=${row%%:*}
    printf '%-38s %14.1f %14.1f %20.1f %%\n' "${row#*:}" "$(rate "$name" 0 | awk '{print $1 / 1e6}')" \
        "$(rate "$name" 1 | awk '{print $1 / 1e6}')" "$(share "$name")"
done
awk -v r="$reserve" -v l="$(jq '.tenants[0].limit_bytes_per_s' "$out/limited.json")" \
    'BEGIN {printf "(cold reserves %.1f MB/s; hot may have %.1f MB/s)\n", r / 1e6, l / 1e6}'
grep -h '^tenant .*\(reservation\|window\)' "$out/reserved.log" "$out/limited.log" || true

limit=$(jq '.tenants[0].limit_bytes_per_s' "$out/limited.json")
mega() { awk -v v="$1" 'BEGIN {printf "%.0f", v / 1e6}'; }
{
    echo "\"proportional\" $(rate ps 0) $(rate ps 1)"
    echo "\"reward\" $(rate reward 0) $(rate reward 1)"
    echo "\"reward;\ncold at\nleast $(mega "$reserve")\" $(rate reserved 0) $(rate reserved 1)"
    echo "\"reward;\nhot at\nmost $(mega "$limit")\" $(rate limited 0) $(rate limited 1)"
} >"$out/hotcold.dat"
line() { awk -v v="$1" -v x="$2" 'BEGIN {print "set arrow from " x - .45 "," v / 1e6 " to " x + .45 "," v / 1e6 " nohead front dt 2"}'; } # BYTES/S GROUP
gnuplot <<GP
load 'bench/figures/style.gp'
set output '$out/tags_hotcold.svg'
set title 'Two tenants of equal weight on one file, one request at the device'
set style data histograms; set style fill solid 0.85 noborder; set boxwidth 0.9
set key outside top center horizontal; set bmargin 4
set logscale y; set yrange [0.1:*]; set ylabel 'MB/s'
$(line "$reserve" 2)
$(line "$limit" 3)
plot '$out/hotcold.dat' using (\$2/1e6):xtic(1) title 'hot (page cache)', '' using (\$3/1e6) title 'cold (disk)'
GP
