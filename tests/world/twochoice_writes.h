/* twochoice_writes.h - two modes of world/twochoice.c: `writes`, clients with a placement and servers with an intake that hang, lie
 * or fail, over a network that delays and loses; `pulls`, a maintainer that brings bytes home. */

#include "examples/world/networks.h"

#define SERVERS 16u
#define CLIENTS 6u
#define SILENT 2u /* clients that reserve and do not write */
#define EACH 8u   /* writes of a request */
#define REQUESTS 64u
#define MS UINT64_C(1000000)
#define ENTRIES 2048u
#define OFFERS 96u /* of a request */

enum what { BEGIN, CLIENT, SERVER, DONE, SAID, SILENCE, OWNS, CHANGES, SET_BACK };

/* A reservation, as its server knows it. */
struct entry {
    uint64_t client, request, turn, seq; /* seq: of the server's asks so far, when it came */
    uint32_t count, asked, came;         /* came: of the writes that were asked for */
    bool released, repeated;             /* repeated: its message came again, and reserves again or not */
};
struct op {
    uint64_t client, request, turn, len;
    uint32_t write;
    uint64_t ends_ns; /* 0: a channel has not begun it */
};
struct host {
    struct twochoice_intake intake;
    struct entry entry[ENTRIES];
    struct op op[64];
    uint64_t last_of[CLIENTS + SILENT]; /* number of the last ask to this client; 0: none */
    uint64_t seq, asked_ns, hangs_ns, wakes_ns,
        idle_ns; /* asked_ns: of the last ask; hangs_ns: from then on nothing ends */
    uint32_t entries, ops;
    uint64_t cost, op_cost; /* of the operations in flight, and what each costs beside its bytes */
    uint64_t lost;
    enum twochoice_server_state state; /* what it says itself */
    bool lies, deaf;
};
struct sent {
    uint32_t home, server, times;
    uint64_t at_ns, len, pause_ns; /* pause_ns: as it failed at home so often */
    bool ended, failed;
};
struct client {
    struct twochoice_placement placement;
    struct asked {
        uint64_t id, begun_ns, wait_ns; /* wait_ns: the longest bound that a server stated */
        uint32_t k, open, least_up;     /* least_up: so many servers were up, at least, since it began */
        struct sent sent[EACH];
        uint32_t asks[SERVERS], offers; /* asks: that came and were not used */
        struct offer {
            uint64_t turn, said_ns; /* said_ns: of the last ANSWER or ASK */
            uint32_t server, left;
            bool gone, asks; /* gone: refused, or released; asks: an ASK came */
        } offer[OFFERS];
    } request[REQUESTS];
    uint32_t requests, open, max_requests, soon;        /* soon: writes that were sent again before the timeout */
    uint64_t wakes_ns, begun, sent, borrowed, ahead_ns; /* ahead_ns: its clock is so far ahead of `now` */
    uint64_t reserved, refused; /* reservations, and those that were refused or given up while a write had no server */
    enum twochoice_server_state state[SERVERS];
};

static struct host host[SERVERS];
static struct client client[CLIENTS];
static unsigned char intakes[SERVERS][1 << 15] __attribute__((aligned(64)));
static unsigned char placements[CLIENTS][1 << 15] __attribute__((aligned(64)));
static struct world_network network;
static struct world_queue due;
static uint32_t servers, clients, silent, per_client, max_reservations, channels; /* channels: of each device */
static uint64_t timeout_ns, client_requests, start_ns;                            /* start_ns: of all clocks */
/* What is said about a write, under way to its client. */
static struct said {
    uint32_t client, write, server;
    uint64_t request;
} said[4096];
static uint32_t saids;

/* What client c calls itself, and whose name it is. */
static uint32_t named(uint32_t c)
{
    return world_again == WORLD_PERMUTED ? clients + silent - 1 - c : c;
}

static void wake(uint32_t kind, uint32_t number, uint64_t in_ns)
{
    world_queue_add(&due, now + in_ns, kind, number);
}

/* Promise `wire`: a message comes out as it went in; one with a changed bit, or a part of one, does not. */
static void judge_wire(const struct twochoice_message *m, uint8_t *bytes, size_t size)
{
    const uint64_t at = world_between(&more, 0, size - 1), bit = world_between(&more, 0, 7);
    struct twochoice_message out;
    if (twochoice_message_decode(bytes, size, &out) != QOS_OK || out.type != m->type || out.server != m->server ||
        out.state != m->state || out.count != m->count || out.client != m->client || out.request != m->request ||
        out.turn != m->turn || out.len_bytes != m->len_bytes || out.wait_ns != m->wait_ns ||
        out.service_ns != m->service_ns || out.idle_ns != m->idle_ns)
        FAULT("wire", "a message of type %" PRIu32 " is not what was sent", m->type);
    if (twochoice_message_decode(bytes, (size_t)at, &out) == QOS_OK)
        FAULT("wire", "%" PRIu64 " bytes of a message of %zu are taken for it", at, size);
    bytes[at] ^= (uint8_t)(1 << bit);
    if (twochoice_message_decode(bytes, size, &out) == QOS_OK)
        FAULT("wire", "a message with bit %" PRIu64 " of byte %" PRIu64 " changed is taken", bit, at);
    bytes[at] ^= (uint8_t)(1 << bit);
}

static void post(uint32_t from, uint32_t to, const struct twochoice_message *m)
{
    uint8_t bytes[256];
    size_t size;
    if (twochoice_message_encode(m, bytes, sizeof bytes, &size) != QOS_OK) {
        FAULT("wire", "a message cannot be encoded");
        return;
    }
    judge_wire(m, bytes, size);
    world_network_send(&network, now, from, to, bytes, size);
}

/* ---- a server ---- */

static struct entry *entry_of(struct host *h, uint64_t of, uint64_t request, uint64_t turn)
{
    uint32_t i;
    for (i = 0; i < h->entries; i++)
        if (h->entry[i].client == of && h->entry[i].request == request && h->entry[i].turn == turn)
            return &h->entry[i];
    return NULL;
}

/* Does this client wait for certain: did none of its reservation get an ask? since: it came before that ask. */
static bool waits(const struct host *h, uint64_t of, uint64_t since)
{
    uint32_t i;
    for (i = 0; i < h->entries; i++)
        if (h->entry[i].client == of && !h->entry[i].asked && !h->entry[i].released && !h->entry[i].repeated &&
            h->entry[i].seq < since)
            return true;
    return false;
}

