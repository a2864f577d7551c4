/* htb_late.h - promises in time: classes with latency_ns beside bulk, on a device of equal channels with one queue
 *
 * A token is a nanosecond of the root. Classes ask in open loops below their rates or in closed loops, for all of the
 * run or a part of it; in some worlds they are divided over two trees that have joined, of which one stops. `phases`: one
 * tree, and in each phase of seconds another speed, pauses, a class in trouble, or a demand that grows. `chooses`: a
 * device that takes any of what is there, and is faster the more there is, so that latency and speed exclude each other:
 * beside a class whose latency_ns can be kept, or can only at the cost of another one's rate. The account is of when
 * each request came, was due (S + latency_ns, as the contract says) and was complete; accounts are doubles. */
#ifndef QOS_TESTS_WORLD_HTB_LATE_H
#define QOS_TESTS_WORLD_HTB_LATE_H

#define LA_CLASSES 7u /* 0 is best effort, without demand */
#define LA_DEPTH 64u
#define LA_CHANNELS 16u
#define LA_TREES 2u
#define LA_TIMES 192u
#define LA_PHASES 8u
#define LA_CHOICES 100000u /* requests of `chooses` */
#define LA_IN_TIME 8000u   /* requests: each raises the bound */

struct la_request {
    struct htb_request htb;
    uint64_t came_ns, end_ns;
    double turn_ns;
};
struct la_class {
    struct htb_class terms;
    uint64_t n, from_ns, to_ns, next_ns; /* of each request; asks from..to; of an open loop */
    double interval_ns;                  /* between two of these; 0: a closed loop */
    uint32_t tree, depth;
    double turn_ns;                /* S of its next request is not before */
    uint64_t judged, late;         /* requests in the last quarter */
    uint64_t in_time;              /* the latest of them that were, on end */
    uint64_t asked_ns, since_done; /* it had a request last; requests of its tree that are complete since then */
    bool was_late, behind;         /* a request took longer than latency_ns; it was behind its rate */
    double behind_ns;              /* rate only: how far it is behind its rate, since it had no request */
    uint64_t times, longest_ns, time_ns[LA_TIMES]; /* what its requests took: the latest */
    struct la_request request[LA_DEPTH];
};

static struct {
    struct world *w;
    struct world_rng rng;
    struct htb_config config;
    struct htb_shared_config shared;
    struct la_class class_of[LA_CLASSES];
    uint32_t classes, trees, channels, waiting, spread;
    uint64_t now, end_ns, stops_ns, exchange_ns[LA_TREES]; /* stops_ns: tree 1 does nothing from then on */
    double capacity, burst_ns;                             /* tokens per ns; as given or by default */
    bool plain;                                            /* all requests cost the same, and all ask all the time */
    struct la_request *at[LA_CHANNELS], *queue[LA_CLASSES * LA_DEPTH];
    uint64_t done, flight[LA_TREES];
    double used; /* tokens complete in the last quarter; of phases, since judged_ns */
    bool phases, was_quiet, chooses, hurts, paused; /* hurts: another class has a rate */
    double gain, think_ns, each_ns;                 /* each_ns: a request costs so much beside its tokens */
    uint32_t phase, limit;                          /* limit: outstanding of the last class; if paused, then */
    uint64_t phase_ns, judged_ns, trouble_ns, grows_ns, grow_ns; /* the phase ends; one more is asked for; each */
    double speed, slower, ratios;
} la;
static struct htb la_tree[LA_TREES];
static unsigned char la_memory[LA_TREES][32768] __attribute__((aligned(64)));
static unsigned char la_shared[16384] __attribute__((aligned(64)));

#define LA_FAIL(oracle, ...) world_fail(la.w, oracle, la.now, __VA_ARGS__)

static bool la_stopped(uint32_t k)
{
    return k == 1 && la.now >= la.stops_ns;
}

static uint32_t la_outstanding(const struct la_class *c)
{
    uint32_t i, n = 0;
    for (i = 0; i < c->depth; i++)
        n += c->request[i].htb.state != HTB_IDLE;
    return n;
}

/* ---- the device ---- */

