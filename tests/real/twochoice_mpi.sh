#!/usr/bin/env bash
# proves: twochoice_mpi on real files over MPI: placement compared with the fixed scheduler; the order of data, record
# and answer; kills of the whole job; servers that are late, full, gone at the start or killed. No acknowledged write is
# lost.
# needs: loopback
#
# All faults are real: SIGKILL of jobs and of I/O processes, SIGSTOP of servers and of clients, a file
# where a server's directory should be, a tmpfs that fills up, SIGINT. SIGKILL leaves the page cache; therefore the
# order of syncs is judged on the job's own trace, and some kills go on with a disk that has only what was synced.
# QOS_LONG=1: also Figures 11 to 13, Table I and more kills.
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/twochoice_mpi
[ -x "$tool" ] || make -s build/examples/twochoice_mpi || exit 1
work=$(work_dir twochoice_mpi) || exit 1
shm=$(mktemp -d /dev/shm/twochoice_mpi-XXXXXX) || exit 1
trap 'rm -rf "$work" "$shm"' EXIT
failed=0 skipped= other= long=${QOS_LONG:-}
# As root and with more ranks than cores: allowed, and yielding when idle. Shared memory that a job leaves behind is
# found.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_backing_directory=$shm OMPI_MCA_orte_tmpdir_base=$work

