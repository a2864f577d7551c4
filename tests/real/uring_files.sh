#!/usr/bin/env bash
# proves: uring_files on real files: promises are kept (judged), the device is never left empty while requests wait,
# every fault is reported, counted and survived, and nothing is left behind.
# needs: io_uring
#
# A promise is judged by the measurements of its own run. A device that gave too little for a verdict, or whose short
# profile left no room for the reservations, is tried once more; then the test is inconclusive. Counters, logs, limits,
# messages and statuses never are.
#
# All faults are real: ENOSPC and partial writes by a tmpfs that is full; EIO by a loop device whose
# backing file was cut off; end of file and partial reads by truncating a file under way; ENOSPC at every write by
# /dev/full; EACCES by another user; SIGINT by kill.
set -u
. "$(dirname "$0")/../lib.sh"
tool=$PWD/build/examples/uring_files
[ -x "$tool" ] || make -s "build/examples/uring_files" || exit 1
work=$(work_dir uring_files) || exit 1
file=$work/file
failed=0 skipped= unsure=
trap 'wait; rm -rf "$work"' EXIT

# Two more builds of the tool, made while the tests below wait for their devices: one under AddressSanitizer; one with
# planted bugs in two schedulers; one of these counts device time and the other requests.
flags=$(says examples/uring_files/main.c flags) links=$(says examples/uring_files/main.c links)
build_asan() {
    nice clang -std=gnu11 -O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all $flags -I. -Iexamples/common \
        -o "$work/asan" examples/uring_files/*.c examples/common/*.c $links -lm
}
build_broken() {
    mkdir "$work/planted" && cp ./*.h "$work/planted" &&
        tests/build/plant.pl apply tests/plants/htb.txt limit_not_charged_on_borrow "$work/planted" &&
        sed -i 's/^        \*tokens -= m;$/        *tokens -= 0;/' "$work/planted/pshift.h" &&
        ! cmp -s pshift.h "$work/planted/pshift.h" &&
        nice clang -std=gnu11 -O0 $flags -I"$work/planted" -Iexamples/common -o "$work/broken" examples/uring_files/*.c \
            build/examples/objects/common/*.o $links -lm
}
build_asan >"$work/asan.log" 2>&1 &
asan=$!
build_broken >"$work/broken.log" 2>&1 &
broken=$!

# In every run of a JSON file: submitted = completed + failed, none lost before the device either.
adds_up() { json "$1" '[.without, .same_depth, .with | values | .tenants[] | .submitted == .completed + .failed and .arrived >= .submitted] | length > 0 and all'; }
# Runs the tool in $work with a time limit; status, stdout and stderr in $status, $work/out, $work/err.
run() {
    timeout -k 5 300 "$tool" "$@" >"$work/out" 2>"$work/err"
    status=$?
}
# The same, but a run that could not be judged is made once more: statuses of run, or 3.
run_judged() {
    local try
    for try in 1 2; do
        run "$@"
        if grep -q 'is not admitted' "$work/err"; then status=3; fi
        [ "$status" = 3 ] || return 0
        echo "-- try $try: no verdict"
        cat "$work/out" "$work/err"
    done
}
# A judged run: status 3, or a missed reservation on a disturbed machine, gives no verdict. Limits and logs always give
# one.
verdict_of() { # WHAT
    case $status in
    0) ok "$1" ;;
    3) late "$1: the device gave too little (the trace is above)" ;;
    1)  if grep -q 'reservation: .*BROKEN' "$work/out" && ! grep -E 'BROKEN|log: full' "$work/out" | grep -vq ': reservation: '; then
            expect_time "$1" false
        else bad "$1: status 1: $(cat "$work/err")"; fi ;;
    *) bad "$1: status $status: $(cat "$work/err")" ;;
    esac
}
# Waits for the live line of a run that began (--progress), at most 2 minutes: so the test need not know how long profiling
# takes.
await() { # LABEL [FILE]
    local i
    for ((i = 0; i < 1200; i++)); do
        grep -q "$1 *[0-9.]*/[0-9]* s" "${2:-$work/err}" 2>/dev/null && return
        sleep 0.1
    done
}
good="good:rw=randread,bs=4k,depth=8,file=$file"

# ---- the main job, short
start=$SECONDS
watch_disk "$work"
watch_mark
run_judged --file "$file" --size 512M --keep --compare --explain --slice 300ms --judge --maximizer --headroom 0.6 --runtime 2s --profile-time 400ms --json "$work/demo.json" \
    --plot "$work/plots" --log "$work/log.csv" --tenant db:bs=4k,depth=32,reserve=15% \
    --tenant scan:bs=128k,depth=192,reserve=15% --tenant backup:bs=128k,depth=16,limit=10%
