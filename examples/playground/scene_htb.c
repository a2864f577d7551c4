/* scene_htb.c - a database beside a backup: htb.h on one device                        SPDX-License-Identifier: MIT
 *
 * A token is a byte; the device does 100 MB/s, of which 70 may be reserved. */
#include "scene.h"
#include "htb.h"
#include "../world/clients.h"
#include "../world/devices.h"

/* name, least, most, preset. Rates are MB/s, latencies ms; a limit or latency of 0 is none. */
#define SETTINGS(X)                                                                                                    \
    X(seed, 1, 9999, 4)                                                                                                \
    X(qos, 0, 1, 1)                                                                                                    \
    X(device, 0, 5, 0)                                                                                                 \
    X(database_rate, 0, 100, 50)                                                                                       \
    X(database_limit, 0, 100, 0)                                                                                       \
    X(database_weight, 1, 10, 1)                                                                                       \
    X(database_latency, 0, 50, 10)                                                                                     \
    X(database_outstanding, 1, 64, 32)                                                                                 \
    X(backup_rate, 0, 100, 0)                                                                                          \
    X(backup_limit, 0, 100, 0)                                                                                         \
    X(backup_weight, 1, 10, 1)                                                                                         \
    X(backup_does, 0, 5, 0)                                                                                            \
    X(web_rate, 0, 100, 15)                                                                                            \
    X(web_limit, 0, 100, 0)                                                                                            \
    X(web_weight, 1, 10, 2)                                                                                            \
    X(web_latency, 0, 50, 20)                                                                                          \
    X(web_demand, 0, 100, 15)                                                                                          \
    X(flood, 0, 1, 0)                                                                                                  \
    X(single, 0, 1, 0)                                                                                                 \
    X(stall, 0, 1, 0)                                                                                                  \
    X(restart, 0, 1, 0)

enum { SETTINGS(SCENE_ENUM) };
static const struct scene_setting settings[] = {SETTINGS(SCENE_ROW)};

enum { DATABASE = 0, BACKUP = 1, WEB = 2 };
#define MS SCENE_MS
#define MB 1e6
#define NS_PER_BYTE 10          /* 100 MB/s */
#define ADMITTED 70000000       /* bytes/s that may be reserved: what the device does even with few requests at it */
#define WITHOUT_DEPTH 64        /* without QoS: requests at the device, first come, first served */
#define REQUESTS 8192u          /* all that can be outstanding */
#define BURST_NS (10 * MS)      /* of a class: the default of htb.h */
#define BACKUP_FROM (1000 * MS) /* the backup begins */
#define EVENT_FROM (2000 * MS)  /* a flood, or one request at a time: from here */
#define EVENT_TO (4000 * MS)    /* to here */
#define STALL_FROM (3200 * MS)  /* the device stands still */
#define STALL_NS (400 * MS)     /* for so long */
#define RESTART_AT (3000 * MS)  /* the server is started again */
#define SMALL UINT64_C(16384)   /* bytes of a request of the database */
#define MIDDLE UINT64_C(32768)  /* of the web server */
#define LARGE UINT64_C(262144)  /* of the backup */
#define NEVER_LATE UINT64_C(1000000000000)

static const struct world_device_config devices[] = {
    {.channels = 8, .spread = WORLD_THIRTY},                                                  /* SSD */
    {.channels = 16, .hashed = true, .spread = WORLD_THIRTY},                                 /* queues by address */
    {.channels = 1},                                                                          /* one at a time */
    {.channels = 8, .spread = WORLD_LOGNORMAL},                                               /* network volume */
    {.channels = 8, .spread = WORLD_THIRTY, .pause_every_ns = 500 * MS, .pause_ns = 20 * MS}, /* pauses */
    {.channels = 8, .spread = WORLD_THIRTY, .step_ns = EVENT_FROM, .step_capacity = 600},     /* wears */
};

enum does { STEADY = 0, BURSTS, FLOOD, ONE_AT_A_TIME, SMALL_REQUESTS, UNDERSTATES };

struct request {
    struct htb_request node; /* first, so that the pointers convert */
    uint64_t bytes, arrived_ns, due_ns;
    struct request *next; /* without QoS: in the queue */
    uint32_t tenant;
    bool lost; /* the server was started again while it was at the device */
};

struct tenant {
    struct world_client client;
    double rate, limit;  /* bytes per ns; 0: none */
    uint64_t latency_ns; /* 0: none */
    uint64_t outstanding;
    uint64_t waiting;             /* requests that are not at the device yet */
    double turn_ns;               /* where its next request would begin on a device of its own */
    double behind, above;         /* bytes below its reservation, above its limit */
    uint64_t behind_ns, above_ns; /* as of then */
};

