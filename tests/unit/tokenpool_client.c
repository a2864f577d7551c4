// proves: the engine alone: ranges, takes, decay (Example 1), limits, debt, put_back, partial and void claims, epochs
// that wrap, next_ns, counters
#include "tokenpool.h"
#include "check.h"

static uint64_t storage[64] __attribute__((aligned(64)));
static uint64_t control[128] __attribute__((aligned(64)));
static struct tokenpool monitor;
static struct tokenpool_config cfg;

static void base(uint64_t capacity, uint64_t reservation, uint64_t limit, uint32_t flags)
{
    memset(&cfg, 0, sizeof cfg);
    cfg.clients = 2;
    cfg.batch = 30;
    cfg.capacity = capacity;
    cfg.flags = flags | TOKENPOOL_FIXED;
    cfg.overrun = TOKENPOOL_NO_OVERRUN;
    cfg.silent_periods = TOKENPOOL_NEVER_SILENT;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    CHECK_EQ(tokenpool_join(&monitor, 0, reservation, limit, NULL), QOS_OK);
    tokenpool_run(&monitor, 0);
}

static void engine(struct tokenpool_client *c, uint32_t id)
{
    CHECK_EQ(tokenpool_client_init(c, &cfg, id), QOS_OK);
    tokenpool_client_start_now(c);
    tokenpool_tick_local(c, storage, 0);
}

static void test_config(void)
{
    struct tokenpool_config bad;
    struct tokenpool_client c;
    unsigned i;
    base(100, 50, TOKENPOOL_NO_LIMIT, 0);
    CHECK_EQ(tokenpool_check(NULL), QOS_EINVAL);
    CHECK_EQ(tokenpool_check(&cfg), QOS_OK);
    CHECK_EQ(tokenpool_client_init(NULL, &cfg, 0), QOS_EINVAL);
    CHECK_EQ(tokenpool_client_init(&c, &cfg, 2), QOS_ENOENT);
    for (i = 0; i < 19; i++) {
        enum qos_status want = QOS_ERANGE;
        bad = cfg;
        switch (i) {
        case 0: bad.clients = 0; break;
        case 1: bad.clients = TOKENPOOL_CLIENTS_MAX + 1; break;
        case 2: bad.batch = TOKENPOOL_BATCH_MAX + 1; break;
        case 3: bad.clients = TOKENPOOL_CLIENTS_MAX, bad.batch = 8193; break;
        case 4: bad.overrun = 1001; break;
        case 5: bad.history = TOKENPOOL_HISTORY_MAX + 1; break;
        case 6: bad.period_ns = 7; break;
        case 7: bad.period_ns = TOKENPOOL_PERIOD_NS_MAX + 1; break;
        case 8: bad.check_ns = QOS_NS_PER_S + 1; break;
        case 9: bad.poll_ns = QOS_NS_PER_S; break;
        case 10: bad.capacity = 0; break;
        case 11: bad.capacity = TOKENPOOL_TOKENS_MAX + 1; break;
        case 12: bad.client_capacity = TOKENPOOL_TOKENS_MAX + 1; break;
        case 13: bad.capacity_min = 101; break;
        case 14: bad.capacity_step = TOKENPOOL_TOKENS_MAX + 1; break;
        case 15: bad.equal_within = TOKENPOOL_TOKENS_MAX + 1; break;
        case 16: bad.debt_max = TOKENPOOL_TOKENS_MAX + 1; break;
        case 17: bad.flags = 16, want = QOS_EINVAL; break;
        default:
            bad.clients = TOKENPOOL_CLIENTS_MAX, bad.batch = 8192, bad.capacity_min = TOKENPOOL_NO_FLOOR;
            bad.capacity_step = TOKENPOOL_NO_STEP, bad.equal_within = TOKENPOOL_EXACT;
            bad.debt_max = TOKENPOOL_NO_DEBT, want = QOS_OK;
        }
        CHECK_CONTEXT("configuration %u", i);
        CHECK_EQ(tokenpool_check(&bad), want);
        CHECK_EQ(tokenpool_client_init(&c, &bad, 0), want);
        CHECK(want == QOS_OK || tokenpool_memsize(&bad) == 0);
        CHECK(want == QOS_OK || tokenpool_storage_size(&bad) == 0);
    }
}

