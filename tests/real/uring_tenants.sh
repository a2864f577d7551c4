#!/usr/bin/env bash
# proves: uring_files' tenants ask when their settings say, whatever the disk does: at a constant rate to the microsecond, at a random one,
# proves: in bursts, after a pause; their latency counts from when a request was wanted; who is late is late. Judged from the log of events and from the
# proves: settings alone, in numbers that no speed of the disk changes
# needs: io_uring
# alone: no
# uses: examples/uring_files
set -u
. "$(dirname "$0")/../lib.sh"
tool=${TOOL:-build/examples/uring_files}
[ -x "$tool" ] || make -s build/examples/uring_files || exit 1
work=$(work_dir uring_tenants) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
failed=0
run() {
    timeout -k 5 200 "$tool" --file "$work/file" "$@" >"$work/out" 2>"$work/err"
    status=$?
}

# steady: 4 KiB each 3.90625 ms. poisson: 4 KiB each 976,562.5 ns in the mean. bursts: eight of 4 KiB each 15.625 ms. thinker: 20 ms after each request. scan: all that it can get; it has
# more places than the others, so that without a scheduler they wait behind it.
tenants=(--tenant steady:bs=4k,rate=1M,arrivals=constant,reserve=2M,latency=5ms --tenant bursts:bs=4k,rate=2M,arrivals=constant,burst=8,depth=4
    --tenant thinker:bs=4k,depth=1,think=20ms,reserve=100k --tenant scan:bs=128k,depth=96,reserve=2M --tenant poisson:bs=4k,rate=4M,depth=16)
