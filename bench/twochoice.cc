// bench of twochoice.h: the redirect table beside absl::btree_map, Boost.ICL's interval_map and the paper's own log, in
// one run; queries while a slow disk syncs; the cost of placing a write.
// links: -pthread
#include "bench.h"
#include "twochoice.h"
#include <absl/container/btree_map.h>
#include <boost/icl/interval_map.hpp>
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace
{

using icl_map = boost::icl::interval_map<uint64_t, uint32_t>;
using icl_interval = boost::icl::interval<uint64_t>;

constexpr uint32_t fragments = 1000000;
constexpr uint64_t fragment_bytes = 1 << 20;
constexpr uint32_t servers = 1000;

struct workload {
    std::vector<uint32_t> place, target; // which fragment comes when, and where it goes
};

uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

workload in_order(uint32_t n)
{
    workload w;
    w.place.resize(n);
    w.target.resize(n);
    for (uint32_t i = 0; i < n; i++) {
        w.place[i] = i;
        w.target[i] = static_cast<uint32_t>(mix(i) % servers) + 1;
    }
    return w;
}

workload random_order(uint32_t n)
{
    workload w = in_order(n);
    for (uint32_t i = n; i-- > 1;)
        std::swap(w.place[i], w.place[mix(i * UINT64_C(7919) + 1) % (i + 1)]);
    return w;
}

constexpr size_t huge_page = 2 << 20;

struct table {
    twochoice_table t;
    void *mem;
    explicit table(const twochoice_table_config &config, bool huge = false) : mem(nullptr)
    {
        const size_t size = twochoice_table_memsize(&config);
        mem = huge ? aligned_alloc(huge_page, (size + huge_page - 1) / huge_page * huge_page) : aligned_alloc(64, size);
        if (huge && mem)
            (void)madvise(mem, size, MADV_HUGEPAGE);
        if (!mem || twochoice_table_init(&t, mem, size, &config) != QOS_OK) {
            printf("no memory for the table\n");
            exit(2);
        }
    }
    table(const table &) = delete;
    table &operator=(const table &) = delete;
    ~table()
    {
        free(mem);
    }
};

void create(twochoice_table *t, uint64_t object, uint64_t offset, uint64_t len, uint32_t target)
{
    static twochoice_piece replaced[4096]; // more than any write here replaces
    uint64_t stamp;
    size_t n;
    qos_status st = twochoice_table_write_begin(t, object, target, offset, len, &stamp);
    if (st == QOS_OK)
        st = twochoice_table_write_end(t, stamp, replaced, 4096, &n);
    if (st != QOS_OK) {
        printf("create failed: %s\n", qos_strerror(st));
        exit(2);
    }
}

double create_ns(table *t, const workload &w, uint64_t objects)
{
    const uint64_t from = bench_ns();
    for (const uint32_t k : w.place)
        create(&t->t, k % objects, k / objects * fragment_bytes, fragment_bytes, w.target[k]);
    return static_cast<double>(bench_ns() - from) / static_cast<double>(w.place.size());
}

// The next address depends on the answer and on the step, so that the walk has no short cycle.
uint32_t next_place(uint64_t answer, uint32_t step, uint32_t n)
{
    return static_cast<uint32_t>(mix(answer + step) % n);
}

double query_ns(const table &t, uint32_t n, uint64_t objects, uint32_t queries)
{
    twochoice_piece p;
    uint64_t sum = 0;
    uint32_t k = 0;
    const uint64_t from = bench_ns();
    for (uint32_t i = 0; i < queries; i++) {
        twochoice_table_find(&t.t, k % objects, k / objects * fragment_bytes + 4096, &p);
        sum += p.target;
        k = next_place(p.end + p.target, i, n);
    }
    BENCH_KEEP(sum);
    return static_cast<double>(bench_ns() - from) / queries;
}

double icl_create_ns(icl_map *m, const workload &w)
{
    const uint64_t from = bench_ns();
    for (const uint32_t k : w.place) {
        const uint64_t offset = k * fragment_bytes;
        m->set(std::make_pair(icl_interval::right_open(offset, offset + fragment_bytes), w.target[k]));
    }
    return static_cast<double>(bench_ns() - from) / static_cast<double>(w.place.size());
}

double icl_query_ns(const icl_map &m, uint32_t n, uint32_t queries)
{
    uint64_t sum = 0;
    uint32_t k = 0;
    const uint64_t from = bench_ns();
    for (uint32_t i = 0; i < queries; i++) {
        const auto it = m.find(k * fragment_bytes + 4096);
        sum += it->second;
        k = next_place(it->first.upper() + it->second, i, n);
    }
    BENCH_KEEP(sum);
    return static_cast<double>(bench_ns() - from) / queries;
}

// An interval map as a modern server would write it: a B-tree by the offset, with all fragments in it.
struct absl_map {
    struct target {
        uint64_t end;
        uint64_t tag; // stamp and server, as in the table
    };
    absl::btree_map<uint64_t, target> map;
    uint64_t stamp = 0;
    void create(uint64_t from, uint64_t end, uint32_t server)
    {
        auto it = map.lower_bound(from);
        if (it != map.begin()) {
            const auto before = std::prev(it);
            if (before->second.end > from) { // cut its end off, and keep what it has behind
                const target t = before->second;
                before->second.end = from;
                if (t.end > end)
                    it = std::next(map.emplace(end, t).first);
                else
                    it = std::next(before);
            }
        }
        while (it != map.end() && it->first < end) {
            if (it->second.end > end) {
                const target t = it->second;
                map.erase(it);
                map.emplace(end, t);
                break;
            }
            it = map.erase(it);
        }
        map[from] = {end, ++stamp << 16 | server};
    }
    std::pair<uint64_t, uint32_t> find(uint64_t at) const
    {
        auto it = map.upper_bound(at);
        if (it == map.begin())
            return {UINT64_MAX, UINT32_MAX};
        --it;
        if (it->second.end <= at)
            return {UINT64_MAX, UINT32_MAX};
        return {it->second.end, static_cast<uint32_t>(it->second.tag & 0xffff)};
    }
};

constexpr uint32_t objects_in_turn = 100;

struct pattern {
    const char *name;
    uint64_t len;
    bool random, turns, huge; // turns: objects_in_turn objects
};
// clang-format off
constexpr pattern patterns[] = {
    {"table_1MiB",                1 << 20, true,  false, false},
    {"table_4KiB_of_1TiB",        4096,    true,  false, false},
    {"table_appends",             4096,    false, false, false},
    {"table_appends_100_objects", 4096,    false, true,  false},
    {"table_1MiB_huge_pages",     1 << 20, true,  false, true},
    {"table_appends_huge_pages",  4096,    false, false, true},
};
// clang-format on

// A find that is told its leaf, as appends of one object fill them one by one: what it lacks is the way down.
void find_told(const twochoice_table &t, uint32_t k, uint64_t offset, twochoice_piece *p)
{
    const twochoice_priv_node *const leaf = &t.node[k / TWOCHOICE_EVEN_SLOTS];
    twochoice_priv_prefetch(leaf, true);
    const auto f = twochoice_priv_get(leaf, twochoice_priv_rank(leaf, 0, offset) - 1);
    p->end = f.end;
    p->target = twochoice_priv_target(f.tag);
}

// 1,000,000 fragments: of 1 MiB in random order without gaps, of 4 KiB at random places of 1 TiB, or appended. Table and
// B-tree take turns, a slice each, so that other load on the machine meets both; medians over the slices of all runs. The
// B-tree's key is one number, also of several objects. Huge pages: the table's memory is one block, so its user can
// ask the kernel for them; the B-tree's nodes come from malloc. A third one is the limit: an array that is told which
// entry it is, so that a find waits for one line and its page.
void against_absl(bench *b)
{
    constexpr uint32_t slices = 20, slice = fragments / slices;
    const uint32_t runs = b->quick ? 1 : 3;
    for (const pattern &of : patterns) {
        double ratio_c[60], ratio_q[60], ours_c[60], ours_q[60], absl_c[60], absl_q[60], array_q[60], limit_q[60],
            told_q[60];
        const uint64_t len = of.len;
        const workload w = of.random ? random_order(fragments) : in_order(fragments);
        const auto object = [&of](uint32_t i) { // of fragment i
            return of.turns ? uint64_t{i % objects_in_turn} : 0;
        };
        const auto offset = [&of](uint32_t i) {
            const bool anywhere = of.random && of.len == 4096;
            return (anywhere   ? mix(i * UINT64_C(0x9e3779b97f4a7c15)) >> 36
                    : of.turns ? i / objects_in_turn
                               : i) *
                   of.len;
        };
        const auto key = [&](uint32_t i) { return object(i) << 48 | offset(i); };
        const char *const name = of.name;
        const bool in_order = !of.random && !of.turns;
        twochoice_table_config config = {};
        config.max_fragments = 2 * fragments;
        config.home = servers + 1;
        for (uint32_t run = 0; run < runs; run++) {
            table t(config, of.huge);
            absl_map m;
            std::vector<absl_map::target> array(fragments);
            uint64_t sum = 0, btree_sum = 0, array_sum = 0, told_sum = 0;
            for (uint32_t s = 0; s < slices; s++) {
                const uint32_t at = run * slices + s;
                uint64_t from = bench_ns();
                for (uint32_t i = s * slice; i < (s + 1) * slice; i++)
                    create(&t.t, object(w.place[i]), offset(w.place[i]), len, w.target[i]);
                ours_c[at] = static_cast<double>(bench_ns() - from) / slice;
                from = bench_ns();
                for (uint32_t i = s * slice; i < (s + 1) * slice; i++)
                    m.create(key(w.place[i]), key(w.place[i]) + len, w.target[i]);
                absl_c[at] = static_cast<double>(bench_ns() - from) / slice;
                ratio_c[at] = absl_c[at] / ours_c[at];
            }
            for (uint32_t i = 0; i < fragments; i++) {
                const auto q = m.find(key(i) + 100);
                array[i] = {q.first & (UINT64_MAX >> 16), q.second};
            }
            // One slice of each, in turn: what a slice leaves in the caches is in front of the other one in each pass.
            const auto btree = [&](uint32_t s) {
                std::pair<uint64_t, uint32_t> q;
                const uint64_t from = bench_ns();
                for (uint32_t i = 0, k = s; i < slice;
                     i++, k = next_place((q.first & (UINT64_MAX >> 16)) + q.second, s * slice + i, fragments)) {
                    q = m.find(key(k) + 100);
                    btree_sum += q.second;
                }
                return static_cast<double>(bench_ns() - from) / slice;
            };
            for (uint32_t s = 0; s < slices; s++) {
                const uint32_t at = run * slices + s;
                twochoice_piece p;
                const uint64_t from = bench_ns();
                for (uint32_t i = 0, k = s; i < slice;
                     i++, k = next_place(p.end + p.target, s * slice + i, fragments)) {
                    twochoice_table_find(&t.t, object(k), offset(k) + 100, &p);
                    sum += p.target;
                }
                ours_q[at] = static_cast<double>(bench_ns() - from) / slice;
                absl_q[at] = btree(s);
                ratio_q[at] = absl_q[at] / ours_q[at];
            }
            for (uint32_t s = 0; s < slices; s++) {
                const uint32_t at = run * slices + s;
                const uint64_t from = bench_ns();
                for (uint32_t i = 0, k = s; i < slice;
                     i++, k = next_place(array[k].end + array[k].tag, s * slice + i, fragments))
                    array_sum += array[k].tag;
                array_q[at] = static_cast<double>(bench_ns() - from) / slice;
                limit_q[at] = btree(s) / array_q[at];
            }
            for (uint32_t s = 0; in_order && s < slices; s++) {
                twochoice_piece p;
                const uint64_t from = bench_ns();
                for (uint32_t i = 0, k = s; i < slice;
                     i++, k = next_place(p.end + p.target, s * slice + i, fragments)) {
                    find_told(t.t, k, offset(k) + 100, &p);
                    told_sum += p.target;
                }
                told_q[run * slices + s] = static_cast<double>(bench_ns() - from) / slice;
                (void)btree(s);
            }
            if (sum * (in_order ? 3 : 2) != btree_sum || sum != array_sum || (in_order && sum != told_sum)) {
                printf("the table, the B-tree and the array disagree\n");
                exit(1);
            }
            if (run == 0) {
                twochoice_table_state state;
                (void)twochoice_table_info(&t.t, &state);
                bench_report(b, name, "bytes_per_fragment", state.nodes_used * 1024.0 / state.fragments, "B");
            }
        }
        const size_t n = size_t{runs} * slices;
        bench_report(b, name, "create_ns", bench_median(ours_c, n), "ns");
        bench_report(b, name, "find_ns", bench_median(ours_q, n), "ns");
        bench_report(b, name, "absl_create_ns", bench_median(absl_c, n), "ns");
        bench_report(b, name, "absl_find_ns", bench_median(absl_q, n), "ns");
        bench_report(b, name, "create_speedup_vs_absl", bench_median(ratio_c, n), "x");
        bench_report(b, name, "find_speedup_vs_absl", bench_median(ratio_q, n), "x");
        bench_report(b, name, "array_find_ns", bench_median(array_q, n), "ns");
        bench_report(b, name, "array_speedup_vs_absl", bench_median(limit_q, n), "x");
        if (in_order)
            bench_report(b, name, "find_told_its_leaf_ns", bench_median(told_q, n), "ns");
    }
}

// One operation at ten times the size: cache misses grow, comparisons hardly do.
void growth(bench *b)
{
    double create_of[2], find_of[2];
    for (int large = 0; large < 2; large++) {
        const uint32_t n = large ? 10 * fragments : fragments;
        const workload w = random_order(n);
        twochoice_table_config config = {};
        config.max_fragments = n + 2;
        config.home = servers + 1;
        table t(config);
        create_of[large] = create_ns(&t, w, 1);
        find_of[large] = query_ns(t, n, 1, fragments);
    }
    bench_report(b, "table_10000000", "create_over_1m", create_of[1] / create_of[0], "x");
    bench_report(b, "table_10000000", "query_over_1m", find_of[1] / find_of[0], "x");
}

// The paper's log (Section V-B) of one object: a vector, searched from its end.
struct paper_log {
    struct entry {
        uint64_t from, to;
        uint32_t target;
    };
    std::vector<entry> log{{0, UINT64_MAX, UINT32_MAX}};
    void create(uint64_t from, uint64_t to, uint32_t target)
    {
        size_t kept = 1;
        for (size_t i = 1; i < log.size(); i++)
            if (!(log[i].from >= from && log[i].to <= to))
                log[kept++] = log[i];
        log.resize(kept);
        log.push_back({from, to, target});
    }
    uint32_t query(uint64_t at) const
    {
        for (size_t i = log.size(); i-- > 0;)
            if (log[i].from <= at && at < log[i].to)
                return log[i].target;
        return UINT32_MAX;
    }
};

void against_icl(bench *b)
{
    const workload w = random_order(fragments);
    const uint32_t queries = b->quick ? fragments : 2 * fragments;
    const size_t runs = b->quick ? 3 : 5;
    double ours_c[5], ours_q[5], icl_c[5], icl_q[5], ratio_c[5], ratio_q[5];
    twochoice_table_config config = {};
    config.max_fragments = fragments + 2; // a write is promised two
    config.home = servers + 1;
    for (size_t i = 0; i < runs; i++) {
        {
            table t(config);
            ours_c[i] = create_ns(&t, w, 1);
            ours_q[i] = query_ns(t, fragments, 1, queries);
            if (i == 0) {
                twochoice_table_state s;
                (void)twochoice_table_info(&t.t, &s);
                bench_report(b, "table_1_object", "bytes_per_fragment", s.nodes_used * 1024.0 / s.fragments, "B");
                bench_report(b, "table_1_object", "bytes_per_fragment_reserved",
                             static_cast<double>(twochoice_table_memsize(&config)) / fragments, "B");
            }
        }
        icl_map m;
        icl_c[i] = icl_create_ns(&m, w);
        icl_q[i] = icl_query_ns(m, fragments, queries);
        ratio_c[i] = icl_c[i] / ours_c[i];
        ratio_q[i] = icl_q[i] / ours_q[i];
    }
    bench_report(b, "table_1_object", "create_ns", bench_median(ours_c, runs), "ns");
    bench_report(b, "table_1_object", "query_ns", bench_median(ours_q, runs), "ns");
    bench_report(b, "icl_1_object", "create_ns", bench_median(icl_c, runs), "ns");
    bench_report(b, "icl_1_object", "query_ns", bench_median(icl_q, runs), "ns");
    bench_report(b, "table_1_object", "create_speedup_vs_icl", bench_median(ratio_c, runs), "x");
    bench_report(b, "table_1_object", "query_speedup_vs_icl", bench_median(ratio_q, runs), "x");
}

void many_objects(bench *b)
{
    const workload w = random_order(fragments);
    twochoice_table_config config = {};
    twochoice_table_state s;
    config.max_fragments = fragments + 2; // a write is promised two
    config.home = servers + 1;
    table t(config);
    bench_report(b, "table_100000_objects", "create_ns", create_ns(&t, w, 100000), "ns");
    bench_report(b, "table_100000_objects", "query_ns", query_ns(t, fragments, 100000, fragments), "ns");
    (void)twochoice_table_info(&t.t, &s);
    bench_report(b, "table_100000_objects", "bytes_per_fragment", s.nodes_used * 1024.0 / s.fragments, "B");
}

// Figure 12: random ranges of one object of 100 MB; every write is redirected.
void against_paper(bench *b)
{
    const uint64_t object_bytes = 100000000;
    const uint32_t creates = b->quick ? 20000 : 100000;
    const uint32_t most[] = {4 << 20, 64 << 10, 4 << 10};
    for (const uint32_t len_max : most) {
        twochoice_table_config config = {};
        twochoice_table_state s;
        char name[64];
        uint64_t sum = 0, from, ours_c, ours_q, paper_c, paper_q;
        config.max_fragments = 2 * creates;
        config.home = servers + 1;
        table t(config);
        paper_log log;
        std::vector<std::pair<uint64_t, uint64_t>> ranges;
        for (uint32_t i = 0; i < creates; i++) {
            const uint64_t len = 1 + mix(i * UINT64_C(2) + 1) % len_max;
            const uint64_t offset = mix(i * UINT64_C(2)) % (object_bytes - len);
            ranges.emplace_back(offset, len);
        }
        from = bench_ns();
        for (uint32_t i = 0; i < creates; i++)
            create(&t.t, 1, ranges[i].first, ranges[i].second, i % servers + 1);
        ours_c = bench_ns() - from;
        from = bench_ns();
        for (uint32_t i = 0; i < creates; i++)
            log.create(ranges[i].first, ranges[i].first + ranges[i].second, i % servers + 1);
        paper_c = bench_ns() - from;
        from = bench_ns();
        for (uint32_t i = 0; i < creates; i++) {
            twochoice_piece p;
            twochoice_table_find(&t.t, 1, mix(i) % object_bytes, &p);
            sum += p.target;
        }
        ours_q = bench_ns() - from;
        from = bench_ns();
        for (uint32_t i = 0; i < creates; i++)
            sum -= log.query(mix(i) % object_bytes);
        paper_q = bench_ns() - from;
        if (sum != 0) {
            printf("the table and the paper's log disagree\n");
            exit(1);
        }
        (void)twochoice_table_info(&t.t, &s);
        snprintf(name, sizeof name, "random_ranges_100MB_up_to_%uKiB", len_max >> 10);
        bench_report(b, name, "fragments", s.fragments, "");
        bench_report(b, name, "paper_log_length", static_cast<double>(log.log.size()), "entries");
        bench_report(b, name, "create_ns", static_cast<double>(ours_c) / creates, "ns");
        bench_report(b, name, "query_ns", static_cast<double>(ours_q) / creates, "ns");
        bench_report(b, name, "create_speedup_vs_paper_log", static_cast<double>(paper_c) / static_cast<double>(ours_c),
                     "x");
        bench_report(b, name, "query_speedup_vs_paper_log", static_cast<double>(paper_q) / static_cast<double>(ours_q),
                     "x");
    }
}

// A log in memory: records and checksums are measured, not a device.
struct memory_log {
    std::vector<uint8_t> bytes[3];
};

int log_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    const auto &v = static_cast<memory_log *>(ctx)->bytes[log];
    *got = offset >= v.size() ? 0 : v.size() - offset < len ? v.size() - offset : len;
    if (*got)
        memcpy(buf, v.data() + offset, *got);
    return 0;
}

