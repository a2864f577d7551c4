// proves: warm starts reach the optimum again, filters stay valid and improve with M, plans keep R + L within the limit
// variants: native san i386 s390x aarch64
#define PSHIFT_WINDOW_ROWS 4
#include "pshift.h"
#include "pshift_instances.h"

static struct instance p;
static struct pshift warm, cold;
static uint64_t alloc[INSTANCE_ENTRIES + 1], other[INSTANCE_ENTRIES + 1], rest_demand[INSTANCE_ENTRIES + 1];
static uint64_t rest_capacity[INSTANCE_SERVERS + 1], rest_reservation[INSTANCE_BUCKETS + 1],
    limit[INSTANCE_BUCKETS + 1];

static uint8_t cut[INSTANCE_SERVERS + 1], other_cut[INSTANCE_SERVERS + 1];
static uint32_t list[INSTANCE_BUCKETS + 1];

static struct pshift_problem problem(void)
{
    struct pshift_problem q;
    q.servers = p.servers;
    q.buckets = p.buckets;
    q.capacity = p.capacity;
    q.reservation = p.reservation;
    q.row = p.row;
    q.server = p.server;
    q.demand = p.demand;
    return q;
}

static struct pshift_solution solution(uint64_t *a, uint8_t *c)
{
    struct pshift_solution s;
    memset(&s, 0, sizeof s);
    s.alloc = a;
    s.cut = c;
    return s;
}

static bool same(struct qos_u128 a, struct qos_u128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static void warm_starts(struct check_rng *r, uint64_t huge)
{
    struct pshift_problem q = problem();
    struct pshift_solution s = solution(alloc, cut), t = solution(other, other_cut);
    uint32_t round, i, k, n;
    CHECK_EQ(pshift_solve(&warm, &q, NULL, &s), QOS_OK);
    for (round = 0; round < 5; round++) {
        n = 0;
        for (i = 0; i < p.buckets; i++)
            if (check_between(r, 0, 3) == 0)
                list[n++] = i;
        CHECK_EQ(pshift_retract(&warm, &q, &s, list, n), QOS_OK);
        if (n > 0) {
            CHECK_EQ(pshift_retract(&warm, &q, &s, list + n - 1, 1), QOS_EEXIST);
            CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, list, n - 1), QOS_EINVAL);
        }
        for (k = 0; k < n; k++) {
            uint32_t e;
            p.reservation[list[k]] =
                check_between(r, 0, p.reservation[list[k]] * (p.reservation[list[k]] < huge / 4 ? 2 : 1));
            for (e = p.row[list[k]]; e < p.row[list[k] + 1]; e++) {
                p.server[e] = (uint32_t)check_between(r, 0, p.servers - 1);
                p.demand[e] = check_between(r, 0, p.demand[e] < huge / 4 ? p.demand[e] * 2 : huge);
            }
        }
        if (round == 3 && p.servers > 0)
            p.capacity[check_between(r, 0, p.servers - 1)] /= 2;
        CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, list, n), QOS_OK);
        CHECK_EQ(pshift_verify(&warm, &q, &s), QOS_OK);
        CHECK_EQ(pshift_solve(&cold, &q, NULL, &t), QOS_OK);
        CHECK(same(s.effective, t.effective) && same(s.tokens, t.tokens) && same(s.unclaimed, t.unclaimed));
    }
}

