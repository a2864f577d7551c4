// proves: what was acknowledged is there after a power cut, whichever syncs, writes, cuts and swaps fail, and in whatever
// proves: order commits end: a commit counts for the logs that it synced only, a failed sync is never trusted again, a
// proves: repeated end of a write changes nothing, reserved room stays free, no stamp comes twice
// variants: native san i386
#include "property/twochoice_disk.h"

static struct check_rng rng;
static struct disk disk;
static struct twochoice_table t;
static struct twochoice_table_config config;
static struct twochoice_storage storage;
static void *mem;

static void start(uint32_t fragments, uint64_t max_log_bytes, uint32_t writes)
{
    disk_init(&disk, &rng, &storage);
    disk.lies = true;
    memset(&config, 0, sizeof config);
    config.max_fragments = fragments;
    config.max_log_bytes = max_log_bytes;
    config.max_writes = writes;
    config.storage = &storage;
    mem = aligned_alloc(64, twochoice_table_memsize(&config));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
}

static void end(void)
{
    free(mem);
    disk_free(&disk);
}

/* Power is lost: nothing that was not synced is left. */
static enum qos_status power_cut(uint32_t flags)
{
    int i;
    for (i = 0; i < 2; i++) {
        disk.log[i].len = disk.log[i].durable;
        disk.log[i].stuck = false;
    }
    disk_resize(&disk.log[TWOCHOICE_MARK_LOG], disk.mark_len);
    memcpy(disk.log[TWOCHOICE_MARK_LOG].data, disk.mark, disk.mark_len);
    disk_restart(&disk);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    return twochoice_table_recover(&t, flags, NULL);
}

static void write_some(uint64_t object, uint32_t n)
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        CHECK_EQ(redirect(&t, object, 100 * i, 50, 2 + i % 3), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    }
}

static uint32_t redirected(uint64_t object, uint32_t n)
{
    uint32_t i, have = 0;
    for (i = 0; i < n; i++) {
        struct twochoice_piece p;
        twochoice_table_find(&t, object, 100 * i, &p);
        have += p.target != TWOCHOICE_LOCAL;
    }
    return have;
}

static void copy_all(enum twochoice_compact_todo *todo)
{
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    do
        CHECK_EQ(twochoice_table_compact_step(&t, 8, todo), QOS_OK);
    while (*todo == TWOCHOICE_COMPACT_STEP);
}

static void sync_all(const struct twochoice_commit *c)
{
    int log;
    for (log = 0; log < 3; log++)
        if (c->logs & 1u << log)
            CHECK_EQ(storage.sync(storage.ctx, log), 0);
}

/* A commit begins and syncs during a compaction that ends in vain; it ends when the next attempt has copied all. */
static void commit_of_an_attempt(int how)
{
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    struct twochoice_commit c1, c2;
    start(200, 0, 0);
    write_some(7, 100);
    copy_all(&todo);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_COMMIT);
    CHECK_EQ(twochoice_table_commit_begin(&t, &c1), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &c2), QOS_OK);
    sync_all(&c1);
    if (how == 0) { /* another commit's sync fails */
        CHECK_EQ(twochoice_table_commit_end(&t, &c2, false), QOS_EIO);
    } else if (how == 1) { /* the other log's device is full */
        disk.operations = 0;
        disk.stop_after = 2; /* the record in the active log, then the same in the other one */
        CHECK_EQ(redirect(&t, 7, 0, 50, 9), QOS_OK);
        disk.stopped = false;
        disk.stop_after = 0;
        CHECK(!counts_of(&t).compacting);
    } else { /* the swap fails */
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        CHECK_EQ(twochoice_table_compact_step(&t, 8, &todo), QOS_OK);
        CHECK_EQ(todo, TWOCHOICE_COMPACT_SWAP);
        CHECK_EQ(twochoice_table_compact_end(&t, false), QOS_EIO);
    }
    copy_all(&todo);
    (void)!twochoice_table_commit_end(&t, &c1, true); /* it synced the log of the first attempt */
    CHECK_EQ(twochoice_table_compact_step(&t, 8, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_COMMIT);
    (void)!twochoice_table_commit(&t);
    CHECK_EQ(twochoice_table_compact_step(&t, 8, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_SWAP);
    CHECK_EQ(storage.swap(storage.ctx, (int)counts_of(&t).next_log), 0);
    CHECK_EQ(twochoice_table_compact_end(&t, true), QOS_OK);
    CHECK(!counts_of(&t).log_broken);
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(7, 100), 100);
    end();
}

