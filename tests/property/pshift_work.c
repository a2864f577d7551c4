// proves: a solve's work, counted: tokens moved directly, through a broker, and along searched paths; paths, rounds
// proves: and rows of the search. Every token of weak excess that moves reaches its destination exactly once. On each
// proves: family of problems, cold and after changes, no count is above the one written here
// variants: native san i386
// The counts depend on the problem only. If a change makes the solver better, lower them: QOS_TEST_PRINT=1 prints the
// table.
#include "pshift.h"
#include "check.h"

#define SERVERS 400
#define ENTRIES 6000

static uint64_t capacity[SERVERS], reservation[ENTRIES], demand[ENTRIES], alloc[ENTRIES];
static uint32_t row[ENTRIES + 1], server[ENTRIES], servers, buckets;
static uint8_t cut[SERVERS];
static struct check_rng rng;

static uint64_t draw(uint64_t low, uint64_t high)
{
    return check_between(&rng, low, high);
}

static void clear(uint32_t n)
{
    servers = n;
    buckets = 0;
    memset(capacity, 0, sizeof capacity);
}

static void entry(uint32_t j, uint64_t d)
{
    server[row[buckets + 1]] = j;
    demand[row[buckets + 1]++] = d;
}

static void bucket(uint64_t r)
{
    reservation[buckets++] = r;
    row[buckets + 1] = row[buckets];
}

/* A bucket that can move w tokens between two servers in balance. */
static void edge(uint32_t u, uint32_t v, uint64_t w)
{
    entry(u, 2 * w);
    entry(v, 2 * w);
    bucket(2 * w);
    capacity[u] += w;
    capacity[v] += w;
}

/* Rows of `length`, consecutive servers or any; r: per mille of the capacity that is reserved. */
static void rows(uint32_t n, uint32_t length, bool ring, uint64_t r, uint64_t most)
{
    uint64_t all = 0;
    uint32_t i, k;
    clear(n);
    for (i = 0; i < ENTRIES / length; i++) {
        const uint64_t want = draw(length, most), first = draw(0, n - 1);
        for (k = 0; k < length; k++) { /* draws happen in this order, whatever the compiler */
            const uint64_t d = want * draw(80, 140) / 100 / length + 1;
            entry((uint32_t)((ring ? first + k : draw(0, n - 1)) % n), d);
        }
        bucket(want);
        all += want;
    }
    for (i = 0; i < n; i++)
        capacity[i] = all * 1000 / r / n + 1;
}

static void family(int which)
{
    uint32_t i, k;
    check_rng_init(&rng, 5);
    row[0] = row[1] = 0;
    switch (which) {
    case 0: rows(60, 8, false, 900, 5000); break;
    case 1: rows(60, 8, false, 1000, 5000); break;
    case 2: rows(60, 8, false, 1050, 5000); break;
    case 3: rows(200, 3, false, 990, 100); break;
    case 4: rows(200, 8, true, 1000, 5000); break;
    case 5: rows(300, 60, true, 1000, UINT64_C(1) << 45); break;
    case 6: /* a chain: one end overloaded, the other not */
        clear(300);
        for (i = 0; i + 1 < 300; i++)
            edge(i, i + 1, 1000);
        capacity[0] -= 500;
        capacity[299] += 500;
        break;
    case 7: /* a chain, hubs, leaves that are overloaded by one token */
        clear(100 + 10 + 100);
        for (i = 0; i + 1 < 110; i++)
            edge(i, i + 1, 1000);
        for (i = 0; i < 100; i++) {
            edge(100 + i / 10, 110 + i, 2);
            capacity[110 + i]--;
        }
        capacity[0] += 100;
        break;
    case 8: /* a grid with random capacities */
        clear(400);
        for (i = 0; i < 20; i++)
            for (k = 0; k < 20; k++) {
                if (k < 19)
                    edge(i * 20 + k, i * 20 + k + 1, draw(1, 1000));
                if (i < 19)
                    edge(i * 20 + k, i * 20 + k + 20, draw(1, 1000));
            }
        for (i = 0; i < 400; i++)
            capacity[i] = capacity[i] * draw(667, 1333) / 1000;
        break;
    case 9: /* cuckoo: three places for one token each */
        clear(400);
        for (i = 0; i < 362; i++) {
            for (k = 0; k < 3; k++)
                entry((uint32_t)draw(0, 399), 1);
            bucket(1);
        }
        for (i = 0; i < 400; i++)
            capacity[i] = 1;
        break;
    case 10: /* one bucket on all servers */
        clear(400);
        for (i = 0; i < 400; i++) {
            entry(i, 1000);
            capacity[i] = i < 200 ? 400 : 600;
        }
        bucket(400 * 500);
        break;
    case 11: /* four groups of 17 servers, rows of 16 of a group, fewer than servers */
        clear(68);
        for (i = 0; i < 60; i++) {
            const uint64_t group = i % 4, left_out = draw(0, 16);
            for (k = 0; k < 17; k++)
                if (k != left_out)
                    entry((uint32_t)(group * 17 + k), draw(1, 100));
            bucket(draw(300, 900));
        }
        for (i = 0; i < 68; i++)
            capacity[i] = draw(300, 700);
        break;
    default: /* one bucket on each server */
        clear(400);
        for (i = 0; i < 400; i++) {
            entry(i, draw(0, 100));
            bucket(draw(0, 100));
            capacity[i] = 50;
        }
    }
}
#define FAMILIES 13

