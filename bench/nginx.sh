#!/usr/bin/env bash
# The cost of examples/nginx, and how it keeps promises, beside nginx's own limit_rate and limit_req.
# usage: bench/nginx.sh [--quick]
# 4 workers, 200 connections (wrk).
# Case overhead: no limit is reached; short slices of servers without it, with it and without it (the control) in turn, over
# HTTP and HTTPS.
# Case table: the same loads under each. Case long: reservation and limits over 30 s, by what the clients get.
# PARTS="overhead long" and OBJECTS="small mid mib TLS_small TLS_mid TLS_mib" (4 KiB, 64 KiB, 1 MiB) run these only. Writes build/bench/nginx.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin
parts=" ${PARTS:-overhead table long} "
part() { [[ $parts == *" $1 "* ]]; }
module=$PWD/build/examples/ngx_http_qos_module.so out=build/bench
json=$PWD/$out/nginx.jsonl
rounds=${ROUNDS:-100} seconds=6 long=30
if [ "${1:-}" = --quick ]; then
    rounds=5 seconds=1 long=5
    echo "quick: $rounds rounds, so the result is not reliable"
fi
[ -f "$module" ] || make -s build/examples/ngx_http_qos_module.so >/dev/null || exit 1
mkdir -p "$out"
d=$(mktemp -d) || exit 1
chmod 755 "$d"
stop() {
    local i
    kill $(jobs -p) 2>/dev/null
    for ((i = 0; i < 50; i++)); do compgen -G "$d/*.pid" >/dev/null || break; sleep 0.1; done
    wait 2>/dev/null
    rm -rf "$d"
}
trap stop EXIT
mkdir -p "$d/html" "$d/logs"
${CC:-gcc} -std=gnu11 -O2 -o "$d/client" tests/real/peers/nginx_client.c || exit 1
head -c 1048576 /dev/urandom >"$d/html/mib"
head -c 65536 "$d/html/mib" >"$d/html/mid"
head -c 4096 "$d/html/mib" >"$d/html/small"
[ "$(id -u)" -ne 0 ] || user="user root;"
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$d/key" -out "$d/crt" -days 2 -subj /CN=localhost 2>/dev/null || exit 1

