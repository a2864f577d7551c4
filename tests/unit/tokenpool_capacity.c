// proves: the capacity estimate step by step: it grows when all was used and clients waited; it is the mean of the last M
// proves: totals while tokens are left that clients want; each move that did not help is taken back; a demand that is the
// proves: limit changes nothing; under-use alerts; totals clamped to the tokens issued
// variants: native san i386
// whole: san i386
#include "unit/tokenpool_rig.h"

enum { IDLE, BUSY, QUEUE, WAITED };
static uint64_t period;

/* Two clients, with 200 and 300 of 1000 tokens; a step is 50; 10 of them are within the estimate. */
static void base(uint64_t equal_within, uint64_t step, uint32_t history, uint32_t flags)
{
    rig_config(2, 5, 1000, 0);
    config.flags = flags;
    config.equal_within = equal_within;
    config.capacity_step = step;
    config.history = history;
    config.alert_periods = 3;
    config.overrun = 0;
    rig_init();
    rig_join(0, 200, 0);
    rig_join(1, 300, 0);
    period = 0;
    rig_run(&monitor, 0);
}

static uint64_t lost; /* of the pool in each period: in nobody's report */

/* A period in which all of the pool is claimed, and the clients keep their reservations and complete these amounts;
 * returns the next estimate. */
static uint64_t after(uint64_t a, uint64_t demand_a, uint64_t b, uint64_t demand_b)
{
    uint64_t epoch = rig_info().epoch, pool = rig_info().bound - 500 - lost, a_kept = 200, b_kept = 300;
    storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX; /* count 0 */
    if (demand_b >= QUEUE)                            /* who has a queue holds K and G */
        b_kept += pool;
    else
        a_kept += pool;
    rig_report(0, epoch, 2, qos_min(a_kept, TOKENPOOL_TOKENS_MAX), a);
    rig_report(1, epoch, 2, qos_min(b_kept, TOKENPOOL_TOKENS_MAX), b);
    storage[tokenpool_storage_report(2, 0) / 8] ^= (demand_a ^ 1) << 52;
    storage[tokenpool_storage_report(2, 1) / 8] ^= (demand_b ^ 1) << 52;
    rig_run(&monitor, period * S + MS);
    storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX; /* and the overrun */
    rig_run(&monitor, period * S + 2 * MS);
    rig_run(&monitor, ++period * S);
    CHECK_EQ(rig_info().last_used, a + b);
    return rig_info().capacity;
}

static void test_growth(void)
{
    unsigned i;
    base(0, 0, 3, 0);
    CHECK_EQ(after(500, WAITED, 500, QUEUE), 1050);
    CHECK_EQ(after(540, QUEUE, 500, WAITED), 1100); /* 1040 is 1050 within 10 */
    CHECK_EQ(after(600, QUEUE, 500, QUEUE), 1100);  /* nobody waited */
    CHECK_EQ(after(620, BUSY, 500, BUSY), 1120);    /* the overrun was used */
    CHECK_EQ(after(620, IDLE, 500, WAITED), 1170);

    base(0, QOS_NOTHING, 1, 0);
    CHECK_EQ(after(500, WAITED, 500, WAITED), 1000);
    base(0, TOKENPOOL_TOKENS_MAX, 1, 0);
    CHECK_EQ(after(500, WAITED, 500, WAITED), TOKENPOOL_TOKENS_MAX); /* at most that */
    base(QOS_NOTHING, 0, 1, 0);
    CHECK_EQ(after(500, WAITED, 490, QUEUE), 990); /* short by more than what is served after the last report */
    base(0, 0, 0, TOKENPOOL_FIXED);
    CHECK_EQ(after(500, WAITED, 500, WAITED), 1000);
    CHECK_EQ(after(100, QUEUE, 100, QUEUE), 1000);

    base(0, 0, 1, 0); /* nor does the overrun lead beyond it */
    config.capacity = TOKENPOOL_TOKENS_MAX;
    rig_init();
    rig_join(0, 200, 0);
    rig_join(1, 300, 0);
    period = 0;
    rig_run(&monitor, 0);
    CHECK_EQ(after(60000000, BUSY, 10000000, BUSY), TOKENPOOL_TOKENS_MAX);

    /* After a fall twice the last step, up to the profile; above it by steps. */
    base(0, 0, 3, 0);
    for (i = 0; i < 8; i++) {
        static const uint64_t next[] = {400, 450, 550, 750, 1000, 1050, 1100, 1150};
        uint64_t all = rig_info().capacity;
        CHECK_CONTEXT("after a slow period, period %u", i);
        CHECK_EQ(i ? after(all - 300, WAITED, 300, WAITED) : after(100, QUEUE, 300, WAITED), next[i]);
    }
}

