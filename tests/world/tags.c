// proves: tags.h keeps its promises in worlds that nobody drew for it: any devices, clients, clocks, terms, by seed; the
// proves: oracles are written from the first page, and a plain reference scheduler passes them (--reference)
// scale: 2
#define WORLD_HEADER "tags"
#define WORLD_REFERENCE
#define WORLD_AGAIN "no shifted permuted scale_free"
#define WORLD_DRAW_MORE(w, r) draw_kind(w, r)
#if defined(WORLD_TAGS_V02) && WORLD_TAGS_V02
#define WORLD_TOGETHER "each together late" /* late: they are not cancelled, but end as late */
#else
#define WORLD_TOGETHER "each together"
#endif
#define WORLD_FIELDS(X)                                                                                                \
    X(KIND, "world", "device calls")                                                                                   \
    X(STEPS, "steps", "200 20 50 1000")                                                                                \
    X(INTRUSIVE, "intrusive", "no yes")                                                                                \
    X(LENGTH, "length_ms", "1000 200 5000 20000")                                                                      \
    X(SERVICE, "service_us", "1000 100 10 10000")                                                                      \
    X(DEPTH, "at_device", "1 2 8 64")                                                                                  \
    X(CHANNELS, "channels", "1 2 8 32")                                                                                \
    X(HASHED, "hashed", "no yes")                                                                                      \
    X(CHOICE, "device_order", "in_order elevator shortest any nearest")                                                \
    X(SPREAD, "spread", "fixed 10 30 exponential lognormal two_sizes read_write")                                      \
    X(OFFSETS, "offsets", "any own")                                                                                   \
    X(PAUSE, "pause_ms", "0 20 200 500 2000")                                                                          \
    X(PAUSE_EVERY, "pause_every_ms", "10000 1000 600")                                                                 \
    X(MODE, "mode", "ps reward")                                                                                       \
    X(AT_LIMIT, "at_limit", "wait allow reject")                                                                       \
    X(COUNT_COST, "count_cost", "no yes")                                                                              \
    X(TOLD, "told_channels", "no yes")                                                                                 \
    X(LIMIT_BURST, "limit_burst_ms", "100 0 10 1000")                                                                  \
    X(LAG, "reserve_lag_ms", "1000 100")                                                                               \
    X(LEAD, "lead_requests", "16 1 100")                                                                               \
    X(CLOCK, "clock", "true cached back jump stall leaps")                                                             \
    X(DRIFT, "drift_ppm", "0 200 -200")                                                                                \
    X(BASE, "start_ns", "1 1000000000 4000000000000000000")                                                            \
    X(POLL, "poll", "no yes")                                                                                          \
    X(GROUPED, "grouped", "no cohorts mixed one")                                                                      \
    X(WRONG, "wrong_calls", "no yes")                                                                                  \
    X(BY_WEIGHT, "weight_share", "0 100 300")                                                                          \
    X(MOVES, "moves_max", "512 1 8")                                                                                   \
    X(DEBT, "force_debt", "64 1 0")                                                                                    \
    X(AGAIN, "again", WORLD_AGAIN)                                                                                     \
    WORLD_DEVICE_FIELDS(X)                                                                                             \
    X(HANG_ENDS, "hang_ends", "done cancelled")
#define WORLD_LATER F_SEEK
#define WORLD_LATER_COHORT F_ON
/* Programs of calls have no device. */
#define WORLD_APART(field, value, other) ((field) == F_KIND && (value) > 0 && world_is_later(other))
#define WORLD_COHORT(X)                                                                                                \
    X(NUMBER, "clients", "1 0 2 3 10 30 100 1000")                                                                     \
    X(ARRIVALS, "arrivals", "closed constant poisson on_off bursts")                                                   \
    X(OUT, "outstanding", "2 1 4 32 200")                                                                              \
    X(DEMAND, "demand", "500 900 100 1500 5000")                                                                       \
    X(THINK, "think_us", "0 1000 10000 100000")                                                                        \
    X(SIZE, "size", "1 10 1000")                                                                                       \
    X(SIZES, "sizes", "one two any")                                                                                   \
    X(SPEED, "service_of", "1000 500 3000")                                                                            \
    X(RESERVATION, "reservation", "0 50 200 310 600 900")                                                              \
    X(LIMIT, "limit", "0 1000 1100 500 2000 30")                                                                       \
    X(WEIGHT, "weight", "1 2 10 1000 1000000")                                                                         \
    X(CANCEL, "cancel", "0 20 300")                                                                                    \
    X(CANCEL_AFTER, "cancel_after_ms", "0 1 100 2000")                                                                 \
    X(TOGETHER, "cancelled", WORLD_TOGETHER)                                                                           \
    X(FORCE, "forced", "0 20 300")                                                                                     \
    X(START, "start_ms", "0 100 500 900")                                                                              \
    X(CHURN, "churn", "none change leave away unlimited rejoin regroup")                                               \
    X(CLAIM, "claims", "1000 30 30000")                                                                                \
    X(GROUP_WEIGHT, "group_weight", "1 2 10 1000")                                                                     \
    X(GROUP_MORE, "group_reserves_more", "0 100")                                                                      \
    X(GROUP_LIMIT, "group_limit", "0 1000 500 2000")                                                                   \
    WORLD_CLIENT_FIELDS(X)
struct world;
struct world_rng;
static void draw_kind(struct world *w, struct world_rng *r);
#include "device_fields.h"
#include "tags.h"
#include "examples/world/clocks.h"
#include "tags_reference.h"

/* Judge reservations, waits and accounts by the first page of 0.2, for tests/world/v02. */
#ifndef WORLD_TAGS_V02
#define WORLD_TAGS_V02 0
#endif

#if WORLD_TAGS_V02
#define PHASE_GROUP UINT8_MAX
#else
#define PHASE_GROUP TAGS_PHASE_GROUP
#endif

#define MS UINT64_C(1000000)
#define CLIENTS 3003u
#define REQUESTS 65536u

struct waiting {
    uint64_t cost, claim, service_ns, offset; /* claim: the cost that is said at dispatch */
    bool write, cancel;
    uint32_t next;
};

struct tenant {
    struct world_client client;
    uint32_t cohort, first, last, queued, at_device;
    struct tags_client terms;
    double reservation, limit, longest_ns, largest; /* requests per ns; of a request */
    double stalled_ns;                              /* its longest request, with what the device paused */
    uint64_t wakes_ns;
    bool changes, lifted;          /* it or its terms change; its limit ends */
    bool unlimited;                /* it never waits for a limit */
    bool other_terms, lies;        /* its weight and its reservation change; what it says that it costs is wrong */
    double given, used_ns, all_ns; /* used_ns: until the end; all_ns: also after it */
    uint32_t id, group;            /* id: the header's */
};

/* Grouped: each cohort is a group, or each has some clients of every cohort, or one has all. Its ids begin at a multiple of 8. */
struct group {
    struct tags_client terms;
    double reservation, limit, largest, longest_ns; /* requests per ns; of its clients */
    uint32_t first, places, members, spare;         /* spare: ids that nobody has */
    uint32_t at_device;
    bool changes, limits; /* the terms of one of its clients change; one has a limit */
    bool again;           /* it is to be removed, and made of the same ids again */
    uint32_t made_again;  /* so often: its ids owe nothing inside then, not the request that a tag is ahead by */
    bool lies;            /* one of them says another cost */
};

/* What happened, to be judged when it is known what was cancelled. */
enum kind { GIVEN = 0, WAITS, IDLE, TERMS };
struct event {
    uint64_t at_ns, shown_ns;
    uint32_t client;
    uint8_t kind, phase;
    bool cancelled;
    double cost, time_ns, long_ns; /* GIVEN: its cost, the device time that it took, and with what the device paused */
};

static struct tenant tenant[CLIENTS];
static uint32_t tenants, tenant_of[2 * CLIENTS + 8 * WORLD_COHORTS];
static struct group group[WORLD_COHORTS];
static struct tags tags;
static unsigned char *memory;
static size_t memory_bytes;
static struct waiting request[REQUESTS];
#define OLD 16u
#define URGENT 64u
static struct tags_grant grant[REQUESTS], old_grant[OLD]; /* old_grant: of the last that ended */
static struct tags_request pushed[REQUESTS];
static uint32_t owner[REQUESTS], logged[REQUESTS], unused[REQUESTS], unused_count;
static struct event *journal;
static size_t journal_count, journal_room;
static struct tags_reference reference;
static struct tags_reference_client reference_client[CLIENTS];

static struct {
    struct world *w;
    struct world_device device;
    struct world_device_config device_config, pauses; /* pauses: without all else */
    struct world_clock clock;
    struct world_rng rng;
    struct world_queue wakes, hung;
    struct tags_config config;
    uint32_t steps, tries;                                            /* tries: wrong calls */
    uint64_t ends, granted, borrowed, served[TAGS_PHASES], cancelled; /* so far */
    uint64_t now, shown, end_ns, base_shift, weight_scale, last_shown, begin_shown;
    uint32_t depth, at_device, queued, unlimited;       /* unlimited: requests that wait for no limit */
    uint64_t refused;                                   /* arrivals */
    uint32_t hung_count;                                /* requests that are lost */
    uint32_t urgent[URGENT], urgent_first, urgent_last; /* to be forced when the device has room */
    bool late;                                          /* lost ones end late */
    uint64_t choked_ns;                                 /* from when on they took all the room at the device */
    bool serial; /* the device serves one after the other, if it has one channel */
    bool steady; /* its speed does not change */
    bool undone; /* what hangs is cancelled */
    bool ps, draining, forces, cancels, thinks, all_fit, calm, jumped, leaps, accounts, other_terms, fifo_clock, lies;
    double reference_at, limit_burst_ns, lag_ns, cost_max, estimate_ns; /* estimate_ns: the first, at most */
} run;

static bool counts_cost(void)
{
    return world_choice(run.w, F_COUNT_COST) == 1 && !use_reference;
}

static bool grouped(void)
{
    return world_choice(run.w, F_GROUPED) > 0 && !use_reference && !WORLD_TAGS_V02;
}

/* Whose time it is cannot be told: then reward shares cost. */
static bool by_cost(void)
{
    return !run.ps && run.depth > 1 && !world_choice(run.w, F_TOLD) && !WORLD_TAGS_V02;
}

/* Its lost requests end at last. */
static bool late(uint32_t cohort)
{
    return run.ps && world_choice(run.w, world_of(cohort, F_TOGETHER)) == 2;
}

static uint64_t now_shown(void)
{
    run.shown = world_clock_read(&run.clock, run.now);
    if (run.shown > run.last_shown)
        run.last_shown = run.shown;
    return run.shown;
}

static void wake(uint32_t i, uint64_t at_ns)
{
    if (at_ns == WORLD_NEVER || at_ns >= tenant[i].wakes_ns)
        return;
    tenant[i].wakes_ns = at_ns;
    world_queue_add(&run.wakes, at_ns, 0, i);
}

static uint32_t note(enum kind kind, uint32_t client, uint32_t phase, double cost)
{
    struct event *e;
    journal = (struct event *)world_grow(journal, journal_count, &journal_room, sizeof *journal);
    e = &journal[journal_count];
    memset(e, 0, sizeof *e);
    e->at_ns = run.now;
    e->shown_ns = use_reference ? run.now : run.last_shown;
    e->client = client;
    e->kind = (uint8_t)kind;
    e->phase = (uint8_t)phase;
    e->cost = cost;
    return (uint32_t)journal_count++;
}

/* force_debt_requests + 1. */
static double debt(void)
{
    return world_value(run.w, F_DEBT) + 1;
}

/* So many requests of cost_max, if the cohort forces any. */
static double forced_most(uint32_t cohort)
{
    return world_choice(run.w, world_of(cohort, F_FORCE)) ? debt() * run.cost_max : 0;
}

/* Rivals over the sum of their weights: the most of any set with m (CLIENTS: of any), as f may come later. It has all up
 * to some weight; cohorts lie together, so few weights differ from their neighbour's. */
static double most_per_weight(const double *weight, uint32_t n, uint32_t m)
{
    double most = 0;
    uint32_t i, k;
    for (k = 0; k < n; k++) {
        double sum = 0, count = 0;
        if (k && weight[k] == weight[k - 1])
            continue;
        for (i = 0; i < n; i++)
            if (weight[i] <= weight[k] || i == m) {
                sum += weight[i];
                count++;
            }
        most = count / sum > most ? count / sum : most;
    }
    return most;
}

/* ---- oracles that look at the journal ------------------------------------------------------------------------------------ */

/* Promise `limit`: at most L * (t + limit_burst_ns) / 10^9 + 1 requests in any window of t; cancelled ones do not count;
 * forced ones add force_debt_requests + 1. Promise `reserve_cap`: by reservation at most R * (t + reserve_lag_ns) + 2 c
 * (0.2: + c). */
static void oracle_rates(void)
{
    static double above[CLIENTS], above_reserved[CLIENTS], forced[CLIENTS];
    static uint64_t last[CLIENTS], last_reserved[CLIENTS];
    size_t k;
    memset(above, 0, sizeof above);
    memset(above_reserved, 0, sizeof above_reserved);
    memset(forced, 0, sizeof forced);
    memset(last, 0, sizeof last);
    memset(last_reserved, 0, sizeof last_reserved);
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        const struct tenant *t = &tenant[e->client];
        double unit = counts_cost() ? e->cost : 1, most = counts_cost() ? t->largest : 1, again;
        if (e->kind != GIVEN || e->cancelled || t->lifted)
            continue;
        most += counts_cost() && t->lies ? run.depth * run.cost_max : 0; /* until its requests end */
        again = grouped() ? group[t->group].made_again * most : 0;
        if (t->limit > 0 && world_choice(run.w, F_AT_LIMIT) != TAGS_ALLOW) {
            double x = above[e->client] - t->limit * (double)(e->shown_ns - last[e->client]);
            above[e->client] = (x > 0 ? x : 0) + unit;
            last[e->client] = e->shown_ns;
            if (e->phase == TAGS_PHASE_FORCED)
                forced[e->client] = counts_cost() ? debt() * run.cost_max : debt();
            if (above[e->client] > t->limit * run.limit_burst_ns + most + forced[e->client] + 1e-3) {
                world_fail(run.w, "limit", e->at_ns, "client %" PRIu32 ": %.2f above L t, allowed %.2f", e->client,
                           above[e->client], t->limit * run.limit_burst_ns + most + forced[e->client]);
                return;
            }
        }
        if (t->reservation > 0 && e->phase == TAGS_PHASE_RESERVATION && !t->other_terms) {
            double x = above_reserved[e->client] - t->reservation * (double)(e->shown_ns - last_reserved[e->client]);
            above_reserved[e->client] = (x > 0 ? x : 0) + unit;
            last_reserved[e->client] = e->shown_ns;
            if (above_reserved[e->client] > t->reservation * run.lag_ns + (WORLD_TAGS_V02 ? 1 : 2) * most + again +
                                                1e-3 + 1e-6 * above_reserved[e->client]) {
                world_fail(run.w, "reserve_cap", e->at_ns,
                           "client %" PRIu32 ": %.2f above R t by reservation, allowed %.2f", e->client,
                           above_reserved[e->client], t->reservation * run.lag_ns + most);
                return;
            }
        }
    }
}

