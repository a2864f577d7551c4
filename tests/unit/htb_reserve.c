// proves: Section 5.1: admission at every level, with the rate that would fit; errors that change nothing; expiry;
// proves: release; and live changes that add no token, forgive no debt and take effect at once
#include "htb_world.h"

static void admission(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c;
    uint64_t fits[HTB_RESOURCES_MAX] = {9, 9, 9, 9};
    config.resources = 2;
    config.rate_per_s[1] = 500;
    config.best_effort.rate_per_s[0] = 100000;
    config.best_effort.rate_per_s[1] = 50;
    config.depth_max = 3;
    world_open(&w, &config);
    /* Best effort's minimum counts. */
    c = class_of(0, 900001, 0);
    c.rate_per_s[1] = 450;
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 900000);
    CHECK_EQ(fits[1], 450);
    CHECK_EQ(fits[2], 9);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_EADMISSION);
    c.rate_per_s[0] = 900000;
    c.rate_per_s[1] = 451; /* every resource must fit */
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, fits), QOS_EADMISSION);
    c.rate_per_s[0] = 600000;
    c.rate_per_s[1] = 400;
    c.group = true;
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, fits), QOS_OK);
    CHECK_EQ(fits[0], 900000);
    CHECK_EQ(fits[1], 450);
    /* Below the group, the group's own rate is the bound. */
    c = class_of(1, 600001, 0);
    CHECK_EQ(htb_reserve(&w.tree, 0, 2, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 600000);
    CHECK_EQ(fits[1], 400);
    c.rate_per_s[0] = 250000;
    c.rate_per_s[1] = 400;
    c.group = true;
    CHECK_EQ(htb_reserve(&w.tree, 0, 2, &c, fits), QOS_OK);
    c = class_of(2, 250001, 0);
    CHECK_EQ(htb_reserve(&w.tree, 0, 3, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 250000);
    c.rate_per_s[0] = 250000;
    c.group = true;
    CHECK_EQ(htb_reserve(&w.tree, 0, 3, &c, fits), QOS_OK);
    c = class_of(1, 0, 0);
    c.rate_per_s[1] = 1;
    CHECK_EQ(htb_reserve(&w.tree, 0, 4, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 350000);
    CHECK_EQ(fits[1], 0);
    /* A fourth level is deeper than depth_max. */
    c = class_of(3, 0, 0);
    CHECK_EQ(htb_reserve(&w.tree, 0, 4, &c, fits), QOS_EFULL);
    /* A rate may rise within its parent's, and fall to the sum of its children's. Its old rate is not counted twice. */
    c = class_of(0, 900001, 0);
    c.group = true;
    c.rate_per_s[1] = 400;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 900000);
    CHECK_EQ(fits[1], 450);
    c.rate_per_s[0] = 249999;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 250000);
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_EADMISSION);
    c.rate_per_s[0] = 250000;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, fits), QOS_OK);
    c = class_of(0, 650000, 0);
    CHECK_EQ(htb_reserve(&w.tree, 0, 5, &c, fits), QOS_OK); /* the room that the change made */
    CHECK_EQ(fits[0], 650000);
    /* The root's rate cannot fall below the sum of its children's, in any resource. */
    {
        uint64_t root[2] = {999999, 500};
        CHECK_EQ(htb_change_root(&w.tree, 0, root), QOS_EADMISSION);
        root[0] = 1000000;
        root[1] = 449;
        CHECK_EQ(htb_change_root(&w.tree, 0, root), QOS_EADMISSION);
        root[1] = 450;
        CHECK_EQ(htb_change_root(&w.tree, 0, root), QOS_OK);
        root[1] = 0;
        CHECK_EQ(htb_change_root(&w.tree, 0, root), QOS_ERANGE);
        root[1] = QOS_RATE_MAX + 1;
        CHECK_EQ(htb_change_root(&w.tree, 0, root), QOS_ERANGE);
        CHECK_EQ(htb_change_root(&w.tree, 0, NULL), QOS_EINVAL);
        root[0] = QOS_RATE_MAX;
        root[1] = QOS_RATE_MAX;
        CHECK_EQ(htb_change_root(&w.tree, 0, root), QOS_OK);
        CHECK_EQ(root_rate(&w.tree), QOS_RATE_MAX);
    }
    /* Best effort can be changed, but cannot end or become a group. */
    c = class_of(0, 0, 5000);
    c.weight = 3;
    CHECK_EQ(htb_change(&w.tree, 0, 0, &c, fits), QOS_OK);
    c.expires_ns = 1;
    CHECK_EQ(htb_change(&w.tree, 0, 0, &c, fits), QOS_EINVAL);
    CHECK_EQ(htb_release(&w.tree, 0, 0), QOS_EINVAL);
    CHECK_EQ(htb_reserve(&w.tree, 0, 0, &c, fits), QOS_EINVAL);
    world_close(&w);
}

/* After every error, handle and memory are unchanged, byte for byte. */
static void errors(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c, good = class_of(0, 1000, 2000);
    uint64_t root = 1;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 100000, 0, 5);
    reserve(&w, 2, 1, 1000, 0, 5);
    reserve(&w, 3, 0, 1000, 2000, 5);
    world_draw(&w);
