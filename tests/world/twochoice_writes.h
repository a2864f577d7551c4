/* twochoice_writes.h - two modes of world/twochoice.c: `writes`, clients with a placement and servers with an intake that hang, lie
 * or fail, over a network that delays and loses; `pulls`, a maintainer that brings bytes home. */

#include "examples/world/networks.h"

#define SERVERS 8u
#define CLIENTS 6u
#define SILENT 2u /* clients that reserve and do not write */
#define EACH 8u   /* writes of a request */
#define REQUESTS 64u
#define MS UINT64_C(1000000)
#define ENTRIES 2048u

enum what { BEGIN, CLIENT, SERVER, DONE, SAID, SILENCE };

/* A reservation, as its server knows it. */
struct entry {
    uint64_t client, request, turn, seq; /* seq: of the server's asks so far, when it came */
    uint32_t count, asked;
    bool released;
};
struct op {
    uint64_t client, request, turn, len;
    uint32_t write;
};
struct host {
    struct twochoice_intake intake;
    struct entry entry[ENTRIES];
    struct op op[64];
    uint64_t last_of[CLIENTS + SILENT]; /* number of the last ask to this client; 0: none */
    uint64_t seq, asked_ns, hangs_ns, wakes_ns,
        idle_ns; /* asked_ns: of the last ask; hangs_ns: from then on nothing ends */
    uint32_t entries, ops;
    bool lies, working;
};
struct sent {
    uint32_t home, server, times;
    uint64_t at_ns, len;
    bool ended;
};
struct client {
    struct twochoice_placement placement;
    struct asked {
        uint64_t id;
        uint32_t k;
        struct sent sent[EACH];
    } request[REQUESTS];
    uint32_t requests;
    uint64_t wakes_ns;
};

static struct host host[SERVERS];
static struct client client[CLIENTS];
static unsigned char intakes[SERVERS][1 << 15] __attribute__((aligned(64)));
static unsigned char placements[CLIENTS][1 << 15] __attribute__((aligned(64)));
static struct world_network network;
static struct world_queue due;
static uint32_t servers, clients, silent;
static uint64_t timeout_ns, client_requests;
/* What is said about a write, under way to its client. */
static struct said {
    uint32_t client, write, server;
    uint64_t request;
} said[4096];
static uint32_t saids;

static void wake(uint32_t kind, uint32_t number, uint64_t in_ns)
{
    world_queue_add(&due, now + in_ns, kind, number);
}

static void post(uint32_t from, uint32_t to, const struct twochoice_message *m)
{
    uint8_t bytes[256];
    size_t size;
    if (twochoice_message_encode(m, bytes, sizeof bytes, &size) != QOS_OK) {
        FAULT("wire", "a message cannot be encoded");
        return;
    }
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
        if (h->entry[i].client == of && !h->entry[i].asked && !h->entry[i].released && h->entry[i].seq < since)
            return true;
    return false;
}