/* An operation begins: a write that was placed (op.request != 0), or one of the server's own. */
static void server_begins(uint32_t j, const struct op *op)
{
    struct host *h = &host[j];
    struct entry *e = entry_of(h, op->client, op->request, op->turn);
    if (h->ops == 64)
        return;
    h->op[h->ops++] = *op;
    h->cost += op->len + h->op_cost;
    if (h->lies || use_reference)
        return;
    if (op->request && e && e->came < e->asked)
        e->came++;
    if (op->request)
        twochoice_intake_arrived(&h->intake, now, op->client, op->request, op->turn, op->len);
    else
        twochoice_intake_begin(&h->intake, now, op->len);
}

/* Promises `in_flight`, `share`: an intake counts what is in flight; a client gets max_per_client reservations, all together
 * max_reservations. open: reservations that are neither released nor asked for; held: that may be held. */
static void judge_answer(struct host *h, const struct twochoice_message *m, const struct entry *known,
                         const struct twochoice_message *answer)
{
    uint32_t i, open = 0, held = 0, all = 0;
    for (i = 0; i < h->entries; i++) {
        const struct entry *e = &h->entry[i];
        all += !e->released;
        held += e->client == m->client && !e->released;
        open += e->client == m->client && !e->released && !e->repeated && e->asked == 0;
    }
    if (known || m->count == 0 || h->entries == ENTRIES)
        return;
    if (answer->state == TWOCHOICE_UP && open >= per_client)
        FAULT("share", "client %" PRIu64 " gets reservation %" PRIu32 " of %" PRIu32, m->client, open + 1, per_client);
    if (answer->state == TWOCHOICE_FULL && held < per_client && all < max_reservations)
        FAULT("share", "client %" PRIu64 " has %" PRIu32 " of %" PRIu32 " reservations, and is refused", m->client,
              held, per_client);
}
static void judge_flight(struct host *h)
{
    struct twochoice_intake_state info;
    uint32_t i, awaited = 0;
    bool known = h->entries < ENTRIES;
    (void)twochoice_intake_info(&h->intake, &info);
    for (i = 0; i < h->entries; i++) {
        awaited += h->entry[i].released ? 0 : h->entry[i].asked - h->entry[i].came;
        known &= !h->entry[i].repeated;
    }
    if (known && info.lost == 0 && info.asked != awaited)
        FAULT("in_flight", "%" PRIu32 " writes are said to be asked for and not there, it is %" PRIu32, info.asked,
              awaited);
    if (info.ops != h->ops || info.cost_bytes != h->cost || info.reservations > max_reservations || info.lost < h->lost)
        FAULT("in_flight",
              "%" PRIu64 " operations of cost %" PRIu64 " are said to be in flight, there are %" PRIu32 " of %" PRIu64,
              info.ops, info.cost_bytes, h->ops, h->cost);
    h->lost = info.lost;
}

/* Promise `turns`: clients take turns. No client is asked twice while another one that waits is not. */
static void note_ask(struct host *h, const struct twochoice_message *ask)
{
    struct entry *e = entry_of(h, ask->client, ask->request, ask->turn);
    uint64_t before, d;
    if (!e || e->released || e->asked >= e->count || ask->server != h - host) {
        FAULT("asks", "a write is asked for that nobody reserved, or by another server");
        return;
    }
    before = h->last_of[ask->client];
    for (d = 0; d < clients + silent; d++)
        if (d != ask->client && before && h->last_of[d] < before && waits(h, d, before))
            FAULT("turns", "client %" PRIu64 " is asked again, and client %" PRIu64 " waits since before", ask->client,
                  d);
    e->asked++;
    h->last_of[ask->client] = ++h->seq;
    h->asked_ns = now;
}

/* Promise `idles`: who is asked and does not write idles a server for at most 4 leads an ask. */
static void server_asks(uint32_t j)
{
    struct host *h = &host[j];
    struct twochoice_intake_state info;
    struct twochoice_message ask;
    uint64_t next_ns, d;
    if (h->lies || h->deaf || use_reference)
        return;
    judge_flight(h);
    while (!world->broken && twochoice_intake_ask(&h->intake, now, &ask)) {
        note_ask(h, &ask);
        post(j, SERVERS + (uint32_t)ask.client, &ask);
    }
    next_ns = twochoice_intake_next_ns(&h->intake, now);
    (void)twochoice_intake_info(&h->intake, &info);
    info.lead_ns = info.lead_ns ? info.lead_ns : 50 * MS / 256 + 1; /* of the default timeout_ns */
    for (d = 0; d < clients + silent && h->ops == 0; d++)
        if (waits(h, d, UINT64_MAX) && next_ns > h->asked_ns + 4 * info.lead_ns + 1)
            FAULT("idles",
                  "server %" PRIu32 " is idle, client %" PRIu64
                  " waits, and is asked %.3f ms after the last ask: lead %.3f ms",
                  j, d, (double)(next_ns - h->asked_ns) / 1e6, (double)info.lead_ns / 1e6);
    if (next_ns != QOS_NEVER && (h->wakes_ns <= now || next_ns < h->wakes_ns)) {
        h->wakes_ns = next_ns > now ? next_ns : now + 1;
        wake(SERVER, j, h->wakes_ns - now);
    }
}

static void server_works(uint32_t j)
{
    struct host *h = &host[j];
    uint32_t i;
    for (i = 0; i < h->ops && i < channels && now < h->hangs_ns; i++)
        if (h->op[i].ends_ns == 0) {
            const uint64_t takes_ns = MS / 2 + h->op[i].len * 10 * (channels == 16 ? 1 : 1 + j % 3);
            h->op[i].ends_ns = now + takes_ns;
            wake(DONE, j, takes_ns);
        }
}

static void server_done(uint32_t j)
{
    struct host *h = &host[j];
    struct op o;
    uint32_t i = 0;
    while (i < h->ops && h->op[i].ends_ns != now)
        i++;
    if (now >= h->hangs_ns || i == h->ops)
        return;
    o = h->op[i];
    memmove(&h->op[i], &h->op[i + 1], (--h->ops - i) * sizeof h->op[0]);
    h->idle_ns = now;
    h->cost -= o.len + h->op_cost;
    if (!h->lies && !use_reference)
        twochoice_intake_end(&h->intake, now, o.len);
    if (saids < 4096 && o.request) {
        said[saids].client = named((uint32_t)o.client);
        said[saids].write = o.write;
        said[saids].server = j;
        said[saids].request = o.request;
        wake(SAID, saids++, world_between(&rng, 1, MS));
    }
    server_works(j);
    server_asks(j);
}

