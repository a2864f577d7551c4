// flags: -pthread
/* tags - cost of one dispatch and one arrival of the same client, with every client backlogged. Run beside it, in
 * interleaved rounds of one process: a linear scan, and one replace-top on a plain binary heap of as many 64-bit keys.
 * Also: two threads whose schedulers claim from shared words; and the longest single call at 100,000 clients that all
 * reach their limits at once, beside one that may move them all.
 *
 * Clients: weights 1..7, every third with a reservation (together 30 % of the capacity, at least 1/s each), every fifth
 * with a limit that does not bind. Simulated time advances by 10 us per operation. */
#include "bench.h"
#include "tags.h"
#include <pthread.h>

#define ROUNDS 101 /* short: most rounds, and so the median, are not interrupted */
#define STEP_NS 10000

static void *must_alloc(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p) {
        perror("memory");
        exit(2);
    }
    return p;
}

static void must(enum qos_status st)
{
    if (st != QOS_OK) {
        fprintf(stderr, "tags: %s\n", qos_strerror(st));
        exit(2);
    }
}

/* ---- tags */

struct load {
    struct tags t;
    void *mem;
    size_t bytes;
    uint64_t now;
    uint32_t n;
    struct tags_request *request; /* intrusive: 4 for each client */
};

static struct tags_client terms_of(uint32_t id, uint32_t n)
{
    struct tags_client c;
    uint64_t reserved = 30000 / ((n + 2) / 3);
    c.weight = id % 7 + 1;
    c.reservation_per_s = id % 3 ? 0 : reserved ? reserved : 1;
    c.limit_per_s = id % 5 ? 0 : 1000000;
    return c;
}

static void load_open(struct load *w, uint32_t n, enum tags_mode mode, bool intrusive)
{
    struct tags_config config;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.clients = n;
    config.mode = mode;
    config.no_completions = mode == TAGS_PS;
    config.intrusive = intrusive;
    w->n = n;
    w->request = NULL;
    if (intrusive) {
        w->request = must_alloc(4 * (size_t)n * sizeof *w->request);
        memset(w->request, 0, 4 * (size_t)n * sizeof *w->request);
    }
    w->bytes = tags_memsize(&config);
    w->mem = must_alloc(w->bytes);
    w->now = 1000000000;
    must(tags_init(&w->t, w->mem, w->bytes, &config));
    for (i = 0; i < n; i++) {
        struct tags_client c = terms_of(i, n);
        uint32_t k;
        must(tags_add(&w->t, w->now, i, &c));
        if (!intrusive)
            must(tags_arrive(&w->t, w->now, i, 4, 1));
        for (k = 0; intrusive && k < 4; k++)
            must(tags_push(&w->t, w->now, i, &w->request[4 * (size_t)i + k]));
    }
}

static double run_ps(struct load *w, uint64_t ops)
{
    uint64_t i, begin = bench_ns(), failed = 0;
    for (i = 0; i < ops; i++) {
        struct tags_grant g;
        w->now += STEP_NS;
        failed += tags_pull(&w->t, w->now, 1, &g) != QOS_OK;
        failed += tags_arrive(&w->t, w->now, g.client, 1, 1) != QOS_OK;
    }
    if (failed)
        exit(2);
    return (double)(bench_ns() - begin) / (double)ops;
}

/* The same with intrusive requests: popped and pushed again. */
static double run_intrusive(struct load *w, uint64_t ops)
{
    uint64_t i, begin = bench_ns(), failed = 0;
    for (i = 0; i < ops; i++) {
        struct tags_request *request = NULL;
        w->now += STEP_NS;
        if (tags_pop(&w->t, w->now, &request) != QOS_OK)
            exit(2);
        failed += tags_push(&w->t, w->now, request->client, request) != QOS_OK;
    }
    if (failed)
        exit(2);
    return (double)(bench_ns() - begin) / (double)ops;
}

/* All clients idle: a random client sends one request, which is dispatched; the client is idle again. */
static double run_idle(struct load *w, uint64_t ops)
{
    uint64_t i, begin = bench_ns(), failed = 0, x = 88172645463325252u;
    for (i = 0; i < ops; i++) {
        struct tags_grant g;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        w->now += STEP_NS;
        failed += tags_arrive(&w->t, w->now, (uint32_t)(((x >> 32) * w->n) >> 32), 1, 1) != QOS_OK;
        failed += tags_pull(&w->t, w->now, 1, &g) != QOS_OK;
    }
    if (failed)
        exit(2);
    return (double)(bench_ns() - begin) / (double)ops;
}

