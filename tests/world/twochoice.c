// proves: twochoice.h's table in a world of its own: no acknowledged byte is lost or stale after any power cut, failed write or
// proves: sync, killed process, lost or repeated message, for a reader that is late, too; recovery gives a prefix of the
// proves: changes; a write counts at most once, and not before it is bound; nothing writes at home beside another. Also in worlds
// proves: of clients, servers that hang, lie and fail, and a maintainer: where writes go, who is asked, and when bytes come home
// scale: 2
#define WORLD_HEADER "twochoice"
#define WORLD_REFERENCE
#define WORLD_AGAIN "no shifted permuted"
#define WORLD_AGAIN_PERMILLE 150
#define WORLD_LATER F_AGAIN
#define WORLD_LATER_COHORT F_COHORT
#ifdef WORLD_V02 /* whose storage could cut a log */
#define WORLD_FIELDS_OF_V02(X) X(TRUNCATE_FAILS, "truncate_fails", "0 100 1000")
#else
#define WORLD_FIELDS_OF_V02(X)
#endif
#define WORLD_FIELDS(X)                                                                                                \
    X(STEPS, "steps", "100 30 300 1000")                                                                               \
    X(CUTS, "cut_every", "0 10 30 100 300")                                                                            \
    X(KILLS, "kill_every", "0 10 50 300")                                                                              \
    X(CUT_AGAIN, "cut_in_recovery", "no yes")                                                                          \
    X(KEPT, "kept_permille", "0 1000 500 100 900 1001")                                                                \
    X(WRITE_FAILS, "write_fails", "0 2 20 100")                                                                        \
    X(SYNC_FAILS, "sync_fails", "0 5 50 200")                                                                          \
    WORLD_FIELDS_OF_V02(X)                                                                                             \
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
    X(DAMAGE, "damage", "none bit cut zero gone older mark moved")                                                     \
    X(HOMES, "homes", "1 2")                                                                                           \
    X(CELLS, "bytes", "40 8 400")                                                                                      \
    X(SCALE, "scale", "1 1048576 67108864 1073741824 2251799813685248")                                                \
    X(PLACE, "objects_end", "low high")                                                                                \
    X(FILLED, "filled", "0 60 1000")                                                                                   \
    X(LOGGED, "logged", "yes no")                                                                                      \
    X(WRONG, "wrong_calls", "no yes")                                                                                  \
    X(MAINTAINED, "maintained", "no yes")                                                                              \
    X(MODE, "mode", "table writes pulls")                                                                              \
    X(SERVERS, "servers", "4 1 2 8 16")                                                                                \
    X(CLIENTS, "clients", "3 1 6")                                                                                     \
    X(K, "writes_of_a_request", "4 1 8")                                                                               \
    X(TIMEOUT, "timeout_ms", "200 20")                                                                                 \
    X(HANGS, "hangs", "no one half deaf")                                                                              \
    X(REFUSES, "servers_that", "take are_full are_down change")                                                        \
    X(OWN, "own_traffic", "no yes")                                                                                    \
    X(SHARE, "reservations_of_a_client", "64 2")                                                                       \
    X(REPEATED, "messages_repeated", "0 100")                                                                          \
    X(DAMAGED, "messages_damaged", "0 50")                                                                             \
    X(LIARS, "liars", "no one")                                                                                        \
    X(SILENT, "silent", "0 1 2")                                                                                       \
    X(MESSAGES_LOST, "messages_lost", "0 50")                                                                          \
    X(WRITE_FAILURES, "writes_failed", "0 50")                                                                         \
    X(CLOCKS, "clocks_set_back", "no yes")                                                                             \
    X(CHANNELS, "channels", "1 4 16")                                                                                  \
    X(AGAIN, "again", WORLD_AGAIN)
#define WORLD_COHORTS 0u
#define WORLD_COHORT(X) X(NONE, "none", "0")
#include "examples/world/storage.h"
#include "twochoice.h"
#include "world_test.h"

/* One or two home servers, each with a log on a disk of its own (examples/world/storage.h), a maintainer and three targets, of
 * which the other home is one: it may be down, or recover, while this one goes on. An object has one home; clients write
 * through both. What is checked is written from the sentences of twochoice.h alone:
 *
 *   map      what the table must say: a stamp, or 0 for home, for each byte; after every change, by a loop over bytes
 *   states   the maps since the table began: after a crash it must be one of those since the last acknowledged change
 *   values   which write each byte at home, or in a piece of a target, came from. A value may be read if no acknowledged
 *            write began after that value's own write was over
 *
 * A byte here stands for `scale` bytes of the object. */
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
#define CELLS 400
#define HOMES 2
#define WRITES 3000
#define STATES 2000
#define COMMITS 3
#define PULLS 3
#define READERS 3

enum stage { FREE, BEGUN, WRITTEN, ENDED, OVER };
struct write {
    uint64_t object, offset, end, stamp, begun, over; /* times in steps; over: UINT64_MAX while it may take effect */
    uint64_t change;                                  /* number of the state that has it; 0: none */
    uint64_t failed;                                  /* its end failed: compactions that had ended, and 1 */
    uint32_t target, run;
    uint16_t behind; /* the next one in its chain: see write_of */
    enum stage stage;
    bool held, acked, unbound; /* held: the target has the piece */
    bool maybe;                /* it counts or not: a crash left a table that both give */
};
struct map {
    uint64_t stamp[OBJECTS][CELLS];
    bool partial; /* a pull: each of its bytes is a change of its own */
};
struct pending {
    struct twochoice_commit commit;
    uint64_t change, swaps, len; /* len: of the active log when it began */
    uint32_t todo;
    bool used, failed, lost; /* lost: the sync of the active log failed */
    bool after_end;          /* it began when the latest compaction had ended: a mark of its log is one of its syncs */
};
struct pull {
    struct twochoice_piece piece, ready[8];
    uint64_t object, from, to, value[CELLS]; /* [from, to): its bytes */
    size_t count;
    uint32_t id;
    bool cancelled;
    int stage; /* 0 none, 1 started, 2 copied, 3 ready: home may be written, 4 written, 5 its finish failed */
};
struct drop { /* at: changes of the table when nothing needed the piece any more; state: number of the world's */
    uint64_t at, write, state;
};
/* A client that asks the home where a byte is, and reads it there some time later. */
struct reader {
    uint64_t object, byte, stamp, floor, settled; /* the latter: when it asked first */
    uint32_t target;
    bool asked;
};

/* The record of a change whose call failed may have reached the log all the same: after a crash it counts or not, behind
 * the changes before it, unless a later one was acknowledged, or it was cancelled. */
#define DOUBTS 1024 /* more than a world has failures between two crashes */
struct doubt {
    struct map map;
    uint64_t write, base, renewed; /* write: UINT64_MAX: a pull; 0: none. base: number of the state before */
};
#define CHAINS 1024u
#define NEWEST 130u /* acknowledged changes that are remembered, for the mark */

struct home {
    uint32_t id, other; /* its server; a second home's, which is one of its targets */
    struct world_storage disk;
    struct twochoice_table table;
    struct twochoice_table_config config;
    struct twochoice_maintainer maintainer;
    int handle[3];
    int active_log;
    struct write writes[WRITES];
    uint16_t chain[CHAINS];
    uint64_t write_count;
    struct map states[STATES];
    uint64_t first_state, state_count; /* states[0] is number first_state */
    struct doubt doubts[DOUBTS];
    uint64_t next_doubt, acked_change, acks, newest[NEWEST]; /* newest: what the last acks made durable */
    uint64_t local[OBJECTS][CELLS], floor_of[OBJECTS][CELLS], settled[OBJECTS][CELLS];
    struct pending commits[COMMITS];
    struct pull pulls[PULLS];
    struct drop drops[WRITES];
    struct reader readers[READERS];
    uint64_t drop_count, dropped_at; /* dropped_at: number of the latest state that was durable when a piece went */
    uint64_t up_at;                  /* when it starts again */
    uint32_t run_number;
    bool down, compacting, swap_due, swapped, dead, formatted, log_lost, pulled, mark_old; /* mark_old: it failed */
    uint64_t swaps, renewed;            /* renewed: compactions that have ended */
    uint64_t compacted;                 /* what a compaction may have made durable */
    uint64_t given;                     /* the latest stamp */
    uint8_t older[WORLD_STORAGE_BYTES]; /* the log at some time */
    uint64_t older_len;
    uint64_t sure_len,
        told_len; /* of file `sure`, when the latest commit that was acknowledged began, and when it ended:
                                  * what is written behind that counts the former bytes as durable */
    int sure;
    int unmarked;             /* file of a log that is swapped in, until a mark of it is durable; -1: none */
    bool ended;               /* its compaction has ended */
    uint64_t copied, end_has; /* numbers of states: when the latest copy was whole; the same of `unmarked` */
};

static struct home homes[HOMES], *me = homes;
static unsigned char memories[HOMES][1 << 20] __attribute__((aligned(64)));
static unsigned char maintainers[HOMES][1 << 12] __attribute__((aligned(64)));
static struct world_rng rng, more; /* more: for what a world may have besides, which leaves the others as they are */
static struct world *world;
static uint64_t now, cells, scale, place;
static const uint64_t ids[HOMES][OBJECTS] = {{0, 5, UINT64_MAX}, {1, UINT64_C(1) << 40, UINT64_MAX - 1}};
static uint64_t acked_writes, crashes, ended_again, refused, pulled, compactions, eio, dropped, reads, wrong, damages,
    failures, faulty; /* worlds whose storage failed, was cut off or damaged */

#define TRACE(...) (world_tracing ? (void)printf(__VA_ARGS__) : (void)0)
#define FAULT(oracle, ...) (world->broken ? (void)0 : world_fail(world, oracle, now, __VA_ARGS__))

/* ---- the table's storage over the world's disk: name 0 is the active log, 1 the next one, 2 the mark ---- */

