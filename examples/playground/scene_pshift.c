/* scene_pshift.c - tenants whose data is on many servers: pshift.h                     SPDX-License-Identifier: MIT
 *
 * Each server does 1,000 operations a second. One contract holds over all servers: a shop whose customers want what lies
 * on a few of them, a mail system with a limit on half of them, and a batch job that wants everything everywhere. A controller moves
 * tokens ten times in each period of one second. Without it each server gets the same part of each contract. */
#include "scene.h"
#include "pshift.h"
#include "../world/world.h"

/* Rates are operations/s over all servers; 0: none. */
#define SETTINGS(X)                                                                                                    \
    X(seed, 1, 9999, 7)                                                                                                \
    X(qos, 0, 1, 1)                                                                                                    \
    X(servers, 4, 64, 64)                                                                                              \
    X(shop_reservation, 0, 40000, 8000)                                                                                \
    X(shop_demand, 0, 40000, 8000)                                                                                     \
    X(shop_servers, 1, 64, 10)                                                                                         \
    X(batch_demand, 0, 80000, 60000)                                                                                   \
    X(batch_limit, 0, 80000, 0)                                                                                        \
    X(mail_reservation, 0, 40000, 5000)                                                                                \
    X(mail_limit, 0, 40000, 10000)                                                                                     \
    X(mail_demand, 0, 80000, 20000)                                                                                    \
    X(mail_servers, 1, 64, 32)                                                                                         \
    X(moves, 0, 1, 0)                                                                                                  \
    X(lost, 0, 1, 0)                                                                                                   \
    X(controller, 0, 1, 0)                                                                                             \
    X(restart, 0, 1, 0)

enum { SETTINGS(SCENE_ENUM) };
static const struct scene_setting settings[] = {SETTINGS(SCENE_ROW)};

enum { SHOP = 0, BATCH = 1, MAIL = 2 };
#define SERVERS 64u
#define TICK_NS SCENE_MS           /* a server does one operation in it */
#define INTERVAL_NS SCENE_TENTH_NS /* reports and grants */
#define PERIOD_NS (1000 * SCENE_MS)
#define WAITING 512u                 /* operations of a tenant that wait at a server at most: others are dropped */
#define HOT_PERCENT 80               /* of the shop's operations go to its shop_servers */
#define EVENT_FROM (2000 * SCENE_MS) /* what is tried to break it begins */
#define EVENT_TO (4000 * SCENE_MS)   /* and ends */
#define RESTART_NS (3000 * SCENE_MS) /* each fourth server starts anew */
#define ROUNDS 3u                    /* of planning, while tokens are withheld */

struct queue {
    uint16_t came_ms[WAITING];
    uint32_t first, count;
};

struct server {
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    unsigned char scheduler_memory[2048] __attribute__((aligned(64)));
    unsigned char agent_memory[4096] __attribute__((aligned(64)));
    struct queue queue[SCENE_TENANTS];
};

static struct server server[SERVERS];
static struct pshift_controller controller;
static unsigned char controller_memory[1 << 17] __attribute__((aligned(64)));
static uint64_t reservation[SCENE_TENANTS], limit[SCENE_TENANTS]; /* per period */
static uint64_t served[SCENE_TENANTS], arrived[SCENE_TENANTS];    /* in this period */
static bool impossible[SCENE_TENANTS];                            /* by the controller's proof, in this period */
static uint64_t possible[SCENE_TENANTS]; /* what the proof at the period's begin says can be met of a reservation */
static struct world_rng arrivals, losses;
static const int32_t *set;
static uint64_t now;
static uint32_t servers, hot_first;
static bool qos;

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        __builtin_trap();
}

static bool broken(unsigned what)
{
    return set[what] && now >= EVENT_FROM && now < EVENT_TO;
}

/* ---- servers and controller ---------------------------------------------------------------------------------------- */

static void start_server(uint32_t s, uint64_t boot)
{
    const struct pshift_scheduler_config queues = {.queues = SCENE_TENANTS};
    const struct pshift_agent_config config = {
        .scheduler = &server[s].scheduler, .server = s, .boot = {boot, s + 1}, .period_ns = PERIOD_NS};
    uint32_t i, q;
    must(pshift_scheduler_init(&server[s].scheduler, server[s].scheduler_memory, sizeof server[s].scheduler_memory,
                               &queues));
    must(pshift_agent_init(&server[s].agent, server[s].agent_memory, sizeof server[s].agent_memory, &config));
    for (i = 0; i < SCENE_TENANTS; i++) {
        must(pshift_agent_open(&server[s].agent, i, &q)); /* tenant i has queue i */
        if (server[s].queue[i].count)
            must(pshift_scheduler_arrive(&server[s].scheduler, i, server[s].queue[i].count));
    }
}

