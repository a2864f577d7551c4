// proves: warm starts reach the optimum again, from the changed rows alone or from all rows
// variants: native san i386 s390x aarch64
// flags: -DPSHIFT_WINDOW_ROWS=4 -DPSHIFT_SHARD_ENTRIES=600
#include "pshift.h"
#include "pshift_instances.h"

static struct instance p;
static struct pshift_solver warm, cold;
static uint64_t alloc[INSTANCE_ENTRIES + 1], other[INSTANCE_ENTRIES + 1];

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
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &s), QOS_OK);
    for (round = 0; round < 5; round++) {
        n = 0;
        for (i = 0; i < p.buckets; i++)
            if (check_between(r, 0, 3) == 0)
                list[n++] = i;
        CHECK_EQ(pshift_solver_retract(&warm, list, n, &q, &s), QOS_OK);
        if (n > 0) {
            CHECK_EQ(pshift_solver_retract(&warm, list + n - 1, 1, &q, &s), QOS_EEXIST);
            CHECK_EQ(pshift_solver_resolve(&warm, list, n - 1, &q, NULL, &s), QOS_EINVAL);
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
        CHECK_EQ(pshift_solver_resolve(&warm, list, n, &q, NULL, &s), QOS_OK);
        CHECK_EQ(pshift_solver_verify(&warm, &q, &s), QOS_OK);
        CHECK_EQ(pshift_solver_solve(&cold, &q, NULL, &t), QOS_OK);
        CHECK(same(s.effective, t.effective) && same(s.tokens, t.tokens) && same(s.unclaimed, t.unclaimed));
    }
}

/* The caller breaks the rule and changes a row that is not retracted. The cut then proves nothing, and this shows. */
static void cut_is_checked(void)
{
    struct pshift_problem q;
    struct pshift_solution s = solution(alloc, cut);
    struct pshift_solver_state info;
    uint32_t e;
    memset(&p, 0, sizeof p);
    p.servers = 4;
    p.buckets = 4;
    for (e = 0; e < 8; e++) {
        p.server[e] = e == 0 ? 0 : e == 1 ? 1 : e == 2 ? 1 : e == 3 ? 2 : e == 4 ? 2 : e == 5 ? 3 : e == 6 ? 3 : 2;
        p.demand[e] = 10;
    }
    for (e = 0; e < 4; e++) {
        p.row[e] = 2 * e;
        p.reservation[e] = 20;
        p.capacity[e] = e < 2 ? 5 : 40;
    }
    p.row[4] = p.entries = 8;
    q = problem();
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &s), QOS_OK);
    CHECK(s.cut_servers == 2 && cut[0] && cut[1]);
    list[0] = 3;
    p.demand[3] = 40; /* row 1 now leads out of X; not retracted */
    CHECK_EQ(pshift_solver_retract(&warm, list, 1, &q, &s), QOS_OK);
    p.capacity[3] = 5; /* server 3 is overloaded: X changes, and all rows are added up */
    CHECK_EQ(pshift_solver_resolve(&warm, list, 1, &q, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&warm, &q, &s), QOS_OK);
    (void)pshift_solver_info(&warm, &info);
    CHECK(info.repeated);
}

