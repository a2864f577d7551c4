// proves: the loop that a newcomer writes is the fair one: tenants that take until they are refused and sleep until the
// proves: time told share by weight in whatever order they are asked, with one wake-up a grant; who never comes back
// proves: costs nobody much, beside groups, too, nor who comes back only to ask for less or to be refused; and a claim ends
// proves: when it should. So do requests that need a whole bucket each. Who is refused as queued requests go first is not
// proves: told to come now. With two resources, what is left of one goes evenly to those that need only that. Callers
// proves: later than the time told, in one loop or each with a timer, share by weight, too
// variants: native san i386
// whole: san i386
#include "htb_world.h"

enum { TENANTS = 128 };

/* Tenants at the gate: each takes requests of its size until it is refused. One timer serves all, or each has its own. */
struct loop {
    struct world w;
    uint32_t count, id[TENANTS]; /* in the order in which they are asked */
    uint64_t size[TENANTS], got[TENANTS], told[TENANTS], grants, wakeups;
    uint64_t late_ns; /* they are called so much later than told; with timers of their own, up to that */
    bool own_timers;
    double weight[TENANTS]; /* by id; 0: its share is not compared */
};

static void loop_until(struct loop *l, uint64_t now_ns, uint64_t end_ns)
{
    uint32_t i, k;
    while (now_ns < end_ns) {
        uint64_t next_ns = QOS_NEVER;
        for (i = 0; i < l->count; i++) {
            uint32_t id = l->id[i];
            if (l->own_timers && l->told[id] > now_ns) {
                next_ns = qos_min(next_ns, l->told[id]);
                continue;
            }
            while (htb_take(&l->w.tree, now_ns, id, l->size[id]) == QOS_OK) {
                l->got[id] += l->size[id];
                l->grants++;
                for (k = 1; k < 16 && l->weight[id] > 0; k++)
                    if (l->weight[k] > 0)
                        CHECK_LE((double)l->got[id] / l->weight[id], (double)l->got[k] / l->weight[k] +
                                                                         (double)l->size[id] / l->weight[id] +
                                                                         (double)l->size[k] / l->weight[k] + 1);
            }
            l->told[id] = htb_next_ns(&l->w.tree, now_ns, id, l->size[id]);
            if (l->own_timers)
                l->told[id] += l->late_ns * ((l->grants + id) % 5) / 4;
            next_ns = qos_min(next_ns, l->told[id]);
        }
        CHECK(next_ns > now_ns);
        now_ns = l->own_timers ? next_ns : next_ns + l->late_ns;
        l->wakeups++;
    }
}

/* The next permutation of l->id in the order of numbers; false after the last one. */
static bool permute(struct loop *l)
{
    uint32_t i = l->count - 1, k = l->count - 1, t;
    while (i > 0 && l->id[i - 1] > l->id[i])
        i--;
    if (i == 0)
        return false;
    while (l->id[k] < l->id[i - 1])
        k--;
    t = l->id[i - 1];
    l->id[i - 1] = l->id[k];
    l->id[k] = t;
    for (k = l->count - 1; i < k; i++, k--) {
        t = l->id[i];
        l->id[i] = l->id[k];
        l->id[k] = t;
    }
    return true;
}

static struct htb_config config_of(enum htb_bound bound)
{
    struct htb_config c;
    memset(&c, 0, sizeof c);
    c.classes = TENANTS;
    c.rate_per_s[0] = 40000000;
    c.bound = bound;
    return c;
}

/* An equal order begins for each permutation. */
static void open_loop(struct loop *l, const struct htb_config *config, uint32_t count)
{
    world_open(&l->w, config);
    memset(l->got, 0, sizeof l->got);
    memset(l->weight, 0, sizeof l->weight);
    memset(l->told, 0, sizeof l->told);
    l->own_timers = false;
    l->late_ns = 0;
    l->grants = l->wakeups = 0;
    l->count = count;
}

static void first_order(struct loop *l, uint32_t count, uint32_t from)
{
    uint32_t i;
    for (i = 0; i < count; i++)
        l->id[i] = from + i;
    l->count = count;
}

static void reserve_weight(struct loop *l, uint32_t id, uint32_t parent, uint32_t weight)
{
    struct htb_class c = class_of(parent, 0, 0);
    c.weight = weight;
    CHECK_EQ(htb_reserve(&l->w.tree, 0, id, &c, NULL), QOS_OK);
    l->weight[id] = weight;
}

