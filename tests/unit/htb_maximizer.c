// proves: Section 5.5: the root's rate stays in scenarios 1 and 2, rises in scenario 3, and falls when a class misses
// proves: its rate. It is never below the configured rate or above its bound, rises by one step per interval at most, and
// proves: sees a class that waits at the device only
#include "htb_world.h"

#define DEPTH 8

/* Closed-loop classes over a device of a given rate in tokens/s. The maximizer looks every 10 ms. */
struct device {
    struct world w;
    struct htb_request request[3 * DEPTH];
    uint64_t now_ns, busy_until_ns, device_per_s, served;
    struct htb_request *at_device;
    enum htb_scenario seen;
    unsigned looks[4]; /* of 10 ms each, by scenario */
};

static void device_open(struct device *d, const struct htb_config *config, uint64_t device_per_s)
{
    memset(d->request, 0, sizeof d->request);
    d->now_ns = config->start_ns;
    d->busy_until_ns = 0;
    d->device_per_s = device_per_s;
    d->served = 0;
    d->at_device = NULL;
    d->seen = HTB_UNCAPPED;
    memset(d->looks, 0, sizeof d->looks);
    world_open(&d->w, config);
}

static void add(struct device *d, unsigned stream, uint32_t id, uint64_t tokens)
{
    unsigned i;
    for (i = stream * DEPTH; i < (stream + 1) * DEPTH; i++) {
        d->request[i].class_id = id;
        d->request[i].tokens[0] = tokens;
        CHECK_EQ(htb_submit(&d->w.tree, d->now_ns, &d->request[i]), QOS_OK);
    }
}

static void run_until(struct device *d, uint64_t to_ns)
{
    for (; d->now_ns < to_ns; d->now_ns += 10 * MS) {
        uint64_t t = d->now_ns;
        while (t < d->now_ns + 10 * MS) {
            uint64_t next;
            if (d->at_device && d->busy_until_ns <= t) {
                struct htb_request *r = d->at_device;
                d->at_device = NULL;
                d->served += r->tokens[0];
                CHECK_EQ(htb_complete(&d->w.tree, 0, HTB_DONE, NULL, r), QOS_OK);
                CHECK_EQ(htb_submit(&d->w.tree, t, r), QOS_OK);
            }
            if (!d->at_device) {
                d->at_device = htb_dispatch(&d->w.tree, t);
                if (d->at_device)
                    d->busy_until_ns = t + d->at_device->tokens[0] * S / d->device_per_s;
            }
            next = d->at_device ? d->busy_until_ns : htb_dispatch_next_ns(&d->w.tree, t);
            t = next > t ? next : t;
        }
        d->seen = htb_maximize(&d->w.tree, d->now_ns + 10 * MS, false);
        d->looks[d->seen]++;
        CHECK_GE(root_rate(&d->w.tree), 1000000);
    }
}

static struct htb_config device_config(void)
{
    struct htb_config config = world_config();
    config.dispatch_max = 2;
    config.device_max = 1;
    return config;
}

/* Scenario 1: less demand than either bound. The rate stays. */
static void uncapped_by_demand(void)
{
    struct htb_config config = device_config();
    struct device d;
    unsigned i;
    device_open(&d, &config, 4000000);
    reserve(&d.w, 1, 0, 300000, 500000, 0); /* limited to half of the root's rate */
    add(&d, 0, 1, 500);
    run_until(&d, 10 * S);
    CHECK_EQ(root_rate(&d.w.tree), 1000000);
    CHECK_EQ(d.looks[HTB_UNCAPPED], 1000);
    CHECK_WITHIN((double)d.served, 0.97 * 5e6, 1.02 * 5e6);
    for (i = 1; i < 4; i++)
        CHECK_EQ(d.looks[i], 0);
    world_close(&d.w);
}

