// proves: the worked Examples 1, 2 and 3 of Section III and Tables I, II, III, to the digit
#include "pshift.h"
#include "check.h"

static struct pshift_solver ps;
static uint64_t memory[4096];

static struct pshift_solver_state info_of(const struct pshift_solver *solver)
{
    struct pshift_solver_state info;
    (void)pshift_solver_info(solver, &info);
    return info;
}

static void *aligned(void)
{
    uintptr_t at = ((uintptr_t)memory + 63) & ~(uintptr_t)63;
    return (void *)at;
}

static void solve(const struct pshift_problem *p, bool initial_only, struct pshift_solution *s)
{
    struct pshift_solver_config config = {p->servers, p->buckets, p->row[p->buckets]};
    struct pshift_options opt = {0};
    opt.initial_only = initial_only;
    CHECK_LE(pshift_solver_memsize(&config), sizeof memory - 64);
    CHECK_EQ(pshift_solver_init(&ps, aligned(), pshift_solver_memsize(&config), &config), QOS_OK);
    CHECK_EQ(pshift_solver_solve(&ps, p, &opt, s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, p, s), QOS_OK);
}

static void expect(const uint64_t *got, const uint64_t *want, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        CHECK_EQ(got[i], want[i]);
}

/* TM_{j,k}[i] of Section III-B1, by its definition, from the solver's allocation; rows name every server in order. */
static uint64_t movable(const struct pshift_problem *p, const struct pshift_solution *s, uint32_t i, uint32_t j,
                        uint32_t k)
{
    uint32_t from = p->row[i] + j, to = p->row[i] + k;
    uint64_t spare = p->demand[to] - s->alloc[to];
    CHECK(p->server[from] == j && p->server[to] == k);
    return j == k ? 0 : s->alloc[from] < spare ? s->alloc[from] : spare;
}

/* Table I; rows Red, Blue; servers 1, 2. */
static void examples_1_and_2(void)
{
    static const uint64_t capacity[2] = {100, 100}, reservation[2] = {100, 100}, demand[4] = {150, 50, 50, 50};
    static const uint32_t row[3] = {0, 2, 4}, server[4] = {0, 1, 0, 1};
    static const uint64_t table_1[4] = {75, 25, 50, 50}, shifted[4] = {50, 50, 50, 50};
    const struct pshift_problem p = {2, 2, capacity, reservation, row, server, demand};
    uint64_t alloc[4], shortfall[2];
    uint8_t cut[2];
    struct pshift_solution s = {.alloc = alloc, .cut = cut, .shortfall = shortfall};

    CHECK_CONTEXT("Example 1");
    solve(&p, true, &s);
    expect(alloc, table_1, 4);
    CHECK_EQ(s.effective.lo, 175);
    CHECK_EQ(s.excess.lo, 25); /* server 1: 125 tokens for 100 */
    CHECK_EQ(info_of(&ps).excess_start.lo, 25);

    CHECK_CONTEXT("Example 2");
    CHECK_EQ(movable(&p, &s, 1, 0, 1), 0);  /* Blue: server 2 has no spare demand */
    CHECK_EQ(movable(&p, &s, 0, 0, 1), 25); /* Red: min{75, 25} */
    solve(&p, false, &s);
    expect(alloc, shifted, 4);
    CHECK_EQ(s.effective.lo, 200);
    CHECK_EQ(s.excess.lo, 0);
    CHECK_EQ(s.cut_servers, 0);
    CHECK_EQ(info_of(&ps).direct.lo, 25);
    CHECK_EQ(pshift_solver_shortfall(&ps, &p, &s), QOS_OK);
    CHECK_EQ(shortfall[0] + shortfall[1], 0);
}

/* Table II; rows Red, Blue, Green; servers 1, 2, 3. */
static void example_3(void)
{
    static const uint64_t capacity[3] = {100, 100, 100}, reservation[3] = {100, 100, 100};
    static const uint64_t demand[9] = {150, 50, 0, 0, 150, 50, 50, 0, 50};
    static const uint32_t row[4] = {0, 3, 6, 9}, server[9] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    static const uint64_t table_2[9] = {75, 25, 0, 0, 75, 25, 50, 0, 50};
    static const uint64_t brokered[9] = {50, 50, 0, 0, 50, 50, 50, 0, 50};
    /* Table III: TM_{j,k} = [Red, Blue, Green] and its sum TMS_{j,k}. */
    static const uint64_t table_3[3][3][3] = {
        {{0, 0, 0}, {25, 0, 0}, {0, 0, 0}}, {{25, 0, 0}, {0, 0, 0}, {0, 25, 0}}, {{0, 0, 0}, {0, 25, 0}, {0, 0, 0}}};
    const struct pshift_problem p = {3, 3, capacity, reservation, row, server, demand};
    uint64_t alloc[9];
    uint8_t cut[3];
    struct pshift_solution s = {.alloc = alloc, .cut = cut};
    struct pshift_solver_state work;
    uint32_t i, j, k;

    CHECK_CONTEXT("Table II");
    solve(&p, true, &s);
    expect(alloc, table_2, 9);
    CHECK_EQ(s.effective.lo, 275); /* 100 of 125, 100, 75 */
    CHECK_CONTEXT("Table III");
    for (j = 0; j < 3; j++)
        for (k = 0; k < 3; k++)
            for (i = 0; i < 3; i++)
                CHECK_EQ(movable(&p, &s, i, j, k), table_3[j][k][i]);

    CHECK_CONTEXT("Example 3");
    solve(&p, false, &s);
    expect(alloc, brokered, 9);
    CHECK_EQ(s.effective.lo, 300);
    CHECK_EQ(s.excess.lo, 0);
    work = info_of(&ps); /* server 2 is the broker of 25 tokens: 1 cannot transfer to 3 directly */
    CHECK_EQ(work.pulled.lo + work.searched.lo, 25);
}

