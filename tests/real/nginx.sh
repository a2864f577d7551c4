#!/usr/bin/env bash
# proves: examples/nginx in stock nginx, 4 workers, stock clients (wrk, curl, ab): no byte is changed, limits hold at all
# times over all workers, the reservation is met while its tenant has demand, the zone's rate is used up, also with uploads,
# slow clients, aborted downloads, reloads and workers killed (in the middle of a change too); bad settings are refused with
# the number of their line. Rates are those of the configuration, bytes are counted by the clients: nothing is judged by the
# module's own counters
# needs: loopback
# usage: tests/real/nginx.sh [rates]: that section only. MODULE=FILE is another module
set -u
. "$(dirname "$0")/../lib.sh"
only=${1:-all}
module=${MODULE:-$PWD/build/examples/ngx_http_qos_module.so}
PATH=$PATH:/usr/sbin
for tool in nginx wrk curl ab; do
    command -v $tool >/dev/null || { echo "$tool is missing: see packages.txt"; exit 1; }
done
[ -x build/examples/qos_live ] || make -s build/examples/qos_live || exit 1
[ -f "$module" ] || make -s build/examples/ngx_http_qos_module.so >/dev/null || { echo "$module was not built"; exit 1; }
d=$(mktemp -d)
${CC:-gcc} -std=gnu11 -O2 -o "$d/client" tests/real/peers/nginx_client.c || exit 1
chmod 755 "$d"
running() { [ -s "$d/nginx.pid" ] && kill -0 "$(cat "$d/nginx.pid")"; } 2>/dev/null
# A worker that ends by itself has no request left. A worker that has to end at once may have some. nginx does not
# notice that a client left before its request was read while the request waits: so a client of the flood can keep a
# worker that should end by itself for minutes. nginx then writes "open socket" and "aborting".
open_sockets() { grep -c ' open socket #[0-9]* left in connection' "$d/logs/error.log" 2>/dev/null; }
leaks=0 known=0
stop() { # the master ends its workers; the jobs of this script end with it
    local i
    leaks=$((leaks + $(open_sockets) - known))
    kill $(jobs -p) 2>/dev/null
    running && kill -TERM "$(cat "$d/nginx.pid")" 2>/dev/null
    for ((i = 0; i < 300; i++)); do running || break; sleep 0.1; done
    wait 2>/dev/null
    known=$(open_sockets)
}
trap 'stop; rm -rf "$d"' EXIT
failed=0 survived=0 mib=1048576 burst_ms=30 chunk=65536
rate=80 gold_reserve=50 gold_limit=60 bulk_limit=7 rest_limit=40 # MiB/s: of the configuration, and of the verdicts
mkdir -p "$d/html/put" "$d/logs"
head -c $mib /dev/urandom >"$d/html/mib"
for _ in $(seq 16); do cat "$d/html/mib"; done >"$d/html/large"
head -c $chunk "$d/html/mib" >"$d/html/mid"
echo '<!--#include virtual="/mid" -->' >"$d/html/page.shtml"
for _ in $(seq 16); do echo '<!--#include virtual="/mid" -->'; done >"$d/html/pages.shtml"
for _ in $(seq 16); do cat "$d/html/mid"; echo; done >"$d/html/pages"
[ "$(id -u)" -ne 0 ] || user="user root;"

