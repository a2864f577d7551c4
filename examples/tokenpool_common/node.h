/* node.h - the data node and its clients, for any transport: one region of memory, two loops, one table.
 *
 * The region of the data node, addressed by offsets only:
 *
 *     storage of tokenpool.h | results, a row of words for each client | a page of control words | table of records
 *
 * A client writes its report and its own row, changes the pool word atomically, and only reads everything else. Each
 * part begins at a page, so that a transport can give it its own rights.
 *
 * A transport has `op` (an 8-byte word operation) and `read` (one-sided reads of several records). Clients first read
 * without tokens for a while (the bare run, also the profile), then with them.
 */
#ifndef EXAMPLES_TOKENPOOL_NODE_H
#define EXAMPLES_TOKENPOOL_NODE_H

#include "tokenpool.h"
#include "common.h"
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define NODE_CLIENTS_MAX 16u
#define NODE_PERIODS_MAX 60u
#define NODE_RECORD 4096u
#define NODE_PAGE 4096u
#define NODE_BURST 16u /* reads of one client in flight */

enum node_phase { NODE_WAIT, NODE_BARE, NODE_COUNT, NODE_QOS, NODE_STOP };
enum { NODE_WORD_PHASE }; /* control words */
/* The row of a client: its state, its bare run, its engine's operations, then three words for each epoch. */
enum { NODE_ROW_STATE, NODE_ROW_BARE, NODE_ROW_OPERATIONS, NODE_ROW_EPOCHS };
enum { NODE_ABSENT, NODE_READY, NODE_COUNTED };
enum {
    NODE_DONE,
    NODE_CLAIMED,
    NODE_DRY
}; /* completed; claimed; completed when it first lacked a token, plus 1 (0: never) */
#define NODE_RESULT(epoch, word) (NODE_ROW_EPOCHS + 3 * (uint32_t)(epoch) + (uint32_t)(word))
#define NODE_RESULTS NODE_RESULT(NODE_PERIODS_MAX + 4, 0)

struct node_setup {
    uint32_t clients, periods;
    uint64_t period_ns, bare_ns, batch, table_bytes, announce;
    double reserve[NODE_CLIENTS_MAX], limit[NODE_CLIENTS_MAX]; /* share of the capacity; limit 0: none */
    double derate;                                             /* capacity is this share of the bare run */
    uint32_t flags;                                            /* of tokenpool.h */
};

/* The monitor's figures of each finished period. */
struct node_log {
    uint64_t capacity_prof, periods, bare, epoch_now;
    uint64_t gone[NODE_CLIENTS_MAX]; /* epoch in which a client died; 0: it is alive */
    struct {
        uint64_t capacity, reserved, put, claimed, used, bound;
    } of[NODE_PERIODS_MAX + 4]; /* by epoch */
};

/* A client died or left: from then on its service is not judged. */
static inline void node_gone(const struct node_setup *s, struct node_log *log, uint32_t client)
{
    if (log->epoch_now && log->epoch_now <= s->periods && !log->gone[client])
        log->gone[client] = log->epoch_now;
}

struct node_link {
    bool (*op)(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer);
    /* Reads n records into one buffer, in order. */
    bool (*read)(struct node_link *l, const uint64_t *offset, unsigned n, void *to);
    bool (*hint)(struct node_link *l); /* a message said that a period began; may be NULL: polls instead */
    bool (*lost)(struct node_link *l); /* the data node is gone; the transport has reported it; may be NULL */
    void (*started)(struct node_link *l, struct tokenpool_monitor *m); /* may be NULL; monitor's side */
    void (*idle)(struct node_link *l, uint64_t until_ns);              /* waits, and serves what the transport needs */
};

static inline struct tokenpool_config node_config(const struct node_setup *s, uint64_t capacity)
{
    struct tokenpool_config config;
    memset(&config, 0, sizeof config);
    config.clients = s->clients;
    config.batch = (uint32_t)s->batch;
    config.period_ns = s->period_ns;
    config.flags = s->flags;
    config.capacity = capacity;
    return config;
}

static inline uint64_t node_round(uint64_t bytes)
{
    return (bytes + NODE_PAGE - 1) / NODE_PAGE * NODE_PAGE;
}

static inline uint64_t node_storage_bytes(const struct node_setup *s)
{
    struct tokenpool_config config = node_config(s, 1000000);
    return tokenpool_storage_memsize(&config);
}

