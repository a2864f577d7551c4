// proves: whatever the order of messages, whenever the home crashes or its disk fails, and whatever a target, a client
// proves: or a damaged log claims: no acknowledged byte of a victim is lost. No log that lost durable records recovers
// proves: as good. A server that lies sends no honest server more than the level. Its lies expire after timeout_ns.
#include "adversary/adversary.h"
#include "property/twochoice_disk.h"

/* ---- bytes: one object, its home, three targets. The server follows the manual's page "the life of a byte" ---- */

enum { BYTES = 16, TARGETS = 3, WRITERS = 4, PULLS = 2, DROPS = 8, SENT = 4, PIECES = 128, EVENTS = 512, STEPS = 160 };
enum { PUT, WRITE, ARRIVE, AGAIN, END, COMMIT, PULL, DROP, SWEEP, CRASH, STOP, COMPACT, ASK, READ, OPS };
static const struct adversary_op byte_ops[OPS] = {
    /* a write from byte a on; b: target (0: home) and length. It begins, its data arrives, it is recorded */
    {"put", 0, BYTES - 1, 0, 63},
    {"write", 0, BYTES - 1, 0, 63},   /* as put, but it only begins */
    {"arrive", 0, WRITERS - 1, 0, 0}, /* the data of writer a arrives */
    {"again", 0, SENT - 1, 0, 0},     /* the data of an earlier write arrives again */
    {"end", 0, WRITERS - 1, 0, 1},    /* writer a ends at the home; b: room for one or two replaced pieces */
    {"commit", 0, 2, 0, 0},           /* 0: all of a commit; 1: its begin; 2: its end */
    {"pull", 0, BYTES - 1, 0, 4},     /* a pull begins at byte a, or pull a makes a step; b = 4: it is cancelled */
    {"drop", 0, DROPS - 1, 0, 1},     /* a drop arrives; b = 1: it arrives again later */
    {"sweep", 0, 0, 0, 0},            /* targets list what they hold */
    {"crash", 0, 0, 0, 0},            /* the home crashes */
    {"stop", 1, 8, 0, 0},             /* the home's disk fails at its a-th operation from now on */
    {"compact", 1, 12, 0, 0},         /* compacts a records, or makes the next step */
    {"ask", 0, BYTES - 1, 0, 0},      /* a reader asks the home */
    {"read", 0, 0, 0, 0},             /* the reader reads at that place */
};

/* Mistakes of a server that does not follow the page: each must be found. */
enum { NO_MISTAKE, ACKNOWLEDGES_EARLY, DROPS_EARLY, DROPS_UNASKED, OVERWRITES, NAMES_BY_RANGE };

struct writer {
    enum { NOTHING, BEGUN, STORED, RECORDED } state;
    uint32_t write, from, to, target;
    uint64_t stamp, changes;
};

struct piece {
    uint32_t target, from, to, data[BYTES]; /* target 0: not used */
    uint64_t stamp;
};

static struct {
    struct twochoice_table table;
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    struct disk disk;
    struct check_rng rng;
    struct writer writer[WRITERS], sent[SENT]; /* sent: the latest messages with data */
    struct piece piece[PIECES];
    struct {
        enum { FREE, STARTED, READY } state;
        uint32_t id, data[BYTES];
        struct twochoice_piece from, part[4];
        size_t parts;
    } pull[PULLS];
    struct {
        uint32_t target;
        uint64_t stamp, changes;
    } drop[DROPS];
    uint32_t home[BYTES], reader_at;
    struct twochoice_piece asked;
    struct twochoice_commit commit;
    bool committing, asking;
    uint64_t asked_bound;
    /* what may be read: see found() */
    uint64_t begun[EVENTS], ended[EVENTS], acknowledged_at[BYTES], read_at[BYTES], now;
    uint32_t events, lost, sendings, dropped, pulled, crashes, requeries, acknowledgements;
    int mistake;
} w;
static unsigned char byte_memory[65536] __attribute__((aligned(64)));

static void must(enum qos_status status, enum qos_status other)
{
    if (status != QOS_OK && status != other)
        CHECK_EQ(status, QOS_OK);
}

static struct piece *piece_of(uint32_t target, uint64_t stamp)
{
    uint32_t i;
    for (i = 0; i < PIECES; i++)
        if (w.piece[i].target == target && w.piece[i].stamp == stamp)
            return &w.piece[i];
    return NULL;
}

