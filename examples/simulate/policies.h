/* policies.h - who may serve what: five ways to share reservations and limits over servers, in simulated time.
 *
 * A server has a device of ../world that does a request in a millisecond, one after the other. A bucket has a client at each server
 * where it has demand (Poisson), which gives requests up: no more wait than arrive in a second. A policy chooses each millisecond
 * whose request an idle server serves next. Messages arrive at once.
 *
 *     by demand    each server has a fixed part of a contract, by the bucket's mean demand there (which somebody had to know)
 *     equal parts  each server has the same part, as where a limit is divided by the number of servers
 *     leases       one token bucket for each bucket, from which servers take tokens for the next 10 s, as CockroachDB's RFC of
 *                  2021 on "cost control" describes it: at once while there are some, else as a trickle by their part of the
 *                  load. It has limits only
 *     dmClock      clients tell a server how many of their requests others have served meanwhile (delta), and how many by
 *                  reservation (rho). Here each bucket has one client, which knows all that and does not lie
 *     pShift       pshift.h: scheduler, agents, controller
 */
#ifndef SIMULATE_POLICIES_H
#define SIMULATE_POLICIES_H

#include "../world/clients.h"
#include "../world/devices.h"
#include "common.h"
#include "pshift.h"

#define POL_SERVERS 8u
#define POL_BUCKETS 16u
#define POL_PERIOD 1000u /* ticks of a millisecond */
#define POL_INTERVAL 200u
#define POL_SECONDS 30u
#define POL_LEASE 10000u
#define POL_R 300u /* of each bucket, requests per second */
#define POL_L 600u
#define POL_NONE UINT32_MAX

enum policy { POL_BY_DEMAND, POL_EQUAL, POL_LEASES, POL_DMCLOCK, POL_PSHIFT, POLICIES };
static const char *const pol_name[POLICIES] = {"by demand", "equal parts", "leases", "dmClock", "pShift"};

struct pol_case {
    const char *name;
    uint32_t on, moves; /* servers where a bucket has demand; ticks after which it has it elsewhere, 0: never */
    double demand, skew;
};
static const struct pol_case pol_cases[] = {{"even", 8, 0, 450, 0},
                                            {"skewed", 8, 0, 450, 1.2},
                                            {"moves", 3, 1000, 450, 0},
                                            {"moves within a period", 3, 300, 450, 0},
                                            {"servers saturate", 3, 4000, 900, 0}};
#define POL_CASES (sizeof pol_cases / sizeof *pol_cases)

struct pol_result {
    double unmet, possible;   /* parts of what was reserved and asked for: not served; cannot be served by anybody */
    double over, over_window; /* the most above a limit in a period, and above two in a window: parts of the limit */
    double unused;   /* part of the capacity that was idle beside a request that could be served within its limit */
    double messages; /* a second */
};

struct pol_tags { /* of the head of a queue, dmClock */
    double r, l, p;
    uint64_t done, by_r; /* of the bucket, everywhere, when they were made */
    bool made;
};
struct pol_lease {
    double tokens, trickle, load; /* load: tokens a tick, a mean over some seconds */
    uint32_t until, used;         /* until: the end of the trickle */
    bool asked;
};

static struct pol_world {
    const struct pol_case *c;
    enum policy policy;
    uint64_t seed;
    struct world_rng rng;
    struct world_device device[POL_SERVERS];
    struct world_client client[POL_SERVERS][POL_BUCKETS];
    uint32_t now, moved;
    double rate[POL_SERVERS][POL_BUCKETS], mean[POL_SERVERS][POL_BUCKETS];
    uint32_t queue[POL_SERVERS][POL_BUCKETS];
    uint32_t move_at[POL_BUCKETS];
    uint64_t messages, idle;
    /* of this period */
    uint32_t arrived[POL_SERVERS][POL_BUCKETS], served[POL_SERVERS][POL_BUCKETS], all[POL_BUCKETS];
    uint8_t history[POL_PERIOD][POL_BUCKETS]; /* served in the last ticks */
    uint32_t window[POL_BUCKETS];
    uint32_t turn[POL_SERVERS];
    struct pol_tags tags[POL_SERVERS][POL_BUCKETS];
    uint64_t done[POL_BUCKETS], by_r[POL_BUCKETS];
    struct pol_lease lease[POL_SERVERS][POL_BUCKETS];
    double pool[POL_BUCKETS];
    struct pshift_scheduler scheduler[POL_SERVERS];
    struct pshift_agent agent[POL_SERVERS];
    struct pshift_controller controller;
    void *memory[2 * POL_SERVERS + 1];
} pw;

