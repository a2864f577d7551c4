#!/usr/bin/env bash
# proves: tokenpool_shm with real processes: reservations are met, compared with a bare run; the monitor's counts equal
# the clients' to the token; a client and a monitor killed with SIGKILL stop no other; the dead client's share is issued
# again; nothing is left in memory. Clients that attach by name: two data nodes at once, who may attach, what clients
# may write, and the death of a client, of the monitor and of the data node
set -eu
. "$(dirname "$0")/../lib.sh"
tool=build/examples/tokenpool_shm
out=build/real_tokenpool_shm
mkdir -p "$out"
segments() { # the memory of this test's processes and the names of its data nodes; other tests have their own
    grep -ho "@qoskit-tokenpool/$name-.*" /proc/net/unix || true
    for p in $mine; do grep -ho 'memfd:qoskit.*' "/proc/$p/maps" 2>/dev/null || true; done
}
name=test$$ mine=
ended() { ! kill -0 "$1" 2>/dev/null; }
soon() { # COMMAND...: true within 30 s
    local n
    for n in $(seq 600); do ! "$@" || return 0; sleep 0.05; done
    echo "in vain: $*" >&2
    exit 1
}

run() { # NAME OPTION...
    local name=$1
    shift
    judged "$out/$name.txt" timeout 200 "$tool" --derate 0.4 --period 300ms --bare 500ms --table 64M --json "$out/$name.json" "$@"
}

