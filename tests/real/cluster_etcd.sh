#!/usr/bin/env bash
# proves: etcd says who owns a period (pshift_cluster --owner etcd:). `etcdctl get` shows it. A controller that is killed is
# replaced. While etcd is down nothing is served under a limit, and again when it is back. After a restore from an old backup
# the cluster goes on when the number was moved up, as documented. No bucket is ever served above its limit.
# needs: loopback
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/pshift_cluster
[ -x "$tool" ] || make -s build/examples/pshift_cluster || exit 1
work=$(mktemp -d "$PWD/build/cluster_etcd-XXXXXX") || exit 1
failed=0 base=$((21000 + RANDOM % 8000)) nodes=2
declare -A pid
trap 'kill -9 "${pid[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
url=http://127.0.0.1:$base data=$work/data
store() { ETCDCTL_API=3 timeout 10 etcdctl --endpoints "$url" "$@"; }
begin_etcd() {
    etcd --name one --data-dir "$data" --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls "http://127.0.0.1:$((base + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((base + 1))" \
        --initial-cluster "one=http://127.0.0.1:$((base + 1))" >>"$work/etcd.out" 2>&1 </dev/null &
    pid[etcd]=$!
    within_s 30 store endpoint health >>"$work/etcd.out" 2>&1
}
kill_now() {
    kill -9 "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null
    unset "pid[$1]"
}
limit=210
common=(--node-count $nodes --controllers "127.0.0.1:$((base + 2)),127.0.0.1:$((base + 3))" --capacity 300 --period 1s
    --intervals 5 --objects 200 --workers 2 --keys "$work/keys" --bucket reserve=0.5,limit=0.7,on=1-2 --bucket reserve=0.3,limit=0.7,on=1-2)
start() { # c1, n2
    local role=node number=${1#?} more=(--journal "$work/$1.journal" --port "$((base + 10))")
    [ "${1%%[0-9]*}" = n ] || { role=controller; more=(--owner "etcd:$url"); }
    "$tool" $role --number "$number" "${common[@]}" "${more[@]}" >>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
    pid[$1]=$!
}
begin_etcd || { bad "etcd does not start"; tail -5 "$work/etcd.out"; exit 1; }
"$tool" keys "${common[@]}" >"$work/keys.out" || exit 1
for p in c1 c2 n1 n2; do start $p; done
settled() { cat "$work"/c?.out | grep -q 'active; 0 of 2 nodes silent, 0 awaited'; }
within_s 60 settled || { bad "the cluster does not settle"; tail -n 3 "$work"/*.out "$work"/*.err; exit 1; }
served() { awk '$2 > 0 {n += $3} END {print n + 0}' "$work"/n?.journal; }
served_more() { [ "$(served)" -gt $(($1 + 200)) ]; }
number() { store get --print-value-only qos/owner | cut -d' ' -f1; }
expect "etcdctl shows the owner in plain text" grep -qE '^[0-9]+ [0-9a-f]{16} [0-9a-f]{16}$' <<<"$(store get --print-value-only qos/owner)"
expect "and the cluster serves" within_s 30 served_more "$(served)"
store snapshot save "$work/backup" >>"$work/etcd.out" 2>&1 || bad "no backup"
old=$(number)

active=$(grep -H ': active; ' "$work"/c?.out | sed 's,.*/\(c[12]\).out:.*period \([0-9]*\): .*,\2 \1,' | sort -n | tail -1 | cut -d' ' -f2)
taken=$(cat "$work"/c?.out | grep -c 'takes over')
took_over() { [ "$(cat "$work"/c?.out | grep -c 'takes over')" -gt "$taken" ]; }
kill_now "$active"
expect "another controller takes over from one that is killed" within_s 30 took_over
start "$active"
expect "and the cluster serves again" within_s 30 served_more "$(served)"

kill_now etcd
sleep 2.5 # the owned period ends, and what was picked in it is written
before=$(served)
sleep 2
expect "without etcd nothing is served under a limit" [ "$(served)" = "$before" ]
begin_etcd || bad "etcd does not start again"
expect "with etcd the cluster serves again" within_s 30 served_more "$before"

# An old backup: the procedure is that of examples/README.md.
last=$(number)
kill_now etcd
data=$work/restored
ETCDCTL_API=3 etcdctl snapshot restore "$work/backup" --name one --initial-cluster "one=http://127.0.0.1:$((base + 1))" \
    --initial-advertise-peer-urls "http://127.0.0.1:$((base + 1))" --data-dir "$data" >>"$work/etcd.out" 2>&1 || bad "no restore"
sleep 2.5
before=$(served)
begin_etcd || bad "the restored etcd does not start"
store put qos/owner "$((last + 1000)) 0 0" >>"$work/etcd.out" || bad "the number is not moved"
expect "after a restore and with the number moved up the cluster serves again" within_s 30 served_more "$before"
expect "the backup was old ($old, $last)" [ "$old" -lt "$last" ]
expect "and no period is used again ($(number))" [ "$(number)" -gt $((last + 1000)) ]

for k in c1 c2 n1 n2; do kill -TERM "${pid[$k]}"; done
for k in c1 c2 n1 n2; do
    wait "${pid[$k]}"
    case $? in 0 | 130) ;; *) bad "$k ends with status $?: $(tail -2 "$work/$k.err")" ;; esac
    unset "pid[$k]"
done
kill_now etcd
expect "nobody had anything to complain of" [ -z "$(cat "$work"/[cn]?.err)" ]
awk -v l=$limit '$2 > 0 {got[$1, $2] += $3} END {for (i in got) {n++; if (got[i] > l) over++} print n + 0 " pairs, " over + 0 " above the limit"}' \
    "$work"/n?.journal | tee "$work/verdict"
expect "no bucket was served above its limit" grep -q ' 0 above the limit$' "$work/verdict"
expect "there were pairs to judge" [ "$(cut -d' ' -f1 "$work/verdict")" -ge 4 ] # four times 200 requests were waited for
finish $failed
