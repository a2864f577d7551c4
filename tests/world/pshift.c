// proves: pshift.h keeps its promises in worlds that nobody drew for it: controllers, servers and a store that are killed,
// proves: paused, cut off and started again with other clocks, messages that are lost, late, repeated and damaged, by seed;
// proves: and its solver on chains, rings and random rows beside a plain max flow, its scheduler and its agent each alone. The
// proves: oracles are written from the first page
// flags: -DPSHIFT_SHARD_ENTRIES=64 -DPSHIFT_WINDOW_ROWS=4
#ifndef WORLD_SERVERS /* 1: servers run a scheduler of their own; world/pshift_servers.c includes this file */
#define WORLD_SERVERS 0
#define WORLD_HEADER "pshift"
#define WORLD_REFERENCE
#define WORLD_AGAIN "no shifted permuted"
#define WORLD_AGAIN_PERMILLE 200
#define WORLD_LATER F_AGAIN
#define WORLD_LATER_COHORT F_COHORT
#define WORLD_OWN(X)                                                                                                   \
    X(MODE, "mode", "cluster chain ring random queues agent")                                                          \
    X(REFUSED, "refused", "no calls solves both")                                                                      \
    X(COUNTS, "counts", "small largest")
#define WORLD_OWN_LATER(X) X(AGAIN, "again", WORLD_AGAIN)
#define WORLD_OWN_COHORT(X)
#define WORLD_BUCKETS "0 1 2 4"
#endif
#define WORLD_FIELDS(X)                                                                                                \
    WORLD_OWN(X)                                                                                                       \
    X(LENGTH, "periods", "12 6 30 60")                                                                                 \
    X(SERVERS, "servers", "3 1 2 5 8 11")                                                                              \
    X(CONTROLLERS, "controllers", "1 2 3")                                                                             \
    X(INTERVALS, "intervals", "8 3 20")                                                                                \
    X(TAKES, "periods_a_swap", "1 2 5")                                                                                \
    X(CAPACITY, "capacity", "200 20 2000")                                                                             \
    X(UNCHANGED, "unchanged", "0 20 200")                                                                              \
    X(LOST, "lost", "0 20 200 700")                                                                                    \
    X(REPEATED, "repeated", "0 50 500")                                                                                \
    X(DAMAGED, "damaged", "0 20 200")                                                                                  \
    X(LATE, "late", "0 50 300")                                                                                        \
    X(LATE_BY, "late_by", "500 1500 6000")                                                                             \
    X(DELAY, "delay", "0 5 60")                                                                                        \
    X(CUTS, "cuts", "0 2 10")                                                                                          \
    X(SERVER_RUNS, "server_runs", "0 10000 2000 300")                                                                  \
    X(CONTROLLER_RUNS, "controller_runs", "0 5000 1500 200")                                                           \
    X(DOWN, "down", "10 300 2500")                                                                                     \
    X(PAUSE, "pause", "0 100 1200 5000")                                                                               \
    X(STORE_SLOW, "store_slow", "0 30 400 1500")                                                                       \
    X(STORE_LOST, "store_lost", "0 100 500")                                                                           \
    X(STORE_GONE, "store_gone", "0 1500 4000")                                                                         \
    X(DRIFT, "drift_ppm", "0 100")                                                                                     \
    X(GROWS, "grows", "no yes")                                                                                        \
    X(SHRINKS, "shrinks", "no yes")                                                                                    \
    X(QUIET, "quiet", "8 20")                                                                                          \
    WORLD_OWN_LATER(X)
#define WORLD_COHORT(X)                                                                                                \
    X(NUMBER, "buckets", WORLD_BUCKETS)                                                                                \
    X(RESERVED, "reserved", "200 0 50 300")                                                                            \
    X(LIMIT, "limit", "2000 0 1000 1100 5000 nothing")                                                                 \
    X(DEMAND, "demand", "2000 1000 500 10000")                                                                         \
    X(SPREAD, "spread", "all one two")                                                                                 \
    X(ON_OFF, "on_off", "no yes")                                                                                      \
    X(FORCE, "forced", "0 30")                                                                                         \
    X(CLOSE, "closed", "no yes")                                                                                       \
    X(CHURN, "churn", "none change lower")                                                                             \
    WORLD_OWN_COHORT(X)
#if WORLD_SERVERS
#include "device_fields.h"
#else
#include "world_test.h"
#endif
/* The flags above: the largest counts, parts of the rows and windows are met in small problems. */
#include "pshift.h"
#include "examples/world/clocks.h"
#include "examples/world/networks.h"

#define SERVERS 12u
#define CONTROLLERS 3u
#define BUCKETS 12u
#define T UINT64_C(1000000000) /* a period; scale is in counts */
#define STEPS 40u              /* serving steps of a period */
#define PERIODS 4096u
#define DEBT 8u
#define NONE UINT32_MAX
#ifndef WORLD_V02 /* the header is that of version 0.2 */
#define WORLD_V02 0
#endif

enum kind { STEP, INTERVAL, ROUND, AGAIN, KILL, START, STORE, REPLY, CUT, PAUSE, CHANGE, HELD, SERVE };

#if !WORLD_V02
/* A server or a controller. */
struct node {
    bool up, gone;
    uint64_t life, paused_ns, boots, boot_ns; /* life: its events of a former one count no more */
    struct world_clock clock;
    struct qos_u128 nonce;
};

struct server {
    struct node node;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    uint32_t queue[BUCKETS];
    bool open[BUCKETS], forced[BUCKETS], closed; /* closed: some bucket, since its start */
    uint64_t capacity, arrived[BUCKETS], served[BUCKETS], cancelled[BUCKETS];
    double credit, due[BUCKETS];
};

struct controller {
    struct node node;
    struct pshift_controller controller;
    struct pshift_owner owner;
    uint64_t period;               /* that it began last */
    uint64_t asked_ns;             /* when it asked the store last */
    bool waits, again;             /* a reply of the store is outstanding; a round will be repeated */
    struct qos_u128 boot[SERVERS]; /* start of the server whose report was merged last */
    uint64_t sent[SERVERS][BUCKETS],
        confirmed[SERVERS][BUCKETS]; /* grants of this period: the newest that names the bucket */
    bool heard[SERVERS];             /* a report was merged since the last round */
    bool spoke[SERVERS];             /* a report came */
};

struct bucket {
    uint32_t cohort;
    uint64_t id, reservation, limit, limit_was, changed_ns; /* limit: QOS_UNLIMITED none, QOS_NOTHING */
    double rate[SERVERS];                                   /* requests per period that arrive at each server */
    bool at[SERVERS];
    struct taken {
        uint64_t at_ns, n;
    } * journal;
    size_t taken, room, first; /* first: begin of the window */
    uint64_t in_window;
};

/* What the world knows of a period number. */
struct period {
    uint64_t number, from_ns, until_ns; /* when its tokens may be spent, true time */
    struct qos_u128 nonce;              /* whose it is */
    uint64_t served[BUCKETS], forced[BUCKETS];
    uint64_t waits[BUCKETS][SERVERS]; /* requests, when it began */
    bool owned, begun;
};

static struct server server[SERVERS];
static struct controller controller[CONTROLLERS];
static struct bucket bucket[BUCKETS];
static struct period periods[PERIODS];
static unsigned char memory[SERVERS + CONTROLLERS][1 << 19] __attribute__((aligned(64)));
static unsigned char queues[SERVERS][1 << 15] __attribute__((aligned(64)));
#endif
static uint64_t digest;

static struct {
    struct world *w;
    struct world_rng rng;
    struct world_network network;
    struct world_queue due;
    uint64_t now, end_ns, quiet_ns, W, nonces, disturbed_ns, swapped_ns, most_periods;
    uint32_t servers, controllers, buckets, k;
    double drift;
    bool quiet;
    /* the store: one key */
    uint64_t number, gone_ns;
    struct qos_u128 nonce;
    /* operations under way: slots */
    struct op {
        uint32_t controller;
        uint64_t life, expected, number; /* number 0: a read */
        struct qos_u128 nonce;
        bool used;
    } op[256];
    /* packets that a paused node has not read */
    struct held {
        uint32_t to;
        size_t size;
        uint8_t *bytes;
    } held[4096];
    uint32_t helds;
} run;

#if WORLD_SERVERS
static void serve_draw(void);                     /* more buckets */
static void serve_start(uint32_t j);              /* server j starts */
static void serve_grant(uint32_t j);              /* its tokens, or their time, changed */
static void serve_forced(uint32_t j, uint32_t i); /* a request of bucket i goes at once */
static void serve(uint32_t j);                    /* something happened */
static double serve_slack(uint32_t i);            /* requests of its reservation that bucket i may miss in a period */
#endif

static void fold(uint64_t x)
{
    digest = check_wrap_mul(digest ^ x, UINT64_C(0x100000001b3));
}

/* Buckets have other ids. */
static uint32_t place_of(uint32_t i, uint32_t n)
{
    return world_again == WORLD_PERMUTED ? n - 1 - i : i;
}

static uint64_t shift_ns(void)
{
    return world_again == WORLD_SHIFTED ? WORLD_SHIFT_NS : 0;
}

static bool same(struct qos_u128 a, struct qos_u128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static uint64_t of_T(double permille)
{
    return (uint64_t)((double)T * permille / 1000);
}

/* ---- a plain maximum flow (Edmonds, Karp, 1972): source, buckets, servers, sink --------------------------------------------- */

__extension__ typedef unsigned __int128 wide;
#define ROWS (BUCKETS * 4)
#define NODES (2 + ROWS + SERVERS)
static wide flow_room[NODES][NODES];

static wide max_flow(uint32_t nodes)
{
    wide flow = 0;
    for (;;) {
        uint32_t from[NODES], list[NODES], first = 0, count = 1, v;
        wide least = ~(wide)0;
        for (v = 0; v < nodes; v++)
            from[v] = NONE;
        list[0] = 0;
        from[0] = 0;
        while (first < count && from[nodes - 1] == NONE) {
            uint32_t u = list[first++];
            for (v = 0; v < nodes; v++)
                if (from[v] == NONE && flow_room[u][v]) {
                    from[v] = u;
                    list[count++] = v;
                }
        }
        if (from[nodes - 1] == NONE)
            return flow;
        for (v = nodes - 1; v != 0; v = from[v])
            least = flow_room[from[v]][v] < least ? flow_room[from[v]][v] : least;
        for (v = nodes - 1; v != 0; v = from[v]) {
            flow_room[from[v]][v] -= least;
            flow_room[v][from[v]] += least;
        }
        flow += least;
    }
}

/* Phi of a problem: the most tokens that can be consumed. */
static wide most_tokens(const struct pshift_problem *p)
{
    uint32_t i, e, nodes = 2 + p->buckets + p->servers;
    memset(flow_room, 0, sizeof flow_room);
    for (i = 0; i < p->buckets; i++) {
        wide all = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            flow_room[1 + i][1 + p->buckets + p->server[e]] += p->demand[e];
            all += p->demand[e];
        }
        flow_room[0][1 + i] = all < p->reservation[i] ? all : p->reservation[i];
    }
    for (i = 0; i < p->servers; i++)
        flow_room[1 + p->buckets + i][nodes - 1] = p->capacity[i];
    return max_flow(nodes);
}

static struct qos_u128 narrow(wide n)
{
    struct qos_u128 v;
    v.hi = (uint64_t)(n >> 64);
    v.lo = (uint64_t)n;
    return v;
}

/* What the numbers of a solution must be, from its allocation and its cut. */
struct account {
    wide tokens, unclaimed, phi, cut_capacity, cut_demand;
    uint32_t cut_servers, row;
    const char *wrong; /* with this row; NULL: each is prudent and has its sum */
};

static struct account account_of(const struct pshift_problem *p, const struct pshift_solution *s)
{
    wide load[SERVERS] = {0};
    struct account a;
    uint32_t i, e;
    memset(&a, 0, sizeof a);
    for (i = 0; i < p->buckets; i++) {
        wide row = 0, all = 0, outside = 0, want;
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            if (s->alloc[e] > p->demand[e]) {
                a.wrong = "it gets more than its demand";
                a.row = i;
            }
            row += s->alloc[e];
            all += p->demand[e];
            load[p->server[e]] += s->alloc[e];
            outside += s->cut[p->server[e]] ? 0 : p->demand[e];
        }
        want = all < p->reservation[i] ? all : p->reservation[i];
        if (row != want) {
            a.wrong = "its tokens are not the smaller of reservation and demand";
            a.row = i;
        }
        a.tokens += want;
        a.unclaimed += p->reservation[i] - want;
        a.cut_demand += want < outside ? want : outside;
    }
    for (i = 0; i < p->servers; i++) {
        a.phi += load[i] < p->capacity[i] ? load[i] : p->capacity[i];
        a.cut_capacity += s->cut[i] ? p->capacity[i] : 0;
        a.cut_servers += s->cut[i];
    }
    return a;
}

