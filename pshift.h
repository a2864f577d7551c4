/* pshift.h - tokens for buckets spread over servers: allocation, scheduler, runtime  SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   A bucket (a tenant's container) has objects on several servers and a contract for the sum: at least R_i
 *   operations per period, wherever its requests land. A server knows only its own queue. So a controller
 *   hands out tokens: bucket i may count on a_i^j of them at server j, with sum_j a_i^j = R_i. Tokens beyond
 *   the bucket's demand at a server (strong excess) or beyond the server's capacity (weak excess) are lost. Which
 *   allocation loses fewest, how does one know that none loses fewer, and can it be had every 200 ms for a
 *   million buckets?
 *
 * SYNOPSIS
 *
 *     #include "pshift.h"
 *     #include <stdlib.h>
 *
 *     int main(void)
 *     {
 *         static const uint64_t capacity[2] = {100, 100}, reservation[2] = {100, 100};
 *         static const uint32_t row[3] = {0, 2, 4}, server[4] = {0, 1, 0, 1};
 *         static const uint64_t demand[4] = {150, 50, 50, 50};
 *         struct pshift_problem p = {2, 2, capacity, reservation, row, server, demand};
 *         struct pshift_config cfg = {2, 2, 4};
 *         uint64_t alloc[4];
 *         uint8_t cut[2];
 *         static struct pshift_solution s;                     // zero, then its arrays
 *         static struct pshift ps;
 *         size_t size = pshift_memsize(&cfg);
 *         void *mem = aligned_alloc(64, size);
 *         s.alloc = alloc;
 *         s.cut = cut;
 *         if (pshift_init(&ps, mem, size, &cfg) != QOS_OK || pshift_solve(&ps, &p, NULL, &s) != QOS_OK)
 *             return 1;
 *         if (pshift_verify(&ps, &p, &s) != QOS_OK)           // trusts nothing that the solver said
 *             return 1;
 *         free(mem);
 *         return s.excess.lo == 0 ? 0 : 1;                     // every reservation can be met
 *     }
 *
 * CONTRACT
 *
 *   - C11 and C++17, freestanding, integers only; memory and threads are the caller's. qos.h has the rest.
 *   - One struct pshift is used by one thread at a time; the problem is only read. pshift_solve may run parts of
 *     itself through the caller's parallel_for; its result does not depend on the number of threads.
 *   - Every R, d and C may be 0..PSHIFT_COUNT_MAX (2^63 - 1); sums are kept in 128 bits. A row may name a server
 *     twice (its demands add up) and may be empty. Servers, buckets and entries may be 0.
 *   - After an error the object is as it was, and the caller's output arrays are undefined (so there is nothing to
 *     retract from until something is solved again).
 *   - Memory: PSHIFT_BYTES_PER_ENTRY (17) bytes per entry, and O(servers + buckets). Nothing of the size
 *     servers x servers or servers x buckets.
 *   - A token scheduler, an agent and a controller are each used by one thread at a time. New grants are installed
 *     between two picks, O(1) for each bucket; the scheduler does not stop. pshift_sched_stats may be read from any
 *     thread.
 *   - Worst waits: see pshift_sched_pick. Wire messages are at most QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES +
 *     entries * PSHIFT_WIRE_ENTRY_BYTES long.
 *
 * WORKED EXAMPLE (Examples 1 and 2 of the paper, Table I)
 *
 *   Two servers of capacity 100; Red and Blue reserve 100 each; demand Red 150 + 50, Blue 50 + 50.
 *
 *       proportional:  Red 75 + 25, Blue 50 + 50    server 1 has 125 tokens, 25 of them weak excess; Phi = 175
 *       direct shift:  server 2 has spare demand 50 - 25 for Red: min{25 excess, 75 tokens, 25 spare, 25 room} = 25
 *       result:        Red 50 + 50, Blue 50 + 50    Phi = 200: both reservations are met
 *
 * ALGORITHM (Section III of the paper)
 *
 *   1. Initial prudent allocation (Algorithm 3) in integers: a_i^j = floor(A_i d_i^j / D_i) with A_i = min(R_i, D_i);
 *      what rounding leaves goes one by one to the largest remainders, the earlier entry first. An entry with a
 *      remainder is below its demand, so no entry exceeds it and every row sums to A_i exactly.
 *   2. Direct transfers: one sweep over the rows moves, inside each row, from overloaded to underloaded servers. An
 *      overloaded server never becomes underloaded by it, nor the reverse, so one sweep exhausts all paths of length 1.
 *   3. Paths by way of one broker, by sweeps as well. Where one side, overloaded or underloaded, is at most half of
 *      the other, it is spread over the servers in balance first, and finds partners from there; rows are swept only
 *      as long as they get on. Then the underloaded servers pull what each row's other servers hold; that leaves holes
 *      at those, which overloaded servers fill directly. Never more is pulled than there is excess. Once a sweep has
 *      asked every row, nothing leads to the servers that pulled: often that is the proof already.
 *   4. Progressive shifting (Algorithm 5): servers are labelled by the number of shifts to an underloaded server; then
 *      one depth-first pass moves tokens along shift paths, one label a step, until no such path is left (a blocking
 *      flow). The shortest path gets longer each time, so there are at most |S| - 1 rounds.
 *   5. No overloaded server with a path to an underloaded one: optimal. The servers without a label are the cut.
 *
 *   The certificate. For a set X of servers, no allocation serves more than
 *       cut(X) = sum_{j in X} C_j + sum_i min(A_i, sum_{j not in X} d_i^j)
 *   since what is served in X is bounded by capacity and the rest by demand and reservation. The solver returns X with
 *   cut(X) = Phi; pshift_verify recomputes both in one pass over the rows and trusts nothing else.
 *   The servers of X bind; a bucket with sum_{j not in X} d_i^j < A_i depends on them. pshift_shortfall spreads each
 *   overloaded server's weak excess over the buckets there, in proportion to their tokens.
 *
 *   Warm start. cut(X) = Phi means that no row leads out of X: where a server of X holds tokens of a bucket, the
 *   bucket's demand outside X is used up. Shifts among the servers of X, and among the others, leave that as it is. So
 *   a changed row gives what it can from X to the others, its tokens and those of a few more rows bring both sides to
 *   rest, and X is the certificate again: if no server of X has room and no other excess, which is asked of the servers
 *   alone. Only where that fails are all rows asked, as from step 3 on.
 *
 *   The token scheduler (Algorithm 1, Section II-A; weighted as in Section V). Round robin over the queues that have
 *   requests and R-tokens; if there are none, over those that have requests and L-tokens. Two sets of queues on three
 *   levels of 64-bit words find the next one without scanning: at most 12 words are read, for 10 queues or 200,000. A
 *   queue of weight w keeps its turn for w requests, as long as it stays eligible. Step 3's delay is the caller's.
 *
 *   The runtime (Section III-D). A server reports, for each bucket, what it served in this period, what it expects
 *   (waiting + arrivals of the last interval extended to the end of the period) and what tokens it holds. Each round
 *   the controller subtracts what was served, R- or L-token or opportunistic alike, from the reservations and limits,
 *   solves for the R-tokens, then for the L-tokens, and sends grants. Rules against faults, which the paper leaves
 *   open:
 *     - A grant replaces, and carries the `basis` it was computed from; the server deducts what it served since. So
 *       a grant that arrives late, or twice, issues nothing twice.
 *     - Epoch, period and sequence numbers make both kinds of message idempotent: what is not newer is stale.
 *     - For each bucket and server the controller knows the ceiling, the most that the server may have served with any
 *       grant it may still hold. Ceilings fall only when a report acknowledges the last grant; what a server served
 *       by an older, larger grant stands in every report, unchanged or not (unchanged_permille). Tokens below a
 *       limit are issued from what the ceilings leave: the sum never exceeds the limit, whatever is lost. The price is
 *       one round more until a limited bucket's tokens have moved; `reliable` saves it where grants cannot be lost.
 *     - A server without a report for silent_after rounds has no demand and no capacity: its buckets' reservations go
 *       elsewhere at the next plan. What it may hold counts against limits to the end of the period.
 *     - A server that starts again has a larger epoch; its old service stays counted. What it served after its last
 *       report counts against the limit (as if all its tokens were spent), not for the reservation: so at most the
 *       tokens it held are lost to the limit, none to the reservation.
 *     - A controller that starts again should hear every server before it plans. It cannot know what servers served
 *       before crashes in the same period: the limit may be exceeded by that, until the next period.
 *
 * WHERE WE DIFFER from the paper
 *
 *   The paper keeps the Token Movement Map, |S|^2 |B| entries, and updates O(|S| |B|) of them after
 *   each path. Here the map is never built: min(a_i^j, d_i^k - a_i^k) is read off row i when a search gets there.
 *   Cost: O(entries) for steps 1 to 3; O(entries + paths * length) for each round of step 4. The index from servers to
 *   rows that step 4 needs is built for a window of the rows first (PSHIFT_WINDOW_ROWS) and grown four times at a
 *   time, only while the window's rows do not suffice. The paper's proof [23] that no shift path means optimal is not
 *   relied upon: the cut proves it (max-flow min-cut), on every input, by itself.
 *
 * TUNABLES
 *
 *   PSHIFT_WINDOW_ROWS  rows in the first window of step 4. Each row of n entries offers about n^2 moves, so 1024 rows
 *                       connect 64 servers densely; too few cost one more build, of a four times larger index.
 *   PSHIFT_PULL_PASSES  sweeps by way of one broker before the search: each costs about as much as the initial
 *                       allocation; two or three suffice on the paper's cases, and the search does what they do not.
 *   PSHIFT_PARTS        a 64th of the rows is swept before it is asked whether that gets on: few enough questions, and
 *                       where a few rows do, few are swept. PSHIFT_WARM_PARTS, 160: the same for a warm start, which
 *                       has less to move.
 *   PSHIFT_PATIENCE     where the smaller side can be spread, direct transfers go on if 2 more parts seem to be enough.
 *   PSHIFT_TURNS        sweeps and spreads by turns, while they get on; most excess is gone after 3, the last tokens
 *                       of a million rows take up to 20.
 *   PSHIFT_SHARDS       the rows are cut into this many parts, for parallel_for. Fixed, so that the result does not
 *                       depend on the threads; 16 gives each of 8 threads two parts.
 *   PSHIFT_SHARD_ENTRIES  below this many entries there is one part: 2^17 entries take well under a millisecond.
 *
 * REFERENCES
 *
 *   Peng, Liu, Varman: Scalable QoS for Distributed Storage Clusters using Dynamic Token Allocation, MSST 2019.
 *   Dinitz: blocking flows on level graphs, Soviet Math. Dokl. 11, 1970. Ford, Fulkerson: max-flow min-cut, 1956.
 */
#ifndef QOS_PSHIFT_H
#define QOS_PSHIFT_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ------------------------------------------------------------------------------- */

#ifndef PSHIFT_WINDOW_ROWS
#define PSHIFT_WINDOW_ROWS 1024
#endif
#ifndef PSHIFT_PULL_PASSES
#define PSHIFT_PULL_PASSES 4
#endif
#ifndef PSHIFT_WARM_PARTS
#define PSHIFT_WARM_PARTS 160
#endif
#ifndef PSHIFT_PATIENCE
#define PSHIFT_PATIENCE 2
#endif
#ifndef PSHIFT_TURNS
#define PSHIFT_TURNS 33
#endif
#ifndef PSHIFT_SHARDS
#define PSHIFT_SHARDS 16
#endif
#ifndef PSHIFT_SHARD_ENTRIES
#define PSHIFT_SHARD_ENTRIES 131072
#endif
#ifndef PSHIFT_PARTS
#define PSHIFT_PARTS 64
#endif
#if PSHIFT_PARTS < 1 || PSHIFT_WARM_PARTS < 1 || PSHIFT_PATIENCE < 1 || PSHIFT_TURNS < 1 || PSHIFT_WINDOW_ROWS < 1 ||  \
    PSHIFT_PULL_PASSES < 0 || PSHIFT_SHARDS < 1 || PSHIFT_SHARDS > 1024 || PSHIFT_SHARD_ENTRIES < 1
#error "pshift.h: window rows, shards (1..1024) and shard entries must be positive"
#endif

/* ---- constants and types ------------------------------------------------------------------------- */

#define PSHIFT_COUNT_MAX (UINT64_MAX >> 1)  /* largest reservation, demand or capacity */
#define PSHIFT_ENTRIES_MAX (UINT32_MAX - 1) /* entries, buckets and servers */
#define PSHIFT_BYTES_PER_ENTRY 17           /* workspace; the rest is O(servers + buckets) */

/* Most that one struct pshift will be asked to solve. */
struct pshift_config {
    uint32_t servers, buckets, entries; /* each 0..PSHIFT_ENTRIES_MAX */
};

/* Sparse rows: bucket i has demand demand[e] at server server[e] for row[i] <= e < row[i + 1]. */
struct pshift_problem {
    uint32_t servers, buckets;
    const uint64_t *capacity;    /* [servers] C^j, operations per period */
    const uint64_t *reservation; /* [buckets] R_i, operations per period */
    const uint32_t *row;         /* [buckets + 1], row[0] = 0, not decreasing */
    const uint32_t *server;      /* [entries], each below servers */
    const uint64_t *demand;      /* [entries] d_i^j */
};

/* Runs task(arg, 0) .. task(arg, count - 1), in any order, side by side or not, and returns when all are done. */
typedef void (*pshift_task)(void *arg, uint32_t index);
typedef void (*pshift_parallel_for)(void *ctx, uint32_t count, pshift_task task, void *arg);

/* What may be shifted (Section III-C2). */
enum pshift_filter {
    PSHIFT_EXACT = 0, /* everything */
    PSHIFT_TOP_SERVER =
        1, /* of each server the M entries with most tokens may give, the M with most spare demand take */
    PSHIFT_TOP_GLOBAL = 2 /* the M buckets with most tokens may give, the M with most spare demand take */
};

/* How to solve; NULL stands for all zeros. */
struct pshift_options {
    pshift_parallel_for parallel_for; /* NULL: this thread does it */
    void *parallel_ctx;
    enum pshift_filter filter; /* 0: exact */
    uint32_t top_m;            /* M; at least 1 with a filter */
    bool initial_only; /* stop after the initial allocation (Algorithm 3): shares in proportion, nothing shifted */
};

/* Solution and certificate. The arrays are the caller's, and are set before the call. */
struct pshift_solution {
    uint64_t *alloc;              /* [entries] a_i^j */
    uint8_t *cut;                 /* [servers] 1: in X, binds; else 0 */
    uint64_t *shortfall;          /* [buckets] written by pshift_shortfall; NULL if it is not called */
    struct qos_u128 tokens;       /* sum of A_i = min(R_i, D_i) */
    struct qos_u128 unclaimed;    /* sum of R_i - A_i: reservation that has no demand */
    struct qos_u128 effective;    /* Phi: tokens that will be consumed */
    struct qos_u128 excess;       /* tokens - effective: weak excess; 0: all reservations can be met */
    struct qos_u128 cut_capacity; /* sum of C_j over X */
    struct qos_u128 cut_demand;   /* sum_i min(A_i, demand outside X); cut_capacity + cut_demand = effective */
    uint32_t cut_servers;         /* |X| */
    bool exact;                   /* the cut proves that nothing does better */
    bool shortfall_set;           /* shortfall[] belongs to this solution */
};

/* What the last solve did; for tuning and for curves. */
struct pshift_work {
    struct qos_u128 excess_start; /* weak excess of the initial allocation */
    struct qos_u128 direct;       /* tokens moved by the sweeps over the rows, directly */
    struct qos_u128 pulled;       /* and by way of one broker */
    struct qos_u128 searched;     /* tokens moved along paths that a search found */
    uint64_t paths;               /* such paths */
    uint32_t rounds;              /* searches by level */
    uint32_t indexed_rows;        /* rows of the last window; 0: no search was needed */
};

struct pshift_priv_node {
    uint32_t label;  /* shifts to an underloaded server, or PSHIFT_PRIV_NONE */
    uint32_t cursor; /* into index[], where the depth-first pass stands */
};

struct pshift_priv_index {
    uint32_t entry, bucket;
};

struct pshift_priv_row {
    uint32_t stamp;  /* of the search or pass that saw the row last */
    uint32_t label;  /* lowest label of a server that can take */
    uint32_t cursor; /* where the depth-first pass stands */
};

struct pshift_priv_step {
    uint32_t server, take, give; /* server takes tokens into the entry `take` from the entry `give` of the same row */
};

/* What a part of the rows adds up to. */
struct pshift_priv_part {
    struct qos_u128 tokens, unclaimed;
    uint64_t moved;
    enum qos_status status;
    bool twice; /* a row of 8 names a server twice */
};

/* Scratch of pshift_plan, the caller's. */
struct pshift_residual {
    uint64_t *demand;      /* [entries] */
    uint64_t *capacity;    /* [servers] */
    uint64_t *reservation; /* [buckets] */
};

/* Solver state: its memory is the caller's; the fields are private. */
struct pshift {
    struct pshift_config cfg;
    int64_t *balance;                  /* [servers] excess if positive, spare capacity if negative */
    uint64_t *excess_more;             /* [servers] further excess, in pieces of 2^62 */
    struct qos_u128 *load;             /* [servers] of the last solution */
    struct qos_u128 *scratch;          /* [servers] loads, of the verifier */
    struct qos_u128 *rest;             /* [servers] remainders, of the shortfalls */
    struct pshift_priv_node *node;     /* [servers] */
    uint32_t *column;                  /* [servers + 1] first index entry of each server */
    uint32_t *queue;                   /* [servers] */
    uint8_t *mark;                     /* [servers] PSHIFT_PRIV_ROOT, PSHIFT_PRIV_DONOR */
    struct pshift_priv_step *path;     /* [servers] */
    uint64_t *sums;                    /* [shards * servers] */
    int64_t *quota;                    /* [shards * servers] balances of the parts */
    struct pshift_priv_row *rows;      /* [buckets] */
    struct pshift_priv_index *index;   /* [entries] */
    uint64_t *key;                     /* [entries] remainders; sort keys of the filter */
    uint8_t *keep;                     /* [entries] PSHIFT_PRIV_GIVE | PSHIFT_PRIV_TAKE, with a filter */
    struct qos_u128 tokens, unclaimed; /* of the last solution */
    struct pshift_work work;
    struct pshift_priv_part part[PSHIFT_SHARDS];
    uint32_t next_row;   /* where the next window begins */
    uint32_t last_label; /* of the search: that of the overloaded servers it found */
    bool closed;         /* nothing leads to a root */
    bool sinks;          /* the search had somewhere to begin */
    uint32_t stamp;
    uint32_t retracted;                 /* rows that pshift_retract took out */
    uint32_t servers, buckets, entries; /* of the last solution */
    bool twice;                         /* some row of 8 entries named a server twice */
    bool solved;                        /* load, tokens and unclaimed describe the last solution */
};

/* ---- the token scheduler of a server: types ------------------------------------------------------- */

#define PSHIFT_QUEUES_MAX 262144    /* 64^3: three levels of bitmaps */
#define PSHIFT_UNLIMITED UINT64_MAX /* tokens that never run out, and a limit that is none */
#define PSHIFT_WEIGHT_DEFAULT 1     /* requests served in a turn */
#define PSHIFT_NO_QUEUE UINT32_MAX

struct pshift_sched_config {
    uint32_t queues;       /* 1..PSHIFT_QUEUES_MAX, one for each bucket that may be served here */
    uint64_t debt_max_ops; /* bound of each queue's debt from force; 0: 1024 */
};

enum pshift_backing { PSHIFT_RESERVATION, PSHIFT_NORMAL };

struct pshift_pick {
    uint32_t queue;
    enum pshift_backing backing; /* an R-token was consumed, or an L-token */
};

struct pshift_priv_queue {
    uint64_t pending, r_tokens, l_tokens, served, debt;
    uint32_t weight;
};

/* Queues that may be served: a bit each, and a bit for each word that is not zero, on three levels. */
struct pshift_priv_set {
    uint64_t *word[3];
};

/* Token scheduler. Single owner: arrivals, picks and grants come from one thread, one after the other; counters
 * (pshift_sched_stats) may be read from any. */
