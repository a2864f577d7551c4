/* buckets.h - the simulated cluster of the pShift paper's Section IV-B, for `simulate pshift` and the paper tests.
 *
 * Servers of equal capacity run the token scheduler of pshift.h. A bucket's requests arrive at its active servers, at
 * an even rate in proportion to its demand there. A demand change moves a bucket to other random servers at a random
 * time. At the start of each interval every server reports its expected demand: the waiting requests, and recent
 * arrivals extrapolated to the end of the period. The controller subtracts the served requests from the reservations
 * and solves. Recent arrivals are those of the last interval, as in the paper's Section III-D, or those of its second
 * half (recent_half). With the second half, demand that left in the first half is no longer expected, and demand that
 * came in it counts in full. Service times are uniform within 20 % of the mean. Time advances in ticks of 1 ms;
 * arrivals are exact to the tick.
 */
#ifndef EXAMPLES_BUCKETS_H
#define EXAMPLES_BUCKETS_H

#include "pshift.h"
#include "../common/draw.h"
#include <stdlib.h>
#include <string.h>

#define BUCKETS_INTERVALS 5
#define BUCKETS_TICK_NS 1000000
#define BUCKETS_CHANGES_MAX 10

struct buckets_setup {
    uint32_t servers, buckets, active, changes; /* N_A; N_D */
    bool recent_half;
    bool up_to; /* each bucket has 0..changes of them, at random; otherwise exactly `changes` */
    uint64_t iops, period_ns, seed;
    double demand_ratio, zipf;
};

struct buckets_flow {
    uint32_t bucket, server, next; /* next flow of the same tick */
    uint32_t generation;           /* of the bucket's demand; a flow of an older one has ended */
    double at_ns, gap_ns;
};

struct buckets_world {
    struct buckets_setup setup;
    struct qos_rng rng;
    uint64_t *reservation; /* [buckets] */
    uint64_t *served;      /* [BUCKETS_INTERVALS * buckets] */
    uint64_t *change_ns;   /* [buckets * BUCKETS_CHANGES_MAX] ascending, UINT64_MAX beyond the last */
    double intrinsic;      /* share of buckets that no allocation for the first demands could serve */
    uint64_t capacity, tokens_short;
};

static inline void *buckets_room(size_t n, size_t item)
{
    void *p = aligned_alloc(64, (n * item + 127) / 64 * 64);
    if (!p)
        abort();
    memset(p, 0, n * item);
    return p;
}

static inline uint64_t buckets_bits(void *rng)
{
    return qos_rng_u64((struct qos_rng *)rng);
}

/* Figure 3(a), scaled to all capacity. */
static inline void buckets_reserve(struct buckets_world *w)
{
    uint32_t n = w->setup.buckets, i;
    double *sum = (double *)buckets_room(n + 1u, sizeof(double)), *part = (double *)buckets_room(n, sizeof(double));
    double total = (double)w->capacity * w->setup.servers;
    draw_zipf_parts(part, sum, n, w->setup.zipf, buckets_bits, &w->rng);
    for (i = 0; i < n; i++)
        w->reservation[i] = (uint64_t)(part[i] * total);
    free(sum);
    free(part);
}

struct buckets_run {
    struct buckets_world *w;
    struct pshift_scheduler *sched;
    void **sched_mem;
    struct buckets_flow *flow;
    uint32_t *tick, *generation, *arrived; /* arrived: [servers * buckets] recently */
    uint32_t flows, ticks;
    uint64_t *demand, *alloc, *capacity, *left, *shortfall, *clock_ns;
    uint32_t *row, *server;
    uint8_t *cut;
    struct pshift_solver solver;
    void *solver_mem;
};

static inline void buckets_check(bool fine)
{
    if (!fine)
        abort();
}

static inline void buckets_post(struct buckets_run *r, uint32_t f)
{
    uint32_t tick = (uint32_t)(r->flow[f].at_ns / BUCKETS_TICK_NS);
    if (tick >= r->ticks)
        return;
    r->flow[f].next = r->tick[tick];
    r->tick[tick] = f;
}