static void la_start(uint32_t channel)
{
    const uint32_t which = la.chooses ? (uint32_t)world_between(&la.rng, 0, la.waiting - 1) : 0;
    struct la_request *r = la.queue[which];
    double ns = (double)r->htb.tokens[0] * la.channels / la.capacity;
    if (la.spread)
        ns *= (double)world_between(&la.rng, 100 - la.spread, 100 + la.spread) / 100;
    if (la.chooses)
        ns = (ns + la.each_ns) * (1 - la.gain + la.gain / la.waiting);
    memmove(la.queue + which, la.queue + which + 1, (--la.waiting - which) * sizeof *la.queue);
    r->end_ns = la.now + (uint64_t)ns + 1;
    la.at[channel] = r;
}

static void la_to_device(struct la_request *r)
{
    uint32_t i;
    la.queue[la.waiting++] = r;
    for (i = 0; i < la.channels && la.waiting; i++)
        if (!la.at[i])
            la_start(i);
}

/* ---- the classes ---- */

/* Promise `late`: 99 of 100 requests complete by S + latency_ns. */
static void la_complete(uint32_t channel)
{
    struct la_request *r = la.at[channel];
    const uint32_t id = r->htb.class_id;
    struct la_class *c = &la.class_of[id];
    const double latency = (double)c->terms.latency_ns, rate = (double)c->terms.rate_per_s[0] / 1e9;
    uint32_t i;
    la.at[channel] = NULL;
    if (la.waiting)
        la_start(channel);
    world_trace(la.now, id, "took", la.now - r->came_ns);
    la.w->events++;
    la.done++;
    for (i = 1; i < la.classes; i++)
        la.class_of[i].since_done += la.class_of[i].tree == c->tree;
    la.flight[c->tree] -= r->htb.tokens[0];
    if (la.now > (la.phases ? la.judged_ns : la.end_ns / 4 * 3))
        la.used += (double)r->htb.tokens[0];
    if (la_stopped(c->tree)) { /* nobody tells it */
        memset(&r->htb, 0, sizeof r->htb);
        return;
    }
    if (htb_complete(&la_tree[c->tree], la.now, HTB_DONE, NULL, &r->htb) != QOS_OK)
        LA_FAIL("once", "a completion is refused");
    if (r->came_ns >= la.judged_ns)
        c->longest_ns = la.now - r->came_ns > c->longest_ns ? la.now - r->came_ns : c->longest_ns;
    c->time_ns[c->times++ % LA_TIMES] = la.now - r->came_ns;
    if (rate > 0)
        c->behind_ns = fmax(0, c->behind_ns - (double)c->n / rate);
    if (la.chooses && id == 1 && !la.paused)
        r->end_ns = la.now + (uint64_t)(la.think_ns * (double)world_between(&la.rng, 0, 1000) / 1000);
    if (latency <= 0)
        return;
    c->was_late = c->was_late || (double)(la.now - r->came_ns) > latency - 1000;
    c->in_time = (double)la.now > r->turn_ns + latency ? 0 : c->in_time + 1;
    if (la.now > (la.chooses ? la.end_ns / 4 : la.end_ns / 4 * 3)) {
        c->judged++;
        c->late += (double)la.now > r->turn_ns + latency + 1000;
    }
    if ((double)la.now < r->turn_ns) /* service above R counts for burst_ns at most */
        c->turn_ns = fmin(c->turn_ns, (double)la.now + la.burst_ns + la_outstanding(c) * (double)c->n / rate);
}

static void la_submit(uint32_t id, struct la_request *r)
{
    struct la_class *c = &la.class_of[id];
    const double rate = (double)c->terms.rate_per_s[0] / 1e9;
    memset(r, 0, sizeof *r);
    r->htb.class_id = id;
    r->htb.tokens[0] = c->n;
    r->came_ns = la.now;
    if (rate > 0) {
        r->turn_ns = fmax((double)la.now, c->turn_ns);
        c->turn_ns = r->turn_ns + (double)c->n / rate;
    }
    if (htb_submit(&la_tree[c->tree], la.now, &r->htb) != QOS_OK)
        LA_FAIL("submit", "a request is refused");
}