static bool equals(struct qos_u128 said, wide is)
{
    return said.hi == (uint64_t)(is >> 64) && said.lo == (uint64_t)is;
}

#include "pshift_reference.h"

/* Are all its numbers those of the account? */
static bool numbers_right(const struct account *a, const struct pshift_solution *s)
{
    return equals(s->tokens, a->tokens) && equals(s->unclaimed, a->unclaimed) && equals(s->effective, a->phi) &&
           equals(s->excess, a->tokens - a->phi) && equals(s->cut_capacity, a->cut_capacity) &&
           equals(s->cut_demand, a->cut_demand) && s->cut_servers == a->cut_servers;
}

/* Promise `max_flow`, `certificate`: the result is a maximum flow, its rows are prudent, its numbers are right, and its cut proves
 * it. A cut that equals Phi is the proof, so the flow itself is computed only if there is none, and now and then. Promise `binds`:
 * a bucket depends on the cut if the servers outside of it cannot take its tokens. */
static void judge_solution(const struct pshift_problem *p, const struct pshift_solution *s)
{
    static uint32_t turn;
    const struct account a = account_of(p, s);
    const wide cut = a.cut_capacity + a.cut_demand;
    uint32_t i, e;
    if (a.wrong)
        world_fail(run.w, "certificate", run.now, "bucket %" PRIu32 ": %s", a.row, a.wrong);
    if (cut != a.phi || ++turn % 64 == 0) {
        const wide most = most_tokens(p);
        if (a.phi != most)
            world_fail(run.w, "max_flow", run.now, "%.0f tokens are consumed, %.0f are possible", (double)a.phi,
                       (double)most);
    }
    for (i = 0; i < p->buckets && !use_reference; i++) {
        wide all = 0, outside = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            all += p->demand[e];
            outside += s->cut[p->server[e]] ? 0 : p->demand[e];
        }
        all = all < p->reservation[i] ? all : p->reservation[i];
        if (pshift_solution_binds(s, i, p) != (outside < all))
            world_fail(run.w, "binds", run.now,
                       "outside of the cut bucket %" PRIu32 " may get %.0f, of %.0f, and is said to need %s", i,
                       (double)outside, (double)all, outside < all ? "none of it" : "it");
    }
    if (!numbers_right(&a, s))
        world_fail(run.w, "certificate", run.now, "the solution says Phi = %.0f, excess %.0f; they are %.0f, %.0f",
                   (double)s->effective.lo, (double)s->excess.lo, (double)a.phi, (double)(a.tokens - a.phi));
    if (!s->exact || cut != a.phi)
        world_fail(run.w, "certificate", run.now, "the cut is %.0f, Phi %.0f", (double)cut, (double)a.phi);
    fold((uint64_t)a.phi);
}

#if !WORLD_V02 /* 0.2 elected its controllers itself: of it the solver alone is judged */

/* ---- oracles of the cluster ---------------------------------------------------------------------------------------------------- */

static uint64_t limit_of(const struct bucket *b, uint64_t since_ns)
{
    uint64_t l = b->limit, was = b->limit_was;
    if (b->changed_ns + 2 * T < since_ns || !b->changed_ns)
        return l;
    return l == QOS_NOTHING ? was : was == QOS_NOTHING ? l : l > was ? l : was;
}

static struct period *period_of(uint64_t number)
{
    struct period *p = &periods[number % PERIODS];
    if (p->number != number) {
        memset(p, 0, sizeof *p);
        p->number = number;
    }
    return p;
}

/* Server j served a request of bucket i in the period that its agent names. */
static void took(uint32_t j, uint32_t i, bool forced)
{
    struct bucket *b = &bucket[i];
    struct pshift_agent_state info;
    struct period *p;
    uint64_t l, extra;
    uint32_t k;
    (void)pshift_agent_info(&server[j].agent, &info);
    p = period_of(info.period);
    l = limit_of(b, run.now);
    fold(run.now ^ (uint64_t)i << 48 ^ (uint64_t)j << 56);
    world_trace(run.now, i, "given", 1);
    world_got(run.now, i, j);
    server[j].served[i]++;
    if (forced)
        p->forced[i]++;
    else
        p->served[i]++;
    if (l == QOS_UNLIMITED)
        return;
    /* Promise `isolation`: a bucket spends its own tokens only. */
    if (l == QOS_NOTHING && !forced)
        world_fail(run.w, "isolation", run.now, "bucket %" PRIu32 " has nothing, and server %" PRIu32 " serves it", i,
                   j);
    if (l == QOS_NOTHING)
        return;
    /* Promise `period_limit`: at most L in a period. Forced ones may exceed it by the debt at most. */
    for (extra = 0, k = 0; k < run.servers; k++)
        extra += DEBT * server[k].node.boots;
    if (p->owned && run.now <= p->until_ns &&
        ((!forced && p->served[i] > l) || p->served[i] + p->forced[i] > l + extra))
        world_fail(run.w, "period_limit", run.now,
                   "bucket %" PRIu32 ": %" PRIu64 " and %" PRIu64 " forced in period %" PRIu64 ", limit %" PRIu64, i,
                   p->served[i], p->forced[i], info.period, l);
    if (forced)
        return;
    /* Promise `after_end`: tokens of a period are spent between its swap and T later. */
    if (!p->owned || run.now > p->until_ns || run.now < p->from_ns)
        world_fail(run.w, "after_end", run.now,
                   "bucket %" PRIu32 " at server %" PRIu32 ": a token of period %" PRIu64 ", which %s %.6f ms ago", i,
                   j, info.period, p->owned ? "ended" : "nobody owns",
                   p->owned ? (double)((int64_t)run.now - (int64_t)p->until_ns) / 1e6 : 0.0);
    /* Promise `window`: at most 2 L in any window of T, less the drift. */
    b->journal = (struct taken *)world_grow(b->journal, b->taken, &b->room, sizeof *b->journal);
    b->journal[b->taken].at_ns = run.now;
    b->journal[b->taken++].n = 1;
    b->in_window++;
    while (b->journal[b->first].at_ns + run.W <= run.now) {
        b->in_window -= b->journal[b->first].n;
        b->first++;
    }
    if (b->in_window > 2 * l)
        world_fail(run.w, "window", run.now, "bucket %" PRIu32 ": %" PRIu64 " in a window of T, limit %" PRIu64, i,
                   b->in_window, l);
}

/* Requests of bucket i that wait at server j. */
static uint64_t waiting(uint32_t j, uint32_t i)
{
    return server[j].arrived[i] - server[j].served[i] - server[j].cancelled[i];
}

/* What a bucket of cohort k wants is not the same in each period. */
static bool on_and_off(uint32_t k)
{
#if WORLD_SERVERS
    if (world_choice(run.w, world_of(k, F_ON)) || world_choice(run.w, world_of(k, F_CROWD)))
        return true;
#endif
    return world_choice(run.w, world_of(k, F_ON_OFF)) != 0;
}

/* Promise `reservation`, in periods without any fault: who wants it, and whose reservations fit with a fifth to spare, gets
 * it; a server that is silent costs others nothing. A bucket that closes and opens queues, or pauses, may want all that it
 * reserved at any one of its servers, and what waits when the period begins is wanted where it waits: what is reserved must fit there.
 * Of a server's capacity a fifth is spare, and what no token can use: half an interval until the controller's next round begins
 * the period, and an interval at its end, as tokens end before it by the age of the report that their grant answers. A bucket
 * for which nothing waits when the next period begins had all that it wanted. Called when period `number` is over. */
static void judge_period(uint64_t number)
{
    const struct period *p = period_of(number), *before = period_of(number - 1), *after = period_of(number + 1);
    const bool changed = !before->owned || !same(before->nonce, p->nonce);
    const uint64_t intervals = (uint64_t)world_value(run.w, F_INTERVALS),
                   used = intervals < 8 ? 1000 - 1500 / intervals : 800;
    uint64_t taken[SERVERS] = {0};
    wide sum = 0, phi;
    uint32_t i, j, nodes = 2 + run.buckets + run.servers;
    if (!run.quiet || p->from_ns < run.quiet_ns + 3 * T || !p->owned)
        return;
    memset(flow_room, 0, sizeof flow_room);
    for (i = 0; i < run.buckets; i++) {
        double all = 0;
        for (j = 0; j < run.servers; j++)
            if (world_choice(run.w, world_of(bucket[i].cohort, F_CLOSE)) || on_and_off(bucket[i].cohort)) {
                taken[j] += bucket[i].at[j] ? bucket[i].reservation : 0;
            } else if (bucket[i].at[j] && server[j].node.up) {
                uint64_t d = (uint64_t)(bucket[i].rate[j] * 0.9) + p->waits[i][j];
                flow_room[1 + i][1 + run.buckets + j] = d;
                all += (double)d;
            }
        flow_room[0][1 + i] = (double)bucket[i].reservation < all ? bucket[i].reservation : (uint64_t)all;
        sum += flow_room[0][1 + i];
    }
    for (j = 0; j < run.servers; j++) {
        uint64_t room = server[j].node.up ? server[j].capacity * used / 1000 : 0;
        flow_room[1 + run.buckets + j][nodes - 1] = room > taken[j] ? room - taken[j] : 0;
    }
    phi = max_flow(nodes);
    if (phi < sum)
        return; /* not all fit */
    for (i = 0; i < run.buckets; i++) {
        double want = 0, got = (double)(p->served[i] + p->forced[i]), slack = 2.0 * run.servers + 2;
        uint32_t k = bucket[i].cohort;
        uint64_t waits = 0;
#if WORLD_SERVERS
        slack += serve_slack(i);
#endif
        for (j = 0; j < run.servers; j++)
            want += bucket[i].at[j] && server[j].node.up ? bucket[i].rate[j] * 0.9 : 0;
        for (j = 0; j < run.servers; j++)
            waits += after->begun ? after->waits[i][j] : waiting(j, i);
        if (want > got + (double)waits)
            want = got + (double)waits;
        if (want > (double)bucket[i].reservation)
            want = (double)bucket[i].reservation;
        /* A change of owners costs at most its period, in tokens under limits; without a fault, too: who asks first has it. */
        if (changed && bucket[i].limit != QOS_UNLIMITED)
            continue;
        if (bucket[i].limit == QOS_NOTHING || on_and_off(k) || world_choice(run.w, world_of(k, F_CLOSE)) ||
            world_choice(run.w, world_of(k, F_FORCE)))
            continue;
        if (got + slack < want * 0.97)
            world_fail(run.w, "reservation", run.now,
                       "bucket %" PRIu32 ": %.0f of %" PRIu64 " in period %" PRIu64 ", wanted %.0f", i, got,
                       bucket[i].reservation, number, want);
    }
}