/* The README's program: it prints the same in either order, whichever tenant has the lower id. */
static void readme(uint32_t gold, enum htb_bound bound)
{
    const struct htb_config config = config_of(bound);
    struct loop l;
    const uint32_t other = 3 - gold;
    first_order(&l, 2, 1);
    do {
        CHECK_CONTEXT("gold is %u, asked first %u, bound %d", gold, l.id[0], (int)bound);
        open_loop(&l, &config, 2);
        reserve(&l.w, gold, 0, 15000000, 0, 0);
        reserve(&l.w, other, 0, 0, 10000000, 0);
        l.size[1] = l.size[2] = 65536;
        loop_until(&l, 0, S);
        CHECK_EQ((l.got[gold] + 50000) / 100000, 300);
        CHECK_EQ((l.got[other] + 50000) / 100000, 100);
        world_close(&l.w);
    } while (permute(&l));
}

/* Tenants without reservations, in all orders: any two are at most one request of each apart, per weight, at any time.
 * The rate is used up, and nobody wakes in vain. sizes: 0: all 64 KiB. */
static void all_orders(uint32_t count, bool weights, bool sizes, enum htb_bound bound, uint64_t request_max)
{
    struct htb_config config = config_of(bound);
    struct loop l;
    uint64_t sum;
    uint32_t id;
    config.request_max_tokens = request_max;
    first_order(&l, count, 1);
    do {
        CHECK_CONTEXT("%u tenants, weights %d, sizes %d, bound %d; first %u, second %u", count, weights, sizes,
                      (int)bound, l.id[0], l.id[1]);
        open_loop(&l, &config, count);
        for (id = 1; id <= count; id++) {
            reserve_weight(&l, id, 0, weights ? id * id : 1);
            l.size[id] = sizes ? 5000 * id * id : 65536;
        }
        loop_until(&l, 0, S);
        for (id = 1, sum = 0; id <= count; id++)
            sum += l.got[id];
        CHECK_GE(sum + l.size[count], 40000000);
        CHECK_LE(l.wakeups, l.grants + 3);
        world_close(&l.w);
    } while (permute(&l));
}

/* Each request needs all that the root's bucket holds, or that of the limit of their group (0: it has none), or more: the
 * first claim goes first, in all orders. */
static void whole_buckets(enum htb_bound bound, uint64_t size, uint64_t limit_per_s)
{
    struct htb_config config = config_of(bound);
    struct htb_class c = class_of(0, 0, limit_per_s);
    struct loop l;
    uint32_t id;
    config.request_max_tokens = QOS_NOTHING;
    first_order(&l, 3, 1);
    do {
        CHECK_CONTEXT("requests of %llu, limit %llu, bound %d; first %u, second %u", (unsigned long long)size,
                      (unsigned long long)limit_per_s, (int)bound, l.id[0], l.id[1]);
        open_loop(&l, &config, 3);
        c.group = true;
        CHECK_EQ(htb_reserve(&l.w.tree, 0, 4, &c, NULL), QOS_OK);
        for (id = 1; id <= 3; id++) {
            reserve_weight(&l, id, 4, id);
            l.size[id] = size;
        }
        loop_until(&l, 0, 2 * S);
        CHECK_GE(l.got[1] + l.got[2] + l.got[3] + size, limit_per_s == 0 ? 80000000 : 2 * limit_per_s);
        CHECK_LE(l.wakeups, 4 * l.grants + 3); /* a claim seems to end burst_ns after its time */
        world_close(&l.w);
    } while (permute(&l));
}

/* Tenants of a group (of this limit; 0: none) that ask every 60 ms, one after the other, and never come back cost nobody
 * much, also if each asks for all that a bucket holds: two beside them share what is left, of whatever sizes (an even part
 * of all, if they ask for as much), and all is used. */