/* Promise `limit_group`: the limits of both levels hold, and by its reservation a group gets what a client would. */
static void oracle_group_rates(void)
{
    uint32_t k;
    size_t i;
    for (k = 0; k < WORLD_COHORTS && grouped(); k++) {
        const struct group *g = &group[k];
        double level = 0, reserved = 0, unit, most = counts_cost() ? g->largest : 1, forced = 0;
        uint64_t last = 0, last_reserved = 0;
        for (i = 0; i < journal_count; i++) {
            const struct event *e = &journal[i];
            if (e->kind != GIVEN || e->cancelled || tenant[e->client].group != k)
                continue;
            unit = counts_cost() ? e->cost : 1;
            if (e->phase == TAGS_PHASE_FORCED)
                forced = counts_cost() ? debt() * run.cost_max : debt();
            if (counts_cost() && g->lies)
                most = g->largest + run.depth * run.cost_max;
            if (g->limit > 0 && world_choice(run.w, F_AT_LIMIT) != TAGS_ALLOW) {
                level -= g->limit * (double)(e->shown_ns - last);
                level = (level > 0 ? level : 0) + unit;
                last = e->shown_ns;
                if (level > g->limit * run.limit_burst_ns + most + forced + 1e-3) {
                    world_fail(run.w, "limit_group", e->at_ns, "group %" PRIu32 ": %.2f above L t, allowed %.2f", k,
                               level, g->limit * run.limit_burst_ns + most + forced);
                    return;
                }
            }
            if (e->phase != TAGS_PHASE_RESERVATION && e->phase != PHASE_GROUP)
                continue;
            reserved -= g->reservation * (double)(e->shown_ns - last_reserved);
            reserved = (reserved > 0 ? reserved : 0) + unit;
            last_reserved = e->shown_ns;
            if (reserved > g->reservation * run.lag_ns + 2 * most + 1e-3 + 1e-6 * reserved) {
                world_fail(run.w, "limit_group", e->at_ns, "group %" PRIu32 ": %.2f above R t by reservation", k,
                           reserved);
                return;
            }
        }
    }
}

/* Promise `pair_group`: two groups are to each other as two clients. f keeps requests queued if one of its clients does;
 * its clients have no limits, so it waits for none. */
static void oracle_group_pair(uint32_t f, uint32_t m)
{
    const struct group *a = &group[f], *b = &group[m];
    double wf = (double)a->terms.weight, wm = (double)b->terms.weight, ahead = 0, most, largest = 0;
    double weight[WORLD_COHORTS], others[WORLD_COHORTS];
    uint32_t waiting = 0, k, n = 0, rest = 0, at_m = 0;
    size_t i;
    if (!grouped() || a->members == 0 || b->members == 0 || a->limit > 0 || a->limits || run.cancels || !run.ps ||
        world_choice(run.w, F_AT_LIMIT) == TAGS_ALLOW || a->changes || b->changes || a->lies)
        return;
    most = (a->reservation > 0 ? world_value(run.w, F_LEAD) : 1) * a->largest / wf + b->largest / wm;
    for (k = 0; k < WORLD_COHORTS; k++) {
        at_m = k == m ? n : at_m;
        if (group[k].members)
            weight[n++] = (double)group[k].terms.weight;
        if (group[k].members && k != f)
            others[rest++] = (double)group[k].terms.weight;
        largest = group[k].largest > largest ? group[k].largest : largest;
    }
    if (run.lies)
        largest = run.cost_max;
    if (b->lies) /* until its requests end */
        most += (2 * run.depth - 1) * run.cost_max / wm;
    if (b->limit > 0 || b->limits) /* K: m waited */
        most += largest * most_per_weight(weight, n, at_m);
    if (a->reservation > 0) /* f led V */
        most += largest * most_per_weight(others, rest, CLIENTS);
    if (run.forces)
        most += debt() * run.cost_max * (1 / wf + 1 / wm);
    for (i = 0; i < journal_count; i++) {
        const struct event *e = &journal[i];
        uint32_t of = tenant[e->client].group;
        if (of == f && (e->kind == WAITS || e->kind == IDLE)) {
            waiting += e->kind == WAITS ? 1 : -1u;
            ahead = waiting ? ahead : 0;
        }
        if (e->kind != GIVEN || waiting == 0)
            continue;
        if (of == m && e->phase != TAGS_PHASE_RESERVATION && e->phase != PHASE_GROUP)
            ahead += e->cost / wm;
        if (of == f)
            ahead = ahead > e->cost / wf ? ahead - e->cost / wf : 0;
        if (ahead > most * 1.0001 + 1e-9) {
            world_fail(run.w, "pair_group", e->at_ns,
                       "group %" PRIu32 " got %.3f per weight more than group %" PRIu32 ", which waits; allowed %.3f",
                       m, ahead, f, most);
            return;
        }
    }
}

/* The least that m is charged for a request that took longer: a service beyond two means, which are at least its
 * shortest service but for the first ones, counts up to its part of reserve_lag_ns more. */
static double least_charged(uint32_t m)
{
    double shortest = 1e18, weights = 0, part;
    uint32_t i;
    size_t k;
    for (k = 0; k < journal_count; k++)
        if (journal[k].kind == GIVEN && journal[k].client == m && journal[k].time_ns < shortest)
            shortest = journal[k].time_ns;
    for (i = 0; i < tenants; i++)
        weights += (double)tenant[i].terms.weight;
    part = grouped() ? 0 : run.lag_ns * (double)tenant[m].terms.weight / weights;
    return shortest + (part > shortest ? part : shortest);
}

/* The most that it is charged for a request: of a pause, that part of the lag. */
static double stall_of(const struct tenant *t, double part)
{
    return 4 * (t->longest_ns > run.estimate_ns ? t->longest_ns : run.estimate_ns) + 1.2 * run.lag_ns * part;
}

/* K: the largest request times those that wait over the sum of their weights, of all in f's group, or but f, which may
 * lead since before m came. Reward: the longest one that was charged. */
static double usual_lag(uint32_t f, uint32_t m, bool but_f, bool ps)
{
    static double weight[CLIENTS];
    double largest = 0;
    uint32_t i, n = 0, at_m = 0;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        double c = !ps        ? fmax(t->longest_ns, fmin(t->stalled_ns, stall_of(t, 1)))
                   : run.lies ? run.cost_max
                              : t->largest;
        if (grouped() && tenant[i].group != tenant[f].group)
            continue;
        largest = c > largest ? c : largest;
        if (but_f && i == f)
            continue;
        at_m = i == m ? n : at_m;
        weight[n++] = (double)tenant[i].terms.weight;
    }
    return largest * most_per_weight(weight, n, but_f ? CLIENTS : at_m);
}

/* Promise `pair`: while f keeps requests queued and is below its limit, m gets by weight and by force at most
 * W_m / w_m <= W_f / w_f + k_f c_f / w_f + k_m c_m / w_m + K in any window. PS: cost; reward, on a serial device: time. */
static void oracle_pair(uint32_t f, uint32_t m)
{
    const struct tenant *a = &tenant[f], *b = &tenant[m];
    double lead = world_value(run.w, F_LEAD), ahead = 0, wf = (double)a->terms.weight, wm = (double)b->terms.weight,
           most, charged = 1e18;
    bool waits = false;
    const bool ps = run.ps || by_cost();
    size_t k;
    bool above = world_choice(run.w, F_AT_LIMIT) == TAGS_ALLOW && a->limit > 0 && b->limit > 0;
    /* One after the other, in any order: what each took is known but for those that are at the device. */
    bool one_by_one = run.depth == 1 || (run.device_config.channels == 1 && run.serial && run.calm && run.fifo_clock);
    /* f's cancelled requests are cancelled before anything else is sent: nothing can overtake what they were charged. */
    bool at_once = ps && run.depth == 1 && world_choice(run.w, world_of(a->cohort, F_CANCEL_AFTER)) == 0;
    /* What f may be charged of a pause: its part of the lag among those that wait, and m does if it always waits. */
    bool always = b->client.config.arrivals == WORLD_CLOSED && b->client.config.outstanding > run.depth &&
                  b->client.config.think_ns == 0 && b->limit <= 0 && b->client.config.start_ns <= 1 &&
                  b->client.config.back_ns == 0;
    double stall = stall_of(a, always ? wf / (wf + wm) : 1);
    /* Charged is what was used: no service beyond two means (0.2: one at a time, and judged by this sentence, too). */
    bool used = run.calm && run.steady &&
                (WORLD_TAGS_V02 ? run.depth == 1
                                : world_choice(run.w, F_SPREAD) <= 2 && a->longest_ns <= 2 * run.estimate_ns &&
                                      b->longest_ns <= 2 * run.estimate_ns);
    if ((a->limit > 0 && !(above && WORLD_TAGS_V02)) || a->lifted || a->changes || b->changes || (above && b->lifted) ||
        (!ps && (!one_by_one || (run.forces && run.device_config.hangs))) || run.undone || (ps && a->lies) ||
        (world_choice(run.w, world_of(a->cohort, F_CANCEL)) && !at_once) ||
        (grouped() && (a->group != b->group || above)))
        return;
    most = ps ? (a->reservation > 0 ? lead : 1) * a->largest / wf + b->largest / wm
              : (a->reservation > 0 ? lead : 1) * a->longest_ns / wf + b->longest_ns / wm;
    if (!ps && (run.device_config.pause_ns || run.device_config.hangs)) {
        /* c_f: f may be charged a pause, up to its part of the lag; c_m: m, for what hangs */
        double longest = 0, longest_m = 0, of_m = 0;
        for (k = 0; k < journal_count; k++) {
            if (journal[k].client == f)
                longest = fmax(longest, journal[k].long_ns);
            if (journal[k].client == m) {
                longest_m = fmax(longest_m, journal[k].time_ns);
                of_m = fmax(of_m, journal[k].long_ns);
            }
        }
        most += fmin(longest, stall) / wf;
        if (run.device_config.hangs)
            most += fmin(longest_m, least_charged(m)) / wm;
        if (!WORLD_TAGS_V02) /* of a pause that m was charged its mean keeps a third: f may come back to V with that */
            most += fmin(of_m, stall_of(b, 1)) / 3 / wm;
    }
    if (ps && b->lies) /* until its requests end */
        most += (2 * run.depth - 1) * run.cost_max / wm;
    if (!ps && !used && !WORLD_TAGS_V02 && run.depth == 1)
        charged = least_charged(m);
    if (!ps) { /* those at the device may be charged a service too little, or 3/4 of one too much (0.2: a service) */
        const double larger = fmax(a->longest_ns / wf, b->longest_ns / wm);
        most += (run.depth - 1) *
                (larger + fmax(fmin(a->longest_ns / wf, b->longest_ns / wm), (WORLD_TAGS_V02 ? 1 : 0.75) * larger));
    }
    if (!ps && !used) /* a service beyond two means: four windows (0.2: 1.2 of 50) until they are learned */
        most += (WORLD_TAGS_V02 ? 60 : 20) * (a->longest_ns / wf + b->longest_ns / wm);
    if (b->limit > 0 && !WORLD_TAGS_V02) /* m waited at its limit */
        most += usual_lag(f, m, false, ps);
    if (a->reservation > 0 && !WORLD_TAGS_V02) /* it led V */
        most += usual_lag(f, m, true, ps);
    if (above) /* both above their limits: k is 2 + L * limit_burst */
        most = (2 + a->limit * run.limit_burst_ns) * (a->largest / wf) +
               (2 + b->limit * run.limit_burst_ns) * (b->largest / wm) + most;
    if (ps)
        most += forced_most(a->cohort) / wf + forced_most(b->cohort) / wm;
    else if (run.forces)
        most += debt() * (a->longest_ns / wf + b->longest_ns / wm);
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        double work = ps ? e->cost : e->time_ns < charged ? e->time_ns : charged;
        if (e->client == f && (e->kind == WAITS || e->kind == IDLE || e->kind == TERMS)) {
            waits = e->kind == WAITS;
            ahead = 0;
        }
        if (e->kind != GIVEN || e->cancelled || !waits)
            continue;
        if (e->client == m && e->phase != TAGS_PHASE_RESERVATION)
            ahead += work / wm;
        work = ps ? e->cost : e->long_ns < stall ? e->long_ns : stall; /* up to its part of the lag */
        if (e->client == f)
            ahead = ahead > work / wf ? ahead - work / wf : 0;
        if (ahead > most * 1.0001 + 1e-9) {
            world_fail(run.w, run.ps ? "pair" : "pair_reward", e->at_ns,
                       "client %" PRIu32 " got %.3f per weight more than client %" PRIu32 ", which waits; allowed %.3f",
                       m, ahead, f, most);
            return;
        }
    }
}

/* Promise `surplus`: TAGS_ALLOW: above limits, two clients that wait there are to each other as `pair` says, by what goes
 * above limits alone. */
