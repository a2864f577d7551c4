/* scene_twochoice.c - bursts of writes past slow servers: twochoice.h                  SPDX-License-Identifier: MIT
 *
 * A checkpoint of many writes each half second, streams of video, a log that writes one piece at a time; each write is
 * 1 MiB, which takes a server 0.8 to 1.2 ms, a slow one ten times as long. A request ends with its last write. Without
 * the header each write goes to a server by chance, as a hash of its name does. Work is in MiB. */
#include "scene.h"
#include "twochoice.h"
#include "../world/world.h"

/* request: writes in one request; slow: servers of 100; load: percent of what the servers could do. */
#define SETTINGS(X)                                                                                                    \
    X(seed, 1, 9999, 7)                                                                                                \
    X(qos, 0, 1, 1)                                                                                                    \
    X(servers, 10, 100, 50)                                                                                            \
    X(slow, 0, 50, 10)                                                                                                 \
    X(checkpoint_request, 1, 128, 96)                                                                                  \
    X(checkpoint_clients, 1, 50, 20)                                                                                   \
    X(video_request, 1, 32, 8)                                                                                         \
    X(video_load, 0, 60, 20)                                                                                           \
    X(log_request, 1, 32, 1)                                                                                           \
    X(log_load, 0, 60, 10)                                                                                             \
    X(moves, 0, 1, 0)                                                                                                  \
    X(hang, 0, 1, 0)                                                                                                   \
    X(liars, 0, 1, 0)                                                                                                  \
    X(lost, 0, 1, 0)

enum { SETTINGS(SCENE_ENUM) };
static const struct scene_setting settings[] = {SETTINGS(SCENE_ROW)};

enum { CHECKPOINT = 0, VIDEO = 1, LOG = 2 };
#define SERVERS 100u
#define CLIENTS 90u /* 50 of checkpoints, 20 of videos, 20 of logs */
#define STREAMS 20u
#define K_MAX 128u
#define REQUESTS 4096u               /* open at once */
#define WRITES 65536u                /* sent and not ended */
#define MESSAGES 65536u              /* on their way */
#define BYTES ((uint64_t)1 << 20)    /* of a write */
#define SERVICE_NS SCENE_MS          /* of a write: 0.8 to 1.2 of it */
#define BURST_NS (500 * SCENE_MS)    /* a checkpoint each */
#define DELAY_NS 50000u              /* of a message, and as much again on the average */
#define EVENT_FROM (2000 * SCENE_MS) /* what is tried to break it begins */
#define EVENT_TO (4000 * SCENE_MS)   /* and ends */
#define MOVE_NS (500 * SCENE_MS)     /* other servers are the slow ones */
#define HANG_NS (400 * SCENE_MS)     /* two servers of 100 stop for so long */
#define TIMEOUT_NS (200 * SCENE_MS)  /* of the placement: then a write goes to another server too */
#define WAIT_NS (10 * SCENE_MS)      /* behind it: to find one, and to be served */

enum kind { BURST, STREAM, TO_SERVER, TO_CLIENT, ARRIVE, DONE, ENDED, CLIENT_TIMER, SERVER_TIMER };

struct write {
    uint32_t request, index, server, next; /* next: behind it at the server, or of the unused */
    uint64_t turn;
};

struct server {
    struct twochoice_intake intake;
    uint32_t first, last, waiting; /* writes; first is being served */
    uint64_t end_ns, hung_ns, timer_ns;
    bool slow, liar;
};

struct client {
    struct twochoice_placement placement;
    uint32_t tenant;
    uint64_t timer_ns;
};

struct request {
    uint64_t id, began_ns, done[2]; /* bits: writes that have ended */
    uint32_t client, left, out,
        next; /* left: writes that have not ended; out: sent, and nothing is heard of them yet */
};

static struct server server[SERVERS];
static struct client client[CLIENTS];
static struct request request[REQUESTS];
static struct write write[WRITES];
static struct twochoice_message message[MESSAGES];
static uint32_t unused_request, unused_write, unused_message, message_next[MESSAGES], dropped;
static unsigned char intake_memory[SERVERS][1 << 17] __attribute__((aligned(64)));
static unsigned char placement_memory[CLIENTS][1 << 18] __attribute__((aligned(64)));
static struct world_queue events;
static struct world_rng chance, arrivals;
static const int32_t *set;
static uint64_t now;
static uint32_t servers, clients;
static bool qos;

