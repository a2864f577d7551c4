// proves: engines and monitors with clocks of their own, whoever calls when: rare calls, late sleeps, cached clocks,
// proves: steps back, ten starts in a period, dead and paused monitors, stray stores. No token is spent outside its
// proves: epoch, none above the bound or a limit; nobody hangs; who has demand gets its reservation, and others the rest
// scale: 3
// variants: native
// coverage: report
#include "check.h"
#include "tokenpool.h"

/* The world: true time in steps of T / 512 (the surplus: T / 2048). Each process reads a clock of its own, which it may cache. The oracle sees
 * true time and the period word; it counts takes in plain integers. Nothing is read from the engines' state. */
enum { CLIENTS = 4, MONITORS = 3, EPOCHS = 4096, CAPACITY = 20000 };
enum { WHOLE, HALF, IDLE, GREEDY }; /* what clients 0 to 3 want of their reservation; the last one has none */
static const uint64_t reserved[CLIENTS] = {8000, 4000, 4000, 0}, limits[CLIENTS] = {10000, 0, 0, 0};

struct process {
    uint64_t late_ns, cached_ns, read_ns, next_step; /* of its clock; when it was read, in true time; its next call */
    bool cached, remote;
    /* a far transport: its round trip, 0: none; the operation under way, which is performed in the middle of it */
    uint64_t round_ns, asked_ns, answer;
    struct tokenpool_op op;
    bool blocks, asks, performed;
};
static struct {
    struct tokenpool_config config;
    struct tokenpool_monitor monitor[MONITORS];
    struct tokenpool_client client[CLIENTS];
    struct process of[CLIENTS], of_monitor[MONITORS];
    uint64_t sleeps_until[MONITORS], wants[CLIENTS], gap;
    bool born[MONITORS], dead[MONITORS];
    uint64_t spent[EPOCHS][CLIENTS], bound[EPOCHS], begun[EPOCHS], starts[EPOCHS][CLIENTS], now, dt, refused, outside;
    uint64_t changed; /* when the period word showed another epoch */
    uint32_t shown;
    uint64_t storage[128] __attribute__((aligned(64))), memory[MONITORS][512] __attribute__((aligned(64)));
} w;
static struct check_rng rng;
static uint64_t steps = 512; /* of a period */

static uint64_t choose(uint64_t low, uint64_t high)
{
    return check_between(&rng, low, high);
}

static uint64_t clock_of(struct process *p)
{
    uint64_t now = w.now + 100 * w.config.period_ns - p->late_ns;
    if (p->cached && choose(0, 3) && p->read_ns && w.now - p->read_ns < w.config.period_ns / 64)
        return p->cached_ns;
    p->read_ns = w.now;
    return p->cached_ns = now;
}

static uint32_t epoch_shown(void)
{
    return (uint32_t)(w.storage[TOKENPOOL_OFFSET_PERIOD / 8] >> 28) & 0xfffffu;
}

static void monitor_start(unsigned m, bool fresh)
{
    enum qos_status s;
    unsigned i;
    if (fresh)
        s = tokenpool_monitor_init(&w.monitor[m], w.memory[m], sizeof w.memory[m], w.storage, sizeof w.storage,
                                   &w.config);
    else
        s = tokenpool_monitor_resume(&w.monitor[m], w.memory[m], sizeof w.memory[m], w.storage, sizeof w.storage,
                                     &w.config);
    CHECK_EQ(s, QOS_OK);
    for (i = 0; fresh && i < CLIENTS; i++)
        CHECK_EQ(tokenpool_monitor_join(&w.monitor[m], i, reserved[i], limits[i], NULL), QOS_OK);
    w.born[m] = true;
    w.dead[m] = false;
}

static void monitor_run(unsigned m)
{
    struct tokenpool_monitor_state info;
    unsigned i, k;
    if (!w.born[m] || w.dead[m] || w.now < w.sleeps_until[m])
        return;
    for (k = 0; k < 3; k++) {
        uint64_t clock = clock_of(&w.of_monitor[m]);
        if (tokenpool_monitor_next_ns(&w.monitor[m], clock) > clock)
            break;
        tokenpool_monitor_run(&w.monitor[m], clock);
    }
    CHECK_EQ(tokenpool_monitor_info(&w.monitor[m], &info), QOS_OK);
    if (!info.active || info.epoch != epoch_shown() || info.epoch >= EPOCHS || w.bound[info.epoch] || !info.bound)
        return;
    w.bound[info.epoch] = info.bound;
    w.begun[info.epoch] = w.now;
    for (i = 0; i < CLIENTS; i++)
        w.starts[info.epoch][i] = 0;
}

