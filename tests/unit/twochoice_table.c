// proves: the redirect table's configuration, memory, errors, reservations, holds and bounds on size are as documented.
#include "check.h"
#include "twochoice.h"
#include "twochoice_calls.h"

static struct twochoice_table t;

static void *open_table(struct check_mem *m, uint32_t max_fragments, uint32_t max_pulls)
{
    struct twochoice_table_config config;
    memset(&config, 0, sizeof config);
    config.max_fragments = max_fragments;
    config.max_pulls = max_pulls;
    config.home = 1;
    check_mem_new(m, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, m->mem, m->size, &config), QOS_OK);
    return m->mem;
}

static void configuration(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage none;
    struct twochoice_commit commit;
    struct check_mem m;
    size_t size;
    memset(&config, 0, sizeof config);
    size = twochoice_table_memsize(&config);
    CHECK(size > 0 && size % 64 == 0);
    config.max_fragments = TWOCHOICE_MAX_FRAGMENTS;
    config.max_writes = TWOCHOICE_MAX_WRITES;
    config.max_pulls = TWOCHOICE_MAX_PULLS;
    CHECK_EQ(twochoice_table_memsize(&config), size); /* 0 means the default */
    config.max_fragments = 1000; /* as stated: 64 bytes a fragment, 128 an open write or pull, 12 KiB */
    CHECK_LE(twochoice_table_memsize(&config),
             UINT64_C(64) * 1000 + 128 * (TWOCHOICE_MAX_WRITES + TWOCHOICE_MAX_PULLS) + 12288);
    config.max_writes = config.max_pulls = 1;
    CHECK_LE(twochoice_table_memsize(&config), UINT64_C(64) * 1000 + 128 * 2 + 12288);
    config.max_writes = 0;
    config.max_fragments = 10;
    size = twochoice_table_memsize(&config);
    check_mem_new(&m, size, 64, 0);
    CHECK_EQ(twochoice_table_init(&t, NULL, size, &config), QOS_EINVAL);
    CHECK_EQ(twochoice_table_init(&t, m.mem, size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(twochoice_table_init(&t, m.mem + 8, size, &config), QOS_EALIGN);
    memset(&none, 0, sizeof none);
    config.storage = &none;
    CHECK_EQ(twochoice_table_init(&t, m.mem, size, &config), QOS_ERANGE);
    config.storage = NULL;
    CHECK_EQ(twochoice_table_init(&t, m.mem, size, &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_EINVAL); /* no storage */
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EINVAL);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_compact(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_compact_end(&t, true), QOS_EINVAL);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &commit), QOS_OK);
    CHECK_EQ(commit.logs, 0);
    CHECK_EQ(twochoice_table_commit_end(&t, &commit, true), QOS_OK);
    CHECK(check_mem_free(&m));
}

