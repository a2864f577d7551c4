// proves: the engine alone: takes, decay (Example 1), limits, debt, put_back, partial and void claims, large requests,
// ordered tickets, next_ns, counters
#include "unit/tokenpool_rig.h"

static void base(uint64_t capacity, uint64_t reservation, uint64_t limit, uint32_t flags, struct tokenpool_client *a,
                 struct tokenpool_client *b)
{
    rig_config(2, 30, capacity, flags);
    rig_init();
    rig_join(0, reservation, limit);
    rig_engine(a, 0);
    if (b) {
        rig_join(1, 0, 0);
        rig_engine(b, 1);
    }
    rig_run(&monitor, 0);
    rig_tick(a, 0);
    if (b)
        rig_tick(b, 0);
}

/* Example 1: T = 1 s, R = 50, at t = 0.6 s. */
static void test_example_1(void)
{
    static const uint64_t demand[3] = {20, 40, 50}, residual[3] = {20, 10, 0};
    unsigned i;
    for (i = 0; i < 3; i++) {
        struct tokenpool_client c;
        uint64_t n;
        CHECK_CONTEXT("demand %u", (unsigned)demand[i]);
        base(100, 50, 0, 0, &c, NULL);
        for (n = 0; n < demand[i]; n++)
            CHECK_EQ(tokenpool_client_take(&c, 0, 1), QOS_OK);
        tokenpool_client_complete(&c, demand[i]);
        tokenpool_client_run(&c, 600000000, 0);
        tokenpool_client_run(&c, 601000000, 0); /* by rho at the call before */
        CHECK_EQ(tokenpool_client_held(&c), residual[i]);
        /* Queued demand counts, too: the same residual plus the queued part. */
        base(100, 50, 0, 0, &c, NULL);
        tokenpool_client_set_queued(&c, demand[i]);
        tokenpool_client_run(&c, 600000000, 0);
        tokenpool_client_run(&c, 601000000, 0); /* by rho at the call before */
        CHECK_EQ(tokenpool_client_held(&c), residual[i] + demand[i]);
        tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
        tokenpool_client_run(&c, 900000000, 0);
        CHECK_EQ(tokenpool_client_held(&c), residual[i] + demand[i]);
    }
}

static void test_claims(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    struct qos_stats s;
    base(100, 60, 0, 0, &a, &b); /* the pool starts at 40 */
    CHECK_EQ(tokenpool_client_take(&b, 0, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&b), 29);
    CHECK_EQ(rig_pool(), 10);
    CHECK_EQ(tokenpool_client_take(&a, 0, 61), QOS_OK); /* 60, then a claim of 30 that gets 10 */
    CHECK_EQ(tokenpool_client_held(&a), 9);
    CHECK_EQ(rig_pool(), -20);
    CHECK_EQ(tokenpool_client_take(&a, 0, 10), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_take(&a, 500000000, 10), QOS_EAGAIN);
    CHECK_EQ(rig_pool(), -20); /* reads the pool; does not claim */
    CHECK_EQ(tokenpool_client_take(&a, 500000000, 0), QOS_ERANGE);
    CHECK_EQ(tokenpool_client_take(&a, 500000000, 101), QOS_ERANGE); /* more than any client can get in a period */
    CHECK_EQ(tokenpool_client_take(&a, 500000000, UINT64_MAX), QOS_ERANGE);
    tokenpool_client_run(&a, 502000000, 0);
    CHECK_EQ(tokenpool_client_stats(&a, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.granted, 61);
    CHECK_EQ(s.borrowed, 1);
    CHECK_EQ(s.refused, 1); /* of ten tokens, after two tries */
    CHECK_EQ(tokenpool_client_stats(&a, 1, &s), QOS_ENOENT);
    CHECK_EQ(tokenpool_client_stats(&a, 0, &s), QOS_OK);
    /* The transport lost an operation. */
    base(100, 10, 0, 0, &a, &b);
    CHECK(tokenpool_client_next(&b, 1, 1, &op) && op.kind == TOKENPOOL_FETCH_ADD);
    CHECK(!tokenpool_client_next(&b, 1, 100, &op)); /* one at a time */
    (void)tokenpool_storage_run(storage, &op);
    tokenpool_client_fail(&b);
    tokenpool_client_done(&b, 0); /* an answer without an operation */
    CHECK_EQ(tokenpool_client_held(&b), 0);
    CHECK(tokenpool_client_next(&b, 1, 1, &op) && op.kind == TOKENPOOL_READ &&
          op.offset_bytes == TOKENPOOL_OFFSET_POOL);
}

/* Lost answers lower the pool only once: after a lost answer the engine reads the pool first. */
static void test_lost_claims(void)
{
    struct tokenpool_client a;
    struct tokenpool_op op;
    unsigned k;
    base(100, 0, 0, 0, &a, NULL);
    for (k = 0; k < 1000; k++)
        if (tokenpool_client_next(&a, k * 1000, 1, &op)) {
            uint64_t answer = tokenpool_storage_run(storage, &op);
            if (op.kind == TOKENPOOL_FETCH_ADD)
                tokenpool_client_fail(&a);
            else
                tokenpool_client_done(&a, answer);
            CHECK(rig_pool() >= -30);
        }
    CHECK(rig_pool() <= 0);
}

/* A claim across a period boundary: an old pool's tokens are void, a new pool's are kept for the new period. */
static void test_straddle(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t answer;
    base(100, 60, 0, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_take(&c, 0, 60), QOS_OK);
    CHECK(tokenpool_client_next(&c, 1, 1, &op) && op.kind == TOKENPOOL_FETCH_ADD);
    answer = tokenpool_storage_run(storage, &op);
    CHECK_EQ(tokenpool_client_take(&c, S, 1), QOS_EAGAIN); /* the claim is under way */
    rig_run(&monitor, S);
    tokenpool_client_done(&c, answer);
    tokenpool_client_run(&c, S, 0); /* sees the new period */
    CHECK_EQ(rig_client(&c).voided, 30);
    CHECK_EQ(tokenpool_client_take(&c, S, 60), QOS_OK);
    CHECK(tokenpool_client_next(&c, S + 1, 1, &op) && op.kind == TOKENPOOL_FETCH_ADD);
    rig_run(&monitor, 2 * S); /* the claim reaches the new pool */
    tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK_EQ(tokenpool_client_held(&c), 0);                          /* none in this period */
    CHECK_EQ(tokenpool_client_take(&c, 2 * S + 2 * MS, 90), QOS_OK); /* 60, and the 30 */
    CHECK_EQ(tokenpool_client_held(&c), 0);
    CHECK_EQ(rig_pool(), 10);
}

static void test_limit_and_debt(void)
{
    struct tokenpool_client c;
    struct qos_stats s;
    uint64_t now = MS;
    base(100, 20, 50, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_take(&c, 0, 50), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 0, 1), QOS_ELIMIT);
    CHECK_EQ(tokenpool_client_take(&c, 0, 50), QOS_ELIMIT);
    CHECK_EQ(tokenpool_client_take(&c, 0, 51), QOS_ERANGE); /* never */
    CHECK_EQ(rig_pool(), 50);                               /* claims stayed within the limit */
    CHECK_EQ(tokenpool_client_put_back(&c, 0, 1, 3), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 0, 3), QOS_OK);
    CHECK_EQ(tokenpool_client_put_back(&c, 0, 2, 3), QOS_ESTALE);
    CHECK_EQ(tokenpool_client_put_back(&c, 0, 1, 1000), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&c), 50);
    CHECK_EQ(tokenpool_client_force(&c, now, 60), QOS_OK); /* 10 in debt */
    CHECK_EQ(tokenpool_client_force(&c, now, 20), QOS_OK); /* 30 in debt: as much as a batch */
    CHECK_EQ(tokenpool_client_force(&c, now, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_force(&c, now, 1), QOS_EDEBT);
    CHECK_EQ(tokenpool_client_force(&c, now, 0), QOS_ERANGE);
    CHECK_EQ(tokenpool_client_held(&c), 0);
    tokenpool_client_run(&c, 2 * MS, 0);
    CHECK_EQ(tokenpool_client_stats(&c, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.debt, 31);
    rig_run(&monitor, S);
    rig_tick(&c, S);
    CHECK_EQ(tokenpool_client_put_back(&c, S, 1, 31), QOS_ESTALE); /* that period is over */
    CHECK_EQ(tokenpool_client_take(&c, S, 19), QOS_OK);            /* 50 - 31 */
    CHECK_EQ(tokenpool_client_take(&c, S, 1), QOS_ELIMIT);
    config.debt_max = QOS_NOTHING;
    rig_init();
    rig_engine(&c, 0);
    CHECK_EQ(tokenpool_client_force(&c, 0, 1), QOS_EDEBT);
}

/* A debt above a batch, and above what the period's pool holds, is paid batch by batch. */
static void test_large_debt(void)
{
    struct tokenpool_client c;
    uint64_t now;
    rig_config(2, 10, 100, 0);
    config.debt_max = 80;
    rig_init();
    rig_join(0, 0, 0);
    rig_join(1, 80, 0);
    rig_engine(&c, 0);
    rig_run(&monitor, 0);
    rig_tick(&c, 0);
    CHECK_EQ(tokenpool_client_force(&c, 0, 70), QOS_OK);
    for (now = 0; now < 4 * S; now += S) { /* 20 in each period */
        rig_run(&monitor, now);
        rig_tick(&c, now);
        CHECK_EQ(tokenpool_client_take(&c, now, 1), now < 3 * S ? QOS_EAGAIN : QOS_OK);
        CHECK_EQ(rig_pool(), 0);
    }
}

static void test_times(void)
{
    struct tokenpool_client c;
    struct qos_stats s;
    uint64_t now = 5 * MS;
    base(100, 50, 0, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 1), now);
    tokenpool_client_run(&c, now, 1); /* continues from the other engine's report, less a batch */
    CHECK_EQ(tokenpool_client_held(&c), 20);
    rig_tick(&c, S - MS / 8);
    rig_run(&monitor, S);
    now = S;
    rig_tick(&c, now);
    CHECK_EQ(tokenpool_client_held(&c), 50);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 50), now);
    CHECK_EQ(tokenpool_client_next_ns(&c, now, 0), now + MS);
    CHECK_EQ(tokenpool_client_take(&c, now, 51), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, now + MS, 49), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, now + MS, 1), QOS_EAGAIN);
    CHECK(tokenpool_client_next_ns(&c, now + MS, 1) > now + MS);
    CHECK(tokenpool_client_next_ns(&c, now + MS, 1) <= now + 2 * MS);
    CHECK_EQ(tokenpool_client_stats(&c, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.refused, 1);
    tokenpool_client_complete(&c, UINT64_MAX);
    tokenpool_client_complete(&c, 1); /* saturates */
    tokenpool_client_run(&c, 2 * S - 2 * MS, 0);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] & TOKENPOOL_TOKENS_MAX, TOKENPOOL_TOKENS_MAX);
}

