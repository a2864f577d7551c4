// proves: a bucket at the ends of its ranges: bursts, debts, time that jumps or runs backwards, live change of rate
#include "qos.h"
#include "check.h"

#define MAX UINT64_MAX
#define S QOS_NS_PER_S

static struct qos_bucket full(uint64_t rate_per_s, uint64_t burst_tokens, uint64_t now_ns)
{
    struct qos_bucket b;
    CHECK_EQ(qos_bucket_init(&b, now_ns, rate_per_s, burst_tokens), QOS_OK);
    CHECK_EQ(qos_bucket_put(&b, now_ns, burst_tokens), QOS_OK);
    return b;
}

static void check_ranges(void)
{
    struct qos_bucket b, before;
    CHECK_EQ(qos_bucket_init(&b, 42, 1, 1), QOS_OK);
    before = b;
    CHECK_EQ(qos_bucket_init(&b, 0, QOS_RATE_MAX + 1, 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_init(&b, 0, 1, 0), QOS_ERANGE);
    CHECK_EQ(qos_bucket_init(&b, 0, 1, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_set_rate(&b, S, QOS_RATE_MAX + 1, 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_set_rate(&b, S, 1, 0), QOS_ERANGE);
    CHECK_EQ(qos_bucket_set_rate(&b, S, 1, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_take(&b, S, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_take(&b, S, MAX), QOS_ERANGE);
    CHECK_EQ(qos_bucket_put(&b, S, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_force(&b, S, QOS_TOKENS_MAX + 1, 0), QOS_ERANGE);
    CHECK_EQ(qos_bucket_force(&b, S, 1, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(qos_bucket_next_ns(&b, S, QOS_TOKENS_MAX + 1), QOS_NEVER);
    CHECK(memcmp(&b, &before, sizeof b) == 0);

    b = full(QOS_RATE_MAX, QOS_TOKENS_MAX, 0);
    CHECK_EQ(qos_bucket_take(&b, 0, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(b.level, 0);
    CHECK_EQ(qos_bucket_take(&b, 0, 0), QOS_OK);
    CHECK_EQ(qos_bucket_take(&b, 0, 1), QOS_EAGAIN);
    /* 2^40 tokens/s give the first token in the first nanosecond, and 4 * 10^9 tokens in 3,637,979 ns. */
    CHECK_EQ(qos_bucket_next_ns(&b, 0, 1), 1);
    CHECK_EQ(qos_bucket_next_ns(&b, 0, QOS_TOKENS_MAX), 3637979);
    CHECK_EQ(qos_bucket_take(&b, 3637978, QOS_TOKENS_MAX), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_take(&b, 3637979, QOS_TOKENS_MAX), QOS_OK);
}

static void check_time(void)
{
    struct qos_bucket b = full(1000, 10, 5 * S);
    CHECK_EQ(qos_bucket_take(&b, 5 * S, 10), QOS_OK);
    /* Backwards: no token is added, neither now nor when the clock has caught up. */
    CHECK_EQ(qos_bucket_take(&b, 0, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_take(&b, 5 * S, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_next_ns(&b, 0, 1), 5 * S + 1000000);
    CHECK_EQ(qos_bucket_next_ns(&b, 0, 0), 0);
    CHECK_EQ(qos_bucket_take(&b, 5 * S + 999999, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_take(&b, 5 * S + 1000000, 1), QOS_OK);
    /* Tokens in the bucket can be taken whatever the clock says. */
    CHECK_EQ(qos_bucket_put(&b, 0, 2), QOS_OK);
    CHECK_EQ(qos_bucket_next_ns(&b, 3, 2), 3);
    CHECK_EQ(qos_bucket_take(&b, 3, 2), QOS_OK);
    /* The longest possible jump fills the bucket to its burst and no further. */
    b = full(QOS_RATE_MAX, 10, 0);
    CHECK_EQ(qos_bucket_take(&b, 0, 10), QOS_OK);
    CHECK_EQ(qos_bucket_take(&b, MAX, 10), QOS_OK);
    CHECK_EQ(qos_bucket_take(&b, MAX, 1), QOS_EAGAIN);
    /* No time is left for another token. */
    CHECK_EQ(qos_bucket_next_ns(&b, MAX, 1), QOS_NEVER);
    /* Rate 0 never refills. */
    b = full(0, 10, 0);
    CHECK_EQ(qos_bucket_take(&b, 0, 10), QOS_OK);
    CHECK_EQ(qos_bucket_next_ns(&b, 7, 1), QOS_NEVER);
    CHECK_EQ(qos_bucket_next_ns(&b, 7, 0), 7);
    CHECK_EQ(qos_bucket_take(&b, MAX, 1), QOS_EAGAIN);
}

/* A call that is refused changes nothing: one wrong clock, an hour ahead, credits no hour. */
static void check_refused(void)
{
    struct qos_bucket b = full(1, 100, 0), before;
    CHECK_EQ(qos_bucket_take(&b, 0, 100), QOS_OK);
    CHECK_EQ(qos_bucket_force(&b, 0, 100, 0), QOS_OK);
    before = b;
    CHECK_EQ(qos_bucket_take(&b, 150 * S, 100), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_force(&b, 50 * S, 1, 49), QOS_EDEBT);
    CHECK(memcmp(&b, &before, sizeof b) == 0);
    CHECK_EQ(qos_bucket_take(&b, S, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_next_ns(&b, S, 1), 101 * S);
    /* The contract's bound with forced requests of at most n = 100 and a debt of m = 10,000: d + m + n at one instant. */
    {
        uint64_t granted = 0;
        b = full(0, 100, 0);
        while (qos_bucket_force(&b, 0, 100, 10000) == QOS_OK)
            granted += 100;
        CHECK(granted > 10000 && granted <= 100 + 10000 + 100);
    }
}

static void check_debt(void)
{
    /* A request of ten bursts: a full bucket grants it, then nothing for nine bursts and the next token. */
    struct qos_bucket b = full(10, 10, 0);
    CHECK_EQ(qos_bucket_take(&b, 0, 100), QOS_OK);
    CHECK_EQ(qos_level_debt(b.level), 90);
    CHECK_EQ(qos_bucket_next_ns(&b, 0, 1), 9 * S + S / 10);
    CHECK_EQ(qos_bucket_take(&b, 9 * S, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_take(&b, 9 * S, 0), QOS_OK);
    CHECK_EQ(qos_bucket_take(&b, 9 * S + S / 10, 1), QOS_OK);
    /* Force: at once, until more than the bound is owed. */
    CHECK_EQ(qos_bucket_force(&b, 9 * S + S / 10, 5, 5), QOS_OK);
    CHECK_EQ(qos_bucket_force(&b, 9 * S + S / 10, 1, 5), QOS_OK);
    CHECK_EQ(qos_level_debt(b.level), 6);
    CHECK_EQ(qos_bucket_force(&b, 9 * S + S / 10, 1, 5), QOS_EDEBT);
    CHECK_EQ(qos_level_debt(b.level), 6);
    CHECK_EQ(qos_bucket_force(&b, 9 * S + 2 * (S / 10), 1, 5), QOS_OK);
    /* The deepest debt: the bound, and one request on top of it. */
    b = full(1, 1, 0);
    CHECK_EQ(qos_bucket_take(&b, 0, 1), QOS_OK);
    CHECK_EQ(qos_bucket_force(&b, 0, QOS_TOKENS_MAX, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(qos_bucket_force(&b, 0, QOS_TOKENS_MAX, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(qos_bucket_force(&b, 0, 1, QOS_TOKENS_MAX), QOS_EDEBT);
    CHECK_EQ(qos_level_debt(b.level), 2 * QOS_TOKENS_MAX);
    CHECK_EQ(qos_bucket_next_ns(&b, 0, 1), (2 * QOS_TOKENS_MAX + 1) * S);
    CHECK_EQ(qos_level_charge(b.level, 1), b.level);
    CHECK_EQ(qos_level_charge(b.level + 5, 7), b.level);
    /* Tokens owed are rounded up. */
    CHECK_EQ(qos_level_debt(0), 0);
    CHECK_EQ(qos_level_debt(7), 0);
    CHECK_EQ(qos_level_debt(-1), 1);
    CHECK_EQ(qos_level_debt(-QOS_SUBTOKENS), 1);
    CHECK_EQ(qos_level_debt(-QOS_SUBTOKENS - 1), 2);
    /* From the deepest debt to the largest burst in one refill. */
    CHECK_EQ(qos_level_refill(b.level, (int64_t)QOS_TOKENS_MAX * QOS_SUBTOKENS, QOS_RATE_MAX, MAX),
             QOS_TOKENS_MAX * (uint64_t)QOS_SUBTOKENS);
    CHECK_EQ(qos_level_refill(b.level, (int64_t)QOS_TOKENS_MAX * QOS_SUBTOKENS, 1, 10), (uint64_t)(b.level + 10));
    CHECK_EQ(qos_level_wait_ns(b.level, (int64_t)QOS_TOKENS_MAX * QOS_SUBTOKENS, 1), UINT64_C(12000000000000000000));
    CHECK_EQ(qos_level_wait_ns(0, 10, 3), 4);
    CHECK_EQ(qos_level_wait_ns(0, 9, 3), 3);
    CHECK_EQ(qos_level_wait_ns(9, 9, 3), 0);
    CHECK_EQ(qos_level_gate(5, 6), 5);
    CHECK_EQ(qos_level_gate(6, 5), 5);
}

static void check_change(void)
{
    struct qos_bucket b = full(10, 10, 0);
    /* Tokens that do not fit are lost. */
    CHECK_EQ(qos_bucket_put(&b, 0, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(b.level, 10 * QOS_SUBTOKENS);
    CHECK_EQ(qos_bucket_take(&b, 0, 10), QOS_OK);
    CHECK_EQ(qos_bucket_put(&b, 0, 4), QOS_OK);
    CHECK_EQ(b.level, 4 * QOS_SUBTOKENS);
    /* The time before the change earns at the old rate: half a second, five tokens. */
    CHECK_EQ(qos_bucket_set_rate(&b, S / 2, 1000, 10), QOS_OK);
    CHECK_EQ(b.level, 9 * QOS_SUBTOKENS);
    /* A smaller burst: the tokens above it are lost. */
    CHECK_EQ(qos_bucket_set_rate(&b, S / 2, 1000, 3), QOS_OK);
    CHECK_EQ(b.level, 3 * QOS_SUBTOKENS);
    CHECK_EQ(qos_bucket_set_rate(&b, S / 2, 1000, 100), QOS_OK);
    CHECK_EQ(b.level, 3 * QOS_SUBTOKENS);
    /* Debt stays. */
    CHECK_EQ(qos_bucket_force(&b, S / 2, 8, 0), QOS_OK);
    CHECK_EQ(qos_bucket_set_rate(&b, S / 2, 1, 1), QOS_OK);
    CHECK_EQ(qos_level_debt(b.level), 5);
    /* Many changes at the same instant add no token. */
    {
        unsigned i;
        for (i = 0; i < 1000; i++)
            CHECK_EQ(qos_bucket_set_rate(&b, S / 2, i % 2 ? QOS_RATE_MAX : 1, 1 + i), QOS_OK);
    }
    CHECK_EQ(qos_level_debt(b.level), 5);
}

int main(void)
{
    check_begin("unit/qos_bucket_ends");
    check_ranges();
    check_time();
    check_refused();
    check_debt();
    check_change();
    return check_end();
}