static void test_fall(void)
{
    unsigned i;
    base(QOS_NOTHING, 0, 3, 0); /* tokens left: a queue, and U below the estimate */
    CHECK_EQ(after(500, QUEUE, 450, QUEUE), 950);
    CHECK_EQ(after(500, QUEUE, 444, BUSY), 947); /* (950 + 944) / 2 */
    CHECK_EQ(after(500, QUEUE, 442, IDLE), 945); /* (950 + 944 + 942) / 3, rounded down */
    CHECK_EQ(after(400, QUEUE, 400, BUSY), 947); /* U fell more than the estimate: taken back */
    CHECK_EQ(after(400, QUEUE, 400, BUSY), 800); /* a fall by a tenth: the older records do not count */
    CHECK_EQ(after(400, QUEUE, 390, BUSY), 795); /* (800 + 790) / 2 */
    base(0, 0, 1, 0);
    CHECK_EQ(after(4, QUEUE, 1, QUEUE), 5);
    CHECK_EQ(after(0, QUEUE, 0, QUEUE), 5); /* nothing was served: no information */

    /* A demand below the estimate says nothing of the node: nobody has a queue, or waits. */
    base(0, 0, 0, 0);
    for (i = 0; i < 5; i++)
        CHECK_EQ(after(200, BUSY, 300, IDLE), 1000);

    /* Reservation that stayed unspent with a queue is left, although all of the estimate was used. */
    base(0, 0, 1, 0);
    CHECK_EQ(after(150, QUEUE, 840, WAITED), 990);
    base(0, 0, 1, 0);
    CHECK_EQ(after(150, BUSY, 840, WAITED), 1050); /* without one it is not */
}

/* Pool tokens that nobody's report tells of may have been used: no fall, and after one no sign of the node either. */
static void test_unknown(void)
{
    base(0, 0, 1, 0);
    lost = 300;
    CHECK_EQ(after(200, QUEUE, 500, WAITED), 1000);
    CHECK_EQ(after(200, QUEUE, 300, WAITED), 798); /* 200 are left for certain */
    CHECK_EQ(after(200, QUEUE, 300, WAITED), 848); /* tried, up to the profile's */
    lost = 0;
    base(0, 0, 1, 0);
    CHECK_EQ(after(200, QUEUE, 600, QUEUE), 800);
    lost = 300;
    CHECK_EQ(after(200, QUEUE, 300, QUEUE), 800); /* the node may be as fast as before */
    lost = 0;
}

/* Nor tokens of a client that leaves, which it spent, or that leaves and joins. All of the pool is claimed, and the other
 * one has a queue. */
