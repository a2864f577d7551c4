#!/usr/bin/env bash
# Draws the paper's Figures 8, 9 and 10 from Experiments 3, 4 and 5 on real memcached daemons and files (a minute).
# usage: bench/figures/pshift_cluster.sh OUTDIR
set -eu
out=${1:?usage: bench/figures/pshift_cluster.sh OUTDIR}
log=build/figures_pshift_cluster.txt
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
# cluster FIGURES OPTION...: a run that was too busy to judge is repeated once. If the second run is too busy, too, its
# figures are left out.
cluster() {
    local figures=$1 status try f
    shift
    for try in 1 2; do
        status=0
        mpirun --oversubscribe -n 9 build/examples/pshift_cluster --figures "$out" "$@" >"$log" 2>&1 </dev/null || status=$?
        [ "$status" = 3 ] || break
    done
    for f in $figures; do rm -f "$out/pshift_$f.why"; done
    case $status in
    0) ;;
    3)
        echo "pshift_cluster: the machine was too busy in two runs; not drawn: $figures"
        for f in $figures; do
            rm -f "$out/pshift_$f.svg"
            echo "the machine was too busy in two runs" >"$out/pshift_$f.why"
        done ;;
    *) cat "$log"; exit "$status" ;;
    esac
}
cluster "8a 8b 8c" --experiment 3 --periods 4
cluster "9a 9b 9_200_without 9_200_with" --experiment 4 --periods 4
cluster "10a 10b 10c" --experiment 5 --qos with --size 64M --dir build
