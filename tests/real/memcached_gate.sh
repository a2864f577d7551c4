#!/usr/bin/env bash
# proves: examples/memcached_gate in front of stock memcached answers as memcached does (memccapable, pymemcache,
# hashing over 4 gates, every command compared with memcached itself), keeps reservations and limits, and survives bad
# input, slow clients, 10,000 connections and memcached's death; a hostile neighbour takes neither another's reservation
# nor its memory, places or data
# needs: loopback
# usage: memcached_gate.sh [greedy | patience | room | metrics | reload | spin | commands]: one section only; GATE=FILE is another gate
set -u
. "$(dirname "$0")/../lib.sh"
gate=${GATE:-$PWD/build/examples/memcached_gate}
[ -x "$gate" ] || make -s build/examples/memcached_gate || exit 1
for tool in memcached memccapable memcslap promtool curl; do
    command -v $tool >/dev/null || { echo "$tool is missing: see packages.txt"; exit 1; }
done
live=$PWD/build/examples/qos_live
[ -x "$live" ] || make -s build/examples/qos_live || exit 1
python=/usr/bin/python3 # Debian's, which has pymemcache
ask="timeout 300 $python tests/real/memcached_gate.py"
d=$(work_dir memcached_gate) || exit 1
failed=0 pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$d"' EXIT
base=${BASE:-$((21000 + RANDOM % 8000))} # below those of clients
user=()
[ "$(id -u)" -ne 0 ] || user=(-u nobody)
until_listens() { within_s 60 listens "$1" && return; bad "nothing listens at $1"; cat "$d"/*.err; exit 1; }
daemon() { # PORT: a memcached; sets pid
    memcached "${user[@]}" -l 127.0.0.1 -p "$1" -U 0 -c 4096 >/dev/null 2>>"$d/memcached.err" </dev/null &
    pid=$!
    pids+=($pid)
    until_listens "$1"
}
start() { # PORT MEMCACHED-PORT OPTION...: sets pid. On a busy machine memcached may be slow, and so may be the gate's end
    "$gate" --listen "127.0.0.1:$1" --memcached "127.0.0.1:$2" --timeout 20s --drain 60s "${@:3}" >"$d/gate.out" 2>>"$d/gate.err" </dev/null &
    pid=$!
    pids+=($pid)
    until_listens "$1"
}
stop() { # PID: on SIGTERM it ends by itself, with status 0
    kill -TERM "$1"
    wait "$1"
    expect "a gate that is stopped ends with status 0" [ $? = 0 ]
}

# What the gates say that no check has asked for. One file for all, which two tasks write: nothing is taken out of it.
complaints() { grep -vE 'a client at 127\.0\.0\.[12] is refused: no (place|descriptor) for bucket (other|evil) |gate\.conf:2: .* bad: |the settings are wrong; nothing changes|/full: No space left on device|and --cluster need a restart' "$d/gate.err"; }

# ---- sections that tests/plants/memcached_gate.sh repeats with a fault in the gate; each in front of the same memcached

section_greedy() { # a hostile neighbour: what it may hold, and which bucket is charged
    start $((base + 50)) $((base + 2)) --clients 200 --value 512k --memory 3M --bucket name=gold,key=gold:,from=127.0.0.1 --bucket name=evil,from=127.0.0.2
    local run=$pid
    $ask greedy $((base + 50)) "$run" 200 $((1 << 20))
    case $? in
    0) ;;
    3) late "evil pays for what it sends: each try took longer than the gate's patience" ;;
    *) failed=1 ;;
    esac
    stop "$run"
}
section_patience() { # clients that stall
    start $((base + 52)) $((base + 2)) --memory 12M --patience 1s --idle 3s --bucket name=gold,key=gold: --bucket name=bulk,key=bulk:
    local run=$pid
    $ask patience $((base + 52))
    case $? in
    0) ;;
    3) late "who asks again and again stays: the test was late itself" ;;
    *) failed=1 ;;
    esac
    stop "$run"
}
section_room() { # half requests and a bucket's memory
    start $((base + 58)) $((base + 2)) --threads 4 --memory 12M --patience 60s --bucket name=gold,key=gold: --bucket name=bulk,key=bulk:
    local run=$pid
    $ask room $((base + 58)) || failed=1
    stop "$run"
}
is_served() { # FD PORT: a client that stays
    local answer=
    eval "exec $1<>/dev/tcp/127.0.0.1/$2" || return
    printf 'get gold:1\r\n' >&"$1"
    read -r -t 5 answer <&"$1"
    [[ $answer == END* ]]
}
section_metrics() { # a local socket, metrics over HTTP, the log of refused clients
    echo kept >"$d/file"
    timeout 20 "$gate" --listen "$d/file" >/dev/null 2>&1
    expect "a file that is no socket stays" grep -q kept "$d/file"
    ln -s /dev/full "$d/full.new"
    start $((base + 53)) $((base + 2)) --listen "$d/socket" --stats "$d/full" --metrics 127.0.0.1:$((base + 54)) --clients 2 --bucket 'name=a\b,key=a:' --bucket name=gold,key=gold:,reserve=10
    fine=$pid
    cat <(printf 'get gold:1\r\nquit\r\n') | timeout 20 $python -c "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect('$d/socket'); s.sendall(sys.stdin.buffer.read()); print(s.recv(100))" >"$d/local"
    expect "a local socket" grep -q "END" "$d/local"
    curl -s --max-time 20 "http://127.0.0.1:$((base + 54))/metrics" >"$d/metrics"
    expect "over HTTP" promtool check metrics <"$d/metrics"
    local fd silent=()
    for _ in {1..40}; do exec {fd}<>"/dev/tcp/127.0.0.1/$((base + 54))"; silent+=("$fd"); done
    expect "beside 40 silent connections" grep -q '^memcached_gate_memcached_up 1' <(curl -s --max-time 20 "http://127.0.0.1:$((base + 54))/metrics")
    for fd in "${silent[@]}"; do exec {fd}>&-; done
    expect "a backslash in a name" grep -qF 'memcached_gate_requests_total{bucket="a\\b"} 0' "$d/metrics"
    for family in wait latency; do
        expect "a histogram has its sum and count: $family" [ "$(grep -cE "^memcached_gate_${family}_seconds_(sum|count)\{bucket=\"gold\"} [0-9.]+$" "$d/metrics")" = 2 ]
    done
    # Both places are taken; the local client's may be free only a moment after it left.
    within_s 30 is_served 8 $((base + 53)) && within_s 30 is_served 9 $((base + 53)) || bad "two clients are not served"
    told() { grep -c 'a client at 127.0.0.1 is refused: no place for bucket other' "$d/gate.err"; }
    local begin=$SECONDS before
    before=$(told)
    for _ in {1..20}; do (exec 6<>"/dev/tcp/127.0.0.1/$((base + 53))"; timeout 20 cat <&6 | grep -q 'Too many') || bad "a client too many is not told"; done
    expect "refused clients are logged, once a second: $(told)" [ $(($(told) - before)) -le $((SECONDS - begin + 2)) ]
    expect "at all" [ "$(told)" -gt 0 ]
    exec 8>&- 9>&-
    tried() { [ "$(grep -c 'full: No space left' "$d/gate.err")" -ge 3 ]; }
    within_s 60 tried
    expect "statistics on a full disk keep no file open" [ "$(find -L "/proc/$fine/fd" -samefile /dev/full | wc -l)" -le 1 ]
    stop $fine
}
section_reload() { # --check, SIGHUP, SIGTERM
    printf 'bucket name=gold,key=gold:,reserve=10\nbucket name=bulk,key=bulk:\n' >"$d/gate.conf"
    expect "--check: right" grep -q 'the settings are right: 3 buckets' <("$gate" --check --settings "$d/gate.conf")
    expect "--check: right, written in one word" grep -q 'the settings are right: 3 buckets' <("$gate" --check --settings="$d/gate.conf")
    mkfifo "$d/fifo"
    "$gate" --check --settings "$d/fifo" >"$d/early" 2>&1 &
    pid=$!
    exec 7>"$d/fifo" # it reads
    kill -HUP $pid
    (cat "$d/gate.conf" >&7)
    exec 7>&-
    wait $pid
    expect "an early SIGHUP does not end it" [ $? = 0 ]
    "$gate" --listen "127.0.0.1:$((base + 55))" --memcached "127.0.0.1:$((base + 2))" > >(:) 2>&1 </dev/null & # nobody reads what it says
    unread=$!
    pids+=($unread)
    until_listens $((base + 55))
    kill -HUP $unread # it says that it has read its settings again
    sleep 0.3
    expect "a gate goes on though nobody reads what it says" listens $((base + 55))
    stop $unread
    start $((base + 53)) $((base + 2)) --settings "$d/gate.conf" --threads 2
    reloaded=$pid
    $ask reload $((base + 53)) $pid "$d/gate.conf" "$d/gate.err" || failed=1
    expect "what is wrong with new settings is told" grep -q 'bad: reserve\|gate.conf:2: .*limit' "$d/gate.err"
    $ask drain $((base + 53)) $reloaded || failed=1
    wait $reloaded
    expect "a gate that drains ends with status 0" [ $? = 0 ]
}
section_spin() {
    daemon $((base + 56)); still=$pid
    start $((base + 57)) $((base + 56)) --depth 4 --timeout 60s --bucket name=slow,key=slow:,limit=10
    $ask spin $((base + 57)) $((base + 56)) $pid $still || failed=1
    kill -9 $pid $still
    wait $pid $still 2>/dev/null
}
section_commands() { # where each ends
    daemon $((base + 60))
    start $((base + 61)) $((base + 2)) --allow-flush --bucket name=gold,key=gold:
    $ask compare $((base + 60)) $((base + 61)) || failed=1
}
case ${1:-all} in
all) ;;
greedy | patience | room | metrics | reload | spin | commands)
    daemon $((base + 2))
    "section_$1"
    expect "the gate had nothing to complain of" [ -z "$(complaints)" ]
    finish $failed
    ;;
*) echo "no section $1: see the head of $0" >&2; exit 2 ;;
esac

# ---- bad settings
refused() { # WORDS OPTION...
    timeout 60 "$gate" --listen 127.0.0.1:1 "${@:2}" >"$d/refused" 2>&1
    local status=$?
    if [ $status = 2 ] && grep -q -- "$1" "$d/refused"; then ok "refused: $1"
    else bad "not refused: ${*:2}: status $status: $(cat "$d/refused")"; fi
}
refused 'bucket: reserve=2X: ' --bucket name=a,reserve=2X
refused 'name= is missing' --bucket key=a:
refused 'key needs a value' --bucket name=a,key
refused 'colour=red: not a setting' --bucket name=a,colour=red
refused 'limit= is below reserve=' --bucket name=a,reserve=20k,limit=10k
for option in listen memcached metrics; do
    refused "--$option 127.0.0.1:65536: .*up to 65535" --check --$option 127.0.0.1:65536
    refused "--$option word: write ADDRESS:PORT" --check --$option word
done
refused '--listen 300.1.1.1:5: ' --check --listen 300.1.1.1:5
refused 'gate: .*Is a directory' --check --settings "$d/"
refused 'none: No such file' --check --settings=/dev/none
refused '--settings: write its name whole' --check --sett /dev/null
refused '--timeout: from 10ms to 60m' --timeout 0
refused '--value: from 1K to 1G' --value 100G
refused 'bucket a has this name' --bucket name=a,key=a: --bucket name=a,key=b:
refused 'only one bucket may' --bucket name=a --bucket name=b
refused 'not an address or a network' --bucket name=a,from=10.0.0.0/33
refused '1 to 65535' --bucket name=a,port=70000
refused 'reserve=20000 does not fit: 10000 of --capacity' --capacity 10k --bucket name=a,key=a:,reserve=20k --listen 127.0.0.1:0
refused '--depth: from 1' --depth 0
refused '--memory: at least two of --value' --memory 1M
refused 'needs --name and --keys' --cluster http://127.0.0.1:1
printf '# comment\nbucket name=a,key=a:\n\ndepth many\n' >"$d/bad.conf"
refused 'bad.conf:4: --depth=many: ' --settings "$d/bad.conf"
printf 'capacity 10k\nbucket name=a,key=a:,reserve=20k\n' >"$d/bad.conf"
refused 'bad.conf:2: bucket a: reserve=20000 does not fit' --check --settings "$d/bad.conf"
printf 'colour red\n' >"$d/bad.conf"
refused 'bad.conf:1: --colour: no such option' --settings "$d/bad.conf"

# ---- conformance, compared with memcached itself. Two tasks run at once: neither is judged by time, and they share no
# daemon.

daemon $base; direct=$pid
daemon $((base + 1)); behind=$pid
daemon $((base + 2))
files=$(ulimit -Hn) # of each process
many=$((files > 10500 ? 10000 : files - 500))
start $((base + 10)) $((base + 1)) --clients $((many + 100)) --allow-flush --stats "$d/stats" --bucket name=gold,key=gold:; one=$pid
ports=()
for k in 0 1 2 3; do
    start $((base + 20 + k)) $((base + 2)) --bucket name=gold,key=gold: --bucket name=vip,key=gold:vip: \
        --bucket name=bulk,key=bulk: --bucket "name=ported,port=$((base + 30 + k))" --bucket name=near,from=127.0.0.2
    ports+=($((base + 20 + k)))
    four[k]=$pid
done

buckets() { # of four gates; and a hostile neighbour
    local failed=0
    $ask buckets $((base + 20)) $((base + 30)) || failed=1
    $ask hashing "${ports[@]}" || failed=1
    $ask flags $((base + 2)) $((base + 20)) || failed=1
    section_greedy
    section_patience
    section_room
    return $failed
}
buckets >"$d/buckets" 2>&1 & other=$!

$ask compare $base $((base + 10)) || failed=1
timeout 200 memccapable -t 60 -h 127.0.0.1 -p $base -a >"$d/capable.direct" 2>&1 & capable=$!
timeout 200 memccapable -t 60 -h 127.0.0.1 -p $((base + 10)) -a >"$d/capable.gate" 2>&1
expect "memccapable -a passes against the gate" [ $? = 0 ]
wait $capable
expect "as against memcached" [ $? = 0 ]
expect "with the same outcomes" cmp "$d/capable.direct" "$d/capable.gate"
for t in set get; do
    timeout 200 memcslap -s "127.0.0.1:$((base + 10))" -t $t -c 8 -e 500 >"$d/slap" 2>&1
    expect "memcslap -t $t" [ $? = 0 ]
done
$ask clients $((base + 10)) || failed=1
$ask bad $((base + 10)) $one || failed=1
$ask slow $((base + 10)) $one gold || failed=1
expect "statistics for Prometheus" within_s 30 grep -qs '^memcached_gate_requests_total{bucket="gold"} [1-9]' "$d/stats"
expect "their form" promtool check metrics <"$d/stats"
section_metrics
section_reload
section_spin
expect "the memcached of the conformance tests still runs" kill -0 $behind

# ---- many connections
(ulimit -Sn "$files"; $ask crowd $((base + 10)) $one $many) || failed=1
stop $one

# ---- memcached dies
start $((base + 11)) $((base + 1)) --timeout 500ms; short=$pid
mkfifo "$d/again"
$ask outage $((base + 11)) $behind $((base + 1)) <"$d/again" >"$d/outage" &
outage=$!
exec 7>"$d/again"
within_s 60 grep -q killed "$d/outage"
wait $behind 2>/dev/null
daemon $((base + 1)); behind=$pid
echo >&7
wait $outage
status=$?
cat "$d/outage"
expect "memcached hung, and was killed" [ $status = 0 ]
exec 7>&-
stop $short

# ---- the other task
wait $other
status=$?
cat "$d/buckets"
expect "buckets, and a hostile neighbour" [ $status = 0 ]
unsure=${unsure:-$(sed -n 's/^LATE: //p' "$d/buckets" | head -n 1)}
for p in "${four[@]}"; do stop "$p"; done

# ---- reservation and limit. Control: the total of the same clients without both.
seconds=2
[ -z "${QOS_LONG:-}" ] || seconds=60
start $((base + 40)) $((base + 1)) --depth 16
$ask load 1 "$((base + 40)),8,bulk:x,delete" >"$d/load"
total=$(sed -n 's/.*bulk:x=\([0-9]*\).*/\1/p' "$d/load")
stop $pid
reserve=$((total / 6)) limit=$((total / 25))
echo "control: $total requests per second in all; $reserve reserved, limit $limit"
# Where gold got less, another window is judged, twice at most: pShift makes up for no period in which the machine stood still.
for policy in ps reward; do
    for _ in 1 2 3; do
        start $((base + 41)) $((base + 1)) --depth 16 --policy $policy --bucket "name=gold,key=gold:,reserve=$reserve" \
            --bucket "name=capped,key=capped:,limit=$limit,weight=20" --bucket name=bulk,key=bulk:,weight=20
        run=$pid
        $ask load $((seconds + 1)) "$((base + 41)),128,gold:x,get" >"$d/load1" & l1=$!
        $ask load $((seconds + 1)) "$((base + 41)),8,bulk:x,delete" "$((base + 41)),8,capped:x,touch" >"$d/load2" & l2=$!
        sleep 0.5
        timeout 200 "$live" --gate "127.0.0.1:$((base + 41))" --gate "127.0.0.1:$((base + 10))" --time 2s >"$d/refused" 2>&1
        [ $? = 1 ] && grep -q 'does not answer' "$d/refused" || bad "qos_live and a gate that is not there: $(cat "$d/refused")"
        timeout 200 "$live" --gate "127.0.0.1:$((base + 41))" --time 2s >"$d/live" 2>&1 & watcher=$!
        watch_mark
        $ask judge $((base + 1)) $seconds $reserve $limit
        verdict=$?
        wait $watcher
        expect "qos_live ends with status 0" [ $? = 0 ]
        lines=$(grep -cE '^[0-9.]+ s  (gold|capped|bulk): got [0-9.]+ ?[kM]?, reserved (-|[0-9].*), limit (-|[0-9].*), p99 (-|.*s), waits for (nothing|memcached|its (turn|limit))$' "$d/live")
        expect_time "it shows each tenant ($lines lines)" [ "$lines" -ge 3 ]
        expect "and nothing but plain text" [ -z "$(tr -d '\n -~' <"$d/live")" ]
        wait $l1 $l2
        cat "$d/load1" "$d/load2"
        expect "no errors under load" [ -z "$(grep -L 'errors=0' "$d/load1" "$d/load2")" ]
        stop $run
        [ $verdict = 4 ] || break
    done
    case $verdict in
    0) ok "reservation and limit under $policy" ;;
    4) expect_time "the reservation under $policy" false ;;
    *) bad "reservation and limit under $policy" ;;
    esac
