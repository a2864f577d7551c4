// A compute node. Its processes' writes are cut at the borders of objects, placed by one scheduler, written, and
// recorded at their homes (Figure 8). A read asks the home where the bytes are and fetches them there.
#include "twochoice_mpi.h"
#include <stdlib.h>
#include <string.h>

#define DECISIONS_MAX 4u
#define REST_NS UINT64_C(1000000000)    /* for this time a server that is down or full is not drawn */
#define SILENCE_NS UINT64_C(5000000000) /* after this wait the tool names the server it waits for */
#define ATTEMPTS 4u
#define READ_ATTEMPTS 1000u

/* State of a part of a transfer. */
enum part_state { QUEUED, BEGINNING, WRITING_AWAY, RECORDING, WRITING_HOME, CANCELLING, QUERYING, READING };

/* A piece of a read range, and its server. */
struct place {
    uint64_t offset, end, stamp;
    uint32_t server;
};

struct part {
    struct transfer *transfer;
    uint64_t object, offset, len, write; /* write: its number, for the trace */
    uint8_t *data;
    uint32_t home, target, attempts;
    enum part_state state;
    uint64_t id, request, queued_ns, since_ns, status;
    uint64_t stamp;       /* of a redirected write: the name of the piece */
    uint64_t why;         /* status of a failed redirected write */
    bool answered, moved; /* moved: MPI is done with the data */
    struct place *piece;
    size_t pieces, piece_at;
    uint64_t read_end; /* read so far: offset in the object */
    struct part *next;
};

struct slot {
    struct part *part;
};

struct decision {
    bool used;
    struct slot *part;
    struct twochoice_write *write;
    struct twochoice_probe *probe;
    struct twochoice_peer *peer; /* loads attached to other messages */
    size_t parts, probes, peers;
    uint64_t request, deadline_ns, asked_ns;
    uint32_t round, missing;
    bool *answered;
};

static struct {
    int rank;
    uint32_t servers, rest_known;
    struct twochoice_placement scheduler;
    void *scheduler_memory;
    struct part *queue, **queue_end;
    struct slot *call; /* parts, indexed by the slot in their note's id */
    size_t queued, calls;
    uint64_t *rest_until_ns;
    struct decision decision;
    uint64_t requests, ids, writes;
    uint32_t under_way, idle;
    struct note *asked;                /* client_ask waits for this answer; NULL: received */
    uint64_t probing, probing_missing; /* client_probe_all: request id, answers missing */
} client;

struct client_counts client_counts;

void client_tally_add(struct client_tally *sum, const struct client_tally *one)
{
    sum->failed += one->failed;
    sum->parts += one->parts;
    sum->redirected += one->redirected;
    sum->decisions += one->decisions;
    sum->probes += one->probes;
    sum->no_answer += one->no_answer;
    sum->said_full += one->said_full;
    sum->said_down += one->said_down;
    sum->redone += one->redone;
    sum->requeries += one->requeries;
    sum->late_answers += one->late_answers;
}

void client_tally_json(struct json *j, const struct client_tally *t)
{
    json_u64(j, "parts", t->parts);
    json_u64(j, "redirected", t->redirected);
    json_u64(j, "decisions", t->decisions);
    json_u64(j, "probes", t->probes);
    json_u64(j, "no_answer", t->no_answer);
    json_u64(j, "late_answers", t->late_answers);
    json_u64(j, "said_full", t->said_full);
    json_u64(j, "said_down", t->said_down);
    json_u64(j, "redone", t->redone);
    json_u64(j, "requeries", t->requeries);
    json_u64(j, "failed", t->failed);
}

const char *const scheduler_name[SCHEDS] = {"fixed", "random", "native", "collaborative", "dynamic"};

const char *status_text(uint64_t status)
{
    static const char *const text[] = {"done",          "bytes have moved",   "redirect table is full",
                                       "no space left", "input/output error", "server is gone",
                                       "refused"};
    return status < sizeof text / sizeof *text ? text[status] : "unknown answer";
}