/* A write must not be read if it ended before a newer write of this byte was acknowledged or read. */
static void found(uint32_t at, uint32_t write, uint64_t bound)
{
    if (w.ended[write] != 0 && w.ended[write] < bound)
        w.lost++;
    if (w.begun[write] > w.read_at[at])
        w.read_at[at] = w.begun[write];
}

static uint64_t bound_of(uint32_t at)
{
    return w.acknowledged_at[at] > w.read_at[at] ? w.acknowledged_at[at] : w.read_at[at];
}

/* false: the piece is gone, so the reader asks the home again. */
static bool read_byte(uint32_t at, const struct twochoice_piece *p, uint64_t bound)
{
    struct piece *source;
    if (p->target == TWOCHOICE_LOCAL) {
        found(at, w.home[at], bound);
        return true;
    }
    source = piece_of(p->target, p->version);
    if (!source)
        return false;
    if (at < source->from || at >= source->to)
        w.lost++;
    else
        found(at, source->data[at], bound);
    return true;
}

static void read_all(void)
{
    uint32_t at;
    for (at = 0; at < BYTES; at++) {
        struct twochoice_piece p;
        twochoice_table_find(&w.table, 1, at, &p);
        w.lost += !read_byte(at, &p, bound_of(at));
    }
}

static void acknowledge(struct writer *a)
{
    uint32_t i;
    w.ended[a->write] = ++w.now;
    for (i = a->from; i < a->to; i++)
        if (w.begun[a->write] > w.acknowledged_at[i])
            w.acknowledged_at[i] = w.begun[a->write];
    a->state = NOTHING;
    w.acknowledgements++;
}

static void note_replaced(const struct twochoice_piece *p, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++) {
        if (w.mistake != DROPS_UNASKED && twochoice_table_refers(&w.table, 1, p[i].version, 0, BYTES))
            continue;
        k = (size_t)check_between(&w.rng, 0, DROPS - 1); /* an earlier drop in this place is lost */
        w.drop[k].target = p[i].target;
        w.drop[k].stamp = p[i].version;
        w.drop[k].changes = w.mistake == DROPS_EARLY ? 0 : counts_of(&w.table).changes;
    }
}

static void store(uint32_t target, uint64_t stamp, uint32_t write, uint32_t from, uint32_t to)
{
    struct piece *p = piece_of(target, stamp);
    uint32_t i;
    if (w.mistake == NAMES_BY_RANGE) /* a target that overwrites older pieces of the same bytes */
        for (i = 0; i < PIECES; i++)
            if (w.piece[i].target == target) {
                uint32_t at;
                for (at = from; at < to; at++)
                    if (at >= w.piece[i].from && at < w.piece[i].to)
                        w.piece[i].data[at] = write;
            }
    for (i = 0; !p && i < PIECES; i++)
        if (w.piece[i].target == 0)
            p = &w.piece[i];
    if (!p)
        return;
    p->target = target;
    p->stamp = stamp;
    p->from = from;
    p->to = to;
    for (i = from; i < to; i++)
        p->data[i] = write;
}

static struct writer *begin_write(uint32_t from, uint32_t how)
{
    struct writer *a = w.writer;
    enum qos_status status;
    while (a < w.writer + WRITERS && a->state != NOTHING)
        a++;
    if (a == w.writer + WRITERS || w.events == EVENTS)
        return NULL;
    a->from = from;
    a->to = from + 1 + how / 4 % BYTES;
    a->to = a->to < BYTES ? a->to : BYTES;
    a->target = how % 4 ? how % 4 : TWOCHOICE_LOCAL;
    status = twochoice_table_write_begin(&w.table, 1, a->target, a->from, a->to - a->from, &a->stamp);
    if (status == QOS_EAGAIN && w.mistake == OVERWRITES) { /* takes it for QOS_OK */
        uint32_t i;
        a->write = w.events++;
        w.begun[a->write] = ++w.now;
        for (i = a->from; i < a->to; i++)
            w.home[i] = a->write;
        acknowledge(a);
    }
    if (status != QOS_OK) {
        CHECK(status == QOS_EFULL || status == QOS_EAGAIN || status == QOS_EIO);
        return NULL;
    }
    a->state = BEGUN;
    a->write = w.events++;
    w.begun[a->write] = ++w.now;
    w.ended[a->write] = 0;
    return a;
}

