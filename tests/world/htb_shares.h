/* htb_shares.h - who gets how much: tenants whose queues are never empty, in a small tree
 *
 * In most worlds nobody has a rate, weights are any, and the device takes all at once; some pause and come back. There
 * requests may cost other than they claim, or so much that the clocks of rings overflow. In others everybody has a rate,
 * and the device is slower than the sum of these; there rates change, too. In the rest nobody calls for longer than a
 * bucket lasts. Accounts are doubles. */
#ifndef QOS_TESTS_WORLD_HTB_SHARES_H
#define QOS_TESTS_WORLD_HTB_SHARES_H

#define SH_NODES 12u /* ids 1 and 2 may be groups */
#define SH_DEPTH 3u
#define SH_BURST_S 0.01
#define SH_LAG_S 0.05 /* of a slow device */

enum sh_kind { SH_BORROW = 0, SH_SLOW, SH_LATE }; /* late: those who call */

struct sh_node {
    bool group;
    uint32_t depth;                       /* requests that it has at once */
    double judged_s, ahead_s;             /* the account of a new rate begins then; until then it may get more */
    bool less;                            /* it claims an eighth of what its requests cost */
    double behind;                        /* of calls that are late: tokens below R t */
    uint32_t up;                          /* 0: the root */
    double weight, rate, largest, given;  /* given: since the terms are these */
    uint32_t waiting;                     /* tenants that wait, it or below it */
    double low[SH_NODES], high[SH_NODES]; /* given / weight, less that of another, since both wait */
    bool pair[SH_NODES], on;
    uint64_t least, most;
    struct htb_request request[SH_DEPTH];
};

static struct {
    struct world *w;
    struct world_rng rng;
    struct sh_node node[SH_NODES];
    uint32_t nodes;
    uint64_t now, root;
    enum sh_kind kind;
    bool inner;       /* classes of groups have rates, too */
    bool vague;       /* a request costs any size of its tenant, not what it claimed */
    bool large;       /* of two resources, so the cost is in ns: a request takes up to an hour of the root */
    double left;      /* of the root's rate */
    double corrected; /* requests; each correction rounds by 2^-16 */
    double before_s;  /* the longest before the last change of a rate */
} sh;
static struct htb sh_tree;
static unsigned char sh_memory[32768] __attribute__((aligned(64)));

#define SH_FAIL(oracle, ...) world_fail(sh.w, oracle, sh.now, __VA_ARGS__)

/* A tenant begins to wait, or no longer does: what it and those above it differ from others counts anew. */
static void sh_waits(uint32_t id, bool on)
{
    uint32_t at, other;
    sh.node[id].on = on;
    for (at = id; at != 0; at = sh.node[at].up) {
        bool before = sh.node[at].waiting != 0;
        sh.node[at].waiting += on ? 1 : UINT32_MAX;
        for (other = 1; other < SH_NODES && before != (sh.node[at].waiting != 0); other++)
            sh.node[at].pair[other] = sh.node[other].pair[at] = false;
    }
}

static double sh_s(void)
{
    return (double)sh.now / 1e9;
}

/* The longest that a request takes at the rate of its class: so far before others a newcomer may start. */
static double sh_longest(void)
{
    double longest = 0;
    uint32_t id;
    for (id = 1; id < sh.nodes; id++)
        if (sh.node[id].rate > 0)
            longest = fmax(longest, sh.node[id].largest / sh.node[id].rate);
    return longest;
}

/* May classes come and go? Not while one is as far behind the others as an old request of it takes. */
static bool sh_settled(void)
{
    uint32_t id;
    for (id = 1; id < sh.nodes; id++)
        if (sh_s() < sh.node[id].ahead_s)
            return false;
    return sh_longest() <= 2 * SH_BURST_S;
}

/* `weights`: any two borrowers of one lender differ by at most n1 / w1 + n2 / w2 while both wait. `slow`: so do two that
 * have rates, in what they got / R, if the device gives less than these: all are cut to the same part. There what a
 * request costs more than its estimate shows when it is complete. */