cat "$work/out"
verdict_of "reservations, limits and the log hold"
if [ ! -s "$work/demo.json" ]; then
    [ "$failed" = 0 ] || exit 1
    inconclusive "the profile left no room for the reservations, twice"
fi
expect "the JSON file has all of it" json "$work/demo.json" '(.tenants | length == 3) and (.profile.points | length >= 2)
    and .profile.root_device_ns_per_s > 0 and (.without.tenants | length == 3) and .with.scheduler == "htb"
    and (.with.tenants | map(.p50_ns > 0 and .p50_ns <= .p99_ns and .p99_ns <= .p999_ns and .p999_ns <= .max_ns) | all)'
expect "the third run had as many requests at the device as the second" json "$work/demo.json" \
    '.same_depth.at_device_max == .explained.at_device and (.explained.at_device - .with.at_device_mean | fabs) < 0.51'
expect "where the difference in total comes from: said" grep -q '^where the difference in total comes from: ' "$work/out"
expect "the log held whatever the device did" json "$work/demo.json" '.judge.log_holds and .judge.limits_hold'
expect "counters add up" adds_up "$work/demo.json"
# The control of the same run: first come, first served serves each tenant in proportion to its outstanding requests
# (32, 192, 16). If db's share of the device's time were its reservation that way, the run above would show nothing
# about the scheduler. That is so only on a device where 128 KiB take less time than 4 KiB.
if [ "$status" = 0 ]; then
    if json "$work/demo.json" '(.profile.points | map({key: "\(.bs_bytes)", value: .device_ns}) | from_entries) as $cost |
        32 * $cost["4096"] / (32 * $cost["4096"] + 208 * $cost["131072"]) <
        .tenants[0].reserve_bytes_per_s / 4096 * $cost["4096"] / 1e9'; then
        ok "without a scheduler db would not get its reservation"
    else
        # shellcheck disable=SC2317 # `disturbed` calls it
        witness() { # as many of 128 KiB a second as of 4 KiB: a disk that counts requests
            local large
            large=$(disk_iops "$watched_file" 128k)
            [ $((32 * large * 100)) -ge $((15 * (32 * large + 208 * watched_iops))) ] || return
            echo "by fio the disk does $watched_iops reads of 4 KiB and $large of 128 KiB a second"
        }
        late "first come, first served would give db its reservation here"
        unset -f witness
    fi
fi
# Our own count over the CSV log against the tool's: two ways to the same numbers.
counts=$(awk -F, '$1 == "with QoS" {n[$3]++} END {print n["dispatch"] + 0, n["done"] + 0}' "$work/log.csv")
told=$(jq -r '[.with.tenants | (map(.submitted) | add), (map(.completed) | add)] | join(" ")' "$work/demo.json")
expect "the log has every request ($counts)" [ "$counts" = "$told" ]
for f in compare latency; do expect "$f.svg is a picture" grep -q '</svg>' "$work/plots/$f.svg"; done
echo "($((SECONDS - start)) s)"

# ---- the device time in flight is bounded instead of the rate: the bound and the tenant that narrowed it are shown,
# limits and log hold
watch_mark
run_judged --file "$file" --live --judge --flight --dispatch-depth 112 --headroom 0.6 --runtime 3s --profile-time 400ms \
    --json "$work/flight.json" --log "$work/flight.csv" --tenant db:bs=4k,depth=32,reserve=15% --tenant scan:bs=128k,depth=64,reserve=15% \
    --tenant backup:bs=128k,depth=16,limit=10%
verdict_of "with the device time in flight bounded, reservations, limits and the log hold"
if [ -s "$work/flight.json" ]; then
    expect "the bound is in the results" json "$work/flight.json" '.with.flight_bound_ns_at_end > 0'
    expect "its log and limits hold" json "$work/flight.json" '.judge.log_holds and .judge.limits_hold'
    lines=$(grep -cE '^with QoS [0-9.]+ of 3 s  (db|scan): got .*/s, reserved .*/s, limit -, p99 .*s, waits for (nothing|its (turn|limit)|tokens to borrow)' "$work/err")
    expect_time "--live, not on a terminal: a line for each tenant each second ($lines)" [ "$lines" -ge 4 ]
    expect "--live, not on a terminal: plain text" [ -z "$(tr -d '\n\t -~' <"$work/err")" ]
    expect "it says who narrowed the bound" grep -q 'of device time were allowed in flight' "$work/out"
    # db and scan always have requests outstanding: time without a request at the device was wasted by the scheduler.
    empty=$(awk -F, '$1 == "with QoS" && ($3 == "dispatch" || $3 == "done") {
        if (n == 0 && seen) empty += $2 - last
        if (!seen++) first = $2
        last = $2; n += $3 == "dispatch" ? 1 : -1
    } END {printf "%.4f", (last > first ? empty / (last - first) : 1)}' "$work/flight.csv")
    expect_time "the device was empty for $empty of the time, asked: at most 0.02" awk "BEGIN {exit !($empty <= 0.02)}"