/* The last report of a period, phase x 4 + demand: 8 idle; 9 any demand; 14 a queue of more than 2 %; 11 it waits for
 * tokens; 15, 10, 3: as 9, 14, 11, and I/Os under way for most of the period. */
static void test_demand(void)
{
    static const struct {
        uint64_t taken, completed, queued, said;
    } row[] = {{0, 0, 0, 8},     {100, 100, 0, 8}, {100, 99, 0, 15},  {100, 100, 2, 9},  {98, 98, 2, 14}, {0, 0, 1, 14},
               {100, 90, 2, 10}, {100, 90, 1, 15}, {200, 200, 0, 11}, {200, 200, 5, 11}, {200, 190, 5, 3}};
    struct tokenpool_client c;
    uint64_t now;
    size_t i;
    for (i = 0; i < sizeof row / sizeof row[0]; i++) {
        CHECK_CONTEXT("row %u", (unsigned)i);
        base(200, 200, 0, 0, &c, NULL);
        if (row[i].taken)
            CHECK_EQ(tokenpool_client_take(&c, 0, row[i].taken), QOS_OK);
        if (row[i].taken == 200)
            CHECK_EQ(tokenpool_client_take(&c, 0, 1), QOS_EAGAIN);
        tokenpool_client_complete(&c, row[i].completed);
        tokenpool_client_set_queued(&c, row[i].queued);
        for (now = 10 * MS; now < S; now += 10 * MS)
            tokenpool_client_run(&c, now, 0);
        tokenpool_client_run(&c, S - 2 * MS, 0);
        CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 15, row[i].said);
    }
}

/* A refused request is never tried again: from the next period on its client is idle and does not wait, so the monitor
 * can still see that the node is slow. A request that is tried again still waits. Both count as refused once. */
static void test_gone(void)
{
    struct tokenpool_client c;
    struct qos_stats stats;
    unsigned again;
    for (again = 0; again < 2; again++) {
        CHECK_CONTEXT("asked for %s", again ? "again" : "once");
        base(100, 90, 0, 0, &c, NULL);
        CHECK_EQ(tokenpool_client_take(&c, 0, 90), QOS_OK);
        tokenpool_client_complete(&c, 90);
        CHECK_EQ(tokenpool_client_take(&c, 0, 100), QOS_EAGAIN);
        tokenpool_client_run(&c, S - 2 * MS, 0);
        CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 3);
        CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 0, 0, NULL), QOS_OK);
        rig_join(1, 10, 0);
        rig_tick(&c, S - 1);
        rig_run(&monitor, S);
        rig_tick(&c, S);
        storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(60) << 32; /* somebody claims 60 of 90 */
        if (again)
            CHECK_EQ(tokenpool_client_take(&c, S, 85), QOS_EAGAIN);
        tokenpool_client_complete(&c, 1); /* of the period before */
        tokenpool_client_run(&c, 2 * S - 2 * MS, 0);
        CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, again ? 3 : 0);
        CHECK_EQ(tokenpool_client_stats(&c, QOS_NONE, &stats), QOS_OK);
        CHECK_EQ(stats.refused, 1);
    }
}

/* A report is sent as soon as the engine rests. If its answer was lost, the engine looks whether it was performed, then goes on.
 * Every operation is on one word. */
static void test_report_again(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    unsigned i;
    base(1000, 1000, 0, 0, &c, NULL);
    tokenpool_client_run(&c, 123 * MS, 0);
    for (i = 0; i < 2; i++) {
        CHECK(tokenpool_client_next(&c, 126 * MS, 0, &op) &&
              op.kind == (i == 0 ? TOKENPOOL_COMPARE_SWAP : TOKENPOOL_READ));
        CHECK_EQ(op.offset_bytes, tokenpool_storage_report(2, 0));
        tokenpool_client_fail(&c);
    }
    tokenpool_client_run(&c, 126 * MS, 0);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 0);
    tokenpool_client_hint(&c);
    CHECK(tokenpool_client_next(&c, 126 * MS, 0, &op) && op.kind == TOKENPOOL_READ);
    CHECK_EQ(op.offset_bytes, TOKENPOOL_OFFSET_PERIOD);
}