static void sh_judge(uint32_t at)
{
    struct sh_node *a = &sh.node[at], *b;
    uint32_t other;
    for (other = 1; other < sh.nodes; other++) {
        double d, most;
        b = &sh.node[other];
        if (other == at || b->up != a->up || a->waiting == 0 || b->waiting == 0)
            continue;
        if (sh.kind == SH_SLOW &&
            (a->up != 0 || (sh.inner && (a->group || b->group)) || sh_s() < fmax(a->judged_s, b->judged_s)))
            continue;
        d = sh.kind == SH_SLOW ? a->given / a->rate - b->given / b->rate : a->given / a->weight - b->given / b->weight;
        if (!a->pair[other])
            a->low[other] = a->high[other] = d;
        a->pair[other] = b->pair[at] = true;
        a->low[other] = sh_s() < a->ahead_s ? d : fmin(a->low[other], d);
        a->high[other] = sh_s() < b->ahead_s ? d : fmax(a->high[other], d);
        b->low[at] = -a->high[other];
        b->high[at] = -a->low[other];
        if (sh.kind == SH_SLOW)
            most = fmax(sh.before_s, sh_longest()) +
                   (a->largest / a->rate + b->largest / b->rate) * (sh.vague || a->group || b->group ? 4 : 3) + 1e-6;
        else
            most = (a->largest / a->weight + b->largest / b->weight) * 1.001 + 1e-3 + sh.corrected / 65536;
        if (a->high[other] - a->low[other] > most)
            SH_FAIL(sh.kind == SH_SLOW ? "slow" : "weights",
                    "%" PRIu32 " and %" PRIu32 " differ by %g per weight or rate, allowed %g", at, other,
                    a->high[other] - a->low[other], most);
    }
}

static void sh_given(uint32_t id, uint64_t n)
{
    uint32_t at;
    world_trace(sh.now, id, "given", n);
    sh.w->events++;
    for (at = id; at != 0; at = sh.node[at].up) {
        sh.node[at].given += (double)n;
        if (sh.kind != SH_LATE)
            sh_judge(at);
    }
}

static uint64_t sh_size(const struct sh_node *t)
{
    return world_between(&sh.rng, t->least, t->most);
}

static void sh_submit(uint32_t id)
{
    uint32_t i;
    for (i = 0; i < sh.node[id].depth; i++) {
        struct htb_request *r = &sh.node[id].request[i];
        if (r->state != HTB_IDLE)
            continue;
        r->class_id = id;
        r->tokens[0] = sh_size(&sh.node[id]);
        if (sh.vague && sh.node[id].less)
            r->tokens[0] = r->tokens[0] / 8 + 1;
        if (htb_submit(&sh_tree, sh.now, r) != QOS_OK)
            SH_FAIL("submit", "a request is refused");
    }
}

/* All that may go now goes. Returns when the next may. */
static uint64_t sh_go(void)
{
    uint32_t id;
    struct htb_request *r;
    for (id = 1; id < sh.nodes; id++)
        sh_judge(id);
    for (id = 1; id < sh.nodes; id++)
        if (!sh.node[id].group && sh.node[id].on)
            sh_submit(id);
    while (!sh.w->broken && (r = htb_dispatch(&sh_tree, sh.now)) != NULL) {
        uint64_t cost[HTB_RESOURCES_MAX] = {0};
        id = r->class_id;
        cost[0] = sh.vague ? sh_size(&sh.node[id]) : r->tokens[0];
        sh.corrected += sh.vague;
        sh_given(id, cost[0]);
        if (htb_complete(&sh_tree, sh.now, HTB_DONE, sh.vague ? cost : NULL, r) != QOS_OK)
            SH_FAIL("once", "a completion is refused");
        if (sh.node[id].on)
            sh_submit(id);
        else if (htb_queue_next(&sh_tree, id, NULL) == NULL)
            sh_waits(id, false);
    }
    return htb_dispatch_next_ns(&sh_tree, sh.now);
}