int log_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    auto &v = static_cast<memory_log *>(ctx)->bytes[log];
    if (v.size() < offset + len)
        v.resize(offset + len);
    memcpy(v.data() + offset, buf, len);
    return 0;
}

int log_sync(void *, int)
{
    return 0;
}

int log_create(void *ctx, int log)
{
    static_cast<memory_log *>(ctx)->bytes[log].clear();
    return 0;
}

// The active log becomes log 0, where recovery reads it. Nothing is written after that.
int log_swap(void *ctx, int log)
{
    auto *m = static_cast<memory_log *>(ctx);
    if (log == 1)
        std::swap(m->bytes[0], m->bytes[1]);
    return 0;
}

// A disk whose sync takes 20 ms, in any thread. Queries under the owner's lock go on meanwhile.
int slow_sync(void *, int)
{
    usleep(20000);
    return 0;
}

// The owner's lock, granted in the order of arrival, as in an event loop: with a std::mutex a thread that makes many
// steps would get it again and again. Also measures how long it was held at most, in processor time.
struct owner_lock {
    std::atomic<uint64_t> next{0}, served{0};
    uint64_t longest = 0;
    void lock()
    {
        const uint64_t mine = next.fetch_add(1);
        while (served.load(std::memory_order_acquire) != mine)
            std::this_thread::yield();
    }
    void unlock()
    {
        served.fetch_add(1, std::memory_order_release);
    }
    static uint64_t cpu_ns()
    {
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<uint64_t>(t.tv_sec) * QOS_NS_PER_S + static_cast<uint64_t>(t.tv_nsec);
    }
};