struct pshift_sched {
    struct pshift_sched_config cfg;
    struct pshift_priv_queue *queue;
    struct pshift_priv_set reserved, normal; /* pending requests and R-tokens; pending requests and L-tokens */
    uint32_t next;                           /* where the search begins */
    uint32_t turn;                           /* queue whose turn it is, PSHIFT_NO_QUEUE between turns */
    uint32_t left;                           /* requests left in its turn */
    qos_counter_t granted, borrowed, refused, waited, debt;
};

/* ---- the runtime: reports and grants -------------------------------------------------------------- */

#define PSHIFT_WIRE_MAGIC UINT32_C(0x66485350) /* "PSHf" */
#define PSHIFT_WIRE_VERSION 1
#define PSHIFT_WIRE_REPORT 1
#define PSHIFT_WIRE_GRANT 2
#define PSHIFT_WIRE_HEAD_BYTES 64  /* of a payload, before its entries */
#define PSHIFT_WIRE_ENTRY_BYTES 28 /* of a payload */

/* What a server tells about one bucket. */
struct pshift_report_entry {
    uint32_t bucket;
    uint64_t served; /* requests served in this period */
    uint64_t demand; /* requests expected in the rest of the period, those that wait included */
    uint64_t held;   /* R- and L-tokens left, PSHIFT_UNLIMITED if without end */
};

/* What a server may spend on one bucket from when it had served `basis` requests in this period. */
struct pshift_grant_entry {
    uint32_t bucket;
    uint64_t r_tokens, l_tokens, basis;
};

struct pshift_message {
    uint32_t server;
    uint32_t count;            /* entries */
    uint64_t server_epoch;     /* grows with each start of the server: its counters began at zero then */
    uint64_t controller_epoch; /* grows with each start of the controller; report: of the last grant installed */
    uint64_t seq;              /* of this message, from 1, by sender and epoch */
    uint64_t grant_seq;        /* report: of the last grant installed, 0 for none; grant: as seq */
    uint64_t period;
    uint64_t capacity; /* report: requests that the server expects to serve in the rest of the period */
};

/* A server's side. queue i of the scheduler is bucket i. */
struct pshift_agent_config {
    uint32_t queues;           /* as the scheduler's */
    uint32_t server;           /* this server's number */
    uint64_t epoch;            /* 1.., larger than at any earlier start: a boot counter, or seconds since 1970 */
    uint64_t default_l_tokens; /* of a bucket without a grant in this period: 0, or PSHIFT_UNLIMITED */
    uint32_t
        unchanged_permille; /* a bucket whose projected total moved by no more need not be reported; 0: report all */
};

struct pshift_priv_seen {
    uint64_t base, served, arrived,
        told;         /* served at the period's begin; both counters at the last report; last total */
    uint64_t allowed; /* served and held together, as the last grant has it */
    bool sent;
};

struct pshift_agent {
    struct pshift_agent_config cfg;
    struct pshift_sched *sched;
    struct pshift_priv_seen *seen; /* [queues] */
    uint64_t seq, period, controller_epoch, grant_seq;
    uint64_t served; /* by all queues, at the last report */
};

/* The controller's side. */
struct pshift_control_config {
    uint32_t servers, buckets;
    uint32_t records;      /* most (bucket, server) pairs */
    uint64_t epoch;        /* 1.., larger than at any earlier start */
    uint32_t silent_after; /* rounds without a report after which a server counts as silent; 0: 2 */
    bool reliable;         /* no grant is ever lost: a limit's tokens may move in one round instead of two */
};

struct pshift_priv_record {
    uint64_t served, banked, demand; /* in this epoch of the server; in earlier ones; to come */
    uint64_t granted, ceiling;       /* most it may have served with the last grant; with any it may still hold */
    uint64_t r_tokens, l_tokens;     /* of the last plan */
    uint64_t basis;                  /* served when it was made */
    uint32_t bucket, server, next;   /* next record of the server */
};

struct pshift_priv_peer {
    uint64_t epoch, seq, capacity, grant_seq, heard;
    uint32_t first; /* record */
    bool known;
    bool unsent; /* the last plan's grant was not asked for yet */
};

struct pshift_control {
    struct pshift_control_config cfg;
    struct pshift_priv_peer *peer;        /* [servers] */
    struct pshift_priv_record *record;    /* [records] */
    uint32_t *slot, *entry;               /* hash of (bucket, server) to record; record to entry of the plan */
    uint64_t *limit, *reservation, *lost; /* [buckets] contract; L-tokens that nobody can account for */
    uint64_t *plan_reservation, *plan_limit, *budget; /* [buckets] */
    uint64_t *plan_capacity, *rest_capacity;          /* [servers] */
    uint64_t *demand, *rest_demand, *alloc, *l_alloc; /* [records] */
    uint64_t *rest_reservation;                       /* [buckets] */
    uint32_t *row, *server;                           /* [buckets + 1], [records] */
    uint8_t *cut;                                     /* [servers] */
    struct pshift_solution r, l;                      /* of the last plan */
    uint64_t period, round;
    uint32_t count, slots;
};

/* ---- API ------------------------------------------------------------------------------------------- */

/* Bytes of memory, to be aligned to 64; 0 if cfg is NULL, out of range or too large for size_t. */
QOS_API size_t pshift_memsize(const struct pshift_config *cfg);
/* QOS_EINVAL, QOS_ERANGE, QOS_EALIGN, QOS_EMEMORY: ps unchanged. Any thread, before use. */
QOS_API QOS_NODISCARD enum qos_status pshift_init(struct pshift *ps, void *mem, size_t size_bytes,
                                                  const struct pshift_config *cfg);
/* Solves from scratch. QOS_EINVAL: a pointer is missing, rows are not sorted, a server does not exist, top_m is 0;
 * QOS_ERANGE: a count above PSHIFT_COUNT_MAX; QOS_EMEMORY: larger than the configuration. Single owner; ends after at
 * most |S| rounds of O(entries + paths * length). */
QOS_API QOS_NODISCARD enum qos_status pshift_solve(struct pshift *ps, const struct pshift_problem *p,
                                                   const struct pshift_options *opt, struct pshift_solution *s);
/* Warm start. When some buckets' reservations, demands or servers change (not their numbers of entries): retract them
 * from the last solution while *p and s->alloc still hold the old rows, change the rows, and resolve the same buckets;
 * capacities may change too. All other rows, and s->alloc, must be as the last call found and left them: they are not
 * checked again. The result is as optimal as a fresh one, not the same one. Cost: O(servers), that of the changed rows,
 * and of as many others as it takes to place their tokens; all rows if the servers that bind are others than before.
 * retract: QOS_EINVAL: nothing was solved, or a problem of another size; QOS_ENOENT: no such bucket; QOS_EEXIST: it is
 * retracted already; all unchanged then. Until the rows are resolved, only pshift_solve is possible beside it.
 * resolve: QOS_EINVAL: not exactly the retracted buckets; or as pshift_solve, the rows stay retracted then. */
QOS_API QOS_NODISCARD enum qos_status pshift_retract(struct pshift *ps, const struct pshift_problem *p,
                                                     const struct pshift_solution *s, const uint32_t *bucket,
                                                     uint32_t count);
QOS_API QOS_NODISCARD enum qos_status pshift_resolve(struct pshift *ps, const struct pshift_problem *p,
                                                     const struct pshift_options *opt, struct pshift_solution *s,
                                                     const uint32_t *bucket, uint32_t count);
/* R-tokens, then L-tokens on the demand and capacity that they leave (Section III-D). limit[i]: at most so many tokens
 * of both kinds, PSHIFT_UNLIMITED: no limit; a reservation above it counts as the limit. *r and *l are two solutions
 * with arrays of their own; *residual has room for the second problem and holds it afterwards. Errors as pshift_solve.
 */
QOS_API QOS_NODISCARD enum qos_status pshift_plan(struct pshift *ps, const struct pshift_problem *p,
                                                  const uint64_t *limit, const struct pshift_options *opt,
                                                  struct pshift_solution *r, struct pshift_solution *l,
                                                  const struct pshift_residual *residual);
/* One pass, no trust: every a_i^j within its demand, every row sum A_i, every number of *s recomputed, and
 * cut = Phi (if s->exact); shortfalls too (if s->shortfall_set). ps lends scratch memory only. QOS_ECORRUPT if anything
 * is wrong; other errors as above. */
QOS_API QOS_NODISCARD enum qos_status pshift_verify(struct pshift *ps, const struct pshift_problem *p,
                                                    const struct pshift_solution *s);

/* Spreads the weak excess of each overloaded server over its buckets, in proportion to their tokens there, in the order
 * of the rows, rounding so that each server's shares add up: s->shortfall[i] is how many of bucket i's A_i tokens will
 * not be consumed, if its servers serve tokens evenly. All zero if the reservations can be met. s: as pshift_solve left
 * it, with shortfall set. QOS_EINVAL: no shortfall array. One pass. */
QOS_API QOS_NODISCARD enum qos_status pshift_shortfall(struct pshift *ps, const struct pshift_problem *p,
                                                       struct pshift_solution *s);
/* Does bucket i depend on the servers of X: is its demand outside them below A_i? Only such buckets can be short in
 * every allocation. i < p->buckets. O(row). */
QOS_API bool pshift_binding(const struct pshift_problem *p, const struct pshift_solution *s, uint32_t i);
/* TM_{j,k}[i], the tokens of bucket i that a direct prudent transfer can move from server j to server k (Section
 * III-B1), read off the row. i < p->buckets. O(row). */
QOS_API uint64_t pshift_movable(const struct pshift_problem *p, const struct pshift_solution *s, uint32_t i, uint32_t j,
                                uint32_t k);
/* What the last solve did. */
QOS_API struct pshift_work pshift_work_of(const struct pshift *ps);

/* The token scheduler (Algorithm 1). All O(1) but for init; a queue is 0..queues - 1, QOS_ENOENT otherwise. */
QOS_API size_t pshift_sched_memsize(const struct pshift_sched_config *cfg);
/* No pending requests, no tokens, all weights 1. Errors as pshift_init. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_init(struct pshift_sched *sc, void *mem, size_t size_bytes,
                                                        const struct pshift_sched_config *cfg);
/* n requests join the queue. QOS_ERANGE, nothing changed: more than 2^64 - 1 would wait. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_arrive(struct pshift_sched *sc, uint32_t queue, uint64_t n);
/* n requests leave the queue unserved (cancelled). QOS_ERANGE: fewer wait. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_cancel(struct pshift_sched *sc, uint32_t queue, uint64_t n);
/* Weight of Section V's weighted round robin, 1..2^32 - 1 (0: 1): requests served in one turn, before the next queue's.
 * It counts from the queue's next turn on. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_set_weight(struct pshift_sched *sc, uint32_t queue, uint32_t weight);
/* The queue's tokens from now on (not in addition); a debt is deducted first, from R- then from L-tokens. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_set_tokens(struct pshift_sched *sc, uint32_t queue,
                                                              uint64_t r_tokens, uint64_t l_tokens);
/* Steps 1 and 2 of Algorithm 1: the request at the head of pick->queue is to be served now. QOS_EAGAIN: nothing waits,
 * or all that wait are out of tokens; an arrival or a grant changes that. Wait of a request that is backed by an
 * R-token, behind it in its queue k others: at most (k / weight + 1) * (sum of the other queues' weights) + k picks. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_pick(struct pshift_sched *sc, struct pshift_pick *pick);
/* Serves one waiting request of the queue now, tokens or not (flush, journal): it takes an R-token, else an L-token,
 * else adds to the debt. QOS_ENOENT: no such queue; QOS_EAGAIN: nothing waits; QOS_EDEBT: the debt bound is reached. */
QOS_API QOS_NODISCARD enum qos_status pshift_sched_force(struct pshift_sched *sc, uint32_t queue);
/* Requests of the queue served so far, with whatever backing; it only grows. 0 for no such queue. */
QOS_API uint64_t pshift_sched_served(const struct pshift_sched *sc, uint32_t queue);
/* Requests waiting; R- and L-tokens left. */
QOS_API uint64_t pshift_sched_pending(const struct pshift_sched *sc, uint32_t queue);
QOS_API uint64_t pshift_sched_r_tokens(const struct pshift_sched *sc, uint32_t queue);
QOS_API uint64_t pshift_sched_l_tokens(const struct pshift_sched *sc, uint32_t queue);
/* now_ns if something can be picked, else QOS_NEVER: only an arrival or a grant helps, no clock (Step 3 without the
 * delay). */
QOS_API uint64_t pshift_sched_next_ns(const struct pshift_sched *sc, uint64_t now_ns);
/* granted: requests served; borrowed: of them with L-tokens; refused: picks that found waiting requests but no tokens;
 * waited: requests that arrived; debt: of all queues. Any thread, wait-free. */
QOS_API struct qos_stats pshift_sched_stats(const struct pshift_sched *sc);

/* Estimator (Section III-D): `recent` events in interval_ns, extended to remaining_ns; rounded up, saturating. 0 in no
 * time. */
QOS_API uint64_t pshift_extrapolate(uint64_t recent, uint64_t interval_ns, uint64_t remaining_ns);

/* Wire format: a qos_frame with little-endian head and entries. encode: bytes written, 0 if they do not fit. decode:
 * any bytes; at most `most` entries, QOS_EFULL beyond that; QOS_ETRUNCATED, QOS_ECORRUPT, QOS_EVERSION as
 * qos_frame_open; *m and the entries are undefined then. */
QOS_API size_t pshift_report_encode(void *buf, size_t size_bytes, const struct pshift_message *m,
                                    const struct pshift_report_entry *entry);
QOS_API size_t pshift_grant_encode(void *buf, size_t size_bytes, const struct pshift_message *m,
                                   const struct pshift_grant_entry *entry);
QOS_API QOS_NODISCARD enum qos_status pshift_report_decode(const void *buf, size_t size_bytes, struct pshift_message *m,
                                                           struct pshift_report_entry *entry, uint32_t most);
QOS_API QOS_NODISCARD enum qos_status pshift_grant_decode(const void *buf, size_t size_bytes, struct pshift_message *m,
                                                          struct pshift_grant_entry *entry, uint32_t most);

/* A server's side, in the thread of its scheduler, which must outlive it. */
QOS_API size_t pshift_agent_memsize(const struct pshift_agent_config *cfg);
QOS_API QOS_NODISCARD enum qos_status pshift_agent_init(struct pshift_agent *a, void *mem, size_t size_bytes,
                                                        const struct pshift_agent_config *cfg,
                                                        struct pshift_sched *sched);
/* A period begins: all tokens of the last one are void, all queues get the default. QOS_ESTALE: not a later one. */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_begin(struct pshift_agent *a, uint64_t period);
/* Head and entries of a report on the interval since the last: buckets that changed. QOS_EFULL: more than `most`
 * entries, nothing is recorded as sent. O(queues). */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_report(struct pshift_agent *a, uint64_t interval_ns,
                                                          uint64_t remaining_ns, struct pshift_message *m,
                                                          struct pshift_report_entry *entry, uint32_t most);
/* Installs a grant: each bucket's tokens become those granted, without what was served since `basis`; so a grant
 * replaces and never adds. QOS_ESTALE: for another start or period of this server, from an earlier controller, or not
 * newer than the last; QOS_ENOENT: for another server or an unknown bucket. Nothing is installed then. */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_install(struct pshift_agent *a, const struct pshift_message *m,
                                                           const struct pshift_grant_entry *entry);

/* The controller's side. Single owner. */
QOS_API size_t pshift_control_memsize(const struct pshift_control_config *cfg);
QOS_API QOS_NODISCARD enum qos_status pshift_control_init(struct pshift_control *c, void *mem, size_t size_bytes,
                                                          const struct pshift_control_config *cfg);
/* A bucket's contract per period; 0 and PSHIFT_UNLIMITED if never set. QOS_ENOENT, QOS_ERANGE. */
QOS_API QOS_NODISCARD enum qos_status pshift_control_set(struct pshift_control *c, uint32_t bucket,
                                                         uint64_t reservation, uint64_t limit);
/* A period begins: nothing was served, nothing is held. QOS_ESTALE: not a later one. */
QOS_API QOS_NODISCARD enum qos_status pshift_control_begin(struct pshift_control *c, uint64_t period);
/* Merges a report. Buckets that it does not mention stay as they were. QOS_ESTALE: of an earlier start, another
 * period, or not newer than the last from that server; QOS_ENOENT: no such server or bucket; QOS_ECORRUPT: a counter
 * fell without a restart; QOS_EFULL: no record left. Nothing is merged then. */
QOS_API QOS_NODISCARD enum qos_status pshift_control_report(struct pshift_control *c, const struct pshift_message *m,
                                                            const struct pshift_report_entry *entry);
/* A round: R- and L-tokens of all buckets from what is known. ps: configured for at least as many servers, buckets and
 * records. A server that sent no report for silent_after rounds gets nothing new; what it may still spend counts
 * against the limits until the period ends, and its buckets' reservations go where else they have demand. */
QOS_API QOS_NODISCARD enum qos_status pshift_control_plan(struct pshift_control *c, struct pshift *ps,
                                                          const struct pshift_options *opt);
/* Head and entries of the grant for one server from the last plan. QOS_ENOENT: no such server, or never heard of it;
 * QOS_EFULL: more than `most` entries. */
QOS_API QOS_NODISCARD enum qos_status pshift_control_grant(struct pshift_control *c, uint32_t server,
                                                           struct pshift_message *m, struct pshift_grant_entry *entry,
                                                           uint32_t most);

/* ---- implementation ------------------------------------------------------------------------------ */

#ifndef QOS_DECLARE_ONLY

#define PSHIFT_PRIV_NONE UINT32_MAX
#define PSHIFT_PRIV_GIVE 1u
#define PSHIFT_PRIV_TAKE 2u
#define PSHIFT_PRIV_ROOT 1u  /* of a server's mark: underloaded when tokens began to be pulled, and ever since */
#define PSHIFT_PRIV_DONOR 2u /* overloaded at first: it has given tokens away, so it has spare demand */
#define PSHIFT_PRIV_CUT 4u   /* in X of the last solution */
#define PSHIFT_PRIV_HALF (UINT64_C(1) << 63)
#define PSHIFT_PRIV_PIECE (INT64_C(1) << 62) /* of an excess that does not fit in a balance */

QOS_API struct qos_u128 pshift_priv_u128(uint64_t v)
{
    struct qos_u128 r;
    r.hi = 0;
    r.lo = v;
    return r;
}

QOS_API void pshift_priv_add(struct qos_u128 *sum, uint64_t v)
{
    *sum = qos_add_wide(*sum, pshift_priv_u128(v));
}

/* a - b, a >= b. */
QOS_API struct qos_u128 pshift_priv_minus(struct qos_u128 a, struct qos_u128 b)
{
    struct qos_u128 r;
    uint64_t borrow = a.lo < b.lo ? 1 : 0;
    r.lo = qos_wrap_sub(a.lo, b.lo);
    r.hi = a.hi - b.hi - borrow;
    return r;
}