/* The bucket's demand from now on: N_A servers, shares by Zipf. */
static inline void buckets_demand(struct buckets_run *r, uint32_t i, double now_ns)
{
    const struct buckets_setup *s = &r->w->setup;
    uint32_t chosen[64], k, q;
    double sum = 0, total = (double)r->w->reservation[i] * s->demand_ratio;
    r->generation[i]++;
    for (k = 0; k < s->active; k++)
        sum += draw_zipf_weight(k, s->zipf);
    for (k = 0; k < s->active; k++) {
        struct buckets_flow *f;
        bool again;
        do {
            chosen[k] = (uint32_t)qos_rng_below(&r->w->rng, s->servers);
            again = false;
            for (q = 0; q < k; q++)
                again |= chosen[q] == chosen[k];
        } while (again);
        f = &r->flow[r->flows];
        f->bucket = i;
        f->server = chosen[k];
        f->generation = r->generation[i];
        f->gap_ns = (double)s->period_ns / (total * draw_zipf_weight(k, s->zipf) / sum + 1e-9);
        f->at_ns = now_ns + draw_unit(qos_rng_u64(&r->w->rng)) * f->gap_ns;
        buckets_post(r, r->flows++);
    }
}

static inline void buckets_count_anew(struct buckets_run *r)
{
    memset(r->arrived, 0, sizeof(uint32_t) * r->w->setup.servers * r->w->setup.buckets);
}

static inline struct pshift_scheduler_state buckets_queue(const struct buckets_run *r, uint32_t j, uint32_t i)
{
    struct pshift_scheduler_state queue;
    memset(&queue, 0, sizeof queue);
    buckets_check(pshift_scheduler_info(&r->sched[j], i, &queue) == QOS_OK);
    return queue;
}

/* The controller's round at the start of interval `v`. Rows come from waiting requests and recent arrivals; at the
 * start of the period, from the demand itself. */
static inline void buckets_round(struct buckets_run *r, uint32_t v)
{
    const struct buckets_setup *s = &r->w->setup;
    struct pshift_problem p;
    struct pshift_solution sol;
    uint64_t interval = s->period_ns / BUCKETS_INTERVALS, remaining = s->period_ns - v * interval, short_buckets = 0;
    uint32_t i, j, e = 0;
    for (j = 0; j < s->servers; j++)
        r->capacity[j] = r->w->capacity * (BUCKETS_INTERVALS - v) / BUCKETS_INTERVALS;
    for (i = 0; i < s->buckets; i++) {
        uint64_t done = 0;
        r->row[i] = e;
        for (j = 0; j < s->servers; j++) {
            const struct pshift_scheduler_state queue = buckets_queue(r, j, i);
            uint64_t recent = r->arrived[(size_t)j * s->buckets + i], waits = queue.pending;
            done += queue.served;
            if (recent + waits == 0)
                continue;
            r->server[e] = j;
            r->demand[e++] =
                v == 0 ? recent : waits + qos_mul_div_ceil(recent, remaining, s->recent_half ? interval / 2 : interval);
        }
        r->left[i] = qos_sat_sub(r->w->reservation[i], done);
    }
    r->row[s->buckets] = e;
    memset(&sol, 0, sizeof sol);
    sol.alloc = r->alloc;
    sol.cut = r->cut;
    sol.shortfall = r->shortfall;
    p.servers = s->servers;
    p.buckets = s->buckets;
    p.capacity = r->capacity;
    p.reservation = r->left;
    p.row = r->row;
    p.server = r->server;
    p.demand = r->demand;
    buckets_check(pshift_solver_solve(&r->solver, &p, NULL, &sol) == QOS_OK);
    if (v == 0) {
        buckets_check(pshift_solver_shortfall(&r->solver, &p, &sol) == QOS_OK); /* verifies, too */
        for (i = 0; i < s->buckets; i++)
            short_buckets += r->shortfall[i] * 20 > r->w->reservation[i];
        r->w->intrinsic = (double)short_buckets / s->buckets;
        r->w->tokens_short = sol.excess.lo;
    }
    for (j = 0; j < s->servers; j++)
        for (i = 0; i < s->buckets; i++)
            if (buckets_queue(r, j, i).r_tokens != 0 || v == 0)
                buckets_check(pshift_scheduler_set_tokens(&r->sched[j], i, 0, QOS_UNLIMITED) == QOS_OK);
    for (i = 0; i < s->buckets; i++)
        for (e = r->row[i]; e < r->row[i + 1]; e++)
            buckets_check(pshift_scheduler_set_tokens(&r->sched[r->server[e]], i, r->alloc[e], QOS_UNLIMITED) ==
                          QOS_OK);
    buckets_count_anew(r);
}