struct held {
    owner_lock &owner;
    const std::lock_guard<owner_lock> guard;
    const uint64_t from;
    explicit held(owner_lock &o) : owner(o), guard(o), from(owner_lock::cpu_ns())
    {
    }
    ~held()
    {
        owner.longest = std::max(owner.longest, owner_lock::cpu_ns() - from);
    }
};

void queries_during_syncs(bench *b)
{
    const workload w = random_order(fragments);
    memory_log log;
    const twochoice_storage storage = {&log, log_create, log_read, log_write, slow_sync, log_swap};
    twochoice_table_config config = {};
    config.max_fragments = fragments + 1000;
    config.home = servers + 1;
    config.storage = &storage;
    for (auto &bytes : log.bytes)
        bytes.reserve(size_t{fragments} * 110);
    table t(config);
    if (twochoice_table_format(&t.t) != QOS_OK)
        exit(2);
    create_ns(&t, w, 1);
    owner_lock owner;
    std::atomic<bool> stop{false};
    uint64_t commits = 0, compactions = 0;
    std::thread server([&] { // writes, commits and compactions; it holds the owner's lock in steps only
        twochoice_piece replaced[4];
        for (uint64_t i = 0; !stop; i++) {
            twochoice_commit commit;
            twochoice_table_state state;
            enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
            bool begun;
            {
                const held lock(owner);
                uint64_t stamp;
                size_t n;
                if (twochoice_table_write_begin(&t.t, 1, 5, mix(i) % fragments * fragment_bytes, 4096, &stamp) ==
                    QOS_OK)
                    (void)!twochoice_table_write_end(&t.t, stamp, replaced, 4, &n);
                (void)twochoice_table_info(&t.t, &state);
                if (!state.compacting)
                    (void)!twochoice_table_compact_start(&t.t);
                begun = twochoice_table_commit_begin(&t.t, &commit) == QOS_OK;
            }
            if (begun) {
                for (int l = 0; l <= TWOCHOICE_MARK_LOG; l++)
                    if (commit.logs & 1u << l)
                        slow_sync(nullptr, l);
                const held lock(owner);
                commits += twochoice_table_commit_end(&t.t, &commit, true) == QOS_OK;
            }
            for (int step = 0; step < 200 && todo == TWOCHOICE_COMPACT_STEP; step++) {
                const held lock(owner);
                if (twochoice_table_compact_step(&t.t, 100, &todo) != QOS_OK)
                    break;
            }
            if (todo == TWOCHOICE_COMPACT_SWAP) {
                usleep(20000); // the rename's sync, in this thread
                const held lock(owner);
                compactions += twochoice_table_compact_end(&t.t, true) == QOS_OK;
            }
        }
    });
    std::vector<uint64_t> took;
    const uint64_t end_ns = bench_ns() + (b->quick ? UINT64_C(3000000000) : UINT64_C(8000000000));
    for (uint64_t i = 0, now = bench_ns(); now < end_ns; i++) {
        twochoice_piece p[4];
        {
            const held lock(owner);
            BENCH_KEEP(twochoice_table_query(&t.t, 1, mix(i) % fragments * fragment_bytes, fragment_bytes, p, 4));
        }
        const uint64_t after = bench_ns();
        took.push_back(after - now);
        usleep(50);
        now = bench_ns();
    }
    stop = true;
    server.join();
    std::sort(took.begin(), took.end());
    bench_report(b, "with_log", "query_p50_us", static_cast<double>(took[took.size() / 2]) / 1e3, "us");
    bench_report(b, "with_log", "query_p999_us", static_cast<double>(took[took.size() * 999 / 1000]) / 1e3, "us");
    bench_report(b, "with_log", "query_worst_us", static_cast<double>(took.back()) / 1e3, "us");
    bench_report(b, "with_log", "lock_held_at_most_us", static_cast<double>(owner.longest) / 1e3, "us");
    bench_report(b, "with_log", "commits_meanwhile", static_cast<double>(commits), "");
    bench_report(b, "with_log", "compactions_meanwhile", static_cast<double>(compactions), "");
}

