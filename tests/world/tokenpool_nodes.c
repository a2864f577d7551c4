// proves: tokenpool.h on several data nodes, with reservations and limits that pshift.h splits over them as
// proves: docs/which-header.md says: limits and reservations hold for the sum, and what others leave is used
// scale: 2
#define WORLD_HEADER "tokenpool_nodes"
#define WORLD_FIELDS(X)                                                                                                \
    X(LENGTH, "periods", "24 10 60")                                                                                   \
    X(NODES, "nodes", "3 1 2 5")                                                                                       \
    X(CAPACITY, "capacity", "2000 200 20000")                                                                          \
    X(GREEDY, "greedy", "yes no")                                                                                      \
    X(GUARD, "guard", "no yes")                                                                                        \
    X(CALLS, "calls", "256 64 1024")                                                                                   \
    X(MOVES, "moves", "0 3 8")                                                                                         \
    X(LATE, "late", "0 300 2500")                                                                                      \
    X(LOST, "lost", "0 100 500")                                                                                       \
    X(DEAD, "splitter_dies", "no yes")                                                                                 \
    X(BASE, "start_ns", "1 1000000000 4000000000000000000")
#define WORLD_COHORT(X)                                                                                                \
    X(NUMBER, "clients", "1 0 2 4")                                                                                    \
    X(RESERVED, "reserved", "200 0 50 300")                                                                            \
    X(LIMIT, "limit", "1500 0 1000 3000")                                                                              \
    X(DEMAND, "demand", "2000 1000 500 10000")                                                                         \
    X(SPREAD, "spread", "most one all")
#include "world_test.h"
#include "tokenpool.h"
#include "pshift.h"

#define NODES 5u
#define CLIENTS 13u
#define T UINT64_C(1000000000)
#define APART (T - T / 4096)
#define JOURNAL 4000000u

enum kind { MONITOR, CALL, SPLIT, PERIOD, MOVE };

static struct node {
    struct tokenpool_monitor monitor;
    uint64_t capacity, served;    /* served: in this period of the world's */
    uint64_t periods, used, idle; /* `surplus`, since demand has settled; idle: reserved there, not wanted */
    uint64_t storage[1024] __attribute__((aligned(64)));
    uint64_t memory[4096] __attribute__((aligned(64)));
} node[NODES];
static struct client {
    uint64_t reservation, limit, demand, served; /* limit 0: none */
    uint32_t cohort, first;                      /* first: the node that it asks most */
    struct part {
        struct tokenpool_client engine;
        double rate, due;                    /* requests in a period; what has come */
        uint64_t waits, arrived, old, epoch; /* old: the limit before it was lowered, in the epoch of its node */
    } at[NODES];
    uint64_t first_spend, spends;
} client[CLIENTS];
static struct spend {
    uint64_t at_ns;
    uint32_t of;
} journal[JOURNAL];
static unsigned char solver_memory[1 << 16] __attribute__((aligned(64)));
static uint64_t digest;
static struct {
    struct world *w;
    struct world_rng rng;
    struct world_queue due;
    uint64_t now, end_ns, moved_ns, split_ns, spends, window_first, in_window[CLIENTS];
    uint32_t nodes, clients;
} run;

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t shown(void)
{
    return run.now + (uint64_t)world_value(run.w, F_BASE);
}

static struct tokenpool_slot_state terms_of(uint32_t i, uint32_t j)
{
    struct tokenpool_slot_state s;
    memset(&s, 0, sizeof s);
    (void)tokenpool_monitor_slot_info(&node[j].monitor, i, &s);
    return s;
}

/* ---- oracles ---------------------------------------------------------------------------------------------------- */