static void start_controller(uint64_t nonce)
{
    const struct pshift_controller_config config = {.servers = servers,
                                                    .buckets = SCENE_TENANTS,
                                                    .records = SERVERS * SCENE_TENANTS,
                                                    .nonce = {0, nonce},
                                                    .period_ns = PERIOD_NS};
    uint32_t i;
    must(pshift_controller_init(&controller, controller_memory, sizeof controller_memory, &config));
    for (i = 0; i < SCENE_TENANTS; i++)
        must(pshift_controller_change(&controller, i, reservation[i], limit[i]));
}

static bool arrives(void)
{
    return !broken(SET_lost) || world_chance(&losses, 500);
}

static void report(uint32_t s)
{
    struct pshift_report_entry entry[SCENE_TENANTS];
    struct pshift_message m;
    while (pshift_agent_report(&server[s].agent, &m, entry, SCENE_TENANTS) == QOS_OK) {
        m.capacity = (PERIOD_NS - now % PERIOD_NS) / TICK_NS;
        if (arrives()) /* the first one of a start only makes the server known */
            (void)!pshift_controller_report(&controller, now, &m, entry);
    }
}

/* Whose reservation cannot be met by anybody: the proof is a cut. */
static void certify(void)
{
    struct pshift_problem problem;
    struct pshift_solution solution;
    struct pshift_bucket_state info;
    uint32_t i;
    if (pshift_controller_certificate(&controller, &problem, &solution) != QOS_OK)
        return;
    for (i = 0; i < SCENE_TENANTS; i++)
        if (pshift_controller_bucket_info(&controller, i, &info) == QOS_OK && info.row < problem.buckets) {
            impossible[i] |= solution.shortfall[info.row] > 0;
            if (now % PERIOD_NS == 0)
                possible[i] = reservation[i] - solution.shortfall[info.row];
        }
}

/* An interval ends: reports, and rounds until nothing is withheld. */
static void exchange(void)
{
    struct pshift_grant_entry entry[SCENE_TENANTS];
    struct pshift_controller_state info;
    struct pshift_message m;
    uint32_t s, round;
    if (broken(SET_controller)) {
        for (s = 0; s < servers; s++)
            pshift_agent_measure(&server[s].agent, now);
        return;
    }
    if (now == EVENT_TO && set[SET_controller])
        start_controller(2);
    if (now % PERIOD_NS == 0)
        must(pshift_controller_begin(&controller, now, now / PERIOD_NS + 1));
    for (s = 0; s < servers; s++) {
        pshift_agent_measure(&server[s].agent, now);
        report(s);
    }
    for (round = 0; round < ROUNDS; round++) {
        must(pshift_controller_plan(&controller, NULL));
        for (s = 0; s < servers; s++)
            while (pshift_controller_grant(&controller, now, s, &m, entry, SCENE_TENANTS) == QOS_OK)
                if (arrives() && pshift_agent_install(&server[s].agent, now, &m, entry) == QOS_OK)
                    report(s);
        (void)pshift_controller_info(&controller, &info);
        if (info.withheld == 0 && info.awaited == 0)
            break;
    }
    certify();
}

/* Without a controller: the same part of each contract at each server. */
static void split(void)
{
    uint32_t s, i;
    for (s = 0; s < servers; s++)
        for (i = 0; i < SCENE_TENANTS; i++) {
            const uint64_t r = (reservation[i] * (s + 1)) / servers - (reservation[i] * s) / servers;
            const uint64_t l = (limit[i] * (s + 1)) / servers - (limit[i] * s) / servers;
            must(pshift_scheduler_set_tokens(&server[s].scheduler, i, r, limit[i] ? l - r : PERIOD_NS / TICK_NS));
        }
}

/* ---- what was promised --------------------------------------------------------------------------------------------- */

/* At the end of a period. The reservation: from the second quiet period on, if no certificate shows that it is impossible,
 * of what came before the last interval. */
static void judge(struct scene_result *result)
{
    const bool quiet = now >= 2 * PERIOD_NS && !((set[SET_lost] || set[SET_controller] || set[SET_restart]) &&
                                                 now > EVENT_FROM && now <= EVENT_TO + PERIOD_NS);
    uint32_t i, k;
    for (i = 0; i < SCENE_TENANTS; i++) {
        const uint64_t wanted = arrived[i] * 9 / 10 < reservation[i] ? arrived[i] * 9 / 10 : reservation[i];
        for (k = 1; k <= 10; k++) {
            if (quiet && !impossible[i] && served[i] < wanted * 98 / 100)
                scene_missed(result, i, now - k * SCENE_TENTH_NS, SCENE_RATE_MISSED);
            if (limit[i] && served[i] > limit[i])
                scene_missed(result, i, now - k * SCENE_TENTH_NS, SCENE_LIMIT_BROKEN);
        }
        served[i] = arrived[i] = 0;
        impossible[i] = false;
    }
}