/* Class id asks for what it wants now. Returns when it asks next. */
static uint64_t la_ask(uint32_t id)
{
    struct la_class *c = &la.class_of[id];
    uint64_t next = UINT64_MAX;
    uint32_t i;
    if (la.now < c->from_ns)
        return c->from_ns;
    if (la.now >= c->to_ns || la_stopped(c->tree))
        return UINT64_MAX;
    for (i = 0; i < c->depth; i++) {
        if (la.phases && id + 1 == la.classes && i >= la.limit)
            break;
        if (c->request[i].htb.state != HTB_IDLE || (c->interval_ns > 0 && la.now < c->next_ns))
            continue;
        if (la.chooses && !la.paused && id == 1 && la.now < c->request[i].end_ns) { /* it thinks */
            next = c->request[i].end_ns < next ? c->request[i].end_ns : next;
            continue;
        }
        if (c->interval_ns > 0)
            c->next_ns = la.now + (uint64_t)(c->interval_ns * (double)world_between(&la.rng, 100, 120) / 100) + 1;
        la_submit(id, &c->request[i]);
    }
    if (la_outstanding(c)) {
        c->asked_ns = la.now;
        c->since_done = 0;
    }
    return c->interval_ns > 0 && la_outstanding(c) < c->depth ? c->next_ns : next;
}

static void la_go(void)
{
    struct htb_request *h;
    uint32_t k;
    for (k = 0; k < la.trees && !la.w->broken; k++) {
        if (la_stopped(k))
            continue;
        if (la.trees > 1 && la.now >= la.exchange_ns[k])
            la.exchange_ns[k] = htb_exchange(&la_tree[k], la.now);
        while ((h = htb_dispatch(&la_tree[k], la.now)) != NULL) {
            la.flight[k] += h->tokens[0];
            la_to_device((struct la_request *)(void *)h);
        }
    }
}

/* ---- oracles ---- */

/* `info`: the quantiles are of the latest requests: to a tenth and a fifth of what these took. */
static void la_judge_times(uint32_t id, const struct htb_class_state *s)
{
    const struct la_class *c = &la.class_of[id];
    uint64_t least = UINT64_MAX, most = 0;
    uint32_t i;
    for (i = 0; i < LA_TIMES; i++) {
        least = c->time_ns[i] < least ? c->time_ns[i] : least;
        most = c->time_ns[i] > most ? c->time_ns[i] : most;
    }
    if (c->times == 0 ? s->p50_ns || s->p99_ns : !s->p50_ns || !s->p99_ns)
        LA_FAIL("info", "class %" PRIu32 ": of %" PRIu64 " requests, half took %" PRIu64, id, c->times, s->p50_ns);
    if (c->times < 3 * LA_TIMES)
        return;
    if ((double)s->p50_ns < 0.85 * (double)least || (double)s->p50_ns > 1.15 * (double)most)
        LA_FAIL("info", "class %" PRIu32 ": half took %" PRIu64 "..%" PRIu64 " ns, told %" PRIu64, id, least, most,
                s->p50_ns);
    if ((double)s->p99_ns < 0.8 * (double)least || (double)s->p99_ns > 1.2 * (double)c->longest_ns)
        LA_FAIL("info", "class %" PRIu32 ": 99 of 100 took %" PRIu64 "..%" PRIu64 " ns, told %" PRIu64, id, least,
                c->longest_ns, s->p99_ns);
}

/* `late_why`: what is in flight is narrowed only for a class that was late, or behind its rate; not for one of which all
 * are in time for very long, as each of these raises the bound; not for one that has asked nothing for lag_ns, but for the
 * looks that it takes to see this (judged if it is the only one: moves for others
 * may begin each look anew); nor for one of a tree that is gone. */
