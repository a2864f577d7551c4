// flags: -isystem /usr/include/dpdk -isystem /usr/include/x86_64-linux-gnu/dpdk -include rte_config.h
/* bench/htb.c - the cost of htb.h, beside DPDK's rte_meter, a dependent load, and a scan over all classes.
 *
 * Short slices, a tenth of a millisecond if possible, run in turn. On a busy machine most of them are not interrupted,
 * so their median is that of an idle machine.
 *
 * Cases
 *   depth=1..8            htb_take, 10 classes in turn, one resource; `now` advances 7 to 70 ns per call; every take is
 *                         granted. depth counts the buckets charged: 1 is a lone qos_bucket, 2 is class and root.
 *   classes=10..100000    htb_take in turn, beside a walk over the bytes that it touches; and in random order, beside a
 *                         chain of dependent loads over as much memory. growth_vs_walk: a take at 100,000 classes / (a
 *                         take at 10 + the growth of the walk).
 *   queues=10..100000     htb_submit + htb_dispatch + htb_complete with every class backlogged, and
 *                         htb_dispatch_next_ns; beside it a naive scheduler that scans all classes for each request.
 *                         look_ns: a call of htb_maximize then.
 *   joined, takes         htb_take in two trees in turn, of 100,000 classes, of which 100 are active in both. Half of
 *   joined, queues        the tokens are borrowed. The same with htb_submit + htb_dispatch + htb_complete. A slice is one
 *                         interval: in the joined trees an exchange each (exchanges_per_slice: 2). Peer: two trees that
 *                         have not joined, with half of the rates each; and joined ones that do not exchange.
 *
 * Peer: the trTCM check of rte_meter has two token buckets (committed and peak), one division each; no hierarchy, no
 * borrowing, no statistics. Its configuration call needs the TSC rate of a started EAL, so we fill in the profile. */
#include "htb.h"
#include "bench.h"
#include <rte_meter.h>

static uint64_t root_rate(const struct htb *tree)
{
    struct htb_state report;
    return htb_info(tree, &report) == QOS_OK ? report.rate_per_s[0] : 0;
}

static uint64_t rate_of(const struct htb *tree, uint32_t id)
{
    struct htb_class_state report;
    return htb_class_info(tree, id, &report) == QOS_OK ? report.terms.rate_per_s[0] : 0;
}

#define STEPS 4096 /* pre-drawn time steps and class orders; a power of two */

static uint32_t step_ns[STEPS];
static uint64_t sink;

static void *aligned(size_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, size) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memset(p, 0, size);
    return p;
}

/* A tree of `classes` classes at `depth` buckets each. Half of the tokens that they use are their own, half are
 * borrowed. */
static void *tree_new(struct htb *h, uint32_t classes, uint32_t depth, uint64_t demand_per_s)
{
    struct htb_config config;
    struct htb_class c;
    uint32_t id, parent = 0, groups = depth > 2 ? depth - 2 : 0;
    void *mem;
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    config.classes = classes + groups + 1;
    config.rate_per_s[0] = demand_per_s * 4 < QOS_RATE_MAX ? demand_per_s * 4 : QOS_RATE_MAX;
    config.bound = HTB_BY_RATE;
    config.maximize_interval_ns = 1000; /* every call of htb_maximize evaluates */
    mem = aligned(htb_memsize(&config));
    if (htb_init(h, mem, htb_memsize(&config), &config) != QOS_OK) {
        fprintf(stderr, "htb_init: %s\n", htb_config_error(&config));
        exit(1);
    }
    for (id = 1; id <= groups; id++) {
        c.group = true;
        c.parent = parent;
        c.rate_per_s[0] = config.rate_per_s[0];
        if (htb_reserve(h, 0, id, &c, NULL) != QOS_OK)
            exit(1);
        parent = id;
    }
    for (id = groups + 1; id <= groups + classes; id++) {
        c.group = false;
        c.parent = parent;
        c.rate_per_s[0] = demand_per_s / classes / 2 ? demand_per_s / classes / 2 : 1;
        if (htb_reserve(h, 0, id, &c, NULL) != QOS_OK)
            exit(1);
    }
    return mem;
}

