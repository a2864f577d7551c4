#!/usr/bin/env bash
# proves: tokenpool_verbs over a real RDMA stack (soft-RoCE in a guest): a data node and four clients, every reservation
# is met, the pool's counts equal the clients' to the token, one client is killed in the middle of a period. A hostile
# client with all keys that it has seen, and some guessed ones, reaches only what a client needs, and finds a data node
# with one protection domain. If a data node is killed while its clients wait, run bare or use tokens, they report it
# and end within 2 s
set -eu
. "$(dirname "$0")/../lib.sh"
[ -x build/examples/tokenpool_verbs ] || { echo "build/examples/tokenpool_verbs was not built"; exit 1; }
# Loopback is not the address of an RDMA device, on any machine: a clear message and a clean end, on both sides.
for side in --serve "--id 0"; do
    # shellcheck disable=SC2086  # an option and its value
    said=$(timeout 60 build/examples/tokenpool_verbs $side --address 127.0.0.1 --table 64k 2>&1) && { echo "no error"; exit 1; }
    case $said in *RDMA*) ;; *) echo "unclear: $said"; exit 1 ;; esac
done
payload=$(mktemp -d)
trap 'rm -rf "$payload"' EXIT
cp build/examples/tokenpool_verbs "$payload/"
# Planted: one protection domain for all clients.
mkdir "$payload/planted"
sed 's/(p->pd = ibv_alloc_pd(p->id->verbs))/(p->pd = node.peer[LOOPBACK].pd ? node.peer[LOOPBACK].pd : ibv_alloc_pd(p->id->verbs))/' \
    examples/tokenpool_verbs/main.c >"$payload/planted/main.c"
! cmp -s examples/tokenpool_verbs/main.c "$payload/planted/main.c" || { echo "the plant does not apply"; exit 1; }
built() {
    clang -std=gnu11 -O0 -pthread -I. -Iexamples/common -o "$payload/$1" "$2" build/examples/objects/common/*.o \
        -lrdmacm -libverbs -lm
}
built one_domain "$payload/planted/main.c" & compiling=$!
built hostile tests/vm/hostile/main.c
wait $compiling
rm -r "$payload/planted"
cat >"$payload/run.sh" <<'RUN'
ibv_devinfo -v | grep -E 'hca_id|atomic_cap|max_qp_rd_atom|active_mtu|state:'
node() { # LOG PORT PROGRAM OPTION...: a data node that listens; sets $node
    log=$1 port=$2
    program=$3
    shift 3
    $program --serve --address 10.9.0.1 --port $port --table 16M --batch 50 --derate 0.4 "$@" >$log 2>&1 &
    node=$!
    until grep -q loopback $log; do sleep 0.05; kill -0 $node || { cat $log; exit 1; }; done
    sleep 0.2
}
client() { exec ./tokenpool_verbs --address 10.9.0.1 --port $1 --id $2; }
since() { awk -v b=$1 '{printf "%.2f", $1 - b}' /proc/uptime; }
now() { cut -d' ' -f1 /proc/uptime; }

node node.log 7471 ./tokenpool_verbs --periods 5 --period 700ms --bare 1s --kill-client 2 --kill-at 3 --announce 3
pids=
for i in 0 1 2 3; do
    client 7471 $i &
    pids="$pids $!"
    [ $i = 2 ] && victim=$!
done
until grep -q 'period 3 begins' node.log; do sleep 0.05; kill -0 $node || { cat node.log; exit 4; }; done
sleep 0.3
kill -9 $victim && echo "killed client 2 in the middle of period 3"
wait $node; status=$?
cat node.log
[ $status = 3 ] && exit 3 # the machine was too slow for a verdict
[ $status = 0 ] || exit 5
for p in $pids; do
    [ $p = $victim ] && continue
    wait $p || { echo "a client failed"; exit 6; }
done

# While client 2 waits for the others, a hostile client acts as clients 0 and 1, and tries more.
node node2.log 7472 ./tokenpool_verbs --clients 3 --reserve 30,20
client 7472 2 >gone2.log 2>&1 & waiting=$!
until grep -q 'client 2 is here' node2.log; do sleep 0.05; kill -0 $waiting || { cat gone2.log; exit 1; }; done
./hostile 10.9.0.1 7472 30 || exit 7
./tokenpool_verbs --address 10.9.0.1 --port 7472 --id 3 2>&1 | grep -q 'refused: clients are 0 to 2' || exit 8
./tokenpool_verbs --address 10.9.0.1 --port 7472 --id 2 2>&1 | grep -q 'refused: client 2 is here already' || exit 8
kill -9 $node
begin=$(now)
wait $waiting && exit 9
echo "while it waits: the client ended $(since $begin) s after its data node"
awk -v t=$(since $begin) 'BEGIN {exit t > 2}' || exit 10
begin=$(now)
(client 7472 0) 2>gone.log && exit 9
echo "and one that comes too late after $(since $begin) s: $(cat gone.log)"
awk -v t=$(since $begin) 'BEGIN {exit t > 2}' || exit 10
node planted.log 7473 ./one_domain --clients 3
./hostile 10.9.0.1 7473 0 && { echo "one protection domain was not found"; exit 11; }
kill -9 $node

killed() { # LOG PORT: kills the data node $node of clients 0 and 1, which must report it and end within 2 s
    kill -9 $node
    begin=$(now)
    wait $first && exit 9
    wait $second && exit 9
    echo "$1: the clients ended $(since $begin) s after their data node: $(cat gone0.log gone1.log)"
    awk -v t=$(since $begin) 'BEGIN {exit t > 2}' || exit 10
    [ $(grep -lE 'does not answer any more|data node is gone' gone0.log gone1.log | wc -l) = 2 ] || exit 12
}
both() {
    client $1 0 >gone0.log 2>&1 & first=$!
    client $1 1 >gone1.log 2>&1 & second=$!
}
node bare.log 7474 ./tokenpool_verbs --clients 2 --reserve 30,20 --bare 60s
both 7474
until [ $(grep -c 'is here' bare.log) = 2 ]; do sleep 0.05; kill -0 $node || { cat bare.log; exit 1; }; done
sleep 0.3
killed "in the bare run" 7474
node tokens.log 7475 ./tokenpool_verbs --clients 2 --reserve 30,20 --periods 60 --period 700ms --bare 500ms --announce 2
both 7475
until grep -q 'period 2 begins' tokens.log; do sleep 0.05; kill -0 $node || { cat tokens.log; exit 4; }; done
sleep 0.2
killed "with tokens" 7475
RUN
judged "$payload/out" tests/vm/guest "$payload"
finish
