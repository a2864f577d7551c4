// proves: the world's numbers: logarithm and exponential against the library's, the means and quantiles of the random
// proves: ones against their formulas, the queue against sorting, and the same digits on every machine
// variants: native san cxx i386 s390x aarch64
#include "check.h"
#include "examples/world/world.h"

static void functions(void)
{
    struct world_rng r;
    uint64_t i, n = check_scaled(1000000);
    double worst_log = 0, worst_exp = 0;
    world_rng_init(&r, check_seed(), 1);
    for (i = 0; i < n; i++) {
        double x = world_exp(200 * world_unit(&r) - 100), y = 1400 * world_unit(&r) - 700, e;
        e = fabs(world_log(x) - log(x)) / (fabs(log(x)) > 1 ? fabs(log(x)) : 1);
        worst_log = e > worst_log ? e : worst_log;
        e = fabs(world_exp(y) - exp(y)) / exp(y);
        worst_exp = e > worst_exp ? e : worst_exp;
    }
    CHECK_WITHIN(worst_log, 0, 1e-15);
    CHECK_WITHIN(worst_exp, 0, 3e-13);
    CHECK(world_log(1) >= 0 && world_log(1) <= 0 && world_exp(0) >= 1 && world_exp(0) <= 1);
}

/* Mean, second moment, and the part below a point, each within five standard deviations of n draws. */
static void distributions(void)
{
    struct world_rng r;
    uint64_t i, n = check_scaled(1000000), below[4] = {0, 0, 0, 0};
    double sum[4] = {0, 0, 0, 0}, square[4] = {0, 0, 0, 0}, five = 5 / sqrt((double)n), x[4];
    int k;
    world_rng_init(&r, check_seed(), 2);
    for (i = 0; i < n; i++) {
        x[0] = world_unit(&r);
        x[1] = world_exponential(&r);
        x[2] = world_normal(&r);
        x[3] = world_lognormal(&r, 0.7);
        below[0] += x[0] < 0.3;
        below[1] += x[1] < 1;
        below[2] += x[2] < 1;
        below[3] += x[3] < 1;
        for (k = 0; k < 4; k++) {
            sum[k] += x[k];
            square[k] += x[k] * x[k];
        }
        CHECK(x[0] >= 0 && x[0] < 1 && x[1] >= 0 && x[3] > 0);
    }
    CHECK_WITHIN(sum[0] / (double)n, 0.5 - five * 0.29, 0.5 + five * 0.29);
    CHECK_WITHIN(sum[1] / (double)n, 1 - five, 1 + five);
    CHECK_WITHIN(sum[2] / (double)n, -five, five);
    CHECK_WITHIN(sum[3] / (double)n, 1 - five * 0.8, 1 + five * 0.8);
    CHECK_WITHIN(square[0] / (double)n, 1.0 / 3 - five * 0.3, 1.0 / 3 + five * 0.3);
    CHECK_WITHIN(square[1] / (double)n, 2 - five * 4.5, 2 + five * 4.5);
    CHECK_WITHIN(square[2] / (double)n, 1 - five * 1.42, 1 + five * 1.42);
    CHECK_WITHIN((double)below[0] / (double)n, 0.3 - five / 2, 0.3 + five / 2);
    CHECK_WITHIN((double)below[1] / (double)n, 1 - exp(-1) - five / 2, 1 - exp(-1) + five / 2);
    CHECK_WITHIN((double)below[2] / (double)n, 0.841345 - five / 2, 0.841345 + five / 2);
    CHECK_WITHIN((double)below[3] / (double)n, 0.636831 - five / 2, 0.636831 + five / 2); /* Phi(0.35) */
}

/* Every value of a small range comes, none outside; orders of magnitude are equally likely. */
static void ranges(void)
{
    struct world_rng r;
    uint64_t i, seen[5] = {0, 0, 0, 0, 0}, low = 0;
    world_rng_init(&r, check_seed(), 3);
    for (i = 0; i < 10000; i++) {
        uint64_t x = world_between(&r, 3, 7), y = world_scale(&r, 1, 10000);
        CHECK(x >= 3 && x <= 7 && y >= 1 && y <= 10000);
        seen[x - 3]++;
        low += y <= 100;
    }
    for (i = 0; i < 5; i++)
        CHECK_WITHIN(seen[i], 1800, 2200);
    CHECK_WITHIN(low, 4700, 5400);
    CHECK_EQ(world_between(&r, 9, 9), 9);
    CHECK_EQ(world_scale(&r, 9, 9), 9);
}

static int by_time(const void *a, const void *b)
{
    const struct world_event *x = (const struct world_event *)a, *y = (const struct world_event *)b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void queue(void)
{
    struct world_queue q;
    struct world_rng r;
    struct world_event sorted[1000], e;
    uint64_t round;
    size_t i, n;
    world_rng_init(&r, check_seed(), 4);
    memset(&q, 0, sizeof q);
    for (round = 0; round < check_scaled(200); round++) {
        n = (size_t)world_between(&r, 0, 1000);
        for (i = 0; i < n; i++) {
            sorted[i].at_ns = world_between(&r, 0, 300);
            sorted[i].index = (uint32_t)i;
            world_queue_add(&q, sorted[i].at_ns, 7, sorted[i].index);
        }
        qsort(sorted, n, sizeof *sorted, by_time);
        for (i = 0; i < n; i++) {
            CHECK_EQ(world_queue_next_ns(&q), sorted[i].at_ns);
            CHECK(sorted[i].at_ns == 0 || !world_queue_take(&q, sorted[i].at_ns - 1, &e));
            CHECK(world_queue_take(&q, sorted[i].at_ns, &e));
            CHECK(e.at_ns == sorted[i].at_ns && e.index == sorted[i].index && e.kind == 7);
        }
        CHECK_EQ(world_queue_next_ns(&q), WORLD_NEVER);
    }
    world_queue_free(&q);
}

/* All that is drawn, as one number: it was the same on x86-64, i386, aarch64 and s390x. */
static CHECK_WRAPS void digits(void)
{
    struct world_rng r;
    uint64_t i, all = 0, bits[5];
    double x[5];
    int k;
    world_rng_init(&r, 1, 5);
    for (i = 0; i < 20000; i++) {
        x[0] = world_unit(&r);
        x[1] = world_exponential(&r);
        x[2] = world_normal(&r);
        x[3] = world_lognormal(&r, 1.3);
        x[4] = (double)world_scale(&r, 1, 1000000000);
        memcpy(bits, x, sizeof bits);
        for (k = 0; k < 5; k++)
            all = (all ^ bits[k]) * UINT64_C(0x100000001b3);
    }
    CHECK_EQ(all, UINT64_C(9636232028271666815));
}

int main(void)
{
    check_begin("world/world_core");
    functions();
    distributions();
    ranges();
    queue();
    digits();
    return check_end();
}
