// proves: at the ends of its ranges twochoice.h refuses calls and nothing changes: a log that is full or unreadable,
// proves: NULL pointers, a tree that breaks any of its rules.
// variants: native san i386
#include "property/twochoice_disk.h"
#include "../../examples/common/twochoice_check.h"

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

static void *open_logged(struct twochoice_table_config *config, struct twochoice_storage *storage,
                         uint64_t max_log_bytes, uint32_t fragments)
{
    void *mem;
    memset(config, 0, sizeof *config);
    disk_init(&disk, &rng, storage);
    config->max_fragments = fragments;
    config->home = HOME;
    config->max_log_bytes = max_log_bytes;
    config->storage = storage;
    mem = aligned_alloc(64, twochoice_table_memsize(config));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(config), config), QOS_OK);
    return mem;
}

static void close_logged(void *mem)
{
    free(mem);
    disk_free(&disk);
}

/* The smallest log: in any history it is never longer than its maximum, and it always has room for a compaction and
 * for the reservations of open writes. */
static void full_log(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 2 * 48 * 42, 40);
    uint64_t i, round, stamp[5] = {0}, created = 0;
    struct twochoice_piece p;
    struct twochoice_commit commit;
    size_t n;
    CHECK_EQ(redirect(&t, 1, 0, 10, 2), QOS_EINVAL); /* neither formatted nor recovered */
    CHECK_EQ(twochoice_table_commit(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_commit_begin(&t, &commit), QOS_EINVAL);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_EINVAL);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (round = 0; round < 200; round++) {
        enum qos_status st = QOS_OK;
        enum twochoice_compact_todo todo;
        unsigned open = 0, k;
        while (open < 5 && twochoice_table_write_begin(&t, 5 + open, 3, 0, 10, &stamp[open]) == QOS_OK)
            open++; /* data is on its way to the target */
        CHECK_GE(open, round == 0 ? 5 : 1);
        if (check_between(&rng, 0, 3)) {
            st = twochoice_table_compact_start(&t);
            CHECK_EQ(st, QOS_OK);
            st = twochoice_table_compact_step(&t, (uint32_t)check_between(&rng, 1, 9), &todo);
            CHECK_EQ(st, QOS_OK);
        }
        for (st = QOS_OK; st == QOS_OK; created += st == QOS_OK) /* other writes fill the log */
            st = redirect(&t, 1, check_between(&rng, 0, 9) * 10, 10, 2 + (uint32_t)(created % 2));
        CHECK_EQ(st, QOS_EFULL);
        while (counts_of(&t).compacting) { /* until it ends, or is given up because it cannot keep up */
            st = twochoice_table_compact_step(&t, 3, &todo);
            if (st != QOS_OK)
                CHECK_EQ(st, QOS_EFULL);
            else if (todo == TWOCHOICE_COMPACT_COMMIT)
                CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
            else if (todo == TWOCHOICE_COMPACT_SWAP)
                CHECK_EQ(twochoice_table_compact_end(&t, storage.swap(storage.ctx, (int)counts_of(&t).next_log) == 0),
                         QOS_OK);
        }
        for (k = 0; k < open; k++) /* reserved room is there, before and after a compaction */
            CHECK_EQ(twochoice_table_write_end(&t, stamp[k], &p, 1, &n), QOS_OK);
        CHECK_LE(counts_of(&t).log_bytes, config.max_log_bytes);
        CHECK_LE(disk.log[0].len, config.max_log_bytes);
        CHECK_LE(disk.log[1].len, config.max_log_bytes);
        CHECK_EQ(twochoice_table_compact(&t), QOS_OK); /* a compacted log always fits */
        if (round % 10 == 9) {
            struct twochoice_recovery r;
            CHECK_EQ(twochoice_table_write_begin(&t, 77, 3, 0, 10, &stamp[0]), QOS_OK);
            CHECK_EQ(redirect(&t, 1, 0, 10, 3), QOS_OK);
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
            disk_restart(&disk);
            CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
            CHECK_EQ(twochoice_table_recover(&t, 0, &r), QOS_OK);
            CHECK_EQ(counts_of(&t).writes_open, 0);
            CHECK_EQ(twochoice_table_write_end(&t, stamp[0], &p, 1, &n), QOS_ESTALE);
        }
        for (i = 1; i < 12; i++)
            CHECK_EQ(redirect(&t, i, 0, 1000, TWOCHOICE_LOCAL), QOS_OK);
    }
    CHECK_GE(created, 2000);
    close_logged(mem);
}

/* No stamp is given twice, whatever was lost; without a commit only a limited number is given out. */
static void stamps(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 200);
    uint64_t stamp = 0, highest = 0, i, life;
    enum qos_status st = QOS_OK;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (life = 0; life < 4; life++) {
        for (i = 0; i < (check_state.scale > 1 ? 1200000 : 3000000) && st == QOS_OK; i++) {
            st = twochoice_table_write_begin(&t, 1, 3, 0, 10, &stamp);
            if (st == QOS_OK) {
                CHECK(stamp > highest);
                highest = stamp;
                CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_OK);
            }
            if (st == QOS_OK && life == 2 && i % 100000 == 0)
                CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
            if (st == QOS_OK && life == 2 && i % 500000 == 250000)
                CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
        }
        CHECK_EQ(st, life == 2 ? QOS_OK : QOS_EAGAIN);
        CHECK_GE(i, 1 << 19);
        st = QOS_OK;
        disk_crash(&disk);
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_OK);
    }
    close_logged(mem);
}

/* Damage at the log's beginning loses the records that raised the bound on stamps: later stamps are still not given
 * again. */