/* Scenario 2: the device is slower than the root's rate, but no class misses its rate. The root's rate stays. */
static void uncapped_by_device(void)
{
    struct htb_config config = device_config();
    struct device d;
    device_open(&d, &config, 700000);
    reserve(&d.w, 1, 0, 200000, 0, 0);
    reserve(&d.w, 2, 0, 0, 0, 0);
    add(&d, 0, 1, 500);
    add(&d, 1, 2, 500);
    run_until(&d, 10 * S);
    CHECK_EQ(root_rate(&d.w.tree), 1000000);
    CHECK_EQ(d.looks[HTB_UNCAPPED], 1000);
    CHECK_WITHIN((double)d.served, 0.97 * 7e6, 7e6);
    CHECK_GE(stats_of(&d.w, 1).granted, 2000000 - 4000);
    world_close(&d.w);
}

/* Scenario 3: the device could do more. The root's rate rises to near that of the device, and reservations hold. */
static void capped(void)
{
    struct htb_config config = device_config();
    struct device d;
    uint64_t before;
    device_open(&d, &config, 2000000);
    reserve(&d.w, 1, 0, 300000, 0, 0);
    reserve(&d.w, 2, 0, 600000, 0, 0);
    add(&d, 0, 1, 500);
    add(&d, 1, 2, 500);
    run_until(&d, 500 * MS);
    CHECK_GE(d.looks[HTB_CAPPED], 10);
    run_until(&d, 20 * S);
    CHECK_WITHIN((double)root_rate(&d.w.tree), 1.8e6, 2.6e6);
    before = d.served;
    run_until(&d, 30 * S);
    CHECK_WITHIN((double)(d.served - before), 0.95 * 2e7, 2.001e7);
    CHECK_GE(stats_of(&d.w, 1).granted, 30 * 300000 - 10000);
    CHECK_GE(stats_of(&d.w, 2).granted, 30 * 600000 - 20000);
    world_close(&d.w);

    /* With a bound, the rate stops there. */
    config.maximize_rate_max = 1200000;
    device_open(&d, &config, 2000000);
    reserve(&d.w, 1, 0, 300000, 0, 0);
    add(&d, 0, 1, 500);
    run_until(&d, 10 * S);
    CHECK_EQ(root_rate(&d.w.tree), 1200000);
    CHECK_EQ(d.seen, HTB_CAPPED);
    /* The device becomes slow: classes miss their rates, and the root's rate falls to the configured one. */
    d.device_per_s = 200000;
    run_until(&d, 20 * S);
    CHECK_EQ(root_rate(&d.w.tree), 1000000);
    CHECK_GE(d.looks[HTB_BROKEN] + d.looks[HTB_CAPPED_AND_BROKEN], 100);
    world_close(&d.w);
}

/* A class without queue or rate misses nothing. A group misses its rate if it can lend less than that. */
static void idle_classes(void)
{
    struct htb_config config = device_config();
    struct device d;
    device_open(&d, &config, 100000); /* far too slow for all */
    reserve(&d.w, 1, 0, 500000, 0, 0);
    reserve(&d.w, 3, 0, 0, 0, 0);
    add(&d, 0, 3, 500);
    run_until(&d, 3 * S);
    CHECK_EQ(d.looks[HTB_UNCAPPED], 300);
    add(&d, 1, 1, 500);
    run_until(&d, 6 * S);
    CHECK_GE(d.looks[HTB_BROKEN] + d.looks[HTB_CAPPED_AND_BROKEN], 200);
    world_close(&d.w);
    device_open(&d, &config, 100000);
    reserve_group(&d.w, 2, 0, 400000, 0, 0);
    reserve(&d.w, 3, 2, 0, 0, 0);
    add(&d, 0, 3, 500);
    run_until(&d, 3 * S);
    CHECK_GE(d.looks[HTB_BROKEN] + d.looks[HTB_CAPPED_AND_BROKEN], 200);
    world_close(&d.w);
}