static void never_come_back(uint32_t count, uint64_t size, uint32_t weight, uint64_t limit_per_s, uint64_t request_max,
                            uint64_t first, uint64_t second, enum htb_bound bound)
{
    struct htb_config config = config_of(bound);
    struct htb_class c = class_of(0, 0, limit_per_s);
    const uint64_t seconds = check_state.scale > 2 ? 2 : 6, rate = limit_per_s != 0 ? limit_per_s : 40000000;
    struct loop l;
    uint64_t now;
    uint32_t id = 0;
    CHECK_CONTEXT("%u that ask for %llu, weight %u, limit %llu, beside %llu and %llu, bound %d", count,
                  (unsigned long long)size, weight, (unsigned long long)limit_per_s, (unsigned long long)first,
                  (unsigned long long)second, (int)bound);
    config.request_max_tokens = request_max;
    config.maximize_interval_ns = MS;
    config.maximize_rate_max = config.rate_per_s[0];
    first_order(&l, 2, 1);
    open_loop(&l, &config, 2);
    c.group = true;
    c.rate_per_s[0] = rate / 2;
    CHECK_EQ(htb_reserve(&l.w.tree, 0, TENANTS - 1, &c, NULL), QOS_OK);
    l.size[1] = first;
    l.size[2] = second;
    for (id = 1; id < 3 + count; id++) {
        reserve_weight(&l, id, TENANTS - 1, id < 3 ? 1 : weight);
        l.weight[id] = 0;
    }
    for (now = 0, id = 0; now < seconds * S; now += 60 * MS / count, id++) {
        enum qos_status status = htb_take(&l.w.tree, now, 3 + id % count, size);
        CHECK(status == QOS_OK || status == QOS_EAGAIN);
        (void)htb_maximize(&l.w.tree, now, true); /* it looks at the buckets, and changes nothing */
        loop_until(&l, now, now + 60 * MS / count);
    }
    CHECK_GE(stats_of(&l.w, QOS_NONE).granted + size + second, seconds * rate * 998 / 1000);
    CHECK_GE(l.got[1] + l.got[2], first == size ? seconds * rate * 2 / (2 + count) : seconds * rate / 10 * 8);
    CHECK_WITHIN((double)l.got[1], (double)l.got[2] - (double)(first + second),
                 (double)l.got[2] + (double)(first + second));
    world_close(&l.w);
}

/* Tenants that came back for a second, and then come at the time told for one token only, or ask for as much as before only
 * when they would be refused: they hold nobody off for long. */
static void come_for_less(bool less, enum htb_bound bound)
{
    enum { COUNT = 40 };
    const struct htb_config config = config_of(bound);
    struct loop l;
    uint64_t now = 0, at_first = 0;
    uint32_t id;
    CHECK_CONTEXT("come for less %d, bound %d", less, (int)bound);
    first_order(&l, COUNT + 1, 1);
    open_loop(&l, &config, COUNT + 1);
    for (id = 1; id <= COUNT + 1; id++) {
        reserve_weight(&l, id, 0, 1);
        l.size[id] = id <= COUNT ? 400000 : 4096;
    }
    while (now < 4 * S) {
        uint64_t next_ns = 4 * S;
        for (id = 1; id <= COUNT + 1; id++) {
            const bool plays = id <= COUNT && now >= S;
            if (l.told[id] <= now) {
                enum qos_status s = plays && less ? htb_take(&l.w.tree, now, id, 1) : QOS_EAGAIN;
                if (!plays || htb_next_ns(&l.w.tree, now, id, l.size[id]) > now)
                    while ((s = htb_take(&l.w.tree, now, id, l.size[id])) == QOS_OK)
                        l.got[id] += l.size[id];
                CHECK(s == QOS_OK || s == QOS_EAGAIN);
                l.told[id] = htb_next_ns(&l.w.tree, now, id, l.size[id]) + (plays ? 9 * MS : 0);
            }
            next_ns = qos_min(next_ns, l.told[id]);
        }
        at_first = now < S ? l.got[COUNT + 1] : at_first;
        now = next_ns;
    }
    CHECK_GE(l.got[COUNT + 1] - at_first, 3 * 36000000);
    world_close(&l.w);
}

/* Ten groups: a tenant of each came back for whole bursts, then always a tenant beside it takes a little when it could, which
 * is the turn of the group. Another one has at least half of an even part of the device, and half of this is in use. */
static void pass_the_turn(enum htb_bound bound)
{
    enum { COUNT = 10, OTHER = 3 * COUNT + 1 };
    const struct htb_config config = config_of(bound);
    struct htb_class c = class_of(0, 0, 0);
    struct loop l;
    uint64_t now = 0, next_ns = 0, all = 0, at_first = 0, got[OTHER + 1] = {0}, came[COUNT + 1] = {0};
    uint32_t id;
    CHECK_CONTEXT("bound %d", (int)bound);
    open_loop(&l, &config, 0);
    c.group = true;
    for (id = 1; id <= COUNT; id++) {
        CHECK_EQ(htb_reserve(&l.w.tree, 0, id, &c, NULL), QOS_OK);
        reserve_weight(&l, COUNT + id, id, 1);
        reserve_weight(&l, 2 * COUNT + id, id, 1);
    }
    reserve_weight(&l, OTHER, 0, 1);
    for (; now < 4 * S; now = next_ns) {
        next_ns = QOS_NEVER;
        for (id = COUNT + 1; id <= OTHER; id += id == 2 * COUNT ? COUNT + 1 : 1) {
            const uint64_t n = id == OTHER ? 4096 : 400000;
            const bool plays = id != OTHER && came[id - COUNT] >= 2;
            if (l.told[id] <= now) {
                if (plays && htb_next_ns(&l.w.tree, now, id, n) <= now)
                    all += htb_take(&l.w.tree, now, id + COUNT, 200) == QOS_OK ? 200 : 0;
                while (htb_take(&l.w.tree, now, id, n) == QOS_OK) {
                    got[id] += n;
                    all += n;
                    if (id != OTHER && ++came[id - COUNT] > 0)
                        break;
                }
                l.told[id] = htb_next_ns(&l.w.tree, now, id, n);
            }
            next_ns = qos_min(next_ns, qos_max(l.told[id], now + 1));
        }
        if (at_first == 0 && now >= S)
            at_first = got[OTHER] + 1;
    }
    CHECK_GE(got[OTHER] - at_first, 3 * 40000000 / (COUNT + 1) / 2);
    CHECK_GE(all, 4 * 40000000 / 2);
    world_close(&l.w);
}