QOS_API bool pshift_priv_same(struct qos_u128 a, struct qos_u128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* Parts that the rows are cut into; by the problem alone, never by the threads. */
QOS_API uint32_t pshift_priv_shards(uint32_t entries)
{
    return entries < PSHIFT_SHARD_ENTRIES ? 1 : PSHIFT_SHARDS;
}

/* The one layout: memsize passes ps = NULL. */
QOS_API void pshift_priv_layout(struct qos_layout *l, const struct pshift_config *cfg, struct pshift *ps, uint8_t *mem)
{
    size_t servers = cfg->servers, buckets = cfg->buckets, entries = cfg->entries;
    size_t shards = pshift_priv_shards(cfg->entries);
    size_t at[16];
    at[0] = qos_layout_add(l, servers, sizeof(int64_t), QOS_CACHE_LINE);
    at[1] = qos_layout_add(l, servers, sizeof(uint64_t), 8);
    at[2] = qos_layout_add(l, servers, sizeof(struct qos_u128), 8);
    at[3] = qos_layout_add(l, servers, sizeof(struct qos_u128), 8);
    at[4] = qos_layout_add(l, servers, sizeof(struct pshift_priv_node), 8);
    at[5] = qos_layout_add(l, servers + 1, sizeof(uint32_t), 8);
    at[6] = qos_layout_add(l, servers, sizeof(uint32_t), 8);
    at[7] = qos_layout_add(l, servers, 1, 8);
    at[8] = qos_layout_add(l, servers, sizeof(struct pshift_priv_step), 8);
    at[9] = qos_layout_add(l, servers, shards * sizeof(uint64_t), QOS_CACHE_LINE);
    at[10] = qos_layout_add(l, servers, shards * sizeof(int64_t), QOS_CACHE_LINE);
    at[11] = qos_layout_add(l, buckets, sizeof(struct pshift_priv_row), 8);
    at[12] = qos_layout_add(l, entries, sizeof(struct pshift_priv_index), 8);
    at[13] = qos_layout_add(l, entries > buckets ? entries : buckets, sizeof(uint64_t), 8);
    at[14] = qos_layout_add(l, entries, 1, 8);
    at[15] = qos_layout_add(l, servers, sizeof(struct qos_u128), 8);
    if (!ps)
        return;
    ps->balance = (int64_t *)(void *)(mem + at[0]);
    ps->excess_more = (uint64_t *)(void *)(mem + at[1]);
    ps->load = (struct qos_u128 *)(void *)(mem + at[2]);
    ps->scratch = (struct qos_u128 *)(void *)(mem + at[3]);
    ps->node = (struct pshift_priv_node *)(void *)(mem + at[4]);
    ps->column = (uint32_t *)(void *)(mem + at[5]);
    ps->queue = (uint32_t *)(void *)(mem + at[6]);
    ps->mark = mem + at[7];
    ps->path = (struct pshift_priv_step *)(void *)(mem + at[8]);
    ps->sums = (uint64_t *)(void *)(mem + at[9]);
    ps->quota = (int64_t *)(void *)(mem + at[10]);
    ps->rows = (struct pshift_priv_row *)(void *)(mem + at[11]);
    ps->index = (struct pshift_priv_index *)(void *)(mem + at[12]);
    ps->key = (uint64_t *)(void *)(mem + at[13]);
    ps->keep = mem + at[14];
    ps->rest = (struct qos_u128 *)(void *)(mem + at[15]);
}

QOS_API bool pshift_priv_config_fits(const struct pshift_config *cfg)
{
    return cfg->servers <= PSHIFT_ENTRIES_MAX && cfg->buckets <= PSHIFT_ENTRIES_MAX &&
           cfg->entries <= PSHIFT_ENTRIES_MAX;
}

QOS_API size_t pshift_memsize(const struct pshift_config *cfg)
{
    struct qos_layout l = {NULL, 0, 0, false};
    if (!cfg || !pshift_priv_config_fits(cfg))
        return 0;
    pshift_priv_layout(&l, cfg, NULL, NULL);
    return qos_layout_size(&l);
}

QOS_API enum qos_status pshift_init(struct pshift *ps, void *mem, size_t size_bytes, const struct pshift_config *cfg)
{
    struct qos_layout l = {NULL, 0, 0, false};
    const struct pshift_work no_work = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, 0, 0, 0};
    enum qos_status st;
    uint32_t i;
    if (!ps || !cfg)
        return QOS_EINVAL;
    if (!pshift_priv_config_fits(cfg))
        return QOS_ERANGE;
    pshift_priv_layout(&l, cfg, NULL, NULL);
    st = qos_layout_check(&l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    l.mem = NULL;
    l.size_bytes = 0;
    pshift_priv_layout(&l, cfg, ps, (uint8_t *)mem);
    ps->cfg = *cfg;
    ps->tokens = ps->unclaimed = pshift_priv_u128(0);
    ps->work = no_work;
    ps->next_row = 0;
    ps->stamp = 0;
    ps->retracted = ps->servers = ps->buckets = ps->entries = 0;
    ps->twice = ps->solved = false;
    for (i = 0; i < cfg->buckets; i++)
        ps->rows[i].stamp = 0;
    return QOS_OK;
}

/* One call of solve, for the tasks that run side by side. */
struct pshift_priv_job {
    struct pshift *ps;
    const struct pshift_problem *p;
    uint64_t *alloc;
    const uint8_t *keep;
    uint32_t shards;
    bool plain; /* no filter, and no row of 8 names a server twice */
};

/* ---- the initial allocation ------------------------------------------------------------------------ */

/* The `want` largest of n keys: those whose digits (key & mask) are above the result, and *ties of those that equal it.
 * Radix selection: at most 8 passes, the keys stay in place. 1 <= want <= n. */
QOS_API uint64_t pshift_priv_threshold(const uint64_t *key, uint32_t n, uint32_t want, uint64_t *mask, uint32_t *ties)
{
    uint64_t floor_key = 0, all = 0;
    uint32_t count[256], i, b;
    int shift;
    for (i = 0; i < n; i++)
        all |= key[i];
    shift = all ? (63 - (int)qos_clz64(all)) / 8 * 8 : 0;
    *mask = shift == 56 ? 0 : UINT64_MAX - ((UINT64_C(1) << (shift + 8)) - 1);
    for (; shift >= 0; shift -= 8) {
        for (b = 0; b < 256; b++)
            count[b] = 0;
        for (i = 0; i < n; i++)
            if ((key[i] & *mask) == floor_key)
                count[key[i] >> shift & 0xffu]++;
        for (b = 255; b > 0 && count[b] < want; b--)
            want -= count[b];
        floor_key |= (uint64_t)b << shift;
        *mask |= UINT64_C(0xff) << shift;
        if (count[b] == want) /* all that share the digits found so far win */
            break;
    }
    *ties = want;
    return floor_key;
}

/* One more token to the `left` largest of the n keys, the earlier first among equals; a key of 0 never gets one. */
QOS_API void pshift_priv_give_largest(uint64_t *a, const uint64_t *key, uint32_t n, uint32_t left)
{
    uint64_t mask, floor_key;
    uint32_t ties, i;
    floor_key = pshift_priv_threshold(key, n, left, &mask, &ties);
    for (i = 0; i < n; i++) {
        uint64_t digits = key[i] & mask;
        bool tie = digits == floor_key && ties > 0 && key[i] != 0;
        ties -= tie ? 1u : 0u;
        a[i] += tie || digits > floor_key ? 1u : 0u;
    }
}

/* Eight lanes, as the compilers' own vectors: any target, with or without vector registers. */
typedef uint64_t pshift_priv_lanes64 __attribute__((vector_size(64)));
typedef uint32_t pshift_priv_lanes __attribute__((vector_size(32)));
typedef int32_t pshift_priv_signed_lanes __attribute__((vector_size(32)));

/* Eight demands below 2^24, their total D < 2^27, want A < D; padding demands are 0 and stand last.
 * q = d * floor(A 2^32 / D) / 2^32 is at most one below floor(A d / D), as d < 2^32; the remainder, which 32 bits hold
 * (r < 2 D), mends it. key = remainder and position, distinct and below 2^31; the tokens that are left go to the keys
 * that fewer than `left` others beat. A remainder of 0 is never among them: the remainders add up to left * D. */
QOS_API void pshift_priv_row8(uint64_t *a, const uint64_t *d, uint64_t want, uint64_t total)
{
    const pshift_priv_signed_lanes position = {7, 6, 5, 4, 3, 2, 1, 0};
    const uint64_t f = (want << 32) / total;
    pshift_priv_signed_lanes key, rank = {0, 0, 0, 0, 0, 0, 0, 0};
    pshift_priv_lanes64 wide;
    pshift_priv_lanes q, r, more, d32;
    int32_t each[8];
    uint32_t share[8];
    int k;
    __builtin_memcpy(&wide, d, sizeof wide);
    d32 = __builtin_convertvector(wide, pshift_priv_lanes);
    wide = wide * f >> 32;
    q = __builtin_convertvector(wide, pshift_priv_lanes);
    r = d32 * (uint32_t)want - q * (uint32_t)total;
    more = (pshift_priv_lanes)(r >= (uint32_t)total); /* -1 where true */
    q -= more;
    r -= more & (uint32_t)total;
    key = (pshift_priv_signed_lanes)(r << 3) | position;
    __builtin_memcpy(each, &key, sizeof each);
    __builtin_memcpy(share, &q, sizeof share);
    for (k = 0; k < 8; k++)
        rank -= key < each[k];
    q -= (pshift_priv_lanes)(rank < (int32_t)((uint32_t)want - (share[0] + share[1] + share[2] + share[3] + share[4] +
                                                                share[5] + share[6] + share[7])));
    wide = __builtin_convertvector(q, pshift_priv_lanes64);
    __builtin_memcpy(a, &wide, sizeof wide);
}

/* Marks in *same whether two of 8 numbers equal each other. */
#if defined(__AVX2__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define PSHIFT_PRIV_SHUFFLES 1
#endif
#endif
#ifdef PSHIFT_PRIV_SHUFFLES
#define PSHIFT_PRIV_TURN(v, n)                                                                                         \
    __builtin_shufflevector(v, v, (n), (n + 1) % 8, (n + 2) % 8, (n + 3) % 8, (n + 4) % 8, (n + 5) % 8, (n + 6) % 8,   \
                            (n + 7) % 8)
/* Each pair is 1 to 4 places apart, around the end. */
QOS_API void pshift_priv_equal(const uint32_t *server, pshift_priv_lanes *same)
{
    pshift_priv_lanes v;
    __builtin_memcpy(&v, server, sizeof v);
    *same |= (pshift_priv_lanes)(v == PSHIFT_PRIV_TURN(v, 1)) | (pshift_priv_lanes)(v == PSHIFT_PRIV_TURN(v, 2)) |
             (pshift_priv_lanes)(v == PSHIFT_PRIV_TURN(v, 3)) | (pshift_priv_lanes)(v == PSHIFT_PRIV_TURN(v, 4));
}
#else
/* All pairs are asked only if two of the numbers have the same last 6 bits. */
QOS_API void pshift_priv_equal(const uint32_t *server, pshift_priv_lanes *same)
{
    uint64_t seen = 0, again = 0, bit;
    uint32_t k, l, equal = 0;
    for (k = 0; k < 8; k++) {
        bit = UINT64_C(1) << (server[k] & 63u);
        again |= seen & bit;
        seen |= bit;
    }
    for (k = 1; k < 8 && again != 0; k++)
        for (l = 0; l < k; l++)
            equal |= server[k] == server[l] ? 1u : 0u;
    (*same)[0] |= equal;
}
#endif

QOS_API bool pshift_priv_any(const pshift_priv_lanes *same)
{
    uint64_t any[4];
    __builtin_memcpy(any, same, sizeof any);
    return (any[0] | any[1] | any[2] | any[3]) != 0;
}

#if defined(PSHIFT_PRIV_SHUFFLES) && defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define PSHIFT_PRIV_TWO_ROWS 1
typedef uint64_t pshift_priv_row64 __attribute__((vector_size(64)));
typedef uint32_t pshift_priv_pair __attribute__((vector_size(64))); /* row 0, row 1 */
typedef int32_t pshift_priv_signed_pair __attribute__((vector_size(64)));
#define PSHIFT_PRIV_TURN_PAIR(v, n)                                                                                    \
    __builtin_shufflevector(v, v, (0 + (n)) % 8, (1 + (n)) % 8, (2 + (n)) % 8, (3 + (n)) % 8, (4 + (n)) % 8,           \
                            (5 + (n)) % 8, (6 + (n)) % 8, (7 + (n)) % 8, 8 + (0 + (n)) % 8, 8 + (1 + (n)) % 8,         \
                            8 + (2 + (n)) % 8, 8 + (3 + (n)) % 8, 8 + (4 + (n)) % 8, 8 + (5 + (n)) % 8,                \
                            8 + (6 + (n)) % 8, 8 + (7 + (n)) % 8)

/* pshift_priv_row8 for two rows that follow each other, in one vector. */
QOS_API void pshift_priv_two_rows8(uint64_t *a, const uint64_t *d, const uint64_t *want, const uint64_t *total)
{
    const pshift_priv_pair position = {7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0};
    const pshift_priv_pair first = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    const pshift_priv_pair w = (first & (uint32_t)want[0]) | (~first & (uint32_t)want[1]);
    const pshift_priv_pair t = (first & (uint32_t)total[0]) | (~first & (uint32_t)total[1]);
    pshift_priv_row64 x, y;
    pshift_priv_pair d32, q, r, more, sum;
    pshift_priv_signed_pair key, rank = {0};
    __builtin_memcpy(&x, d, sizeof x);
    __builtin_memcpy(&y, d + 8, sizeof y);
    d32 = __builtin_shufflevector((pshift_priv_pair)x, (pshift_priv_pair)y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                  24, 26, 28, 30); /* the low halves */
    x = x * ((want[0] << 32) / total[0]);
    y = y * ((want[1] << 32) / total[1]);
    q = __builtin_shufflevector((pshift_priv_pair)x, (pshift_priv_pair)y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25,
                                27, 29, 31); /* the high halves */
    r = d32 * w - q * t;
    more = (pshift_priv_pair)(r >= t);
    q -= more;
    r -= more & t;
    key = (pshift_priv_signed_pair)((r << 3) | position);
    sum = q + PSHIFT_PRIV_TURN_PAIR(q, 4);
    sum += PSHIFT_PRIV_TURN_PAIR(sum, 2);
    sum += PSHIFT_PRIV_TURN_PAIR(sum, 1);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 1);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 2);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 3);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 4);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 5);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 6);
    rank -= key < PSHIFT_PRIV_TURN_PAIR(key, 7);
    q -= (pshift_priv_pair)(rank < (pshift_priv_signed_pair)(w - sum));
    x = __builtin_convertvector(__builtin_shufflevector(q, q, 0, 1, 2, 3, 4, 5, 6, 7), pshift_priv_row64);
    y = __builtin_convertvector(__builtin_shufflevector(q, q, 8, 9, 10, 11, 12, 13, 14, 15), pshift_priv_row64);
    __builtin_memcpy(a, &x, sizeof x);
    __builtin_memcpy(a + 8, &y, sizeof y);
}
#endif

/* floor(n / d) and rest for any d, 0 < d < 2^96, with a quotient below 2^64: long division, bit by bit. */
QOS_API uint64_t pshift_priv_divide(struct qos_u128 n, struct qos_u128 d, struct qos_u128 *rest)
{
    struct qos_u128 r = {0, 0};
    uint64_t q = 0;
    int bit;
    for (bit = 127; bit >= 0; bit--) {
        uint64_t in = (bit >= 64 ? n.hi >> (bit - 64) : n.lo >> bit) & 1u;
        bool fits;
        r.hi = (r.hi & (UINT64_MAX >> 1)) << 1 | r.lo >> 63; /* r < d: no bit is lost */
        r.lo = (r.lo & (UINT64_MAX >> 1)) << 1 | in;
        fits = qos_cmp_wide(r, d) >= 0;
        if (fits)
            r = pshift_priv_minus(r, d);
        q = (q & (UINT64_MAX >> 1)) << 1 | (fits ? 1u : 0u);
    }
    *rest = r;
    return q;
}

/* Any row with want < total. Keys are the remainders; of totals of 2^63 and more their upper 63 bits, plus one where
 * the remainder is not zero (who has none is at its exact share and takes no more). */
QOS_API void pshift_priv_row_any(uint64_t *a, uint64_t *key, const uint64_t *d, uint32_t n, uint64_t want,
                                 struct qos_u128 total)
{
    uint64_t left = want;
    uint32_t i;
    if (total.hi == 0 && total.lo < PSHIFT_PRIV_HALF) {
        struct qos_u128 w = {want, 0};
        uint64_t f = qos_div_wide(w, total.lo, NULL); /* floor(want 2^64 / total): q is at most one short */
        for (i = 0; i < n; i++) {
            uint64_t q = qos_mul_wide(d[i], f).hi;
            uint64_t r = qos_wrap_sub(qos_wrap_mul(want, d[i]), qos_wrap_mul(q, total.lo)); /* below 2 * total */
            if (r >= total.lo) {
                r -= total.lo;
                q++;
            }
            a[i] = q;
            key[i] = r;
            left -= q;
        }
    } else {
        int drop = total.hi ? 65 - (int)qos_clz64(total.hi) : 1;
        for (i = 0; i < n; i++) {
            struct qos_u128 r;
            a[i] = pshift_priv_divide(qos_mul_wide(want, d[i]), total, &r);
            key[i] = ((r.hi & ((UINT64_C(1) << drop) - 1)) << (64 - drop) | r.lo >> drop) + (r.hi || r.lo ? 1u : 0u);
            left -= a[i];
        }
    }
    if (left)
        pshift_priv_give_largest(a, key, n, (uint32_t)left);
}

/* Row i's tokens in proportion to its demands, A_i = min(R_i, D_i). Any length, any demands. */
QOS_API enum qos_status pshift_priv_start_row(struct pshift *ps, const struct pshift_problem *p, uint64_t *alloc,
                                              uint32_t i, struct pshift_priv_part *part)
{
    uint32_t begin = p->row[i], n = p->row[i + 1] - begin, k;
    const uint64_t *d = p->demand + begin;
    uint64_t *a = alloc + begin, bits = 0, want = p->reservation[i];
    struct qos_u128 total = {0, 0};
    for (k = 0; k < n; k++) {
        bits |= d[k];
        pshift_priv_add(&total, d[k]);
    }
    if ((bits | want) > PSHIFT_COUNT_MAX)
        return QOS_ERANGE;
    if (total.hi == 0 && total.lo <= want) {
        pshift_priv_add(&part->unclaimed, want - total.lo);
        want = total.lo;
        for (k = 0; k < n; k++)
            a[k] = d[k];
    } else if (n <= 8 && bits < UINT64_C(1) << 24) {
        uint64_t padded[8], share[8];
        for (k = 0; k < 8; k++)
            padded[k] = k < n ? d[k] : 0;
        pshift_priv_row8(share, padded, want, total.lo);
        for (k = 0; k < n; k++)
            a[k] = share[k];
    } else {
        pshift_priv_row_any(a, ps->key + begin, d, n, want, total);
    }
    if (n == 8) {
        pshift_priv_lanes same = {0, 0, 0, 0, 0, 0, 0, 0};
        pshift_priv_equal(p->server + begin, &same);
        part->twice |= pshift_priv_any(&same);
    }
    pshift_priv_add(&part->tokens, want);
    return QOS_OK;
}

/* The same for up to 32 ordinary rows, from row i on: 8 entries of demands below 2^24, D_i > R_i. Returns how many
 * there were; their shares are written to `share`, for the caller to add up and to copy. */
QOS_API uint32_t pshift_priv_start_rows8(const struct pshift_priv_job *job, uint64_t *share, uint32_t i, uint32_t end,
                                         struct pshift_priv_part *part)
{
    const struct pshift_problem *p = job->p;
    const uint32_t *row = p->row + i, most = end - i < 32 ? end - i : 32, begin = row[0];
    const uint64_t *d = p->demand + begin, *want = p->reservation + i;
    pshift_priv_lanes same = {0, 0, 0, 0, 0, 0, 0, 0};
    uint64_t total[32], tokens = 0;
    uint32_t n, k;
    for (n = 0; n < most && row[n + 1] - begin == 8 * n + 8; n++, d += 8) {
        /* Both at once: gcc makes better code of it. A total that wraps has a demand of 2^24 and more in it. */
        const uint64_t bits = d[0] | d[1] | d[2] | d[3] | d[4] | d[5] | d[6] | d[7];
        total[n] = qos_wrap_add(qos_wrap_add(qos_wrap_add(d[0], d[1]), qos_wrap_add(d[2], d[3])),
                                qos_wrap_add(qos_wrap_add(d[4], d[5]), qos_wrap_add(d[6], d[7])));
        if (bits >> 24 != 0 || want[n] >= total[n])
            break;
        pshift_priv_equal(p->server + begin + 8 * n, &same);
        tokens += want[n]; /* below 2^27 each */
    }
    d = p->demand + begin;
    k = 0;
#ifdef PSHIFT_PRIV_TWO_ROWS
    for (; k + 1 < n; k += 2)
        pshift_priv_two_rows8(share + 8 * k, d + 8 * k, want + k, total + k);
#endif
    for (; k < n; k++)
        pshift_priv_row8(share + 8 * k, d + 8 * k, want[k], total[k]);
    part->twice |= pshift_priv_any(&same);
    pshift_priv_add(&part->tokens, tokens);
    return n;
}