static void oracle_surplus(uint32_t f, uint32_t m)
{
    const struct tenant *a = &tenant[f], *b = &tenant[m];
    double ahead = 0, wf = (double)a->terms.weight, wm = (double)b->terms.weight;
    double most = a->largest / wf + b->largest / wm;
    bool waits = false;
    size_t k;
    if (!run.ps || WORLD_TAGS_V02 || world_choice(run.w, F_AT_LIMIT) != TAGS_ALLOW || a->limit <= 0 || b->limit <= 0 ||
        a->lifted || b->lifted || a->changes || b->changes || a->lies || run.cancels || grouped())
        return;
    if (b->lies)
        most += (2 * run.depth - 1) * run.cost_max / wm;
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        if (e->client == f && (e->kind == WAITS || e->kind == IDLE)) {
            waits = e->kind == WAITS;
            ahead = 0;
        }
        if (e->kind != GIVEN || !waits || e->phase != TAGS_PHASE_ABOVE_LIMIT)
            continue;
        if (e->client == m)
            ahead += e->cost / wm;
        if (e->client == f)
            ahead = ahead > e->cost / wf ? ahead - e->cost / wf : 0;
        if (ahead > most * 1.0001 + 1e-9) {
            world_fail(run.w, "surplus", e->at_ns,
                       "client %" PRIu32 " got %.3f per weight more above its limit than client %" PRIu32
                       ", which waits there, too; allowed %.3f",
                       m, ahead, f, most);
            return;
        }
    }
}

/* Promise `charged`: on a device that serves one at a time, and whose header knows it, each client is charged the time
 * that the device worked for it, in any order of completion, but for the D that may be there. */
static void oracle_charged(void)
{
#if !WORLD_TAGS_V02
    uint32_t i;
    struct tags_state all;
    if (run.config.attribute && world_choice(run.w, F_TOLD) && !run.jumped &&
        tags_info(&tags, QOS_NONE, &all) == QOS_OK &&
        all.device_ns > run.last_shown - run.begin_shown + 1) /* also of completions that share a now_ns */
        world_fail(run.w, "charged", run.now, "%" PRIu64 " ns were charged in all, of %" PRIu64, all.device_ns,
                   run.last_shown - run.begin_shown);
    if (run.ps || run.cancels || !run.calm || !run.fifo_clock ||
        !(run.depth == 1 || (run.device_config.channels == 1 && run.serial && world_choice(run.w, F_TOLD))))
        return;
    for (i = 0; i < tenants && !run.w->broken; i++) {
        struct tags_state s;
        double most = 1.0 * run.depth * tenant[i].longest_ns, off;
        if (tags_info(&tags, tenant[i].id, &s) != QOS_OK)
            return;
        off = (double)s.device_ns - tenant[i].all_ns;
        if (off > most || off < -most)
            world_fail(run.w, "charged", run.now,
                       "client %" PRIu32 " used %.3f ms and was charged %.3f; allowed %.3f off", i,
                       tenant[i].all_ns / 1e6, (double)s.device_ns / 1e6, most / 1e6);
    }
#endif
}

/* `wrong_times`: times ahead between right ones give at most a second and limit_burst_ns of a limit, however many, if a
 * request of the largest cost is no more than a second of it. (Open: of who forces, a wrong time ahead forgives the debt, too.) */
static void oracle_wrong_times(void)
{
    static double above[CLIENTS];
    static uint64_t last[CLIENTS];
    size_t k;
    if (world_choice(run.w, F_AT_LIMIT) == TAGS_ALLOW)
        return;
    memset(above, 0, sizeof above);
    memset(last, 0, sizeof last);
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        const struct tenant *t = &tenant[e->client];
        double unit = counts_cost() ? e->cost : 1, most = counts_cost() ? t->largest : 1, x;
        if (e->kind != GIVEN || e->cancelled || t->lifted || t->limit <= 0 || forced_most(t->cohort) > 0 ||
            (counts_cost() && t->limit * 1e9 < run.cost_max))
            continue;
        x = above[e->client] - t->limit * 1.001 * (double)(e->at_ns - last[e->client]); /* drift */
        above[e->client] = (x > 0 ? x : 0) + unit;
        last[e->client] = e->at_ns;
        most += t->limit * (2 * run.limit_burst_ns + 1e9);
        most += counts_cost() && t->lies ? run.depth * run.cost_max : 0;
        if (above[e->client] > most + 1e-3) {
            world_fail(run.w, "wrong_times", e->at_ns, "client %" PRIu32 ": %.2f above L t, allowed %.2f", e->client,
                       above[e->client], most);
            return;
        }
    }
}

/* Promise `reserved`: if all reservations fit, f misses at most one request and what it reserved for the time of D
 * requests of the longest client (0.2: two, and what it reserved for limit_burst_ns of the other reservations). Who comes
 * back sooner than 1 / R_f after a request by reservation misses what is left of that time, too: two in any window, which
 * begins where a request by weight was more than its due: it may bring it to its limit, which then forbids the rest.
 * A request longer than reserve_lag_ns is a stall.
 * Promise `wait`: the head of f's queue waits at most 2 / R_f and the time of D requests (0.2: 1 / R_f plus one request of
 * each other reservation, and what is at the device). */
static void oracle_reserved(void)
{
    static double behind[CLIENTS], in_all[CLIENTS], rate[CLIENTS];
    static uint64_t since[CLIENTS];
    static bool waits[CLIENTS], inside[CLIENTS];
    double longest = 0, each = 0, others = 0;
    uint32_t i;
    size_t k;
    if (!run.all_fit || !run.calm || run.forces || run.cancels || counts_cost() || !run.fifo_clock)
        return;
    if (world_choice(run.w, F_BY_WEIGHT) && run.lies) /* a part of the work, as far as that is known */
        return;
    for (i = 0; i < tenants; i++) {
        if (world_choice(run.w, F_BY_WEIGHT) && (run.ps || by_cost()) &&
            world_choice(run.w, world_of(tenant[i].cohort, F_SPEED)))
            return; /* a part of the work is another one of the time */
        longest = tenant[i].longest_ns > longest ? tenant[i].longest_ns : longest;
        each += tenant[i].reservation > 0 ? tenant[i].longest_ns : 0;
        others += tenant[i].reservation * run.limit_burst_ns * tenant[i].longest_ns;
        behind[i] = in_all[i] = 0;
        rate[i] = tenant[i].reservation;
        since[i] = 0;
        waits[i] = inside[i] = false;
    }
    if (world_choice(run.w, F_SPREAD) != 0 || run.depth * longest > run.lag_ns)
        return;
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        const struct tenant *t = &tenant[e->client];
        double most, gap = (double)(e->at_ns - since[e->client]), longest_gap;
        const struct group *g = &group[t->group];
        /* What its limit forbids: it cannot make up for a long request of another one faster than its limit's burst. */
        const double r = rate[e->client];
        if (run.late && e->at_ns >= run.choked_ns)
            return;
        if (t->reservation <= 0 || (t->changes && !t->other_terms) ||
            (t->limit > 0 && t->limit < 1.05 * t->reservation) ||
            (t->limit > 0 && t->limit * run.limit_burst_ns < t->reservation * (run.depth + 1) * longest) ||
            (grouped() && g->limit > 0 &&
             (g->limit < 1.05 * g->reservation ||
              g->limit * run.limit_burst_ns < g->reservation * (run.depth + 1) * longest)))
            continue;
        if (e->kind == WAITS) {
            behind[e->client] += r * gap;
            behind[e->client] = behind[e->client] < 0 && !WORLD_TAGS_V02 ? behind[e->client] : 0;
            in_all[e->client] = behind[e->client];
            inside[e->client] = false;
        }
        if (e->kind == IDLE)
            behind[e->client] += r * gap;
        if (e->kind == WAITS || e->kind == IDLE) {
            waits[e->client] = e->kind == WAITS;
            since[e->client] = e->at_ns;
            continue;
        }
        if (e->kind == TERMS) { /* a lead is kept, counted in requests: one at most */
            rate[e->client] = e->cost;
            behind[e->client] = in_all[e->client] = -1;
            since[e->client] = e->at_ns;
        }
        if (e->kind != GIVEN || !waits[e->client])
            continue;
        most = WORLD_TAGS_V02 ? 2 + r * ((run.depth + 1) * longest + others) : 1 + r * run.depth * longest;
        longest_gap = WORLD_TAGS_V02 ? 1 / r + each + (run.depth + 1) * longest : 2 / r + run.depth * longest;
        if (!WORLD_TAGS_V02 && (grouped() || world_choice(run.w, F_BY_WEIGHT))) {
            most += 1 + r * longest; /* it waits for its group, too, or for work that is due by weight */
            longest_gap += longest;
        }
        if (grouped()) { /* one request of its group */
            most += t->reservation / g->reservation;
            longest_gap += 1 / g->reservation;
        }
        behind[e->client] += r * gap;
        in_all[e->client] += r * gap - 1;
        since[e->client] = e->at_ns;
        if (in_all[e->client] + 1 > most + 1e-6 || behind[e->client] > most + inside[e->client] + 1e-6) {
            world_fail(run.w, "reserved", e->at_ns,
                       "client %" PRIu32 " missed %.2f requests of its reservation, allowed %.2f", e->client,
                       behind[e->client], most);
            return;
        }
        if (gap > longest_gap * 1.0001) {
            world_fail(run.w, "wait", e->at_ns, "client %" PRIu32 " waited %.3f ms, allowed %.3f", e->client, gap / 1e6,
                       longest_gap / 1e6);
            return;
        }
        if (behind[e->client] >= 1 || e->phase == TAGS_PHASE_RESERVATION) {
            behind[e->client] -= 1;
        } else if (behind[e->client] > 0 || t->limit > 0) {
            behind[e->client] = 0;
            inside[e->client] = !WORLD_TAGS_V02;
        }
        if (WORLD_TAGS_V02 && behind[e->client] < 0)
            behind[e->client] = 0;
    }
}

/* Promise `proportion`: if reservations do not fit, all are served in proportion, whoever comes when: while f waits, who
 * comes later and who was late before get by reservation what f gets per reserved request, but for a few of each. */
static void oracle_proportion(uint32_t f, uint32_t m)
{
    const struct tenant *a = &tenant[f], *b = &tenant[m];
    double ahead = 0, most, longest = 0, owed = 0, late = 0;
    bool waits = false, m_waits = false;
    uint64_t since = 0;
    uint32_t i;
    size_t k;
    if (WORLD_TAGS_V02 || use_reference || run.undone || a->reservation <= 0 || b->reservation <= 0 || a->limit > 0 ||
        a->changes || b->changes || world_choice(run.w, world_of(a->cohort, F_CANCEL)) ||
        world_choice(run.w, world_of(b->cohort, F_CANCEL)) || forced_most(a->cohort) + forced_most(b->cohort) > 0 ||
        grouped() || !run.fifo_clock || (counts_cost() && run.lies))
        return;
    most = (run.depth > 1 ? 3 : 2) *
           ((counts_cost() ? a->largest : 1) / a->reservation + (counts_cost() ? b->largest : 1) / b->reservation);
    for (i = 0; i < tenants; i++)
        longest = tenant[i].stalled_ns > longest ? tenant[i].stalled_ns : longest;
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        const double unit = counts_cost() ? e->cost : 1;
        if (e->client == m) { /* what it is late by */
            const bool by_r = e->kind == GIVEN && e->phase == TAGS_PHASE_RESERVATION;
            late = m_waits ? late + (double)(e->at_ns - since) - (by_r ? unit / b->reservation : 0) : 0;
            m_waits = e->kind == WAITS || (m_waits && e->kind == GIVEN);
            since = e->at_ns;
        }
        if (e->client == f && (e->kind == WAITS || e->kind == IDLE)) {
            waits = e->kind == WAITS;
            ahead = 0;
            /* In a stall: what m is late by when f comes is served first, up to the lag. */
            owed = longest > run.lag_ns && m_waits ? fmin(fmax(late + (double)(e->at_ns - since), 0), run.lag_ns) : 0;
        }
        if (e->kind != GIVEN || e->phase != TAGS_PHASE_RESERVATION || !waits)
            continue;
        if (e->client == m)
            ahead += unit / b->reservation;
        if (e->client == f)
            ahead = ahead > unit / a->reservation ? ahead - unit / a->reservation : 0;
        if (ahead > (most + owed) * 1.0001 + 1) {
            world_fail(run.w, "proportion", e->at_ns,
                       "client %" PRIu32 " got %.3f ms more of its reservation than client %" PRIu32
                       ", which waits; allowed %.3f",
                       m, ahead / 1e6, f, (most + owed) / 1e6);
            return;
        }
    }
}

/* Lost requests keep the device's slots until they are cancelled: as many as chance loses before those that end, which
 * alone are charged, are as many as go before f's: under reward a window more. */
static double lost_ns(const struct tenant *f)
{
    double sum = 0;
    uint32_t i;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        double part = world_value(run.w, world_of(t->cohort, F_CANCEL)) / 1000;
        double before = (double)t->terms.weight / (double)f->terms.weight * f->largest /
                        world_value(run.w, world_of(t->cohort, F_SIZE));
        before += run.ps ? 0 : 1.2 * 50;
        if (part > 0)
            sum +=
                world_value(run.w, world_of(t->cohort, F_CANCEL_AFTER)) * 1e6 * (9 + 1.5 * part / (1 - part) * before);
    }
    return sum;
}

/* Those that compete with each other by weight. c: its largest request; reward: its longest. per_work: device time of its
 * work. credit: w K of who waited at a limit, the largest request times those that wait over the sum of their weights. */
struct rivals {
    double weight[CLIENTS], c[CLIENTS], per_work[CLIENTS], credit[CLIENTS];
    bool limits[CLIENTS];
    uint32_t n;
};

static void find_credit(struct rivals *r)
{
    double largest = 0;
    uint32_t j;
    for (j = 0; j < r->n; j++)
        largest = fmax(largest, r->c[j]);
    for (j = 0; j < r->n; j++)
        r->credit[j] = r->limits[j] && run.ps ? r->weight[j] * largest * most_per_weight(r->weight, r->n, j) : 0;
}

/* What others get by weight while f gets `work`: the sum over them of w_j / w_f * work + c_j + w_j K. */
static double meanwhile(const struct rivals *r, uint32_t f, double work, bool f_too, double *time_ns)
{
    double sum = 0, one;
    uint32_t j;
    for (j = 0; j < r->n; j++) {
        one = j == f && !f_too ? 0 : r->weight[j] / r->weight[f] * work + r->c[j] + r->credit[j];
        sum += one;
        *time_ns += one * r->per_work[j];
    }
    return sum;
}

