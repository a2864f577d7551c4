// proves: 128-bit products, sums, comparisons, quotients and costs equal those of schoolbook arithmetic in base 2^16
#include "qos.h"
#include "check.h"
#include "digits.h"

/* Numbers at which errors of carries, digit guesses and borrows show: runs of ones and zeros, plus or minus a little.
   */
static uint64_t pick(struct check_rng *rng)
{
    uint64_t ones = UINT64_MAX >> check_between(rng, 0, 63), v;
    switch (check_between(rng, 0, 7)) {
    case 0: return check_rand(rng);
    case 1: return ones;
    case 2: return ones - 1;
    case 3: return ~ones;
    case 4: return ones ^ UINT64_MAX >> check_between(rng, 0, 63);
    case 5: v = check_rand(rng) & ones; return v;
    case 6: return (check_rand(rng) & 0xffffffffu) << 32 | (check_between(rng, 0, 1) ? 0xffffffffu : 0);
    default: return check_between(rng, 0, 3);
    }
}

static void check_division(uint64_t hi, uint64_t lo, uint64_t d)
{
    struct qos_u128 n;
    uint64_t q, rem = 1;
    n.hi = hi;
    n.lo = lo;
    q = qos_div_wide(n, d, &rem);
    if (hi >= d) { /* d == 0 included */
        CHECK(q == UINT64_MAX && rem == 0);
        return;
    }
    /* There is exactly one pair with n = q d + rem and rem < d. */
    CHECK(rem < d);
    CHECK(digits_compare(digits_add(digits_mul(digits_of(q), digits_of(d)), digits_of(rem)), digits_of_wide(hi, lo)) ==
          0);
}

static void check_product(uint64_t a, uint64_t b, uint64_t c)
{
    struct qos_u128 p = qos_mul_wide(a, b), s;
    struct digits want = digits_mul(digits_of(a), digits_of(b)), sum;
    uint64_t floor = qos_mul_div_floor(a, b, c), ceil = qos_mul_div_ceil(a, b, c);
    CHECK(digits_compare(digits_of_wide(p.hi, p.lo), want) == 0);
    /* floor <= a b / c < floor + 1, and ceil - 1 < a b / c <= ceil, wherever the quotient fits. */
    if (c != 0 && digits_compare(want, digits_mul(digits_of_wide(1, 0), digits_of(c))) < 0) {
        struct digits below = digits_mul(digits_of(floor), digits_of(c));
        bool exact = digits_compare(below, want) == 0;
        CHECK(digits_compare(below, want) <= 0 && digits_compare(digits_add(below, digits_of(c)), want) > 0);
        CHECK_EQ(ceil, exact || floor == UINT64_MAX ? floor : floor + 1);
    } else {
        CHECK(floor == UINT64_MAX && ceil == UINT64_MAX);
    }
    s = qos_add_wide(p, p);
    sum = digits_add(want, want);
    sum.d[8] = 0; /* modulo 2^128 */
    CHECK(digits_compare(digits_of_wide(s.hi, s.lo), sum) == 0);
    /* The difference p - c is right if (p - c) + c = p, modulo 2^128, by schoolbook addition. */
    s.hi = a;
    s.lo = c;
    s = qos_sub_wide(p, s);
    sum = digits_add(digits_of_wide(s.hi, s.lo), digits_of_wide(a, c));
    sum.d[8] = 0;
    CHECK(digits_compare(sum, want) == 0);
}

static void check_compare_wide(struct check_rng *rng)
{
    struct qos_u128 a, b;
    int got, want;
    a.hi = check_between(rng, 0, 3);
    b.hi = check_between(rng, 0, 3);
    a.lo = pick(rng);
    b.lo = check_between(rng, 0, 1) ? a.lo : pick(rng);
    got = qos_cmp_wide(a, b);
    want = digits_compare(digits_of_wide(a.hi, a.lo), digits_of_wide(b.hi, b.lo));
    CHECK((got > 0) == (want > 0) && (got < 0) == (want < 0));
}

/* fixed + ceil(len per_mib / 2^20), in 1..QOS_TOKENS_MAX */
static void check_cost(uint64_t len, uint64_t per_mib, uint64_t fixed)
{
    struct qos_cost_model m;
    struct digits p = digits_mul(digits_of(len), digits_of(per_mib)), cost;
    uint64_t got;
    uint32_t rem_high, rem_low;
    m.fixed_cost[QOS_READ] = m.fixed_cost[QOS_WRITE] = fixed;
    m.per_mib_cost[QOS_READ] = m.per_mib_cost[QOS_WRITE] = per_mib;
    got = qos_cost(&m, QOS_WRITE, len);
    cost = digits_div_small(digits_div_small(p, 1024, &rem_low), 1024, &rem_high);
    cost = digits_add(cost, digits_of(fixed + (rem_low != 0 || rem_high != 0)));
    if (digits_compare(cost, digits_of(0)) == 0)
        CHECK_EQ(got, 1);
    else if (digits_compare(cost, digits_of(UINT64_C(4000000000))) > 0)
        CHECK_EQ(got, UINT64_C(4000000000));
    else
        CHECK_EQ(got, digits_low(cost));
}

int main(void)
{
    struct check_rng rng;
    uint64_t i, n;
    check_begin("property/qos_wide");
    check_rng_init(&rng, 4);
    n = check_scaled(200000);
    for (i = 0; i < n; i++) {
        uint64_t a = pick(&rng), b = pick(&rng), c = pick(&rng);
        CHECK_CONTEXT("%" PRIx64 ", %" PRIx64 ", %" PRIx64, a, b, c);
        check_product(a, b, c);
        check_division(a, b, c);
        if (c != 0) /* mostly where the quotient fits */
            check_division(a % c, b, c);
        check_compare_wide(&rng);
        check_cost(a, b >> 24, c & 0xffffffffu);
        check_cost(a >> check_between(&rng, 20, 50), b >> 24, c & 0xffffu);
    }
    return check_end();
}
