// proves: the calls of pshift.h: memory, every error, ends of ranges, and the same result for any number of threads
// flags: -pthread -DPSHIFT_SHARD_ENTRIES=64
// variants: native san tsan cxx i386 s390x aarch64 armhf riscv64
#include "pshift.h"
#include "check.h"
#include <pthread.h>

#define SERVERS 12
#define BUCKETS 400
#define ENTRIES (BUCKETS * 5)
#define MOST (UINT64_MAX >> 1)

static uint64_t capacity[SERVERS], reservation[BUCKETS], demand[ENTRIES], alloc[ENTRIES], first[ENTRIES];
static uint32_t row[BUCKETS + 1], server[ENTRIES];
static uint8_t cut[SERVERS];
static struct pshift_solver ps;
static uint32_t length = 5; /* entries of every row: 5, or the usual 8 */

static struct pshift_solver_state info_of(const struct pshift_solver *solver)
{
    struct pshift_solver_state info;
    (void)pshift_solver_info(solver, &info);
    return info;
}

static struct pshift_problem problem(void)
{
    struct pshift_problem p;
    p.servers = SERVERS;
    p.buckets = ENTRIES / length;
    p.capacity = capacity;
    p.reservation = reservation;
    p.row = row;
    p.server = server;
    p.demand = demand;
    return p;
}

static struct pshift_solution solution(void)
{
    struct pshift_solution s;
    memset(&s, 0, sizeof s);
    s.alloc = alloc;
    s.cut = cut;
    return s;
}

static void draw(uint64_t stream)
{
    struct check_rng r;
    uint64_t total = 0;
    uint32_t i, k;
    check_rng_init(&r, stream);
    for (i = 0; i < ENTRIES / length; i++) {
        uint64_t sum = 0;
        uint32_t base = (uint32_t)check_between(&r, 0, SERVERS - 1);
        row[i + 1] = (i + 1) * length;
        for (k = 0; k < length; k++) {
            server[i * length + k] =
                length == 8 ? (base + k * 5) % SERVERS : (uint32_t)check_between(&r, 0, SERVERS - 1);
            demand[i * length + k] = check_between(&r, 0, 1000);
            sum += demand[i * length + k];
        }
        reservation[i] = sum - sum / 11;
        total += reservation[i];
    }
    for (i = 0; i < SERVERS; i++)
        capacity[i] = total / SERVERS;
}

/* A parallel_for: thread t of `threads` does parts t, t + threads, ... */
struct team {
    uint32_t threads, count;
    pshift_task task;
    void *arg;
};
struct member {
    struct team *team;
    uint32_t begin;
    pthread_t id;
};

static void *member_run(void *arg)
{
    struct member *m = (struct member *)arg;
    uint32_t i;
    for (i = m->begin; i < m->team->count; i += m->team->threads)
        m->team->task(m->team->arg, i);
    return NULL;
}

static void team_for(void *ctx, uint32_t count, pshift_task task, void *arg)
{
    struct team *team = (struct team *)ctx;
    struct member member[8];
    uint32_t t;
    team->count = count;
    team->task = task;
    team->arg = arg;
    for (t = 0; t < team->threads; t++) {
        member[t].team = team;
        member[t].begin = t;
        if (pthread_create(&member[t].id, NULL, member_run, &member[t]) != 0)
            abort();
    }
    for (t = 0; t < team->threads; t++)
        pthread_join(member[t].id, NULL);
}