/* Another period begins while the engine reads its terms: they give it no tokens. */
static void test_overtaken_terms(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    unsigned i;
    base(100, 60, 0, 0, &c, NULL);
    tokenpool_client_run(&c, S - MS, 0);
    rig_tick(&c, S - 1);
    rig_run(&monitor, S);
    tokenpool_client_hint(&c);
    for (i = 0; i < 2; i++) { /* the period word, the terms */
        CHECK(tokenpool_client_next(&c, S, 0, &op) && op.kind == TOKENPOOL_READ);
        if (i == 1)
            rig_run(&monitor, 2 * S);
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    }
    CHECK_EQ(tokenpool_client_held(&c), 0);
    tokenpool_client_run(&c, S + MS, 0);
    CHECK_EQ(tokenpool_client_epoch(&c), 3);
}

/* The period word, the terms, the report, and then nothing before the next tick. No request waited. */
static void test_begin(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    struct qos_stats s;
    unsigned i;
    base(100, 60, 0, 0, &c, NULL);
    tokenpool_client_run(&c, S - MS, 0);
    rig_tick(&c, S - 1);
    rig_run(&monitor, S);
    tokenpool_client_hint(&c);
    for (i = 0; tokenpool_client_next(&c, S, 0, &op); i++)
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK_EQ(i, 3);
    CHECK_EQ(tokenpool_client_held(&c), 60);
    CHECK_EQ(tokenpool_client_take(&c, S, 61), QOS_OK);
    tokenpool_client_run(&c, S + MS, 0);
    CHECK_EQ(tokenpool_client_stats(&c, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.waited, 0);
}

/* The slot's report says that tokens were spent without a monitor: with TOKENPOOL_GO_ON those of the next epoch, but what
 * the next engine takes from the pool is not. Without it that is a stray store, and the next epoch has all. */
static void test_advance(void)
{
    struct tokenpool_client c;
    unsigned go_on, epoch;
    for (go_on = 0; go_on < 2; go_on++) {
        CHECK_CONTEXT("go on %u", go_on);
        base(200, 60, 0, go_on ? TOKENPOOL_GO_ON : 0, &c, NULL);
        rig_report(0, 1, 3, 60, 10);
        rig_engine(&c, 0);
        CHECK_EQ(tokenpool_client_take(&c, MS, 20), QOS_OK); /* less X = 30 */
        CHECK_EQ(tokenpool_client_held(&c), 0);
        CHECK_EQ(tokenpool_client_take(&c, MS, 140), QOS_OK);
        for (epoch = 2; epoch <= 3; epoch++) {
            rig_tick(&c, (epoch - 1) * S - 1);
            rig_run(&monitor, (epoch - 1) * S);
            rig_tick(&c, (epoch - 1) * S);
            CHECK_EQ(tokenpool_client_epoch(&c), epoch);
            CHECK_EQ(tokenpool_client_held(&c), go_on && epoch == 2 ? 0 : 60);
        }
    }
}

/* An engine that goes on alone notices within a sixteenth of a period that the monitor is back. */
static void test_back_from_alone(void)
{
    struct tokenpool_client c;
    uint64_t now;
    base(100, 60, 0, TOKENPOOL_GO_ON, &c, NULL);
    for (now = MS; (now <= S || rig_client(&c).deadline_ns <= now + MS) && now < 3 * S; now += MS)
        tokenpool_client_run(&c, now, 0);
    CHECK_WITHIN(now, S + S / 8, S + S / 8 + 6 * MS);
    CHECK_EQ(tokenpool_client_held(&c), 60);
    rig_run(&monitor, now);
    for (; tokenpool_client_epoch(&c) == 1 && now < 3 * S; now += MS)
        tokenpool_client_run(&c, now, 0);
    CHECK_EQ(tokenpool_client_epoch(&c), 2);
    CHECK_WITHIN(now, S + S / 8 + S / 16, S + S / 8 + S / 16 + 9 * MS);
}

/* The same at the beginning of the engine's clock: the period word is read again. */
static void test_overtaken_at_0(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    unsigned i;
    rig_config(2, 30, 100, 0);
    rig_init();
    rig_join(0, 60, 0);
    rig_engine(&c, 0);
    rig_run(&monitor, 0);
    tokenpool_client_hint(&c);
    for (i = 0; i < 2; i++) {
        CHECK(tokenpool_client_next(&c, 0, 0, &op) && op.kind == TOKENPOOL_READ);
        if (i == 1)
            rig_run(&monitor, S);
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    }
    CHECK(tokenpool_client_next(&c, MS, 0, &op) && op.offset_bytes == TOKENPOOL_OFFSET_PERIOD);
}

/* A request that the tokens of a period do not suffice for is refused, not left to wait: those reserved by others are not
 * for it. In the next period they may be. */
static void test_too_large(void)
{
    struct tokenpool_client a, b;
    unsigned ordered;
    for (ordered = 0; ordered < 2; ordered++) {
        CHECK_CONTEXT("ordered %u", ordered);
        base(100, 60, 0, ordered ? TOKENPOOL_ORDERED : 0, &a, &b);
        CHECK_EQ(tokenpool_client_take(&b, 0, 41), QOS_ERANGE);
        CHECK_EQ(tokenpool_client_take(&b, 0, 100), QOS_ERANGE);
        CHECK(tokenpool_client_next_ns(&b, 0, 100) > 0);
        CHECK_EQ(tokenpool_client_take(&b, 0, 40), ordered ? QOS_EAGAIN : QOS_OK);
        CHECK_EQ(tokenpool_client_take(&a, 0, 100), QOS_EAGAIN); /* its own 60, and 40 */
        CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 0, 0, NULL), QOS_OK);
        rig_run(&monitor, S);
        rig_tick(&b, S);
        CHECK_EQ(tokenpool_client_take(&b, S, 100), ordered ? QOS_EAGAIN : QOS_OK);
    }
}

/* Reads of an empty pool: each waits longer than the one before, but not for more than a quarter of the time left. */
static void test_back_off(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    uint64_t now, last = 0;
    unsigned reads = 0;
    base(100, 60, 0, 0, &a, &b);
    CHECK_EQ(tokenpool_client_take(&b, 0, 40), QOS_OK);
    for (now = 0; now < S - 20 * MS; now += MS / 4) {
        while (tokenpool_client_next(&b, now, 30, &op)) {
            if (op.offset_bytes == TOKENPOOL_OFFSET_POOL) {
                CHECK(op.kind == TOKENPOOL_READ || reads == 0);
                if (reads > 0)
                    CHECK_LE(now - last, (S - last) / 4 + MS);
                last = now;
                reads++;
            }
            tokenpool_client_done(&b, tokenpool_storage_run(storage, &op));
        }
    }
    CHECK_WITHIN(reads, 8, 40);
}

