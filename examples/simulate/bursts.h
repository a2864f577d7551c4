/* bursts.h - a model of burst writes on a cluster, for `simulate twochoice` and for the tests of Figures 3 and 4.
 *
 * A server serves writes of 1 MB one after the other, first come, first served. Before the burst it holds a background
 * of writes: normal, mean 30, deviation 3; a straggler holds five times as many. The k processes of a node issue one
 * write each at the same moment. A node starts in every (round trip / `undecided`), so `undecided` nodes wait for
 * their probes at any time. Meanwhile servers go on serving. The response time of the burst is the end of its last
 * write.
 *
 * twochoice.h draws, probes and counts: one placement, and one detector on every server. Under "filled", it also
 * decides. The paper's own rules are here: "collaborative" sends one write to each of the k least loaded of 2k servers
 * (Section III-B), and "preassign" lets servers expect P(load) of a write until they hear the decision (Section
 * III-C). P(load) is learned in earlier bursts, each with its own background and stragglers. */
#ifndef EXAMPLES_SIMULATE_BURSTS_H
#define EXAMPLES_SIMULATE_BURSTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "twochoice.h"
#include "../common/draw.h"

#define BURST_WRITE ((uint64_t)1 << 20)

enum burst_rule {
    BURST_FIXED,
    BURST_RANDOM,
    BURST_NATIVE,
    BURST_COLLABORATIVE,
    BURST_PREASSIGN,
    BURST_FILLED,
    BURST_REUSED,
    BURST_RULES
};
static const char *const burst_rule_names[BURST_RULES] = {"fixed",     "random", "two-choice",   "collaborative",
                                                          "preassign", "filled", "reused probes"};
#define BURST_LOADS 64 /* ranges of load that P(load) distinguishes, of one write each */

struct burst_config {
    uint32_t servers, processes, k, undecided, warm_ups;
    double ratio; /* of stragglers */
    uint64_t round_trip_ns, service_ns, seed;
    bool peers; /* replies and decisions carry cached loads of other servers */
};

struct burst_result {
    double response_ms;     /* the last write ends */
    double ideal_ms;        /* with the shortest queues filled first: no rule ends earlier */
    uint64_t on_stragglers; /* writes placed there */
    uint64_t probes, peers_chosen;
};

struct burst_server {
    uint64_t free_at_ns;  /* when its queue is empty */
    uint32_t outstanding; /* writes that the detector knows */
    uint32_t background, placed;
    float accept[BURST_LOADS], expected; /* P(load); writes that undecided probes add to the expected load */
    bool seen[BURST_LOADS];
    bool straggler;
};

struct burst_node {
    struct twochoice_write *write;
    struct twochoice_probe *probe;
    float *guess; /* by probe: what the server expects of it */
    size_t probes, asked;
    uint64_t at_ns, request;
};

struct burst {
    struct burst_config c;
    enum burst_rule rule;
    struct burst_server *server;
    struct twochoice_detector *detector;
    struct twochoice_placement placement;
    struct qos_rng rng;
    void *placement_mem, **detector_mem;
    struct burst_node *node; /* a ring of the undecided nodes */
    uint64_t last_end_ns;
    struct burst_result result;
};

/* Mean 30, deviation 3: the sum of twelve uniform numbers has deviation 1 (and never differs by more than 6). */
static inline uint32_t burst_background(struct qos_rng *r)
{
    double sum = -6;
    int i;
    for (i = 0; i < 12; i++)
        sum += draw_unit(qos_rng_u64(r));
    sum = 30 + 3 * sum;
    return sum < 0 ? 0 : (uint32_t)(sum + 0.5);
}

/* Reports to the detector the writes that have ended by now. */
static inline void burst_work(struct burst *b, uint32_t s, uint64_t now_ns)
{
    struct burst_server *v = &b->server[s];
    uint64_t left = v->free_at_ns > now_ns ? (v->free_at_ns - now_ns + b->c.service_ns - 1) / b->c.service_ns : 0;
    for (; v->outstanding > left; v->outstanding--)
        twochoice_detector_end(&b->detector[s], BURST_WRITE);
}

