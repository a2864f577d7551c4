/* bursts.h - a model of burst writes on a cluster, for `simulate twochoice` and for the tests of Figures 3 and 4.
 *
 * A server serves writes of 1 MB one after the other, first come, first served. Before the burst it holds a background
 * of writes: normal, mean 30, deviation 3; a straggler holds five times as many. The k processes of a node issue one
 * write each at the same moment. A node starts in every (round trip / `undecided`), so `undecided` nodes wait for
 * their probes at any time. Meanwhile servers go on serving. The response time of the burst is the end of its last
 * write. A server's load is what it has and what has been sent to it.
 *
 * The rules are the paper's: "two-choice" takes the better of two servers for each write, "collaborative" sends one
 * write to each of the k least loaded of 2k servers (Section III-B), and "preassign" lets servers expect P(load) of a
 * write until they hear the decision (Section III-C). P(load) is learned in earlier bursts, each with its own background
 * and stragglers. The rule of twochoice.h needs messages and time: placement.h. */
#ifndef EXAMPLES_SIMULATE_BURSTS_H
#define EXAMPLES_SIMULATE_BURSTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "../common/draw.h"
#include "../common/two_choice.h"

enum burst_rule {
    BURST_FIXED,
    BURST_RANDOM,
    BURST_NATIVE,
    BURST_COLLABORATIVE,
    BURST_PREASSIGN,
    BURST_REUSED,
    BURST_RULES
};
static const char *const burst_rule_names[BURST_RULES] = {"fixed",         "random",    "two-choice",
                                                          "collaborative", "preassign", "reused probes"};
#define BURST_LOADS 64   /* ranges of load that P(load) distinguishes, of one write each */
#define BURST_PARTS 1024 /* a load is in parts of a write */

struct burst_config {
    uint32_t servers, processes, k, undecided, warm_ups;
    double ratio; /* of stragglers */
    uint64_t round_trip_ns, service_ns, seed;
};

struct burst_result {
    double response_ms;     /* the last write ends */
    double ideal_ms;        /* with the shortest queues filled first: no rule ends earlier */
    uint64_t on_stragglers; /* writes placed there */
    uint64_t probes;
};

struct burst_server {
    uint64_t free_at_ns; /* when its queue is empty */
    uint32_t background, placed;
    float accept[BURST_LOADS], expected; /* P(load); writes that undecided probes add to the expected load */
    bool seen[BURST_LOADS];
    bool straggler;
};

struct burst_node {
    uint32_t *target;
    struct two_choice_probe *probe;
    float *guess; /* by server of the probe: what it expects of it */
    uint32_t probes, first;
};

