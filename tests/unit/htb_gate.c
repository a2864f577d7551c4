// proves: Section 5.3: a class always gets its own rate, and borrows up to the limits from the nearest ancestor with
// surplus, through four levels; large requests, several resources, force, the clock and the counters, all to the ns
#include "htb_world.h"

static void take_ok(struct world *w, uint32_t id, uint64_t n, uint64_t now_ns, bool borrowed)
{
    struct qos_stats before = stats_of(w, id), after;
    CHECK_EQ(htb_next_ns(&w->tree, now_ns, id, n), now_ns);
    CHECK_EQ(htb_take(&w->tree, now_ns, id, n), QOS_OK);
    after = stats_of(w, id);
    CHECK_EQ(after.granted, before.granted + n);
    CHECK_EQ(after.borrowed, before.borrowed + (borrowed ? n : 0));
    CHECK_EQ(after.refused, before.refused);
}

/* Refused now and 1 ns before next_ns, granted at next_ns. The test continues from there. */
static uint64_t take_waits(struct world *w, uint32_t id, uint64_t n, uint64_t now_ns, uint64_t until_ns)
{
    struct qos_stats before = stats_of(w, id);
    CHECK_EQ(htb_take(&w->tree, now_ns, id, n), QOS_EAGAIN);
    CHECK_EQ(stats_of(w, id).refused, before.refused + 1);
    CHECK_EQ(htb_next_ns(&w->tree, now_ns, id, n), until_ns);
    CHECK_EQ(htb_take(&w->tree, until_ns - 1, id, n), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w->tree, until_ns - 1, id, n), until_ns);
    CHECK_EQ(stats_of(w, id).granted, before.granted);
    CHECK_EQ(htb_take(&w->tree, until_ns, id, n), QOS_OK);
    return until_ns;
}

/* Root 1,000,000/s: 1 token per us, and 10,000 in the bucket. */
static void own_and_borrowed(void)
{
    struct htb_config config = world_config();
    struct world w;
    world_open(&w, &config);
    reserve(&w, 1, 0, 200000, 0, 0);
    reserve(&w, 2, 0, 800000, 0, 0);
    /* Everything starts empty. The root has 100 tokens after 100 us, the class after 500. */
    CHECK_EQ(take_waits(&w, 1, 100, 0, 100000), 100000);
    CHECK_EQ(stats_of(&w, 1).borrowed, 100);
    /* At 1 s both are full (2,000 and 10,000): 2,000 own, then the 8,000 left in the root. */
    take_ok(&w, 1, 1500, S, false);
    take_ok(&w, 1, 500, S, false);
    take_ok(&w, 1, 1, S, true);
    take_ok(&w, 1, 7999, S, true);
    take_waits(&w, 1, 1, S, S + 1000); /* what the root earns next */
    /* The other class still has all its own tokens; the root goes into debt for them. */
    take_ok(&w, 2, 8000, S + 1000, false);
    CHECK_EQ(htb_next_ns(&w.tree, S + 1000, 1, 1), S + 5000); /* own: 0.2 per us; 0.2 are there */
    take_waits(&w, 1, 1, S + 1000, S + 5000);
    CHECK_EQ(stats_of(&w, 1).granted, 100 + 10001 + 1);
    CHECK_EQ(stats_of(&w, 1).borrowed, 100 + 8001);
    CHECK_EQ(stats_of(&w, 2).borrowed, 0);
    /* Root: 0 at 1 s, +5 - 1 - 8000 - 1 = -7,997 at 1 s + 5 us. */
    CHECK_EQ(htb_next_ns(&w.tree, S + 5000, 5, 1), S + 5000 + 7998000);
    world_close(&w);
}

/* root 1,000,000 > A 400,000 > B 200,000 > C 100,000 > leaf 50,000: the leaf takes its own, then C's, B's, A's and the
 * root's tokens, in this order. All nodes above a lender are charged too. */