static void server_hears(uint32_t j, const struct twochoice_message *m)
{
    struct host *h = &host[j];
    struct twochoice_message answer;
    struct entry *e = entry_of(h, m->client, m->request, m->turn);
    uint32_t n;
    if (h->deaf)
        return;
    if (h->lies) { /* it answers as the fastest, and asks again and again */
        if (m->type != TWOCHOICE_RESERVE)
            return;
        answer = *m;
        answer.type = TWOCHOICE_ANSWER;
        answer.server = j;
        answer.state = TWOCHOICE_UP;
        answer.count = 0;
        answer.wait_ns = 0;
        answer.service_ns = 1;
        answer.idle_ns = 0;
        post(j, SERVERS + (uint32_t)m->client, &answer);
        answer.type = TWOCHOICE_ASK;
        for (n = 0; n < 3 * EACH; n++)
            post(j, SERVERS + (uint32_t)m->client, &answer);
        for (n = 0; n < 2 * EACH; n++) { /* and guesses the numbers of others: it refuses for them, or asks */
            answer.turn =
                m->turn + (n + 1) / 2 * (n % 4 < 2 ? 4097u : 4095u) * (n % 3 ? 1u : 0u) - (n % 3 ? 0u : 4097u);
            answer.type = n % 2 ? TWOCHOICE_ASK : TWOCHOICE_ANSWER;
            answer.state = n % 2 ? TWOCHOICE_UP : TWOCHOICE_FULL;
            if (answer.turn != m->turn)
                post(j, SERVERS + (uint32_t)m->client, &answer);
        }
        return;
    }
    if (m->type == TWOCHOICE_RELEASE && e)
        e->released = true;
    if (twochoice_intake_heard(&h->intake, now, m, &answer)) {
        if (answer.server != j)
            FAULT("asks", "server %" PRIu32 " answers as server %" PRIu32, j, answer.server);
        judge_answer(h, m, e, &answer);
        if (answer.state == TWOCHOICE_UP && e && (e->released || e->asked == e->count)) {
            e->repeated = true;
            e->released = false;
            e->asked = e->came = 0;
        }
        if (answer.state == TWOCHOICE_UP && !e && h->entries < ENTRIES) {
            e = &h->entry[h->entries++];
            memset(e, 0, sizeof *e);
            e->client = m->client;
            e->request = m->request;
            e->turn = m->turn;
            e->count = m->count;
            e->seq = h->seq;
        }
        if (h->state != TWOCHOICE_UP)
            answer.state = h->state;
        post(j, SERVERS + (uint32_t)m->client, &answer);
    }
    server_asks(j);
}

/* ---- a client ---- */

/* Does this server still hold out a place to the request: it said so within `ns`? */
static bool holds_out(const struct asked *r, uint32_t j, uint64_t ns)
{
    uint32_t i;
    for (i = 0; i < r->offers && i < OFFERS; i++)
        if (r->offer[i].server == j && r->offer[i].said_ns && !r->offer[i].gone && r->offer[i].left &&
            now < r->offer[i].said_ns + ns)
            return true;
    return false;
}

/* Promises `asked`, `at_home`, `soon`, `paced`: a write goes first where a server asked for it; home, if it is small, or if no server
 * is up or answers; again if it failed, or is overdue: before the timeout once in 8 writes, and three times at first, and never one at
 * its home. One that failed at home is not sent there again at once. */
static void judge_place(struct client *x, struct asked *r, const struct sent *s, const struct twochoice_place_order *o)
{
    const bool is_asked = r->asks[o->server] > 0;
    uint32_t j;
    if (!o->again && !is_asked && o->server != s->home && !use_reference)
        FAULT("asked", "a write goes to server %" PRIu32 ", which did not ask for it", o->server);
    for (j = 0; j < servers && !o->again && !is_asked && s->len >= 1024; j++)
        if (x->state[j] == TWOCHOICE_UP && holds_out(r, j, timeout_ns))
            FAULT("at_home", "a write goes home, and server %" PRIu32 " holds out a place", j);
    if (o->again && s->failed && s->server == s->home && o->server == s->home && !is_asked &&
        now < s->at_ns + s->pause_ns)
        FAULT("paced", "a write that failed at home is sent there again after %.3f ms", (double)(now - s->at_ns) / 1e6);
    r->asks[o->server] -= is_asked;
    for (j = 0; j < r->offers && j < OFFERS; j++)
        r->offer[j].left -= r->offer[j].server == o->server && r->offer[j].turn == o->message.turn && r->offer[j].left;
    if (o->again && !s->failed) {
        if (s->server == s->home)
            FAULT("soon", "a write at its home, where bytes are overwritten in place, is sent again");
        x->soon += s->times == 1 && now < s->at_ns + timeout_ns;
        if (x->soon > 3 + x->begun / 8)
            FAULT("soon", "%" PRIu32 " of %" PRIu64 " writes are sent again before the timeout", x->soon, x->begun);
    }
}

static struct asked *request_of(struct client *x, uint64_t id)
{
    uint32_t i;
    for (i = 0; i < x->requests; i++)
        if (x->request[i].id == id)
            return &x->request[i];
    return NULL;
}
/* Has a large write of the request no server yet? */
static bool lacks(const struct asked *r)
{
    uint32_t i;
    for (i = 0; i < r->k; i++)
        if (r->sent[i].times == 0 && r->sent[i].len >= 1024)
            return true;
    return false;
}
static void note_gone(struct asked *r, uint32_t server, uint64_t turn)
{
    uint32_t i;
    for (i = 0; i < r->offers && i < OFFERS; i++)
        r->offer[i].gone |= r->offer[i].server == server && r->offer[i].turn == turn;
}

static uint32_t up_of(const struct client *x)
{
    uint32_t i, up = 0;
    for (i = 0; i < servers; i++)
        up += x->state[i] == TWOCHOICE_UP;
    return up ? up : 1;
}

/* A RESERVE or RELEASE leaves. Promise `drawn`: none is drawn that is said to be down or full. */
static void client_sends(struct client *x, uint32_t c, const struct twochoice_place_order *o)
{
    struct asked *r;
    uint32_t i;
    post(SERVERS + named(c), o->server, &o->message);
    if (o->server >= servers || o->message.client != named(c)) {
        FAULT("writes", "a message to a server that does not exist, or of another client");
        return;
    }
    r = request_of(x, o->message.request);
    if (!r)
        return;
    if (o->message.type == TWOCHOICE_RESERVE) {
        x->reserved++;
        if (o->message.count == 0 || &x->request[o->tag] != r)
            FAULT("writes", "a reservation for no write, or another tag");
        if (x->state[o->server] != TWOCHOICE_UP)
            FAULT("drawn", "server %" PRIu32 " is drawn, and is not up", o->server);
        i = r->offers++;
        if (i < OFFERS) {
            memset(&r->offer[i], 0, sizeof r->offer[i]);
            r->offer[i].turn = o->message.turn;
            r->offer[i].server = o->server;
            r->offer[i].left = o->message.count;
        }
        return;
    }
    for (i = 0; i < r->offers && i < OFFERS; i++) /* one that asked may be declined */
        if (r->offer[i].server == o->server && r->offer[i].turn == o->message.turn)
            x->refused += !r->offer[i].asks && !r->offer[i].gone && lacks(r);
    note_gone(r, o->server, o->message.turn);
}