/* Steps, interval, the caller's own measurement, a new configured rate. The demand is refused takes at the gate. */
static void steps(void)
{
    struct htb_config config = world_config();
    struct world w;
    enum htb_scenario seen = HTB_BROKEN;
    uint64_t now, rate[HTB_RESOURCES_MAX] = {3000000, 8000, 0, 0}, granted;
    struct htb_class out;
    config.resources = 2;
    config.rate_per_s[1] = 1000;
    config.maximize_step = 4;
    config.maximize_interval_ns = 10 * MS;
    config.maximize_rate_max = 2000000;
    world_open(&w, &config);
#define DEMAND(until)                                                                                                  \
    for (; now < (until); now += MS)                                                                                   \
    (void)drain(&w, 0, 100, now)
    now = 0;
    /* Within an interval nothing is evaluated: the last scenario is returned. */
    DEMAND(10 * MS);
    seen = htb_maximize(&w.tree, 10 * MS - 1, true);
    CHECK_EQ(seen, HTB_UNCAPPED);
    CHECK_EQ(root_rate(&w.tree), 1000000);
    DEMAND(20 * MS);
    seen = htb_maximize(&w.tree, now, false);
    CHECK_EQ(seen, HTB_UNCAPPED); /* one evaluation with a starved class is not enough: it may be just a burst */
    DEMAND(30 * MS);
    seen = htb_maximize(&w.tree, now, false);
    CHECK_EQ(seen, HTB_CAPPED);
    CHECK_EQ(root_rate(&w.tree), 1250000);
    DEMAND(40 * MS - 1);
    (void)htb_maximize(&w.tree, 40 * MS - 1, false);
    CHECK_EQ(root_rate(&w.tree), 1250000);
    DEMAND(40 * MS);
    (void)htb_maximize(&w.tree, 40 * MS, false);
    CHECK_EQ(root_rate(&w.tree), 1562500);
    DEMAND(50 * MS);
    seen = htb_maximize(&w.tree, now, true); /* the root limits the demand, and the caller saw a class miss its rate */
    CHECK_EQ(seen, HTB_CAPPED_AND_BROKEN);
    CHECK_EQ(root_rate(&w.tree), 1171875);       /* by a step of a quarter, or by half of what it is above 1,000,000 */
    seen = htb_maximize(&w.tree, 60 * MS, true); /* no demand */
    CHECK_EQ(seen, HTB_BROKEN);
    CHECK_EQ(root_rate(&w.tree), 1000000); /* not below */
    seen = htb_maximize(&w.tree, 70 * MS, true);
    CHECK_EQ(root_rate(&w.tree), 1000000);
    seen = htb_maximize(&w.tree, 80 * MS, false);
    CHECK_EQ(seen, HTB_UNCAPPED);
    seen = htb_maximize(&w.tree, 5, true); /* the clock went back */
    CHECK_EQ(seen, HTB_UNCAPPED);
    /* Up to the bound, more slowly above what was too much. The second resource rises with it, from 1,000. */
    for (now = 100 * MS; now < 450 * MS;) {
        uint64_t until = now + 10 * MS;
        DEMAND(until);
        (void)htb_maximize(&w.tree, now, false);
    }
    CHECK_EQ(root_rate(&w.tree), 2000000);
    CHECK_GE(info_of(&w.tree).rate_per_s[1], 2500);
    /* Only the configured rate counts in admission. */
    out = class_of(0, 1000001, 0);
    CHECK_EQ(htb_reserve(&w.tree, now, 1, &out, NULL), QOS_EADMISSION);
    /* After a new configured rate, the rate starts there and the bound is at least that. */
    CHECK_EQ(htb_change_root(&w.tree, now, rate), QOS_OK);
    CHECK_EQ(root_rate(&w.tree), 3000000);
    for (; now < 500 * MS;) {
        uint64_t until = now + 10 * MS;
        DEMAND(until);
        seen = htb_maximize(&w.tree, now, false);
    }
    CHECK_EQ(seen, HTB_CAPPED);
    CHECK_EQ(root_rate(&w.tree), 3000000);
    rate[0] = 500000;
    CHECK_EQ(htb_change_root(&w.tree, now, rate), QOS_OK);
    CHECK_EQ(root_rate(&w.tree), 500000);
    granted = stats_of(&w, 0).granted;
    DEMAND(1500 * MS);
    CHECK_WITHIN((double)(stats_of(&w, 0).granted - granted), 0.98 * 500000, 500000 + 30000);
    world_close(&w);
}