static void four_levels(void)
{
    struct htb_config config = world_config();
    struct world w;
    unsigned i;
    const uint64_t part[5] = {500, 500, 1000, 2000, 6000};
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 400000, 0, 0);
    reserve_group(&w, 2, 1, 200000, 0, 0);
    reserve_group(&w, 3, 2, 100000, 0, 0);
    reserve(&w, 4, 3, 50000, 0, 0);
    reserve(&w, 5, 3, 50000, 0, 0);
    reserve(&w, 6, 2, 0, 0, 0);
    reserve(&w, 7, 1, 0, 0, 0);
    /* At 1 s: root 10,000, A 4,000, B 2,000, C 1,000, leaves 500. Taking own tokens drains every one of them. */
    for (i = 0; i < 5; i++)
        take_ok(&w, 4, part[i], S, i != 0);
    CHECK_EQ(stats_of(&w, 4).granted, 10000);
    take_waits(&w, 4, 1, S, S + 1000);
    /* 1 us later the lenders have 0, so the sibling has only its own 500. Taking them puts all above it in debt. */
    take_ok(&w, 5, 500, S + 1000, false);
    CHECK_EQ(htb_next_ns(&w.tree, S + 1000, 5, 1), S + 21000); /* own, 0.05 per us */
    CHECK_EQ(htb_next_ns(&w.tree, S + 1000, 7, 1), S + 1000 + 501000);
    CHECK_EQ(htb_next_ns(&w.tree, S + 1000, 6, 1), S + 1000 + 501000);
    world_close(&w);

    /* The nearest lender pays first: a class next to C borrows from B although A and the root have more. */
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 400000, 0, 0);
    reserve_group(&w, 2, 1, 200000, 0, 0);
    reserve_group(&w, 3, 2, 100000, 0, 0);
    reserve(&w, 4, 3, 50000, 0, 0);
    reserve(&w, 6, 2, 0, 0, 0);
    take_ok(&w, 6, 2000, S, true); /* all of B's; A has 2,000 and the root 8,000 left; C and the leaf are unchanged */
    take_ok(&w, 4, 500, S, false); /* own; C 500, B -500, A 1,500, root 7,500 */
    take_ok(&w, 4, 500, S, true);  /* C's; C 0, B -1,000, A 1,000, root 7,000 */
    take_ok(&w, 4, 1000, S, true); /* A's; A 0, root 6,000 */
    take_ok(&w, 4, 6000, S, true); /* the root's */
    CHECK_EQ(htb_take(&w.tree, S, 4, 1), QOS_EAGAIN);
    /* Levels and tokens per us: C 0, 0.1; B -1,000, 0.2; A 0, 0.4; root 0, 1. */
    CHECK_EQ(htb_next_ns(&w.tree, S, 4, 100), S + 100000);     /* the root's */
    CHECK_EQ(htb_next_ns(&w.tree, S, 4, 10000), S + 10000000); /* all fill up in 10 ms; the leaf's depth is 500 */
    world_close(&w);
}