void client_policy(int policy, uint64_t seed, bool include_home)
{
    static const uint32_t of[SCHEDS] = {TWOCHOICE_FIXED, TWOCHOICE_RANDOM, TWOCHOICE_NATIVE, TWOCHOICE_COLLABORATIVE,
                                        TWOCHOICE_COLLABORATIVE};
    struct twochoice_placement_config config = {0};
    config.servers = client.servers;
    config.max_writes = (uint32_t)settings.k;
    config.policy = of[policy];
    config.min_write_bytes = settings.min_write ? settings.min_write : QOS_NOTHING;
    config.include_home = include_home;
    config.seed = seed * 1000003 + (uint64_t)client.rank;
    if (!client.scheduler_memory)
        client.scheduler_memory = tool_alloc_aligned(twochoice_placement_memsize(&config), 64);
    if (twochoice_placement_init(&client.scheduler, client.scheduler_memory, twochoice_placement_memsize(&config),
                                 &config) != QOS_OK)
        tool_die(TOOL_FAILED, "scheduler: --servers or --k is out of range");
    memset(client.rest_until_ns, 0, client.servers * sizeof(uint64_t));
    client.rest_known = 0;
    memset(&client_counts, 0, sizeof client_counts);
    hist_clear(&client_counts.decide);
    hist_clear(&client_counts.create);
    hist_clear(&client_counts.query);
    hist_clear(&client_counts.write);
}

void client_open(int rank, uint32_t servers)
{
    struct decision *d = &client.decision;
    size_t k = settings.k;
    client.rank = rank;
    client.servers = servers;
    client.queue_end = &client.queue;
    client.rest_until_ns = tool_alloc(servers * sizeof(uint64_t));
    d->part = tool_alloc(k * sizeof *d->part);
    d->write = tool_alloc(k * sizeof *d->write);
    d->probe = tool_alloc(4 * k * sizeof *d->probe);
    d->answered = tool_alloc(4 * k * sizeof *d->answered);
    d->peer = tool_alloc(2 * k * sizeof *d->peer);
    client_policy(SCHED_DYNAMIC, settings.seed, settings.include_home);
}

uint32_t client_under_way(void)
{
    return client.under_way;
}

/* ---- servers that are not drawn for a while -------------------------------------------------------- */

static void let_rest(uint32_t server, enum twochoice_server_state state)
{
    if (server >= client.servers)
        return;
    client.rest_known += client.rest_until_ns[server] == 0;
    client.rest_until_ns[server] = tool_now_ns() + REST_NS;
    if (twochoice_placement_set_server(&client.scheduler, server, state, 0) != QOS_OK)
        client.rest_until_ns[server] = 0;
}

static void wake_rested(uint64_t now_ns)
{
    uint32_t i;
    for (i = 0; i < client.servers && client.rest_known; i++)
        if (client.rest_until_ns[i] && now_ns >= client.rest_until_ns[i] &&
            twochoice_placement_set_server(&client.scheduler, i, TWOCHOICE_UP, 0) == QOS_OK) {
            client.rest_until_ns[i] = 0;
            client.rest_known--;
        }
}

/* ---- requests to servers --------------------------------------------------------------------------------- */

static uint64_t new_call(struct part *p)
{
    size_t i;
    for (i = 0; i < client.calls && client.call[i].part; i++)
        ;
    if (i == client.calls) {
        client.call = tool_grow(client.call, (i + 1) * sizeof *client.call);
        client.calls++;
    }
    client.call[i].part = p;
    return ++client.ids << 16 | i; /* a number used once, as answers may be late, and the slot */
}

