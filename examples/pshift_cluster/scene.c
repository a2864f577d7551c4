// The scenes: the paper's Experiments 3 to 5 and free form. The seed gives the same random schedule on every rank.
#include "cluster.h"
#include "draw.h"
#include <stdlib.h>
#include <string.h>

#define DEMAND_RATIO 1.5 /* open load: demand / reservation, as in the paper's simulation */
#define LOAD_ZIPF 0.5    /* open load: exponent of reservations and shares */
#define SEEDS_MAX 10000

struct kind {
    const char *key, *title;
    double reserve, limit; /* of a node's capacity; limit 0: none */
    int experiment;
    uint32_t nodes, buckets, periods, changes; /* 0 buckets: by options */
    bool qos;
};
static const struct kind kinds[] = {
    {"round_robin", "Experiment 3: 4 buckets, round robin alone", 0.6, 0, 3, 4, 4, 10, 0, false},
    {"reservations", "Experiment 3: reservations of 0.6 of a node", 0.6, 4, 3, 4, 4, 10, 0, true},
    {"limits", "Experiment 3: and limits of 1.2 of a node", 0.6, 1.2, 3, 4, 4, 10, 0, true},
    {"10_without", "Experiment 4: 10 buckets, demand moves, round robin alone", 0.6, 1, 4, 8, 10, 4, 5, false},
    {"10_with", "Experiment 4: 10 buckets, demand moves, pShift", 0.6, 1, 4, 8, 10, 4, 5, true},
    {"200_without", "Experiment 4: 200 buckets, round robin alone", 0.03, 0.05, 4, 8, 200, 4, 5, false},
    {"200_with", "Experiment 4: 200 buckets, pShift", 0.03, 0.05, 4, 8, 200, 4, 5, true},
    {"without", "Experiment 5: 200 buckets, 80 % reserved, round robin alone", 0, 1.5, 5, 8, 200, 2, 2, false},
    {"with", "Experiment 5: 200 buckets, 80 % reserved, pShift", 0, 1.5, 5, 8, 200, 2, 2, true},
    {"without", "Round robin alone", 0, 0, 0, 0, 0, 4, 0, false},
    {"with", "pShift", 0, 0, 0, 0, 0, 4, 0, true},
};
#define KINDS ((uint32_t)(sizeof kinds / sizeof *kinds))

/* Is this kind selected? "3,4" names experiments, NULL is free form. */
static bool wanted(const struct kind *k)
{
    const char *at = settings.experiment;
    if ((settings.mode == QOS_WITH && !k->qos) || (settings.mode == QOS_WITHOUT && k->qos))
        return false;
    if (!at)
        return k->experiment == 0;
    for (; *at; at++)
        if (*at == '0' + k->experiment)
            return true;
    return false;
}

uint32_t scene_count(void)
{
    uint32_t n = 0, i;
    for (i = 0; i < KINDS; i++)
        n += wanted(&kinds[i]);
    return n;
}

uint64_t scene_capacity(const struct scene *s)
{
    return qos_mul_div_floor(s->capacity, s->period_ns, QOS_NS_PER_S);
}

/* ---- contracts -------------------------------------------------------------------------------------------- */

static uint64_t bits(void *rng)
{
    return qos_rng_u64(rng);
}

/* Figure 10(a): they add up to `share` of all capacity. */
static void reserve_zipf(struct scene *s, struct qos_rng *rng, double share)
{
    double *sum = tool_alloc((s->buckets + 1u) * sizeof *sum), *part = tool_alloc(s->buckets * sizeof *part);
    uint32_t i;
    draw_zipf_parts(part, sum, s->buckets, LOAD_ZIPF, bits, rng);
    for (i = 0; i < s->buckets; i++)
        s->reservation[i] = (uint64_t)(part[i] * share * (double)scene_capacity(s) * s->nodes);
    free(sum);
    free(part);
}

static uint64_t fraction(const struct scene *s, double x)
{
    return (uint64_t)(x * (double)scene_capacity(s) + 0.5);
}

