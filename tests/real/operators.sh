#!/usr/bin/env bash
# proves: what operators get works: systemd takes the units, finds them closed, and runs them (as root); manuals name exactly the options of the
# programs; the settings to begin with are right, and a wrong line is named; a Prometheus loads the alerts, which fire when they should, and has data for every query of the dashboard
# alone: no
# needs: loopback
set -u
. "$(dirname "$0")/../lib.sh"
here=examples/operators gate=$PWD/build/examples/memcached_gate live=$PWD/build/examples/qos_live agent=$PWD/build/examples/cluster_agent module=$PWD/build/examples/ngx_http_qos_module.so
PATH=$PATH:/usr/sbin
for t in "$gate" "$live" "$agent" "$module" build/examples/{pshift_cluster,nbdkit-qoskit-filter.so}; do [ -x "$t" ] || make -s "build/examples/$(basename "$t")" || exit 1; done
for tool in promtool prometheus systemd-analyze groff jq curl nginx nbdkit etcd etcdctl ip; do
    command -v $tool >/dev/null || { echo "$tool is missing: see packages.txt"; exit 1; }
done
d=$(work_dir operators) || exit 1
failed=0 pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
base=$((10000 + RANDOM % 9900))

# ---- manuals
for tool in memcached_gate cluster_agent qos_live; do
    "$PWD/build/examples/$tool" --help | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort >"$d/help"
    sed -n '/^\.SH OPTIONS/,/^\.SH [^O]/s/\\-/-/gp' $here/$tool.1 | grep -oE '^\.BI? --[a-z-]+' | sed 's/^[^ ]* //' | sort >"$d/manual"
    [ -s "$d/help" ] && diff "$d/help" "$d/manual"
    expect "the manual of $tool has exactly its options" [ $? = 0 ]
done
for m in $here/*.[17] examples/nbdkit/*.1; do
    expect "$m is well formed" [ -z "$(groff -man -Tutf8 -ww -z -t "$m" 2>&1)" ]
done

# ---- units
mkdir -p "$d/bin" "$d/lib/nbdkit/filters"
cp "$gate" "$agent" "$d/bin/"
ln -s "$agent" "$d/bin/pshift_cluster" # of a unit only the name is checked
for unit in memcached_gate cluster_agent pshift_controller nbdkit-qoskit; do
    sed "s,@PREFIX@,$d,g" $here/$unit.service >"$d/$unit.service"
    # other units of this system may have faults of their own
    timeout 60 systemd-analyze verify --man=no "$d/$unit.service" >"$d/verify" 2>&1
    expect "systemd takes $unit.service" [ -z "$(grep -F "$unit" "$d/verify")" ]
    grep -F "$unit" "$d/verify"
    timeout 60 systemd-analyze security --offline=yes --threshold=35 "$d/$unit.service" >"$d/security" 2>&1
    expect "and finds it closed: $(tail -n 1 "$d/security" | tr -cd ' -~')" [ $? = 0 ]
done
# ---- units under a systemd of their own, in namespaces: each goes on; nginx's user can read the agent's tokens, and not its keys
printf 'd=%s kit=%s\n' "$d" "$PWD" >"$d/init"
cat >>"$d/init" <<'END'
ip link set lo up
# Bound before /run is covered: this tree may be below it.
mkdir "$d/run" && mount -t tmpfs tmpfs "$d/run" && mkdir -p "$d"/run/{work,kit} /srv && mount --bind "$d" "$d/run/work" && mount --bind "$kit" "$d/run/kit" &&
    mount --move "$d/run" /run && mount --bind -o ro /proc/sys /proc/sys
d=/run/work here=/run/kit/examples/operators build=/run/kit/build/examples
for t in /opt /srv /tmp /var/tmp /dev/shm /sys/fs/cgroup; do mount -t tmpfs -o mode=1777 tmpfs $t; done
mount -t cgroup2 none /sys/fs/cgroup
cp -r /etc /run/etc && mount --bind /run/etc /etc && mount -t tmpfs tmpfs /etc/systemd/system
mkdir -p /opt/bin /opt/lib/nbdkit/filters /srv/disks /etc/qoskit/keys /etc/nbdkit-qoskit
cp "$build"/{memcached_gate,cluster_agent,pshift_cluster} /opt/bin/
cp "$build/nbdkit-qoskit-filter.so" /opt/lib/nbdkit/filters/
printf '%s\n' "cluster http://127.0.0.1:2379" "name n2" "keys /run/memcached_gate/keys" | sed 's/reserve=[^,]*,*\|limit=[^,]*//g; s/,$//' "$here/memcached_gate.conf" - >/etc/memcached_gate.conf
echo 'qos-class=a,limit=1M' >/etc/nbdkit-qoskit/terms
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://127.0.0.1:2379
etcd --data-dir "$d/etcd" >"$d/etcd.log" 2>&1 </dev/null &
until etcdctl endpoint health >/dev/null 2>&1; do sleep 0.1; done
key() { (umask 077 && /opt/bin/pshift_cluster keys --name "$1" --keys /etc/qoskit/keys); }
etcdctl put qos/config/period 500ms
etcdctl put qos/config/controller/c1 "address=127.0.0.1:7000,key=$(key c1)"
etcdctl put qos/config/server/n1 "number=1,capacity=1000,key=$(key n1)"
etcdctl put qos/config/server/n2 "number=2,capacity=1000,key=$(key n2)"
etcdctl put qos/config/tenant/gold limit=100
echo "CLUSTER_AGENT=\"--name n1 --cluster $ETCDCTL_ENDPOINTS\"" >/etc/qoskit/cluster_agent.env
echo "PSHIFT_CONTROLLER=\"--name c1 --cluster $ETCDCTL_ENDPOINTS\"" >/etc/qoskit/pshift_controller.env
units=(cluster_agent pshift_controller memcached_gate nbdkit-qoskit)
for u in "${units[@]}"; do # without the units of this system
    sed "s,@PREFIX@,/opt,; /^After=\|^Wants=\|^Before=/d; s/^\[Unit\]/&\nDefaultDependencies=no/; s,^\[Service\],&\nStandardError=file:$d/$u.said," \
        "$here/$u.service" >/etc/systemd/system/$u.service
