// proves: the redirect table's configuration, memory, errors, reservations, holds and bounds on size are as written.
#include "check.h"
#include "twochoice.h"

static struct twochoice_table t;

static void *open_table(struct check_mem *m, uint32_t max_fragments, uint32_t max_holds)
{
    struct twochoice_table_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.max_fragments = max_fragments;
    cfg.max_holds = max_holds;
    cfg.home = 1;
    check_mem_new(m, twochoice_table_memsize(&cfg), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, m->mem, m->size, &cfg), QOS_OK);
    return m->mem;
}

static void configuration(void)
{
    struct twochoice_table_config cfg;
    struct twochoice_storage none;
    struct check_mem m;
    size_t size;
    memset(&cfg, 0, sizeof cfg);
    size = twochoice_table_memsize(&cfg);
    CHECK(size > 0 && size % 64 == 0);
    cfg.max_fragments = TWOCHOICE_MAX_FRAGMENTS;
    cfg.max_holds = TWOCHOICE_MAX_HOLDS;
    CHECK_EQ(twochoice_table_memsize(&cfg), size); /* zero is the default */
    cfg.max_fragments = TWOCHOICE_FRAGMENTS_MAX + 1;
    CHECK_EQ(twochoice_table_memsize(&cfg), 0);
    cfg.max_fragments = 10;
    cfg.max_holds = 1025;
    CHECK_EQ(twochoice_table_memsize(&cfg), 0);
    cfg.max_holds = 1;
    cfg.home = TWOCHOICE_SERVERS_MAX;
    CHECK_EQ(twochoice_table_memsize(&cfg), 0);
    cfg.home = TWOCHOICE_SERVERS_MAX - 1;
    cfg.max_log_bytes = 2 * 48 * 12 - 1;
    CHECK_EQ(twochoice_table_memsize(&cfg), 0);
    cfg.max_log_bytes = 2 * 48 * 12;
    size = twochoice_table_memsize(&cfg);
    check_mem_new(&m, size, 64, 0);
    CHECK_EQ(twochoice_table_init(&t, NULL, size, &cfg), QOS_EINVAL);
    CHECK_EQ(twochoice_table_init(&t, m.mem, size - 1, &cfg), QOS_EMEMORY);
    CHECK_EQ(twochoice_table_init(&t, m.mem + 8, size, &cfg), QOS_EALIGN);
    memset(&none, 0, sizeof none);
    cfg.storage = &none;
    CHECK_EQ(twochoice_table_init(&t, m.mem, size, &cfg), QOS_EINVAL);
    cfg.storage = NULL;
    CHECK_EQ(twochoice_table_init(&t, m.mem, size, &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_EINVAL); /* no storage */
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EINVAL);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK(check_mem_free(&m));
}