static inline void burst_place(struct burst *b, uint32_t s, uint64_t now_ns, uint64_t request)
{
    struct burst_server *v = &b->server[s];
    burst_work(b, s, now_ns);
    twochoice_detector_arrived(&b->detector[s], now_ns, 0, request, BURST_WRITE);
    v->outstanding++;
    v->free_at_ns = (v->free_at_ns > now_ns ? v->free_at_ns : now_ns) + b->c.service_ns;
    v->placed++;
    b->result.on_stragglers += v->straggler;
    if (v->free_at_ns > b->last_end_ns)
        b->last_end_ns = v->free_at_ns;
}

static inline int burst_compare(const void *a, const void *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* The lowest level to which `processes` writes can fill the queues. */
static inline double burst_ideal_ms(const struct burst *b)
{
    uint32_t *level = (uint32_t *)malloc(b->c.servers * sizeof *level), i, low = 0, high = UINT32_MAX / 4;
    if (!level)
        abort();
    for (i = 0; i < b->c.servers; i++)
        level[i] = b->server[i].background;
    qsort(level, b->c.servers, sizeof *level, burst_compare);
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        uint64_t room = 0;
        for (i = 0; i < b->c.servers && level[i] < mid; i++)
            room += mid - level[i];
        if (room >= b->c.processes)
            high = mid;
        else
            low = mid;
    }
    free(level);
    return (double)high * (double)b->c.service_ns / 1e6;
}

static inline void burst_new_background(struct burst *b)
{
    uint32_t i, stragglers = (uint32_t)(b->c.ratio * b->c.servers + 0.5), *order;
    order = (uint32_t *)malloc(b->c.servers * sizeof *order);
    if (!order)
        abort();
    for (i = 0; i < b->c.servers; i++) {
        struct burst_server *v = &b->server[i];
        for (; v->outstanding > 0; v->outstanding--)
            twochoice_detector_end(&b->detector[i], BURST_WRITE);
        v->background = burst_background(&b->rng);
        v->straggler = false;
        v->placed = 0;
        order[i] = i;
    }
    for (i = 0; i < stragglers; i++) {
        uint32_t j = i + (uint32_t)qos_rng_below(&b->rng, b->c.servers - i), s = order[j];
        order[j] = order[i];
        b->server[s].straggler = true;
        b->server[s].background *= 5;
    }
    free(order);
}

/* P(load): the last decisions count most. A load that was never seen counts like the nearest one. At first k of 2k are
 * chosen. */
static inline uint32_t burst_range(uint64_t load)
{
    return (uint32_t)(load / BURST_WRITE < BURST_LOADS ? load / BURST_WRITE : BURST_LOADS - 1);
}

static inline float burst_accept(const struct burst_server *v, uint32_t range)
{
    uint32_t away;
    for (away = 0; away < BURST_LOADS; away++) {
        if (range >= away && v->seen[range - away])
            return v->accept[range - away];
        if (range + away < BURST_LOADS && v->seen[range + away])
            return v->accept[range + away];
    }
    return 0.5f;
}

static inline void burst_learn(struct burst_server *v, uint32_t range, bool chosen)
{
    float p = burst_accept(v, range);
    v->accept[range] = p + ((chosen ? 1.0f : 0.0f) - p) / 8;
    v->seen[range] = true;
}

/* The paper's choice: one write for each of the k least loaded. */
static inline int burst_compare_probe(const void *a, const void *b)
{
    const struct twochoice_probe *x = *(const struct twochoice_probe *const *)a;
    const struct twochoice_probe *y = *(const struct twochoice_probe *const *)b;
    return x->load != y->load ? (x->load > y->load) - (x->load < y->load) : (x > y) - (x < y);
}

static inline void burst_keep(struct burst *b, struct burst_node *n)
{
    struct twochoice_probe **order = (struct twochoice_probe **)malloc(n->probes * sizeof *order);
    size_t i, kept = n->probes < b->c.k ? n->probes : b->c.k;
    if (!order)
        abort();
    for (i = 0; i < n->probes; i++)
        order[i] = &n->probe[i];
    qsort(order, n->probes, sizeof *order, burst_compare_probe);
    for (i = 0; i < b->c.k; i++) {
        n->write[i].target = order[i % kept]->server;
        order[i % kept]->chosen++;
    }
    free(order);
}

