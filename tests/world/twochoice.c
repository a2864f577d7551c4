// proves: twochoice.h's table in a world of its own: no acknowledged byte is lost or stale after any power cut, failed write or
// proves: sync, killed process, lost or repeated message, for a reader that is late, too; recovery gives a prefix of the
// proves: changes; a write counts at most once, and not before it is bound; nothing writes at home beside another. Also in worlds
// proves: of clients, servers that hang, lie and fail, and a maintainer: where writes go, who is asked, and when bytes come home
#define WORLD_HEADER "twochoice"
#define WORLD_FIELDS(X)                                                                                                \
    X(STEPS, "steps", "100 30 300 1000")                                                                               \
    X(CUTS, "cut_every", "0 10 30 100 300")                                                                            \
    X(KILLS, "kill_every", "0 10 50 300")                                                                              \
    X(CUT_AGAIN, "cut_in_recovery", "no yes")                                                                          \
    X(KEPT, "kept_permille", "0 1000 500 100 900 1001")                                                                \
    X(WRITE_FAILS, "write_fails", "0 2 20 100")                                                                        \
    X(SYNC_FAILS, "sync_fails", "0 5 50 200")                                                                          \
    X(TRUNCATE_FAILS, "truncate_fails", "0 100 1000")                                                                  \
    X(RENAME_FAILS, "rename_fails", "0 50 500")                                                                        \
    X(FULL, "disk_bytes", "0 20000 8000")                                                                              \
    X(FRAGMENTS, "max_fragments", "100 4 10 30 300")                                                                   \
    X(WRITES_MAX, "max_writes", "8 1 2 64")                                                                            \
    X(PULLS_MAX, "max_pulls", "3 1 2")                                                                                 \
    X(MARK, "mark_commits", "4 1 64")                                                                                  \
    X(LOG, "log_room", "unlimited least twice")                                                                        \
    X(LOCAL, "local_permille", "300 0 50 900")                                                                         \
    X(LONG, "long_writes", "no yes")                                                                                   \
    X(BEGINS, "begins", "5 1 20")                                                                                      \
    X(COMMITS, "commits", "4 1 20")                                                                                    \
    X(PULLING, "pulls", "4 0 1 20")                                                                                    \
    X(COMPACTIONS, "compactions", "2 0 10 40")                                                                         \
    X(FEW, "pieces_at_once", "all one")                                                                                \
    X(UNBOUND, "unbound_permille", "0 500")                                                                            \
    X(READS, "reads", "0 2 10")                                                                                        \
    X(PARTS, "refers_asked", "all part")                                                                               \
    X(GIVES_UP, "pulls_cancelled_permille", "0 200")                                                                   \
    X(SAYS_FAILED, "sync_said_failed", "0 50")                                                                         \
    X(ROT, "rot_permille", "0 300")                                                                                    \
    X(MODE, "mode", "table writes pulls")                                                                              \
    X(SERVERS, "servers", "4 1 2 8")                                                                                   \
    X(CLIENTS, "clients", "3 1 6")                                                                                     \
    X(K, "writes_of_a_request", "4 1 8")                                                                               \
    X(TIMEOUT, "timeout_ms", "200 20")                                                                                 \
    X(HANGS, "hangs", "no one half")                                                                                   \
    X(LIARS, "liars", "no one")                                                                                        \
    X(SILENT, "silent", "0 1 2")                                                                                       \
    X(MESSAGES_LOST, "messages_lost", "0 50")                                                                          \
    X(WRITE_FAILURES, "writes_failed", "0 50")
#define WORLD_COHORTS 0u
#define WORLD_COHORT(X) X(NONE, "none", "0")
#include "examples/world/storage.h"
#include "twochoice.h"
#include "world_test.h"

/* One home server with three targets, its disk from examples/world/storage.h. What is checked is written from the
 * sentences of twochoice.h alone:
 *
 *   map      what the table must say: a stamp, or 0 for home, for each byte; after every change, by a loop over bytes
 *   states   the maps since the last acknowledged change: after a crash the table must be one of them
 *   values   which write each byte at home, or in a piece of a target, came from. A value may be read if no acknowledged
 *            write began after that value's own write was over */
#ifndef WORLD_V02 /* the header is that of version 0.2: a cut makes the file, a write is bound when it begins */
#define WORLD_V02 0
#endif
#if WORLD_V02
#define TWOCHOICE_UNBOUND 0u
#define twochoice_table_write_bind(table, stamp, target) QOS_EINVAL
#define check_tree(table) (twochoice_table_verify(table) == QOS_OK)
#else
#include "examples/common/twochoice_check.h"
#endif

#define OBJECTS 3
#define BYTES 40
#define WRITES 3000
#define STATES 2000
#define COMMITS 3
#define PULLS 3
#define READERS 3

enum stage { FREE, BEGUN, WRITTEN, ENDED, OVER };
struct write {
    uint64_t object, offset, end, stamp, begun, over; /* times in steps; over: UINT64_MAX while it may take effect */
    uint64_t change;                                  /* number of the state that has it; 0: none */
    uint64_t failed;                                  /* the same for a record that failed: it would be this one */
    uint32_t target, run;
    enum stage stage;
    bool held, acked, unbound; /* held: the target has the piece */
    bool maybe;                /* it counts or not: a crash left a table that both give */
};
struct map {
    uint64_t stamp[OBJECTS][BYTES];
    bool partial; /* a pull: each of its bytes is a change of its own */
};
struct pending {
    struct twochoice_commit commit;
    uint64_t change, swaps;
    uint32_t todo;
    bool used, failed, lost; /* lost: the sync of the active log failed */
};
struct pull {
    struct twochoice_piece piece, ready[8];
    uint64_t value[BYTES];
    size_t count;
    uint32_t id;
    bool cancelled;
    int stage; /* 0 none, 1 started, 2 copied, 3 ready: home may be written, 4 written, 5 its finish failed */
};
struct drop {
    uint64_t at, write;
};
/* A client that asks the home where a byte is, and reads it there some time later. */
struct reader {
    uint64_t object, byte, stamp, floor, settled; /* the latter: when it asked first */
    bool asked;
};