static void filters(struct check_rng *r)
{
    struct pshift_problem q = problem();
    struct pshift_solution s = solution(alloc, cut), t = solution(other, other_cut);
    struct pshift_options opt;
    uint32_t kind;
    CHECK_EQ(pshift_solve(&cold, &q, NULL, &t), QOS_OK);
    for (kind = PSHIFT_TOP_SERVER; kind <= PSHIFT_TOP_GLOBAL; kind++) {
        memset(&opt, 0, sizeof opt);
        opt.filter = (enum pshift_filter)kind;
        CHECK_EQ(pshift_solve(&warm, &q, &opt, &s), QOS_EINVAL); /* top_m 0 */
        opt.top_m = (uint32_t)check_between(r, 1, 12);
        CHECK_EQ(pshift_solve(&warm, &q, &opt, &s), QOS_OK);
        CHECK_EQ(pshift_verify(&warm, &q, &s), QOS_OK);
        CHECK(!s.exact);
        CHECK(qos_cmp_wide(s.effective, t.effective) <= 0);
        CHECK(qos_cmp_wide(s.excess, pshift_work_of(&warm).excess_start) <= 0);
        opt.top_m = UINT32_MAX; /* everything */
        CHECK_EQ(pshift_solve(&warm, &q, &opt, &s), QOS_OK);
        CHECK_EQ(pshift_verify(&warm, &q, &s), QOS_OK);
        CHECK(same(s.effective, t.effective));
    }
    opt.filter = (enum pshift_filter)7;
    CHECK_EQ(pshift_solve(&warm, &q, &opt, &s), QOS_EINVAL);
}

static void plans(struct check_rng *r, uint64_t huge)
{
    struct pshift_problem q = problem(), second = problem();
    struct pshift_solution s = solution(alloc, cut), t = solution(other, other_cut);
    struct pshift_residual rest;
    uint32_t i, e, j;
    rest.demand = rest_demand;
    rest.capacity = rest_capacity;
    rest.reservation = rest_reservation;
    for (i = 0; i < p.buckets; i++)
        limit[i] = check_between(r, 0, 2) ? check_between(r, 0, huge) : PSHIFT_UNLIMITED;
    for (i = 0; i < p.buckets && check_between(r, 0, 1); i++)
        limit[i] = p.reservation[i] < huge / 2 ? p.reservation[i] + p.reservation[i] / 2 : huge;
    CHECK_EQ(pshift_plan(&warm, &q, limit, NULL, &s, &t, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_plan(&warm, &q, limit, NULL, &s, &t, &rest), QOS_OK);
    second.demand = rest.demand;
    second.capacity = rest.capacity;
    second.reservation = rest.reservation;
    CHECK_EQ(pshift_verify(&warm, &second, &t), QOS_OK);
    for (i = 0; i < p.buckets; i++) {
        uint64_t tokens = 0, total = 0, want;
        for (e = p.row[i]; e < p.row[i + 1]; e++) {
            CHECK_LE(alloc[e] + other[e], p.demand[e]);
            CHECK_EQ(rest_demand[e], p.demand[e] - alloc[e]);
            tokens += alloc[e] + other[e];
            total += p.demand[e];
        }
        CHECK_LE(tokens, limit[i]);
        want = total < limit[i] ? total : limit[i];
        CHECK_EQ(tokens, want); /* all that limit and demand allow is handed out */
        rest_reservation[i] = p.reservation[i] < limit[i] ? p.reservation[i] : limit[i];
    }
    second = problem();
    second.reservation = rest.reservation;
    CHECK_EQ(pshift_verify(&warm, &second, &s), QOS_OK);
    for (j = 0; j < p.servers; j++)
        CHECK_LE(rest_capacity[j], p.capacity[j]);
}

static void errors(void)
{
    struct pshift_problem q = problem();
    struct pshift_solution s = solution(alloc, cut);
    struct pshift_residual rest;
    uint32_t none[2] = {0, 5}, i;
    struct check_rng r;
    check_rng_init(&r, 5);
    do
        instance_make(&p, &r, 4, 6, 5, UINT64_C(1) << 40);
    while (p.buckets < 3 || p.servers < 2);
    q = problem();
    CHECK_EQ(pshift_solve(&warm, &q, NULL, &s), QOS_OK);
    none[0] = 0;
    none[1] = p.buckets;
    CHECK_EQ(pshift_retract(&warm, &q, &s, none, 2), QOS_ENOENT);
    CHECK_EQ(pshift_retract(&warm, &q, &s, NULL, 1), QOS_EINVAL);
    CHECK_EQ(pshift_retract(&warm, NULL, &s, none, 1), QOS_EINVAL);
    CHECK_EQ(pshift_retract(&warm, &q, &s, none, 1), QOS_OK); /* the failed calls left no mark */
    CHECK_EQ(pshift_resolve(&warm, NULL, NULL, &s, none, 1), QOS_EINVAL);
    CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, NULL, 1), QOS_EINVAL);
    CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, none + 1, 1), QOS_EINVAL);
    if (p.row[1] > 0) {
        uint32_t was = p.server[0];
        uint64_t demand = p.demand[0];
        p.server[0] = p.servers;
        CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, none, 1), QOS_EINVAL);
        p.server[0] = was;
        p.demand[0] = UINT64_MAX;
        CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, none, 1), QOS_ERANGE);
        p.demand[0] = demand;
    }
    CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, none, 1), QOS_OK);
    CHECK_EQ(pshift_verify(&warm, &q, &s), QOS_OK);
    q.buckets--;
    CHECK_EQ(pshift_retract(&warm, &q, &s, none, 1), QOS_EINVAL); /* another problem */
    CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, none, 0), QOS_EINVAL);
    q.buckets++;
    CHECK_EQ(pshift_retract(&warm, &q, &s, none, 1), QOS_OK);
    CHECK_EQ(pshift_solve(&warm, &q, NULL, &s), QOS_OK); /* forgets the retraction */
    CHECK_EQ(pshift_resolve(&warm, &q, NULL, &s, none, 0), QOS_OK);
    CHECK_EQ(pshift_verify(&warm, &q, &s), QOS_OK);
    rest.demand = rest_demand;
    rest.capacity = rest_capacity;
    rest.reservation = rest_reservation;
    for (i = 0; i < p.buckets; i++)
        limit[i] = PSHIFT_UNLIMITED;
    CHECK_EQ(pshift_plan(&warm, &q, NULL, NULL, &s, &s, &rest), QOS_EINVAL);
    rest.capacity = NULL;
    CHECK_EQ(pshift_plan(&warm, &q, limit, NULL, &s, &s, &rest), QOS_EINVAL);
    rest.capacity = rest_capacity;
    i = p.server[p.entries - 1];
    p.server[p.entries - 1] = p.servers;
    CHECK_EQ(pshift_plan(&warm, &q, limit, NULL, &s, &s, &rest), QOS_EINVAL);
    CHECK_EQ(pshift_retract(&warm, &q, &s, none, 1), QOS_EINVAL); /* nothing is solved any more */
    p.server[p.entries - 1] = i;
    p.capacity[0] = UINT64_MAX;
    CHECK_EQ(pshift_plan(&warm, &q, limit, NULL, &s, &s, NULL), QOS_ERANGE);
}