done
cat >/opt/look <<'LOOK'
d=$1
shift
as_nginx() { setpriv --reuid www-data --regid www-data --clear-groups cat "$1" >/dev/null; }
up() {
    etcdctl get --print-value-only qos/status/tenant/gold | grep -q 'in force' && as_nginx /run/qoskit/tokens || return
    for u in qoskit pshift_controller memcached_gate; do [ -s /run/$u/keys/n1.secret ] || return; done
}
for _ in $(seq 250); do up && break; sleep 0.1; done # 25 s or more; then what is not there is told
sleep 1
show() { systemctl show --value -p "$1" "$u"; }
for u in "$@"; do echo "$u $(show ActiveState) $(show NRestarts) $(show StartLimitIntervalUSec)"; done >"$d/looked.new"
as_nginx /run/qoskit/tokens && echo tokens read >>"$d/looked.new"
for u in qoskit pshift_controller memcached_gate; do [ -s /run/$u/keys/n1.secret ] && ! as_nginx /run/$u/keys/n1.secret && echo $u keys closed >>"$d/looked.new"; done
mv "$d/looked.new" "$d/looked"
LOOK
printf '[Unit]\nDefaultDependencies=no\n[Service]\nEnvironment=ETCDCTL_API=3 ETCDCTL_ENDPOINTS=%s\nExecStart=/bin/bash /opt/look %s %s\nStandardError=file:%s/look.said\n' \
    "$ETCDCTL_ENDPOINTS" "$d" "${units[*]}" "$d" >/etc/systemd/system/look.service
printf '[Unit]\nWants=look.service %s\n' "${units[*]/%/.service}" >/etc/systemd/system/all.target
export container=lxc
exec /lib/systemd/systemd --system --unit=all.target --show-status=no
END
# Its cgroup is removed behind it.
in_cgroup='mount -t cgroup2 none /sys/fs/cgroup && cd "/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)"' group=qoskit-$$
begin_group() { unshare -m bash -c "$in_cgroup && mkdir $group"; }
end_group() { unshare -m bash -c "$in_cgroup && find $group -depth -type d -exec rmdir {} +" 2>/dev/null; }
if has root && has namespaces && [ -x /lib/systemd/systemd ] && getent group www-data >/dev/null && begin_group; then
    chmod 755 "$d"
    unshare -m bash -c "$in_cgroup && echo 0 >$group/cgroup.procs && cd / && exec unshare -p -f -n -m -C -u -i --kill-child --mount-proc bash $d/init" \
        >"$d/systemd.log" 2>&1 </dev/null &
    pids+=($!)
    expect "a systemd runs the units" within_s 60 [ -s "$d/looked" ] || tail -n 3 "$d/systemd.log" "$d/look.said"
    for unit in cluster_agent pshift_controller memcached_gate nbdkit-qoskit; do
        expect "$unit.service runs, and was started once" grep -q "^$unit active 0 " "$d/looked" || tail -n 3 "$d/$unit.said"
    done
    expect "and would be started again however often it ended" [ "$(grep -c 'active 0 0$' "$d/looked")" = 4 ]
    expect "nginx's user can read the agent's tokens" grep -q '^tokens read' "$d/looked"
    expect "and no copies of keys" [ "$(grep -c 'keys closed$' "$d/looked")" = 3 ]
    kill -9 "${pids[-1]}"
    wait "${pids[-1]}" 2>/dev/null
    expect "nothing is left of them" within_s 20 end_group
