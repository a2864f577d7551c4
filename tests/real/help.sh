#!/usr/bin/env bash
# proves: the examples in the tools' help texts work exactly as printed (status 0, or 3 where the tool judges the
# machine); those that need only a processor are in build/help
# needs: io_uring loopback
#
# They are run in a directory of their own, with the tools in the PATH and the environment that the help text asks for.
# Each tool's own test judges promises. So a tool that finds a reservation missed (status 1, with its verdict on stdout
# and nothing on stderr) has worked here.
set -u
. "$(dirname "$0")/../lib.sh"
failed=0
root=$PWD
work=$(work_dir help_examples) || exit 1
trap 'rm -rf "$work"' EXIT
export PATH=$root/build/examples:$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1

# Prints why an example is not run, if it is not.
reason() {
    case $1 in
    *--hostfile*) echo "needs other hosts" ;;
    "mpirun "*tokenpool_mpi*) echo "judged: tests/real/tokenpool_mpi.sh" ;;
    *tokenpool_verbs*) echo "needs an RDMA device with this address: tests/vm/tokenpool_verbs.sh" ;;
    *--experiment\ 3,4,5*) echo "takes minutes: tests/real/pshift_cluster.sh" ;;
    twochoice_log*) echo "reads the log of a job that has run: tests/real/twochoice_mpi.sh" ;;
    qos_live*) echo "needs servers that run: tests/real/memcached_gate.sh, tests/real/nginx.sh" ;;
    cluster_agent*) echo "needs a cluster: tests/real/cluster_nginx.sh" ;;
    memcached_gate*) echo "runs until it is stopped: tests/real/memcached_gate.sh" ;;
    "tokenpool_shm --name"*) echo "a data node and its client, side by side: tests/real/tokenpool_shm.sh" ;;
    "simulate pshift"*) echo "takes minutes" ;;
    "pshift_cluster node"* | "pshift_cluster controller"*) echo "runs until it is stopped: tests/real/pshift_network.sh" ;;
    *) ! alone_example "$1" || echo "needs nothing but a processor: tests/build/help.sh" ;;
    esac
}
run_one() { # COMMAND
    local status=0 start=$SECONDS
    reason "$1" >"$work/why"
    if [ -s "$work/why" ]; then echo "not run: $1 ($(cat "$work/why"))"; return; fi
    mkdir -p "$work/dir/figures" "$work/dir/build"
    (cd "$work/dir" && timeout -k 5 400 bash -c "$1") >"$work/out" 2>"$work/err" </dev/null || status=$?
    case $status in
    0 | 3) ok "$1 (status $status, $((SECONDS - start)) s)" ;;
    *)  if [ "$status" = 1 ] && grep -q 'is not admitted' "$work/err"; then late "$1: the device gives too little for its reservations here"
        elif [ "$status" = 1 ] && [ -s "$work/out" ] && ! [ -s "$work/err" ]; then ok "$1 (judged itself, $((SECONDS - start)) s)"
        else bad "$1: status $status"; tail -n 5 "$work/out" "$work/err"; fi ;;
    esac
    rm -rf "$work/dir"
}
examples() { # TOOL: those of its help, one after the other
    local commands= command line work=$work/$1
    mkdir "$work"
    "$1" --help >"$work/help" 2>/dev/null </dev/null || { bad "$1 --help"; return; }
    case $1 in simulate | twochoice_mpi) commands=$(awk '/^  [a-z]+  / {print $1}' "$work/help") ;; esac
    for command in $commands; do "$1" "$command" --help </dev/null; done >>"$work/help" 2>/dev/null
    examples_of "$1" "$work/help" | sort -u >"$work/list"
    [ -s "$work/list" ] || bad "$1 --help shows no example"
    while read -r line <&4; do run_one "$line"; done 4<"$work/list"
}
# No verdict here depends on how fast a tool is, so the tools run side by side; but uring_files asks what the disk gives.
tools=$(for main in examples/*/main.c; do basename "$(dirname "$main")"; done)
beside=()
for tool in $tools; do
    [ "$tool" != uring_files ] || continue
    examples "$tool" >"$work/$tool.log" 2>&1 </dev/null & beside+=($!)
done
wait "${beside[@]}"
examples uring_files >"$work/uring_files.log" 2>&1
for tool in $tools; do
    cat "$work/$tool.log"
    ! grep -q '^FAILED' "$work/$tool.log" || failed=1
    unsure=${unsure:-$(sed -n 's/^LATE: //p' "$work/$tool.log" | head -n 1)}
done
ran=$(cat "$work"/*.log | grep -cE '^(ok|LATE|FAILED): ')
[ "$ran" -ge 5 ] || bad "only $ran examples were run"
finish $failed