fi

# ---- the live view on a terminal: drawn in place, a line for each tenant, with a sparkline
watch_mark
LC_ALL=C.UTF-8 timeout -k 5 300 script -qec "stty cols 120; $tool --file $file --live --runtime 1600ms --profile-time 300ms --tenant db:bs=4k,depth=8,reserve=5% \
    --tenant backup:bs=128k,depth=4,limit=10%" "$work/terminal" </dev/null >/dev/null 2>&1
drawn=$(grep -cE $'\033\\[2Kbackup .*[▁▂▃▄▅▆▇█] .*/s .*(nothing|its (limit|turn)|tokens to borrow)' "$work/terminal")
expect_time "--live on a terminal: drawn $drawn times, of 3" [ "$drawn" -ge 2 ]
expect_time "--live on a terminal: in place" grep -q $'\033\\[3A' "$work/terminal"

# ---- what no clock judges, three at a time: faults of devices and the sanitized tool beside the faults of files
# ENOSPC on a full tmpfs, EIO on a loop device whose file was cut off: in a mount namespace of their own
cat >"$work/faults" <<'END'
set -u
tool=$1 work=$2 good=$3
mkdir -p "$work/mnt" && mount -t tmpfs -o size=24M tmpfs "$work/mnt" || exit 77
truncate -s 64M "$work/mnt/sparse"
timeout 200 "$tool" --overwrite --runtime 1s --profile-time 300ms --json "$work/enospc.json" --tenant "$good" \
    --tenant "bad:rw=randwrite,bs=100k,depth=4,file=$work/mnt/sparse" >"$work/enospc.out" 2>"$work/enospc.err"
echo "$?" >"$work/enospc.status"
rm -f "$work/mnt/sparse"
truncate -s 16M "$work/mnt/back"
loop=$(losetup --show -f "$work/mnt/back") || exit 77
truncate -s 6M "$work/mnt/back"
timeout 200 "$tool" --runtime 1s --profile-time 300ms --json "$work/eio.json" --tenant "$good" \
    --tenant "bad:rw=randread,bs=64k,depth=4,file=$loop" >"$work/eio.out" 2>"$work/eio.err"
echo "$?" >"$work/eio.status"
losetup -d "$loop"
END
unshare -m bash "$work/faults" "$tool" "$work" "$good" &
faults_run=$!
# A reservation that nobody could keep: refused, with what would fit; and the same paths under AddressSanitizer: memory, partial
# requests, errors.
(
    for scheduler in htb tags tags-ps token; do
        timeout -k 5 300 "$tool" --file "$file" --scheduler "$scheduler" --runtime 500ms --profile-time 300ms --tenant a:reserve=1000G \
            >"$work/$scheduler.refused" 2>&1 </dev/null
        echo "status $?" >>"$work/$scheduler.refused"
    done
) &
refused_run=$!
if wait "$asan"; then
    head -c 64M /dev/urandom >"$work/cut"
    (
        ( await "without QoS" "$work/asan.err"; truncate -s 7777777 "$work/cut" ) &
        timeout 300 "$work/asan" --progress --compare --judge --maximizer --runtime 600ms --profile-time 300ms --json "$work/asan.json" \
            --plot "$work/asan.plots" --log "$work/asan.csv" --tenant "$good" --tenant "bad:rw=read,bs=64k,depth=4,file=$work/cut,limit=20%" \
            >"$work/asan.out" 2>"$work/asan.err"
        echo "$?" >"$work/asan.status"
        wait
    ) &
    asan_run=$!
else
    asan_run=
    bad "does not build under AddressSanitizer: $(cat "$work/asan.log")"
fi