static void test_left(bool joins)
{
    unsigned i;
    base(0, 0, 1, 0);
    for (i = 0; i < 5; i++) {
        CHECK_CONTEXT("a client leaves%s, period %u", joins ? " and joins" : "", i);
        storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX;
        rig_report(0, rig_info().epoch, 2, 200, 500);
        rig_report(1, rig_info().epoch, 2, 500, 500);
        storage[tokenpool_storage_report(2, 1) / 8] ^= (uint64_t)(QUEUE ^ BUSY) << 52;
        rig_run(&monitor, period * S + MS);
        CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
        if (joins)
            rig_join(0, 200, 0);
        rig_run(&monitor, ++period * S - MS);
        rig_run(&monitor, period * S);
        CHECK_EQ(rig_info().last_used, 500);
        CHECK_EQ(rig_info().capacity, 1000);
        if (!joins) { /* now for the next period */
            rig_join(0, 200, 0);
            rig_run(&monitor, ++period * S);
        }
    }
}

/* Nor what a client kept and did not want: it is not left, and no sign that a fall cost throughput. */
static void test_unwanted(void)
{
    base(0, 0, 1, 0);
    CHECK_EQ(after(0, BUSY, 795, QUEUE), 1000);
    CHECK_EQ(after(200, QUEUE, 600, QUEUE), 800);
    CHECK_EQ(after(0, BUSY, 550, QUEUE), 800);
}

/* The overrun leads up from a fall: the records of the slower node do not count in the next fall. */
static void test_fall_after_overrun(void)
{
    base(0, 0, 3, 0);
    CHECK_EQ(after(300, QUEUE, 300, QUEUE), 600);
    CHECK_EQ(after(330, BUSY, 300, BUSY), 630);
    CHECK_EQ(after(360, BUSY, 300, BUSY), 660);
    CHECK_EQ(after(390, BUSY, 300, BUSY), 690);
    CHECK_EQ(after(350, QUEUE, 290, QUEUE), 640);
}

/* A client that lies: it says that it has a queue, and leaves its reservation. The fall takes from the others, so it is
 * taken back, and no sign for the next periods; a node that is slower than that is seen. */
static void test_trial(void)
{
    unsigned i;
    base(0, 0, 1, 0);
    CHECK_EQ(after(0, QUEUE, 800, WAITED), 800);
    CHECK_EQ(after(0, QUEUE, 600, WAITED), 1000);
    for (i = 0; i < 20; i++)
        CHECK_EQ(after(0, QUEUE, 800, WAITED), 1000);
    CHECK_EQ(after(0, QUEUE, 500, WAITED), 500);

    /* A step that was too large: the next one comes after 2 more periods, then after 6 more. */
    base(0, 0, 1, 0);
    for (i = 0; i < 12; i++) {
        static const uint64_t next[] = {1050, 1000, 1000, 1000, 1050, 1000, 1000, 1000, 1000, 1000, 1000, 1000};
        CHECK_CONTEXT("steps that are too large, period %u", i);
        CHECK_EQ(after(500, WAITED, 500, QUEUE), next[i]);
    }
}

/* Five clients of a node that does 10,000 I/Os a period in equal shares; client 2 reserved 1000, does no I/O and writes
 * its report itself: all was used and it waited (0), nothing was used and it has a queue (1), anything (2), or a pattern of
 * six periods (3 and more), so that one lie confirms another. It moves the estimate by no more than its own tokens: upwards
 * what one client can do, downwards what it took and did not use, with the guard also what that keeps for it. The others
 * get their reservations. */