#define SAME(call, want)                                                                                               \
    do {                                                                                                               \
        CHECK_EQ(call, want);                                                                                          \
        CHECK(world_same(&w));                                                                                         \
    } while (0)
    SAME(htb_reserve(&w.tree, 5, 4, NULL, NULL), QOS_EINVAL);
    SAME(htb_reserve(&w.tree, 5, 8, &good, NULL), QOS_ENOENT);
    SAME(htb_reserve(&w.tree, 5, UINT32_MAX, &good, NULL), QOS_ENOENT);
    SAME(htb_reserve(&w.tree, 5, 3, &good, NULL), QOS_EEXIST);
    c = good;
    c.parent = 7;
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_ENOENT);
    c.parent = 4;
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_ENOENT);
    c.parent = 8; /* one past the last id */
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_ENOENT);
    c.parent = UINT32_MAX - 1;
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_ENOENT);
    c.parent = 3;
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_EINVAL);
#define BAD(field, value, want)                                                                                        \
    do {                                                                                                               \
        c = good;                                                                                                      \
        c.field = value;                                                                                               \
        SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), want);                                                              \
        SAME(htb_change(&w.tree, 5, 3, &c, NULL), want);                                                               \
    } while (0)
    BAD(weight, HTB_WEIGHT_MAX + 1, QOS_ERANGE);
    BAD(burst_ns, HTB_BURST_MAX_NS + 1, QOS_ERANGE);
    BAD(expires_ns, 5, QOS_ERANGE);
    BAD(rate_per_s[0], QOS_RATE_MAX + 1, QOS_ERANGE);
    BAD(rate_per_s[0], QOS_UNLIMITED - 1, QOS_ERANGE);
    BAD(limit_per_s[0], QOS_RATE_MAX + 1, QOS_ERANGE);
    BAD(limit_per_s[0], 999, QOS_ERANGE);
    BAD(rate_per_s[0], 900001, c.limit_per_s[0] < 900001 ? QOS_ERANGE : QOS_EADMISSION);
    c = class_of(0, 900001, 0);
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_EADMISSION);
    SAME(htb_change(&w.tree, 5, 3, &c, NULL), QOS_EADMISSION);
    c = good;
    c.group = true;
    SAME(htb_change(&w.tree, 5, 3, &c, NULL), QOS_EINVAL);
    c.expires_ns = 6;
    SAME(htb_reserve(&w.tree, 5, 4, &c, NULL), QOS_EINVAL);
    c = good;
    c.parent = 3;
    SAME(htb_change(&w.tree, 5, 3, &c, NULL), QOS_EINVAL);
    c.parent = 8;
    SAME(htb_change(&w.tree, 5, 3, &c, NULL), QOS_ENOENT);
    SAME(htb_change(&w.tree, 5, 3, NULL, NULL), QOS_EINVAL);
    SAME(htb_change(&w.tree, 5, 4, &good, NULL), QOS_ENOENT);
    SAME(htb_change(&w.tree, 5, 8, &good, NULL), QOS_ENOENT);
    SAME(htb_release(&w.tree, 5, 4), QOS_ENOENT);
    SAME(htb_release(&w.tree, 5, QOS_NONE), QOS_ENOENT);
    SAME(htb_release(&w.tree, 5, 1), QOS_EBUSY);
    SAME(htb_change_root(&w.tree, 5, &root), QOS_EADMISSION);
    SAME(terms_of(&w, QOS_NONE, &c), QOS_ENOENT);
    /* With valid numbers all calls succeed. */
    CHECK_EQ(htb_release(&w.tree, 5, 2), QOS_OK);
    CHECK_EQ(htb_release(&w.tree, 5, 1), QOS_OK);
    CHECK_EQ(htb_reserve(&w.tree, 5, 1, &good, NULL), QOS_OK);
    world_close(&w);
}

/* Expiry, seen by takes only: they count for the class before it, and for best effort from then on. Id and rate are
 * free again. */
static void expiry_at_the_gate(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c = class_of(0, 1000000, 0), out;
    uint64_t four = 4;
    world_open(&w, &config);
    c.expires_ns = S;
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S - 1, 1, 100), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).granted, 100);
    CHECK_EQ(htb_next_ns(&w.tree, S - 1, 1, 100), S - 1);
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 100), S);
    CHECK_EQ(htb_take(&w.tree, S, 1, 100), QOS_OK); /* best effort, borrowed from the root */
    CHECK_EQ(stats_of(&w, 0).borrowed, 100);
    CHECK_EQ(htb_expired(&w.tree, S), 1);
    CHECK_EQ(terms_of(&w, 1, &out), QOS_ENOENT);
    c = class_of(0, 1000000, 0);
    CHECK_EQ(htb_reserve(&w.tree, S, 2, &c, NULL), QOS_OK);
    /* An expired id can be reserved at once, even if no call has used it since. */
    c = class_of(0, 0, 0);
    c.expires_ns = 3 * S;
    CHECK_EQ(htb_reserve(&w.tree, 2 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_reserve(&w.tree, 3 * S - 1, 1, &c, NULL), QOS_EEXIST);
    c.expires_ns = 4 * S;
    CHECK_EQ(htb_reserve(&w.tree, 3 * S, 1, &c, NULL), QOS_OK);
    /* Expiry postponed, then removed. */
    c.expires_ns = 5 * S;
    CHECK_EQ(htb_change(&w.tree, 3 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 4 * S, 1, &c, NULL), QOS_OK);
    c.expires_ns = 0;
    CHECK_EQ(htb_change(&w.tree, 4 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 100 * S, 1, &c, NULL), QOS_OK);
    c.expires_ns = 101 * S;
    CHECK_EQ(htb_change(&w.tree, 100 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 101 * S, 1, &c, NULL), QOS_ENOENT);
    CHECK_EQ(htb_release(&w.tree, 101 * S, 1), QOS_ENOENT);
    world_close(&w);

    /* A class expires before its own tokens suffice: htb_next_ns is best effort's time, not before the expiry. */
    config.best_effort.rate_per_s[0] = 500000;
    world_open(&w, &config);
    c = class_of(0, 1, 1); /* its own 4 tokens would take 4 s */
    c.expires_ns = 2 * S;
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    four = drain(&w, 0, 1, 2 * S - 1000);
    CHECK_GE(four, 10000);
    CHECK_EQ(htb_take(&w.tree, 2 * S - 1000, 1, 4), QOS_OK); /* its bucket holds 0.01 tokens: now in debt */
    CHECK_EQ(htb_next_ns(&w.tree, 2 * S - 1000, 1, 4),
             2 * S + 7000); /* 8 tokens at 0.5 per us: 4, and the root's debt of 4 */
    CHECK_EQ(htb_take(&w.tree, 2 * S + 6999, 1, 4), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 2 * S + 7000, 1, 4), QOS_OK);
    CHECK_EQ(stats_of(&w, 0).granted, four + 4);
    world_close(&w);
}

