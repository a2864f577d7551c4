# Sourced by the scripts of tests/: changes to the repository's root and defines what they share.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
script=tests/$(basename "$(dirname "$0")")/$(basename "$0")
JOBS=${JOBS:-$(nproc)}
export LC_ALL=C

# Prints a key (proves, links, flags...) from a source's first lines: says FILE links
says() { sed -n "1,8s,^// $2: *,,p" "$1"; }

# How the Makefile builds a test: with the headers' bodies inside, or linked with the objects of the headers that it
# tests.
has_own_bodies() { # SOURCE
    case $1 in tests/interleave/* | *.cc) return 0 ;; esac
    sed -n 1,8p "$1" | grep -qE '^// flags:.* -D|^#define (QOS|HTB|TAGS|PSHIFT|TOKENPOOL|TWOCHOICE)_'
}
bodies_of_test() { # SOURCE -> qos htb: the header in its name and those that it includes itself
    local h name=${1##*/}
    name=${name%.*}
    for h in *.h; do
        case $h in qos.h | "${name%%_*}.h") echo "${h%.h}"; continue ;; esac
        ! grep -q "^#include \"$h\"" "$1" || echo "${h%.h}"
    done
}

# The flags of the headers' contract; Wstrict-prototypes is for C alone.
WARNINGS="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wundef -Werror"
C_WARNINGS="$WARNINGS -Wstrict-prototypes"
# Code for a kernel, where such a code model is known.
KERNEL_CODE=
case $(uname -m) in x86_64) KERNEL_CODE="-mcmodel=kernel -mno-red-zone -mgeneral-regs-only -fno-pic -fno-stack-protector" ;; esac
CROSS="aarch64-linux-gnu arm-linux-gnueabihf i686-linux-gnu s390x-linux-gnu riscv64-linux-gnu"

# Runs each line of standard input as a command, several at a time; status 0 if all succeed. Under a make with a jobserver
# (make test) they are jobs of that make: all scripts together keep to its -j. Else $JOBS at a time.
side_by_side() {
    local dir rc
    if [[ ${MAKEFLAGS:-} != *jobserver* ]]; then
        tr '\n' '\0' | xargs -0 -r -n 1 -P "$JOBS" bash -c
        return
    fi
    dir=$(mktemp -d)
    # make does not pass exported functions on; bash reads this file first.
    { echo 'unset BASH_ENV'; declare -f; } >"$dir/functions"
    awk '{gsub(/\$/, "$$"); print "j" NR ":\n\t@" $0 "\nall: j" NR} END {print "all:\n.PHONY: all"; for (i = 1; i <= NR; i++) print ".PHONY: j" i}' >"$dir/jobs"
    BASH_ENV=$dir/functions ${MAKE:-make} --no-print-directory -s -k -f "$dir/jobs" SHELL=bash all
    rc=$?
    rm -rf "$dir"
    return $rc
}

# What a real test needs of its surroundings stands in its first lines, `# needs: io_uring loopback`. Where it is not there, the
# test is skipped, with a sentence that says what to do.
has() {
    case $1 in
    root) [ "$(id -u)" = 0 ] ;;
    mounts) unshare -m true 2>/dev/null ;;
    namespaces) unshare -n true 2>/dev/null && unshare -m mount --make-rprivate / 2>/dev/null ;;
    io_uring) perl -e 'my $params = "\0" x 120; exit(syscall(425, 1, $params) < 0)' ;; # io_uring_setup, on every architecture
    loopback) perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or exit 1;
        exit !IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $s->sockport, Timeout => 2)' 2>/dev/null ;;
    *) echo "$script: needs $1: no such thing" >&2; return 1 ;;
    esac
}
remedy() {
    case $1 in
    root) echo "it needs root: run it as root" ;;
    mounts) echo "mount and losetup are not allowed: run it as root outside of a container, or with --cap-add SYS_ADMIN" ;;
    namespaces) echo "network namespaces are not allowed: run it as root outside of a container, or with --privileged" ;;
    io_uring) echo "io_uring is not allowed: sysctl kernel.io_uring_disabled=0, or a seccomp profile that allows io_uring_setup" ;;
    loopback) echo "nothing can connect to 127.0.0.1: ip link set lo up" ;;
    esac
}
for thing in $(sed -n '1,12s/^# needs: *//p' "$0"); do
    has "$thing" || { echo "SKIP $script: $(remedy "$thing")"; exit 77; }
done