static void stamps_after_damage(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 200);
    uint64_t stamp = 0, highest = 0, i;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < (check_state.scale > 1 ? 1200000 : 3000000); i++) { /* a log gives 2^20 at a time */
        CHECK_EQ(twochoice_table_write_begin(&t, 1, 3, 0, 10, &highest), QOS_OK);
        CHECK_EQ(twochoice_table_write_cancel(&t, highest), QOS_OK);
        if (i % 100000 == 0)
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    }
    disk.log[0].data[48 + 10] ^= 1;
    disk_restart(&disk);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_ECORRUPT);
    CHECK_EQ(twochoice_table_recover(&t, TWOCHOICE_ACCEPT_PREFIX, NULL), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 3, 0, 10, &stamp), QOS_OK);
    CHECK(stamp > highest);
    close_logged(mem);
}

static void reopen(const struct twochoice_table_config *config, void *mem, enum qos_status want)
{
    disk_restart(&disk);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(config), config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), want);
    if (want != QOS_OK)
        CHECK_EQ(counts_of(&t).fragments, 0);
}

static void failing_storage(void)
{
    struct twochoice_piece left;
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 202);
    enum twochoice_compact_todo todo;
    uint64_t i, stop;
    for (stop = 1; stop <= 10; stop++) { /* each operation of a format fails */
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_format(&t), QOS_EIO);
        disk.stopped = false;
    }
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 199; i++)
        CHECK_EQ(redirect(&t, i, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    disk_resize(&disk.log[0], 48 * 200 + 5);
    for (stop = 1; stop <= 207;
         stop++) { /* the mark is written, synced; 203 records in a new log; it is synced, swapped in */
        disk.operations = 0;
        disk.stop_after = stop;
        disk_restart(&disk);
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EIO);
        CHECK_EQ(counts_of(&t).fragments, 0);
        CHECK_EQ(disk.stopped, true);
        disk.stopped = false;
        if (disk.active == 0)
            CHECK_EQ(disk.log[0].len, 48 * 200 + 5);
    }
    disk.stop_after = 0;
    reopen(&config, mem, QOS_OK);
    CHECK_EQ(counts_of(&t).fragments, 199);
    disk_restart(&disk);
    disk.log[0].durable = disk.log[0].len;
    storage.read = failing_read;
    for (i = 0; i < 5; i++) { /* four chunks and the mark */
        reads_until_error = (int)i;
        reopen(&config, mem, QOS_EIO);
    }
    memcpy(disk.log[TWOCHOICE_MARK_LOG].data, disk.log[0].data, 48); /* a header in place of a mark does not count */
    memset(disk.log[TWOCHOICE_MARK_LOG].data + 512, 0, 48);
    reads_until_error = 100;
    reopen(&config, mem, QOS_ECORRUPT);
    memset(disk.log[TWOCHOICE_MARK_LOG].data, 0, 48);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, TWOCHOICE_ACCEPT_PREFIX, NULL), QOS_OK);
    for (i = 0; i < 199; i++) {
        struct twochoice_piece p;
        twochoice_table_find(&t, i, 0, &p);
        CHECK_EQ(p.target, 2);
    }
    disk_restart(&disk);
    disk.log[0].data[100] ^= 1; /* the read behind the damage fails too */
    reads_until_error = 1;
    reopen(&config, mem, QOS_EIO);
    disk.log[0].data[100] ^= 1;
    storage.read = lying_read;
    reopen(&config, mem, QOS_EIO);
    storage.read = disk_read;
    reopen(&config, mem, QOS_OK);
    CHECK_EQ(counts_of(&t).fragments, 199);
    for (stop = 1; stop <= 2; stop++) { /* creation and write of the next log's header */
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_compact_start(&t), QOS_EIO);
        disk.stopped = false;
    }
    for (stop = 1; stop <= 200; stop += 67) { /* the copies, the end */
        disk.stop_after = 0;
        CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
        disk.operations = 0;
        disk.stop_after = stop;
        CHECK_EQ(twochoice_table_compact_step(&t, 1000, &todo), QOS_EIO);
        CHECK(!counts_of(&t).compacting);
        disk.stopped = false;
    }
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_EBUSY);
    CHECK_EQ(twochoice_table_compact_step(&t, 1000, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_COMMIT);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 1000, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_SWAP);
    CHECK_EQ(redirect(&t, 0, 0, 10, 3), QOS_OK);               /* writes go on during the swap */
    CHECK_EQ(twochoice_table_compact_end(&t, false), QOS_EIO); /* the swap failed: the old log stays active */
    CHECK_EQ(redirect(&t, 0, 0, 10, 4), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    reopen(&config, mem, QOS_OK);
    {
        struct twochoice_piece p;
        twochoice_table_find(&t, 0, 0, &p);
        CHECK_EQ(p.target, 4);
    }
    disk.operations = 0;
    disk.stop_after = 1;
    CHECK_EQ(redirect(&t, 0, 0, 10, 3), QOS_EIO);
    disk.stopped = false;
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);    /* of what was recorded before */
    CHECK_EQ(redirect(&t, 0, 500, 10, 3), QOS_EIO);  /* nothing follows the failed write */
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);   /* a new log does not need the old one */
    CHECK(twochoice_table_write_next(&t, 0, &left)); /* before, a crash could bring it back: not to be cancelled */
    CHECK_EQ(twochoice_table_write_cancel(&t, left.version), QOS_OK);
    CHECK_EQ(redirect(&t, 0, 0, 10, 3), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    close_logged(mem);
}

