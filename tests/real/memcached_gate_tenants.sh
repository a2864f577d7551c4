#!/usr/bin/env bash
# proves: no byte of a reply reaches another tenant of examples/memcached_gate, and each tenant gets what memcached itself would
# reply: 10^6 replies to random requests of two tenants (binary keys, quiet modes, all flags of meta commands, values that look
# like replies, errors, clients that leave in the middle), beside a memcached without a gate; the fault of version 0.2, planted,
# is found
#
# QOS_LONG=1: 10^8 replies. SEED=n, REPLIES=n. MEMCACHED=PROGRAM OTHER_WORDS=1: another version of memcached.
# needs: loopback
set -u
. "$(dirname "$0")/../lib.sh"
gate=$PWD/build/examples/memcached_gate
[ -x "$gate" ] || make -s build/examples/memcached_gate || exit 1
d=$(mktemp -d "$PWD/build/memcached_tenants-XXXXXX") || exit 1
failed=0 pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$d/tenants" tests/real/peers/memcached_tenants.c || exit 1
user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
base=$((21000 + RANDOM % 8000)) # below those of clients
begin() { # PORT COMMAND...
    "${@:2}" >>"$d/out" 2>>"$d/err" </dev/null &
    pid=$!
    pids+=($pid)
    within_s 60 listens "$1" || { bad "nothing listens at $1"; cat "$d/err"; exit 1; }
}
# Memory for all keys: what two memcacheds evict differs.
tenants() { # GATE REPLIES SEED OPTION...: two tenants of a gate, in front of fresh memcacheds; its status; the last line in $said
    local status mine=${#pids[@]}
    begin $base "${MEMCACHED:-memcached}" "${user[@]}" -l 127.0.0.1 -p $base -U 0 -c 2000 -m 16384
    begin $((base + 1)) "${MEMCACHED:-memcached}" "${user[@]}" -l 127.0.0.1 -p $((base + 1)) -U 0 -c 2000 -m 16384
    begin $((base + 2)) "$1" --listen 127.0.0.1:$((base + 2)) --memcached 127.0.0.1:$base --bucket name=a,key=a: --bucket name=b,key=b: "${@:4}"
    timeout 20000 "$d/tenants" $((base + 2)) $((base + 1)) "$2" "$3" >"$d/said" 2>"$d/differ"
    status=$?
    said=$(tail -n 1 "$d/said")
    kill -9 "${pids[@]:mine}"
    wait "${pids[@]:mine}" 2>/dev/null
    pids=("${pids[@]:0:mine}")
    base=$((base + 3))
    return $status
}
many=1000000
[ -z "${QOS_LONG:-}" ] || many=100000000
tenants "$gate" "${REPLIES:-$many}" "${SEED:-$RANDOM}"
status=$?
echo "$said"
head -n 4 "$d/differ" | cut -c1-300
expect "no foreign byte, and the same replies as memcached's" [ $status = 0 ]
expect "the gate had nothing to complain of" [ -z "$(cat "$d/err")" ]
head -n 3 "$d/err"

# ---- planted faults
plant() { # NAME [FILE BUG]...: sets planted
    local here=$d/$1 name=$1 objects=() o
    mkdir "$here"
    cp examples/memcached_gate/*.[ch] "$here/"
    shift
    while [ $# -gt 0 ]; do
        tests/build/plant.pl apply "tests/plants/memcached_gate/$1.txt" "$2" "$here" 2>"$here/log" || { bad "$name: $(cat "$here/log")"; return 1; }
        shift 2
    done
    for o in protocol backend client; do
        gcc -std=gnu11 -O1 -w -D_GNU_SOURCE -DQOS_DECLARE_ONLY -I. -Iexamples/common -Iexamples/memcached_gate -c -o "$here/$o.o" "$here/$o.c" || { bad "$name does not compile"; return 1; }
        objects+=("$here/$o.o")
    done
    for o in build/examples/objects/memcached_gate/*.o; do [ -e "$here/${o##*/}" ] || objects+=("$o"); done
    gcc -o "$here/gate" "${objects[@]}" build/examples/objects/common/*.o build/bodies/native_*.o -lzmq -pthread -lm || { bad "$name does not link"; return 1; }
    planted=$here/gate
}
tests/build/plant.pl list tests/plants/memcached_gate/*.txt >"$d/list" || exit 1
while IFS=$'\t' read -r source name test _; do
    [ "$test" = real/memcached_gate_tenants ] || continue # others are no fault alone
    plant "$name" "$source" "$name" || continue
    tenants "$planted" 50000 1
    status=$?
    expect "$name is found: $said" [ $status = 1 ]
done <"$d/list"
plant version_0.2 protocol key_not_judged backend one_connection backend reply_not_judged && {
    tenants "$planted" 1000000 1
    status=$?
    expect "the fault of version 0.2 is found" [ $status = 1 ]
    expect "and foreign bytes are seen: $said" grep -qE ' [1-9][0-9]* foreign' "$d/said"
}
finish $failed
