// proves: engines on a node that serves all who have I/Os there in equal shares: with TOKENPOOL_GUARD 99 % of each reservation
// proves: that this can meet, also on a node faster than its profile, without it 99 % of min(R, an equal share), told or not,
// proves: also after a fall and while steps up are tried. After a fall below the sum of reservations what idle clients leave is
// proves: used, and the estimate is back within 5 periods, with small batches, too; no later step beyond the node stays. With the guard 0.8 of what others
// proves: leave of a large R is used. Bursts far below the estimate are no fall. A stray store into the pool word costs one period's tokens at most; no pause is a fall
// links: -lm
// variants: native
// coverage: report
#include "tokenpool.h"
#include "check.h"
#include <math.h>

enum { MOST = 10, DEPTH = 8 };

struct one {
    struct tokenpool_client engine;
    uint64_t reservation, under_way, done;
    double wants, queued, credit, got; /* wants: I/Os a period */
    bool told, bursts; /* bursts: all that it wants of a period comes at once, and it makes no call without */
};

static struct {
    struct one of[MOST];
    unsigned clients, steps; /* steps: of a period */
    unsigned hit,
        quiet; /* steps of all: when a stray store hits the pool word; from here to `loud` the monitor pauses */
    unsigned loud, stray; /* stray: its kind */
    double most;          /* of one client in a period */
    unsigned claims;      /* of client 0 behind a transport */
    bool starts, leaves;  /* in each period client 0 starts anew; leaves, joins, and starts anew */
    unsigned loses;       /* of 10 answers of its claims so many are lost; it is behind a transport then */
    double jumps;         /* in each period its clock jumps ahead, by so many periods */
} node;
static struct tokenpool_monitor monitor;
static struct tokenpool_config config;
static uint64_t storage[256] __attribute__((aligned(64))), memory[512] __attribute__((aligned(64)));

static void add(uint64_t reservation, double wants, bool told)
{
    struct one *c = &node.of[node.clients++];
    c->reservation = reservation;
    c->wants = wants;
    c->told = told;
}

static void begin(uint64_t capacity, double most, uint32_t flags)
{
    memset(&node, 0, sizeof node);
    memset(&config, 0, sizeof config);
    node.most = most;
    node.steps = 500;
    config.capacity = capacity;
    config.client_capacity = (uint64_t)most;
    config.flags = flags;
}

static void attach(void)
{
    unsigned i;
    config.clients = node.clients;
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    for (i = 0; i < node.clients; i++) {
        CHECK_EQ(tokenpool_monitor_join(&monitor, i, node.of[i].reservation, 0, NULL), QOS_OK);
        CHECK_EQ(tokenpool_client_attach(&node.of[i].engine, i, 0, storage, sizeof storage), QOS_OK);
    }
}

/* Equal shares of `left` for those who have I/Os at the node, at most `most` each. */
static void serve(double left, double most)
{
    double give[MOST] = {0};
    unsigned i, open;
    do {
        double each;
        for (i = 0, open = 0; i < node.clients; i++)
            open += give[i] + 1e-9 < fmin(most, (double)node.of[i].under_way - node.of[i].credit);
        each = open ? left / open : 0;
        for (i = 0; i < node.clients; i++) {
            double more = fmin(most, (double)node.of[i].under_way - node.of[i].credit) - give[i];
            more = fmin(fmax(more, 0), each);
            give[i] += more;
            left -= more;
        }
    } while (open && left > 1e-9);
    for (i = 0; i < node.clients; i++) {
        struct one *c = &node.of[i];
        uint64_t n = qos_min((uint64_t)(c->credit + give[i] + 1e-6), c->under_way);
        c->credit = c->under_way == n ? 0 : c->credit + give[i] - (double)n;
        c->under_way -= n;
        c->done += n;
        tokenpool_client_complete(&c->engine, n);
    }
}

/* As tokenpool_client_take, behind a transport that loses answers of claims that were performed. */
static enum qos_status take(struct one *c, uint64_t now)
{
    struct tokenpool_op op;
    enum qos_status s = tokenpool_client_take(&c->engine, now, 1);
    unsigned tries;
    for (tries = 0; s != QOS_OK && tries < 20 && tokenpool_client_next(&c->engine, now, 1, &op); tries++) {
        uint64_t answer = tokenpool_storage_run(storage, &op);
        if (op.kind == TOKENPOOL_FETCH_ADD && ++node.claims % 10 < node.loses)
            tokenpool_client_fail(&c->engine);
        else
            tokenpool_client_done(&c->engine, answer);
        s = tokenpool_client_take(&c->engine, now, 1);
    }
    return s;
}

