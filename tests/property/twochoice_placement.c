// proves: draws are distinct, uniform, and never a server that is down (Section III-B); decide fills the candidates to
// proves: one level, takes its share of that fill among rivals, and sends writes home where the level allows it.
#include "check.h"
#include "twochoice.h"

#define SERVERS 300
#define WRITES 40

static struct check_rng rng;
static struct twochoice_placement s;

static void *open_scheduler(struct check_mem *m, uint32_t servers, uint32_t policy, bool include_home, uint64_t seed)
{
    struct twochoice_placement_config config;
    memset(&config, 0, sizeof config);
    config.servers = servers;
    config.max_writes = WRITES;
    config.policy = policy;
    config.include_home = include_home;
    config.seed = seed;
    check_mem_new(m, twochoice_placement_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_placement_init(&s, m->mem, m->size, &config), QOS_OK);
    return m->mem;
}

/* Writes of 1 MiB each, whose homes are the servers in turn. */
static void alike(struct twochoice_write *w, size_t k, uint32_t servers)
{
    size_t i;
    for (i = 0; i < k; i++) {
        w[i].home = (uint32_t)(i % servers);
        w[i].len_bytes = 1 << 20;
    }
}

/* Draws `count` servers, an even number, as a decision over half as many writes does. */
static size_t draw(size_t count, uint32_t *out)
{
    static struct twochoice_probe p[2 * WRITES];
    struct twochoice_write w[WRITES];
    size_t i, n = 0;
    alike(w, count / 2, 1);
    CHECK_EQ(twochoice_placement_ask(&s, w, count / 2, p, &n), QOS_OK);
    for (i = 0; i < n; i++)
        out[i] = p[i].server;
    return n;
}

static void draws(void)
{
    struct check_mem m;
    static uint32_t out[2 * WRITES], again[2 * WRITES], hits[SERVERS], pairs[6][6];
    static bool down[SERVERS];
    uint64_t round, rounds = check_scaled(20000);
    uint32_t i;
    size_t n;
    open_scheduler(&m, 70, 0, false, 7);
    CHECK_EQ(draw(80, out), 70); /* no more are up */
    for (i = 0; i < 70; i++)
        hits[out[i]]++;
    for (i = 0; i < 70; i++)
        CHECK_EQ(hits[i], 1);
    CHECK(check_mem_free(&m));
    open_scheduler(&m, SERVERS, 0, false, 7);
    for (round = 0; round < check_scaled(400); round++) { /* servers come and go */
        uint32_t up = 0, count = 2 * (uint32_t)check_between(&rng, 1, WRITES);
        for (i = 0; i < 20; i++) {
            uint32_t server = (uint32_t)check_between(&rng, 0, SERVERS - 1);
            uint32_t state = (uint32_t)check_between(&rng, 0, 2);
            CHECK_EQ(twochoice_placement_set_server(&s, server, (enum twochoice_server_state)state, 0), QOS_OK);
            down[server] = state != TWOCHOICE_UP;
        }
        for (i = 0; i < SERVERS; i++)
            up += !down[i];
        n = draw(count, out);
        CHECK_EQ(n, count < up ? count : up);
        memset(hits, 0, sizeof hits);
        for (i = 0; i < n; i++) {
            CHECK(!down[out[i]]);
            CHECK_EQ(hits[out[i]]++, 0);
        }
    }
    CHECK(check_mem_free(&m));
    /* Each ordered pair of six servers is drawn equally often: 30 pairs, each within 5 sigma. */
    open_scheduler(&m, 6, 0, false, check_seed());
    for (round = 0; round < rounds; round++) {
        CHECK_EQ(draw(2, out), 2);
        pairs[out[0]][out[1]]++;
    }
    for (i = 0; i < 36; i++) {
        double expect = (double)rounds / 30, got = pairs[i / 6][i % 6];
        if (i / 6 == i % 6)
            CHECK_EQ(pairs[i / 6][i % 6], 0);
        else
            CHECK((got - expect) * (got - expect) <= 25 * expect);
    }
    CHECK(check_mem_free(&m));
    /* Two placements with the same seed draw the same. */
    open_scheduler(&m, SERVERS, 0, false, 1);
    for (i = 0; i < 30; i++)
        CHECK_EQ(draw(50, out), 50);
    CHECK(check_mem_free(&m));
    open_scheduler(&m, SERVERS, 0, false, 1);
    for (i = 0; i < 30; i++)
        CHECK_EQ(draw(50, again), 50);
    CHECK(memcmp(out, again, 50 * sizeof *out) == 0);
    CHECK(check_mem_free(&m));
}