# Last line of every script, with its status. A script that ends without it has failed.
finish() {
    [ "${1:-0}" = 0 ] || exit 1
    [ -z "${unsure:-}" ] || { echo "INCONCLUSIVE $unsure"; exit 78; }
    echo "finished $script"
    exit 0
}

# Scripts with many checks go on after a failed one; `failed` is their final status.
ok() { echo "ok: $*"; }
bad() { echo "FAILED: $*"; failed=1; }
expect() { # WHAT TEST-COMMAND...
    local what=$1
    shift
    if "$@"; then ok "$what"; else bad "$what ($*)"; fi
}
json() { jq -e "$2" "$1" >/dev/null; } # FILE EXPRESSION

# There are two kinds of verdicts. What must hold on any machine (counters, data, logs, statuses, messages): bad,
# expect. What needs time, processors or a disk: expect_time. If that does not hold, and the machine was disturbed since
# the last watch_mark, the test is inconclusive, unless something else failed; if the machine was not disturbed, the test
# has failed. `disturbed` alone decides, and asks witnesses outside of the program under test: tests/watch.pl, which asks
# the kernel, the test's own function `witness`, and, after watch_disk, fio.
watch() {
    mkdir -p build/log
    watched=${QOS_TEST_DIR:-$PWD/build/log}/watch.$$
    : >"$watched"
    (env -u QOS_TEST_RUN nice -n -15 perl tests/watch.pl notes "$watched" $$ </dev/null >/dev/null 2>&1 &)
    watch_mark
}
watch_mark() { watch_from=$(perl tests/watch.pl now $$); }
# Random reads a second that the disk does, 32 outstanding: an outside measure. With --direct=0 of a file in memory: the memory.
disk_iops() { # FILE SIZE [OPTION...]
    fio --name=w --filename="$1" --rw=randread --bs="$2" --iodepth=32 --ioengine=libaio --direct=1 --readonly --size=64M \
        --time_based --runtime=1 --output-format=json "${@:3}" 2>/dev/null | jq -r '.jobs[0].read.iops | floor'
}
# From here on a disk that does 15 % more or less than now explains a late result, too, in any of four seconds after it. The file
# for that, of 64 MiB, lies in DIR.
watch_disk() { # DIR
    watched_file=$1/witness
    head -c 64M /dev/urandom >"$watched_file" && sync "$watched_file"
    watched_iops=$(disk_iops "$watched_file" 4k)
}
disturbed() { # prints the cause
    local iops i
    sleep 0.1
    perl tests/watch.pl since "$watched" $$ "$watch_from" && return
    if declare -F witness >/dev/null && witness; then return; fi
    [ -n "${watched_iops:-}" ] || return
    for i in 1 2 3 4; do
        iops=$(disk_iops "$watched_file" 4k)
        [ $((iops * 100)) -lt $((watched_iops * 85)) ] || [ $((iops * 85)) -gt $((watched_iops * 100)) ] || continue
        echo "the disk did $watched_iops random reads a second, by fio, and $iops in second $i after it"
        return 0
    done
    return 1
}
expect_time() { # WHAT TEST-COMMAND...
    local what=$1 why
    shift
    if "$@"; then ok "$what"
    elif why=$(disturbed); then
        echo "LATE: $what: $why"
        unsure=${unsure:-"$what: $why"}
    else bad "$what ($*)"; fi
}
# The run gave no verdict on this. A witness must say why; else that is a failure, as programs under test can be slow themselves.
late() { expect_time "$1: no verdict" false; } # WHAT
inconclusive() { # WHAT: the same, and ends the test; the output before it is the trace
    late "$1"
    finish "${failed:-0}"
}
# True as soon as the command succeeds; false after this many seconds. Tries are counted, so a stall of the machine
# does not shorten the wait; a command that takes its time gets five times the seconds.
within_s() { # SECONDS COMMAND...
    local tries_left last_try=$((SECONDS + 5 * $1)) # the command may be a function: it sees these names, so no short ones
    for ((tries_left = $1 * 20; tries_left > 0 && SECONDS <= last_try; tries_left--)); do
        "${@:2}" && return
        sleep 0.05
    done
    return 1
}

# A directory on a disk: below build/, or where tests/under_load.sh has mounted one.
work_dir() { mktemp -d "${QOS_TEST_DIR:-$PWD/build}/$1-XXXXXX"; } # NAME
# A directory in memory, or in build/. etcd syncs its disk at each change; there nobody else's writes make it miss a period.
memory_dir() { mktemp -d /dev/shm/qoskit-XXXXXX 2>/dev/null || mktemp -d "$PWD/build/memory-XXXXXX"; }