/* One period of a node that does `rate` in it. */
static void period(unsigned p, double rate)
{
    unsigned i, step;
    for (i = 0; i < node.clients; i++)
        node.of[i].done = 0;
    for (step = 0; step < node.steps; step++) {
        uint64_t now = (UINT64_C(1) + p) * QOS_NS_PER_S + step * (QOS_NS_PER_S / node.steps);
        unsigned at = p * node.steps + step;
        while ((at < node.quiet || at >= node.loud) && tokenpool_monitor_next_ns(&monitor, now) <= now)
            tokenpool_monitor_run(&monitor, now);
        if (at && at == node.hit) /* a count of 0, of too many; noise; the period word */
            storage[0] = node.stray == 0   ? (uint32_t)storage[0]
                         : node.stray == 1 ? (uint32_t)storage[0] | UINT64_C(1000000) << 32
                         : node.stray == 2 ? UINT64_C(0xb5ccda663430f9ae)
                                           : storage[TOKENPOOL_OFFSET_PERIOD / 8];
        if (node.leaves && p >= 5 && step == node.steps / 4 + p * 613 % node.steps / 2) {
            CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
            CHECK_EQ(tokenpool_monitor_join(&monitor, 0, node.of[0].reservation, 0, NULL), QOS_OK);
            CHECK_EQ(tokenpool_client_attach(&node.of[0].engine, 0, 0, storage, sizeof storage), QOS_OK);
        }
        if (node.starts && p >= 5 && step == p * 613 % node.steps) { /* its I/Os end with it */
            node.of[0].under_way = 0;
            node.of[0].credit = 0;
            CHECK_EQ(tokenpool_client_attach(&node.of[0].engine, 0, 0, storage, sizeof storage), QOS_OK);
        }
        if (node.loses && p == 4 && step == 0)
            CHECK_EQ(tokenpool_client_attach_remote(&node.of[0].engine, 0, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8],
                                                    sizeof storage),
                     QOS_OK);
        for (i = 0; i < node.clients; i++) {
            struct one *c = &node.of[i];
            uint64_t own = now;
            if (i == 0 && p >= 5)
                own += (uint64_t)(node.jumps * (p + (step >= p * 613 % node.steps)) * 1e9);
            if (!c->bursts)
                c->queued = fmin(c->queued + c->wants / node.steps, c->wants);
            else if (step == (p * 613 + i * 271) % node.steps)
                c->queued += c->wants;
            if (!c->bursts && (c->queued < 1 || c->under_way >= DEPTH))
                tokenpool_client_run(&c->engine, own, 0);
            while (c->queued >= 1 && c->under_way < DEPTH && take(c, own) == QOS_OK) {
                c->under_way++;
                c->queued -= 1;
            }
            if (c->told)
                tokenpool_client_set_queued(&c->engine, (uint64_t)c->queued);
        }
        serve(rate / node.steps, node.most / node.steps);
    }
}

/* When the node has served the reservations alone, in equal shares, in periods. */
static double done_at(double rate)
{
    double left[MOST], t = 0;
    unsigned i, open = 0;
    for (i = 0; i < node.clients; i++)
        open += (left[i] = (double)node.of[i].reservation) > 0;
    while (open) {
        double each = fmin(node.most, rate / open), least = 1e18;
        for (i = 0; i < node.clients; i++)
            least = left[i] > 0 ? fmin(least, left[i]) : least;
        t += least / each;
        for (i = 0, open = 0; i < node.clients; i++)
            open += (left[i] = left[i] > least ? left[i] - least : 0) > 0;
    }
    return t;
}

/* All want all, and nobody is told, or all are; the first client has a reservation of more than an equal share. The node
 * may get slower. Without the guard such a client may get no more than its share. */
