/* htb_trees.h - several trees share classes: the promises of htb.h's chapter "several threads"
 *
 * Two to four trees take turns, one after the other, at moments a fraction of the interval of exchanges apart. The
 * device takes all at once. Which class has demand in which tree changes now and then; a tree may be gone, and another
 * join in its slot; a tree may exchange late, or at a wrong time, an hour ahead, whereupon its clock is reset. `joined`:
 * demand goes to and fro between trees, or stays where it is, in queues or at the gate; or each tree has a slow device.
 * The account is of what each class was given by all trees, in doubles. */
#ifndef QOS_TESTS_WORLD_HTB_TREES_H
#define QOS_TESTS_WORLD_HTB_TREES_H

#define JO_TREES 4u
#define JO_CLASSES 7u /* 1 is a group in some worlds; 0 is best effort, without demand */
#define JO_DEPTH 3u

struct jo_class {
    struct htb_class terms;
    uint64_t n; /* of each request */
    bool want[JO_TREES];
    double given, above, above_s; /* above: tokens above L t in the worst window */
    double since_s, given_then;   /* since its demand moved */
};

enum jo_kind { JO_ANY = 0, JO_TO_AND_FRO, JO_STEADY, JO_SLOW };

static struct {
    struct world *w;
    struct world_rng rng, more;
    enum jo_kind kind;
    double given_then[JO_CLASSES];  /* steady, slow: when it has settled */
    uint32_t trees, classes, apart; /* apart: ids of classes, so that there may be thousands of nodes */
    struct htb_config config;
    struct htb_shared_config shared;
    struct jo_class class_of[JO_CLASSES];
    uint64_t now, late_ns[JO_TREES];
    double gone;  /* trees so far: each had debts */
    double wrong; /* times so far: each filled buckets and paid debts */
    bool queues, grouped, all_in_time;
    double total, idle_since_s, idle_total, burst_s, interval_s;
    double above, above_s; /* of all classes: tokens above the root's rate in the worst window */
} jo;
static struct htb jo_tree[JO_TREES];
static struct htb_request jo_request[JO_TREES][JO_CLASSES][JO_DEPTH];
static unsigned char jo_memory[JO_TREES][4 << 20] __attribute__((aligned(64)));
static unsigned char jo_shared[8 << 20] __attribute__((aligned(64)));

#define JO_FAIL(oracle, ...) world_fail(jo.w, oracle, jo.now, __VA_ARGS__)

static double jo_s(void)
{
    return (double)jo.now / 1e9;
}

static bool jo_wanted(uint32_t id)
{
    uint32_t k;
    for (k = 0; k < jo.trees; k++)
        if (jo.class_of[id].want[k])
            return true;
    return false;
}

/* From now on the account of what class id must get begins anew. */
static void jo_begin(uint32_t id)
{
    struct jo_class *c = &jo.class_of[id];
    c->since_s = jo.idle_since_s = jo_s();
    c->given_then = c->given;
    jo.idle_total = jo.total;
}

/* `trees_total`: all trees together pass the root's rate, a bucket of it in each, and a debt for each class in each. If
 * one exchanges late, what its classes take of their own is lent by others, for as long: not judged. */
static void jo_all(double n)
{
    double root = (double)jo.config.rate_per_s[0], most = 2 * root * jo.burst_s;
    uint32_t id;
    for (id = 1; id < jo.classes; id++)
        most += (double)jo.class_of[id].n;
    most *= jo.trees + jo.gone + jo.wrong;
    jo.above = fmax(0, jo.above - root * (jo_s() - jo.above_s)) + n;
    jo.above_s = jo_s();
    if (jo.all_in_time && jo.above > most * 1.0001 + 2)
        JO_FAIL("trees_total", "all classes: %.0f tokens above the root's rate, %.0f allowed", jo.above, most);
}

