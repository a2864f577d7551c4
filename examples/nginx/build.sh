#!/usr/bin/env bash
# Builds the module for stock nginx from Debian's nginx-dev, or from the sources of nginx in NGINX_SOURCE (configured there
# with the flags that `nginx -V` shows: NGX_CONF_FLAGS in a file conf_flags).
#     examples/nginx/build.sh OUT.so              builds it
#     examples/nginx/build.sh --flags OUT.so      prints the compiler's flags for it
#     examples/nginx/build.sh --there             checks whether the sources are there: only the status
# nginx's configure examines the machine once and writes "nginx objs" beside OUT (so each build shows that a path
# may have a space); a module must have nginx's own settings.
set -eu
cd "$(dirname "$0")/../.."
only=
[ "$1" != --flags ] || { only=1; shift; }
[ "$1" != --there ] || exec test -x "${NGINX_SOURCE:-/usr/share/nginx/src}/configure"
source=${NGINX_SOURCE:-/usr/share/nginx/src} out=$PWD/$1 here=$PWD/examples/nginx
work="$(dirname "$out")/nginx objs"
[ -x "$source/configure" ] || { echo "nginx's sources are not in $source: install nginx-dev, or set NGINX_SOURCE"; exit 1; }
mkdir -p "$work"
exec 9>"$work.lock"
flock 9 # two builds at once: one runs configure, the other waits
if [ ! -f "$work/objs/done" ] || [ "$source/configure" -nt "$work/objs/done" ] || [ "$here/config" -nt "$work/objs/done" ]; then
    rm -rf "$work"
    mkdir -p "$work"
    cp -r "$source/." "$work/"
    NGX_CONF_FLAGS=(--with-compat)
    # shellcheck disable=SC1091
    [ ! -f "$work/conf_flags" ] || . "$work/conf_flags"
    ln -s "$here" "$work/module" # configure reads no path with a space
    (cd "$work" && ./configure "${NGX_CONF_FLAGS[@]}" --add-dynamic-module=module) >"$work/configure.log" 2>&1 ||
        { tail -5 "$work/configure.log"; exit 1; }
    : >"$work/objs/done"
fi
exec 9>&-
flags=(-fPIC -isystem "$work/objs")
for d in core event event/modules os/unix http http/modules http/v2; do flags+=(-isystem "$work/src/$d"); done
[ -z "$only" ] || { printf '%q ' "${flags[@]}"; echo; exit; }
# The same as `make -f objs/Makefile modules` there, with more warnings.
rm -f "$out"
# shellcheck disable=SC2086
${CC:-gcc} -std=gnu11 ${OPTIMIZE:--O2 -g} ${C_WARNINGS:-} -shared -I. "${flags[@]}" -o "$out" ${SOURCES:-examples/nginx/*.c} \
    "$work/objs/ngx_http_qos_module_modules.c"