static struct world_storage disk;
static struct world_rng rng, more; /* more: for what a world may have besides, which leaves the others as they are */
static struct twochoice_table table;
static struct twochoice_table_config config;
static unsigned char memory[1 << 20] __attribute__((aligned(64)));
static int handle[3];
static int active_log;
static struct write writes[WRITES];
static struct world *world;
static uint64_t write_count, now;
static struct map states[STATES];
static uint64_t first_state, state_count; /* states[0] is number first_state */
/* The record of a change whose call failed may have reached the log all the same: after a crash it counts or not, behind
 * the changes before it, unless a later one was acknowledged, or it was cancelled. */
#define DOUBTS 1024 /* more than a world has failures between two crashes */
struct doubt {
    struct map map;
    uint64_t write, base; /* write: UINT64_MAX: a pull; 0: none. base: number of the state before */
};
static struct doubt doubts[DOUBTS];
static uint64_t next_doubt, acked_change;
static uint64_t home[OBJECTS][BYTES], floor_of[OBJECTS][BYTES], settled[OBJECTS][BYTES];
static struct pending commits[COMMITS];
static struct pull pulls[PULLS];
static struct drop drops[WRITES];
static struct reader readers[READERS];
static uint64_t drop_count;
static uint32_t run_number;
static bool compacting, swap_due, swapped, dead, formatted, log_lost;
static uint64_t swaps, compacted; /* compacted: what a compaction may have made durable */
static uint64_t acked_writes, crashes, ended_again, refused, pulled, compactions, eio, dropped, reads;

#define TRACE(...) (world_tracing ? (void)printf(__VA_ARGS__) : (void)0)
#define FAULT(oracle, ...) (world->broken ? (void)0 : world_fail(world, oracle, now, __VA_ARGS__))

/* ---- the table's storage over the world's disk: name 0 is the active log, 1 the next one, 2 the mark ---- */

static int on_create(void *ctx, int log)
{
    (void)ctx;
    world_storage_close(&disk, handle[log]);
    handle[log] = world_storage_create(&disk, log == 2 ? 2 : log == active_log ? 0 : 1);
    TRACE("    create log %d: file %d\n", log, handle[log]);
    return handle[log] < 0;
}
static int on_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    uint64_t n = 0;
    int failed;
    (void)ctx;
    *got = 0;
    if (handle[log] < 0)
        return disk.off;
    failed = world_storage_read(&disk, handle[log], offset, buf, len, &n);
    *got = (size_t)n;
    return failed;
}
static int on_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    (void)ctx;
    {
        int failed = world_storage_write(&disk, handle[log], offset, buf, len);
        TRACE("    write log %d (file %d), %zu bytes at %" PRIu64 ": %s\n", log, handle[log], len, offset,
              failed ? "failed" : "ok");
        return failed;
    }
}
static int on_sync(void *ctx, int log)
{
    (void)ctx;
    {
        int failed = world_storage_sync(&disk, handle[log]);
        TRACE("    sync log %d (file %d): %s\n", log, handle[log], failed ? "failed" : "ok");
        return failed;
    }
}
static int on_truncate(void *ctx, int log, uint64_t len)
{
    (void)ctx;
    {
        int failed = world_storage_truncate(&disk, handle[log], len);
        TRACE("    cut log %d (file %d) to %" PRIu64 ": %s\n", log, handle[log], len, failed ? "failed" : "ok");
        return failed;
    }
}
static int on_swap(void *ctx, int log)
{
    (void)ctx;
    if (world_storage_rename(&disk, handle[log], 0))
        return 1;
    active_log = log;
    swaps++;
    return 0;
}
#if WORLD_V02
static int on_cut(void *ctx, int log, uint64_t len)
{
    return handle[log] < 0 ? on_create(ctx, log) : on_truncate(ctx, log, len);
}
static const struct twochoice_storage storage = {NULL, on_read, on_write, on_sync, on_cut, on_swap};
#else
static const struct twochoice_storage storage = {NULL, on_create, on_read, on_write, on_sync, on_truncate, on_swap};
#endif

/* ---- what must hold ---- */

static struct map *latest(void)
{
    return &states[state_count - 1];
}

static uint64_t number_of_latest(void);
static struct doubt *doubt_of(uint64_t write)
{
    struct doubt *d = &doubts[next_doubt++ % DOUBTS];
    uint64_t k;
    for (k = 0; k < DOUBTS; k++) /* the same write failed before */
        if (write != UINT64_MAX && doubts[k].write == write)
            d = &doubts[k];
    d->map = *latest();
    d->write = write;
    d->base = number_of_latest();
    return d;
}

static struct map *next_state(bool partial)
{
    if (state_count == STATES) { /* the oldest ones are certainly durable, or the world ends */
        dead = true;
        state_count--;
    }
    states[state_count] = states[state_count - 1];
    states[state_count].partial = partial;
    return &states[state_count++];
}

static uint64_t number_of_latest(void)
{
    return first_state + state_count - 1;
}

/* May this byte be read with the value of write w? */
static bool allowed(uint64_t w, uint64_t floor, uint64_t settled_value)
{
    return w == settled_value || (w == 0 ? floor == 0 : writes[w].over >= floor);
}

/* The value of a byte where the table says it is; false: its target does not have it. */
static bool value_of(uint64_t o, uint64_t b, uint64_t stamp, uint64_t *value)
{
    uint64_t w;
    if (stamp == 0) {
        *value = home[o][b];
        return true;
    }
    for (w = 1; w <= write_count; w++)
        if (writes[w].stamp == stamp && writes[w].object == o && writes[w].target != TWOCHOICE_LOCAL) {
            *value = w;
            return writes[w].held && b >= writes[w].offset && b < writes[w].end;
        }
    return false;
}

static void read_map(struct map *m)
{
    uint64_t o, b;
    struct twochoice_piece p;
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < BYTES; b = p.end) {
            uint64_t i;
            twochoice_table_find(&table, o, b, &p);
            if (p.end <= b || p.object != o) {
                FAULT("tree", "find says that byte %" PRIu64 " of object %" PRIu64 " ends at %" PRIu64, b, o, p.end);
                return;
            }
            for (i = b; i < p.end && i < BYTES; i++)
                m->stamp[o][i] = p.target == TWOCHOICE_LOCAL ? 0 : p.version;
        }
}

