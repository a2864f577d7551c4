#!/usr/bin/env bash
# Sees to the Debian packages that a command needs.   usage: tests/packages.sh demo|test|bench
# Reads packages.txt (package | commands | reason). Installs what is missing as root or through sudo without a
# password; otherwise prints the one line that does, and stops with status 1.
set -u
cd "$(dirname "$0")/.." || exit 1
missing=
while IFS='|' read -r package commands _; do
    package=${package// /}
    case $package in ''|'#'*) continue ;; esac
    case " $commands " in *" $1 "*) ;; *) continue ;; esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done <packages.txt
[ -z "$missing" ] && exit 0

line="apt-get install -y --no-install-recommends$missing"
# Another apt may be at work (a fresh machine updates itself), and a mirror may drop a connection.
patience="-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
if ! command -v apt-get >/dev/null; then
    echo "make $1 needs these Debian packages (or what your system calls them):$missing" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo="sudo -n"
else
    echo "make $1 needs packages that are not installed. As root, run:" >&2
    echo "    apt-get update && $line" >&2
    exit 1
fi
echo "installing$missing"
log=$(mktemp)
# Without a fresh list the known one may do, so only the installation decides.
$sudo apt-get $patience update >"$log" 2>&1 || echo "apt-get update failed" >>"$log"
# env: sudo drops the variables that it is called with.
if $sudo env DEBIAN_FRONTEND=noninteractive $line $patience >>"$log" 2>&1 </dev/null; then
    rm -f "$log"
else
    tail -20 "$log" >&2
    echo "installation failed; as root, run: $line" >&2
    exit 1
fi