static void la_judge(uint32_t k)
{
    struct htb_state s;
    uint32_t id, whys = 0;
    bool others = false;
    (void)htb_info(&la_tree[k], &s);
    for (id = 1; id < la.classes; id++)
        whys += la.class_of[id].was_late || la.class_of[id].behind;
    if (s.flight_ns + 1 < la.flight[k] || s.flight_ns > la.flight[k] + 1)
        LA_FAIL("info", "%" PRIu64 " ns are in flight, told %" PRIu64, la.flight[k], s.flight_ns);
    if (s.flight_by == QOS_NONE && s.flight_cost_permille != 0)
        LA_FAIL("info", "nothing is narrowed, and that costs %" PRIu64, s.flight_cost_permille);
    for (id = 1; id < la.classes; id++) {
        const struct la_class *c = &la.class_of[id];
        const bool why = c->was_late || c->behind;
        others = others || (c->tree != k && why && !(la_stopped(c->tree) && la.now > la.stops_ns + 200000000));
        if (c->tree != k || s.flight_by != id)
            continue;
        if (!why)
            LA_FAIL("late_why", "the bound is narrowed for class %" PRIu32 ", which was not late", id);
        if (c->in_time > LA_IN_TIME)
            LA_FAIL("late_why",
                    "the bound is narrowed for class %" PRIu32 ", of which the latest %" PRIu64 " were in time", id,
                    c->in_time);
        if (la.now > c->asked_ns + 2 * la.config.lag_ns && c->since_done > 4000 && la.trees == 1 && whys == 1)
            LA_FAIL("late_why", "the bound is narrowed for class %" PRIu32 ", which has asked nothing for %.1f ms", id,
                    (double)(la.now - c->asked_ns) / 1e6);
    }
    if (s.flight_by == la.config.classes && !others)
        LA_FAIL("late_why", "the bound is narrowed for classes of another tree, which were not late");
    if (s.flight_by != QOS_NONE && s.flight_by > la.config.classes)
        LA_FAIL("info", "the bound is narrowed for class %" PRIu32, s.flight_by);
}

/* Of the device's speed, what is used under a knee that trials move: of 1, 2, 4, 8, 16 channels. */
static double la_least(void)
{
    static const double least[] = {0.95, 0.45, 0.65, 0.65, 0.65};
    uint32_t channels = 0;
    while (1u << channels < la.channels)
        channels++;
    return least[channels];
}

static double la_service_ns(uint64_t n)
{
    return (double)n * la.channels / la.capacity * (100 + la.spread) / 100;
}

/* When all is done. `late`: of a class that is within its rate all of the time 99 of 100 are not, if narrowing helps:
 * latency_ns is several times what the largest request and two of its own take, and all others borrow, or have such a
 * promise. A tenth may be while the bound moves. `knee`: if all are alike and none was late, the device is in use, but
 * for trials: of two channels a long one uses the half. */
static void la_judge_all(void)
{
    double largest = 0;
    bool why = false, rates = false;
    uint32_t id;
    for (id = 1; id < la.classes; id++) {
        const struct la_class *c = &la.class_of[id];
        largest = fmax(largest, la_service_ns(c->n));
        why = why || c->was_late || c->behind;
        rates = rates || (c->terms.rate_per_s[0] && !c->terms.latency_ns);
    }
    for (id = 1; id < la.classes && !la.w->broken; id++) {
        struct la_class *c = &la.class_of[id];
        struct htb_class_state s;
        if (!la_stopped(c->tree) && htb_class_info(&la_tree[c->tree], id, &s) == QOS_OK)
            la_judge_times(id, &s);
        if (la.trees == 1 && !rates && c->from_ns == 0 && c->to_ns > la.end_ns && c->judged > 100 &&
            (double)c->terms.latency_ns > 4 * (largest + 2 * la_service_ns(c->n)) &&
            (double)c->late > 0.1 * (double)c->judged + 10)
            LA_FAIL("late", "class %" PRIu32 ": of %" PRIu64 " requests %" PRIu64 " were late", id, c->judged, c->late);
    }
    if (la.plain && la.trees == 1 && !why && la.used < la_least() * la.capacity * (double)la.end_ns / 4)
        LA_FAIL("knee", "of the device's %.2f tokens per ns %.2f are used", la.capacity,
                la.used / (double)la.end_ns * 4);
}

/* ---- phases ---- */

/* `knee`: of what is asked for and the device can do, in the last third of each phase, 0.6 is used in the mean of all
 * phases. */