static void test_reservations(uint32_t guard)
{
    unsigned k, i, p, judged = 0;
    double least = 1, least_of_r = 1;
    for (k = 0; k < 72; k++) {
        static const double rates[] = {1, 1, 0.8, 0.6};
        double rate = 2000 * rates[k % 4], most = k / 4 % 3 == 0 ? 2000 : k / 4 % 3 == 1 ? 1400 : 1040;
        uint64_t others = k / 12 % 3 == 0 ? 200 : k / 12 % 3 == 1 ? 100 : 20;
        begin(2000, most, guard | (rates[k % 4] < 1 ? 0 : TOKENPOOL_FIXED));
        add(600, 4000, k >= 36);
        for (i = 0; i < 3; i++)
            add(others, 4000, k >= 36);
        add(20, 4000, k >= 36);
        add(20, 4000, k >= 36);
        CHECK_CONTEXT("case %u: node of %.0f of 2000, one client %.0f, others reserved %" PRIu64, k, rate, most,
                      others);
        if (done_at(rate) > 0.9)
            continue;
        attach();
        for (p = 0; p < 24; p++) {
            period(p, p < 6 ? 2000 : rate);
            for (i = 0; i < node.clients && p >= 12; i++)
                node.of[i].got += (double)node.of[i].done / 12;
        }
        for (i = 0; i < node.clients; i++) {
            double r = (double)node.of[i].reservation, due = guard ? r : fmin(r, rate / node.clients);
            least = fmin(least, node.of[i].got / due);
            least_of_r = fmin(least_of_r, node.of[i].got / r);
            CHECK_GE(node.of[i].got, 0.99 * due);
        }
        judged++;
    }
    printf("%s guard: %u nodes, each client gets at least %.3f of what is due, %.3f of its reservation\n",
           guard ? "with" : "no", judged, least, least_of_r);
}

/* Half of what is reserved is idle clients', and the node falls below the sum. */
static void test_fall_below(void)
{
    unsigned k, i, p;
    for (k = 0; k < 4; k++) {
        double rate = 1200 + 100 * k, used = 0;
        begin(2000, 2000, 0);
        for (i = 0; i < 4; i++)
            add(150, 4000, true);
        for (i = 0; i < 3; i++)
            add(200, 0, true);
        add(600, 300, false);
        attach();
        for (p = 0; p < 24; p++) {
            struct tokenpool_monitor_state info;
            period(p, p < 6 ? 2000 : rate);
            CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
            CHECK_CONTEXT("a node of 2000 falls to %.0f, period %u", rate, p);
            if (p >= 11) /* a step up may be tried, and a period in which clients try is no measure */
                CHECK_WITHIN(info.capacity, 0.8 * rate, 1.02 * rate + 100);
            for (i = 0; i < node.clients && p >= 12; i++)
                used += (double)node.of[i].done / 12;
        }
        printf("fall to %.0f: %.0f are used\n", rate, used);
        CHECK_GE(used, 0.93 * rate);
    }
}

/* What is left at a step up that was taken back is no excuse after a fall: steps up from there that the node cannot serve
 * are seen. */
static void test_fall_after_step(void)
{
    static const uint64_t reservations[] = {169, 0, 1233, 1664, 2407, 2107, 0}; /* 7580 */
    unsigned k, i, p;
    for (k = 0; k < 4; k++) {
        double rate = 12742 * (0.6 + 0.05 * k), met = 0;
        unsigned above = 0;
        begin(12742, 12742, TOKENPOOL_GUARD);
        node.steps = 1000;
        for (i = 0; i < 7; i++)
            add(reservations[i], 25000, true);
        attach();
        CHECK_CONTEXT("a node of 12742 falls to %.0f", rate);
        for (p = 0; p < 48; p++) {
            struct tokenpool_monitor_state info;
            period(p, p < 12 ? 12742 : rate);
            CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
            above += p >= 18 && (double)info.capacity > 1.03 * rate;
            for (i = 0; i < node.clients && p >= 18; i++)
                met += fmin((double)node.of[i].done, (double)node.of[i].reservation) / 30;
        }
        printf("fall to %.0f: %.3f is met, the estimate is above in %u of 30 periods\n", rate, met / 7580, above);
        CHECK_GE(met, 0.99 * 7580);
        CHECK_LE(above, 6);
    }
}

/* Tokens that are lost say nothing of the node: five backlogged clients, a store of each kind at any time, a pause of each
 * length. What the periods from then on have less than those before. */