/* Reads all bytes as a client would. */
static void check_values(const struct map *m, const char *when, bool settle)
{
    uint64_t o, b, w = 0;
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < BYTES; b++) {
            if (!value_of(o, b, m->stamp[o][b], &w))
                FAULT("lost",
                      "%s: the table refers to stamp %" PRIu64 " for byte %" PRIu64 " of object %" PRIu64
                      ", and its target no longer has it",
                      when, m->stamp[o][b], b, o);
            else if (!allowed(w, floor_of[o][b], settled[o][b]))
                FAULT("stale",
                      "%s: byte %" PRIu64 " of object %" PRIu64 " has the value of write %" PRIu64
                      ", which an acknowledged write has replaced (stamp %" PRIu64 ")",
                      when, b, o, w, m->stamp[o][b]);
            if (settle) {
                settled[o][b] = w;
                floor_of[o][b] = now + 1;
            }
            if (world->broken)
                return;
        }
}

static void check_now(void)
{
    struct map m;
    uint64_t o, b;
    memset(&m, 0, sizeof m);
    read_map(&m);
    for (o = 0; o < OBJECTS && !world->broken; o++)
        for (b = 0; b < BYTES && !world->broken; b++)
            if (m.stamp[o][b] != latest()->stamp[o][b])
                FAULT("map",
                      "byte %" PRIu64 " of object %" PRIu64 ": the table says %" PRIu64 ", the changes so far %" PRIu64,
                      b, o, m.stamp[o][b], latest()->stamp[o][b]);
    if (!world->broken)
        check_values(&m, "while it serves", false);
    if (!world->broken && !check_tree(&table))
        FAULT("tree", "the tree is not sound");
}

static void check_logs(void)
{
    int log;
    for (log = 0; log < 2; log++)
        if (config.max_log_bytes && handle[log] >= 0 && disk.file[handle[log]].now_len > config.max_log_bytes)
            FAULT("log_size", "log %d has %" PRIu64 " bytes, more than max_log_bytes", log,
                  disk.file[handle[log]].now_len);
}

static void acknowledge(uint64_t change)
{
    uint64_t w, b;
    if (change <= acked_change)
        return;
    acked_change = change;
    for (w = 1; w <= write_count; w++) {
        struct write *x = &writes[w];
        if (x->run != run_number || x->change == 0 || x->change > change || x->acked)
            continue;
        x->acked = true;
        x->over = now;
        acked_writes++;
        for (b = x->offset; b < x->end; b++)
            if (floor_of[x->object][b] < x->begun)
                floor_of[x->object][b] = x->begun;
        for (b = x->offset; b < x->end; b++)
            if (settled[x->object][b] != UINT64_MAX && x->begun > 0)
                settled[x->object][b] = UINT64_MAX; /* a write of this run replaces what a crash left */
    }
    /* Older states cannot come back: the acknowledged one is the first. */
    if (change > first_state) {
        uint64_t n = change - first_state;
        memmove(states, states + n, (state_count - n) * sizeof states[0]);
        state_count -= n;
        first_state = change;
        states[0].partial = false;
    }
}

/* ---- what happens ---- */

/* Is the piece still needed? The question may be about any part of it. */
static bool refers(const struct write *x, uint64_t from, uint64_t to)
{
    if (world_choice(world, F_PARTS)) {
        from = world_between(&more, from, to - 1);
        to = world_between(&more, from + 1, to);
    }
    return twochoice_table_refers(&table, x->object, x->stamp, from, to - from);
}

static void note_drop(uint64_t object, const struct twochoice_piece *p)
{
    struct twochoice_table_state s;
    uint64_t w;
    if (p->target == TWOCHOICE_LOCAL)
        return;
    for (w = 1; w <= write_count; w++)
        if (writes[w].stamp == p->version && writes[w].object == object && writes[w].held)
            break;
    if (w > write_count || refers(&writes[w], writes[w].offset, writes[w].end))
        return;
    if (twochoice_table_info(&table, &s) == QOS_OK && drop_count < WRITES) {
        drops[drop_count].at = s.changes;
        drops[drop_count++].write = w;
    }
}

static void send_drops(void)
{
    struct twochoice_table_state s;
    uint64_t i = 0;
    if (twochoice_table_info(&table, &s) != QOS_OK)
        return;
    while (i < drop_count) {
        if (drops[i].at > s.durable_changes || world_chance(&rng, 300)) {
            i++;
            continue;
        }
        if (!world_chance(&rng, 100)) { /* some are lost */
            TRACE("%" PRIu64 " drop write %" PRIu64 "\n", now, drops[i].write);
            dropped += writes[drops[i].write].held;
            writes[drops[i].write].held = false;
        }
        drops[i] = drops[--drop_count];
    }
    if (s.changes == s.durable_changes && write_count && world_chance(&rng, 200)) { /* a target lists what it holds */
        uint64_t w = world_between(&rng, 1, write_count);
        struct write *x = &writes[w];
        if (x->held && x->stage == OVER && x->target != TWOCHOICE_LOCAL && !refers(x, x->offset, x->end)) {
            TRACE("%" PRIu64 " listed, and dropped: write %" PRIu64 "\n", now, w);
            x->held = false;
        }
    }
}

/* For any byte only one write at home, or one pull that writes there, is under way. but: the one that asks. */
static void check_home(uint64_t object, uint64_t from, uint64_t to, const void *but)
{
    uint64_t w, i;
    for (w = 1; w <= write_count; w++) {
        const struct write *x = &writes[w];
        if (x != but && x->run == run_number && (x->stage == BEGUN || x->stage == WRITTEN) && !x->unbound &&
            x->target == TWOCHOICE_LOCAL && x->object == object && x->offset < to && from < x->end)
            FAULT("home", "write %" PRIu64 " is at home, and another one, or a pull, writes there, too", w);
    }
    for (w = 0; w < PULLS; w++)
        for (i = 0; &pulls[w] != but && (pulls[w].stage == 3 || pulls[w].stage == 4) && i < pulls[w].count; i++)
            if (pulls[w].piece.object == object && pulls[w].ready[i].offset < to && from < pulls[w].ready[i].end)
                FAULT("home", "a pull of stamp %" PRIu64 " writes at home, and another one, or a write, too",
                      pulls[w].piece.version);
}