static uint32_t bucket_of(uint64_t id)
{
    return place_of((uint32_t)((id - 1) / UINT64_C(0x1000193)), BUCKETS);
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------------- */

static struct node *node_of(uint32_t n)
{
    return n < SERVERS ? &server[n].node : &controller[n - SERVERS].node;
}

static uint64_t clock_of(struct node *n)
{
    return world_clock_read(&n->clock, run.now);
}

/* A start: another nonce, and a clock that shows anything. */
static void boot(uint32_t number)
{
    struct node *n = node_of(number);
    struct world_clock_config config;
    memset(&config, 0, sizeof config);
    config.drift_ppm = ((int32_t)world_between(&run.rng, 0, 2) - 1) * (int32_t)run.drift;
    world_clock_init(&n->clock, &config, world_scale(&run.rng, 1, UINT64_C(1) << 60) + shift_ns(), run.w->seed, number);
    n->nonce.hi = run.w->seed;
    n->nonce.lo = ++run.nonces;
    n->up = true;
    n->life++;
    n->boots++;
    n->boot_ns = run.now;
    n->paused_ns = 0;
}

static void later(uint32_t kind, uint32_t number, uint64_t in_ns)
{
    world_queue_add(&run.due, run.now + in_ns, kind, number);
}

static void send_to(uint32_t from, uint32_t to, const void *bytes, size_t size)
{
    world_network_send(&run.network, run.now, from, to, bytes, size);
}

/* -- a server */

static void open_bucket(uint32_t j, uint32_t i)
{
    struct server *s = &server[j];
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    enum qos_status status;
    if (s->open[i] || !bucket[i].at[j])
        return;
    status = pshift_agent_open(&s->agent, bucket[i].id, &s->queue[i]);
    if (status == QOS_EFULL && s->closed)
        return; /* a queue is free once its period is over and its debt is paid */
    if (status != QOS_OK) {
        world_fail(run.w, "open", run.now, "server %" PRIu32 " has no queue for bucket %" PRIu32, j, i);
        return;
    }
    /* Promise `isolation`: a queue that another bucket had brings neither its debt nor its weight. */
    (void)pshift_scheduler_info(&s->scheduler, s->queue[i], &info);
    if ((info.debt && !s->forced[i]) || (info.weight != 1 && info.weight != 2 + i))
        world_fail(run.w, "isolation", run.now,
                   "bucket %" PRIu32 " gets a queue with a debt of %" PRIu64 " and the weight %" PRIu32, i, info.debt,
                   info.weight);
    (void)!pshift_scheduler_change(&s->scheduler, s->queue[i], 2 + i);
    s->open[i] = true;
}

static void server_start(uint32_t j)
{
    struct server *s = &server[j];
    struct pshift_scheduler_config sc = {run.buckets ? run.buckets : 1, DEBT};
    struct pshift_agent_config ac;
    uint32_t i;
    boot(j);
    memset(&ac, 0, sizeof ac);
    ac.scheduler = &s->scheduler;
    ac.server = j;
    ac.boot = s->node.nonce;
    ac.period_ns = T;
    ac.unchanged_permille = (uint32_t)world_value(run.w, F_UNCHANGED);
    if (pshift_scheduler_memsize(&sc) > sizeof queues[j] || pshift_agent_memsize(&ac) > sizeof memory[j] ||
        pshift_scheduler_init(&s->scheduler, queues[j], sizeof queues[j], &sc) != QOS_OK ||
        pshift_agent_init(&s->agent, memory[j], sizeof memory[j], &ac) != QOS_OK) {
        world_fail(run.w, "init", run.now, "a configuration within the ranges is refused");
        return;
    }
    for (i = 0; i < BUCKETS; i++) {
        s->open[i] = s->forced[i] = s->closed = false;
        s->arrived[i] = s->served[i] = s->cancelled[i] = 0;
        s->due[i] = 0;
    }
    for (i = 0; i < run.buckets; i++)
        open_bucket(j, i);
    s->credit = 0;
#if WORLD_SERVERS
    serve_start(j);
#endif
    later(STEP, j | (uint32_t)(s->node.life & 0xffffff) << 8, T / STEPS + world_between(&run.rng, 0, T / STEPS));
    later(INTERVAL, j | (uint32_t)(s->node.life & 0xffffff) << 8, world_between(&run.rng, 1, T / 50));
}

/* All that the agent has to say goes to all controllers. */
static void report(uint32_t j)
{
    struct server *s = &server[j];
    struct pshift_message m;
    struct pshift_report_entry entry[8];
    uint8_t bytes[1024];
    size_t size;
    uint32_t c, n;
    for (n = 0; n < 64 && pshift_agent_report(&s->agent, &m, entry, 8) == QOS_OK; n++) {
        struct pshift_agent_state info;
        uint64_t shown = clock_of(&s->node);
        (void)pshift_agent_info(&s->agent, &info);
        m.capacity = info.ends_ns > shown ? (uint64_t)((double)s->capacity * (double)(info.ends_ns - shown) / (double)T)
                                          : s->capacity;
        if (pshift_report_encode(&m, entry, bytes, sizeof bytes, &size) != QOS_OK) {
            world_fail(run.w, "wire", run.now, "a report of %" PRIu32 " entries cannot be encoded", m.count);
            return;
        }
        for (c = 0; c < run.controllers; c++)
            send_to(j, SERVERS + c, bytes, size);
    }
}

static void server_receive(uint32_t j, const uint8_t *bytes, size_t size)
{
    struct server *s = &server[j];
    struct pshift_message m;
    struct pshift_grant_entry entry[64];
    if (pshift_grant_decode(bytes, size, &m, entry, 64) != QOS_OK)
        return;
    if (pshift_agent_install(&s->agent, clock_of(&s->node), &m, entry) == QOS_OK)
        report(j);
#if WORLD_SERVERS
    serve_grant(j);
#endif
}

/* Requests arrive, and the device serves. */
static void server_step(uint32_t j)
{
    struct server *s = &server[j];
    uint64_t shown = clock_of(&s->node);
    uint32_t i, n;
    for (i = 0; i < run.buckets; i++) {
        const struct bucket *b = &bucket[i];
        uint32_t k = b->cohort;
        struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
        bool on = !world_choice(run.w, world_of(k, F_ON_OFF)) || (run.now / (3 * T) + i) % 2 == 0, crowd = true;
#if WORLD_SERVERS
        on &= !world_choice(run.w, world_of(k, F_ON)) ||
              run.now / 1000000 / (uint64_t)world_value(run.w, world_of(k, F_ON)) % 2 == 0;
        crowd = !world_choice(run.w, world_of(k, F_CROWD)) || world_rand(&run.rng) % 20 == 0; /* of 20 steps, in one */
#endif
        if (!s->open[i]) {
            if (world_choice(run.w, world_of(k, F_CLOSE)) && world_rand(&run.rng) % 40 == 0)
                open_bucket(j, i);
            continue;
        }
        s->due[i] += on ? b->rate[j] / STEPS : 0;
        n = crowd ? (uint32_t)s->due[i] : 0;
        s->due[i] -= n;
        if (n && pshift_scheduler_arrive(&s->scheduler, s->queue[i], n) != QOS_OK)
            world_fail(run.w, "arrive", run.now, "requests are refused");
        s->arrived[i] += n;
        (void)pshift_scheduler_info(&s->scheduler, s->queue[i], &info);
        if (info.pending > 2 * s->capacity + 10) { /* an impatient queue */
            n = (uint32_t)(info.pending - 2 * s->capacity - 10);
            (void)!pshift_scheduler_cancel(&s->scheduler, s->queue[i], n);
            s->cancelled[i] += n;
        }
        if (info.pending && world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(k, F_FORCE))) &&
            pshift_scheduler_force(&s->scheduler, shown, s->queue[i]) == QOS_OK) {
            s->forced[i] = true;
            took(j, i, true);
#if WORLD_SERVERS
            serve_forced(j, i);
#endif
        }
        if (world_choice(run.w, world_of(k, F_CLOSE)) && world_rand(&run.rng) % 40 == 0) {
            (void)pshift_scheduler_info(&s->scheduler, s->queue[i], &info);
            (void)!pshift_scheduler_cancel(&s->scheduler, s->queue[i], info.pending);
            s->cancelled[i] += info.pending;
            if (pshift_agent_close(&s->agent, b->id) != QOS_OK)
                world_fail(run.w, "close", run.now, "an empty queue cannot be closed");
            s->open[i] = false;
            s->closed = true;
        }
    }
#if WORLD_SERVERS
    serve(j);
#else
    s->credit += (double)s->capacity / STEPS;
    if (s->credit > (double)s->capacity / STEPS + 1)
        s->credit = (double)s->capacity / STEPS + 1;
    while (s->credit >= 1) {
        struct pshift_pick pick;
        if (pshift_scheduler_pick(&s->scheduler, shown, &pick) != QOS_OK)
            break;
        for (i = 0; i < run.buckets && !(s->open[i] && s->queue[i] == pick.queue); i++) {
        }
        if (i == run.buckets) {
            world_fail(run.w, "once", run.now, "queue %" PRIu32 " of server %" PRIu32 " is nobody's", pick.queue, j);
            return;
        }
        s->credit -= 1;
        took(j, i, false);
        if (s->served[i] + s->cancelled[i] > s->arrived[i])
            world_fail(run.w, "once", run.now, "bucket %" PRIu32 ": more requests served than arrived", i);
    }
#endif
}

/* -- a controller */

static void controller_start(uint32_t c)
{
    struct controller *x = &controller[c];
    struct pshift_controller_config cc;
    struct pshift_owner_config oc;
    uint32_t i;
    boot(SERVERS + c);
    memset(&cc, 0, sizeof cc);
    memset(&oc, 0, sizeof oc);
    cc.servers = SERVERS;
    cc.buckets = 2 * BUCKETS;
    cc.records = SERVERS * BUCKETS * 2;
    cc.nonce = oc.nonce = x->node.nonce;
    cc.period_ns = oc.period_ns = T;
    oc.periods = run.k;
    x->period = 0;
    x->waits = x->again = false;
    memset(x->boot, 0, sizeof x->boot);
    memset(x->sent, 0, sizeof x->sent);
    memset(x->confirmed, 0, sizeof x->confirmed);
    memset(x->heard, 0, sizeof x->heard);
    memset(x->spoke, 0, sizeof x->spoke);
    x->asked_ns = 0;
    if (pshift_controller_memsize(&cc) > sizeof memory[0] ||
        pshift_controller_init(&x->controller, memory[SERVERS + c], sizeof memory[0], &cc) != QOS_OK ||
        pshift_owner_init(&x->owner, &oc) != QOS_OK) {
        world_fail(run.w, "init", run.now, "a configuration within the ranges is refused");
        return;
    }
    for (i = 0; i < run.buckets; i++)
        if (pshift_controller_change(&x->controller, bucket[i].id, bucket[i].reservation, bucket[i].limit) != QOS_OK)
            world_fail(run.w, "contract", run.now, "a contract within the ranges is refused");
    later(ROUND, (SERVERS + c) | (uint32_t)(x->node.life & 0xffffff) << 8, world_between(&run.rng, 1, T / 20));
}

/* Promise `repeats`: a lost grant costs one interval. What a server has not confirmed is said again in the next round after its
 * report. */
static void judge_repeats(const struct controller *x, uint32_t j, const bool *named)
{
    uint32_t i;
    for (i = 0; i < run.buckets && x->heard[j]; i++)
        if (x->sent[j][i] > x->confirmed[j][i] && !named[i])
            world_fail(run.w, "repeats", run.now,
                       "server %" PRIu32 " has not confirmed grant %" PRIu64 " of bucket %" PRIu32
                       ", and the next round does not repeat it",
                       j, x->sent[j][i], i);
}

/* What a report that was merged confirms. */
static void confirms(struct controller *x, const struct pshift_message *m, const struct pshift_report_entry *entry)
{
    const uint32_t j = m->server;
    uint32_t k;
    if (!same(x->boot[j], m->boot)) {
        x->boot[j] = m->boot;
        memset(x->sent[j], 0, sizeof x->sent[j]);
        memset(x->confirmed[j], 0, sizeof x->confirmed[j]);
    }
    x->heard[j] = m->period == x->period;
    for (k = 0; k < m->count && x->heard[j]; k++) {
        uint64_t *at = &x->confirmed[j][bucket_of(entry[k].bucket)];
        *at = entry[k].grant_seq > *at ? entry[k].grant_seq : *at;
    }
}

/* Promise `contract`: each plan is of the contracts that were set last: what is left of each reservation, under the limit. */
static void judge_contracts(const struct controller *x, const struct pshift_problem *p)
{
    struct pshift_bucket_state info;
    uint32_t i;
    for (i = 0; i < run.buckets; i++) {
        const struct bucket *b = &bucket[i];
        const uint64_t limit = b->limit == QOS_NOTHING ? 0 : b->limit;
        uint64_t left;
        if (pshift_controller_bucket_info(&x->controller, b->id, &info) != QOS_OK)
            continue;
        left = b->reservation > info.served ? b->reservation - info.served : 0;
        if (info.reservation != b->reservation || info.limit != limit || info.row >= p->buckets ||
            p->reservation[info.row] > left || (limit == QOS_UNLIMITED && p->reservation[info.row] < left))
            world_fail(run.w, "contract", run.now,
                       "bucket %" PRIu32 " was served %" PRIu64 " of %" PRIu64 ", and the plan is for %" PRIu64, i,
                       info.served, b->reservation, info.row < p->buckets ? p->reservation[info.row] : 0);
    }
}

/* Promise `info`: a plan solves all rows if it is cold, else some of them; of servers that have reported a start may be
 * awaited, and of no others. */
static void judge_info(const struct controller *x, const struct pshift_problem *p)
{
    struct pshift_controller_state info;
    uint32_t j, may = 0;
    (void)pshift_controller_info(&x->controller, &info);
    for (j = 0; j < run.servers; j++)
        may += x->spoke[j];
    if (info.cold ? info.planned_buckets != p->buckets : info.planned_buckets > p->buckets)
        world_fail(run.w, "info", run.now, "a %s plan of %" PRIu32 " rows says that it solved %" PRIu32,
                   info.cold ? "cold" : "warm", p->buckets, info.planned_buckets);
    if (info.awaited > may)
        world_fail(run.w, "info", run.now, "%" PRIu32 " servers are said to be awaited, at most %" PRIu32 " are",
                   info.awaited, may);
}

