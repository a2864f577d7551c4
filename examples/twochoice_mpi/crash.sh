#!/usr/bin/env bash
# Kills a whole job with SIGKILL at random moments, again and again, and lets the next one recover and verify.
# usage: examples/twochoice_mpi/crash.sh [--rounds N] [--dir DIR] [--servers N] [--nodes N] [--seed N] [--longest MS]
#                                        [--power-cut 1] [--in-compaction 1]
#
# In every round a job recovers, reads back every byte that the journals list, and writes at random until it is
# killed: mpirun, its ranks and their I/O processes, by recorded pid and start time. At the end everything is verified,
# checked, pulled home, verified and checked again. SIGKILL tests everything above the kernel, but leaves the page
# cache, so a missing sync would not be found. With --power-cut 1 (as root) the objects are on a file system of their
# own, in a file behind a loop device; after each kill the next job gets a copy of that file as it was at that moment,
# without what only the page cache had. With --in-compaction 1 a job is killed when a server compacts its log.
set -u
arguments=("$@")
rounds=50 dir= servers=3 nodes=3 seed=$RANDOM longest=1500 power_cut=0 in_compaction=0
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --dir) dir=$2 ;;
    --servers) servers=$2 ;;
    --nodes) nodes=$2 ;;
    --seed) seed=$2 ;;
    --longest) longest=$2 ;;
    --power-cut) power_cut=$2 ;;
    --in-compaction) in_compaction=$2 ;;
    --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "crash.sh: $1: no such option; see --help" >&2; exit 2 ;;
    esac
    shift 2 || { echo "crash.sh: a value is missing" >&2; exit 2; }
done
# Mounts in a namespace of their own end with this script, however it ends.
if [ "$power_cut" = 1 ] && [ -z "${TWOCHOICE_CRASH_NAMESPACE:-}" ]; then
    TWOCHOICE_CRASH_NAMESPACE=1 exec unshare -m "$0" "${arguments[@]}"
fi
tool=$(cd "$(dirname "$0")/../.." && pwd)/build/examples/twochoice_mpi
[ -x "$tool" ] || { echo "crash.sh: $tool is not built: make examples" >&2; exit 1; }
work=$(mktemp -d "$(realpath "${dir:-${TMPDIR:-/tmp}}")/twochoice_crash-XXXXXX") || exit 1
# Shared segments and session files of these jobs have a place of their own, so that what a killed one leaves is found.
shm=$(mktemp -d /dev/shm/twochoice_crash-XXXXXX) || exit 1
RANDOM=$seed

