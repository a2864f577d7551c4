/* scene_tags.c - a thousand clients of one server: tags.h                              SPDX-License-Identifier: MIT
 *
 * One client that pays for more (gold), one that sends all it has at once (greedy), and a crowd. All keep requests
 * waiting, so shares follow the weights. The device does 20,000 requests/s of cost 1; work is in requests. */
#include "scene.h"
#include "tags.h"
#include "../world/clients.h"
#include "../world/devices.h"

/* Rates are requests/s; 0: none. gold_time: percent of the usual time that its requests take. */
#define SETTINGS(X)                                                                                                    \
    X(seed, 1, 9999, 7)                                                                                                \
    X(qos, 0, 1, 1)                                                                                                    \
    X(device, 0, 4, 0)                                                                                                 \
    X(reward, 0, 1, 0)                                                                                                 \
    X(gold_weight, 1, 1000, 200)                                                                                       \
    X(gold_reservation, 0, 8000, 4000)                                                                                 \
    X(gold_limit, 0, 8000, 0)                                                                                          \
    X(gold_time, 25, 400, 100)                                                                                         \
    X(greedy_weight, 1, 1000, 1)                                                                                       \
    X(greedy_limit, 0, 8000, 0)                                                                                        \
    X(greedy_outstanding, 1, 4000, 2000)                                                                               \
    X(crowd_clients, 1, 1000, 998)                                                                                     \
    X(crowd_weight, 1, 100, 1)                                                                                         \
    X(crowd_outstanding, 1, 4, 1)                                                                                      \
    X(flood, 0, 1, 0)                                                                                                  \
    X(away, 0, 1, 0)                                                                                                   \
    X(cancel, 0, 1, 0)                                                                                                 \
    X(stall, 0, 1, 0)

enum { SETTINGS(SCENE_ENUM) };
static const struct scene_setting settings[] = {SETTINGS(SCENE_ROW)};

enum { GOLD = 0, GREEDY = 1, CROWD = 2 };
#define CLIENTS 1002u
#define REQUESTS 16384u
#define AT_DEVICE 32u
#define COST_NS 50000u               /* of the whole device: 20,000 requests/s */
#define ADMITTED 16000u              /* requests/s that may be reserved */
#define EVENT_FROM (2000 * SCENE_MS) /* a flood begins; gold goes away */
#define EVENT_TO (4000 * SCENE_MS)   /* gold comes back */
#define CANCEL_EVERY (10 * SCENE_MS) /* between them greedy takes back all that waits, and sends it again */
#define STALL_FROM (3200 * SCENE_MS)
#define STALL_NS (400 * SCENE_MS)
#define LIMIT_BURST_NS (100 * SCENE_MS) /* the default of tags.h */

static const struct world_device_config devices[] = {
    {.channels = 8, .spread = WORLD_THIRTY},                                                              /* SSD */
    {.channels = 1},                                                                                      /* serial */
    {.channels = 8, .spread = WORLD_LOGNORMAL},                                                           /* volume */
    {.channels = 8, .spread = WORLD_THIRTY, .pause_every_ns = 500 * SCENE_MS, .pause_ns = 20 * SCENE_MS}, /* pauses */
    {.channels = 8, .order = WORLD_ANY, .spread = WORLD_THIRTY}, /* any order */
};

struct request {
    struct tags_grant grant;
    uint64_t arrived_ns;
    struct request *next; /* in its client's queue, without QoS in the one of all, or of the unused */
    uint32_t client;
};

struct queue {
    struct request *first, *last;
};

struct client {
    struct world_client world;
    struct queue queue;
    uint64_t waiting; /* requests not at the device */
    double weight;
    uint64_t granted, by_weight; /* since the window of the judge began */
    bool always;                 /* it has waited all that time */
};