static void arrive(struct writer *a)
{
    uint32_t i;
    if (a->state != BEGUN)
        return;
    if (a->target == TWOCHOICE_LOCAL) {
        for (i = a->from; i < a->to; i++)
            w.home[i] = a->write;
    } else {
        store(a->target, a->stamp, a->write, a->from, a->to);
        if (!piece_of(a->target, a->stamp))
            return; /* the target is full */
        w.sent[w.sendings++ % SENT] = *a;
    }
    a->state = STORED;
}

static void end_write(struct writer *a, size_t max)
{
    struct twochoice_piece replaced[BYTES] = {{0, 0, 0, 0, 0}};
    enum qos_status status;
    size_t n;
    if (a->state != STORED)
        return;
    status = twochoice_table_write_end(&w.table, a->stamp, replaced, max, &n);
    if (status == QOS_OK) {
        note_replaced(replaced, n);
        a->state = RECORDED;
        a->changes = counts_of(&w.table).changes;
        if (w.mistake == ACKNOWLEDGES_EARLY)
            acknowledge(a);
    } else {
        CHECK(status == QOS_EAGAIN || status == QOS_EFULL || status == QOS_EIO);
    }
}

static void commit(uint64_t how)
{
    uint32_t i;
    int log;
    bool good = true;
    if (how != 2 && !w.committing)
        w.committing = twochoice_table_commit_begin(&w.table, &w.commit) == QOS_OK;
    if (how == 1 || !w.committing)
        return;
    for (log = 0; log < 3; log++)
        if (w.commit.logs & 1u << log)
            good = w.storage.sync(w.storage.ctx, log) == 0 && good;
    (void)!twochoice_table_commit_end(&w.table, &w.commit, good);
    w.committing = false;
    for (i = 0; i < WRITERS; i++)
        if (w.writer[i].state == RECORDED && counts_of(&w.table).durable_changes >= w.writer[i].changes)
            acknowledge(&w.writer[i]);
}

static void step_pull(uint32_t at, bool cancel)
{
    uint32_t i, k = at % PULLS;
    struct twochoice_piece replaced[BYTES] = {{0, 0, 0, 0, 0}};
    struct piece *source;
    enum qos_status status;
    size_t n;
    switch (w.pull[k].state) {
    case FREE:
        if (twochoice_table_pull_start(&w.table, 1, at, BYTES, &w.pull[k].id, &w.pull[k].from) != QOS_OK)
            return;
        source = piece_of(w.pull[k].from.target, w.pull[k].from.version);
        if (!source) {
            w.lost++; /* and the table names it */
            (void)!twochoice_table_pull_cancel(&w.table, w.pull[k].id);
            return;
        }
        memcpy(w.pull[k].data, source->data, sizeof w.pull[k].data);
        w.pull[k].state = STARTED;
        break;
    case STARTED:
        if (cancel) {
            must(twochoice_table_pull_cancel(&w.table, w.pull[k].id), QOS_OK);
            w.pull[k].state = FREE;
            break;
        }
        status = twochoice_table_pull_ready(&w.table, w.pull[k].id, w.pull[k].part, 4, &w.pull[k].parts);
        must(status, QOS_EAGAIN);
        if (status == QOS_OK)
            w.pull[k].state = READY;
        break;
    default:
        for (n = 0; n < w.pull[k].parts; n++)
            for (i = (uint32_t)w.pull[k].part[n].offset; i < w.pull[k].part[n].end; i++)
                w.home[i] = w.pull[k].data[i];
        status = twochoice_table_pull_finish(&w.table, w.pull[k].id, replaced, BYTES, &n);
        note_replaced(replaced, n);
        w.pulled += n != 0;
        if (status == QOS_OK)
            w.pull[k].state = FREE;
    }
}

static void drop_arrives(uint32_t k, bool again)
{
    struct piece *p;
    if (w.drop[k].target == 0 || w.drop[k].changes > counts_of(&w.table).durable_changes)
        return;
    p = piece_of(w.drop[k].target, w.drop[k].stamp);
    w.dropped += p != NULL;
    if (p)
        p->target = 0;
    if (!again)
        w.drop[k].target = 0;
}

static void sweep(void)
{
    uint32_t i;
    if (counts_of(&w.table).changes != counts_of(&w.table).durable_changes || counts_of(&w.table).log_broken)
        return;
    for (i = 0; i < PIECES; i++)
        if (w.piece[i].target && !twochoice_table_refers(&w.table, 1, w.piece[i].stamp, 0, BYTES))
            w.piece[i].target = 0;
}

