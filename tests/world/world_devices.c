// proves: simulated devices against a second model that counts every nanosecond, against the formulas of queueing theory
// proves: (M/M/1, M/D/1, M/M/8, M/G/1 with processor sharing), and against what a disk, a provisioned volume, one with
// proves: credit, a link, requests that hang and pauses allow
#include "check.h"
#include "examples/world/devices.h"

/* ---- the second model: small times, one step a nanosecond, fixed service times --------------------------------------- */

#define MODEL_MOST 400

struct model_io {
    uint64_t cost, offset, arrive, left, end, begun;
    unsigned channel;
    int state; /* 0: to come, 1: waits, 2: at work, 3: done */
};

static struct model_io model[MODEL_MOST];

static unsigned hash_of(uint64_t offset, unsigned channels)
{
    return (unsigned)((uint64_t)(uint32_t)((uint32_t)offset * (uint64_t)2654435769u) * channels >> 32);
}

static bool model_paused(const struct world_device_config *c, unsigned channel, uint64_t t)
{
    return c->pause_every_ns && t % c->pause_every_ns >= c->pause_every_ns - c->pause_ns &&
           (!c->pause_channel || t / c->pause_every_ns % c->channels == channel);
}

/* True if a goes before b in the order, for a head at this offset. */
static bool model_prefers(enum world_order order, uint64_t head, const struct model_io *a, const struct model_io *b)
{
    if (order == WORLD_SHORTEST && a->cost != b->cost)
        return a->cost < b->cost;
    if (order == WORLD_ELEVATOR && (a->offset >= head) != (b->offset >= head))
        return a->offset >= head;
    if (order == WORLD_ELEVATOR && a->offset != b->offset)
        return a->offset < b->offset;
    if (order == WORLD_NEAREST &&
        llabs((int64_t)a->offset - (int64_t)head) != llabs((int64_t)b->offset - (int64_t)head))
        return llabs((int64_t)a->offset - (int64_t)head) < llabs((int64_t)b->offset - (int64_t)head);
    return a < b; /* the arrays are in order of arrival */
}

static void model_run(const struct world_device_config *c, int n)
{
    uint64_t t, head[16] = {0}, begun = 0;
    int working[16], i, left = n;
    unsigned k;
    for (k = 0; k < c->channels; k++)
        working[k] = -1;
    for (t = 0; left > 0; t++) {
        for (i = 0; i < n; i++) /* a channel that is done takes its next request, in the order in which they began */
            while (true) {
                int first = -1, best = -1;
                for (k = 0; k < c->channels; k++)
                    if (working[k] >= 0 && model[working[k]].left == 0 &&
                        (first < 0 || model[working[k]].begun < model[first].begun))
                        first = working[k];
                if (first < 0)
                    break;
                k = model[first].channel;
                model[first].state = 3;
                model[first].end = t;
                left--;
                working[k] = -1;
                for (int j = 0; j < n; j++)
                    if (model[j].state == 1 && (!c->hashed || hash_of(model[j].offset, c->channels) == k) &&
                        (best < 0 || model_prefers(c->order, head[k], &model[j], &model[best])))
                        best = j;
                if (best >= 0) {
                    model[best].state = 2;
                    model[best].channel = k;
                    model[best].left = model[best].cost * c->channels + 1;
                    model[best].begun = begun++;
                    head[k] = model[best].offset;
                    working[k] = best;
                }
            }
        for (i = 0; i < n; i++) { /* arrivals */
            if (model[i].state != 0 || model[i].arrive != t)
                continue;
            model[i].state = 1;
            for (k = 0; k < c->channels; k++)
                if (working[k] < 0 && (!c->hashed || hash_of(model[i].offset, c->channels) == k)) {
                    model[i].state = 2;
                    model[i].channel = k;
                    model[i].left = model[i].cost * c->channels + 1;
                    model[i].begun = begun++;
                    head[k] = model[i].offset;
                    working[k] = i;
                    break;
                }
        }
        for (k = 0; k < c->channels; k++)
            if (working[k] >= 0 && !model_paused(c, k, t))
                model[working[k]].left--;
    }
}