static void plan(uint32_t c)
{
    struct controller *x = &controller[c];
    struct pshift_message m;
    struct pshift_grant_entry entry[8];
    struct pshift_problem problem;
    struct pshift_solution solution;
    uint8_t bytes[1024];
    size_t size;
    uint32_t j, n;
    if (pshift_controller_plan(&x->controller, NULL) != QOS_OK)
        return;
    if (pshift_controller_certificate(&x->controller, &problem, &solution) == QOS_OK) {
        judge_info(x, &problem);
        judge_solution(&problem, &solution);
        judge_contracts(x, &problem);
    }
    for (j = 0; j < run.servers; j++) {
        bool named[BUCKETS] = {false};
        uint64_t sent[BUCKETS];
        memcpy(sent, x->sent[j], sizeof sent);
        for (n = 0; n < 64 && pshift_controller_grant(&x->controller, clock_of(&x->node), j, &m, entry, 8) == QOS_OK;
             n++) {
            uint32_t k;
            for (k = 0; k < m.count; k++) {
                const uint32_t i = bucket_of(entry[k].bucket);
                named[i] = true;
                sent[i] = m.seq;
            }
            if (pshift_grant_encode(&m, entry, bytes, sizeof bytes, &size) != QOS_OK) {
                world_fail(run.w, "wire", run.now, "a grant of %" PRIu32 " entries cannot be encoded", m.count);
                return;
            }
            send_to(SERVERS + c, j, bytes, size);
        }
        if (n) /* none if the period is over */
            judge_repeats(x, j, named);
        memcpy(x->sent[j], sent, sizeof sent);
        x->heard[j] = false;
    }
}

/* Asks the store: a swap, if the owner says so, else a read. */
static void ask_store(uint32_t c, uint64_t swap)
{
    struct controller *x = &controller[c];
    uint32_t s;
    for (s = 0; s < 256 && run.op[s].used; s++) {
    }
    if (s == 256)
        return;
    run.op[s].used = true;
    run.op[s].controller = c;
    run.op[s].life = x->node.life;
    run.op[s].expected = x->owner.seen;
    run.op[s].number = swap;
    run.op[s].nonce = x->node.nonce;
    x->waits = true;
    x->asked_ns = run.now;
    later(STORE, s, world_between(&run.rng, 0, of_T(run.quiet ? 1 : world_value(run.w, F_STORE_SLOW))));
}

static void owner_turn(uint32_t c)
{
    struct controller *x = &controller[c];
    uint64_t shown = clock_of(&x->node), number;
    if (x->waits && run.now < x->asked_ns + T / 4)
        return;
    x->waits = false;
    switch (pshift_owner_ask(&x->owner, shown, &number)) {
    case QOS_OK: ask_store(c, number); break;
    case QOS_EBUSY: ask_store(c, 0); break;
    default: ask_store(c, 0); break;
    }
}

static void controller_round(uint32_t c)
{
    struct controller *x = &controller[c];
    uint64_t number, start, shown;
    uint32_t i, j;
    owner_turn(c);
    shown = clock_of(&x->node);
    if (pshift_owner_holds(&x->owner, shown, &number, &start) != QOS_OK)
        return;
    if (number != x->period) {
        struct period *p = period_of(number);
        /* Promise `owner`: at most one controller owns a period. */
        if (!p->owned || !same(p->nonce, x->node.nonce))
            world_fail(run.w, "owner", run.now, "controller %" PRIu32 " holds period %" PRIu64 ", which %s", c, number,
                       p->owned ? "is another's" : "it never took");
        if (pshift_controller_begin(&x->controller, start, number) != QOS_OK)
            world_fail(run.w, "begin", run.now, "period %" PRIu64 " cannot begin", number);
        p->begun = true;
        for (i = 0; i < run.buckets; i++)
            for (j = 0; j < run.servers; j++)
                p->waits[i][j] = waiting(j, i);
        if (x->period)
            judge_period(x->period);
        x->period = number;
        memset(x->sent, 0, sizeof x->sent);
        memset(x->confirmed, 0, sizeof x->confirmed);
        memset(x->heard, 0, sizeof x->heard);
        world_trace(run.now, 90 + c, "period", number);
    }
    plan(c);
}

static void controller_receive(uint32_t c, const uint8_t *bytes, size_t size)
{
    struct controller *x = &controller[c];
    struct pshift_message m;
    struct pshift_report_entry entry[64];
    struct pshift_controller_state info;
    if (pshift_report_decode(bytes, size, &m, entry, 64) != QOS_OK)
        return;
    x->spoke[m.server % SERVERS] = true;
    if (pshift_controller_report(&x->controller, clock_of(&x->node), &m, entry) != QOS_OK)
        return;
    confirms(x, &m, entry);
    (void)pshift_controller_info(&x->controller, &info);
    if (x->period && (info.withheld || info.awaited) && !x->again) { /* the round is repeated, once for all answers */
        x->again = true;
        later(AGAIN, (SERVERS + c) | (uint32_t)(x->node.life & 0xffffff) << 8, T / 500);
    }
}

/* -- the store */

static void store_performs(uint32_t s)
{
    struct op *op = &run.op[s];
    uint32_t k;
    if (run.now < run.gone_ns && world_chance(&run.rng, 700)) {
        op->used = false; /* it never arrives */
        return;
    }
    if (op->number && op->expected == run.number) {
        run.number = op->number;
        run.nonce = op->nonce;
        run.swapped_ns = run.now;
        world_trace(run.now, 80 + op->controller, "swap", op->number);
        for (k = 0; k < run.k; k++) {
            struct period *p = period_of(op->number - run.k + 1 + k);
            memset(p->served, 0, sizeof p->served);
            p->owned = true;
            p->nonce = op->nonce;
            p->from_ns = run.now > T && k ? run.now - T : run.now;
            if (k)
                p->from_ns = run.now;
            p->until_ns = run.now + (k + 1) * T + (uint64_t)(2 * run.drift / 1e6 * (double)((k + 1) * T)) + 2;
        }
    }
    if (!run.quiet && (run.now < run.gone_ns || world_chance(&run.rng, (uint32_t)world_value(run.w, F_STORE_LOST)))) {
        op->used = false;
        return;
    }
    op->number = run.number;
    op->nonce = run.nonce;
    later(REPLY, s, world_between(&run.rng, 0, of_T(run.quiet ? 1 : world_value(run.w, F_STORE_SLOW))));
}

static void store_replies(uint32_t s)
{
    struct op *op = &run.op[s];
    struct controller *x = &controller[op->controller];
    op->used = false;
    if (!x->node.up || x->node.life != op->life)
        return;
    x->waits = false;
    pshift_owner_saw(&x->owner, clock_of(&x->node), op->number, op->nonce);
}

/* ---- a world --------------------------------------------------------------------------------------------------------------------- */

static void receive(uint32_t to, const uint8_t *bytes, size_t size)
{
    if (!node_of(to)->up)
        return;
    if (to < SERVERS)
        server_receive(to, bytes, size);
    else
        controller_receive(to - SERVERS, bytes, size);
}

static void event(const struct world_event *e)
{
    struct node *n = e->kind == STEP || e->kind == INTERVAL || e->kind == ROUND || e->kind == AGAIN || e->kind == SERVE
                         ? node_of(e->index & 0xff)
                         : NULL;
    uint32_t i, number = e->index & 0xff;
    uint64_t runs;
    if (n && (!n->up || (e->index >> 8) != (n->life & 0xffffff)))
        return;
    if (n && n->paused_ns > run.now) { /* what is due while it stands still comes after */
        world_queue_add(&run.due, n->paused_ns, e->kind, e->index);
        return;
    }
    switch ((enum kind)e->kind) {
    case STEP:
        server_step(number);
        world_queue_add(&run.due, run.now + T / STEPS, STEP, e->index);
        break;
    case INTERVAL: pshift_agent_measure(&server[number].agent, clock_of(n)); report(number);
#if WORLD_SERVERS
        serve_grant(number);
#endif
        world_queue_add(&run.due, run.now + T / (uint64_t)world_value(run.w, F_INTERVALS), INTERVAL, e->index);
        break;
    case ROUND:
        controller_round(number - SERVERS);
        world_queue_add(&run.due, run.now + T / (uint64_t)world_value(run.w, F_INTERVALS) / 2, ROUND, e->index);
        break;
    case AGAIN:
        controller[number - SERVERS].again = false;
        plan(number - SERVERS);
        break;
    case KILL:
        if (run.quiet)
            break;
        n = node_of(number);
        n->up = false;
        n->life++;
        run.disturbed_ns = run.now;
        later(START, number,
              world_between(&run.rng, of_T(world_value(run.w, F_DOWN)) / 2, of_T(world_value(run.w, F_DOWN)) * 3 / 2));
        break;
    case START:
        n = node_of(number);
        if (n->up || n->gone)
            break;
        if (number < SERVERS)
            server_start(number);
        else
            controller_start(number - SERVERS);
        run.disturbed_ns = run.now;
        runs = of_T(world_value(run.w, number < SERVERS ? F_SERVER_RUNS : F_CONTROLLER_RUNS));
        if (runs)
            later(KILL, number, world_between(&run.rng, runs / 4, runs * 7 / 4));
        break;
    case STORE: store_performs(number); break;
    case REPLY: store_replies(number); break;
    case CUT:
        if (run.quiet)
            break;
        world_network_part(&run.network, world_chance(&run.rng, 500) ? world_rand(&run.rng) & 0x7fff : 0);
        later(CUT, 0, of_T(12000 / world_value(run.w, F_CUTS)) * world_between(&run.rng, 1, 19) / 10);
        break;
    case PAUSE:
        if (run.quiet)
            break;
        n = node_of(number);
        n->paused_ns = run.now + world_between(&run.rng, 1, of_T(world_value(run.w, F_PAUSE)));
        later(PAUSE, number, world_between(&run.rng, 2 * T, 12 * T));
        break;
    case CHANGE:
        if (run.quiet)
            break;
        i = number;
        if (bucket[i].limit != QOS_UNLIMITED && bucket[i].limit != QOS_NOTHING) {
            uint32_t c;
            bool lower = world_choice(run.w, world_of(bucket[i].cohort, F_CHURN)) == 2;
            bucket[i].limit_was = limit_of(&bucket[i], run.now);
            bucket[i].limit = world_between(&run.rng, 1, lower ? bucket[i].limit : 2 * bucket[i].limit + 1);
            bucket[i].reservation = bucket[i].reservation < bucket[i].limit ? bucket[i].reservation : bucket[i].limit;
            bucket[i].changed_ns = run.now;
            for (c = 0; c < run.controllers; c++)
                if (controller[c].node.up && pshift_controller_change(&controller[c].controller, bucket[i].id,
                                                                      bucket[i].reservation, bucket[i].limit) != QOS_OK)
                    world_fail(run.w, "contract", run.now, "a contract within the ranges is refused");
        }
        later(CHANGE, i, world_between(&run.rng, 3 * T, 9 * T));
        break;
    case HELD:
        receive(run.held[e->index].to, run.held[e->index].bytes, run.held[e->index].size);
        free(run.held[e->index].bytes);
        run.held[e->index].bytes = NULL;
        break;
    case SERVE:
#if WORLD_SERVERS
        serve(number);
#endif
        break;
    }
}

static void draw_cluster(void)
{
    struct world *w = run.w;
    uint32_t k, i, j;
    double capacity = world_value(w, F_CAPACITY);
    run.servers = (uint32_t)world_value(w, F_SERVERS);
    run.controllers = (uint32_t)world_value(w, F_CONTROLLERS);
    run.k = (uint32_t)world_value(w, F_TAKES);
    run.drift = world_value(w, F_DRIFT);
    run.W = T - (uint64_t)(2 * run.drift / 1e6 * (double)(run.k * T)) - (run.drift > 0 ? 2 : 0);
    run.buckets = 0;
    for (j = 0; j < run.servers; j++)
        server[j].capacity = (uint64_t)(capacity * (double)world_between(&run.rng, 500, 1500) / 1000) + 1;
    for (k = 0; k < WORLD_COHORTS; k++) {
        uint32_t n = (uint32_t)world_value(w, world_of(k, F_NUMBER)), spread = world_choice(w, world_of(k, F_SPREAD));
        for (i = 0; i < n && run.buckets < BUCKETS; i++) {
            struct bucket *b = &bucket[run.buckets];
            struct taken *journal = b->journal;
            size_t room = b->room;
            double each;
            uint32_t places = 0, first = (uint32_t)world_between(&run.rng, 0, run.servers - 1);
            memset(b, 0, sizeof *b);
            b->journal = journal;
            b->room = room;
            b->cohort = k;
            b->id = 1 + place_of(run.buckets++, BUCKETS) * UINT64_C(0x1000193);
            b->reservation = (uint64_t)(capacity * run.servers * world_value(w, world_of(k, F_RESERVED)) / 1000 / n);
            each = b->reservation ? (double)b->reservation : capacity * run.servers / 20;
            b->limit = world_choice(w, world_of(k, F_LIMIT)) == 1 ? QOS_UNLIMITED
                       : world_choice(w, world_of(k, F_LIMIT)) == 5
                           ? QOS_NOTHING
                           : (uint64_t)(each * world_value(w, world_of(k, F_LIMIT)) / 1000) + 1;
            if (b->limit == QOS_NOTHING)
                b->reservation = 0;
            for (j = 0; j < run.servers; j++)
                b->at[j] = spread == 0 || (j + run.servers - first) % run.servers < (spread == 1 ? 1u : 2u);
            for (j = 0; j < run.servers; j++)
                places += b->at[j];
            for (j = 0; j < run.servers; j++)
                b->rate[j] = b->at[j] ? each * world_value(w, world_of(k, F_DEMAND)) / 1000 / places : 0;
        }
    }
#if WORLD_SERVERS
    serve_draw();
#endif
}