static void arguments(void)
{
    struct check_mem m;
    struct twochoice_piece p;
    uint32_t id = 0;
    size_t n = 0;
    bool done;
    open_table(&m, 100, 2);
    CHECK_EQ(twochoice_table_create(&t, 1, 1, 0, 1, false), QOS_EINVAL); /* the home itself */
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, 1, true), QOS_EINVAL);  /* nothing is reserved */
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, 0, false), QOS_ERANGE);
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 2, UINT64_MAX - 1, false), QOS_ERANGE);
    CHECK_EQ(twochoice_table_create(&t, 1, TWOCHOICE_SERVERS_MAX, 0, 1, false), QOS_ERANGE);
    CHECK_EQ(twochoice_table_local(&t, 1, 0, 0), QOS_ERANGE);
    CHECK_EQ(twochoice_table_query(&t, 1, 0, 0, &p, 1), 0);
    CHECK_EQ(twochoice_table_query(&t, 1, 0, 10, &p, 0), 0);
    CHECK_EQ(t.fragments, 0);
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, UINT64_MAX, false), QOS_OK); /* a whole object */
    CHECK_EQ(twochoice_table_query(&t, 1, 0, UINT64_MAX, &p, 1), 1);
    CHECK(p.end == UINT64_MAX && p.target == 2 && p.version == 1);
    CHECK_EQ(twochoice_table_pull_start(&t, 0, 0, 0, &id, &p), QOS_EINVAL);
    CHECK_EQ(twochoice_table_pull_ready(&t, 0, &p, 1, &n), QOS_EINVAL); /* no such pull */
    CHECK_EQ(twochoice_table_pull_ready(&t, 99, &p, 1, &n), QOS_EINVAL);
    CHECK_EQ(twochoice_table_pull_finish(&t, 99), QOS_EINVAL);
    CHECK_EQ(twochoice_table_pull_start(&t, 0, 0, 100, &id, &p), QOS_OK);
    CHECK_EQ(twochoice_table_pull_finish(&t, id), QOS_EINVAL); /* not ready */
    CHECK_EQ(twochoice_table_pull_ready(&t, id, &p, 0, &n), QOS_EINVAL);
    twochoice_table_pull_cancel(&t, id);
    twochoice_table_pull_cancel(&t, id);
    CHECK_EQ(t.pulls_open, 0);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 0, 0, &id), QOS_ERANGE);
    CHECK_EQ(twochoice_table_compact_step(&t, 1, &done), QOS_EIO);
    t.version = TWOCHOICE_VERSION_MAX; /* the stamps are used up */
    CHECK_EQ(twochoice_table_create(&t, 2, 2, 0, 1, false), QOS_EFULL);
    CHECK_EQ(twochoice_table_reserve(&t), QOS_EFULL);
    CHECK(check_mem_free(&m));
}

/* A reservation is kept for its owner, whatever others do. */
static void reservations(void)
{
    struct check_mem m;
    struct twochoice_table_counts s;
    uint64_t i;
    open_table(&m, 10, 0);
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, 1000, false), QOS_OK);
    for (i = 0; i < 4; i++)
        CHECK_EQ(twochoice_table_reserve(&t), QOS_OK);
    CHECK_EQ(twochoice_table_reserve(&t), QOS_EFULL);
    CHECK_EQ(twochoice_table_create(&t, 1, 3, 10, 10, false), QOS_EFULL); /* would split one into three: 3 + 8 > 10 */
    CHECK_EQ(twochoice_table_create(&t, 2, 3, 10, 10, false), QOS_OK);    /* one more: 2 + 8 */
    CHECK_EQ(twochoice_table_create(&t, 3, 3, 10, 10, false), QOS_EFULL);
    CHECK_EQ(twochoice_table_create(&t, 2, 4, 10, 10, false), QOS_OK);     /* replaces one */
    CHECK_EQ(twochoice_table_create(&t, 2, 5, 5, 100, false), QOS_OK);     /* swallows one */
    CHECK_EQ(twochoice_table_create(&t, 2, 6, 50, 100, false), QOS_EFULL); /* cuts one at its end, and adds one */
    CHECK_EQ(twochoice_table_local(&t, 1, 10, 10), QOS_EFULL);             /* splits one */
    CHECK_EQ(twochoice_table_local(&t, 1, 0, 10), QOS_OK);
    CHECK_EQ(twochoice_table_local(&t, 1, 990, 100), QOS_OK);
    for (i = 0; i < 4; i++) /* each may take its two */
        CHECK_EQ(twochoice_table_create(&t, 1, 3, 100 + 100 * i, 10, true), QOS_OK);
    twochoice_table_info(&t, &s);
    CHECK_EQ(s.fragments, 10);
    CHECK_EQ(s.reserved, 0);
    CHECK_EQ(twochoice_table_create(&t, 9, 3, 0, 1, false), QOS_EFULL);
    twochoice_table_release(&t); /* of nothing: nothing */
    CHECK_EQ(twochoice_table_local(&t, 1, 0, 1000), QOS_OK);
    CHECK_EQ(twochoice_table_reserve(&t), QOS_OK);
    twochoice_table_release(&t);
    CHECK_EQ(t.reserved, 0);
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
    CHECK(check_mem_free(&m));
}