/* Promise `limit`: at most 2 L over all nodes in any window of T - T / 4096. */
static void spent(uint32_t i, uint32_t j)
{
    struct client *c = &client[i];
    digest = check_wrap_mul(digest ^ run.now ^ (uint64_t)i << 48 ^ (uint64_t)j << 56, UINT64_C(0x100000001b3));
    world_trace(run.now, i, "given", 1);
    c->served++;
    node[j].served++;
    run.in_window[i]++;
    journal[run.spends % JOURNAL].at_ns = run.now;
    journal[run.spends++ % JOURNAL].of = i;
    while (journal[run.window_first % JOURNAL].at_ns + APART <= run.now)
        run.in_window[journal[run.window_first++ % JOURNAL].of]--;
    if (c->limit && run.in_window[i] > 2 * c->limit)
        world_fail(run.w, "limit", run.now, "client %" PRIu32 ": %" PRIu64 " in a window of T, limit %" PRIu64, i,
                   run.in_window[i], c->limit);
}

/* Promise `reservation`: some periods after demand has moved, 97 % of what a client wants of R, if rounds are on time
 * and every node has room for all that could be asked of it; 90 % of who wants hardly more than R, as parts follow.
 * Promise `surplus`: a node at which a client without a limit always waits uses 97 % of C over some periods, but what
 * trials keep: three periods' part of the idle. Each change of terms begins one, so rounds must be on time. */
static void judge_period(void)
{
    uint32_t i, j;
    const uint64_t settles = world_choice(run.w, F_LOST) ? 14 : 6;
    bool settled = run.now > run.moved_ns + settles * T && !world_choice(run.w, F_LATE), room = true;
    for (j = 0; j < run.nodes; j++) {
        struct node *n = &node[j];
        uint64_t asked = 0, idle = 0;
        bool greedy = false;
        for (i = 0; i < run.clients; i++) {
            asked += min_of(client[i].reservation, (uint64_t)(1.1 * client[i].at[j].rate) + 2);
            idle += terms_of(i, j).reservation - min_of(terms_of(i, j).reservation, (uint64_t)client[i].at[j].rate);
            greedy |= client[i].limit == 0 && client[i].at[j].rate > 1.5 * (double)node[j].capacity;
        }
        room &= asked * 10 < node[j].capacity * 9;
        if (!settled || !greedy)
            n->periods = n->used = n->idle = 0;
        n->periods += settled && greedy;
        n->used += settled && greedy ? n->served : 0;
        n->idle += settled && greedy ? idle : 0;
        if (n->periods >= 5 && !world_choice(run.w, F_GUARD) &&
            (n->used + 3 * n->idle / n->periods) * 100 + 200 * run.clients < n->periods * n->capacity * 97)
            world_fail(run.w, "surplus", run.now, "node %" PRIu32 ": %" PRIu64 " of %" PRIu64 " tokens are used", j,
                       n->used, n->periods * n->capacity);
        node[j].served = 0;
    }
    for (i = 0; i < run.clients; i++) {
        uint64_t want = min_of(client[i].reservation, client[i].demand);
        uint64_t part = client[i].demand * 10 > client[i].reservation * 12 ? 97 : 90;
        if (settled && room && client[i].served * 100 + 400 * run.nodes < want * part)
            world_fail(run.w, "reservation", run.now, "client %" PRIu32 ": %" PRIu64 " of %" PRIu64 ", wanted %" PRIu64,
                       i, client[i].served, client[i].reservation, want);
        client[i].served = 0;
    }
}

/* ---- the join: docs/which-header.md ---------------------------------------------------------------------------- */

static uint64_t epoch_of(uint32_t j)
{
    struct tokenpool_monitor_state m;
    (void)tokenpool_monitor_info(&node[j].monitor, &m);
    return m.epoch;
}