static inline uint64_t node_results(const struct node_setup *s, uint32_t client)
{
    return node_round(node_storage_bytes(s)) + (uint64_t)client * NODE_RESULTS * 8;
}

static inline uint64_t node_control(const struct node_setup *s)
{
    return node_round(node_results(s, s->clients));
}

static inline uint64_t node_table(const struct node_setup *s)
{
    return node_control(s) + NODE_PAGE;
}

static inline uint64_t node_bytes(const struct node_setup *s)
{
    return node_table(s) + s->table_bytes;
}

/* Every record carries its number, so that a read can be checked. */
static inline void node_fill(const struct node_setup *s, void *region)
{
    char *table = (char *)region + node_table(s);
    uint64_t i;
    memset(region, 0, node_table(s));
    for (i = 0; i < s->table_bytes / NODE_RECORD; i++)
        memcpy(table + i * NODE_RECORD, &i, sizeof i);
}

/* ---- client */

struct node_client {
    struct node_link *link;
    const struct node_setup *setup;
    uint32_t id;
    struct qos_rng rng;
    uint64_t operations;
    uint64_t done[NODE_PERIODS_MAX + 4], claimed[NODE_PERIODS_MAX + 4];
    bool dry[NODE_PERIODS_MAX + 4];
    char buffer[NODE_BURST * NODE_RECORD] __attribute__((aligned(64)));
};

static inline uint64_t node_word(struct node_client *c, enum tokenpool_kind kind, uint64_t offset, uint64_t operand)
{
    struct tokenpool_op op = {kind, offset, operand, 0};
    uint64_t answer = 0;
    if (!c->link->op(c->link, &op, &answer))
        exit(TOOL_FAILED); /* the transport has printed why */
    return answer;
}

static inline uint64_t node_phase(struct node_client *c)
{
    if (c->link->lost && c->link->lost(c->link))
        exit(TOOL_FAILED);
    return node_word(c, TOKENPOOL_READ, node_control(c->setup) + 8 * NODE_WORD_PHASE, 0);
}

static inline void node_result(struct node_client *c, uint32_t index, uint64_t value)
{
    (void)node_word(c, TOKENPOOL_WRITE, node_results(c->setup, c->id) + UINT64_C(8) * index, value);
}

/* Reads n records, at most NODE_BURST, at random places, and checks each. */
static inline void node_read(struct node_client *c, unsigned n)
{
    uint64_t record[NODE_BURST] = {0}, offset[NODE_BURST] = {0}, stamp;
    unsigned i;
    for (i = 0; i < n; i++) {
        record[i] = qos_rng_below(&c->rng, c->setup->table_bytes / NODE_RECORD);
        offset[i] = node_table(c->setup) + record[i] * NODE_RECORD;
    }
    if (!c->link->read(c->link, offset, n, c->buffer))
        exit(TOOL_FAILED);
    for (i = 0; i < n; i++) {
        memcpy(&stamp, c->buffer + i * NODE_RECORD, sizeof stamp);
        if (stamp != record[i])
            tool_die(TOOL_FAILED, "client %u: record %" PRIu64 " came back as %" PRIu64, c->id, record[i], stamp);
    }
}

/* Performs the engine's next operations and counts claims: each answer holds the tokens given and their epoch. */
static inline void node_drive(struct node_client *c, struct tokenpool_client *e, uint64_t now_ns, uint64_t need)
{
    struct tokenpool_op op;
    while (tokenpool_client_next(e, now_ns, need, &op)) {
        uint64_t answer = 0;
        if (!c->link->op(c->link, &op, &answer))
            exit(TOOL_FAILED);
        c->operations++;
        if (op.kind == TOKENPOOL_FETCH_ADD && !(c->setup->flags & TOKENPOOL_ORDERED)) {
            int64_t left = tokenpool_word_count(answer);
            uint32_t epoch = tokenpool_word_epoch(answer);
            if (left > 0 && epoch < NODE_PERIODS_MAX + 4) {
                c->claimed[epoch] += qos_min((uint64_t)left, qos_wrap_sub(0, op.operand) >> 32);
                node_result(c, NODE_RESULT(epoch, NODE_CLAIMED), c->claimed[epoch]);
            }
        }
        tokenpool_client_done(e, answer);
    }
}