/* Each few ms somebody sets the terms of a class, or of the group above (the same), or the root's rate: who needs a whole
 * burst and who needs little share as ever. */
static void changes(uint32_t changed, uint64_t every_ns, enum htb_bound bound)
{
    struct htb_config config = config_of(bound);
    struct htb_class c = class_of(0, 0, 0);
    uint64_t now, rate[HTB_RESOURCES_MAX] = {40000000, 0, 0, 0};
    struct loop l;
    CHECK_CONTEXT("terms of %u each %llu ns, bound %d", changed, (unsigned long long)every_ns, (int)bound);
    first_order(&l, 2, 1);
    open_loop(&l, &config, 2);
    c.group = true;
    c.rate_per_s[0] = 40000000;
    CHECK_EQ(htb_reserve(&l.w.tree, 0, 3, &c, NULL), QOS_OK);
    reserve_weight(&l, 1, 3, 1);
    reserve_weight(&l, 2, 3, 1);
    l.own_timers = true;
    l.size[1] = 400000;
    l.size[2] = 4096;
    for (now = 0; now < S; now += every_ns) {
        struct htb_class_state is;
        loop_until(&l, now, now + every_ns);
        if (changed == 0) {
            rate[0] ^= 1; /* another one */
            CHECK_EQ(htb_change_root(&l.w.tree, now + every_ns, rate), QOS_OK);
            continue;
        }
        CHECK_EQ(htb_class_info(&l.w.tree, changed, &is), QOS_OK);
        CHECK_EQ(htb_change(&l.w.tree, now + every_ns, changed, &is.terms, NULL), QOS_OK);
    }
    CHECK_GE(l.got[1] + l.got[2], 39000000);
    world_close(&l.w);
}

/* Two that come back need what the bucket holds, and wait for a second as somebody owes that much. Then the root is a
 * hundred times as fast: they could have come soon, so others do not wait for them. */
static void root_is_faster(void)
{
    struct htb_config config = config_of(HTB_BY_RATE);
    uint64_t rate[HTB_RESOURCES_MAX] = {40000000, 0, 0, 0};
    struct loop l;
    config.rate_per_s[0] = 400000;
    first_order(&l, 2, 1);
    open_loop(&l, &config, 2);
    reserve_weight(&l, 1, 0, 1);
    reserve_weight(&l, 2, 0, 1);
    reserve_weight(&l, 3, 0, 1);
    l.weight[3] = 0;
    l.size[1] = l.size[2] = 400000;
    l.size[3] = 4096;
    loop_until(&l, 0, 20 * S + 500 * MS);
    CHECK_EQ(htb_change_root(&l.w.tree, 20 * S + 500 * MS, rate), QOS_OK);
    l.count = 1;
    l.id[0] = 3;
    loop_until(&l, 20 * S + 500 * MS, 20 * S + 600 * MS);
    CHECK_GE(l.got[3], 1000000);
    world_close(&l.w);
}

/* Group 1 (weight 1) with classes 3 and 4, group 2 (weight 3) with 5 and 6, in all orders. limited: the limit of group
 * 1 is below its share, so its classes share that. */