void recovery(bench *b)
{
    const workload w = random_order(fragments);
    memory_log log;
    const twochoice_storage storage = {&log, log_create, log_read, log_write, log_sync, log_swap};
    twochoice_table_config config = {};
    twochoice_recovery r;
    config.max_fragments = fragments + 2; // a write is promised two
    config.home = servers + 1;
    config.storage = &storage;
    log.bytes[0].reserve(size_t{fragments} * 48 + 4096);
    {
        table t(config);
        if (twochoice_table_format(&t.t) != QOS_OK)
            exit(2);
        bench_report(b, "with_log", "create_ns", create_ns(&t, w, 1), "ns");
        const uint64_t from = bench_ns();
        if (twochoice_table_compact(&t.t) != QOS_OK)
            exit(2);
        bench_report(b, "with_log", "compaction_1m_s", static_cast<double>(bench_ns() - from) / 1e9, "s");
        log.bytes[0].resize(0);
        log.bytes[0].shrink_to_fit();
    }
    {
        table t(config);
        if (twochoice_table_format(&t.t) != QOS_OK)
            exit(2);
        create_ns(&t, w, 1);
    }
    table t(config);
    std::vector<uint8_t> copy(log.bytes[0].size());
    uint64_t from = bench_ns();
    memcpy(copy.data(), log.bytes[0].data(), copy.size());
    const uint64_t reference = bench_ns() - from;
    from = bench_ns();
    if (twochoice_table_recover(&t.t, 0, &r) != QOS_OK || r.records < fragments)
        exit(1);
    const uint64_t took = bench_ns() - from;
    bench_report(b, "with_log", "recover_1m_s", static_cast<double>(took) / 1e9, "s");
    bench_report(b, "with_log", "recover_over_memory_copy", static_cast<double>(took) / static_cast<double>(reference),
                 "x");
}