/* First row of a part. */
QOS_API uint32_t pshift_priv_part_row(const struct pshift_priv_job *job, uint32_t part)
{
    return (uint32_t)((uint64_t)job->p->buckets * part / job->shards);
}

/* Adds shares of entries [begin, end) to the servers' sums. False: there is no such server. */
QOS_API bool pshift_priv_sum(const struct pshift_problem *p, uint64_t *sums, const uint64_t *share, uint32_t begin,
                             uint32_t end)
{
    const uint32_t *server = p->server + begin, servers = p->servers;
    uint32_t n = end - begin, e = 0, k, worst;
    for (; n - e >= 8; e += 8) { /* looked at together, to be added without a branch each */
        for (k = 0, worst = 0; k < 8; k++)
            worst = worst < server[e + k] ? server[e + k] : worst;
        if (worst >= servers)
            return false;
        for (k = 0; k < 8; k++)
            sums[server[e + k]] = qos_wrap_add(sums[server[e + k]], share[e + k]);
    }
    for (; e < n; e++) {
        if (server[e] >= servers)
            return false;
        sums[server[e]] = qos_wrap_add(sums[server[e]], share[e]);
    }
    return true;
}

QOS_API void pshift_priv_start_task(void *arg, uint32_t shard)
{
    const struct pshift_priv_job *job = (const struct pshift_priv_job *)arg;
    const struct pshift_problem *p = job->p;
    struct pshift_priv_part part = {{0, 0}, {0, 0}, 0, QOS_OK, false};
    uint64_t share[256] __attribute__((aligned(64))), *sums = job->ps->sums + (size_t)shard * p->servers;
    uint32_t i = pshift_priv_part_row(job, shard), end = pshift_priv_part_row(job, shard + 1), j, n;
    for (j = 0; j < p->servers; j++)
        sums[j] = 0;
    for (; i < end && part.status == QOS_OK; i += n) {
        const uint64_t *from = share;
        uint32_t begin = p->row[i];
        n = pshift_priv_start_rows8(job, share, i, end, &part);
        if (n != 0) {
            __builtin_memcpy(job->alloc + begin, share, n * 64);
        } else {
            n = 1;
            from = job->alloc + begin;
            part.status = pshift_priv_start_row(job->ps, p, job->alloc, i, &part);
        }
        if (part.status == QOS_OK && !pshift_priv_sum(p, sums, from, begin, p->row[i + n]))
            part.status = QOS_EINVAL;
    }
    job->ps->part[shard] = part;
}

QOS_API void pshift_priv_run(const struct pshift_options *opt, struct pshift_priv_job *job, pshift_task task)
{
    uint32_t shard;
    if (opt && opt->parallel_for && job->shards > 1) {
        opt->parallel_for(opt->parallel_ctx, job->shards, task, job);
        return;
    }
    for (shard = 0; shard < job->shards; shard++)
        task(job, shard);
}

/* Loads of all servers. A part whose tokens reach 2^64 may have wrapped a sum: it is added again, in 128 bits. */
QOS_API enum qos_status pshift_priv_start(struct pshift *ps, const struct pshift_options *opt,
                                          struct pshift_priv_job *job)
{
    const struct pshift_problem *p = job->p;
    uint32_t shard, j, e, end;
    pshift_priv_run(opt, job, pshift_priv_start_task);
    for (shard = 0; shard < job->shards; shard++)
        if (ps->part[shard].status != QOS_OK)
            return ps->part[shard].status;
    ps->tokens = ps->unclaimed = pshift_priv_u128(0);
    ps->twice = false;
    for (j = 0; j < p->servers; j++)
        ps->load[j] = pshift_priv_u128(0);
    for (shard = 0; shard < job->shards; shard++) {
        ps->tokens = qos_add_wide(ps->tokens, ps->part[shard].tokens);
        ps->unclaimed = qos_add_wide(ps->unclaimed, ps->part[shard].unclaimed);
        ps->twice |= ps->part[shard].twice;
        if (ps->part[shard].tokens.hi == 0) {
            for (j = 0; j < p->servers; j++)
                pshift_priv_add(&ps->load[j], ps->sums[(size_t)shard * p->servers + j]);
        } else {
            end = p->row[pshift_priv_part_row(job, shard + 1)];
            for (e = p->row[pshift_priv_part_row(job, shard)]; e < end; e++)
                pshift_priv_add(&ps->load[p->server[e]], job->alloc[e]);
        }
    }
    return QOS_OK;
}

/* ---- direct transfers ------------------------------------------------------------------------------ */

/* Takes further excess in hand once the piece in hand is used up. */
QOS_API void pshift_priv_refill(struct pshift *ps, uint32_t j)
{
    if (ps->balance[j] == 0 && ps->excess_more[j] != 0) {
        ps->excess_more[j]--;
        ps->balance[j] = PSHIFT_PRIV_PIECE;
    }
}

/* Balance of every server from its load; the weak excess of all. */
QOS_API struct qos_u128 pshift_priv_weigh(struct pshift *ps, const struct pshift_problem *p)
{
    struct qos_u128 excess = {0, 0};
    uint32_t j;
    for (j = 0; j < p->servers; j++) {
        struct qos_u128 c = {0, p->capacity[j]}, over = {0, 0};
        ps->balance[j] = 0;
        ps->excess_more[j] = 0;
        if (qos_cmp_wide(ps->load[j], c) > 0) {
            over = pshift_priv_minus(ps->load[j], c);
            ps->excess_more[j] = (over.hi & (UINT64_MAX >> 2)) << 2 | over.lo >> 62; /* over < 2^96 */
            ps->balance[j] = (int64_t)(over.lo & (UINT64_MAX >> 2));
            pshift_priv_refill(ps, j);
        } else {
            ps->balance[j] = -(int64_t)(c.lo - ps->load[j].lo);
        }
        ps->mark[j] = (uint8_t)((ps->mark[j] & PSHIFT_PRIV_CUT) | (ps->balance[j] > 0 ? PSHIFT_PRIV_DONOR : 0));
        excess = qos_add_wide(excess, over);
    }
    return excess;
}

/* Weak excess of server j. */
QOS_API struct qos_u128 pshift_priv_excess(const struct pshift *ps, uint32_t j)
{
    struct qos_u128 over = {ps->excess_more[j] >> 2, (ps->excess_more[j] & 3u) << 62};
    if (ps->balance[j] > 0)
        pshift_priv_add(&over, (uint64_t)ps->balance[j]);
    return over;
}

/* Loads again, after the balances changed. */
QOS_API void pshift_priv_unweigh(struct pshift *ps, const struct pshift_problem *p)
{
    uint32_t j;
    for (j = 0; j < p->servers; j++) {
        ps->load[j] = pshift_priv_excess(ps, j);
        pshift_priv_add(&ps->load[j], p->capacity[j] - (ps->balance[j] < 0 ? (uint64_t)-ps->balance[j] : 0));
    }
}

QOS_API bool pshift_priv_may(const struct pshift_priv_job *job, uint32_t e, unsigned what)
{
    return !job->keep || (job->keep[e] & what) != 0;
}

/* Spare demand of an entry: tokens that it may take. */
QOS_API uint64_t pshift_priv_spare(const struct pshift_priv_job *job, uint32_t e)
{
    return pshift_priv_may(job, e, PSHIFT_PRIV_TAKE) ? job->p->demand[e] - job->alloc[e] : 0;
}

/* Tokens that an entry may give. */
QOS_API uint64_t pshift_priv_gives(const struct pshift_priv_job *job, uint32_t e)
{
    return pshift_priv_may(job, e, PSHIFT_PRIV_GIVE) ? job->alloc[e] : 0;
}

QOS_API void pshift_priv_move(const struct pshift_priv_job *job, int64_t *balance, uint32_t give, uint32_t take,
                              uint64_t m)
{
    job->alloc[give] -= m;
    job->alloc[take] += m;
    balance[job->p->server[give]] -= (int64_t)m;
    balance[job->p->server[take]] += (int64_t)m;
}

/* Number of the lowest bit that is set. */
QOS_API uint32_t pshift_priv_lowest(uint64_t bits)
{
    return qos_ctz64(bits);
}

/* Direct transfers among entries [begin, end), at most 64 of them, from overloaded to underloaded servers until no pair
 * is left; returns how many tokens moved. */
QOS_API uint64_t pshift_priv_transfer(const struct pshift_priv_job *job, int64_t *balance, uint32_t begin, uint32_t end)
{
    const uint32_t *sv = job->p->server;
    uint64_t givers = 0, takers = 0, moved = 0;
    int64_t over = 0, under = 0;
    uint32_t n = end - begin, k;
    for (k = 0; k < n; k++) {
        under |= balance[sv[begin + k]];
        over |= -balance[sv[begin + k]];
    }
    if ((under & over) >= 0) /* one of the sides is missing */
        return 0;
    for (k = 0; k < n; k++) {
        int64_t b = balance[sv[begin + k]];
        givers |= (uint64_t)(b > 0) << k;
        takers |= (uint64_t)(b < 0) << k;
    }
    while (givers != 0 && takers != 0) {
        uint32_t g = begin + pshift_priv_lowest(givers), t = begin + pshift_priv_lowest(takers);
        uint64_t can_give = qos_min(pshift_priv_gives(job, g), (uint64_t)balance[sv[g]]);
        uint64_t can_take = qos_min(pshift_priv_spare(job, t), (uint64_t)-balance[sv[t]]);
        uint64_t m = qos_min(can_give, can_take);
        pshift_priv_move(job, balance, g, t, m);
        moved += m;
        if (m == can_give)
            givers &= givers - 1;
        if (m == can_take)
            takers &= takers - 1;
    }
    return moved;
}

/* Keeps a loop over 8 servers from being made one of gathers, which takes twice as long: the next row waits for what
 * the last one stored. No instruction. */
#define PSHIFT_PRIV_ONE_BY_ONE(x) __asm__("" : "+r"(x))

/* The same for 8 entries at 8 servers, without a filter, and with fewer branches. */
QOS_API uint64_t pshift_priv_transfer8(const struct pshift_priv_job *job, int64_t *balance, uint32_t begin)
{
    const uint32_t *sv = job->p->server + begin;
    const uint64_t *d = job->p->demand + begin;
    uint64_t *a = job->alloc + begin;
    uint64_t give[8], take[8], can_give = 0, can_take = 0, bits = 0, m, left;
    int64_t over = 0, under = 0;
    int k;
    for (k = 0; k < 8; k++) {
        under |= balance[sv[k]];
        over |= -balance[sv[k]];
    }
    if ((under & over) >= 0) /* one of the sides is missing */
        return 0;
    for (k = 0; k < 8; k++) {
        int64_t spare = (int64_t)(d[k] - a[k]), room = -balance[sv[k]];
        room = room < spare ? room : spare;
        take[k] = room < 0 ? 0 : (uint64_t)room;
        bits |= take[k];
        can_take = qos_wrap_add(can_take, take[k]);
    }
    if (bits == 0)
        return 0;
    if (bits >> 60 != 0) /* the sum may have wrapped */
        return pshift_priv_transfer(job, balance, begin, begin + 8);
    for (k = 0; k < 8; k++) {
        int64_t tokens = (int64_t)a[k], excess = balance[sv[k]];
        PSHIFT_PRIV_ONE_BY_ONE(excess);
        excess = excess < tokens ? excess : tokens;
        give[k] = excess < 0 ? 0 : (uint64_t)excess;
        can_give += give[k]; /* at most A_i */
    }
    m = left = qos_min(can_give, can_take);
    if (m == 0)
        return 0;
    can_take = m;
    for (k = 0; k < 8; k++) {
        uint64_t x = qos_min(give[k], left), y = qos_min(take[k], can_take);
        left -= x;
        can_take -= y;
        a[k] = a[k] - x + y;
        balance[sv[k]] += (int64_t)y - (int64_t)x;
    }
    return m;
}

/* Servers on the side, overloaded or underloaded, that has fewer. */
QOS_API uint32_t pshift_priv_rarer(const int64_t *balance, uint32_t servers)
{
    uint32_t j, over = 0, under = 0;
    for (j = 0; j < servers; j++) {
        over += balance[j] > 0 ? 1u : 0u;
        under += balance[j] < 0 ? 1u : 0u;
    }
    return over < under ? over : under;
}

/* Direct transfers inside row i; returns how many tokens moved. */
QOS_API uint64_t pshift_priv_sweep_row(const struct pshift_priv_job *job, int64_t *balance, uint32_t i)
{
    uint32_t begin = job->p->row[i], end = job->p->row[i + 1];
    uint64_t moved = 0;
    if (QOS_LIKELY(end - begin == 8 && job->plain))
        return pshift_priv_transfer8(job, balance, begin);
    for (; end - begin > 64; begin += 64)
        moved += pshift_priv_transfer(job, balance, begin, begin + 64);
    return moved + pshift_priv_transfer(job, balance, begin, end);
}

/* Of the `count` rows from row `first` on those that have servers on both sides, as list[0..]; returns how many. Rows
 * of another length than 8 are listed unseen. */
QOS_API uint32_t pshift_priv_both_in(const struct pshift_priv_job *job, const int64_t *balance, uint32_t first,
                                     uint32_t count, uint32_t *list)
{
    const uint32_t *row = job->p->row, *server = job->p->server;
    uint32_t i, k, n = 0;
    for (i = first; i < first + count; i++) {
        const uint32_t *sv = server + row[i];
        int64_t over = 0, under = 0;
        if (QOS_LIKELY(row[i + 1] - row[i] == 8)) {
            for (k = 0; k < 8; k++) {
                under |= balance[sv[k]];
                over |= -balance[sv[k]];
            }
        } else {
            under = over = -1;
        }
        list[n] = i;
        n += (under & over) < 0 ? 1u : 0u;
    }
    for (i = 0; i < n; i++) {
        __builtin_prefetch(job->p->demand + row[list[i]]);
        __builtin_prefetch(job->alloc + row[list[i]]);
    }
    return n;
}

/* Sweeps `count` rows from row `first` on, around the end, until `most` tokens have moved or no server is left on one
 * of the sides. This is asked now and then, at less cost than that of the rows between. Where one side is rare, most
 * rows are only looked at, and what the others need is on its way before they are. */
QOS_API uint64_t pshift_priv_sweep(const struct pshift_priv_job *job, int64_t *balance, uint32_t first, uint32_t count,
                                   uint64_t most)
{
    const struct pshift_problem *p = job->p;
    uint32_t list[64], i = first, asked = 0, rare = 0, n, t, k;
    uint64_t moved = 0;
    for (; count != 0 && moved < most; count -= n, i = i + n == p->buckets ? 0 : i + n) {
        if (asked == 0) {
            rare = pshift_priv_rarer(balance, p->servers);
            if (rare == 0)
                break;
        }
        n = count < 64 ? count : 64;
        n = p->buckets - i < n ? p->buckets - i : n;
        asked = asked > p->servers / 2 ? 0 : asked + n;
        if (rare <= p->servers / 8) {
            t = pshift_priv_both_in(job, balance, i, n, list);
            for (k = 0; k < t && moved < most; k++)
                moved = qos_sat_add(moved, pshift_priv_sweep_row(job, balance, list[k]));
        } else {
            for (k = 0; k < n && moved < most; k++)
                moved = qos_sat_add(moved, pshift_priv_sweep_row(job, balance, i + k));
        }
    }
    return moved;
}

QOS_API void pshift_priv_sweep_task(void *arg, uint32_t shard)
{
    const struct pshift_priv_job *job = (const struct pshift_priv_job *)arg;
    struct pshift *ps = job->ps;
    uint32_t first = pshift_priv_part_row(job, shard);
    ps->part[shard].moved = pshift_priv_sweep(job, ps->quota + (size_t)shard * job->p->servers, first,
                                              pshift_priv_part_row(job, shard + 1) - first, UINT64_MAX);
}

/* One part: the plain sweep. More: each gets an equal quota of every balance, so that the parts do not depend on each
 * other; what a quota does not use, and the rest of the division, is left to what follows. */
QOS_API void pshift_priv_direct(struct pshift *ps, const struct pshift_options *opt, struct pshift_priv_job *job)
{
    const struct pshift_problem *p = job->p;
    uint32_t shard, j;
    if (job->shards == 1) {
        pshift_priv_add(&ps->work.direct, pshift_priv_sweep(job, ps->balance, 0, p->buckets, UINT64_MAX));
        for (j = 0; j < p->servers; j++)
            pshift_priv_refill(ps, j);
        return;
    }
    for (j = 0; j < p->servers; j++) {
        int64_t q = ps->balance[j] / (int64_t)job->shards;
        for (shard = 0; shard < job->shards; shard++)
            ps->quota[(size_t)shard * p->servers + j] = q;
        ps->balance[j] -= q * (int64_t)job->shards;
    }
    pshift_priv_run(opt, job, pshift_priv_sweep_task);
    for (shard = 0; shard < job->shards; shard++) {
        for (j = 0; j < p->servers; j++)
            ps->balance[j] += ps->quota[(size_t)shard * p->servers + j];
        pshift_priv_add(&ps->work.direct, ps->part[shard].moved);
    }
    for (j = 0; j < p->servers; j++)
        pshift_priv_refill(ps, j);
}

/* What can move between the servers above and those below balance, at most; *lend: -1 if what is above is at most half
 * of what is below, 1 if it is the other way round, else 0. */
QOS_API struct qos_u128 pshift_priv_smaller(const int64_t *balance, uint32_t servers, int *lend)
{
    struct qos_u128 over = {0, 0}, under = {0, 0};
    uint32_t j;
    for (j = 0; j < servers; j++)
        pshift_priv_add(balance[j] > 0 ? &over : &under, (uint64_t)(balance[j] > 0 ? balance[j] : -balance[j]));
    *lend = qos_cmp_wide(qos_add_wide(over, over), under) <= 0    ? -1
            : qos_cmp_wide(qos_add_wide(under, under), over) <= 0 ? 1
                                                                  : 0;
    return qos_cmp_wide(over, under) < 0 ? over : under;
}

/* Direct transfers by ps->quota, a part of the rows after the other from where the last ones ended, as long as
 * `patience` more parts, and one round of all, would be enough at the pace of the last. Returns what moved. */
QOS_API struct qos_u128 pshift_priv_run_down(const struct pshift_priv_job *job, uint32_t parts, uint32_t patience)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    uint32_t buckets = p->buckets, part = buckets / parts + 64, i = ps->next_row < buckets ? ps->next_row : 0;
    uint32_t rest = buckets, n;
    struct qos_u128 left, sum = {0, 0};
    uint64_t moved;
    int lend;
    do {
        n = part < rest ? part : rest;
        moved = pshift_priv_sweep(job, ps->quota, i, n, UINT64_MAX);
        pshift_priv_add(&sum, moved);
        i = (uint32_t)(((uint64_t)i + n) % buckets);
        rest -= n;
        left = pshift_priv_smaller(ps->quota, p->servers, &lend);
    } while (left.lo != 0 && left.hi == 0 &&
             qos_cmp_wide(qos_mul_wide(moved, qos_min(rest, (uint64_t)n * patience)), qos_mul_wide(left.lo, n)) >= 0);
    ps->next_row = i;
    return sum;
}

/* Brings the servers that are in X (cut) to rest, or those that are not: if all goes well, one of the sides, overloaded
 * or underloaded, is gone then. Direct transfers first, in the rows that are named and then elsewhere. Where these come
 * to little, the smaller side is spread over the servers in balance, as long as it is much smaller, and finds partners
 * from there. */