static struct htb_class sh_terms(uint32_t id)
{
    struct htb_class terms;
    memset(&terms, 0, sizeof terms);
    terms.group = sh.node[id].group;
    terms.parent = sh.node[id].up;
    terms.weight = (uint32_t)sh.node[id].weight;
    terms.rate_per_s[0] = (uint64_t)sh.node[id].rate;
    return terms;
}

/* A class gets another rate: now and then so low a one that a request of it takes seconds. Its part is judged anew
 * from when its debts are paid. Open: a raised class may wait for those that are lag_ns behind, which a device that does a
 * fifth makes up for in five times that; or it gets more than others for as long as its old request took. */
static void sh_change(uint32_t id)
{
    struct sh_node *t = &sh.node[id];
    struct htb_class terms;
    uint32_t other;
    if (t->group || t->up != 0)
        return;
    sh.before_s = sh_longest();
    sh.left += t->rate;
    t->ahead_s = sh_s() + 5 * t->largest / t->rate;
    t->rate = world_chance(&sh.rng, 400) ? floor(t->rate / 1000) + 1
                                         : floor(sh.left * (double)world_between(&sh.rng, 10, 50) / 100) + 1;
    sh.left -= t->rate;
    t->given = 0;
    t->judged_s = t->largest > t->rate * SH_BURST_S || t->rate < (double)sh.root / 200
                      ? 1e300
                      : sh_s() + 2 * t->largest / t->rate + 4 * SH_BURST_S + 5 * SH_LAG_S;
    for (other = 0; other < SH_NODES; other++) /* what others differed by counts as before */
        memset(sh.node[other].pair, 0, sizeof t->pair);
    terms = sh_terms(id);
    world_trace(sh.now, id, "rate", terms.rate_per_s[0]);
    if (htb_change(&sh_tree, sh.now, id, &terms, NULL) != QOS_OK)
        SH_FAIL("admission", "what fits is refused");
}

/* The sum of the rates of those that wait. */
static double sh_wanted(void)
{
    double sum = (double)sh.root / 1000; /* those of whom that is a part are not judged */
    uint32_t id;
    for (id = 1; id < sh.nodes; id++)
        sum += sh.node[id].up == 0 && sh.node[id].waiting ? sh.node[id].rate : 0;
    return sum;
}

/* A device that does `part` of what is wanted, one request at a time: all are cut to the same part of their rates. */
static void sh_slow(double part, uint32_t steps)
{
    double at_ns;
    uint32_t i, id;
    sh.now += 2 * (uint64_t)(SH_BURST_S * 1e9); /* all buckets are full, and no request is larger than half of them */
    at_ns = (double)sh.now;
    for (i = 0; i < steps && !sh.w->broken; i++) {
        struct htb_request *r;
        uint64_t cost[HTB_RESOURCES_MAX] = {0};
        for (id = 1; id < sh.nodes; id++)
            if (!sh.node[id].group && sh.node[id].on)
                sh_submit(id);
        r = htb_dispatch(&sh_tree, sh.now);
        if (!r) {
            const uint64_t next = htb_dispatch_next_ns(&sh_tree, sh.now);
            sh.now = next < sh.now + 1000000 ? next : sh.now + 1000000; /* somebody may come back */
            at_ns = (double)sh.now;
        } else {
            id = r->class_id;
            cost[0] = sh.vague ? sh_size(&sh.node[id]) : r->tokens[0];
            at_ns += (double)cost[0] * 1e9 / (part * sh_wanted());
            sh.now = (uint64_t)at_ns;
            if (htb_complete(&sh_tree, sh.now, HTB_DONE, sh.vague ? cost : NULL, r) != QOS_OK)
                SH_FAIL("once", "a completion is refused");
            sh_given(id, cost[0]);
        }
        id = (uint32_t)world_between(&sh.rng, 1, sh.nodes - 1);
        if (!sh.node[id].group && sh_settled() && world_chance(&sh.rng, 20))
            sh.node[id].on = !sh.node[id].on;
        for (id = 1; id < sh.nodes; id++)
            if (!sh.node[id].group &&
                (sh.node[id].waiting != 0) != (sh.node[id].on || htb_queue_next(&sh_tree, id, NULL) != NULL))
                sh_waits(id, sh.node[id].on);
        if (world_chance(&sh.rng, 10))
            sh_change((uint32_t)world_between(&sh.rng, 1, sh.nodes - 1));
    }
}