/* An ANSWER or an ASK came, for a reservation that the request has at its sender. */
static void client_notes(struct client *x, const struct twochoice_message *m)
{
    struct asked *r = request_of(x, m->request);
    uint32_t i;
    for (i = 0; r && i < r->offers && i < OFFERS; i++) {
        struct offer *a = &r->offer[i];
        if (a->turn != m->turn || a->server != m->server)
            continue;
        x->refused += m->state != TWOCHOICE_UP && !a->said_ns && !a->gone && lacks(r);
        a->said_ns = now;
        a->gone |= m->state != TWOCHOICE_UP;
        a->asks |= m->type == TWOCHOICE_ASK;
        r->asks[m->server] += m->type == TWOCHOICE_ASK && m->state == TWOCHOICE_UP;
        if (m->wait_ns > r->wait_ns)
            r->wait_ns = m->wait_ns;
    }
}

/* Promises `reserves`, `small`: at once k writes reserve at 2k servers that are up, or all. Small writes go home. */
static void judge_begun(const struct client *x, const struct asked *r)
{
    uint32_t i, j, large = 0, up = 0, drawn = 0;
    for (i = 0; i < r->k; i++) {
        large += r->sent[i].len >= 1024;
        if (r->sent[i].len < 1024 && (r->sent[i].times != 1 || r->sent[i].server != r->sent[i].home))
            FAULT("small", "a write of %" PRIu64 " bytes does not go home at once", r->sent[i].len);
    }
    for (i = 0; i < servers; i++) {
        up += x->state[i] == TWOCHOICE_UP;
        for (j = 0; j < r->offers && j < OFFERS && r->offer[j].server != i; j++) {
        }
        drawn += j < r->offers;
    }
    if (!use_reference && drawn != (2 * large < up ? 2 * large : up))
        FAULT("reserves", "%" PRIu32 " writes reserve at %" PRIu32 " servers, of %" PRIu32 " that are up", large, drawn,
              up);
}

/* Promise `goes`: a write does not wait for servers that refuse, or say nothing any more. */
static void judge_goes(const struct client *x)
{
    uint32_t i, j, w;
    for (i = 0; i < x->requests; i++) {
        const struct asked *r = &x->request[i];
        bool waits_for = r->open == 0 || r->offers > OFFERS;
        for (j = 0; j < r->offers && j < OFFERS; j++) {
            const struct host *h = &host[r->offer[j].server];
            waits_for |= !r->offer[j].gone && r->offer[j].left && r->offer[j].said_ns && !h->deaf && now < h->hangs_ns;
        }
        for (w = 0; w < r->k && !waits_for; w++)
            if (r->sent[w].times == 0 && now > r->begun_ns + 3000 * MS + 8 * (timeout_ns + r->wait_ns))
                FAULT("goes", "a write waits for %.0f ms, and no server that works has a place for it",
                      (double)(now - r->begun_ns) / 1e6);
    }
}

/* Promise `counts`: granted and borrowed are the writes that were sent, and those away from home; refused is at least what was
 * refused while a write had no server, and at most all reservations. */
static void judge_counts(const struct client *x)
{
    struct qos_stats s;
    if (twochoice_placement_stats(&x->placement, QOS_NONE, &s) != QOS_OK || s.granted != x->sent ||
        s.borrowed != x->borrowed)
        FAULT("counts", "%" PRIu64 " writes, %" PRIu64 " away from home; stats say %" PRIu64 " and %" PRIu64, x->sent,
              x->borrowed, (uint64_t)s.granted, (uint64_t)s.borrowed);
    else if (s.refused < x->refused || s.refused > x->reserved)
        FAULT("counts", "%" PRIu64 " of %" PRIu64 " reservations were refused or silent; stats say %" PRIu64,
              x->refused, x->reserved, (uint64_t)s.refused);
}

/* Promises `another`, `holds`: an overdue or failed write goes to another server; until the timeout a server holds at most
 * ceil(2k / servers up) writes of a request, but for those that are sent again, and those whose home it is. */
static void client_binds(uint32_t c, struct asked *r, const struct twochoice_place_order *o)
{
    struct client *x = &client[c];
    struct sent *s;
    uint32_t i, held = 0;
    if (!r || o->write >= r->k || o->server >= servers) {
        FAULT("writes", "an order for a write that does not exist");
        return;
    }
    s = &r->sent[o->write];
    if (s->ended || o->again != (s->times > 0))
        FAULT("writes", "write %" PRIu32 ", sent %" PRIu32 " times, is sent%s", o->write, s->times,
              o->again ? " again" : " for the first time");
    if (o->again && o->server == s->server && o->server != s->home)
        FAULT("another", "write %" PRIu32 " goes again to server %" PRIu32 ", where it was sent last", o->write,
              o->server);
    judge_place(x, r, s, o);
    x->sent++;
    x->borrowed += o->server != s->home;
    world_got(now - start_ns, c, o->server);
    s->server = o->server;
    s->at_ns = now;
    s->failed = false;
    s->times++;
    for (i = 0; i < r->k; i++)
        held += r->sent[i].times == 1 && !r->sent[i].ended && r->sent[i].server == o->server &&
                r->sent[i].home != o->server && now < r->sent[i].at_ns + timeout_ns;
    if (held > (2 * r->k + r->least_up - 1) / r->least_up)
        FAULT("holds",
              "server %" PRIu32 " of %" PRIu32 " that are up holds %" PRIu32 " of %" PRIu32 " writes of a request",
              o->server, r->least_up, held, r->k);
    {
        const struct op op = {named(c), r->id, o->message.turn, s->len, o->write, 0};
        server_begins(o->server, &op);
        server_works(o->server);
        server_asks(o->server);
    }
}

