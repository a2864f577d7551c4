// proves: wrapping, checked, saturating and 128-bit arithmetic at the ends of its ranges
#include "qos.h"
#include "check.h"

#define MAX UINT64_MAX
#define HALF (UINT64_C(1) << 63)

static struct qos_u128 wide(uint64_t hi, uint64_t lo)
{
    struct qos_u128 r;
    r.hi = hi;
    r.lo = lo;
    return r;
}

static void check_64_bit(void)
{
    uint64_t out = 7;
    CHECK_EQ(qos_wrap_add(MAX, 2), 1);
    CHECK_EQ(qos_wrap_add(3, 4), 7);
    CHECK_EQ(qos_wrap_sub(1, 2), MAX);
    CHECK_EQ(qos_wrap_sub(9, 2), 7);
    CHECK_EQ(qos_wrap_mul(HALF, 3), HALF);
    CHECK_EQ(qos_wrap_mul(MAX, MAX), 1);

    CHECK(!qos_checked_add(MAX, 1, &out) && out == 7);
    CHECK(!qos_checked_add(1, MAX, &out) && out == 7);
    CHECK(qos_checked_add(MAX, 0, &out) && out == MAX);
    CHECK(qos_checked_add(MAX - 5, 5, &out) && out == MAX);
    out = 7;
    CHECK(!qos_checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out) && out == 7);
    CHECK(qos_checked_mul(0xffffffff, UINT64_C(0x100000001), &out) && out == MAX);
    CHECK(qos_checked_mul(MAX, 0, &out) && out == 0);

    CHECK_EQ(qos_sat_add(MAX, 1), MAX);
    CHECK_EQ(qos_sat_add(MAX - 1, 1), MAX);
    CHECK_EQ(qos_sat_add(1, 1), 2);
    CHECK_EQ(qos_sat_sub(1, 2), 0);
    CHECK_EQ(qos_sat_sub(2, 2), 0);
    CHECK_EQ(qos_sat_sub(MAX, 1), MAX - 1);
    CHECK_EQ(qos_sat_mul(HALF, 2), MAX);
    CHECK_EQ(qos_sat_mul(HALF, 1), HALF);
    CHECK_EQ(qos_min(3, MAX), 3);
    CHECK_EQ(qos_min(MAX, 3), 3);
    CHECK_EQ(qos_max(3, MAX), MAX);
    CHECK_EQ(qos_max(MAX, 3), MAX);

    CHECK_EQ(qos_elapsed_ns(5, 12), 7);
    CHECK_EQ(qos_elapsed_ns(12, 5), 0);
    CHECK_EQ(qos_elapsed_ns(5, 5), 0);
    CHECK_EQ(qos_elapsed_ns(0, MAX), MAX);
}

static void check_product(uint64_t a, uint64_t b, uint64_t hi, uint64_t lo)
{
    CHECK_EQ(qos_mul_wide(a, b).hi, hi);
    CHECK_EQ(qos_mul_wide(a, b).lo, lo);
    CHECK_EQ(qos_mul_wide(b, a).hi, hi);
    CHECK_EQ(qos_mul_wide(b, a).lo, lo);
}

static void check_quotient(struct qos_u128 n, uint64_t d, uint64_t q, uint64_t r)
{
    uint64_t rem = 12345;
    CHECK_CONTEXT("(%" PRIx64 ":%" PRIx64 ") / %" PRIx64, n.hi, n.lo, d);
    CHECK_EQ(qos_div_wide(n, d, &rem), q);
    CHECK_EQ(rem, r);
    CHECK_EQ(qos_div_wide(n, d, NULL), q);
}