/* The service time of client c: 8 to 11 us. */
static double run_reward(struct load *w, uint64_t ops)
{
    uint64_t i, begin = bench_ns(), failed = 0;
    for (i = 0; i < ops; i++) {
        struct tags_grant g;
        failed += tags_pull(&w->t, w->now, 1, &g) != QOS_OK;
        failed += tags_arrive(&w->t, w->now, g.client, 1, 1) != QOS_OK;
        w->now += STEP_NS;
        failed += tags_complete(&w->t, w->now, &g, 8000 + ((g.client + i) & 3) * 1000) != QOS_OK;
    }
    if (failed)
        exit(2);
    return (double)(bench_ns() - begin) / (double)ops;
}

/* ---- peers */

/* A plain scan over all clients: smallest rTag that is due, else smallest sTag below its limit. */
struct scan_client {
    uint64_t stag, rtag, ltag, rstep, lstep, sstep;
};

static double run_scan(struct scan_client *c, uint32_t n, uint64_t *now, uint64_t ops)
{
    uint64_t i, begin = bench_ns();
    for (i = 0; i < ops; i++) {
        uint32_t j, r = n, s = n;
        *now += STEP_NS;
        for (j = 0; j < n; j++) {
            if (c[j].rtag <= *now && (r == n || c[j].rtag < c[r].rtag))
                r = j;
            if (c[j].ltag <= *now && (s == n || c[j].stag < c[s].stag))
                s = j;
        }
        if (r != n)
            c[r].rtag += c[r].rstep;
        j = r != n ? r : s;
        c[j].stag += c[j].sstep;
        c[j].ltag += c[j].lstep;
    }
    BENCH_KEEP(c[0].stag);
    return (double)(bench_ns() - begin) / (double)ops;
}

static void scan_open(struct scan_client *c, uint32_t n, uint64_t now)
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        struct tags_client x = terms_of(i, n);
        c[i].stag = c[i].ltag = now;
        c[i].rtag = x.reservation_per_s ? now : UINT64_MAX;
        c[i].rstep = x.reservation_per_s ? 1000000000 / x.reservation_per_s : 0;
        c[i].lstep = x.limit_per_s ? 1000000000 / x.limit_per_s : 0;
        c[i].sstep = 1000000000 / x.weight;
    }
}

/* Binary heap of keys: the top grows by a uniform random increment in [0, 2n) and sinks. */
static uint64_t heap_rng = 88172645463325252u;

static double run_heap(uint64_t *key, uint32_t n, uint64_t ops)
{
    uint64_t i, begin = bench_ns();
    for (i = 0; i < ops; i++) {
        uint64_t k;
        size_t at = 0;
        heap_rng ^= heap_rng << 13;
        heap_rng ^= heap_rng >> 7;
        heap_rng ^= heap_rng << 17;
        k = key[0] + (((heap_rng >> 32) * 2 * n) >> 32);
        for (;;) {
            size_t child = 2 * at + 1;
            if (child >= n)
                break;
            if (child + 1 < n && key[child + 1] < key[child])
                child++;
            if (key[child] >= k)
                break;
            key[at] = key[child];
            at = child;
        }
        key[at] = k;
    }
    BENCH_KEEP(key[0]);
    return (double)(bench_ns() - begin) / (double)ops;
}

