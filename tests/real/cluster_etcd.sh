#!/usr/bin/env bash
# proves: a cluster on etcd: three members with users and roles, two controllers, four gates before memcached. Contracts change while
# it runs; a refused one says why and changes nothing; tenants and servers come and go without a restart. The active controller,
# etcd's leader, a gate, a memcached and all of etcd are killed; a controller stands still, and it, the leader and a gate are cut off;
# a member loses its disk; clocks are an hour wrong, and step; qos/owner is damaged, an old backup restored. At the clients no
# window of a period has more than two limits of a tenant. Each has its own network namespace. QOS_LONG=N: N rounds of all faults.
# needs: root namespaces loopback
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/pshift_cluster gate=$PWD/build/examples/memcached_gate client=$PWD/tests/real/peers/gate_client.pl
for t in "$tool" "$gate"; do [ -x "$t" ] || make -s "build/examples/$(basename "$t")" || exit 1; done
work=$(work_dir cluster_etcd) && memory=$(memory_dir) || exit 1
failed=0 hub=qe$$
declare -A pid key
spaces=()
clean_up() {
    local s
    kill -9 "${pid[@]}" 2>/dev/null
    wait 2>/dev/null
    for s in "${spaces[@]}"; do ip netns del "$s" 2>/dev/null; done
    rm -rf "$work" "$memory"
}
trap clean_up EXIT

# ---- the network: a bridge, and a cable to each host; the client and etcdctl are at the bridge
declare -A at=([e1]=10.78.0.1 [e2]=10.78.0.2 [e3]=10.78.0.3 [c1]=10.78.0.11 [c2]=10.78.0.12 [g1]=10.78.0.21 [g2]=10.78.0.22 [g3]=10.78.0.23 [g4]=10.78.0.24)
space() { ip netns add "$1" && spaces+=("$1") && ip -n "$1" link set lo up; }
host() { # NAME
    space "$hub$1" && ip link add "x$1" netns "$hub$1" type veth peer name "p$1" netns "$hub" && ip -n "$hub" link set "p$1" master br0 up &&
        ip -n "$hub$1" addr add "${at[$1]}/24" dev "x$1" && ip -n "$hub$1" link set "x$1" up
}
space "$hub" && ip -n "$hub" link add br0 type bridge && ip -n "$hub" link set br0 up && ip -n "$hub" addr add 10.78.0.254/24 dev br0 ||
    { bad "no network namespaces here"; exit 1; }
for h in "${!at[@]}"; do host "$h" || { bad "no host $h"; exit 1; }; done
on() { # NAME COMMAND...: replaces a subshell
    local name=$1
    shift
    exec ip netns exec "$hub$name" "$@"
}
here() { ip netns exec "$hub" "$@"; }
gcc -std=gnu11 -O1 -shared -fPIC -o "$work/bad_host.so" tests/real/peers/bad_host.c || exit 1

# ---- etcd: members e1, e2, e3
urls=() peers=()
for k in 1 2 3; do urls+=("https://${at[e$k]}:2379") peers+=("e$k=http://${at[e$k]}:2380"); done
url=$(IFS=,; echo "${urls[*]}") data=$memory/data
user=()
{ # TLS: who asks checks the server by a CA of ours
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout "$work/ca.key" -out "$work/ca.pem"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=etcd -keyout "$work/etcd.key" -out "$work/etcd.csr"
    echo "subjectAltName=IP:${at[e1]},IP:${at[e2]},IP:${at[e3]}" >"$work/san"
    openssl x509 -req -in "$work/etcd.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 -extfile "$work/san" -out "$work/etcd.pem"
} >"$work/openssl.out" 2>&1 || { bad "no certificates"; tail -3 "$work/openssl.out"; exit 1; }
export ETCDCTL_API=3
store() { here timeout 10 etcdctl --cacert "$work/ca.pem" --endpoints "$url" "${user[@]}" "$@"; }
begin_member() { # 1 [OPTION...]
    on "e$1" etcd --cert-file "$work/etcd.pem" --key-file "$work/etcd.key" --name "e$1" --data-dir "$data$1" --listen-client-urls "${urls[$1 - 1]}" --advertise-client-urls "${urls[$1 - 1]}" \
        --listen-peer-urls "${peers[$1 - 1]#*=}" --initial-advertise-peer-urls "${peers[$1 - 1]#*=}" \
        --initial-cluster "$(IFS=,; echo "${peers[*]}")" --heartbeat-interval 50 --election-timeout 500 --bcrypt-cost 4 "${@:2}" >>"$work/etcd.out" 2>&1 </dev/null &
    pid[e$1]=$!
}
begin_etcd() {
    for k in 1 2 3; do begin_member $k; done
    within_s 30 store endpoint health >>"$work/etcd.out" 2>&1
}
kill_now() { # NAME...
    local k
    for k; do
        kill -9 "${pid[$k]}"
        wait "${pid[$k]}" 2>/dev/null
        unset "pid[$k]"
    done
}
begin_etcd || { bad "etcd does not start"; tail -5 "$work/etcd.out"; exit 1; }