/* A node sends its probes: every server answers with its load and, optionally, with loads of other servers. */
static inline void burst_probe(struct burst *b, struct burst_node *n, uint64_t now_ns)
{
    size_t i, j;
    n->at_ns = now_ns;
    if (twochoice_placement_ask(&b->placement, n->write, b->c.k, n->probe, &n->asked) != QOS_OK)
        abort();
    n->probes = n->asked;
    b->result.probes += n->asked;
    for (i = 0; i < n->asked; i++) {
        struct twochoice_probe *p = &n->probe[i];
        burst_work(b, p->server, now_ns);
        /* The native rule may probe one server for several writes of the node: each has a request number. */
        p->load = twochoice_detector_probed(&b->detector[p->server], now_ns, 0,
                                            b->rule == BURST_NATIVE ? n->request * 65536 + i : n->request, BURST_WRITE,
                                            &p->rivals);
        p->state = TWOCHOICE_UP;
        if (b->rule == BURST_PREASSIGN) {
            struct burst_server *v = &b->server[p->server];
            p->load += (uint64_t)((double)v->expected * (double)BURST_WRITE);
            n->guess[i] = burst_accept(v, burst_range(p->load));
            v->expected += n->guess[i];
        }
    }
    for (i = 0; b->c.peers && i < n->asked; i++) {
        struct twochoice_peer peer[2];
        size_t got = twochoice_detector_peers(&b->detector[n->probe[i].server], now_ns, peer, 2);
        for (j = 0; j < got && n->probes < 4 * (size_t)b->c.k; j++) {
            struct twochoice_probe *p = &n->probe[n->probes++];
            p->server = peer[j].server;
            p->weight = 1;
            p->state = TWOCHOICE_UP;
            p->load = peer[j].load;
        }
    }
}

static inline void burst_decide(struct burst *b, struct burst_node *n, uint64_t now_ns)
{
    size_t i, j;
    if (b->rule == BURST_COLLABORATIVE || b->rule == BURST_PREASSIGN)
        burst_keep(b, n);
    else if (twochoice_placement_decide(&b->placement, n->write, b->c.k, n->probe, n->probes) != QOS_OK)
        abort();
    for (i = 0; b->rule == BURST_PREASSIGN && i < n->asked; i++) {
        struct burst_server *v = &b->server[n->probe[i].server];
        v->expected -= n->guess[i];
        burst_learn(v, burst_range(n->probe[i].load), n->probe[i].chosen != 0);
    }
    for (i = 0; i < n->asked; i++) {
        const struct twochoice_probe *p = &n->probe[i];
        uint64_t request = b->rule == BURST_NATIVE ? n->request * 65536 + i : n->request;
        if (twochoice_detector_decided(&b->detector[p->server], now_ns, 0, request, p->chosen * BURST_WRITE) != QOS_OK)
            abort();
        if (b->rule == BURST_NATIVE && p->chosen)
            twochoice_detector_arrived(&b->detector[p->server], now_ns, 0, request, 0);
        /* The decision carries the loads of the other probed servers (Figure 5c); two of them here. */
        for (j = 1; b->c.peers && j <= 2; j++) {
            const struct twochoice_probe *o = &n->probe[(i + j) % n->asked];
            twochoice_detector_heard(&b->detector[p->server], now_ns, o->server, o->load + o->chosen * BURST_WRITE,
                                     now_ns - n->at_ns);
        }
    }
    for (; i < n->probes; i++)
        b->result.peers_chosen += n->probe[i].chosen;
    for (i = 0; i < b->c.k; i++)
        burst_place(b, n->write[i].target, now_ns, n->request);
}

/* A newer rule than the paper's, after Prequal (NSDI 2024): probes are sent ahead and reused, so no write waits for
 * one. The rule leaves out the busiest sixth of the pool by requests in flight, and takes the server with the shortest
 * expected latency of the others. The pool was probed one round trip before its use, and the node adds its own writes
 * to it. */