static void holds(void)
{
    struct check_mem m;
    struct twochoice_piece p, q;
    uint32_t a, b, w;
    size_t n = 0;
    open_table(&m, 100, 3);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 100, 200, false), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 0, 0, 50, &a, &p), QOS_OK);
    CHECK(p.offset == 100 && p.end == 150 && p.version == 1);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 120, 1000, &b, &q), QOS_OK); /* not what another pull has */
    CHECK(q.offset == 150 && q.end == 300);
    CHECK_EQ(twochoice_table_pull_start(&t, 0, 0, 1000, &w, &p), QOS_ENOENT);
    twochoice_table_pull_cancel(&t, a);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 0, 1000, &a, &p), QOS_OK); /* up to where the other begins */
    CHECK(p.offset == 100 && p.end == 150);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 299, 10, &w), QOS_OK); /* the pull only reads as yet */
    CHECK_EQ(twochoice_table_write_begin(&t, 8, 0, 10, &w), QOS_EFULL);
    CHECK_EQ(twochoice_table_pull_start(&t, 0, 0, 1, &b, &q), QOS_EFULL);
    b = a == 0 ? 1 : 0;
    CHECK_EQ(twochoice_table_pull_ready(&t, b, &q, 1, &n), QOS_EAGAIN);
    CHECK_EQ(twochoice_table_local(&t, 7, 299, 10), QOS_OK);
    twochoice_table_write_end(&t, w);
    twochoice_table_write_end(&t, w);
    CHECK_EQ(twochoice_table_pull_ready(&t, b, &q, 1, &n), QOS_OK);
    CHECK(n == 1 && q.offset == 150 && q.end == 299);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 150, 1, &w), QOS_EAGAIN); /* now it writes */
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 299, 1, &w), QOS_OK);
    twochoice_table_write_end(&t, w);
    CHECK_EQ(twochoice_table_create(&t, 7, 3, 200, 10, false), QOS_OK); /* elsewhere one may write */
    CHECK_EQ(twochoice_table_pull_finish(&t, b), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 150, 1, &w), QOS_OK);
    twochoice_table_find(&t, 7, 160, &p);
    CHECK(p.target == TWOCHOICE_LOCAL && p.end == 200);
    twochoice_table_find(&t, 7, 205, &p);
    CHECK(p.target == 3 && p.end == 210);
    CHECK_EQ(t.pulls_open, 1);
    CHECK(check_mem_free(&m));
}

/* Neighbours of one target become one fragment, but not while a pull may hold the older one. */
static void joining(void)
{
    struct check_mem m;
    struct twochoice_piece p;
    uint32_t a;
    size_t n = 0;
    open_table(&m, 100, 0);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 0, 10, false), QOS_OK);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 20, 10, false), QOS_OK);
    CHECK_EQ(t.fragments, 2);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 10, 10, false), QOS_OK); /* closes the gap */
    CHECK_EQ(t.fragments, 1);
    CHECK_EQ(twochoice_table_create(&t, 7, 3, 30, 10, false), QOS_OK); /* another target */
    CHECK_EQ(t.fragments, 2);
    CHECK_EQ(twochoice_table_create(&t, 8, 3, 40, 10, false), QOS_OK); /* another object */
    CHECK_EQ(t.fragments, 3);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 0, 100, &a, &p), QOS_OK);
    CHECK(p.offset == 0 && p.end == 30 && p.version == 3);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 25, 5, false), QOS_OK); /* newer bytes of the same target */
    CHECK_EQ(t.fragments, 4);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 50, 5, false), QOS_OK);
    CHECK_EQ(twochoice_table_create(&t, 7, 2, 55, 5, false), QOS_OK); /* both newer than the pull */
    CHECK_EQ(t.fragments, 5);
    CHECK_EQ(twochoice_table_pull_ready(&t, a, &p, 1, &n), QOS_OK);
    CHECK(n == 1 && p.offset == 0 && p.end == 25);
    CHECK_EQ(twochoice_table_pull_finish(&t, a), QOS_OK);
    twochoice_table_find(&t, 7, 24, &p);
    CHECK_EQ(p.target, TWOCHOICE_LOCAL);
    twochoice_table_find(&t, 7, 25, &p);
    CHECK_EQ(p.target, 2);
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
    CHECK(check_mem_free(&m));
}

