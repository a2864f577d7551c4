// proves: an object server that follows the manual's page "the life of a byte", and nothing else, loses no acknowledged
// proves: byte. Byte arrays for the home and its targets; clients, pulls, deletes and sweeps in any order; messages
// proves: lost, repeated and late; syncs, writes, cuts and swaps of the log that fail; crashes of home and targets at any
// proves: moment, in a recovery, too. Every read is checked, to the byte.
//
// The model knows nothing of tables. For each byte it keeps the writes that may be read there: the latest acknowledged
// one, and every write that had not ended when that one was acknowledged. Once a write was read or acknowledged, no
// write that ended before it may appear again.
#include "property/twochoice_disk.h"

#define BYTES 64u
#define TARGETS 4u /* servers 1..4; the home is 0 */
#define CLIENTS 6u
#define PIECES 4096u
#define PULLS 3u
#define MESSAGES 64u

static struct check_rng rng;
static struct twochoice_table t;
static struct twochoice_table_config config;
static struct twochoice_storage storage;
static struct disk disk;
static void *mem;

/* ---- what the servers hold --------------------------------------------------------------------------- */

static uint32_t home_bytes[BYTES]; /* at home, in place; durable at once, as the order of steps is tested here */

/* The pieces of a target, each kept apart by its stamp. */
struct piece {
    bool used, durable;
    uint32_t target;
    uint64_t stamp;
    uint32_t from, to, data[BYTES];
};
static struct piece pieces[PIECES];
static uint64_t stored, swept, refused, orphans;

static struct piece *piece_of(uint32_t target, uint64_t stamp)
{
    uint32_t i;
    for (i = 0; i < PIECES; i++)
        if (pieces[i].used && pieces[i].target == target && pieces[i].stamp == stamp)
            return &pieces[i];
    return NULL;
}

static void store(uint32_t target, uint64_t stamp, uint32_t from, uint32_t to, const uint32_t *data)
{
    struct piece *p = piece_of(target, stamp);
    uint32_t i;
    for (i = 0; !p && i < PIECES; i++)
        if (!pieces[i].used)
            p = &pieces[i];
    if (!p)
        return; /* the target is full, and the client gets no answer */
    p->used = true;
    p->durable = true;
    p->target = target;
    p->stamp = stamp;
    p->from = from;
    p->to = to;
    memcpy(p->data + from, data + from, (to - from) * sizeof *data);
    stored++;
}

/* ---- what a reader may find -------------------------------------------------------------------------- */

static uint64_t now;
struct event {
    /* ended: the time when it was acknowledged or given up for good; 0: it may still take effect */
    uint64_t begun, ended;
};
static struct event *event; /* of write number i */
static uint32_t events, event_room;
/* A write that ended before these times must not be read: a newer one was acknowledged, or read since the last crash. */
static uint64_t acknowledged_at[BYTES], read_at[BYTES];

static uint32_t new_write(void)
{
    if (events == event_room) {
        event_room = event_room ? 2 * event_room : 1024;
        event = (struct event *)realloc(event, event_room * sizeof *event);
    }
    event[events].begun = ++now;
    event[events].ended = 0;
    return events++;
}

static uint64_t bound_of(uint32_t i)
{
    return acknowledged_at[i] > read_at[i] ? acknowledged_at[i] : read_at[i];
}

/* A read of byte i found this write. `bound`: the time above when the read began. stale: the bytes are elsewhere by now;
 * then it may have seen a part of a write at home that has not ended. */
static void found(uint32_t i, uint32_t write, uint64_t bound, bool stale)
{
    CHECK(write < events);
    if (event[write].ended != 0)
        CHECK_GE(event[write].ended, bound);
    if (!stale && event[write].begun > read_at[i])
        read_at[i] = event[write].begun;
}