QOS_API void pshift_priv_settle(const struct pshift_priv_job *job, unsigned cut, const uint32_t *bucket, uint32_t count)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    const uint32_t parts = bucket ? PSHIFT_WARM_PARTS : PSHIFT_PARTS;
    struct qos_u128 before = {UINT64_MAX, 0}, left;
    uint32_t j, t;
    int turn, lend;
    for (turn = 0; turn < PSHIFT_TURNS; turn++) {
        bool spread = turn % 2 != 0;
        for (j = 0; j < p->servers; j++)
            ps->quota[j] = (ps->mark[j] & PSHIFT_PRIV_CUT) == cut ? ps->balance[j] : 0;
        left = pshift_priv_smaller(ps->quota, p->servers, &lend);
        if ((left.hi | left.lo) == 0 || (spread && lend == 0))
            return;
        if (!spread) { /* worth another turn? */
            if (qos_cmp_wide(left, before) >= 0)
                return;
            before = left;
            for (t = 0; turn == 0 && t < count; t++)
                pshift_priv_add(&ps->work.direct, pshift_priv_sweep_row(job, ps->quota, bucket[t]));
            left = pshift_priv_run_down(job, parts, lend ? PSHIFT_PATIENCE : parts);
            ps->work.direct = qos_add_wide(ps->work.direct, left);
            lend = 0;
        } else {
            for (j = 0; j < p->servers; j++)
                if ((ps->mark[j] & PSHIFT_PRIV_CUT) == cut && ps->balance[j] == 0)
                    ps->quota[j] = lend * PSHIFT_PRIV_PIECE;
            ps->work.pulled = qos_add_wide(ps->work.pulled, pshift_priv_run_down(job, parts, PSHIFT_PATIENCE));
        }
        for (j = 0; j < p->servers; j++)
            if ((ps->mark[j] & PSHIFT_PRIV_CUT) == cut) {
                ps->balance[j] = ps->quota[j] - (ps->balance[j] == 0 ? lend * PSHIFT_PRIV_PIECE : 0);
                pshift_priv_refill(ps, j);
            }
    }
}

/* Do the servers of X bind, with no excess elsewhere? */
QOS_API bool pshift_priv_cut_holds(const struct pshift *ps, uint32_t servers)
{
    uint32_t j, wrong = 0;
    for (j = 0; j < servers; j++)
        wrong |= (ps->mark[j] & PSHIFT_PRIV_CUT ? ps->balance[j] < 0 : ps->balance[j] > 0) ? 1u : 0u;
    return wrong == 0;
}

/* ---- one broker, by sweeping ----------------------------------------------------------------------- */

/* Entry t takes m tokens or fewer from entry g, of an overloaded server (then it is a direct transfer) or another
 * (then it leaves a hole there). */
QOS_API void pshift_priv_pull_from(const struct pshift_priv_job *job, uint32_t t, uint32_t g, uint64_t *budget,
                                   uint64_t *holes)
{
    struct pshift *ps = job->ps;
    int64_t from = ps->balance[job->p->server[g]];
    uint64_t m = qos_min((uint64_t)-ps->balance[job->p->server[t]], *budget);
    m = qos_min(m, qos_min(pshift_priv_gives(job, g), pshift_priv_spare(job, t)));
    m = qos_min(m, from > 0 ? (uint64_t)from : (uint64_t)(PSHIFT_PRIV_PIECE + from)); /* a hole has its bounds */
    pshift_priv_move(job, ps->balance, g, t, m);
    *budget -= m;
    if (ps->balance[job->p->server[t]] == 0) {
        ps->mark[job->p->server[t]] &= (uint8_t)~PSHIFT_PRIV_ROOT;
        ps->closed = false;
    }
    if (from > 0) {
        pshift_priv_add(&ps->work.direct, m);
        ps->closed &= ps->excess_more[job->p->server[g]] == 0; /* it may have given more than the piece in hand */
        pshift_priv_refill(ps, job->p->server[g]);
    } else {
        pshift_priv_add(&ps->work.pulled, m);
        *holes += m;
    }
}

/* Row i: its roots take what the row's other servers hold: from overloaded ones first, then from donors, whose holes
 * are the easiest to fill, then from the rest. *budget: excess that is not yet spoken for. */
QOS_API void pshift_priv_pull_row(const struct pshift_priv_job *job, uint32_t i, uint64_t *budget, uint64_t *holes)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    uint32_t end = p->row[i + 1], t, g;
    unsigned turn;
    for (t = p->row[i]; t < end; t++) {
        if (!(ps->mark[p->server[t]] & PSHIFT_PRIV_ROOT))
            continue;
        for (turn = 0; turn < 3; turn++)
            for (g = p->row[i]; g < end && ps->balance[p->server[t]] < 0 && pshift_priv_spare(job, t) != 0; g++) {
                unsigned mark = ps->mark[p->server[g]];
                unsigned when = ps->balance[p->server[g]] > 0 ? 0 : mark & PSHIFT_PRIV_DONOR ? 1 : 2;
                if (!(mark & PSHIFT_PRIV_ROOT) && when == turn)
                    pshift_priv_pull_from(job, t, g, budget, holes);
            }
    }
}

/* Pulls tokens to the underloaded servers, the roots, in one pass over `rows` rows; then fills the holes from the
 * overloaded servers in another. True if the result is optimal: no overloaded server is left, or nothing leads from one
 * to an underloaded one. The latter is known if the pass saw every row, never lacked budget and filled no root, and all
 * holes were filled: then each row gave the roots all it could when it was pulled, and since then its tokens moved at
 * most between servers that are not roots. */
QOS_API bool pshift_priv_pull(const struct pshift_priv_job *job, uint32_t rows)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    struct qos_u128 excess = {0, 0};
    uint64_t budget, holes = 0, filled;
    uint32_t j, t, e, i = ps->next_row < p->buckets ? ps->next_row : 0, first = i;
    bool over = false;
    for (j = 0; j < p->servers; j++) {
        excess = qos_add_wide(excess, pshift_priv_excess(ps, j));
        ps->mark[j] = (uint8_t)((ps->mark[j] & ~PSHIFT_PRIV_ROOT) | (ps->balance[j] < 0 ? PSHIFT_PRIV_ROOT : 0));
    }
    budget = excess.hi || excess.lo > (uint64_t)PSHIFT_PRIV_PIECE ? (uint64_t)PSHIFT_PRIV_PIECE : excess.lo;
    ps->closed = true;
    for (t = 0; t < rows && budget != 0; t++, i = i + 1 == p->buckets ? 0 : i + 1) {
        unsigned any = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++)
            any |= ps->mark[p->server[e]] & (unsigned)(p->demand[e] > job->alloc[e]);
        if (any)
            pshift_priv_pull_row(job, i, &budget, &holes);
    }
    ps->next_row = i;
    ps->closed &= t == p->buckets && budget != 0;
    for (j = 0; j < p->servers; j++) /* the roots do not take part */
        ps->quota[j] = ps->mark[j] & PSHIFT_PRIV_ROOT ? 0 : ps->balance[j];
    filled = pshift_priv_sweep(job, ps->quota, first, rows, holes);
    pshift_priv_add(&ps->work.direct, filled);
    for (j = 0; j < p->servers; j++) {
        if (!(ps->mark[j] & PSHIFT_PRIV_ROOT))
            ps->balance[j] = ps->quota[j];
        pshift_priv_refill(ps, j);
        over |= ps->balance[j] > 0;
    }
    return !over || (ps->closed && filled == holes);
}

/* ---- shift paths ----------------------------------------------------------------------------------- */

/* Index from servers to entries for `count` rows from row `first` on, around the end. */
QOS_API void pshift_priv_build_index(const struct pshift_priv_job *job, uint32_t first, uint32_t count)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    uint32_t j, i, t, e, sum = 0;
    for (j = 0; j <= p->servers; j++)
        ps->column[j] = 0;
    for (t = 0, i = first; t < count; t++, i = i + 1 == p->buckets ? 0 : i + 1)
        for (e = p->row[i]; e < p->row[i + 1]; e++)
            ps->column[p->server[e]]++;
    for (j = 0; j <= p->servers; j++) { /* the end of each column, for now */
        sum += ps->column[j];
        ps->column[j] = sum;
    }
    for (t = 0, i = first; t < count; t++, i = i + 1 == p->buckets ? 0 : i + 1) {
        ps->rows[i].stamp = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            struct pshift_priv_index *x = &ps->index[--ps->column[p->server[e]]];
            x->entry = e;
            x->bucket = i;
        }
    }
    ps->stamp = 0;
    ps->work.indexed_rows = count;
}

/* Marks row i as reached by a taker of this label, unless one of a lower label did so before. */
QOS_API struct pshift_priv_row *pshift_priv_reach(const struct pshift_priv_job *job, uint32_t i, uint32_t label)
{
    struct pshift_priv_row *row = &job->ps->rows[i];
    if (row->stamp != job->ps->stamp) {
        row->stamp = job->ps->stamp;
        row->label = label;
        row->cursor = job->p->row[i];
    }
    return row;
}

/* Labels the servers that can give to server k, of row i. */
QOS_API void pshift_priv_label_row(const struct pshift_priv_job *job, uint32_t i, uint32_t label, uint32_t *tail,
                                   uint32_t *wanted)
{
    struct pshift *ps = job->ps;
    uint32_t e;
    for (e = job->p->row[i]; e < job->p->row[i + 1]; e++) {
        uint32_t j = job->p->server[e];
        if (ps->node[j].label != PSHIFT_PRIV_NONE || pshift_priv_gives(job, e) == 0)
            continue;
        ps->node[j].label = label;
        ps->queue[(*tail)++] = j;
        if (ps->balance[j] > 0) {
            (*wanted)--;
            ps->last_label = label;
        }
    }
}

/* Labels servers by their distance to an underloaded one, over the indexed rows; stops with the level on which the
 * first overloaded server is found. True if one is. A row that is not reached here, since the search stopped before,
 * has no taker on a level above the last but one: whoever reaches it first later has the lowest label. */
QOS_API bool pshift_priv_label(const struct pshift_priv_job *job)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    uint32_t j, head = 0, tail = 0, wanted = 0, x;
    for (j = 0; j < p->servers; j++) {
        ps->node[j].cursor = ps->column[j];
        ps->node[j].label = PSHIFT_PRIV_NONE;
        wanted += ps->balance[j] > 0 ? 1u : 0u;
        if (ps->balance[j] < 0 && !(ps->closed && (ps->mark[j] & PSHIFT_PRIV_ROOT))) {
            ps->node[j].label = 0;
            ps->queue[tail++] = j;
        }
    }
    ps->stamp++;
    ps->last_label = PSHIFT_PRIV_NONE;
    for (; head < tail && wanted != 0; head++) {
        uint32_t k = ps->queue[head], label = ps->node[k].label;
        if (label + 1 > ps->last_label)
            break;
        for (x = ps->column[k]; x < ps->column[k + 1] && wanted != 0; x++) {
            uint32_t i = ps->index[x].bucket;
            if (ps->rows[i].stamp == ps->stamp || pshift_priv_spare(job, ps->index[x].entry) == 0)
                continue;
            (void)pshift_priv_reach(job, i, label);
            pshift_priv_label_row(job, i, label + 1, &tail, &wanted);
        }
    }
    ps->sinks = tail != 0;
    return ps->last_label != PSHIFT_PRIV_NONE;
}

/* Next step up from server v: advances its cursor to a row in which a server one label above can give. False: none is
 * left. An entry or a row once passed offers nothing for the rest of the round: a step moves tokens one label down, and
 * what it opens leads up. */
QOS_API bool pshift_priv_ascend(const struct pshift_priv_job *job, uint32_t v, struct pshift_priv_step *step)
{
    struct pshift *ps = job->ps;
    struct pshift_priv_node *node = &ps->node[v];
    if (node->label == ps->last_label)
        return false;
    for (; node->cursor < ps->column[v + 1]; node->cursor++) {
        const struct pshift_priv_index *x = &ps->index[node->cursor];
        struct pshift_priv_row *row;
        if (pshift_priv_spare(job, x->entry) == 0)
            continue;
        row = pshift_priv_reach(job, x->bucket, node->label);
        if (row->label != node->label)
            continue;
        for (; row->cursor < job->p->row[x->bucket + 1]; row->cursor++) {
            if (ps->node[job->p->server[row->cursor]].label != node->label + 1 ||
                pshift_priv_gives(job, row->cursor) == 0)
                continue;
            step->server = v;
            step->take = x->entry;
            step->give = row->cursor;
            return true;
        }
    }
    return false;
}

/* Moves what the path of `length` steps can carry, from the overloaded server at its end to the one it began at. */
QOS_API void pshift_priv_shift(const struct pshift_priv_job *job, uint32_t length, uint32_t from)
{
    struct pshift *ps = job->ps;
    uint32_t to = ps->path[0].server, t;
    uint64_t m = qos_min((uint64_t)ps->balance[from], (uint64_t)-ps->balance[to]);
    for (t = 0; t < length; t++)
        m = qos_min(
            m, qos_min(job->alloc[ps->path[t].give], job->p->demand[ps->path[t].take] - job->alloc[ps->path[t].take]));
    for (t = 0; t < length; t++)
        pshift_priv_move(job, ps->balance, ps->path[t].give, ps->path[t].take, m);
    pshift_priv_refill(ps, from);
    pshift_priv_add(&ps->work.searched, m);
    ps->work.paths++;
}

/* Blocking flow: from each underloaded server up, one label a step, to an overloaded one, until it is full or nothing
 * leads on. A server from which nothing leads on loses its label, so that nobody tries it again in this round. */
QOS_API void pshift_priv_block(const struct pshift_priv_job *job)
{
    struct pshift *ps = job->ps;
    uint32_t j;
    for (j = 0; j < job->p->servers; j++) {
        uint32_t depth = 0, v = j;
        while (ps->node[j].label == 0 && ps->balance[j] < 0) {
            if (ps->balance[v] > 0) {
                pshift_priv_shift(job, depth, v);
                depth = 0;
                v = j;
            } else if (pshift_priv_ascend(job, v, &ps->path[depth])) {
                v = job->p->server[ps->path[depth++].give];
            } else {
                ps->node[v].label = PSHIFT_PRIV_NONE;
                v = depth ? ps->path[--depth].server : j;
            }
        }
    }
}

QOS_API bool pshift_priv_overloaded(const struct pshift *ps, uint32_t servers)
{
    uint32_t j;
    for (j = 0; j < servers; j++)
        if (ps->balance[j] > 0)
            return true;
    return false;
}

/* Algorithm 5, over windows of up to `most` rows. If that is all of them, the labels are those of a search that found
 * no overloaded server, or none is left. */
QOS_API void pshift_priv_progress(const struct pshift_priv_job *job, uint32_t most)
{
    struct pshift *ps = job->ps;
    uint32_t buckets = job->p->buckets, window = PSHIFT_WINDOW_ROWS, first = ps->next_row < buckets ? ps->next_row : 0;
    for (;; window = window > most / 4 ? most : window * 4) {
        if (window > most)
            window = most;
        pshift_priv_build_index(job, first, window);
        while (pshift_priv_label(job)) {
            ps->work.rounds++;
            pshift_priv_block(job);
        }
        if (window == most || !ps->sinks || !pshift_priv_overloaded(ps, job->p->servers))
            break;
    }
    ps->next_row = (uint32_t)(((uint64_t)first + window) % buckets);
}

/* ---- filters --------------------------------------------------------------------------------------- */

/* Of the n indexed entries of one server: the top_m largest keys get the bit. */
QOS_API void pshift_priv_keep_top(struct pshift *ps, uint32_t begin, uint32_t n, uint32_t top_m, uint8_t bit)
{
    uint64_t mask = 0, floor_key = 0;
    uint32_t ties = n, x;
    if (n > top_m)
        floor_key = pshift_priv_threshold(ps->key + begin, n, top_m, &mask, &ties);
    for (x = begin; x < begin + n; x++) {
        uint64_t digits = ps->key[x] & mask;
        bool tie = digits == floor_key && ties > 0;
        ties -= tie ? 1u : 0u;
        if (tie || digits > floor_key)
            ps->keep[ps->index[x].entry] |= bit;
    }
}

QOS_API void pshift_priv_filter_servers(struct pshift_priv_job *job, uint32_t top_m)
{
    struct pshift *ps = job->ps;
    uint32_t j, x;
    pshift_priv_build_index(job, 0, job->p->buckets);
    for (j = 0; j < job->p->servers; j++) {
        uint32_t begin = ps->column[j], n = ps->column[j + 1] - begin;
        for (x = begin; x < begin + n; x++)
            ps->key[x] = job->alloc[ps->index[x].entry];
        pshift_priv_keep_top(ps, begin, n, top_m, PSHIFT_PRIV_GIVE);
        for (x = begin; x < begin + n; x++)
            ps->key[x] = job->p->demand[ps->index[x].entry] - job->alloc[ps->index[x].entry];
        pshift_priv_keep_top(ps, begin, n, top_m, PSHIFT_PRIV_TAKE);
    }
}

/* The top_m buckets by tokens (spare false) or by spare demand; sums that reach 2^64 count as that. */
QOS_API void pshift_priv_filter_buckets(struct pshift_priv_job *job, uint32_t top_m, bool spare, uint8_t bit)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    uint64_t mask = 0, floor_key = 0;
    uint32_t ties = p->buckets, i, e;
    for (i = 0; i < p->buckets; i++) {
        ps->key[i] = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++)
            ps->key[i] = qos_sat_add(ps->key[i], spare ? p->demand[e] - job->alloc[e] : job->alloc[e]);
    }
    if (p->buckets > top_m)
        floor_key = pshift_priv_threshold(ps->key, p->buckets, top_m, &mask, &ties);
    for (i = 0; i < p->buckets; i++) {
        bool tie = (ps->key[i] & mask) == floor_key && ties > 0;
        ties -= tie ? 1u : 0u;
        for (e = p->row[i]; e < p->row[i + 1] && (tie || (ps->key[i] & mask) > floor_key); e++)
            ps->keep[e] |= bit;
    }
}

/* Retains what the filter says, by the initial allocation. */
QOS_API void pshift_priv_filter(struct pshift_priv_job *job, const struct pshift_options *opt)
{
    uint32_t e;
    job->keep = job->ps->keep;
    job->plain = false;
    for (e = 0; e < job->p->row[job->p->buckets]; e++)
        job->ps->keep[e] = 0;
    if (opt->filter == PSHIFT_TOP_SERVER) {
        pshift_priv_filter_servers(job, opt->top_m);
    } else {
        pshift_priv_filter_buckets(job, opt->top_m, false, PSHIFT_PRIV_GIVE);
        pshift_priv_filter_buckets(job, opt->top_m, true, PSHIFT_PRIV_TAKE);
    }
}

/* ---- certificate ----------------------------------------------------------------------------------- */

/* The numbers of the solution, from its arrays alone; QOS_ECORRUPT if it is not a prudent allocation of A_i tokens
 * each. The loads are left in ps->scratch. */
QOS_API enum qos_status pshift_priv_account(struct pshift *ps, const struct pshift_problem *p,
                                            const struct pshift_solution *s, struct pshift_solution *out)
{
    uint32_t i, j, e;
    out->tokens = out->unclaimed = out->effective = out->excess = pshift_priv_u128(0);
    out->cut_capacity = out->cut_demand = pshift_priv_u128(0);
    out->cut_servers = 0;
    for (j = 0; j < p->servers; j++) {
        ps->scratch[j] = pshift_priv_u128(0);
        if (s->cut[j] > 1)
            return QOS_ECORRUPT;
        if (s->cut[j]) {
            out->cut_servers++;
            pshift_priv_add(&out->cut_capacity, p->capacity[j]);
        }
    }
    for (i = 0; i < p->buckets; i++) {
        struct qos_u128 total = {0, 0}, tokens = {0, 0}, outside = {0, 0}, want = {0, p->reservation[i]};
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            if (p->server[e] >= p->servers)
                return QOS_EINVAL;
            if ((p->demand[e] | want.lo) > PSHIFT_COUNT_MAX)
                return QOS_ERANGE;
            if (s->alloc[e] > p->demand[e]) /* strong excess */
                return QOS_ECORRUPT;
            pshift_priv_add(&total, p->demand[e]);
            pshift_priv_add(&tokens, s->alloc[e]);
            pshift_priv_add(&ps->scratch[p->server[e]], s->alloc[e]);
            if (!s->cut[p->server[e]])
                pshift_priv_add(&outside, p->demand[e]);
        }
        if (qos_cmp_wide(total, want) < 0) {
            pshift_priv_add(&out->unclaimed, want.lo - total.lo);
            want = total;
        }
        if (!pshift_priv_same(tokens, want))
            return QOS_ECORRUPT;
        out->tokens = qos_add_wide(out->tokens, want);
        if (qos_cmp_wide(outside, want) < 0)
            want = outside;
        out->cut_demand = qos_add_wide(out->cut_demand, want);
    }
    for (j = 0; j < p->servers; j++) {
        struct qos_u128 c = {0, p->capacity[j]};
        out->effective = qos_add_wide(out->effective, qos_cmp_wide(ps->scratch[j], c) < 0 ? ps->scratch[j] : c);
    }
    out->excess = pshift_priv_minus(out->tokens, out->effective);
    return QOS_OK;
}