# End of file and partial reads: the file is cut off while tenants read, if this shell gets a processor in that second and
# a half
watch_mark
for _ in 1 2 3; do
dd if=/dev/urandom of="$work/short" bs=1M count=64 status=none
rm -f "$work/err"
( await "with QoS"; truncate -s 33333333 "$work/short" ) &
cut=$!
run --progress --runtime 1500ms --profile-time 300ms --json "$work/eof.json" --tenant "$good" --tenant "bad:bs=64k,depth=4,file=$work/short"
wait "$cut"
[ "$status" = 0 ] || break
done
if [ "$status" = 0 ]; then expect_time "a file is cut off while tenants read" false; else
    expect "cut-off file: status 1" [ "$status" = 1 ]
    expect "cut-off file: told once" [ "$(grep -c 'tenant bad: read .* end of file' "$work/err")" = 1 ]
    expect "cut-off file: one tenant fails, the other goes on" json "$work/eof.json" \
        '.with.tenants[1].failed > 0 and .with.tenants[0].failed == 0 and .with.tenants[0].completed > 0'
fi
expect "cut-off file: counters add up" adds_up "$work/eof.json"

run --size 128M --tenant "bad:file=$work/short"
expect "file shorter than asked: said, status 1" grep -q 'has .* --size asks for' "$work/err"
expect "file shorter than asked: status" [ "$status" = 1 ]

run --size 16M --overwrite --runtime 500ms --profile-time 300ms --json "$work/full.json" --tenant "$good,depth=4" \
    --tenant "bad:rw=write,bs=4k,depth=2,file=/dev/full"
expect "/dev/full: every write fails, counters add up" json "$work/full.json" \
    '.with.tenants[1] | .failed > 0 and .completed == 0 and .submitted == .failed'
expect "/dev/full: status 1" [ "$status" = 1 ]

if grep -q 'no O_DIRECT: buffered I/O instead' "$work/err"; then ok "no O_DIRECT: said"; else bad "no O_DIRECT: not said"; fi
run --size 16M --direct yes --overwrite --tenant "a:rw=write,file=/dev/full"
expect "--direct yes where there is none: status 1" [ "$status" = 1 ]

# No permission, wrong usage, files that must not be touched
install -m 755 "$tool" "$work/tool"
touch "$work/secret" && chmod 000 "$work/secret" && chmod 755 "$work"
as=(); [ "$(id -u)" -ne 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ -z "${as[*]}" ] || "${as[@]}" test -x "$work/tool"; then
    "${as[@]}" "$work/tool" --file "$work/secret" --tenant a: >"$work/out" 2>"$work/err"
    status=$?
    expect "no permission: said, status 1 ($(cat "$work/err"))" grep -q 'cannot open: Permission denied' "$work/err"
    expect "no permission: status" [ "$status" = 1 ]
else
    skipped=${skipped:-"another user cannot reach $work: no EACCES"}
fi
run --file "$file" --tenant a:rw=randwrite
expect "an existing file is not written to unasked" [ "$status" = 2 ]
for o in "--json" "--log"; do
    run --file "$work/never" --size 1M $o /nonexistent/file --tenant a:
    expect "$o: told before the run" [ "$status $(grep -c -e "$o /nonexistent/file: cannot write: No such" "$work/err") $(wc -c <"$work/out")" = "1 1 0" ]
done
run --file "$work/never" --size 1M --plot /proc/plots --tenant a:
expect "--plot: told before the run" [ "$status $(grep -c 'plot /proc/plots: cannot be made' "$work/err") $(wc -c <"$work/out")" = "1 1 0" ]
run --file "$work/never" --size 100000T --tenant a:
expect "a size that no file can have" grep -q 'never: 100000 TiB do not fit on this file system' "$work/err"
run --file "$file" --tenant a:reserve=2X
expect "wrong number: what and how" grep -q 'reserve=2X: not a rate; write e.g. 20M' "$work/err"
faults=0
wait $faults_run || faults=$?
if [ "$faults" = 77 ]; then
    skipped=${skipped:-"mount and loop devices need root: no EIO, no full file system"}
else
    for f in "enospc:No space left on device" "eio:Input/output error"; do
        name=${f%%:*} message=${f#*:}
        expect "$name: status 1" [ "$(cat "$work/$name.status")" = 1 ]
        expect "$name: told once" [ "$(grep -c "tenant bad: .*$message" "$work/$name.err")" = 1 ]
        expect "$name: one tenant fails, the other goes on" json "$work/$name.json" \
            ".with.tenants[1].failed > 0 and .with.tenants[1].errors[0].error == \"$message\"
            and .with.tenants[0].failed == 0 and .with.tenants[0].completed > 0"
        expect "$name: counters add up" adds_up "$work/$name.json"
    done
fi
wait $refused_run
for scheduler in htb tags tags-ps token; do
    expect "$scheduler: admission: what would fit" grep -Eq 'is not admitted: [0-9.]+ ([KMG]i)?B/s would fit' "$work/$scheduler.refused"
    expect "$scheduler: admission: status 1" grep -qx 'status 1' "$work/$scheduler.refused"
done
if [ -n "$asan_run" ]; then
    wait $asan_run
    tail -n 5 "$work/asan.err"
    expect "no findings of AddressSanitizer" [ -z "$(grep -E 'ERROR|runtime error' "$work/asan.err")" ]
    expect "under AddressSanitizer: counters add up" adds_up "$work/asan.json"
    case $(cat "$work/asan.status") in 0 | 1 | 3) ok "status $(cat "$work/asan.status")" ;; *) bad "status $(cat "$work/asan.status"): $(tail -5 "$work/asan.err")" ;; esac