static void crash(void)
{
    uint32_t i;
    disk_crash(&w.disk);
    must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config), QOS_OK);
    if (twochoice_table_recover(&w.table, 0, NULL) != QOS_OK) {
        w.lost += BYTES;
        must(twochoice_table_format(&w.table), QOS_OK);
    }
    memset(w.pull, 0, sizeof w.pull);
    memset(w.drop, 0, sizeof w.drop);
    memset(w.read_at, 0, sizeof w.read_at); /* bytes that were read may not have been durable */
    w.committing = w.asking = false;
    for (i = 0; i < WRITERS; i++)
        if (w.writer[i].state != NOTHING) {
            w.ended[w.writer[i].write] = ++w.now;
            w.writer[i].state = NOTHING;
        }
    w.crashes++;
}

static void compact(uint32_t records)
{
    struct twochoice_table_state c = counts_of(&w.table);
    enum twochoice_compact_todo todo;
    if (!c.compacting) {
        (void)!twochoice_table_compact_start(&w.table);
    } else if (twochoice_table_compact_step(&w.table, records, &todo) == QOS_OK && todo == TWOCHOICE_COMPACT_SWAP) {
        (void)!twochoice_table_compact_end(&w.table, w.storage.swap(w.storage.ctx, (int)c.next_log) == 0);
    }
}

static void play_bytes(const struct adversary_program *p, struct adversary_score *score)
{
    uint64_t step;
    int mistake = w.mistake;
    disk_free(&w.disk);
    memset(&w, 0, sizeof w);
    w.mistake = mistake;
    adversary_rng(p, &w.rng);
    disk_init(&w.disk, &w.rng, &w.storage);
    w.config.max_fragments = 16;
    w.config.max_writes = WRITERS;
    w.config.max_pulls = PULLS;
    w.config.mark_commits = 2;
    w.config.max_log_bytes = 96 * 18;
    w.config.storage = &w.storage;
    must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config), QOS_OK);
    must(twochoice_table_format(&w.table), QOS_OK);
    w.events = 1; /* number 0: the zeros at the beginning */
    w.begun[0] = w.ended[0] = ++w.now;
    for (step = 0; step < STEPS && w.lost == 0; step++) {
        const struct adversary_step *s = adversary_at(p, step);
        switch (s->op) {
        case PUT: {
            struct writer *a = begin_write((uint32_t)s->a, (uint32_t)s->b);
            if (a) {
                arrive(a);
                end_write(a, BYTES);
            }
            break;
        }
        case WRITE: (void)begin_write((uint32_t)s->a, (uint32_t)s->b); break;
        case ARRIVE: arrive(&w.writer[s->a]); break;
        case AGAIN:
            if (w.sent[s->a].stamp)
                store(w.sent[s->a].target, w.sent[s->a].stamp, w.sent[s->a].write, w.sent[s->a].from, w.sent[s->a].to);
            break;
        case END: end_write(&w.writer[s->a], s->b ? BYTES : 1); break;
        case COMMIT: commit(s->a); break;
        case PULL: step_pull((uint32_t)s->a, s->b == 4); break;
        case DROP: drop_arrives((uint32_t)s->a, s->b != 0); break;
        case SWEEP: sweep(); break;
        case CRASH: crash(); break;
        case STOP: w.disk.stop_after = w.disk.operations + s->a; break;
        case COMPACT: compact((uint32_t)s->a); break;
        case ASK:
            w.reader_at = (uint32_t)s->a;
            w.asked_bound = bound_of(w.reader_at);
            w.asking = true;
            twochoice_table_find(&w.table, 1, w.reader_at, &w.asked);
            break;
        default:
            if (w.asking && !read_byte(w.reader_at, &w.asked, w.asked_bound)) { /* gone: the home names another place */
                struct twochoice_piece again;
                twochoice_table_find(&w.table, 1, w.reader_at, &again);
                w.lost += again.version == w.asked.version;
                w.requeries++;
            }
            w.asking = false;
        }
        if (w.disk.stopped)
            crash();
        read_all();
    }
    crash();
    read_all();
    if (twochoice_table_verify(&w.table) != QOS_OK)
        w.lost++;
    if (w.lost) {
        score->harm = 1 + w.lost;
    } else { /* for the climb: more kinds of events, and more of each, score higher */
        const uint32_t kinds[] = {w.dropped, w.pulled, w.crashes, w.requeries, w.acknowledgements};
        for (score->harm = 0, step = 0; step < sizeof kinds / sizeof *kinds; step++)
            score->harm += 0.19 * kinds[step] / (kinds[step] + 3.0);
    }
    score->bound = 1;
}

