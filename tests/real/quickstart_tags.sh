#!/usr/bin/env bash
# proves: examples/quickstart/tags.c serves real clients from a real file: their bytes are those of the file, a limit holds, a
# reservation is met if the run had the demand, bad input is refused with a message, clients that go leave nothing behind,
# and it ends on SIGTERM
# needs: loopback
set -u
. "$(dirname "$0")/../lib.sh"
server=$PWD/build/examples/quickstart_tags
[ -x "$server" ] || make -s build/examples/quickstart_tags >/dev/null || { echo "quickstart_tags was not built"; exit 1; }
d=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$d"' EXIT
failed=0 seconds=4 size=131072 mib=16
head -c $((mib * 1048576)) /dev/urandom >"$d/file"

"$server" >"$d/usage" 2>&1
expect "without arguments: a sentence" grep -q 'usage: quickstart_tags PORT FILE' "$d/usage"

survives_flood "0 0 8" 8 "$server" "$d/file"
serve "$server" "$d/file"
survives_reset "0 0 1000" 1000
"$server" "$port" "$d/file" >"$d/taken" 2>&1
expect "a port that is taken: a sentence" grep -q 'the port is taken' "$d/taken"

for line in abc '0 0' '0 0 0' '3 0 1' '0 0 131073' '0 -1 5' '0 0 12 13' '0 0 99999999999999999999999999'; do
    ask "$port" "$line" >"$d/bad" 2>&1
    expect "\"$line\" is refused" grep -q '^error: send TENANT OFFSET LENGTH' "$d/bad"
done

# Clients that go while their request waits at the limit, is at the device or is being sent; a line in two pieces.
for _ in $(seq 30); do
    exec 6<>"/dev/tcp/127.0.0.1/$port"
    printf '1 0 131072\n' >&6
    exec 6>&-
done
exec 6<>"/dev/tcp/127.0.0.1/$port"
printf '2 10' >&6
sleep 0.1
printf '0 1000\n' >&6
timeout 60 head -c 1000 <&6 >"$d/piece"
exec 6>&-
expect "a line in two pieces: the bytes of the file" cmp -s "$d/piece" <(tail -c +101 "$d/file" | head -c 1000)

# Two connections for each tenant, closed loops.
begin=$(date +%s%N)
clients=()
for t in 0 1 2; do
    for c in a b; do
        perl tests/real/peers/lines_client.pl "$port" $seconds $size "$d/got.$t$c" "$t" "$d/file" &
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
expect "no answer was short or wrong" [ -z "$(ls "$d" | grep short)" ]
sum=() granted=() total=0
for t in 0 1 2; do
    sum[t]=$(($(cat "$d/got.${t}a") + $(cat "$d/got.${t}b")))
    granted[t]=$(sed -n "s/^tenant $t: granted \([0-9]*\) .*/\1/p" "$d/out")
    total=$((total + sum[t]))
done
echo "bytes in $((ns / 1000000)) ms: ${sum[*]}, in all $total"
expect "tenant 0 got what was granted" [ "$((sum[0] + 1000))" -eq "${granted[0]}" ]
expect "tenant 2 too, and the line in two pieces" [ "$((sum[2] + 1000))" -eq "${granted[2]}" ]
# limit x time + burst of 100 ms + one request
expect "tenant 1 within its limit of 4 MB/s" [ "${sum[1]}" -le $((4 * ns / 1000 + 400000 + 2 * size)) ]
[ $failed -eq 0 ] || exit 1
[ "$total" -ge $((7 * ns / 1000)) ] || inconclusive "the clients of this machine asked for too little"
# All tenants have the same clients: those without a limit show how many requests clients can send here.
asked=$((sum[0] > sum[2] ? sum[0] : sum[2]))
[ "$asked" -ge $((4 * ns / 1000)) ] || inconclusive "no tenant's clients could ask for 4 MB/s here"
# A limit does not make up for a stall of the disk. Tenant 2 has no limit, so it shows a stall.
stopped=$(($(sort -n "$d"/got.2?.waited | tail -1) * 1000))
if [ "${sum[1]}" -lt $((4 * ns / 1000 * 7 / 10)) ] && [ $stopped -ge $((ns / 10)) ]; then
    inconclusive "the disk stood still for $((stopped / 1000000)) ms"
fi
# Closed loops in which every request waits for the limit reach it only if they can send more.
if [ "${sum[1]}" -lt $((4 * ns / 1000 * 7 / 10)) ] && [ "$asked" -lt $((6 * ns / 1000)) ]; then
    inconclusive "no tenant's clients could ask for 6 MB/s here"
fi
expect_time "tenant 0 has its 2 MB/s" [ "${sum[0]}" -ge $((2 * ns / 1000 * 9 / 10)) ]
expect_time "tenant 1 is held at its limit, not far below" [ "${sum[1]}" -ge $((4 * ns / 1000 * 7 / 10)) ]
finish $failed