/* The level per weight to which `bytes` fill the candidates: from the emptiest on, as long as the next one is below
 * the level. */
static double water_level(const struct twochoice_probe *p, const size_t *one, size_t m, double bytes)
{
    bool in[4 * WRITES] = {false};
    double weight = 0;
    size_t round;
    for (round = 0; round < m; round++) {
        size_t i, next = m;
        for (i = 0; i < m; i++)
            if (!in[i] && (next == m ||
                           (double)p[one[i]].load / p[one[i]].weight < (double)p[one[next]].load / p[one[next]].weight))
                next = i;
        if (weight > 0 && (double)p[one[next]].load / p[one[next]].weight >= bytes / weight)
            break;
        in[next] = true;
        bytes += (double)p[one[next]].load;
        weight += p[one[next]].weight;
    }
    return bytes / weight;
}

static int by_value(const void *a, const void *b)
{
    const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

/* Each write went where the rule sends it: to the candidate that is emptiest with it; it counts as 1 + rivals writes. The header
 * rounds rivals to 1/65536, so errors of a thousandth of a write are accepted. */
static void check_filled(const struct twochoice_write *w, size_t k, const struct twochoice_probe *p, size_t n,
                         const size_t *one, size_t m)
{
    static double full[4 * WRITES], last[4 * WRITES];
    static unsigned sorted[4 * WRITES];
    double rivals = 0, factor, level, bytes = 0;
    size_t i, j;
    for (i = 0; i < m; i++)
        sorted[i] = p[one[i]].rivals < 64 ? p[one[i]].rivals : 64;
    qsort(sorted, m, sizeof *sorted, by_value);
    for (i = 0; i < m; i++) {
        const unsigned most = 2 * sorted[(m - 1) / 2] + 1; /* of the median */
        rivals += sorted[i] < most ? sorted[i] : most;
    }
    factor = 1 + rivals / (double)m;
    for (i = 0; i < k; i++)
        bytes += w[i].len_bytes < TWOCHOICE_MIN_WRITE_BYTES ? 0 : factor * (double)w[i].len_bytes;
    level = water_level(p, one, m, bytes);
    for (i = 0; i < n; i++) {
        full[i] = (double)p[i].load;
        last[i] = 0;
    }
    for (i = 0; i < k; i++) /* home, if the level allows it */
        for (j = 0; j < m && w[i].len_bytes >= TWOCHOICE_MIN_WRITE_BYTES; j++)
            if (p[one[j]].server == w[i].home) {
                double len = factor * (double)w[i].len_bytes, limit = level * p[one[j]].weight;
                bool fits = full[one[j]] + len <= limit * (1 + 1e-9) + len / 100;
                bool surely = full[one[j]] + len <= limit * (1 - 1e-9) - len / 100;
                /* A home without room for it may still get it, as the emptiest candidate. */
                CHECK(!surely || w[i].target == w[i].home);
                if (surely || (fits && w[i].target == w[i].home))
                    full[one[j]] += len;
                else if (w[i].target == w[i].home)
                    last[one[j]] += len;
            }
    for (i = 0; i < k; i++) {
        if (w[i].len_bytes < TWOCHOICE_MIN_WRITE_BYTES || w[i].target == w[i].home)
            continue;
        for (j = 0; j < m; j++)
            if (p[one[j]].server == w[i].target)
                last[one[j]] += factor * (double)w[i].len_bytes;
    }
    for (i = 0; i < m; i++) /* a candidate was the emptiest when it got its last write */
        for (j = 0; j < m && last[one[i]] > 0; j++) {
            double next = factor * (double)(1 << 20), with = full[one[i]] + last[one[i]]; /* its last write included */
            CHECK(with / p[one[i]].weight <=
                  (full[one[j]] + last[one[j]] + next + factor * 1000) / p[one[j]].weight * (1 + 1e-9));
        }
}

static void decisions(bool include_home)
{
    struct check_mem m;
    static struct twochoice_probe p[4 * WRITES];
    static struct twochoice_write w[WRITES];
    uint64_t round, several = 0, none = 0;
    open_scheduler(&m, SERVERS, TWOCHOICE_COLLABORATIVE, include_home, 3);
    for (round = 0; round < check_scaled(4000); round++) {
        size_t k = (size_t)check_between(&rng, 1, WRITES), n = 0, i, j, large = 0, candidates = 0, sent = 0;
        size_t one[4 * WRITES];
        uint64_t kind = check_between(&rng, 0, 3);
        CHECK_CONTEXT("round %u", (unsigned)round);
        for (i = 0; i < k; i++) {
            w[i].home = (uint32_t)check_between(&rng, 0, SERVERS - 1);
            w[i].len_bytes = check_between(&rng, 0, 5) ? 1 << 20 : 100;
            large += w[i].len_bytes >= TWOCHOICE_MIN_WRITE_BYTES;
        }
        CHECK_EQ(twochoice_placement_ask(&s, w, k, p, &n), QOS_OK);
        CHECK_EQ(n, 2 * large);
        if (include_home)
            for (i = 0; i < k; i++) {
                bool asked = w[i].len_bytes < TWOCHOICE_MIN_WRITE_BYTES;
                for (j = 0; j < n; j++)
                    asked |= p[j].server == w[i].home;
                CHECK(asked);
            }
        for (i = 0; i < n; i++) {
            for (j = 0; j < i; j++)
                CHECK(p[i].server != p[j].server);
            p[i].state = check_between(&rng, 0, 5) ? TWOCHOICE_UP : (uint32_t)check_between(&rng, 1, 2);
            if (round % 7 == 0 && i >= 2)
                p[i].state = TWOCHOICE_FULL; /* few servers answer */
            p[i].load = kind == 0   ? 5
                        : kind == 1 ? check_between(&rng, 0, 8) << 20
                                    : check_between(&rng, 0, UINT64_C(1) << check_between(&rng, 0, 40));
            p[i].weight = round % 2 ? 1 : (uint32_t)check_between(&rng, 1, 1 << 20);
            p[i].rivals = round % 3 ? 0 : (uint32_t)check_between(&rng, 0, check_between(&rng, 0, 100));
        }
        if (n > 2 && round % 5 == 0) { /* a cached load of a server that answered itself does not count */
            p[n] = p[0];
            p[n].state = TWOCHOICE_UP;
            p[n++].load = 0;
        }
        for (i = 0; i < n; i++) {
            for (j = 0; j < i && !(p[j].state == TWOCHOICE_UP && p[j].server == p[i].server); j++)
                continue;
            if (p[i].state == TWOCHOICE_UP && j == i)
                one[candidates++] = i;
        }
        CHECK_EQ(twochoice_placement_decide(&s, w, k, p, n), QOS_OK);
        for (i = 0; i < n; i++) {
            size_t there = 0;
            for (j = 0; j < candidates && one[j] != i; j++)
                continue;
            CHECK(j < candidates || p[i].chosen == 0);
            for (j = 0; j < k && p[i].chosen; j++)
                there += w[j].target == p[i].server && w[j].len_bytes >= TWOCHOICE_MIN_WRITE_BYTES;
            CHECK_EQ(p[i].chosen, there);
            sent += p[i].chosen;
            several += p[i].chosen > 1;
            none += p[i].state == TWOCHOICE_UP && p[i].chosen == 0;
        }
        CHECK_EQ(sent, candidates ? large : 0);
        for (i = 0; i < k; i++)
            if (w[i].len_bytes < TWOCHOICE_MIN_WRITE_BYTES || candidates == 0)
                CHECK_EQ(w[i].target, w[i].home);
        if (candidates)
            check_filled(w, k, p, n, one, candidates);
    }
    CHECK_GE(several, check_scaled(4000));
    CHECK_GE(none, check_scaled(4000));
    CHECK(check_mem_free(&m));
}

/* Servers that lie: with absurd loads and rivals they get no writes, and nothing overflows. */
static void lies(void)
{
    struct check_mem m;
    struct twochoice_probe p[4 * WRITES];
    struct twochoice_write w[WRITES];
    size_t n = 0, i;
    open_scheduler(&m, 10, TWOCHOICE_COLLABORATIVE, false, 1);
    alike(w, WRITES, 10);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    for (i = 0; i < n; i++) {
        p[i].state = TWOCHOICE_UP;
        p[i].load = p[i].server < 6 ? UINT64_MAX - p[i].server : i << 20;
        p[i].weight = p[i].server % 2 ? 1 : TWOCHOICE_WEIGHT_MAX;
        p[i].rivals = p[i].server == 9 ? UINT32_MAX : 0;
    }
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    for (i = 0; i < n; i++)
        CHECK(p[i].server >= 6 || p[i].chosen == 0);
    for (i = 0; i < WRITES; i++)
        w[i].len_bytes = UINT64_MAX;
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    CHECK(check_mem_free(&m));
}

/* Three of ten servers have a terabyte in flight: none of 100 writes goes there, and the others share them. */
static void stragglers(void)
{
    struct check_mem m;
    struct twochoice_probe p[4 * WRITES];
    struct twochoice_write w[WRITES];
    size_t n = 0, i;
    open_scheduler(&m, 10, TWOCHOICE_COLLABORATIVE, false, 1);
    alike(w, WRITES, 10);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 10);
    for (i = 0; i < n; i++) {
        p[i].state = TWOCHOICE_UP;
        p[i].load = p[i].server < 3 ? UINT64_C(1) << 40 : 0;
        p[i].rivals = 10;
    }
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    for (i = 0; i < n; i++)
        CHECK(p[i].server < 3 ? p[i].chosen == 0 : p[i].chosen >= 5 && p[i].chosen <= 6);
    CHECK(check_mem_free(&m));
}