static void jo_given(uint32_t id, double n)
{
    struct jo_class *c = &jo.class_of[id];
    double trees = jo.trees + jo.wrong, debts = trees + jo.gone, limit = (double)c->terms.limit_per_s[0];
    world_trace(jo.now, id, "given", (uint64_t)n);
    jo.w->events++;
    c->given += n;
    if (limit > 0) {
        c->above = fmax(0, c->above - limit * (jo_s() - c->above_s)) + n;
        c->above_s = jo_s();
        if (c->above > (trees * 2 * limit * jo.burst_s + debts * (double)c->n) * 1.0001 + 2)
            JO_FAIL("trees_limit", "class %" PRIu32 ": %.0f tokens above L t, %.0f allowed", id, c->above,
                    trees * 2 * limit * jo.burst_s + debts * (double)c->n);
    }
    jo.total += n;
    jo_all(n);
}

/* `trees_own`: R less N / 256 of it, less 3 T R for each move of the demand. `trees_idle`: of the root's rate at most
 * N / 128 is idle while a class without a limit has demand, and 3 T of it for each move. Between two moves: */
static void jo_judge(void)
{
    double trees = jo.trees, root = (double)jo.config.rate_per_s[0], held = 0;
    bool unlimited = false;
    uint32_t id, k;
    struct htb_state s;
    for (id = 1; id < jo.classes; id++) {
        const struct jo_class *c = &jo.class_of[id];
        double rate = (double)c->terms.rate_per_s[0], t = jo_s() - c->since_s, least;
        if (c->terms.group || !jo_wanted(id))
            continue;
        unlimited = unlimited || (c->terms.limit_per_s[0] == 0 && c->terms.parent == 0);
        least =
            rate * (1 - trees / 256) * t - 3 * jo.interval_s * rate - trees * (2 * rate * jo.burst_s + (double)c->n);
        if (rate > 0 && jo.all_in_time && c->given - c->given_then < least * 0.999 - 2)
            JO_FAIL("trees_own", "class %" PRIu32 " got %.0f tokens in %.3f s, its rate is %.0f", id,
                    c->given - c->given_then, t, rate);
    }
    if (unlimited && jo.all_in_time) {
        double t = jo_s() - jo.idle_since_s, largest = 0;
        for (id = 1; id < jo.classes; id++)
            largest = fmax(largest, (double)jo.class_of[id].n);
        if ((WORLD_V02 || 4 * largest < root * jo.interval_s) && /* open in today's: see htb.worlds */
            jo.total - jo.idle_total <
                0.999 * (root * (1 - trees / 128) * t - 3 * jo.interval_s * root * (jo.classes - 1) -
                         trees * (2 * root * jo.burst_s + largest)) -
                    2)
            JO_FAIL("trees_idle", "all together got %.0f tokens in %.3f s, the root's rate is %.0f",
                    jo.total - jo.idle_total, t, root);
    }
    for (k = 0; k < jo.trees; k++) {
        (void)htb_info(&jo_tree[k], &s);
        held += (double)s.rate_per_s[0];
    }
    if (held > root + 1)
        JO_FAIL("trees_root", "the trees hold %.0f of the root's rate of %.0f", held, root);
}

/* A tree begins in slot k, as the first one or after another that is gone. */
static void jo_open(uint32_t k)
{
    uint32_t id;
    memset(jo_request[k], 0, sizeof jo_request[k]);
    if (htb_init(&jo_tree[k], jo_memory[k], sizeof jo_memory[k], &jo.config) != QOS_OK ||
        htb_join(&jo_tree[k], jo.now, (struct htb_shared *)(void *)jo_shared, k) != QOS_OK)
        JO_FAIL("init", "a tree cannot join");
    if (htb_join(&jo_tree[k], jo.now, (struct htb_shared *)(void *)jo_shared, k) != QOS_EINVAL)
        JO_FAIL("terms", "a tree joins twice");
    for (id = 1; id < jo.classes; id++)
        if (htb_reserve(&jo_tree[k], jo.now, id * jo.apart, &jo.class_of[id].terms, NULL) != QOS_OK)
            JO_FAIL("admission", "a tree that has joined refuses what fits");
}

