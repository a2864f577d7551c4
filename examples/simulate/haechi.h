/* haechi.h - the Haechi paper's data node in simulated time, for `simulate tokenpool` and the paper tests.
 *
 * The server completes C_G I/Os a second. Clients with I/Os outstanding share them equally; none gets more than C_L. A
 * client keeps up to 64 outstanding, each with a token (without tokens in the bare system). Its demand of a period
 * comes all at once (burst) or at equal intervals (constant rate); the remainder at the end is dropped. Steps of 0.1
 * ms. The engines and the monitor are those of tokenpool.h with its defaults, or, for comparison, those of the paper
 * (haechi_paper.h); checks and reports come every 1 ms.
 */
#ifndef EXAMPLES_HAECHI_H
#define EXAMPLES_HAECHI_H

#include "tokenpool.h"
#include "haechi_paper.h"
#include <math.h>
#include <string.h>

#define HAECHI_CLIENTS 10
#define HAECHI_PERIODS 64
#define HAECHI_STEPS 10000 /* of a period */
#define HAECHI_STEP_NS UINT64_C(100000)
#define HAECHI_C_L 400000.0
#define HAECHI_C_G 1570000.0
#define HAECHI_BINS 1001 /* latency, 1 ms each */

struct haechi {
    uint32_t clients, periods, flags, active; /* flags of tokenpool.h; active: clients with demand */
    bool bare, constant_rate;
    bool silent;  /* engines are not told what waits */
    bool literal; /* the paper's rules to the letter, by haechi_paper.h */
    bool basic;   /* of them: unused reservations are not converted; the estimate stays */
    uint64_t limit[HAECHI_CLIENTS];
    uint64_t reservation[HAECHI_CLIENTS], demand[HAECHI_CLIENTS];
    uint32_t change_at;              /* period from which the server's rate is `changed` */
    double rate, changed;            /* I/Os per second */
    uint32_t late_period, late_step; /* client 0 has no demand before this step */
    uint64_t capacity;               /* the profile; 0: C_G */
    uint64_t batch;                  /* 0: the default of tokenpool.h */
    /* results */
    uint64_t done[HAECHI_PERIODS][HAECHI_CLIENTS];
    uint64_t capacity_of[HAECHI_PERIODS];
    uint64_t latency[HAECHI_BINS], latencies;
    double latency_sum_ms;
};

static inline void haechi_base(struct haechi *h, uint32_t periods)
{
    memset(h, 0, sizeof *h);
    h->clients = h->active = HAECHI_CLIENTS;
    h->periods = periods;
    h->rate = h->changed = HAECHI_C_G;
    h->change_at = UINT32_MAX;
}

/* Reservations of `percent` of C_G: equal, or Zipf 0.6 over five groups of two; demand R + the initial pool (2A). */
static inline void haechi_reserve(struct haechi *h, unsigned percent, bool zipf)
{
    double weight[HAECHI_CLIENTS], sum = 0;
    uint32_t i;
    uint64_t pool = (uint64_t)(HAECHI_C_G * (100 - percent) / 100);
    for (i = 0; i < h->clients; i++)
        sum += weight[i] = zipf ? pow(i / 2 + 1, -0.6) : 1;
    for (i = 0; i < h->clients; i++) {
        h->reservation[i] = (uint64_t)(HAECHI_C_G * percent / 100 * weight[i] / sum);
        h->demand[i] = h->reservation[i] + pool;
    }
}

static inline void haechi_spike(struct haechi *h, uint64_t large, uint64_t small)
{
    uint32_t i;
    for (i = 0; i < h->clients; i++)
        h->demand[i] = i < 3 ? large : small;
}

struct haechi_client {
    struct tokenpool_client engine;
    struct haechi_paper_client paper;
    uint64_t queued, outstanding, arrived, finished, carried;
    double credit;
};

/* fmin and fmax without a call: a run takes the smaller of two numbers some 100 million times. */
static inline double haechi_min(double a, double b)
{
    return a < b ? a : b;
}

static inline double haechi_max(double a, double b)
{
    return a > b ? a : b;
}

/* Equal shares of `rate` for one step, at most C_L and its outstanding I/Os for each client. */
static inline void haechi_serve(struct haechi_client *c, uint32_t n, double rate, double *share)
{
    double left = rate * 1e-9 * (double)HAECHI_STEP_NS, most = HAECHI_C_L * 1e-9 * (double)HAECHI_STEP_NS;
    double want[HAECHI_CLIENTS];
    uint32_t i, open = 0;
    for (i = 0; i < n; i++) {
        want[i] = haechi_min(most, haechi_max(0, (double)c[i].outstanding - c[i].credit));
        share[i] = 0;
        open += want[i] > 0;
    }
    while (open > 0 && left > 1e-9) {
        double each = left / open;
        uint32_t closed = 0;
        for (i = 0; i < n; i++) {
            double give = haechi_min(each, want[i] - share[i]);
            if (give <= 0)
                continue;
            share[i] += give;
            left -= give;
            closed += want[i] - share[i] <= 1e-9;
        }
        if (!closed)
            break;
        open -= closed;
    }
}

