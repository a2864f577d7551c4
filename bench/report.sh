#!/usr/bin/env bash
# Writes docs/measurements.md from what the benchmarks left in build/bench/*.jsonl: one machine, one commit, one date.
# Each row is a figure of ours beside its peer's from the same run; what was not measured is named.
# usage: bench/report.sh OUT.md          (make report runs the benchmarks first)
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C
out=$1
from=build/bench
page=$(mktemp)
trap 'rm -f "$page"' EXIT
[ -s $from/htb.jsonl ] || { echo "report.sh: nothing was measured: run make bench-quick, or make bench" >&2; exit 1; }

# value BENCH CASE METRIC: three significant digits, or nothing
value() {
    [ -s "$from/$1.jsonl" ] || return 0
    jq -r --arg c "$2" --arg m "$3" 'select(.case == $c and .metric == $m) | .value' "$from/$1.jsonl" | tail -1 |
        awk '{a = $1 < 0 ? -$1 : $1; form = (a >= 100) ? "%.0f" : (a >= 10) ? "%.1f" : (a >= 1) ? "%.2f" : (a >= 0.1) ? "%.3f" : "%.3g"; printf form, $1}'
}
say() { printf '%s\n' "$*" >>"$page"; }
# table BENCH: reads rows WHAT | UNIT | CASE | METRIC | PEER | ITS CASE | ITS METRIC | RATIO'S CASE | RATIO'S METRIC
table() {
    local bench=$1 what unit c m peer pc pm rc rm ours theirs ratio n=0
    say "| what | here | peer | ratio |"
    say "|---|---|---|---|"
    while IFS='|' read -r what unit c m peer pc pm rc rm; do
        [ -n "$what" ] || continue
        ours=$(value "$bench" "$c" "$m")
        theirs= ratio=
        [ -z "$peer" ] || theirs=$(value "$bench" "$pc" "$pm")
        [ -z "$rm" ] || ratio=$(value "$bench" "$rc" "$rm")
        [ -n "$ours$ratio" ] || { say "| $what | not measured | | |"; continue; }
            [ -z "$theirs" ] || peer="$peer $theirs $unit"
        say "| $what | ${ours:+$ours $unit} | $peer | $ratio |"
        n=$((n + 1))
    done
    say
    [ $n -gt 0 ] || echo "report.sh: $bench: no row was measured" >&2
}

changed=$(git status --porcelain -- "*.h" bench 2>/dev/null | head -1) || true
cat >"$page" <<END
# Measurements

<!-- Written by make report (bench/report.sh). Change the benchmarks or that script, not this page. -->

One machine, one commit, one date (a section that names another machine was measured there):

