/* htb_shares.h - who gets how much: tenants whose queues are never empty, in a small tree
 *
 * In most worlds nobody has a rate, weights are any, and the device takes all at once; some pause and come back. There
 * requests may cost other than they claim, or so much that the clocks of rings overflow. In the others everybody has a
 * rate, and the device is slower than the sum of these. Accounts are doubles. */
#ifndef QOS_TESTS_WORLD_HTB_SHARES_H
#define QOS_TESTS_WORLD_HTB_SHARES_H

#define SH_NODES 12u /* ids 1 and 2 may be groups */
#define SH_DEPTH 3u

struct sh_node {
    bool group;
    uint32_t up; /* 0: the root */
    double weight, rate, largest, given;
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
    bool slow;
    bool vague;       /* a request costs any size of its tenant, not what it claimed */
    bool large;       /* of two resources, so the cost is in ns: a request takes up to an hour of the root */
    double left;      /* of the root's rate */
    double corrected; /* requests; each correction rounds by 2^-16 */
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

/* `weights`: any two borrowers of one lender differ by at most n1 / w1 + n2 / w2 while both wait. */
static void sh_judge(uint32_t at)
{
    struct sh_node *a = &sh.node[at], *b;
    uint32_t other;
    for (other = 1; other < sh.nodes; other++) {
        double d, most;
        b = &sh.node[other];
        if (other == at || b->up != a->up || a->waiting == 0 || b->waiting == 0)
            continue;
        d = a->given / a->weight - b->given / b->weight;
        if (!a->pair[other])
            a->low[other] = a->high[other] = d;
        a->pair[other] = b->pair[at] = true;
        a->low[other] = fmin(a->low[other], d);
        a->high[other] = fmax(a->high[other], d);
        b->low[at] = -a->high[other];
        b->high[at] = -a->low[other];
        most = (a->largest / a->weight + b->largest / b->weight) * 1.001 + 1e-3 + sh.corrected / 65536;
        if (a->high[other] - a->low[other] > most)
            SH_FAIL("weights", "%" PRIu32 " and %" PRIu32 " differ by %g per weight, allowed %g", at, other,
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
        if (!sh.slow)
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
    for (i = 0; i < SH_DEPTH; i++) {
        struct htb_request *r = &sh.node[id].request[i];
        if (r->state != HTB_IDLE)
            continue;
        r->class_id = id;
        r->tokens[0] = sh_size(&sh.node[id]);
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

/* A device that does `part` of the root's rate, one request at a time: all are cut to the same part of their rates. */
static void sh_slow(double part, uint32_t steps)
{
    double begin_ns = (double)sh.now, at_ns = (double)sh.now;
    uint32_t i, a, b;
    for (i = 0; i < steps && !sh.w->broken; i++) {
        struct htb_request *r;
        for (a = 1; a < sh.nodes; a++)
            if (!sh.node[a].group)
                sh_submit(a);
        r = htb_dispatch(&sh_tree, sh.now);
        if (!r) {
            sh.now = htb_dispatch_next_ns(&sh_tree, sh.now);
            at_ns = (double)sh.now;
            continue;
        }
        at_ns += (double)r->tokens[0] * 1e9 / (part * (double)sh.root);
        sh.now = (uint64_t)at_ns;
        if (htb_complete(&sh_tree, sh.now, HTB_DONE, NULL, r) != QOS_OK)
            SH_FAIL("once", "a completion is refused");
        sh_given(r->class_id, r->tokens[0]);
    }
    for (a = 1; a < sh.nodes; a++)
        for (b = 1; b < a; b++) {
            const struct sh_node *x = &sh.node[a], *y = &sh.node[b];
            double most = 0.05 * (at_ns - begin_ns) / 1e9 + 0.08 + 4 * (x->largest / x->rate + y->largest / y->rate);
            if (x->up == 0 && y->up == 0 && fabs(x->given / x->rate - y->given / y->rate) > most)
                SH_FAIL("slow", "after %.3f s %" PRIu32 " has %.3f s of its rate, %" PRIu32 " %.3f s",
                        (at_ns - begin_ns) / 1e9, a, x->given / x->rate, b, y->given / y->rate);
        }
}

static void sh_draw(void)
{
    static const uint32_t weight[] = {1, 1, 2, 3, 10, 1000, 65537, 999999, 1000000};
    uint64_t size = world_chance(&sh.rng, 400) ? 8 : world_scale(&sh.rng, 10, 100000);
    uint32_t groups, id;
    sh.nodes = (uint32_t)world_between(&sh.rng, 3, SH_NODES);
    sh.slow = world_chance(&sh.rng, 200);
    sh.vague = !sh.slow && world_chance(&sh.rng, 300);
    sh.large = !sh.slow && !sh.vague && world_chance(&sh.rng, 300);
    sh.root = sh.large ? 1000 : world_scale(&sh.rng, 1000, 100000000);
    size = sh.large ? 4000000 : size;
    if (sh.slow && size > sh.root / 200)
        size = sh.root / 200 + 1;
    groups = sh.nodes > 5 ? (uint32_t)world_between(&sh.rng, 0, 2) : 0;
    sh.left = 0.95 * (double)sh.root;
    for (id = 1; id < sh.nodes; id++) {
        struct sh_node *t = &sh.node[id];
        t->group = id <= groups;
        t->up = t->group ? 0 : id <= 2 * groups ? id - groups : (uint32_t)world_between(&sh.rng, 0, groups);
        t->weight = weight[world_rand(&sh.rng) % (sh.large ? 3 : sh.vague ? 5 : sizeof weight / sizeof *weight)];
        t->most = world_between(&sh.rng, 1, size);
        t->least = world_chance(&sh.rng, 500) ? t->most : 1;
        t->largest = t->group ? 0 : (double)t->most;
        if (t->up && sh.node[t->up].largest < t->largest)
            sh.node[t->up].largest = t->largest;
        if (sh.slow && t->up == 0) {
            t->rate = floor(sh.left * (double)world_between(&sh.rng, 10, 50) / 100) + 1;
            sh.left -= t->rate;
        } else if (sh.slow) { /* the group lends the rest of its rate */
            t->rate = floor(sh.node[t->up].rate / (2 * SH_NODES));
        }
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
    c.bound = HTB_BY_RATE;
    c.dispatch_max = 1;
    if (htb_init(&sh_tree, sh_memory, sizeof sh_memory, &c) != QOS_OK)
        SH_FAIL("init", "%s", htb_config_error(&c));
    for (id = 1; id < sh.nodes; id++) {
        struct htb_class terms;
        memset(&terms, 0, sizeof terms);
        terms.group = sh.node[id].group;
        terms.parent = sh.node[id].up;
        terms.weight = (uint32_t)sh.node[id].weight;
        terms.rate_per_s[0] = (uint64_t)sh.node[id].rate;
        if (htb_reserve(&sh_tree, sh.now, id, &terms, NULL) != QOS_OK)
            SH_FAIL("admission", "what fits is refused");
        sh.node[id].on = true;
        if (!terms.group)
            sh_waits(id, true);
    }
    if (sh.slow) {
        sh_slow((double)world_between(&sh.rng, 20, 80) / 100 * (0.95 * (double)sh.root - sh.left) / (double)sh.root,
                steps);
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