#define TOKENS 1000
#define DEMAND_PER_S (UINT64_C(1000) * 1000000000 / 39) /* TOKENS every 38.5 ns */

/* ns per htb_take, classes in turn (order NULL) or in a given order. */
static double take_ns(struct htb *h, uint32_t first, uint32_t classes, const uint32_t *order, uint64_t *now_ns,
                      uint64_t takes, uint64_t *granted)
{
    uint64_t begin, now = *now_ns, ok = 0, i;
    uint32_t turn = 0;
    begin = bench_ns();
    for (i = 0; i < takes; i++) {
        uint32_t id = first + (order ? order[i % (classes * 4)] : turn);
        if (++turn == classes)
            turn = 0;
        now += step_ns[i % STEPS];
        ok += htb_take(h, now, id, TOKENS) == QOS_OK;
    }
    *now_ns = now;
    *granted += ok;
    return (double)(bench_ns() - begin) / (double)takes;
}

static double bucket_ns(struct qos_bucket *b, uint32_t classes, uint64_t *now_ns, uint64_t takes, uint64_t *granted)
{
    uint64_t begin = bench_ns(), now = *now_ns, ok = 0, i;
    uint32_t turn = 0;
    for (i = 0; i < takes; i++) {
        uint32_t id = turn;
        if (++turn == classes)
            turn = 0;
        now += step_ns[i % STEPS];
        ok += qos_bucket_take(&b[id], now, TOKENS) == QOS_OK;
    }
    *now_ns = now;
    *granted += ok;
    return (double)(bench_ns() - begin) / (double)takes;
}

static double meter_ns(struct rte_meter_trtcm *m, struct rte_meter_trtcm_profile *p, uint32_t classes, uint64_t *now_ns,
                       uint64_t takes, uint64_t *green, uint64_t *yellow)
{
    uint64_t begin = bench_ns(), now = *now_ns, colours[RTE_COLORS] = {0}, i;
    uint32_t turn = 0;
    for (i = 0; i < takes; i++) {
        uint32_t id = turn;
        if (++turn == classes)
            turn = 0;
        now += step_ns[i % STEPS];
        colours[rte_meter_trtcm_color_blind_check(&m[id], p, now, TOKENS)]++;
    }
    *now_ns = now;
    *green += colours[RTE_COLOR_GREEN];
    *yellow += colours[RTE_COLOR_YELLOW];
    return (double)(bench_ns() - begin) / (double)takes;
}