static void threads(void)
{
    static const uint32_t counts[4] = {1, 2, 3, 8};
    uint64_t stream, runs = check_scaled(40), searched = 0;
    uint32_t t, parts;
    for (stream = 0; stream < runs; stream++) {
        struct pshift_solution serial = solution(), s = solution();
        struct pshift_problem p;
        length = stream % 2 ? 8 : 5;
        p = problem();
        draw(stream);
        CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &serial), QOS_OK);
        CHECK_EQ(pshift_solver_verify(&ps, &p, &serial), QOS_OK);
        memcpy(first, alloc, sizeof alloc);
        searched += info_of(&ps).direct.lo != 0;
        for (t = 0; t < 4; t++) {
            struct team team = {counts[t], 0, NULL, NULL};
            struct pshift_options opt;
            memset(&opt, 0, sizeof opt);
            opt.parallel_for = team_for;
            opt.parallel_ctx = &team;
            memset(alloc, 0xff, sizeof alloc);
            CHECK_CONTEXT("stream %" PRIu64 ", %u threads", stream, counts[t]);
            CHECK_EQ(pshift_solver_solve(&ps, &p, &opt, &s), QOS_OK);
            parts = team.count;
            CHECK_EQ(parts, PSHIFT_SHARDS);
            CHECK(memcmp(first, alloc, sizeof alloc) == 0);
            CHECK_EQ(s.effective.lo, serial.effective.lo);
        }
    }
    CHECK(searched > 0);
    length = 5;
}

static void memory(void)
{
    struct pshift_solver_config config = {SERVERS, BUCKETS, ENTRIES}, huge = {UINT32_MAX, 1, 1};
    struct check_mem m;
    size_t size = pshift_solver_memsize(&config);
    struct pshift_problem p = problem();
    struct pshift_solution s = solution();
    struct pshift_solver untouched;
    CHECK_LE(size, (size_t)PSHIFT_BYTES_PER_ENTRY * ENTRIES + 24 * BUCKETS + 2048 * SERVERS + 2048);
    CHECK_EQ(pshift_solver_memsize(NULL), 0);
    CHECK_EQ(pshift_solver_memsize(&huge), 0);
    (void)check_mem_new(&m, size, 64, 0);
    memset(&ps, 0x5a, sizeof ps);
    memcpy(&untouched, &ps, sizeof ps);
    CHECK_EQ(pshift_solver_init(&ps, m.mem, size, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_solver_init(&ps, NULL, size, &config), QOS_EINVAL);
    CHECK_EQ(pshift_solver_init(&ps, m.mem, size, &huge), QOS_ERANGE);
    CHECK_EQ(pshift_solver_init(&ps, m.mem, size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(pshift_solver_init(&ps, m.mem + 8, size, &config), QOS_EALIGN);
    CHECK(memcmp(&untouched, &ps, sizeof ps) == 0);
    CHECK_EQ(pshift_solver_init(&ps, m.mem, size, &config), QOS_OK);
    draw(1);
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK(check_mem_free(&m));
}

#define BOTH(status)                                                                                                   \
    do {                                                                                                               \
        CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), status);                                                      \
        CHECK_EQ(pshift_solver_verify(&ps, &p, &s), status);                                                           \
        p = problem();                                                                                                 \
        s = good;                                                                                                      \
    } while (0)

static void errors(void)
{
    struct pshift_problem p = problem();
    struct pshift_solution s = solution(), good;
    uint64_t was;
    draw(2);
    CHECK_EQ(pshift_solver_solve(&ps, NULL, NULL, &s), QOS_EINVAL);
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    good = s;
    p.row = NULL;
    BOTH(QOS_EINVAL);
    p.capacity = NULL;
    BOTH(QOS_EINVAL);
    p.reservation = NULL;
    BOTH(QOS_EINVAL);
    p.server = NULL;
    BOTH(QOS_EINVAL);
    p.demand = NULL;
    BOTH(QOS_EINVAL);
    s.alloc = NULL;
    BOTH(QOS_EINVAL);
    s.cut = NULL;
    BOTH(QOS_EINVAL);
    p.servers++;
    BOTH(QOS_EMEMORY);
    p.buckets++;
    BOTH(QOS_EMEMORY);
    row[3] = 4; /* before row[2] */
    BOTH(QOS_EINVAL);
    row[3] = 15;
    row[0] = 1;
    BOTH(QOS_EINVAL);
    row[0] = 0;
    row[BUCKETS] = ENTRIES + 1;
    BOTH(QOS_EMEMORY);
    row[BUCKETS] = ENTRIES;
    server[7] = SERVERS;
    BOTH(QOS_EINVAL);
    server[7] = 0;
    was = demand[9];
    demand[9] = MOST + 1;
    BOTH(QOS_ERANGE);
    demand[9] = was;
    was = reservation[9];
    reservation[9] = MOST + 1;
    BOTH(QOS_ERANGE);
    reservation[9] = was;
    was = capacity[3];
    capacity[3] = MOST + 1;
    BOTH(QOS_ERANGE);
    capacity[3] = was;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_shortfall(&ps, &p, &s), QOS_EINVAL); /* no array */
    s.tokens.lo++;
    CHECK_EQ(pshift_solver_shortfall(&ps, &p, &s), QOS_ECORRUPT);
    s.tokens.lo--;
    s.shortfall_set = true;
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_ECORRUPT);
    p.buckets = 0;
    p.servers = 0;
    p.capacity = NULL;
    s.shortfall_set = false;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(s.tokens.lo, 0);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK_EQ(pshift_solver_shortfall(&ps, &p, &s), QOS_OK);
}

