/* tokenpool_device.h - engines beside each other on a node that serves all who have I/Os there in equal shares
 *
 * The node becomes slower and faster again, and the estimate follows; who has a reservation that equal sharing can meet gets
 * it. Or it stays as fast as it is, and so does the estimate, while clients leave and join once a period. No races, true clocks; rates and tokens are counted here alone. Included by tokenpool.c; N_ and n_ are of these worlds. */
#ifndef QOS_TESTS_WORLD_TOKENPOOL_DEVICE_H
#define QOS_TESTS_WORLD_TOKENPOOL_DEVICE_H

#define N_CLIENTS 6u

struct n_client {
    struct tokenpool_client engine;
    uint64_t reservation, under_way, done, waits, most,
        depth;                      /* most: requests that wait outside at most; waits: now */
    double wants, credit, due, got; /* wants: of a period; got: in the periods judged */
    bool told, away, leaves;
};

static struct {
    struct n_client of[N_CLIENTS];
    struct tokenpool_config config;
    uint32_t clients, steps; /* steps: of a period */
    uint64_t T, C, begin, now, changed, judged,
        gap;                          /* changed: number of the period with the last change of the rate */
    double rate, before, most, tried; /* of the node in a period; before the change; of one client; the last estimate */
    struct world_rng leaving;
    bool leaves, /* clients do, and the node stays as fast as it is */
        fell, steady, known, followed, above, greedy, guard, told, fixed, odd, deep; /* deep: 1 % of C is outstanding */
} node;

/* Equal shares of `left` for those who have I/Os at the node, at most `most` each. */
static void n_serve(double left, double most)
{
    double give[N_CLIENTS] = {0};
    uint32_t i, open;
    do {
        double each;
        for (i = 0, open = 0; i < node.clients; i++) {
            double can = (double)node.of[i].under_way - node.of[i].credit;
            open += give[i] + 1e-9 < (can < most ? can : most);
        }
        each = open ? left / open : 0;
        for (i = 0; i < node.clients; i++) {
            double can = (double)node.of[i].under_way - node.of[i].credit, more = (can < most ? can : most) - give[i];
            more = more < 0 ? 0 : more < each ? more : each;
            give[i] += more;
            left -= more;
        }
    } while (open && left > 1e-9);
    for (i = 0; i < node.clients; i++) {
        struct n_client *c = &node.of[i];
        uint64_t k = min_of((uint64_t)(c->credit + give[i] + 1e-6), c->under_way);
        c->credit = c->under_way == k ? 0 : c->credit + give[i] - (double)k;
        c->under_way -= k;
        c->done += k;
        if (!use_reference)
            tokenpool_client_complete(&c->engine, k);
        world_got(node.now - node.begin, i, (double)k);
    }
}

/* When the node has served the reservations alone, in periods. */
static double n_done_at(double rate)
{
    double left[N_CLIENTS], t = 0;
    uint32_t i, open = 0;
    for (i = 0; i < node.clients; i++)
        open += (left[i] = (double)node.of[i].reservation) > 0;
    while (open) {
        double each = rate / open < node.most ? rate / open : node.most, least = 1e18;
        for (i = 0; i < node.clients; i++)
            least = left[i] > 0 && left[i] < least ? left[i] : least;
        t += least / each;
        for (i = 0, open = 0; i < node.clients; i++)
            open += (left[i] = left[i] > least ? left[i] - least : 0) > 0;
    }
    return t;
}

/* --reference: who has its reservation waits for all who have not and ask. */
static bool n_take(uint32_t i)
{
    uint32_t k;
    if (!use_reference)
        return tokenpool_client_take(&node.of[i].engine, node.now, 1) == QOS_OK;
    for (k = 0; k < node.clients && node.of[i].done + node.of[i].under_way >= node.of[i].reservation; k++)
        if (k != i && node.of[k].waits + node.of[k].under_way > 0 && node.of[k].done < node.of[k].reservation)
            return false;
    return true;
}

