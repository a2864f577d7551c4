#!/usr/bin/env bash
# proves: tokenpool_shm with real processes: reservations are met beside a bare run, the monitor's books are the clients'
# to the token, a client and a monitor killed with SIGKILL stop nobody else, the dead client's share is handed out again,
# nothing is left in /dev/shm
set -eu
tool=build/examples/tokenpool_shm
out=build/real_tokenpool_shm
mkdir -p "$out"
before=$(ls /dev/shm | sort)

# run NAME options...: a missed reservation is tried again once (other load on the machine), the books never
run() {
    local name=$1 try
    shift
    for try in 1 2; do
        if timeout 60 "$tool" --derate 0.4 --json "$out/$name.json" "$@" >"$out/$name.txt" 2>&1; then
            cat "$out/$name.txt"
            return 0
        fi
        cat "$out/$name.txt"
        grep -q 'unequal in 0 periods, bound exceeded in 0' "$out/$name.txt" || { echo "the books are wrong"; exit 1; }
        echo "-- try $try did not meet everything"
    done
    exit 1
}

run all --periods 10 --period 300ms
run killed --periods 8 --period 300ms --table 64M --kill-client 1 --kill-at 3
grep -q 'killed client 1' "$out/killed.txt"
run takeover --periods 8 --period 300ms --table 64M --kill-monitor 4
grep -q 'another takes over' "$out/takeover.txt"
run ordered --periods 6 --period 300ms --table 64M --ordered
if "$tool" --clients 17 >/dev/null 2>&1 || "$tool" --reserve x >/dev/null 2>&1; then
    echo "wrong options were accepted"
    exit 1
fi
[ "$before" = "$(ls /dev/shm | sort)" ] || { echo "left in /dev/shm:"; ls /dev/shm; exit 1; }