/* Promise `wait_weight`: by weight the head of f's queue waits at most the sum over all j of (w_j / w_f * c_f + c_j), and
 * w_j K of who waited at a limit, of device time; pauses are no device time. In a group that much goes inside; while its
 * group gets this, and one of its own requests before, the other groups get as much as two clients would. Reward: mean
 * service times lag by a window. */
static void oracle_starve(void)
{
    static uint64_t since[CLIENTS];
    static bool waits[CLIENTS];
    static struct rivals inside[WORLD_COHORTS], outside;
    static uint32_t place[CLIENTS];
    static double allowed[CLIENTS];
    uint32_t at[WORLD_COHORTS] = {0}, i;
    double longest = 0, work;
    size_t k;
    if (run.forces || !run.fifo_clock || run.device_config.hashed || (run.ps && run.lies) || run.late ||
        (grouped() && run.cancels))
        return;
    if (run.device_config.hangs && run.depth <= 3 * run.device_config.hangs) /* all that the device may have */
        return;
    /* A pause counts up to the lag: a thousand of the others' requests go first, and a part of them is lost. */
    if (!run.ps && !run.calm && run.cancels)
        return;
    for (i = 0; i < WORLD_COHORTS; i++)
        inside[i].n = 0;
    for (i = outside.n = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        const struct group *g = &group[t->group];
        const uint32_t of = grouped() ? t->group : 0;
        struct rivals *r = &inside[of];
        const bool limits = t->limit > 0 || (grouped() && g->limit > 0);
        if (t->reservation > 0 || t->changes || (world_choice(run.w, F_AT_LIMIT) == TAGS_ALLOW && limits) ||
            (grouped() && (g->reservation > 0 || g->changes || g->made_again)))
            return;
        waits[i] = false;
        longest = fmax(longest, t->longest_ns);
        if (r->n == 0) {
            at[of] = outside.n++;
            outside.weight[at[of]] = (double)g->terms.weight;
            outside.c[at[of]] = outside.per_work[at[of]] = 0;
            outside.limits[at[of]] = false;
        }
        place[i] = r->n++;
        r->weight[place[i]] = (double)t->terms.weight;
        r->c[place[i]] = run.ps ? t->largest : t->longest_ns;
        r->per_work[place[i]] = run.ps ? t->longest_ns / t->largest : 1;
        r->limits[place[i]] = t->limit > 0;
        outside.c[at[of]] = fmax(outside.c[at[of]], r->c[place[i]]);
        outside.per_work[at[of]] = fmax(outside.per_work[at[of]], r->per_work[place[i]]);
        outside.limits[at[of]] = outside.limits[at[of]] || limits;
    }
    for (i = 0; i < WORLD_COHORTS; i++)
        find_credit(&inside[i]);
    find_credit(&outside);
    for (i = 0; i < tenants; i++) {
        const uint32_t of = grouped() ? tenant[i].group : 0;
        allowed[i] = 0;
        work = meanwhile(&inside[of], place[i], inside[of].c[place[i]], true, &allowed[i]);
        if (grouped())
            (void)meanwhile(&outside, at[of], work + outside.c[at[of]], false, &allowed[i]);
    }
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        const struct tenant *t = &tenant[e->client];
        double most = allowed[e->client], gap;
        if (e->kind != GIVEN) {
            waits[e->client] = e->kind == WAITS;
            since[e->client] = e->at_ns;
            continue;
        }
        gap = (double)(e->at_ns - since[e->client]);
        if (run.device_config.pause_ns)
            gap = world_device_could_ns(&run.pauses, since[e->client], e->at_ns);
        since[e->client] = e->at_ns;
        if (!waits[e->client] || t->limit > 0 || (grouped() && group[t->group].limit > 0))
            continue;
        most += (run.ps ? 0 : (WORLD_TAGS_V02 ? 60 : 20) * most) + (run.depth + 1) * longest;
        if (!run.ps && !run.calm)
            most += run.lag_ns; /* f may be charged a pause, up to its part of the lag */
        if (gap > most + lost_ns(t) + (double)run.device_config.pause_ns * 0.01) {
            world_fail(run.w, run.ps ? "wait_weight" : "wait_reward", e->at_ns,
                       "client %" PRIu32 " waited %.3f ms of device time, allowed %.3f", e->client, gap / 1e6,
                       most / 1e6);
            return;
        }
    }
}

/* Promise `lag`: while all keep requests queued, f is behind a fluid that flows by weight by at most c_f (0.2: without it)
 * and w_f / (sum of all w) times the c of all others. Of n that compete: rival[i] is whom client i belongs to, n or more: nobody. */
static void judge_lag(uint32_t n, const uint32_t *rival, const double *weight, const double *largest, const char *what)
{
    static double given[CLIENTS], least[CLIENTS]; /* its work, less what the fluid gave; the most of that so far */
    static uint32_t waiting[CLIENTS];             /* clients of it that have requests queued */
    double weights = 0, costs = 0, total = 0;
    uint32_t i, count = 0;
    size_t k;
    for (i = 0; i < n; i++) {
        weights += weight[i];
        costs += largest[i];
        waiting[i] = 0;
    }
    for (k = 0; k < journal_count; k++) {
        const struct event *e = &journal[k];
        const uint32_t m = rival[e->client];
        if (m >= n || e->kind == TERMS)
            continue;
        if (e->kind != GIVEN) {
            const bool waited = waiting[m] > 0;
            waiting[m] += e->kind == WAITS ? 1 : -1u;
            if (waited == (waiting[m] > 0))
                continue;
            count += waited ? -1u : 1;
            for (i = 0, total = 0; i < n; i++)
                given[i] = least[i] = 0;
        }
        if (e->kind != GIVEN || count < n)
            continue;
        total += e->cost;
        given[m] += e->cost;
        for (i = 0; i < n; i++) {
            double part = weight[i] / weights, ahead = given[i] - part * total,
                   most = part * (costs - largest[i]) + (WORLD_TAGS_V02 ? 0 : largest[i]);
            least[i] = fmax(least[i], ahead);
            if (least[i] - ahead > most * 1.0001 + 1e-6) {
                world_fail(run.w, "lag", e->at_ns,
                           "%s %" PRIu32 " of %" PRIu32 " is %.3f behind its part, allowed %.3f", what, i, n,
                           least[i] - ahead, most);
                return;
            }
        }
    }
}

/* Between all groups, or all clients; then between the clients of each group. */
static void oracle_lag(void)
{
    static double weight[CLIENTS], largest[CLIENTS];
    static uint32_t rival[CLIENTS];
    bool alone[WORLD_COHORTS], all = true; /* weights alone decide between its clients */
    uint32_t i, k, n = 0, index[WORLD_COHORTS];
    if (!run.ps || run.forces || run.cancels || run.lies || run.jumped)
        return;
    for (k = 0; k < WORLD_COHORTS; k++) {
        alone[k] = group[k].made_again == 0;
        index[k] = n;
        if (!grouped() || group[k].members == 0)
            continue;
        weight[n] = (double)group[k].terms.weight;
        largest[n++] = group[k].largest;
        all = all && group[k].limit <= 0 && group[k].reservation <= 0 && alone[k];
    }
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        if (t->reservation > 0 || t->limit > 0 || t->changes || t->lifted)
            all = alone[t->group] = false;
        rival[i] = index[t->group];
    }
    if (all && grouped())
        judge_lag(n, rival, weight, largest, "group");
    for (k = 0; k < (grouped() ? WORLD_COHORTS : 1); k++) {
        for (i = n = 0; i < tenants; i++) {
            rival[i] = UINT32_MAX;
            if (grouped() && tenant[i].group != k)
                continue;
            weight[n] = (double)tenant[i].terms.weight;
            largest[n] = tenant[i].largest;
            rival[i] = n++;
        }
        if (grouped() ? alone[k] : all)
            judge_lag(n, rival, weight, largest, grouped() ? "client in its group" : "client");
    }
}

/* Promise `attribution`: under reward, on a serial device, or where all at the device are served at once, clients that
 * always wait get time by weight within 2 %, in any order of completion; with M channels told, if they take all in order.
 * On other devices equal ones, those of the first cohort, get the same work within 2 %. */
static void oracle_attribution(void)
{
    double least = 0, most = 0, slack = 0;
    uint32_t i;
    const struct world_device_config *d = &run.device_config;
    const bool told =
        world_choice(run.w, F_TOLD) && !d->hashed && (run.depth <= d->channels || d->order == WORLD_IN_ORDER);
    const bool by_time = d->channels == 1 || told;
    if (run.ps || by_cost() || (WORLD_TAGS_V02 && d->channels > 1) || !run.serial || !run.steady || run.cancels ||
        run.forces || !run.calm || !run.fifo_clock || grouped())
        return;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        double share = (by_time ? t->used_ns : t->given) / (double)t->terms.weight;
        double one = (by_time ? t->longest_ns : t->largest) / (double)t->terms.weight;
        if (t->reservation > 0 || t->limit > 0 || t->changes || t->client.config.arrivals != WORLD_CLOSED ||
            t->client.config.think_ns || t->client.config.start_ns > 1 || t->client.config.away_every_ns ||
            t->client.config.outstanding <= 2 * run.depth)
            return;
        if (!by_time && t->cohort != tenant[0].cohort)
            continue;
        least = i == 0 || share < least ? share : least;
        most = i == 0 || share > most ? share : most;
        slack = one > slack ? one : slack;
    }
    /* Estimates are learned in windows of requests; 2 % of what each got after them. */
    slack *= 4 * 60;
    if (most - least > 0.02 * most + slack)
        world_fail(run.w, "attribution", run.now, "%s per weight from %.6g to %.6g", by_time ? "time" : "work", least,
                   most);
}

/* Promise `maxmin`: who waits at a limit neither falls behind nor gains: in the long run everybody has at least 0.99 of its
 * weighted max-min share with limits, less what the begin and the end cost. */
static void oracle_maxmin(void)
{
    static bool capped[CLIENTS];
    double total = 0, weights = 0, round = 0, span = (double)run.end_ns;
    uint32_t i, again;
    if (!run.ps || run.cancels || run.forces || run.lies || !run.calm || !run.fifo_clock || grouped() || run.late ||
        world_choice(run.w, F_AT_LIMIT) != TAGS_WAIT)
        return;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        if (t->reservation > 0 || t->changes || t->lifted || t->client.config.arrivals != WORLD_CLOSED ||
            t->client.config.think_ns || t->client.config.start_ns > 1 || t->client.config.back_ns ||
            t->client.config.sizes != WORLD_ONE_SIZE || t->client.config.outstanding <= 2 * run.depth)
            return;
        total += t->given;
        weights += (double)t->terms.weight;
        round += t->largest;
        capped[i] = false;
    }
    for (again = 0; again <= tenants; again++) { /* water filling */
        bool more = false;
        for (i = 0; i < tenants; i++) {
            const struct tenant *t = &tenant[i];
            double unit = counts_cost() ? 1 : t->largest, most = t->limit * span * unit;
            if (capped[i] || t->limit <= 0 || total * (double)t->terms.weight / weights < most)
                continue;
            capped[i] = more = true;
            total -= most;
            weights -= (double)t->terms.weight;
        }
        if (!more)
            break;
    }
    for (i = 0; i < tenants && weights > 0; i++) {
        const struct tenant *t = &tenant[i];
        double unit = counts_cost() ? 1 : t->largest, w = (double)t->terms.weight;
        double share = capped[i] ? t->limit * span * unit : total * w / weights;
        /* A limit's burst is above the share, at the cost of others: once in the run. */
        double slack = 3 * t->largest + w / weights * (round + tenants * run.limit_burst_ns / span * share);
        if (share > 100 * t->largest && t->given < 0.99 * share - slack) {
            world_fail(run.w, "maxmin", run.now, "client %" PRIu32 " got %.0f, its max-min share is %.0f", i, t->given,
                       share);
            return;
        }
    }
}

/* What each of n gets of `all` if it is weight * level, at least its reservation and at most its limit. */
static void fill(const double *weight, const double *least, const double *most, uint32_t n, double all, double *x)
{
    double low = 0, high = 0;
    uint32_t i, k;
    for (i = 0; i < n; i++)
        high = high > (all + 1) / weight[i] ? high : (all + 1) / weight[i];
    for (k = 0; k < 200; k++) {
        double level = (low + high) / 2, sum = 0;
        for (i = 0; i < n; i++) {
            x[i] = weight[i] * level;
            x[i] = x[i] < least[i] ? least[i] : x[i] > most[i] ? most[i] : x[i];
            sum += x[i];
        }
        if (sum < all)
            low = level;
        else
            high = level;
    }
}

/* Promise `maxmin_group`: in the long run, with reservations, limits and weights at both levels, each group has its
 * max-min share of the device, and each client that of its group's: 0.99, less what the begin and the end cost. */
static void oracle_maxmin_group(void)
{
    static double weight[CLIENTS], least[CLIENTS], most[CLIENTS], share[CLIENTS];
    double gw[WORLD_COHORTS], gleast[WORLD_COHORTS], gmost[WORLD_COHORTS], gshare[WORLD_COHORTS];
    double total = 0, round = 0, span = (double)run.end_ns, bursts = 0;
    static uint32_t who[CLIENTS];
    uint32_t i, k, n = 0, count, used[WORLD_COHORTS];
    if (!grouped() || !run.ps || run.cancels || run.forces || run.lies || !run.calm || !run.fifo_clock ||
        counts_cost() || world_choice(run.w, F_AT_LIMIT) != TAGS_WAIT || !run.all_fit || run.device_config.hashed)
        return;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        if (t->changes || t->lifted || t->client.config.arrivals != WORLD_CLOSED || t->client.config.think_ns ||
            t->client.config.start_ns > 1 || t->client.config.back_ns || t->client.config.sizes != WORLD_ONE_SIZE ||
            t->client.config.outstanding <= 2 * run.depth || t->largest > 1)
            return; /* a share in requests */
        total += t->given;
        round += t->largest;
        bursts += (t->limit > 0 ? t->limit : 0) * run.limit_burst_ns + t->reservation * run.lag_ns;
    }
    for (k = 0; k < WORLD_COHORTS; k++) {
        const struct group *g = &group[k];
        double inside = 0;
        for (i = 0; i < tenants; i++)
            inside += tenant[i].group != k ? 0 : tenant[i].limit > 0 ? tenant[i].limit * span : 1e18;
        if (g->members == 0)
            continue;
        gw[n] = (double)g->terms.weight;
        gmost[n] = g->limit > 0 && g->limit * span < inside ? g->limit * span : inside;
        gleast[n] = g->reservation * span < gmost[n] ? g->reservation * span : gmost[n];
        used[n++] = k;
        bursts += (g->limit + g->reservation) * (run.limit_burst_ns + run.lag_ns);
    }
    fill(gw, gleast, gmost, n, total, gshare);
    for (k = 0; k < n; k++) {
        for (i = count = 0; i < tenants; i++) {
            const struct tenant *t = &tenant[i];
            if (t->group != used[k])
                continue;
            who[count] = i;
            weight[count] = (double)t->terms.weight;
            least[count] = t->reservation * span;
            most[count++] = t->limit > 0 ? t->limit * span : 1e18;
        }
        fill(weight, least, most, count, gshare[k], share);
        for (i = 0; i < count; i++) {
            double got = tenant[who[i]].given;
            if (share[i] < 100 || got >= 0.99 * share[i] - 3 - round - bursts)
                continue;
            world_fail(run.w, "maxmin_group", run.now,
                       "client %" PRIu32 " of group %" PRIu32 " got %.0f, its max-min share is %.0f", who[i], used[k],
                       got, share[i]);
            return;
        }
    }
}