/* One write over many leaves. Without room for all that it replaces nothing changes. */
static void long_write(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 4000);
    const uint64_t step = 64 << 20, parts = 200;
    struct twochoice_piece p, old[200];
    uint64_t i, from, stamp = 0;
    size_t n, max;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (from = 0; from < 40; from += 13) {
        for (i = 0; i < parts; i++)
            CHECK_EQ(redirect(&t, 1, i * step, 1 << 20, 2), QOS_OK);
        CHECK_EQ(twochoice_table_write_begin(&t, 1, 3, from * step, (parts - from) * step, &stamp), QOS_OK);
        for (max = 1; max < parts - from; max = max * 2 + 1) {
            const struct twochoice_table_state before = counts_of(&t);
            CHECK_EQ(twochoice_table_write_end(&t, stamp, old, max, &n), QOS_EAGAIN);
            CHECK(n == max && old[0].offset == from * step && old[max - 1].offset == (from + max - 1) * step);
            CHECK(counts_of(&t).changes == before.changes && counts_of(&t).fragments == parts);
            CHECK_EQ(counts_of(&t).log_bytes, before.log_bytes);
            twochoice_table_find(&t, 1, from * step + 5, &p);
            CHECK(p.target == 2 && p.end == from * step + (1 << 20));
        }
        CHECK_EQ(twochoice_table_write_end(&t, stamp, old, (uint32_t)(parts - from), &n), QOS_OK);
        CHECK_EQ(n, parts - from);
        for (i = 0; i < n; i++)
            CHECK(old[i].offset == (from + i) * step && old[i].end == old[i].offset + (1 << 20) && old[i].target == 2);
        CHECK(check_tree(&t));
        twochoice_table_find(&t, 1, from * step, &p);
        CHECK(p.version == stamp && p.end == parts * step);
        CHECK_EQ(counts_of(&t).fragments, from + 1);
        CHECK(!twochoice_table_refers(&t, 1, 1, 0, step)); /* nothing of it is left */
        CHECK_EQ(redirect(&t, 1, 0, parts * step, TWOCHOICE_LOCAL), QOS_OK);
    }
    CHECK(check_tree(&t));
    close_logged(mem);
}

/* Pulls without room: for another pull, for the record, or for the answer. */
static void full_pulls(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 2 * 48 * 42, 40);
    struct twochoice_piece p, parts[2];
    struct twochoice_maintainer_config mc;
    struct twochoice_maintainer maintainer;
    static unsigned char memory[4096] __attribute__((aligned(64)));
    uint32_t pull, other, i;
    size_t n;
    config.max_pulls = 2;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 6; i++)
        CHECK_EQ(redirect(&t, 1, 20 * i, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 1, 0, 10, &pull, &p), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 1, 20, 10, &other, &p), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 1, 40, 10, &other, &p), QOS_EFULL);
    memset(&mc, 0, sizeof mc);
    mc.servers = 2; /* server 2 is outside 0..1 */
    mc.idle_ns = 10;
    CHECK_EQ(twochoice_maintainer_init(&maintainer, NULL, sizeof memory, &mc), QOS_EINVAL);
    CHECK_EQ(twochoice_maintainer_init(&maintainer, memory, sizeof memory, &mc), QOS_OK);
    for (i = 0; i < 10; i++) {
        struct twochoice_order order;
        CHECK_EQ(twochoice_maintainer_step(&maintainer, 100 * i, &t, 0, &order), QOS_OK);
        CHECK_EQ(order.todo, TWOCHOICE_WAIT);
    }
    mc.servers = 3; /* now it is inside; but both pulls are open */
    CHECK_EQ(twochoice_maintainer_init(&maintainer, memory, sizeof memory, &mc), QOS_OK);
    for (i = 0; i < 20; i++) {
        struct twochoice_order order;
        CHECK_EQ(twochoice_maintainer_step(&maintainer, 100 + i, &t, 0, &order), QOS_OK);
        CHECK_EQ(order.todo, TWOCHOICE_WAIT);
        CHECK(i < 10 || order.next_ns == QOS_NEVER); /* a loop that sleeps until then does not spin */
    }
    CHECK_EQ(twochoice_table_pull_ready(&t, pull, parts, 2, &n), QOS_OK);
    CHECK_EQ(twochoice_table_pull_finish(&t, pull, parts, 0, &n), QOS_EINVAL);
    while (redirect(&t, 5, 0, 10, 2) == QOS_OK) /* the log is full */
        continue;
    CHECK_EQ(twochoice_table_pull_finish(&t, pull, parts, 2, &n), QOS_EFULL);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(twochoice_table_pull_finish(&t, pull, parts, 2, &n), QOS_OK);
    CHECK_EQ(n, 1);
    close_logged(mem);
}

