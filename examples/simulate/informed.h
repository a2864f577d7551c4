/* informed.h - informed late binding: which servers get the writes of a request. A client's part (placement) and a
 * server's (intake); both say what they do at their chapters. Integers only, no allocation, as in the headers. */
#ifndef EXAMPLES_SIMULATE_INFORMED_H
#define EXAMPLES_SIMULATE_INFORMED_H
#include "qos.h"
#ifndef QOS_TWOCHOICE_H
#define TWOCHOICE_SERVERS_MAX 65535
enum twochoice_server_state { TWOCHOICE_UP = 0, TWOCHOICE_DOWN = 1, TWOCHOICE_FULL = 2 };
#endif
#define TWOCHOICE_WRITES_MAX 1024              /* writes in one request */
#define TWOCHOICE_REQUESTS_MAX 256             /* open at once in one placement */
#define TWOCHOICE_TIME_MAX (UINT64_C(1) << 42) /* 73 minutes: a longer time counts as this */
#define TWOCHOICE_LEN_MAX (UINT64_C(1) << 36)  /* a longer operation counts as this */
#ifndef TWOCHOICE_MIN_WRITE_BYTES
#define TWOCHOICE_MIN_WRITE_BYTES 1024
#endif
#define TWOCHOICE_RESERVATIONS_MAX 65536    /* at one server */
#define TWOCHOICE_MESSAGE_MAGIC 0x4f484332u /* "2CHO" */
#define TWOCHOICE_MESSAGE_VERSION 2
#define TWOCHOICE_MESSAGE_BYTES (QOS_FRAME_HEADER_BYTES + 64)

/* The messages of a request. Client to server: RESERVE, RELEASE. Server to client: ANSWER, ASK. */
enum twochoice_message_type {
    TWOCHOICE_RESERVE = 1, /* count writes of len_bytes may come */
    TWOCHOICE_ANSWER = 2,  /* the bounds */
    TWOCHOICE_ASK = 3,     /* the bounds, and: send one write now */
    TWOCHOICE_RELEASE = 4  /* no write comes any more; also the answer to an ASK that is declined */
};
struct twochoice_message {
    uint32_t type, server;
    uint32_t state; /* ANSWER: enum twochoice_server_state */
    uint32_t count; /* RESERVE: 1..TWOCHOICE_WRITES_MAX */
    uint64_t client, request;
    uint64_t turn;       /* number of the reservation: a message of an older one changes nothing */
    uint64_t len_bytes;  /* RESERVE: of the longest write that may come */
    uint64_t wait_ns;    /* ANSWER, ASK: at most so long until a write begins, for what the server knows */
    uint64_t service_ns; /* and so long for itself; 0: not known yet */
    uint64_t idle_ns;    /* the server has not worked for so long: its times are as old */
};

struct twochoice_placement_config {
    uint32_t servers;         /* ids 0..servers-1; 1..TWOCHOICE_SERVERS_MAX */
    uint32_t max_writes;      /* k, at most, in one request: 1..TWOCHOICE_WRITES_MAX; 0: 128 */
    uint32_t max_requests;    /* open at once, 1..TWOCHOICE_REQUESTS_MAX; 0: 4 */
    bool include_home;        /* the homes of the writes are among the 2k servers (Section V-A) */
    uint64_t min_write_bytes; /* smaller writes go home at once; 0: TWOCHOICE_MIN_WRITE_BYTES; QOS_NOTHING: none does */
    uint64_t timeout_ns;      /* a write that has not ended by then is sent to another server; 0: 200 ms */
    uint64_t client;          /* this client's id, in its messages */
    uint64_t seed;            /* any */
};

/* A write to place. */
struct twochoice_write {
    uint32_t home;
    uint64_t len_bytes;
};

enum twochoice_place_todo {
    TWOCHOICE_PLACE_WAIT = 0, /* until next_ns, or until something is heard */
    TWOCHOICE_PLACE_SEND = 1, /* send the message to message.server */
    TWOCHOICE_PLACE_BIND = 2  /* send this write to the server; a second time: under a new stamp */
};
struct twochoice_place_order {
    enum twochoice_place_todo todo;
    uint32_t server, write; /* BIND: write is the index in the request. With the data the server is told the message's
                             * client, request and turn */
    uint64_t tag;           /* of the request: the caller's */
    bool again;             /* BIND: the write was sent elsewhere before, where it is overdue or failed */
    struct twochoice_message message;
    uint64_t next_ns; /* WAIT; QOS_NEVER: only when something is heard */
};

struct twochoice_intake_config {
    uint32_t server;           /* this server's id */
    uint32_t max_reservations; /* 1..TWOCHOICE_RESERVATIONS_MAX; 0: 4096. Full: the answer is FULL */
    uint32_t max_per_client;   /* 0: 64 */
    uint32_t parallel;         /* operations that the device works on at once; 0: 1 */
    uint64_t
        op_cost_bytes;   /* of an operation beside its bytes, up to TWOCHOICE_LEN_MAX; 0: 64 KiB; QOS_NOTHING: none */
    uint64_t timeout_ns; /* an ask without an answer is given up after 8 round trips, at most this; 0: 50 ms */
};
struct twochoice_intake_state {
    uint64_t ops, cost_bytes;     /* in flight */
    uint64_t mib_ns;              /* time for 1 MiB, as learned; 0: not known */
    uint64_t lead_ns;             /* an ask goes out so long before the device is idle */
    uint32_t reservations, asked; /* asked: writes asked for that have not come */
    uint64_t lost;                /* asks without an answer so far */
};

/* ==== chapter: placement ================================================================================
 *
 * Which servers get the k writes of a request: informed late binding.
 *
 *   The client reserves at 2k servers. Each answers with the time until a write would begin there and the time that it
 *   would take, as bounds: all that is reserved there counts. A server that is nearly idle asks for a write. Then the
 *   client sorts what it could use by the end: this ask, and every other place that it holds.
 *
 *      asks now      |=====|                      end of this write
 *      B answered    ......|==|                   earlier: better than the ask
 *      C answered    ..............|==|           later
 *
 *   If as many places are better as writes are left, the ask is declined, otherwise a write goes there. A bound that has
 *   passed counts as late as it is overdue, so a server that hangs is not waited for: the client then reserves again
 *   where it declined. A place of which nothing was heard counts with what the server took when it was last heard of;
 *   an ask that only such places would beat waits for a quarter of its own service time.
 *
 *   A write that takes 3/2 of its bound and two round trips is overdue. It is sent to another server, too, if this is
 *   needed at most once in 8 writes; after timeout_ns always. Where servers are fewer than 2k, one reservation is for
 *   several writes, ceil(2k / servers). Servers are drawn in proportion to the rate that was heard last.
 *
 *   Rates change, and a server that is always declined would never be seen to recover. So 1 request in 128 believes no
 *   slow server whose times are older than 8 writes of it.
 *
 *   States of a reservation:
 *
 *       PLANNED --RESERVE--> WAITS --ANSWER--> KNOWN --ASK--> ASKS --write--> KNOWN, or FREE after the last one
 *          ^                   '----------ASK------------------^ |
 *          '------- the better places were late ------ DECLINED <' RELEASE
 *
 *   When the last write is bound, what is left is released: FREE.
 */

