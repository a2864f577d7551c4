/* twochoice.h - burst writes without stragglers, redirects that survive a crash           SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   A parallel program ends its write phase when its slowest write ends. One storage server that is slow for a second
 *   (a straggler) holds up thousands of processes. The remedy is to write to another server, now. That takes two
 *   things. A choice: nobody knows the loads of all servers, and if all clients choose the idle ones they make new
 *   stragglers. And a memory: changing the file system's metadata would invalidate every client's cache, so the
 *   object's own ("home") server keeps a redirect table: these bytes of this object are on that server. The table is
 *   asked before every read and changed at every redirected write, and must not lose an entry when the server dies;
 *   in idle times the bytes are pulled home and the entries deleted.
 *
 *   Three parts, each usable alone: twochoice_scheduler (a client's: which servers to ask, which to take),
 *   twochoice_detector (a server's: its load, and the writes that it must expect), twochoice_table (a home server's).
 *
 * SYNOPSIS
 *
 *     #include "twochoice.h"
 *     #include <stdlib.h>
 *     #include <string.h>
 *
 *     int main(void)
 *     {
 *         struct twochoice_table_config cfg;              // memory only; give it a storage to survive a crash
 *         struct twochoice_table t;
 *         struct twochoice_piece p[4];
 *         void *mem;
 *         size_t n;
 *         memset(&cfg, 0, sizeof cfg);
 *         cfg.max_fragments = 1000;
 *         cfg.home = 1;
 *         mem = aligned_alloc(64, twochoice_table_memsize(&cfg));
 *         if (!mem || twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg) != QOS_OK)
 *             return 1;
 *         if (twochoice_table_reserve(&t) != QOS_OK)      // room for the entry, before any data is sent
 *             return 1;
 *         // ... the client writes bytes 100..299 of object 7 to server 2, which makes them durable ...
 *         if (twochoice_create(&t, 7, 100, 200, 2, true) != QOS_OK || twochoice_commit(&t) != QOS_OK)
 *             return 1;                                   // only now is the write acknowledged
 *         n = twochoice_query(&t, 7, 0, 1000, p, 4);      // local [0,100), server 2 [100,300), local [300,1000)
 *         free(mem);
 *         return n == 3 && p[1].target == 2 ? 0 : 1;
 *     }
 *
 * CONTRACT
 *
 *   - See qos.h for what holds for every header. Single owner: one thread, or under one lock, for each object.
 *   - Placement: a decision over k writes asks at most 2k distinct servers and sends each at most ceil(k / candidates)
 *     of the writes. Servers known to be down or full are never drawn. Who does not answer is replaced `tries` times.
 *   - Memory is fixed: at most 64 bytes per fragment, whatever the pattern of writes and however many objects the
 *     fragments belong to. A full pool is an error (QOS_EFULL) of `reserve`, before data is written elsewhere.
 *   - Order of a redirected write: reserve; data durable at the target; create; commit; acknowledge. Of a write at
 *     home: data durable; local; commit; acknowledge. Of a pull: start; read; ready; write at home, durable; finish;
 *     commit; drop the copy at the target. Commits may be shared by any number of changes.
 *   - After a crash at any point, recover gives a table that holds every change whose commit returned QOS_OK, possibly
 *     some that came later, in order, and none else - or an error that says what is damaged. Never a wrong location.
 *   - No pointer is stored in the memory: a table may be copied or mapped elsewhere if struct twochoice_table is
 *     rebuilt.
 *
 * WORKED EXAMPLE: the paper's Figure 9
 *
 *   Server 1 is the home of object 1. Ranges are [from, to). (The text leaves entries 2 and 3 open but that they lie
 *   inside 300-900; entry 1 says that all is local.)
 *
 *       2. create 400-600 OSD-2       OSD-2 400-600
 *       3. create 600-800 OSD-3       OSD-2 400-600, OSD-3 600-800
 *       4. create 200-500 OSD-3       OSD-3 200-500, OSD-2 500-600, OSD-3 600-800
 *          pull_start at 200          hands out 200-500 of OSD-3, version 3
 *       5. create 300-900 OSD-4       OSD-3 200-300, OSD-4 300-900
 *       6. pull_finish                OSD-4 300-900: only 200-300 still carried version 3, and is local now
 *          query 200-600              local 200-300, OSD-4 300-600
 *
 *   The pull copied 200-500, but 300-500 was redirected anew meanwhile, and the copy is stale there. The paper deletes
 *   by entry, and answers "[200, 500] is actually stored locally" (Section V-B): it loses the newer data of 300-500.
 *
 * ALGORITHM
 *
 *   Placement (Section III). `ask` draws 2k distinct servers by a partial Fisher-Yates shuffle, undone afterwards:
 *   O(k), and a function of the generator alone. `decide` keeps the k of least load / weight, compared exactly by cross
 *   products, with a bounded heap: O(k log k). Ties: the earlier probe. Then a write whose home is kept goes
 *   home (no redirect), and the others take the kept servers in turn.
 *
 *   Preassign (Section III-C). A probed server replies with its load l, then counts P(l) * len more, until the decision
 *   says len or nothing, or timeout_ns has passed. P is kept for 64 ranges of load, in 1/65536; a decision moves it
 *   by 1/8 towards 1 or 0 (learn_shift). A range never seen takes the nearest one that was; at first P is 1/2, as k of
 *   2k are chosen. A chosen write is promised, with a timeout of its own, until it arrives.
 *
 *   What to expect (`simulate twochoice`: 1,000 servers, 10,000 writes, k = 100, 20 of 100 nodes undecided at once):
 *   up to 40 % stragglers preassign ends within 1.13 of the ideal, collaborative probe within 1.2; two-choice takes 4
 *   times as long from 5 % on. Of 2k drawn, more than k may be stragglers: at 50 % with k = 100, from 20 % with k = 8,
 *   both take 3 times the ideal. A pool of reused probes, as in Prequal (NSDI 2024), does better there (1.6, and 1.1
 *   times), as it may use one good server many times; below it does worse with k = 100 (1.6), as many pools find the
 *   same servers. Peers' loads that ride along reach more servers (at 50 % a quarter of the writes on stragglers), but
 *   they are old: below 50 % they cost 10 to 20 %. When all nodes probe at once and nothing straggles, fixed placement
 *   is best and collaborative probe worst; preassign mends part of that (Section III-C).
 *
 *   Load (Section V-D): operations in flight * op_cost_bytes + bytes in flight + what is preassigned.
 *
 *   Redirect table (Section V-B). A B+tree, keyed by (object, offset), over a fixed pool of 512-byte nodes with 32-bit
 *   indices. A query costs what it misses in the caches, hence small leaves: a leaf of which all fragments are of one
 *   object and within 4 GiB is narrow, and holds 30 of 16 bytes (start and end less a base, and one word of version
 *   and target); any other is wide, and holds 15 of 32 bytes. Leaves change their form as need be, with the base in the
 *   middle. An inner node has 24 children. Keys stand in columns. A search compares, without a branch, three or four
 *   keys and then at most six, and all eight lines of the next node are asked for at once: one miss per level.
 *   Nodes are made roomy, or refilled, on the way down; there are no parent pointers. A full narrow leaf is halved. A
 *   full wide leaf, or inner node, first shares with a neighbour; two full neighbours become three. So every leaf but
 *   under a tiny root holds at least 9, every inner node 14 of 24, and nothing costs more than 512/9 * (1 + 1/14 +
 *   1/14^2 + ...) = 61.3 bytes a fragment; in random order wide leaves take 46, narrow ones 26. A narrow leaf that must
 *   become wide and has more than 15 is dealt out, alone or with a neighbour, in parts of 9 to 14: at most two leaves
 *   more, for which inner nodes keep room. Local bytes take no space: what no fragment covers is at home.
 *
 *   Versions. Every change is stamped with the next of 2^48 - 1 versions; the bytes it redirects carry it. A pull is
 *   handed a live piece with its stamp, and finish converts only bytes that still carry it. Adjacent fragments of one
 *   target are joined, and the joined fragment takes the newer stamp, unless an open pull may have been handed the
 *   older one: no stamp of a version given out after the last pull_start has been handed out, so one comparison
 *   decides.
 *
 *   Log. Records of 48 bytes; a chain of CRC32C ties each to the one before. Each says how many before it were not
 *   yet durable. So recovery can tell a tail that a crash cut (dropped) from a damaged record that
 *   somebody was told is safe (QOS_ECORRUPT). A compaction writes the live fragments to a second log, in steps, while
 *   changes go to both, and swaps when both say the same.
 *
 *   Maintainer (Section V-C). A step function: rests until the home has been idle for idle_ns, asks a target for its
 *   load unless that is known, starts pulls of idle targets within a token bucket, and goes around the table.
 *
 * WHERE WE DIFFER from the paper
 *
 *   - The paper appends every operation to a list per object and searches it backwards, O(n). Here: O(log n).
 *   - The paper's delete entry takes the time at which the pull started (Section V-C, Figure 10), which is not enough
 *     (Figure 9, above): bytes must be compared, not entries. Stamps per fragment subsume it.
 *   - The Min/Max pair (Section V-B) loses data: create 0-100 and 100-200 on OSD-2; pull 0-100 and, meanwhile, create
 *     50-80 on OSD-3: the delete of 0-100 moves Min to 100, and a query of [50, 80] says "local". There is no such
 *     pair.
 *   - A write that lands at home over a redirected range is recorded (local): the paper does not mention it.
 *   - Section V-A has the home server among the two choices, Section III draws both at random: include_home says.
 *   - While a pull writes its bytes at home, an overlapping home write waits, and the reverse (write_begin, ready).
 *
 * TUNABLES (define before the first include)
 *
 *   TWOCHOICE_MAX_FRAGMENTS   default of max_fragments: 65536 (4 MiB of memory: 64 GiB redirected in pieces of 1 MiB)
 *   TWOCHOICE_MAX_HOLDS       default of max_holds: 64 pulls and home writes at once; each change of one looks at all
 *
 *   TWOCHOICE_MIN_WRITE_BYTES default of min_write_bytes: 1024 (Section VI-A1: a probe costs more than such a write)
 *   TWOCHOICE_TRIES           default of tries: 2. With a tenth of the servers dead, 1 in 1000 probes finds nobody
 *   TWOCHOICE_LOAD_BUCKETS    ranges of load that P(load) tells apart: 64, of bucket_bytes (1 MiB) each
 *
 *   A log of max_log_bytes = 96 * (max_fragments + 2) always has room for a compaction. Compact when it is half full.
 *
 * REFERENCES
 *
 *   D. Dai, Y. Chen, D. Kimpe, R. Ross: Two-Choice Randomized Dynamic I/O Scheduler for Object Storage Systems, SC
 *   2014.
 *   D. Comer: The Ubiquitous B-Tree, ACM Computing Surveys 11(2), 1979 (B*-trees: two nodes become three).
 */
#ifndef QOS_TWOCHOICE_H
#define QOS_TWOCHOICE_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ------------------------------------------------------------------------------- */

#ifndef TWOCHOICE_MAX_FRAGMENTS
#define TWOCHOICE_MAX_FRAGMENTS 65536
#endif
#ifndef TWOCHOICE_MAX_HOLDS
#define TWOCHOICE_MAX_HOLDS 64
#endif
#if TWOCHOICE_MAX_FRAGMENTS < 1 || TWOCHOICE_MAX_HOLDS < 1 || TWOCHOICE_MAX_HOLDS > 1024
#error "twochoice.h: TWOCHOICE_MAX_FRAGMENTS is at least 1, TWOCHOICE_MAX_HOLDS 1..1024"
#endif

#ifndef TWOCHOICE_MIN_WRITE_BYTES
#define TWOCHOICE_MIN_WRITE_BYTES 1024
#endif
#ifndef TWOCHOICE_TRIES
#define TWOCHOICE_TRIES 2
#endif
#ifndef TWOCHOICE_LOAD_BUCKETS
#define TWOCHOICE_LOAD_BUCKETS 64 /* of the history P(load) */
#endif
#if TWOCHOICE_LOAD_BUCKETS < 2 || TWOCHOICE_LOAD_BUCKETS > 4096
#error "twochoice.h: TWOCHOICE_LOAD_BUCKETS is 2..4096"
#endif

/* ---- constants and types ------------------------------------------------------------------------- */

#define TWOCHOICE_SERVERS_MAX 65535                          /* server ids are 0..65534 */
#define TWOCHOICE_LOCAL UINT32_MAX                           /* target: the home server itself */
#define TWOCHOICE_FRAGMENTS_MAX (UINT32_C(1) << 30)          /* in one table */
#define TWOCHOICE_VERSION_MAX ((UINT64_C(1) << 48) - 1)      /* 8.9 years at a million creates a second */
#define TWOCHOICE_LOG_UNLIMITED UINT64_C(0x7fffffffffffffff) /* max_log_bytes: only the device is the limit */
#define TWOCHOICE_RECORD_BYTES 48                            /* every record of the log */
#define TWOCHOICE_LOG_VERSION 1
#define TWOCHOICE_ACTIVE_LOG 0
#define TWOCHOICE_NEXT_LOG 1
#define TWOCHOICE_ACCEPT_PREFIX 1u /* recover: keep what stands before the damage, and report it */

/* A range [offset, end) of an object and where its bytes are. */
struct twochoice_piece {
    uint64_t object, offset, end; /* offset < end <= UINT64_MAX: an object holds bytes 0..2^64-2 */
    uint64_t version;             /* stamp of the create that put it there; 0 for the home server */
    uint32_t target;              /* server, or TWOCHOICE_LOCAL */
};

/* The caller's storage of the log: two byte arrays, of which one is active. Each returns 0 for success. */
struct twochoice_storage {
    void *ctx;
    /* Reads up to len bytes at offset; *got < len only at the end. */
    int (*read)(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got);
    /* Writes len bytes at offset, which is never beyond the end; not yet durable. */
    int (*write)(void *ctx, int log, uint64_t offset, const void *buf, size_t len);
    /* Returns when all that was written and truncated before is durable. */
    int (*sync)(void *ctx, int log);
    /* Cuts the log to len bytes; creates it if need be. */
    int (*truncate)(void *ctx, int log, uint64_t len);
    /* Makes TWOCHOICE_NEXT_LOG the active one, atomically and durably, and drops the old one. Failure means: the
     * old one is still active. */
    int (*swap)(void *ctx);
};

struct twochoice_table_config {
    uint32_t max_fragments; /* 1..TWOCHOICE_FRAGMENTS_MAX; 0: TWOCHOICE_MAX_FRAGMENTS */
    uint32_t max_holds;     /* pulls and home writes under way at once, 1..1024; 0: TWOCHOICE_MAX_HOLDS */
    uint32_t home;          /* this server's id, 0..65534; written into the log */
    uint64_t max_log_bytes; /* of each log; at least 2 * 48 * (max_fragments + 2), so that a compacted log
                             * always fits; 0: TWOCHOICE_LOG_UNLIMITED */
    const struct twochoice_storage *storage; /* copied; NULL: no log, the table is lost with the process */
};

#define TWOCHOICE_WIDE_SLOTS 15   /* fragments in a wide leaf */
#define TWOCHOICE_NARROW_SLOTS 30 /* fragments in a narrow leaf */
#define TWOCHOICE_INNER_SLOTS 24  /* children of an inner node */
#define TWOCHOICE_LEAF_LEAST 9    /* fewest, but for the root and its only two children */
#define TWOCHOICE_INNER_LEAST 14

/* Node of the tree: 8 cache lines. Keys stand in columns, so that a search reads nothing else. A leaf is wide, or, if
 * its fragments are all of one object and lie within 4 GiB, narrow: then it says the object and a base once. */
struct twochoice_priv_node {
    uint32_t count, next, prev; /* leaves are linked in both directions; free nodes by next */
    uint32_t narrow;
    uint64_t object, base; /* of a narrow leaf */
    union {
        struct {
            uint64_t object[TWOCHOICE_WIDE_SLOTS], offset[TWOCHOICE_WIDE_SLOTS], end[TWOCHOICE_WIDE_SLOTS];
            uint64_t tag[TWOCHOICE_WIDE_SLOTS]; /* version << 16 | target */
        } wide;
        struct {
            uint32_t from[TWOCHOICE_NARROW_SLOTS], to[TWOCHOICE_NARROW_SLOTS]; /* less the base */
            uint64_t tag[TWOCHOICE_NARROW_SLOTS];
        } narrow;
        struct {
            uint64_t object[TWOCHOICE_INNER_SLOTS], offset[TWOCHOICE_INNER_SLOTS];
            uint32_t child[TWOCHOICE_INNER_SLOTS];
        } inner;
    } u;
};
QOS_STATIC_ASSERT(sizeof(struct twochoice_priv_node) == 512, "a node is eight cache lines");

/* A range in use: by a pull (its live piece) or by a write at home that is not recorded yet. */
struct twochoice_priv_hold {
    uint64_t object, offset, end;
    uint64_t tag;   /* of the piece that is pulled */
    uint32_t state; /* TWOCHOICE_PRIV_FREE, ... */
    uint32_t unused_zero;
};

/* The end of a log. */
struct twochoice_priv_tail {
    uint64_t bytes, unsynced; /* records appended since the last sync */
    uint32_t crc;             /* of the last record */
    bool dirty;               /* there may be something behind the end */
};

struct twochoice_table {
    struct twochoice_priv_node *node;
    struct twochoice_priv_hold *hold;
    struct twochoice_storage storage;
    bool has_storage;
    uint32_t root, height, node_count, nodes_used, free_node;
    uint32_t fresh_node; /* nodes from here on were never used */
    uint32_t fragments, max_fragments, reserved, max_holds, home;
    uint32_t pulls_open;
    uint64_t pulls_newest; /* version when the latest pull was handed its piece */
    uint64_t version;      /* latest stamp given out */
    bool log_open, log_broken, compacting;
    struct twochoice_priv_tail tail[2]; /* of the active and the next log */
    uint64_t max_log_bytes, generation;
    uint64_t cursor_object, cursor_offset; /* the compaction has copied everything before */
};

struct twochoice_table_counts {
    uint32_t fragments, max_fragments, reserved, nodes_used, nodes, pulls_open;
    uint64_t version, log_bytes, max_log_bytes, unsynced_records;
    bool compacting, log_broken;
};

struct twochoice_recovery {
    uint64_t records;       /* replayed, the header not counted */
    uint64_t valid_bytes;   /* of the log */
    uint64_t dropped_bytes; /* behind them: a torn tail that nobody was told is there */
};

#define TWOCHOICE_PULL_UNLIMITED UINT64_MAX /* rate_bytes_per_s */
#define TWOCHOICE_REMOTE_SLOTS 64

struct twochoice_maintainer_config {
    uint64_t rate_bytes_per_s; /* of all pulls, up to QOS_RATE_MAX; 0: 64 MiB/s */
    uint64_t piece_bytes;      /* most that one pull takes, 1..QOS_TOKENS_MAX; 0: 1 MiB */
    uint64_t idle_load;        /* a server is idle up to this load (twochoice_load) */
    uint64_t idle_ns;          /* the home must have been idle for so long; also how long a target's load is believed;
                                * 0: 100 ms */
};

/* Pulls redirected bytes home while nobody else needs the servers (Section V-C). */
struct twochoice_maintainer {
    struct qos_bucket bucket;
    uint64_t rate_bytes_per_s, piece_bytes, idle_load, idle_ns;
    uint64_t quiet_since_ns; /* QOS_NEVER: the home is busy */
    uint64_t object, offset; /* goes through the table, and around */
    struct {
        uint64_t load, at_ns;
        uint32_t target;
        bool known;
    } remote[TWOCHOICE_REMOTE_SLOTS];
};