start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
# The recorded processes that are still there: a pid with another start time is another process.
left_alive() {
    cat "$work"/pids/*.pid "$work/children" 2>/dev/null | while read -r pid start; do
        [ "$(start_of "$pid")" = "$start" ] && echo "$pid"
    done
}
kill_job() {
    local pid tries left
    for pid in $(cat "/proc/$mpirun/task/$mpirun/children" 2>/dev/null); do
        echo "$pid $(start_of "$pid")"
    done >"$work/children"
    # All with one call. shellcheck disable=SC2046
    kill -KILL "$mpirun" $(left_alive) 2>/dev/null
    wait "$mpirun" 2>/dev/null
    for tries in $(seq 500); do
        left=$(left_alive)
        [ -z "$left" ] && [ "$tries" -gt 2 ] && break # processes that were just being started have recorded themselves by now
        [ -n "$left" ] && kill -KILL $left 2>/dev/null
        sleep 0.01
    done
    rm -rf "${shm:?}"/* "$work"/pids "$work"/tmp
    [ -z "$left" ]
}
# A file system whose dirty pages the kernel does not write back during a round.
mount_disk() { mkdir -p "$work/objects" && mount -o loop,commit=300 "$work/disk" "$work/objects"; }
cut_power() {
    cp "$work/disk" "$work/disk.now" && umount "$work/objects" && mv "$work/disk.now" "$work/disk" && mount_disk
}
mpirun=
trap '[ -n "$mpirun" ] && kill_job; mountpoint -q "$work/objects" && umount "$work/objects"
    rm -rf "$work" "$shm"' EXIT

export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_backing_directory=$shm OMPI_MCA_orte_tmpdir_base=$work/tmp
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# All nodes write to the same bytes. Few fragments, so that tables are full and logs are compacted often; in every other round eager maintainers, so that
# pulls are under way when the job dies.
common=(--servers "$servers" --dir "$work/objects" --journal "$work/journal" --recover --procs 4 --per-process 512K
    --object 256K --write 64K --fragments 200 --shared --pids "$work/pids")
job() { # COMMAND OPTION...; in a subshell
    mkdir -p "$work/pids" "$work/tmp"
    exec mpirun --oversubscribe --mca btl self,vader --mca pml ob1 -n $((servers + nodes)) "$tool" "$@" "${common[@]}"
}
must() { # COMMAND OPTION...
    (job "$@") >"$work/out" 2>&1 </dev/null || {
        echo "after round $round, seed $seed: $1 failed"
        cat "$work/out"
        exit 1
    }
    grep -E '^(verified|[0-9]+ redirects checked|.*pulled home)' "$work/out"
}

if [ "$power_cut" = 1 ]; then
    truncate -s 64M "$work/disk"
    { mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$work/disk" && mount_disk; } || {
        echo "crash.sh: --power-cut needs root, mkfs.ext4 and loop devices" >&2
        exit 1
    }
fi
echo "$rounds rounds, $servers servers, $nodes nodes, seed $seed"
writing=0 compacting=0
for round in $(seq "$rounds"); do
    found=
    # Every fourth job dies early: while it starts, recovers or verifies.
    early=$((round % 4 == 0))
    pull=$([ $((round % 2)) = 0 ] && echo "--idle 2ms --idle-load 1G" || echo --no-pull)
    : >"$work/out" # otherwise the lines of the last round would be read
    # shellcheck disable=SC2086
    job stress --seed "$((seed + round))" $pull >"$work/out" 2>&1 </dev/null &
    mpirun=$!
    if [ "$early" = 1 ]; then
        sleep "0.$(printf %03d $((RANDOM % 600)))"
    else
        for _ in $(seq 3000); do
            grep -q '^writing' "$work/out" && break
            kill -0 "$mpirun" 2>/dev/null || break
            sleep 0.01
        done
        grep -q '^writing' "$work/out" || {
            wait "$mpirun"
            echo "round $round, seed $seed: mpirun ended with status $? before it wrote:"
            cat "$work/out"
            exit 1
        }
        writing=$((writing + 1))
        at=$((RANDOM % longest))
        sleep "$((at / 1000)).$(printf %03d $((at % 1000)))"
        # A compaction writes into redirect.next, and its swap takes that name away: a newer file of that name is a
        # compaction under way.
        touch "$work/now"
        until=$((SECONDS + 8)) io=$(cat "$work"/pids/io-*.pid 2>/dev/null | cut -d' ' -f1)
        while [ "$in_compaction" = 1 ] && [ -z "$found" ] && [ $SECONDS -lt $until ]; do
            for next in "$work"/objects/*/redirect.next; do
                if [ -s "$next" ] && [ "$next" -nt "$work/now" ]; then
                    kill -STOP $io 2>/dev/null # as it is now
                    found=$next
                    break
                fi
            done
        done
    fi
    kill -0 "$mpirun" 2>/dev/null || { echo "round $round, seed $seed: ended by itself"; cat "$work/out"; exit 1; }
    kill_job || { echo "round $round: some of the job could not be killed"; exit 1; }
    mpirun=
    [ -z "$found" ] || [ ! -s "$found" ] || compacting=$((compacting + 1))
    [ "$power_cut" = 0 ] || cut_power || { echo "round $round: the copy cannot be mounted"; exit 1; }
    if grep -q '^verified' "$work/out"; then # this round's job read back what the earlier rounds had left
        echo "round $round: $(grep '^verified' "$work/out"), killed"
        grep -q ' 0 bytes wrong, 0 could not be read' "$work/out" || exit 1
    else
        echo "round $round: killed before it had verified"
    fi
    grep -vE '^(verified|writing)|by node 0|^[-[]|^$' "$work/out"
done
must verify --no-pull
must check --no-pull
must drain
must verify
must check
left=$(find "$work"/objects/*/away -type f | wc -l)
[ "$left" = 0 ] || { echo "$left files are still kept for other servers"; exit 1; }
echo "$rounds kills, $writing while writing, $compacting while a log was compacted: every acknowledged byte is there, every redirect honoured or pulled home"
