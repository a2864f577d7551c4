// proves: recovery returns exactly the acknowledged changes, possibly followed by later ones in their order, or an
// proves: error, and never less than the last durable mark. The log is torn at every byte, every bit is flipped,
// proves: sectors are zeroed, records are swapped, doubled and cut out, before and after a compaction; and a machine
// proves: stops after every possible write, in a compaction too (paper, Section V-B: "can be easily rebuilt from log
// proves: file").
#include "property/twochoice_disk.h"

#define CELLS 200
#define CHANGES 60
#define NOBODY 77

static struct check_rng rng;

/* The contents of a table, as a byte map of one object. */
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
        return redirect(t, 3, c->from, c->to - c->from, TWOCHOICE_LOCAL);
    return redirect(t, 3, c->from, c->to - c->from, c->target);
}

struct bench {
    struct disk disk;
    struct twochoice_storage storage;
    struct twochoice_table_config config;
    struct twochoice_table t;
    void *mem;
};

static void bench_init(struct bench *b)
{
    disk_init(&b->disk, &rng, &b->storage);
    memset(&b->config, 0, sizeof b->config);
    b->config.max_fragments = 500;
    b->config.home = NOBODY;
    b->config.mark_commits = 7;
    b->config.storage = &b->storage;
    b->mem = aligned_alloc(64, twochoice_table_memsize(&b->config));
    CHECK_EQ(twochoice_table_init(&b->t, b->mem, twochoice_table_memsize(&b->config), &b->config), QOS_OK);
}

static enum qos_status recover(struct bench *b, uint32_t flags, struct twochoice_recovery *r)
{
    disk_restart(&b->disk);
    CHECK_EQ(twochoice_table_init(&b->t, b->mem, twochoice_table_memsize(&b->config), &b->config), QOS_OK);
    return twochoice_table_recover(&b->t, flags, r);
}

static void bench_free(struct bench *b)
{
    disk_free(&b->disk);
    free(b->mem);
}

/* A log that is damaged again and again. */
static struct built {
    struct map after[CHANGES + 1]; /* by the changes in the log, behind the end record if it is compacted */
    uint8_t log[8192], mark[1024], old_mark[1024];
    size_t len, mark_len, records, base; /* base: records up to the end record, without the header; 0: not compacted */
    uint64_t marked;                     /* records that the mark says are durable */
} built;

static void restore(struct bench *b, size_t len)
{
    disk_restart(&b->disk);
    disk_resize(&b->disk.log[0], len);
    memcpy(b->disk.log[0].data, built.log, len < built.len ? len : built.len);
    b->disk.log[0].durable = len;
    disk_resize(&b->disk.log[TWOCHOICE_MARK_LOG], built.mark_len);
    memcpy(b->disk.log[TWOCHOICE_MARK_LOG].data, built.mark, built.mark_len);
}

/* A log of changes, each committed, and the map after each record; optionally with a compaction in the middle. */
static void build(struct bench *b, bool compacted)
{
    struct map m;
    size_t n = 0, slot, wanted = CHANGES;
    map_clear(&m);
    built.after[0] = m;
    built.base = 0;
    CHECK_EQ(twochoice_table_format(&b->t), QOS_OK);
    while (n < wanted) {
        struct change c = pick();
        uint64_t before = counts_of(&b->t).log_bytes;
        CHECK_EQ(make(&b->t, &c), QOS_OK);
        CHECK_EQ(twochoice_table_commit(&b->t), QOS_OK);
        map_apply(&m, &c);
        if (counts_of(&b->t).log_bytes == before)
            continue; /* nothing was redirected there: nothing to record */
        built.after[++n] = m;
        if (compacted && n == CHANGES / 2) {
            memcpy(built.old_mark, b->disk.log[TWOCHOICE_MARK_LOG].data, sizeof built.old_mark);
            CHECK_EQ(twochoice_table_compact(&b->t), QOS_OK);
            disk_restart(&b->disk);
            CHECK_EQ(recover(b, 0, NULL), QOS_OK); /* log 0 again */
            built.after[0] = m;
            built.base = (size_t)counts_of(&b->t).log_bytes / 48 - 1;
            wanted = 20;
            n = 0;
        }
    }
    disk_restart(&b->disk);
    built.records = built.base + n;
    built.len = b->disk.log[0].len;
    CHECK_EQ(built.len, (built.records + 1) * TWOCHOICE_RECORD_BYTES);
    memcpy(built.log, b->disk.log[0].data, built.len);
    built.mark_len = b->disk.log[TWOCHOICE_MARK_LOG].len;
    memcpy(built.mark, b->disk.log[TWOCHOICE_MARK_LOG].data, built.mark_len);
    built.marked = 0;
    for (slot = 0; slot < 1024; slot += 512)
        if (qos_get_le64(built.mark + slot + 16) == qos_get_le64(built.log + 16)) { /* the mark is of this generation */
            uint64_t records = qos_get_le64(built.mark + slot + 24);
            built.marked = records > built.marked ? records : built.marked;
        }
    CHECK(built.marked > 0 && built.marked < built.records);
}