/* One resource, no limits, no queues: the short path of htb_take counts what it grants. */
static void takes_count(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t now = 0;
    enum htb_scenario seen = HTB_BROKEN;
    config.maximize_interval_ns = 10 * MS;
    world_open(&w, &config);
    while (now < 30 * MS) {
        uint64_t until = now + 10 * MS;
        DEMAND(until);
        seen = htb_maximize(&w.tree, now, false);
    }
    CHECK_EQ(seen, HTB_CAPPED);
    world_close(&w);
    /* A root of 10 tokens a second rises by 1 in each evaluation, not by 10 / 32. */
    config.rate_per_s[0] = 10;
    config.maximize_interval_ns = 10 * S;
    config.burst_ns = S;
    world_open(&w, &config);
    for (now = 0; now < 30 * S; now += S / 10) {
        (void)drain(&w, 0, 1, now);
        seen = htb_maximize(&w.tree, now, false);
    }
    seen = htb_maximize(&w.tree, now, false);
    CHECK_EQ(seen, HTB_CAPPED);
    CHECK_EQ(root_rate(&w.tree), 12); /* two evaluations */
    world_close(&w);
}

/* Demand that the root cannot meet now: a request of a full bucket when one token is missing. */
static void starve_root(struct world *w, uint64_t now)
{
    CHECK_EQ(force(w, 0, 1, 0, now), QOS_OK);
    CHECK_EQ(htb_take(&w->tree, now, 0, 10000), QOS_EAGAIN);
}

/* The root's rate is a bound if 7/8 of it were granted since the last evaluation: 8,750 tokens of 10,000 in 10 ms. */
static void seven_eighths(void)
{
    struct htb_config config = world_config();
    struct world w;
    enum htb_scenario seen = HTB_BROKEN;
    uint64_t more, now;
    config.maximize_interval_ns = 10 * MS;
    for (more = 8748; more <= 8749; more++) {
        world_open(&w, &config);
        seen = htb_maximize(&w.tree, S, false);
        for (now = S; now < S + 20 * MS; now += 10 * MS) {
            starve_root(&w, now); /* forces 1 */
            CHECK_EQ(htb_take(&w.tree, now, 0, more), QOS_OK);
            seen = htb_maximize(&w.tree, now + 10 * MS, false);
        }
        CHECK_EQ(seen, more == 8749 ? HTB_CAPPED : HTB_UNCAPPED);
        world_close(&w);
    }
}

/* Any resource may be what the root's rate caps: here 10,000 bytes or 10 operations in 10 ms. */
static void any_resource(void)
{
    const uint64_t n[2][HTB_RESOURCES_MAX] = {{1000, 0, 0, 0}, {10, 1, 0, 0}};
    struct htb_config config = world_config();
    unsigned r;
    config.maximize_interval_ns = 10 * MS;
    config.resources = 2;
    config.rate_per_s[1] = 1000;
    for (r = 0; r < 2; r++) {
        struct world w;
        uint64_t now;
        struct htb_state state;
        world_open(&w, &config);
        for (now = S; now < S + 50 * MS; now += 10 * MS) {
            while (htb_take_all(&w.tree, now, 0, n[r]) == QOS_OK)
                ;
            (void)htb_maximize(&w.tree, now + 10 * MS, false);
        }
        CHECK_EQ(htb_info(&w.tree, &state), QOS_OK);
        CHECK_EQ(state.scenario, HTB_CAPPED);
        CHECK_GE(state.rate_per_s[1], 1093); /* three steps of 1/32 */
        world_close(&w);
    }
}