static void test_liar(unsigned kind, uint32_t flags)
{
    enum { N = 5, LIAR = 2, MOST = 3500 };
    static const uint64_t reserved[N] = {1900, 500, 1000, 0, 0};
    static struct tokenpool_client c[N];
    uint64_t now, p, out[N] = {0}, got[N], *report, took, own = 0, off = 0, says[6];
    double credit[N] = {0};
    struct qos_rng rng;
    unsigned i;
    qos_rng_seed(&rng, kind < 3 ? 5 : kind);
    for (i = 0; i < 6; i++) /* of its tokens it used none, half, all; BUSY, QUEUE, WAITED, mostly QUEUE */
        says[i] = 500 * qos_rng_below(&rng, 3) | (kind % 2 ? QUEUE : 1 + qos_rng_below(&rng, 3)) << 52;
    memset(&config, 0, sizeof config);
    config.clients = N;
    config.capacity = 10000;
    config.client_capacity = MOST;
    config.flags = flags;
    rig_init();
    for (i = 0; i < N; i++) {
        rig_join(i, reserved[i], 0);
        rig_engine(&c[i], i);
        tokenpool_client_set_queued(&c[i], TOKENPOOL_BACKLOGGED);
    }
    report = &storage[tokenpool_storage_report(N, LIAR) / 8];
    for (p = 0, now = 0; p < 60; p++) {
        memset(got, 0, sizeof got);
        for (took = 0; now < (p + 1) * S; now += MS) {
            unsigned busy = 0;
            rig_run(&monitor, now);
            for (i = 0; i < N; i++) {
                uint64_t most = i != LIAR ? 64 : kind == 0 ? 400 : 0, mine = 0; /* the first takes the pool, too */
                while (out[i] < 64 && mine < most && tokenpool_client_take(&c[i], now, 1) == QOS_OK) {
                    mine++;
                    out[i] += i != LIAR;
                }
                took += i == LIAR ? mine : 0;
                busy += out[i] > 0;
            }
            *report = (rig_info().epoch % 31 + 1) << 59 | (*report & UINT64_C(7) << 56) | UINT64_C(2) << 54 |
                      (kind == 0   ? UINT64_C(3) << 52 | UINT64_C(1000) << 26 | TOKENPOOL_TOKENS_MAX
                       : kind == 1 ? UINT64_C(2) << 52 | UINT64_C(1000) << 26
                       : kind == 2 ? qos_rng_below(&rng, UINT64_C(1) << 54)
                                   : says[p % 6] | UINT64_C(1000) << 26);
            for (i = 0; i < N; i++) {
                uint64_t done;
                credit[i] += out[i] ? 10.0 / busy : 0;
                done = qos_min((uint64_t)credit[i], out[i]);
                credit[i] = out[i] == done ? 0 : credit[i] - (double)done;
                out[i] -= done;
                tokenpool_client_complete(&c[i], done);
                got[i] += done;
            }
        }
        CHECK_CONTEXT("liar of kind %u%s, period %u", kind, flags ? ", guard" : "", (unsigned)p);
        own = qos_max(own, qos_max(took, 1000));
        if (p < 5)
            continue;
        CHECK_LE(rig_info().capacity, 10000 + MOST + 500);
        off += rig_info().capacity + own + 200 < 10000;
        CHECK_GE(rig_info().capacity, 10000 - (flags ? 4500 : 1200));
        for (i = 0; i < N; i++)
            if (i != LIAR)
                CHECK_GE(got[i] * 100, reserved[i] * 99);
    }
    CHECK_LE(kind >= 3 && flags ? 0 : off, 3); /* falls that are tried and taken back */
}

/* A node that becomes slower by one part in `part` every `every` periods, for 20 periods: from then on the estimate is at most
 * a tenth above what the node did 5 periods ago, and at the end what it does. */