static void against_model(void)
{
    struct world_rng r;
    uint64_t round;
    world_rng_init(&r, check_seed(), 1);
    for (round = 0; round < check_scaled(3000); round++) {
        struct world_device_config c;
        struct world_device d;
        struct world_io io;
        int n = (int)world_between(&r, 1, 60), i, sent = 0, got = 0;
        memset(&c, 0, sizeof c);
        memset(model, 0, sizeof model);
        c.channels = (uint32_t)world_between(&r, 1, 6);
        c.hashed = world_chance(&r, 300);
        c.order = (enum world_order)world_between(&r, 0, 4);
        if (c.order == WORLD_ANY)
            c.order = WORLD_IN_ORDER;
        if (world_chance(&r, 500)) {
            c.pause_every_ns = world_between(&r, 20, 200);
            c.pause_ns = world_between(&r, 1, c.pause_every_ns - 1);
            c.pause_channel = world_chance(&r, 500);
        }
        for (i = 0; i < n; i++) {
            model[i].cost = world_between(&r, 0, 20);
            model[i].offset = world_between(&r, 0, 10) * 400000000;
            model[i].arrive = (i ? model[i - 1].arrive : 0) + (world_chance(&r, 500) ? 0 : world_between(&r, 0, 60));
        }
        model_run(&c, n);
        world_device_init(&d, &c, round);
        CHECK_CONTEXT("round %" PRIu64, round);
        while (got < n) {
            uint64_t t = world_device_next_ns(&d);
            if (sent < n && model[sent].arrive < t)
                t = model[sent].arrive;
            while (world_device_take(&d, t, &io)) {
                CHECK_EQ(io.end_ns, model[io.id].end);
                CHECK_EQ(io.end_ns, t);
                got++;
            }
            for (; sent < n && model[sent].arrive == t; sent++) {
                memset(&io, 0, sizeof io);
                io.id = (uint32_t)sent;
                io.cost_ns = model[sent].cost;
                io.offset = model[sent].offset;
                world_device_submit(&d, t, &io);
            }
        }
        CHECK(d.waiting == 0 && d.working == 0 && d.done == (uint64_t)n);
        world_device_free(&d);
    }
    CHECK_CONTEXT("%s", "");
}

/* ---- formulas ------------------------------------------------------------------------------------------------------------ */

/* Mean time in the system, in units of the mean service time, with Poisson arrivals at this load. */
static double mean_stay_of(uint32_t channels, enum world_spread spread, double load, bool shares)
{
    struct world_device_config c;
    struct world_device d;
    struct world_rng r;
    struct world_io io;
    uint64_t n = check_scaled(1000000), sent = 0, got = 0, next = 0;
    double sum = 0;
    memset(&c, 0, sizeof c);
    memset(&io, 0, sizeof io);
    c.channels = channels;
    c.spread = spread;
    c.shares = shares;
    world_device_init(&d, &c, check_seed());
    world_rng_init(&r, check_seed(), 2);
    io.cost_ns = 100000;
    while (got < n) {
        uint64_t t = world_device_next_ns(&d);
        struct world_io done;
        if (sent < n && next < t) {
            io.offset = world_rand(&r) >> 32;
            world_device_submit(&d, next, &io);
            sent++;
            next += (uint64_t)(world_exponential(&r) * 100000 / load);
            continue;
        }
        CHECK(world_device_take(&d, t, &done));
        sum += (double)(done.end_ns - done.submit_ns);
        got++;
    }
    world_device_free(&d);
    return sum / (double)n / 100000 / channels;
}

static double mean_stay(uint32_t channels, enum world_spread spread, double load)
{
    return mean_stay_of(channels, spread, load, false);
}