# Three servers with the same files: nginx without the module, the control likewise, and nginx with it.
# The settings for the table: 80 MiB/s in all, gold at least 50 and at most 60. limit_rate and limit_req know neither a
# total nor a reservation: gold gets 60, bulk the other 20; with limit_rate each connection gets a hundredth, with
# limit_req the rate counts requests of 64 KiB.
declare -A url master
config() { # NAME PORT
    cat <<END
worker_processes 4; pid $d/$1.pid; error_log $d/logs/$1.log warn; ${user:-}
events { worker_connections 1024; }
http { access_log off; sendfile on; keepalive_requests 1000000;
client_body_temp_path $d/body; proxy_temp_path $d/proxy; fastcgi_temp_path $d/fcgi; uwsgi_temp_path $d/uwsgi; scgi_temp_path $d/scgi;
END
    [ "$1" != with ] || cat <<END
qos_zone name=wide size=10m rate=100g;
qos_tenant zone=wide key=gold reserve=1g;
qos_zone name=disks size=10m rate=80m burst=50ms;
qos_tenant zone=disks key=gold reserve=50m limit=60m;
qos_tenant zone=disks key=bulk limit=70m weight=10;
map \$http_x_tenant \$each { gold 629145; bulk 209715; }
map \$http_x_tenant \$gold { gold gold; }
map \$http_x_tenant \$bulk { bulk bulk; }
limit_req_zone \$gold zone=gold:1m rate=960r/s;
limit_req_zone \$bulk zone=bulk:1m rate=320r/s;
END
    echo "server { listen 127.0.0.1:$2 backlog=1024; listen 127.0.0.1:$(($2 + 10)) ssl backlog=1024; ssl_certificate $d/crt; ssl_certificate_key $d/key; location /none/ { alias $d/html/; }"
    [ "$1" != with ] || cat <<END
    location /wide/ { alias $d/html/; qos zone=wide key=\$http_x_tenant; }
    location /qos/ { alias $d/html/; qos zone=disks key=\$http_x_tenant; }
    location /limit_rate/ { alias $d/html/; limit_rate \$each; }
    location /limit_req/ { alias $d/html/; limit_req zone=gold burst=400; limit_req zone=bulk burst=400; }
END
    echo "} }"
}
begin() { # NAME PORT
    { [ "$1" != with ] || echo "load_module $module;"; config "$1" "$2"; } >"$d/$1.conf"
    timeout 1200 nginx -p "$d" -e "$d/logs/$1.log" -c "$d/$1.conf" -g 'daemon off;' &
    for _ in $(seq 30); do
        sleep 0.1
        [ -s "$d/$1.pid" ] && curl -fs -o /dev/null "http://127.0.0.1:$2/none/small" && url[$1]=http://127.0.0.1:$2 url[TLS_$1]=https://127.0.0.1:$(($2 + 10)) && break
    done
    [ -n "${url[$1]:-}" ] || { cat "$d/logs/$1.log"; exit 1; }
    master[$1]=$(cat "$d/$1.pid")
}
base=$((10000 + RANDOM % 20000)) # below those of clients
begin with $base
: >"$json"
put() { printf '{"bench":"nginx","case":"%s","metric":"%s","value":%s,"unit":"%s"}\n' "$@" >>"$json"; }
echo "# bench nginx: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(nginx -v 2>&1), $(wrk -v 2>&1 | head -1 | cut -d' ' -f1,2)"

# ---- overhead
# The workers share one core, wrk has the others. A round is four slices: without, with, without, control. `with` and `control`
# are each divided by the mean of the slices without it before and after, so a disturbance of more than a second
# affects all alike. Shown: the median of all rounds, and the two rounds between which the true median is with 95 %.
cpu_ns() { awk '{n += $1} END {printf "%.0f", n}' $(workers "$1" /schedstat); }
workers() { printf "/proc/%s${2:-}\n" $(cat "/proc/${master[$1]}/task/${master[$1]}/children"); }
slice() { # SERVER LOCATION OBJECT [TLS_]: requests per second, requests for a second of the workers' processor time
    local before to=$d/slice
    before=$(cpu_ns "$1")
    timeout -s INT 0.3 taskset -c "$clients" wrk -t"$((cores - 1 ? cores - 1 : 1))" -c200 -d60s --timeout 20s -H 'X-Tenant: gold' "${url[${4:-}$1]}/$2/$3" >"$to" 2>&1
    # wrk counts a connection that was not yet served at the end of a slice as a timeout.
    if grep -E 'Socket errors.*(connect|read|write) [1-9]|Non-2xx' "$to" >&2; then exit 1; fi
    awk -v ns=$(($(cpu_ns "$1") - before)) '/requests in/ {n = $1} /Requests\/sec/ {print $2, n / ns * 1e9}' "$to"
}
overhead() { # requests per second without and with; then median, low, high of with and control, of requests, of processor time
    awk '
        function sort(v, n,    i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) {t = v[j]; v[j] = v[j - 1]; v[j - 1] = t}
        }
        function middle(v, n) {sort(v, n); return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2}
        # The k-th smallest and largest of n: an interval for the median, with 95 %.
        function spread(v, n,    k) {k = int(n / 2 - 0.98 * sqrt(n)); if (k < 1) k = 1; return sprintf(" %.4f %.4f %.4f", middle(v, n), v[k], v[n + 1 - k])}
        {rate[1, NR] = $1; rate[2, NR] = $2}
        END {
            for (i = 2; i < NR; i += 2) {
                t = i % 4 ? 1 : 2
                m = ++n[t]
                for (by = 1; by <= 2; by++) x[t, by, m] = 2 * rate[by, i] / (rate[by, i - 1] + rate[by, i + 1])
                if (t == 1) {with[m] = rate[1, i]; plain[m] = rate[1, i - 1]}
            }
            line = middle(plain, n[1]) " " middle(with, n[1])
            for (by = 1; by <= 2; by++) for (t = 1; t <= 2; t++) {
                for (i = 1; i <= n[t]; i++) one[i] = x[t, by, i]
                line = line spread(one, n[t])
            }
            print line
        }' "$d/slices"
}
if part overhead; then
    cores=$(nproc) clients=0
    [ "$cores" -le 2 ] || clients=0-$((cores - 2))
    begin without $((base + 1))
    begin control $((base + 2))
    for server in without with control; do
        for pid in $(workers $server | cut -d/ -f3); do taskset -pc $((cores - 1)) "$pid" >/dev/null; done
    done
    printf '%-46s %26s %26s\n' object 'with / without' 'control / without'
    for object in ${OBJECTS:-small mid mib TLS_small TLS_mid TLS_mib}; do
        case $object in TLS_*) tls=TLS_ ;; *) tls= ;; esac
        file=${object#TLS_}
        for server in without with control without; do slice $server none "$file" $tls; done | tail -1 >"$d/slices"
        for ((i = 0; i < rounds; i++)); do
            slice with wide "$file" $tls
            slice without none "$file" $tls
            slice control none "$file" $tls
            slice without none "$file" $tls
        done >>"$d/slices"
        read -r -a v <<<"$(overhead)"
        k=2
        for what in 'requests per second' "requests for the workers' processor time"; do
            says=$(awk -v rounds="$rounds" -v low="${v[k + 1]}" -v high="${v[k + 2]}" 'BEGIN {
                print (rounds < 20 ? "too few rounds" : low >= 0.97 ? "0.97 is met" : high < 0.97 ? "0.97 is missed" : "not settled")}')
            printf '%-9s %-36s %8.3f (%.3f to %.3f) %8.3f (%.3f to %.3f)  %s\n' "$object" "$what" "${v[@]:k:6}" "$says"
            name=${what//[ \']/_}
            put "overhead_$object" "${name}_ratio" "${v[k]}" with/without
            put "overhead_$object" "${name}_low" "${v[k + 1]}" with/without
            put "overhead_$object" "${name}_high" "${v[k + 2]}" with/without
            put "overhead_$object" "${name}_control" "${v[k + 3]}" without/without
            k=$((k + 6))
        done
        printf '      %.0f and %.0f requests per second\n' "${v[@]:0:2}"
    done
fi

# ---- table: MiB/s of gold and bulk
mib_per_s() { awk '/Transfer\/sec/ {n = $2 + 0; print n * ($2 ~ /GB/ ? 1024 : $2 ~ /MB/ ? 1 : $2 ~ /KB/ ? 1 / 1024 : 1 / 1048576)}' "$1"; }
run() { # LOCATION OBJECT GOLD-CONNECTIONS BULK-CONNECTIONS SECONDS
    local g= b=
    echo 'Transfer/sec: 0B' | tee "$d/gold" >"$d/bulk"
    [ "$3" -eq 0 ] || { timeout 120 wrk -t1 -c"$3" -d"$5"s --timeout 30s -H 'X-Tenant: gold' "${url[with]}/$1/$2" >"$d/gold" & g=$!; }
    [ "$4" -eq 0 ] || { timeout 120 wrk -t1 -c"$4" -d"$5"s --timeout 30s -H 'X-Tenant: bulk' "${url[with]}/$1/$2" >"$d/bulk" & b=$!; }
    wait $g $b
}
part table && printf '\n%-34s %19s %19s %19s %19s\n' 'MiB/s of gold / bulk' none limit_rate limit_req qos
while read -r object gold bulk words; do
    part table || break
    line=$(printf '%-34s' "$words")
    for how in none limit_rate limit_req qos; do
        run $how "$object" "$gold" "$bulk" "$seconds"
        g=$(mib_per_s "$d/gold") b=$(mib_per_s "$d/bulk")
        line+=$(printf ' %9.1f /%8.1f' "$g" "$b")
        put "table_${object}_${gold}_$bulk" "${how}_gold" "$g" MiB/s
        put "table_${object}_${gold}_$bulk" "${how}_bulk" "$b" MiB/s
    done
    echo "$line"
done <<'END'
mid 100 100 100 + 100 connections, 64 KiB
mid 20 180 20 + 180 connections, 64 KiB
mid 0 200 gold idle, bulk 200, 64 KiB
mib 100 100 100 + 100 connections, 1 MiB
small 100 100 100 + 100 connections, 4 KiB
END
part table && echo "required: gold at least 50 and at most 60, bulk at most 70, both at most 80 (wrk counts headers too)"

# ---- long: reservation and limit of the configuration, by the bytes that the clients count
echo
for pair in 'both 100 100' 'alone 200 0'; do
    part long || break
    read -r name gold bulk <<<"$pair"
    timeout 120 "$d/client" "$base" $long "$d/html/mid" "gold:$gold:/qos/mid" "bulk:$bulk:/qos/mid" >"$d/long" || exit 1
    read -r of_reserve of_limit of_root wrong <<<"$(awk '$1 == "end" {got[$2] = $4 / $3; wrong += $6}
        END {print got["gold"] / 52428800, got["gold"] / 62914560, (got["gold"] + got["bulk"]) / 83886080, wrong}' "$d/long")"
    echo "long, gold $gold and bulk $bulk connections: gold got $of_reserve of its reservation, $of_limit of its limit; the clients got $of_root of the zone's rate, $wrong wrong responses"
    put "long_$name" of_reservation "$of_reserve" ratio
    put "long_$name" of_limit "$of_limit" ratio
    put "long_$name" of_root "$of_root" ratio
done
