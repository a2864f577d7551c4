#!/usr/bin/env bash
# proves: tokenpool_shm with real processes: reservations are met beside a bare run, the monitor's books are the clients'
# to the token, a client and a monitor killed with SIGKILL stop nobody else, the dead client's share is handed out again,
# nothing is left in /dev/shm
set -eu
. "$(dirname "$0")/../lib.sh"
tool=build/examples/tokenpool_shm
out=build/real_tokenpool_shm
mkdir -p "$out"
segments() { find /dev/shm -name 'qoskit-tokenpool-*' | sort; } # other programs have theirs
before=$(segments)

run() { # NAME OPTION...
    local name=$1
    shift
    judged "$out/$name.txt" timeout 60 "$tool" --derate 0.4 --json "$out/$name.json" "$@"
}

run all --periods 6 --period 300ms
run killed --periods 6 --period 300ms --table 64M --kill-client 1 --kill-at 2
grep -q 'killed client 1' "$out/killed.txt"
run takeover --periods 6 --period 300ms --table 64M --kill-monitor 3
grep -q 'another takes over' "$out/takeover.txt"
run ordered --periods 4 --period 300ms --table 64M --ordered
# The verdict itself: clients whose reservation's tokens got lost lack them, which is no slow machine.
mkdir -p "$out/planted" && cp ./*.h "$out/planted"
sed -i 's/client->held = qos_sat_sub(client->allowance, spent);/client->held = qos_sat_sub(client->allowance \/ 2, spent);/' "$out/planted/tokenpool.h"
# shellcheck disable=SC2046
gcc -std=gnu11 -O1 $(says examples/tokenpool_shm/main.c flags) -I"$out/planted" -I. -Iexamples/common \
    -o "$out/broken" examples/tokenpool_shm/*.c examples/common/*.c $(says examples/tokenpool_shm/main.c links) -lm
rc=0
timeout 60 "$out/broken" --derate 0.9 --periods 4 --period 300ms --table 64M --reserve 60,20,10,9 >"$out/broken.txt" 2>&1 || rc=$?
cat "$out/broken.txt"
[ $rc = 1 ] && ! grep -q 'reservations missed 0 times' "$out/broken.txt" || { echo "lost tokens were not noticed"; exit 1; }
if "$tool" --clients 17 >/dev/null 2>&1 || "$tool" --reserve x >/dev/null 2>&1; then
    echo "wrong options were accepted"
    exit 1
fi
refused() { # WORD OPTION...: an error that says so, at once
    local word=$1 said
    shift
    said=$(timeout 5 "$tool" "$@" 2>&1) && { echo "$*: accepted"; exit 1; }
    case $said in *"$word"*) ;; *) echo "$*: unclear: $said"; exit 1 ;; esac
}
refused "/proc/nope" --json /proc/nope
refused "clients are 0 to 3" --kill-client 99
refused "periods are 1 to 10" --kill-client 1 --kill-at 11
# The supervisor is killed: its monitor and its clients end with it, and nothing is left.
"$tool" --periods 60 --period 300ms --table 64M >/dev/null 2>&1 &
supervisor=$!
sleep 2
children=$(pgrep -P "$supervisor" | xargs)
[ "$(echo "$children" | wc -w)" -eq 5 ] || { echo "not five children: $children"; kill "$supervisor"; exit 1; }
kill -9 "$supervisor"
wait "$supervisor" 2>/dev/null || true
sleep 0.5
for p in $children; do
    [ ! -d "/proc/$p" ] || grep -q '^State:.Z' "/proc/$p/status" || { echo "process $p outlives its supervisor"; kill -9 "$p"; exit 1; }
done
[ "$before" = "$(segments)" ] || { echo "left in /dev/shm: $(segments)"; exit 1; }
finish