fi

# ---- the other schedulers with the same interface: their log must hold on any device
for scheduler in tags tags-ps token; do
    rm -f "$work/other.json"
    watch_mark
    run --file "$file" --scheduler "$scheduler" --judge --headroom 0.6 --runtime 1s --profile-time 300ms --json "$work/other.json" \
        --tenant db:bs=4k,depth=32,reserve=10% --tenant scan:bs=128k,depth=64 --tenant backup:bs=128k,depth=16,limit=10%
    if grep -q 'is not admitted' "$work/err"; then status=3; fi
    [ "$status" = 3 ] && ok "$scheduler: no verdict on the reservation" || verdict_of "$scheduler"
    if [ -s "$work/other.json" ]; then
        expect "$scheduler: limit and counters" json "$work/other.json" '.judge.log_holds and .judge.limits_hold'
        expect "$scheduler: counters add up" adds_up "$work/other.json"
    fi
done

# ---- the judge itself: schedulers with planted bugs must not pass. They run beside the next test: a limit that does not
# bind is exceeded by far on a busy device, too
watch_mark
planted=()
run_planted() { # SCHEDULER
    timeout 300 "$work/broken" --file "$file" --scheduler "$1" --judge --runtime 1s --profile-time 300ms \
        --tenant a:bs=4k,depth=16,limit=10% >"$work/planted.$1" 2>&1
    echo "status $?" >>"$work/planted.$1"
}
if wait "$broken"; then
    for scheduler in htb token; do
        run_planted "$scheduler" &
        planted+=($!)
    done
else
    bad "cannot plant a bug: $(cat "$work/broken.log")"
fi

# ---- SIGINT with requests in flight; the file that the tool made is gone afterwards
rm -f "$work/err"
"$tool" --file "$work/own" --size 64M --progress --compare --runtime 20s --profile-time 300ms --json "$work/int.json" \
    --tenant a:bs=128k,depth=64 --tenant b:bs=4k,depth=8,reserve=5% >"$work/out" 2>"$work/err" &
pid=$!
await "without QoS"
sleep 0.5
kill -INT "$pid"
wait "$pid"
status=$?
expect "SIGINT: status 130" [ "$status" = 130 ]
expect "SIGINT: the table so far" grep -q '^a (randread' "$work/out"
expect "SIGINT: no completion lost" json "$work/int.json" \
    '.without.stopped and (.without.tenants | map(.submitted == .completed + .failed) | all)'
expect_time "SIGINT: each had some" json "$work/int.json" '.without.tenants | map(.completed > 0) | all'
expect "SIGINT: the temporary file is gone" [ ! -e "$work/own" ]
"$tool" --file "$work/unread" --size 1M --live --runtime 20s --profile-time 300ms --tenant a:bs=4k,depth=2 2>&1 | head -n 1 >"$work/out"
expect "a reader that leaves: the temporary file is gone, too" [ -s "$work/out" -a ! -e "$work/unread" ]

if [ ${#planted[@]} -gt 0 ]; then
    wait "${planted[@]}"
    for scheduler in htb token; do
        for _ in 1 2; do # a device or a processor that gives a tenth of the profile hides it: alone, then
            grep -qx 'status 1' "$work/planted.$scheduler" && break
            cat "$work/planted.$scheduler"
            run_planted "$scheduler"
        done
        expect_time "$scheduler: a limit that does not bind: judged broken, status 1" \
            grep -qx 'status 1' "$work/planted.$scheduler"
        expect_time "$scheduler: on the log: said" grep -q 'in every window .* BROKEN' "$work/planted.$scheduler"
    done
fi

# ---- nothing left
expect "no process left" [ -z "$(jobs -rp)" ]
expect "no loop device left" [ -z "$(losetup -n -O BACK-FILE 2>/dev/null | grep -F "$work")" ]
[ "$failed" = 0 ] || exit 1
[ -z "$skipped" ] || { echo "SKIP uring_files: $skipped"; exit 77; }
finish
