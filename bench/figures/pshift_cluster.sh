#!/usr/bin/env bash
# Draws the paper's Figures 8, 9 and 10 from Experiments 3, 4 and 5 on real memcached daemons and files (a minute).
# usage: bench/figures/pshift_cluster.sh OUTDIR
set -eu
out=${1:?usage: bench/figures/pshift_cluster.sh OUTDIR}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
status=0
mpirun --oversubscribe -n 9 build/examples/pshift_cluster --experiment 3,4,5 --periods 4 --size 64M --dir build \
    --figures "$out" >build/figures_pshift_cluster.txt 2>&1 </dev/null || status=$?
case $status in
0) ;;
3) echo "pshift_cluster: the machine was busy; see build/figures_pshift_cluster.txt" ;;
*) cat build/figures_pshift_cluster.txt; exit "$status" ;;
esac