static struct htb_request request_of(uint32_t id, uint64_t tokens, uint64_t offset)
{
    struct htb_request r;
    memset(&r, 0, sizeof r);
    r.class_id = id;
    r.tokens[0] = tokens;
    r.offset = offset;
    return r;
}

/* When a class expires or is released, its requests go to the end of best effort's queue, in order. */
static void end_with_queue(bool by_release)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_request q[5];
    struct htb_class c = class_of(0, 1, 1);
    unsigned i;
    CHECK_CONTEXT("by_release %d", by_release);
    config.order = HTB_FIFO;
    config.best_effort.rate_per_s[0] = 1000;
    config.burst_ns = 1000000000;
    world_open(&w, &config);
    c.expires_ns = S / 2;
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    reserve(&w, 2, 0, 998000, 0, 0);
    CHECK_EQ(force(&w, 2, 998000, 0, 0), QOS_OK); /* the root lends nothing */
    for (i = 0; i < 5; i++) {
        q[i] = request_of(i < 1 ? 0 : 1, 100, 0);
        CHECK_EQ(htb_submit(&w.tree, 0, &q[i]), QOS_OK);
    }
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), 100 * MS); /* best effort's own 100 tokens */
    CHECK(htb_dispatch(&w.tree, 100 * MS - 1) == NULL);
    CHECK(htb_dispatch(&w.tree, 100 * MS) == &q[0]);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 100 * MS), S / 2);
    if (by_release)
        CHECK_EQ(htb_release(&w.tree, 400 * MS, 1), QOS_OK);
    else
        CHECK_EQ(htb_dispatch_next_ns(&w.tree, 400 * MS), S / 2);
    for (i = 1; i < 5; i++) {
        CHECK(htb_dispatch(&w.tree, by_release ? 400 * MS : S / 2) == &q[i] || i > (by_release ? 3u : 4u));
    }
    CHECK_EQ(stats_of(&w, 0).granted, by_release ? 400 : 500);
    CHECK_EQ(stats_of(&w, 1).granted, 0);
    if (by_release)
        CHECK(htb_dispatch(&w.tree, 500 * MS) == &q[4]);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S), QOS_NEVER);
    world_close(&w);
    CHECK_CONTEXT("%s", "");
}

/* Classes whose requests wait for their turn, with tokens of their own, expire as others do: each is told at its time, in
 * whatever order; two at once, in any; and what waits is best effort's then. */
static void expiry_in_the_queues(void)
{
    enum { CLASSES = 200 };
    static struct htb_request request[CLASSES + 1];
    struct htb_config config = world_config();
    struct htb_class_state state;
    struct world w;
    uint32_t id, at;
    config.classes = CLASSES + 1;
    memset(request, 0, sizeof request);
    world_open(&w, &config);
    for (id = 1; id <= CLASSES; id++) {
        struct htb_class c = class_of(0, 1000, 0);
        c.expires_ns = 2 * S + (1 + id * 77 % CLASSES / 2) * MS; /* 77 and 200 have no common factor */
        CHECK_EQ(htb_reserve(&w.tree, 0, id, &c, NULL), QOS_OK);
    }
    for (id = 1; id <= CLASSES; id++) {
        request[id].class_id = id;
        request[id].tokens[0] = 1;
        CHECK_EQ(htb_submit(&w.tree, S, &request[id]), QOS_OK);
    }
    for (at = 1; at <= CLASSES / 2; at++) {
        uint64_t now = 2 * S + at * MS, told = 0;
        CHECK_EQ(htb_expired(&w.tree, now - 1), QOS_NONE);
        while ((id = htb_expired(&w.tree, now)) != QOS_NONE) {
            CHECK_EQ(1 + id * 77 % CLASSES / 2, at);
            CHECK_EQ(htb_class_info(&w.tree, id, &state), QOS_ENOENT);
            told++;
        }
        CHECK_EQ(told, 2);
        CHECK_EQ(htb_class_info(&w.tree, 0, &state), QOS_OK);
        CHECK_EQ(state.queued, 2 * at);
    }
    for (id = 0; htb_dispatch(&w.tree, 3 * S) != NULL; id++)
        ;
    CHECK_EQ(id, 32); /* device_max */
    world_close(&w);
}

