#!/usr/bin/env bash
# Checks for the packages that a make target needs (packages.txt), and installs them on Debian.
#     tests/packages.sh [--quiet] TARGET     TARGET: one that packages.txt names
# If nothing is missing: status 0, on any system. On Debian as root, or with sudo without a password, installs what is
# missing. Otherwise prints what is missing, by its upstream name and its package, and ends with status 1. --quiet:
# only the status.
set -u
cd "$(dirname "$0")/.." || exit 1
quiet=
case ${1:-} in
--quiet) quiet=1; shift ;;
--fuzzer) # can clang build a fuzzer?
    t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return n > 1 && p[0] > 255; }' >"$t/t.c"
    clang -fsanitize=fuzzer,address -o "$t/t" "$t/t.c" >/dev/null 2>&1
    exit ;;
--libc) # can this compiler link a program statically?
    case $("$2" -print-file-name=libc.a 2>/dev/null) in /*) exit 0 ;; esac
    exit 1 ;;
--locales) # can a locale be made?
    [ -f /usr/share/i18n/locales/de_DE ]
    exit ;;
--pymemcache) # Debian's Python has it, whichever program python3 is
    /usr/bin/python3 -c 'import pymemcache'
    exit ;;
--cffi) # the same; a module is compiled, so Python's headers must be there
    /usr/bin/python3 -c 'import cffi, os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
    exit ;;
esac
target=$1

c_dirs= cxx_dirs=
directories() { "$@" -E -v /dev/null 2>&1 | sed -n '/^#include <\.\.\.>/,/^End of search/s/^ //p'; } # COMPILER...
header_in() { # PATH DIRECTORIES
    local d
    for d in $2; do [ -f "$d/$1" ] && return; done
    return 1
}
there() { # found by
    local f
    case $1 in runs:*) ${1#runs:} >/dev/null 2>&1; return ;; esac
    for f in $1; do
        case $f in
        cmd:*) command -v "${f#cmd:}" >/dev/null || [ -x "/usr/sbin/${f#cmd:}" ] || [ -x "/sbin/${f#cmd:}" ] || return 1 ;;
        pc:*) pkg-config --exists "${f#pc:}" 2>/dev/null || return 1 ;;
        h:*)
            [ -n "$c_dirs" ] || c_dirs=$(directories "${CC:-cc}" -x c)
            header_in "${f#h:}" "$c_dirs" || return 1 ;;
        hxx:*)
            [ -n "$cxx_dirs" ] || cxx_dirs=$(directories "${CXX:-c++}" -x c++)
            header_in "${f#hxx:}" "$cxx_dirs" || return 1 ;;
        *) echo "packages.txt: $f: this is not a way to find a package" >&2; return 1 ;;
        esac
    done
}

missing= told=
while IFS='|' read -r package found targets upstream why; do
    case $package in ''|'#'*) continue ;; esac
    case " $targets " in *" $target "*) ;; *) continue ;; esac
    package=${package// /} found=$(echo $found) upstream=$(echo $upstream)
    there "$found" && continue
    missing="$missing $package"
    told="$told
    $upstream (Debian: $package):$why"
done <packages.txt
[ -z "$missing" ] && exit 0
[ -z "$quiet" ] || exit 1

line="apt-get install -y --no-install-recommends$missing"
# Another apt may be at work (a fresh machine updates itself), and a mirror may drop a connection.
patience="-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
if ! command -v apt-get >/dev/null; then
    echo "make $target needs what this system does not have:$told" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo="sudo -n"
else
    echo "make $target needs what is not installed:$told" >&2
    echo "As root, run:" >&2
    echo "    apt-get update && $line" >&2
    exit 1
fi
# What and why, before anything is installed.
echo "make $target needs what is not installed:$told"
log=$(mktemp)
# If the list cannot be updated, the old one may be enough; only the installation decides.
$sudo apt-get $patience update >"$log" 2>&1 || echo "apt-get update failed" >>"$log"
$line --assume-no 2>/dev/null | sed -n 's/^Need to get .*\|^After this operation, .*/    &/p'
echo "installing it by apt-get (Ctrl-C stops; make check and make test-quick need a compiler only)"
# env: sudo drops the variables that it is called with.
if $sudo env DEBIAN_FRONTEND=noninteractive $line $patience >>"$log" 2>&1 </dev/null; then
    rm -f "$log"
else
    tail -20 "$log" >&2
    echo "installation failed; as root, run: $line" >&2
    exit 1
fi