/* The back-off of one period does not last into the next: its first wait is a poll again. */
static void test_back_off_again(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    uint64_t now, first = 0, second = 0;
    base(100, 60, 0, 0, &a, &b);
    CHECK_EQ(tokenpool_client_take(&b, 0, 40), QOS_OK);
    for (now = MS; now < S / 4; now += MS)
        tokenpool_client_run(&b, now, 41);
    rig_tick(&b, S / 4 - MS / 2);
    rig_run(&monitor, S);                             /* its clock is ahead */
    storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX; /* other clients were faster */
    tokenpool_client_hint(&b);
    for (now = S / 4; now < S / 2 && second == 0; now += MS / 8)
        while (tokenpool_client_next(&b, now, 1, &op)) {
            if (op.offset_bytes == TOKENPOOL_OFFSET_POOL && op.kind == TOKENPOOL_READ)
                second = now;
            if (op.kind == TOKENPOOL_FETCH_ADD)
                first = now;
            tokenpool_client_done(&b, tokenpool_storage_run(storage, &op));
        }
    CHECK_WITHIN(first, S / 4, S / 4 + MS);
    CHECK_WITHIN(second, first + 1, first + 3 * MS);
}

/* A request of the most that any client gets in a period; and one that its limit allows, but for which there are no
 * tokens now. */
static void test_most(void)
{
    struct tokenpool_client a, b;
    base(100, 60, 0, 0, &a, NULL);
    CHECK_EQ(tokenpool_client_take(&a, 0, 100), QOS_OK);
    base(100, 20, 50, 0, &a, &b);
    CHECK_EQ(tokenpool_client_take(&b, 0, 80), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&a, 0, 50), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_take(&a, 0, 51), QOS_ERANGE);
}

/* A client at a steady rate reports every 128 I/Os, whenever the remainder has halved, down to R / 64, and at the end.
   */
static void test_steady_reports(void)
{
    struct tokenpool_client c;
    const uint64_t *word = &storage[tokenpool_storage_report(2, 0) / 8];
    uint64_t now, last = 0;
    uint32_t reports = 0;
    base(1000, 1000, 0, 0, &c, NULL);
    tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
    for (now = MS; now < S - MS; now += MS) {
        CHECK_EQ(tokenpool_client_take(&c, now, 1), QOS_OK);
        tokenpool_client_complete(&c, 1);
        tokenpool_client_run(&c, now, 0);
        reports += *word != last;
        last = *word;
    }
    CHECK_EQ(rig_client(&c).epoch, 1);
    CHECK_WITHIN(reports, 8, 20);
}

/* A period whose length is not divisible by four: its first report is of the first quarter. */
static void test_odd_period(void)
{
    struct tokenpool_client c;
    uint64_t word;
    rig_config(2, 5, 100, 0);
    config.period_ns = 11;
    config.check_ns = config.poll_ns = 1;
    rig_init();
    rig_join(0, 60, 0);
    rig_engine(&c, 0);
    rig_run(&monitor, 0);
    rig_tick(&c, 0);
    CHECK_EQ(tokenpool_client_held(&c), 60);
    tokenpool_client_complete(&c, 1);
    tokenpool_client_run(&c, 1, 0);
    word = storage[tokenpool_storage_report(2, 0) / 8];
    CHECK_EQ(word >> 54 & 3, 1); /* a start is a sign of life */
    CHECK_EQ(word >> 59, 2);     /* the tag of the first period */
}

/* One served ticket is one token. */
static void test_one_ticket(void)
{
    struct tokenpool_client a, b;
    base(100, 60, 0, TOKENPOOL_ORDERED, &a, &b);
    CHECK_EQ(tokenpool_client_take(&b, 0, 15), QOS_EAGAIN); /* tickets 0..29 */
    CHECK_EQ(tokenpool_client_held(&b), 0);
    storage[TOKENPOOL_OFFSET_SERVED / 8] += UINT64_C(10) << 32;
    tokenpool_client_run(&b, 5 * MS, 15);
    CHECK_EQ(tokenpool_client_held(&b), 10);
    storage[TOKENPOOL_OFFSET_SERVED / 8] += UINT64_C(1) << 32;
    tokenpool_client_run(&b, 20 * MS, 15);
    CHECK_EQ(tokenpool_client_held(&b), 11);
}

/* A storage that is too small for its slots is not read, whatever the generation. */
static void test_small_storage(void)
{
    struct tokenpool_client c;
    base(100, 60, 0, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 7, storage, sizeof storage), QOS_ESTALE);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 7, storage, TOKENPOOL_OFFSET_TERMS), QOS_EMEMORY);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 7, storage, tokenpool_storage_memsize(&config) - 64), QOS_EMEMORY);
    memset(storage, 0, sizeof storage);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, TOKENPOOL_OFFSET_TERMS), QOS_ECORRUPT); /* none at all */
}

/* A hint counts at once: the next take, at the same moment, reads the period word. */
static void test_hint(void)
{
    struct tokenpool_client c;
    base(100, 60, 0, 0, &c, NULL);
    tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
    tokenpool_client_run(&c, S - 10 * MS, 0);
    CHECK_EQ(tokenpool_client_held(&c), 60);
    rig_run(&monitor, S); /* its clock is ahead */
    tokenpool_client_hint(&c);
    CHECK_EQ(tokenpool_client_take(&c, S - 10 * MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_epoch(&c), 2);
}

/* An idle client rests, whatever it reserves: one report says so, and one more comes at the end. A lost report costs one
 * look at it; near the deadline a local engine looks at the period. */
static void test_few_reports(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t now;
    uint32_t reports = 0, reads = 0;
    base(1000, 1000, 0, 0, &c, NULL);
    for (now = MS; now < S - MS; now += MS)
        while (tokenpool_client_next(&c, now, 0, &op)) {
            if (op.kind == TOKENPOOL_COMPARE_SWAP && ++reports == 1) {
                tokenpool_client_fail(&c);
                continue;
            }
            reads += op.kind == TOKENPOOL_READ;
            tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
        }
    CHECK_EQ(reports, 3);
    CHECK_WITHIN(reads, 1, 2);
}

/* Who waited for tokens, got them, and then wants nothing reports at the end that it waited, not at each tick. */
static void test_waited_once(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    uint64_t now;
    uint32_t reports = 0;
    base(100, 60, 0, 0, &a, &b);
    CHECK_EQ(tokenpool_client_take(&b, 0, 30), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, 0, 10), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&a, 0, 60), QOS_OK);
    tokenpool_client_complete(&a, 60);
    for (now = MS; now < 130 * MS; now += MS)
        CHECK_EQ(tokenpool_client_take(&a, now, 5), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_put_back(&a, now, 1, 5), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&a, now, 5), QOS_OK);
    for (; now < S - MS / 2; now += MS)
        while (tokenpool_client_next(&a, now, 0, &op)) {
            reports += op.kind == TOKENPOOL_COMPARE_SWAP;
            tokenpool_client_done(&a, tokenpool_storage_run(storage, &op));
        }
    CHECK_WITHIN(reports, 1, 2);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 3);
}

/* Reads of an engine that takes all it gets, each answered 1 us later, from `begin_ns` to `end_ns`. */
static uint64_t reads_behind_a_transport(struct tokenpool_client *c, uint64_t begin_ns, uint64_t end_ns)
{
    struct tokenpool_op op;
    uint64_t now = begin_ns, reads = 0;
    for (; now < end_ns; now = qos_max(tokenpool_client_next_ns(c, now, 1), now + 1000))
        if (tokenpool_client_take(c, now, 1) == QOS_EAGAIN && tokenpool_client_next(c, now, 1, &op)) {
            reads += op.kind == TOKENPOOL_READ;
            now += 1000;
            tokenpool_client_done(c, tokenpool_storage_run(storage, &op));
        }
    return reads;
}