static struct pshift_problem problem(void)
{
    const struct pshift_problem p = {servers, buckets, capacity, reservation, row, server, demand};
    return p;
}

static uint64_t weak_excess(void)
{
    uint64_t load[SERVERS] = {0}, sum = 0;
    uint32_t e;
    for (e = 0; e < row[buckets]; e++)
        load[server[e]] += alloc[e];
    for (e = 0; e < servers; e++)
        sum += load[e] > capacity[e] ? load[e] - capacity[e] : 0;
    return sum;
}

/* The most work that a solve may take. */
struct work {
    uint64_t direct, pulled, searched, paths;
    uint32_t rounds, indexed_rows;
};

static const struct {
    const char *name;
    struct work cold, warm; /* warm: the sum over all changes */
} known[FAMILIES] = {
#ifdef WORK_SHARDS
    {"random rows of 8, r = 0.9", {18863, 5, 0, 0, 0, 0}, {4585, 0, 0, 0, 0, 0}},
    {"random rows of 8, r = 1.0", {59215, 2863, 0, 0, 0, 0}, {246311, 16462, 0, 0, 0, 0}},
    {"random rows of 8, r = 1.05", {34198, 0, 0, 0, 0, 0}, {142663, 19, 0, 0, 0, 0}},
    {"rows of 3, r = 0.99", {4548, 2527, 0, 0, 0, 2000}, {18510, 10080, 2, 5, 2, 6000}},
    {"ring of 200, rows of 8", {34551, 86277, 407, 17, 1, 750}, {138786, 317403, 1233, 57, 4, 3000}},
    {"ring of 300, rows of 60, large demands",
     {50140402649338, 5647852972544, 0, 0, 0, 0},
     {302626611041195, 36917237513352, 217569174293, 17, 1, 100}},
    {"chain", {0, 500, 500, 298, 1, 299}, {13087, 9300, 8780, 1099, 12, 1794}},
    {"ladder", {0, 100, 100, 208, 1, 209}, {987, 1872, 1501, 526, 8, 876}},
    {"grid", {48326, 75215, 12156, 721, 12, 760}, {193238, 288746, 51974, 3250, 62, 4120}},
    {"cuckoo", {108, 115, 17, 82, 4, 362}, {24, 14, 9, 40, 7, 2172}},
    {"one bucket", {20000, 0, 0, 0, 0, 0}, {104934, 0, 0, 0, 0, 1}},
    {"groups of 17, rows of 16", {2755, 3127, 0, 0, 0, 60}, {21982, 23191, 34, 11, 2, 480}},
    {"singles", {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
#else
    {"random rows of 8, r = 0.9", {18863, 0, 0, 0, 0, 0}, {3142, 0, 0, 0, 0, 0}},
    {"random rows of 8, r = 1.0", {59215, 3194, 0, 0, 0, 0}, {16275, 8395, 0, 0, 0, 0}},
    {"random rows of 8, r = 1.05", {34198, 0, 0, 0, 0, 0}, {10246, 191, 0, 0, 0, 0}},
    {"rows of 3, r = 0.99", {4548, 3029, 0, 0, 0, 2000}, {804, 633, 0, 0, 0, 2000}},
    {"ring of 200, rows of 8", {34583, 91888, 375, 25, 2, 750}, {9150, 551, 0, 0, 0, 750}},
    {"ring of 300, rows of 60, large demands",
     {50140402649338, 6749667355015, 0, 0, 0, 0},
     {10765971099299, 21210793006, 0, 0, 0, 0}},
    {"chain", {0, 500, 500, 298, 1, 299}, {16727, 10480, 11940, 1082, 15, 1794}},
    {"ladder", {0, 100, 100, 208, 1, 209}, {2067, 3073, 2603, 238, 8, 1045}},
    {"grid", {46171, 35971, 14311, 875, 10, 760}, {13009, 8336, 8142, 618, 25, 5320}},
    {"cuckoo", {107, 91, 18, 84, 4, 362}, {21, 12, 12, 57, 9, 2172}},
    {"one bucket", {20000, 0, 0, 0, 0, 0}, {104934, 0, 0, 0, 0, 1}},
    {"groups of 17, rows of 16", {2755, 3143, 0, 0, 0, 60}, {910, 9, 0, 0, 0, 0}},
    {"singles", {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
#endif
};

static bool print;

static void compare(const char *name, const char *how, const struct work *got, const struct work *most)
{
    if (print) {
        printf("%s {%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %u, %u}", how, got->direct, got->pulled,
               got->searched, got->paths, got->rounds, got->indexed_rows);
        return;
    }
    CHECK_CONTEXT("%s:%s", name, how);
    CHECK_LE(got->direct, most->direct);
    CHECK_LE(got->pulled, most->pulled);
    CHECK_LE(got->searched, most->searched);
    CHECK_LE(got->paths, most->paths);
    CHECK_LE(got->rounds, most->rounds);
    CHECK_LE(got->indexed_rows, most->indexed_rows);
}

/* Adds the work of the last solve. */
static void add(const struct pshift_solver *solver, struct work *sum)
{
    struct pshift_solver_state info;
    CHECK_EQ(pshift_solver_info(solver, &info), QOS_OK);
    sum->direct += info.direct.lo;
    sum->pulled += info.pulled.lo;
    sum->searched += info.searched.lo;
    sum->paths += info.paths;
    sum->rounds += info.rounds;
    sum->indexed_rows += info.indexed_rows;
}

/* Changes one row, 1 % and 5 % of the rows: more or less demand, other reservations, then the first ones again. */
static void changes(struct pshift_solver *solver, struct pshift_solution *s, struct work *sum)
{
    static uint64_t old_demand[ENTRIES], old_reservation[ENTRIES];
    static uint32_t list[ENTRIES];
    const struct pshift_problem p = problem();
    uint32_t n, i, k, e;
    memcpy(old_demand, demand, sizeof demand);
    memcpy(old_reservation, reservation, sizeof reservation);
    for (k = 0; k < 8; k++) {
        n = k / 2 == 0 ? 1 : k / 2 == 1 ? buckets / 100 + 1 : buckets / 20 + 1;
        for (i = 0; i < n; i++)
            list[i] = (uint32_t)(((uint64_t)i * buckets + (uint64_t)(k / 2) * 7) / n) % buckets;
        CHECK_EQ(pshift_solver_retract(solver, list, n, &p, s), QOS_OK);
        for (i = 0; i < n; i++) {
            const uint32_t b = list[i];
            reservation[b] = k % 2 ? old_reservation[b] : old_reservation[b] * draw(60, 140) / 100;
            for (e = row[b]; e < row[b + 1]; e++)
                demand[e] = k % 2 ? old_demand[e] : old_demand[e] * draw(60, 140) / 100;
        }
        CHECK_EQ(pshift_solver_resolve(solver, list, n, &p, NULL, s), QOS_OK);
        CHECK(s->exact);
        add(solver, sum);
    }
}

int main(void)
{
    static struct pshift_solver solver;
    const struct pshift_options first = {NULL, NULL, true};
    struct check_mem mem;
    int which;
    check_begin("property/pshift_work");
    print = check_env("QOS_TEST_PRINT", 0) != 0;
    for (which = 0; which < FAMILIES; which++) {
        struct work cold = {0, 0, 0, 0, 0, 0}, warm = {0, 0, 0, 0, 0, 0};
        struct pshift_solver_config config;
        struct pshift_solver_state info;
        struct pshift_solution s;
        struct pshift_problem p;
        uint64_t excess;
        memset(&s, 0, sizeof s);
        s.alloc = alloc;
        s.cut = cut;
        family(which);
        p = problem();
        CHECK_CONTEXT("%s", known[which].name);
        config.servers = servers; /* not more: a path may be as long as there are servers */
        config.buckets = buckets;
        config.entries = row[buckets];
        (void)check_mem_new(&mem, pshift_solver_memsize(&config), 64, 0);
        memset(mem.mem, 1, mem.size); /* init writes everything that is read */
        CHECK_EQ(pshift_solver_init(&solver, mem.mem, mem.size, &config), QOS_OK);
        CHECK_EQ(pshift_solver_info(&solver, &info), QOS_OK);
        CHECK(info.paths == 0 && info.rounds == 0 && info.indexed_rows == 0);
        CHECK((info.excess_start.lo | info.direct.lo | info.pulled.lo | info.searched.lo) == 0);
        CHECK_EQ(pshift_solver_solve(&solver, &p, &first, &s), QOS_OK);
        excess = weak_excess();
        CHECK_EQ(pshift_solver_solve(&solver, &p, NULL, &s), QOS_OK);
        CHECK_EQ(pshift_solver_info(&solver, &info), QOS_OK);
        CHECK_EQ(info.excess_start.lo, excess);
        CHECK((info.excess_start.hi | info.direct.hi | info.pulled.hi | info.searched.hi) == 0);
        CHECK_LE(excess, info.direct.lo + info.pulled.lo + info.searched.lo + weak_excess());
        CHECK_EQ(excess, info.direct.lo + info.searched.lo + weak_excess()); /* a pull or push only moves it on */
        add(&solver, &cold);
        changes(&solver, &s, &warm);
        if (print)
            printf("    {\"%s\"", known[which].name);
        compare(known[which].name, ",", &cold, &known[which].cold);
        compare(known[which].name, ",", &warm, &known[which].warm);
        if (print)
            printf("},\n");
        CHECK(check_mem_free(&mem));
    }
    return check_end();
}