/* Depths 1 to 8 and rte_meter, in alternating slices, so that all see the same machine state. */
static void bench_depths(struct bench *b)
{
    enum { CLASSES = 10, DEPTHS = 8, ROUNDS_MAX = 2001 };
    const uint64_t takes = 20000;
    const int rounds = b->quick ? 301 : ROUNDS_MAX;
    static double ns[DEPTHS + 1][ROUNDS_MAX], ratio[DEPTHS + 1][ROUNDS_MAX];
    static struct rte_meter_trtcm meter[CLASSES];
    static struct qos_bucket bucket[CLASSES];
    struct rte_meter_trtcm_profile profile;
    struct htb tree[DEPTHS + 1];
    void *mem[DEPTHS + 1];
    uint64_t now[DEPTHS + 1], granted[DEPTHS + 1] = {0}, green = 0, yellow = 0, total = takes * (uint64_t)rounds;
    char name[64];
    int d, round;
    uint32_t i;

    /* Committed rate: half of a class's demand, as in the tree; peak rate: four times the demand; periods of 100 cycles
     * at 1 cycle = 1 ns. */
    memset(&profile, 0, sizeof profile);
    profile.cir_period = profile.pir_period = 100;
    profile.cir_bytes_per_period = DEMAND_PER_S / CLASSES / 2 * 100 / 1000000000;
    profile.pir_bytes_per_period = DEMAND_PER_S * 4 / CLASSES * 100 / 1000000000;
    profile.cbs = profile.cir_bytes_per_period * 100000;
    profile.pbs = profile.pir_bytes_per_period * 100000;
    for (i = 0; i < CLASSES; i++)
        if (qos_bucket_init(&bucket[i], 0, DEMAND_PER_S, 100000000) != QOS_OK)
            exit(1);
    for (d = 2; d <= DEPTHS; d++)
        mem[d] = tree_new(&tree[d], CLASSES, (uint32_t)d, DEMAND_PER_S);
    for (d = 0; d <= DEPTHS; d++)
        now[d] = 20000000; /* the buckets start empty: 20 ms fill them */

    for (round = -2; round < rounds; round++) {
        int k = round < 0 ? 0 : round;
        if (round == 0)
            memset(granted, 0, sizeof granted), green = yellow = 0;
        for (d = 1; d <= DEPTHS; d++) {
            if (d == 1)
                ns[1][k] = bucket_ns(bucket, CLASSES, &now[1], takes, &granted[1]);
            else
                ns[d][k] = take_ns(&tree[d], (uint32_t)d - 1, CLASSES, NULL, &now[d], takes, &granted[d]);
            if (d == 2)
                ns[0][k] = meter_ns(meter, &profile, CLASSES, &now[0], takes, &green, &yellow);
        }
        for (d = 1; d <= DEPTHS; d++)
            ratio[d][k] = ns[d][k] / ns[0][k];
    }
    bench_report(b, "rte_meter trTCM", "ns_per_take", bench_median(ns[0], (size_t)rounds), "ns");
    bench_report(b, "rte_meter trTCM", "granted_share", (double)(green + yellow) / (double)total, "1");
    bench_report(b, "rte_meter trTCM", "yellow_share", (double)yellow / (double)total, "1");
    for (d = 1; d <= DEPTHS; d++) {
        snprintf(name, sizeof name, "depth=%d", d);
        bench_report(b, name, "ns_per_take", bench_median(ns[d], (size_t)rounds), "ns");
        bench_report(b, name, "ratio_vs_rte_meter", bench_median(ratio[d], (size_t)rounds), "1");
        bench_report(b, name, "granted_share", (double)granted[d] / (double)total, "1");
        if (d >= 2) {
            struct qos_stats all = {0, 0, 0, 0, 0}, one;
            for (i = 0; i < CLASSES; i++) {
                if (htb_stats(&tree[d], (uint32_t)d - 1 + i, &one) != QOS_OK)
                    exit(1);
                all.granted += one.granted;
                all.borrowed += one.borrowed;
            }
            bench_report(b, name, "borrowed_share", (double)all.borrowed / (double)all.granted, "1");
            free(mem[d]);
        }
    }
}

/* A random cycle through all `lines` cache lines of a memory: each load depends on the one before it. */
static void chain_fill(uint64_t *mem, size_t lines, struct qos_rng *rng)
{
    uint32_t *perm = (uint32_t *)aligned(lines * sizeof *perm);
    size_t i;
    for (i = 0; i < lines; i++)
        perm[i] = (uint32_t)i;
    for (i = lines - 1; i > 0; i--) {
        size_t j = (size_t)qos_rng_below(rng, i + 1);
        uint32_t t = perm[i];
        perm[i] = perm[j];
        perm[j] = t;
    }
    for (i = 0; i < lines; i++)
        mem[(size_t)perm[i] * 8] = (uint64_t)perm[(i + 1) % lines] * 8;
    free(perm);
}

static double chain_ns(const uint64_t *mem, uint64_t loads)
{
    uint64_t begin = bench_ns(), at = 0, i;
    for (i = 0; i < loads; i++)
        at = mem[at];
    sink += at;
    return (double)(bench_ns() - begin) / (double)loads;
}

