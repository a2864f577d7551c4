#!/usr/bin/env bash
# proves: no byte of a reply reaches another tenant of examples/memcached_gate, and each tenant gets what memcached itself would
# reply: 10^6 replies to random requests of two tenants (binary keys, quiet modes, all flags of meta commands, values that look
# like replies, errors, clients that leave in the middle), beside a memcached without a gate. tests/plants/memcached_gate.sh shows that it
# finds the fault of version 0.2
#
# QOS_LONG=1: 10^8 replies. SEED=n, REPLIES=n. GATE=FILE: another gate. MEMCACHED=PROGRAM OTHER_WORDS=1: another version of memcached.
# needs: loopback
set -u
. "$(dirname "$0")/../lib.sh"
gate=${GATE:-$PWD/build/examples/memcached_gate}
[ -x "$gate" ] || make -s build/examples/memcached_gate || exit 1
d=$(work_dir memcached_tenants) || exit 1
failed=0 pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$d/tenants" tests/real/peers/memcached_tenants.c || exit 1
user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
base=${BASE:-$((21000 + RANDOM % 8000))} # below those of clients
begin() { # PORT COMMAND...
    "${@:2}" >>"$d/out" 2>>"$d/err" </dev/null &
    pid=$!
    pids+=($pid)
    within_s 60 listens "$1" || { bad "nothing listens at $1"; cat "$d/err"; exit 1; }
}
# Memory for all keys: what two memcacheds evict differs.
for k in 0 1; do begin $((base + k)) "${MEMCACHED:-memcached}" "${user[@]}" -l 127.0.0.1 -p $((base + k)) -U 0 -c 2000 -m 16384; done
begin $((base + 2)) "$gate" --listen 127.0.0.1:$((base + 2)) --memcached 127.0.0.1:$base --bucket name=a,key=a: --bucket name=b,key=b:
many=1000000
[ -z "${QOS_LONG:-}" ] || many=100000000
timeout 40000 "$d/tenants" $((base + 2)) $((base + 1)) "${REPLIES:-$many}" "${SEED:-$RANDOM}" 2>"$d/differ"
status=$?
head -n 4 "$d/differ" | cut -c1-300
expect "no foreign byte, and the same replies as memcached's" [ $status = 0 ]
expect "the gate had nothing to complain of" [ -z "$(cat "$d/err")" ]
head -n 3 "$d/err"
finish $failed