static void acknowledged(uint32_t write, uint32_t from, uint32_t to)
{
    uint32_t i;
    event[write].ended = ++now;
    for (i = from; i < to; i++) /* writes that ended before this one began must not appear again */
        if (event[write].begun > acknowledged_at[i])
            acknowledged_at[i] = event[write].begun;
}

/* ---- the home: only what the manual's page says ------------------------------------------------------- */

struct client {
    enum { NOTHING, UNBOUND, BEGUN, SENT, STORED, WRITING, WRITTEN, RECORDED } state;
    uint32_t write, from, to, target;
    uint64_t stamp, changes;
    bool gave_up; /* the client is dead, but the home does not know it yet */
};
static struct client client[CLIENTS];

struct message { /* data on its way to a target, or a drop */
    bool used, drop;
    uint32_t target, from, to, write;
    uint64_t stamp;
};
static struct message message[MESSAGES];

/* Pieces that are stale as soon as `changes` is durable. */
struct stale {
    uint64_t stamp, changes;
    uint32_t target;
};
static struct stale *stale;
static uint32_t stales, stale_room;

struct pull {
    enum { FREE, READING, HERE, COPYING, COPIED } state;
    uint32_t id, buffer[BYTES];
    struct twochoice_piece piece, part[BYTES];
    size_t parts;
};
static struct pull pull[PULLS];
static struct twochoice_commit commit[2];
static bool committing[2], commit_ok[2];
static uint32_t to_sync[2]; /* logs that a thread has still to sync */
static uint64_t reads, crashes, recoveries, pulled, lost_messages, requeries;

static void note_stale(const struct twochoice_piece *p, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        if (twochoice_table_refers(&t, 1, p[i].version, p[i].offset, p[i].end - p[i].offset))
            continue;
        if (stales == stale_room) {
            stale_room = stale_room ? 2 * stale_room : 256;
            stale = (struct stale *)realloc(stale, stale_room * sizeof *stale);
        }
        stale[stales].stamp = p[i].version;
        stale[stales].target = p[i].target;
        stale[stales++].changes = counts_of(&t).changes;
    }
}

static struct message *new_message(void)
{
    struct message *m = &message[check_between(&rng, 0, MESSAGES - 1)];
    lost_messages += m->used; /* the old one is lost */
    m->used = true;
    m->drop = false;
    return m;
}

static void begin_client(struct client *c)
{
    enum qos_status st;
    bool late; /* its target becomes known later */
    c->from = (uint32_t)check_between(&rng, 0, BYTES - 1);
    c->to = c->from + (uint32_t)check_between(&rng, 1, check_between(&rng, 0, 3) ? 8 : BYTES);
    c->to = c->to > BYTES ? BYTES : c->to;
    c->target = check_between(&rng, 0, 2) ? (uint32_t)check_between(&rng, 1, TARGETS) : TWOCHOICE_LOCAL;
    late = check_between(&rng, 0, 1) != 0;
    st = twochoice_table_write_begin(&t, 1, late ? TWOCHOICE_UNBOUND : c->target, c->from, c->to - c->from, &c->stamp);
    CHECK(st == QOS_OK || st == QOS_EFULL || st == QOS_EAGAIN || st == QOS_EIO);
    if (st != QOS_OK)
        return;
    c->write = new_write(); /* a delete is a write at home of zeros; the model gives it a number of its own */
    c->state = late ? UNBOUND : c->target == TWOCHOICE_LOCAL ? WRITING : BEGUN;
    c->gave_up = false;
}

static void bind_client(struct client *c)
{
    enum qos_status st;
    if (c->gave_up) /* a message that is late, or comes twice */
        return;
    st = twochoice_table_write_bind(&t, c->stamp, c->target);
    CHECK(st == QOS_OK || (st == QOS_EAGAIN && c->target == TWOCHOICE_LOCAL));
    if (st == QOS_OK)
        c->state = c->target == TWOCHOICE_LOCAL ? WRITING : BEGUN;
}