/* ---- a damaged log ------------------------------------------------------------------------------------------- */

enum { LOG_RECORDS = 52, LOG_BYTES = 32, SECTOR = 512 };
enum { FLIP, ZERO, CUT, SWAP, COPY, OLDER, MARK_FLIP, DAMAGES };
static const struct adversary_op log_ops[DAMAGES] = {
    {"flip", 0, 4095, 0, 7},   /* flips a bit */
    {"zero", 0, 7, 1, SECTOR}, /* zeroes bytes of a sector */
    {"cut", 0, 4095, 0, 0},    /* cuts off everything after byte a */
    {"swap", 0, 79, 0, 79},    /* exchanges two records */
    {"copy", 0, 79, 0, 79},    /* copies a record over another one */
    {"older", 0, 79, 1, 8},    /* b records, from the a-th on, are those of the log before the compaction */
    {"mark", 0, 1023, 0, 7},   /* flips a bit of the mark */
};

static struct {
    uint8_t log[4096], older[4096], mark[1024];
    size_t len, older_len;
    uint32_t state[2 * LOG_RECORDS][LOG_BYTES]; /* the place of each byte after this many records; + 1 */
    uint32_t records, durable;                  /* records in the log; records that the marks promised */
    uint32_t promised, said[2];                 /* by the compaction; by each mark */
    bool built, compacted;
} v;

static void places(uint32_t *out)
{
    uint32_t at;
    for (at = 0; at < LOG_BYTES; at++) {
        struct twochoice_piece p;
        twochoice_table_find(&w.table, 5, at, &p);
        out[at] = p.target == TWOCHOICE_LOCAL ? 0 : p.target * 1000 + (uint32_t)p.version;
    }
}

/* A log of changes, with commits and marks between them. The first half of the changes may be compacted. */
static void build_log(bool compacted)
{
    uint32_t i, before = 0, head;
    struct twochoice_piece replaced[LOG_BYTES];
    disk_free(&w.disk);
    memset(&w, 0, sizeof w);
    memset(&v, 0, sizeof v);
    check_rng_init(&w.rng, 7);
    disk_init(&w.disk, &w.rng, &w.storage);
    w.config.max_fragments = 64;
    w.config.max_writes = 8;
    w.config.mark_commits = 2;
    w.config.storage = &w.storage;
    must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config), QOS_OK);
    must(twochoice_table_format(&w.table), QOS_OK);
    for (i = 0; i < LOG_RECORDS; i++) {
        uint64_t stamp = 0, from = check_between(&w.rng, 0, LOG_BYTES - 1);
        size_t n;
        must(twochoice_table_write_begin(&w.table, 5, (uint32_t)check_between(&w.rng, 1, 9), from,
                                         check_between(&w.rng, 1, LOG_BYTES - from), &stamp),
             QOS_OK);
        must(twochoice_table_write_end(&w.table, stamp, replaced, LOG_BYTES, &n), QOS_OK);
        head = (uint32_t)(counts_of(&w.table).log_bytes / 48);
        for (; before < head; before++) /* a prefix that ends inside a compaction's copy is never good: see `durable` */
            places(v.state[before + 1]);
        if (i % 3 == 2)
            must(twochoice_table_commit(&w.table), QOS_OK);
        if (compacted && i == LOG_RECORDS / 2) {
            must(twochoice_table_commit(&w.table), QOS_OK);
            v.older_len = w.disk.log[0].len;
            memcpy(v.older, w.disk.log[0].data, v.older_len);
            must(twochoice_table_compact(&w.table), QOS_OK);
            disk_restart(&w.disk); /* only exchanges the logs' bytes: the table goes on in its log 1 */
            before = 0;
            memset(v.state, 0, sizeof v.state);
            v.records = 0;
            must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config), QOS_OK);
            must(twochoice_table_recover(&w.table, 0, NULL), QOS_OK);
            before = (uint32_t)(counts_of(&w.table).log_bytes / 48);
            places(v.state[before]);
            v.durable = before;
        }
    }
    v.len = w.disk.log[0].len;
    v.records = (uint32_t)(v.len / 48);
    memcpy(v.log, w.disk.log[0].data, v.len);
    memcpy(v.mark, w.disk.log[TWOCHOICE_MARK_LOG].data, sizeof v.mark);
    v.promised = v.durable;
    for (i = 0; i < 2; i++) { /* by the format as the header documents it: the number of durable records */
        v.said[i] = qos_get_le32(v.mark + (size_t)i * SECTOR + 24);
        v.said[i] = v.said[i] <= v.records ? v.said[i] : 0;
        v.durable = v.said[i] > v.durable ? v.said[i] : v.durable;
    }
    v.built = true;
    v.compacted = compacted;
}

