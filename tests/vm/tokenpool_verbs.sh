#!/usr/bin/env bash
# proves: tokenpool_verbs over a real RDMA stack (soft-RoCE in a guest): a data node and four clients, ten periods, every
# reservation met, the pool's books equal to the clients' to the token, one client killed in the middle of a period, a
# wrong key refused, a second client of the same id refused, clients that end with a message soon after the data node was
# killed
set -eu
. "$(dirname "$0")/../lib.sh"
[ -x build/examples/tokenpool_verbs ] || { echo "build/examples/tokenpool_verbs was not built"; exit 1; }
# Loopback is no RDMA device's address, on any machine: a clear message and a clean end, on both sides.
for side in --serve "--id 0"; do
    # shellcheck disable=SC2086  # an option and its value
    said=$(timeout 10 build/examples/tokenpool_verbs $side --address 127.0.0.1 --table 64k 2>&1) && { echo "no error"; exit 1; }
    case $said in *RDMA*) ;; *) echo "unclear: $said"; exit 1 ;; esac
done
payload=$(mktemp -d)
trap 'rm -rf "$payload"' EXIT
cp build/examples/tokenpool_verbs "$payload/"
cat >"$payload/run.sh" <<'RUN'
ibv_devinfo -v | grep -E 'hca_id|atomic_cap|max_qp_rd_atom|active_mtu|state:'
./tokenpool_verbs --serve --address 10.9.0.1 --periods 10 --period 700ms --bare 1s --table 16M --batch 50 --derate 0.4 \
    --kill-client 2 --kill-at 5 >node.log 2>&1 &
node=$!
until grep -q loopback node.log; do sleep 0.1; kill -0 $node || { cat node.log; exit 1; }; done
sleep 0.3
./tokenpool_verbs --address 10.9.0.1 --id 99 --wrong-key >key.log 2>&1 && { echo "a wrong key was accepted"; exit 2; }
cat key.log
grep -q 'refused: wrong key' key.log || exit 8
pids=
for i in 0 1 2 3; do
    ./tokenpool_verbs --address 10.9.0.1 --id $i &
    pids="$pids $!"
    [ $i = 2 ] && victim=$!
done
until grep -q 'period 5 begins' node.log; do sleep 0.05; kill -0 $node || { cat node.log; exit 4; }; done
sleep 0.3
kill -9 $victim && echo "killed client 2 in the middle of period 5"
wait $node; status=$?
cat node.log
[ $status = 3 ] && exit 3 # the machine did too little for a verdict
[ $status = 0 ] || exit 5
for p in $pids; do
    [ $p = $victim ] && continue
    wait $p || { echo "a client failed"; exit 6; }
done
# A data node that is killed: its clients say so and end.
./tokenpool_verbs --serve --address 10.9.0.1 --port 7472 --clients 2 --reserve 30,20 --periods 60 --period 700ms --bare 1s \
    --table 16M --batch 50 --derate 0.4 --kill-client 1 --kill-at 2 >node2.log 2>&1 &
node=$!
until grep -q loopback node2.log; do sleep 0.1; kill -0 $node || { cat node2.log; exit 1; }; done
sleep 0.3
./tokenpool_verbs --address 10.9.0.1 --port 7472 --id 0 >gone0.log 2>&1 & first=$!
sleep 0.3
./tokenpool_verbs --address 10.9.0.1 --port 7472 --id 0 >twice.log 2>&1 && { echo "two clients of one id"; exit 9; }
./tokenpool_verbs --address 10.9.0.1 --port 7472 --id 1 >gone1.log 2>&1 & second=$!
until grep -q 'period 2 begins' node2.log; do sleep 0.05; kill -0 $node || { cat node2.log; exit 4; }; done
kill -9 $node
begin=$(cut -d. -f1 /proc/uptime)
wait $first && { echo "a client without a data node succeeded"; exit 10; }
wait $second && { echo "a client without a data node succeeded"; exit 10; }
took=$(($(cut -d. -f1 /proc/uptime) - begin))
cat gone0.log gone1.log
grep -qE 'does not answer any more|data node is gone' gone0.log || exit 11
grep -qE 'does not answer any more|data node is gone' gone1.log || exit 11
echo "the clients ended $took s after their data node"
[ $took -le 6 ] || exit 12
RUN
judged "$payload/out" tests/vm/guest "$payload"
finish