/* Promise `overdue`: after timeout_ns without an end a write is sent to another server, if there is one that is idle for long. */
static void judge_overdue(const struct client *x)
{
    bool idle = false;
    uint32_t i, w;
    for (i = 0; i < servers; i++)
        idle |= !host[i].deaf && host[i].hangs_ns == UINT64_MAX && host[i].ops == 0 && now > host[i].idle_ns + 100 * MS;
    if (world_choice(world, F_MESSAGES_LOST) || world_choice(world, F_DAMAGED) || world_choice(world, F_REFUSES) ||
        world_choice(world, F_LIARS) || world_choice(world, F_WRITE_FAILURES) || servers < 4 || !idle)
        return;
    for (i = 0; i < x->requests; i++)
        for (w = 0; w < x->request[i].k; w++) {
            const struct sent *s = &x->request[i].sent[w];
            if (s->times == 1 && !s->ended && s->server != s->home && now > s->at_ns + 3 * timeout_ns + 2500 * MS)
                FAULT("overdue", "a write is at server %" PRIu32 " for %.1f ms, and was not sent again", s->server,
                      (double)(now - s->at_ns) / 1e6);
        }
}

#include "twochoice_reference.h"

static void client_steps(uint32_t c)
{
    struct client *x = &client[c];
    struct twochoice_place_order o;
    uint32_t n;
    for (n = 0; n < 1000 && !world->broken; n++) {
        if (use_reference)
            ideal_step(x, &o);
        else
            twochoice_placement_step(&x->placement, now + x->ahead_ns, &o);
        if (o.todo == TWOCHOICE_PLACE_WAIT)
            break;
        if (o.todo == TWOCHOICE_PLACE_SEND)
            client_sends(x, c, &o);
        else
            client_binds(c, o.tag < x->requests ? &x->request[o.tag] : NULL, &o);
    }
    if (n == 1000)
        FAULT("writes", "1000 orders, and no end");
    judge_overdue(x);
    judge_goes(x);
    if (!use_reference)
        judge_counts(x);
    o.next_ns -= o.next_ns == QOS_NEVER || use_reference ? 0 : x->ahead_ns;
    if (o.next_ns != QOS_NEVER && (x->wakes_ns <= now || o.next_ns < x->wakes_ns)) {
        x->wakes_ns = o.next_ns > now ? o.next_ns : now + 1;
        wake(CLIENT, c, x->wakes_ns - now);
    }
}

static void client_begins(uint32_t c)
{
    struct client *x = &client[c];
    struct twochoice_write w[EACH];
    struct asked *r = &x->request[x->requests];
    uint32_t i, k = (uint32_t)world_between(&rng, 1, (uint64_t)world_value(world, F_K));
    enum qos_status st;
    judge_overdue(x);
    judge_goes(x);
    wake(BEGIN, c, world_between(&rng, 1, 60 * MS));
    if (x->requests == REQUESTS)
        return;
    memset(r, 0, sizeof *r);
    for (i = 0; i < k; i++) {
        r->sent[i].home = w[i].home = (uint32_t)world_between(&rng, 0, servers - 1);
        r->sent[i].len = w[i].len_bytes = world_scale(&rng, 500, 1000000);
        if (channels == 16) /* then all take the same time */
            r->sent[i].len = w[i].len_bytes = 500000;
    }
    r->k = r->open = k;
    r->least_up = up_of(x);
    r->begun_ns = now;
    if (world_chance(&more, 50) && !use_reference) { /* Promise `refused` */
        w[0].home = world_chance(&more, 500) ? servers : w[0].home;
        st = w[0].home == servers ? QOS_ENOENT : QOS_ERANGE;
        if (twochoice_placement_begin(&x->placement, now + x->ahead_ns, w,
                                      st == QOS_ENOENT           ? k
                                      : world_chance(&more, 500) ? 0
                                                                 : EACH + 1,
                                      0, &r->id) != st)
            FAULT("refused", "a request that is wrong begins");
        w[0].home = r->sent[0].home;
    }
    if (use_reference)
        r->id = ++client_requests;
    st = use_reference ? (x->open < x->max_requests ? QOS_OK : QOS_EFULL)
                       : twochoice_placement_begin(&x->placement, now + x->ahead_ns, w, k, x->requests, &r->id);
    if (st != (x->open < x->max_requests ? QOS_OK : QOS_EFULL))
        FAULT("open", "a request begins with %d, %" PRIu32 " of %" PRIu32 " are open", (int)st, x->open,
              x->max_requests);
    if (st != QOS_OK)
        return;
    x->requests++;
    x->open++;
    x->begun += k;
    client_steps(c);
    judge_begun(x, r);
}

/* Promise `open`: a request is closed with the end of its last write, and not before; an end that is told twice changes nothing. */
static void client_hears_end(const struct said *e)
{
    struct client *x = &client[e->client];
    struct sent *s;
    uint32_t i;
    enum qos_status st, wanted;
    bool durable;
    for (i = 0; i < x->requests && x->request[i].id != e->request; i++) {
    }
    if (i == x->requests)
        return;
    s = &x->request[i].sent[e->write];
    wanted = x->request[i].open ? QOS_OK : QOS_ENOENT;
    durable = s->server != e->server || s->ended || !world_chance(&rng, (uint32_t)world_value(world, F_WRITE_FAILURES));
    st = use_reference ? wanted
                       : twochoice_placement_ended(&x->placement, now + x->ahead_ns, e->request, e->write, durable);
    if (st != wanted)
        FAULT("open", "the end of a write says %d, not %d", (int)st, (int)wanted);
    s->failed |= !durable;
    if (!durable && s->server == s->home)
        s->pause_ns = !s->pause_ns ? timeout_ns / 256 : 2 * s->pause_ns < timeout_ns ? 2 * s->pause_ns : timeout_ns;
    if (durable && !s->ended) {
        s->ended = true;
        x->open -= --x->request[i].open == 0;
    }
    client_steps(e->client);
}

/* A server says that it takes no writes, or clients are told so. */
static void change_state(uint32_t j)
{
    static const enum twochoice_server_state kind[3] = {TWOCHOICE_UP, TWOCHOICE_FULL, TWOCHOICE_DOWN};
    const bool changes = world_choice(world, F_REFUSES) == 3;
    const enum twochoice_server_state to = changes                               ? kind[world_between(&more, 0, 2)]
                                           : world_choice(world, F_REFUSES) == 1 ? TWOCHOICE_FULL
                                                                                 : TWOCHOICE_DOWN;
    uint32_t c, i;
    if (!changes || world_chance(&more, 500))
        host[j].state = to == TWOCHOICE_DOWN && !changes ? TWOCHOICE_UP : to;
    for (c = 0; c < clients && (world_choice(world, F_REFUSES) == 2 || (changes && world_chance(&more, 500))); c++) {
        client[c].state[j] = to;
        for (i = 0; i < client[c].requests; i++)
            if (up_of(&client[c]) < client[c].request[i].least_up)
                client[c].request[i].least_up = up_of(&client[c]);
        if (twochoice_placement_set_server(&client[c].placement, j, to) != QOS_OK)
            FAULT("refused", "a server's state is refused");
    }
    if (twochoice_placement_set_server(&client[0].placement, servers, TWOCHOICE_UP) != QOS_ENOENT)
        FAULT("refused", "a server that does not exist gets a state");
    if (changes)
        wake(CHANGES, j, world_between(&more, 1, 500 * MS));
}