static void arguments(void)
{
    struct check_mem m;
    struct twochoice_piece p;
    uint64_t stamp = 0;
    uint32_t id = 0;
    size_t n = 0;
    open_table(&m, 100, 2);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 1, 0, 1, &stamp), QOS_EINVAL); /* the home itself */
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 2, 0, 0, &stamp), QOS_ERANGE);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 2, 2, UINT64_MAX - 1, &stamp), QOS_ERANGE);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, TWOCHOICE_SERVERS_MAX, 0, 1, &stamp), QOS_ERANGE);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, TWOCHOICE_LOCAL, 0, 0, &stamp), QOS_ERANGE);
    CHECK_EQ(twochoice_table_write_end(&t, 0, &p, 1, &n), QOS_ENOENT);
    CHECK_EQ(twochoice_table_write_end(&t, 77, &p, 1, &n), QOS_ENOENT);
    CHECK_EQ(twochoice_table_write_cancel(&t, 77), QOS_ENOENT);
    CHECK_EQ(twochoice_table_query(&t, 1, 0, 0, &p, 1), 0);
    CHECK_EQ(twochoice_table_query(&t, 1, 0, 10, &p, 0), 0);
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 2, 0, UINT64_MAX, &stamp), QOS_OK); /* a whole object */
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 0, &n), QOS_EINVAL);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_OK); /* a repeated message */
    CHECK_EQ(twochoice_table_query(&t, 1, 0, UINT64_MAX, &p, 1), 1);
    CHECK(p.end == UINT64_MAX && p.target == 2 && p.version == stamp);
    CHECK_EQ(twochoice_table_query(&t, 1, 10, UINT64_MAX, &p, 1), 1); /* to the end */
    CHECK(p.offset == 10 && p.end == UINT64_MAX && p.target == 2 && p.version == stamp);
    CHECK_EQ(twochoice_table_query(&t, 1, UINT64_MAX, 1, &p, 1), 0); /* no byte is there */
    CHECK_EQ(twochoice_table_pull_start(&t, 1, 0, 0, &id, &p), QOS_EINVAL);
    CHECK_EQ(twochoice_table_pull_start(&t, 2, 0, 1, &id, &p), QOS_ENOENT);
    CHECK_EQ(twochoice_table_pull_ready(&t, 0, &p, 1, &n), QOS_ENOENT); /* no such pull */
    CHECK_EQ(twochoice_table_pull_ready(&t, 99, &p, 1, &n), QOS_ENOENT);
    CHECK_EQ(twochoice_table_pull_finish(&t, 99, &p, 1, &n), QOS_ENOENT);
    CHECK_EQ(twochoice_table_pull_cancel(&t, 99), QOS_ENOENT);
    CHECK_EQ(twochoice_table_pull_start(&t, 1, 0, 100, &id, &p), QOS_OK);
    CHECK_EQ(finish_pull(&t, id), QOS_ENOENT); /* not ready */
    CHECK_EQ(twochoice_table_pull_ready(&t, id, &p, 0, &n), QOS_EINVAL);
    CHECK_EQ(twochoice_table_pull_cancel(&t, id), QOS_OK);
    CHECK(check_tree(&t));
    CHECK(check_mem_free(&m));
}

/* A narrow leaf reaches 2^32 - 1 bytes: a fragment that ends there needs no other leaf, and nothing of it is found behind
 * that byte. A table for one open write lists it. */
static void far_and_single(void)
{
    struct twochoice_table_config config;
    struct check_mem m;
    struct twochoice_piece p;
    uint64_t stamp = 0, far, i;
    open_table(&m, 100, 0);
    for (i = 0; i < 40; i++) /* a narrow leaf that is not full */
        CHECK_EQ(redirect(&t, 7, 20 * i, 10, 2), QOS_OK);
    for (far = UINT32_MAX - 1; far <= UINT64_C(1) << 32; far++) {
        twochoice_table_find(&t, 7, far, &p);
        CHECK(p.target == TWOCHOICE_LOCAL && p.offset == far && p.end == UINT64_MAX);
    }
    CHECK_EQ(redirect(&t, 7, UINT32_MAX - 10, 10, 2), QOS_OK);
    CHECK_EQ(counts_of(&t).nodes_used, 1);
    CHECK_EQ(redirect(&t, 7, UINT32_MAX, 1, 2), QOS_OK);
    CHECK_EQ(counts_of(&t).nodes_used, 3);
    CHECK(check_mem_free(&m));
    memset(&config, 0, sizeof config);
    config.max_writes = 1;
    check_mem_new(&m, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, m.mem, m.size, &config), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 2, 0, 10, &stamp), QOS_OK);
    CHECK(twochoice_table_write_next(&t, 0, &p) && p.version == stamp && p.end == 10);
    CHECK(check_mem_free(&m));
}

