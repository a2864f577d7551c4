// The cost of tokens: a take beside a bare atomic add; takes with claims, on one and two cores, beside a shared word
// and a mutex; a token and a private count on one core and on two; their share of a loop of 4 KiB reads; and one check
// of a monitor with 10,000 clients.
// flags: -pthread -isystem /usr/include/dpdk -isystem /usr/include/x86_64-linux-gnu/dpdk -include rte_config.h
#define _GNU_SOURCE
#include "tokenpool.h"
#include "bench.h"
#include <emmintrin.h>
#include <pthread.h>
#include <rte_meter.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 1000, MANY = 10000, KEPT = 5000, CHUNK = 4096 };

static struct tokenpool_config config;
static struct tokenpool_monitor monitor;
static void *storage;
static size_t storage_bytes;
static uint64_t periods;

static void *aligned(size_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, 4096, size) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memset(p, 0, size);
    return p;
}

static void require(enum qos_status s)
{
    if (s != QOS_OK) {
        fprintf(stderr, "%s\n", qos_strerror(s));
        exit(1);
    }
}

static void run_monitor(struct tokenpool_monitor *m, uint64_t now_ns)
{
    tokenpool_monitor_run(m, now_ns);
    tokenpool_monitor_run(m, now_ns); /* confirms a period that has just begun */
}

static void setup(uint32_t clients, uint64_t reservation)
{
    uint32_t i;
    size_t size;
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.batch = BATCH;
    config.capacity = TOKENPOOL_TOKENS_MAX;
    config.flags = TOKENPOOL_FIXED;
    config.silent_periods = QOS_UNLIMITED;
    size = tokenpool_monitor_memsize(&config);
    storage_bytes = tokenpool_storage_memsize(&config);
    storage = aligned(storage_bytes);
    require(tokenpool_monitor_init(&monitor, aligned(size), size, storage, storage_bytes, &config));
    for (i = 0; i < clients; i++)
        require(tokenpool_monitor_join(&monitor, i, reservation, 0, NULL));
    periods = 0;
    run_monitor(&monitor, 0);
}

/* Attaches an engine and runs it over the start of the next period. */
static void await_client(struct tokenpool_client *c, uint32_t id)
{
    require(tokenpool_client_attach(c, id, 0, storage, storage_bytes));
    tokenpool_client_run(c, (periods + 1) * QOS_NS_PER_S - 1, 0);
}