/* Some leave, or join as they were, about once a period. */
static void n_leave_or_join(struct world *w)
{
    enum qos_status st;
    uint32_t i;
    for (i = 0; i < node.clients; i++) {
        struct n_client *c = &node.of[i];
        if (!c->leaves || world_between(&node.leaving, 1, node.steps) > 1)
            continue;
        st = c->away ? tokenpool_monitor_join(&monitor[0], i, c->reservation, 0, NULL)
                     : tokenpool_monitor_leave(&monitor[0], i);
        if (st == QOS_EADMISSION && node.config.flags) /* open: see n_judge_estimate */
            continue;
        if (st == QOS_OK && c->away)
            st = tokenpool_client_attach(&c->engine, i, 0, storage, sizeof storage);
        if (st != QOS_OK)
            world_fail(w, "admission", node.now, "client %" PRIu32 " %s: %s", i, c->away ? "joins again" : "leaves",
                       qos_strerror(st));
        c->away = !c->away;
    }
}

static void n_period(struct world *w)
{
    uint32_t i, step;
    for (i = 0; i < node.clients; i++)
        node.of[i].done = 0;
    for (step = 0; step < node.steps; step++, node.now += node.T / node.steps) {
        uint32_t turns = 0;
        while (!use_reference && tokenpool_monitor_next_ns(&monitor[0], node.now) <= node.now && turns++ < 100)
            tokenpool_monitor_run(&monitor[0], node.now);
        if (node.leaves)
            n_leave_or_join(w);
        for (i = 0; i < node.clients; i++) {
            struct n_client *c = &node.of[i];
            if (c->away)
                continue;
            c->due += c->wants / node.steps;
            c->waits = c->due > (double)c->most ? c->most : (uint64_t)c->due;
            if (!use_reference && (c->waits < 1 || c->under_way >= c->depth))
                tokenpool_client_run(&c->engine, node.now, 0);
            while (c->waits && c->under_way < c->depth && n_take(i)) {
                c->under_way++;
                c->due -= 1;
                c->waits = c->due > (double)c->most ? c->most : (uint64_t)c->due;
            }
            if (c->told && !use_reference)
                tokenpool_client_set_queued(&c->engine, c->waits);
        }
        n_serve(node.rate / node.steps, node.most / node.steps);
    }
}

/* Promise `node`: if it gets slower, once in 8 periods at most, it is known within 5 if engines say what waits: the estimate was
 * near the rate until then, and after it; a step up, or a fall that is taken back, may be tried in some of the periods. */
static void n_judge_estimate(uint64_t p, bool last)
{
    struct tokenpool_monitor_state info;
    bool followed;
    double near, reserved = 0;
    uint32_t i;
    (void)tokenpool_monitor_info(&monitor[0], &info);
    for (i = 0; i < node.clients; i++)
        reserved += (double)node.of[i].reservation;
    /* open: with the guard, or ordered, what is kept for who began the period with them, or for their claims, is left */
    if (node.leaves && p >= 3 && (double)info.capacity < (node.config.flags ? 0.5 : 0.9) * node.rate)
        world_fail(run.w, "estimate", node.now,
                   "of a node that does %.0f I/Os a period it is %" PRIu64 ", as clients leave and join", node.rate,
                   info.capacity);
    if (use_reference) { /* it is told */
        info.capacity = (uint64_t)node.rate;
        for (info.last_used = 0, i = 0; i < node.clients; i++)
            info.last_used += node.of[i].done;
    }
    world_trace(node.now, 99, "rate", (uint64_t)node.rate);
    world_trace(node.now, 99, "estimate", info.capacity);
    world_trace(node.now, 99, "used", info.last_used);
    if (p == node.changed) /* the node was the limit before, and known */
        node.known =
            (double)info.last_used > 0.965 * node.before && (double)info.capacity < 1.06 * node.before + 1 &&
            node.tried < 1.06 * node.before + 1; /* open: it falls when a step up has just failed, seed 400135 */
    node.tried = (double)info.capacity;
    if (!node.fell || !node.known || node.fixed || node.guard || !node.greedy || !node.told ||
        node.most < (double)node.C) /* one that can do a part of the node only hides what it leaves */
        return;
    /* open: with steps up, one that is taken back stays for long, seeds 700983 and 5280003767 */
    near = p <= node.changed + 5 ? 0.02 : node.config.capacity_step ? 0.03 : 0.09;
    if (reserved > (double)info.capacity && near < 0.05) /* the pool has what they return, perhaps late, seed 63927 */
        near = 0.05;
    followed = (double)info.capacity <= 1.02 * node.rate + near * (double)node.C + 2 &&
               (double)info.capacity >= node.rate * 0.8;
    node.followed = node.followed || followed;
    if ((p == node.changed + 5 || last) && !node.followed)
        world_fail(run.w, "node", node.now,
                   "%" PRIu64 " periods after the node fell from %.0f to %.0f the estimate is %" PRIu64,
                   p - node.changed, node.before, node.rate, info.capacity);
    if (p == node.changed + 5)
        node.followed = followed;
}