/* Reads the data node's description of its storage, and attaches. */
static inline void node_attach(struct node_client *c, struct tokenpool_client *e)
{
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8], bytes = node_storage_bytes(c->setup);
    enum qos_status status;
    uint32_t i;
    for (i = 0; i < TOKENPOOL_HEAD_BYTES / 8; i++)
        head[i] = node_word(c, TOKENPOOL_READ, TOKENPOOL_OFFSET_HEAD + UINT64_C(8) * i, 0);
    status = tokenpool_client_attach_remote(e, c->id, 0, head, bytes);
    if (status != QOS_OK && stop_asked()) /* the node was stopped before it had made its storage */
        exit(TOOL_STOPPED);
    if (status != QOS_OK)
        tool_die(TOOL_FAILED, "client %u: attaching to the storage: %s", c->id, qos_strerror(status));
    tokenpool_client_set_queued(e, TOKENPOOL_BACKLOGGED);
}

static inline void node_client_qos(struct node_client *c)
{
    struct tokenpool_client e;
    struct tokenpool_client_state state;
    uint64_t told_ns = 0, told = 0, epoch;
    unsigned n;
    node_attach(c, &e);
    while (!stop_asked()) {
        uint64_t now_ns = tool_now_ns();
        if (c->link->hint && c->link->hint(c->link))
            tokenpool_client_hint(&e);
        node_drive(c, &e, now_ns, 1);
        epoch = tokenpool_client_epoch(&e);
        if (now_ns - told_ns > 2000000 || epoch != told) { /* publishes results; has the run ended? */
            if (told && told < NODE_PERIODS_MAX + 4)
                node_result(c, NODE_RESULT(told, NODE_DONE), c->done[told]);
            node_result(c, NODE_ROW_OPERATIONS, c->operations);
            told = epoch;
            told_ns = now_ns;
            if (node_phase(c) == NODE_STOP)
                break;
        }
        for (n = 0; n < NODE_BURST && tokenpool_client_take(&e, now_ns, 1) == QOS_OK; n++)
            ;
        if (n) {
            node_read(c, n);
            tokenpool_client_complete(&e, n);
            if (epoch < NODE_PERIODS_MAX + 4)
                c->done[epoch] += n;
            continue;
        }
        (void)tokenpool_client_info(&e, &state);
        /* Not between two periods: the tokens of the old one are void. */
        if (state.running && epoch < NODE_PERIODS_MAX + 4 && !c->dry[epoch]) {
            c->dry[epoch] = true;
            node_result(c, NODE_RESULT(epoch, NODE_DRY), c->done[epoch] + 1);
        }
        c->link->idle(c->link, tokenpool_client_next_ns(&e, now_ns, 1));
    }
}

static inline void node_client(struct node_link *link, const struct node_setup *s, uint32_t id)
{
    static struct node_client c;
    uint64_t n = 0;
    c.link = link;
    c.setup = s;
    c.id = id;
    qos_rng_seed(&c.rng, id + 1);
    node_result(&c, NODE_ROW_STATE, NODE_READY);
    while (node_phase(&c) == NODE_WAIT && !stop_asked())
        link->idle(link, tool_now_ns() + 1000000);
    for (; node_phase(&c) == NODE_BARE && !stop_asked(); n += NODE_BURST)
        node_read(&c, NODE_BURST);
    node_result(&c, NODE_ROW_BARE, n);
    node_result(&c, NODE_ROW_STATE, NODE_COUNTED);
    while (node_phase(&c) == NODE_COUNT && !stop_asked())
        link->idle(link, tool_now_ns() + 1000000);
    if (node_phase(&c) == NODE_STOP && !stop_asked())
        tool_die(TOOL_FAILED, "client %u: the data node stopped before it gave tokens", id);
    node_client_qos(&c);
}

/* ---- data node */

static inline qos_word_t *node_local(void *region, uint64_t offset)
{
    return (qos_word_t *)(void *)((char *)region + offset);
}

static inline void node_set_phase(const struct node_setup *s, void *region, enum node_phase phase)
{
    qos_atomic_store_release(node_local(region, node_control(s) + 8 * NODE_WORD_PHASE), phase);
}

/* A signal, or the phase: its writer may be the only process that got the signal. */
static inline bool node_stopped(const struct node_setup *s, void *region)
{
    return stop_asked() ||
           qos_atomic_load_acquire(node_local(region, node_control(s) + 8 * NODE_WORD_PHASE)) == NODE_STOP;
}