static void la_phase_judge(void)
{
    const double asked = fmin(1, (double)la.limit / la.channels);
    la.ratios += fmin(1, la.used / ((double)(la.now - la.judged_ns) * la.capacity * asked));
    if (la.phase == LA_PHASES && la.ratios < 0.6 * la.phase)
        LA_FAIL("knee", "of what is asked for and the device can do, %.2f is used", la.ratios / la.phase);
}

/* Speed, demand and trouble of the next phase; after a quiet one there is demand. */
static void la_phase_begin(void)
{
    const double n = (double)la.class_of[1].n;
    const bool quiet = la.phase % 2 == 0 && world_chance(&la.rng, 400);
    double ns;
    la.phase++;
    la.used = 0;
    la.capacity = la.speed / (double)(1u << world_between(&la.rng, 0, 2));
    ns = (double)world_between(&la.rng, 6000, 12000) * n / la.capacity;
    la.limit = quiet ? 1 : 1u << world_between(&la.rng, la.phase % 2 ? 0 : 2, 6);
    la.grow_ns = 0;
    if (quiet) { /* for long */
        ns = fmax(ns, 4000 * n * la.channels / la.capacity);
    } else if (!la.was_quiet && world_chance(&la.rng, 200)) { /* more and more is asked for */
        la.limit = 1;
        la.grow_ns = (uint64_t)(ns / 2 / LA_DEPTH);
    }
    la.was_quiet = quiet;
    la.grows_ns = la.now + la.grow_ns;
    la.phase_ns = la.now + (uint64_t)ns;
    la.trouble_ns = !quiet && la.phase < 5 && world_chance(&la.rng, 700) ? la.now + (uint64_t)(ns / 3) : UINT64_MAX;
    la.judged_ns = la.now + (uint64_t)(ns / 3 * 2);
}

/* A pause of the device, or it is slow until each class with latency_ns was late some times. */
static void la_trouble(void)
{
    const double longest = (double)la.class_of[1].terms.latency_ns * 3, third = (double)(la.phase_ns - la.judged_ns);
    uint32_t i;
    if (la.slower > 1) {
        la.capacity *= la.slower;
        la.slower = 1;
        la.trouble_ns = UINT64_MAX;
    } else if (world_chance(&la.rng, 300)) {
        for (i = 0; i < la.channels; i++)
            if (la.at[i])
                la.at[i]->end_ns += (uint64_t)(third / (double)world_between(&la.rng, 2, 50));
        la.trouble_ns = UINT64_MAX;
    } else {
        la.slower = 60;
        la.capacity /= la.slower;
        la.trouble_ns = la.now + (uint64_t)fmin(third / 2, fmax(longest, 20 * la_service_ns(la.class_of[1].n)));
    }
}

/* Returns when it looks again. */
static uint64_t la_phase(void)
{
    if (la.now >= la.phase_ns) {
        if (la.phase)
            la_phase_judge();
        la_phase_begin();
    }
    if (la.now >= la.trouble_ns)
        la_trouble();
    if (la.grow_ns && la.now >= la.grows_ns && la.limit < LA_DEPTH / 2) {
        la.limit++;
        la.grows_ns += la.grow_ns;
    }
    return la.trouble_ns < la.phase_ns ? la.trouble_ns : la.phase_ns;
}

static void la_phases_draw(void)
{
    const uint64_t n = world_scale(&la.rng, 100000, 1000000);
    uint32_t id;
    la.speed = (double)world_between(&la.rng, 11, 20) / 10;
    la.slower = 1;
    la.channels = 1u << world_between(&la.rng, 0, 4);
    la.spread = world_chance(&la.rng, 500) ? 0 : 10;
    la.classes = (uint32_t)world_between(&la.rng, 3, 4);
    la.config.classes = LA_CLASSES;
    la.config.rate_per_s[0] = 1000000000;
    la.config.order = HTB_FIFO;
    la.config.dispatch_max = la.config.device_max = LA_CLASSES * LA_DEPTH;
    la.burst_ns = 1e7;
    la.trees = 1;
    la.end_ns = UINT64_MAX;
    for (id = 1; id < la.classes; id++) {
        struct la_class *c = &la.class_of[id];
        c->n = n;
        c->to_ns = UINT64_MAX;
        c->depth = LA_DEPTH;
        if (id + 1 == la.classes)
            break;
        c->interval_ns = (double)n / 0.12;
        if (world_chance(&la.rng, 700)) { /* more than it needs, at a quarter of the speed */
            c->terms.rate_per_s[0] = 200000000;
            c->terms.latency_ns = (uint64_t)((double)n * (4.0 * la.channels + 16) / la.speed * 4 *
                                             (double)world_between(&la.rng, 10, 20) / 10) /
                                      1000 * 1000 +
                                  1000;
        }
    }
}