/* Promise `shares`: with TOKENPOOL_GUARD 99 % of what equal sharing can meet of the reservations is met, but in trials (a step up,
 * for a period), without it 99 % of all min(R, an equal share). Judged from 6 periods after a change on, until the next one. */
static void n_judge_shares(uint64_t p, bool last)
{
    bool above = node.tried > 1.02 * node.rate + 2, trial = node.guard && above && !node.above;
    uint32_t i;
    node.above = above;
    if (p < node.changed + 6) {
        node.judged = 0;
        for (i = 0; i < node.clients; i++)
            node.of[i].got = 0;
        return;
    }
    node.judged += !trial;
    for (i = 0; i < node.clients && !trial; i++)
        node.of[i].got += (double)node.of[i].done;
    /* the guard needs the estimate, which follows what engines say, and does not when all is reserved */
    if (!last || node.judged < 3 ||
        (node.guard && (n_done_at(node.rate) > 0.9 || !(node.fixed || node.told || !node.changed))))
        return;
    for (i = 0; i < node.clients; i++) {
        const struct n_client *c = &node.of[i];
        double due = c->leaves ? 0 : (double)c->reservation, got = c->got / (double)node.judged;
        if (!node.guard && due > node.rate / node.clients)
            due = node.rate / node.clients;
        due = due < c->wants ? due : c->wants;
        if (got < 0.99 * due - 2)
            world_fail(run.w, "shares", node.now,
                       "client %" PRIu32 " has %.1f of %.1f in each of %" PRIu64 " periods, reserved %" PRIu64
                       ", of a node of %.0f",
                       i, got, due, node.judged, c->reservation, node.rate);
    }
}

static void n_draw(const struct world *w)
{
    struct tokenpool_config *c = &node.config;
    static const uint64_t capacities[] = {5000, 10000, 20000}, mosts[] = {1 << 30, 12, 25, 50, 400};
    uint32_t i;
    double part = 0.1 + 0.75 * (double)world_between(&run.rng, 0, 100) / 100, sum = 0, weight[N_CLIENTS];
    node.T = 1000000000;
    node.C = capacities[world_between(&run.rng, 0, 2)];
    node.clients = (uint32_t)world_between(&run.rng, 1, N_CLIENTS);
    node.guard = world_chance(&run.rng, 200);
    node.fixed = node.guard && world_chance(&run.rng, 400);
    node.told = world_chance(&run.rng, 700);
    node.most = (double)node.C * (world_chance(&run.rng, 750) ? 1 : 0.5 + (double)world_between(&run.rng, 0, 50) / 100);
    node.greedy = world_chance(&run.rng, 800);
    c->capacity = node.C;
    node.deep = !node.guard && world_chance(&run.rng, 400);
    node.steps = node.deep ? 128 : 512; /* the guard needs fresh reports */
    node.clients = node.deep || node.clients < 4 ? node.clients : 4;
    c->clients = node.clients;
    c->check_ns = node.guard ? 0 : node.T / 128;
    c->client_capacity = (uint64_t)node.most;
    c->batch = world_chance(&run.rng, 500) ? 0 : 1 + (uint32_t)(node.C / 200 / node.clients);
    c->flags = (node.guard ? TOKENPOOL_GUARD : 0) | (node.fixed ? TOKENPOOL_FIXED : 0);
    c->capacity_step = world_chance(&run.rng, 500) ? QOS_NOTHING : 0;
    node.steady = world_chance(&run.rng, 300);
    c->history = world_chance(&run.rng, 700) ? 0 : (uint32_t)world_between(&run.rng, 1, 5);
    for (i = 0; i < node.clients; i++)
        sum += weight[i] = world_chance(&run.rng, 300) ? 0 : (double)world_between(&run.rng, 1, 10);
    for (i = 0; i < node.clients; i++) {
        struct n_client *t = &node.of[i];
        t->reservation = sum > 0 ? (uint64_t)((double)node.C * part * weight[i] / sum) : 0;
        t->reservation = min_of(t->reservation, c->client_capacity);
        t->wants = node.greedy || world_chance(&run.rng, 500)
                       ? 2 * (double)node.C
                       : (double)t->reservation * (double)world_between(&run.rng, 0, 10) / 10;
        t->told = node.told;
        /* what the node does in a step, or two */
        t->depth = node.C / node.steps * world_between(&run.rng, 1, node.deep ? 2 : 1) + 1;
        t->most = node.C * mosts[world_between(&run.rng, 0, 4)] / 100 / node.clients + 1;
    }
    world_rng_init(&node.leaving, w->seed, 0x1ea7);
    node.leaves = !use_reference && node.greedy && node.told && node.most >= (double)node.C &&
                  world_choice(w, world_of(0, F_CHURN)) == 2;
    for (i = 0; node.leaves && i < node.clients; i++)
        node.of[i].leaves = i >= (node.clients + 1) / 2;
    if (node.leaves && !node.guard && world_chance(&node.leaving, 500)) {
        c->flags |= TOKENPOOL_ORDERED;
        c->check_ns = c->capacity_step = 0;
        node.steps = 2048; /* a claim is looked for at the times told */
        for (i = 0; i < node.clients; i++)
            node.of[i].depth = node.C / 100 / node.clients + 1;
    }
}

