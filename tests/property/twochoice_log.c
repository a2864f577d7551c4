// proves: recovery returns exactly the acknowledged changes, and possibly some that came later in order, or a clear
// proves: error: torn at every byte, every bit flipped, tails duplicated, cut and left over, a machine that stops after
// proves: every possible write, in compaction too (paper, Section V-B: "can be easily rebuilt from log file").
#include "property/twochoice_disk.h"

#define CELLS 200
#define CHANGES 60
#define NOBODY 77

static struct check_rng rng;

/* What a table says, as a byte map of one object. */
struct map {
    uint32_t target[CELLS];
};

struct change {
    unsigned from, to;
    uint32_t target;
};

static void map_clear(struct map *m)
{
    unsigned i;
    for (i = 0; i < CELLS; i++)
        m->target[i] = TWOCHOICE_LOCAL;
}

static void map_apply(struct map *m, const struct change *c)
{
    unsigned i;
    for (i = c->from; i < c->to; i++)
        m->target[i] = c->target;
}

static void map_read(struct map *m, const struct twochoice_table *t)
{
    unsigned i;
    for (i = 0; i < CELLS; i++) {
        struct twochoice_piece p;
        twochoice_table_find(t, 3, i, &p);
        m->target[i] = p.target;
    }
}

static bool map_equal(const struct map *a, const struct map *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static struct change pick(void)
{
    struct change c;
    c.from = (unsigned)check_between(&rng, 0, CELLS - 1);
    c.to = c.from + (unsigned)check_between(&rng, 1, 30);
    if (c.to > CELLS)
        c.to = CELLS;
    c.target = check_between(&rng, 0, 3) ? (uint32_t)check_between(&rng, 0, 6) : TWOCHOICE_LOCAL;
    return c;
}

static enum qos_status make(struct twochoice_table *t, const struct change *c)
{
    if (c->target == TWOCHOICE_LOCAL)
        return twochoice_table_local(t, 3, c->from, c->to - c->from);
    return twochoice_table_create(t, 3, c->target, c->from, c->to - c->from, false);
}

struct bench {
    struct disk disk;
    struct twochoice_storage storage;
    struct twochoice_table_config cfg;
    struct twochoice_table t;
    void *mem;
};

static void bench_init(struct bench *b)
{
    disk_init(&b->disk, &rng, &b->storage);
    memset(&b->cfg, 0, sizeof b->cfg);
    b->cfg.max_fragments = 500;
    b->cfg.home = NOBODY;
    b->cfg.storage = &b->storage;
    b->mem = aligned_alloc(64, twochoice_table_memsize(&b->cfg));
    CHECK_EQ(twochoice_table_init(&b->t, b->mem, twochoice_table_memsize(&b->cfg), &b->cfg), QOS_OK);
}

static enum qos_status recover(struct bench *b, uint32_t flags, struct twochoice_recovery *r)
{
    CHECK_EQ(twochoice_table_init(&b->t, b->mem, twochoice_table_memsize(&b->cfg), &b->cfg), QOS_OK);
    return twochoice_table_recover(&b->t, flags, r);
}

static void bench_free(struct bench *b)
{
    disk_free(&b->disk);
    free(b->mem);
}

static void set_log(struct bench *b, const uint8_t *bytes, size_t len)
{
    disk_resize(&b->disk.log[0], len);
    memcpy(b->disk.log[0].data, bytes, len);
    b->disk.log[0].durable = len;
}

/* A log of acknowledged changes, each committed, and the map after each record. */
static size_t build(struct bench *b, struct map *after, size_t *records)
{
    struct map m;
    size_t n = 0;
    map_clear(&m);
    after[0] = m;
    CHECK_EQ(twochoice_table_format(&b->t), QOS_OK);
    while (n < CHANGES) {
        struct change c = pick();
        uint64_t before = b->disk.log[0].len;
        CHECK_EQ(make(&b->t, &c), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&b->t), QOS_OK);
        map_apply(&m, &c);
        if (b->disk.log[0].len == before)
            continue; /* nothing was redirected there: nothing to record */
        after[++n] = m;
    }
    *records = n;
    CHECK_EQ(b->disk.log[0].len, (n + 1) * TWOCHOICE_RECORD_BYTES);
    return b->disk.log[0].len;
}

