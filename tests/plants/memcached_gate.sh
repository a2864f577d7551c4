#!/usr/bin/env bash
# proves: every bug of tests/plants/memcached_gate/*.txt, planted into a copy of the gate, is caught by the section of
# real/memcached_gate, or by the replies of real/memcached_gate_tenants, that it names; so is the fault of version 0.2, with bytes of
# another tenant. Without a bug they pass (these tests themselves show that)
# needs: loopback
# usage: tests/plants/memcached_gate.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d "$PWD/build/memcached_gate_plants-XXXXXX") || exit 1
trap 'rm -rf "$d"' EXIT
failed=0
make -s build/examples/memcached_gate || exit 1 # its objects
build_with() { # only what differs is compiled
    local objects=() o
    for o in examples/memcached_gate/*.c; do
        o=$(basename "$o" .c)
        if cmp -s "$1/$o.c" "examples/memcached_gate/$o.c"; then
            objects+=("build/examples/objects/memcached_gate/$o.o")
            continue
        fi
        gcc -std=gnu11 -O1 -w -D_GNU_SOURCE -DQOS_DECLARE_ONLY -I. -Iexamples/common -Iexamples/memcached_gate -c -o "$1/$o.o" "$1/$o.c" || return 1
        objects+=("$1/$o.o")
    done
    # shellcheck disable=SC2046
    gcc -o "$1/gate" "${objects[@]}" build/examples/objects/common/*.o $(ls build/examples/objects/cluster_agent/*.o | grep -v /main.o) build/bodies/native_*.o -lzmq -lcurl -ljson-c -pthread -lm
}
test_with() {
    local BASE=$((21000 + planted * 100)) # ports of its own: a taken one would look like a bug that was found
    export BASE
    case ${3:-replies} in
    replies) GATE=$1/gate REPLIES=50000 SEED=1 timeout --kill-after=5 250 "tests/$2.sh" ;;
    *) GATE=$1/gate timeout --kill-after=5 250 "tests/$2.sh" "$3" ;;
    esac
}
find_planted memcached_gate 4 "${1:-}"

# ---- several bugs together
if [ -z "${1:-}" ] || [ "$1" = version_0.2 ]; then
    old=$d/version_0.2
    mkdir "$old"
    cp examples/memcached_gate/*.[ch] "$old/"
    for bug in "_0.2/backend.txt one_connection" "_0.2/backend.txt reply_not_judged" "/protocol.txt key_not_judged"; do
        tests/build/plant.pl apply "tests/plants/memcached_gate${bug% *}" "${bug#* }" "$old" || bad "version 0.2: $bug"
    done
    build_with "$old" || bad "version 0.2 does not compile"
    GATE=$old/gate REPLIES=1000000 SEED=1 tests/real/memcached_gate_tenants.sh >"$old/log" 2>&1
    expect "the fault of version 0.2 is found" [ $? = 1 ]
    expect "and foreign bytes are seen: $(head -n 1 "$old/log")" grep -qE ' [1-9][0-9]* foreign' "$old/log"
fi
finish $failed