static void attach(unsigned i)
{
    if (w.of[i].remote)
        CHECK_EQ(
            tokenpool_client_attach_remote(&w.client[i], i, 0, &w.storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof w.storage),
            QOS_OK);
    else
        CHECK_EQ(tokenpool_client_attach(&w.client[i], i, 0, w.storage, sizeof w.storage), QOS_OK);
    w.of[i].asks = false;
    if (epoch_shown() < EPOCHS)
        w.starts[epoch_shown()][i]++;
}

/* The operations of a transport. False: its caller waits for an answer. */
static bool operate(unsigned i, uint64_t clock, uint64_t need)
{
    struct process *p = &w.of[i];
    for (;;) {
        if (p->asks && !p->performed && w.now >= p->asked_ns + p->round_ns / 2) {
            p->answer = tokenpool_storage_run(w.storage, &p->op);
            p->performed = true;
        }
        if (p->asks && w.now < p->asked_ns + p->round_ns)
            return !p->blocks;
        if (p->asks)
            tokenpool_client_done(&w.client[i], p->answer);
        p->asks = tokenpool_client_next(&w.client[i], clock, need, &p->op);
        p->performed = false;
        p->asked_ns = w.now;
        if (!p->asks)
            return true;
    }
}

static void client_call(unsigned i)
{
    struct tokenpool_client *c = &w.client[i];
    enum qos_status s = QOS_OK;
    uint64_t most = w.wants[i], clock = clock_of(&w.of[i]), k, epoch;
    for (k = 0; k < most; k++) {
        if (w.of[i].remote && !operate(i, clock, 1))
            break;
        s = tokenpool_client_take(c, clock, 1);
        if (s != QOS_OK)
            break;
        tokenpool_client_complete(c, 1);
        epoch = tokenpool_client_epoch(c);
        CHECK_LE(epoch, EPOCHS - 1);
        w.spent[epoch][i]++;
        w.outside += epoch != epoch_shown() && w.of[i].read_ns >= w.changed; /* a cached clock is as late as it is */
    }
    if (most == 0 && w.of[i].remote)
        (void)operate(i, clock, 0);
    else if (most == 0)
        tokenpool_client_run(c, clock, 0);
    if (s == QOS_ESTALE)
        attach(i);
    CHECK_LE(tokenpool_client_next_ns(c, clock, 1), clock + 2 * w.config.period_ns); /* no hang */
}

static void world(uint64_t period_ns, uint64_t gap, uint32_t flags)
{
    uint64_t check_ns = w.config.check_ns;
    unsigned i;
    memset(&w, 0, sizeof w);
    w.config.check_ns = check_ns;
    w.config.clients = CLIENTS;
    w.config.capacity = CAPACITY;
    w.config.batch = 50;
    w.config.period_ns = period_ns;
    w.config.overrun = QOS_NOTHING;
    w.config.flags = TOKENPOOL_FIXED | flags;
    w.dt = period_ns / steps;
    w.gap = gap;
    for (i = 0; i < CLIENTS; i++) {
        uint64_t each = i == GREEDY ? 1 : gap; /* steps between its calls */
        w.wants[i] = i == IDLE ? 0 : i == HALF ? reserved[i] * each / steps / 2 : CAPACITY * 2 * each / steps;
        w.of[i].next_step = choose(0, each);
    }
    monitor_start(0, true);
    for (i = 0; i < CLIENTS; i++)
        attach(i);
}

static void step(uint64_t at)
{
    unsigned i;
    w.now += w.dt;
    for (i = 0; i < MONITORS; i++)
        monitor_run(i);
    if (epoch_shown() != w.shown)
        w.changed = w.now;
    w.shown = epoch_shown();
    for (i = 0; i < CLIENTS; i++)
        if (at >= w.of[i].next_step) {
            uint64_t each = i == GREEDY ? 1 : w.gap;
            client_call(i);
            w.of[i].next_step = at + each;
        }
}