static void groups(bool limited, enum htb_bound bound)
{
    const struct htb_config config = config_of(bound);
    struct loop l;
    const double first = limited ? 4e6 : 10e6, second = 40e6 - first;
    first_order(&l, 4, 3);
    do {
        struct htb_class c = class_of(0, 0, limited ? 4000000 : 0);
        uint32_t id;
        CHECK_CONTEXT("groups, limited %d, bound %d; order %u %u %u", limited, (int)bound, l.id[0], l.id[1], l.id[2]);
        open_loop(&l, &config, 4);
        c.group = true;
        CHECK_EQ(htb_reserve(&l.w.tree, 0, 1, &c, NULL), QOS_OK);
        c = class_of(0, 0, 0);
        c.group = true;
        c.weight = 3;
        CHECK_EQ(htb_reserve(&l.w.tree, 0, 2, &c, NULL), QOS_OK);
        for (id = 3; id <= 6; id++) {
            reserve_weight(&l, id, id < 5 ? 1 : 2, 1);
            l.weight[id] = 0;
            l.size[id] = 16384;
        }
        loop_until(&l, 0, S);
        for (id = 3; id <= 6; id++)
            CHECK_WITHIN((double)l.got[id], (id < 5 ? first : second) / 2 - 2 * 16384,
                         (id < 5 ? first : second) / 2 + 2 * 16384);
        world_close(&l.w);
    } while (permute(&l));
}

/* Classes 4 and 5 of equal requests beside group 1 with classes 2 and 3, in all orders: any two that have one parent are
 * at most one request of each apart. Each tenant has a timer, so who was told too late a time takes what piled up. */
static void beside_group(uint64_t size2, uint64_t size3, uint32_t weight, enum htb_bound bound)
{
    const struct htb_config config = config_of(bound);
    struct loop l;
    first_order(&l, 4, 2);
    do {
        struct htb_class c = class_of(0, 0, 0);
        uint32_t id;
        CHECK_CONTEXT("requests of %llu and %llu, weight %u, bound %d; order %u %u %u", (unsigned long long)size2,
                      (unsigned long long)size3, weight, (int)bound, l.id[0], l.id[1], l.id[2]);
        open_loop(&l, &config, 4);
        l.own_timers = true;
        c.group = true;
        c.weight = weight;
        CHECK_EQ(htb_reserve(&l.w.tree, 0, 1, &c, NULL), QOS_OK);
        for (id = 2; id <= 5; id++) {
            reserve_weight(&l, id, id < 4 ? 1 : 0, 1);
            l.weight[id] = id < 4 ? 0 : 1;
            l.size[id] = id == 2 ? size2 : id == 3 ? size3 : 4096;
        }
        loop_until(&l, 0, S / 4);
        CHECK_GE(l.got[2] + l.got[3] + l.got[4] + l.got[5] + size2 + size3, 10000000);
        CHECK_WITHIN((double)l.got[2], (double)l.got[3] - (double)(size2 + size3),
                     (double)l.got[3] + (double)(size2 + size3));
        CHECK_WITHIN((double)(l.got[2] + l.got[3]) / weight, (double)l.got[4] - (double)(size2 + size3) / weight - 4096,
                     (double)l.got[4] + (double)(size2 + size3) / weight + 4096);
        world_close(&l.w);
    } while (permute(&l));
}

/* Classes 3 and 4 of weights 1 and 4 in group 1 of weight 4, and class 5 of weight 1, in all orders: what gathers until they
 * come is shared by weight, whoever is asked first, and is used up. */
static void late(uint64_t late_ns, bool own_timers, uint64_t request_max, enum htb_bound bound)
{
    struct htb_config config = config_of(bound);
    const double apart = 40e6 / 1e9 * (double)late_ns + 2 * 8192;
    struct loop l;
    config.request_max_tokens = request_max;
    first_order(&l, 3, 3);
    do {
        struct htb_class c = class_of(0, 0, 0);
        uint32_t id;
        CHECK_CONTEXT("late by %llu ns, own timers %d, bound %d; order %u %u", (unsigned long long)late_ns, own_timers,
                      (int)bound, l.id[0], l.id[1]);
        open_loop(&l, &config, 3);
        l.own_timers = own_timers;
        l.late_ns = late_ns;
        c.group = true;
        c.weight = 4;
        CHECK_EQ(htb_reserve(&l.w.tree, 0, 1, &c, NULL), QOS_OK);
        for (id = 3; id <= 5; id++) {
            reserve_weight(&l, id, id < 5 ? 1 : 0, id == 4 ? 4 : 1);
            l.weight[id] = 0;
            l.size[id] = id == 3 ? 8192 : 4096;
        }
        loop_until(&l, 0, S);
        CHECK_GE((double)(l.got[3] + l.got[4] + l.got[5]), 40e6 - apart);
        CHECK_WITHIN((double)l.got[3], 6.4e6 - apart, 6.4e6 + apart);
        CHECK_WITHIN((double)l.got[4], 25.6e6 - apart, 25.6e6 + apart);
        CHECK_WITHIN((double)l.got[5], 8e6 - apart, 8e6 + apart);
        world_close(&l.w);
    } while (permute(&l));
}

