#!/usr/bin/env bash
# proves: every tool of examples/ explains itself: --help ends with status 0, has at most 100 columns and shows the
# usage; an unknown option and an unknown command end with status 2 and a message that begins with the tool's name;
# examples that need nothing but a processor work exactly as printed (the others: real/help); results that cannot be
# written end with status 1
set -u
. "$(dirname "$0")/../lib.sh"
failed=0
export PATH=$PWD/build/examples:$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
out=build/help
rm -rf "$out"
mkdir -p "$out"

# The commands of a tool: `  name   what it does` in its help.
commands() { case $1 in simulate | twochoice_mpi) awk '/^  [a-z]+  / {print $1}' "$out/$1.txt" ;; esac; }
help_of() { # NAME COMMAND...
    local name=$1 long
    shift
    timeout 100 "$@" --help >"$out/$name.txt" 2>"$out/$name.err" </dev/null || bad "$* --help: status $?"
    [ -s "$out/$name.txt" ] || bad "$* --help prints nothing to stdout"
    long=$(awk 'length > 100 {print "    " $0}' "$out/$name.txt")
    [ -z "$long" ] || { bad "$* --help is wider than 100 columns:"; echo "$long"; }
    grep -q "$1" "$out/$name.txt" || bad "$* --help does not name the tool"
}
wrong() { # COMMAND...: must end with status 2 and name the tool
    local status=0
    timeout 100 "$@" >"$out/wrong.out" 2>"$out/wrong.err" </dev/null || status=$?
    [ "$status" = 2 ] || bad "$*: status $status, not 2"
    grep -q "^$1" "$out/wrong.err" || { bad "$*: the message does not begin with $1:"; head -3 "$out/wrong.err"; }
}
n=0
for main in examples/*/main.c; do
    tool=$(basename "$(dirname "$main")")
    [ -x "build/examples/$tool" ] || { bad "build/examples/$tool is not there (make examples)"; continue; }
    help_of "$tool" "$tool"
    wrong "$tool" --no-such-option
    for command in $(commands "$tool"); do
        help_of "${tool}_$command" "$tool" "$command"
        wrong "$tool" "$command" --no-such-option
        n=$((n + 1))
    done
    n=$((n + 1))
done
[ "$n" -ge 5 ] || bad "only $n help texts were found"
mkdir -p "$out/dir/build/figures"
ran=0
for tool in simulate pshift_cluster; do
    cat "$out/$tool"*.txt >"$out/help"
    examples_of "$tool" "$out/help" | sort -u >"$out/list"
    while read -r line <&4; do
        alone_example "$line" || continue
        ran=$((ran + 1))
        (cd "$out/dir" && timeout -k 5 400 bash -c "$line") >"$out/run.out" 2>"$out/run.err" </dev/null && ok "$line" ||
            { bad "$line: status $?"; tail -n 5 "$out/run.out" "$out/run.err"; }
    done 4<"$out/list"
done
[ "$ran" -ge 5 ] || bad "only $ran examples were run"
timeout 100 simulate tags >&- 2>"$out/closed.err"
[ "$?:$(grep -c 'could not be written' "$out/closed.err")" = 1:1 ] ||
    bad "simulate tags without stdout says that it has worked"
echo "$n help texts"
finish $failed