static void listing(void)
{
    struct check_mem m;
    struct twochoice_piece p[50];
    uint64_t i;
    size_t n;
    open_table(&m, 100, 0);
    CHECK_EQ(twochoice_table_oldest(&t, p, 50), 0);
    for (i = 0; i < 100; i++) /* scattered: version i + 1 stands at (i * 37) % 100 */
        CHECK_EQ(twochoice_table_create(&t, i % 3, 2 + (uint32_t)(i % 7), i * 37 % 100 * 10, 5, false), QOS_OK);
    CHECK_EQ(twochoice_table_oldest(&t, p, 0), 0);
    n = twochoice_table_oldest(&t, p, 50);
    CHECK_EQ(n, 50);
    for (i = 0; i < n; i++) {
        CHECK_EQ(p[i].version, i + 1);
        CHECK_EQ(p[i].offset, i * 37 % 100 * 10);
    }
    CHECK_EQ(twochoice_table_local(&t, 0, 0, 1000), QOS_OK);
    CHECK_EQ(twochoice_table_local(&t, 1, 0, 1000), QOS_OK);
    n = twochoice_table_oldest(&t, p, 50); /* fewer than asked for */
    CHECK_EQ(n, 33);
    for (i = 0; i < n; i++)
        CHECK_EQ(p[i].version, 3 * i + 3);
    CHECK(check_mem_free(&m));
}

/* At most 64 bytes a fragment are enough for max_fragments, whatever the order: nothing but the count is ever full. */
static void memory(uint64_t objects, unsigned order, bool hollow, uint64_t apart)
{
    struct check_mem m;
    struct twochoice_table_config cfg;
    uint32_t fragments = (uint32_t)check_scaled(60000);
    uint64_t i, stride = order == 2 ? 39119 : 1;
    memset(&cfg, 0, sizeof cfg);
    cfg.max_fragments = fragments;
    CHECK_LE(twochoice_table_memsize(&cfg), UINT64_C(64) * fragments + 8192);
    open_table(&m, fragments, 0);
    for (i = 0; i < fragments; i++) {
        uint64_t k = order == 1 ? fragments - 1 - i : i * stride % fragments;
        CHECK_EQ(twochoice_table_create(&t, k % objects, 2, k / objects * apart, 4, false), QOS_OK);
        if (hollow && i % 2 == 1) { /* thin out what stands already */
            k = order == 1 ? fragments - i : (i - 1) * stride % fragments;
            CHECK_EQ(twochoice_table_local(&t, k % objects, k / objects * apart, 4), QOS_OK);
        }
    }
    CHECK_EQ(t.fragments, hollow ? fragments - fragments / 2 : fragments);
    for (i = 0; hollow && i + 1 < fragments; i += 2) { /* and fill it again to the last place */
        uint64_t k = order == 1 ? fragments - 1 - i : i * stride % fragments;
        CHECK_EQ(twochoice_table_create(&t, k % objects, 2, k / objects * apart, 4, false), QOS_OK);
    }
    CHECK_EQ(twochoice_table_create(&t, objects, 2, 0, 4, false), t.fragments == fragments ? QOS_EFULL : QOS_OK);
    CHECK_LE(t.nodes_used, t.node_count);
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
    for (i = 0; i < objects; i++)
        CHECK_EQ(twochoice_table_local(&t, i, 0, UINT64_MAX), QOS_OK);
    CHECK_EQ(twochoice_table_local(&t, objects, 0, UINT64_MAX), QOS_OK);
    CHECK_EQ(t.fragments, 0);
    CHECK_EQ(t.nodes_used, 1);
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
    CHECK(check_mem_free(&m));
}

int main(void)
{
    unsigned order;
    check_begin("twochoice_table");
    configuration();
    arguments();
    reservations();
    holds();
    joining();
    listing();
    for (order = 0; order < 3; order++) {
        CHECK_CONTEXT("order %u", order);
        memory(1, order, false, 8); /* narrow leaves */
        memory(1, order, false, UINT64_C(1) << 33);
        memory(1, order, false, UINT64_C(1) << 28); /* of either form */
        memory(check_scaled(6000), order, false, 8);
        memory(1, order, true, 8);
        memory(1, order, true, UINT64_C(1) << 33);
    }
    return check_end();
}