bad() { echo "FAILED: $*: status ${status:-?}"; tail -20 "$work/err"; failed=1; }
says() { grep -qE "$1" "$work/out" "$work/err"; }
launch() { # RANKS COMMAND OPTION...; replaces the shell
    local n=$1
    shift
    exec timeout -k 5 300 mpirun --oversubscribe --mca btl self,vader --mca pml ob1 -n "$n" "$tool" "$@"
}
run() { (launch "$@") >"$work/out" 2>"$work/err" </dev/null; status=$?; }
begin() { rm -f "$work"/pids/*; : >"$work/out"; (launch "$@") >"$work/out" 2>"$work/err" </dev/null & job=$!; }
await_job() { wait "$job"; status=$?; }
until_writing() {
    watch_mark
    within_s 60 grep -q '^writing' "$work/out" && return
    bad "does not begin to write"
}
stop_for() { # SECONDS PID...
    kill -STOP "${@:2}"
    sleep "$1"
    kill -CONT "${@:2}"
}
pid_of() { cut -d' ' -f1 "$work/pids/$1.pid"; }
stress=(--servers 3 --dir "$work/objects" --journal "$work/journal" --recover --pids "$work/pids" --procs 4
    --per-process 512K --object 256K --write 64K --fragments 300 --shared --json "$work/stress.json")
mkdir "$work/pids" "$work/trace"

# ---- wrong usage
"$tool" --help >"$work/out" 2>"$work/err"; status=$?
expect "--help names the commands" says '^  drain .*pulls everything home'
run 2 burst --servers 2
expect "no compute node: said" says '2 ranks are 2 servers and no compute node: mpirun -n 3'
run 1 burst --slow 0
expect "--slow without --rate: said, once" [ "$(grep -c 'twochoice_mpi: --slow needs --rate' "$work/err")" = 1 ]

# ---- Figure 14: one of eight servers is ten times slower; an even share, the paper's rule, and that of twochoice.h. The slow
# device needs 5 s for an even share, so a disturbed machine, which delays all three, hides little. Three rounds at most are summed.
sums() { jq -se "[.[].runs | map(.last_process_ns)] | transpose | map(add) | $1" "$work"/burst-?.json >/dev/null; }
witness() { # eight servers of 16 MiB/s each, synced: a disk that does less is what the runs measure
    local kib
    kib=$(fio --name=w --directory="$work" --rw=write --bs=64k --size=128M --fdatasync=8 --time_based --runtime=2 --output-format=json 2>/dev/null |
        jq -r '.jobs[0].write.bw | floor')
    rm -f "$work"/w.*
    [ "${kib:-0}" -lt $((160 * 1024)) ] || return
    echo "the disk writes $((kib / 1024)) MiB/s, by fio, and the servers of this test 128"
}
faster() { sums '.[2] * 2 <= .[0]' && sums '.[2] <= .[1]'; } # half of an even share's time, and not after the paper's rule
watch_mark
for try in 1 2 3; do
    run 16 burst --servers 8 --dir "$work/burst" --rate 16M --slow 0:10 --no-pull --per-process 2M \
        --json "$work/burst.json" --figures "$work"
    cat "$work/out"
    cp "$work/burst.json" "$work/burst-$try.json"
    faster && break
    echo "try $try: the sums of all tries so far are not as asked"
done
expect "burst: ends" [ "$status" = 0 ]
expect "three schedulers" json "$work/burst.json" '.runs | map(.scheduler) == ["fixed", "dynamic", "informed"]'
expect "the fixed scheduler gives the slow server an even share" json "$work/burst.json" '.runs[0].server_bytes[0] == 8388608'
expect_time "twochoice.h gives it at most half of one" json "$work/burst.json" '.runs[2].server_bytes[0] * 2 <= 8388608'
expect_time "its last process ends in half of the time of an even share, and not after that of the paper's rule" faster
expect "each process of each run has a time, each byte a server; one write in 8 at most was sent twice" json "$work/burst.json" \
    '[.runs[] | (.server_bytes | add) as $bytes | (.process_ns | length) == 32 and .failed == 0 and
    ($bytes == 67108864 or (.scheduler == "informed" and $bytes > 67108864 and $bytes <= 75497472))] | all'
expect "Figure 14 is drawn" grep -q '</svg>' "$work/twochoice_mpi_figure14.svg"

if [ -n "$long" ]; then # ---- Figure 13: applications of three sizes
for try in 1 2; do
    run 16 mix --servers 8 --dir "$work/mix" --rate 16M --no-pull --k 8 --json "$work/mix.json" --figures "$work"
    cat "$work/out"
    json "$work/mix.json" '.runs[2].largest_over_mean <= 1.1' && break
    echo "try $try: not balanced"
done
expect "bytes per server: largest / mean at most 1.1 with the rule of twochoice.h" json "$work/mix.json" \
    '.runs[2].largest_over_mean <= 1.1 and .runs[0].largest_over_mean > .runs[2].largest_over_mean'
expect "Figure 13 is drawn" grep -q '</svg>' "$work/twochoice_mpi_figure13.svg"
fi

# ---- the whole job is killed, and recovered; at the same time run the tests that are judged by bytes alone
# As root also the page cache is lost each time, and servers are compacting their logs when they die.
cut=() what="killed jobs"
if [ "$(id -u)" = 0 ]; then cut=(--power-cut 1 --in-compaction 1) what="killed jobs, page cache lost, logs being compacted"; fi
examples/twochoice_mpi/crash.sh --rounds "$([ -n "$long" ] && echo 20 || echo 2)" --dir "$work" --longest 300 "${cut[@]}" \
    >"$work/crash.out" 2>"$work/crash.err" </dev/null &
crash=$!

# ---- everything is read back; the order in the trace is: data durable, record durable, answer
run 6 burst --servers 3 --dir "$work/order" --schedulers informed --verify --trace "$work/trace" \
    --json "$work/order.json"
expect "what was written reads back, through the homes' tables" json "$work/order.json" \
    '.runs[0] | .wrong_bytes == 0 and .failed == 0 and .redirected > 0'
redirected=$(jq '.runs[0].redirected' "$work/order.json") parts=$(jq '.runs[0].parts / 2' "$work/order.json")
order=$(cat "$work"/trace/*.trace | sort -k3,3n -s | awk '
    $1 == "data" {data[$2] = $3}
    $1 == "record" {if (!($2 in data)) wrong++; record[$2] = $3}
    $1 == "ack" {if (!($2 in record)) wrong++; acks++}
    END {print acks + 0, wrong + 0}')
expect "$parts writes ($redirected redirected): data, record, answer, in this order" [ "$order" = "$parts 0" ]

if [ -n "$long" ]; then # ---- Figure 11, Table I, Figure 12: small
run 8 probe --servers 4 --rounds 20 --dir "$work/probe" --json "$work/probe.json" --figures "$work"
expect "probe: every k and number of schedulers" json "$work/probe.json" \
    '(.points | map([.k, .schedulers]) == [[1,1],[1,2],[1,4],[2,1],[2,2],[2,4]]) and ([.points[].p50_ns > 0] | all)'
run 9 delay --servers 8 --rounds 1 --rate 50M --dir "$work/delay" --json "$work/delay.json"
cat "$work/out"
expect "delay: a share for every size and number of writes" json "$work/delay.json" \
    '(.delay | length == 12) and ([.delay[].share > 0] | all)'
run 6 table --servers 3 --dir "$work/table" --per-process 4M --json "$work/table.json" --figures "$work"
expect "table: shorter than the number of creates" json "$work/table.json" \
    '.samples[-1] | .redirects > 0 and .redirects < .creates'
for f in 11 12; do expect "Figure $f is drawn" grep -q '</svg>' "$work/twochoice_mpi_figure$f.svg"; done
fi

# ---- no memory in common: TCP between all, ranks from a host file
echo "localhost slots=6" >"$work/hosts"
timeout -k 5 300 mpirun --hostfile "$work/hosts" --mca btl self,tcp --mca btl_tcp_if_include lo --mca pml ob1 -n 6 \
    "$tool" burst --servers 3 --dir "$work/tcp" --schedulers informed --per-process 1M --verify --json "$work/tcp.json" \
    >"$work/out" 2>"$work/err" </dev/null
status=$?
expect "over TCP" json "$work/tcp.json" '.runs[0] | .wrong_bytes == 0 and .failed == 0 and .bytes >= 12582912'

# ---- a server that fills up: a small tmpfs, in a mount namespace of its own
cat >"$work/mounted" <<'SH'
set -u
mkdir -p "$1/full/server1" && mount -t tmpfs -o size=3M tmpfs "$1/full/server1" || exit 77
shift
exec "$@"
SH
full() { # OPTION...
    unshare -m bash "$work/mounted" "$work" timeout -k 5 300 mpirun --oversubscribe --mca btl self,vader --mca pml ob1 \
        -n 6 "$tool" burst --servers 3 --dir "$work/full" --fragments 2000 --verify "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    status=$?
}
for _ in 1 2 3; do # a server that answers late on a busy machine gets less than its disk holds
    full --schedulers informed --per-process 1M --json "$work/full.json"
    [ "$status" = 0 ] && json "$work/full.json" '.runs[0] | .redone + .said_full == 0' || break
    cat "$work/out"
done
if [ "$status" = 77 ]; then
    skipped="mount needs root: no full file system"
else
    cat "$work/out"
    expect "full server: writes go elsewhere, all of them, and read back" json "$work/full.json" \
        '.runs[0] | .failed == 0 and .wrong_bytes == 0'
    expect_time "full server: it is filled, and says so" json "$work/full.json" '.runs[0] | .redone > 0 or .said_full > 0'
    # What is pulled home makes room again; without that a server gets no more than it holds.
    full --schedulers informed --no-pull --per-process 1M --json "$work/full.json"
    expect "full server, nothing is pulled: it takes what its disk holds" json "$work/full.json" \
        '.runs[0] | .failed == 0 and .wrong_bytes == 0 and .server_bytes[1] > 0 and .server_bytes[1] <= 3145728'
    full --schedulers fixed --per-process 1M --json "$work/full.json"
    expect "full server, fixed scheduler: fails cleanly" json "$work/full.json" '.runs[0] | .failed > 0'
    expect "full server, fixed scheduler: said" says 'failed: no space left \(home server 1\)'
    full --schedulers informed --per-process 1M --log 4M
    expect "no room for the log: the server does not begin" says 'server 1: its I/O process is gone'
    expect "no room for the log: said" says 'full/server1: no room for 4.00 MiB of the log: No space left'
    # All nodes write the same bytes; the small disk holds objects of its own, pieces of others and a log.
    cat >"$work/overlapping" <<'SH'
set -u
work=$1 tool=$2
shift 2
mkdir -p "$work/small/server1" && mount -t tmpfs -o size=800K tmpfs "$work/small/server1" || exit 1
ranks() { timeout -k 5 200 mpirun --oversubscribe --mca btl self,vader --mca pml ob1 -n 6 "$tool" "$@"; }
ranks stress "$@" --run 1s --json "$work/written.json" && ranks verify "$@" --json "$work/read.json"
SH
    unshare -m bash "$work/overlapping" "$work" "$tool" "${stress[@]}" --dir "$work/small" \
        --journal "$work/small_journal" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    cat "$work/out"
    expect "full server, overlapping writers: every acknowledged byte reads back" [ "$status" = 0 ]
    expect "full server, overlapping writers: nothing is wrong or lost" json "$work/read.json" \
        '.wrong_bytes == 0 and .unread_bytes == 0 and .acknowledged > 0'
    json "$work/written.json" '.said_full + .redone + .failed > 0' || other="overlapping writers did not fill a server"
fi

# ---- what the kills of the whole job showed
status=0
wait $crash || status=$?
cat "$work/crash.out"
expect "$what: acknowledged bytes, redirects, checker" [ "$status" = 0 ] || cat "$work/crash.err"
[ ${#cut[@]} = 0 ] || ! grep -q ', 0 while a log was compacted' "$work/crash.out" || other="no kill met a compaction"

# ---- a stopped server does not answer probes in time: writes go elsewhere
begin 6 stress "${stress[@]}" --run 1s --probe-timeout 20ms
until_writing
for _ in 1 2 3; do stop_for 0.2 "$(pid_of rank-1)"; sleep 0.1; done
await_job
cat "$work/out"
expect "late server: nobody fails" json "$work/stress.json" \
    '.failed == 0 and .acknowledged == .writes'
# A quick disk brings some 700 decisions in this second; where it stands still meanwhile, perhaps nobody asked the server.
if json "$work/stress.json" '.decisions < 500 and (.no_answer == 0 or .late_answers == 0)'; then
    late "late server: $(jq .decisions "$work/stress.json") decisions, and none met a stopped server"
else
    expect_time "late server: its silence is noticed" json "$work/stress.json" '.no_answer > 0 and .late_answers > 0'
fi
# 2,000 decisions fill a log to its half several times over; a slow disk does not get that far in 1 s.
expect_time "late server: logs were compacted under way" json "$work/stress.json" '.compactions > 0 or .decisions < 2000'

# ---- clients that are stopped: decisions and announced writes that do not come. A client may be stopped between two
# decisions each time, so this is repeated until a server gave a decision up, at most five times.
for _ in 1 2 3 4 5; do
    begin 6 stress "${stress[@]}" --run 1s --probe-timeout 10ms
    until_writing
    for _ in $(seq 6); do stop_for 0.08 "$(pid_of rank-3)" "$(pid_of rank-4)"; sleep 0.05; done
    await_job
    echo "given up: $(jq .given_up "$work/stress.json")"
    expect "silent clients: no write fails" json "$work/stress.json" '.failed == 0'
    ! json "$work/stress.json" '.given_up > 0' || break
done
json "$work/stress.json" '.given_up > 0' || other="no client was stopped inside a decision"
run 6 verify "${stress[@]}"
expect "and every acknowledged byte is there" [ "$status" = 0 ]

# ---- the I/O processes of two servers of three are killed under way, one after the other
begin 6 stress "${stress[@]}" --run 1s
until_writing
sleep 0.3
kill -KILL "$(pid_of io-1)"
sleep 0.2
kill -KILL "$(pid_of io-2)"
await_job
# The run lasts a second: on a machine that stalls meanwhile both may die when it is over.
expect_time "second killed I/O process: said" says 'server 2: its I/O process was killed by signal 9'
expect_time "killed I/O process: said" \
    says 'server 1: its I/O process was killed by signal 9; its objects cannot be reached until a restart'
expect "killed I/O process: no byte is wrong, others go on" json "$work/stress.json" '.wrong_bytes == 0 and .acknowledged > 0'
expect_time "killed I/O process: writes to its objects fail cleanly" json "$work/stress.json" '.failed > 0'
# Failures need no disk: they are the majority if the disk stalls for a part of the second.
json "$work/stress.json" '.acknowledged > .failed' || other="two killed servers of three: fewer writes were acknowledged than failed"
expect_time "killed I/O process: said, with the reason" \
    says 'write of [0-9]+ bytes at [0-9]+ failed: server is gone \(home server 1\)'

# ---- a server is gone at start
mv "$work/objects/server1" "$work/away" && : >"$work/objects/server1"
run 6 stress "${stress[@]}" --run 500ms
expect "gone at start: said" says 'server 1: its I/O process is gone'
expect "gone at start: what it holds cannot be read, the rest is right, writes go on" json "$work/stress.json" \
    '.wrong_bytes == 0 and .said_down > 0 and .acknowledged > 0'
expect "gone at start: status 1" [ "$status" = 1 ]
rm "$work/objects/server1" && mv "$work/away" "$work/objects/server1"
run 6 verify "${stress[@]}"
cat "$work/out"
expect "back again: every acknowledged byte is there" json "$work/stress.json" \
    '.wrong_bytes == 0 and .unread_bytes == 0 and .acknowledged > 0'
run 6 check "${stress[@]}"
expect "back again: the checker finds nothing" [ "$status" = 0 ]
for _ in 1 2 3 4 5; do # where little is written all may be at home: until there is a piece
    run 6 stress "${stress[@]}" --run 500ms --no-pull
    run 6 list "${stress[@]}" --no-pull
    ! says '^ *[0-9]+ +[0-9a-f]{16} ' || break
done
expect "list: has a table" says 'home +object +from'
# The file of one piece loses its last byte.
read -r _ object from to server version < <(grep -E '^ *[0-9]+ +[0-9a-f]{16} ' "$work/out" | tail -1)
piece=$work/objects/server$server/away/$object-$(printf %012x "$version")
# Another process has a server's directory.
exec 9<"$work/objects/server1"
flock 9
run 6 check "${stress[@]}" --no-pull
expect "a directory that another job has: said" says 'server1: another job has it'
expect "and its server does not start" [ "$status" = 1 ]
exec 9<&-
# A log that is emptied: its mark says that it had records, so its server does not start, and nothing is read wrongly.
log=$work/objects/server1/redirect
cp "$log.log" "$work/whole" && : >"$log.log"
run 6 check "${stress[@]}" --no-pull
expect "an emptied log: check does not call that success" [ "$status" = 1 ]
expect "and says what is damaged" says 'server 1: .*redirect.log: corrupt'
run 6 verify "${stress[@]}" --no-pull
expect "and no byte is read wrongly" says '; 0 bytes wrong'
make -s build/examples/twochoice_log && build/examples/twochoice_log "$log.log" "$log.mark" >"$work/out" 2>"$work/err"; status=$?
expect "twochoice_log says why" says 'a recovery: corrupt.* records that were acknowledged are missing'
cp "$work/whole" "$log.log"
build/examples/twochoice_log "$log.log" "$log.mark" >"$work/out" 2>"$work/err"; status=$?
expect "the log is there again: it can be recovered" says 'a recovery: QOS_OK: the table is complete'
expect "list: names a piece that is there" [ -s "$piece" ]
mv "$piece" "$work/piece" && cp "$work/piece" "$piece" && truncate -s $((to - 1)) "$piece"
run 6 check "${stress[@]}" --no-pull
expect "one byte of a piece is lost: the checker says where" says "the bytes are not there: object $object $from-$to,"
expect "and finds nothing else" [ "$(grep -c "server [0-9]*: .*: object" "$work/err")" = \
    "$(grep -c "the bytes are not there: object $object " "$work/err")" ]
expect "and does not call that success" [ "$status" = 1 ]
mv "$work/piece" "$piece"
run 6 drain "${stress[@]}"
expect "drain: all pulled home" says ' 0 redirects left'
object=$(find "$work"/objects/*/objects -type f -size +0 | head -1)
printf 'not what was written' | dd of="$object" bs=1 seek=1000 conv=notrunc status=none
run 6 verify "${stress[@]}"
expect "20 bytes of an object are overwritten behind our back: the journal knows" json "$work/stress.json" \
    '.wrong_bytes > 0 and .wrong_bytes <= 20'

# ---- Ctrl-C

# mpirun kills processes that have not ended this many seconds after Ctrl-C, and always waits that long. Its default is 1;
# a disk alone may need that. So 4, and 20 if that was not enough.
objects() { [ -n "$(ls "$work/stopped/server0/objects" 2>/dev/null)" ]; }
for seconds in 4 20; do
    export OMPI_MCA_odls_base_sigkill_timeout=$seconds
    rm -rf "$work/stopped"
    begin 6 burst --servers 3 --dir "$work/stopped" --write 64K --rate 1M
    within_s 60 objects
    sleep 0.5
    mpirun=$(cat "/proc/$job/task/$job/children")
    kill -INT ${mpirun:-$job}
    await_job
    ! says '^fixed ' || [ -n "$(ls "$work/stopped" 2>/dev/null)" ] || break
done
expect "Ctrl-C: what was measured so far is printed" says '^fixed '
expect "Ctrl-C: nothing is left" [ -z "$(ls "$work/stopped" 2>/dev/null)" ]

expect "no shared segment is left" [ -z "$(ls "$shm")" ]
[ "$failed" = 0 ] || exit 1
[ -z "$other" ] || late "$other"
[ -z "$skipped" ] || { echo "$skipped"; exit 77; }
finish