static void queueing(void)
{
    double erlang = 0, term = 1, a = 8 * 0.8;
    int k;
    /* A run of n requests at load p is within some 4 / sqrt(n (1 - p)^2) of its mean. */
    CHECK_WITHIN(mean_stay(1, WORLD_EXPONENTIAL, 0.5), 2 * 0.98, 2 * 1.02);         /* 1 / (1 - p) */
    CHECK_WITHIN(mean_stay(1, WORLD_EXPONENTIAL, 0.8), 5 * 0.95, 5 * 1.05);         /* */
    CHECK_WITHIN(mean_stay(1, WORLD_FIXED, 0.8), 3 * 0.97, 3 * 1.03);               /* 1 + p / (2 (1 - p)) */
    CHECK_WITHIN(mean_stay(1, WORLD_TEN, 0.8), 3.0067 * 0.97, 3.0067 * 1.03);       /* 1 + p (1 + v) / (2 (1 - p)) */
    CHECK_WITHIN(mean_stay(1, WORLD_THIRTY, 0.8), 3.06 * 0.97, 3.06 * 1.03);        /* v = 0.03 */
    CHECK_WITHIN(mean_stay(1, WORLD_LOGNORMAL, 0.5), 1.8162 * 0.97, 1.8162 * 1.03); /* v = e^0.49 - 1 */
    CHECK_WITHIN(mean_stay(1, WORLD_TWO_SIZES, 0.5), 2.625 * 0.97, 2.625 * 1.03);   /* v = 2.25 */
    /* Sharing: 1 / (1 - p) whatever the service times; M/M/8 is the same with sharing and without. */
    CHECK_WITHIN(mean_stay_of(1, WORLD_FIXED, 0.8, true), 5 * 0.95, 5 * 1.05);
    CHECK_WITHIN(mean_stay_of(1, WORLD_TWO_SIZES, 0.5, true), 2 * 0.97, 2 * 1.03);
    for (k = 0; k < 8; k++) {
        erlang += term;
        term *= a / (k + 1);
    }
    erlang = term / 0.2 / (erlang + term / 0.2); /* the probability of a wait */
    CHECK_WITHIN(mean_stay(8, WORLD_EXPONENTIAL, 0.8), (1 + erlang / 8 / 0.2) * 0.97, (1 + erlang / 8 / 0.2) * 1.03);
    CHECK_WITHIN(mean_stay_of(8, WORLD_LOGNORMAL, 0.8, true), (1 + erlang / 8 / 0.2) * 0.97,
                 (1 + erlang / 8 / 0.2) * 1.03);
}

/* Work done in 20 s by a device that always has `deep` requests of this cost, over what it could do. */
static double busy(const struct world_device_config *c, uint32_t deep, uint64_t cost, bool sequential, uint64_t *done)
{
    struct world_device d;
    struct world_io io;
    uint64_t end = 20 * WORLD_NS_PER_S, offset = 0;
    struct world_rng r;
    double part;
    world_rng_init(&r, check_seed(), 3);
    world_device_init(&d, c, check_seed());
    memset(&io, 0, sizeof io);
    io.cost_ns = cost;
    while (io.id < deep) {
        io.offset = sequential ? offset += 2048 : world_rand(&r) >> 32;
        io.write = io.id % 2 == 0;
        world_device_submit(&d, 0, &io);
        io.id++;
    }
    while (world_device_next_ns(&d) < end) {
        uint64_t t = world_device_next_ns(&d);
        if (!world_device_take(&d, t, &io)) /* a link */
            continue;
        io.offset = sequential ? offset += 2048 : world_rand(&r) >> 32;
        world_device_submit(&d, t, &io);
    }
    part = (double)d.done_cost_ns / world_device_could_ns(c, 0, end);
    *done = d.done;
    world_device_free(&d);
    return part;
}

