/* placement.h - a model of clients that write to many servers, for `simulate placement` and its tests: how long
 * requests take under each rule that chooses servers.
 *
 * The parts are those of ../world: a server has a device (one channel, in order, a tenth of its capacity if it is slow),
 * clients make requests (each in its turn of a burst, or Poisson), a network carries messages. A request is k writes of
 * 1 MiB, and ends with its last write; at full capacity a write takes 0.8 to 1.2 ms. A message takes 50 us and,
 * exponentially, 50 us more; messages may overtake each other. A hang stops the device with all that it has and gets. The
 * oracles know speeds, queues and what is on its way; they pay for no message but the write. A request counts from its begin
 * to the end of its last write at the server.
 *
 *   random      each write to a random server
 *   prequal     Prequal (Wydrowski and others, NSDI 2024), synchronous, 2k probes: hot are servers whose requests in
 *               flight exceed the quantile 0.84 of the client's last 128 replies; the cold one with the least latency
 *               (median of the 9 of its last 64 with the nearest number in flight), else the one with the fewest
 *   pool        the same, asynchronous: a pool of 16 replies, at most 1 s old, 3 probes a write; each write removes one
 *               reply, in turn the oldest and the worst; a reply is used max(1, 2 / ((1 - 16 / n) 3 - 1)) times
 *   informed    the rule of twochoice.h
 *   same        an oracle that draws the same number of servers: 2k
 *   oracle      an oracle that sees all servers */
#ifndef EXAMPLES_SIMULATE_PLACEMENT_H
#define EXAMPLES_SIMULATE_PLACEMENT_H

#include <math.h>
#include "twochoice.h"
#include "../world/clients.h"
#include "../world/devices.h"
#include "../world/networks.h"

#define PLACE_BYTES ((uint64_t)1 << 20)
#define PLACE_SERVICE_NS 1e6
#define PLACE_TIMER_NS 1000u /* no timer of a server is finer */
#define PLACE_MS(ms) ((uint64_t)((ms)*1e6))
#define PLACE_K_MAX 128u

enum place_rule { PLACE_RANDOM, PLACE_PREQUAL, PLACE_POOL, PLACE_INFORMED, PLACE_SAME, PLACE_ORACLE, PLACE_RULES };
static const char *const place_rule_names[PLACE_RULES] = {"random", "prequal", "pool", "informed", "same", "oracle"};

struct place_config {
    const char *name;
    uint32_t servers, clients, k;
    double slow;              /* share of the servers that are 10 times slower */
    uint32_t rounds;          /* bursts, or (steady) requests for each of 100 servers */
    double gap_ms;            /* from burst to burst; 0: steady */
    double load;              /* steady: of all servers together */
    double hang_ms;           /* each 50 ms a server hangs so long */
    double change_ms;         /* so often the slow servers are others */
    double stale_ms;          /* answers of servers are so old; asks are not */
    uint32_t liars;           /* servers that say they are idle and fast, and never write */
    double warm;              /* requests count from this burst on; steady: from this part of the time on */
    double asked, asked_same; /* p99 at most so many times the oracle's; or so many times the other oracle's. 0: any */
    double background;        /* writes that a server has at first: so many, and for a tenth of it, deviation */
    double stragglers;        /* share of the servers that have five times as many */
};