static void send_data(struct client *c)
{
    struct message *m = new_message();
    m->target = c->target;
    m->from = c->from;
    m->to = c->to;
    m->write = c->write;
    m->stamp = c->stamp;
    c->state = SENT;
}

static void step_client(struct client *c)
{
    struct twochoice_piece replaced[BYTES] = {0};
    enum qos_status st;
    uint32_t i;
    size_t n;
    if (c->state != NOTHING && c->target != TWOCHOICE_LOCAL && check_between(&rng, 0, 30) == 0)
        c->gave_up = true; /* the client dies; the home cancels its write, maybe much later */
    if (c->state != NOTHING && c->gave_up && c->state != RECORDED) {
        if (check_between(&rng, 0, 5) == 0) {
            (void)!twochoice_table_write_cancel(&t, c->stamp);
            event[c->write].ended = ++now; /* even if its data arrives later */
            c->state = NOTHING;
        }
        return;
    }
    switch (c->state) {
    case NOTHING: begin_client(c); break;
    case UNBOUND: bind_client(c); break;
    case BEGUN: send_data(c); break;
    case SENT:
        if (check_between(&rng, 0, 3) == 0)
            send_data(c); /* no answer: sent again with the same stamp */
        break;
    case WRITING: /* the device writes some bytes, in any order */
        for (i = c->from; i < c->to; i++)
            if (check_between(&rng, 0, 1))
                home_bytes[i] = c->write;
        if (check_between(&rng, 0, 2))
            break;
        for (i = c->from; i < c->to; i++)
            home_bytes[i] = c->write;
        c->state = WRITTEN;
        break;
    case STORED:
    case WRITTEN:
        st = twochoice_table_write_end(&t, c->stamp, replaced, check_between(&rng, 0, 1) ? 2 : BYTES, &n);
        if (st == QOS_OK) {
            note_stale(replaced, n);
            c->changes = counts_of(&t).changes;
            c->state = RECORDED;
        } else if (st == QOS_ENOENT) { /* cancelled meanwhile: the client begins again */
            event[c->write].ended = ++now;
            c->state = NOTHING;
        } else {
            CHECK(st == QOS_EAGAIN || st == QOS_EFULL || st == QOS_EIO);
        }
        break;
    default: /* acknowledged after the commit */
        if (counts_of(&t).durable_changes >= c->changes) {
            acknowledged(c->write, c->from, c->to);
            c->state = NOTHING;
        }
        break;
    }
}

/* A message arrives; it may arrive again. */
static void deliver(void)
{
    struct message *m = &message[check_between(&rng, 0, MESSAGES - 1)];
    uint32_t data[BYTES], i;
    if (!m->used)
        return;
    if (m->drop) {
        struct piece *p = piece_of(m->target, m->stamp);
        if (p)
            p->used = false;
        else
            refused++;
    } else {
        for (i = 0; i < BYTES; i++)
            data[i] = m->write;
        store(m->target, m->stamp, m->from, m->to, data);
        for (i = 0; i < CLIENTS; i++) /* the answer */
            if (client[i].state == SENT && client[i].stamp == m->stamp && check_between(&rng, 0, 3))
                client[i].state = STORED;
    }
    m->used = check_between(&rng, 0, 3) == 0;
}

static void send_drops(void)
{
    uint32_t i, kept = 0;
    for (i = 0; i < stales; i++) {
        struct message *m;
        if (stale[i].changes > counts_of(&t).durable_changes) {
            stale[kept++] = stale[i];
            continue;
        }
        m = new_message();
        m->drop = true;
        m->target = stale[i].target;
        m->stamp = stale[i].stamp;
    }
    stales = kept;
}

/* A target lists what it holds; the home answers when all its changes so far are durable. */
static void sweep(void)
{
    uint32_t i = (uint32_t)check_between(&rng, 0, PIECES - 1), k;
    struct twochoice_table_state c = counts_of(&t);
    if (c.changes != c.durable_changes || c.log_broken)
        return;
    for (k = 0; k < 256; k++, i = (i + 1) % PIECES)
        if (pieces[i].used && !twochoice_table_refers(&t, 1, pieces[i].stamp, 0, BYTES)) {
            pieces[i].used = false;
            swept++;
        }
}