/* ---- the world ----------------------------------------------------------------------------------------------------- */

/* Operations/s of tenant i at server s. */
static uint64_t rate(uint32_t i, uint32_t s)
{
    const uint64_t hot = (uint64_t)set[SET_shop_servers] < servers ? (uint64_t)set[SET_shop_servers] : servers;
    const uint64_t mail = (uint64_t)set[SET_mail_servers] < servers ? (uint64_t)set[SET_mail_servers] : servers;
    const uint64_t all = (uint64_t)set[SET_shop_demand];
    switch (i) {
    case SHOP:
        return ((s + servers - hot_first) % servers < hot ? all * HOT_PERCENT / 100 / hot : 0) +
               all * (100 - HOT_PERCENT) / 100 / servers;
    case BATCH: return (uint64_t)set[SET_batch_demand] / servers;
    default: return s < mail ? (uint64_t)set[SET_mail_demand] / mail : 0;
    }
}

static void arrive(uint32_t s, uint32_t i)
{
    struct queue *q = &server[s].queue[i];
    uint64_t n = rate(i, s), k;
    n = n / 1000 + world_chance(&arrivals, (uint32_t)(n % 1000));
    arrived[i] += n;
    for (k = n; k > 0 && q->count < WAITING; k--) {
        q->came_ms[(q->first + q->count++) % WAITING] = (uint16_t)(now / SCENE_MS);
        must(pshift_scheduler_arrive(&server[s].scheduler, i, 1));
    }
}

static void serve(struct scene_result *result, uint32_t s)
{
    struct pshift_pick pick;
    struct queue *q;
    if (pshift_scheduler_pick(&server[s].scheduler, now, &pick) != QOS_OK)
        return;
    q = &server[s].queue[pick.queue];
    q->count--;
    served[pick.queue]++;
    scene_ended(result, pick.queue, now, 1, 1, now - q->came_ms[q->first++ % WAITING] * SCENE_MS, false);
}

static void step(struct scene_result *result)
{
    uint32_t s, i;
    if (now % PERIOD_NS == 0 && now > 0)
        judge(result);
    if (now % PERIOD_NS == PERIOD_NS / 2 && set[SET_moves])
        hot_first = (hot_first + (uint32_t)set[SET_shop_servers]) % servers;
    for (s = 0; s < servers; s += 4)
        if (qos && now == RESTART_NS && set[SET_restart])
            start_server(s, 2);
    if (qos && now % INTERVAL_NS == 0)
        exchange();
    if (!qos && now % PERIOD_NS == 0)
        split();
    for (s = 0; s < servers; s++) {
        for (i = 0; i < SCENE_TENANTS; i++)
            arrive(s, i);
        serve(result, s);
    }
}

static void run(const int32_t *setting, struct scene_result *result)
{
    static const unsigned reserved[] = {SET_shop_reservation, SET_seed, SET_mail_reservation};
    static const unsigned limited[] = {SET_seed, SET_batch_limit, SET_mail_limit};
    uint32_t i, s;
    set = setting;
    qos = set[SET_qos];
    servers = (uint32_t)set[SET_servers];
    now = hot_first = 0;
    memset(server, 0, sizeof server);
    memset(served, 0, sizeof served);
    memset(arrived, 0, sizeof arrived);
    memset(impossible, 0, sizeof impossible);
    world_rng_init(&arrivals, (uint64_t)set[SET_seed], 1);
    world_rng_init(&losses, (uint64_t)set[SET_seed], 2);
    for (i = 0; i < SCENE_TENANTS; i++) {
        reservation[i] = i == BATCH ? 0 : (uint64_t)set[reserved[i]];
        limit[i] = i == SHOP ? 0 : (uint64_t)set[limited[i]];
        limit[i] = limit[i] && limit[i] < reservation[i] ? reservation[i] : limit[i];
        result->total[i].promised_per_s = possible[i] = reservation[i];
    }
    for (s = 0; s < servers; s++)
        start_server(s, 1);
    start_controller(1);
    for (; now <= SCENE_END_NS; now += TICK_NS)
        step(result);
    for (i = 0; i < SCENE_TENANTS; i++)
        result->total[i].fits_per_s = possible[i] < reservation[i] ? possible[i] : 0;
}

const struct scene scene_pshift = {"pshift", settings, sizeof settings / sizeof *settings, run};