/* Behind a transport who starts within an epoch reads the period word each T / 4096 at most; who knows when its epoch ends
 * reads the more rarely, the longer the next one is overdue. */
static void test_reads_of_who_waits(void)
{
    static struct tokenpool_client c[2];
    uint32_t i;
    rig_config(2, 10, 1000, 0);
    rig_init();
    for (i = 0; i < 2; i++) {
        rig_join(i, 0, 0);
        CHECK_EQ(tokenpool_client_attach_remote(&c[i], i, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage),
                 QOS_OK);
    }
    (void)reads_behind_a_transport(&c[0], 0, MS / 4);
    rig_run(&monitor, MS / 2);
    (void)reads_behind_a_transport(&c[0], MS / 2, S - MS);
    CHECK_LE(reads_behind_a_transport(&c[1], S / 2, S), 2048 + 4);
    CHECK_LE(reads_behind_a_transport(&c[0], S + MS, 3 * S), 40); /* the monitor is dead */
    CHECK_LE(reads_behind_a_transport(&c[1], 2 * S, 3 * S), 64 + 4);
}

/* Answers that come later than the next tick: who starts within an epoch, and wants tokens, has its reservation in the next
 * one. Its reports do not keep it from reading the period word. */
static void test_answers_later_than_a_tick(void)
{
    static struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t now, got = 0;
    rig_config(2, 10, 1000, 0);
    rig_init();
    rig_join(0, 500, 0);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    for (now = 0; now < 2 * S; now += 2 * MS) {
        rig_run(&monitor, now);
        while (tokenpool_client_take(&c, now, 1) == QOS_OK) {
            tokenpool_client_complete(&c, 1);
            got++;
        }
        if (now >= S / 2 && tokenpool_client_next(&c, now, 1, &op))
            tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    }
    CHECK_WITHIN(got, 500, 1000);
}

/* A remote engine: a take needs no operation while nothing is due. An engine whose slot was given to another client
 * reads the terms once in a period. */
static void test_remote(void)
{
    struct tokenpool_client a, c;
    struct tokenpool_op op;
    uint32_t i, reads = 0;
    base(100, 60, 0, 0, &a, NULL);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 1, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
    while (tokenpool_client_next(&c, S - MS, 0, &op))
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    rig_run(&monitor, S);
    tokenpool_client_hint(&c);
    while (tokenpool_client_next(&c, S, 0, &op))
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK_EQ(tokenpool_client_take(&c, S, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, S + 2 * MS, 1), QOS_OK); /* two ticks later: nothing to report */
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
    rig_join(0, 60, 0);
    rig_run(&monitor, 2 * S);
    for (i = 0; i < 100; i++)
        while (tokenpool_client_next(&c, 2 * S + i * MS, 0, &op)) {
            reads += op.offset_bytes == TOKENPOOL_OFFSET_TERMS;
            tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
        }
    CHECK(rig_client(&c).stale);
    CHECK_LE(reads, 1);
}

/* Tokens forced behind a transport that does not answer: at most X beyond what a report says, and then the debt allowed.
 * So those that attach after deaths do not have R once more. */
static void test_forced_and_died(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t spent = 0, lives, i;
    rig_config(2, 10, 1000, 0);
    config.debt_max = QOS_NOTHING;
    rig_init();
    rig_join(0, 800, 0);
    for (lives = 0; lives < 4; lives++) {
        CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
        rig_run(&monitor, 0);
        while (tokenpool_client_next(&c, MS + lives * 30 * MS, 0, &op))
            tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
        for (i = 0; i < 80; i++)
            spent += tokenpool_client_force(&c, MS + lives * 30 * MS, 10) == QOS_OK ? 10u : 0u;
        CHECK(tokenpool_client_next(&c, MS + lives * 30 * MS, 10, &op)); /* a report, which nobody answers */
        CHECK_EQ(spent, 100 * (lives + 1));
    }
}

/* An engine that attaches while the period runs goes on where the slot's report stands, less X = max(batch, R / 8), and
 * without the tokens that the former one had claimed. The former one is told. */
static void test_restart(void)
{
    struct tokenpool_client a, b, c;
    base(1000, 240, 300, 0, &a, NULL);
    CHECK_EQ(tokenpool_client_take(&a, 0, 100), QOS_OK);
    CHECK_EQ(tokenpool_client_attach(&b, 0, 0, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, 300 * MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&b), 240 - 100 - 1);
    CHECK_EQ(tokenpool_client_take(&a, 300 * MS, 1), QOS_ESTALE);
    CHECK_EQ(tokenpool_client_force(&a, 300 * MS, 1), QOS_ESTALE);
    CHECK_EQ(tokenpool_client_held(&a), 0);
    CHECK_EQ(tokenpool_client_next_ns(&a, 300 * MS, 1), QOS_NEVER);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 301 * MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&c), 240 - 100 - 30 - 1);
    rig_run(&monitor, S);
    CHECK_EQ(tokenpool_client_take(&b, S, 1), QOS_ESTALE); /* it finds out in the next period at the latest */
    CHECK_EQ(tokenpool_client_take(&c, S, 240), QOS_OK);   /* all of it */
}

/* When an epoch began is known by an old read, so it may end later than the earliest end. The final report, which does not
 * say what was spent, waits for the latest end, also in the next epoch, whose begin nobody saw: a start before it costs X.
 * At the earliest end a report says what is spent. */
static void test_doubtful_end(void)
{
    uint64_t epochs;
    for (epochs = 1; epochs <= 2; epochs++) {
        const uint64_t end = 900 * MS + epochs * S; /* the earliest one, but for the links' margin */
        struct tokenpool_client a, b;
        uint64_t report;
        CHECK_CONTEXT("%" PRIu64 " epochs after the read", epochs);
        base(1000, 240, 300, 0, &a, NULL);
        CHECK_EQ(tokenpool_client_attach(&a, 0, 0, storage, sizeof storage), QOS_OK);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        rig_tick(&a, 900 * MS);
        rig_run(&monitor, S);
        tokenpool_client_run(&a, S + S / 2, 0);
        if (epochs == 2) {
            rig_run(&monitor, 2 * S);
            tokenpool_client_run(&a, 2 * S + 50 * MS, 0);
        }
        tokenpool_client_run(&a, end - 200 * MS, 0);
        CHECK_EQ(tokenpool_client_take(&a, end - 10 * MS, 15), QOS_OK);
        tokenpool_client_run(&a, end - MS, 0);
        report = storage[tokenpool_storage_report(2, 0) / 8];
        CHECK_EQ(report & TOKENPOOL_TOKENS_MAX, 15);
        CHECK_EQ(report >> 54 & 3, 1);
        tokenpool_client_run(&a, end + 50 * MS, 0);
        CHECK_EQ(tokenpool_client_attach(&b, 0, 0, storage, sizeof storage), QOS_OK);
        CHECK_EQ(tokenpool_client_take(&b, end + 51 * MS, 1), QOS_OK);
        CHECK_EQ(tokenpool_client_held(&b), 240 - 15 - 30 - 1);
    }
}

/* Who knows when the epoch before ended knows its end, though it saw it late: its last report is final. */
static void test_seen_late(void)
{
    struct tokenpool_client a;
    base(1000, 240, 300, 0, &a, NULL);
    rig_run(&monitor, S);
    tokenpool_client_run(&a, S + 300 * MS, 0);
    tokenpool_client_run(&a, 2 * S - 2 * MS, 0);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 54 & 3, 2);
}

