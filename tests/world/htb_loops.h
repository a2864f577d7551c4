/* htb_loops.h - the loop that newcomers write: htb_take until it is refused, then again at the time told
 *
 * 2 to 50 classes below the root, without rates and limits, of any weights, are asked in any order: each again at the
 * time that it was told, or up to half a burst later, all at once or each by itself. Nothing is queued. Accounts are
 * doubles. Open: the derived bound where what is asked for at once is more than half a bucket, and loops in groups.
 * `crowd`: more than 64, so that not all can have a claim; they drift apart, but in the mean each has its share. */
#ifndef QOS_TESTS_WORLD_HTB_LOOPS_H
#define QOS_TESTS_WORLD_HTB_LOOPS_H

#define LO_NODES 51u
#define LO_CROWD 131u

struct lo_node {
    double weight, largest, given;
    uint64_t least, most, n, told_ns;
};

static struct {
    struct world *w;
    struct world_rng rng;
    struct lo_node node[LO_CROWD];
    bool crowd, together, alone, equal, fits;                 /* late: in one loop, or each with a timer of its own */
    double all;                                               /* requests, so far */
    double low[LO_NODES][LO_NODES], high[LO_NODES][LO_NODES]; /* given / weight, less that of another, since both ask */
    uint32_t nodes;
    uint64_t now, late_ns; /* how much later than told they come at most */
    double late, others;   /* per weight: what the root gets meanwhile; the largest request of any loop */
} lo;
static struct htb lo_tree;
static unsigned char lo_memory[262144] __attribute__((aligned(64)));

#define LO_FAIL(oracle, ...) world_fail(lo.w, oracle, lo.now, __VA_ARGS__)

/* `weights_loop`. Who takes leaves those behind it what they need to come, by whole requests, to where it was: so when all
 * were asked, nobody is behind the place that another one had before its last request, n1 / w1 + n2 / w2.
 * A next request that is larger than the claimed one uses what was left to others: they end up to two of the largest
 * requests behind, on either side. Each by itself late: those who are there use what comes meanwhile but for the part of
 * those who are not, on either side, and who jumped ahead leaves that to fewer ones: up to two requests, too.
 * All this if what they ask for and what gathers is at most half a bucket; else, not derived, a multiple. */
static double lo_allowed(const struct lo_node *a, const struct lo_node *b)
{
    const double requests = (a->largest + 1) / a->weight + (b->largest + 1) / b->weight;
    const double loose = 4 * requests + (lo.alone ? 3 : 1) * lo.late;
    const double tight = requests + (lo.alone ? 2 * lo.late : 0) + (lo.alone || !lo.equal ? 4 * lo.others : 0);
    return lo.fits ? fmin(tight, loose) : loose;
}

static void lo_judge(uint32_t at)
{
    const struct lo_node *a = &lo.node[at];
    uint32_t other;
    for (other = 1; other < lo.nodes && !lo.crowd; other++) {
        const struct lo_node *b = &lo.node[other];
        const double d = a->given / a->weight - b->given / b->weight;
        const double most = lo_allowed(a, b);
        if (other == at)
            continue;
        lo.low[at][other] = fmin(lo.low[at][other], d);
        lo.high[at][other] = fmax(lo.high[at][other], d);
        lo.low[other][at] = -lo.high[at][other];
        lo.high[other][at] = -lo.low[at][other];
        if (lo.high[at][other] - lo.low[at][other] > most)
            LO_FAIL("weights_loop", "%" PRIu32 " and %" PRIu32 " differ by %g per weight, allowed %g", at, other,
                    lo.high[at][other] - lo.low[at][other], most);
    }
}

/* Loop id asks until it is refused: the root's bucket holds at most 10^7 tokens. */
static void lo_turn(uint32_t id)
{
    struct lo_node *t = &lo.node[id];
    uint32_t i;
    for (i = 0; i < 10000000 && htb_take(&lo_tree, lo.now, id, t->n) == QOS_OK; i++) {
        world_trace(lo.now, id, "given", t->n);
        lo.w->events++;
        t->given += (double)t->n;
        lo.all++;
        if (!lo.together)
            lo_judge(id);
        t->n = world_between(&lo.rng, t->least, t->most);
    }
    t->told_ns = htb_next_ns(&lo_tree, lo.now, id, t->n);
    if (t->told_ns <= lo.now)
        LO_FAIL("next", "class %" PRIu32 " is refused and told to come now", id);
    if (lo.alone && t->told_ns < UINT64_MAX - lo.late_ns)
        t->told_ns += world_between(&lo.rng, 0, lo.late_ns);
}