/* A warm start reads the rows that it is given; after an error it can be called again. */
static void warm_errors(void)
{
    const struct pshift_problem p = problem();
    struct pshift_solution s = solution();
    const uint32_t some = 5;
    draw(7);
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_retract(&ps, &some, 1, &p, &s), QOS_OK);
    row[some + 1] = ENTRIES + 1;
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_EINVAL);
    row[some + 1] = row[some] - 1;
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_EINVAL);
    row[some + 1] = row[some] + length;
    server[row[some]] = SERVERS;
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_EINVAL);
    server[row[some]] = 0;
    demand[row[some]] = MOST + 1;
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_ERANGE);
    demand[row[some]] = 5;
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_EINVAL); /* it was not retracted again */
}

/* A changed row names server 0, which is X, twice: there it has more tokens than one balance holds. What a sweep leaves
 * of them has spare demand outside, so X proves nothing any more. */
static void warm_row_of_most(void)
{
    const struct pshift_problem p = problem();
    struct pshift_solution s = solution();
    const uint32_t some = 1;
    uint32_t k;
    draw(8);
    memset(demand, 0, sizeof demand);
    memset(reservation, 0, sizeof reservation);
    memset(capacity, 0, sizeof capacity);
    capacity[0] = 100;
    capacity[1] = MOST;
    server[0] = 0;
    demand[0] = reservation[0] = 200;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK(s.cut[0] == 1 && s.cut[1] == 0);
    CHECK_EQ(pshift_solver_retract(&ps, &some, 1, &p, &s), QOS_OK);
    for (k = 0; k < 3; k++) {
        server[row[some] + k] = k == 2;
        demand[row[some] + k] = MOST;
    }
    reservation[some] = MOST;
    CHECK_EQ(pshift_solver_resolve(&ps, &some, 1, &p, NULL, &s), QOS_OK);
    CHECK_EQ(alloc[row[some] + 2], MOST);
    CHECK_EQ(s.excess.lo, 100);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
}

/* A bucket whose demand outside the cut equals its reservation does not depend on the cut; with one token less it
 * does. A bucket without any demand in the cut does not depend on it either. */
static void binding(void)
{
    static const uint64_t can[2] = {10, 1000}, want[4] = {100, 50, 50, 9};
    static const uint32_t from[5] = {0, 1, 3, 5, 6}, at[6] = {0, 0, 1, 0, 1, 1};
    static const uint64_t need[6] = {100, 50, 50, 50, 49, 5};
    const struct pshift_problem p = {2, 4, can, want, from, at, need};
    struct pshift_solution s = solution();
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK(s.cut[0] && !s.cut[1]);
    CHECK(pshift_solution_binds(&s, 0, &p));
    CHECK(!pshift_solution_binds(&s, 1, &p));
    CHECK(pshift_solution_binds(&s, 2, &p));
    CHECK(!pshift_solution_binds(&s, 3, &p));
}