static void pol_must(enum qos_status st)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "pshift.h: %s", qos_strerror(st));
}

/* ---- demand ------------------------------------------------------------------------------------------------------ */

/* Of those who wait some give up. */
static void pol_give_up(uint32_t s, uint32_t b, uint32_t most)
{
    const uint32_t before = pw.queue[s][b];
    if (before <= most)
        return;
    pw.queue[s][b] = most;
    if (pw.policy == POL_PSHIFT)
        pol_must(pshift_scheduler_cancel(&pw.scheduler[s], b, before - most));
}

/* Gives a bucket its servers; the k-th has a part of its demand by Zipf's law. */
static void pol_place(uint32_t b)
{
    uint32_t order[POL_SERVERS], s, k;
    double sum = 0;
    pw.moved++;
    for (s = 0; s < POL_SERVERS; s++)
        order[s] = s;
    for (s = POL_SERVERS - 1; s > 0; s--) {
        const uint32_t other = (uint32_t)(world_unit(&pw.rng) * (s + 1)), was = order[s];
        order[s] = order[other];
        order[other] = was;
    }
    for (k = 0; k < pw.c->on; k++)
        sum += pow(k + 1.0, -pw.c->skew);
    for (k = 0; k < POL_SERVERS; k++) {
        const double per_s = k < pw.c->on ? pw.c->demand * pow(k + 1.0, -pw.c->skew) / sum : 0;
        const struct world_client_config asks = {.arrivals = WORLD_POISSON,
                                                 .interval_ns = per_s > 0 ? (uint64_t)(1e9 / per_s) : 0,
                                                 .start_ns = pw.now * UINT64_C(1000000),
                                                 .backlog_max = (uint64_t)ceil(per_s)};
        struct world_client *c = &pw.client[order[k]][b];
        pw.rate[order[k]][b] = per_s / 1000;
        pol_give_up(order[k], b, (uint32_t)asks.backlog_max);
        world_client_init(c, &asks, pw.seed, (pw.moved * POL_SERVERS + order[k]) * POL_BUCKETS + b);
        c->out = pw.queue[order[k]][b];
    }
}

static void pol_arrive(void)
{
    struct world_request asked;
    uint32_t s, b;
    for (b = 0; b < POL_BUCKETS; b++)
        if (pw.now == pw.move_at[b]) {
            pol_place(b);
            pw.move_at[b] += pw.c->moves ? pw.c->moves : UINT32_MAX / 2;
        }
    for (s = 0; s < POL_SERVERS; s++)
        for (b = 0; b < POL_BUCKETS; b++) {
            struct world_client *c = &pw.client[s][b];
            const uint64_t before = c->made + c->dropped;
            while (pw.rate[s][b] > 0 && world_client_next(c, pw.now * UINT64_C(1000000), &asked)) {
                pw.queue[s][b]++;
                if (pw.policy == POL_PSHIFT)
                    pol_must(pshift_scheduler_arrive(&pw.scheduler[s], b, 1));
            }
            pw.arrived[s][b] += (uint32_t)(c->made + c->dropped - before);
        }
}

/* ---- fixed parts ------------------------------------------------------------------------------------------------- */