static void change(uint32_t i, uint32_t j, uint64_t r, uint64_t l)
{
    struct part *p = &client[i].at[j];
    const struct tokenpool_slot_state now = terms_of(i, j);
    uint64_t fits = 0, reserved = 0;
    enum qos_status status;
    uint32_t k;
    if (world_chance(&run.rng, (uint32_t)world_value(run.w, F_LOST)))
        return; /* the next round says it again */
    for (k = 0; k < run.clients; k++)
        reserved += k == i ? r : terms_of(k, j).reservation;
    if (client[i].limit && l < now.limit) { /* in force until the next epoch */
        p->old = p->epoch == epoch_of(j) ? max_of(p->old, now.limit) : now.limit;
        p->epoch = epoch_of(j);
    }
    status = tokenpool_monitor_change(&node[j].monitor, i, r, client[i].limit ? l : 0, &fits);
    if (status == QOS_EADMISSION && reserved > node[j].capacity)
        status = tokenpool_monitor_change(&node[j].monitor, i, fits, client[i].limit ? l : 0, NULL);
    if (status != QOS_OK)
        world_fail(run.w, "admission", run.now, "node %" PRIu32 ": terms that fit are refused: %s", j,
                   qos_strerror(status));
}

/* A round: pshift.h splits the reservations by demand; the rest of a limit goes where demand is left. What falls is
 * said first. What rises under a limit takes only what the limits in force leave of it. */
static void split(void)
{
    static uint64_t capacity[NODES], reservation[CLIENTS], demand[CLIENTS * NODES], alloc[CLIENTS * NODES];
    static uint32_t row[CLIENTS + 1], server[CLIENTS * NODES];
    static uint8_t cut[NODES];
    const struct pshift_solver_config config = {run.nodes, run.clients, run.nodes * run.clients};
    struct pshift_problem p = {run.nodes, run.clients, capacity, reservation, row, server, demand};
    struct pshift_solver solver;
    struct pshift_solution s;
    uint64_t limit[NODES];
    uint32_t i, j, step;
    memset(&s, 0, sizeof s);
    s.alloc = alloc;
    s.cut = cut;
    for (i = 0; i < run.clients; i++) {
        row[i] = i * run.nodes;
        reservation[i] = client[i].reservation;
        for (j = 0; j < run.nodes; j++) {
            capacity[j] = node[j].capacity;
            server[row[i] + j] = j;
            demand[row[i] + j] = client[i].at[j].arrived * T / (run.now - run.split_ns) + client[i].at[j].waits;
            client[i].at[j].arrived = 0;
        }
    }
    row[i] = i * run.nodes;
    run.split_ns = run.now;
    if (pshift_solver_memsize(&config) > sizeof solver_memory ||
        pshift_solver_init(&solver, solver_memory, sizeof solver_memory, &config) != QOS_OK ||
        pshift_solver_solve(&solver, &p, NULL, &s) != QOS_OK || pshift_solver_verify(&solver, &p, &s) != QOS_OK) {
        world_fail(run.w, "init", run.now, "a problem within the ranges is refused");
        return;
    }
    for (step = 0; step < 2; step++)
        for (i = 0; i < run.clients; i++) {
            const struct client *c = &client[i];
            uint64_t left = c->limit, all = 0, budget = c->limit;
            for (j = 0; j < run.nodes; j++) {
                left -= min_of(left, alloc[row[i] + j] + 1);
                all += demand[row[i] + j] - alloc[row[i] + j];
            }
            for (j = 0; j < run.nodes; j++) {
                uint64_t in_force = terms_of(i, j).limit,
                         more = all ? left * (demand[row[i] + j] - alloc[row[i] + j]) / all : left / run.nodes;
                limit[j] = alloc[row[i] + j] + 1 + more;
                if (c->at[j].epoch == epoch_of(j))
                    in_force = max_of(c->at[j].old, in_force);
                budget -= min_of(budget, in_force);
            }
            for (j = 0; j < run.nodes; j++) {
                const struct tokenpool_slot_state t = terms_of(i, j);
                uint64_t r = alloc[row[i] + j], l = limit[j];
                if (step == 0) {
                    l = min_of(l, t.limit);
                    r = min_of(r, t.reservation);
                } else if (c->limit) {
                    l = l > t.limit ? t.limit + min_of(l - t.limit, budget) : t.limit;
                    budget -= l - t.limit;
                }
                r = c->limit ? min_of(r, l) : r;
                if (r != t.reservation || (c->limit && l != t.limit))
                    change(i, j, r, l);
            }
        }
}

