#!/usr/bin/env bash
# Kills a whole job with SIGKILL at random moments, again and again, and lets the next one recover and verify.
# usage: examples/twochoice_mpi/crash.sh [--rounds N] [--dir DIR] [--servers N] [--nodes N] [--seed N] [--longest MS]
#
# In every round a job recovers, reads back every byte that the journals know of, and writes at random until it is
# killed: mpirun, its ranks and their I/O processes, by recorded pid and start time. At the end everything is verified,
# checked, pulled home, verified and checked again. SIGKILL tests all that is above the kernel. The page cache survives
# it, so a missing sync would not show; --trace (see tests/real/twochoice_mpi.sh) shows that each sync came before what
# relies on it.
set -u
rounds=50 dir= servers=3 nodes=3 seed=$RANDOM longest=1500
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --dir) dir=$2 ;;
    --servers) servers=$2 ;;
    --nodes) nodes=$2 ;;
    --seed) seed=$2 ;;
    --longest) longest=$2 ;;
    --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "crash.sh: $1: no such option; see --help" >&2; exit 2 ;;
    esac
    shift 2 || { echo "crash.sh: a value is missing" >&2; exit 2; }
done
tool=$(cd "$(dirname "$0")/../.." && pwd)/build/examples/twochoice_mpi
[ -x "$tool" ] || { echo "crash.sh: $tool is not built: make examples" >&2; exit 1; }
work=$(mktemp -d "$(realpath "${dir:-${TMPDIR:-/tmp}}")/twochoice_crash-XXXXXX") || exit 1
# Shared segments and session files of these jobs have a place of their own, so that what a killed one leaves is found.
shm=$(mktemp -d /dev/shm/twochoice_crash-XXXXXX) || exit 1
RANDOM=$seed

start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
# Of all recorded processes those that are still there: a pid with another start time is somebody else.
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
        [ -z "$left" ] && [ "$tries" -gt 2 ] && break # who was just being started has recorded itself by now
        [ -n "$left" ] && kill -KILL $left 2>/dev/null
        sleep 0.01
    done
    rm -rf "${shm:?}"/* "$work"/pids "$work"/tmp
    [ -z "$left" ]
}
mpirun=
trap '[ -n "$mpirun" ] && kill_job; rm -rf "$work" "$shm"' EXIT

export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_backing_directory=$shm OMPI_MCA_orte_tmpdir_base=$work/tmp
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Few fragments, so that tables are full and logs are compacted often; in every other round eager maintainers, so that
# pulls are under way when the job dies.
common=(--servers "$servers" --dir "$work/objects" --journal "$work/journal" --recover --procs 4 --per-process 512K
    --object 256K --write 64K --fragments 200 --pids "$work/pids")
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

echo "$rounds rounds, $servers servers, $nodes nodes, seed $seed"
writing=0
for round in $(seq "$rounds"); do
    # Every fourth dies early: while it starts, recovers or verifies.
    early=$((round % 4 == 0))
    pull=$([ $((round % 2)) = 0 ] && echo "--idle 2ms --idle-load 1G" || echo --no-pull)
    : >"$work/out" # or its last round's lines would be read
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
    fi
    kill -0 "$mpirun" 2>/dev/null || { echo "round $round, seed $seed: ended by itself"; cat "$work/out"; exit 1; }
    kill_job || { echo "round $round: some of the job could not be killed"; exit 1; }
    mpirun=
    if grep -q '^verified' "$work/out"; then # this round's job read back what the ones before had left
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
echo "$rounds kills, $writing while writing: every acknowledged byte is there, every redirect honoured or pulled home"