static struct tenant tenant[SCENE_TENANTS];
static struct request request[REQUESTS];
static struct request *unused, *first, *last; /* not in use; without QoS: the queue */
static struct htb tree;
static unsigned char memory[1 << 16] __attribute__((aligned(64)));
static struct world_device device;
static const int32_t *set;
static uint64_t at_device, now;
static bool qos;

static double per_ns(int32_t mb_per_s)
{
    return mb_per_s * MB / 1e9;
}

/* ---- the tenants -------------------------------------------------------------------------------------------------- */

static struct world_client_config backup_config(enum does does)
{
    struct world_client_config c = {.outstanding = 32, .cost_min = LARGE};
    switch (does) {
    case STEADY: break;
    case BURSTS:
        c.arrivals = WORLD_BURSTS;
        c.outstanding = 96;
        c.interval_ns = 500 * MS;
        break;
    case FLOOD: c.outstanding = 1000; break;
    case ONE_AT_A_TIME: c.outstanding = 1; break;
    case SMALL_REQUESTS:
        c.outstanding = 256;
        c.cost_min = 4096;
        break;
    case UNDERSTATES: c.estimate = 100; break;
    }
    return c;
}

static void start_client(uint32_t i, const struct world_client_config *config)
{
    world_client_init(&tenant[i].client, config, (uint64_t)set[SET_seed], i);
}

static void start_tenants(void)
{
    static const unsigned rate[] = {SET_database_rate, SET_backup_rate, SET_web_rate};
    static const unsigned limit[] = {SET_database_limit, SET_backup_limit, SET_web_limit};
    struct world_client_config web = {.arrivals = WORLD_POISSON, .cost_min = MIDDLE, .backlog_max = 1000};
    struct world_client_config database = {.cost_min = SMALL, .outstanding = (uint32_t)set[SET_database_outstanding]};
    struct world_client_config backup = backup_config((enum does)set[SET_backup_does]);
    uint32_t i;
    memset(tenant, 0, sizeof tenant);
    for (i = 0; i < SCENE_TENANTS; i++) {
        tenant[i].rate = per_ns(set[rate[i]]);
        tenant[i].limit = per_ns(set[limit[i]]);
    }
    tenant[DATABASE].latency_ns = (uint64_t)set[SET_database_latency] * MS;
    tenant[WEB].latency_ns = (uint64_t)set[SET_web_latency] * MS;
    web.interval_ns = set[SET_web_demand] ? (uint64_t)(MIDDLE / per_ns(set[SET_web_demand])) : 2 * SCENE_END_NS;
    backup.start_ns = BACKUP_FROM;
    start_client(DATABASE, &database);
    start_client(BACKUP, &backup);
    start_client(WEB, &web);
}

/* A flood: the backup keeps 1,000 more requests outstanding. */
static void flood(uint64_t at_ns)
{
    struct world_client *backup = &tenant[BACKUP].client;
    if (at_ns == EVENT_FROM && set[SET_flood]) {
        backup->ready += backup->config.arrivals == WORLD_CLOSED ? 1000 : 0;
        backup->due += backup->config.arrivals == WORLD_CLOSED ? 0 : 1000;
        backup->ready_ns = at_ns;
    }
}

/* For two seconds the database sends one request at a time: the others stay away. */
static bool is_single(uint32_t i)
{
    return i == DATABASE && set[SET_single] && now >= EVENT_FROM && now < EVENT_TO;
}

static bool stays_away(uint32_t i)
{
    return is_single(i) && tenant[i].outstanding > 0;
}

/* ---- the scheduler ------------------------------------------------------------------------------------------------- */

static void start_scheduler(struct scene_result *result)
{
    static const unsigned weight[] = {SET_database_weight, SET_backup_weight, SET_web_weight};
    struct htb_config config = {.rate_per_s = {ADMITTED},
                                .classes = 8,
                                .order = HTB_FIFO,
                                .start_ns = now,
                                .dispatch_max = 1024,
                                .device_max = 1024};
    uint32_t i;
    if (htb_init(&tree, memory, sizeof memory, &config) != QOS_OK)
        __builtin_trap();
    for (i = 0; i < SCENE_TENANTS; i++) {
        struct htb_class terms = {.weight = (uint32_t)set[weight[i]],
                                  .rate_per_s = {(uint64_t)(tenant[i].rate * 1e9 + 0.5)},
                                  .limit_per_s = {(uint64_t)(tenant[i].limit * 1e9 + 0.5)},
                                  .latency_ns = tenant[i].latency_ns};
        struct scene_total *total = &result->total[i];
        if (tenant[i].rate <= 0)
            terms.latency_ns = 0;
        total->refused = htb_reserve(&tree, now, i + 1, &terms, &total->fits_per_s);
    }
}