static void test_lost(void)
{
    static const uint32_t flags[] = {0, TOKENPOOL_GUARD, TOKENPOOL_ORDERED, TOKENPOOL_GUARD | TOKENPOOL_ORDERED};
    unsigned k, i, p;
    double most = 0, most_paused = 0;
    for (k = 0; k < 4 * 4 * 5 * 2; k++) {
        unsigned at = k / 16 % 5 * 100 + 3050, pause = k < 80 ? 0 : 100 + 150 * (k % 4);
        double before = 0, lost = 0;
        begin(10000, 10000, flags[k / 4 % 4]);
        for (i = 0; i < 5; i++)
            add(400, 20000, true);
        attach();
        node.stray = k % 4;
        node.hit = pause ? 0 : at;
        node.quiet = at;
        node.loud = at + pause;
        CHECK_CONTEXT("flags %u, %s %u at %.1f", flags[k / 4 % 4], pause ? "paused, steps" : "store of kind",
                      pause ? pause : k % 4, at / 500.);
        for (p = 0; p < 18; p++) {
            double done = 0;
            struct tokenpool_monitor_state info;
            period(p, 10000);
            CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
            for (i = 0; i < node.clients; i++)
                done += (double)node.of[i].done;
            before += p == 4 || p == 5 ? done / 2 : 0;
            lost += p >= 6 && p < 14 ? fmax(before - done, 0) / before : 0;
            if (p >= 10)
                CHECK_GE(done, 0.95 * before);
        }
        if (pause)
            most_paused = fmax(most_paused, lost - pause / 500.);
        else
            most = fmax(most, lost);
    }
    printf("lost: %.2f periods at most by a store, by a pause %.2f more than it lasts\n", most, most_paused);
    CHECK_LE(most, 1);
    CHECK_LE(most_paused, 0.3);
}

/* The node was slow for five periods, below the sum of the reservations, of which a tenth is used: it is found again. */
static void test_slow_before(void)
{
    unsigned k, i, p;
    for (k = 0; k < 3; k++) {
        double used = 0;
        begin(10000, 10000, 0);
        add(500 + 500 * k, 50 + 50 * k, true);
        for (i = 0; i < 4; i++)
            add(0, i < 3 ? 20000 : 0, true);
        attach();
        CHECK_CONTEXT("reserved %u, slow for five periods", 500 + 500 * k);
        for (p = 0; p < 50; p++) {
            period(p, p >= 10 && p < 15 ? (k ? 1000 : 500) : 10000);
            for (i = 0; i < node.clients && p >= 40; i++)
                used += (double)node.of[i].done / 10;
        }
        CHECK_GE(used, 9800);
    }
}

/* A client uses a tenth of a large reservation, evenly; the others, without one, are backlogged: 0.8 of what it leaves. */
static void test_paced(void)
{
    unsigned k, i, p;
    double least = 1;
    for (k = 0; k < 4 * 3; k++) {
        uint64_t reservation = 3000 + 1000 * (k % 4);
        double used = 0, left = 10000 - (double)reservation / 10;
        begin(10000, 10000, TOKENPOOL_GUARD);
        node.steps = 2000;
        add(reservation, (double)reservation / 10, true);
        for (i = 0; i < 2 + k / 4; i++)
            add(0, 20000, true);
        attach();
        CHECK_CONTEXT("reserved %" PRIu64 " and %u others", reservation, node.clients - 1);
        for (p = 0; p < 30; p++) {
            period(p, 10000);
            for (i = 1; i < node.clients && p >= 10; i++)
                used += (double)node.of[i].done / 20;
        }
        least = fmin(least, used / left);
        CHECK_GE(used, 0.8 * left);
    }
    printf("paced: others use at least %.2f of what is left\n", least);
}

/* The node is faster than the profile. What comes is less than the estimate, in bursts, or tokens are short as reservations
 * stay unused: neither says that the node is slow. */