static void step_pull(struct pull *p)
{
    struct twochoice_piece replaced[BYTES] = {0};
    struct piece *source;
    enum qos_status st;
    uint32_t i;
    size_t n, k;
    switch (p->state) {
    case FREE:
        i = (uint32_t)check_between(&rng, 0, BYTES - 1);
        st = twochoice_table_pull_start(&t, 1, i, check_between(&rng, 1, BYTES), &p->id, &p->piece);
        CHECK(st == QOS_OK || st == QOS_ENOENT || st == QOS_EBUSY);
        if (st == QOS_OK)
            p->state = READING;
        break;
    case READING: /* the target has the piece that the table names, unless it was dropped for a newer one */
        source = piece_of(p->piece.target, p->piece.version);
        if (!source) {
            struct twochoice_piece again;
            for (i = (uint32_t)p->piece.offset; i < p->piece.end; i++) {
                twochoice_table_find(&t, 1, i, &again);
                CHECK(again.version != p->piece.version); /* a piece that is in use must not be gone */
            }
            CHECK_EQ(twochoice_table_pull_cancel(&t, p->id), QOS_OK);
            p->state = FREE;
            break;
        }
        memcpy(p->buffer, source->data, sizeof p->buffer);
        p->state = HERE;
        break;
    case HERE:
        if (check_between(&rng, 0, 9) == 0) {
            CHECK_EQ(twochoice_table_pull_cancel(&t, p->id), QOS_OK);
            p->state = FREE;
            break;
        }
        st = twochoice_table_pull_ready(&t, p->id, p->part, check_between(&rng, 0, 1) ? 1 : BYTES, &p->parts);
        CHECK(st == QOS_OK || st == QOS_EAGAIN);
        if (st == QOS_OK)
            p->state = COPYING;
        break;
    case COPYING:
        if (check_between(&rng, 0, 9) == 0)
            CHECK_EQ(twochoice_table_pull_cancel(&t, p->id), QOS_EBUSY); /* its writes at home go on */
        for (k = 0; k < p->parts; k++)
            for (i = (uint32_t)p->part[k].offset; i < p->part[k].end; i++)
                home_bytes[i] = check_between(&rng, 0, 1) ? p->buffer[i] : home_bytes[i];
        if (check_between(&rng, 0, 1))
            break;
        for (k = 0; k < p->parts; k++)
            for (i = (uint32_t)p->part[k].offset; i < p->part[k].end; i++)
                home_bytes[i] = p->buffer[i];
        p->state = COPIED;
        break;
    default:
        st = twochoice_table_pull_finish(&t, p->id, replaced, check_between(&rng, 0, 1) ? 1 : BYTES, &n);
        if (st == QOS_EAGAIN) /* nothing has changed */
            break;
        note_stale(replaced, n);
        pulled += n;
        if (st == QOS_OK)
            p->state = FREE;
        else
            CHECK(st == QOS_EAGAIN || st == QOS_EFULL || st == QOS_EIO);
        break;
    }
}