# Built for later: a copy of the module whose worker kills itself in the middle of a change, and where behaviour is undefined.
mkdir "$d/src"
cp examples/nginx/*.[ch] "$d/src/"
sed -i 's/^#include "ngx_http_qos.h"/&\n#define CRASH(id, n) if (s->account[id].key_len == 5 \&\& requests_of(s, id) == (n)) raise(SIGKILL)/
    s/^\/\* ---- trees/static uint64_t requests_of(struct qos_shared *s, uint32_t id)\n{\n    uint64_t k, n = 0;\n    for (k = 0; k < COUNTS; k++)\n        n += s->count[id * COUNTS + k].requests;\n    return n;\n}\n&/
    s/^    must(zone, htb_submit(&s->plan\[s->use\].tree, now_ns, &w->request));/    CRASH(id, 1);\n&\n    CRASH(id, 2);/
    s/^        w->granted = true;/        CRASH(r->class_id, 3);\n&/' "$d/src/ngx_http_qos_zone.c"
[ "$(grep -c 'CRASH(' "$d/src/ngx_http_qos_zone.c")" -eq 4 ] || bad "the module has changed: plant the crash elsewhere"
[ "$only" != all ] || OPTIMIZE='-O0 -fsanitize=undefined -fsanitize-undefined-trap-on-error' SOURCES="$d/src/*.c" examples/nginx/build.sh build/examples/nginx-crash.so &
crash_build=${!:-}

# ---- bad settings: a sentence and the line

config() { # LINES-IN-HTTP [MODULE]
    cat <<END
load_module ${2:-$module}; worker_processes 4; pid $d/nginx.pid; error_log $d/logs/error.log notice; ${user:-}
events { worker_connections 1024; }
http { access_log off; default_type text/plain; client_max_body_size 1g;
client_body_temp_path $d/body; proxy_temp_path $d/proxy; fastcgi_temp_path $d/fcgi; uwsgi_temp_path $d/uwsgi; scgi_temp_path $d/scgi;
$1
}
END
}
refused() { # LINES MESSAGE: the last line is wrong; it is line 4 + their number
    config "$1" >"$d/bad.conf"
    nginx -p "$d" -c "$d/bad.conf" -t >"$d/bad.out" 2>&1 && { bad "accepted: $1"; return; }
    expect "refused: $2" grep -q "\[emerg\].*$2.* in $d/bad.conf:$((4 + $(wc -l <<<"$1")))" "$d/bad.out"
}
z='qos_zone name=z size=1m rate=100m;'
settings() {
refused 'qos_zone name=z size=1m;' 'rate_per_s: give'
refused 'qos_zone name=z size=8k rate=1m;' 'size: give at least'
refused 'qos_zone name=z size=1m rate=fast;' '"rate=fast": give bytes per second, such as 400m'
refused 'qos_zone name=z size=1m rate=1m burst=0;' 'burst: give 1ms to 10s'
refused 'qos_zone name=z size=1m rate=1m colour=red;' '"colour=red" is no setting of it'
refused "$z
qos_zone name=z size=1m rate=1m;" 'this zone has a line already'
refused 'qos_tenant zone=y key=a;' 'zone=y: write its qos_zone before this line'
refused 'qos_tenant key=a;' 'zone=: write its qos_zone before this line'
refused "$z
qos_tenant zone=z key=a reserve=101m;" 'key=a: .* 104857600 bytes per second are left to reserve'
refused "$z
qos_tenant zone=z key=a reserve=60m;
qos_tenant zone=z key=* reserve=50m;" '41943040 bytes per second are left to reserve'
refused "$z
qos_tenant zone=z key=a reserve=20m limit=10m;" 'limit_per_s: give at least rate_per_s'
refused "$z
qos_tenant zone=z key=a weight=0;" 'weight: give 1 to'
refused "$z
qos_tenant zone=z key=a\\\\b;" 'key: .* no blanks, quotes or backslashes'
refused 'qos_zone name=z"q size=1m rate=1m;' 'name: .* no blanks, quotes or backslashes'
refused 'qos_zone name=z size=1m rate=1m tenants=70000;' 'tenants: give 1 to 65535'
refused "$z
qos_tenant zone=z key=a;
qos_tenant zone=z key=a;" 'key: it has a line already'
refused "$z
qos zone=z;" "key: give the tenant's key"
refused "$z
qos zone=z key=\$http_x over=maybe;" 'over: give wait or 429'
refused 'server { listen 127.0.0.1:1; location / { qos_status json; } }' 'give text or prometheus'
}
[ "$only" != all ] || settings

# ---- the server

server_of() { # TENANTS [MODULE]
    config "qos_zone name=disks size=10m rate=${rate}m burst=${burst_ms}ms;
$1
qos_zone name=other size=1m rate=10g request=4k;
qos_zone name=few size=512k rate=10g tenants=4;
qos_tenant zone=few key=flood limit=100k;
server { listen 127.0.0.1:$port sndbuf=128k; listen 127.0.0.1:$((port + 1)) http2; root $d/html; sendfile on; add_header X-Worker \$pid;
    location / { qos zone=disks key=\$http_x_tenant; }
    location /put/ { access_log $d/logs/put.log; qos zone=disks key=\$http_x_tenant; dav_methods PUT; client_body_buffer_size 16k; }
    location /copy/ { alias $d/html/; sendfile off; qos zone=disks key=\$http_x_tenant; }
    location /gzip/ { alias $d/html/; gzip on; gzip_types text/plain; qos zone=disks key=\$http_x_tenant; }
    location /mix/ { alias $d/html/; limit_rate 6m; limit_rate_after 100k; gzip on; gzip_types text/plain; qos zone=disks key=\$http_x_tenant; }
    location /pages.shtml { ssi on; ssi_types text/plain; limit_rate 10m; qos zone=disks key=\$http_x_tenant; }
    location = /page.shtml { ssi on; ssi_types text/plain; qos zone=disks key=\$http_x_tenant; }
    location /refuse/ { alias $d/html/; qos zone=disks key=\$http_x_tenant over=429; }
    location /few/ { alias $d/html/; qos zone=few key=\$http_x_tenant; }
    location /cost/ { alias $d/html/; qos zone=other key=all; }
    location /proxy/ { qos zone=disks key=\$http_x_tenant; proxy_pass http://127.0.0.1:$port/free/; }
    location /free/ { alias $d/html/; qos off; }
    location = /qos { qos_status; }
    location = /metrics { qos_status prometheus; }
}" "${2:-}"
}
tenants="qos_tenant zone=disks key=gold reserve=${gold_reserve}m limit=${gold_limit}m;
qos_tenant zone=disks key=bulk limit=${bulk_limit}m weight=10;
qos_tenant zone=disks key=up reserve=5m limit=8m;
qos_tenant zone=disks key=slow limit=20m;
qos_tenant zone=disks key=tiny limit=200k;
qos_tenant zone=disks key=crash limit=100k;
qos_tenant zone=disks key=* limit=${rest_limit}m weight=20;"
serves() { running && curl -fs "$url/qos" >/dev/null; }
serves_or_ended() { serves || ! kill -0 "$master" 2>/dev/null; }
start() { # TENANTS [MODULE]: on a port that is free, and the one after it
    local try
    for try in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 10000)) # below those of clients
        server_of "$@" >"$d/nginx.conf"
        timeout 600 nginx -p "$d" -c "$d/nginx.conf" -g 'daemon off;' >"$d/start.out" 2>&1 &
        master=$! url=http://127.0.0.1:$port
        within_s 60 serves_or_ended
        serves && return
    done
    cat "$d/start.out" "$d/logs/error.log"
    exit 1
}
get() { curl -sS --max-time 100 "$@"; }
column() { # TENANT NUMBER
    get "$url/qos" | awk -v t="$1" -v n="$2" '/^zone other/ {exit} $1 == t {print $n}'
}
start "$tenants"

# ---- bytes

bytes() {

expect "no byte is changed" cmp <(get -H 'X-Tenant: gold' "$url/large") "$d/html/large"
expect "they are charged once" [ "$(column gold 7)" -eq $((16 * mib)) ]
expect "a range" cmp <(get -r 100000-300000 "$url/large") <(tail -c +100001 "$d/html/large" | head -c 200001)
expect "only the range is charged" [ "$(column '*' 7)" -eq 200001 ]
expect "without sendfile" cmp <(get -H 'X-Tenant: gold' "$url/copy/large") "$d/html/large"
expect "compressed" cmp <(get -H 'X-Tenant: gold' --compressed "$url/gzip/large") "$d/html/large"
expect "from a proxied server" cmp <(get -H 'X-Tenant: gold' "$url/proxy/large") "$d/html/large"
expect "over HTTP/2" cmp <(get --http2-prior-knowledge -H 'X-Tenant: gold' "http://127.0.0.1:$((port + 1))/large") "$d/html/large"
expect "a page made of another one" cmp <(get "$url/page.shtml") <(cat "$d/html/mid"; echo)
expect "a header alone" grep -q '^Content-Length: 16777216' <(get -I "$url/large" | tr -d '\r')
expect "HTTP/1.0" cmp <(get -0 -H 'X-Tenant: gold' "$url/mid") "$d/html/mid"
charged=$(column gold 7)
get -I -H 'X-Tenant: gold' "$url/large" "$url/mid" >/dev/null
expect "a header alone costs no bytes" [ "$(column gold 7)" -eq "$charged" ]
charged=$(column '*' 7)
exec 8<>"/dev/tcp/127.0.0.1/$port"
for i in $(seq 19); do printf 'GET /mid HTTP/1.1\r\nHost: a\r\n\r\n'; done >&8
printf 'GET /mid HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' >&8
expect "twenty at once on one connection" [ "$(timeout 20 cat <&8 | grep -ao 'HTTP/1.1 200 OK' | wc -l)" -eq 20 ]
exec 8>&-
expect "each is charged" [ $(($(column '*' 7) - charged)) -eq $((20 * 65536)) ]
long=$(head -c 4000 /dev/zero | tr '\0' k)
expect "a key of 4,000 bytes is everybody else's" cmp <(get -H "X-Tenant: $long" "$url/mid") "$d/html/mid"
expect "it is charged there" [ $(($(column '*' 7) - charged)) -eq $((21 * 65536)) ]
charged=$(column '*' 7)
moved=$(get -r "$(for i in $(seq 2 2 600); do printf "%d-%d," "$i" "$i"; done)0-0" "$url/large" | wc -c)
expect "300 ranges: what moves is charged" [ $(($(column '*' 7) - charged)) -eq "$moved" ]
for how in '' --compressed; do
    expect "limits of nginx and ours, sendfile, gzip ($how)" cmp <(get $how -H 'X-Tenant: bulk' "$url/mix/mib") "$d/html/mib"
done
expect "a page made of sixteen parts" cmp <(get -H 'X-Tenant: bulk' "$url/pages.shtml") "$d/html/pages"
expect "what is not there" [ "$(get -o /dev/null -w '%{http_code}' "$url/none")" = 404 ]
expect "three on one connection" [ "$(get -w '%{num_connects}' -o /dev/null "$url/mid" -o /dev/null "$url/mid" -o /dev/null "$url/mid")" = 100 ]
expect "an upload" [ "$(get -H 'X-Tenant: up' -T "$d/html/mib" -o /dev/null -w '%{http_code}' "$url/put/a")" = 201 ]
expect "its bytes are whole" cmp "$d/html/mib" "$d/html/put/a"
expect "they are charged" [ "$(column up 8)" -eq $mib ]
get -H 'X-Tenant: up' -H 'Transfer-Encoding: chunked' -T "$d/html/mib" -o /dev/null "$url/put/b"
expect "an upload in chunks" cmp "$d/html/mib" "$d/html/put/b"
h2=http://127.0.0.1:$((port + 1)) charged=$(column up 8)
get --http2-prior-knowledge -H 'X-Tenant: up' -T "$d/html/mib" -o /dev/null "$h2/put/c"
expect "an upload over HTTP/2" cmp "$d/html/mib" "$d/html/put/c"
expect "it is charged" [ $(($(column up 8) - charged)) -eq $mib ]
# curl may see the end of the stream before the answer.
get --http2-prior-knowledge -H 'X-Tenant: up' -T - -o /dev/null "$h2/put/d" <<<a 2>/dev/null
expect "it must say its length" within_s 30 grep -q '"PUT /put/d HTTP/2.0" 411' "$d/logs/put.log"
get "$url/cost/none" >/dev/null
expect "a request has its fixed cost" [ "$(get "$url/qos" | awk '/^zone/ {z = $2} $1 == "*" && z == "other:" {print $8}')" -eq 4096 ]
expect "metrics" grep -q '^qos_response_bytes_total{zone="disks",tenant="gold"} [1-9]' <(get "$url/metrics")

# At the limit: 429 with Retry-After.
timeout 100 ab -q -n 60 -c 10 -H 'X-Tenant: tiny' "$url/refuse/mid" >"$d/ab" 2>&1
expect "over=429 refuses" grep -q 'Non-2xx responses: *[1-9]' "$d/ab"
get -H 'X-Tenant: tiny' -D "$d/head" -o /dev/null "$url/refuse/mid" -o /dev/null "$url/refuse/mid" -o /dev/null "$url/refuse/mid"
expect "and says when" grep -qi '^retry-after: [1-9]' "$d/head"
expect "they are counted" [ "$(column tiny 6)" -gt 0 ]

# One tenant sends more requests than the zone has places for waiting requests: others still find a place.
flood=()
for i in 1 2 3; do timeout 60 wrk -t1 -c500 -d30s --timeout 30s -H 'X-Tenant: flood' "$url/few/mid" >"$d/wrk.flood" 2>&1 & flood+=($!); done
expect "a tenant that floods is told so" within_s 30 grep -q 'zone "few": a request of "flood" is refused: ' "$d/logs/error.log"
for i in 1 2 3; do expect "and nobody else" cmp <(get -H 'X-Tenant: gold' "$url/few/large") "$d/html/large"; done
kill "${flood[@]}" 2>/dev/null
wait "${flood[@]}"

wait "$crash_build" || bad "the module that kills itself was not built"
}
[ "$only" != all ] || bytes

# ---- rates: of the configuration; bytes: as the clients count them

# At every time since the start, got <= limit x (time + burst) + the worker's tokens ahead (2 ms) + two chunks, as a client
# cannot get what was not sent; at the end <= 1.01 of the limit. Status 1: more than that, or wrong bytes, never excused. 4:
# less than 0.98 of the reservation (the tenant always has requests) or 0.97 of the zone's rate (the clients together ask
# for more). A busy machine explains that; it does not explain that no second of all had 0.92 of the rate, if the same clients
# got three times the rate without the module: 1.
judge() { # FILE BULK-LIMIT ALL|SOME
    awk -v burst="$burst_ms" -v chunk=$chunk -v all="$3" -v control="$control" -v mib=$mib -v reserve=$gold_reserve -v rate=$rate \
        -v limits="gold $gold_limit bulk $2 rest $rest_limit" '
        BEGIN {words = split(limits, word); for (i = 1; i < words; i += 2) limit[word[i]] = word[i + 1] * mib}
        function most(l, s) {return l * (s + burst / 1000 + 0.002) + 2 * chunk}
        $1 == "at" && !($3 in number) {number[$3] = ++n; time[n] = $3}
        $1 == "at" {at[number[$3]] += $4}
        {checks++; sum[$1, $3] += $4; if ($4 > most(limit[$2], $3)) bad = bad " " $2 " over its limit: " $4 " in " $3 " s;"}
        sum[$1, $3] > most(rate * mib, $3) + 4 * chunk {bad = bad " all over the rate: " sum[$1, $3] " in " $3 " s;"}
        $1 == "end" {
            printf "%-5s got %6.2f MiB/s, %.4f of its limit, %d responses, %d refused, %d connections ended\n", $2, $4 / $3 / mib, $4 / $3 / limit[$2], $5, $7, $8
            total += $4; s = $3
            if ($4 > 1.01 * limit[$2] * s) bad = bad " " $2 " got " $4 / s / limit[$2] " of its limit;"
            if ($6 > 0 || $7 > 0) bad = bad " " $2 " got wrong bytes or was refused;"
            if ($2 == "gold" && $4 < 0.98 * reserve * mib * s) missed = missed " gold got " $4 / s / reserve / mib " of its reservation;"
        }
        END {
            for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (time[j] - time[i] >= 1) {
                part = (at[j] - at[i]) / (time[j] - time[i]) / rate / mib
                if (part > best) best = part
            }
            printf "all got %.4f of the rate, %.4f in the best second\n", total / s / rate / mib, best
            if (all == "ALL" && best < 0.92 && control >= 3 * rate) bad = bad " no second had more than " best " of the rate;"
            if (all == "ALL" && total < 0.97 * rate * mib * s) missed = missed " all got " total / s / rate / mib " of the rate;"
            if (bad != "") {print substr(bad, 1, 400); exit 1}
            if (checks < 20) missed = missed " too few checks;"
            if (missed != "") {print substr(missed, 1, 400); exit 4}
        }' "$1"
}
load() { # SECONDS FILE: 200 connections; the others take the remainder, so gold gets little more than its reservation
    timeout 100 "$d/client" "$port" "$1" "$d/html/mid" gold:70:/mid bulk:60:/copy/mid rest:70:/mid >"$2" &
    loaded=$!
}
uploads() { # seconds
    local end=$(($(date +%s) + $1))
    while [ "$(date +%s)" -lt $end ]; do get -H 'X-Tenant: up' -T "$d/html/mib" -o /dev/null "$url/put/$2"; done
}

# Control: the same clients without the module. If their demand is below twice the zone's rate, there is no verdict.
timeout 60 "$d/client" "$port" 1 "$d/html/mid" gold:200:/free/mid >"$d/free"
control=$(awk -v mib=$mib '$1 == "end" {printf "%d", $4 / $3 / mib}' "$d/free")
echo "control: $control MiB/s without the module, $rate with it"

watch_mark
load 4 "$d/alone"
wait "$loaded"
judge "$d/alone" $bulk_limit ALL
verdict=$?
expect "limits hold" [ $verdict -ne 1 ]
expect_time "the reservation is met, the rate is used" [ $verdict -ne 4 ]
[ "${control:-0}" -ge $((2 * rate)) ] || late "the clients of this machine have too little demand"
[ "$only" = all ] || finish $failed

load 5 "$d/run"
for i in 1 2 3; do uploads 5 up$i & ups[i]=$!; done
get --limit-rate 300k --max-time 3 -H 'X-Tenant: slow' -o "$d/slow" "$url/large" 2>/dev/null &
slow=$!
for i in 1 2 3 4; do get --max-time 1 -H 'X-Tenant: tiny' -o /dev/null "$url/large" 2>/dev/null & aborted[i]=$!; done
sleep 0.3
timeout 200 build/examples/qos_live --nginx "$url/qos" --time 3s >"$d/live" 2>&1 & watcher=$!
wait $watcher
expect "qos_live ends with status 0" [ $? = 0 ]
lines=$(grep -cE '^[0-9.]+ s  disks/(gold|bulk|up): got [0-9.]+ .*/s, reserved (-|[0-9].*), limit [0-9].*, p99 (-|.*s), waits for (nothing|its (turn|limit))$' "$d/live")
expect_time "it shows each tenant ($lines lines)" [ "$lines" -ge 3 ]
wait "$loaded" "$slow" "${ups[@]}" "${aborted[@]}"
judge "$d/run" $bulk_limit SOME
verdict=$?
expect "limits hold beside uploads, slow and aborted downloads" [ $verdict -ne 1 ]
expect_time "the reservation is met" [ $verdict -ne 4 ]
expect "uploads are whole" cmp "$d/html/mib" "$d/html/put/up1"
charged=$(column slow 7) got=$(wc -c <"$d/slow")
echo "slow client: got $got, charged $charged of $((16 * mib))"
expect "a slow client is charged what moved, not the whole file" [ "$charged" -le $((got + 6 * mib)) ]
nobody_waits() { [ "$(column "$1" 11)" = 0 ]; }
expect "nobody waits for those who left" within_s 30 nobody_waits tiny