static void check_prefix(struct bench *b, const struct map *want)
{
    struct map got;
    map_read(&got, &b->t);
    CHECK(map_equal(&got, want));
    CHECK_EQ(twochoice_table_verify(&b->t), QOS_OK);
    CHECK_EQ(twochoice_table_create(&b->t, 3, 2, 5, 10, false),
             QOS_OK); /* and it serves again, across another restart */
    CHECK_EQ(twochoice_table_commit(&b->t), QOS_OK);
    CHECK_EQ(recover(b, 0, NULL), QOS_OK);
    twochoice_table_find(&b->t, 3, 14, &(struct twochoice_piece){0});
    map_read(&got, &b->t);
    CHECK_EQ(got.target[14], 2);
}

static void torn_and_damaged(void)
{
    static struct map after[CHANGES + 1];
    struct bench b;
    struct twochoice_recovery r;
    size_t records, len, cut, bit;
    uint8_t *log;
    bench_init(&b);
    len = build(&b, after, &records);
    log = (uint8_t *)malloc(len * 2);
    memcpy(log, b.disk.log[0].data, len);
    for (cut = 0; cut <= len; cut++) { /* the file ends anywhere */
        CHECK_CONTEXT("cut at %zu", cut);
        set_log(&b, log, cut);
        CHECK_EQ(recover(&b, 0, &r), QOS_OK);
        CHECK_EQ(r.dropped_bytes, cut % TWOCHOICE_RECORD_BYTES);
        CHECK_EQ(r.records, cut < 48 ? 0 : cut / 48 - 1);
        check_prefix(&b, &after[r.records]);
    }
    for (cut = 1; cut <= 200; cut++) { /* the last 200 bytes are zeros from anywhere on */
        CHECK_CONTEXT("zeros for the last %zu", cut);
        set_log(&b, log, len);
        memset(b.disk.log[0].data + len - cut, 0, cut);
        CHECK_EQ(recover(&b, 0, &r), QOS_OK);
        CHECK_EQ(r.records, records - (cut + 47) / 48);
        check_prefix(&b, &after[r.records]);
    }
    for (bit = 0; bit < len * 8; bit++) { /* any bit, in the last record and the header too */
        enum qos_status st;
        CHECK_CONTEXT("bit %zu", bit);
        set_log(&b, log, len);
        b.disk.log[0].data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        st = recover(&b, 0, &r);
        CHECK_EQ(st, QOS_ECORRUPT);
        CHECK_EQ(r.valid_bytes, bit / 8 / 48 * 48); /* and it says where */
        CHECK_EQ(b.t.fragments, 0);
        if (bit % 8 == 0) {
            st = recover(&b, TWOCHOICE_ACCEPT_PREFIX, &r);
            CHECK_EQ(st, bit / 8 < 48 ? QOS_ECORRUPT : QOS_OK);
            if (st == QOS_OK)
                check_prefix(&b, &after[r.records]);
        }
    }
    for (cut = 1; cut <= records; cut++) { /* the last records once more behind the end */
        size_t tail = cut * 48;
        CHECK_CONTEXT("duplicate of %zu records", cut);
        memcpy(log + len, log + len - tail, tail);
        set_log(&b, log, len + tail);
        CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
        CHECK_EQ(r.valid_bytes, len);
        CHECK_EQ(recover(&b, TWOCHOICE_ACCEPT_PREFIX, &r), QOS_OK);
        CHECK_EQ(r.dropped_bytes, tail);
        check_prefix(&b, &after[records]);
    }
    for (cut = 1; cut < records; cut++) { /* a record in the middle was lost: zeros, though it was durable */
        set_log(&b, log, len);
        memset(b.disk.log[0].data + cut * 48, 0, 48);
        CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
        CHECK_EQ(r.valid_bytes, cut * 48);
    }
    for (cut = 1; cut < records; cut++) { /* a record in the middle is gone, the rest moved up */
        set_log(&b, log, len);
        memmove(b.disk.log[0].data + cut * 48, b.disk.log[0].data + cut * 48 + 48, len - cut * 48 - 48);
        disk_resize(&b.disk.log[0], len - 48);
        CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
        CHECK_EQ(r.valid_bytes, cut * 48);
    }
    free(log);
    bench_free(&b);
}

