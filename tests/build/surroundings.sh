#!/usr/bin/env bash
# proves: the suite gives a verdict, or says what to do, in surroundings that users have: a locale with a decimal comma, a
# container without CAP_SYS_ADMIN, no io_uring, no loopback, a path with a space, a read-only tree, clang in place of gcc
# needs: root mounts namespaces
set -u
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES # these makes have no parent make
failed=0
here=$PWD
d=$(mktemp -d "$PWD/build/surroundings-XXXXXX") || exit 1
trap 'rm -rf "$d"' EXIT

# Every real test that says in its first lines that it needs THING is skipped, and says what to do.
skipped_without() { # THING WORDS COMMAND...
    local thing=$1 words=$2 t out status
    shift 2
    for t in $(grep -lE "^# needs:.*\<$thing\>" tests/real/*.sh); do
        status=0 out=$(timeout 100 "$@" "$t" 2>&1 </dev/null) || status=$?
        if [ $status = 77 ] && [[ $out == *SKIP*$words* ]]; then ok "without $thing: ${t#tests/} is skipped, and says what to do"
        else bad "without $thing: ${t#tests/} ends with status $status: $(tail -n 2 <<<"$out")"; fi
    done
}

# ---- no io_uring: a filter of system calls, as containers have
cat >"$d/no_uring.c" <<'END'
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    struct sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {4, rules};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 2;
    execvp(argv[1], argv + 1);
    return 2;
}
END
gcc -O1 -o "$d/no_uring" "$d/no_uring.c" || exit 1
skipped_without io_uring "kernel.io_uring_disabled" "$d/no_uring"

# ---- a container: root, but not of the machine
contained=(setpriv "--bounding-set=-sys_admin,-net_admin,-sys_nice,-sys_resource,-mknod,-sys_module,-sys_ptrace" --inh-caps=-all)
skipped_without mounts "outside of a container" "${contained[@]}"
skipped_without namespaces "outside of a container" "${contained[@]}"

# ---- no loopback: a network namespace in which nothing is up
skipped_without loopback "ip link set lo up" unshare -n

# ---- a decimal comma: commands that take 0 to 0.1 s of processor time all leave a verdict
localedef -i de_DE -f UTF-8 "$d/de_DE.UTF-8" >/dev/null 2>&1
export LOCPATH=$d
[ "$(LC_ALL=de_DE.UTF-8 printf '%.1f' 0,5 2>&1)" = "0,5" ] || bad "the locale de_DE.UTF-8 was not made: is the package locales there?"
mkdir -p "$d/suite/tests"
cp tests/run "$d/suite/tests/"
echo "unit/busy 1:1" >"$d/suite/tests/checks.txt"
for i in 0 1 2 3 4 5 6 7; do
    (cd "$d/suite" && LC_ALL=de_DE.UTF-8 tests/run one "native/unit/busy" \
        "awk 'BEGIN {for (i = 0; i < $((i * 100000)); i++) x += i}'; echo 'unit/busy: 1 checks, 0 failed, seed 1, scale 1/1'") >"$d/out" 2>&1
    expect "decimal comma: a verdict ($(tail -n 1 "$d/out"))" grep -qs '^p ' "$d/suite/build/verdict/native_unit_busy"
    rm -f "$d/suite/build/verdict/native_unit_busy"
done

# ---- a path with a space, then the same tree read-only
tree="$d/a tree"
mkdir "$tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp -p --parents -t "$tree" 2>/dev/null
# What is installed need not be built again, but for what has a build of its own.
mkdir "$tree/build" && cp -a build/examples build/lib build/bodies "$tree/build/" 2>/dev/null
rm -f "$tree"/build/examples/*.so # nginx's configure has run at a path with a space (examples/nginx/build.sh)
for command in "make -s build/native/unit/qos_status" "build/native/unit/qos_status" "make -s install DESTDIR=build/there" \
    "env OPTIMIZE=-O0 make -s build/examples/ngx_http_qos_module.so build/examples/nbdkit-qoskit-filter.so"; do
    (cd "$tree" && timeout 600 $command) >"$d/out" 2>&1 || { bad "a path with a space: $command: $(tail -n 3 "$d/out")"; continue; }
    ok "a path with a space: $command"
done
# ---- gcc is clang, as on some systems
mkdir "$d/clang"
printf '#!/bin/sh\nexec clang "$@"\n' >"$d/clang/gcc"
chmod +x "$d/clang/gcc"
(cd "$tree" && PATH="$d/clang:$PATH" timeout 600 make -s B=build/clang build/clang/native/unit/qos_golden && build/clang/native/unit/qos_golden) >"$d/out" 2>&1
expect "gcc is clang: a test compiles and passes ($(tail -n 1 "$d/out"))" grep -q ' 0 failed' "$d/out"
# An empty build directory: the first command of a user whose tree is read-only.
rm -rf "$tree/build"
status=0
unshare -m bash -c 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec make check HEADER=qos' "$tree" >"$d/out" 2>&1 || status=$?
expect "a read-only tree: status $status" [ $status -ne 0 ]
expect "a read-only tree: says what to do ($(head -n 1 "$d/out"))" grep -q 'cannot be written: copy the tree' "$d/out"
cd "$here" || exit 1
finish $failed
