#!/usr/bin/env bash
# What examples/nginx costs, and what it holds beside nginx's own limit_rate and limit_req.   usage: bench/nginx.sh [--quick]
# 4 workers, 200 connections (wrk). Case overhead: nothing binds; slices without, with and without it (the control) in turn, and CPU
# time for a request.
# Case table: the same loads under each. Case long: reservation and limits over 30 s, by the module's own counters.
# PARTS="overhead long" runs these only. Writes build/bench/nginx.jsonl.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin
parts=" ${PARTS:-overhead table long} "
part() { [[ $parts == *" $1 "* ]]; }
module=$PWD/build/examples/ngx_http_qos_module.so out=build/bench
json=$PWD/$out/nginx.jsonl
slices=10 slice=2 seconds=6 long=30
if [ "${1:-}" = --quick ]; then
    slices=3 slice=1 seconds=1 long=5
    echo "quick: $slices slices of $slice s, so the control is wider"
fi
[ -f "$module" ] || make -s "$module" >/dev/null || exit 1
mkdir -p "$out"
d=$(mktemp -d) || exit 1
chmod 755 "$d"
stop() {
    local i
    kill $(jobs -p) 2>/dev/null
    for ((i = 0; i < 50; i++)); do [ -s "$d/nginx.pid" ] || break; sleep 0.1; done
    wait 2>/dev/null
    rm -rf "$d"
}
trap stop EXIT
mkdir -p "$d/html" "$d/logs"
head -c 1048576 /dev/urandom >"$d/html/mib"
head -c 65536 "$d/html/mib" >"$d/html/mid"
head -c 4096 "$d/html/mib" >"$d/html/small"
[ "$(id -u)" -ne 0 ] || user="user root;"

# What each is told: 80 MiB/s in all, gold 50 for sure and 60 at most. limit_rate and limit_req know neither a total nor a
# reservation: gold gets 60, bulk the other 20; of limit_rate each connection the 100th part, of limit_req requests of 64 KiB.
port=$((10000 + RANDOM % 20000)) url= # below those of clients
cat >"$d/nginx.conf" <<END
load_module $module; worker_processes 4; pid $d/nginx.pid; error_log $d/logs/error.log warn; ${user:-}
events { worker_connections 1024; }
http { access_log off; sendfile on; keepalive_requests 1000000;
client_body_temp_path $d/body; proxy_temp_path $d/proxy; fastcgi_temp_path $d/fcgi; uwsgi_temp_path $d/uwsgi; scgi_temp_path $d/scgi;
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
server { listen 127.0.0.1:$port backlog=1024;
    location /none/ { alias $d/html/; }
    location /wide/ { alias $d/html/; qos zone=wide key=\$http_x_tenant; }
    location /qos/ { alias $d/html/; qos zone=disks key=\$http_x_tenant; }
    location /limit_rate/ { alias $d/html/; limit_rate \$each; }
    location /limit_req/ { alias $d/html/; limit_req zone=gold burst=400; limit_req zone=bulk burst=400; }
    location = /status { qos_status; }
} }
END
timeout 1200 nginx -p "$d" -c "$d/nginx.conf" -g 'daemon off;' &
for _ in $(seq 30); do
    sleep 0.1
    [ -s "$d/nginx.pid" ] && curl -fs -o /dev/null "http://127.0.0.1:$port/status" && url=http://127.0.0.1:$port && break
done
[ -n "$url" ] || { cat "$d/logs/error.log"; exit 1; }
: >"$json"
put() { printf '{"bench":"nginx","case":"%s","metric":"%s","value":%s,"unit":"%s"}\n' "$@" >>"$json"; }
echo "# bench nginx: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(nginx -v 2>&1), $(wrk -v 2>&1 | head -1 | cut -d' ' -f1,2)"