/* Section IV-B, intrinsic error: two buckets of 100 on one server of 100. Together they fall short by 100. */
static void intrinsic_error(void)
{
    static const uint64_t capacity[2] = {100, 100}, reservation[2] = {100, 100}, demand[2] = {300, 300};
    static const uint32_t row[3] = {0, 1, 2}, server[2] = {0, 0};
    const struct pshift_problem p = {2, 2, capacity, reservation, row, server, demand};
    uint64_t alloc[2], shortfall[2];
    uint8_t cut[2];
    struct pshift_solution s = {.alloc = alloc, .cut = cut, .shortfall = shortfall};
    CHECK_CONTEXT("intrinsic error");
    solve(&p, false, &s);
    CHECK_EQ(s.effective.lo, 100);
    CHECK_EQ(s.excess.lo, 100);
    CHECK_EQ(cut[0], 1);
    CHECK_EQ(cut[1], 0);
    CHECK_EQ(s.cut_capacity.lo, 100);
    CHECK(pshift_solution_binds(&s, 0, &p) && pshift_solution_binds(&s, 1, &p));
    CHECK_EQ(pshift_solver_shortfall(&ps, &p, &s), QOS_OK);
    CHECK_EQ(shortfall[0], 50);
    CHECK_EQ(shortfall[1], 50);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
}

/* Section III-C1 and Figure 5: at the paper's size, 64 x 10,000 x 8, the work is split into parts for the caller's
 * threads. */
static uint32_t parts_most;

static void count_parts(void *ctx, uint32_t count, pshift_task task, void *arg)
{
    uint32_t k;
    (void)ctx;
    parts_most = count > parts_most ? count : parts_most;
    for (k = count; k > 0; k--)
        task(arg, k - 1);
}

static void in_parts(void)
{
    enum { SERVERS = 64, BUCKETS = 10000, ENTRIES = 8 * BUCKETS };
    struct pshift_solver_config config = {SERVERS, BUCKETS, ENTRIES};
    struct pshift_problem p = {SERVERS, BUCKETS, NULL, NULL, NULL, NULL, NULL};
    struct pshift_options opt = {0};
    struct pshift_solution s = {0};
    uint64_t *number = (uint64_t *)calloc(SERVERS + BUCKETS + 2 * ENTRIES, 8);
    uint32_t *word = (uint32_t *)calloc(BUCKETS + 1 + ENTRIES, 4), e;
    struct check_mem mem;
    CHECK(number != NULL && word != NULL);
    if (!number || !word)
        return;
    for (e = 0; e < SERVERS; e++)
        number[e] = 100000;
    for (e = 0; e < BUCKETS; e++)
        number[SERVERS + e] = 580;
    for (e = 0; e <= BUCKETS; e++)
        word[e] = 8 * e;
    for (e = 0; e < ENTRIES; e++) {
        word[BUCKETS + 1 + e] = (e / 8 * 11 + e % 8 * 8) % SERVERS;
        number[SERVERS + BUCKETS + e] = 80;
    }
    p.capacity = number;
    p.reservation = number + SERVERS;
    p.row = word;
    p.server = word + BUCKETS + 1;
    p.demand = number + SERVERS + BUCKETS;
    s.alloc = number + SERVERS + BUCKETS + ENTRIES;
    (void)check_mem_new(&mem, pshift_solver_memsize(&config), 64, 0);
    s.cut = (uint8_t *)calloc(SERVERS, 1);
    opt.parallel_for = count_parts;
    CHECK_EQ(pshift_solver_init(&ps, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(pshift_solver_solve(&ps, &p, &opt, &s), QOS_OK);
    CHECK_EQ(pshift_solver_verify(&ps, &p, &s), QOS_OK);
    CHECK_GE(parts_most, 4);
    free(s.cut);
    free(number);
    free(word);
    CHECK(check_mem_free(&mem));
}

int main(void)
{
    check_begin("paper/pshift_examples");
    examples_1_and_2();
    example_3();
    intrinsic_error();
    in_parts();
    return check_end();
}