/* Bucket i's part of the weak excess, if every overloaded server serves its tokens evenly: of the a tokens here the
 * server serves (a C + rest) / load and keeps the new rest, so its services add up to C. Loads in ps->scratch; the
 * rests in ps->rest, zero before the first row. A rest is below the load, so a C + rest < 2^127. */
QOS_API uint64_t pshift_priv_short_row(struct pshift *ps, const struct pshift_problem *p, const uint64_t *alloc,
                                       uint32_t i)
{
    uint64_t unserved = 0;
    uint32_t e;
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        uint32_t j = p->server[e];
        struct qos_u128 c = {0, p->capacity[j]}, sum;
        if (qos_cmp_wide(ps->scratch[j], c) <= 0)
            continue;
        sum = qos_add_wide(qos_mul_wide(alloc[e], c.lo), ps->rest[j]);
        unserved += alloc[e] - pshift_priv_divide(sum, ps->scratch[j], &ps->rest[j]);
    }
    return unserved;
}

QOS_API void pshift_priv_no_rests(struct pshift *ps, uint32_t servers)
{
    uint32_t j;
    for (j = 0; j < servers; j++)
        ps->rest[j] = pshift_priv_u128(0);
}

/* ---- the calls ------------------------------------------------------------------------------------- */

/* Are the pointers there, the sizes within the configuration and the capacities in range? O(servers). */
QOS_API enum qos_status pshift_priv_check_frame(const struct pshift *ps, const struct pshift_problem *p,
                                                const struct pshift_solution *s)
{
    uint64_t bits = 0;
    uint32_t j, entries;
    if (!ps || !p || !s || !p->row || (p->servers && (!p->capacity || !s->cut)) || (p->buckets && !p->reservation))
        return QOS_EINVAL;
    if (p->servers > ps->cfg.servers || p->buckets > ps->cfg.buckets)
        return QOS_EMEMORY;
    entries = p->row[p->buckets];
    if (p->row[0] != 0 || (entries && (!p->server || !p->demand || !s->alloc)))
        return QOS_EINVAL;
    if (entries > ps->cfg.entries)
        return QOS_EMEMORY;
    for (j = 0; j < p->servers; j++)
        bits |= p->capacity[j];
    return bits > PSHIFT_COUNT_MAX ? QOS_ERANGE : QOS_OK;
}

/* The same, and are the rows in order? Entries are checked where they are read. */
QOS_API enum qos_status pshift_priv_check(const struct pshift *ps, const struct pshift_problem *p,
                                          const struct pshift_solution *s)
{
    enum qos_status st = pshift_priv_check_frame(ps, p, s);
    uint32_t i;
    bool sorted = true;
    for (i = 0; st == QOS_OK && i < p->buckets; i++)
        sorted &= p->row[i] <= p->row[i + 1];
    return sorted ? st : QOS_EINVAL;
}

/* How it is known that nothing does better. */
enum pshift_priv_proof {
    PSHIFT_PRIV_UNPROVED, /* it is not */
    PSHIFT_PRIV_KEPT,     /* by the X that the servers' marks say */
    PSHIFT_PRIV_FULL,     /* nothing leads to an underloaded server: the others are X */
    PSHIFT_PRIV_LABELS    /* a search came to nothing: the servers that it did not reach are X */
};

/* Fills in what *s says beside its arrays, and marks X: nobody, if no server is overloaded. */
QOS_API void pshift_priv_conclude(struct pshift *ps, const struct pshift_problem *p, struct pshift_solution *s,
                                  enum pshift_priv_proof proof)
{
    struct qos_u128 over = {0, 0}, capacity = {0, 0};
    bool exact = proof != PSHIFT_PRIV_UNPROVED, any = exact && pshift_priv_overloaded(ps, p->servers);
    uint32_t j, servers = 0;
    for (j = 0; j < p->servers; j++) {
        bool in = any;
        if (proof == PSHIFT_PRIV_KEPT)
            in &= (ps->mark[j] & PSHIFT_PRIV_CUT) != 0;
        else if (proof == PSHIFT_PRIV_FULL)
            in &= ps->balance[j] >= 0;
        else
            in &= ps->node[j].label == PSHIFT_PRIV_NONE && !(ps->closed && (ps->mark[j] & PSHIFT_PRIV_ROOT));
        over = qos_add_wide(over, pshift_priv_excess(ps, j));
        ps->mark[j] = in ? PSHIFT_PRIV_CUT : 0;
        s->cut[j] = in ? 1 : 0;
        servers += in ? 1u : 0u;
        if (in)
            pshift_priv_add(&capacity, p->capacity[j]);
    }
    s->tokens = ps->tokens;
    s->unclaimed = ps->unclaimed;
    s->excess = over;
    s->effective = pshift_priv_minus(ps->tokens, over);
    s->cut_capacity = capacity;
    s->cut_demand = pshift_priv_minus(exact ? s->effective : s->tokens, capacity);
    s->cut_servers = servers;
    s->exact = exact;
    s->shortfall_set = false;
}

/* From loads to the solution: steps 2 to 5. kept: no row leads out of the X that the marks say, so that it is still the
 * cut if its servers and the others come to rest by themselves. */
QOS_API void pshift_priv_shift_all(struct pshift *ps, const struct pshift_options *opt, struct pshift_priv_job *job,
                                   struct pshift_solution *s, bool kept, const uint32_t *bucket, uint32_t count)
{
    const struct pshift_work no_work = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, 0, 0, 0};
    const struct pshift_problem *p = job->p;
    bool initial_only = opt && opt->initial_only, filter = opt && opt->filter != PSHIFT_EXACT;
    enum pshift_priv_proof proof = PSHIFT_PRIV_KEPT;
    int pass;
    ps->work = no_work;
    ps->closed = false;
    ps->work.excess_start = pshift_priv_weigh(ps, p);
    if (!initial_only && !(kept && pshift_priv_cut_holds(ps, p->servers))) {
        if (filter)
            pshift_priv_filter(job, opt);
        if (!kept)
            pshift_priv_direct(ps, opt, job);
        pshift_priv_settle(job, 0, bucket, count);
        pshift_priv_settle(job, PSHIFT_PRIV_CUT, bucket, count);
        if (!(kept && pshift_priv_cut_holds(ps, p->servers)) && pshift_priv_overloaded(ps, p->servers)) {
            proof = PSHIFT_PRIV_LABELS;
            for (pass = 0; pass < PSHIFT_PULL_PASSES && proof == PSHIFT_PRIV_LABELS; pass++)
                if (pshift_priv_pull(job, p->buckets))
                    proof = PSHIFT_PRIV_FULL;
            if (proof == PSHIFT_PRIV_LABELS)
                pshift_priv_progress(job, p->buckets);
        }
    }
    pshift_priv_unweigh(ps, p);
    pshift_priv_conclude(ps, p, s, initial_only || filter ? PSHIFT_PRIV_UNPROVED : proof);
    ps->servers = p->servers;
    ps->buckets = p->buckets;
    ps->entries = p->row[p->buckets];
    ps->solved = true;
}

QOS_API enum qos_status pshift_priv_check_options(const struct pshift_options *opt)
{
    if (opt && ((unsigned)opt->filter > PSHIFT_TOP_GLOBAL || (opt->filter != PSHIFT_EXACT && opt->top_m == 0)))
        return QOS_EINVAL;
    return QOS_OK;
}

QOS_API void pshift_priv_job_of(struct pshift_priv_job *job, struct pshift *ps, const struct pshift_problem *p,
                                struct pshift_solution *s)
{
    job->ps = ps;
    job->p = p;
    job->alloc = s->alloc;
    job->keep = NULL;
    job->shards = pshift_priv_shards(p->row[p->buckets]);
    job->plain = !ps->twice;
}

QOS_API enum qos_status pshift_solve(struct pshift *ps, const struct pshift_problem *p,
                                     const struct pshift_options *opt, struct pshift_solution *s)
{
    struct pshift_priv_job job;
    enum qos_status st = pshift_priv_check(ps, p, s);
    uint32_t i;
    if (st == QOS_OK)
        st = pshift_priv_check_options(opt);
    if (st != QOS_OK)
        return st;
    pshift_priv_job_of(&job, ps, p, s);
    st = pshift_priv_start(ps, opt, &job);
    job.plain = !ps->twice;
    if (st != QOS_OK) {
        ps->solved = false; /* s->alloc is no solution any more */
        return st;
    }
    for (i = 0; i < ps->buckets && ps->retracted; i++)
        ps->rows[i].stamp = 0;
    ps->retracted = 0;
    ps->next_row = 0;
    for (i = 0; i < p->servers; i++)
        ps->mark[i] = 0;
    pshift_priv_shift_all(ps, opt, &job, s, false, NULL, 0);
    return QOS_OK;
}

#define PSHIFT_PRIV_RETRACTED UINT32_MAX /* a row's stamp */

QOS_API bool pshift_priv_same_size(const struct pshift *ps, const struct pshift_problem *p)
{
    return ps->solved && p->servers == ps->servers && p->buckets == ps->buckets && p->row[p->buckets] == ps->entries;
}

QOS_API enum qos_status pshift_retract(struct pshift *ps, const struct pshift_problem *p,
                                       const struct pshift_solution *s, const uint32_t *bucket, uint32_t count)
{
    enum qos_status st = pshift_priv_check_frame(ps, p, s);
    uint32_t t, u, e;
    if (st != QOS_OK)
        return st;
    if (!pshift_priv_same_size(ps, p) || (count && !bucket))
        return QOS_EINVAL;
    for (t = 0; t < count && st == QOS_OK; t++) {
        if (bucket[t] >= p->buckets)
            st = QOS_ENOENT;
        else if (ps->rows[bucket[t]].stamp == PSHIFT_PRIV_RETRACTED)
            st = QOS_EEXIST;
        else
            ps->rows[bucket[t]].stamp = PSHIFT_PRIV_RETRACTED;
        if (st == QOS_OK) { /* rows may lie anywhere: what is needed of each is asked for ahead */
            __builtin_prefetch(p->row + bucket[t]);
            __builtin_prefetch(p->reservation + bucket[t]);
        }
    }
    if (st != QOS_OK) { /* the last one was not marked */
        for (u = 0; u + 1 < t; u++)
            ps->rows[bucket[u]].stamp = 0;
        return st;
    }
    for (t = 0; t < count; t++) {
        struct qos_u128 tokens = {0, 0};
        if (count - t > 16) {
            u = p->row[bucket[t + 16]];
            __builtin_prefetch(s->alloc + u);
            __builtin_prefetch(s->alloc + u + 7);
            __builtin_prefetch(p->server + u);
        }
        for (e = p->row[bucket[t]]; e < p->row[bucket[t] + 1]; e++) {
            pshift_priv_add(&tokens, s->alloc[e]);
            ps->load[p->server[e]] = pshift_priv_minus(ps->load[p->server[e]], pshift_priv_u128(s->alloc[e]));
        }
        ps->tokens = pshift_priv_minus(ps->tokens, tokens);
        ps->unclaimed = pshift_priv_minus(ps->unclaimed, pshift_priv_u128(p->reservation[bucket[t]] - tokens.lo));
    }
    ps->retracted += count;
    return QOS_OK;
}

/* Moves the tokens of row i out of X, as far as they find demand elsewhere in the row. ps->quota: at least `most` for
 * the servers of X, -most for the others. False: something leads out of X still. */
QOS_API bool pshift_priv_expel(const struct pshift_priv_job *job, uint32_t i)
{
    struct pshift *ps = job->ps;
    const struct pshift_problem *p = job->p;
    uint32_t e;
    bool inside = false, outside = false;
    for (e = p->row[i]; e < p->row[i + 1]; e++)
        ps->quota[p->server[e]] = ps->mark[p->server[e]] & PSHIFT_PRIV_CUT ? PSHIFT_PRIV_PIECE : -PSHIFT_PRIV_PIECE;
    (void)pshift_priv_sweep_row(job, ps->quota, i);
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        bool in = (ps->mark[p->server[e]] & PSHIFT_PRIV_CUT) != 0;
        inside |= in && job->alloc[e] != 0;
        outside |= !in && job->alloc[e] != p->demand[e];
    }
    return !(inside && outside);
}

QOS_API enum qos_status pshift_resolve(struct pshift *ps, const struct pshift_problem *p,
                                       const struct pshift_options *opt, struct pshift_solution *s,
                                       const uint32_t *bucket, uint32_t count)
{
    struct pshift_priv_part part = {{0, 0}, {0, 0}, 0, QOS_OK, false};
    struct pshift_priv_job job;
    enum qos_status st = pshift_priv_check_frame(ps, p, s);
    uint32_t t, e;
    bool kept = true, cut = false;
    if (st == QOS_OK)
        st = pshift_priv_check_options(opt);
    if (st != QOS_OK)
        return st;
    if (!pshift_priv_same_size(ps, p) || count != ps->retracted || (count && !bucket))
        return QOS_EINVAL;
    for (t = 0; t < count; t++) {
        uint32_t i = bucket[t];
        if (i >= p->buckets || ps->rows[i].stamp != PSHIFT_PRIV_RETRACTED || p->row[i] > p->row[i + 1] ||
            p->row[i + 1] > ps->entries)
            return QOS_EINVAL;
        for (e = p->row[i]; e < p->row[i + 1]; e++)
            if (p->server[e] >= p->servers)
                return QOS_EINVAL;
        st = pshift_priv_start_row(ps, p, s->alloc, i, &part);
        if (st != QOS_OK)
            return st;
    }
    ps->twice |= part.twice;
    pshift_priv_job_of(&job, ps, p, s);
    for (t = 0; t < p->servers; t++)
        cut |= (ps->mark[t] & PSHIFT_PRIV_CUT) != 0;
    for (t = 0; t < count; t++) {
        ps->rows[bucket[t]].stamp = 0;
        kept &= !cut || pshift_priv_expel(&job, bucket[t]);
        for (e = p->row[bucket[t]]; e < p->row[bucket[t] + 1]; e++)
            pshift_priv_add(&ps->load[p->server[e]], s->alloc[e]);
    }
    ps->retracted = 0;
    ps->tokens = qos_add_wide(ps->tokens, part.tokens);
    ps->unclaimed = qos_add_wide(ps->unclaimed, part.unclaimed);
    pshift_priv_shift_all(ps, opt, &job, s, kept, bucket, count);
    return QOS_OK;
}

/* Reservations and limits become what the second solve is to place: the limit without the R-tokens, on the demand
 * without them, on the capacity without the load. */
QOS_API void pshift_priv_leave(struct pshift *ps, const struct pshift_problem *p, const uint64_t *limit,
                               const uint64_t *alloc, const struct pshift_residual *rest)
{
    uint32_t i, j, e;
    for (i = 0; i < p->buckets; i++) {
        uint64_t tokens = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            tokens += alloc[e]; /* A_i <= R_i < 2^63 */
            rest->demand[e] = p->demand[e] - alloc[e];
        }
        rest->reservation[i] = qos_min(limit[i] - tokens, PSHIFT_COUNT_MAX);
    }
    for (j = 0; j < p->servers; j++)
        rest->capacity[j] = ps->load[j].hi ? 0 : qos_sat_sub(p->capacity[j], ps->load[j].lo);
}

QOS_API enum qos_status pshift_plan(struct pshift *ps, const struct pshift_problem *p, const uint64_t *limit,
                                    const struct pshift_options *opt, struct pshift_solution *r,
                                    struct pshift_solution *l, const struct pshift_residual *residual)
{
    struct pshift_problem q;
    enum qos_status st = pshift_priv_check(ps, p, r);
    uint32_t i;
    if (st == QOS_OK)
        st = pshift_priv_check(ps, p, l);
    if (st != QOS_OK)
        return st;
    if (!residual || (p->row[p->buckets] && !residual->demand) || (p->servers && !residual->capacity) ||
        (p->buckets && (!residual->reservation || !limit)))
        return QOS_EINVAL;
    q = *p;
    q.reservation = residual->reservation;
    for (i = 0; i < p->buckets; i++)
        residual->reservation[i] = qos_min(p->reservation[i], limit[i]);
    st = pshift_solve(ps, &q, opt, r);
    if (st != QOS_OK)
        return st;
    pshift_priv_leave(ps, p, limit, r->alloc, residual);
    q.demand = residual->demand;
    q.capacity = residual->capacity;
    return pshift_solve(ps, &q, opt, l);
}

QOS_API struct pshift_work pshift_work_of(const struct pshift *ps)
{
    return ps->work;
}

QOS_API enum qos_status pshift_verify(struct pshift *ps, const struct pshift_problem *p,
                                      const struct pshift_solution *s)
{
    struct pshift_solution real;
    enum qos_status st = pshift_priv_check(ps, p, s);
    uint32_t i;
    bool same;
    if (st != QOS_OK)
        return st;
    st = pshift_priv_account(ps, p, s, &real);
    if (st != QOS_OK)
        return st;
    same = pshift_priv_same(real.tokens, s->tokens) && pshift_priv_same(real.unclaimed, s->unclaimed) &&
           pshift_priv_same(real.effective, s->effective) && pshift_priv_same(real.excess, s->excess) &&
           pshift_priv_same(real.cut_capacity, s->cut_capacity) && pshift_priv_same(real.cut_demand, s->cut_demand) &&
           real.cut_servers == s->cut_servers;
    if (same && s->exact) /* max-flow min-cut */
        same = pshift_priv_same(qos_add_wide(real.cut_capacity, real.cut_demand), real.effective);
    pshift_priv_no_rests(ps, p->servers);
    for (i = 0; same && s->shortfall_set && i < p->buckets; i++)
        same = s->shortfall && s->shortfall[i] == pshift_priv_short_row(ps, p, s->alloc, i);
    return same ? QOS_OK : QOS_ECORRUPT;
}

QOS_API enum qos_status pshift_shortfall(struct pshift *ps, const struct pshift_problem *p, struct pshift_solution *s)
{
    enum qos_status st = pshift_verify(ps, p, s); /* leaves the loads */
    uint32_t i;
    if (st != QOS_OK)
        return st;
    if (!s->shortfall && p->buckets)
        return QOS_EINVAL;
    pshift_priv_no_rests(ps, p->servers);
    for (i = 0; i < p->buckets; i++)
        s->shortfall[i] = pshift_priv_short_row(ps, p, s->alloc, i);
    s->shortfall_set = true;
    return QOS_OK;
}

QOS_API bool pshift_binding(const struct pshift_problem *p, const struct pshift_solution *s, uint32_t i)
{
    struct qos_u128 total = {0, 0}, outside = {0, 0}, want = {0, p->reservation[i]};
    uint32_t e;
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        pshift_priv_add(&total, p->demand[e]);
        if (!s->cut[p->server[e]])
            pshift_priv_add(&outside, p->demand[e]);
    }
    return qos_cmp_wide(outside, want) < 0 && qos_cmp_wide(outside, total) < 0;
}

QOS_API uint64_t pshift_movable(const struct pshift_problem *p, const struct pshift_solution *s, uint32_t i, uint32_t j,
                                uint32_t k)
{
    uint64_t tokens = 0, spare = 0;
    uint32_t e;
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        if (p->server[e] == j)
            tokens = qos_sat_add(tokens, s->alloc[e]);
        if (p->server[e] == k)
            spare = qos_sat_add(spare, p->demand[e] - s->alloc[e]);
    }
    return j == k ? 0 : qos_min(tokens, spare);
}