static void limits(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c;
    world_open(&w, &config);
    reserve(&w, 1, 0, 100000, 300000, 0);
    /* At 1 s: own 1,000, limit 3,000, root 10,000. */
    take_ok(&w, 1, 1000, S, false);
    take_ok(&w, 1, 2000, S, true);
    CHECK_EQ(htb_take(&w.tree, S, 1, 1), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 3), S + 10000); /* the limit: 0.3 per us */
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 1), S + 3334);
    /* In 10 s it gets exactly its limit, although the root has plenty. */
    {
        uint64_t now, taken = 0;
        for (now = S; now <= 11 * S; now += 1234567)
            taken += drain(&w, 1, 10, now);
        CHECK_LE(taken, 3000000 + 10);
        CHECK_GE(taken, 3000000 - 400);
    }
    world_close(&w);

    /* A group's limit stops borrowing from above it, but not own tokens of the class or the group. */
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 200000, 200000, 0);
    reserve(&w, 2, 1, 100000, 0, 0);
    reserve(&w, 3, 1, 0, 0, 0);
    take_ok(&w, 3, 2000, S, true); /* the group's: its rate and its limit are at 0 */
    CHECK_EQ(htb_take(&w.tree, S, 3, 1), QOS_EAGAIN);
    take_ok(&w, 2, 1000, S, false); /* own tokens; the group's limit and rate now owe 1,000 */
    CHECK_EQ(htb_take(&w.tree, S, 2, 1), QOS_EAGAIN);
    /* 1,001 at 0.2 per us, though the root holds 7,000, and one that class 2 claims. */
    CHECK_EQ(htb_next_ns(&w.tree, S, 3, 1), S + 5010000);
    CHECK_EQ(htb_next_ns(&w.tree, S, 2, 1), S + 10000); /* own, 0.1 per us */
    take_ok(&w, 2, 1, S + 10000, false);
    take_waits(&w, 3, 1, S + 10000, S + 5010000); /* 1,002 */
    world_close(&w);

    /* The lower limit binds: that of the group, or that of the class. */
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 0, 100000, 0);
    reserve(&w, 2, 1, 0, 500000, 0);
    reserve(&w, 3, 1, 0, 20000, 0);
    take_ok(&w, 2, 800, S, true); /* of the group's 1,000 */
    take_ok(&w, 3, 200, S, true); /* all of its own limit and the group's */
    CHECK_EQ(htb_next_ns(&w.tree, S, 2, 1), S + 10000);
    CHECK_EQ(htb_next_ns(&w.tree, S, 3, 1), S + 50000);
    /* Without the limits: at once. */
    c = class_of(0, 0, QOS_UNLIMITED);
    c.group = true;
    CHECK_EQ(htb_change(&w.tree, S, 1, &c, NULL), QOS_OK);
    take_ok(&w, 2, 1, S, true);
    c = class_of(1, 0, 0);
    CHECK_EQ(htb_change(&w.tree, S, 3, &c, NULL), QOS_OK);
    take_ok(&w, 3, 1, S, true);
    world_close(&w);
}