static void ask_for(struct part *p, enum part_state state, enum op op, uint32_t server)
{
    struct note n;
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    p->state = state;
    p->answered = false;
    p->moved = true;
    p->since_ns = tool_now_ns();
    n.op = op;
    n.id = p->id = new_call(p);
    n.write = p->write;
    n.request = p->request;
    n.object = p->object;
    n.offset = p->offset;
    n.len = p->len;
    n.server = p->target;
    n.stamp = p->target == p->home ? 0 : p->stamp;
    if (op == OP_QUERY) {
        n.offset = p->read_end;
        n.len = p->offset + p->len - p->read_end;
    } else if (op == OP_READ) {
        n.offset = p->piece[p->piece_at].offset;
        n.len = p->piece[p->piece_at].end - n.offset;
        n.stamp = p->piece[p->piece_at].stamp;
    }
    if (op == OP_WRITE) {
        link_send_note((int)server, &n);
        link_send_data((int)server, n.id, p->data, (size_t)p->len, &p->moved);
        client_counts.bytes_to[server] += p->len;
        return;
    }
    link_send_note((int)server, &n);
}

/* ---- the end of a part ----------------------------------------------------------------------------------- */

static void end_part(struct part *p, uint64_t status)
{
    struct transfer *t = p->transfer;
    if (status != ST_OK) {
        static uint64_t told;
        if (!t->failed && told++ < 8)
            tool_warn("process %u of rank %d: %s of %" PRIu64 " bytes at %" PRIu64 " failed: %s (home server %u)%s",
                      t->process, client.rank, t->write ? "write" : "read", p->len, t->offset, status_text(status),
                      p->home, told == 8 ? "; more are only counted" : "");
        t->failed = true;
        t->status = status;
    } else if (t->write) {
        trace_line("ack", p->write);
        client_counts.tally.redirected += p->target != p->home;
    }
    client_counts.tally.parts++;
    free(p);
    if (--t->parts)
        return;
    t->end_ns = tool_now_ns();
    t->done = true;
    client.under_way--;
    client_counts.tally.failed += t->failed;
    if (t->write) {
        client_counts.writes++;
        hist_add(&client_counts.write, qos_elapsed_ns(t->start_ns, t->end_ns));
    } else {
        client_counts.reads++;
    }
}

/* ---- placing: Sections III and V-A ----------------------------------------------------------------------- */

static void queue_part(struct part *p)
{
    p->state = QUEUED;
    p->next = NULL;
    *client.queue_end = p;
    client.queue_end = &p->next;
    client.queued++;
}

static void start_write(struct part *p)
{
    if (p->target == p->home)
        ask_for(p, WRITING_HOME, OP_WRITE, p->home);
    else
        ask_for(p, BEGINNING, OP_BEGIN, p->home);
}

static bool first_of_server(const struct decision *d, size_t i)
{
    size_t j;
    for (j = 0; j < i; j++)
        if (d->probe[j].server == d->probe[i].server)
            return false;
    return true;
}

static uint64_t largest(const struct decision *d)
{
    uint64_t len = 0;
    size_t i;
    for (i = 0; i < d->parts; i++)
        len = qos_max(len, d->write[i].len_bytes);
    return len;
}

/* Sends a PROBE to each server that has not answered; one PROBE if two writes probe the same server. */
static void send_probes(struct decision *d, uint64_t now_ns)
{
    struct twochoice_message m;
    size_t i;
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_PROBE;
    m.client = (uint64_t)client.rank;
    m.request = d->request;
    m.len_bytes = largest(d);
    d->missing = 0;
    d->deadline_ns = now_ns + settings.probe_timeout_ns;
    for (i = 0; i < d->probes; i++) {
        if (d->answered[i] || !first_of_server(d, i))
            continue;
        m.server = d->probe[i].server;
        link_send_message((int)m.server, &m, NULL);
        client_counts.tally.probes++;
        d->missing++;
    }
}