static void test_decline(unsigned n, uint64_t reserved, unsigned every, uint64_t part)
{
    static struct tokenpool_client c[4];
    uint64_t out[4] = {0}, done[4], rate = 10000, due = 0, now, was[40], k;
    unsigned i, none;
    memset(&config, 0, sizeof config);
    config.clients = n;
    config.capacity = rate;
    rig_init();
    for (i = 0; i < n; i++) {
        rig_join(i, reserved, 0);
        rig_engine(&c[i], i);
        tokenpool_client_set_queued(&c[i], TOKENPOOL_BACKLOGGED);
    }
    CHECK_CONTEXT("%u clients, %" PRIu64 " each, slower by 1/%" PRIu64 " every %u periods", n, reserved, part, every);
    for (now = 0; now < 40 * S; now += MS) {
        uint64_t p = now / S;
        if (now % (every * S) == 0 && p >= 5 && p < 25)
            rate -= rate / part;
        was[p] = rate;
        rig_run(&monitor, now);
        for (due += rate, k = due / 1000, due %= 1000, i = 0; i < n; i++)
            for (done[i] = 0; out[i] < 64 && tokenpool_client_take(&c[i], now, 1) == QOS_OK;)
                out[i]++;
        for (i = (unsigned)(now / MS), none = 0; k && none < n; i++)
            if (out[i % n]) {
                out[i % n]--, done[i % n]++, k--;
                none = 0;
            } else {
                none++;
            }
        for (i = 0; i < n; i++)
            tokenpool_client_complete(&c[i], done[i]);
        if (now % S == S / 2 && p >= 5)
            CHECK_LE(rig_info().capacity * 10, was[p - 5] * 11 + 500);
    }
    CHECK_LE(rig_info().capacity * 100, rate * 107);
    CHECK_GE(rig_info().capacity * 100, rate * 99);
}

/* A monitor that takes a storage back has forgotten its former moves: the fall before it was replaced is not taken back. */
static void test_old_fall(void)
{
    static struct tokenpool_monitor second;
    static uint64_t second_memory[512] __attribute__((aligned(64)));
    uint64_t now;
    base(0, 0, 3, 0);
    CHECK_EQ(after(100, QUEUE, 300, WAITED), 400);
    CHECK_EQ(tokenpool_monitor_resume(&second, second_memory, sizeof second_memory, storage, sizeof storage, &config),
             QOS_OK);
    for (now = S + 3 * MS; now < S + S / 2; now += MS)
        rig_run(&second, now);
    rig_run(&monitor, now);
    CHECK(!rig_info().active);
    for (; now < 5 * S; now += MS) { /* the second one is dead, and nobody asks */
        rig_report(0, rig_info().epoch, 2, 0, 0);
        rig_report(1, rig_info().epoch, 2, 0, 0);
        rig_run(&monitor, now);
    }
    CHECK(rig_info().active);
    CHECK_EQ(rig_info().capacity, 400);
}

/* Each move of the estimate, by its name in the chapter; from STILL a new storage. */
static void test_moves(void)
{
    static const struct {
        const char *move;
        uint64_t a, demand_a, b, demand_b, next;
    } steps[] = {
        {"STILL -> GREW", 500, WAITED, 500, WAITED, 1050}, {"GREW -> GREW", 550, WAITED, 500, WAITED, 1100},
        {"GREW -> STILL", 600, BUSY, 500, BUSY, 1100},     {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},
        {"FELL -> AGAIN", 200, QUEUE, 540, QUEUE, 800},    {"AGAIN -> GREW", 200, WAITED, 600, WAITED, 850},
        {"GREW -> FELL", 200, QUEUE, 600, QUEUE, 800},     {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},
        {"FELL -> FELL", 200, QUEUE, 570, QUEUE, 770},     {"FELL -> STILL", 200, BUSY, 570, BUSY, 770},
        {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},    {"FELL -> GREW", 200, WAITED, 600, WAITED, 850},
        {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},    {"FELL -> AGAIN", 200, QUEUE, 540, QUEUE, 800},
        {"AGAIN -> FELL", 200, QUEUE, 570, QUEUE, 770},    {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},
        {"FELL -> AGAIN", 200, QUEUE, 540, QUEUE, 800},    {"AGAIN -> BACK", 200, QUEUE, 540, QUEUE, 1000},
        {"BACK -> GREW", 500, WAITED, 500, WAITED, 1050},  {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},
        {"FELL -> AGAIN", 200, QUEUE, 540, QUEUE, 800},    {"AGAIN -> STILL", 200, BUSY, 600, BUSY, 800},
        {"STILL -> FELL", 200, QUEUE, 600, QUEUE, 800},    {"FELL -> BACK", 200, QUEUE, 400, QUEUE, 1000},
        {"BACK -> STILL", 500, BUSY, 500, BUSY, 1000},     {"STILL -> FELL", 200, QUEUE, 780, QUEUE, 980},
        {"FELL -> BACK", 200, QUEUE, 640, QUEUE, 1000},    {"BACK -> FELL", 200, QUEUE, 650, QUEUE, 850},
    };
    size_t i;
    for (i = 0; i < sizeof steps / sizeof *steps; i++) {
        CHECK_CONTEXT("%s, step %u", steps[i].move, (unsigned)i);
        if (steps[i].move[0] == 'S')
            base(0, 0, 1, 0);
        CHECK_EQ(after(steps[i].a, steps[i].demand_a, steps[i].b, steps[i].demand_b), steps[i].next);
    }
}