for scheduler in none htb; do
    flight=()
    [ "$scheduler" = none ] || flight=(--flight)
    run --size 128M --keep --scheduler $scheduler "${flight[@]}" --runtime 2s --profile-time 300ms --json "$work/$scheduler.json" \
        --log "$work/$scheduler.csv" --dispatch-depth 96 "${tenants[@]}"
    case $status in
    0) ;;
    *) grep -q 'is not admitted' "$work/err" && inconclusive "the profile leaves no room for 2 MiB/s"
        bad "$scheduler: status $status: $(cat "$work/out" "$work/err")"; continue ;;
    esac
    key=without; [ "$scheduler" = none ] || key=with
    # When each tenant wanted its requests, by the log; who was late, and the sums of all times.
    awk -F, -v key="$key" '
        NR == 1 {next}
        $3 == "wanted" {
            t = $4; ++wanted[t]; sum[t] -= $2
            for (k in after) after[k] = 0
            if (t == "steady") since[$8] = $2
            if (t == "steady") {
                if (wanted[t] == 1) begin = $2
                d = $2 - begin - (wanted[t] - 1) * 3906250; if (d < 0) d = -d; if (d > off) off = d
            }
            if (t == "bursts") {
                if ((wanted[t] - 1) % 8 == 0) {if (wanted[t] > 1) {d = $2 - last - 15625000; if (d < 0) d = -d; if (d > apart) apart = d}; last = $2}
                else if ($2 != last) alone++
            }
            if (t == "poisson") {if (wanted[t] > 1) {gaps += $2 - before; over += $2 - before > 976562; far += $2 - before > 3 * 976562}; before = $2}
            if (t == "thinker") {if (finished && $2 - finished < 20000000) early++}
        }
        # A place of a tenant has one request at a time. The turn of each request of `steady` is when it was wanted, as it asks for half of
        # what it reserved.
        $3 == "done" {
            t = $4; ++done[t]; sum[t] += $2; ++after[t]
            if (t == "thinker") finished = $2
            if (t == "steady") late += $2 > since[$8] + 5000000
        }
        $3 == "failed" {++lost}
        END {
            printf "{\"gaps\": %.0f, \"over\": %d, \"far\": %d, ", gaps, over, far
            printf "\"off\": %d, \"apart\": %d, \"alone\": %d, \"early\": %d, \"lost\": %d, \"late\": %d", off, apart, alone, early, lost, late
            for (t in wanted) printf ", \"%s\": {\"wanted\": %d, \"done\": %d, \"after\": %d, \"mean\": %.0f}", t, wanted[t], done[t], after[t], done[t] == wanted[t] ? sum[t] / done[t] : -1
            print "}"
        }' "$work/$scheduler.csv" >"$work/seen.json" || bad "$scheduler: the log cannot be read"
    cat "$work/seen.json"
    seen() { json "$work/seen.json" "$1"; }
    both() { jq -en --slurpfile s "$work/seen.json" --slurpfile t "$work/$scheduler.json" "\$s[0] as \$s | \$t[0].$key.tenants as \$t | $1" >/dev/null; }
    # Requests of 4 KiB at 100 KiB/s have a turn each 40 ms, of which 20 are thought; 96 of 128 KiB at 2 MiB/s take 6 s.
    expect "$scheduler: without latency= it follows from depth, think time and reservation" json "$work/$scheduler.json" \
        '[.tenants[].latency_ns] | .[0] == 5000000 and .[2] == 20000000 and .[3] == 6000000000'
    expect "$scheduler: one set of totals" json "$work/$scheduler.json" ".$key | .bytes == ([.tenants[].bytes] | add) and .device_time_ns == ([.tenants[].device_time_ns] | add)"
    expect "$scheduler: no request failed" seen '.lost == 0'
    expect "$scheduler: a constant rate is one, to the microsecond" seen '.off < 1000'
    # Those that had no place before the end were late, too.
    unmade='($t[0].timely + $t[0].late - $s.steady.done) as $unmade'
    expect "$scheduler: it asks for 2 s" both "$unmade | \$unmade >= 0 and \$s.steady.wanted + \$unmade >= 505 and \$s.steady.wanted + \$unmade <= 513"
    expect "$scheduler: bursts of eight, at equal distances" seen '.alone == 0 and .apart < 1000 and .bursts.wanted > 300'
    # of exponential gaps 0.368 are above the mean, and 0.050 above three of it; of 2,000 to four deviations
    expect "$scheduler: poisson arrivals at this rate" seen '(.poisson.wanted - 1) as $n | $n > 1000 and (.gaps / $n / 976562.5 - 1 | fabs) < 4 / ($n | sqrt) and
        (.over / $n - 0.368 | fabs) < 2 / ($n | sqrt) and (.far / $n - 0.05 | fabs) < 1 / ($n | sqrt)'
    expect "$scheduler: who thinks asks 20 ms after a request at the earliest" seen '.early == 0 and .thinker.wanted <= 101 and .thinker.wanted > 2'
    expect "$scheduler: each latency counts from when the request was wanted" both '[0, 1, 2] | map(. as $i | $s[["steady", "bursts", "thinker"][$i]].mean as $m |
        $m < 0 or ($t[$i].mean_ns / $m > 0.98 and $t[$i].mean_ns / $m < 1.02)) | all'
    expect "$scheduler: who is late is late" both "$unmade | (\$t[0].late - \$unmade - \$s.late | fabs) <= 1"
    # Bytes count to the end of the run, so not those of requests that end when nothing is wanted any more.
    expect "$scheduler: the bytes are those of the requests" both '[0, 1, 2] | map($s[["steady", "bursts", "thinker"][.]].after as $after |
        ($t[.].completed * 4096 - $t[.].bytes) / 4096 | . >= 0 and . <= $after) | all'
done
# Bursts have four places for eight requests, so half of them wait for a place: their latency is more than that of a request at the disk.
late_without=$(jq '.without.tenants[0].late' "$work/none.json" 2>/dev/null)
echo "late without a scheduler: ${late_without:-?} of 512"

# ---- a promise that the disk itself does not keep is no verdict on the scheduler
run --runtime 1s --profile-time 300ms --judge --flight --tenant web:bs=128k,depth=1,rate=8M,reserve=16M,latency=1us --tenant scan:bs=128k,depth=32
expect "a microsecond: no verdict, status 3" [ "$status" = 3 ]
expect "and it says why" grep -q 'web: alone on the device .*: inconclusive' "$work/out"

# ---- wrong settings name the key and what to do
refused() { # TEXT TENANT...
    run --tenant "$2"
    if [ "$status" = 2 ] && grep -q "$1" "$work/err"; then ok "refused: $2"; else bad "not refused: $2: status $status: $(cat "$work/err")"; fi
}
refused 'give one of them' a:rate=1M,think=1ms
refused 'need a rate=' a:burst=4
refused 'needs a reserve=' a:latency=2ms
refused 'with --flight' a:reserve=1M,latency=2ms
refused 'must be one of poisson' a:rate=1M,arrivals=never
expect "no process left" [ -z "$(jobs -rp)" ]
finish $failed
