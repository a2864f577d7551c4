// proves: costs and fitted models at the ends of their ranges
#include "qos.h"
#include "check.h"

static void check_model(void)
{
    struct qos_cost_model m;
    memset(&m, 0, sizeof m);
    CHECK_EQ(qos_cost(&m, QOS_READ, 0), 1);
    CHECK_EQ(qos_cost(&m, QOS_READ, UINT64_MAX), 1);
    m.fixed_cost[QOS_READ] = 10;
    m.per_mib_cost[QOS_READ] = 1;
    m.fixed_cost[QOS_WRITE] = 20;
    m.per_mib_cost[QOS_WRITE] = UINT64_C(1) << 20; /* one a byte */
    CHECK_EQ(qos_cost(&m, QOS_READ, 0), 10);
    CHECK_EQ(qos_cost(&m, QOS_READ, 1), 11);
    CHECK_EQ(qos_cost(&m, QOS_READ, 1 << 20), 11);
    CHECK_EQ(qos_cost(&m, QOS_READ, (1 << 20) + 1), 12);
    CHECK_EQ(qos_cost(&m, QOS_WRITE, 0), 20);
    CHECK_EQ(qos_cost(&m, QOS_WRITE, 4096), 4116);
    CHECK_EQ(qos_cost(&m, QOS_WRITE, QOS_TOKENS_MAX - 20), QOS_TOKENS_MAX);
    CHECK_EQ(qos_cost(&m, QOS_WRITE, QOS_TOKENS_MAX - 21), QOS_TOKENS_MAX - 1);
    CHECK_EQ(qos_cost(&m, QOS_WRITE, QOS_TOKENS_MAX), QOS_TOKENS_MAX);
    CHECK_EQ(qos_cost(&m, QOS_WRITE, UINT64_MAX), QOS_TOKENS_MAX);
    m.per_mib_cost[QOS_READ] = UINT64_C(1) << 40;
    CHECK_EQ(qos_cost(&m, QOS_READ, 1), (UINT64_C(1) << 20) + 10);
    CHECK_EQ(qos_cost(&m, QOS_READ, UINT64_MAX), QOS_TOKENS_MAX);
    /* A product of 2^84 - 1: rounded up it needs one bit more than a word. */
    m.per_mib_cost[QOS_READ] = (UINT64_C(1) << 21) - 1;
    CHECK_EQ(qos_cost(&m, QOS_READ, (UINT64_C(1) << 63) + (UINT64_C(1) << 42) + (UINT64_C(1) << 21) + 1),
             QOS_TOKENS_MAX);
    m.fixed_cost[QOS_READ] = UINT64_MAX;
    CHECK_EQ(qos_cost(&m, QOS_READ, 1), QOS_TOKENS_MAX);
}

static void check_fit(void)
{
    struct qos_cost_model m, before;
    memset(&m, 0x5a, sizeof m);
    before = m;
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 0, 1, 10, 1), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 1, 10, 1), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 1, 9, 1), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 1, (UINT64_C(1) << 40) + 1, 1), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 0, 20, 1), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 1, 20, 0), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, QOS_TOKENS_MAX + 1, 20, 1), QOS_ERANGE);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 1, 20, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    /* not too many tokens per MiB */
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 10, 1, UINT64_C(1) << 40, QOS_TOKENS_MAX + 1), QOS_ERANGE);
#ifndef __cplusplus /* there the enum cannot have such a value */
    CHECK_EQ(qos_cost_fit(&m, (enum qos_op)2, 10, 1, 20, 2), QOS_EINVAL);
#endif
    /* Too steep: more than 2^40 per MiB. */
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 1, 1, 2, QOS_TOKENS_MAX), QOS_ERANGE);
    CHECK(memcmp(&m, &before, sizeof m) == 0);

    /* 4 KiB in 80 us and 128 KiB in 142 us: 77.9 us and 0.5 us for each KiB. */
    CHECK_EQ(qos_cost_fit(&m, QOS_WRITE, 4096, 80000, 131072, 142000), QOS_OK);
    CHECK_EQ(m.fixed_cost[QOS_WRITE], 78000);
    CHECK_EQ(m.per_mib_cost[QOS_WRITE], 512000);
    CHECK_EQ(m.fixed_cost[QOS_READ], before.fixed_cost[QOS_READ]);
    /* The ends of the ranges. */
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 1, QOS_TOKENS_MAX, UINT64_C(1) << 40, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(m.fixed_cost[QOS_READ], QOS_TOKENS_MAX);
    CHECK_EQ(m.per_mib_cost[QOS_READ], 0);
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 1, 1, (UINT64_C(1) << 40) - 1, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(qos_cost(&m, QOS_READ, (UINT64_C(1) << 40) - 1), QOS_TOKENS_MAX);
    /* A cost that falls with the size becomes constant. */
    CHECK_EQ(qos_cost_fit(&m, QOS_READ, 4096, 100, 8192, 90), QOS_OK);
    CHECK_EQ(m.fixed_cost[QOS_READ], 100);
    CHECK_EQ(m.per_mib_cost[QOS_READ], 0);
}

int main(void)
{
    check_begin("unit/qos_cost");
    check_model();
    check_fit();
    return check_end();
}