/* The same commit ends when the second attempt is the active log: later commits must sync. */
static void commit_of_an_old_log(void)
{
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    struct twochoice_commit c1;
    uint32_t i;
    start(200, 0, 0);
    write_some(7, 100);
    copy_all(&todo);
    CHECK_EQ(twochoice_table_commit_begin(&t, &c1), QOS_OK);
    sync_all(&c1);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 8, &todo), QOS_OK);
    CHECK_EQ(twochoice_table_compact_end(&t, false), QOS_EIO);
    CHECK_EQ(redirect(&t, 7, 0, 20000, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(twochoice_table_commit_end(&t, &c1, true), QOS_OK); /* its changes are durable by now */
    for (i = 0; i < 50; i++) {
        CHECK_EQ(redirect(&t, 8, 100 * i, 50, 3), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    }
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(8, 50), 50);
    CHECK_EQ(redirected(7, 100), 0);
    end();
}

/* The sync of the new log fails while its swap is under way. A second one succeeds, and says nothing. */
static void sync_that_lies(void)
{
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    struct twochoice_commit c, other;
    uint64_t changes;
    start(200, 0, 0);
    write_some(7, 20);
    copy_all(&todo);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_step(&t, 8, &todo), QOS_OK);
    CHECK_EQ(todo, TWOCHOICE_COMPACT_SWAP);
    CHECK_EQ(redirect(&t, 9, 0, 50, 4), QOS_OK);
    changes = counts_of(&t).changes;
    CHECK_EQ(twochoice_table_commit_begin(&t, &c), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &other), QOS_OK);
    CHECK_EQ(storage.sync(storage.ctx, 0), 0);
    disk.operations = 0;
    disk.stop_after = 1;
    CHECK_EQ(storage.sync(storage.ctx, 1) == 0 && !disk.log[1].stuck, false);
    disk.log[1].stuck = true; /* its pages are lost, and clean */
    disk.stopped = false;
    disk.stop_after = 0;
    CHECK_EQ(twochoice_table_commit_end(&t, &c, false), QOS_EIO);
    CHECK_EQ(twochoice_table_commit_end(&t, &other, true), QOS_EIO); /* it was told the lie */
    CHECK(counts_of(&t).durable_changes < changes);
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO);
    CHECK_EQ(redirect(&t, 9, 100, 50, 4), QOS_EIO);
    CHECK_EQ(storage.swap(storage.ctx, (int)counts_of(&t).next_log), 0);
    CHECK_EQ(twochoice_table_compact_end(&t, true), QOS_OK);
    CHECK(counts_of(&t).durable_changes < changes && counts_of(&t).log_broken);
    CHECK_EQ(twochoice_table_commit(&t), QOS_EIO);
    if (check_between(&rng, 0, 1)) {
        CHECK_EQ(power_cut(0), QOS_OK);
        CHECK_EQ(redirected(7, 20), 20);
    } else {
        const uint64_t creates = disk.creates;
        CHECK_EQ(twochoice_table_compact(&t), QOS_OK); /* in new blocks */
        CHECK_EQ(disk.creates, creates + 1);
        CHECK_EQ(counts_of(&t).durable_changes, changes);
        CHECK_EQ(power_cut(0), QOS_OK);
        CHECK_EQ(redirected(7, 20), 20);
        CHECK_EQ(redirected(9, 1), 1);
    }
    end();
}

/* A sync failed, and the process starts again without a power cut: the page cache still shows the records. */
static void sync_that_failed_before_a_restart(void)
{
    start(200, 0, 0);
    write_some(7, 20);
    CHECK_EQ(redirect(&t, 8, 0, 50, 4), QOS_OK);
    disk.log[0].stuck = true;
    disk_restart(&disk);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_OK);
    CHECK_EQ(redirected(8, 1), 1);
    CHECK_EQ(redirect(&t, 9, 0, 50, 4), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(7, 20) + redirected(8, 1) + redirected(9, 1), 22);
    end();
}

