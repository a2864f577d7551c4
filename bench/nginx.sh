#!/usr/bin/env bash
# What examples/nginx costs, and what it holds beside nginx's own limit_rate and limit_req.   usage: bench/nginx.sh [--quick]
# 4 workers, 200 connections (wrk). Case overhead: nothing binds; slices without, with and without it (the control) in turn.
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
port=$((20000 + RANDOM % 30000)) url=
cat >"$d/nginx.conf" <<END
load_module $module; worker_processes 4; pid $d/nginx.pid; error_log $d/logs/error.log warn; ${user:-}
events { worker_connections 1024; }
http { access_log off; sendfile on; keepalive_requests 1000000;
client_body_temp_path $d/body; proxy_temp_path $d/proxy; fastcgi_temp_path $d/fcgi; uwsgi_temp_path $d/uwsgi; scgi_temp_path $d/scgi;
qos_zone name=wide size=10m rate=100g;
qos_tenant zone=wide key=gold reserve=1g;
qos_zone name=disks size=10m rate=80m burst=50ms;
qos_tenant zone=disks key=gold reserve=50m limit=60m;
qos_tenant zone=disks key=bulk limit=70m;
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
    curl -fs -o /dev/null "http://127.0.0.1:$port/status" && url=http://127.0.0.1:$port && break
done
[ -n "$url" ] || { cat "$d/logs/error.log"; exit 1; }
: >"$json"
put() { printf '{"bench":"nginx","case":"%s","metric":"%s","value":%s,"unit":"%s"}\n' "$@" >>"$json"; }
middle() { printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
echo "# bench nginx: cpu $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(nginx -v 2>&1), $(wrk -v 2>&1 | head -1 | cut -d' ' -f1,2)"

# ---- overhead
requests() { timeout 60 wrk -t2 -c200 -d"$slice"s -H 'X-Tenant: gold' "$url/$1" | awk '/Requests\/sec/ {print $2}'; }
part overhead && printf '%-10s %14s %14s %12s %12s\n' object 'without, /s' 'with, /s' with/without control
for object in small mid mib; do
    part overhead || break
    before=() with=() after=() ratio=() control=()
    requests none/$object >/dev/null
    for ((i = 0; i < slices; i++)); do
        a=$(requests none/$object) b=$(requests wide/$object) c=$(requests none/$object)
        before+=("$a") with+=("$b") after+=("$c")
        ratio+=("$(awk "BEGIN {print 2 * $b / ($a + $c)}")") control+=("$(awk "BEGIN {print $c / $a}")")
    done
    printf '%-10s %14.0f %14.0f %12.3f %12.3f\n' $object "$(middle "${before[@]}" "${after[@]}")" "$(middle "${with[@]}")" \
        "$(middle "${ratio[@]}")" "$(middle "${control[@]}")"
    put overhead_$object requests_ratio "$(middle "${ratio[@]}")" with/without
    put overhead_$object control "$(middle "${control[@]}")" without/without
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
    put "long_$name" of_reservation "$of_reserve" ratio
    put "long_$name" of_limit "$of_limit" ratio
    put "long_$name" of_root "$of_root" ratio
done