static void begin_write(void)
{
    struct write x;
    enum qos_status st;
    uint64_t w;
    if (write_count + 1 >= WRITES)
        return;
    memset(&x, 0, sizeof x);
    x.object = world_between(&rng, 0, OBJECTS - 1);
    x.offset = world_between(&rng, 0, BYTES - 1);
    x.end = world_between(&rng, x.offset + 1,
                          world_choice(world, F_LONG) == 0 && x.offset + 8 < BYTES ? x.offset + 8 : BYTES);
    x.target = world_chance(&rng, (uint32_t)world_value(world, F_LOCAL)) ? TWOCHOICE_LOCAL
                                                                         : (uint32_t)world_between(&rng, 1, 3);
    x.begun = now;
    x.over = UINT64_MAX;
    x.run = run_number;
    x.unbound = world_chance(&more, (uint32_t)world_value(world, F_UNBOUND)) && !WORLD_V02;
    st = twochoice_table_write_begin(&table, x.object, x.unbound ? TWOCHOICE_UNBOUND : x.target, x.offset,
                                     x.end - x.offset, &x.stamp);
    if (st != QOS_OK) {
        refused++;
        if (st != QOS_EFULL && st != QOS_EAGAIN && st != QOS_EIO)
            FAULT("begin", "write_begin says %d", (int)st);
        return;
    }
    for (w = 1; w <= write_count; w++)
        if (writes[w].stamp == x.stamp)
            FAULT("stamp_twice", "stamp %" PRIu64 " was given out twice", x.stamp);
    x.stage = BEGUN;
    if (!x.unbound && x.target == TWOCHOICE_LOCAL)
        check_home(x.object, x.offset, x.end, NULL);
    writes[++write_count] = x;
    TRACE("%" PRIu64 " write %" PRIu64 ": object %" PRIu64 " [%" PRIu64 ", %" PRIu64 ") to %d, stamp %" PRIu64 "\n",
          now, write_count, x.object, x.offset, x.end, x.target == TWOCHOICE_LOCAL ? -1 : (int)x.target, x.stamp);
}

static void end_write(uint64_t w)
{
    struct write *x = &writes[w];
    struct twochoice_piece replaced[BYTES + 2];
    size_t n = 0, i, max = world_choice(world, F_FEW) && world_chance(&rng, 500) ? 1 : BYTES + 2;
    uint64_t b;
    const bool again = x->change != 0;
    enum qos_status st = twochoice_table_write_end(&table, x->stamp, replaced, max, &n);
    TRACE("%" PRIu64 " end write %" PRIu64 "%s: %d\n", now, w, again ? " again" : "", (int)st);
    if (st == QOS_EAGAIN || st == QOS_EIO || st == QOS_EFULL || st == QOS_ESTALE) {
        if (st == QOS_EFULL && x->target != TWOCHOICE_LOCAL && !again && x->run == run_number)
            FAULT("room", "a redirect that has room reserved gets QOS_EFULL");
        if (st == QOS_ESTALE && !again && x->run == run_number)
            FAULT("once", "an open write is too old to be known");
        if (st == QOS_EIO && !again && x->run == run_number) {
            struct doubt *d = doubt_of(w);
            x->failed = number_of_latest() + 1;
            for (b = x->offset; b < x->end; b++)
                d->map.stamp[x->object][b] = x->target == TWOCHOICE_LOCAL ? 0 : x->stamp;
        }
        return;
    }
    if (x->run != run_number) { /* begun before a crash: did it count? change is 0 unless the recovered table has it */
        if (st == QOS_OK && x->maybe)
            x->change = 1; /* any but 0 */
        else if (st == QOS_OK && !again)
            FAULT("once", "write %" PRIu64 " of an earlier run counts by a call after the crash", w);
        if (st == QOS_ENOENT && again)
            FAULT("once",
                  "write %" PRIu64 " counted before the crash, was recovered, and is said never to have counted", w);
        x->maybe = false;
        ended_again++;
        return;
    }
    if (again) {
        ended_again++;
        if (st != QOS_OK || n != 0)
            FAULT("once", "a repeated write_end says %d with %zu pieces", (int)st, n);
        return;
    }
    if (st != QOS_OK) {
        FAULT("end", "write_end of an open write says %d", (int)st);
        return;
    }
    x->stage = ENDED;
    for (b = x->offset; b < x->end; b++) {
        struct map *m = b == x->offset ? next_state(false) : latest();
        m->stamp[x->object][b] = x->target == TWOCHOICE_LOCAL ? 0 : x->stamp;
    }
    x->change = number_of_latest();
    for (i = 0; i < n; i++)
        note_drop(x->object, &replaced[i]);
}

static void cancel_write(uint64_t w)
{
    struct write *x = &writes[w];
    enum qos_status st;
    uint64_t k;
    if (x->stage != BEGUN && x->stage != WRITTEN)
        return;
    st = twochoice_table_write_cancel(&table, x->stamp);
    TRACE("%" PRIu64 " cancel write %" PRIu64 ": %d\n", now, w, (int)st);
    if (st == QOS_EIO && x->failed && acked_change < x->failed) /* its record may be in the log: see doubts */
        return;
    if (st != QOS_OK)
        FAULT("cancel", "write_cancel of an open write says %d", (int)st);
    x->stage = OVER;
    x->over = now;
    for (k = 0; k < DOUBTS; k++)
        if (doubts[k].write == w)
            doubts[k].write = 0;
}