static void begin_client(struct tokenpool_client *c)
{
    tokenpool_client_hint(c);
    tokenpool_client_run(c, periods * QOS_NS_PER_S, 0);
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* ---- threads that take n tokens each */

enum peer { TAKE, SHARED_WORD, MUTEX, PRIVATE };
static struct worker {
    pthread_t thread;
    struct tokenpool_client client;
    enum peer peer;
    uint64_t n, taken, ns;
    int cpu;
    uint64_t count __attribute__((aligned(128))); /* PRIVATE */
} worker[2];
static qos_word_t shared_word __attribute__((aligned(64)));
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t mutex_tokens __attribute__((aligned(64)));
static pthread_barrier_t start_line;

static void *work(void *arg)
{
    struct worker *w = (struct worker *)arg;
    uint64_t i, now_ns = periods * QOS_NS_PER_S, taken = 0, begin;
    pin(w->cpu);
    pthread_barrier_wait(&start_line);
    begin = bench_ns();
    if (w->peer == TAKE) {
        for (i = 0; i < w->n; i++) {
            taken += tokenpool_client_take(&w->client, now_ns, 1) == QOS_OK;
            BENCH_KEEP(&w->client); /* keeps the engine in memory, as between a server's requests */
        }
    } else if (w->peer == SHARED_WORD) {
        for (i = 0; i < w->n; i++)
            taken += (int64_t)qos_atomic_add_relaxed(&shared_word, UINT64_MAX) > 0;
    } else if (w->peer == PRIVATE) { /* the best that two cores can do: memory that no other core touches */
        for (i = 0; i < w->n; i++) {
            taken += w->count > 0;
            w->count--;
            BENCH_KEEP(&w->count);
        }
    } else {
        for (i = 0; i < w->n; i++) {
            pthread_mutex_lock(&mutex);
            taken += mutex_tokens > 0;
            mutex_tokens--;
            pthread_mutex_unlock(&mutex);
        }
    }
    w->ns = bench_ns() - begin;
    w->taken = taken;
    return NULL;
}

/* ns per token and core of one round: the slowest core's. */
static double round_ns(int cores, enum peer peer, uint64_t n, uint64_t *taken)
{
    double slowest = 0;
    int i;
    for (i = 0; i < cores; i++)
        await_client(&worker[i].client, (uint32_t)i);
    run_monitor(&monitor, ++periods * QOS_NS_PER_S);
    qos_atomic_store_relaxed(&shared_word, TOKENPOOL_TOKENS_MAX);
    mutex_tokens = TOKENPOOL_TOKENS_MAX;
    pthread_barrier_init(&start_line, NULL, (unsigned)cores);
    for (i = 0; i < cores; i++) {
        worker[i].peer = peer;
        worker[i].n = worker[i].count = n;
        worker[i].cpu = i;
        begin_client(&worker[i].client);
        if (pthread_create(&worker[i].thread, NULL, work, &worker[i]) != 0)
            exit(1);
    }
    for (i = 0; i < cores; i++) {
        pthread_join(worker[i].thread, NULL);
        *taken += worker[i].taken;
        if ((double)worker[i].ns > slowest)
            slowest = (double)worker[i].ns;
    }
    pthread_barrier_destroy(&start_line);
    return slowest / (double)n;
}

/* Median of rounds. */
static double tokens(int cores, enum peer peer, uint64_t n, double *share)
{
    double ns[5];
    uint64_t taken = 0;
    int r, rounds = 5;
    for (r = 0; r < rounds; r++)
        ns[r] = round_ns(cores, peer, n, &taken);
    *share = (double)taken / (double)(n * (uint64_t)(cores * rounds));
    return bench_median(ns, (size_t)rounds);
}

/* How much longer a token takes on each of two cores than on one alone. The same for a private count shows the
 * machine's own part (cores that are threads of one core, a lower clock rate). In turn, under the same load. */
static void bench_flat(struct bench *b)
{
    static const enum peer peer[2] = {TAKE, PRIVATE};
    static const char *name[2] = {"take, batch 1000", "a private count"};
    static const char *metric[2] = {"ns_per_token_2_vs_1", "reference_2_vs_1"};
    const uint64_t n = b->quick ? 20000000 : 50000000;
    double ratio[2][15], against[15], alone[15];
    uint64_t taken = 0;
    int r, k, rounds = 15;
    setup(2, 0);
    for (r = 0; r < rounds; r++) {
        for (k = 0; k < 2; k++) {
            double one = round_ns(1, peer[k], n, &taken);
            ratio[k][r] = round_ns(2, peer[k], n, &taken) / one;
            alone[r] = one;
        }
        against[r] = ratio[0][r] / ratio[1][r];
    }
    for (k = 0; k < 2; k++)
        bench_report(b, name[k], metric[k], bench_median(ratio[k], (size_t)rounds), "");
    bench_report(b, name[1], "reference_ns_1", bench_median(alone, (size_t)rounds), "ns");
    bench_report(b, name[0], "flat_vs_reference", bench_median(against, (size_t)rounds), "");
    bench_report(b, name[0], "share_granted", (double)taken / (double)(6 * n * (uint64_t)rounds), "");
}

static void bench_take(struct bench *b)
{
    const uint64_t n = b->quick ? 4000000 : 20000000;
    struct tokenpool_client *c = &worker[0].client;
    double take[15], add[15], ratio[15];
    uint64_t i, at, ok = 0, begin;
    int r, rounds = 15;
    setup(2, TOKENPOOL_TOKENS_MAX / 2);
    pin(0);
    for (r = 0; r < rounds; r++) {
        await_client(c, 0);
        at = ++periods * QOS_NS_PER_S;
        run_monitor(&monitor, at);
        begin_client(c);
        begin = bench_ns();
        for (i = 0; i < n; i++) {
            ok += tokenpool_client_take(c, at, 1) == QOS_OK;
            BENCH_KEEP(c);
        }
        take[r] = (double)(bench_ns() - begin) / (double)n;
        begin = bench_ns();
        for (i = 0; i < n; i++)
            BENCH_KEEP(qos_atomic_add_relaxed(&shared_word, 1));
        add[r] = (double)(bench_ns() - begin) / (double)n;
        ratio[r] = take[r] / add[r];
    }
    bench_report(b, "take", "ns_per_take", bench_median(take, (size_t)rounds), "ns");
    bench_report(b, "take", "share_granted", (double)ok / (double)(n * (uint64_t)rounds), "");
    bench_report(b, "bare atomic add", "ns_per_add", bench_median(add, (size_t)rounds), "ns");
    bench_report(b, "take", "ratio_local_vs_faa", bench_median(ratio, (size_t)rounds), "");
}

/* ---- the loop of the README: clock, take, complete; and the same with the clock read every 64 I/Os. In each round the
 * cases run in short slices in turn, so that all see the same load of the machine. */
enum loop { CLOCK, LOOP, LOOP_64, ADD, METER, MUTEX_ONE, LOOPS };
static struct rte_meter_srtcm meter;
static struct rte_meter_srtcm_profile meter_profile;

__attribute__((noinline)) static uint64_t loop_ns(enum loop which, struct tokenpool_client *c, uint64_t base,
                                                  uint64_t n, uint64_t *granted)
{
    uint64_t i, begin = bench_ns(), now_ns = begin - base;
    for (i = 0; i < n; i++) {
        if (which == CLOCK) {
            now_ns = bench_ns();
            BENCH_KEEP(now_ns);
        } else if (which == LOOP || which == LOOP_64) {
            if (which == LOOP || i % 64 == 0)
                now_ns = bench_ns() - base;
            *granted += tokenpool_client_take(c, now_ns, 1) == QOS_OK;
            BENCH_KEEP(c);
            tokenpool_client_complete(c, 1);
        } else if (which == ADD) {
            BENCH_KEEP(qos_atomic_add_relaxed(&shared_word, 1));
        } else if (which == METER) {
            BENCH_KEEP(rte_meter_srtcm_color_blind_check(&meter, &meter_profile, begin + i, 1));
        } else {
            pthread_mutex_lock(&mutex);
            mutex_tokens--;
            pthread_mutex_unlock(&mutex);
        }
    }
    return bench_ns() - begin;
}

static void bench_loop(struct bench *b)
{
    static const char *name[LOOPS] = {"the clock alone", "clock, take, complete", "the same, clock every 64",
                                      "bare atomic add", "rte_meter srTCM",       "mutex"};
    static const char *metric[LOOPS] = {"clock_ns",        "loop_ns",           "loop_ns_64",
                                        "peer_ns_per_add", "peer_ns_per_check", "peer_ns_per_lock"};
    const uint64_t n = b->quick ? 100000 : 500000;
    struct tokenpool_client *c = &worker[0].client;
    double ns[LOOPS][41], above[41];
    uint64_t granted = 0;
    int r, which, rounds = 41;
    setup(2, TOKENPOOL_TOKENS_MAX / 2);
    pin(0);
    /* The values of its own configuration call, for a clock in nanoseconds instead of DPDK's clock. */
    meter_profile.cbs = meter_profile.ebs = UINT64_C(1) << 62;
    meter_profile.cir_period = meter_profile.cir_bytes_per_period = 1;
    meter.tc = meter_profile.cbs;
    meter.te = meter_profile.ebs;
    for (r = 0; r < rounds; r++) {
        uint64_t base; /* engine's clock = bench's clock - base */
        await_client(c, 0);
        run_monitor(&monitor, ++periods * QOS_NS_PER_S);
        begin_client(c);
        base = bench_ns() - periods * QOS_NS_PER_S;
        for (which = 0; which < LOOPS; which++)
            ns[which][r] = (double)loop_ns((enum loop)which, c, base, n, &granted) / (double)n;
        above[r] = ns[LOOP][r] - ns[CLOCK][r];
    }
    for (which = 0; which < LOOPS; which++)
        bench_report(b, name[which], metric[which], bench_median(ns[which], (size_t)rounds), "ns");
    bench_report(b, name[LOOP], "loop_ns_above_clock", bench_median(above, (size_t)rounds), "ns");
    bench_report(b, name[LOOP], "share_granted", (double)granted / (double)(2 * n * (uint64_t)rounds), "");
}

static void bench_tokens(struct bench *b)
{
    static const char *name[3] = {"take, batch 1000", "shared word per token", "mutex per token"};
    const uint64_t n = b->quick ? 5000000 : 50000000;
    int peer, cores;
    setup(2, 0);
    for (peer = TAKE; peer <= MUTEX; peer++) {
        for (cores = 1; cores <= 2; cores++) {
            char metric[40];
            double share, ns = tokens(cores, (enum peer)peer, peer == TAKE ? n : n / 2, &share);
            snprintf(metric, sizeof metric, peer == TAKE ? "ns_per_token_%d" : "peer_ns_per_token_%d", cores);
            bench_report(b, name[peer], metric, ns, "ns");
            bench_report(b, name[peer], "share_granted", share, "");
        }
    }
}

/* ---- 4 KiB reads at random from a table of 1 GiB */

/* Not inlined: a copy of the loop for c == NULL would have another code layout, which changes its speed. */
__attribute__((noipa)) static uint64_t read_slice(const char *table, uint64_t records, uint64_t n,
                                                  struct tokenpool_client *c, uint64_t *rng, uint64_t *sum,
                                                  uint64_t *granted)
{
    static char buffer[2 * CHUNK] __attribute__((aligned(4096)));
    char *to = buffer + CHUNK / 2; /* not the records' offset in a page: loads would wait for aliasing stores */
    uint64_t i, x = *rng, begin = bench_ns(), now_ns = periods * QOS_NS_PER_S;
    for (i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (c)
            *granted += tokenpool_client_take(c, now_ns, 1) == QOS_OK;
        memcpy(to, table + x % records * CHUNK, CHUNK);
        *sum += (unsigned char)to[x % CHUNK];
        BENCH_KEEP(to);
        if (c)
            tokenpool_client_complete(c, 1);
    }
    *rng = x;
    return bench_ns() - begin;
}

static void bench_reads(struct bench *b)
{
    const size_t size = (size_t)1 << 30;
    const uint64_t slice = 4000;
    const int rounds = b->quick ? 800 : 3000;
    double *with = (double *)malloc(sizeof(double) * (size_t)rounds),
           *same = (double *)malloc(sizeof(double) * (size_t)rounds);
    char *table = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct tokenpool_client *c = &worker[0].client;
    uint64_t x = 88172645463325252u, sum = 0, granted = 0, reads = 0;
    size_t i;
    int r;
    if (table == MAP_FAILED || !with || !same) {
        perror("1 GiB table");
        exit(1);
    }
    for (i = 0; i < size; i += CHUNK)
        table[i] = (char)(i >> 12);
    setup(2, 0);
    pin(0);
    await_client(c, 0);
    run_monitor(&monitor, ++periods * QOS_NS_PER_S);
    begin_client(c);
    for (r = 0; r < rounds; r++) { /* control, test, control: an A/A ratio beside every A/B ratio */
        double a = (double)read_slice(table, size / CHUNK, slice, NULL, &x, &sum, &granted);
        double q = (double)read_slice(table, size / CHUNK, slice, c, &x, &sum, &granted);
        double a2 = (double)read_slice(table, size / CHUNK, slice, NULL, &x, &sum, &granted);
        reads += slice;
        with[r] = 2 * q / (a + a2);
        same[r] = a2 / a;
    }
    BENCH_KEEP(sum);
    bench_report(b, "4 KiB reads, 1 GiB", "overhead_4k_read", bench_median(with, (size_t)rounds) - 1, "");
    bench_report(b, "4 KiB reads, 1 GiB", "control_a_a", bench_median(same, (size_t)rounds) - 1, "");
    bench_report(b, "4 KiB reads, 1 GiB", "share_granted", (double)granted / (double)reads, "");
    munmap(table, size);
    free(with);
    free(same);
}

/* ---- one check interval, all reports fresh from another core, beside a plain read of such reports */

enum { CHECKS = 300 };
static qos_word_t turn __attribute__((aligned(64)));
static uint64_t rounds_of_reports, reporters, kept, demand; /* demand: 1 busy, 0 at rest */

static uint64_t epoch_now(void)
{
    struct tokenpool_monitor_state state;
    require(tokenpool_monitor_info(&monitor, &state));
    return state.epoch;
}

static void *report(void *arg)
{
    qos_word_t *reports = (qos_word_t *)arg;
    /* tag, incarnation of an engine that attached once, demand, K and N: see the formats in tokenpool.h */
    const uint64_t head = (epoch_now() % 31 + 1) << 59 | UINT64_C(1) << 56 | demand << 52 | kept << 26;
    uint64_t round, i;
    pin(1);
    for (round = 1; round <= rounds_of_reports; round++) {
        for (i = 0; i < reporters; i++)
            qos_atomic_store_relaxed(&reports[i], head | (round + 1) / 2);
        qos_atomic_store_release(&turn, 2 * round - 1);
        /* Asleep: where two processors share a core, a loop would take half of it from what is measured. */
        while (qos_atomic_load_acquire(&turn) != 2 * round)
            usleep(20);
    }
    return NULL;
}

static void await_reports(uint64_t round)
{
    while (qos_atomic_load_acquire(&turn) != 2 * round - 1)
        ;
}

/* The best that a check can hope for with the 128 bits that each x86-64 has: the sums that it makes without a guard, of
 * fresh reports, by hand, over two private arrays. No atomics, no copy. sum: K, K - N, N, what is returned, resting. */
static double sums_us(const uint64_t *word, const uint32_t *issued, uint32_t clients, uint32_t level, uint64_t *sum)
{
    const __m128i tag = _mm_set1_epi32((int)(epoch_now() % 31 + 1)), gone = _mm_set1_epi32((1 << 26) - (int)level);
    const __m128i zero = _mm_setzero_si128(), mask = _mm_set1_epi32((1 << 26) - 1), odd = _mm_set_epi32(-1, 0, -1, 0);
    const __m128i queue = _mm_set1_epi32(2 << 26), wants = _mm_set1_epi32(3 << 26), rises = _mm_set1_epi32(12 << 26);
    uint64_t begin = bench_ns();
    uint32_t i, j, k;
    memset(sum, 0, 5 * sizeof *sum);
    for (i = 0; i < clients; i += 40) {
        __m128i total[5] = {zero, zero, zero, zero, zero};
        for (j = i; j < i + 40; j += 4) {
            __m128 a = _mm_load_ps((const float *)&word[j]), b = _mm_load_ps((const float *)&word[j + 2]);
            __m128i low = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88));
            __m128i top = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
            __m128i fresh = _mm_cmpeq_epi32(_mm_srli_epi32(top, 27), tag);
            __m128i high = _mm_or_si128(_mm_slli_epi32(top, 6), _mm_srli_epi32(low, 26));
            __m128i most = _mm_load_si128((const __m128i *)&issued[j]), shifted = _mm_slli_epi32(most, 6);
            __m128i done = _mm_and_si128(_mm_and_si128(low, mask), fresh);
            __m128i above = _mm_sub_epi32(_mm_and_si128(high, mask), most), kept_now, rest, part, over;
            kept_now = _mm_add_epi32(most, _mm_and_si128(above, _mm_and_si128(_mm_srai_epi32(above, 31), fresh)));
            rest = _mm_sub_epi32(kept_now, done);
            rest = _mm_andnot_si128(_mm_srai_epi32(rest, 31), rest);
            part = _mm_and_si128(_mm_mul_epu32(_mm_srli_epi64(shifted, 32), gone), odd);
            part = _mm_or_si128(part, _mm_srli_epi64(_mm_mul_epu32(shifted, gone), 32));
            over = _mm_sub_epi32(_mm_add_epi32(rest, part), most);
            over = _mm_andnot_si128(_mm_srai_epi32(over, 31), _mm_and_si128(over, fresh));
            over = _mm_and_si128(over, _mm_cmpeq_epi32(_mm_and_si128(high, queue), zero));
            total[0] = _mm_add_epi32(total[0], kept_now);
            total[1] = _mm_add_epi32(total[1], rest);
            total[2] = _mm_add_epi32(total[2], done);
            total[3] = _mm_add_epi32(total[3], over);
            over = _mm_and_si128(over, _mm_cmpeq_epi32(_mm_and_si128(high, wants), zero));
            over = _mm_andnot_si128(_mm_cmpeq_epi32(_mm_and_si128(high, rises), rises), over);
            total[4] = _mm_add_epi32(total[4], over);
        }
        for (k = 0; k < 5; k++) {
            uint32_t lane[4];
            _mm_storeu_si128((__m128i *)lane, total[k]);
            sum[k] += (uint64_t)lane[0] + lane[1] + lane[2] + lane[3];
        }
    }
    return (double)(bench_ns() - begin) / 1000;
}