enum twochoice_todo {
    TWOCHOICE_REST = 0,     /* nothing before next_ns */
    TWOCHOICE_ASK_LOAD = 1, /* ask piece.target for its load, and pass it to twochoice_remote_load */
    TWOCHOICE_COPY = 2      /* the pull has started: read piece, ready, write, finish; or cancel at any time */
};
struct twochoice_order {
    enum twochoice_todo todo;
    uint32_t pull;
    struct twochoice_piece piece;
    uint64_t next_ns; /* QOS_NEVER: until something changes */
};

/* What the checker finds. table and log: what each says of these bytes (target TWOCHOICE_LOCAL: nothing). */
enum twochoice_disagreement {
    TWOCHOICE_TREE_BROKEN = 1,    /* the tree breaks its own rules: see twochoice_table_verify */
    TWOCHOICE_LOG_UNREADABLE = 2, /* damaged; what stands before is compared */
    TWOCHOICE_LOG_DIFFERS = 3,    /* table and log name different places */
    TWOCHOICE_DATA_MISSING = 4,   /* the target does not have the bytes */
    TWOCHOICE_DATA_UNKNOWN = 5    /* nobody could say whether it has */
};
struct twochoice_checker {
    void *ctx;
    /* Does piece->target hold the bytes? > 0 yes, 0 no, < 0 not known. NULL: data are not checked. */
    int (*has_data)(void *ctx, const struct twochoice_piece *piece);
    void (*report)(void *ctx, enum twochoice_disagreement what, const struct twochoice_piece *table,
                   const struct twochoice_piece *log);
};

#define TWOCHOICE_PROBE_EVERY UINT64_MAX /* min_write_bytes: no write is too small to be placed */
#define TWOCHOICE_NO_TRIES UINT32_MAX    /* tries: never draw again */
#define TWOCHOICE_WRITES_MAX 16384       /* writes in one decision */
#define TWOCHOICE_WEIGHT_MAX (UINT32_C(1) << 20)

enum twochoice_policy {
    TWOCHOICE_COLLABORATIVE = 0, /* 2k servers for k writes, the k least loaded; with or without preassign there */
    TWOCHOICE_FIXED = 1,         /* every write at home */
    TWOCHOICE_RANDOM = 2,        /* one random server */
    TWOCHOICE_NATIVE = 3         /* two random servers for each write, the less loaded */
};

enum twochoice_server_state { TWOCHOICE_UP = 0, TWOCHOICE_DOWN = 1, TWOCHOICE_FULL = 2 };

struct twochoice_scheduler_config {
    uint32_t servers;         /* ids 0..servers-1; 1..TWOCHOICE_SERVERS_MAX */
    uint32_t max_writes;      /* k, at most, in one decision: 1..TWOCHOICE_WRITES_MAX; 0: 128 */
    uint32_t policy;          /* enum twochoice_policy */
    uint32_t tries;           /* how often probes that found nobody are drawn again; 0: TWOCHOICE_TRIES */
    uint64_t min_write_bytes; /* smaller writes go home unprobed; 0: TWOCHOICE_MIN_WRITE_BYTES */
    bool include_home;        /* the homes of the writes are among the probed (Section V-A) */
    uint64_t seed;
};

/* A write to place. The caller fills in home and len_bytes. */
struct twochoice_write {
    uint32_t home, target; /* target: the answer; equal to home: no redirect */
    uint64_t len_bytes;
};

/* A server that is asked for its load, and what became of it. */
struct twochoice_probe {
    uint32_t server, weight; /* from the scheduler */
    uint32_t state;          /* the caller: TWOCHOICE_UP with a load; DOWN: no answer in time; FULL: takes no more */
    uint32_t chosen;         /* the answer: how many of the writes go there; tell it so (inform) */
    uint64_t load;           /* the caller, from the reply: any unit, the same for all; 0..2^63 */
};

struct twochoice_scheduler {
    uint32_t *order, *place;  /* permutation of the servers, those that are up in front; and where each stands */
    uint32_t *weight, *stamp; /* stamp: the number of the last draw that had it */
    uint32_t *undo, *heap;    /* scratch */
    uint8_t *state;
    uint32_t servers, up, max_writes, policy, tries, draws;
    uint64_t min_write_bytes;
    bool include_home;
    struct qos_rng rng;
    qos_counter_t granted, redirected, refused, waited;
};

/* A server's load as another one knows it. */
struct twochoice_peer {
    uint32_t server;
    uint64_t load, age_ns;
};

#define TWOCHOICE_CERTAIN 65536u      /* probability 1 */
#define TWOCHOICE_OPS_FREE UINT64_MAX /* op_cost_bytes: only bytes count */

struct twochoice_detector_config {
    uint64_t op_cost_bytes; /* load of an operation beside its bytes, 0..2^40; 0: 64 KiB */
    uint64_t bucket_bytes;  /* width of a bucket of P(load), 1..2^40; 0: 1 MiB */
    uint64_t timeout_ns;    /* a decision, or a promised write, that has not come by then never comes; 0: 200 ms */
    uint64_t lifetime_ns;   /* of a peer's load; 0: 200 ms */
    uint32_t max_probes;    /* undecided at once, 1..2^20; the oldest is given up for a new one; 0: 1024 */
    uint32_t max_peers;     /* cached loads, 1..2^20; 0: 256 */
    uint32_t learn_shift;   /* P moves by 1/2^shift per decision, 1..15; 0: 3 */
    bool no_preassign;      /* collaborative probe only (Section III-B) */
};

struct twochoice_priv_asked {
    uint64_t request, deadline_ns, len_bytes, assigned;
    uint32_t older, newer, chain, bucket;
    bool promised, used;
};

struct twochoice_priv_heard {
    uint64_t load, at_ns;
    uint32_t server;
    bool used;
};

struct twochoice_detector {
    struct twochoice_priv_asked *asked;
    uint32_t *chain; /* heads of the hash chains, max_chains of them */
    struct twochoice_priv_heard *heard;
    uint32_t max_probes, chains, max_peers, learn_shift, oldest, newest, unused, probes, cursor;
    uint64_t op_cost_bytes, bucket_bytes, timeout_ns, lifetime_ns, last_ns;
    uint64_t ops, bytes, assigned;                                         /* in flight; expected */
    uint32_t accept[TWOCHOICE_LOAD_BUCKETS], seen[TWOCHOICE_LOAD_BUCKETS]; /* P(load) in 1/65536; decisions seen */
    bool preassign;
};

/* The messages of a decision: scheduler -> server PROBE, back LOAD, then DECISION to every probed server, chosen or
 * not. DECISION and LOAD carry loads of other servers. */
enum twochoice_message_type { TWOCHOICE_PROBE = 1, TWOCHOICE_LOAD = 2, TWOCHOICE_DECISION = 3 };
#define TWOCHOICE_MESSAGE_MAGIC 0x4f484332u /* "2CHO" */
#define TWOCHOICE_MESSAGE_VERSION 1
#define TWOCHOICE_MESSAGE_BYTES(peers) ((size_t)QOS_FRAME_HEADER_BYTES + 36u + (size_t)20u * (peers))

struct twochoice_message {
    uint32_t type;
    uint32_t server;    /* whose load this is, or who is asked or told */
    uint32_t state;     /* LOAD: enum twochoice_server_state */
    uint32_t chosen;    /* DECISION: how many writes come; 0: none */
    uint64_t request;   /* the scheduler's number for this decision, unique among those undecided */
    uint64_t len_bytes; /* PROBE: of a write that may come; DECISION: of all that come */
    uint64_t load;      /* LOAD */
    struct twochoice_peer *peers;
    uint32_t peer_count; /* 0..65535 */
};

/* ---- API: redirect table ---------------------------------------------------------------------------
 * Single owner: one thread, or under one lock. Nothing blocks but the storage callbacks. */

/* Bytes of memory, aligned to 64, that init wants; 0: the configuration is out of range. At most 64 bytes per
 * fragment and 8 KiB, whatever the pattern of writes. */
QOS_API size_t twochoice_table_memsize(const struct twochoice_table_config *cfg);
/* An empty table: everything is local. QOS_EINVAL, QOS_ERANGE, QOS_EALIGN, QOS_EMEMORY. With a storage, format or
 * recover must come next. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_init(struct twochoice_table *t, void *mem, size_t size_bytes,
                                                           const struct twochoice_table_config *cfg);

/* Starts an empty log, durable on return; what the log held is gone. QOS_EBUSY: the table is not empty. QOS_EIO. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_format(struct twochoice_table *t);
/* Rebuilds the table, which must be empty (QOS_EBUSY), from the active log; an empty log is formatted. flags: 0 or
 * TWOCHOICE_ACCEPT_PREFIX. QOS_ECORRUPT: a record that was acknowledged, or may have been, is damaged; r->valid_bytes
 * says where. QOS_EVERSION: written by a newer version. QOS_EINVAL: another server's log. QOS_EFULL: more fragments
 * than max_fragments. QOS_EIO. After an error the table is empty, the log as it was. r may be NULL. O(records). */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_recover(struct twochoice_table *t, uint32_t flags,
                                                              struct twochoice_recovery *r);

/* Room for one create, before its data is written elsewhere: two fragments and one record. QOS_EFULL: write at home.
 * Released by the create that uses it, or by release. */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_reserve(struct twochoice_table *t);
QOS_API void twochoice_table_release(struct twochoice_table *t);

/* The bytes [offset, offset + len) of the object are, durably, on server `target` (0..65534, not the home): replaces
 * what the table said about them. Appends one record; acknowledge the write after commit. `reserved`: a reservation
 * is used up (QOS_EINVAL without one). len >= 1, offset + len <= UINT64_MAX (QOS_ERANGE). QOS_EFULL: pool, log or
 * versions are used up; QOS_EIO: the storage failed. O(log n) plus the fragments replaced. */
QOS_API QOS_NODISCARD enum qos_status twochoice_create(struct twochoice_table *t, uint64_t object, uint64_t offset,
                                                       uint64_t len, uint32_t target, bool reserved);
/* The same for bytes that were written at home and are durable there. No record, no error but QOS_ERANGE, if none of
 * them was redirected. */
QOS_API QOS_NODISCARD enum qos_status twochoice_local(struct twochoice_table *t, uint64_t object, uint64_t offset,
                                                      uint64_t len);
/* Makes all records durable. QOS_EIO: nothing more can be acknowledged until a compaction or a recovery. */
QOS_API QOS_NODISCARD enum qos_status twochoice_commit(struct twochoice_table *t);

/* Where the byte at `offset` is, and up to which end the answer holds. O(log n). offset < UINT64_MAX. */
QOS_API void twochoice_find(const struct twochoice_table *t, uint64_t object, uint64_t offset,
                            struct twochoice_piece *piece);
/* The pieces of [offset, offset + len), in order and without gaps, local parts included; neighbours of equal target
 * may be separate pieces. Returns how many, at most max; less than the whole range is covered only if that is max. */
QOS_API size_t twochoice_query(const struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t len,
                               struct twochoice_piece *out, size_t max);
/* The first redirected bytes at or behind (object, offset), in the order of objects and offsets; false: none. */
QOS_API bool twochoice_next(const struct twochoice_table *t, uint64_t object, uint64_t offset,
                            struct twochoice_piece *piece);
/* The oldest redirects: fills out with up to max fragments of the smallest versions, ascending; returns how many.
 * O(n log max). */
QOS_API size_t twochoice_oldest(const struct twochoice_table *t, struct twochoice_piece *out, size_t max);

/* A pull brings redirected bytes home.
 *   start   hands out the first live piece at or behind (object, offset) that no other pull has, at most max_bytes
 *           long. QOS_ENOENT: no such piece. QOS_EFULL: max_holds are in use. Then read it from piece->target.
 *   ready   the data is here: which bytes of it may be written at home now. At most max pieces; if there were more,
 *           the pull shrinks to those returned. *n may be 0. QOS_EAGAIN: a write at home is under way in the range.
 *   finish  they are durable at home: every byte whose redirect is unchanged since start is local from now on. Ends
 *           the pull but for QOS_EIO, QOS_EFULL (repeat, or cancel). Tell the target to drop its copy after commit.
 *   cancel  forgets the pull, at any time. */
QOS_API QOS_NODISCARD enum qos_status twochoice_pull_start(struct twochoice_table *t, uint64_t object, uint64_t offset,
                                                           uint64_t max_bytes, uint32_t *pull,
                                                           struct twochoice_piece *piece);
QOS_API QOS_NODISCARD enum qos_status twochoice_pull_ready(struct twochoice_table *t, uint32_t pull,
                                                           struct twochoice_piece *out, size_t max, size_t *n);
QOS_API QOS_NODISCARD enum qos_status twochoice_pull_finish(struct twochoice_table *t, uint32_t pull);
QOS_API void twochoice_pull_cancel(struct twochoice_table *t, uint32_t pull);

/* A write at home, from its submission to its record: between the two no pull writes into its range. Needed where
 * local writes are asynchronous. QOS_EAGAIN: a pull is writing there now; QOS_EFULL: max_holds are in use. */
QOS_API QOS_NODISCARD enum qos_status twochoice_write_begin(struct twochoice_table *t, uint64_t object, uint64_t offset,
                                                            uint64_t len, uint32_t *hold);
QOS_API void twochoice_write_end(struct twochoice_table *t, uint32_t hold);

/* Compaction: copies the live fragments into the next log while everything else goes on, then swaps.
 * start: QOS_EBUSY if one is under way. step: copies up to max_records; *done when the swap has happened. An error
 * (QOS_EIO) ends the compaction; the active log is as it was. */
QOS_API QOS_NODISCARD enum qos_status twochoice_compact_start(struct twochoice_table *t);
QOS_API QOS_NODISCARD enum qos_status twochoice_compact_step(struct twochoice_table *t, uint32_t max_records,
                                                             bool *done);

QOS_API void twochoice_table_stats(const struct twochoice_table *t, struct twochoice_table_counts *s);
/* QOS_ECORRUPT if the tree breaks one of its own rules (order, fill, links, counts); for tests and checkers. O(n). */
QOS_API QOS_NODISCARD enum qos_status twochoice_table_verify(const struct twochoice_table *t);

/* ---- API: maintainer and checker (Section V-C) ---------------------------------------------------------
 * By the owner of the table. The maintainer is a step function: the caller's loop is its thread. */

QOS_API QOS_NODISCARD enum qos_status twochoice_maintainer_init(struct twochoice_maintainer *m,
                                                                const struct twochoice_maintainer_config *cfg,
                                                                uint64_t now_ns);
/* One step: what to do now. local_load: of this server. Any number of pulls may be open at once (max_holds); nobody
 * need go on with them: cancel, and the bytes stay where they are. Bytes are charged when a pull starts: over w
 * seconds at most rate * w + piece_bytes are pulled. O(log n), and one more for each fragment whose server is busy. */
QOS_API QOS_NODISCARD enum qos_status twochoice_maintain(struct twochoice_maintainer *m, struct twochoice_table *t,
                                                         uint64_t now_ns, uint64_t local_load,
                                                         struct twochoice_order *order);
QOS_API void twochoice_remote_load(struct twochoice_maintainer *m, uint64_t now_ns, uint32_t target, uint64_t load);

/* Compares table, log and data, reports each disagreement, changes nothing. scratch: an empty table of the same
 * configuration in memory of its own, for the log's replay (QOS_EBUSY if it is not empty; afterwards it is what the
 * log says); NULL: the log is not compared. *found: how many were reported. */
QOS_API QOS_NODISCARD enum qos_status twochoice_check(const struct twochoice_table *t, struct twochoice_table *scratch,
                                                      const struct twochoice_checker *checker, uint64_t *found);

/* ---- API: placement (client side; Section III) -------------------------------------------------------
 * Single owner. One decision: draw, send a PROBE to each, fill in state and load from the replies, redraw while it says
 * so, decide, send the writes, send a DECISION to each probed server. */

QOS_API size_t twochoice_scheduler_memsize(const struct twochoice_scheduler_config *cfg);
QOS_API QOS_NODISCARD enum qos_status twochoice_scheduler_init(struct twochoice_scheduler *s, void *mem,
                                                               size_t size_bytes,
                                                               const struct twochoice_scheduler_config *cfg);
/* What is known about a server from now on. weight 1..TWOCHOICE_WEIGHT_MAX: loads are compared as load / weight,
 * exactly; 0: as it was (1 at first). QOS_ENOENT, QOS_ERANGE. O(1). */
QOS_API QOS_NODISCARD enum qos_status twochoice_set_server(struct twochoice_scheduler *s, uint32_t server,
                                                           enum twochoice_server_state state, uint32_t weight);
/* `count` distinct servers that are up, each set of them equally likely; fewer if fewer are up. Returns how many.
 * O(count): a partial Fisher-Yates shuffle, undone afterwards, so that the draw depends on the generator only. */
QOS_API size_t twochoice_draw(struct twochoice_scheduler *s, size_t count, uint32_t *out);
/* Whom to ask about k writes: up to 2k probes into `probes`, which holds 2k. *n = 0: nobody, decide at once. NATIVE:
 * two for each write that is large enough, in the order of the writes. QOS_ERANGE: k is 0 or above max_writes. */
QOS_API QOS_NODISCARD enum qos_status twochoice_ask(struct twochoice_scheduler *s, const struct twochoice_write *w,
                                                    size_t k, struct twochoice_probe *probes, size_t *n);
/* Replaces probes that came back DOWN or FULL by servers not yet asked; *changed: how many, to be asked now.
 * COLLABORATIVE only. `round`: 0, 1, ...: *changed is 0 from `tries` on. */
QOS_API QOS_NODISCARD enum qos_status twochoice_redraw(struct twochoice_scheduler *s, struct twochoice_probe *probes,
                                                       size_t n, uint32_t round, size_t *changed);
/* Sets the target of each write and `chosen` of each probe. The candidates are the probes that are UP; peers' cached
 * loads may be appended as probes (max 4k probes in all). COLLABORATIVE keeps the k of least load / weight; equal ones:
 * the earlier probe. A write whose home is kept goes there; the others take the rest in order. Fewer than k candidates
 * take turns. No candidate: home. O(n log k). */
QOS_API QOS_NODISCARD enum qos_status twochoice_decide(struct twochoice_scheduler *s, struct twochoice_write *w,
                                                       size_t k, struct twochoice_probe *probes, size_t n);
/* granted: bytes placed; borrowed: bytes of them away from home; refused: probes that found nobody; waited: writes that
 * were probed for. */
QOS_API void twochoice_scheduler_stats(const struct twochoice_scheduler *s, struct qos_stats *out);

/* ---- API: load detector and preassign (server side; Sections III-C, V-D) ------------------------------ */

QOS_API size_t twochoice_detector_memsize(const struct twochoice_detector_config *cfg);
QOS_API QOS_NODISCARD enum qos_status twochoice_detector_init(struct twochoice_detector *d, void *mem,
                                                              size_t size_bytes,
                                                              const struct twochoice_detector_config *cfg);
/* An operation of len bytes (any, not only placed writes) starts, or ends. */
QOS_API void twochoice_begin(struct twochoice_detector *d, uint64_t len_bytes);
QOS_API void twochoice_end(struct twochoice_detector *d, uint64_t len_bytes);
/* Operations and bytes in flight, plus what is expected: ops * op_cost + bytes + preassigned. */
QOS_API uint64_t twochoice_load(const struct twochoice_detector *d);
/* A PROBE: returns the load to reply with, then preassigns P(load) * len (Section III-C). */
QOS_API uint64_t twochoice_probed(struct twochoice_detector *d, uint64_t now_ns, uint64_t request, uint64_t len_bytes);
/* A DECISION: the guess is corrected to len_bytes (0: not chosen), and P(load) learns. QOS_ENOENT: not probed, or given
 * up already; a chosen write counts when it arrives. */
QOS_API QOS_NODISCARD enum qos_status twochoice_decided(struct twochoice_detector *d, uint64_t now_ns, uint64_t request,
                                                        uint64_t len_bytes);
/* The write of a decision arrives: begins, and is expected no longer. Also right for one that nobody expected, and for
 * several writes of one request. Decision and write must keep their order on the way: a write that overtook its
 * decision would be expected until timeout_ns. */