/* The memory of a class that a take touches, without the work: a line of one array, and five counters in another. */
#define LINE_WORDS 8
#define REST_WORDS 11
static double walk_ns(uint64_t *mem, uint32_t classes, uint64_t steps)
{
    uint64_t begin = bench_ns(), *line = mem, *rest = mem + (size_t)classes * LINE_WORDS, i;
    uint32_t turn = 0, k;
    for (i = 0; i < steps; i++) {
        uint64_t *a = line + (size_t)turn * LINE_WORDS, *c = rest + (size_t)turn * REST_WORDS;
        if (++turn == classes)
            turn = 0;
        for (k = 0; k < LINE_WORDS; k++)
            sink += a[k];
        a[0] = a[6] = i;
        for (k = 0; k < 5; k++)
            c[k] += i;
    }
    return (double)(bench_ns() - begin) / (double)steps;
}

static void bench_sizes(struct bench *b)
{
    enum { SIZES = 5, ROUNDS_MAX = 501 };
    static const uint32_t sizes[SIZES] = {10, 100, 1000, 10000, 100000};
    const int rounds = b->quick ? 101 : ROUNDS_MAX;
    static double in_turn[SIZES][ROUNDS_MAX], at_random[SIZES][ROUNDS_MAX], load[SIZES][ROUNDS_MAX];
    static double ratio[SIZES][ROUNDS_MAX], growth[ROUNDS_MAX], walk[SIZES][ROUNDS_MAX], vs_walk[ROUNDS_MAX];
    uint64_t *walked[SIZES];
    struct htb tree[SIZES];
    void *mem[SIZES];
    uint64_t *chain[SIZES], now[SIZES], granted[SIZES] = {0}, tried[SIZES] = {0};
    uint32_t *order[SIZES], i;
    struct qos_rng rng;
    char name[64];
    int s, round;

    qos_rng_seed(&rng, 7);
    for (s = 0; s < SIZES; s++) {
        size_t lines = (size_t)sizes[s] * 192 / 64;
        mem[s] = tree_new(&tree[s], sizes[s], 2, DEMAND_PER_S);
        walked[s] = (uint64_t *)aligned((size_t)sizes[s] * (LINE_WORDS + REST_WORDS) * 8);
        chain[s] = (uint64_t *)aligned(lines * 64);
        chain_fill(chain[s], lines, &rng);
        order[s] = (uint32_t *)aligned((size_t)sizes[s] * 4 * sizeof *order[s]);
        for (i = 0; i < sizes[s] * 4; i++)
            order[s][i] = (uint32_t)qos_rng_below(&rng, sizes[s]);
        now[s] = 20000000;
    }
    for (round = -1; round < rounds; round++) {
        int k = round < 0 ? 0 : round;
        for (s = 0; s < SIZES; s++) {
            uint64_t takes = sizes[s] > 20000 ? sizes[s] : 20000; /* each class at least once */
            in_turn[s][k] = take_ns(&tree[s], 1, sizes[s], NULL, &now[s], takes, &granted[s]);
            at_random[s][k] = take_ns(&tree[s], 1, sizes[s], order[s], &now[s], takes, &granted[s]);
            walk[s][k] = walk_ns(walked[s], sizes[s], takes);
            load[s][k] = chain_ns(chain[s], takes);
            ratio[s][k] = at_random[s][k] / load[s][k];
            tried[s] += 2 * takes;
        }
        growth[k] = in_turn[SIZES - 1][k] / in_turn[0][k];
        /* Compared with a take at 10 classes plus the growth of the walk at 100,000 classes. */
        vs_walk[k] = in_turn[SIZES - 1][k] / (in_turn[0][k] + walk[SIZES - 1][k] - walk[0][k]);
    }
    for (s = 0; s < SIZES; s++) {
        snprintf(name, sizeof name, "classes=%u", sizes[s]);
        bench_report(b, name, "ns_per_take", bench_median(in_turn[s], (size_t)rounds), "ns");
        bench_report(b, name, "ns_per_take_random", bench_median(at_random[s], (size_t)rounds), "ns");
        bench_report(b, name, "ns_per_walk", bench_median(walk[s], (size_t)rounds), "ns");
        bench_report(b, name, "ns_per_load", bench_median(load[s], (size_t)rounds), "ns");
        bench_report(b, name, "ratio_vs_load", bench_median(ratio[s], (size_t)rounds), "1");
        bench_report(b, name, "granted_share", (double)granted[s] / (double)tried[s], "1");
    }
    bench_report(b, "take", "growth_10_to_100000", bench_median(growth, (size_t)rounds), "1");
    bench_report(b, "take", "growth_vs_walk", bench_median(vs_walk, (size_t)rounds), "1");
    for (s = 0; s < SIZES; s++)
        free(mem[s]), free(chain[s]), free(order[s]), free(walked[s]);
}