/* ---- a world --------------------------------------------------------------------------------------------------- */

static void call(uint32_t i, uint32_t j)
{
    struct part *p = &client[i].at[j];
    uint64_t n;
    p->due += p->rate / world_value(run.w, F_CALLS);
    n = (uint64_t)p->due;
    p->due -= (double)n;
    p->arrived += n;
    p->waits = min_of(p->waits + n, (uint64_t)p->rate + 2); /* an impatient queue */
    while (p->waits && tokenpool_client_take(&p->engine, shown(), 1) == QOS_OK) {
        tokenpool_client_complete(&p->engine, 1);
        p->waits--;
        spent(i, j);
    }
    tokenpool_client_set_queued(&p->engine, p->waits);
    tokenpool_client_run(&p->engine, shown(), 0);
}

/* Where each client's demand is: at one node, most of it at one, or everywhere the same. */
static void spread(void)
{
    uint32_t i, j;
    for (i = 0; i < run.clients; i++)
        for (j = 0; j < run.nodes; j++) {
            uint32_t how = world_choice(run.w, world_of(client[i].cohort, F_SPREAD));
            double part = how == 2 || run.nodes == 1 ? 1.0 / run.nodes
                          : j == client[i].first     ? (how ? 1 : 0.7)
                          : how                      ? 0
                                                     : 0.3 / (run.nodes - 1);
            client[i].at[j].rate = part * (double)client[i].demand;
        }
    run.moved_ns = run.now;
}

static void draw(void)
{
    uint64_t total = 0;
    uint32_t i, j, k;
    run.nodes = (uint32_t)world_value(run.w, F_NODES);
    for (j = 0; j < run.nodes; j++) {
        node[j].capacity =
            (uint64_t)(world_value(run.w, F_CAPACITY) * (double)world_between(&run.rng, 500, 1500) / 1000);
        node[j].served = node[j].periods = node[j].used = node[j].idle = 0;
        total += node[j].capacity;
    }
    for (k = 0; k < WORLD_COHORTS; k++) {
        uint32_t n = (uint32_t)world_value(run.w, world_of(k, F_NUMBER));
        for (i = 0; i < n; i++) {
            struct client *c = &client[run.clients++];
            double each;
            memset(c, 0, sizeof *c);
            c->cohort = k;
            c->first = (uint32_t)world_between(&run.rng, 0, run.nodes - 1);
            c->reservation = (uint64_t)((double)total * world_value(run.w, world_of(k, F_RESERVED)) / 1000 / n);
            each = c->reservation ? (double)c->reservation : (double)total / 20;
            c->demand = (uint64_t)(each * world_value(run.w, world_of(k, F_DEMAND)) / 1000);
            c->limit = (uint64_t)(each * world_value(run.w, world_of(k, F_LIMIT)) / 1000);
            if (c->limit)
                c->limit += 2 * run.nodes;
        }
    }
    if (world_choice(run.w, F_GREEDY) == 0) { /* one more, without terms, wants all; its cohort's fields are all 0 */
        memset(&client[run.clients], 0, sizeof client[0]);
        client[run.clients].cohort = WORLD_COHORTS;
        client[run.clients++].demand = 50 * total;
    }
}