static void begin_cluster(void)
{
    struct world *w = run.w;
    struct world_network_config config;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.lost = (uint32_t)world_value(w, F_LOST);
    config.repeated = (uint32_t)world_value(w, F_REPEATED);
    config.damaged = (uint32_t)world_value(w, F_DAMAGED);
    config.late = (uint32_t)world_value(w, F_LATE);
    config.late_ns = of_T(world_value(w, F_LATE_BY));
    config.delay_ns = 1;
    config.jitter_ns = of_T(world_value(w, F_DELAY));
    world_network_init(&run.network, &config, w->seed);
    for (i = 0; i < run.servers; i++) {
        memset(&server[i].node, 0, sizeof server[i].node);
        world_queue_add(&run.due,
                        world_choice(w, F_GROWS) && i >= (run.servers + 1) / 2 ? world_between(&run.rng, 2 * T, 8 * T)
                                                                               : i,
                        START, i);
        if (world_choice(w, F_PAUSE))
            later(PAUSE, i, world_between(&run.rng, T, 9 * T));
    }
    for (i = 0; i < run.controllers; i++) {
        memset(&controller[i].node, 0, sizeof controller[i].node);
        later(START, SERVERS + i, i * (T / 3));
        if (world_choice(w, F_PAUSE))
            later(PAUSE, SERVERS + i, world_between(&run.rng, T, 9 * T));
    }
    for (i = 0; i < run.buckets; i++)
        if (world_choice(w, world_of(bucket[i].cohort, F_CHURN)))
            later(CHANGE, i, world_between(&run.rng, 2 * T, 6 * T));
    if (world_choice(w, F_CUTS))
        later(CUT, 0, T);
}

/* The last faults: from now on every message arrives, and who is down starts again. All is quiet when the last pause is over. */
static void be_quiet(void)
{
    uint32_t i;
    run.quiet = true;
    run.quiet_ns = run.now;
    memset(&run.network.config, 0, sizeof run.network.config);
    run.network.config.delay_ns = 1;
    world_network_part(&run.network, 0);
    run.gone_ns = 0;
    if (world_choice(run.w, F_SHRINKS) && run.servers > 1) { /* one leaves for good */
        server[0].node.up = false;
        server[0].node.gone = true;
        if (world_value(run.w, F_LATE) != 0) /* a late report of it: it seems to live */
            run.quiet_ns += of_T(world_value(run.w, F_LATE_BY));
    }
    for (i = 0; i < run.servers + run.controllers; i++) {
        const uint32_t number = i < run.servers ? i : SERVERS + i - run.servers;
        const uint64_t paused_ns = node_of(number)->paused_ns;
        later(START, number, 1); /* if it is down */
        run.quiet_ns = paused_ns > run.quiet_ns ? paused_ns : run.quiet_ns;
    }
    run.end_ns += run.quiet_ns - run.now;
}

static void cluster(void)
{
    struct world_event e;
    struct world_packet packet;
    uint64_t length = (uint64_t)world_value(run.w, F_LENGTH) * T, since;
    memset(&e, 0, sizeof e);
    draw_cluster();
    begin_cluster();
    run.end_ns = length + (uint64_t)world_value(run.w, F_QUIET) * T;
    if (world_choice(run.w, F_STORE_GONE))
        run.gone_ns = of_T(world_value(run.w, F_STORE_GONE));
    while (!run.w->broken) {
        uint64_t next = world_network_next_ns(&run.network), t = world_queue_next_ns(&run.due);
        bool message = next < t;
        next = message ? next : t;
        if (!run.quiet && next >= length) {
            run.now = length;
            be_quiet();
            continue;
        }
        if (next >= run.end_ns || run.w->events > 3000000)
            break;
        run.now = next;
        run.w->events++;
        /* the store is gone at times */
        if (!run.quiet && world_choice(run.w, F_STORE_GONE) && run.now > run.gone_ns + 3 * T)
            run.gone_ns = run.now + of_T(world_value(run.w, F_STORE_GONE)) * world_between(&run.rng, 1, 10) / 10;
        if (!message) {
            (void)world_queue_take(&run.due, next, &e);
            event(&e);
            continue;
        }
        (void)world_network_take(&run.network, next, &packet);
        if (node_of(packet.to)->paused_ns > run.now && run.helds < 4096) {
            struct held *h = &run.held[run.helds];
            h->to = packet.to;
            h->size = packet.size;
            h->bytes = (uint8_t *)world_alloc(packet.size, 1);
            memcpy(h->bytes, packet.bytes, packet.size);
            world_queue_add(&run.due, node_of(packet.to)->paused_ns, HELD, run.helds++);
        } else {
            receive(packet.to, packet.bytes, packet.size);
        }
    }
    /* `progress`: at the end, with a store and messages that arrive, periods follow each other. */
    since = run.swapped_ns > run.disturbed_ns ? run.swapped_ns : run.disturbed_ns;
    since = since > run.quiet_ns ? since : run.quiet_ns;
    if (!run.w->broken && run.w->events <= 3000000 && run.now > since + (run.k + 3) * T)
        world_fail(run.w, "progress", run.now, "no period for %.1f T", (double)(run.now - run.swapped_ns) / (double)T);
    while (run.helds > 0)
        free(run.held[--run.helds].bytes);
    world_network_free(&run.network);
    world_queue_free(&run.due);
}

#endif /* !WORLD_V02 */

#if !WORLD_SERVERS
/* ---- the solver alone: cold, then warm steps ------------------------------------------------------------------------------------ */

#define ENTRIES (ROWS * SERVERS)
static struct {
    struct pshift_solver solver;
    struct pshift_problem p;
    struct pshift_solution s;
    uint64_t capacity[SERVERS], reservation[ROWS], demand[ENTRIES], alloc[ENTRIES], most;
    uint32_t row[ROWS + 1], at[ENTRIES];
    uint8_t cut[SERVERS];
} lone;

static void lone_draw(uint32_t mode)
{
    const uint32_t servers = (uint32_t)world_between(&run.rng, 3, SERVERS);
    const uint32_t rows = mode == 3 ? (uint32_t)world_between(&run.rng, 1, ROWS)
                                    : servers + (uint32_t)world_between(&run.rng, 0, ROWS - SERVERS);
    uint32_t i, e;
    memset(&lone.p, 0, sizeof lone.p);
    memset(&lone.s, 0, sizeof lone.s);
    lone.most = world_scale(&run.rng, 2, 1000);
    if (world_choice(run.w, F_COUNTS) && world_chance(&run.rng, 300))
        lone.most = PSHIFT_COUNT_MAX;
    else if (world_chance(&run.rng, 500)) /* up to a power of two, or anything */
        lone.most = world_chance(&run.rng, 500) ? (UINT64_C(1) << world_between(&run.rng, 1, 62)) - 1
                                                : world_scale(&run.rng, 2, PSHIFT_COUNT_MAX / 2);
    for (i = 0; i < servers; i++)
        lone.capacity[i] = world_between(&run.rng, 0, lone.most);
    for (lone.row[0] = 0, i = 0; i < rows; i++) {
        const bool wide_row = mode == 3 && world_chance(&run.rng, 300), idle = world_chance(&run.rng, 200),
                   full = world_chance(&run.rng, 200);
        uint32_t n = wide_row ? servers : mode == 3 ? (uint32_t)world_between(&run.rng, 0, 4) : 2, split = servers / 2;
        uint64_t sum = 0;
        lone.row[i + 1] = lone.row[i] + n;
        for (e = 0; e < n; e++) {
            uint32_t *at = &lone.at[lone.row[i] + e];
            *at = mode == 3 && !wide_row ? (uint32_t)world_between(&run.rng, 0, servers - 1) : (i + e) % servers;
            if (mode == 1 && i % servers + e == split) /* two chains */
                *at = e ? i % servers : split;
            lone.demand[lone.row[i] + e] = idle && world_chance(&run.rng, 300) ? 0
                                           : full ? lone.most - world_between(&run.rng, 0, lone.most / 16)
                                                  : world_between(&run.rng, 0, lone.most);
            sum += lone.demand[lone.row[i] + e];
            sum = sum < PSHIFT_COUNT_MAX ? sum : PSHIFT_COUNT_MAX;
        }
        lone.reservation[i] = world_chance(&run.rng, 200) ? sum - (sum && world_chance(&run.rng, 500))
                                                          : world_between(&run.rng, 0, lone.most);
    }
    lone.p.servers = servers;
    lone.p.buckets = rows;
    lone.p.capacity = lone.capacity;
    lone.p.reservation = lone.reservation;
    lone.p.row = lone.row;
    lone.p.server = lone.at;
    lone.p.demand = lone.demand;
    lone.s.alloc = lone.alloc;
    lone.s.cut = lone.cut;
}

/* Tasks in any order. */
static void lone_parallel(void *ctx, uint32_t count, pshift_task task, void *arg)
{
    uint32_t i, first = (uint32_t)world_between(&run.rng, 0, count ? count - 1 : 0);
    (void)ctx;
    for (i = count; i > 0; i--)
        task(arg, (first + i - 1) % count);
}

/* Promise `threads`: the result does not depend on them. */
static void lone_threads(void)
{
    static uint64_t alloc[ENTRIES];
    static uint8_t cut[SERVERS];
    const struct pshift_options options = {lone_parallel, NULL, false};
    struct pshift_solution other;
    memset(&other, 0, sizeof other);
    other.alloc = alloc;
    other.cut = cut;
    if (pshift_solver_solve(&lone.solver, &lone.p, &options, &other) != QOS_OK)
        world_fail(run.w, "init", 0, "a problem within the ranges is refused with threads");
    if (memcmp(alloc, lone.alloc, lone.row[lone.p.buckets] * sizeof alloc[0]) != 0 ||
        memcmp(cut, lone.cut, lone.p.servers) != 0)
        world_fail(run.w, "threads", 0, "%" PRIu32 " entries: the result with threads is another one",
                   lone.row[lone.p.buckets]);
    if (pshift_solver_solve(&lone.solver, &lone.p, NULL, &lone.s) != QOS_OK)
        world_fail(run.w, "init", 0, "a problem within the ranges is refused the second time");
}

/* Promise `verify`: the verifier refuses what is wrong, and nothing else. The solution is changed somewhere, and mostly its
 * numbers with it. */