# ---- reload under load

load 3 "$d/reload"
sleep 0.5
for i in 1 2 3 4; do kill -HUP "$(cat "$d/nginx.pid")"; sleep 0.25; done
server_of "${tenants/limit=7m/limit=6m}
qos_tenant zone=disks key=new limit=1m;" >"$d/nginx.conf"
before=$(column gold 7)
kill -HUP "$(cat "$d/nginx.pid")"
limit_of_bulk() { [ "$(column bulk 3)" = "$1" ]; }
expect "a reload changes limits" within_s 30 limit_of_bulk $((6 * mib))
expect "and adds tenants" [ -n "$(column new 3)" ]
expect "counters go on" [ "$(column gold 7)" -ge "$before" ]
wait "$loaded"
judge "$d/reload" $bulk_limit SOME
verdict2=$?
expect "limits hold over reloads, no request fails: no bucket is filled anew" [ $verdict2 -ne 1 ]
cp "$d/nginx.conf" "$d/good.conf"
echo 'nonsense' >>"$d/nginx.conf"
kill -HUP "$(cat "$d/nginx.pid")"
sleep 0.3
expect "a bad reload leaves all as it was" [ "$(column bulk 3)" -eq $((6 * mib)) ]
cp "$d/good.conf" "$d/nginx.conf"