/* Its target becomes known. */
static void bind_write(struct write *x)
{
    struct twochoice_piece piece;
    enum qos_status st;
    size_t n;
    if (twochoice_table_write_end(&table, x->stamp, &piece, 1, &n) != QOS_EINVAL)
        FAULT("bind", "a write without a target ends");
    if (!refers(x, x->offset, x->end))
        FAULT("bind", "refers() is false for an open write that has no target yet");
    st = twochoice_table_write_bind(&table, x->stamp, x->target);
    TRACE("%" PRIu64 " bind stamp %" PRIu64 ": %d\n", now, x->stamp, (int)st);
    x->unbound = st != QOS_OK;
    if (st != QOS_OK && (st != QOS_EAGAIN || x->target != TWOCHOICE_LOCAL))
        FAULT("bind", "write_bind says %d", (int)st);
    if (st == QOS_OK && x->target == TWOCHOICE_LOCAL)
        check_home(x->object, x->offset, x->end, x);
    if (st == QOS_OK && (twochoice_table_write_bind(&table, x->stamp, x->target) != QOS_OK ||
                         twochoice_table_write_bind(&table, x->stamp, 4) != QOS_EBUSY))
        FAULT("bind", "a bound write is bound again");
}

/* The next step of a random open write. */
static void step_write(void)
{
    uint64_t w, b, half;
    struct write *x;
    if (!write_count)
        return;
    w = write_count - world_between(&rng, 0, write_count < 12 ? write_count - 1 : 11);
    x = &writes[w];
    if (x->run != run_number) {
        if (world_chance(&rng, 100) && !WORLD_V02)
            end_write(w);
        return;
    }
    switch (x->stage) {
    case BEGUN:
        if (world_chance(&rng, 60)) {
            cancel_write(w);
            return;
        }
        if (x->unbound) {
            bind_write(x);
        } else if (x->target != TWOCHOICE_LOCAL) {
            x->held = true;
            x->stage = WRITTEN;
        } else { /* in two parts: a crash may come between */
            half = x->offset + (x->end - x->offset) / 2;
            b = home[x->object][x->offset] == w ? half : x->offset;
            for (half = b == half ? x->end : half; b < half; b++)
                home[x->object][b] = w;
            if (half == x->end)
                x->stage = WRITTEN;
        }
        return;
    case WRITTEN:
        if (world_chance(&rng, 30))
            cancel_write(w);
        else
            end_write(w);
        return;
    case ENDED:
        if (world_chance(&rng, 100) && !WORLD_V02) /* it could not be asked again */
            end_write(w);                          /* the answer was lost */
        return;
    case FREE:
    case OVER: return;
    }
}

static bool same(const struct map *got, const struct map *state, const struct map *next)
{
    uint64_t o, b;
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < BYTES; b++)
            if (got->stamp[o][b] != state->stamp[o][b] &&
                !(next && next->partial && got->stamp[o][b] == next->stamp[o][b]))
                return false;
    return true;
}

/* Does the table of this change differ from that of an older one? */
static bool new_since(uint64_t change, uint64_t older)
{
    older = older < first_state ? first_state : older;
    return change > older && !same(&states[change - first_state], &states[older - first_state], NULL);
}

static void step_commit(void)
{
    struct pending *p = &commits[world_between(&rng, 0, COMMITS - 1)];
    int log;
    if (!p->used) {
        p->failed = p->lost = false;
        p->change = number_of_latest();
        if (twochoice_table_commit_begin(&table, &p->commit) != QOS_OK) {
            eio++;
            return;
        }
        p->todo = p->commit.logs;
        p->used = true;
        TRACE("%" PRIu64 " commit of change %" PRIu64 " begins, logs %u\n", now, p->change, p->todo);
        return;
    }
    if (p->todo) { /* any log first, in any thread */
        do
            log = (int)world_between(&rng, 0, 2);
        while (!(p->todo >> log & 1));
        p->todo &= ~(1u << log);
        if (on_sync(NULL, log) != 0 || world_chance(&more, (uint32_t)world_value(world, F_SAYS_FAILED))) {
            p->failed = true;
            p->lost |= log == active_log;
            p->swaps = swaps;
        }
        TRACE("%" PRIu64 " sync of log %d: %s\n", now, log, p->failed ? "failed" : "ok");
        return;
    }
    p->used = false;
    switch (twochoice_table_commit_end(&table, &p->commit, !p->failed)) {
    case QOS_OK:
        if (log_lost && new_since(p->change, first_state) && new_since(p->change, compacted))
            FAULT("acknowledged", "a commit is durable after a failed sync, and no compaction has ended");
        TRACE("%" PRIu64 " change %" PRIu64 " is durable\n", now, p->change);
        acknowledge(p->change);
        break;
    case QOS_EIO:
        eio++;
        TRACE("%" PRIu64 " commit of change %" PRIu64 " fails, %s\n", now, p->change,
              p->lost && p->swaps == swaps ? "and its log is lost" : "or a part of it");
        log_lost |= p->lost && p->swaps == swaps;
        break;
    case QOS_EAGAIN: break;
    default: FAULT("commit", "commit_end has an unknown status");
    }
}

static void step_compaction(void)
{
    enum twochoice_compact_todo todo;
    enum qos_status st;
    if (!compacting) {
        st = twochoice_table_compact_start(&table);
        TRACE("%" PRIu64 " compact_start: %d\n", now, (int)st);
        compacting = st == QOS_OK;
        swap_due = swapped = false;
        return;
    }
    if (swap_due) {
        if (!swapped && world_chance(&rng, 500)) {
            struct twochoice_table_state s;
            (void)twochoice_table_info(&table, &s);
            swapped = on_swap(NULL, (int)s.next_log) == 0;
            TRACE("%" PRIu64 " swap: %s\n", now, swapped ? "ok" : "failed");
            if (swapped)
                return; /* compact_end comes in a later step */
        } else if (!swapped)
            return;
        st = twochoice_table_compact_end(&table, swapped);
        TRACE("%" PRIu64 " compact_end: %d\n", now, (int)st);
        compactions += st == QOS_OK;
        log_lost &= st != QOS_OK;
        compacted = st == QOS_OK ? number_of_latest() : compacted;
        compacting = swap_due = swapped = false;
        return;
    }
    st = twochoice_table_compact_step(&table, (uint32_t)world_between(&rng, 1, 40), &todo);
    TRACE("%" PRIu64 " compact_step: %d, todo %d\n", now, (int)st, st == QOS_OK ? (int)todo : -1);
    if (st != QOS_OK)
        compacting = false;
    else
        swap_due = todo == TWOCHOICE_COMPACT_SWAP;
}

