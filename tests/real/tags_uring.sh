#!/usr/bin/env bash
# proves: reward scheduling on a real file (tags.h in uring_files). Of two tenants of equal weight each gets half of the
# device's time under reward and half of the requests under proportional share; a reservation that needs more than half of
# the time is met, judged over the eligible seconds (at least 80 % of eight); a limit holds in every window of the log.
# needs: io_uring
#
# Each run is judged by what it measured itself: each tenant's part of the device's time. No other run is compared.
# Inconclusive: reads from the disk cost this machine no more than reads from memory, or 5 ms and more (by fio); one stall took
# much of a run; or the device gave too little for the reservation.
set -u
. "$(dirname "$0")/../lib.sh"
work=$(work_dir tags_uring) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 unsure=
# jq's names for the parts of a run: hot, cold, and the share of the device's time that cold had.
parts='(.with.tenants[0]) as $hot | (.with.tenants[1]) as $cold | ($hot.served_ns + $cold.served_ns) as $time | '
holds() { jq -e "$parts $2" "$work/$1.json" >/dev/null; } # RUN EXPRESSION
check() { # WHAT RUN EXPRESSION
    if holds "$2" "$3"; then ok "$1"; else bad "$1 ($2: $3)"; fi
}
check_time() { expect_time "$1 ($2)" holds "$2" "$3"; }
# Like check_time, but only if this run can tell: WHAT RUN CAN-TELL EXPRESSION
check_if() {
    if holds "$2" "$3"; then check_time "$1" "$2" "$4"; else late "$1 (not so: $3)"; fi
}
watch_disk "$work"
# One read at a time, as in the runs below.
witness() {
    local disk memory
    disk=$(disk_iops "$watched_file" 4k --iodepth=1)
    cat "$watched_file" >/dev/null
    memory=$(disk_iops "$watched_file" 4k --iodepth=1 --direct=0 --invalidate=0 --ioengine=psync)
    if [ "$disk" -lt 200 ]; then echo "a read takes the disk $((1000 / (disk + 1))) ms, by fio: each is a pause here"
    elif [ "$memory" -lt $((4 * disk)) ]; then echo "by fio the disk does $disk reads a second, the memory $memory"
    else return 1; fi
}
timeout -k 5 400 examples/uring_files/hotcold.sh "$work" >"$work/table" 2>"$work/err" || {
    status=$?
    cat "$work"/*.log "$work/err" | tail -30
    grep -q 'is not admitted' "$work"/*.log && inconclusive "the profile did not leave room for the reservation, twice"
    bad "hotcold.sh ends with status $status"
    exit 1
}
cat "$work/table"
jq -rn '[inputs | {run: input_filename | split("/")[-1], tenants: [.with.tenants[] |
    {name, completed, served_ms: (.served_ns / 1e6), longest_ms: (.served_max_ns / 1e6)}]}][] | tojson' "$work"/*.json

for run in ps reward reserved limited; do
    check "$run: submitted = completed + failed, nothing failed" "$run" \
        '[$hot, $cold | .submitted == .completed + .failed and .failed == 0 and .completed > 0] | all'
done
# There is always one request at the device, and the next one goes when it is done, so nothing is wasted. (No promise
# limits a tenant's gain from that, so nothing is compared.)
for run in ps reward reserved limited; do
    check_time "$run: the device is busy while somebody waits (90 % of the run)" "$run" '$time > 0.9e9 * .with.seconds'
done
check_time "proportional share: as many requests for both" ps '$hot.completed / $cold.completed | . > 0.95 and . < 1.05'
check_if "reward: half of the time for both" reward \
    '$hot.served_max_ns + $cold.served_max_ns < 0.05 * $time' '$hot.served_ns / $time | . > 0.45 and . < 0.55'
check_if "reward: so hot gets as many more requests as its hits are cheaper" reward \
    '$cold.served_ns / $cold.completed > 3 * $hot.served_ns / $hot.completed and $cold.served_max_ns < 0.05 * $time' \
    '$hot.completed > 2.4 * $cold.completed'

# ---- the limit: kept in every window of the log, and used in full while hot could use it
case $(cat "$work/limited.status") in
0) ok "hot's limit holds in every window of the log, to its burst and one request" ;;
3) ok "hot's limit holds (what the seconds were like does not matter to it)" ;;
*) tail -15 "$work/limited.log"; bad "hot's limit" ;;
esac
# A pause of more than 5 ms in the log (a slow read, another program on the core) may cost hot tokens: its burst is 20 ms.
read -r dispatched paused < <(awk -F, 'NR > 1 && $1 == "with QoS" {
        if ($3 == "dispatch" && $4 == "hot") n += $5
        if (last && $2 - last > 5e6) paused += $2 - last
        last = $2
    } END {printf "%.0f %.0f\n", n, paused}' "$work/limited.csv")
echo "hot dispatched $dispatched bytes under its limit; pauses of more than 5 ms: $((paused / 1000000)) ms in all"
check_if "hot is held at its limit, not below" limited "$paused < 0.5e9 * .with.seconds" \
    "$dispatched > 0.8 * .tenants[0].limit_bytes_per_s * (.with.seconds - $paused / 1e9)"

# ---- the reservation
case $(cat "$work/reserved.status") in
0) ok "cold's reservation holds, judged on the log"
   check "over eight seconds, of which 80 % were eligible" reserved '.judge | .seconds >= 7 and .eligible_seconds >= 0.8 * .seconds'
   # The control: by its weight cold has half of the time.
   check_if "and it took more than the half of the time that its weight gives: it is the reservation that did it" reserved \
       '.tenants[1].reserve_bytes_per_s / 4096 * $cold.served_ns / $cold.completed > 0.52e9' '$cold.served_ns > 0.5 * $time' ;;
3) tail -15 "$work/reserved.log"; late "the device gave too little for the reservation" ;;
*) tail -15 "$work/reserved.log"
   if holds reserved '.judge.log_holds and $cold.served_ns > 0.85 * $time'; then
       late "cold had 85 % of the device's time and missed its reservation: the device gave too little"
   else
       expect_time "cold's reservation, with less than 85 % of the device's time" false
   fi ;;
esac
if grep -q '</svg>' "$work/tags_hotcold.svg"; then ok "the figure is a picture"; else bad "no figure"; fi
finish "$failed"