static void contracts(struct scene *s, const struct kind *k, struct qos_rng *rng)
{
    uint32_t i;
    double reserve = s->experiment ? k->reserve : settings.reserve, limit = s->experiment ? k->limit : settings.limit;
    s->unlimited = true;
    if (s->open)
        reserve_zipf(s, rng, s->experiment ? 0.8 : reserve * s->buckets / s->nodes);
    for (i = 0; i < s->buckets; i++) {
        double r = reserve, l = limit;
        if (!s->experiment && i < settings.specs) {
            r = settings.spec[i].reserve;
            l = settings.spec[i].limit;
        }
        if (!s->open)
            s->reservation[i] = fraction(s, r);
        s->limit[i] = l <= 0 ? QOS_UNLIMITED : s->open ? (uint64_t)(l * (double)s->reservation[i]) : fraction(s, l);
        s->unlimited &= s->limit[i] == QOS_UNLIMITED;
    }
}

/* ---- demand: bucket, node, time ----------------------------------------------------------------------------- */

bool scene_names(const char *list, uint32_t node)
{
    while (*list) {
        char *end;
        unsigned long a = strtoul(list, &end, 10), b = a;
        if (*end == '-')
            b = strtoul(end + 1, &end, 10);
        if (node + 1 >= a && node + 1 <= b)
            return true;
        list = *end == '+' || *end == ',' ? end + 1 : "";
    }
    return false;
}