/* ---- chooses ---- */

static void la_chooses_draw(void)
{
    struct la_class *c = &la.class_of[1], *flood = &la.class_of[2];
    const uint64_t n = world_scale(&la.rng, 100000, 2000000);
    la.paused = world_chance(&la.rng, 300);
    la.hurts = !la.paused && world_chance(&la.rng, 500);
    la.gain = la.hurts ? 0.8 : 0.5;
    la.spread = 50;
    la.channels = la.trees = 1;
    la.classes = 3;
    la.config.classes = LA_CLASSES;
    la.config.rate_per_s[0] = 1000000000;
    la.config.order = HTB_FIFO;
    la.config.dispatch_max = la.config.device_max = LA_CLASSES * LA_DEPTH;
    la.burst_ns = 1e7;
    la.capacity = la.hurts ? 0.25 : 1; /* of one alone at the device */
    la.end_ns = (uint64_t)(LA_CHOICES * (double)n / la.capacity * (1 - la.gain));
    c->n = flood->n = n;
    c->to_ns = flood->to_ns = UINT64_MAX;
    c->depth = la.hurts || la.paused ? 2 : 4;
    flood->depth = 48;
    c->terms.latency_ns =
        (uint64_t)((double)n / la.capacity *
                   (double)(la.hurts ? world_between(&la.rng, 8, 14) : world_between(&la.rng, 12, 30)));
    c->terms.rate_per_s[0] = la.hurts ? 125000000 : 800000000;
    flood->terms.rate_per_s[0] = la.hurts ? 750000000 : 0;
    la.think_ns = (double)n / la.capacity * (la.hurts ? 10 : 20);
    if (!la.paused)
        return;
    la.gain = la.think_ns = 0;
    la.capacity = (double)world_between(&la.rng, 18, 24) / 10;
    la.each_ns = 0.3 * (double)n;
    la.spread = 0;
    la.config.lag_ns = 1000 * n;
    la.end_ns = 40 * la.config.lag_ns;
    c->n = n / world_between(&la.rng, 8, 20); /* its two at a time are less than its rate */
    c->terms.latency_ns = 0;
    c->terms.rate_per_s[0] = 500000000;
    flood->terms.rate_per_s[0] = 400000000; /* it asks for that, in an open loop */
    flood->interval_ns = (double)n / 0.4;
    flood->depth = LA_DEPTH;
    la.trouble_ns = 4 * la.config.lag_ns;
    la.grows_ns = 20 * la.config.lag_ns;
}

/* One pause; long after that class 1 asks for all that it can. Returns when it looks again. */
static uint64_t la_pause(void)
{
    if (la.now >= la.trouble_ns) {
        la.trouble_ns = UINT64_MAX;
        if (la.at[0])
            la.at[0]->end_ns += la.config.lag_ns * world_between(&la.rng, 3, 12) / 10;
    }
    if (la.now >= la.grows_ns) {
        la.grows_ns = UINT64_MAX;
        la.class_of[1].depth = LA_DEPTH;
        la.class_of[1].n = la.class_of[2].n;
        la.class_of[2].longest_ns = 0;
        la.judged_ns = la.now;
        la.limit = la_outstanding(&la.class_of[2]);
    }
    return la.trouble_ns < la.grows_ns ? la.trouble_ns : la.grows_ns < la.end_ns ? la.grows_ns : la.end_ns;
}