static void judge_epochs(void)
{
    unsigned e, i;
    CHECK_EQ(w.outside, 0);
    for (e = 1; e < EPOCHS; e++) {
        uint64_t sum = 0;
        for (i = 0; i < CLIENTS; i++) {
            sum += w.spent[e][i];
            CHECK_LE(w.spent[e][i], limits[i] ? limits[i] : CAPACITY * 2);
        }
        if (w.bound[e])
            CHECK_LE(sum, w.bound[e]);
        if (e > 1 && w.begun[e] && w.begun[e - 1])
            CHECK_GE(w.begun[e] - w.begun[e - 1] + w.dt, w.config.period_ns - w.config.period_ns / 4096);
    }
}

/* Service without faults: 99.9 % of what each wants of its reservation. */
static void test_service(void)
{
    static const uint64_t periods[] = {1000000, 3000000, 10000000, 100000000, 1000000000, UINT64_C(10000000000)};
    static const uint64_t gaps[] = {1, 7, 32, 64, 100, 127};
    const unsigned few = check_state.scale > 2 ? 3 : 1;
    unsigned k, g, remote, cached, i, e;
    for (k = 0; k<sizeof periods / sizeof *periods; k += few> 1 ? 5 : 1)
        for (g = 0; g < sizeof gaps / sizeof *gaps; g += few)
            for (remote = 0; remote < 2; remote++)
                for (cached = 0; cached < 2; cached++) {
                    uint64_t at, sum[CLIENTS] = {0}, n = 0, half;
                    world(periods[k], gaps[g], 0);
                    for (i = 0; i < CLIENTS; i++) {
                        w.of[i].remote = remote && i != GREEDY;
                        w.of[i].cached = cached && i != GREEDY && !remote;
                        attach(i);
                    }
                    CHECK_CONTEXT("T %" PRIu64 " ns, a call each T * %" PRIu64 " / 512, %s, %s", periods[k], gaps[g],
                                  remote ? "transport" : "local", cached ? "cached clock" : "fresh clock");
                    for (at = 0; at < 24 * steps; at++)
                        step(at);
                    judge_epochs();
                    for (e = 8; e < 24; e++, n++)
                        for (i = 0; i < CLIENTS; i++)
                            sum[i] += w.spent[e][i];
                    half = w.wants[HALF] * (steps / gaps[g]) * n;
                    CHECK_GE(sum[WHOLE] * 1000, n * reserved[WHOLE] * 999);
                    CHECK_GE(sum[HALF] * 1000 + 1000 * n * w.wants[HALF], half * 999);
                }
}

/* All of R behind round trips below T / 8. In the last epoch a near engine starts in its slot: that costs R / 2 at most. */
static void test_far(void)
{
    static const uint64_t periods[] = {1000000, 10000000, 1000000000}, rounds[] = {20, 32, 37, 42, 51, 62};
    unsigned k, d, blocks, e = 0;
    for (k = 0; k < 3; k++)
        for (d = 0; d < sizeof rounds / sizeof *rounds; d++)
            for (blocks = 0; blocks < 2; blocks++) {
                uint64_t at, sum = 0, start = 23 * steps + choose(0, steps / 2);
                world(periods[k], 1, 0);
                w.of[WHOLE].remote = true;
                w.of[WHOLE].blocks = blocks;
                w.of[WHOLE].round_ns = rounds[d] * w.dt;
                w.wants[WHOLE] = 2 * CAPACITY;
                attach(WHOLE);
                CHECK_CONTEXT("T %" PRIu64 " ns, a round trip of T * %" PRIu64 " / 512%s", periods[k], rounds[d],
                              blocks ? ", it waits for the answer" : "");
                for (at = 0; at < 24 * steps; at++) {
                    if (at == start) {
                        w.of[WHOLE].remote = false;
                        attach(WHOLE);
                        e = epoch_shown();
                    }
                    step(at);
                }
                judge_epochs();
                CHECK_GE(w.spent[e][WHOLE] * 2, reserved[WHOLE]);
                for (e = 8; e < 23; e++)
                    sum += w.spent[e][WHOLE];
                CHECK_GE(sum * 1000, 15 * reserved[WHOLE] * 999);
            }
}

/* The greedy one gets 99 % of what idle clients leave, whatever the period and check_ns, if all are called each T / 2048,
 * and 98 % if each T / 512. A trial of the second client returns nothing for a period: it has one after 1, 2, 4, ... 128
 * periods, so none in the periods that count here. */