/* Example 1: T = 1 s, R = 50, at t = 0.6 s. */
static void test_example_1(void)
{
    static const uint64_t demand[3] = {20, 40, 50}, residual[3] = {20, 10, 0};
    unsigned i;
    for (i = 0; i < 3; i++) {
        struct tokenpool_client c;
        uint64_t n;
        base(100, 50, TOKENPOOL_NO_LIMIT, 0);
        engine(&c, 0);
        for (n = 0; n < demand[i]; n++)
            CHECK_EQ(tokenpool_take(&c, 1), QOS_OK);
        tokenpool_complete(&c, demand[i]);
        tokenpool_tick_local(&c, storage, 600000000);
        CHECK_EQ(tokenpool_held(&c), residual[i]);
        /* Demand that only waits counts as well: the same residual, and the queued part on top of it. */
        base(100, 50, TOKENPOOL_NO_LIMIT, 0);
        engine(&c, 0);
        tokenpool_set_queued(&c, demand[i]);
        tokenpool_tick_local(&c, storage, 600000000);
        CHECK_EQ(tokenpool_held(&c), residual[i] + demand[i]);
        tokenpool_set_queued(&c, TOKENPOOL_BACKLOGGED);
        tokenpool_tick_local(&c, storage, 900000000);
        CHECK_EQ(tokenpool_held(&c), residual[i] + demand[i]);
    }
}

static void test_claims(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    struct qos_stats s;
    base(100, 60, TOKENPOOL_NO_LIMIT, 0); /* the pool starts at 40 */
    CHECK_EQ(tokenpool_join(&monitor, 1, 0, TOKENPOOL_NO_LIMIT, NULL), QOS_OK);
    engine(&b, 1); /* admitted, but its terms come with the next period */
    CHECK_EQ(tokenpool_take_local(&b, storage, 1, 1), QOS_ELIMIT);
    tokenpool_run(&monitor, QOS_NS_PER_S);
    engine(&a, 0);
    tokenpool_tick_local(&b, storage, QOS_NS_PER_S);
    CHECK_EQ(tokenpool_take_local(&b, storage, QOS_NS_PER_S, 1), QOS_OK);
    CHECK_EQ(tokenpool_held(&b), 29);
    CHECK_EQ(tokenpool_word_count(storage[8]), 10);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 61), QOS_OK); /* 60, then a claim of 30 that gets 10 */
    CHECK_EQ(tokenpool_held(&a), 9);
    CHECK_EQ(tokenpool_word_count(storage[8]), -20);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 10), QOS_EAGAIN);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 10), QOS_EAGAIN);
    CHECK_EQ(tokenpool_word_count(storage[8]), -20); /* it knows, and does not knock */
    CHECK_EQ(tokenpool_take(&a, 0), QOS_ERANGE);
    CHECK_EQ(tokenpool_take(&a, TOKENPOOL_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 0), QOS_ERANGE);
    CHECK_EQ(tokenpool_probe(&a, 9), QOS_OK);
    CHECK_EQ(tokenpool_probe(&a, 10), QOS_EAGAIN);
    tokenpool_tick_local(&a, storage, 2000000);
    tokenpool_client_stats(&a, &s);
    CHECK_EQ(s.granted, 61);
    CHECK_EQ(s.borrowed, 1);
    CHECK_EQ(s.refused, 1); /* of ten tokens, tried twice */
    /* An operation that the transport lost. */
    CHECK(tokenpool_client_next(&b, QOS_NS_PER_S, 100, &op));
    CHECK(!tokenpool_client_next(&b, QOS_NS_PER_S, 100, &op)); /* one at a time */
    tokenpool_client_fail(&b);
    tokenpool_client_done(&b, 0); /* an answer that nobody waits for */
    CHECK_EQ(tokenpool_held(&b), 29);
}

