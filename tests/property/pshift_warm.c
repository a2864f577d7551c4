// proves: a million small warm starts, half of them on chains and rings, reach the maximum flow of plain augmenting paths, with a cut that proves it
// variants: native
#include "pshift.h"
#include "check.h"

#define SERVERS 14
#define BUCKETS 20
#define WIDTH 4
#define ENTRIES (BUCKETS * WIDTH)

static struct {
    uint32_t servers, buckets, row[BUCKETS + 1], server[ENTRIES];
    uint64_t capacity[SERVERS], reservation[BUCKETS], demand[ENTRIES];
} p;

/* The oracle: augmenting paths from bucket to server, found depth first. Its own arrays, its own arithmetic. */
static uint64_t flow[ENTRIES], used[SERVERS];
static bool seen[SERVERS];

static uint64_t push(uint32_t bucket, uint64_t most)
{
    uint32_t e, f, i;
    for (e = p.row[bucket]; e < p.row[bucket + 1]; e++) {
        const uint32_t j = p.server[e];
        uint64_t m = p.demand[e] - flow[e], got = 0;
        m = m < most ? m : most;
        if (m == 0 || seen[j])
            continue;
        seen[j] = true;
        if (used[j] < p.capacity[j]) {
            got = p.capacity[j] - used[j] < m ? p.capacity[j] - used[j] : m;
            used[j] += got;
        } else {
            for (i = 0; i < p.buckets && got == 0; i++)
                for (f = p.row[i]; f < p.row[i + 1] && got == 0; f++)
                    if (p.server[f] == j && flow[f] != 0 && f != e) {
                        got = push(i, flow[f] < m ? flow[f] : m);
                        flow[f] -= got;
                    }
        }
        flow[e] += got;
        if (got)
            return got;
    }
    return 0;
}

static uint64_t max_flow(void)
{
    uint64_t sum = 0, got;
    uint32_t i;
    memset(flow, 0, sizeof flow);
    memset(used, 0, sizeof used);
    for (i = 0; i < p.buckets; i++) {
        uint64_t left = p.reservation[i];
        do {
            memset(seen, 0, sizeof seen);
            got = left ? push(i, left) : 0;
            left -= got;
            sum += got;
        } while (got);
    }
    return sum;
}

/* The value of an allocation and of its cut; checks that the allocation is prudent. */
static uint64_t value_of(const uint64_t *alloc, const uint8_t *cut, uint64_t *cut_value)
{
    uint64_t load[SERVERS] = {0}, value = 0;
    uint32_t i, e, j;
    *cut_value = 0;
    for (i = 0; i < p.buckets; i++) {
        uint64_t all = 0, row = 0, outside = 0, want;
        for (e = p.row[i]; e < p.row[i + 1]; e++) {
            CHECK_LE(alloc[e], p.demand[e]);
            all += p.demand[e];
            row += alloc[e];
            outside += cut[p.server[e]] ? 0 : p.demand[e];
            load[p.server[e]] += alloc[e];
        }
        want = all < p.reservation[i] ? all : p.reservation[i];
        CHECK_EQ(row, want);
        *cut_value += outside < want ? outside : want;
    }
    for (j = 0; j < p.servers; j++) {
        value += load[j] < p.capacity[j] ? load[j] : p.capacity[j];
        *cut_value += cut[j] ? p.capacity[j] : 0;
    }
    return value;
}

static void add(uint64_t reservation, uint32_t a, uint32_t b, uint64_t da, uint64_t db)
{
    const uint32_t e = p.row[p.buckets];
    p.server[e] = a;
    p.server[e + 1] = b;
    p.demand[e] = da;
    p.demand[e + 1] = db;
    p.reservation[p.buckets++] = reservation;
    p.row[p.buckets] = e + 2;
}

/* Two chains, or rings, of servers, one of them overloaded, and a few rows across. */
static void chains(struct check_rng *r, uint64_t top)
{
    const uint32_t a = (uint32_t)check_between(r, 2, 6), b = (uint32_t)check_between(r, 2, 6);
    uint64_t load[SERVERS] = {0};
    const bool ring = check_between(r, 0, 1) != 0;
    uint32_t j, k, q;
    p.servers = a + b;
    for (j = 0; j < a + b; j++) {
        const uint32_t first = j < a ? 0 : a, n = j < a ? a : b, next = first + (j - first + 1) % n;
        const uint64_t w = check_between(r, top / 2, top);
        if (next == first && !(ring && n > 2))
            continue;
        add(2 * w, j, next, 2 * w, 2 * w);
        load[j] += w;
        load[next] += w;
    }
    for (k = (uint32_t)check_between(r, 1, 6); k != 0; k--) {
        const uint64_t w = check_between(r, 1, top);
        q = a + (uint32_t)check_between(r, 0, b - 1);
        add(w, (uint32_t)check_between(r, 0, a - 1), q, w, w);
        load[q] += w;
    }
    for (j = 0; j < a + b; j++)
        p.capacity[j] = load[j] * (j < a ? check_between(r, 40, 90) : check_between(r, 100, 140)) / 100;
}