/* htb_expired returns each expired class once, but none that was released or reserved again. */
static void expiry_is_told(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 1000, 0);
    static struct htb_request request;
    struct world w;
    uint32_t id;
    world_open(&w, &config);
    CHECK_EQ(htb_expired(&w.tree, 0), QOS_NONE);
    for (id = 1; id < 8; id++) {
        c.expires_ns = id == 7 ? 9 * S : id * S;
        CHECK_EQ(htb_reserve(&w.tree, 0, id, &c, NULL), QOS_OK);
    }
    CHECK_EQ(htb_release(&w.tree, 0, 2), QOS_OK);
    request.class_id = 3;
    request.tokens[0] = 100;
    CHECK_EQ(htb_submit(&w.tree, 0, &request), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), 100000); /* 3 borrows; after that only expiries are due */
    CHECK(htb_dispatch(&w.tree, 100000) == &request);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 100000), S);
    CHECK(htb_dispatch(&w.tree, 5 * S) == NULL); /* 1, 3, 4 and 5 have expired */
    CHECK_EQ(htb_reserve(&w.tree, 5 * S, 4, &c, NULL), QOS_OK);
    CHECK_EQ(htb_expired(&w.tree, 5 * S), 1);
    CHECK_EQ(htb_expired(&w.tree, 5 * S), 3);
    CHECK_EQ(htb_take(&w.tree, 6 * S, 6, 1), QOS_OK); /* finds that 6 has expired */
    CHECK_EQ(htb_expired(&w.tree, 6 * S), 5);
    CHECK_EQ(htb_expired(&w.tree, 6 * S), 6);
    CHECK_EQ(htb_expired(&w.tree, 6 * S), QOS_NONE);
    CHECK_EQ(htb_expired(&w.tree, 9 * S), 4); /* no other call was needed */
    CHECK_EQ(htb_expired(&w.tree, 9 * S), 7);
    CHECK_EQ(htb_expired(&w.tree, 9 * S), QOS_NONE);
    c.expires_ns = 10 * S; /* a class that existed before, and was returned by htb_expired or released */
    CHECK_EQ(htb_reserve(&w.tree, 9 * S, 2, &c, NULL), QOS_OK);
    CHECK_EQ(htb_expired(&w.tree, 10 * S), 2);
    CHECK_EQ(htb_expired(&w.tree, 10 * S), QOS_NONE);
    world_close(&w);
}

/* A class moves, or a group with all below it. Queues, debts and turns move along, and admission holds at the new
 * place. A refused move changes nothing. */
static void moved(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 0, 0);
    struct htb_class_state state;
    static struct htb_request request[4];
    uint64_t fits[HTB_RESOURCES_MAX], now = S;
    struct world w;
    unsigned i;
    memset(request, 0, sizeof request);
    config.depth_max = 3;
    config.dispatch_max = config.device_max = 2;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 500000, 0, 0);
    reserve_group(&w, 2, 0, 300000, 0, 0);
    reserve_group(&w, 3, 1, 200000, 0, 0);
    reserve(&w, 4, 3, 200000, 0, 0);
    reserve(&w, 5, 2, 200000, 0, 0);
    /* Refused moves: below itself or a class, too deep, to a place where it does not fit, of class 0, below an unknown
     * id. */
    world_draw(&w);
    c = class_of(3, 500000, 0);
    c.group = true;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_EINVAL);
    c.parent = 1;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_EINVAL);
    c = class_of(5, 200000, 0);
    CHECK_EQ(htb_change(&w.tree, 0, 4, &c, NULL), QOS_EINVAL);
    c.parent = 7;
    CHECK_EQ(htb_change(&w.tree, 0, 4, &c, NULL), QOS_ENOENT);
    c.parent = 99;
    CHECK_EQ(htb_change(&w.tree, 0, 4, &c, NULL), QOS_ENOENT);
    c = class_of(1, 0, 0);
    CHECK_EQ(htb_change(&w.tree, 0, 0, &c, NULL), QOS_EINVAL);
    c = class_of(2, 200000, 0);
    CHECK_EQ(htb_change(&w.tree, 0, 4, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 100000);
    c = class_of(3, 300000, 0);
    c.group = true;
    CHECK_EQ(htb_change(&w.tree, 0, 2, &c, fits), QOS_EFULL); /* 5 would be at level 4 */
    CHECK(world_same(&w));
    /* 4 has a debt, one request at the device and two that wait. It keeps them when it moves. */
    now = S;
    for (i = 0; i < 4; i++) {
        request[i].class_id = 4;
        request[i].tokens[0] = 2000;
        CHECK_EQ(htb_submit(&w.tree, now, &request[i]), QOS_OK);
    }
    CHECK(htb_dispatch(&w.tree, now) == &request[0]);
    c = class_of(2, 100000, 0);
    CHECK_EQ(htb_change(&w.tree, now, 4, &c, NULL), QOS_OK);
    CHECK_EQ(htb_class_info(&w.tree, 4, &state), QOS_OK);
    CHECK(state.terms.parent == 2 && state.terms.rate_per_s[0] == 100000 && state.queued >= 2);
    CHECK_EQ(htb_class_info(&w.tree, 3, &state), QOS_OK);
    CHECK(state.queued == 0);
    CHECK_EQ(htb_complete(&w.tree, now, HTB_NOT_DONE, NULL, &request[0]), QOS_OK); /* an older one: no refund */
    CHECK_EQ(stats_of(&w, 4).granted, 4000);
    CHECK_EQ(htb_release(&w.tree, now, 3), QOS_OK); /* nothing is below it */
    reserve(&w, 3, 1, 500000, 0, now);              /* its old parent has the rate back */
    CHECK_EQ(htb_release(&w.tree, now, 3), QOS_OK);
    /* The group 2 moves below 1, with 4 and 5: one level deeper, within the rate of 1. */
    c = class_of(1, 300000, 400000);
    c.group = true;
    CHECK_EQ(htb_change(&w.tree, now, 2, &c, NULL), QOS_OK);
    CHECK_EQ(info_of(&w.tree).reserved_per_s[0], 500000);
    while (request[1].state != HTB_IDLE || request[2].state != HTB_IDLE || request[3].state != HTB_IDLE) {
        struct htb_request *r;
        now = htb_dispatch_next_ns(&w.tree, now);
        if (now == QOS_NEVER)
            break;
        while ((r = htb_dispatch(&w.tree, now)) != NULL)
            CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
    }
    CHECK_EQ(stats_of(&w, 4).granted, 8000);
    /* A borrower in 2 now reaches the root through 1. Group 2's limit of 400,000 binds, not that of 1. */
    c = class_of(2, 0, 0);
    CHECK_EQ(htb_change(&w.tree, now, 4, &c, NULL), QOS_OK);
    CHECK_EQ(drain(&w, 4, 100, now + 10 * S), 4000);
    c = class_of(0, 0, 0);
    CHECK_EQ(htb_change(&w.tree, now + 10 * S, 4, &c, NULL), QOS_OK);
    CHECK_GE(drain(&w, 4, 100, now + 10 * S), 6000); /* the root's remaining tokens */
    world_close(&w);
}

