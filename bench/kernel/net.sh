#!/usr/bin/env bash
# Linux's htb (tc) beside htb.h: the same trees on the same link, a veth pair between two network namespaces.
# usage: bench/kernel/net.sh [--quick]
# As root. Every leaf always has packets to send. The measure for both: each leaf's exact share (bench/kernel/net.c
# computes it). Linux's quantum is one packet for all, htb.h's weights are 1. Writes build/bench/kernel_net.jsonl.
set -u
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
seconds=4
[ "${1:-}" != --quick ] || seconds=1.5
[ "$(id -u)" = 0 ] || { echo "SKIP bench/kernel/net: network namespaces need root"; exit 0; }
for command in ip tc; do
    command -v $command >/dev/null || { echo "SKIP bench/kernel/net: no $command (Debian: iproute2)"; exit 0; }
done
out=build/bench
net=$out/kernel_net
mkdir -p "$out"
[ "$net" -nt bench/kernel/net.c ] && [ "$net" -nt htb.h ] || gcc -std=gnu11 -O2 -I. -o "$net" bench/kernel/net.c || exit 1
a=qka$$ b=qkb$$
dir=$(mktemp -d "$out/net-XXXXXX") || exit 1
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
if ! { ip netns add $a && ip netns add $b && ip -n $a link add link0 type veth peer name link0 netns $b; } 2>"$dir/err"; then
    echo "SKIP bench/kernel/net: no namespaces or no veth here: $(head -1 "$dir/err")"
    exit 0
fi
ip -n $a addr add 10.77.0.1/24 dev link0 && ip -n $b addr add 10.77.0.2/24 dev link0 && ip -n $a link set link0 up && ip -n $b link set link0 up || exit 1
if ! ip netns exec $a tc qdisc add dev link0 root handle 1: htb 2>"$dir/err"; then
    echo "SKIP bench/kernel/net: this kernel has no sch_htb: $(head -1 "$dir/err")"
    exit 0
fi

# Each class: name, reserved, limit, exact, received; then the processor time per packet.
run() { # tc|htb TREE -> $dir/$1
    local receiver
    ip netns exec $a tc qdisc del dev link0 root 2>/dev/null
    if [ "$1" = tc ]; then
        "$net" tc "$2" | sed 's/\$DEV/link0/' >"$dir/commands"
        ip netns exec $a bash -e "$dir/commands" || return 1
    fi
    ip netns exec $b nice -n -10 timeout 60 "$net" receive "$2" "$seconds" >"$dir/$1" &
    receiver=$!
    sleep 0.2
    ip netns exec $a nice -n -10 timeout 60 "$net" send "$1" "$2" 10.77.0.2 "$(awk "BEGIN {print $seconds + 1}")" >"$dir/$1.cpu"
    wait "$receiver"
}
# The worst leaf, and all together, as parts of the shares in the tree.
compare() { # NAME TREE
    run tc "$2" && run htb "$2" || { echo "$1: could not run"; return; }
    printf '\n%-26s %9s %9s %9s %9s %9s\n' "$1 (Mbit/s)" reserved limit exact "tc htb" htb.h
    paste -d' ' "$dir/tc" "$dir/htb" | awk '{printf "  %-24s %9.1f %9.1f %9.2f %9.2f %9.2f\n", $1, $2, $3, $4, $5, $10}'
    printf '  %-24s %39.2f %9.2f us\n' "CPU per packet" "$(cat "$dir/tc.cpu")" "$(cat "$dir/htb.cpu")"
    for who in tc htb; do
        awk -v name="$1" -v who=$who -v cpu="$(cat "$dir/$who.cpu")" '
            {off = $5 / $4 - 1; if (off < 0) off = -off; if (off > worst) worst = off; got += $5; all += $4; if ($2 && $5 / $2 < least || !n++) least = $5 / $2}
            END {
                f = "{\"bench\":\"kernel_net\",\"case\":\"%s, %s\",\"metric\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n"
                printf f, name, who, "worst_off_exact", worst, "of the exact share"
                printf f, name, who, "total", got / all, "of the link"
                printf f, name, who, "reservation_least", least, "of the reservation"
                printf f, name, who, "cpu_us_per_packet", cpu, "us"
            }' "$dir/$who" >>"$out/kernel_net.jsonl"
    done
}
: >"$out/kernel_net.jsonl"
echo "# bench kernel/net: kernel $(uname -r), $(nproc) processors, $seconds s each, packets of 1,442 bytes"
compare "2 levels, 80 Mbit/s" 0:0:80:80:root,1:0:10:80:a,2:0:20:80:b,3:0:10:15:c
compare "3 levels, 80 Mbit/s" 0:0:80:80:root,1:0:40:80:group,2:1:10:80:group/a,3:1:20:80:group/b,4:0:20:80:c,5:0:10:80:d
compare "4 levels, 80 Mbit/s" 0:0:80:80:root,1:0:40:60:group,2:1:20:80:group/g,3:2:5:80:group/g/a,4:2:10:80:group/g/b,5:1:10:80:group/c,6:0:20:80:d
compare "3 levels, 240 Mbit/s" 0:0:240:240:root,1:0:120:240:group,2:1:30:240:group/a,3:1:60:240:group/b,4:0:60:240:c,5:0:30:240:d
echo "(CPU: of the sender; Linux's work in interrupts is not included)"