static void test_low(uint32_t flags)
{
    unsigned k, p, i;
    double least = 1;
    for (k = 0; k < 12; k++) {
        begin(2000, 2000, flags);
        node.steps = 1000;
        for (i = 0; i < 2 && k; i++) /* one of them uses a part of a reservation, with half of the cases */
            add(i && k % 2 ? 1400 : 0, 20 + 10 * k, false);
        add(k == 0 ? 700 : k % 2 ? 0 : 1000, 0, false);
        if (k == 0) {
            add(800, 60, false);
            add(0, 20000, false);
            add(0, 400, false);
        }
        for (i = 0; i < 2 && k; i++)
            node.of[i].bursts = true;
        attach();
        CHECK_CONTEXT("low, flags %u, case %u", flags, k);
        for (p = 0; p < 60; p++) {
            struct tokenpool_monitor_state state;
            period(p, 3400);
            tokenpool_monitor_info(&monitor, &state);
            least = fmin(least, (double)state.capacity / 2000);
            CHECK_GE(state.capacity, 1800);
        }
    }
    printf("low, flags %u: the estimate is at least %.2f of the profile\n", flags, least);
}

/* The node is faster than the profile, and a client is not: a reservation near client_capacity is met all the same, also when
 * it is used after others had raised the estimate. */
static void test_faster(void)
{
    unsigned k, i, p;
    double least = 1;
    for (k = 0; k < 4 * 3; k++) {
        double rate = 10000 * (1.25 + 0.25 * (k % 4));
        begin(10000, 4000, TOKENPOOL_GUARD);
        node.steps = 2000;
        add(3900, 0, true);
        for (i = 0; i < 5 + 2 * (k / 4); i++)
            add(20, 20000, true);
        attach();
        CHECK_CONTEXT("a node of %.0f, %u clients", rate, node.clients);
        for (p = 0; p < 40; p++) {
            node.of[0].wants = p < 30 ? 0 : 20000;
            period(p, rate);
            if (p >= 31) {
                least = fmin(least, (double)node.of[0].done / 3900);
                CHECK_GE(node.of[0].done, 0.99 * 3900);
            }
        }
    }
    printf("faster: at least %.3f of the reservation is met\n", least);
}

/* What a client claimed and did not report is no sign of a slower node: in each period it starts anew, its clock jumps ahead,
 * or its claims are lost. A node that gets slower is known all the same, and so is one that is fast again. Nor do idle clients
 * that leave and join hide it, or keep what they did not use. */
static void test_unknown(void)
{
    unsigned k, i, p;
    double least = 1, least_slow = 1, most_slow = 0;
    for (k = 0; k < 3 * 6; k++) {
        double others = 0, all = 0, again = 0, slow = 0, lost, share = k / 3 == 5 ? 10000 : 5000;
        begin(10000, 10000, k % 3 == 1 ? TOKENPOOL_GUARD : k % 3 == 2 ? TOKENPOOL_ORDERED : 0);
        node.steps = 2000;
        node.starts = k / 3 < 2;
        node.jumps = k / 3 == 2 ? 0.7 : k / 3 == 3 ? 3 : 0;
        node.loses = k / 3 == 4 ? 3 : 0;
        node.leaves = k / 3 == 5;
        for (i = 0; i < 2; i++)
            add(k / 3 == 1 ? 2000 : i == 0 && node.leaves ? 3000 : 0, i == 0 && node.leaves ? 0 : 20000, true);
        attach();
        CHECK_CONTEXT("%s, flags %u",
                      k < 3    ? "starts"
                      : k < 6  ? "starts with a reservation"
                      : k < 12 ? "jumps"
                      : k < 15 ? "lost"
                               : "leaves",
                      config.flags);
        for (p = 0; p < 90; p++) {
            struct tokenpool_monitor_state info;
            period(p, p >= 40 && p < 60 ? 5000 : 10000);
            CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
            for (i = 0; i < 2; i++)
                all += p >= 46 && p < 60 ? (double)node.of[i].done / 14 : 0;
            others += p >= 20 && p < 40 ? (double)node.of[1].done / 20 : 0;
            again += p >= 70 ? (double)node.of[1].done / 20 : 0;
            slow += p >= 46 && p < 60 ? (double)info.capacity / 14 : 0; /* steps up are tried */
        }
        lost = node.loses ? 0.7 : node.leaves ? 0.85 : 0.9; /* what the lost tokens themselves cost both */
        least = fmin(least, fmin(others, again) / share);
        least_slow = fmin(least_slow, all / 5000);
        CHECK_GE(others, lost * share);
        most_slow = fmax(most_slow, slow);
        CHECK_GE(all, lost * 5000);
        /* who starts takes turns from the other, which then says nothing of the node */
        CHECK_LE(slow, (node.starts && k % 3 == 2 ? 1.3 : 1.2) * 5000);
        CHECK_GE(again, lost * share);
    }
    printf("unknown: the other has at least %.2f of its part; slow: an estimate of at most %.2f, %.2f are used\n",
           least, most_slow / 5000, least_slow);
}