/* Class id has all its requests in the queue of tree k, if it has demand there. */
static void jo_ask(uint32_t id, uint32_t k)
{
    uint32_t i;
    for (i = 0; jo.class_of[id].want[k] && i < JO_DEPTH; i++) {
        struct htb_request *r = &jo_request[k][id][i];
        if (r->state != HTB_IDLE)
            continue;
        r->class_id = id * jo.apart;
        r->tokens[0] = jo.class_of[id].n;
        if (htb_submit(&jo_tree[k], jo.now, r) != QOS_OK)
            JO_FAIL("submit", "a request is refused");
    }
}

/* One pass through the loop of thread k. */
static void jo_turn(uint32_t k)
{
    struct htb_request *r;
    uint32_t id, i;
    if (jo.now >= jo.late_ns[k]) {
        uint64_t next = htb_exchange(&jo_tree[k], jo.now);
        if (next <= jo.now)
            JO_FAIL("terms", "the next exchange is told to be in the past");
    }
    for (id = 1; id < jo.classes; id++) {
        struct jo_class *c = &jo.class_of[id];
        if (!c->want[k])
            continue;
        if (!jo.queues)
            for (i = 0; i < 1000 && htb_take(&jo_tree[k], jo.now, id * jo.apart, c->n) == QOS_OK; i++)
                jo_given(id, (double)c->n);
        if (jo.queues)
            jo_ask(id, k);
    }
    for (i = 0; i < 2000 && jo.queues && (r = htb_dispatch(&jo_tree[k], jo.now)) != NULL && !jo.w->broken; i++) {
        jo_given(r->class_id / jo.apart, (double)r->tokens[0]);
        if (htb_complete(&jo_tree[k], jo.now, HTB_DONE, NULL, r) != QOS_OK)
            JO_FAIL("once", "a completion is refused");
        if (jo.class_of[r->class_id / jo.apart].want[k] && htb_submit(&jo_tree[k], jo.now, r) != QOS_OK)
            JO_FAIL("submit", "a request is refused");
    }
}

/* The demand of a class begins or ends in a tree. What waits there is withdrawn. */
static void jo_move(uint32_t id, uint32_t k)
{
    struct jo_class *c = &jo.class_of[id];
    uint32_t i;
    if (c->terms.group)
        return;
    c->want[k] = !c->want[k];
    for (i = 0; i < JO_DEPTH && !c->want[k]; i++)
        if (jo_request[k][id][i].state == HTB_QUEUED &&
            htb_cancel(&jo_tree[k], jo.now, &jo_request[k][id][i]) != QOS_OK)
            JO_FAIL("once", "a queued request cannot be cancelled");
    jo_begin(id);
}

/* All demand of a class is in another tree from now on. */
static void jo_carry(uint32_t id)
{
    uint32_t k, to = (uint32_t)world_between(&jo.more, 0, jo.trees - 1);
    if (jo.class_of[id].want[to])
        to = (to + 1) % jo.trees;
    for (k = 0; k < jo.trees; k++)
        if (jo.class_of[id].want[k] != (k == to))
            jo_move(id, k);
}

/* `trees_weights`: what the root lends goes by weight over all trees, in the mean. `trees_slow`: a slower device cuts all to
 * the same part of R, also those who have only a part of it in each tree. */
static void jo_judge_shares(void)
{
    double least = 1e300, most = 0, share;
    uint32_t id;
    for (id = 1; id < jo.classes; id++) {
        const struct jo_class *c = &jo.class_of[id];
        share =
            (c->given - jo.given_then[id]) / (jo.kind == JO_SLOW ? (double)c->terms.rate_per_s[0] : c->terms.weight);
        least = fmin(least, share);
        most = fmax(most, share);
    }
    if (most > (jo.kind == JO_SLOW ? 1.15 : 2) * least)
        JO_FAIL(jo.kind == JO_SLOW ? "trees_slow" : "trees_weights",
                "by weight or rate one has %.3f of what another has", least / most);
}