static bool no_write;
static uint32_t tries;

static int write_or_fail(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    tries += no_write && log == 0;
    return no_write && log == 0 ? -1 : disk_write(ctx, log, offset, buf, len);
}

/* The device of the active log refuses everything: a compaction ends, and does not need it. */
static void dead_device(void)
{
    start(100, 0, 0);
    storage.write = write_or_fail;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    write_some(7, 20);
    no_write = true;
    CHECK_EQ(redirect(&t, 7, 4000, 50, 2), QOS_EIO);
    CHECK_EQ(redirect(&t, 7, 5000, 50, 2), QOS_EIO);
    CHECK(counts_of(&t).log_broken);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK); /* of what was recorded before */
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(tries, 1); /* nothing is tried twice, and nothing follows it */
    CHECK_EQ(redirect(&t, 7, 5000, 50, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    no_write = false;
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(7, 51), 21);
    end();
}

/* A record whose write failed may be on the device, whole. Until another log counts, its piece must not be dropped. */
static void record_that_comes_back(void)
{
    uint64_t stamp = 0;
    struct twochoice_piece p;
    size_t n;
    start(100, 0, 0);
    write_some(7, 3);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 9, 0, 50, &stamp), QOS_OK);
    no_write = true;
    storage.write = write_or_fail;
    t.storage = storage; /* from now on */
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_EIO);
    CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_EIO); /* a crash may bring it back */
    no_write = false;
    CHECK(twochoice_table_refers(&t, 7, stamp, 0, 50));
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK); /* what is before it is acknowledged */
    CHECK_EQ(counts_of(&t).durable_changes, counts_of(&t).changes);
    CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_EIO);         /* a sync may have made it durable */
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_EIO); /* nothing follows it */
    CHECK(twochoice_table_refers(&t, 7, stamp, 0, 50));
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_OK);
    CHECK(!twochoice_table_refers(&t, 7, stamp, 0, 50));
    end();
}

/* Three commits sync the same mark; each ends when the next mark may have been written. */
static void marks(void)
{
    struct twochoice_commit c[3];
    uint32_t i, slot;
    uint64_t unsynced = 0;
    start(100, 0, 0);
    config.mark_commits = 1;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    write_some(7, 6);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(redirect(&t, 8, 100 * i, 50, 2), QOS_OK);
        CHECK_EQ(twochoice_table_commit_begin(&t, &c[i]), QOS_OK);
    }
    for (i = 0; i < 3; i++)
        sync_all(&c[i]);
    for (i = 0; i < 3; i++)
        CHECK_EQ(twochoice_table_commit_end(&t, &c[i], true), QOS_OK);
    for (slot = 0; slot < 1024; slot += 512) /* of two slots one at most is not synced */
        unsynced += memcmp(disk.log[TWOCHOICE_MARK_LOG].data + slot, disk.mark + slot, 512) != 0;
    CHECK_LE(unsynced, 1);
    disk.operations = 0;
    CHECK_EQ(redirect(&t, 8, 900, 50, 2), QOS_OK);
    CHECK_EQ(twochoice_table_commit_begin(&t, &c[0]), QOS_OK);
    CHECK((c[0].logs & 1u << TWOCHOICE_MARK_LOG) != 0);
    CHECK_EQ(twochoice_table_commit_end(&t, &c[0], false), QOS_EIO); /* of its mark, too */
    CHECK(counts_of(&t).log_broken);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    write_some(9, 3);
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(7, 6) + redirected(9, 3), 9);
    end();
}