/* Behind its limit a client does not wait for the node, also if a request is larger than what is left of the limit. */
static void test_behind_the_limit(void)
{
    struct tokenpool_client c;
    uint64_t limit, now;
    for (limit = 39; limit <= 41; limit++) {
        CHECK_CONTEXT("a limit of %" PRIu64, limit);
        base(200, 30, limit, 0, &c, NULL);
        for (now = 0; now < S - MS; now += MS)
            if (tokenpool_client_take(&c, now, 4) == QOS_OK)
                tokenpool_client_complete(&c, 4);
        CHECK_LE(tokenpool_client_held(&c), 3);
        CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 1);
    }
}

/* More than client_capacity is refused, however much is held. */
static void test_above_client_capacity(void)
{
    struct tokenpool_client c;
    rig_config(1, 30, 200, 0);
    config.client_capacity = 50;
    rig_init();
    rig_join(0, 50, 0);
    rig_run(&monitor, 0);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 0, 6), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 0, 45), QOS_OK); /* of 44 and a claim of 30 */
    CHECK_EQ(tokenpool_client_put_back(&c, 0, 1, 45), QOS_OK);
    CHECK_GE(tokenpool_client_held(&c), 52);
    CHECK_EQ(tokenpool_client_take(&c, 0, 51), QOS_ERANGE);
    CHECK_EQ(tokenpool_client_take(&c, 0, 50), QOS_OK);
}

/* A report that takes back what the one before declared: from when it is sent on, the engine has no more than it says. */
static void test_taken_back(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    unsigned i;
    base(100, 60, 60, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 1, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
    while (tokenpool_client_next(&c, S - 1, 0, &op))
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    rig_run(&monitor, S);
    tokenpool_client_hint(&c);
    while (tokenpool_client_next(&c, S, 60, &op)) /* declares 30, as X is 30 */
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    for (i = 0; i < 9 && tokenpool_client_next(&c, S + S / 4 * 3, 0, &op) && op.kind == TOKENPOOL_READ; i++)
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK(op.kind == TOKENPOOL_COMPARE_SWAP && (op.operand & TOKENPOOL_TOKENS_MAX) == 0); /* of the last quarter */
    (void)tokenpool_storage_run(storage, &op);
    CHECK_EQ(tokenpool_client_take(&c, S + S / 4 * 3, 60), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_take(&c, S + S / 4 * 3, 30), QOS_OK);
}

/* Who rested and slept for so long that the monitor cleared its report owes nothing for what it spent then. */
static void test_cleared_report(void)
{
    struct tokenpool_client c;
    uint64_t now;
    base(100, 40, 0, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_take(&c, 0, 1), QOS_OK);
    tokenpool_client_complete(&c, 1);
    for (now = 0; now < S / 4; now += MS)
        tokenpool_client_run(&c, now, 0);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 0);
    for (now = S; now <= 34 * S; now += S)
        rig_run(&monitor, now);
    CHECK_EQ(tokenpool_client_take(&c, 34 * S + MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&c), 39);
}

/* The first report of an epoch said that its client rests, and its answer was lost: what the monitor gave to others since
 * then is not the client's, when it begins to take. */
static void test_lost_opening(void)
{
    struct tokenpool_client b, c;
    struct tokenpool_op op;
    uint64_t now, took = 0;
    base(100, 60, 0, 0, &c, &b);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 1, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    for (now = 0; now <= 3 * S; now += S) {
        rig_run(&monitor, now);
        tokenpool_client_hint(&c);
        while (now < 3 * S && tokenpool_client_next(&c, now, 0, &op))
            tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    }
    while (tokenpool_client_next(&c, 3 * S, 0, &op) && op.kind == TOKENPOOL_READ)
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK(op.kind == TOKENPOOL_COMPARE_SWAP);
    (void)tokenpool_storage_run(storage, &op);
    tokenpool_client_fail(&c);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 0);
    for (now = 3 * S; now < 3 * S + S / 2; now += MS) {
        rig_run(&monitor, now);
        while (tokenpool_client_take(&b, now, 1) == QOS_OK)
            took++;
    }
    CHECK_GE(took, 60);
    while (tokenpool_client_next(&c, now, 60, &op))
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK_GE(rig_client(&c).kept, 28);
    CHECK_LE(took + rig_client(&c).kept + rig_client(&c).gained, 100);
}

/* What was forced before an engine has its first epoch is a debt in it, beside what its slot's report says; neither is its
 * own to put back. */
static void test_forced_before(void)
{
    struct tokenpool_client a, c;
    struct tokenpool_op op;
    struct qos_stats s;
    base(100, 60, 0, 0, &a, NULL);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 1, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_force(&c, MS, 10), QOS_OK);
    while (tokenpool_client_next(&c, MS, 1, &op))
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK_EQ(tokenpool_client_held(&c), 60 - 30 - 10); /* X is 30 */
    CHECK_EQ(tokenpool_client_put_back(&c, MS, 1, 10), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&c), 20);
    CHECK_EQ(tokenpool_client_take(&c, MS, 5), QOS_OK);
    CHECK_EQ(tokenpool_client_put_back(&c, MS, 1, 10), QOS_OK);
    CHECK_EQ(tokenpool_client_held(&c), 20);
    CHECK_EQ(tokenpool_client_force(&c, MS, 25), QOS_OK); /* a debt of 5 */
    while (tokenpool_client_next(&c, MS, 0, &op))
        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK_GE(tokenpool_client_next_ns(&c, MS, UINT64_MAX), MS); /* more than can be */
    CHECK_EQ(tokenpool_client_put_back(&c, MS, 1, 25), QOS_OK);
    tokenpool_client_run(&a, 2 * MS, 0);
    CHECK_EQ(tokenpool_client_stats(&c, QOS_NONE, &s), QOS_OK);
    CHECK_LE(s.granted, 5);
}

/* A debt, then rest: what the level took of R does not pay it. Nor has the next engine what others got since. */
static void test_debt_at_rest(void)
{
    struct tokenpool_client a, b, heir;
    uint64_t now, took = 0;
    rig_config(2, 10, 2000, 0);
    rig_init();
    rig_join(0, 1000, 0);
    rig_join(1, 0, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    rig_run(&monitor, 0);
    while (tokenpool_client_take(&a, MS, 1) == QOS_OK)
        ;
    CHECK_EQ(tokenpool_client_force(&a, MS, 990), QOS_OK);
    for (now = S; now < S + S / 10 * 9; now += S / 1024) {
        rig_run(&monitor, now);
        tokenpool_client_run(&a, now, 0);
        while (tokenpool_client_take(&b, now, 1) == QOS_OK)
            took++;
    }
    CHECK_GE(took, 1700);
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_EAGAIN);
    tokenpool_client_run(&a, now, 1);
    CHECK_EQ(tokenpool_client_attach(&heir, 0, 0, storage, sizeof storage), QOS_OK);
    while (tokenpool_client_take(&heir, now, 1) == QOS_OK)
        took++;
    CHECK_LE(took, 2000);
}

/* A debt that is never paid is in no period's report again: the monitor counts each forced I/O once, of an engine that comes
 * too seldom for a report at the end. */