/* A naive scheduler: for each request it scans every class for own tokens, then tries the root's. */
struct scan {
    struct qos_bucket *own, root;
    uint32_t classes, turn;
};

static uint32_t scan_pick(struct scan *s, uint64_t now)
{
    uint32_t i;
    for (i = 0; i < s->classes; i++) {
        uint32_t id = (s->turn + i) % s->classes;
        if (qos_bucket_take(&s->own[id], now, TOKENS) == QOS_OK) {
            s->turn = id + 1;
            if (qos_bucket_force(&s->root, now, TOKENS, QOS_TOKENS_MAX) != QOS_OK)
                exit(1);
            return id;
        }
    }
    if (qos_bucket_take(&s->root, now, TOKENS) != QOS_OK)
        return UINT32_MAX;
    return s->turn++ % s->classes;
}

/* Every class is backlogged. The clock follows htb_dispatch_next_ns, so each dispatch had to wait. */
static void bench_queues(struct bench *b)
{
    static const uint32_t sizes[5] = {10, 100, 1000, 10000, 100000};
    enum { SLICE = 2000, SLICES_MAX = 1000, LOOKS = 31 };
    static double slice[SLICES_MAX];
    const uint64_t slices = b->quick ? 150 : SLICES_MAX, rounds = slices * SLICE;
    double first = 0;
    int s;
    for (s = 0; s < 5; s++) {
        uint32_t n = sizes[s], i;
        uint64_t scans = (b->quick ? 3000000 : 30000000) / n + 10, k, begin, done = 0;
        uint64_t now = 0, look_at, next_calls = 0;
        struct htb h;
        void *mem = tree_new(&h, n, 2, DEMAND_PER_S / 4);
        struct htb_request *r = (struct htb_request *)aligned((size_t)n * sizeof *r), *q;
        struct scan scan;
        char name[64];
        double ns, scan_ns, look_ns;
        for (i = 0; i < n; i++) {
            r[i].class_id = i + 1;
            r[i].tokens[0] = TOKENS;
            r[i].offset = (uint64_t)i * 4096;
            if (htb_submit(&h, 0, &r[i]) != QOS_OK)
                exit(1);
        }
        for (k = 0; k < rounds / 4 + n; k++) { /* warm-up, until the initial burst is gone */
            while ((q = htb_dispatch(&h, now)) != NULL)
                if (htb_complete(&h, now, HTB_DONE, NULL, q) != QOS_OK || htb_submit(&h, now, q) != QOS_OK)
                    exit(1);
            now = htb_dispatch_next_ns(&h, now);
        }
        for (k = 0; k < slices; k++) {
            begin = bench_ns();
            for (done = 0; done < SLICE; next_calls++) {
                while ((q = htb_dispatch(&h, now)) != NULL) {
                    if (htb_complete(&h, now, HTB_DONE, NULL, q) != QOS_OK || htb_submit(&h, now, q) != QOS_OK)
                        exit(1);
                    done++;
                }
                now = htb_dispatch_next_ns(&h, now);
            }
            slice[k] = (double)(bench_ns() - begin) / (double)done;
        }
        ns = bench_median(slice, (size_t)slices);
        look_at = now;

        scan.own = (struct qos_bucket *)aligned(n * sizeof *scan.own);
        scan.classes = n;
        scan.turn = 0;
        for (i = 0; i < n; i++)
            if (qos_bucket_init(&scan.own[i], 0, rate_of(&h, i + 1), TOKENS * 2) != QOS_OK)
                exit(1);
        if (qos_bucket_init(&scan.root, 0, root_rate(&h), TOKENS * 100) != QOS_OK)
            exit(1);
        now = 0;
        begin = bench_ns();
        for (k = 0, done = 0; done < scans; k++) {
            done += scan_pick(&scan, now) != UINT32_MAX;
            now += TOKENS * UINT64_C(1000000000) / root_rate(&h);
        }
        scan_ns = (double)(bench_ns() - begin) / (double)done;

        now = look_at;
        /* every class is backlogged, and a slice of requests passes between two evaluations */
        for (k = 0; k < LOOKS; k++) {
            for (done = 0; done < SLICE; now = htb_dispatch_next_ns(&h, now))
                while ((q = htb_dispatch(&h, now)) != NULL) {
                    if (htb_complete(&h, now, HTB_DONE, NULL, q) != QOS_OK || htb_submit(&h, now, q) != QOS_OK)
                        exit(1);
                    done++;
                }
            begin = bench_ns();
            sink += (uint64_t)htb_maximize(&h, now, false);
            slice[k] = (double)(bench_ns() - begin);
        }
        look_ns = bench_median(slice, LOOKS);

        if (s == 0)
            first = ns;
        snprintf(name, sizeof name, "queues=%u", n);
        bench_report(b, name, "ns_per_request", ns, "ns");
        bench_report(b, name, "next_ns_per_request", (double)next_calls / (double)rounds, "1");
        bench_report(b, name, "scan_ns_per_request", scan_ns, "ns");
        bench_report(b, name, "look_ns", look_ns, "ns");
        bench_report(b, name, "speedup_vs_scan", scan_ns / ns, "1");
        bench_report(b, name, "growth_from_10", ns / first, "1");
        free(mem), free(r), free(scan.own);
    }
}

