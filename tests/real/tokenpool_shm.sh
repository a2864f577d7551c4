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

run all --periods 10 --period 300ms
run killed --periods 8 --period 300ms --table 64M --kill-client 1 --kill-at 3
grep -q 'killed client 1' "$out/killed.txt"
run takeover --periods 8 --period 300ms --table 64M --kill-monitor 4
grep -q 'another takes over' "$out/takeover.txt"
run ordered --periods 6 --period 300ms --table 64M --ordered
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
[ "$before" = "$(segments)" ] || { echo "left in /dev/shm: $(segments)"; exit 1; }
finish
