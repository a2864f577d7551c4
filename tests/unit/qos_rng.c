// proves: the generator is splitmix64 (published sequences); bounded numbers are within their bound and unbiased
#include "qos.h"
#include "check.h"

int main(void)
{
    /* Seed 1234567: the reference sequence that the authors' code prints; seed 0 begins 0xe220a8397b1dcdaf. */
    static const uint64_t reference[5] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                          UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                          UINT64_C(16408922859458223821)};
    struct qos_rng r;
    uint64_t i, n, count[6] = {0, 0, 0, 0, 0, 0}, upper = 0;
    check_begin("unit/qos_rng");
    n = check_scaled(200000);
    qos_rng_seed(&r, 1234567);
    for (i = 0; i < 5; i++)
        CHECK_EQ(qos_rng_u64(&r), reference[i]);
    qos_rng_seed(&r, 0);
    CHECK_EQ(qos_rng_u64(&r), UINT64_C(0xe220a8397b1dcdaf));

    CHECK_EQ(qos_rng_below(&r, 0), 0);
    for (i = 0; i < n; i++) {
        uint64_t v = qos_rng_below(&r, 6);
        CHECK(v < 6);
        count[v < 6 ? v : 0]++;
        CHECK_EQ(qos_rng_below(&r, 1), 0);
    }
    for (i = 0; i < 6; i++)
        CHECK_WITHIN(count[i], (double)n / 6 * 0.9, (double)n / 6 * 1.1);
    /* A bound of three quarters of the range: without rejection every third value would come twice as often as the
     * others: in half of the draws instead of a third. */
    for (i = 0; i < n; i++) {
        uint64_t bound = UINT64_C(3) << 62, v = qos_rng_below(&r, bound);
        CHECK(v < bound);
        upper += v % 3 == 0;
    }
    CHECK_WITHIN(upper, (double)n * 0.31, (double)n * 0.36);
    return check_end();
}
