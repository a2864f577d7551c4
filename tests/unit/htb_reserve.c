// proves: Section 5.1: admission at every level, with the rate that would fit; errors that change nothing; what has
// proves: expired is gone for each call, with requests, too; the ends of debts and of time
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

static struct htb_request request_of(uint32_t id, uint64_t tokens, uint64_t offset)
{
    struct htb_request r;
    memset(&r, 0, sizeof r);
    r.class_id = id;
    r.tokens[0] = tokens;
    r.offset = offset;
    return r;
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

/* Refused moves change nothing: below itself or a class, too deep, to a place where it does not fit, of class 0, below an
 * unknown id. */
static void refused_moves(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(3, 500000, 0);
    uint64_t fits[HTB_RESOURCES_MAX];
    struct world w;
    config.depth_max = 3;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 500000, 0, 0);
    reserve_group(&w, 2, 0, 300000, 0, 0);
    reserve_group(&w, 3, 1, 200000, 0, 0);
    reserve(&w, 4, 3, 200000, 0, 0);
    reserve(&w, 5, 2, 200000, 0, 0);
    world_draw(&w);
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

/* The lowest possible level is kept by a change to no rate and back. */
static void lowest_level(void)
{
    struct htb_config config = world_config();
    struct htb_class none = class_of(0, 0, 0);
    struct world w;
    config.debt_ns = HTB_BURST_MAX_NS;
    config.rate_per_s[0] = QOS_RATE_MAX;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, QOS_RATE_MAX, 0, 0);
    reserve(&w, 2, 1, 0, 0, 0);
    CHECK_EQ(force(&w, 2, QOS_TOKENS_MAX, 0, 0), QOS_OK);
    CHECK_EQ(force(&w, 2, QOS_TOKENS_MAX, 0, 0), QOS_OK); /* it owes twice QOS_TOKENS_MAX */
    CHECK_EQ(force(&w, 2, 1, 0, 0), QOS_EDEBT);
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
    refused_moves();
    expired_is_gone();
    expiry_in_the_queues();
    floor_of_debt();
    lowest_level();
    end_of_time();
    return check_end();
}