/* A sync failed: a commit succeeds again only after a compaction has replaced the log. */
static void broken_log(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 202);
    enum twochoice_compact_todo todo;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    CHECK_EQ(redirect(&t, 1, 0, 10, 2), QOS_OK);
    disk.operations = 0;
    disk.stop_after = 1;
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO);
    disk.stopped = false;
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 1000, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_COMMIT);
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO); /* the next log is durable, but not active yet */
    CHECK_EQ(twochoice_table_compact_step(&t, 1000, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_SWAP);
    CHECK_EQ(twochoice_table_compact_end(&t, storage.swap(storage.ctx, (int)counts_of(&t).next_log) == 0), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    close_logged(mem);
}

/* A compaction is given up if its log is full before the swap. */
static void outrun(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 2 * 48 * 42, 40);
    enum twochoice_compact_todo todo;
    enum qos_status st = QOS_OK;
    uint32_t i;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 38; i++)
        CHECK_EQ(redirect(&t, 2, 20 * i, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 10, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_STEP);
    CHECK_EQ(twochoice_table_compact_step(&t, 100, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_COMMIT);
    while (redirect(&t, 2, 0, 10, 3) == QOS_OK) /* both logs get these records */
        continue;
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    for (i = 0; i < 3 && st == QOS_OK; i++)
        st = twochoice_table_compact_step(&t, 100, &todo);
    if (st == QOS_OK)
        CHECK_EQ(twochoice_table_compact_end(&t, storage.swap(storage.ctx, (int)counts_of(&t).next_log) == 0), QOS_OK);
    else
        CHECK_EQ(st, QOS_EFULL);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK(check_tree(&t));
    CHECK_EQ(counts_of(&t).fragments, 38);
    close_logged(mem);
}

/* Each word of the tree's memory is damaged in turn: verify finds most damage, and never reads outside. In an inner node
 * it finds all damage behind the last of the bounds: objects are from word 8 on, offsets from word 56 on. */
static void broken_trees(bool narrow)
{
    struct twochoice_table_config config;
    uint32_t i, fragments = narrow ? 4800 : 1500, found = 0, tried = 0;
    uint64_t apart = narrow ? 10 : UINT64_C(1) << 33;
    size_t at, leaves, inner;
    unsigned char *mem;
    memset(&config, 0, sizeof config);
    config.max_fragments = fragments + 2;
    config.home = HOME;
    mem =
        (unsigned char *)aligned_alloc(1024, twochoice_table_memsize(&config) / 1024 * 1024 + 1024); /* as nodes are */
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    for (i = 0; i < fragments; i++)
        CHECK_EQ(redirect(&t, i % 3, i / 3 * apart, 5, 2), QOS_OK);
    CHECK(check_tree(&t));
    /* at the pool's beginning; four inner nodes are at its end */
    leaves = (size_t)(counts_of(&t).nodes_used - 4) * 1024;
    inner = (size_t)(counts_of(&t).nodes - 4) * 1024;
    for (at = 0; at < inner + 4 * 1024; at += 8 * (size_t)check_between(&rng, 1, 5)) {
        uint64_t saved, value;
        if (at >= leaves && at < inner)
            at = inner;
        if (narrow && at < leaves && at % 1024 >= 832)
            continue; /* targets: any is possible */
        memcpy(&saved, mem + at, sizeof saved);
        value = saved ^
                UINT64_C(1) << (check_between(&rng, 0, 7) ? check_between(&rng, 56, 63) : check_between(&rng, 24, 31));
        memcpy(mem + at, &value, sizeof value);
        tried++;
        found += !check_tree(&t);
        memcpy(mem + at, &saved, sizeof saved);
    }
    for (at = inner + 1024; at < inner + 4 * 1024; at += 1024) { /* at least the last three are inner nodes */
        uint32_t count;
        memcpy(&count, mem + at + 8, sizeof count);
        for (i = 8; i < 104; i++) {
            mem[at + 8 * i] ^= 1;
            CHECK((i - 8) % 48 < count || !check_tree(&t));
            mem[at + 8 * i] ^= 1;
        }
    }
    printf("%u of %u broken words were found\n", found, tried);
    CHECK_GE(found * 10, tried * 9);
    CHECK(check_tree(&t));
    free(mem);
}

/* A log of more than max_fragments is refused, also if the last byte of the last object is in it. */
static void smaller_table(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 20);
    uint64_t i;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 4; i++)
        CHECK_EQ(redirect(&t, i, 0, 9, 2), QOS_OK);
    CHECK_EQ(redirect(&t, UINT64_MAX, UINT64_MAX - 9, 9, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    free(mem);
    config.max_fragments = 4;
    mem = aligned_alloc(64, twochoice_table_memsize(&config));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EFULL);
    close_logged(mem);
}

static void odd_settings(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage, partial;
    struct twochoice_message msg;
    enum twochoice_compact_todo todo;
    uint8_t buf[100];
    size_t n = 0, i;
    void *mem = open_logged(&config, &storage, 0, 10);
    for (i = 0; i < 5; i++) { /* each callback is required */
        partial = storage;
        if (i == 0)
            partial.read = NULL;
        if (i == 1)
            partial.write = NULL;
        if (i == 2)
            partial.sync = NULL;
        if (i == 3)
            partial.create = NULL;
        if (i == 4)
            partial.swap = NULL;
        config.storage = &partial;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_ERANGE);
    }
    config.storage = &storage;
    config.max_log_bytes = 0;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 8, NULL), QOS_EINVAL);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 1, &todo), QOS_EINVAL); /* no compaction is under way */
    memset(&msg, 0, sizeof msg);
    CHECK_EQ(twochoice_message_encode(&msg, buf, sizeof buf, &n), QOS_ERANGE); /* type 0 */
    msg.type = TWOCHOICE_ANSWER;
    msg.state = 3;
    CHECK_EQ(twochoice_message_encode(&msg, buf, sizeof buf, &n), QOS_ERANGE);
    close_logged(mem);
}

static int torn_write_left; /* this many writes from now on: the last of them is stored whole, but fails */

static int torn_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    int stored = disk_write(ctx, log, offset, buf, len);
    return --torn_write_left == 0 ? -1 : stored;
}

/* The write of a record failed, but all its bytes reached the device: cancelled after a compaction, it never counts. */
static void refused_record(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 202);
    struct twochoice_piece p;
    uint64_t i, stamp = 0;
    size_t n;
    storage.write = torn_write;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 100; i++)
        CHECK_EQ(redirect(&t, 1, 100 * i, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 3, 5000, 10, &stamp), QOS_OK);
    torn_write_left = 1;
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_EIO);
    CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_EIO);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_EIO);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_OK);
    reopen(&config, mem, QOS_OK);
    twochoice_table_find(&t, 1, 5000, &p);
    CHECK_EQ(p.target, 2);
    close_logged(mem);
}

/* A mark that a later commit did not sync is synced by the commit after it. Recovery uses the latest mark, in
 * whichever slot it is. */
