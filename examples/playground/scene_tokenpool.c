/* scene_tokenpool.c - clients that use a memory without its processor: tokenpool.h     SPDX-License-Identifier: MIT
 *
 * A reader, a cache and some scanners reach one memory by one-sided operations, 100,000 I/Os/s in all, its network card
 * serves them in turn. Nobody stands between: each process takes a token before each I/O, and a monitor at the memory
 * issues them, 2,000 in a period of 20 ms. Work is in I/Os. */
#include "scene.h"
#include "tokenpool.h"
#include "../world/clients.h"

/* Rates are thousands of I/Os a second; 0: none. */
#define SETTINGS(X)                                                                                                    \
    X(seed, 1, 9999, 7)                                                                                                \
    X(qos, 0, 1, 1)                                                                                                    \
    X(reader_reservation, 0, 100, 45)                                                                                  \
    X(reader_demand, 1, 100, 40)                                                                                       \
    X(reader_limit, 0, 100, 0)                                                                                         \
    X(scanner_processes, 1, 20, 8)                                                                                     \
    X(scanner_limit, 0, 100, 0)                                                                                        \
    X(scanner_outstanding, 1, 200, 64)                                                                                 \
    X(cache_reservation, 0, 100, 25)                                                                                   \
    X(cache_outstanding, 1, 1000, 200)                                                                                 \
    X(cache_limit, 0, 100, 0)                                                                                          \
    X(flood, 0, 1, 0)                                                                                                  \
    X(sleep, 0, 1, 0)                                                                                                  \
    X(restart, 0, 1, 0)                                                                                                \
    X(monitor, 0, 1, 0)                                                                                                \
    X(clock, 0, 1, 0)

enum { SETTINGS(SCENE_ENUM) };
static const struct scene_setting settings[] = {SETTINGS(SCENE_ROW)};

enum { READER = 0, SCANNER = 1, CACHE = 2 };
#define PROCESSES 22u /* the last ones are the scanners */
#define PERIOD_NS (20 * SCENE_MS)
#define PERIODS_PER_S 50
#define CAPACITY 2000u                    /* I/Os in a period */
#define SERVED 2100u                      /* what the memory does in a period: with the overrun of 5 % */
#define STEP_NS 10000u                    /* each client looks so often */
#define QUEUE 8192u                       /* I/Os of a process */
#define CACHE_ON_NS (400 * SCENE_MS)      /* the cache is filled for so long, */
#define CACHE_OFF_NS (600 * SCENE_MS)     /* and then idle */
#define EVENT_FROM (2000 * SCENE_MS)      /* what is tried to break it begins */
#define EVENT_TO (4000 * SCENE_MS)        /* and ends */
#define AWAKE_NS (3000 * SCENE_MS)        /* the reader, asleep, wakes up */
#define RESTART_EVERY_NS (100 * SCENE_MS) /* ten new processes a second */

/* I/Os in their order: when each came. */
struct queue {
    uint64_t came_ns[QUEUE], first, count;
};

struct process {
    struct world_client wants;
    struct tokenpool_client engine;
    struct queue waiting, at_memory; /* for a token; behind it */
    uint32_t tenant;
    uint64_t reservation, limit; /* I/Os a period; 0: none */
    uint64_t satisfied, done;    /* in this tenth: looks after which nothing waited; I/Os */
    uint64_t wanted;             /* and those that came, or were there when it began */
};

static struct process process[PROCESSES];
static struct tokenpool_monitor monitor[2];
static uint64_t storage[256] __attribute__((aligned(64))), memory[2][256] __attribute__((aligned(64)));
static uint32_t processes, turn; /* whose I/O is next */
static uint64_t now;
static double credit; /* of the memory: I/Os that it could have done */
static const int32_t *set;
static bool qos;

/* ---- begin --------------------------------------------------------------------------------------------------------- */

static void put(struct queue *q, uint64_t came_ns)
{
    q->came_ns[(q->first + q->count++) % QUEUE] = came_ns;
}

static uint64_t get(struct queue *q)
{
    q->count--;
    return q->came_ns[q->first++ % QUEUE];
}

