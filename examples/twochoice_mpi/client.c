// A compute node. Its processes' writes are cut at the borders of objects, placed by one scheduler, written, and
// recorded at their homes (Figure 8). A read asks the home where the bytes are and fetches them there.
#include "twochoice_mpi.h"
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 4u                 /* of informed, open at once */
#define REST_NS UINT64_C(1000000000)    /* for this time a server that is down or full is not drawn */
#define SILENCE_NS UINT64_C(5000000000) /* after this wait the tool names the server it waits for */
#define ATTEMPTS 4u
#define READ_ATTEMPTS 1000u

/* State of a part of a transfer. */
enum part_state {
    QUEUED,
    PLACED,
    BEGINNING,
    BEGUN,
    BINDING,
    WRITING_AWAY,
    RECORDING,
    WRITING_HOME,
    CANCELLING,
    QUERYING,
    READING
};

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
    /* informed: a part of a request, and what was sent of it */
    struct request *of;
    struct part *whole, *last; /* whole: of what is sent; last: what was sent last */
    uint32_t index, sent;      /* sent: not yet over */
    uint64_t turn;
    bool over, recording;
};

/* A request of informed. */
struct request {
    bool used;
    uint64_t id, begun_ns;
    struct part **part;
    size_t parts, open;
};

struct slot {
    struct part *part;
};

/* A decision by one of the paper's rules. */
struct decision {
    bool used;
    struct slot *part;
    uint32_t *target;
    struct two_choice_probe *probe;
    size_t parts, probes;
    uint64_t request, deadline_ns, asked_ns;
    uint32_t round, missing;
    bool *answered;
};