static void capacity(void)
{
    struct world_device_config c;
    uint64_t done, in_order, nearest, elevator, step;
    memset(&c, 0, sizeof c);
    c.channels = 16;
    CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.999, 1);
    for (step = WORLD_TEN; step <= WORLD_TWO_SIZES; step++) {
        c.spread = (enum world_spread)step;
        CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.98, 1.02);
    }
    c.spread = WORLD_READ_WRITE;
    CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.395, 0.405); /* half are writes: 1 / 2.5 */
    c.spread = WORLD_FIXED;
    c.capacity = 1310;
    c.pause_every_ns = 700000000;
    c.pause_ns = 200000000;
    CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.995, 1.001);
    c.step_ns = 7 * WORLD_NS_PER_S;
    c.step_capacity = 400;
    CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.995, 1.001);
    c.back_ns = 9 * WORLD_NS_PER_S;
    CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.995, 1.001);
    c.pause_channel = true;
    CHECK_WITHIN(busy(&c, 32, 50000, false, &done), 0.995, 1.001);
    CHECK_WITHIN(world_device_could_ns(&c, 0, 7 * WORLD_NS_PER_S), 1.31 * (7e9 - 2e9 / 16) * 0.9999,
                 1.31 * (7e9 - 2e9 / 16) * 1.0001);
    CHECK(world_device_pauses(&c, 0, 500000001) && !world_device_pauses(&c, 0, 500000000));
    CHECK(world_device_pauses(&c, 699999999, 700000001) && !world_device_pauses(&c, 700000000, 1100000000));

    memset(&c, 0, sizeof c); /* provisioned: 20 s * 0.3, and 2 ms in advance; what is held may wait 3 ms too long */
    c.channels = 64;
    c.provisioned = 300;
    CHECK_WITHIN(busy(&c, 256, 50000, false, &done), 0.96, 1.001);

    memset(&c, 0, sizeof c); /* a disk: half a turn and 0.2 + 0.8 E sqrt |u - v| = 0.2 + 0.8 * 8 / 15 of the seek */
    c.seek_ns = 9000000;
    c.turn_ns = 8333333;
    (void)busy(&c, 1, 100000, false, &in_order);
    CHECK_WITHIN((double)in_order, 20e9 / (0.62667 * 9e6 + 4166666 + 1e5) * 0.97,
                 20e9 / (0.62667 * 9e6 + 4166666 + 1e5) * 1.03);
    (void)busy(&c, 32, 100000, false, &step);
    c.order = WORLD_ELEVATOR;
    (void)busy(&c, 32, 100000, false, &elevator);
    c.order = WORLD_NEAREST;
    (void)busy(&c, 32, 100000, false, &nearest);
    CHECK_WITHIN((double)step / (double)in_order, 0.97, 1.03);
    CHECK_WITHIN((double)elevator / (double)in_order, 1.2, 2.5);
    CHECK_WITHIN((double)nearest / (double)elevator, 1.1, 4);
    (void)busy(&c, 1, 100000, true, &step); /* a thirty-second of a turn from one offset to the next */
    CHECK(step > 10 * in_order);
}