run all --periods 4
json "$out/all.json" '.operations_percent <= 5 or .operations_of_a_client <= 16' || { echo "the engines' own traffic is too large"; exit 1; }
run killed --periods 6 --kill-client 1 --kill-at 2
grep -q 'killed client 1' "$out/killed.txt"
run takeover --periods 5 --kill-monitor 3
grep -q 'another takes over' "$out/takeover.txt"
run ordered --periods 4 --ordered
# The verdict is checked: if tokens of a reservation are lost, the tool must not blame a slow machine.
mkdir -p "$out/planted" && cp ./*.h "$out/planted"
sed -i 's/left = qos_sat_sub(client->allowance, spent);/left = qos_sat_sub(client->allowance \/ 2, spent);/' "$out/planted/tokenpool.h"
! cmp -s tokenpool.h "$out/planted/tokenpool.h" || { echo "the text of the planted bug is not in tokenpool.h"; exit 1; }
# shellcheck disable=SC2046
clang -std=gnu11 -O1 $(says examples/tokenpool_shm/main.c flags) -I"$out/planted" -I. -Iexamples/common \
    -o "$out/broken" examples/tokenpool_shm/*.c build/examples/objects/common/*.o \
    $(says examples/tokenpool_shm/main.c links) -lm
rc=0
watch_mark
timeout 200 "$out/broken" --derate 0.9 --periods 4 --period 300ms --bare 500ms --table 64M --reserve 60,20,10,9 >"$out/broken.txt" 2>&1 || rc=$?
cat "$out/broken.txt"
case $rc in
1) ! grep -q 'reservations missed 0 times' "$out/broken.txt" || { echo "lost tokens were not found"; exit 1; } ;;
3) late "whether lost tokens are noticed" ;; # the tool says that the machine was too slow for a verdict
*) echo "lost tokens were not found"; exit 1 ;;
esac
if "$tool" --clients 17 >/dev/null 2>&1 || "$tool" --reserve x >/dev/null 2>&1; then
    echo "wrong options were accepted"
    exit 1
fi
for o in "--name $name-stop --serve" --clients\ 4; do # stopped before there is anything to report: says so, at once, and nothing else
    timeout --foreground -s INT -k 30 2 "$tool" $o --table 64M --bare 60s >"$out/stopped.txt" 2>&1 || true
    ! grep -q 'missed periods\|corrupt' "$out/stopped.txt" && grep -q 'stopped \(while it waited for clients\|before the first period\)$' "$out/stopped.txt" ||
        { cat "$out/stopped.txt"; echo "$o: what it says when it is stopped early"; exit 1; }
done
refused() { # WORD OPTION...: an error that says so, at once
    local word=$1 said
    shift
    said=$(timeout 60 "$tool" "$@" 2>&1) && { echo "$*: accepted"; exit 1; }
    case $said in *"$word"*) ;; *) echo "$*: unclear: $said"; exit 1 ;; esac
}
refused "/proc/nope" --json /proc/nope
refused "clients are 0 to 3" --kill-client 99
refused "periods are 1 to 10" --kill-client 1 --kill-at 11
# The supervisor is killed: its monitor and its clients end with it, and nothing is left.
"$tool" --periods 60 --period 300ms --table 64M >/dev/null 2>&1 &
supervisor=$!
five() { [ "$(pgrep -cP "$supervisor")" -eq 5 ]; }
within_s 30 five || true
children=$(pgrep -P "$supervisor" | xargs)
[ "$(echo "$children" | wc -w)" -eq 5 ] || { echo "not five children: $children"; kill "$supervisor"; exit 1; }
kill -9 "$supervisor"
wait "$supervisor" 2>/dev/null || true
gone() { [ ! -d "/proc/$1" ] || grep -qs '^State:.Z' "/proc/$1/status"; }
for p in $children; do
    within_s 30 gone "$p" || { echo "process $p outlives its supervisor"; kill -9 "$p"; exit 1; }
done

# By name. Two data nodes at once: the monitor of the first dies, all processes of the second die.
node() { # NAME OPTION...
    "$tool" --serve --name "$name-$1" --clients 2 --reserve 40,20 --derate 0.4 --period 300ms --bare 500ms --table 64M "${@:2}" >"$out/$1.txt" 2>&1 &
    mine="$mine $!"
    soon grep -q "@qoskit-tokenpool/$name-$1\$" /proc/net/unix
}
client() { "$tool" --name "$name-$1" --id "$2" >"$out/$1.$2.txt" 2>&1 & mine="$mine $!"; }
until_period() { for _ in $(seq 1200); do ! grep -q "^period $2 begins" "$out/$1.txt" || return 0; sleep 0.05; done; return 1; }
node one --periods 14 --announce 3 # 3 s after its third period for the kills below, on a busy machine, too
one=$!
node two --periods 60 --announce 2
two=$!
refused "a data node has it" --serve --name "$name-one"
refused "no data node has it" --name "$name-three" --id 0
refused "clients are 0 to 1" --name "$name-one" --id 2
refused "--serve or --id" --name "$name-one"
if [ "$(id -u)" = 0 ]; then # another user, and one of the group that is let in
    said=$(timeout 60 setpriv --reuid=65534 --clear-groups "$tool" --name "$name-one" --id 0 2>&1) && { echo "a stranger was let in"; exit 1; }
    case $said in *"may not attach"*) ;; *) echo "unclear: $said"; exit 1 ;; esac
    # One who knocks without end, and says nothing, keeps nobody out.
    setpriv --reuid=65534 --clear-groups /usr/bin/python3 -c "import socket, time
held = []
for k in range(10**9):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setblocking(False)
    try:
        s.connect('\\0qoskit-tokenpool/$name-one')
        held = held[-60:] + [s]
    except BlockingIOError: time.sleep(0.005)
    if k == 100: print('knocks', flush=True)" >"$out/knocks.txt" 2>&1 & knocks=$!
    soon grep -q knocks "$out/knocks.txt"
    refused "clients are 0 to 1" --name "$name-one" --id 2
    kill $knocks
    ! wait $knocks || { cat "$out/knocks.txt"; exit 1; }
    "$tool" --serve --name "$name-group" --group daemon --clients 2 --table 64M >"$out/grouped.txt" 2>&1 & grouped=$!
    soon grep -q "@qoskit-tokenpool/$name-group\$" /proc/net/unix
    setpriv --reuid=65534 --regid=65534 --groups="$(getent group daemon | cut -d: -f3)" "$tool" --name "$name-group" --id 0 >"$out/group.txt" 2>&1 & member=$!
    soon grep -q "client 0 is here" "$out/grouped.txt"
    soon pgrep -P $grouped >/dev/null # its monitor, which waits for client 1
    kill -0 $member || { cat "$out/group.txt"; exit 1; }
    kill $grouped # only this process: its monitor must not wait for client 1 any longer
    mine="$mine $grouped"
    soon ended $grouped
    status=0
    wait $grouped || status=$?
    [ $status = 130 ] || { echo "a data node that is told to stop: status $status"; exit 1; }
    ! wait $member || { echo "a client without a data node succeeded"; exit 1; }
fi
# Nor do those who may attach, and do not say who they are.
/usr/bin/python3 -c "import socket, time
held = []
while True:
    for s in held[:]:
        try:
            if not s.recv(9): held.remove(s)
        except BlockingIOError: pass
    while len(held) < 20:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.setblocking(False)
        try: s.connect('\\0qoskit-tokenpool/$name-one')
        except BlockingIOError: break
        held.append(s)
    print('silent', flush=True)
    time.sleep(0.01)" >"$out/silent.txt" 2>&1 & silent=$!
soon grep -q silent "$out/silent.txt"
refused "clients are 0 to 1" --name "$name-one" --id 2
kill $silent
! wait $silent || { cat "$out/silent.txt"; exit 1; }
# Who has the name may be a stranger, whose memory is not as long as it says, can shrink, or is none.
/usr/bin/python3 -c "import fcntl, os, socket, struct
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.bind('\\0qoskit-tokenpool/$name-false')
door.listen(9)
for table, period, seal in (1 << 26, 300000000, 2), (0, 300000000, 2), (2 ** 64 - 1, 300000000, 2), (1 << 26, 0, 2), (1 << 26, 300000000, 0):
    s, _ = door.accept()
    fds = [os.memfd_create('false', os.MFD_ALLOW_SEALING) for _ in '12']
    for fd in fds:
        os.ftruncate(fd, 1 << (12 if seal else 26))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal)
    socket.send_fds(s, [struct.pack('96sQQIIIxxxx', b'', period, table, 2, 0, 0)], fds)
s, _ = door.accept()
s.send(bytes(128))
s.recv(9)" >"$out/false.txt" 2>&1 & mine="$mine $!"
soon grep -q "@qoskit-tokenpool/$name-false\$" /proc/net/unix
for _ in 1 2 3 4 5; do refused "no memory of one" --name "$name-false" --id 0; done
refused "another version" --name "$name-false" --id 0
client one 0
first=$!
client two 0
client two 1
soon grep -q "client 0 is here" "$out/one.txt"
refused "is here already" --name "$name-one" --id 0
# A client has not mapped for writing what it may not write, and it cannot map that again.
soon grep -q memfd:qoskit-table "/proc/$first/maps"
[ "$(grep -c 'rw-s.*memfd:qoskit-words' "/proc/$first/maps") $(grep -c 'r--s.*memfd:qoskit-table' "/proc/$first/maps")" = "1 1" ] || { grep memfd "/proc/$first/maps"; exit 1; }
client one 1
until_period one 3
kill -9 "$(pgrep -P $one)" # the monitor
kill -9 $!                 # client 1
until_period two 2
watch_mark
begin=$(date +%s%N)
kill -9 $two
for p in $mine; do # all processes of the second end, with a message
    case $(tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline") in *"$name-two"*) ! wait "$p" 2>/dev/null || { echo "a client without a data node succeeded"; exit 1; } ;; esac
done
took=$((($(date +%s%N) - begin) / 1000000))
echo "the clients of a dead data node ended after $took ms"
failed=0
expect_time "within 2 s" [ $took -le 2000 ]
[ $failed = 0 ] || exit 1
grep -q "data node is gone" "$out/two.0.txt" && grep -q "data node is gone" "$out/two.1.txt" || { cat "$out"/two.?.txt; exit 1; }
status=0
wait $one || status=$?
cat "$out/one.txt"
case $status in 0 | 3) ;; *) exit 1 ;; esac
wait $first || { echo "client 0 failed"; exit 1; }
grep -q "the monitor was killed; another takes over" "$out/one.txt" && grep -q "client 1 is gone" "$out/one.txt"
grep -q "unequal in 0 periods, bound exceeded in 0" "$out/one.txt"
[ -z "$(segments)" ] || { echo "left: $(segments)"; exit 1; }
finish