static void marks(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 202);
    struct twochoice_commit a, b;
    uint32_t i;
    config.mark_commits = 2;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    CHECK_EQ(redirect(&t, 1, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(redirect(&t, 2, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &a), QOS_OK);
    CHECK_EQ(redirect(&t, 3, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &b), QOS_OK);
    CHECK_EQ((a.logs | b.logs) >> TWOCHOICE_MARK_LOG, 0);
    CHECK_EQ(storage.sync(storage.ctx, 0), 0);
    CHECK_EQ(twochoice_table_commit_end(&t, &a, true), QOS_OK); /* the second commit writes the mark */
    CHECK_EQ(twochoice_table_commit_end(&t, &b, true), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &a), QOS_OK);
    CHECK_EQ(a.logs, 1u << TWOCHOICE_MARK_LOG);
    config.mark_commits = 1;
    for (i = 1; i <= 4; i++) { /* each commit writes the other slot */
        uint32_t k;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        CHECK_EQ(twochoice_table_format(&t), QOS_OK);
        for (k = 0; k < i; k++) {
            CHECK_EQ(redirect(&t, k, 0, 10, 2), QOS_OK);
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        }
        disk_resize(&disk.log[0], (size_t)48 * i); /* the last of i + 1 records is lost */
        reopen(&config, mem, QOS_ECORRUPT);
    }
    close_logged(mem);
}

/* A failed sync of the active log ends no compaction. Nothing is recorded, and nothing acknowledged, before the swap of
 * a log that did not fail. A format that fails leaves no usable log. */
static void failed_syncs(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 202);
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    struct twochoice_commit commit;
    struct twochoice_piece p;
    uint64_t stamp = 0;
    size_t n;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    CHECK_EQ(redirect(&t, 1, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 2, 3, 0, 10, &stamp), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &commit), QOS_OK);
    CHECK_EQ(twochoice_table_commit_end(&t, &commit, false), QOS_EIO);
    CHECK(counts_of(&t).compacting && counts_of(&t).log_broken);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_EIO);
    CHECK_EQ(counts_of(&t).fragments, 1);
    CHECK_EQ(twochoice_table_compact_step(&t, 10, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_COMMIT);
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO); /* the other log is durable, but not active yet */
    CHECK_EQ(counts_of(&t).durable_changes, 0);
    CHECK_EQ(twochoice_table_compact_step(&t, 10, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_SWAP);
    CHECK_EQ(twochoice_table_compact_end(&t, storage.swap(storage.ctx, (int)counts_of(&t).next_log) == 0), QOS_OK);
    CHECK_EQ(counts_of(&t).durable_changes, 1); /* the swap acknowledges */
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    todo = TWOCHOICE_COMPACT_STEP;
    while (todo != TWOCHOICE_COMPACT_SWAP) {
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        CHECK_EQ(twochoice_table_compact_step(&t, 10, &todo), QOS_OK);
    }
    CHECK_EQ(redirect(&t, 3, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &commit), QOS_OK);
    CHECK_EQ(twochoice_table_commit_end(&t, &commit, false), QOS_EIO);
    CHECK(counts_of(&t).compacting);
    CHECK_EQ(twochoice_table_compact_end(&t, storage.swap(storage.ctx, (int)counts_of(&t).next_log) == 0), QOS_OK);
    close_logged(mem);
    mem = open_logged(&config, &storage, 0, 202);
    disk.operations = 0;
    disk.stop_after = 2;
    CHECK_EQ(twochoice_table_format(&t), QOS_EIO);
    disk.stopped = false;
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_write_begin(&t, 2, 3, 0, 10, &stamp), QOS_EINVAL);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    close_logged(mem);
}

/* A power failure leaves zeros in whole sectors, or from some byte on to the end: other zeros are damage. */
static void zeros_in_a_record(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 202);
    uint32_t i;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 21; i++)
        CHECK_EQ(redirect(&t, i, 0, 10, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    disk.log[0].data[1008] = 1; /* the record's first 16 bytes are the end of a sector */
    memset(disk.log[0].data + 1009, 0, 15);
    reopen(&config, mem, QOS_ECORRUPT);
    disk.log[0].data[1008] = 0;
    reopen(&config, mem, QOS_OK);
    CHECK_EQ(counts_of(&t).fragments, 20);
    close_logged(mem);
}

static struct twochoice_piece reported[2];

static void keep_report(void *ctx, enum check_finding what, const struct twochoice_piece *table,
                        const struct twochoice_piece *log)
{
    (void)ctx;
    CHECK_EQ(what, CHECK_LOG_DIFFERS);
    reported[0] = *table;
    reported[1] = *log;
}

static int in_table(void *ctx, const struct twochoice_piece *piece)
{
    (void)ctx;
    CHECK_EQ(piece->target, 3); /* data are read at the place where the table has them */
    return 1;
}

/* A check distinguishes the table from the log. */
static void checker_sides(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    const struct check_calls calls = {NULL, in_table, keep_report};
    struct twochoice_table scratch;
    void *mem = open_logged(&config, &storage, 0, 10), *mem2 = aligned_alloc(64, twochoice_table_memsize(&config));
    uint8_t before[96];
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    CHECK_EQ(redirect(&t, 1, 0, 10, 2), QOS_OK);
    memcpy(before, disk.log[0].data, sizeof before);
    CHECK_EQ(redirect(&t, 1, 0, 10, 3), QOS_OK);
    disk_resize(&disk.log[0], sizeof before); /* a record is lost, and the table does not know it */
    CHECK_EQ(check_redirects(&calls, &t, &config, &scratch, mem2), 1);
    CHECK_EQ(reported[0].target, 3);
    CHECK_EQ(reported[1].target, 2);
    free(mem2);
    close_logged(mem);
}

/* A piece that another caller is pulling costs the maintainer's rate nothing. */
static void pulled_by_another(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    void *mem = open_logged(&config, &storage, 0, 10);
    static unsigned char memory[4096] __attribute__((aligned(64)));
    struct twochoice_maintainer_config mc;
    struct twochoice_maintainer maintainer;
    struct twochoice_order order;
    struct twochoice_piece p;
    uint32_t pull, i;
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    CHECK_EQ(redirect(&t, 1, 0, 1 << 20, 2), QOS_OK);
    CHECK_EQ(redirect(&t, 1, 2 << 20, 1 << 20, 2), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 1, 2 << 20, 1 << 20, &pull, &p), QOS_OK);
    memset(&mc, 0, sizeof mc);
    mc.servers = 3;
    mc.rate_bytes_per_s = 1 << 20; /* one piece now, the next after a second */
    CHECK_EQ(twochoice_maintainer_init(&maintainer, memory, sizeof memory, &mc), QOS_OK);
    for (i = 0; i < 10; i++) {
        const uint64_t now = UINT64_C(1000000000) + i * UINT64_C(40000000);
        CHECK_EQ(twochoice_maintainer_step(&maintainer, now, &t, 0, &order), QOS_OK);
        if (order.todo == TWOCHOICE_COPY)
            break;
        if (order.todo == TWOCHOICE_ASK_LOAD)
            twochoice_maintainer_remote_load(&maintainer, now, 2, 0);
    }
    CHECK_EQ(order.todo, TWOCHOICE_COPY);
    CHECK_EQ(order.piece.offset, 0);
    close_logged(mem);
}