/* A client's answer is lost, and it asks again: never A, B, A. Also after a restart. */
static void repeated_ends(void)
{
    struct twochoice_piece p[4];
    uint64_t a = 0, b = 0, gone = 0, open = 0, home = 0, i, old[600];
    size_t n;
    start(2000, 0, 64);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 2, 0, 100, &a), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 3, 0, 100, &b), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 4, 0, 100, &gone), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 5, 0, 100, &open), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, a, p, 4, &n), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, b, p, 4, &n), QOS_OK);
    CHECK_EQ(twochoice_table_write_cancel(&t, gone), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 9, TWOCHOICE_LOCAL, 0, 100, &home), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, home, p, 4, &n), QOS_OK); /* nothing to record */
    for (i = 0; i < 2; i++) {
        const uint64_t changes = counts_of(&t).changes;
        CHECK_EQ(twochoice_table_write_end(&t, a, p, 4, &n), QOS_OK);
        CHECK_EQ(n, 0);
        CHECK_EQ(twochoice_table_write_end(&t, home, p, 4, &n), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, gone, p, 4, &n), QOS_ENOENT);
        CHECK_EQ(twochoice_table_write_end(&t, b + 1000, p, 4, &n), QOS_ENOENT);
        CHECK_EQ(counts_of(&t).changes, changes);
        twochoice_table_find(&t, 7, 0, p);
        CHECK_EQ(p[0].target, 3);
    }
    CHECK_EQ(redirect(&t, 7, 0, 100, TWOCHOICE_LOCAL), QOS_OK); /* no fragment has their stamps any more */
    for (i = 0; i < 4; i++) {                                   /* restarts, each of which compacts the log */
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        CHECK_EQ(power_cut(0), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, a, p, 4, &n), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, b, p, 4, &n), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, open, p, 4, &n), QOS_ESTALE);
        twochoice_table_find(&t, 7, 0, p);
        CHECK_EQ(p[0].target, TWOCHOICE_LOCAL);
        CHECK_EQ(redirect(&t, 7, 200, 100, 2), QOS_OK);
    }
    for (i = 0; i < 600; i++) { /* of at least 16 * max_writes stamps it is known */
        CHECK_EQ(twochoice_table_write_begin(&t, 8, 2, 200 * i, 100, &old[i]), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, old[i], p, 4, &n), QOS_OK);
    }
    for (i = 0; i < 600; i++)
        CHECK_EQ(twochoice_table_write_end(&t, old[i], p, 4, &n), QOS_OK);
    for (i = 0; i < 1200; i++) {
        CHECK_EQ(twochoice_table_write_begin(&t, 8, 2, 0, 100, &a), QOS_OK);
        CHECK_EQ(twochoice_table_write_cancel(&t, a), QOS_OK);
    }
    CHECK_EQ(twochoice_table_write_end(&t, old[0], p, 4, &n), QOS_ESTALE); /* known no more, and never "begin again" */
    CHECK_EQ(twochoice_table_write_end(&t, a, p, 4, &n), QOS_ENOENT);
    end();
}

/* Records that raise the bound on stamps take no room that an open write has reserved. */
static void reserved_room(void)
{
    uint64_t open[24] = {0}, stamp = 0, i, n_open = 0;
    struct twochoice_piece p;
    enum qos_status st = QOS_OK;
    size_t n;
    start(100, 96 * 102, 0);
    for (i = 0; i < 160; i++)
        CHECK_EQ(redirect(&t, 7, 0, 10, 2 + i % 2), QOS_OK);
    for (n_open = 0; n_open < 24; n_open++)
        CHECK_EQ(twochoice_table_write_begin(&t, 8 + n_open, 2, 0, 10, &open[n_open]), QOS_OK);
    for (i = 0; i < UINT64_C(40) << 20 && st == QOS_OK; i++) { /* stamps until there are no more */
        st = twochoice_table_write_begin(&t, 99, TWOCHOICE_LOCAL, 0, 10, &stamp);
        if (st == QOS_OK)
            CHECK_EQ(twochoice_table_write_cancel(&t, stamp), QOS_OK);
        if (i % 100000 == 0)
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    }
    CHECK_EQ(st, QOS_EFULL); /* compact */
    for (i = 0; i < n_open; i++)
        CHECK_EQ(twochoice_table_write_end(&t, open[i], &p, 1, &n), QOS_OK);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 99, TWOCHOICE_LOCAL, 0, 10, &stamp), QOS_OK);
    end();
}

