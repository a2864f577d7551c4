/* reward.h - the server of the reward paper's Sections II to VI in simulated time, for `simulate tags` and the paper
 * tests.
 *
 * Clients keep the server backlogged. A request goes to the SSD with the probability of its client's hit ratio at that
 * time, otherwise to the disk. Service times are uniform in [0, 2 * mean]. Up to `depth` requests are at the device,
 * which serves them in order, one at a time. tags.h decides who is next, or the paper's algorithms to the letter.
 */
#ifndef EXAMPLES_REWARD_H
#define EXAMPLES_REWARD_H

#include "tags.h"
#include "../common/draw.h"
#include "literal.h"

#define REWARD_CLIENTS 8
#define REWARD_PHASES 4
#define REWARD_BINS 6000 /* of 0.1 s */
#define REWARD_DEPTH 128
#define REWARD_BIN_NS UINT64_C(100000000)

struct reward_client {
    uint64_t weight, reservation_per_s, limit_per_s;
    double from_s[REWARD_PHASES], hit_ratio[REWARD_PHASES]; /* from_s increases; later phases begin after 0 */
};

struct reward {
    enum tags_mode mode;
    bool literal;           /* by literal.h instead of tags.h */
    uint32_t window;        /* 0: the default of tags.h */
    double disk_ns, ssd_ns; /* mean service times */
    uint32_t clients, depth, seconds;
    uint64_t seed;
    struct reward_client client[REWARD_CLIENTS];
    /* results */
    uint32_t done[REWARD_CLIENTS][REWARD_BINS]; /* completions in each 0.1 s */
    double service_ns[REWARD_CLIENTS];          /* mean of this run */
};

/* The evaluation's devices: 5 ms and 0.1 ms. */
static inline void reward_paper(struct reward *s, uint32_t clients, uint32_t seconds)
{
    static const struct reward zero;
    uint32_t i;
    *s = zero;
    s->disk_ns = 5e6;
    s->ssd_ns = 1e5;
    s->clients = clients;
    s->seconds = seconds;
    s->depth = 1;
    s->seed = 1;
    for (i = 0; i < clients; i++)
        s->client[i].weight = 1;
}

static inline double reward_hit_ratio(const struct reward_client *c, double at_s)
{
    uint32_t i, now = 0;
    for (i = 1; i < REWARD_PHASES; i++)
        if (c->from_s[i] > 0 && c->from_s[i] <= at_s)
            now = i;
    return c->hit_ratio[now];
}

static inline uint64_t reward_service(const struct reward *s, uint32_t client, uint64_t now_ns, struct qos_rng *rng)
{
    bool hit = draw_unit(qos_rng_u64(rng)) < reward_hit_ratio(&s->client[client], (double)now_ns / 1e9);
    return (uint64_t)(2 * draw_unit(qos_rng_u64(rng)) * (hit ? s->ssd_ns : s->disk_ns)) + 1;
}

static inline void reward_config(const struct reward *s, struct tags_config *c)
{
    static const struct tags_config zero;
    *c = zero;
    c->clients = s->clients;
    c->mode = s->mode;
    c->window = s->window;
    c->at_device_max = REWARD_DEPTH;
}

/* The scheduler of a run: tags.h or literal.h. */
struct reward_scheduler {
    struct tags tags;
    struct literal literal;
    bool by_paper;
};

static inline bool reward_open(const struct reward *s, struct reward_scheduler *r, void *mem, size_t size)
{
    static const struct literal none;
    struct tags_config config;
    uint32_t i;
    reward_config(s, &config);
    r->by_paper = s->literal;
    r->literal = none;
    r->literal.clients = s->clients;
    r->literal.reward = s->mode == TAGS_REWARD;
    for (i = 0; i < s->clients; i++) {
        r->literal.client[i].weight = (double)s->client[i].weight;
        r->literal.client[i].reservation = (double)s->client[i].reservation_per_s;
        r->literal.client[i].limit = (double)s->client[i].limit_per_s;
    }
    return tags_init(&r->tags, mem, size, &config) == QOS_OK;
}

static inline bool reward_arrive(struct reward_scheduler *r, uint64_t now, uint32_t id, uint32_t count)
{
    if (!r->by_paper)
        return tags_arrive(&r->tags, now, id, count, 1) == QOS_OK;
    literal_arrive(&r->literal, (double)now / 1e9, id, count);
    return true;
}

static inline bool reward_pull(struct reward_scheduler *r, uint64_t now, struct tags_grant *g)
{
    return r->by_paper ? literal_pull(&r->literal, (double)now / 1e9, &g->client)
                       : tags_pull(&r->tags, now, 1, g) == QOS_OK;
}

static inline bool reward_complete(struct reward_scheduler *r, uint64_t now, const struct tags_grant *g,
                                   uint64_t service)
{
    if (!r->by_paper)
        return tags_complete(&r->tags, now, g, service) == QOS_OK;
    literal_complete(&r->literal, (double)now / 1e9, g->client, (double)service / 1e9);
    return true;
}

