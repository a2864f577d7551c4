# Sourced, in the repository's root: a loop device of known speed, 12,000 requests/s and 300 MiB/s.
#
#     begin_bench NAME                 sets $tool (uring_files), $out and $dir, a directory that goes at the end; or skips the bench
#     known_device throttle|fuse DIR   opens it: its name in $device; else status 1 and the reason in $device_why
#     on_device COMMAND...             runs a command for which the speed holds
#     device_half, device_whole        half the speed, and all of it again
#     device_late                      prints the part of the time since it was opened, or since the last call, in which
#                                      this machine kept it from answering (fuse alone; else 0)
#     close_device                     leaves nothing; call it from the script's trap on EXIT
#
#     open_tenants NAME...             a cgroup for each; status 1: there is no I/O controller
#     group, limit, weigh NAME ...     its directory; its bytes/s on $device_number (0: any); its weight for BFQ
#     close_tenants
#
# throttle: blk-throttle (cgroup v1 or v2) holds the commands of on_device to the speed, in bursts of 100 ms. The data are
#     in the page cache, so the disk below decides nothing.
# fuse: bench/kernel/device.c serves the file below the loop device, request by request, whoever asks.
#
# Should the script be killed, the kernel frees the loop device with its last user, and the file has no name any more. An
# empty cgroup would stay: the next script removes it.
device_ops=12000 device_bytes=314572800 device_mib=256
device= device_why= device_cgroup= device_number= device_pid= device_file= device_says= device_v2_enabled=

begin_bench() {
    [ "$(id -u)" = 0 ] || { echo "SKIP bench/kernel/$1: loop devices and cgroups need root"; exit 0; }
    command -v fio >/dev/null || { echo "SKIP bench/kernel/$1: no fio"; exit 0; }
    tool=build/examples/uring_files out=build/bench
    [ -x "$tool" ] || make -s "$tool" >/dev/null || exit 1
    mkdir -p "$out"
    dir=$(mktemp -d "$out/$1-XXXXXX") || exit 1
    trap 'close_device; close_tenants; rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
}

# Where cgroup v1 and v2 have their I/O controller, or nothing: $io_v1, $io_v2.
find_cgroups() {
    io_v1=$(awk '$3 == "cgroup" && $4 ~ /(^|,)blkio(,|$)/ {print $2; exit}' /proc/mounts)
    io_v2=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)
}

open_cgroup() { # sets device_cgroup
    local old
    find_cgroups
    if [ -n "$io_v1" ] && [ -e "$io_v1/blkio.throttle.read_iops_device" ]; then
        device_cgroup=$io_v1/qoskit-$$
    elif [ -n "$io_v2" ] && grep -qw io "$io_v2/cgroup.controllers"; then
        if ! grep -qw io "$io_v2/cgroup.subtree_control"; then
            echo +io >"$io_v2/cgroup.subtree_control" || return 1
            device_v2_enabled=$io_v2
        fi
        device_cgroup=$io_v2/qoskit-$$
    else
        return 1
    fi
    for old in "${device_cgroup%/*}"/qoskit-*; do
        [ ! -d "$old" ] || kill -0 "${old##*-}" 2>/dev/null || rmdir "$old" 2>/dev/null
    done
    mkdir "$device_cgroup" || { device_cgroup=; return 1; }
}

throttle() { # OPS_PER_S BYTES_PER_S
    local what
    if [ -e "$device_cgroup/io.max" ]; then
        echo "$device_number riops=$1 rbps=$2 wiops=$1 wbps=$2" >"$device_cgroup/io.max"
        return
    fi
    for what in read write; do
        echo "$device_number $1" >"$device_cgroup/blkio.throttle.${what}_iops_device" &&
            echo "$device_number $2" >"$device_cgroup/blkio.throttle.${what}_bps_device" || return 1
    done
}

attach() { # LOSETUP-OPTION...: the loop device; detached as soon as nobody has it open, also if this script is killed
    device=$(losetup --show -f "$@" "$device_file") || { device= device_why="no loop device is to be had"; return 1; }
    exec 9<>"$device"
    losetup -d "$device"
    device_number=$(cat "/sys/block/${device#/dev/}/dev")
}

known_device() {
    local kind=$1 dir=$2 i
    device_why=
    [ "$(id -u)" = 0 ] || { device_why="a loop device of known speed needs root"; return 1; }
    device_file=$(mktemp "$dir/device-XXXXXX") || return 1
    if [ "$kind" = throttle ]; then
        open_cgroup || { device_why="no blk-throttle: the kernel has none, or no cgroup file system offers it"; return 1; }
        dd if=/dev/zero of="$device_file" bs=1M count="$device_mib" status=none || return 1
        attach || return 1
        rm -f "$device_file"
        throttle "$device_ops" "$device_bytes" || { device_why="blk-throttle refuses the limits"; return 1; }
        return 0
    fi
    [ -e /dev/fuse ] || { device_why="no FUSE (/dev/fuse)"; return 1; }
    mkdir -p build/bench
    [ build/bench/kernel_device -nt bench/kernel/device.c ] ||
        gcc -std=gnu11 -O2 -o build/bench/kernel_device bench/kernel/device.c || return 1
    device_says=$dir/device.late
    nice -n -15 build/bench/kernel_device "$device_file" "$device_mib" "$device_ops" "$device_bytes" >"$device_says" &
    device_pid=$!
    for ((i = 0; i < 50; i++)); do
        [ "$(stat -c %s "$device_file")" = 0 ] || break
        kill -0 "$device_pid" 2>/dev/null || { device_why="FUSE cannot be mounted here"; return 1; }
        sleep 0.1
    done
    attach --direct-io=on
}

