// proves: Phi is the maximum flow of plain augmenting paths; the verifier rejects any altered number
// variants: native san i386 s390x riscv64
#include "pshift.h"
#include "pshift_instances.h"

/* The oracle: depth-first augmenting paths on an adjacency list; nodes: source, buckets, servers, sink. Instances for
 * it keep all sums below 2^64. */
#define ARCS (2 * (INSTANCE_ENTRIES + INSTANCE_BUCKETS + INSTANCE_SERVERS))
static struct {
    uint32_t count, to[ARCS], next[ARCS], first[INSTANCE_BUCKETS + INSTANCE_SERVERS + 2];
    uint64_t left[ARCS];
    bool seen[INSTANCE_BUCKETS + INSTANCE_SERVERS + 2];
} net;

static void net_arc(uint32_t from, uint32_t to, uint64_t capacity)
{
    uint32_t k;
    for (k = 0; k < 2; k++) {
        uint32_t a = net.count++;
        net.to[a] = k ? from : to;
        net.left[a] = k ? 0 : capacity;
        net.next[a] = net.first[k ? to : from];
        net.first[k ? to : from] = a;
    }
}

static uint64_t net_push(uint32_t at, uint32_t sink, uint64_t most)
{
    uint32_t a;
    net.seen[at] = true;
    if (at == sink)
        return most;
    for (a = net.first[at]; a != UINT32_MAX; a = net.next[a]) {
        uint64_t got;
        if (net.left[a] == 0 || net.seen[net.to[a]])
            continue;
        got = net_push(net.to[a], sink, net.left[a] < most ? net.left[a] : most);
        if (got) {
            net.left[a] -= got;
            net.left[a ^ 1] += got;
            return got;
        }
    }
    return 0;
}

static uint64_t net_flow(const struct instance *p)
{
    uint32_t i, e, source = p->servers + p->buckets, sink = source + 1;
    uint64_t flow = 0, got;
    net.count = 0;
    for (i = 0; i <= sink; i++)
        net.first[i] = UINT32_MAX;
    for (i = 0; i < p->servers; i++)
        net_arc(i, sink, p->capacity[i]);
    for (i = 0; i < p->buckets; i++) {
        net_arc(source, p->servers + i, p->reservation[i]);
        for (e = p->row[i]; e < p->row[i + 1]; e++)
            net_arc(p->servers + i, p->server[e], p->demand[e]);
    }
    do {
        memset(net.seen, 0, sizeof net.seen);
        got = net_push(source, sink, UINT64_MAX);
        flow += got;
    } while (got);
    return flow;
}

static struct instance p;
static struct pshift_solver ps;
static uint64_t alloc[INSTANCE_ENTRIES + 1], shortfall[INSTANCE_BUCKETS + 1];
static uint8_t cut[INSTANCE_SERVERS + 1];

/* Sets *number to `other`, checks that this is rejected, restores it. */
static void altered64(const struct pshift_problem *q, struct pshift_solution *s, uint64_t *number, uint64_t other)
{
    uint64_t was = *number;
    if (other == was)
        return;
    *number = other;
    CHECK_EQ(pshift_solver_verify(&ps, q, s), QOS_ECORRUPT);
    *number = was;
}

static void altered(const struct pshift_problem *q, struct pshift_solution *s, uint64_t *number, struct check_rng *r)
{
    altered64(q, s, number, *number == UINT64_MAX ? 0 : *number + 1);
    altered64(q, s, number, *number == 0 ? UINT64_MAX : *number - 1);
    altered64(q, s, number, check_rand(r));
}