static void step_pull(void)
{
    struct pull *p = &pulls[world_between(&rng, 0, PULLS - 1)];
    struct twochoice_piece replaced[BYTES + 2];
    enum qos_status st;
    uint64_t b;
    size_t i, n = 0;
    if (p->stage >= 3 && !p->cancelled && world_chance(&more, (uint32_t)world_value(world, F_GIVES_UP))) {
        p->cancelled = true; /* its writes at home go on, and nothing is converted */
        if (twochoice_table_pull_cancel(&table, p->id) != QOS_EBUSY)
            FAULT("pull", "a pull that may write ends at once when it is cancelled");
    }
    switch (p->stage) {
    case 0:
        p->cancelled = false;
        if (twochoice_table_pull_start(&table, world_between(&rng, 0, OBJECTS - 1), world_between(&rng, 0, BYTES - 1),
                                       world_between(&rng, 1, BYTES), &p->id, &p->piece) == QOS_OK)
            p->stage = 1;
        return;
    case 1: /* copies from the target */
        if (world_chance(&rng, 50)) {
            p->stage = 0;
            if (twochoice_table_pull_cancel(&table, p->id) != QOS_OK)
                FAULT("pull", "a pull cannot be cancelled");
            return;
        }
        for (b = p->piece.offset; b < p->piece.end; b++)
            if (!value_of(p->piece.object, b, p->piece.version, &p->value[b])) {
                if (twochoice_table_refers(&table, p->piece.object, p->piece.version, b, 1) &&
                    latest()->stamp[p->piece.object][b] == p->piece.version)
                    FAULT("lost", "a piece that is being pulled was dropped");
                if (twochoice_table_pull_cancel(&table, p->id) != QOS_OK)
                    FAULT("pull", "a pull cannot be cancelled");
                p->stage = 0;
                return;
            }
        p->stage = 2;
        return;
    case 2:
        st = twochoice_table_pull_ready(&table, p->id, p->ready, 8, &p->count);
        if (st != QOS_OK && st != QOS_EAGAIN)
            FAULT("pull", "pull_ready says %d", (int)st);
        if (st != QOS_OK)
            return;
        p->stage = 3;
        for (i = 0; i < p->count; i++)
            check_home(p->piece.object, p->ready[i].offset, p->ready[i].end, p);
        return;
    case 3:
        for (i = 0; i < p->count; i++)
            for (b = p->ready[i].offset; b < p->ready[i].end; b++)
                home[p->piece.object][b] = p->value[b];
        p->stage = 4;
        return;
    default: {
        struct map *m;
        bool fits = true;
        st = twochoice_table_pull_finish(&table, p->id, replaced,
                                         world_choice(world, F_FEW) && world_chance(&rng, 500) ? 1 : BYTES + 2, &n);
        TRACE("%" PRIu64 " pull of stamp %" PRIu64 " finished: %d\n", now, p->piece.version, (int)st);
        if (st == QOS_EAGAIN)
            return;
        if (st != QOS_OK && st != QOS_EIO && st != QOS_EFULL) {
            FAULT("pull", "pull_finish says %d", (int)st);
            return;
        }
        m = next_state(true);
        p->stage = 5;
        if (st == QOS_OK) {
            for (i = 0; i < p->count && !p->cancelled; i++)
                for (b = p->ready[i].offset; b < p->ready[i].end; b++)
                    if (m->stamp[p->piece.object][b] == p->piece.version)
                        m->stamp[p->piece.object][b] = 0;
            p->stage = 0;
            pulled++;
        } else /* the pieces in `replaced` are at home already */
            for (i = 0; i < n; i++)
                for (b = replaced[i].offset; b < replaced[i].end && b < BYTES; b++) {
                    fits = fits && m->stamp[p->piece.object][b] == p->piece.version;
                    m->stamp[p->piece.object][b] = 0;
                }
        if (st != QOS_OK) { /* any part of the rest may count after a crash */
            struct doubt *d = doubt_of(UINT64_MAX);
            d->map.partial = true;
            for (i = 0; i < p->count; i++)
                for (b = p->ready[i].offset; b < p->ready[i].end; b++)
                    if (d->map.stamp[p->piece.object][b] == p->piece.version)
                        d->map.stamp[p->piece.object][b] = 0;
        }
        if (!fits)
            FAULT("pull", "a pull converted bytes that it did not copy");
        for (i = 0; i < n; i++)
            note_drop(p->piece.object, &replaced[i]);
    }
    }
}

static void step_reader(void)
{
    struct reader *r = &readers[world_between(&more, 0, READERS - 1)];
    struct twochoice_piece p;
    uint64_t value = 0;
    if (!r->asked) {
        r->object = world_between(&more, 0, OBJECTS - 1);
        r->byte = world_between(&more, 0, BYTES - 1);
        r->floor = floor_of[r->object][r->byte];
        r->settled = settled[r->object][r->byte];
    } else if (value_of(r->object, r->byte, r->stamp, &value)) {
        reads++;
        r->asked = false;
        if (!allowed(value, r->floor, r->settled))
            FAULT("stale",
                  "a reader of byte %" PRIu64 " of object %" PRIu64 " gets write %" PRIu64
                  ", which had been replaced when it asked",
                  r->byte, r->object, value);
        return;
    }
    twochoice_table_find(&table, r->object, r->byte, &p);
    if (r->asked && p.target != TWOCHOICE_LOCAL && p.version == r->stamp)
        FAULT("lost", "a reader is sent to stamp %" PRIu64 " again, which its target no longer has", r->stamp);
    r->stamp = p.target == TWOCHOICE_LOCAL ? 0 : p.version;
    r->asked = true;
}

/* ---- a crash ---- */

/* The table if the record of a failed call counts: for a pull any part of it may. */
static bool gives(const struct doubt *d, const struct map *m)
{
    const bool pull = d->write == UINT64_MAX;
    if (d->write == 0 || d->base < first_state)
        return false;
    return same(m, pull ? &states[d->base - first_state] : &d->map, pull ? &d->map : NULL);
}