enum { JOINED_CLASSES = 100000, JOINED_ACTIVE = 100, JOINED_APART = JOINED_CLASSES / JOINED_ACTIVE };

/* Two trees, and what they did. */
struct pair {
    struct htb tree[2];
    void *mem[2], *shared;
    struct htb_request request[2][JOINED_ACTIVE];
    uint64_t now, done, tried, exchanges, interval_ns, next[2]; /* the next exchange */
};

static void pair_open(struct pair *p, bool joined)
{
    const uint64_t demand_per_s = joined ? DEMAND_PER_S : DEMAND_PER_S / 2;
    struct htb_shared_config config;
    uint32_t k, i;
    memset(p, 0, sizeof *p);
    memset(&config, 0, sizeof config);
    config.trees = 2;
    config.classes = JOINED_CLASSES + 1;
    p->now = 20000000;
    p->interval_ns = 5000000;
    p->shared = aligned(htb_shared_memsize(&config));
    if (htb_shared_init((struct htb_shared *)p->shared, htb_shared_memsize(&config), &config) != QOS_OK)
        exit(1);
    for (k = 0; k < 2; k++) {
        p->mem[k] = tree_new(&p->tree[k], JOINED_CLASSES, 2, demand_per_s);
        for (i = 0; i < JOINED_ACTIVE; i++) {
            struct htb_class c;
            memset(&c, 0, sizeof c);
            c.rate_per_s[0] = demand_per_s / JOINED_ACTIVE / 2;
            p->request[k][i].class_id = 1 + i * JOINED_APART;
            p->request[k][i].tokens[0] = TOKENS;
            if (htb_change(&p->tree[k], 0, p->request[k][i].class_id, &c, NULL) != QOS_OK)
                exit(1);
        }
        if (joined && htb_join(&p->tree[k], 0, (struct htb_shared *)p->shared, k) != QOS_OK)
            exit(1);
    }
}

static void pair_close(struct pair *p)
{
    free(p->mem[0]), free(p->mem[1]), free(p->shared);
}

