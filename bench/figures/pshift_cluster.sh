#!/usr/bin/env bash
# Draws the paper's Figures 8, 9 and 10 from Experiments 3, 4 and 5 on real memcached daemons and files (a minute).
# usage: bench/figures/pshift_cluster.sh OUTDIR
set -eu
out=${1:?usage: bench/figures/pshift_cluster.sh OUTDIR}
log=build/figures_pshift_cluster.txt
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
cluster() {
    local status=0
    mpirun --oversubscribe -n 9 build/examples/pshift_cluster --figures "$out" "$@" >"$log" 2>&1 </dev/null || status=$?
    case $status in
    0) ;;
    3) echo "pshift_cluster: the machine was busy, the figures show it"; cat "$log" ;;
    *) cat "$log"; exit "$status" ;;
    esac
}
cluster --experiment 3,4 --periods 4
cluster --experiment 5 --qos with --size 64M --dir build