/* The rule: recovery returns an error, or a prefix that is no shorter than the mark and the end of a compaction. */
static enum qos_status rule(struct bench *b)
{
    struct twochoice_recovery r;
    struct map got;
    enum qos_status st = recover(b, 0, &r);
    if (st != QOS_OK) {
        CHECK(st == QOS_ECORRUPT || st == QOS_ENOENT);
        CHECK_EQ(counts_of(&b->t).fragments, 0);
        return st;
    }
    CHECK_GE(r.records + 1, built.marked);
    CHECK(r.records <= built.records && r.records + (built.base != 0) >= built.base);
    map_read(&got, &b->t);
    CHECK(map_equal(&got, &built.after[r.records < built.base ? 0 : r.records - built.base]));
    CHECK(check_tree(&b->t));
    CHECK_EQ(redirect(&b->t, 3, 5, 10, 2), QOS_OK); /* the table serves again, also after another restart */
    CHECK_EQ(twochoice_table_commit(&b->t), QOS_OK);
    CHECK_EQ(recover(b, 0, NULL), QOS_OK);
    map_read(&got, &b->t);
    CHECK_EQ(got.target[14], 2);
    return QOS_OK;
}

static void torn_and_damaged(bool compacted)
{
    struct bench b;
    struct twochoice_recovery r;
    size_t cut, bit, len, at, ends_at;
    const size_t step = check_scaled(8) == 8 ? 1 : 17; /* in an emulated run every 17th bit: each of a byte in turn */
    uint64_t healthy = 0;
    bench_init(&b);
    build(&b, compacted);
    len = built.len;
    /* if the end record, or the bound on stamps behind it, is lost, there must be an error */
    ends_at = built.base ? built.base : 0;
    for (cut = 0; cut <= len; cut++) { /* the file ends at any byte */
        enum qos_status st;
        CHECK_CONTEXT("%d: cut at %zu", compacted, cut);
        restore(&b, cut);
        st = rule(&b);
        CHECK_EQ(st, cut / 48 >= built.marked && cut / 48 >= ends_at && cut >= 48 ? QOS_OK : QOS_ECORRUPT);
        healthy += st == QOS_OK;
    }
    CHECK_GE(healthy, 48);
    for (cut = 1; cut <= 600; cut++) { /* the last bytes are zeros */
        CHECK_CONTEXT("%d: zeros for the last %zu", compacted, cut);
        restore(&b, len);
        memset(b.disk.log[0].data + len - cut, 0, cut);
        CHECK_EQ(rule(&b), built.records + 1 - (cut + 47) / 48 >= built.marked ? QOS_OK : QOS_ECORRUPT);
    }
    for (bit = 0; bit < len * 8; bit += step) { /* any bit, also in the last record and in the header */
        enum qos_status st;
        CHECK_CONTEXT("%d: bit %zu", compacted, bit);
        restore(&b, len);
        b.disk.log[0].data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        st = recover(&b, 0, &r);
        CHECK_EQ(st, QOS_ECORRUPT);
        CHECK_EQ(r.valid_bytes, bit / 8 / 48 * 48); /* recovery says where */
        CHECK_EQ(counts_of(&b.t).fragments, 0);
        if (bit / step % 64 == 0) {
            st = recover(&b, TWOCHOICE_ACCEPT_PREFIX, &r);
            CHECK_EQ(st, bit / 8 < 48 ? QOS_ECORRUPT : QOS_OK);
            if (st == QOS_OK) { /* it was accepted: the next start finds no damage */
                CHECK_EQ(redirect(&b.t, 3, 5, 10, 2), QOS_OK);
                CHECK_EQ(twochoice_table_commit(&b.t), QOS_OK);
                CHECK_EQ(recover(&b, 0, NULL), QOS_OK);
            }
        }
    }
    for (at = 0; at < len; at += 512) { /* a sector is zeros, is twice there, or changes places with the next */
        size_t n = len - at < 512 ? len - at : 512;
        uint8_t sector[512];
        CHECK_CONTEXT("%d: sector at %zu", compacted, at);
        restore(&b, len);
        memset(b.disk.log[0].data + at, 0, n);
        (void)rule(&b);
        if (at + 1024 > len)
            break;
        restore(&b, len);
        memcpy(b.disk.log[0].data + at + 512, built.log + at, 512);
        CHECK_EQ(rule(&b), QOS_ECORRUPT);
        restore(&b, len);
        memcpy(sector, built.log + at + 512, 512);
        memcpy(b.disk.log[0].data + at + 512, built.log + at, 512);
        memcpy(b.disk.log[0].data + at, sector, 512);
        CHECK_EQ(rule(&b), QOS_ECORRUPT);
    }
    for (cut = 1; cut <= built.records; cut++) {
        size_t tail = cut * 48;
        CHECK_CONTEXT("%d: record %zu", compacted, cut);
        restore(&b, len + tail); /* the last records once more behind the end */
        memcpy(b.disk.log[0].data + len, built.log + len - tail, tail);
        CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
        CHECK_EQ(r.valid_bytes, len);
        restore(&b, len); /* a durable record in the middle is zeros */
        memset(b.disk.log[0].data + cut * 48, 0, 48);
        CHECK_EQ(rule(&b), cut < built.records || built.marked > built.records ? QOS_ECORRUPT : QOS_OK);
        restore(&b, len - 48); /* or is cut out, and the records behind it move up */
        memcpy(b.disk.log[0].data + cut * 48, built.log + cut * 48 + 48, len - cut * 48 - 48);
        CHECK_EQ(rule(&b), cut < built.records ? QOS_ECORRUPT : QOS_OK);
    }
    for (bit = 0; bit < built.mark_len * 8; bit++) { /* one slot of the mark may be torn; the other one counts */
        CHECK_CONTEXT("%d: bit %zu of the mark", compacted, bit);
        restore(&b, len);
        b.disk.log[TWOCHOICE_MARK_LOG].data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        CHECK_EQ(recover(&b, 0, &r), QOS_OK);
        CHECK_EQ(r.records, built.records);
    }
    for (cut = 48; built.base && cut < built.base * 48; cut += 48) { /* the swap is durable, but its mark is not */
        restore(&b, cut);
        memcpy(b.disk.log[TWOCHOICE_MARK_LOG].data, built.old_mark, sizeof built.old_mark);
        CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
    }
    restore(&b, len);
    memset(b.disk.log[TWOCHOICE_MARK_LOG].data, 0, built.mark_len);
    CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
    restore(&b, len);
    disk_resize(&b.disk.log[TWOCHOICE_MARK_LOG], 0);
    CHECK_EQ(recover(&b, 0, &r), QOS_ECORRUPT);
    CHECK_EQ(recover(&b, TWOCHOICE_ACCEPT_PREFIX, &r), QOS_OK);
    CHECK_EQ(recover(&b, 0, &r), QOS_OK);
    disk_restart(&b.disk);
    disk_resize(&b.disk.log[0], 0); /* nothing was ever formatted */
    disk_resize(&b.disk.log[TWOCHOICE_MARK_LOG], 0);
    CHECK_EQ(recover(&b, 0, &r), QOS_ENOENT);
    bench_free(&b);
}