static struct client client[CLIENTS];
static struct request request[REQUESTS], *unused;
static struct queue all;
static struct tags tags;
static unsigned char memory[1 << 20] __attribute__((aligned(64)));
static struct world_device device;
static const int32_t *set;
static uint64_t at_device, now, gold_behind_ns, above_ns[2];
static double gold_behind, above[2];
static uint32_t clients;
static bool qos;

static uint32_t tenant_of(uint32_t id)
{
    return id < CROWD ? id : CROWD;
}

static void push(struct queue *q, struct request *r)
{
    r->next = NULL;
    if (q->last)
        q->last->next = r;
    else
        q->first = r;
    q->last = r;
}

static struct request *pop(struct queue *q)
{
    struct request *r = q->first;
    if (r && (q->first = r->next) == NULL)
        q->last = NULL;
    return r;
}

/* ---- begin --------------------------------------------------------------------------------------------------------- */

static void start(struct scene_result *result)
{
    const struct tags_config config = {.clients = clients,
                                       .at_device_max = AT_DEVICE,
                                       .mode = set[SET_reward] ? TAGS_REWARD : TAGS_PS,
                                       .attribute = set[SET_reward],
                                       .channels = set[SET_reward] ? devices[set[SET_device]].channels : 0,
                                       .capacity_per_s = ADMITTED,
                                       .service_ns = COST_NS};
    uint32_t i;
    if (tags_memsize(&config) > sizeof memory || tags_init(&tags, memory, sizeof memory, &config) != QOS_OK)
        __builtin_trap();
    for (i = 0; i < clients; i++) {
        static const unsigned weight[] = {SET_gold_weight, SET_greedy_weight, SET_crowd_weight};
        struct world_client_config wants = {.outstanding = (uint32_t)set[SET_crowd_outstanding]};
        struct tags_client terms = {.weight = (uint64_t)set[weight[tenant_of(i)]]};
        struct tags_state info;
        enum qos_status status;
        if (i == GOLD) {
            terms.reservation_per_s = (uint64_t)set[SET_gold_reservation];
            terms.limit_per_s = (uint64_t)set[SET_gold_limit];
            wants.outstanding = 64;
            if (set[SET_away]) {
                wants.away_ns = EVENT_FROM;
                wants.back_ns = EVENT_TO;
            }
        }
        if (i == GREEDY) {
            terms.limit_per_s = (uint64_t)set[SET_greedy_limit];
            wants.outstanding = (uint32_t)set[SET_greedy_outstanding];
        }
        if (terms.limit_per_s && terms.limit_per_s < terms.reservation_per_s)
            terms.limit_per_s = terms.reservation_per_s;
        status = tags_add(&tags, 0, i, &terms);
        if (status == QOS_EADMISSION) { /* refused: it goes on without a reservation */
            result->total[i].refused = status;
            if (tags_info(&tags, QOS_NONE, &info) == QOS_OK)
                result->total[i].fits_per_s = info.admissible_per_s;
            terms.reservation_per_s = 0;
            status = tags_add(&tags, 0, i, &terms);
        }
        if (status != QOS_OK)
            __builtin_trap();
        if (i == GOLD && !result->total[i].refused)
            result->total[i].promised_per_s = terms.reservation_per_s;
        client[i].weight = (double)terms.weight;
        world_client_init(&client[i].world, &wants, (uint64_t)set[SET_seed], i);
    }
}

/* ---- what was promised --------------------------------------------------------------------------------------------- */

/* Gold's reservation: what is beyond two requests and the time of those at the device is missed. Called before each
 * change of its queue. */
static void judge_gold(struct scene_result *result, double n)
{
    const double per_ns = (double)result->total[GOLD].promised_per_s / 1e9;
    const bool pauses = world_device_pauses(&device.config, gold_behind_ns, now);
    if (client[GOLD].waiting > 0 && !pauses)
        gold_behind += per_ns * (double)(now - gold_behind_ns);
    gold_behind -= n;
    if (gold_behind < 0 || client[GOLD].waiting == 0)
        gold_behind = 0;
    gold_behind_ns = now;
    if (gold_behind > 2 + per_ns * 2 * (AT_DEVICE * COST_NS + (double)device.config.pause_ns))
        scene_missed(result, GOLD, now, SCENE_RATE_MISSED);
}