static void promises(void)
{
    struct check_mem m;
    struct twochoice_piece p[4];
    uint64_t stamp[5], one = 0, i;
    size_t n;
    open_table(&m, 10, 0);
    CHECK_EQ(redirect(&t, 1, 0, 1000, 2), QOS_OK);
    for (i = 0; i < 4; i++) /* each may need two fragments */
        CHECK_EQ(twochoice_table_write_begin(&t, 1, 3, 100 + 100 * i, 10, &stamp[i]), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 2, 3, 0, 10, &stamp[4]), QOS_EFULL);         /* 1 + 8 + 2 > 10 */
    CHECK_EQ(twochoice_table_write_begin(&t, 1, TWOCHOICE_LOCAL, 500, 10, &one), QOS_OK); /* one: 1 + 8 + 1 */
    CHECK_EQ(twochoice_table_write_begin(&t, 1, TWOCHOICE_LOCAL, 600, 10, &one), QOS_EFULL);
    CHECK_EQ(redirect(&t, 9, 0, 10, TWOCHOICE_LOCAL), QOS_OK); /* nothing is redirected there: this needs no room */
    CHECK_EQ(twochoice_table_write_end(&t, one, p, 4, &n), QOS_OK);
    CHECK(n == 1 && p[0].offset == 500 && p[0].end == 510 && p[0].target == 2);
    for (i = 0; i < 4; i++) {
        CHECK_EQ(twochoice_table_write_end(&t, stamp[i], p, 4, &n), QOS_OK);
        CHECK(n == 1 && p[0].offset == 100 + 100 * i && p[0].end == 110 + 100 * i && p[0].version < stamp[0]);
    }
    CHECK_EQ(counts_of(&t).fragments, 10);
    CHECK_EQ(redirect(&t, 9, 0, 1, 3), QOS_EFULL);
    CHECK_EQ(redirect(&t, 1, 20, 10, TWOCHOICE_LOCAL), QOS_EFULL); /* would split a fragment */
    CHECK_EQ(redirect(&t, 1, 0, 1000, TWOCHOICE_LOCAL), QOS_OK);   /* a delete of all */
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK_EQ(redirect(&t, 1, 0, 1000, TWOCHOICE_LOCAL), QOS_OK); /* a delete of all */
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK(check_tree(&t));
    CHECK(check_mem_free(&m));
}

/* A range over more pieces than the caller has room for changes nothing: the caller splits it at the reported offset.
   */
static void bounded_steps(void)
{
    struct check_mem m;
    struct twochoice_piece p[500], q;
    uint64_t stamp = 0, from = 5, to, i, steps = 0;
    enum qos_status st = QOS_EAGAIN;
    size_t n;
    open_table(&m, 1000, 0);
    for (i = 0; i < 500; i++)
        CHECK_EQ(redirect(&t, 5, i * 20, 10, 2 + (uint32_t)(i % 9)), QOS_OK);
    for (; st == QOS_EAGAIN; steps++) { /* truncate to 5 */
        CHECK_EQ(twochoice_table_write_begin(&t, 5, TWOCHOICE_LOCAL, from, UINT64_MAX - from, &stamp), QOS_OK);
        st = twochoice_table_write_end(&t, stamp, p, 7, &n);
        CHECK(n == (st == QOS_EAGAIN ? 7 : 500 - 7 * steps));
        for (i = 0; i < n; i++) {
            CHECK(p[i].offset == (i || steps ? (7 * steps + i) * 20 : 5) && p[i].end == (7 * steps + i) * 20 + 10);
            CHECK_EQ(p[i].target, 2 + (7 * steps + i) % 9);
        }
        if (st != QOS_EAGAIN)
            break;
        CHECK_EQ(counts_of(&t).fragments, 500 - 7 * steps + (steps != 0));
        CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_OK);
        to = p[6].end;
        CHECK_EQ(twochoice_table_write_begin(&t, 5, TWOCHOICE_LOCAL, from, to - from, &stamp), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, stamp, p, 7, &n), QOS_OK);
        CHECK_EQ(n, 7);
        from = to;
    }
    CHECK(st == QOS_OK && steps == 71);
    CHECK_EQ(counts_of(&t).fragments, 1);
    for (i = 1; i < 100; i++)
        CHECK_EQ(redirect(&t, 5, i * 20, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 5, 3, 7, 1500, &stamp), QOS_OK); /* and a redirect: one fragment */
    CHECK_EQ(twochoice_table_write_end(&t, stamp, p, 74, &n), QOS_EAGAIN);
    twochoice_table_find(&t, 5, 7, &q);
    CHECK(q.end == 20 && q.target == TWOCHOICE_LOCAL);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, p, 75, &n), QOS_OK);
    CHECK_EQ(n, 75);
    twochoice_table_find(&t, 5, 7, &q);
    CHECK(q.end == 1507 && q.version == stamp && q.target == 3);
    twochoice_table_find(&t, 5, 6, &q);
    CHECK(q.end == 7 && q.target == TWOCHOICE_LOCAL);
    twochoice_table_find(&t, 5, 1507, &q);
    CHECK(q.end == 1510 && q.target == 2);
    CHECK(check_tree(&t));
    CHECK(check_mem_free(&m));
}

