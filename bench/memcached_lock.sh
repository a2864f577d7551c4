#!/usr/bin/env bash
# What the one lock of examples/memcached_gate costs: at 1 and 2 threads it is measured, in processor time; for more threads the measured times
# inside and outside are put together anew: threads that each take times from the list, and a lock that serves one after the
# other. A real machine with so many cores has caches to move, too, which this does not show.
# usage: bench/memcached_lock.sh [--quick]
# Writes build/bench/memcached_lock.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/bench json=build/bench/memcached_lock.jsonl time=2s
[ "${1:-}" != --quick ] || time=0.5s
mkdir -p "$out"
make -s build/examples/memcached_gate || exit 1
gcc -std=gnu11 -O2 -I. -Iexamples/common -o "$out/memcached_load" bench/memcached/load.c examples/common/*.c -lm || exit 1
d=$(mktemp -d) pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
gcc -std=gnu11 -O2 -D_GNU_SOURCE -DGATE_LOCK_TIMES=200000 -DQOS_DECLARE_ONLY -I. -Iexamples/common -c -o "$d/buckets.o" examples/memcached_gate/buckets.c || exit 1
objects=()
for o in build/examples/objects/memcached_gate/*.o; do [ "${o##*/}" = buckets.o ] || objects+=("$o"); done
for o in build/examples/objects/cluster_agent/*.o; do [ "${o##*/}" = main.o ] || objects+=("$o"); done
# shellcheck disable=SC2046 # several words
gcc -o "$d/gate" "$d/buckets.o" "${objects[@]}" build/examples/objects/common/*.o build/bodies/native_*.o \
    $(sed -n 's,^// links: ,,p' examples/memcached_gate/main.c) -lm || exit 1
base=$((21000 + RANDOM % 8000)) user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
begin() { # PORT FILE COMMAND...
    "${@:3}" >"$2" 2>&1 </dev/null &
    pids+=($!)
    for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.05; done
    exit 1
}
begin $base "$d/memcached" memcached "${user[@]}" -l 127.0.0.1 -p $base -U 0
for t in 1 2; do
    begin $((base + t)) "$d/times$t" "$d/gate" --listen 127.0.0.1:$((base + t)) --memcached 127.0.0.1:$base --threads $t --bucket name=gold,key=key,reserve=1k --bucket name=bulk
    "$out/memcached_load" --port $((base + t)) --connections 50 --pipeline 16 --time $time >/dev/null || exit 1
    kill "${pids[-1]}"
    wait "${pids[-1]}" 2>/dev/null
done
/usr/bin/python3 - "$d" "$json" <<'END'
import heapq, random, sys
d, out = sys.argv[1], open(sys.argv[2], "w")
def put(case, metric, value, unit):
    out.write('{"bench":"memcached_lock","case":"%s","metric":"%s","value":%.6g,"unit":"%s"}\n' % (case, metric, value, unit))
rows = {t: [tuple(map(int, l.split())) for l in open(f"{d}/times{t}") if l.count(" ") == 3 and l[0].isdigit()] for t in (1, 2)}
for t, r in rows.items():
    granted = max(1, sum(x[3] for x in r))
    inside, wait, outside = sum(x[2] for x in r), sum(x[1] for x in r), sum(x[0] for x in r)
    middle = sorted(x[2] for x in r)[len(r) // 2]
    print(f"{t} thread{'s' * (t > 1)}, measured: {len(r)} turns, {granted / len(r):.1f} grants a turn; the lock is held {inside / granted:.0f} ns a request (median {middle} ns a turn), waited for {wait / granted:.0f} ns a request")
    put(f"threads_{t}", "held", inside / granted, "ns/request")
    put(f"threads_{t}", "waited", wait / granted, "ns/request")
# as many threads as are asked for, none of which ever sleeps: the worst case for the lock
busy = list(rows[2])
rng = random.Random(1)
rng.shuffle(busy)
alone = None
for n in (1, 2, 4, 8, 16, 32):
    threads = [(busy[k % len(busy)][0], k) for k in range(n)]
    heapq.heapify(threads)
    free = waited = granted = last = 0
    for _ in range(40000):
        at, k = heapq.heappop(threads) # in the order in which they ask
        begin = max(at, free)
        away, _, hold, grants = busy[rng.randrange(len(busy))]
        waited += begin - at
        free = last = begin + hold
        granted += grants
        heapq.heappush(threads, (free + away, k))
    rate = granted / last * 1e9
    alone = alone or rate
    print(f"{n:2} threads, simulated: {rate / alone:5.2f} times the requests of one thread; {waited / granted:.0f} ns of waiting a request")
    put(f"simulated_{n}", "of_one_thread", rate / alone, "ratio")
    put(f"simulated_{n}", "waited", waited / granted, "ns/request")
END