on_device() {
    if [ -z "$device_cgroup" ]; then "$@"; return; fi
    (echo "$BASHPID" >"$device_cgroup/cgroup.procs" && exec "$@")
}
device_half() {
    if [ -n "$device_pid" ]; then kill -USR1 "$device_pid"; else throttle $((device_ops / 2)) $((device_bytes / 2)); fi
}
device_whole() {
    if [ -n "$device_pid" ]; then kill -USR2 "$device_pid"; else throttle "$device_ops" "$device_bytes"; fi
}
device_late() {
    local lines i
    [ -n "$device_pid" ] || { echo 0; return; }
    lines=$(wc -l <"$device_says")
    kill -HUP "$device_pid"
    for ((i = 0; i < 50 && $(wc -l <"$device_says") == lines; i++)); do sleep 0.02; done
    tail -n 1 "$device_says"
}

close_device() {
    local i
    [ -z "$device" ] || exec 9>&-
    for ((i = 0; i < 50; i++)); do # the kernel lets go of it a moment later
        { [ -n "$device" ] && losetup "$device" >/dev/null 2>&1; } || break
        sleep 0.1
    done
    if [ -n "$device_pid" ]; then
        kill "$device_pid" 2>/dev/null
        wait "$device_pid" 2>/dev/null
    fi
    [ -z "$device_file" ] || rm -f "$device_file"
    [ -z "$device_cgroup" ] || rmdir "$device_cgroup"
    [ -z "$device_v2_enabled" ] || echo -io >"$device_v2_enabled/cgroup.subtree_control"
    device= device_cgroup= device_pid= device_file= device_v2_enabled=
}

tenants_at= tenants_version= tenants_cgroups=
open_tenants() {
    local t
    find_cgroups
    if [ -n "$io_v1" ]; then tenants_version=1 tenants_at=$io_v1
    elif [ -n "$io_v2" ] && grep -qw io "$io_v2/cgroup.subtree_control"; then tenants_version=2 tenants_at=$io_v2
    else return 1; fi
    for t; do
        mkdir "$(group "$t")" || return 1
        tenants_cgroups="$tenants_cgroups $(group "$t")"
    done
}
group() { echo "$tenants_at/qoskit-$$-$1"; }
limit() { # NAME BYTES_PER_S
    local most=$2
    if [ "$tenants_version" = 2 ]; then
        [ "$2" != 0 ] || most=max
        echo "$device_number rbps=$most wbps=$most" >"$(group "$1")/io.max"
    else
        echo "$device_number $2" >"$(group "$1")/blkio.throttle.read_bps_device" &&
            echo "$device_number $2" >"$(group "$1")/blkio.throttle.write_bps_device"
    fi
}
weigh() { # NAME WEIGHT
    if [ "$tenants_version" = 2 ]; then echo "$2" >"$(group "$1")/io.bfq.weight"
    else echo "$2" >"$(group "$1")/blkio.bfq.weight"; fi
}
close_tenants() {
    local c
    for c in $tenants_cgroups; do rmdir "$c" 2>/dev/null; done
    tenants_cgroups=
}

# The demo's tenants on it, without and with htb.h, into a JSON file: the status of uring_files.
# demo_on_device JSON SECONDS OPTION...
demo_on_device() {
    local json=$1 seconds=$2
    shift 2
    rm -f "$json"
    on_device nice -n -10 timeout -k 5 120 build/examples/uring_files --file "$device" --json "$json" --runtime "${seconds}s" \
        --profile-time 600ms --judge --dispatch-depth 112 "$@" --tenant db:rw=randread,bs=4k,depth=32,reserve=9600k \
        --tenant scan:rw=randread,bs=128k,depth=64,reserve=60M --tenant backup:rw=randread,bs=128k,depth=16,limit=30M
}
# The part of the device that a run used: of its requests or of its bytes per second, whichever it is nearer to.
busy() { # JSON without|with
    jq --argjson ops "$device_ops" --argjson bytes "$device_bytes" --arg run "$2" '[.tenants, .[$run].tenants] | transpose |
        map({bytes: .[1].bytes_per_s, ops: (.[1].bytes_per_s / .[0].bs_bytes)}) |
        [(map(.bytes) | add) / $bytes, (map(.ops) | add) / $ops] | max' "$1"
}
# The worst of the reservations, as a part of what was reserved.
reservation_least() { # JSON
    jq '[.tenants, .with.tenants] | transpose | map(select(.[0].reserve_bytes_per_s > 0) |
        .[1].bytes_per_s / .[0].reserve_bytes_per_s) | min' "$1"
}
# The part of a run's time in which the tool waited for a processor that others had.
processor_wait() { jq --arg run "$2" '.[$run] | .cpu_wait_ns / 1e9 / .seconds' "$1"; } # JSON without|with
# Is it as it should be? Without QoS a request must not take longer than a device of this speed explains, three times over.
device_is_known() { # JSON
    jq -e '(.without.requests / .without.seconds) as $rate | ([.tenants[].depth] | add) as $depth |
        (.without.tenants | map(.p99_ns) | max) <= 3 * $depth / $rate * 1e9' "$1" >/dev/null
}
