/* twochoice.h - burst writes past slow servers               SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   The write phase of a parallel program ends with its slowest write: a server that is
 *   slow for a second (a straggler) holds up thousands of processes. So write to another
 *   one, now. To which? No client knows all loads, and if all choose the idle servers,
 *   these are the next stragglers. And where are the bytes? Readers ask the object's own
 *   ("home") server: it must know, even after a crash. In idle times the bytes come home.
 *
 * THE MODEL
 *
 *     client            servers          home server of the object
 *     +-----------+  1  +--------+       +----------------------------------+
 *     | placement |---->| intake |       | table: bytes 100..299 of object  |
 *     |           |<----|        |       |        7 are on server 2; a log  |
 *     +-----------+  2  +--------+       +----------------------------------+
 *       |      |  3 data   ^ |      5 pulled home     ^      ^
 *       |      +-----------+ +------------------------+      |
 *       +-------- 4 "they are on server 2": recorded --------+
 *
 *   1 reserve, 2 asked for, 4 then acknowledged. Three parts, which share nothing:
 *     placement   in a client: where to reserve, which asks to take; in every server an
 *                 intake: how fast it drains, whom it asks for the next write
 *     table       in a home server: where the bytes are; with log, pulls, maintainer
 *     message     what placement and intake say to each other, as bytes
 *
 * THE CALLS
 *
 *     #include "twochoice.h"
 *
 *     static unsigned char mem[5][600000] __attribute__((aligned(64)));
 *     static struct twochoice_placement_config clients; // zeros are the defaults
 *     static struct twochoice_table_config home;        // and no storage: no log
 *     static struct twochoice_intake_config server;
 *     static struct twochoice_intake intake[3];         // one in each server
 *
 *     int main(void)
 *     {
 *         struct twochoice_placement placement;         // in a client
 *         struct twochoice_table table;                 // in server 1
 *         struct twochoice_write w = {1, 4096};         // 4 KiB, whose home is server 1
 *         struct twochoice_place_order todo;
 *         struct twochoice_message m, answer;
 *         struct twochoice_piece piece[4];
 *         uint64_t stamp, request, now_ns = 0;
 *         size_t n;
 *         clients.servers = 3;
 *         home.home = 1;
 *         home.max_fragments = 1000;
 *         if (twochoice_placement_init(&placement, mem[3], sizeof mem[3], &clients) ||
 *             twochoice_table_init(&table, mem[4], sizeof mem[4], &home))
 *             return 1;
 *         for (n = 0; n < 3; server.server = (uint32_t)++n)
 *             if (twochoice_intake_init(&intake[n], mem[n], sizeof mem[n], &server))
 *                 return 1;
 *         twochoice_intake_begin(&intake[1], 0, 1 << 30); // server 1 is busy
 *         // which server gets this write? Its home makes room, and names it by a stamp
 *         if (twochoice_placement_begin(&placement, 0, &w, 1, 0, &request) ||
 *             twochoice_table_write_begin(&table, 7, TWOCHOICE_UNBOUND, 0, 4096, &stamp))
 *             return 1;
 *         while (twochoice_placement_step(&placement, now_ns += 1000, &todo),
 *                todo.todo != TWOCHOICE_PLACE_BIND) { // WAIT: until next_ns or a message
 *             struct twochoice_intake *there = &intake[todo.server]; // over your network
 *             if (todo.todo == TWOCHOICE_PLACE_SEND &&
 *                 twochoice_intake_heard(there, now_ns, &todo.message, &m))
 *                 twochoice_placement_heard(&placement, now_ns, &m, &answer);
 *             while (twochoice_intake_ask(there, now_ns, &m))
 *                 twochoice_placement_heard(&placement, now_ns, &m, &answer);
 *         }
 *         // now the client writes there: the server stores (object 7, stamp), durably
 *         if (twochoice_table_write_bind(&table, stamp, todo.server) ||
 *             twochoice_table_write_end(&table, stamp, piece, 4, &n) ||
 *             twochoice_table_commit(&table))
 *             return 1;                                 // behind it: acknowledged
 *         n = twochoice_table_query(&table, 7, 0, 2 << 20, piece, 4);
 *         return n == 2 && piece[0].target == todo.server ? 0 : 1; // not at home
 *     }
 *
 * THE CONTRACT
 *
 *   - See qos.h for what holds in every header. Each object here has a single owner: one
 *     thread, or a lock. Nothing blocks but the callbacks of the storage.
 *   - Placement: k writes reserve at 2k servers, 4k if busy, or all up; each goes where
 *     one asks, or home if none took a write for 17 timeout_ns; to another one, too, if
 *     late (1 in 8), or after timeout_ns. A server that lies holds at most ceil(2k / up)
 *     writes of a request until then, and harms none that did not reserve there. A client
 *     that does not write idles a server at most 4 lead_ns an ask; they take turns.
 *   - Memory is fixed: at most 64 bytes a fragment, 128 an open write or pull, 12 KiB,
 *     whatever the pattern of writes. A full table is an error (QOS_EFULL) before data
 *     is written elsewhere. Costs: a write and a query O(log n), a message O(k).
 *   - A write: begin; data durable at the target; end; commit; acknowledge. Any thread
 *     may sync. The chapter "table" draws the life of a byte: a server that follows it
 *     loses no acknowledged byte, whatever the order of writes, reads, pulls, cancels,
 *     crashes and lost or repeated messages.
 *   - After a crash at any point, recover gives a table with every change whose commit
 *     returned QOS_OK, possibly some later ones, in order, and no others; or an error
 *     that says what is damaged. Never a wrong place. A failed sync or mark ends all
 *     acknowledgements, a failed write all changes, until a compaction into new blocks.
 */
#ifndef QOS_TWOCHOICE_H
#define QOS_TWOCHOICE_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration and public types ------------------------------------------------------------------ */

#define TWOCHOICE_MAX_FRAGMENTS 65536      /* default: 4 MiB of memory, 64 GiB in pieces of 1 MiB */
#define TWOCHOICE_MAX_WRITES 1024          /* default: 80 KiB */
#define TWOCHOICE_MAX_PULLS 64             /* default: each start of one looks at all */
#define TWOCHOICE_MARK_COMMITS 64          /* default */
#define TWOCHOICE_MIN_WRITE_BYTES 1024     /* default (Section VI-A1): a round trip costs more */
#define TWOCHOICE_SERVERS_MAX 65535        /* server ids are 0..65534 */
#define TWOCHOICE_LOCAL UINT32_MAX         /* target: the home server itself */
#define TWOCHOICE_UNBOUND (UINT32_MAX - 1) /* target: not known yet */

#define TWOCHOICE_FRAGMENTS_MAX (UINT32_C(1) << 30) /* in one table */
#define TWOCHOICE_OPEN_MAX 65536                    /* writes, or pulls, open at once in one table */

#define TWOCHOICE_VERSION_MAX ((UINT64_C(1) << 48) - 1) /* stamps: 8.9 years at 10^6/s; a restart takes 2^21 */

#define TWOCHOICE_RECORD_BYTES 48  /* every record of the log */
#define TWOCHOICE_LOG_VERSION 3    /* version 2 is read, too */
#define TWOCHOICE_MARK_LOG 2       /* beside the logs 0 and 1: 1024 bytes */
#define TWOCHOICE_ACCEPT_PREFIX 1u /* recover: keep what is before the damage, and report it */

#define TWOCHOICE_WRITES_MAX 1024        /* writes in one request */
#define TWOCHOICE_REQUESTS_MAX 256       /* open at once */
#define TWOCHOICE_RESERVATIONS_MAX 65536 /* at one server */

#define TWOCHOICE_TIME_MAX (UINT64_C(1) << 42) /* 73 minutes: a longer time counts as this */
#define TWOCHOICE_LEN_MAX (UINT64_C(1) << 36)  /* a longer write counts as this */
#define TWOCHOICE_MESSAGE_MAGIC 0x4f484332u    /* "2CHO" */
#define TWOCHOICE_MESSAGE_VERSION 2
#define TWOCHOICE_MESSAGE_BYTES ((size_t)QOS_FRAME_HEADER_BYTES + 64u)

/* Handles; the structs are in their chapters. */
struct twochoice_table;
struct twochoice_maintainer;
struct twochoice_placement;
struct twochoice_intake;

/* A range [offset, end) of an object, and where its bytes are. */
struct twochoice_piece {
    uint64_t object, offset, end; /* offset < end <= UINT64_MAX: an object holds bytes 0..2^64-2 */
    uint64_t version;             /* stamp of the write that put it there; 0: at home */
    uint32_t target;              /* or TWOCHOICE_LOCAL */
};

/* The caller's storage: the logs 0 and 1 and the mark (TWOCHOICE_MARK_LOG). At a program's start log 0 is the active
 * one. Each callback returns 0 for success, and calls no function of the table. */
struct twochoice_storage {
    void *ctx;
    /* An empty log under this number in new storage blocks, which read as zeros where never written: a new file, never
     * an old one cut to nothing. What had the number is given up, also a sync that still runs. */
    int (*create)(void *ctx, int log);
    /* Up to len_bytes at offset; *got is 0 only at the end. */
    int (*read)(void *ctx, int log, uint64_t offset, void *buf, size_t len_bytes, size_t *got);
    /* At offset, never beyond the end; not yet durable. A crash keeps a prefix, or whole sectors (512 bytes) of it. */
    int (*write)(void *ctx, int log, uint64_t offset, const void *buf, size_t len_bytes);
    /* Returns when all created and written before is durable. In any thread. After a failure all calls for this log
     * fail until create, for the mark until its next write: a kernel reports lost data once, perhaps to another
     * thread. */
    int (*sync)(void *ctx, int log);
    /* Makes `log` the active one, atomically and durably: log 0 at the next start. In this run both keep their numbers.
     * Failure: nothing changed. In any thread, while either log is written and synced. */
    int (*swap)(void *ctx, int log);
};

struct twochoice_table_config {
    uint32_t max_fragments; /* 1..TWOCHOICE_FRAGMENTS_MAX; 0: TWOCHOICE_MAX_FRAGMENTS */
    uint32_t max_writes;    /* begun and not ended, 1..TWOCHOICE_OPEN_MAX; 0: TWOCHOICE_MAX_WRITES */
    uint32_t max_pulls;     /* open at once, 1..TWOCHOICE_OPEN_MAX; 0: TWOCHOICE_MAX_PULLS */
    uint32_t home;          /* this server's id, 0..65534; in the log */
    uint64_t max_log_bytes; /* of each log, at least 96 * (max_fragments + 2): a compacted log fits;
                             * 0, QOS_UNLIMITED: only the device is the limit. Compact when it is half full. */
    uint32_t mark_commits;  /* commits from one mark to the next; 0: TWOCHOICE_MARK_COMMITS */
    /* copied; NULL: no log: lost with the process */
    const struct twochoice_storage *storage;
};

struct twochoice_table_state {
    uint32_t fragments, max_fragments, nodes_used, nodes, writes_open, pulls_open;
    uint64_t stamp;                    /* latest given out */
    uint64_t changes, durable_changes; /* since init; durable: by a commit */
    uint64_t log_bytes, max_log_bytes;
    uint32_t next_log; /* that a compaction writes, then swaps in */
    bool compacting;
    bool log_broken; /* no change is recorded until a compaction has ended */
};

struct twochoice_recovery {
    uint64_t records;       /* replayed, the header not counted */
    uint64_t valid_bytes;   /* of the log */
    uint64_t dropped_bytes; /* behind them: a torn tail, never acknowledged */
};

/* A commit under way: of what, in which logs. */
struct twochoice_commit {
    uint32_t logs; /* bit l: storage.sync(ctx, l) is needed */
    struct {
        uint64_t id, records, ceiling;
    } log[2]; /* for commit_end */
    uint64_t changes, mark;
};

enum twochoice_compact_todo {
    TWOCHOICE_COMPACT_STEP = 0,   /* call it again */
    TWOCHOICE_COMPACT_COMMIT = 1, /* all is copied: again after a commit that begins now */
    TWOCHOICE_COMPACT_SWAP = 2    /* storage.swap(ctx, counts.next_log), in any thread, then compact_end */
};

struct twochoice_maintainer_config {
    uint32_t servers;          /* ids 0..servers-1, what is at others stays there; 1..TWOCHOICE_SERVERS_MAX */
    uint64_t rate_bytes_per_s; /* of all pulls, 1..QOS_RATE_MAX; 0: 64 MiB/s; QOS_UNLIMITED: no limit */
    uint64_t piece_bytes;      /* of one pull at most, 1..QOS_TOKENS_MAX; 0: 1 MiB */
    uint64_t idle_load;        /* a server is idle up to this load; any */
    uint64_t idle_ns;          /* so long the home must have been idle; so long a target's load is used; 0: 100 ms */
};

enum twochoice_todo {
    TWOCHOICE_WAIT = 0,     /* nothing before next_ns; if that is now: again when there is time */
    TWOCHOICE_ASK_LOAD = 1, /* ask piece.target for its load: twochoice_maintainer_remote_load */
    TWOCHOICE_COPY = 2      /* a pull began: read piece, ready, write, finish; or cancel */
};
struct twochoice_order {
    enum twochoice_todo todo;
    uint32_t pull;
    struct twochoice_piece piece;
    uint64_t next_ns; /* QOS_NEVER: until something changes */
};

/* Client to server: RESERVE, RELEASE. Server to client: ANSWER, ASK. */
enum twochoice_message_type {
    TWOCHOICE_RESERVE = 1, /* count writes of len_bytes may come */
    TWOCHOICE_ANSWER = 2,  /* the bounds */
    TWOCHOICE_ASK = 3,     /* the bounds, and: send one write now */
    TWOCHOICE_RELEASE = 4  /* no write comes; also the answer to an ASK that is declined */
};
enum twochoice_server_state { TWOCHOICE_UP = 0, TWOCHOICE_DOWN = 1, TWOCHOICE_FULL = 2 };
struct twochoice_message {
    uint32_t type, server;
    uint32_t state; /* ANSWER, ASK: enum twochoice_server_state; not UP: the reservation is refused */
    uint32_t count; /* RESERVE: 1..TWOCHOICE_WRITES_MAX */
    uint64_t client, request;
    uint64_t turn;       /* of the reservation: a message of an older one changes nothing */
    uint64_t len_bytes;  /* RESERVE: of the longest that may come */
    uint64_t wait_ns;    /* ANSWER, ASK: until a write begins, as far as known */
    uint64_t service_ns; /* and for itself; 0: not known yet */
    uint64_t idle_ns;    /* the server was idle so long: its times are as old */
};

struct twochoice_placement_config {
    uint32_t servers;         /* ids 0..servers-1, and of those to come: DOWN until then; 1..TWOCHOICE_SERVERS_MAX */
    uint32_t max_writes;      /* k, at most, in one request: 1..TWOCHOICE_WRITES_MAX; 0: 128 */
    uint32_t max_requests;    /* open at once, 1..TWOCHOICE_REQUESTS_MAX; 0: 4 */
    bool include_home;        /* the homes of the writes are among the 2k servers (Section V-A) */
    uint64_t min_write_bytes; /* smaller writes go home at once; 0: TWOCHOICE_MIN_WRITE_BYTES; QOS_NOTHING: none does */
    /* A write that has not ended goes to another server, too: more than the longest takes at a busy one; 0: 200 ms. A
     * now_ns older by less than a quarter of it was read earlier; by more: the clock was set back. */
    uint64_t timeout_ns;
    uint64_t client; /* this client's id; unique */
    uint64_t seed;   /* any */
};

/* A write to place. */
struct twochoice_write {
    uint32_t home;
    uint64_t len_bytes;
};

enum twochoice_place_todo {
    TWOCHOICE_PLACE_WAIT = 0, /* until next_ns, or until something is heard */
    TWOCHOICE_PLACE_SEND = 1, /* send the message to the server */
    TWOCHOICE_PLACE_BIND = 2  /* send the write to the server, with message.client, request and turn */
};
struct twochoice_place_order {
    enum twochoice_place_todo todo;
    uint32_t server, write; /* BIND: write is its index in the request */
    /* BIND: it was sent, and is overdue or failed: now under a new stamp. At its home one is sent again only if it
     * failed. Record one at a time; cancel the others. */
    bool again;
    uint64_t tag; /* of the request: the caller's */
    struct twochoice_message message;
    uint64_t next_ns; /* WAIT; QOS_NEVER: only when something is heard */
};

struct twochoice_intake_config {
    uint32_t server;           /* this server's id */
    uint32_t max_reservations; /* 1..TWOCHOICE_RESERVATIONS_MAX; 0: 4096. Full: the answer is FULL */
    uint32_t max_per_client;   /* the same for one client; 0: 64 */
    /* So many writes the device does at once; 0: 1, a disk. If it is less, that part of the device is used; if more, a
     * busy server looks idle, and the p99 doubles. Measure where more at once are no faster. */
    uint32_t parallel;
    uint64_t op_cost_bytes; /* of an operation beside its bytes, 1..TWOCHOICE_LEN_MAX; 0: 64 KiB; QOS_NOTHING */
    uint64_t timeout_ns; /* an ask without an answer is given up after 8 leads and a service, this at most; 0: 50 ms */
};
struct twochoice_intake_state {
    uint64_t ops, cost_bytes;     /* in flight; len_bytes + op_cost_bytes of each */
    uint64_t mib_ns;              /* for 1 MiB, as learned; 0: not known */
    uint64_t lead_ns;             /* from an ask to its write, as learned; 0: not known, timeout_ns / 256 counts */
    uint32_t reservations, asked; /* asked: for writes that have not come */
    uint64_t lost;                /* asks without an answer so far */
};

/* ---- the API at a glance ------------------------------------------------------------------------------
 *
 *   table        twochoice_table_config_error, memsize, init    a table in the caller's memory
 *                twochoice_table_format, recover                an empty log; the table from its log
 *                twochoice_table_write_begin, bind, end         room and stamp; its target; the data is durable there
 *                twochoice_table_write_cancel, next             gives it up; walks the open writes
 *                twochoice_table_commit, commit_begin, _end     all changes so far are durable
 *                twochoice_table_find, query, next              places of bytes; all redirects
 *                twochoice_table_refers                         may a piece be dropped?
 *                twochoice_table_pull_start, ready, finish,     bring bytes home
 *                                cancel
 *                twochoice_table_compact, compact_start,        a shorter log, while serving
 *                                _step, _end
 *                twochoice_table_info                           sizes
 *   maintainer   twochoice_maintainer_config_error, memsize, init
 *                twochoice_maintainer_step, remote_load         the next pull; a target's load
 *   placement    twochoice_placement_config_error, memsize, init
 *                twochoice_placement_set_server, stats          up, down, full; counters
 *                twochoice_placement_begin, ended               a request of k writes; the end of a write
 *                twochoice_placement_heard, step                a message came; what to do now
 *   intake       twochoice_intake_config_error, memsize, init
 *                twochoice_intake_heard, info                   a message came; load, learned rate, counts
 *                twochoice_intake_ask, next_ns                  whom to ask for a write now; when again
 *                twochoice_intake_begin, arrived, end           operations in flight
 *   message      twochoice_message_encode, decode               as bytes
 */

/* ---- the API ------------------------------------------------------------------------------------------
 *
 * Pointers are not NULL unless a comment says so. X_config_error: NULL, or a sentence that says what is wrong.
 * X_memsize: bytes, aligned to 64, that X_init wants; 0 if the configuration is wrong. X_init: QOS_ERANGE or QOS_EINVAL
 * (configuration), QOS_EINVAL (mem is NULL), QOS_EALIGN, QOS_EMEMORY. */

/* Without a storage the table is ready after init, all at home; with one, call format or recover next. In
 * pages of 2 MiB (madvise) finds in a large one take less time. */
QOS_API const char *twochoice_table_config_error(const struct twochoice_table_config *config);
QOS_API size_t twochoice_table_memsize(const struct twochoice_table_config *config);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_init(struct twochoice_table *table, void *mem, size_t size_bytes,
                                                           const struct twochoice_table_config *config);

/* An empty log, durable on return; what it held is gone: targets must have dropped all that they hold for this home.
 * QOS_EBUSY: it has a log. QOS_EINVAL: no storage. QOS_EIO. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_format(struct twochoice_table *table);
/* Rebuilds the table, which has no log yet (QOS_EBUSY), from log 0, writes a new log and swaps it in: at every start.
 * flags: 0 or TWOCHOICE_ACCEPT_PREFIX. QOS_ENOENT: never formatted: format it. QOS_ECORRUPT: a record that may have
 * been acknowledged, at recovery->valid_bytes, is damaged or missing. QOS_EVERSION: written by another version.
 * QOS_EINVAL: another server's log, or no storage. QOS_EFULL: more than max_fragments. QOS_EIO. After an error the
 * table is empty, the log says what it said. recovery may be NULL. Writes that were open are gone. O(records). */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_recover(struct twochoice_table *table, uint32_t flags,
                                                              struct twochoice_recovery *recovery);

/* A write of [offset, offset + len_bytes) of the object to server `target` (0..65534, not the home), at home
 * (TWOCHOICE_LOCAL), or where write_bind says (TWOCHOICE_UNBOUND). The stamp names the write and its piece.
 *   begin    reserves what write_end needs. len_bytes >= 1, offset + len_bytes <= UINT64_MAX (QOS_ERANGE). QOS_EFULL:
 *            no room, or max_writes are open: write at home, pull or compact. QOS_EAGAIN: at home, another write or a
 *            pull writes there; else 2^19 stamps were given out since a commit.
 *   bind     the target of a write that began as TWOCHOICE_UNBOUND, once, before any of its bytes is sent. Again with
 *            the same target: QOS_OK; another: QOS_EBUSY: cancel, and begin again: bytes under the old stamp may still
 *            arrive. QOS_EAGAIN: at home, as in begin. QOS_EINVAL: the home's own id. QOS_ERANGE. QOS_ENOENT: no such
 *            open write. An unbound write has room for any target, and refers() is true for it; a crash cancels it, as
 *            all open ones.
 *   end      the data is durable at its target: the write counts, and replaces what the table said. Acknowledge it
 *            after a commit. replaced: the redirected pieces that it replaced, at most max (1 or more). QOS_EAGAIN:
 *            they are more than max; `replaced` has the first, and nothing has changed. Call with more room
 *            (max_fragments is enough), or cancel and write in parts. QOS_ENOENT: it never counted, and never will:
 *            begin again. QOS_EFULL: a write at home that was promised nothing has no room now: pull or compact, and
 *            call again. QOS_EIO: compact, and call again or cancel. QOS_EINVAL: it is not bound. O(log n) a piece
 *            replaced. Again after QOS_OK: QOS_OK, *n = 0, and nothing changes. QOS_ESTALE: too old to know whether it
 *            counted: 16 * max_writes newer ones were begun (a restart is 128 of them). Or it was begun before a
 *            restart and did not count, or replaced nothing at home, or the log had no room to tell: half of
 *            max_log_bytes wants 48 bytes a fragment, 12 for each of max_writes, and 336. Read before writing again.
 *   cancel   not to be. At home, only when the device is done with its data. QOS_ENOENT. QOS_EIO: an end of it failed,
 *            a crash may bring its record back: compact first.
 *   next     the open write with the smallest stamp above `stamp`; false: none. Of clients that died: cancel what is
 *            older than a stamp noted long ago. O(max_writes). */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_write_begin(struct twochoice_table *table, uint64_t object,
                                                                  uint32_t target, uint64_t offset, uint64_t len_bytes,
                                                                  uint64_t *stamp);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_write_bind(struct twochoice_table *table, uint64_t stamp,
                                                                 uint32_t target);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_write_end(struct twochoice_table *table, uint64_t stamp,
                                                                struct twochoice_piece *replaced, size_t max,
                                                                size_t *n);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_write_cancel(struct twochoice_table *table, uint64_t stamp);
QOS_API bool twochoice_table_write_next(const struct twochoice_table *table, uint64_t stamp,
                                        struct twochoice_piece *piece);

/* A commit makes all changes so far durable. begin notes them; storage.sync for each bit of commit->logs, in any
 * thread; end: synced: all succeeded. Several may be under way. QOS_OK from end: all changes before begin are durable.
 * QOS_EIO: nothing is acknowledged until a compaction has ended, also if a late sync may have failed in a newer log of
 * that number. QOS_EAGAIN (end): the synced log is not the active one any more: begin again. twochoice_table_commit
 * does all three. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_commit(struct twochoice_table *table);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_commit_begin(struct twochoice_table *table,
                                                                   struct twochoice_commit *commit);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_commit_end(struct twochoice_table *table,
                                                                 const struct twochoice_commit *commit, bool synced);

/* Where the byte is, and the end of the range for which that holds. offset < UINT64_MAX. O(log n). */
QOS_API void twochoice_table_find(const struct twochoice_table *table, uint64_t object, uint64_t offset,
                                  struct twochoice_piece *piece);
/* The pieces of [offset, offset + len_bytes), or to UINT64_MAX, in order, without gaps, with those at home; neighbours
 * of equal target may be apart. Returns how many, at most max; only if that is max, some may be missing. */
QOS_API size_t twochoice_table_query(const struct twochoice_table *table, uint64_t object, uint64_t offset,
                                     uint64_t len_bytes, struct twochoice_piece *pieces, size_t max);
/* The first redirected bytes at or behind (object, offset); false: none. */
QOS_API bool twochoice_table_next(const struct twochoice_table *table, uint64_t object, uint64_t offset,
                                  struct twochoice_piece *piece);
/* Does any byte refer to the piece (object, stamp), or can it later? [offset, offset + len_bytes): bytes of the piece,
 * or some. false: it may be dropped once all changes so far are durable. O(log n + fragments of the object in the
 * range, and within the longest redirect so far on both sides). */
QOS_API bool twochoice_table_refers(const struct twochoice_table *table, uint64_t object, uint64_t stamp,
                                    uint64_t offset, uint64_t len_bytes);

/* A pull brings redirected bytes home.
 *   start   the piece at (object, offset), at most max_bytes of it. QOS_ENOENT: it is at home. QOS_EBUSY: another pull
 *           has it. QOS_EFULL: max_pulls are open. Read it from piece->target, by its stamp piece->version.
 *   ready   the data is here: which bytes may be written at home now. At most max (1 or more) pieces; the pull shrinks
 *           to them. *n may be 0. QOS_EAGAIN: a write at home is open there.
 *   finish  the writes at home have ended, durably: bytes whose redirect is unchanged since start are at home from now
 *           on. replaced, QOS_EAGAIN: as in write_end. QOS_OK ends the pull. On QOS_EIO (compact) and QOS_EFULL call
 *           again: the pieces in `replaced` are at home.
 *   cancel  nothing more is converted. Before ready it ends the pull; after it (QOS_EBUSY) finish does, when the writes
 *           at home have ended.
 * QOS_ENOENT from ready, finish and cancel: no such pull, or not in this order. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_pull_start(struct twochoice_table *table, uint64_t object,
                                                                 uint64_t offset, uint64_t max_bytes, uint32_t *pull,
                                                                 struct twochoice_piece *piece);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_pull_ready(struct twochoice_table *table, uint32_t pull,
                                                                 struct twochoice_piece *pieces, size_t max, size_t *n);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_pull_finish(struct twochoice_table *table, uint32_t pull,
                                                                  struct twochoice_piece *replaced, size_t max,
                                                                  size_t *n);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_pull_cancel(struct twochoice_table *table, uint32_t pull);

/* Compaction copies the live fragments into the other log while all else goes on, then swaps the logs. start:
 * QOS_EBUSY: one is under way. step: copies up to max_records; *todo: what is next. end: swapped: storage.swap
 * succeeded. QOS_EIO: the storage failed. QOS_EFULL: changes came faster than it copies, or open writes reserved the
 * room. Both end it, and the active log is as it was; step says so until the next one ends. QOS_EINVAL: none is under
 * way. twochoice_table_compact does it all, with syncs and swap. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_compact(struct twochoice_table *table);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_compact_start(struct twochoice_table *table);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_compact_step(struct twochoice_table *table, uint32_t max_records,
                                                                   enum twochoice_compact_todo *todo);
QOS_API QOS_NODISCARD enum qos_status twochoice_table_compact_end(struct twochoice_table *table, bool swapped);

QOS_API enum qos_status twochoice_table_info(const struct twochoice_table *table, struct twochoice_table_state *out);

/* A maintainer (Section V-C) decides what its table pulls home, and when; for the table's owner. */
QOS_API const char *twochoice_maintainer_config_error(const struct twochoice_maintainer_config *config);
QOS_API size_t twochoice_maintainer_memsize(const struct twochoice_maintainer_config *config);
QOS_API QOS_NODISCARD enum qos_status twochoice_maintainer_init(struct twochoice_maintainer *maintainer, void *mem,
                                                                size_t size_bytes,
                                                                const struct twochoice_maintainer_config *config);