/* A request larger than the bucket waits for a full one. The next request waits exactly until the debt is paid. */
static void large_requests(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c;
    uint64_t now = 0, n[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    unsigned i;
    world_open(&w, &config);
    reserve(&w, 1, 0, 1000000, 0, 0);
    CHECK_EQ(force(&w, 7, 900000, 0, 0), QOS_OK);            /* the root lends nothing for a while */
    CHECK_EQ(take_waits(&w, 1, 50000, 0, 10 * MS), 10 * MS); /* full: 10,000 */
    CHECK_EQ(stats_of(&w, 1).debt, 40000);
    now = take_waits(&w, 1, 50000, 10 * MS, 60 * MS); /* 40,000 and 10,000 more at 1 per us */
    now = take_waits(&w, 1, 1, now, 100 * MS + 1000);
    CHECK_EQ(stats_of(&w, 1).debt, 0);
    for (i = 0; i < 20; i++)
        CHECK_EQ(htb_take(&w.tree, now + (i + 1) * 4010 * S, 1, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).debt, QOS_TOKENS_MAX - 10000);
    n[0] = 20000; /* the long path, through the limit of 10,000 of the second bucket too */
    c = class_of(0, 1000000, 1000000);
    CHECK_EQ(htb_change(&w.tree, 90000 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(force(&w, 7, 9 * 1000000, 0, 90001 * S), QOS_OK);
    CHECK_EQ(htb_take_all(&w.tree, 90001 * S, 1, n), QOS_OK);
    CHECK_EQ(htb_next_ns_all(&w.tree, 90001 * S, 1, n), 90001 * S + 20 * MS);
    CHECK_EQ(htb_take_all(&w.tree, 90001 * S + 20 * MS - 1, 1, n), QOS_EAGAIN);
    CHECK_EQ(htb_take_all(&w.tree, 90001 * S + 20 * MS, 1, n), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, now, 1, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(htb_next_ns(&w.tree, now, 1, QOS_TOKENS_MAX + 1), QOS_NEVER);
    world_close(&w);

    /* With request_max_tokens the bucket holds it, and a late poll loses nothing. */
    config.request_max_tokens = 50000;
    world_open(&w, &config);
    reserve(&w, 1, 0, 1000000, 0, 0);
    CHECK_EQ(force(&w, 7, 900000, 0, 0), QOS_OK);
    CHECK_EQ(take_waits(&w, 1, 50000, 0, 50 * MS), 50 * MS);
    CHECK_EQ(htb_take(&w.tree, 109 * MS, 1, 50000), QOS_OK); /* 59,000 earned */
    CHECK_EQ(htb_next_ns(&w.tree, 109 * MS, 1, 50000), 150 * MS);
    CHECK_EQ(stats_of(&w, 1).debt, 0);
    world_close(&w);
}

static void several_resources(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c = class_of(0, 100000, 0);
    uint64_t n[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    uint32_t r, lacks;
    config.resources = 4;
    for (r = 0; r < 4; r++) {
        config.rate_per_s[r] = 1000000;
        config.best_effort.rate_per_s[r] = 0;
        c.rate_per_s[r] = 100000; /* 1,000 in each */
    }
    for (lacks = 0; lacks < 4; lacks++) {
        world_open(&w, &config);
        CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
        CHECK_CONTEXT("resource %u lacks", lacks);
        /* One resource is used up, in the class and in the root: nothing at all is taken. */
        memset(n, 0, sizeof n);
        n[lacks] = 1000;
        CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_OK); /* own */
        n[lacks] = 9000;
        CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_OK); /* what the root has left */
        for (r = 0; r < 4; r++)
            n[r] = 1;
        CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_EAGAIN);
        CHECK_EQ(htb_next_ns_all(&w.tree, S, 1, n), S + 1000);
        for (r = 0; r < 4; r++)
            n[r] = r == lacks ? 0 : 1000;
        CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_OK); /* the others were not touched: its own 1,000 are there */
        CHECK_EQ(stats_of(&w, 1).borrowed, lacks == 0 ? 9000 : 0);
        for (r = 0; r < 4; r++)
            n[r] = r == lacks ? 0 : 9000;
        CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_OK); /* and the root's 9,000 */
        CHECK_EQ(htb_next_ns_all(&w.tree, S, 1, n), S + 9 * MS);
        for (r = 0; r < 4; r++)
            n[r] = 1;
        CHECK_EQ(htb_next_ns_all(&w.tree, S, 1, n), S + 1000);
        CHECK_EQ(htb_take_all(&w.tree, S + 999, 1, n), QOS_EAGAIN);
        CHECK_EQ(htb_take_all(&w.tree, S + 1000, 1, n), QOS_OK);
        n[lacks] = QOS_TOKENS_MAX + 1;
        world_draw(&w);
        CHECK_EQ(htb_take_all(&w.tree, S + 1000, 1, n), QOS_ERANGE);
        CHECK_EQ(htb_force(&w.tree, S + 1000, 1, n), QOS_ERANGE);
        CHECK_EQ(htb_next_ns_all(&w.tree, S + 1000, 1, n), QOS_NEVER);
        CHECK(world_same(&w));
        /* htb_take takes the first resource only. */
        CHECK_EQ(htb_take(&w.tree, 2 * S, 1, 1), QOS_OK);
        world_close(&w);
    }
    /* A limit in the last resource only; a rate in the last resource only. */
    c = class_of(0, 0, 0);
    c.rate_per_s[3] = 1000;
    c.limit_per_s[3] = 2000;
    world_open(&w, &config);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    memset(n, 0, sizeof n);
    n[3] = 20;
    CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_OK);
    CHECK_EQ(htb_take_all(&w.tree, S, 1, n), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns_all(&w.tree, S, 1, n), S + 10 * MS);
    CHECK_EQ(htb_take(&w.tree, S, 1, 5000), QOS_OK);
    CHECK_CONTEXT("%s", "");
    world_close(&w);
}

