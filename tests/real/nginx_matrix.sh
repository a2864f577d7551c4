#!/usr/bin/env bash
# proves: examples/nginx keeps every limit (1.01 of it at the client), changes no byte and stalls nothing for {HTTP/1.1, HTTP/2} x
# {plain, TLS} x {sendfile, gzip, slice, proxy, SSI, upload} x {chunk 4k, 64k} x {steady, reload, failed reload, resize, worker
# killed}: every pair here, all 240 in make trust, with what else nginx does to a response (features: other filters, redirects,
# subrequests, caches); bodies that nginx throws away are charged; a removed tenant's download is charged to nobody else; tenants
# that flood leave connections to others, with 503 or 429; a reload of 40,000 tenants holds the lock of requests for less than a
# millisecond; promtool accepts the metrics. Limits are those of the configuration, bytes are counted by the clients
# needs: loopback
# usage: tests/real/nginx_matrix.sh [all | pairs | fixed | features | bodies | ids | connections | lock | metrics | ROW=TIMES]...;
# MODULE=FILE is another module; a row: HTTP/1.1,TLS,proxy,4k,failed_reload=50
set -u
. "$(dirname "$0")/../lib.sh"
module=${MODULE:-$PWD/build/examples/ngx_http_qos_module.so}
PATH=$PATH:/usr/sbin
for tool in nginx curl openssl promtool; do
    command -v $tool >/dev/null || { echo "$tool is missing: see packages.txt"; exit 1; }
done
[ -f "$module" ] || make -s build/examples/ngx_http_qos_module.so >/dev/null || { echo "$module was not built"; exit 1; }
d=$(mktemp -d)
chmod 755 "$d"
trap 'rm -rf "$d"' EXIT
failed=0 begin=$SECONDS
sections="${*:-pairs bodies ids connections lock metrics}"
watch_mark
limit=550
case " $sections " in *" all "*) limit=3600 ;; esac
# A result is judged when it comes, by what happened since the section began: earlier calm says nothing.
while IFS= read -r line; do
    case $line in
    TIME:*) expect_time "${line#TIME: }" false ;;
    "status "*) status=${line#status } ;;
    *) echo "$line" ;;
    esac
    case $line in "# "*" took "*) watch_mark ;; esac
    echo "$line" >>"$d/out"
done < <(timeout $limit /usr/bin/python3 tests/real/nginx_matrix.py "$module" "$d" $sections 2>"$d/err"; echo "status $?")
cat "$d/err"
! grep -q '^FAILED' "$d/out" || failed=1
expect "it came to its end" [ $status = 0 ]
for section in $sections; do
    expect "$section came to its end" grep -q "^# $section took" "$d/out"
done
echo "$((SECONDS - begin)) s"
finish $failed