/* What to do now. local_load: of this server. With max_pulls open it says TWOCHOICE_WAIT until one ends: call it then.
 * Bytes are charged when a pull starts: in any w seconds at most rate * w + piece_bytes are pulled; piece_bytes more
 * for each new maintainer, which pulls nothing for its first idle_ns. O(log n), and at most 1024 fragments are looked
 * at. */
QOS_API QOS_NODISCARD enum qos_status twochoice_maintainer_step(struct twochoice_maintainer *maintainer,
                                                                uint64_t now_ns, struct twochoice_table *table,
                                                                uint64_t local_load, struct twochoice_order *order);
/* The answer of a target to TWOCHOICE_ASK_LOAD. It counts for idle_ns: a step that comes later asks again. Say
 * UINT64_MAX when a piece cannot be read there: else pulls from it begin again and again, and are charged. */
QOS_API void twochoice_maintainer_remote_load(struct twochoice_maintainer *maintainer, uint64_t now_ns, uint32_t target,
                                              uint64_t load);

/* Placement, in a client. begin a request; whenever time has passed or something was heard, step until it says WAIT.
 * Messages may be lost, late, repeated and reordered. */
QOS_API const char *twochoice_placement_config_error(const struct twochoice_placement_config *config);
QOS_API size_t twochoice_placement_memsize(const struct twochoice_placement_config *config);
QOS_API QOS_NODISCARD enum qos_status twochoice_placement_init(struct twochoice_placement *placement, void *mem,
                                                               size_t size_bytes,
                                                               const struct twochoice_placement_config *config);
/* From now on: nothing is reserved at a server that is not UP. QOS_ENOENT: no such server. QOS_ERANGE. O(1). */
QOS_API QOS_NODISCARD enum qos_status twochoice_placement_set_server(struct twochoice_placement *placement,
                                                                     uint32_t server,
                                                                     enum twochoice_server_state state);
/* A request of k writes. tag: comes back with each order. QOS_ERANGE: k is 0 or above max_writes. QOS_ENOENT: a home
 * does not exist. QOS_EFULL: max_requests are open. O(k). */
QOS_API QOS_NODISCARD enum qos_status twochoice_placement_begin(struct twochoice_placement *placement, uint64_t now_ns,
                                                                const struct twochoice_write *writes, size_t k,
                                                                uint64_t tag, uint64_t *request);
/* A write has ended. durable: it is, wherever it was sent, or is given up; otherwise it failed where it was sent last,
 * and goes to another server; home again, where no server is up or takes it, timeout_ns / 256 after it was sent last,
 * then twice that, timeout_ns at most. The request is closed with its last write. QOS_ENOENT: no such request.
 * QOS_ERANGE: no such write. O(1). */
QOS_API QOS_NODISCARD enum qos_status twochoice_placement_ended(struct twochoice_placement *placement, uint64_t now_ns,
                                                                uint64_t request, uint32_t write, bool durable);
/* An ANSWER or an ASK came. true: send *answer to message->server, which is who sent it: check that. O(1). */
QOS_API bool twochoice_placement_heard(struct twochoice_placement *placement, uint64_t now_ns,
                                       const struct twochoice_message *message, struct twochoice_message *answer);
/* What to do now: one order a call. A write goes where a server asked for it; home, if it is small, no server is up or
 * answers, or in 17 timeout_ns none took a write of the request and none came back. For the ask of a server that stated
 * wait_ns, and service_ns of each write that it took since, it waits twice their sum and timeout_ns at most.
 * O(max_requests), and O(k) for each request that has something to do; where most servers are not UP, O(servers) for
 * each that it reserves at. */
QOS_API void twochoice_placement_step(struct twochoice_placement *placement, uint64_t now_ns,
                                      struct twochoice_place_order *order);
/* id: QOS_NONE (QOS_ENOENT otherwise). granted: writes sent; borrowed: of them away from home; refused: reservations
 * that were refused, or silent; waited: writes that were overdue or failed. */
QOS_API enum qos_status twochoice_placement_stats(const struct twochoice_placement *placement, uint32_t id,
                                                  struct qos_stats *out);

/* Intake, in every server. After each call but info: ask until it says false. */
QOS_API const char *twochoice_intake_config_error(const struct twochoice_intake_config *config);
QOS_API size_t twochoice_intake_memsize(const struct twochoice_intake_config *config);
QOS_API QOS_NODISCARD enum qos_status twochoice_intake_init(struct twochoice_intake *intake, void *mem,
                                                            size_t size_bytes,
                                                            const struct twochoice_intake_config *config);
/* A RESERVE or RELEASE came. true: send *answer to message->client, which is who sent it: check that. A server that
 * takes no writes sets answer->state. O(1) on average. */
QOS_API bool twochoice_intake_heard(struct twochoice_intake *intake, uint64_t now_ns,
                                    const struct twochoice_message *message, struct twochoice_message *answer);
/* true: send *ask to ask->client. Call again until false. O(1) on average. */
QOS_API bool twochoice_intake_ask(struct twochoice_intake *intake, uint64_t now_ns, struct twochoice_message *ask);
/* When to ask again, if nothing happens before; QOS_NEVER: when something does. O(1). */
QOS_API uint64_t twochoice_intake_next_ns(struct twochoice_intake *intake, uint64_t now_ns);
/* An operation of len_bytes (any, not only placed writes) starts, or ends. arrived: a write with the client, request
 * and turn of a BIND starts. */
QOS_API void twochoice_intake_begin(struct twochoice_intake *intake, uint64_t now_ns, uint64_t len_bytes);
QOS_API void twochoice_intake_arrived(struct twochoice_intake *intake, uint64_t now_ns, uint64_t client,
                                      uint64_t request, uint64_t turn, uint64_t len_bytes);
QOS_API void twochoice_intake_end(struct twochoice_intake *intake, uint64_t now_ns, uint64_t len_bytes);
QOS_API enum qos_status twochoice_intake_info(const struct twochoice_intake *intake,
                                              struct twochoice_intake_state *out);

/* *len_bytes: written. QOS_ERANGE: a field is. QOS_EMEMORY: buf is smaller than TWOCHOICE_MESSAGE_BYTES. */
QOS_API QOS_NODISCARD enum qos_status twochoice_message_encode(const struct twochoice_message *message, void *buf,
                                                               size_t size_bytes, size_t *len_bytes);
/* Of any bytes. QOS_ETRUNCATED, QOS_ECORRUPT, QOS_EVERSION. *message is set only on QOS_OK. Check its ids. */
QOS_API QOS_NODISCARD enum qos_status twochoice_message_decode(const void *buf, size_t size_bytes,
                                                               struct twochoice_message *message);

/* ==== chapter: table ====================================================================================
 *
 * A redirect table (Section V-B) maps bytes of objects to servers. What no fragment covers is at home.
 *
 * THE LIFE OF A BYTE
 *
 *                   write_begin(home)         write_end, commit
 *        .----------------------------------------------------------.
 *        v                                                          |
 *     +------+  write_begin(T)  +-----------------+  write_end   +--------------+  pull_start   +--------------+
 *     | home |----------------->| piece s at T,   |------------->| redirected   |-------------->| being pulled |
 *     +------+   stamp s        | not visible yet |  commit      | to s at T    |<--------------| to home      |
 *        ^                      +-----------------+              +--------------+  cancel       +--------------+
 *        |                          | cancel, or the client dies        | replaced by a newer write   | ready,
 *        |                          v                                   v                             | finish,
 *        |                      +-----------------------------------------------+                     | commit
 *        |                      | stale: no byte of the table refers to stamp s | <-------------------+
 *        |                      +-----------------------------------------------+                     |
 *        |                          | refers() is false and durable: T drops the piece                |
 *        '--------------------------------------------------------------------------------------------'
 *
 *   1. A stamp is never given twice, not even after a crash. It names the piece: a target stores (object, stamp) apart
 *      and overwrites nothing. If it lacks a piece that it should read or drop, it says so; the reader then asks
 *      the home again.
 *   2. A write counts from write_end on. The last write_end wins; after a commit it is acknowledged.
 *   3. At home, bytes are overwritten in place. So for any byte only one write at home, or one pull that writes there,
 *      is under way (QOS_EAGAIN for others), from write_begin or pull_ready until write_end, write_cancel or
 *      pull_finish: these are called when the device is done with the data.
 *   4. A pull converts only bytes that still carry the stamp that it copied.
 *   5. A piece may be dropped when refers() says that no byte needs it, and the change that made it so is durable: ask
 *      refers() at once for each piece that write_end and pull_finish replaced, note counts.changes, and send the drop
 *      when counts.durable_changes has reached it. A drop may be lost, repeated or late.
 *   6. Pieces that a crash leaves behind: now and then a target lists what it holds, and the home answers with
 *      refers(), once all its changes are durable.
 *   7. Delete or truncate: a write at home, without data. begin; remove the bytes at home, durably; end; commit. On
 *      QOS_EAGAIN cancel, and delete up to replaced[max - 1].end first.
 *
 * TREE. A B+tree with the key (object, offset) over a fixed pool of nodes of 1024 bytes. A query costs its cache
 * misses, so the first of a node's 16 lines shows which of the others to read:
 *
 *     inner node   48 children    | every 8th offset         | object ... | offset or key ... | child ... |
 *                     |
 *     wide leaf    30 fragments   |                          | object, offset, end, stamp and target | ...
 *     narrow leaf  64 fragments   | bases, every 16th start  | start ... | stamp ... | length ... | target ... |
 *     even leaf    96 fragments   | and the length of each   | start ... | stamp ... | target ... |
 *
 *   A leaf is narrow if its fragments are of one object, within 4 GiB and with stamps within 2^32: it has them less a
 *   base. It is even if all are of one length, too. An inner node is narrow if its bounds, but the first, are below
 *   2^47 and their objects differ in the low 16 bits only: one key of 64 bits has both. A search compares, without a
 *   branch, the leaders, then the keys of one group. One miss a level. A change that a leaf cannot do alone reads it
 *   and, if it has too few for two, neighbours into a row, changes that, and writes it into as few leaves as hold it:
 *   two full wide ones become three and a full narrow one two. A fragment behind all of its object fills the leaf
 *   before: appends fill them. Inner nodes get room, or are refilled, likewise on the way down.
 *
 *   Memory: a fragment costs at most 1024/18 * (1 + 1/29 + 1/29^2 + ...) = 58.9 bytes; in random order wide leaves take
 *   46, narrow ones 22, even ones 15; appends 34, 17, 11.
 *
 * LOG. Two logs of records of 48 bytes, little-endian, and a mark:
 *
 *      0  CRC32C of bytes 4..47, seeded with the CRC of the record before it (header, mark: with 0)
 *      4  format version (8 bits), type (8), target (16)
 *      8  object      header, mark: the home server
 *     16  offset      header, mark: the log's identity; ended: bits 0..63
 *     24  end         header: 1 if the log is compacted; mark: how many of its records are durable;
 *                     ended: bits 64..127; end: length of the longest redirect
 *     32  version     redirect: its stamp; ended: bit i is set if write version + i has ended; header, ceiling, end,
 *                     mark: no stamp above was given out by then
 *     40  how many records before it were not durable then (32 bits)
 *     44  0 (16 bits)
 *     46  the marker: no byte of it is zero
 *
 *   The chain of CRCs ties each record to its place: one of another log never fits. The count of records not yet
 *   durable tells a tail that a crash cut (dropped) from a damaged record that was acknowledged (QOS_ECORRUPT). A log
 *   is valid if and only if
 *     1. its header and all records up to its end fit the chain, except a tail that was never acknowledged;
 *     2. a compacted log has its end record: a compaction that lost anything has none;
 *     3. it has at least as many records as the mark of its identity states, and no mark is of a later identity.
 *        A mark is written every mark_commits commits, in one of two slots in turn, 512 bytes apart, one at most not
 *        synced. Of a damaged one the other counts. compact_end writes a log's first. Call it soon:
 *        until then damage that cuts off the new log's end looks like a crash.
 *   Stamps: a ceiling record raises their bound by 2^20; none above the last durable bound is given out.
 *   Recovery goes on above it. The header's layout is that of every future version.
 *
 *   COMMITS. Each log, so each attempt at a compaction, has an identity. A commit notes those of the logs that it
 *   syncs, and counts for them only. Each log is in one state:
 *
 *        the other log                                          the active log
 *     +------+ start  +---------+  all   +--------+  a commit  +----------+ swapped  +-------+  write  +------+
 *     | NONE |------->| COPYING |------->| COPIED |----------->| SWAPPING |--------->| SOUND |-------->| TORN |
 *     +------+        +---------+ copied +--------+  of all    +----------+          +-------+  failed +------+
 *       ^  ^               |                 |                   |      | failure         | sync or       |
 *       |  '---------------+-----------------'       not swapped |      v                 | mark failed   |
 *       |        failure: the attempt ends                       |  +----------+          v               v
 *       +--------------------------------------------------------+--| DOUBTFUL |-->+-------------------------+
 *                                                  not swapped      +----------+   | LOST: only a swap helps |
 *                                                                         swapped  +-------------------------+
 *
 *     - A failed write or sync is never tried twice: a second sync may report success wrongly. Nothing follows a torn
 *       tail: both mixed would look like damage. What a LOST log holds since its last good sync is unknown.
 *     - Changes are recorded while the active log is SOUND and the other not DOUBTFUL; in COPYING those before the
 *       cursor to both, in COPIED and SWAPPING all.
 *     - A commit syncs the active log unless LOST, the other from COPIED on, and an unsynced mark.
 *     - A change is acknowledged when durable in the active log; in SWAPPING, in both. In DOUBTFUL and LOST nothing is;
 *       a swap acknowledges what is durable in the new log.
 *     - The swap may begin when all acknowledged is durable in the other log. Until compact_end either may be the
 *       active one.
 *
 *   Recovery reads log 0 as LOST, and compacts it: it cuts and appends nothing. A power cut in it leaves either,
 *   and they say the same.
 *
 * MAINTAINER. It goes round the table, at most TWOCHOICE_PRIV_LOOKS fragments a step. Each server is
 * probed once per idle_ns, and pieces of idle ones are pulled, within a token bucket. After a round without a pull it
 * rests for idle_ns, unless there is a new write.
 *
 * docs/papers.md says where we differ from the paper.
 *
 * INVARIANTS
 *
 *   1. Fragments do not overlap; offset < end; no target is the home.
 *   2. Leaves hold 18 to 30, 64 or 96 fragments, inner nodes 29 to 48 children, except under a root with one or two.
 *   3. Unused slots hold the largest key: a search need not know how many are in use.
 *   4. The active log has the contents of the table; while a compaction copies, the other one those before the cursor,
 *      and no more; afterwards all.
 *   5. What open writes have reserved (2 fragments and a record; at home 1 and 1) is free, in the active log and, from
 *      SWAPPING on, in both. No log is ever longer than max_log_bytes.
 *
 * REFERENCES
 *
 *   D. Comer: The Ubiquitous B-Tree, ACM Computing Surveys 11(2), 1979 (B*-trees).
 *
 *   Map (without twochoice_priv_)
 *     the tree         descend, reach, find_gap; add, remove, apply; restructure, regroup
 *     the log          encode, decode, intact; append, put_mark, fail; change, group
 *     recovery         judge, replay, resume
 *     writes at home   begin_at_home, end_at_home, busy
 *     compaction       follow, next_copy
 *     the maintainer   visit
 */

#define TWOCHOICE_NODE_BYTES 1024
#define TWOCHOICE_WIDE_SLOTS 30   /* fragments in a wide leaf */
#define TWOCHOICE_EVEN_SLOTS 96   /* in a narrow leaf, if all are of one length */
#define TWOCHOICE_NARROW_SLOTS 64 /* if not */
#define TWOCHOICE_INNER_SLOTS 48  /* children of an inner node */
#define TWOCHOICE_LEAF_LEAST 18   /* fewest fragments in a leaf */
#define TWOCHOICE_INNER_LEAST 29
#define TWOCHOICE_WIDE_SHARED 27 /* half more than the least: two full become three */
#define TWOCHOICE_INNER_SHARED 45
#define TWOCHOICE_PRIV_ROW (TWOCHOICE_EVEN_SLOTS + TWOCHOICE_NARROW_SLOTS - 7)
#define TWOCHOICE_PRIV_PACKED (UINT64_C(1) << 47)
#define TWOCHOICE_PRIV_LOOKS 1024u       /* that one step of a maintainer reads */
#define TWOCHOICE_PRIV_NO_TARGET 0xffffu /* of an open write that has none yet */
#define TWOCHOICE_PRIV_INLINE QOS_PRIV __attribute__((always_inline))

struct twochoice_priv_range {
    uint64_t object, offset, end, tag; /* tag: version << 16 | target */
};

struct twochoice_priv_form { /* of a leaf; most: fragments */
    uint32_t most, narrow;
    uint64_t version;
};

struct twochoice_priv_node {
    uint32_t next, prev;    /* leaves are linked both ways; free nodes by next */
    uint32_t count, narrow; /* of a narrow leaf: its slots */
    uint64_t object;        /* of a narrow leaf; of the second bound of an inner node */
    union {
        struct {
            uint64_t base, version;                  /* starts are less base, stamps less version */
            uint32_t len, lead[5];                   /* of all, if even; every 16th start */
            uint32_t word[2 * TWOCHOICE_EVEN_SLOTS]; /* starts, then stamps, then lengths if not even */
            uint16_t target[TWOCHOICE_EVEN_SLOTS];
        } narrow;
        struct {
            uint64_t unused[5];
            struct twochoice_priv_range entry[TWOCHOICE_WIDE_SLOTS];
        } wide;
        struct {
            uint64_t lead[5]; /* offset[8, 16, ..., 40] */
            uint64_t object[TWOCHOICE_INNER_SLOTS], offset[TWOCHOICE_INNER_SLOTS];
            uint32_t child[TWOCHOICE_INNER_SLOTS];
        } inner;
    } u;
};
QOS_STATIC_ASSERT(sizeof(struct twochoice_priv_node) == TWOCHOICE_NODE_BYTES, "a node is 16 cache lines");

/* Bytes of a write or pull; in a tree while written at home. */
struct twochoice_priv_extent {
    struct twochoice_priv_range f; /* tag 0: at home */
    struct twochoice_priv_extent *before, *after;
};

/* Open, with its reservation. */
struct twochoice_priv_write {
    struct twochoice_priv_extent at;
    uint64_t stamp;  /* 0: the slot is free */
    uint32_t behind; /* in the chain of its stamp, or in that of free slots */
    uint8_t fragments, records;
    uint64_t failed; /* of the log where its end failed, which may hold its record; 0: none */
};

/* Which of 128 stamps in a row have ended. */
struct twochoice_priv_ended {
    uint64_t base, bits[2];
};

struct twochoice_priv_pull {
    struct twochoice_priv_extent at;
    uint64_t tag;   /* of the bytes at the start */
    uint32_t state; /* TWOCHOICE_PRIV_FREE, ... */
};

/* See the drawing. */
struct twochoice_priv_log {
    uint32_t state;                     /* TWOCHOICE_PRIV_NONE, ... */
    uint32_t crc;                       /* of the last record */
    uint64_t id, records, ceiling;      /* records: appended, with the header; highest bound on stamps */
    uint64_t durable, changes, highest; /* of these; changes of the table; highest stamp to give out */
};

/* A leaf and a slot in it. */
struct twochoice_priv_at {
    struct twochoice_priv_node *leaf; /* NULL: none */
    uint32_t slot;
};

struct twochoice_table {
    struct twochoice_priv_node *node;
    struct twochoice_priv_write *write;
    uint32_t *stamped;                  /* chains of open writes, by stamp & stamps */
    struct twochoice_priv_ended *ended; /* by stamp / 128 % groups */
    struct twochoice_priv_pull *pull;
    struct twochoice_priv_extent *busy; /* root of the bytes that are written at home */
    struct twochoice_priv_range *row;   /* scratch: TWOCHOICE_PRIV_ROW entries */
    struct twochoice_priv_at at;        /* where the current change continues */
    struct twochoice_storage storage;
    bool has_storage;
    uint32_t root, height, node_count, nodes_used, free_node;
    uint32_t fresh_node, fresh_inner; /* never used: [fresh_node, fresh_inner) */
    uint32_t fragments, max_fragments, reserved_fragments, reserved_records, home;
    uint32_t writes_open, max_writes, free_write, pulls_open, max_pulls;
    uint32_t stamps;                 /* a power of two, less 1 */
    uint32_t groups;                 /* one more than 16 * max_writes stamps fill */
    uint64_t version, first_version; /* latest stamp given out; the last of earlier runs */
    uint64_t longest_bytes;          /* no redirect so far was longer */
    uint64_t changes, durable_changes;
    /* the log */
    struct twochoice_priv_log log[2];
    uint64_t max_records, last_id;
    uint64_t mark, unsynced_mark; /* times it was written; 0: synced */
    uint32_t active, mark_slot, mark_every, mark_commits;
    /* the compaction: all before the cursor is copied, then so many groups of ended stamps */
    struct twochoice_priv_range cursor;
    uint32_t cursor_ended;
    enum qos_status ended_by; /* why there is none */
};

struct twochoice_priv_source { /* a server that may hold bytes of the table */
    uint64_t since_ns;         /* last probe or answer; QOS_NEVER: none */
    bool idle;                 /* by its own answer */
};

struct twochoice_maintainer {
    struct twochoice_priv_source *source;
    struct qos_bucket bucket;
    uint64_t piece_bytes, idle_load, idle_ns;
    uint64_t quiet_since_ns;          /* QOS_NEVER: the home is busy */
    uint64_t object, offset;          /* the cursor of the round */
    uint64_t round_stamp, rounded_ns; /* newest stamp when it began; when the last ended */
    uint32_t servers;
    bool limited, looking; /* looking: a round is under way */
    bool again;            /* a pull began since the round did, or a server is idle: the next begins at once */
};

#ifndef QOS_DECLARE_ONLY

enum twochoice_priv_pull_state { TWOCHOICE_PRIV_FREE, TWOCHOICE_PRIV_COPYING, TWOCHOICE_PRIV_WRITING };
enum twochoice_priv_log_state {
    TWOCHOICE_PRIV_NONE,
    TWOCHOICE_PRIV_COPYING_LOG,
    TWOCHOICE_PRIV_COPIED,
    TWOCHOICE_PRIV_SWAPPING,
    TWOCHOICE_PRIV_DOUBTFUL,
    TWOCHOICE_PRIV_SOUND,
    TWOCHOICE_PRIV_TORN,
    TWOCHOICE_PRIV_LOST
};

QOS_PRIV uint64_t twochoice_priv_tag(uint64_t version, uint32_t target)
{
    return version << 16 | target;
}

QOS_PRIV uint32_t twochoice_priv_target(uint64_t tag)
{
    return (uint32_t)(tag & 0xffffu);
}

/* How many of n keys, `step` words apart, are at most the key? No branch. Unequal halves: gcc chains equal ones. */
QOS_PRIV uint32_t twochoice_priv_count(const uint64_t *objects, const uint64_t *offsets, uint32_t step, uint32_t n,
                                       uint64_t object, uint64_t offset)
{
    uint32_t count = 0, i;
    for (i = 0; i < n; i++) {
        const uint64_t o = objects[i * step], f = offsets[i * step];
#if QOS_HAS_INT128
        __extension__ typedef unsigned __int128 twochoice_priv_u128;
        count += ((twochoice_priv_u128)o << 64 | f) <= ((twochoice_priv_u128)object << 64 | offset);
#else
        count += (uint32_t)(o < object) | ((uint32_t)(o == object) & (uint32_t)(f <= offset));
#endif
    }
    return count;
}

/* How many of the leaf's fragments start at or before the key. */
QOS_PRIV uint32_t twochoice_priv_rank(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset)
{
    const struct twochoice_priv_range *w = leaf->u.wide.entry;
    const uint32_t *start = leaf->u.narrow.word, *lead = leaf->u.narrow.lead;
    uint32_t key, half, rank, i;
    if (!leaf->narrow) {
        half = 6 * twochoice_priv_count(&w[5].object, &w[5].offset, 24, 4, object, offset);
        return half + twochoice_priv_count(&w[half].object, &w[half].offset, 4, 6, object, offset);
    }
    if (leaf->object != object || offset < leaf->u.narrow.base)
        return leaf->object < object ? leaf->count : 0;
    if (QOS_UNLIKELY(offset - leaf->u.narrow.base >= UINT32_MAX)) /* where blank slots start, and no fragment */
        return leaf->count;
    key = (uint32_t)(offset - leaf->u.narrow.base);
    for (rank = i = 0; i < 5; i++)
        rank += 16u * (lead[i] <= key);
    start += rank;
    for (i = 0; i < 16; i++)
        rank += start[i] <= key;
    return rank;
}

/* The last child whose lower bound is at most the key; the first's always is. If a narrow node's objects have other
 * high bits they decide. */
QOS_PRIV uint32_t twochoice_priv_child(const struct twochoice_priv_node *inner, uint64_t object, uint64_t offset)
{
    const uint64_t *lead = inner->u.inner.lead, *o = inner->u.inner.object, *f = inner->u.inner.offset;
    uint32_t half, i;
    if (QOS_UNLIKELY(!inner->narrow || (inner->object ^ object) >> 16 != 0)) {
        half = 8 * twochoice_priv_count(o + 8, f + 8, 8, 5, object, offset);
        return half + twochoice_priv_count(o + half + 1, f + half + 1, 1, 7, object, offset);
    }
    offset = (object & 0xffffu) << 48 | qos_min(offset, TWOCHOICE_PRIV_PACKED);
    for (half = i = 0; i < 5; i++)
        half += 8u * (lead[i] <= offset);
    f += half;
    for (i = 1; i < 8; i++)
        half += f[i] <= offset;
    return half;
}