/* Claims across a period boundary: an old pool's tokens are void, a new pool's are kept for the new period. */
static void test_straddle(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t answer, period = 0, terms = 0;
    base(100, 60, TOKENPOOL_NO_LIMIT, 0);
    engine(&c, 0);
    CHECK_EQ(tokenpool_take(&c, 60), QOS_OK);
    CHECK(tokenpool_client_next(&c, 1, 1, &op) && op.kind == TOKENPOOL_FETCH_ADD);
    answer = tokenpool_op_run(storage, &op);
    tokenpool_run(&monitor, QOS_NS_PER_S);
    CHECK_EQ(tokenpool_message(&monitor, 0, &period, &terms), QOS_OK);
    CHECK(tokenpool_client_begin(&c, QOS_NS_PER_S, period, terms));
    CHECK(!tokenpool_client_begin(&c, QOS_NS_PER_S, period, terms)); /* the message came twice */
    tokenpool_client_done(&c, answer);
    CHECK_EQ(tokenpool_held(&c), 60);
    CHECK_EQ(qos_counter_read(&c.voided), 30);
    CHECK_EQ(tokenpool_take(&c, 60), QOS_OK);
    CHECK(tokenpool_client_next(&c, QOS_NS_PER_S, 1, &op)); /* the report of the new period goes first */
    tokenpool_client_done(&c, tokenpool_op_run(storage, &op));
    CHECK(tokenpool_client_next(&c, QOS_NS_PER_S, 1, &op) && op.kind == TOKENPOOL_FETCH_ADD);
    tokenpool_run(&monitor, 2 * QOS_NS_PER_S);
    tokenpool_client_done(&c, tokenpool_op_run(storage, &op));
    CHECK_EQ(tokenpool_held(&c), 0); /* not in this period */
    CHECK_EQ(tokenpool_take_local(&c, storage, 2 * QOS_NS_PER_S, 90), QOS_OK);
    CHECK_EQ(tokenpool_held(&c), 0);
    CHECK_EQ(tokenpool_word_count(storage[8]), 10);
    /* The period ends for an engine that hears nothing. */
    CHECK_EQ(tokenpool_take_local(&c, storage, 2 * QOS_NS_PER_S + 1, 1), QOS_OK);
    CHECK_EQ(tokenpool_held(&c), 9);
    tokenpool_tick_local(&c, storage, 3 * QOS_NS_PER_S + 1);
    CHECK_EQ(tokenpool_held(&c), 0);
    tokenpool_put_back(&c, 1);
    CHECK_EQ(tokenpool_held(&c), 0);
}

static void test_limit_and_debt(void)
{
    struct tokenpool_client c;
    struct qos_stats s;
    base(100, 20, 50, 0);
    engine(&c, 0);
    CHECK_EQ(tokenpool_take_local(&c, storage, 0, 50), QOS_OK);
    CHECK_EQ(tokenpool_take_local(&c, storage, 0, 1), QOS_ELIMIT);
    CHECK_EQ(tokenpool_word_count(storage[8]), 50); /* no more was claimed than may be spent */
    tokenpool_put_back(&c, 3);
    CHECK_EQ(tokenpool_take_local(&c, storage, 0, 3), QOS_OK);
    tokenpool_put_back(&c, 1000);
    CHECK_EQ(tokenpool_held(&c), 50);
    CHECK_EQ(tokenpool_force(&c, 60), QOS_OK); /* 10 in debt */
    CHECK_EQ(tokenpool_force(&c, 20), QOS_OK); /* 30 in debt: as much as a batch */
    CHECK_EQ(tokenpool_force(&c, 1), QOS_OK);
    CHECK_EQ(tokenpool_force(&c, 1), QOS_EDEBT);
    CHECK_EQ(tokenpool_force(&c, 0), QOS_ERANGE);
    CHECK_EQ(tokenpool_held(&c), 0);
    tokenpool_tick_local(&c, storage, 2000000);
    tokenpool_client_stats(&c, &s);
    CHECK_EQ(s.debt, 31);
    tokenpool_run(&monitor, QOS_NS_PER_S);
    CHECK_EQ(tokenpool_take_local(&c, storage, QOS_NS_PER_S, 19), QOS_OK); /* 50 - 31 */
    CHECK_EQ(tokenpool_take_local(&c, storage, QOS_NS_PER_S, 1), QOS_ELIMIT);
    cfg.debt_max = TOKENPOOL_NO_DEBT;
    CHECK_EQ(tokenpool_client_init(&c, &cfg, 0), QOS_OK);
    CHECK_EQ(tokenpool_force(&c, 1), QOS_EDEBT);
}