/* Seals record i of a log again after its bytes were changed, and all behind it. */
static void reseal(uint8_t *log, size_t i, size_t records)
{
    for (; i <= records; i++) {
        uint32_t seed = i ? qos_get_le32(log + i * 48 - 48) : 0;
        qos_put_le32(log + i * 48, qos_crc32c(seed, log + i * 48 + 4, 44));
    }
}

static void well_formed_but_wrong(void)
{
    static struct map after[CHANGES + 1];
    struct bench b;
    size_t records, len;
    uint8_t *log;
    unsigned i;
    static const struct {
        size_t byte;
        uint8_t value;
        enum qos_status header, record;
    } wrong[] = {
        {4, 2, QOS_EVERSION, QOS_EVERSION}, {4, 255, QOS_EVERSION, QOS_EVERSION}, {4, 0, QOS_ECORRUPT, QOS_ECORRUPT},
        {5, 0, QOS_ECORRUPT, QOS_ECORRUPT}, {5, 9, QOS_ECORRUPT, QOS_ECORRUPT},   {8, NOBODY + 1, QOS_EINVAL, QOS_OK},
        {23, 255, QOS_OK, QOS_ECORRUPT},    {38, 1, QOS_ECORRUPT, QOS_ECORRUPT},
    };
    bench_init(&b);
    len = build(&b, after, &records);
    log = (uint8_t *)malloc(len);
    memcpy(log, b.disk.log[0].data, len);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t at;
        for (at = 0; at <= records; at += at ? 7 : 1) {
            CHECK_CONTEXT("byte %zu of record %zu is %u", wrong[i].byte, at, wrong[i].value);
            set_log(&b, log, len);
            b.disk.log[0].data[at * 48 + wrong[i].byte] = wrong[i].value;
            reseal(b.disk.log[0].data, at, records);
            CHECK_EQ(recover(&b, 0, NULL), at ? wrong[i].record : wrong[i].header);
        }
    }
    set_log(&b, log, len); /* a redirect to the home server itself, or to no server */
    b.disk.log[0].data[48 + 5] = 2;
    qos_put_le16(b.disk.log[0].data + 48 + 6, NOBODY);
    reseal(b.disk.log[0].data, 1, records);
    CHECK_EQ(recover(&b, 0, NULL), QOS_ECORRUPT);
    qos_put_le16(b.disk.log[0].data + 48 + 6, 0xffff);
    reseal(b.disk.log[0].data, 1, records);
    CHECK_EQ(recover(&b, 0, NULL), QOS_ECORRUPT);
    set_log(&b, log, len);
    b.cfg.max_fragments = 1; /* more fragments than fit now */
    CHECK_EQ(recover(&b, 0, NULL), QOS_EFULL);
    CHECK_EQ(b.t.fragments, 0);
    b.cfg.max_fragments = 500;
    CHECK_EQ(recover(&b, 0, NULL), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&b.t, 0, NULL), QOS_EBUSY);
    CHECK_EQ(twochoice_table_format(&b.t), QOS_EBUSY);
    free(log);
    bench_free(&b);
}

/* One life of a server: changes, commits and compactions until the machine stops; then recovery. Returns false when
 * the life ended before the stop. */
static bool live(uint64_t stop_after, unsigned lives, bool batches)
{
    static struct change pending[4 * CHANGES];
    struct bench b;
    struct map acknowledged, now, got;
    bool stopped = false;
    unsigned life;
    bench_init(&b);
    CHECK_EQ(twochoice_table_format(&b.t), QOS_OK);
    map_clear(&acknowledged);
    for (life = 0; life < lives; life++) {
        struct twochoice_recovery r;
        unsigned n = 0, i;
        bool found;
        b.disk.operations = 0;
        b.disk.stop_after = stop_after;
        for (i = 0; i < CHANGES; i++) {
            struct change c = pick();
            bool done;
            pending[n++] = c; /* if it fails, a crash may still have left its record */
            if (make(&b.t, &c) != QOS_OK)
                break;
            if (!batches || check_between(&rng, 0, 4) == 0) {
                if (twochoice_table_commit(&b.t) != QOS_OK)
                    break;
                for (; n > 0; n--, memmove(pending, pending + 1, n * sizeof *pending))
                    map_apply(&acknowledged, &pending[0]);
            }
            if (i % 3 == 0 && !b.t.compacting && twochoice_table_compact_start(&b.t) != QOS_OK)
                break;
            if (b.t.compacting && twochoice_table_compact_step(&b.t, 6, &done) != QOS_OK)
                break;
            if (b.t.compacting == false && check_between(&rng, 0, 9) == 0)
                CHECK_EQ(twochoice_table_verify(&b.t), QOS_OK);
        }
        stopped = b.disk.stopped;
        disk_crash(&b.disk);
        CHECK_EQ(recover(&b, 0, &r), QOS_OK);
        map_read(&got, &b.t);
        now = acknowledged;
        found = map_equal(&got, &now);
        for (i = 0; i < n && !found; i++) {
            map_apply(&now, &pending[i]);
            found = map_equal(&got, &now);
        }
        CHECK(found);
        acknowledged = got; /* what recovery found is durable from now on */
    }
    bench_free(&b);
    return stopped;
}