/* Tokens for up to n I/Os. */
static inline uint64_t haechi_take(const struct haechi *h, struct haechi_paper *paper, struct haechi_client *c,
                                   uint64_t now_ns, uint64_t n)
{
    uint64_t held;
    if (h->bare)
        return n;
    if (h->literal)
        return haechi_paper_take(paper, &c->paper, n);
    held = qos_max(qos_min(n, tokenpool_client_held(&c->engine)), 1);
    return tokenpool_client_take(&c->engine, now_ns, held) == QOS_OK ? held : 0;
}

static inline void haechi_issue(const struct haechi *h, struct haechi_paper *paper, struct haechi_client *c,
                                uint64_t now_ns)
{
    uint64_t want = qos_min(c->queued, 64 - qos_min(64, c->outstanding)), got;
    while (want > 0 && (got = haechi_take(h, paper, c, now_ns, want)) > 0) {
        c->queued -= got;
        c->outstanding += got;
        want -= got;
    }
}

static inline void haechi_finish(struct haechi *h, struct haechi_client *c, uint32_t i, uint32_t period, double at_ms)
{
    uint64_t done = (uint64_t)c->credit, k;
    c->credit -= (double)done;
    c->outstanding -= done;
    if (c->outstanding == 0)
        c->credit = 0;
    h->done[period][i] += done;
    if (!h->bare && !h->literal)
        tokenpool_client_complete(&c->engine, done);
    k = qos_min(done, c->carried); /* these began in the last period: their latency is not counted */
    c->carried -= k;
    done -= k;
    h->latencies += done;
    if (!h->constant_rate) { /* all arrived when the period began */
        h->latency[(size_t)haechi_min(at_ms, HAECHI_BINS - 1)] += done;
        h->latency_sum_ms += at_ms * (double)done;
        c->finished += done;
        return;
    }
    for (k = 0; k < done; k++, c->finished++) {
        double ms = haechi_max(0, at_ms - 1000.0 * (double)c->finished / (double)h->demand[i]);
        h->latency[(size_t)haechi_min(ms, HAECHI_BINS - 1)]++;
        h->latency_sum_ms += ms;
    }
}

static inline uint64_t haechi_total(const struct haechi *h, uint32_t period)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < h->clients; i++)
        sum += h->done[period][i];
    return sum;
}

/* Engines and monitor of tokenpool.h for the data node, in mem. false: it refused the configuration. */
static inline bool haechi_setup(const struct haechi *h, struct tokenpool_monitor *monitor, struct haechi_client *client,
                                void *mem)
{
    struct tokenpool_config config;
    void *storage = (char *)mem + 4096;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.clients = h->clients;
    config.batch = (uint32_t)h->batch;
    config.flags = h->flags;
    config.capacity = h->capacity ? h->capacity : (uint64_t)HAECHI_C_G;
    config.client_capacity = (uint64_t)HAECHI_C_L;
    if (tokenpool_monitor_init(monitor, mem, 4096, storage, 4096, &config) != QOS_OK)
        return false;
    for (i = 0; i < h->clients; i++)
        if (tokenpool_monitor_join(monitor, i, h->reservation[i], h->limit[i], NULL) != QOS_OK ||
            tokenpool_client_attach(&client[i].engine, i, 0, storage, 4096) != QOS_OK)
            return false;
    for (i = 0; i < h->clients; i++)
        tokenpool_client_run(&client[i].engine, 0, 0);
    return true;
}

/* What the paper's engines and monitor do in a step. */
static inline void haechi_paper_step(struct haechi *h, struct haechi_paper *paper, struct haechi_client *client,
                                     uint32_t period, uint64_t step)
{
    struct haechi_paper_client *engines[HAECHI_CLIENTS];
    double part = (double)step / HAECHI_STEPS;
    uint32_t i;
    for (i = 0; i < h->clients; i++)
        engines[i] = &client[i].paper;
    if (step == 0)
        haechi_paper_begin(paper, engines, h->clients);
    if (step % 10)
        return;
    for (i = 0; i < h->clients; i++)
        haechi_paper_decay(engines[i], part, client[i].queued);
    haechi_paper_check(paper, engines, h->clients, h->done[period], part);
}

/* What the engines and the monitor of tokenpool.h do in a step, besides takes. */
static inline void haechi_step(const struct haechi *h, struct tokenpool_monitor *monitor, struct haechi_client *client,
                               uint64_t now_ns, uint64_t step)
{
    uint32_t i;
    while (tokenpool_monitor_next_ns(monitor, now_ns) <= now_ns)
        tokenpool_monitor_run(monitor, now_ns);
    for (i = 0; i < h->clients; i++) {
        if (!h->silent)
            tokenpool_client_set_queued(&client[i].engine, client[i].queued);
        if (step == 0) /* the message that starts a period */
            tokenpool_client_hint(&client[i].engine);
        if (step % 10 == 0)
            tokenpool_client_run(&client[i].engine, now_ns, 0);
    }
}