static void judge_verify(void)
{
    static uint64_t alloc[ENTRIES];
    static uint8_t cut[SERVERS];
    struct pshift_solution t = lone.s;
    struct account a;
    uint32_t entries = lone.row[lone.p.buckets], e = 0, f = 0, i;
    uint64_t n;
    bool right, excess = false;
    memcpy(alloc, lone.alloc, entries * sizeof alloc[0]);
    memcpy(cut, lone.cut, sizeof cut);
    t.alloc = alloc;
    t.cut = cut;
    i = (uint32_t)world_between(&run.rng, 0, lone.p.buckets - 1);
    if (lone.row[i] < lone.row[i + 1]) {
        e = (uint32_t)world_between(&run.rng, lone.row[i], lone.row[i + 1] - 1);
        f = (uint32_t)world_between(&run.rng, lone.row[i], lone.row[i + 1] - 1);
    }
    switch (world_between(&run.rng, 0, 6)) {
    case 6: /* more than the demand */
        excess = entries && e != f && alloc[e] > lone.demand[f] - alloc[f];
        if (excess) {
            n = lone.demand[f] - alloc[f] + (world_chance(&run.rng, 500) ? 1 : 0);
            n = n > lone.demand[f] - alloc[f] ? n : alloc[e];
            alloc[e] -= n;
            alloc[f] += n;
        }
        break;
    case 0:
    case 1: /* tokens move inside their row */
        n = entries ? lone.demand[f] - alloc[f] : 0;
        n = entries && alloc[e] < n ? alloc[e] : n;
        if (entries && e != f && n) {
            n = world_between(&run.rng, 1, n);
            alloc[e] -= n;
            alloc[f] += n;
        }
        break;
    case 2: cut[world_between(&run.rng, 0, lone.p.servers - 1)] ^= 1; break;
    case 3:
        if (entries)
            alloc[e] += alloc[e] ? world_chance(&run.rng, 500) ? 1 : UINT64_C(0) : 1;
        break;
    case 4: t.exact = !t.exact; break;
    default: break;
    }
    a = account_of(&lone.p, &t);
    if (excess || world_chance(&run.rng, 700)) {
        t.tokens = narrow(a.tokens);
        t.unclaimed = narrow(a.unclaimed);
        t.effective = narrow(a.phi);
        t.excess = narrow(a.tokens >= a.phi ? a.tokens - a.phi : ~(a.phi - a.tokens) + 1); /* of a wrong one below 0 */
        t.cut_capacity = narrow(a.cut_capacity);
        t.cut_demand = narrow(a.cut_demand);
        t.cut_servers = a.cut_servers;
        t.exact = excess ? a.cut_capacity + a.cut_demand == a.phi : t.exact;
    }
    right = !a.wrong && numbers_right(&a, &t) && (!t.exact || a.cut_capacity + a.cut_demand == a.phi);
    if ((pshift_solver_verify(&lone.solver, &lone.p, &t) == QOS_OK) != right)
        world_fail(run.w, "verify", 0, "the verifier %s: Phi %.0f, cut %.0f%s", right ? "refuses a solution" : "lies",
                   (double)a.phi, (double)(a.cut_capacity + a.cut_demand), t.exact ? ", said to be exact" : "");
}

/* Promise `unchanged`: a call that is refused changes nothing. Called between retract and resolve. */
static void lone_refused(const uint32_t *changed, uint32_t n)
{
    uint32_t wrong[4], i = (uint32_t)world_between(&run.rng, 0, n - 1), e = lone.row[changed[i]];
    enum qos_status got, want = QOS_EINVAL;
    memcpy(wrong, changed, n * sizeof wrong[0]);
    switch (world_between(&run.rng, 0, 5)) {
    case 0: /* one of them twice */
        wrong[i] = wrong[(i + 1) % n];
        if (n == 1)
            return;
        got = pshift_solver_resolve(&lone.solver, wrong, n, &lone.p, NULL, &lone.s);
        break;
    case 1: /* not all */ got = pshift_solver_resolve(&lone.solver, changed, n - 1, &lone.p, NULL, &lone.s); break;
    case 2: /* no such row */
        wrong[i] = lone.p.buckets;
        got = pshift_solver_resolve(&lone.solver, wrong, n, &lone.p, NULL, &lone.s);
        break;
    case 3: /* a count out of its range */
        if (e == lone.row[changed[i] + 1])
            return;
        {
            uint64_t was = lone.demand[e];
            lone.demand[e] = PSHIFT_COUNT_MAX + 1;
            got = pshift_solver_resolve(&lone.solver, changed, n, &lone.p, NULL, &lone.s);
            lone.demand[e] = was;
        }
        want = QOS_ERANGE;
        break;
    case 4: /* again */
        got = pshift_solver_retract(&lone.solver, &changed[i], 1, &lone.p, &lone.s);
        want = QOS_EEXIST;
        break;
    default: /* a server that does not exist */
        if (e == lone.row[changed[i] + 1])
            return;
        {
            uint32_t was = lone.at[e];
            lone.at[e] = lone.p.servers;
            got = pshift_solver_resolve(&lone.solver, changed, n, &lone.p, NULL, &lone.s);
            lone.at[e] = was;
        }
        break;
    }
    if (got != want)
        world_fail(run.w, "resolve", 0, "a wrong call between retract and resolve says %d, not %d", (int)got,
                   (int)want);
}

/* A solve that is refused, into other arrays: the last solution still counts. */
static void lone_refused_solve(void)
{
    static uint64_t alloc[ENTRIES];
    static uint8_t cut[SERVERS];
    struct pshift_solution other;
    const uint32_t i = (uint32_t)world_between(&run.rng, 0, lone.p.servers - 1);
    const uint64_t was = lone.capacity[i], reserved = lone.reservation[0];
    memset(&other, 0, sizeof other);
    other.alloc = alloc;
    other.cut = cut;
    if (world_chance(&run.rng, 500))
        lone.capacity[i] = PSHIFT_COUNT_MAX + 1;
    else
        lone.reservation[0] = PSHIFT_COUNT_MAX + 1;
    if (pshift_solver_solve(&lone.solver, &lone.p, NULL, &other) != QOS_ERANGE)
        world_fail(run.w, "resolve", 0, "a count above PSHIFT_COUNT_MAX is not refused");
    lone.capacity[i] = was;
    lone.reservation[0] = reserved;
}

/* One that is refused, into the arrays of the last solution: a warm start is refused, or its result is right all the same. */
static void lone_lost_solve(void)
{
    uint64_t *wrong = &lone.reservation[world_between(&run.rng, 0, lone.p.buckets - 1)];
    const uint64_t was = *wrong;
    *wrong = PSHIFT_COUNT_MAX + 1;
    if (pshift_solver_solve(&lone.solver, &lone.p, NULL, &lone.s) != QOS_ERANGE)
        world_fail(run.w, "resolve", 0, "a count above PSHIFT_COUNT_MAX is not refused");
    *wrong = was;
}

/* A few rows, and capacities, change. False: the world is broken. */
static bool lone_step(void)
{
    const uint32_t rows = lone.p.buckets;
    uint32_t changed[4], n = (uint32_t)world_between(&run.rng, 0, rows < 3 ? rows : 3), i, k, e;
    bool lost;
    for (i = 0; i < n; i++) {
        do {
            changed[i] = (uint32_t)world_between(&run.rng, 0, rows - 1);
            for (k = 0; k < i && changed[k] != changed[i]; k++) {
            }
        } while (k < i);
    }
    if (n && (world_choice(run.w, F_REFUSED) & 1) && world_chance(&run.rng, 100)) { /* refused: nothing is retracted */
        uint32_t twice[2];
        twice[0] = changed[0];
        twice[1] = world_chance(&run.rng, 500) ? rows : changed[0];
        if (pshift_solver_retract(&lone.solver, twice, 2, &lone.p, &lone.s) !=
            (twice[1] == rows ? QOS_ENOENT : QOS_EEXIST))
            world_fail(run.w, "resolve", 0, "a wrong retract is not refused");
    }
    if ((world_choice(run.w, F_REFUSED) & 2) && world_chance(&run.rng, 100))
        lone_refused_solve();
    lost = (world_choice(run.w, F_REFUSED) & 2) && world_chance(&run.rng, 100);
    if (lost)
        lone_lost_solve();
    if (pshift_solver_retract(&lone.solver, changed, n, &lone.p, &lone.s) != QOS_OK) {
        if (lost && pshift_solver_solve(&lone.solver, &lone.p, NULL, &lone.s) == QOS_OK)
            return true;
        world_fail(run.w, "unchanged", 0, "rows cannot be retracted");
        return false;
    }
    for (i = 0; i < n; i++) {
        lone.reservation[changed[i]] = world_between(&run.rng, 0, lone.most);
        for (e = lone.row[changed[i]]; e < lone.row[changed[i] + 1]; e++) {
            if (world_chance(&run.rng, 700))
                lone.demand[e] = world_between(&run.rng, 0, lone.most);
            if (world_chance(&run.rng, 50))
                lone.at[e] = (uint32_t)world_between(&run.rng, 0, lone.p.servers - 1);
        }
    }
    if (n == 0 || world_chance(&run.rng, 300)) {
        const uint64_t at = world_between(&run.rng, 0, lone.p.servers - 1);
        lone.capacity[at] = world_between(&run.rng, 0, lone.most);
    }
    for (i = 0; n && i < 2 && (world_choice(run.w, F_REFUSED) & 1) && world_chance(&run.rng, 200); i++)
        lone_refused(changed, n);
    if (pshift_solver_resolve(&lone.solver, changed, n, &lone.p, NULL, &lone.s) != QOS_OK) {
        world_fail(run.w, "unchanged", 0, "a warm start within the ranges is refused");
        return false;
    }
    run.w->events++;
    judge_solution(&lone.p, &lone.s);
    if (pshift_solver_verify(&lone.solver, &lone.p, &lone.s) != QOS_OK)
        world_fail(run.w, "certificate", 0, "the verifier refuses a solution");
    return !run.w->broken;
}

static void solver_world(void)
{
    static unsigned char mem[1 << 17] __attribute__((aligned(64)));
    struct pshift_solver_config config;
    uint32_t instance, step;
    for (instance = 0; instance < 60 && !run.w->broken; instance++) {
        lone_draw(world_choice(run.w, F_MODE));
        if (use_reference) {
            reference_solve(&lone.p, &lone.s);
            judge_solution(&lone.p, &lone.s);
            continue;
        }
        config.servers = lone.p.servers;
        config.buckets = lone.p.buckets;
        config.entries = lone.row[lone.p.buckets];
        if (pshift_solver_memsize(&config) > sizeof mem ||
            pshift_solver_init(&lone.solver, mem, sizeof mem, &config) != QOS_OK ||
            pshift_solver_solve(&lone.solver, &lone.p, NULL, &lone.s) != QOS_OK) {
            world_fail(run.w, "init", 0, "a problem within the ranges is refused");
            return;
        }
        judge_solution(&lone.p, &lone.s);
        if (world_chance(&run.rng, 200))
            lone_threads();
        for (step = 0; step < 12 && lone_step(); step++)
            if (world_chance(&run.rng, 200))
                judge_verify();
    }
}

/* ---- the scheduler alone ---------------------------------------------------------------------------------------------------------- */

#define QUEUES 6u
#define WAITING 64u
#if WORLD_V02
#define pshift_scheduler_pick(s, now, p) pshift_scheduler_pick(s, p)
#define pshift_scheduler_force(s, now, q) pshift_scheduler_force(s, q)
#endif

/* What a queue must be. */
static struct line {
    uint64_t r, l, debt, served, weight;
    uint32_t pending;
    struct request {
        uint64_t picks, got, most; /* picks, R-tokens when it came; how many picks it may wait */
    } request[WAITING];
} line[QUEUES];

static struct {
    struct pshift_scheduler scheduler;
    uint64_t picks, got, weights, debt_max; /* got: R-tokens, of all queues */
    uint32_t queues;
    bool reserved, any;
} lines;

static void line_leave(struct line *x)
{
    x->pending--;
    x->served++;
    memmove(x->request, x->request + 1, x->pending * sizeof x->request[0]);
}

static void line_arrive(uint32_t i, uint32_t n)
{
    struct line *x = &line[i];
    uint64_t held = 0;
    uint32_t k;
    if (x->pending + n > WAITING)
        return;
    plain.of[i].pending += n;
    if (!use_reference && pshift_scheduler_arrive(&lines.scheduler, i, n) != QOS_OK)
        world_fail(run.w, "arrive", run.now, "requests are refused");
    for (k = 0; k < lines.queues; k++)
        held += lines.reserved ? 0 : line[k].r;
    for (; n > 0; n--) {
        struct request *q = &x->request[x->pending];
        q->picks = lines.picks;
        q->got = lines.got;
        q->most =
            (x->pending / x->weight + 1) * (lines.weights - x->weight) * (lines.reserved ? 16 : 1) + x->pending + held;
        x->pending++;
    }
}

/* Tokens come, and pay the debt first. */
static void line_tokens(uint32_t i, uint64_t r, uint64_t l)
{
    struct line *x = &line[i];
    const uint64_t from_r = r < x->debt ? r : x->debt, from_l = l < x->debt - from_r ? l : x->debt - from_r;
    reference_tokens(i, r, l);
    if (!use_reference && pshift_scheduler_set_tokens(&lines.scheduler, i, r, l) != QOS_OK)
        world_fail(run.w, "tokens", run.now, "tokens are refused");
    x->r = r - from_r;
    x->l = l - from_l;
    x->debt -= from_r + from_l;
    lines.got += x->r;
}

static void line_force(uint32_t i)
{
    struct line *x = &line[i];
    const enum qos_status got = use_reference ? reference_force(i) : pshift_scheduler_force(&lines.scheduler, 0, i),
                          want = !x->pending                                   ? QOS_EAGAIN
                                 : !x->r && !x->l && x->debt >= lines.debt_max ? QOS_EDEBT
                                                                               : QOS_OK;
    if (got != want)
        world_fail(run.w, "tokens", run.now, "queue %" PRIu32 " with a debt of %" PRIu64 ": force says %d", i, x->debt,
                   (int)got);
    if (want != QOS_OK)
        return;
    if (x->r)
        x->r--;
    else if (x->l)
        x->l--;
    else
        x->debt++;
    line_leave(x);
}