/* By flight, who calls does so only each `period`, and then for as many requests as a device of 1.1 of the root's rate
 * completes in that. `own`: at least R t, less a bucket, a request of each class, and what a period brings. */
static void sh_late(uint64_t period_ns, uint32_t calls)
{
    double room = 0, requests = 0;
    uint32_t i, id;
    for (id = 1; id < sh.nodes; id++)
        requests += sh.node[id].largest / (double)sh.root;
    for (i = 0; i < calls && !sh.w->broken; i++) {
        struct htb_request *r;
        sh.now += period_ns;
        room = 1.1 * (double)sh.root * (double)period_ns / 1e9;
        while (room > 0) {
            for (id = 1; id < sh.nodes; id++)
                if (!sh.node[id].group)
                    sh_submit(id);
            if ((r = htb_dispatch(&sh_tree, sh.now)) == NULL)
                break;
            room -= (double)r->tokens[0];
            sh.node[r->class_id].behind -= (double)r->tokens[0];
            sh_given(r->class_id, r->tokens[0]);
            if (htb_complete(&sh_tree, sh.now, HTB_DONE, NULL, r) != QOS_OK)
                SH_FAIL("once", "a completion is refused");
        }
        for (id = 1; id < sh.nodes; id++) {
            struct sh_node *t = &sh.node[id];
            const double most = t->rate * (2 * SH_BURST_S + (double)period_ns / 1e9 + requests) + t->largest;
            t->behind = fmax(0, t->behind) + t->rate * (double)period_ns / 1e9;
            if (!t->group && t->up == 0 && t->behind > most * 1.001 + 2)
                SH_FAIL("own", "class %" PRIu32 " waits and is %.0f tokens behind its rate, %.0f allowed", id,
                        t->behind, most);
        }
    }
}