static void few_alive(void)
{
    struct check_mem m;
    static struct twochoice_probe p[2 * WRITES];
    static struct twochoice_write w[WRITES];
    size_t n, i, j, changed;
    uint32_t round;
    open_scheduler(&m, SERVERS, TWOCHOICE_COLLABORATIVE, false, 3);
    alike(w, WRITES, SERVERS);
    for (i = 5; i < SERVERS; i++) /* five of 300 are up */
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, i % 2 ? TWOCHOICE_DOWN : TWOCHOICE_FULL, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 5);
    CHECK_EQ(twochoice_placement_redraw(&s, 0, p, n, &changed), QOS_OK);
    CHECK_EQ(changed, 0); /* no other server is up */
    for (i = 0; i < n; i++)
        p[i].state = TWOCHOICE_UP;
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    for (i = 0; i < n; i++)
        CHECK_EQ(p[i].chosen, WRITES / 5);
    for (i = 0; i < 5; i++)
        CHECK_EQ(w[i].target, i); /* a write whose home is up stays at home */
    for (i = 0; i < 5; i++)
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, TWOCHOICE_DOWN, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    for (i = 0; i < WRITES; i++)
        CHECK_EQ(w[i].target, w[i].home);
    /* Servers that do not answer are replaced, twice at most. */
    for (i = 0; i < SERVERS; i++)
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, TWOCHOICE_UP, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, w, 10, p, &n), QOS_OK);
    CHECK_EQ(n, 20);
    for (round = 0; round < 4; round++) {
        uint32_t before[20];
        for (i = 0; i < n; i++) {
            before[i] = p[i].server;
            p[i].state = i % 2 ? TWOCHOICE_UP : TWOCHOICE_DOWN;
            if (p[i].state == TWOCHOICE_DOWN)
                CHECK_EQ(twochoice_placement_set_server(&s, p[i].server, TWOCHOICE_DOWN, 0), QOS_OK);
        }
        CHECK_EQ(twochoice_placement_redraw(&s, round, p, n, &changed), QOS_OK);
        CHECK_EQ(changed, round < TWOCHOICE_TRIES ? 10 : 0);
        for (i = 0; i < n; i++) {
            CHECK_EQ(p[i].server == before[i], i % 2 == 1 || changed == 0);
            for (j = 0; j < i; j++)
                CHECK(p[i].server != p[j].server);
        }
    }
    CHECK(check_mem_free(&m));
}