/* The tokens that a class was granted still count if it ends between two evaluations: the sum does not jump. */
static void ended_between_looks(void)
{
    struct htb_config config = world_config();
    struct world w;
    enum htb_scenario seen;
    uint64_t now;
    unsigned i;
    config.maximize_interval_ns = 10 * MS;
    world_open(&w, &config);
    reserve(&w, 1, 0, 100000, 0, 0);
    reserve(&w, 2, 0, 100000, 0, 0);
    reserve(&w, 3, 0, 100000, 0, 0);
    for (i = 1; i <= 3; i++)
        CHECK_EQ(htb_take(&w.tree, S, i, 500), QOS_OK);
    seen = htb_maximize(&w.tree, S, false);
    /* One large take finds the root empty, but little was granted. */
    for (i = 0, now = S; i < 5; i++, now += 20 * MS) {
        starve_root(&w, now); /* its claim is over by the next one */
        if (i < 3)
            CHECK_EQ(htb_release(&w.tree, now, i + 1), QOS_OK);
        seen = htb_maximize(&w.tree, now + 10 * MS, false);
        CHECK_EQ(seen, HTB_UNCAPPED);
    }
    reserve(&w, 1, 0, 100000, 0, now);
    starve_root(&w, now);
    seen = htb_maximize(&w.tree, now + 10 * MS, false);
    CHECK_EQ(seen, HTB_UNCAPPED);
    CHECK_EQ(root_rate(&w.tree), 1000000);
    world_close(&w);
}

/* All requests of a class are at a device that does not serve them, so none waits in its queue: it misses its rate if
 * it asked all the time, and what it earns fills its bucket. Who had nothing outstanding for more than an eighth of the
 * time asked for less. */
static void waits_at_the_device(void)
{
    struct htb_config config = world_config();
    struct htb_request request[2], *r;
    struct world w;
    uint64_t now = S;
    unsigned i;
    config.maximize_interval_ns = 100 * MS;
    world_open(&w, &config);
    reserve(&w, 1, 0, 100000, 0, now);
    memset(request, 0, sizeof request);
    for (i = 0; i < 2; i++) {
        request[i].class_id = 1;
        request[i].tokens[0] = 500;
        CHECK_EQ(htb_submit(&w.tree, now, &request[i]), QOS_OK);
        r = htb_dispatch(&w.tree, now);
        CHECK(r == &request[i]);
    }
    CHECK_EQ(htb_maximize(&w.tree, now, false), HTB_UNCAPPED); /* its bucket is not full: it was granted 1,000 */
    CHECK_EQ(htb_maximize(&w.tree, now += 100 * MS, false), HTB_BROKEN);
    for (i = 0; i < 6; i++) { /* one completes, and another one comes: beside a second, or at once, or later */
        const uint64_t later_ns = i < 4 ? 0 : i == 4 ? 12500000 : 12500001;
        if (i == 2)
            CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, &request[1]), QOS_OK);
        CHECK_EQ(htb_complete(&w.tree, now + 50 * MS, HTB_DONE, NULL, &request[0]), QOS_OK);
        CHECK_EQ(htb_submit(&w.tree, now + 50 * MS + later_ns, &request[0]), QOS_OK);
        r = htb_dispatch(&w.tree, now + 50 * MS + later_ns);
        CHECK(r == &request[0]);
        CHECK_EQ(htb_maximize(&w.tree, now += 100 * MS, false), i == 5 ? HTB_UNCAPPED : HTB_BROKEN);
    }
    for (i = 0; i < 8; i++) { /* short pauses add up; so do those before requests that are cancelled */
        now += 12500000;
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, &request[0]), QOS_OK);
        CHECK_EQ(htb_submit(&w.tree, now + MS, &request[0]), QOS_OK);
        CHECK_EQ(htb_cancel(&w.tree, now + MS, &request[0]), QOS_OK);
        CHECK_EQ(htb_submit(&w.tree, now + 2 * MS, &request[0]), QOS_OK);
        r = htb_dispatch(&w.tree, now + 2 * MS);
        CHECK(r == &request[0]);
    }
    CHECK_EQ(htb_maximize(&w.tree, now += 2 * MS, false), HTB_UNCAPPED);
    /* Nothing is outstanding at a look: who comes later, or is new, has not asked all the time until the next one. */
    CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, &request[0]), QOS_OK);
    CHECK_EQ(htb_maximize(&w.tree, now += 100 * MS, false), HTB_UNCAPPED);
    now += 20 * MS;
    reserve(&w, 2, 0, 100000, 0, now);
    for (i = 0; i < 2; i++) {
        request[i].class_id = i + 1;
        CHECK_EQ(htb_submit(&w.tree, now, &request[i]), QOS_OK);
        r = htb_dispatch(&w.tree, now);
        CHECK(r == &request[i]);
    }
    CHECK_EQ(htb_maximize(&w.tree, now += 80 * MS, false), HTB_UNCAPPED);
    CHECK_EQ(htb_maximize(&w.tree, now += 100 * MS, false), HTB_BROKEN);
    world_close(&w);
}