static bool broken(unsigned what)
{
    return set[what] && now >= EVENT_FROM && now < EVENT_TO;
}

static double exponential(struct world_rng *r)
{
    return -world_log(1 - world_unit(r));
}

static uint64_t delay(void)
{
    return DELAY_NS + (uint64_t)(DELAY_NS * exponential(&chance));
}

/* ---- messages ------------------------------------------------------------------------------------------------------ */

static void post(enum kind kind, uint32_t to, const struct twochoice_message *m)
{
    const uint32_t i = unused_message;
    if (i == QOS_NONE || (broken(SET_lost) && world_chance(&chance, 100))) {
        dropped++;
        return;
    }
    unused_message = message_next[i];
    message[i] = *m;
    message_next[i] = to;
    world_queue_add(&events, now + delay(), kind, i);
}

/* The message of an event, and to whom it came. */
static struct twochoice_message open_message(uint32_t i, uint32_t *to)
{
    *to = message_next[i];
    message_next[i] = unused_message;
    unused_message = i;
    return message[i];
}

static void timer(enum kind kind, uint32_t i, uint64_t at_ns, uint64_t *set_ns)
{
    if (at_ns == QOS_NEVER || (*set_ns > now && *set_ns <= at_ns))
        return;
    *set_ns = at_ns > now ? at_ns : now + 1;
    world_queue_add(&events, *set_ns, kind, i);
}

static void lie(const struct server *s, struct twochoice_message *m)
{
    if (s->liar && broken(SET_liars)) {
        m->wait_ns = m->idle_ns = 0;
        m->service_ns = SERVICE_NS / 2;
    }
}

/* ---- servers ------------------------------------------------------------------------------------------------------- */

static void ask(uint32_t i)
{
    struct server *s = &server[i];
    struct twochoice_message m;
    if (!qos)
        return;
    while (twochoice_intake_ask(&s->intake, now, &m)) {
        lie(s, &m);
        post(TO_CLIENT, (uint32_t)m.client, &m);
    }
    timer(SERVER_TIMER, i, twochoice_intake_next_ns(&s->intake, now), &s->timer_ns);
}

/* A liar never writes anything while it lies. */
static void serve(uint32_t i)
{
    struct server *s = &server[i];
    const uint64_t service = (uint64_t)(SERVICE_NS * (0.8 + 0.4 * world_unit(&chance)));
    uint64_t begin = now > s->hung_ns ? now : s->hung_ns;
    if (s->liar && broken(SET_liars))
        begin = EVENT_TO;
    if (s->first == QOS_NONE)
        return;
    s->end_ns = begin + (s->slow ? 10 : 1) * service;
    world_queue_add(&events, s->end_ns, DONE, i);
}

static void arrive(uint32_t w)
{
    struct server *s = &server[write[w].server];
    const struct request *r = &request[write[w].request];
    if (qos)
        twochoice_intake_arrived(&s->intake, now, r->client, r->id, write[w].turn, BYTES);
    write[w].next = QOS_NONE;
    s->waiting++;
    if (s->first == QOS_NONE) {
        s->first = s->last = w;
        serve(write[w].server);
    } else {
        write[s->last].next = w;
        s->last = w;
    }
    ask(write[w].server);
}

static void done(struct scene_result *result, uint32_t i)
{
    struct server *s = &server[i];
    const uint32_t w = s->first;
    struct request *r = &request[write[w].request];
    const uint64_t bit = UINT64_C(1) << write[w].index % 64;
    if (s->end_ns != now) /* it hung meanwhile */
        return;
    s->first = write[w].next;
    s->waiting--;
    if (qos)
        twochoice_intake_end(&s->intake, now, BYTES);
    if (r->left && !(r->done[write[w].index / 64] & bit)) {
        const uint32_t tenant = client[r->client].tenant;
        r->done[write[w].index / 64] |= bit;
        r->left--;
        scene_ended(result, tenant, now, 1, r->left == 0, now - r->began_ns, false);
        if (now - r->began_ns > (tenant == CHECKPOINT || set[SET_lost] ? 2 : 1) * TIMEOUT_NS + WAIT_NS)
            scene_missed(result, tenant, now, SCENE_LATENCY_MISSED);
    }
    world_queue_add(&events, now + delay(), ENDED, w);
    serve(i);
    ask(i);
}