/* A group that moves below another one is charged to it and to the root. A borrower that moves to another ring takes
 * its turns there, whatever the clocks of the two rings show. */
static void moved_between_rings(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(1, 0, 0);
    static struct htb_request request[2];
    struct htb_request *r;
    struct world w;
    unsigned i, turns = 0;
    memset(request, 0, sizeof request);
    config.dispatch_max = 1;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 0, 0, 0);
    reserve_group(&w, 2, 0, 0, 0, 0);
    reserve(&w, 3, 2, 0, 0, 0);
    c.group = true;
    CHECK_EQ(htb_change(&w.tree, 0, 2, &c, NULL), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S, 3, 4000), QOS_OK);
    CHECK_EQ(drain(&w, 0, 100, S), 6000);
    c.parent = 0;
    CHECK_EQ(htb_change(&w.tree, S, 2, &c, NULL), QOS_OK);
    reserve(&w, 4, 1, 0, 0, S);
    request[0].class_id = 3;
    request[1].class_id = 4;
    request[0].tokens[0] = request[1].tokens[0] = 1000;
    for (i = 0; i < 100; i++) { /* 3 alone, in the ring of group 2 */
        CHECK_EQ(htb_submit(&w.tree, (2 + i) * S, &request[0]), QOS_OK);
        CHECK(htb_dispatch(&w.tree, (2 + i) * S) == &request[0]);
        CHECK_EQ(htb_complete(&w.tree, (2 + i) * S, HTB_DONE, NULL, &request[0]), QOS_OK);
    }
    c = class_of(1, 0, 0);
    CHECK_EQ(htb_change(&w.tree, 200 * S, 3, &c, NULL), QOS_OK);
    for (i = 0; i < 2; i++)
        CHECK_EQ(htb_submit(&w.tree, 200 * S, &request[i]), QOS_OK);
    for (i = 0; i < 20; i++) {
        r = htb_dispatch(&w.tree, (201 + i) * S);
        CHECK(r != NULL);
        if (!r)
            break;
        turns += r == &request[0];
        CHECK_EQ(htb_complete(&w.tree, (201 + i) * S, HTB_DONE, NULL, r), QOS_OK);
        CHECK_EQ(htb_submit(&w.tree, (201 + i) * S, r), QOS_OK);
    }
    CHECK_WITHIN(turns, 9, 11);
    world_close(&w);
}

/* An expired class is gone for every call, even with queued requests: its group can be released, its rate reserved. */
static void expired_is_gone(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class c = class_of(1, 500000, 0);
    struct htb_request q = request_of(2, 10, 0);
    unsigned queued;
    for (queued = 0; queued < 2; queued++) {
        world_open(&w, &config);
        reserve_group(&w, 1, 0, 500000, 0, 0);
        c.expires_ns = 2 * S;
        CHECK_EQ(htb_reserve(&w.tree, 0, 2, &c, NULL), QOS_OK);
        q.state = HTB_IDLE;
        if (queued)
            CHECK_EQ(htb_submit(&w.tree, S, &q), QOS_OK); /* it has tokens, but dispatch is not called */
        CHECK_EQ(htb_release(&w.tree, 2 * S - 1, 1), QOS_EBUSY);
        c.expires_ns = 0;
        CHECK_EQ(htb_reserve(&w.tree, 2 * S - 1, 3, &c, NULL), QOS_EADMISSION);
        CHECK_EQ(htb_release(&w.tree, 2 * S, 2), QOS_ENOENT);
        CHECK_EQ(htb_reserve(&w.tree, 2 * S, 3, &c, NULL), QOS_OK);
        CHECK_EQ(htb_release(&w.tree, 2 * S, 3), QOS_OK);
        CHECK_EQ(htb_release(&w.tree, 2 * S, 1), QOS_OK);
        world_close(&w);
    }
}