// The cost of placing a write: k reservations at two servers each, whose answers and asks are there at once.
void place(bench *b)
{
    const uint32_t ks[] = {1, 8, 100, 1000};
    for (const uint32_t k : ks) {
        twochoice_placement_config config = {};
        twochoice_placement s;
        config.servers = 10000;
        config.max_writes = k;
        config.seed = 1;
        const size_t size = twochoice_placement_memsize(&config);
        void *mem = aligned_alloc(64, size);
        if (!mem || twochoice_placement_init(&s, mem, size, &config) != QOS_OK)
            exit(2);
        std::vector<twochoice_write> w(k);
        std::vector<twochoice_message> reserved(4 * size_t{k});
        for (uint32_t i = 0; i < k; i++) {
            w[i].home = i * 37 % config.servers;
            w[i].len_bytes = 1 << 20;
        }
        const uint32_t rounds = 20000 / k + 1;
        double ns[5];
        uint64_t now = 1;
        for (double &one : ns) {
            const uint64_t from = bench_ns();
            for (uint32_t r = 0; r < rounds; r++) {
                twochoice_place_order o;
                twochoice_message answer;
                uint64_t request = 0;
                size_t n = 0;
                now += 1000000;
                if (twochoice_placement_begin(&s, now, w.data(), k, 0, &request) != QOS_OK)
                    exit(2);
                for (;;) {
                    twochoice_placement_step(&s, now, &o);
                    if (o.todo == TWOCHOICE_PLACE_WAIT)
                        break;
                    if (o.todo == TWOCHOICE_PLACE_SEND && o.message.type == TWOCHOICE_RESERVE && n < reserved.size())
                        reserved[n++] = o.message;
                }
                for (size_t i = 0; i < n; i++) {
                    reserved[i].type = i % 2 ? TWOCHOICE_ASK : TWOCHOICE_ANSWER;
                    reserved[i].wait_ns = mix(i) % 1000000 * (1 - i % 2);
                    reserved[i].service_ns = 1000000;
                    (void)twochoice_placement_heard(&s, now, &reserved[i], &answer);
                }
                for (uint32_t ended = 0; ended < k;) {
                    twochoice_placement_step(&s, now, &o);
                    if (o.todo == TWOCHOICE_PLACE_BIND) {
                        if (twochoice_placement_ended(&s, now, request, o.write, true) != QOS_OK)
                            exit(2);
                        ended++;
                    } else if (o.todo == TWOCHOICE_PLACE_WAIT) {
                        for (uint32_t i = 0; i < k; i++) // the rest is given up
                            (void)!twochoice_placement_ended(&s, now, request, i, true);
                        break;
                    }
                }
                while (twochoice_placement_step(&s, now, &o), o.todo != TWOCHOICE_PLACE_WAIT)
                    continue;
            }
            one = static_cast<double>(bench_ns() - from) / rounds / k;
        }
        char name[32];
        snprintf(name, sizeof name, "k=%u", k);
        bench_report(b, name, "place_ns_per_write", bench_median(ns, 5), "ns");
        free(mem);
    }
}

} // namespace

int main(int argc, char **argv)
{
    bench b;
    bench_open(&b, "twochoice", argc, argv);
    against_absl(&b);
    against_icl(&b);
    if (!b.quick) // 10,000,000 fragments
        growth(&b);
    many_objects(&b);
    against_paper(&b);
    recovery(&b);
    queries_during_syncs(&b);
    place(&b);
    return bench_close(&b);
}