/* Seals record i of a log again after its bytes were changed, and all records behind it. */
static void reseal(uint8_t *log, size_t i, size_t records)
{
    for (; i <= records; i++) {
        uint32_t seed = i ? qos_get_le32(log + i * 48 - 48) : 0;
        qos_put_le32(log + i * 48, qos_crc32c(seed, log + i * 48 + 4, 44));
    }
}

static void well_formed_but_wrong(void)
{
    struct bench b;
    unsigned i;
    static const struct {
        size_t byte;
        uint8_t value;
        enum qos_status header, record;
    } wrong[] = {
        {4, 4, QOS_EVERSION, QOS_EVERSION},  {4, 1, QOS_EVERSION, QOS_EVERSION}, {4, 255, QOS_EVERSION, QOS_EVERSION},
        {4, 0, QOS_ECORRUPT, QOS_ECORRUPT},  {5, 0, QOS_ECORRUPT, QOS_ECORRUPT}, {5, 9, QOS_ECORRUPT, QOS_ECORRUPT},
        {8, NOBODY + 1, QOS_EINVAL, QOS_OK}, {31, 255, QOS_ECORRUPT, QOS_OK},    {23, 255, QOS_ECORRUPT, QOS_ECORRUPT},
        {38, 1, QOS_ECORRUPT, QOS_ECORRUPT},
    };
    bench_init(&b);
    build(&b, false);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t at;
        for (at = 0; at <= built.records; at += at ? 7 : 1) {
            enum qos_status want = at ? wrong[i].record : wrong[i].header;
            CHECK_CONTEXT("byte %zu of record %zu is %u", wrong[i].byte, at, wrong[i].value);
            restore(&b, built.len);
            b.disk.log[0].data[at * 48 + wrong[i].byte] = wrong[i].value;
            reseal(b.disk.log[0].data, at, built.records);
            if (at == 0 && wrong[i].byte == 23) /* a generation later than the mark's: its log was complete */
                want = QOS_OK;
            CHECK_EQ(recover(&b, 0, NULL), want);
        }
    }
    /* a redirect to the home server itself, to a server that does not exist, or with a stamp that was never given out
       */
    restore(&b, built.len);
    b.disk.log[0].data[48 + 5] = 2;
    qos_put_le16(b.disk.log[0].data + 48 + 6, NOBODY);
    reseal(b.disk.log[0].data, 1, built.records);
    CHECK_EQ(recover(&b, 0, NULL), QOS_ECORRUPT);
    qos_put_le16(b.disk.log[0].data + 48 + 6, 0xffff);
    reseal(b.disk.log[0].data, 1, built.records);
    CHECK_EQ(recover(&b, 0, NULL), QOS_ECORRUPT);
    qos_put_le16(b.disk.log[0].data + 48 + 6, 1);
    qos_put_le64(b.disk.log[0].data + 48 + 32, UINT64_C(1) << 40);
    reseal(b.disk.log[0].data, 1, built.records);
    CHECK_EQ(recover(&b, 0, NULL), QOS_ECORRUPT);
    restore(&b, built.len);
    b.config.max_fragments = 1; /* the log has more fragments than fit */
    CHECK_EQ(recover(&b, 0, NULL), QOS_EFULL);
    CHECK_EQ(counts_of(&b.t).fragments, 0);
    b.config.max_fragments = 500;
    CHECK_EQ(recover(&b, 0, NULL), QOS_OK);
    CHECK_EQ(twochoice_table_recover(&b.t, 0, NULL), QOS_EBUSY);
    CHECK_EQ(twochoice_table_format(&b.t), QOS_EBUSY);
    bench_free(&b);
}