static void damage(uint8_t *log, size_t *len, uint8_t *mark, const struct adversary_step *s)
{
    uint8_t record[48];
    size_t a = (size_t)s->a, b = (size_t)s->b, at;
    switch (s->op) {
    case FLIP:
        if (a < *len)
            log[a] ^= (uint8_t)(1u << b);
        break;
    case ZERO:
        for (at = a * SECTOR; at < a * SECTOR + b && at < *len; at++)
            log[at] = 0;
        break;
    case CUT: *len = a < *len ? a : *len; break;
    case SWAP:
        if ((a + 1) * 48 <= *len && (b + 1) * 48 <= *len) {
            memcpy(record, log + a * 48, 48);
            memcpy(log + a * 48, log + b * 48, 48);
            memcpy(log + b * 48, record, 48);
        }
        break;
    case COPY:
        if ((a + 1) * 48 <= *len && (b + 1) * 48 <= *len)
            memcpy(log + b * 48, log + a * 48, 48);
        break;
    case OLDER:
        for (at = a * 48; at < (a + b) * 48 && at < *len && at < v.older_len; at++)
            log[at] = v.older[at];
        break;
    default: mark[a] ^= (uint8_t)(1u << b);
    }
}

static void play_log(const struct adversary_program *p, struct adversary_score *score, bool compacted)
{
    uint8_t log[4096], mark[1024];
    uint32_t now[LOG_BYTES], i, best = 0, durable;
    bool intact = false;
    size_t len;
    if (!v.built || v.compacted != compacted)
        build_log(compacted);
    durable = v.promised;
    memcpy(log, v.log, v.len);
    memcpy(mark, v.mark, sizeof mark);
    len = v.len;
    for (i = 0; i < p->steps && i < 3; i++)
        damage(log, &len, mark, &p->step[i]);
    disk_resize(&w.disk.log[0], 0);
    disk_resize(&w.disk.log[0], len);
    if (len)
        memcpy(w.disk.log[0].data, log, len);
    memcpy(w.disk.log[TWOCHOICE_MARK_LOG].data, mark, sizeof mark);
    must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config), QOS_OK);
    score->bound = 1;
    score->harm = 0.5 * (double)len / (double)v.len; /* for the climb: less damage scores higher */
    if (twochoice_table_recover(&w.table, 0, NULL) != QOS_OK)
        return;
    places(now);
    /* A slot that is damaged promises nothing: a crash may leave it so, while the next mark is written. Not both. */
    for (i = 0; i < 2; i++)
        if (memcmp(mark + (size_t)i * SECTOR, v.mark + (size_t)i * SECTOR, 48) == 0) {
            durable = v.said[i] > durable ? v.said[i] : durable;
            intact = true;
        }
    durable = intact ? durable : v.durable;
    for (i = durable; i <= v.records; i++) /* the prefixes that hold all that the marks promised */
        if (memcmp(now, v.state[i], sizeof now) == 0)
            best = i;
    if (best == 0 || twochoice_table_verify(&w.table) != QOS_OK)
        score->harm = 2;
    else
        score->harm = 0.5 + 0.4 * (double)(v.records - best) / (double)(v.records - durable + 1);
}

static void play_plain_log(const struct adversary_program *p, struct adversary_score *score)
{
    play_log(p, score, false);
}

static void play_compacted_log(const struct adversary_program *p, struct adversary_score *score)
{
    play_log(p, score, true);
}

/* ---- a server that lies to a client ---------------------------------------------------------------------------- */