static void exclusion(void)
{
    struct check_mem m;
    struct twochoice_piece p, q, two[2];
    uint64_t w = 0, v = 0, u = 0;
    uint32_t a, b, c;
    size_t n = 0;
    open_table(&m, 100, 2);
    CHECK_EQ(redirect(&t, 7, 100, 200, 2), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 100, 50, &a, &p), QOS_OK);
    CHECK(p.offset == 100 && p.end == 150 && p.version == 1);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 120, 1000, &b, &q), QOS_EBUSY);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 150, 1000, &b, &q), QOS_OK);
    CHECK(q.offset == 150 && q.end == 300);
    CHECK_EQ(twochoice_table_pull_cancel(&t, a), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 100, 1000, &a, &p), QOS_OK); /* up to the start of the other pull */
    CHECK(p.offset == 100 && p.end == 150);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, 299, 1, &c, &q), QOS_EBUSY);
    /* the pull reads only this far */
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 299, 10, &w), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 308, 10, &v),
             QOS_EAGAIN); /* one writer at a time at home */
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 309, 10, &v), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 3, 299, 10, &u),
             QOS_OK); /* another server stores it as a piece of its own */
    CHECK(w < v && v < u);
    CHECK(twochoice_table_write_next(&t, 0, &q) && q.version == w && q.target == TWOCHOICE_LOCAL && q.offset == 299);
    CHECK(twochoice_table_write_next(&t, v, &q) && q.version == u && q.target == 3 && q.end == 309);
    CHECK(!twochoice_table_write_next(&t, u, &q));
    CHECK_EQ(twochoice_table_pull_ready(&t, b, &q, 1, &n), QOS_EAGAIN);
    CHECK_EQ(twochoice_table_write_end(&t, w, &q, 1, &n), QOS_OK);
    CHECK(n == 1 && q.offset == 299 && q.end == 300 && q.version == 1);
    CHECK_EQ(twochoice_table_pull_ready(&t, b, &q, 1, &n), QOS_OK);
    CHECK(n == 1 && q.offset == 150 && q.end == 299);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 150, 1, &w), QOS_EAGAIN); /* the pull writes now */
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 299, 1, &w), QOS_OK);
    CHECK_EQ(twochoice_table_write_cancel(&t, w), QOS_OK);
    CHECK_EQ(redirect(&t, 7, 200, 10, 3), QOS_OK);                        /* writes to other servers may go on */
    CHECK_EQ(twochoice_table_pull_finish(&t, b, two, 1, &n), QOS_EAGAIN); /* nothing has changed */
    CHECK(n == 1 && two[0].offset == 150 && two[0].end == 200 && two[0].target == 2 && two[0].version == 1);
    twochoice_table_find(&t, 7, 160, &p);
    CHECK_EQ(p.target, 2);
    CHECK_EQ(twochoice_table_pull_finish(&t, b, two, 2, &n), QOS_OK);
    CHECK(n == 2 && two[0].offset == 150 && two[0].end == 200 && two[1].offset == 210 && two[1].end == 299);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 150, 1, &w), QOS_OK);
    twochoice_table_find(&t, 7, 160, &p);
    CHECK(p.target == TWOCHOICE_LOCAL && p.end == 200);
    twochoice_table_find(&t, 7, 205, &p);
    CHECK(p.target == 3 && p.end == 210);
    CHECK_EQ(counts_of(&t).pulls_open, 1);
    /* A pull that is cancelled while it writes keeps its bytes locked until pull_finish. */
    CHECK_EQ(twochoice_table_pull_ready(&t, a, &q, 1, &n), QOS_OK);
    CHECK_EQ(twochoice_table_pull_cancel(&t, a), QOS_EBUSY);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 100, 1, &v), QOS_EAGAIN);
    CHECK_EQ(twochoice_table_pull_finish(&t, a, &q, 1, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 100, 1, &v), QOS_OK);
    twochoice_table_find(&t, 7, 100, &p);
    CHECK(p.target == 2 && p.end == 150);
    CHECK(check_mem_free(&m));
}