/* A part of a compaction; true: a step of it failed. */
static bool compact_some(struct bench *b, bool *committed)
{
    enum twochoice_compact_todo todo;
    bool swapped;
    if (!counts_of(&b->t).compacting)
        return twochoice_table_compact_start(&b->t) != QOS_OK;
    if (twochoice_table_compact_step(&b->t, 6, &todo) != QOS_OK)
        return true;
    if (todo == TWOCHOICE_COMPACT_COMMIT) {
        *committed = true;
        return twochoice_table_commit(&b->t) != QOS_OK;
    }
    if (todo != TWOCHOICE_COMPACT_SWAP)
        return false;
    if (check_between(&rng, 0, 1)) { /* changes go on while the caller swaps */
        struct change c = pick();
        if (c.target != TWOCHOICE_LOCAL && check_between(&rng, 0, 3) == 0)
            return false; /* not yet */
    }
    swapped = b->storage.swap(b->storage.ctx, (int)counts_of(&b->t).next_log) == 0;
    return twochoice_table_compact_end(&b->t, swapped) != QOS_OK;
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
            pending[n++] = c; /* if it fails, its record may still be there after a crash */
            if (make(&b.t, &c) != QOS_OK)
                break;
            if (!batches || check_between(&rng, 0, 4) == 0) {
                if (twochoice_table_commit(&b.t) != QOS_OK)
                    break;
                for (; n > 0; n--, memmove(pending, pending + 1, n * sizeof *pending))
                    map_apply(&acknowledged, &pending[0]);
            }
            if (i % 3 == 0 || counts_of(&b.t).compacting) {
                bool committed = false, failed = compact_some(&b, &committed);
                for (; committed && !failed && n > 0; n--, memmove(pending, pending + 1, n * sizeof *pending))
                    map_apply(&acknowledged, &pending[0]);
                if (failed)
                    break;
            }
            if (check_between(&rng, 0, 9) == 0)
                CHECK(check_tree(&b.t));
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

/* The storage fails, but the machine goes on: no failed change is visible, and a compaction repairs a failed sync. */
static void errors_without_a_crash(void)
{
    struct bench b;
    struct map m, got;
    struct change c;
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
        if (counts_of(&b.t).log_broken) {
            (void)!twochoice_table_commit(&b.t);
            CHECK_EQ(twochoice_table_compact(&b.t), QOS_OK);
        }
        if (i % 50 == 49)
            CHECK_EQ(twochoice_table_compact(&b.t), QOS_OK);
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
    CHECK_EQ(twochoice_table_compact(&b.t), QOS_OK);
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
    torn_and_damaged(false);
    torn_and_damaged(true);
    well_formed_but_wrong();
    for (s = 0; s < seeds; s++) { /* after each of its writes, however many there are */
        for (stop = 1; live(stop, 1, s % 2); stop++)
            CHECK_CONTEXT("stops at operation %u of life %u", (unsigned)stop, (unsigned)s);
        CHECK_GE(stop, CHANGES);
        (void)live(1 + check_between(&rng, 0, 30), 5, true); /* crashes again and again */
    }
    CHECK_CONTEXT("errors");
    errors_without_a_crash();
    return check_end();
}
