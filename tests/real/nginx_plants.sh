#!/usr/bin/env bash
# proves: every bug of tests/plants/nginx/*.txt, planted into a copy of the nginx module, is caught by the section of real/nginx
# or real/nginx_matrix that it names; without a bug these sections pass (these tests themselves show that)
# needs: loopback
# usage: tests/real/nginx_plants.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d "$PWD/build/nginx_plants-XXXXXX") || exit 1
trap 'rm -rf "$d"' EXIT
failed=0 planted=0
make -s build/examples/ngx_http_qos_module.so >/dev/null || exit 1 # nginx's configure has run
try() { # SOURCE BUG TEST
    local here=$d/$2 rc=0 begin=$SECONDS
    mkdir "$here"
    cp examples/nginx/*.[ch] "$here/"
    set -- "$1" "$2" ${3/:/ }
    if ! tests/build/plant.pl apply "tests/plants/nginx/$1.txt" "$2" "$here" 2>"$here/log"; then
        bad "$2: $(cat "$here/log")"
    elif ! OPTIMIZE=-O1 SOURCES="$here/*.c" examples/nginx/build.sh "build/examples/nginx-$2.so" >"$here/log" 2>&1; then
        bad "$2 does not compile: $(grep -m1 error "$here/log")"
    else
        for _ in 1 2; do # the machine gave no verdict
            rc=0
            MODULE=$PWD/build/examples/nginx-$2.so timeout --kill-after=5 250 "tests/$3.sh" "$4" >"$here/log" 2>&1 || rc=$?
            [ $rc = 78 ] || break
        done
        rm -f "build/examples/nginx-$2.so"
        if [ "$rc" = 1 ] && grep -q '^FAILED' "$here/log"; then ok "$2, $((SECONDS - begin)) s: $(grep -m1 '^FAILED' "$here/log" | cut -c1-120)"
        elif [ "$rc" = 78 ]; then late "$2: $(grep INCONCLUSIVE "$here/log")"
        else bad "$2 survived, status $rc: $(tail -n 3 "$here/log")"; fi
    fi
}
tests/build/plant.pl list tests/plants/nginx/*.txt >"$d/list" || exit 1
while IFS=$'\t' read -r source name test _; do
    [ -z "${1:-}" ] || [ "$name" = "$1" ] || continue
    planted=$((planted + 1))
    try "$source" "$name" "$test" >"$d/$name.log" 2>&1 </dev/null &
    # shellcheck disable=SC2046
    [ "$(jobs -rp | wc -l)" -lt 3 ] || wait -n $(jobs -rp)
done <"$d/list"
wait $(jobs -p)
for log in "$d"/*.log; do
    cat "$log"
    ! grep -q '^FAILED' "$log" || failed=1
    unsure=${unsure:-$(sed -n 's/^LATE: //p' "$log" | head -n 1)}
done
expect "$planted bugs were planted" [ "$planted" -gt 0 ]
expect "each has a verdict" [ "$(cat "$d"/*.log | grep -cE '^(ok|LATE|FAILED): ')" = "$planted" ]
finish $failed
