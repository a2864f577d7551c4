#!/usr/bin/env bash
# proves: tokenpool_mpi with four ranks: reservations are met, compared with a bare run; the pool's counts equal the
# clients' to the token, over shared-memory windows and over point-to-point messages; and the examples of the help
# text run as written, with the components that the MPI library chooses by itself
# needs: loopback
set -eu
. "$(dirname "$0")/../lib.sh"
out=build/real_tokenpool_mpi
mkdir -p "$out"
# As root and with more ranks than cores: allowed, and yielding when idle.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

run() { # OSC OPTION...
    local osc=$1
    shift
    echo "-- osc $osc"
    judged "$out/$osc.txt" nice -n -5 timeout 200 mpirun --oversubscribe --mca osc "$osc" --mca btl self,vader \
        --mca pml ob1 -n 4 build/examples/tokenpool_mpi --clients 3 --reserve 40,15,10 --derate 0.4 --json "$out/$osc.json" "$@"
}

run sm --periods 6 --period 400ms --table 64M
run pt2pt --periods 4 --period 400ms --table 64M --batch 50 --derate 0.25 --busy

# The examples of its help text, with the cores of this machine.
export OMPI_MCA_rmaps_base_oversubscribe=1 PATH=$PWD/build/examples:$PATH
examples_of tokenpool_mpi <(tokenpool_mpi --help) >"$out/examples"
[ -s "$out/examples" ] || { echo "tokenpool_mpi --help shows no example"; exit 1; }
while read -r command <&4; do
    echo "-- $command"
    judged "$out/example.txt" timeout 300 bash -c "$command"
done 4<"$out/examples"
finish
