#!/usr/bin/env bash
# proves: examples/memcached_gate in a cluster on etcd: demand moves between three hosts, the reservation over all of them is met and
# no limit is exceeded, by memcached's own counters, while a gate, a memcached and the active controller (of two) are killed in
# turn under load; clients see errors only from processes that died
# needs: loopback
#
# QOS_LONG=1: each is killed five times.
set -u
. "$(dirname "$0")/../lib.sh"
gate=$PWD/build/examples/memcached_gate controller=$PWD/build/examples/pshift_cluster
for t in "$gate" "$controller"; do [ -x "$t" ] || make -s "build/examples/$(basename "$t")" || exit 1; done
ask="timeout 300 /usr/bin/python3 tests/real/memcached_gate.py"
d=$(work_dir memcached_cluster) && memory=$(memory_dir) || exit 1
failed=0 base=$((21000 + RANDOM % 8000)) # ports below those of clients
declare -A pid
trap 'kill -9 "${pid[@]}" $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$d" "$memory"' EXIT
user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
capacity=5000 reserve=2500 limit=3000 capped=1000 rate=2800
url=http://127.0.0.1:$((base + 4))
store() { ETCDCTL_API=3 timeout 10 etcdctl --endpoints "$url" "$@"; }
start() { # e1 (etcd), m1 (memcached), g1 (gate), c1 (controller)
    local k=${1#?}
    case $1 in
    e*) exec etcd --name e1 --data-dir "$memory/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" --listen-peer-urls "http://127.0.0.1:$((base + 5))" \
        --initial-advertise-peer-urls "http://127.0.0.1:$((base + 5))" --initial-cluster "e1=http://127.0.0.1:$((base + 5))" ;;
    m*) exec memcached "${user[@]}" -l 127.0.0.1 -p $((base + 10 + k)) -U 0 ;;
    # memcached may be slow on a busy machine; that it died is known at once
    g*) exec "$gate" --timeout 20s --listen 127.0.0.1:$((base + 20 + k)) --memcached 127.0.0.1:$((base + 10 + k)) --name "$1" --cluster "$url" --keys "$d/keys" \
        --depth 32 --bucket name=gold,key=gold: --bucket name=capped,key=capped: --bucket name=bulk ;;
    c*) exec "$controller" controller --name "$1" --cluster "$url" --keys "$d/keys" ;;
    esac >>"$d/$1.out" 2>>"$d/$1.err" </dev/null &
    pid[$1]=$!
}
config() { store put "qos/config/$1" "$2" >>"$d/e1.out" || bad "qos/config/$1 is not written"; }
start e1
within_s 30 store endpoint health >>"$d/e1.out" 2>&1 || { bad "etcd does not start"; tail -n 3 "$d"/e1.err; exit 1; }
config period 1s
for k in 1 2; do config controller/c$k "address=127.0.0.1:$((base + k)),key=$("$controller" keys --name c$k --keys "$d/keys")"; done
for k in 1 2 3; do config server/g$k "number=$k,capacity=$capacity,key=$("$controller" keys --name g$k --keys "$d/keys")"; done
config tenant/gold "reserve=$reserve,limit=$limit"
config tenant/capped "limit=$capped"
config tenant/bulk ""
store put qos/owner "$(date +%s) 0 0" >>"$d/e1.out" # so that periods have about the numbers of the seconds
for p in m1 m2 m3 c1 c2 g1 g2 g3; do start $p; done
settled() { cat "$d"/c?.out | grep -q 'active; 0 of 3 nodes silent, 0 awaited'; }
within_s 60 settled || { bad "the cluster does not settle"; tail -n 3 "$d"/*.out "$d"/*.err; exit 1; }
began=$(date +%s)

hosts=() ports=()
for k in 1 2 3; do hosts+=($((base + 10 + k)):$((base + 20 + k))); ports+=($((base + 20 + k))); done
turns=1 gap=3.4
[ -z "${QOS_LONG:-}" ] || turns=5
seconds=$((turns * 13 + 10)) # quiet periods at the end, however late the faults come
$ask flood $seconds "$d/errors1" "${ports[@]}" & load=($!)
$ask wander $seconds "$d/errors2" "$d/sent" $rate "${ports[@]}" & load+=($!)
nice -n -15 $ask watch $seconds "$d/seen" "${hosts[@]}" 2>"$d/watch.err" & load+=($!)
has_begun() { awk '$3 > 0 {n = 1} END {exit !n}' "$d/seen"; }
within_s 60 has_begun || bad "no period is seen"
strike() { # NAME PORT
    local began
    began=$(date +%s)
    kill -9 "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null
    sleep 0.3
    start "$1"
    case $1 in # a busy machine starts it late: until then it is down
    m*) within_s 60 listens $((base + 10 + ${1#m})) || bad "$1 does not listen again" ;;
    g*) within_s 60 listens "$2" || bad "$1 does not listen again" ;;
    esac
    echo "$began $(date +%s) $2 $1" | tee -a "$d/faults"
    sleep $gap
}
: >"$d/faults"
for ((t = 0; t < turns; t++)); do
    strike g$((t % 3 + 1)) $((base + 20 + t % 3 + 1)) 2>/dev/null
    strike m$(((t + 1) % 3 + 1)) $((base + 20 + (t + 1) % 3 + 1)) 2>/dev/null
    strike "$(grep -H ': active; ' "$d"/c?.out | sed 's,.*/\(c[12]\).out:.*period \([0-9]*\): .*,\2 \1,' | sort -n | tail -1 | cut -d' ' -f2)" - 2>/dev/null
done
wait "${load[@]}"
for p in g1 g2 g3 c1 c2; do
    kill -TERM "${pid[$p]}"
    wait "${pid[$p]}"
    expect "$p ends with status 0" [ $? = 0 ]
done
expect "nobody had anything to complain of" [ -z "$(cat "$d"/[gc]?.err)" ]
cat "$d"/[gc]?.err
expect "a controller took over from another" [ "$(cat "$d"/c?.out | grep -c 'takes over')" -ge 2 ]
# Takeovers by period: under limits each costs one.
sed -n 's/.*period \([0-9]*\): takes over$/\1/p' "$d"/c?.out | awk -v began="$began" '$1 > began' >"$d/takeovers"
$ask cluster "$d/seen" "$d/faults" "$d/takeovers" "$d/sent" "$watched" "$d/errors1,$d/errors2" $reserve $limit $capped $rate $capacity
verdict=$?
# A line of seen: a period, and the number counted with it.
seen() { awk -v of="$(cut -d' ' -f"$1" "$d/faults" | sort -n | sed -n "$2")" -v sign="$3" '{p = sign < 0 ? $1 - $2 + 1 : $1} sign * p >= sign * of {n = 1} END {exit !n}' "$d/seen"; }
[ $verdict != 0 ] || { seen 1 1p -1 && seen 2 '$p' 1; } || { echo "on this busy machine the faults were not in the periods that were seen"; verdict=3; }
case $verdict in
0 | 3) ;;
4) expect_time "the reservation is met, and again from the second period after a fault on" false ;;
*) bad "the verdict on the periods" ;;
esac
[ $verdict = 0 ] || tail -n 12 "$d"/c?.out
[ $failed = 0 ] || finish 1
[ $verdict -ne 3 ] || inconclusive "this machine was too busy for the clients"
finish $failed