/* 1,000 tokens per ms, none at first. Classes 2 and 3 are of group 1. */
static void open_group(struct world *w)
{
    const struct htb_config config = world_config();
    struct htb_class c = class_of(0, 0, 0);
    c.group = true;
    world_open(w, &config);
    CHECK_EQ(htb_reserve(&w->tree, 0, 1, &c, NULL), QOS_OK);
    reserve(w, 2, 1, 0, 0, 0);
    reserve(w, 3, 1, 0, 0, 0);
}

/* A group has one claim beside others, its first; the second stands behind it. */
static void first_of_group(void)
{
    struct htb_class c = class_of(0, 0, 50000);
    struct world w;
    open_group(&w);
    reserve(&w, 4, 0, 0, 0, 0);
    CHECK_EQ(htb_take(&w.tree, 0, 2, 500), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 0, 3, 200), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 4, 100), 600000);
    CHECK_EQ(htb_take(&w.tree, 0, 4, 100), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 3, 200), 1200000);
    CHECK_EQ(htb_release(&w.tree, 0, 2), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 4, 100), 300000);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 3, 200), 200000);
    world_close(&w);
    /* At 24 ms, when the limit of 4 passes, the claim of 2 is over: then that of 3, which is larger, goes before. */
    open_group(&w);
    c.burst_ns = 50 * MS;
    CHECK_EQ(htb_reserve(&w.tree, 0, 4, &c, NULL), QOS_OK);
    CHECK_EQ(force(&w, 0, 10000, 0, 0), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 0, 2, 100), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 0, 3, 7000), QOS_EAGAIN);
    CHECK_EQ(force(&w, 0, 8000, 0, 19 * MS), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 19 * MS, 4, 1200), 26200000);
    world_close(&w);
    /* Class 2 is behind 3 by three of its requests, and group 1 by three of those of 4 when 2 has them: 50 + 300 + 600. */
    open_group(&w);
    reserve(&w, 4, 0, 0, 0, 0);
    CHECK_EQ(htb_take(&w.tree, 0, 2, 100), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 400000, 3, 300), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 400000, 4, 200), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 400000, 3, 50), 400000 + 850000);
    world_close(&w);
}

/* More tenants than there is room for claims. */
static void many(uint32_t count)
{
    const struct htb_config config = config_of(HTB_BY_FLIGHT);
    struct loop l;
    uint32_t id;
    uint64_t least = UINT64_MAX, most = 0;
    first_order(&l, count, 1);
    open_loop(&l, &config, count);
    for (id = 1; id <= count; id++) {
        reserve_weight(&l, id, 0, 1);
        l.weight[id] = 0;
        l.size[id] = 4096;
    }
    loop_until(&l, 0, (check_state.scale > 2 ? 100 : 400) * MS);
    for (id = 1; id <= count; id++) {
        least = qos_min(least, l.got[id]);
        most = qos_max(most, l.got[id]);
    }
    CHECK_LE(most - least, 2 * 4096);
    world_close(&l.w);
}

/* 1,000 tokens per ms; the root's bucket is empty. Class 1 claims 500, so class 2 has to wait for 600. */
static void open_claimed(struct world *w, uint64_t limit_per_s)
{
    struct htb_config config = world_config();
    world_open(w, &config);
    reserve(w, 1, 0, 0, limit_per_s, 0);
    reserve(w, 2, 0, 0, 0, 0);
    CHECK_EQ(htb_next_ns(&w->tree, 0, 2, 100), 100000);
    CHECK_EQ(htb_take(&w->tree, 0, 1, 500), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w->tree, 0, 2, 100), limit_per_s ? 100000 : 600000);
}