static void errors(void)
{
    struct pshift_problem q = problem();
    struct pshift_solution s = solution(alloc, cut), t = solution(other, other_cut);
    uint32_t none[2] = {0, 5}, i;
    struct check_rng r;
    check_rng_init(&r, 5);
    do
        instance_make(&p, &r, 4, 6, 5, UINT64_C(1) << 40);
    while (p.buckets < 3 || p.servers < 2);
    q = problem();
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &s), QOS_OK);
    list[0] = 0;
    list[1] = 1;
    CHECK_EQ(pshift_solver_retract(&warm, list, 2, &q, &s), QOS_OK);
    list[1] = 0; /* the same bucket twice is not the two buckets */
    CHECK_EQ(pshift_solver_resolve(&warm, list, 2, &q, NULL, &s), QOS_EINVAL);
    list[1] = 1;
    CHECK_EQ(pshift_solver_resolve(&warm, list, 2, &q, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&warm, &q, &s), QOS_OK);
    none[0] = 0;
    none[1] = p.buckets;
    CHECK_EQ(pshift_solver_retract(&warm, none, 2, &q, &s), QOS_ENOENT);
    CHECK_EQ(pshift_solver_retract(&warm, NULL, 1, &q, &s), QOS_EINVAL);
    CHECK_EQ(pshift_solver_retract(&warm, none, 1, NULL, &s), QOS_EINVAL);
    CHECK_EQ(pshift_solver_retract(&warm, none, 1, &q, &s), QOS_OK); /* the failed calls changed nothing */
    CHECK_EQ(pshift_solver_resolve(&warm, none, 1, NULL, NULL, &s), QOS_EINVAL);
    CHECK_EQ(pshift_solver_resolve(&warm, NULL, 1, &q, NULL, &s), QOS_EINVAL);
    CHECK_EQ(pshift_solver_resolve(&warm, none + 1, 1, &q, NULL, &s), QOS_EINVAL);
    if (p.row[1] > 0) {
        uint32_t was = p.server[0];
        uint64_t demand = p.demand[0];
        p.server[0] = p.servers;
        CHECK_EQ(pshift_solver_resolve(&warm, none, 1, &q, NULL, &s), QOS_EINVAL);
        p.server[0] = was;
        p.demand[0] = UINT64_MAX;
        CHECK_EQ(pshift_solver_resolve(&warm, none, 1, &q, NULL, &s), QOS_ERANGE);
        p.demand[0] = demand;
    }
    CHECK_EQ(pshift_solver_resolve(&warm, none, 1, &q, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&warm, &q, &s), QOS_OK);
    q.buckets--;
    CHECK_EQ(pshift_solver_retract(&warm, none, 1, &q, &s), QOS_EINVAL); /* a different problem */
    CHECK_EQ(pshift_solver_resolve(&warm, none, 0, &q, NULL, &s), QOS_EINVAL);
    q.buckets++;
    CHECK_EQ(pshift_solver_retract(&warm, none, 1, &q, &s), QOS_OK);
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &s), QOS_OK); /* forgets the retraction */
    CHECK_EQ(pshift_solver_resolve(&warm, none, 0, &q, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&warm, &q, &s), QOS_OK);
    i = p.server[p.entries - 1];
    p.server[p.entries - 1] = p.servers;
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &t), QOS_EINVAL); /* refused, into other arrays */
    p.server[p.entries - 1] = i;
    CHECK_EQ(pshift_solver_retract(&warm, none, 1, &q, &s), QOS_OK); /* the last solution is still known */
    CHECK_EQ(pshift_solver_resolve(&warm, none, 1, &q, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&warm, &q, &s), QOS_OK);
    p.server[p.entries - 1] = p.servers;
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &s), QOS_EINVAL);
    CHECK_EQ(pshift_solver_retract(&warm, none, 1, &q, &s), QOS_EINVAL); /* no solution is left */
    p.server[p.entries - 1] = i;
    p.capacity[0] = UINT64_MAX;
    CHECK_EQ(pshift_solver_solve(&warm, &q, NULL, &s), QOS_ERANGE);
}

int main(void)
{
    struct pshift_solver_config config = {INSTANCE_SERVERS, INSTANCE_BUCKETS, INSTANCE_ENTRIES};
    struct check_mem mem, mem2;
    uint64_t n, runs, huge;
    check_begin("property/pshift_reuse");
    (void)check_mem_new(&mem, pshift_solver_memsize(&config), 64, 0);
    (void)check_mem_new(&mem2, pshift_solver_memsize(&config), 64, 0);
    CHECK_EQ(pshift_solver_init(&warm, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(pshift_solver_init(&cold, mem2.mem, mem2.size, &config), QOS_OK);
    runs = check_scaled(3000);
    for (n = 0; n < runs; n++) {
        struct check_rng r;
        bool big = n % 4 == 0;
        check_rng_init(&r, n);
        huge = n % 3 ? UINT64_C(1) << 50 : INSTANCE_HUGE;
        CHECK_CONTEXT("instance %" PRIu64, n);
        instance_make(&p, &r, (unsigned)(n % 12), big ? INSTANCE_SERVERS : 6, big ? INSTANCE_BUCKETS : 9, huge);
        warm_starts(&r, huge);
    }
    errors();
    cut_is_checked();
    CHECK(check_mem_free(&mem));
    CHECK(check_mem_free(&mem2));
    return check_end();
}