static void test_surplus(void)
{
    static const uint64_t periods[] = {1000000, 10000000, 1000000000, UINT64_C(10000000000)},
                          parts[] = {0, 0, 1, 16, 1024};
    const unsigned few = check_state.scale > 2 ? 3 : 1;
    unsigned k, c, i, e;
    for (k = 0; k < sizeof periods / sizeof *periods; k += few)
        for (c = 0; c < sizeof parts / sizeof *parts; c += few) {
            uint64_t at, sum[CLIENTS] = {0}, idle, n = 0;
            steps = c ? 2048 : 512; /* a call each T / 512 comes too late for what is returned in the last one */
            w.config.check_ns = parts[c] ? periods[k] / parts[c] : 0;
            world(periods[k], 1, 0);
            CHECK_CONTEXT("T %" PRIu64 " ns, check_ns %" PRIu64, periods[k], w.config.check_ns);
            for (at = 0; at < 52 * steps; at++)
                step(at);
            judge_epochs();
            for (e = 40; e < 52; e++, n++)
                for (i = 0; i < CLIENTS; i++)
                    sum[i] += w.spent[e][i];
            idle = n * (reserved[HALF] + reserved[IDLE]) - sum[HALF];
            CHECK_GE(sum[WHOLE] * 1000, n * reserved[WHOLE] * 999);
            CHECK_GE((sum[WHOLE] + sum[HALF] + sum[GREEDY] + idle - n * CAPACITY) * 1000, idle * (c ? 990 : 980));
            printf("T %g ms, check %g of it: of what others leave %.2f %% is used\n", (double)periods[k] / 1e6,
                   (double)w.config.check_ns / (double)periods[k],
                   100.0 * (double)(sum[WHOLE] + sum[HALF] + sum[GREEDY] + idle - n * CAPACITY) / (double)idle);
        }
    w.config.check_ns = 0;
    steps = 512;
}

/* Of what idle clients leave 99 % goes to one that asks for the node's rate, no more, and what it did not get is lost:
 * for any T and check_ns up to 0.9 C, at the default check_ns up to 0.99 C. In the last period one idle client begins after
 * half of T: it has R x the time left, less two checks. If the idle one starts anew once a period, 98 %, but with ticks of T. */
static void test_idle(void)
{
    static const uint64_t periods[] = {1000000, 100000000, UINT64_C(10000000000)}, parts[] = {0, 1, 16, 1024};
    static const unsigned shares[] = {600, 700, 900, 990}, idle_clients[] = {1, 30, 1};
    enum { MOST = 31, PERIODS = 12 };
    static struct tokenpool_client client[MOST];
    static uint64_t words[256] __attribute__((aligned(64))), rooms[2048] __attribute__((aligned(64)));
    static struct tokenpool_monitor monitor;
    const unsigned few = check_state.scale > 2 ? 2 : 1;
    unsigned k, c, s, n, i;
    for (k = 0; k < sizeof periods / sizeof *periods; k += few)
        for (c = 0; c < sizeof parts / sizeof *parts; c++)
            for (s = 0; s < (c ? 3u : 4u); s++)
                for (n = 0; n < (c == 1 ? 2u : 3u); n++) {
                    const uint64_t T = periods[k], idle = idle_clients[n], calls = s == 3 ? 2048 : 512,
                                   reservation = CAPACITY * shares[s] / 1000 / idle,
                                   lost_most = reservation * idle * (n == 2 ? 2 : 1) / 100;
                    const uint64_t check_ns = parts[c] ? T / parts[c] : qos_min(1000000, T / 8);
                    struct tokenpool_config config = {0};
                    uint64_t at, now, got = 0, lost = 0, wants, began = 0;
                    config.clients = (uint32_t)idle + 1;
                    config.capacity = CAPACITY;
                    config.period_ns = T;
                    config.check_ns = parts[c] ? check_ns : 0;
                    config.overrun = QOS_NOTHING;
                    config.flags = TOKENPOOL_FIXED;
                    CHECK_EQ(tokenpool_monitor_init(&monitor, rooms, sizeof rooms, words, sizeof words, &config),
                             QOS_OK);
                    for (i = 0; i <= idle; i++) {
                        CHECK_EQ(tokenpool_monitor_join(&monitor, i, i < idle ? reservation : 0, 0, NULL), QOS_OK);
                        CHECK_EQ(tokenpool_client_attach(&client[i], i, 0, words, sizeof words), QOS_OK);
                    }
                    CHECK_CONTEXT("T %" PRIu64 " ns, check_ns %" PRIu64 ", %u of 1000 reserved by %" PRIu64 "%s", T,
                                  config.check_ns, shares[s], idle, n == 2 ? " that starts" : "");
                    for (at = 0; at < PERIODS * calls; at++) {
                        now = 7 * T + at * (T / calls);
                        while (tokenpool_monitor_next_ns(&monitor, now) <= now)
                            tokenpool_monitor_run(&monitor, now);
                        if (n == 2 && at % calls == (at / calls * 29 + 300) % calls)
                            CHECK_EQ(tokenpool_client_attach(&client[0], 0, 0, words, sizeof words), QOS_OK);
                        for (i = 0; i < idle; i++)
                            tokenpool_client_run(&client[i], now, 0);
                        wants = (at + 1) * CAPACITY / calls - at * CAPACITY / calls;
                        for (; wants && tokenpool_client_take(&client[idle], now, 1) == QOS_OK; wants--) {
                            tokenpool_client_complete(&client[idle], 1);
                            got++;
                        }
                        if (at >= 4 * calls && at < (PERIODS - 1) * calls)
                            lost += wants;
                        for (i = 0; at == PERIODS * calls - calls / 2 && i < reservation; i++)
                            began += tokenpool_client_take(&client[0], now, 1) == QOS_OK;
                    }
                    CHECK_LE(lost, (PERIODS - 5) * lost_most);
                    wants = qos_min(2 * qos_max(check_ns, T / 1024), check_ns + T / 32) + 2 * (T / calls);
                    CHECK_GE(began * T + T, reservation * (wants < T / 2 ? T / 2 - wants : 0));
                    CHECK_GE(got, CAPACITY);
                }
}