static struct home *foreign; /* recover is shown this home's disk */
static bool touched(void)
{
    if (foreign)
        FAULT("foreign", "another server's log is changed");
    return foreign != NULL;
}
static int on_create(void *ctx, int log)
{
    (void)ctx;
    if (touched())
        return 1;
    world_storage_close(&me->disk, me->handle[log]);
    me->handle[log] = world_storage_create(&me->disk, log == 2 ? 2 : log == me->active_log ? 0 : 1);
    TRACE("    create log %d: file %d\n", log, me->handle[log]);
    me->sure = me->handle[log] == me->sure ? -1 : me->sure;
    failures += me->handle[log] < 0;
    return me->handle[log] < 0;
}
static int on_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    struct home *from = foreign ? foreign : me;
    const int file = foreign ? foreign->disk.on_disk[log] : me->handle[log];
    uint64_t n = 0;
    int failed;
    (void)ctx;
    *got = 0;
    if (file < 0)
        return from->disk.off;
    failed = world_storage_read(&from->disk, file, offset, buf, len, &n);
    *got = (size_t)n;
    return failed;
}
static int on_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    int failed;
    (void)ctx;
    failed = touched() || world_storage_write(&me->disk, me->handle[log], offset, buf, len);
    failures += failed != 0;
    me->mark_old |= failed && log == TWOCHOICE_MARK_LOG;
    TRACE("    write log %d (file %d), %zu bytes at %" PRIu64 ": %s\n", log, me->handle[log], len, offset,
          failed ? "failed" : "ok");
    return failed;
}
static int on_sync(void *ctx, int log)
{
    int failed;
    (void)ctx;
    failed = touched() || world_storage_sync(&me->disk, me->handle[log]);
    failures += failed != 0;
    me->mark_old = log == TWOCHOICE_MARK_LOG ? failed : me->mark_old;
    TRACE("    sync log %d (file %d): %s\n", log, me->handle[log], failed ? "failed" : "ok");
    return failed;
}
static int on_swap(void *ctx, int log)
{
    (void)ctx;
    if (touched() || world_storage_rename(&me->disk, me->handle[log], 0)) {
        failures++;
        return 1;
    }
    me->active_log = log;
    me->swaps++;
    return 0;
}
#if WORLD_V02
static uint64_t cuts_in_call; /* of a compaction in one call, which has to end; 0: none is under way */
/* truncate_fails=1000: a log can be emptied, but not be cut. */
static int on_cut(void *ctx, int log, uint64_t len)
{
    int failed;
    if (cuts_in_call && ++cuts_in_call > 100000) {
        cuts_in_call = 0;
        siglongjmp(world_hung, 1);
    }
    if (len && world_choice(world, F_TRUNCATE_FAILS) == 2)
        return 1;
    if (me->handle[log] < 0)
        return on_create(ctx, log);
    failed = touched() || world_storage_truncate(&me->disk, me->handle[log], len);
    failures += failed != 0;
    TRACE("    cut log %d (file %d) to %" PRIu64 ": %s\n", log, me->handle[log], len, failed ? "failed" : "ok");
    return failed;
}
static const struct twochoice_storage storage = {NULL, on_read, on_write, on_sync, on_cut, on_swap};
#else
static const struct twochoice_storage storage = {NULL, on_create, on_read, on_write, on_sync, on_swap};
#endif

/* ---- what must hold ---- */

static struct map *latest(void)
{
    return &me->states[me->state_count - 1];
}

static void copy_map(struct map *to, const struct map *from)
{
    uint64_t o;
    for (o = 0; o < OBJECTS; o++)
        memcpy(to->stamp[o], from->stamp[o], cells * sizeof to->stamp[o][0]);
}

/* Bytes of an object and the world's numbers for them. */
static uint64_t at_byte(uint64_t b)
{
    return place + b * scale;
}
static uint64_t byte_at(uint64_t offset)
{
    return offset >= at_byte(cells)                     ? cells
           : offset < place || (offset - place) % scale ? UINT64_MAX
                                                        : (offset - place) / scale;
}
static uint64_t id_of(uint64_t object)
{
    static const uint64_t others[HOMES][OBJECTS] = {{3, 70, UINT64_MAX / 3}, {4, UINT64_C(1) << 60, UINT64_MAX / 2}};
    return (world_again == WORLD_PERMUTED ? others : ids)[me - homes][object];
}
static struct home *home_of(uint32_t server) /* NULL: it is no home */
{
    return server == homes[0].id ? &homes[0] : server == homes[1].id && homes[1].other ? &homes[1] : NULL;
}
static bool serves(uint32_t server)
{
    const struct home *s = home_of(server);
    return !s || !s->down;
}
static bool is_open(const struct write *x)
{
    return x->run == me->run_number && (x->stage == BEGUN || x->stage == WRITTEN);
}
/* The write of this home that has the stamp; 0: none. */
static uint64_t write_of(uint64_t stamp)
{
    uint64_t w = me->chain[stamp % CHAINS];
    while (w && me->writes[w].stamp != stamp)
        w = me->writes[w].behind;
    return w;
}

static uint64_t number_of_latest(void)
{
    return me->first_state + me->state_count - 1;
}
static struct doubt *doubt_of(uint64_t write)
{
    struct doubt *d = &me->doubts[me->next_doubt % DOUBTS];
    uint64_t k;
    for (k = 0; k < me->next_doubt && k < DOUBTS; k++) /* the same write failed before */
        if (write != UINT64_MAX && me->doubts[k].write == write)
            d = &me->doubts[k];
    me->next_doubt += d == &me->doubts[me->next_doubt % DOUBTS];
    copy_map(&d->map, latest());
    d->map.partial = false;
    d->write = write;
    d->base = number_of_latest();
    d->renewed = me->renewed;
    return d;
}
static uint64_t doubts_so_far(void)
{
    return me->next_doubt < DOUBTS ? me->next_doubt : DOUBTS;
}

static struct map *next_state(bool partial)
{
    struct twochoice_table_state s;
    uint64_t k;
    if (me->state_count == STATES) { /* this home's world ends */
        me->dead = true;
        me->state_count--;
    }
    copy_map(&me->states[me->state_count], latest());
    me->states[me->state_count++].partial = partial;
    /* Nothing follows a failed record in its log: the new state is no change there. */
    if (!WORLD_V02 && twochoice_table_info(&me->table, &s) == QOS_OK && s.log_broken)
        for (k = 0; k < doubts_so_far(); k++)
            if (me->doubts[k].renewed == me->renewed && me->doubts[k].base + 1 == number_of_latest())
                me->doubts[k].base++;
    return latest();
}

/* May this byte be read with the value of write w? */
static bool allowed(uint64_t w, uint64_t floor, uint64_t settled_value)
{
    return w == settled_value || (w == 0 ? floor == 0 : me->writes[w].over >= floor);
}

/* The value of a byte where the table says it is; false: its target does not have it. */
static bool value_of(uint64_t o, uint64_t b, uint64_t stamp, uint64_t *value)
{
    const uint64_t w = stamp ? write_of(stamp) : 0;
    if (stamp == 0) {
        *value = me->local[o][b];
        return true;
    }
    *value = w;
    return w && me->writes[w].object == o && me->writes[w].target != TWOCHOICE_LOCAL && me->writes[w].held &&
           b >= me->writes[w].offset && b < me->writes[w].end;
}

/* Promise `place`: a piece that the table tells begins where the byte is asked for, ends behind it, and names the server that the
 * stamp's write went to. from: the first byte that it may begin with. Its bytes are put into the map, if there is one. */
static uint64_t judge_piece(const char *call, uint64_t o, const struct twochoice_piece *p, uint64_t from, struct map *m)
{
    const uint64_t b = byte_at(p->offset), end = byte_at(p->end), w = p->version ? write_of(p->version) : 0;
    uint64_t i;
    if (p->object != id_of(o) || b == UINT64_MAX || b < from || end == UINT64_MAX || end <= b ||
        (p->target == TWOCHOICE_LOCAL) != (p->version == 0) ||
        (p->version && (!w || me->writes[w].target != p->target || me->writes[w].object != o))) {
        FAULT("place", "%s says [%" PRIu64 ", %" PRIu64 ") of object %" PRIu64 ", stamp %" PRIu64 " at server %d", call,
              p->offset, p->end, p->object, p->version, (int)p->target);
        return cells;
    }
    for (i = b; m && i < end; i++)
        m->stamp[o][i] = p->version;
    return end;
}

static void read_map(struct map *m)
{
    uint64_t o, b;
    struct twochoice_piece p;
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < cells && !world->broken; b = judge_piece("find", o, &p, b, m))
            twochoice_table_find(&me->table, id_of(o), at_byte(b), &p);
}

/* Reads all bytes as a client would. */
static void check_values(const struct map *m, const char *when, bool settle)
{
    uint64_t o, b, w = 0;
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < cells; b++) {
            if (!value_of(o, b, m->stamp[o][b], &w))
                FAULT("lost",
                      "%s: the table refers to stamp %" PRIu64 " for byte %" PRIu64 " of object %" PRIu64
                      ", and its target no longer has it",
                      when, m->stamp[o][b], b, o);
            else if (!allowed(w, me->floor_of[o][b], me->settled[o][b]))
                FAULT("stale",
                      "%s: byte %" PRIu64 " of object %" PRIu64 " has the value of write %" PRIu64
                      ", which an acknowledged write has replaced (stamp %" PRIu64 ")",
                      when, b, o, w, m->stamp[o][b]);
            if (settle) {
                me->settled[o][b] = w;
                me->floor_of[o][b] = now + 1;
            }
            if (world->broken)
                return;
        }
}

static void same_byte(const char *call, uint64_t o, uint64_t b, uint64_t stamp)
{
    if (stamp != latest()->stamp[o][b])
        FAULT("map", "byte %" PRIu64 " of object %" PRIu64 ": %s says %" PRIu64 ", the changes so far %" PRIu64, b, o,
              call, stamp, latest()->stamp[o][b]);
}

/* What query and next say about a range, and what next_write says of the open writes. */
static void check_answers(void)
{
    static struct map m;
    struct twochoice_piece p[8];
    const uint64_t o = world_between(&more, 0, OBJECTS - 1), from = world_between(&more, 0, cells - 1),
                   to = world_between(&more, from + 1, cells), max = world_between(&more, 1, 8);
    uint64_t b = from, x = o, i, w, stamp = 0, open = 0, seen = 0;
    const size_t n = twochoice_table_query(&me->table, id_of(o), at_byte(from), (to - from) * scale, p, (size_t)max);
    if (n == 0 || n > max)
        FAULT("place", "a query gives %zu pieces of at most %" PRIu64, n, max);
    for (i = 0; i < n && n <= max && !world->broken; i++) {
        if (byte_at(p[i].offset) != b || (p[i].end > at_byte(to) && to < cells))
            FAULT("place", "the pieces of a query are not in order, have gaps, or reach beyond it");
        for (b = judge_piece("query", o, &p[i], b, &m), x = byte_at(p[i].offset); x < b && !world->broken; x++)
            same_byte("query", o, x, m.stamp[o][x]);
    }
    if (n < max && b != to)
        FAULT("place", "a query ends before its range");
    for (x = o, b = from; x < OBJECTS && !latest()->stamp[x][b];) /* the first redirected byte by the map */
        if (++b == cells) {
            b = 0;
            x++;
        }
    if (twochoice_table_next(&me->table, id_of(o), at_byte(from), p) != (x < OBJECTS))
        FAULT("place", "next says that there %s redirected byte", x < OBJECTS ? "is no" : "is a");
    else if (x < OBJECTS && (p->object != id_of(x) || byte_at(p->offset) != b))
        FAULT("place", "next gives offset %" PRIu64 " of object %" PRIu64 ", not byte %" PRIu64, p->offset, p->object,
              b);
    else if (x < OBJECTS)
        same_byte("next", x, b, p->version);
    for (w = 1; w <= me->write_count; w++)
        open += is_open(&me->writes[w]);
    while (seen <= open && twochoice_table_write_next(&me->table, stamp, p)) {
        w = write_of(p->version);
        if (p->version <= stamp || !w || !is_open(&me->writes[w]) || p->object != id_of(me->writes[w].object) ||
            byte_at(p->offset) != me->writes[w].offset || byte_at(p->end) != me->writes[w].end ||
            p->target != (me->writes[w].unbound ? TWOCHOICE_UNBOUND : me->writes[w].target)) {
            FAULT("open", "write_next gives stamp %" PRIu64 " behind %" PRIu64 ", which is not the next open write",
                  p->version, stamp);
            break;
        }
        stamp = p->version;
        seen++;
    }
    if (seen != open)
        FAULT("open", "write_next gives %" PRIu64 " writes, open are %" PRIu64, seen, open);
}