enum { SAYS, ASKS, HONEST_SAYS, HONEST_ASKS, PASSES, LIES };
static const struct adversary_op lie_ops[LIES] = {
    {"says", 0, UINT64_MAX, 0, UINT64_MAX}, /* the liar answers: wait, service */
    {"asks", 0, UINT64_MAX, 0, UINT64_MAX}, /* it asks with these bounds */
    {"busy", 0, 63, 1, 3000},               /* an honest server answers that it waits b us */
    {"honest", 0, 63, 1, 3000},             /* an honest server asks, and takes b us */
    {"passes", 1, 3000, 0, 0},              /* a us pass */
};

/* Server 0 lies and never writes; it holds at most ceil(2k / servers) writes of a request until the timeout. */
static void play_lies(const struct adversary_program *p, struct adversary_score *score)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    static struct twochoice_placement placement;
    struct twochoice_placement_config config;
    struct twochoice_place_order o;
    struct twochoice_message reserved[64], answer, m;
    struct twochoice_write writes[8];
    uint64_t request = 0, now = 0;
    uint32_t n = 0, held = 0, most = 0, at[8], step, i;
    bool honest;
    const uint32_t servers = 2 + p->step[0].op % LIES + p->step[1].op % LIES, k = 1 + (uint32_t)(p->step[2].b % 8);
    memset(&config, 0, sizeof config);
    config.servers = servers;
    config.max_writes = 8;
    config.timeout_ns = UINT64_C(1000000000); /* never in this game */
    config.seed = p->steps;
    must(twochoice_placement_init(&placement, memory, sizeof memory, &config), QOS_OK);
    for (i = 0; i < 8; i++) {
        writes[i].home = i % servers;
        writes[i].len_bytes = 1 << 20;
        at[i] = QOS_NONE;
    }
    must(twochoice_placement_begin(&placement, 0, writes, k, 0, &request), QOS_OK);
    for (step = 0; step < 60; step++) {
        const struct adversary_step *s = adversary_at(p, step);
        while (twochoice_placement_step(&placement, now, &o), o.todo != TWOCHOICE_PLACE_WAIT) {
            if (o.todo == TWOCHOICE_PLACE_BIND) {
                held -= at[o.write] == 0; /* it was taken back */
                at[o.write] = o.server;
                held += o.server == 0;
                most = held > most ? held : most;
            } else if (o.message.type == TWOCHOICE_RESERVE && n < 64) {
                reserved[n++] = o.message;
            }
        }
        m = reserved[n ? s->a % n : 0];
        honest = s->op == HONEST_SAYS || s->op == HONEST_ASKS;
        for (i = 0; i < n && !honest; i++) /* the liar's last reservation */
            m = reserved[i].server == 0 ? reserved[i] : m;
        if (s->op == PASSES || n == 0 || (m.server == 0) == honest) {
            now += s->op == PASSES ? s->a * 1000 : 1;
            continue;
        }
        m.type = s->op == SAYS || s->op == HONEST_SAYS ? TWOCHOICE_ANSWER : TWOCHOICE_ASK;
        m.wait_ns = s->op == HONEST_SAYS ? s->b * 1000 : honest ? 0 : s->a;
        m.service_ns = honest ? s->b * 1000 : s->b;
        (void)twochoice_placement_heard(&placement, now, &m, &answer);
    }
    score->harm = most;
    score->bound = (2 * k + servers - 1) / servers;
}

/* ---- a client that lies to a server ----------------------------------------------------------------------------- */

enum { RESERVES, RELEASES, WAITS, TELLS };
static const struct adversary_op tell_ops[TELLS] = {
    {"reserves", 0, 90, 0, UINT64_MAX}, /* request, bytes */
    {"releases", 0, 90, 0, 0},          /* request */
    {"waits", 1, 200, 0, 0},            /* a times 50 us */
};

#define TICK UINT64_C(50000)
#define LEAD UINT64_C(100000)
#define SERVICE UINT64_C(1000000)

static void tell(struct twochoice_intake *intake, uint64_t now, uint64_t client, uint64_t request, uint64_t len,
                 bool reserve)
{
    struct twochoice_message m, answer;
    memset(&m, 0, sizeof m);
    m.type = reserve ? TWOCHOICE_RESERVE : TWOCHOICE_RELEASE;
    m.count = reserve;
    m.client = client;
    m.request = request;
    m.len_bytes = len;
    (void)twochoice_intake_heard(intake, now, &m, &answer);
}

