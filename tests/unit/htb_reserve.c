// proves: errors of terms change nothing, byte for byte (what is admitted, and what has expired: world/htb); the ends of
// proves: debts and of time
#include "htb_world.h"

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
    c = class_of(0, 0, 0);
    c.expires_ns = 6; /* best effort does not end */
    SAME(htb_change(&w.tree, 5, 0, &c, NULL), QOS_EINVAL);
    SAME(htb_reserve(&w.tree, 5, 0, &good, NULL), QOS_EINVAL);
    SAME(htb_release(&w.tree, 5, 0), QOS_EINVAL);
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
    errors();
    floor_of_debt();
    lowest_level();
    end_of_time();
    return check_end();
}