static void submit(struct request *r)
{
    tenant[r->tenant].waiting++;
    if (qos) {
        r->node.class_id = r->tenant + 1;
        if (htb_submit(&tree, now, &r->node) != QOS_OK)
            __builtin_trap();
        return;
    }
    r->next = NULL;
    if (last)
        last->next = r;
    else
        first = r;
    last = r;
}

static struct request *dispatch(void)
{
    struct request *r;
    if (qos)
        return (struct request *)(void *)htb_dispatch(&tree, now);
    r = at_device < WITHOUT_DEPTH ? first : NULL;
    if (r) {
        first = r->next;
        last = first ? last : NULL;
    }
    return r;
}

/* The server is started again: what waited is sent again, and nobody tells the new one of what is at the device. */
static void restart(struct scene_result *result)
{
    uint32_t i;
    if (!qos)
        return;
    for (i = 0; i < REQUESTS; i++)
        request[i].lost = request[i].node.state == HTB_AT_DEVICE;
    start_scheduler(result);
    for (i = 0; i < REQUESTS; i++) {
        const bool waited = request[i].node.state == HTB_QUEUED || request[i].node.state == HTB_DISPATCHED;
        const struct htb_request again = {.tokens = {request[i].node.tokens[0]}, .offset = request[i].node.offset};
        request[i].node = again;
        if (waited) {
            tenant[request[i].tenant].waiting--;
            submit(&request[i]);
        }
    }
}

/* ---- what was promised --------------------------------------------------------------------------------------------- */

/* What the tenant may expect, bytes per ns: its reservation, or what its N outstanding requests allow: N n / T. */
static double promise(const struct tenant *t, const struct scene_total *total)
{
    const double n = is_single((uint32_t)(t - tenant)) ? 1 : (double)t->client.config.outstanding;
    const double most = t->latency_ns ? n * (double)t->client.config.cost_min / (double)t->latency_ns : 1e9;
    if (total->refused != QOS_OK)
        return 0;
    return t->client.config.arrivals == WORLD_CLOSED && most < t->rate ? most : t->rate;
}

/* Its reservation: bytes that it should have got while its requests waited, less what it got. While the device stands
 * still nothing is expected, but afterwards all is. Called before each change of `waiting` and at each grant. */
static void judge_rate(struct scene_result *result, uint32_t i, double bytes)
{
    struct tenant *t = &tenant[i];
    const struct world_client_config *c = &t->client.config;
    const double rate = promise(t, &result->total[i]), n = (double)(c->cost_min);
    /* One bucket (two bursts) and n, as htb.h says; a request at the device and its pauses. */
    const double slack = rate * (double)(2 * BURST_NS + t->latency_ns + device.config.pause_ns) + 2 * n;
    const double limited = t->limit > 0 && t->limit < rate ? t->limit : rate;
    if (t->waiting > 0 && !world_device_pauses(&device.config, t->behind_ns, now))
        t->behind += limited * (double)(now - t->behind_ns);
    t->behind -= bytes;
    if (t->behind < 0 || t->waiting == 0)
        t->behind = 0;
    if (t->behind > slack && rate > 0)
        scene_missed(result, i, now, SCENE_RATE_MISSED);
    t->behind_ns = now;
}

/* Its limit: bytes above L t in the worst window; two bursts and one request are allowed. What it understates is above. */
static void judge_limit(struct scene_result *result, uint32_t i, double bytes)
{
    struct tenant *t = &tenant[i];
    if (t->limit <= 0)
        return;
    t->above -= t->limit * (double)(now - t->above_ns);
    t->above = (t->above > 0 ? t->above : 0) + bytes;
    t->above_ns = now;
    if (t->above > t->limit * 2 * (double)BURST_NS + (double)t->client.config.cost_min + 1)
        scene_missed(result, i, now, SCENE_LIMIT_BROKEN);
}

/* When a request is due: latency_ns after its turn, as htb.h counts it: the later of its arrival and n / R after the turn
 * before it. */
static uint64_t due(struct tenant *t, const struct scene_total *total, double bytes)
{
    const double turn = t->turn_ns > (double)now ? t->turn_ns : (double)now;
    if (t->latency_ns == 0 || t->rate <= 0 || total->refused != QOS_OK)
        return now + NEVER_LATE;
    t->turn_ns = turn + bytes / t->rate;
    return (uint64_t)turn + t->latency_ns;
}