/* Placement at its ends: the most candidates, loads that no server can have, a tie, and a redraw that reads only the
 * given probes. */
/* Wrong arguments, messages of nobody's, and times at their ends. */
static void placement_ends(void)
{
    struct twochoice_placement_config config;
    struct twochoice_placement s;
    struct twochoice_place_order o;
    struct twochoice_message m, answer;
    struct twochoice_write w[3];
    struct qos_stats stats;
    uint64_t request[3];
    size_t size, i;
    void *mem;
    memset(&config, 0, sizeof config);
    memset(w, 0, sizeof w);
    memset(&m, 0, sizeof m);
    config.servers = 4;
    config.max_writes = 2;
    config.max_requests = 2;
    size = twochoice_placement_memsize(&config);
    mem = aligned_alloc(64, size);
    CHECK_EQ(twochoice_placement_init(&s, mem, size, &config), QOS_OK);
    CHECK_EQ(twochoice_placement_set_server(&s, 4, TWOCHOICE_UP), QOS_ENOENT);
    CHECK_EQ(twochoice_placement_set_server(&s, 1, (enum twochoice_server_state)3), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_stats(&s, 0, &stats), QOS_ENOENT);
    w[0].len_bytes = w[1].len_bytes = 4096;
    CHECK_EQ(twochoice_placement_begin(&s, 0, w, 0, 0, &request[0]), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_begin(&s, 0, w, 3, 0, &request[0]), QOS_ERANGE);
    w[1].home = 4;
    CHECK_EQ(twochoice_placement_begin(&s, 0, w, 2, 0, &request[0]), QOS_ENOENT);
    w[1].home = 1;
    for (i = 0; i < 2; i++)
        CHECK_EQ(twochoice_placement_begin(&s, 0, w, 2, 7 + i, &request[i]), QOS_OK);
    CHECK_EQ(twochoice_placement_begin(&s, 0, w, 2, 9, &request[2]), QOS_EFULL);
    CHECK_EQ(twochoice_placement_ended(&s, 0, request[1] + 1000, 0, true), QOS_ENOENT);
    CHECK_EQ(twochoice_placement_ended(&s, 0, request[1], 2, true), QOS_ERANGE);
    CHECK_EQ(twochoice_placement_ended(&s, 0, request[1], 0, false), QOS_OK); /* not sent: nothing happens */
    m.type = TWOCHOICE_ASK;
    m.server = 4;
    CHECK(!twochoice_placement_heard(&s, 0, &m, &answer)); /* no such server */
    m.server = 3;
    m.request = request[0];
    CHECK(twochoice_placement_heard(&s, 0, &m, &answer)); /* an ask that nobody waits for */
    CHECK(answer.type == TWOCHOICE_RELEASE && answer.server == 3 && answer.request == request[0]);
    m.type = TWOCHOICE_RESERVE;
    CHECK(!twochoice_placement_heard(&s, 0, &m, &answer)); /* not for clients */
    for (i = 0; i < 4; i++)
        CHECK_EQ(twochoice_placement_set_server(&s, (uint32_t)i, TWOCHOICE_DOWN), QOS_OK);
    for (i = 0; i < 4; i++) { /* no server is up: home, in the order of the requests */
        twochoice_placement_step(&s, UINT64_MAX, &o);
        CHECK(o.todo == TWOCHOICE_PLACE_BIND && o.tag == 7 + i / 2 && o.write == i % 2 && o.server == i % 2 &&
              !o.again);
    }
    twochoice_placement_step(&s, UINT64_MAX, &o);
    CHECK(o.todo == TWOCHOICE_PLACE_WAIT && o.next_ns == QOS_NEVER);
    twochoice_placement_step(&s, 0, &o); /* the clock goes back: nothing happens */
    CHECK(o.todo == TWOCHOICE_PLACE_WAIT);
    CHECK_EQ(twochoice_placement_ended(&s, 5, request[0], 0, false), QOS_OK);
    twochoice_placement_step(&s, 5, &o); /* where it failed it does not go at once again */
    CHECK(o.todo == TWOCHOICE_PLACE_WAIT && o.next_ns > 5 && o.next_ns != QOS_NEVER);
    twochoice_placement_step(&s, o.next_ns, &o);
    CHECK(o.todo == TWOCHOICE_PLACE_BIND && o.write == 0 && o.again);
    for (i = 0; i < 4; i++)
        CHECK_EQ(twochoice_placement_ended(&s, 5, request[i / 2], i % 2, true), QOS_OK);
    CHECK_EQ(twochoice_placement_begin(&s, 6, w, 1, 9, &request[2]), QOS_OK); /* both have ended, not stepped */
    CHECK_EQ(twochoice_placement_stats(&s, QOS_NONE, &stats), QOS_OK);
    CHECK(stats.granted == 5 && stats.borrowed == 0 && stats.waited == 1);
    free(mem);
}