/* A piece is needed while a byte refers to it, while its write is open, or if this table did not give out its stamp. */
static void references(void)
{
    struct check_mem m;
    struct twochoice_piece p[4];
    uint64_t a = 0, b = 0;
    size_t n;
    open_table(&m, 100, 0);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 2, 100, 100, &a), QOS_OK);
    CHECK(twochoice_table_refers(&t, 7, a, 100, 100));
    CHECK_EQ(twochoice_table_write_end(&t, a, p, 4, &n), QOS_OK);
    CHECK(twochoice_table_refers(&t, 7, a, 100, 100));
    CHECK(!twochoice_table_refers(&t, 8, a, 100, 100));
    CHECK(!twochoice_table_refers(&t, 7, a, 300, 100)); /* farther away than any piece is long */
    CHECK(
        twochoice_table_refers(&t, 7, a + 1, 100, 100)); /* given out by the home before a crash, unknown to this log */
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 2, 90, 70, &b), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, b, p, 4, &n), QOS_OK);
    CHECK(n == 1 && p[0].version == a && p[0].offset == 100 && p[0].end == 160);
    CHECK(twochoice_table_refers(&t, 7, a, 100, 100));                            /* its last 40 bytes */
    CHECK(twochoice_table_refers(&t, 7, a, p[0].offset, p[0].end - p[0].offset)); /* asked for what was replaced */
    CHECK_EQ(redirect(&t, 9, 0, 100, 2), QOS_OK);
    twochoice_table_find(&t, 9, 0, p);
    CHECK_EQ(redirect(&t, 9, 50, 50, 3), QOS_OK);
    CHECK(twochoice_table_refers(&t, 9, p[0].version, 50, 50)); /* what is left lies before it */
    CHECK_EQ(redirect(&t, 7, 150, 100, TWOCHOICE_LOCAL), QOS_OK);
    CHECK(!twochoice_table_refers(&t, 7, a, 100, 100));
    CHECK(twochoice_table_refers(&t, 7, b, 0, UINT64_MAX));
    CHECK(check_mem_free(&m));
}

/* Appends, the commonest pattern, to one object and to a hundred in turn, fill the leaves; of one length and of two. */
static void appends(void)
{
    const uint32_t fragments = 200000;
    uint32_t objects, lengths, i, kind;
    for (kind = 0; kind < 4; kind++) {
        objects = kind % 2 ? 100 : 1;
        lengths = kind / 2 + 1;
        struct twochoice_table_config config;
        struct check_mem m;
        memset(&config, 0, sizeof config);
        config.max_fragments = fragments + 2;
        config.home = 1;
        check_mem_new(&m, twochoice_table_memsize(&config), 64, 0);
        CHECK_EQ(twochoice_table_init(&t, m.mem, m.size, &config), QOS_OK);
        for (i = 0; i < fragments; i++)
            CHECK_EQ(
                redirect(&t, i % objects, UINT64_C(16384) * (i / objects), 4096 >> i / objects % lengths, 2 + i % 7),
                QOS_OK);
        CHECK(check_tree(&t));
        printf("appends of %u lengths to %u objects: %.1f bytes a fragment\n", (unsigned)lengths, (unsigned)objects,
               1024.0 * counts_of(&t).nodes_used / fragments);
        CHECK_LE(1024 * (uint64_t)counts_of(&t).nodes_used, (lengths == 1 ? 12 : 18) * (uint64_t)fragments);
        CHECK(check_mem_free(&m));
    }
}