/* One tick: first arrivals, then every server works until the end of the tick. */
static inline void buckets_tick(struct buckets_run *r, uint32_t tick, uint32_t v, double mean_ns)
{
    const struct buckets_setup *s = &r->w->setup;
    uint64_t end_ns = (uint64_t)(tick + 1) * BUCKETS_TICK_NS;
    uint32_t f = r->tick[tick], next, j;
    for (; f != UINT32_MAX; f = next) {
        struct buckets_flow *flow = &r->flow[f];
        next = flow->next;
        if (flow->generation != r->generation[flow->bucket])
            continue;
        while (flow->at_ns < (double)end_ns) {
            buckets_check(pshift_scheduler_arrive(&r->sched[flow->server], flow->bucket, 1) == QOS_OK);
            r->arrived[(size_t)flow->server * s->buckets + flow->bucket]++;
            flow->at_ns += flow->gap_ns;
        }
        buckets_post(r, f);
    }
    for (j = 0; j < s->servers; j++) {
        struct pshift_pick pick;
        if (r->clock_ns[j] < end_ns - BUCKETS_TICK_NS)
            r->clock_ns[j] = end_ns - BUCKETS_TICK_NS;
        while (r->clock_ns[j] < end_ns && pshift_scheduler_pick(&r->sched[j], 0, &pick) == QOS_OK) {
            r->w->served[(size_t)v * s->buckets + pick.queue]++;
            r->clock_ns[j] += (uint64_t)(mean_ns * (0.8 + 0.4 * draw_unit(qos_rng_u64(&r->w->rng))));
        }
    }
}