/* `late`: 99 of 100 are in time, where the promise can be kept: of 100 k requests so many are late by chance. `own`: and
 * where it cannot, or only for the rate of another class, that one has its rate. `wait`: long after a pause a request of
 * a class within its rate waits for what is at the device, and n / R; and for those of its own before it, from when the
 * other class had small requests: these cost far more than their tokens, so the reservations did not fit the device. */
static void la_judge_chosen(void)
{
    const struct la_class *c = &la.class_of[1], *other = &la.class_of[2];
    const double judged = (double)c->judged, rate = (double)other->terms.rate_per_s[0] / 1e9;
    struct qos_stats s;
    (void)htb_stats(&la_tree[0], 2, &s);
    if (la.paused) {
        if ((double)other->longest_ns > (16 + la.limit) * (double)other->n / rate)
            LA_FAIL("wait", "long after a pause a request within its rate waits %.1f n / R behind %" PRIu32,
                    (double)other->longest_ns * rate / (double)other->n, la.limit);
    } else if (la.hurts) {
        if ((double)s.granted < 0.97 * rate * (double)la.end_ns)
            LA_FAIL("own", "beside a class with latency_ns another has %.3f of its rate",
                    (double)s.granted / rate / (double)la.end_ns);
    } else if ((double)c->late > 0.01 * judged + 3.5 * sqrt(0.01 * judged)) {
        LA_FAIL("late", "of %.0f requests %" PRIu64 " were late", judged, c->late);
    }
}

/* ---- the world ---- */

static void la_draw(void)
{
    const uint64_t bulk = world_scale(&la.rng, 20000, 2000000);
    double largest = (double)bulk, rate;
    uint32_t id;
    la.plain = world_chance(&la.rng, 400);
    la.channels = 1u << world_between(&la.rng, 0, 4);
    la.spread = world_chance(&la.rng, 500) ? 0 : 10;
    la.capacity = (double)world_between(&la.rng, 11, 20) / 10;
    la.trees = world_chance(&la.rng, 250) ? 2 : 1;
    la.classes = (uint32_t)world_between(&la.rng, 3, LA_CLASSES);
    la.end_ns = (uint64_t)((double)bulk * (double)world_between(&la.rng, 3000, 12000) / la.capacity);
    la.stops_ns = la.trees > 1 && world_chance(&la.rng, 500) ? la.end_ns / 2 : UINT64_MAX;
    la.config.classes = LA_CLASSES;
    la.config.rate_per_s[0] = 1000000000;
    la.config.burst_ns = world_chance(&la.rng, 300) ? 0 : 20 * bulk / 1000 * 1000;
    la.burst_ns = la.config.burst_ns ? (double)la.config.burst_ns : 1e7;
    la.config.lag_ns = la.end_ns / world_between(&la.rng, 10, 40);
    la.config.order = world_chance(&la.rng, 500) ? HTB_FIFO : HTB_ELEVATOR;
    la.config.dispatch_max = la.config.device_max = LA_CLASSES * LA_DEPTH;
    la.shared.trees = LA_TREES;
    la.shared.classes = LA_CLASSES;
    for (id = 1; id < la.classes; id++) {
        struct la_class *c = &la.class_of[id];
        const bool open = id == 1 || world_chance(&la.rng, 400), last = id + 1 == la.classes;
        c->tree = la.trees > 1 ? (uint32_t)world_between(&la.rng, 0, 1) : 0;
        c->n = last || la.plain ? bulk : bulk / world_between(&la.rng, 1, 16) + 1;
        c->to_ns = UINT64_MAX;
        c->depth = last ? LA_DEPTH : open ? LA_DEPTH / 2 : (uint32_t)world_between(&la.rng, 1, 8);
        if (last || world_chance(&la.rng, 100))
            continue;
        rate = (double)world_between(&la.rng, 20, 900 / la.classes) / 1000;
        c->terms.rate_per_s[0] = (uint64_t)(rate * 1e9);
        c->interval_ns = open ? (double)c->n / rate * 100 / (double)world_between(&la.rng, 20, 98) : 0;
        if (id == 1 || world_chance(&la.rng, 600))
            c->terms.latency_ns = 1; /* below, when all sizes are known */
        if (!la.plain && world_chance(&la.rng, 400))
            c->to_ns = la.end_ns / 2;
        else if (!la.plain && world_chance(&la.rng, 200))
            c->from_ns = la.end_ns / 3;
    }
    for (id = 1; id < la.classes; id++)
        largest = fmax(largest, (double)la.class_of[id].n);
    for (id = 1; id < la.classes; id++) {
        struct la_class *c = &la.class_of[id];
        if (c->terms.latency_ns == 0)
            continue;
        c->terms.latency_ns = (uint64_t)((la_service_ns((uint64_t)largest) + 2 * la_service_ns(c->n)) *
                                         (double)world_scale(&la.rng, 10, 1000) / 10) /
                                  1000 * 1000 +
                              1000;
    }
}

