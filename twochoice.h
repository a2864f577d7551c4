/* twochoice.h - redirected burst writes: a redirect table that survives crashes            SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   A parallel program ends its write phase when its slowest write ends. One storage server that is slow for a second
 *   (a straggler) holds up thousands of processes. The remedy is to write to another server, now; the price is to
 *   remember where the bytes are. Changing the file system's metadata would invalidate every client's cache. So the
 *   object's own ("home") server keeps a redirect table: these bytes of this object are on that server. The table is
 *   asked before every read and changed at every redirected write, it must not lose an entry when the server dies,
 *   and in idle times a maintainer pulls the bytes home and deletes the entries.
 *
 * SYNOPSIS
 *
 *     #include "twochoice.h"
 *     #include <stdlib.h>
 *
 *     int main(void)
 *     {
 *         struct twochoice_table_config cfg = {0};        // memory only; give it a storage to survive a crash
 *         struct twochoice_table t;
 *         struct twochoice_piece p[4];
 *         void *mem;
 *         size_t n;
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
 *   - See qos.h for what holds for every header. Single owner: one thread, or under one lock.
 *   - Memory is fixed: at most 64 bytes per fragment, whatever the pattern of writes and however many objects the
 *     fragments belong to. A full pool is an error (QOS_EFULL) of `reserve`, before data is written elsewhere.
 *   - Order of a redirected write: reserve; data durable at the target; create; commit; acknowledge. Of a write at
 * home: data durable; local; commit; acknowledge. Of a pull: start; read; ready; write at home, durable; finish;
 * commit; drop the copy at the target. Commits may be shared by any number of changes.
 *   - After a crash at any point, recover gives a table that holds every change whose commit returned QOS_OK, possibly
 *     some that came later, in order, and none else - or an error that says what is damaged. Never a wrong location.
 *   - No pointer is stored in the memory: a table may be copied or mapped elsewhere if struct twochoice_table is
 * rebuilt.
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
 *   Redirect table (Section V-B). A B+tree, keyed by (object, offset), over a fixed pool of 512-byte nodes with 32-bit
 *   indices; a leaf holds 15 fragments of 32 bytes (object, offset, end, and one word of version and target), an inner
 *   node 24 children. Keys stand in columns. A search compares, without a branch, three keys and then at most five, and
 *   all eight lines of the next node are asked for at once, so that a query costs one miss per level.
 *   Nodes are made roomy, or refilled, on the way down; there are no parent pointers. A full node first
 *   shares with a neighbour; two full neighbours become three: every leaf but under a tiny root holds at least 9 of
 *   15, every inner node 14 of 24. Hence the bound on memory: 512/9 * (1 + 1/14 + 1/14^2 + ...) = 61.3 bytes a
 * fragment. Local bytes take no space: what no fragment covers is at home.
 *
 *   Versions. Every change is stamped with the next of 2^48 - 1 versions; the bytes it redirects carry it. A pull is
 *   handed a live piece with its stamp, and finish converts only bytes that still carry it. Adjacent fragments of one
 *   target are joined, and the joined fragment takes the newer stamp, unless an open pull may have been handed the
 *   older one: no stamp of a version given out after the last pull_start has been handed out, so one comparison
 * decides.
 *
 *   Log. Records of 48 bytes; a chain of CRC32C ties each to the one before. Each says how many before it were not
 *   yet durable. So recovery can tell a tail that a crash cut (dropped) from a damaged record that
 *   somebody was told is safe (QOS_ECORRUPT). A compaction writes the live fragments to a second log, in steps, while
 *   changes go to both, and swaps when both say the same.
 *
 *   Where we differ from the paper:
 *   - The paper appends every operation to a list per object and searches it backwards, O(n). Here: O(log n).
 *   - The paper's delete entry takes the time at which the pull started (Section V-C, Figure 10), which is not enough
 *     (Figure 9, above): bytes must be compared, not entries. Stamps per fragment subsume it.
 *   - The Min/Max pair (Section V-B) loses data: create 0-100 and 100-200 on OSD-2; pull 0-100 and, meanwhile, create
 *     50-80 on OSD-3: the delete of 0-100 moves Min to 100, and a query of [50, 80] says "local". There is no such
 * pair.
 *   - A write that lands at home over a redirected range is recorded (local): the paper does not mention it.
 *   - While a pull writes its bytes at home, an overlapping home write waits, and the reverse (write_begin, ready).
 *
 * TUNABLES (define before the first include)
 *
 *   TWOCHOICE_MAX_FRAGMENTS   default of max_fragments: 65536 (4 MiB of memory: 64 GiB redirected in pieces of 1 MiB)
 *   TWOCHOICE_MAX_HOLDS       default of max_holds: 64 pulls and home writes at once; each change of one looks at all
 *
 *   A log of max_log_bytes = 96 * (max_fragments + 2) always has room for a compaction. Compact when it is half full.
 *
 * REFERENCES
 *
 *   D. Dai, Y. Chen, D. Kimpe, R. Ross: Two-Choice Randomized Dynamic I/O Scheduler for Object Storage Systems, SC
 * 2014. R. Bayer, K. Unterauer; D. Comer: The Ubiquitous B-Tree, ACM Computing Surveys 11(2), 1979 (B*-trees: two to
 * three).
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

#define TWOCHOICE_LEAF_SLOTS 15  /* fragments in a leaf */
#define TWOCHOICE_INNER_SLOTS 24 /* children of an inner node */
#define TWOCHOICE_LEAF_LEAST 9   /* fewest, but for the root and its only two children */
#define TWOCHOICE_INNER_LEAST 14