static void line_pick(void)
{
    struct pshift_pick pick;
    struct line *x;
    bool r = false, l = false;
    uint64_t waited;
    uint32_t i;
    for (i = 0; i < lines.queues; i++) {
        r |= line[i].pending && line[i].r;
        l |= line[i].pending && line[i].l;
    }
    if ((use_reference ? reference_pick(&pick) : pshift_scheduler_pick(&lines.scheduler, 0, &pick)) != QOS_OK) {
        if (r || l)
            world_fail(run.w, "tokens", run.now, "there are requests with tokens, and none is picked");
        return;
    }
    x = &line[pick.queue];
    if (pick.queue >= lines.queues || !x->pending || !(r ? x->r : x->l) || (pick.backing == PSHIFT_RESERVATION) != r) {
        world_fail(run.w, "tokens", run.now, "queue %" PRIu32 " is picked for a token that it does not have",
                   pick.queue);
        return;
    }
    *(r ? &x->r : &x->l) -= 1;
    waited = lines.picks - x->request[0].picks;
    if (!lines.any && waited > x->request[0].most + (lines.reserved ? 0 : lines.got - x->request[0].got))
        world_fail(run.w, "wait", run.now, "a request of queue %" PRIu32 " waited %" PRIu64 " picks, it may %" PRIu64,
                   pick.queue, waited, x->request[0].most);
    lines.picks++;
    line_leave(x);
}

/* Each queue has R-tokens for all that waits (reserved), or L-tokens for all and now and then an R-token, or any of both at times.
 * Promise `wait`: the longest wait in picks, if a request has a token all the time. Promise `tokens`: R-tokens go first, each
 * request is charged once, and a debt is paid first and has its bound. */