/* max_writes writes are open at once: stamps rise, and each stamp finds its write. */
static void many_open(void)
{
    struct check_mem m;
    struct twochoice_table_config config;
    struct twochoice_piece p;
    struct check_rng rng;
    uint64_t open[37] = {0}, last = 0, i;
    size_t n;
    memset(&config, 0, sizeof config);
    config.max_fragments = 1000;
    config.max_writes = 37;
    config.home = 1;
    check_rng_init(&rng, 1);
    check_mem_new(&m, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, m.mem, m.size, &config), QOS_OK);
    for (i = 0; i < check_scaled(20000); i++) {
        size_t k = (size_t)check_between(&rng, 0, 36);
        if (open[k] == 0) {
            CHECK_EQ(twochoice_table_write_begin(&t, k, 2, 0, 10, &open[k]), QOS_OK);
            CHECK(open[k] > last);
            last = open[k];
        } else if (check_between(&rng, 0, 1)) {
            CHECK_EQ(twochoice_table_write_end(&t, open[k], &p, 1, &n), QOS_OK);
            CHECK_EQ(twochoice_table_write_end(&t, open[k], &p, 1, &n), QOS_OK); /* the answer was lost */
            CHECK_EQ(n, 0);
            open[k] = 0;
        } else {
            CHECK_EQ(twochoice_table_write_cancel(&t, open[k]), QOS_OK);
            open[k] = 0;
        }
    }
    for (i = 0; i < 37; i++)
        if (open[i] == 0)
            CHECK_EQ(twochoice_table_write_begin(&t, i, 2, 0, 10, &open[i]), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 50, 2, 0, 10, &last), QOS_EFULL);
    CHECK_EQ(counts_of(&t).writes_open, 37);
    CHECK(check_mem_free(&m));
}

