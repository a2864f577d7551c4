#!/usr/bin/env bash
# The part of `make install` for servers: memcached_gate, cluster_agent, pshift_cluster and qos_live, the module of nginx, manuals, systemd units, alerts and a
# dashboard. What cannot be built here is named, with the reason.
# usage: examples/operators/install.sh install|uninstall DESTDIR PREFIX
set -u
cd "$(dirname "$0")/../.." || exit 1
what=$1 prefix=$3
to=$2$prefix
here=examples/operators
bin=$to/bin man=$to/share/man units=$to/lib/systemd/system share=$to/share/qoskit modules=$to/lib/nginx/modules
built() { ${MAKE:-make} --no-print-directory -s "build/examples/$1" >&2; } # the jobserver is not ours
if [ "$what" = uninstall ]; then
    rm -f "$bin"/{memcached_gate,cluster_agent,pshift_cluster,qos_live} "$man"/man1/{memcached_gate,cluster_agent,qos_live}.1 "$man/man7/ngx_http_qos_module.7" \
        "$units"/{memcached_gate,cluster_agent,pshift_controller,nbdkit-qoskit}.service "$share"/{memcached_gate.conf,nginx_qos.conf,qoskit.rules.yml,memcached_gate.dashboard.json} \
        "$modules/ngx_http_qos_module.so"
    rmdir "$bin" "$share" "$modules" "$units" 2>/dev/null
    exit 0
fi
unit() { install -d "$units" && sed "s,@PREFIX@,$prefix,g" "$here/$1.service" >"$units/$1.service" && chmod 644 "$units/$1.service"; }
put() { install -d "$2" && install -m "$3" "$1" "$2/"; } # FILE DIRECTORY MODE
set -e
if built qos_live; then
    put build/examples/qos_live "$bin" 755
    put $here/qos_live.1 "$man/man1" 644
    echo "installed qos_live"
else echo "not installed: qos_live, which does not compile here"; fi
if pkg-config --exists libzmq libcurl json-c 2>/dev/null; then
    built memcached_gate
    built cluster_agent
    put build/examples/memcached_gate "$bin" 755
    put build/examples/cluster_agent "$bin" 755
    put $here/memcached_gate.1 "$man/man1" 644
    put $here/cluster_agent.1 "$man/man1" 644
    unit memcached_gate
    unit cluster_agent
    for f in memcached_gate.conf qoskit.rules.yml memcached_gate.dashboard.json; do put "$here/$f" "$share" 644; done
    echo "installed memcached_gate and cluster_agent, systemd units, settings to begin with, alerts and a dashboard"
else echo "not installed: memcached_gate and cluster_agent, which need libzmq3-dev libcurl4-openssl-dev libjson-c-dev"; fi
if command -v mpicc >/dev/null && pkg-config --exists libzmq libcurl json-c libmemcached liburing 2>/dev/null; then
    built pshift_cluster
    put build/examples/pshift_cluster "$bin" 755
    unit pshift_controller
    echo "installed pshift_cluster, and a systemd unit for a controller"
else echo "not installed: pshift_cluster, which needs libopenmpi-dev libzmq3-dev libcurl4-openssl-dev libjson-c-dev libmemcached-dev liburing-dev"; fi
if examples/nginx/build.sh --there >/dev/null 2>&1; then
    built ngx_http_qos_module.so
    put build/examples/ngx_http_qos_module.so "$modules" 644
    put $here/ngx_http_qos_module.7 "$man/man7" 644
    put $here/nginx_qos.conf "$share" 644
    echo "installed ngx_http_qos_module.so for this nginx, and a configuration to begin with"
else echo "not installed: ngx_http_qos_module.so, which needs nginx's sources (nginx-dev)"; fi
! [ -e "$to/lib/nbdkit/filters/nbdkit-qoskit-filter.so" ] || unit nbdkit-qoskit