static void test_debt_is_counted_once(void)
{
    struct tokenpool_client c, other;
    struct qos_stats s;
    uint64_t done = 0;
    unsigned i;
    base(100, 0, 0, 0, &c, &other);
    for (i = 0; i < 20 * 64; i++) {
        rig_run(&monitor, i * S / 64);
        (void)!tokenpool_client_take(&other, i * S / 64, 1);
        tokenpool_client_run(&c, i * S / 64, 0);
        if (i % 64 >= 3 || tokenpool_client_force(&c, i * S / 64, 1) != QOS_OK)
            continue;
        tokenpool_client_complete(&c, 1);
        done++;
    }
    CHECK_EQ(tokenpool_monitor_stats(&monitor, 0, &s), QOS_OK);
    CHECK_GE(done, 30);
    CHECK_LE(s.granted, done);
    CHECK_GE(s.granted + 4, done);
}

/* A stray store of 0 into the period word, seen by an engine behind a transport that then sleeps: it does not count the
 * epochs from 0, and takes nothing after its epoch. */
static void test_zero_period(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t now, word;
    base(100, 60, 60, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 1, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    for (now = 0; now <= 8 * S; now += S / 2) {
        rig_run(&monitor, now);
        word = storage[TOKENPOOL_OFFSET_PERIOD / 8];
        storage[TOKENPOOL_OFFSET_PERIOD / 8] = now == 4 * S ? 0 : word;
        while (now != 5 * S && now < 6 * S && tokenpool_client_next(&c, now ? now - 1 : 0, 0, &op))
            tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
        storage[TOKENPOOL_OFFSET_PERIOD / 8] = word;
    }
    CHECK_EQ(rig_client(&c).epoch, 6);
    CHECK_LE(rig_client(&c).deadline_ns, 6 * S);
}

/* A stray store of 0 into the period word, early in an epoch whose end is known: the end stays as it was. So the next
 * report, which says the phase in its bits 54 and 55, is an early one. */
static void test_stray_period(void)
{
    struct tokenpool_client c;
    uint64_t now, word;
    base(100, 60, 0, 0, &c, NULL);
    tokenpool_client_run(&c, S - MS, 0);
    rig_run(&monitor, S);
    rig_tick(&c, S);
    word = storage[TOKENPOOL_OFFSET_PERIOD / 8];
    storage[TOKENPOOL_OFFSET_PERIOD / 8] = 0;
    rig_tick(&c, S + 100 * MS);
    storage[TOKENPOOL_OFFSET_PERIOD / 8] = word;
    for (now = S + 100 * MS; now <= S + 800 * MS; now += 10 * MS) {
        tokenpool_client_run(&c, now, 0);
        CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 54 & 3, now >= S + 750 * MS);
    }
}

/* A clock that goes back, at any operation of an engine behind a transport, and at any time: no hang, and no token
 * after its epoch. */
static void test_step_back(void)
{
    struct tokenpool_client c;
    struct tokenpool_op op;
    uint64_t at, now, got, t;
    unsigned how;
    for (how = 0; how < 2; how++)
        for (at = 0; at < 12; at++) {
            uint64_t operations = 0;
            CHECK_CONTEXT("%s, operation %u", how ? "take" : "next", (unsigned)at);
            base(100, 90, 0, 0, &c, NULL);
            CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage),
                     QOS_OK);
            tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
            for (now = 0, got = 0; now < 3 * S; now += MS) {
                rig_run(&monitor, now);
                while (tokenpool_client_next(&c, now, 1, &op)) {
                    t = operations++ == at ? now - qos_min(now, 1) : now;
                    if (how && tokenpool_client_take(&c, t, 1) == QOS_OK)
                        got += now >= 2 * S;
                    tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
                    if (!how && tokenpool_client_next(&c, t, 1, &op))
                        tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
                }
                while (now >= 2 * S && tokenpool_client_take(&c, now, 1) == QOS_OK)
                    got++;
                CHECK(tokenpool_client_next_ns(&c, now, 1) < now + S);
            }
            CHECK_EQ(got, 100); /* 90, and 10 from the pool */
        }
    /* After a step every take reads the period word: not one token of an epoch after it. */
    base(100, 90, 0, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_take(&c, 10 * MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 5 * MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&c, 600 * MS, 1), QOS_OK);
    CHECK_EQ(tokenpool_client_epoch(&c), 1);
    rig_run(&monitor, S);
    CHECK_EQ(tokenpool_client_take(&c, 600 * MS + 1, 1), QOS_OK); /* its clock is 400 ms late */
    CHECK_EQ(tokenpool_client_epoch(&c), 2);
}

/* A clock goes back by an hour while terms are read: if they are of another epoch, they are read again soon. */
static void test_step_back_in_a_read(void)
{
    struct tokenpool_client a, c;
    struct tokenpool_op op;
    base(100, 60, 0, 0, &a, NULL);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage), QOS_OK);
    CHECK(tokenpool_client_next(&c, 3600 * S, 1, &op));
    tokenpool_client_done(&c, tokenpool_storage_run(storage, &op));
    CHECK(tokenpool_client_next(&c, 3600 * S, 1, &op));
    CHECK_GE(op.offset_bytes, TOKENPOOL_OFFSET_TERMS);
    CHECK(!tokenpool_client_next(&c, S / 2, 1, &op));
    tokenpool_client_done(&c, 0);
    CHECK_LE(tokenpool_client_next_ns(&c, S / 2, 1), S / 2 + MS);
}

/* A client called each T / 4, whose clock goes back by more than what passed since the call before, in the last quarter:
 * that call reports, so the next period does not withhold its reservation. */
static void test_step_back_late(void)
{
    struct tokenpool_client c;
    uint64_t k, back_ns = 0;
    rig_config(2, 30, 100, 0);
    config.silent_periods = 1;
    rig_init();
    rig_join(0, 60, 0);
    rig_engine(&c, 0);
    for (k = 0; k <= 12; k++) {
        if (k % 4 == 0)
            rig_run(&monitor, k / 4 * S);
        if (k == 11)
            back_ns = S / 4 + 2 * MS;
        tokenpool_client_run(&c, k * S / 4 + 5 * MS - back_ns, 0);
    }
    CHECK(!rig_slot(0).silent);
    CHECK_EQ(rig_client(&c).reservation, 60);
}

/* next_ns looks at its own time: tokens in hand whose deadline has passed by then need a look. */
static void test_next_after_the_deadline(void)
{
    struct tokenpool_client c;
    base(100, 50, 0, 0, &c, NULL);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, sizeof storage), QOS_OK);
    tokenpool_client_run(&c, 5 * MS, 1); /* it does not know when the epoch began */
    CHECK_EQ(tokenpool_client_held(&c), 20);
    CHECK_EQ(tokenpool_client_next_ns(&c, 5 * MS, 1), 5 * MS);
    CHECK_EQ(tokenpool_client_next_ns(&c, 5 * MS + 1000, 1), 5 * MS + 1000);
}

/* A client that never calls set_queued, whose I/Os the node slows down: it keeps its reservation from the second period
 * on. One that uses a half returns the other half. */
static void test_slow_node(void)
{
    struct tokenpool_client c;
    uint64_t now, got = 0, period, returned = 0;
    unsigned slow;
    for (slow = 0; slow < 2; slow++) {
        CHECK_CONTEXT("%s", slow ? "slow node" : "less demand");
        returned = 0;
        base(1000, 1000, 0, 0, &c, NULL);
        for (period = 0; period < 12; period++) {
            got = 0;
            for (now = period * S; now < (period + 1) * S; now += MS) {
                rig_run(&monitor, now);
                /* one each 2 ms; on the slow node the rest of its requests in the last quarter */
                if (now % (2 * MS) == 0 && tokenpool_client_take(&c, now, 1) == QOS_OK)
                    got++;
                if (slow && now % S > 3 * S / 4)
                    while (tokenpool_client_take(&c, now, 1) == QOS_OK)
                        got++;
                tokenpool_client_complete(&c, 1);
            }
            returned += rig_client(&c).kept < 520;
        }
        if (slow)
            CHECK_LE(990, got);
        else
            CHECK_WITHIN(returned, 8, 11); /* the others are trials, more and more rarely */
    }
}