/* Debts of ancestors have a floor: htb_force refuses to go below it. */
static void floor_of_debt(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t total = 0;
    unsigned i;
    config.classes = 30;
    config.rate_per_s[0] = UINT64_C(100000000000);
    world_open(&w, &config);
    for (i = 1; i <= 19; i++)
        reserve(&w, i, 0, UINT64_C(5000000000), 0, 0);
    for (i = 1; i <= 19; i++)
        while (force(&w, i, QOS_TOKENS_MAX, 0, S) == QOS_OK)
            total += QOS_TOKENS_MAX;
    /* The root had 1,000,000,000 and owes the remainder. It lends again when the debt is paid. */
    CHECK_EQ(htb_next_ns(&w.tree, S, 25, 1), S + (total - 1000000000) / 100 + 1);
    world_close(&w);
}

/* A request that went to best effort when its class ended can still be cancelled. The others stay. */
static void cancel_after_release(void)
{
    struct htb_config config = world_config();
    struct htb_class_state report;
    struct world w;
    struct htb_request q[2];
    unsigned i;
    world_open(&w, &config);
    reserve(&w, 1, 0, 1000, 0, 0);
    for (i = 0; i < 2; i++) {
        q[i] = request_of(1, 10, 0);
        CHECK_EQ(htb_submit(&w.tree, 0, &q[i]), QOS_OK);
    }
    CHECK_EQ(htb_release(&w.tree, 0, 1), QOS_OK);
    CHECK_EQ(htb_cancel(&w.tree, 0, &q[1]), QOS_OK);
    CHECK_EQ(htb_class_info(&w.tree, 0, &report), QOS_OK);
    CHECK_EQ(report.queued, 1);
    CHECK_EQ(htb_cancel(&w.tree, 0, &q[0]), QOS_OK);
    CHECK_EQ(htb_class_info(&w.tree, 0, &report), QOS_OK);
    CHECK_EQ(report.queued, 0);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S), QOS_NEVER);
    CHECK(htb_dispatch(&w.tree, S) == NULL);
    world_close(&w);
}

/* The root stays in debt, so classes get only their own tokens. */
static void beggar(struct world *w, const struct htb_config *config)
{
    world_open(w, config);
    reserve(w, 7, 0, 0, 0, 0);
    while (force(w, 7, QOS_TOKENS_MAX, 0, 0) == QOS_OK)
        ;
}

/* A class that is changed, or released and reserved again, at every step never gets more than rate * time. It keeps
 * its debt. A class whose own rate does not change loses nothing. */
static void nothing_minted(void)
{
    struct htb_config config = world_config();
    unsigned way;
    for (way = 0; way < 9; way++) {
        struct world w;
        struct htb_class c = class_of(0, 100000, way == 8 ? 100000 : 0), other;
        uint64_t now, taken = 0, n;
        unsigned steps = 0;
        CHECK_CONTEXT("way %u", way);
        config.burst_ns = way % 2 ? 10 * MS : MS; /* 1,000 or 100 tokens */
        beggar(&w, &config);
        n = way >= 4 ? 5000 : 10; /* larger than the bucket: in debt most of the time */
        CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
        for (now = 0; now <= 10 * S; now += 3 * MS + 7) {
            taken += drain(&w, 1, n, now);
            other = c;
            switch (way) {
            case 0:
            case 4:
                CHECK_EQ(htb_release(&w.tree, now, 1), QOS_OK);
                CHECK_EQ(htb_reserve(&w.tree, now, 1, &c, NULL), QOS_OK);
                break;
            case 1:
            case 5:
                other.rate_per_s[0] = 0;
                CHECK_EQ(htb_change(&w.tree, now, 1, &other, NULL), QOS_OK);
                taken += drain(&w, 1, n, now);
                CHECK_EQ(htb_change(&w.tree, now, 1, &c, NULL), QOS_OK);
                break;
            case 2:
            case 6:
                other.rate_per_s[0] = 200000 >> (steps % 9);
                other.burst_ns = 1000u << (steps % 20);
                CHECK_EQ(htb_change(&w.tree, now, 1, &other, NULL), QOS_OK);
                taken += drain(&w, 1, n, now);
                CHECK_EQ(htb_change(&w.tree, now, 1, &c, NULL), QOS_OK);
                break;
            case 8:
            case 3:
            case 7:
                other.limit_per_s[0] = way == 8 ? 0 : steps % 2 ? 0 : 100000;
                other.weight = 1 + steps;
                CHECK_EQ(htb_change(&w.tree, now, 1, &other, NULL), QOS_OK);
                CHECK_EQ(htb_change(&w.tree, now, 1, &c, NULL), QOS_OK);
                break;
            }
            steps++;
            taken += drain(&w, 1, n, now);
        }
        CHECK_LE(taken, 100000 * 10 + (n > 1000 ? n : 1000));
        /* If its own rate does not change, it loses tokens only by polls up to 3 ms late (see request_max_tokens):
         * 5,000 tokens every 50 to 53 ms. */
        if (way == 3)
            CHECK_GE(taken, 100000 * 10 - 1000);
        if (way == 4 || way == 7)
            CHECK_GE(taken, 100000 * 10 / 53 * 50 - 5000);
        world_close(&w);
    }
    CHECK_CONTEXT("%s", "");
}