/* A serial device of 2,000 requests/s that serves them in their order, those of a flood, too. A class of rate 500 with one
 * request outstanding has that, whether it submits at once or 100 us later: the root's rate is seldom above the device's,
 * also where a step up from below it is. (While it is, the class has 1/64 of the device.) */
static void one_outstanding(uint64_t root_per_s, uint64_t later_ns)
{
    struct htb_config config = world_config();
    struct htb_request request[65], *at[65], *r;
    unsigned first = 0, count = 0, done = 0;
    struct world w;
    uint64_t now = S;
    unsigned i;
    config.rate_per_s[0] = root_per_s;
    config.dispatch_max = config.device_max = 64;
    config.order = HTB_FIFO;
    world_open(&w, &config);
    reserve(&w, 1, 0, 500000, 0, now);
    reserve(&w, 2, 0, 0, 0, now);
    memset(request, 0, sizeof request);
    for (i = 0; i < 65; i++) {
        request[i].class_id = i == 0 ? 1 : 2;
        request[i].tokens[0] = 1000;
        CHECK_EQ(htb_submit(&w.tree, now, &request[i]), QOS_OK);
    }
    for (; now < 61 * S; now += 500000) {
        if (count != 0) {
            r = at[first];
            first = (first + 1) % 65;
            count--;
            CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
            done += r->class_id == 1 && now > 21 * S;
            CHECK_EQ(htb_submit(&w.tree, now + (r->class_id == 1 ? later_ns : 0), r), QOS_OK);
        }
        (void)htb_maximize(&w.tree, now, false);
        for (; (r = htb_dispatch(&w.tree, now)) != NULL; count++)
            at[(first + count) % 65] = r;
    }
    CHECK_GE(done, 500 * 40);
    world_close(&w);
}

/* At twice the configured rate, a class that misses its rate takes half of the rise back, not one step of 32. */
static void falls_by_half(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t now = 0, above;
    config.maximize_interval_ns = 10 * MS;
    world_open(&w, &config);
    while (root_rate(&w.tree) < 2000000) {
        uint64_t until = now + 10 * MS;
        DEMAND(until);
        (void)htb_maximize(&w.tree, now, false);
    }
    above = root_rate(&w.tree) - 1000000;
    (void)htb_maximize(&w.tree, now + 10 * MS, true);
    CHECK_EQ(root_rate(&w.tree), 1000000 + above - above / 2);
    world_close(&w);
}

/* A group whose classes asked for nothing at the last look did not miss its rate, though its bucket is full; one that
 * asks at two looks did. */
static void group_that_came(void)
{
    struct htb_config config = world_config();
    struct htb_request request;
    struct world w;
    memset(&request, 0, sizeof request);
    request.class_id = 2;
    request.tokens[0] = 10;
    config.maximize_interval_ns = 100 * MS;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 100000, 0, S);
    reserve(&w, 2, 1, 0, 0, S);
    CHECK_EQ(htb_maximize(&w.tree, S + 100 * MS, false), HTB_UNCAPPED);
    CHECK_EQ(htb_submit(&w.tree, S + 199 * MS, &request), QOS_OK);
    CHECK_EQ(htb_maximize(&w.tree, S + 200 * MS, false), HTB_UNCAPPED);
    CHECK_EQ(htb_maximize(&w.tree, S + 300 * MS, false), HTB_BROKEN);
    world_close(&w);
}

int main(void)
{
    check_begin("unit/htb_maximizer");
    one_outstanding(1250000, 0);
    one_outstanding(1250000, 100000);
    one_outstanding(1900000, 0);
    waits_at_the_device();
    uncapped_by_demand();
    uncapped_by_device();
    capped();
    idle_classes();
    steps();
    takes_count();
    seven_eighths();
    any_resource();
    ended_between_looks();
    falls_by_half();
    group_that_came();
    return check_end();
}