QOS_API void twochoice_arrived(struct twochoice_detector *d, uint64_t now_ns, uint64_t request, uint64_t len_bytes);
/* Gives up what is overdue: guesses and promises are taken back. Called by probed, decided and arrived. */
QOS_API void twochoice_expire(struct twochoice_detector *d, uint64_t now_ns);
/* When the next guess is overdue; QOS_NEVER: none. */
QOS_API uint64_t twochoice_detector_next_ns(const struct twochoice_detector *d);
/* P(load) in 1/65536. A load never seen: as the nearest one; 1/2 at first (k of 2k are chosen). */
QOS_API uint32_t twochoice_acceptance(const struct twochoice_detector *d, uint64_t load);
/* A peer's load became known, age_ns ago. */
QOS_API void twochoice_heard(struct twochoice_detector *d, uint64_t now_ns, uint32_t server, uint64_t load,
                             uint64_t age_ns);
/* Up to max loads of peers that are younger than the lifetime, for a reply; each call goes on where the last ended. */
QOS_API size_t twochoice_peers(struct twochoice_detector *d, uint64_t now_ns, struct twochoice_peer *out, size_t max);

/* ---- API: messages -------------------------------------------------------------------------------- */

/* *len: bytes written. QOS_EMEMORY, QOS_ERANGE, QOS_EINVAL. */
QOS_API QOS_NODISCARD enum qos_status twochoice_encode(const struct twochoice_message *m, void *buf, size_t size_bytes,
                                                       size_t *len);
/* Any bytes are safe. m->peers and m->peer_count: room for peers on entry, what there was on return (QOS_EMEMORY:
 * more). QOS_ETRUNCATED, QOS_ECORRUPT, QOS_EVERSION; *m is set only on QOS_OK. */
QOS_API QOS_NODISCARD enum qos_status twochoice_decode(const void *buf, size_t size_bytes, struct twochoice_message *m);

/* ---- implementation -------------------------------------------------------------------------------- */

#ifndef QOS_DECLARE_ONLY

#define TWOCHOICE_PRIV_NONE UINT32_MAX
#define TWOCHOICE_PRIV_GROUP 3 /* most nodes that share their entries at once */
#define TWOCHOICE_PRIV_ROW 52  /* most fragments that do */

enum { TWOCHOICE_PRIV_FREE, TWOCHOICE_PRIV_COPYING, TWOCHOICE_PRIV_WRITING, TWOCHOICE_PRIV_HOME_WRITE };

/* One fragment of the tree: a leaf and a slot in it. */
struct twochoice_priv_at {
    struct twochoice_priv_node *leaf; /* NULL: none */
    uint32_t slot;
};

/* What it says. */
struct twochoice_priv_fragment {
    uint64_t object, offset, end, tag;
};

QOS_API uint64_t twochoice_priv_tag(uint64_t version, uint32_t target)
{
    return version << 16 | target;
}

QOS_API uint32_t twochoice_priv_target(uint64_t tag)
{
    return (uint32_t)(tag & 0xffffu);
}

/* (ao, af) <= (bo, bf)? Without a branch: the answer feeds an index. As one wide number it is a compare and a
 * subtract with borrow. */
QOS_API uint32_t twochoice_priv_le(uint64_t ao, uint64_t af, uint64_t bo, uint64_t bf)
{
#if QOS_HAS_INT128
    __extension__ typedef unsigned __int128 twochoice_priv_u128;
    return ((twochoice_priv_u128)ao << 64 | af) <= ((twochoice_priv_u128)bo << 64 | bf);
#else
    return (uint32_t)(ao < bo) | ((uint32_t)(ao == bo) & (uint32_t)(af <= bf));
#endif
}

/* How many fragments of the leaf start at or before the key. First the block, then the place in it: two rounds of
 * comparisons that do not wait for each other, with no branch to mispredict. */
QOS_API uint32_t twochoice_priv_rank_wide(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset)
{
    const uint64_t *objects = leaf->u.wide.object, *offsets = leaf->u.wide.offset;
    uint32_t base = 0, rank = 0, i;
    for (i = 5; i <= 10; i += 5)
        base += twochoice_priv_le(objects[i - 1], offsets[i - 1], object, offset);
    base *= 5;
    for (i = 0; i < 5; i++)
        rank += twochoice_priv_le(objects[base + i], offsets[base + i], object, offset);
    return base + rank;
}

QOS_API uint32_t twochoice_priv_rank_narrow(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset)
{
    const uint32_t *from = leaf->u.narrow.from;
    uint32_t key, base = 0, rank = 0, i;
    if (leaf->object != object || offset < leaf->base)
        return leaf->object < object ? leaf->count : 0;
    key = (uint32_t)qos_min(offset - leaf->base, UINT32_MAX - 1); /* no fragment starts above it */
    for (i = 6; i <= 24; i += 6)
        base += from[i - 1] <= key;
    base *= 6;
    for (i = 0; i < 6; i++)
        rank += from[base + i] <= key;
    return base + rank;
}

QOS_API uint32_t twochoice_priv_rank(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset)
{
    return leaf->narrow ? twochoice_priv_rank_narrow(leaf, object, offset)
                        : twochoice_priv_rank_wide(leaf, object, offset);
}

/* The child that the key belongs to: the last whose lower bound is not above it. The first child's bound is not
 * above any key that comes here. Where all the other bounds are of the key's object, only offsets are compared. */
QOS_API uint32_t twochoice_priv_child(const struct twochoice_priv_node *inner, uint64_t object, uint64_t offset)
{
    const uint64_t *objects = inner->u.inner.object, *offsets = inner->u.inner.offset;
    uint32_t base = 0, rank = 0, i;
    if (objects[1] == object && objects[inner->count - 1] == object) {
        for (i = 6; i <= 18; i += 6)
            base += offsets[i] <= offset;
        base *= 6;
        for (i = 1; i < 6; i++)
            rank += offsets[base + i] <= offset;
    } else {
        for (i = 6; i <= 18; i += 6)
            base += twochoice_priv_le(objects[i], offsets[i], object, offset);
        base *= 6;
        for (i = 1; i < 6; i++)
            rank += twochoice_priv_le(objects[base + i], offsets[base + i], object, offset);
    }
    return base + rank;
}

/* All eight lines at once: the search and what it finds then cost one trip to memory. */
QOS_API void twochoice_priv_prefetch(const struct twochoice_priv_node *n)
{
    const char *line = (const char *)n;
    size_t i;
    for (i = 0; i < sizeof *n; i += QOS_CACHE_LINE)
        __builtin_prefetch(line + i);
}

/* Sets the number of entries; unused slots hold the key that is above all keys that anybody asks for, so that a
 * search need not know how many are in use. */
QOS_API void twochoice_priv_set_count(struct twochoice_priv_node *n, uint32_t level, uint32_t count)
{
    n->count = count;
    if (level > 0) {
        size_t bytes = (TWOCHOICE_INNER_SLOTS - count) * sizeof(uint64_t);
        __builtin_memset(n->u.inner.object + count, 0xff, bytes);
        __builtin_memset(n->u.inner.offset + count, 0xff, bytes);
    } else if (n->narrow) {
        __builtin_memset(n->u.narrow.from + count, 0xff, (TWOCHOICE_NARROW_SLOTS - count) * sizeof(uint32_t));
    } else {
        size_t bytes = (TWOCHOICE_WIDE_SLOTS - count) * sizeof(uint64_t);
        __builtin_memset(n->u.wide.object + count, 0xff, bytes);
        __builtin_memset(n->u.wide.offset + count, 0xff, bytes);
    }
}

QOS_API uint32_t twochoice_priv_new_node(struct twochoice_table *t, uint32_t level)
{
    uint32_t i = t->free_node;
    if (i != TWOCHOICE_PRIV_NONE)
        t->free_node = t->node[i].next;
    else
        i = t->fresh_node++;
    QOS_ASSERT(i < t->node_count);
    t->nodes_used++;
    t->node[i].narrow = 0;
    twochoice_priv_set_count(&t->node[i], level, 0);
    t->node[i].next = t->node[i].prev = TWOCHOICE_PRIV_NONE;
    return i;
}

QOS_API void twochoice_priv_free_node(struct twochoice_table *t, uint32_t i)
{
    t->node[i].next = t->free_node;
    t->free_node = i;
    t->nodes_used--;
}

QOS_API void twochoice_priv_move(uint64_t *column, uint32_t to, uint32_t from, uint32_t n)
{
    __builtin_memmove(column + to, column + from, n * sizeof *column);
}

/* Makes room for, or closes, one slot. */
QOS_API void twochoice_priv_leaf_shift(struct twochoice_priv_node *leaf, uint32_t to, uint32_t from)
{
    uint32_t n = leaf->count - from;
    if (leaf->narrow) {
        __builtin_memmove(leaf->u.narrow.from + to, leaf->u.narrow.from + from, n * sizeof(uint32_t));
        __builtin_memmove(leaf->u.narrow.to + to, leaf->u.narrow.to + from, n * sizeof(uint32_t));
        twochoice_priv_move(leaf->u.narrow.tag, to, from, n);
        return;
    }
    twochoice_priv_move(leaf->u.wide.object, to, from, n);
    twochoice_priv_move(leaf->u.wide.offset, to, from, n);
    twochoice_priv_move(leaf->u.wide.end, to, from, n);
    twochoice_priv_move(leaf->u.wide.tag, to, from, n);
}

QOS_API void twochoice_priv_inner_shift(struct twochoice_priv_node *p, uint32_t to, uint32_t from)
{
    uint32_t n = p->count - from;
    twochoice_priv_move(p->u.inner.object, to, from, n);
    twochoice_priv_move(p->u.inner.offset, to, from, n);
    __builtin_memmove(p->u.inner.child + to, p->u.inner.child + from, n * sizeof p->u.inner.child[0]);
}

/* Through pointers: gcc 12 hoists the access to the shorter of two arrays out of the choice between them, and then
 * takes its 15 for the bound of a loop that goes to 30. */
QOS_API struct twochoice_priv_fragment twochoice_priv_get(const struct twochoice_priv_node *leaf, uint32_t slot)
{
    struct twochoice_priv_fragment f;
    if (leaf->narrow) {
        const uint32_t *from = leaf->u.narrow.from, *to = leaf->u.narrow.to;
        const uint64_t *tag = leaf->u.narrow.tag;
        f.object = leaf->object;
        f.offset = leaf->base + from[slot];
        f.end = leaf->base + to[slot];
        f.tag = tag[slot];
    } else {
        const uint64_t *object = leaf->u.wide.object, *offset = leaf->u.wide.offset, *end = leaf->u.wide.end;
        const uint64_t *tag = leaf->u.wide.tag;
        f.object = object[slot];
        f.offset = offset[slot];
        f.end = end[slot];
        f.tag = tag[slot];
    }
    return f;
}

/* The leaf's format can say it. */
QOS_API void twochoice_priv_set(struct twochoice_priv_node *leaf, uint32_t slot, struct twochoice_priv_fragment f)
{
    if (leaf->narrow) {
        uint32_t *from = leaf->u.narrow.from, *to = leaf->u.narrow.to;
        uint64_t *tag = leaf->u.narrow.tag;
        from[slot] = (uint32_t)(f.offset - leaf->base);
        to[slot] = (uint32_t)(f.end - leaf->base);
        tag[slot] = f.tag;
    } else {
        uint64_t *object = leaf->u.wide.object, *offset = leaf->u.wide.offset, *end = leaf->u.wide.end;
        uint64_t *tag = leaf->u.wide.tag;
        object[slot] = f.object;
        offset[slot] = f.offset;
        end[slot] = f.end;
        tag[slot] = f.tag;
    }
}

/* Entries of up to three nodes in one row: 3 * 24 children, or at most 49 fragments (refill). */
struct twochoice_priv_row {
    struct twochoice_priv_fragment fragment[TWOCHOICE_PRIV_ROW];
    uint64_t object[TWOCHOICE_PRIV_GROUP * TWOCHOICE_INNER_SLOTS], offset[TWOCHOICE_PRIV_GROUP * TWOCHOICE_INNER_SLOTS];
    uint32_t child[TWOCHOICE_PRIV_GROUP * TWOCHOICE_INNER_SLOTS];
};

QOS_API void twochoice_priv_gather(struct twochoice_priv_row *row, uint32_t at, const struct twochoice_priv_node *n,
                                   uint32_t level)
{
    size_t bytes = n->count * sizeof(uint64_t);
    uint32_t i;
    if (level == 0) {
        QOS_ASSERT(at + n->count <= TWOCHOICE_PRIV_ROW);
        for (i = 0; i < n->count; i++)
            row->fragment[at + i] = twochoice_priv_get(n, i);
        return;
    }
    __builtin_memcpy(row->object + at, n->u.inner.object, bytes);
    __builtin_memcpy(row->offset + at, n->u.inner.offset, bytes);
    __builtin_memcpy(row->child + at, n->u.inner.child, n->count * sizeof(uint32_t));
}

/* Writes a leaf: narrow if everything from `low` to `high` of the object fits, with as much room on either side. */
QOS_API void twochoice_priv_write_leaf(struct twochoice_priv_node *n, const struct twochoice_priv_fragment *f,
                                       uint32_t count, bool narrow, uint64_t object, uint64_t low, uint64_t high)
{
    uint32_t i;
    n->narrow = narrow;
    n->object = object;
    n->base = narrow ? low - qos_min(low, (UINT32_MAX - (high - low)) / 2) : 0;
    twochoice_priv_set_count(n, 0, count);
    for (i = 0; i < count; i++)
        twochoice_priv_set(n, i, f[i]);
}

QOS_API void twochoice_priv_scatter(const struct twochoice_priv_row *row, uint32_t at, uint32_t count,
                                    struct twochoice_priv_node *n, uint32_t level)
{
    size_t bytes = count * sizeof(uint64_t);
    if (level == 0) {
        const struct twochoice_priv_fragment *f = row->fragment + at, *last = f + count - 1;
        bool narrow = f->object == last->object && last->end - f->offset <= UINT32_MAX;
        QOS_ASSERT(count <= (narrow ? TWOCHOICE_NARROW_SLOTS : TWOCHOICE_WIDE_SLOTS));
        twochoice_priv_write_leaf(n, f, count, narrow, f->object, f->offset, last->end);
        return;
    }
    twochoice_priv_set_count(n, level, count);
    __builtin_memcpy(n->u.inner.object, row->object + at, bytes);
    __builtin_memcpy(n->u.inner.offset, row->offset + at, bytes);
    __builtin_memcpy(n->u.inner.child, row->child + at, count * sizeof(uint32_t));
}

/* Leaves stand in a list. Inner nodes leave their links at NONE. */
QOS_API void twochoice_priv_link(struct twochoice_table *t, uint32_t left, uint32_t fresh)
{
    uint32_t right = t->node[left].next;
    t->node[fresh].prev = left;
    t->node[fresh].next = right;
    t->node[left].next = fresh;
    if (right != TWOCHOICE_PRIV_NONE)
        t->node[right].prev = fresh;
}

QOS_API void twochoice_priv_unlink(struct twochoice_table *t, uint32_t i)
{
    uint32_t left = t->node[i].prev, right = t->node[i].next;
    QOS_ASSERT(left != TWOCHOICE_PRIV_NONE); /* never the first of its group */
    t->node[left].next = right;
    if (right != TWOCHOICE_PRIV_NONE)
        t->node[right].prev = left;
}

/* Spreads the entries of `had` neighbouring children of p, from `first` on, over `gets` nodes: evenly; or, if that is
 * more than wide leaves hold, so that the others have 14 and the one that was the largest, a narrow leaf, keeps the
 * rest, all its own. Nodes come or go in second place, so that the neighbours in the list of leaves are at hand. */
QOS_API void twochoice_priv_spread(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t first,
                                   uint32_t had, uint32_t gets, uint32_t level)
{
    struct twochoice_priv_row row;
    uint32_t total = 0, at = 0, largest = 0, most = 0, left, k;
    bool even;
    for (k = 0; k < had; k++) {
        const struct twochoice_priv_node *n = &t->node[p->u.inner.child[first + k]];
        twochoice_priv_gather(&row, total, n, level);
        total += n->count;
        if (n->count > most) {
            most = n->count;
            largest = k;
        }
    }
    even = level > 0 || total <= gets * TWOCHOICE_WIDE_SLOTS;
    for (k = had; k < gets; k++) {
        uint32_t fresh = twochoice_priv_new_node(t, level);
        if (level == 0)
            twochoice_priv_link(t, p->u.inner.child[first], fresh);
        twochoice_priv_inner_shift(p, first + 2, first + 1);
        p->u.inner.child[first + 1] = fresh;
        p->count++;
    }
    if (gets < had) {
        uint32_t gone = p->u.inner.child[first + 1];
        if (level == 0)
            twochoice_priv_unlink(t, gone);
        twochoice_priv_free_node(t, gone);
        twochoice_priv_inner_shift(p, first + 1, first + 2);
        twochoice_priv_set_count(p, level + 1, p->count - 1);
    }
    left = total;
    for (k = 0; k < gets; k++) {
        uint32_t share = even           ? left / (gets - k)
                         : k == largest ? total - (gets - 1) * (TWOCHOICE_WIDE_SLOTS - 1)
                                        : TWOCHOICE_WIDE_SLOTS - 1;
        twochoice_priv_scatter(&row, at, share, &t->node[p->u.inner.child[first + k]], level);
        if (k > 0) {
            p->u.inner.object[first + k] = level == 0 ? row.fragment[at].object : row.object[at];
            p->u.inner.offset[first + k] = level == 0 ? row.fragment[at].offset : row.offset[at];
        }
        at += share;
        left -= share;
    }
}

/* Child i of p, an inner node, is full, p is not: shares with a neighbour, and when that has little room too, makes
 * three of the two. Each then has its least, and room. */
QOS_API void twochoice_priv_make_room(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i,
                                      uint32_t level)
{
    uint32_t left, both;
    if (p->count == 1) {
        twochoice_priv_spread(t, p, 0, 1, 2, level);
        return;
    }
    left = i + 1 < p->count ? i : i - 1;
    both = t->node[p->u.inner.child[left]].count + t->node[p->u.inner.child[left + 1]].count;
    twochoice_priv_spread(t, p, left, 2, both < 3 * TWOCHOICE_INNER_LEAST ? 2 : 3, level);
}

/* A full narrow leaf, child i of p: its second half moves to a fresh one. */
QOS_API void twochoice_priv_halve(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i)
{
    const uint32_t half = TWOCHOICE_NARROW_SLOTS / 2;
    uint32_t fresh = twochoice_priv_new_node(t, 0);
    struct twochoice_priv_node *n = &t->node[p->u.inner.child[i]], *m = &t->node[fresh];
    twochoice_priv_link(t, p->u.inner.child[i], fresh);
    m->narrow = 1;
    m->object = n->object;
    m->base = n->base;
    __builtin_memcpy(m->u.narrow.from, n->u.narrow.from + half, half * sizeof(uint32_t));
    __builtin_memcpy(m->u.narrow.to, n->u.narrow.to + half, half * sizeof(uint32_t));
    __builtin_memcpy(m->u.narrow.tag, n->u.narrow.tag + half, half * sizeof(uint64_t));
    twochoice_priv_set_count(m, 0, half);
    twochoice_priv_set_count(n, 0, half);
    twochoice_priv_inner_shift(p, i + 2, i + 1);
    p->u.inner.child[i + 1] = fresh;
    p->u.inner.object[i + 1] = m->object;
    p->u.inner.offset[i + 1] = m->base + m->u.narrow.from[0];
    p->count++;
}

/* Can the narrow leaf say it? */
QOS_API bool twochoice_priv_fits(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset, uint64_t end)
{
    return leaf->object == object && offset >= leaf->base && end - leaf->base <= UINT32_MAX;
}