enum twochoice_priv_offer_state {
    TWOCHOICE_PRIV_FREE,
    TWOCHOICE_PRIV_PLANNED,
    TWOCHOICE_PRIV_WAITS,
    TWOCHOICE_PRIV_KNOWN,
    TWOCHOICE_PRIV_ASKS,
    TWOCHOICE_PRIV_DECLINED
};
struct twochoice_priv_offer {
    enum twochoice_priv_offer_state state;
    uint32_t server, left; /* writes that may still go there */
    uint64_t turn, at_ns;  /* at_ns: of the bounds, or of the RESERVE */
    uint64_t wait_ns, service_ns, asked_ns;
};
enum twochoice_priv_sent_state { TWOCHOICE_PRIV_UNBOUND, TWOCHOICE_PRIV_BOUND, TWOCHOICE_PRIV_ENDED };
struct twochoice_priv_sent {
    enum twochoice_priv_sent_state state;
    uint32_t home, server;
    bool again;
    uint64_t at_ns, late_ns; /* when it was sent, and when it is overdue */
};
struct twochoice_priv_request {
    uint64_t id, tag; /* id 0: not used */
    struct twochoice_priv_offer *offer;
    struct twochoice_priv_sent *sent;
    uint32_t offers, writes, unbound, open; /* offers: used so far */
    uint64_t len_bytes, due_ns;             /* due_ns: nothing happens before, unless something is heard */
    bool curious;
};
struct twochoice_placement {
    struct twochoice_priv_request *request;
    struct twochoice_priv_offer *offer;
    struct twochoice_priv_sent *sent;
    uint64_t *service_ns; /* by server: as heard last; 0: never */
    uint64_t *drawn;      /* by server: number of the last draw that excludes it */
    uint8_t *state;
    uint32_t servers, max_writes, max_requests, max_offers;
    uint64_t min_write_bytes, timeout_ns, client, draws, requests, turns;
    uint64_t typical_ns, round_trip_ns; /* of the servers heard */
    uint32_t budget;                    /* for writes that are sent twice: 1 a write, 8 for one */
    bool include_home;
    struct qos_rng rng;
    struct qos_counters counters;
};

QOS_PRIV uint64_t twochoice_priv_remembered(const struct twochoice_placement *placement, uint32_t server)
{
    return placement->service_ns[server] ? placement->service_ns[server] : placement->typical_ns;
}

/* A server that is up and not excluded from this draw; one that takes x times as long as usual with probability 1 / x. */
QOS_PRIV uint32_t twochoice_priv_draw(struct twochoice_placement *placement)
{
    uint32_t tries, server, found = QOS_NONE;
    for (tries = 0; tries < 64; tries++) {
        uint64_t service_ns;
        server = (uint32_t)qos_rng_below(&placement->rng, placement->servers);
        if (placement->state[server] != TWOCHOICE_UP || placement->drawn[server] == placement->draws)
            continue;
        found = server;
        service_ns = twochoice_priv_remembered(placement, server);
        if (service_ns <= placement->typical_ns || qos_rng_below(&placement->rng, service_ns) < placement->typical_ns)
            break;
    }
    for (server = 0; server < placement->servers && found == QOS_NONE; server++)
        if (placement->state[server] == TWOCHOICE_UP && placement->drawn[server] != placement->draws)
            found = server;
    if (found != QOS_NONE)
        placement->drawn[found] = placement->draws;
    return found;
}

QOS_PRIV bool twochoice_priv_offer_of(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                      uint32_t server, uint32_t each)
{
    struct twochoice_priv_offer o = {TWOCHOICE_PRIV_PLANNED, server, each, 0, 0, 0, 0, 0};
    uint32_t i;
    placement->drawn[server] = placement->draws;
    for (i = 0; i < r->offers && r->offer[i].state != TWOCHOICE_PRIV_FREE; i++)
        ;
    if (i == placement->max_offers)
        return false;
    r->offers += i == r->offers;
    r->offer[i] = o;
    return true;
}

/* Plans reservations for `slots` writes more, at servers that the request does not use. */
QOS_PRIV uint32_t twochoice_priv_plan(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                      uint32_t slots)
{
    uint32_t i, each = (slots + placement->servers - 1) / placement->servers, planned = 0;
    placement->draws++;
    for (i = 0; i < r->offers; i++)
        if (r->offer[i].state != TWOCHOICE_PRIV_FREE)
            placement->drawn[r->offer[i].server] = placement->draws;
    for (i = 0; i < r->writes; i++)
        if (r->sent[i].again)
            placement->drawn[r->sent[i].server] = placement->draws;
    for (i = 0; i < r->writes && placement->include_home && planned < slots; i++) {
        uint32_t home = r->sent[i].home;
        if (r->sent[i].state == TWOCHOICE_PRIV_UNBOUND && placement->state[home] == TWOCHOICE_UP &&
            placement->drawn[home] != placement->draws && twochoice_priv_offer_of(placement, r, home, each))
            planned += each;
    }
    while (planned < slots) {
        uint32_t server = twochoice_priv_draw(placement);
        if (server == QOS_NONE || !twochoice_priv_offer_of(placement, r, server, each))
            break;
        planned += each;
    }
    return planned;
}

QOS_PRIV const char *twochoice_placement_config_error(const struct twochoice_placement_config *config)
{
    if (!config)
        return "config: is NULL; give a struct twochoice_placement_config";
    if (config->servers == 0 || config->servers > TWOCHOICE_SERVERS_MAX)
        return "servers: give 1..TWOCHOICE_SERVERS_MAX";
    if (config->max_writes > TWOCHOICE_WRITES_MAX)
        return "max_writes: give 1..TWOCHOICE_WRITES_MAX, or 0 for 128";
    if (config->max_requests > TWOCHOICE_REQUESTS_MAX)
        return "max_requests: give 1..TWOCHOICE_REQUESTS_MAX, or 0 for 4";
    if (config->timeout_ns > TWOCHOICE_TIME_MAX)
        return "timeout_ns: give 1..TWOCHOICE_TIME_MAX, or 0 for 200 ms";
    return NULL;
}

