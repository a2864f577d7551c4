// proves: twochoice.h refuses what it must at the ends of its ranges: a log that is full or unreadable, NULL pointers, a
// proves: tree that breaks any one of its rules; and nothing changes.
#include "property/twochoice_disk.h"

#define HOME 1

static struct check_rng rng;
static struct disk disk;
static struct twochoice_table t;
static int reads_until_error;

static int failing_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    if (reads_until_error-- == 0)
        return -1;
    return disk_read(ctx, log, offset, buf, len, got);
}

static int lying_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    (void)disk_read(ctx, log, offset, buf, len, got);
    *got = len + 1;
    return 0;
}

static void *open_logged(struct twochoice_table_config *cfg, struct twochoice_storage *storage, uint64_t max_log_bytes,
                         uint32_t fragments)
{
    void *mem;
    memset(cfg, 0, sizeof *cfg);
    disk_init(&disk, &rng, storage);
    cfg->max_fragments = fragments;
    cfg->home = HOME;
    cfg->max_log_bytes = max_log_bytes;
    cfg->storage = storage;
    mem = aligned_alloc(64, twochoice_table_memsize(cfg));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(cfg), cfg), QOS_OK);
    return mem;
}

static void close_logged(void *mem)
{
    free(mem);
    disk_free(&disk);
}

static void full_log(void)
{
    struct twochoice_table_config cfg;
    struct twochoice_storage storage;
    void *mem = open_logged(&cfg, &storage, 2 * 48 * 42, 40);
    uint64_t i, room = 2 * 42 - 1;
    uint32_t pull;
    struct twochoice_piece p;
    size_t n = 0;
    bool done;
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, 10, false), QOS_EINVAL); /* neither formatted nor recovered */
    CHECK_EQ(twochoice_table_reserve(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_commit(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i + 1 < room; i++)
        CHECK_EQ(twochoice_table_create(&t, 1, 2 + (uint32_t)(i % 2), 0, 10, false), QOS_OK);
    CHECK_EQ(twochoice_table_reserve(&t), QOS_OK);
    CHECK_EQ(twochoice_table_reserve(&t), QOS_EFULL);
    CHECK_EQ(twochoice_table_create(&t, 1, 9, 0, 10, false), QOS_EFULL); /* the last record is taken */
    CHECK_EQ(twochoice_table_pull_start(&t, 0, 0, 100, &pull, &p), QOS_OK);
    CHECK_EQ(twochoice_table_pull_ready(&t, pull, &p, 1, &n), QOS_OK);
    CHECK_EQ(twochoice_table_pull_finish(&t, pull), QOS_EFULL);
    CHECK_EQ(twochoice_table_create(&t, 1, 9, 20, 10, true), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 100, &done), QOS_OK);
    CHECK(done);
    CHECK_EQ(twochoice_table_pull_finish(&t, pull), QOS_OK); /* there is room again, and the pull still stands */
    /* A compaction that changes outrun ends, and the active log is as good as before. */
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 1, &done), QOS_OK);
    t.tail[TWOCHOICE_NEXT_LOG].bytes = 2 * 48 * 42 - 48;
    CHECK_EQ(twochoice_table_create(&t, 1, 3, 20, 10, false), QOS_OK);
    t.tail[TWOCHOICE_NEXT_LOG].bytes = 2 * 48 * 42;
    CHECK_EQ(twochoice_table_create(&t, 1, 9, 20, 10, false), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 1, &done), QOS_EIO);
    CHECK_EQ(twochoice_table_create(&t, 2, 3, 0, 10, false), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    t.tail[TWOCHOICE_NEXT_LOG].bytes = 2 * 48 * 42 - 48;
    CHECK_EQ(twochoice_table_compact_step(&t, 100, &done), QOS_EIO);
    close_logged(mem);
}