/* Ends that nobody began, and clocks that jump. */
static void intake_ends(void)
{
    struct twochoice_intake_config config;
    struct twochoice_intake s;
    struct twochoice_intake_state state;
    struct twochoice_message m, answer;
    size_t size, i;
    void *mem;
    memset(&config, 0, sizeof config);
    memset(&m, 0, sizeof m);
    config.max_reservations = 2;
    size = twochoice_intake_memsize(&config);
    mem = aligned_alloc(64, size);
    CHECK_EQ(twochoice_intake_init(&s, mem, size, &config), QOS_OK);
    twochoice_intake_end(&s, 100, 1000);
    CHECK_EQ(twochoice_intake_info(&s, &state), QOS_OK);
    CHECK(state.ops == 0 && state.cost_bytes == 0 && state.mib_ns == 0);
    m.type = TWOCHOICE_ANSWER;
    CHECK(!twochoice_intake_heard(&s, 100, &m, &answer)); /* not for servers */
    m.type = TWOCHOICE_RESERVE;
    m.count = 3;
    m.len_bytes = UINT64_MAX;
    for (i = 0; i < 3; i++) {
        m.client = i;
        CHECK(twochoice_intake_heard(&s, i == 1 ? UINT64_MAX : 0, &m, &answer));
        CHECK_EQ(answer.state, i == 2 ? TWOCHOICE_FULL : TWOCHOICE_UP);
    }
    CHECK(twochoice_intake_ask(&s, UINT64_MAX, &answer));
    CHECK(answer.client == 0 && answer.len_bytes == UINT64_MAX);
    twochoice_intake_arrived(&s, 0, 0, 0, 0, UINT64_MAX);
    for (i = 0; i < 100; i++)
        twochoice_intake_begin(&s, 10, UINT64_MAX);
    CHECK_EQ(twochoice_intake_info(&s, &state), QOS_OK);
    CHECK_EQ(state.cost_bytes, 101 * ((UINT64_C(1) << 36) + 65536));
    for (i = 0; i < 101; i++)
        twochoice_intake_end(&s, UINT64_MAX - 200 + i, UINT64_MAX);
    CHECK_EQ(twochoice_intake_info(&s, &state), QOS_OK);
    CHECK(state.ops == 0 && state.cost_bytes == 0 && state.mib_ns > 0);
    free(mem);
}