/* Node of the tree: 8 cache lines. Keys stand in columns, so that a search reads nothing else. */
struct twochoice_priv_node {
    uint32_t count, next, prev; /* leaves are linked in both directions; free nodes by next */
    uint32_t unused_zero[5];
    union {
        struct {
            uint64_t object[TWOCHOICE_LEAF_SLOTS], offset[TWOCHOICE_LEAF_SLOTS], end[TWOCHOICE_LEAF_SLOTS];
            uint64_t tag[TWOCHOICE_LEAF_SLOTS]; /* version << 16 | target */
        } leaf;
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

/* ---- implementation -------------------------------------------------------------------------------- */

#ifndef QOS_DECLARE_ONLY

#define TWOCHOICE_PRIV_NONE UINT32_MAX
#define TWOCHOICE_PRIV_GROUP 3 /* most nodes that share their entries at once */

enum { TWOCHOICE_PRIV_FREE, TWOCHOICE_PRIV_COPYING, TWOCHOICE_PRIV_WRITING, TWOCHOICE_PRIV_HOME_WRITE };

/* One fragment of the tree: a leaf and a slot in it. */
struct twochoice_priv_at {
    struct twochoice_priv_node *leaf; /* NULL: none */
    uint32_t slot;
};

QOS_API uint32_t twochoice_priv_slots(uint32_t level)
{
    return level == 0 ? TWOCHOICE_LEAF_SLOTS : TWOCHOICE_INNER_SLOTS;
}

QOS_API uint32_t twochoice_priv_least(uint32_t level)
{
    return level == 0 ? TWOCHOICE_LEAF_LEAST : TWOCHOICE_INNER_LEAST;
}

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

/* Index of the last of blocks * width keys that is <= (object, offset), if the first is known to be. First the block,
 * then the place in it: two rounds of comparisons that do not wait for each other, with no branch to mispredict. */
QOS_API uint32_t twochoice_priv_search(const uint64_t *objects, const uint64_t *offsets, uint32_t blocks,
                                       uint32_t width, uint64_t object, uint64_t offset)
{
    uint32_t base = 0, rank = 0, i;
    for (i = 1; i < blocks; i++)
        base += twochoice_priv_le(objects[i * width], offsets[i * width], object, offset);
    base *= width;
    for (i = 1; i < width; i++)
        rank += twochoice_priv_le(objects[base + i], offsets[base + i], object, offset);
    return base + rank;
}

/* How many fragments of the leaf start at or before the key. */
QOS_API uint32_t twochoice_priv_rank(const struct twochoice_priv_node *leaf, uint64_t object, uint64_t offset)
{
    const uint64_t *objects = leaf->u.leaf.object, *offsets = leaf->u.leaf.offset;
    if (!twochoice_priv_le(objects[0], offsets[0], object, offset))
        return 0;
    return 1 + twochoice_priv_search(objects, offsets, 3, TWOCHOICE_LEAF_SLOTS / 3, object, offset);
}

/* The child that the key belongs to: the last whose lower bound is not above it. The first child's bound is not
 * above any key that comes here. */
QOS_API uint32_t twochoice_priv_child(const struct twochoice_priv_node *inner, uint64_t object, uint64_t offset)
{
    return twochoice_priv_search(inner->u.inner.object, inner->u.inner.offset, 4, TWOCHOICE_INNER_SLOTS / 4, object,
                                 offset);
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
    size_t bytes = (twochoice_priv_slots(level) - count) * sizeof(uint64_t);
    n->count = count;
    if (level == 0) {
        __builtin_memset(n->u.leaf.object + count, 0xff, bytes);
        __builtin_memset(n->u.leaf.offset + count, 0xff, bytes);
    } else {
        __builtin_memset(n->u.inner.object + count, 0xff, bytes);
        __builtin_memset(n->u.inner.offset + count, 0xff, bytes);
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
    twochoice_priv_move(leaf->u.leaf.object, to, from, n);
    twochoice_priv_move(leaf->u.leaf.offset, to, from, n);
    twochoice_priv_move(leaf->u.leaf.end, to, from, n);
    twochoice_priv_move(leaf->u.leaf.tag, to, from, n);
}

QOS_API void twochoice_priv_inner_shift(struct twochoice_priv_node *p, uint32_t to, uint32_t from)
{
    uint32_t n = p->count - from;
    twochoice_priv_move(p->u.inner.object, to, from, n);
    twochoice_priv_move(p->u.inner.offset, to, from, n);
    __builtin_memmove(p->u.inner.child + to, p->u.inner.child + from, n * sizeof p->u.inner.child[0]);
}

/* Entries of up to three nodes in one row. */
struct twochoice_priv_row {
    uint64_t object[TWOCHOICE_PRIV_GROUP * TWOCHOICE_INNER_SLOTS], offset[TWOCHOICE_PRIV_GROUP * TWOCHOICE_INNER_SLOTS];
    uint64_t end[TWOCHOICE_PRIV_GROUP * TWOCHOICE_LEAF_SLOTS], tag[TWOCHOICE_PRIV_GROUP * TWOCHOICE_LEAF_SLOTS];
    uint32_t child[TWOCHOICE_PRIV_GROUP * TWOCHOICE_INNER_SLOTS];
};

QOS_API void twochoice_priv_gather(struct twochoice_priv_row *row, uint32_t at, const struct twochoice_priv_node *n,
                                   uint32_t level)
{
    size_t bytes = n->count * sizeof(uint64_t);
    if (level == 0) {
        __builtin_memcpy(row->object + at, n->u.leaf.object, bytes);
        __builtin_memcpy(row->offset + at, n->u.leaf.offset, bytes);
        __builtin_memcpy(row->end + at, n->u.leaf.end, bytes);
        __builtin_memcpy(row->tag + at, n->u.leaf.tag, bytes);
    } else {
        __builtin_memcpy(row->object + at, n->u.inner.object, bytes);
        __builtin_memcpy(row->offset + at, n->u.inner.offset, bytes);
        __builtin_memcpy(row->child + at, n->u.inner.child, n->count * sizeof(uint32_t));
    }
}

QOS_API void twochoice_priv_scatter(const struct twochoice_priv_row *row, uint32_t at, uint32_t count,
                                    struct twochoice_priv_node *n, uint32_t level)
{
    size_t bytes = count * sizeof(uint64_t);
    twochoice_priv_set_count(n, level, count);
    if (level == 0) {
        __builtin_memcpy(n->u.leaf.object, row->object + at, bytes);
        __builtin_memcpy(n->u.leaf.offset, row->offset + at, bytes);
        __builtin_memcpy(n->u.leaf.end, row->end + at, bytes);
        __builtin_memcpy(n->u.leaf.tag, row->tag + at, bytes);
    } else {
        __builtin_memcpy(n->u.inner.object, row->object + at, bytes);
        __builtin_memcpy(n->u.inner.offset, row->offset + at, bytes);
        __builtin_memcpy(n->u.inner.child, row->child + at, count * sizeof(uint32_t));
    }
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
    if (left != TWOCHOICE_PRIV_NONE)
        t->node[left].next = right;
    if (right != TWOCHOICE_PRIV_NONE)
        t->node[right].prev = left;
}

/* Spreads the entries of `had` neighbouring children of p, from `first` on, evenly over `gets` nodes: one more, one
 * less, or as many. A node comes or goes in second place, so that its neighbours in the list of leaves are at hand. */
QOS_API void twochoice_priv_spread(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t first,
                                   uint32_t had, uint32_t gets, uint32_t level)
{
    struct twochoice_priv_row row;
    uint32_t total = 0, at = 0, k;
    for (k = 0; k < had; k++) {
        const struct twochoice_priv_node *n = &t->node[p->u.inner.child[first + k]];
        twochoice_priv_gather(&row, total, n, level);
        total += n->count;
    }
    if (gets > had) {
        uint32_t fresh = twochoice_priv_new_node(t, level);
        if (level == 0)
            twochoice_priv_link(t, p->u.inner.child[first], fresh);
        twochoice_priv_inner_shift(p, first + 2, first + 1);
        p->u.inner.child[first + 1] = fresh;
        p->count++;
    } else if (gets < had) {
        uint32_t gone = p->u.inner.child[first + 1];
        if (level == 0)
            twochoice_priv_unlink(t, gone);
        twochoice_priv_free_node(t, gone);
        twochoice_priv_inner_shift(p, first + 1, first + 2);
        twochoice_priv_set_count(p, level + 1, p->count - 1);
    }
    for (k = 0; k < gets; k++) {
        uint32_t share = (total - at) / (gets - k);
        twochoice_priv_scatter(&row, at, share, &t->node[p->u.inner.child[first + k]], level);
        if (k > 0) {
            p->u.inner.object[first + k] = row.object[at];
            p->u.inner.offset[first + k] = row.offset[at];
        }
        at += share;
    }
}

/* Child i of p, a node of `level`, is full, p is not: shares with a neighbour, and when that has little room too,
 * makes three of the two. Each then has its least. */
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
    twochoice_priv_spread(t, p, left, 2, both < 3 * twochoice_priv_least(level) ? 2 : 3, level);
}

/* Child i of p has its least or fewer: shares with two neighbours, or makes two of the three. Only a root has fewer
 * than three children: then the two share, or become one. */
QOS_API void twochoice_priv_refill(struct twochoice_table *t, struct twochoice_priv_node *p, uint32_t i, uint32_t level)
{
    uint32_t slots = twochoice_priv_slots(level), first, had, total = 0, k;
    had = p->count < TWOCHOICE_PRIV_GROUP ? p->count : TWOCHOICE_PRIV_GROUP;
    if (had == 1)
        return;
    first = i == 0 ? 0 : i - 1;
    if (first + had > p->count)
        first = p->count - had;
    for (k = 0; k < had; k++)
        total += t->node[p->u.inner.child[first + k]].count;
    /* One slot stays free, lest the next insert undoes it. */
    twochoice_priv_spread(t, p, first, had, total < (had - 1) * slots ? had - 1 : had, level);
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

/* The same, with room for one more entry in every node on the way. *upper: a lower bound of the leaf behind. */
QOS_API struct twochoice_priv_node *twochoice_priv_descend_roomy(struct twochoice_table *t, uint64_t object,
                                                                 uint64_t offset, struct twochoice_piece *upper)
{
    struct twochoice_priv_node *p = &t->node[t->root];
    uint32_t level;
    upper->object = upper->offset = UINT64_MAX;
    if (p->count == twochoice_priv_slots(t->height)) {
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
        if (n->count == twochoice_priv_slots(level - 1)) {
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
        if (n->count <= twochoice_priv_least(level - 1)) {
            twochoice_priv_refill(t, p, i, level - 1);
            i = twochoice_priv_child(p, object, offset);
            n = &t->node[p->u.inner.child[i]];
        }
        p = n;
    }
    slot = twochoice_priv_rank(p, object, offset) - 1;
    QOS_ASSERT(p->u.leaf.object[slot] == object && p->u.leaf.offset[slot] == offset);
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
    if (!at.leaf) {
        at.leaf = twochoice_priv_descend(t, object, offset); /* the first leaf */
        at.slot = 0;
        if (at.leaf->count == 0)
            at.leaf = NULL;
        return at;
    }
    if (at.leaf->u.leaf.object[at.slot] == object && at.leaf->u.leaf.end[at.slot] > offset)
        return at;
    return twochoice_priv_after(t, at);
}

/* The bytes of an old fragment may take a newer stamp only if no open pull was handed them: its completion could
 * not tell them from changed ones. */
QOS_API bool twochoice_priv_may_merge(const struct twochoice_table *t, uint64_t old_tag, uint64_t tag)
{
    return twochoice_priv_target(old_tag) == twochoice_priv_target(tag) &&
           (t->pulls_open == 0 || old_tag >> 16 > t->pulls_newest);
}

/* Adds a fragment where nothing is. The leaf has room, and `rank` fragments at or before (object, offset). */
QOS_API void twochoice_priv_add(struct twochoice_table *t, struct twochoice_priv_node *leaf, uint32_t rank,
                                uint64_t object, uint64_t offset, uint64_t end, uint64_t tag)
{
    twochoice_priv_leaf_shift(leaf, rank + 1, rank);
    leaf->u.leaf.object[rank] = object;
    leaf->u.leaf.offset[rank] = offset;
    leaf->u.leaf.end[rank] = end;
    leaf->u.leaf.tag[rank] = tag;
    leaf->count++;
    t->fragments++;
}

/* Makes [offset, end) local. At most one fragment more than before. */
QOS_API void twochoice_priv_cut(struct twochoice_table *t, uint64_t object, uint64_t offset, uint64_t end)
{
    for (;;) {
        struct twochoice_priv_at at = twochoice_priv_reach(t, object, offset);
        uint64_t from, to, tag;
        if (!at.leaf || at.leaf->u.leaf.object[at.slot] != object || at.leaf->u.leaf.offset[at.slot] >= end)
            return;
        from = at.leaf->u.leaf.offset[at.slot];
        to = at.leaf->u.leaf.end[at.slot];
        tag = at.leaf->u.leaf.tag[at.slot];
        if (from < offset)
            at.leaf->u.leaf.end[at.slot] = offset;
        else
            twochoice_priv_erase(t, object, from);
        if (to > end) {
            struct twochoice_piece upper;
            struct twochoice_priv_node *leaf = twochoice_priv_descend_roomy(t, object, end, &upper);
            twochoice_priv_add(t, leaf, twochoice_priv_rank(leaf, object, end), object, end, to, tag);
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
    struct twochoice_priv_node *leaf = twochoice_priv_descend_roomy(t, object, offset, &upper);
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
        bool left, right;
        uint64_t *ltag = NULL, *rtag = NULL;
        twochoice_priv_find_gap(t, object, offset, end, &g);
        left = g.left.leaf && g.left.leaf->u.leaf.object[g.left.slot] == object;
        right = g.right.leaf && g.right.leaf->u.leaf.object[g.right.slot] == object;
        if ((left && g.left.leaf->u.leaf.end[g.left.slot] > offset) ||
            (right && g.right.leaf->u.leaf.offset[g.right.slot] < end)) {
            twochoice_priv_cut(t, object, offset, end);
            continue;
        }
        if (left && g.left.leaf->u.leaf.end[g.left.slot] == offset)
            ltag = &g.left.leaf->u.leaf.tag[g.left.slot];
        if (right && g.right.leaf->u.leaf.offset[g.right.slot] == end)
            rtag = &g.right.leaf->u.leaf.tag[g.right.slot];
        left = ltag && twochoice_priv_may_merge(t, *ltag, tag);
        right = rtag && twochoice_priv_may_merge(t, *rtag, tag);
        if (!left && !right) {
            twochoice_priv_add(t, g.leaf, g.rank, object, offset, end, tag);
            return;
        }
        if (right) {
            tag = qos_max(tag, *rtag);
            if (!left && g.right.leaf == g.leaf) {
                /* Not below the leaf's lower bound: the key was led here. */
                g.right.leaf->u.leaf.offset[g.right.slot] = offset;
                *rtag = tag;
                return;
            }
            end = g.right.leaf->u.leaf.end[g.right.slot];
            twochoice_priv_erase(t, object, g.right.leaf->u.leaf.offset[g.right.slot]);
            continue;
        }
        g.left.leaf->u.leaf.end[g.left.slot] = end;
        *ltag = qos_max(tag, *ltag);
        return;
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
    o->l.size = o->l.align = 0;
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

QOS_API bool twochoice_priv_fits(const uint8_t *b, uint32_t crc_before)
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
    uint32_t one = redirect ? 1 : 0;
    if (at.leaf && at.leaf->u.leaf.object[at.slot] == object && at.leaf->u.leaf.offset[at.slot] < offset) {
        if (at.leaf->u.leaf.end[at.slot] > end)
            return 1 + one;
        at = twochoice_priv_after(t, at);
    }
    if (at.leaf && at.leaf->u.leaf.object[at.slot] == object && at.leaf->u.leaf.end[at.slot] <= end)
        return 0; /* at least one fragment goes */
    return one;
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
 * damaged? It was durable if a record behind it, which still fits the CRC before itself, was written knowing so.
 * *end: where the log ends. */
QOS_API enum qos_status twochoice_priv_judge(struct twochoice_table *t, struct twochoice_priv_reader *r, uint64_t bad,
                                             uint64_t *end)
{
    const uint8_t *record;
    uint64_t pos = bad;
    uint32_t crc = 0;
    size_t have;
    bool damaged = false;
    for (;; pos += TWOCHOICE_RECORD_BYTES) {
        struct twochoice_priv_record later;
        enum qos_status st = twochoice_priv_fetch(t, r, pos, &record, &have);
        if (st != QOS_OK)
            return st;
        if (have < TWOCHOICE_RECORD_BYTES)
            break;
        if (pos == bad) {
            damaged = !twochoice_priv_looks_torn(record, pos);
        } else if (twochoice_priv_fits(record, crc)) {
            twochoice_priv_decode(record, &later);
            if ((pos - bad) / TWOCHOICE_RECORD_BYTES > later.unsynced)
                damaged = true;
        }
        crc = qos_get_le32(record);
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
    if (r->format == 0 || (!redirect && r->type != TWOCHOICE_PRIV_HOME) || r->offset >= r->end ||
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
        if (!twochoice_priv_fits(record, crc))
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
    struct twochoice_priv_at at;
    if (!t)
        return QOS_EINVAL;
    if (!twochoice_priv_range(offset, len, &r.end))
        return QOS_ERANGE;
    at = twochoice_priv_reach(t, object, offset);
    if (!at.leaf || at.leaf->u.leaf.object[at.slot] != object || at.leaf->u.leaf.offset[at.slot] >= r.end)
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
    if (at.leaf && at.leaf->u.leaf.object[at.slot] == object) {
        bool inside = at.leaf->u.leaf.offset[at.slot] <= offset;
        end = qos_min(end, inside ? at.leaf->u.leaf.end[at.slot] : at.leaf->u.leaf.offset[at.slot]);
        tag = inside ? at.leaf->u.leaf.tag[at.slot] : 0;
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
        if (at.leaf->u.leaf.end[at.slot] <= offset)
            at = twochoice_priv_after(t, at);
    }
    return n < max ? n + 1 : max;
}

QOS_API bool twochoice_next(const struct twochoice_table *t, uint64_t object, uint64_t offset,
                            struct twochoice_piece *piece)
{
    struct twochoice_priv_at at = twochoice_priv_reach(t, object, offset);
    uint64_t from;
    if (!at.leaf)
        return false;
    from = at.leaf->u.leaf.offset[at.slot];
    if (at.leaf->u.leaf.object[at.slot] == object)
        from = qos_max(from, offset);
    twochoice_priv_piece(piece, at.leaf->u.leaf.object[at.slot], from, at.leaf->u.leaf.end[at.slot],
                         at.leaf->u.leaf.tag[at.slot]);
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
        twochoice_priv_piece(&p, at.leaf->u.leaf.object[at.slot], at.leaf->u.leaf.offset[at.slot],
                             at.leaf->u.leaf.end[at.slot], at.leaf->u.leaf.tag[at.slot]);
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
        r.type = TWOCHOICE_PRIV_HOME;
        r.target = 0;
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

/* Rules inside one node: order, lower bound, fill, blank slots. *last: the key before; moves on. */
QOS_API bool twochoice_priv_leaf_sound(const struct twochoice_table *t, const struct twochoice_priv_node *n,
                                       struct twochoice_piece *last)
{
    uint32_t i;
    for (i = 0; i < n->count; i++) {
        uint64_t object = n->u.leaf.object[i], offset = n->u.leaf.offset[i];
        if (n->u.leaf.end[i] <= offset || object < last->object || (object == last->object && offset < last->end))
            return false;
        if (n->u.leaf.tag[i] >> 16 > t->version || twochoice_priv_target(n->u.leaf.tag[i]) == t->home)
            return false;
        last->object = object;
        last->offset = offset;
        last->end = n->u.leaf.end[i];
    }
    for (; i < TWOCHOICE_LEAF_SLOTS; i++)
        if ((n->u.leaf.object[i] & n->u.leaf.offset[i]) != UINT64_MAX)
            return false;
    return true;
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
            const struct twochoice_priv_node *m;
            uint64_t object = n->u.inner.object[i], offset = n->u.inner.offset[i];
            if (c >= t->fresh_node || n->count > TWOCHOICE_INNER_SLOTS)
                return QOS_ECORRUPT;
            m = &t->node[c];
            if (m->count > twochoice_priv_slots(level - 1) || m->count == 0 ||
                (m->count < twochoice_priv_least(level - 1) && !(level == t->height && n->count < 3)))
                return QOS_ECORRUPT;
            if (level == 1 ? !twochoice_priv_le(object, offset, m->u.leaf.object[0], m->u.leaf.offset[0])
                           : object != m->u.inner.object[0] || offset != m->u.inner.offset[0])
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

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_TWOCHOICE_H */