# Searches all states of a model with spin, in $out/NAME. Prints the first error, or why there is no verdict; nothing: it holds.
# -DCOLLAPSE, for large searches, takes less memory and twice the time.
spin_search() { # NAME MODEL DEFINES [COMPILER-OPTION...]
    local dir=$out/$1
    mkdir -p "$dir"
    # shellcheck disable=SC2086  # several defines
    (cd "$dir" && cp "$2" model.pml && spin $3 -a model.pml >spin.log 2>&1 && gcc -O1 -w -DSAFETY -DNOCLAIM -DMEMLIM=6000 ${4:-} -o pan pan.c) ||
        { echo "$1 does not compile"; cat "$dir/spin.log"; return; }
    (cd "$dir" && ./pan -m1000000 -E) >"$dir/log" 2>&1
    grep -hoE 'assertion violated.*|out of memory|max search depth too small' "$dir/log" | head -1
    grep -q 'errors: ' "$dir/log" || echo "no verdict"
    echo "$1: $(sed -n 's/ states, stored.*/ states/p' "$dir/log" | xargs), $(grep -o 'errors: [0-9]*' "$dir/log"), $(sed -n 's/pan: elapsed time //p' "$dir/log")" >&2
}
held() { [ -z "$1" ] || { echo "$1"; return 1; }; }