static void judge_limit(struct scene_result *result, uint32_t i)
{
    const int32_t limit = i == GOLD ? set[SET_gold_limit] : set[SET_greedy_limit];
    const double per_ns =
        (double)(i == GOLD && limit && limit < set[SET_gold_reservation] ? set[SET_gold_reservation] : limit) / 1e9;
    if (limit == 0)
        return;
    above[i] -= per_ns * (double)(now - above_ns[i]);
    above[i] = (above[i] > 0 ? above[i] : 0) + 1;
    above_ns[i] = now;
    if (above[i] > per_ns * (double)LIMIT_BURST_NS + 1.0001)
        scene_missed(result, i, now, SCENE_LIMIT_BROKEN);
}

/* At the end of a tenth: of those that waited all the time, nobody has got, for its weight, less than another by more
 * than the first page of tags.h says. By reward shares are of time, in which a request here is not one. */
static void judge_shares(struct scene_result *result)
{
    double most = 0, others = 0; /* weights but gold's */
    uint32_t i, of = 0;
    for (i = 0; i < clients; i++)
        others += i == GOLD ? 0 : client[i].weight;
    for (i = 0; i < clients; i++) /* what reservations gave does not count against the others */
        if ((double)client[i].by_weight / client[i].weight > most) {
            most = (double)client[i].by_weight / client[i].weight;
            of = i;
        }
    for (i = 0; i < clients; i++) {
        const struct client *f = &client[i];
        const bool leads = i == GOLD && result->total[GOLD].promised_per_s > 0;
        const double ahead = leads ? TAGS_DEFAULT_LEAD_REQUESTS / f->weight + (clients - 1) / others : 1 / f->weight;
        if (f->always && !set[SET_reward] && (i > GREEDY || !set[i == GOLD ? SET_gold_limit : SET_greedy_limit]) &&
            most > (double)f->granted / f->weight + ahead + 1 / client[of].weight + 1e-9)
            scene_missed(result, tenant_of(i), now - 1, SCENE_RATE_MISSED);
    }
    for (i = 0; i < clients; i++) {
        client[i].granted = client[i].by_weight = 0;
        client[i].always = client[i].waiting > 0;
    }
}

/* ---- the world ----------------------------------------------------------------------------------------------------- */

static void arrive(struct scene_result *result, uint32_t i)
{
    const struct request fresh = {.client = i, .arrived_ns = now};
    struct request *r = unused;
    unused = r->next;
    if (i == GOLD)
        judge_gold(result, 0);
    *r = fresh;
    client[i].waiting++;
    push(qos ? &client[i].queue : &all, r);
    if (qos && tags_arrive(&tags, now, i, 1, 1) != QOS_OK)
        __builtin_trap();
}

static void send(struct scene_result *result, struct request *r)
{
    struct client *c = &client[r->client];
    const uint64_t percent = r->client == GOLD ? (uint64_t)set[SET_gold_time] : 100;
    struct world_io io = {.cost_ns = COST_NS * percent / 100, .id = (uint32_t)(r - request)};
    io.offset = world_rand(&c->world.rng) % WORLD_OFFSETS;
    if (r->client == GOLD)
        judge_gold(result, 1);
    if (r->client <= GREEDY)
        judge_limit(result, r->client);
    c->waiting--;
    c->always = c->always && c->waiting > 0;
    c->granted++;
    c->by_weight += r->grant.phase != TAGS_PHASE_RESERVATION;
    at_device++;
    world_device_submit(&device, now, &io);
}

static void dispatch(struct scene_result *result)
{
    struct tags_grant grant;
    struct request *r;
    while (qos && tags_pull(&tags, now, 1, &grant) == QOS_OK) {
        r = pop(&client[grant.client].queue);
        r->grant = grant;
        send(result, r);
    }
    while (!qos && at_device < AT_DEVICE && (r = pop(&all)) != NULL)
        send(result, r);
}