static inline int buckets_earlier(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static inline void buckets_draw_changes(struct buckets_world *w)
{
    uint32_t i, k;
    for (i = 0; i < w->setup.buckets; i++) {
        uint64_t *at = w->change_ns + (size_t)i * BUCKETS_CHANGES_MAX;
        uint32_t n = w->setup.up_to ? (uint32_t)qos_rng_below(&w->rng, w->setup.changes + 1) : w->setup.changes;
        for (k = 0; k < BUCKETS_CHANGES_MAX; k++)
            at[k] = k < n ? qos_rng_below(&w->rng, w->setup.period_ns) : UINT64_MAX;
        qsort(at, BUCKETS_CHANGES_MAX, sizeof *at, buckets_earlier);
    }
}

static inline void buckets_open(struct buckets_run *r, struct buckets_world *w)
{
    const struct buckets_setup *s = &w->setup;
    size_t pairs = (size_t)s->servers * s->buckets;
    struct pshift_scheduler_config sc = {0, 0};
    struct pshift_solver_config pc;
    uint32_t j;
    memset(r, 0, sizeof *r);
    r->w = w;
    sc.queues = s->buckets;
    pc.servers = s->servers;
    pc.buckets = s->buckets;
    pc.entries = (uint32_t)pairs;
    r->ticks = (uint32_t)(s->period_ns / BUCKETS_TICK_NS);
    r->sched = (struct pshift_scheduler *)buckets_room(s->servers, sizeof *r->sched);
    r->sched_mem = (void **)buckets_room(s->servers, sizeof(void *));
    for (j = 0; j < s->servers; j++) {
        r->sched_mem[j] = buckets_room(1, pshift_scheduler_memsize(&sc));
        buckets_check(pshift_scheduler_init(&r->sched[j], r->sched_mem[j], pshift_scheduler_memsize(&sc), &sc) ==
                      QOS_OK);
    }
    r->flow = (struct buckets_flow *)buckets_room((size_t)s->buckets * s->active * (s->changes + 1), sizeof *r->flow);
    r->tick = (uint32_t *)buckets_room(r->ticks, 4);
    memset(r->tick, 0xff, sizeof(uint32_t) * r->ticks);
    r->generation = (uint32_t *)buckets_room(s->buckets, 4);
    r->arrived = (uint32_t *)buckets_room(pairs, 4);
    r->demand = (uint64_t *)buckets_room(pairs, 8);
    r->alloc = (uint64_t *)buckets_room(pairs, 8);
    r->server = (uint32_t *)buckets_room(pairs, 4);
    r->capacity = (uint64_t *)buckets_room(s->servers, 8);
    r->left = (uint64_t *)buckets_room(s->buckets, 8);
    r->shortfall = (uint64_t *)buckets_room(s->buckets, 8);
    r->clock_ns = (uint64_t *)buckets_room(s->servers, 8);
    r->row = (uint32_t *)buckets_room(s->buckets + 1u, 4);
    r->cut = (uint8_t *)buckets_room(s->servers, 1);
    r->solver_mem = buckets_room(1, pshift_solver_memsize(&pc));
    buckets_check(pshift_solver_init(&r->solver, r->solver_mem, pshift_solver_memsize(&pc), &pc) == QOS_OK);
}

static inline void buckets_close(struct buckets_run *r)
{
    uint32_t j;
    void *rooms[] = {r->sched_mem, r->sched, r->flow,   r->tick,      r->generation, r->arrived,
                     r->demand,    r->alloc, r->server, r->capacity,  r->left,       r->shortfall,
                     r->clock_ns,  r->row,   r->cut,    r->solver_mem};
    for (j = 0; j < r->w->setup.servers; j++)
        free(r->sched_mem[j]);
    for (j = 0; j < sizeof rooms / sizeof *rooms; j++)
        free(rooms[j]);
}

/* Draws reservations, demands and changes, and runs one period. Results in *w; buckets_done frees them. */
static inline void buckets_period(struct buckets_world *w, const struct buckets_setup *setup)
{
    struct buckets_run r;
    uint32_t i, k, tick, v;
    memset(w, 0, sizeof *w);
    w->setup = *setup;
    qos_rng_seed(&w->rng, setup->seed);
    w->capacity = setup->iops * setup->period_ns / QOS_NS_PER_S;
    w->reservation = (uint64_t *)buckets_room(setup->buckets, 8);
    w->served = (uint64_t *)buckets_room((size_t)BUCKETS_INTERVALS * setup->buckets, 8);
    w->change_ns = (uint64_t *)buckets_room((size_t)BUCKETS_CHANGES_MAX * setup->buckets, 8);
    buckets_reserve(w);
    buckets_draw_changes(w);
    buckets_open(&r, w);
    for (i = 0; i < setup->buckets; i++)
        buckets_demand(&r, i, 0);
    for (k = 0; k < r.flows; k++) /* the first demands, for the whole period */
        r.arrived[(size_t)r.flow[k].server * setup->buckets + r.flow[k].bucket] +=
            (uint32_t)((double)setup->period_ns / r.flow[k].gap_ns + 0.5);
    for (tick = 0; tick < r.ticks; tick++) {
        v = (uint32_t)((uint64_t)tick * BUCKETS_INTERVALS / r.ticks);
        if (tick == (uint64_t)v * r.ticks / BUCKETS_INTERVALS)
            buckets_round(&r, v);
        if (setup->recent_half && tick == (2 * (uint64_t)v + 1) * r.ticks / (2 * BUCKETS_INTERVALS))
            buckets_count_anew(&r);
        for (i = 0; i < setup->buckets && setup->changes; i++)
            for (k = r.generation[i] - 1;
                 k < BUCKETS_CHANGES_MAX && w->change_ns[(size_t)i * BUCKETS_CHANGES_MAX + k] / BUCKETS_TICK_NS <= tick;
                 k++)
                buckets_demand(&r, i, (double)tick * BUCKETS_TICK_NS);
        buckets_tick(&r, tick, v, 1e9 / (double)setup->iops);
    }
    buckets_close(&r);
}

static inline void buckets_done(struct buckets_world *w)
{
    free(w->reservation);
    free(w->served);
    free(w->change_ns);
}

/* Share of buckets that got less than `percent` of their reservation. */
static inline double buckets_missed(const struct buckets_world *w, uint64_t percent)
{
    uint32_t i, v, missed = 0;
    for (i = 0; i < w->setup.buckets; i++) {
        uint64_t got = 0;
        for (v = 0; v < BUCKETS_INTERVALS; v++)
            got += w->served[(size_t)v * w->setup.buckets + i];
        missed += got * 100 < w->reservation[i] * percent;
    }
    return (double)missed / w->setup.buckets;
}

/* Section IV-B: 64 servers of 20,000 IOPS, a period of 5 s, 10,000 buckets on 8 servers, demand 1.5 times the
 * reservation. */
static inline struct buckets_setup buckets_paper(uint32_t active, uint32_t changes, uint64_t seed)
{
    struct buckets_setup s = {64, 10000, active, changes, false, false, 20000, 5 * QOS_NS_PER_S, seed, 1.5, 0.5};
    return s;
}

#endif