static void forced(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t nothing[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    unsigned i;
    config.debt_ns = 100 * MS;
    world_open(&w, &config);
    reserve(&w, 1, 0, 10000, 10000, 0); /* may owe 1,000 */
    reserve_group(&w, 2, 0, 100000, 0, 0);
    reserve(&w, 3, 2, 0, 0, 0);
    reserve_group(&w, 4, 2, 0, 0, 0);
    reserve(&w, 5, 4, 0, 0, 0);
    /* Granted without tokens and above its limit, until it owes more than 1,000: so it owes at most 1,000 + n. */
    for (i = 0; i < 11; i++)
        CHECK_EQ(force(&w, 1, 100, 0, 0), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).debt, 1100);
    CHECK_EQ(stats_of(&w, 1).granted, 1100);
    CHECK_EQ(stats_of(&w, 1).borrowed, 0);
    CHECK_EQ(force(&w, 1, 1, 0, 0), QOS_EDEBT);
    CHECK_EQ(stats_of(&w, 1).granted, 1100);
    CHECK_EQ(htb_force(&w.tree, 0, 1, nothing), QOS_OK); /* a request of no tokens is never refused */
    CHECK_EQ(force(&w, 1, 1, 0, 10 * MS - 1), QOS_EDEBT);
    CHECK_EQ(force(&w, 1, 1, 0, 10 * MS), QOS_OK); /* 100 paid off: it owes exactly 1,000 */
    CHECK_EQ(htb_take(&w.tree, 10 * MS, 1, 1), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 1, 1), 10 * MS + 100200000); /* 1,001 + 1, at 10 per ms */
    /* Without a rate, the debt and its bound are those of the nearest ancestor with one. */
    CHECK_EQ(force(&w, 5, 10001, 0, 10 * MS), QOS_OK); /* the group had 1,000 */
    CHECK_EQ(force(&w, 5, 1000, 0, 10 * MS), QOS_OK);
    CHECK_EQ(force(&w, 3, 1, 0, 10 * MS), QOS_EDEBT);
    CHECK_EQ(force(&w, 5, 1, 0, 10 * MS), QOS_EDEBT);
    CHECK_EQ(stats_of(&w, 5).borrowed, 11001);
    CHECK_EQ(stats_of(&w, 5).debt, 0);
    /* Best effort without a minimum: the root's. It had 10,000 at 10 ms, and was charged for all of the above. */
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 0, 1), 10 * MS + 1000 * (1101 + 11001 - 10000 - 1100 + 1100 + 1));
    CHECK_EQ(force(&w, 0, 100000, 0, 10 * MS), QOS_OK);
    CHECK_EQ(force(&w, 99, 1, 0, 10 * MS), QOS_EDEBT);
    CHECK_EQ(force(&w, 99, QOS_TOKENS_MAX + 1, 0, 10 * MS), QOS_ERANGE);
    world_close(&w);

    /* Limits still bound forced takes: a class without a rate may exceed its limit by 100 ms of it and one request; so
     * may its group. */
    world_open(&w, &config);
    reserve(&w, 1, 0, 0, 10000, 0);
    reserve_group(&w, 2, 0, 0, 20000, 0);
    reserve(&w, 3, 2, 0, 0, 0);
    reserve(&w, 5, 0, 0, QOS_NOTHING, 0);
    for (i = 0; i < 11; i++)
        CHECK_EQ(force(&w, 1, 100, 0, 0), QOS_OK);
    CHECK_EQ(force(&w, 1, 1, 0, 0), QOS_EDEBT);
    CHECK_EQ(force(&w, 1, 1, 0, 10 * MS - 1), QOS_EDEBT);
    CHECK_EQ(force(&w, 1, 1, 0, 10 * MS), QOS_OK);
    CHECK_EQ(force(&w, 3, 2201, 0, 10 * MS), QOS_OK); /* the group's limit had 200 */
    CHECK_EQ(force(&w, 3, 1, 0, 10 * MS), QOS_EDEBT);
    CHECK_EQ(force(&w, 5, 1, 0, 10 * MS), QOS_EDEBT);
    CHECK_EQ(htb_force(&w.tree, 10 * MS, 5, nothing), QOS_OK);
    world_close(&w);

    /* Debt has a floor of 2 * QOS_TOKENS_MAX, whatever is forced. */
    config.debt_ns = HTB_BURST_MAX_NS;
    config.rate_per_s[0] = QOS_RATE_MAX;
    world_open(&w, &config);
    while (force(&w, 0, QOS_TOKENS_MAX, 0, 0) == QOS_OK)
        CHECK_LE(stats_of(&w, 0).granted, 4 * QOS_TOKENS_MAX);
    CHECK_LE(htb_next_ns(&w.tree, 0, 0, 1), 2 * QOS_TOKENS_MAX);
    world_close(&w);
}