/* Stamps: one a write, however many are open. None twice, though most of the log is lost. */
static void stamps(void)
{
    static uint64_t open[1024];
    const uint64_t rounds = check_scaled(12) > 4 ? check_scaled(12) : 4; /* fewer, and no mark counts what is cut off */
    uint64_t highest = 0, stamp = 0, i;
    size_t at;
    start(4000, 0, 1024);
    config.mark_commits = 2;
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < 1024; i++)
        CHECK_EQ(twochoice_table_write_begin(&t, 1, 2, 100 * i, 10, &open[i]), QOS_OK);
    for (i = 0; i < check_scaled(100000); i++) {
        const uint64_t k = check_between(&rng, 0, 1023), before = counts_of(&t).stamp;
        CHECK_EQ(twochoice_table_write_cancel(&t, open[k]), QOS_OK);
        CHECK_EQ(twochoice_table_write_begin(&t, 1, 2, 100 * k, 10, &open[k]), QOS_OK);
        CHECK_EQ(open[k], before + 1);
    }
    for (i = 0; i < 1024; i++)
        CHECK_EQ(twochoice_table_write_cancel(&t, open[i]), QOS_OK);
    for (i = 0; i < rounds << 20; i++) { /* each round of 2^20 stamps adds a record to the log */
        enum qos_status st = twochoice_table_write_begin(&t, 1, 2, 0, 10, &highest);
        if (st != QOS_OK) {
            CHECK_EQ(st, QOS_EAGAIN);
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
            continue;
        }
        st = twochoice_table_write_cancel(&t, highest);
        if (st != QOS_OK)
            CHECK_EQ(st, QOS_OK);
    }
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    at = disk.log[0].len / 48; /* all but the header and the first records are cut off */
    disk_resize(&disk.log[0], 48 * 2);
    disk_restart(&disk);
    CHECK(at >= rounds);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_ECORRUPT);
    CHECK_EQ(twochoice_table_recover(&t, TWOCHOICE_ACCEPT_PREFIX, NULL), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 3, 0, 10, &stamp), QOS_OK);
    CHECK(stamp > highest);
    end();
}

/* Stamps above the ceiling of the new log's header are given out before the first record is copied. */
static void stamps_before_the_copy(void)
{
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    uint64_t stamp = 0, i;
    start(100, 0, 0);
    write_some(7, 2);
    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
    for (i = 0; i < (UINT64_C(1) << 20) + 1000; i++) {
        enum qos_status st = twochoice_table_write_begin(&t, 1, 2, 0, 10, &stamp);
        if (st == QOS_OK)
            st = twochoice_table_write_cancel(&t, stamp);
        else if (st == QOS_EAGAIN)
            st = twochoice_table_commit(&t);
        if (st != QOS_OK)
            CHECK_EQ(st, QOS_OK);
    }
    CHECK_EQ(redirect(&t, 7, 100, 50, 5), QOS_OK);
    CHECK(counts_of(&t).stamp > UINT64_C(1) << 20);
    while (todo != TWOCHOICE_COMPACT_SWAP) {
        CHECK_EQ(twochoice_table_compact_step(&t, 8, &todo), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    }
    CHECK_EQ(storage.swap(storage.ctx, (int)counts_of(&t).next_log), 0);
    CHECK_EQ(twochoice_table_compact_end(&t, true), QOS_OK);
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(7, 2), 2);
    end();
}

/* Writes at home that overlap are refused, whatever is open; the oracle looks at all of them. */
static void home_writes(void)
{
    struct {
        uint64_t object, from, to, stamp;
    } w[300];
    uint32_t n = 0, i, k, refused = 0, taken = 0;
    start(1000, 0, 300);
    for (i = 0; i < check_scaled(60000); i++) {
        if (n < 300 && check_between(&rng, 0, 2)) {
            const uint64_t object = check_between(&rng, 1, 3), from = check_between(&rng, 0, 2000),
                           to = from + check_between(&rng, 1, 20);
            bool free_there = true;
            for (k = 0; k < n; k++)
                free_there = free_there && (w[k].object != object || w[k].from >= to || from >= w[k].to);
            CHECK_EQ(twochoice_table_write_begin(&t, object, TWOCHOICE_LOCAL, from, to - from, &w[n].stamp),
                     free_there ? QOS_OK : QOS_EAGAIN);
            refused += !free_there;
            taken += free_there;
            if (free_there) {
                w[n].object = object;
                w[n].from = from;
                w[n++].to = to;
            }
        } else if (n > 0) {
            k = (uint32_t)check_between(&rng, 0, n - 1);
            CHECK_EQ(twochoice_table_write_cancel(&t, w[k].stamp), QOS_OK);
            w[k] = w[--n];
        }
    }
    CHECK(refused > 1000 / check_state.scale && taken > 1000 / check_state.scale);
    end();
}