else
    echo "the units did not run: that needs root, namespaces, a mount of cgroup2, /lib/systemd/systemd and a group www-data"
fi

# ---- settings to begin with
expect "the settings to begin with are right: the gate" "$gate" --check --settings $here/memcached_gate.conf
echo 'depth many' | cat $here/memcached_gate.conf - >"$d/wrong.conf"
expect "a wrong line is named" grep -q "wrong.conf:$(wc -l <"$d/wrong.conf"): " <("$gate" --check --settings "$d/wrong.conf" 2>&1)
nginx_takes() { # FILE
    printf 'load_module %s;\npid %s/pid;\nerror_log %s/error.log;\nevents { worker_connections 8192; }\nhttp { access_log off; include %s; }\n' \
        "$module" "$d" "$d" "$1" >"$d/nginx.conf"
    nginx -t -p "$d" -e "$d/error.log" -c "$d/nginx.conf" 2>"$d/nginx.said"
}
sed "s/127.0.0.1:8080/127.0.0.1:$((base + 4))/" $here/nginx_qos.conf >"$d/qos.conf"
expect "nginx" nginx_takes "$d/qos.conf"
sed -i '3s/limit=300m/limit=100m/' "$d/qos.conf"
expect "a wrong line is refused" eval '! nginx_takes "$d/qos.conf"'
expect "and named" grep -q "qos.conf:3$" "$d/nginx.said"

# ---- alerts
expect "the alerts are well formed" promtool check rules $here/qoskit.rules.yml
cp $here/qoskit.rules*.yml "$d/"
expect "they fire when they should" promtool test rules "$d/qoskit.rules.test.yml"
sed -i 's/< 0.95 \*/< 0.45 */' "$d/qoskit.rules.yml"
expect "this test can fail" [ "$(promtool test rules "$d/qoskit.rules.test.yml" >/dev/null 2>&1; echo $?)" != 0 ]

# ---- a Prometheus
user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
memcached "${user[@]}" -l 127.0.0.1 -p $base -U 0 >/dev/null 2>&1 </dev/null &
pids+=($!)
"$gate" --listen 127.0.0.1:$((base + 1)) --memcached 127.0.0.1:$base --metrics 127.0.0.1:$((base + 2)) --bucket name=gold,key=gold:,reserve=100 >/dev/null 2>&1 </dev/null &
pids+=($!)
cat >"$d/prometheus.yml" <<END
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [$PWD/$here/qoskit.rules.yml]
scrape_configs: [{job_name: gate, static_configs: [{targets: ["127.0.0.1:$((base + 2))"]}]}]
END
prometheus --config.file="$d/prometheus.yml" --storage.tsdb.path="$d/tsdb" --web.listen-address=127.0.0.1:$((base + 3)) >"$d/prometheus.log" 2>&1 </dev/null &
pids+=($!)
api() { curl -s --max-time 20 -G "http://127.0.0.1:$((base + 3))/api/v1/$1" "${@:2}"; }
within_s 60 listens $((base + 1)) || bad "the gate does not listen"
for _ in 1 2 3; do printf 'set gold:a 0 0 1\r\nx\r\nget gold:a\r\nquit\r\n' | timeout 20 bash -c "exec 3<>/dev/tcp/127.0.0.1/$((base + 1)); cat >&3; cat <&3" >/dev/null; done
loaded() { api rules | jq -e '[.data.groups[].rules[] | select(.health == "ok") | .name] == ["ReservationMissed", "RequestsRefused"]' >/dev/null; }
expect "Prometheus has loaded the alerts, and evaluates them" within_s 90 loaded
has_data() { api query --data-urlencode "query=$1" | jq -e '.status == "success" and (.data.result | length > 0)' >/dev/null; }
queries=0
while IFS= read -r query; do
    queries=$((queries + 1))
    expect "the dashboard's query has data: $query" within_s 60 has_data "$query"
done < <(jq -r '.panels[].targets[].expr' $here/memcached_gate.dashboard.json)
expect "all queries ($queries)" [ $queries -ge 8 ]
expect "each panel has a title, a unit and a place" json $here/memcached_gate.dashboard.json \
    '[.panels[] | (.title != "") and (.gridPos.w > 0) and (.fieldConfig.defaults.unit != "")] | all'
[ $failed = 0 ] || tail -n 5 "$d/prometheus.log"
finish $failed