static void begin(void)
{
    struct tokenpool_config c;
    uint32_t i, j;
    memset(&c, 0, sizeof c);
    c.clients = run.clients ? run.clients : 1;
    c.period_ns = T;
    c.flags = TOKENPOOL_FIXED | (world_choice(run.w, F_GUARD) ? TOKENPOOL_GUARD : 0);
    for (j = 0; j < run.nodes; j++) {
        c.capacity = node[j].capacity;
        if (tokenpool_storage_memsize(&c) > sizeof node[j].storage ||
            tokenpool_monitor_memsize(&c) > sizeof node[j].memory ||
            tokenpool_monitor_init(&node[j].monitor, node[j].memory, sizeof node[j].memory, node[j].storage,
                                   sizeof node[j].storage, &c) != QOS_OK) {
            world_fail(run.w, "init", 0, "a configuration within the ranges is refused");
            return;
        }
        for (i = 0; i < run.clients; i++) /* a part of each limit; reservations come with the first round */
            if (tokenpool_monitor_join(&node[j].monitor, i, 0, client[i].limit / run.nodes, NULL) != QOS_OK ||
                tokenpool_client_attach(&client[i].at[j].engine, i, 0, node[j].storage, sizeof node[j].storage) !=
                    QOS_OK)
                world_fail(run.w, "admission", 0, "client %" PRIu32 " is refused", i);
            else
                world_queue_add(&run.due, world_between(&run.rng, 1, T / 64), CALL, i * NODES + j);
        world_queue_add(&run.due, world_between(&run.rng, 0, T), MONITOR, j);
    }
    world_queue_add(&run.due, T / 2, SPLIT, 0);
    world_queue_add(&run.due, 2 * T, PERIOD, 0);
    if (world_choice(run.w, F_MOVES))
        world_queue_add(&run.due, (uint64_t)world_value(run.w, F_MOVES) * T, MOVE, 0);
}

static void event(const struct world_event *e)
{
    uint64_t next, late = (uint64_t)world_value(run.w, F_LATE) * (T / 1000);
    uint32_t i;
    switch ((enum kind)e->kind) {
    case MONITOR:
        tokenpool_monitor_run(&node[e->index].monitor, shown());
        next = tokenpool_monitor_next_ns(&node[e->index].monitor, shown());
        next = next > shown() ? next - shown() : 1;
        world_queue_add(&run.due, run.now + next, MONITOR, e->index);
        break;
    case CALL:
        call(e->index / NODES, e->index % NODES);
        world_queue_add(&run.due, run.now + T / (uint64_t)world_value(run.w, F_CALLS), CALL, e->index);
        break;
    case SPLIT:
        if (!world_choice(run.w, F_DEAD) || run.now < run.end_ns / 3 || run.now > run.end_ns / 2)
            split();
        else
            run.moved_ns = run.now;
        next = run.now + T + world_between(&run.rng, 0, late);
        world_queue_add(&run.due, next, SPLIT, 0);
        break;
    case PERIOD:
        judge_period();
        world_queue_add(&run.due, run.now + T, PERIOD, 0);
        break;
    case MOVE:
        for (i = 0; i < run.clients; i++)
            client[i].first = (client[i].first + 1) % run.nodes;
        spread();
        world_queue_add(&run.due, run.now + (uint64_t)world_value(run.w, F_MOVES) * T, MOVE, 0);
        break;
    }
}

static void world_run(struct world *w)
{
    struct world_event e;
    memset(&run, 0, sizeof run);
    run.w = w;
    world_rng_init(&run.rng, w->seed, 0x70de5);
    run.end_ns = (uint64_t)world_value(w, F_LENGTH) * T;
    draw();
    spread();
    begin();
    while (!w->broken && world_queue_next_ns(&run.due) < run.end_ns && w->events < 3000000) {
        run.now = world_queue_next_ns(&run.due);
        (void)world_queue_take(&run.due, run.now, &e);
        w->events++;
        event(&e);
    }
    world_queue_free(&run.due);
}

int main(int argc, char **argv)
{
    int rc = world_main(argc, argv, "tests/world/tokenpool_nodes.worlds", 200, NULL);
    printf("digest %016" PRIx64 "\n", digest);
    return rc;
}