struct place_write {
    uint32_t request, index;
    uint64_t turn, at_ns, in_flight; /* at_ns: of its arrival; in_flight: others at the server then */
};
struct place_server {
    struct world_device device;
    uint64_t device_ns; /* when it is looked at next */
    bool liar;
    uint32_t coming; /* writes on their way */
    uint32_t in_flight;
    struct {
        uint64_t in_flight, latency_ns;
    } done[64];
    uint32_t ended;
    struct twochoice_intake intake;
    void *memory;
    uint64_t timer_ns;
};
struct place_probe {
    uint32_t server;
    uint64_t in_flight, latency_ns;
};
struct place_request {
    uint64_t began_ns, id;
    uint32_t client, left, back, probes;
    bool counts;
    uint8_t *done;
    struct place_probe *probe;
};
struct place_reply {
    uint32_t server, uses;
    uint64_t at_ns, in_flight, latency_ns;
};
struct place_client {
    struct world_client loop;
    uint64_t seen[128]; /* in flight, by the last replies */
    uint32_t replies, pool, removals;
    struct place_reply reply[16];
    struct twochoice_placement placement;
    void *memory;
    uint64_t timer_ns;
};
enum place_event_kind { /* of a queue: what is due at a server or a client */
                        PLACE_START,
                        PLACE_DEVICE,
                        PLACE_HANG,
                        PLACE_CHANGE,
                        PLACE_CLIENT_TIMER,
                        PLACE_SERVER_TIMER
};
enum place_packet_kind {
    PLACE_ARRIVE,
    PLACE_PROBE,
    PLACE_REPLY,
    PLACE_POOL_PROBE,
    PLACE_POOL_REPLY,
    PLACE_TO_SERVER, /* messages of informed */
    PLACE_TO_CLIENT,
    PLACE_ENDED
};
struct place_packet { /* of the network */
    enum place_packet_kind kind;
    uint32_t a, b, c;
    uint64_t x, y;
    struct twochoice_message message;
};
#define PLACE_SLOTS 20u /* equal parts of the time between two changes of rates */
struct place_slot {
    double *ms; /* of the requests that began in it */
    size_t requests, room;
};
struct place_result {
    double *ms; /* of each request that counts, sorted; QOS_NEVER: INFINITY */
    size_t requests, room;
    double worst_p99;                    /* of a seed alone */
    struct place_slot slot[PLACE_SLOTS]; /* of the requests that count and began after the first change */
    uint64_t writes, messages, twice;
};
struct place {
    const struct place_config *c;
    enum place_rule rule;
    struct world_rng rng, fate; /* fate: of hangs and changes, the same under each rule */
    struct world_queue due;
    struct world_network network; /* one link for all */
    uint64_t now_ns, counts_ns;   /* requests count that begin from then on */
    struct place_server *server;
    struct place_client *client;
    struct place_request *request;
    uint32_t requests, begun, *order;
    struct place_write *write;
    size_t writes, write_room;
    struct place_result *result;
};

static inline uint32_t place_below(struct place *p, uint32_t n)
{
    return (uint32_t)world_between(&p->rng, 0, n - 1);
}
static inline uint32_t place_slow(const struct place_config *c)
{
    return (uint32_t)(c->slow * c->servers + 0.5);
}

static inline void place_send_later(struct place *p, const struct place_packet *m, uint64_t later_ns)
{
    p->result->messages++;
    world_network_send(&p->network, p->now_ns + later_ns, 0, 0, m, sizeof *m);
}
static inline void place_post(struct place *p, enum place_packet_kind kind, uint32_t a, uint32_t b, uint32_t c,
                              uint64_t x, uint64_t y)
{
    struct place_packet m;
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.a = a;
    m.b = b;
    m.c = c;
    m.x = x;
    m.y = y;
    place_send_later(p, &m, 0);
}

/* ---- servers ------------------------------------------------------------------------------------------- */

static inline void place_look_at(struct place *p, uint32_t s)
{
    struct place_server *v = &p->server[s];
    const uint64_t next_ns = world_device_next_ns(&v->device);
    if (next_ns != WORLD_NEVER && next_ns != v->device_ns)
        world_queue_add(&p->due, next_ns, PLACE_DEVICE, s);
    v->device_ns = next_ns;
}

static inline void place_arrive(struct place *p, uint32_t s, uint32_t w)
{
    struct place_server *v = &p->server[s];
    struct world_io io;
    v->coming--;
    p->write[w].at_ns = p->now_ns;
    p->write[w].in_flight = v->in_flight++;
    if (v->liar)
        return;
    memset(&io, 0, sizeof io);
    io.id = w;
    io.cost_ns = (uint64_t)(PLACE_SERVICE_NS * (0.8 + 0.4 * world_unit(&p->rng)));
    world_device_submit(&v->device, p->now_ns, &io);
    place_look_at(p, s);
}

static inline uint32_t place_new_write(struct place *p, uint32_t request, uint32_t index, uint32_t s, uint64_t turn)
{
    const struct place_write w = {request, index, turn, 0, 0};
    p->write = (struct place_write *)world_grow(p->write, p->writes, &p->write_room, sizeof *p->write);
    p->write[p->writes] = w;
    p->server[s].coming++;
    return (uint32_t)p->writes++;
}

static inline void place_send(struct place *p, uint32_t request, uint32_t index, uint32_t s, uint64_t turn)
{
    uint32_t w = place_new_write(p, request, index, s, turn);
    place_post(p, PLACE_ARRIVE, s, w, 0, 0, 0);
}

/* What an oracle knows: until a write sent now would end, without its way. */
static inline double place_backlog(const struct place *p, uint32_t s)
{
    const struct place_server *v = &p->server[s];
    const struct world_device *d = &v->device;
    uint64_t free_ns = d->working ? d->busy[0].end_ns : d->stopped_ns;
    if (v->liar)
        return 1e15;
    free_ns = free_ns > p->now_ns ? free_ns - p->now_ns : 0;
    return (double)free_ns + (double)(d->waiting + v->coming + 1) * PLACE_SERVICE_NS * 1000 / d->config.capacity;
}