/* Sends a DECISION to each probed server, chosen or not, with the loads of the others. */
static void send_decisions(struct decision *d, size_t asked)
{
    struct twochoice_peer peer[32];
    struct twochoice_message m;
    size_t i, j;
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_DECISION;
    m.client = (uint64_t)client.rank;
    m.request = d->request;
    for (i = 0; i < asked && settings.peers_ns && m.peer_count < 32; i++)
        if (d->probe[i].state == TWOCHOICE_UP && first_of_server(d, i))
            peer[m.peer_count++] = (struct twochoice_peer){d->probe[i].server, d->probe[i].load, 0};
    for (i = 0; i < d->probes; i++) {
        if (!first_of_server(d, i))
            continue;
        m.server = d->probe[i].server;
        m.chosen = 0;
        m.len_bytes = 0;
        for (j = 0; j < d->parts; j++)
            if (d->write[j].target == m.server) {
                m.chosen++;
                m.len_bytes += d->write[j].len_bytes;
            }
        link_send_message((int)m.server, &m, peer);
    }
}

static void decide(struct decision *d, uint64_t now_ns)
{
    size_t asked = d->probes, i, j;
    for (i = 0; i < d->peers && d->probes < 4 * settings.k; i++) { /* servers of attached loads are candidates too */
        struct twochoice_probe *p = &d->probe[d->probes];
        for (j = 0; j < d->probes && d->probe[j].server != d->peer[i].server; j++)
            ;
        if (j < d->probes || d->peer[i].server >= client.servers || client.rest_until_ns[d->peer[i].server])
            continue;
        memset(p, 0, sizeof *p);
        p->server = d->peer[i].server;
        p->weight = 1;
        p->state = TWOCHOICE_UP;
        p->load = d->peer[i].load;
        d->probes++;
    }
    if (twochoice_placement_decide(&client.scheduler, d->write, d->parts, d->probe, d->probes) != QOS_OK)
        tool_die(TOOL_FAILED, "a decision failed");
    if (asked) {
        client_counts.tally.decisions++;
        hist_add(&client_counts.decide, qos_elapsed_ns(d->asked_ns, now_ns));
        send_decisions(d, asked);
    }
    d->used = false;
    for (i = 0; i < d->parts; i++) {
        struct part *p = d->part[i].part;
        p->target = d->write[i].target;
        p->request = d->request;
        p->transfer->probe_ns = qos_max(p->transfer->probe_ns, qos_elapsed_ns(p->queued_ns, now_ns));
        start_write(p);
    }
}

/* All have answered or timed out: replaces servers that cannot take a write, or decides. */
static void conclude(struct decision *d, uint64_t now_ns)
{
    size_t changed = 0, i;
    for (i = 0; i < d->probes; i++)
        if (!d->answered[i] && first_of_server(d, i)) {
            client_counts.tally.no_answer++;
            let_rest(d->probe[i].server, TWOCHOICE_DOWN);
        }
    if (twochoice_placement_redraw(&client.scheduler, d->round++, d->probe, d->probes, &changed) != QOS_OK)
        changed = 0;
    if (changed == 0) {
        decide(d, now_ns);
        return;
    }
    for (i = 0; i < d->probes; i++)
        d->answered[i] = d->probe[i].state == TWOCHOICE_UP;
    send_probes(d, now_ns);
}

static void begin_decision(struct decision *d, uint64_t now_ns)
{
    size_t i;
    d->used = true;
    d->round = 0;
    d->peers = d->parts = 0;
    while (client.queue && d->parts < settings.k) {
        struct part *p = client.queue;
        client.queue = p->next;
        client.queued--;
        d->part[d->parts].part = p;
        d->write[d->parts].home = d->write[d->parts].target = p->home;
        d->write[d->parts].len_bytes = p->len;
        d->parts++;
    }
    if (!client.queue)
        client.queue_end = &client.queue;
    d->request = (uint64_t)client.rank << 40 | ++client.requests;
    if (twochoice_placement_ask(&client.scheduler, d->write, d->parts, d->probe, &d->probes) != QOS_OK)
        tool_die(TOOL_FAILED, "a decision failed");
    for (i = 0; i < d->probes; i++)
        d->answered[i] = false;
    d->asked_ns = now_ns;
    send_probes(d, now_ns);
    if (d->missing == 0)
        decide(d, now_ns);
}