static inline void burst_reused(struct burst *b, struct burst_node *n, uint64_t now_ns)
{
    size_t pool = (size_t)2 * b->c.k, i, p, best;
    uint32_t *hot = (uint32_t *)malloc(pool * sizeof *hot);
    if (!hot)
        abort();
    for (i = 0; i < b->c.k; i++) {
        uint32_t limit;
        for (p = 0; p < n->probes; p++)
            hot[p] = (uint32_t)(n->probe[p].load / BURST_WRITE);
        qsort(hot, n->probes, sizeof *hot, burst_compare);
        limit = hot[n->probes * 84 / 100];
        best = n->probes;
        for (p = 0; p < n->probes; p++) {
            if (n->probe[p].load / BURST_WRITE > limit)
                continue;
            /* In a queue of equal writes the latency follows from the writes in flight. */
            if (best == n->probes || n->probe[p].load < n->probe[best].load)
                best = p;
        }
        burst_place(b, n->probe[best].server, now_ns, n->request);
        n->probe[best].load += BURST_WRITE;
    }
    free(hot);
}

/* Simulates one burst that begins now. */
static inline void burst_run(struct burst *b, uint64_t start_ns)
{
    uint32_t nodes = b->c.processes / b->c.k, j, i;
    uint64_t gap_ns = b->c.round_trip_ns / b->c.undecided;
    memset(&b->result, 0, sizeof b->result);
    for (i = 0; i < b->c.servers; i++) {
        struct burst_server *v = &b->server[i];
        v->free_at_ns = start_ns + v->background * b->c.service_ns;
        for (v->outstanding = 0; v->outstanding < v->background; v->outstanding++)
            twochoice_detector_begin(&b->detector[i], BURST_WRITE);
    }
    b->last_end_ns = start_ns;
    for (j = 0; j < nodes + b->c.undecided; j++) {
        struct burst_node *n = &b->node[j % b->c.undecided];
        uint64_t now_ns = start_ns + j * gap_ns;
        if (j >= b->c.undecided) { /* its probes are back */
            if (b->rule == BURST_REUSED)
                burst_reused(b, n, now_ns);
            else
                burst_decide(b, n, now_ns);
        }
        if (j >= nodes)
            continue;
        n->request = qos_rng_u64(&b->rng) >> 17;
        for (i = 0; i < b->c.k; i++) {
            n->write[i].home = (uint32_t)(((uint64_t)j * b->c.k + i) % b->c.servers); /* round robin */
            n->write[i].len_bytes = BURST_WRITE;
        }
        burst_probe(b, n, now_ns);
    }
    /* Fixed and random placement send no probes, and a pool was probed before. So these rules do not wait. */
    b->result.response_ms = (double)(b->last_end_ns - start_ns) / 1e6;
    if (b->rule == BURST_FIXED || b->rule == BURST_RANDOM || b->rule == BURST_REUSED)
        b->result.response_ms -= (double)b->c.round_trip_ns / 1e6;
    b->result.ideal_ms = burst_ideal_ms(b);
}

static inline void *burst_alloc(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p)
        abort();
    memset(p, 0, size);
    return p;
}