/* A node serves an I/O in 1.5 ms, and a client has one there at a time, and more in its queue. Its calls are 1 ms apart, and
 * one at the end of each I/O, before the next take: the node is the limit. */
static void test_one_at_a_time(void)
{
    struct tokenpool_client c;
    struct tokenpool_monitor_state state;
    uint64_t now, ends = 0;
    rig_config(2, 30, 1000, 0);
    config.flags = 0;
    rig_init();
    rig_join(0, 500, 0);
    rig_engine(&c, 0);
    CHECK_CONTEXT("one at a time");
    for (now = 0; now < 12 * S; now += MS / 2) {
        if (now % MS == 0)
            rig_run(&monitor, now);
        tokenpool_client_set_queued(&c, TOKENPOOL_BACKLOGGED);
        if (ends && now == ends)
            tokenpool_client_complete(&c, 1);
        if (now >= ends || now % MS == 0)
            tokenpool_client_run(&c, now, 0);
        if (now >= ends && tokenpool_client_take(&c, now, 1) == QOS_OK)
            ends = now + 3 * MS / 2;
    }
    CHECK_EQ(tokenpool_monitor_info(&monitor, &state), QOS_OK);
    CHECK_WITHIN(state.capacity, 600, 750); /* it does 667 */
}

/* A request above the batch gets all its tokens at once, or none. */
static void test_large(void)
{
    struct tokenpool_client a, b;
    base(1000, 100, 0, 0, &a, &b);
    CHECK_EQ(tokenpool_client_take(&b, 0, 400), QOS_OK);
    CHECK_EQ(rig_pool(), 500);
    CHECK_EQ(tokenpool_client_take(&a, 0, 700), QOS_EAGAIN); /* 600 more than it has */
    CHECK_EQ(tokenpool_client_take(&a, 100 * MS, 700), QOS_EAGAIN);
    CHECK_EQ(rig_pool(), 500); /* others lose nothing */
    CHECK_EQ(tokenpool_client_take(&b, 100 * MS, 500), QOS_OK);
    CHECK_EQ(rig_pool(), 0);
}

/* A claim is performed late, on the pool of a later period, which is empty. Whether its answer comes or not, and
 * whether the engine has seen that period or not, it does not claim from that pool again. */
static void test_fails_once(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op, start;
    uint64_t answer;
    unsigned how;
    for (how = 0; how < 4; how++) {
        bool lost = how & 1, between = how & 2;
        uint64_t at = S;
        CHECK_CONTEXT("%s, %s", lost ? "lost" : "answered", between ? "a period between" : "the next period");
        base(100, 100, 0, 0, &a, &b); /* all tokens are reserved */
        CHECK(tokenpool_client_next(&b, 1, 1, &op) && op.kind == TOKENPOOL_FETCH_ADD);
        if (between) {
            rig_run(&monitor, S);
            at = 2 * S;
        }
        CHECK(tokenpool_monitor_next(&monitor, at, &start) && start.kind == TOKENPOOL_COMPARE_SWAP);
        answer = tokenpool_storage_run(storage, &start); /* the pool is new, the period word is not */
        CHECK_EQ(answer, start.compare);
        answer = tokenpool_storage_run(storage, &op);
        CHECK_EQ(rig_pool(), -30);
        if (lost)
            tokenpool_client_fail(&b);
        else
            tokenpool_client_done(&b, answer);
        rig_tick(&b, at);
        CHECK_EQ(rig_client(&b).epoch, between ? 2 : 1);
        tokenpool_monitor_done(&monitor, start.compare);
        rig_run(&monitor, at);
        rig_tick(&b, at);
        CHECK_EQ(rig_client(&b).epoch, between ? 3 : 2);
        CHECK(rig_client(&b).running);
        CHECK_EQ(tokenpool_client_take(&b, at, 1), QOS_EAGAIN);
        CHECK_EQ(rig_pool(), -30);
        /* It reads the pool, and claims once tokens are there. */
        storage[TOKENPOOL_OFFSET_POOL / 8] = (UINT64_C(5) << 32) | (uint32_t)storage[TOKENPOOL_OFFSET_POOL / 8];
        CHECK_EQ(tokenpool_client_take(&b, tokenpool_client_next_ns(&b, at, 1), 1), QOS_OK);
        CHECK_EQ(rig_pool(), -25);
    }
}

static void test_ordered(void)
{
    struct tokenpool_client a, b;
    base(180, 60, 0, TOKENPOOL_ORDERED, &a, &b);            /* claims of a quarter of the pool */
    CHECK_EQ(tokenpool_client_take(&a, 0, 70), QOS_EAGAIN); /* 60 of its own, and tickets 0..29 */
    CHECK_EQ(tokenpool_client_take(&b, 0, 11), QOS_EAGAIN); /* tickets 30..59 */
    storage[TOKENPOOL_OFFSET_SERVED / 8] += UINT64_C(40) << 32;
    CHECK_EQ(tokenpool_client_take(&b, 10 * MS, 11), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_held(&b), 10);
    CHECK_EQ(tokenpool_client_take(&a, 10 * MS, 70), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&a, 10 * MS, 21), QOS_EAGAIN); /* tickets 60..89, behind b */
    CHECK_EQ(tokenpool_client_held(&a), 20);
    CHECK_EQ(rig_pool(), 90);
    CHECK(tokenpool_client_next_ns(&b, 10 * MS, 11) > 10 * MS);
    CHECK_EQ(tokenpool_client_take(&b, 20 * MS, 11), QOS_EAGAIN); /* reads `served`, and claims nothing */
    CHECK_EQ(rig_pool(), 90);
}

int main(void)
{
    check_begin("unit/tokenpool_client");
    test_example_1();
    test_claims();
    test_lost_claims();
    test_straddle();
    test_limit_and_debt();
    test_large_debt();
    test_times();
    test_demand();
    test_gone();
    test_report_again();
    test_overtaken_terms();
    test_begin();
    test_advance();
    test_back_from_alone();
    test_overtaken_at_0();
    test_too_large();
    test_back_off();
    test_back_off_again();
    test_most();
    test_steady_reports();
    test_odd_period();
    test_one_ticket();
    test_small_storage();
    test_hint();
    test_few_reports();
    test_waited_once();
    test_reads_of_who_waits();
    test_answers_later_than_a_tick();
    test_remote();
    test_forced_and_died();
    test_restart();
    test_doubtful_end();
    test_seen_late();
    test_behind_the_limit();
    test_above_client_capacity();
    test_taken_back();
    test_zero_period();
    test_stray_period();
    test_cleared_report();
    test_lost_opening();
    test_forced_before();
    test_debt_at_rest();
    test_debt_is_counted_once();
    test_step_back();
    test_step_back_in_a_read();
    test_step_back_late();
    test_next_after_the_deadline();
    test_slow_node();
    test_one_at_a_time();
    test_large();
    test_fails_once();
    test_ordered();
    return check_end();
}