/* The recovered table may be that of a later state, too, in which the record of a failed call counts: a write at home,
 * or a pull, makes a table what it was before. Then any write in between may count. */
static void find_maybe(const struct map *m, uint64_t found)
{
    uint64_t k, w;
    for (k = 0; k < DOUBTS; k++) {
        const struct doubt *d = &doubts[k];
        if (d->base < found || !gives(d, m))
            continue;
        if (d->write != UINT64_MAX)
            writes[d->write].maybe = true;
        for (w = 1; w <= write_count; w++)
            if (writes[w].run == run_number && writes[w].change > found && writes[w].change <= d->base)
                writes[w].maybe = true;
    }
}

/* A bit of a record of the log changes on the disk: of the last one, or of any but the header. */
static bool rot(void)
{
    struct world_file *f;
    uint64_t records, at;
    if (disk.on_disk[0] < 0 || !world_chance(&more, (uint32_t)world_value(world, F_ROT)))
        return false;
    f = &disk.file[disk.on_disk[0]];
    records = f->disk_len / TWOCHOICE_RECORD_BYTES;
    if (records < 2)
        return false;
    at = world_chance(&more, 500) ? records - 1 : world_between(&more, 1, records - 1);
    at = at * TWOCHOICE_RECORD_BYTES + world_between(&more, 0, 39);
    f->disk[at] ^= (uint8_t)(1 << world_between(&more, 0, 7));
    f->now[at] = f->disk[at];
    TRACE("%" PRIu64 " rot: byte %" PRIu64 " of %" PRIu64 "\n", now, at, f->disk_len);
    return true;
}

static void recover(void)
{
    bool rotten = false;
    struct map m;
    struct twochoice_recovery recovery = {0, 0, 0};
    enum qos_status st = QOS_EIO;
    uint64_t w, k = 0, tries, came_back = 0;
    const struct world_storage_config faults = disk.config;
    crashes++;
    for (w = 1; w <= write_count; w++)
        if (writes[w].run == run_number && writes[w].over == UINT64_MAX)
            writes[w].over = now;
    for (tries = 0; st != QOS_OK && !world->broken; tries++) {
        int i;
        world_storage_boot(&disk);
        rotten = rotten || (tries == 0 && formatted && rot());
        if (tries >= 3) { /* in the end the disk works */
            disk.config.write_fails_permille = disk.config.sync_fails_permille = disk.config.truncate_fails_permille =
                0;
            disk.config.rename_fails_permille = 0;
            disk.config.capacity_bytes = 0;
        } else if (world_choice(world, F_CUT_AGAIN) && world_chance(&rng, 500))
            world_storage_cut_in(&disk, world_between(&rng, 0, 40));
        for (i = 0; i < 3; i++)
            handle[i] = world_storage_open(&disk, i);
        active_log = 0;
        if (twochoice_table_init(&table, memory, twochoice_table_memsize(&config), &config) != QOS_OK) {
            FAULT("init", "init");
            return;
        }
        st = twochoice_table_recover(&table, 0, &recovery);
        TRACE("%" PRIu64 " recover: %d; valid %" PRIu64 ", dropped %" PRIu64 ", files of %" PRIu64 ", %" PRIu64
              ", %" PRIu64 " bytes\n",
              now, (int)st, recovery.valid_bytes, recovery.dropped_bytes,
              handle[0] < 0 ? 0 : disk.file[handle[0]].now_len, handle[1] < 0 ? 0 : disk.file[handle[1]].now_len,
              handle[2] < 0 ? 0 : disk.file[handle[2]].now_len);
        formatted = formatted || st == QOS_OK;
        if (!formatted && (st == QOS_ENOENT || st == QOS_ECORRUPT)) {
            st = twochoice_table_format(&table); /* it was never made: the power went, or a call failed, in format */
            formatted = st == QOS_OK && !disk.off;
        } else if (rotten && st == QOS_ECORRUPT) { /* it says so: the world ends */
            disk.config = faults;
            dead = true;
            return;
        } else if (st == QOS_ENOENT || (st != QOS_OK && st != QOS_EIO && st != QOS_EFULL)) {
            FAULT("recover", "recover says %d", (int)st);
            return;
        }
        if (st == QOS_OK && disk.off)
            st = QOS_EIO;
        if (tries > 8) {
            FAULT("recover", "recover never succeeds on a disk that works: %d", (int)st);
            return;
        }
    }
    disk.config = faults;
    disk.cut_at = UINT64_MAX;
    memset(&m, 0, sizeof m);
    read_map(&m);
    for (k = state_count; k-- > 0;)
        if (same(&m, &states[k], k + 1 < state_count ? &states[k + 1] : NULL))
            break;
    for (w = 0; k == UINT64_MAX && w < DOUBTS; w++) {
        const struct doubt *d = &doubts[w];
        if (!gives(d, &m))
            continue;
        k = d->base - first_state;
        if (d->write != UINT64_MAX) {
            came_back = d->write;
            writes[came_back].change = first_state + k > 0 ? first_state + k : 1; /* any but 0 */
        }
    }
    if (k == UINT64_MAX) {
        uint64_t o, b;
        for (o = 0; o < OBJECTS; o++)
            for (b = 0; b < BYTES; b++)
                if (m.stamp[o][b] != states[0].stamp[o][b])
                    TRACE("  byte %" PRIu64 " of object %" PRIu64 ": recovered %" PRIu64 ", acknowledged %" PRIu64
                          ", latest %" PRIu64 "\n",
                          b, o, m.stamp[o][b], states[0].stamp[o][b], latest()->stamp[o][b]);
        FAULT("prefix", "the recovered table is none of the %" PRIu64 " states since the last acknowledged change",
              state_count);
        return;
    }
    check_values(&m, "after a crash", true);
    if (!came_back)
        find_maybe(&m, first_state + k);
    for (w = 1; w <= write_count; w++)
        if (writes[w].run == run_number) {
            writes[w].stage = OVER;
            if (writes[w].change > first_state + k && w != came_back)
                writes[w].change = 0; /* not recovered: it never counted */
        }
    run_number++;
    first_state += k;
    states[0] = m;
    states[0].partial = false;
    state_count = 1;
    acked_change = first_state;
    memset(commits, 0, sizeof commits);
    memset(pulls, 0, sizeof pulls);
    memset(readers, 0, sizeof readers);
    drop_count = 0;
    compacting = swap_due = swapped = log_lost = false;
    memset(doubts, 0, sizeof doubts);
}