static void join(struct scene_result *result, uint32_t i)
{
    static const unsigned reservation[] = {SET_reader_reservation, SET_seed, SET_cache_reservation};
    static const unsigned limit[] = {SET_reader_limit, SET_scanner_limit, SET_cache_limit};
    struct process *p = &process[i];
    struct scene_total *total = &result->total[p->tenant];
    uint64_t fits = 0;
    p->reservation = p->tenant == SCANNER ? 0 : (uint64_t)set[reservation[p->tenant]] * 1000 / PERIODS_PER_S;
    p->limit = (uint64_t)set[limit[p->tenant]] * 1000 / PERIODS_PER_S / (p->tenant == SCANNER ? processes - 2 : 1);
    if (p->limit && p->limit < p->reservation)
        p->limit = p->reservation;
    if (tokenpool_monitor_join(&monitor[0], i, p->reservation, p->limit, &fits) == QOS_EADMISSION) {
        total->refused = QOS_EADMISSION; /* it goes on without a reservation */
        total->fits_per_s = fits * PERIODS_PER_S;
        p->reservation = 0;
        if (tokenpool_monitor_join(&monitor[0], i, 0, p->limit, &fits) != QOS_OK)
            __builtin_trap();
    }
    total->promised_per_s = p->reservation * PERIODS_PER_S;
    if (tokenpool_client_attach(&p->engine, i, 0, storage, sizeof storage) != QOS_OK)
        __builtin_trap();
}

static void start(struct scene_result *result)
{
    const struct tokenpool_config config = {.clients = processes,
                                            .flags = TOKENPOOL_ORDERED | TOKENPOOL_FIXED,
                                            .capacity = CAPACITY,
                                            .period_ns = PERIOD_NS};
    const struct world_client_config wants[SCENE_TENANTS] = {{.arrivals = WORLD_POISSON,
                                                              .interval_ns = 1000000 / (uint64_t)set[SET_reader_demand],
                                                              .backlog_max = QUEUE / 2},
                                                             {.outstanding = (uint32_t)set[SET_scanner_outstanding]},
                                                             {.outstanding = (uint32_t)set[SET_cache_outstanding]}};
    uint32_t i;
    memset(process, 0, sizeof process);
    if (tokenpool_monitor_init(&monitor[0], memory[0], sizeof memory[0], storage, sizeof storage, &config) != QOS_OK ||
        tokenpool_monitor_resume(&monitor[1], memory[1], sizeof memory[1], storage, sizeof storage, &config) != QOS_OK)
        __builtin_trap();
    tokenpool_monitor_run(&monitor[0], 0);
    for (i = 0; i < processes; i++) {
        process[i].tenant = i == 0 ? READER : i == 1 ? CACHE : SCANNER;
        join(result, i);
        world_client_init(&process[i].wants, &wants[process[i].tenant], (uint64_t)set[SET_seed], i);
    }
}

/* ---- the clients --------------------------------------------------------------------------------------------------- */

static bool is_away(const struct process *p)
{
    return (p->tenant == READER && set[SET_sleep] && now >= EVENT_FROM && now < AWAKE_NS) ||
           (p->tenant == CACHE && now % (CACHE_ON_NS + CACHE_OFF_NS) >= CACHE_ON_NS);
}

/* A new process in the place of the reader: it attaches to the same slot. What waited in the old one is asked again. */
static void restart(void)
{
    if (set[SET_restart] && now >= EVENT_FROM && now < EVENT_TO && now % RESTART_EVERY_NS == 0 &&
        tokenpool_client_attach(&process[READER].engine, READER, 0, storage, sizeof storage) != QOS_OK)
        __builtin_trap();
}

static bool may(struct process *p)
{
    /* The reader's clock may be a period back, for the first half of each tenth. */
    const bool wrong = p->tenant == READER && set[SET_clock] && now >= EVENT_FROM && now < EVENT_TO;
    const uint64_t back = wrong && now % SCENE_TENTH_NS < SCENE_TENTH_NS / 2 ? PERIOD_NS : 0;
    return !qos || tokenpool_client_take(&p->engine, now - back, 1) == QOS_OK;
}

