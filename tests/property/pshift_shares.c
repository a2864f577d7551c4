// proves: the initial allocation (Algorithm 3 in integers) is the floor of each share, plus one for the largest
// proves: remainders; ties go to the earlier entry. Rows of every length up to 40, demands of every size, mixed sizes
// proves: in a row. Where a row's demands sum to 2^63 or more, remainders count to within 2^-60 of the sum
// variants: native san
#include "pshift.h"
#include "check.h"

#define LONGEST 40
#define ROWS 48
#define ENTRIES (ROWS * LONGEST)

__extension__ typedef unsigned __int128 wide;

static uint64_t capacity[LONGEST], reservation[ROWS], demand[ENTRIES], alloc[ENTRIES];
static uint32_t row[ROWS + 1], server[ENTRIES];
static uint8_t cut[LONGEST];

/* By the definition, without the header's arithmetic: picks the largest remainders one by one. */
static void expected(const uint64_t *d, uint32_t n, uint64_t want, uint64_t *share)
{
    wide total = 0, rest[LONGEST], given = 0;
    uint32_t k;
    for (k = 0; k < n; k++)
        total += d[k];
    if (want > total)
        want = (uint64_t)total;
    for (k = 0; k < n; k++) {
        share[k] = total ? (uint64_t)((wide)want * d[k] / total) : 0;
        rest[k] = total ? (wide)want * d[k] % total : 0;
        given += share[k];
    }
    for (; given < want; given++) {
        uint32_t best = n;
        for (k = 0; k < n; k++)
            if (rest[k] != 0 && (best == n || rest[k] > rest[best]))
                best = k;
        CHECK(best < n);
        share[best]++;
        rest[best] = 0;
    }
}

static void draw(struct check_rng *r, uint32_t lengths_from, uint32_t lengths_to)
{
    uint32_t i, k;
    for (i = 0; i < ROWS; i++) {
        const uint32_t n = (uint32_t)check_between(r, lengths_from, lengths_to);
        const uint64_t bits = check_between(r, 1, 57), odd = check_between(r, 0, 2);
        wide total = 0;
        row[i + 1] = row[i] + n;
        for (k = row[i]; k < row[i + 1]; k++) {
            uint64_t b = odd == 0 ? bits : odd == 1 ? check_between(r, 1, 57) : k % 7 == 3 ? 34 : 10;
            demand[k] = check_between(r, 0, (UINT64_C(1) << b) - 1);
            if (check_between(r, 0, 9) == 0)
                demand[k] = (UINT64_C(1) << b) - 1;
            server[k] = k - row[i];
            total += demand[k];
        }
        reservation[i] = check_between(r, 0, 7) == 0 ? (uint64_t)total : check_between(r, 0, (uint64_t)total);
        if (n > 0 && check_between(r, 0, 7) == 0) { /* equal demands and exact shares: quotients without a remainder */
            for (k = row[i]; k < row[i + 1]; k++)
                demand[k] = demand[row[i]];
            reservation[i] = check_between(r, 0, demand[row[i]]) * n;
        }
    }
}

/* Demands of 58 to 63 bits: sums up to 2^68. */
static void draw_huge(struct check_rng *r)
{
    uint32_t i, k;
    for (i = 0; i < ROWS; i++) {
        row[i + 1] = row[i] + (uint32_t)check_between(r, 1, LONGEST);
        for (k = row[i]; k < row[i + 1]; k++) {
            demand[k] = check_between(r, 0, UINT64_MAX >> check_between(r, 1, 6));
            server[k] = k - row[i];
        }
        reservation[i] = check_between(r, 0, PSHIFT_COUNT_MAX);
    }
}

/* The floor of each share or one more, in sum what is wanted. An entry with one more has a remainder as large as those
 * that have not, or smaller by at most 2^-60 of the sum of all demands. */
static void check_huge(const uint64_t *d, uint32_t n, uint64_t want, const uint64_t *share)
{
    wide total = 0, given = 0, least = 0, most = 0;
    uint32_t k;
    for (k = 0; k < n; k++)
        total += d[k];
    if (want > total)
        want = (uint64_t)total;
    least = total;
    for (k = 0; k < n && total; k++) {
        const wide rest = (wide)want * d[k] % total, more = share[k] - (wide)want * d[k] / total;
        CHECK(more <= 1);
        given += share[k];
        if (more && rest < least)
            least = rest;
        if (!more && rest > most)
            most = rest;
    }
    CHECK(given == want);
    CHECK(least + (total >> 60) >= most);
}

int main(void)
{
    struct pshift_solver_config config = {LONGEST, ROWS, ENTRIES};
    struct pshift_problem p = {LONGEST, ROWS, capacity, reservation, row, server, demand};
    struct pshift_options options;
    struct pshift_solution s;
    struct pshift_solver solver;
    struct check_mem mem;
    struct check_rng r;
    uint64_t stream, share[LONGEST];
    uint32_t i, k;
    check_begin("property/pshift_shares");
    (void)check_mem_new(&mem, pshift_solver_memsize(&config), 64, 0);
    CHECK_EQ(pshift_solver_init(&solver, mem.mem, mem.size, &config), QOS_OK);
    memset(&options, 0, sizeof options);
    memset(&s, 0, sizeof s);
    options.initial_only = true;
    s.alloc = alloc;
    s.cut = cut;
    for (stream = 0; stream < check_scaled(4000); stream++) {
        uint32_t length = (uint32_t)(stream % 24);
        check_rng_init(&r, stream);
        draw(&r, length <= 17 ? length : 1, length <= 17 ? length : LONGEST);
        CHECK_EQ(pshift_solver_solve(&solver, &p, &options, &s), QOS_OK);
        for (i = 0; i < ROWS; i++) {
            CHECK_CONTEXT("stream %" PRIu64 ", row %u of %u entries", stream, i, row[i + 1] - row[i]);
            expected(demand + row[i], row[i + 1] - row[i], reservation[i], share);
            for (k = row[i]; k < row[i + 1]; k++)
                CHECK_EQ(alloc[k], share[k - row[i]]);
        }
    }
    for (stream = 0; stream < check_scaled(200); stream++) {
        check_rng_init(&r, stream);
        draw_huge(&r);
        CHECK_EQ(pshift_solver_solve(&solver, &p, &options, &s), QOS_OK);
        for (i = 0; i < ROWS; i++) {
            CHECK_CONTEXT("large stream %" PRIu64 ", row %u of %u entries", stream, i, row[i + 1] - row[i]);
            check_huge(demand + row[i], row[i + 1] - row[i], reservation[i], alloc + row[i]);
        }
    }
    CHECK(check_mem_free(&mem));
    return check_end();
}