| | |
|---|---|
| machine | $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors, $(uname -s) $(uname -r | cut -d. -f1-2) |
| compiler | $(gcc --version | head -1), \`-O3\` |
| commit | $(git rev-parse --short HEAD 2>/dev/null || sed -n "s,^#define QOS_VERSION_STRING,version,p" qos.h)${changed:+, with changes} |
| date | $(date -u +%Y-%m-%d), load $(cut -d' ' -f1 /proc/loadavg) $(awk '{print ($1 > 1.5) ? "(**a busy machine: only ratios count, and they are doubtful**)" : "(quiet)"}' /proc/loadavg) |

**Method.** Every benchmark runs its peer in the same process, in turn, in slices; a figure is the median of the slices, and a ratio is the
median of the ratios of neighbouring slices, so that what disturbs one disturbs the other. Nanoseconds depend on the machine; ratios travel.
"Ratio" is peer / here where it says x faster, else here / peer. An empty field: there is no peer.

This measures the headers on your machine in three minutes, prints tables and writes JSON lines to \`build/bench/\`; \`make report\` also writes this
page. \`make bench\` takes longer, and measures the servers and the kernel, too; \`make figures\` draws what was measured.

<!-- not run: three minutes of timing -->
\`\`\`sh
make bench-quick
\`\`\`

END

say "## htb.h"; say
say "Peer: one trTCM check of DPDK's \`rte_meter\`, which has no hierarchy, no borrowing and no counters; a scan of all queues; a walk over the same bytes."; say
table htb <<'END'
a take, two levels, half of them borrowed|ns|depth=2|ns_per_take|`rte_meter`|rte_meter trTCM|ns_per_take|depth=2|ratio_vs_rte_meter
a take, four levels|ns|depth=4|ns_per_take|`rte_meter`|rte_meter trTCM|ns_per_take|depth=4|ratio_vs_rte_meter
a take, eight levels|ns|depth=8|ns_per_take|`rte_meter`|rte_meter trTCM|ns_per_take|depth=8|ratio_vs_rte_meter
a take, 10 classes in turn|ns|classes=10|ns_per_take|a walk|classes=10|ns_per_walk||
a take, 1,000 classes in turn|ns|classes=1000|ns_per_take|a walk|classes=1000|ns_per_walk||
a take, 100,000 classes in turn|ns|classes=100000|ns_per_take|a walk|classes=100000|ns_per_walk|take|growth_vs_walk
submit, dispatch, complete, next at 10 queues (x faster)|ns|queues=10|ns_per_request|a scan|queues=10|scan_ns_per_request|queues=10|speedup_vs_scan
the same at 1,000 queues (x faster)|ns|queues=1000|ns_per_request|a scan|queues=1000|scan_ns_per_request|queues=1000|speedup_vs_scan
the same at 100,000 queues (x faster)|ns|queues=100000|ns_per_request|a scan|queues=100000|scan_ns_per_request|queues=100000|speedup_vs_scan
a take, two joined trees of 100,000 classes, 100 active (part of the throughput)|ns|joined, takes|ns_per_op|not joined|joined, takes|ns_per_op_not_joined|joined, takes|throughput_vs_not_joined
submit, dispatch, complete there (part of the throughput)|ns|joined, queues|ns_per_op|not joined|joined, queues|ns_per_op_not_joined|joined, queues|throughput_vs_not_joined
memory of a class|bytes|memory|bytes_per_class|||||
END

say "## tags.h"; say
say "Peer: one replace-top on a plain binary heap of as many clients, which has no reservations, limits or reward."; say
table tags <<'END'
a request, proportional share, 10 clients|ns|n=10|ns_per_op|the heap|n=10|ns_per_op_heap|n=10|ratio_vs_heap
the same, 100 clients|ns|n=100|ns_per_op|the heap|n=100|ns_per_op_heap|n=100|ratio_vs_heap
the same, 1,000 clients|ns|n=1000|ns_per_op|the heap|n=1000|ns_per_op_heap|n=1000|ratio_vs_heap
the same, 10,000 clients|ns|n=10000|ns_per_op|the heap|n=10000|ns_per_op_heap|n=10000|ratio_vs_heap
the same, 100,000 clients|ns|n=100000|ns_per_op|the heap|n=100000|ns_per_op_heap|n=100000|ratio_vs_heap
a request with its completion, reward, 10 clients|ns|n=10|ns_per_op_reward|||||
the same, 1,000 clients|ns|n=1000|ns_per_op_reward|||||
the same, 100,000 clients|ns|n=100000|ns_per_op_reward|||||
arrive, dispatch, idle again, 1,000 clients|ns|n=1000|ns_per_op_idle|||||
shared tags, a request, two threads|ns|shared, two threads|ns_per_op|one thread|shared, one thread|ns_per_op||
the longest call, 100,000 clients reach their limits at once|us|100,000 at their limits|longest_call_us|all moved by one call|100,000 at their limits|longest_call_us_all_at_once||
memory of a client, proportional share, 10,000 clients|bytes|n=10000|bytes_per_client|||||
memory of a client, reward, 10,000 clients|bytes|n=10000|bytes_per_client_reward|||||
END

say "## pshift.h"; say
say "Peer: maximum flow by LEMON's Preflow on the same arrays, one thread, and a copy of the arrays."; say
table pshift <<'END'
a plan, 64 servers, 10,000 buckets, r = 0.9 (x faster)|ms|64x10000 r=0.9 m=1.1|solve_ms|LEMON|64x10000 r=0.9 m=1.1|lemon_ms|64x10000 r=0.9 m=1.1|speedup_vs_lemon
the same, r = 1.0 (x faster)|ms|64x10000 r=1.0 m=1.1|solve_ms|LEMON|64x10000 r=1.0 m=1.1|lemon_ms|64x10000 r=1.0 m=1.1|speedup_vs_lemon
1,000 servers, 100,000 buckets, r = 1.0 (x faster)|ms|1000x100000 r=1.0 m=1.1|solve_ms|LEMON|1000x100000 r=1.0 m=1.1|lemon_ms|1000x100000 r=1.0 m=1.1|speedup_vs_lemon
the worst of all shapes of rows (x faster)|||||||all shapes|least_speedup
two threads for one, r = 1.0 (x faster)|ms|64x10000 r=1.0 m=1.1, parallel_for|two_threads_ms|one thread|64x10000 r=1.0 m=1.1, parallel_for|one_thread_ms|64x10000 r=1.0 m=1.1, parallel_for|parallel_speedup_2
memory of an entry, 64 x 10,000|bytes|64x10000 r=1.0 m=1.1|workspace_bytes_per_entry|||||
a pick of the token scheduler, 10 queues|ns|10 queues, 1 grant in 8 picks|pick_ns|||||
the same, 100,000 queues|ns|100000 queues, 1 grant in 8 picks|pick_ns||||10 to 100000 queues|pick_growth
a controller's round, without the solver, a record of 1,000,000|ns|a controller's round, 1000000 records|without_solver_ns|a scatter and a gather of the same bytes|a controller's round, 1000000 records|scatter_gather_ns|a controller's round, 1000000 records|ratio
END

say "## twochoice.h"; say
say "Peers: \`absl::btree_map\` and Boost's \`interval_map\` with the same fragments under the same rules; the paper's log; a copy of the log's bytes."; say
table twochoice <<'END'
create, fragments of 1 MiB (x faster)|ns|table_1MiB|create_ns|absl|table_1MiB|absl_create_ns|table_1MiB|create_speedup_vs_absl
find in them (x faster)|ns|table_1MiB|find_ns|absl|table_1MiB|absl_find_ns|table_1MiB|find_speedup_vs_absl
create, 4 KiB at random places of 1 TiB (x faster)|ns|table_4KiB_of_1TiB|create_ns|absl|table_4KiB_of_1TiB|absl_create_ns|table_4KiB_of_1TiB|create_speedup_vs_absl
find in them (x faster)|ns|table_4KiB_of_1TiB|find_ns|absl|table_4KiB_of_1TiB|absl_find_ns|table_4KiB_of_1TiB|find_speedup_vs_absl
create, appends (x faster)|ns|table_appends|create_ns|absl|table_appends|absl_create_ns|table_appends|create_speedup_vs_absl
find in them (x faster)|ns|table_appends|find_ns|absl|table_appends|absl_find_ns|table_appends|find_speedup_vs_absl
find in them, told the leaf|ns|table_appends|find_told_its_leaf_ns|absl|table_appends|absl_find_ns||
an array that is told the entry (x faster)|ns|table_appends|array_find_ns|absl|table_appends|absl_find_ns|table_appends|array_speedup_vs_absl
find in appends of 100 objects in turn (x faster)|ns|table_appends_100_objects|find_ns|absl|table_appends_100_objects|absl_find_ns|table_appends_100_objects|find_speedup_vs_absl
an array that is told the entry (x faster)|ns|table_appends_100_objects|array_find_ns|absl|table_appends_100_objects|absl_find_ns|table_appends_100_objects|array_speedup_vs_absl
find in appends of one object, table in huge pages (x faster)|ns|table_appends_huge_pages|find_ns|absl|table_appends_huge_pages|absl_find_ns|table_appends_huge_pages|find_speedup_vs_absl
memory of a fragment|bytes|table_1MiB|bytes_per_fragment|||||
create in one object (x faster)|ns|table_1_object|create_ns|interval_map|icl_1_object|create_ns|table_1_object|create_speedup_vs_icl
find in one object (x faster)|ns|table_1_object|query_ns|interval_map|icl_1_object|query_ns|table_1_object|query_speedup_vs_icl
random ranges up to 64 KiB, find (x faster)|ns|random_ranges_100MB_up_to_64KiB|query_ns|the paper's log|||random_ranges_100MB_up_to_64KiB|query_speedup_vs_paper_log
recovery of 1,000,000 records|s|with_log|recover_1m_s|a copy of its bytes|||with_log|recover_over_memory_copy
a query while the log is compacted, p99.9|us|with_log|query_p999_us|||||
the owner's lock is held at most|us|with_log|lock_held_at_most_us|||||
placing a write, k = 8|ns|k=8|place_ns_per_write|||||
the same, k = 1,000|ns|k=1000|place_ns_per_write|||||
END
say "A find waits for three nodes on the way down, then for a leaf: one trip to memory each, as their lines are fetched at once. An array that is told which"
say "entry it is waits for one line and its page, of more memory: 16 bytes an entry, where appends of one length take 11. Each of them"
say "takes turns with absl's tree, whose nodes are full after appends. Tried, and slower or equal: other orders of prefetches, half of them, none in inner"
say "nodes, none that stay in the caches (nta), a guess of the line by interpolation, no checks."; say

say "## tokenpool.h"; say
say "Peers: a shared word that is changed for each token, a mutex, a count of the thread's own, a bare atomic add, a loop that only reads the clock."; say
table tokenpool <<'END'
a token, claims included, one thread|ns|take, batch 1000|ns_per_token_1|a shared word|shared word per token|peer_ns_per_token_1||
the same, beside a mutex|ns|take, batch 1000|ns_per_token_1|a mutex|mutex per token|peer_ns_per_token_1||
the same, two threads|ns|take, batch 1000|ns_per_token_2|a shared word|shared word per token|peer_ns_per_token_2||
one core to two, beside a private count|||||||take, batch 1000|flat_vs_reference
a take|ns|take|ns_per_take|an atomic add|bare atomic add|ns_per_add|take|ratio_local_vs_faa
clock, take, complete: above the clock|ns|clock, take, complete|loop_ns_above_clock|||||
a loop of random 4 KiB reads is slower by (1 = 100 %)||4 KiB reads, 1 GiB|overhead_4k_read|itself again|4 KiB reads, 1 GiB|control_a_a||
a check of 10,000 clients, all reports fresh|us|check, 10,000 clients|monitor_check_us_10000|a plain read of them|check, 10,000 clients|plain_read_us|check, 10,000 clients|check_vs_read
a check of 1,000,000 clients|us|check, 1,000,000 clients|monitor_check_us_1000000|a plain read of them|check, 1,000,000 clients|plain_read_us|check, 1,000,000 clients|check_vs_read
the same|us|check, 1,000,000 clients|monitor_check_us_1000000|its sums by hand, over private arrays|check, 1,000,000 clients|sums_by_hand_us|check, 1,000,000 clients|check_vs_sums
those sums by hand|us|check, 1,000,000 clients|sums_by_hand_us|a plain read of them|check, 1,000,000 clients|plain_read_us|check, 1,000,000 clients|sums_vs_read
the same, all clients at rest|us|check, 1,000,000 clients at rest|monitor_check_at_rest_us|a plain read of them|check, 1,000,000 clients at rest|plain_read_us|check, 1,000,000 clients at rest|check_vs_read
END
say "A check cannot be as short as two reads with the 128 bits that each x86-64 has: its sums alone, by hand, without atomics and a copy, take more."; say

# Measured anew only by make bench, as root; else what the page says of it stays, with the machine that it names.
if [ ! -s $from/kernel_disk.jsonl ] && grep -q '^## Beside the kernel' "$out" 2>/dev/null; then
    awk '/^## / {on = /^## Beside the kernel/} on' "$out" >>"$page"
else
    say "## Beside the kernel"; say
    say "\`bench/kernel\` (as root; part of \`make bench\`). Three tenants on one device of known speed, 12,000 requests/s and 300 MiB/s: db, random reads of"
    say "4 KiB, reserves a fifth of the requests; scan, reads of 128 KiB, a fifth of the bytes; backup may have a tenth at most. When all run / when db is idle / when"
    say "the device gives half. Reservation: the smaller of what db and scan get of theirs (at least 1). Limit: what backup gets of its own (at most 1)."; say
    if [ -s $from/kernel_disk.jsonl ]; then
        say "| mechanism | reservation | limit | device in use | p99 of db, ms | processor, us a request |"
        say "|---|---|---|---|---|---|"
        for who in $(jq -r '.case | split(" ")[0]' $from/kernel_disk.jsonl | awk '!seen[$0]++'); do
            row="| $who"
            for m in reservation_least limit busy; do row="$row | $(for s in all idle half; do value kernel_disk "$who $s" $m; echo; done | paste -sd/ | sed 's,/, / ,g')"; done
            say "$row | $(value kernel_disk "$who all" p99_ms) | $(value kernel_disk "$who all" cpu_us_per_io) |"
        done
        waited=$(jq -s '[.[] | select(.metric == "device_waited" and .value > 5)] | length' $from/kernel_disk.jsonl)
        [ "$waited" = 0 ] || { say; say "In $waited of the rows' scenes the device, a process itself, waited for a processor: nothing measured there holds."; }
    else
        say "Not measured on this machine."
    fi
    if [ -s $from/kernel_net.jsonl ]; then
        say; say "\`tc htb\` and \`htb.h\` on the same trees, every leaf backlogged, Mbit/s:"; say
        say "| leaf | metric | measured |"
        say "|---|---|---|"
        jq -r '"| \(.case) | \(.metric) | \(.value) \(.unit) |"' $from/kernel_net.jsonl >>"$page"
    fi
    say
    say "The kernel's mechanisms need no change of the program and hold for every process. The schedulers here hold inside one process."
fi
say "## The servers"; say
n=0
for s in uring_files nginx nbdkit memcached_gate; do
    [ -s $from/$s.jsonl ] || continue
    n=$((n + 1))
    [ $n != 1 ] || { say "| server | case | metric | measured |"; say "|---|---|---|---|"; }
    jq -r '"| \(.bench) | \(.case) | \(.metric) | \(.value * 1000 | round / 1000) \(.unit) |"' $from/$s.jsonl | head -12 >>"$page"
done
[ $n -gt 0 ] || say "Not measured on this machine: \`make bench\` measures \`bench/nginx.sh\`, \`bench/nbdkit.sh\`, \`bench/memcached_gate.sh\` and \`bench/uring_files.sh\`."
mv "$page" "$out"
echo "$out: $(wc -l <"$out") lines"