/* Can the leaf take one more fragment as it is? */
QOS_API bool twochoice_priv_takes(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset,
                                  uint64_t end)
{
    return leaf->narrow ? leaf->count < TWOCHOICE_NARROW_SLOTS && twochoice_priv_fits(leaf, object, offset, end)
                        : leaf->count < TWOCHOICE_WIDE_SLOTS;
}

/* Can it in the other format, or from another base? Then it takes that. */
QOS_API bool twochoice_priv_reformat(struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset, uint64_t end)
{
    struct twochoice_priv_row row;
    uint64_t low = offset, high = end;
    uint32_t count = leaf->count;
    bool narrow = count < TWOCHOICE_NARROW_SLOTS;
    twochoice_priv_gather(&row, 0, leaf, 0);
    if (count > 0) {
        low = qos_min(low, row.fragment[0].offset);
        high = qos_max(high, row.fragment[count - 1].end);
        narrow = narrow && row.fragment[0].object == object && row.fragment[count - 1].object == object;
    }
    narrow = narrow && high - low <= UINT32_MAX;
    if (!narrow && count >= TWOCHOICE_WIDE_SLOTS)
        return false;
    twochoice_priv_write_leaf(leaf, row.fragment, count, narrow, object, low, high);
    return true;
}

/* Child i of p, a leaf, can take the fragment in no format, and p has two places. A narrow leaf that is only full is
 * halved. Else the fragment needs a wide one, so that no part may have more than 14: of this leaf alone, if it has
 * enough for two, or together with a neighbour (whose 30 make four parts with 15 to 17). */
QOS_API void twochoice_priv_make_leaf_room(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i,
                                           uint64_t object, uint64_t offset, uint64_t end)
{
    const struct twochoice_priv_node *n = &t->node[p->u.inner.child[i]];
    bool alone = p->count == 1;
    uint32_t other = alone ? i : i + 1 < p->count ? i + 1 : i - 1, total = n->count, had = 1;
    if (!alone && total >= 2 * TWOCHOICE_LEAF_LEAST) /* the root's only two children may have less than the least */
        alone = p->count > 2 || t->node[p->u.inner.child[other]].count >= TWOCHOICE_LEAF_LEAST;
    if (alone && n->narrow && twochoice_priv_fits(n, object, offset, end)) {
        twochoice_priv_halve(t, p, i);
        return;
    }
    if (!alone) {
        total += t->node[p->u.inner.child[other]].count;
        i = other < i ? other : i;
        had = 2;
    }
    twochoice_priv_spread(t, p, i, had,
                          total < 3 * TWOCHOICE_LEAF_LEAST          ? 2
                          : total <= 3 * (TWOCHOICE_WIDE_SLOTS - 1) ? 3
                                                                    : 4,
                          0);
}

/* Child i of p has its least or fewer: shares with two neighbours, or makes two of the three. Only a root has fewer
 * than three children: then the two share, or become one. */
QOS_API void twochoice_priv_refill(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i, uint32_t level)
{
    uint32_t slots = level == 0 ? TWOCHOICE_WIDE_SLOTS : TWOCHOICE_INNER_SLOTS - 1, first, had, total = 0, k;
    had = p->count < TWOCHOICE_PRIV_GROUP ? p->count : TWOCHOICE_PRIV_GROUP;
    QOS_ASSERT(had > 1); /* a root with one child does not outlive an erase */
    first = i == 0 ? 0 : i - 1;
    if (first + had > p->count)
        first = p->count - had;
    for (k = 0; k < had; k++)
        total += t->node[p->u.inner.child[first + k]].count;
    /* One slot stays free, lest the next insert undoes it. If they remain three, each has more than its least. */
    twochoice_priv_spread(t, p, first, had, total < (had - 1) * slots ? had - 1 : had, level);
}

/* The same of a leaf. A neighbour that can spare some gives; only then are there few enough for the three. */
QOS_API void twochoice_priv_refill_leaf(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i)
{
    uint32_t left = i > 0 ? t->node[p->u.inner.child[i - 1]].count : 0;
    uint32_t right = i + 1 < p->count ? t->node[p->u.inner.child[i + 1]].count : 0;
    if (qos_max(left, right) > TWOCHOICE_LEAF_LEAST + 1)
        twochoice_priv_spread(t, p, left > right ? i - 1 : i, 2, 2, 0);
    else
        twochoice_priv_refill(t, p, i, 0);
}

/* The leaf where the key belongs. */
QOS_API struct twochoice_priv_node *twochoice_priv_descend(const struct twochoice_table *t, uint64_t object,
                                                           uint64_t offset)
{
    struct twochoice_priv_node *n = &t->node[t->root];
    uint32_t level;
    for (level = t->height; level > 0; level--) {
        n = &t->node[n->u.inner.child[twochoice_priv_child(n, object, offset)]];
        twochoice_priv_prefetch(n);
    }
    return n;
}

/* The leaf that can take the fragment, with room for two more entries in every node on the way. *upper: a lower bound
 * of the leaf behind. */
QOS_API struct twochoice_priv_node *twochoice_priv_descend_roomy(struct twochoice_table *t, uint64_t object,
                                                                 uint64_t offset, uint64_t end,
                                                                 struct twochoice_piece *upper)
{
    struct twochoice_priv_node *p = &t->node[t->root];
    uint32_t level;
    upper->object = upper->offset = UINT64_MAX;
    if (t->height == 0
            ? !twochoice_priv_takes(p, object, offset, end) && !twochoice_priv_reformat(p, object, offset, end)
            : p->count >= TWOCHOICE_INNER_SLOTS - 1) {
        uint32_t up = twochoice_priv_new_node(t, t->height + 1);
        t->node[up].u.inner.object[0] = t->node[up].u.inner.offset[0] = 0;
        t->node[up].u.inner.child[0] = t->root;
        t->node[up].count = 1;
        t->root = up;
        t->height++;
        p = &t->node[up];
    }
    for (level = t->height; level > 0; level--) {
        uint32_t i = twochoice_priv_child(p, object, offset);
        struct twochoice_priv_node *n = &t->node[p->u.inner.child[i]];
        twochoice_priv_prefetch(n);
        if (level == 1) {
            if (!twochoice_priv_takes(n, object, offset, end) && !twochoice_priv_reformat(n, object, offset, end)) {
                twochoice_priv_make_leaf_room(t, p, i, object, offset, end);
                i = twochoice_priv_child(p, object, offset);
                n = &t->node[p->u.inner.child[i]];
                if (!twochoice_priv_takes(n, object, offset, end))
                    (void)twochoice_priv_reformat(n, object, offset, end);
            }
        } else if (n->count >= TWOCHOICE_INNER_SLOTS - 1) {
            twochoice_priv_make_room(t, p, i, level - 1);
            i = twochoice_priv_child(p, object, offset);
            n = &t->node[p->u.inner.child[i]];
        }
        if (i + 1 < p->count) {
            upper->object = p->u.inner.object[i + 1];
            upper->offset = p->u.inner.offset[i + 1];
        }
        p = n;
    }
    return p;
}

/* Removes the fragment that starts exactly there; every node on the way can spare one entry. */
QOS_API void twochoice_priv_erase(struct twochoice_table *t, uint64_t object, uint64_t offset)
{
    struct twochoice_priv_node *p = &t->node[t->root];
    uint32_t level, slot;
    for (level = t->height; level > 0; level--) {
        uint32_t i = twochoice_priv_child(p, object, offset);
        struct twochoice_priv_node *n = &t->node[p->u.inner.child[i]];
        if (n->count <= (level == 1 ? TWOCHOICE_LEAF_LEAST : TWOCHOICE_INNER_LEAST)) {
            if (level == 1)
                twochoice_priv_refill_leaf(t, p, i);
            else
                twochoice_priv_refill(t, p, i, level - 1);
            i = twochoice_priv_child(p, object, offset);
            n = &t->node[p->u.inner.child[i]];
        }
        p = n;
    }
    slot = twochoice_priv_rank(p, object, offset) - 1;
    QOS_ASSERT(twochoice_priv_get(p, slot).object == object && twochoice_priv_get(p, slot).offset == offset);
    twochoice_priv_leaf_shift(p, slot, slot + 1);
    twochoice_priv_set_count(p, 0, p->count - 1);
    t->fragments--;
    while (t->height > 0 && t->node[t->root].count == 1) {
        uint32_t gone = t->root;
        t->root = t->node[gone].u.inner.child[0];
        t->height--;
        twochoice_priv_free_node(t, gone);
    }
}

QOS_API struct twochoice_priv_at twochoice_priv_after(const struct twochoice_table *t, struct twochoice_priv_at at)
{
    if (++at.slot >= at.leaf->count) {
        at.leaf = at.leaf->next == TWOCHOICE_PRIV_NONE ? NULL : &t->node[at.leaf->next];
        at.slot = 0;
    }
    return at;
}

/* The last fragment that starts at or before the key. */
QOS_API struct twochoice_priv_at twochoice_priv_floor(const struct twochoice_table *t, uint64_t object, uint64_t offset)
{
    struct twochoice_priv_at at;
    uint32_t rank;
    at.leaf = twochoice_priv_descend(t, object, offset);
    rank = twochoice_priv_rank(at.leaf, object, offset);
    if (rank == 0) {
        at.leaf = at.leaf->prev == TWOCHOICE_PRIV_NONE ? NULL : &t->node[at.leaf->prev];
        rank = at.leaf ? at.leaf->count : 1;
    }
    at.slot = rank - 1;
    return at;
}

/* The first fragment that reaches beyond the byte: it holds it, or lies behind it, maybe in another object. */
QOS_API struct twochoice_priv_at twochoice_priv_reach(const struct twochoice_table *t, uint64_t object, uint64_t offset)
{
    /* No fragment starts at UINT64_MAX, and blank slots do. */
    struct twochoice_priv_at at = twochoice_priv_floor(t, object, qos_min(offset, UINT64_MAX - 1));
    struct twochoice_priv_fragment f;
    if (!at.leaf) {
        at.leaf = twochoice_priv_descend(t, object, offset); /* the first leaf */
        at.slot = 0;
        if (at.leaf->count == 0)
            at.leaf = NULL;
        return at;
    }
    f = twochoice_priv_get(at.leaf, at.slot);
    return f.object == object && f.end > offset ? at : twochoice_priv_after(t, at);
}

/* The bytes of an old fragment may take a newer stamp only if no open pull was handed them: its completion could
 * not tell them from changed ones. */
QOS_API bool twochoice_priv_may_merge(const struct twochoice_table *t, uint64_t old_tag, uint64_t tag)
{
    return twochoice_priv_target(old_tag) == twochoice_priv_target(tag) &&
           (t->pulls_open == 0 || old_tag >> 16 > t->pulls_newest);
}

/* Adds a fragment where nothing is. The leaf can take it, and `rank` of its fragments are before it. */
QOS_API void twochoice_priv_add(struct twochoice_table *t, struct twochoice_priv_node *leaf, uint32_t rank,
                                struct twochoice_priv_fragment f)
{
    twochoice_priv_leaf_shift(leaf, rank + 1, rank);
    twochoice_priv_set(leaf, rank, f);
    leaf->count++;
    t->fragments++;
}

/* Makes [offset, end) local. At most one fragment more than before. */
QOS_API void twochoice_priv_cut(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t end)
{
    for (;;) {
        struct twochoice_priv_at at = twochoice_priv_reach(t, object, offset);
        struct twochoice_priv_fragment f, front;
        if (!at.leaf)
            return;
        f = twochoice_priv_get(at.leaf, at.slot);
        if (f.object != object || f.offset >= end)
            return;
        front = f;
        front.end = offset;
        if (f.offset < offset)
            twochoice_priv_set(at.leaf, at.slot, front);
        else
            twochoice_priv_erase(t, object, f.offset);
        if (f.end > end) {
            struct twochoice_piece upper;
            struct twochoice_priv_node *leaf = twochoice_priv_descend_roomy(t, object, end, f.end, &upper);
            f.offset = end;
            twochoice_priv_add(t, leaf, twochoice_priv_rank(leaf, object, end), f);
            return;
        }
    }
}

/* Where a new fragment goes: the leaf with room for it, its rank there, and its neighbours (leaf NULL: too far away to
 * matter, or none). */
struct twochoice_priv_gap {
    struct twochoice_priv_node *leaf;
    uint32_t rank;
    struct twochoice_priv_at left, right;
};

QOS_API void twochoice_priv_find_gap(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t end,
                                     struct twochoice_priv_gap *g)
{
    struct twochoice_piece upper;
    struct twochoice_priv_node *leaf = twochoice_priv_descend_roomy(t, object, offset, end, &upper);
    uint32_t rank = twochoice_priv_rank(leaf, object, offset);
    g->leaf = leaf;
    g->rank = rank;
    g->left.leaf = rank > 0 ? leaf : leaf->prev == TWOCHOICE_PRIV_NONE ? NULL : &t->node[leaf->prev];
    g->left.slot = rank > 0 ? rank - 1 : g->left.leaf ? g->left.leaf->count - 1 : 0;
    g->right.leaf = leaf;
    g->right.slot = rank;
    if (rank == leaf->count) { /* the leaf behind is touched only if its lower bound says that it may matter */
        bool near = leaf->next != TWOCHOICE_PRIV_NONE && upper.object == object && upper.offset <= end;
        g->right.leaf = near ? &t->node[leaf->next] : NULL;
        g->right.slot = 0;
    }
}

/* Makes [offset, end) what the tag says, whatever was there. Equal neighbours become one wherever the stamps allow, so
 * that how many fragments there are does not depend on the shape of the tree: a replay of the log never needs more. */
QOS_API void twochoice_priv_put(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t end, uint64_t tag)
{
    for (;;) {
        struct twochoice_priv_gap g;
        struct twochoice_priv_fragment f = {object, offset, end, tag}, l = f, r = f;
        bool left, right;
        twochoice_priv_find_gap(t, object, offset, end, &g);
        if (g.left.leaf)
            l = twochoice_priv_get(g.left.leaf, g.left.slot);
        if (g.right.leaf)
            r = twochoice_priv_get(g.right.leaf, g.right.slot);
        left = g.left.leaf && l.object == object;
        right = g.right.leaf && r.object == object;
        if ((left && l.end > offset) || (right && r.offset < end)) {
            twochoice_priv_cut(t, object, offset, end);
            continue;
        }
        left = left && l.end == offset && twochoice_priv_may_merge(t, l.tag, tag);
        right = right && r.offset == end && twochoice_priv_may_merge(t, r.tag, tag);
        if (right) {
            f.end = end = r.end;
            f.tag = tag = qos_max(tag, r.tag);
            if (left || g.right.leaf != g.leaf) {
                twochoice_priv_erase(t, object, r.offset);
                continue;
            }
            /* Not below the leaf's lower bound: the key was led here. */
            twochoice_priv_set(g.leaf, g.right.slot, f);
            return;
        }
        if (!left) {
            twochoice_priv_add(t, g.leaf, g.rank, f);
            return;
        }
        f.offset = offset = l.offset;
        f.tag = tag = qos_max(tag, l.tag);
        if (g.left.leaf == g.leaf || !g.left.leaf->narrow || end - g.left.leaf->base <= UINT32_MAX) {
            twochoice_priv_set(g.left.leaf, g.left.slot, f);
            return;
        }
        twochoice_priv_erase(t, object, offset); /* and again, in a leaf that can say it */
    }
}

/* Nodes that hold max_fragments whatever happens: leaves at their least, and a tree of inner nodes at theirs. */
QOS_API uint32_t twochoice_priv_nodes(uint32_t max_fragments)
{
    uint32_t n = max_fragments / TWOCHOICE_LEAF_LEAST + 2, total = n;
    while (n > 2) {
        n = n / TWOCHOICE_INNER_LEAST + 2;
        total += n;
        if (n < TWOCHOICE_INNER_LEAST)
            break;
    }
    return total + 2;
}

struct twochoice_priv_layout {
    struct qos_layout l;
    size_t node, hold;
    uint32_t nodes, fragments, holds;
    uint64_t log_bytes;
};

QOS_API enum qos_status twochoice_priv_lay_out(const struct twochoice_table_config *cfg,
                                               struct twochoice_priv_layout *o)
{
    o->l.mem = NULL;
    o->l.size_bytes = o->l.align = 0;
    o->l.overflow = false;
    if (!cfg)
        return QOS_EINVAL;
    o->fragments = cfg->max_fragments ? cfg->max_fragments : TWOCHOICE_MAX_FRAGMENTS;
    o->holds = cfg->max_holds ? cfg->max_holds : TWOCHOICE_MAX_HOLDS;
    o->log_bytes = cfg->max_log_bytes ? cfg->max_log_bytes : TWOCHOICE_LOG_UNLIMITED;
    if (o->fragments > TWOCHOICE_FRAGMENTS_MAX || o->holds > 1024 || cfg->home >= TWOCHOICE_SERVERS_MAX ||
        o->log_bytes > TWOCHOICE_LOG_UNLIMITED ||
        o->log_bytes < UINT64_C(2) * TWOCHOICE_RECORD_BYTES * (o->fragments + UINT64_C(2)))
        return QOS_ERANGE;
    o->nodes = twochoice_priv_nodes(o->fragments);
    o->node = qos_layout_add(&o->l, o->nodes, sizeof(struct twochoice_priv_node), QOS_CACHE_LINE);
    o->hold = qos_layout_add(&o->l, o->holds, sizeof(struct twochoice_priv_hold), QOS_CACHE_LINE);
    return QOS_OK;
}

QOS_API size_t twochoice_table_memsize(const struct twochoice_table_config *cfg)
{
    struct twochoice_priv_layout o;
    return twochoice_priv_lay_out(cfg, &o) == QOS_OK ? qos_layout_size(&o.l) : 0;
}

QOS_API void twochoice_priv_clear(struct twochoice_table *t)
{
    t->free_node = TWOCHOICE_PRIV_NONE;
    t->fresh_node = 0;
    t->nodes_used = 0;
    t->height = 0;
    t->fragments = 0;
    t->version = 0;
    t->root = twochoice_priv_new_node(t, 0);
}