# ---- two processes swap one key at one time: one of them succeeds; a swap that compares nothing is noticed
swapper() { # NAME ETCD.C: builds $work/NAME
    gcc -std=gnu11 -O1 $C_WARNINGS -D_GNU_SOURCE -I. -Iexamples/common -Iexamples/cluster_agent -o "$work/$1" tests/real/peers/etcd_swap.c "$2" \
        examples/cluster_agent/reply.c build/examples/objects/common/*.o -lcurl -ljson-c -lm || bad "$1 does not compile"
}
both_ready() { [ "$(cat "$work"/swap? | grep -c ready)" = 2 ]; }
swaps() { # PROGRAM TURNS: says how many turns had exactly one winner; one without both answers is had again, three times as many at most
    local turn=0 tries one=0 k
    mkfifo "$work/go1" "$work/go2"
    for ((tries = 0; turn < $2 && tries < 4 * $2; tries++)); do
        for k in 1 2; do here "$work/$1" "${urls[0]}" "$work/ca.pem" swapped $k <"$work/go$k" >"$work/swap$k" & pid[swap$k]=$!; done
        exec 8>"$work/go1" 9>"$work/go2"
        within_s 10 both_ready || bad "$1: a reader is not ready"
        echo >&8
        echo >&9
        exec 8>&- 9>&-
        wait "${pid[swap1]}" "${pid[swap2]}"
        [ "$(cat "$work"/swap? | grep -cE '^(swapped|refused)$')" = 2 ] || continue
        turn=$((turn + 1))
        [ "$(cat "$work"/swap? | grep -c '^swapped$')" != 1 ] || one=$((one + 1))
    done
    unset "pid[swap1]" "pid[swap2]"
    rm "$work/go1" "$work/go2"
    echo "$one of $turn"
}
swapper swap examples/cluster_agent/etcd.c
expect "of two swaps at one time exactly one succeeds, 5 times of 5" [ "$(swaps swap 5)" = "5 of 5" ]
mkdir "$work/planted" && cp examples/cluster_agent/etcd.c "$work/planted/"
tests/build/plant.pl apply tests/plants/cluster_agent/etcd.txt swap_compares_nothing "$work/planted" || bad "the bug cannot be planted"
swapper planted_swap "$work/planted/etcd.c"
expect "a swap that compares nothing is noticed" [ "$(swaps planted_swap 2)" = "0 of 2" ]

# ---- users: nodes read only, controllers alone write qos/owner and qos/status/, operators write contracts
admin() { # again while etcd elects a leader; then what is there already was done by a call whose answer was lost
    local said tries
    for tries in 1 2 3 4 5; do
        said=$(store "$@" 2>&1) && return
        echo "$said" >>"$work/etcd.out"
        [[ $tries = 1 || $said != *already* ]] || return 0
    done
    bad "etcdctl $*: $said"
}
for u in root node controller operator; do admin user add "$u:$u-secret"; done
for u in node controller operator; do
    admin role add "$u"
    admin role grant-permission "$u" read --prefix=true qos/
    admin user grant-role "$u" "$u"
    (umask 077 && echo "$u:$u-secret" >"$work/$u.login")
done
admin role grant-permission controller readwrite qos/owner
admin role grant-permission controller readwrite --prefix=true qos/status/
admin role grant-permission operator readwrite --prefix=true qos/config/
admin user grant-role root root
admin auth enable
as() { user=(--user "$1:$1-secret"); }
as operator
again() { # COMMAND...: of etcdctl, while etcd elects a leader
    for _ in 1 2 3 4 5; do ! store "$@" >>"$work/etcd.out" 2>&1 || return 0; done
    return 1
}
put() { again put "$@"; } # KEY VALUE
config() { put "qos/config/$1" "$2" || bad "qos/config/$1 is not written"; }
value() { store get --print-value-only "$1" 2>>"$work/etcd.out"; }
expect "an operator may not write qos/owner" [ -z "$(store put qos/owner '9 0 0' 2>/dev/null)" ]
as node
expect "who does not know the CA is not answered" [ -z "$(here timeout 10 etcdctl --endpoints "${urls[0]}" "${user[@]}" get qos/config/period 2>/dev/null)" ]
expect "a node may not write a contract" [ -z "$(store put qos/config/tenant/gold limit=9 2>/dev/null)" ]
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=other -keyout "$work/other.key" -out "$work/other.pem" 2>>"$work/openssl.out"
on c1 "$tool" controller --name c1 --keys "$work/none" --cluster "$url" --etcd-ca "$work/other.pem" >"$work/other.out" 2>&1 </dev/null & pid[other]=$!
expect "a controller that does not know the CA says so" within_s 30 grep -q 'etcd: SSL certificate problem: ' "$work/other.out"
kill_now other
as operator

# ---- the cluster
for p in c1 c2 g1 g2 g3 g4; do key[$p]=$("$tool" keys --name $p --keys "$work/keys") || bad "no key of $p"; done
config period 500ms
for k in 1 2; do config controller/c$k "address=${at[c$k]}:7000,key=${key[c$k]}"; done
for k in 1 2 3; do config server/g$k "number=$k,capacity=4000,key=${key[g$k]}"; done
contract() { # TENANT TEXT [LIMIT PER PERIOD]: and when, for the judge
    local begun
    begun=$(date +%s%3N)
    config "tenant/$1" "$2"
    echo "$begun ${3:-0} $(date +%s%3N)" >>"$work/$1.limits"
}
# A controller reads a contract within a second. On a busy machine it is later: the last contract counts from then on.
read_now() { # TENANT
    local late
    late=$(($(date +%s%3N) - $(tail -n 1 "$work/$1.limits" | cut -d' ' -f3) - 1000))
    [ $late -le 0 ] || sed -i "\$s/[0-9]*$/$(($(date +%s%3N) - 1000))/" "$work/$1.limits"
    expect_time "the contract of $1 is in force within 2 s" [ $late -le 1000 ]
}
contract gold reserve=100,limit=400 200
owner=()
[ "$(id -u)" -ne 0 ] || owner=(-u nobody)
start() { # c1, g2, m3; ahead: seconds that its wall clock is
    local k=${1#?} bad=(env)
    [ -z "${ahead:-}" ] || bad=(env "LD_PRELOAD=$work/bad_host.so" "CLOCK_AHEAD_S=$ahead")
    case $1 in
    c*) on "$1" "${bad[@]}" "$tool" controller --name "$1" --keys "$work/keys" --cluster "$url" --etcd-ca "$work/ca.pem" --etcd-login "$work/controller.login" ;;
    g*) on "$1" "${bad[@]}" "$gate" --listen "${at[$1]}:11311" --memcached 127.0.0.1:11211 --name "$1" --keys "$work/keys" \
        --cluster "$url" --etcd-ca "$work/ca.pem" --etcd-login "$work/node.login" --threads 1 --bucket name=gold,key=gold: --bucket name=silver,key=silver: ;;
    m*) on "g$k" memcached "${owner[@]}" -l 127.0.0.1 -p 11211 -U 0 -t 1 ;;
    esac >>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
    pid[$1]=$!
}
for p in m1 m2 m3 m4 c1 g1 g2 g4; do start $p; done
for p in c2 g3; do ahead=3600 start $p; done
settled() { cat "$work"/c?.out | grep -q 'active; 0 of 3 nodes silent, 0 awaited'; }
within_s 60 settled || { bad "the cluster does not settle"; tail -n 3 "$work"/[cg]*.out "$work"/*.err; exit 1; }
ports=() each=2
for k in 1 2 3 4; do ports+=("${at[g$k]}:11311"); done
for t in gold silver; do
    nice -n -5 ip netns exec "$hub" "$client" ${QOS_LONG:+1}300 "$work/$t.seen" $t:1 $each "${ports[@]}" & pid[$t]=$!
done
served() { awk -v p="${2:-}" '$3 == 1 && (p == "" || p == $2)' "$work/$1.seen" 2>/dev/null | wc -l; }
more() { [ "$(served "$1" "${3:-}")" -gt $(($2 + ${4:-20})) ]; } # TENANT BEFORE [PORT [REQUESTS]]
serves() { within_s 30 more "$1" "$(served "$1" "${2:-}")" "${2:-}"; } # TENANT [PORT]
stopped() { # TENANT [PORT]: after the periods that were begun
    local before
    sleep 1.2 # two periods, and what they still answer
    before=$(served "$1" "${2:-}")
    sleep 0.6
    [ "$(served "$1" "${2:-}")" = "$before" ]
}
stops() { # WHAT TENANT [PORT]
    if stopped "${@:2}"; then ok "$1"
    elif within_s 10 stopped "${@:2}"; then expect_time "$1 after the periods that were begun" false
    else bad "$1"; fi
}
number() { # that of qos/owner, once etcd has answered
    local text=
    for _ in 1 2 3 4 5; do text=$(value qos/owner) && [ -n "$text" ] && break; done
    echo "${text%% *}"
}
status_has() { value "qos/status/$1" | grep -q -- "$2"; }

plain() { value qos/owner | grep -qE '^[0-9]+ [0-9a-f]{16} [0-9a-f]{16} 500000000$'; }
expect "etcdctl shows the owner in plain text" within_s 30 plain
expect "the tenant is served" serves gold
expect "on each gate that etcd names" serves gold "${ports[2]}"
expect "its status says what is in force" status_has tenant/gold '^in force: reserve=100,limit=400$'
expect "a gate that etcd does not name serves nothing" [ "$(served gold "${ports[3]}")" = 0 ]
expect "a bucket without a contract is not served" [ "$(served silver)" = 0 ]
here etcdctl --cacert "$work/ca.pem" --endpoints "${urls[0]}" --user root:root-secret snapshot save "$work/backup" >>"$work/etcd.out" 2>&1 || bad "no backup"
old=$(number)

# ---- contracts change
sleep 1
begin=$(date +%s%3N)
watch_mark
sleep 2
quiet=$(awk -v from="$begin" '$1 >= from && $3 == 1' "$work/gold.seen" | wc -l)
expect_time "in two quiet seconds at least the reservation was served ($quiet of 200 to $((2000 * 4 / 10 + 200)))" [ "$quiet" -ge 200 ]
contract gold reserve=50,limit=200 100
expect "a changed contract comes into force" within_s 30 status_has tenant/gold '^in force: reserve=50,limit=200$'
read_now gold
contract gold reserve=50,limit=many 100
expect "a text that is none is refused, and what was in force stays" within_s 30 status_has tenant/gold '^in force: reserve=50,limit=200; refused: limit= is'
contract gold reserve=50,limit=400,limit=300 100
expect "so is one with two limits" within_s 30 status_has tenant/gold '^in force: reserve=50,limit=200; refused: .*twice'
contract gold reserve=13k,limit=14k 100
expect "a reservation that does not fit is refused" within_s 30 status_has tenant/gold '^in force: reserve=50,limit=200; refused: reserve= does not fit: 12000 '
contract gold reserve=100,limit=400 200
contract silver limit=100 50
expect "a tenant that is added is served" serves silver
again del qos/config/tenant/silver || bad "the tenant is not removed"
stops "one that is removed is not" silver

# ---- servers come and go
config server/g4 "number=1,capacity=4000,key=${key[g4]}"
expect "a number that is another server's is refused" within_s 30 status_has server/g4 "^refused: number=1 is g1's"
config server/g4 "number=4,capacity=4000,key=${key[g4]}"
expect "a server that is added serves" serves gold "${ports[3]}"
[ $failed = 0 ] || { store get --prefix qos/status; tail -n 5 "$work"/c?.out "$work"/[cg]?.err; }
again del qos/config/server/g4 || bad "the server is not removed"
stops "one that is removed does not" gold "${ports[3]}"

# ---- kills, and links that are cut
active() { # the last period that was reported, and the controller that was active in it
    grep -H ': active; ' "$work"/c?.out | sed 's,.*/\(c[12]\).out:.*period \([0-9]*\): .*,\2 \1,' | sort -n | tail -1
}
took_over() { # PERIOD FROM: also if the roles had changed just before
    local period by
    read -r period by < <(active)
    [ "$period" -gt "$1" ] && [ "$by" != "$2" ]
}
leader() { # e2
    local host
    host=$(store endpoint status -w json 2>/dev/null | jq -r '.[] | select(.Status.leader == .Status.header.member_id) | .Endpoint' | sed 's,https://,,;s,:.*,,')
    for k in 1 2 3; do [ "${at[e$k]}" != "$host" ] || echo e$k; done
}
has_leader() { who=$(leader) && [ -n "$who" ]; } # of faults
cut_off() { ip -n "$hub" link set "p$1" down; }
join() { ip -n "$hub" link set "p$1" up; }
faults() {
    local was who since
    read -r was who < <(active)
    since=$(date +%s%3N)
    kill_now "$who"
    expect "another controller takes over from one that is killed" within_s 30 took_over "$was" "$who"
    echo "after $(($(date +%s%3N) - since)) ms, of which a period that was owned has 500"
    expect "and the cluster serves" serves gold
    ahead=-7200 start "$who" # a clock that stepped
    sleep 1.5 # it stands by
    read -r was who < <(active)
    cut_off "$who"
    expect "and from one that is cut off" within_s 30 took_over "$was" "$who"
    expect "and the cluster serves" serves gold
    join "$who"
    sleep 1.5
    read -r was who < <(active)
    kill -STOP "${pid[$who]}"
    expect "and from one that stands still" within_s 30 took_over "$was" "$who"
    kill -CONT "${pid[$who]}" # it does not know yet
    expect "which then does not own a period any more: the cluster serves" serves gold
    within_s 20 has_leader || { bad "etcd has no leader"; return; }
    kill_now "$who"
    expect "the cluster serves after etcd's leader was killed" serves gold
    begin_member "${who#e}"
    sleep 1
    within_s 20 has_leader || { bad "etcd has no leader"; return; }
    cut_off "$who"
    sleep 0.6
    expect "and while the leader is cut off" serves gold
    join "$who"
    kill_now g2
    start g2
    expect "a gate that was killed serves again" serves gold "${ports[1]}"
    cut_off g1
    sleep 1.2
    expect "while a gate is cut off the others serve" serves gold "${ports[1]}"
    join g1
    expect "and it does, when it is back" serves gold "${ports[0]}"
    kill_now m3
    start m3
    expect "a gate whose memcached was killed serves again" serves gold "${ports[2]}"
}
for ((k = 0; k < ${QOS_LONG:-1}; k++)); do faults; done
kill_now e3
rm -rf "${data}3"
as root
listed() { store member list >"$work/members" 2>>"$work/etcd.out" && sed -n "s,^\([0-9a-f]*\)\, .*${peers[2]#*=}.*,\1,p" "$work/members"; }
# etcd refuses both for 5 s after a member, or the leader, was away.
removed() { lost=$(listed) && { [ -z "$lost" ] || { store member remove "$lost" >>"$work/etcd.out" 2>&1 && false; }; }; }
added() { [ -n "$(listed)" ] || { store member add e3 --peer-urls="${peers[2]#*=}" >>"$work/etcd.out" 2>&1 && false; }; }
within_s 30 removed && within_s 30 added || bad "the member is not replaced"
begin_member 3 --initial-cluster-state existing
has_three() { [ "$(store endpoint health 2>&1 | grep -c 'is healthy')" = 3 ]; }
expect "a member of etcd that lost its disk is replaced" within_s 20 has_three
as operator
expect "and the cluster serves" serves gold

