#!/usr/bin/env bash
# The cost of examples/memcached_gate, beside no proxy and beside twemproxy.
# usage: bench/memcached_gate.sh [--quick]
# The same load on each in turn, a tenth of it sets: requests per second, p99, and requests for a second of the proxy's
# processor time (per core): on a shared machine that is the most reliable figure. All are medians of the rounds; a
# ratio is of two slices of one round. Control: the load without a proxy, before and after each round.
# One connection: each request wakes four processes in turn. Between two cores a wake-up costs ten times the work of the
# proxies, and the kernel's placement varies. So this load also runs with all processes on one core, and with the proxy
# on its own core.
# Writes build/bench/memcached_gate.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin
out=build/bench json=build/bench/memcached_gate.jsonl rounds=15 time=0.3s
[ "${1:-}" != --quick ] || { rounds=5 time=0.2s; echo "quick: $rounds rounds of $time"; }
gate=build/examples/memcached_gate
[ -x "$gate" ] || make -s "$gate" >/dev/null || exit 1
mkdir -p "$out"
gcc -std=gnu11 -O2 -I. -Iexamples/common -o "$out/memcached_load" bench/memcached/load.c examples/common/*.c -lm || exit 1
d=$(mktemp -d) || exit 1
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
base=$((21000 + RANDOM % 8000)) # below those of clients
user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
declare -A pid port
begin() { # NAME PORT COMMAND...
    "${@:3}" >>"$d/$1.log" 2>&1 </dev/null &
    pid[$1]=$! port[$1]=$2
    pids+=($!)
    for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return; sleep 0.05; done
    cat "$d/$1.log"
    exit 1
}
begin none $base memcached "${user[@]}" -l 127.0.0.1 -p $base -U 0 -c 4096
for t in 1 2; do
    begin gate$t $((base + t)) "$gate" --listen 127.0.0.1:$((base + t)) --memcached 127.0.0.1:$base --threads $t \
        --bucket name=gold,key=key,reserve=1k --bucket name=bulk
done
printf 'a:\n  listen: 127.0.0.1:%d\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 5000\n  preconnect: true\n  servers:\n   - 127.0.0.1:%d:1\n' \
    $((base + 4)) $base >"$d/twemproxy.yml"
begin twemproxy $((base + 4)) nutcracker -c "$d/twemproxy.yml" -s $((base + 5)) -v 0
echo "# bench memcached_gate: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(memcached -V), $(nutcracker -V 2>&1 | head -1)"

cpu_ns() { cat "/proc/${pid[$1]}/task/"*/schedstat | awk '{n += $1} END {printf "%.0f", n}'; }
every=0-$(($(nproc) - 1))
place() { # CASE: the cores of the proxies, and those of all else
    local t proxies=$every
    others=$every
    case $1 in
    *_one_core) proxies=0 others=0 ;;
    *_two_cores) proxies=1 others=0 ;;
    esac
    for t in "${!pid[@]}"; do
        if [ "$t" = none ]; then taskset -apc $others "${pid[$t]}"; else taskset -apc $proxies "${pid[$t]}"; fi >/dev/null || exit 1
    done
}
slice() { # TARGET LOAD-OPTION...: a line: target requests per_s p99_us, ns of the target's processor time
    local before line
    before=$(cpu_ns "$1")
    line=$(taskset -c $others "$out/memcached_load" --port "${port[$1]}" --time $time "${@:2}") || { echo "errors under load: $line"; exit 1; }
    jq -r --arg t "$1" --arg c $(($(cpu_ns "$1") - before)) '[$t, .requests, .per_s, .p99_us, $c] | join(" ")' <<<"$line"
}
: >"$json"
put() { printf '{"bench":"memcached_gate","case":"%s","metric":"%s","value":%s,"unit":"%s"}\n' "$@" >>"$json"; }
printf '%-34s %-12s %10s %10s %14s %12s\n' case target requests/s 'p99, us' 'per core and s' 'of twemproxy'
cases() { # name and options
    cat <<'END'
50x1x100 --connections 50
200x1x100 --connections 200
1x1x100 --connections 1
1x1x100_one_core --connections 1
50x16x100 --connections 50 --pipeline 16
50x1x4k --connections 50 --value 4k
END
    [ "$(nproc)" -lt 2 ] || echo 1x1x100_two_cores --connections 1
}
while read -r name options; do
    place "$name"
    slice none --connections 4 --pipeline 64 --value 100 >/dev/null # keys
    : >"$d/slices"
    for ((i = 0; i < rounds; i++)); do
        for target in none gate1 twemproxy gate2; do slice $target $options >>"$d/slices" || exit 1; done
        slice none $options | sed 's/^none/control/' >>"$d/slices"
    done
    awk '
        function middle(list,    v, n, i, j, t) {
            n = split(list, v, " ")
            for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) {t = v[j]; v[j] = v[j - 1]; v[j - 1] = t}
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        {
            rate[$1] = rate[$1] " " $3; p99[$1] = p99[$1] " " $4
            core = $5 ? $2 * 1e9 / $5 : 0
            cores[$1] = cores[$1] " " core
            now[$1] = core
        }
        # Rounds are none, gate1, twemproxy, gate2, control.
        $1 == "gate2" && now["twemproxy"] {for (t in now) ratio[t] = ratio[t] " " now[t] / now["twemproxy"]}
        END {for (t in rate) print t, middle(rate[t]), middle(p99[t]), middle(cores[t]), middle(ratio[t])}' "$d/slices" >"$d/medians"
    for target in none control twemproxy gate1 gate2; do
        read -r _ rate p99 core ratio <<<"$(grep "^$target " "$d/medians")"
        ratio=$(printf %.2f "$ratio")
        case $target in none | control) core=- ratio=- ;; esac
        printf '%-34s %-12s %10.0f %10.0f %14.14s %12s\n' "$name" "$target" "$rate" "$p99" "$core" "$ratio"
        put "$name" "${target}_per_s" "$rate" requests/s
        put "$name" "${target}_p99" "$p99" us
        [ "$core" = - ] || { put "$name" "${target}_per_core" "$core" requests/s; put "$name" "${target}_of_twemproxy" "$ratio" ratio; }
    done
done < <(cases)
echo "all requests were answered without an error; connections x pipeline x bytes of a value"