QOS_PRIV void twochoice_priv_placement_layout(struct qos_layout *layout, void *mem,
                                              struct twochoice_placement *placement,
                                              const struct twochoice_placement_config *config)
{
    size_t n = config->servers, requests;
    qos_layout_begin(layout, mem);
    placement->servers = config->servers;
    placement->max_writes = (uint32_t)qos_default(config->max_writes, 128);
    placement->max_requests = (uint32_t)qos_default(config->max_requests, 4);
    placement->max_offers = 4 * placement->max_writes;
    requests = placement->max_requests;
    placement->request = (struct twochoice_priv_request *)qos_layout_part(
        layout, requests, sizeof(struct twochoice_priv_request), QOS_CACHE_LINE);
    placement->offer = (struct twochoice_priv_offer *)qos_layout_part(
        layout, requests * placement->max_offers, sizeof(struct twochoice_priv_offer), QOS_CACHE_LINE);
    placement->sent = (struct twochoice_priv_sent *)qos_layout_part(layout, requests * placement->max_writes,
                                                                    sizeof(struct twochoice_priv_sent), QOS_CACHE_LINE);
    placement->service_ns = (uint64_t *)qos_layout_part(layout, n, sizeof(uint64_t), QOS_CACHE_LINE);
    placement->drawn = (uint64_t *)qos_layout_part(layout, n, sizeof(uint64_t), QOS_CACHE_LINE);
    placement->state = (uint8_t *)qos_layout_part(layout, n, sizeof(uint8_t), QOS_CACHE_LINE);
}