static void sh_draw(void)
{
    static const uint32_t weight[] = {1, 1, 2, 3, 10, 1000, 65537, 999999, 1000000};
    uint64_t size = world_chance(&sh.rng, 400) ? 8 : world_scale(&sh.rng, 10, 100000);
    uint32_t groups, id;
    sh.nodes = (uint32_t)world_between(&sh.rng, 3, SH_NODES);
    sh.kind = world_chance(&sh.rng, 300) ? SH_SLOW : world_chance(&sh.rng, 150) ? SH_LATE : SH_BORROW;
    sh.inner = world_chance(&sh.rng, 500);
    sh.vague = sh.kind != SH_LATE && world_chance(&sh.rng, 300);
    sh.large = sh.kind == SH_BORROW && !sh.vague && world_chance(&sh.rng, 300);
    sh.root = sh.large ? 1000 : world_scale(&sh.rng, sh.kind == SH_BORROW ? 1000 : 1000000, 100000000);
    size = sh.large ? 4000000 : size;
    if (sh.kind != SH_BORROW)
        size = sh.root / world_between(&sh.rng, 200, 2000) + 1;
    groups = sh.nodes > 5 ? (uint32_t)world_between(&sh.rng, 0, 2) : 0;
    sh.left = 0.95 * (double)sh.root;
    for (id = 1; id < sh.nodes; id++) {
        struct sh_node *t = &sh.node[id];
        t->group = id <= groups;
        t->up = t->group ? 0 : id <= 2 * groups ? id - groups : (uint32_t)world_between(&sh.rng, 0, groups);
        t->weight = weight[world_rand(&sh.rng) % (sh.large ? 3 : sh.vague ? 5 : sizeof weight / sizeof *weight)];
        t->depth = (uint32_t)world_between(&sh.rng, sh.vague || sh.kind == SH_LATE || groups ? 2 : 1, SH_DEPTH);
        t->most = world_between(&sh.rng, 1, size) + (sh.kind == SH_LATE ? size / 16 : 0); /* not millions a call */
        t->less = world_chance(&sh.rng, 300);
        t->least = world_chance(&sh.rng, 500) ? t->most : 1;
        if (sh.kind != SH_BORROW && t->up == 0) {
            t->rate = floor(sh.left * (double)world_between(&sh.rng, 10, 50) / 100) + 1;
            sh.left -= t->rate;
        } else if (sh.kind != SH_BORROW) { /* the group lends the rest of its rate */
            t->rate = sh.inner ? floor(sh.node[t->up].rate / (2 * SH_NODES)) : 0;
        }
        if (sh.kind == SH_SLOW)
            t->most = (uint64_t)fmin((double)t->most, sh.node[t->up && !sh.inner ? t->up : id].rate * SH_BURST_S) + 1;
        t->least = world_chance(&sh.rng, 500) ? t->most : 1;
        t->largest = t->group ? 0 : (double)t->most;
        if (t->up && sh.node[t->up].largest < t->largest)
            sh.node[t->up].largest = t->largest;
    }
}

static void shares_run(struct world *w)
{
    struct htb_config c;
    uint32_t id, i, steps = (uint32_t)world_value(w, F_STEPS) * 8;
    memset(&sh, 0, sizeof sh);
    memset(&c, 0, sizeof c);
    sh.w = w;
    world_rng_init(&sh.rng, w->seed, 103);
    sh_draw();
    sh.now = 1000000000;
    c.classes = SH_NODES;
    c.resources = sh.large ? 2 : 1;
    c.rate_per_s[0] = c.rate_per_s[1] = sh.root;
    c.start_ns = sh.now;
    c.bound = sh.kind == SH_LATE ? HTB_BY_FLIGHT : HTB_BY_RATE;
    c.dispatch_max = 1;
    c.lag_ns = sh.kind == SH_SLOW ? (uint64_t)(SH_LAG_S * 1e9) : 0;
    if (htb_init(&sh_tree, sh_memory, sizeof sh_memory, &c) != QOS_OK)
        SH_FAIL("init", "%s", htb_config_error(&c));
    for (id = 1; id < sh.nodes; id++) {
        const struct htb_class terms = sh_terms(id);
        if (htb_reserve(&sh_tree, sh.now, id, &terms, NULL) != QOS_OK)
            SH_FAIL("admission", "what fits is refused");
        sh.node[id].on = true;
        if (!terms.group)
            sh_waits(id, true);
    }
    if (sh.kind == SH_SLOW) {
        sh_slow((double)world_between(&sh.rng, 20, 80) / 100, steps);
        return;
    }
    if (sh.kind == SH_LATE) {
        sh_late(world_scale(&sh.rng, 1000000, 200000000), steps / 16 + 4);
        return;
    }
    for (i = 0; i < steps && !w->broken; i++) {
        uint64_t next = sh_go();
        id = (uint32_t)world_between(&sh.rng, 1, sh.nodes - 1);
        if (!sh.node[id].group && world_chance(&sh.rng, 20)) { /* it pauses, or comes back */
            sh.node[id].on = !sh.node[id].on;                  /* what is queued still waits */
            if (sh.node[id].on && sh.node[id].waiting == 0)
                sh_waits(id, true);
        }
        if (next == QOS_NEVER)
            next = sh.now + 1000000;
        sh.now = next > sh.now ? next : sh.now + 1;
    }
}

#endif