# ---- a storm of reloads: each removes a tenant while its requests wait, and gives its place to another

roll() { server_of "$tenants
qos_tenant zone=disks key=roll$1 limit=1m;" >"$d/nginx.conf"; kill -HUP "$(cat "$d/nginx.pid")"; }
fetch=()
for i in $(seq 8); do
    roll "$i"
    for k in 1 2; do get -H "X-Tenant: roll$i" -o "$d/roll.$i.$k" "$url/mib" & fetch+=($!); done
    sleep 0.15
done
wait "${fetch[@]}"
lost=0
for i in "$d"/roll.*; do cmp -s "$i" "$d/html/mib" || lost=$((lost + 1)); done
expect "$(ls "$d"/roll.* | wc -l) downloads are whole" [ $lost -eq 0 ]
expect "nobody waits any more" [ "$(get "$url/qos" | awk '/^zone disks/ {z = 1} /^zone other/ {z = 0} z && NF == 13 && $1 != "tenant" {n += $11} END {print n + 0}')" -eq 0 ]

# ---- workers that are killed

survivors() { # DEAD-PID...: downloads of all other workers are whole
    local i pid lost=0 whole=0
    for i in $(seq 8); do
        [ -s "$d/head.$i" ] || continue # its worker died before it answered
        pid=$(awk 'tolower($1) == "x-worker:" {print $2 + 0}' "$d/head.$i")
        case " $* " in *" ${pid:-none} "*) continue ;; esac
        if cmp -s "$d/body.$i" "$d/html/mib"; then whole=$((whole + 1)); else lost=$((lost + 1)); fi
    done
    expect "no download hangs" [ -z "$(grep -lx 28 "$d"/exit.* 2>/dev/null)" ] # 28: curl's time was over
    expect "$whole downloads of other workers are whole" [ "$lost" -eq 0 ]
    survived=$((survived + whole))
}
downloads() { # eight, each a MiB, 8 MiB/s in all, over the workers
    local i
    fetch=()
    rm -f "$d"/head.* "$d"/body.* "$d"/exit.*
    for i in $(seq 8); do
        get -H 'X-Tenant: new' -H 'Connection: close' -D "$d/head.$i" -o "$d/body.$i" "$url/mib" 2>/dev/null || echo $? >"$d/exit.$i" &
        fetch+=($!)
    done
    sleep 0.3
}
slow='qos_tenant zone=disks key=new limit=8m;'
stop
start "$tenants
$slow"
left=0
watch_mark
for ((n = 0; n < 5 && left == 0; n++)); do # until a worker dies that has waiting requests
    downloads
    victim=$(awk 'tolower($1) == "x-worker:" {print $2 + 0}' "$d"/head.* | sort | uniq -c | sort -n | awk 'END {print $2}')
    [ -n "$victim" ] && kill -KILL "$victim"
    wait "${fetch[@]}"
    survivors "$victim"
    expect "nobody waits for the dead" within_s 30 nobody_waits new
    left=$(get "$url/qos" | awk '/^zone disks/ {print $14 + 0}')