/* Up to two commits and a compaction run at once, synced in any order; none waits for another. */
static void step_log(void)
{
    uint32_t k = (uint32_t)check_between(&rng, 0, 1);
    struct twochoice_table_state c = counts_of(&t);
    if (!committing[k]) {
        committing[k] = twochoice_table_commit_begin(&t, &commit[k]) == QOS_OK;
        commit_ok[k] = true;
        to_sync[k] = commit[k].logs;
    } else if (to_sync[k] != 0) { /* by another thread: anything may happen before the next log, and before the end */
        const int log = __builtin_ctz(to_sync[k]);
        to_sync[k] &= to_sync[k] - 1;
        commit_ok[k] = storage.sync(storage.ctx, log) == 0 && commit_ok[k];
    } else {
        enum qos_status st;
        st = twochoice_table_commit_end(&t, &commit[k], commit_ok[k]);
        CHECK(st == QOS_OK || st == QOS_EAGAIN || st == QOS_EIO);
        committing[k] = false;
    }
    if (check_between(&rng, 0, 3) == 0 || c.log_broken) {
        static unsigned swapping;
        static bool swapped;
        enum twochoice_compact_todo todo;
        if (!c.compacting)
            swapping = 0;
        enum qos_status st;
        if (!c.compacting) {
            st = check_between(&rng, 0, 5) == 0 || c.log_broken || c.log_bytes > c.max_log_bytes / 2
                     ? twochoice_table_compact_start(&t)
                     : QOS_OK;
            CHECK(st == QOS_OK || st == QOS_EIO);
            return;
        }
        if (swapping == 2) { /* the swap has returned, in another thread */
            st = twochoice_table_compact_end(&t, swapped);
            swapping = 0;
        } else {
            st = twochoice_table_compact_step(&t, 3, &todo);
            if (swapping == 1 || (st == QOS_OK && todo == TWOCHOICE_COMPACT_SWAP && check_between(&rng, 0, 2) == 0)) {
                swapped = storage.swap(storage.ctx, (int)c.next_log) == 0;
                swapping = 2;
            }
        }
        CHECK(st == QOS_OK || st == QOS_EIO || st == QOS_EFULL);
        CHECK(st != QOS_EFULL || !counts_of(&t).compacting);
        CHECK_LE(counts_of(&t).log_bytes, config.max_log_bytes);
        CHECK_LE(disk.log[0].len, config.max_log_bytes);
        CHECK_LE(disk.log[1].len, config.max_log_bytes);
    }
}

/* A reader asks the home and then, some time later, the target. If the piece is gone, it asks the home again. */
static struct reader {
    bool asked;
    uint32_t i;
    uint64_t bound;
    struct twochoice_piece piece;
} reader[4];

static void step_reader(struct reader *r)
{
    const struct piece *source;
    struct twochoice_piece now_at;
    uint32_t value;
    if (!r->asked) {
        r->i = (uint32_t)check_between(&rng, 0, BYTES - 1);
        r->bound = bound_of(r->i);
        twochoice_table_find(&t, 1, r->i, &r->piece);
        r->asked = true;
        return;
    }
    if (r->piece.target == TWOCHOICE_LOCAL) {
        value = home_bytes[r->i];
    } else {
        source = piece_of(r->piece.target, r->piece.version);
        if (!source) { /* then the table must name another piece by now */
            struct twochoice_piece again;
            requeries++;
            twochoice_table_find(&t, 1, r->i, &again);
            CHECK(again.version != r->piece.version);
            r->piece = again;
            return;
        }
        CHECK(source->from <= r->i && r->i < source->to);
        value = source->data[r->i];
    }
    twochoice_table_find(&t, 1, r->i, &now_at);
    found(r->i, value, r->bound, now_at.target != r->piece.target || now_at.version != r->piece.version);
    r->asked = false;
    reads++;
}

static void read_all(void)
{
    uint32_t i, k;
    for (i = 0; i < BYTES; i++) {
        struct reader r = {true, i, bound_of(i), {0, 0, 0, 0, 0}};
        twochoice_table_find(&t, 1, i, &r.piece);
        for (k = 0; r.asked && k < 3; k++)
            step_reader(&r);
        CHECK(!r.asked);
    }
}