static void other_policies(void)
{
    struct check_mem m;
    static struct twochoice_probe p[2 * WRITES];
    static struct twochoice_write w[WRITES];
    struct qos_stats st;
    size_t n, i, round, away = 0;
    bool home;
    for (i = 0; i < WRITES; i++) {
        w[i].home = (uint32_t)(i * 7);
        w[i].len_bytes = i == 3 ? 10 : 1 << 20;
    }
    open_scheduler(&m, SERVERS, TWOCHOICE_FIXED, false, 3);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, 0), QOS_OK);
    for (i = 0; i < WRITES; i++)
        CHECK_EQ(w[i].target, w[i].home);
    CHECK(check_mem_free(&m));
    open_scheduler(&m, SERVERS, TWOCHOICE_RANDOM, false, 3);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, NULL, 0), QOS_OK);
    for (i = 0; i < WRITES; i++)
        away += w[i].target != w[i].home;
    CHECK_GE(away, WRITES / 2);
    CHECK_EQ(w[3].target, w[3].home); /* too small */
    CHECK_EQ(twochoice_placement_stats(&s, 0, &st), QOS_ENOENT);
    CHECK_EQ(twochoice_placement_stats(&s, QOS_NONE, &st), QOS_OK);
    CHECK_EQ(st.granted, ((uint64_t)(WRITES - 1) << 20) + 10);
    CHECK_EQ(st.borrowed, away << 20);
    for (i = 0; i < SERVERS; i++)
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, TWOCHOICE_DOWN, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, NULL, 0), QOS_OK);
    CHECK_EQ(w[0].target, w[0].home);
    CHECK(check_mem_free(&m));
    for (home = false;; home = true) {
        open_scheduler(&m, SERVERS, TWOCHOICE_NATIVE, home, 3);
        for (round = 0; round < 50; round++) {
            size_t at = 0;
            CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
            CHECK_EQ(n, 2 * (WRITES - 1));
            for (i = 0; i < n; i++) {
                p[i].load = check_between(&rng, 0, 3);
                p[i].state = check_between(&rng, 0, 4) ? TWOCHOICE_UP : TWOCHOICE_DOWN;
            }
            CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
            for (i = 0; i < WRITES; i++) {
                const struct twochoice_probe *a = &p[at], *b = &p[at + 1];
                uint32_t want = w[i].home;
                if (i == 3)
                    continue;
                CHECK(a->server != b->server);
                CHECK(!home || a->server == w[i].home);
                if (a->state == TWOCHOICE_UP && (b->state != TWOCHOICE_UP || a->load <= b->load))
                    want = a->server;
                else if (b->state == TWOCHOICE_UP)
                    want = b->server;
                CHECK_EQ(w[i].target, want);
                at += 2;
            }
        }
        CHECK(check_mem_free(&m));
        if (home)
            break;
    }
    open_scheduler(&m, 1, TWOCHOICE_NATIVE, true, 3); /* one server: both choices */
    w[0].home = 0;
    CHECK_EQ(twochoice_placement_ask(&s, w, 1, p, &n), QOS_OK);
    CHECK(n == 2 && p[0].server == 0 && p[1].server == 0);
    CHECK_EQ(twochoice_placement_set_server(&s, 0, TWOCHOICE_DOWN, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, w, 1, p, &n), QOS_OK);
    CHECK_EQ(twochoice_placement_decide(&s, w, 1, p, n), QOS_OK);
    CHECK_EQ(w[0].target, 0);
    CHECK(check_mem_free(&m));
}