struct burst {
    struct burst_config c;
    enum burst_rule rule;
    struct burst_server *server;
    struct qos_rng rng, draws;
    uint32_t *order;
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

/* Writes that the server has. */
static inline uint64_t burst_load(const struct burst *b, uint32_t s, uint64_t now_ns)
{
    uint64_t free_at_ns = b->server[s].free_at_ns;
    return free_at_ns > now_ns ? (free_at_ns - now_ns + b->c.service_ns - 1) / b->c.service_ns : 0;
}

static inline void burst_place(struct burst *b, uint32_t s, uint64_t now_ns)
{
    struct burst_server *v = &b->server[s];
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
    return (uint32_t)(load / BURST_PARTS < BURST_LOADS ? load / BURST_PARTS : BURST_LOADS - 1);
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

/* A node sends its probes: every server answers with its load. */
static inline void burst_probe(struct burst *b, struct burst_node *n, uint64_t now_ns)
{
    uint32_t i, each = b->rule == BURST_NATIVE ? 2 : 2 * b->c.k, draws = b->rule == BURST_NATIVE ? b->c.k : 1;
    n->probes = 0;
    if (b->rule == BURST_FIXED || b->rule == BURST_RANDOM)
        return;
    for (i = 0; i < draws; i++)
        n->probes += two_choice_draw(&b->draws, b->order, b->c.servers, NULL, each, n->probe + n->probes);
    b->result.probes += n->probes;
    for (i = 0; i < n->probes; i++) {
        struct burst_server *v = &b->server[n->probe[i].server];
        n->probe[i].load = burst_load(b, n->probe[i].server, now_ns) * BURST_PARTS;
        if (b->rule != BURST_PREASSIGN)
            continue;
        n->probe[i].load += (uint64_t)((double)v->expected * BURST_PARTS);
        n->guess[n->probe[i].server] = burst_accept(v, burst_range(n->probe[i].load));
        v->expected += n->guess[n->probe[i].server];
    }
}

static inline void burst_decide(struct burst *b, struct burst_node *n, uint64_t now_ns)
{
    uint32_t i;
    for (i = 0; i < b->c.k; i++) {
        const struct two_choice_probe *pair = &n->probe[2 * i];
        if (b->rule == BURST_FIXED)
            n->target[i] = (n->first + i) % b->c.servers; /* round robin */
        else if (b->rule == BURST_RANDOM)
            n->target[i] = (uint32_t)qos_rng_below(&b->draws, b->c.servers);
        else if (b->rule == BURST_NATIVE)
            n->target[i] = pair[pair[1].load < pair[0].load].server;
    }
    if (b->rule == BURST_COLLABORATIVE || b->rule == BURST_PREASSIGN)
        two_choice_keep(n->probe, n->probes, b->c.k, n->target);
    for (i = 0; b->rule == BURST_PREASSIGN && i < n->probes; i++) {
        struct burst_server *v = &b->server[n->probe[i].server];
        v->expected -= n->guess[n->probe[i].server];
        burst_learn(v, burst_range(n->probe[i].load), n->probe[i].chosen != 0);
    }
    for (i = 0; i < b->c.k; i++)
        burst_place(b, n->target[i], now_ns);
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
            hot[p] = (uint32_t)(n->probe[p].load / BURST_PARTS);
        qsort(hot, n->probes, sizeof *hot, burst_compare);
        limit = hot[n->probes * 84 / 100];
        best = n->probes;
        for (p = 0; p < n->probes; p++) {
            if (n->probe[p].load / BURST_PARTS > limit)
                continue;
            /* In a queue of equal writes the latency follows from the writes in flight. */
            if (best == n->probes || n->probe[p].load < n->probe[best].load)
                best = p;
        }
        burst_place(b, n->probe[best].server, now_ns);
        n->probe[best].load += BURST_PARTS;
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
        n->first = (uint32_t)((uint64_t)j * b->c.k % b->c.servers);
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
    uint32_t i;
    memset(b, 0, sizeof *b);
    b->c = *c;
    b->rule = rule;
    qos_rng_seed(&b->rng, c->seed);
    qos_rng_seed(&b->draws, c->seed * 1000 + (uint64_t)rule);
    b->server = (struct burst_server *)burst_alloc(c->servers * sizeof *b->server);
    b->order = (uint32_t *)burst_alloc(c->servers * sizeof *b->order);
    for (i = 0; i < c->servers; i++)
        b->order[i] = i;
    b->node = (struct burst_node *)burst_alloc(c->undecided * sizeof *b->node);
    for (i = 0; i < c->undecided; i++) {
        b->node[i].target = (uint32_t *)burst_alloc(c->k * sizeof(uint32_t));
        b->node[i].probe = (struct two_choice_probe *)burst_alloc((size_t)2 * c->k * sizeof(struct two_choice_probe));
        b->node[i].guess = (float *)burst_alloc(c->servers * sizeof(float));
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
    for (i = 0; i < b->c.undecided; i++) {
        free(b->node[i].target);
        free(b->node[i].probe);
        free(b->node[i].guess);
    }
    free(b->node);
    free(b->order);
    free(b->server);
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
    double response[99] = {0}, ideal[99] = {0}, on[99] = {0};
    struct burst_result r;
    uint32_t i;
    memset(&r, 0, sizeof r);
    if (seeds == 0)
        seeds = 1;
    memset(response, 0, sizeof response);
    memset(ideal, 0, sizeof ideal);
    memset(on, 0, sizeof on);
    for (i = 0; i < seeds && i < 99; i++) {
        struct burst_config one = *c;
        struct burst b;
        one.seed = c->seed + i;
        burst_begin(&b, &one, rule);
        response[i] = b.result.response_ms;
        ideal[i] = b.result.ideal_ms;
        on[i] = (double)b.result.on_stragglers;
        r.probes = b.result.probes;
        burst_end(&b);
    }
    qsort(response, i, sizeof *response, burst_compare_double);
    qsort(ideal, i, sizeof *ideal, burst_compare_double);
    qsort(on, i, sizeof *on, burst_compare_double);
    r.response_ms = response[i / 2];
    r.ideal_ms = ideal[i / 2];
    r.on_stragglers = (uint64_t)on[i / 2];
    return r;
}

#endif
