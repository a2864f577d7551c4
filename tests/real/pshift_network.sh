#!/usr/bin/env bash
# proves: pshift_cluster as processes over ZeroMQ: 8 nodes with memcached and two controllers, each in its own network
# namespace, survive SIGKILL of any process and partitions. No bucket is ever served above its limit; every reservation
# is met from the second period after a fault on. A node that is gone for good stops no other at the next takeover; if
# half of all are gone, the others go on. No node writes to a disk but for its journal. A clock that is wrong does not
# matter, nor does a disk on which a sync takes longer than a period. A node with unknown keys gets and reports nothing; a
# hostile node with keys deposes no controller and takes nothing.
# needs: root namespaces loopback
#
# By default one node and the active controller are killed, another node with the latter, for good, and one node's links,
# through a relay, are half open, then slow. QOS_LONG=1: 20 kills, 5 partitions, and 5 times each half open, slow, reset. The verdict comes from the
# journals: each node writes what it is about to serve before it serves it. A missed reservation does not count if the
# machine was too busy: in that period or the one before, a node of the bucket lost more than 4 % of its slots, or the
# controller woke 50 ms late. Any other miss is a failure, and so is an exceeded limit. A node that stood still for more
# than a period writes all its lost slots when it wakes; they belong to the periods before, too.
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/pshift_cluster
[ -x "$tool" ] || make -s build/examples/pshift_cluster || exit 1
[ "$(id -u)" = 0 ] || { echo "SKIP pshift_network: network namespaces need root"; exit 77; }
programs=$(work_dir pshift_network) || exit 1
work=$(memory_dir) || exit 1 # journals: other tests' writes make no node wait
failed=0 hub=qh$$ nodes=8 long=${QOS_LONG:-}
declare -A pid address
spaces=()
clean_up() {
    local s
    kill -9 "${pid[@]}" 2>/dev/null
    for s in "${spaces[@]}"; do
        ip netns pids "$s" 2>/dev/null | xargs -r kill -9
        ip netns del "$s" 2>/dev/null
    done
    rm -rf "$work" "$programs"
}
trap clean_up EXIT

# ---- the network: a bridge, and a cable to each host
space() { ip netns add "$1" && spaces+=("$1"); }
host() { # NAME ADDRESS
    space "$hub$1" && ip -n "$hub$1" link set lo up &&
        ip link add "e$1" netns "$hub$1" type veth peer name "p$1" netns "$hub" && ip -n "$hub" link set "p$1" master br0 up &&
        ip -n "$hub$1" addr add "$2/24" dev "e$1" && ip -n "$hub$1" link set "e$1" up && address[$1]=$2
}
space "$hub" && ip -n "$hub" link add br0 type bridge && ip -n "$hub" link set br0 up || { echo "no network namespaces here"; exit 1; }
for k in 1 2; do host "c$k" "10.77.0.10$k" || exit 1; done
for ((k = 1; k <= nodes; k++)); do host "n$k" "10.77.0.$k" || exit 1; done
host stranger 10.77.0.50 || exit 1
host relay 10.77.0.60 || exit 1
gcc -std=gnu11 -O1 -I. -o "$programs/hostile" tests/real/peers/pshift_hostile.c -lzmq || exit 1
gcc -std=gnu11 -O1 -shared -fPIC -o "$programs/bad_host.so" tests/real/peers/bad_host.c || exit 1

# ---- the cluster: two buckets on all nodes, six on four nodes each; half of the capacity is reserved
common=(--node-count "$nodes" --controllers "10.77.0.101:7000,10.77.0.102:7000" --capacity 300 --period 1s --intervals 5
    --objects 200 --workers 2)
