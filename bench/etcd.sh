#!/usr/bin/env bash
# How long nobody can own a new period of pshift.h after etcd's leader dies: three members on this machine with etcd's defaults, the
# leader killed again and again; from the kill to the next compare-and-swap that succeeds. Beside it, the same swap while nothing fails.
# From that comes the default k of a struct pshift_owner (pshift.h, chapter "owner"). usage: bench/etcd.sh [--quick]
# Writes build/bench/etcd.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
times=15
[ "${1:-}" != --quick ] || times=3
mkdir -p build/bench
d=$(mktemp -d /dev/shm/qoskit-XXXXXX 2>/dev/null || mktemp -d) base=$((21000 + RANDOM % 8000)) urls=() peers=() pid=()
trap 'kill -9 "${pid[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
for k in 0 1 2; do urls+=("http://127.0.0.1:$((base + k))") peers+=("e$k=http://127.0.0.1:$((base + 10 + k))"); done
all=$(IFS=,; echo "${urls[*]}")
export ETCDCTL_API=3
begin() { # MEMBER
    etcd --name "e$1" --data-dir "$d/e$1" --listen-client-urls "${urls[$1]}" --advertise-client-urls "${urls[$1]}" --listen-peer-urls "${peers[$1]#*=}" \
        --initial-advertise-peer-urls "${peers[$1]#*=}" --initial-cluster "$(IFS=,; echo "${peers[*]}")" >>"$d/log" 2>&1 </dev/null &
    pid[$1]=$!
    disown # no word of its end
}
swap() { # succeeds if the key has any revision: a swap of a single owner
    printf 'mod("owner") > "0"\n\nput owner %s\n\n\n' "$RANDOM" | timeout 2 etcdctl --endpoints "$all" --command-timeout 300ms txn 2>/dev/null | grep -q SUCCESS
}
now() { date +%s%3N; }
until_swapped() { # prints the ms since $1
    for _ in $(seq 400); do swap && { echo $(($(now) - $1)); return; }; done
    echo "etcd does not come back" >&2
    return 1
}
leader() {
    etcdctl --endpoints "$all" endpoint status -w json 2>/dev/null | jq -r '.[] | select(.Status.leader == .Status.header.member_id) | .Endpoint' | sed 's/.*://'
}
for k in 0 1 2; do begin $k; done
for _ in $(seq 100); do etcdctl --endpoints "$all" put owner 0 >/dev/null 2>&1 && break; sleep 0.1; done
for _ in $(seq $times); do
    until_swapped "$(now)" >>"$d/calm" || exit 1
    for _ in $(seq 50); do at=$(leader); [ -z "$at" ] || break; sleep 0.1; done
    [ -n "$at" ] || exit 1
    at=$((at - base)) since=$(now)
    kill -9 "${pid[$at]}"
    until_swapped "$since" >>"$d/killed" || exit 1
    begin $at
    sleep 2
done
paste "$d/calm" "$d/killed" | jq -Rs '[split("\n")[] | select(. != "") | split("\t") | map(tonumber)] as $x | def middle(f): [$x[] | f] | sort | .[length / 2 | floor];
    {case: "etcd, three members on one machine", kills: ($x | length), swap_ms: middle(.[0]), swap_after_kill_ms: middle(.[1]), longest_ms: ([$x[][1]] | max)}' |
    tee build/bench/etcd.jsonl