/* Waits until all clients have reached `state`. */
static inline bool node_await(struct node_link *link, const struct node_setup *s, void *region, uint64_t state,
                              uint64_t patience_ns)
{
    uint64_t until_ns = tool_now_ns() + patience_ns;
    uint32_t i;
    for (i = 0; i < s->clients; i++)
        while (qos_atomic_load_acquire(node_local(region, node_results(s, i) + 8 * NODE_ROW_STATE)) < state) {
            if (node_stopped(s, region))
                return false;
            if (tool_now_ns() > until_ns) {
                tool_warn("client %u %s", i, state == NODE_READY ? "did not come" : "does not answer");
                return false;
            }
            link->idle(link, tool_now_ns() + 1000000);
        }
    return true;
}

/* The bare run: true once every client is counted. */
static inline bool node_bare(struct node_link *link, const struct node_setup *s, void *region, struct node_log *log)
{
    uint64_t begin, took;
    uint32_t i;
    if (!node_await(link, s, region, NODE_READY, UINT64_C(60) * QOS_NS_PER_S))
        return false;
    begin = tool_now_ns();
    node_set_phase(s, region, NODE_BARE);
    while ((took = tool_now_ns() - begin) < s->bare_ns) {
        if (node_stopped(s, region))
            return false;
        link->idle(link, begin + qos_min(s->bare_ns, took + QOS_NS_PER_S / 10));
    }
    node_set_phase(s, region, NODE_COUNT);
    if (!node_await(link, s, region, NODE_COUNTED, 20 * QOS_NS_PER_S))
        return false;
    for (i = 0, log->bare = 0; i < s->clients; i++)
        log->bare += qos_atomic_load_acquire(node_local(region, node_results(s, i) + 8 * NODE_ROW_BARE));
    log->bare = qos_mul_div_floor(log->bare, s->period_ns, took);
    log->capacity_prof = qos_max((uint64_t)((double)log->bare * s->derate), 1);
    return !node_stopped(s, region);
}

static inline uint64_t node_share(const struct node_log *log, double share)
{
    return (uint64_t)((double)log->capacity_prof * share);
}

/* The monitor, from the first period to the last; `resume`: takes over from one that died. */
static inline bool node_monitor(struct node_link *link, const struct node_setup *s, void *region, struct node_log *log,
                                bool resume)
{
    struct tokenpool_config config = node_config(s, log->capacity_prof);
    static struct tokenpool_monitor m;
    size_t size = tokenpool_monitor_memsize(&config);
    void *mem = tool_alloc_aligned(size, QOS_CACHE_LINE);
    struct tokenpool_monitor_state info;
    enum qos_status st;
    uint32_t i;
    st = resume ? tokenpool_monitor_resume(&m, mem, size, region, tokenpool_storage_memsize(&config), &config)
                : tokenpool_monitor_init(&m, mem, size, region, tokenpool_storage_memsize(&config), &config);
    for (i = 0; st == QOS_OK && !resume && i < s->clients; i++)
        st = tokenpool_monitor_join(&m, i, node_share(log, s->reserve[i]),
                                    s->limit[i] > 0 ? node_share(log, s->limit[i]) : 0, NULL);
    if (st != QOS_OK) {
        tool_warn("monitor: %s", qos_strerror(st));
        return false;
    }
    if (!resume)
        node_set_phase(s, region, NODE_QOS);
    (void)tokenpool_monitor_info(&m, &info);
    log->epoch_now = info.epoch;
    while (!node_stopped(s, region)) {
        struct tokenpool_op op;
        while (tokenpool_monitor_next(&m, tool_now_ns(), &op)) {
            uint64_t answer = 0;
            if (!link->op(link, &op, &answer))
                return false;
            tokenpool_monitor_done(&m, answer);
            (void)tokenpool_monitor_info(&m, &info);
            if (!info.active || info.epoch == log->epoch_now)
                continue;
            /* A period has started: the figures of the previous one are final. */
            if (info.last_bound && info.epoch - 1 <= NODE_PERIODS_MAX) {
                uint64_t e = info.epoch - 1;
                log->of[e].capacity = info.last_capacity;
                log->of[e].reserved = info.last_reserved;
                log->of[e].put = info.last_put;
                log->of[e].claimed = info.last_claimed;
                log->of[e].used = info.last_used;
                log->of[e].bound = info.last_bound;
            }
            log->epoch_now = info.epoch;
            log->periods = info.epoch - 1;
            if (info.epoch > s->periods) {
                node_set_phase(s, region, NODE_STOP);
                free(mem);
                return true;
            }
            if (info.epoch == s->announce) { /* the process that kills another in this period waits for this line */
                printf("period %" PRIu64 " begins\n", info.epoch);
                fflush(stdout);
            }
            if (link->started)
                link->started(link, &m);
        }
        link->idle(link, tokenpool_monitor_next_ns(&m, tool_now_ns()));
    }
    node_set_phase(s, region, NODE_STOP);
    free(mem);
    return false;
}