/* The numbers of info beside the world's own. */
static void check_info(void)
{
    struct twochoice_table_state s;
    uint64_t w, o, b, open = 0, pulling = 0, least = 0;
    (void)twochoice_table_info(&me->table, &s);
    for (w = 1; w <= me->write_count; w++)
        open += is_open(&me->writes[w]);
    for (w = 0; w < PULLS; w++)
        pulling += me->pulls[w].stage != 0;
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < cells; b++)
            least += latest()->stamp[o][b] && (b == 0 || latest()->stamp[o][b] != latest()->stamp[o][b - 1]);
    if (s.writes_open != open || s.pulls_open != pulling || (s.compacting && !me->compacting) || s.fragments < least ||
        (!me->pulled && s.fragments != least) || s.fragments > s.max_fragments ||
        s.max_fragments != me->config.max_fragments || s.nodes_used > s.nodes || s.stamp < me->given ||
        s.durable_changes > s.changes || (me->config.storage && !me->swapped && (int)s.next_log != 1 - me->active_log))
        FAULT("info",
              "info: %" PRIu32 " writes of %" PRIu64 ", %" PRIu32 " pulls of %" PRIu64 ", %" PRIu32
              " fragments of %" PRIu64 " at least, compacting %d, next log %" PRIu32,
              s.writes_open, open, s.pulls_open, pulling, s.fragments, least, s.compacting, s.next_log);
}

static void check_now(void)
{
    static struct map m;
    uint64_t o, b;
    memset(&m, 0, sizeof m);
    read_map(&m);
    for (o = 0; o < OBJECTS && !world->broken; o++)
        for (b = 0; b < cells && !world->broken; b++)
            same_byte("find", o, b, m.stamp[o][b]);
    if (!world->broken)
        check_values(&m, "while it serves", false);
    if (!world->broken && !check_tree(&me->table))
        FAULT("tree", "the tree is not sound");
}

static void check_logs(void)
{
    int log;
    for (log = 0; log < 2; log++)
        if (me->config.max_log_bytes && me->handle[log] >= 0 &&
            me->disk.file[me->handle[log]].now_len > me->config.max_log_bytes)
            FAULT("log_size", "log %d has %" PRIu64 " bytes, more than max_log_bytes", log,
                  me->disk.file[me->handle[log]].now_len);
}

/* wrote: the commit had something to sync; only such count towards mark_commits. */
static void acknowledge(uint64_t change, bool wrote)
{
    uint64_t w, b;
    if (change <= me->acked_change)
        return;
    me->acked_change = change;
    world_got(now, (uint32_t)(me - homes), (double)change);
    for (w = 1; w <= me->write_count; w++) {
        struct write *x = &me->writes[w];
        if (x->run != me->run_number || x->change == 0 || x->change > change || x->acked)
            continue;
        x->acked = true;
        x->over = now;
        acked_writes++;
        for (b = x->offset; b < x->end; b++)
            if (me->floor_of[x->object][b] < x->begun)
                me->floor_of[x->object][b] = x->begun;
        for (b = x->offset; b < x->end; b++)
            if (me->settled[x->object][b] != UINT64_MAX && x->begun > 0)
                me->settled[x->object][b] = UINT64_MAX; /* a write of this run replaces what a crash left */
    }
    if (wrote)
        me->newest[me->acks++ % NEWEST] = change;
}

/* ---- what happens ---- */

/* Is the piece still needed? The question may be about any part of it. */
static bool refers(const struct write *x, uint64_t from, uint64_t to)
{
    if (world_choice(world, F_PARTS)) {
        from = world_between(&more, from, to - 1);
        to = world_between(&more, from + 1, to);
    }
    return twochoice_table_refers(&me->table, id_of(x->object), x->stamp, at_byte(from), (to - from) * scale);
}

static void note_drop(const struct twochoice_piece *p)
{
    struct twochoice_table_state s;
    const uint64_t w = p->target == TWOCHOICE_LOCAL ? 0 : write_of(p->version);
    if (!w || !me->writes[w].held || refers(&me->writes[w], me->writes[w].offset, me->writes[w].end))
        return;
    if (twochoice_table_info(&me->table, &s) == QOS_OK && me->drop_count < WRITES) {
        me->drops[me->drop_count].at = s.changes;
        me->drops[me->drop_count].state = number_of_latest();
        me->drops[me->drop_count++].write = w;
    }
}

/* Promise `replaced`: a change returns the redirected pieces that it replaced: all, in order, or the first `max` of them. old: the
 * map before; only: of this stamp; 0: any. */
static void judge_replaced(const struct map *old, uint64_t o, uint64_t from, uint64_t to, uint64_t only,
                           const struct twochoice_piece *p, size_t n, bool all)
{
    uint64_t b = from, i;
    for (i = 0; i < n && !world->broken; i++) {
        const uint64_t first = byte_at(p[i].offset), end = byte_at(p[i].end);
        while (b < to && (only ? old->stamp[o][b] != only : old->stamp[o][b] == 0))
            b++;
        if (first != b || end == UINT64_MAX || end > to)
            FAULT("replaced",
                  "replaced piece %" PRIu64 " is [%" PRIu64 ", %" PRIu64 "), byte %" PRIu64 " is the next one", i,
                  p[i].offset, p[i].end, b);
        (void)judge_piece("replaced", o, &p[i], b, NULL);
        for (; b < end && !world->broken; b++)
            if (old->stamp[o][b] != p[i].version)
                FAULT("replaced", "byte %" PRIu64 " of a replaced piece had stamp %" PRIu64 ", not %" PRIu64, b,
                      old->stamp[o][b], p[i].version);
    }
    for (; all && b < to && !world->broken; b++)
        if (only ? old->stamp[o][b] == only : old->stamp[o][b] != 0)
            FAULT("replaced", "byte %" PRIu64 " was replaced, and no piece has it", b);
}

/* Its target drops the piece, as the table says that this state is durable. */
static void drop_piece(struct write *x, uint64_t state)
{
    x->held = false;
    me->dropped_at = state > me->dropped_at ? state : me->dropped_at;
}

static void send_drops(void)
{
    struct twochoice_table_state s;
    uint64_t i = 0;
    if (twochoice_table_info(&me->table, &s) != QOS_OK)
        return;
    while (i < me->drop_count) {
        if (me->drops[i].at > s.durable_changes || !serves(me->writes[me->drops[i].write].target) ||
            world_chance(&rng, 300)) {
            i++;
            continue;
        }
        if (!world_chance(&rng, 100)) { /* some are lost */
            TRACE("%" PRIu64 " drop write %" PRIu64 "\n", now, me->drops[i].write);
            dropped += me->writes[me->drops[i].write].held;
            drop_piece(&me->writes[me->drops[i].write], me->drops[i].state);
        }
        me->drops[i] = me->drops[--me->drop_count];
    }
    if (s.changes == s.durable_changes && me->write_count &&
        world_chance(&rng, 200)) { /* a target lists what it holds */
        uint64_t w = world_between(&rng, 1, me->write_count);
        struct write *x = &me->writes[w];
        if (x->held && x->stage == OVER && x->target != TWOCHOICE_LOCAL && serves(x->target) &&
            !refers(x, x->offset, x->end)) {
            TRACE("%" PRIu64 " listed, and dropped: write %" PRIu64 "\n", now, w);
            drop_piece(x, number_of_latest());
        }
    }
}

/* For any byte only one write at home, or one pull that writes there, is under way. but: the one that asks. */
static bool home_is_busy(uint64_t object, uint64_t from, uint64_t to, const void *but, int last)
{
    uint64_t w, i;
    for (w = 1; w <= me->write_count; w++) {
        const struct write *x = &me->writes[w];
        if (x != but && is_open(x) && !x->unbound && x->target == TWOCHOICE_LOCAL && x->object == object &&
            x->offset < to && from < x->end)
            return true;
    }
    for (w = 0; w < PULLS; w++) { /* last: of the stages of a pull that count */
        const struct pull *p = &me->pulls[w];
        if (p == but || p->stage < 3 || p->stage > last || p->object != object || p->from >= to || from >= p->to)
            continue;
        if (last == 5) /* it keeps all from its first to its last byte */
            return true;
        for (i = 0; i < p->count; i++)
            if (byte_at(p->ready[i].offset) < to && from < byte_at(p->ready[i].end))
                return true;
    }
    return false;
}
static void check_home(uint64_t object, uint64_t from, uint64_t to, const void *but)
{
    if (home_is_busy(object, from, to, but, 4))
        FAULT("home", "a write or a pull writes at home, where another one does so, too");
}

/* Promise `room`: a write is refused only when all writes are open, or the table may need the room that is left. (A log may be full.) */
static void judge_refusal(const struct write *x, enum qos_status st)
{
    struct twochoice_table_state s;
    uint64_t w, most = 0;
    (void)twochoice_table_info(&me->table, &s);
    for (w = 1; w <= me->write_count; w++)
        most += is_open(&me->writes[w]) ? me->writes[w].target == TWOCHOICE_LOCAL && !me->writes[w].unbound ? 1 : 2 : 0;
    if (st == QOS_EAGAIN &&
        !(x->target == TWOCHOICE_LOCAL && !x->unbound && home_is_busy(x->object, x->offset, x->end, NULL, 5)))
        FAULT("room", "a write is told to wait, and nothing writes at home there");
    if (st == QOS_EFULL && me->config.max_log_bytes == 0 && s.writes_open < me->config.max_writes &&
        s.fragments + most + 2 <= me->config.max_fragments)
        FAULT("room", "no room: %" PRIu32 " fragments of %" PRIu32 ", %" PRIu32 " writes are open", s.fragments,
              me->config.max_fragments, s.writes_open);
    if (st == QOS_EIO && !me->config.storage)
        FAULT("room", "QOS_EIO without a storage");
}