# ---- overhead
# On a machine that others use, requests per second say less than the CPU time of the workers for a request.
ticks() { cat $(sed 's,.*,/proc/&/stat,' <<<"$workers") | awk '{n += $14 + $15} END {print n + 0}'; }
slice() { # LOCATION OBJECT: requests per second, requests, ticks of the workers
    local before
    before=$(ticks)
    timeout 60 wrk -t2 -c200 -d"$slice"s -H 'X-Tenant: gold' "$url/$1/$2" >"$d/slice"
    awk -v ticks=$(($(ticks) - before)) '/requests in/ {n = $1} /Requests\/sec/ {print $2, n, ticks}' "$d/slice"
}
workers=$(cat "/proc/$(cat "$d/nginx.pid")/task/$(cat "$d/nginx.pid")/children" | tr ' ' '\n' | grep .)
part overhead && printf '%-8s %12s %12s %13s %9s %12s %12s %13s %9s\n' object without/s with/s with/without control 'without, us' 'with, us' without/with control
for object in small mid mib; do
    part overhead || break
    slice none $object >/dev/null
    : >"$d/slices"
    for ((i = 0; i < slices; i++)); do
        echo "$(slice none $object) $(slice wide $object) $(slice none $object)" >>"$d/slices"
    done
    read -r without with ratio control us_without us_with us_ratio us_control <<<"$(
        awk -v tick=$((1000000 / $(getconf CLK_TCK))) '
            function middle(v, n,    i, j, t) {
                for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) {t = v[j]; v[j] = v[j - 1]; v[j - 1] = t}
                return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
            }
            {a[NR] = ($1 + $7) / 2; b[NR] = $4; r[NR] = 2 * $4 / ($1 + $7); c[NR] = $7 / $1
             n1 += $2; t1 += $3; n2 += $5; t2 += $6; n3 += $8; t3 += $9}
            END {u = tick * (t1 + t3) / (n1 + n3); w = tick * t2 / n2
                 print middle(a, NR), middle(b, NR), middle(r, NR), middle(c, NR), u, w, u / w, (t1 / n1) / (t3 / n3)}' "$d/slices")"
    printf '%-8s %12.0f %12.0f %13.3f %9.3f %12.1f %12.1f %13.3f %9.3f\n' $object "$without" "$with" "$ratio" "$control" \
        "$us_without" "$us_with" "$us_ratio" "$us_control"
    put overhead_$object requests_ratio "$ratio" with/without
    put overhead_$object requests_control "$control" without/without
    put overhead_$object cpu_ratio "$us_ratio" without/with
    put overhead_$object cpu_control "$us_control" without/without
done

# ---- table: MiB/s of gold and bulk
mib_per_s() { awk '/Transfer\/sec/ {n = $2 + 0; print n * ($2 ~ /GB/ ? 1024 : $2 ~ /MB/ ? 1 : $2 ~ /KB/ ? 1 / 1024 : 1 / 1048576)}' "$1"; }
run() { # LOCATION OBJECT GOLD-CONNECTIONS BULK-CONNECTIONS SECONDS
    local g= b=
    echo 'Transfer/sec: 0B' | tee "$d/gold" >"$d/bulk"
    [ "$3" -eq 0 ] || { timeout 120 wrk -t1 -c"$3" -d"$5"s --timeout 30s -H 'X-Tenant: gold' "$url/$1/$2" >"$d/gold" & g=$!; }
    [ "$4" -eq 0 ] || { timeout 120 wrk -t1 -c"$4" -d"$5"s --timeout 30s -H 'X-Tenant: bulk' "$url/$1/$2" >"$d/bulk" & b=$!; }
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
part table && echo "asked: gold at least 50 and at most 60, bulk at most 70, both at most 80 (wrk counts headers too)"

# ---- long: reservation and limit by the module's own counters
status() { curl -fs "$url/status" | awk '/^zone/ {z = $2} /^zone disks/ {printf "%.6f ", $4 / 1e9} z == "disks:" && ($1 == "gold" || $1 == "bulk") {printf "%.0f %s ", $7 + $8, $12} END {print ""}'; }
echo
for pair in 'both 100 100' 'alone 200 0'; do
    part long || break
    read -r name gold bulk <<<"$pair"
    run qos mid "$gold" "$bulk" $((long + 1)) &
    runner=$!
    sleep 0.7
    first=$(status)
    sleep "$((long - 1))"
    last=$(status)
    wait $runner
    read -r of_reserve of_limit of_root waited <<<"$(echo "$first $last" | awk '{
        s = $6 - $1; g = $7 - $2; b = $9 - $4
        print g / s / 52428800, g / s / 62914560, (g + b) / s / 83886080, ($8 - $3) / s / 10}')"
    echo "long, gold $gold and bulk $bulk connections: gold got $of_reserve of its reservation, $of_limit of its limit; $of_root of the root's rate was spent; gold waited $waited % of the time"
    awk "BEGIN {exit !($waited < 98)}" && echo "    inconclusive for the reservation: the clients of this machine asked for too little"
    put "long_$name" of_reservation "$of_reserve" ratio
    put "long_$name" of_limit "$of_limit" ratio
    put "long_$name" of_root "$of_root" ratio
    put "long_$name" waited "$waited" %
done