/* The victim, 1, keeps writes of 1 ms reserved, and each comes a lead after its ask. The liar, 2, never writes. The
   victim's writes come one service apart, and behind each the device may be idle for four leads, as for one ask of the
   liar's, and one lead until the victim's own comes; a lead for the ticks of this game. At first, when no rate is known,
   an ask of the liar's holds up all for 50 ms. */
static void play_tells(const struct adversary_program *p, struct adversary_score *score)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    static struct twochoice_intake intake;
    struct twochoice_intake_config config;
    struct twochoice_message ask;
    uint64_t now, comes[64], request[64], served = 0, ends = 0, number = 1000, last = 0;
    uint32_t coming = 0, queued = 0, step = 0, waits = 0, i;
    bool busy = false;
    memset(&config, 0, sizeof config);
    config.max_reservations = 100;
    must(twochoice_intake_init(&intake, memory, sizeof memory, &config), QOS_OK);
    for (i = 0; i < 4; i++)
        tell(&intake, 0, 1, number++, 1 << 20, true);
    for (now = 0; now < 150000000; now += TICK) {
        for (i = 0; i < 32 && waits == 0; i++, step++) {
            const struct adversary_step *s = adversary_at(p, step);
            if (s->op == WAITS)
                waits = (uint32_t)s->a;
            else
                tell(&intake, now, 2, s->a, s->b, s->op == RESERVES);
        }
        waits -= waits > 0;
        if (busy && ends <= now) {
            twochoice_intake_end(&intake, now, 1 << 20);
            busy = false;
            served += now > 60000000;
            last = now;
        }
        for (i = 0; i < coming;) {
            if (comes[i] > now) {
                i++;
                continue;
            }
            twochoice_intake_arrived(&intake, now, 1, request[i], 0, 1 << 20);
            queued++;
            comes[i] = comes[--coming];
            request[i] = request[coming];
        }
        if (queued > 0 && !busy) {
            queued--;
            busy = true;
            ends = now + SERVICE;
        }
        while (twochoice_intake_ask(&intake, now, &ask))
            if (ask.client == 1 && coming < 64) {
                comes[coming] = now + LEAD;
                request[coming++] = ask.request;
                tell(&intake, now, 1, number++, 1 << 20, true);
            }
    }
    score->harm = served ? (double)(last - 60000000) / (double)served : 1e9;
    score->bound = (double)(SERVICE + 6 * LEAD);
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"bytes", byte_ops, OPS, play_bytes, "bytes lost", 30000},
        {"log", log_ops, DAMAGES, play_plain_log, "good without what was durable", 10000},
        {"compacted_log", log_ops, DAMAGES, play_compacted_log, "good without what was durable", 10000},
        {"lies", lie_ops, LIES, play_lies, "writes that a liar holds", 20000},
        {"tells", tell_ops, TELLS, play_tells, "ns for each write of the victim", 1500},
    };
    static const struct {
        int mistake;
        struct adversary_game game;
    } weak[] = {
        {ACKNOWLEDGES_EARLY, {"acks_early", byte_ops, OPS, play_bytes, "planted: found above 1", 5000}},
        {DROPS_EARLY, {"drops_early", byte_ops, OPS, play_bytes, "planted: found above 1", 5000}},
        {DROPS_UNASKED, {"drops_unasked", byte_ops, OPS, play_bytes, "planted: found above 1", 5000}},
        {OVERWRITES, {"overwrites", byte_ops, OPS, play_bytes, "planted: found above 1", 5000}},
        {NAMES_BY_RANGE, {"names_by_range", byte_ops, OPS, play_bytes, "planted: found above 1", 5000}},
    };
    const char *replay = getenv("QOS_ADVERSARY_REPLAY");
    unsigned i;
    adversary_begin("adversary/twochoice");
    for (i = 0; i < sizeof games / sizeof *games; i++) {
        w.mistake = NO_MISTAKE;
        adversary_search(&games[i]);
    }
    for (i = 0; i < sizeof weak / sizeof *weak; i++) { /* a search that finds nothing proves nothing */
        double ratio;
        w.mistake = weak[i].mistake;
        if (!check_case(weak[i].game.name))
            continue;
        ratio = adversary_hunt(&weak[i].game, weak[i].game.programs, 1);
        CHECK_CONTEXT("a server that makes the mistake %s", weak[i].game.name);
        CHECK((replay && *replay) || ratio > 1);
    }
    disk_free(&w.disk);
    return adversary_end();
}