/* A client says that it has a queue, and keeps its reservation away from the node: that moves the estimate by these tokens
 * at most, also after a fall. Nor is a queue that a burst leaves beside one who is always at the node a sign of a slow node. */
static void test_away(void)
{
    unsigned k, i, p;
    for (k = 0; k < 6; k++) {
        uint64_t keeps = 500 * (k + 1), least = UINT64_MAX;
        struct tokenpool_monitor_state info;
        begin(10000, 10000, 0);
        add(keeps, 0, false);
        for (i = 0; i < 3; i++)
            add(1000, 20000, true);
        attach();
        CHECK_CONTEXT("%" PRIu64 " are kept", keeps);
        for (p = 0; p < 48; p++) {
            tokenpool_client_set_queued(&node.of[0].engine, TOKENPOOL_BACKLOGGED);
            period(p, p >= 12 && p < 18 ? 3000 : 10000);
            CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
            if (p >= 30)
                least = qos_min(least, info.capacity);
        }
        printf("%" PRIu64 " are kept: an estimate of %" PRIu64 " at least\n", keeps, least);
        CHECK_GE(least, 9800 - keeps);
    }
    for (k = 0; k < 4; k++) {
        struct tokenpool_monitor_state info;
        begin(10000, 10000, 0);
        node.steps = 1000;
        add(4000, 3000, true);
        add(0, 1000 + 500 * k, true);
        node.of[1].bursts = true;
        attach();
        CHECK_CONTEXT("bursts of %u", 1000 + 500 * k);
        for (p = 0; p < 40; p++) {
            period(p, 10000);
            if (p == 0) /* an I/O that never ends */
                CHECK_EQ(tokenpool_client_take(&node.of[0].engine, 2 * QOS_NS_PER_S - 2000000, 1), QOS_OK);
            CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
            CHECK_GE(info.capacity, 9000);
        }
    }
}

/* A node of half the profile that gets fast again, and then faster: the estimate follows with small batches, too. */
static void test_back(uint32_t flags)
{
    unsigned k, i, p;
    for (k = 0; k < 4; k++) {
        begin(10000, 10000, flags);
        node.steps = 1000;
        config.batch = k % 2;
        for (i = 0; i < 4; i++)
            add(k / 2 ? 1000 * i : 500, 20000, true);
        attach();
        CHECK_CONTEXT("back, flags %u, case %u", flags, k);
        for (p = 0; p < 60; p++) {
            struct tokenpool_monitor_state state;
            period(p, p < 10 ? 5000 : p < 30 ? 10000 : 15000);
            tokenpool_monitor_info(&monitor, &state);
            if (p == 29 || p == 59)
                CHECK_GE(state.capacity, p == 29 ? 9000 : 13000);
        }
    }
}

int main(void)
{
    uint32_t flags;
    check_begin("property/tokenpool_device");
    if (check_case("away"))
        test_away();
    if (check_case("guard"))
        test_reservations(TOKENPOOL_GUARD);
    if (check_case("no_guard"))
        test_reservations(0);
    if (check_case("fall_below"))
        test_fall_below();
    if (check_case("fall_after_step"))
        test_fall_after_step();
    if (check_case("paced"))
        test_paced();
    for (flags = 0; flags <= (TOKENPOOL_GUARD | TOKENPOOL_ORDERED) && check_case("low"); flags++)
        test_low(flags);
    for (flags = 0; flags <= (TOKENPOOL_GUARD | TOKENPOOL_ORDERED) && check_case("back"); flags++)
        test_back(flags);
    if (check_case("unknown"))
        test_unknown();
    if (check_case("faster"))
        test_faster();
    if (check_case("slow_before"))
        test_slow_before();
    if (check_case("lost"))
        test_lost();
    return check_end();
}