static void look(struct process *p)
{
    struct world_request from;
    if (is_away(p)) {
        while (p->tenant == CACHE && p->waiting.count) { /* what it did not get is asked anew when it is filled again */
            (void)get(&p->waiting);
            world_client_done(&p->wants, now);
        }
    } else {
        while (p->waiting.count < QUEUE && world_client_next(&p->wants, now, &from))
            put(&p->waiting, now), p->wanted++;
        while (p->waiting.count && p->at_memory.count < QUEUE && may(p))
            put(&p->at_memory, get(&p->waiting));
    }
    p->satisfied += p->waiting.count == 0 || is_away(p);
}

/* ---- the memory ---------------------------------------------------------------------------------------------------- */

static void serve(struct scene_result *result)
{
    uint32_t idle = 0;
    for (credit += SERVED * STEP_NS / (double)PERIOD_NS; credit >= 1 && idle < processes;) {
        struct process *p = &process[turn++ % processes];
        uint64_t came_ns;
        if (p->at_memory.count == 0) {
            idle++;
            continue;
        }
        idle = 0;
        credit -= 1;
        came_ns = get(&p->at_memory);
        if (qos)
            tokenpool_client_complete(&p->engine, 1);
        p->done++;
        scene_ended(result, p->tenant, now, 1, 1, now - came_ns, false);
        world_client_done(&p->wants, now);
    }
    if (credit > 1)
        credit = 1; /* idle time is not kept */
}

/* At the end of a tenth, five periods: who always waited, or whose I/Os are more than a period late, got its reservation,
 * and nobody more than its limit. A client that starts anew may lose an eighth of its reservation by it; one that slept
 * gets it in its second period again. */
static void judge(struct scene_result *result)
{
    const bool takeover = set[SET_monitor] && now > EVENT_FROM && now <= EVENT_FROM + SCENE_TENTH_NS;
    uint32_t i;
    for (i = 0; i < processes; i++) {
        struct process *p = &process[i];
        const bool restarts = i == READER && set[SET_restart] && now > EVENT_FROM && now <= EVENT_TO;
        const bool wakes = i == READER && set[SET_sleep] && now > EVENT_FROM && now <= AWAKE_NS + SCENE_TENTH_NS;
        const double least = (double)p->reservation * (restarts ? 5 - 1.0 / 8 : 5) * 0.99;
        const bool late = p->satisfied == 0 || p->done + p->reservation < p->wanted;
        if (late && !wakes && !takeover && (double)p->done < least)
            scene_missed(result, p->tenant, now - 1, SCENE_RATE_MISSED);
        if (p->limit && p->done > 6 * p->limit)
            scene_missed(result, p->tenant, now - 1, SCENE_LIMIT_BROKEN);
        p->satisfied = p->done = 0;
        p->wanted = p->waiting.count + p->at_memory.count;
    }
}

static void step(struct scene_result *result)
{
    uint32_t i;
    for (i = 2; i < processes && now == EVENT_FROM && set[SET_flood]; i++)
        process[i].wants.ready += 1000;
    if (!set[SET_monitor] || now < EVENT_FROM)
        tokenpool_monitor_run(&monitor[1], now); /* it came last, so it has the storage */
    tokenpool_monitor_run(&monitor[0], now);     /* a standby: it takes over if the other is not heard */
    restart();
    for (i = 0; i < processes; i++) /* whose clock ticks first changes */
        look(&process[(now / STEP_NS + i) % processes]);
    serve(result);
    if (now % SCENE_TENTH_NS == 0 && now > 0)
        judge(result);
}

static void run(const int32_t *setting, struct scene_result *result)
{
    uint32_t i;
    set = setting;
    qos = set[SET_qos];
    processes = 2 + (uint32_t)set[SET_scanner_processes];
    now = turn = 0;
    credit = 0;
    start(result);
    for (; now < SCENE_END_NS; now += STEP_NS)
        step(result);
    for (i = 0; i < processes; i++)
        world_client_free(&process[i].wants);
}

const struct scene scene_tokenpool = {"tokenpool", settings, sizeof settings / sizeof *settings, run};