static void anything(struct check_rng *r, uint64_t top)
{
    uint32_t i, k, e = 0;
    uint64_t sum = 0;
    p.servers = (uint32_t)check_between(r, 1, 8);
    p.buckets = (uint32_t)check_between(r, 1, 10);
    for (i = 0; i < p.buckets; i++) {
        uint64_t all = 0;
        p.row[i] = e;
        for (k = (uint32_t)check_between(r, 0, WIDTH); k != 0; k--, e++) {
            p.server[e] = (uint32_t)check_between(r, 0, p.servers - 1);
            p.demand[e] = check_between(r, 0, top);
            all += p.demand[e];
        }
        p.reservation[i] = check_between(r, all / 2, all + 1);
        sum += p.reservation[i];
    }
    p.row[p.buckets] = e;
    for (i = 0; i < p.servers; i++)
        p.capacity[i] = check_between(r, 0, 2) ? sum / p.servers : check_between(r, 0, 2 * sum / p.servers);
}

/* Changes a few rows and capacities. Returns the number of rows in list[]. */
static uint32_t choose(struct check_rng *r, uint32_t *list)
{
    uint32_t i, n = 0, most = (uint32_t)check_between(r, 0, 3);
    for (i = (uint32_t)check_between(r, 0, 4); i < p.buckets && n < most; i += (uint32_t)check_between(r, 1, 6))
        list[n++] = i;
    return n;
}

int main(void)
{
    const struct pshift_solver_config config = {SERVERS, BUCKETS, ENTRIES};
    struct pshift_problem q = {0, 0, p.capacity, p.reservation, p.row, p.server, p.demand};
    static struct pshift_solver solver;
    static struct pshift_solution s;
    static uint64_t alloc[ENTRIES];
    static uint8_t cut[SERVERS];
    uint64_t warm = 0, cuts = 0, n, most;
    uint32_t list[BUCKETS], k, c, i, e;
    struct pshift_solver_state info;
    struct check_mem mem;
    check_begin("property/pshift_warm");
    most = check_scaled(1000000);
    (void)check_mem_new(&mem, pshift_solver_memsize(&config), 64, 0);
    CHECK_EQ(pshift_solver_init(&solver, mem.mem, mem.size, &config), QOS_OK);
    s.alloc = alloc;
    s.cut = cut;
    for (n = 0; warm < most; n++) {
        static const uint64_t tops[4] = {3, 20, 100, 1000000};
        struct check_rng r;
        uint64_t top, value, bound;
        check_rng_init(&r, check_seed() * UINT64_C(1000000007) + n);
        CHECK_CONTEXT("problem %" PRIu64, n);
        memset(&p, 0, sizeof p);
        top = tops[check_between(&r, 0, 3)];
        if (n % 2)
            chains(&r, top);
        else
            anything(&r, top);
        q.servers = p.servers;
        q.buckets = p.buckets;
        CHECK_EQ(pshift_solver_solve(&solver, &q, NULL, &s), QOS_OK);
        CHECK_EQ(s.effective.lo, max_flow());
        for (k = 0; k < 8; k++, warm++) {
            const uint32_t rows = choose(&r, list);
            CHECK_EQ(pshift_solver_retract(&solver, list, rows, &q, &s), QOS_OK);
            for (i = 0; i < rows; i++)
                for (e = p.row[list[i]]; e < p.row[list[i] + 1]; e++) {
                    p.demand[e] = check_between(&r, 0, 2 * top);
                    if (check_between(&r, 0, 7) == 0)
                        p.server[e] = (uint32_t)check_between(&r, 0, p.servers - 1);
                }
            for (c = (uint32_t)check_between(&r, 0, 3); c != 0; c--) {
                i = (uint32_t)check_between(&r, 0, p.servers - 1);
                p.capacity[i] = p.capacity[i] * check_between(&r, 60, 150) / 100;
            }
            CHECK_EQ(pshift_solver_resolve(&solver, list, rows, &q, NULL, &s), QOS_OK);
            value = value_of(alloc, cut, &bound);
            CHECK_EQ(value, s.effective.lo);
            CHECK_EQ(value, max_flow());
            CHECK(s.exact && bound == value);
            (void)pshift_solver_info(&solver, &info);
            CHECK(!info.repeated); /* the cut proved it; no second solve was needed */
            cuts += s.cut_servers != 0;
        }
    }
    printf("%" PRIu64 " warm starts, %" PRIu64 " with servers that bind\n", warm, cuts);
    CHECK_GE(cuts, warm / 4);
    CHECK(check_mem_free(&mem));
    return check_end();
}