static void one_size(struct bench *b, uint32_t n)
{
    struct load ps, idle, reward, intrusive;
    struct tags_state report;
    struct scan_client *scan = must_alloc(n * sizeof *scan);
    uint64_t *heap = must_alloc(n * sizeof *heap), ops = b->quick ? 10000 : 50000, scan_now = 1000000000, total;
    uint64_t scan_ops = n > 20000 ? 4 : 400000 / (uint64_t)n / 4 + 1;
    double t_ps[ROUNDS], t_reward[ROUNDS], t_heap[ROUNDS], t_scan[ROUNDS], t_idle[ROUNDS], t_intrusive[ROUNDS],
        ratio[ROUNDS];
    char name[32], other[48];
    unsigned r;
    uint32_t i;
    snprintf(name, sizeof name, "n=%u", n);
    if (scan_ops > ops)
        scan_ops = ops;
    load_open(&ps, n, TAGS_PS, false);
    load_open(&reward, n, TAGS_REWARD, false);
    load_open(&idle, n, TAGS_PS, false);
    load_open(&intrusive, n, TAGS_PS, true);
    for (i = 0; i < n; i++)
        must(tags_withdraw(&idle.t, idle.now, i, 4));
    scan_open(scan, n, scan_now);
    for (i = 0; i < n; i++)
        heap[i] = i; /* a sorted array is a heap */
    /* Warm-up: as many operations as are timed. */
    run_ps(&ps, ROUNDS * ops);
    run_heap(heap, n, ROUNDS * ops);
    run_reward(&reward, ROUNDS * ops / 2);
    run_scan(scan, n, &scan_now, scan_ops);
    run_idle(&idle, ops);
    run_intrusive(&intrusive, ops);
    for (r = 0; r < ROUNDS; r++) {
        t_ps[r] = run_ps(&ps, ops);
        t_heap[r] = run_heap(heap, n, ops);
        t_reward[r] = run_reward(&reward, ops / 2);
        t_scan[r] = run_scan(scan, n, &scan_now, scan_ops);
        t_idle[r] = run_idle(&idle, ops / 5);
        t_intrusive[r] = run_intrusive(&intrusive, ops / 2);
        ratio[r] = t_ps[r] / t_heap[r];
    }
    bench_report(b, name, "ns_per_op", bench_median(t_ps, ROUNDS), "ns");
    bench_report(b, name, "ns_per_op_reward", bench_median(t_reward, ROUNDS), "ns");
    snprintf(other, sizeof other, "intrusive n=%u", n);
    bench_report(b, other, "ns_per_op", bench_median(t_intrusive, ROUNDS), "ns");
    bench_report(b, name, "ns_per_op_idle", bench_median(t_idle, ROUNDS), "ns"); /* arrive, dispatch, idle again */
    bench_report(b, name, "ns_per_op_heap", bench_median(t_heap, ROUNDS), "ns");
    bench_report(b, name, "ns_per_op_scan", bench_median(t_scan, ROUNDS), "ns");
    bench_report(b, name, "ratio_vs_heap", bench_median(ratio, ROUNDS), "ratio");
    must(tags_info(&ps.t, QOS_NONE, &report));
    total = report.served[TAGS_PHASE_RESERVATION] + report.served[TAGS_PHASE_WEIGHT];
    bench_report(b, name, "share_reservation", 100.0 * (double)report.served[TAGS_PHASE_RESERVATION] / (double)total,
                 "%");
    bench_report(b, name, "share_weight", 100.0 * (double)report.served[TAGS_PHASE_WEIGHT] / (double)total, "%");
    bench_report(b, name, "bytes_per_client", (double)ps.bytes / n, "bytes");
    bench_report(b, name, "bytes_per_client_reward", (double)reward.bytes / n, "bytes");
    free(ps.mem);
    free(reward.mem);
    free(idle.mem);
    free(intrusive.mem);
    free(intrusive.request);
    free(scan);
    free(heap);
}

/* ---- two schedulers in two threads, 1,000 clients with reservations and limits in shared words */

struct side {
    struct load load;
    pthread_t thread;
    double ns;
    uint64_t ops;
};

static void *run_side(void *arg)
{
    struct side *s = arg;
    s->ns = run_ps(&s->load, s->ops);
    return NULL;
}

static void side_open(struct side *s, struct tags_shared *shared, uint32_t n)
{
    struct tags_config config;
    uint32_t i;
    memset(&config, 0, sizeof config);
    memset(s, 0, sizeof *s);
    config.clients = n;
    config.mode = TAGS_PS;
    config.no_completions = true;
    config.shared = shared;
    s->load.bytes = tags_memsize(&config);
    s->load.mem = must_alloc(s->load.bytes);
    s->load.now = 1000000000;
    must(tags_init(&s->load.t, s->load.mem, s->load.bytes, &config));
    for (i = 0; i < n; i++) {
        struct tags_client c = terms_of(i, n);
        must(tags_add(&s->load.t, s->load.now, i, &c));
        must(tags_arrive(&s->load.t, s->load.now, i, 4, 1));
    }
}