static void errors(void)
{
    struct twochoice_placement_config config;
    struct check_mem m;
    struct twochoice_probe p[8];
    struct twochoice_write w = {0, 0, 4096};
    size_t n, size;
    memset(&config, 0, sizeof config);
    CHECK_EQ(twochoice_placement_memsize(&config), 0); /* no servers */
    config.servers = TWOCHOICE_SERVERS_MAX + 1;
    CHECK_EQ(twochoice_placement_memsize(&config), 0);
    config.servers = 4;
    config.max_writes = TWOCHOICE_WRITES_MAX + 1;
    CHECK_EQ(twochoice_placement_memsize(&config), 0);
    config.max_writes = 2;
    config.policy = 4;
    CHECK_EQ(twochoice_placement_memsize(&config), 0);
    config.policy = 0;
    config.min_write_bytes = QOS_NOTHING;
    config.tries = TWOCHOICE_NO_TRIES;
    size = twochoice_placement_memsize(&config);
    check_mem_new(&m, size, 64, 0);
    CHECK_EQ(twochoice_placement_init(&s, m.mem, size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(twochoice_placement_init(&s, m.mem + 4, size, &config), QOS_EALIGN);
    CHECK_EQ(twochoice_placement_init(&s, m.mem, size, &config), QOS_OK);
    CHECK_EQ(twochoice_placement_set_server(&s, 4, TWOCHOICE_UP, 0), QOS_ENOENT);
    CHECK_EQ(twochoice_placement_set_server(&s, 0, (enum twochoice_server_state)3, 0), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_set_server(&s, 0, TWOCHOICE_UP, TWOCHOICE_WEIGHT_MAX + 1), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_set_server(&s, 0, TWOCHOICE_UP, 9), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, &w, 0, p, &n), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_ask(&s, &w, 3, p, &n), QOS_ERANGE);
    w.home = 4;
    CHECK_EQ(twochoice_placement_ask(&s, &w, 1, p, &n), QOS_ENOENT);
    w.home = 0;
    w.len_bytes = 0; /* with PROBE_EVERY even this is placed */
    CHECK_EQ(twochoice_placement_ask(&s, &w, 1, p, &n), QOS_OK);
    CHECK_EQ(n, 2);
    CHECK_EQ(twochoice_placement_redraw(&s, 0, p, n, &n), QOS_OK);
    CHECK_EQ(n, 0); /* no tries */
    CHECK_EQ(twochoice_placement_redraw(&s, 0, p, 9, &n), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_decide(&s, &w, 1, NULL, 1), QOS_EINVAL);
    CHECK_EQ(twochoice_placement_decide(&s, &w, 1, p, 9), QOS_ERANGE);
    p[1].server = 4;
    CHECK_EQ(twochoice_placement_redraw(&s, 0, p, 2, &n), QOS_ENOENT);
    p[0].state = p[1].state = TWOCHOICE_UP;
    p[0].load = 1; /* the other server is better, but it does not exist */
    p[1].load = 0;
    CHECK_EQ(twochoice_placement_decide(&s, &w, 1, p, 2), QOS_OK);
    CHECK_EQ(w.target, p[0].server);
    p[1].server = 1;
    p[1].weight = 0;
    p[0].state = TWOCHOICE_DOWN;
    CHECK_EQ(twochoice_placement_decide(&s, &w, 1, p, 2), QOS_OK);
    CHECK_EQ(w.target, w.home);
    CHECK(check_mem_free(&m));
}

int main(void)
{
    check_begin("twochoice_placement");
    check_rng_init(&rng, 2);
    draws();
    decisions(false);
    decisions(true);
    stragglers();
    lies();
    few_alive();
    other_policies();
    errors();
    return check_end();
}