/* ns per htb_take, or per request through the queues, for one interval. */
static double pair_ns(struct pair *p, bool queues, bool exchange)
{
    const uint64_t begin = bench_ns(), end = p->now + p->interval_ns, tried = p->tried;
    uint32_t turn = 0, k;
    for (; p->now < end; turn = (turn + 1) % JOINED_ACTIVE)
        for (k = 0; k < 2; k++) {
            struct htb *h = &p->tree[k];
            struct htb_request *r = &p->request[k][turn];
            p->now += step_ns[p->tried++ % STEPS];
            if (exchange && turn == 0) {
                const uint64_t next = htb_exchange(h, p->now);
                p->exchanges += next != p->next[k];
                p->next[k] = next;
            }
            if (!queues) {
                p->done += htb_take(h, p->now, r->class_id, TOKENS) == QOS_OK;
                continue;
            }
            if (r->state == HTB_IDLE && htb_submit(h, p->now, r) != QOS_OK)
                exit(1);
            while ((r = htb_dispatch(h, p->now)) != NULL) {
                if (htb_complete(h, p->now, HTB_DONE, NULL, r) != QOS_OK)
                    exit(1);
                p->done++;
            }
        }
    return (double)(bench_ns() - begin) / (double)(p->tried - tried);
}

static void bench_joined(struct bench *b, const char *name, bool queues)
{
    enum { ROUNDS_MAX = 501 };
    const int rounds = b->quick ? 101 : ROUNDS_MAX;
    static double ns[3][ROUNDS_MAX], quiet[ROUNDS_MAX], ratio[ROUNDS_MAX];
    static struct pair pair[3]; /* not joined; joined, without exchanges; with them */
    int k, round;
    for (k = 0; k < 3; k++)
        pair_open(&pair[k], k != 0);
    for (round = -20; round < rounds; round++) {
        int at = round < 0 ? 0 : round;
        if (round == 0)
            for (k = 0; k < 3; k++)
                pair[k].done = pair[k].tried = pair[k].exchanges = 0;
        for (k = 0; k < 3; k++)
            ns[k][at] = pair_ns(&pair[k], queues, k == 2);
        quiet[at] = ns[0][at] / ns[1][at];
        ratio[at] = ns[0][at] / ns[2][at];
    }
    bench_report(b, name, "ns_per_op", bench_median(ns[2], (size_t)rounds), "ns");
    bench_report(b, name, "ns_per_op_no_exchange", bench_median(ns[1], (size_t)rounds), "ns");
    bench_report(b, name, "ns_per_op_not_joined", bench_median(ns[0], (size_t)rounds), "ns");
    bench_report(b, name, "throughput_no_exchange", bench_median(quiet, (size_t)rounds), "1");
    bench_report(b, name, "throughput_vs_not_joined", bench_median(ratio, (size_t)rounds), "1");
    bench_report(b, name, "done_share", (double)pair[2].done / (double)pair[2].tried, "1");
    bench_report(b, name, "done_share_not_joined", (double)pair[0].done / (double)pair[0].tried, "1");
    bench_report(b, name, "exchanges_per_slice", (double)pair[2].exchanges / rounds, "1");
    for (k = 0; k < 3; k++)
        pair_close(&pair[k]);
}

static void bench_memory(struct bench *b)
{
    struct htb_config small, large;
    memset(&small, 0, sizeof small);
    small.rate_per_s[0] = 1000000;
    large = small;
    small.classes = 1000;
    large.classes = 101000;
    bench_report(b, "memory", "bytes_per_class", (double)(htb_memsize(&large) - htb_memsize(&small)) / 100000, "bytes");
}

int main(int argc, char **argv)
{
    struct bench b;
    struct qos_rng rng;
    int i;
    bench_open(&b, "htb", argc, argv);
    qos_rng_seed(&rng, 1);
    for (i = 0; i < STEPS; i++)
        step_ns[i] = (uint32_t)(7 + qos_rng_below(&rng, 64));
    bench_depths(&b);
    bench_sizes(&b);
    bench_queues(&b);
    bench_joined(&b, "joined, takes", false);
    bench_joined(&b, "joined, queues", true);
    bench_memory(&b);
    BENCH_KEEP(sink);
    return bench_close(&b);
}