/* ---- clients ------------------------------------------------------------------------------------------------------- */

static void send(uint32_t req, uint32_t index, uint32_t to, uint64_t turn)
{
    const uint32_t w = unused_write;
    if (w == QOS_NONE)
        __builtin_trap();
    unused_write = write[w].next;
    request[req].out++;
    write[w].request = req;
    write[w].index = index;
    write[w].server = to;
    write[w].turn = turn;
    world_queue_add(&events, now + delay(), ARRIVE, w);
}

static void orders(uint32_t i)
{
    struct twochoice_place_order o;
    for (;;) {
        twochoice_placement_step(&client[i].placement, now, &o);
        if (o.todo == TWOCHOICE_PLACE_WAIT)
            break;
        if (o.todo == TWOCHOICE_PLACE_SEND)
            post(TO_SERVER, o.server, &o.message);
        else
            send((uint32_t)o.tag, o.write, o.server, o.message.turn);
    }
    timer(CLIENT_TIMER, i, o.next_ns, &client[i].timer_ns);
}

static void begin(uint32_t i, uint32_t k)
{
    struct twochoice_write w[K_MAX];
    const uint32_t n = unused_request;
    uint32_t j;
    if (n == QOS_NONE)
        return;
    unused_request = request[n].next;
    memset(&request[n], 0, sizeof request[n]);
    request[n].began_ns = now;
    request[n].client = i;
    request[n].left = k;
    for (j = 0; j < k; j++) {
        w[j].home = (uint32_t)(world_rand(&arrivals) % servers);
        w[j].len_bytes = BYTES;
        if (!qos)
            send(n, j, w[j].home, 0);
    }
    if (!qos)
        return;
    if (twochoice_placement_begin(&client[i].placement, now, w, k, n, &request[n].id) != QOS_OK) {
        request[n].next = unused_request; /* too many are open: it waits outside, and is not counted here */
        unused_request = n;
        return;
    }
    orders(i);
}

static uint32_t writes_of(uint32_t tenant)
{
    static const unsigned k[] = {SET_checkpoint_request, SET_video_request, SET_log_request};
    return (uint32_t)set[k[tenant]];
}

/* Of the servers' speed without the slow ones: when the next request of a stream comes. */
static void next_of(uint32_t i)
{
    const uint32_t tenant = client[i].tenant;
    const double load = set[tenant == VIDEO ? SET_video_load : SET_log_load] / 100.0;
    const double all = servers - 0.9 * servers * set[SET_slow] / 100.0;
    if (load > 0)
        world_queue_add(
            &events,
            now + 1 + (uint64_t)(exponential(&arrivals) * SERVICE_NS * writes_of(tenant) * STREAMS / (load * all)),
            STREAM, i);
}

/* ---- the world ----------------------------------------------------------------------------------------------------- */

static void slow_from(uint32_t first)
{
    uint32_t i, n = servers * (uint32_t)set[SET_slow] / 100;
    for (i = 0; i < servers; i++)
        server[i].slow = (i + servers - first) % servers < n;
}

static void hang(void)
{
    uint32_t i;
    for (i = servers - 1; i < servers; i -= 50) {
        server[i].hung_ns = now + HANG_NS;
        if (server[i].first != QOS_NONE) {
            server[i].end_ns += HANG_NS;
            world_queue_add(&events, server[i].end_ns, DONE, i);
        }
    }
}