/* Faults of all kinds for 20 periods, then none: after 4 more periods all is as before. */
static void test_faults(void)
{
    uint64_t run, at, most = check_scaled(400);
    unsigned i, e, last;
    for (run = 0; run < most; run++) {
        uint64_t what, gap, sum[CLIENTS] = {0};
        check_rng_init(&rng, run);
        gap = choose(1, 100);
        world(UINT64_C(1) << choose(20, 33), gap, choose(0, 3) ? 0 : TOKENPOOL_GUARD);
        CHECK_CONTEXT("run %" PRIu64, run);
        for (i = 0; i < CLIENTS; i++) {
            w.of[i].remote = choose(0, 2) == 0;
            w.of[i].cached = choose(0, 2) == 0;
            attach(i);
        }
        for (at = 0; at < 32 * steps; at++) {
            what = at < 20 * steps ? choose(0, 400) : UINT64_MAX;
            i = (unsigned)choose(0, CLIENTS - 1);
            if (what == 0) /* a client is started anew; at times ten times in a period */
                for (e = 0; e < choose(1, 3); e++)
                    attach(i);
            else if (what == 1) { /* its clock goes back between two calls, below what it showed */
                w.of[i].read_ns = 0;
                client_call(i);
                w.of[i].late_ns += choose(0, 2) ? choose(1, w.dt) : choose(1, 2 * w.config.period_ns);
                w.of[i].read_ns = 0;
                client_call(i);
            } else if (what == 2) /* it sleeps */
                w.of[i].next_step = at + choose(1, 3 * steps);
            else if (what == 3 || what == 4) { /* a monitor is started, or dies, or pauses */
                i = (unsigned)choose(0, MONITORS - 1);
                if (!w.born[i] || choose(0, 1))
                    monitor_start(i, false);
                else if (choose(0, 1))
                    w.dead[i] = true;
                else
                    w.sleeps_until[i] = w.now + choose(1, 2 * w.config.period_ns);
            } else if (what == 5) { /* its clock goes back */
                w.of_monitor[choose(0, MONITORS - 1)].late_ns += choose(1, w.config.period_ns);
            }
            if (at == 20 * steps)
                for (i = 0; i < CLIENTS; i++)
                    w.of[i].next_step = qos_min(w.of[i].next_step, at + gap);
            if (at == 20 * steps) /* somebody starts the data node again */
                monitor_start(0, false);
            step(at);
        }
        judge_epochs();
        last = epoch_shown();
        CHECK_GE(last, 10);
        for (e = last - 5; e < last; e++)
            for (i = 0; i < CLIENTS; i++)
                sum[i] += w.spent[e][i];
        CHECK_GE(sum[WHOLE] * 1000, 5 * reserved[WHOLE] * 999);
        CHECK_GE(sum[GREEDY], 5 * (CAPACITY - reserved[WHOLE] - reserved[HALF] - reserved[IDLE]) / 2);
    }
}