static void judge_journal(void)
{
    uint32_t i;
    if (run.w->broken)
        return;
    if (!run.jumped) {
        oracle_rates();
        oracle_group_rates();
    } else {
        oracle_wrong_times();
    }
    for (i = 0; i + 1 < tenants && i < 4; i++) {
        oracle_pair(i, i + 1);
        oracle_pair(i + 1, i);
        oracle_surplus(i, i + 1);
        oracle_proportion(i, i + 1);
        oracle_proportion(i + 1, i);
        oracle_surplus(i + 1, i);
    }
    for (i = 0; i + WORLD_COHORTS < tenants && i < 4; i++) { /* of one mixed group */
        oracle_pair(i, i + WORLD_COHORTS);
        oracle_pair(i + WORLD_COHORTS, i);
    }
    for (i = 1; i < tenants; i++) { /* of different cohorts */
        uint32_t k;
        if (tenant[i].cohort == tenant[i - 1].cohort)
            continue;
        for (k = 0; k < i; k++) {
            if (k > 0 && tenant[k].cohort == tenant[k - 1].cohort)
                continue;
            oracle_pair(k, i);
            oracle_pair(i, k);
            oracle_surplus(k, i);
            oracle_proportion(k, i);
            oracle_proportion(i, k);
            oracle_surplus(i, k);
        }
    }
    oracle_reserved();
    oracle_starve();
    oracle_lag();
    oracle_attribution();
    oracle_charged();
    oracle_maxmin();
    for (i = 0; i < WORLD_COHORTS; i++)
        oracle_group_pair(i, (i + 1) % WORLD_COHORTS);
    oracle_maxmin_group();
}

#if WORLD_TAGS_V02 /* other calls, and it told less */
#include "v02/tags_weights.h"
#else
#include "tags_calls.h"
#endif

/* ---- the world ------------------------------------------------------------------------------------------------------------ */

static void to_device(uint32_t id)
{
    struct world_io io;
    memset(&io, 0, sizeof io);
    io.id = id;
    io.cost_ns = request[id].service_ns;
    io.offset = request[id].offset;
    io.write = request[id].write;
    world_device_submit(&run.device, run.now, &io);
}

static void ended(uint32_t id)
{
    struct tenant *t = &tenant[owner[id]];
    run.at_device--;
    t->at_device--;
    group[t->group].at_device--;
    old_grant[run.ends++ % OLD] = grant[id];
    unused[unused_count++] = id;
    world_client_done(&t->client, run.now);
    wake(owner[id], world_client_next_ns(&t->client));
}

static void given(uint32_t i, uint32_t id, uint32_t phase)
{
    struct tenant *t = &tenant[i];
    world_trace(run.now, i, "given", request[id].cost);
    owner[id] = i;
    logged[id] = note(GIVEN, i, phase, (double)request[id].cost);
    run.served[phase]++;
    run.granted += counts_cost() ? request[id].claim : 1;
    run.borrowed += phase == TAGS_PHASE_RESERVATION ? 0 : counts_cost() ? request[id].claim : 1;
    run.at_device++;
    t->at_device++;
    group[t->group].at_device++;
    world_got(run.now, i, run.draining ? 0 : (double)request[id].cost);
    if (!run.draining)
        t->given += (double)request[id].cost;
    if (request[id].cancel) { /* it is lost on its way, and cancelled later; or all that are lost meanwhile at once */
        uint64_t after = (uint64_t)world_value(run.w, world_of(t->cohort, F_CANCEL_AFTER)) * MS;
        if (world_choice(run.w, world_of(t->cohort, F_TOGETHER)) && after)
            after -= run.now % after;
        world_queue_add(&run.hung, run.now + after, 0, id);
        run.hung_count++;
    } else {
        to_device(id);
    }
}

/* 0.2 has intrusive requests here; today's are in the programs of calls. */
static bool intrusive(void)
{
    return WORLD_TAGS_V02 && world_choice(run.w, F_INTRUSIVE) == 1 && !use_reference;
}

static enum qos_status queue_one(uint32_t i, uint32_t id)
{
    if (!intrusive())
        return tags_arrive(&tags, now_shown(), tenant[i].id, 1, request[id].claim);
    memset(&pushed[id], 0, sizeof pushed[id]);
    pushed[id].cost = request[id].claim;
    return tags_push(&tags, now_shown(), tenant[i].id, &pushed[id]);
}

/* The next client and its grant. */
static enum qos_status pop(struct tags_choice *c, struct tags_grant *g)
{
    struct tags_request *r = NULL;
    enum qos_status s = tags_pop(&tags, now_shown(), &r);
    if (s != QOS_OK)
        return s;
    *g = r->grant;
    c->client = r->grant.client;
    c->phase = r->grant.phase;
    if (r != &pushed[tenant[c->client].first])
        world_fail(run.w, "once", run.now, "what is popped is not the oldest");
    return QOS_OK;
}

static void dequeue(uint32_t i)
{
    tenant[i].queued--;
    run.queued--;
    run.unlimited -= tenant[i].unlimited;
    tenant[i].first = request[tenant[i].first].next;
    if (tenant[i].queued == 0)
        (void)note(IDLE, i, 0, 0);
}

/* It leaves, and is back at once. */
static void leaves(uint32_t i)
{
    uint32_t dropped = UINT32_MAX;
    if (tags_remove(&tags, now_shown(), tenant[i].id, &dropped) != QOS_OK || dropped != tenant[i].queued)
        world_fail(run.w, "admission", run.now, "a client with %" PRIu32 " requests left, %" PRIu32 " were dropped",
                   tenant[i].queued, dropped);
    if (tenant[i].queued)
        (void)note(IDLE, i, 0, 0);
}

/* With the requests that it had. */
static void returns(uint32_t i)
{
    struct tenant *t = &tenant[i];
    struct tags_client terms = t->terms;
    uint32_t k, id = t->first;
    terms.weight *= run.weight_scale;
    if (tags_add(&tags, now_shown(), t->id, &terms) != QOS_OK)
        world_fail(run.w, "admission", run.now, "a client that left cannot come back");
    for (k = 0; k < t->queued; k++, id = request[id].next)
        if (queue_one(i, id) != QOS_OK)
            world_fail(run.w, "once", run.now, "an arrival is refused");
    if (t->queued)
        (void)note(WAITS, i, 0, 0);
}

static void rejoin(uint32_t i)
{
    if (use_reference)
        return;
    leaves(i);
    returns(i);
}

/* All that the scheduler gives now. */
static uint32_t dispatch(void)
{
    uint32_t count = 0, again = 0;
    while (run.at_device < run.depth) {
        uint32_t i, id, phase;
        if (use_reference) {
            bool reserved;
            i = tags_reference_choose(&reference, (double)run.now, &reserved, &run.reference_at);
            if (i == UINT32_MAX)
                return count;
            phase = reserved ? TAGS_PHASE_RESERVATION : TAGS_PHASE_WEIGHT;
            id = tenant[i].first;
            tags_reference_dispatch(&reference, (double)run.now, i, reserved, (double)request[id].cost);
        } else {
            struct tags_choice c;
            struct tags_grant g;
            enum qos_status s = intrusive() ? pop(&c, &g) : tags_choose(&tags, now_shown(), &c);
            while (s == QOS_EAGAIN && !run.jumped && again++ < 10000 && tags_next_ns(&tags, run.shown) <= run.shown)
                s = intrusive() ? pop(&c, &g) : tags_choose(&tags, run.shown, &c); /* there is more to do */
            if (s != QOS_OK)
                return count;
            i = tenant_of[c.client];
            if (i >= tenants || tenant[i].id != c.client || tenant[i].queued == 0) {
                world_fail(run.w, "once", run.now, "client %" PRIu32 " is chosen and has nothing queued", i);
                return count;
            }
            phase = (uint32_t)c.phase;
            id = tenant[i].first;
            if (intrusive())
                grant[id] = g;
            else
                s = tags_dispatch(&tags, run.shown, &c, request[id].claim, 0, 0, &grant[id]);
            if (s != QOS_OK) {
                world_fail(run.w, "once", run.now, "the dispatch of a choice is refused: %d", (int)s);
                return count;
            }
        }
        given(i, id, phase);
        dequeue(i);
        if (world_choice(run.w, world_of(tenant[i].cohort, F_CHURN)) == 5 && tenant[i].queued == 0)
            rejoin(i);
        count++;
    }
    return count;
}

static void arrives(uint32_t i, uint32_t id)
{
    struct tenant *t = &tenant[i];
    if (!use_reference) {
        enum qos_status s = queue_one(i, id);
        if (s == QOS_ELIMIT) {
            unused[unused_count++] = id;
            world_client_done(&t->client, run.now);
            return;
        }
        if (s != QOS_OK)
            world_fail(run.w, "once", run.now, "an arrival is refused: %d", (int)s);
    } else {
        tags_reference_arrive(&reference, (double)run.now, i);
    }
    world_trace(run.now, i, "asks", request[id].cost);
    if (t->queued++ == 0) {
        t->first = id;
        (void)note(WAITS, i, 0, 0);
    } else {
        request[t->last].next = id;
    }
    t->last = id;
    run.queued++;
    run.unlimited += t->unlimited;
}

/* false: it owes too much, and waits like any other. */
static bool forced(uint32_t i, uint32_t id)
{
    if (tags_force(&tags, now_shown(), tenant[i].id, request[id].claim, &grant[id]) != QOS_OK)
        return false;
    request[id].cancel = false;
    given(i, id, TAGS_PHASE_FORCED);
    return true;
}

static void make(uint32_t i, const struct world_request *q)
{
    struct tenant *t = &tenant[i];
    uint32_t id = unused[--unused_count];
    struct waiting *r = &request[id];
    bool force = world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_FORCE)));
    memset(r, 0, sizeof *r);
    r->cost = r->claim = q->cost;
    if (t->lies) {
        double claim = (double)q->cost * world_value(run.w, world_of(t->cohort, F_CLAIM)) / 1000;
        r->claim = claim < 1 ? 1 : claim > run.cost_max ? (uint64_t)run.cost_max : (uint64_t)claim;
    }
    r->offset = q->offset;
    if (world_choice(run.w, F_OFFSETS)) /* each client in its own part of the device */
        r->offset = WORLD_OFFSETS / tenants * i + q->offset / tenants;
    r->write = q->offset % 2 == 0;
    r->service_ns = (uint64_t)((double)q->cost * world_value(run.w, F_SERVICE) *
                               world_value(run.w, world_of(t->cohort, F_SPEED)) / (double)run.device_config.channels);
    /* A device of M channels needs M times a request's cost; so each takes service_us on its channel. */
    r->cancel = !use_reference && world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_CANCEL)));
    if (force && !use_reference && run.at_device < run.depth && forced(i, id))
        return;
    if (force && !use_reference && run.at_device >= run.depth && run.urgent_last - run.urgent_first < URGENT) {
        owner[id] = i; /* when there is room */
        run.urgent[run.urgent_last++ % URGENT] = id;
        return;
    }
    arrives(i, id);
}

/* Those that are forced, as far as there is room. */
static void force_urgent(void)
{
    while (run.urgent_first != run.urgent_last && run.at_device < run.depth) {
        uint32_t id = run.urgent[run.urgent_first++ % URGENT];
        if (!forced(owner[id], id))
            arrives(owner[id], id);
    }
}

static void join_group(struct group *g, const struct tenant *t)
{
    g->places++;
    g->terms.reservation_per_s += t->terms.reservation_per_s;
    g->largest = t->largest > g->largest ? t->largest : g->largest;
    g->longest_ns = t->longest_ns > g->longest_ns ? t->longest_ns : g->longest_ns;
    g->changes |= t->changes || t->lifted;
    g->limits |= t->limit > 0;
    g->lies |= t->lies;
}

/* The terms of a group, when its clients are drawn; the next one follows it. Returns which part of the device it reserves
 * if its requests are of its largest size. */
static double draw_group(uint32_t k, double sum)
{
    struct group *g = &group[k];
    double part = world_value(run.w, world_of(k, F_GROUP_MORE)) / 1000, unit = counts_cost() ? g->largest : 1;
    double limit = world_value(run.w, world_of(k, F_GROUP_LIMIT)) / 1000;
    g->spare = g->places;
    g->places = (g->places + 7) / 8 * 8;
    g->spare = g->places - g->spare;
    if (k + 1 < WORLD_COHORTS)
        group[k + 1].first = g->first + g->places;
    if (!grouped() || g->places == 0)
        return 0;
    g->terms.weight = (uint64_t)world_value(run.w, world_of(k, F_GROUP_WEIGHT));
    g->terms.reservation_per_s += (uint64_t)(part / g->longest_ns * unit * 1e9);
    if (limit > 0) {
        g->terms.limit_per_s = 1 + (uint64_t)(limit * sum * 1e9);
        if (g->terms.limit_per_s < g->terms.reservation_per_s)
            g->terms.limit_per_s = g->terms.reservation_per_s;
    }
    g->reservation = (double)g->terms.reservation_per_s / 1e9;
    g->limit = (double)g->terms.limit_per_s / 1e9;
    return g->reservation / unit * g->longest_ns;
}