/* A row's sum is right, but one of its entries has more tokens than demand. */
static void strong_excess(void)
{
    static const uint64_t can[2] = {9, 9}, want[1] = {6}, need[2] = {5, 5};
    static const uint32_t from[2] = {0, 2}, at[2] = {0, 1};
    const struct pshift_problem p = {2, 1, can, want, from, at, need};
    struct pshift_solution s = solution();
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    alloc[0] = 5;
    alloc[1] = 1;
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    alloc[0] = 6;
    alloc[1] = 0;
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_ECORRUPT);
}

/* Every count at the end of its range, M = 2^63 - 1: 400 buckets reserve M each and have 5 demands of M each; 12
 * servers have capacity M each. So Phi = 12 M and the excess is 388 M. */
static void ends(void)
{
    struct pshift_problem p = problem();
    struct pshift_solution s = solution();
    uint32_t i;
    draw(3);
    for (i = 0; i < ENTRIES; i++) {
        demand[i] = MOST;
        server[i] = i % SERVERS;
    }
    for (i = 0; i < BUCKETS; i++)
        reservation[i] = MOST;
    for (i = 0; i < SERVERS; i++)
        capacity[i] = MOST;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK_EQ(s.effective.hi, 5); /* 12 (2^63 - 1) = 6 * 2^64 - 12 */
    CHECK_EQ(s.effective.lo, UINT64_MAX - 11);
    CHECK_EQ(s.excess.hi, 193); /* 388 (2^63 - 1) = 194 * 2^64 - 388 */
    CHECK_EQ(s.excess.lo, UINT64_MAX - 387);
}

/* Rows of 8 servers, the usual length, at the ends of the ranges. */
static void eights(void)
{
    struct pshift_problem p;
    struct pshift_solution s = solution();
    uint32_t i;
    length = 8;
    p = problem();
    draw(4);
    for (i = 0; i < ENTRIES; i++)
        demand[i] <<= 53; /* below 1001 * 2^53 < 2^63 */
    for (i = 0; i < p.buckets; i++)
        reservation[i] = MOST - i;
    for (i = 0; i < SERVERS; i++)
        capacity[i] = i % 2 ? MOST : i;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK(s.exact);
    for (i = 0; i < p.buckets; i++)
        reservation[i] = i ? 0 : MOST; /* one bucket, 2^60 tokens at each server; half of them lack capacity */
    for (i = 0; i < ENTRIES; i++)
        demand[i] = MOST;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK_EQ(s.effective.lo, MOST);
    draw(5);
    server[ENTRIES - 1] = SERVERS;
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_EINVAL);
    length = 5;
}

static void count_for(void *ctx, uint32_t count, pshift_task task, void *arg)
{
    uint32_t i;
    *(uint32_t *)ctx = count;
    for (i = 0; i < count; i++)
        task(arg, i);
}

/* Rows of two entries, the last one shorter if `entries` is odd; capacity enough for all. */
static struct pshift_problem pairs(uint32_t entries)
{
    struct pshift_problem p = problem();
    uint32_t i;
    p.buckets = (entries + 1) / 2;
    for (i = 0; i < p.buckets; i++) {
        row[i + 1] = i + 1 == p.buckets ? entries : 2 * i + 2;
        reservation[i] = 10;
    }
    for (i = 0; i < entries; i++) {
        server[i] = i % SERVERS;
        demand[i] = 10;
    }
    for (i = 0; i < SERVERS; i++)
        capacity[i] = MOST;
    return p;
}

/* The number of parts by the number of entries, as the tunables say; and which warm starts solve all rows again, which
 * alone is done in parts. */