/* Of an inner node what twochoice_priv_child reads. */
TWOCHOICE_PRIV_INLINE void twochoice_priv_prefetch(const struct twochoice_priv_node *n, bool leaf)
{
    const char *line = (const char *)n;
    int i;
#pragma GCC unroll 16
    for (i = 0; i < 16; i++)
        if (leaf || i == 0 || i > 6)
            __builtin_prefetch(line + 64 * i);
}

/* Blank slots hold the largest key. */
QOS_PRIV void twochoice_priv_set_count(struct twochoice_priv_node *n, uint32_t level, uint32_t count)
{
    n->count = count;
    if (level > 0) {
        const size_t bytes = (TWOCHOICE_INNER_SLOTS - count) * sizeof(uint64_t);
        __builtin_memset(n->u.inner.object + count, 0xff, bytes);
        __builtin_memset(n->u.inner.offset + count, 0xff, bytes);
    } else if (n->narrow) {
        __builtin_memset(n->u.narrow.word + count, 0xff, (n->narrow - count) * sizeof n->u.narrow.word[0]);
    } else {
        __builtin_memset(n->u.wide.entry + count, 0xff, (TWOCHOICE_WIDE_SLOTS - count) * sizeof n->u.wide.entry[0]);
    }
}

/* Of a narrow node: makes offsets keys, or keys offsets. */
QOS_PRIV void twochoice_priv_pack(struct twochoice_priv_node *n)
{
    uint32_t i;
    for (i = 1; n->narrow && i < n->count; i++)
        n->u.inner.offset[i] ^= (n->u.inner.object[i] & 0xffffu) << 48;
}

/* After a change of keys: the form of an inner node, and leaders. */
QOS_PRIV void twochoice_priv_lead(struct twochoice_priv_node *n, uint32_t level)
{
    uint32_t i;
    if (level > 0) {
        n->object = n->u.inner.object[1];
        n->narrow = (n->u.inner.object[n->count - 1] ^ n->object) >> 16 == 0;
        for (i = 1; i < n->count; i++)
            n->narrow &= n->u.inner.offset[i] < TWOCHOICE_PRIV_PACKED;
        twochoice_priv_pack(n);
        for (i = 0; i < 5; i++)
            n->u.inner.lead[i] = n->u.inner.offset[8 * i + 8];
    } else if (n->narrow) {
        for (i = 0; i < 5; i++)
            n->u.narrow.lead[i] = 16 * i + 16 < n->narrow ? n->u.narrow.word[16 * i + 16] : UINT32_MAX;
    }
}

QOS_PRIV uint32_t twochoice_priv_new_node(struct twochoice_table *t, uint32_t level)
{
    uint32_t i = t->free_node;
    if (i != QOS_NONE)
        t->free_node = t->node[i].next;
    else
        i = level > 0 ? --t->fresh_inner : t->fresh_node++; /* inner nodes: on few pages */
    QOS_ASSERT(t->fresh_node <= t->fresh_inner);
    t->nodes_used++;
    t->node[i].narrow = 0;
    twochoice_priv_set_count(&t->node[i], level, 0);
    t->node[i].next = t->node[i].prev = QOS_NONE;
    return i;
}

QOS_PRIV void twochoice_priv_free_node(struct twochoice_table *t, uint32_t i)
{
    t->node[i].next = t->free_node;
    t->free_node = i;
    t->nodes_used--;
}

QOS_PRIV void twochoice_priv_leaf_shift(struct twochoice_priv_node *leaf, uint32_t to, uint32_t from)
{
    const size_t n = leaf->count - from;
    uint32_t *w = leaf->u.narrow.word, *const end = w + 2 * TWOCHOICE_EVEN_SLOTS;
    if (!leaf->narrow)
        __builtin_memmove(leaf->u.wide.entry + to, leaf->u.wide.entry + from, n * sizeof leaf->u.wide.entry[0]);
    else
        __builtin_memmove(leaf->u.narrow.target + to, leaf->u.narrow.target + from,
                          n * sizeof leaf->u.narrow.target[0]);
    for (; leaf->narrow && w < end; w += leaf->narrow)
        __builtin_memmove(w + to, w + from, n * sizeof *w);
}

QOS_PRIV void twochoice_priv_inner_shift(struct twochoice_priv_node *p, uint32_t to, uint32_t from)
{
    uint32_t n = p->count - from;
    __builtin_memmove(p->u.inner.object + to, p->u.inner.object + from, n * sizeof p->u.inner.object[0]);
    __builtin_memmove(p->u.inner.offset + to, p->u.inner.offset + from, n * sizeof p->u.inner.offset[0]);
    __builtin_memmove(p->u.inner.child + to, p->u.inner.child + from, n * sizeof p->u.inner.child[0]);
}

QOS_PRIV struct twochoice_priv_range twochoice_priv_get(const struct twochoice_priv_node *leaf, uint32_t slot)
{
    const uint32_t slots = leaf->narrow, *w = leaf->u.narrow.word + slot;
    struct twochoice_priv_range f;
    if (!slots)
        return leaf->u.wide.entry[slot];
    f.object = leaf->object;
    f.offset = leaf->u.narrow.base + w[0];
    f.end = f.offset + (slots == TWOCHOICE_EVEN_SLOTS ? leaf->u.narrow.len : w[2 * TWOCHOICE_NARROW_SLOTS]);
    f.tag = twochoice_priv_tag(leaf->u.narrow.version + w[slots], leaf->u.narrow.target[slot]);
    return f;
}

/* The fragment fits the leaf's form. */
QOS_PRIV void twochoice_priv_set(struct twochoice_priv_node *leaf, uint32_t slot, struct twochoice_priv_range f)
{
    uint32_t *w = leaf->u.narrow.word + slot;
    if (!leaf->narrow) {
        leaf->u.wide.entry[slot] = f;
        return;
    }
    w[0] = (uint32_t)(f.offset - leaf->u.narrow.base);
    w[leaf->narrow] = (uint32_t)((f.tag >> 16) - leaf->u.narrow.version);
    if (leaf->narrow == TWOCHOICE_NARROW_SLOTS)
        w[2 * TWOCHOICE_NARROW_SLOTS] = (uint32_t)(f.end - f.offset);
    leaf->u.narrow.target[slot] = (uint16_t)twochoice_priv_target(f.tag);
}

/* A node's entries; of an inner node, its children in `tag`. It is written next. */
QOS_PRIV void twochoice_priv_read_node(struct twochoice_priv_range *f, struct twochoice_priv_node *n, uint32_t level)
{
    uint32_t i;
    if (level > 0)
        twochoice_priv_pack(n);
    for (i = 0; level == 0 && i < n->count; i++)
        f[i] = twochoice_priv_get(n, i);
    for (; i < n->count; i++) {
        f[i].object = n->u.inner.object[i];
        f[i].offset = n->u.inner.offset[i];
        f[i].tag = n->u.inner.child[i];
    }
}

QOS_PRIV bool twochoice_priv_before(const struct twochoice_priv_range *a, const struct twochoice_priv_range *b)
{
    return a->object < b->object || (a->object == b->object && a->offset < b->offset);
}

/* How many of n entries one node can have, if not all with room for more, except in a narrow leaf; a leaf's form. */
QOS_PRIV_NOINLINE struct twochoice_priv_form twochoice_priv_fit(const struct twochoice_priv_range *e, uint32_t n,
                                                                uint32_t level)
{
    struct twochoice_priv_form is = {(uint32_t)qos_min(n, TWOCHOICE_INNER_SHARED), 0, 0};
    uint64_t least = UINT64_MAX, most = 0;
    uint32_t i, narrow = TWOCHOICE_EVEN_SLOTS;
    for (i = 0; level == 0 && i < n; i++) {
        least = qos_min(least, e[i].tag >> 16);
        most = qos_max(most, e[i].tag >> 16);
        if (narrow && e[i].end - e[i].offset != e->end - e->offset)
            narrow = TWOCHOICE_NARROW_SLOTS;
        if (e[i].object != e->object || e[i].end - e->offset > UINT32_MAX || most - least > UINT32_MAX)
            narrow = 0;
        if (i >= (narrow ? narrow : TWOCHOICE_WIDE_SLOTS))
            break;
        is.narrow = narrow;
        is.version = least;
        is.most = i + 1;
    }
    if (level == 0 && i < n && i <= TWOCHOICE_WIDE_SLOTS)
        is.most = TWOCHOICE_WIDE_SHARED;
    return is;
}

QOS_PRIV_NOINLINE void twochoice_priv_write_node(struct twochoice_priv_node *n, const struct twochoice_priv_range *f,
                                                 uint32_t level, struct twochoice_priv_form form)
{
    const uint32_t count = form.most;
    uint32_t i;
    if (level == 0) {
        n->object = f->object;
        n->narrow = form.narrow;
        if (n->narrow) {
            n->u.narrow.base = f->offset - qos_min(f->offset, (UINT32_MAX - (f[count - 1].end - f->offset)) / 2);
            n->u.narrow.version = form.version;
            n->u.narrow.len = (uint32_t)(f->end - f->offset);
        }
    }
    twochoice_priv_set_count(n, level, count);
    for (i = 0; level == 0 && i < count; i++)
        twochoice_priv_set(n, i, f[i]);
    for (; i < count; i++) {
        n->u.inner.object[i] = f[i].object;
        n->u.inner.offset[i] = f[i].offset;
        n->u.inner.child[i] = (uint32_t)f[i].tag;
    }
    twochoice_priv_lead(n, level);
}

/* A new child of p after child i. Only leaves are linked. */
QOS_PRIV_NOINLINE void twochoice_priv_add_child(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i,
                                                uint32_t level)
{
    const uint32_t fresh = twochoice_priv_new_node(t, level), left = p->u.inner.child[i];
    struct twochoice_priv_node *n = &t->node[fresh];
    if (level == 0) {
        n->prev = left;
        n->next = t->node[left].next;
        t->node[left].next = fresh;
        if (n->next != QOS_NONE)
            t->node[n->next].prev = fresh;
    }
    QOS_ASSERT(p->count < TWOCHOICE_INNER_SLOTS);
    twochoice_priv_inner_shift(p, i + 2, i + 1);
    p->u.inner.child[i + 1] = fresh;
    p->count++;
}

/* Removes child i of p; not the first. */
QOS_PRIV void twochoice_priv_drop_child(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i,
                                        uint32_t level)
{
    const uint32_t gone = p->u.inner.child[i], left = t->node[gone].prev, right = t->node[gone].next;
    if (level == 0)
        t->node[left].next = right;
    if (level == 0 && right != QOS_NONE)
        t->node[right].prev = left;
    twochoice_priv_free_node(t, gone);
    twochoice_priv_inner_shift(p, i, i + 1);
    twochoice_priv_set_count(p, level + 1, p->count - 1);
}

/* What the first node for n entries gets: as many as the others, or (pack) all it can; they get their least. */
QOS_PRIV struct twochoice_priv_form twochoice_priv_share(const struct twochoice_priv_range *e, uint32_t n,
                                                         uint32_t level, bool pack)
{
    const uint32_t least = level > 0 ? TWOCHOICE_INNER_LEAST + 1 : TWOCHOICE_LEAF_LEAST;
    struct twochoice_priv_form is = twochoice_priv_fit(e, n, level);
    uint32_t parts = (n - 1) / is.most + 1, gets = pack ? is.most : (n - 1) / parts + 1, rest = n - gets;
    if (rest > 0 && rest < least)
        gets = n - least;
    else if (rest < 2 * least && twochoice_priv_fit(e + gets, rest, level).most < rest)
        gets = n - 2 * least;
    if (gets < is.most || !is.narrow) /* maybe denser */
        is = twochoice_priv_fit(e, gets, level);
    is.most = gets;
    return is;
}

/* Shares the entries of child i of p anew; in a leaf f comes, or goes, before. If one node cannot hold them neighbours
 * take part until two have enough; if it has room the leaf before, or two inner nodes; in a tiny root who has few. */
QOS_PRIV_NOINLINE void twochoice_priv_regroup(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i,
                                              uint32_t level, const struct twochoice_priv_range *f, bool comes)
{
    const uint32_t least = level > 0 ? TWOCHOICE_INNER_LEAST + 1 : TWOCHOICE_LEAF_LEAST;
    struct twochoice_priv_node *n = &t->node[p->u.inner.child[i]];
    struct twochoice_priv_range *row = t->row;
    struct twochoice_priv_form gets;
    uint32_t total = n->count, first = i, had = 1, at, k = 0, shares = level > 0 ? 2 : 0;
    bool behind = level > 0;
    twochoice_priv_pack(p);
    twochoice_priv_read_node(row, n, level);
    if (level == 0) {
        at = twochoice_priv_rank(n, f->object, f->offset) - !comes;
        __builtin_memmove(row + at + comes, row + at + !comes, (total - at - !comes) * sizeof *row);
        total = comes ? total + 1 : total - 1;
        if (comes) {
            row[at] = *f;
            shares = i > 0 && t->node[p->u.inner.child[i - 1]].count <= TWOCHOICE_NARROW_SLOTS - 8;
            behind = at + 1 == total || row[at + 1].object != f->object;
        }
    }
    if (p->count == 2 && t->node[p->u.inner.child[!i]].count < least)
        shares = 1;
    while (had < p->count && (total < least || ((total < 2 * least || had == shares) &&
                                                twochoice_priv_fit(row, total, level).most < total))) {
        const bool before = first > 0;
        n = &t->node[p->u.inner.child[before ? first - 1 : first + had]];
        if (before)
            __builtin_memmove(row + n->count, row, total * sizeof *row);
        twochoice_priv_read_node(before ? row : row + total, n, level);
        total += n->count;
        first -= before;
        had++;
    }
    QOS_ASSERT(total <= TWOCHOICE_PRIV_ROW);
    for (at = 0; at < total; at += gets.most, k++) {
        gets = twochoice_priv_share(row + at, total - at, level, behind && had > 1);
        if (k >= had)
            twochoice_priv_add_child(t, p, first + k - 1, level);
        twochoice_priv_write_node(&t->node[p->u.inner.child[first + k]], row + at, level, gets);
        if (k > 0) {
            p->u.inner.object[first + k] = row[at].object;
            p->u.inner.offset[first + k] = row[at].offset;
        }
    }
    QOS_ASSERT(k + 1 >= had);
    if (k < had)
        twochoice_priv_drop_child(t, p, first + k, level);
    twochoice_priv_lead(p, level + 1);
}

/* f comes, or goes, which its leaf cannot do alone. Inner nodes get two places, or a child to spare. */
QOS_PRIV_NOINLINE void twochoice_priv_restructure(struct twochoice_table *t, const struct twochoice_priv_range *f,
                                                  bool comes)
{
    struct twochoice_priv_node *p = &t->node[t->root], *n;
    uint32_t level, i;
    if (comes && (t->height == 0 || p->count > TWOCHOICE_INNER_SLOTS - 2)) {
        i = twochoice_priv_new_node(t, ++t->height);
        p = &t->node[i];
        p->u.inner.object[0] = p->u.inner.offset[0] = 0;
        p->u.inner.child[0] = t->root;
        p->count = 1;
        t->root = i;
    }
    for (level = t->height; level > 1; level--) {
        i = twochoice_priv_child(p, f->object, f->offset);
        n = &t->node[p->u.inner.child[i]];
        if (comes ? n->count > TWOCHOICE_INNER_SLOTS - 2 : n->count <= TWOCHOICE_INNER_LEAST) {
            twochoice_priv_regroup(t, p, i, level - 1, NULL, false);
            n = &t->node[p->u.inner.child[twochoice_priv_child(p, f->object, f->offset)]];
        }
        p = n;
    }
    twochoice_priv_regroup(t, p, twochoice_priv_child(p, f->object, f->offset), 0, f, comes);
    while (t->height > 0 && t->node[t->root].count == 1) {
        i = t->root;
        t->root = t->node[i].u.inner.child[0];
        t->height--;
        twochoice_priv_free_node(t, i);
    }
}

/* Behind a leaf's last fragment is the next leaf's first. */
QOS_PRIV struct twochoice_priv_at twochoice_priv_settle(const struct twochoice_table *t, struct twochoice_priv_at at)
{
    if (at.slot == at.leaf->count) {
        at.leaf = at.leaf->next == QOS_NONE ? NULL : &t->node[at.leaf->next];
        at.slot = 0;
    }
    return at;
}

QOS_PRIV struct twochoice_priv_at twochoice_priv_after(const struct twochoice_table *t, struct twochoice_priv_at at)
{
    at.slot++;
    return twochoice_priv_settle(t, at);
}

/* After the last: one that overlaps nothing. */
QOS_PRIV struct twochoice_priv_range twochoice_priv_get_at(struct twochoice_priv_at at)
{
    const struct twochoice_priv_range none = {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0};
    return at.leaf ? twochoice_priv_get(at.leaf, at.slot) : none;
}

/* Where a fragment with this start belongs. */
TWOCHOICE_PRIV_INLINE struct twochoice_priv_at twochoice_priv_descend(const struct twochoice_table *t, uint64_t object,
                                                                      uint64_t offset)
{
    struct twochoice_priv_at at;
    uint32_t level;
    at.leaf = &t->node[t->root];
    for (level = t->height; level > 0; level--) {
        at.leaf = &t->node[at.leaf->u.inner.child[twochoice_priv_child(at.leaf, object, offset)]];
        twochoice_priv_prefetch(at.leaf, level == 1);
    }
    at.slot = twochoice_priv_rank(at.leaf, object, offset);
    return at;
}

/* The first fragment that ends after the byte, which belongs `at` there; maybe of another object. *f: it, or none. */
TWOCHOICE_PRIV_INLINE struct twochoice_priv_at twochoice_priv_around(const struct twochoice_table *t,
                                                                     struct twochoice_priv_at at, uint64_t object,
                                                                     uint64_t offset, struct twochoice_priv_range *f)
{
    struct twochoice_priv_at before;
    if (QOS_LIKELY(at.slot > 0)) { /* the last that starts at or before it */
        at.slot--;
        *f = twochoice_priv_get(at.leaf, at.slot);
        if (QOS_LIKELY(f->object == object && f->end > offset))
            return at;
        at.slot++;
    } else if (at.leaf->prev != QOS_NONE) {
        before.leaf = &t->node[at.leaf->prev];
        before.slot = before.leaf->count - 1;
        *f = twochoice_priv_get(before.leaf, before.slot);
        if (f->object == object && f->end > offset)
            return before;
    }
    at = twochoice_priv_settle(t, at);
    *f = twochoice_priv_get_at(at);
    return at;
}

TWOCHOICE_PRIV_INLINE struct twochoice_priv_at twochoice_priv_reach(const struct twochoice_table *t, uint64_t object,
                                                                    uint64_t offset, struct twochoice_priv_range *f)
{
    uint64_t key = qos_min(offset, UINT64_MAX - 1); /* blank slots start at UINT64_MAX */
    return twochoice_priv_around(t, twochoice_priv_descend(t, object, key), object, offset, f);
}

/* Is all of f at home? Then t->at is where it goes, otherwise the first that ends after its offset. */
QOS_PRIV_NOINLINE bool twochoice_priv_find_gap(struct twochoice_table *t, const struct twochoice_priv_range *f)
{
    const struct twochoice_priv_at place = twochoice_priv_descend(t, f->object, f->offset);
    struct twochoice_priv_range other;
    t->at = twochoice_priv_around(t, place, f->object, f->offset, &other);
    if (other.object == f->object && other.offset < f->end)
        return false;
    t->at = place;
    return true;
}

/* Adds f at t->at. false: the leaf cannot take it as it is. */
QOS_PRIV_NOINLINE bool twochoice_priv_insert(struct twochoice_table *t, const struct twochoice_priv_range *f)
{
    struct twochoice_priv_node *leaf = t->at.leaf;
    const uint64_t base = leaf->u.narrow.base, version = leaf->u.narrow.version;
    if (leaf->count >= (leaf->narrow ? leaf->narrow : TWOCHOICE_WIDE_SLOTS) ||
        (leaf->narrow && (leaf->object != f->object || f->offset < base || f->end - base > UINT32_MAX ||
                          f->tag >> 16 < version || (f->tag >> 16) - version > UINT32_MAX)) ||
        (leaf->narrow == TWOCHOICE_EVEN_SLOTS && f->end - f->offset != leaf->u.narrow.len))
        return false;
    if (t->at.slot < leaf->count)
        twochoice_priv_leaf_shift(leaf, t->at.slot + 1, t->at.slot);
    twochoice_priv_set(leaf, t->at.slot, *f);
    leaf->count++;
    twochoice_priv_lead(leaf, 0);
    return true;
}

QOS_PRIV void twochoice_priv_add(struct twochoice_table *t, const struct twochoice_priv_range *f)
{
    t->fragments++;
    if (!twochoice_priv_insert(t, f))
        twochoice_priv_restructure(t, f, true);
}

/* Removes what is at t->at. false: the leaf cannot spare it. */
QOS_PRIV_NOINLINE bool twochoice_priv_remove(struct twochoice_table *t)
{
    struct twochoice_priv_node *leaf = t->at.leaf;
    if (t->height > 0 && leaf->count <= TWOCHOICE_LEAF_LEAST)
        return false;
    twochoice_priv_leaf_shift(leaf, t->at.slot, t->at.slot + 1);
    twochoice_priv_set_count(leaf, 0, leaf->count - 1);
    twochoice_priv_lead(leaf, 0);
    t->fragments--;
    return true;
}

/* Gives bytes the tag of f; 0: they are at home. */
QOS_PRIV_NOINLINE void twochoice_priv_apply(struct twochoice_table *t, const struct twochoice_priv_range *f)
{
    struct twochoice_priv_range old;
    while (!twochoice_priv_find_gap(t, f)) {
        uint64_t end;
        old = twochoice_priv_get_at(t->at);
        if (!twochoice_priv_remove(t)) {
            twochoice_priv_restructure(t, &old, false);
            t->fragments--;
        }
        end = old.end;
        old.end = f->offset;
        if (old.offset < old.end && twochoice_priv_find_gap(t, &old))
            twochoice_priv_add(t, &old);
        old.end = end;
        old.offset = f->end;
        if (old.offset < old.end && twochoice_priv_find_gap(t, &old))
            twochoice_priv_add(t, &old);
    }
    if (f->tag != 0)
        twochoice_priv_add(t, f);
}

QOS_PRIV void twochoice_priv_clear(struct twochoice_table *t)
{
    t->free_node = QOS_NONE;
    t->fresh_node = 0;
    t->fresh_inner = t->node_count;
    t->nodes_used = 0;
    t->height = 0;
    t->fragments = 0;
    t->version = t->first_version = t->longest_bytes = 0;
    __builtin_memset(t->log, 0, sizeof t->log);
    t->active = 0;
    __builtin_memset(t->ended, 0, t->groups * sizeof *t->ended);
    t->root = twochoice_priv_new_node(t, 0);
}

QOS_API const char *twochoice_table_config_error(const struct twochoice_table_config *config)
{
    const struct twochoice_storage *s = config ? config->storage : NULL;
    const uint64_t fragments = config ? qos_default(config->max_fragments, TWOCHOICE_MAX_FRAGMENTS) : 0;
    if (!config)
        return "config: is NULL; give a struct twochoice_table_config";
    if (s && (!s->create || !s->read || !s->write || !s->sync || !s->swap))
        return "storage: give all of create, read, write, sync and swap, or NULL for no log";
    if (fragments > TWOCHOICE_FRAGMENTS_MAX)
        return "max_fragments: give 1..TWOCHOICE_FRAGMENTS_MAX, or 0 for TWOCHOICE_MAX_FRAGMENTS";
    if (config->max_writes > TWOCHOICE_OPEN_MAX)
        return "max_writes: give 1..TWOCHOICE_OPEN_MAX, or 0 for TWOCHOICE_MAX_WRITES";
    if (config->max_pulls > TWOCHOICE_OPEN_MAX)
        return "max_pulls: give 1..TWOCHOICE_OPEN_MAX, or 0 for TWOCHOICE_MAX_PULLS";
    if (config->home >= TWOCHOICE_SERVERS_MAX)
        return "home: give this server's id, 0..65534";
    if (config->max_log_bytes != 0 && config->max_log_bytes < 2 * TWOCHOICE_RECORD_BYTES * (fragments + 2))
        return "max_log_bytes: give at least 96 * (max_fragments + 2), or 0 for no limit";
    return NULL;
}

/* Sizes and pointers; mem is NULL: sizes only. */
QOS_PRIV void twochoice_priv_table_layout(struct qos_layout *layout, void *mem, struct twochoice_table *t,
                                          const struct twochoice_table_config *config)
{
    uint32_t leaves;
    qos_layout_begin(layout, mem);
    t->max_fragments = (uint32_t)qos_default(config->max_fragments, TWOCHOICE_MAX_FRAGMENTS);
    t->max_writes = (uint32_t)qos_default(config->max_writes, TWOCHOICE_MAX_WRITES);
    t->max_pulls = (uint32_t)qos_default(config->max_pulls, TWOCHOICE_MAX_PULLS);
    /* As few entries in each as may be; 3 for the root and two below, 1 for a root that comes as its leaf changes. */
    leaves = t->max_fragments / TWOCHOICE_LEAF_LEAST + 2;
    t->node_count = leaves + leaves / (TWOCHOICE_INNER_LEAST - 1) + 4;
    QOS_LAYOUT_SET(layout, t->node, t->node_count + (size_t)1);
    if (mem) /* a node is in one page */
        t->node = (struct twochoice_priv_node *)(((uintptr_t)t->node + TWOCHOICE_NODE_BYTES - 1) &
                                                 ~(uintptr_t)(TWOCHOICE_NODE_BYTES - 1));
    for (t->stamps = 1; t->stamps < t->max_writes; t->stamps *= 2)
        continue;
    t->groups = (t->max_writes + 7) / 8 + 1;
    QOS_LAYOUT_SET(layout, t->write, t->max_writes);
    QOS_LAYOUT_SET(layout, t->stamped, t->stamps);
    QOS_LAYOUT_SET(layout, t->ended, t->groups);
    QOS_LAYOUT_SET(layout, t->pull, t->max_pulls);
    QOS_LAYOUT_SET(layout, t->row, TWOCHOICE_PRIV_ROW);
    t->stamps--;
}