/* A write that begins without a target: bound once, to a server or home; never counts before; a crash cancels it. */
static void bindings(void)
{
    struct twochoice_piece p[4];
    uint64_t away = 0, home = 0, other = 0, lost = 0;
    uint32_t round;
    size_t n;
    start(7, 0, 64);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_UNBOUND, 0, 100, &away), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_UNBOUND, 100, 100, &home), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_UNBOUND, 150, 100, &lost), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 500, 10, &other), QOS_OK); /* 7 are reserved */
    CHECK_EQ(twochoice_table_write_cancel(&t, other), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_UNBOUND, 500, 10, &other), QOS_EFULL);
    CHECK(twochoice_table_write_next(&t, 0, p));
    CHECK(p[0].version == away && p[0].target == TWOCHOICE_UNBOUND && p[0].end == 100);
    CHECK_EQ(twochoice_table_write_end(&t, away, p, 4, &n), QOS_EINVAL);
    CHECK(twochoice_table_refers(&t, 7, away, 0, 100)); /* it may come */
    CHECK_EQ(twochoice_table_write_bind(&t, away, 0), QOS_EINVAL);
    CHECK_EQ(twochoice_table_write_bind(&t, away, TWOCHOICE_SERVERS_MAX), QOS_ERANGE);
    CHECK_EQ(twochoice_table_write_bind(&t, away, TWOCHOICE_UNBOUND), QOS_ERANGE);
    CHECK_EQ(twochoice_table_write_bind(&t, other + 100, 2), QOS_ENOENT);
    CHECK_EQ(twochoice_table_write_bind(&t, away, 2), QOS_OK);
    CHECK_EQ(twochoice_table_write_bind(&t, away, 2), QOS_OK);
    CHECK_EQ(twochoice_table_write_bind(&t, away, 3), QOS_EBUSY);
    CHECK_EQ(twochoice_table_write_bind(&t, away, TWOCHOICE_LOCAL), QOS_EBUSY);
    CHECK_EQ(twochoice_table_write_bind(&t, home, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(twochoice_table_write_bind(&t, home, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(twochoice_table_write_bind(&t, home, 2), QOS_EBUSY);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 190, 5, &other), QOS_EAGAIN); /* at home now */
    CHECK_EQ(twochoice_table_write_bind(&t, lost, TWOCHOICE_LOCAL), QOS_EAGAIN);
    CHECK_EQ(twochoice_table_write_bind(&t, lost, 65534), QOS_OK); /* not changed by that */
    CHECK_EQ(twochoice_table_write_end(&t, lost, p, 4, &n), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, home, p, 4, &n), QOS_OK);
    CHECK(n == 1 && p[0].version == lost && p[0].target == 65534 && p[0].offset == 150 && p[0].end == 200);
    CHECK_EQ(twochoice_table_write_end(&t, away, p, 4, &n), QOS_OK);
    CHECK_EQ(twochoice_table_write_bind(&t, away, 2), QOS_ENOENT);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    for (round = 0; round < 2; round++) { /* a crash before it is bound, and behind */
        CHECK_EQ(twochoice_table_write_begin(&t, 9, TWOCHOICE_UNBOUND, 0, 100, &lost), QOS_OK);
        if (round)
            CHECK_EQ(twochoice_table_write_bind(&t, lost, 4), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        CHECK_EQ(power_cut(0), QOS_OK);
        CHECK_EQ(counts_of(&t).writes_open, 0);
        CHECK_EQ(twochoice_table_write_bind(&t, lost, 4), QOS_ENOENT);
        CHECK(twochoice_table_write_end(&t, lost, p, 4, &n) != QOS_OK);
        CHECK(!twochoice_table_refers(&t, 9, lost, 0, 100)); /* a piece that has its bytes may be dropped */
        CHECK(twochoice_table_refers(&t, 7, away, 0, 100));
    }
    CHECK(check_tree(&t));
    end();
}

/* A storage that reads as a pipe does, less than it was asked for: nothing is lost. */
static int read_a_little(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    return disk_read(ctx, log, offset, buf, len < 100 ? len : 100, got);
}

static void short_reads(void)
{
    start(200, 0, 0);
    write_some(7, 60); /* none of them is in a mark */
    storage.read = read_a_little;
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(7, 60), 60);
    end();
}