# ---- without etcd; a damaged key; an old backup: the procedure is that of examples/README.md
kill_now e1 e2 e3
mv "$work/node.login" "$work/away"
stops "without etcd nothing is served under a limit" gold
expect "a gate goes on while its login is missing" kill -0 "${pid[g1]}"
mv "$work/away" "$work/node.login"
begin_etcd || bad "etcd does not start again"
expect "with etcd the cluster serves again" serves gold
last=$(number)
as root
put qos/owner '18446744073709551615 0 0' || bad "the number is not damaged"
as operator
expect "a damaged qos/owner is told in qos/status/owner" within_s 30 status_has owner 'damaged.*put a number above'
stops "and nothing is served under a limit" gold
as root
put qos/owner "$((last + 100)) 0 0" || bad "the number is not repaired"
as operator
expect "once it is repaired the cluster serves again" serves gold
expect "and its status says so" within_s 30 status_has owner '^good$'
last=$(number)
kill_now c1 c2
as root
again del qos/owner || bad "qos/owner is not deleted"
as operator
for k in c1 c2; do start $k; done
expect "a qos/owner that was deleted while no controller ran is told in qos/status/owner" within_s 60 status_has owner 'is behind: server . knows period [1-9]'
as root
put qos/owner "$((last + 200)) 0 0" || bad "the number is not moved"
as operator
expect "with the number moved up the cluster serves again" serves gold
expect "and the status says so" within_s 30 status_has owner '^good$'
last=$(number)
kill_now e1 e2 e3
for k in 1 2 3; do
    etcdctl snapshot restore "$work/backup" --name e$k --initial-cluster "$(IFS=,; echo "${peers[*]}")" \
        --initial-advertise-peer-urls "${peers[k - 1]#*=}" --data-dir "$memory/restored$k" >>"$work/etcd.out" 2>&1 || bad "no restore"