/* ---- results */

struct node_verdict {
    uint32_t missed;  /* reservations missed by living clients, from the second period on, for lack of tokens */
    uint32_t slow;    /* missed although there were tokens: the machine was slower than admission assumed */
    uint32_t asked;   /* number of reservations to be judged */
    uint32_t unequal; /* periods in which monitor's and clients' counts differ by more than dead clients explain */
    uint32_t over;    /* periods with more completions than the bound plus the I/O outstanding */
};

/* As with disks: at least 80 % of the reservations must be judged. */
static inline bool node_inconclusive(const struct node_verdict *v)
{
    return (uint64_t)v->slow * 5 > v->asked;
}

/* Exit status; complete: all periods ran. */
static inline int node_status(const struct node_verdict *v, bool complete)
{
    if (!complete || v->unequal || v->over)
        return TOOL_FAILED;
    return node_inconclusive(v) ? TOOL_INCONCLUSIVE : v->missed ? TOOL_FAILED : TOOL_OK;
}

static inline struct node_verdict node_report(const struct node_setup *s, void *region, const struct node_log *log,
                                              const char *json_path, const char *figure_dir, const char *name)
{
    struct node_verdict v = {0, 0, 0, 0, 0};
    struct table *t = table_new("client|reserved|limit|bare|got per period|least|missed periods|of them slow");
    struct json j;
    double x[NODE_CLIENTS_MAX], bars[3][NODE_CLIENTS_MAX], px[NODE_PERIODS_MAX], py[2][NODE_PERIODS_MAX],
        mean_total = 0, operations = 0;
    uint64_t e, periods = qos_min(log->periods, s->periods);
    uint32_t i;
    bool json = json_path && json_open(&j, json_path);
    if (json_path && !json)
        tool_warn("%s: cannot be written", json_path);
    if (json) {
        json_u64(&j, "bare_total_per_period", log->bare);
        json_u64(&j, "capacity", log->capacity_prof);
        json_array(&j, "clients");
    }
    for (i = 0; i < s->clients; i++) {
        const qos_word_t *r = node_local(region, node_results(s, i));
        operations += (double)qos_atomic_load_relaxed(&r[NODE_ROW_OPERATIONS]) / (double)qos_max(periods, 1);
        uint64_t reserved = node_share(log, s->reserve[i]), sum = 0, least = UINT64_MAX, n = 0, missed = 0, slow = 0;
        uint64_t last = log->gone[i] ? log->gone[i] - 1 : periods;
        if (json) {
            json_object(&j, NULL);
            json_u64(&j, "reserved", reserved);
            json_u64(&j, "limit", s->limit[i] > 0 ? node_share(log, s->limit[i]) : 0);
            json_array(&j, "got");
        }
        for (e = 2; e <= last; e++) {
            if (!log->of[e].bound) /* cut short: its monitor died */
                continue;
            n++;
            uint64_t got = qos_atomic_load_relaxed(&r[NODE_RESULT(e, NODE_DONE)]);
            uint64_t dry = qos_atomic_load_relaxed(&r[NODE_RESULT(e, NODE_DRY)]);
            sum += got;
            least = qos_min(least, got);
            missed += got < reserved;
            slow += got < reserved && (dry == 0 || dry > reserved);
            if (json)
                json_u64(&j, NULL, got);
        }
        v.missed += (uint32_t)(missed - slow);
        v.slow += (uint32_t)slow;
        v.asked += (uint32_t)n;
        table_cellf(t, "%u%s", i, log->gone[i] ? " (died)" : "");
        table_cellf(t, "%" PRIu64, reserved);
        if (s->limit[i] > 0)
            table_cellf(t, "%" PRIu64, node_share(log, s->limit[i]));
        else
            table_cell(t, NULL);
        table_cellf(t, "%" PRIu64,
                    log->bare ? qos_mul_div_floor(qos_atomic_load_relaxed(&r[NODE_ROW_BARE]), s->period_ns, s->bare_ns)
                              : 0);
        table_cellf(t, "%" PRIu64, n ? sum / n : 0);
        table_cellf(t, "%" PRIu64, n ? least : 0);
        table_cellf(t, "%" PRIu64 " of %" PRIu64, missed, n);
        table_cellf(t, "%" PRIu64, slow);
        if (json) {
            json_end(&j);
            json_u64(&j, "missed", missed);
            json_u64(&j, "slow", slow);
            json_end(&j);
        }
        x[i] = i;
        bars[0][i] = (double)reserved;
        bars[1][i] = (double)qos_mul_div_floor(qos_atomic_load_relaxed(&r[NODE_ROW_BARE]), s->period_ns, s->bare_ns);
        bars[2][i] = n ? (double)(sum / n) : 0;
    }
    if (json) {
        json_end(&j);
        json_array(&j, "periods");
    }
    for (e = 1; e <= periods; e++) {
        uint64_t claimed = 0, done = 0, slack = 0; /* slack: claims that a client made as it died */
        for (i = 0; i < s->clients; i++) {
            slack += log->gone[i] && (log->gone[i] == e || log->gone[i] == e + 1) ? s->batch : 0;
            done += qos_atomic_load_relaxed(node_local(region, node_results(s, i) + 8 * NODE_RESULT(e, NODE_DONE)));
            claimed +=
                qos_atomic_load_relaxed(node_local(region, node_results(s, i) + 8 * NODE_RESULT(e, NODE_CLAIMED)));
        }
        if (log->of[e].bound &&
            !(s->flags & TOKENPOOL_ORDERED)) { /* a monitor that died left no counts of its last period */
            v.unequal += claimed > log->of[e].claimed || claimed + slack < log->of[e].claimed;
            v.over += done > log->of[e].bound;
        }
        px[e - 1] = (double)e;
        py[0][e - 1] = (double)done;
        py[1][e - 1] = (double)log->bare;
        mean_total += (double)done / (double)periods;
        if (json) {
            json_object(&j, NULL);
            json_u64(&j, "done", done);
            json_u64(&j, "claimed_by_clients", claimed);
            json_u64(&j, "claimed_by_pool", log->of[e].claimed);
            json_u64(&j, "reserved", log->of[e].reserved);
            json_u64(&j, "bound", log->of[e].bound);
            json_end(&j);
        }
    }
    if (json) {
        json_end(&j);
        json_real(&j, "operations_percent", 100 * operations / fmax(mean_total, 1));
        json_real(&j, "operations_of_a_client", operations / s->clients);
    }
    table_print(t, stdout);
    table_free(t);
    printf("%s: the engines' own operations: %.2f %% of the reads, %.0f for each client and period\n", name,
           100 * operations / fmax(mean_total, 1), operations / s->clients);
    printf("%s: total %.0f in a period, bare %" PRIu64 ", capacity %" PRIu64 "; reservations missed %u times, books of "
           "the pool unequal in %u periods, bound exceeded in %u\n",
           name, mean_total, log->bare, log->capacity_prof, v.missed, v.unequal, v.over);
    if (v.slow)
        printf("%s: %u times of %u a client did not get through its reservation with tokens in hand: the machine gave "
               "less than in the bare run%s\n",
               name, v.slow, v.asked, node_inconclusive(&v) ? "; inconclusive" : "");
    if (json && !json_close(&j))
        v.unequal++;
    if (figure_dir && plot_mkdir(figure_dir)) {
        struct plot_curve f9[3] = {
            {"reserved", x, bars[0], s->clients}, {"bare", x, bars[1], s->clients}, {"Haechi", x, bars[2], s->clients}};
        struct plot_curve f11[2] = {{"Haechi", px, py[0], (size_t)periods}, {"bare", px, py[1], (size_t)periods}};
        struct plot p = {0};
        char path[600];
        p.title = name, p.x_label = "client", p.y_label = "I/Os in a period", p.curve = f9, p.curves = 3,
        p.points = true;
        snprintf(path, sizeof path, "%s/%s_clients.svg", figure_dir, name);
        (void)plot_svg(&p, path);
        p.x_label = "period", p.curve = f11, p.curves = 2, p.points = false;
        snprintf(path, sizeof path, "%s/%s_total.svg", figure_dir, name);
        (void)plot_svg(&p, path);
    }
    return v;
}