QOS_API enum qos_status twochoice_table_init(struct twochoice_table *t, void *mem, size_t size_bytes,
                                             const struct twochoice_table_config *cfg)
{
    struct twochoice_priv_layout o;
    enum qos_status st = twochoice_priv_lay_out(cfg, &o);
    const struct twochoice_storage *s;
    uint32_t i;
    if (!t)
        return QOS_EINVAL;
    if (st == QOS_OK)
        st = qos_layout_check(&o.l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    s = cfg->storage;
    if (s && (!s->read || !s->write || !s->sync || !s->truncate || !s->swap))
        return QOS_EINVAL;
    __builtin_memset(t, 0, sizeof *t);
    t->node = (struct twochoice_priv_node *)(void *)((char *)mem + o.node);
    t->hold = (struct twochoice_priv_hold *)(void *)((char *)mem + o.hold);
    t->has_storage = s != NULL;
    if (s)
        t->storage = *s;
    t->node_count = o.nodes;
    t->max_fragments = o.fragments;
    t->max_holds = o.holds;
    t->max_log_bytes = o.log_bytes;
    t->home = cfg->home;
    for (i = 0; i < o.holds; i++)
        t->hold[i].state = TWOCHOICE_PRIV_FREE;
    twochoice_priv_clear(t);
    return QOS_OK;
}

/* ---- implementation: the log ----------------------------------------------------------------------- */

/* A record, 48 bytes, little-endian:
 *    0  CRC32C of bytes 4..47, seeded with the CRC of the record before it (the header: with 0)
 *    4  format version (8 bits), type (8), target (16)
 *    8  object      header: the home server
 *   16  offset      header: generation, one more after each compaction
 *   24  end         header: 0
 *   32  version     header: the latest stamp when the log was begun
 *   40  how many records before this one were not yet durable when it was written (32 bits)
 *   44  the marker, of which no byte is zero
 * The stamp, the last record of a compaction, only tells the latest version.
 * The chain of CRCs ties each record to its place: a record left over from an earlier life of the log, behind a tail
 * that was cut, never fits. The header's layout is that of every future version. */
enum { TWOCHOICE_PRIV_HEADER = 1, TWOCHOICE_PRIV_REDIRECT = 2, TWOCHOICE_PRIV_HOME = 3, TWOCHOICE_PRIV_STAMP = 4 };
#define TWOCHOICE_PRIV_MARKER 0x45524332u /* "2CRE" */
#define TWOCHOICE_PRIV_CHUNK ((size_t)85 * TWOCHOICE_RECORD_BYTES)

struct twochoice_priv_record {
    uint8_t format, type;
    uint16_t target;
    uint32_t unsynced;
    uint64_t object, offset, end, version;
};

QOS_API uint32_t twochoice_priv_encode(uint8_t *b, const struct twochoice_priv_record *r, uint32_t crc_before)
{
    b[4] = r->format;
    b[5] = r->type;
    qos_put_le16(b + 6, r->target);
    qos_put_le64(b + 8, r->object);
    qos_put_le64(b + 16, r->offset);
    qos_put_le64(b + 24, r->end);
    qos_put_le64(b + 32, r->version);
    qos_put_le32(b + 40, r->unsynced);
    qos_put_le32(b + 44, TWOCHOICE_PRIV_MARKER);
    qos_put_le32(b, qos_crc32c(crc_before, b + 4, TWOCHOICE_RECORD_BYTES - 4));
    return qos_get_le32(b);
}

QOS_API bool twochoice_priv_intact(const uint8_t *b, uint32_t crc_before)
{
    return qos_get_le32(b) == qos_crc32c(crc_before, b + 4, TWOCHOICE_RECORD_BYTES - 4);
}

QOS_API void twochoice_priv_decode(const uint8_t *b, struct twochoice_priv_record *r)
{
    r->format = b[4];
    r->type = b[5];
    r->target = qos_get_le16(b + 6);
    r->object = qos_get_le64(b + 8);
    r->offset = qos_get_le64(b + 16);
    r->end = qos_get_le64(b + 24);
    r->version = qos_get_le64(b + 32);
    r->unsynced = qos_get_le32(b + 40);
}

/* Cuts off what a failed append may have left behind the end of a log. */
QOS_API enum qos_status twochoice_priv_clean(struct twochoice_table *t, int log)
{
    struct twochoice_priv_tail *tail = &t->tail[log];
    if (tail->dirty && t->storage.truncate(t->storage.ctx, log, tail->bytes) != 0)
        return QOS_EIO;
    tail->dirty = false;
    return QOS_OK;
}

/* Appends to the end of one log; nothing changes if the storage fails. */
QOS_API enum qos_status twochoice_priv_append(struct twochoice_table *t, int log, struct twochoice_priv_record *r)
{
    uint8_t b[TWOCHOICE_RECORD_BYTES];
    struct twochoice_priv_tail *tail = &t->tail[log];
    uint32_t crc;
    if (twochoice_priv_clean(t, log) != QOS_OK)
        return QOS_EIO;
    tail->dirty = true;
    r->format = TWOCHOICE_LOG_VERSION;
    r->unsynced = (uint32_t)qos_min(tail->unsynced, UINT32_MAX);
    crc = twochoice_priv_encode(b, r, tail->crc);
    if (t->storage.write(t->storage.ctx, log, tail->bytes, b, sizeof b) != 0)
        return QOS_EIO;
    tail->dirty = false;
    tail->crc = crc;
    tail->bytes += TWOCHOICE_RECORD_BYTES;
    tail->unsynced++;
    return QOS_OK;
}

/* Empties a log and writes its header; not yet durable. */
QOS_API enum qos_status twochoice_priv_begin_log(struct twochoice_table *t, int log, uint64_t generation)
{
    struct twochoice_priv_record r;
    __builtin_memset(&r, 0, sizeof r);
    __builtin_memset(&t->tail[log], 0, sizeof t->tail[log]);
    t->tail[log].dirty = true;
    r.type = TWOCHOICE_PRIV_HEADER;
    r.object = t->home;
    r.offset = generation;
    r.version = t->version;
    return twochoice_priv_append(t, log, &r);
}

/* Fragments that making [offset, end) redirected, or local, may add: at most 2, or 1. */
QOS_API uint32_t twochoice_priv_growth(const struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t end,
                                       bool redirect)
{
    struct twochoice_priv_at at = twochoice_priv_reach(t, object, offset);
    struct twochoice_priv_fragment f;
    uint32_t one = redirect ? 1 : 0;
    if (!at.leaf)
        return one;
    f = twochoice_priv_get(at.leaf, at.slot);
    if (f.object == object && f.offset < offset) {
        if (f.end > end)
            return 1 + one;
        at = twochoice_priv_after(t, at);
        if (!at.leaf)
            return one;
        f = twochoice_priv_get(at.leaf, at.slot);
    }
    return f.object == object && f.end <= end ? 0 : one; /* 0: at least one fragment goes */
}

QOS_API void twochoice_priv_apply(struct twochoice_table *t, const struct twochoice_priv_record *r)
{
    if (r->type == TWOCHOICE_PRIV_REDIRECT)
        twochoice_priv_put(t, r->object, r->offset, r->end, twochoice_priv_tag(r->version, r->target));
    else if (r->type == TWOCHOICE_PRIV_HOME)
        twochoice_priv_cut(t, r->object, r->offset, r->end);
}

/* A change while a compaction is under way: the next log gets the part before the cursor, as the rest is still to be
 * copied. So the next log says at every moment what the table says before the cursor, and no more. A compaction that
 * cannot follow is given up: the active log is complete without it. */
QOS_API void twochoice_priv_follow(struct twochoice_table *t, const struct twochoice_priv_record *change)
{
    struct twochoice_priv_record r = *change;
    if (!t->compacting || r.object > t->cursor_object)
        return;
    if (r.object == t->cursor_object) {
        if (r.offset >= t->cursor_offset)
            return;
        r.end = qos_min(r.end, t->cursor_offset);
    }
    if (t->max_log_bytes - t->tail[TWOCHOICE_NEXT_LOG].bytes < TWOCHOICE_RECORD_BYTES ||
        twochoice_priv_append(t, TWOCHOICE_NEXT_LOG, &r) != QOS_OK)
        t->compacting = false;
}

/* One change of the table: room, record, tree, in this order. `kept`: reservations that others hold. */
QOS_API enum qos_status twochoice_priv_change(struct twochoice_table *t, struct twochoice_priv_record *r, uint32_t kept)
{
    uint64_t spare = t->max_fragments - (uint64_t)t->fragments, wanted = UINT64_C(2) * kept;
    enum qos_status st;
    bool redirect = r->type == TWOCHOICE_PRIV_REDIRECT;
    if (spare < wanted + 2 && spare < wanted + twochoice_priv_growth(t, r->object, r->offset, r->end, redirect))
        return QOS_EFULL;
    if (t->version == TWOCHOICE_VERSION_MAX)
        return QOS_EFULL;
    r->version = t->version + 1;
    if (t->has_storage) {
        if (!t->log_open)
            return QOS_EINVAL;
        if (t->log_broken)
            return QOS_EIO;
        if (t->max_log_bytes - t->tail[TWOCHOICE_ACTIVE_LOG].bytes < TWOCHOICE_RECORD_BYTES * (kept + UINT64_C(1)))
            return QOS_EFULL;
        st = twochoice_priv_append(t, TWOCHOICE_ACTIVE_LOG, r);
        if (st != QOS_OK)
            return st;
        twochoice_priv_follow(t, r);
    }
    t->version++;
    twochoice_priv_apply(t, r);
    return QOS_OK;
}

/* ---- implementation: recovery ---------------------------------------------------------------------- */

struct twochoice_priv_reader {
    uint64_t base;
    size_t have;
    uint8_t buf[TWOCHOICE_PRIV_CHUNK];
};

/* The record at `pos`; *have: how many of its bytes exist. Goes forward through the log. */
QOS_API enum qos_status twochoice_priv_fetch(struct twochoice_table *t, struct twochoice_priv_reader *r, uint64_t pos,
                                             const uint8_t **record, size_t *have)
{
    *record = r->buf;
    *have = 0;
    if (r->have == 0 || pos < r->base || pos - r->base >= sizeof r->buf) {
        r->base = pos;
        r->have = 0;
        if (t->storage.read(t->storage.ctx, TWOCHOICE_ACTIVE_LOG, pos, r->buf, sizeof r->buf, &r->have) != 0 ||
            r->have > sizeof r->buf) {
            r->have = 0;
            return QOS_EIO;
        }
    }
    *record = r->buf + (pos - r->base);
    *have = (size_t)qos_min(qos_sat_sub(r->have, pos - r->base), TWOCHOICE_RECORD_BYTES);
    return QOS_OK;
}

/* A write that power cut short leaves zeros from some byte on, or in whole sectors. */
QOS_API bool twochoice_priv_looks_torn(const uint8_t *record, uint64_t pos)
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

/* The record at `bad` does not fit. Was it cut short by a crash, and nobody told that it is there (QOS_OK), or is it
 * damaged? It was durable if a whole record behind it was written knowing so. (That one need not fit either: its
 * CRC hangs on the damaged one's.) *end: where the log ends. */
QOS_API enum qos_status twochoice_priv_judge(struct twochoice_table *t, struct twochoice_priv_reader *r, uint64_t bad,
                                             uint64_t *end)
{
    const uint8_t *record;
    uint64_t pos = bad;
    size_t have;
    bool damaged = false;
    for (;; pos += TWOCHOICE_RECORD_BYTES) {
        struct twochoice_priv_record later;
        enum qos_status st = twochoice_priv_fetch(t, r, pos, &record, &have);
        if (st != QOS_OK)
            return st;
        if (have < TWOCHOICE_RECORD_BYTES)
            break;
        if (twochoice_priv_looks_torn(record, pos))
            continue;
        twochoice_priv_decode(record, &later);
        if (pos == bad || (pos - bad) / TWOCHOICE_RECORD_BYTES > later.unsynced)
            damaged = true;
    }
    *end = pos + have;
    return damaged ? QOS_ECORRUPT : QOS_OK;
}

QOS_API enum qos_status twochoice_priv_check_header(const struct twochoice_table *t,
                                                    const struct twochoice_priv_record *r)
{
    if (r->format > TWOCHOICE_LOG_VERSION)
        return QOS_EVERSION;
    if (r->format == 0 || r->type != TWOCHOICE_PRIV_HEADER || r->version > TWOCHOICE_VERSION_MAX)
        return QOS_ECORRUPT;
    return r->object == t->home ? QOS_OK : QOS_EINVAL;
}

QOS_API enum qos_status twochoice_priv_check_record(const struct twochoice_table *t,
                                                    const struct twochoice_priv_record *r)
{
    bool redirect = r->type == TWOCHOICE_PRIV_REDIRECT;
    if (r->format > TWOCHOICE_LOG_VERSION)
        return QOS_EVERSION;
    if (r->format != 0 && r->type == TWOCHOICE_PRIV_STAMP && r->version <= TWOCHOICE_VERSION_MAX)
        return QOS_OK;
    if (r->format == 0 || (!redirect && r->type != TWOCHOICE_PRIV_HOME) || r->offset >= r->end || r->version == 0 ||
        r->version > TWOCHOICE_VERSION_MAX ||
        (redirect && (r->target >= TWOCHOICE_SERVERS_MAX || r->target == t->home)))
        return QOS_ECORRUPT;
    if (t->max_fragments - t->fragments < twochoice_priv_growth(t, r->object, r->offset, r->end, redirect))
        return QOS_EFULL;
    return QOS_OK;
}

/* Reads records from the start on and applies them. *log_end: where the bytes of the log end. */
QOS_API enum qos_status twochoice_priv_replay(struct twochoice_table *t, struct twochoice_priv_reader *reader,
                                              struct twochoice_recovery *r, uint64_t *log_end)
{
    const uint8_t *record;
    enum qos_status st;
    size_t have;
    uint32_t crc = 0;
    for (;; r->valid_bytes += TWOCHOICE_RECORD_BYTES) {
        struct twochoice_priv_record d;
        st = twochoice_priv_fetch(t, reader, r->valid_bytes, &record, &have);
        *log_end = r->valid_bytes + have;
        if (st != QOS_OK || have < TWOCHOICE_RECORD_BYTES)
            return st;
        if (!twochoice_priv_intact(record, crc))
            return twochoice_priv_judge(t, reader, r->valid_bytes, log_end);
        crc = qos_get_le32(record);
        twochoice_priv_decode(record, &d);
        if (r->valid_bytes == 0) {
            st = twochoice_priv_check_header(t, &d);
            t->generation = d.offset;
        } else {
            st = twochoice_priv_check_record(t, &d);
            if (st == QOS_OK) {
                twochoice_priv_apply(t, &d);
                r->records++;
            }
        }
        if (st != QOS_OK)
            return st;
        t->version = qos_max(t->version, d.version);
        t->tail[TWOCHOICE_ACTIVE_LOG].crc = crc;
    }
}

QOS_API enum qos_status twochoice_table_format(struct twochoice_table *t)
{
    enum qos_status st;
    if (!t || !t->has_storage)
        return QOS_EINVAL;
    if (t->fragments != 0)
        return QOS_EBUSY;
    t->log_open = false;
    t->compacting = false;
    t->generation = 1;
    st = twochoice_priv_begin_log(t, TWOCHOICE_ACTIVE_LOG, t->generation);
    if (st != QOS_OK || t->storage.sync(t->storage.ctx, TWOCHOICE_ACTIVE_LOG) != 0)
        return QOS_EIO;
    t->tail[TWOCHOICE_ACTIVE_LOG].unsynced = 0;
    t->log_open = true;
    t->log_broken = false;
    return QOS_OK;
}

QOS_API enum qos_status twochoice_table_recover(struct twochoice_table *t, uint32_t flags, struct twochoice_recovery *r)
{
    struct twochoice_priv_reader reader;
    struct twochoice_recovery mine;
    struct twochoice_priv_tail *tail;
    uint64_t log_end = 0;
    enum qos_status st;
    if (!r)
        r = &mine;
    r->records = r->valid_bytes = r->dropped_bytes = 0;
    if (!t || !t->has_storage || (flags & ~TWOCHOICE_ACCEPT_PREFIX) != 0)
        return QOS_EINVAL;
    if (t->fragments != 0)
        return QOS_EBUSY;
    reader.base = 0;
    reader.have = 0;
    tail = &t->tail[TWOCHOICE_ACTIVE_LOG];
    __builtin_memset(tail, 0, sizeof *tail);
    t->log_open = false;
    st = twochoice_priv_replay(t, &reader, r, &log_end);
    r->dropped_bytes = log_end - r->valid_bytes;
    /* Without a header nothing was ever acknowledged. */
    if (st == QOS_OK && r->valid_bytes == 0 && log_end <= TWOCHOICE_RECORD_BYTES)
        return twochoice_table_format(t);
    if (st == QOS_ECORRUPT && r->valid_bytes != 0 && (flags & TWOCHOICE_ACCEPT_PREFIX))
        st = QOS_OK;
    if (st == QOS_OK && r->valid_bytes == 0)
        st = QOS_ECORRUPT;
    if (st == QOS_OK && r->dropped_bytes != 0 &&
        t->storage.truncate(t->storage.ctx, TWOCHOICE_ACTIVE_LOG, r->valid_bytes) != 0)
        st = QOS_EIO;
    if (st == QOS_OK && t->storage.sync(t->storage.ctx, TWOCHOICE_ACTIVE_LOG) != 0)
        st = QOS_EIO;
    if (st != QOS_OK) {
        twochoice_priv_clear(t);
        return st;
    }
    tail->bytes = r->valid_bytes;
    t->log_open = true;
    t->log_broken = false;
    t->compacting = false;
    return QOS_OK;
}

/* ---- implementation: create, query, delete ----------------------------------------------------------- */

QOS_API bool twochoice_priv_range(uint64_t offset, uint64_t len, uint64_t *end)
{
    return len != 0 && qos_checked_add(offset, len, end);
}

QOS_API enum qos_status twochoice_table_reserve(struct twochoice_table *t)
{
    uint64_t all = t->reserved + UINT64_C(1);
    if (t->has_storage && (!t->log_open || t->log_broken))
        return t->log_open ? QOS_EIO : QOS_EINVAL;
    if (t->max_fragments - (uint64_t)t->fragments < 2 * all || TWOCHOICE_VERSION_MAX - t->version < all)
        return QOS_EFULL;
    if (t->has_storage && (t->max_log_bytes - t->tail[TWOCHOICE_ACTIVE_LOG].bytes) / TWOCHOICE_RECORD_BYTES < all)
        return QOS_EFULL;
    t->reserved++;
    return QOS_OK;
}

QOS_API void twochoice_table_release(struct twochoice_table *t)
{
    if (t->reserved != 0)
        t->reserved--;
}

QOS_API enum qos_status twochoice_create(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t len,
                                         uint32_t target, bool reserved)
{
    struct twochoice_priv_record r;
    enum qos_status st;
    __builtin_memset(&r, 0, sizeof r);
    if (!t || target == t->home || (reserved && t->reserved == 0))
        return QOS_EINVAL;
    if (target >= TWOCHOICE_SERVERS_MAX || !twochoice_priv_range(offset, len, &r.end))
        return QOS_ERANGE;
    r.type = TWOCHOICE_PRIV_REDIRECT;
    r.target = (uint16_t)target;
    r.object = object;
    r.offset = offset;
    st = twochoice_priv_change(t, &r, t->reserved - (reserved ? 1 : 0));
    if (st == QOS_OK && reserved)
        t->reserved--;
    return st;
}

QOS_API enum qos_status twochoice_local(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t len)
{
    struct twochoice_priv_record r;
    struct twochoice_piece p;
    __builtin_memset(&r, 0, sizeof r);
    if (!t)
        return QOS_EINVAL;
    if (!twochoice_priv_range(offset, len, &r.end))
        return QOS_ERANGE;
    if (!twochoice_next(t, object, offset, &p) || p.object != object || p.offset >= r.end)
        return QOS_OK;
    r.type = TWOCHOICE_PRIV_HOME;
    r.target = 0;
    r.object = object;
    r.offset = offset;
    return twochoice_priv_change(t, &r, t->reserved);
}

QOS_API enum qos_status twochoice_commit(struct twochoice_table *t)
{
    struct twochoice_priv_tail *tail = &t->tail[TWOCHOICE_ACTIVE_LOG];
    if (!t->has_storage)
        return QOS_OK;
    if (!t->log_open)
        return QOS_EINVAL;
    if (t->log_broken || twochoice_priv_clean(t, TWOCHOICE_ACTIVE_LOG) != QOS_OK)
        return QOS_EIO;
    if (tail->unsynced == 0)
        return QOS_OK;
    if (t->storage.sync(t->storage.ctx, TWOCHOICE_ACTIVE_LOG) != 0) {
        /* What reached the device is unknown, and a second sync may lie about it. */
        t->log_broken = true;
        return QOS_EIO;
    }
    tail->unsynced = 0;
    return QOS_OK;
}

QOS_API void twochoice_priv_piece(struct twochoice_piece *p, uint64_t object, uint64_t offset, uint64_t end,
                                  uint64_t tag)
{
    p->object = object;
    p->offset = offset;
    p->end = end;
    p->version = tag >> 16;
    p->target = tag ? twochoice_priv_target(tag) : TWOCHOICE_LOCAL;
}

/* The piece at `offset`, of which `at` is the first fragment that reaches beyond it; at most up to `end`. */
QOS_API void twochoice_priv_piece_at(struct twochoice_priv_at at, uint64_t object, uint64_t offset, uint64_t end,
                                     struct twochoice_piece *p)
{
    uint64_t tag = 0;
    if (at.leaf) {
        struct twochoice_priv_fragment f = twochoice_priv_get(at.leaf, at.slot);
        bool inside = f.offset <= offset;
        if (f.object == object) {
            end = qos_min(end, inside ? f.end : f.offset);
            tag = inside ? f.tag : 0;
        }
    }
    twochoice_priv_piece(p, object, offset, end, tag);
}

QOS_API void twochoice_find(const struct twochoice_table *t, uint64_t object, uint64_t offset,
                            struct twochoice_piece *piece)
{
    twochoice_priv_piece_at(twochoice_priv_reach(t, object, offset), object, offset, UINT64_MAX, piece);
}

QOS_API size_t twochoice_query(const struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t len,
                               struct twochoice_piece *out, size_t max)
{
    uint64_t end;
    size_t n = 0;
    struct twochoice_priv_at at;
    if (!twochoice_priv_range(offset, len, &end) || max == 0)
        return 0;
    at = twochoice_priv_reach(t, object, offset);
    for (;;) {
        twochoice_priv_piece_at(at, object, offset, end, &out[n]);
        offset = out[n].end;
        if (offset == end || ++n == max)
            break;
        if (twochoice_priv_get(at.leaf, at.slot).end <= offset)
            at = twochoice_priv_after(t, at);
    }
    return n < max ? n + 1 : max;
}

QOS_API bool twochoice_next(const struct twochoice_table *t, uint64_t object, uint64_t offset,
                            struct twochoice_piece *piece)
{
    struct twochoice_priv_at at = twochoice_priv_reach(t, object, offset);
    struct twochoice_priv_fragment f;
    if (!at.leaf)
        return false;
    f = twochoice_priv_get(at.leaf, at.slot);
    twochoice_priv_piece(piece, f.object, f.object == object ? qos_max(f.offset, offset) : f.offset, f.end, f.tag);
    return true;
}

/* Max-heap of pieces by version: lets the one at the root sink to its place among n. */
QOS_API void twochoice_priv_sift(struct twochoice_piece *heap, size_t root, size_t n)
{
    for (;;) {
        size_t child = 2 * root + 1;
        struct twochoice_piece sinking = heap[root];
        if (child >= n)
            return;
        if (child + 1 < n && heap[child + 1].version > heap[child].version)
            child++;
        if (heap[child].version <= sinking.version)
            return;
        heap[root] = heap[child];
        heap[child] = sinking;
        root = child;
    }
}

QOS_API size_t twochoice_oldest(const struct twochoice_table *t, struct twochoice_piece *out, size_t max)
{
    struct twochoice_priv_at at = twochoice_priv_reach(t, 0, 0);
    size_t n = 0, i;
    for (; max != 0 && at.leaf; at = twochoice_priv_after(t, at)) {
        struct twochoice_piece p;
        struct twochoice_priv_fragment f = twochoice_priv_get(at.leaf, at.slot);
        twochoice_priv_piece(&p, f.object, f.offset, f.end, f.tag);
        if (n < max) {
            out[n++] = p;
            for (i = n == max ? n / 2 : 0; i > 0; i--)
                twochoice_priv_sift(out, i - 1, n);
        } else if (p.version < out[0].version) {
            out[0] = p;
            twochoice_priv_sift(out, 0, n);
        }
    }
    for (i = n < max ? n / 2 : 0; i > 0; i--)
        twochoice_priv_sift(out, i - 1, n);
    for (i = n; i > 1; i--) {
        struct twochoice_piece largest = out[0];
        out[0] = out[i - 1];
        out[i - 1] = largest;
        twochoice_priv_sift(out, 0, i - 1);
    }
    return n;
}

/* ---- implementation: pulls ---------------------------------------------------------------------------- */

QOS_API struct twochoice_priv_hold *twochoice_priv_new_hold(struct twochoice_table *t, uint32_t *id)
{
    for (*id = 0; *id < t->max_holds; ++*id)
        if (t->hold[*id].state == TWOCHOICE_PRIV_FREE)
            return &t->hold[*id];
    return NULL;
}

/* An open hold of a state in [low, high] that touches the range; NULL: none. */
QOS_API struct twochoice_priv_hold *twochoice_priv_held(const struct twochoice_table *t, uint64_t object,
                                                        uint64_t offset, uint64_t end, uint32_t low, uint32_t high)
{
    uint32_t i;
    for (i = 0; i < t->max_holds; i++) {
        struct twochoice_priv_hold *h = &t->hold[i];
        if (h->state >= low && h->state <= high && h->object == object && h->offset < end && offset < h->end)
            return h;
    }
    return NULL;
}

QOS_API struct twochoice_priv_hold *twochoice_priv_pull(struct twochoice_table *t, uint32_t pull)
{
    if (pull >= t->max_holds ||
        (t->hold[pull].state != TWOCHOICE_PRIV_COPYING && t->hold[pull].state != TWOCHOICE_PRIV_WRITING))
        return NULL;
    return &t->hold[pull];
}

QOS_API enum qos_status twochoice_pull_start(struct twochoice_table *t, uint64_t object, uint64_t offset,
                                             uint64_t max_bytes, uint32_t *pull, struct twochoice_piece *piece)
{
    struct twochoice_priv_hold *h, *other;
    uint64_t most;
    uint32_t id;
    if (!t || !pull || !piece || max_bytes == 0)
        return QOS_EINVAL;
    h = twochoice_priv_new_hold(t, &id);
    if (!h)
        return QOS_EFULL;
    most = max_bytes;
    while (twochoice_next(t, object, offset, piece)) {
        if (piece->end - piece->offset > most)
            piece->end = piece->offset + most;
        object = piece->object;
        offset = piece->offset;
        other = twochoice_priv_held(t, object, offset, piece->end, TWOCHOICE_PRIV_COPYING, TWOCHOICE_PRIV_WRITING);
        if (other && other->offset > offset) { /* the part before it is free */
            most = other->offset - offset;
            continue;
        }
        if (other) {
            most = max_bytes;
            offset = other->end;
            continue;
        }
        h->object = object;
        h->offset = piece->offset;
        h->end = piece->end;
        h->tag = twochoice_priv_tag(piece->version, piece->target);
        h->state = TWOCHOICE_PRIV_COPYING;
        t->pulls_open++;
        t->pulls_newest = t->version;
        *pull = id;
        return QOS_OK;
    }
    return QOS_ENOENT;
}

/* The first bytes of the pull, from `offset` on, whose redirect is unchanged. */
QOS_API bool twochoice_priv_unchanged(const struct twochoice_table *t, const struct twochoice_priv_hold *h,
                                      uint64_t offset, struct twochoice_piece *piece)
{
    while (offset < h->end && twochoice_next(t, h->object, offset, piece) && piece->object == h->object &&
           piece->offset < h->end) {
        piece->end = qos_min(piece->end, h->end);
        if (twochoice_priv_tag(piece->version, piece->target) == h->tag)
            return true;
        offset = piece->end;
    }
    return false;
}

QOS_API enum qos_status twochoice_pull_ready(struct twochoice_table *t, uint32_t pull, struct twochoice_piece *out,
                                             size_t max, size_t *n)
{
    struct twochoice_priv_hold *h;
    uint64_t offset;
    if (!t || !out || max == 0 || !n)
        return QOS_EINVAL;
    h = twochoice_priv_pull(t, pull);
    if (!h)
        return QOS_EINVAL;
    if (twochoice_priv_held(t, h->object, h->offset, h->end, TWOCHOICE_PRIV_HOME_WRITE, TWOCHOICE_PRIV_HOME_WRITE))
        return QOS_EAGAIN;
    offset = h->offset;
    for (*n = 0; *n < max && twochoice_priv_unchanged(t, h, offset, &out[*n]); ++*n)
        offset = out[*n].end;
    if (*n == max)
        h->end = offset;
    h->state = TWOCHOICE_PRIV_WRITING;
    return QOS_OK;
}

QOS_API void twochoice_pull_cancel(struct twochoice_table *t, uint32_t pull)
{
    struct twochoice_priv_hold *h = twochoice_priv_pull(t, pull);
    if (!h)
        return;
    h->state = TWOCHOICE_PRIV_FREE;
    t->pulls_open--;
}

QOS_API enum qos_status twochoice_pull_finish(struct twochoice_table *t, uint32_t pull)
{
    struct twochoice_priv_hold *h = t ? twochoice_priv_pull(t, pull) : NULL;
    struct twochoice_piece piece;
    if (!h || h->state != TWOCHOICE_PRIV_WRITING)
        return QOS_EINVAL;
    while (twochoice_priv_unchanged(t, h, h->offset, &piece)) {
        struct twochoice_priv_record r;
        enum qos_status st;
        __builtin_memset(&r, 0, sizeof r);
        r.type = TWOCHOICE_PRIV_HOME;
        r.object = piece.object;
        r.offset = piece.offset;
        r.end = piece.end;
        st = twochoice_priv_change(t, &r, t->reserved);
        if (st != QOS_OK)
            return st;
        h->offset = piece.end;
    }
    twochoice_pull_cancel(t, pull);
    return QOS_OK;
}

QOS_API enum qos_status twochoice_write_begin(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t len,
                                              uint32_t *hold)
{
    struct twochoice_priv_hold *h;
    uint64_t end;
    uint32_t id;
    if (!t || !hold)
        return QOS_EINVAL;
    if (!twochoice_priv_range(offset, len, &end))
        return QOS_ERANGE;
    if (twochoice_priv_held(t, object, offset, end, TWOCHOICE_PRIV_WRITING, TWOCHOICE_PRIV_WRITING))
        return QOS_EAGAIN;
    h = twochoice_priv_new_hold(t, &id);
    if (!h)
        return QOS_EFULL;
    h->object = object;
    h->offset = offset;
    h->end = end;
    h->tag = 0;
    h->state = TWOCHOICE_PRIV_HOME_WRITE;
    *hold = id;
    return QOS_OK;
}

QOS_API void twochoice_write_end(struct twochoice_table *t, uint32_t hold)
{
    if (hold < t->max_holds && t->hold[hold].state == TWOCHOICE_PRIV_HOME_WRITE)
        t->hold[hold].state = TWOCHOICE_PRIV_FREE;
}

/* ---- implementation: compaction -------------------------------------------------------------------- */

QOS_API enum qos_status twochoice_compact_start(struct twochoice_table *t)
{
    if (!t || !t->has_storage || !t->log_open)
        return QOS_EINVAL;
    if (t->compacting)
        return QOS_EBUSY;
    if (twochoice_priv_begin_log(t, TWOCHOICE_NEXT_LOG, qos_wrap_add(t->generation, 1)) != QOS_OK)
        return QOS_EIO;
    t->cursor_object = t->cursor_offset = 0;
    t->compacting = true;
    return QOS_OK;
}

/* All is copied. Until the swap has happened, the active log counts. */
QOS_API enum qos_status twochoice_priv_swap_logs(struct twochoice_table *t)
{
    struct twochoice_priv_record r;
    __builtin_memset(&r, 0, sizeof r);
    r.type = TWOCHOICE_PRIV_STAMP;
    r.version = t->version;
    t->compacting = false;
    if (twochoice_priv_append(t, TWOCHOICE_NEXT_LOG, &r) != QOS_OK ||
        t->storage.sync(t->storage.ctx, TWOCHOICE_NEXT_LOG) != 0 || t->storage.swap(t->storage.ctx) != 0)
        return QOS_EIO;
    t->tail[TWOCHOICE_ACTIVE_LOG] = t->tail[TWOCHOICE_NEXT_LOG];
    t->tail[TWOCHOICE_ACTIVE_LOG].unsynced = 0;
    t->generation = qos_wrap_add(t->generation, 1);
    t->log_broken = false;
    return QOS_OK;
}

QOS_API enum qos_status twochoice_compact_step(struct twochoice_table *t, uint32_t max_records, bool *done)
{
    uint32_t i;
    if (!t || !done)
        return QOS_EINVAL;
    *done = false;
    if (!t->compacting) /* never started, or a change could not be followed */
        return QOS_EIO;
    for (i = 0; i < max_records; i++) {
        struct twochoice_piece p;
        struct twochoice_priv_record r;
        if (!twochoice_next(t, t->cursor_object, t->cursor_offset, &p)) {
            enum qos_status st = twochoice_priv_swap_logs(t);
            *done = st == QOS_OK;
            return st;
        }
        __builtin_memset(&r, 0, sizeof r);
        r.type = TWOCHOICE_PRIV_REDIRECT;
        r.target = (uint16_t)p.target;
        r.object = p.object;
        r.offset = p.offset;
        r.end = p.end;
        r.version = p.version;
        if (t->max_log_bytes - t->tail[TWOCHOICE_NEXT_LOG].bytes < UINT64_C(2) * TWOCHOICE_RECORD_BYTES ||
            twochoice_priv_append(t, TWOCHOICE_NEXT_LOG, &r) != QOS_OK) {
            t->compacting = false;
            return QOS_EIO;
        }
        t->cursor_object = p.object;
        t->cursor_offset = p.end;
    }
    return QOS_OK;
}

QOS_API void twochoice_table_stats(const struct twochoice_table *t, struct twochoice_table_counts *s)
{
    const struct twochoice_priv_tail *tail = &t->tail[TWOCHOICE_ACTIVE_LOG];
    s->fragments = t->fragments;
    s->max_fragments = t->max_fragments;
    s->reserved = t->reserved;
    s->nodes_used = t->nodes_used;
    s->nodes = t->node_count;
    s->pulls_open = t->pulls_open;
    s->version = t->version;
    s->log_bytes = tail->bytes;
    s->max_log_bytes = t->max_log_bytes;
    s->unsynced_records = tail->unsynced;
    s->compacting = t->compacting;
    s->log_broken = t->log_broken;
}

/* Rules inside one leaf: order, blank slots. *last: the fragment before; moves on. */
QOS_API bool twochoice_priv_leaf_sound(const struct twochoice_table *t, const struct twochoice_priv_node *n,
                                       struct twochoice_piece *last)
{
    uint32_t i;
    for (i = 0; i < n->count; i++) {
        struct twochoice_priv_fragment f = twochoice_priv_get(n, i);
        if (f.end <= f.offset || f.object < last->object || (f.object == last->object && f.offset < last->end))
            return false;
        if (f.tag >> 16 > t->version || twochoice_priv_target(f.tag) == t->home)
            return false;
        last->object = f.object;
        last->offset = f.offset;
        last->end = f.end;
    }
    for (; n->narrow && i < TWOCHOICE_NARROW_SLOTS; i++)
        if (n->u.narrow.from[i] != UINT32_MAX)
            return false;
    for (; !n->narrow && i < TWOCHOICE_WIDE_SLOTS; i++)
        if ((n->u.wide.object[i] & n->u.wide.offset[i]) != UINT64_MAX)
            return false;
    return true;
}

/* Rules of child m, on `level`, of an inner node that says where it begins. */
QOS_API bool twochoice_priv_child_sound(const struct twochoice_priv_node *m, uint32_t level, bool may_be_small,
                                        uint64_t object, uint64_t offset)
{
    uint32_t most = level > 0 ? TWOCHOICE_INNER_SLOTS : m->narrow ? TWOCHOICE_NARROW_SLOTS : TWOCHOICE_WIDE_SLOTS;
    uint32_t least = level > 0 ? TWOCHOICE_INNER_LEAST : TWOCHOICE_LEAF_LEAST;
    struct twochoice_priv_fragment f;
    if (m->count > most || m->count < (may_be_small ? 1 : least))
        return false;
    if (level > 0)
        return object == m->u.inner.object[0] && offset == m->u.inner.offset[0];
    f = twochoice_priv_get(m, 0);
    return twochoice_priv_le(object, offset, f.object, f.offset);
}

#define TWOCHOICE_PRIV_HEIGHT_MAX 12 /* 9 * 14^11 fragments are more than there can be */

QOS_API enum qos_status twochoice_table_verify(const struct twochoice_table *t)
{
    uint32_t node[TWOCHOICE_PRIV_HEIGHT_MAX + 1], child[TWOCHOICE_PRIV_HEIGHT_MAX + 1];
    uint32_t level, fragments = 0, nodes = 1, before = TWOCHOICE_PRIV_NONE;
    struct twochoice_piece last;
    if (!t)
        return QOS_EINVAL;
    if (t->height > TWOCHOICE_PRIV_HEIGHT_MAX)
        return QOS_ECORRUPT;
    last.object = last.offset = last.end = 0;
    level = t->height;
    node[level] = t->root;
    child[level] = 0;
    for (;;) {
        const struct twochoice_priv_node *n = &t->node[node[level]];
        if (level > 0 && child[level] < n->count) {
            uint32_t i = child[level]++, c = n->u.inner.child[i];
            uint64_t object = n->u.inner.object[i], offset = n->u.inner.offset[i];
            if (c >= t->fresh_node || n->count > TWOCHOICE_INNER_SLOTS ||
                !twochoice_priv_child_sound(&t->node[c], level - 1, level == t->height && n->count < 3, object, offset))
                return QOS_ECORRUPT;
            if (i > 0 && twochoice_priv_le(object, offset, last.object, last.offset))
                return QOS_ECORRUPT;
            nodes++;
            level--;
            node[level] = c;
            child[level] = 0;
            continue;
        }
        if (level == 0) {
            if (n->prev != before || !twochoice_priv_leaf_sound(t, n, &last))
                return QOS_ECORRUPT;
            if (before != TWOCHOICE_PRIV_NONE && t->node[before].next != node[0])
                return QOS_ECORRUPT;
            before = node[0];
            fragments += n->count;
        }
        if (level == t->height)
            break;
        level++;
    }
    if (t->node[before].next != TWOCHOICE_PRIV_NONE || fragments != t->fragments || nodes != t->nodes_used)
        return QOS_ECORRUPT;
    return QOS_OK;
}

/* ---- implementation: maintainer ------------------------------------------------------------------------ */

QOS_API enum qos_status twochoice_maintainer_init(struct twochoice_maintainer *m,
                                                  const struct twochoice_maintainer_config *cfg, uint64_t now_ns)
{
    uint64_t rate, piece;
    if (!m || !cfg)
        return QOS_EINVAL;
    rate = cfg->rate_bytes_per_s ? cfg->rate_bytes_per_s : UINT64_C(64) << 20;
    piece = cfg->piece_bytes ? cfg->piece_bytes : UINT64_C(1) << 20;
    if ((rate > QOS_RATE_MAX && rate != TWOCHOICE_PULL_UNLIMITED) || piece > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    __builtin_memset(m, 0, sizeof *m);
    m->rate_bytes_per_s = rate;
    m->piece_bytes = piece;
    m->idle_load = cfg->idle_load;
    m->idle_ns = cfg->idle_ns ? cfg->idle_ns : UINT64_C(100000000);
    m->quiet_since_ns = QOS_NEVER;
    return qos_bucket_init(&m->bucket, now_ns, rate == TWOCHOICE_PULL_UNLIMITED ? 0 : rate, piece);
}

QOS_API void twochoice_remote_load(struct twochoice_maintainer *m, uint64_t now_ns, uint32_t target, uint64_t load)
{
    uint32_t i = target % TWOCHOICE_REMOTE_SLOTS;
    m->remote[i].target = target;
    m->remote[i].load = load;
    m->remote[i].at_ns = now_ns;
    m->remote[i].known = true;
}

/* Has the home been idle for long enough? If not, *next_ns says when it may have been. */
QOS_API bool twochoice_priv_quiet(struct twochoice_maintainer *m, uint64_t now_ns, uint64_t local_load,
                                  uint64_t *next_ns)
{
    if (local_load > m->idle_load) {
        m->quiet_since_ns = QOS_NEVER;
        *next_ns = qos_sat_add(now_ns, m->idle_ns);
        return false;
    }
    if (m->quiet_since_ns == QOS_NEVER)
        m->quiet_since_ns = now_ns;
    *next_ns = qos_sat_add(m->quiet_since_ns, m->idle_ns);
    return qos_elapsed_ns(m->quiet_since_ns, now_ns) >= m->idle_ns;
}

/* The next piece whose target is idle, or not known to be busy; false: none, and *busy: some were left out. */
QOS_API bool twochoice_priv_next_pull(struct twochoice_maintainer *m, const struct twochoice_table *t, uint64_t now_ns,
                                      struct twochoice_piece *p, bool *ask, bool *busy)
{
    bool around = false;
    uint64_t from_object = m->object, from_offset = m->offset;
    *busy = false;
    for (;;) {
        uint32_t i;
        if (!twochoice_next(t, m->object, m->offset, p)) {
            if (around)
                return false;
            around = true;
            m->object = m->offset = 0;
            continue;
        }
        if (around && !twochoice_priv_le(p->object, p->offset, from_object, from_offset))
            return false;
        i = p->target % TWOCHOICE_REMOTE_SLOTS;
        *ask = !m->remote[i].known || m->remote[i].target != p->target ||
               qos_elapsed_ns(m->remote[i].at_ns, now_ns) >= m->idle_ns;
        if (*ask)
            return true;
        if (m->remote[i].load <= m->idle_load)
            return true;
        *busy = true;
        m->object = p->object;
        m->offset = p->end;
    }
}

QOS_API enum qos_status twochoice_maintain(struct twochoice_maintainer *m, struct twochoice_table *t, uint64_t now_ns,
                                           uint64_t local_load, struct twochoice_order *order)
{
    bool ask, busy;
    uint64_t len;
    enum qos_status st;
    if (!m || !t || !order)
        return QOS_EINVAL;
    order->todo = TWOCHOICE_REST;
    if (!twochoice_priv_quiet(m, now_ns, local_load, &order->next_ns))
        return QOS_OK;
    order->next_ns = QOS_NEVER;
    if (!twochoice_priv_next_pull(m, t, now_ns, &order->piece, &ask, &busy)) {
        if (busy)
            order->next_ns = qos_sat_add(now_ns, m->idle_ns);
        return QOS_OK;
    }
    if (ask) {
        order->todo = TWOCHOICE_ASK_LOAD;
        return QOS_OK;
    }
    len = qos_min(order->piece.end - order->piece.offset, m->piece_bytes);
    if (m->rate_bytes_per_s != TWOCHOICE_PULL_UNLIMITED) {
        order->next_ns = qos_bucket_next_ns(&m->bucket, now_ns, len);
        if (order->next_ns > now_ns)
            return QOS_OK;
    }
    st = twochoice_pull_start(t, order->piece.object, order->piece.offset, len, &order->pull, &order->piece);
    if (st == QOS_ENOENT) { /* all that is behind is being pulled already: begin again from the first */
        m->object = m->offset = 0;
        order->next_ns = qos_sat_add(now_ns, m->idle_ns);
        return QOS_OK;
    }
    if (st != QOS_OK)
        return st;
    if (m->rate_bytes_per_s != TWOCHOICE_PULL_UNLIMITED)
        st = qos_bucket_take(&m->bucket, now_ns, order->piece.end - order->piece.offset);
    m->object = order->piece.object;
    m->offset = order->piece.end;
    order->todo = TWOCHOICE_COPY;
    order->next_ns = now_ns;
    return st;
}

/* ---- implementation: checker ------------------------------------------------------------------------------ */

/* The first bytes at or behind (object, offset) of which either table says that they are elsewhere, as far as each
 * says one thing of them. */
QOS_API bool twochoice_priv_next_of_two(const struct twochoice_table *a, const struct twochoice_table *b,
                                        uint64_t object, uint64_t offset, struct twochoice_piece *in_a,
                                        struct twochoice_piece *in_b)
{
    struct twochoice_piece x, y;
    bool has_x = twochoice_next(a, object, offset, &x), has_y = twochoice_next(b, object, offset, &y);
    if (!has_x && !has_y)
        return false;
    if (!has_x || (has_y && !twochoice_priv_le(x.object, x.offset, y.object, y.offset)))
        x = y;
    twochoice_find(a, x.object, x.offset, in_a);
    twochoice_find(b, x.object, x.offset, in_b);
    in_a->end = in_b->end = qos_min(in_a->end, in_b->end);
    return true;
}

QOS_API enum qos_status twochoice_check(const struct twochoice_table *t, struct twochoice_table *scratch,
                                        const struct twochoice_checker *checker, uint64_t *found)
{
    struct twochoice_piece in_table, in_log;
    if (!t || !checker || !checker->report || !found)
        return QOS_EINVAL;
    if (scratch && scratch->fragments != 0)
        return QOS_EBUSY;
    *found = 0;
    __builtin_memset(&in_table, 0, sizeof in_table);
    __builtin_memset(&in_log, 0, sizeof in_log);
    in_table.target = in_log.target = TWOCHOICE_LOCAL;
    if (twochoice_table_verify(t) != QOS_OK) {
        checker->report(checker->ctx, TWOCHOICE_TREE_BROKEN, &in_table, &in_log);
        ++*found;
        return QOS_OK; /* it cannot be walked */
    }
    if (scratch && t->has_storage) {
        struct twochoice_priv_reader reader;
        struct twochoice_recovery r;
        uint64_t end = 0;
        reader.base = 0;
        reader.have = 0;
        r.records = r.valid_bytes = r.dropped_bytes = 0;
        scratch->storage = t->storage;
        if (twochoice_priv_replay(scratch, &reader, &r, &end) != QOS_OK) {
            in_log.offset = r.valid_bytes;
            in_log.end = end;
            checker->report(checker->ctx, TWOCHOICE_LOG_UNREADABLE, &in_table, &in_log);
            ++*found;
        }
    }
    in_table.object = in_table.end = 0;
    while (twochoice_priv_next_of_two(t, scratch ? scratch : t, in_table.object, in_table.end, &in_table, &in_log)) {
        int has = 1;
        if (in_table.target != in_log.target) {
            checker->report(checker->ctx, TWOCHOICE_LOG_DIFFERS, &in_table, &in_log);
            ++*found;
        }
        if (checker->has_data && in_table.target != TWOCHOICE_LOCAL)
            has = checker->has_data(checker->ctx, &in_table);
        if (has <= 0) {
            checker->report(checker->ctx, has == 0 ? TWOCHOICE_DATA_MISSING : TWOCHOICE_DATA_UNKNOWN, &in_table,
                            &in_log);
            ++*found;
        }
    }
    return QOS_OK;
}

/* ---- implementation: placement --------------------------------------------------------------------- */

struct twochoice_priv_scheduler_layout {
    struct qos_layout l;
    size_t order, place, weight, stamp, undo, heap, state;
    uint32_t max_writes;
};

QOS_API enum qos_status twochoice_priv_lay_out_scheduler(const struct twochoice_scheduler_config *cfg,
                                                         struct twochoice_priv_scheduler_layout *o)
{
    size_t n, scratch;
    o->l.mem = NULL;
    o->l.size_bytes = o->l.align = 0;
    o->l.overflow = false;
    if (!cfg)
        return QOS_EINVAL;
    o->max_writes = cfg->max_writes ? cfg->max_writes : 128;
    if (cfg->servers == 0 || cfg->servers > TWOCHOICE_SERVERS_MAX || o->max_writes > TWOCHOICE_WRITES_MAX ||
        cfg->policy > TWOCHOICE_NATIVE)
        return QOS_ERANGE;
    n = cfg->servers;
    scratch = (size_t)4 * o->max_writes;
    o->order = qos_layout_add(&o->l, n, sizeof(uint32_t), QOS_CACHE_LINE);
    o->place = qos_layout_add(&o->l, n, sizeof(uint32_t), QOS_CACHE_LINE);
    o->weight = qos_layout_add(&o->l, n, sizeof(uint32_t), QOS_CACHE_LINE);
    o->stamp = qos_layout_add(&o->l, n, sizeof(uint32_t), QOS_CACHE_LINE);
    o->undo = qos_layout_add(&o->l, n, sizeof(uint32_t), QOS_CACHE_LINE);
    o->heap = qos_layout_add(&o->l, scratch, sizeof(uint32_t), QOS_CACHE_LINE);
    o->state = qos_layout_add(&o->l, n, sizeof(uint8_t), QOS_CACHE_LINE);
    return QOS_OK;
}

QOS_API size_t twochoice_scheduler_memsize(const struct twochoice_scheduler_config *cfg)
{
    struct twochoice_priv_scheduler_layout o;
    return twochoice_priv_lay_out_scheduler(cfg, &o) == QOS_OK ? qos_layout_size(&o.l) : 0;
}

QOS_API uint32_t *twochoice_priv_words(void *mem, size_t offset)
{
    return (uint32_t *)(void *)((char *)mem + offset);
}

QOS_API enum qos_status twochoice_scheduler_init(struct twochoice_scheduler *s, void *mem, size_t size_bytes,
                                                 const struct twochoice_scheduler_config *cfg)
{
    struct twochoice_priv_scheduler_layout o;
    enum qos_status st = twochoice_priv_lay_out_scheduler(cfg, &o);
    uint32_t i;
    if (!s)
        return QOS_EINVAL;
    if (st == QOS_OK)
        st = qos_layout_check(&o.l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    __builtin_memset(s, 0, sizeof *s);
    s->order = twochoice_priv_words(mem, o.order);
    s->place = twochoice_priv_words(mem, o.place);
    s->weight = twochoice_priv_words(mem, o.weight);
    s->stamp = twochoice_priv_words(mem, o.stamp);
    s->undo = twochoice_priv_words(mem, o.undo);
    s->heap = twochoice_priv_words(mem, o.heap);
    s->state = (uint8_t *)mem + o.state;
    s->servers = s->up = cfg->servers;
    s->max_writes = o.max_writes;
    s->policy = cfg->policy;
    s->tries = cfg->tries == 0 ? TWOCHOICE_TRIES : cfg->tries == TWOCHOICE_NO_TRIES ? 0 : cfg->tries;
    s->min_write_bytes = cfg->min_write_bytes ? cfg->min_write_bytes : TWOCHOICE_MIN_WRITE_BYTES;
    if (cfg->min_write_bytes == TWOCHOICE_PROBE_EVERY)
        s->min_write_bytes = 0;
    s->include_home = cfg->include_home;
    qos_rng_seed(&s->rng, cfg->seed);
    for (i = 0; i < s->servers; i++) {
        s->order[i] = s->place[i] = i;
        s->weight[i] = 1;
        s->stamp[i] = 0;
        s->state[i] = TWOCHOICE_UP;
    }
    return QOS_OK;
}

QOS_API void twochoice_priv_swap(struct twochoice_scheduler *s, uint32_t i, uint32_t j)
{
    uint32_t a = s->order[i], b = s->order[j];
    s->order[i] = b;
    s->order[j] = a;
    s->place[b] = i;
    s->place[a] = j;
}

QOS_API enum qos_status twochoice_set_server(struct twochoice_scheduler *s, uint32_t server,
                                             enum twochoice_server_state state, uint32_t weight)
{
    if (!s)
        return QOS_EINVAL;
    if (server >= s->servers)
        return QOS_ENOENT;
    if ((uint32_t)state > TWOCHOICE_FULL || weight > TWOCHOICE_WEIGHT_MAX)
        return QOS_ERANGE;
    if (state == TWOCHOICE_UP && s->state[server] != TWOCHOICE_UP)
        twochoice_priv_swap(s, s->place[server], s->up++);
    else if (state != TWOCHOICE_UP && s->state[server] == TWOCHOICE_UP)
        twochoice_priv_swap(s, s->place[server], --s->up);
    s->state[server] = (uint8_t)state;
    if (weight)
        s->weight[server] = weight;
    return QOS_OK;
}

/* Draws one after the other until `count` are found that do not carry the stamp of this draw. */
QOS_API size_t twochoice_priv_draw(struct twochoice_scheduler *s, size_t count, uint32_t *out)
{
    uint32_t i;
    size_t n = 0;
    for (i = 0; i < s->up && n < count; i++) {
        uint32_t j = i + (uint32_t)qos_rng_below(&s->rng, s->up - i), server;
        twochoice_priv_swap(s, i, j);
        s->undo[i] = j;
        server = s->order[i];
        if (s->stamp[server] == s->draws)
            continue;
        s->stamp[server] = s->draws;
        out[n++] = server;
    }
    for (; i > 0; i--)
        twochoice_priv_swap(s, i - 1, s->undo[i - 1]);
    return n;
}

/* A new draw: no server carries its stamp yet. */
QOS_API void twochoice_priv_new_draw(struct twochoice_scheduler *s)
{
    uint32_t i;
    if (s->draws == UINT32_MAX) {
        for (i = 0; i < s->servers; i++)
            s->stamp[i] = 0;
        s->draws = 0;
    }
    s->draws++;
}

QOS_API size_t twochoice_draw(struct twochoice_scheduler *s, size_t count, uint32_t *out)
{
    twochoice_priv_new_draw(s);
    return twochoice_priv_draw(s, count, out);
}

QOS_API bool twochoice_priv_small(const struct twochoice_scheduler *s, const struct twochoice_write *w)
{
    return w->len_bytes < s->min_write_bytes;
}

QOS_API void twochoice_priv_ask(const struct twochoice_scheduler *s, struct twochoice_probe *p, uint32_t server)
{
    p->server = server;
    p->weight = s->weight[server];
    p->state = TWOCHOICE_DOWN; /* until it answers */
    p->chosen = 0;
    p->load = 0;
}

QOS_API enum qos_status twochoice_priv_check_writes(const struct twochoice_scheduler *s,
                                                    const struct twochoice_write *w, size_t k)
{
    size_t i;
    if (!s || !w)
        return QOS_EINVAL;
    if (k == 0 || k > s->max_writes)
        return QOS_ERANGE;
    for (i = 0; i < k; i++)
        if (w[i].home >= s->servers)
            return QOS_ENOENT;
    return QOS_OK;
}

QOS_API enum qos_status twochoice_ask(struct twochoice_scheduler *s, const struct twochoice_write *w, size_t k,
                                      struct twochoice_probe *probes, size_t *n)
{
    enum qos_status st = twochoice_priv_check_writes(s, w, k);
    size_t i, large = 0, drawn, wanted;
    if (st != QOS_OK)
        return st;
    if (!probes || !n)
        return QOS_EINVAL;
    *n = 0;
    if (s->policy == TWOCHOICE_FIXED || s->policy == TWOCHOICE_RANDOM)
        return QOS_OK;
    for (i = 0; i < k; i++) {
        uint32_t two[2];
        if (twochoice_priv_small(s, &w[i]))
            continue;
        large++;
        if (s->policy != TWOCHOICE_NATIVE)
            continue;
        twochoice_priv_new_draw(s);
        drawn = 0;
        if (s->include_home && s->state[w[i].home] == TWOCHOICE_UP) {
            s->stamp[w[i].home] = s->draws;
            two[drawn++] = w[i].home;
        }
        drawn += twochoice_priv_draw(s, 2 - drawn, two + drawn);
        for (wanted = 0; wanted < 2; wanted++) /* two places for each write: one server, or none, fills both */
            twochoice_priv_ask(s, &probes[(*n)++], drawn ? two[wanted < drawn ? wanted : 0] : w[i].home);
    }
    if (s->policy == TWOCHOICE_NATIVE || large == 0)
        return QOS_OK;
    twochoice_priv_new_draw(s);
    for (i = 0; i < k && s->include_home; i++) {
        if (twochoice_priv_small(s, &w[i]) || s->state[w[i].home] != TWOCHOICE_UP || s->stamp[w[i].home] == s->draws)
            continue;
        s->stamp[w[i].home] = s->draws;
        twochoice_priv_ask(s, &probes[(*n)++], w[i].home);
    }
    while (*n < 2 * large) {
        uint32_t some[64];
        wanted = (size_t)qos_min(2 * large - *n, 64);
        drawn = twochoice_priv_draw(s, wanted, some);
        for (i = 0; i < drawn; i++)
            twochoice_priv_ask(s, &probes[(*n)++], some[i]);
        if (drawn < wanted)
            break;
    }
    return QOS_OK;
}

QOS_API enum qos_status twochoice_redraw(struct twochoice_scheduler *s, struct twochoice_probe *probes, size_t n,
                                         uint32_t round, size_t *changed)
{
    size_t i;
    uint32_t server;
    if (!s || !probes || !changed)
        return QOS_EINVAL;
    *changed = 0;
    if (n > (size_t)2 * s->max_writes)
        return QOS_ERANGE;
    if (s->policy != TWOCHOICE_COLLABORATIVE || round >= s->tries)
        return QOS_OK;
    twochoice_priv_new_draw(s);
    for (i = 0; i < n; i++)
        s->stamp[probes[i].server] = s->draws;
    for (i = 0; i < n; i++) {
        if (probes[i].state == TWOCHOICE_UP)
            continue;
        if (twochoice_priv_draw(s, 1, &server) == 0)
            break;
        twochoice_priv_ask(s, &probes[i], server);
        ++*changed;
        qos_counter_add(&s->refused, 1);
    }
    return QOS_OK;
}

/* Is probe a the worse choice? load / weight, exactly: a.load * b.weight against b.load * a.weight; then the later. */
QOS_API bool twochoice_priv_worse(const struct twochoice_probe *probes, uint32_t a, uint32_t b)
{
    int c;
    if (probes[a].weight == probes[b].weight)
        c = probes[a].load < probes[b].load ? -1 : probes[a].load > probes[b].load;
    else
        c = qos_cmp_wide(qos_mul_wide(probes[a].load, probes[b].weight),
                         qos_mul_wide(probes[b].load, probes[a].weight));
    return c != 0 ? c > 0 : a > b;
}

QOS_API void twochoice_priv_heap_down(uint32_t *heap, size_t n, size_t i, const struct twochoice_probe *probes)
{
    uint32_t sinking = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && twochoice_priv_worse(probes, heap[child + 1], heap[child]))
            child++;
        if (!twochoice_priv_worse(probes, heap[child], sinking))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = sinking;
}

/* The k best probes that are up, marked by chosen = 1; returns how many. A heap with the worst of them on top. */
QOS_API size_t twochoice_priv_keep(struct twochoice_scheduler *s, struct twochoice_probe *probes, size_t n, size_t k)
{
    size_t kept = 0, i;
    twochoice_priv_new_draw(s);
    for (i = 0; i < n; i++) {
        probes[i].chosen = 0;
        if (probes[i].state != TWOCHOICE_UP || s->stamp[probes[i].server] == s->draws)
            continue;
        s->stamp[probes[i].server] = s->draws;
        if (kept < k) {
            s->heap[kept++] = (uint32_t)i;
            if (kept == k) {
                size_t j;
                for (j = k / 2; j > 0; j--)
                    twochoice_priv_heap_down(s->heap, k, j - 1, probes);
            }
        } else if (twochoice_priv_worse(probes, s->heap[0], (uint32_t)i)) {
            s->heap[0] = (uint32_t)i;
            twochoice_priv_heap_down(s->heap, k, 0, probes);
        }
    }
    for (i = 0; i < kept; i++)
        probes[s->heap[i]].chosen = 1;
    return kept;
}

QOS_API void twochoice_priv_decide_together(struct twochoice_scheduler *s, struct twochoice_write *w, size_t k,
                                            struct twochoice_probe *probes, size_t n)
{
    size_t kept, i, next = 0, large = 0, placed = 0;
    for (i = 0; i < k; i++)
        large += !twochoice_priv_small(s, &w[i]);
    if (large == 0)
        return;
    kept = twochoice_priv_keep(s, probes, n, large);
    if (kept == 0)
        return;
    /* `undo` tells, of each server with the new stamp, where its probe stands: a home finds itself without a search. */
    twochoice_priv_new_draw(s);
    for (i = 0; i < n; i++)
        if (probes[i].chosen) {
            probes[i].chosen = 0;
            s->heap[next++] = (uint32_t)i;
            s->stamp[probes[i].server] = s->draws;
            s->undo[probes[i].server] = (uint32_t)i;
        }
    for (i = 0; i < k; i++) {
        w[i].target = TWOCHOICE_LOCAL;
        if (twochoice_priv_small(s, &w[i])) {
            w[i].target = w[i].home;
        } else if (s->stamp[w[i].home] == s->draws) {
            struct twochoice_probe *p = &probes[s->undo[w[i].home]];
            if (p->chosen == 0) {
                w[i].target = w[i].home;
                p->chosen = 1;
                placed++;
            }
        }
    }
    next = 0;
    for (i = 0; i < k; i++) {
        if (w[i].target != TWOCHOICE_LOCAL)
            continue;
        /* The next that has no more than its turn: not all can have more, as then more would be placed. */
        while (probes[s->heap[next]].chosen > placed / kept)
            next = next + 1 == kept ? 0 : next + 1;
        w[i].target = probes[s->heap[next]].server;
        probes[s->heap[next]].chosen++;
        placed++;
        next = next + 1 == kept ? 0 : next + 1;
    }
}

QOS_API enum qos_status twochoice_decide(struct twochoice_scheduler *s, struct twochoice_write *w, size_t k,
                                         struct twochoice_probe *probes, size_t n)
{
    enum qos_status st = twochoice_priv_check_writes(s, w, k);
    size_t i, at = 0;
    if (st != QOS_OK)
        return st;
    if (n != 0 && !probes)
        return QOS_EINVAL;
    if (n > (size_t)4 * s->max_writes)
        return QOS_ERANGE;
    for (i = 0; i < n; i++)
        if (probes[i].server >= s->servers || probes[i].weight == 0)
            return QOS_EINVAL;
    for (i = 0; i < k; i++) {
        w[i].target = w[i].home;
        if (twochoice_priv_small(s, &w[i]))
            continue;
        if (s->policy == TWOCHOICE_RANDOM) {
            uint32_t one;
            if (twochoice_draw(s, 1, &one) == 1)
                w[i].target = one;
        } else if (s->policy == TWOCHOICE_NATIVE && at + 1 < n) {
            struct twochoice_probe *pair = &probes[at];
            uint32_t better =
                pair[0].state != TWOCHOICE_UP || (pair[1].state == TWOCHOICE_UP && twochoice_priv_worse(pair, 0, 1));
            pair[0].chosen = pair[1].chosen = 0;
            if (pair[better].state == TWOCHOICE_UP) {
                w[i].target = pair[better].server;
                pair[better].chosen = 1;
            }
            at += 2;
        }
    }
    if (s->policy == TWOCHOICE_COLLABORATIVE)
        twochoice_priv_decide_together(s, w, k, probes, n);
    for (i = 0; i < k; i++) {
        qos_counter_add(&s->granted, w[i].len_bytes);
        qos_counter_add(&s->redirected, w[i].target != w[i].home ? w[i].len_bytes : 0);
        qos_counter_add(&s->waited, n != 0 && !twochoice_priv_small(s, &w[i]));
    }
    return QOS_OK;
}

QOS_API void twochoice_scheduler_stats(const struct twochoice_scheduler *s, struct qos_stats *out)
{
    out->granted = qos_counter_read(&s->granted);
    out->borrowed = qos_counter_read(&s->redirected);
    out->refused = qos_counter_read(&s->refused);
    out->waited = qos_counter_read(&s->waited);
    out->debt = 0;
}

/* ---- implementation: load detector ------------------------------------------------------------------- */

struct twochoice_priv_detector_layout {
    struct qos_layout l;
    size_t asked, chain, heard;
    uint32_t probes, chains, peers;
};

QOS_API enum qos_status twochoice_priv_lay_out_detector(const struct twochoice_detector_config *cfg,
                                                        struct twochoice_priv_detector_layout *o)
{
    const uint64_t most = UINT64_C(1) << 40;
    o->l.mem = NULL;
    o->l.size_bytes = o->l.align = 0;
    o->l.overflow = false;
    if (!cfg)
        return QOS_EINVAL;
    o->probes = cfg->max_probes ? cfg->max_probes : 1024;
    o->peers = cfg->max_peers ? cfg->max_peers : 256;
    if (o->probes > 1u << 20 || o->peers > 1u << 20 || cfg->learn_shift > 15 || cfg->bucket_bytes > most ||
        (cfg->op_cost_bytes > most && cfg->op_cost_bytes != TWOCHOICE_OPS_FREE))
        return QOS_ERANGE;
    for (o->chains = 4; o->chains < o->probes; o->chains *= 2)
        continue;
    o->asked = qos_layout_add(&o->l, o->probes, sizeof(struct twochoice_priv_asked), QOS_CACHE_LINE);
    o->chain = qos_layout_add(&o->l, o->chains, sizeof(uint32_t), QOS_CACHE_LINE);
    o->heard = qos_layout_add(&o->l, o->peers, sizeof(struct twochoice_priv_heard), QOS_CACHE_LINE);
    return QOS_OK;
}

QOS_API size_t twochoice_detector_memsize(const struct twochoice_detector_config *cfg)
{
    struct twochoice_priv_detector_layout o;
    return twochoice_priv_lay_out_detector(cfg, &o) == QOS_OK ? qos_layout_size(&o.l) : 0;
}

QOS_API enum qos_status twochoice_detector_init(struct twochoice_detector *d, void *mem, size_t size_bytes,
                                                const struct twochoice_detector_config *cfg)
{
    struct twochoice_priv_detector_layout o;
    enum qos_status st = twochoice_priv_lay_out_detector(cfg, &o);
    uint32_t i;
    if (!d)
        return QOS_EINVAL;
    if (st == QOS_OK)
        st = qos_layout_check(&o.l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    __builtin_memset(d, 0, sizeof *d);
    d->asked = (struct twochoice_priv_asked *)(void *)((char *)mem + o.asked);
    d->chain = twochoice_priv_words(mem, o.chain);
    d->heard = (struct twochoice_priv_heard *)(void *)((char *)mem + o.heard);
    d->max_probes = o.probes;
    d->chains = o.chains;
    d->max_peers = o.peers;
    d->learn_shift = cfg->learn_shift ? cfg->learn_shift : 3;
    d->op_cost_bytes = cfg->op_cost_bytes == 0                    ? 65536
                       : cfg->op_cost_bytes == TWOCHOICE_OPS_FREE ? 0
                                                                  : cfg->op_cost_bytes;
    d->bucket_bytes = cfg->bucket_bytes ? cfg->bucket_bytes : UINT64_C(1) << 20;
    d->timeout_ns = cfg->timeout_ns ? cfg->timeout_ns : UINT64_C(200000000);
    d->lifetime_ns = cfg->lifetime_ns ? cfg->lifetime_ns : UINT64_C(200000000);
    d->preassign = !cfg->no_preassign;
    d->oldest = d->newest = TWOCHOICE_PRIV_NONE;
    d->unused = 0;
    for (i = 0; i < o.probes; i++) {
        d->asked[i].used = false;
        d->asked[i].older = i + 1 < o.probes ? i + 1 : TWOCHOICE_PRIV_NONE;
    }
    for (i = 0; i < o.chains; i++)
        d->chain[i] = TWOCHOICE_PRIV_NONE;
    for (i = 0; i < o.peers; i++)
        d->heard[i].used = false;
    for (i = 0; i < TWOCHOICE_LOAD_BUCKETS; i++)
        d->accept[i] = TWOCHOICE_CERTAIN / 2;
    return QOS_OK;
}

QOS_API void twochoice_begin(struct twochoice_detector *d, uint64_t len_bytes)
{
    d->ops = qos_sat_add(d->ops, 1);
    d->bytes = qos_sat_add(d->bytes, len_bytes);
}

QOS_API void twochoice_end(struct twochoice_detector *d, uint64_t len_bytes)
{
    d->ops = qos_sat_sub(d->ops, 1);
    d->bytes = qos_sat_sub(d->bytes, len_bytes);
}

QOS_API uint64_t twochoice_load(const struct twochoice_detector *d)
{
    return qos_min(qos_sat_add(qos_sat_add(qos_sat_mul(d->ops, d->op_cost_bytes), d->bytes), d->assigned), UINT64_C(1)
                                                                                                               << 63);
}

QOS_API uint32_t twochoice_priv_bucket(const struct twochoice_detector *d, uint64_t load)
{
    return (uint32_t)qos_min(load / d->bucket_bytes, TWOCHOICE_LOAD_BUCKETS - 1);
}

QOS_API uint32_t twochoice_acceptance(const struct twochoice_detector *d, uint64_t load)
{
    uint32_t at = twochoice_priv_bucket(d, load), away;
    for (away = 0; away < TWOCHOICE_LOAD_BUCKETS; away++) {
        if (at >= away && d->seen[at - away])
            return d->accept[at - away];
        if (at + away < TWOCHOICE_LOAD_BUCKETS && d->seen[at + away])
            return d->accept[at + away];
    }
    return TWOCHOICE_CERTAIN / 2;
}

QOS_API uint32_t *twochoice_priv_chain_of(struct twochoice_detector *d, uint64_t request)
{
    uint64_t h = qos_wrap_mul(request, UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    return &d->chain[h & (d->chains - 1)];
}

QOS_API uint32_t twochoice_priv_find_asked(struct twochoice_detector *d, uint64_t request)
{
    uint32_t i = *twochoice_priv_chain_of(d, request);
    while (i != TWOCHOICE_PRIV_NONE && d->asked[i].request != request)
        i = d->asked[i].chain;
    return i;
}

/* Out of the queue of deadlines. */
QOS_API void twochoice_priv_dequeue(struct twochoice_detector *d, const struct twochoice_priv_asked *a)
{
    if (a->older == TWOCHOICE_PRIV_NONE)
        d->oldest = a->newer;
    else
        d->asked[a->older].newer = a->newer;
    if (a->newer == TWOCHOICE_PRIV_NONE)
        d->newest = a->older;
    else
        d->asked[a->newer].older = a->older;
}

QOS_API void twochoice_priv_enqueue(struct twochoice_detector *d, uint32_t i, uint64_t now_ns)
{
    struct twochoice_priv_asked *a = &d->asked[i];
    a->deadline_ns = qos_sat_add(now_ns, d->timeout_ns);
    a->older = d->newest;
    a->newer = TWOCHOICE_PRIV_NONE;
    if (d->newest == TWOCHOICE_PRIV_NONE)
        d->oldest = i;
    else
        d->asked[d->newest].newer = i;
    d->newest = i;
}

/* What was expected of this probe is expected no longer. */
QOS_API void twochoice_priv_forget(struct twochoice_detector *d, uint32_t i)
{
    struct twochoice_priv_asked *a = &d->asked[i];
    uint32_t *link = twochoice_priv_chain_of(d, a->request);
    while (*link != i)
        link = &d->asked[*link].chain;
    *link = a->chain;
    twochoice_priv_dequeue(d, a);
    d->assigned -= a->assigned;
    a->used = false;
    a->older = d->unused;
    d->unused = i;
    d->probes--;
}

/* Time as the detector sees it: it never goes back. */
QOS_API uint64_t twochoice_priv_now(struct twochoice_detector *d, uint64_t now_ns)
{
    d->last_ns = qos_max(d->last_ns, now_ns);
    return d->last_ns;
}

QOS_API void twochoice_expire(struct twochoice_detector *d, uint64_t now_ns)
{
    now_ns = twochoice_priv_now(d, now_ns);
    while (d->oldest != TWOCHOICE_PRIV_NONE && d->asked[d->oldest].deadline_ns <= now_ns)
        twochoice_priv_forget(d, d->oldest);
}

QOS_API uint64_t twochoice_detector_next_ns(const struct twochoice_detector *d)
{
    return d->oldest == TWOCHOICE_PRIV_NONE ? QOS_NEVER : d->asked[d->oldest].deadline_ns;
}

QOS_API uint64_t twochoice_probed(struct twochoice_detector *d, uint64_t now_ns, uint64_t request, uint64_t len_bytes)
{
    struct twochoice_priv_asked *a;
    uint32_t i, *chain;
    uint64_t load;
    twochoice_expire(d, now_ns);
    i = twochoice_priv_find_asked(d, request);
    if (i != TWOCHOICE_PRIV_NONE) /* a repeated probe: the new guess counts */
        twochoice_priv_forget(d, i);
    load = twochoice_load(d);
    if (d->unused == TWOCHOICE_PRIV_NONE)
        twochoice_priv_forget(d, d->oldest);
    i = d->unused;
    a = &d->asked[i];
    d->unused = a->older;
    a->used = true;
    a->request = request;
    a->len_bytes = len_bytes;
    a->promised = false;
    a->bucket = twochoice_priv_bucket(d, load);
    a->assigned = d->preassign ? qos_mul_div_floor(len_bytes, twochoice_acceptance(d, load), TWOCHOICE_CERTAIN) : 0;
    a->assigned = qos_min(a->assigned, UINT64_MAX - d->assigned);
    d->assigned += a->assigned;
    chain = twochoice_priv_chain_of(d, request);
    a->chain = *chain;
    *chain = i;
    d->probes++;
    twochoice_priv_enqueue(d, i, d->last_ns);
    return load;
}

QOS_API enum qos_status twochoice_decided(struct twochoice_detector *d, uint64_t now_ns, uint64_t request,
                                          uint64_t len_bytes)
{
    struct twochoice_priv_asked *a;
    uint32_t i, *p;
    twochoice_expire(d, now_ns);
    i = twochoice_priv_find_asked(d, request);
    if (i == TWOCHOICE_PRIV_NONE || d->asked[i].promised)
        return QOS_ENOENT;
    a = &d->asked[i];
    p = &d->accept[a->bucket];
    if (!d->seen[a->bucket]) /* begins where its neighbours are */
        *p = twochoice_acceptance(d, a->bucket * d->bucket_bytes);
    if (len_bytes != 0)
        *p += (TWOCHOICE_CERTAIN - *p) >> d->learn_shift;
    else
        *p -= *p >> d->learn_shift;
    d->seen[a->bucket] += d->seen[a->bucket] != UINT32_MAX;
    if (len_bytes == 0) {
        twochoice_priv_forget(d, i);
        return QOS_OK;
    }
    d->assigned -= a->assigned;
    a->assigned = d->preassign ? qos_min(len_bytes, UINT64_MAX - d->assigned) : 0;
    d->assigned += a->assigned;
    a->promised = true;
    twochoice_priv_dequeue(d, a);
    twochoice_priv_enqueue(d, i, d->last_ns);
    return QOS_OK;
}

QOS_API void twochoice_arrived(struct twochoice_detector *d, uint64_t now_ns, uint64_t request, uint64_t len_bytes)
{
    uint32_t i;
    twochoice_expire(d, now_ns);
    i = twochoice_priv_find_asked(d, request);
    if (i != TWOCHOICE_PRIV_NONE && d->asked[i].promised) {
        uint64_t part = qos_min(len_bytes, d->asked[i].assigned);
        d->asked[i].assigned -= part;
        d->assigned -= part;
        if (d->asked[i].assigned == 0)
            twochoice_priv_forget(d, i);
    }
    twochoice_begin(d, len_bytes);
}

QOS_API void twochoice_heard(struct twochoice_detector *d, uint64_t now_ns, uint32_t server, uint64_t load,
                             uint64_t age_ns)
{
    struct twochoice_priv_heard *h = &d->heard[server % d->max_peers];
    uint64_t at_ns = qos_sat_sub(twochoice_priv_now(d, now_ns), age_ns);
    if (h->used && h->server == server && h->at_ns > at_ns)
        return; /* something newer is known */
    h->server = server;
    h->load = load;
    h->at_ns = at_ns;
    h->used = true;
}

QOS_API size_t twochoice_peers(struct twochoice_detector *d, uint64_t now_ns, struct twochoice_peer *out, size_t max)
{
    size_t n = 0;
    uint32_t looked;
    now_ns = twochoice_priv_now(d, now_ns);
    for (looked = 0; looked < d->max_peers && n < max; looked++) {
        struct twochoice_priv_heard *h = &d->heard[d->cursor];
        d->cursor = d->cursor + 1 == d->max_peers ? 0 : d->cursor + 1;
        if (!h->used)
            continue;
        if (now_ns - h->at_ns >= d->lifetime_ns) {
            h->used = false;
            continue;
        }
        out[n].server = h->server;
        out[n].load = h->load;
        out[n].age_ns = now_ns - h->at_ns;
        n++;
    }
    return n;
}

/* ---- implementation: messages ------------------------------------------------------------------------ */

QOS_API enum qos_status twochoice_encode(const struct twochoice_message *m, void *buf, size_t size_bytes, size_t *len)
{
    struct qos_writer w;
    struct qos_frame f;
    uint32_t i;
    if (!m || !buf || !len || (m->peer_count && !m->peers))
        return QOS_EINVAL;
    if (m->type < TWOCHOICE_PROBE || m->type > TWOCHOICE_DECISION || m->state > TWOCHOICE_FULL || m->peer_count > 65535)
        return QOS_ERANGE;
    if (size_bytes < TWOCHOICE_MESSAGE_BYTES(m->peer_count))
        return QOS_EMEMORY;
    qos_writer_init(&w, (uint8_t *)buf + QOS_FRAME_HEADER_BYTES, size_bytes - QOS_FRAME_HEADER_BYTES);
    qos_write_u32(&w, m->server);
    qos_write_u16(&w, (uint16_t)m->state);
    qos_write_u16(&w, (uint16_t)m->peer_count);
    qos_write_u32(&w, m->chosen);
    qos_write_u64(&w, m->request);
    qos_write_u64(&w, m->len_bytes);
    qos_write_u64(&w, m->load);
    for (i = 0; i < m->peer_count; i++) {
        qos_write_u32(&w, m->peers[i].server);
        qos_write_u64(&w, m->peers[i].load);
        qos_write_u64(&w, m->peers[i].age_ns);
    }
    f.magic = TWOCHOICE_MESSAGE_MAGIC;
    f.version = TWOCHOICE_MESSAGE_VERSION;
    f.type = (uint16_t)m->type;
    f.payload_bytes = (uint32_t)w.pos;
    return qos_frame_seal(&f, buf, size_bytes, len);
}

QOS_API enum qos_status twochoice_decode(const void *buf, size_t size_bytes, struct twochoice_message *m)
{
    struct twochoice_message got;
    struct qos_reader r;
    struct qos_frame f;
    enum qos_status st;
    uint32_t i;
    if (!buf || !m)
        return QOS_EINVAL;
    st = qos_frame_open(buf, size_bytes, TWOCHOICE_MESSAGE_MAGIC, TWOCHOICE_MESSAGE_VERSION, &f);
    if (st != QOS_OK)
        return st;
    qos_reader_init(&r, (const uint8_t *)buf + QOS_FRAME_HEADER_BYTES, f.payload_bytes);
    got.type = f.type;
    got.server = qos_read_u32(&r);
    got.state = qos_read_u16(&r);
    got.peer_count = qos_read_u16(&r);
    got.chosen = qos_read_u32(&r);
    got.request = qos_read_u64(&r);
    got.len_bytes = qos_read_u64(&r);
    got.load = qos_read_u64(&r);
    got.peers = m->peers;
    if (r.bad || got.type < TWOCHOICE_PROBE || got.type > TWOCHOICE_DECISION || got.state > TWOCHOICE_FULL ||
        QOS_FRAME_HEADER_BYTES + (size_t)f.payload_bytes != TWOCHOICE_MESSAGE_BYTES(got.peer_count))
        return QOS_ECORRUPT;
    if (got.peer_count > (m->peers ? m->peer_count : 0))
        return QOS_EMEMORY;
    for (i = 0; i < got.peer_count; i++) {
        got.peers[i].server = qos_read_u32(&r);
        got.peers[i].load = qos_read_u64(&r);
        got.peers[i].age_ns = qos_read_u64(&r);
    }
    *m = got;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_TWOCHOICE_H */