static void check_128_bit(void)
{
    struct qos_u128 s;
    check_product(0, MAX, 0, 0);
    check_product(1, MAX, 0, MAX);
    check_product(MAX, MAX, MAX - 1, 1);
    check_product(HALF, 2, 1, 0);
    check_product(UINT64_C(0xffffffff), UINT64_C(0xffffffff), 0, UINT64_C(0xfffffffe00000001));
    check_product(UINT64_C(0xffffffff00000000), UINT64_C(0xffffffff), UINT64_C(0xfffffffe),
                  UINT64_C(0x0000000100000000));

    s = qos_add_wide(wide(1, MAX), wide(2, 1));
    CHECK(s.hi == 4 && s.lo == 0);
    s = qos_add_wide(wide(1, MAX - 1), wide(2, 1));
    CHECK(s.hi == 3 && s.lo == MAX);
    s = qos_add_wide(wide(MAX, MAX), wide(0, 1));
    CHECK(s.hi == 0 && s.lo == 0);
    s = qos_sub_wide(wide(4, 0), wide(2, 1));
    CHECK(s.hi == 1 && s.lo == MAX);
    s = qos_sub_wide(wide(3, 7), wide(3, 7));
    CHECK(s.hi == 0 && s.lo == 0);
    s = qos_sub_wide(wide(0, 0), wide(0, 1));
    CHECK(s.hi == MAX && s.lo == MAX);
    CHECK_EQ(qos_default(0, 5), 5);
    CHECK_EQ(qos_default(3, 5), 3);
    CHECK(qos_cmp_wide(wide(1, 0), wide(0, MAX)) > 0);
    CHECK(qos_cmp_wide(wide(0, MAX), wide(1, 0)) < 0);
    CHECK(qos_cmp_wide(wide(3, 4), wide(3, 5)) < 0);
    CHECK(qos_cmp_wide(wide(3, 6), wide(3, 5)) > 0);
    CHECK(qos_cmp_wide(wide(3, 5), wide(3, 5)) == 0);

    /* No 64-bit quotient. */
    check_quotient(wide(0, 5), 0, MAX, 0);
    check_quotient(wide(5, 0), 5, MAX, 0);
    check_quotient(wide(MAX, MAX), MAX, MAX, 0);
    /* One word; the largest possible quotient; divisors of one and two digits, normalised and not. */
    check_quotient(wide(0, 100), 7, 14, 2);
    check_quotient(wide(0, MAX), 1, MAX, 0);
    check_quotient(wide(MAX - 1, MAX), MAX, MAX, MAX - 1);
    check_quotient(wide(1, 0), 2, HALF, 0);
    check_quotient(wide(1, 0), 3, UINT64_C(0x5555555555555555), 1);
    check_quotient(wide(HALF - 1, MAX), HALF, MAX, HALF - 1);
    /* Algorithm D's digit guess is too large by one and by two: the correction steps. */
    check_quotient(wide(UINT64_C(0x7fffffffffffffff), 0), UINT64_C(0x80000000ffffffff), UINT64_C(0xfffffffe00000003),
                   UINT64_C(0x7ffffffb00000003));
    check_quotient(wide(UINT64_C(0x8000000078e51060), UINT64_C(0xffffffff00000000)), UINT64_C(0x8000000078e51061), MAX,
                   UINT64_C(0x7fffffff78e51061));
    check_quotient(wide(UINT64_C(0x4da98f1d3099fdf5), UINT64_C(0xffffffff00000000)), UINT64_C(0x80000001f9270f4e),
                   UINT64_C(0x9b531e37fc36a8cd), UINT64_C(0x42d843d8d7398e8a));

    CHECK_EQ(qos_mul_div_floor(MAX, MAX, MAX), MAX);
    CHECK_EQ(qos_mul_div_ceil(MAX, MAX, MAX), MAX);
    CHECK_EQ(qos_mul_div_floor(MAX, 2, 4), HALF - 1);
    CHECK_EQ(qos_mul_div_ceil(MAX, 2, 4), HALF);
    CHECK_EQ(qos_mul_div_floor(7, 3, 4), 5);
    CHECK_EQ(qos_mul_div_ceil(7, 3, 4), 6);
    CHECK_EQ(qos_mul_div_ceil(8, 3, 4), 6);
    CHECK_EQ(qos_mul_div_floor(7, 3, 0), MAX);
    CHECK_EQ(qos_mul_div_ceil(7, 3, 0), MAX);
    CHECK_EQ(qos_mul_div_floor(MAX, 2, 1), MAX);
    CHECK_EQ(qos_mul_div_ceil(MAX, 2, 1), MAX);
    /* Rounding up the last quotient that fits saturates. */
    CHECK_EQ(qos_mul_div_ceil(MAX, MAX - 1, MAX - 1), MAX);
}

int main(void)
{
    check_begin("unit/qos_arith");
#ifdef QOS_NO_INT128
    CHECK_EQ(QOS_HAS_INT128, 0);
#endif
    check_64_bit();
    check_128_bit();
    return check_end();
}