/* Sets up one rule, runs its warm-ups and then the burst that counts. The servers' results stay in b->server. */
static inline void burst_begin(struct burst *b, const struct burst_config *c, enum burst_rule rule)
{
    static const uint32_t policy[BURST_RULES] = {
        TWOCHOICE_FIXED,         TWOCHOICE_RANDOM,        TWOCHOICE_NATIVE,       TWOCHOICE_COLLABORATIVE,
        TWOCHOICE_COLLABORATIVE, TWOCHOICE_COLLABORATIVE, TWOCHOICE_COLLABORATIVE};
    struct twochoice_placement_config sc;
    struct twochoice_detector_config dc;
    uint32_t i;
    memset(b, 0, sizeof *b);
    b->c = *c;
    b->rule = rule;
    qos_rng_seed(&b->rng, c->seed);
    memset(&sc, 0, sizeof sc);
    sc.servers = c->servers;
    sc.max_writes = c->k;
    sc.policy = policy[rule];
    sc.seed = c->seed * 1000 + (uint64_t)rule;
    b->placement_mem = burst_alloc(twochoice_placement_memsize(&sc));
    if (twochoice_placement_init(&b->placement, b->placement_mem, twochoice_placement_memsize(&sc), &sc) != QOS_OK)
        abort();
    memset(&dc, 0, sizeof dc);
    dc.op_cost_bytes = QOS_NOTHING;
    dc.max_probes = rule == BURST_FIXED || rule == BURST_RANDOM ? 1 : 64;
    dc.max_peers = c->peers ? 32 : 1;
    dc.no_preassign = rule != BURST_FILLED;
    b->server = (struct burst_server *)burst_alloc(c->servers * sizeof *b->server);
    b->detector = (struct twochoice_detector *)burst_alloc(c->servers * sizeof *b->detector);
    b->detector_mem = (void **)burst_alloc(c->servers * sizeof *b->detector_mem);
    for (i = 0; i < c->servers; i++) {
        b->detector_mem[i] = burst_alloc(twochoice_detector_memsize(&dc));
        if (twochoice_detector_init(&b->detector[i], b->detector_mem[i], twochoice_detector_memsize(&dc), &dc) !=
            QOS_OK)
            abort();
    }
    b->node = (struct burst_node *)burst_alloc(c->undecided * sizeof *b->node);
    for (i = 0; i < c->undecided; i++) {
        b->node[i].write = (struct twochoice_write *)burst_alloc(c->k * sizeof(struct twochoice_write));
        b->node[i].probe = (struct twochoice_probe *)burst_alloc((size_t)4 * c->k * sizeof(struct twochoice_probe));
        b->node[i].guess = (float *)burst_alloc((size_t)4 * c->k * sizeof(float));
    }
    /* Only preassign learns. The burst that counts has the same background and stragglers for every rule. */
    for (i = 0; rule == BURST_PREASSIGN && i < c->warm_ups; i++) {
        burst_new_background(b);
        burst_run(b, (uint64_t)i * UINT64_C(1000000000000));
    }
    qos_rng_seed(&b->rng, c->seed + UINT64_C(1000000007));
    burst_new_background(b);
    burst_run(b, (uint64_t)c->warm_ups * UINT64_C(1000000000000));
}

static inline void burst_end(struct burst *b)
{
    uint32_t i;
    for (i = 0; i < b->c.servers; i++)
        free(b->detector_mem[i]);
    for (i = 0; i < b->c.undecided; i++) {
        free(b->node[i].write);
        free(b->node[i].probe);
        free(b->node[i].guess);
    }
    free(b->node);
    free(b->detector_mem);
    free(b->detector);
    free(b->server);
    free(b->placement_mem);
}

static inline void burst_defaults(struct burst_config *c)
{
    memset(c, 0, sizeof *c);
    c->servers = 1000;
    c->processes = 10000;
    c->k = 100;
    c->undecided = 20;
    c->warm_ups = 5;
    c->round_trip_ns = 5000000;
    c->service_ns = 10000000; /* 1 MB at 100 MB/s */
    c->seed = 1;
    c->peers = false;
}

static inline int burst_compare_double(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Medians over seeds (an odd number up to 99). */
static inline struct burst_result burst_median(const struct burst_config *c, enum burst_rule rule, uint32_t seeds)
{
    double response[99] = {0}, ideal[99] = {0}, on[99] = {0}, chosen[99] = {0};
    struct burst_result r;
    uint32_t i;
    memset(&r, 0, sizeof r);
    if (seeds == 0)
        seeds = 1;
    memset(response, 0, sizeof response);
    memset(ideal, 0, sizeof ideal);
    memset(on, 0, sizeof on);
    memset(chosen, 0, sizeof chosen);
    for (i = 0; i < seeds && i < 99; i++) {
        struct burst_config one = *c;
        struct burst b;
        one.seed = c->seed + i;
        burst_begin(&b, &one, rule);
        response[i] = b.result.response_ms;
        ideal[i] = b.result.ideal_ms;
        on[i] = (double)b.result.on_stragglers;
        chosen[i] = (double)b.result.peers_chosen;
        r.probes = b.result.probes;
        burst_end(&b);
    }
    qsort(response, i, sizeof *response, burst_compare_double);
    qsort(ideal, i, sizeof *ideal, burst_compare_double);
    qsort(on, i, sizeof *on, burst_compare_double);
    qsort(chosen, i, sizeof *chosen, burst_compare_double);
    r.response_ms = response[i / 2];
    r.ideal_ms = ideal[i / 2];
    r.on_stragglers = (uint64_t)on[i / 2];
    r.peers_chosen = (uint64_t)chosen[i / 2];
    return r;
}

#endif