/* Each tree has a class of its own and a part of one that asks in all of them, and a device that does a part of that, one
 * request at a time. */
static void jo_slow(void)
{
    const uint32_t shared = jo.trees + 1;
    const double part = (double)world_between(&jo.more, 20, 80) / 100;
    const double per_s = part * ((double)jo.class_of[1].terms.rate_per_s[0] +
                                 (double)jo.class_of[shared].terms.rate_per_s[0] / jo.trees);
    struct htb_request *at[JO_TREES] = {NULL};
    uint64_t end_ns[JO_TREES] = {0};
    const uint64_t settled_ns = jo.now + (uint64_t)(20e9 * jo.interval_s),
                   end = jo.now + (uint64_t)(80e9 * jo.interval_s);
    uint32_t k, id;
    while (jo.now < end && !jo.w->broken) {
        uint64_t next = UINT64_MAX;
        for (id = 1; id < jo.classes && jo.now < settled_ns; id++)
            jo.given_then[id] = jo.class_of[id].given;
        for (k = 0; k < jo.trees; k++) {
            uint64_t exchange = htb_exchange(&jo_tree[k], jo.now);
            next = exchange < next ? exchange : next;
            if (at[k] && end_ns[k] <= jo.now) {
                jo.class_of[at[k]->class_id / jo.apart].given += (double)at[k]->tokens[0];
                if (htb_complete(&jo_tree[k], jo.now, HTB_DONE, NULL, at[k]) != QOS_OK)
                    JO_FAIL("once", "a completion is refused");
                at[k] = NULL;
            }
            for (id = 1; id < jo.classes; id++)
                jo_ask(id, k);
            if (!at[k] && (at[k] = htb_dispatch(&jo_tree[k], jo.now)) != NULL)
                end_ns[k] = jo.now + (uint64_t)((double)at[k]->tokens[0] * 1e9 / per_s) + 1;
            next = at[k] && end_ns[k] < next ? end_ns[k] : next;
        }
        jo.w->events++;
        jo.now = next > jo.now ? next : jo.now + 1;
    }
    if (!jo.w->broken)
        jo_judge_shares();
}

/* Thread k shows a time an hour ahead, once, and resets its clock. What was exchanged then counts as a move. */
static void jo_wrong_time(uint32_t k)
{
    const uint64_t wrong_ns = jo.now + 3600 * UINT64_C(1000000000);
    uint32_t id;
    jo.wrong++;
    if (jo.queues || world_chance(&jo.more, 500))
        (void)htb_exchange(&jo_tree[k], wrong_ns);
    for (id = 1; id < jo.classes && !jo.queues; id++)
        if (jo.class_of[id].want[k] && htb_take(&jo_tree[k], wrong_ns, id * jo.apart, jo.class_of[id].n) == QOS_OK)
            jo_given(id, (double)jo.class_of[id].n);
    htb_reset_clock(&jo_tree[k], jo.now);
    for (id = 1; id < jo.classes; id++)
        jo_begin(id);
}