static bool begins(struct write x)
{
    enum qos_status st;
    x.begun = now;
    x.over = UINT64_MAX;
    x.run = me->run_number;
    st = twochoice_table_write_begin(&me->table, id_of(x.object), x.unbound ? TWOCHOICE_UNBOUND : x.target,
                                     at_byte(x.offset), (x.end - x.offset) * scale, &x.stamp);
    if (st != QOS_OK) {
        refused++;
        if (st != QOS_EFULL && st != QOS_EAGAIN && st != QOS_EIO)
            FAULT("begin", "write_begin says %d", (int)st);
        if (!WORLD_V02)
            judge_refusal(&x, st);
        return false;
    }
    if (write_of(x.stamp) || x.stamp == 0)
        FAULT("stamp_twice", "stamp %" PRIu64 " was given out twice", x.stamp);
    me->given = x.stamp > me->given ? x.stamp : me->given;
    x.stage = BEGUN;
    if (!x.unbound && x.target == TWOCHOICE_LOCAL)
        check_home(x.object, x.offset, x.end, NULL);
    x.behind = me->chain[x.stamp % CHAINS];
    me->writes[++me->write_count] = x;
    me->chain[x.stamp % CHAINS] = (uint16_t)me->write_count;
    TRACE("%" PRIu64 " home %d, write %" PRIu64 ": object %" PRIu64 " [%" PRIu64 ", %" PRIu64 ") to %d, stamp %" PRIu64
          "\n",
          now, (int)(me - homes), me->write_count, x.object, x.offset, x.end,
          x.target == TWOCHOICE_LOCAL ? -1 : (int)x.target, x.stamp);
    return true;
}

static void begin_write(void)
{
    struct write x;
    if (me->write_count + 1 >= WRITES)
        return;
    memset(&x, 0, sizeof x);
    x.object = world_between(&rng, 0, OBJECTS - 1);
    x.offset = world_between(&rng, 0, cells - 1);
    x.end = world_between(&rng, x.offset + 1,
                          world_choice(world, F_LONG) == 0 && x.offset + 8 < cells ? x.offset + 8 : cells);
    x.target = world_chance(&rng, (uint32_t)world_value(world, F_LOCAL)) ? TWOCHOICE_LOCAL
                                                                         : (uint32_t)world_between(&rng, 1, 3);
    if (x.target == me->id)
        x.target = me->other;
    x.unbound = world_chance(&more, (uint32_t)world_value(world, F_UNBOUND)) && !WORLD_V02;
    (void)begins(x);
}