static void ends(void)
{
    struct htb_class c = class_of(0, 0, 0);
    struct world w;
    /* By being taken; by its time: what it was told, and 10 ms. */
    open_claimed(&w, 0);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 9900), 10 * MS); /* the bucket holds 10,000: not more is asked for */
    CHECK_EQ(htb_take(&w.tree, 500000, 1, 500), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 500000, 2, 100), 600000);
    world_close(&w);
    open_claimed(&w, 0);
    CHECK_EQ(htb_take(&w.tree, 599999, 2, 100), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 600000, 2, 100), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 600000, 2, 9900), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 600000, 2, 9500), 10 * MS + 100000);
    CHECK_EQ(htb_next_ns(&w.tree, 600000, 2, 9950), 10 * MS + 100000); /* full */
    world_close(&w);
    open_claimed(&w, 0); /* a force leaves 9,900 at 10.4 ms: then the claim ends at 10.5, before there are 10,000 */
    CHECK_EQ(force(&w, 2, 9900, 0, 10 * MS), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 2, 450), 10 * MS + 500000);
    CHECK_EQ(htb_next_ns(&w.tree, 10 * MS, 2, 700), 10 * MS + 600000);
    CHECK_EQ(htb_take(&w.tree, 10 * MS + 499999, 2, 450), QOS_EAGAIN);
    CHECK_EQ(htb_take(&w.tree, 10 * MS + 500000, 2, 450), QOS_OK);
    world_close(&w);
    /* By release, by a limit of its own but by no other change, by another demand of the class, and with the clock. */
    open_claimed(&w, 0);
    CHECK_EQ(htb_release(&w.tree, 0, 1), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 100), 100000);
    world_close(&w);
    open_claimed(&w, 0);
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 100), 600000);
    c.limit_per_s[0] = 1000;
    CHECK_EQ(htb_change(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 100), 100000);
    world_close(&w);
    open_claimed(&w, 0);
    CHECK_EQ(htb_take(&w.tree, 0, 1, 0), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 100), 600000);
    CHECK_EQ(htb_take(&w.tree, 0, 1, 50), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 0, 2, 100), 150000);
    world_close(&w);
    open_claimed(&w, 0);
    CHECK_EQ(htb_take(&w.tree, S, 0, 1), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S, 0, 9999), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, S, 1, 500), QOS_EAGAIN);
    htb_reset_clock(&w.tree, 1000);
    CHECK_EQ(htb_next_ns(&w.tree, 1000, 2, 100), 101000);
    world_close(&w);
    /* A class at its own limit claims nothing. */
    open_claimed(&w, 1000);
    world_close(&w);
}

/* Four tenants come back each time, the last time by a clock that is an hour ahead. When it is set back, what they took
 * then keeps no bucket full for that hour: the last one, beside claims that are more than it holds, waits until it is. */
static void kept_by_a_wrong_clock(void)
{
    struct htb_config config = world_config();
    uint64_t now = S;
    struct world w;
    uint32_t id, round;
    config.request_max_tokens = 0;
    world_open(&w, &config);
    for (id = 1; id <= 4; id++)
        reserve(&w, id, 0, 0, 0, 0);
    for (round = 0; round < 4; round++) {
        now += round == 3 ? 3600 * S : 0;
        for (id = 1; id <= 4 && round == 3; id++)
            (void)!htb_take(&w.tree, now, id, 8000);
        for (id = 1; id <= 4; id++) {
            if (htb_take(&w.tree, now, id, 8000) == QOS_OK)
                continue;
            now = htb_next_ns(&w.tree, now, id, 8000);
            CHECK_EQ(htb_take(&w.tree, now, id, 8000), QOS_OK);
        }
    }
    htb_reset_clock(&w.tree, 2 * S);
    for (id = 1; id <= 4; id++)
        CHECK_EQ(htb_take(&w.tree, 2 * S, id, 8000), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 2 * S, 4, 8000), 2 * S + 20 * MS);
    world_close(&w);
}

/* Requests are queued and the device is full: who is refused as they go first is told when its own tokens come, or
 * never until a call for the queues; who is told now can take. */
static void behind_the_queues(enum htb_bound bound, uint32_t queued_id)
{
    const bool behind = queued_id == 2 || bound == HTB_BY_RATE;
    struct htb_config config = config_of(bound);
    struct htb_class c = {0, 0, {0}, {0}, 0, 0, 0, false};
    static struct htb_request r[3];
    struct world w;
    uint32_t i;
    config.device_max = config.dispatch_max = 1;
    world_open(&w, &config);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_reserve(&w.tree, 0, 2, &c, NULL), QOS_OK);
    c.rate_per_s[0] = 4000000;
    CHECK_EQ(htb_reserve(&w.tree, 0, 3, &c, NULL), QOS_OK);
    memset(r, 0, sizeof r);
    for (i = 0; i < 2; i++) {
        r[i].class_id = queued_id;
        r[i].tokens[0] = 4096;
        CHECK_EQ(htb_submit(&w.tree, S, &r[i]), QOS_OK);
    }
    CHECK(htb_dispatch(&w.tree, S) == &r[0]);
    CHECK(htb_dispatch(&w.tree, S) == NULL);
    CHECK_EQ(htb_next_ns(&w.tree, S, 2, 4096), behind ? QOS_NEVER : S);
    CHECK_EQ(htb_take(&w.tree, S, 2, 4096), behind ? QOS_EAGAIN : QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 2 * S, 3, 40000), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 2 * S, 3, 40000), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 2 * S, 3, 40000), bound == HTB_BY_RATE ? 2 * S + 10 * MS : 2 * S); /* or it borrows */
    CHECK_EQ(htb_cancel(&w.tree, 2 * S, &r[1]), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 2 * S, 2, 4096), 2 * S);
    CHECK_EQ(htb_take(&w.tree, 2 * S, 2, 4096), QOS_OK);
    CHECK_EQ(htb_complete(&w.tree, 2 * S, HTB_DONE, NULL, &r[0]), QOS_OK);
    world_close(&w);
}