/* The storage fails, but the machine goes on: nothing that failed is visible, and a compaction heals a failed sync. */
static void errors_without_a_crash(void)
{
    struct bench b;
    struct map m, got;
    struct change c;
    bool done;
    unsigned i, failed = 0;
    bench_init(&b);
    CHECK_EQ(twochoice_table_format(&b.t), QOS_OK);
    map_clear(&m);
    for (i = 0; i < check_scaled(2000); i++) {
        c = pick();
        b.disk.operations = 0;
        b.disk.stop_after = check_between(&rng, 0, 2) ? 0 : 1;
        if (make(&b.t, &c) == QOS_OK)
            map_apply(&m, &c);
        else
            failed++;
        b.disk.stopped = false;
        b.disk.stop_after = 0;
        map_read(&got, &b.t);
        CHECK(map_equal(&got, &m));
        if (i % 50 == 49) {
            CHECK_EQ(twochoice_table_compact_start(&b.t), QOS_OK);
            CHECK_EQ(twochoice_table_compact_step(&b.t, 1000, &done), QOS_OK);
            CHECK(done);
        }
        if (i % 20 == 19) {
            CHECK_EQ(twochoice_table_commit(&b.t), QOS_OK);
            CHECK_EQ(recover(&b, 0, NULL), QOS_OK);
            map_read(&got, &b.t);
            CHECK(map_equal(&got, &m));
        }
    }
    CHECK(failed > check_scaled(2000) / 8);
    c.from = 0;
    c.to = 5;
    c.target = 4;
    CHECK_EQ(make(&b.t, &c), QOS_OK);
    map_apply(&m, &c);
    b.disk.stop_after = 1;
    b.disk.operations = 0;
    CHECK_EQ(twochoice_table_commit(&b.t), QOS_EIO);
    b.disk.stopped = false;
    b.disk.stop_after = 0;
    CHECK_EQ(twochoice_table_commit(&b.t), QOS_EIO);
    CHECK_EQ(make(&b.t, &c), QOS_EIO);
    CHECK_EQ(twochoice_table_reserve(&b.t), QOS_EIO);
    CHECK_EQ(twochoice_table_compact_start(&b.t), QOS_OK);
    CHECK_EQ(twochoice_table_compact_start(&b.t), QOS_EBUSY);
    CHECK_EQ(twochoice_table_compact_step(&b.t, 1000, &done), QOS_OK);
    CHECK(done);
    CHECK_EQ(twochoice_table_commit(&b.t), QOS_OK);
    CHECK_EQ(recover(&b, 0, NULL), QOS_OK);
    map_read(&got, &b.t);
    CHECK(map_equal(&got, &m));
    bench_free(&b);
}

int main(void)
{
    uint64_t stop, seeds, s;
    check_begin("twochoice_log");
    seeds = check_scaled(40);
    check_rng_init(&rng, 1);
    torn_and_damaged();
    well_formed_but_wrong();
    for (s = 0; s < seeds; s++) { /* after each of its writes, however many there are */
        for (stop = 1; live(stop, 1, s % 2); stop++)
            CHECK_CONTEXT("stops at operation %u of life %u", (unsigned)stop, (unsigned)s);
        CHECK_GE(stop, CHANGES);
        (void)live(1 + check_between(&rng, 0, 30), 5, true); /* dies again and again */
    }
    CHECK_CONTEXT("errors");
    errors_without_a_crash();
    return check_end();
}
