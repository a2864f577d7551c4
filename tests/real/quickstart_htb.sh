#!/usr/bin/env bash
# proves: examples/quickstart/htb.c serves real clients: their bytes are complete, limits hold, reservations are met if
# the run had the demand, bad input is refused with a message, clients that go leave nothing behind, those that do not
# read, or send nothing, keep nobody of another tenant waiting, and it ends on SIGTERM
# needs: loopback
# alone: no
set -u
. "$(dirname "$0")/../lib.sh"
server=$PWD/build/examples/quickstart_htb
[ -x "$server" ] || make -s build/examples/quickstart_htb >/dev/null || { echo "quickstart_htb was not built"; exit 1; }
d=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$d"' EXIT
failed=0 seconds=4 size=262144

"$server" >"$d/usage" 2>&1
expect "without a port: status 2 and a sentence" grep -q 'usage: quickstart_htb PORT' "$d/usage"

survives_flood 1000 1000 "$server"
# One tenant has all its places, with clients that send nothing: another one's client has its own.
serve "$d/few"
perl -MIO::Socket::INET -e '$| = 1; my @s = map {IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0], Timeout => 2)} 1 .. 60;
    print "idle\n"; sleep 60' $((port + 2)) >"$d/idle" &
idle=$!
within_s 60 grep -q idle "$d/idle"
expect "idle clients keep no place of another tenant" [ "$( (ask_some "$port" 1000 1000) 2>/dev/null | wc -c)" = 1000 ]
kill "$idle" "$pid"
wait "$pid"
serve "$server" # and the two ports after it
survives_reset 1000 1000
"$server" "$port" >"$d/taken" 2>&1
expect "a port that is taken: a sentence" grep -q 'the port is taken' "$d/taken"

for line in abc 0 -1 1048577 '12 13' 99999999999999999999; do
    ask "$port" "$line" >"$d/bad" 2>&1
    expect "\"$line\" is refused" grep -q '^error: send one number of bytes' "$d/bad"
done

# Clients that go while their request waits or is being sent.
for _ in $(seq 30); do
    exec 6<>"/dev/tcp/127.0.0.1/$((port + 2))"
    printf '1048576\n' >&6
    exec 6>&-
done
exec 6<>"/dev/tcp/127.0.0.1/$((port + 2))"
printf '10' >&6
sleep 0.1
printf '00\n' >&6 # a line in two pieces
[ "$(timeout 60 head -c 1000 <&6 | wc -c)" -eq 1000 ] && ok "a line in two pieces is one request" || bad "a line in two pieces"
exec 6>&-

# More clients than the device has places, of the tenant without a promise, that ask four times each and never read: the
# first tenant has its 65,536 bytes.
perl -MIO::Socket::INET -e 'my @s = map {IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0])} 1 .. 40;
    for (1 .. 4) {$_->syswrite("1048576\n") for @s; sleep 2} print "asked\n"; sleep 60' $((port + 2)) >"$d/asked" &
silent=$!
within_s 30 grep -q asked "$d/asked"
exec 6<>"/dev/tcp/127.0.0.1/$port"
printf '65536\n' >&6
expect "clients that do not read keep no place of another tenant" [ "$(timeout 30 head -c 65536 <&6 | wc -c)" -eq 65536 ]
exec 6>&-
kill "$silent"

# Two connections for each tenant, closed loops.
begin=$(date +%s%N)
clients=()
for t in 0 1 2; do
    for c in a b; do
        perl tests/real/peers/lines_client.pl $((port + t)) $seconds $size "$d/got.$t$c" &
        clients+=($!)
    done
done
wait "${clients[@]}"
ns=$(($(date +%s%N) - begin))
kill -TERM "$pid"
wait "$pid"
status=$?
pid=
cat "$d/out"
expect "ended by SIGTERM with status 0" [ "$status" -eq 0 ]
expect "no answer was short" [ -z "$(ls "$d" | grep short)" ]
sum=() granted=() total=0
for t in 0 1 2; do
    sum[t]=$(($(cat "$d/got.${t}a") + $(cat "$d/got.${t}b")))
    granted[t]=$(sed -n "s/^tenant $((t + 1)): granted \([0-9]*\) .*/\1/p" "$d/out")
    total=$((total + sum[t]))
done
echo "bytes in $((ns / 1000000)) ms: ${sum[*]}, in all $total"
expect "the first tenant's clients got what was granted" [ "${sum[0]}" -eq $((granted[0] - 66536)) ]
expect "the second tenant's too" [ "${sum[1]}" -eq "${granted[1]}" ]
# limit x time + burst of 10 ms + one request, for the root and for the second tenant
expect "all together within 40 MB/s" [ "$total" -le $((40 * ns / 1000 + 400000 + 2 * size)) ]
expect "the second within its limit of 8 MB/s" [ "${sum[1]}" -le $((8 * ns / 1000 + 80000 + 2 * size)) ]
[ $failed -eq 0 ] || exit 1
[ "$total" -ge $((40 * ns / 1000 * 8 / 10)) ] || inconclusive "the clients of this machine asked for too little"
# All tenants have the same clients: the third, which has no promise, shows how many requests clients can send on this
# machine.
[ "${sum[2]}" -ge $((10 * ns / 1000)) ] || [ "${sum[0]}" -ge $((10 * ns / 1000)) ] || inconclusive "no tenant's clients could ask for 10 MB/s here"
expect_time "the first has its 10 MB/s" [ "${sum[0]}" -ge $((10 * ns / 1000 * 9 / 10)) ]
expect_time "the second has its 5 MB/s" [ "${sum[1]}" -ge $((5 * ns / 1000 * 9 / 10)) ]
finish $failed