/* Requests that hang are beside the others; volumes with credit; speeds that change; links. */
static void late_ends(void)
{
    struct world_device_config c;
    struct world_device d;
    struct world_io io, given_up;
    uint64_t done, alone, i, hung = 0, deep;
    memset(&c, 0, sizeof c); /* the others are served as ever, a place less is asked for: 2 of 32 for 3 of each 5 s */
    c.channels = 16;
    (void)busy(&c, 32, 50000, false, &alone);
    c.hang_every_ns = 5 * WORLD_NS_PER_S;
    c.hang_ns = 3 * WORLD_NS_PER_S;
    c.hangs = 2;
    (void)busy(&c, 32, 50000, false, &done);
    CHECK_WITHIN((double)done, (double)alone - 40, (double)alone + 40);
    c.hang_ns = WORLD_NEVER; /* 2 of 32 at 5, 10 and 15 s: less than 16 are left to the channels from 45 s on only */
    (void)busy(&c, 32, 50000, false, &done);
    CHECK_WITHIN((double)done, (double)alone - 40, (double)alone + 40);
    (void)busy(&c, 20, 50000, false, &done); /* 20, 18, 16, 14 of 16 */
    CHECK_WITHIN((double)done, (double)alone * (15 + 5 * 14.0 / 16) / 20 - 40,
                 (double)alone * (15 + 5 * 14.0 / 16) / 20 + 40);
    for (deep = 0; deep < 2; deep++) { /* each hangs for its time, or until it is given up */
        c.channels = 1;
        c.hang_ns = deep ? WORLD_NEVER : 7000000;
        c.hang_every_ns = 10000000;
        world_device_init(&d, &c, 1);
        memset(&io, 0, sizeof io);
        io.cost_ns = 1000;
        for (i = 10; i < 20; i++) {
            io.id = (uint32_t)i;
            world_device_submit(&d, i * 1000000, &io);
            while (world_device_take(&d, i * 1000000 + 1001, &io))
                CHECK(io.hung ? io.id < 12 && io.end_ns == (io.id + UINT64_C(7)) * 1000000 : io.id == i);
        }
        for (hung = 0; world_device_abort(&d, 20000000, &given_up); hung++)
            CHECK(given_up.hung && given_up.id == 10 + hung && given_up.end_ns == 20000000);
        CHECK_EQ(hung, deep ? 2 : 0);
        CHECK_EQ(d.done, deep ? 8 : 10);
        CHECK_EQ(world_device_next_ns(&d), WORLD_NEVER);
        world_device_free(&d);
    }

    memset(&c, 0, sizeof c); /* half as fast in each second half of a second, ten times as fast in each second 3 s */
    c.step_every_ns = 500000000;
    c.step_capacity = 500;
    CHECK_WITHIN(world_device_could_ns(&c, 0, 20 * WORLD_NS_PER_S), 15e9 * 0.9999, 15e9 * 1.0001);
    CHECK_WITHIN(world_device_could_ns(&c, 300000000, 800000000), 0.35e9 * 0.9999, 0.35e9 * 1.0001);
    CHECK_WITHIN(busy(&c, 4, 50000, false, &done), 0.995, 1.001);
    c.step_every_ns = 3 * WORLD_NS_PER_S;
    c.step_capacity = 10000;
    CHECK_WITHIN(world_device_could_ns(&c, 0, 20 * WORLD_NS_PER_S), 101e9 * 0.9999, 101e9 * 1.0001); /* 9, 1, 9 of 1 */
    CHECK_WITHIN(busy(&c, 4, 50000, false, &done), 0.995, 1.001);

    memset(&c, 0, sizeof c); /* 3 s of work in advance, and 0.25: all of it until 4 s */
    c.channels = 4;
    c.provisioned = 250;
    c.credit_ns = 3 * WORLD_NS_PER_S;
    (void)busy(&c, 16, 50000, false, &done);
    CHECK_WITHIN((double)done * 50000, (3e9 + 0.25 * 20e9) * 0.995, (3e9 + 0.25 * 20e9) * 1.005);

    memset(&c, 0, sizeof c); /* a link: n outstanding of s are done each s + link, and one each s at most */
    c.link_ns = 450001;
    for (deep = 1; deep <= 16; deep++) {
        (void)busy(&c, (uint32_t)deep, 49998, false, &done);
        CHECK_WITHIN((double)done, deep < 10 ? 40000 * (double)deep * 0.999 : 400000 * 0.999,
                     deep < 10 ? 40000 * (double)deep : 400000 * 1.001);
        CHECK(world_device_could_ns(&c, 0, 1000) > 999);
    }
    c.link_ns = 0; /* stopped from 500 to 7000, and from 7200 to 8000 although told twice */
    c.hang_every_ns = 100;
    c.hang_ns = 900;
    c.hangs = 1;
    world_device_init(&d, &c, 1);
    memset(&io, 0, sizeof io);
    io.cost_ns = 999;
    for (i = 0; i < 3; i++) {
        io.id = (uint32_t)i;
        world_device_submit(&d, i * 100, &io); /* the second one hangs */
    }
    world_device_stop(&d, 500, 7000);
    CHECK(world_device_take(&d, 7500, &io) && io.id == 0 && io.end_ns == 7500);
    world_device_stop(&d, 7700, 8000);
    world_device_stop(&d, 7800, 7900);
    CHECK(world_device_take(&d, 8400, &io) && io.hung && io.id == 1 && io.end_ns == 8400);
    CHECK(!world_device_take(&d, 8799, &io));
    CHECK(world_device_take(&d, 8800, &io) && io.id == 2 && io.end_ns == 8800);
    io.id = 3;
    world_device_stop(&d, 9000, 9500);
    c.hangs = 0;
    d.config.hangs = 0;
    world_device_submit(&d, 9100, &io);
    CHECK(world_device_take(&d, 10500, &io) && io.id == 3 && io.end_ns == 10500);
    world_device_free(&d);

    c.link_ns = 450001;
    c.hang_every_ns = 0;
    c.shares = true; /* all at once: three ends at one time, and a link */
    world_device_init(&d, &c, 1);
    memset(&io, 0, sizeof io);
    io.cost_ns = 1000;
    for (i = 0; i < 3; i++)
        world_device_submit(&d, 0, &io);
    for (i = 0; i < 3; i++) {
        while (!world_device_take(&d, world_device_next_ns(&d), &io))
            CHECK(world_device_next_ns(&d) != WORLD_NEVER);
        CHECK_WITHIN((double)io.end_ns, 3000 + 450001, 3000 + 450001 + 4);
    }
    world_device_free(&d);
}

int main(void)
{
    check_begin("world/world_devices");
    late_ends();
    against_model();
    queueing();
    capacity();
    return check_end();
}