/* ---- options of every tool */

static struct node_setup node_options = {.clients = 4,
                                         .periods = 10,
                                         .period_ns = UINT64_C(500000000),
                                         .bare_ns = UINT64_C(1000000000),
                                         .batch = 1000,
                                         .table_bytes = UINT64_C(1) << 30,
                                         .derate = 0.6};
static uint64_t node_clients = 4, node_periods = 10;
static const char *node_reserve = "40,15,10,5", *node_limit = "", *node_json, *node_figures;
static bool node_guard, node_ordered;

#define NODE_OPTIONS                                                                                                   \
    {"clients", OPT_COUNT, &node_clients, "N", "1 to 16; default 4", NULL},                                            \
        {"periods", OPT_COUNT, &node_periods, "N", "2 to 60; default 10", NULL},                                       \
        {"period", OPT_TIME, &node_options.period_ns, "TIME", "length of a period; default 500ms", NULL},              \
        {"bare", OPT_TIME, &node_options.bare_ns, "TIME", "length of the bare run before; default 1s", NULL},          \
        {"batch", OPT_COUNT, &node_options.batch, "N", "tokens of one claim; default 1000", NULL},                     \
        {"table", OPT_SIZE, &node_options.table_bytes, "SIZE", "records of 4 KiB in all; default 1G", NULL},           \
        {"derate", OPT_REAL, &node_options.derate, "SHARE", "capacity as share of the bare run; default 0.6", NULL},   \
        {"reserve", OPT_TEXT, &node_reserve, "P,P,...", "percent of the capacity for each client; default 40,15,10,5", \
         NULL},                                                                                                        \
        {"limit", OPT_TEXT, &node_limit, "P,P,...", "limits likewise; 0 or missing: none", NULL},                      \
        {"guard", OPT_FLAG, &node_guard, NULL, "no pool tokens while a reservation is out of reach", NULL},            \
        {"ordered", OPT_FLAG, &node_ordered, NULL, "claims are served in their order", NULL},                          \
        {"announce", OPT_COUNT, &node_options.announce, "PERIOD", "prints a line when this period begins", NULL},      \
        {"json", OPT_TEXT, &node_json, "FILE", "writes the results as JSON", NULL},                                    \
    {                                                                                                                  \
        "figures", OPT_TEXT, &node_figures, "DIR", "draws figures there as SVG", NULL                                  \
    }