/* Ten starts in each period cost nobody else anything, and the client at most X each. */
static void test_starts(void)
{
    uint64_t at, own = 0, other = 0, starts;
    unsigned e;
    for (starts = 0; starts < 11; starts += 5) {
        check_rng_init(&rng, starts);
        world(1000000000, 4, 0);
        CHECK_CONTEXT("%" PRIu64 " starts in a period", starts);
        for (at = 0; at < 16 * steps; at++) {
            if (starts && at % (steps / starts) == 0)
                attach(WHOLE);
            step(at);
        }
        judge_epochs();
        for (e = 4, own = other = 0; e < 16; e++) {
            own += w.spent[e][WHOLE];
            other += w.spent[e][HALF];
            CHECK_GE(w.spent[e][WHOLE] + starts * (reserved[WHOLE] / 8), starts < 8 ? reserved[WHOLE] : 0);
        }
        CHECK_GE(other, UINT64_C(12) * 1900);
    }
}

/* Two clients that use a part of their reservations evenly, and a greedy one: it gets 0.8 of what they leave, also if all of C
 * is reserved. */
static void test_paced(void)
{
    static const uint64_t periods[] = {1000000, 20000000, 1000000000};
    uint64_t worst = 100;
    unsigned k, p, i, part;
    for (k = 0; k < 3; k++)
        for (p = 6; p <= 10; p += 2)
            for (part = 1; part <= 3; part++) {
                const uint64_t r[3] = {20, p * CAPACITY / 10 * 3 / 4,
                                       p * CAPACITY / 10 / 4 - 20}; /* greedy, the others */
                const uint64_t used[3] = {0, r[1] * part / 4, r[2] * 83 / 100};
                uint64_t at, got[3] = {0}, sum[3] = {0}, n = 0, left, seen = 0, begun = 0;
                steps = 512;
                w.config.check_ns = 0;
                world(periods[k], 1, 0);
                CHECK_EQ(tokenpool_monitor_leave(&w.monitor[0], 3), QOS_OK);
                for (i = 0; i < 3; i++) {
                    CHECK_EQ(tokenpool_monitor_change(&w.monitor[0], i, r[i], 0, NULL), QOS_OK);
                    tokenpool_client_set_queued(&w.client[i], i ? 0 : TOKENPOOL_BACKLOGGED);
                }
                for (at = 0; at < 30 * 512; at++) {
                    uint64_t now = w.config.period_ns * 100 + at * w.config.period_ns / 512;
                    tokenpool_monitor_run(&w.monitor[0], now);
                    if (epoch_shown() != seen) {
                        for (i = 0; i < 3 && seen >= 10; i++)
                            sum[i] += got[i];
                        n += seen >= 10;
                        got[0] = got[1] = got[2] = 0;
                        seen = epoch_shown();
                        begun = at;
                    }
                    for (i = 0; i < 3; i++) {
                        uint64_t most = i ? used[i] * (at - begun) / 512 : UINT64_MAX;
                        while (got[i] < most && tokenpool_client_take(&w.client[i], now, 1) == QOS_OK) {
                            got[i]++;
                            tokenpool_client_complete(&w.client[i], 1);
                        }
                        tokenpool_client_run(&w.client[i], now, i ? 0 : 1);
                    }
                }
                left = r[1] + r[2] - used[1] - used[2];
                CHECK_CONTEXT("T %" PRIu64 " ns, 0.%u of C reserved, used a part of %u / 4", periods[k], p, part);
                CHECK_GE((sum[0] + n * (r[1] + r[2])) * 10, n * (CAPACITY * 10 + 8 * left));
                for (i = 1; i < 3; i++)
                    CHECK_GE(sum[i] * 1000, n * used[i] * 990);
                worst = qos_min(worst, (sum[0] + n * (r[1] + r[2]) - n * CAPACITY) * 100 / (n * left));
            }
    printf("of what clients leave that use a part evenly %" PRIu64 " %% is used at least\n", worst);
}

int main(void)
{
    check_begin("property/tokenpool_clocks");
    check_rng_init(&rng, 1);
    test_paced();
    test_service();
    test_far();
    test_surplus();
    test_idle();
    test_starts();
    test_faults();
    return check_end();
}