static void queues_world(void)
{
    static unsigned char mem[1 << 13] __attribute__((aligned(64)));
    struct pshift_scheduler_config config;
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    uint64_t step;
    uint32_t i, n;
    memset(line, 0, sizeof line);
    memset(&lines, 0, sizeof lines);
    lines.reserved = world_chance(&run.rng, 400);
    lines.any = world_chance(&run.rng, 300);
    config.queues = lines.queues = (uint32_t)world_between(&run.rng, 1, QUEUES);
    config.debt_max_ops = lines.debt_max = world_between(&run.rng, 1, 5);
    memset(&plain, 0, sizeof plain);
    plain.queues = lines.queues;
    plain.debt_max = lines.debt_max;
    if (pshift_scheduler_memsize(&config) > sizeof mem ||
        pshift_scheduler_init(&lines.scheduler, mem, sizeof mem, &config) != QOS_OK)
        world_fail(run.w, "init", 0, "a configuration within the ranges is refused");
    for (i = 0; i < lines.queues; i++) {
        line[i].weight = world_scale(&run.rng, 1, 20);
        plain.of[i].weight = (uint32_t)line[i].weight;
        if (pshift_scheduler_change(&lines.scheduler, i, (uint32_t)line[i].weight) != QOS_OK)
            world_fail(run.w, "init", 0, "a weight is refused");
        lines.weights += line[i].weight;
        if (!lines.any)
            line_tokens(i, lines.reserved ? UINT64_C(4000) << 2 * i : 0, 1000000);
    }
    for (step = 0; step < 2000 && !run.w->broken; step++) {
        run.now = step;
        run.w->events++;
        i = (uint32_t)world_between(&run.rng, 0, lines.queues - 1);
        switch (world_between(&run.rng, 0, 11)) {
        case 0:
        case 1:
        case 2: line_arrive(i, (uint32_t)world_between(&run.rng, 0, 3)); break;
        case 3:
            if (lines.any) {
                const uint64_t l = world_between(&run.rng, 0, 4);
                line_tokens(i, world_between(&run.rng, 0, 4), l);
            } else if (!lines.reserved)
                line_tokens(i, world_between(&run.rng, 0, 2), 1000000);
            break;
        case 4:
            if (lines.any)
                line_force(i);
            break;
        case 5:
            n = (uint32_t)world_between(&run.rng, 0, line[i].pending);
            if (!world_chance(&run.rng, 100))
                break;
            plain.of[i].pending -= n;
            if (!use_reference && pshift_scheduler_cancel(&lines.scheduler, i, n) != QOS_OK)
                world_fail(run.w, "arrive", step, "waiting requests cannot be cancelled");
            line[i].pending -= n;
            break;
        default: line_pick(); break;
        }
        info = plain.of[i];
        if (!use_reference)
            (void)pshift_scheduler_info(&lines.scheduler, i, &info);
        if (info.pending != line[i].pending || info.r_tokens != line[i].r || info.l_tokens != line[i].l ||
            info.served != line[i].served || info.debt != line[i].debt)
            world_fail(run.w, "tokens", step,
                       "queue %" PRIu32 ": %" PRIu64 " R- and %" PRIu64 " L-tokens, a debt of %" PRIu64
                       "; they must be %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                       i, info.r_tokens, info.l_tokens, info.debt, line[i].r, line[i].l, line[i].debt);
    }
    fold(lines.picks);
}

/* ---- an agent alone, whose grants the world makes ----------------------------------------------------------------------------- */

/* A bucket at the server. `has`: its tokens, requests and debt. */
static struct tenant {
    struct line has;
    uint32_t queue;
    uint64_t opened, paid, r_total,
        total;                     /* opened: in that period; paid: with tokens of this period; totals: granted now */
    uint64_t arrived, known;       /* arrived: since the last measurement; known: the demand that was reported last */
    bool open, unlimited, strange; /* strange: 0.2 did not say what becomes of the debt of a bucket that closes */
    uint64_t empty; /* requests of others that were served while none waited, since the last measurement */
} tenant[BUCKETS];

static struct {
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    uint64_t period, end_ns, void_ns, measured_ns, reported, granted; /* reported, granted: numbers of messages */
    uint64_t served;                                                  /* by all queues since the last measurement */
    uint32_t tenants;
    bool closes, forces;
} one;

#if WORLD_V02
#define ONE_SAYS(m, left)                                                                                              \
    ((m)->server_epoch = (m)->controller_epoch = 1, (m)->ack_seq = one.reported, (m)->ack_mask = UINT64_MAX)
#define pshift_agent_install(a, now, m, e) pshift_agent_install(a, m, e)
#define pshift_agent_measure(a, now) pshift_agent_measure(a, now - one.measured_ns, one_left())
#else
#define ONE_SAYS(m, left)                                                                                              \
    ((m)->boot.lo = 1, (m)->owner.lo = 2, (m)->answers = one.reported, (m)->left_ns = (left), (m)->ack[0].first = 1,   \
     (m)->ack[0].last = one.reported)
#endif

/* Until the period's tokens end; a whole period if none is in force. */
static uint64_t one_left(void)
{
    return run.now < one.end_ns ? one.end_ns - run.now : T;
}

static void one_tokens(struct tenant *x, uint64_t r, uint64_t l)
{
    struct line *h = &x->has;
    const uint64_t from_r = r < h->debt ? r : h->debt, from_l = l < h->debt - from_r ? l : h->debt - from_r;
    h->r = r - from_r;
    h->l = l == QOS_UNLIMITED ? l : l - from_l;
    h->debt -= from_r + from_l;
    x->paid += from_r + from_l;
}

/* The tokens' time is over: buckets without a limit go on with their shares, renewed each T. */
static void one_expire(void)
{
    uint32_t i;
    if (WORLD_V02 || run.now < one.void_ns)
        return;
    one.void_ns = run.now + T;
    for (i = 0; i < one.tenants; i++)
        one_tokens(&tenant[i], tenant[i].has.l == QOS_UNLIMITED ? tenant[i].r_total : 0,
                   tenant[i].has.l == QOS_UNLIMITED ? QOS_UNLIMITED : 0);
}

static void one_open(uint32_t i)
{
    struct tenant *x = &tenant[i];
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    if (pshift_agent_open(&one.agent, 1000 + place_of(i, BUCKETS), &x->queue) != QOS_OK)
        return; /* all queues are in use, or not free yet */
    (void)pshift_scheduler_info(&one.scheduler, x->queue, &info);
    x->strange |= WORLD_V02 && x->has.debt;
    if (!x->strange && (info.debt != x->has.debt || (info.weight != 1 && info.weight != 2 + i)))
        world_fail(run.w, "isolation", run.now,
                   "bucket %" PRIu32 " owes %" PRIu64 ", and gets a queue with a debt of %" PRIu64
                   " and the weight %" PRIu32,
                   i, x->has.debt, info.debt, info.weight);
    if (pshift_scheduler_change(&one.scheduler, x->queue, 2 + i) != QOS_OK)
        world_fail(run.w, "init", run.now, "a weight is refused");
    x->has.weight = 2 + i;
    x->open = true;
    x->opened = run.now;
}

/* Promise `paid`: a report says what was paid with tokens in this period, and what is held. */
static void one_report(void)
{
    struct pshift_message m;
    struct pshift_report_entry entry[BUCKETS];
    uint32_t k, n;
    for (n = 0; n < 8 && pshift_agent_report(&one.agent, &m, entry, BUCKETS) == QOS_OK; n++) {
        one.reported = m.seq;
        for (k = 0; k < m.count; k++) {
            struct tenant *x = &tenant[place_of((uint32_t)(entry[k].bucket - 1000), BUCKETS)];
            const uint64_t held = x->has.l == QOS_UNLIMITED ? QOS_UNLIMITED : x->has.r + x->has.l;
            x->known = entry[k].served + entry[k].demand;
            if (x->open && !x->strange && !WORLD_V02 && (entry[k].served != x->paid || entry[k].held != held))
                world_fail(run.w, "paid", run.now,
                           "bucket %" PRIu64 " is reported with %" PRIu64 " paid and %" PRIu64 " held: %" PRIu64
                           ", %" PRIu64,
                           entry[k].bucket - 1000, entry[k].served, entry[k].held, x->paid, held);
        }
    }
}

/* A request of the tenant goes, whoever asked for it. */
static void one_leave(struct tenant *x)
{
    uint32_t i;
    line_leave(&x->has);
    one.served++;
    for (i = 0; i < one.tenants; i++)
        tenant[i].empty += !tenant[i].has.pending && &tenant[i] != x;
}

/* Promise `demand`: the total that is known after the reports is what was paid, waits, or is owed, and arrivals at the last
 * interval's rate until the period ends; of who sends, and waited while three quarters of the requests were served, 16
 * times as many, or all that the server does until then, if that is less but more than they are. */
static void one_measure(void)
{
    const uint64_t took = run.now - one.measured_ns, left = one_left();
    uint32_t i;
    if (took == 0)
        return;
    pshift_agent_measure(&one.agent, run.now);
    one_report();
    for (i = 0; i < one.tenants; i++) {
        struct tenant *x = &tenant[i];
        const double to_end = (double)left / (double)took, comes = (double)x->has.pending + (double)x->arrived * to_end;
        const double more = comes + 15 * (double)x->arrived * to_end, all = (double)one.served * to_end;
        const double loop = x->arrived && x->empty * 4 <= one.served ? more < all ? more : all : 0;
        const double want = (double)(x->paid + x->has.debt) + (comes > loop ? comes : loop);
        if (x->open && x->opened < one.measured_ns && !WORLD_V02 &&
            ((double)x->known > want * 1.01 + 2 || (double)x->known < want * 0.99 - 2))
            world_fail(run.w, "demand", run.now,
                       "of bucket %" PRIu32 " a total of %" PRIu64 " is known, and %.1f are to be expected", i,
                       x->known, want);
        x->arrived = 0;
        x->empty = 0;
    }
    one.measured_ns = run.now;
    one.served = 0;
}

/* Its tokens, from the totals and what was paid of them. */
static void one_totals(struct tenant *x)
{
    const uint64_t paid = x->paid, r = x->r_total > paid ? x->r_total : paid;
    one_tokens(x, r - paid, x->unlimited ? QOS_UNLIMITED : x->total > r ? x->total - r : 0);
}

/* A grant: of a new period, or another one of this period. Then, now and then, an old one comes again. */
static void one_grant(bool begins)
{
    static struct pshift_message m, old;
    static struct pshift_grant_entry entry[BUCKETS], old_entry[BUCKETS];
    const uint64_t left = begins ? T : one.end_ns > run.now ? one.end_ns - run.now : 0;
    uint32_t i;
    if (!begins && left == 0)
        return;
    if (WORLD_V02 || !one.reported || world_chance(&run.rng, 700)) /* or it answers an older report */
        one_measure();
    old = m;
    memcpy(old_entry, entry, sizeof entry);
    memset(&m, 0, sizeof m);
    one.period += begins;
    m.seq = ++one.granted;
    m.period = one.period;
    for (i = 0; i < one.tenants; i++) {
        struct tenant *x = &tenant[i];
        if (begins) {
            x->paid = 0;
            one_tokens(x, 0, 0);
        }
        if (!x->open || world_chance(&run.rng, begins ? 0 : 300))
            continue;
        if (begins || !x->unlimited) {
            x->total = world_between(&run.rng, 0, 30);
            x->r_total = world_between(&run.rng, 0, x->total);
        }
        entry[m.count].bucket = 1000 + place_of(i, BUCKETS);
        entry[m.count].r_total = x->r_total;
        entry[m.count++].total = x->unlimited ? QOS_UNLIMITED : x->total;
        one_totals(x);
    }
    ONE_SAYS(&m, left + run.now - one.measured_ns);
    if (begins) {
        one.end_ns = one.void_ns = run.now + T;
#if WORLD_V02
        if (pshift_agent_begin(&one.agent, one.period) != QOS_OK)
            world_fail(run.w, "begin", run.now, "a period cannot begin");
#endif
    }
    if (pshift_agent_install(&one.agent, run.now, &m, entry) != QOS_OK)
        world_fail(run.w, "isolation", run.now, "a new grant is refused");
    if (!begins && old.period == one.period && old.count > 0 && world_chance(&run.rng, 300) &&
        pshift_agent_install(&one.agent, run.now, &old, old_entry) == QOS_OK)
        world_fail(run.w, "isolation", run.now, "a grant that was installed before is installed again");
    one_report();
}

/* Who goes next? */
static void one_pick(void)
{
    struct pshift_pick pick;
    struct tenant *x = NULL;
    uint32_t i, waits = NONE;
    bool r = false;
    one_expire();
    for (i = 0; i < one.tenants; i++) {
        const struct line *h = &tenant[i].has;
        if (!tenant[i].open || !h->pending || (!h->r && !h->l) || tenant[i].strange)
            continue;
        waits = i;
        r |= h->r != 0;
    }
    if (pshift_scheduler_pick(&one.scheduler, run.now, &pick) != QOS_OK) {
        if (waits != NONE)
            world_fail(run.w, "isolation", run.now,
                       "bucket %" PRIu32 " has %" PRIu64 " R- and %" PRIu64 " L-tokens left, and is not served", waits,
                       tenant[waits].has.r, tenant[waits].has.l);
        return;
    }
    for (i = 0; i < one.tenants; i++)
        if (tenant[i].open && tenant[i].queue == pick.queue)
            x = &tenant[i];
    if (!x || !x->has.pending) {
        world_fail(run.w, "once", run.now, "queue %" PRIu32 " has no request", pick.queue);
        return;
    }
    one_leave(x);
    world_got(run.now - shift_ns(), (uint32_t)(x - tenant), pick.backing == PSHIFT_RESERVATION);
    if (x->strange)
        return;
    if (!x->has.r && !x->has.l)
        world_fail(run.w, "period_limit", run.now,
                   "bucket %" PRIu32 " is served with a token that it does not have: %" PRIu64 " paid of %" PRIu64,
                   (uint32_t)(x - tenant), x->paid, x->total);
    if ((pick.backing == PSHIFT_RESERVATION) != r)
        world_fail(run.w, "shares", run.now, "bucket %" PRIu32 " goes with %s-token, and R-tokens are %s",
                   (uint32_t)(x - tenant), pick.backing == PSHIFT_RESERVATION ? "an R" : "an L", r ? "left" : "spent");
    if (x->has.r)
        x->has.r--;
    else if (x->has.l != QOS_UNLIMITED)
        x->has.l--;
    x->paid++;
}

static void one_force(struct tenant *x)
{
    struct line *h = &x->has;
    enum qos_status got;
    if (!x->open || !h->pending || (x->unlimited && !h->l))
        return;
    one_expire();
    got = pshift_scheduler_force(&one.scheduler, run.now, x->queue);
    if (!x->strange && (got == QOS_OK) != (h->r || h->l || h->debt < DEBT))
        world_fail(run.w, "tokens", run.now, "with a debt of %" PRIu64 " of %u force says %d", h->debt, DEBT, (int)got);
    if (got != QOS_OK)
        return;
    one_leave(x);
    if (h->r || h->l)
        x->paid++;
    if (h->r)
        h->r--;
    else if (!h->l)
        h->debt++;
    else if (h->l != QOS_UNLIMITED)
        h->l--;
}

static void one_begin(void)
{
    static unsigned char mem[1 << 15] __attribute__((aligned(64))), line_mem[1 << 13] __attribute__((aligned(64)));
    struct pshift_scheduler_config sc;
    struct pshift_agent_config ac;
    uint32_t i;
    memset(tenant, 0, sizeof tenant);
    memset(&one, 0, sizeof one);
    memset(&ac, 0, sizeof ac);
    one.tenants = (uint32_t)world_between(&run.rng, 1, 6);
    sc.queues = (uint32_t)world_between(&run.rng, 1, one.tenants);
    sc.debt_max_ops = DEBT;
    ac.scheduler = &one.scheduler;
    ac.server = 0;
#if WORLD_V02
    ac.epoch = 1;
#else
    ac.boot.lo = 1;
    ac.period_ns = T;
#endif
    if (pshift_scheduler_memsize(&sc) > sizeof line_mem || pshift_agent_memsize(&ac) > sizeof mem ||
        pshift_scheduler_init(&one.scheduler, line_mem, sizeof line_mem, &sc) != QOS_OK ||
        pshift_agent_init(&one.agent, mem, sizeof mem, &ac) != QOS_OK)
        world_fail(run.w, "init", 0, "a configuration within the ranges is refused");
    for (i = 0; i < one.tenants; i++)
        tenant[i].unlimited = world_choice(run.w, world_of(0, F_LIMIT)) && world_chance(&run.rng, 500);
    one.closes = world_choice(run.w, world_of(0, F_CLOSE)) || world_chance(&run.rng, 500);
    one.forces = world_choice(run.w, world_of(0, F_FORCE)) || world_chance(&run.rng, 500);
    one.void_ns = QOS_NEVER;
    run.now = 1 + shift_ns();
    one.measured_ns = shift_ns();
}

/* Promise `shares`: when the tokens' time is over, buckets without a limit go on with their shares, renewed each T, and others
 * stop. Promises `period_limit` and `isolation`: each bucket is served as its own grants say, to the token. */
static void agent_world(void)
{
    uint64_t step, quiet_ns = 0, stays = 0; /* stays: steps in a row of one bucket alone */
    uint32_t i = 0, n;
    one_begin();
    for (step = 0; step < 1500 && !run.w->broken; step++) {
        struct tenant *x = &tenant[i = stays ? i : (uint32_t)world_between(&run.rng, 0, one.tenants - 1)];
        stays = stays ? stays - 1 : world_chance(&run.rng, 50) ? world_between(&run.rng, 2, 20) : 0;
        run.w->events++;
        run.now += world_between(&run.rng, 1, T / 40);
        if (run.now >= one.end_ns && run.now >= quiet_ns) { /* the next period, or nobody owns it for some time */
            quiet_ns = run.now + world_between(&run.rng, 2 * T, 4 * T);
            if (world_chance(&run.rng, 700))
                one_grant(true);
        }
        switch (world_between(&run.rng, 0, 9)) {
        case 0:
            if (x->open && x->has.pending + 4 < WAITING) {
                n = (uint32_t)world_between(&run.rng, 1, 4);
                if (pshift_scheduler_arrive(&one.scheduler, x->queue, n) != QOS_OK)
                    world_fail(run.w, "arrive", run.now, "requests are refused");
                x->has.pending += n;
                x->arrived += n;
            }
            break;
        case 1:
            if (!stays)
                one_measure();
            break;
        case 2:
            if (world_chance(&run.rng, 200))
                one_grant(false);
            break;
        case 3:
            if (!x->open && world_chance(&run.rng, 500))
                one_open(i);
            break;
        case 4:
            if (x->open && !x->has.pending && one.closes && world_chance(&run.rng, 300)) {
                x->open = false;
                if (pshift_agent_close(&one.agent, 1000 + place_of(i, BUCKETS)) != QOS_OK)
                    world_fail(run.w, "close", run.now, "an empty queue cannot be closed");
            }
            break;
        case 5:
            for (n = one.forces && world_chance(&run.rng, 300) ? stays ? 4 : 1 : 0; n > 0; n--)
                one_force(x);
            break;
        default:
            if (!stays)
                one_pick();
        }
    }
    fold(one.reported);
}

#if !WORLD_V02
/* Promise `ranges`: a setting is refused if, and only if, it is out of its range: one of them, at a border or beside it. */
static void judge_ranges(void)
{
    struct world_rng r;
    struct pshift_solver_config solver = {1, 1, 1};
    struct pshift_scheduler_config scheduler = {1, 0};
    struct pshift_agent_config agent;
    struct pshift_owner_config owner;
    struct pshift_controller_config planner;
    const char *wrong = NULL;
    memset(&agent, 0, sizeof agent);
    memset(&owner, 0, sizeof owner);
    memset(&planner, 0, sizeof planner);
    world_rng_init(&r, run.w->seed, 0x9501);
    agent.scheduler = &lines.scheduler;
    agent.boot.lo = owner.nonce.hi = planner.nonce.lo = 1;
    planner.servers = planner.buckets = planner.records = 1;
    switch (world_between(&r, 0, 12)) {
    case 0: WORLD_RANGE(wrong, &r, pshift_solver, solver, servers, 0, PSHIFT_ENTRIES_MAX); break;
    case 1: WORLD_RANGE(wrong, &r, pshift_solver, solver, buckets, 0, PSHIFT_ENTRIES_MAX); break;
    case 2: WORLD_RANGE(wrong, &r, pshift_solver, solver, entries, 0, PSHIFT_ENTRIES_MAX); break;
    case 3: WORLD_RANGE(wrong, &r, pshift_scheduler, scheduler, queues, 1, PSHIFT_QUEUES_MAX); break;
    case 4: WORLD_RANGE(wrong, &r, pshift_scheduler, scheduler, debt_max_ops, 0, QOS_TOKENS_MAX); break;
    case 5: WORLD_RANGE(wrong, &r, pshift_agent, agent, unchanged_permille, 0, 1000); break;
    case 6: WORLD_RANGE(wrong, &r, pshift_agent, agent, boot.lo, 1, UINT64_MAX); break;
    case 7: WORLD_RANGE(wrong, &r, pshift_owner, owner, periods, 0, 64); break;
    case 8: WORLD_RANGE(wrong, &r, pshift_owner, owner, nonce.hi, 1, UINT64_MAX); break;
    case 9: WORLD_RANGE(wrong, &r, pshift_controller, planner, servers, 1, PSHIFT_QUEUES_MAX); break;
    case 10: WORLD_RANGE(wrong, &r, pshift_controller, planner, buckets, 1, PSHIFT_RECORDS_MAX); break;
    case 11: WORLD_RANGE(wrong, &r, pshift_controller, planner, records, 1, PSHIFT_RECORDS_MAX); break;
    default: WORLD_RANGE(wrong, &r, pshift_controller, planner, nonce.lo, 1, UINT64_MAX); break;
    }
    if (wrong)
        world_fail(run.w, "ranges", 0, "a value of %s at its border, or beside it, is judged wrongly", wrong);
}
#endif

static void world_run(struct world *w)
{
    uint32_t i;
    memset(&run, 0, sizeof run);
    run.w = w;
    world_rng_init(&run.rng, w->seed, 0x9500);
#if WORLD_V02
    (void)i;
#else
    judge_ranges();
    if (use_reference && (world_choice(w, F_MODE) == 0 || world_choice(w, F_MODE) == 5))
        return;
    memset(periods, 0, sizeof periods);
    for (i = 0; i < BUCKETS; i++)
        bucket[i].taken = 0;
    if (world_choice(w, F_MODE) == 0) {
        cluster();
        return;
    }
#endif
    switch (world_choice(w, F_MODE)) {
    case 4: queues_world(); break;
    case 5: agent_world(); break;
    default: solver_world(); break;
    }
}

/* No time is special, and a bucket's id is a name: queues have numbers of their own. Of rows and servers in another order, and of
 * counts times a number, `max_flow` and `certificate` say more, as each solution is proven alone: only its sums must be the
 * same. Weights are in the bound of `wait` as they are, not by their ratios. */
static double world_again_slack(const struct world *w, uint32_t client, double got)
{
    (void)w;
    (void)client;
    (void)got;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct world_open open[] = {{0, NULL}};
    int rc = world_main(argc, argv, "tests/world/pshift.worlds", 300, open);
    printf("digest %016" PRIx64 "\n", digest);
    return rc;
}
#endif