/* The active log has another number after a swap. A format of a table that serves, though all is at home, would write a
 * log that the next start does not read. */
static void format_while_serving(void)
{
    struct twochoice_piece p[16];
    uint64_t stamp;
    size_t n;
    start(200, 0, 0);
    write_some(7, 10);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 0, 1000, &stamp), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, p, 16, &n), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK_EQ(twochoice_table_format(&t), QOS_EBUSY);
    CHECK_EQ(twochoice_table_recover(&t, 0, NULL), QOS_EBUSY);
    CHECK_EQ(redirect(&t, 8, 0, 50, 3), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(redirected(8, 1), 1);
    end();
}

/* Who compacts a log when it is half full does so seldom, and what became of a write is known as stated after a restart,
 * in a log of the stated size. */
static void compacts_seldom(uint32_t max_writes, uint32_t fragments)
{
    const uint64_t half = 48 * (uint64_t)fragments + 12 * (uint64_t)max_writes + 336;
    uint64_t stamp[16 * 64], records = 0, compactions = 0, i;
    struct twochoice_piece p[8];
    size_t n;
    start(fragments, qos_max(2 * half, 96 * (uint64_t)(fragments + 2)), max_writes);
    for (i = 0; i < 4000; i++) {
        const uint64_t before = counts_of(&t).log_bytes;
        CHECK_EQ(redirect(&t, i % (fragments / 2), 0, 4096, 2), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        records += (counts_of(&t).log_bytes - before) / 48;
        if (counts_of(&t).log_bytes >= counts_of(&t).max_log_bytes / 2) {
            CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
            compactions++;
            records += counts_of(&t).log_bytes / 48;
        }
    }
    printf("log of %u bytes: %u compactions in 4000 writes, %u records\n", (unsigned)counts_of(&t).max_log_bytes,
           (unsigned)compactions, (unsigned)records);
    CHECK(compactions <= 4000 * 48 * 4 / half + 1);
    for (i = 0; i < 16 * max_writes && i < 16 * 64; i++) {
        CHECK_EQ(twochoice_table_write_begin(&t, i % (fragments / 2), 2, 0, 4096, &stamp[i]), QOS_OK);
        CHECK_EQ(twochoice_table_write_end(&t, stamp[i], p, 8, &n), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
        if (counts_of(&t).log_bytes >= counts_of(&t).max_log_bytes / 2)
            CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    }
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK_EQ(power_cut(0), QOS_OK);
    for (i = 0; i < 16 * max_writes && i < 16 * 64; i++)
        CHECK_EQ(twochoice_table_write_end(&t, stamp[i], p, 8, &n), QOS_OK);
    end();
}

/* A recover that says QOS_OK has a table that takes writes, whichever of its operations failed. */
static void recover_that_stops(void)
{
    uint64_t k = 1, failed = 0;
    enum qos_status st = QOS_EIO;
    start(100, 0, 0);
    write_some(7, 10);
    for (; st != QOS_OK; k++) {
        int i;
        for (i = 0; i < 2; i++)
            disk.log[i].len = disk.log[i].durable;
        disk_restart(&disk);
        disk.stopped = false;
        disk.operations = 0;
        disk.stop_after = k;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        st = twochoice_table_recover(&t, 0, NULL);
        CHECK(st == QOS_EIO || st == QOS_OK);
        failed += st == QOS_EIO;
        if (st == QOS_OK) {
            CHECK(!counts_of(&t).log_broken);
            CHECK_EQ(redirected(7, 10), 10);
        }
    }
    CHECK(failed > 4);
    end();
}

/* Until the first format has ended there was never a log, whichever of its operations a kill or a power cut met. */
static void format_that_stops(bool power)
{
    uint64_t k = 1;
    enum qos_status st = QOS_EIO;
    for (; st != QOS_OK; k++) {
        int i;
        start(100, 0, 0);
        for (i = 0; i <= TWOCHOICE_MARK_LOG; i++)
            disk_resize(&disk.log[i], 0);
        disk.mark_len = 0;
        disk.operations = 0;
        disk.stop_after = k;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        st = twochoice_table_format(&t);
        disk.stopped = false;
        disk.stop_after = 0;
        for (i = 0; power && i <= TWOCHOICE_MARK_LOG; i++)
            disk_resize(&disk.log[i], disk.log[i].durable);
        disk_restart(&disk);
        if (st == QOS_OK)
            CHECK(k > 8);
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        const enum qos_status found = twochoice_table_recover(&t, 0, NULL);
        CHECK(found == QOS_OK || (found == QOS_ENOENT && st != QOS_OK));
        if (found == QOS_ENOENT)
            CHECK_EQ(twochoice_table_format(&t), QOS_OK);
        write_some(7, 3);
        CHECK_EQ(power_cut(0), QOS_OK);
        CHECK_EQ(redirected(7, 3), 3);
        end();
    }
}

/* A compacted log lost its last record, and the owner takes what is there: of a piece two far parts are in use. A new
 * write replaces one of them; the other is still of the piece. */
static void parts_without_an_end(void)
{
    struct twochoice_piece p[8];
    uint64_t whole, stamp;
    size_t n;
    start(100, 0, 0);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, 3, 0, 1000000, &whole), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, whole, p, 8, &n), QOS_OK);
    CHECK_EQ(twochoice_table_write_begin(&t, 7, TWOCHOICE_LOCAL, 1000, 998000, &stamp), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, p, 8, &n), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    disk.log[disk.active].data[disk.log[disk.active].len - 20] ^= 1;
    CHECK_EQ(power_cut(0), QOS_ECORRUPT);
    CHECK_EQ(power_cut(TWOCHOICE_ACCEPT_PREFIX), QOS_OK);
    CHECK_EQ(redirect(&t, 7, 0, 1000, 4), QOS_OK);
    twochoice_table_find(&t, 7, 999500, &p[0]);
    CHECK_EQ(p[0].version, whole);
    CHECK(twochoice_table_refers(&t, 7, whole, 0, 1000));
    CHECK_EQ(twochoice_table_compact(&t), QOS_OK);
    CHECK_EQ(power_cut(0), QOS_OK);
    CHECK(twochoice_table_refers(&t, 7, whole, 0, 1000));
    end();
}