static void shared_words(struct bench *b)
{
    static struct side side[2];
    struct tags_shared_config config;
    struct tags_shared *shared;
    double one[21], two[21];
    const uint32_t n = 1000;
    unsigned r, i;
    memset(&config, 0, sizeof config);
    config.clients = n;
    shared = must_alloc(tags_shared_memsize(&config));
    must(tags_shared_init(shared, 1000000000, tags_shared_memsize(&config), &config));
    for (i = 0; i < n; i++) {
        struct tags_client c = terms_of(i, n);
        must(tags_shared_change(shared, 1000000000, i, &c));
    }
    for (i = 0; i < 2; i++) {
        side_open(&side[i], shared, n);
        side[i].ops = b->quick ? 10000 : 50000;
    }
    for (r = 0; r < 21; r++) {
        run_side(&side[0]);
        one[r] = side[0].ns;
        for (i = 0; i < 2; i++)
            if (pthread_create(&side[i].thread, NULL, run_side, &side[i]) != 0)
                exit(2);
        for (i = 0; i < 2; i++)
            (void)pthread_join(side[i].thread, NULL);
        two[r] = side[0].ns > side[1].ns ? side[0].ns : side[1].ns;
        side[0].load.now = side[1].load.now = side[0].load.now > side[1].load.now ? side[0].load.now : side[1].load.now;
    }
    bench_report(b, "shared, one thread", "ns_per_op", bench_median(one, 21), "ns");
    bench_report(b, "shared, two threads", "ns_per_op", bench_median(two, 21), "ns");
    for (i = 0; i < 2; i++)
        free(side[i].load.mem);
    free(shared);
}

/* ---- all reach their limits at once: each was sent one request at 1 s, and may have the next one 1 s later */

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint64_t longest_call(struct load *w, uint32_t moves_max)
{
    struct tags_config config;
    const struct tags_client limited = {1, 0, 1};
    struct tags_grant g;
    uint64_t begin, took, longest = 0;
    uint32_t i, served = 0, second;
    memset(&config, 0, sizeof config);
    memset(w, 0, sizeof *w);
    config.clients = w->n = 100000;
    config.mode = TAGS_PS;
    config.no_completions = true;
    config.limit_burst_ns = QOS_NOTHING;
    config.moves_max = moves_max;
    w->bytes = tags_memsize(&config);
    w->mem = must_alloc(w->bytes);
    must(tags_init(&w->t, w->mem, w->bytes, &config));
    for (i = 0; i < w->n; i++) {
        must(tags_add(&w->t, 1000000000, i, &limited));
        must(tags_arrive(&w->t, 1000000000, i, 4, 1));
    }
    for (second = 1; second <= 3; second++) {
        w->now = second * UINT64_C(1000000000);
        do { /* until all wait at their limits, for the next second */
            enum qos_status status;
            begin = thread_ns();
            status = tags_pull(&w->t, w->now, 1, &g);
            took = thread_ns() - begin;
            longest = took > longest ? took : longest;
            served += status == QOS_OK;
        } while (tags_next_ns(&w->t, w->now) <= w->now);
    }
    if (served != 3 * w->n)
        exit(2);
    free(w->mem);
    return longest;
}

static void at_limits(struct bench *b)
{
    struct load w;
    double bounded[5], all[5];
    unsigned r;
    for (r = 0; r < 5; r++) {
        bounded[r] = (double)longest_call(&w, 0) / 1e3;
        all[r] = (double)longest_call(&w, UINT32_MAX) / 1e3;
    }
    bench_report(b, "100,000 at their limits", "longest_call_us", bench_median(bounded, 5), "us");
    bench_report(b, "100,000 at their limits", "longest_call_us_all_at_once", bench_median(all, 5), "us");
}

int main(int argc, char **argv)
{
    struct bench b;
    uint32_t n;
    bench_open(&b, "tags", argc, argv);
    for (n = 10; n <= 100000; n *= 10)
        one_size(&b, n);
    shared_words(&b);
    at_limits(&b);
    return bench_close(&b);
}