# Plants each bug of tests/plants/KIND/*.txt, one at a time, into a copy of examples/KIND in $d/BUG; the test and its section that
# the bug names must find it. The script defines build_with DIRECTORY and test_with DIRECTORY TEST [SECTION].
find_planted() { # KIND AT-ONCE [BUG]
    local source name test log planted=0
    tests/build/plant.pl list tests/plants/"$1"/*.txt >"$d/list" || exit 1
    while IFS=$'\t' read -r source name test _; do
        [ -z "${3:-}" ] || [ "$name" = "$3" ] || continue
        planted=$((planted + 1))
        find_one "$1" "$source" "$name" "$test" >"$d/$name.log" 2>&1 </dev/null &
        # shellcheck disable=SC2046
        [ "$(jobs -rp | wc -l)" -lt "$2" ] || wait -n $(jobs -rp)
    done <"$d/list"
    wait $(jobs -p)
    for log in "$d"/*.log; do
        cat "$log"
        ! grep -q '^FAILED' "$log" || failed=1
        unsure=${unsure:-$(sed -n 's/^LATE: //p' "$log" | head -n 1)}
    done
    expect "$planted bugs were planted" [ "$planted" -gt 0 ]
    expect "each has a verdict" [ "$(cat "$d"/*.log | grep -cE '^(ok|LATE|FAILED): ')" = "$planted" ]
}
find_one() { # KIND SOURCE BUG TEST
    local here=$d/$3 rc=0 begin=$SECONDS
    mkdir "$here"
    cp "examples/$1"/*.[ch] "$here/"
    if ! tests/build/plant.pl apply "tests/plants/$1/$2.txt" "$3" "$here" 2>"$here/log"; then
        bad "$3: $(cat "$here/log")"
    elif ! build_with "$here" >"$here/log" 2>&1; then
        bad "$3 does not compile: $(grep -m1 error "$here/log")"
    else
        for _ in 1 2; do # the machine gave no verdict
            rc=0
            # shellcheck disable=SC2086
            QOS_TEST_FAILURES=1 test_with "$here" ${4/:/ } >"$here/log" 2>&1 || rc=$?
            [ $rc = 78 ] || break
        done
        if [ "$rc" = 1 ] && grep -q '^FAILED' "$here/log"; then ok "$3, $((SECONDS - begin)) s: $(grep -m1 '^FAILED' "$here/log" | cut -c1-120)"
        elif [ "$rc" = 78 ]; then echo "LATE: $3: $(grep INCONCLUSIVE "$here/log")" # it had a witness
        else bad "$3 survived, status $rc: $(tail -n 3 "$here/log" | tr '\n' ' ')"; fi
    fi
}
case $script in tests/real/* | tests/vm/* | tests/plants/*) watch ;; esac

# The quickstart servers, on the loopback address.
# serve PROGRAM ARGUMENT...: runs PROGRAM PORT ARGUMENT... with a free port; sets port and pid; output in $d/out and $d/err.
# Tests that run beside others have ports from 10000 to 19999, the others' begin at 20000.
serve() {
    for _ in 1 2 3 4 5; do
        port=$((10000 + RANDOM % 9900))
        timeout 300 "$1" "$port" "${@:2}" >"$d/out" 2>"$d/err" &
        pid=$!
        within_s 30 up_or_ended
        sleep 0.1 # the port is in use by another program: ours is about to end
        kill -0 "$pid" 2>/dev/null && return 0
    done
    cat "$d/err"
    exit 1
}
# U6: more connections than the server may have files, which send nothing; when they are gone it serves as before, though
# some go on asking without a pause.
survives_flood() { # LINE BYTES PROGRAM ARGUMENT...
    local line=$1 bytes=$2 got busy
    printf '#!/bin/bash\nulimit -n 40\nexec "%s" "$@"\n' "$3" >"$d/few" && chmod +x "$d/few"
    serve "$d/few" "${@:4}"
    perl -MIO::Socket::INET -e 'sub more {map {IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0], Timeout => 2)} 1 .. shift}
        my @busy = more(6); my @idle = more(60); sleep 1; @idle = (); $| = 1; print "gone\n";
        for (1 .. 1e9) {for (@busy) {$_->syswrite("$ARGV[1]\n") or exit} for (@busy) {$_->sysread(my $b, 65536)}}' "$port" "$line" >"$d/busy" &
    busy=$!
    within_s 60 grep -q gone "$d/busy"
    got=$( (exec 5<>"/dev/tcp/127.0.0.1/$port" && printf '%s\n' "$line" >&5 && timeout 20 head -c "$bytes" <&5 | wc -c) 2>/dev/null)
    expect "after a flood of idle connections it answers" [ "$got" = "$bytes" ]
    kill "$busy"
    kill -TERM "$pid"
    wait "$pid"
    expect "and ends by SIGTERM" [ $? = 0 ]
    pid=
}
# A client sends a line that is wrong, half closes and resets, all before the server looks: no SIGPIPE ends it.
survives_reset() { # LINE BYTES
    perl -MIO::Socket::INET -MSocket -e 'my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]); select undef, undef, undef, 0.3;
        kill "STOP", $ARGV[1]; $s->syswrite("wrong\n"); $s->shutdown(1); setsockopt $s, SOL_SOCKET, SO_LINGER, pack "ii", 1, 0;
        close $s; kill "CONT", $ARGV[1]' "$port" "$(pgrep -P "$pid")"
    expect "it outlives a client that is gone before its answer" [ "$( (ask_some "$port" "$1" "$2") 2>/dev/null | wc -c)" = "$2" ]
}
ask_some() { exec 5<>"/dev/tcp/127.0.0.1/$1" && printf '%s\n' "$2" >&5 && timeout 20 head -c "$3" <&5; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
up_or_ended() { listens "$port" || ! kill -0 "$pid" 2>/dev/null; }
ask() { # PORT LINE: prints the server's answer, until it closes
    exec 5<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf '%s\n' "$2" >&5
    timeout 60 cat <&5
    exec 5>&-
}

# The examples of a help text: lines that begin with the tool or with mpirun, and the lines that continue them after a
# backslash.
examples_of() { # TOOL HELP
    awk -v tool="$1" 'more {line = line $0} !more && $0 ~ "^ *(mpirun [^|]*)?" tool " " && !/usage:|lists (its|the) options|^[a-z_]+( [a-z]+)? - / {line = $0; more = 1}
        more && /\\$/ {sub(/\\$/, "", line); next} more {sub(/^ +/, "", line); gsub(/  +/, " ", line); print line; more = 0}' "$2"
}
# The examples that need no clock and no disk.
alone_example() { case $1 in "simulate pshift"*) false ;; "simulate "* | "pshift_cluster keys"*) true ;; *) false ;; esac; }

# Runs a command that judges itself (examples/tokenpool_*) and prints its output. A missed reservation, or a machine too
# slow for a verdict (status 3), is retried once; wrong counts never are. Ends the script unless all checks held: as failed if
# two tries missed a reservation, as inconclusive if either was too slow or the machine was disturbed.     judged OUTPUT COMMAND...
judged() {
    local out=$1 try status slow=
    shift
    watch_mark
    for try in 1 2; do
        status=0
        "$@" >"$out" 2>&1 </dev/null || status=$?
        cat "$out"
        case $status in 0) return 0 ;; 77) exit 77 ;; esac
        grep -q 'unequal in 0 periods, bound exceeded in 0' "$out" || { echo "status $status, but the counts are not right"; exit 1; }
        echo "-- try $try: status $status"
        [ "$status" -ne 3 ] || slow=1
    done
    failed=0
    inconclusive "status $status: ${slow:+this machine did less than in the bare run}"
}