static void start(void)
{
    uint32_t i;
    unused_request = unused_write = unused_message = 0;
    for (i = 0; i < REQUESTS; i++)
        request[i].next = i + 1 < REQUESTS ? i + 1 : QOS_NONE;
    for (i = 0; i < WRITES; i++)
        write[i].next = i + 1 < WRITES ? i + 1 : QOS_NONE;
    for (i = 0; i < MESSAGES; i++)
        message_next[i] = i + 1 < MESSAGES ? i + 1 : QOS_NONE;
    memset(server, 0, sizeof server);
    memset(client, 0, sizeof client);
    for (i = 0; i < servers; i++) {
        const struct twochoice_intake_config config = {.server = i, .max_reservations = 1024};
        server[i].first = server[i].last = QOS_NONE;
        server[i].liar = i % 50 == 25;
        if (twochoice_intake_init(&server[i].intake, intake_memory[i], sizeof intake_memory[i], &config) != QOS_OK)
            __builtin_trap();
    }
    slow_from(0);
    for (i = 0; i < clients; i++) {
        const struct twochoice_placement_config config = {
            .servers = servers, .client = i, .max_requests = 8, .seed = (uint64_t)set[SET_seed] * 1000 + i};
        client[i].tenant = i < STREAMS ? VIDEO : i < 2 * STREAMS ? LOG : CHECKPOINT;
        if (twochoice_placement_init(&client[i].placement, placement_memory[i], sizeof placement_memory[i], &config) !=
            QOS_OK)
            __builtin_trap();
        if (client[i].tenant == CHECKPOINT)
            world_queue_add(&events, BURST_NS / 2 + world_rand(&arrivals) % 200000, BURST, i);
        else
            next_of(i);
    }
}

static void handle(struct scene_result *result, const struct world_event *e)
{
    struct twochoice_message m, answer;
    uint32_t to;
    switch ((enum kind)e->kind) {
    case BURST:
        begin(e->index, writes_of(CHECKPOINT));
        world_queue_add(&events, now + BURST_NS, BURST, e->index);
        break;
    case STREAM:
        begin(e->index, writes_of(client[e->index].tenant));
        next_of(e->index);
        break;
    case TO_SERVER:
        m = open_message(e->index, &to);
        if (twochoice_intake_heard(&server[to].intake, now, &m, &answer)) {
            lie(&server[to], &answer);
            post(TO_CLIENT, (uint32_t)m.client, &answer);
        }
        ask(to);
        break;
    case TO_CLIENT:
        m = open_message(e->index, &to);
        if (twochoice_placement_heard(&client[to].placement, now, &m, &answer))
            post(TO_SERVER, m.server, &answer);
        orders(to);
        break;
    case ARRIVE: arrive(e->index); break;
    case DONE: done(result, e->index); break;
    case ENDED: {
        const uint32_t n = write[e->index].request;
        const uint32_t owner = request[n].client;
        if (qos)
            (void)!twochoice_placement_ended(&client[owner].placement, now, request[n].id, write[e->index].index, true);
        write[e->index].next = unused_write;
        unused_write = e->index;
        if (qos)
            orders(owner);
        if (--request[n].out == 0 && request[n].left == 0) {
            request[n].next = unused_request;
            unused_request = n;
        }
        break;
    }
    case CLIENT_TIMER:
        if (client[e->index].timer_ns == now)
            orders(e->index);
        break;
    case SERVER_TIMER:
        if (server[e->index].timer_ns == now)
            ask(e->index);
        break;
    }
}

static void run(const int32_t *setting, struct scene_result *result)
{
    struct world_event e;
    uint64_t moved_ns = 0;
    set = setting;
    qos = set[SET_qos];
    servers = (uint32_t)set[SET_servers];
    clients = 2 * STREAMS + (uint32_t)set[SET_checkpoint_clients];
    now = dropped = 0;
    memset(&events, 0, sizeof events);
    world_rng_init(&chance, (uint64_t)set[SET_seed], 1);
    world_rng_init(&arrivals, (uint64_t)set[SET_seed], 2);
    start();
    while (events.count && world_queue_take(&events, SCENE_END_NS, &e)) {
        const bool hangs = set[SET_hang] && now < EVENT_FROM && e.at_ns >= EVENT_FROM;
        now = e.at_ns;
        if (hangs)
            hang();
        if (set[SET_moves] && now / MOVE_NS != moved_ns) {
            moved_ns = now / MOVE_NS;
            slow_from((uint32_t)(moved_ns * 7 % servers));
        }
        handle(result, &e);
    }
    world_queue_free(&events);
}

const struct scene scene_twochoice = {"twochoice", settings, sizeof settings / sizeof *settings, run};
