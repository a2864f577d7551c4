#!/usr/bin/env bash
# Figures 11 to 14 of the two-choice paper and its Table I on real files over MPI, scaled to this machine.
# usage: bench/figures/twochoice_mpi.sh OUTDIR      (run from the repository root)
set -eu
out=$1
tool=build/examples/twochoice_mpi
mkdir -p "$out"
d=$(mktemp -d build/twochoice_mpi-XXXXXX)
trap 'rm -rf "$d"' EXIT
# Open MPI: may run as root and with more ranks than cores; a rank that waits gives up its core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
run() { # RANKS COMMAND OPTION...
    local n=$1
    shift
    echo "-- $*"
    timeout 120 mpirun --oversubscribe --mca btl self,vader --mca pml ob1 -n "$n" "$tool" "$@" --dir "$d/objects" \
        --json "$out/twochoice_mpi_$1.json" --figures "$out" </dev/null 2>"$d/err" || { cat "$d/err"; exit 1; }
}
run 32 probe --servers 16
run 24 delay --servers 16 --rate 50M
run 8 table --servers 4 --per-process 32M
run 16 mix --servers 8 --rate 16M --no-pull --k 8 --per-process 2M
run 16 burst --servers 8 --rate 16M --slow 0 --no-pull