done

# ---- floods: gold gets its reservation, a hundredth of the total of the same clients alone
kinds=("answers of the gate" stats spaces churn "large values")
[ -z "${QOS_LONG:-}" ] || kinds=()
start $((base + 51)) $((base + 1)) --clients 2000 --bucket "name=gold,key=gold:,reserve=$((total / 100))"
watch_mark
$ask attacks $((base + 51)) $((base + 1)) $((total / 100)) "${kinds[@]}"
case $? in
0) ok "gold's reservation under floods" ;;
3) late "gold's reservation under floods: the test itself was late" ;;
4) expect_time "gold's reservation under floods" false ;;
*) bad "gold's reservation under floods" ;;
esac
stop $pid
# ---- gets of 1 MB with the default options: requests that are reserved do not wait for them
start $((base + 55)) $((base + 1)) --bucket "name=gold,key=gold:,reserve=$((total / 8))" --bucket name=large,key=large:
watch_mark
$ask attacks $((base + 55)) $((base + 1)) $((total / 8)) "large gets"
case $? in
0) ok "gold's reservation beside gets of 1 MB" ;;
3) late "gold's reservation beside gets of 1 MB: the test itself was late" ;;
4) expect_time "gold's reservation beside gets of 1 MB" false ;;
*) bad "gold's reservation beside gets of 1 MB" ;;
esac
stop $pid
expect "the gates had nothing to complain of" [ -z "$(complaints)" ]
finish $failed
