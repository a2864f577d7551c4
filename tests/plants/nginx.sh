#!/usr/bin/env bash
# proves: every bug of tests/plants/nginx/*.txt, planted into a copy of the nginx module, is caught by the section of real/nginx,
# real/nginx_matrix or real/cluster_nginx that it names; without a bug these sections pass (these tests themselves show that)
# needs: loopback
# usage: tests/plants/nginx.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d "$PWD/build/nginx_plants-XXXXXX") || exit 1
trap 'rm -rf "$d"; rm -f build/examples/planted-*.so' EXIT
failed=0
make -s build/examples/ngx_http_qos_module.so >/dev/null || exit 1 # nginx's configure has run
build_with() { OPTIMIZE=-O1 SOURCES="$1/*.c" examples/nginx/build.sh "build/examples/planted-${1##*/}.so"; }
test_with() { MODULE=$PWD/build/examples/planted-${1##*/}.so timeout --kill-after=5 250 "tests/$2.sh" "$3"; }
find_planted nginx 3 "${1:-}"
finish $failed