static struct {
    int rank;
    uint32_t servers, rest_known, *order;
    int scheduler;
    bool include_home, *resting;
    struct qos_rng rng;
    struct twochoice_placement placement;
    void *placement_memory;
    struct request request[REQUESTS_MAX];
    struct part *queue, **queue_end;
    struct slot *call; /* parts, indexed by the slot in their note's id */
    size_t queued, calls;
    uint64_t *rest_until_ns;
    struct decision decision;
    uint64_t requests, ids, writes;
    uint32_t under_way, sent, idle;    /* sent: by informed, and not yet over */
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

const char *const scheduler_name[SCHEDS] = {"fixed", "random", "native", "dynamic", "informed"};

const char *status_text(uint64_t status)
{
    static const char *const text[] = {"done",          "bytes have moved",   "redirect table is full",
                                       "no space left", "input/output error", "server is gone",
                                       "refused"};
    return status < sizeof text / sizeof *text ? text[status] : "unknown answer";
}

void client_policy(int policy, uint64_t seed, bool include_home)
{
    struct twochoice_placement_config config = {0};
    config.servers = client.servers;
    config.max_writes = (uint32_t)settings.k;
    config.max_requests = REQUESTS_MAX;
    config.include_home = include_home;
    config.timeout_ns = 20 * settings.probe_timeout_ns;
    config.client = (uint64_t)client.rank;
    config.seed = seed * 1000003 + (uint64_t)client.rank;
    if (!client.placement_memory)
        client.placement_memory = tool_alloc_aligned(twochoice_placement_memsize(&config), 64);
    if (twochoice_placement_init(&client.placement, client.placement_memory, twochoice_placement_memsize(&config),
                                 &config) != QOS_OK)
        tool_die(TOOL_FAILED, "scheduler: --servers, --k or --probe-timeout is out of range");
    client.scheduler = policy;
    client.include_home = include_home;
    qos_rng_seed(&client.rng, config.seed);
    memset(client.resting, 0, client.servers * sizeof(bool));
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
    uint32_t i;
    client.rank = rank;
    client.servers = servers;
    client.queue_end = &client.queue;
    client.rest_until_ns = tool_alloc(servers * sizeof(uint64_t));
    client.resting = tool_alloc(servers * sizeof(bool));
    client.order = tool_alloc(servers * sizeof(uint32_t));
    for (i = 0; i < servers; i++)
        client.order[i] = i;
    for (i = 0; i < REQUESTS_MAX; i++)
        client.request[i].part = tool_alloc(k * sizeof(struct part *));
    d->part = tool_alloc(k * sizeof *d->part);
    d->target = tool_alloc(k * sizeof *d->target);
    d->probe = tool_alloc(2 * k * sizeof *d->probe);
    d->answered = tool_alloc(2 * k * sizeof *d->answered);
    client_policy(SCHED_INFORMED, settings.seed, true);
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
    client.resting[server] = true;
    (void)!twochoice_placement_set_server(&client.placement, server, state);
}

static void wake_rested(uint64_t now_ns)
{
    uint32_t i;
    for (i = 0; i < client.servers && client.rest_known; i++)
        if (client.rest_until_ns[i] && now_ns >= client.rest_until_ns[i]) {
            (void)!twochoice_placement_set_server(&client.placement, i, TWOCHOICE_UP);
            client.resting[i] = false;
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
    n.turn = p->turn;
    n.object = p->object;
    n.offset = p->offset;
    n.len = p->len;
    n.server = p->target;
    n.stamp = op == OP_WRITE && p->target == p->home ? 0 : p->stamp;
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

static void finish_part(const struct part *p, uint64_t status)
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

static void end_part(struct part *p, uint64_t status)
{
    finish_part(p, status);
    free(p);
}

/* ---- placing by the paper's rules: Section III ----------------------------------------------------------- */

static void queue_part(struct part *p)
{
    p->state = QUEUED;
    p->next = NULL;
    *client.queue_end = p;
    client.queue_end = &p->next;
    client.queued++;
}

static struct part *next_in_queue(void)
{
    struct part *p = client.queue;
    client.queue = p->next;
    client.queued--;
    if (!client.queue)
        client.queue_end = &client.queue;
    return p;
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

/* To each probed server: OP_PROBE, or OP_DECIDE with the bytes that come. One note if two writes probe the same server. */
static void tell_probed(const struct decision *d, enum op op)
{
    struct note n;
    size_t i, j;
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    n.op = op;
    n.request = d->request;
    for (i = 0; i < d->probes; i++) {
        if (!first_of_server(d, i))
            continue;
        n.len = 0;
        for (j = 0; j < d->parts; j++)
            if (op == OP_PROBE)
                n.len = qos_max(n.len, d->part[j].part->len);
            else
                n.len += d->target[j] == d->probe[i].server ? d->part[j].part->len : 0;
        link_send_note((int)d->probe[i].server, &n);
    }
}

static void decide(struct decision *d, uint64_t now_ns)
{
    size_t i;
    for (i = 0; i < d->parts && client.scheduler == SCHED_NATIVE; i++) {
        const struct two_choice_probe *pair = &d->probe[2 * i];
        const struct two_choice_probe *better = &pair[pair[1].load < pair[0].load];
        d->target[i] = better->load == UINT64_MAX ? UINT32_MAX : better->server;
    }
    tell_probed(d, OP_DECIDE);
    client_counts.tally.decisions++;
    hist_add(&client_counts.decide, qos_elapsed_ns(d->asked_ns, now_ns));
    d->used = false;
    for (i = 0; i < d->parts; i++) {
        struct part *p = d->part[i].part;
        p->target = d->target[i] == UINT32_MAX ? p->home : d->target[i];
        p->request = d->request;
        p->transfer->probe_ns = qos_max(p->transfer->probe_ns, qos_elapsed_ns(p->queued_ns, now_ns));
        start_write(p);
    }
}

static void begin_probes(struct decision *d, uint64_t now_ns)
{
    size_t i;
    d->request = (uint64_t)client.rank << 40 | ++client.requests;
    d->probes = 0;
    if (client.scheduler == SCHED_NATIVE) {
        for (i = 0; i < d->parts; i++) {
            uint32_t n =
                two_choice_draw(&client.rng, client.order, client.servers, client.resting, 2, d->probe + 2 * i);
            if (n == 0)
                d->probe[2 * i] = (struct two_choice_probe){d->part[i].part->home, 0, 0};
            if (n < 2)
                d->probe[2 * i + 1] = d->probe[2 * i];
            if (client.include_home && !client.resting[d->part[i].part->home])
                d->probe[2 * i].server = d->part[i].part->home;
        }
        d->probes = 2 * d->parts;
    } else {
        d->probes = two_choice_draw(&client.rng, client.order, client.servers, client.resting, 2 * (uint32_t)d->parts,
                                    d->probe);
    }
    d->missing = 0;
    for (i = 0; i < d->probes; i++) {
        d->answered[i] = false;
        d->probe[i].load = UINT64_MAX;
        d->missing += first_of_server(d, i);
    }
    client_counts.tally.probes += d->missing;
    d->deadline_ns = now_ns + settings.probe_timeout_ns;
    tell_probed(d, OP_PROBE);
}

/* All have answered or timed out: begins again without servers that cannot take a write, or decides. */
static void conclude(struct decision *d, uint64_t now_ns)
{
    size_t i, usable = 0;
    for (i = 0; i < d->probes; i++) {
        usable += d->probe[i].load != UINT64_MAX;
        if (!d->answered[i] && first_of_server(d, i)) {
            client_counts.tally.no_answer++;
            let_rest(d->probe[i].server, TWOCHOICE_DOWN);
        }
    }
    memset(d->target, 0xff, d->parts * sizeof *d->target);
    if (usable < d->probes && ++d->round <= 2) {
        tell_probed(d, OP_DECIDE);
        begin_probes(d, now_ns);
        return;
    }
    if (client.scheduler == SCHED_DYNAMIC)
        two_choice_keep(d->probe, (uint32_t)d->probes, (uint32_t)d->parts, d->target);
    decide(d, now_ns);
}

static void begin_decision(struct decision *d, uint64_t now_ns)
{
    d->used = true;
    d->round = 0;
    d->parts = 0;
    while (client.queue && d->parts < settings.k)
        d->part[d->parts++].part = next_in_queue();
    d->asked_ns = now_ns;
    begin_probes(d, now_ns);
}

static void load_heard(struct decision *d, uint32_t from, const struct note *n)
{
    bool heard = false;
    size_t i;
    for (i = 0; d->used && n->request == d->request && i < d->probes; i++) {
        if (d->probe[i].server != from || d->answered[i])
            continue;
        d->answered[i] = heard = true;
        d->probe[i].load = n->status == ST_OK ? n->len : UINT64_MAX;
    }
    if (!heard) {
        client_counts.tally.late_answers++;
        return;
    }
    d->missing--;
    if (n->status != ST_OK) {
        client_counts.tally.said_down += n->status == ST_DOWN;
        client_counts.tally.said_full += n->status == ST_NO_SPACE;
        let_rest(from, n->status == ST_DOWN ? TWOCHOICE_DOWN : TWOCHOICE_FULL);
    }
}

/* ---- placing by twochoice.h ------------------------------------------------------------------------------ */

/* A write at home records itself, and cannot be called back: nothing else of the part is recorded meanwhile. */
static void write_home(struct part *a)
{
    a->whole->recording = true;
    a->target = a->home;
    ask_for(a, WRITING_HOME, OP_WRITE, a->home);
}

/* What is sent of a part: it begins at its home while its target is still chosen. It has data of its own, as the part
 * may end before MPI is done with it. */
static struct part *send_again(struct part *p, uint32_t target)
{
    struct part *a = tool_alloc(sizeof *a);
    *a = *p;
    a->whole = p;
    a->target = target;
    a->data = tool_alloc(p->len);
    memcpy(a->data, p->data, p->len);
    p->last = a;
    p->sent++;
    client.sent++;
    if (target == p->home)
        write_home(a);
    else
        ask_for(a, BEGINNING, OP_BEGIN, p->home);
    return a;
}

static void begin_request(struct request *r, uint64_t now_ns)
{
    struct twochoice_write *w = tool_alloc(settings.k * sizeof *w);
    size_t i;
    r->used = true;
    r->begun_ns = now_ns;
    for (r->parts = 0; client.queue && r->parts < settings.k; r->parts++) {
        struct part *p = r->part[r->parts] = next_in_queue();
        p->state = PLACED;
        p->of = r;
        p->index = (uint32_t)r->parts;
        w[r->parts] = (struct twochoice_write){p->home, p->len};
    }
    r->open = r->parts;
    if (twochoice_placement_begin(&client.placement, now_ns, w, r->parts, (uint64_t)(r - client.request), &r->id) !=
        QOS_OK)
        tool_die(TOOL_FAILED, "a request failed");
    client_counts.tally.decisions++;
    for (i = 0; i < r->parts; i++)
        if (r->part[i]->len >= TWOCHOICE_MIN_WRITE_BYTES)
            send_again(r->part[i], TWOCHOICE_UNBOUND);
    free(w);
}

/* The part has ended: one of what was sent of it was acknowledged, or it is given up. */
static void end_whole(struct part *p, uint64_t status)
{
    if (p->over)
        return;
    p->over = true;
    (void)!twochoice_placement_ended(&client.placement, tool_now_ns(), p->of->id, p->index, true);
    p->of->part[p->index] = NULL;
    if (--p->of->open == 0)
        p->of->used = false;
    finish_part(p, status);
}

/* Nothing of `a` is under way any more. */
static void drop_sent(struct part *a)
{
    struct part *p = a->whole;
    if (p->last == a)
        p->last = NULL;
    p->sent--;
    client.sent--;
    free(a->data);
    free(a);
    if (p->over && p->sent == 0)
        free(p);
}

/* `a` failed: another server, if it was the last one that was sent, a bounded number of times. */
static void sent_failed(struct part *a, uint64_t status)
{
    struct part *p = a->whole;
    const bool last = p->last == a;
    if (status == ST_NO_SPACE || status == ST_DOWN)
        let_rest(a->target, status == ST_DOWN ? TWOCHOICE_DOWN : TWOCHOICE_FULL);
    client_counts.tally.redone += last && !p->over;
    if (last && !p->over && (++p->attempts >= ATTEMPTS || (status == ST_DOWN && a->target == a->home)))
        end_whole(p, status);
    else if (last && !p->over)
        (void)!twochoice_placement_ended(&client.placement, tool_now_ns(), p->of->id, p->index, false);
    drop_sent(a);
}

/* It has its stamp, and perhaps its target. */
static void go_on(struct part *a)
{
    if (a->target == TWOCHOICE_UNBOUND)
        a->state = BEGUN;
    else if (a->target == a->home)
        ask_for(a, CANCELLING, OP_CANCEL, a->home);
    else
        ask_for(a, BINDING, OP_BIND, a->home);
}

static void bind_part(struct part *p, const struct twochoice_place_order *o)
{
    struct part *a = p->last;
    if (a && (a->state == WRITING_HOME || a->state == RECORDING))
        return; /* bytes that are overwritten in place cannot be called back */
    if (!a || a->target != TWOCHOICE_UNBOUND) {
        client_counts.tally.redone += o->again;
        a = send_again(p, TWOCHOICE_UNBOUND);
    }
    hist_add(&client_counts.decide, qos_elapsed_ns(p->of->begun_ns, tool_now_ns()));
    p->transfer->probe_ns = qos_max(p->transfer->probe_ns, qos_elapsed_ns(p->queued_ns, tool_now_ns()));
    a->target = o->server;
    a->request = o->message.request;
    a->turn = o->message.turn;
    if (a->state == BEGUN)
        go_on(a);
}

static void count_silent(void)
{
    struct client_tally *t = &client_counts.tally;
    struct qos_stats stats;
    if (twochoice_placement_stats(&client.placement, QOS_NONE, &stats) == QOS_OK)
        t->no_answer = qos_sat_sub(stats.refused, t->said_down + t->said_full);
}

/* Does what the placement says, until there is nothing more to do now. */
static bool follow_orders(uint64_t now_ns)
{
    struct twochoice_place_order o;
    bool any = false;
    while (twochoice_placement_step(&client.placement, now_ns, &o), o.todo != TWOCHOICE_PLACE_WAIT) {
        struct part *p;
        any = true;
        if (o.todo == TWOCHOICE_PLACE_SEND) {
            client_counts.tally.probes += o.message.type == TWOCHOICE_RESERVE;
            link_send_message((int)o.server, &o.message);
            continue;
        }
        p = client.request[o.tag].part[o.write];
        if (p && p->len < TWOCHOICE_MIN_WRITE_BYTES && p->attempts == 0)
            send_again(p, p->home)->request = o.message.request;
        else if (p)
            bind_part(p, &o);
    }
    return any;
}

static bool place_parts(uint64_t now_ns)
{
    bool any = follow_orders(now_ns);
    uint32_t i;
    for (i = 0; i < REQUESTS_MAX && client.queue; i++)
        if (!client.request[i].used)
            begin_request(&client.request[i], now_ns);
    count_silent();
    return any | follow_orders(now_ns);
}

static void sent_answered(struct part *a)
{
    struct part *p = a->whole;
    uint64_t now_ns = tool_now_ns(), status = a->status;
    switch (a->state) {
    case BEGINNING:
        if (status == ST_OK) {
            go_on(a);
        } else if (status == ST_FULL && !p->recording && !p->over) { /* the table is full */
            write_home(a);
        } else if (status == ST_FULL) {
            sent_failed(a, status);
        } else {
            end_whole(p, status);
            drop_sent(a);
        }
        break;
    case BINDING:
        if (status == ST_OK) {
            ask_for(a, WRITING_AWAY, OP_WRITE, a->target);
        } else if (status == ST_DOWN) {
            end_whole(p, status);
            drop_sent(a);
        } else {
            sent_failed(a, status);
        }
        break;
    case WRITING_AWAY:
        if (status != ST_OK)
            client_counts.bytes_to[a->target] -= a->len;
        a->why = status;
        if (status == ST_OK && !p->over && !p->recording) {
            p->recording = true; /* one at a time: what is recorded late would hide newer bytes */
            ask_for(a, RECORDING, OP_END, a->home);
        } else {
            ask_for(a, CANCELLING, OP_CANCEL, a->home);
        }
        break;
    case CANCELLING:
        if (a->target == a->home && !p->over && !p->recording)
            write_home(a);
        else
            sent_failed(a, a->why);
        break;
    default: /* RECORDING, WRITING_HOME */
        p->recording = false;
        if (a->state == RECORDING)
            hist_add(&client_counts.create, qos_elapsed_ns(a->since_ns, now_ns));
        else if (status != ST_OK)
            client_counts.bytes_to[a->target] -= a->len;
        if (status != ST_OK && (status != ST_DOWN || a->state != RECORDING)) {
            sent_failed(a, status);
            break;
        }
        p->target = a->target;
        end_whole(p, status);
        drop_sent(a);
        break;
    }
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* The write failed at its target: tries another server, a bounded number of times. */
static void write_again(struct part *p, uint64_t status)
{
    bool elsewhere = client.scheduler != SCHED_FIXED;
    if (status == ST_NO_SPACE || (status == ST_DOWN && p->target != p->home)) {
        let_rest(p->target, status == ST_DOWN ? TWOCHOICE_DOWN : TWOCHOICE_FULL);
        if (elsewhere && ++p->attempts < ATTEMPTS && client.rest_known < client.servers) {
            client_counts.tally.redone++;
            queue_part(p);
            return;
        }
    }
    if (p->target != p->home && status != ST_DOWN) { /* once: it may have room by now */
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

/* A part goes where the rule says. */
static bool place(uint64_t now_ns)
{
    struct decision *d = &client.decision;
    bool any = false;
    if (client.scheduler == SCHED_INFORMED)
        return place_parts(now_ns);
    if (d->used && (d->missing == 0 || now_ns >= d->deadline_ns)) {
        conclude(d, now_ns);
        any = true;
    }
    while (client.queue && (client.scheduler == SCHED_FIXED || client.scheduler == SCHED_RANDOM ||
                            client.queue->len < TWOCHOICE_MIN_WRITE_BYTES)) {
        struct part *p = next_in_queue();
        struct two_choice_probe one;
        if (client.scheduler == SCHED_RANDOM && p->len >= TWOCHOICE_MIN_WRITE_BYTES &&
            two_choice_draw(&client.rng, client.order, client.servers, client.resting, 1, &one))
            p->target = one.server;
        start_write(p);
        any = true;
    }
    if (!d->used && client.queue) {
        begin_decision(d, now_ns);
        any = true;
    }
    return any;
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
    if (n->op == OP_PROBE + OP_ANSWER) {
        if (client.probing && n->request == client.probing)
            client.probing_missing--;
        else
            load_heard(&client.decision, (uint32_t)from, n);
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

static void on_message(void *ctx, int from, const struct twochoice_message *m)
{
    struct twochoice_message mine = *m, answer;
    (void)ctx;
    mine.server = (uint32_t)from; /* nobody speaks for others */
    if (mine.state != TWOCHOICE_UP) {
        client_counts.tally.said_down += mine.state == TWOCHOICE_DOWN;
        client_counts.tally.said_full += mine.state == TWOCHOICE_FULL;
        let_rest(mine.server, mine.state == TWOCHOICE_DOWN ? TWOCHOICE_DOWN : TWOCHOICE_FULL);
    }
    if (twochoice_placement_heard(&client.placement, tool_now_ns(), &mine, &answer)) {
        client_counts.tally.late_answers++;
        link_send_message(from, &answer);
    }
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
        if (p->whole)
            sent_answered(p);
        else if (p->transfer->write)
            write_answered(p);
        else
            read_answered(p);
    }
    return any;
}

bool client_poll(void)
{
    static const struct link_handler handler = {NULL, on_note, on_message};
    uint64_t now_ns;
    bool any = link_poll(&handler) | advance_parts();
    now_ns = tool_now_ns();
    wake_rested(now_ns);
    any |= place(now_ns);
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
    while (client.under_way || client.sent)
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
    uint64_t start_ns = tool_now_ns(), took_ns;
    struct note n;
    uint32_t i;
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    n.request = client.probing = (uint64_t)client.rank << 40 | ++client.requests;
    n.len = settings.write_bytes;
    client.probing_missing = servers;
    n.op = OP_PROBE;
    for (i = 0; i < servers; i++)
        link_send_note((int)i, &n);
    while (client.probing_missing)
        if (!client_poll())
            client_wait();
    took_ns = qos_elapsed_ns(start_ns, tool_now_ns());
    client.probing = 0;
    n.op = OP_DECIDE;
    n.len = 0;
    for (i = 0; i < servers; i++)
        link_send_note((int)i, &n);
    return took_ns;
}