static void jo_draw(void)
{
    uint64_t root = world_scale(&jo.rng, 100, 1000000000), left, n;
    uint32_t id;
    jo.trees = (uint32_t)world_between(&jo.rng, 2, JO_TREES);
    jo.classes = (uint32_t)world_between(&jo.rng, 2, JO_CLASSES);
    jo.queues = world_chance(&jo.rng, 500);
    jo.grouped = jo.classes > 3 && world_chance(&jo.rng, 300);
    jo.shared.trees = jo.trees;
    jo.shared.classes = JO_CLASSES * jo.apart;
    jo.shared.interval_ns = world_chance(&jo.rng, 400) ? 0 : world_scale(&jo.rng, 1000000, 20000000);
    jo.interval_s = jo.shared.interval_ns ? (double)jo.shared.interval_ns / 1e9 : 0.005;
    jo.config.classes = JO_CLASSES * jo.apart;
    jo.config.rate_per_s[0] = root;
    jo.config.bound = HTB_BY_RATE;
    jo.config.burst_ns = world_chance(&jo.rng, 500) ? 0 : (uint64_t)(jo.interval_s * 1e9 * 3);
    jo.burst_s = jo.config.burst_ns ? (double)jo.config.burst_ns / 1e9 : 0.01;
    left = root;
    n = (uint64_t)((double)root * jo.interval_s / 16) + 1;
    for (id = 1; id < jo.classes; id++) {
        struct jo_class *c = &jo.class_of[id];
        c->terms.weight = 1u << world_between(&jo.rng, 0, 2);
        c->terms.group = jo.grouped && id == 1;
        c->terms.parent = jo.grouped && (id == 2 || id == 3) ? jo.apart : 0;
        c->n = world_between(&jo.rng, n / 16 + 1, n);
        if (c->terms.parent == 0) {
            c->terms.rate_per_s[0] = world_chance(&jo.rng, 600) ? world_between(&jo.rng, 0, left / 2) : 0;
            left -= c->terms.rate_per_s[0];
        } else {
            c->terms.rate_per_s[0] = world_chance(&jo.rng, 600) ? jo.class_of[1].terms.rate_per_s[0] / 2 : 0;
        }
        if (c->terms.parent != 0 && jo.class_of[1].n < c->n) /* the largest request of the group */
            jo.class_of[1].n = c->n;
        if (!c->terms.group && world_chance(&jo.rng, 300))
            c->terms.limit_per_s[0] = c->terms.rate_per_s[0] + world_between(&jo.rng, 1, root / 8);
    }
}

/* The terms of `joined`. */
static void jo_kind_draw(void)
{
    uint64_t root = jo.config.rate_per_s[0];
    uint32_t id, k;
    jo.kind = world_chance(&jo.more, 400) ? JO_TO_AND_FRO : world_chance(&jo.more, 500) ? JO_STEADY : JO_SLOW;
    jo.config.burst_ns = (uint64_t)(jo.interval_s * 1e9) * world_between(&jo.more, 2, 30);
    jo.burst_s = (double)jo.config.burst_ns / 1e9;
    if (jo.kind == JO_TO_AND_FRO) { /* in some worlds of two limits that the root has tokens for */
        jo.classes = world_chance(&jo.more, 500) ? 3 : jo.classes;
        for (id = 1; id < jo.classes && jo.classes == 3; id++)
            jo.class_of[id].terms.limit_per_s[0] =
                jo.class_of[id].terms.rate_per_s[0] + (root - jo.class_of[id].terms.rate_per_s[0]) / 6;
        return;
    }
    root += 1000000; /* many requests an interval */
    jo.config.rate_per_s[0] = root;
    jo.queues = true;
    jo.classes = jo.kind == JO_SLOW ? jo.trees + 2 : jo.classes < 3 ? 3 : jo.classes;
    jo.config.dispatch_max = 1;
    for (id = 1; id < jo.classes; id++) {
        struct jo_class *c = &jo.class_of[id];
        memset(c->terms.limit_per_s, 0, sizeof c->terms.limit_per_s);
        c->terms.group = false;
        c->terms.parent = 0;
        c->terms.weight = 1u << world_between(&jo.more, 0, 2);
        c->terms.rate_per_s[0] = jo.kind == JO_STEADY ? 0 : root / (id == jo.trees + 1 ? 3 : 2 * jo.trees);
        c->n = (uint64_t)((double)root * jo.interval_s / 64 * (double)world_between(&jo.more, 50, 100) / 100) + 1;
        for (k = 0; k < jo.trees; k++)
            c->want[k] = jo.kind == JO_SLOW ? id == k + 1 || id == jo.trees + 1 : world_chance(&jo.more, 400);
        if (jo.kind == JO_STEADY)
            c->want[world_between(&jo.more, 0, jo.trees - 1)] = true;
    }
    jo.queues = jo.kind == JO_SLOW || world_chance(&jo.more, 500);
    for (id = 1; id < jo.classes && !jo.queues; id++) { /* at the gate, most in all trees, some with large requests */
        struct jo_class *c = &jo.class_of[id];
        c->n *= world_chance(&jo.more, 500) ? 1 : world_between(&jo.more, 2, 32);
        for (k = 0; k < jo.trees; k++)
            c->want[k] = c->want[k] || world_chance(&jo.more, 800);
    }
}