static void failing_storage(void)
{
    struct twochoice_table_config cfg;
    struct twochoice_storage storage;
    void *mem = open_logged(&cfg, &storage, 0, 200);
    uint64_t i, stop;
    bool done;
    for (stop = 1; stop <= 3; stop++) { /* truncate, write, sync of a format */
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_format(&t), QOS_EIO);
        disk.stopped = false;
    }
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 199; i++)
        CHECK_EQ(twochoice_table_create(&t, i, 2, 0, 10, false), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    for (stop = 1; stop <= 2; stop++) { /* the tail is cut, then all is synced */
        disk_resize(&disk.log[0], 48 * 200 + 5);
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
        CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EIO);
        CHECK_EQ(t.fragments, 0);
        disk.stopped = false;
    }
    disk.stop_after = 0;
    storage.read = failing_read;
    for (i = 0; i < 3; i++) { /* the log is 200 records, three chunks */
        reads_until_error = (int)i;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
        CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EIO);
        CHECK_EQ(t.fragments, 0);
    }
    disk.log[0].data[100] ^= 1; /* also while it looks for what stands behind the damage */
    reads_until_error = 1;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EIO);
    disk.log[0].data[100] ^= 1;
    storage.read = lying_read;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EIO);
    storage.read = disk_read;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_OK);
    CHECK_EQ(t.fragments, 199);
    for (stop = 1; stop <= 2; stop++) { /* truncate and write of the next log's header */
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_compact_start(&t), QOS_EIO);
        disk.stopped = false;
    }
    for (stop = 1; stop <= 202; stop += 67) { /* the copies, the stamp, the sync, the swap */
        disk.stop_after = 0;
        CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_compact_step(&t, 1000, &done), QOS_EIO);
        CHECK(!done);
        disk.stopped = false;
    }
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_create(&t, 500, 2, 0, 10, false), QOS_OK);
    disk.operations = 0;
    disk.stop_after = 1;
    CHECK_EQ(twochoice_table_create(&t, 501, 2, 0, 10, false), QOS_EFULL);
    CHECK_EQ(twochoice_table_create(&t, 500, 3, 0, 10, false), QOS_EIO);
    disk.stopped = false;
    disk.operations = 0;
    disk.stop_after = 1;
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO); /* what the failed one left cannot be cut off */
    disk.stopped = false;
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    close_logged(mem);
}

/* Breaks one word, and mends it. */
#define BREAK(word, value)                                                                                             \
    do {                                                                                                               \
        uint64_t saved = (uint64_t)(word);                                                                             \
        (word) = (__typeof__(word))(value);                                                                            \
        CHECK_EQ(twochoice_table_verify(&t), QOS_ECORRUPT);                                                            \
        (word) = (__typeof__(word))saved;                                                                              \
        CHECK_EQ(twochoice_table_verify(&t), QOS_OK);                                                                  \
    } while (0)

/* Three objects of which the fragments lie close together, so that leaves are narrow, or 8 GiB apart: wide. */
static void broken_trees(bool narrow)
{
    struct twochoice_table_config cfg;
    struct twochoice_priv_node *root, *inner, *leaf;
    uint32_t i, slots = narrow ? TWOCHOICE_NARROW_SLOTS : TWOCHOICE_WIDE_SLOTS, fragments = narrow ? 3000 : 1500;
    uint64_t apart = narrow ? 10 : UINT64_C(1) << 33;
    void *mem;
    memset(&cfg, 0, sizeof cfg);
    cfg.max_fragments = fragments;
    cfg.home = HOME;
    mem = aligned_alloc(64, twochoice_table_memsize(&cfg));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    for (i = 0; i < fragments; i++)
        CHECK_EQ(twochoice_table_create(&t, i % 3, 2, i / 3 * apart, 5, false), QOS_OK);
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
    CHECK_EQ(t.height, 2);
    root = &t.node[t.root];
    inner = &t.node[root->u.inner.child[1]];
    leaf = &t.node[inner->u.inner.child[3]];
    CHECK_EQ(leaf->narrow, narrow);
    BREAK(t.height, 13);
    BREAK(t.fragments, fragments - 1);
    BREAK(t.nodes_used, t.nodes_used + 1);
    BREAK(root->u.inner.child[1], t.fresh_node);
    BREAK(root->count, TWOCHOICE_INNER_SLOTS + 1);
    BREAK(root->u.inner.object[1], root->u.inner.object[1] + 1);
    BREAK(root->u.inner.offset[1], root->u.inner.offset[1] + 1);
    BREAK(inner->count, 0);
    BREAK(inner->count, TWOCHOICE_INNER_LEAST - 1);
    BREAK(inner->u.inner.offset[3], inner->u.inner.offset[3] + 1);
    BREAK(inner->u.inner.offset[3], inner->u.inner.offset[2]);
    BREAK(leaf->count, 0);
    BREAK(leaf->count, TWOCHOICE_LEAF_LEAST - 1);
    BREAK(leaf->count, slots + 1);
    BREAK(leaf->next, leaf->prev);
    BREAK(leaf->prev, leaf->next);
    if (narrow) {
        BREAK(leaf->object, leaf->object + 1);
        BREAK(leaf->u.narrow.from[0], leaf->u.narrow.from[0] - 10);
        BREAK(leaf->u.narrow.to[1], leaf->u.narrow.from[1]);
        BREAK(leaf->u.narrow.to[1], leaf->u.narrow.from[2] + 1);
        BREAK(leaf->u.narrow.tag[1], (t.version + 1) << 16);
        BREAK(leaf->u.narrow.tag[1], (t.version << 16) | HOME);
    } else {
        BREAK(leaf->u.wide.end[1], leaf->u.wide.offset[1]);
        BREAK(leaf->u.wide.end[1], leaf->u.wide.offset[2] + 1);
        BREAK(leaf->u.wide.object[2], leaf->u.wide.object[2] + 1);
        BREAK(leaf->u.wide.tag[1], (t.version + 1) << 16);
        BREAK(leaf->u.wide.tag[1], (t.version << 16) | HOME);
    }
    for (i = 0; i < 200 && leaf->count == slots; i++)
        leaf = &t.node[leaf->next];
    CHECK_LE(leaf->count, slots - 1);
    if (narrow)
        BREAK(leaf->u.narrow.from[slots - 1], 5);
    else
        BREAK(leaf->u.wide.offset[slots - 1], 5);
    while (leaf->next != UINT32_MAX)
        leaf = &t.node[leaf->next];
    BREAK(leaf->next, 0);
    free(mem);
}