done
data=$memory/restored
begin_etcd || bad "the restored etcd does not start"
as root
put qos/owner "$((last + 1000)) 0 0" || bad "the number is not moved"
as operator
expect "after a restore and with the number moved up the cluster serves again" serves gold
expect "the backup was old ($old, $last)" [ "$old" -lt "$last" ]
expect "and no period is used again ($(number))" [ "$(number)" -gt $((last + 1000)) ]

for k in c1 c2 g1 g2 g3 g4; do kill -TERM "${pid[$k]}"; done
for k in c1 c2 g1 g2 g3 g4; do
    wait "${pid[$k]}"
    case $? in 0 | 130) ;; *) bad "$k ends with status $?: $(tail -2 "$work/$k.err")" ;; esac
    unset "pid[$k]"
done
kill "${pid[gold]}" "${pid[silver]}"
wait "${pid[gold]}" "${pid[silver]}" 2>/dev/null
unset "pid[gold]" "pid[silver]"
said=$(cat "$work"/[cg]?.err | grep -vE 'qos/owner (is damaged|fell|is behind): |etcd: |standstill|waits for the key qos/config/server/g4|memcached' | head -5)
expect "nobody had anything else to complain of" [ -z "$said" ]
echo "$said"

# TENANT PERCENT OF THE LIMIT: prints windows, those above, the fullest
judge() { awk -v percent="$2" -v each=$((4 * each)) -f tests/real/peers/windows.awk "$work/$1.limits" "$work/$1.seen"; }
for t in gold silver; do
    read -r windows over worst < <(judge $t 100)
    echo "$t: $windows windows, $over with more than two limits; the fullest has $worst requests"
    expect "$t: no window of a period has more than two limits" [ "$over" = 0 ]
    expect "$t: there was something to judge" [ "$windows" -ge 20 ]
done
read -r windows over worst < <(judge gold 30)
expect "the judge finds windows above when the limit was a third" [ "$over" -gt 0 ]
finish $failed