/* ---- the token scheduler ---------------------------------------------------------------------------- */

QOS_API uint32_t pshift_priv_words(uint32_t queues, int level)
{
    uint32_t per = level == 0 ? 64 : level == 1 ? 4096 : 262144;
    return queues / per + (queues % per != 0);
}

QOS_API void pshift_priv_set_write(struct pshift_priv_set *set, uint32_t q, bool in)
{
    int level;
    for (level = 0; level < 3; level++, q /= 64) {
        uint64_t *word = &set->word[level][q / 64], bit = UINT64_C(1) << q % 64;
        uint64_t was = *word;
        *word = in ? was | bit : was & ~bit;
        if ((was != 0) == (*word != 0))
            return;
        in = *word != 0;
    }
}

/* First member at or after q; PSHIFT_NO_QUEUE if there is none. Looks at one word a level, up and then down. */
QOS_API uint32_t pshift_priv_set_from(const struct pshift_priv_set *set, uint32_t q, uint32_t queues)
{
    uint32_t at = q;
    int level = 0;
    while (level < 3) {
        uint64_t word = at / 64 < pshift_priv_words(queues, level) ? set->word[level][at / 64] : 0;
        word &= UINT64_MAX - ((UINT64_C(1) << at % 64) - 1);
        if (word != 0) {
            at = at / 64 * 64 + pshift_priv_lowest(word);
            while (level-- > 0)
                at = at * 64 + pshift_priv_lowest(set->word[level][at]);
            return at;
        }
        at = at / 64 + 1;
        level++;
    }
    return PSHIFT_NO_QUEUE;
}

/* The same, around the end. */
QOS_API uint32_t pshift_priv_set_around(const struct pshift_priv_set *set, uint32_t q, uint32_t queues)
{
    uint32_t found = pshift_priv_set_from(set, q, queues);
    return found != PSHIFT_NO_QUEUE ? found : pshift_priv_set_from(set, 0, queues);
}

QOS_API void pshift_priv_sched_layout(struct qos_layout *l, const struct pshift_sched_config *cfg,
                                      struct pshift_sched *sc, uint8_t *mem)
{
    size_t queue = qos_layout_add(l, cfg->queues, sizeof(struct pshift_priv_queue), QOS_CACHE_LINE), at[2][3];
    int set, level;
    for (set = 0; set < 2; set++)
        for (level = 0; level < 3; level++)
            at[set][level] = qos_layout_add(l, pshift_priv_words(cfg->queues, level), sizeof(uint64_t), QOS_CACHE_LINE);
    if (!sc)
        return;
    sc->queue = (struct pshift_priv_queue *)(void *)(mem + queue);
    for (level = 0; level < 3; level++) {
        sc->reserved.word[level] = (uint64_t *)(void *)(mem + at[0][level]);
        sc->normal.word[level] = (uint64_t *)(void *)(mem + at[1][level]);
    }
}

QOS_API size_t pshift_sched_memsize(const struct pshift_sched_config *cfg)
{
    struct qos_layout l = {NULL, 0, 0, false};
    if (!cfg || cfg->queues == 0 || cfg->queues > PSHIFT_QUEUES_MAX)
        return 0;
    pshift_priv_sched_layout(&l, cfg, NULL, NULL);
    return qos_layout_size(&l);
}