static void phase_rates(const struct scene *s, struct phase *p, struct qos_rng *rng)
{
    const char *on = !s->experiment && p->bucket < settings.specs ? settings.spec[p->bucket].on : "";
    uint32_t low = ACTIVE_MIN, high = (uint32_t)settings.active_max, n, j, at;
    uint32_t order[NODES_MAX] = {0};
    double all = 0;
    if (s->experiment == 3 || *on) { /* bucket i on nodes 1..i, always */
        for (j = 0; j < s->nodes; j++)
            if (*on ? scene_names(on, j) : j <= p->bucket)
                p->rate[j] = (uint32_t)settings.window;
        return;
    }
    if (s->experiment) {
        low = s->open ? s->nodes : ACTIVE_MIN;
        high = s->open ? s->nodes : 6;
    }
    low = (uint32_t)qos_min(low, s->nodes);
    high = (uint32_t)qos_min(high, s->nodes);
    n = low + (uint32_t)qos_rng_below(rng, high - low + 1);
    for (j = 0; j < s->nodes; j++)
        order[j] = j;
    for (j = 0; j < n; j++)
        all += draw_zipf_weight(j, LOAD_ZIPF);
    for (j = 0; j < n; j++) {
        at = j + (uint32_t)qos_rng_below(rng, s->nodes - j);
        uint32_t chosen = order[at];
        order[at] = order[j];
        order[j] = chosen;
        if (s->open)
            p->rate[chosen] =
                (uint32_t)(DEMAND_RATIO * (double)s->reservation[p->bucket] * draw_zipf_weight(j, LOAD_ZIPF) / all +
                           0.5);
        else
            p->rate[chosen] = (uint32_t)settings.window;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct phase *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

/* `changes` per run in Experiment 4, per period in the others (as in the paper's simulation). */
static void schedule(struct scene *s, uint32_t changes, struct qos_rng *rng)
{
    uint32_t rounds = s->experiment == 4 ? 1 : s->periods, i, k, r;
    uint64_t span = s->period_ns * (s->experiment == 4 ? s->periods : 1);
    s->phases = s->buckets * (1 + rounds * changes);
    s->phase = tool_alloc(s->phases * sizeof *s->phase);
    s->phases = 0;
    for (i = 0; i < s->buckets; i++) {
        s->phase[s->phases++].bucket = i;
        for (r = 0; r < rounds; r++)
            for (k = 0; k < changes; k++) {
                s->phase[s->phases].bucket = i;
                s->phase[s->phases++].at_ns = 1 + r * span + qos_rng_below(rng, span - 1);
            }
    }
    for (i = 0; i < s->phases; i++) {
        s->phase[i].rate = tool_alloc(s->nodes * sizeof(uint32_t));
        phase_rates(s, &s->phase[i], rng);
    }
    qsort(s->phase, s->phases, sizeof *s->phase, by_time);
    s->first = tool_alloc(s->buckets * sizeof *s->first);
    for (i = 0; i < s->buckets; i++)
        s->first[i] = NO_PHASE;
    for (i = s->phases; i > 0; i--) {
        s->phase[i - 1].next = s->first[s->phase[i - 1].bucket];
        s->first[s->phase[i - 1].bucket] = i - 1;
    }
}

void scene_make(struct scene *s, uint32_t index, uint64_t seed, uint64_t capacity)
{
    const struct kind *k = kinds;
    struct qos_rng rng;
    for (; !wanted(k) || index > 0; k++)
        index -= wanted(k);
    memset(s, 0, sizeof *s);
    s->key = k->key;
    s->title = k->title;
    s->experiment = k->experiment;
    s->qos = k->qos;
    s->nodes = k->nodes ? k->nodes : settings.nodes;
    s->buckets = k->buckets ? k->buckets : (uint32_t)settings.buckets;
    s->periods = settings.periods ? (uint32_t)settings.periods : k->periods;
    s->intervals = (uint32_t)settings.intervals;
    s->period_ns = settings.period_ns ? settings.period_ns : (k->experiment == 5 ? 5 : 1) * QOS_NS_PER_S;
    s->open = k->experiment == 5 || (k->experiment == 0 && settings.load == 1);
    s->backend = settings.backend != BACKEND_AUTO ? (enum backend_kind)settings.backend
                 : k->experiment == 5             ? BACKEND_FILE
                                                  : BACKEND_MEMCACHED;
    s->capacity = capacity ? capacity : backend_of(s->backend)->capacity;
    s->seed = seed;
    s->reservation = tool_alloc(s->buckets * 8);
    s->limit = tool_alloc(s->buckets * 8);
    qos_rng_seed(&rng, seed);
    contracts(s, k, &rng);
    schedule(s, k->experiment ? k->changes : (uint32_t)settings.changes, &rng);
}

void scene_free(struct scene *s)
{
    uint32_t i;
    for (i = 0; i < s->phases; i++)
        free(s->phase[i].rate);
    free(s->phase);
    free(s->first);
    free(s->reservation);
    free(s->limit);
    memset(s, 0, sizeof *s);
}

/* ---- the certificate ------------------------------------------------------------------------------------------ */

/* One period as an allocation problem. Its servers are (node, interval) pairs. A node can serve a closed bucket from
 * an interval's start to the bucket's next change, if the bucket was there at the start: a controller knows no more
 * when it issues tokens. For an open bucket: all requests that arrive in the period. */
struct certificate {
    struct pshift_problem p;
    uint64_t *capacity, *demand;
    uint32_t *row, *server;
    struct pshift_solution s;
    struct pshift_solver ps;
    void *mem;
};

/* How many ns of [from, to) the phase of `bucket` at time `from` lasts; *rate: its rates. */
static uint64_t lasts(const struct scene *s, uint32_t bucket, uint64_t from, uint64_t to, const uint32_t **rate)
{
    uint32_t i = s->first[bucket];
    while (s->phase[i].next != NO_PHASE && s->phase[s->phase[i].next].at_ns <= from)
        i = s->phase[i].next;
    *rate = s->phase[i].rate;
    return (s->phase[i].next == NO_PHASE ? to : qos_min(to, s->phase[s->phase[i].next].at_ns)) - from;
}

static void certify_rows(const struct scene *s, uint32_t period, struct certificate *c)
{
    uint64_t interval = s->period_ns / s->intervals, at, begin = period * s->period_ns;
    const uint32_t *rate = NULL;
    uint32_t i, j, k, e = 0;
    for (i = 0; i < s->buckets; i++) {
        c->row[i] = e;
        for (k = 0; k < s->intervals; k++) {
            uint64_t from = begin + k * interval;
            uint64_t known = lasts(s, i, from, from + interval, &rate);
            for (j = 0; j < s->nodes; j++) {
                c->server[e + j] = j * s->intervals + k;
                c->demand[e + j] = s->open || !rate[j] ? 0 : qos_mul_div_floor(scene_capacity(s), known, s->period_ns);
            }
            for (at = from; s->open && at < from + interval;) {
                uint64_t span = lasts(s, i, at, from + interval, &rate);
                for (j = 0; j < s->nodes; j++) /* counted where it arrives; any slot of the period may serve it */
                    c->demand[e + j] += qos_mul_div_floor(rate[j], span, s->period_ns);
                at += span;
            }
            e += s->nodes;
        }
    }
    c->row[s->buckets] = e;
}

/* Returns the weak excess; *c is freed by certify_done. */
static uint64_t certify(const struct scene *s, uint32_t period, uint32_t down, struct certificate *c)
{
    uint32_t slots = s->nodes * s->intervals, i;
    size_t entries = (size_t)slots * s->buckets;
    struct pshift_solver_config config = {slots, s->buckets, (uint32_t)entries};
    memset(c, 0, sizeof *c);
    c->capacity = tool_alloc(slots * 8);
    c->demand = tool_alloc(entries * 8);
    c->row = tool_alloc((s->buckets + 1u) * 4);
    c->server = tool_alloc(entries * 4);
    c->s.alloc = tool_alloc(entries * 8);
    c->s.cut = tool_alloc(slots);
    c->mem = tool_alloc_aligned(pshift_solver_memsize(&config), 64);
    certify_rows(s, period, c);
    for (i = 0; i < slots; i++) {
        c->capacity[i] = i / s->intervals == down ? 0 : scene_capacity(s) / s->intervals;
        if (s->open && i % s->intervals)
            c->capacity[i] = 0;
        else if (s->open)
            c->capacity[i] *= s->intervals;
    }
    for (i = 0; s->open && i < entries; i++) /* a queue keeps early arrivals: one pool of slots for each node */
        c->server[i] -= c->server[i] % s->intervals;
    c->p.servers = slots;
    c->p.buckets = s->buckets;
    c->p.capacity = c->capacity;
    c->p.reservation = s->reservation;
    c->p.row = c->row;
    c->p.server = c->server;
    c->p.demand = c->demand;
    if (pshift_solver_init(&c->ps, c->mem, pshift_solver_memsize(&config), &config) != QOS_OK ||
        pshift_solver_solve(&c->ps, &c->p, NULL, &c->s) != QOS_OK ||
        pshift_solver_verify(&c->ps, &c->p, &c->s) != QOS_OK)
        tool_die(TOOL_FAILED, "the certificate of %s cannot be made", s->title);
    return c->s.excess.lo + c->s.unclaimed.lo;
}

static void certify_done(struct certificate *c)
{
    free(c->capacity);
    free(c->demand);
    free(c->row);
    free(c->server);
    free(c->s.alloc);
    free(c->s.cut);
    free(c->mem);
}

uint64_t scene_shortfall(const struct scene *s)
{
    struct certificate c;
    uint64_t sum = 0;
    uint32_t k;
    for (k = 0; k < s->periods; k++) {
        sum += certify(s, k, UINT32_MAX, &c);
        certify_done(&c);
    }
    return sum;
}

void scene_sure(const struct scene *s, uint32_t period, uint32_t down, bool *sure)
{
    struct certificate c;
    bool all = certify(s, period, down, &c) == 0;
    uint32_t i, e;
    for (i = 0; i < s->buckets; i++) {
        uint64_t demand = 0;
        for (e = c.row[i]; e < c.row[i + 1]; e++)
            demand += c.demand[e];
        sure[i] = all || (demand >= s->reservation[i] && !pshift_solution_binds(&c.s, i, &c.p));
    }
    certify_done(&c);
}

uint64_t scene_feasible_seed(uint32_t index, uint64_t seed, uint64_t capacity, uint32_t *skipped)
{
    for (*skipped = 0; *skipped < SEEDS_MAX; ++*skipped) {
        struct scene s;
        uint64_t missing;
        scene_make(&s, index, seed + *skipped, capacity);
        missing = scene_shortfall(&s);
        scene_free(&s);
        if (missing == 0)
            return seed + *skipped;
    }
    tool_die(TOOL_FAILED, "none of %d schedules can meet the reservations; reserve less", SEEDS_MAX);
}