static bool la_begin(void)
{
    uint32_t k, id;
    if (la.trees > 1 && (htb_shared_memsize(&la.shared) > sizeof la_shared ||
                         htb_shared_init((struct htb_shared *)(void *)la_shared, sizeof la_shared, &la.shared)))
        LA_FAIL("init", "shared memory within the ranges is refused");
    for (k = 0; k < la.trees; k++) {
        if (htb_init(&la_tree[k], la_memory[k], sizeof la_memory[k], &la.config) != QOS_OK) {
            LA_FAIL("init", "%s", htb_config_error(&la.config));
            return false;
        }
        if (la.trees > 1 && htb_join(&la_tree[k], la.now, (struct htb_shared *)(void *)la_shared, k) != QOS_OK)
            LA_FAIL("init", "a tree cannot join");
        for (id = 1; id < la.classes; id++)
            if (htb_reserve(&la_tree[k], la.now, id, &la.class_of[id].terms, NULL) != QOS_OK)
                LA_FAIL("admission", "what fits is refused");
    }
    return true;
}

/* The account of those with a rate only goes on. */
static void la_behind(uint64_t ns)
{
    uint32_t id;
    for (id = 1; id < la.classes; id++) {
        struct la_class *c = &la.class_of[id];
        if (c->terms.rate_per_s[0] == 0 || c->terms.latency_ns)
            continue;
        c->behind_ns = la_outstanding(c) ? c->behind_ns + (double)ns : 0;
        c->behind = c->behind || c->behind_ns > 0.4 * la.burst_ns;
    }
}

static void late_run(struct world *w)
{
    uint32_t id, k, i;
    memset(&la, 0, sizeof la);
    la.w = w;
    world_rng_init(&la.rng, w->seed, 109);
    la.phases = world_choice(w, F_PROGRAM) == 7;
    la.chooses = world_choice(w, F_PROGRAM) == 12;
    if (la.chooses)
        la_chooses_draw();
    else if (la.phases)
        la_phases_draw();
    else
        la_draw();
    la.now = 1;
    if (!la_begin())
        return;
    while (la.now < la.end_ns && la.phase <= LA_PHASES && !w->broken) {
        uint64_t next = la.phases ? la_phase() : la.paused ? la_pause() : la.end_ns;
        for (i = 0; i < la.channels; i++)
            if (la.at[i] && la.at[i]->end_ns <= la.now)
                la_complete(i);
        for (id = 1; id < la.classes; id++) {
            const uint64_t at = la_ask(id);
            next = at < next ? at : next;
        }
        la_go();
        if (w->events % 16 == 0)
            for (k = 0; k < la.trees; k++)
                if (!la_stopped(k))
                    la_judge(k);
        for (i = 0; i < la.channels; i++)
            if (la.at[i] && la.at[i]->end_ns < next)
                next = la.at[i]->end_ns;
        for (k = 0; k < la.trees; k++)
            if (!la_stopped(k) && la.trees > 1 && la.exchange_ns[k] < next)
                next = la.exchange_ns[k];
        next = next > la.now ? next : la.now + 1;
        la_behind(next - la.now);
        la.now = next;
    }
    if (!w->broken && la.chooses)
        la_judge_chosen();
    else if (!w->broken && !la.phases)
        la_judge_all();
}

#endif