static void trees_run(struct world *w)
{
    uint64_t step_ns, steps = (uint64_t)world_value(w, F_STEPS) * 8, i, carry;
    uint32_t k, moves;
    memset(&jo, 0, sizeof jo);
    jo.w = w;
    world_rng_init(&jo.rng, w->seed, 109);
    jo.apart = world_chance(&jo.rng, 700) ? 1 : world_chance(&jo.rng, 500) ? 11 : 1000;
    world_rng_init(&jo.rng, w->seed, 101);
    world_rng_init(&jo.more, w->seed, 107);
    jo_draw();
    if (world_choice(w, F_PROGRAM) == 8)
        jo_kind_draw();
    jo.now = 1000000;
    if (htb_shared_memsize(&jo.shared) > sizeof jo_shared ||
        htb_shared_init((struct htb_shared *)(void *)jo_shared, sizeof jo_shared, &jo.shared) != QOS_OK)
        JO_FAIL("init", "shared memory within the ranges is refused");
    for (k = 0; k < jo.trees; k++)
        jo_open(k);
    if (jo.kind == JO_SLOW) {
        jo_slow();
        return;
    }
    steps = jo.kind == JO_TO_AND_FRO ? 3 * steps : jo.kind == JO_STEADY ? 1000 + steps : steps;
    step_ns = (uint64_t)(jo.interval_s * 1e9 / (double)world_between(&jo.rng, 3, 8));
    jo.all_in_time = true;
    carry = (uint64_t)(jo.burst_s * 1e9) / step_ns * world_between(&jo.more, 2, 8) / 2 + 1;
    moves = (uint32_t)world_between(&jo.rng, 2, 8);
    for (k = 1; k < jo.classes && jo.kind != JO_STEADY; k++)
        jo_move(k, (uint32_t)world_between(&jo.rng, 0, jo.trees - 1));
    for (i = 1; i <= steps && !w->broken; i++) {
        for (k = 0; k < jo.trees && !w->broken; k++)
            jo_turn(k);
        if (i % 16 == 0)
            jo_judge();
        if (jo.kind == JO_STEADY) {
            jo.now += step_ns;
            for (k = 1; k < jo.classes && i == steps / 2; k++)
                jo.given_then[k] = jo.class_of[k].given;
            continue;
        }
        for (k = 1; k < jo.classes && jo.kind == JO_TO_AND_FRO && i % carry == 0; k++)
            if (jo.classes == 3 || world_chance(&jo.more, 700))
                jo_carry(k);
        if (steps / moves && i % (steps / moves) == 0 && jo.classes > 1) {
            const uint32_t to = (uint32_t)world_between(&jo.rng, 0, jo.trees - 1); /* arguments have no order */
            jo_move((uint32_t)world_between(&jo.rng, 1, jo.classes - 1), to);
        }
        if (world_chance(&jo.rng, 2)) { /* a tree is gone, and another joins in its slot */
            k = (uint32_t)world_between(&jo.rng, 0, jo.trees - 1);
            jo_open(k);
            jo.gone++;
            for (k = 1; k < jo.classes; k++)
                jo_begin(k);
        }
        if (world_chance(&jo.rng, 1)) { /* one exchanges late: then only the limits are judged */
            jo.late_ns[world_between(&jo.rng, 0, jo.trees - 1)] = jo.now + 20 * step_ns * 8;
            jo.all_in_time = false;
        }
        if (world_chance(&jo.more, 2))
            jo_wrong_time((uint32_t)world_between(&jo.more, 0, jo.trees - 1));
        jo.now += step_ns;
    }
    if (jo.kind == JO_STEADY && !w->broken)
        jo_judge_shares();
}

#endif