static void odd_settings(void)
{
    struct twochoice_table_config cfg;
    struct twochoice_storage storage, partial;
    struct twochoice_placement s;
    struct twochoice_placement_config sc;
    struct twochoice_maintainer m;
    struct twochoice_maintainer_config mc;
    struct twochoice_order order;
    struct twochoice_checker checker;
    struct twochoice_message msg;
    struct twochoice_probe probe[4];
    struct twochoice_write w;
    uint8_t buf[100];
    uint64_t found;
    uint32_t id;
    size_t n = 0, i, size;
    void *mem = open_logged(&cfg, &storage, 0, 10), *mem2;
    for (i = 0; i < 5; i++) { /* every callback is needed */
        partial = storage;
        if (i == 0)
            partial.read = NULL;
        if (i == 1)
            partial.write = NULL;
        if (i == 2)
            partial.sync = NULL;
        if (i == 3)
            partial.truncate = NULL;
        if (i == 4)
            partial.swap = NULL;
        cfg.storage = &partial;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_EINVAL);
    }
    cfg.storage = &storage;
    cfg.max_log_bytes = 0;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 8, NULL), QOS_EINVAL);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    twochoice_table_write_end(&t, 5000);
    memset(&mc, 0, sizeof mc);
    memset(&checker, 0, sizeof checker);
    CHECK_EQ(twochoice_maintainer_init(&m, 0, &mc), QOS_OK);
    CHECK_EQ(twochoice_checker_run(&checker, &t, NULL, &found), QOS_EINVAL);
    /* Targets that share a slot of the maintainer's memory; no hold for a pull. */
    CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, 10, false), QOS_OK);
    mc.idle_ns = 10;
    CHECK_EQ(twochoice_maintainer_init(&m, 0, &mc), QOS_OK);
    CHECK_EQ(twochoice_maintainer_step(&m, 0, &t, 0, &order), QOS_OK);
    twochoice_maintainer_remote_load(&m, 5000, 2 + TWOCHOICE_REMOTE_SLOTS, 0);
    CHECK_EQ(twochoice_maintainer_step(&m, 5000, &t, 0, &order), QOS_OK);
    CHECK(order.todo == TWOCHOICE_ASK_LOAD && order.piece.target == 2);
    for (i = 0; i < t.max_holds; i++)
        CHECK_EQ(twochoice_table_write_begin(&t, 100, 0, 1, &id), QOS_OK);
    twochoice_maintainer_remote_load(&m, 5000000000, 2, 0);
    CHECK_EQ(twochoice_maintainer_step(&m, 5000000000, &t, 0, &order), QOS_EFULL);
    memset(&sc, 0, sizeof sc);
    sc.servers = 4;
    sc.tries = 5;
    sc.include_home = true;
    size = twochoice_placement_memsize(&sc);
    mem2 = aligned_alloc(64, size);
    CHECK_EQ(twochoice_placement_init(&s, mem2, size, &sc), QOS_OK);
    w.home = w.target = 1;
    w.len_bytes = 1 << 20;
    CHECK_EQ(twochoice_placement_set_server(&s, 1, TWOCHOICE_DOWN, 0), QOS_OK); /* a home that is down is not asked */
    CHECK_EQ(twochoice_placement_ask(&s, &w, 1, probe, &n), QOS_OK);
    CHECK(n == 2 && probe[0].server != 1 && probe[1].server != 1);
    s.policy = TWOCHOICE_NATIVE;
    CHECK_EQ(twochoice_placement_redraw(&s, 0, probe, n, &n), QOS_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(twochoice_placement_decide(&s, &w, 1, probe, 0), QOS_OK); /* nobody was asked */
    CHECK_EQ(w.target, 1);
    memset(&msg, 0, sizeof msg);
    CHECK_EQ(twochoice_message_encode(&msg, NULL, buf, sizeof buf, &n), QOS_ERANGE); /* type 0 */
    msg.type = TWOCHOICE_LOAD;
    msg.state = 3;
    CHECK_EQ(twochoice_message_encode(&msg, NULL, buf, sizeof buf, &n), QOS_ERANGE);
    free(mem2);
    close_logged(mem);
}

int main(void)
{
    check_begin("twochoice_ends");
    check_rng_init(&rng, 1);
    full_log();
    failing_storage();
    broken_trees(true);
    broken_trees(false);
    odd_settings();
    return check_end();
}