/* Operations that nobody placed. */
static void server_own(uint32_t j)
{
    const struct op op = {0, 0, 0, world_scale(&more, 100, 200000), 0, 0};
    server_begins(j, &op);
    server_works(j);
    server_asks(j);
    wake(OWNS, j, world_between(&more, 1, 40 * MS));
}

/* A client's clock is set back, by up to an hour. */
static void set_back(uint32_t c)
{
    if (client[c].ahead_ns == 0)
        return;
    client_steps(c);
    client[c].ahead_ns -= world_scale(&more, 1, client[c].ahead_ns);
    client_steps(c);
    wake(SET_BACK, c, world_between(&more, 1, 3000 * MS));
}

/* A client that reserves much and does not write. */
static void be_silent(uint32_t c)
{
    struct twochoice_message m;
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_RESERVE;
    m.count = (uint32_t)world_between(&rng, 1, 20);
    m.client = named(clients + c);
    m.request = ++client_requests;
    m.turn = client_requests;
    m.len_bytes = 100000;
    m.server = (uint32_t)world_between(&rng, 0, servers - 1);
    post(SERVERS + (uint32_t)m.client, m.server, &m);
    wake(SILENCE, c, world_between(&rng, 5 * MS, 100 * MS));
}

/* ---- the world ---- */

/* Promise `drawn`, also: clients with other seeds draw other servers. Of 16 clients with one write each, not all draw the same
 * first one. */
static void judge_seeds(void)
{
    static struct twochoice_placement lone;
    static unsigned char mem[1 << 15] __attribute__((aligned(64)));
    const struct twochoice_write write = {0, 1000000};
    struct twochoice_placement_config c;
    struct twochoice_place_order o;
    uint32_t i, first = UINT32_MAX;
    uint64_t id;
    bool other = false;
    memset(&c, 0, sizeof c);
    c.servers = SERVERS;
    c.max_writes = EACH;
    c.max_requests = 1;
    for (i = 0; i < 16; i++) {
        c.seed = world->seed * 16 + i;
        if (twochoice_placement_init(&lone, mem, sizeof mem, &c) != QOS_OK ||
            twochoice_placement_begin(&lone, 1, &write, 1, 0, &id) != QOS_OK)
            FAULT("init", "a placement within the ranges is refused");
        twochoice_placement_step(&lone, 1, &o);
        other |= first != UINT32_MAX && o.server != first;
        first = o.server;
    }
    if (!other)
        FAULT("drawn", "16 clients with seeds of their own draw server %" PRIu32 " first", first);
}

static void writes_begin(void)
{
    struct world_network_config n;
    uint32_t i;
    servers = (uint32_t)world_value(world, F_SERVERS);
    clients = (uint32_t)world_value(world, F_CLIENTS);
    silent = (uint32_t)world_value(world, F_SILENT);
    channels = (uint32_t)world_value(world, F_CHANNELS);
    per_client = (uint32_t)world_value(world, F_SHARE);
    max_reservations = world_choice(world, F_SHARE) ? (uint32_t)world_between(&more, 1, 12) : 200;
    timeout_ns = (uint64_t)world_value(world, F_TIMEOUT) * MS;
    memset(&n, 0, sizeof n);
    n.lost = (uint32_t)world_value(world, F_MESSAGES_LOST);
    n.repeated = (uint32_t)world_value(world, F_REPEATED);
    n.damaged = (uint32_t)world_value(world, F_DAMAGED);
    n.delay_ns = 1000;
    n.jitter_ns = world_between(&rng, 1, MS);
    world_network_init(&network, &n, world->seed);
    memset(host, 0, sizeof host);
    memset(client, 0, sizeof client);
    saids = 0;
    client_requests = 0;
    start_ns = world_again == WORLD_SHIFTED ? WORLD_SHIFT_NS : 0;
    now = 1 + start_ns;
    for (i = 0; i < servers; i++) {
        struct twochoice_intake_config c;
        memset(&c, 0, sizeof c);
        c.server = i;
        c.parallel = channels;
        c.max_reservations = max_reservations;
        c.max_per_client = per_client;
        c.op_cost_bytes = world_chance(&more, 300)   ? QOS_NOTHING
                          : world_chance(&more, 500) ? 0
                                                     : world_scale(&more, 1, 1000000);
        host[i].op_cost = c.op_cost_bytes == QOS_NOTHING ? 0 : c.op_cost_bytes ? c.op_cost_bytes : 65536;
        host[i].deaf = world_choice(world, F_HANGS) == 3 && i < (servers + 1) / 2;
        host[i].lies = world_choice(world, F_LIARS) && i == 0;
        host[i].hangs_ns =
            world_choice(world, F_HANGS) % 3 && i < (servers + 1) / (world_choice(world, F_HANGS) == 1 ? servers : 2)
                ? start_ns + world_between(&rng, 1, 1000 * MS)
                : UINT64_MAX;
        host[i].idle_ns = start_ns;
        if (twochoice_intake_memsize(&c) > sizeof intakes[i] ||
            twochoice_intake_init(&host[i].intake, intakes[i], sizeof intakes[i], &c) != QOS_OK)
            FAULT("init", "an intake within the ranges is refused");
    }
    for (i = 0; i < clients; i++) {
        struct twochoice_placement_config c;
        memset(&c, 0, sizeof c);
        c.servers = servers;
        c.max_writes = EACH;
        c.max_requests = client[i].max_requests = (uint32_t)world_between(&rng, 1, 4);
        c.include_home = world_chance(&rng, 300);
        c.timeout_ns = timeout_ns;
        c.client = named(i);
        c.seed = world->seed + i;
        if (twochoice_placement_memsize(&c) > sizeof placements[i] ||
            twochoice_placement_init(&client[i].placement, placements[i], sizeof placements[i], &c) != QOS_OK)
            FAULT("init", "a placement within the ranges is refused");
        wake(BEGIN, i, world_between(&rng, 1, 30 * MS));
        client[i].ahead_ns = world_choice(world, F_CLOCKS) ? 3600000 * MS : 0;
        if (client[i].ahead_ns)
            wake(SET_BACK, i, world_between(&more, 1, 3000 * MS));
    }
    judge_seeds();
    for (i = 0; i < silent && !use_reference; i++)
        wake(SILENCE, i, 1);
    for (i = 0; i < servers && world_choice(world, F_OWN); i++)
        wake(OWNS, i, 1);
    for (i = 0; i < servers && world_choice(world, F_REFUSES); i++)
        if (world_choice(world, F_REFUSES) == 3 || world_chance(&more, 700))
            change_state(i);
}