/* A new reservation earns nothing for the time before it, even if the clock goes back and forth. */
static void nothing_minted_by_the_clock(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 100000, 0);
    struct world w;
    uint64_t taken = 0;
    unsigned i;
    config.burst_ns = 100 * MS;
    beggar(&w, &config);
    for (i = 0; i < 100; i++) {
        CHECK_EQ(htb_reserve(&w.tree, 0, 1 + i % 6, &c, NULL), QOS_OK);
        taken += drain(&w, 1 + i % 6, 1, 100 * MS);
        CHECK_EQ(htb_release(&w.tree, 0, 1 + i % 6), QOS_OK);
    }
    CHECK_EQ(taken, 10000);
    world_close(&w);
}

/* Debt survives a change to no rate and back, in every resource, for groups and limits too. */
static void debt_is_kept(void)
{
    struct htb_config config = world_config();
    struct htb_class c, none;
    struct world w;
    const uint64_t n[4] = {50000, 5000, 0, 0}, one[4] = {1, 0, 0, 0}, two[4] = {0, 1, 0, 0};
    config.resources = 2;
    config.rate_per_s[1] = 1000000;
    world_open(&w, &config);
    c = class_of(0, 1000, 0);
    c.rate_per_s[1] = 1000;
    none = class_of(0, 0, 0);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    reserve(&w, 2, 0, 999000, 0, 0);
    CHECK_EQ(force(&w, 2, 100000000, 100000000, 0), QOS_OK); /* no lender */
    CHECK_EQ(htb_force(&w.tree, 0, 1, n), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).debt, 50000);
    CHECK_EQ(htb_next_ns_all(&w.tree, 0, 1, one), 50 * S + MS);
    CHECK_EQ(htb_next_ns_all(&w.tree, 0, 1, two), 5 * S + MS);
    CHECK_EQ(htb_change(&w.tree, 0, 1, &none, NULL), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 0, 1, &none, NULL), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns_all(&w.tree, 0, 1, one), 50 * S + MS);
    CHECK_EQ(htb_next_ns_all(&w.tree, 0, 1, two), 5 * S + MS);
    /* At another rate the same tokens are owed. */
    c.rate_per_s[0] = 500;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns_all(&w.tree, 0, 1, one), 100 * S + 2 * MS);
    /* After the class ends, its id still owes the tokens, and pays them with time. */
    CHECK_EQ(htb_release(&w.tree, 0, 1), QOS_OK);
    CHECK_EQ(htb_reserve(&w.tree, 60 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns_all(&w.tree, 60 * S, 1, one), 100 * S + 2 * MS);
    CHECK_EQ(htb_next_ns_all(&w.tree, 60 * S, 1, two), 60 * S + MS); /* paid; the bucket starts empty */
    world_close(&w);

    /* A group keeps the debt that its classes made. */
    config = world_config();
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 1000, 0, 0);
    reserve(&w, 2, 1, 0, 0, 0);
    reserve(&w, 3, 0, 900000, 0, 0);
    CHECK_EQ(force(&w, 3, 900000000, 0, 0), QOS_OK);
    CHECK_EQ(force(&w, 2, 10000, 0, 0), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 1), 10 * S + MS);
    none = class_of(0, 0, 0);
    none.group = true;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &none, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 1), 900 * S + 10 * MS + 1000); /* the root's debt */
    none.rate_per_s[0] = 1000;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &none, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 1), 10 * S + MS);
    world_close(&w);

    /* The debt at a limit. */
    world_open(&w, &config);
    c = class_of(0, 1000, 1000);
    none = class_of(0, 1000, 0);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 10 * MS, 1, 5000), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 1, 1), 10 * MS + 4990 * MS + MS);
    CHECK_EQ(htb_change(&w.tree, 10 * MS, 1, &none, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 1, 10), 10 * MS); /* the root has 5,000 left */
    CHECK_EQ(htb_change(&w.tree, 10 * MS, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 1, 1), 10 * MS + 4990 * MS + MS);
    /* It is paid while nobody has the id, too. */
    CHECK_EQ(htb_release(&w.tree, 10 * MS, 1), QOS_OK);
    CHECK_EQ(htb_reserve(&w.tree, S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, S, 1, 1), 10 * MS + 4990 * MS + MS);
    world_close(&w);

    /* The lowest possible level is kept, too. */
    config.debt_ns = HTB_BURST_MAX_NS;
    config.rate_per_s[0] = QOS_RATE_MAX;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, QOS_RATE_MAX, 0, 0);
    reserve(&w, 2, 1, 0, 0, 0);
    CHECK_EQ(force(&w, 2, QOS_TOKENS_MAX, 0, 0), QOS_OK);
    CHECK_EQ(force(&w, 2, QOS_TOKENS_MAX, 0, 0), QOS_OK); /* it owes twice QOS_TOKENS_MAX */
    CHECK_EQ(force(&w, 2, 1, 0, 0), QOS_EDEBT);
    none = class_of(0, 0, 0);
    none.group = true;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &none, NULL), QOS_OK);
    none.rate_per_s[0] = 1000000;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &none, NULL), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 10 * S, 2, 1), QOS_OK); /* the root has paid off */
    none.rate_per_s[0] = 0;
    CHECK_EQ(htb_change(&w.tree, 10 * S, 1, &none, NULL), QOS_OK);
    none.rate_per_s[0] = 1000000;
    CHECK_EQ(htb_change(&w.tree, 10 * S, 1, &none, NULL), QOS_OK);
    /* It owes 7,990,000,000: 10 s are paid. It may force again when it owes less than 1,000 s of its rate. */
    CHECK_EQ(force(&w, 2, 1, 0, 7000 * S - 1), QOS_EDEBT);
    CHECK_EQ(force(&w, 2, 1, 0, 7000 * S), QOS_OK);
    world_close(&w);
}

