#!/usr/bin/env bash
# Runs the real I/O tests on a loaded machine: they may be inconclusive, but none may fail. As root.
# usage: tests/under_load.sh [busy|still|stall|slow|fast]... [-- TEST...]      TEST: real/uring_files ...; without one: all
#     busy     as many endless loops as there are cores
#     still    the same, and every few seconds all processes of the test stop for 0.2 to 3 s: the freezer of cgroup v1
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
load=() disk= mount= group= zram= frozen=
end() {
    [ ${#load[@]} -eq 0 ] || kill "${load[@]}" 2>/dev/null
    [ -z "$frozen" ] || { echo THAWED >"$frozen/freezer.state"; rmdir "$frozen"; }
    [ -z "$group" ] || { for p in $(cat "$group/cgroup.procs"); do echo "$p" >"$group/../cgroup.procs"; done; rmdir "$group"; } 2>/dev/null
    [ -z "$mount" ] || umount "$mount"
    [ -z "$disk" ] || { losetup -d "$disk"; rm -f "$out/disk"; }
    [ -z "$zram" ] || zramctl --reset "$zram"
    load=() disk= mount= group= zram= frozen=
    unset TMPDIR QOS_TEST_DIR
}
trap end EXIT
mounted() { # DEVICE: tests find their files there
    mkfs.ext4 -q "$1" && mkdir -p "$out/mount" && mount "$1" "$out/mount" || { echo "no file system on $1"; exit 1; }
    mount=$PWD/$out/mount
    export TMPDIR=$mount QOS_TEST_DIR=$mount
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
busy() { for ((i = 0; i < $(nproc); i++)); do (while :; do :; done) & load+=($!); done; }
freezes() { # seconds between them: 1 to 4; their lengths: 0.2 to 3
    trap exit TERM
    while sleep "$((1 + RANDOM % 3)).$((RANDOM % 10))"; do
        echo FROZEN >"$frozen/freezer.state"
        sleep "$((RANDOM % 3)).$((2 + RANDOM % 8))"
        echo THAWED >"$frozen/freezer.state"
    done
}
failed=0
for case in ${cases:-busy still stall slow fast}; do
    case $case in
    busy) busy ;;
    still)
        busy
        [ -d /sys/fs/cgroup/freezer ] || { echo "no freezer of cgroup v1"; exit 1; }
        frozen=/sys/fs/cgroup/freezer/qoskit_$$
        mkdir "$frozen" || exit 1
        freezes & load+=($!) ;;
    stall) throttled; (while sleep 7; do rate 4096; sleep 3; rate 0; done) 2>/dev/null & load+=($!) ;;
    slow) throttled; rate 20971520 ;;
    fast) zram=$(zramctl -f -s 3G) || { modprobe zram 2>/dev/null; zram=$(zramctl -f -s 3G) || exit 1; }; mounted "$zram" ;;
    *) echo "no case $case" >&2; exit 2 ;;
    esac
    for t in $tests; do
        ([ -z "$frozen" ] || echo "$BASHPID" >"$frozen/cgroup.procs"; exec tests/run one "$t" "tests/$t.sh") | sed "s/^/$case: /" | tee "$out/last"
        ! grep -q ": FAIL" "$out/last" || failed=1
    done
    end
done
exit $failed