static void draw_tenants(void)
{
    struct world *w = run.w;
    double part = 0, sum[WORLD_COHORTS]; /* of the device that is reserved; of the rates of a group's clients */
    uint32_t k, j;
    tenants = 0;
    memset(group, 0, sizeof group);
    memset(sum, 0, sizeof sum);
    for (k = 0; k < WORLD_COHORTS; k++) {

        uint32_t count = (uint32_t)world_value(w, world_of(k, F_NUMBER));
        if (k == 0 && count == 0)
            count = 1;
        for (j = 0; j < count && tenants < CLIENTS; j++) {
            struct tenant *t = &tenant[tenants];
            struct world_client_config c;
            double one, rate, unit;
            memset(t, 0, sizeof *t);
            memset(&c, 0, sizeof c);
            t->cohort = k;
            t->terms.weight = (uint64_t)world_value(w, world_of(k, F_WEIGHT));
            c.sizes = (enum world_sizes)world_choice(w, world_of(k, F_SIZES));
            c.cost_min = (uint64_t)world_value(w, world_of(k, F_SIZE));
            c.cost_max = c.cost_min * (c.sizes == WORLD_ONE_SIZE ? 1 : 30);
            t->largest = (double)c.cost_max;
            one = world_value(w, F_SERVICE) * world_value(w, world_of(k, F_SPEED)); /* ns on a channel, of cost 1 */
            t->longest_ns = t->largest * one + 1;
            /* Reservations of a cohort take this part of one channel, if all requests are of the largest size. */
            rate = world_value(w, world_of(k, F_RESERVATION)) / 1000 / t->longest_ns / count;
            unit = counts_cost() ? t->largest : 1;
            t->terms.reservation_per_s = (uint64_t)(rate * unit * 1e9);
            if (world_choice(w, world_of(k, F_RESERVATION)) && t->terms.reservation_per_s == 0)
                t->terms.reservation_per_s = 1;
            t->reservation = (double)t->terms.reservation_per_s / 1e9;
            part += grouped() ? 0 : t->reservation / unit * t->longest_ns;
            if (rate <= 0)
                rate = 0.3 / t->longest_ns / count;
            if (world_choice(w, world_of(k, F_LIMIT))) {
                t->terms.limit_per_s = (uint64_t)(rate * unit * 1e6 * world_value(w, world_of(k, F_LIMIT)));
                if (t->terms.limit_per_s < t->terms.reservation_per_s)
                    t->terms.limit_per_s = t->terms.reservation_per_s;
                if (t->terms.limit_per_s == 0)
                    t->terms.limit_per_s = 1;
                t->limit = (double)t->terms.limit_per_s / 1e9;
            }
            c.arrivals = (enum world_arrivals)world_choice(w, world_of(k, F_ARRIVALS));
            c.outstanding = (uint32_t)(world_value(w, world_of(k, F_OUT)) * world_value(w, world_of(k, F_CROWD)));
            c.outstanding = c.outstanding > REQUESTS / 4 / count ? REQUESTS / 4 / count : c.outstanding;
            if (world_choice(w, F_AT_LIMIT) == TAGS_REJECT && c.outstanding > 1 + 100 / count)
                c.outstanding = 1 + 100 / count;
            c.backlog_max = REQUESTS / 4 / count;
            c.think_ns = (uint64_t)world_value(w, world_of(k, F_THINK)) * 1000;
            if (world_choice(w, F_AT_LIMIT) == TAGS_REJECT && c.think_ns == 0) /* who is refused comes again later */
                c.think_ns = (uint64_t)(world_value(w, F_SERVICE) * 1000) + run.end_ns / 200;
            if (world_choice(w, F_AT_LIMIT) == TAGS_REJECT && c.think_ns < run.end_ns / 1000000 * c.outstanding * count)
                c.think_ns = run.end_ns / 1000000 * c.outstanding * count; /* a million arrivals */
            c.interval_ns = (uint64_t)(1000 / rate / world_value(w, world_of(k, F_DEMAND))) + 1;
            if (c.arrivals == WORLD_BURSTS)
                c.interval_ns *= c.outstanding;
            if (c.arrivals == WORLD_ON_OFF) {
                c.interval_ns = c.interval_ns / 2 + 1;
                c.on_ns = c.off_ns = 10 * c.interval_ns;
            }
            c.start_ns = 1 + (uint64_t)((double)run.end_ns * world_value(w, world_of(k, F_START)) / 1000);
            draw_absence(w, k, world_choice(w, world_of(k, F_CHURN)) == 3, run.end_ns, &c);
            t->changes = world_choice(w, world_of(k, F_CHURN)) == 1 || world_choice(w, world_of(k, F_CHURN)) == 2;
            t->other_terms = world_choice(w, world_of(k, F_CHURN)) == 1;
            t->changes |= world_choice(w, world_of(k, F_CHURN)) == 5;
            t->lifted = world_choice(w, world_of(k, F_CHURN)) == 4;
            t->lies = world_choice(w, world_of(k, F_CLAIM)) > 0 && !use_reference &&
                      (!WORLD_TAGS_V02 || world_choice(w, F_MODE)); /* 0.2: under reward a lie has no effect */
            run.lies |= t->lies;
            run.other_terms |= t->other_terms;
            run.forces |= world_choice(w, world_of(k, F_FORCE)) > 0;
            run.cancels |= world_choice(w, world_of(k, F_CANCEL)) > 0 && !late(k);
            run.late |= world_choice(w, world_of(k, F_CANCEL)) > 0 && late(k);
            run.cancels |= run.undone;
            run.thinks |= c.think_ns > 0;
            world_client_init(&t->client, &c, w->seed, tenants);
            t->group = world_choice(w, F_GROUPED) == 2   ? tenants % WORLD_COHORTS
                       : world_choice(w, F_GROUPED) == 3 ? 0
                                                         : k;
            join_group(&group[t->group], t);
            sum[t->group] += rate * unit;
            tenants++;
        }
    }
    for (k = 0; k < WORLD_COHORTS; k++)
        part += draw_group(k, sum[k]);
    for (j = 0; j < tenants; j++) {
        struct group *g = &group[tenant[j].group];
        if (world_again == WORLD_PERMUTED)
            tenant[j].id = grouped() ? g->first + g->spare + g->members++ : 2 * j + 1;
        else
            tenant[j].id = grouped() ? g->first + g->members++ : j;
        tenant_of[tenant[j].id] = j;
        tenant[j].unlimited =
            (tenant[j].limit <= 0 && (!grouped() || g->limit <= 0)) || world_choice(w, F_AT_LIMIT) == TAGS_ALLOW;
    }
    run.all_fit = part + world_value(w, F_BY_WEIGHT) / 1000 <= 0.95 && world_choice(w, F_FASTER) != 3 &&
                  run.device_config.seek_ns == 0 && run.device_config.link_ns == 0;
}

/* Terms that change; clients that leave and come back; limits that are lifted. */
static void churn(uint32_t step)
{
    uint32_t i;
    for (i = 0; i < tenants && !use_reference; i++) {
        struct tenant *t = &tenant[i];
        uint32_t kind = world_choice(run.w, world_of(t->cohort, F_CHURN));
        struct tags_client terms = t->terms;
        terms.weight *= run.weight_scale;
        if (kind == 6 || (kind == 2 && step % 2))
            group[t->group].again = true;
        if (kind != 1 && kind != 2 && kind != 4)
            continue;
        if (kind == 1 && step % 2 && terms.reservation_per_s)
            terms.reservation_per_s = 1 + terms.reservation_per_s / 10;
        (void)note(TERMS, i, 0, (double)terms.reservation_per_s / 1e9);
        if (kind == 1 && step % 2)
            terms.weight *= 2;
        if (kind == 4 && step >= 3)
            terms.limit_per_s = 0;
        if (kind == 2 && world_choice(run.w, F_AT_LIMIT) != TAGS_REJECT) {
            rejoin(i);
        } else if (kind != 2 && tags_change(&tags, now_shown(), t->id, &terms) != QOS_OK) {
            world_fail(run.w, "admission", run.now, "terms that fit are refused");
        }
    }
}

#if WORLD_TAGS_V02 /* it had no groups, and was not told what a request had cost */
static void tell_cost(uint32_t id)
{
#ifdef TAGS_GRANT_COST /* mended */
    grant[id].cost = (uint32_t)request[id].cost;
#else
    (void)id;
#endif
}

static void again(void)
{
}

/* Where the queues are the scheduler's: an arrival without a request is refused, or does no harm. */
static void oracle_refused(void)
{
    if (intrusive() && tags_arrive(&tags, run.last_shown, tenant[run.steps / 16 % tenants].id, 1, 1) == QOS_EINVAL)
        run.refused++;
}

static void set_groups(struct tags_config *c)
{
    (void)c;
}

static void add_groups(void)
{
}
#else
static void tell_cost(uint32_t id)
{
    grant[id].cost = (uint32_t)request[id].cost;
}

static void set_groups(struct tags_config *c)
{
    const struct group *last = &group[WORLD_COHORTS - 1];
    if (!grouped())
        return;
    c->clients = last->first + last->places;
    c->groups = WORLD_COHORTS;
}

static uint32_t group_id(uint32_t k)
{
    const struct group *last = &group[WORLD_COHORTS - 1];
    return last->first + last->places + k;
}

static void add_group(uint32_t k)
{
    struct tags_client terms = group[k].terms;
    terms.weight *= run.weight_scale;
    if (group[k].members &&
        tags_group_add(&tags, now_shown(), group_id(k), &terms, group[k].first, group[k].places) != QOS_OK)
        world_fail(run.w, "admission", run.now, "a group is refused: %s", tags_client_error(&terms));
}

static void add_groups(void)
{
    uint32_t k;
    for (k = 0; k < WORLD_COHORTS && grouped(); k++)
        add_group(k);
}

/* Groups of which nothing is at the device are removed, and made again. */
static void again(void)
{
    uint32_t k, i;
    for (k = 0; k < WORLD_COHORTS && grouped() && world_choice(run.w, F_AT_LIMIT) != TAGS_REJECT; k++) {
        if (!group[k].again || group[k].at_device)
            continue;
        group[k].again = false;
        group[k].made_again++;
        for (i = 0; i < tenants; i++)
            if (tenant[i].group == k)
                leaves(i);
        if (tags_remove(&tags, now_shown(), group_id(k), NULL) != QOS_OK)
            world_fail(run.w, "admission", run.now, "an empty group cannot be removed");
        add_group(k);
        for (i = 0; i < tenants; i++)
            if (tenant[i].group == k)
                returns(i);
    }
}

/* `refused`: a call that makes no sense is refused, by the status beside it, and changes nothing. */
static void oracle_refused(void)
{
    static unsigned char *before;
    static size_t room;
    const size_t bytes = tags_memsize(&run.config);
    const uint32_t way = run.tries++ % 25, i = run.tries / 5 % tenants, id = tenant[i].id;
    const uint64_t now = run.last_shown;
    struct tags_client terms = tenant[i].terms;
    struct tags_choice c = {id, TAGS_PHASE_WEIGHT};
    struct tags_grant g = old_grant[run.tries % OLD], other;
    struct tags was = tags;
    struct tags_request r;
    struct tags_state state;
    struct qos_stats stats;
    uint32_t nobody = run.config.clients + run.config.groups;
    enum qos_status s = QOS_OK, wanted = QOS_OK;
    if (bytes > 65536)
        return;
    if (bytes > room) {
        free(before);
        before = (unsigned char *)world_alloc(room = bytes, 1);
    }
    memcpy(before, memory, bytes);
    memset(&r, 0, sizeof r);
    r.cost = 1;
    switch (way) {
    case 0: wanted = QOS_ENOENT, s = tags_arrive(&tags, now, nobody, 1, 1); break;
    case 1: wanted = QOS_ERANGE, s = tags_arrive(&tags, now, id, 0, 1); break;
    case 2: wanted = QOS_ERANGE, s = tags_arrive(&tags, now, id, 1, (uint64_t)run.cost_max + 1); break;
    case 3: wanted = QOS_ERANGE, s = tags_withdraw(&tags, now, id, 0); break;
    case 4: wanted = QOS_ERANGE, s = tags_withdraw(&tags, now, id, tenant[i].queued + 1); break;
    case 5: wanted = QOS_EEXIST, s = tags_add(&tags, now, id, &terms); break;
    case 6: wanted = QOS_ENOENT, s = tags_change(&tags, now, nobody, &terms); break;
    case 7:
        terms.weight = TAGS_WEIGHT_MAX + 1;
        wanted = QOS_ERANGE, s = tags_change(&tags, now, id, &terms);
        break;
    case 8:
        terms.limit_per_s = 1, terms.reservation_per_s = 2;
        wanted = QOS_ERANGE, s = tags_change(&tags, now, id, &terms);
        break;
    case 9: wanted = QOS_ENOENT, s = tags_remove(&tags, now, nobody, NULL); break;
    case 10: wanted = QOS_EINVAL, s = tags_push(&tags, now, id, &r); break;
    case 11: wanted = QOS_ENOENT, s = tags_force(&tags, now, nobody, 1, &other); break;
    case 12:
        if (run.at_device < run.depth)
            wanted = QOS_ERANGE, s = tags_force(&tags, now, id, (uint64_t)run.cost_max + 1, &other);
        break;
    case 13:
        if (tenant[i].queued == 0)
            wanted = QOS_EINVAL, s = tags_dispatch(&tags, now, &c, 1, 0, 0, &other);
        else if (run.at_device >= run.depth && !run.config.attribute) /* open: there it is a look at the device */
            wanted = QOS_EFULL, s = tags_dispatch(&tags, now, &c, 1, 0, 0, &other);
        break;
    case 14:
        if (tenant[i].queued)
            wanted = QOS_ERANGE, s = tags_dispatch(&tags, now, &c, (uint64_t)run.cost_max + 1, 0, 0, &other);
        break;
    case 15:
        if (tenant[i].queued)
            wanted = QOS_EINVAL, s = tags_dispatch(&tags, now, &c, 1, 2, 1, &other); /* rho above delta */
        break;
    case 16:
        c.client = nobody;
        wanted = QOS_ENOENT, s = tags_dispatch(&tags, now, &c, 1, 0, 0, &other);
        break;
    case 17: wanted = QOS_ENOENT, s = tags_info(&tags, nobody, &state); break;
    case 18:
        if (!run.config.count_by_client)
            wanted = QOS_EINVAL, s = tags_stats(&tags, id, &stats);
        break;
    case 19:
        if (grouped())
            wanted = QOS_EBUSY, s = tags_remove(&tags, now, group_id(tenant[i].group), NULL);
        break;
    case 20:
        if (grouped())
            wanted = QOS_EEXIST,
            s = tags_group_add(&tags, now, group_id(tenant[i].group), &terms, group[tenant[i].group].first, 8);
        break;
    case 24: /* a group reserves what its clients do */
        if (grouped() && tenant[i].terms.reservation_per_s) {
            terms = group[tenant[i].group].terms;
            terms.reservation_per_s = 0;
            wanted = QOS_EADMISSION, s = tags_change(&tags, now, group_id(tenant[i].group), &terms);
        }
        break;
    default: /* a grant that was given back before, by now perhaps of a slot that another one has */
        if (run.ends >= OLD)
            wanted = QOS_ESTALE, s = way == 21   ? tags_complete(&tags, now, &g, 1)
                                     : way == 22 ? tags_fail(&tags, now, &g, 1)
                                                 : tags_cancel(&tags, now, &g);
    }
    if (s != wanted)
        world_fail(run.w, "refused", run.now, "wrong call %" PRIu32 " of client %" PRIu32 ": %d, not %d", way, i,
                   (int)s, (int)wanted);
    else if (memcmp(&was, &tags, sizeof was) != 0 || memcmp(before, memory, bytes) != 0)
        world_fail(run.w, "refused", run.now, "wrong call %" PRIu32 " of client %" PRIu32 " has an effect", way, i);
}
#endif