static void bench_check(struct bench *b, const char *name, const char *metric, uint32_t clients, size_t checks)
{
    double us[CHECKS], plain[CHECKS], ratio[CHECKS], sums[CHECKS], above[CHECKS], limit[CHECKS];
    uint64_t *word = (uint64_t *)aligned(sizeof(uint64_t) * clients);
    uint32_t *issued = (uint32_t *)aligned(sizeof(uint32_t) * clients);
    struct tokenpool_monitor_state state;
    const qos_word_t *reports;
    pthread_t thread;
    uint64_t k, i, sum = 0, all[5];
    kept = (uint64_t)KEPT * MANY / clients;
    setup(clients, kept);
    pin(0);
    reports = (qos_word_t *)storage + tokenpool_storage_report(clients, 0) / 8;
    rounds_of_reports = 2 * checks;
    reporters = clients;
    qos_atomic_store_relaxed(&turn, 0);
    (void)qos_atomic_add_relaxed((qos_word_t *)storage + TOKENPOOL_OFFSET_POOL / 8,
                                 qos_wrap_sub(0, UINT64_C(1000) << 32)); /* the pool is used */
    run_monitor(&monitor, 1000000);
    run_monitor(&monitor, 2000000);
    if (pthread_create(&thread, NULL, report, (void *)(uintptr_t)reports) != 0)
        exit(1);
    for (k = 0; k < checks; k++) {
        uint32_t level;
        uint64_t begin;
        await_reports(2 * k + 1);
        level = monitor.level;
        begin = bench_ns();
        run_monitor(&monitor, 3000000 + k * 1000000);
        us[k] = (double)(bench_ns() - begin) / 1000;
        require(tokenpool_monitor_info(&monitor, &state));
        if (state.used != clients * (k + 1)) {
            fprintf(stderr, "the scan saw %" PRIu64 " instead of %" PRIu64 "\n", state.used, clients * (k + 1));
            exit(1);
        }
        qos_atomic_store_release(&turn, 4 * k + 2);
        await_reports(2 * k + 2);
        begin = bench_ns();
        for (i = 0; i < clients; i++)
            sum += qos_atomic_load_relaxed(&reports[i]);
        BENCH_KEEP(sum);
        plain[k] = (double)(bench_ns() - begin) / 1000;
        ratio[k] = us[k] / plain[k];
        for (i = 0; i < clients; i++) {
            word[i] = qos_atomic_load_relaxed(&reports[i]);
            issued[i] = (uint32_t)kept;
        }
        sums[k] = sums_us(word, issued, clients, level, all);
        if (state.kept != all[0] - all[4] || state.left != all[1] - all[4] || state.used != all[2]) {
            fprintf(stderr, "the sums by hand are others\n");
            exit(1);
        }
        above[k] = us[k] / sums[k];
        limit[k] = sums[k] / plain[k];
        qos_atomic_store_release(&turn, 4 * k + 4);
    }
    pthread_join(thread, NULL);
    bench_report(b, name, metric, bench_quantile(us, checks, 0), "us");
    bench_report(b, name, "median_us", bench_median(us, checks), "us");
    bench_report(b, name, "plain_read_us", bench_quantile(plain, checks, 0), "us");
    bench_report(b, name, "check_vs_read", bench_median(ratio, checks), "");
    bench_report(b, name, "sums_by_hand_us", bench_quantile(sums, checks, 0), "us");
    bench_report(b, name, "check_vs_sums", bench_median(above, checks), "");
    bench_report(b, name, "sums_vs_read", bench_median(limit, checks), "");
    free(word);
    free(issued);
}

int main(int argc, char **argv)
{
    struct bench b;
    bench_open(&b, "tokenpool", argc, argv);
    bench_take(&b);
    bench_loop(&b);
    bench_tokens(&b);
    bench_flat(&b);
    bench_reads(&b);
    demand = 1;
    bench_check(&b, "check, 10,000 clients", "monitor_check_us_10000", MANY, CHECKS);
    bench_check(&b, "check, 1,000,000 clients", "monitor_check_us_1000000", 100 * MANY, b.quick ? 10 : 30);
    demand = 0; /* the check adds up what they leave */
    bench_check(&b, "check, 1,000,000 clients at rest", "monitor_check_at_rest_us", 100 * MANY, b.quick ? 10 : 30);
    return bench_close(&b);
}