QOS_PRIV size_t twochoice_placement_memsize(const struct twochoice_placement_config *config)
{
    struct qos_layout layout;
    struct twochoice_placement scratch;
    if (twochoice_placement_config_error(config))
        return 0;
    twochoice_priv_placement_layout(&layout, NULL, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_PRIV enum qos_status twochoice_placement_init(struct twochoice_placement *placement, void *mem, size_t size_bytes,
                                                  const struct twochoice_placement_config *config)
{
    struct qos_layout layout;
    struct twochoice_placement scratch;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(placement);
    if (twochoice_placement_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    twochoice_priv_placement_layout(&layout, NULL, &scratch, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    __builtin_memset(placement, 0, sizeof *placement);
    twochoice_priv_placement_layout(&layout, mem, placement, config);
    placement->min_write_bytes =
        config->min_write_bytes == QOS_NOTHING ? 0 : qos_default(config->min_write_bytes, TWOCHOICE_MIN_WRITE_BYTES);
    placement->timeout_ns = qos_default(config->timeout_ns, UINT64_C(200000000));
    placement->client = config->client;
    placement->include_home = config->include_home;
    qos_rng_seed(&placement->rng, config->seed);
    for (i = 0; i < placement->servers; i++) {
        placement->service_ns[i] = placement->drawn[i] = 0;
        placement->state[i] = TWOCHOICE_UP;
    }
    for (i = 0; i < placement->max_requests; i++) {
        __builtin_memset(&placement->request[i], 0, sizeof placement->request[i]);
        placement->request[i].offer = placement->offer + (size_t)i * placement->max_offers;
        placement->request[i].sent = placement->sent + (size_t)i * placement->max_writes;
    }
    return QOS_OK;
}

QOS_PRIV enum qos_status twochoice_placement_set_server(struct twochoice_placement *placement, uint32_t server,
                                                        enum twochoice_server_state state)
{
    QOS_ASSERT(placement);
    if (server >= placement->servers)
        return QOS_ENOENT;
    if ((uint32_t)state > TWOCHOICE_FULL)
        return QOS_ERANGE;
    placement->state[server] = (uint8_t)state;
    return QOS_OK;
}

QOS_PRIV enum qos_status twochoice_placement_begin(struct twochoice_placement *placement, uint64_t now_ns,
                                                   const struct twochoice_write *writes, uint32_t k, uint64_t tag,
                                                   uint64_t *request)
{
    struct twochoice_priv_request *r;
    uint32_t i;
    QOS_ASSERT(placement && writes && request);
    if (k == 0 || k > placement->max_writes)
        return QOS_ERANGE;
    for (i = 0; i < k; i++)
        if (writes[i].home >= placement->servers)
            return QOS_ENOENT;
    for (i = 0; i < placement->max_requests && placement->request[i].id; i++)
        ;
    if (i == placement->max_requests)
        return QOS_EFULL;
    r = &placement->request[i];
    *request = r->id = ++placement->requests * TWOCHOICE_REQUESTS_MAX + i;
    r->tag = tag;
    r->offers = 0;
    r->writes = r->unbound = r->open = k;
    r->len_bytes = 0;
    r->due_ns = now_ns;
    r->curious = qos_rng_below(&placement->rng, 128) == 0;
    for (i = 0; i < k; i++) {
        const struct twochoice_priv_sent sent = {TWOCHOICE_PRIV_UNBOUND, writes[i].home, 0, false, 0, 0};
        r->sent[i] = sent;
        r->len_bytes = qos_max(r->len_bytes, writes[i].len_bytes);
    }
    placement->budget = (uint32_t)qos_min(placement->budget + k, 1024);
    return QOS_OK;
}

QOS_PRIV struct twochoice_priv_request *twochoice_priv_request_of(struct twochoice_placement *placement,
                                                                  uint64_t request)
{
    struct twochoice_priv_request *r = &placement->request[request % TWOCHOICE_REQUESTS_MAX % placement->max_requests];
    return request && r->id == request ? r : NULL;
}

/* What the server said of itself is remembered, and counts a sixteenth in what is typical. */
QOS_PRIV void twochoice_priv_remember(struct twochoice_placement *placement, uint32_t server, uint64_t service_ns)
{
    uint64_t typical = placement->typical_ns;
    service_ns = qos_min(service_ns, placement->timeout_ns);
    placement->service_ns[server] = service_ns;
    if (typical == 0)
        placement->typical_ns = service_ns;
    else if (service_ns > 4 * typical)
        placement->typical_ns = typical + typical / 16 + 1; /* one slow server says little */
    else
        placement->typical_ns = typical - typical / 16 + service_ns / 16;
}

/* An ANSWER or an ASK. Returns true if it must be answered with a RELEASE: nobody waits for it any more. */
QOS_PRIV bool twochoice_placement_heard(struct twochoice_placement *placement, uint64_t now_ns,
                                        const struct twochoice_message *message)
{
    struct twochoice_priv_request *r = twochoice_priv_request_of(placement, message->request);
    bool asks = message->type == TWOCHOICE_ASK;
    uint64_t service_ns = message->service_ns;
    uint32_t i;
    if (message->server >= placement->servers)
        return false;
    if (service_ns)
        twochoice_priv_remember(placement, message->server, service_ns);
    else
        service_ns = placement->typical_ns;
    for (i = 0; r && i < r->offers; i++) {
        struct twochoice_priv_offer *o = &r->offer[i];
        if (o->turn != message->turn || o->server != message->server || o->state < TWOCHOICE_PRIV_WAITS ||
            o->state > TWOCHOICE_PRIV_ASKS)
            continue;
        r->due_ns = now_ns;
        if (o->state == TWOCHOICE_PRIV_WAITS) {
            uint64_t took = qos_elapsed_ns(o->at_ns, now_ns), old = placement->round_trip_ns;
            placement->round_trip_ns = old ? old - old / 8 + took / 8 : took;
        }
        if (message->state != TWOCHOICE_UP) {
            o->state = TWOCHOICE_PRIV_FREE;
            qos_counter_add(&placement->counters.refused, 1);
            return false;
        }
        if (o->state == TWOCHOICE_PRIV_ASKS)
            return false; /* said before */
        if (r->curious && service_ns > placement->typical_ns && message->idle_ns / 8 > service_ns)
            service_ns = placement->typical_ns / 2;
        o->at_ns = o->asked_ns = now_ns;
        o->wait_ns = qos_min(message->wait_ns, TWOCHOICE_TIME_MAX);
        o->service_ns = qos_min(service_ns, TWOCHOICE_TIME_MAX);
        o->state = asks ? TWOCHOICE_PRIV_ASKS : TWOCHOICE_PRIV_KNOWN;
        return false;
    }
    return asks;
}

/* When write number j (0: the next one) of an offer would end. */
QOS_PRIV uint64_t twochoice_priv_ends(const struct twochoice_placement *placement, const struct twochoice_priv_offer *o,
                                      uint64_t now_ns, uint32_t j)
{
    uint64_t begins, service_ns = o->service_ns;
    if (o->state <= TWOCHOICE_PRIV_WAITS)
        return now_ns + (j + 1) * twochoice_priv_remembered(placement, o->server);
    begins = o->at_ns + o->wait_ns;
    if (begins < now_ns && o->state == TWOCHOICE_PRIV_KNOWN)
        begins = now_ns + (now_ns - begins);
    return qos_max(begins, now_ns) + (j + 1) * service_ns;
}

/* How many places, at most as many as writes are left, end earlier than `ends_ns`. unheard: also those without an
 * answer. */
QOS_PRIV uint32_t twochoice_priv_better(const struct twochoice_placement *placement,
                                        const struct twochoice_priv_request *r, uint32_t me, uint64_t now_ns,
                                        uint64_t ends_ns, bool unheard)
{
    uint32_t i, j, n = 0;
    for (i = 0; i < r->offers; i++) {
        const struct twochoice_priv_offer *o = &r->offer[i];
        if (i == me || o->state == TWOCHOICE_PRIV_FREE || o->state == TWOCHOICE_PRIV_DECLINED ||
            (o->state <= TWOCHOICE_PRIV_WAITS && !unheard))
            continue;
        for (j = 0; j < o->left; j++) {
            uint64_t other_ns = twochoice_priv_ends(placement, o, now_ns, j);
            if (other_ns > ends_ns || (other_ns == ends_ns && i > me))
                break;
            if (++n == r->unbound)
                return n;
        }
    }
    return n;
}

QOS_PRIV bool twochoice_priv_order(struct twochoice_placement *placement, const struct twochoice_priv_request *r,
                                   const struct twochoice_priv_offer *o, enum twochoice_message_type type,
                                   struct twochoice_place_order *out)
{
    struct twochoice_message *m = &out->message;
    out->todo = type ? TWOCHOICE_PLACE_SEND : TWOCHOICE_PLACE_BIND;
    out->server = m->server = o->server;
    out->tag = r->tag;
    m->type = type;
    m->count = type == TWOCHOICE_RESERVE ? o->left : 0;
    m->client = placement->client;
    m->request = r->id;
    m->turn = o->turn;
    m->len_bytes = r->len_bytes;
    return true;
}

/* A write goes to this server; one whose home it is, if there is one. */
QOS_PRIV bool twochoice_priv_bind(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                  struct twochoice_priv_offer *o, uint64_t now_ns, struct twochoice_place_order *out)
{
    uint64_t bound_ns = twochoice_priv_ends(placement, o, now_ns, 0) - now_ns;
    struct twochoice_priv_sent *s;
    uint32_t i, write = QOS_NONE;
    for (i = 0; i < r->writes; i++)
        if (r->sent[i].state == TWOCHOICE_PRIV_UNBOUND && (write == QOS_NONE || r->sent[i].home == o->server)) {
            write = i;
            if (r->sent[i].home == o->server)
                break;
        }
    s = &r->sent[write];
    (void)twochoice_priv_order(placement, r, o, (enum twochoice_message_type)0, out);
    out->write = write;
    out->again = s->again;
    s->state = TWOCHOICE_PRIV_BOUND;
    s->server = o->server;
    s->at_ns = now_ns;
    s->late_ns = now_ns + placement->timeout_ns;
    if (o->service_ns)
        s->late_ns = qos_min(s->late_ns, now_ns + bound_ns + bound_ns / 2 + 2 * placement->round_trip_ns);
    r->unbound--;
    qos_counter_add(&placement->counters.granted, 1);
    qos_counter_add(&placement->counters.borrowed, o->server != s->home);
    o->wait_ns += o->service_ns;
    o->state = --o->left ? TWOCHOICE_PRIV_KNOWN : TWOCHOICE_PRIV_FREE;
    return true;
}

QOS_PRIV void twochoice_priv_unbind(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                    struct twochoice_priv_sent *s, uint64_t now_ns)
{
    s->state = TWOCHOICE_PRIV_UNBOUND;
    s->again = true;
    r->unbound++;
    r->due_ns = now_ns;
    placement->service_ns[s->server] =
        qos_max(placement->service_ns[s->server], qos_min(qos_elapsed_ns(s->at_ns, now_ns), placement->timeout_ns));
    qos_counter_add(&placement->counters.waited, 1);
}

/* Takes back writes that are overdue. Returns when the next one is. */
QOS_PRIV uint64_t twochoice_priv_overdue(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                         uint64_t now_ns)
{
    uint64_t next_ns = QOS_NEVER;
    uint32_t i;
    for (i = 0; i < r->writes; i++) {
        struct twochoice_priv_sent *s = &r->sent[i];
        uint64_t last_ns = s->at_ns + placement->timeout_ns;
        if (s->state != TWOCHOICE_PRIV_BOUND)
            continue;
        if (now_ns < s->late_ns) {
            next_ns = qos_min(next_ns, s->late_ns);
        } else if (placement->budget >= 8 || now_ns >= last_ns) {
            placement->budget -= (uint32_t)qos_min(placement->budget, 8);
            twochoice_priv_unbind(placement, r, s, now_ns);
        } else {
            next_ns = qos_min(next_ns, last_ns);
        }
    }
    return next_ns;
}

/* The ask that ends first: a write goes there, it waits, or it is declined. */
QOS_PRIV bool twochoice_priv_judge(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                   uint64_t now_ns, struct twochoice_place_order *out)
{
    uint32_t i, best = QOS_NONE;
    uint64_t ends_ns, best_ns = 0;
    for (i = 0; i < r->offers; i++) {
        if (r->offer[i].state != TWOCHOICE_PRIV_ASKS)
            continue;
        ends_ns = twochoice_priv_ends(placement, &r->offer[i], now_ns, 0);
        if (best == QOS_NONE || ends_ns < best_ns) {
            best = i;
            best_ns = ends_ns;
        }
    }
    if (best == QOS_NONE)
        return false;
    if (twochoice_priv_better(placement, r, best, now_ns, best_ns, false) < r->unbound) {
        const uint64_t until_ns = r->offer[best].asked_ns + r->offer[best].service_ns / 4;
        if (now_ns >= until_ns || twochoice_priv_better(placement, r, best, now_ns, best_ns, true) < r->unbound)
            return twochoice_priv_bind(placement, r, &r->offer[best], now_ns, out);
        r->due_ns = qos_min(r->due_ns, until_ns);
    }
    for (i = 0; i < r->offers; i++) {
        struct twochoice_priv_offer *o = &r->offer[i];
        if (o->state != TWOCHOICE_PRIV_ASKS)
            continue;
        ends_ns = twochoice_priv_ends(placement, o, now_ns, 0);
        if (twochoice_priv_better(placement, r, i, now_ns, ends_ns, false) < r->unbound)
            continue;
        o->state = TWOCHOICE_PRIV_DECLINED;
        return twochoice_priv_order(placement, r, o, TWOCHOICE_RELEASE, out);
    }
    return false;
}

/* Reservations to send, to give up or to send again. */
QOS_PRIV bool twochoice_priv_reserve(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                     uint64_t now_ns, struct twochoice_place_order *out)
{
    const uint64_t patience_ns = placement->timeout_ns / 4;
    uint32_t i;
    for (i = 0; i < r->offers; i++) {
        struct twochoice_priv_offer *o = &r->offer[i];
        bool silent = o->state == TWOCHOICE_PRIV_WAITS && now_ns >= o->at_ns + patience_ns;
        if (o->state == TWOCHOICE_PRIV_FREE)
            continue;
        if (r->unbound == 0 || silent) {
            bool tell = o->state >= TWOCHOICE_PRIV_WAITS && o->state <= TWOCHOICE_PRIV_ASKS;
            if (silent)
                placement->service_ns[o->server] = placement->timeout_ns;
            o->state = TWOCHOICE_PRIV_FREE;
            if (tell)
                return twochoice_priv_order(placement, r, o, TWOCHOICE_RELEASE, out);
            continue;
        }
        if (o->state == TWOCHOICE_PRIV_DECLINED) {
            if (twochoice_priv_better(placement, r, i, now_ns, now_ns + o->service_ns, true) == r->unbound) {
                r->due_ns = qos_min(r->due_ns, now_ns + o->service_ns / 4 + 1);
                continue;
            }
            o->state = TWOCHOICE_PRIV_PLANNED;
        }
        if (o->state == TWOCHOICE_PRIV_PLANNED) {
            o->state = TWOCHOICE_PRIV_WAITS;
            o->at_ns = now_ns;
            o->turn = ++placement->turns;
            return twochoice_priv_order(placement, r, o, TWOCHOICE_RESERVE, out);
        }
        if (o->state == TWOCHOICE_PRIV_WAITS)
            r->due_ns = qos_min(r->due_ns, o->at_ns + patience_ns);
    }
    return false;
}

/* The next order of one request; false: none before r->due_ns. */
QOS_PRIV bool twochoice_priv_step(struct twochoice_placement *placement, struct twochoice_priv_request *r,
                                  uint64_t now_ns, struct twochoice_place_order *out)
{
    uint32_t i, slots = 0;
    r->due_ns = twochoice_priv_overdue(placement, r, now_ns);
    for (i = 0; i < r->offers; i++)
        slots += r->offer[i].state == TWOCHOICE_PRIV_FREE ? 0 : r->offer[i].left;
    if (slots < r->unbound)
        slots += twochoice_priv_plan(placement, r, 2 * (r->unbound - slots));
    if (r->unbound && slots == 0) { /* no server is up, or all were tried: home */
        struct twochoice_priv_offer home = {TWOCHOICE_PRIV_ASKS, 0, 1, 0, now_ns, 0, 0, now_ns};
        for (i = 0; r->sent[i].state != TWOCHOICE_PRIV_UNBOUND; i++)
            ;
        home.server = r->sent[i].home;
        return twochoice_priv_bind(placement, r, &home, now_ns, out);
    }
    if (twochoice_priv_reserve(placement, r, now_ns, out))
        return true;
    if (r->open == 0)
        r->id = 0;
    return r->unbound && twochoice_priv_judge(placement, r, now_ns, out);
}

QOS_PRIV void twochoice_placement_step(struct twochoice_placement *placement, uint64_t now_ns,
                                       struct twochoice_place_order *order)
{
    uint32_t i;
    __builtin_memset(order, 0, sizeof *order);
    order->next_ns = QOS_NEVER;
    for (i = 0; i < placement->max_requests; i++) {
        struct twochoice_priv_request *r = &placement->request[i];
        if (r->id == 0)
            continue;
        if (r->due_ns <= now_ns && twochoice_priv_step(placement, r, now_ns, order)) {
            r->due_ns = now_ns; /* there may be more to do */
            return;
        }
        order->next_ns = qos_min(order->next_ns, r->due_ns);
    }
}

/* A write has ended: durable, wherever. */
QOS_PRIV enum qos_status twochoice_placement_ended(struct twochoice_placement *placement, uint64_t now_ns,
                                                   uint64_t request, uint32_t write)
{
    struct twochoice_priv_request *r = twochoice_priv_request_of(placement, request);
    if (!r)
        return QOS_ENOENT;
    if (write >= r->writes)
        return QOS_ERANGE;
    if (r->sent[write].state == TWOCHOICE_PRIV_ENDED)
        return QOS_OK;
    r->unbound -= r->sent[write].state == TWOCHOICE_PRIV_UNBOUND;
    r->sent[write].state = TWOCHOICE_PRIV_ENDED;
    r->open--;
    r->due_ns = now_ns;
    return QOS_OK;
}

QOS_PRIV bool twochoice_placement_is_small(const struct twochoice_placement *placement, uint64_t len_bytes)
{
    return len_bytes < placement->min_write_bytes;
}

/* The write failed where it was sent: it goes to another server. */
QOS_PRIV enum qos_status twochoice_placement_failed(struct twochoice_placement *placement, uint64_t now_ns,
                                                    uint64_t request, uint32_t write)
{
    struct twochoice_priv_request *r = twochoice_priv_request_of(placement, request);
    if (!r)
        return QOS_ENOENT;
    if (write >= r->writes)
        return QOS_ERANGE;
    if (r->sent[write].state == TWOCHOICE_PRIV_BOUND)
        twochoice_priv_unbind(placement, r, &r->sent[write], now_ns);
    return QOS_OK;
}

/* ==== chapter: intake ===================================================================================
 *
 * In every server: who may write to it next, and how fast its device drains.
 *
 *   rate   Each end of an operation adds the time that the device worked for it, and its cost (len_bytes + op_cost), to
 *          two sums that forget a quarter each time. With fewer than `parallel` operations in flight the time counts in
 *          part, so the quotient is the time that a device with enough work needs. An operation that takes longer than
 *          expected counts before it ends.
 *   ask    The turn goes round over the reservations, one write each. While what is in flight, and asked for, drains in
 *          less than three times the learned time from an ask to its write, the next one is asked. (An idle device
 *          always asks; one whose rate is not known does only when idle.)
 *
 *   States of a reservation; left: writes that may be asked for, asked: asks without an answer:
 *
 *       RESERVE -> [left > 0] --ask--> [left - 1, asked + 1] --the write arrives--> [asked - 1] -> gone when both are 0
 *                       '--------------------'--RELEASE, or no answer in time--> gone
 *
 * INVARIANTS
 *
 *   1. Each entry in use is in the chain of its client. It is in the turn if and only if left > 0; in the queue of
 *      deadlines if and only if asked > 0.
 *   2. reserved is the sum of left times cost over all entries, awaited the sum of asked times cost.
 */

struct twochoice_priv_entry {
    uint64_t client, request, turn, cost, asked_ns;
    uint32_t left, asked;
    uint32_t chain, next, prev, older, newer; /* of the client; of the turn; of the deadlines */
};
struct twochoice_priv_list {
    uint32_t head, tail;
};
struct twochoice_intake {
    struct twochoice_priv_entry *entry;
    uint32_t *chain;
    uint32_t server, max, max_per_client, chains, parallel, unused, used;
    struct twochoice_priv_list turn, waiting;
    uint64_t op_cost, timeout_ns;
    uint64_t ops, cost, reserved, awaited; /* in flight; in the turn; asked for */
    uint32_t asked;
    uint64_t work_ns, work_cost; /* sums that forget: their quotient is the time for a unit of cost */
    uint64_t last_ns;            /* when the device began with what it does now, or ended the last operation */
    uint64_t lead_ns;            /* from an ask to its write */
    uint64_t lost;
};

QOS_PRIV const char *twochoice_intake_config_error(const struct twochoice_intake_config *config)
{
    if (!config)
        return "config: is NULL; give a struct twochoice_intake_config";
    if (config->max_reservations > TWOCHOICE_RESERVATIONS_MAX)
        return "max_reservations: give 1..TWOCHOICE_RESERVATIONS_MAX, or 0 for 4096";
    if (config->parallel > TWOCHOICE_RESERVATIONS_MAX)
        return "parallel: give 1..TWOCHOICE_RESERVATIONS_MAX, or 0 for 1";
    if (config->op_cost_bytes != QOS_NOTHING && config->op_cost_bytes > TWOCHOICE_LEN_MAX)
        return "op_cost_bytes: give up to TWOCHOICE_LEN_MAX, QOS_NOTHING, or 0 for 64 KiB";
    if (config->timeout_ns > TWOCHOICE_TIME_MAX)
        return "timeout_ns: give 1..TWOCHOICE_TIME_MAX, or 0 for 50 ms";
    return NULL;
}

QOS_PRIV void twochoice_priv_intake_layout(struct qos_layout *layout, void *mem, struct twochoice_intake *intake,
                                           const struct twochoice_intake_config *config)
{
    qos_layout_begin(layout, mem);
    intake->max = (uint32_t)qos_default(config->max_reservations, 4096);
    intake->chains = 1;
    while (intake->chains < intake->max)
        intake->chains *= 2;
    intake->entry = (struct twochoice_priv_entry *)qos_layout_part(layout, intake->max,
                                                                   sizeof(struct twochoice_priv_entry), QOS_CACHE_LINE);
    intake->chain = (uint32_t *)qos_layout_part(layout, intake->chains, sizeof(uint32_t), QOS_CACHE_LINE);
}

QOS_PRIV size_t twochoice_intake_memsize(const struct twochoice_intake_config *config)
{
    struct qos_layout layout;
    struct twochoice_intake scratch;
    if (twochoice_intake_config_error(config))
        return 0;
    twochoice_priv_intake_layout(&layout, NULL, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_PRIV enum qos_status twochoice_intake_init(struct twochoice_intake *intake, void *mem, size_t size_bytes,
                                               const struct twochoice_intake_config *config)
{
    struct qos_layout layout;
    struct twochoice_intake scratch;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(intake);
    if (twochoice_intake_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    twochoice_priv_intake_layout(&layout, NULL, &scratch, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    __builtin_memset(intake, 0, sizeof *intake);
    twochoice_priv_intake_layout(&layout, mem, intake, config);
    intake->server = config->server;
    intake->max_per_client = (uint32_t)qos_default(config->max_per_client, 64);
    intake->parallel = (uint32_t)qos_default(config->parallel, 1);
    intake->op_cost = config->op_cost_bytes == QOS_NOTHING ? 0 : qos_default(config->op_cost_bytes, 65536);
    intake->timeout_ns = qos_default(config->timeout_ns, UINT64_C(50000000));
    intake->turn.head = intake->turn.tail = intake->waiting.head = intake->waiting.tail = QOS_NONE;
    for (i = 0; i < intake->max; i++)
        intake->entry[i].next = i + 1 < intake->max ? i + 1 : QOS_NONE;
    for (i = 0; i < intake->chains; i++)
        intake->chain[i] = QOS_NONE;
    return QOS_OK;
}

QOS_PRIV uint64_t twochoice_priv_cost(const struct twochoice_intake *intake, uint64_t len_bytes)
{
    return qos_min(len_bytes, TWOCHOICE_LEN_MAX) + intake->op_cost;
}

QOS_PRIV uint32_t *twochoice_priv_chain_of(struct twochoice_intake *intake, uint64_t client)
{
    return &intake->chain[qos_wrap_mul(client, UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (intake->chains - 1)];
}

/* *mine: how many the client has. */
QOS_PRIV uint32_t twochoice_priv_find_entry(struct twochoice_intake *intake, uint64_t client, uint64_t request,
                                            uint64_t turn, uint32_t *mine)
{
    uint32_t i = *twochoice_priv_chain_of(intake, client), found = QOS_NONE;
    for (*mine = 0; i != QOS_NONE; i = intake->entry[i].chain) {
        const struct twochoice_priv_entry *e = &intake->entry[i];
        *mine += e->client == client;
        if (e->client == client && e->request == request && e->turn == turn)
            found = i;
    }
    return found;
}

QOS_PRIV void twochoice_priv_turn(struct twochoice_intake *intake, uint32_t i, bool in)
{
    struct twochoice_priv_entry *e = &intake->entry[i];
    struct twochoice_priv_list *l = &intake->turn;
    if (in) {
        e->prev = l->tail;
        e->next = QOS_NONE;
    }
    *(e->prev == QOS_NONE ? &l->head : &intake->entry[e->prev].next) = in ? i : e->next;
    *(e->next == QOS_NONE ? &l->tail : &intake->entry[e->next].prev) = in ? i : e->prev;
}

QOS_PRIV void twochoice_priv_waiting(struct twochoice_intake *intake, uint32_t i, bool in)
{
    struct twochoice_priv_entry *e = &intake->entry[i];
    struct twochoice_priv_list *l = &intake->waiting;
    if (in) {
        e->older = l->tail;
        e->newer = QOS_NONE;
    }
    *(e->older == QOS_NONE ? &l->head : &intake->entry[e->older].newer) = in ? i : e->newer;
    *(e->newer == QOS_NONE ? &l->tail : &intake->entry[e->newer].older) = in ? i : e->older;
}

/* The two counts of an entry. Everything that follows from them is changed here. */
QOS_PRIV void twochoice_priv_set(struct twochoice_intake *intake, uint32_t i, uint32_t left, uint32_t asked)
{
    struct twochoice_priv_entry *e = &intake->entry[i];
    if (e->left)
        twochoice_priv_turn(intake, i, false);
    if (e->asked)
        twochoice_priv_waiting(intake, i, false);
    intake->reserved -= e->left * e->cost;
    intake->awaited -= e->asked * e->cost;
    intake->asked -= e->asked;
    e->left = left;
    e->asked = asked;
    intake->reserved += left * e->cost;
    intake->awaited += asked * e->cost;
    intake->asked += asked;
    if (left)
        twochoice_priv_turn(intake, i, true);
    if (asked)
        twochoice_priv_waiting(intake, i, true);
    if (left == 0 && asked == 0) {
        uint32_t *link = twochoice_priv_chain_of(intake, e->client);
        while (*link != i)
            link = &intake->entry[*link].chain;
        *link = e->chain;
        e->next = intake->unused;
        intake->unused = i;
        intake->used--;
    }
}

/* Time for so much cost, as learned; an operation that is late counts as far as it is late. */
QOS_PRIV uint64_t twochoice_priv_time(const struct twochoice_intake *intake, uint64_t now_ns, uint64_t cost)
{
    uint64_t time = intake->work_ns, of = intake->work_cost;
    if (of == 0)
        return 0;
    if (intake->ops) {
        uint64_t busy = qos_min(intake->ops, intake->parallel), one = intake->cost / intake->ops;
        uint64_t since = qos_mul_div_floor(qos_elapsed_ns(intake->last_ns, now_ns), busy, intake->parallel);
        if (since > qos_mul_div_ceil(time, one, of)) {
            time = time / 2 + qos_min(since, TWOCHOICE_TIME_MAX);
            of = of / 2 + one;
        }
    }
    return qos_min(qos_mul_div_ceil(cost, time, of), TWOCHOICE_TIME_MAX);
}

/* Until what is in flight and asked for has drained. */
QOS_PRIV uint64_t twochoice_priv_drain(const struct twochoice_intake *intake, uint64_t now_ns)
{
    uint64_t drain_ns = twochoice_priv_time(intake, now_ns, intake->cost + intake->awaited), done_ns = 0;
    if (intake->ops)
        done_ns = qos_min(qos_elapsed_ns(intake->last_ns, now_ns),
                          twochoice_priv_time(intake, now_ns, intake->cost / intake->ops));
    return qos_sat_sub(drain_ns, done_ns);
}

QOS_PRIV void twochoice_priv_bounds(const struct twochoice_intake *intake, uint64_t now_ns, uint64_t ahead,
                                    uint64_t cost, struct twochoice_message *message)
{
    message->server = intake->server;
    message->state = TWOCHOICE_UP;
    message->wait_ns = twochoice_priv_drain(intake, now_ns) + twochoice_priv_time(intake, now_ns, ahead);
    message->service_ns =
        qos_min(qos_sat_mul(twochoice_priv_time(intake, now_ns, cost), intake->parallel), TWOCHOICE_TIME_MAX);
    message->idle_ns = intake->ops ? 0 : qos_elapsed_ns(intake->last_ns, now_ns);
}

/* A RESERVE or a RELEASE. Returns true if *answer is to be sent to message->client. */
QOS_PRIV bool twochoice_intake_heard(struct twochoice_intake *intake, uint64_t now_ns,
                                     const struct twochoice_message *message, struct twochoice_message *answer)
{
    uint64_t ahead = intake->reserved, cost = twochoice_priv_cost(intake, message->len_bytes);
    uint32_t mine, i = twochoice_priv_find_entry(intake, message->client, message->request, message->turn, &mine);
    struct twochoice_priv_entry *e;
    if (message->type == TWOCHOICE_RELEASE && i != QOS_NONE)
        twochoice_priv_set(intake, i, 0, 0);
    if (message->type != TWOCHOICE_RESERVE)
        return false;
    *answer = *message;
    answer->type = TWOCHOICE_ANSWER;
    twochoice_priv_bounds(intake, now_ns, ahead, cost, answer);
    if (i != QOS_NONE) /* said before */
        return true;
    if (intake->unused == QOS_NONE || mine >= intake->max_per_client || message->count == 0) {
        answer->state = TWOCHOICE_FULL;
        return true;
    }
    i = intake->unused;
    e = &intake->entry[i];
    intake->unused = e->next;
    intake->used++;
    e->client = message->client;
    e->request = message->request;
    e->turn = message->turn;
    e->cost = cost;
    e->left = e->asked = 0;
    e->chain = *twochoice_priv_chain_of(intake, e->client);
    *twochoice_priv_chain_of(intake, e->client) = i;
    twochoice_priv_set(intake, i, (uint32_t)qos_min(message->count, TWOCHOICE_WRITES_MAX), 0);
    return true;
}

/* When the oldest ask is given up: a client may think for a quarter of the service time. */
QOS_PRIV uint64_t twochoice_priv_gives_up_ns(const struct twochoice_intake *intake, uint64_t now_ns)
{
    const struct twochoice_priv_entry *e = &intake->entry[intake->waiting.head];
    uint64_t patience_ns = intake->timeout_ns;
    if (intake->lead_ns)
        patience_ns = qos_min(patience_ns, 8 * intake->lead_ns + twochoice_priv_time(intake, now_ns, e->cost));
    return qos_sat_add(e->asked_ns, patience_ns);
}

/* The next ASK; true: send it to ask->client. Call until false. */
QOS_PRIV bool twochoice_intake_ask(struct twochoice_intake *intake, uint64_t now_ns, struct twochoice_message *ask)
{
    struct twochoice_priv_entry *e;
    uint32_t i;
    while (intake->waiting.head != QOS_NONE && twochoice_priv_gives_up_ns(intake, now_ns) <= now_ns) {
        intake->lost += intake->entry[intake->waiting.head].asked;
        twochoice_priv_set(intake, intake->waiting.head, 0, 0);
    }
    i = intake->turn.head;
    if (i == QOS_NONE)
        return false;
    if (intake->ops + intake->asked >= intake->parallel &&
        (intake->work_cost == 0 || twochoice_priv_drain(intake, now_ns) >= 3 * intake->lead_ns))
        return false;
    e = &intake->entry[i];
    __builtin_memset(ask, 0, sizeof *ask);
    ask->type = TWOCHOICE_ASK;
    ask->client = e->client;
    ask->request = e->request;
    ask->turn = e->turn;
    ask->len_bytes = e->cost - intake->op_cost;
    twochoice_priv_bounds(intake, now_ns, 0, e->cost, ask);
    e->asked_ns = now_ns;
    twochoice_priv_set(intake, i, e->left - 1, e->asked + 1);
    return true;
}

/* When to call twochoice_intake_ask again, if nothing else happens before. */
QOS_PRIV uint64_t twochoice_intake_next_ns(const struct twochoice_intake *intake, uint64_t now_ns)
{
    uint64_t next_ns = QOS_NEVER, drain_ns, lead_ns = 3 * intake->lead_ns;
    if (intake->waiting.head != QOS_NONE)
        next_ns = qos_max(now_ns, twochoice_priv_gives_up_ns(intake, now_ns));
    if (intake->turn.head == QOS_NONE || intake->work_cost == 0)
        return next_ns;
    drain_ns = twochoice_priv_drain(intake, now_ns);
    if (drain_ns >= lead_ns && intake->ops)
        next_ns = qos_min(next_ns, now_ns + (drain_ns - lead_ns) + 1);
    return next_ns;
}

/* An operation of len_bytes (any, not only placed writes) starts, or ends. */
QOS_PRIV void twochoice_intake_begin(struct twochoice_intake *intake, uint64_t now_ns, uint64_t len_bytes)
{
    if (intake->ops == 0)
        intake->last_ns = now_ns;
    intake->ops++;
    intake->cost = qos_sat_add(intake->cost, twochoice_priv_cost(intake, len_bytes));
}

QOS_PRIV void twochoice_intake_end(struct twochoice_intake *intake, uint64_t now_ns, uint64_t len_bytes)
{
    uint64_t cost = twochoice_priv_cost(intake, len_bytes), worked;
    if (intake->ops == 0)
        return;
    worked = qos_min(qos_elapsed_ns(intake->last_ns, now_ns), TWOCHOICE_TIME_MAX);
    worked = qos_mul_div_floor(worked, qos_min(intake->ops, intake->parallel), intake->parallel);
    intake->work_ns += qos_max(worked, 1) - intake->work_ns / 4;
    intake->work_cost += cost - intake->work_cost / 4;
    intake->ops--;
    intake->cost = intake->ops ? qos_sat_sub(intake->cost, cost) : 0;
    intake->last_ns = now_ns;
}

/* A write came under this turn of this request: it begins, and is no longer awaited. */
QOS_PRIV void twochoice_intake_arrived(struct twochoice_intake *intake, uint64_t now_ns, uint64_t client,
                                       uint64_t request, uint64_t turn, uint64_t len_bytes)
{
    uint32_t mine, i = twochoice_priv_find_entry(intake, client, request, turn, &mine);
    if (i != QOS_NONE && intake->entry[i].asked) {
        struct twochoice_priv_entry *e = &intake->entry[i];
        uint64_t took = qos_min(qos_elapsed_ns(e->asked_ns, now_ns), intake->timeout_ns), old = intake->lead_ns;
        intake->lead_ns = old ? old - old / 8 + took / 8 : took;
        twochoice_priv_set(intake, i, e->left, e->asked - 1);
    }
    twochoice_intake_begin(intake, now_ns, len_bytes);
}

/* Time until what is in flight and asked for has drained: the load for a maintainer. */
QOS_PRIV uint64_t twochoice_intake_load_ns(const struct twochoice_intake *intake, uint64_t now_ns)
{
    return twochoice_priv_drain(intake, now_ns);
}

QOS_PRIV enum qos_status twochoice_intake_info(const struct twochoice_intake *intake, uint64_t now_ns,
                                               struct twochoice_intake_state *out)
{
    out->ops = intake->ops;
    out->cost_bytes = intake->cost;
    out->mib_ns = twochoice_priv_time(intake, now_ns, twochoice_priv_cost(intake, 1 << 20));
    out->lead_ns = intake->lead_ns;
    out->reservations = intake->used;
    out->asked = intake->asked;
    out->lost = intake->lost;
    return QOS_OK;
}

#endif
