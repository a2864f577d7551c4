# Sourced by the scripts of tests/: changes to the repository's root and defines what they share.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
script=tests/$(basename "$(dirname "$0")")/$(basename "$0")
JOBS=${JOBS:-$(nproc)}
export LC_ALL=C

# What a source says of itself in its first lines: says FILE links
says() { sed -n "1,8s,^// $2: *,,p" "$1"; }

# How the Makefile builds a test: with the bodies in it, or from its object and those of the headers that it is about.
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
CROSS="aarch64-linux-gnu arm-linux-gnueabihf i686-linux-gnu s390x-linux-gnu riscv64-linux-gnu"

# Runs each line of standard input as a command, several at a time; the status is 0 if all of them succeeded. Under a make
# with a jobserver (make test) they are jobs of that make, so that all scripts together keep to its -j; else $JOBS.
side_by_side() {
    local dir rc
    if [[ ${MAKEFLAGS:-} != *jobserver* ]]; then
        tr '\n' '\0' | xargs -0 -r -n 1 -P "$JOBS" bash -c
        return
    fi
    dir=$(mktemp -d)
    # make does not hand exported functions on; bash reads this first.
    { echo 'unset BASH_ENV'; declare -f; } >"$dir/functions"
    awk '{gsub(/\$/, "$$"); print "j" NR ":\n\t@" $0 "\nall: j" NR} END {print "all:\n.PHONY: all"; for (i = 1; i <= NR; i++) print ".PHONY: j" i}' >"$dir/jobs"
    BASH_ENV=$dir/functions ${MAKE:-make} --no-print-directory -s -k -f "$dir/jobs" SHELL=bash all
    rc=$?
    rm -rf "$dir"
    return $rc
}

# The last line of every script, with its status: one that ends before it has not come to its end, and has failed.
finish() {
    [ "${1:-0}" = 0 ] || exit 1
    echo "finished $script"
    exit 0
}

# Scripts of many checks go on after one that failed; `failed` is their end's status.
ok() { echo "ok: $*"; }
bad() { echo "FAILED: $*"; failed=1; }
expect() { # WHAT TEST-COMMAND...
    local what=$1
    shift
    if "$@"; then ok "$what"; else bad "$what ($*)"; fi
}
# The end of a real test whose machine gave no verdict. What went before it is the trace.
inconclusive() { echo "INCONCLUSIVE $*"; exit 78; }
json() { jq -e "$2" "$1" >/dev/null; } # FILE EXPRESSION

# The quickstart servers, on the loopback address.
# serve PROGRAM ARGUMENT...: runs PROGRAM PORT ARGUMENT... with a port that is free; sets port and pid; output in $d/out and $d/err.
serve() {
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 30000))
        timeout 60 "$1" "$port" "${@:2}" >"$d/out" 2>"$d/err" &
        pid=$!
        sleep 0.3
        kill -0 "$pid" 2>/dev/null && return 0
    done
    cat "$d/err"
    exit 1
}
ask() { # PORT LINE: what the server answers, until it closes
    exec 5<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf '%s\n' "$2" >&5
    timeout 5 cat <&5
    exec 5>&-
}

# Runs a command that judges itself (examples/tokenpool_*) and prints its output. A reservation that was missed, or a
# machine that did too little for a verdict (status 3), is tried once more; wrong books never. Ends the script unless
# all held.     judged OUTPUT COMMAND...
judged() {
    local out=$1 try status
    shift
    for try in 1 2; do
        status=0
        "$@" >"$out" 2>&1 </dev/null || status=$?
        cat "$out"
        case $status in 0) return 0 ;; 77) exit 77 ;; esac
        grep -q 'unequal in 0 periods, bound exceeded in 0' "$out" || { echo "status $status without good books"; exit 1; }
        echo "-- try $try: status $status"
    done
    [ "$status" -ne 3 ] || inconclusive "this machine did less than in the bare run, twice"
    exit 1
}