static void setup(struct world *w)
{
    struct world_clock_config clock;
    struct world_device_config *d = &run.device_config;
    struct tags_config c;
    uint32_t i, f = world_choice(w, F_CLOCK);
    double largest = 1;
    bool stops = world_value(w, F_PAUSE) > 1000 && world_value(w, F_SERVICE) >= 100;
    memset(&clock, 0, sizeof clock);
    memset(d, 0, sizeof *d);
    clock.fault = (enum world_clock_fault)f;
    clock.drift_ppm = (int32_t)world_value(w, F_DRIFT);
    clock.by_ns = f == WORLD_CLOCK_JUMP    ? 3600 * WORLD_NS_PER_S
                  : f == WORLD_CLOCK_LEAPS ? 10 * WORLD_NS_PER_S
                  : f == WORLD_CLOCK_STALL ? 5 * MS
                                           : 1;
    clock.at_ns = run.end_ns / 3;
    world_clock_init(&run.clock, &clock, (uint64_t)world_value(w, F_BASE) + run.base_shift, w->seed, 1);
    run.jumped = f == WORLD_CLOCK_JUMP || f == WORLD_CLOCK_LEAPS;
    run.accounts = run.w->seed % 4 != 0; /* with counters of single clients */
    run.fifo_clock = f == WORLD_CLOCK_TRUE && clock.drift_ppm == 0;
    d->channels = (uint32_t)world_value(w, F_CHANNELS);
    d->hashed = world_choice(w, F_HASHED) == 1;
    d->order = (enum world_order)world_choice(w, F_CHOICE);
    d->spread = (enum world_spread)world_choice(w, F_SPREAD);
    d->pause_ns = (uint64_t)world_value(w, F_PAUSE) * MS;
    d->pause_every_ns = d->pause_ns ? (uint64_t)world_value(w, F_PAUSE_EVERY) * MS : 0;
    if (d->pause_every_ns && (stops || d->pause_every_ns < d->pause_ns + 100 * MS))
        d->pause_every_ns = 2 * d->pause_ns;
    if (stops && run.end_ns < 3 * d->pause_every_ns) /* such a stop is met */
        run.end_ns = 3 * d->pause_every_ns;
    run.depth = (uint32_t)world_value(w, F_DEPTH);
    run.pauses = *d;
    if (world_choice(w, F_CREDIT))
        d->capacity = 4000; /* while it has some */
    draw_device(w, run.end_ns, d);
    run.calm = d->pause_ns == 0 && d->hangs == 0;
    run.undone = d->hangs && (world_choice(w, F_HANG_ENDS) || world_choice(w, F_HANG) == 3);
    run.serial = !d->shares && d->link_ns == 0;
    run.steady = d->step_every_ns == 0 && d->credit_ns == 0 && d->seek_ns == 0;
    run.ps = world_choice(w, F_MODE) == 0 || use_reference;
    world_rng_init(&run.rng, w->seed, 78);
    draw_tenants();
    world_device_init(&run.device, d, w->seed);
    for (i = 0; i < tenants; i++)
        largest = tenant[i].largest > largest ? tenant[i].largest : largest;
    run.limit_burst_ns = world_value(w, F_LIMIT_BURST) * 1e6;
    run.lag_ns = world_value(w, F_LAG) * 1e6;
    run.estimate_ns = world_value(w, F_SERVICE) * 1000;
    if (use_reference) {
        memset(&reference, 0, sizeof reference);
        memset(reference_client, 0, sizeof reference_client);
        reference.client = reference_client;
        reference.clients = tenants;
        reference.allow = world_choice(w, F_AT_LIMIT) == TAGS_ALLOW;
        reference.limit_burst_ns = run.limit_burst_ns;
        reference.lag_ns = run.lag_ns;
        reference.lead = world_value(w, F_LEAD);
        for (i = 0; i < tenants; i++) {
            reference_client[i].weight = (double)tenant[i].terms.weight;
            reference_client[i].reservation = tenant[i].reservation;
            reference_client[i].limit = tenant[i].limit;
            reference_client[i].room = 1 + tenant[i].limit * run.limit_burst_ns;
        }
        return;
    }
    memset(&c, 0, sizeof c);
    c.clients = world_again == WORLD_PERMUTED ? 2 * tenants : tenants;
    c.cost_max = (uint64_t)largest;
    run.cost_max = largest;
    set_groups(&c);
    c.at_device_max = run.depth;
    c.mode = run.ps ? TAGS_PS : TAGS_REWARD;
    c.at_limit = (enum tags_at_limit)world_choice(w, F_AT_LIMIT);
    c.count_cost = counts_cost();
    c.intrusive = intrusive();
    c.attribute = !run.ps && run.depth > 1;
    c.channels = c.attribute && world_choice(w, F_TOLD) ? d->channels : 0;
    c.limit_burst_ns = run.limit_burst_ns > 0 ? (uint64_t)run.limit_burst_ns : QOS_NOTHING;
    c.reserve_lag_ns = (uint64_t)run.lag_ns;
    c.lead_requests = (uint32_t)world_value(w, F_LEAD);
    c.service_ns = (uint64_t)(world_value(w, F_SERVICE) * 1000);
    c.count_by_client = !run.ps || run.accounts;
    c.weight_share_permille = (uint32_t)world_value(w, F_BY_WEIGHT);
    c.moves_max = (uint32_t)world_value(w, F_MOVES);
    c.force_debt_requests = world_value(w, F_DEBT) > 0 ? (uint64_t)world_value(w, F_DEBT) : QOS_NOTHING;
    if (tags_memsize(&c) > memory_bytes) {
        free(memory);
        memory_bytes = tags_memsize(&c);
        memory = (unsigned char *)aligned_alloc(QOS_CACHE_LINE, (memory_bytes + 63) / 64 * 64);
    }
    if (tags_init(&tags, memory, tags_memsize(&c) - 1, &c) != QOS_EMEMORY)
        world_fail(w, "init", 0, "memory that is too small is taken");
    if (tags_init(&tags, memory, memory_bytes, &c) != QOS_OK) {
        world_fail(w, "init", 0, "%s", tags_config_error(&c) ? tags_config_error(&c) : "refused");
        return;
    }
    run.config = c;
    run.begin_shown = now_shown();
    add_groups();
    for (i = 0; i < tenants; i++) {
        struct tags_client terms = tenant[i].terms;
        terms.weight *= run.weight_scale;
        if (tags_add(&tags, now_shown(), tenant[i].id, &terms) != QOS_OK)
            world_fail(w, "admission", 0, "a client is refused: %s", tags_client_error(&terms));
        world_trace_promise(i, tenant[i].reservation);
    }
}

/* `idle`: while the device has room, a request that no limit holds back does not wait. */
static void oracle_idle(void)
{
    uint32_t i;
    if (run.at_device >= run.depth || run.unlimited == 0 || run.jumped)
        return;
    for (i = 0; i < tenants; i++)
        if (tenant[i].queued && tenant[i].unlimited)
            world_fail(run.w, "idle", run.now, "the device has room, and client %" PRIu32 " waits below its limit", i);
}

static void completed(const struct world_io *io)
{
    uint32_t id = io->id;
    uint64_t service = io->end_ns - io->begin_ns;
    double work =
        run.device_config.pause_ns ? world_device_could_ns(&run.pauses, io->begin_ns, io->end_ns) : (double)service;
    journal[logged[id]].time_ns = work;
    journal[logged[id]].long_ns = (double)service;
    if ((double)service > tenant[owner[id]].stalled_ns)
        tenant[owner[id]].stalled_ns = (double)service;
    if (!io->hung && work > tenant[owner[id]].longest_ns)
        tenant[owner[id]].longest_ns = work;
    tenant[owner[id]].all_ns += (double)service;
    if (!run.draining)
        tenant[owner[id]].used_ns += (double)service;
    tell_cost(id);
    if (!use_reference && tags_complete(&tags, now_shown(), &grant[id], service) != QOS_OK)
        world_fail(run.w, "once", run.now, "a completion is refused");
    ended(id);
}

#if WORLD_TAGS_V02
static void oracle_accounts(void)
{
}
#else
/* `told`: what tags_info and tags_stats say is what happened: of all, and of each client that has counters. */
static void oracle_accounts(void)
{
    struct tags_state s, one, sum;
    struct qos_stats stats;
    uint64_t reserved = 0;
    uint32_t i, p;
    memset(&sum, 0, sizeof sum);
    if (use_reference)
        return;
    for (i = 0; i < tenants; i++) {
        reserved += grouped() ? 0 : tenant[i].terms.reservation_per_s;
        if (tags_info(&tags, tenant[i].id, &one) != QOS_OK || one.queued != tenant[i].queued ||
            one.at_device != tenant[i].at_device) {
            world_fail(run.w, "told", run.now,
                       "of client %" PRIu32 " %" PRIu32 " wait and %" PRIu32 " are at the device", i, tenant[i].queued,
                       tenant[i].at_device);
            return;
        }
        for (p = 0; p < TAGS_PHASES; p++)
            sum.served[p] += one.served[p];
        sum.cancelled += one.cancelled;
    }
    if (tags_info(&tags, QOS_NONE, &s) != QOS_OK || s.queued != run.queued || s.at_device != run.at_device ||
        s.cancelled != run.cancelled || memcmp(s.served, run.served, sizeof s.served) != 0) {
        world_fail(run.w, "told", run.now,
                   "%" PRIu32 " wait and %" PRIu32 " are at the device, %" PRIu64 " were cancelled", run.queued,
                   run.at_device, run.cancelled);
        return;
    }
    if (run.config.count_by_client &&
        (memcmp(sum.served, run.served, sizeof s.served) != 0 || sum.cancelled != run.cancelled))
        world_fail(run.w, "told", run.now, "the counters of the clients are not those of all");
    for (i = 0; i < WORLD_COHORTS && grouped(); i++)
        reserved += group[i].members ? group[i].terms.reservation_per_s : 0;
    if (!run.other_terms && s.reserved_per_s != reserved)
        world_fail(run.w, "told", run.now, "%" PRIu64 " are reserved, not %" PRIu64, reserved, s.reserved_per_s);
    if (tags_stats(&tags, QOS_NONE, &stats) != QOS_OK || stats.granted != run.granted || stats.borrowed != run.borrowed)
        world_fail(run.w, "told", run.now, "%" PRIu64 " granted and %" PRIu64 " borrowed, not %" PRIu64 " and %" PRIu64,
                   run.granted, run.borrowed, stats.granted, stats.borrowed);
}
#endif

/* A request that was lost on its way, or hangs, is cancelled; or a lost one ends late. */
static void gives_up(uint32_t id)
{
    const bool ends = late(tenant[owner[id]].cohort);
    if (!ends) {
        journal[logged[id]].cancelled = true;
        run.cancelled++;
        if (!run.draining)
            tenant[owner[id]].given -= (double)request[id].cost;
    }
    world_trace(run.now, owner[id], "cancels", request[id].cost);
    if ((ends ? tags_complete(&tags, now_shown(), &grant[id], request[id].service_ns)
              : tags_cancel(&tags, now_shown(), &grant[id])) != QOS_OK)
        world_fail(run.w, "once", run.now, "a cancel is refused");
    ended(id);
}

static void hung_ends(const struct world_io *io, bool cancelled)
{
    struct tenant *t = &tenant[owner[io->id]];
    if ((double)(io->end_ns - io->begin_ns) > t->stalled_ns)
        t->stalled_ns = (double)(io->end_ns - io->begin_ns);
    if (!cancelled)
        completed(io);
    else if (use_reference)
        ended(io->id);
    else
        gives_up(io->id);
}