done
expect_time "what it left was taken away" [ "$left" -gt 0 ]
stop

# In the middle of a change.
start "$tenants
$slow" "$PWD/build/examples/nginx-crash.so"
died() { [ "$(grep -c 'exited on signal 9' "$d/logs/error.log")" -gt "$1" ]; }
for n in 1 2 3; do
    before=$(grep -c 'exited on signal 9' "$d/logs/error.log")
    downloads
    get -H 'X-Tenant: crash' -o /dev/null "$url/large" 2>/dev/null
    wait "${fetch[@]}"
    expect "a worker died" within_s 30 died "$before" # its master says so a little later
    dead=$(sed -n 's/.*worker process \([0-9]*\) exited on signal 9.*/\1/p' "$d/logs/error.log" | tr '\n' ' ')
    survivors $dead
    anew() { [ "$(get "$url/qos" | awk '/^zone disks/ {print $12 + 0}')" -ge $n ]; }
    expect "the tree was made anew" within_s 30 anew
done
expect "and it works" cmp <(get -H 'X-Tenant: gold' "$url/large") "$d/html/large"
stop
expect_time "there were downloads of other workers" [ "$survived" -gt 0 ]
expect "they died in the middle of a change" [ "$(grep -c 'zone "disks": a worker died in the middle of a change' "$d/logs/error.log")" -ge 3 ]
complaints=$(grep -E '\[(alert|crit)\]' "$d/logs/error.log" | grep -vE 'exited on signal 9|was locked by| open socket #|: aborting$')
expect "no worker ended before its requests" [ "$leaks" -eq 0 ]
expect "no other complaint in the log" [ -z "$complaints" ]
finish $failed
