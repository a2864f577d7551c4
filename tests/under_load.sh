#!/usr/bin/env bash
# Runs the real I/O tests on a loaded machine: they may be inconclusive, but none may fail. As root.
# usage: tests/under_load.sh [busy|stall|slow|fast]... [-- TEST...]      TEST: real/uring_files ...; without one: all
#     busy     as many endless loops as there are cores
#     stall    a disk (a loop device) that almost stops for 3 s every 10 s: blk-throttle of cgroup v1
#     slow     a disk of 20 MB/s
#     fast     a file system on zram
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/under_load
mkdir -p "$out"
cases= tests=
while [ $# -gt 0 ] && [ "$1" != -- ]; do cases="$cases $1"; shift; done
[ "${1:-}" != -- ] || shift
tests=${*:-$(ls tests/real/*.sh | sed 's,^tests/,,; s,\.sh$,,')}
load=() disk= mount= group= zram=
end() {
    [ ${#load[@]} -eq 0 ] || kill "${load[@]}" 2>/dev/null
    [ -z "$group" ] || { for p in $(cat "$group/cgroup.procs"); do echo "$p" >"$group/../cgroup.procs"; done; rmdir "$group"; } 2>/dev/null
    [ -z "$mount" ] || umount "$mount"
    [ -z "$disk" ] || { losetup -d "$disk"; rm -f "$out/disk"; }
    [ -z "$zram" ] || zramctl --reset "$zram"
    load=() disk= mount= group= zram=
    unset TMPDIR
}
trap end EXIT
mounted() { # DEVICE: tests find their files there
    mkfs.ext4 -q "$1" && mkdir -p "$out/mount" && mount "$1" "$out/mount" || { echo "no file system on $1"; exit 1; }
    mount=$PWD/$out/mount
    export TMPDIR=$mount
}
throttled() {
    truncate -s 8G "$out/disk"
    disk=$(losetup --show --direct-io=on -f "$out/disk") || exit 1
    mounted "$disk"
    [ -d /sys/fs/cgroup/blkio ] || { echo "no blkio of cgroup v1"; exit 1; }
    group=/sys/fs/cgroup/blkio/qoskit_$$
    mkdir "$group" && number=$(lsblk -ndo MAJ:MIN "$disk" | tr -d ' ') && echo $$ >"$group/cgroup.procs"
}
rate() { for way in read write; do echo "$number $1" >"$group/blkio.throttle.${way}_bps_device"; done; } # 0: none
failed=0
for case in ${cases:-busy stall slow fast}; do
    case $case in
    busy) for ((i = 0; i < $(nproc); i++)); do (while :; do :; done) & load+=($!); done ;;
    stall) throttled; (while sleep 7; do rate 4096; sleep 3; rate 0; done) 2>/dev/null & load+=($!) ;;
    slow) throttled; rate 20971520 ;;
    fast) zram=$(zramctl -f -s 3G) || { modprobe zram 2>/dev/null; zram=$(zramctl -f -s 3G) || exit 1; }; mounted "$zram" ;;
    *) echo "no case $case" >&2; exit 2 ;;
    esac
    for t in $tests; do
        tests/run one "$t" "tests/$t.sh" | sed "s/^/$case: /" | tee "$out/last"
        ! grep -q ": FAIL" "$out/last" || failed=1
    done
    end
done
exit $failed