static inline void node_percents(const char *text, double *out)
{
    uint32_t i;
    for (i = 0; i < NODE_CLIENTS_MAX && *text; i++) {
        char *end;
        out[i] = strtod(text, &end) / 100;
        if (end == text || out[i] < 0 || out[i] > 1000 || (*end && *end != ','))
            tool_die(TOOL_USAGE, "\"%s\": percents, separated by commas", text);
        text = *end ? end + 1 : end;
    }
}

static inline void node_check_options(void)
{
    struct node_setup *s = &node_options;
    struct tokenpool_config config;
    if (node_clients < 1 || node_clients > NODE_CLIENTS_MAX || node_periods < 2 || node_periods > NODE_PERIODS_MAX)
        tool_die(TOOL_USAGE, "1 to %u clients, 2 to %u periods", NODE_CLIENTS_MAX, NODE_PERIODS_MAX);
    s->clients = (uint32_t)node_clients;
    s->periods = (uint32_t)node_periods;
    s->table_bytes = s->table_bytes / NODE_RECORD * NODE_RECORD;
    if (s->batch > TOKENPOOL_BATCH_MAX || s->table_bytes == 0 || !(s->derate > 0 && s->derate <= 10))
        tool_die(TOOL_USAGE, "batch at most 1048576, table at least 4k, derate above 0");
    s->flags = (node_guard ? TOKENPOOL_GUARD : 0) | (node_ordered ? TOKENPOOL_ORDERED : 0);
    node_percents(node_reserve, s->reserve);
    node_percents(node_limit, s->limit);
    if (node_json) { /* fails now, not after a run of a minute */
        FILE *f = fopen(node_json, "a");
        if (!f || fclose(f) != 0)
            tool_die(TOOL_USAGE, "--json %s: %s", node_json, strerror(errno));
    }
    config = node_config(s, 1000000);
    if (tokenpool_config_error(&config))
        tool_die(TOOL_USAGE, "%s", tokenpool_config_error(&config));
}

#endif