static void test_times(void)
{
    struct tokenpool_client c;
    struct qos_stats s;
    uint64_t now = 5000000;
    base(100, 50, TOKENPOOL_NO_LIMIT, 0);
    CHECK_EQ(tokenpool_client_init(&c, &cfg, 0), QOS_OK);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 1), now);
    tokenpool_tick_local(&c, storage, now); /* finds a period that another engine may have used */
    CHECK_EQ(tokenpool_held(&c), 0);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 1), now + 125000);
    tokenpool_run(&monitor, QOS_NS_PER_S);
    now = QOS_NS_PER_S;
    tokenpool_tick_local(&c, storage, now);
    CHECK_EQ(tokenpool_held(&c), 50);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 50), now);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 0), now + 1000000);
    CHECK_EQ(tokenpool_take_local(&c, storage, now, 100), QOS_OK);
    CHECK_EQ(tokenpool_take_local(&c, storage, now, 1), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 1), now + 125000);
    CHECK_EQ(tokenpool_take_local(&c, storage, 0, 1), QOS_EAGAIN); /* a clock that jumps back mints nothing */
    tokenpool_run(&monitor, 2 * QOS_NS_PER_S);
    CHECK_EQ(tokenpool_take_local(&c, storage, 2 * QOS_NS_PER_S, 1), QOS_OK);
    tokenpool_client_stats(&c, &s);
    CHECK_EQ(s.waited, 1);
    tokenpool_complete(&c, UINT64_MAX);
    tokenpool_complete(&c, 1); /* saturates */
    tokenpool_tick_local(&c, storage, 2 * QOS_NS_PER_S + 999999999);
    CHECK_EQ(storage[(tokenpool_storage_size(&cfg) - 64) / 8] & TOKENPOOL_TOKENS_MAX, TOKENPOOL_TOKENS_MAX);
}

static void test_epoch_wraps(void)
{
    struct tokenpool_client c;
    unsigned i;
    base(100, 50, TOKENPOOL_NO_LIMIT, 0);
    storage[0] = UINT64_C(65533) << 20 | 1;
    CHECK_EQ(tokenpool_resume(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    tokenpool_run(&monitor, 0);
    engine(&c, 0);
    CHECK_EQ(c.epoch, 65534);
    for (i = 1; i < 200; i++) {
        uint64_t now = i * QOS_NS_PER_S;
        tokenpool_run(&monitor, now);
        CHECK_EQ(tokenpool_take_local(&c, storage, now, 51), QOS_OK);
        tokenpool_tick_local(&c, storage, now + QOS_NS_PER_S / 2);
    }
    CHECK_EQ(c.epoch, 198); /* 65535, then 1 */
    CHECK_EQ(tokenpool_word_count(tokenpool_word(-5, 65535, 4095)), -5);
    CHECK_EQ(tokenpool_word_epoch(tokenpool_word(-5, 65535, 4095)), 65535);
    CHECK_EQ(tokenpool_word_seq(tokenpool_word(-5, 65535, 4095)), 4095);
}

static void test_ordered(void)
{
    struct tokenpool_client a, b;
    base(100, 60, TOKENPOOL_NO_LIMIT, TOKENPOOL_ORDERED);
    CHECK_EQ(tokenpool_join(&monitor, 1, 0, TOKENPOOL_NO_LIMIT, NULL), QOS_OK);
    tokenpool_run(&monitor, QOS_NS_PER_S);
    engine(&a, 0);
    engine(&b, 1);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 70), QOS_OK);     /* tickets 0..29, 40 are served */
    CHECK_EQ(tokenpool_take_local(&b, storage, 0, 11), QOS_EAGAIN); /* tickets 30..59: ten of them */
    CHECK_EQ(tokenpool_held(&b), 10);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 21), QOS_EAGAIN); /* tickets 60..89, behind b */
    CHECK_EQ(tokenpool_held(&a), 20);
    CHECK_EQ(tokenpool_word_count(storage[8]), 90);
    CHECK_EQ(tokenpool_client_next_ns(&b, 0, 11), 125000);
    CHECK_EQ(tokenpool_take_local(&b, storage, 130000, 11), QOS_EAGAIN); /* asks `served`, and claims nothing */
    CHECK_EQ(tokenpool_word_count(storage[8]), 90);
}

int main(void)
{
    check_begin("unit/tokenpool_client");
    test_config();
    test_example_1();
    test_claims();
    test_straddle();
    test_limit_and_debt();
    test_times();
    test_epoch_wraps();
    test_ordered();
    return check_end();
}