/* The guard leaves a node idle for the sake of who is behind: a fall after which it is not, at the others' cost, stays. */
static void test_behind(void)
{
    unsigned k;
    for (k = 0; k < 4; k++) {
        bool guard = k % 2, behind = k / 2;
        CHECK_CONTEXT("case %u", k);
        base(0, 0, 1, guard ? TOKENPOOL_GUARD : 0);
        CHECK_EQ(after(50, QUEUE, 800, WAITED), 850);
        CHECK_EQ(behind ? after(50, QUEUE, 650, WAITED) : after(200, WAITED, 550, WAITED),
                 guard && !behind ? 850 : 1000);
    }
}

static void test_alerts(void)
{
    unsigned i;
    base(0, 0, 0, TOKENPOOL_FIXED);
    for (i = 0; i < 3; i++) { /* client 1 returns a part in each period */
        CHECK(!rig_slot(1).alert && rig_slot(1).under_used == i);
        rig_report(0, rig_info().epoch, 2, 200, 190);
        rig_report(1, rig_info().epoch, 2, 290, 290);
        rig_run(&monitor, ++period * S);
    }
    CHECK(rig_slot(1).alert && rig_slot(1).used == 290);
    CHECK(!rig_slot(0).alert && rig_slot(0).under_used == 0); /* it kept all, and the node completed less */
    (void)after(200, BUSY, 300, BUSY);
    CHECK(!rig_slot(1).alert && rig_slot(1).under_used == 0);

    rig_config(2, 5, 10000, 0); /* one part in 64 of a reservation may be returned: 100 of 6400 */
    rig_init();
    rig_join(0, 6400, 0);
    period = 0;
    rig_run(&monitor, 0);
    for (i = 0; i < 2; i++) {
        rig_report(0, rig_info().epoch, 2, 6300 - i, 0);
        rig_run(&monitor, ++period * S);
        CHECK_EQ(rig_slot(0).under_used, i);
    }
}

int main(void)
{
    unsigned i;
    check_begin("unit/tokenpool_capacity");
    test_growth();
    test_fall();
    test_fall_after_overrun();
    test_unknown();
    test_left(false);
    test_left(true);
    test_unwanted();
    test_trial();
    test_moves();
    test_behind();
    for (i = 0; i < qos_max(check_scaled(80), 10); i++)
        test_liar(i / 2, i % 2 ? TOKENPOOL_GUARD : 0);
    for (unsigned every = 1; every <= 2; every++) {
        test_decline(1, 0, every, 25);
        test_decline(4, 1000, every, 50);
        test_decline(4, 1000, every, 25);
    }
    test_old_fall();
    test_alerts();

    /* A report above what was issued counts as what was issued; the pool was not touched. */
    base(0, 0, 0, 0);
    rig_report(0, 1, 3, 200, TOKENPOOL_TOKENS_MAX);
    rig_run(&monitor, S);
    CHECK_EQ(rig_slot(0).used, 200);
    CHECK_EQ(rig_info().last_used, 200);
    return check_end();
}