/* The same seed draws the same servers; another seed draws others. */
static void seeds(void)
{
    static const uint64_t seed[3] = {5, 5, 6};
    struct twochoice_placement_config config;
    struct twochoice_placement placement;
    struct twochoice_place_order o;
    struct twochoice_write w[10];
    uint32_t drawn[3][20], i, k;
    uint64_t request = 0;
    memset(&config, 0, sizeof config);
    memset(w, 0, sizeof w);
    config.servers = 1000;
    for (i = 0; i < 10; i++)
        w[i].len_bytes = 64 << 20;
    for (k = 0; k < 3; k++) {
        size_t size = twochoice_placement_memsize(&config);
        void *mem = aligned_alloc(64, size);
        config.seed = seed[k];
        CHECK_EQ(twochoice_placement_init(&placement, mem, size, &config), QOS_OK);
        CHECK_EQ(twochoice_placement_begin(&placement, 0, w, 10, 0, &request), QOS_OK);
        for (i = 0; i < 20; i++) {
            twochoice_placement_step(&placement, 0, &o);
            CHECK_EQ(o.todo, TWOCHOICE_PLACE_SEND);
            drawn[k][i] = o.server;
        }
        twochoice_placement_step(&placement, 0, &o);
        CHECK_EQ(o.todo, TWOCHOICE_PLACE_WAIT);
        free(mem);
    }
    CHECK(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
    CHECK(memcmp(drawn[0], drawn[2], sizeof drawn[0]) != 0);
}

/* As many writes as a request may have, and one server: no message says more than TWOCHOICE_WRITES_MAX of them. */
static void largest_request(void)
{
    static struct twochoice_write w[TWOCHOICE_WRITES_MAX];
    struct twochoice_placement_config config;
    struct twochoice_placement placement;
    struct twochoice_place_order o;
    uint8_t bytes[TWOCHOICE_MESSAGE_BYTES];
    uint64_t request = 0;
    size_t size, len = 0;
    void *mem;
    memset(&config, 0, sizeof config);
    config.servers = 1;
    config.max_writes = TWOCHOICE_WRITES_MAX;
    for (len = 0; len < TWOCHOICE_WRITES_MAX; len++)
        w[len].len_bytes = 64 << 20;
    size = twochoice_placement_memsize(&config);
    mem = aligned_alloc(64, size);
    CHECK_EQ(twochoice_placement_init(&placement, mem, size, &config), QOS_OK);
    CHECK_EQ(twochoice_placement_begin(&placement, 0, w, TWOCHOICE_WRITES_MAX, 0, &request), QOS_OK);
    twochoice_placement_step(&placement, 0, &o);
    CHECK_EQ(o.todo, TWOCHOICE_PLACE_SEND);
    CHECK_EQ(o.message.count, TWOCHOICE_WRITES_MAX);
    CHECK_EQ(twochoice_message_encode(&o.message, bytes, sizeof bytes, &len), QOS_OK);
    free(mem);
}

/* A client that declined an ask waits for others: whatever was said, it wakes at most 4096 times a timeout for that.
 * service_ns 0: nothing is known yet, one reservation is lost, the other three answers come at once. */
static void declined_wakes_seldom(uint64_t service_ns)
{
    const struct twochoice_write w[2] = {{0, 1 << 20}, {1, 1 << 20}};
    const bool cold = service_ns == 0;
    struct twochoice_placement_config config;
    struct twochoice_placement placement;
    struct twochoice_place_order o;
    struct twochoice_message heard[4], answer;
    uint64_t now = 1000, request = 0, wakes = 0, most;
    uint32_t n = 0, i;
    size_t size;
    void *mem;
    memset(&config, 0, sizeof config);
    config.servers = cold ? 4 : 3;
    config.timeout_ns = 200000000;
    size = twochoice_placement_memsize(&config);
    mem = aligned_alloc(64, size);
    CHECK_EQ(twochoice_placement_init(&placement, mem, size, &config), QOS_OK);
    CHECK_EQ(twochoice_placement_begin(&placement, now, w, cold ? 2 : 1, 0, &request), QOS_OK);
    while (now < 40000000 && wakes < 1000000) {
        twochoice_placement_step(&placement, now, &o);
        if (o.todo == TWOCHOICE_PLACE_WAIT) {
            CHECK(o.next_ns > now);
            now = o.next_ns;
            wakes++;
        }
        if (o.todo != TWOCHOICE_PLACE_SEND || o.message.type != TWOCHOICE_RESERVE || n == 4)
            continue;
        heard[n] = o.message;
        heard[n].state = TWOCHOICE_UP;
        heard[n].wait_ns = cold ? 0 : n == 0 ? 50000000 : 100000000;
        heard[n].service_ns = cold ? 0 : n == 0 ? 1000000 : service_ns;
        heard[n].type = (cold ? n % 2 == 0 : n == 0) ? TWOCHOICE_ANSWER : TWOCHOICE_ASK;
        n++;
        if (!cold)
            twochoice_placement_heard(&placement, now, &heard[n - 1], &answer);
        else if (n == 4)
            for (now += 100000, i = 1; i < 4; i++)
                twochoice_placement_heard(&placement, now, &heard[i], &answer);
    }
    most = 40000000 / (config.timeout_ns / 4096);
    CHECK(n >= 2);
    CHECK(wakes < most + 50);
    free(mem);
}

/* A clock that was read up to a quarter of the timeout ago, in some calls, brings no timeout sooner; one that was set back
 * by an hour delays it by that quarter at most. */
static void old_clock(uint64_t old_ms, bool set)
{
    const struct twochoice_write w = {0, 1 << 20};
    struct twochoice_placement_config config;
    struct twochoice_placement placement;
    struct twochoice_message m, answer;
    struct twochoice_place_order o;
    uint64_t request = 0, sent = 0, again = 0, ms, now;
    void *mem;
    memset(&config, 0, sizeof config);
    config.servers = 4;
    config.max_writes = 1;
    mem = aligned_alloc(64, twochoice_placement_memsize(&config));
    CHECK_EQ(twochoice_placement_init(&placement, mem, twochoice_placement_memsize(&config), &config), QOS_OK);
    now = UINT64_C(7200000000000);
    CHECK_EQ(twochoice_placement_begin(&placement, now, &w, 1, 0, &request), QOS_OK);
    for (ms = 1; ms < 400 && again == 0; ms++) {
        const uint64_t true_ns = now + ms * 1000000 - (set && ms > 20 ? UINT64_C(3600000000000) : 0);
        const uint64_t now_ns = true_ns - (ms % 4 == 3 ? old_ms * 1000000 : 0);
        while (twochoice_placement_step(&placement, now_ns, &o), o.todo != TWOCHOICE_PLACE_WAIT) {
            if (o.todo == TWOCHOICE_PLACE_BIND) {
                *(sent ? &again : &sent) = ms;
            } else if (o.message.type == TWOCHOICE_RESERVE && o.server != 0) {
                m = o.message;
                m.type = TWOCHOICE_ASK;
                m.wait_ns = m.service_ns = 0;
                (void)twochoice_placement_heard(&placement, now_ns, &m, &answer);
            }
        }
    }
    CHECK(sent > 0 && again >= sent + 200 && again <= sent + (set ? 250 : 201) + old_ms);
    free(mem);
}

/* What became of a write is known until 16 * max_writes newer ones were begun, wherever in its group its stamp is. */
static void known_for_as_long_as_stated(uint32_t max_writes)
{
    struct twochoice_table_config config;
    struct twochoice_piece p;
    uint64_t first = 0, stamp = 0;
    uint32_t before, i;
    size_t n;
    memset(&config, 0, sizeof config);
    config.max_fragments = 100;
    config.max_writes = max_writes;
    for (before = 0; before < 260; before++) {
        void *mem = aligned_alloc(64, twochoice_table_memsize(&config));
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        for (i = 0; i <= before; i++) {
            CHECK_EQ(twochoice_table_write_begin(&t, 7, 2, 0, 4096, &first), QOS_OK);
            CHECK_EQ(twochoice_table_write_end(&t, first, &p, 1, &n), QOS_OK);
        }
        for (i = 0; i < 16 * max_writes; i++) {
            CHECK_EQ(twochoice_table_write_end(&t, first, &p, 1, &n), QOS_OK);
            CHECK_EQ(twochoice_table_write_begin(&t, 7, 2, 0, 4096, &stamp), QOS_OK);
            CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_OK);
        }
        free(mem);
    }
}

int main(void)
{
    check_begin("twochoice_ends");
    check_rng_init(&rng, 1);
    full_log();
    stamps();
    stamps_after_damage();
    failing_storage();
    long_write();
    full_pulls();
    broken_log();
    outrun();
    broken_trees(true);
    broken_trees(false);
    smaller_table();
    odd_settings();
    seeds();
    refused_record();
    marks();
    failed_syncs();
    zeros_in_a_record();
    checker_sides();
    pulled_by_another();
    placement_ends();
    intake_ends();
    largest_request();
    known_for_as_long_as_stated(1);
    known_for_as_long_as_stated(8);
    known_for_as_long_as_stated(20);
    old_clock(0, false);
    old_clock(3, false);
    old_clock(20, false);
    old_clock(49, false);
    old_clock(0, true);
    old_clock(20, true);
    declined_wakes_seldom(0);
    declined_wakes_seldom(1);
    declined_wakes_seldom(1000);
    return check_end();
}
