#!/usr/bin/env bash
# proves: examples/quickstart/pshift.c: three servers and a controller keep a bucket's limit over all servers, serve another
# one beside it, refuse bad input, keep the limit when the controller is killed and starts again, and end on SIGTERM
# needs: loopback
# alone: no
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/quickstart_pshift
[ -x "$tool" ] || make -s build/examples/quickstart_pshift >/dev/null || { echo "quickstart_pshift was not built"; exit 1; }
d=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$d"' EXIT
failed=0

"$tool" >"$d/usage" 2>&1
expect "without arguments: a sentence" grep -q 'usage: quickstart_pshift PORT' "$d/usage"
# A client, in perl: sends bucket $2 to server $1, 40 requests each 100 ms for $3 s; prints the second of each answer.
client() {
    perl -MIO::Socket::INET -MTime::HiRes=time -e '
        my ($port, $bucket, $for) = @ARGV;
        my $s = IO::Socket::INET->new(Proto => "udp", PeerAddr => "127.0.0.1", PeerPort => $port) or die;
        my ($end, $next, $buf) = (time + $for, 0);
        while (time < $end) {
            if (time > $next) { $s->send("$bucket\n") for 1 .. 40; $next = time + 0.1 }
            my $r = ""; vec($r, fileno($s), 1) = 1;
            if (select($r, undef, undef, 0.01)) { print int(time), " $buf" if defined $s->recv($buf, 100) && length $buf }
        }' "$((port + 1 + $1))" "$2" "$3" 2>/dev/null
}
answers_or_ended() { client 0 -1 0.1 | grep -q error || ! kill -0 "$pid" 2>/dev/null; }
start() {
    "$tool" "$port" "$d" 2>"$d/err" &
    pid=$!
    within_s 30 answers_or_ended
    sleep 0.1 # the port is in use by another program: ours is about to end
    kill -0 "$pid" 2>/dev/null
}
for _ in 1 2 3 4 5; do
    port=$((10000 + RANDOM % 9900))
    start && break
done
kill -0 "$pid" 2>/dev/null || { cat "$d/err"; exit 1; }
"$tool" "$port" "$d" 2>"$d/taken"
expect "a port that is taken: a sentence" grep -q 'is taken' "$d/taken"

for line in abc -1 '7 8' 9; do
    refused() { client 0 "$line" 0.15 | grep -q "error: send the number of a bucket"; }
    expect "\"$line\" is refused" within_s 30 refused
done
head -c 100 /dev/urandom >"/dev/udp/127.0.0.1/$port"

clients=()
for j in 0 1 2; do
    client $j 7 8 >"$d/seven.$j" & clients+=($!)
    client $j 8 8 >"$d/eight.$j" & clients+=($!)
done
sleep 2.5
kill -9 "$pid"; wait "$pid" 2>/dev/null # its servers end with it; all start again, with their saved state
sleep 0.3
again() { start || { wait "$pid"; false; }; }
expect "it starts again" within_s 10 again
wait "${clients[@]}"
cat "$d"/seven.* | grep served | awk '{n[$1]++} END {for (s in n) print n[s]}' >"$d/seven"
cat "$d"/eight.* | grep served | awk '{n[$1]++} END {for (s in n) print n[s]}' >"$d/eight"
echo "served per second: bucket 7 (limit 600): $(sort -n "$d/seven" | tr '\n' ' '); bucket 8: $(sort -n "$d/eight" | tr '\n' ' ')"
expect "bucket 7 was served" [ -s "$d/seven" ]
expect "bucket 8 was served" [ -s "$d/eight" ]
# An answer may be read a little after the second in which it was served: two seconds together show at most twice the
# limit. (A client that got no processor reads them even later; over all seconds, its answers were served in these
# seconds or in the one before.)
expect_time "no second has more than two periods' limit of bucket 7, but for answers read late" awk '$1 > 1260 {bad = 1} END {exit bad}' "$d/seven"
expect "all seconds together have no more" [ "$(cat "$d"/seven.* | awk '/served/ {n++; if (!from || $1 < from) from = $1; if ($1 > to) to = $1} END {print n <= 600 * (to - from + 2)}')" = 1 ]
kill -TERM "$pid"
wait "$pid"
expect "it ends on SIGTERM" [ $? = 143 ]
pid=
none_left() { [ -z "$(pgrep -f "quickstart_pshift $port ")" ]; }
expect "no server is left" within_s 30 none_left
finish $failed
