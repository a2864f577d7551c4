#!/usr/bin/env bash
# proves: nginx as a node of a cluster: examples/cluster_agent/try.sh starts etcd, a controller, two gates and two nginx; one tenant
# is limited over all four, and `etcdctl put` changes it while wrk runs. A token is a request or a block of bytes; a reservation
# holds in a zone beside a tenant of a hundred times its weight. Workers, an agent and the controller are killed, nginx is
# reloaded: at the clients no window of a period has more than two limits, and who has no grant serves nothing under a limit.
# needs: loopback
# usage: tests/real/cluster_nginx.sh [limit|bytes]: that section only. MODULE=FILE is another module
set -u
. "$(dirname "$0")/../lib.sh"
only=${1:-all}
client=$PWD/tests/real/peers/gate_client.pl
for t in build/examples/pshift_cluster build/examples/memcached_gate build/examples/cluster_agent build/examples/ngx_http_qos_module.so; do
    [ -e "$t" ] || make -s "$t" || exit 1
done
d=$(work_dir cluster_nginx) || exit 1
failed=0 base=$((21000 + RANDOM % 8000))
declare -A pid
trap 'kill -9 "${pid[@]}" 2>/dev/null; kill -TERM $cluster 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
examples/cluster_agent/try.sh "$d" $base >"$d/said" 2>&1 </dev/null &
cluster=$!
begun() { grep -q 'until Ctrl-C' "$d/said"; }
within_s 60 begun || { bad "the cluster does not begin"; tail -n 3 "$d/said" "$d"/log/*; exit 1; }
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://127.0.0.1:$base
each=2 ports=($((base + 21)) $((base + 22)) web:$((base + 31)) web:$((base + 32)))
web() { echo "http://127.0.0.1:$((base + 30 + $1))"; }
in_force() { etcdctl --command-timeout=30s get --print-value-only "qos/status/tenant/$1" | grep -q -- "^in force: $2\$"; }
# The controller puts it in force within a second, or, on a busy machine, is so much later.
contract() { # TENANT TEXT [LIMIT PER PERIOD]: and when, for the judge
    local begun written late
    begun=$(date +%s%3N)
    etcdctl --command-timeout=30s put "qos/config/tenant/$1" "$2" >>"$d/log/etcd" || bad "the contract of $1 is not written"
    written=$(date +%s%3N)
    within_s 30 in_force "$1" "$2" || bad "the contract of $1 is not in force"
    late=$(($(date +%s%3N) - written - 1000))
    echo "$begun ${3:-0} $((written + (late > 0 ? late : 0)))" >>"$d/$1.limits"
    expect_time "the contract of $1 is in force within 2 s" [ $late -le 1000 ]
}
of() { sed -n "s/^$1 //p" "$d/pids" | tail -n 1; } # NAME: its process
served() { awk -v p="${1:-}" '$3 == 1 && (p == "" || p == $2)' "$d/gold.seen" 2>/dev/null | wc -l; }
more() { [ "$(served "${2:-}")" -gt $(($1 + 10)) ]; } # BEFORE [PORT]
serves() { within_s 30 more "$(served "${1:-}")" "${1:-}"; } # [PORT]
stopped() { # [PORT]: after the period that was begun
    local before
    sleep 1.2
    before=$(served "${1:-}")
    sleep 0.6
    [ "$(served "${1:-}")" = "$before" ]
}
stops() { # WHAT [PORT]
    if stopped "${@:2}"; then ok "$1"
    elif within_s 10 stopped "${@:2}"; then expect_time "$1 after the period" false
    else bad "$1"; fi
}
# PERCENT OF THE LIMIT: prints requests, windows above two limits, the fullest
judge() { awk -v percent="$1" -v each=$((4 * each)) -f tests/real/peers/windows.awk "$d/gold.limits" "$d/gold.seen"; }

limit() {
    expect "a tenant without a contract is not served" [ "$(curl -s -m 2 -o "$d/answer" -w '%{http_code}' -H 'X-Tenant: none' "$(web 1)/small")" = 000 ]
    contract gold reserve=100,limit=400 200
    nice -n -5 "$client" 300 "$d/gold.seen" gold:1 $each "${ports[@]}" & pid[gold]=$!
    for p in "${ports[@]}"; do expect "gold is served at $p" serves "${p#web:}"; done
    [ "$only" = all ] || sleep 3
}
kills() {
    local before wrk at begun
    # while wrk runs: what wrk and the client get together, in its seconds and the periods that they touch
    contract gold limit=200 100
    sleep 1
    before=$(served) at=$(date +%s%3N)
    watch_mark
    wrk -t1 -c8 -d4 -H 'X-Tenant: gold' "$(web 1)/small" >"$d/wrk" &
    wrk=$!
    sleep 2
    begun=$(($(date +%s%3N) - at))
    contract gold limit=800 400
    wait $wrk
    at=$(($(date +%s%3N) - at)) before=$(($(served) - before))
    wrk=$(sed -n 's/^ *\([0-9]*\) requests in.*/\1/p' "$d/wrk")
    echo "in $at ms wrk was served $wrk requests, the other client $before; its limit went from 200 to 800 a second"
    expect "while wrk runs etcdctl raises the limit, and it holds for all clients together" \
        [ $((wrk + before)) -le $((200 * begun / 1000 + 800 * (at - begun) / 1000 + 2 * 400 + 4 * each + 8)) ]
    expect_time "wrk was served" [ "${wrk:-0}" -gt 100 ]
    expect_time "and more than the old limit gives" [ $((wrk + before)) -gt $((200 * (at + 1000) / 1000)) ]

    kill -9 $(pgrep -P "$(of n1)")
    expect "after all workers of an nginx were killed it serves" serves $((base + 31))
    kill -HUP "$(of n2)"
    expect "after a reload it serves" serves $((base + 32))
    kill -9 "$(of a1)"
    stops "without an agent nothing is served under a limit" $((base + 31))
    expect "while the others are" serves $((base + 32))
    build/examples/cluster_agent --name n1 --cluster "$ETCDCTL_ENDPOINTS" --keys "$d/keys" --tokens "$d/tokens1" >>"$d/log/a1" 2>&1 &
    pid[a1]=$!
    expect "with an agent it is" serves $((base + 31))
    expect "of two agents with one file the second is refused" grep -q 'another cluster_agent has it' <<<"$(timeout 60 \
        build/examples/cluster_agent --name n1 --cluster "$ETCDCTL_ENDPOINTS" --keys "$d/keys" --tokens "$d/tokens1" 2>&1)"
    # A process of the server writes into a tenant's word more tokens than it was given, and none, for some periods.
    contract idle limit=100 50
    foreign() {
        perl -e 'open my $f, "+<:raw", $ARGV[0] or die; my ($id, $all); read $f, $all, 64 + 4096 * 64;
            { use integer; $id = 0xcbf29ce484222325; $id = ($id ^ ord) * 0x100000001b3 for split //, "idle"; }
            for (0 .. 4095) { my ($i, $word) = unpack "q<Q<", substr $all, 64 + 64 * $_, 16; next if $i != $id;
                my $at = 72 + 64 * $_; $word &= ~0xffffff;
                for (1 .. 3000) { seek $f, $at, 0; syswrite $f, pack "Q<", $word + ($_ % 2) * 1000000; select undef, undef, undef, 0.001 }
                exit 0 } exit 1' "$d/tokens1"
    }
    expect "a process of the server writes more tokens than there were" within_s 30 foreign # when its agent knows the tenant, too
    sleep 1
    expect "the agent goes on" kill -0 "${pid[a1]}"
    etcdctl --command-timeout=30s put qos/config/controller/c9 "address=127.0.0.1:port,key=$(cat "$d/keys/c1.public")" >>"$d/log/etcd"
    expect "a controller's address that is none is told" within_s 30 grep -q 'controller/c9: 127.0.0.1:port is no address' "$d/log/a1"
    expect "and the agent goes on" kill -0 "${pid[a1]}"
    etcdctl --command-timeout=30s del qos/config/controller/c9 >>"$d/log/etcd"
    expect "with too few open files one says so" grep -q 'too few: ulimit -n' <<<"$( (ulimit -n 12; timeout 60 build/examples/cluster_agent \
        --name n1 --cluster "$ETCDCTL_ENDPOINTS" --keys "$d/keys" --tokens "$d/tokens9") 2>&1)"
    timeout -k 5 2 build/examples/cluster_agent --name n1 --cluster http://127.0.0.1:1 --keys "$d/keys" --tokens "$d/tokens9" 2> >(:) &
    unread=$!
    timeout -k 5 2 build/examples/cluster_agent --name n1 --cluster http://127.0.0.1:1 --keys "$d/keys" --tokens "$d/tokens8" 2>&-
    expect "what an agent says without stderr is not written into its file" [ "$(head -c 8 "$d/tokens8")" = Qtoken01 ]
    wait $unread
    expect "an agent goes on though nobody reads what it says" [ $? = 124 ]
    mkfifo "$d/fifo"
    expect "a login that is a pipe does not hold an agent up" grep -q 'fifo: this is no file' <<<"$(timeout 20 build/examples/cluster_agent \
        --name n1 --cluster http://127.0.0.1:1 --keys "$d/keys" --tokens "$d/tokens8" --etcd-login "$d/fifo" 2>&1)"
    expect "keys are made in no other folder" grep -q -e '--name: ' <<<"$(build/examples/pshift_cluster keys --name ../x --keys "$d/keys" 2>&1)"
    if has mounts; then
        expect "an agent whose disk is full says so" grep -q 'No space left on device: make room' <<<"$(timeout 60 unshare -m bash -c \
            'mkdir "$1/full" && mount -t tmpfs -o size=64k tmpfs "$1/full" && exec build/examples/cluster_agent --tokens "$1/full/t" --cluster http://127.0.0.1:1 --name n9' - "$d" 2>&1)"
    fi
    (while :; do curl -s -m 5 -o "$d/answer" -w '%{http_code}\n' -H 'X-Tenant: bulk' "$(web 1)/small" >>"$d/bulk.seen"; sleep 0.05; done) & pid[bulk]=$!
    within_s 30 grep -qs 200 "$d/bulk.seen"
    kill -9 "$(of c1)"
    stops "without a controller nothing is served under a limit"
    : >"$d/bulk.seen"
    expect "but who has none is served" within_s 30 grep -q 200 "$d/bulk.seen"
    kill "${pid[bulk]}"
    wait "${pid[bulk]}" 2>/dev/null
    unset "pid[bulk]"
    build/examples/pshift_cluster controller --name c1 --cluster "$ETCDCTL_ENDPOINTS" --keys "$d/keys" >>"$d/log/c1" 2>&1 &
    pid[c1]=$!
    expect "with one it is" serves $((base + 31))
    contract gold limit=40 20
    sleep 1
    watch_mark
    wrk -t1 -c4 -d2 -H 'X-Tenant: gold' "$(web 2)/now/small" >"$d/wrk"
    expect_time "over=429 refuses what would have to wait for a token" [ "$(sed -n 's/.*Non-2xx or 3xx responses: //p' "$d/wrk" | grep . || echo 0)" -gt 100 ]
    etcdctl del qos/config/tenant/gold >>"$d/log/etcd"
    echo "$(date +%s%3N) 0 $(date +%s%3N)" >>"$d/gold.limits"
    stops "a tenant that is removed is not served"
    contract gold limit=400 200
    expect "and is, when it is there again" serves $((base + 32))
}
bytes() {
    local got at
    watch_mark # of what is judged by time, not of all before it
    at=$(date +%s%3N)
    for k in 1 2; do
        curl -s -m 3 -o "$d/large$k" -H 'X-Tenant: files' "$(web $k)/large" & pid[large$k]=$!
    done
    wait "${pid[large1]}" "${pid[large2]}"
    got=$(($(stat -c %s "$d/large1") + $(stat -c %s "$d/large2")))
    at=$(($(date +%s%3N) - at))
    echo "a limit of 8 MiB a second, in blocks of 64 KiB: $got bytes in $at ms at two servers"
    # the two periods at its ends, and a block of each worker
    expect "a limit of bytes holds over both servers" [ "$got" -le $(((at + 1000) * 8388608 / 1000 + 4 * 65536)) ]
    expect_time "and is used" [ "$got" -ge $((3 * 8388608 * 8 / 10)) ]
    for t in bulk files; do
        contract $t "$([ $t = bulk ] || echo reserve=40M,)token=64k"
    done
    for k in 1 2 3 4; do
        (while curl -s -o "$d/bulk$k" -H 'X-Tenant: bulk' "$(web 1)/large"; do :; done) & pid[bulk$k]=$!
    done
    sleep 1
    watch_mark
    wrk -t1 -c2 -d4 -H 'X-Tenant: files' "$(web 1)/large" >"$d/wrk"
    for k in 1 2 3 4; do kill "${pid[bulk$k]}"; wait "${pid[bulk$k]}" 2>/dev/null; done
    got=$(sed -n 's/^Transfer.*: *\([0-9]*\)[.0-9]*MB$/\1/p' "$d/wrk")
    echo "a reservation of 40 MiB a second beside a hundred times the weight: ${got:-0} MiB a second of 400"
    expect_time "a reservation holds in the zone" [ "${got:-0}" -ge 36 ]
}
[ "$only" = bytes ] || limit
[ "$only" != all ] || kills
[ "$only" = limit ] || bytes
if [ "$only" != bytes ]; then
    kill "${pid[gold]}"
    wait "${pid[gold]}" 2>/dev/null
    read -r requests over worst < <(judge 100)
    echo "$requests requests, $over windows with more than two limits; the fullest has $worst"
    expect "no window of a period has more than two limits" [ "$over" = 0 ]
    expect "there was something to judge" [ "$requests" -ge 100 ]
    read -r requests over worst < <(judge 30)
    expect "the judge finds windows above when the limit was a third" [ "$over" -gt 0 ]
fi
said=$(grep -hE 'alert|emerg|more tokens' "$d"/log/* | grep -v 'exited on signal 9' | head -n 3)
expect "nobody had anything to complain of" [ -z "$said" ]
echo "$said"
finish $failed