/* Zeros are where the log, or all but its header, and the mark were: what was acknowledged is damaged, and to make a new
 * log would delete it. */
static void zeros(uint64_t from)
{
    start(100, 0, 0);
    write_some(7, 20);
    memset(disk.log[disk.active].data + from, 0, (size_t)(disk.log[disk.active].len - from));
    memset(disk.mark, 0, disk.mark_len);
    CHECK_EQ(power_cut(0), QOS_ECORRUPT);
    end();
}

int main(void)
{
    int how;
    check_begin("twochoice_commits");
    check_rng_init(&rng, check_seed());
    for (how = 0; how < 3; how++) {
        CHECK_CONTEXT("attempt %d", how);
        commit_of_an_attempt(how);
    }
    commit_of_an_old_log();
    for (how = 0; how < 8; how++)
        sync_that_lies();
    sync_that_failed_before_a_restart();
    dead_device();
    record_that_comes_back();
    marks();
    repeated_ends();
    reserved_room();
    stamps();
    stamps_before_the_copy();
    home_writes();
    bindings();
    short_reads();
    format_while_serving();
    compacts_seldom(8, 100);
    compacts_seldom(64, 8);
    recover_that_stops();
    format_that_stops(false);
    format_that_stops(true);
    parts_without_an_end();
    zeros(0);
    zeros(TWOCHOICE_RECORD_BYTES);
    return check_end();
}