static void one_run(struct world *w)
{
    uint64_t told_ns = WORLD_NEVER, step = 1, from = w->events, t;
    bool too_long = false;
    double most;
    uint32_t i;
    world_goes_on(0);
    memset(&run, 0, sizeof run);
    run.w = w;
    /* Tags do not go back before 0 ns: near it, what is given back may be 1 ns less. So `shifted` begins later. */
    run.base_shift = world_again == WORLD_SHIFTED                          ? WORLD_SHIFT_NS
                     : world_choice(w, F_AGAIN) == (uint32_t)WORLD_SHIFTED ? 10 * WORLD_NS_PER_S
                                                                           : 0;
    run.weight_scale = world_again == WORLD_SCALED ? 499999 : 1;
    run.reference_at = -1;
    run.choked_ns = WORLD_NEVER;
    run.end_ns = (uint64_t)world_value(w, F_LENGTH) * MS;
    most =
        world_value(w, F_SERVICE) * 1000 * (world_choice(w, F_LENGTH) == 3 ? 50000 : 3000); /* most worlds are short */
    run.end_ns = (double)run.end_ns > most ? (uint64_t)most : run.end_ns;
    journal_count = 0;
    for (unused_count = 0; unused_count < REQUESTS; unused_count++)
        unused[unused_count] = REQUESTS - 1 - unused_count;
    setup(w);
    for (i = 0; i < tenants; i++) {
        tenant[i].wakes_ns = WORLD_NEVER;
        wake(i, world_client_next_ns(&tenant[i].client));
    }
    while (!w->broken) {
        struct world_io io;
        struct world_event e;
        uint64_t next = world_device_next_ns(&run.device), told = world_clock_when(&run.clock, told_ns);
        bool polled = false, happened = false;
        if (use_reference)
            told = run.reference_at >= 0 ? (uint64_t)run.reference_at + 1 : WORLD_NEVER;
        t = world_queue_next_ns(&run.wakes);
        next = t < next ? t : next;
        t = world_queue_next_ns(&run.hung);
        next = t < next ? t : next;
        next = told < next ? told : next;
        if (step < 6 && run.end_ns * step / 6 < next && !run.draining)
            next = run.end_ns * step / 6;
        if (!run.draining && next >= run.end_ns) {
            run.draining = true;
            next = run.end_ns;
        }
        if (next == WORLD_NEVER)
            break;
        if (run.draining && (next > run.end_ns + 1000 * WORLD_NS_PER_S || w->events - from > 3000000)) {
            too_long = true;
            break;
        }
        if (world_choice(w, F_POLL) && next > run.now + 1 && world_rand(&run.rng) % 8 == 0) {
            next = world_between(&run.rng, run.now + 1, next - 1);
            polled = true;
        }
        run.now = next > run.now ? next : run.now + (run.fifo_clock ? 1 : 1000);
        world_goes_on(run.now);
        w->events++;
        run.device.config.hangs = run.draining ? 0 : run.device.config.hangs;
        while (run.draining && world_choice(w, F_HANG) == 3 && world_device_abort(&run.device, run.now, &io)) {
            hung_ends(&io, true);
            happened = true;
        }
        while (world_device_take(&run.device, run.now, &io)) {
            if (io.hung)
                hung_ends(&io, world_choice(w, F_HANG_ENDS) == 1);
            else
                completed(&io);
            happened = true;
            w->events++;
        }
        while (world_queue_take(&run.hung, run.now, &e)) {
            run.hung_count--;
            gives_up(e.index);
            happened = true;
        }
        while (step < 6 && run.now >= run.end_ns * step / 6) {
            oracle_accounts();
            churn((uint32_t)step++);
            happened = true;
        }
        while (world_queue_take(&run.wakes, run.now, &e)) {
            struct tenant *c = &tenant[e.index];
            struct world_request q;
            if (e.at_ns != c->wakes_ns)
                continue;
            c->wakes_ns = WORLD_NEVER;
            while (!run.draining && unused_count > 1 && world_client_next(&c->client, run.now, &q)) {
                make(e.index, &q);
                happened = true;
                w->events++;
            }
            t = run.draining ? WORLD_NEVER : world_client_next_ns(&c->client);
            wake(e.index, t > run.now ? t : run.now + 1000);
        }
        again();
        force_urgent();
        i = dispatch();
        if (i > 0 && polled && !happened && run.now < told && run.fifo_clock && !use_reference)
            world_fail(w, "next", run.now, "a client could be served %" PRIu64 " ns before the told time",
                       told - run.now);
        if (i == 0 && !happened && run.now == told && run.fifo_clock && !use_reference && run.at_device < run.depth)
            world_fail(w, "next", run.now, "at the told time nobody can be served");
        if (run.hung_count >= run.depth && run.choked_ns == WORLD_NEVER)
            run.choked_ns = run.now;
        oracle_idle();
        if (world_choice(w, F_WRONG) && run.fifo_clock && !use_reference && ++run.steps % 16 == 0)
            oracle_refused();
        told_ns = use_reference ? 0 : run.at_device < run.depth ? tags_next_ns(&tags, run.shown) : WORLD_NEVER;
        if (world_choice(w, F_POLL) && run.at_device >= run.depth && !use_reference &&
            tags_next_ns(&tags, run.shown) <= run.shown)
            world_fail(w, "next", run.now, "the device is full, and it is told to come now");
        if (use_reference && run.at_device >= run.depth)
            run.reference_at = -1;
        if (run.draining && run.at_device == 0 && run.queued == 0)
            break;
    }
    if (run.queued && !w->broken && !too_long)
        world_fail(w, "progress", run.now, "%" PRIu32 " requests still wait", run.queued);
    if (!w->broken && !too_long && unused_count != REQUESTS)
        world_fail(w, "once", run.now, "%" PRIu32 " requests never ended", REQUESTS - unused_count);
    judge_journal();
    for (i = 0; i < tenants; i++)
        world_client_free(&tenant[i].client);
    world_device_free(&run.device);
    world_queue_free(&run.wakes);
    world_queue_free(&run.hung);
}

/* Worlds of 0.2: few are long runs by weight; in some a cohort with a limit forces much, or one loses requests that end
 * late. */
static void draw_v02(struct world *w, struct world_rng *r)
{
    static const uint32_t forces[] = {F_LIMIT, F_FORCE, F_ARRIVALS, F_DEMAND};
    static const uint32_t late[] = {F_RESERVATION, F_ARRIVALS, F_CANCEL, F_CANCEL_AFTER};
    const uint32_t *of = w->seed % 8 == 5 ? forces : late;
    uint32_t i, k = (uint32_t)world_between(r, 0, WORLD_COHORTS - 1);
    w->choice[F_KIND] = 0;
    if (w->seed % 4096 == 3) {
        memset(w->choice, 0, sizeof w->choice);
        w->choice[F_KIND] = 1;
        w->choice[F_STEPS] = 3;
    }
    if (w->seed % 4 != 1)
        return;
    for (i = 0; i < 4; i++)
        w->choice[world_of(k, of[i])] = (uint8_t)world_between(r, 1, world_field[world_of(k, of[i])].values - 1);
    if (of == late) {
        w->choice[F_DEPTH] = (uint8_t)world_between(r, 1, 3);
        w->choice[world_of(k, F_TOGETHER)] = 2;
        w->choice[world_of(k, F_OUT)] = (uint8_t)world_between(r, 2, 4);
        w->choice[world_of((k + 1) % WORLD_COHORTS, F_RESERVATION)] = (uint8_t)world_between(r, 1, 2);
    }
}

/* Devices, links and requests of the later fields; in half of these worlds with little else. */
static void draw_later(struct world *w, struct world_rng *r)
{
    static const uint32_t often[] = {F_LENGTH, F_SERVICE, F_DEPTH, F_CHANNELS, F_MODE, F_TOLD};
    static const uint32_t of_cohort[] = {F_OUT, F_RESERVATION, F_WEIGHT, F_SIZES};
    uint32_t i, k;
    const bool little = world_chance(r, 500);
    if (little)
        memset(w->choice, 0, sizeof w->choice);
    w->choice[F_KIND] = 0;
    world_draw_later(w, r);
    for (i = 0; little && i < sizeof often / sizeof *often; i++)
        w->choice[often[i]] = (uint8_t)world_between(r, 0, world_field[often[i]].values - 1);
    for (k = 0; little && k < WORLD_COHORTS; k++)
        for (i = 0; i < sizeof of_cohort / sizeof *of_cohort; i++)
            w->choice[world_of(k, of_cohort[i])] =
                (uint8_t)world_between(r, 0, world_field[world_of(k, of_cohort[i])].values - 1);
}

/* Most worlds are programs of calls; in these, what matters is likely to be there. */
static void draw_kind(struct world *w, struct world_rng *r)
{
    static const uint32_t often[] = {F_STEPS, F_INTRUSIVE, F_MODE,  F_AT_LIMIT,  F_COUNT_COST, F_LIMIT_BURST,
                                     F_LAG,   F_LEAD,      F_CLOCK, F_BY_WEIGHT, F_MOVES,      F_DEBT};
    static const uint32_t of_cohort[] = {F_NUMBER, F_LIMIT, F_RESERVATION, F_WEIGHT};
    uint32_t i, k;
    if (WORLD_TAGS_V02) {
        draw_v02(w, r);
        return;
    }
    if (w->seed % 32 == 1) {
        draw_later(w, r);
        return;
    }
    w->choice[F_KIND] = w->seed % 4 != 0;
    for (i = 0; w->choice[F_KIND] && i < sizeof often / sizeof *often; i++)
        if (world_chance(r, 400))
            w->choice[often[i]] = (uint8_t)world_between(r, 0, world_field[often[i]].values - 1);
    for (k = 0; w->choice[F_KIND] && k < WORLD_COHORTS; k++)
        for (i = 0; i < sizeof of_cohort / sizeof *of_cohort; i++)
            if (world_chance(r, 500))
                w->choice[world_of(k, of_cohort[i])] =
                    (uint8_t)world_between(r, 0, world_field[world_of(k, of_cohort[i])].values - 1);
}

static void world_run(struct world *w)
{
    if (world_choice(w, F_KIND))
        k_run(w);
    else
        one_run(w);
}

/* `shifted`, `permuted`: no time is special, and an id is a name, to the last request; but the least id is first of those that
 * are equal, so the others have the same order. `scale_free`: only ratios of weights matter, up to rounding. When requests
 * change places, who thinks draws other times, and hashed channels are busy at others: chance, by the square root of their
 * number; what those who think leave is chance for all. Who loses its requests is chance, and what is lost holds up its
 * client; who has no other request left comes back when a tie has decided who is next. Who goes on and off has at each return one
 * request before, or after, those that wait; and the others have what it leaves. */
static double world_again_slack(const struct world *w, uint32_t client, double got)
{
    double chance = 0, one = 0, times = 1;
    uint32_t i;
    if (world_choice(w, F_KIND))
        return -1;
    if (world_again != WORLD_SCALED)
        return 0;
    for (i = 0; i < tenants; i++)
        if (tenant[i].client.config.arrivals == WORLD_CLOSED && tenant[i].client.config.outstanding <= run.depth)
            return -1;
    if (client == WORLD_ALL || run.cancels || run.late || run.device_config.hangs || run.device_config.seek_ns ||
        world_choice(w, F_SPREAD) != 0 || !run.calm || !run.fifo_clock)
        return -1;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        chance += t->client.config.think_ns ? t->given * t->largest : 0;
        one = fmax(one, t->largest / (double)t->terms.weight); /* one request more, or less, goes before the end */
        if (t->client.config.away_every_ns)
            times += (double)run.end_ns / (double)t->client.config.away_every_ns;
    }
    return 0.05 * got + 8 * tenant[client].largest + times * one * (double)tenant[client].terms.weight +
           (run.thinks || run.device_config.hashed ? 2 * sqrt(chance + got * tenant[client].largest) : 0);
}

#if WORLD_TAGS_V02 /* it did not say */
static void accounts(void)
{
}
#else
/* The accounts of reward on one of the devices of the world: of each client the time that it was charged, its part of the
 * time that the device worked, and by what part of all the charges are wrong. */
static void accounts_of(uint32_t channels, const char *hashed, const char *order, const char *told)
{
    struct world w;
    struct tags_state all, s;
    char text[400];
    double charged[3], used[3], off = 0, sum = 0;
    uint32_t i;
    (void)snprintf(text, sizeof text,
                   "seed=1 length_ms=20000 at_device=64 channels=%" PRIu32 " hashed=%s device_order=%s spread=30 "
                   "mode=reward told_channels=%s a.clients=2 a.outstanding=200 b.clients=1 b.outstanding=200 "
                   "b.service_of=500 c.clients=0",
                   channels, hashed, order, told);
    if (!world_read(&w, text))
        return;
    one_run(&w);
    if (tags_info(&tags, QOS_NONE, &all) != QOS_OK || tenants != 3)
        return;
    for (i = 0; i < 3; i++) {
        if (tags_info(&tags, tenant[i].id, &s) != QOS_OK)
            return;
        charged[i] = (double)s.device_ns / 1e6;
        used[i] = tenant[i].all_ns / channels / 1e6;
        off += fabs(charged[i] - used[i]);
        sum += used[i];
    }
    printf("%8" PRIu32 " %6s %8s %4s %7.0f%7.0f%7.0f %7.0f%7.0f%7.0f %9.2f %8.2f ", channels, hashed, order, told,
           charged[0], charged[1], charged[2], used[0], used[1], used[2], tenant[0].given / tenant[1].given,
           tenant[2].given / (tenant[0].given + tenant[1].given) * 2);
    if (all.by_time)
        printf("%6.1f %%%s\n", 50 * off / sum, all.as_serial ? " taken for serial" : "");
    else
        printf("%8s\n", "by cost");
}

static void accounts(void)
{
    static const char *const orders[] = {"in_order", "elevator", "shortest", "any", "nearest"};
    static const uint32_t channels[] = {1, 2, 8, 32};
    uint32_t c, h, o;
    printf("three clients that always wait, the last needs half the time; 64 requests at the device; ms. equal: "
           "requests of\n"
           "the first two; half: of the last to one of them, 2 is reward\n%8s %6s %8s %4s %21s %21s %9s %8s %8s\n",
           "channels", "hashed", "order", "told", "charged", "used", "equal", "half", "wrong");
    world_fields();
    for (c = 0; c < 4; c++)
        for (h = 0; h < (c ? 2 : 1); h++)
            for (o = 0; o < 5; o++)
                accounts_of(channels[c], h ? "yes" : "no", orders[o], "yes");
    for (c = 0; c < 4; c++)
        accounts_of(channels[c], "no", "any", "no");
}
#endif

int main(int argc, char **argv)
{
    static const struct world_open open[] = {{0, NULL}};
    if (argc > 1 && strcmp(argv[1], "--accounts") == 0) {
        accounts();
        return 0;
    }
    return world_main(argc, argv, "tests/world/tags.worlds", 12000, open);
}