int main(void)
{
    struct pshift_config cfg = {INSTANCE_SERVERS, INSTANCE_BUCKETS, INSTANCE_ENTRIES};
    struct check_mem mem, mem2;
    uint64_t n, runs, huge;
    check_begin("property/pshift_reuse");
    (void)check_mem_new(&mem, pshift_memsize(&cfg), 64, 0);
    (void)check_mem_new(&mem2, pshift_memsize(&cfg), 64, 0);
    CHECK_EQ(pshift_init(&warm, mem.mem, mem.size, &cfg), QOS_OK);
    CHECK_EQ(pshift_init(&cold, mem2.mem, mem2.size, &cfg), QOS_OK);
    runs = check_scaled(3000);
    for (n = 0; n < runs; n++) {
        struct check_rng r;
        bool big = n % 4 == 0;
        check_rng_init(&r, n);
        huge = n % 3 ? UINT64_C(1) << 50 : INSTANCE_HUGE;
        CHECK_CONTEXT("instance %" PRIu64, n);
        instance_make(&p, &r, (unsigned)(n % 12), big ? INSTANCE_SERVERS : 6, big ? INSTANCE_BUCKETS : 9, huge);
        filters(&r);
        if (n % 3)
            plans(&r, huge);
        warm_starts(&r, huge);
    }
    errors();
    CHECK(check_mem_free(&mem));
    CHECK(check_mem_free(&mem2));
    return check_end();
}