/* The power is cut again during the recovery; or the storage fails, and the process starts again without a power cut. */
static void recover_home(void)
{
    enum qos_status st = QOS_EIO;
    uint32_t i, tries;
    disk.fail_one_in = 0;
    for (tries = 0; st != QOS_OK; tries++) {
        if (disk.stopped || tries == 0 || check_between(&rng, 0, 1))
            disk_crash(&disk);
        else
            disk_restart(&disk);
        disk.stop_after = tries < 3 && check_between(&rng, 0, 1) ? disk.operations + check_between(&rng, 1, 60) : 0;
        disk.fail_one_in = tries < 3 && check_between(&rng, 0, 3) == 0 ? 20 : 0;
        CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
        st = twochoice_table_recover(&t, 0, NULL);
        CHECK(st == QOS_OK || (st == QOS_EIO && tries < 3));
        if (st == QOS_OK && disk.stopped)
            st = QOS_EIO;
        recoveries++;
    }
    disk.stop_after = 0;
    disk.fail_one_in = 0;
    memset(pull, 0, sizeof pull);
    memset(committing, 0, sizeof committing);
    memset(reader, 0, sizeof reader);
    memset(read_at, 0, sizeof read_at); /* bytes that were read may not have been durable */
    stales = 0;                         /* left to the sweeps */
    for (i = 0; i < CLIENTS; i++)
        if (client[i].state != NOTHING) { /* all connections are gone; clients give up, their messages may still come */
            event[client[i].write].ended = ++now;
            client[i].state = NOTHING;
            orphans++;
        }
    crashes++;
}

static void check_progress(uint64_t steps)
{
    printf("%u writes, %u reads, %u pieces stored, %u swept, %u parts pulled, %u crashes, %u recoveries, %u failures\n",
           (unsigned)events, (unsigned)reads, (unsigned)stored, (unsigned)swept, (unsigned)pulled, (unsigned)crashes,
           (unsigned)recoveries, (unsigned)disk.failures);
    if (steps < 400000)
        return;
    CHECK_GE(stored, 1000);
    CHECK_GE(pulled, 500);
    CHECK_GE(swept, 50);
    CHECK_GE(crashes, 100);
    CHECK_GE(refused, 10);
    CHECK_GE(requeries, 10);
    CHECK_GE(lost_messages, 100);
}

int main(void)
{
    uint64_t step, steps;
    check_begin("twochoice_bytes");
    check_rng_init(&rng, check_seed());
    steps = check_scaled(400000);
    disk_init(&disk, &rng, &storage);
    memset(&config, 0, sizeof config);
    config.max_fragments = 40;
    config.max_writes = 8;
    config.max_pulls = PULLS;
    config.mark_commits = 3;
    config.max_log_bytes = 96 * 42;
    config.storage = &storage;
    mem = aligned_alloc(64, twochoice_table_memsize(&config));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    (void)new_write(); /* number 0: the zeros at the beginning */
    event[0].ended = ++now;
    for (step = 0; step < steps; step++) {
        uint64_t what = check_between(&rng, 0, 99);
        CHECK_CONTEXT("seed %u, step %u", (unsigned)check_seed(), (unsigned)step);
        if (what < 35)
            step_client(&client[check_between(&rng, 0, CLIENTS - 1)]);
        else if (what < 55)
            step_pull(&pull[check_between(&rng, 0, PULLS - 1)]);
        else if (what < 75)
            deliver();
        else if (what < 88)
            step_log();
        else if (what < 92)
            send_drops();
        else if (what < 94)
            sweep();
        else if (what < 98)
            step_reader(&reader[check_between(&rng, 0, 3)]);
        else if (check_between(&rng, 0, 9) == 0)
            disk.fail_one_in = check_between(&rng, 0, 1) ? 0 : (unsigned)check_between(&rng, 3, 60);
        else if (check_between(&rng, 0, 99) == 0)
            disk.stop_after = disk.operations + check_between(&rng, 1, 6); /* the home's disk fails, then it crashes */
        else if (check_between(&rng, 0, 40) == 0 || disk.stopped)
            recover_home();
    }
    recover_home();
    read_all();
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
    check_progress(steps);
    free(mem);
    free(event);
    free(stale);
    disk_free(&disk);
    return check_end();
}