#if !WORLD_V02 /* its clients and servers said other things */
#include "twochoice_writes.h"
#endif

/* ---- the world ---- */

static void table_world(struct world *w);
static void world_run(struct world *w)
{
    world = w;
    world_rng_init(&rng, w->seed, 5);
    world_rng_init(&more, w->seed, 6);
    now = 0;
#if !WORLD_V02
    switch (world_choice(w, F_MODE)) {
    case 1: writes_world(); return;
    case 2: pulls_world(); return;
    default: break;
    }
#endif
    table_world(w);
}

static void table_world(struct world *w)
{
    struct world_storage_config d;
    struct twochoice_table_state s;
    uint64_t cuts, kills, i, steps;
    uint64_t weight[6];
    memset(&d, 0, sizeof d);
    d.write_fails_permille = (uint32_t)world_value(w, F_WRITE_FAILS);
    d.sync_fails_permille = (uint32_t)world_value(w, F_SYNC_FAILS);
    d.truncate_fails_permille = (uint32_t)world_value(w, F_TRUNCATE_FAILS);
    d.rename_fails_permille = (uint32_t)world_value(w, F_RENAME_FAILS);
    d.capacity_bytes = (uint64_t)world_value(w, F_FULL);
    d.sync_sticky = !WORLD_V02; /* the storage of twochoice.h: after a failed sync all calls fail until create */
    d.kept_permille = (uint32_t)world_value(w, F_KEPT);
    memset(&config, 0, sizeof config);
    config.max_fragments = (uint32_t)world_value(w, F_FRAGMENTS);
    config.max_writes = (uint32_t)world_value(w, F_WRITES_MAX);
    config.max_pulls = (uint32_t)world_value(w, F_PULLS_MAX);
    config.home = 7;
    config.mark_commits = (uint32_t)world_value(w, F_MARK);
    config.max_log_bytes = world_choice(w, F_LOG) * UINT64_C(96) * (config.max_fragments + 2);
    config.storage = &storage;
    steps = (uint64_t)world_value(w, F_STEPS);
    cuts = (uint64_t)world_value(w, F_CUTS);
    kills = (uint64_t)world_value(w, F_KILLS);
    weight[0] = (uint64_t)world_value(w, F_BEGINS);
    weight[1] = 3 * weight[0];
    weight[2] = (uint64_t)world_value(w, F_COMMITS);
    weight[3] = (uint64_t)world_value(w, F_PULLING);
    weight[4] = (uint64_t)world_value(w, F_COMPACTIONS);
    weight[5] = (uint64_t)world_value(w, F_READS);
    world_storage_init(&disk, &d, w->seed);
    memset(writes, 0, sizeof writes);
    memset(home, 0, sizeof home);
    memset(floor_of, 0, sizeof floor_of);
    memset(settled, 0, sizeof settled);
    memset(states, 0, sizeof states[0]);
    memset(commits, 0, sizeof commits);
    memset(pulls, 0, sizeof pulls);
    memset(readers, 0, sizeof readers);
    write_count = drop_count = now = acked_change = first_state = 0;
    state_count = 1;
    run_number = 0;
    compacting = swap_due = swapped = dead = log_lost = false;
    compacted = 0;
    memset(doubts, 0, sizeof doubts);
    handle[0] = handle[1] = handle[2] = -1;
    active_log = 0;
    if (twochoice_table_memsize(&config) > sizeof memory ||
        twochoice_table_init(&table, memory, twochoice_table_memsize(&config), &config) != QOS_OK) {
        FAULT("init", "init refuses a configuration in range");
        return;
    }
    formatted = twochoice_table_format(&table) == QOS_OK;
    if (!formatted)
        recover();
    for (now = 1; now < steps && !w->broken && !dead; now++) {
        uint64_t sum = weight[0] + weight[1] + weight[2] + weight[3] + weight[4] + weight[5], x;
        w->events++;
        if (cuts && world_between(&rng, 0, cuts) == 0)
            world_storage_cut_in(&disk, world_between(&rng, 0, 12));
        if (disk.off || (kills && world_between(&rng, 0, kills) == 0)) {
            recover();
            continue;
        }
        x = world_between(&rng, 0, sum - 1);
        i = 0;
        while (x >= weight[i])
            x -= weight[i++];
        switch (i) {
        case 0: begin_write(); break;
        case 1: step_write(); break;
        case 2: step_commit(); break;
        case 3: step_pull(); break;
        case 4: step_compaction(); break;
        default: step_reader(); break;
        }
        if (disk.off || w->broken)
            continue;
        if (twochoice_table_info(&table, &s) == QOS_OK && s.log_broken && world_chance(&rng, 200))
            step_compaction();
        send_drops();
        check_logs();
        if (world_chance(&rng, 50))
            check_now();
    }
    if (!w->broken && !dead) { /* at the end what is acknowledged is there */
        world_storage_cut(&disk);
        recover();
        if (!w->broken && !dead)
            check_now();
    }
    world_storage_free(&disk);
}

int main(int argc, char **argv)
{
    static const struct world_open open[] = {{0, NULL}};
    int result = world_main(argc, argv, "tests/world/twochoice.worlds", 2500, open);
    printf("%" PRIu64 " writes acknowledged, %" PRIu64 " crashes, %" PRIu64 " repeated ends, %" PRIu64
           " begins refused, %" PRIu64 " pulls, %" PRIu64 " compactions, %" PRIu64 " I/O errors, %" PRIu64
           " pieces dropped, %" PRIu64 " reads\n",
           acked_writes, crashes, ended_again, refused, pulled, compactions, eio, dropped, reads);
    return result;
}