static void best_effort(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t now, greedy = 0, poor = 0;
    config.best_effort.rate_per_s[0] = 50000;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 100000, 0, 0);
    reserve(&w, 2, 0, 850000, 0, 0);
    /* Unknown ids, groups and the root's index are best effort. */
    take_ok(&w, 0, 1, S, false);
    CHECK_EQ(htb_take(&w.tree, S, 3, 1), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S, 1, 1), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S, 8, 1), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S, QOS_NONE, 1), QOS_OK);
    CHECK_EQ(stats_of(&w, 0).granted, 5);
    CHECK_EQ(stats_of(&w, 1).granted, 0);
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 500), htb_next_ns(&w.tree, S, 0, 500));
    CHECK_EQ(htb_next_ns(&w.tree, S, QOS_NONE, 500), htb_next_ns(&w.tree, S, 0, 500));
    /* Best effort is never starved: it gets its 50,000/s, and half of the 100,000/s that nobody has reserved. */
    for (now = 2 * S; now < 12 * S; now += 100000) {
        greedy += drain(&w, 2, 50, now);
        poor += drain(&w, 77, 50, now);
    }
    CHECK_WITHIN((double)poor, 1000000 - 500, 1000000 + 500);
    CHECK_WITHIN((double)greedy, 9000000 - 500, 9000000 + 10000 + 8500 + 500); /* and its buckets were full */
    world_close(&w);
}

/* A clock that steps back adds no tokens. After the largest jump each bucket is just full. */
static void clock(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t i, taken;
    config.start_ns = S;
    world_open(&w, &config);
    reserve(&w, 1, 0, 100000, 200000, S);
    CHECK_EQ(drain(&w, 1, 1, 0), 0);
    CHECK_EQ(drain(&w, 1, 1, S), 0);
    CHECK_EQ(htb_next_ns(&w.tree, 5, 1, 1), S + 5000); /* the first token of the limit, at 0.2 per us */
    CHECK_EQ(drain(&w, 1, 1, 2 * S), 2000);
    for (i = 0; i < 1000; i++)
        CHECK_EQ(htb_take(&w.tree, i % 2 ? 2 * S : i * MS, 1, 1), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 1), 2 * S + 5000);
    CHECK_EQ(htb_take(&w.tree, 2 * S + 4999, 1, 1), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 2 * S + 5000, 1, 1), QOS_OK);
    taken = drain(&w, 1, 1, UINT64_MAX);
    CHECK_EQ(taken, 2000);
    CHECK_EQ(drain(&w, 0, 1, UINT64_MAX), 8000);
    CHECK_EQ(htb_next_ns(&w.tree, UINT64_MAX, 1, 1), QOS_NEVER);
    CHECK_EQ(drain(&w, 1, 1, 0), 0);
    world_close(&w);
}