/* ---- the world ----------------------------------------------------------------------------------------------------- */

static void arrive(struct scene_result *result, uint32_t i, const struct world_request *from)
{
    struct tenant *t = &tenant[i];
    struct request *r = unused;
    const struct request fresh = {
        .tenant = i, .bytes = from->cost, .arrived_ns = now, .node = {.tokens = {from->claim}, .offset = from->offset}};
    unused = r->next;
    judge_rate(result, i, 0);
    *r = fresh;
    r->due_ns = due(t, &result->total[i], (double)r->bytes);
    t->outstanding++;
    submit(r);
}

static void send(struct scene_result *result, struct request *r)
{
    struct world_io io = {.cost_ns = r->bytes * NS_PER_BYTE, .offset = r->node.offset, .id = (uint32_t)(r - request)};
    judge_rate(result, r->tenant, (double)r->bytes);
    judge_limit(result, r->tenant, (double)r->bytes);
    tenant[r->tenant].waiting--;
    at_device++;
    world_device_submit(&device, now, &io);
}

static void complete(struct scene_result *result, struct request *r)
{
    struct tenant *t = &tenant[r->tenant];
    at_device--;
    t->outstanding--;
    if (qos && !r->lost && htb_complete(&tree, now, HTB_DONE, &r->bytes, &r->node) != QOS_OK)
        __builtin_trap();
    world_client_done(&t->client, now);
    scene_ended(result, r->tenant, now, r->bytes, 1, now - r->arrived_ns,
                now > r->due_ns && !world_device_pauses(&device.config, r->arrived_ns, now));
    r->next = unused;
    unused = r;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The next time at which anything happens. */
static uint64_t next_event(void)
{
    static const uint64_t fixed[] = {EVENT_FROM, EVENT_TO, RESTART_AT, STALL_FROM, STALL_FROM + STALL_NS};
    uint64_t next = (now / SCENE_TENTH_NS + 1) * SCENE_TENTH_NS;
    uint32_t i;
    for (i = 0; i < sizeof fixed / sizeof *fixed; i++)
        next = fixed[i] > now ? earlier(next, fixed[i]) : next;
    next = earlier(next, world_device_next_ns(&device));
    for (i = 0; i < SCENE_TENANTS && unused; i++)
        if (!stays_away(i))
            next = earlier(next, world_client_next_ns(&tenant[i].client));
    if (qos)
        next = earlier(next, htb_dispatch_next_ns(&tree, now));
    return next > now ? next : now + 1;
}

static void step(struct scene_result *result)
{
    struct request *r;
    struct world_request from;
    struct world_io io;
    uint32_t i;
    while (world_device_take(&device, now, &io))
        complete(result, &request[io.id]);
    flood(now);
    if (now == RESTART_AT && set[SET_restart])
        restart(result);
    for (i = 0; i < SCENE_TENANTS; i++)
        while (unused && !stays_away(i) && world_client_next(&tenant[i].client, now, &from))
            arrive(result, i, &from);
    while ((r = dispatch()) != NULL)
        send(result, r);
    for (i = 0; i < SCENE_TENANTS; i++)
        judge_rate(result, i, 0);
}

static void run(const int32_t *setting, struct scene_result *result)
{
    struct world_device_config config;
    uint32_t i;
    set = setting;
    qos = set[SET_qos];
    memset(request, 0, sizeof request);
    first = last = unused = NULL;
    for (i = REQUESTS; i-- > 0;) {
        request[i].next = unused;
        unused = &request[i];
    }
    now = 0;
    at_device = 0;
    config = devices[set[SET_device]];
    if (set[SET_stall]) { /* the whole device, once */
        config.pause_every_ns = STALL_FROM + STALL_NS;
        config.pause_ns = STALL_NS;
        config.pause_channel = false;
    }
    world_device_init(&device, &config, (uint64_t)set[SET_seed]);
    start_tenants();
    start_scheduler(result);
    for (; now < SCENE_END_NS; now = next_event())
        step(result);
    for (i = 0; i < SCENE_TENANTS; i++) {
        result->total[i].promised_per_s = (uint64_t)(promise(&tenant[i], &result->total[i]) * 1e9 + 0.5);
        world_client_free(&tenant[i].client);
    }
    world_device_free(&device);
}

const struct scene scene_htb = {"htb", settings, sizeof settings / sizeof *settings, run};
