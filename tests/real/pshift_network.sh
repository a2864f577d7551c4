#!/usr/bin/env bash
# proves: pshift_cluster as processes over ZeroMQ: 8 nodes with memcached and two controllers, each in a network namespace of
# its own, survive SIGKILL of any process and partitions: no bucket is ever served above its limit, every reservation is met
# from the second period after a fault on; a node with unknown keys gets and reports nothing.
#
# By default one node and the active controller are killed, and one node is cut off. QOS_LONG=1: 20 kills and 5 partitions.
# The verdict comes from the journals: what each node was about to serve, written before it did.
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/pshift_cluster
[ -x "$tool" ] || make -s build/examples/pshift_cluster || exit 1
[ "$(id -u)" = 0 ] || { echo "SKIP pshift_network: network namespaces need root"; exit 77; }
work=$(mktemp -d "$PWD/build/pshift_network-XXXXXX") || exit 1
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
    rm -rf "$work"
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

# ---- the cluster: two buckets on all nodes, six on four nodes each; half of the capacity is reserved
common=(--node-count "$nodes" --controllers "10.77.0.101:7000,10.77.0.102:7000" --capacity 300 --period 1s --intervals 5
    --objects 200 --workers 2)
on=(1-4 3-6 5-8 1+2+7+8 1+3+5+7 2+4+6+8 1-8 1-8)
for b in "${on[@]}"; do common+=(--bucket "reserve=0.5,limit=0.7,on=$b"); done
reservation=150 limit=210
"$tool" keys "${common[@]}" --keys "$work/keys" >"$work/keys.out" || exit 1
start() { # c1, n3
    local role=node number=${1#?} more=(--state "$work/$1.state" --journal "$work/$1.journal")
    [ "${1%%[0-9]*}" = n ] || { role=controller; more=(); }
    ip netns exec "$hub$1" "$tool" $role --number "$number" "${common[@]}" --keys "$work/keys" "${more[@]}" \
        >>"$work/$1.out" 2>>"$work/$1.err" </dev/null &
    pid[$1]=$!
}
now() { date +%s; } # the number of the period
says() { grep -c "$2" "$work/$1.out" 2>/dev/null; }
wait_for() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}
settled() { cat "$work"/c?.out | grep -q 'active; 0 of 8 nodes silent, 0 unconfirmed'; }
active() { # the controller that spoke last of being active
    grep -H ': active; ' "$work"/c?.out | sed 's,.*/\(c[12]\).out:.*period \([0-9]*\): .*,\2 \1,' | sort -n | tail -1 | cut -d' ' -f2
}
faults=() # "FIRST LAST" periods
fault() { faults+=("$1 $2"); echo "fault in periods $1 to $2: $3"; }

for k in 1 2; do start "c$k"; done
for ((k = 1; k <= nodes; k++)); do start "n$k"; done
wait_for 20 settled || { bad "the cluster does not settle"; tail -n 3 "$work"/*.out "$work"/*.err; exit 1; }
first=$(($(now) + 2))
sleep 3

serves_again() { [ "$(says "$1" serves)" -gt "$2" ]; }
kill_process() { # NAME: SIGKILL, back after half a second
    local began served
    began=$(now)
    served=$(says "$1" serves)
    kill -9 "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null
    sleep 0.5
    start "$1"
    case $1 in n*) wait_for 10 serves_again "$1" "$served" ;; esac
    fault "$began" "$(now)" "SIGKILL $1"
}
cut_off() { # NAME SECONDS
    local began
    began=$(now)
    ip -n "$hub" link set "p$1" down
    sleep "$2"
    ip -n "$hub" link set "p$1" up
    fault "$began" "$(now)" "$1 cut off for $2 s"
}
if [ -z "$long" ]; then
    kill_process n3
    sleep 4
    kill_process "$(active)"
    sleep 4
    cut_off n6 1.5
    sleep 4
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
fi

# ---- a stranger: it knows the controllers' public keys and makes its own
"$tool" keys "${common[@]}" --keys "$work/strange" >"$work/keys.out" && cp "$work"/keys/controller-*.public "$work/strange"
ip netns exec "${hub}stranger" "$tool" node --number 3 "${common[@]}" --keys "$work/strange" --journal "$work/stranger" \
    >"$work/stranger.out" 2>&1 </dev/null &
pid[stranger]=$!
sleep 3
last=$(($(now) - 1))
grep -q serves "$work/stranger.out"
expect "a node with unknown keys runs" [ $? = 0 ]
expect "and serves nothing" [ -z "$(awk '$2 > 0' "$work/stranger")" ]

for k in "${!pid[@]}"; do kill -TERM "${pid[$k]}"; done
for k in "${!pid[@]}"; do
    wait "${pid[$k]}"
    case $? in 0 | 130) ;; *) bad "$k ends with status $?: $(tail -2 "$work/$k.err")" ;; esac
done
expect "nobody had anything to complain of" [ -z "$(cat "$work"/*.err)" ]
expect "a controller took over from another" [ "$(cat "$work"/c?.out | grep -c 'takes over')" -ge 2 ]

# ---- the verdict
cat "$work"/n*.journal | awk -v first="$first" -v last="$last" -v r="$reservation" -v l="$limit" -v faults="${faults[*]/%/;}" -v n=8 '
    $2 == 0 { if ($3 > lost[$1] + 0) lost[$1] = $3; next } # of the node that lost most
    { got[$1, $2] += $3; seen[$1] = 1; if ($2 > n) bad = 1 }
    END {
        k = split(faults, f, ";")
        for (i in got) if (got[i] > l) { split(i, x, SUBSEP); print "period " x[1] - first ", bucket " x[2] ": " got[i] " of a limit of " l; over++ }
        for (p = first; p <= last; p++) {
            free = 1
            for (i = 1; i <= k; i++) if (split(f[i], x, " ") == 2 && p >= x[1] && p <= x[2] + 1) free = 0
            line = ""; low = 0
            for (b = 1; b <= n; b++) { line = line sprintf("%5d", got[p, b]); if (got[p, b] < 0.99 * r) low++ }
            busy = low && (lost[p] > 0.04 * 300 || lost[p - 1] > 0.04 * 300)
            print "period " p - first ":" line (free ? "" : "  fault") (busy ? "  this machine was too busy" : "") (free && !busy && low ? "  MISSED" : "")
            if (free) { judged++; if (busy) idle++; else if (low) missed++ }
        }
        print judged + 0 " periods judged, " missed + 0 " with a reservation missed, " idle + 0 " too busy, " over + 0 " limits exceeded"
    }' >"$work/verdict"
cat "$work/verdict"
summary=$(tail -1 "$work/verdict")
expect "no limit was exceeded" grep -q ' 0 limits exceeded' <<<"$summary"
read -r judged _ _ missed _ _ _ _ busy _ <<<"$summary"
expect "periods without a fault were judged" [ "$judged" -ge 4 ]
[ "$failed" = 0 ] || finish 1
[ $((busy * 2)) -lt "$judged" ] || inconclusive "this machine was too busy in $busy of $judged periods"
[ "$missed" = 0 ] || [ "$busy" = 0 ] || inconclusive "this machine was too busy in $busy of $judged periods; $missed others missed a reservation"
expect "every reservation was met in them, and from the second period after a fault on" [ "$missed" = 0 ]
finish $failed