/* 64 bytes a fragment are enough for max_fragments in any order: the table is full only by its count. */
static void memory(uint64_t objects, unsigned order, bool hollow, uint64_t apart)
{
    struct check_mem m;
    struct twochoice_table_config config;
    uint32_t fragments = (uint32_t)check_scaled(60000);
    uint64_t i, stride = order == 2 ? 39119 : 1;
    memset(&config, 0, sizeof config);
    config.max_fragments = fragments;
    config.max_writes = config.max_pulls = 1;
    CHECK_LE(twochoice_table_memsize(&config), UINT64_C(64) * fragments + 12288);
    open_table(&m, fragments + 1, 0); /* two fragments are reserved for a write */
    for (i = 0; i < fragments; i++) {
        uint64_t k = order == 1 ? fragments - 1 - i : i * stride % fragments;
        CHECK_EQ(redirect(&t, k % objects, k / objects * apart, 4, 2), QOS_OK);
        if (hollow && i % 2 == 1) { /* removes every other fragment */
            k = order == 1 ? fragments - i : (i - 1) * stride % fragments;
            CHECK_EQ(redirect(&t, k % objects, k / objects * apart, 4, TWOCHOICE_LOCAL), QOS_OK);
        }
    }
    CHECK_EQ(counts_of(&t).fragments, hollow ? fragments - fragments / 2 : fragments);
    for (i = 0; hollow && i + 1 < fragments; i += 2) { /* fills up to max_fragments again */
        uint64_t k = order == 1 ? fragments - 1 - i : i * stride % fragments;
        CHECK_EQ(redirect(&t, k % objects, k / objects * apart, 4, 2), QOS_OK);
    }
    CHECK_EQ(redirect(&t, objects, 0, 4, 2), counts_of(&t).fragments + 2 > fragments ? QOS_EFULL : QOS_OK);
    CHECK_LE(counts_of(&t).nodes_used, counts_of(&t).nodes);
    CHECK(check_tree(&t));
    for (i = 0; i < objects; i++)
        CHECK_EQ(redirect(&t, i, 0, UINT64_MAX, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(redirect(&t, objects, 0, UINT64_MAX, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK_EQ(counts_of(&t).nodes_used, 1);
    CHECK(check_tree(&t));
    CHECK(check_mem_free(&m));
}

/* Nodes for `near` fragments that lie within `span` bytes and touch both of its ends, then some that are far away, then
 * more between the first. */
static uint32_t nodes_for(uint64_t span, uint32_t near, uint32_t far, bool last_first)
{
    struct check_mem m;
    uint32_t i, nodes;
    (void)open_table(&m, 1000, 1);
    CHECK_EQ(redirect(&t, 7, last_first ? span - 8 : 0, 8, 2), QOS_OK);
    for (i = 1; i + 1 < near; i++)
        CHECK_EQ(redirect(&t, 7, i * UINT64_C(1000), 8, 2), QOS_OK);
    CHECK_EQ(redirect(&t, 7, last_first ? 0 : span - 8, 8, 2), QOS_OK);
    for (i = 0; i < far; i++)
        CHECK_EQ(redirect(&t, 7, (UINT64_C(1) << 40) + i * UINT64_C(1000), 8, 2), QOS_OK);
    for (i = 1; i < 40; i++)
        CHECK_EQ(redirect(&t, 7, 500 + i * UINT64_C(1000), 8, 2), QOS_OK);
    CHECK(check_tree(&t));
    nodes = counts_of(&t).nodes_used;
    CHECK(check_mem_free(&m));
    return nodes;
}

/* Fragments within 2^32 - 1 bytes share a small leaf, to the last byte. */
static void span_of_a_leaf(void)
{
    uint32_t near, far, more = 0;
    for (near = 2; near <= 60; near += check_state.scale > 2 ? 2 : 1)
        for (far = 0; far <= 60; far += 5) {
            const uint32_t nodes = nodes_for(UINT32_MAX - 1, near, far, far % 2 != 0);
            CHECK_CONTEXT("%u near, %u far", near, far);
            CHECK_EQ(nodes_for(UINT32_MAX, near, far, far % 2 != 0), nodes);
            more += nodes_for(UINT64_C(1) << 32, near, far, far % 2 != 0) > nodes;
        }
    CHECK_CONTEXT("%s", "");
    CHECK_GE(more, 1);
}

/* Stamps that are far apart and end in any order, fragments of one length with others between them: each is found as it
 * was written. */
static void stamps_and_lengths(uint64_t apart)
{
    enum { FRAGMENTS = 6400, OPEN = 64 };
    static uint64_t stamp[FRAGMENTS];
    static uint32_t len[FRAGMENTS];
    struct twochoice_piece p;
    struct check_mem m;
    struct check_rng rng;
    uint32_t i, k;
    size_t n;
    check_rng_init(&rng, check_seed());
    open_table(&m, FRAGMENTS + 2 * OPEN, 0);
    for (i = 0; i < FRAGMENTS; i++) {
        k = i * 7919 % FRAGMENTS;
        t.version += check_between(&rng, 0, 99) ? 0 : check_between(&rng, 0, apart); /* as years pass */
        len[k] = check_between(&rng, 0, 150) ? 8 : (uint32_t)check_between(&rng, 1, 16);
        CHECK_EQ(twochoice_table_write_begin(&t, 7, 2 + k % 7, 16 * (uint64_t)k, len[k], &stamp[k]), QOS_OK);
        for (k = i / OPEN * OPEN; i % OPEN == OPEN - 1 && k <= i; k++)
            CHECK_EQ(
                twochoice_table_write_end(&t, stamp[(i / OPEN * OPEN + k * 37 % OPEN) * 7919 % FRAGMENTS], &p, 1, &n),
                QOS_OK);
    }
    CHECK(check_tree(&t));
    for (k = 0; k < FRAGMENTS; k++) {
        twochoice_table_find(&t, 7, 16 * (uint64_t)k, &p);
        CHECK(p.version == stamp[k] && p.end == 16 * (uint64_t)k + len[k] && p.target == 2 + k % 7);
    }
    CHECK(check_mem_free(&m));
}

/* Objects that differ in high and in low bits, offsets on both sides of what one key of a narrow inner node can hold:
 * each fragment is found, and so are the gaps behind it; of an object without fragments nothing is. */
static void wide_keys(void)
{
    static const uint64_t object[] = {0, 1, 0xfffe, 0xffff, 0x10000, 0x1ffff, 0x20000, UINT64_C(1) << 40, UINT64_MAX};
    static const uint64_t from[] = {0, UINT64_C(1) << 47, UINT64_C(1) << 48, UINT64_C(1) << 63, UINT64_MAX};
    const uint64_t apart = UINT64_C(1) << 33, each = 200;
    uint64_t parts, i, k;
    for (parts = 1; parts <= 4; parts++) {
        const uint64_t n = 9 * parts * each;
        struct twochoice_piece p;
        struct check_mem m;
        CHECK_CONTEXT("%u", (unsigned)parts);
        open_table(&m, (uint32_t)n + 2, 0);
        for (i = 0; i < 2 * n; i++) { /* first writes, then looks */
            uint64_t part, offset, next;
            k = i * 7919 % n;
            part = k / 9 % parts;
            offset = from[part] - (part ? each / 2 * apart : 0) + k / 9 / parts * apart;
            next = k / 9 / parts < each - 1 ? offset + apart
                   : part < parts - 1       ? from[part + 1] - each / 2 * apart
                                            : UINT64_MAX;
            if (i < n)
                CHECK_EQ(redirect(&t, object[k % 9], offset, 4, 2 + (uint32_t)(k % 7)), QOS_OK);
            if (i < n)
                continue;
            twochoice_table_find(&t, object[k % 9], offset + 3, &p);
            CHECK(p.target == 2 + k % 7 && p.end == offset + 4);
            twochoice_table_find(&t, object[k % 9], offset + 4, &p);
            CHECK(p.target == TWOCHOICE_LOCAL && p.end == next);
        }
        CHECK(check_tree(&t));
        for (i = 0; i < 9 * (5 - parts); i++) { /* behind all of an object, and where nothing is */
            k = from[parts + i / 9] - 2;
            twochoice_table_find(&t, object[i % 9], k, &p);
            CHECK(p.target == TWOCHOICE_LOCAL && p.end == UINT64_MAX);
            twochoice_table_find(&t, object[i % 9] ^ 0x20, k, &p);
            CHECK(p.target == TWOCHOICE_LOCAL && p.end == UINT64_MAX);
            twochoice_table_find(&t, object[i % 9], qos_min(k, UINT64_MAX - 9) + 7, &p);
            CHECK(p.target == TWOCHOICE_LOCAL && p.end == UINT64_MAX);
        }
        CHECK(check_mem_free(&m));
    }
    CHECK_CONTEXT("%s", "");
}

int main(void)
{
    unsigned order;
    check_begin("twochoice_table");
    configuration();
    arguments();
    far_and_single();
    promises();
    bounded_steps();
    exclusion();
    references();
    many_open();
    appends();
    span_of_a_leaf();
    for (order = 0; order < 36; order++)
        stamps_and_lengths(UINT64_C(1) << order);
    wide_keys();
    for (order = 0; order < 3; order++) {
        CHECK_CONTEXT("order %u", order);
        memory(1, order, false, 8); /* narrow leaves */
        memory(1, order, false, UINT64_C(1) << 33);
        memory(1, order, false, UINT64_C(1) << 28); /* narrow and wide leaves */
        memory(check_scaled(6000), order, false, 8);
        memory(1, order, true, 8);
        memory(1, order, true, UINT64_C(1) << 33);
    }
    return check_end();
}