static void parts(void)
{
    static const uint32_t few = PSHIFT_SHARD_ENTRIES, many = 8 * PSHIFT_SHARD_ENTRIES;
    const struct {
        uint32_t entries, parts;
    } size[] = {{few - 1, 0}, {few, 4}, {few + 1, 4}, {many - 1, 4}, {many, PSHIFT_SHARDS}};
    static const uint32_t changed[] = {0, 1, 2, 3, 4, 5};
    uint32_t i, n, called;
    struct pshift_options opt;
    memset(&opt, 0, sizeof opt);
    opt.parallel_for = count_for;
    opt.parallel_ctx = &called;
    for (i = 0; i < sizeof size / sizeof *size; i++) {
        const struct pshift_problem p = pairs(size[i].entries);
        struct pshift_solution s = solution();
        CHECK_CONTEXT("%u entries", size[i].entries);
        called = 0; /* one part is done without a call */
        CHECK_EQ(pshift_solver_solve(&ps, &p, &opt, &s), QOS_OK);
        CHECK_EQ(called, size[i].parts);
        CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
        for (n = 1; n <= 5; n++) {
            CHECK_CONTEXT("%u entries, %u changed rows", size[i].entries, n);
            called = 0;
            CHECK_EQ(pshift_solver_retract(&ps, changed, n, &p, &s), QOS_OK);
            CHECK_EQ(pshift_solver_resolve(&ps, changed, n, &p, &opt, &s), QOS_OK);
            CHECK_EQ(called, n * PSHIFT_WARM_PART > p.buckets ? size[i].parts : 0);
        }
    }
}

/* Thousands of rows on the one overloaded server, which has no token in any of them: a sweep looks at many at once. */
static void many_rows_in_vain(void)
{
    enum { ON = 200, ROWS = 4000, LENGTH = 8, ALL = ROWS * LENGTH + 1 };
    static uint64_t room[ON], want[ROWS + 1], need[ALL], got[ALL];
    static uint32_t begin[ROWS + 2], on[ALL];
    static uint8_t binds[ON];
    const struct pshift_problem p = {ON, ROWS + 1, room, want, begin, on, need};
    const struct pshift_solver_config config = {ON, ROWS + 1, ALL};
    struct pshift_solution s;
    struct check_mem m;
    uint32_t i, k;
    memset(&s, 0, sizeof s);
    s.alloc = got;
    s.cut = binds;
    for (i = 0; i < ON; i++)
        room[i] = i == 0 ? 50 : 1000000;
    for (i = 0; i < ROWS; i++) {
        want[i] = 30;
        for (k = 0; k < LENGTH; k++) {
            on[i * LENGTH + k] = k == 0 ? 0 : 1 + (i * 7 + k) % (ON - 1);
            need[i * LENGTH + k] = k == 0 ? 0 : 10;
        }
        begin[i + 1] = (i + 1) * LENGTH;
    }
    begin[ROWS + 1] = ALL; /* and one row on it alone */
    want[ROWS] = need[ALL - 1] = 100;
    (void)check_mem_new(&m, pshift_solver_memsize(&config), 64, 0);
    CHECK_EQ(pshift_solver_init(&ps, m.mem, m.size, &config), QOS_OK);
    CHECK_EQ(pshift_solver_solve(&ps, &p, NULL, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK(s.exact && s.excess.lo == 50 && s.cut_servers == 1 && binds[0] == 1);
    CHECK(check_mem_free(&m));
}

int main(void)
{
    struct pshift_solver_config config = {SERVERS, BUCKETS, ENTRIES};
    struct check_mem m;
    check_begin("unit/pshift_calls");
    memory();
    (void)check_mem_new(&m, pshift_solver_memsize(&config), 64, 0);
    CHECK_EQ(pshift_solver_init(&ps, m.mem, m.size, &config), QOS_OK);
    threads();
    errors();
    warm_errors();
    warm_row_of_most();
    binding();
    strong_excess();
    ends();
    eights();
    parts();
    CHECK(check_mem_free(&m));
    many_rows_in_vain();
    return check_end();
}
