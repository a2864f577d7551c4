#!/usr/bin/env bash
# proves: an existing storage server with htb.h in its path: stock clients (nbdcopy, qemu-img) read and write through nbdkit,
# no byte is changed, limits hold in every window of the scheduler's own log, the reservation holds while both write,
# and wrong parameters are refused with a message.
set -u
. "$(dirname "$0")/../lib.sh"
filter=$PWD/build/examples/nbdkit-qoskit-filter.so
for tool in nbdkit nbdcopy nbdinfo qemu-img; do
    command -v $tool >/dev/null || { echo "$tool is missing: see packages.txt"; exit 1; }
done
[ -f "$filter" ] || { echo "$filter was not built"; exit 1; }
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
mib=1048576 megabytes=64
head -c $((megabytes * mib)) /dev/urandom >"$d/data"
mkdir "$d/disks"
truncate -s $((megabytes * mib)) "$d/disks/gold.img" "$d/disks/bulk.img" "$d/disks/other.img"

serve() { # PARAMETER... -- COMMAND: nbdkit on a socket of its own, ends with the command
    local parameters=()
    while [ "$1" != -- ]; do parameters+=("$1"); shift; done
    timeout 60 nbdkit -U - --exit-with-parent --filter="$filter" file dir="$d/disks" "${parameters[@]}" --run "$2"
}
fail() { echo "$*"; exit 1; }

# Two tenants write at the same time; the root has 80 MiB/s.
serve qos-rate=80M qos-class=gold.img,reserve=50M,limit=60M qos-class=bulk.img,limit=70M,weight=3 qos-log="$d/log" -- "
    nbdcopy '$d/data' \"nbd+unix:///gold.img?socket=\$unixsocket\" & a=\$!
    nbdcopy '$d/data' \"nbd+unix:///bulk.img?socket=\$unixsocket\" & b=\$!
    wait \$a && wait \$b" || fail "nbdcopy through the filter failed"
cmp "$d/data" "$d/disks/gold.img" && cmp "$d/data" "$d/disks/bulk.img" || fail "bytes were changed"

# The log: ns, export, tokens granted so far. Window by window: limit * time + burst (10 ms) + one request (256 KiB).
awk -v limit_gold=$((60 * mib)) -v limit_bulk=$((70 * mib)) -v root=$((80 * mib)) -v reserve=$((50 * mib)) '
    $1 == "submitted" { counted = $2 > 0 && $2 == $4 + $6 && $6 == 0; next }
    { ns[$2, ++n[$2]] = $1; got[$2, n[$2]] = $3; sum[$1] += $3 }
    END {
        for (i = 1; i <= n["gold.img"]; i++)
            for (j = i + 1; j <= n["gold.img"]; j++) {
                s = (ns["gold.img", j] - ns["gold.img", i]) / 1e9
                gold = got["gold.img", j] - got["gold.img", i]
                bulk = got["bulk.img", j] - got["bulk.img", i]
                if (gold > limit_gold * (s + 0.01) + 262144) bad = bad " gold over its limit in " s " s;"
                if (bulk > limit_bulk * (s + 0.01) + 262144) bad = bad " bulk over its limit in " s " s;"
                if (gold + bulk > root * (s + 0.01) + (limit_gold + limit_bulk) * 0.01 + 524288) bad = bad " root overdrawn;"
                windows++
                # Eligible: both had demand, and the root was spent. Then gold has its reservation.
                if (s > 0.5 && got["gold.img", j] < 60 * 1048576 && got["bulk.img", j] < 60 * 1048576 && gold + bulk >= 0.98 * root * s) {
                    eligible++
                    if (gold < 0.98 * reserve * s - 524288) bad = bad " gold got " gold / s " B/s of its reservation;"
                }
            }
        print windows " windows, " eligible + 0 " of them eligible for the reservation"
        if (!counted) bad = bad " submitted is not completed;"
        if (windows < 20) bad = bad " too few windows;"
        if (bad != "") { print substr(bad, 1, 400); exit 1 }
        if (eligible < 1) print "reservation: inconclusive: device (it did not spend the rate of the root)"
    }' "$d/log" || fail "the log shows a broken promise"

# Another stock client; an export without a class is best effort; zeroing, trimming and flushing pass too.
serve qos-rate=200M qos-class=gold.img,reserve=50M qos-log="$d/log2" -- "
    qemu-img convert -n -f raw -O raw '$d/data' \"nbd+unix:///other.img?socket=\$unixsocket\" &&
    qemu-img compare -f raw -F raw '$d/data' \"nbd+unix:///other.img?socket=\$unixsocket\" &&
    nbdinfo \"nbd+unix:///other.img?socket=\$unixsocket\" >/dev/null" || fail "qemu-img through the filter failed"
grep -q '^submitted \([0-9]*\) completed \1 failed 0$' "$d/log2" || fail "counters do not add up: $(tail -1 "$d/log2")"
awk '$2 == "-" { last = $3 } END { exit !(last >= 64 * 1048576) }' "$d/log2" || fail "best effort was not charged"

# Zeroing is charged its bytes; with qos-zero=request it is not.
for how in bytes request; do
    serve qos-rate=400M qos-class=gold.img,limit=300M qos-burst=50 qos-zero=$how qos-log="$d/log3" -- "
        qemu-io -f raw -c 'write -z 0 16M' \"nbd+unix:///gold.img?socket=\$unixsocket\" >/dev/null" || fail "zeroing failed"
    zeroed=$(awk '$2 == "gold.img" { last = $3 } END { print last + 0 }' "$d/log3")
    if [ $how = bytes ]; then [ "$zeroed" -ge $((16 * mib)) ] || fail "16 MiB of zeroes cost $zeroed"
    else [ "$zeroed" -lt $mib ] || fail "with qos-zero=request zeroes cost $zeroed"; fi
done

refused() { # PARAMETERS MESSAGE
    serve $1 -- true 2>"$d/err" && fail "accepted: $1"
    grep -q "$2" "$d/err" || fail "$1: the message does not say \"$2\": $(cat "$d/err")"
}
refused "qos-rate=0" "bytes per second"
refused "qos-class=gold.img,reserve=1M" "qos-rate=BYTES_PER_SECOND is needed"
refused "qos-rate=10M qos-class=gold.img,reserve=11M" "bytes per second are left to reserve"
refused "qos-rate=10M qos-class=gold.img,reserv=1M" "write NAME,reserve=20M,limit=60M,weight=2"
refused "qos-rate=10M qos-class=gold.img qos-class=gold.img,limit=5M" "has a class already"
refused "qos-rate=10M qos-class=,limit=5M" "names no export"
refused "qos-rate=10M qos-class=gold.img,reserve=5M,limit=4M" "limit_per_s: give at least rate_per_s"
refused "qos-rate=10M qos-burst=0" "milliseconds, 1 to 10000"
refused "qos-rate=10M qos-zero=no" "bytes or request"
echo "nbdkit: all held"
finish