static void writes_event(const struct world_event *e)
{
    switch ((enum what)e->kind) {
    case BEGIN: client_begins(e->index); break;
    case CLIENT: client_steps(e->index); break;
    case SERVER: server_asks(e->index); break;
    case DONE: server_done(e->index); break;
    case SAID: client_hears_end(&said[e->index]); break;
    case SILENCE: be_silent(e->index); break;
    case OWNS: server_own(e->index); break;
    case CHANGES: change_state(e->index); break;
    case SET_BACK: set_back(e->index); break;
    }
}

/* Promise `twice`: where all writes take the same time, and nothing is lost, fails, hangs, lies or refuses, few are sent again before
 * the timeout. */
static void judge_twice(void)
{
    uint64_t soon = 0, begun = 0;
    uint32_t c;
    for (c = 0; c < clients; c++) {
        soon += client[c].soon;
        begun += client[c].begun;
    }
    if (channels == 16 && soon > 3 * clients + begun / 50 && !world_choice(world, F_HANGS) &&
        !world_choice(world, F_REFUSES) && !world_choice(world, F_LIARS) && !world_choice(world, F_MESSAGES_LOST) &&
        !world_choice(world, F_DAMAGED) && !world_choice(world, F_WRITE_FAILURES) && !world_choice(world, F_OWN) &&
        !world_choice(world, F_CLOCKS))
        FAULT("twice", "%" PRIu64 " of %" PRIu64 " writes are sent again, and none is slow", soon, begun);
}

static void writes_world(void)
{
    struct world_event e = {0, 0, 0, 0};
    struct world_packet packet;
    struct twochoice_message m, answer;
    writes_begin();
    while (!world->broken && now < start_ns + 6000 * MS && world->events < 60000) {
        const uint64_t t = world_queue_next_ns(&due), arrives = world_network_next_ns(&network);
        if (t == WORLD_NEVER && arrives == WORLD_NEVER)
            break;
        now = t < arrives ? t : arrives;
        world->events++;
        if (t <= arrives) {
            (void)world_queue_take(&due, now, &e);
            writes_event(&e);
        } else if (world_network_take(&network, now, &packet) &&
                   twochoice_message_decode(packet.bytes, packet.size, &m) == QOS_OK) {
            if (packet.to < SERVERS) {
                if (packet.from != SERVERS + m.client)
                    continue;
                server_hears(packet.to, &m);
            } else if (named(packet.to - SERVERS) < clients) {
                const uint32_t c = named(packet.to - SERVERS);
                if (packet.from != m.server || m.client != packet.to - SERVERS)
                    continue; /* the caller checks who sent it */
                client_notes(&client[c], &m);
                if (twochoice_placement_heard(&client[c].placement, now + client[c].ahead_ns, &m, &answer)) {
                    struct asked *r = request_of(&client[c], answer.request);
                    if (r)
                        note_gone(r, m.server, answer.turn);
                    post(packet.to, m.server, &answer);
                }
                client_steps(c);
            }
        }
    }
    judge_twice();
    world_network_free(&network);
    world_queue_free(&due);
}

/* ---- pulls ---- */

static struct started {
    uint64_t at_ns, bytes;
} started[4096];

/* Promises `quiet`, `rate`: a pull starts only when the home was idle for idle_ns and its target said that it is; in any w seconds
 * at most rate * w + piece_bytes are pulled. */
static void judge_pull(const struct twochoice_maintainer_config *c, const struct twochoice_order *o, uint64_t busy_ns,
                       const uint64_t *said_ns, const uint64_t *load, uint32_t n)
{
    const uint32_t j = o->piece.target;
    uint64_t sum = 0;
    uint32_t i;
    world_got(now - start_ns, j, (double)(o->piece.end - o->piece.offset));
    if (now < busy_ns + c->idle_ns)
        FAULT("quiet", "a pull starts %.3f ms after the home was busy", (double)(now - busy_ns) / 1e6);
    if (o->piece.end - o->piece.offset > c->piece_bytes)
        FAULT("rate", "a pull of %" PRIu64 " bytes", o->piece.end - o->piece.offset);
    if (j >= c->servers || !said_ns[j] || now > said_ns[j] + c->idle_ns || load[j] > c->idle_load)
        FAULT("quiet", "a pull from server %" PRIu32 ", which is not known to be idle", j);
    started[n].at_ns = now;
    started[n].bytes = o->piece.end - o->piece.offset;
    for (i = n + 1; i-- > 0;) {
        sum += started[i].bytes;
        if ((double)sum >
            (double)c->rate_bytes_per_s * (double)(now - started[i].at_ns) / 1e9 + (double)c->piece_bytes + 1)
            FAULT("rate", "%" PRIu64 " bytes in %.3f ms", sum, (double)(now - started[i].at_ns) / 1e6);
    }
}