/* Requests that arrived. */
static inline void haechi_arrive(const struct haechi *h, struct haechi_client *c, uint32_t i, uint64_t period,
                                 uint64_t step)
{
    uint64_t due = h->constant_rate ? h->demand[i] * (step + 1) / HAECHI_STEPS : h->demand[i];
    if (i >= h->active ||
        (i == 0 && period * HAECHI_STEPS + step < h->late_period * (uint64_t)HAECHI_STEPS + h->late_step))
        due = 0;
    if (step == 0) {
        c->carried = c->outstanding;
        c->queued = c->arrived = c->finished = 0;
    }
    c->queued += due - c->arrived;
    c->arrived = due;
}

/* mem: 4 KiB for the monitor and 4 KiB for the storage, aligned to 64. false: tokenpool.h refused the configuration. */
static inline bool haechi_run(struct haechi *h, void *mem)
{
    static struct haechi_client client[HAECHI_CLIENTS];
    static struct tokenpool_monitor monitor;
    struct haechi_paper paper;
    struct tokenpool_monitor_state state;
    uint32_t i, period;
    uint64_t step;
    memset(client, 0, sizeof client);
    memset(&paper, 0, sizeof paper);
    paper.omega = h->capacity ? (double)h->capacity : HAECHI_C_G;
    paper.least = 0.95 * paper.omega; /* Omega_prof - 3 sigma; a profile varies by a percent or two */
    paper.step = 0.02 * paper.omega;
    paper.batch = 1000;
    paper.basic = h->basic;
    for (i = 0; i < h->clients; i++)
        client[i].paper.reserved = (double)h->reservation[i];
    if (!haechi_setup(h, &monitor, client, mem))
        return false;
    for (period = 0; period < h->periods; period++) {
        double rate = period >= h->change_at ? h->changed : h->rate, share[HAECHI_CLIENTS] = {0};
        h->capacity_of[period] = (uint64_t)paper.omega;
        for (step = 0; step < HAECHI_STEPS; step++) {
            uint64_t now_ns = (period * (uint64_t)HAECHI_STEPS + step) * HAECHI_STEP_NS;
            for (i = 0; i < h->clients; i++)
                haechi_arrive(h, &client[i], i, period, step);
            if (h->literal)
                haechi_paper_step(h, &paper, client, period, step);
            else if (!h->bare)
                haechi_step(h, &monitor, client, now_ns, step);
            for (i = 0; i < h->clients; i++)
                haechi_issue(h, &paper, &client[i], now_ns);
            haechi_serve(client, h->clients, rate, share);
            for (i = 0; i < h->clients; i++) {
                client[i].credit += share[i];
                haechi_finish(h, &client[i], i, period, (double)(step + 1) * 0.1);
            }
        }
        if (h->literal && !h->basic)
            haechi_paper_estimate(&paper, (double)haechi_total(h, period));
        if (!h->literal)
            h->capacity_of[period] = tokenpool_monitor_info(&monitor, &state) == QOS_OK ? state.capacity : 0;
    }
    return true;
}

/* ---- reading the results */

/* Mean total over the periods from..end. */
static inline double haechi_mean(const struct haechi *h, uint32_t from)
{
    double sum = 0;
    uint32_t p;
    for (p = from; p < h->periods; p++)
        sum += (double)haechi_total(h, p);
    return sum / (h->periods - from);
}

static inline double haechi_mean_of(const struct haechi *h, uint32_t client, uint32_t from)
{
    double sum = 0;
    uint32_t p;
    for (p = from; p < h->periods; p++)
        sum += (double)h->done[p][client];
    return sum / (h->periods - from);
}

/* Periods from..end in which a client that had the demand did not get its reservation. */
static inline uint32_t haechi_missed(const struct haechi *h, uint32_t from)
{
    uint32_t p, i, missed = 0;
    for (p = from; p < h->periods; p++) {
        bool short_of = false;
        for (i = 0; i < h->clients; i++)
            short_of = short_of || (h->demand[i] >= h->reservation[i] && h->done[p][i] < h->reservation[i]);
        missed += short_of;
    }
    return missed;
}

static inline double haechi_latency_ms(const struct haechi *h, double quantile)
{
    uint64_t sum = 0, bin;
    for (bin = 0; bin < HAECHI_BINS; bin++) {
        sum += h->latency[bin];
        if ((double)sum >= quantile * (double)h->latencies)
            return (double)bin + 1;
    }
    return HAECHI_BINS;
}

#endif