/* Of tokens a period, the part of this server. */
static double pol_part(uint32_t s, uint32_t b)
{
    double sum = 0;
    uint32_t k;
    if (pw.policy == POL_EQUAL)
        return 1.0 / POL_SERVERS;
    for (k = 0; k < POL_SERVERS; k++)
        sum += pw.mean[k][b];
    return sum > 0 ? pw.mean[s][b] / sum : 1.0 / POL_SERVERS;
}

/* Round robin: first those with a reservation left here, then those with a limit left here. */
static uint32_t pol_pick_parts(uint32_t s)
{
    uint32_t k, b, step;
    for (step = 0; step < 2; step++)
        for (k = 0; k < POL_BUCKETS; k++) {
            b = (pw.turn[s] + k) % POL_BUCKETS;
            if (pw.queue[s][b] && pw.served[s][b] + 1 <= (step ? POL_L : POL_R) * pol_part(s, b)) {
                pw.turn[s] = b + 1;
                return b;
            }
        }
    return POL_NONE;
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

static void pol_ask_for_lease(uint32_t s, uint32_t b)
{
    struct pol_lease *l = &pw.lease[s][b];
    /* what it used, and a fifth more; at first an equal part */
    const double refill = POL_L / 1000.0,
                 want = POL_LEASE * fmax(1.2 * l->load, l->asked ? 0 : refill / POL_SERVERS) + 1;
    double sum = 0;
    uint32_t k;
    pw.messages += 2;
    l->asked = true;
    if (pw.pool[b] >= want) {
        pw.pool[b] -= want;
        l->tokens += want;
        return;
    }
    for (k = 0; k < POL_SERVERS; k++)
        sum += pw.lease[k][b].load;
    /* what is there, and its part of what comes */
    l->tokens += pw.pool[b] > 0 ? pw.pool[b] : 0;
    pw.pool[b] = pw.pool[b] > 0 ? 0 : pw.pool[b];
    l->trickle = sum > 0 ? refill * l->load / sum : refill / POL_SERVERS;
    l->trickle = l->trickle * POL_LEASE < want ? l->trickle : want / POL_LEASE;
    l->until = pw.now + POL_LEASE;
    pw.pool[b] -= l->trickle * POL_LEASE;
}

static void pol_leases(void)
{
    uint32_t s, b;
    for (b = 0; b < POL_BUCKETS; b++) {
        pw.pool[b] = fmin(pw.pool[b] + POL_L / 1000.0, POL_L); /* it saves up a second */
        for (s = 0; s < POL_SERVERS; s++) {
            struct pol_lease *l = &pw.lease[s][b];
            if (pw.now < l->until)
                l->tokens += l->trickle;
            if (pw.now % POL_PERIOD == 0) {
                l->load = 0.5 * l->load + 0.5 * (double)qos_max(l->used, pw.queue[s][b]) / POL_PERIOD;
                l->used = 0;
            }
            if (pw.queue[s][b] && l->tokens < 1 && pw.now >= l->until)
                pol_ask_for_lease(s, b);
        }
    }
}

static uint32_t pol_pick_lease(uint32_t s)
{
    uint32_t k, b;
    for (k = 0; k < POL_BUCKETS; k++) {
        b = (pw.turn[s] + k) % POL_BUCKETS;
        if (pw.queue[s][b] && pw.lease[s][b].tokens >= 1) {
            pw.lease[s][b].tokens--;
            pw.lease[s][b].used++;
            pw.turn[s] = b + 1;
            return b;
        }
    }
    return POL_NONE;
}

/* ---- dmClock ----------------------------------------------------------------------------------------------------- */

static uint32_t pol_pick_dmclock(uint32_t s)
{
    uint32_t b, by_r = POL_NONE, by_p = POL_NONE, found;
    for (b = 0; b < POL_BUCKETS; b++) {
        struct pol_tags *t = &pw.tags[s][b];
        if (!pw.queue[s][b])
            continue;
        if (!t->made) { /* the head carries delta and rho */
            const double delta = (double)qos_max(pw.done[b] - t->done, 1),
                         rho = (double)qos_max(pw.by_r[b] - t->by_r, 1);
            t->r = fmax(t->r + rho * 1000 / POL_R, pw.now);
            t->l = fmax(t->l + delta * 1000 / POL_L, pw.now);
            t->p = fmax(t->p + delta, pw.now);
            t->done = pw.done[b];
            t->by_r = pw.by_r[b];
            t->made = true;
        }
        if (t->r <= pw.now && (by_r == POL_NONE || t->r < pw.tags[s][by_r].r))
            by_r = b;
        if (t->l <= pw.now && (by_p == POL_NONE || t->p < pw.tags[s][by_p].p))
            by_p = b;
    }
    found = by_r != POL_NONE ? by_r : by_p;
    if (found == POL_NONE)
        return POL_NONE;
    pw.tags[s][found].made = false;
    pw.done[found]++;
    if (by_r != POL_NONE)
        pw.by_r[found]++;
    else
        pw.tags[s][found].r -= 1000.0 / POL_R;
    return found;
}

/* ---- pShift ------------------------------------------------------------------------------------------------------ */

static void pol_open_pshift(void)
{
    const struct pshift_scheduler_config queues = {.queues = POL_BUCKETS};
    const struct pshift_controller_config cc = {.servers = POL_SERVERS,
                                                .buckets = POL_BUCKETS,
                                                .records = POL_SERVERS * POL_BUCKETS,
                                                .nonce = {0, 1},
                                                .period_ns = QOS_NS_PER_S};
    uint32_t s, b, q;
    void **mem = pw.memory;
    for (s = 0; s < POL_SERVERS; s++) {
        struct pshift_agent_config ac = {
            .scheduler = &pw.scheduler[s], .server = s, .boot = {0, s + 1}, .period_ns = QOS_NS_PER_S};
        *mem = tool_alloc_aligned(pshift_scheduler_memsize(&queues), 64);
        pol_must(pshift_scheduler_init(&pw.scheduler[s], *mem++, pshift_scheduler_memsize(&queues), &queues));
        *mem = tool_alloc_aligned(pshift_agent_memsize(&ac), 64);
        pol_must(pshift_agent_init(&pw.agent[s], *mem++, pshift_agent_memsize(&ac), &ac));
        for (b = 0; b < POL_BUCKETS; b++)
            pol_must(pshift_agent_open(&pw.agent[s], b, &q)); /* bucket b has queue b */
    }
    *mem = tool_alloc_aligned(pshift_controller_memsize(&cc), 64);
    pol_must(pshift_controller_init(&pw.controller, *mem, pshift_controller_memsize(&cc), &cc));
    for (b = 0; b < POL_BUCKETS; b++)
        pol_must(pshift_controller_change(&pw.controller, b, POL_R, POL_L));
}

static void pol_report(uint32_t s)
{
    struct pshift_report_entry entry[POL_BUCKETS];
    struct pshift_message m;
    while (pshift_agent_report(&pw.agent[s], &m, entry, POL_BUCKETS) == QOS_OK) {
        m.capacity = POL_PERIOD - pw.now % POL_PERIOD;
        pw.messages++;
        /* The first one only makes the server known. */
        (void)!pshift_controller_report(&pw.controller, pw.now * UINT64_C(1000000), &m, entry);
    }
}

/* An interval: reports, and rounds until nothing is withheld, as a controller does. */
static void pol_pshift(void)
{
    const uint64_t now_ns = pw.now * UINT64_C(1000000);
    struct pshift_grant_entry entry[POL_BUCKETS];
    struct pshift_controller_state info;
    struct pshift_message m;
    uint32_t s, round;
    if (pw.now % POL_PERIOD == 0)
        pol_must(pshift_controller_begin(&pw.controller, now_ns, pw.now / POL_PERIOD + 1));
    for (s = 0; s < POL_SERVERS; s++) {
        pshift_agent_measure(&pw.agent[s], now_ns);
        pol_report(s);
    }
    for (round = 0; round < 3; round++) {
        pol_must(pshift_controller_plan(&pw.controller, NULL));
        for (s = 0; s < POL_SERVERS; s++)
            while (pshift_controller_grant(&pw.controller, now_ns, s, &m, entry, POL_BUCKETS) == QOS_OK) {
                pw.messages++;
                if (pshift_agent_install(&pw.agent[s], now_ns, &m, entry) == QOS_OK)
                    pol_report(s);
            }
        (void)pshift_controller_info(&pw.controller, &info);
        if (info.withheld == 0 && pw.now % POL_PERIOD != 0)
            break;
    }
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static uint32_t pol_pick(uint32_t s)
{
    struct pshift_pick pick;
    switch (pw.policy) {
    case POL_LEASES: return pol_pick_lease(s);
    case POL_DMCLOCK: return pol_pick_dmclock(s);
    case POL_PSHIFT:
        return pshift_scheduler_pick(&pw.scheduler[s], pw.now * UINT64_C(1000000), &pick) == QOS_OK ? pick.queue
                                                                                                    : POL_NONE;
    default: return pol_pick_parts(s);
    }
}

static void pol_serve(void)
{
    const struct world_io work = {.cost_ns = 999999}; /* it rounds up */
    const uint64_t now_ns = pw.now * UINT64_C(1000000);
    uint8_t *tick = pw.history[pw.now % POL_PERIOD];
    struct world_io ended;
    uint32_t s, b, found;
    for (b = 0; b < POL_BUCKETS; b++) {
        pw.window[b] -= tick[b];
        tick[b] = 0;
    }
    for (s = 0; s < POL_SERVERS; s++) {
        while (world_device_take(&pw.device[s], now_ns, &ended))
            ;
        if (pw.device[s].working)
            continue;
        found = pol_pick(s);
        if (found != POL_NONE) {
            world_device_submit(&pw.device[s], now_ns, &work);
            world_client_done(&pw.client[s][found], now_ns);
            pw.queue[s][found]--;
            pw.served[s][found]++;
            pw.all[found]++;
            tick[found]++;
            pw.window[found]++;
            continue;
        }
        for (b = 0; b < POL_BUCKETS && !(pw.queue[s][b] && pw.all[b] < POL_L); b++)
            ;
        pw.idle += b < POL_BUCKETS;
    }
}

/* Of what is reserved and arrived: what nobody could serve, who knew all of the period before, by the solver. */
static uint64_t pol_impossible(void)
{
    const struct pshift_solver_config sizes = {POL_SERVERS, POL_BUCKETS, POL_SERVERS * POL_BUCKETS};
    uint64_t capacity[POL_SERVERS], reservation[POL_BUCKETS], demand[POL_SERVERS * POL_BUCKETS],
        alloc[POL_SERVERS * POL_BUCKETS];
    uint32_t row[POL_BUCKETS + 1], server[POL_SERVERS * POL_BUCKETS], s, b;
    uint8_t cut[POL_SERVERS];
    const struct pshift_problem p = {POL_SERVERS, POL_BUCKETS, capacity, reservation, row, server, demand};
    struct pshift_solution out = {.alloc = alloc, .cut = cut};
    struct pshift_solver solver;
    void *mem = tool_alloc_aligned(pshift_solver_memsize(&sizes), 64);
    pol_must(pshift_solver_init(&solver, mem, pshift_solver_memsize(&sizes), &sizes));
    for (b = 0, row[0] = 0; b < POL_BUCKETS; b++) {
        reservation[b] = POL_R;
        row[b + 1] = row[b] + POL_SERVERS;
        for (s = 0; s < POL_SERVERS; s++) {
            server[row[b] + s] = s;
            demand[row[b] + s] = pw.arrived[s][b];
            capacity[s] = POL_PERIOD;
        }
    }
    pol_must(pshift_solver_solve(&solver, &p, NULL, &out));
    free(mem);
    return out.excess.lo;
}

/* The sums of a period, and the next one begins. */
static void pol_judge(struct pol_result *r, double *asked)
{
    uint32_t s, b;
    for (b = 0; b < POL_BUCKETS; b++) {
        uint32_t arrived = 0;
        for (s = 0; s < POL_SERVERS; s++)
            arrived += pw.arrived[s][b];
        arrived = arrived < POL_R ? arrived : POL_R;
        *asked += arrived;
        r->unmet += arrived > pw.all[b] ? arrived - pw.all[b] : 0;
        r->over = fmax(r->over, pw.all[b] / (double)POL_L - 1);
    }
    r->possible += (double)pol_impossible();
}

static void pol_begin_period(void)
{
    memset(pw.arrived, 0, sizeof pw.arrived);
    memset(pw.served, 0, sizeof pw.served);
    memset(pw.all, 0, sizeof pw.all);
}

/* The first five seconds are not judged. Two passes: the first one measures the mean demand, for "by demand". */
static void pol_pass(enum policy policy, uint64_t seed, bool measures, struct pol_result *r)
{
    const struct world_device_config device = {0};
    double asked = 0;
    uint32_t s, b;
    pw.policy = policy;
    pw.now = 0;
    pw.seed = seed;
    world_rng_init(&pw.rng, seed, 0);
    for (s = 0; s < POL_SERVERS; s++)
        world_device_init(&pw.device[s], &device, seed);
    for (b = 0; b < POL_BUCKETS; b++) {
        pol_place(b);
        pw.move_at[b] = pw.c->moves ? (uint32_t)(world_unit(&pw.rng) * pw.c->moves) : UINT32_MAX;
        pw.pool[b] = 0;
    }
    if (policy == POL_PSHIFT)
        pol_open_pshift();
    for (; pw.now < POL_SECONDS * 1000; pw.now++) {
        if (pw.now % POL_PERIOD == 0) {
            if (pw.now > 5 * POL_PERIOD)
                pol_judge(r, &asked);
            pol_begin_period();
        }
        if (pw.now == 5 * POL_PERIOD)
            pw.messages = pw.idle = 0;
        pol_arrive();
        for (s = 0; measures && s < POL_SERVERS; s++)
            for (b = 0; b < POL_BUCKETS; b++)
                pw.mean[s][b] += pw.rate[s][b];
        if (policy == POL_LEASES)
            pol_leases();
        if (policy == POL_PSHIFT && pw.now % POL_INTERVAL == 0)
            pol_pshift();
        pol_serve();
        for (b = 0; b < POL_BUCKETS && pw.now > 5 * POL_PERIOD; b++)
            r->over_window = fmax(r->over_window, pw.window[b] / (2.0 * POL_L) - 1);
    }
    r->unmet /= asked;
    r->possible /= asked;
    r->unused = (double)pw.idle / ((POL_SECONDS - 5) * 1000.0 * POL_SERVERS);
    r->messages = (double)pw.messages / (POL_SECONDS - 5);
    for (s = 0; s < POL_SERVERS; s++)
        world_device_free(&pw.device[s]);
    for (s = 0; s < 2 * POL_SERVERS + 1; s++)
        free(pw.memory[s]);
}

static struct pol_result pol_run(const struct pol_case *c, enum policy policy, uint64_t seed)
{
    struct pol_result r = {0, 0, -1, -1, 0, 0}, none = r;
    double mean[POL_SERVERS][POL_BUCKETS];
    memset(&pw, 0, sizeof pw);
    pw.c = c;
    pol_pass(POL_EQUAL, seed, true, &none);
    memcpy(mean, pw.mean, sizeof mean);
    memset(&pw, 0, sizeof pw);
    memcpy(pw.mean, mean, sizeof mean);
    pw.c = c;
    pol_pass(policy, seed, false, &r);
    return r;
}

#endif