/* Promise `turns`: clients take turns. No client is asked twice while another one that waits is not. */
static void note_ask(struct host *h, const struct twochoice_message *ask)
{
    struct entry *e = entry_of(h, ask->client, ask->request, ask->turn);
    uint64_t before, d;
    if (!e || e->released || e->asked >= e->count) {
        FAULT("asks", "a write is asked for that nobody reserved");
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
    if (h->lies)
        return;
    while (!world->broken && twochoice_intake_ask(&h->intake, now, &ask)) {
        note_ask(h, &ask);
        post(j, SERVERS + (uint32_t)ask.client, &ask);
    }
    next_ns = twochoice_intake_next_ns(&h->intake, now);
    (void)twochoice_intake_info(&h->intake, &info);
    for (d = 0; d < clients + silent && h->ops == 0 && info.lead_ns; d++)
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
    if (h->working || h->ops == 0 || now >= h->hangs_ns)
        return;
    h->working = true;
    wake(DONE, j, MS / 2 + h->op[0].len * 10 * (1 + j % 3));
}

static void server_done(uint32_t j)
{
    struct host *h = &host[j];
    const struct op o = h->op[0];
    h->working = false;
    if (now >= h->hangs_ns || h->ops == 0)
        return;
    memmove(h->op, h->op + 1, --h->ops * sizeof h->op[0]);
    h->idle_ns = now;
    if (!h->lies)
        twochoice_intake_end(&h->intake, now, o.len);
    if (saids < 4096) {
        said[saids].client = (uint32_t)o.client;
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
        return;
    }
    if (m->type == TWOCHOICE_RELEASE && e)
        e->released = true;
    if (twochoice_intake_heard(&h->intake, now, m, &answer)) {
        if (answer.state == TWOCHOICE_UP && !e && h->entries < ENTRIES) {
            e = &h->entry[h->entries++];
            memset(e, 0, sizeof *e);
            e->client = m->client;
            e->request = m->request;
            e->turn = m->turn;
            e->count = m->count;
            e->seq = h->seq;
        }
        post(j, SERVERS + (uint32_t)m->client, &answer);
    }
    server_asks(j);
}

/* ---- a client ---- */

/* Promises `another`, `holds`: an overdue or failed write goes to another server; until the timeout a server holds at most
 * ceil(2k / servers) writes of a request, but for those that are sent again, and those whose home it is. */
static void client_binds(uint32_t c, struct asked *r, const struct twochoice_place_order *o)
{
    struct sent *s;
    struct host *h;
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
    s->server = o->server;
    s->at_ns = now;
    s->times++;
    for (i = 0; i < r->k; i++)
        held += r->sent[i].times == 1 && !r->sent[i].ended && r->sent[i].server == o->server &&
                r->sent[i].home != o->server && now < r->sent[i].at_ns + timeout_ns;
    if (held > (2 * r->k + servers - 1) / servers)
        FAULT("holds", "server %" PRIu32 " of %" PRIu32 " holds %" PRIu32 " of %" PRIu32 " writes of a request",
              o->server, servers, held, r->k);
    h = &host[o->server];
    if (h->ops < 64) {
        struct op *op = &h->op[h->ops++];
        op->client = c;
        op->request = r->id;
        op->turn = o->message.turn;
        op->len = s->len;
        op->write = o->write;
        if (!h->lies)
            twochoice_intake_arrived(&h->intake, now, c, o->message.request, o->message.turn, s->len);
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
        idle |= host[i].hangs_ns == UINT64_MAX && host[i].ops == 0 && now > host[i].idle_ns + 100 * MS;
    if (world_choice(world, F_MESSAGES_LOST) || world_choice(world, F_LIARS) || world_choice(world, F_WRITE_FAILURES) ||
        servers < 4 || !idle)
        return;
    for (i = 0; i < x->requests; i++)
        for (w = 0; w < x->request[i].k; w++) {
            const struct sent *s = &x->request[i].sent[w];
            if (s->times == 1 && !s->ended && s->server != s->home && now > s->at_ns + 3 * timeout_ns + 2500 * MS)
                FAULT("overdue", "a write is at server %" PRIu32 " for %.1f ms, and was not sent again", s->server,
                      (double)(now - s->at_ns) / 1e6);
        }
}

static void client_steps(uint32_t c)
{
    struct client *x = &client[c];
    struct twochoice_place_order o;
    uint32_t n;
    for (n = 0; n < 1000 && !world->broken; n++) {
        twochoice_placement_step(&x->placement, now, &o);
        if (o.todo == TWOCHOICE_PLACE_WAIT)
            break;
        if (o.todo == TWOCHOICE_PLACE_SEND)
            post(SERVERS + c, o.server, &o.message);
        else
            client_binds(c, o.tag < x->requests ? &x->request[o.tag] : NULL, &o);
    }
    if (n == 1000)
        FAULT("writes", "1000 orders, and no end");
    judge_overdue(x);
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
    judge_overdue(x);
    wake(BEGIN, c, world_between(&rng, 1, 60 * MS));
    if (x->requests == REQUESTS)
        return;
    memset(r, 0, sizeof *r);
    for (i = 0; i < k; i++) {
        r->sent[i].home = w[i].home = (uint32_t)world_between(&rng, 0, servers - 1);
        r->sent[i].len = w[i].len_bytes = world_scale(&rng, 500, 1000000);
    }
    r->k = k;
    if (twochoice_placement_begin(&x->placement, now, w, k, x->requests, &r->id) != QOS_OK)
        return; /* enough are open */
    x->requests++;
    client_steps(c);
}

static void client_hears_end(const struct said *e)
{
    struct client *x = &client[e->client];
    uint32_t i;
    bool durable;
    for (i = 0; i < x->requests && x->request[i].id != e->request; i++) {
    }
    if (i == x->requests || x->request[i].sent[e->write].ended)
        return;
    durable = x->request[i].sent[e->write].server != e->server ||
              !world_chance(&rng, (uint32_t)world_value(world, F_WRITE_FAILURES));
    x->request[i].sent[e->write].ended = durable;
    if (twochoice_placement_ended(&x->placement, now, e->request, e->write, durable) != QOS_OK)
        FAULT("writes", "the end of an open write is refused");
    client_steps(e->client);
}

/* A client that reserves much and does not write. */
static void be_silent(uint32_t c)
{
    struct twochoice_message m;
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_RESERVE;
    m.count = (uint32_t)world_between(&rng, 1, 20);
    m.client = clients + c;
    m.request = ++client_requests;
    m.turn = client_requests;
    m.len_bytes = 100000;
    m.server = (uint32_t)world_between(&rng, 0, servers - 1);
    post(SERVERS + (uint32_t)m.client, m.server, &m);
    wake(SILENCE, c, world_between(&rng, 5 * MS, 100 * MS));
}

/* ---- the world ---- */

static void writes_begin(void)
{
    struct world_network_config n;
    uint32_t i;
    servers = (uint32_t)world_value(world, F_SERVERS);
    clients = (uint32_t)world_value(world, F_CLIENTS);
    silent = (uint32_t)world_value(world, F_SILENT);
    timeout_ns = (uint64_t)world_value(world, F_TIMEOUT) * MS;
    memset(&n, 0, sizeof n);
    n.lost = (uint32_t)world_value(world, F_MESSAGES_LOST);
    n.delay_ns = 1000;
    n.jitter_ns = world_between(&rng, 1, MS);
    world_network_init(&network, &n, world->seed);
    memset(host, 0, sizeof host);
    memset(client, 0, sizeof client);
    saids = 0;
    client_requests = 0;
    now = 1;
    for (i = 0; i < servers; i++) {
        struct twochoice_intake_config c;
        memset(&c, 0, sizeof c);
        c.server = i;
        c.max_reservations = 200;
        host[i].lies = world_choice(world, F_LIARS) && i == 0;
        host[i].hangs_ns =
            world_choice(world, F_HANGS) && i < (servers + 1) / (world_choice(world, F_HANGS) == 1 ? servers : 2)
                ? world_between(&rng, 1, 1000 * MS)
                : UINT64_MAX;
        if (twochoice_intake_memsize(&c) > sizeof intakes[i] ||
            twochoice_intake_init(&host[i].intake, intakes[i], sizeof intakes[i], &c) != QOS_OK)
            FAULT("init", "an intake within the ranges is refused");
    }
    for (i = 0; i < clients; i++) {
        struct twochoice_placement_config c;
        memset(&c, 0, sizeof c);
        c.servers = servers;
        c.max_writes = EACH;
        c.max_requests = (uint32_t)world_between(&rng, 1, 4);
        c.include_home = world_chance(&rng, 300);
        c.timeout_ns = timeout_ns;
        c.client = i;
        c.seed = world->seed + i;
        if (twochoice_placement_memsize(&c) > sizeof placements[i] ||
            twochoice_placement_init(&client[i].placement, placements[i], sizeof placements[i], &c) != QOS_OK)
            FAULT("init", "a placement within the ranges is refused");
        wake(BEGIN, i, world_between(&rng, 1, 30 * MS));
    }
    for (i = 0; i < silent; i++)
        wake(SILENCE, i, 1);
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
    }
}

static void writes_world(void)
{
    struct world_event e = {0, 0, 0, 0};
    struct world_packet packet;
    struct twochoice_message m, answer;
    writes_begin();
    while (!world->broken && now < 6000 * MS && world->events < 60000) {
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
                server_hears(packet.to, &m);
            } else if (packet.to - SERVERS < clients) {
                const uint32_t c = packet.to - SERVERS;
                if (twochoice_placement_heard(&client[c].placement, now, &m, &answer))
                    post(packet.to, m.server, &answer);
                client_steps(c);
            }
        }
    }
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
    static unsigned char mem[1 << 18] __attribute__((aligned(64)));
    struct twochoice_maintainer maintainer;
    struct twochoice_maintainer_config c;
    struct twochoice_table_config t;
    struct twochoice_table_state info;
    struct twochoice_order o;
    struct twochoice_piece piece[64];
    uint64_t said_ns[SERVERS] = {0}, load[SERVERS], busy_ns = 0, local = 0, stamp, step, offset;
    uint32_t n = 0, i;
    size_t got;
    memset(&c, 0, sizeof c);
    memset(&t, 0, sizeof t);
    c.servers = servers = (uint32_t)world_value(world, F_SERVERS);
    c.rate_bytes_per_s = world_scale(&rng, 1000, UINT64_C(100000000));
    c.piece_bytes = world_scale(&rng, 100, 100000);
    c.idle_load = world_between(&rng, 0, 2);
    c.idle_ns = world_scale(&rng, MS, 200 * MS);
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
    for (now = 1, step = 0; step < 3000 && !world->broken; step++) {
        const bool calm = step >= 1000;
        world->events++;
        if (!calm && world_chance(&rng, 200)) {
            offset = world_between(&rng, 0, 1000000);
            if (twochoice_table_write_begin(&table, world_between(&rng, 0, 5),
                                            (uint32_t)world_between(&rng, 0, servers - 1), offset,
                                            world_scale(&rng, 1, 100000), &stamp) == QOS_OK &&
                twochoice_table_write_end(&table, stamp, piece, 64, &got) != QOS_OK)
                FAULT("end", "an open write does not end");
        }
        if (calm)
            local = 0;
        else if (world_chance(&rng, 50))
            local = world_between(&rng, 0, 4);
        busy_ns = local > c.idle_load ? now : busy_ns;
        if (twochoice_maintainer_step(&maintainer, now, &table, local, &o) != QOS_OK)
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
            now = o.next_ns == QOS_NEVER || o.next_ns > now + 1000 * MS ? now + 10 * MS
                  : o.next_ns > now                                     ? o.next_ns
                                                                        : now + 1;
        }
        now += world_scale(&rng, 1, MS);
    }
    (void)twochoice_table_info(&table, &info);
    if (!world->broken && step < 3000 && info.fragments)
        FAULT("comes_home", "all is idle, %" PRIu32 " fragments are left, and the maintainer waits for ever",
              info.fragments);
}
