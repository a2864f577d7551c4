// proves: draws are distinct, uniform, and never a server that is down; decide keeps the k of least load / weight,
// proves: sends writes to their homes among them and spreads the rest evenly, like a naive oracle (Section III-B).
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

/* `count` servers, an even number of them: those that half as many writes would probe. */
static size_t draw(size_t count, uint32_t *out)
{
    static struct twochoice_probe p[2 * WRITES];
    struct twochoice_write w[WRITES];
    size_t i, n = 0;
    for (i = 0; i < count / 2; i++) {
        w[i].home = 0;
        w[i].len_bytes = 1 << 20;
    }
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
    CHECK_EQ(draw(80, out), 70); /* all there are */
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
    /* Each ordered pair out of six equally often: 30 kinds, each within 5 sigma. */
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
    /* A function of the seed: two placements draw the same. */
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

/* load / weight of a, exactly, against that of b; then the index. Loads stay below 2^40, weights below 2^20. */
static bool naive_better(const struct twochoice_probe *p, size_t a, size_t b)
{
    uint64_t x = p[a].load * p[b].weight, y = p[b].load * p[a].weight;
    return x != y ? x < y : a < b;
}

static void decisions(bool include_home)
{
    struct check_mem m;
    static struct twochoice_probe p[4 * WRITES];
    static struct twochoice_write w[WRITES];
    static size_t rank[4 * WRITES], ordered[WRITES];
    uint64_t round, filled, weight, left_out = 0;
    open_scheduler(&m, SERVERS, TWOCHOICE_COLLABORATIVE, include_home, 3);
    for (round = 0; round < check_scaled(4000); round++) {
        size_t k = (size_t)check_between(&rng, 1, WRITES), n = 0, i, j, large = 0, candidates = 0, sent = 0, kept;
        bool equal_loads = check_between(&rng, 0, 3) == 0;
        CHECK_CONTEXT("round %u", (unsigned)round);
        for (i = 0; i < k; i++) {
            w[i].home = (uint32_t)check_between(&rng, 0, SERVERS - 1);
            w[i].len_bytes = check_between(&rng, 0, 5) ? 1 << 20 : 100;
            large += w[i].len_bytes >= TWOCHOICE_MIN_WRITE_BYTES;
        }
        CHECK_EQ(twochoice_placement_ask(&s, w, k, p, &n), QOS_OK);
        CHECK_EQ(n, 2 * large);
        for (i = 0; i < n; i++) {
            for (j = 0; j < i; j++)
                CHECK(p[i].server != p[j].server);
            p[i].state = check_between(&rng, 0, 5) ? TWOCHOICE_UP : (uint32_t)check_between(&rng, 1, 2);
            if (round % 7 == 0 && i >= 2)
                p[i].state = TWOCHOICE_FULL; /* hardly anybody answers */
            p[i].load = equal_loads ? 5 : check_between(&rng, 0, UINT64_C(1) << check_between(&rng, 0, 40));
            p[i].weight = round % 2 ? 1 : (uint32_t)check_between(&rng, 1, 1 << 20);
            candidates += p[i].state == TWOCHOICE_UP;
        }
        if (n > 2 && round % 5 == 0) { /* a peer's cached load of a server that answered itself does not count */
            p[n] = p[0];
            p[n].state = TWOCHOICE_UP;
            p[n++].load = 0;
            candidates += p[0].state != TWOCHOICE_UP;
        }
        if (include_home)
            for (i = 0; i < k; i++) {
                bool asked = w[i].len_bytes < TWOCHOICE_MIN_WRITE_BYTES;
                for (j = 0; j < n; j++)
                    asked |= p[j].server == w[i].home;
                CHECK(asked);
            }
        CHECK_EQ(twochoice_placement_decide(&s, w, k, p, n), QOS_OK);
        kept = candidates < large ? candidates : large;
        for (i = 0; i < n; i++) {
            size_t better = 0;
            bool twin = false;
            for (j = 0; j < n; j++)
                if (p[j].state == TWOCHOICE_UP && p[i].state == TWOCHOICE_UP) {
                    bool counts = true;
                    size_t e;
                    for (e = 0; e < j; e++)
                        counts &= !(p[e].server == p[j].server && p[e].state == TWOCHOICE_UP);
                    better += counts && j != i && naive_better(p, j, i);
                    twin |= j < i && p[j].server == p[i].server;
                }
            rank[i] = p[i].state == TWOCHOICE_UP && !twin ? better : SIZE_MAX;
            if (rank[i] < kept)
                ordered[rank[i]] = i;
        }
        for (i = 0, filled = 0; i < k; i++)
            filled += w[i].len_bytes >= TWOCHOICE_MIN_WRITE_BYTES ? w[i].len_bytes : 0;
        for (i = 0, weight = 0; i < kept; i++) { /* the level that the better ones would be filled to, twice */
            const struct twochoice_probe *one = &p[ordered[i]];
            if (i > 0 && filled / weight < UINT64_C(1) << 41 && one->load > 2 * (filled / weight) * one->weight)
                break;
            filled += one->load;
            weight += one->weight;
        }
        left_out += kept - i;
        kept = i;
        for (i = 0; i < n; i++) {
            bool is_kept;
            is_kept = rank[i] < kept;
            CHECK(is_kept || p[i].chosen == 0);
            if (is_kept) { /* each gets its share, to within one */
                CHECK_GE(p[i].chosen, large / kept);
                CHECK_LE(p[i].chosen, (large + kept - 1) / kept);
                for (j = 0; j < k && p[i].server != w[j].home; j++)
                    continue;
            }
            sent += p[i].chosen;
        }
        CHECK_EQ(sent, candidates ? large : 0);
        for (i = 0; i < k; i++) {
            bool found = w[i].target == w[i].home && (w[i].len_bytes < TWOCHOICE_MIN_WRITE_BYTES || candidates == 0);
            size_t rivals = 0;
            for (j = 0; j < n; j++) {
                found |= p[j].chosen && p[j].server == w[i].target;
                if (p[j].server == w[i].home && p[j].chosen && w[i].len_bytes >= TWOCHOICE_MIN_WRITE_BYTES &&
                    w[i].target != w[i].home) { /* its home is kept: then another write of that home has taken it */
                    size_t e;
                    for (e = 0; e < k; e++)
                        rivals += e != i && w[e].home == w[i].home && w[e].target == w[i].home;
                    CHECK_GE(rivals, 1);
                }
            }
            CHECK(found);
        }
    }
    CHECK_GE(left_out, check_scaled(4000) / 4);
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
    for (i = 0; i < WRITES; i++) {
        w[i].home = (uint32_t)(i % 10);
        w[i].len_bytes = 1 << 20;
    }
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 10);
    for (i = 0; i < n; i++) {
        p[i].state = TWOCHOICE_UP;
        p[i].load = p[i].server < 3 ? UINT64_C(1) << 40 : 0;
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
    for (i = 0; i < WRITES; i++) {
        w[i].home = (uint32_t)i;
        w[i].len_bytes = 1 << 20;
    }
    for (i = 5; i < SERVERS; i++) /* five of 300 are up */
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, i % 2 ? TWOCHOICE_DOWN : TWOCHOICE_FULL, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 5);
    CHECK_EQ(twochoice_placement_redraw(&s, 0, p, n, &changed), QOS_OK);
    CHECK_EQ(changed, 0); /* nobody else is there */
    for (i = 0; i < n; i++)
        p[i].state = TWOCHOICE_UP;
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    for (i = 0; i < n; i++)
        CHECK_EQ(p[i].chosen, WRITES / 5);
    for (i = 0; i < 5; i++)
        CHECK_EQ(w[i].target, i); /* whose home is up stays there */
    for (i = 0; i < 5; i++)
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, TWOCHOICE_DOWN, 0), QOS_OK);
    CHECK_EQ(twochoice_placement_ask(&s, w, WRITES, p, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_placement_decide(&s, w, WRITES, p, n), QOS_OK);
    for (i = 0; i < WRITES; i++)
        CHECK_EQ(w[i].target, w[i].home);
    /* Those that do not answer are replaced by others, twice at most. */
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
    p[0].load = 1; /* the other would be the better one, if it existed */
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
    few_alive();
    other_policies();
    errors();
    return check_end();
}