QOS_API size_t twochoice_table_memsize(const struct twochoice_table_config *config)
{
    struct twochoice_table scratch;
    struct qos_layout layout;
    if (twochoice_table_config_error(config))
        return 0;
    twochoice_priv_table_layout(&layout, NULL, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status twochoice_table_init(struct twochoice_table *table, void *mem, size_t size_bytes,
                                             const struct twochoice_table_config *config)
{
    struct twochoice_table t;
    struct qos_layout layout;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(table);
    if (twochoice_table_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    __builtin_memset(&t, 0, sizeof t);
    twochoice_priv_table_layout(&layout, NULL, &t, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    twochoice_priv_table_layout(&layout, mem, &t, config);
    t.has_storage = config->storage != NULL;
    if (config->storage)
        t.storage = *config->storage;
    t.max_records = qos_default(config->max_log_bytes, QOS_UNLIMITED) / TWOCHOICE_RECORD_BYTES;
    t.mark_every = (uint32_t)qos_default(config->mark_commits, TWOCHOICE_MARK_COMMITS);
    t.ended_by = QOS_EINVAL;
    t.home = config->home;
    t.free_write = QOS_NONE;
    for (i = 0; i <= t.stamps; i++)
        t.stamped[i] = QOS_NONE;
    for (i = t.max_writes; i > 0; i--) {
        t.write[i - 1].stamp = 0;
        t.write[i - 1].behind = t.free_write;
        t.free_write = i - 1;
    }
    for (i = 0; i < t.max_pulls; i++)
        t.pull[i].state = TWOCHOICE_PRIV_FREE;
    twochoice_priv_clear(&t);
    t.log[0].highest = t.has_storage ? 0 : TWOCHOICE_VERSION_MAX;
    *table = t;
    return QOS_OK;
}

/* -- the log -- */

enum {
    TWOCHOICE_PRIV_HEADER = 1,
    TWOCHOICE_PRIV_REDIRECT = 2,
    TWOCHOICE_PRIV_HOME = 3,
    TWOCHOICE_PRIV_CEILING = 4,
    TWOCHOICE_PRIV_END = 5,
    TWOCHOICE_PRIV_MARK = 6,
    TWOCHOICE_PRIV_ENDED = 7
};
#define TWOCHOICE_PRIV_MARKER 0x4332u /* "2C" */
#define TWOCHOICE_PRIV_CHUNK ((size_t)64 * TWOCHOICE_RECORD_BYTES)
#define TWOCHOICE_PRIV_STAMPS (UINT64_C(1) << 20) /* given out above the last durable ceiling, at most */
#define TWOCHOICE_PRIV_BITS 128u                  /* stamps in a group */
#define TWOCHOICE_PRIV_MARK_SLOT 512u

struct twochoice_priv_record {
    uint8_t format, type;
    uint32_t unsynced;
    uint64_t version;
    struct twochoice_priv_range f; /* its tag: 0 but for a redirect */
};

QOS_PRIV struct twochoice_priv_record twochoice_priv_record_of(uint8_t type, uint64_t version, uint64_t object,
                                                               uint64_t offset, uint64_t end)
{
    const struct twochoice_priv_record r = {TWOCHOICE_LOG_VERSION, type, 0, version, {object, offset, end, 0}};
    return r;
}

QOS_PRIV uint32_t twochoice_priv_encode(uint8_t *b, const struct twochoice_priv_record *r, uint32_t crc_before)
{
    b[4] = r->format;
    b[5] = r->type;
    qos_put_le16(b + 6, (uint16_t)twochoice_priv_target(r->f.tag));
    qos_put_le64(b + 8, r->f.object);
    qos_put_le64(b + 16, r->f.offset);
    qos_put_le64(b + 24, r->f.end);
    qos_put_le64(b + 32, r->version);
    qos_put_le32(b + 40, r->unsynced);
    qos_put_le16(b + 44, 0);
    qos_put_le16(b + 46, TWOCHOICE_PRIV_MARKER);
    qos_put_le32(b, qos_crc32c(crc_before, b + 4, TWOCHOICE_RECORD_BYTES - 4));
    return qos_get_le32(b);
}

QOS_PRIV bool twochoice_priv_intact(const uint8_t *b, uint32_t crc_before)
{
    return qos_get_le32(b) == qos_crc32c(crc_before, b + 4, TWOCHOICE_RECORD_BYTES - 4);
}

QOS_PRIV void twochoice_priv_decode(const uint8_t *b, struct twochoice_priv_record *r)
{
    r->format = b[4];
    r->type = b[5];
    r->f.object = qos_get_le64(b + 8);
    r->f.offset = qos_get_le64(b + 16);
    r->f.end = qos_get_le64(b + 24);
    r->version = qos_get_le64(b + 32);
    r->f.tag = r->type == TWOCHOICE_PRIV_REDIRECT
                   ? twochoice_priv_tag(r->version & TWOCHOICE_VERSION_MAX, qos_get_le16(b + 6))
                   : 0;
    r->unsynced = qos_get_le32(b + 40);
}

QOS_PRIV uint32_t twochoice_priv_other(const struct twochoice_table *t)
{
    return 1 - t->active;
}

/* A log failed, or has no room: see the drawing. */
QOS_PRIV void twochoice_priv_fail(struct twochoice_table *t, uint32_t log, enum qos_status why)
{
    struct twochoice_priv_log *l = &t->log[log];
    if (l->state >= TWOCHOICE_PRIV_SOUND) {
        l->state = TWOCHOICE_PRIV_LOST;
    } else if (l->state >= TWOCHOICE_PRIV_SWAPPING) {
        l->state = TWOCHOICE_PRIV_DOUBTFUL;
    } else if (l->state != TWOCHOICE_PRIV_NONE) {
        l->state = TWOCHOICE_PRIV_NONE;
        t->ended_by = why;
    }
}

/* May changes be acknowledged? */
QOS_PRIV bool twochoice_priv_counts(const struct twochoice_table *t)
{
    return t->log[t->active].state != TWOCHOICE_PRIV_LOST &&
           t->log[twochoice_priv_other(t)].state != TWOCHOICE_PRIV_DOUBTFUL;
}

/* May changes be recorded? QOS_EINVAL: no log yet. QOS_EIO: not before the next swap. */
QOS_PRIV enum qos_status twochoice_priv_records(const struct twochoice_table *t)
{
    const uint32_t state = t->log[t->active].state;
    if (!t->has_storage)
        return QOS_OK;
    if (state == TWOCHOICE_PRIV_NONE)
        return QOS_EINVAL;
    return state == TWOCHOICE_PRIV_SOUND && twochoice_priv_counts(t) ? QOS_OK : QOS_EIO;
}

/* After QOS_EIO the log does not have the record, but a crash may bring it back. */
QOS_PRIV enum qos_status twochoice_priv_append(struct twochoice_table *t, uint32_t log, struct twochoice_priv_record *r)
{
    uint8_t b[TWOCHOICE_RECORD_BYTES];
    struct twochoice_priv_log *l = &t->log[log];
    uint32_t crc;
    r->unsynced = (uint32_t)qos_min(l->records - l->durable, UINT32_MAX);
    crc = twochoice_priv_encode(b, r, l->crc);
    if (t->storage.write(t->storage.ctx, (int)log, l->records * TWOCHOICE_RECORD_BYTES, b, sizeof b) != 0) {
        if (l->state == TWOCHOICE_PRIV_SOUND)
            l->state = TWOCHOICE_PRIV_TORN;
        else
            twochoice_priv_fail(t, log, QOS_EIO);
        return QOS_EIO;
    }
    l->crc = crc;
    l->records++;
    if (r->type != TWOCHOICE_PRIV_REDIRECT && r->type != TWOCHOICE_PRIV_HOME)
        l->ceiling = qos_max(l->ceiling, r->version);
    return QOS_OK;
}

/* A new log with its header; not yet durable. */
QOS_PRIV enum qos_status twochoice_priv_begin_log(struct twochoice_table *t, uint32_t log, uint32_t state,
                                                  uint64_t ceiling)
{
    const bool copy = state == TWOCHOICE_PRIV_COPYING_LOG;
    struct twochoice_priv_log *l = &t->log[log];
    struct twochoice_priv_record r;
    __builtin_memset(l, 0, sizeof *l);
    l->id = t->last_id = qos_wrap_add(t->last_id, 1);
    if (t->storage.create(t->storage.ctx, (int)log) != 0)
        return QOS_EIO;
    l->state = state;
    r = twochoice_priv_record_of(TWOCHOICE_PRIV_HEADER, ceiling, t->home, l->id, copy);
    return twochoice_priv_append(t, log, &r);
}

/* How many fit besides the reserved ones; during a swap in both logs. */
QOS_PRIV uint64_t twochoice_priv_record_room(const struct twochoice_table *t)
{
    const struct twochoice_priv_log *next = &t->log[twochoice_priv_other(t)];
    uint64_t used = t->log[t->active].records;
    if (!t->has_storage)
        return UINT64_MAX;
    if (next->state >= TWOCHOICE_PRIV_SWAPPING)
        used = qos_max(used, next->records);
    return qos_sat_sub(t->max_records, used + t->reserved_records);
}

/* What the slot holds is unknown: the mark of the next log goes there. */
QOS_PRIV void twochoice_priv_mark_failed(struct twochoice_table *t)
{
    t->unsynced_mark = 0;
    twochoice_priv_fail(t, t->active, QOS_EIO);
}

/* Writes a mark (NULL: of the active log) into the slot that does not hold the latest. */
QOS_PRIV enum qos_status twochoice_priv_put_mark(struct twochoice_table *t, const struct twochoice_priv_record *mark)
{
    const struct twochoice_priv_log *l = &t->log[t->active];
    const struct twochoice_priv_record r =
        twochoice_priv_record_of(TWOCHOICE_PRIV_MARK, l->ceiling, t->home, l->id, l->durable);
    uint8_t b[TWOCHOICE_RECORD_BYTES];
    (void)twochoice_priv_encode(b, mark ? mark : &r, 0);
    t->mark_commits = 0;
    t->unsynced_mark = ++t->mark;
    if (t->storage.write(t->storage.ctx, TWOCHOICE_MARK_LOG, (uint64_t)t->mark_slot * TWOCHOICE_PRIV_MARK_SLOT, b,
                         sizeof b) == 0)
        return QOS_OK;
    twochoice_priv_mark_failed(t);
    return QOS_EIO;
}

/* The mark is durable: the next goes to the other slot. */
QOS_PRIV void twochoice_priv_mark_synced(struct twochoice_table *t, uint64_t mark)
{
    if (mark == 0 || mark != t->unsynced_mark)
        return;
    t->unsynced_mark = 0;
    t->mark_slot = 1 - t->mark_slot;
}

QOS_PRIV enum qos_status twochoice_priv_sync_mark(struct twochoice_table *t)
{
    if (t->storage.sync(t->storage.ctx, TWOCHOICE_MARK_LOG) != 0)
        return QOS_EIO;
    twochoice_priv_mark_synced(t, t->mark);
    return QOS_OK;
}

/* Zeros from here to the end of both slots: a mark that a crash cut in the first format ends before. */
QOS_PRIV_NOINLINE bool twochoice_priv_fill_mark(struct twochoice_table *t, size_t at)
{
    uint8_t zeros[TWOCHOICE_PRIV_MARK_SLOT];
    __builtin_memset(zeros, 0, sizeof zeros);
    while (at < 2 * sizeof zeros) {
        const size_t len = sizeof zeros - at % sizeof zeros;
        if (t->storage.write(t->storage.ctx, TWOCHOICE_MARK_LOG, at, zeros, len) != 0)
            return false;
        at += len;
    }
    return true;
}

/* Both slots, one with a mark. Durable on return. */
QOS_PRIV enum qos_status twochoice_priv_fresh_mark(struct twochoice_table *t)
{
    t->mark_slot = 0;
    if (t->storage.create(t->storage.ctx, TWOCHOICE_MARK_LOG) != 0 || !twochoice_priv_fill_mark(t, 0) ||
        twochoice_priv_put_mark(t, NULL) != QOS_OK)
        return QOS_EIO;
    return twochoice_priv_sync_mark(t);
}

/* Reads len bytes, or to the log's end. */
QOS_PRIV enum qos_status twochoice_priv_read(const struct twochoice_table *t, uint32_t log, uint64_t pos, uint8_t *buf,
                                             size_t len, size_t *got)
{
    size_t more = 1;
    for (*got = 0; *got < len && more != 0; *got += more) {
        more = 0;
        if (t->storage.read(t->storage.ctx, (int)log, pos + *got, buf + *got, len - *got, &more) != 0 ||
            more > len - *got)
            return QOS_EIO;
    }
    return QOS_OK;
}

/* The latest mark, beside the `there` records of log 0, and how many bytes both slots have. QOS_ENOENT: there was never
 * one. QOS_ECORRUPT: none fits. */
QOS_PRIV enum qos_status twochoice_priv_get_mark(struct twochoice_table *t, uint64_t there, uint64_t log_end,
                                                 struct twochoice_priv_record *mark, size_t *got)
{
    const uint64_t id = t->log[0].id;
    uint8_t b[2 * TWOCHOICE_PRIV_MARK_SLOT];
    size_t at;
    if (twochoice_priv_read(t, TWOCHOICE_MARK_LOG, 0, b, sizeof b, got) != QOS_OK)
        return QOS_EIO;
    for (at = 0; at + TWOCHOICE_RECORD_BYTES <= *got; at += TWOCHOICE_PRIV_MARK_SLOT) {
        struct twochoice_priv_record r;
        if (!twochoice_priv_intact(b + at, 0))
            continue;
        twochoice_priv_decode(b + at, &r);
        if (r.type != TWOCHOICE_PRIV_MARK || r.f.object != t->home || r.f.offset < mark->f.offset ||
            (r.f.offset == mark->f.offset && r.f.end < mark->f.end))
            continue;
        *mark = r;
        t->mark_slot = at == 0;
    }
    /* An unfinished format wrote at most a header, and nothing into the second slot. */
    if (mark->type != TWOCHOICE_PRIV_MARK && log_end <= TWOCHOICE_RECORD_BYTES &&
        (*got < sizeof b || b[sizeof b / 2 + TWOCHOICE_RECORD_BYTES - 1] == 0))
        return QOS_ENOENT;
    if (mark->type != TWOCHOICE_PRIV_MARK || there == 0 || mark->f.offset > id)
        return QOS_ECORRUPT;
    return mark->f.offset == id && there < mark->f.end ? QOS_ECORRUPT : QOS_OK;
}

/* Fragments that giving bytes this tag may add: 2 at most; for tag 0 1. */
QOS_PRIV uint32_t twochoice_priv_growth(const struct twochoice_table *t, const struct twochoice_priv_range *f)
{
    struct twochoice_priv_range old;
    struct twochoice_priv_at at = twochoice_priv_reach(t, f->object, f->offset, &old);
    uint32_t one = f->tag != 0;
    if (old.object == f->object && old.offset < f->offset) {
        if (old.end > f->end)
            return 1 + one;
        old = twochoice_priv_get_at(twochoice_priv_after(t, at));
    }
    return old.object == f->object && old.offset < f->end && old.end <= f->end ? 0 : one; /* 0: at least one goes */
}

/* A change during a compaction. What is after the cursor is copied later; a change that reaches over it moves it to its
 * end. The copies need a ceiling. An attempt that cannot keep up has failed. */
QOS_PRIV void twochoice_priv_follow(struct twochoice_table *t, struct twochoice_priv_record *r)
{
    const uint32_t next = twochoice_priv_other(t);
    const struct twochoice_priv_log *l = &t->log[next];
    if (l->state == TWOCHOICE_PRIV_NONE)
        return;
    if (l->state == TWOCHOICE_PRIV_COPYING_LOG && r->type != TWOCHOICE_PRIV_CEILING) {
        if (!twochoice_priv_before(&r->f, &t->cursor))
            return;
        if (r->f.object == t->cursor.object)
            t->cursor.offset = qos_max(t->cursor.offset, r->f.end);
    }
    if (l->records < t->max_records)
        (void)!twochoice_priv_append(t, next, r);
    else
        twochoice_priv_fail(t, next, QOS_EFULL);
}

/* One change: room and record, of what is reserved only w's (NULL: a pull's). The caller applies it: cannot fail. */
QOS_PRIV_NOINLINE enum qos_status twochoice_priv_change(struct twochoice_table *t, const struct twochoice_priv_range *f,
                                                        uint64_t version, struct twochoice_priv_write *w)
{
    const uint64_t spare = t->max_fragments - (uint64_t)t->fragments - t->reserved_fragments + (w ? w->fragments : 0u);
    struct twochoice_priv_record r;
    enum qos_status status = twochoice_priv_records(t);
    if (spare < 2 && spare < twochoice_priv_growth(t, f))
        return QOS_EFULL;
    if (status != QOS_OK)
        return status;
    if (!t->has_storage) {
        t->durable_changes = ++t->changes;
        return QOS_OK;
    }
    if (!(w && w->records) && twochoice_priv_record_room(t) == 0)
        return QOS_EFULL;
    r = twochoice_priv_record_of(f->tag ? TWOCHOICE_PRIV_REDIRECT : TWOCHOICE_PRIV_HOME, version, 0, 0, 0);
    r.f = *f;
    if (twochoice_priv_append(t, t->active, &r) != QOS_OK) {
        if (w)
            w->failed = t->log[t->active].id;
        return QOS_EIO;
    }
    t->changes++;
    twochoice_priv_follow(t, &r);
    return QOS_OK;
}

/* The group of 128 stamps; groups are used in turn. */
QOS_PRIV struct twochoice_priv_ended *twochoice_priv_group(const struct twochoice_table *t, uint64_t stamp)
{
    return &t->ended[stamp / TWOCHOICE_PRIV_BITS % t->groups];
}

QOS_PRIV void twochoice_priv_set_ended(struct twochoice_table *t, uint64_t base, uint64_t low, uint64_t high)
{
    struct twochoice_priv_ended *e = twochoice_priv_group(t, base);
    if (base < e->base) /* from so long ago that its group is used again */
        return;
    if (base > e->base)
        e->bits[0] = e->bits[1] = 0;
    e->base = base;
    e->bits[0] |= low;
    e->bits[1] |= high;
}

QOS_PRIV void twochoice_priv_note_ended(struct twochoice_table *t, uint64_t stamp)
{
    const uint64_t bit = UINT64_C(1) << stamp % 64;
    const bool high = stamp % TWOCHOICE_PRIV_BITS >= 64;
    twochoice_priv_set_ended(t, stamp - stamp % TWOCHOICE_PRIV_BITS, high ? 0 : bit, high ? bit : 0);
}

/* A write that is not open: QOS_OK: it has ended. QOS_ENOENT: it never will. QOS_ESTALE: not known. */
QOS_PRIV enum qos_status twochoice_priv_outcome(const struct twochoice_table *t, uint64_t stamp)
{
    const struct twochoice_priv_ended *e = twochoice_priv_group(t, stamp);
    if (stamp == 0 || stamp > t->version)
        return QOS_ENOENT;
    if (e->base != stamp - stamp % TWOCHOICE_PRIV_BITS)
        return QOS_ESTALE;
    if ((e->bits[stamp % TWOCHOICE_PRIV_BITS / 64] >> stamp % 64 & 1) != 0)
        return QOS_OK;
    return stamp > t->first_version ? QOS_ENOENT : QOS_ESTALE;
}

/* QOS_EAGAIN: all stamps up to the durable bound were given out. QOS_EFULL: all of all time, or no room to raise it. */
QOS_PRIV enum qos_status twochoice_priv_stamp(struct twochoice_table *t, uint64_t *stamp)
{
    const struct twochoice_priv_log *next = &t->log[twochoice_priv_other(t)];
    struct twochoice_priv_log *l = &t->log[t->active];
    bool room = true;
    uint64_t highest = l->highest;
    if (t->has_storage && t->version + TWOCHOICE_PRIV_STAMPS / 2 > l->ceiling && l->ceiling < TWOCHOICE_VERSION_MAX) {
        const uint64_t ceiling = qos_min(t->version + TWOCHOICE_PRIV_STAMPS, TWOCHOICE_VERSION_MAX);
        struct twochoice_priv_record r = twochoice_priv_record_of(TWOCHOICE_PRIV_CEILING, ceiling, 0, 0, 0);
        room = twochoice_priv_record_room(t) > 1; /* one is for the write that begins */
        if (room && twochoice_priv_append(t, t->active, &r) == QOS_OK)
            twochoice_priv_follow(t, &r);
    }
    if (t->has_storage && next->state == TWOCHOICE_PRIV_SWAPPING)
        highest = qos_min(highest, next->highest);
    if (t->version >= highest)
        return room && t->version < TWOCHOICE_VERSION_MAX ? QOS_EAGAIN : QOS_EFULL;
    *stamp = ++t->version;
    twochoice_priv_set_ended(t, *stamp - *stamp % TWOCHOICE_PRIV_BITS, 0, 0);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_commit_begin(struct twochoice_table *table, struct twochoice_commit *commit)
{
    uint32_t log;
    QOS_ASSERT(table && commit);
    __builtin_memset(commit, 0, sizeof *commit);
    commit->changes = table->changes;
    if (!table->has_storage)
        return QOS_OK;
    if (table->log[table->active].state == TWOCHOICE_PRIV_NONE)
        return QOS_EINVAL;
    for (log = 0; log < 2; log++) {
        const struct twochoice_priv_log *l = &table->log[log];
        if (l->state < TWOCHOICE_PRIV_COPIED || l->state == TWOCHOICE_PRIV_DOUBTFUL || l->state == TWOCHOICE_PRIV_LOST)
            continue;
        commit->log[log].id = l->id;
        commit->log[log].records = l->records;
        commit->log[log].ceiling = l->ceiling;
        if (l->durable < l->records || l->changes < commit->changes)
            commit->logs |= 1u << log;
    }
    commit->mark = table->unsynced_mark;
    if (commit->mark != 0)
        commit->logs |= 1u << TWOCHOICE_MARK_LOG;
    return commit->log[0].records + commit->log[1].records != 0 ? QOS_OK : QOS_EIO;
}

QOS_API enum qos_status twochoice_table_commit_end(struct twochoice_table *table, const struct twochoice_commit *commit,
                                                   bool synced)
{
    struct twochoice_priv_log *active, *next;
    uint32_t log;
    QOS_ASSERT(table && commit);
    if (!table->has_storage)
        return QOS_OK;
    active = &table->log[table->active];
    next = &table->log[twochoice_priv_other(table)];
    for (log = 0; log < 2; log++) { /* it counts for the logs that it synced */
        struct twochoice_priv_log *l = &table->log[log];
        const bool same = commit->log[log].records != 0 && commit->log[log].id == l->id;
        if (l->state == TWOCHOICE_PRIV_NONE)
            continue;
        if (!synced && (same || (commit->logs >> log & 1u) != 0)) { /* a late sync met what is there now */
            twochoice_priv_fail(table, log, QOS_EIO);
        } else if (synced && same && l->state != TWOCHOICE_PRIV_DOUBTFUL && l->state != TWOCHOICE_PRIV_LOST) {
            l->durable = qos_max(l->durable, commit->log[log].records);
            l->highest = qos_max(l->highest, commit->log[log].ceiling);
            l->changes = qos_max(l->changes, commit->changes);
        }
    }
    if (!synced && (commit->logs >> TWOCHOICE_MARK_LOG & 1u) != 0 && table->unsynced_mark != 0)
        twochoice_priv_mark_failed(table);
    if (!synced)
        return QOS_EIO;
    twochoice_priv_mark_synced(table, commit->mark);
    if (twochoice_priv_counts(table))
        table->durable_changes =
            qos_max(table->durable_changes,
                    next->state == TWOCHOICE_PRIV_SWAPPING ? qos_min(active->changes, next->changes) : active->changes);
    if (commit->logs != 0 && ++table->mark_commits >= table->mark_every && table->unsynced_mark == 0 &&
        twochoice_priv_counts(table))
        (void)!twochoice_priv_put_mark(table, NULL);
    if (table->durable_changes >= commit->changes)
        return QOS_OK;
    return twochoice_priv_counts(table) ? QOS_EAGAIN : QOS_EIO;
}

QOS_API enum qos_status twochoice_table_commit(struct twochoice_table *table)
{
    struct twochoice_commit commit;
    enum qos_status status = twochoice_table_commit_begin(table, &commit);
    bool synced = true;
    int log;
    if (status != QOS_OK)
        return status;
    for (log = 0; log <= TWOCHOICE_MARK_LOG; log++)
        if ((commit.logs & 1u << log) != 0)
            synced = synced && table->storage.sync(table->storage.ctx, log) == 0;
    return twochoice_table_commit_end(table, &commit, synced);
}

/* -- recovery -- */

/* A power cut leaves zeros from some byte on, or in whole sectors. */
QOS_PRIV bool twochoice_priv_looks_torn(const uint8_t *record, uint64_t pos)
{
    size_t to_sector = (size_t)(512 - pos % 512), i;
    if (record[TWOCHOICE_RECORD_BYTES - 1] == 0)
        return true;
    if (to_sector >= TWOCHOICE_RECORD_BYTES)
        return false;
    for (i = 0; i < to_sector; i++)
        if (record[i] != 0)
            return false;
    return true;
}

/* The record at `bad` does not fit. QOS_OK: a crash cut it short, not acknowledged; else it is damaged. It was durable
 * if a whole record after it says so (whose CRC does not fit, either). *end: where the log ends. */
QOS_PRIV_NOINLINE enum qos_status twochoice_priv_judge(struct twochoice_table *t, uint64_t bad, uint64_t *end)
{
    uint8_t record[TWOCHOICE_RECORD_BYTES];
    uint64_t pos = bad;
    size_t have = 0;
    uint32_t before = 0; /* the CRC of the record before, if that is intact */
    bool damaged = false;
    for (;; pos += TWOCHOICE_RECORD_BYTES) {
        struct twochoice_priv_record later;
        if (twochoice_priv_read(t, t->active, pos, record, sizeof record, &have) != QOS_OK)
            return QOS_EIO;
        if (have < sizeof record)
            break;
        if (twochoice_priv_looks_torn(record, pos))
            continue;
        twochoice_priv_decode(record, &later);
        if (pos != bad && twochoice_priv_intact(record, before) && later.version <= TWOCHOICE_VERSION_MAX)
            t->log[t->active].ceiling = qos_max(t->log[t->active].ceiling, later.version);
        before = qos_get_le32(record);
        if (pos == bad || (pos - bad) / TWOCHOICE_RECORD_BYTES > later.unsynced)
            damaged = true;
    }
    *end = pos + have;
    return damaged ? QOS_ECORRUPT : QOS_OK;
}

QOS_PRIV enum qos_status twochoice_priv_check_record(const struct twochoice_table *t,
                                                     const struct twochoice_priv_record *r, bool first)
{
    const uint64_t ceiling = t->log[t->active].ceiling;
    bool redirect = r->type == TWOCHOICE_PRIV_REDIRECT;
    if (r->format != TWOCHOICE_LOG_VERSION && r->format != 2) /* 2: the same, without the type ENDED */
        return r->format == 0 ? QOS_ECORRUPT : QOS_EVERSION;
    if (first != (r->type == TWOCHOICE_PRIV_HEADER) || r->version > TWOCHOICE_VERSION_MAX)
        return QOS_ECORRUPT;
    if (first)
        return r->f.object != t->home ? QOS_EINVAL : r->f.end > 1 ? QOS_ECORRUPT : QOS_OK;
    if (r->type == TWOCHOICE_PRIV_CEILING || r->type == TWOCHOICE_PRIV_END)
        return r->version >= ceiling ? QOS_OK : QOS_ECORRUPT;
    if (r->type == TWOCHOICE_PRIV_ENDED)
        return r->version % TWOCHOICE_PRIV_BITS == 0 && r->version <= ceiling ? QOS_OK : QOS_ECORRUPT;
    if ((!redirect && r->type != TWOCHOICE_PRIV_HOME) || r->f.offset >= r->f.end || r->version > ceiling ||
        (redirect && (r->version == 0 || twochoice_priv_target(r->f.tag) >= TWOCHOICE_SERVERS_MAX ||
                      twochoice_priv_target(r->f.tag) == t->home)))
        return QOS_ECORRUPT;
    return t->max_fragments - t->fragments < twochoice_priv_growth(t, &r->f) ? QOS_EFULL : QOS_OK;
}

/* *log_end: where the log's bytes end. QOS_ECORRUPT also for a compacted log without its end. */
QOS_PRIV enum qos_status twochoice_priv_replay(struct twochoice_table *t, struct twochoice_recovery *r,
                                               uint64_t *log_end)
{
    struct twochoice_priv_log *l = &t->log[t->active];
    uint8_t buf[TWOCHOICE_PRIV_CHUNK];
    enum qos_status status = QOS_OK;
    size_t got = 0;
    uint32_t crc = 0;
    bool needs_end = false;
    for (;; r->valid_bytes += TWOCHOICE_RECORD_BYTES) {
        const size_t at = (size_t)(r->valid_bytes % sizeof buf);
        struct twochoice_priv_record d;
        if (at == 0)
            status = twochoice_priv_read(t, t->active, r->valid_bytes, buf, sizeof buf, &got);
        if (status != QOS_OK)
            break;
        *log_end = r->valid_bytes + qos_min(got - at, TWOCHOICE_RECORD_BYTES);
        if (at + TWOCHOICE_RECORD_BYTES > got)
            break;
        if (!twochoice_priv_intact(buf + at, crc)) {
            status = twochoice_priv_judge(t, r->valid_bytes, log_end);
            break;
        }
        crc = qos_get_le32(buf + at);
        twochoice_priv_decode(buf + at, &d);
        status = twochoice_priv_check_record(t, &d, r->valid_bytes == 0);
        if (status != QOS_OK)
            break;
        if (r->valid_bytes == 0) {
            l->id = d.f.offset;
            needs_end = d.f.end != 0;
            if (d.format != TWOCHOICE_LOG_VERSION) /* its fragments may be parts of longer pieces */
                t->longest_bytes = UINT64_MAX;
        } else {
            r->records++;
        }
        if (d.type == TWOCHOICE_PRIV_END) {
            needs_end = false;
            t->longest_bytes = qos_max(t->longest_bytes, d.f.end);
        }
        if (d.type == TWOCHOICE_PRIV_ENDED) {
            twochoice_priv_set_ended(t, d.version, d.f.offset, d.f.end);
        } else if (d.type == TWOCHOICE_PRIV_REDIRECT || d.type == TWOCHOICE_PRIV_HOME) {
            twochoice_priv_apply(t, &d.f);
            twochoice_priv_note_ended(t, d.version);
            if (d.type == TWOCHOICE_PRIV_REDIRECT)
                t->longest_bytes = qos_max(t->longest_bytes, d.f.end - d.f.offset);
        } else {
            l->ceiling = qos_max(l->ceiling, d.version);
        }
    }
    if (needs_end)
        t->longest_bytes = UINT64_MAX; /* what is there may be parts of longer pieces */
    return status == QOS_OK && needs_end ? QOS_ECORRUPT : status;
}

QOS_API enum qos_status twochoice_table_format(struct twochoice_table *table)
{
    struct twochoice_priv_log *l = &table->log[0];
    QOS_ASSERT(table);
    if (!table->has_storage)
        return QOS_EINVAL;
    if (table->log[table->active].state != TWOCHOICE_PRIV_NONE)
        return QOS_EBUSY;
    twochoice_priv_clear(table);
    table->last_id = 0;
    if (table->storage.create(table->storage.ctx, TWOCHOICE_MARK_LOG) == 0 &&
        table->storage.sync(table->storage.ctx, TWOCHOICE_MARK_LOG) == 0 &&
        twochoice_priv_begin_log(table, 0, TWOCHOICE_PRIV_SOUND, TWOCHOICE_PRIV_STAMPS) == QOS_OK &&
        table->storage.sync(table->storage.ctx, 0) == 0) {
        l->durable = l->records;
        l->highest = l->ceiling;
        if (twochoice_priv_fresh_mark(table) == QOS_OK)
            return QOS_OK;
    }
    l->state = TWOCHOICE_PRIV_NONE;
    return QOS_EIO;
}

/* A new log says the same as log 0. After damage, what raised the bound on stamps may be missing: a mark is at most two
 * rounds of commits old: 2^21. */
QOS_PRIV enum qos_status twochoice_priv_resume(struct twochoice_table *t, const struct twochoice_priv_record *mark,
                                               size_t mark_bytes, bool damaged)
{
    const uint64_t window = (uint64_t)t->groups * TWOCHOICE_PRIV_BITS;
    struct twochoice_priv_log *l = &t->log[0];
    const bool marked = mark->type == TWOCHOICE_PRIV_MARK;
    uint64_t latest = 0, gap = UINT64_C(1) << 40;
    enum qos_status status;
    uint32_t i;
    if (marked)
        gap = qos_min((2 * qos_max(t->mark_every, 1024) + 2) * TWOCHOICE_PRIV_STAMPS, gap);
    QOS_ASSERT(window > 0);
    l->ceiling = qos_min(qos_max(l->ceiling, mark->version) + (damaged ? gap : 0), TWOCHOICE_VERSION_MAX);
    for (i = 0; i < t->groups; i++)
        latest = qos_max(latest, t->ended[i].base);
    /* The groups go on where they are: the oldest are used first. */
    t->version = qos_min(latest + (l->ceiling - latest + window - 1) / window * window, TWOCHOICE_VERSION_MAX);
    t->version = qos_min(t->version | (TWOCHOICE_PRIV_BITS - 1), TWOCHOICE_VERSION_MAX);
    t->first_version = l->ceiling = t->version;
    t->last_id = qos_max(l->id, mark->f.offset);
    l->state = TWOCHOICE_PRIV_LOST; /* it may not have been synced, nor its mark */
    if (marked) {                   /* the latest slot again: the other one was synced before */
        t->mark_slot = 1 - t->mark_slot;
        status = twochoice_priv_fill_mark(t, mark_bytes) ? twochoice_priv_put_mark(t, mark) : QOS_EIO;
        if (status == QOS_OK)
            status = twochoice_priv_sync_mark(t);
    } else {
        status = twochoice_priv_fresh_mark(t);
    }
    if (status == QOS_OK)
        status = twochoice_table_compact(t);
    return status == QOS_OK ? twochoice_priv_records(t) : status; /* the new log's first mark may have failed */
}

QOS_API enum qos_status twochoice_table_recover(struct twochoice_table *table, uint32_t flags,
                                                struct twochoice_recovery *recovery)
{
    struct twochoice_recovery mine = {0, 0, 0}, *r = recovery ? recovery : &mine;
    struct twochoice_priv_record mark = twochoice_priv_record_of(0, 0, 0, 0, 0);
    uint64_t log_end = 0;
    size_t mark_bytes = 0;
    enum qos_status status;
    bool damaged;
    QOS_ASSERT(table);
    __builtin_memset(r, 0, sizeof *r);
    if (!table->has_storage || (flags & ~TWOCHOICE_ACCEPT_PREFIX) != 0)
        return QOS_EINVAL;
    if (table->log[table->active].state != TWOCHOICE_PRIV_NONE)
        return QOS_EBUSY;
    twochoice_priv_clear(table);
    status = twochoice_priv_replay(table, r, &log_end);
    r->dropped_bytes = log_end - r->valid_bytes;
    if (status == QOS_OK || status == QOS_ECORRUPT) {
        const uint64_t there = r->valid_bytes / TWOCHOICE_RECORD_BYTES;
        const enum qos_status marked = twochoice_priv_get_mark(table, there, log_end, &mark, &mark_bytes);
        if (marked != QOS_OK && (status == QOS_OK || marked != QOS_ENOENT))
            status = marked;
    }
    damaged = status == QOS_ECORRUPT;
    if (damaged && flags == TWOCHOICE_ACCEPT_PREFIX && r->valid_bytes != 0)
        status = QOS_OK;
    if (status == QOS_OK)
        status = twochoice_priv_resume(table, &mark, mark_bytes, damaged);
    if (status != QOS_OK)
        twochoice_priv_clear(table);
    return status;
}

/* -- writes -- */

QOS_PRIV bool twochoice_priv_overlap(const struct twochoice_priv_range *a, const struct twochoice_priv_range *b)
{
    return a->object == b->object && a->offset < b->end && b->offset < a->end;
}

/* A treap by (object, offset); hashes of addresses are priorities. */
QOS_PRIV bool twochoice_priv_above(const struct twochoice_priv_extent *a, const struct twochoice_priv_extent *b)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    return qos_wrap_mul((uintptr_t)a, odd) > qos_wrap_mul((uintptr_t)b, odd);
}

/* Where x is, or belongs. */
QOS_PRIV struct twochoice_priv_extent **twochoice_priv_place(struct twochoice_table *t,
                                                             const struct twochoice_priv_extent *x)
{
    struct twochoice_priv_extent **at = &t->busy;
    while (*at && *at != x && twochoice_priv_above(*at, x))
        at = twochoice_priv_before(&x->f, &(*at)->f) ? &(*at)->before : &(*at)->after;
    return at;
}

QOS_PRIV void twochoice_priv_begin_at_home(struct twochoice_table *t, struct twochoice_priv_extent *x)
{
    struct twochoice_priv_extent **at = twochoice_priv_place(t, x), *rest = *at, **before = &x->before,
                                 **after = &x->after;
    for (*at = x; rest;) { /* what was here is divided */
        const bool first = twochoice_priv_before(&rest->f, &x->f);
        *(first ? before : after) = rest;
        *(first ? &before : &after) = first ? &rest->after : &rest->before;
        rest = first ? rest->after : rest->before;
    }
    *before = *after = NULL;
}

QOS_PRIV void twochoice_priv_end_at_home(struct twochoice_table *t, const struct twochoice_priv_extent *x)
{
    struct twochoice_priv_extent **at = twochoice_priv_place(t, x), *a = x->before, *b = x->after;
    while (a && b) {
        const bool first = twochoice_priv_above(a, b);
        *at = first ? a : b;
        at = first ? &a->after : &b->before;
        *(first ? &a : &b) = *at;
    }
    *at = a ? a : b;
}

/* Does a write or a pull write there? Only the last that starts before f's end can. */
QOS_PRIV bool twochoice_priv_busy(const struct twochoice_table *t, const struct twochoice_priv_range *f)
{
    const struct twochoice_priv_range end = {f->object, f->end, f->end, 0};
    const struct twochoice_priv_extent *last = NULL, *at = t->busy;
    while (at) {
        const bool before = twochoice_priv_before(&at->f, &end);
        last = before ? at : last;
        at = before ? at->after : at->before;
    }
    return last && twochoice_priv_overlap(f, &last->f);
}

QOS_PRIV struct twochoice_priv_write *twochoice_priv_write_of(const struct twochoice_table *t, uint64_t stamp)
{
    uint32_t at = t->stamped[stamp & t->stamps];
    while (at != QOS_NONE && t->write[at].stamp != stamp)
        at = t->write[at].behind;
    return at != QOS_NONE ? &t->write[at] : NULL;
}

QOS_PRIV void twochoice_priv_close_write(struct twochoice_table *t, struct twochoice_priv_write *w)
{
    const uint32_t slot = (uint32_t)(w - t->write);
    uint32_t *at = &t->stamped[w->stamp & t->stamps];
    if (w->at.f.tag == 0)
        twochoice_priv_end_at_home(t, &w->at);
    while (*at != slot)
        at = &t->write[*at].behind;
    *at = w->behind;
    w->stamp = 0;
    w->behind = t->free_write;
    t->free_write = slot;
    t->writes_open--;
    t->reserved_fragments -= w->fragments;
    t->reserved_records -= w->records;
}

QOS_PRIV enum qos_status twochoice_priv_check_target(const struct twochoice_table *t, uint32_t target)
{
    if (target == t->home)
        return QOS_EINVAL;
    return target < TWOCHOICE_SERVERS_MAX || target >= TWOCHOICE_UNBOUND ? QOS_OK : QOS_ERANGE;
}

QOS_API enum qos_status twochoice_table_write_begin(struct twochoice_table *table, uint64_t object, uint32_t target,
                                                    uint64_t offset, uint64_t len_bytes, uint64_t *stamp)
{
    const bool local = target == TWOCHOICE_LOCAL;
    struct twochoice_priv_range f = {object, offset, 0, 0}, old;
    struct twochoice_priv_write *w;
    enum qos_status status;
    uint32_t slot;
    bool records, room;
    QOS_ASSERT(table && stamp);
    status = twochoice_priv_check_target(table, target);
    if (status == QOS_OK && (len_bytes == 0 || !qos_checked_add(offset, len_bytes, &f.end)))
        status = QOS_ERANGE;
    if (status == QOS_OK)
        status = twochoice_priv_records(table);
    if (status != QOS_OK)
        return status;
    if (table->writes_open == table->max_writes)
        return QOS_EFULL;
    records = twochoice_priv_record_room(table) != 0;
    room = records && table->max_fragments - (uint64_t)table->fragments - table->reserved_fragments >= 2u - local;
    if (local && twochoice_priv_busy(table, &f))
        return QOS_EAGAIN;
    if (!room) { /* at home it needs none if it replaces or splits nothing */
        (void)twochoice_priv_reach(table, object, offset, &old);
        if (!local || (twochoice_priv_overlap(&f, &old) && !(records && twochoice_priv_growth(table, &f) == 0)))
            return QOS_EFULL;
    }
    status = twochoice_priv_stamp(table, stamp);
    if (status != QOS_OK)
        return status;
    slot = table->free_write;
    w = &table->write[slot];
    table->free_write = w->behind;
    w->at.f = f;
    w->at.f.tag = local ? 0 : twochoice_priv_tag(*stamp, (uint32_t)qos_min(target, TWOCHOICE_PRIV_NO_TARGET));
    w->stamp = *stamp;
    w->behind = table->stamped[*stamp & table->stamps];
    table->stamped[*stamp & table->stamps] = slot;
    w->fragments = (uint8_t)(room ? 2 - local : 0);
    w->records = records;
    w->failed = 0;
    table->reserved_fragments += w->fragments;
    table->reserved_records += w->records;
    if (local)
        twochoice_priv_begin_at_home(table, &w->at);
    table->writes_open++;
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_write_bind(struct twochoice_table *table, uint64_t stamp, uint32_t target)
{
    struct twochoice_priv_write *w = twochoice_priv_write_of(table, stamp);
    enum qos_status status = twochoice_priv_check_target(table, target);
    uint32_t now;
    QOS_ASSERT(table);
    if (status != QOS_OK || target == TWOCHOICE_UNBOUND)
        return status != QOS_OK ? status : QOS_ERANGE;
    if (!w)
        return QOS_ENOENT;
    now = w->at.f.tag ? twochoice_priv_target(w->at.f.tag) : TWOCHOICE_LOCAL;
    if (now != TWOCHOICE_PRIV_NO_TARGET)
        return now == target ? QOS_OK : QOS_EBUSY;
    if (target != TWOCHOICE_LOCAL) {
        w->at.f.tag = twochoice_priv_tag(stamp, target);
        return QOS_OK;
    }
    if (twochoice_priv_busy(table, &w->at.f))
        return QOS_EAGAIN;
    w->at.f.tag = 0;
    w->fragments--; /* at home one is enough */
    table->reserved_fragments--;
    twochoice_priv_begin_at_home(table, &w->at);
    return QOS_OK;
}

QOS_PRIV void twochoice_priv_piece(struct twochoice_piece *p, uint64_t object, uint64_t offset, uint64_t end,
                                   uint64_t tag)
{
    const uint32_t in = twochoice_priv_target(tag);
    const uint32_t target = !tag ? TWOCHOICE_LOCAL : in == TWOCHOICE_PRIV_NO_TARGET ? TWOCHOICE_UNBOUND : in;
    const struct twochoice_piece piece = {object, offset, end, tag >> 16, target};
    *p = piece;
}

/* The redirected pieces in f, from t->at on, or those of this tag. false: more than max. */
QOS_PRIV bool twochoice_priv_redirected(const struct twochoice_table *t, const struct twochoice_priv_range *f,
                                        uint64_t tag, struct twochoice_piece *pieces, size_t max, size_t *n)
{
    struct twochoice_priv_at at = t->at;
    for (*n = 0;; at = twochoice_priv_after(t, at)) {
        struct twochoice_priv_range old = twochoice_priv_get_at(at);
        if (old.object != f->object || old.offset >= f->end)
            return true;
        if (tag != 0 && old.tag != tag)
            continue;
        if (*n == max)
            return false;
        twochoice_priv_piece(&pieces[(*n)++], old.object, qos_max(old.offset, f->offset), qos_min(old.end, f->end),
                             old.tag);
    }
}

QOS_API enum qos_status twochoice_table_write_end(struct twochoice_table *table, uint64_t stamp,
                                                  struct twochoice_piece *replaced, size_t max, size_t *n)
{
    struct twochoice_priv_write *w = twochoice_priv_write_of(table, stamp);
    const struct twochoice_priv_range *f;
    enum qos_status status = QOS_OK;
    bool gap;
    QOS_ASSERT(table && replaced && n);
    *n = 0;
    if (!w)
        return twochoice_priv_outcome(table, stamp);
    f = &w->at.f;
    if (max == 0 || (f->tag != 0 && twochoice_priv_target(f->tag) == TWOCHOICE_PRIV_NO_TARGET))
        return QOS_EINVAL;
    gap = twochoice_priv_find_gap(table, f);
    if (!gap && !twochoice_priv_redirected(table, f, 0, replaced, max, n))
        return QOS_EAGAIN;
    if (f->tag != 0 || *n != 0)
        status = twochoice_priv_change(table, f, stamp, w);
    if (status != QOS_OK) {
        *n = 0;
        return status;
    }
    if (f->tag != 0)
        table->longest_bytes = qos_max(table->longest_bytes, f->end - f->offset);
    if (!gap)
        twochoice_priv_apply(table, f);
    else if (f->tag != 0)
        twochoice_priv_add(table, f);
    twochoice_priv_note_ended(table, stamp);
    twochoice_priv_close_write(table, w);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_write_cancel(struct twochoice_table *table, uint64_t stamp)
{
    struct twochoice_priv_write *w = twochoice_priv_write_of(table, stamp);
    if (!w)
        return QOS_ENOENT;
    if (w->failed != 0 && w->failed == table->log[table->active].id)
        return QOS_EIO; /* a crash may bring its record back */
    twochoice_priv_close_write(table, w);
    return QOS_OK;
}

QOS_API bool twochoice_table_write_next(const struct twochoice_table *table, uint64_t stamp,
                                        struct twochoice_piece *piece)
{
    const struct twochoice_priv_write *found = NULL;
    uint32_t i;
    for (i = 0; i < table->max_writes; i++) {
        const struct twochoice_priv_write *w = &table->write[i];
        if (w->stamp > stamp && (!found || w->stamp < found->stamp))
            found = w;
    }
    if (!found)
        return false;
    twochoice_priv_piece(piece, found->at.f.object, found->at.f.offset, found->at.f.end, found->at.f.tag);
    piece->version = found->stamp;
    return true;
}

/* -- reads -- */

/* Up to `end`. f: the first fragment that ends after `offset`. */
QOS_PRIV void twochoice_priv_piece_at(const struct twochoice_priv_range *f, uint64_t object, uint64_t offset,
                                      uint64_t end, struct twochoice_piece *p)
{
    if (f->object != object)
        twochoice_priv_piece(p, object, offset, end, 0);
    else if (f->offset > offset)
        twochoice_priv_piece(p, object, offset, qos_min(f->offset, end), 0);
    else
        twochoice_priv_piece(p, object, offset, qos_min(f->end, end), f->tag);
}

QOS_API void twochoice_table_find(const struct twochoice_table *table, uint64_t object, uint64_t offset,
                                  struct twochoice_piece *piece)
{
    struct twochoice_priv_range f;
    (void)twochoice_priv_reach(table, object, offset, &f);
    twochoice_priv_piece_at(&f, object, offset, UINT64_MAX, piece);
}

QOS_API size_t twochoice_table_query(const struct twochoice_table *table, uint64_t object, uint64_t offset,
                                     uint64_t len_bytes, struct twochoice_piece *pieces, size_t max)
{
    struct twochoice_priv_range f;
    struct twochoice_priv_at at;
    const uint64_t end = qos_sat_add(offset, len_bytes);
    size_t n = 0;
    if (offset >= end || max == 0)
        return 0;
    at = twochoice_priv_reach(table, object, offset, &f);
    for (;;) {
        twochoice_priv_piece_at(&f, object, offset, end, &pieces[n]);
        offset = pieces[n++].end;
        if (offset == end || n == max)
            return n;
        if (f.end > offset) /* f was the gap before it */
            continue;
        at = twochoice_priv_after(table, at);
        f = twochoice_priv_get_at(at);
    }
}

QOS_API bool twochoice_table_next(const struct twochoice_table *table, uint64_t object, uint64_t offset,
                                  struct twochoice_piece *piece)
{
    struct twochoice_priv_range f;
    if (!twochoice_priv_reach(table, object, offset, &f).leaf)
        return false;
    twochoice_priv_piece(piece, f.object, f.object == object ? qos_max(f.offset, offset) : f.offset, f.end, f.tag);
    return true;
}

QOS_API bool twochoice_table_refers(const struct twochoice_table *table, uint64_t object, uint64_t stamp,
                                    uint64_t offset, uint64_t len_bytes)
{
    /* Nothing that the piece has is farther away. */
    const uint64_t end = qos_sat_add(qos_sat_add(offset, len_bytes), table->longest_bytes);
    struct twochoice_priv_range f;
    struct twochoice_priv_at at = twochoice_priv_reach(table, object, qos_sat_sub(offset, table->longest_bytes), &f);
    if (stamp > table->version || twochoice_priv_write_of(table, stamp))
        return true;
    while (f.object == object && f.offset < end) {
        if (f.tag >> 16 == stamp)
            return true;
        at = twochoice_priv_after(table, at);
        f = twochoice_priv_get_at(at);
    }
    return false;
}

/* -- pulls -- */

QOS_PRIV struct twochoice_priv_pull *twochoice_priv_pull_of(struct twochoice_table *t, uint32_t pull)
{
    return pull < t->max_pulls && t->pull[pull].state != TWOCHOICE_PRIV_FREE ? &t->pull[pull] : NULL;
}

QOS_PRIV void twochoice_priv_close_pull(struct twochoice_table *t, struct twochoice_priv_pull *p)
{
    if (p->state == TWOCHOICE_PRIV_WRITING)
        twochoice_priv_end_at_home(t, &p->at);
    p->state = TWOCHOICE_PRIV_FREE;
    t->pulls_open--;
}

QOS_API enum qos_status twochoice_table_pull_start(struct twochoice_table *table, uint64_t object, uint64_t offset,
                                                   uint64_t max_bytes, uint32_t *pull, struct twochoice_piece *piece)
{
    struct twochoice_priv_range f = {object, offset, 0, 0};
    struct twochoice_priv_pull *p = NULL, *other;
    QOS_ASSERT(table && pull && piece);
    if (max_bytes == 0)
        return QOS_EINVAL;
    twochoice_table_find(table, object, offset, piece);
    if (piece->target == TWOCHOICE_LOCAL)
        return QOS_ENOENT;
    f.end = qos_min(piece->end, qos_sat_add(offset, max_bytes));
    for (other = table->pull; other < table->pull + table->max_pulls; other++)
        if (other->state == TWOCHOICE_PRIV_FREE) {
            p = p ? p : other;
        } else if (twochoice_priv_overlap(&f, &other->at.f)) {
            if (other->at.f.offset <= offset)
                return QOS_EBUSY;
            f.end = other->at.f.offset; /* up to the first of them */
        }
    if (!p)
        return QOS_EFULL;
    p->at.f = f;
    p->tag = twochoice_priv_tag(piece->version, piece->target);
    p->state = TWOCHOICE_PRIV_COPYING;
    table->pulls_open++;
    piece->end = f.end;
    *pull = (uint32_t)(p - table->pull);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_pull_ready(struct twochoice_table *table, uint32_t pull,
                                                   struct twochoice_piece *pieces, size_t max, size_t *n)
{
    struct twochoice_priv_pull *p = twochoice_priv_pull_of(table, pull);
    QOS_ASSERT(table && pieces && n);
    *n = 0;
    if (!p || p->state != TWOCHOICE_PRIV_COPYING)
        return QOS_ENOENT;
    if (max == 0)
        return QOS_EINVAL;
    if (twochoice_priv_busy(table, &p->at.f))
        return QOS_EAGAIN;
    if (!twochoice_priv_find_gap(table, &p->at.f))
        (void)twochoice_priv_redirected(table, &p->at.f, p->tag, pieces, max, n);
    if (*n != 0)
        p->at.f.end = pieces[*n - 1].end;
    p->state = TWOCHOICE_PRIV_WRITING;
    twochoice_priv_begin_at_home(table, &p->at);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_pull_finish(struct twochoice_table *table, uint32_t pull,
                                                    struct twochoice_piece *replaced, size_t max, size_t *n)
{
    struct twochoice_priv_pull *p = twochoice_priv_pull_of(table, pull);
    uint64_t end;
    size_t i;
    QOS_ASSERT(table && replaced && n);
    *n = 0;
    if (!p || p->state == TWOCHOICE_PRIV_COPYING)
        return QOS_ENOENT;
    if (max == 0)
        return QOS_EINVAL;
    if (!twochoice_priv_find_gap(table, &p->at.f) &&
        !twochoice_priv_redirected(table, &p->at.f, p->tag, replaced, max, n))
        return QOS_EAGAIN;
    end = p->at.f.end;
    for (i = 0; i < *n; i++) {
        enum qos_status status;
        p->at.f.offset = replaced[i].offset; /* its place among the others is the same */
        p->at.f.end = replaced[i].end;
        status = twochoice_priv_change(table, &p->at.f, p->tag >> 16, NULL);
        if (status != QOS_OK) {
            p->at.f.end = end;
            *n = i;
            return status;
        }
        twochoice_priv_apply(table, &p->at.f);
    }
    twochoice_priv_close_pull(table, p);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_pull_cancel(struct twochoice_table *table, uint32_t pull)
{
    struct twochoice_priv_pull *p = twochoice_priv_pull_of(table, pull);
    if (!p)
        return QOS_ENOENT;
    if (p->state != TWOCHOICE_PRIV_COPYING) {
        p->tag = UINT64_MAX; /* of no byte */
        return QOS_EBUSY;
    }
    twochoice_priv_close_pull(table, p);
    return QOS_OK;
}

/* -- compaction -- */

QOS_API enum qos_status twochoice_table_compact_start(struct twochoice_table *table)
{
    const uint32_t next = twochoice_priv_other(table);
    const uint64_t ceiling = qos_max(table->log[table->active].ceiling, table->version);
    QOS_ASSERT(table);
    if (!table->has_storage || table->log[table->active].state == TWOCHOICE_PRIV_NONE)
        return QOS_EINVAL;
    if (table->log[next].state != TWOCHOICE_PRIV_NONE)
        return QOS_EBUSY;
    table->cursor.object = table->cursor.offset = 0;
    table->cursor_ended = 0;
    return twochoice_priv_begin_log(table, next, TWOCHOICE_PRIV_COPYING_LOG, ceiling);
}

/* The next record of the copy: a fragment; then groups of ended stamps, the latest first, in half of what the fragments
 * leave of half of the log, as more would soon fill it; at last the end. */
QOS_PRIV struct twochoice_priv_record twochoice_priv_next_copy(struct twochoice_table *t)
{
    const uint64_t ceiling = qos_max(t->log[t->active].ceiling, t->version + TWOCHOICE_PRIV_STAMPS);
    const struct twochoice_priv_log *l = &t->log[twochoice_priv_other(t)];
    struct twochoice_priv_record r;
    struct twochoice_piece p;
    if (twochoice_table_next(t, t->cursor.object, t->cursor.offset, &p)) {
        r = twochoice_priv_record_of(TWOCHOICE_PRIV_REDIRECT, p.version, p.object, p.offset, p.end);
        r.f.tag = twochoice_priv_tag(p.version, p.target);
        t->cursor.object = p.object;
        t->cursor.offset = p.end;
        return r;
    }
    t->cursor.object = t->cursor.offset = UINT64_MAX; /* from now on all changes go to both logs */
    while (t->cursor_ended < t->groups && 2 * (l->records + 1) < t->max_records / 2 + t->fragments) {
        const struct twochoice_priv_ended *e =
            twochoice_priv_group(t, t->version + TWOCHOICE_PRIV_BITS * (uint64_t)(t->groups - t->cursor_ended));
        t->cursor_ended++;
        if ((e->bits[0] | e->bits[1]) != 0)
            return twochoice_priv_record_of(TWOCHOICE_PRIV_ENDED, e->base, 0, e->bits[0], e->bits[1]);
    }
    return twochoice_priv_record_of(TWOCHOICE_PRIV_END, qos_min(ceiling, TWOCHOICE_VERSION_MAX), 0, 0,
                                    t->longest_bytes);
}

QOS_API enum qos_status twochoice_table_compact_step(struct twochoice_table *table, uint32_t max_records,
                                                     enum twochoice_compact_todo *todo)
{
    const uint32_t next = twochoice_priv_other(table);
    struct twochoice_priv_log *l = &table->log[next];
    uint32_t i;
    QOS_ASSERT(table && todo);
    *todo = TWOCHOICE_COMPACT_STEP;
    for (i = 0; i < max_records && l->state == TWOCHOICE_PRIV_COPYING_LOG; i++) {
        struct twochoice_priv_record r = twochoice_priv_next_copy(table);
        const bool end = r.type == TWOCHOICE_PRIV_END;
        /* After it there must be room for the end and each open write. */
        if (l->records + 2 + !end + table->reserved_records > table->max_records)
            twochoice_priv_fail(table, next, QOS_EFULL);
        else if (twochoice_priv_append(table, next, &r) == QOS_OK && end)
            l->state = TWOCHOICE_PRIV_COPIED;
    }
    if (l->state == TWOCHOICE_PRIV_COPIED) {
        *todo = TWOCHOICE_COMPACT_COMMIT;
        if (l->durable == 0 || l->changes < table->durable_changes)
            return QOS_OK;
        if (l->records + table->reserved_records + 1 > table->max_records)
            twochoice_priv_fail(table, next, QOS_EFULL);
        else
            l->state = TWOCHOICE_PRIV_SWAPPING;
    }
    if (l->state == TWOCHOICE_PRIV_SWAPPING || l->state == TWOCHOICE_PRIV_DOUBTFUL)
        *todo = TWOCHOICE_COMPACT_SWAP;
    return l->state == TWOCHOICE_PRIV_NONE ? table->ended_by : QOS_OK;
}

QOS_API enum qos_status twochoice_table_compact_end(struct twochoice_table *table, bool swapped)
{
    const uint32_t next = twochoice_priv_other(table);
    struct twochoice_priv_log *l = &table->log[next], *old = &table->log[table->active];
    QOS_ASSERT(table);
    if (l->state != TWOCHOICE_PRIV_SWAPPING && l->state != TWOCHOICE_PRIV_DOUBTFUL)
        return QOS_EINVAL;
    table->ended_by = QOS_EINVAL;
    if (!swapped) {
        l->state = TWOCHOICE_PRIV_NONE;
        return QOS_EIO;
    }
    old->state = TWOCHOICE_PRIV_NONE;
    l->state = l->state == TWOCHOICE_PRIV_SWAPPING ? TWOCHOICE_PRIV_SOUND : TWOCHOICE_PRIV_LOST;
    table->active = next;
    table->durable_changes = qos_max(table->durable_changes, l->changes);
    (void)!twochoice_priv_put_mark(table, NULL);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_compact(struct twochoice_table *table)
{
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    enum qos_status status = twochoice_table_compact_start(table);
    if (status == QOS_OK)
        status = twochoice_table_compact_step(table, UINT32_MAX, &todo);
    if (status == QOS_OK && todo != TWOCHOICE_COMPACT_SWAP) {
        (void)!twochoice_table_commit(table); /* QOS_EIO if the active log is lost: then the swap acknowledges */
        status = twochoice_table_compact_step(table, UINT32_MAX, &todo);
    }
    if (status == QOS_OK && todo != TWOCHOICE_COMPACT_SWAP) {
        status = QOS_EIO;
        twochoice_priv_fail(table, twochoice_priv_other(table), status);
    }
    if (status != QOS_OK)
        return status;
    return twochoice_table_compact_end(table,
                                       table->storage.swap(table->storage.ctx, (int)twochoice_priv_other(table)) == 0);
}

QOS_API enum qos_status twochoice_table_info(const struct twochoice_table *table, struct twochoice_table_state *out)
{
    out->fragments = table->fragments;
    out->max_fragments = table->max_fragments;
    out->nodes_used = table->nodes_used;
    out->nodes = table->node_count;
    out->writes_open = table->writes_open;
    out->pulls_open = table->pulls_open;
    out->stamp = table->version;
    out->changes = table->changes;
    out->durable_changes = table->durable_changes;
    out->log_bytes = table->log[table->active].records * TWOCHOICE_RECORD_BYTES;
    out->max_log_bytes = qos_sat_mul(table->max_records, TWOCHOICE_RECORD_BYTES);
    out->next_log = twochoice_priv_other(table);
    out->compacting = table->log[out->next_log].state != TWOCHOICE_PRIV_NONE;
    out->log_broken = twochoice_priv_records(table) == QOS_EIO;
    return QOS_OK;
}

/* -- the maintainer -- */

QOS_API const char *twochoice_maintainer_config_error(const struct twochoice_maintainer_config *config)
{
    if (!config)
        return "config: is NULL; give a struct twochoice_maintainer_config";
    if (config->servers == 0 || config->servers > TWOCHOICE_SERVERS_MAX)
        return "servers: give 1..TWOCHOICE_SERVERS_MAX";
    if (config->rate_bytes_per_s > QOS_RATE_MAX && config->rate_bytes_per_s != QOS_UNLIMITED)
        return "rate_bytes_per_s: give 1..QOS_RATE_MAX, 0 for 64 MiB/s, or QOS_UNLIMITED";
    if (config->piece_bytes > QOS_TOKENS_MAX)
        return "piece_bytes: give 1..QOS_TOKENS_MAX, or 0 for 1 MiB";
    return NULL;
}

QOS_PRIV void twochoice_priv_maintainer_layout(struct qos_layout *layout, void *mem, struct twochoice_maintainer *m,
                                               const struct twochoice_maintainer_config *config)
{
    qos_layout_begin(layout, mem);
    QOS_LAYOUT_SET(layout, m->source, config->servers);
}

QOS_API size_t twochoice_maintainer_memsize(const struct twochoice_maintainer_config *config)
{
    struct twochoice_maintainer scratch;
    struct qos_layout layout;
    if (twochoice_maintainer_config_error(config))
        return 0;
    twochoice_priv_maintainer_layout(&layout, NULL, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status twochoice_maintainer_init(struct twochoice_maintainer *maintainer, void *mem, size_t size_bytes,
                                                  const struct twochoice_maintainer_config *config)
{
    struct twochoice_maintainer m;
    struct qos_layout layout;
    enum qos_status status;
    uint64_t rate;
    uint32_t i;
    QOS_ASSERT(maintainer);
    if (twochoice_maintainer_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    __builtin_memset(&m, 0, sizeof m);
    twochoice_priv_maintainer_layout(&layout, NULL, &m, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    rate = qos_default(config->rate_bytes_per_s, UINT64_C(64) << 20);
    twochoice_priv_maintainer_layout(&layout, mem, &m, config);
    for (i = 0; i < config->servers; i++) {
        m.source[i].since_ns = QOS_NEVER;
        m.source[i].idle = false;
    }
    m.servers = config->servers;
    m.limited = rate != QOS_UNLIMITED;
    m.piece_bytes = qos_default(config->piece_bytes, UINT64_C(1) << 20);
    m.idle_load = config->idle_load;
    m.idle_ns = qos_default(config->idle_ns, UINT64_C(100000000));
    m.quiet_since_ns = QOS_NEVER;
    m.again = true;
    *maintainer = m;
    return qos_bucket_init(&maintainer->bucket, 0, m.limited ? rate : 0, m.piece_bytes);
}

/* Has span_ns passed? A time as far ahead is of a clock that jumped: long past. */
QOS_PRIV bool twochoice_priv_passed(uint64_t since_ns, uint64_t now_ns, uint64_t span_ns)
{
    return (since_ns > now_ns ? since_ns - now_ns : now_ns - since_ns) >= span_ns;
}

QOS_API void twochoice_maintainer_remote_load(struct twochoice_maintainer *maintainer, uint64_t now_ns, uint32_t target,
                                              uint64_t load)
{
    if (target >= maintainer->servers || maintainer->source[target].since_ns == QOS_NEVER) /* it was not asked */
        return;
    maintainer->source[target].since_ns = now_ns;
    maintainer->source[target].idle = load <= maintainer->idle_load;
    maintainer->again = maintainer->again || maintainer->source[target].idle;
}

/* Pulls the piece, asks for its server's load, or waits for the rate. QOS_EBUSY: not now. */
QOS_PRIV enum qos_status twochoice_priv_visit(struct twochoice_maintainer *m, uint64_t now_ns,
                                              struct twochoice_table *t, const struct twochoice_piece *piece,
                                              struct twochoice_order *order)
{
    struct twochoice_priv_source *s = &m->source[piece->target];
    const uint64_t len = qos_min(piece->end - piece->offset, m->piece_bytes);
    enum qos_status status;
    if (twochoice_priv_passed(s->since_ns, now_ns, m->idle_ns)) { /* not known, or not any more */
        s->since_ns = now_ns;
        s->idle = false; /* until it answers */
        order->todo = TWOCHOICE_ASK_LOAD;
        order->piece = *piece;
        return QOS_OK;
    }
    if (!s->idle)
        return QOS_EBUSY;
    if (m->limited) {
        order->next_ns = qos_bucket_next_ns(&m->bucket, now_ns, len);
        if (order->next_ns > now_ns)
            return QOS_OK;
    }
    status = twochoice_table_pull_start(t, piece->object, piece->offset, len, &order->pull, &order->piece);
    if (status != QOS_OK)
        return status;
    if (m->limited)
        (void)!qos_bucket_take(&m->bucket, now_ns, order->piece.end - order->piece.offset);
    m->offset = order->piece.end;
    m->again = true;
    order->todo = TWOCHOICE_COPY;
    return QOS_OK;
}

QOS_API enum qos_status twochoice_maintainer_step(struct twochoice_maintainer *maintainer, uint64_t now_ns,
                                                  struct twochoice_table *table, uint64_t local_load,
                                                  struct twochoice_order *order)
{
    struct twochoice_maintainer *m = maintainer;
    struct twochoice_priv_range f;
    struct twochoice_priv_at at;
    struct twochoice_piece piece;
    uint32_t i;
    QOS_ASSERT(maintainer && table && order);
    order->todo = TWOCHOICE_WAIT;
    if (local_load > m->idle_load) {
        m->quiet_since_ns = QOS_NEVER;
        order->next_ns = qos_sat_add(now_ns, m->idle_ns);
        return QOS_OK;
    }
    if (m->quiet_since_ns == QOS_NEVER || m->quiet_since_ns > now_ns)
        m->quiet_since_ns = now_ns;
    order->next_ns = qos_sat_add(m->quiet_since_ns, m->idle_ns);
    if (now_ns - m->quiet_since_ns < m->idle_ns)
        return QOS_OK;
    order->next_ns = QOS_NEVER;
    if (table->pulls_open == table->max_pulls || table->fragments == 0) /* until one ends; until there is a redirect */
        return QOS_OK;
    if (!m->looking) {
        order->next_ns = qos_sat_add(m->rounded_ns, m->idle_ns);
        if (!m->again && m->round_stamp == table->version && !twochoice_priv_passed(m->rounded_ns, now_ns, m->idle_ns))
            return QOS_OK;
        m->looking = true;
        m->again = false;
        m->object = m->offset = 0;
        m->round_stamp = table->version;
    }
    order->next_ns = now_ns; /* there is more to look at */
    at = twochoice_priv_reach(table, m->object, m->offset, &f);
    for (i = 0; at.leaf && i < TWOCHOICE_PRIV_LOOKS; i++, at = twochoice_priv_after(table, at)) {
        f = twochoice_priv_get(at.leaf, at.slot);
        if (f.object == m->object) /* a part of it may be pulled already */
            f.offset = qos_max(f.offset, m->offset);
        twochoice_priv_piece(&piece, f.object, f.offset, f.end, f.tag);
        m->object = f.object;
        m->offset = f.offset;
        if (piece.target < m->servers && twochoice_priv_visit(m, now_ns, table, &piece, order) == QOS_OK)
            return QOS_OK;
        m->offset = f.end;
    }
    if (!at.leaf) {
        m->looking = false;
        m->rounded_ns = now_ns;
    }
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: placement ================================================================================
 *
 * Informed late binding: which servers get the k writes of a request.
 *
 *   The client reserves at 2k servers. Each answers when a write would begin there, behind what is reserved, and how
 *   long it takes. A server that is nearly idle asks for a write. Then the client sorts by the end: this ask, and every
 *   other place that it holds.
 *
 *      asks now      |=====|                      end of this write
 *      B answered    ......|==|                   earlier: better than the ask
 *      C answered    ..............|==|           later
 *
 *   If as many places are better as writes are left, the ask is declined, otherwise a write goes there. A bound that
 *   has passed counts as late as it is overdue: one that hangs is not waited for, and the client reserves again where
 *   it declined. A place not heard of counts with what the server took last, or what is typical; an ask that only such
 *   ones would beat waits for a quarter of its service time.
 *
 *   A write is overdue if it takes 3/2 of its bound and two round trips; longer, if writes usually do: their mean part
 *   of the bound, and twice their mean error. It is sent to another server, too, once in 8 writes at most, and three
 *   times at first; after timeout_ns always; never at its own home, where bytes are overwritten in place. Where fewer
 *   than 2k are up, a reservation is for ceil(2k / up) writes. If these are too few, as servers refuse, the rest waits
 *   for the end of one that was asked for, by a server that is up. Servers are drawn in proportion to the rate heard
 *   last.
 *
 *   Cold: nobody knows a bound. The first write that ends gives it to the others: what it took, with a round trip. A
 *   server whose rate is not known, or not believed, gets a write whose home it is last, as that could not be sent
 *   again; for one that is sent again it counts as slow.
 *
 *   If all have answered, and fewer places than writes are left end within twice what a write usually takes from its
 *   request's begin, the client reserves once more, at 2 servers a write; and again for each that is sent again.
 *
 *   A server that is always declined would never be seen to recover. So 1 request in 128 believes no slow server whose
 *   times are older than 8 writes of it. Servers that become slow are known after two slow writes.
 *
 *   States of a reservation:
 *
 *       PLANNED --RESERVE--> WAITS --ANSWER--> KNOWN --ASK--> ASKS --write--> KNOWN, or UNUSED after the last one
 *          ^                   |'---------ASK-----|------------^ |
 *          |                   '-- no answer, or --'-> REFUSED   | RELEASE
 *          '------- the better places were late ------ DECLINED <'
 *
 *   When the last write is bound, what is left is released: UNUSED.
 *
 * INVARIANTS
 *
 *   1. Of each request `unbound` writes are UNBOUND and `open` are not DONE. id is 0 if and only if open is 0 and no
 *      reservation is left.
 *   2. A message changes the reservation of its turn, which no other ever had, and nothing else.
 *   3. The own clock never goes back; one call moves it by TWOCHOICE_TIME_MAX at most, and all together by no more than
 *      the caller's passed, but where that was set.
 *
 * REFERENCES
 *
 *   D. Dai, Y. Chen, D. Kimpe, R. Ross: Two-Choice Randomized Dynamic I/O Scheduler for Object Storage Systems,
 *   SC 2014.
 *   K. Ousterhout, P. Wendell, M. Zaharia, I. Stoica: Sparrow: Distributed, Low Latency Scheduling, SOSP 2013.
 *
 *   Map (without twochoice_priv_)
 *     the client       plan, reserve, choose, bind, again, overdue, go_home
 *     what it learns   remember, remembered, draw
 *     the server       bounds, drain, asks_ns, gives_up_ns
 */

#define TWOCHOICE_PRIV_OFFERS (4u * TWOCHOICE_WRITES_MAX) /* reservations of a request; a turn says which */

struct twochoice_priv_clock {
    uint64_t last_ns, ns; /* the caller's latest time; our own */
    uint64_t back_ns;     /* a step back by more: it was set */
};
enum twochoice_priv_offer_state {
    TWOCHOICE_PRIV_UNUSED,
    TWOCHOICE_PRIV_PLANNED,
    TWOCHOICE_PRIV_WAITS,
    TWOCHOICE_PRIV_KNOWN,
    TWOCHOICE_PRIV_ASKS,
    TWOCHOICE_PRIV_DECLINED,
    TWOCHOICE_PRIV_REFUSED
};
struct twochoice_priv_offer { /* a reservation, as its client sees it */
    enum twochoice_priv_offer_state state;
    uint32_t server, left; /* writes that may still go there */
    bool guessed;          /* service_ns: the server does not know it, or is not believed */
    uint64_t turn, at_ns;  /* at_ns: of the bounds, or of the RESERVE */
    uint64_t wait_ns, service_ns;
};
enum twochoice_priv_sent_state { TWOCHOICE_PRIV_UNBOUND, TWOCHOICE_PRIV_BOUND, TWOCHOICE_PRIV_DONE };
struct twochoice_priv_sent { /* a write of a request */
    enum twochoice_priv_sent_state state;
    uint32_t home, server;
    bool again, small, asked; /* asked: for it, where it is */
    uint64_t at_ns, bound_ns; /* when sent; what it takes at most, as said; 0: not known */
    uint64_t pause_ns;        /* from its last send to the next one home, as it failed there; 0: none */
};
struct twochoice_priv_request {
    uint64_t id, tag;
    struct twochoice_priv_offer *offer;
    struct twochoice_priv_sent *sent;
    uint32_t writes, unbound, open;
    uint32_t offers; /* used so far */
    uint32_t small;  /* of the unbound */
    uint32_t back;   /* taken back since it reserved last */
    uint32_t widens; /* so many writes may have more than 2k servers */
    uint64_t len_bytes, begun_ns;
    uint64_t due_ns;       /* nothing happens before, unless something is heard */
    uint64_t last_ns;      /* without a write taken, or back, by then: the rest goes home */
    bool curious, careful; /* careful: a write was taken back */
};
struct twochoice_placement {
    struct twochoice_priv_request *request;
    struct twochoice_priv_offer *offer;
    struct twochoice_priv_sent *sent;
    uint64_t *service_ns; /* by server: as heard last; 0: never */
    uint64_t *drawn;      /* by server: the last draw that excludes it */
    uint8_t *state;
    uint32_t servers, up, max_writes, max_requests, max_offers; /* up: so many servers are */
    uint64_t min_write_bytes, timeout_ns, client, draws, requests, turns;
    uint64_t typical_ns, round_trip_ns; /* of the servers heard */
    uint64_t usual_ns;                  /* from a request's begin to the end of a write, by the bound */
    uint64_t usual_part, usual_error;   /* what a write takes, in 256ths of its bound; how far off that is */
    uint32_t budget;                    /* for writes sent twice: 24 at first, 1 a write; one takes 8 */
    bool include_home;
    struct twochoice_priv_clock clock;
    struct qos_rng rng;
    struct qos_counters counters;
};

/* INTAKE, in every server: who may write to it next, and how fast its device drains.
 *
 *   rate   Each end of an operation adds the time that the device worked for it, and its cost (len_bytes + op_cost), to
 *          two sums that forget a quarter each time; once only for those that end together, `parallel` at most. With
 *          fewer than `parallel` in flight it counts in part: the quotient is of a device with enough work. One that
 *          takes longer counts before it ends, then as at most 8.
 *   ask    The turn goes round the clients, one write each. While a write would begin, behind what is in flight and
 *          asked for, in less than three leads (the learned time from an ask to its write), the next is asked. An idle
 *          device always asks; one whose rate is not known only when idle. An ask without an answer holds its place for
 *          four leads; before the first write has come a lead counts as timeout_ns / 256.
 *   wait   of a reservation: what is in flight and asked for; and 3/4 of what its turn comes behind, as of 2k
 *          reservations k are used. Here one counts as at most four typical operations: who claims more does not drive
 *          others away.
 *
 *   States of a reservation; left: writes that may be asked for, asked: asks without an answer:
 *
 *       RESERVE -> [left > 0] --ask--> [left - 1, asked + 1] --the write arrives--> [asked - 1] -> gone when both are 0
 *                       '--------------------'--RELEASE, or no answer in time--> gone
 *
 * INVARIANTS
 *
 *   1. Each entry in use is in the chain of its client and turn; in the list of its client, in the order of RESERVEs,
 *      while left > 0; in the queue of deadlines while asked > 0. A client is in its chain while it has entries, in the
 *      turn while its list is not empty.
 *   2. left and reserved are the sums of left, and of left times cost, of all entries; holds and awaited likewise of
 *      holds; asked the sum of asked. holds > 0 only from `young` on in the queue of deadlines.
 */

struct twochoice_priv_entry { /* a reservation, as the server sees it */
    uint64_t request, turn, cost, len_bytes, asked_ns;
    uint32_t left, asked, holds; /* holds: those of asked that hold a place */
    uint32_t peer, chain;        /* chain: the next in it, or unused */
};
struct twochoice_priv_list {
    uint32_t head, tail;
};
struct twochoice_priv_link {
    uint32_t prev, next;
};
struct twochoice_priv_peer { /* a client that has reservations */
    uint64_t client;
    uint32_t entries, left, chain;
    struct twochoice_priv_list own; /* of entries */
};
struct twochoice_intake {
    struct twochoice_priv_entry *entry;
    struct twochoice_priv_peer *peer;
    struct twochoice_priv_link *own_link, *waiting_link, *turn_link; /* by entry, entry, peer */
    uint32_t *entry_chain, *peer_chain;
    uint32_t server, max, max_per_client, chains, parallel, unused_entry, unused_peer, used, turns, young;
    struct twochoice_priv_list turn, waiting; /* of peers; of entries */
    uint64_t op_cost, timeout_ns;
    uint64_t ops, cost, left, reserved, asked, holds, awaited; /* ops, cost: in flight */
    uint64_t work_ns, work_cost; /* sums that forget: their quotient is the time for a unit of cost */
    uint64_t together;           /* ends in a row by which they did not */
    uint64_t last_ns;            /* when the device began what it does, or last ended an operation */
    uint64_t lead_ns;            /* from an ask to its write */
    uint64_t lost;
    struct twochoice_priv_clock clock;
};

#ifndef QOS_DECLARE_ONLY

/* The own clock moves as the caller's passes its latest time. */
QOS_PRIV uint64_t twochoice_priv_now(struct twochoice_priv_clock *clock, uint64_t now_ns)
{
    uint64_t passed_ns = qos_min(qos_elapsed_ns(clock->last_ns, now_ns), TWOCHOICE_TIME_MAX);
    if (qos_elapsed_ns(now_ns, clock->last_ns) > clock->back_ns)
        clock->last_ns = now_ns;
    clock->last_ns = qos_max(clock->last_ns, now_ns);
    clock->ns = qos_min(qos_sat_add(clock->ns, passed_ns), UINT64_MAX / 2);
    return clock->ns;
}

/* As the caller's; QOS_NEVER stays. */
QOS_PRIV uint64_t twochoice_priv_caller_ns(const struct twochoice_priv_clock *clock, uint64_t ns)
{
    return ns == QOS_NEVER ? QOS_NEVER : qos_sat_add(clock->last_ns, qos_sat_sub(ns, clock->ns));
}

QOS_API const char *twochoice_placement_config_error(const struct twochoice_placement_config *config)
{
    if (!config)
        return "config: is NULL; give a struct twochoice_placement_config";
    if (config->servers == 0 || config->servers > TWOCHOICE_SERVERS_MAX)
        return "servers: give 1..TWOCHOICE_SERVERS_MAX";
    if (config->max_writes > TWOCHOICE_WRITES_MAX)
        return "max_writes: give 1..TWOCHOICE_WRITES_MAX, or 0 for 128";
    if (config->max_requests > TWOCHOICE_REQUESTS_MAX)
        return "max_requests: give 1..TWOCHOICE_REQUESTS_MAX, or 0 for 4";
    if (config->timeout_ns > TWOCHOICE_TIME_MAX)
        return "timeout_ns: give 1..TWOCHOICE_TIME_MAX, or 0 for 200 ms";
    return NULL;
}

QOS_PRIV void twochoice_priv_placement_layout(struct qos_layout *layout, void *mem, struct twochoice_placement *p,
                                              const struct twochoice_placement_config *config)
{
    const size_t n = config->servers, k = (size_t)qos_default(config->max_writes, 128);
    const size_t requests = (size_t)qos_default(config->max_requests, 4);
    qos_layout_begin(layout, mem);
    p->servers = config->servers;
    p->max_writes = (uint32_t)k;
    p->max_requests = (uint32_t)requests;
    p->max_offers = (uint32_t)(4 * k);
    QOS_LAYOUT_SET(layout, p->request, requests);
    QOS_LAYOUT_SET(layout, p->offer, requests * 4 * k);
    QOS_LAYOUT_SET(layout, p->sent, requests * k);
    QOS_LAYOUT_SET(layout, p->service_ns, n);
    QOS_LAYOUT_SET(layout, p->drawn, n);
    QOS_LAYOUT_SET(layout, p->state, n);
}

QOS_API size_t twochoice_placement_memsize(const struct twochoice_placement_config *config)
{
    struct twochoice_placement scratch;
    struct qos_layout layout;
    if (twochoice_placement_config_error(config))
        return 0;
    twochoice_priv_placement_layout(&layout, NULL, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status twochoice_placement_init(struct twochoice_placement *placement, void *mem, size_t size_bytes,
                                                 const struct twochoice_placement_config *config)
{
    struct twochoice_placement p;
    struct qos_layout layout;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(placement);
    if (twochoice_placement_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    __builtin_memset(&p, 0, sizeof p);
    twochoice_priv_placement_layout(&layout, NULL, &p, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    twochoice_priv_placement_layout(&layout, mem, &p, config);
    p.min_write_bytes =
        config->min_write_bytes == QOS_NOTHING ? 0 : qos_default(config->min_write_bytes, TWOCHOICE_MIN_WRITE_BYTES);
    p.timeout_ns = qos_default(config->timeout_ns, UINT64_C(200000000));
    p.clock.back_ns = p.timeout_ns / 4;
    p.client = config->client;
    p.include_home = config->include_home;
    p.budget = 24;
    p.up = p.servers;
    p.usual_part = 256;
    qos_rng_seed(&p.rng, config->seed);
    for (i = 0; i < p.servers; i++) {
        p.service_ns[i] = p.drawn[i] = 0;
        p.state[i] = TWOCHOICE_UP;
    }
    for (i = 0; i < p.max_requests; i++) {
        __builtin_memset(&p.request[i], 0, sizeof p.request[i]);
        p.request[i].offer = p.offer + (size_t)i * p.max_offers;
        p.request[i].sent = p.sent + (size_t)i * p.max_writes;
    }
    *placement = p;
    return QOS_OK;
}

QOS_API enum qos_status twochoice_placement_set_server(struct twochoice_placement *placement, uint32_t server,
                                                       enum twochoice_server_state state)
{
    QOS_ASSERT(placement);
    if (server >= placement->servers)
        return QOS_ENOENT;
    if ((uint32_t)state > TWOCHOICE_FULL)
        return QOS_ERANGE;
    placement->up -= placement->state[server] == TWOCHOICE_UP;
    placement->up += state == TWOCHOICE_UP;
    placement->state[server] = (uint8_t)state;
    return QOS_OK;
}

/* -- servers -- */

QOS_PRIV uint64_t twochoice_priv_remembered(const struct twochoice_placement *p, uint32_t server)
{
    return p->service_ns[server] ? p->service_ns[server] : p->typical_ns;
}

/* What the server said counts a sixteenth in what is typical. */
QOS_PRIV void twochoice_priv_remember(struct twochoice_placement *p, uint64_t service_ns)
{
    const uint64_t typical = p->typical_ns;
    if (typical == 0) /* others count as faster: the first to speak may be a slow one */
        p->typical_ns = service_ns - service_ns / 4;
    else if (service_ns > 4 * typical)
        p->typical_ns = typical + typical / 16 + 1; /* one slow server */
    else
        p->typical_ns = typical - typical / 16 + service_ns / 16;
}

/* A server that is up and not excluded; one that takes x times as long as usual with probability 1/x. */
QOS_PRIV uint32_t twochoice_priv_draw(struct twochoice_placement *p)
{
    uint32_t tries, server, found = QOS_NONE;
    for (tries = 0; tries < 64; tries++) {
        uint64_t service_ns;
        server = (uint32_t)qos_rng_below(&p->rng, p->servers);
        if (p->state[server] != TWOCHOICE_UP || p->drawn[server] == p->draws)
            continue;
        found = server;
        service_ns = twochoice_priv_remembered(p, server);
        if (service_ns <= p->typical_ns || qos_rng_below(&p->rng, service_ns) < p->typical_ns)
            break;
    }
    for (server = 0; server < p->servers && found == QOS_NONE; server++)
        if (p->state[server] == TWOCHOICE_UP && p->drawn[server] != p->draws)
            found = server;
    return found;
}

/* Plans reservations for `slots` writes, at servers that are up, have none, and did not fail it: one each or, at all of
 * them, as many as fit evenly, the first with one more. */
QOS_PRIV uint32_t twochoice_priv_plan(struct twochoice_placement *p, struct twochoice_priv_request *r, uint32_t slots)
{
    const uint32_t up = (uint32_t)qos_max(p->up, 1), each = slots / up, larger = slots % up;
    uint32_t i, planned = 0, n = 0, place = 0;
    p->draws++;
    for (i = 0; i < r->offers; i++)
        if (r->offer[i].state != TWOCHOICE_PRIV_UNUSED)
            p->drawn[r->offer[i].server] = p->draws;
    for (i = 0; i < r->writes; i++)
        if (r->sent[i].state != TWOCHOICE_PRIV_DONE &&
            (r->sent[i].again || (r->sent[i].state == TWOCHOICE_PRIV_BOUND && !r->sent[i].small)))
            p->drawn[r->sent[i].server] = p->draws;
    for (i = 0; planned < slots; i++) {
        const uint32_t left = (uint32_t)qos_min(each + (n < larger), TWOCHOICE_WRITES_MAX); /* what one message says */
        struct twochoice_priv_offer o = {TWOCHOICE_PRIV_PLANNED, 0, left, false, 0, 0, 0, 0};
        uint32_t server = p->include_home && i < r->writes ? r->sent[i].home : QOS_NONE;
        if (server == QOS_NONE)
            server = twochoice_priv_draw(p);
        else if (r->sent[i].state != TWOCHOICE_PRIV_UNBOUND || p->state[server] != TWOCHOICE_UP ||
                 p->drawn[server] == p->draws)
            continue;
        while (place < r->offers && r->offer[place].state != TWOCHOICE_PRIV_UNUSED)
            place++;
        if (server == QOS_NONE || place == p->max_offers)
            break;
        o.server = server;
        r->offer[place] = o;
        r->offers += place == r->offers;
        p->drawn[server] = p->draws;
        planned += left;
        n++;
    }
    return planned;
}

/* -- requests -- */

QOS_API enum qos_status twochoice_placement_begin(struct twochoice_placement *placement, uint64_t now_ns,
                                                  const struct twochoice_write *writes, size_t k, uint64_t tag,
                                                  uint64_t *request)
{
    struct twochoice_priv_request *r = NULL;
    uint32_t i;
    QOS_ASSERT(placement && writes && request);
    now_ns = twochoice_priv_now(&placement->clock, now_ns);
    if (k == 0 || k > placement->max_writes)
        return QOS_ERANGE;
    for (i = 0; i < k; i++)
        if (writes[i].home >= placement->servers)
            return QOS_ENOENT;
    for (i = placement->max_requests; i > 0; i--) /* at worst one that has ended: its servers hear it when they ask */
        if (!placement->request[i - 1].id || (!r && !placement->request[i - 1].open))
            r = &placement->request[i - 1];
    if (!r)
        return QOS_EFULL;
    *request = r->id = ++placement->requests * TWOCHOICE_REQUESTS_MAX + (uint64_t)(r - placement->request);
    r->tag = tag;
    r->offers = r->small = 0;
    r->writes = r->unbound = r->open = (uint32_t)k;
    r->len_bytes = 0;
    r->due_ns = r->begun_ns = now_ns;
    r->last_ns = now_ns + 17 * placement->timeout_ns;
    r->curious = qos_rng_below(&placement->rng, 128) == 0;
    r->careful = false;
    r->back = 0;
    r->widens = (uint32_t)k;
    for (i = 0; i < k; i++) {
        const bool small = writes[i].len_bytes < placement->min_write_bytes;
        const struct twochoice_priv_sent sent = {
            TWOCHOICE_PRIV_UNBOUND, writes[i].home, QOS_NONE, false, small, false, 0, 0, 0};
        r->sent[i] = sent;
        r->small += small;
        r->len_bytes = qos_max(r->len_bytes, writes[i].len_bytes);
    }
    placement->budget = (uint32_t)qos_min(placement->budget + k, 1024);
    return QOS_OK;
}

QOS_PRIV struct twochoice_priv_request *twochoice_priv_request_of(struct twochoice_placement *p, uint64_t request)
{
    uint64_t i = request % TWOCHOICE_REQUESTS_MAX;
    return request && i < p->max_requests && p->request[i].id == request ? &p->request[i] : NULL;
}

/* The reservation that a message is about; NULL: not held any more. */
QOS_PRIV struct twochoice_priv_offer *twochoice_priv_offer_of(const struct twochoice_priv_request *r,
                                                              const struct twochoice_message *m)
{
    uint64_t i = m->turn % TWOCHOICE_PRIV_OFFERS;
    struct twochoice_priv_offer *o = r && i < r->offers ? &r->offer[i] : NULL;
    if (!o || o->turn != m->turn || o->server != m->server || o->state < TWOCHOICE_PRIV_WAITS ||
        o->state > TWOCHOICE_PRIV_ASKS)
        return NULL;
    return o;
}

QOS_API bool twochoice_placement_heard(struct twochoice_placement *placement, uint64_t now_ns,
                                       const struct twochoice_message *message, struct twochoice_message *answer)
{
    struct twochoice_priv_request *r;
    struct twochoice_priv_offer *o;
    uint64_t service_ns;
    QOS_ASSERT(placement && message && answer);
    now_ns = twochoice_priv_now(&placement->clock, now_ns);
    if (message->server >= placement->servers || (message->type != TWOCHOICE_ANSWER && message->type != TWOCHOICE_ASK))
        return false;
    r = twochoice_priv_request_of(placement, message->request);
    o = twochoice_priv_offer_of(r, message);
    service_ns = message->service_ns;
    if (service_ns)
        placement->service_ns[message->server] = qos_min(service_ns, placement->timeout_ns);
    else
        service_ns = placement->typical_ns * (r && r->careful ? 2 : 1);
    if (!o) { /* nobody waits for it any more */
        *answer = *message;
        answer->type = TWOCHOICE_RELEASE;
        answer->state = TWOCHOICE_UP;
        return message->type == TWOCHOICE_ASK;
    }
    if (o->state == TWOCHOICE_PRIV_ASKS ||
        (o->state == TWOCHOICE_PRIV_KNOWN && message->type == TWOCHOICE_ANSWER)) /* repeated, or late */
        return false;
    if (o->state == TWOCHOICE_PRIV_WAITS) {
        uint64_t took = qos_elapsed_ns(o->at_ns, now_ns), old = placement->round_trip_ns;
        placement->round_trip_ns = old ? old - old / 8 + took / 8 : took;
    }
    if (message->service_ns) /* once a reservation, and only if it was asked */
        twochoice_priv_remember(placement, qos_min(service_ns, placement->timeout_ns));
    r->due_ns = now_ns;
    if (message->state != TWOCHOICE_UP) {
        o->state = TWOCHOICE_PRIV_REFUSED;
        qos_counter_add(&placement->counters.refused, 1);
        return false;
    }
    o->guessed = message->service_ns == 0;
    if (r->curious && service_ns > placement->typical_ns && message->idle_ns / 8 > service_ns) {
        o->guessed = true;
        service_ns = placement->typical_ns / 2;
    }
    o->at_ns = now_ns;
    o->wait_ns = qos_min(message->wait_ns, TWOCHOICE_TIME_MAX);
    o->service_ns = qos_min(service_ns, TWOCHOICE_TIME_MAX);
    o->state = message->type == TWOCHOICE_ASK ? TWOCHOICE_PRIV_ASKS : TWOCHOICE_PRIV_KNOWN;
    return false;
}

QOS_PRIV void twochoice_priv_unbind(struct twochoice_placement *p, struct twochoice_priv_request *r,
                                    struct twochoice_priv_sent *s, uint64_t now_ns)
{
    uint64_t took_ns = qos_min(qos_elapsed_ns(s->at_ns, now_ns), p->timeout_ns);
    s->state = TWOCHOICE_PRIV_UNBOUND;
    s->again = true;
    s->small = false; /* now it is like any other */
    if (s->server == s->home)
        s->pause_ns = s->pause_ns ? qos_min(2 * s->pause_ns, p->timeout_ns) : p->timeout_ns / 256 + 1;
    r->curious = false;
    r->careful = true;
    r->back++;
    r->widens++;
    r->unbound++;
    r->due_ns = now_ns;
    r->last_ns = now_ns + 17 * p->timeout_ns;
    p->service_ns[s->server] = qos_max(p->service_ns[s->server], took_ns);
    qos_counter_add(&p->counters.waited, 1);
}

/* So many 256ths of its bound a write takes, and is not overdue: 3/2 to 64 bounds. */
QOS_PRIV uint64_t twochoice_priv_late_part(const struct twochoice_placement *p)
{
    return qos_min(qos_max(256 + 128, p->usual_part + 2 * p->usual_error), 64 * 256);
}

/* A write ended, or was taken back: how its time and its bound agree, if it was sent once. */
QOS_PRIV void twochoice_priv_took(struct twochoice_placement *p, const struct twochoice_priv_sent *s, uint64_t now_ns)
{
    const uint64_t took_ns = qos_sat_sub(qos_elapsed_ns(s->at_ns, now_ns), p->round_trip_ns);
    uint64_t part, old = p->usual_part;
    if (s->again || s->bound_ns == 0)
        return;
    part = qos_min(qos_mul_div_floor(took_ns, 256, s->bound_ns), twochoice_priv_late_part(p));
    p->usual_part = old - old / 16 + part / 16;
    p->usual_error = p->usual_error - p->usual_error / 16 + (part > old ? part - old : old - part) / 16;
}

/* When write number j (0: the next one) of an offer would end. */
QOS_PRIV uint64_t twochoice_priv_ends(const struct twochoice_placement *p, const struct twochoice_priv_offer *o,
                                      uint64_t now_ns, uint32_t j)
{
    uint64_t begins;
    if (o->state <= TWOCHOICE_PRIV_WAITS)
        return now_ns + (j + 1) * twochoice_priv_remembered(p, o->server);
    begins = o->at_ns + o->wait_ns;
    if (begins < now_ns && o->state == TWOCHOICE_PRIV_KNOWN)
        begins = now_ns + (now_ns - begins);
    return qos_max(begins, now_ns) + (j + 1) * o->service_ns;
}

/* Do as many places as writes are left end before ends_ns at offer me? unheard: those without an answer, too. */
QOS_PRIV bool twochoice_priv_beaten(const struct twochoice_placement *p, const struct twochoice_priv_request *r,
                                    uint32_t me, uint64_t now_ns, uint64_t ends_ns, bool unheard)
{
    uint32_t i, j, n = 0;
    for (i = 0; i < r->offers; i++) {
        const struct twochoice_priv_offer *o = &r->offer[i];
        if (i == me || o->state == TWOCHOICE_PRIV_UNUSED || o->state >= TWOCHOICE_PRIV_DECLINED ||
            (o->state <= TWOCHOICE_PRIV_WAITS && !unheard))
            continue;
        for (j = 0; j < o->left; j++) {
            uint64_t other_ns = twochoice_priv_ends(p, o, now_ns, j);
            if (other_ns > ends_ns || (other_ns == ends_ns && i > me))
                break;
            if (++n == r->unbound)
                return true;
        }
    }
    return false;
}

QOS_API enum qos_status twochoice_placement_ended(struct twochoice_placement *placement, uint64_t now_ns,
                                                  uint64_t request, uint32_t write, bool durable)
{
    struct twochoice_priv_request *r;
    struct twochoice_priv_sent *s;
    QOS_ASSERT(placement);
    now_ns = twochoice_priv_now(&placement->clock, now_ns);
    r = twochoice_priv_request_of(placement, request);
    if (!r)
        return QOS_ENOENT;
    if (write >= r->writes)
        return QOS_ERANGE;
    s = &r->sent[write];
    if (!durable && s->state == TWOCHOICE_PRIV_BOUND)
        twochoice_priv_unbind(placement, r, s, now_ns);
    if (!durable || s->state == TWOCHOICE_PRIV_DONE)
        return QOS_OK;
    if (placement->typical_ns == 0 && s->state == TWOCHOICE_PRIV_BOUND && !s->small)
        placement->typical_ns = qos_min(qos_elapsed_ns(s->at_ns, now_ns), placement->timeout_ns);
    if (s->state == TWOCHOICE_PRIV_BOUND)
        twochoice_priv_took(placement, s, now_ns);
    r->unbound -= s->state == TWOCHOICE_PRIV_UNBOUND;
    r->small -= s->state == TWOCHOICE_PRIV_UNBOUND && s->small;
    s->state = TWOCHOICE_PRIV_DONE;
    r->open--;
    r->due_ns = now_ns;
    return QOS_OK;
}

/* -- the rule -- */

QOS_PRIV bool twochoice_priv_order(const struct twochoice_placement *p, const struct twochoice_priv_request *r,
                                   const struct twochoice_priv_offer *o, uint32_t type,
                                   struct twochoice_place_order *out)
{
    struct twochoice_message *m = &out->message;
    out->todo = type ? TWOCHOICE_PLACE_SEND : TWOCHOICE_PLACE_BIND;
    out->server = m->server = o->server;
    out->tag = r->tag;
    m->type = type;
    m->count = type == TWOCHOICE_RESERVE ? o->left : 0;
    m->client = p->client;
    m->request = r->id;
    m->turn = o->turn;
    m->len_bytes = r->len_bytes;
    return true;
}

QOS_PRIV bool twochoice_priv_bind(struct twochoice_placement *p, struct twochoice_priv_request *r,
                                  const struct twochoice_priv_offer *o, uint32_t write, uint64_t now_ns,
                                  struct twochoice_place_order *out)
{
    uint64_t bound_ns = twochoice_priv_ends(p, o, now_ns, 0) - now_ns;
    struct twochoice_priv_sent *s = &r->sent[write];
    out->write = write;
    out->again = s->again;
    s->state = TWOCHOICE_PRIV_BOUND;
    s->server = o->server;
    s->asked = o->turn != 0;
    s->at_ns = now_ns;
    s->bound_ns = o->service_ns ? bound_ns : 0;
    if (o->service_ns) {
        const uint64_t old_ns = p->usual_ns;
        const uint64_t takes_ns = qos_min(now_ns + bound_ns - r->begun_ns, p->timeout_ns);
        p->usual_ns = old_ns ? old_ns - old_ns / 16 + takes_ns / 16 : takes_ns;
    }
    r->unbound--;
    r->small -= s->small;
    qos_counter_add(&p->counters.granted, 1);
    qos_counter_add(&p->counters.borrowed, o->server != s->home);
    return twochoice_priv_order(p, r, o, 0, out);
}

/* For the offer: one whose home this is, if any; where the rate is a guess, another: it can be sent again. */
QOS_PRIV bool twochoice_priv_take(struct twochoice_placement *p, struct twochoice_priv_request *r,
                                  struct twochoice_priv_offer *o, uint64_t now_ns, struct twochoice_place_order *out)
{
    uint32_t i, write = QOS_NONE;
    for (i = 0; i < r->writes && (write == QOS_NONE || (r->sent[write].home == o->server) == o->guessed); i++) {
        const struct twochoice_priv_sent *s = &r->sent[i];
        const bool home = s->home == o->server, was_there = s->again && s->server == o->server && !home;
        if (s->state == TWOCHOICE_PRIV_UNBOUND && !was_there && (write == QOS_NONE || home != o->guessed))
            write = i;
    }
    if (write == QOS_NONE) { /* all left is overdue there, or failed: to another server */
        o->state = TWOCHOICE_PRIV_REFUSED;
        return twochoice_priv_order(p, r, o, TWOCHOICE_RELEASE, out);
    }
    (void)twochoice_priv_bind(p, r, o, write, now_ns, out);
    r->last_ns = now_ns + 17 * p->timeout_ns;
    o->wait_ns += o->service_ns;
    o->state = --o->left ? TWOCHOICE_PRIV_KNOWN : TWOCHOICE_PRIV_UNUSED;
    return true;
}

/* Home without a reservation: a small one or, if not small, as no server takes any. One that failed there waits. */
QOS_PRIV bool twochoice_priv_go_home(struct twochoice_placement *p, struct twochoice_priv_request *r, bool small,
                                     uint64_t now_ns, struct twochoice_place_order *out)
{
    struct twochoice_priv_offer home = {TWOCHOICE_PRIV_ASKS, 0, 1, true, 0, now_ns, 0, 0};
    uint32_t i;
    for (i = 0; i < r->writes; i++) {
        const struct twochoice_priv_sent *s = &r->sent[i];
        if (s->state != TWOCHOICE_PRIV_UNBOUND || s->small != small)
            continue;
        home.server = s->home;
        if (now_ns >= s->at_ns + s->pause_ns)
            return twochoice_priv_bind(p, r, &home, i, now_ns, out);
        r->due_ns = qos_min(r->due_ns, s->at_ns + s->pause_ns);
    }
    return false;
}

/* Takes back writes that are overdue. Returns when the next one is. */
QOS_PRIV uint64_t twochoice_priv_overdue(struct twochoice_placement *p, struct twochoice_priv_request *r,
                                         uint64_t now_ns)
{
    uint64_t next_ns = QOS_NEVER;
    uint32_t i;
    for (i = 0; i < r->writes; i++) {
        struct twochoice_priv_sent *s = &r->sent[i];
        const uint64_t bound_ns = s->bound_ns ? s->bound_ns : p->typical_ns;
        const uint64_t last_ns = s->at_ns + p->timeout_ns;
        uint64_t late_ns = last_ns;
        if (bound_ns)
            late_ns = qos_min(last_ns, s->at_ns + qos_mul_div_floor(bound_ns, twochoice_priv_late_part(p), 256) +
                                           (s->bound_ns ? 2 : 1) * p->round_trip_ns);
        if (s->state != TWOCHOICE_PRIV_BOUND || s->server == s->home)
            continue; /* bytes at home cannot be called back */
        if (now_ns < late_ns) {
            next_ns = qos_min(next_ns, late_ns);
        } else if (p->budget >= 8 || now_ns >= last_ns) {
            p->budget -= (uint32_t)qos_min(p->budget, 8);
            twochoice_priv_took(p, s, now_ns);
            twochoice_priv_unbind(p, r, s, now_ns);
        } else {
            next_ns = qos_min(next_ns, last_ns);
        }
    }
    return next_ns;
}

/* The ask that ends first gets a write, or waits. Then the one that ends last is declined, or none is. */
QOS_PRIV bool twochoice_priv_choose(struct twochoice_placement *p, struct twochoice_priv_request *r, uint64_t now_ns,
                                    struct twochoice_place_order *out)
{
    uint32_t i, best = QOS_NONE, worst = QOS_NONE;
    uint64_t ends_ns, best_ns = 0, worst_ns = 0;
    for (i = 0; i < r->offers; i++) {
        if (r->offer[i].state != TWOCHOICE_PRIV_ASKS)
            continue;
        ends_ns = twochoice_priv_ends(p, &r->offer[i], now_ns, 0);
        if (best == QOS_NONE || ends_ns < best_ns) {
            best = i;
            best_ns = ends_ns;
        }
        if (ends_ns >= worst_ns) {
            worst = i;
            worst_ns = ends_ns;
        }
    }
    if (best == QOS_NONE)
        return false;
    if (!twochoice_priv_beaten(p, r, best, now_ns, best_ns, false)) {
        const uint64_t until_ns = r->offer[best].at_ns + r->offer[best].service_ns / 4;
        if (now_ns >= until_ns || !twochoice_priv_beaten(p, r, best, now_ns, best_ns, true))
            return twochoice_priv_take(p, r, &r->offer[best], now_ns, out);
        r->due_ns = qos_min(r->due_ns, until_ns);
    }
    if (!twochoice_priv_beaten(p, r, worst, now_ns, worst_ns, false))
        return false;
    r->offer[worst].state = TWOCHOICE_PRIV_DECLINED;
    return twochoice_priv_order(p, r, &r->offer[worst], TWOCHOICE_RELEASE, out);
}

/* Until when a server may be silent. */
QOS_PRIV uint64_t twochoice_priv_silent_ns(const struct twochoice_placement *p, const struct twochoice_priv_request *r,
                                           const struct twochoice_priv_offer *o)
{
    if (o->state == TWOCHOICE_PRIV_PLANNED || o->state == TWOCHOICE_PRIV_DECLINED)
        return r->last_ns;
    if (o->state == TWOCHOICE_PRIV_WAITS)
        return qos_min(o->at_ns + p->timeout_ns / 4, r->last_ns);
    if (o->state == TWOCHOICE_PRIV_KNOWN)
        return qos_min(o->at_ns + 2 * o->wait_ns + p->timeout_ns, r->last_ns);
    return QOS_NEVER;
}

/* Is the fastest that was declined asked again? No other is unless it is. It may say that it needs no time: the client
 * looks 4096 times a timeout at most. */
QOS_PRIV void twochoice_priv_again(const struct twochoice_placement *p, struct twochoice_priv_request *r,
                                   uint64_t now_ns)
{
    struct twochoice_priv_offer *o = NULL;
    uint32_t i, me = 0;
    for (i = 0; i < r->offers; i++)
        if (r->offer[i].state == TWOCHOICE_PRIV_DECLINED && (!o || r->offer[i].service_ns < o->service_ns)) {
            o = &r->offer[i];
            me = i;
        }
    if (!o)
        return;
    if (twochoice_priv_beaten(p, r, me, now_ns, twochoice_priv_ends(p, o, now_ns, 0), true))
        r->due_ns = qos_min(r->due_ns,
                            now_ns + qos_max(qos_max(o->service_ns, p->round_trip_ns) / 4, p->timeout_ns / 4096) + 1);
    else
        o->state = TWOCHOICE_PRIV_PLANNED;
}

/* Reservations to send, or to give up. */
QOS_PRIV bool twochoice_priv_reserve(struct twochoice_placement *p, struct twochoice_priv_request *r, uint64_t now_ns,
                                     struct twochoice_place_order *out)
{
    uint32_t i;
    for (i = 0; i < r->offers; i++) {
        struct twochoice_priv_offer *o = &r->offer[i];
        uint64_t silent_ns = twochoice_priv_silent_ns(p, r, o);
        if (o->state == TWOCHOICE_PRIV_UNUSED)
            continue;
        if (r->unbound == 0 || silent_ns <= now_ns) {
            bool tell = o->state >= TWOCHOICE_PRIV_WAITS && o->state <= TWOCHOICE_PRIV_ASKS;
            o->state = r->unbound ? TWOCHOICE_PRIV_REFUSED : TWOCHOICE_PRIV_UNUSED;
            if (r->unbound) {
                p->service_ns[o->server] = p->timeout_ns;
                qos_counter_add(&p->counters.refused, 1);
            }
            if (tell)
                return twochoice_priv_order(p, r, o, TWOCHOICE_RELEASE, out);
            continue;
        }
        if (o->state == TWOCHOICE_PRIV_PLANNED) {
            o->state = TWOCHOICE_PRIV_WAITS;
            o->at_ns = now_ns;
            o->turn = ++p->turns * TWOCHOICE_PRIV_OFFERS + i;
            return twochoice_priv_order(p, r, o, TWOCHOICE_RESERVE, out);
        }
        r->due_ns = qos_min(r->due_ns, silent_ns);
    }
    return false;
}

/* All have answered: do too few places end within twice what is usual? */
QOS_PRIV bool twochoice_priv_widens(const struct twochoice_placement *p, const struct twochoice_priv_request *r,
                                    uint64_t now_ns)
{
    uint32_t i;
    if (r->widens == 0 || r->unbound == 0 || p->usual_ns == 0)
        return false;
    for (i = 0; i < r->offers; i++)
        if (r->offer[i].state == TWOCHOICE_PRIV_PLANNED || r->offer[i].state == TWOCHOICE_PRIV_WAITS)
            return false;
    return !twochoice_priv_beaten(p, r, QOS_NONE, now_ns, now_ns + 2 * p->usual_ns, false);
}

/* The next order of one request; false: none before r->due_ns. */
QOS_PRIV bool twochoice_priv_step(struct twochoice_placement *p, struct twochoice_priv_request *r, uint64_t now_ns,
                                  struct twochoice_place_order *out)
{
    bool taken = false;
    uint32_t i, slots = 0;
    r->due_ns = twochoice_priv_overdue(p, r, now_ns);
    if (r->small)
        return twochoice_priv_go_home(p, r, true, now_ns, out);
    for (i = 0; i < r->offers; i++) {
        struct twochoice_priv_offer *o = &r->offer[i];
        if ((p->state[o->server] != TWOCHOICE_UP || now_ns >= r->last_ns) && /* it is not asked any more, or again */
            (o->state == TWOCHOICE_PRIV_PLANNED || o->state == TWOCHOICE_PRIV_DECLINED))
            o->state = TWOCHOICE_PRIV_REFUSED;
        if (o->state != TWOCHOICE_PRIV_REFUSED && o->state != TWOCHOICE_PRIV_UNUSED)
            slots += o->left;
    }
    if (now_ns < r->last_ns) {
        const uint32_t lacking = (uint32_t)qos_max(qos_sat_sub(r->unbound, slots), r->back);
        if (lacking > 0)
            slots += twochoice_priv_plan(p, r, 2 * lacking);
        else if (twochoice_priv_widens(p, r, now_ns) &&
                 twochoice_priv_plan(p, r, 2 * (uint32_t)qos_min(r->unbound, r->widens)) > 0)
            r->widens = 0;
        r->back = 0;
    }
    if (r->unbound && slots == 0) {
        for (i = 0; i < r->writes && now_ns < r->last_ns; i++)
            taken = taken || (r->sent[i].state == TWOCHOICE_PRIV_BOUND && r->sent[i].asked &&
                              p->state[r->sent[i].server] == TWOCHOICE_UP);
        if (!taken)
            return twochoice_priv_go_home(p, r, false, now_ns, out);
        r->due_ns = qos_min(r->due_ns, qos_min(r->last_ns, now_ns + p->timeout_ns)); /* servers may be up no more */
    }
    twochoice_priv_again(p, r, now_ns);
    if (twochoice_priv_reserve(p, r, now_ns, out))
        return true;
    if (r->open == 0)
        r->id = 0;
    return r->unbound && twochoice_priv_choose(p, r, now_ns, out);
}

QOS_API void twochoice_placement_step(struct twochoice_placement *placement, uint64_t now_ns,
                                      struct twochoice_place_order *order)
{
    uint32_t i;
    QOS_ASSERT(placement && order);
    now_ns = twochoice_priv_now(&placement->clock, now_ns);
    __builtin_memset(order, 0, sizeof *order);
    order->next_ns = QOS_NEVER;
    for (i = 0; i < placement->max_requests; i++) {
        struct twochoice_priv_request *r = &placement->request[i];
        if (r->id == 0)
            continue;
        if (r->due_ns <= now_ns && twochoice_priv_step(placement, r, now_ns, order)) {
            r->due_ns = now_ns; /* there may be more to do */
            return;
        }
        if (r->id)
            order->next_ns = qos_min(order->next_ns, twochoice_priv_caller_ns(&placement->clock, r->due_ns));
    }
}

QOS_API enum qos_status twochoice_placement_stats(const struct twochoice_placement *placement, uint32_t id,
                                                  struct qos_stats *out)
{
    QOS_ASSERT(placement && out);
    if (id != QOS_NONE)
        return QOS_ENOENT;
    qos_counters_read(&placement->counters, out);
    return QOS_OK;
}

QOS_API const char *twochoice_intake_config_error(const struct twochoice_intake_config *config)
{
    if (!config)
        return "config: is NULL; give a struct twochoice_intake_config";
    if (config->max_reservations > TWOCHOICE_RESERVATIONS_MAX)
        return "max_reservations: give 1..TWOCHOICE_RESERVATIONS_MAX, or 0 for 4096";
    if (config->parallel > TWOCHOICE_RESERVATIONS_MAX)
        return "parallel: give 1..TWOCHOICE_RESERVATIONS_MAX, or 0 for 1";
    if (config->op_cost_bytes != QOS_NOTHING && config->op_cost_bytes > TWOCHOICE_LEN_MAX)
        return "op_cost_bytes: give up to TWOCHOICE_LEN_MAX, QOS_NOTHING, or 0 for 64 KiB";
    if (config->timeout_ns > TWOCHOICE_TIME_MAX)
        return "timeout_ns: give 1..TWOCHOICE_TIME_MAX, or 0 for 50 ms";
    return NULL;
}

QOS_PRIV void twochoice_priv_intake_layout(struct qos_layout *layout, void *mem, struct twochoice_intake *in,
                                           const struct twochoice_intake_config *config)
{
    qos_layout_begin(layout, mem);
    in->max = (uint32_t)qos_default(config->max_reservations, 4096);
    in->chains = 1;
    while (in->chains < in->max)
        in->chains *= 2;
    QOS_LAYOUT_SET(layout, in->entry, in->max);
    QOS_LAYOUT_SET(layout, in->peer, in->max);
    QOS_LAYOUT_SET(layout, in->own_link, in->max);
    QOS_LAYOUT_SET(layout, in->waiting_link, in->max);
    QOS_LAYOUT_SET(layout, in->turn_link, in->max);
    QOS_LAYOUT_SET(layout, in->entry_chain, in->chains);
    QOS_LAYOUT_SET(layout, in->peer_chain, in->chains);
}

QOS_API size_t twochoice_intake_memsize(const struct twochoice_intake_config *config)
{
    struct twochoice_intake scratch;
    struct qos_layout layout;
    if (twochoice_intake_config_error(config))
        return 0;
    twochoice_priv_intake_layout(&layout, NULL, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status twochoice_intake_init(struct twochoice_intake *intake, void *mem, size_t size_bytes,
                                              const struct twochoice_intake_config *config)
{
    struct twochoice_intake in;
    struct qos_layout layout;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(intake);
    if (twochoice_intake_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    __builtin_memset(&in, 0, sizeof in);
    twochoice_priv_intake_layout(&layout, NULL, &in, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    twochoice_priv_intake_layout(&layout, mem, &in, config);
    in.server = config->server;
    in.max_per_client = (uint32_t)qos_default(config->max_per_client, 64);
    in.parallel = (uint32_t)qos_default(config->parallel, 1);
    in.op_cost = config->op_cost_bytes == QOS_NOTHING ? 0 : qos_default(config->op_cost_bytes, 65536);
    in.timeout_ns = qos_default(config->timeout_ns, UINT64_C(50000000));
    in.clock.back_ns = in.timeout_ns / 4;
    in.turn.head = in.turn.tail = in.waiting.head = in.waiting.tail = in.young = QOS_NONE;
    for (i = 0; i < in.max; i++)
        in.entry[i].chain = in.peer[i].chain = i + 1 < in.max ? i + 1 : QOS_NONE;
    for (i = 0; i < in.chains; i++)
        in.entry_chain[i] = in.peer_chain[i] = QOS_NONE;
    *intake = in;
    return QOS_OK;
}

/* -- reservations -- */

QOS_PRIV uint64_t twochoice_priv_cost(const struct twochoice_intake *in, uint64_t len_bytes)
{
    return qos_min(len_bytes, TWOCHOICE_LEN_MAX) + in->op_cost;
}

/* Fibonacci hashing; the first round spreads the clients. */
QOS_PRIV uint32_t twochoice_priv_chain_of(const struct twochoice_intake *in, uint64_t client, uint64_t turn)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15), h = qos_wrap_mul(client, odd);
    return (uint32_t)(qos_wrap_mul(h ^ h >> 32 ^ turn, odd) >> 32) & (in->chains - 1);
}

QOS_PRIV uint32_t twochoice_priv_entry_of(const struct twochoice_intake *in, uint64_t client, uint64_t request,
                                          uint64_t turn)
{
    uint32_t i = in->entry_chain[twochoice_priv_chain_of(in, client, turn)];
    for (; i != QOS_NONE; i = in->entry[i].chain) {
        const struct twochoice_priv_entry *e = &in->entry[i];
        if (e->turn == turn && e->request == request && in->peer[e->peer].client == client)
            break;
    }
    return i;
}

/* In a list, at its end, or out of it. */
QOS_PRIV void twochoice_priv_listed(struct twochoice_priv_list *l, struct twochoice_priv_link *link, uint32_t i,
                                    bool in)
{
    struct twochoice_priv_link *k = &link[i];
    if (in) {
        k->prev = l->tail;
        k->next = QOS_NONE;
    }
    *(k->prev == QOS_NONE ? &l->head : &link[k->prev].next) = in ? i : k->next;
    *(k->next == QOS_NONE ? &l->tail : &link[k->next].prev) = in ? i : k->prev;
}

/* Frees an entry, and its client if it was the last one. */
QOS_PRIV void twochoice_priv_drop_entry(struct twochoice_intake *in, uint32_t i)
{
    struct twochoice_priv_entry *e = &in->entry[i];
    struct twochoice_priv_peer *p = &in->peer[e->peer];
    uint32_t *link = &in->entry_chain[twochoice_priv_chain_of(in, p->client, e->turn)];
    while (*link != i)
        link = &in->entry[*link].chain;
    *link = e->chain;
    e->chain = in->unused_entry;
    in->unused_entry = i;
    in->used--;
    if (--p->entries > 0)
        return;
    link = &in->peer_chain[twochoice_priv_chain_of(in, p->client, 0)];
    while (*link != e->peer)
        link = &in->peer[*link].chain;
    *link = p->chain;
    p->chain = in->unused_peer;
    in->unused_peer = e->peer;
}

/* Counts of an entry, and what follows from them. A client that was asked goes to the end of the turn. */
QOS_PRIV void twochoice_priv_count_as(struct twochoice_intake *in, uint32_t i, uint32_t left, uint32_t asked)
{
    struct twochoice_priv_entry *e = &in->entry[i];
    struct twochoice_priv_peer *p = &in->peer[e->peer];
    const bool was_in_turn = p->left > 0, asks = asked > e->asked;
    const uint32_t holds = asks ? e->holds + 1 : (uint32_t)qos_min(e->holds, asked); /* the oldest is answered */
    if (e->asked && (asks || asked == 0)) {
        in->young = in->young == i ? in->waiting_link[i].next : in->young;
        twochoice_priv_listed(&in->waiting, in->waiting_link, i, false);
    }
    if ((e->left > 0) != (left > 0))
        twochoice_priv_listed(&p->own, in->own_link, i, left > 0);
    p->left = p->left - e->left + left;
    in->left = in->left - e->left + left;
    in->reserved = in->reserved - e->left * e->cost + left * e->cost;
    in->asked = in->asked - e->asked + asked;
    in->holds = in->holds - e->holds + holds;
    in->awaited = in->awaited - e->holds * e->cost + holds * e->cost;
    if (was_in_turn && (p->left == 0 || asks))
        twochoice_priv_listed(&in->turn, in->turn_link, e->peer, false);
    if (p->left > 0 && (!was_in_turn || asks))
        twochoice_priv_listed(&in->turn, in->turn_link, e->peer, true);
    in->turns = in->turns - was_in_turn + (p->left > 0);
    e->left = left;
    e->asked = asked;
    e->holds = holds;
    if (asks)
        twochoice_priv_listed(&in->waiting, in->waiting_link, i, true);
    if (asks && in->young == QOS_NONE)
        in->young = i;
    if (left == 0 && asked == 0)
        twochoice_priv_drop_entry(in, i);
}

/* There is room for the entry and its client. */
QOS_PRIV void twochoice_priv_add_entry(struct twochoice_intake *in, const struct twochoice_message *m, uint32_t peer)
{
    uint64_t cost = twochoice_priv_cost(in, m->len_bytes);
    uint32_t i = in->unused_entry, *chain;
    struct twochoice_priv_entry *e = &in->entry[i];
    if (peer == QOS_NONE) {
        struct twochoice_priv_peer *p = &in->peer[in->unused_peer];
        peer = in->unused_peer;
        in->unused_peer = p->chain;
        chain = &in->peer_chain[twochoice_priv_chain_of(in, m->client, 0)];
        p->client = m->client;
        p->entries = p->left = 0;
        p->own.head = p->own.tail = QOS_NONE;
        p->chain = *chain;
        *chain = peer;
    }
    in->unused_entry = e->chain;
    chain = &in->entry_chain[twochoice_priv_chain_of(in, m->client, m->turn)];
    e->chain = *chain;
    *chain = i;
    in->used++;
    in->peer[peer].entries++;
    e->request = m->request;
    e->turn = m->turn;
    e->len_bytes = m->len_bytes;
    e->cost = in->work_cost ? qos_min(cost, in->work_cost) : cost;
    e->left = e->asked = e->holds = 0;
    e->peer = peer;
    twochoice_priv_count_as(in, i, (uint32_t)qos_min(m->count, TWOCHOICE_WRITES_MAX), 0);
}

/* -- times -- */

/* From an ask to its write; before the first one a guess. */
QOS_PRIV uint64_t twochoice_priv_lead_ns(const struct twochoice_intake *in)
{
    return in->lead_ns ? in->lead_ns : in->timeout_ns / 256 + 1;
}

/* How long the device completed nothing, each of what it does at once its part; 0: no longer than one of them takes. */
QOS_PRIV uint64_t twochoice_priv_late_ns(const struct twochoice_intake *in, uint64_t now_ns)
{
    uint64_t since;
    if (in->ops == 0 || in->work_cost == 0)
        return 0;
    since = qos_elapsed_ns(in->last_ns, now_ns) / in->parallel;
    return since > qos_mul_div_ceil(in->work_ns, in->cost / in->ops, in->work_cost) ? since : 0;
}

/* For so much cost, as learned; one that is late counts as far as it is. */
QOS_PRIV uint64_t twochoice_priv_time(const struct twochoice_intake *in, uint64_t now_ns, uint64_t cost)
{
    const uint64_t late_ns = twochoice_priv_late_ns(in, now_ns);
    uint64_t time = in->work_ns, of = in->work_cost;
    if (of == 0)
        return 0;
    if (late_ns) {
        time = time / 2 + qos_min(late_ns, TWOCHOICE_TIME_MAX);
        of = of / 2 + in->cost / in->ops;
    }
    return qos_min(qos_mul_div_ceil(cost, time, of), TWOCHOICE_TIME_MAX);
}

/* Until a write asked for now would begin: all but parallel - 1 of those in flight and asked for drain. */
QOS_PRIV uint64_t twochoice_priv_drain(const struct twochoice_intake *in, uint64_t now_ns)
{
    uint64_t n = in->ops + in->holds, cost = qos_sat_add(in->cost, in->awaited), done_ns = 0;
    if (n < in->parallel)
        return 0;
    cost = qos_mul_div_ceil(cost, n - (in->parallel - 1), n);
    if (in->ops)
        done_ns = qos_min(qos_elapsed_ns(in->last_ns, now_ns), twochoice_priv_time(in, now_ns, in->cost / in->ops));
    return qos_sat_sub(twochoice_priv_time(in, now_ns, cost), done_ns);
}

/* Of an ANSWER or ASK. ahead: cost that comes before it, beside what is in flight and asked for. */
QOS_PRIV void twochoice_priv_bounds(const struct twochoice_intake *in, uint64_t now_ns, uint64_t ahead,
                                    uint64_t len_bytes, struct twochoice_message *m)
{
    uint64_t service_ns = twochoice_priv_time(in, now_ns, twochoice_priv_cost(in, len_bytes));
    m->server = in->server;
    m->state = TWOCHOICE_UP;
    m->wait_ns = twochoice_priv_drain(in, now_ns) + twochoice_priv_time(in, now_ns, ahead);
    m->service_ns = qos_min(qos_sat_mul(service_ns, in->parallel), TWOCHOICE_TIME_MAX);
    m->idle_ns = in->ops ? 0 : qos_elapsed_ns(in->last_ns, now_ns);
}

/* When the oldest ask is given up. */
QOS_PRIV uint64_t twochoice_priv_gives_up_ns(const struct twochoice_intake *in, uint64_t now_ns)
{
    const struct twochoice_priv_entry *e = &in->entry[in->waiting.head];
    uint64_t patience_ns = in->timeout_ns;
    if (in->lead_ns)
        patience_ns = qos_min(patience_ns, 8 * in->lead_ns + twochoice_priv_time(in, now_ns, e->cost));
    return e->asked_ns + patience_ns;
}

/* When the next ask may go out, if there is someone to ask. */
QOS_PRIV uint64_t twochoice_priv_asks_ns(const struct twochoice_intake *in, uint64_t now_ns)
{
    uint64_t next_ns = QOS_NEVER, drain_ns, lead_ns = in->lead_ns;
    if (in->ops + in->holds < in->parallel)
        return now_ns;
    if (in->young != QOS_NONE) /* then it holds no place any more */
        next_ns = in->entry[in->young].asked_ns + 4 * twochoice_priv_lead_ns(in);
    if (in->work_cost == 0)
        return next_ns;
    drain_ns = twochoice_priv_drain(in, now_ns);
    if (drain_ns < 3 * lead_ns)
        return now_ns;
    if (in->ops == 0 || drain_ns == 0 || twochoice_priv_late_ns(in, now_ns) ||
        qos_elapsed_ns(in->last_ns, now_ns) >= twochoice_priv_time(in, now_ns, in->cost / in->ops))
        return next_ns; /* it drains no sooner as time goes */
    return qos_min(next_ns, now_ns + (drain_ns - 3 * lead_ns) + 1);
}

/* -- calls -- */

QOS_API bool twochoice_intake_heard(struct twochoice_intake *intake, uint64_t now_ns,
                                    const struct twochoice_message *message, struct twochoice_message *answer)
{
    uint64_t before, ahead;
    uint32_t peer, i, mine;
    QOS_ASSERT(intake && message && answer);
    now_ns = twochoice_priv_now(&intake->clock, now_ns);
    peer = intake->peer_chain[twochoice_priv_chain_of(intake, message->client, 0)];
    while (peer != QOS_NONE && intake->peer[peer].client != message->client)
        peer = intake->peer[peer].chain;
    i = twochoice_priv_entry_of(intake, message->client, message->request, message->turn);
    if (message->type == TWOCHOICE_RELEASE && i != QOS_NONE)
        twochoice_priv_count_as(intake, i, 0, 0);
    if (message->type != TWOCHOICE_RESERVE)
        return false;
    *answer = *message;
    answer->type = TWOCHOICE_ANSWER;
    answer->count = 0;
    /* Before it: the client's own, and as many of each other; 3/4 of that, as some will be declined. */
    mine = peer == QOS_NONE ? 0 : intake->peer[peer].left;
    before = qos_min((uint64_t)(intake->turns - (mine > 0)) * (mine + 1) + mine, intake->left);
    ahead = intake->left ? qos_mul_div_floor(intake->reserved, before, intake->left) : 0;
    twochoice_priv_bounds(intake, now_ns, ahead - ahead / 4, message->len_bytes, answer);
    if (i != QOS_NONE) /* said before */
        return true;
    if (intake->unused_entry == QOS_NONE || message->count == 0 ||
        (peer != QOS_NONE && intake->peer[peer].entries >= intake->max_per_client))
        answer->state = TWOCHOICE_FULL;
    else
        twochoice_priv_add_entry(intake, message, peer);
    return true;
}

QOS_API bool twochoice_intake_ask(struct twochoice_intake *intake, uint64_t now_ns, struct twochoice_message *ask)
{
    struct twochoice_priv_entry *e;
    uint32_t i;
    QOS_ASSERT(intake && ask);
    now_ns = twochoice_priv_now(&intake->clock, now_ns);
    while (intake->waiting.head != QOS_NONE && twochoice_priv_gives_up_ns(intake, now_ns) <= now_ns) {
        intake->lost += intake->entry[intake->waiting.head].asked;
        twochoice_priv_count_as(intake, intake->waiting.head, 0, 0);
    }
    while (intake->young != QOS_NONE) {
        e = &intake->entry[intake->young];
        if (e->asked_ns + 4 * twochoice_priv_lead_ns(intake) > now_ns)
            break;
        intake->holds -= e->holds;
        intake->awaited -= e->holds * e->cost;
        e->holds = 0;
        intake->young = intake->waiting_link[intake->young].next;
    }
    if (intake->turn.head == QOS_NONE || twochoice_priv_asks_ns(intake, now_ns) > now_ns)
        return false;
    i = intake->peer[intake->turn.head].own.head;
    e = &intake->entry[i];
    __builtin_memset(ask, 0, sizeof *ask);
    ask->type = TWOCHOICE_ASK;
    ask->client = intake->peer[e->peer].client;
    ask->request = e->request;
    ask->turn = e->turn;
    ask->len_bytes = e->len_bytes;
    twochoice_priv_bounds(intake, now_ns, 0, e->len_bytes, ask);
    e->asked_ns = now_ns;
    twochoice_priv_count_as(intake, i, e->left - 1, e->asked + 1);
    return true;
}

QOS_API uint64_t twochoice_intake_next_ns(struct twochoice_intake *intake, uint64_t now_ns)
{
    uint64_t next_ns = QOS_NEVER;
    QOS_ASSERT(intake);
    now_ns = twochoice_priv_now(&intake->clock, now_ns);
    if (intake->waiting.head != QOS_NONE)
        next_ns = twochoice_priv_gives_up_ns(intake, now_ns);
    if (intake->turn.head != QOS_NONE)
        next_ns = qos_min(next_ns, twochoice_priv_asks_ns(intake, now_ns));
    return twochoice_priv_caller_ns(&intake->clock, next_ns);
}

QOS_API void twochoice_intake_begin(struct twochoice_intake *intake, uint64_t now_ns, uint64_t len_bytes)
{
    QOS_ASSERT(intake);
    now_ns = twochoice_priv_now(&intake->clock, now_ns);
    if (intake->ops == 0)
        intake->last_ns = now_ns;
    intake->ops++;
    intake->cost = qos_sat_add(intake->cost, twochoice_priv_cost(intake, len_bytes));
}

QOS_API void twochoice_intake_arrived(struct twochoice_intake *intake, uint64_t now_ns, uint64_t client,
                                      uint64_t request, uint64_t turn, uint64_t len_bytes)
{
    uint64_t own_ns, took_ns, old_ns = intake->lead_ns;
    uint32_t i = twochoice_priv_entry_of(intake, client, request, turn);
    QOS_ASSERT(intake);
    own_ns = twochoice_priv_now(&intake->clock, now_ns);
    if (i != QOS_NONE && intake->entry[i].asked) {
        const struct twochoice_priv_entry *e = &intake->entry[i];
        took_ns = qos_min(qos_elapsed_ns(e->asked_ns, own_ns), intake->timeout_ns);
        intake->lead_ns = old_ns ? old_ns - old_ns / 8 + took_ns / 8 : took_ns;
        twochoice_priv_count_as(intake, i, e->left, e->asked - 1);
    }
    twochoice_intake_begin(intake, now_ns, len_bytes);
}

QOS_API void twochoice_intake_end(struct twochoice_intake *intake, uint64_t now_ns, uint64_t len_bytes)
{
    uint64_t cost = twochoice_priv_cost(intake, len_bytes), worked_ns, typical_ns = 0;
    QOS_ASSERT(intake);
    now_ns = twochoice_priv_now(&intake->clock, now_ns);
    if (intake->ops == 0)
        return;
    worked_ns = qos_min(qos_elapsed_ns(intake->last_ns, now_ns), TWOCHOICE_TIME_MAX);
    worked_ns = qos_mul_div_floor(worked_ns, qos_min(intake->ops, intake->parallel), intake->parallel);
    if (intake->work_cost) {
        typical_ns = qos_mul_div_ceil(cost, intake->work_ns, intake->work_cost);
        worked_ns = qos_min(worked_ns, qos_sat_mul(8 * qos_min(intake->ops, intake->parallel), typical_ns));
    }
    if (worked_ns >= typical_ns / 2 || ++intake->together >= intake->parallel) {
        intake->together = 0;
        intake->work_ns -= intake->work_ns / 4;
        intake->work_cost -= intake->work_cost / 4;
    }
    intake->work_ns += qos_max(worked_ns, 1);
    intake->work_cost += cost;
    intake->ops--;
    intake->cost = intake->ops ? qos_sat_sub(intake->cost, cost) : 0;
    intake->last_ns = now_ns;
}

QOS_API enum qos_status twochoice_intake_info(const struct twochoice_intake *intake, struct twochoice_intake_state *out)
{
    QOS_ASSERT(intake && out);
    out->ops = intake->ops;
    out->cost_bytes = intake->cost;
    out->mib_ns = intake->work_cost
                      ? qos_mul_div_ceil(twochoice_priv_cost(intake, 1 << 20), intake->work_ns, intake->work_cost)
                      : 0;
    out->lead_ns = intake->lead_ns;
    out->reservations = intake->used;
    out->asked = (uint32_t)intake->asked;
    out->lost = intake->lost;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: messages =================================================================================
 *
 * A frame of qos.h (magic "2CHO", version 2, type), and behind it 64 bytes, little-endian:
 *
 *      0  server (32 bits)     4  state (16)      6  count (16)          8  client (64)         16  request (64)
 *     24  turn (64)           32  len_bytes (64)    40  wait_ns (64)      48  service_ns (64)     56  idle_ns (64)
 */

#ifndef QOS_DECLARE_ONLY

QOS_PRIV bool twochoice_priv_message_sound(const struct twochoice_message *m)
{
    return m->type >= TWOCHOICE_RESERVE && m->type <= TWOCHOICE_RELEASE && m->state <= TWOCHOICE_FULL &&
           m->count <= TWOCHOICE_WRITES_MAX;
}

QOS_API enum qos_status twochoice_message_encode(const struct twochoice_message *message, void *buf, size_t size_bytes,
                                                 size_t *len_bytes)
{
    const struct twochoice_message *m = message;
    const uint64_t field[] = {m->client, m->request, m->turn, m->len_bytes, m->wait_ns, m->service_ns, m->idle_ns};
    struct qos_writer w;
    struct qos_frame f;
    size_t i;
    QOS_ASSERT(message && buf && len_bytes);
    if (!twochoice_priv_message_sound(message))
        return QOS_ERANGE;
    if (size_bytes < TWOCHOICE_MESSAGE_BYTES)
        return QOS_EMEMORY;
    qos_writer_init(&w, (uint8_t *)buf + QOS_FRAME_HEADER_BYTES, size_bytes - QOS_FRAME_HEADER_BYTES);
    qos_write_u32(&w, m->server);
    qos_write_u16(&w, (uint16_t)m->state);
    qos_write_u16(&w, (uint16_t)m->count);
    for (i = 0; i < sizeof field / sizeof *field; i++)
        qos_write_u64(&w, field[i]);
    f.magic = TWOCHOICE_MESSAGE_MAGIC;
    f.version = TWOCHOICE_MESSAGE_VERSION;
    f.type = (uint16_t)m->type;
    f.payload_bytes = (uint32_t)w.pos;
    return qos_frame_seal(&f, buf, size_bytes, len_bytes);
}

QOS_API enum qos_status twochoice_message_decode(const void *buf, size_t size_bytes, struct twochoice_message *message)
{
    struct twochoice_message m;
    uint64_t *const field[] = {&m.client, &m.request, &m.turn, &m.len_bytes, &m.wait_ns, &m.service_ns, &m.idle_ns};
    struct qos_reader r;
    struct qos_frame f;
    enum qos_status status;
    size_t i;
    QOS_ASSERT(message);
    status = qos_frame_open(buf, size_bytes, TWOCHOICE_MESSAGE_MAGIC, TWOCHOICE_MESSAGE_VERSION, &f);
    if (status != QOS_OK)
        return status;
    qos_reader_init(&r, (const uint8_t *)buf + QOS_FRAME_HEADER_BYTES, f.payload_bytes);
    m.type = f.type;
    m.server = qos_read_u32(&r);
    m.state = qos_read_u16(&r);
    m.count = qos_read_u16(&r);
    for (i = 0; i < sizeof field / sizeof *field; i++)
        *field[i] = qos_read_u64(&r);
    if (QOS_FRAME_HEADER_BYTES + (size_t)f.payload_bytes != TWOCHOICE_MESSAGE_BYTES ||
        !twochoice_priv_message_sound(&m))
        return QOS_ECORRUPT;
    *message = m;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_TWOCHOICE_H */