/* Two resources. What the tenants that lack one of them leave of the other goes to those that need only that one: evenly. */
static void several_resources(void)
{
    static const uint64_t n[5][HTB_RESOURCES_MAX] = {{0}, {6, 76}, {2, 35}, {0, 1792}, {0, 1792}};
    static const uint32_t weight[] = {0, 3, 1, 1, 1};
    struct htb_config config = config_of(HTB_BY_RATE);
    uint64_t now = 0, next, got[5] = {0};
    struct htb_class c;
    struct world w;
    uint32_t id;
    config.resources = 2;
    config.rate_per_s[0] = 4000;
    config.rate_per_s[1] = 512000;
    world_open(&w, &config);
    for (id = 1; id <= 4; id++) {
        c = class_of(0, id == 2 ? 400 : 0, 0);
        c.rate_per_s[1] = id == 2 ? 51200 : 0;
        c.weight = weight[id];
        CHECK_EQ(htb_reserve(&w.tree, 0, id, &c, NULL), QOS_OK);
    }
    for (; now < 4 * S; now = next)
        for (next = QOS_NEVER, id = 1; id <= 4; id++) {
            while (htb_take_all(&w.tree, now, id, n[id]) == QOS_OK)
                got[id] += n[id][1];
            next = qos_min(next, htb_next_ns_all(&w.tree, now, id, n[id]));
        }
    CHECK_WITHIN((double)got[3] / (double)got[4], 0.95, 1.05);
    CHECK_GE(got[3] + got[4], 4 * 512000 * 85 / 100);
    world_close(&w);
}

int main(void)
{
    int bound;
    uint32_t id;
    check_begin("unit/htb_claims");
    for (bound = HTB_BY_FLIGHT; bound <= HTB_BY_RATE; bound++) {
        enum htb_bound b = (enum htb_bound)bound;
        /* What takes longest: sanitizers and other processors see it with one bound. */
        const bool longest = check_state.scale <= 2 || b == HTB_BY_FLIGHT;
        readme(1, b);
        readme(2, b);
        all_orders(2, false, false, b, 0);
        all_orders(3, false, false, b, 0);
        all_orders(3, true, true, b, 0);
        all_orders(3, true, true, b, 131072);
        if (check_state.scale <= 2) { /* 144 orders more; sanitizers and other processors see those of three */
            all_orders(4, true, false, b, 0);
            all_orders(5, false, true, b, QOS_NOTHING);
        }
        whole_buckets(b, 400000, 0);
        whole_buckets(b, 1000000, 0);
        whole_buckets(b, 1000000, 20000000);
        never_come_back(1, 65536, 1, 0, 0, 16384, 16384, b);
        never_come_back(30, 400000, 1, 0, 0, 16384, 16384, b);
        never_come_back(1, 400000, 4, 0, QOS_NOTHING, 16384, 16384, b);
        never_come_back(8, 600000, 1, 0, 200000, 16384, 16384, b);
        never_come_back(30, 400000, 4, 0, QOS_NOTHING, 16384, 16384, b);
        if (longest)
            never_come_back(100, 200000, 1, 20000000, QOS_NOTHING, 16384, 16384, b);
        never_come_back(30, 300000, 1, 0, 0, 16384, 16384, b);
        never_come_back(30, 400000, 1, 0, 0, 400000, 400000, b);
        never_come_back(30, 400000, 10, 0, QOS_NOTHING, 4096, 400000, b);
        for (id = 0; id <= 3; id++) {
            changes(id, 5 * MS, b);
            changes(id, MS / 2, b);
        }
        pass_the_turn(b);
        if (longest)
            come_for_less(true, b);
        come_for_less(false, b);
        behind_the_queues(b, 1);
        behind_the_queues(b, 2);
        if (longest)
            groups(true, b);
        if (check_state.scale <= 2)
            groups(false, b);
        beside_group(16384, 65536, 3, b);
        if (check_state.scale <= 2) {
            beside_group(65536, 65536, 1, b);
            beside_group(262144, 16384, 1, b);
            late(1000000, false, 0, b);
            late(5000000, false, 0, b);
        }
        late(2000000, true, 0, b);
        late(5000000, false, QOS_NOTHING, b);
    }
    if (check_state.scale <= 2)
        many(64);
    many(100);
    first_of_group();
    root_is_faster();
    ends();
    kept_by_a_wrong_clock();
    several_resources();
    return check_end();
}