static void complete(struct scene_result *result, struct request *r)
{
    at_device--;
    if (qos && tags_complete(&tags, now, &r->grant, COST_NS) != QOS_OK)
        __builtin_trap();
    scene_ended(result, tenant_of(r->client), now, 1, 1, now - r->arrived_ns, false);
    world_client_done(&client[r->client].world, now);
    r->next = unused;
    unused = r;
}

/* Greedy takes back all that waits, and sends as much again. */
static void take_back(void)
{
    struct queue *q = qos ? &client[GREEDY].queue : &all, kept = {NULL, NULL};
    struct request *r;
    if (qos && client[GREEDY].waiting && tags_withdraw(&tags, now, GREEDY, (uint32_t)client[GREEDY].waiting) != QOS_OK)
        __builtin_trap();
    while ((r = pop(q)) != NULL) {
        if (r->client != GREEDY) {
            push(&kept, r);
            continue;
        }
        world_client_done(&client[GREEDY].world, now);
        r->next = unused;
        unused = r;
    }
    *q = kept;
    client[GREEDY].waiting = 0;
    client[GREEDY].always = false;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Clients wake others only by a completion, so it suffices to look at all of them at round times. */
static uint64_t next_event(void)
{
    uint64_t next = (now / SCENE_MS + 1) * SCENE_MS;
    next = earlier(next, world_device_next_ns(&device));
    if (qos)
        next = earlier(next, tags_next_ns(&tags, now));
    return next > now ? next : now + 1;
}

static void step(struct scene_result *result)
{
    struct world_request from;
    struct world_io io;
    uint32_t i, back[AT_DEVICE], n = 0;
    while (n < AT_DEVICE && world_device_take(&device, now, &io)) {
        back[n++] = request[io.id].client;
        complete(result, &request[io.id]);
    }
    if (now == EVENT_FROM && set[SET_flood])
        client[GREEDY].world.ready += 4000;
    if (set[SET_cancel] && now >= EVENT_FROM && now < EVENT_TO && now % CANCEL_EVERY == 0)
        take_back();
    if (now % SCENE_MS == 0)
        for (i = 0; i < clients; i++)
            while (unused && world_client_next(&client[i].world, now, &from))
                arrive(result, i);
    for (i = 0; i < n; i++)
        while (unused && world_client_next(&client[back[i]].world, now, &from))
            arrive(result, back[i]);
    dispatch(result);
    judge_gold(result, 0);
    if (now % SCENE_TENTH_NS == 0 && now > 0)
        judge_shares(result);
}

static void run(const int32_t *setting, struct scene_result *result)
{
    struct world_device_config config;
    uint32_t i;
    set = setting;
    qos = set[SET_qos];
    clients = CROWD + (uint32_t)set[SET_crowd_clients];
    memset(client, 0, sizeof client);
    memset(request, 0, sizeof request);
    all.first = all.last = NULL;
    unused = NULL;
    for (i = REQUESTS; i-- > 0;) {
        request[i].next = unused;
        unused = &request[i];
    }
    now = at_device = gold_behind_ns = above_ns[0] = above_ns[1] = 0;
    gold_behind = above[0] = above[1] = 0;
    config = devices[set[SET_device]];
    if (set[SET_stall]) { /* once */
        config.pause_every_ns = STALL_FROM + STALL_NS;
        config.pause_ns = STALL_NS;
    }
    world_device_init(&device, &config, (uint64_t)set[SET_seed]);
    start(result);
    for (; now < SCENE_END_NS; now = next_event())
        step(result);
    world_device_free(&device);
    for (i = 0; i < clients; i++)
        world_client_free(&client[i].world);
}

const struct scene scene_tags = {"tags", settings, sizeof settings / sizeof *settings, run};