static void end_write(uint64_t w)
{
    struct write *x = &me->writes[w];
    static struct twochoice_piece replaced[CELLS + 2];
    size_t n = 0, i, max = world_choice(world, F_FEW) && world_chance(&rng, 500) ? 1 : CELLS + 2;
    uint64_t b;
    const bool again = x->change != 0;
    enum qos_status st = twochoice_table_write_end(&me->table, x->stamp, replaced, max, &n);
    TRACE("%" PRIu64 " end write %" PRIu64 "%s: %d\n", now, w, again ? " again" : "", (int)st);
    if (st == QOS_EAGAIN && (n != max || again || x->run != me->run_number))
        FAULT("replaced", "write_end says QOS_EAGAIN with %zu pieces of %zu", n, max);
    if (x->run == me->run_number && !again && (st == QOS_EAGAIN || st == QOS_OK))
        judge_replaced(latest(), x->object, x->offset, x->end, 0, replaced, n, st == QOS_OK);
    if (st == QOS_EAGAIN || st == QOS_EIO || st == QOS_EFULL || st == QOS_ESTALE) {
        if (st == QOS_EFULL && x->target != TWOCHOICE_LOCAL && !again && x->run == me->run_number)
            FAULT("room", "a redirect that has room reserved gets QOS_EFULL");
        if (st == QOS_ESTALE && !again && x->run == me->run_number)
            FAULT("once", "an open write is too old to be known");
        if (st == QOS_EIO && !again && x->run == me->run_number) {
            struct doubt *d = doubt_of(w);
            x->failed = me->renewed + 1;
            for (b = x->offset; b < x->end; b++)
                d->map.stamp[x->object][b] = x->target == TWOCHOICE_LOCAL ? 0 : x->stamp;
        }
        return;
    }
    if (x->run !=
        me->run_number) { /* begun before a crash: did it count? change is 0 unless the recovered table has it */
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
        note_drop(&replaced[i]);
}

static void cancel_write(uint64_t w)
{
    struct write *x = &me->writes[w];
    enum qos_status st;
    uint64_t k;
    if (x->stage != BEGUN && x->stage != WRITTEN)
        return;
    st = twochoice_table_write_cancel(&me->table, x->stamp);
    TRACE("%" PRIu64 " cancel write %" PRIu64 ": %d\n", now, w, (int)st);
    if (st == QOS_EIO && x->failed == me->renewed + 1) /* its record may be in the log: see doubts */
        return;
    if (st != QOS_OK)
        FAULT("cancel", "write_cancel of an open write says %d", (int)st);
    x->stage = OVER;
    x->over = now;
    for (k = 0; k < doubts_so_far(); k++)
        if (me->doubts[k].write == w)
            me->doubts[k].write = 0;
}

/* Its target becomes known. */
static void bind_write(struct write *x)
{
    struct twochoice_piece piece;
    enum qos_status st;
    size_t n;
    if (twochoice_table_write_end(&me->table, x->stamp, &piece, 1, &n) != QOS_EINVAL)
        FAULT("bind", "a write without a target ends");
    if (!refers(x, x->offset, x->end))
        FAULT("bind", "refers() is false for an open write that has no target yet");
    st = twochoice_table_write_bind(&me->table, x->stamp, x->target);
    TRACE("%" PRIu64 " bind stamp %" PRIu64 ": %d\n", now, x->stamp, (int)st);
    x->unbound = st != QOS_OK;
    if (st != QOS_OK && (st != QOS_EAGAIN || x->target != TWOCHOICE_LOCAL))
        FAULT("bind", "write_bind says %d", (int)st);
    if (st == QOS_EAGAIN && !home_is_busy(x->object, x->offset, x->end, x, 5))
        FAULT("bind", "write_bind says that something writes at home, and nothing does");
    if (st == QOS_OK && x->target == TWOCHOICE_LOCAL)
        check_home(x->object, x->offset, x->end, x);
    if (st == QOS_OK && (twochoice_table_write_bind(&me->table, x->stamp, x->target) != QOS_OK ||
                         twochoice_table_write_bind(&me->table, x->stamp, 4) != QOS_EBUSY))
        FAULT("bind", "a bound write is bound again");
}

/* The next step of a random open write. */
static void step_write(void)
{
    uint64_t w, b, half;
    struct write *x;
    if (!me->write_count)
        return;
    w = me->write_count - world_between(&rng, 0, me->write_count < 12 ? me->write_count - 1 : 11);
    x = &me->writes[w];
    if (x->run != me->run_number) {
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
        } else if (!serves(x->target)) {
            return; /* it waits for that server */
        } else if (x->target != TWOCHOICE_LOCAL) {
            x->held = true;
            x->stage = WRITTEN;
        } else { /* in two parts: a crash may come between */
            half = x->offset + (x->end - x->offset) / 2;
            b = me->local[x->object][x->offset] == w ? half : x->offset;
            for (half = b == half ? x->end : half; b < half; b++)
                me->local[x->object][b] = w;
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
        for (b = 0; b < cells; b++)
            if (got->stamp[o][b] != state->stamp[o][b] &&
                !(next && next->partial && got->stamp[o][b] == next->stamp[o][b]))
                return false;
    return true;
}

/* Does the table of this change differ from that of an older one? */
static bool new_since(uint64_t change, uint64_t older)
{
    older = older < me->first_state ? me->first_state : older;
    return change > older && !same(&me->states[change - me->first_state], &me->states[older - me->first_state], NULL);
}

static uint64_t active_len(void)
{
    const int file = me->handle[me->active_log];
    return file < 0 ? 0 : me->disk.file[file].now_len;
}

static void step_commit(void)
{
    struct pending *p = &me->commits[world_between(&rng, 0, COMMITS - 1)];
    int log;
    if (!p->used) {
        p->failed = p->lost = false;
        p->after_end = me->ended;
        p->change = number_of_latest();
        p->swaps = me->swaps;
        if (twochoice_table_commit_begin(&me->table, &p->commit) != QOS_OK) {
            eio++;
            return;
        }
        p->todo = p->commit.logs;
        p->len = active_len();
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
            p->lost |= log == me->active_log;
            p->swaps = me->swaps;
        }
        TRACE("%" PRIu64 " sync of log %d: %s\n", now, log, p->failed ? "failed" : "ok");
        return;
    }
    p->used = false;
    switch (twochoice_table_commit_end(&me->table, &p->commit, !p->failed)) {
    case QOS_OK:
        if (me->log_lost && new_since(p->change, me->acked_change) && new_since(p->change, me->compacted))
            FAULT("acknowledged", "a commit is durable after a failed sync, and no compaction has ended");
        TRACE("%" PRIu64 " change %" PRIu64 " is durable\n", now, p->change);
        acknowledge(p->change, p->commit.logs != 0);
        if (p->swaps == me->swaps && p->after_end && me->ended)
            me->unmarked = -1;
        if (p->swaps == me->swaps) {
            me->sure = me->handle[me->active_log];
            me->sure_len = p->len;
            me->told_len = active_len();
        }
        break;
    case QOS_EIO:
        eio++;
        TRACE("%" PRIu64 " commit of change %" PRIu64 " fails, %s\n", now, p->change,
              p->lost && p->swaps == me->swaps ? "and its log is lost" : "or a part of it");
        me->log_lost |= p->lost && p->swaps == me->swaps;
        break;
    case QOS_EAGAIN: break;
    default: FAULT("commit", "commit_end has an unknown status");
    }
}

static void step_compaction(void)
{
    enum twochoice_compact_todo todo;
    enum qos_status st;
#if WORLD_V02
    if (!me->compacting && world_choice(world, F_TRUNCATE_FAILS) == 2) {
        cuts_in_call = 1;
        st = twochoice_table_compact(&me->table);
        cuts_in_call = 0;
        compactions += st == QOS_OK;
        me->log_lost &= st != QOS_OK;
        me->compacted = st == QOS_OK ? number_of_latest() : me->compacted;
        return;
    }
#endif
    if (!me->compacting) {
        st = twochoice_table_compact_start(&me->table);
        TRACE("%" PRIu64 " compact_start: %d\n", now, (int)st);
        me->compacting = st == QOS_OK;
        me->swap_due = me->swapped = false;
        me->copied = UINT64_MAX;
        return;
    }
    if (me->swap_due) {
        if (!me->swapped && world_chance(&rng, 500)) {
            struct twochoice_table_state s;
            (void)twochoice_table_info(&me->table, &s);
            me->swapped = on_swap(NULL, (int)s.next_log) == 0;
            TRACE("%" PRIu64 " swap: %s\n", now, me->swapped ? "ok" : "failed");
            if (me->swapped)
                return; /* compact_end comes in a later step */
        } else if (!me->swapped)
            return;
        st = twochoice_table_compact_end(&me->table, me->swapped);
        TRACE("%" PRIu64 " compact_end: %d\n", now, (int)st);
        compactions += st == QOS_OK;
        me->renewed += st == QOS_OK;
        me->log_lost &= st != QOS_OK;
        me->compacted = st == QOS_OK ? number_of_latest() : me->compacted;
        me->compacting = me->swap_due = me->swapped = false;
        me->ended = st == QOS_OK;
        me->unmarked = me->ended ? me->unmarked : -1;
        return;
    }
    st = twochoice_table_compact_step(&me->table, (uint32_t)world_between(&rng, 1, 40), &todo);
    TRACE("%" PRIu64 " compact_step: %d, todo %d\n", now, (int)st, st == QOS_OK ? (int)todo : -1);
    if (st != QOS_OK) {
        me->compacting = false;
        return;
    }
    me->swap_due = todo == TWOCHOICE_COMPACT_SWAP;
    if (todo != TWOCHOICE_COMPACT_STEP && me->copied == UINT64_MAX)
        me->copied = number_of_latest();
    if (me->swap_due) {
        me->unmarked = me->handle[1 - me->active_log];
        me->end_has = me->copied;
        me->ended = false;
    }
}

static const struct pull *puller_of(uint64_t object, uint64_t b)
{
    uint32_t i;
    for (i = 0; i < PULLS; i++)
        if (me->pulls[i].stage && me->pulls[i].object == object && me->pulls[i].from <= b && b < me->pulls[i].to)
            return &me->pulls[i];
    return NULL;
}

/* A pull starts, as a caller or the maintainer says. */
static void start_pull(struct pull *p)
{
    const uint64_t most = world_between(&rng, 1, cells), b = world_between(&rng, 0, cells - 1),
                   o = world_between(&rng, 0, OBJECTS - 1), stamp = latest()->stamp[o][b];
    uint64_t i, open = 0;
    enum qos_status st;
    for (i = 0; i < PULLS; i++)
        open += me->pulls[i].stage != 0;
    p->cancelled = false;
    if (world_choice(world, F_MAINTAINED) && world_choice(world, F_SCALE) < 2) {
        struct twochoice_order order;
        if (twochoice_maintainer_step(&me->maintainer, now * 1000000, &me->table, 0, &order) != QOS_OK)
            FAULT("pull", "the maintainer fails");
        if (order.todo == TWOCHOICE_ASK_LOAD && serves(order.piece.target))
            twochoice_maintainer_remote_load(&me->maintainer, now * 1000000, order.piece.target, 0);
        if (order.todo != TWOCHOICE_COPY)
            return;
        p->id = order.pull;
        p->piece = order.piece;
        for (p->object = 0; p->object + 1 < OBJECTS && id_of(p->object) != p->piece.object; p->object++) {
        }
    } else {
        st = twochoice_table_pull_start(&me->table, id_of(o), at_byte(b), most * scale, &p->id, &p->piece);
        if (!WORLD_V02 && st != QOS_OK && (st != QOS_ENOENT || stamp) && (st != QOS_EBUSY || !puller_of(o, b)) &&
            (st != QOS_EFULL || open < me->config.max_pulls))
            FAULT("pull", "pull_start says %d: the byte has stamp %" PRIu64 ", %" PRIu64 " pulls are open", (int)st,
                  stamp, open);
        if (st != QOS_OK)
            return;
        if (p->piece.object != id_of(o) || byte_at(p->piece.offset) > b || p->piece.end <= at_byte(b) ||
            p->piece.end - p->piece.offset > most * scale)
            FAULT("pull", "a pull of another piece than was asked for");
        p->object = o;
    }
    pulled++;
    me->pulled = true;
    p->from = byte_at(p->piece.offset);
    p->to = judge_piece("a pull", p->object, &p->piece, 0, NULL);
    for (i = p->from; i < p->to && !world->broken; i++) {
        const struct pull *other = puller_of(p->object, i);
        same_byte("a pull", p->object, i, p->piece.version);
        if (other && other->piece.version == p->piece.version)
            FAULT("pull", "two pulls have one byte");
    }
    if (open >= me->config.max_pulls)
        FAULT("pull", "more than max_pulls are open");
    p->stage = 1;
}

/* Promise `ready`: the bytes that are unchanged since it began may be written at home: all, in order, or the first `max` pieces. */
static void judge_ready(struct pull *p, size_t max)
{
    uint64_t b = p->from, i, end;
    if (p->count > max)
        FAULT("ready", "%zu pieces of at most %zu", p->count, max);
    for (i = 0; i < p->count && !world->broken; i++) {
        while (b < p->to && latest()->stamp[p->object][b] != p->piece.version)
            b++;
        end = judge_piece("pull_ready", p->object, &p->ready[i], b, NULL);
        if (byte_at(p->ready[i].offset) != b || end > p->to)
            FAULT("ready", "bytes at home are given from %" PRIu64 ", not %" PRIu64, p->ready[i].offset, b);
        for (; b < end && !world->broken; b++)
            if (latest()->stamp[p->object][b] != p->piece.version)
                FAULT("ready", "byte %" PRIu64 " was changed since the pull began, and may be written at home", b);
    }
    if (p->count == max)
        p->to = b; /* it shrinks to those */
    for (; b < p->to && !world->broken; b++)
        if (latest()->stamp[p->object][b] == p->piece.version)
            FAULT("ready", "byte %" PRIu64 " is unchanged, and is not given", b);
}

static void finish_pull(struct pull *p)
{
    static struct twochoice_piece replaced[CELLS + 2];
    const size_t max = world_choice(world, F_FEW) && world_chance(&rng, 500) ? 1 : CELLS + 2;
    struct map *m;
    bool fits = true;
    size_t i, n = 0;
    uint64_t b;
    const enum qos_status st = twochoice_table_pull_finish(&me->table, p->id, replaced, max, &n);
    TRACE("%" PRIu64 " pull of stamp %" PRIu64 " finished: %d\n", now, p->piece.version, (int)st);
    if (st == QOS_EAGAIN || st == QOS_OK) {
        if (st == QOS_EAGAIN && n != max)
            FAULT("replaced", "pull_finish says QOS_EAGAIN with %zu pieces of %zu", n, max);
        if (!p->cancelled)
            judge_replaced(latest(), p->object, p->from, p->to, p->piece.version, replaced, n, st == QOS_OK);
        else if (n)
            FAULT("replaced", "a pull that was cancelled converts bytes");
    }
    if (st == QOS_EAGAIN)
        return;
    if (st != QOS_OK && st != QOS_EIO && st != QOS_EFULL) {
        FAULT("pull", "pull_finish says %d", (int)st);
        return;
    }
    world_got(now, HOMES + (uint32_t)p->object, (double)n);
    m = next_state(true);
    p->stage = 5;
    if (st == QOS_OK) {
        for (i = 0; i < p->count && !p->cancelled; i++)
            for (b = byte_at(p->ready[i].offset); b < byte_at(p->ready[i].end); b++)
                if (m->stamp[p->object][b] == p->piece.version)
                    m->stamp[p->object][b] = 0;
        p->stage = 0;
    } else /* the pieces in `replaced` are at home already */
        for (i = 0; i < n; i++)
            for (b = byte_at(replaced[i].offset); b < byte_at(replaced[i].end) && b < cells; b++) {
                fits = fits && m->stamp[p->object][b] == p->piece.version;
                m->stamp[p->object][b] = 0;
            }
    if (st != QOS_OK) { /* any part of the rest may count after a crash */
        struct doubt *d = doubt_of(UINT64_MAX);
        d->map.partial = true;
        for (i = 0; i < p->count; i++)
            for (b = byte_at(p->ready[i].offset); b < byte_at(p->ready[i].end); b++)
                if (d->map.stamp[p->object][b] == p->piece.version)
                    d->map.stamp[p->object][b] = 0;
    }
    if (!fits)
        FAULT("pull", "a pull converted bytes that it did not copy");
    for (i = 0; i < n; i++)
        note_drop(&replaced[i]);
}

static void step_pull(void)
{
    struct pull *p = &me->pulls[world_between(&rng, 0, PULLS - 1)];
    size_t max;
    enum qos_status st;
    uint64_t b, i;
    if (p->stage >= 3 && !p->cancelled && world_chance(&more, (uint32_t)world_value(world, F_GIVES_UP))) {
        p->cancelled = true; /* its writes at home go on, and nothing is converted */
        if (twochoice_table_pull_cancel(&me->table, p->id) != QOS_EBUSY)
            FAULT("pull", "a pull that may write ends at once when it is cancelled");
    }
    switch (p->stage) {
    case 0: start_pull(p); return;
    case 1: /* copies from the target */
        if (world_chance(&rng, 50) || !serves(p->piece.target)) {
            p->stage = 0;
            if (twochoice_table_pull_cancel(&me->table, p->id) != QOS_OK)
                FAULT("pull", "a pull cannot be cancelled");
            return;
        }
        for (b = p->from; b < p->to; b++)
            if (!value_of(p->object, b, p->piece.version, &p->value[b])) {
                if (twochoice_table_refers(&me->table, p->piece.object, p->piece.version, at_byte(b), scale) &&
                    latest()->stamp[p->object][b] == p->piece.version)
                    FAULT("lost", "a piece that is being pulled was dropped");
                if (twochoice_table_pull_cancel(&me->table, p->id) != QOS_OK)
                    FAULT("pull", "a pull cannot be cancelled");
                p->stage = 0;
                return;
            }
        p->stage = 2;
        return;
    case 2:
        max = world_choice(world, F_FEW) ? (size_t)world_between(&more, 1, 2) : 8;
        st = twochoice_table_pull_ready(&me->table, p->id, p->ready, max, &p->count);
        if (st != QOS_OK && (st != QOS_EAGAIN || !home_is_busy(p->object, p->from, p->to, NULL, 0)))
            FAULT("pull", "pull_ready says %d", (int)st);
        if (st != QOS_OK)
            return;
        p->stage = 3;
        judge_ready(p, max);
        for (i = 0; i < p->count; i++)
            check_home(p->object, byte_at(p->ready[i].offset), byte_at(p->ready[i].end), p);
        return;
    case 3:
        for (i = 0; i < p->count; i++)
            for (b = byte_at(p->ready[i].offset); b < byte_at(p->ready[i].end); b++)
                me->local[p->object][b] = p->value[b];
        p->stage = 4;
        return;
    default: finish_pull(p);
    }
}

static void step_reader(void)
{
    struct reader *r = &me->readers[world_between(&more, 0, READERS - 1)];
    struct twochoice_piece p;
    uint64_t value = 0;
    if (!r->asked) {
        r->object = world_between(&more, 0, OBJECTS - 1);
        r->byte = world_between(&more, 0, cells - 1);
        r->floor = me->floor_of[r->object][r->byte];
        r->settled = me->settled[r->object][r->byte];
    } else if (!serves(r->target)) {
        return;
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
    twochoice_table_find(&me->table, id_of(r->object), at_byte(r->byte), &p);
    if (r->asked && p.target != TWOCHOICE_LOCAL && p.version == r->stamp)
        FAULT("lost", "a reader is sent to stamp %" PRIu64 " again, which its target no longer has", r->stamp);
    r->stamp = p.target == TWOCHOICE_LOCAL ? 0 : p.version;
    r->target = p.target;
    r->asked = true;
}

/* ---- a crash ---- */

/* The table if the record of a failed call counts: for a pull any part of it may. */
static bool gives(const struct doubt *d, const struct map *m, uint64_t least)
{
    const bool pull = d->write == UINT64_MAX;
    if (d->write == 0 || d->base < least)
        return false;
    return same(m, pull ? &me->states[d->base - me->first_state] : &d->map, pull ? &d->map : NULL);
}

/* The recovered table may be that of a later state, too, in which the record of a failed call counts: a write at home,
 * or a pull, makes a me->table what it was before. Then any write in between may count. */
static void find_maybe(const struct map *m, uint64_t found)
{
    uint64_t k, w;
    for (k = 0; k < doubts_so_far(); k++) {
        const struct doubt *d = &me->doubts[k];
        if (d->base < found || !gives(d, m, me->acked_change))
            continue;
        if (d->write != UINT64_MAX)
            me->writes[d->write].maybe = true;
        for (w = 1; w <= me->write_count; w++)
            if (me->writes[w].run == me->run_number && me->writes[w].change > found && me->writes[w].change <= d->base)
                me->writes[w].maybe = true;
    }
}

/* The disk changes what it has, which no crash does. Promise `damage`: recover says so, or its table has all that was acknowledged; if
 * the log lost its end (`shorter`), all that the mark covers: what was acknowledged 2 * mark_commits + 2 commits ago. The first mark
 * of a log is written when its compaction ends: until that is durable, what the log had before its end record. */
enum damage { SOUND, DAMAGED, SHORTER };

/* Is there a whole record behind the hole that was written when bytes of the hole were durable, and says so? */
static bool hole_shows(const struct world_file *f, uint64_t from, uint64_t to)
{
    const uint64_t n = TWOCHOICE_RECORD_BYTES, behind = to > me->told_len ? to : me->told_len;
    uint64_t at;
    if (me->sure != me->disk.on_disk[0] || from / n * n >= me->sure_len)
        return false;
    for (at = (behind + n - 1) / n * n; at + n <= f->disk_len; at += n)
        if (at / 512 == (at + n - 1) / 512 && f->disk[at + n - 1])
            return true;
    return false;
}

static enum damage damage_disk(void)
{
    const uint32_t kind = world_choice(world, F_DAMAGE);
    const int file = me->disk.on_disk[kind == 6 ? TWOCHOICE_MARK_LOG : 0];
    struct world_file *f;
    uint64_t records, at, to, bit, n = TWOCHOICE_RECORD_BYTES;
    bool shows = false;
    if (file < 0 || kind == 0 || !world_chance(&more, 600))
        return SOUND;
    f = &me->disk.file[file];
    records = f->disk_len / n;
    if (records < 3)
        return SOUND;
    at = world_chance(&more, 500) ? records - 1 : world_between(&more, 1, records - 1);
    to = world_between(&more, 1, records - 1);
    switch (kind) {
    case 1:
        bit = world_between(&more, 0, 7);
        f->disk[at * n + world_between(&more, 0, 39)] ^= (uint8_t)(1 << bit);
        break;
    case 2:
        f->disk_len = (to + world_between(&more, 0, 1)) * n;
        f->disk_len -= world_between(&more, 0, 1) * 7;
        break;
    case 3:
        to = world_between(&more, 0, (f->disk_len - 1) / 512);
        if (me->sure == file && me->sure_len && me->sure_len <= f->disk_len && world_chance(&more, 700))
            to = (me->sure_len - 1) / 512; /* the end of what was acknowledged, which no mark may cover yet */
        memset(f->disk + to * 512, 0, f->disk_len - to * 512 < 512 ? f->disk_len - to * 512 : 512);
        shows = hole_shows(f, to * 512, to * 512 + 512);
        break;
    case 4: me->disk.on_disk[0] = -1; break;
    case 5:
        if (me->older_len == 0)
            return SOUND;
        memcpy(f->disk, me->older, sizeof me->older);
        f->disk_len = me->older_len;
        break;
    case 6:
        if (world_chance(&more, 200))
            me->disk.on_disk[TWOCHOICE_MARK_LOG] = -1;
        else if (world_chance(&more, 300))
            memset(f->disk, 0, f->disk_len);
        else {
            bit = world_between(&more, 0, 7);
            f->disk[world_between(&more, 0, f->disk_len - 1)] ^= (uint8_t)(1 << bit);
        }
        break;
    default:
        if (memcmp(f->disk + at * n, f->disk + to * n, n) == 0)
            return SOUND;
        memcpy(f->disk + at * n, f->disk + to * n, n);
    }
    if (kind == 2)
        memset(f->disk + f->disk_len, 0, WORLD_STORAGE_BYTES - f->disk_len);
    memcpy(f->now, f->disk, WORLD_STORAGE_BYTES);
    f->now_len = f->disk_len;
    TRACE("%" PRIu64 " damage %" PRIu32 " of record %" PRIu64 " or %" PRIu64 " of %" PRIu64 "\n", now, kind, at, to,
          records);
    damages++;
    me->sure = -1;
    return kind == 2 || (kind == 3 && !shows) || kind == 5 ? SHORTER : DAMAGED;
}

/* Promise `foreign`: the log of another server is refused, and nothing is changed. */
static void recover_foreign(void)
{
    struct twochoice_piece p;
    enum qos_status st;
    foreign = me == homes ? homes + 1 : homes;
    if (!foreign->other || foreign->down || !foreign->formatted || foreign->disk.off || foreign->dead ||
        !me->config.storage || !world_chance(&more, 200)) {
        foreign = NULL;
        return;
    }
    st = twochoice_table_recover(&me->table, 0, NULL);
    if (st == QOS_OK || (st != QOS_EINVAL && st != QOS_EIO && st != QOS_ECORRUPT))
        FAULT("foreign", "recover says %d of another server's log", (int)st);
    if (twochoice_table_next(&me->table, 0, 0, &p))
        FAULT("foreign", "the table is not empty after recover has failed");
    foreign = NULL;
}

/* Promise `places`: with TWOCHOICE_ACCEPT_PREFIX a damaged log gives no place that a byte never had. */
static void recover_prefix(void)
{
    static struct map m;
    uint64_t o, b, k;
    if (twochoice_table_init(&me->table, memories[me - homes], sizeof memories[0], &me->config) != QOS_OK ||
        twochoice_table_recover(&me->table, TWOCHOICE_ACCEPT_PREFIX, NULL) != QOS_OK)
        return;
    memset(&m, 0, sizeof m);
    read_map(&m);
    for (o = 0; o < OBJECTS; o++)
        for (b = 0; b < cells && !world->broken; b++) {
            bool was = m.stamp[o][b] == 0;
            for (k = 0; k < me->state_count && !was; k++)
                was = me->states[k].stamp[o][b] == m.stamp[o][b];
            for (k = 0; k < doubts_so_far() && !was; k++)
                was = me->doubts[k].map.stamp[o][b] == m.stamp[o][b];
            if (!was)
                FAULT("places",
                      "byte %" PRIu64 " of object %" PRIu64 " is said to be at stamp %" PRIu64 ", where it never was",
                      b, o, m.stamp[o][b]);
        }
}

/* The latest state from number `least` on that the table may be; UINT64_MAX: none. */
static uint64_t state_like(const struct map *m, uint64_t least)
{
    uint64_t k;
    for (k = me->state_count; k-- > least - me->first_state;)
        if (same(m, &me->states[k], k + 1 < me->state_count ? &me->states[k + 1] : NULL))
            return k;
    return UINT64_MAX;
}

static struct twochoice_maintainer_config maintained;

static void recover(void)
{
    enum damage damage = SOUND;
    static const struct map nowhere; /* all bytes are at home */
    static struct map m;
    uint64_t least, told, length = 0; /* told: number of the state that a commit, or durable_changes, said is durable */
    struct twochoice_recovery recovery = {0, 0, 0};
    enum qos_status st = QOS_EIO;
    uint64_t w, k = 0, tries, came_back = 0;
    const struct world_storage_config faults = me->disk.config;
    const bool mark_old = me->mark_old; /* the latest acknowledgements came without a mark */
    const bool unmarked = me->unmarked >= 0 && me->unmarked == me->disk.on_disk[0];
    crashes++;
    for (w = 1; w <= me->write_count; w++)
        if (me->writes[w].run == me->run_number && me->writes[w].over == UINT64_MAX)
            me->writes[w].over = now;
    for (tries = 0; st != QOS_OK && !world->broken; tries++) {
        int i;
        world_storage_boot(&me->disk);
        if (tries == 0 && me->formatted)
            damage = damage_disk();
        if (tries >= 3) { /* in the end the disk works */
            me->disk.config.write_fails_permille = me->disk.config.sync_fails_permille =
                me->disk.config.truncate_fails_permille = 0;
            me->disk.config.rename_fails_permille = 0;
            me->disk.config.capacity_bytes = 0;
        } else if (world_choice(world, F_CUT_AGAIN) && world_chance(&rng, 500))
            world_storage_cut_in(&me->disk, world_between(&rng, 0, 40));
        for (i = 0; i < 3; i++)
            me->handle[i] = world_storage_open(&me->disk, i);
        me->active_log = 0;
        if (twochoice_table_init(&me->table, memories[me - homes], twochoice_table_memsize(&me->config), &me->config) !=
            QOS_OK) {
            FAULT("init", "init");
            return;
        }
        length = me->handle[0] < 0 ? 0 : me->disk.file[me->handle[0]].now_len;
        recover_foreign();
        st = twochoice_table_recover(&me->table, 0, &recovery);
        TRACE("%" PRIu64 " recover: %d; valid %" PRIu64 ", dropped %" PRIu64 ", files of %" PRIu64 ", %" PRIu64
              ", %" PRIu64 " bytes\n",
              now, (int)st, recovery.valid_bytes, recovery.dropped_bytes,
              me->handle[0] < 0 ? 0 : me->disk.file[me->handle[0]].now_len,
              me->handle[1] < 0 ? 0 : me->disk.file[me->handle[1]].now_len,
              me->handle[2] < 0 ? 0 : me->disk.file[me->handle[2]].now_len);
        if (st == QOS_OK && !WORLD_V02 &&
            (recovery.valid_bytes + recovery.dropped_bytes != length ||
             recovery.valid_bytes != (recovery.records + 1) * TWOCHOICE_RECORD_BYTES))
            FAULT("recovery",
                  "recover says %" PRIu64 " records, %" PRIu64 " valid bytes and %" PRIu64 " dropped of %" PRIu64,
                  recovery.records, recovery.valid_bytes, recovery.dropped_bytes, length);
        me->formatted = me->formatted || st == QOS_OK;
        if (!me->formatted && (st == QOS_ENOENT || (st == QOS_ECORRUPT && (WORLD_V02 || damage != SOUND)))) {
            st =
                twochoice_table_format(&me->table); /* it was never made: the power went, or a call failed, in format */
            me->formatted = st == QOS_OK && !me->disk.off;
        } else if (damage != SOUND &&
                   (st == QOS_ECORRUPT ||
                    (st == QOS_ENOENT && same(&nowhere, &me->states[me->acked_change - me->first_state], NULL)) ||
                    (st == QOS_EVERSION && damage == SHORTER))) {
            recover_prefix(); /* it says so: the home's world ends */
            me->disk.config = faults;
            me->dead = true;
            return;
        } else if (st == QOS_ENOENT || (st != QOS_OK && st != QOS_EIO && st != QOS_EFULL)) {
            FAULT("recover", "recover says %d", (int)st);
            return;
        }
        if (st == QOS_OK && me->disk.off)
            st = QOS_EIO;
        if (tries > 8) {
            FAULT("recover", "recover never succeeds on a disk that works: %d", (int)st);
            return;
        }
    }
    me->disk.config = faults;
    me->disk.cut_at = UINT64_MAX;
    memset(&m, 0, sizeof m);
    read_map(&m);
    least = told = me->dropped_at > me->acked_change ? me->dropped_at : me->acked_change;
    if (damage == SHORTER) {
        const uint64_t covered = 2 * (uint64_t)me->config.mark_commits + 2;
        least = me->acks > covered && covered < NEWEST && !mark_old ? me->newest[(me->acks - 1 - covered) % NEWEST]
                                                                    : me->first_state;
        if (unmarked && least > me->end_has)
            least = me->end_has > me->first_state ? me->end_has : me->first_state;
    }
    k = state_like(&m, least);
    for (w = 0; k == UINT64_MAX && w < doubts_so_far(); w++) {
        const struct doubt *d = &me->doubts[w];
        if (!gives(d, &m, least))
            continue;
        k = d->base - me->first_state;
        if (d->write != UINT64_MAX) {
            came_back = d->write;
            me->writes[came_back].change = me->first_state + k > 0 ? me->first_state + k : 1; /* any but 0 */
        }
    }
    if (k == UINT64_MAX && damage == SHORTER && least == me->first_state && world_choice(world, F_FILLED)) {
        me->dead = true; /* it lost what was filled in */
        return;
    }
    if (k == UINT64_MAX) {
        uint64_t o, b;
        for (o = 0; o < OBJECTS; o++)
            for (b = 0; b < cells; b++)
                if (m.stamp[o][b] != me->states[0].stamp[o][b])
                    TRACE("  byte %" PRIu64 " of object %" PRIu64 ": recovered %" PRIu64 ", acknowledged %" PRIu64
                          ", latest %" PRIu64 "\n",
                          b, o, m.stamp[o][b], me->states[0].stamp[o][b], latest()->stamp[o][b]);
        FAULT("prefix", "the recovered table is none of the %" PRIu64 " states since the last acknowledged change",
              me->state_count);
        return;
    }
    if (damage == SHORTER && me->first_state + k < told) {
        me->dead = true; /* no more can be asked of a log that lost its end */
        return;
    }
    check_values(&m, "after a crash", true);
    if (!came_back)
        find_maybe(&m, me->first_state + k);
    for (w = 1; w <= me->write_count; w++)
        if (me->writes[w].run == me->run_number) {
            me->writes[w].stage = OVER;
            if (me->writes[w].change > me->first_state + k && w != came_back)
                me->writes[w].change = 0; /* not recovered: it never counted */
        }
    me->run_number++;
    me->first_state += k;
    copy_map(&me->states[0], &m);
    me->states[0].partial = false;
    me->state_count = 1;
    me->acked_change = me->first_state;
    me->acks = me->older_len = 0;
    me->pulled = me->down = false;
    memset(me->commits, 0, sizeof me->commits);
    memset(me->pulls, 0, sizeof me->pulls);
    memset(me->readers, 0, sizeof me->readers);
    me->drop_count = 0;
    me->compacting = me->swap_due = me->swapped = me->log_lost = false;
    me->unmarked = -1;
    me->next_doubt = 0;
    if (twochoice_maintainer_init(&me->maintainer, maintainers[me - homes], sizeof maintainers[0], &maintained) !=
        QOS_OK)
        FAULT("init", "a maintainer within the ranges is refused");
}

/* ---- calls that are wrong ---- */

/* Promise `refused`: after an error nothing has changed. */
static void wrong_call(void)
{
    struct twochoice_table_state before, after;
    struct twochoice_piece piece;
    struct pull *p = &me->pulls[world_between(&more, 0, PULLS - 1)];
    struct write *x = &me->writes[me->write_count ? world_between(&more, 1, me->write_count) : 0];
    const uint64_t o = id_of(world_between(&more, 0, OBJECTS - 1)), unknown = me->given + world_between(&more, 1, 1000);
    const uint64_t kind = world_between(&more, 0, 13);
    enum qos_status st = QOS_EINVAL, wanted = QOS_EINVAL;
    enum twochoice_compact_todo todo;
    uint64_t stamp;
    size_t n;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    (void)twochoice_table_info(&me->table, &before);
    switch (kind) {
    case 0:
        wanted = QOS_ERANGE;
        st = twochoice_table_write_begin(&me->table, o, 1, at_byte(1), 0, &stamp);
        break;
    case 1:
        wanted = QOS_ERANGE;
        st = twochoice_table_write_begin(&me->table, o, TWOCHOICE_LOCAL, UINT64_MAX - world_between(&more, 0, 9), 10,
                                         &stamp);
        break;
    case 2: st = twochoice_table_write_begin(&me->table, o, me->id, at_byte(0), scale, &stamp); break;
    case 3:
        wanted = QOS_ERANGE;
        st = twochoice_table_write_begin(&me->table, o, 65535, at_byte(0), scale, &stamp);
        break;
    case 4:
        wanted = QOS_ENOENT;
        st = twochoice_table_write_end(&me->table, unknown, &piece, 1, &n);
        st = st == QOS_ESTALE && me->run_number ? QOS_ENOENT : st; /* it may be of an earlier run */
        break;
    case 5:
        wanted = QOS_ENOENT;
        st = twochoice_table_write_cancel(&me->table, unknown);
        break;
    case 6:
        wanted = QOS_ENOENT;
        st = twochoice_table_write_bind(&me->table, unknown, 1);
        break;
    case 7: /* of a write that is over, or was begun before a crash */
        if (x->stamp == 0 || is_open(x))
            return;
        wanted = QOS_ENOENT;
        st = world_chance(&more, 500) ? twochoice_table_write_cancel(&me->table, x->stamp)
                                      : twochoice_table_write_bind(&me->table, x->stamp, 1);
        break;
    case 8:
        if (x->stamp == 0 || !is_open(x))
            return;
        st = twochoice_table_write_bind(&me->table, x->stamp, me->id);
        break;
    case 9: /* a pull that is not, or not in this order */
        wanted = QOS_ENOENT;
        if (p->stage == 1 || p->stage == 2)
            st = twochoice_table_pull_finish(&me->table, p->id, &piece, 1, &n);
        else if (p->stage >= 3)
            st = twochoice_table_pull_ready(&me->table, p->id, &piece, 1, &n);
        else
            st = twochoice_table_pull_cancel(&me->table, UINT32_MAX - (uint32_t)unknown);
        break;
    case 10:
        if (!me->config.storage || (me->compacting && !before.compacting)) /* it failed: the next call says so */
            return;
        wanted = before.compacting ? QOS_EBUSY : QOS_EINVAL;
        st = before.compacting          ? twochoice_table_compact_start(&me->table)
             : world_chance(&more, 500) ? twochoice_table_compact_end(&me->table, true)
                                        : twochoice_table_compact_step(&me->table, 1, &todo);
        break;
    case 11:
    case 12:
        wanted = me->config.storage ? QOS_EBUSY : QOS_EINVAL;
        st = kind == 11 ? twochoice_table_format(&me->table) : twochoice_table_recover(&me->table, 0, NULL);
        break;
    default: { /* a configuration that is out of range */
        struct twochoice_table_config c = me->config;
        struct twochoice_table other;
        c.max_writes = TWOCHOICE_OPEN_MAX + 1;
        st = twochoice_table_config_error(&c) && twochoice_table_memsize(&c) == 0
                 ? twochoice_table_init(&other, memories[me - homes], sizeof memories[0], &c)
                 : QOS_OK;
        wanted = QOS_ERANGE;
    }
    }
    if (kind == 10 && (st == QOS_EIO || st == QOS_EFULL)) /* step tells again why the last one failed */
        st = QOS_EINVAL;
    (void)twochoice_table_info(&me->table, &after);
    wrong++;
    if (st != wanted)
        FAULT("refused", "wrong call %" PRIu64 " is answered with %d, not %d", kind, (int)st, (int)wanted);
    else if (memcmp(&before, &after, sizeof before) != 0)
        FAULT("refused", "wrong call %" PRIu64 " changes the table's counts", kind);
}

#if !WORLD_V02 /* its clients and servers said other things */
#include "twochoice_writes.h"
#endif

/* ---- the world ---- */

static void table_world(struct world *w);
static void world_run(struct world *w)
{
    const uint64_t failed = failures + damages;
    world = w;
    world_rng_init(&rng, w->seed, 5);
    world_rng_init(&more, w->seed, 6);
    now = 0;
#if !WORLD_V02
    judge_ranges();
    switch (world_choice(w, F_MODE)) {
    case 1: writes_world(); return;
    case 2: pulls_world(); return;
    default: break;
    }
    if (use_reference) {
        writes_world();
        return;
    }
#endif
    table_world(w);
    faulty += failures + damages != failed;
}

/* Each byte is written for itself, one after the other or in any order, until the table has this many fragments. */
static void fill(uint64_t n)
{
    const uint64_t all = OBJECTS * cells, first = world_between(&more, 0, all - 1),
                   step = world_chance(&more, 500) ? 1 : 7919;
    uint64_t i;
    for (i = 0; i < n && i < all && !me->disk.off && !world->broken; i++) {
        struct write x;
        memset(&x, 0, sizeof x);
        x.object = (first + i * step) % all / cells;
        x.offset = (first + i * step) % all % cells;
        x.end = x.offset + 1;
        x.target = 1 + (uint32_t)(i % 2);
        if (!begins(x))
            break;
        me->writes[me->write_count].held = true;
        end_write(me->write_count);
    }
    if (!me->disk.off && twochoice_table_commit(&me->table) == QOS_OK) {
        acknowledge(number_of_latest(), true);
        me->first_state = number_of_latest();
        copy_map(&me->states[0], latest());
        me->state_count = 1;
    }
}

/* Promise `memory`: at most 64 bytes a fragment, 128 an open write or pull, 12 KiB. */
static void begin_home(const struct world_storage_config *d)
{
    const uint64_t filled = (uint64_t)world_value(world, F_FILLED);
    struct twochoice_table_config *c = &me->config;
    size_t size;
    me->id = me == homes ? 7 : 3;
    me->other = world_choice(world, F_HOMES) ? 10 - me->id : me == homes ? 3 : 0;
    memset(c, 0, sizeof *c);
    c->max_fragments = (uint32_t)(world_value(world, F_FRAGMENTS) + (double)filled);
    c->max_writes = (uint32_t)world_value(world, F_WRITES_MAX);
    c->max_pulls = (uint32_t)world_value(world, F_PULLS_MAX);
    c->home = me->id;
    c->mark_commits = world_choice(world, F_DAMAGE) && world_choice(world, F_DAMAGE) != 3 && world_chance(&more, 700)
                          ? 1
                          : (uint32_t)world_value(world, F_MARK);
    c->max_log_bytes = world_choice(world, F_LOG) * UINT64_C(96) * (c->max_fragments + 2);
    c->storage = world_choice(world, F_LOGGED) ? NULL : &storage;
    world_storage_init(&me->disk, d, world->seed + (uint64_t)(me - homes));
    memset(me->local, 0, sizeof me->local);
    memset(me->floor_of, 0, sizeof me->floor_of);
    memset(me->settled, 0, sizeof me->settled);
    memset(&me->states[0], 0, sizeof me->states[0]);
    memset(me->commits, 0, sizeof me->commits);
    memset(me->pulls, 0, sizeof me->pulls);
    memset(me->readers, 0, sizeof me->readers);
    memset(me->chain, 0, sizeof me->chain);
    me->write_count = me->drop_count = me->dropped_at = me->acked_change = me->first_state = me->acks = me->older_len =
        me->given = 0;
    me->state_count = 1;
    me->run_number = 0;
    me->compacting = me->swap_due = me->swapped = me->dead = me->log_lost = me->down = me->pulled = me->mark_old =
        me->formatted = false;
    me->compacted = me->next_doubt = 0;
    me->sure = me->unmarked = -1;
    me->handle[0] = me->handle[1] = me->handle[2] = -1;
    me->active_log = 0;
    size = twochoice_table_memsize(c);
    if (!WORLD_V02 && size > 64 * (size_t)c->max_fragments + 128 * ((size_t)c->max_writes + c->max_pulls) + 12 * 1024)
        FAULT("memory", "%zu bytes for %" PRIu32 " fragments, %" PRIu32 " writes, %" PRIu32 " pulls", size,
              c->max_fragments, c->max_writes, c->max_pulls);
    if (size == 0 || size > sizeof memories[0] ||
        twochoice_table_init(&me->table, memories[me - homes], size, c) != QOS_OK ||
        twochoice_maintainer_init(&me->maintainer, maintainers[me - homes], sizeof maintainers[0], &maintained) !=
            QOS_OK) {
        FAULT("init", "init refuses a configuration in range");
        return;
    }
    me->formatted = !c->storage || twochoice_table_format(&me->table) == QOS_OK;
    if (!me->formatted)
        recover();
    if (filled && !me->disk.off) {
        now += 2;
        fill(filled);
    }
}

/* One step of a home, or of a client or a target of it. */
static void step_home(const uint64_t *weight, uint64_t sum)
{
    struct twochoice_table_state s;
    uint64_t x = world_between(&rng, 0, sum - 1), i = 0;
    while (x >= weight[i])
        x -= weight[i++];
    switch (i) {
    case 0: begin_write(); break;
    case 1: step_write(); break;
    case 2: step_commit(); break;
    case 3: step_pull(); break;
    case 4:
        if (me->config.storage)
            step_compaction();
        break;
    default: step_reader(); break;
    }
    if (me->disk.off || world->broken)
        return;
    if (twochoice_table_info(&me->table, &s) == QOS_OK && s.log_broken && world_chance(&rng, 200))
        step_compaction();
    send_drops();
    check_logs();
    if (world_chance(&rng, 50))
        check_now();
    if (!WORLD_V02 && world_chance(&more, 100)) {
        check_info();
        check_answers();
        if (world_choice(world, F_DAMAGE) == 5 && me->older_len == 0 && me->disk.on_disk[0] >= 0) {
            memcpy(me->older, me->disk.file[me->disk.on_disk[0]].disk, sizeof me->older);
            me->older_len = me->disk.file[me->disk.on_disk[0]].disk_len;
        }
    }
    if (!WORLD_V02 && world_choice(world, F_WRONG) && world_chance(&more, 200))
        wrong_call();
}

static void table_world(struct world *w)
{
    struct world_storage_config d;
    const uint64_t cuts = (uint64_t)world_value(w, F_CUTS), kills = (uint64_t)world_value(w, F_KILLS),
                   steps = (uint64_t)world_value(w, F_STEPS);
    const uint64_t begins_of_all = (uint64_t)world_value(w, F_BEGINS);
    const uint64_t weight[6] = {begins_of_all,
                                3 * begins_of_all,
                                (uint64_t)world_value(w, F_COMMITS) * (world_choice(w, F_DAMAGE) ? 4 : 1),
                                (uint64_t)world_value(w, F_PULLING),
                                (uint64_t)world_value(w, F_COMPACTIONS),
                                (uint64_t)world_value(w, F_READS)};
    const uint64_t sum = weight[0] + weight[1] + weight[2] + weight[3] + weight[4] + weight[5];
    const uint32_t count = 1 + world_choice(w, F_HOMES);
    memset(&d, 0, sizeof d);
    d.write_fails_permille = (uint32_t)world_value(w, F_WRITE_FAILS);
    d.sync_fails_permille = (uint32_t)world_value(w, F_SYNC_FAILS);
#if WORLD_V02
    d.truncate_fails_permille = world_choice(w, F_TRUNCATE_FAILS) == 2 ? 0 : (uint32_t)world_value(w, F_TRUNCATE_FAILS);
#endif
    d.rename_fails_permille = (uint32_t)world_value(w, F_RENAME_FAILS);
    d.capacity_bytes = (uint64_t)world_value(w, F_FULL);
    d.sync_sticky = !WORLD_V02; /* the storage of twochoice.h: after a failed sync all calls fail until create */
    d.kept_permille = (uint32_t)world_value(w, F_KEPT);
    if (world_choice(w, F_DAMAGE) == 3 && world_chance(&more, 500)) /* records behind a hole tell that it is one */
        d.kept_permille = 1000;
    cells = (uint64_t)world_value(w, F_CELLS);
    scale = (uint64_t)world_value(w, F_SCALE);
    place = world_choice(w, F_PLACE) ? UINT64_MAX - cells * scale : 0;
    memset(&maintained, 0, sizeof maintained);
    maintained.servers = 8;
    maintained.rate_bytes_per_s = QOS_UNLIMITED;
    maintained.piece_bytes = 8 << 20;
    maintained.idle_ns = 5000000;
    homes[1].other = 0;
    foreign = NULL;
    now = 0;
    for (me = homes; me < homes + count && !w->broken; me++)
        begin_home(&d);
    for (now++; now < steps && !w->broken; now++) {
        me = &homes[count > 1 ? world_between(&more, 0, 1) : 0];
        if (me->dead)
            continue;
        w->events++;
        if (me->down) { /* the other one goes on */
            if (now >= me->up_at)
                recover();
            continue;
        }
        if (cuts && world_between(&rng, 0, cuts) == 0)
            world_storage_cut_in(&me->disk, world_between(&rng, 0, 12));
        if (me->disk.off || (kills && world_between(&rng, 0, kills) == 0)) {
            me->down = count > 1;
            me->up_at = now + world_scale(&more, 1, 100);
            me->dead = !me->config.storage;
            if (count == 1 && !me->dead)
                recover();
            continue;
        }
        step_home(weight, sum);
    }
    for (me = homes; me < homes + count; me++)
        if (!w->broken && !me->dead) { /* at the end what is acknowledged is there */
            if (me->config.storage) {
                world_storage_cut(&me->disk);
                recover();
            }
            if (!w->broken && !me->dead)
                check_now();
        }
    for (me = homes; me < homes + count; me++) /* a recovery may have read the other one's */
        world_storage_free(&me->disk);
    me = homes;
}

/* No time is special; an id of an object or a client is a name, where the order of objects stays the same. */
static double world_again_slack(const struct world *w, uint32_t who, double got)
{
    (void)w;
    (void)who;
    (void)got;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct world_open open[] = {{0, NULL}};
    int result = world_main(argc, argv, "tests/world/twochoice.worlds", 2500, open);
    printf("%" PRIu64 " writes acknowledged, %" PRIu64 " crashes, %" PRIu64 " repeated ends, %" PRIu64
           " begins refused, %" PRIu64 " pulls, %" PRIu64 " compactions, %" PRIu64 " I/O errors, %" PRIu64
           " pieces dropped, %" PRIu64 " reads, %" PRIu64 " wrong calls, %" PRIu64
           " damages; the storage failed, was cut off or damaged in %" PRIu64 " worlds\n",
           acked_writes, crashes, ended_again, refused, pulled, compactions, eio, dropped, reads, wrong, damages,
           faulty);
    return result;
}