static void lo_draw(struct htb_config *c)
{
    static const uint32_t weight[] = {1, 1, 2, 3, 10, 100, 1000};
    const uint64_t root = world_scale(&lo.rng, 1000, 1000000000);
    uint64_t size = (uint64_t)((double)root * 0.01) + 1; /* up to a burst of the root */
    double weights = 0, all = 0;
    uint32_t id;
    lo.nodes = lo.crowd                     ? (uint32_t)world_between(&lo.rng, 66, LO_CROWD)
               : world_chance(&lo.rng, 300) ? (uint32_t)world_between(&lo.rng, 13, LO_NODES)
                                            : (uint32_t)world_between(&lo.rng, 3, 12);
    size = world_scale(&lo.rng, size / 500 + 1, size);
    c->classes = lo.nodes;
    c->rate_per_s[0] = root;
    c->start_ns = lo.now = 1000000000;
    c->bound = world_chance(&lo.rng, 500) ? HTB_BY_RATE : HTB_BY_FLIGHT;
    for (id = 1; id < lo.nodes; id++) {
        struct lo_node *t = &lo.node[id];
        t->weight = weight[world_rand(&lo.rng) % (sizeof weight / sizeof *weight)];
        t->most = world_between(&lo.rng, 1, size);
        if (lo.crowd) {
            t->weight = world_chance(&lo.rng, 500) ? 1 : 4;
            t->most = world_between(&lo.rng, size / 2 + 1, size);
        }
        t->least = world_chance(&lo.rng, 500) ? t->most : 1;
        t->n = t->most;
        t->largest = (double)t->most;
    }
    if (!lo.crowd && world_chance(&lo.rng, 500)) {
        lo.late_ns = world_scale(&lo.rng, 1000, 5000000);
        lo.alone = world_chance(&lo.rng, 500);
        lo.together = !lo.alone;
    }
    lo.equal = world_chance(&lo.rng, 500);
    for (id = 1; id < lo.nodes; id++) {
        struct lo_node *t = &lo.node[id];
        t->least = lo.equal ? t->most : t->least;
        lo.others = fmax(lo.others, (t->largest + 1) / t->weight);
        weights += t->weight;
        all += t->largest;
    }
    lo.late = (double)root * (double)lo.late_ns / 1e9 / weights;
    lo.fits = all + lo.late * weights <= (double)root * 0.01 || (lo.equal && lo.late_ns == 0);
}

/* `weights_loop` of a crowd: since all had what the buckets held at the beginning, each has its share, within a third and
 * some requests. */
static void lo_judge_crowd(const double *given)
{
    double all = 0, weights = 0;
    uint32_t id;
    for (id = 1; id < lo.nodes; id++) {
        all += lo.node[id].given - given[id];
        weights += lo.node[id].weight;
    }
    for (id = 1; id < lo.nodes; id++) {
        const double got = lo.node[id].given - given[id], share = all / weights * lo.node[id].weight;
        if (fabs(got - share) > share / 3 + 4 * lo.node[id].largest)
            LO_FAIL("weights_loop", "of %" PRIu32 " loops, %" PRIu32 " got %.0f, its share is %.0f", lo.nodes - 1, id,
                    got, share);
    }
}

static void loops_run(struct world *w)
{
    struct htb_config c;
    static double given[LO_CROWD];
    uint32_t id, i, steps = (uint32_t)world_value(w, F_STEPS) * 8;
    memset(&lo, 0, sizeof lo);
    memset(&c, 0, sizeof c);
    lo.w = w;
    lo.crowd = world_choice(w, F_PROGRAM) == 11;
    world_rng_init(&lo.rng, w->seed, 107);
    lo_draw(&c);
    if (htb_init(&lo_tree, lo_memory, sizeof lo_memory, &c) != QOS_OK)
        LO_FAIL("init", "%s", htb_config_error(&c));
    for (id = 1; id < lo.nodes; id++) {
        struct htb_class terms;
        memset(&terms, 0, sizeof terms);
        terms.weight = (uint32_t)lo.node[id].weight;
        if (htb_reserve(&lo_tree, lo.now, id, &terms, NULL) != QOS_OK)
            LO_FAIL("admission", "what fits is refused");
    }
    for (i = 0; (lo.crowd ? lo.all < 24 * lo.nodes : i < steps) && !w->broken; i++) {
        const uint32_t first = (uint32_t)world_between(&lo.rng, 0, lo.nodes - 2), back = world_chance(&lo.rng, 500);
        uint64_t next = UINT64_MAX;
        uint32_t k;
        for (k = 0; k + 1 < lo.nodes && !w->broken; k++) {
            id = 1 + (first + (back ? lo.nodes - 1 - k : k)) % (lo.nodes - 1);
            if (lo.node[id].told_ns <= lo.now || lo.together)
                lo_turn(id);
        }
        for (id = 1; id < lo.nodes && lo.together; id++)
            lo_judge(id);
        for (id = 1; id < lo.nodes; id++)
            if (lo.node[id].told_ns < next)
                next = lo.node[id].told_ns;
        lo.now = lo.alone ? next : next + lo.late_ns;
        for (id = 1; id < lo.nodes && lo.all < 8 * lo.nodes; id++)
            given[id] = lo.node[id].given;
    }
    if (lo.crowd && !w->broken)
        lo_judge_crowd(given);
}

#endif