static void counters(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct qos_stats s;
    config.best_effort.rate_per_s[0] = 1000;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 100000, 0, 0);
    reserve(&w, 2, 1, 40000, 0, 0);
    reserve_group(&w, 3, 1, 0, 0, 0);
    reserve(&w, 4, 3, 0, 0, 0);
    take_ok(&w, 2, 100, S, false);
    take_ok(&w, 4, 300, S, true);
    CHECK_EQ(htb_take(&w.tree, 2 * S, 4, 20000), QOS_OK); /* larger than any bucket: the group pays, on debt */
    CHECK_EQ(htb_take(&w.tree, 2 * S, 4, 1), QOS_EAGAIN);
    CHECK_EQ(force(&w, 2, 1000, 0, 2 * S), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 2 * S, 2, 1), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 2 * S, 0, 10), QOS_OK);
    s = stats_of(&w, 2);
    CHECK_EQ(s.granted, 100 + 1000);
    CHECK_EQ(s.borrowed, 0);
    CHECK_EQ(s.refused, 1);
    CHECK_EQ(s.waited, 0);
    CHECK_EQ(s.debt, 600);
    s = stats_of(&w, 4);
    CHECK_EQ(s.granted, 300 + 20000);
    CHECK_EQ(s.borrowed, 300 + 20000);
    CHECK_EQ(s.refused, 1);
    CHECK_EQ(htb_stats(&w.tree, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.granted, 21410);
    CHECK_EQ(s.borrowed, 20300);
    CHECK_EQ(s.refused, 2);
    CHECK_EQ(s.debt, 600);
    CHECK_EQ(htb_stats(&w.tree, 1, &s), QOS_OK); /* its bucket owes, but it took nothing */
    CHECK_EQ(s.debt, 0);
    CHECK_EQ(htb_stats(&w.tree, 8, &s), QOS_ENOENT);
    CHECK_EQ(s.granted + s.refused + s.debt, 0);
    CHECK_EQ(htb_stats(&w.tree, 3, &s), QOS_OK); /* a group takes nothing itself */
    CHECK_EQ(s.granted + s.refused + s.debt, 0);
    /* A class that ended keeps its counters until the id is reserved again. */
    CHECK_EQ(htb_release(&w.tree, 2 * S, 2), QOS_OK);
    CHECK_EQ(stats_of(&w, 2).granted, 1100);
    reserve(&w, 2, 1, 40000, 0, 2 * S); /* it takes over the debt, which is told once it is granted something */
    CHECK_EQ(force(&w, 2, 0, 0, 2 * S), QOS_OK);
    CHECK_EQ(stats_of(&w, 2).debt, 0);
    CHECK_EQ(force(&w, 2, 1, 0, 2 * S), QOS_OK);
    CHECK_EQ(stats_of(&w, 2).debt, 601);
    CHECK_EQ(htb_release(&w.tree, 2 * S, 2), QOS_OK);
    reserve(&w, 2, 1, 40000, 0, 3 * S);
    s = stats_of(&w, 2);
    CHECK_EQ(s.granted + s.borrowed + s.refused + s.waited + s.debt, 0);
    /* Debt is rounded up, and is 0 once it is paid. */
    CHECK_EQ(force(&w, 2, 401, 0, 3 * S), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 3 * S + 10024999, 2, 0), QOS_OK); /* 401 at 0.04 per us, less 1 ns */
    CHECK_EQ(stats_of(&w, 2).debt, 1);
    CHECK_EQ(htb_take(&w.tree, 4 * S, 2, 0), QOS_OK);
    CHECK_EQ(stats_of(&w, 2).debt, 0);
    world_close(&w);

    config.debt_ns = 1000 * S;
    config.rate_per_s[0] = 1000000000;
    world_open(&w, &config);
    reserve(&w, 1, 0, 900000000, 0, 0);
    CHECK_EQ(force(&w, 1, QOS_TOKENS_MAX, 0, 0), QOS_OK);
    CHECK_EQ(force(&w, 1, QOS_TOKENS_MAX, 0, 0), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).debt, 2 * QOS_TOKENS_MAX);
    world_close(&w);
}

/* A request of no tokens always passes, and changes nothing. */
static void no_tokens(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t n[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    world_open(&w, &config);
    reserve(&w, 1, 0, 0, 1, 0);
    take_ok(&w, 1, 0, 0, false);
    CHECK_EQ(htb_take_all(&w.tree, 0, 1, n), QOS_OK);
    CHECK_EQ(htb_next_ns_all(&w.tree, 7, 1, n), 7);
    CHECK_EQ(htb_release(&w.tree, 0, 1), QOS_OK);
    take_ok(&w, 0, 0, 0, false); /* the short path: no limits in the tree */
    reserve(&w, 1, 0, 0, QOS_NOTHING, 0);
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 1), QOS_NEVER);
    world_close(&w);
}

int main(void)
{
    check_begin("unit/htb_gate");
    own_and_borrowed();
    four_levels();
    limits();
    large_requests();
    several_resources();
    forced();
    best_effort();
    clock();
    counters();
    no_tokens();
    return check_end();
}