static void n_change(uint64_t p)
{
    double part;
    uint32_t i;
    node.before = node.rate;
    node.odd = !node.steady && world_chance(&run.rng, 200); /* faster */
    part = node.odd                                     ? 1 + (double)world_between(&run.rng, 5, 60) / 100
           : node.steady || world_chance(&run.rng, 500) ? 1 - (double)world_between(&run.rng, 5, 10) / 100
                                                        : 1 - (double)world_between(&run.rng, 10, 30) / 100;
    node.rate *= part;
    node.rate = node.rate < (double)node.C * 0.2 ? (double)node.C * 0.2
                : node.rate > (double)node.C     ? (double)node.C
                                                 : node.rate;
    node.fell = node.rate < node.before;
    node.changed = p;
    node.followed = false;
    for (i = 0; node.guard && i < node.clients; i++) /* below 1 % of what it does now */
        node.of[i].depth = (uint64_t)node.rate / node.steps + 1;
}

static void n_run(struct world *w)
{
    uint64_t p, periods, next = 8;
    uint32_t i;
    memset(&node, 0, sizeof node);
    memset(storage, 0, sizeof storage);
    n_draw(w);
    periods = node.guard ? 24 : node.steady ? 120 : 30 + 20 * world_choice(w, F_LENGTH);
    node.rate = (double)node.C;
    node.begin = node.T + start_ns(w) - (uint64_t)world_value(w, F_BASE);
    node.now = node.begin;
    if (tokenpool_monitor_init(&monitor[0], memory[0], sizeof memory[0], storage, sizeof storage, &node.config) !=
        QOS_OK)
        world_fail(w, "init", 0, "a configuration within the ranges is refused");
    for (i = 0; i < node.clients && !w->broken; i++)
        if (tokenpool_monitor_join(&monitor[0], i, node.of[i].reservation, 0, NULL) != QOS_OK ||
            tokenpool_client_attach(&node.of[i].engine, i, 0, storage, sizeof storage) != QOS_OK)
            world_fail(w, "admission", 0, "client %" PRIu32 ": a reservation that fits is refused", i);
    for (p = 0; p < periods && !w->broken; p++) {
        if (p == next) {
            if (!node.fixed && !node.leaves)
                n_change(p);
            next += world_between(&run.rng, 9, 14);
        }
        n_period(w);
        n_judge_estimate(p, p + 1 == next);
        n_judge_shares(p, p + 1 == next || p + 1 == periods);
    }
    w->events = periods * node.steps;
}

#endif