static void mutate_all(const struct pshift_problem *q, struct pshift_solution *s, struct check_rng *r)
{
    struct qos_u128 *wide[6];
    uint32_t i;
    wide[0] = &s->tokens;
    wide[1] = &s->unclaimed;
    wide[2] = &s->effective;
    wide[3] = &s->excess;
    wide[4] = &s->cut_capacity;
    wide[5] = &s->cut_demand;
    CHECK_CONTEXT("altered: sums");
    for (i = 0; i < 6; i++) {
        altered(q, s, &wide[i]->lo, r);
        altered(q, s, &wide[i]->hi, r);
    }
    CHECK_CONTEXT("altered: size of the cut");
    s->cut_servers++;
    CHECK_EQ(pshift_solver_verify(&ps, q, s), QOS_ECORRUPT);
    s->cut_servers--;
    CHECK_CONTEXT("altered: an allocation");
    for (i = 0; i < p.entries; i++)
        altered(q, s, &alloc[i], r);
    CHECK_CONTEXT("altered: an allocation, without the shortfalls that would show it");
    s->shortfall_set = false;
    for (i = 0; i < p.entries; i++)
        altered(q, s, &alloc[i], r);
    s->shortfall_set = true;
    CHECK_CONTEXT("altered: a shortfall");
    for (i = 0; i < p.buckets; i++)
        altered(q, s, &shortfall[i], r);
    CHECK_CONTEXT("altered: a server of the cut");
    for (i = 0; i < p.servers; i++) {
        uint8_t was = cut[i];
        cut[i] = was ? 0 : 1;
        CHECK_EQ(pshift_solver_verify(&ps, q, s), QOS_ECORRUPT);
        cut[i] = 2;
        CHECK_EQ(pshift_solver_verify(&ps, q, s), QOS_ECORRUPT);
        cut[i] = was;
    }
    CHECK_EQ(pshift_solver_verify(&ps, q, s), QOS_OK);
}

int main(void)
{
    struct pshift_solver_config config = {INSTANCE_SERVERS, INSTANCE_BUCKETS, INSTANCE_ENTRIES};
    struct check_mem mem;
    uint64_t n, runs, mutated = 0;
    check_begin("property/pshift_certificate");
    runs = check_scaled(4000);
    (void)check_mem_new(&mem, pshift_solver_memsize(&config), 64, 0);
    CHECK_EQ(pshift_solver_init(&ps, mem.mem, mem.size, &config), QOS_OK);
    for (n = 0; n < runs; n++) {
        struct pshift_problem q = {0, 0, p.capacity, p.reservation, p.row, p.server, p.demand};
        struct pshift_solution s;
        struct check_rng r;
        uint64_t unserved = 0;
        uint32_t i;
        bool big = n % 8 == 0;
        check_rng_init(&r, n);
        instance_make(&p, &r, (unsigned)(n % 12), big ? INSTANCE_SERVERS : 6, big ? INSTANCE_BUCKETS : 9,
                      UINT64_C(1) << 55);
        q.servers = p.servers;
        q.buckets = p.buckets;
        memset(&s, 0, sizeof s);
        s.alloc = alloc;
        s.cut = cut;
        s.shortfall = shortfall;
        CHECK_CONTEXT("instance %" PRIu64, n);
        CHECK_EQ(pshift_solver_solve(&ps, &q, NULL, &s), QOS_OK);
        CHECK_EQ(s.effective.hi, 0);
        CHECK_EQ(s.effective.lo, net_flow(&p));
        CHECK_EQ(s.cut_capacity.lo + s.cut_demand.lo, s.effective.lo);
        CHECK_EQ(pshift_solver_shortfall(&ps, &q, &s), QOS_OK);
        CHECK_EQ(pshift_solver_verify(&ps, &q, &s), QOS_OK);
        for (i = 0; i < p.buckets; i++) {
            unserved += shortfall[i];
            if (s.excess.lo == 0)
                CHECK(!pshift_solution_binds(&s, i, &q));
        }
        CHECK_EQ(unserved, s.excess.lo);
        if (n % 16 < 3 && p.entries > 0) {
            mutate_all(&q, &s, &r);
            mutated++;
        }
    }
    CHECK_GE(mutated, runs / 10 > 1 ? 1 : 0);
    CHECK(check_mem_free(&mem));
    return check_end();
}