static void load_heard(struct decision *d, const struct twochoice_message *m, const struct twochoice_peer *peers)
{
    bool heard = false;
    size_t i, j;
    for (i = 0; i < d->probes; i++) {
        if (d->probe[i].server != m->server || d->answered[i])
            continue;
        d->answered[i] = heard = true;
        d->probe[i].state = m->state;
        d->probe[i].load = m->load;
        d->probe[i].rivals = m->rivals;
    }
    if (!heard)
        return;
    d->missing--;
    if (m->state != TWOCHOICE_UP) {
        client_counts.tally.said_down += m->state == TWOCHOICE_DOWN;
        client_counts.tally.said_full += m->state == TWOCHOICE_FULL;
        let_rest(m->server, m->state == TWOCHOICE_DOWN ? TWOCHOICE_DOWN : TWOCHOICE_FULL);
    }
    for (i = 0; i < m->peer_count; i++) { /* keeps the latest load of each server */
        for (j = 0; j < d->peers && d->peer[j].server != peers[i].server; j++)
            ;
        if (j < d->peers ? peers[i].age_ns < d->peer[j].age_ns : j < 2 * settings.k) {
            d->peer[j] = peers[i];
            d->peers += j == d->peers;
        }
    }
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* The write failed at its target: tries another server, a bounded number of times. */
static void write_again(struct part *p, uint64_t status)
{
    bool elsewhere = client.scheduler.policy != TWOCHOICE_FIXED;
    if (status == ST_NO_SPACE || (status == ST_DOWN && p->target != p->home)) {
        let_rest(p->target, status == ST_DOWN ? TWOCHOICE_DOWN : TWOCHOICE_FULL);
        if (elsewhere && ++p->attempts < ATTEMPTS && client.scheduler.up != 0) {
            client_counts.tally.redone++;
            queue_part(p);
            return;
        }
    }
    if (p->target != p->home && status != ST_DOWN && p->attempts < ATTEMPTS) {
        p->attempts = ATTEMPTS;
        p->target = p->home;
        client_counts.tally.redone++;
        start_write(p);
        return;
    }
    end_part(p, status);
}

static void write_answered(struct part *p)
{
    uint64_t now_ns = tool_now_ns(), status = p->status;
    switch (p->state) {
    case BEGINNING:
        if (status == ST_OK) {
            ask_for(p, WRITING_AWAY, OP_WRITE, p->target);
        } else if (status == ST_FULL) { /* the table is full: writes at home */
            p->target = p->home;
            start_write(p);
        } else {
            end_part(p, status);
        }
        break;
    case WRITING_AWAY:
        if (status == ST_OK) {
            ask_for(p, RECORDING, OP_END, p->home);
        } else {
            client_counts.bytes_to[p->target] -= p->len;
            p->why = status;
            ask_for(p, CANCELLING, OP_CANCEL, p->home);
        }
        break;
    case CANCELLING: write_again(p, p->why); break;
    case RECORDING:
        hist_add(&client_counts.create, qos_elapsed_ns(p->since_ns, now_ns));
        if (status == ST_NO) /* the home does not know the stamp: begins again with a new one */
            write_again(p, status);
        else
            end_part(p, status);
        break;
    default: /* WRITING_HOME */
        if (status == ST_OK) {
            end_part(p, status);
        } else {
            client_counts.bytes_to[p->target] -= p->len;
            write_again(p, status);
        }
        break;
    }
}

/* ---- reading: steps (a), (b) of Figure 8 ----------------------------------------------------------------- */

/* Reads the next piece that the home listed, or asks the home again. */
static void read_on(struct part *p)
{
    if (p->piece_at < p->pieces) {
        ask_for(p, READING, OP_READ, p->piece[p->piece_at].server);
        return;
    }
    if (p->read_end == p->offset + p->len) {
        free(p->piece);
        end_part(p, ST_OK);
        return;
    }
    ask_for(p, QUERYING, OP_QUERY, p->home);
}

static void end_read(struct part *p, uint64_t status)
{
    free(p->piece);
    end_part(p, status);
}

/* The home's answer: pieces in order and without gaps, from read_end on. */
static bool take_pieces(struct part *p, const struct note *n)
{
    uint64_t at = p->read_end, i;
    p->pieces = p->piece_at = 0;
    if (!p->piece)
        p->piece = tool_alloc(NOTE_PIECES * sizeof *p->piece);
    for (i = 0; i + 4 <= n->words; i += 4) {
        struct place *to = &p->piece[p->pieces];
        to->offset = n->word[i];
        to->end = n->word[i + 1];
        to->server = (uint32_t)n->word[i + 2];
        to->stamp = n->word[i + 3];
        if (to->offset != at || to->end <= at || to->end > p->offset + p->len || to->server >= client.servers)
            return false;
        at = to->end;
        p->pieces++;
    }
    return p->pieces != 0;
}

static void read_answered(struct part *p)
{
    uint64_t now_ns = tool_now_ns();
    if (p->state == QUERYING) {
        hist_add(&client_counts.query, qos_elapsed_ns(p->since_ns, now_ns));
        if (p->status == ST_OK)
            read_on(p);
        else
            end_read(p, p->status);
    } else if (p->status == ST_OK) {
        p->read_end = p->piece[p->piece_at++].end;
        read_on(p);
    } else if (p->status == ST_GONE && ++p->attempts < READ_ATTEMPTS) { /* pulled home meanwhile: asks the home */
        client_counts.tally.requeries++;
        p->pieces = p->piece_at = 0;
        read_on(p);
    } else {
        if (p->status == ST_DOWN)
            tool_warn("server %u, which holds bytes %" PRIu64 "-%" PRIu64 " of object %016" PRIx64 ", is gone",
                      p->piece[p->piece_at].server, p->piece[p->piece_at].offset, p->piece[p->piece_at].end, p->object);
        end_read(p, p->status);
    }
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void on_note(void *ctx, int from, const struct note *n)
{
    struct part *p;
    (void)ctx;
    if (client.asked && n->id == client.asked->id) {
        memcpy(client.asked, n, sizeof(uint64_t) * (NOTE_HEAD + n->words));
        client.asked = NULL;
        return;
    }
    p = (n->id & 0xffff) < client.calls ? client.call[n->id & 0xffff].part : NULL;
    if (!p || p->id != n->id || p->answered)
        return;
    p->answered = true;
    p->status = n->status;
    if (p->state == BEGINNING)
        p->stamp = n->stamp;
    if (p->state == QUERYING && n->status == ST_OK && !take_pieces(p, n))
        p->status = ST_NO;
    if (p->state == READING && n->status == ST_OK)
        link_receive_data(from, n->id, p->data + (p->piece[p->piece_at].offset - p->offset), (size_t)n->len, &p->moved);
}

static void on_message(void *ctx, int from, const struct twochoice_message *m, const struct twochoice_peer *peers)
{
    (void)ctx;
    (void)from;
    if (m->type != TWOCHOICE_LOAD)
        return;
    if (client.probing && m->request == client.probing) {
        client.probing_missing--;
        return;
    }
    if (client.decision.used && m->request == client.decision.request)
        load_heard(&client.decision, m, peers);
    else
        client_counts.tally.late_answers++;
}

/* The server that the part waits for. */
static uint32_t asked_server(const struct part *p)
{
    switch (p->state) {
    case WRITING_AWAY: return p->target;
    case READING: return p->piece[p->piece_at].server;
    default: return p->home;
    }
}

static bool advance_parts(void)
{
    static uint64_t told_ns;
    uint64_t now_ns = tool_now_ns();
    bool any = false;
    size_t i;
    for (i = 0; i < client.calls; i++) {
        struct part *p = client.call[i].part;
        if (p && !p->answered && qos_elapsed_ns(qos_max(p->since_ns, told_ns), now_ns) > SILENCE_NS) {
            told_ns = now_ns;
            tool_warn("rank %d: server %u has not answered for %s; waiting", client.rank, asked_server(p),
                      human_ns((double)(now_ns - p->since_ns)).text);
        }
        if (!p || !p->answered || !p->moved)
            continue;
        client.call[i].part = NULL;
        any = true;
        if (p->transfer->write)
            write_answered(p);
        else
            read_answered(p);
    }
    return any;
}

bool client_poll(void)
{
    static const struct link_handler handler = {NULL, on_note, on_message};
    struct decision *d = &client.decision;
    uint64_t now_ns;
    bool any = link_poll(&handler) | advance_parts();
    now_ns = tool_now_ns();
    wake_rested(now_ns);
    if (d->used && (d->missing == 0 || now_ns >= d->deadline_ns)) {
        conclude(d, now_ns);
        any = true;
    }
    if (!d->used && client.queue) {
        begin_decision(d, now_ns);
        any = true;
    }
    client.idle = any ? 0 : client.idle + 1;
    return any;
}

void client_wait(void)
{
    link_nap(client.idle, -1);
}

void client_start(struct transfer *t)
{
    uint64_t at = t->offset, end = t->offset + t->len;
    t->start_ns = tool_now_ns();
    t->failed = t->done = false;
    t->probe_ns = 0;
    t->parts = 1; /* one reference of its own, until all parts have begun */
    client.under_way++;
    while (at < end) { /* parts end at objects' borders, and fit a buffer */
        const struct file_layout *f = t->layout;
        uint64_t index = at / settings.object_bytes, within = at % settings.object_bytes;
        struct part *p = tool_alloc(sizeof *p);
        p->transfer = t;
        p->home = (uint32_t)((f->first + index % f->width) % client.servers);
        p->target = p->home;
        p->object = OBJECT(p->home, f->number, index);
        p->offset = within;
        p->len = qos_min(qos_min(settings.object_bytes - within, end - at), settings.part_bytes);
        p->data = t->data + (at - t->offset);
        p->queued_ns = t->start_ns;
        p->read_end = p->offset;
        p->write = (uint64_t)client.rank << 40 | ++client.writes;
        at += p->len;
        t->parts++;
        if (t->write)
            queue_part(p);
        else
            read_on(p);
    }
    t->parts--;
}

void client_finish(void)
{
    while (client.under_way)
        if (!client_poll())
            client_wait();
}

/* ---- single requests ------------------------------------------------------------------------------------- */

void client_ask(uint32_t server, struct note *n)
{
    n->id = ++client.ids << 16 | 0xffff; /* no part has this slot */
    n->words = 0;
    client.asked = n;
    link_send_note((int)server, n);
    while (client.asked)
        if (!client_poll())
            client_wait();
}

uint64_t client_probe_all(uint32_t servers)
{
    struct twochoice_message m;
    uint64_t start_ns = tool_now_ns(), took_ns;
    uint32_t i;
    memset(&m, 0, sizeof m);
    m.client = (uint64_t)client.rank;
    m.request = client.probing = (uint64_t)client.rank << 40 | ++client.requests;
    m.len_bytes = settings.write_bytes;
    client.probing_missing = servers;
    m.type = TWOCHOICE_PROBE;
    for (i = 0; i < servers; i++) {
        m.server = i;
        link_send_message((int)i, &m, NULL);
    }
    while (client.probing_missing)
        if (!client_poll())
            client_wait();
    took_ns = qos_elapsed_ns(start_ns, tool_now_ns());
    client.probing = 0;
    m.type = TWOCHOICE_DECISION;
    for (i = 0; i < servers; i++) {
        m.server = i;
        link_send_message((int)i, &m, NULL);
    }
    return took_ns;
}