static inline int place_compare(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Prequal: the median latency of the 9 whose number in flight was the nearest; of equal ones those that come first. */
static inline uint64_t place_latency(const struct place_server *v)
{
    uint64_t by[9], nine[9];
    uint32_t n = v->ended < 64 ? v->ended : 64, i, j, m = 0;
    if (v->liar || n == 0)
        return v->liar;
    for (i = 0; i < n; i++) {
        uint64_t then = v->done[i].in_flight, now = v->in_flight, away = then > now ? then - now : now - then;
        if (m == 9 && away >= by[8])
            continue;
        for (j = m < 9 ? m++ : 8; j > 0 && by[j - 1] > away; j--) {
            by[j] = by[j - 1];
            nine[j] = nine[j - 1];
        }
        by[j] = away;
        nine[j] = v->done[i].latency_ns;
    }
    qsort(nine, m, sizeof *nine, place_compare);
    return nine[m / 2];
}

/* ---- rules with probes --------------------------------------------------------------------------------- */

static inline void place_seen(struct place_client *c, uint64_t in_flight)
{
    c->seen[c->replies++ % 128] = in_flight;
}
/* The value below which 84 % of the last replies are: the least with so many at or below it. */
static inline uint64_t place_hot(const struct place_client *c)
{
    uint64_t low = UINT64_MAX, high = 0;
    uint32_t n = c->replies < 128 ? c->replies : 128, rank, i, below;
    if (n == 0)
        return UINT64_MAX;
    rank = (n - 1) * 84 / 100;
    for (i = 0; i < n; i++) {
        low = c->seen[i] < low ? c->seen[i] : low;
        high = c->seen[i] > high ? c->seen[i] : high;
    }
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        for (i = below = 0; i < n; i++)
            below += c->seen[i] <= mid;
        if (below > rank)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static inline void place_decide_prequal(struct place *p, uint32_t request)
{
    struct place_request *r = &p->request[request];
    uint64_t hot = place_hot(&p->client[r->client]), own[2 * PLACE_K_MAX] = {0};
    uint32_t w, i, from = place_below(p, r->probes);
    for (w = 0; w < p->c->k; w++) {
        uint32_t best = QOS_NONE;
        bool best_cold = false;
        double best_value = 0;
        for (i = 0; i < r->probes; i++) {
            const struct place_probe *o = &r->probe[(i + from) % r->probes];
            uint64_t in_flight = o->in_flight + own[(i + from) % r->probes];
            bool cold = in_flight <= hot;
            double value =
                cold ? (double)o->latency_ns * (double)(in_flight + 1) / (double)(o->in_flight + 1) : (double)in_flight;
            if (best == QOS_NONE || (cold && !best_cold) || (cold == best_cold && value < best_value)) {
                best = (i + from) % r->probes;
                best_cold = cold;
                best_value = value;
            }
        }
        own[best]++;
        place_send(p, request, w, r->probe[best].server, 0);
    }
}

static inline void place_decide_same(struct place *p, uint32_t request)
{
    struct place_request *r = &p->request[request];
    uint32_t w, i;
    for (w = 0; w < p->c->k; w++) {
        uint32_t best = r->probe[0].server;
        for (i = 1; i < r->probes; i++)
            if (place_backlog(p, r->probe[i].server) < place_backlog(p, best))
                best = r->probe[i].server;
        place_send(p, request, w, best, 0);
    }
}

/* 2k servers, or all. */
static inline void place_draw(struct place *p, struct place_request *r)
{
    uint32_t n = p->c->servers, i;
    r->probes = 2 * p->c->k < n ? 2 * p->c->k : n;
    r->probe = (struct place_probe *)world_alloc(r->probes, sizeof *r->probe);
    for (i = 0; i < r->probes; i++) {
        uint32_t j = i + place_below(p, n - i), s = p->order[j];
        p->order[j] = p->order[i];
        r->probe[i].server = p->order[i] = s;
    }
}

static inline void place_probed(struct place *p, const struct place_packet *e)
{
    struct place_server *v = &p->server[e->a];
    struct place_probe *o = &p->request[e->b].probe[e->c];
    o->in_flight = v->liar ? 0 : v->in_flight;
    o->latency_ns = place_latency(v);
    place_post(p, PLACE_REPLY, e->b, e->c, 0, 0, 0);
}

/* ---- Prequal's pool ------------------------------------------------------------------------------------ */

/* The best reply of a pool, or the worst. */
static inline uint32_t place_pool_pick(const struct place_client *c, bool worst)
{
    uint64_t hot = place_hot(c);
    uint32_t i, pick = 0;
    for (i = 1; i < c->pool; i++) {
        const struct place_reply *a = &c->reply[pick], *b = &c->reply[i];
        bool a_cold = a->in_flight <= hot, b_cold = b->in_flight <= hot, b_better;
        if (a_cold != b_cold)
            b_better = b_cold;
        else
            b_better = a_cold ? b->latency_ns < a->latency_ns : b->in_flight < a->in_flight;
        if (b_better != worst)
            pick = i;
    }
    return pick;
}
static inline uint32_t place_pool_oldest(const struct place_client *c)
{
    uint32_t i, pick = 0;
    for (i = 1; i < c->pool; i++)
        if (c->reply[i].at_ns < c->reply[pick].at_ns)
            pick = i;
    return pick;
}

static inline void place_pool_write(struct place *p, uint32_t request, uint32_t index)
{
    struct place_client *c = &p->client[p->request[request].client];
    double reuse = 2 / ((1 - 16.0 / p->c->servers) * 3 - 1);
    uint32_t s = place_below(p, p->c->servers), i;
    for (i = 0; i < c->pool;)
        if (p->now_ns - c->reply[i].at_ns > PLACE_MS(1000))
            c->reply[i] = c->reply[--c->pool];
        else
            i++;
    if (c->pool >= 2) {
        i = place_pool_pick(c, false);
        s = c->reply[i].server;
        c->reply[i].in_flight++;
        if (++c->reply[i].uses >= (reuse > 1 ? reuse : 1))
            c->reply[i] = c->reply[--c->pool];
    }
    if (c->pool > 0) {
        i = c->removals++ % 2 ? place_pool_oldest(c) : place_pool_pick(c, true);
        c->reply[i] = c->reply[--c->pool];
    }
    for (i = 0; i < 3; i++)
        place_post(p, PLACE_POOL_PROBE, place_below(p, p->c->servers), p->request[request].client, 0, 0, 0);
    place_send(p, request, index, s, 0);
}

static inline void place_pool_reply(struct place *p, const struct place_packet *e)
{
    struct place_client *c = &p->client[e->b];
    const struct place_reply reply = {e->a, 0, p->now_ns, e->x, e->y};
    place_seen(c, e->x);
    c->reply[c->pool < 16 ? c->pool++ : place_pool_oldest(c)] = reply;
}

/* ---- informed ------------------------------------------------------------------------------------------ */

static inline void place_message(struct place *p, const struct twochoice_message *message, enum place_packet_kind kind,
                                 uint32_t to, uint64_t later_ns)
{
    struct place_packet m;
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.a = to;
    m.message = *message;
    place_send_later(p, &m, later_ns);
}

static inline void place_orders(struct place *p, uint32_t client)
{
    struct place_client *c = &p->client[client];
    struct twochoice_place_order o;
    for (;;) {
        twochoice_placement_step(&c->placement, p->now_ns, &o);
        if (o.todo == TWOCHOICE_PLACE_WAIT)
            break;
        if (o.todo == TWOCHOICE_PLACE_SEND) {
            place_message(p, &o.message, PLACE_TO_SERVER, o.server, 0);
        } else {
            uint32_t request = (uint32_t)o.tag;
            p->result->twice += o.again;
            place_send(p, request, o.write, o.server, o.message.turn);
        }
    }
    if (o.next_ns != QOS_NEVER && (c->timer_ns <= p->now_ns || o.next_ns < c->timer_ns)) {
        c->timer_ns = o.next_ns > p->now_ns ? o.next_ns : p->now_ns + 1;
        world_queue_add(&p->due, c->timer_ns, PLACE_CLIENT_TIMER, client);
    }
}

static inline void place_lie(const struct place_server *v, struct twochoice_message *m)
{
    if (!v->liar)
        return;
    m->wait_ns = 0;
    m->service_ns = (uint64_t)(PLACE_SERVICE_NS / 2);
    m->idle_ns = 0;
}

static inline void place_asks(struct place *p, uint32_t s)
{
    struct place_server *v = &p->server[s];
    struct twochoice_message ask;
    uint64_t next_ns;
    while (twochoice_intake_ask(&v->intake, p->now_ns, &ask)) {
        place_lie(v, &ask);
        place_message(p, &ask, PLACE_TO_CLIENT, (uint32_t)ask.client, 0);
    }
    next_ns = twochoice_intake_next_ns(&v->intake, p->now_ns);
    next_ns = next_ns > p->now_ns + PLACE_TIMER_NS ? next_ns : p->now_ns + PLACE_TIMER_NS;
    if (next_ns != QOS_NEVER && (v->timer_ns <= p->now_ns || next_ns < v->timer_ns)) {
        v->timer_ns = next_ns;
        world_queue_add(&p->due, v->timer_ns, PLACE_SERVER_TIMER, s);
    }
}

static inline void place_to_server(struct place *p, const struct place_packet *e)
{
    struct place_server *v = &p->server[e->a];
    struct twochoice_message answer;
    const struct twochoice_message m = e->message;
    if (twochoice_intake_heard(&v->intake, p->now_ns, &m, &answer)) {
        place_lie(v, &answer);
        place_message(p, &answer, PLACE_TO_CLIENT, (uint32_t)m.client, PLACE_MS(p->c->stale_ms));
    }
    place_asks(p, e->a);
}

static inline void place_to_client(struct place *p, const struct place_packet *e)
{
    const struct twochoice_message m = e->message;
    struct twochoice_message answer;
    if (twochoice_placement_heard(&p->client[e->a].placement, p->now_ns, &m, &answer))
        place_message(p, &answer, PLACE_TO_SERVER, m.server, 0);
    place_orders(p, e->a);
}

/* ---- the run ------------------------------------------------------------------------------------------- */

static inline void place_start(struct place *p, uint32_t request)
{
    struct place_request *r = &p->request[request];
    uint32_t i, j, n = p->c->servers, k = p->c->k;
    r->began_ns = p->now_ns;
    r->counts = p->now_ns >= p->counts_ns;
    r->left = k;
    r->done = (uint8_t *)world_alloc(k, 1);
    if (p->rule == PLACE_INFORMED) {
        struct twochoice_write w[PLACE_K_MAX];
        for (i = 0; i < k; i++) {
            w[i].home = place_below(p, n);
            w[i].len_bytes = PLACE_BYTES;
        }
        if (twochoice_placement_begin(&p->client[r->client].placement, p->now_ns, w, k, request, &r->id) != QOS_OK)
            abort();
        place_orders(p, r->client);
        return;
    }
    if (p->rule == PLACE_RANDOM || p->rule == PLACE_POOL || p->rule == PLACE_ORACLE) {
        for (i = 0; i < k; i++) {
            uint32_t from = place_below(p, n), best = from;
            double least = p->rule == PLACE_ORACLE ? place_backlog(p, from) : 0;
            if (p->rule == PLACE_POOL) {
                place_pool_write(p, request, i);
                continue;
            }
            for (j = 1; j < n && p->rule == PLACE_ORACLE; j++) {
                double backlog = place_backlog(p, (from + j) % n);
                if (backlog < least) {
                    best = (from + j) % n;
                    least = backlog;
                }
            }
            place_send(p, request, i, best, 0);
        }
        return;
    }
    place_draw(p, r);
    if (p->rule == PLACE_SAME)
        place_decide_same(p, request);
    else
        for (i = 0; i < r->probes; i++)
            place_post(p, PLACE_PROBE, r->probe[i].server, request, i, 0, 0);
}

static inline void place_add(double **to, size_t *n, size_t *room, double ms)
{
    *to = (double *)world_grow(*to, *n, room, sizeof **to);
    (*to)[(*n)++] = ms;
}

static inline void place_count(struct place *p, const struct place_request *r, double ms)
{
    struct place_result *o = p->result;
    const uint64_t period_ns = PLACE_MS(p->c->change_ms);
    place_add(&o->ms, &o->requests, &o->room, ms);
    if (period_ns > 0 && r->began_ns >= period_ns) {
        struct place_slot *slot = &o->slot[r->began_ns % period_ns * PLACE_SLOTS / period_ns];
        place_add(&slot->ms, &slot->requests, &slot->room, ms);
    }
}

static inline void place_end(struct place *p, uint32_t s, const struct world_io *io)
{
    struct place_server *v = &p->server[s];
    const struct place_write *w = &p->write[io->id];
    struct place_request *r = &p->request[w->request];
    v->in_flight--;
    v->done[v->ended % 64].in_flight = w->in_flight;
    v->done[v->ended++ % 64].latency_ns = p->now_ns - w->at_ns;
    if (!r->done[w->index]) {
        r->done[w->index] = 1;
        p->result->writes++;
        if (--r->left == 0 && r->counts)
            place_count(p, r, (double)(p->now_ns - r->began_ns) / 1e6);
    }
    if (p->rule == PLACE_INFORMED) {
        place_post(p, PLACE_ENDED, w->request, w->index, 0, 0, 0);
        p->result->messages--; /* the answer to a write, which every rule has */
        twochoice_intake_end(&v->intake, p->now_ns, PLACE_BYTES);
        place_asks(p, s);
    }
}

/* Others are slow. */
static inline void place_change(struct place *p)
{
    uint32_t i, slow = place_slow(p->c);
    for (i = 0; i < p->c->servers; i++)
        p->server[i].device.config.capacity = 1000;
    while (slow > 0) {
        struct world_device_config *d = &p->server[world_between(&p->fate, 0, p->c->servers - 1)].device.config;
        slow -= d->capacity == 1000;
        d->capacity = 100;
    }
}

static inline void place_due(struct place *p, const struct world_event *e)
{
    const bool ends = p->begun == p->requests;
    switch ((enum place_event_kind)e->kind) {
    case PLACE_START: {
        struct world_client *l = &p->client[e->index].loop;
        struct world_request made;
        if (ends || !world_client_next(l, p->now_ns, &made))
            break;
        world_client_done(l, p->now_ns); /* nothing of it waits for the end */
        p->request[p->begun].client = e->index;
        world_queue_add(&p->due, world_client_next_ns(l), PLACE_START, e->index);
        place_start(p, p->begun++);
        break;
    }
    case PLACE_DEVICE: {
        struct world_io io;
        while (world_device_take(&p->server[e->index].device, p->now_ns, &io))
            place_end(p, e->index, &io);
        place_look_at(p, e->index);
        break;
    }
    case PLACE_HANG: {
        const uint32_t s = (uint32_t)world_between(&p->fate, 0, p->c->servers - 1);
        if (ends)
            break;
        world_device_stop(&p->server[s].device, p->now_ns, p->now_ns + PLACE_MS(p->c->hang_ms));
        place_look_at(p, s);
        world_queue_add(&p->due, p->now_ns + PLACE_MS(50), PLACE_HANG, 0);
        break;
    }
    case PLACE_CHANGE:
        if (ends)
            break;
        place_change(p);
        world_queue_add(&p->due, p->now_ns + PLACE_MS(p->c->change_ms), PLACE_CHANGE, 0);
        break;
    case PLACE_CLIENT_TIMER:
        if (p->client[e->index].timer_ns == p->now_ns)
            place_orders(p, e->index);
        break;
    case PLACE_SERVER_TIMER:
        if (p->server[e->index].timer_ns == p->now_ns)
            place_asks(p, e->index);
        break;
    }
}

static inline void place_heard(struct place *p, const struct place_packet *e)
{
    struct place_server *v = &p->server[e->a];
    switch (e->kind) {
    case PLACE_ARRIVE: {
        const struct place_write *w = &p->write[e->b];
        const struct place_request *r = &p->request[w->request];
        if (p->rule == PLACE_INFORMED)
            twochoice_intake_arrived(&v->intake, p->now_ns, r->client, r->id, w->turn, PLACE_BYTES);
        place_arrive(p, e->a, e->b);
        if (p->rule == PLACE_INFORMED)
            place_asks(p, e->a);
        break;
    }
    case PLACE_PROBE: place_probed(p, e); break;
    case PLACE_REPLY: {
        struct place_request *r = &p->request[e->a];
        place_seen(&p->client[r->client], r->probe[e->b].in_flight);
        if (++r->back == r->probes)
            place_decide_prequal(p, e->a);
        break;
    }
    case PLACE_POOL_PROBE:
        place_post(p, PLACE_POOL_REPLY, e->a, e->b, 0, v->liar ? 0 : v->in_flight, place_latency(v));
        break;
    case PLACE_POOL_REPLY: place_pool_reply(p, e); break;
    case PLACE_TO_SERVER: place_to_server(p, e); break;
    case PLACE_TO_CLIENT: place_to_client(p, e); break;
    case PLACE_ENDED: {
        uint32_t client = p->request[e->a].client;
        (void)!twochoice_placement_ended(&p->client[client].placement, p->now_ns, p->request[e->a].id, e->b, true);
        place_orders(p, client);
        break;
    }
    }
}

/* Steady: from one request of all clients to the next. */
static inline double place_mean_ns(const struct place_config *c)
{
    return c->k * PLACE_SERVICE_NS / (c->load * (c->servers - 0.9 * place_slow(c)));
}

static inline void place_open(struct place *p, uint64_t seed)
{
    const struct place_config *c = p->c;
    struct twochoice_placement_config pc;
    struct twochoice_intake_config ic;
    struct world_device_config dc;
    struct world_client_config lc;
    struct world_network_config nc;
    uint32_t i;
    memset(&pc, 0, sizeof pc);
    memset(&ic, 0, sizeof ic);
    memset(&dc, 0, sizeof dc);
    memset(&lc, 0, sizeof lc);
    memset(&nc, 0, sizeof nc);
    nc.delay_ns = nc.jitter_ns = 50000;
    nc.exponential = true;
    world_rng_init(&p->rng, seed, 0);
    world_rng_init(&p->fate, seed, 1);
    world_network_init(&p->network, &nc, seed);
    p->server = (struct place_server *)world_alloc(c->servers, sizeof *p->server);
    p->client = (struct place_client *)world_alloc(c->clients, sizeof *p->client);
    p->order = (uint32_t *)world_alloc(c->servers, sizeof *p->order);
    for (i = 0; i < c->servers; i++) {
        struct place_server *v = &p->server[i];
        p->order[i] = i;
        dc.capacity = i < place_slow(c) ? 100 : 1000;
        world_device_init(&v->device, &dc, seed + i);
        v->device_ns = WORLD_NEVER;
        v->liar = i >= c->servers - c->liars;
        if (p->rule != PLACE_INFORMED)
            continue;
        ic.server = i;
        v->memory = world_alloc(1, twochoice_intake_memsize(&ic) + 64);
        if (twochoice_intake_init(&v->intake, (void *)(((uintptr_t)v->memory + 63) & ~(uintptr_t)63),
                                  twochoice_intake_memsize(&ic), &ic) != QOS_OK)
            abort();
    }
    lc.arrivals = c->gap_ms > 0 ? WORLD_CONSTANT : WORLD_POISSON;
    lc.interval_ns = c->gap_ms > 0 ? PLACE_MS(c->gap_ms) : (uint64_t)(place_mean_ns(c) * c->clients);
    for (i = 0; i < c->clients; i++) {
        struct place_client *l = &p->client[i];
        lc.start_ns = c->gap_ms > 0 ? PLACE_MS(0.2 * world_unit(&p->fate)) : 0;
        world_client_init(&l->loop, &lc, seed, i);
        world_queue_add(&p->due, world_client_next_ns(&l->loop), PLACE_START, i);
        if (p->rule != PLACE_INFORMED)
            continue;
        pc.servers = c->servers;
        pc.max_writes = c->k;
        pc.max_requests = c->gap_ms > 0 ? 4 : c->clients == 1 ? 256 : 64;
        pc.client = i;
        pc.seed = seed * 100000 + i;
        l->memory = world_alloc(1, twochoice_placement_memsize(&pc) + 64);
        if (twochoice_placement_init(&l->placement, (void *)(((uintptr_t)l->memory + 63) & ~(uintptr_t)63),
                                     twochoice_placement_memsize(&pc), &pc) != QOS_OK)
            abort();
    }
}

static inline void place_close(struct place *p)
{
    uint32_t i;
    for (i = 0; i <= p->requests; i++) {
        free(p->request[i].done);
        free(p->request[i].probe);
    }
    for (i = 0; i < p->c->servers; i++) {
        world_device_free(&p->server[i].device);
        free(p->server[i].memory);
    }
    for (i = 0; i < p->c->clients; i++) {
        world_client_free(&p->client[i].loop);
        free(p->client[i].memory);
    }
    world_queue_free(&p->due);
    world_network_free(&p->network);
    free(p->request);
    free(p->server);
    free(p->client);
    free(p->order);
    free(p->write);
}

/* What the servers have at first: writes of a request that nobody waits for. */
static inline void place_fill(struct place *p, uint32_t nobody)
{
    struct place_request *r = &p->request[nobody];
    uint32_t s;
    r->left = UINT32_MAX;
    r->done = (uint8_t *)world_alloc(1, 1);
    for (s = 0; s < p->c->servers; s++) {
        double n = p->c->background * (1 + world_normal(&p->rng) / 10) *
                   (s < (uint32_t)(p->c->stragglers * p->c->servers + 0.5) ? 5 : 1);
        int i;
        for (i = 0; i < 8 && p->rule == PLACE_INFORMED; i++) { /* it has worked before: its rate is learned */
            twochoice_intake_begin(&p->server[s].intake, PLACE_MS(i), PLACE_BYTES);
            twochoice_intake_end(&p->server[s].intake, PLACE_MS(i + 1), PLACE_BYTES);
        }
        for (; n >= 1; n--) {
            uint32_t w = place_new_write(p, nobody, 0, s, 0);
            if (p->rule == PLACE_INFORMED)
                twochoice_intake_begin(&p->server[s].intake, p->now_ns, PLACE_BYTES);
            place_arrive(p, s, w);
        }
    }
}

static inline void place_run(const struct place_config *c, enum place_rule rule, uint64_t seed,
                             struct place_result *result)
{
    struct place p;
    struct world_packet packet;
    struct world_event due;
    uint32_t i;
    memset(&p, 0, sizeof p);
    p.c = c;
    p.rule = rule;
    p.result = result;
    place_open(&p, seed);
    p.requests = c->rounds * (c->gap_ms > 0 ? c->clients : c->servers);
    p.counts_ns = c->gap_ms > 0 ? PLACE_MS(c->warm * c->gap_ms) : (uint64_t)(c->warm * p.requests * place_mean_ns(c));
    p.request = (struct place_request *)world_alloc(p.requests + 1, sizeof *p.request);
    if (c->background > 0)
        place_fill(&p, p.requests);
    if (c->hang_ms > 0)
        world_queue_add(&p.due, PLACE_MS(50), PLACE_HANG, 0);
    if (c->change_ms > 0)
        world_queue_add(&p.due, PLACE_MS(c->change_ms), PLACE_CHANGE, 0);
    for (;;) {
        const uint64_t due_ns = world_queue_next_ns(&p.due), heard_ns = world_network_next_ns(&p.network);
        p.now_ns = heard_ns < due_ns ? heard_ns : due_ns;
        if (p.now_ns == WORLD_NEVER)
            break;
        if (world_network_take(&p.network, p.now_ns, &packet)) {
            struct place_packet m;
            memcpy(&m, packet.bytes, sizeof m);
            place_heard(&p, &m);
        } else if (world_queue_take(&p.due, p.now_ns, &due)) {
            place_due(&p, &due);
        }
    }
    for (i = 0; i < p.requests; i++)
        if (p.request[i].left && p.request[i].counts)
            place_count(&p, &p.request[i], INFINITY); /* it never ended */
    place_close(&p);
}

static inline int place_compare_ms(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static inline double place_quantile(const double *sorted, size_t n, double part)
{
    return n ? sorted[(size_t)(part * (double)(n - 1))] : 0;
}

/* All requests of several seeds; result->ms is the caller's to free. */
static inline void place_pooled(const struct place_config *c, enum place_rule rule, uint64_t seed, uint32_t seeds,
                                struct place_result *result)
{
    uint32_t i;
    memset(result, 0, sizeof *result);
    for (i = 0; i < seeds; i++) {
        size_t from = result->requests;
        double p99;
        place_run(c, rule, seed + i, result);
        qsort(result->ms + from, result->requests - from, sizeof *result->ms, place_compare_ms);
        p99 = place_quantile(result->ms + from, result->requests - from, 0.99);
        result->worst_p99 = p99 > result->worst_p99 ? p99 : result->worst_p99;
    }
    qsort(result->ms, result->requests, sizeof *result->ms, place_compare_ms);
    for (i = 0; i < PLACE_SLOTS; i++)
        if (result->slot[i].requests)
            qsort(result->slot[i].ms, result->slot[i].requests, sizeof(double), place_compare_ms);
}

static inline double place_slot_p99(const struct place_result *r, uint32_t slot)
{
    return place_quantile(r->slot[slot].ms, r->slot[slot].requests, 0.99);
}

/* The time to recover, in ms: so long after a change of rates the p99 of those who begin is at most 1.25 times what it
 * is in the second half of the time until the next one (*calm_ms: the median of these slots' p99), in two slots in a
 * row. */
static inline double place_recovers_ms(const struct place_config *c, const struct place_result *r, double *calm_ms)
{
    double late[PLACE_SLOTS / 2];
    uint32_t i;
    for (i = 0; i < PLACE_SLOTS / 2; i++)
        late[i] = place_slot_p99(r, PLACE_SLOTS / 2 + i);
    qsort(late, PLACE_SLOTS / 2, sizeof *late, place_compare_ms);
    *calm_ms = late[PLACE_SLOTS / 4];
    for (i = 0; i + 1 < PLACE_SLOTS; i++)
        if (place_slot_p99(r, i) <= 1.25 * *calm_ms && place_slot_p99(r, i + 1) <= 1.25 * *calm_ms)
            break;
    return i * c->change_ms / PLACE_SLOTS;
}

static inline void place_free(struct place_result *r)
{
    uint32_t i;
    free(r->ms);
    for (i = 0; i < PLACE_SLOTS; i++)
        free(r->slot[i].ms);
}

#endif