QOS_API enum qos_status pshift_sched_init(struct pshift_sched *sc, void *mem, size_t size_bytes,
                                          const struct pshift_sched_config *cfg)
{
    const struct pshift_priv_queue empty = {0, 0, 0, 0, 0, PSHIFT_WEIGHT_DEFAULT};
    struct qos_layout l = {NULL, 0, 0, false};
    enum qos_status st;
    uint32_t i;
    int level;
    if (!sc || !cfg)
        return QOS_EINVAL;
    if (cfg->queues == 0 || cfg->queues > PSHIFT_QUEUES_MAX || cfg->debt_max_ops > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    pshift_priv_sched_layout(&l, cfg, NULL, NULL);
    st = qos_layout_check(&l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    l.mem = NULL;
    l.size_bytes = 0;
    pshift_priv_sched_layout(&l, cfg, sc, (uint8_t *)mem);
    sc->cfg = *cfg;
    if (sc->cfg.debt_max_ops == 0)
        sc->cfg.debt_max_ops = 1024;
    for (i = 0; i < cfg->queues; i++)
        sc->queue[i] = empty;
    for (level = 0; level < 3; level++)
        for (i = 0; i < pshift_priv_words(cfg->queues, level); i++)
            sc->reserved.word[level][i] = sc->normal.word[level][i] = 0;
    sc->next = 0;
    sc->turn = PSHIFT_NO_QUEUE;
    sc->left = 0;
    sc->granted = sc->borrowed = sc->refused = sc->waited = sc->debt = 0;
    return QOS_OK;
}

/* Puts the queue where its pending requests and tokens say. */
QOS_API void pshift_priv_sched_place(struct pshift_sched *sc, uint32_t queue)
{
    const struct pshift_priv_queue *q = &sc->queue[queue];
    pshift_priv_set_write(&sc->reserved, queue, q->pending != 0 && q->r_tokens != 0);
    pshift_priv_set_write(&sc->normal, queue, q->pending != 0 && q->l_tokens != 0);
}

QOS_API enum qos_status pshift_sched_arrive(struct pshift_sched *sc, uint32_t queue, uint64_t n)
{
    struct pshift_priv_queue *q;
    bool idle;
    if (queue >= sc->cfg.queues)
        return QOS_ENOENT;
    q = &sc->queue[queue];
    idle = q->pending == 0;
    if (!qos_checked_add(q->pending, n, &q->pending))
        return QOS_ERANGE;
    if (idle)
        pshift_priv_sched_place(sc, queue);
    qos_counter_add(&sc->waited, n);
    return QOS_OK;
}

QOS_API enum qos_status pshift_sched_cancel(struct pshift_sched *sc, uint32_t queue, uint64_t n)
{
    if (queue >= sc->cfg.queues)
        return QOS_ENOENT;
    if (n > sc->queue[queue].pending)
        return QOS_ERANGE;
    sc->queue[queue].pending -= n;
    pshift_priv_sched_place(sc, queue);
    return QOS_OK;
}

QOS_API enum qos_status pshift_sched_set_weight(struct pshift_sched *sc, uint32_t queue, uint32_t weight)
{
    if (queue >= sc->cfg.queues)
        return QOS_ENOENT;
    sc->queue[queue].weight = weight ? weight : PSHIFT_WEIGHT_DEFAULT;
    return QOS_OK;
}

/* Takes up to n from *tokens, which may be unlimited. */
QOS_API uint64_t pshift_priv_spend(uint64_t *tokens, uint64_t n)
{
    uint64_t m = qos_min(*tokens, n);
    if (*tokens != PSHIFT_UNLIMITED)
        *tokens -= m;
    return m;
}

QOS_API enum qos_status pshift_sched_set_tokens(struct pshift_sched *sc, uint32_t queue, uint64_t r_tokens,
                                                uint64_t l_tokens)
{
    struct pshift_priv_queue *q;
    uint64_t paid;
    if (queue >= sc->cfg.queues)
        return QOS_ENOENT;
    q = &sc->queue[queue];
    q->r_tokens = r_tokens;
    q->l_tokens = l_tokens;
    paid = pshift_priv_spend(&q->r_tokens, q->debt);
    paid += pshift_priv_spend(&q->l_tokens, q->debt - paid);
    q->debt -= paid;
    qos_counter_add(&sc->debt, qos_wrap_sub(0, paid));
    pshift_priv_sched_place(sc, queue);
    return QOS_OK;
}

/* One request of the queue leaves, at the expense of *tokens. */
QOS_API void pshift_priv_sched_serve(struct pshift_sched *sc, uint32_t queue, uint64_t *tokens)
{
    struct pshift_priv_queue *q = &sc->queue[queue];
    (void)pshift_priv_spend(tokens, 1);
    q->pending--;
    q->served = qos_wrap_add(q->served, 1);
    if (q->pending == 0 || *tokens == 0)
        pshift_priv_sched_place(sc, queue);
    qos_counter_add(&sc->granted, 1);
}

QOS_API enum qos_status pshift_sched_pick(struct pshift_sched *sc, struct pshift_pick *pick)
{
    uint32_t queues = sc->cfg.queues, found = pshift_priv_set_around(&sc->reserved, sc->next, queues);
    bool reserved = found != PSHIFT_NO_QUEUE;
    struct pshift_priv_queue *q;
    if (!reserved)
        found = pshift_priv_set_around(&sc->normal, sc->next, queues);
    if (found == PSHIFT_NO_QUEUE) {
        qos_counter_add(&sc->refused, 1);
        return QOS_EAGAIN;
    }
    q = &sc->queue[found];
    if (found != sc->turn) {
        sc->turn = found;
        sc->left = q->weight;
    }
    sc->left--;
    sc->next = found;
    if (sc->left == 0) {
        sc->turn = PSHIFT_NO_QUEUE;
        sc->next = found + 1 == queues ? 0 : found + 1;
    }
    pick->queue = found;
    pick->backing = reserved ? PSHIFT_RESERVATION : PSHIFT_NORMAL;
    if (!reserved)
        qos_counter_add(&sc->borrowed, 1);
    pshift_priv_sched_serve(sc, found, reserved ? &q->r_tokens : &q->l_tokens);
    return QOS_OK;
}

QOS_API enum qos_status pshift_sched_force(struct pshift_sched *sc, uint32_t queue)
{
    struct pshift_priv_queue *q;
    uint64_t none = 0;
    if (queue >= sc->cfg.queues)
        return QOS_ENOENT;
    q = &sc->queue[queue];
    if (q->pending == 0)
        return QOS_EAGAIN;
    if (q->r_tokens == 0 && q->l_tokens == 0) {
        if (q->debt >= sc->cfg.debt_max_ops)
            return QOS_EDEBT;
        q->debt++;
        qos_counter_add(&sc->debt, 1);
        pshift_priv_sched_serve(sc, queue, &none);
    } else {
        pshift_priv_sched_serve(sc, queue, q->r_tokens ? &q->r_tokens : &q->l_tokens);
    }
    return QOS_OK;
}

QOS_API uint64_t pshift_sched_served(const struct pshift_sched *sc, uint32_t queue)
{
    return queue < sc->cfg.queues ? sc->queue[queue].served : 0;
}

QOS_API uint64_t pshift_sched_pending(const struct pshift_sched *sc, uint32_t queue)
{
    return queue < sc->cfg.queues ? sc->queue[queue].pending : 0;
}

QOS_API uint64_t pshift_sched_r_tokens(const struct pshift_sched *sc, uint32_t queue)
{
    return queue < sc->cfg.queues ? sc->queue[queue].r_tokens : 0;
}

QOS_API uint64_t pshift_sched_l_tokens(const struct pshift_sched *sc, uint32_t queue)
{
    return queue < sc->cfg.queues ? sc->queue[queue].l_tokens : 0;
}

QOS_API uint64_t pshift_sched_next_ns(const struct pshift_sched *sc, uint64_t now_ns)
{
    bool some = sc->reserved.word[2][0] != 0 || sc->normal.word[2][0] != 0;
    return some ? now_ns : QOS_NEVER;
}

QOS_API struct qos_stats pshift_sched_stats(const struct pshift_sched *sc)
{
    struct qos_stats s;
    s.granted = qos_counter_read(&sc->granted);
    s.borrowed = qos_counter_read(&sc->borrowed);
    s.refused = qos_counter_read(&sc->refused);
    s.waited = qos_counter_read(&sc->waited);
    s.debt = qos_counter_read(&sc->debt);
    return s;
}

/* ---- the runtime ------------------------------------------------------------------------------------- */

QOS_API uint64_t pshift_extrapolate(uint64_t recent, uint64_t interval_ns, uint64_t remaining_ns)
{
    return interval_ns == 0 ? 0 : qos_mul_div_ceil(recent, remaining_ns, interval_ns);
}

QOS_API void pshift_priv_write_head(struct qos_writer *w, const struct pshift_message *m)
{
    qos_write_u32(w, m->server);
    qos_write_u32(w, m->count);
    qos_write_u64(w, m->server_epoch);
    qos_write_u64(w, m->controller_epoch);
    qos_write_u64(w, m->seq);
    qos_write_u64(w, m->grant_seq);
    qos_write_u64(w, m->period);
    qos_write_u64(w, m->capacity);
    qos_write_u64(w, 0);
}

/* Writes the head of a message into its frame's payload; false: it and its entries do not fit. */
QOS_API bool pshift_priv_wire_begin(void *buf, size_t size_bytes, const struct pshift_message *m, struct qos_writer *w)
{
    uint64_t need = PSHIFT_WIRE_HEAD_BYTES + (uint64_t)m->count * PSHIFT_WIRE_ENTRY_BYTES;
    if (!buf || need > UINT32_MAX || need + QOS_FRAME_HEADER_BYTES > size_bytes)
        return false;
    qos_writer_init(w, (uint8_t *)buf + QOS_FRAME_HEADER_BYTES, (uint32_t)need);
    pshift_priv_write_head(w, m);
    return true;
}

/* An entry of either kind: a bucket and three counts. */
QOS_API void pshift_priv_write_entry(struct qos_writer *w, uint32_t bucket, uint64_t a, uint64_t b, uint64_t c)
{
    qos_write_u32(w, bucket);
    qos_write_u64(w, a);
    qos_write_u64(w, b);
    qos_write_u64(w, c);
}

QOS_API size_t pshift_priv_wire_seal(void *buf, size_t size_bytes, uint16_t type, uint32_t count)
{
    struct qos_frame f;
    size_t len_bytes;
    f.magic = PSHIFT_WIRE_MAGIC;
    f.version = PSHIFT_WIRE_VERSION;
    f.type = type;
    f.payload_bytes = PSHIFT_WIRE_HEAD_BYTES + count * PSHIFT_WIRE_ENTRY_BYTES;
    return qos_frame_seal(&f, buf, size_bytes, &len_bytes) == QOS_OK ? len_bytes : 0;
}

QOS_API size_t pshift_report_encode(void *buf, size_t size_bytes, const struct pshift_message *m,
                                    const struct pshift_report_entry *entry)
{
    struct qos_writer w;
    uint32_t k;
    if (!pshift_priv_wire_begin(buf, size_bytes, m, &w))
        return 0;
    for (k = 0; k < m->count; k++)
        pshift_priv_write_entry(&w, entry[k].bucket, entry[k].served, entry[k].demand, entry[k].held);
    return pshift_priv_wire_seal(buf, size_bytes, PSHIFT_WIRE_REPORT, m->count);
}

QOS_API size_t pshift_grant_encode(void *buf, size_t size_bytes, const struct pshift_message *m,
                                   const struct pshift_grant_entry *entry)
{
    struct qos_writer w;
    uint32_t k;
    if (!pshift_priv_wire_begin(buf, size_bytes, m, &w))
        return 0;
    for (k = 0; k < m->count; k++)
        pshift_priv_write_entry(&w, entry[k].bucket, entry[k].r_tokens, entry[k].l_tokens, entry[k].basis);
    return pshift_priv_wire_seal(buf, size_bytes, PSHIFT_WIRE_GRANT, m->count);
}

/* Opens the frame and reads the head; the reader then stands at the entries. */
QOS_API enum qos_status pshift_priv_wire_open(const void *buf, size_t size_bytes, uint16_t type, uint32_t most,
                                              struct pshift_message *m, struct qos_reader *rd)
{
    struct qos_frame f;
    enum qos_status st = qos_frame_open(buf, size_bytes, PSHIFT_WIRE_MAGIC, PSHIFT_WIRE_VERSION, &f);
    if (st != QOS_OK)
        return st;
    qos_reader_init(rd, (const uint8_t *)buf + QOS_FRAME_HEADER_BYTES, f.payload_bytes);
    m->server = qos_read_u32(rd);
    m->count = qos_read_u32(rd);
    m->server_epoch = qos_read_u64(rd);
    m->controller_epoch = qos_read_u64(rd);
    m->seq = qos_read_u64(rd);
    m->grant_seq = qos_read_u64(rd);
    m->period = qos_read_u64(rd);
    m->capacity = qos_read_u64(rd);
    (void)qos_read_u64(rd);
    if (rd->bad || f.type != type ||
        f.payload_bytes - PSHIFT_WIRE_HEAD_BYTES != (uint64_t)m->count * PSHIFT_WIRE_ENTRY_BYTES)
        return QOS_ECORRUPT;
    return m->count > most ? QOS_EFULL : QOS_OK;
}

QOS_API enum qos_status pshift_report_decode(const void *buf, size_t size_bytes, struct pshift_message *m,
                                             struct pshift_report_entry *entry, uint32_t most)
{
    struct qos_reader rd;
    enum qos_status st = pshift_priv_wire_open(buf, size_bytes, PSHIFT_WIRE_REPORT, most, m, &rd);
    uint32_t k;
    for (k = 0; st == QOS_OK && k < m->count; k++) {
        entry[k].bucket = qos_read_u32(&rd);
        entry[k].served = qos_read_u64(&rd);
        entry[k].demand = qos_read_u64(&rd);
        entry[k].held = qos_read_u64(&rd);
    }
    return st;
}

QOS_API enum qos_status pshift_grant_decode(const void *buf, size_t size_bytes, struct pshift_message *m,
                                            struct pshift_grant_entry *entry, uint32_t most)
{
    struct qos_reader rd;
    enum qos_status st = pshift_priv_wire_open(buf, size_bytes, PSHIFT_WIRE_GRANT, most, m, &rd);
    uint32_t k;
    for (k = 0; st == QOS_OK && k < m->count; k++) {
        entry[k].bucket = qos_read_u32(&rd);
        entry[k].r_tokens = qos_read_u64(&rd);
        entry[k].l_tokens = qos_read_u64(&rd);
        entry[k].basis = qos_read_u64(&rd);
    }
    return st;
}

QOS_API size_t pshift_agent_memsize(const struct pshift_agent_config *cfg)
{
    struct qos_layout l = {NULL, 0, 0, false};
    if (!cfg || cfg->queues == 0 || cfg->queues > PSHIFT_QUEUES_MAX)
        return 0;
    (void)qos_layout_add(&l, cfg->queues, sizeof(struct pshift_priv_seen), QOS_CACHE_LINE);
    return qos_layout_size(&l);
}

QOS_API enum qos_status pshift_agent_init(struct pshift_agent *a, void *mem, size_t size_bytes,
                                          const struct pshift_agent_config *cfg, struct pshift_sched *sched)
{
    const struct pshift_priv_seen nothing = {0, 0, 0, 0, 0, false};
    struct qos_layout l = {NULL, 0, 0, false};
    enum qos_status st;
    uint32_t q;
    if (!a || !cfg || !sched)
        return QOS_EINVAL;
    if (cfg->queues == 0 || cfg->queues != sched->cfg.queues || cfg->epoch == 0 || cfg->unchanged_permille > 1000)
        return QOS_ERANGE;
    (void)qos_layout_add(&l, cfg->queues, sizeof(struct pshift_priv_seen), QOS_CACHE_LINE);
    st = qos_layout_check(&l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    a->cfg = *cfg;
    a->sched = sched;
    a->seen = (struct pshift_priv_seen *)mem;
    for (q = 0; q < cfg->queues; q++) {
        a->seen[q] = nothing;
        a->seen[q].base = a->seen[q].served = pshift_sched_served(sched, q);
        a->seen[q].arrived = a->seen[q].served + pshift_sched_pending(sched, q);
    }
    a->seq = a->period = a->controller_epoch = a->grant_seq = 0;
    a->served = pshift_sched_stats(sched).granted;
    return QOS_OK;
}

QOS_API enum qos_status pshift_agent_begin(struct pshift_agent *a, uint64_t period)
{
    uint32_t q;
    if (period <= a->period)
        return QOS_ESTALE;
    a->period = period;
    for (q = 0; q < a->cfg.queues; q++) {
        enum qos_status st = pshift_sched_set_tokens(a->sched, q, 0, a->cfg.default_l_tokens);
        a->seen[q].base = pshift_sched_served(a->sched, q);
        a->seen[q].allowed = a->cfg.default_l_tokens;
        a->seen[q].sent = false;
        QOS_ASSERT(st == QOS_OK);
        (void)st;
    }
    return QOS_OK;
}

QOS_API enum qos_status pshift_agent_report(struct pshift_agent *a, uint64_t interval_ns, uint64_t remaining_ns,
                                            struct pshift_message *m, struct pshift_report_entry *entry, uint32_t most)
{
    uint64_t served_all = pshift_sched_stats(a->sched).granted;
    uint32_t q, n = 0;
    int pass;
    for (pass = 0; pass < 2; pass++) /* first count, then record */
        for (q = 0, n = 0; q < a->cfg.queues; q++) {
            struct pshift_priv_seen *s = &a->seen[q];
            uint64_t served = pshift_sched_served(a->sched, q), pending = pshift_sched_pending(a->sched, q);
            uint64_t r = pshift_sched_r_tokens(a->sched, q), l = pshift_sched_l_tokens(a->sched, q);
            uint64_t recent = qos_sat_sub(qos_sat_add(served, pending), s->arrived);
            uint64_t demand = qos_sat_add(pending, pshift_extrapolate(recent, interval_ns, remaining_ns));
            uint64_t total = qos_sat_add(served - s->base, demand);
            uint64_t moved = total > s->told ? total - s->told : s->told - total;
            bool news = s->sent ? moved > qos_mul_div_floor(s->told, a->cfg.unchanged_permille, 1000)
                                : total != 0 || s->told != 0; /* demand that the last period ended with is gone */
            /* The report acknowledges the last grant. Where an older one had allowed more, and that was spent before
             * the last one came, the controller must hear of it, or it would issue the difference again. */
            news |= qos_sat_add(served - s->base, qos_sat_add(r, l)) > s->allowed;
            if (news || (s->sent && a->cfg.unchanged_permille == 0)) {
                if (n >= most)
                    return QOS_EFULL;
                entry[n].bucket = q;
                entry[n].served = served - s->base;
                entry[n].demand = demand;
                entry[n++].held = qos_sat_add(r, l);
                s->told = pass ? total : s->told;
                s->sent = pass ? true : s->sent;
            }
            if (pass) {
                s->served = served;
                s->arrived = qos_sat_add(served, pending);
            }
        }
    m->server = a->cfg.server;
    m->count = n;
    m->server_epoch = a->cfg.epoch;
    m->controller_epoch = a->controller_epoch;
    m->seq = ++a->seq;
    m->grant_seq = a->grant_seq;
    m->period = a->period;
    m->capacity = pshift_extrapolate(served_all - a->served, interval_ns, remaining_ns);
    a->served = served_all;
    return QOS_OK;
}

QOS_API enum qos_status pshift_agent_install(struct pshift_agent *a, const struct pshift_message *m,
                                             const struct pshift_grant_entry *entry)
{
    uint32_t k;
    if (m->server != a->cfg.server)
        return QOS_ENOENT;
    if (m->server_epoch != a->cfg.epoch || m->period != a->period || m->controller_epoch < a->controller_epoch ||
        (m->controller_epoch == a->controller_epoch && m->seq <= a->grant_seq))
        return QOS_ESTALE;
    for (k = 0; k < m->count; k++)
        if (entry[k].bucket >= a->cfg.queues)
            return QOS_ENOENT;
    a->controller_epoch = m->controller_epoch;
    a->grant_seq = m->seq;
    for (k = 0; k < m->count; k++) {
        uint32_t q = entry[k].bucket;
        uint64_t r = entry[k].r_tokens, l = entry[k].l_tokens;
        uint64_t since = qos_sat_sub(pshift_sched_served(a->sched, q) - a->seen[q].base, entry[k].basis);
        enum qos_status st;
        a->seen[q].allowed = qos_sat_add(entry[k].basis, qos_sat_add(r, l));
        since -= pshift_priv_spend(&r, since);
        (void)pshift_priv_spend(&l, since);
        st = pshift_sched_set_tokens(a->sched, q, r, l);
        QOS_ASSERT(st == QOS_OK);
        (void)st;
    }
    return QOS_OK;
}

/* Smallest power of two that leaves half of the hash empty. */
QOS_API uint32_t pshift_priv_slots(uint32_t records)
{
    uint32_t slots = 2;
    while (slots / 2 < records)
        slots *= 2;
    return slots;
}

QOS_API void pshift_priv_control_layout(struct qos_layout *l, const struct pshift_control_config *cfg,
                                        struct pshift_control *c, uint8_t *mem)
{
    const size_t servers = cfg->servers, buckets = cfg->buckets, records = cfg->records;
    const size_t counts[21] = {servers, records, pshift_priv_slots(cfg->records),
                               records, buckets, buckets,
                               buckets, buckets, buckets,
                               buckets, servers, servers,
                               records, records, records,
                               records, buckets, buckets + 1,
                               records, servers, 0};
    const size_t sizes[21] = {sizeof(struct pshift_priv_peer),
                              sizeof(struct pshift_priv_record),
                              4,
                              4,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              8,
                              4,
                              4,
                              1,
                              1};
    uint8_t *at[21];
    int k;
    for (k = 0; k < 21; k++) {
        size_t offset = qos_layout_add(l, counts[k], sizes[k], QOS_CACHE_LINE);
        at[k] = mem ? mem + offset : NULL;
    }
    if (!c)
        return;
    c->peer = (struct pshift_priv_peer *)(void *)at[0];
    c->record = (struct pshift_priv_record *)(void *)at[1];
    c->slot = (uint32_t *)(void *)at[2];
    c->entry = (uint32_t *)(void *)at[3];
    c->limit = (uint64_t *)(void *)at[4];
    c->reservation = (uint64_t *)(void *)at[5];
    c->lost = (uint64_t *)(void *)at[6];
    c->plan_reservation = (uint64_t *)(void *)at[7];
    c->plan_limit = (uint64_t *)(void *)at[8];
    c->budget = (uint64_t *)(void *)at[9];
    c->plan_capacity = (uint64_t *)(void *)at[10];
    c->rest_capacity = (uint64_t *)(void *)at[11];
    c->demand = (uint64_t *)(void *)at[12];
    c->rest_demand = (uint64_t *)(void *)at[13];
    c->alloc = (uint64_t *)(void *)at[14];
    c->l_alloc = (uint64_t *)(void *)at[15];
    c->rest_reservation = (uint64_t *)(void *)at[16];
    c->row = (uint32_t *)(void *)at[17];
    c->server = (uint32_t *)(void *)at[18];
    c->cut = at[19];
}

QOS_API bool pshift_priv_control_fits(const struct pshift_control_config *cfg)
{
    return cfg->servers > 0 && cfg->servers <= PSHIFT_QUEUES_MAX && cfg->buckets > 0 &&
           cfg->buckets <= (UINT32_C(1) << 30) && cfg->records > 0 && cfg->records <= (UINT32_C(1) << 30) &&
           cfg->epoch > 0;
}

QOS_API size_t pshift_control_memsize(const struct pshift_control_config *cfg)
{
    struct qos_layout l = {NULL, 0, 0, false};
    if (!cfg || !pshift_priv_control_fits(cfg))
        return 0;
    pshift_priv_control_layout(&l, cfg, NULL, NULL);
    return qos_layout_size(&l);
}

QOS_API enum qos_status pshift_control_init(struct pshift_control *c, void *mem, size_t size_bytes,
                                            const struct pshift_control_config *cfg)
{
    const struct pshift_priv_peer unknown = {0, 0, 0, 0, 0, PSHIFT_PRIV_NONE, false, false};
    struct qos_layout l = {NULL, 0, 0, false};
    enum qos_status st;
    uint32_t i;
    if (!c || !cfg)
        return QOS_EINVAL;
    if (!pshift_priv_control_fits(cfg))
        return QOS_ERANGE;
    pshift_priv_control_layout(&l, cfg, NULL, NULL);
    st = qos_layout_check(&l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    l.mem = NULL;
    l.size_bytes = 0;
    pshift_priv_control_layout(&l, cfg, c, (uint8_t *)mem);
    c->cfg = *cfg;
    if (c->cfg.silent_after == 0)
        c->cfg.silent_after = 2;
    c->slots = pshift_priv_slots(cfg->records);
    c->count = 0;
    c->period = c->round = 0;
    for (i = 0; i < c->slots; i++)
        c->slot[i] = PSHIFT_PRIV_NONE;
    for (i = 0; i < cfg->servers; i++)
        c->peer[i] = unknown;
    for (i = 0; i < cfg->buckets; i++) {
        c->reservation[i] = c->lost[i] = 0;
        c->limit[i] = PSHIFT_UNLIMITED;
    }
    return QOS_OK;
}

QOS_API enum qos_status pshift_control_set(struct pshift_control *c, uint32_t bucket, uint64_t reservation,
                                           uint64_t limit)
{
    if (bucket >= c->cfg.buckets)
        return QOS_ENOENT;
    if (reservation > PSHIFT_COUNT_MAX)
        return QOS_ERANGE;
    c->reservation[bucket] = reservation;
    c->limit[bucket] = limit;
    return QOS_OK;
}

QOS_API enum qos_status pshift_control_begin(struct pshift_control *c, uint64_t period)
{
    uint32_t i;
    if (period <= c->period)
        return QOS_ESTALE;
    c->period = period;
    for (i = 0; i < c->cfg.buckets; i++)
        c->lost[i] = 0;
    for (i = 0; i < c->count; i++) {
        struct pshift_priv_record *x = &c->record[i];
        x->served = x->banked = x->granted = x->ceiling = x->r_tokens = x->l_tokens = x->basis = 0;
    }
    return QOS_OK;
}

/* Slot of the pair: that which holds it, or the empty one where it belongs. */
QOS_API uint32_t pshift_priv_slot(const struct pshift_control *c, uint32_t bucket, uint32_t server)
{
    uint64_t h = qos_wrap_mul((uint64_t)bucket << 32 | server, UINT64_C(0x9e3779b97f4a7c15));
    uint32_t at = (uint32_t)(h >> 32) & (c->slots - 1);
    while (c->slot[at] != PSHIFT_PRIV_NONE &&
           (c->record[c->slot[at]].bucket != bucket || c->record[c->slot[at]].server != server))
        at = (at + 1) & (c->slots - 1);
    return at;
}

/* All of the report is checked before any of it is merged. */
QOS_API enum qos_status pshift_priv_report_check(const struct pshift_control *c, const struct pshift_message *m,
                                                 const struct pshift_report_entry *entry)
{
    const struct pshift_priv_peer *peer;
    uint32_t k, fresh = 0;
    if (m->server >= c->cfg.servers)
        return QOS_ENOENT;
    peer = &c->peer[m->server];
    if (m->period != c->period || m->server_epoch < peer->epoch ||
        (m->server_epoch == peer->epoch && m->seq <= peer->seq))
        return QOS_ESTALE;
    for (k = 0; k < m->count; k++) {
        uint32_t at;
        if (entry[k].bucket >= c->cfg.buckets)
            return QOS_ENOENT;
        at = c->slot[pshift_priv_slot(c, entry[k].bucket, m->server)];
        if (at == PSHIFT_PRIV_NONE)
            fresh++;
        else if (m->server_epoch == peer->epoch && entry[k].served < c->record[at].served)
            return QOS_ECORRUPT;
    }
    return fresh > c->cfg.records - c->count ? QOS_EFULL : QOS_OK;
}

/* The server started again: its counters began at zero and its tokens are gone. What it may have served after its last
 * report is unknown; it counts against the limit, not for the reservation. */
QOS_API void pshift_priv_restarted(struct pshift_control *c, struct pshift_priv_peer *peer)
{
    uint32_t i;
    for (i = peer->first; i != PSHIFT_PRIV_NONE; i = c->record[i].next) {
        struct pshift_priv_record *x = &c->record[i];
        x->banked = qos_sat_add(x->banked, x->served);
        c->lost[x->bucket] = qos_sat_add(c->lost[x->bucket], qos_sat_sub(x->ceiling, x->banked));
        x->served = x->demand = x->r_tokens = x->l_tokens = x->basis = 0;
        x->granted = x->ceiling = x->banked;
    }
}

QOS_API struct pshift_priv_record *pshift_priv_record_of(struct pshift_control *c, uint32_t bucket, uint32_t server)
{
    const struct pshift_priv_record blank = {0, 0, 0, 0, 0, 0, 0, 0, bucket, server, c->peer[server].first};
    uint32_t at = pshift_priv_slot(c, bucket, server);
    if (c->slot[at] == PSHIFT_PRIV_NONE) {
        c->record[c->count] = blank;
        c->peer[server].first = c->count;
        c->slot[at] = c->count++;
    }
    return &c->record[c->slot[at]];
}

QOS_API enum qos_status pshift_control_report(struct pshift_control *c, const struct pshift_message *m,
                                              const struct pshift_report_entry *entry)
{
    enum qos_status st = pshift_priv_report_check(c, m, entry);
    struct pshift_priv_peer *peer;
    bool acknowledged;
    uint32_t i, k;
    if (st != QOS_OK)
        return st;
    peer = &c->peer[m->server];
    if (peer->known && m->server_epoch != peer->epoch)
        pshift_priv_restarted(c, peer);
    acknowledged = m->controller_epoch == c->cfg.epoch && m->grant_seq == peer->grant_seq && !peer->unsent;
    peer->known = true;
    peer->epoch = m->server_epoch;
    peer->seq = m->seq;
    peer->capacity = m->capacity;
    peer->heard = c->round;
    for (i = peer->first; i != PSHIFT_PRIV_NONE && acknowledged; i = c->record[i].next)
        c->record[i].ceiling = c->record[i].granted; /* no older grant can be spent any more */
    for (k = 0; k < m->count; k++) {
        struct pshift_priv_record *x = pshift_priv_record_of(c, entry[k].bucket, m->server);
        uint64_t may;
        x->served = entry[k].served;
        x->demand = qos_min(entry[k].demand, PSHIFT_COUNT_MAX);
        may = qos_sat_add(qos_sat_add(x->banked, x->served), entry[k].held);
        x->ceiling = acknowledged ? may : qos_max(x->ceiling, may);
    }
    return QOS_OK;
}

QOS_API bool pshift_priv_silent(const struct pshift_control *c, uint32_t server)
{
    return c->round - c->peer[server].heard > c->cfg.silent_after;
}

/* The rows of the plan, and what each bucket has left. */
QOS_API void pshift_priv_control_rows(struct pshift_control *c)
{
    uint32_t i;
    for (i = 0; i <= c->cfg.buckets; i++)
        c->row[i] = 0;
    for (i = 0; i < c->cfg.buckets; i++) {
        c->plan_reservation[i] = c->reservation[i];
        c->plan_limit[i] = c->limit[i] == PSHIFT_UNLIMITED ? PSHIFT_UNLIMITED : qos_sat_sub(c->limit[i], c->lost[i]);
        c->budget[i] = c->plan_limit[i];
    }
    for (i = 0; i < c->count; i++) {
        const struct pshift_priv_record *x = &c->record[i];
        uint64_t used = qos_sat_add(x->banked, x->served);
        uint64_t gone = pshift_priv_silent(c, x->server) ? qos_max(used, x->ceiling) : used;
        c->row[x->bucket + 1]++;
        c->plan_reservation[x->bucket] = qos_sat_sub(c->plan_reservation[x->bucket], used);
        if (c->limit[x->bucket] != PSHIFT_UNLIMITED) {
            c->plan_limit[x->bucket] = qos_sat_sub(c->plan_limit[x->bucket], gone);
            c->budget[x->bucket] = qos_sat_sub(c->budget[x->bucket], qos_max(used, x->ceiling));
        }
    }
    for (i = 0; i < c->cfg.buckets; i++)
        c->row[i + 1] += c->row[i];
    for (i = 0; i < c->count; i++) { /* row[b + 1] walks down to the row's begin, and is shifted back below */
        const struct pshift_priv_record *x = &c->record[i];
        uint32_t e = --c->row[x->bucket + 1];
        c->entry[i] = e;
        c->server[e] = x->server;
        c->demand[e] = pshift_priv_silent(c, x->server) ? 0 : x->demand;
    }
    for (i = 0; i < c->cfg.buckets; i++)
        c->row[i] = c->row[i + 1];
    c->row[c->cfg.buckets] = c->count;
    for (i = 0; i < c->cfg.servers; i++)
        c->plan_capacity[i] =
            c->peer[i].known && !pshift_priv_silent(c, i) ? qos_min(c->peer[i].capacity, PSHIFT_COUNT_MAX) : 0;
}

QOS_API enum qos_status pshift_control_plan(struct pshift_control *c, struct pshift *ps,
                                            const struct pshift_options *opt)
{
    struct pshift_problem p;
    struct pshift_residual rest;
    enum qos_status st;
    uint32_t i;
    c->round++;
    pshift_priv_control_rows(c);
    p.servers = c->cfg.servers;
    p.buckets = c->cfg.buckets;
    p.capacity = c->plan_capacity;
    p.reservation = c->plan_reservation;
    p.row = c->row;
    p.server = c->server;
    p.demand = c->demand;
    rest.demand = c->rest_demand;
    rest.capacity = c->rest_capacity;
    rest.reservation = c->rest_reservation;
    c->r.alloc = c->alloc;
    c->l.alloc = c->l_alloc;
    c->r.cut = c->l.cut = c->cut;
    c->r.shortfall = c->l.shortfall = NULL;
    st = pshift_plan(ps, &p, c->plan_limit, opt, &c->r, &c->l, &rest);
    if (st != QOS_OK)
        return st;
    for (i = 0; i < c->cfg.servers; i++)
        c->peer[i].unsent = true;
    for (i = 0; i < c->count; i++) {
        struct pshift_priv_record *x = &c->record[i];
        uint64_t used = qos_sat_add(x->banked, x->served), target, over;
        if (pshift_priv_silent(c, x->server))
            continue;
        x->r_tokens = c->alloc[c->entry[i]];
        x->l_tokens = c->limit[x->bucket] == PSHIFT_UNLIMITED ? PSHIFT_UNLIMITED : c->l_alloc[c->entry[i]];
        target = qos_sat_add(qos_sat_add(used, x->r_tokens), x->l_tokens);
        if (c->limit[x->bucket] != PSHIFT_UNLIMITED && !c->cfg.reliable && target > x->ceiling) {
            /* Tokens that another server may still hold are not issued again: only what is free is. */
            over = qos_sat_sub(target - qos_max(x->ceiling, used), c->budget[x->bucket]);
            c->budget[x->bucket] -= target - qos_max(x->ceiling, used) - over;
            target -= over;
            over -= pshift_priv_spend(&x->l_tokens, over);
            x->r_tokens -= over;
        }
        x->basis = x->served;
        x->granted = target;
        x->ceiling = c->cfg.reliable ? target : qos_max(x->ceiling, target);
    }
    return QOS_OK;
}

QOS_API enum qos_status pshift_control_grant(struct pshift_control *c, uint32_t server, struct pshift_message *m,
                                             struct pshift_grant_entry *entry, uint32_t most)
{
    struct pshift_priv_peer *peer;
    uint32_t i, n = 0;
    if (server >= c->cfg.servers || !c->peer[server].known)
        return QOS_ENOENT;
    peer = &c->peer[server];
    for (i = peer->first; i != PSHIFT_PRIV_NONE; i = c->record[i].next)
        n++;
    if (n > most)
        return QOS_EFULL;
    for (i = peer->first, n = 0; i != PSHIFT_PRIV_NONE; i = c->record[i].next, n++) {
        entry[n].bucket = c->record[i].bucket;
        entry[n].r_tokens = c->record[i].r_tokens;
        entry[n].l_tokens = c->record[i].l_tokens;
        entry[n].basis = c->record[i].basis;
    }
    m->server = server;
    m->count = n;
    m->server_epoch = peer->epoch;
    m->controller_epoch = c->cfg.epoch;
    m->seq = m->grant_seq = ++peer->grant_seq;
    peer->unsent = false;
    m->period = c->period;
    m->capacity = peer->capacity;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_PSHIFT_H */
