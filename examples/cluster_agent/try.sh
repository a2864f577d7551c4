#!/usr/bin/env bash
# A cluster on this host, to try: etcd, a controller, two memcached_gate and two nginx, with one tenant limited over all four.
# It runs until Ctrl-C and leaves nothing behind. Ports are PORT and those above, 127.0.0.1 only.
# usage: examples/cluster_agent/try.sh [DIR [PORT]]    DIR keeps keys, logs and settings (a temporary one, removed)
set -u
cd "$(dirname "$0")/../.." || exit 1
PATH=$PATH:/usr/sbin
d=${1:-$(mktemp -d)} port=${2:-9100}
for tool in etcd etcdctl memcached nginx; do command -v $tool >/dev/null || { echo "$tool is missing"; exit 1; }; done
for t in pshift_cluster memcached_gate cluster_agent ngx_http_qos_module.so; do
    [ -e "build/examples/$t" ] || ${MAKE:-make} -s "build/examples/$t" || exit 1
done
mkdir -p "$d/html" "$d/log" && d=$(cd "$d" && pwd) || exit 1
chmod 755 "$d"
pids=()
end() {
    trap - INT TERM EXIT
    kill "${pids[@]}" 2>/dev/null
    wait
    [ -n "${keep:-}" ] || rm -rf "$d"
    exit "${1:-0}"
}
keep=${1:-}
trap 'end' INT TERM
trap 'end 1' EXIT
begin() { # NAME COMMAND...
    "${@:2}" >>"$d/log/$1" 2>&1 </dev/null &
    pids+=($!)
    echo "$1 $!" >>"$d/pids"
}
: >"$d/pids"
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://127.0.0.1:$port
begin etcd etcd --data-dir "$d/etcd" --listen-client-urls "$ETCDCTL_ENDPOINTS" --advertise-client-urls "$ETCDCTL_ENDPOINTS" \
    --listen-peer-urls "http://127.0.0.1:$((port + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((port + 1))" \
    --initial-cluster "default=http://127.0.0.1:$((port + 1))"
for _ in $(seq 300); do etcdctl endpoint health >/dev/null 2>&1 && break; sleep 0.1; done

key() { build/examples/pshift_cluster keys --name "$1" --keys "$d/keys"; }
put() { etcdctl put "qos/config/$1" "$2" >>"$d/log/etcd" || exit 1; }
put period 500ms
put controller/c1 "address=127.0.0.1:$((port + 2)),key=$(key c1)"
for n in g1 g2 n1 n2; do number=$((${number:-0} + 1)) && put server/$n "number=$number,capacity=4000,key=$(key $n)"; done
put tenant/gold reserve=100,limit=400
put tenant/files limit=8M,token=64k
put tenant/bulk token=64k

cluster=(--cluster "$ETCDCTL_ENDPOINTS" --keys "$d/keys")
user=() workers=
[ "$(id -u)" -ne 0 ] || user=(-u nobody) workers="user root;"
head -c 1000 /dev/zero >"$d/html/small"
head -c 64M /dev/zero >"$d/html/large"
begin c1 build/examples/pshift_cluster controller --name c1 "${cluster[@]}"
for k in 1 2; do
    begin m$k memcached "${user[@]}" -l 127.0.0.1 -p $((port + 10 + k)) -U 0 -t 1
    begin g$k build/examples/memcached_gate --name g$k "${cluster[@]}" --listen 127.0.0.1:$((port + 20 + k)) \
        --memcached 127.0.0.1:$((port + 10 + k)) --threads 1 --bucket name=gold,key=gold:
    begin a$k build/examples/cluster_agent --name n$k "${cluster[@]}" --tokens "$d/tokens$k"
    mkdir -p "$d/n$k"
    cat >"$d/n$k.conf" <<END
load_module ${MODULE:-$PWD/build/examples/ngx_http_qos_module.so}; daemon off; worker_processes 2; pid $d/n$k.pid; $workers
events { worker_connections 1024; }
http {
    access_log off; client_body_temp_path $d/n$k/1; proxy_temp_path $d/n$k/2; fastcgi_temp_path $d/n$k/3; uwsgi_temp_path $d/n$k/4;
    scgi_temp_path $d/n$k/5;
    qos_zone name=disks size=10m rate=400m cluster=$d/tokens$k;
    qos_tenant zone=disks key=gold;
    qos_tenant zone=disks key=files;
    qos_tenant zone=disks key=bulk weight=100;
    qos_tenant zone=disks key=none;
    server {
        listen 127.0.0.1:$((port + 30 + k));
        root $d/html;
        location / { qos zone=disks key=\$http_x_tenant; }
        location /now/ { alias $d/html/; qos zone=disks key=\$http_x_tenant over=429; }
        location = /qos { qos_status; }
    }
}
END
    begin n$k nginx -p "$d" -c "$d/n$k.conf" -e "$d/log/n$k.error"
done
for _ in $(seq 300); do etcdctl get qos/status/tenant/gold 2>/dev/null | grep -q 'in force' && break; sleep 0.1; done
cat <<END
etcd http://127.0.0.1:$port, gates 127.0.0.1:$((port + 21)) and $((port + 22)), nginx http://127.0.0.1:$((port + 31)) and $((port + 32)); logs in $d/log
All four serve 400 requests a second of the tenant gold:
    wrk -t1 -c20 -d5 -H 'X-Tenant: gold' http://127.0.0.1:$((port + 31))/small
    etcdctl --endpoints 127.0.0.1:$port put qos/config/tenant/gold limit=800
It runs until Ctrl-C.
END
wait "${pids[0]}"
echo "etcd has ended: see $d/log/etcd" && keep=1