/* mem: tags_memsize bytes for reward_config's configuration. false: tags.h refused it. */
static inline bool reward_run(struct reward *s, void *mem, size_t size)
{
    struct tags_grant at_device[REWARD_DEPTH];
    struct reward_scheduler t;
    struct qos_rng rng;
    uint64_t now = 0, end = s->seconds * UINT64_C(1000000000), count[REWARD_CLIENTS] = {0};
    double sum[REWARD_CLIENTS] = {0};
    uint32_t i, head = 0, waiting = 0;
    if (s->seconds * 10 > REWARD_BINS || s->depth > REWARD_DEPTH || !reward_open(s, &t, mem, size))
        return false;
    qos_rng_seed(&rng, s->seed);
    for (i = 0; i < s->clients; i++) {
        struct tags_client terms;
        terms.weight = s->client[i].weight;
        terms.reservation_per_s = s->client[i].reservation_per_s;
        terms.limit_per_s = s->client[i].limit_per_s;
        if (tags_add(&t.tags, 0, i, &terms) != QOS_OK || !reward_arrive(&t, 0, i, 2 * s->depth))
            return false;
    }
    while (now < end) {
        struct tags_grant *g;
        uint64_t service;
        while (waiting < s->depth && reward_pull(&t, now, &at_device[(head + waiting) % REWARD_DEPTH])) {
            g = &at_device[(head + waiting++) % REWARD_DEPTH];
            if (!reward_arrive(&t, now, g->client, 1))
                return false;
        }
        if (waiting == 0) { /* all at their limits */
            now = s->literal ? now + 1000 : tags_next_ns(&t.tags, now);
            continue;
        }
        g = &at_device[head];
        service = reward_service(s, g->client, now, &rng);
        now += service;
        if (now < end)
            s->done[g->client][now / REWARD_BIN_NS]++;
        sum[g->client] += (double)service;
        count[g->client]++;
        if (!reward_complete(&t, now, g, service))
            return false;
        head = (head + 1) % REWARD_DEPTH;
        waiting--;
    }
    for (i = 0; i < s->clients; i++)
        s->service_ns[i] = count[i] ? sum[i] / (double)count[i] : 0;
    return true;
}

/* Requests per second of a client in [from, to). */
static inline double reward_rate(const struct reward *s, uint32_t client, double from_s, double to_s)
{
    uint32_t b, first = (uint32_t)(from_s * 10 + 0.5), last = (uint32_t)(to_s * 10 + 0.5);
    double n = 0;
    for (b = first; b < last; b++)
        n += s->done[client][b];
    return n / ((double)(last - first) / 10);
}

/* First time from `from` on at which the next second's rate reaches `rate`; the end of the run if never. */
static inline double reward_reaches(const struct reward *s, uint32_t client, double from_s, double rate)
{
    uint32_t b;
    for (b = (uint32_t)(from_s * 10 + 0.5); b + 10 <= s->seconds * 10; b++)
        if (reward_rate(s, client, b / 10.0, b / 10.0 + 1) >= rate)
            return b / 10.0;
    return s->seconds;
}

/* ---- the paper's experiments */

/* Section II: weights 1, 2, 2; a disk of 10 ms. If A is efficient half of its requests take 50 us, so its mean is 5
 * ms. */
static inline void reward_section2(struct reward *s, bool efficient)
{
    reward_paper(s, 3, 400);
    s->disk_ns = 1e7;
    s->ssd_ns = 5e4;
    s->client[1].weight = s->client[2].weight = 2;
    s->client[0].hit_ratio[0] = efficient ? 5.0 / 9.95 : 0;
}

/* Section IV-A: two clients of equal weight, 5 and 20 ms. */
static inline void reward_section4(struct reward *s)
{
    reward_paper(s, 2, 400);
    s->disk_ns = 2e7;
    s->ssd_ns = 5e6;
    s->client[0].hit_ratio[0] = 1;
}

/* Figures 2 and 3: four regions of 50 s. */
static inline void reward_figure3(struct reward *s)
{
    static const double a[REWARD_PHASES] = {0, 0.2, 0.4, 0.6}, b[REWARD_PHASES] = {2.0 / 3, 0.5, 1.0 / 3, 0};
    uint32_t i;
    reward_paper(s, 2, 200);
    for (i = 0; i < REWARD_PHASES; i++) {
        s->client[0].from_s[i] = s->client[1].from_s[i] = i * 50.0;
        s->client[0].hit_ratio[i] = a[i];
        s->client[1].hit_ratio[i] = b[i];
    }
}

/* Figures 4 to 6: weights 1, 2, 5; from Figure 5 on B's hit ratio is 0.4 in [25, 75] s. */
static inline void reward_figure5(struct reward *s, double hit_ratio, uint64_t reservation_per_s)
{
    reward_paper(s, 3, 100);
    s->client[1].weight = 2;
    s->client[2].weight = 5;
    s->client[1].from_s[1] = 25;
    s->client[1].hit_ratio[1] = hit_ratio;
    s->client[1].from_s[2] = 75;
    s->client[1].reservation_per_s = reservation_per_s;
    s->window = 50;
}

#endif