/* A table without a log, its maintainer, and loads that change. In the end all is idle, and comes home. */
static void pulls_world(void)
{
    static unsigned char mem[1 << 18] __attribute__((aligned(64))), memory[1 << 18] __attribute__((aligned(64)));
    static struct twochoice_table table;
    struct twochoice_maintainer maintainer;
    struct twochoice_maintainer_config c;
    struct twochoice_table_config t;
    struct twochoice_table_state info;
    struct twochoice_order o;
    struct twochoice_piece piece[64];
    uint64_t said_ns[SERVERS] = {0}, load[SERVERS], busy_ns, local = 0, stamp, step, offset, longest, last = 3000;
    uint32_t n = 0, i;
    size_t got;
    memset(&c, 0, sizeof c);
    memset(&t, 0, sizeof t);
    c.servers = servers = (uint32_t)world_value(world, F_SERVERS);
    c.rate_bytes_per_s = world_scale(&rng, 1000, UINT64_C(100000000));
    c.piece_bytes = world_scale(&rng, 100, 100000);
    c.idle_load = world_between(&rng, 0, 2);
    c.idle_ns = world_scale(&rng, MS, 200 * MS);
    longest = c.piece_bytes * 30 < 100000 ? c.piece_bytes * 30 : 100000;
    t.max_fragments = 300;
    t.max_pulls = 2;
    t.home = servers;
    for (i = 0; i < servers; i++)
        load[i] = 0;
    if (twochoice_maintainer_memsize(&c) > sizeof mem || twochoice_table_memsize(&t) > sizeof memory ||
        twochoice_maintainer_init(&maintainer, mem, sizeof mem, &c) != QOS_OK ||
        twochoice_table_init(&table, memory, sizeof memory, &t) != QOS_OK) {
        FAULT("init", "a maintainer within the ranges is refused");
        return;
    }
    start_ns = world_again == WORLD_SHIFTED                              ? 2 * WORLD_SHIFT_NS
               : world_choice(world, F_AGAIN) == (uint32_t)WORLD_SHIFTED ? WORLD_SHIFT_NS
                                                                         : 0; /* its rate saves from 0 on: a piece */
    busy_ns = start_ns;
    for (now = 1 + start_ns, step = 0; step < last && !world->broken; step++) {
        const bool calm = step >= 1000;
        if (step ==
            1000) /* from now on each pull takes a few steps: to ask, to wait for the rate, to copy, for a round */
            for (stamp = offset = 0; twochoice_table_next(&table, stamp, offset, piece); offset = piece->end) {
                last += 8 * ((piece->end - piece->offset) / c.piece_bytes + 1);
                stamp = piece->object;
            }
        world->events++;
        if (!calm && world_chance(&rng, 200)) {
            const uint64_t at = world_between(&rng, 0, 1000000), size = world_scale(&rng, 1, longest);
            const uint32_t server = (uint32_t)world_between(&rng, 0, servers - 1);
            offset = at;
            if (twochoice_table_write_begin(&table, world_between(&rng, 0, 5), server, offset, size, &stamp) ==
                    QOS_OK &&
                twochoice_table_write_end(&table, stamp, piece, 64, &got) != QOS_OK)
                FAULT("end", "an open write does not end");
        }
        if (calm)
            local = 0;
        else if (world_chance(&rng, 50))
            local = world_between(&rng, 0, 4);
        busy_ns = local > c.idle_load ? now : busy_ns;
        if ((use_reference ? ideal_pull(&table, &c, busy_ns, said_ns, load, &o, step == 0)
                           : twochoice_maintainer_step(&maintainer, now, &table, local, &o)) != QOS_OK)
            FAULT("pull", "the maintainer fails");
        if (o.todo == TWOCHOICE_COPY) {
            judge_pull(&c, &o, busy_ns, said_ns, load, n++);
            if (twochoice_table_pull_ready(&table, o.pull, piece, 64, &got) != QOS_OK ||
                twochoice_table_pull_finish(&table, o.pull, piece, 64, &got) != QOS_OK)
                FAULT("pull", "a pull does not end");
        } else if (o.todo == TWOCHOICE_ASK_LOAD && o.piece.target < servers && world_chance(&rng, calm ? 1000 : 800)) {
            said_ns[o.piece.target] = now;
            load[o.piece.target] = calm ? 0 : world_between(&rng, 0, 3);
            twochoice_maintainer_remote_load(&maintainer, now, o.piece.target, load[o.piece.target]);
        } else if (o.todo == TWOCHOICE_WAIT && (calm || world_chance(&rng, 500))) {
            if (o.next_ns == QOS_NEVER && calm)
                break;
            now = o.next_ns == QOS_NEVER || (o.next_ns > now + 1000 * MS && !calm) ? now + 10 * MS
                  : o.next_ns > now                                                ? o.next_ns
                                                                                   : now + 1;
        }
        now += world_scale(&rng, 1, MS);
    }
    (void)twochoice_table_info(&table, &info);
    if (!world->broken && info.fragments)
        FAULT("comes_home", "all is idle, %" PRIu32 " fragments are left after %" PRIu64 " steps", info.fragments,
              step);
}

/* Promise `ranges`: a setting is refused if, and only if, it is out of its range: one of them, at a border or beside it. */
static void judge_ranges(void)
{
    struct world_rng r;
    struct twochoice_table_config table;
    struct twochoice_maintainer_config maintainer;
    struct twochoice_placement_config placement;
    struct twochoice_intake_config intake;
    const char *field = NULL;
    memset(&table, 0, sizeof table);
    memset(&maintainer, 0, sizeof maintainer);
    memset(&placement, 0, sizeof placement);
    memset(&intake, 0, sizeof intake);
    maintainer.servers = placement.servers = 1;
    world_rng_init(&r, world->seed, 0x9501);
    switch (world_between(&r, 0, 14)) {
    case 0: WORLD_RANGE(field, &r, twochoice_table, table, max_fragments, 0, TWOCHOICE_FRAGMENTS_MAX); break;
    case 1: WORLD_RANGE(field, &r, twochoice_table, table, max_writes, 0, TWOCHOICE_OPEN_MAX); break;
    case 2: WORLD_RANGE(field, &r, twochoice_table, table, max_pulls, 0, TWOCHOICE_OPEN_MAX); break;
    case 3: WORLD_RANGE(field, &r, twochoice_table, table, home, 0, TWOCHOICE_SERVERS_MAX - 1); break;
    case 4:
        table.max_fragments = 10;
        WORLD_RANGE(field, &r, twochoice_table, table, max_log_bytes, 96 * 12, QOS_UNLIMITED);
        break;
    case 5: WORLD_RANGE(field, &r, twochoice_maintainer, maintainer, servers, 1, TWOCHOICE_SERVERS_MAX); break;
    case 6: WORLD_RANGE(field, &r, twochoice_maintainer, maintainer, rate_bytes_per_s, 0, QOS_RATE_MAX); break;
    case 7: WORLD_RANGE(field, &r, twochoice_maintainer, maintainer, piece_bytes, 0, QOS_TOKENS_MAX); break;
    case 8: WORLD_RANGE(field, &r, twochoice_placement, placement, servers, 1, TWOCHOICE_SERVERS_MAX); break;
    case 9: WORLD_RANGE(field, &r, twochoice_placement, placement, max_writes, 0, TWOCHOICE_WRITES_MAX); break;
    case 10: WORLD_RANGE(field, &r, twochoice_placement, placement, max_requests, 0, TWOCHOICE_REQUESTS_MAX); break;
    case 11: WORLD_RANGE(field, &r, twochoice_placement, placement, timeout_ns, 0, TWOCHOICE_TIME_MAX); break;
    case 12: WORLD_RANGE(field, &r, twochoice_intake, intake, max_reservations, 0, TWOCHOICE_RESERVATIONS_MAX); break;
    case 13: WORLD_RANGE(field, &r, twochoice_intake, intake, op_cost_bytes, 0, TWOCHOICE_LEN_MAX); break;
    default: WORLD_RANGE(field, &r, twochoice_intake, intake, timeout_ns, 0, TWOCHOICE_TIME_MAX); break;
    }
    if (field)
        FAULT("ranges", "a value of %s at its border, or beside it, is judged wrongly", field);
}