on=(1-4 3-6 5-8 1+2+7+8 1+3+5+7 2+4+6+8 1-8 1-8)
for b in "${on[@]}"; do common+=(--bucket "reserve=0.5,limit=0.7,on=$b"); done
reservation=150 limit=210
"$tool" keys "${common[@]}" --keys "$work/keys" >"$work/keys.out" || exit 1
echo pass >"$work/mode"
ip netns exec "${hub}relay" python3 tests/real/pshift_relay.py "$work/mode" 7001=10.77.0.101:7000 7002=10.77.0.102:7000 \
    2>"$work/relay.err" </dev/null &
pid[relay]=$!
start() { # c1, n3, options; n6 goes through the relay, the disks of n4 and the controllers are slow; ahead: seconds
    local role=node number=${1#?} more=(--journal "$work/$1.journal") bad=(env "CLOCK_AHEAD_S=${ahead:-0}")
    local common=("${common[@]}")
    [ "$1" != n6 ] || common=("${common[@]/10.77.0.101:7000,10.77.0.102:7000/10.77.0.60:7001,10.77.0.60:7002}")
    [ "${1%%[0-9]*}" = n ] || { role=controller; more=(--owner "file:$work/owner"); }
    [ "$1" != n4 ] || bad+=(SLOW_SYNC_MS=800 "SLOW_SYNC_LOG=$work/syncs")
    [ $role != controller ] || bad+=(SLOW_SYNC_MS=1500) # longer than a period
    [ $role = node ] && [ "$1" != n4 ] || bad+=("LD_PRELOAD=$programs/bad_host.so")
    ip netns exec "$hub$1" "${bad[@]}" "$tool" $role --number "$number" "${common[@]}" --keys "$work/keys" "${more[@]}" \
        >>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
    pid[$1]=$!
}
now() { cut -d" " -f1 "$work/owner"; } # the number of the period
says() { grep -c "$2" "$work/$1.out" 2>/dev/null; }
settled() { cat "$work"/c?.out | grep -q 'active; 0 of 8 nodes silent, 0 awaited'; }
active() { # the controller that last reported being active
    grep -H ': active; ' "$work"/c?.out | sed 's,.*/\(c[12]\).out:.*period \([0-9]*\): .*,\2 \1,' | sort -n | tail -1 | cut -d' ' -f2
}
faults=() # "FIRST LAST" periods
fault() { faults+=("$1 $2"); echo "fault in periods $1 to $2: $3"; }

for k in 1 2; do start "c$k"; done
for ((k = 1; k <= nodes; k++)); do start "n$k"; done
within_s 60 settled || { bad "the cluster does not settle"; tail -n 3 "$work"/*.out "$work"/*.err; exit 1; }
first=$(($(now) + 2))
watch_mark
sleep 3

serves_again() { [ "$(says "$1" serves)" -gt "$2" ]; }
kill_process() { # NAME: SIGKILL, back after half a second; with a controller the rest of its period is lost, too
    local began served more=0
    began=$(now)
    served=$(says "$1" serves)
    kill -9 "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null
    sleep 0.5
    start "$1"
    case $1 in n*) within_s 60 serves_again "$1" "$served" ;; *) more=1 ;; esac
    fault "$began" "$(($(now) + more))" "SIGKILL $1"
}
cut_off() { # NAME SECONDS
    local began
    began=$(now)
    ip -n "$hub" link set "p$1" down
    sleep "$2"
    ip -n "$hub" link set "p$1" up
    fault "$began" "$(now)" "$1 cut off for $2 s"
}
link_of_n6() { # MODE SECONDS
    local began
    began=$(now)
    echo "$1" >"$work/mode"
    sleep "$2"
    echo pass >"$work/mode"
    sleep 0.2
    fault "$began" "$(now)" "links of n6: $1 for $2 s"
}
if [ -z "$long" ]; then
    kill_process n3
    sleep 3
    kill -9 "${pid[n7]}" # for good
    wait "${pid[n7]}" 2>/dev/null
    unset 'pid[n7]'
    kill_process "$(active)"
    sleep 4.5
    served=$(says n7 serves)
    start n7
    within_s 60 serves_again n7 "$served"
    fault "$(now)" "$(now)" "n7 is back after all"
    link_of_n6 hold 1.5
    sleep 3
else
    for ((k = 0; k < 25; k++)); do
        case $((k % 5)) in
        0 | 2) kill_process "n$((RANDOM % nodes + 1))" ;;
        1) kill_process "$(active)" ;;
        3) kill_process "c$((RANDOM % 2 + 1))" ;;
        *) if [ $((k % 2)) = 0 ]; then cut_off "n$((RANDOM % nodes + 1))" 2; else cut_off "$(active)" 3; fi ;;
        esac
        sleep 4
    done
    for ((k = 0; k < 15; k++)); do
        case $((k % 3)) in
        0) link_of_n6 hold $((k % 4 + 1)) ;;
        1) link_of_n6 "delay 0.$((k * 6 + 5))" 3 ;;
        *) link_of_n6 cut $((k % 2 + 1)) ;;
        esac
        sleep 4
    done
fi

# ---- a hostile node with the key of node 8 lies, floods and takes names, for 2 to 3 s, so in a whole period, while the links of n6
# are slow
deposed=$(cat "$work"/c?.out | grep -c 'takes over')
began=$(now)
echo delay 0.15 >"$work/mode"
now_active=$(active)
ip netns exec "${hub}stranger" "$programs/hostile" "$work/keys" 8 "${now_active#c}" "tcp://${address[$now_active]}:7000" 3 >"$work/hostile.out" || bad "the hostile node did not run"
echo pass >"$work/mode"
sleep 0.2
fault "$began" "$(now)" "a hostile node, $(cat "$work/hostile.out"); links of n6 slow"
lies="$began $(now)" # does not affect buckets that are neither on node 8 nor on node 6
owner=$(awk -v from="$began" -v to="$(now)" '$1 > from && $1 < to && $2 > 0 {served += $3} END {print served + 0}' "$work/n5.journal")

kill_process n8 # it acts as node 8 again

# ---- a stranger that knows the controllers' public keys and makes its own
"$tool" keys "${common[@]}" --keys "$work/strange" >"$work/keys.out" && cp "$work"/keys/controller-*.public "$work/strange"
ip netns exec "${hub}stranger" "$tool" node --number 3 "${common[@]}" --keys "$work/strange" --journal "$work/stranger" \
    >"$work/stranger.out" 2>&1 </dev/null &
pid[stranger]=$!
sleep 3
serves() { grep -qs serves "$work/$1.out"; }
expect "a node with unknown keys runs" within_s 30 serves stranger
last=$(($(now) - 1))
expect_time "node 5, whose name it took, kept its grants ($owner requests)" [ "$owner" -gt 0 ]
expect_time "the hostile node deposed no controller" [ "$(cat "$work"/c?.out | grep -c 'takes over')" = "$deposed" ]
expect "and serves nothing" [ -z "$(awk '$2 > 0' "$work/stranger")" ]

# ---- half of the nodes and the controllers are gone. The clock of the first new controller is half a minute ahead.
for k in n5 n6 n7 n8 c1 c2; do
    kill -9 "${pid[$k]}"
    wait "${pid[$k]}" 2>/dev/null
    unset "pid[$k]"
done
gone=$(now)
took_over() { [ "$(says "$1" 'takes over')" -gt "$2" ]; }
taken1=$(says c1 'takes over') taken2=$(says c2 'takes over')
ahead=30 start c1
expect "a controller whose clock is ahead takes over" within_s 60 took_over c1 "$taken1"
start c2
kill -9 "${pid[c1]}"
wait "${pid[c1]}" 2>/dev/null
unset "pid[c1]"
expect "another one takes over from it" within_s 60 took_over c2 "$taken2"
served_again() { [ "$(awk -v from="$gone" '$1 > from && $2 > 0 {n += $3} END {print n + 0}' "$work"/n[1-4].journal)" -gt 300 ]; }
expect "and half of the nodes serve without the others" within_s 60 served_again
expect "no node synced anything" [ ! -s "$work/syncs" ]

kill -9 "${pid[relay]}" && wait "${pid[relay]}" 2>/dev/null
unset 'pid[relay]'
for k in "${!pid[@]}"; do kill -TERM "${pid[$k]}"; done
for k in "${!pid[@]}"; do
    wait "${pid[$k]}"
    case $? in 0 | 130) ;; *) bad "$k ends with status $?: $(tail -2 "$work/$k.err")" ;; esac
done
expect "nobody had anything to complain of" [ -z "$(cat "$work"/*.err)" ]
expect "a controller took over from another" [ "$(cat "$work"/c?.out | grep -c 'takes over')" -ge 2 ]

# ---- the verdict
expand() { # 1-3+7 -> 1 2 3 7
    local part
    for part in ${1//+/ }; do seq -s ' ' "${part%-*}" "${part#*-}"; done | tr '\n' ' '
}
nodes_of=
for b in "${on[@]}"; do nodes_of+="$(expand "$b");"; done
awk -v first="$first" -v last="$last" -v r="$reservation" -v l="$limit" -v faults="${faults[*]/%/;}" -v on="$nodes_of" -v lies="$lies" -v n=8 '
    FILENAME ~ /out$/ { # a controller: "controller 1, period 1234: active; ... late by 3 ms"
        if (/: active; / && $(NF - 1) > 50) late[$4 + 0] = 1
        next
    }
    FNR == 1 { node = FILENAME; gsub(/.*\/n|\.journal/, "", node) }
    $2 == 0 { for (p = $1; $3 > 0; $3 -= 300) lost[node, p--] += $3 < 300 ? $3 : 300; next }
    { got[$1, $2] += $3; if ($2 > n) bad = 1 }
    function busy(b, p, k, x, i) { # was the machine too busy for bucket b in period p?
        if (late[p] || late[p - 1]) return 1
        k = split(nodes[b], x, " ")
        for (i = 1; i <= k; i++) if (lost[x[i], p] > 0.04 * 300 || lost[x[i], p - 1] > 0.04 * 300) return 1
        return 0
    }
    END {
        k = split(faults, f, ";")
        split(on, nodes, ";")
        split(lies, lied, " ")
        for (i in got) if (got[i] > l) { split(i, x, SUBSEP); print "period " x[1] - first ", bucket " x[2] ": " got[i] " of a limit of " l; over++ }
        for (p = first; p <= last; p++) {
            calm = 1
            for (i = 1; i <= k; i++) if (split(f[i], x, " ") == 2 && p >= x[1] && p <= x[2] + 1) calm = 0
            line = ""
            for (b = 1; b <= n; b++) {
                mark = " "
                free = calm || (p > lied[1] && p < lied[2] && " " nodes[b] !~ / [68] /)
                if (free && got[p, b] < 0.99 * r && busy(b, p)) { mark = "?"; idle++ }
                else if (free) { judged++; if (got[p, b] < 0.99 * r) { mark = "!"; missed++ } }
                line = line sprintf("%5d%s", got[p, b], mark)
            }
            print "period " p - first ":" line (calm ? "" : "  fault")
        }
        print judged + 0 " pairs judged, " missed + 0 " with a reservation missed (!), " idle + 0 " too busy (?), " over + 0 " limits exceeded" (bad ? ", and unknown buckets served" : "")
    }' "$work"/c?.out "$work"/n*.journal >"$work/verdict"
cat "$work/verdict"
summary=$(tail -1 "$work/verdict")
expect "no limit was exceeded" grep -q ' 0 limits exceeded$' <<<"$summary"
read -r judged _ _ missed _ _ _ _ _ busy _ <<<"$summary"
expect_time "every reservation was met without a fault, and from the second period after one on" [ "$missed" = 0 ]
[ "$judged" -ge $((busy + 16)) ] || late "this machine was too busy in $busy of $((judged + busy)) pairs"
finish $failed