/* A new rate counts from the change on: next_ns follows, and earned tokens stay. */
static void live_rate(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 1000, 0);
    struct world w;
    uint64_t root = 2000000;
    config.burst_ns = S;
    world_open(&w, &config);
    reserve(&w, 2, 0, 900000, 0, 0);
    CHECK_EQ(force(&w, 2, 100000000, 0, 0), QOS_OK); /* the root lends nothing */
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 1, 500), 500 * MS);
    c.rate_per_s[0] = 2000;
    CHECK_EQ(htb_change(&w.tree, 100 * MS, 1, &c, NULL), QOS_OK); /* 100 earned, 400 to go at 2 per ms */
    CHECK_EQ(htb_next_ns(&w.tree, 100 * MS, 1, 500), 300 * MS);
    c.rate_per_s[0] = 250;
    CHECK_EQ(htb_change(&w.tree, 200 * MS, 1, &c, NULL), QOS_OK); /* 300 earned; a bucket of 250 is full */
    CHECK_EQ(htb_next_ns(&w.tree, 200 * MS, 1, 500), 200 * MS);
    CHECK_EQ(htb_take(&w.tree, 200 * MS, 1, 200), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 200 * MS, 1, 51), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 200 * MS, 1, 50), QOS_OK);
    /* A smaller burst cuts the level; a larger one adds nothing. */
    c.rate_per_s[0] = 1000;
    CHECK_EQ(htb_change(&w.tree, 200 * MS, 1, &c, NULL), QOS_OK);
    c.burst_ns = 100 * MS;
    CHECK_EQ(htb_change(&w.tree, 900 * MS, 1, &c, NULL), QOS_OK); /* 700 earned, 100 fit */
    c.burst_ns = S;
    CHECK_EQ(htb_change(&w.tree, 900 * MS, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 900 * MS, 1, 101), 901 * MS);
    /* The root owes 100,000,250, paid at 1,000,000/s for 1 s, then at the new 2,000,000/s. */
    CHECK_EQ(htb_next_ns(&w.tree, S, 7, 1), 100 * S + 251000);
    CHECK_EQ(htb_change_root(&w.tree, S, &root), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, S, 7, 1), S + 49500 * MS + 125500);
    world_close(&w);
}

/* When a rate, a limit or the root changes, the times of queued requests change at once. */
static void live_rate_with_queues(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 1000, 1000), g;
    struct world w;
    struct htb_request q = request_of(1, 100, 0), at_limit = request_of(4, 10, 0);
    uint64_t root = 10000000;
    config.burst_ns = S;
    config.resources = 1;
    world_open(&w, &config);
    reserve(&w, 2, 0, 900000, 0, 0);
    CHECK_EQ(force(&w, 2, 1000000, 0, 0), QOS_OK); /* the root owes 1 s */
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_submit(&w.tree, 0, &q), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), 100 * MS);
    c.rate_per_s[0] = c.limit_per_s[0] = 2000;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), 50 * MS);
    c.rate_per_s[0] = 0; /* the root's, from 1.0001 s on; and its limit */
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), S + 100000);
    CHECK_EQ(htb_change_root(&w.tree, 0, &root), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), 100 * MS + 10000);
    CHECK(htb_dispatch(&w.tree, 100 * MS + 9999) == NULL);
    CHECK(htb_dispatch(&w.tree, 100 * MS + 10000) == &q);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, &q), QOS_OK);
    /* A group that gets a rate lends at once to a class that waited at the group's limit. */
    reserve_group(&w, 3, 0, 1000, 0, 200 * MS);
    reserve(&w, 4, 3, 0, 1000000, 200 * MS);
    CHECK_EQ(force(&w, 2, 100000000, 0, 200 * MS), QOS_OK);
    CHECK_EQ(htb_submit(&w.tree, 200 * MS, &at_limit), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 200 * MS), 210 * MS);
    g = class_of(0, 10000, 0);
    g.group = true;
    CHECK_EQ(htb_change(&w.tree, 200 * MS, 3, &g, NULL), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 200 * MS), 201 * MS);
    CHECK(htb_dispatch(&w.tree, 201 * MS) == &at_limit);
    world_close(&w);
}

/* The end of time is an ordinary time. */
static void end_of_time(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 1000, 0);
    struct world w;
    world_open(&w, &config);
    CHECK_EQ(htb_reserve(&w.tree, UINT64_MAX, 1, &c, NULL), QOS_OK);
    CHECK_EQ(terms_of(&w, 1, &c), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, UINT64_MAX, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_release(&w.tree, UINT64_MAX, 1), QOS_OK);
    world_close(&w);
}

int main(void)
{
    check_begin("unit/htb_reserve");
    admission();
    errors();
    expiry_at_the_gate();
    end_with_queue(true);
    cancel_after_release();
    expired_is_gone();
    expiry_is_told();
    expiry_in_the_queues();
    moved();
    moved_between_rings();
    floor_of_debt();
    end_with_queue(false);
    nothing_minted();
    nothing_minted_by_the_clock();
    debt_is_kept();
    live_rate();
    live_rate_with_queues();
    end_of_time();
    return check_end();
}
