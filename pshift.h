/* pshift.h - tokens for buckets spread over servers      SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   A bucket (a tenant's container) has objects on several servers. One contract covers
 *   them all: at least R and at most L operations per period. But a server sees only its
 *   own queues. So a controller hands out tokens: bucket i gets a[i][j] of them at server
 *   j. Tokens beyond a bucket's demand at a server, or beyond the server's capacity, are
 *   wasted. Which allocation wastes fewest tokens, and what proves that? How do limits
 *   and reservations survive lost messages and restarts? (pShift, MSST 2019.)
 *
 * THE MODEL
 *
 *      server 0: queues -> scheduler -> device     a request needs a token of its queue:
 *                  agent ^ |                       R-tokens first, then L-tokens
 *                 grants | | reports               report: served, demand, tokens held
 *                        | v                       grant:  most requests per bucket
 *                     controller -> solver         each interval: R-tokens by max flow,
 *                        ^ |                       then L-tokens on the remainder
 *                 reports | | grants
 *                  agent | v                       a period is several intervals;
 *      server 1: queues -> scheduler -> device     contracts are per period
 *
 * THE CALLS
 *
 *     #include "pshift.h"
 *
 *     static unsigned char mem[4096] __attribute__((aligned(64)));
 *     static unsigned char queue_mem[4096] __attribute__((aligned(64)));
 *
 *     int main(void)
 *     {
 *         static const uint64_t capacity[2] = {100, 100}; // a period, of each server
 *         static const uint64_t reservation[3] = {100, 60, 40}; // of each bucket
 *         // bucket i has the entries row[i]..row[i + 1] - 1: server and demand there
 *         static const uint32_t row[4] = {0, 2, 4, 5}, server[5] = {0, 1, 0, 1, 1};
 *         static const uint64_t demand[5] = {150, 50, 50, 50, 90};
 *         const struct pshift_problem problem = { // 2 servers, 3 buckets
 *             2, 3, capacity, reservation, row, server, demand};
 *         const struct pshift_solver_config config = {2, 3, 5}; // and 5 entries
 *         const struct pshift_scheduler_config queues = {3, 0}; // buckets
 *         static struct pshift_solution solution; // zero, then its arrays
 *         static struct pshift_solver solver;
 *         static struct pshift_scheduler scheduler;
 *         struct pshift_pick pick;
 *         uint64_t alloc[5]; // tokens of each entry
 *         uint8_t cut[2];    // of each server
 *
 *         solution.alloc = alloc;
 *         solution.cut = cut;
 *         if (pshift_solver_init(&solver, mem, sizeof mem, &config) != QOS_OK)
 *             return 1; // pshift_solver_config_error(&config) says why
 *         if (pshift_solver_solve(&solver, &problem, NULL, &solution) != QOS_OK)
 *             return 1;
 *         if (pshift_solver_verify(&solver, &problem, &solution) != QOS_OK)
 *             return 1; // recomputes everything: the solver need not be trusted
 *
 *         // bucket 0 at server 0: one request arrives and is served with an R-token
 *         if (pshift_scheduler_init(&scheduler, queue_mem, 4096, &queues) != QOS_OK ||
 *             pshift_scheduler_set_tokens(&scheduler, 0, alloc[0], 0) != QOS_OK ||
 *             pshift_scheduler_arrive(&scheduler, 0, 1) != QOS_OK ||
 *             pshift_scheduler_pick(&scheduler, 0, &pick) != QOS_OK)
 *             return 1;
 *         return solution.excess.lo != 0 || pick.queue != 0; // 0: all reservations fit
 *     }
 *
 * THE CONTRACT
 *
 *   - Threads: only one thread at a time may use a handle (solver, scheduler, agent with
 *     its scheduler, controller). Any thread may call pshift_scheduler_stats.
 *   - The solver's result is exactly a maximum flow. The cut that it returns proves it;
 *     pshift_solver_verify checks it. The number of threads does not change the result.
 *   - Counts are 0..PSHIFT_COUNT_MAX (2^63 - 1); sums are kept in 128 bits. A row may
 *     name a server twice and may be empty. Memory: PSHIFT_BYTES_PER_ENTRY per entry,
 *     plus O(servers + buckets). After an error the object is unchanged; outputs are
 *     undefined. A solution's arrays are outputs: if a refused solve was given those of
 *     the last solution, no warm start from it is possible.
 *   - Longest wait: let k requests be ahead in the same queue, w be the queue's weight,
 *     and W the sum of the other queues' weights. A request that gets an R-token waits
 *     at most (k / w + 1) * 16 W + k picks. With an L-token it waits at most
 *     (k / w + 1) * W + k picks, plus one for each R-token held or got there meanwhile.
 *   - Limit: all servers together serve at most L requests of a bucket in a period, and
 *     at most 2 L in any window of one period's length T, less what elapsed clocks drift
 *     in k T (k: the periods that one swap takes). This holds whatever happens to
 *     messages, processes, disks, clocks' values and membership. One thing is asked for:
 *     at most one controller owns a period (struct pshift_owner says how, with one key of
 *     any linearizable store). And default_l_tokens is 0. Forced requests may exceed L,
 *     by the debt at most; each is charged once. Not covered: a store that forgets (move
 *     its number up, never back), a process whose memory was cloned with its nonce, and
 *     servers that hear nothing while a bucket without a limit gets one.
 *   - Reservation: met in every period in which messages arrive, if the certificate shows
 *     that it can be met, and rounds with withheld tokens are repeated at once. A lost
 *     message costs one interval, and so does demand that moves as a period begins. So
 *     does a request of a bucket with a limit that finds no tokens. What demand leaves of
 *     a limit lies, in equal parts, where the bucket sent in this period or the last.
 *     Without an owner, buckets without a limit go on with the shares of the last plan,
 *     renewed each T; buckets with a limit stop.
 *   - Isolation: a bucket spends only its own contract's tokens. It costs others nothing.
 *     But R-tokens that it keeps at t beyond R (1 - t / T) may cost others as many.
 */
#ifndef QOS_PSHIFT_H
#define QOS_PSHIFT_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration and public types ---------------------------------------------------------------------------- */

/* Tunables of the solver; define them before the include. PSHIFT_PLAIN: plain C, without compiler vector types. */
#ifndef PSHIFT_LANES /* rows that are started together, as vectors of this many 32-bit lanes: 4, 8 or 16 */
#if defined(__AVX512F__)
#define PSHIFT_LANES 16
#elif defined(__AVX2__)
#define PSHIFT_LANES 8
#else
#define PSHIFT_LANES 4
#endif
#endif
#ifndef PSHIFT_WINDOW_ROWS
#define PSHIFT_WINDOW_ROWS 1024 /* rows in the first window of the search; each next window is 4 times larger */
#endif
#ifndef PSHIFT_TURNS
#define PSHIFT_TURNS 6 /* pulls and pushes end after so many turns in a row with little progress; 0: skip them */
#endif
#ifndef PSHIFT_WARM_PART
#define PSHIFT_WARM_PART 16 /* if more than 1/16 of the rows have changed, or 1/64 and servers bind, solve all again */
#endif
#ifndef PSHIFT_SHARDS
#define PSHIFT_SHARDS 16 /* parts of the rows for parallel_for; fixed: results must not depend on threads */
#endif
#ifndef PSHIFT_SHARD_ENTRIES
#define PSHIFT_SHARD_ENTRIES 65536 /* fewer entries: one part; fewer than 8 times as many: 4 parts */
#endif
#if PSHIFT_TURNS < 0 || PSHIFT_WARM_PART < 1 || PSHIFT_WINDOW_ROWS < 1 || PSHIFT_SHARDS < 1 || PSHIFT_SHARDS > 1024 || \
    PSHIFT_SHARD_ENTRIES < 1
#error "pshift.h: tunables must be positive, PSHIFT_SHARDS at most 1024"
#endif
#if PSHIFT_LANES != 4 && PSHIFT_LANES != 8 && PSHIFT_LANES != 16
#error "pshift.h: PSHIFT_LANES must be 4, 8 or 16"
#endif

#define PSHIFT_COUNT_MAX (UINT64_MAX >> 1)  /* largest reservation, demand or capacity */
#define PSHIFT_ENTRIES_MAX (UINT32_MAX - 1) /* entries, buckets and servers of a problem */
#define PSHIFT_BYTES_PER_ENTRY 17           /* workspace of the solver; the rest is O(servers + buckets) */
#define PSHIFT_QUEUES_MAX 262144            /* queues of a scheduler, servers of a controller */
#define PSHIFT_RECORDS_MAX (UINT32_C(1) << 30)
#define PSHIFT_WIRE_MAGIC UINT32_C(0x66485350) /* "PSHf" */
#define PSHIFT_WIRE_VERSION 3
#define PSHIFT_WIRE_REPORT 1       /* type of a frame */
#define PSHIFT_WIRE_GRANT 2        /* type of a frame */
#define PSHIFT_WIRE_HEAD_BYTES 176 /* of a payload, before its entries */
#define PSHIFT_REPORT_ENTRY_BYTES 40
#define PSHIFT_GRANT_ENTRY_BYTES 24
#define PSHIFT_RANGES 8 /* of acknowledged reports in a grant */

struct pshift_solver;
struct pshift_scheduler;
struct pshift_agent;
struct pshift_controller;

/* The largest problem that a solver must handle. */
struct pshift_solver_config {
    uint32_t servers; /* 0..PSHIFT_ENTRIES_MAX */
    uint32_t buckets; /* 0..PSHIFT_ENTRIES_MAX */
    uint32_t entries; /* 0..PSHIFT_ENTRIES_MAX */
};

/* Sparse rows: bucket i has demand demand[e] at server server[e] for row[i] <= e < row[i + 1]. Aligned to 64 bytes,
 * demand[] and alloc[] take fewer cache lines: then a warm start with many changes is about a tenth faster. */
struct pshift_problem {
    uint32_t servers, buckets;
    const uint64_t *capacity;    /* [servers] operations per period, 0..PSHIFT_COUNT_MAX */
    const uint64_t *reservation; /* [buckets] operations per period, 0..PSHIFT_COUNT_MAX */
    const uint32_t *row;         /* [buckets + 1] row[0] = 0, not decreasing */
    const uint32_t *server;      /* [entries] each below servers */
    const uint64_t *demand;      /* [entries] operations per period, 0..PSHIFT_COUNT_MAX */
};

/* Runs task(arg, 0) .. task(arg, count - 1) in any order, in parallel or not, and returns when all are done. */
typedef void (*pshift_task)(void *arg, uint32_t index);
typedef void (*pshift_parallel_for)(void *ctx, uint32_t count, pshift_task task, void *arg);

/* How to solve. A NULL argument means all zeros. */
struct pshift_options {
    pshift_parallel_for parallel_for; /* NULL: the calling thread runs all tasks */
    void *parallel_ctx;               /* handed to parallel_for */
    bool initial_only;                /* stop after the initial allocation (Algorithm 3), before any shift */
};

/* Solution and certificate. The caller sets the pointers to its arrays before the call. X: the servers with cut 1. */
struct pshift_solution {
    uint64_t *alloc;              /* [entries] tokens of the entry's bucket at the entry's server */
    uint8_t *cut;                 /* [servers] 1: the server is in X, it binds; else 0 */
    uint64_t *shortfall;          /* [buckets] output of pshift_solver_shortfall; NULL if that is not called */
    struct qos_u128 tokens;       /* sum of A_i = min(R_i, D_i); D_i: bucket i's demand at all servers */
    struct qos_u128 unclaimed;    /* sum of R_i - A_i: reservation without demand */
    struct qos_u128 effective;    /* Phi: tokens that will be consumed */
    struct qos_u128 excess;       /* tokens - effective; 0: all reservations can be met */
    struct qos_u128 cut_capacity; /* capacity of the servers of X */
    struct qos_u128 cut_demand;   /* sum of min(A_i, demand outside X); cut_capacity + cut_demand = effective */
    uint32_t cut_servers;         /* servers in X */
    bool exact;                   /* the cut proves that no allocation has a larger Phi */
    bool shortfall_set;           /* shortfall[] belongs to this solution */
};

/* What the last solve did. */
struct pshift_solver_state {
    struct qos_u128 excess_start; /* weak excess of the initial allocation */
    struct qos_u128 direct;       /* tokens moved directly */
    struct qos_u128 pulled;       /* tokens moved through one broker server */
    struct qos_u128 searched;     /* tokens moved along paths that a search found */
    uint64_t paths;               /* paths that a search found */
    uint32_t rounds;              /* searches by level */
    uint32_t indexed_rows;        /* rows of the last window; 0: no search was needed */
    bool repeated;                /* a warm start's cut was no proof, so all was solved from scratch */
};

struct pshift_scheduler_config {
    uint32_t queues;       /* 1..PSHIFT_QUEUES_MAX */
    uint64_t debt_max_ops; /* bound of each queue's debt from force, 0..QOS_TOKENS_MAX; 0: 1024 */
};

enum pshift_backing { PSHIFT_RESERVATION, PSHIFT_NORMAL };

struct pshift_pick {
    uint32_t queue;
    enum pshift_backing backing; /* which token was consumed: R or L */
};

/* One queue. */
struct pshift_scheduler_state {
    uint64_t pending;  /* waiting requests */
    uint64_t r_tokens; /* left; or QOS_UNLIMITED */
    uint64_t l_tokens; /* left; or QOS_UNLIMITED */
    uint64_t served;   /* requests served since init, with any backing; only grows */
    uint64_t debt;     /* tokens owed for forced requests */
    uint32_t weight;
};

/* Numbers first..last of a sender's messages; last 0: none. */
struct pshift_range {
    uint64_t first, last;
};

/* Head of a report or a grant. A message is complete by itself for the buckets that it names. */
struct pshift_message {
    uint32_t server;
    uint32_t count;        /* entries that follow */
    struct qos_u128 boot;  /* nonce of the server's start */
    struct qos_u128 owner; /* nonce of the period's owner; report: 0 if the server has heard of no period */
    uint64_t period;       /* grant: the owner's; report: the largest that the server has heard of, 0: none */
    uint64_t seq;          /* of this message; a server and, for each server, a controller count from 1 */
    uint64_t answers;  /* grant: the newest report that was merged; report: the newest grant of this owner, 0: none */
    uint64_t left_ns;  /* report: its estimates are of this time, until the period ends, or T if that has ended; grant:
                        * what the period had left when the report that it answers came, perhaps before the period */
    uint64_t capacity; /* report: operations that the server expects to serve until the period ends; grant: 0 */
    struct pshift_range ack[PSHIFT_RANGES]; /* grant: reports that were merged, the newest first; report: none */
};

/* A server's report on one bucket. */
struct pshift_report_entry {
    uint64_t bucket;
    uint64_t served;    /* requests served in this period and paid with a token */
    uint64_t demand;    /* requests expected until the period ends, waiting ones and the debt included */
    uint64_t held;      /* R- and L-tokens left; or QOS_UNLIMITED */
    uint64_t grant_seq; /* of the last grant installed for this bucket; 0: none */
};

/* How many requests of one bucket a server may serve in this period. These are totals, not increments, so a late or
 * repeated grant adds nothing. */
struct pshift_grant_entry {
    uint64_t bucket;
    uint64_t r_total; /* the first r_total requests are backed by R-tokens */
    uint64_t total;   /* most requests to serve; at least r_total; QOS_UNLIMITED: no limit */
};

struct pshift_agent_config {
    struct pshift_scheduler *scheduler; /* initialised; the agent is used in its thread */
    uint32_t server;                    /* this server's number */
    struct qos_u128 boot;               /* a nonce, not 0: 128 random bits, new at each start */
    uint64_t period_ns;                 /* T, of all controllers and servers; 0: one second */
    uint64_t default_l_tokens;   /* of a bucket without a grant in this period. Above 0, limits may be exceeded. */
    uint32_t unchanged_permille; /* of what was told: up to this, what changed is not reported; 0: report all */
};

struct pshift_agent_state {
    uint64_t period;         /* the largest heard of; 0: none */
    uint64_t ends_ns;        /* when the tokens of that period are void, by this server's clock; 0: it has none */
    uint32_t open;           /* buckets with a queue */
    uint32_t unacknowledged; /* buckets with unacknowledged changes */
};

/* Who may own the next period, and when (chapter "owner"). */
struct pshift_owner_config {
    struct qos_u128 nonce; /* not 0: 128 random bits, new at each start of the controller's process */
    uint64_t period_ns;    /* T, of all controllers and servers; 0: one second */
    uint32_t periods;      /* k, the periods that one swap takes, the same for all controllers, at most 64; 0: 1 */
};

enum pshift_owner_step {
    PSHIFT_OWNER_READS, /* nothing is known of the key: read it */
    PSHIFT_OWNER_WAITS, /* somebody's periods, or this one's own, are not over yet */
    PSHIFT_OWNER_ASKS   /* a swap was sent, and its outcome is not known: read the key until it is */
};

struct pshift_owner {
    struct pshift_owner_config config;
    enum pshift_owner_step step;
    uint64_t seen, seen_ns;   /* the key's number; when it was seen first */
    uint64_t asked, asked_ns; /* ASKS: the number to be swapped in; the time before the swap was sent */
    uint64_t owned, start_ns; /* the last of the periods that this one owns, 0: none; when the first of them begins */
};

struct pshift_controller_config {
    uint32_t servers;      /* 1..PSHIFT_QUEUES_MAX; their numbers are 0..servers - 1 */
    uint32_t buckets;      /* 1..PSHIFT_RECORDS_MAX; maximum of buckets with a contract or a report */
    uint32_t records;      /* 1..PSHIFT_RECORDS_MAX; maximum of (bucket, server) pairs in two periods */
    struct qos_u128 nonce; /* that of its struct pshift_owner */
    uint64_t period_ns;    /* T, of all controllers and servers; 0: one second */
    uint32_t silent_after; /* rounds without a report after which a server counts as silent; 0: 2. A round that is
                            * repeated, within T / 32 of it, is one round */
};

struct pshift_controller_state {
    uint64_t period, round; /* round: plans so far */
    uint64_t withheld;      /* tokens that the last plan could not issue: other servers may still hold them */
    uint64_t refused;       /* entries of reports in this period without room: a larger `records` or `buckets` helps */
    uint32_t records;       /* in use */
    uint32_t buckets;       /* in use */
    uint32_t silent;        /* servers */
    uint32_t awaited;       /* servers whose start must still answer a grant: they get no tokens before */
    uint32_t planned_buckets; /* rows that the last plan solved again; all rows if cold */
    bool cold;                /* the last plan was solved from scratch */
};

/* One bucket. */
struct pshift_bucket_state {
    uint64_t reservation, limit; /* limit: QOS_UNLIMITED for none */
    uint64_t served;             /* in this period, according to the reports */
    uint64_t ceiling;            /* most requests that its servers may serve in this period under their grants */
    uint32_t row;                /* of the certificate's problem */
};

/* ---- the API at a glance ---------------------------------------------------------------------------------------
 *
 *   every handle  X_config_error, X_memsize, X_init     check the configuration; bytes of memory; begin
 *   solver        pshift_solver_solve                   the best allocation, with its proof
 *                 pshift_solver_retract, _resolve       the same after a few rows changed
 *                 pshift_solver_verify, _shortfall      check a solution; which buckets are short, by how much
 *                 pshift_solution_binds                 does this bucket depend on the servers of the cut
 *                 pshift_solver_info                    what the last solve did
 *   scheduler     pshift_scheduler_arrive, _cancel      requests join and leave a queue
 *                 pshift_scheduler_pick, _force         which queue is served now; serve this one now
 *                 pshift_scheduler_set_tokens, _change  tokens; weight
 *                 pshift_scheduler_next_ns              can anything be picked
 *                 pshift_scheduler_stats, _info         counters; one queue
 *   agent         pshift_agent_open, _close             a bucket gets a queue, and gives it back
 *                 pshift_agent_measure, _report         an interval ends; messages about it
 *                 pshift_agent_install                  a grant arrives; a larger period begins with it
 *                 pshift_agent_info                     its period, and when that ends
 *   owner         pshift_owner_saw, _ask                the key was read; may it be swapped now
 *                 pshift_owner_next_ns, _holds          when to ask; the period that is owned now
 *   controller    pshift_controller_change              a bucket's contract
 *                 pshift_controller_begin               a period begins
 *                 pshift_controller_report              a report arrives
 *                 pshift_controller_plan, _grant        a round; its messages
 *                 pshift_controller_certificate         which buckets are short, because of which servers
 *                 pshift_controller_info, _bucket_info  its state; one bucket
 *   messages      pshift_report_encode, _decode         bytes on the wire
 *                 pshift_grant_encode, _decode
 */

/* ---- the API --------------------------------------------------------------------------------------------------- */

/* NULL if the configuration is good; else a sentence that names the bad field and what to do. config may be NULL. */
QOS_API const char *pshift_solver_config_error(const struct pshift_solver_config *config);
/* Bytes of memory for init, which must be aligned to 64; 0 if the configuration is bad or too large for size_t. */
QOS_API size_t pshift_solver_memsize(const struct pshift_solver_config *config);
/* QOS_EINVAL (a pointer is NULL), QOS_ERANGE, QOS_EALIGN, QOS_EMEMORY: solver unchanged. */
QOS_API QOS_NODISCARD enum qos_status pshift_solver_init(struct pshift_solver *solver, void *mem, size_t size_bytes,
                                                         const struct pshift_solver_config *config);
/* Solves from scratch. QOS_EINVAL: an array is missing, rows are not sorted, or a server does not exist; QOS_ERANGE: a
 * count above PSHIFT_COUNT_MAX; QOS_EMEMORY: larger than the configuration. Single owner. */
QOS_API QOS_NODISCARD enum qos_status pshift_solver_solve(struct pshift_solver *solver,
                                                          const struct pshift_problem *problem,
                                                          const struct pshift_options *options,
                                                          struct pshift_solution *solution);
/* Warm start, in three steps.
 * 1. Retract the rows that will change, while *problem and the solution still hold the old rows.
 * 2. Change them: reservations, demands and servers, but not the number of entries. Capacities may change, too.
 * 3. Resolve the same rows. All other rows and solution->alloc must be as the last call left them (not checked).
 * The result is as good as that of pshift_solver_solve, but may differ from it. The cut is checked against Phi; if it
 * proves nothing, all is solved from scratch. Cost: O(servers), the changed rows, and
 * the rows that are needed to place their tokens. All rows are read if the set of binding servers changes. All are
 * solved from scratch if more than one row in PSHIFT_WARM_PART has changed.
 * retract: QOS_EINVAL: nothing was solved, or the problem has another size; QOS_ENOENT: no such bucket; QOS_EEXIST: it
 * is already retracted. On an error nothing changes. Until the rows are resolved, only pshift_solver_solve may be
 * called instead. resolve: QOS_EINVAL: not exactly the retracted buckets, or one of them twice; other errors as
 * pshift_solver_solve. The rows stay retracted on an error. */
QOS_API QOS_NODISCARD enum qos_status pshift_solver_retract(struct pshift_solver *solver, const uint32_t *bucket,
                                                            uint32_t count, const struct pshift_problem *problem,
                                                            const struct pshift_solution *solution);
QOS_API QOS_NODISCARD enum qos_status pshift_solver_resolve(struct pshift_solver *solver, const uint32_t *bucket,
                                                            uint32_t count, const struct pshift_problem *problem,
                                                            const struct pshift_options *options,
                                                            struct pshift_solution *solution);
/* Checks a solution in one pass and trusts nothing in it. It checks that no allocation exceeds its demand, every row's
 * sum, every number of *solution, cut = Phi (if solution->exact) and the shortfalls (if solution->shortfall_set). It
 * uses only scratch memory of the solver. QOS_ECORRUPT: something is wrong; other errors as pshift_solver_solve. */
QOS_API QOS_NODISCARD enum qos_status pshift_solver_verify(struct pshift_solver *solver,
                                                           const struct pshift_problem *problem,
                                                           const struct pshift_solution *solution);
/* Verifies, then spreads the weak excess of each overloaded server over its buckets, in proportion to their tokens
 * there. If servers serve tokens evenly, solution->shortfall[i] of bucket i's tokens are not consumed. All are 0 if the
 * reservations can be met. Rounding keeps the sum of each server's shares exact. QOS_EINVAL: no shortfall array. */
QOS_API QOS_NODISCARD enum qos_status pshift_solver_shortfall(struct pshift_solver *solver,
                                                              const struct pshift_problem *problem,
                                                              struct pshift_solution *solution);
/* True: without the servers of the cut the bucket cannot get its reservation. Only such buckets can be short in every
 * allocation.
 * bucket < problem->buckets. O(row). Any thread. */
QOS_API bool pshift_solution_binds(const struct pshift_solution *solution, uint32_t bucket,
                                   const struct pshift_problem *problem);
/* What the last solve did. Always QOS_OK. */
QOS_API enum qos_status pshift_solver_info(const struct pshift_solver *solver, struct pshift_solver_state *out);

/* The token scheduler (Algorithm 1). All calls but init are O(1). queue: 0..queues - 1, else QOS_ENOENT. */
QOS_API const char *pshift_scheduler_config_error(const struct pshift_scheduler_config *config);
QOS_API size_t pshift_scheduler_memsize(const struct pshift_scheduler_config *config);
/* No requests, no tokens, all weights 1. Errors as pshift_solver_init. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_init(struct pshift_scheduler *scheduler, void *mem,
                                                            size_t size_bytes,
                                                            const struct pshift_scheduler_config *config);
/* n requests join the queue. QOS_ERANGE: more than 2^64 - 1 would wait; nothing changes. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_arrive(struct pshift_scheduler *scheduler, uint32_t queue,
                                                              uint64_t n);
/* n requests leave the queue unserved. QOS_ERANGE: fewer wait. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_cancel(struct pshift_scheduler *scheduler, uint32_t queue,
                                                              uint64_t n);
/* Sets the weight, the number of requests served in one turn (Section V): 1..2^32 - 1 (0: 1). Used from the next turn
 * on. A turn with R-tokens is up to 16 times as long, by the R-tokens that the queue has: reservations need no
 * weights. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_change(struct pshift_scheduler *scheduler, uint32_t queue,
                                                              uint32_t weight);
/* Replaces the queue's tokens. A debt is deducted at once, first from the R-tokens, then from the L-tokens. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_set_tokens(struct pshift_scheduler *scheduler, uint32_t queue,
                                                                  uint64_t r_tokens, uint64_t l_tokens);
/* Steps 1 and 2 of Algorithm 1: serve the request at the head of pick->queue now. QOS_EAGAIN: no request waits, or no
 * queue with requests has tokens; try again after an arrival or a grant. Longest waits: THE CONTRACT. With an agent,
 * the first call after the end of its period voids the tokens: O(queues). now_ns: an elapsed clock, without steps. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_pick(struct pshift_scheduler *scheduler, uint64_t now_ns,
                                                            struct pshift_pick *pick);
/* Serves one waiting request of the queue now, even without tokens (flush, journal). It takes an R-token, else an
 * L-token, else adds to the debt. QOS_EAGAIN: no request waits; QOS_EDEBT: the debt bound is reached. */
QOS_API QOS_NODISCARD enum qos_status pshift_scheduler_force(struct pshift_scheduler *scheduler, uint64_t now_ns,
                                                             uint32_t queue);
/* now_ns if a request can be picked; when default tokens come; else QOS_NEVER: wait for an arrival or a grant (Step 3
 * without the delay). */
QOS_API uint64_t pshift_scheduler_next_ns(const struct pshift_scheduler *scheduler, uint64_t now_ns);
/* Counters of a queue; QOS_NONE: of all. granted: requests served; borrowed: how many of these used L-tokens; refused:
 * picks that found requests but no token for them (0 for one queue); waited: requests that arrived; debt. Any thread,
 * wait-free. */
QOS_API enum qos_status pshift_scheduler_stats(const struct pshift_scheduler *scheduler, uint32_t queue,
                                               struct qos_stats *out);
QOS_API enum qos_status pshift_scheduler_info(const struct pshift_scheduler *scheduler, uint32_t queue,
                                              struct pshift_scheduler_state *out);

/* Wire format: a qos_frame with little-endian head and entries. encode: QOS_EMEMORY: buf is too small. decode accepts
 * any bytes. QOS_EFULL: more than entries_max entries; QOS_ETRUNCATED, QOS_ECORRUPT, QOS_EVERSION as qos_frame_open. */
QOS_API QOS_NODISCARD enum qos_status pshift_report_encode(const struct pshift_message *in,
                                                           const struct pshift_report_entry *entry, void *buf,
                                                           size_t size_bytes, size_t *len_bytes);
QOS_API QOS_NODISCARD enum qos_status pshift_report_decode(const void *buf, size_t size_bytes,
                                                           struct pshift_message *out,
                                                           struct pshift_report_entry *entry, uint32_t entries_max);
QOS_API QOS_NODISCARD enum qos_status pshift_grant_encode(const struct pshift_message *in,
                                                          const struct pshift_grant_entry *entry, void *buf,
                                                          size_t size_bytes, size_t *len_bytes);
QOS_API QOS_NODISCARD enum qos_status pshift_grant_decode(const void *buf, size_t size_bytes,
                                                          struct pshift_message *out, struct pshift_grant_entry *entry,
                                                          uint32_t entries_max);

/* A server's side, in the thread of its scheduler. The agent assigns queues to buckets; bucket ids are arbitrary. */
QOS_API const char *pshift_agent_config_error(const struct pshift_agent_config *config);
QOS_API size_t pshift_agent_memsize(const struct pshift_agent_config *config);
/* Errors as pshift_solver_init. No bucket is open, no period has begun. */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_init(struct pshift_agent *agent, void *mem, size_t size_bytes,
                                                        const struct pshift_agent_config *config);
/* The bucket's queue. A bucket without one gets the lowest queue that was never used, else a closed one.
 * QOS_EFULL: all queues are in use. O(1) expected. */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_open(struct pshift_agent *agent, uint64_t bucket, uint32_t *queue);
/* Frees the bucket's queue when a period begins, its debt is paid, and the owner has acknowledged that it is idle, or
 * was told so in all of a period. QOS_ENOENT: not open; QOS_EBUSY: requests wait. */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_close(struct pshift_agent *agent, uint64_t bucket);
/* An interval ends, the one since the last call. Estimates each bucket's demand: its waiting requests, plus arrivals at
 * the interval's rate until the period ends (if none is in force: for a whole period). O(queues used in this or the
 * last interval, or not acknowledged). */
QOS_API void pshift_agent_measure(struct pshift_agent *agent, uint64_t now_ns);
/* The next message about the last interval: changes, and what was not acknowledged. Call it until QOS_EAGAIN: no more.
 * Every interval has at least one message. After a grant it answers with what that changed: send this at once, too. The
 * caller may replace message->capacity and the entries' demand, from now on until the period ends (pshift_agent_info
 * says when), by better estimates before encoding. Replace the capacity of an interval in which the server lacked
 * tokens, as before a period's first grant, by what it serves with tokens: without, it served less than it can, and
 * plans made from that overload the others. O(entries). */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_report(struct pshift_agent *agent, struct pshift_message *message,
                                                          struct pshift_report_entry *entry, uint32_t entries_max);
/* Installs what is new in a grant. A larger period voids all tokens first. The tokens end left_ns after the measurement
 * whose report the grant answers. QOS_ESTALE: of a smaller period or another owner's, for another start of this server,
 * its period is over, or nothing in it is new; QOS_ENOENT: for another server. On an error nothing is installed, but
 * the period may have begun. Buckets that are not open are skipped. O(entries), or O(queues) if a period begins. */
QOS_API QOS_NODISCARD enum qos_status pshift_agent_install(struct pshift_agent *agent, uint64_t now_ns,
                                                           const struct pshift_message *message,
                                                           const struct pshift_grant_entry *entry);
QOS_API enum qos_status pshift_agent_info(const struct pshift_agent *agent, struct pshift_agent_state *out);

/* The owner of periods. now_ns: an elapsed clock, without steps. Single owner; every call is O(1). */
QOS_API const char *pshift_owner_config_error(const struct pshift_owner_config *config);
/* QOS_EINVAL, QOS_ERANGE: the configuration is bad. */
QOS_API QOS_NODISCARD enum qos_status pshift_owner_init(struct pshift_owner *owner,
                                                        const struct pshift_owner_config *config);
/* The key, as a read that began after the last call found it: by a read, a watch, or the reply to a swap. A key that
 * does not exist: 0, 0. */
QOS_API void pshift_owner_saw(struct pshift_owner *owner, uint64_t now_ns, uint64_t number, struct qos_u128 nonce);
/* QOS_OK: swap the key now from (the number seen last) to *number and this nonce, by compare-and-swap, then call
 * pshift_owner_saw with what the key holds. QOS_EAGAIN: read first, or not before pshift_owner_next_ns; QOS_EBUSY: the
 * outcome of the last swap is not known: read the key; QOS_ERANGE: there is no larger number. */
QOS_API QOS_NODISCARD enum qos_status pshift_owner_ask(struct pshift_owner *owner, uint64_t now_ns, uint64_t *number);
/* When the next ask is due; now_ns if the key must be read. */
QOS_API uint64_t pshift_owner_next_ns(const struct pshift_owner *owner, uint64_t now_ns);
/* The period that this process owns now, and when it began: for pshift_controller_begin. QOS_EAGAIN: none. */
QOS_API QOS_NODISCARD enum qos_status pshift_owner_holds(const struct pshift_owner *owner, uint64_t now_ns,
                                                         uint64_t *period, uint64_t *start_ns);

/* The controller's side. */
QOS_API const char *pshift_controller_config_error(const struct pshift_controller_config *config);
QOS_API size_t pshift_controller_memsize(const struct pshift_controller_config *config);
/* Errors as pshift_solver_init. No contracts, no period has begun. */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_init(struct pshift_controller *controller, void *mem,
                                                             size_t size_bytes,
                                                             const struct pshift_controller_config *config);
/* Sets a bucket's contract per period, from the next plan on. reservation 0: none; limit 0 or QOS_UNLIMITED: none,
 * QOS_NOTHING: the bucket is never served. A limit below what was already issued in this period holds from the next
 * period on. QOS_ERANGE: reservation above PSHIFT_COUNT_MAX or above the limit; QOS_EFULL: no room for another
 * bucket. */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_change(struct pshift_controller *controller, uint64_t bucket,
                                                               uint64_t reservation, uint64_t limit);
/* A period begins that this controller owns: no requests served, no tokens held. start_ns: before the swap that made it
 * the owner was sent. Records of pairs that were idle in all of the last period, that no report of it named, or whose
 * server is silent, expire. QOS_ESTALE: not a later period. O(records). */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_begin(struct pshift_controller *controller, uint64_t start_ns,
                                                              uint64_t period);
/* Merges what is new in a report. now_ns: of the owner's clock, read after the report came; its grants say what the
 * period had left then. It trusts the server: check first that the server may name these buckets. Entries that find no
 * room are skipped (info.refused). QOS_EAGAIN: from a start of the server that must first answer a grant;
 * QOS_ESTALE: of a larger period or another owner's, or a duplicate; QOS_ENOENT: no such server; QOS_ECORRUPT: a
 * counter fell without a restart. On an error nothing is merged. */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_report(struct pshift_controller *controller, uint64_t now_ns,
                                                               const struct pshift_message *message,
                                                               const struct pshift_report_entry *entry);
/* A round: plans R- and L-tokens of all buckets from the reports. A silent server gets no new tokens. What it may still
 * spend counts against the limits until the period ends. Its buckets' reservations move to the other servers where they
 * have demand. If info.withheld is not 0, tokens under a limit move from server to server, and if info.awaited is not
 * 0, servers are new: plan again as soon as they have answered these grants. QOS_EAGAIN: no period has begun. options:
 * as pshift_solver_solve. */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_plan(struct pshift_controller *controller,
                                                             const struct pshift_options *options);
/* The next message to a server: what the last plan changed for it, what it has not confirmed, and acknowledgements.
 * Call it until QOS_EAGAIN: no more, or the period is over. After begin and plan there is always at least one message
 * to a server that has reported. QOS_ENOENT: no such server. */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_grant(struct pshift_controller *controller, uint64_t now_ns,
                                                              uint32_t server, struct pshift_message *message,
                                                              struct pshift_grant_entry *entry, uint32_t entries_max);
/* Problem and solution of the R-tokens of the last plan, verified and with shortfalls. They show which buckets are
 * short, and because of which servers (the intrinsic error of Section IV-B). The arrays are the controller's, valid
 * until its next call. QOS_EAGAIN: no plan in this period. O(records). */
QOS_API QOS_NODISCARD enum qos_status pshift_controller_certificate(struct pshift_controller *controller,
                                                                    struct pshift_problem *problem,
                                                                    struct pshift_solution *solution);
QOS_API enum qos_status pshift_controller_info(const struct pshift_controller *controller,
                                               struct pshift_controller_state *out);
/* QOS_ENOENT: neither a contract nor a report in the last two periods. O(servers). */
QOS_API enum qos_status pshift_controller_bucket_info(const struct pshift_controller *controller, uint64_t bucket,
                                                      struct pshift_bucket_state *out);

/* ==== chapter: solver ===========================================================================================
 *
 *   Given: servers with capacities C_j, buckets with reservations R_i, demands d_i^j. An allocation is prudent if
 *   a_i^j <= d_i^j; the row of bucket i sums to A_i = min(R_i, D_i). Phi, the tokens that are consumed, is the sum over
 *   the servers of min(C_j, tokens there). The solver maximises Phi. Example 2 of the paper (Table I):
 *
 *                      demand          proportional     after one direct transfer of 25 Red tokens
 *       Red, R = 100   150   50        75   25          50   50
 *       Blue, R = 100   50   50        50   50          50   50
 *       capacity 100 each              Phi = 175        Phi = 200: both reservations are met
 *
 *   1. Initial allocation (Algorithm 3) in integers: floor(A_i d_i^j / D_i). The tokens that rounding leaves go one by
 *      one to the largest remainders, the earlier entry first. No entry exceeds its demand. Every row sums to A_i.
 *   2. Direct transfers: a sweep over the rows moves tokens, inside each row, from overloaded to underloaded servers.
 *   3. Paths through brokers, also by sweeps, in turns: the smaller of all excess and all spare capacity is spread over
 *      the other servers. If the excess is at most half of the spare capacity, overloaded servers push their tokens to
 *      any other. If not, underloaded servers pull tokens from any other. Direct transfers then fill what this opens:
 *      each token now has many more rows in which it can move on. A server that can move no more is stuck.
 *      After a turn that moves little the larger side spreads in the same way, over some of the rows and without a
 *      limit: then more servers have excess, or spare capacity, for the last tokens to meet.
 *   4. Progressive shifting (Algorithm 5) of the remaining excess: servers are labelled with the number of shifts to an
 *      underloaded server, until every overloaded one has a label. Then each underloaded server collects tokens, depth
 *      first, one label up per step. A server collects from all servers above it before it passes tokens on, so paths
 *      that share a step take it once. A server that cannot supply all that is requested is not tried again. Each round
 *      increases the distance of every overloaded server: at most |S| - 1 rounds.
 *   5. The allocation is optimal when no path leads from an overloaded to an underloaded server. The cut X then proves
 *      it: no row leads out of X, no server of X has spare capacity, and no other server is overloaded. Stuck servers
 *      divide the servers in this way: X has those that pushed, or all but those that pulled. Then shifts inside X and
 *      shifts outside X suffice. If not, X is the set of servers without a label.
 *
 *   Where we differ from the paper (Section III-B). It keeps a token movement map of |S|^2 |B| entries. We never build
 *   the map: a search computes min(a_i^j, d_i^k - a_i^k) from row i when it needs it. The index from servers to rows
 *   first covers a window of the rows only. Cost: O(entries) for steps 1 to 3, O(entries + steps) per round of step 4.
 *   We do not rely on the paper's proof [23]: the cut proves optimality on every input.
 *
 *   Invariants:
 *   1. Every row sums to A_i and is prudent, from step 1 on.
 *   2. A shift changes the balance of its two ends only. No server passes from overloaded to underloaded or back.
 *   3. For any set X of servers, no allocation serves more than cut(X) = (capacity of X) + sum over i of min(A_i,
 *      demand of i outside X). The solver returns an X with cut(X) = Phi.
 *   4. Warm start: cut(X) = Phi means that no row leads out of X: a bucket with tokens in X has no spare demand
 *      outside. Shifts inside X, and shifts outside X, preserve this. A changed row therefore first moves what it can
 *      out of X. X is a certificate again if no server of X has spare capacity and no server outside is overloaded.
 *      Checking this is O(servers). Steps 3 and 4 restore it inside X, then outside, or change X.
 *      At the end cut(X) is compared with Phi: the solver keeps the sum of min(A_i, demand outside X), so this is
 *      O(servers + changed rows), or one pass over the rows if X has changed.
 *
 *   Map (without pshift_priv_)
 *   step 1          start: start_rows: start_row (any length), row_8
 *   step 2          direct: sweep: list_rows, transfer_row
 *   step 3          settle: turn: spread, widen, fill
 *   steps 4, 5      progress: build_index, find_near; label, collect: ascend
 *   the proof       wrong, account, proved, conclude
 *   the calls       shift_all (steps 2 to 5): pshift_solver_solve, _retract, _resolve; _verify, _shortfall, _info
 *
 *   References: Peng, Liu, Varman: Scalable QoS for Distributed Storage Clusters using Dynamic Token Allocation, MSST
 *   2019. Dinitz: blocking flows on level graphs, 1970. Ford, Fulkerson: max-flow min-cut, 1956.
 */

struct pshift_priv_node {
    uint32_t label;  /* number of shifts to an underloaded server, or QOS_NONE */
    uint32_t cursor; /* position of the depth-first pass in index[] */
    uint32_t nears;  /* number of servers that share a row with this one; PSHIFT_PRIV_MANY: more than fit into near[];
                      * with PSHIFT_PRIV_RUN: near[] are consecutive, but for this one itself */
};

struct pshift_priv_index {
    uint32_t entry, bucket;
};

struct pshift_priv_row {
    uint32_t label;  /* lowest label of a server that can take tokens in this row */
    uint32_t cursor; /* position of the depth-first pass */
};

/* A server on the depth-first path, and its step: tokens move from entry `give` to entry `take` of the same row. */
struct pshift_priv_step {
    uint32_t server, take, give;
    uint64_t want, got; /* tokens requested from the server; collected so far */
};

/* Sums over a part of the rows. */
struct pshift_priv_part {
    struct qos_u128 tokens, unclaimed;
    uint64_t moved;
    enum qos_status status;
    bool leads; /* a row leads out of X */
};

/* Solver state: its memory is the caller's; the fields are private. */
struct pshift_solver {
    struct pshift_solver_config config;
    int64_t *balance;                  /* [servers] positive: excess; negative: spare capacity */
    uint64_t *excess_more;             /* [servers] excess beyond balance, in pieces of 2^62 */
    struct qos_u128 *load;             /* [servers] of the last solution */
    struct qos_u128 *scratch;          /* [servers] loads in the verifier */
    struct qos_u128 *remainder;        /* [servers] division remainders of the shortfalls */
    struct pshift_priv_node *node;     /* [servers] */
    uint32_t *column;                  /* [servers + 1] first index entry of each server */
    uint32_t *queue;                   /* [servers] */
    uint32_t *near;                    /* [servers * PSHIFT_PRIV_NEAR] the servers that share a row with each */
    uint8_t *mark;                     /* [servers] PSHIFT_PRIV_CUT, _MOVER, _STUCK */
    struct pshift_priv_step *path;     /* [servers] */
    uint64_t *sums;                    /* [shards * servers] */
    int64_t *quota;                    /* [shards * servers] each part's share of the balances */
    struct pshift_priv_row *rows;      /* [buckets] */
    struct pshift_priv_index *index;   /* [entries] */
    uint64_t *key;                     /* [entries] remainders; open rows; [buckets] ends of the indexed rows */
    uint64_t *givers, *takers;         /* [entries] bit sets: the window's entries that can give; that can take */
    uint64_t *fresh;                   /* [servers] bit set: the search may still label them */
    uint64_t *seen;                    /* [buckets] bit set of the rows that the search has reached */
    struct qos_u128 tokens, unclaimed; /* of the last solution */
    struct qos_u128 cut_demand;        /* of the last solution's X, without the rows that are retracted */
    struct pshift_solver_state info;
    struct pshift_priv_part *part;      /* [shards] */
    uint32_t next_row;                  /* where the next sweep or window begins; below the number of rows, or 0 */
    uint32_t first_row;                 /* of the window that is indexed */
    uint32_t open_rows;                 /* in key[]: rows where movers want more */
    uint32_t last_label;                /* of the search: label of the overloaded servers that it found */
    bool sinks;                         /* the search found an underloaded server to start from */
    bool moved;                         /* X is no longer that of the last solution */
    uint32_t retracted;                 /* number of rows that are retracted */
    uint32_t servers, buckets, entries; /* of the last solution */
    const uint64_t *alloc;              /* of the last solution; NULL: there is none, or a refused solve overwrote it */
};

#ifndef QOS_DECLARE_ONLY

#define PSHIFT_PRIV_NEAR 48u
#define PSHIFT_PRIV_MANY (PSHIFT_PRIV_NEAR + 1)
#define PSHIFT_PRIV_RUN 64u  /* bit of nears */
#define PSHIFT_PRIV_CUT 1u   /* bit of mark: in X of the last solution */
#define PSHIFT_PRIV_MOVER 4u /* bit of mark: pulls or pushes in this turn */
#define PSHIFT_PRIV_STUCK 8u /* bit of mark: no row offers it anything any more */
#define PSHIFT_PRIV_HALF (UINT64_C(1) << 63)
#define PSHIFT_PRIV_PIECE (INT64_C(1) << 62) /* of an excess that does not fit in a balance */
#define PSHIFT_PRIV_BLOCK 1024u              /* rows of a sweep that are looked at together; at most 65536 */
#define PSHIFT_PRIV_OFFER (INT64_C(1) << 60) /* in a pull or push: how much the partners move, or more */

QOS_PRIV struct qos_u128 pshift_priv_u128(uint64_t v)
{
    struct qos_u128 r;
    r.hi = 0;
    r.lo = v;
    return r;
}

QOS_PRIV void pshift_priv_add(struct qos_u128 *sum, uint64_t v)
{
    *sum = qos_add_wide(*sum, pshift_priv_u128(v));
}

QOS_PRIV bool pshift_priv_same(struct qos_u128 a, struct qos_u128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* Number of parts of the rows. It depends on the problem only, never on the threads. */
QOS_PRIV uint32_t pshift_priv_shards(uint32_t entries)
{
    const uint32_t few = PSHIFT_SHARDS < 4 ? PSHIFT_SHARDS : 4;
    return entries < PSHIFT_SHARD_ENTRIES ? 1 : entries / 8 < PSHIFT_SHARD_ENTRIES ? few : PSHIFT_SHARDS;
}
/* Memory layout, used by memsize and init. */
/* lender: a solver of the same size whose scratch of a search this one uses, as they never solve at once; or NULL. */
QOS_PRIV void pshift_priv_solver_layout(struct qos_layout *layout, struct pshift_solver *solver,
                                        const struct pshift_solver_config *config, const struct pshift_solver *lender)
{
    const size_t servers = config->servers, buckets = config->buckets, entries = config->entries;
    const size_t shards = pshift_priv_shards(config->entries);
    solver->balance = (int64_t *)qos_layout_part(layout, servers, sizeof(int64_t), QOS_CACHE_LINE);
    solver->excess_more = (uint64_t *)qos_layout_part(layout, servers, sizeof(uint64_t), 8);
    solver->load = (struct qos_u128 *)qos_layout_part(layout, servers, sizeof(struct qos_u128), 8);
    solver->scratch = (struct qos_u128 *)qos_layout_part(layout, servers, sizeof(struct qos_u128), 8);
    solver->remainder = (struct qos_u128 *)qos_layout_part(layout, servers, sizeof(struct qos_u128), 8);
    solver->node = (struct pshift_priv_node *)qos_layout_part(layout, servers, sizeof(struct pshift_priv_node), 8);
    solver->column = (uint32_t *)qos_layout_part(layout, servers + 1, sizeof(uint32_t), 8);
    solver->queue = (uint32_t *)qos_layout_part(layout, servers, sizeof(uint32_t), 8);
    solver->near = (uint32_t *)qos_layout_part(layout, servers, PSHIFT_PRIV_NEAR * sizeof(uint32_t), 8);
    solver->mark = (uint8_t *)qos_layout_part(layout, servers, 1, 8);
    solver->path = (struct pshift_priv_step *)qos_layout_part(layout, servers + 1, sizeof(struct pshift_priv_step), 8);
    solver->part = (struct pshift_priv_part *)qos_layout_part(layout, shards, sizeof(struct pshift_priv_part), 8);
    solver->sums = (uint64_t *)qos_layout_part(layout, servers, shards * sizeof(uint64_t), QOS_CACHE_LINE);
    solver->quota = (int64_t *)qos_layout_part(layout, servers, shards * sizeof(int64_t), QOS_CACHE_LINE);
    solver->rows = (struct pshift_priv_row *)qos_layout_part(layout, buckets, sizeof(struct pshift_priv_row), 8);
    solver->seen = (uint64_t *)qos_layout_part(layout, buckets / 64 + 1, sizeof(uint64_t), 8);
    solver->fresh = (uint64_t *)qos_layout_part(layout, servers / 64 + 2, sizeof(uint64_t), 8);
    if (lender) {
        solver->index = lender->index;
        solver->key = lender->key;
        solver->givers = lender->givers;
        solver->takers = lender->takers;
        return;
    }
    solver->index = (struct pshift_priv_index *)qos_layout_part(layout, entries, sizeof(struct pshift_priv_index), 8);
    solver->key = (uint64_t *)qos_layout_part(layout, entries > buckets ? entries : buckets, sizeof(uint64_t), 8);
    solver->givers = (uint64_t *)qos_layout_part(layout, entries / 64 + 2, sizeof(uint64_t), 8);
    solver->takers = (uint64_t *)qos_layout_part(layout, entries / 64 + 2, sizeof(uint64_t), 8);
}

QOS_API const char *pshift_solver_config_error(const struct pshift_solver_config *config)
{
    if (!config)
        return "config: is NULL; give a struct pshift_solver_config";
    if (config->servers > PSHIFT_ENTRIES_MAX)
        return "servers: give at most PSHIFT_ENTRIES_MAX";
    if (config->buckets > PSHIFT_ENTRIES_MAX)
        return "buckets: give at most PSHIFT_ENTRIES_MAX";
    if (config->entries > PSHIFT_ENTRIES_MAX)
        return "entries: give at most PSHIFT_ENTRIES_MAX";
    return NULL;
}

/* Status of a configuration: QOS_EINVAL for NULL, QOS_ERANGE for a bad field. */
QOS_PRIV enum qos_status pshift_priv_config_status(const void *config, const char *error)
{
    return !error ? QOS_OK : config ? QOS_ERANGE : QOS_EINVAL;
}

QOS_API size_t pshift_solver_memsize(const struct pshift_solver_config *config)
{
    struct pshift_solver scratch;
    struct qos_layout layout;
    if (pshift_solver_config_error(config))
        return 0;
    qos_layout_begin(&layout, NULL);
    pshift_priv_solver_layout(&layout, &scratch, config, NULL);
    return qos_layout_size_bytes(&layout);
}

QOS_PRIV void pshift_priv_solver_open(struct pshift_solver *solver, const struct pshift_solver_config *config)
{
    const struct pshift_solver_state no_info = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, 0, 0, 0, false};
    uint32_t i;
    solver->config = *config;
    solver->tokens = solver->unclaimed = pshift_priv_u128(0);
    solver->info = no_info;
    solver->next_row = 0;
    solver->retracted = solver->servers = solver->buckets = solver->entries = 0;
    solver->alloc = NULL;
    for (i = 0; i < config->buckets; i++)
        solver->rows[i].label = 0;
}

QOS_API enum qos_status pshift_solver_init(struct pshift_solver *solver, void *mem, size_t size_bytes,
                                           const struct pshift_solver_config *config)
{
    struct pshift_solver scratch;
    struct qos_layout layout;
    enum qos_status status = pshift_priv_config_status(config, pshift_solver_config_error(config));
    QOS_ASSERT(solver);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, NULL);
    pshift_priv_solver_layout(&layout, &scratch, config, NULL);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, mem);
    pshift_priv_solver_layout(&layout, solver, config, NULL);
    pshift_priv_solver_open(solver, config);
    return QOS_OK;
}

/* One call of solve, shared by its parallel tasks. */
struct pshift_priv_job {
    struct pshift_solver *solver;
    const struct pshift_problem *p;
    uint64_t *alloc;
    const uint32_t *bucket; /* warm start: the changed rows */
    uint32_t rows, shards;
    bool warm, expel; /* expel: the changed rows must not lead out of X */
};

/* The initial allocation. */

#define PSHIFT_PRIV_WIDE 16u /* entries of a short row, at most */
#define PSHIFT_PRIV_LONG 32u /* entries of a row that are looked at together, at most */
#define PSHIFT_PRIV_INLINE static inline __attribute__((always_inline))

/* Gives one more token to each of the `left` largest keys; ties: the earlier first. More than `left` keys are not 0, as
 * the remainders add up to left * total. Finds the smallest of these keys bit by bit. */
QOS_PRIV void pshift_priv_give_largest(uint64_t *a, const uint64_t *key, uint32_t n, uint64_t left)
{
    uint64_t differ = 0, least, bit, count, i;
    for (i = 1; i < n; i++)
        differ |= key[i] ^ key[0];
    least = key[0] & ~differ;
    for (bit = PSHIFT_PRIV_HALF; bit != 0; bit >>= 1) {
        if ((differ & bit) == 0)
            continue;
        for (i = 0, count = 0; i < n; i++)
            count += key[i] >= (least | bit) ? 1u : 0u;
        least |= count >= left ? bit : 0;
        if (count == left) {
            for (i = 0; i < n; i++)
                a[i] += key[i] >= least ? 1u : 0u;
            return;
        }
    }
    for (i = 0; i < n; i++)
        left -= key[i] > least ? 1u : 0u;
    for (i = 0; i < n; i++) {
        const bool tie = key[i] == least && left > 0;
        left -= tie ? 1u : 0u;
        a[i] += tie || key[i] > least ? 1u : 0u;
    }
    QOS_ASSERT(left == 0);
}

/* floor(n / d) and the remainder, for 0 < d < 2^96 and quotients below 2^64. Long division, bit by bit. */
QOS_PRIV uint64_t pshift_priv_divide(struct qos_u128 n, struct qos_u128 d, struct qos_u128 *remainder)
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
            r = qos_sub_wide(r, d);
        q = (q & (UINT64_MAX >> 1)) << 1 | (fits ? 1u : 0u);
    }
    QOS_ASSERT(qos_cmp_wide(r, d) < 0);
    *remainder = r;
    return q;
}

/* Any row with want < total. Keys are the remainders. If total >= 2^63, a key is the remainder's upper 63 bits, plus
 * one if the remainder is not 0: an entry with remainder 0 has its exact share and must get no more. */
QOS_PRIV void pshift_priv_row_any(uint64_t *a, uint64_t *key, const uint64_t *d, uint32_t n, uint64_t want,
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
    QOS_ASSERT(left < n); /* a part of a token for each */
    if (left)
        pshift_priv_give_largest(a, key, n, left);
}

#ifndef PSHIFT_PLAIN
/* floor(want 2^64 / total), or up to 50 less. want < total < 2^59. */
QOS_PRIV uint64_t pshift_priv_factor(uint64_t want, uint64_t total)
{
    const unsigned shift = qos_clz64(total | 1);                                            /* total is not 0 */
    const uint64_t v = total << shift, w = want << shift, x = UINT64_MAX / ((v >> 32) + 1); /* 2^96 / v, up to 6 less */
    const uint64_t f = (w >> 32) * x;                                                       /* up to 2^35 too small */
    struct qos_u128 remainder = pshift_priv_u128(0);
    remainder.hi = w;
    remainder = qos_sub_wide(remainder, qos_mul_wide(f, v));
    remainder = qos_mul_wide(remainder.hi << 29 | remainder.lo >> 35, x);
    return f + (remainder.hi << 3 | remainder.lo >> 61);
}

/* The same for 8 demands below 2^55, want < total. A key holds remainder and position, so the keys are distinct. A
 * quotient may be one short, by a part below 50 2^55 / 2^64 < 1/8. Its remainder is then total or more, so it gets its
 * token first, and no other one: of n remainders that add up to k total, the k-th largest is more than total / n. */
PSHIFT_PRIV_INLINE void pshift_priv_row_8(uint64_t *a, const uint64_t *d, uint64_t want, uint64_t total)
{
    typedef int64_t pshift_priv_row_signed __attribute__((vector_size(64)));
    typedef uint64_t pshift_priv_row_lanes __attribute__((vector_size(64)));
    const pshift_priv_row_lanes places = {7, 6, 5, 4, 3, 2, 1, 0};
    const uint64_t f = pshift_priv_factor(want, total);
    pshift_priv_row_lanes q = {qos_mul_wide(d[0], f).hi, qos_mul_wide(d[1], f).hi, qos_mul_wide(d[2], f).hi,
                               qos_mul_wide(d[3], f).hi, qos_mul_wide(d[4], f).hi, qos_mul_wide(d[5], f).hi,
                               qos_mul_wide(d[6], f).hi, qos_mul_wide(d[7], f).hi};
    pshift_priv_row_lanes remainder;
    pshift_priv_row_signed key, rank = {0};
    int64_t left = (int64_t)want;
    uint32_t k;
    __builtin_memcpy(&remainder, d, sizeof remainder);
    remainder = remainder * want - q * total;
    key = (pshift_priv_row_signed)(remainder << 3 | places);
    for (k = 0; k < 8; k++) { /* rank: number of larger keys */
        left -= (int64_t)q[k];
        rank -= key < key[k];
    }
    QOS_ASSERT(left >= 0 && left <= 8);
    q -= (pshift_priv_row_lanes)(rank < left);
    __builtin_memcpy(a, &q, sizeof q);
}
#endif

/* Sum of n demands, and their bits. */
PSHIFT_PRIV_INLINE struct qos_u128 pshift_priv_total(const uint64_t *d, uint32_t n, uint64_t *bits)
{
    struct qos_u128 total = {0, 0};
    uint32_t k;
    for (k = 0; k < n; k++) {
        *bits |= d[k];
        pshift_priv_add(&total, d[k]);
    }
    return total;
}

/* Spreads row i's A_i = min(R_i, D_i) tokens in proportion to its demands. Any length, any demands. */
QOS_PRIV enum qos_status pshift_priv_start_row(const struct pshift_priv_job *job, uint32_t i,
                                               struct pshift_priv_part *part)
{
    const struct pshift_problem *p = job->p;
    const uint32_t n = p->row[i + 1] - p->row[i];
    const uint64_t *d = p->demand + p->row[i];
    uint64_t bits = 0, want = p->reservation[i], *a = job->alloc + p->row[i];
    struct qos_u128 total = n == 8 ? pshift_priv_total(d, 8, &bits) : pshift_priv_total(d, n, &bits);
    uint32_t k;
    if ((bits | want) > PSHIFT_COUNT_MAX)
        return QOS_ERANGE;
    if (total.hi == 0 && total.lo <= want) {
        pshift_priv_add(&part->unclaimed, want - total.lo);
        want = total.lo;
        for (k = 0; k < n; k++)
            a[k] = d[k];
#ifndef PSHIFT_PLAIN
    } else if (n == 8 && bits >> 55 == 0) {
        pshift_priv_row_8(a, d, want, total.lo);
    } else if (n < 8 && bits >> 55 == 0) {
        uint64_t padded[8] = {0}, share[8];
        __builtin_memcpy(padded, d, n * sizeof *d);
        pshift_priv_row_8(share, padded, want, total.lo);
        __builtin_memcpy(a, share, n * sizeof *d);
#endif
    } else {
        pshift_priv_row_any(a, job->solver->key + p->row[i], d, n, want, total);
    }
    pshift_priv_add(&part->tokens, want);
    return QOS_OK;
}

/* The t-th row of the job. */
QOS_PRIV uint32_t pshift_priv_job_row(const struct pshift_priv_job *job, uint32_t t)
{
    return job->warm ? job->bucket[t] : t;
}

#ifndef PSHIFT_PLAIN
/* A batch: rows of up to PSHIFT_PRIV_WIDE entries, side by side. Lane r of share[k] belongs to entry k of row r. The
 * types work on any target, with or without vector registers. */
typedef uint32_t pshift_priv_lanes __attribute__((vector_size(4 * PSHIFT_LANES)));
typedef int32_t pshift_priv_signed_lanes __attribute__((vector_size(4 * PSHIFT_LANES)));
struct pshift_priv_batch {
    pshift_priv_lanes share[PSHIFT_PRIV_WIDE]; /* first the demands, all below 2^22; 0 beyond a row's end */
    uint32_t want[PSHIFT_LANES], total[PSHIFT_LANES], factor[PSHIFT_LANES];
};

/* As pshift_priv_row_any. want <= total < 2^26, factor = floor(want 2^32 / total), at most 2^32 - 1. A key holds
 * remainder and position, so the keys of a row are distinct. A quotient may be one short, as in pshift_priv_row_8. */
PSHIFT_PRIV_INLINE void pshift_priv_share(struct pshift_priv_batch *b, uint32_t width)
{
    pshift_priv_signed_lanes key[PSHIFT_PRIV_WIDE], rank, left;
    pshift_priv_lanes want, total, q, remainder;
    uint32_t demand[PSHIFT_LANES], product[PSHIFT_LANES], k, l, r;
    __builtin_memcpy(&want, b->want, sizeof want);
    __builtin_memcpy(&total, b->total, sizeof total);
    left = (pshift_priv_signed_lanes)want;
    for (k = 0; k < width; k++) {
        __builtin_memcpy(demand, &b->share[k], sizeof demand);
        for (r = 0; r < PSHIFT_LANES; r++)
            product[r] = (uint32_t)((uint64_t)demand[r] * b->factor[r] >> 32);
        __builtin_memcpy(&q, product, sizeof q);
        remainder = b->share[k] * want - q * total;
        b->share[k] = q;
        left -= (pshift_priv_signed_lanes)q;
        key[k] = (pshift_priv_signed_lanes)(remainder << 4 | (PSHIFT_PRIV_WIDE - 1 - k));
    }
    for (k = 0; k < width; k++) {
        rank = key[k] < key[0]; /* minus the number of larger keys */
        for (l = 1; l < width; l++)
            rank += key[k] < key[l];
        b->share[k] -= (pshift_priv_lanes)(-rank < left);
    }
}

/* Writes the shares of `rows` rows of up to `width` entries, the job's t-th and the next. Returns how many it did: the
 * numbers of the others are too large. length: of all rows; 0: not all have the same. */
PSHIFT_PRIV_INLINE uint32_t pshift_priv_start_rows(const struct pshift_priv_job *job, uint32_t t, uint32_t rows,
                                                   uint32_t width, uint32_t length, struct pshift_priv_part *part)
{
    struct pshift_priv_batch b;
    const struct pshift_problem *p = job->p;
    uint64_t tokens = 0, unclaimed = 0; /* below 16 2^59 */
    uint32_t r, k;
    for (r = 0; r < rows; r++) {
        const uint32_t i = pshift_priv_job_row(job, t + r), n = length ? length : p->row[i + 1] - p->row[i];
        const uint64_t *d = p->demand + p->row[i], most = p->reservation[i];
        uint64_t bits = 0, total = 0, want;
        for (k = 0; k < n; k++) {
            bits |= d[k];
            total = qos_wrap_add(total, d[k]);
            b.share[k][r] = (uint32_t)d[k];
        }
        if (bits >> 22 != 0 || most >> 59 != 0)
            break;
        for (k = n; k < width; k++)
            b.share[k][r] = 0;
        want = qos_min(most, total);
        tokens += want;
        unclaimed += most - want;
        total += total == 0 ? 1u : 0u;
        b.want[r] = (uint32_t)want;
        b.total[r] = (uint32_t)total;
        b.factor[r] = want == total ? UINT32_MAX : (uint32_t)((want << 32) / total);
    }
    if (r == 0)
        return 0;
    for (rows = r; r < PSHIFT_LANES; r++) {
        b.want[r] = b.factor[r] = 0;
        b.total[r] = 1;
        for (k = 0; k < width; k++)
            b.share[k][r] = 0;
    }
    pshift_priv_share(&b, width);
    pshift_priv_add(&part->tokens, tokens);
    pshift_priv_add(&part->unclaimed, unclaimed);
    for (r = 0; r < rows; r++) {
        const uint32_t i = pshift_priv_job_row(job, t + r), n = length ? length : p->row[i + 1] - p->row[i];
        QOS_ASSERT(n <= width); /* of all rows of a batch */
        for (k = 0; k < n; k++)
            job->alloc[p->row[i] + k] = b.share[k][r];
    }
    return rows;
}

/* The job's next rows, from its t-th on, as many as a batch holds. Returns their number; 0: the first row is long, or
 * its numbers are large. */
QOS_PRIV uint32_t pshift_priv_start_batch(const struct pshift_priv_job *job, uint32_t t, uint32_t end,
                                          struct pshift_priv_part *part)
{
    const uint32_t *row = job->p->row;
    uint32_t width = 0, rows = end - t < PSHIFT_LANES ? end - t : PSHIFT_LANES, r, i, n, other = 0;
    if (!job->warm && rows == PSHIFT_LANES) {
        for (r = 0; r < PSHIFT_LANES; r++)
            other |= (row[t + r + 1] - row[t + r]) ^ 8;
        if (other == 0)
            return pshift_priv_start_rows(job, t, PSHIFT_LANES, 8, 8, part);
    }
    for (r = 0; r < rows; r++) {
        i = pshift_priv_job_row(job, t + r);
        n = row[i + 1] - row[i];
        if (n > PSHIFT_PRIV_WIDE)
            rows = r;
        else
            width = width < n ? n : width;
    }
    return pshift_priv_start_rows(job, t, rows, width, 0, part);
}
#endif

/* First of a part's rows. */
QOS_PRIV uint32_t pshift_priv_part_row(const struct pshift_priv_job *job, uint32_t part)
{
    return (uint32_t)((uint64_t)job->rows * part / job->shards);
}

QOS_PRIV bool pshift_priv_expel(const struct pshift_priv_job *job, uint32_t i);

/* Adds the tokens of rows [i, end) to the servers' sums. False: a server number is too large. */
QOS_PRIV bool pshift_priv_sum(const struct pshift_priv_job *job, uint64_t *sums, uint32_t i, uint32_t end)
{
    const uint32_t *server = job->p->server, first = job->p->row[i], last = job->p->row[end];
    uint32_t e, unknown = 0;
    for (e = first; e < last; e++)
        unknown |= server[e] >= job->p->servers ? 1u : 0u;
    for (e = first; e < last && !unknown; e++)
        sums[server[e]] = qos_wrap_add(sums[server[e]], job->alloc[e]);
    return !unknown;
}

QOS_PRIV void pshift_priv_start_task(void *arg, uint32_t shard)
{
    const struct pshift_priv_job *job = (const struct pshift_priv_job *)arg;
    const struct pshift_problem *p = job->p;
    struct pshift_priv_part part = {{0, 0}, {0, 0}, 0, QOS_OK, false};
    uint64_t *sums = job->solver->sums + (size_t)shard * p->servers;
    uint32_t t = pshift_priv_part_row(job, shard), end = pshift_priv_part_row(job, shard + 1), j, k, n;
    for (j = 0; j < p->servers; j++)
        sums[j] = 0;
    for (; t < end && part.status == QOS_OK; t += n) {
        bool known = true;
#ifdef PSHIFT_PLAIN
        n = 0;
#else
        n = pshift_priv_start_batch(job, t, end, &part);
#endif
        if (n == 0)
            for (; n < PSHIFT_PRIV_WIDE && n < end - t && part.status == QOS_OK; n++)
                part.status = pshift_priv_start_row(job, pshift_priv_job_row(job, t + n), &part);
        if (part.status != QOS_OK)
            break;
        if (!job->warm)
            known = pshift_priv_sum(job, sums, t, t + n);
        for (k = 0; job->warm && k < n; k++) {
            const uint32_t i = job->bucket[t + k];
            part.leads |= job->expel && pshift_priv_expel(job, i);
            (void)pshift_priv_sum(job, sums, i, i + 1);
        }
        part.status = known ? QOS_OK : QOS_EINVAL;
    }
    job->solver->part[shard] = part;
}

QOS_PRIV void pshift_priv_run(const struct pshift_options *opt, struct pshift_priv_job *job, pshift_task task)
{
    uint32_t shard;
    if (opt && opt->parallel_for && job->shards > 1) {
        opt->parallel_for(opt->parallel_ctx, job->shards, task, job);
        return;
    }
    for (shard = 0; shard < job->shards; shard++)
        task(job, shard);
}

/* Initial allocation and loads of all servers. If a part's tokens reach 2^64, a sum may have wrapped; the part is then
 * summed again in 128 bits. */
QOS_PRIV enum qos_status pshift_priv_start(struct pshift_solver *solver, const struct pshift_options *opt,
                                           struct pshift_priv_job *job)
{
    const struct pshift_problem *p = job->p;
    uint32_t shard, j, t, e;
    pshift_priv_run(opt, job, pshift_priv_start_task);
    for (shard = 0; shard < job->shards; shard++)
        if (solver->part[shard].status != QOS_OK)
            return solver->part[shard].status;
    if (!job->warm) {
        solver->tokens = solver->unclaimed = pshift_priv_u128(0);
        for (j = 0; j < p->servers; j++)
            solver->load[j] = pshift_priv_u128(0);
    }
    for (shard = 0; shard < job->shards; shard++) {
        solver->tokens = qos_add_wide(solver->tokens, solver->part[shard].tokens);
        solver->unclaimed = qos_add_wide(solver->unclaimed, solver->part[shard].unclaimed);
        for (j = 0; j < p->servers && solver->part[shard].tokens.hi == 0; j++)
            pshift_priv_add(&solver->load[j], solver->sums[(size_t)shard * p->servers + j]);
        if (solver->part[shard].tokens.hi == 0)
            continue;
        for (t = pshift_priv_part_row(job, shard); t < pshift_priv_part_row(job, shard + 1); t++)
            for (e = p->row[pshift_priv_job_row(job, t)]; e < p->row[pshift_priv_job_row(job, t) + 1]; e++)
                pshift_priv_add(&solver->load[p->server[e]], job->alloc[e]);
    }
    return QOS_OK;
}

/* Direct transfers. */

/* Moves the next piece of excess into the balance once the balance is used up. */
QOS_PRIV void pshift_priv_refill(struct pshift_solver *solver, uint32_t j)
{
    if (solver->balance[j] == 0 && solver->excess_more[j] != 0) {
        solver->excess_more[j]--;
        solver->balance[j] = PSHIFT_PRIV_PIECE;
    }
}

/* Computes every server's balance from its load. Returns the total weak excess. */
QOS_PRIV struct qos_u128 pshift_priv_weigh(struct pshift_solver *solver, const struct pshift_problem *p)
{
    struct qos_u128 excess = {0, 0};
    uint32_t j;
    for (j = 0; j < p->servers; j++) {
        struct qos_u128 c = {0, p->capacity[j]}, over = {0, 0};
        solver->balance[j] = 0;
        solver->excess_more[j] = 0;
        if (qos_cmp_wide(solver->load[j], c) > 0) {
            over = qos_sub_wide(solver->load[j], c);
            solver->excess_more[j] = (over.hi & (UINT64_MAX >> 2)) << 2 | over.lo >> 62; /* over < 2^96 */
            solver->balance[j] = (int64_t)(over.lo & (UINT64_MAX >> 2));
            pshift_priv_refill(solver, j);
        } else {
            solver->balance[j] = -(int64_t)(c.lo - solver->load[j].lo);
        }
        solver->mark[j] &= PSHIFT_PRIV_CUT;
        excess = qos_add_wide(excess, over);
    }
    return excess;
}

/* Spare demand of an entry: tokens that it may take. */
QOS_PRIV uint64_t pshift_priv_spare(const struct pshift_priv_job *job, uint32_t e)
{
    return job->p->demand[e] - job->alloc[e];
}

/* Direct transfers inside a long row: from the next giver to the next taker, until one side is used up. Givers
 * with a balance above `keep` give, or takers with a balance below it take, down or up to that. */
QOS_PRIV uint64_t pshift_priv_transfer(const struct pshift_priv_job *job, int64_t *balance, uint32_t begin,
                                       uint32_t end, int64_t keep)
{
    const uint32_t *server = job->p->server;
    uint32_t g = begin, t = begin;
    uint64_t moved = 0;
    while (g < end && t < end) {
        int64_t over = balance[server[g]] - (keep > 0 ? keep : 0), under = (keep < 0 ? keep : 0) - balance[server[t]];
        uint64_t can_give = over > 0 ? qos_min((uint64_t)over, job->alloc[g]) : 0;
        uint64_t can_take = under > 0 ? qos_min((uint64_t)under, pshift_priv_spare(job, t)) : 0;
        uint64_t m = qos_min(can_give, can_take);
        job->alloc[g] -= m;
        job->alloc[t] += m;
        balance[server[g]] -= (int64_t)m;
        balance[server[t]] += (int64_t)m;
        QOS_ASSERT(job->alloc[t] <= job->p->demand[t]);
        moved = qos_sat_add(moved, m);
        g += m == can_give ? 1u : 0u;
        t += m == can_take ? 1u : 0u;
    }
    return moved;
}

/* Keeps an array in memory: gcc otherwise gathers it from vector registers, entry by entry, a tenth slower at r = 1. */
#define PSHIFT_PRIV_IN_MEMORY(x) __asm__("" : "+m"(x))

/* Direct transfers inside the row of n entries from `begin` on, from overloaded to underloaded servers, until no pair
 * is left. Returns the tokens moved. Nearly branchless: it computes what each entry can take and give, then moves. If a
 * row names a server twice, this may overshoot the server's balance. Then all is undone and done entry by entry. */
PSHIFT_PRIV_INLINE uint64_t pshift_priv_transfer_few(const struct pshift_priv_job *job, int64_t *balance,
                                                     uint32_t begin, uint32_t n, int64_t keep)
{
    const uint32_t *server = job->p->server + begin;
    const uint64_t *d = job->p->demand + begin;
    uint64_t *a = job->alloc + begin, bits = 0, can_give = 0, can_take = 0, to_give, to_take;
    uint64_t give[PSHIFT_PRIV_LONG], take[PSHIFT_PRIV_LONG];
    int64_t moved[PSHIFT_PRIV_LONG], over = 0;
    uint32_t k;
    for (k = 0; k < n; k++) {
        int64_t spare = (int64_t)(d[k] - a[k]), room = (keep < 0 ? keep : 0) - balance[server[k]];
        room = room < spare ? room : spare;
        take[k] = room < 0 ? 0 : (uint64_t)room;
        bits |= take[k];
        can_take = qos_wrap_add(can_take, take[k]);
    }
    if (bits == 0)
        return 0;
    if (bits >> 59 != 0) /* the sum may have wrapped */
        return pshift_priv_transfer(job, balance, begin, begin + n, keep);
    for (k = 0; k < n; k++) {
        int64_t tokens = (int64_t)a[k], excess = balance[server[k]] - (keep > 0 ? keep : 0);
        excess = excess < tokens ? excess : tokens;
        give[k] = excess < 0 ? 0 : (uint64_t)excess;
        can_give += give[k]; /* at most A_i */
    }
    to_give = to_take = can_give = qos_min(can_give, can_take);
    if (can_give == 0)
        return 0;
    PSHIFT_PRIV_IN_MEMORY(give);
    PSHIFT_PRIV_IN_MEMORY(take);
    for (k = 0; k < n; k++) {
        const uint64_t x = qos_min(give[k], to_give), y = qos_min(take[k], to_take);
        int64_t now;
        to_give -= x;
        to_take -= y;
        a[k] = a[k] - x + y;
        moved[k] = (int64_t)y - (int64_t)x;
        now = balance[server[k]] + moved[k];
        balance[server[k]] = now;
        over |= (moved[k] & now) | (-moved[k] & -now); /* negative: below 0 by giving, or above 0 by taking */
    }
    QOS_ASSERT(to_give == 0 && to_take == 0); /* the row keeps its sum */
    if (over >= 0)
        return can_give;
    for (k = 0; k < n; k++) {
        a[k] = qos_wrap_sub(a[k], (uint64_t)moved[k]);
        balance[server[k]] -= moved[k];
    }
    return pshift_priv_transfer(job, balance, begin, begin + n, keep);
}

/* Direct transfers inside a row; inlined copies for the most common lengths. */
QOS_PRIV uint64_t pshift_priv_transfer_row(const struct pshift_priv_job *job, int64_t *balance, uint32_t i,
                                           int64_t keep)
{
    const uint32_t begin = job->p->row[i], n = job->p->row[i + 1] - begin;
    if (QOS_LIKELY(n == 8 && keep == 0))
        return pshift_priv_transfer_few(job, balance, begin, 8, 0);
    if (n == 8)
        return pshift_priv_transfer_few(job, balance, begin, 8, keep);
    if (n <= PSHIFT_PRIV_WIDE)
        return pshift_priv_transfer_few(job, balance, begin, n, keep);
    if (n <= PSHIFT_PRIV_LONG)
        return pshift_priv_transfer_few(job, balance, begin, n, keep);
    return pshift_priv_transfer(job, balance, begin, begin + n, keep);
}

/* Moves tokens of row i out of X, as far as the row has spare demand outside. True: the row still leads out of X. */
QOS_PRIV bool pshift_priv_expel(const struct pshift_priv_job *job, uint32_t i)
{
    struct pshift_solver *solver = job->solver;
    const struct pshift_problem *p = job->p;
    uint32_t e;
    bool inside = false, outside = false;
    for (e = p->row[i]; e < p->row[i + 1]; e++)
        solver->quota[p->server[e]] =
            solver->mark[p->server[e]] & PSHIFT_PRIV_CUT ? PSHIFT_PRIV_PIECE : -PSHIFT_PRIV_PIECE;
    (void)pshift_priv_transfer_row(job, solver->quota, i, 0);
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        bool in = (solver->mark[p->server[e]] & PSHIFT_PRIV_CUT) != 0;
        inside |= in && job->alloc[e] != 0;
        outside |= !in && job->alloc[e] != p->demand[e];
    }
    return inside && outside;
}

/* Are both overloaded and underloaded servers among the n from `server` on? In a pull: underloaded ones? In a push
 * (negative): overloaded ones? */
PSHIFT_PRIV_INLINE bool pshift_priv_both_in(const int64_t *balance, const uint32_t *server, uint32_t n, int pull)
{
    int64_t over = pull > 0 ? -1 : 0, under = pull < 0 ? -1 : 0;
    uint32_t k;
    for (k = 0; k < n; k++) {
        under |= balance[server[k]];
        over |= -balance[server[k]];
    }
    return (under & over) < 0;
}

/* Writes to list[] which of the `count` rows from row `first` on have such servers, as distances from `first`. Returns
 * how many. No transfer adds rows to this list: no balance changes its sign, and none leaves 0. */
QOS_PRIV uint32_t pshift_priv_list_rows(const struct pshift_priv_job *job, const int64_t *balance, uint32_t first,
                                        uint32_t count, uint16_t *list, int pull)
{
    const uint32_t *row = job->p->row + first, *server = job->p->server, end = job->p->row[job->p->buckets];
    uint32_t i, n = 0;
    for (i = 0; i < count; i++) {
        const uint32_t length = row[i + 1] - row[i];
        list[n] = (uint16_t)i;
        __builtin_prefetch(server + row[i] + qos_min(end - row[i], 1024)); /* hardware stops at the page's end */
        if (QOS_LIKELY(length == 8))
            n += pshift_priv_both_in(balance, server + row[i], 8, pull) ? 1u : 0u;
        else
            n += pshift_priv_both_in(balance, server + row[i], length, pull) ? 1u : 0u;
    }
    for (i = 0; i < n; i++) { /* rows of up to 8 entries lie on at most two cache lines */
        const uint32_t begin = row[list[i]], last = row[list[i] + 1] - 1;
        __builtin_prefetch(job->p->demand + begin);
        __builtin_prefetch(job->p->demand + last);
        __builtin_prefetch(job->alloc + begin, 1);
        __builtin_prefetch(job->alloc + last, 1);
    }
    return n;
}

/* Number of overloaded servers, or of underloaded ones if these are fewer. */
QOS_PRIV uint32_t pshift_priv_rarer(const int64_t *balance, uint32_t servers)
{
    uint32_t j, over = 0, under = 0;
    for (j = 0; j < servers; j++) {
        over += balance[j] > 0 ? 1u : 0u;
        under += balance[j] < 0 ? 1u : 0u;
    }
    return over < under ? over : under;
}

/* Does a mover of row i want more? With `pull` the underloaded servers are the movers: they take. Else the overloaded
 * ones: they give. */
PSHIFT_PRIV_INLINE bool pshift_priv_wants(const struct pshift_priv_job *job, const int64_t *balance, uint32_t i,
                                          int pull)
{
    const struct pshift_problem *p = job->p;
    int64_t wants = 0;
    uint32_t e;
    for (e = p->row[i]; e < p->row[i + 1]; e++)
        wants |= pull > 0 ? balance[p->server[e]] & -(int64_t)pshift_priv_spare(job, e)
                          : -balance[p->server[e]] & -(int64_t)job->alloc[e];
    return wants < 0;
}

/* The movers of row i pull from the other servers, or push to them: first as far as these have excess or spare
 * capacity, then as far as the rows allow. *open: a mover wants more, but the other servers have nothing or are movers
 * themselves. */
QOS_PRIV uint64_t pshift_priv_spread_row(const struct pshift_priv_job *job, int64_t *balance, uint32_t i, int pull,
                                         bool *open)
{
    static const int64_t keep[2] = {PSHIFT_PRIV_OFFER, 0};
    uint64_t moved = 0;
    uint32_t k;
    *open = pull > 0 ? pshift_priv_wants(job, balance, i, 1) : pshift_priv_wants(job, balance, i, -1);
    for (k = 0; k < 2 && *open; k++) {
        moved = qos_sat_add(moved, pshift_priv_transfer_row(job, balance, i, pull * keep[k]));
        *open = pull > 0 ? pshift_priv_wants(job, balance, i, 1) : pshift_priv_wants(job, balance, i, -1);
    }
    return moved;
}

/* Sweeps `count` rows from row `first` on, until `most` tokens have moved, no server is overloaded or none is
 * underloaded: direct transfers; or a pull, or if negative a push, which leaves the rows where movers want more in
 * key[]. If one side is so rare that most rows lack it, looks ahead for rows with both sides: in as many rows as have
 * 64 servers of that side. The balances are checked rarely enough to cost less than the rows in between. */
QOS_PRIV uint64_t pshift_priv_sweep(const struct pshift_priv_job *job, int64_t *balance, uint32_t first, uint32_t count,
                                    uint64_t most, int pull)
{
    struct pshift_solver *solver = job->solver;
    const uint64_t all = job->p->servers * (uint64_t)job->p->buckets;
    uint16_t list[PSHIFT_PRIV_BLOCK];
    uint32_t i, unchecked = 0, many = 0, n = 32, k, listed;
    uint64_t moved = 0;
    for (i = first; count != 0 && moved < most; count -= n, i += n) {
        if (unchecked == 0) {
            const uint32_t rare = pshift_priv_rarer(balance, job->p->servers);
            if (rare == 0)
                break;
            /* rows for each server of the rarer side; there are entries, as a server on either side has some */
            many = (uint32_t)qos_min(all / (rare * (uint64_t)job->p->row[job->p->buckets]), PSHIFT_PRIV_BLOCK / 64);
            unchecked = job->p->servers / 2;
        }
        n = (uint32_t)qos_min(count, qos_min(2 * n, many ? many * 64 : 64)); /* from few rows on: few may be enough */
        unchecked -= (uint32_t)qos_min(unchecked, n);
        listed = n;
        if (many)
            listed = pshift_priv_list_rows(job, balance, i, n, list, pull);
        for (k = 0; k < listed && moved < most; k++) {
            const uint32_t row = many ? i + list[k] : i + k;
            bool open = false;
            moved = qos_sat_add(moved, pull ? pshift_priv_spread_row(job, balance, row, pull, &open)
                                            : pshift_priv_transfer_row(job, balance, row, 0));
            QOS_ASSERT(!open || solver->open_rows < job->p->buckets);
            if (open)
                solver->key[solver->open_rows++] = row;
        }
    }
    return moved;
}

QOS_PRIV void pshift_priv_sweep_task(void *arg, uint32_t shard)
{
    const struct pshift_priv_job *job = (const struct pshift_priv_job *)arg;
    struct pshift_solver *solver = job->solver;
    uint32_t first = pshift_priv_part_row(job, shard);
    solver->part[shard].moved = pshift_priv_sweep(job, solver->quota + (size_t)shard * job->p->servers, first,
                                                  pshift_priv_part_row(job, shard + 1) - first, UINT64_MAX, 0);
}

/* Each part gets an equal quota of every balance, so that the parts are independent. Later steps handle the unused
 * quotas and the division remainder. */
QOS_PRIV void pshift_priv_direct(struct pshift_solver *solver, const struct pshift_options *opt,
                                 struct pshift_priv_job *job)
{
    const uint32_t servers = job->p->servers;
    uint32_t shard, j;
    for (j = 0; j < servers; j++) {
        const int64_t q = job->shards == 1 ? solver->balance[j] : solver->balance[j] / (int64_t)job->shards;
        for (shard = 0; shard < job->shards; shard++)
            solver->quota[(size_t)shard * servers + j] = q;
        solver->balance[j] -= q * (int64_t)job->shards;
    }
    pshift_priv_run(opt, job, pshift_priv_sweep_task);
    for (shard = 0; shard < job->shards; shard++)
        pshift_priv_add(&solver->info.direct, solver->part[shard].moved);
    for (j = 0; j < servers; j++) {
        for (shard = 0; shard < job->shards; shard++)
            solver->balance[j] += solver->quota[(size_t)shard * servers + j];
        pshift_priv_refill(solver, j);
    }
}

/* Total excess and spare capacity in such balances. Saturate. */
QOS_PRIV void pshift_priv_totals(const int64_t *balance, uint32_t servers, uint64_t *over, uint64_t *under)
{
    uint32_t j;
    *over = *under = 0;
    for (j = 0; j < servers; j++)
        if (balance[j] > 0)
            *over = qos_sat_add(*over, (uint64_t)balance[j]);
        else
            *under = qos_sat_add(*under, (uint64_t)-balance[j]);
}

/* Has server j a part in a turn among the servers of X (PSHIFT_PRIV_CUT) or among those outside (0)? */
QOS_PRIV bool pshift_priv_takes_part(const struct pshift_solver *solver, uint32_t j, unsigned side)
{
    return (solver->mark[j] & (PSHIFT_PRIV_CUT | PSHIFT_PRIV_STUCK)) == side;
}

/* Rows that fill and widen handle per step: few enough that what the first ones moved counts for the next ones, and so
 * many that looking at all servers between steps costs little beside them. */
QOS_PRIV uint32_t pshift_priv_rows_at_once(uint32_t buckets)
{
    return buckets / 64 + 512;
}

/* Direct transfers by quota[], which becomes the balance of those that take part; one part of the rows after another,
 * from the row where the last ended. Stops early if even 64 times the last part's pace could not move what is left in
 * the remaining rows (twice, in a warm start whose servers bind, where a pass is most of the cost). `all`: never stops
 * early. Returns the amount left to move. */
QOS_PRIV uint64_t pshift_priv_fill(const struct pshift_priv_job *job, unsigned side, bool all)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t buckets = job->p->buckets, part = pshift_priv_rows_at_once(buckets), times = job->expel ? 2 : 64;
    uint32_t i = solver->next_row, rows_left = buckets, n, j;
    uint64_t moved, over, under;
    do {
        n = (uint32_t)qos_min(part, qos_min(rows_left, buckets - i));
        moved = pshift_priv_sweep(job, solver->quota, i, n, UINT64_MAX, 0);
        pshift_priv_add(&solver->info.direct, moved);
        i = i + n == buckets ? 0 : i + n;
        rows_left -= n;
        pshift_priv_totals(solver->quota, job->p->servers, &over, &under);
        over = qos_min(over, under);
    } while (over != 0 && rows_left != 0 &&
             (all || qos_cmp_wide(qos_mul_wide(moved, (uint64_t)times * rows_left), qos_mul_wide(over, n)) >= 0));
    solver->next_row = i;
    for (j = 0; j < job->p->servers; j++)
        if (pshift_priv_takes_part(solver, j, side))
            solver->balance[j] = solver->quota[j];
    return over;
}

/* Movers with nothing left to move join the others. True if some did and some movers remain. */
QOS_PRIV bool pshift_priv_retire(struct pshift_solver *solver, uint32_t servers, int pull)
{
    uint32_t j;
    bool some = false, more = false;
    for (j = 0; j < servers; j++) {
        if (!(solver->mark[j] & PSHIFT_PRIV_MOVER))
            continue;
        more |= solver->quota[j] != 0;
        if (solver->quota[j] == 0) {
            solver->mark[j] &= (uint8_t)~PSHIFT_PRIV_MOVER;
            solver->quota[j] = pull * PSHIFT_PRIV_OFFER;
            some = true;
        }
    }
    return some && more;
}

/* The movers, underloaded servers (pull) or overloaded ones, move `most` tokens by quota[], or all that they can. True
 * if the rows offer them no more. A row where a mover wants more may still have movers as partners. It is tried again
 * once one of its partners stops being a mover. */
QOS_PRIV bool pshift_priv_spread(const struct pshift_priv_job *job, int pull, uint64_t most, uint64_t *sum)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t buckets = job->p->buckets, first = solver->next_row;
    uint32_t k, n, turn;
    uint64_t moved;
    bool more = true;
    solver->open_rows = 0;
    moved = pshift_priv_sweep(job, solver->quota, first, buckets - first, most, pull);
    if (moved < most)
        moved = qos_sat_add(moved, pshift_priv_sweep(job, solver->quota, 0, first, most - moved, pull));
    for (turn = 0, n = UINT32_MAX; turn < 16 && moved < most; turn++) {
        more = pshift_priv_retire(solver, job->p->servers, pull);
        if (!more || solver->open_rows > n - n / 16) /* few rows were closed: the way is long, and the search's */
            break;
        n = solver->open_rows;
        solver->open_rows = 0;
        for (k = 0; k < n && moved < most; k++) {
            const uint32_t i = (uint32_t)solver->key[k];
            bool open;
            moved = qos_sat_add(moved, pshift_priv_spread_row(job, solver->quota, i, pull, &open));
            QOS_ASSERT(solver->open_rows <= k); /* what is overwritten was read */
            if (open)
                solver->key[solver->open_rows++] = i;
        }
    }
    *sum = moved;
    return moved < most && !more;
}

/* Widen: the movers, here the larger side, spread over one part of the rows, without a limit. Afterwards more servers
 * have excess (or room) for the last tokens to meet.
 * Nobody is stuck: a stuck server's rows offer it nothing, whatever the others do among themselves. */
QOS_PRIV uint64_t pshift_priv_widen(const struct pshift_priv_job *job, int pull)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t first = solver->next_row, left = job->p->buckets - first;
    const uint32_t n = (uint32_t)qos_min(left, pshift_priv_rows_at_once(job->p->buckets));
    solver->open_rows = 0;
    solver->next_row = n == left ? 0 : first + n;
    return pshift_priv_sweep(job, solver->quota, first, n, UINT64_MAX, pull);
}

/* A turn of step 3. Movers that could not move all are stuck from now on, and have no part in later turns. Returns what
 * is left to move among the others. */
QOS_PRIV uint64_t pshift_priv_turn(const struct pshift_priv_job *job, unsigned side, int pull, bool widen)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t servers = job->p->servers;
    uint64_t most = 0, moved, direct;
    uint32_t j;
    bool all = false;
    for (j = 0; j < servers; j++) {
        int64_t offer = pshift_priv_takes_part(solver, j, side) ? solver->balance[j] * pull : 0;
        if (offer < 0) {
            solver->mark[j] |= PSHIFT_PRIV_MOVER;
        } else if (pshift_priv_takes_part(solver, j, side)) {
            most += (uint64_t)offer;
            offer += PSHIFT_PRIV_OFFER;
        }
        solver->quota[j] = offer * pull;
    }
    if (widen)
        moved = pshift_priv_widen(job, pull);
    else
        all = pshift_priv_spread(job, pull, most, &moved);
    direct = most;
    for (j = 0; j < servers; j++) {
        int64_t offer = solver->quota[j] * pull;
        if (solver->mark[j] & PSHIFT_PRIV_MOVER)
            solver->mark[j] |= offer < 0 && all ? PSHIFT_PRIV_STUCK : 0;
        else if (pshift_priv_takes_part(solver, j, side))
            offer -= PSHIFT_PRIV_OFFER;
        else
            continue;
        solver->mark[j] &= (uint8_t)~PSHIFT_PRIV_MOVER;
        solver->balance[j] = offer * pull;
        direct -= offer > 0 ? (uint64_t)offer : 0;
        solver->quota[j] = solver->mark[j] & PSHIFT_PRIV_STUCK ? 0 : solver->balance[j];
    }
    QOS_ASSERT(direct <= moved);
    pshift_priv_add(&solver->info.direct, direct);
    pshift_priv_add(&solver->info.pulled, moved - direct);
    return pshift_priv_fill(job, side, widen);
}

/* Step 3 among the servers of X or among those outside: the smaller of their excess and spare capacity spreads over the
 * others, turn by turn. If servers are stuck then, X changes: no row leads from the others to those that pulled, or out
 * of those that pushed. Sums beyond 2^58 are left to the search, since an offer must hold more than any sum. */
QOS_PRIV void pshift_priv_settle(const struct pshift_priv_job *job, unsigned side)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t servers = job->p->servers;
    uint64_t left, before, over, under, more = 0;
    uint32_t j;
    bool stuck = false;
    int pull, idle;
    /* With few rows a server paths are long, and only the search finds them. */
    const int turns = job->p->buckets / 8 < servers && PSHIFT_TURNS > 1 ? 1 : PSHIFT_TURNS;
    for (j = 0; j < servers; j++) {
        more |= solver->excess_more[j];
        solver->quota[j] = pshift_priv_takes_part(solver, j, side) ? solver->balance[j] : 0;
    }
    pshift_priv_totals(solver->quota, servers, &over, &under);
    if (more != 0 || (over | under) >> 58 != 0)
        return;
    if (job->warm && qos_min(over, under) != 0) { /* a cold start has done this; first the changed rows */
        for (j = 0; j < job->rows; j++)
            pshift_priv_add(&solver->info.direct, pshift_priv_transfer_row(job, solver->quota, job->bucket[j], 0));
        (void)pshift_priv_fill(job, side, false);
        pshift_priv_totals(solver->quota, servers, &over, &under);
    }
    left = qos_min(over, under);
    pull = over > under / 2 ? 1 : -1;
    for (idle = 0; idle < turns && left != 0; idle = left < before - before / 8 ? 0 : idle + 1) {
        before = left;
        left = pshift_priv_turn(job, side, idle % 2 ? -pull : pull, idle % 2 != 0);
    }
    for (j = 0; j < servers; j++)
        stuck |= (solver->mark[j] & PSHIFT_PRIV_STUCK) != 0;
    solver->moved |= stuck;
    for (j = 0; j < servers && stuck; j++) {
        const bool is_stuck = (solver->mark[j] & PSHIFT_PRIV_STUCK) != 0;
        if ((solver->mark[j] & PSHIFT_PRIV_CUT) == side)
            solver->mark[j] = is_stuck == (pull < 0) ? PSHIFT_PRIV_CUT : 0;
    }
}

/* 0: X is a certificate. Bit 1: a server of X has spare capacity. Bit 0: another server is overloaded. */
QOS_PRIV unsigned pshift_priv_wrong(const struct pshift_solver *solver, uint32_t servers)
{
    uint32_t j;
    unsigned wrong = 0;
    for (j = 0; j < servers; j++) {
        const unsigned side = solver->mark[j] & PSHIFT_PRIV_CUT;
        wrong |= (side ? solver->balance[j] < 0 : solver->balance[j] > 0) ? 1u << side : 0;
    }
    return wrong;
}

/* Shift paths. */

QOS_PRIV bool pshift_priv_bit(const uint64_t *set, uint32_t e)
{
    return (set[e / 64] >> e % 64 & 1) != 0;
}

QOS_PRIV void pshift_priv_bit_write(uint64_t *set, uint32_t e, bool in)
{
    uint64_t bit = UINT64_C(1) << e % 64;
    set[e / 64] = in ? set[e / 64] | bit : set[e / 64] & ~bit;
}

/* The 64 members from entry e on. */
QOS_PRIV uint64_t pshift_priv_bits_from(const uint64_t *set, uint32_t e)
{
    const uint64_t above = set[e / 64 + 1] & ((UINT64_C(1) << e % 64) - 1);
    return set[e / 64] >> e % 64 | above << 1 << (63 - e % 64);
}

QOS_PRIV uint32_t pshift_priv_bit_count(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(qos_wrap_mul(bits, UINT64_C(0x0101010101010101)) >> 56);
}

/* First member of the set from entry e on; end or more if there is none before end. */
QOS_PRIV uint32_t pshift_priv_bit_from(const uint64_t *set, uint32_t e, uint32_t end)
{
    uint64_t word;
    if (e >= end)
        return end;
    word = set[e / 64] >> e % 64;
    if (word != 0)
        return e + qos_ctz64(word);
    for (e = (e / 64 + 1) * 64; e < end; e += 64)
        if (set[e / 64] != 0)
            return e + qos_ctz64(set[e / 64]);
    return end;
}

/* Records which servers share a row with server j. If these are few (rings, racks, chains), a search can see that it
 * offers nothing new without reading its rows. Rows of consecutive servers are not read: their ends tell. seen_by: the
 * last server that saw each. */
QOS_PRIV void pshift_priv_find_near(const struct pshift_priv_job *job, uint32_t j, uint32_t *seen_by)
{
    const struct pshift_solver *solver = job->solver;
    const uint32_t *row = job->p->row, *server = job->p->server;
    uint32_t *near = solver->near + (size_t)j * PSHIFT_PRIV_NEAR, nears = 0, low = j, high = j, x, e;
    for (x = solver->column[j]; x < solver->column[j + 1] && high != QOS_NONE; x++) {
        const uint64_t ends = solver->key[solver->index[x].bucket];
        low = (uint32_t)qos_min(low, ends >> 32);
        high = high > (uint32_t)ends ? high : (uint32_t)ends;
    }
    if (high != QOS_NONE) {
        nears = (uint32_t)qos_min(high - low, PSHIFT_PRIV_MANY);
        for (e = 0; e < nears && nears != PSHIFT_PRIV_MANY; e++)
            near[e] = low + e + (low + e >= j ? 1 : 0);
        solver->node[j].nears = nears == 0 || nears == PSHIFT_PRIV_MANY ? nears : nears | PSHIFT_PRIV_RUN;
        return;
    }
    seen_by[j] = j;
    for (x = solver->column[j]; x < solver->column[j + 1] && nears != PSHIFT_PRIV_MANY; x++) {
        const uint32_t i = solver->index[x].bucket;
        if (row[i + 1] - row[i] > PSHIFT_PRIV_NEAR)
            nears = PSHIFT_PRIV_MANY;
        for (e = row[i]; e < row[i + 1] && nears != PSHIFT_PRIV_MANY; e++) {
            if (seen_by[server[e]] == j)
                continue;
            seen_by[server[e]] = j;
            if (nears < PSHIFT_PRIV_NEAR)
                near[nears] = server[e];
            nears++;
        }
    }
    solver->node[j].nears = nears;
}

/* Number of servers near server j, which has a label, that the search may still label; `most` if server j has too many
 * neighbours to record. */
QOS_PRIV uint32_t pshift_priv_near_fresh(const struct pshift_solver *solver, uint32_t j, uint32_t most)
{
    const uint32_t *near = solver->near + (size_t)j * PSHIFT_PRIV_NEAR, nears = solver->node[j].nears;
    uint32_t i, n = 0;
    if (nears == PSHIFT_PRIV_MANY)
        return most;
    if (nears & PSHIFT_PRIV_RUN)
        return pshift_priv_bit_count(pshift_priv_bits_from(solver->fresh, near[0]) &
                                     UINT64_MAX >> (63 - (near[(nears & ~PSHIFT_PRIV_RUN) - 1] - near[0])));
    for (i = 0; i < nears; i++)
        n += pshift_priv_bit(solver->fresh, near[i]) ? 1u : 0u;
    return n;
}

/* May a server near server j have this label? */
QOS_PRIV bool pshift_priv_near_has(const struct pshift_solver *solver, uint32_t j, uint32_t label)
{
    const uint32_t *near = solver->near + (size_t)j * PSHIFT_PRIV_NEAR, nears = solver->node[j].nears;
    uint32_t i;
    bool has = nears == PSHIFT_PRIV_MANY;
    for (i = 0; i < (nears & ~PSHIFT_PRIV_RUN) && !has; i++)
        has = solver->node[near[i]].label == label;
    return has;
}

/* Which entries of [begin, end) can give, which can take: whole words of the sets, from one array after the other. */
QOS_PRIV void pshift_priv_write_bits(const struct pshift_priv_job *job, uint32_t begin, uint32_t end)
{
    const uint32_t entries = job->p->row[job->p->buckets];
    uint32_t e, k, n;
    for (e = begin / 64 * 64; e < end; e += 64) {
        uint64_t give = 0, take = 0;
        n = (uint32_t)qos_min(64, entries - e);
        for (k = 0; k < n; k++) {
            give |= (uint64_t)(job->alloc[e + k] != 0) << k;
            take |= (uint64_t)(pshift_priv_spare(job, e + k) != 0) << k;
        }
        job->solver->givers[e / 64] = give;
        job->solver->takers[e / 64] = take;
    }
}

/* Builds the index from servers to entries for `count` rows, cyclically from row `first` on. */
QOS_PRIV void pshift_priv_build_index(const struct pshift_priv_job *job, uint32_t first, uint32_t count)
{
    struct pshift_solver *solver = job->solver;
    const struct pshift_problem *p = job->p;
    uint32_t j, i, t, e, sum = 0;
    for (j = 0; j <= p->servers; j++)
        solver->column[j] = 0;
    for (t = 0, i = first; t < count; t++, i = i + 1 == p->buckets ? 0 : i + 1) {
        for (e = p->row[i]; e < p->row[i + 1]; e++)
            solver->column[p->server[e]]++;
    }
    for (j = 0; j <= p->servers; j++) { /* for now the end of each column: filling moves it to the start */
        sum += solver->column[j];
        solver->column[j] = sum;
    }
    for (t = 0, i = first; t < count; t++, i = i + 1 == p->buckets ? 0 : i + 1) {
        const uint32_t begin = p->row[i] < p->row[i + 1] ? p->server[p->row[i]] : 0;
        bool run = p->row[i] < p->row[i + 1];
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            struct pshift_priv_index *x = &solver->index[--solver->column[p->server[e]]];
            x->entry = e;
            x->bucket = i;
            run &= p->server[e] == begin + (e - p->row[i]);
        }
        /* the first and the last server; 0 and QOS_NONE if they are not consecutive */
        solver->key[i] = run ? (uint64_t)begin << 32 | (begin + (e - p->row[i]) - 1) : QOS_NONE;
    }
    QOS_ASSERT(solver->column[0] == 0 && solver->column[p->servers] == sum);
    pshift_priv_write_bits(job, p->row[first], p->row[qos_min(p->buckets, (uint64_t)first + count)]);
    if (count > p->buckets - first)
        pshift_priv_write_bits(job, 0, p->row[count - (p->buckets - first)]);
    for (j = 0; j < p->servers; j++)
        solver->queue[j] = QOS_NONE;
    for (j = 0; j < p->servers; j++)
        pshift_priv_find_near(job, j, solver->queue);
    solver->info.indexed_rows = count;
    solver->first_row = first;
}

/* Marks row i as reached by a taker with this label, unless one with the same or a lower label did so before. The
 * first label may be the higher one if the search skipped the row. */
QOS_PRIV struct pshift_priv_row *pshift_priv_reach(const struct pshift_priv_job *job, uint32_t i, uint32_t label)
{
    struct pshift_priv_row *row = &job->solver->rows[i];
    if (!pshift_priv_bit(job->solver->seen, i) || row->label > label) {
        pshift_priv_bit_write(job->solver->seen, i, true);
        row->label = label;
        row->cursor = job->p->row[i];
    }
    return row;
}

QOS_PRIV void pshift_priv_label_server(struct pshift_solver *solver, uint32_t j, uint32_t label, uint32_t *tail,
                                       uint64_t *found)
{
    QOS_ASSERT(solver->last_label <= label && label <= solver->last_label + 1);
    pshift_priv_bit_write(solver->fresh, j, false);
    solver->node[j].label = label;
    solver->queue[(*tail)++] = j;
    *found = qos_sat_add(*found, solver->balance[j] > 0 ? (uint64_t)solver->balance[j] : 0);
    solver->last_label = label;
}

/* Labels the fresh servers that can give in row i; returns how many. *found: the excess of the servers with a label. A
 * row of consecutive servers is looked at as a whole. */
QOS_PRIV uint32_t pshift_priv_label_row(const struct pshift_priv_job *job, uint32_t i, uint32_t label, uint32_t *tail,
                                        uint64_t *found)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t begin = job->p->row[i], end = job->p->row[i + 1], before = *tail;
    uint32_t e;
    if ((uint32_t)solver->key[i] != QOS_NONE && end - begin <= 64) {
        const uint32_t first = (uint32_t)(solver->key[i] >> 32);
        uint64_t both = pshift_priv_bits_from(solver->givers, begin) & pshift_priv_bits_from(solver->fresh, first);
        for (both &= UINT64_MAX >> (64 - (end - begin)); both != 0; both &= both - 1)
            pshift_priv_label_server(solver, first + qos_ctz64(both), label, tail, found);
        return *tail - before;
    }
    for (e = pshift_priv_bit_from(solver->givers, begin, end); e < end;
         e = pshift_priv_bit_from(solver->givers, e + 1, end))
        if (pshift_priv_bit(solver->fresh, job->p->server[e]))
            pshift_priv_label_server(solver, job->p->server[e], label, tail, found);
    return *tail - before;
}

/* Labels servers on one side of the cut with their distance to an underloaded one there, over the indexed rows, until
 * all overloaded servers of that side have a label; or, at the end of a distance, until those with one have as much
 * excess as the underloaded have room. True if any has excess. Servers of the other side have no label, so no step
 * crosses the cut. The search may stop before it reaches a row. Such a row has no taker of a label below the last but
 * one, so the taker that reaches it first later has the lowest label. */
QOS_PRIV bool pshift_priv_label(const struct pshift_priv_job *job, unsigned side)
{
    struct pshift_solver *solver = job->solver;
    const struct pshift_problem *p = job->p;
    uint32_t j, head = 0, tail = 0, x;
    uint64_t over = 0, room = 0, found = 0;
    for (j = 0; j < p->servers / 64 + 2; j++)
        solver->fresh[j] = 0;
    for (j = 0; j < p->servers; j++) {
        const int64_t balance = solver->balance[j];
        solver->node[j].cursor = solver->column[j];
        solver->node[j].label = QOS_NONE;
        if ((solver->mark[j] & PSHIFT_PRIV_CUT) != side)
            continue;
        over = qos_sat_add(over, balance > 0 ? (uint64_t)balance : 0);
        room = qos_sat_add(room, balance < 0 ? (uint64_t)-balance : 0);
        if (balance < 0) {
            solver->node[j].label = 0;
            solver->queue[tail++] = j;
        } else {
            pshift_priv_bit_write(solver->fresh, j, true);
        }
    }
    for (j = 0; j < solver->info.indexed_rows / 64 + 3; j++)
        solver->seen[(solver->first_row / 64 + j) % (p->buckets / 64 + 1)] = 0;
    solver->last_label = 0;
    for (; head < tail && found < over; head++) {
        uint32_t k = solver->queue[head], label = solver->node[k].label;
        uint32_t open = pshift_priv_near_fresh(solver, k, p->servers); /* servers that k may label, at most */
        if (found >= room && label == solver->last_label)
            break;
        for (x = solver->column[k]; x < solver->column[k + 1] && found < over && open != 0; x++) {
            uint32_t i = solver->index[x].bucket;
            if (pshift_priv_bit(solver->seen, i) || !pshift_priv_bit(solver->takers, solver->index[x].entry))
                continue;
            (void)pshift_priv_reach(job, i, label);
            open -= pshift_priv_label_row(job, i, label + 1, &tail, &found);
        }
    }
    solver->sinks |= tail != 0;
    return found != 0;
}

/* Next step up from server v: advances its cursor to a row in which a server one label above can give. False: none is
 * left. An entry or row that the cursor has passed offers nothing until the round ends: steps move tokens one label
 * down, so they only open steps in the other direction. */
QOS_PRIV bool pshift_priv_ascend(const struct pshift_priv_job *job, uint32_t v, struct pshift_priv_step *step)
{
    struct pshift_solver *solver = job->solver;
    struct pshift_priv_node *node = &solver->node[v];
    if (node->label == solver->last_label || !pshift_priv_near_has(solver, v, node->label + 1))
        return false;
    for (; node->cursor < solver->column[v + 1]; node->cursor++) {
        const struct pshift_priv_index *x = &solver->index[node->cursor];
        struct pshift_priv_row *row;
        uint32_t end;
        if (!pshift_priv_bit(solver->takers, x->entry))
            continue;
        row = pshift_priv_reach(job, x->bucket, node->label);
        if (row->label != node->label)
            continue;
        end = job->p->row[x->bucket + 1];
        for (row->cursor = pshift_priv_bit_from(solver->givers, row->cursor, end); row->cursor < end;
             row->cursor = pshift_priv_bit_from(solver->givers, row->cursor + 1, end)) {
            if (solver->node[job->p->server[row->cursor]].label != node->label + 1)
                continue;
            step->take = x->entry;
            step->give = row->cursor;
            return true;
        }
    }
    return false;
}

/* Blocking flow into underloaded server `root`: depth first, one label up per step. The amount requested of each
 * server is as much as its step can carry. A server collects that from all servers above before it passes tokens on, so
 * paths that share a step take it once. A server that cannot supply the full amount loses its label and is not tried
 * again in this round. */
QOS_PRIV void pshift_priv_collect(const struct pshift_priv_job *job, uint32_t root)
{
    struct pshift_solver *solver = job->solver;
    struct pshift_priv_step *frame = solver->path;
    int64_t *balance = solver->balance;
    frame->server = root;
    frame->want = (uint64_t)-balance[root];
    frame->got = 0;
    for (;;) {
        const uint32_t v = frame->server;
        uint64_t m;
        if (frame->got < frame->want && pshift_priv_ascend(job, v, frame)) {
            struct pshift_priv_step *above = frame + 1;
            const uint32_t u = job->p->server[frame->give];
            QOS_ASSERT(solver->node[u].label == solver->node[v].label + 1);
            above->server = u;
            m = qos_min(frame->want - frame->got, job->alloc[frame->give]);
            above->want = qos_min(m, job->p->demand[frame->take] - job->alloc[frame->take]);
            above->got = balance[u] > 0 ? qos_min((uint64_t)balance[u], above->want) : 0; /* first its own excess */
            balance[u] -= (int64_t)above->got;
            pshift_priv_refill(solver, u);
            frame = above;
            continue;
        }
        if (frame->got < frame->want)
            solver->node[v].label = QOS_NONE;
        if (frame == solver->path)
            break;
        m = frame->got;
        frame--;
        if (m == 0)
            continue;
        frame->got += m;
        QOS_ASSERT(frame->got <= frame->want && m <= job->alloc[frame->give]);
        job->alloc[frame->give] -= m;
        job->alloc[frame->take] += m;
        QOS_ASSERT(job->alloc[frame->take] <= job->p->demand[frame->take]);
        pshift_priv_bit_write(solver->givers, frame->give, job->alloc[frame->give] != 0);
        pshift_priv_bit_write(solver->givers, frame->take, true);
        pshift_priv_bit_write(solver->takers, frame->take, pshift_priv_spare(job, frame->take) != 0);
        pshift_priv_bit_write(solver->takers, frame->give, true);
        solver->info.paths++;
    }
    balance[root] += (int64_t)frame->got;
    QOS_ASSERT(balance[root] <= 0);
    pshift_priv_add(&solver->info.searched, frame->got);
}

/* Algorithm 5, over windows of rows that grow until they hold all. Shifts stay inside X or outside it: one side after
 * the other is searched, as far as it is wrong. If X does not hold when all are blocked, the search goes on without it.
 * If it ends without a path, the servers that it did not reach are X. */
QOS_PRIV void pshift_priv_progress(const struct pshift_priv_job *job)
{
    struct pshift_solver *solver = job->solver;
    const uint32_t servers = job->p->servers, all = job->p->buckets, first = solver->next_row;
    uint32_t window = all < PSHIFT_WINDOW_ROWS ? all : PSHIFT_WINDOW_ROWS, j;
    unsigned side;
    bool any = false;
    if (pshift_priv_wrong(solver, servers) == 0)
        return;
    for (j = 0; j < servers; j++)
        any |= (solver->mark[j] & PSHIFT_PRIV_CUT) != 0;
    pshift_priv_build_index(job, first, window);
    for (;;) {
        solver->sinks = false;
        for (side = 0; side <= PSHIFT_PRIV_CUT; side++)
            while ((pshift_priv_wrong(solver, servers) >> side & 1u) != 0 && pshift_priv_label(job, side)) {
                solver->info.rounds++;
                for (j = 0; j < servers; j++)
                    if (solver->node[j].label == 0 && solver->balance[j] < 0)
                        pshift_priv_collect(job, j);
            }
        if (pshift_priv_wrong(solver, servers) == 0)
            break;
        if (window != all && solver->sinks) {
            window = window > all / 16 ? all : window * 4;
            pshift_priv_build_index(job, first, window);
            continue;
        }
        for (j = 0; j < servers; j++) /* a search without X: the servers that it does not reach */
            solver->mark[j] = !any && solver->node[j].label == QOS_NONE ? PSHIFT_PRIV_CUT : 0;
        solver->moved = true;
        if (!any)
            return;
        any = false;
    }
    solver->next_row = (uint32_t)(((uint64_t)first + window) % all);
}

/* Certificate. */

/* Computes the numbers of the solution from its arrays alone. Leaves the loads in solver->scratch. QOS_ECORRUPT: it is
 * not a prudent allocation of A_i tokens per bucket. */
QOS_PRIV enum qos_status pshift_priv_account(struct pshift_solver *solver, const struct pshift_problem *p,
                                             const struct pshift_solution *s, struct pshift_solution *out)
{
    uint32_t i, j, e;
    out->tokens = out->unclaimed = out->effective = out->excess = pshift_priv_u128(0);
    out->cut_capacity = out->cut_demand = pshift_priv_u128(0);
    out->cut_servers = 0;
    for (j = 0; j < p->servers; j++) {
        solver->scratch[j] = pshift_priv_u128(0);
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
            pshift_priv_add(&solver->scratch[p->server[e]], s->alloc[e]);
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
        out->effective = qos_add_wide(out->effective, qos_cmp_wide(solver->scratch[j], c) < 0 ? solver->scratch[j] : c);
    }
    out->excess = qos_sub_wide(out->tokens, out->effective);
    return QOS_OK;
}

/* Computes each bucket's part of the weak excess, if every overloaded server serves its tokens evenly. Of `a` tokens it
 * serves (a C + remainder) / load and keeps the new remainder, so the services add up to C. Loads are in
 * solver->scratch. A remainder is below the load, so a C + remainder < 2^127. With `write` the parts go to
 * s->shortfall; else false says that one is not there. */
QOS_PRIV bool pshift_priv_shortfalls(struct pshift_solver *solver, const struct pshift_problem *p,
                                     const struct pshift_solution *s, bool write)
{
    uint32_t i, j, e;
    bool same = true;
    for (j = 0; j < p->servers; j++)
        solver->remainder[j] = pshift_priv_u128(0);
    for (i = 0; i < p->buckets; i++) {
        uint64_t unserved = 0;
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            struct qos_u128 c = {0, p->capacity[p->server[e]]}, sum;
            j = p->server[e];
            if (qos_cmp_wide(solver->scratch[j], c) <= 0)
                continue;
            sum = qos_add_wide(qos_mul_wide(s->alloc[e], c.lo), solver->remainder[j]);
            unserved += s->alloc[e] - pshift_priv_divide(sum, solver->scratch[j], &solver->remainder[j]);
        }
        if (write)
            s->shortfall[i] = unserved;
        same &= s->shortfall[i] == unserved;
    }
    return same;
}

/* The calls. */

/* Checks pointers, sizes (within the configuration) and capacities. O(servers). */
QOS_PRIV enum qos_status pshift_priv_check_frame(const struct pshift_solver *solver, const struct pshift_problem *p,
                                                 const struct pshift_solution *s)
{
    uint64_t bits = 0;
    uint32_t j, entries;
    if (!p || !s || !p->row || (p->servers && (!p->capacity || !s->cut)) || (p->buckets && !p->reservation))
        return QOS_EINVAL;
    if (p->servers > solver->config.servers || p->buckets > solver->config.buckets)
        return QOS_EMEMORY;
    entries = p->row[p->buckets];
    if (p->row[0] != 0 || (entries && (!p->server || !p->demand || !s->alloc)))
        return QOS_EINVAL;
    if (entries > solver->config.entries)
        return QOS_EMEMORY;
    for (j = 0; j < p->servers; j++)
        bits |= p->capacity[j];
    return bits > PSHIFT_COUNT_MAX ? QOS_ERANGE : QOS_OK;
}

/* The same, and checks that the rows are in order. Entries are checked where they are read. */
QOS_PRIV enum qos_status pshift_priv_check(const struct pshift_solver *solver, const struct pshift_problem *p,
                                           const struct pshift_solution *s)
{
    enum qos_status st = pshift_priv_check_frame(solver, p, s);
    uint32_t i;
    bool sorted = true;
    for (i = 0; st == QOS_OK && i < p->buckets; i++)
        sorted &= p->row[i] <= p->row[i + 1];
    return sorted ? st : QOS_EINVAL;
}

/* Computes the loads from the balances and fills in *s. Without a proof, or if no server is overloaded, X is empty. */
QOS_PRIV void pshift_priv_conclude(struct pshift_solver *solver, const struct pshift_problem *p,
                                   struct pshift_solution *s, bool exact)
{
    struct qos_u128 excess = {0, 0};
    uint32_t j;
    s->cut_capacity = pshift_priv_u128(0);
    s->cut_servers = 0;
    for (j = 0; j < p->servers; j++) {
        const int64_t balance = solver->balance[j];
        struct qos_u128 over = {solver->excess_more[j] >> 2, (solver->excess_more[j] & 3u) << 62};
        pshift_priv_add(&over, balance > 0 ? (uint64_t)balance : 0);
        excess = qos_add_wide(excess, over);
        solver->load[j] = over;
        pshift_priv_add(&solver->load[j], p->capacity[j] - (balance < 0 ? (uint64_t)-balance : 0));
    }
    QOS_ASSERT(qos_cmp_wide(excess, solver->info.excess_start) <= 0);
    for (j = 0; j < p->servers; j++) {
        s->cut[j] = exact && (excess.hi | excess.lo) != 0 ? solver->mark[j] & PSHIFT_PRIV_CUT : 0;
        solver->mark[j] = s->cut[j];
        s->cut_servers += s->cut[j];
        pshift_priv_add(&s->cut_capacity, s->cut[j] ? p->capacity[j] : 0);
    }
    s->tokens = solver->tokens;
    s->unclaimed = solver->unclaimed;
    s->excess = excess;
    s->effective = qos_sub_wide(solver->tokens, excess);
    QOS_ASSERT(qos_cmp_wide(s->cut_capacity, s->effective) <= 0); /* each server of X is full */
    s->cut_demand = qos_sub_wide(exact ? s->effective : s->tokens, s->cut_capacity);
    s->exact = exact;
    s->shortfall_set = false;
}

/* Row i's part of cut_demand: min(A_i, its demand outside X). */
QOS_PRIV struct qos_u128 pshift_priv_outside(const struct pshift_solver *solver, const struct pshift_problem *p,
                                             const struct pshift_solution *s, uint32_t i)
{
    uint64_t tokens = 0, outside = 0; /* tokens: at most R_i */
    uint32_t e;
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        tokens += s->alloc[e];
        if (!(solver->mark[p->server[e]] & PSHIFT_PRIV_CUT))
            outside = qos_sat_add(outside, p->demand[e]);
    }
    return pshift_priv_u128(qos_min(tokens, outside));
}

/* Is cut(X) = Phi after a warm start? If X is the last solution's, its cut_demand changed by the changed rows only. If
 * not, all rows are added up. */
QOS_PRIV bool pshift_priv_proved(struct pshift_solver *solver, const struct pshift_problem *p,
                                 const struct pshift_solution *s)
{
    uint32_t i;
    if (s->cut_servers == 0)
        return (s->excess.hi | s->excess.lo) == 0;
    if (solver->moved) {
        solver->cut_demand = pshift_priv_u128(0);
        for (i = 0; i < p->buckets; i++)
            solver->cut_demand = qos_add_wide(solver->cut_demand, pshift_priv_outside(solver, p, s, i));
    }
    return pshift_priv_same(solver->cut_demand, s->cut_demand);
}

/* From loads to the solution: steps 2 to 5. kept: no row leads out of the marked X. Then X is still the cut if
 * shifts inside X and shifts outside X suffice. */
QOS_PRIV void pshift_priv_shift_all(struct pshift_solver *solver, const struct pshift_options *opt,
                                    struct pshift_priv_job *job, struct pshift_solution *s, bool kept)
{
    const struct pshift_solver_state no_work = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, 0, 0, 0, false};
    const struct pshift_problem *p = job->p;
    bool initial_only = opt && opt->initial_only;
    uint32_t j;
    solver->info = no_work;
    solver->moved = false;
    solver->info.excess_start = pshift_priv_weigh(solver, p);
    if (!initial_only && !(kept && pshift_priv_wrong(solver, p->servers) == 0)) {
        solver->moved = !kept;
        if (!kept)
            for (j = 0; j < p->servers; j++) /* an old X is no longer a certificate */
                solver->mark[j] &= (uint8_t)~PSHIFT_PRIV_CUT;
        if (!job->warm)
            pshift_priv_direct(solver, opt, job);
        pshift_priv_settle(job, 0);
        pshift_priv_settle(job, PSHIFT_PRIV_CUT);
        pshift_priv_progress(job);
    }
    QOS_ASSERT(initial_only || pshift_priv_wrong(solver, p->servers) == 0);
    pshift_priv_conclude(solver, p, s, !initial_only);
    solver->servers = p->servers;
    solver->buckets = p->buckets;
    solver->entries = p->row[p->buckets];
    solver->alloc = s->alloc;
}

QOS_API enum qos_status pshift_solver_solve(struct pshift_solver *solver, const struct pshift_problem *problem,
                                            const struct pshift_options *options, struct pshift_solution *solution)
{
    struct pshift_priv_job job = {solver, problem, NULL, NULL, 0, 0, false, false};
    enum qos_status st = pshift_priv_check(solver, problem, solution);
    uint32_t i;
    if (st != QOS_OK)
        return st;
    job.alloc = solution->alloc;
    job.rows = problem->buckets;
    job.shards = pshift_priv_shards(problem->row[problem->buckets]);
    st = pshift_priv_start(solver, options, &job);
    if (st != QOS_OK) {
        solver->alloc = solver->alloc == solution->alloc ? NULL : solver->alloc;
        return st;
    }
    for (i = 0; i < solver->buckets && solver->retracted; i++)
        solver->rows[i].label = 0;
    solver->retracted = 0;
    solver->next_row = 0;
    pshift_priv_shift_all(solver, options, &job, solution, false);
    solver->cut_demand = solution->cut_demand;
    return QOS_OK;
}

#define PSHIFT_PRIV_RETRACTED UINT32_MAX /* a row's label, between retract and resolve */

QOS_PRIV bool pshift_priv_has_cut(const struct pshift_solver *solver)
{
    uint32_t j;
    unsigned any = 0;
    for (j = 0; j < solver->servers; j++)
        any |= solver->mark[j];
    return (any & PSHIFT_PRIV_CUT) != 0;
}

QOS_PRIV bool pshift_priv_same_size(const struct pshift_solver *solver, const struct pshift_problem *p)
{
    return solver->alloc && p->servers == solver->servers && p->buckets == solver->buckets &&
           p->row[p->buckets] == solver->entries;
}

QOS_API enum qos_status pshift_solver_retract(struct pshift_solver *solver, const uint32_t *bucket, uint32_t count,
                                              const struct pshift_problem *problem,
                                              const struct pshift_solution *solution)
{
    enum qos_status st = pshift_priv_check_frame(solver, problem, solution);
    const bool cut = pshift_priv_has_cut(solver);
    uint32_t t, u, e;
    if (st != QOS_OK)
        return st;
    if (!pshift_priv_same_size(solver, problem) || (count && !bucket))
        return QOS_EINVAL;
    for (t = 0; t < count; t++)
        if (bucket[t] >= problem->buckets)
            return QOS_ENOENT;
    for (t = 0; t < count; t++) { /* rows may lie anywhere in memory: prefetch */
        __builtin_prefetch(solver->rows + bucket[count - t > 16 ? t + 16 : t], 1);
        __builtin_prefetch(problem->row + bucket[t]);
        __builtin_prefetch(problem->reservation + bucket[t]);
        if (solver->rows[bucket[t]].label == PSHIFT_PRIV_RETRACTED) {
            for (u = 0; u < t; u++)
                solver->rows[bucket[u]].label = 0;
            return QOS_EEXIST;
        }
        solver->rows[bucket[t]].label = PSHIFT_PRIV_RETRACTED;
    }
    for (t = 0; t < count; t++) {
        struct qos_u128 tokens = {0, 0};
        if (count - t > 16) {
            u = problem->row[bucket[t + 16]];
            __builtin_prefetch(solution->alloc + u);
            __builtin_prefetch(solution->alloc + u + 7);
            __builtin_prefetch(problem->server + u);
        }
        for (e = problem->row[bucket[t]]; e < problem->row[bucket[t] + 1]; e++) {
            pshift_priv_add(&tokens, solution->alloc[e]);
            solver->load[problem->server[e]] =
                qos_sub_wide(solver->load[problem->server[e]], pshift_priv_u128(solution->alloc[e]));
        }
        solver->tokens = qos_sub_wide(solver->tokens, tokens);
        if (cut)
            solver->cut_demand =
                qos_sub_wide(solver->cut_demand, pshift_priv_outside(solver, problem, solution, bucket[t]));
        solver->unclaimed =
            qos_sub_wide(solver->unclaimed, pshift_priv_u128(problem->reservation[bucket[t]] - tokens.lo));
    }
    solver->retracted += count;
    QOS_ASSERT(solver->retracted <= solver->buckets);
    return QOS_OK;
}

/* Is row i retracted, and is its new content valid? */
QOS_PRIV enum qos_status pshift_priv_check_row(const struct pshift_solver *solver, const struct pshift_problem *p,
                                               uint32_t i)
{
    uint64_t bits = p->reservation[i];
    uint32_t e;
    if (solver->rows[i].label != PSHIFT_PRIV_RETRACTED || p->row[i] > p->row[i + 1] || p->row[i + 1] > solver->entries)
        return QOS_EINVAL;
    for (e = p->row[i]; e < p->row[i + 1]; e++) {
        if (p->server[e] >= p->servers)
            return QOS_EINVAL;
        bits |= p->demand[e];
    }
    return bits > PSHIFT_COUNT_MAX ? QOS_ERANGE : QOS_OK;
}

QOS_API enum qos_status pshift_solver_resolve(struct pshift_solver *solver, const uint32_t *bucket, uint32_t count,
                                              const struct pshift_problem *problem,
                                              const struct pshift_options *options, struct pshift_solution *solution)
{
    struct pshift_priv_job job = {solver, problem, NULL, bucket, count, 1, true, false};
    enum qos_status st = pshift_priv_check_frame(solver, problem, solution);
    const bool cut = pshift_priv_has_cut(solver);
    uint32_t t, good;
    if (st != QOS_OK)
        return st;
    if (!pshift_priv_same_size(solver, problem) || count != solver->retracted || (count && !bucket))
        return QOS_EINVAL;
    for (good = 0; good < count && st == QOS_OK; good += st == QOS_OK ? 1u : 0u) {
        st = bucket[good] < problem->buckets ? pshift_priv_check_row(solver, problem, bucket[good]) : QOS_EINVAL;
        if (st == QOS_OK)
            solver->rows[bucket[good]].label = 0; /* not twice */
    }
    for (t = 0; t < good && st != QOS_OK; t++)
        solver->rows[bucket[t]].label = PSHIFT_PRIV_RETRACTED;
    if (st != QOS_OK)
        return st;
    if (solver->entries >= PSHIFT_SHARD_ENTRIES &&
        count > problem->buckets / PSHIFT_WARM_PART / (cut ? 4 : 1)) /* cheaper */
        return pshift_solver_solve(solver, problem, options, solution);
    job.alloc = solution->alloc;
    job.expel = cut;
    solver->retracted = 0;
    (void)pshift_priv_start(solver, NULL, &job); /* all rows are checked */
    for (t = 0; t < count && cut; t++)
        solver->cut_demand =
            qos_add_wide(solver->cut_demand, pshift_priv_outside(solver, problem, solution, bucket[t]));
    pshift_priv_shift_all(solver, options, &job, solution, !solver->part[0].leads);
    if (!solution->exact || pshift_priv_proved(solver, problem, solution))
        return QOS_OK;
    st = pshift_solver_solve(solver, problem, options, solution);
    solver->info.repeated = true;
    return st;
}

QOS_API enum qos_status pshift_solver_info(const struct pshift_solver *solver, struct pshift_solver_state *out)
{
    QOS_ASSERT(solver && out);
    *out = solver->info;
    return QOS_OK;
}

QOS_API enum qos_status pshift_solver_verify(struct pshift_solver *solver, const struct pshift_problem *problem,
                                             const struct pshift_solution *solution)
{
    struct pshift_solution real;
    enum qos_status st = pshift_priv_check(solver, problem, solution);
    bool same;
    if (st != QOS_OK)
        return st;
    st = pshift_priv_account(solver, problem, solution, &real);
    if (st != QOS_OK)
        return st;
    same = pshift_priv_same(real.tokens, solution->tokens) && pshift_priv_same(real.unclaimed, solution->unclaimed) &&
           pshift_priv_same(real.effective, solution->effective) && pshift_priv_same(real.excess, solution->excess) &&
           pshift_priv_same(real.cut_capacity, solution->cut_capacity) &&
           pshift_priv_same(real.cut_demand, solution->cut_demand) && real.cut_servers == solution->cut_servers;
    if (same && solution->exact) /* max-flow min-cut */
        same = pshift_priv_same(qos_add_wide(real.cut_capacity, real.cut_demand), real.effective);
    if (same && solution->shortfall_set && problem->buckets)
        same = solution->shortfall && pshift_priv_shortfalls(solver, problem, solution, false);
    return same ? QOS_OK : QOS_ECORRUPT;
}

QOS_API enum qos_status pshift_solver_shortfall(struct pshift_solver *solver, const struct pshift_problem *problem,
                                                struct pshift_solution *solution)
{
    enum qos_status st = pshift_solver_verify(solver, problem, solution); /* leaves the loads */
    if (st != QOS_OK)
        return st;
    if (!solution->shortfall && problem->buckets)
        return QOS_EINVAL;
    solution->shortfall_set = pshift_priv_shortfalls(solver, problem, solution, true);
    return QOS_OK;
}

QOS_API bool pshift_solution_binds(const struct pshift_solution *solution, uint32_t bucket,
                                   const struct pshift_problem *problem)
{
    struct qos_u128 total = {0, 0}, outside = {0, 0}, want = {0, problem->reservation[bucket]};
    uint32_t e;
    for (e = problem->row[bucket]; e < problem->row[bucket + 1]; e++) {
        pshift_priv_add(&total, problem->demand[e]);
        if (!solution->cut[problem->server[e]])
            pshift_priv_add(&outside, problem->demand[e]);
    }
    return qos_cmp_wide(outside, want) < 0 && qos_cmp_wide(outside, total) < 0;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: scheduler ========================================================================================
 *
 *   Algorithm 1 of the paper, weighted as in Section V. Step 1: round robin over the queues that have requests and
 *   R-tokens. Step 2, if there are none: round robin over the queues that have requests and L-tokens. A queue of
 *   weight w keeps its turn for w requests, as long as it stays eligible. Step 3, the delay, is the caller's (next_ns).
 *
 *   Where we differ: in step 1 a turn is longer by a factor of 2 r / mean, rounded, 1 to 16. r: the queue's R-tokens;
 *   mean: of r, over the queues of step 1. If demand comes evenly and each queue spends its R-tokens evenly, what is
 *   left of a plan stays a plan that can be met. With equal turns, queues with few R-tokens spend theirs early and get
 *   more than they need; a bucket whose R-tokens are all at one full server is served late, and too little.
 *
 *   And the paper has one position for both steps. If the requests of a bucket with R-tokens come one by one, each
 *   moves the position of step 2 too, and the queues behind it wait without end. Here each step has its own position,
 *   so every wait is bounded (THE CONTRACT).
 *
 *   A set of queues is a bitmap with two summary levels. A summary bit is set if its word one level below is not zero.
 *   Finding the next member reads at most 12 words, for 10 queues as for 200,000:
 *
 *       level 2                    1 word     .......1  this word of level 1 is not zero
 *       level 1               up to 64 words  ...1....  this word of level 0 is not zero
 *       level 0            up to 4096 words   .1......  this queue is a member
 *
 *   Invariants:
 *   1. A queue is in `reserved` if and only if it has requests and R-tokens; in `normal`, requests and L-tokens.
 *      `members` and `tokens` are of `reserved`: its size, and the R-tokens as its queues entered, got others or began
 *      their last turn.
 *   2. `touched` holds every queue whose requests or service changed since the agent last measured it.
 *   3. Each request served consumes a token, unless pshift_scheduler_force serves it in debt. Then the next token pays
 *      for it, once. A request counts as paid (served - debt) in the period of its token.
 *   4. From void_ns on, by the caller's clock, no token is left that an agent installed before: limited queues have the
 *      default, the others the R-tokens of their last period again, once each period_ns until a new grant comes.
 */

#define PSHIFT_PRIV_TURN_MAX 16u
#define PSHIFT_PRIV_COUNTED_MAX (PSHIFT_COUNT_MAX / PSHIFT_QUEUES_MAX / 4) /* so products and sums fit */

struct pshift_priv_queue {
    uint64_t pending, r_tokens, l_tokens;
    uint64_t renewal; /* R-tokens of this period so far, spent ones too; at least r_tokens */
    uint64_t counted; /* its part of the scheduler's `tokens`; 0: it is not in `reserved` */
    qos_counter_t served, borrowed, waited, debt;
    uint64_t idle_from, idle; /* since none waits: counters.granted; granted before that, since the last measure */
    uint32_t weight;
};

/* A set of queues. */
struct pshift_priv_set {
    uint64_t *word[3];
};

/* Position of one step's round robin. */
struct pshift_priv_cursor {
    uint32_t next; /* where the search begins */
    uint32_t turn; /* queue whose turn it is, QOS_NONE between turns */
    uint64_t left; /* requests left in its turn */
};

struct pshift_scheduler {
    struct pshift_scheduler_config config;
    struct pshift_priv_queue *queue; /* [queues] */
    struct pshift_priv_set reserved, normal, touched;
    struct pshift_priv_cursor r, l;
    uint64_t tokens;  /* invariant 1 */
    uint32_t members; /* invariant 1 */
    uint32_t busy;    /* queues with requests */
    struct qos_counters counters;
    qos_counter_t debt;
    uint64_t measured;                    /* counters.granted when the agent last measured */
    uint64_t void_ns;                     /* when the tokens end; without an agent: never */
    uint64_t period_ns, default_l_tokens; /* the agent's */
};

#ifndef QOS_DECLARE_ONLY

QOS_PRIV uint32_t pshift_priv_words(uint32_t queues, int level)
{
    uint32_t per = level == 0 ? 64 : level == 1 ? 4096 : 262144;
    return queues / per + (queues % per != 0);
}

QOS_PRIV void pshift_priv_set_layout(struct qos_layout *layout, struct pshift_priv_set *set, uint32_t queues)
{
    int level;
    for (level = 0; level < 3; level++)
        set->word[level] =
            (uint64_t *)qos_layout_part(layout, pshift_priv_words(queues, level), sizeof(uint64_t), QOS_CACHE_LINE);
}

QOS_PRIV void pshift_priv_set_clear(struct pshift_priv_set *set, uint32_t queues)
{
    uint32_t i;
    int level;
    for (level = 0; level < 3; level++)
        for (i = 0; i < pshift_priv_words(queues, level); i++)
            set->word[level][i] = 0;
}

QOS_PRIV bool pshift_priv_set_has(const struct pshift_priv_set *set, uint32_t q)
{
    return (set->word[0][q / 64] >> q % 64 & 1) != 0;
}

QOS_PRIV void pshift_priv_set_write(struct pshift_priv_set *set, uint32_t q, bool in)
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

/* First member at or after q, QOS_NONE if there is none. Reads one word per level, up and then down. */
QOS_PRIV uint32_t pshift_priv_set_from(const struct pshift_priv_set *set, uint32_t q, uint32_t queues)
{
    uint32_t at = q;
    int level = 0;
    while (level < 3) {
        uint64_t word = at / 64 < pshift_priv_words(queues, level) ? set->word[level][at / 64] : 0;
        word &= UINT64_MAX - ((UINT64_C(1) << at % 64) - 1);
        if (word != 0) {
            at = at / 64 * 64 + qos_ctz64(word);
            while (level-- > 0) {
                QOS_ASSERT(set->word[level][at] != 0);
                at = at * 64 + qos_ctz64(set->word[level][at]);
            }
            return at;
        }
        at = at / 64 + 1;
        level++;
    }
    return QOS_NONE;
}

QOS_PRIV bool pshift_priv_set_empty(const struct pshift_priv_set *set)
{
    return set->word[2][0] == 0;
}

/* The same, but after the last queue the search goes on at queue 0. */
QOS_PRIV uint32_t pshift_priv_set_around(const struct pshift_priv_set *set, uint32_t q, uint32_t queues)
{
    uint32_t found;
    if (pshift_priv_set_empty(set))
        return QOS_NONE;
    found = pshift_priv_set_from(set, q, queues);
    return found != QOS_NONE ? found : pshift_priv_set_from(set, 0, queues);
}

QOS_PRIV void pshift_priv_scheduler_layout(struct qos_layout *layout, struct pshift_scheduler *scheduler,
                                           const struct pshift_scheduler_config *config)
{
    scheduler->queue = (struct pshift_priv_queue *)qos_layout_part(layout, config->queues,
                                                                   sizeof(struct pshift_priv_queue), QOS_CACHE_LINE);
    pshift_priv_set_layout(layout, &scheduler->reserved, config->queues);
    pshift_priv_set_layout(layout, &scheduler->normal, config->queues);
    pshift_priv_set_layout(layout, &scheduler->touched, config->queues);
}

QOS_API const char *pshift_scheduler_config_error(const struct pshift_scheduler_config *config)
{
    if (!config)
        return "config: is NULL; give a struct pshift_scheduler_config";
    if (config->queues == 0 || config->queues > PSHIFT_QUEUES_MAX)
        return "queues: give 1..PSHIFT_QUEUES_MAX, one for each bucket that is served here at a time";
    if (config->debt_max_ops > QOS_TOKENS_MAX)
        return "debt_max_ops: give at most QOS_TOKENS_MAX, or 0 for 1024";
    return NULL;
}

QOS_API size_t pshift_scheduler_memsize(const struct pshift_scheduler_config *config)
{
    struct pshift_scheduler scratch;
    struct qos_layout layout;
    if (pshift_scheduler_config_error(config))
        return 0;
    qos_layout_begin(&layout, NULL);
    pshift_priv_scheduler_layout(&layout, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status pshift_scheduler_init(struct pshift_scheduler *scheduler, void *mem, size_t size_bytes,
                                              const struct pshift_scheduler_config *config)
{
    const struct pshift_priv_queue empty = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    const struct pshift_priv_cursor start = {0, QOS_NONE, 0};
    struct pshift_scheduler scratch;
    struct qos_layout layout;
    enum qos_status status = pshift_priv_config_status(config, pshift_scheduler_config_error(config));
    uint32_t i;
    QOS_ASSERT(scheduler);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, NULL);
    pshift_priv_scheduler_layout(&layout, &scratch, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, mem);
    pshift_priv_scheduler_layout(&layout, scheduler, config);
    scheduler->config = *config;
    scheduler->config.debt_max_ops = qos_default(config->debt_max_ops, 1024);
    for (i = 0; i < config->queues; i++)
        scheduler->queue[i] = empty;
    pshift_priv_set_clear(&scheduler->reserved, config->queues);
    pshift_priv_set_clear(&scheduler->normal, config->queues);
    pshift_priv_set_clear(&scheduler->touched, config->queues);
    scheduler->r = scheduler->l = start;
    scheduler->tokens = 0;
    scheduler->members = scheduler->busy = 0;
    scheduler->counters.granted = scheduler->counters.borrowed = 0;
    scheduler->counters.refused = scheduler->counters.waited = 0;
    scheduler->debt = scheduler->default_l_tokens = scheduler->measured = 0;
    scheduler->void_ns = scheduler->period_ns = QOS_NEVER;
    return QOS_OK;
}

QOS_PRIV void pshift_priv_touch(struct pshift_scheduler *scheduler, uint32_t queue)
{
    if (!pshift_priv_set_has(&scheduler->touched, queue))
        pshift_priv_set_write(&scheduler->touched, queue, true);
}

QOS_PRIV void pshift_priv_count(struct pshift_scheduler *scheduler, struct pshift_priv_queue *q)
{
    const uint64_t tokens = q->pending != 0 ? qos_min(q->r_tokens, PSHIFT_PRIV_COUNTED_MAX) : 0;
    if ((tokens != 0) != (q->counted != 0))
        scheduler->members = tokens != 0 ? scheduler->members + 1 : scheduler->members - 1;
    scheduler->tokens = scheduler->tokens - q->counted + tokens;
    q->counted = tokens;
}

/* Restores invariant 1 for the queue. */
QOS_PRIV void pshift_priv_place(struct pshift_scheduler *scheduler, uint32_t queue)
{
    struct pshift_priv_queue *q = &scheduler->queue[queue];
    pshift_priv_count(scheduler, q);
    pshift_priv_set_write(&scheduler->reserved, queue, q->pending != 0 && q->r_tokens != 0);
    pshift_priv_set_write(&scheduler->normal, queue, q->pending != 0 && q->l_tokens != 0);
}

/* Of an empty queue: requests that others were granted meanwhile, since the last measure. */
QOS_PRIV uint64_t pshift_priv_idle(const struct pshift_scheduler *scheduler, const struct pshift_priv_queue *q)
{
    return scheduler->counters.granted - qos_max(q->idle_from, scheduler->measured);
}

QOS_API enum qos_status pshift_scheduler_arrive(struct pshift_scheduler *scheduler, uint32_t queue, uint64_t n)
{
    struct pshift_priv_queue *q;
    bool idle;
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    q = &scheduler->queue[queue];
    idle = q->pending == 0;
    if (!qos_checked_add(q->pending, n, &q->pending))
        return QOS_ERANGE;
    if (idle && n != 0) {
        q->idle += pshift_priv_idle(scheduler, q);
        scheduler->busy++;
        pshift_priv_place(scheduler, queue);
    }
    pshift_priv_touch(scheduler, queue);
    qos_counter_add(&q->waited, n);
    qos_counter_add(&scheduler->counters.waited, n);
    return QOS_OK;
}

QOS_API enum qos_status pshift_scheduler_cancel(struct pshift_scheduler *scheduler, uint32_t queue, uint64_t n)
{
    struct pshift_priv_queue *q;
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    q = &scheduler->queue[queue];
    if (n > q->pending)
        return QOS_ERANGE;
    scheduler->busy -= n != 0 && n == q->pending ? 1u : 0u;
    q->pending -= n;
    if (n != 0 && q->pending == 0)
        q->idle_from = scheduler->counters.granted;
    pshift_priv_place(scheduler, queue);
    pshift_priv_touch(scheduler, queue);
    return QOS_OK;
}

QOS_API enum qos_status pshift_scheduler_change(struct pshift_scheduler *scheduler, uint32_t queue, uint32_t weight)
{
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    scheduler->queue[queue].weight = weight ? weight : 1;
    return QOS_OK;
}

/* Takes up to n from *tokens, which may be unlimited. */
QOS_PRIV uint64_t pshift_priv_spend(uint64_t *tokens, uint64_t n)
{
    uint64_t m = qos_min(*tokens, n);
    if (*tokens != QOS_UNLIMITED)
        *tokens -= m;
    return m;
}

/* Replaces the queue's tokens, and pays its debt from the new ones. */
QOS_PRIV void pshift_priv_put_tokens(struct pshift_scheduler *scheduler, uint32_t queue, uint64_t r_tokens,
                                     uint64_t l_tokens)
{
    struct pshift_priv_queue *q = &scheduler->queue[queue];
    uint64_t paid;
    q->r_tokens = r_tokens;
    q->l_tokens = l_tokens;
    paid = pshift_priv_spend(&q->r_tokens, q->debt);
    paid += pshift_priv_spend(&q->l_tokens, q->debt - paid);
    qos_counter_add(&q->debt, qos_wrap_sub(0, paid));
    qos_counter_add(&scheduler->debt, qos_wrap_sub(0, paid));
    QOS_ASSERT(q->debt == 0 || (q->r_tokens == 0 && q->l_tokens == 0));
    QOS_ASSERT(q->debt <= scheduler->debt);
    pshift_priv_place(scheduler, queue);
    if (paid != 0)
        pshift_priv_touch(scheduler, queue);
}

QOS_API enum qos_status pshift_scheduler_set_tokens(struct pshift_scheduler *scheduler, uint32_t queue,
                                                    uint64_t r_tokens, uint64_t l_tokens)
{
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    pshift_priv_put_tokens(scheduler, queue, r_tokens, l_tokens);
    return QOS_OK;
}

/* Invariant 4, if the tokens' time is over. */
QOS_PRIV void pshift_priv_expire(struct pshift_scheduler *scheduler, uint64_t now_ns)
{
    uint32_t q;
    if (QOS_LIKELY(now_ns < scheduler->void_ns))
        return;
    scheduler->void_ns = qos_sat_add(now_ns, scheduler->period_ns);
    for (q = 0; q < scheduler->config.queues; q++)
        if (scheduler->queue[q].l_tokens == QOS_UNLIMITED)
            pshift_priv_put_tokens(scheduler, q, scheduler->queue[q].renewal, QOS_UNLIMITED);
        else
            pshift_priv_put_tokens(scheduler, q, 0, scheduler->default_l_tokens);
}

/* Serves one request of the queue, paid from *tokens (0: in debt). */
QOS_PRIV void pshift_priv_serve(struct pshift_scheduler *scheduler, uint32_t queue, uint64_t *tokens)
{
    struct pshift_priv_queue *q = &scheduler->queue[queue];
    (void)pshift_priv_spend(tokens, 1);
    q->pending--;
    scheduler->busy -= q->pending == 0 ? 1u : 0u;
    if (q->pending == 0 || *tokens == 0) {
        q->idle_from = scheduler->counters.granted + 1; /* read only if none waits */
        pshift_priv_place(scheduler, queue);
    }
    QOS_ASSERT(pshift_priv_set_has(&scheduler->reserved, queue) == (q->pending != 0 && q->r_tokens != 0));
    QOS_ASSERT(pshift_priv_set_has(&scheduler->normal, queue) == (q->pending != 0 && q->l_tokens != 0));
    pshift_priv_touch(scheduler, queue);
    qos_counter_add(&q->served, 1);
    qos_counter_add(&scheduler->counters.granted, 1);
    if (tokens == &q->l_tokens) {
        qos_counter_add(&q->borrowed, 1);
        qos_counter_add(&scheduler->counters.borrowed, 1);
    }
}

/* Begins a turn of step 1. Returns its requests (see the chapter's head). */
QOS_PRIV uint64_t pshift_priv_r_turn(struct pshift_scheduler *scheduler, struct pshift_priv_queue *q)
{
    uint64_t halves; /* of the factor */
    pshift_priv_count(scheduler, q);
    QOS_ASSERT(q->counted != 0 && q->counted <= scheduler->tokens && scheduler->members != 0);
    halves = 4 * q->counted * scheduler->members / scheduler->tokens;
    return q->weight * qos_min(qos_max((halves + 1) / 2, 1), PSHIFT_PRIV_TURN_MAX);
}

QOS_API enum qos_status pshift_scheduler_pick(struct pshift_scheduler *scheduler, uint64_t now_ns,
                                              struct pshift_pick *pick)
{
    const uint32_t queues = scheduler->config.queues;
    struct pshift_priv_cursor *cursor = &scheduler->r;
    struct pshift_priv_queue *q;
    uint32_t found;
    bool reserved;
    pshift_priv_expire(scheduler, now_ns);
    found = pshift_priv_set_around(&scheduler->reserved, cursor->next, queues);
    reserved = found != QOS_NONE;
    if (!reserved) {
        cursor = &scheduler->l;
        found = pshift_priv_set_around(&scheduler->normal, cursor->next, queues);
    }
    if (found == QOS_NONE) {
        qos_counter_add(&scheduler->counters.refused, scheduler->busy != 0 ? 1 : 0);
        return QOS_EAGAIN;
    }
    q = &scheduler->queue[found];
    QOS_ASSERT(q->pending != 0 && (reserved ? q->r_tokens : q->l_tokens) != 0);
    if (found != cursor->turn) {
        cursor->turn = found;
        cursor->left = reserved ? pshift_priv_r_turn(scheduler, q) : q->weight;
    }
    QOS_ASSERT(cursor->left != 0);
    cursor->left--;
    cursor->next = found;
    if (cursor->left == 0) {
        cursor->turn = QOS_NONE;
        cursor->next = found + 1 == queues ? 0 : found + 1;
    }
    pick->queue = found;
    pick->backing = reserved ? PSHIFT_RESERVATION : PSHIFT_NORMAL;
    pshift_priv_serve(scheduler, found, reserved ? &q->r_tokens : &q->l_tokens);
    return QOS_OK;
}

QOS_API enum qos_status pshift_scheduler_force(struct pshift_scheduler *scheduler, uint64_t now_ns, uint32_t queue)
{
    struct pshift_priv_queue *q;
    uint64_t none = 0;
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    q = &scheduler->queue[queue];
    if (q->pending == 0)
        return QOS_EAGAIN;
    pshift_priv_expire(scheduler, now_ns);
    if (q->r_tokens == 0 && q->l_tokens == 0) {
        if (q->debt >= scheduler->config.debt_max_ops)
            return QOS_EDEBT;
        qos_counter_add(&q->debt, 1);
        qos_counter_add(&scheduler->debt, 1);
        pshift_priv_serve(scheduler, queue, &none);
    } else {
        pshift_priv_serve(scheduler, queue, q->r_tokens ? &q->r_tokens : &q->l_tokens);
    }
    return QOS_OK;
}

QOS_API uint64_t pshift_scheduler_next_ns(const struct pshift_scheduler *scheduler, uint64_t now_ns)
{
    if (!pshift_priv_set_empty(&scheduler->reserved) || !pshift_priv_set_empty(&scheduler->normal))
        return now_ns;
    return scheduler->busy != 0 && scheduler->default_l_tokens != 0 ? scheduler->void_ns : QOS_NEVER;
}

QOS_API enum qos_status pshift_scheduler_stats(const struct pshift_scheduler *scheduler, uint32_t queue,
                                               struct qos_stats *out)
{
    const struct pshift_priv_queue *q;
    if (queue == QOS_NONE) {
        qos_counters_read(&scheduler->counters, out);
        out->debt = qos_counter_read(&scheduler->debt);
        return QOS_OK;
    }
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    q = &scheduler->queue[queue];
    out->granted = qos_counter_read(&q->served);
    out->borrowed = qos_counter_read(&q->borrowed);
    out->refused = 0;
    out->waited = qos_counter_read(&q->waited);
    out->debt = qos_counter_read(&q->debt);
    return QOS_OK;
}

QOS_API enum qos_status pshift_scheduler_info(const struct pshift_scheduler *scheduler, uint32_t queue,
                                              struct pshift_scheduler_state *out)
{
    const struct pshift_priv_queue *q;
    if (queue >= scheduler->config.queues)
        return QOS_ENOENT;
    q = &scheduler->queue[queue];
    out->pending = q->pending;
    out->r_tokens = q->r_tokens;
    out->l_tokens = q->l_tokens;
    out->served = q->served;
    out->debt = q->debt;
    out->weight = q->weight;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: agent ============================================================================================
 *
 *   The server's side of the runtime (Section III-D): it measures, reports and installs grants. The paper leaves the
 *   protocol open; the rules below fill it in. Limits hold when messages are lost; a lost message costs one interval.
 *
 *        what the controller knows of a queue
 *
 *            change, or a grant installed            in a report
 *       known ------------------------> news ------------------------> sent
 *         ^                              ^ change, or no ack             |
 *         |                              +-------------------------------+
 *         +------------------------------------ ack of that report ------+
 *
 *   Invariants:
 *   1. Totals, not increments. A grant says how many requests of a bucket may be paid in the whole period, including
 *      those paid before the grant came. So a late or repeated grant adds nothing.
 *   2. Order. Each queue keeps the number of the last grant installed for it and skips older ones, whatever other
 *      queues do. So a message may hold any part of a round.
 *   3. Acknowledgement both ways. News is reported in every interval until a grant acknowledges the report that
 *      carried it. Each entry of a report names the last grant installed for its bucket. What was served is news, too:
 *      the plan sets it against a capacity that has shrunk by it.
 *   4. Periods never go back. A grant of a smaller period, or of another owner of the same one, is refused. A larger
 *      period voids all tokens before its first grant is installed; then every queue in use is news.
 *   5. Tokens end left_ns after the measurement whose report their grant answers. The owner had left_ns left when that
 *      report came, so they end before its period does, whatever delay the messages had and whatever the clocks say.
 *      They end too early by what passed between the two; the best of the period's grants counts.
 *   6. A restarted server has another boot nonce, no period and no tokens. It refuses grants made for another start.
 *
 *   Estimators (Section III-D leaves them open):
 *      demand = requests that wait + (arrivals of the last interval, extended to the end of the period)
 *      capacity = service of the last interval, extended to the end of the period
 *   A report between two measures takes off what was served since. As a period begins, both are extended anew, to what
 *   is left of it when its first grant comes.
 *   Where some arrived, and some waited while three quarters of that service was granted, the arrivals count 16 times,
 *   as far as the capacity goes: a closed loop, which sends as it is served, would take more, and its arrivals show
 *   only what it was given. (Not all of it: before a device that holds some requests a queue is empty now and then. Not
 *   half: then those that come anyhow are often taken for one. Not all of the capacity: those that come anyhow wait,
 *   too, where others go first, and would be planned where they are few. Not twice: a loop that begins under a limit
 *   would then need several intervals, as its tokens would only double in each.)
 */

#define PSHIFT_PRIV_OPEN 1u
#define PSHIFT_PRIV_CLOSING 2u
#define PSHIFT_PRIV_NEWS 4u   /* to be reported */
#define PSHIFT_PRIV_SENT 8u   /* reported, not acknowledged */
#define PSHIFT_PRIV_ENDED 16u /* closed and idle in the period before, too */
#define PSHIFT_PRIV_LOOP 32u  /* at the last measure taken for a closed loop */

struct pshift_priv_seen {
    uint64_t bucket;
    uint64_t base;      /* paid when the period began */
    uint64_t arrived;   /* served + pending at the last measure */
    uint64_t recent;    /* arrivals of the last interval */
    uint64_t expected;  /* paid in the period + demand, by the last measure */
    uint64_t told;      /* paid in the period + demand, as last reported */
    uint64_t told_paid; /* the first of the two */
    uint64_t sent_seq;  /* of the last report that named the queue */
    uint64_t grant_seq; /* of the last grant installed in this period */
    uint32_t flags;
};

#define PSHIFT_PRIV_STAMPS 32u

/* Reports from number `seq` on are of the measurement at `at_ns`. */
struct pshift_priv_stamp {
    uint64_t seq, at_ns;
};

struct pshift_agent {
    struct pshift_agent_config config;
    struct pshift_scheduler *scheduler;
    struct pshift_priv_seen *seen; /* [queues] */
    uint32_t *slot;                /* hash table: bucket to queue */
    uint32_t *freed;               /* [queues] queues free to be opened */
    struct pshift_priv_set dirty;  /* queues in state news or sent */
    uint32_t slots, used, freed_count, open, dirty_count;
    uint32_t at;        /* queue where the next report begins */
    uint64_t seq;       /* of the last report */
    uint64_t first_seq; /* of this interval's reports */
    uint64_t period;    /* the largest heard of */
    struct qos_u128 owner;
    uint64_t heard;                /* newest grant of this owner */
    uint64_t ends_ns;              /* when the period's tokens end; 0: no grant has come */
    uint64_t granted, interval_ns; /* of the last interval */
    uint64_t expected, left_ns; /* granted in all + capacity, by the last measure; the time that the estimates are of */
    struct pshift_priv_stamp stamp[PSHIFT_PRIV_STAMPS]; /* of the last measurements; the newest is stamps - 1 */
    uint64_t stamps;
    struct pshift_range ack[PSHIFT_RANGES]; /* of the newest grant */
    bool due;                               /* this interval has had no report yet */
};

#ifndef QOS_DECLARE_ONLY

/* Slots of a hash table: a power of two, at least half of them empty. */
QOS_PRIV uint32_t pshift_priv_slots(uint32_t items)
{
    uint32_t slots = 2;
    while (slots / 2 < items)
        slots *= 2;
    return slots;
}

/* Keyed by a nonce, which nobody who chooses ids knows: two rounds of a 64 by 64 bit product, folded. */
QOS_PRIV uint32_t pshift_priv_hash(struct qos_u128 key, uint64_t id, uint64_t more, uint32_t slots)
{
    struct qos_u128 h = qos_mul_wide(id ^ key.lo, (key.hi ^ more) | 1);
    h = qos_mul_wide(h.hi ^ h.lo ^ key.hi, UINT64_C(0x9e3779b97f4a7c15) ^ key.lo);
    return (uint32_t)((h.hi ^ h.lo) >> 32) & (slots - 1);
}

/* Requests of an interval, extended to the end of the period; rounded up, saturating. */
QOS_PRIV uint64_t pshift_priv_extend(uint64_t recent, uint64_t interval_ns, uint64_t remaining_ns)
{
    return interval_ns == 0 ? 0 : qos_mul_div_ceil(recent, remaining_ns, interval_ns);
}

QOS_PRIV void pshift_priv_agent_layout(struct qos_layout *layout, struct pshift_agent *agent,
                                       const struct pshift_agent_config *config)
{
    const uint32_t queues = config->scheduler->config.queues;
    agent->seen =
        (struct pshift_priv_seen *)qos_layout_part(layout, queues, sizeof(struct pshift_priv_seen), QOS_CACHE_LINE);
    agent->slot = (uint32_t *)qos_layout_part(layout, pshift_priv_slots(queues), sizeof(uint32_t), QOS_CACHE_LINE);
    agent->freed = (uint32_t *)qos_layout_part(layout, queues, sizeof(uint32_t), QOS_CACHE_LINE);
    pshift_priv_set_layout(layout, &agent->dirty, queues);
}

QOS_API const char *pshift_agent_config_error(const struct pshift_agent_config *config)
{
    if (!config)
        return "config: is NULL; give a struct pshift_agent_config";
    if (!config->scheduler)
        return "scheduler: is NULL; give an initialised struct pshift_scheduler";
    if ((config->boot.hi | config->boot.lo) == 0)
        return "boot: give 128 random bits, new at each start of the server";
    if (config->unchanged_permille > 1000)
        return "unchanged_permille: give at most 1000";
    return NULL;
}

QOS_API size_t pshift_agent_memsize(const struct pshift_agent_config *config)
{
    struct pshift_agent scratch;
    struct qos_layout layout;
    if (pshift_agent_config_error(config))
        return 0;
    qos_layout_begin(&layout, NULL);
    pshift_priv_agent_layout(&layout, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status pshift_agent_init(struct pshift_agent *agent, void *mem, size_t size_bytes,
                                          const struct pshift_agent_config *config)
{
    const struct pshift_range none = {0, 0};
    const char *error = pshift_agent_config_error(config);
    struct pshift_agent scratch;
    struct qos_layout layout;
    enum qos_status status = pshift_priv_config_status(config && config->scheduler ? config : NULL, error);
    uint32_t q;
    QOS_ASSERT(agent);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, NULL);
    pshift_priv_agent_layout(&layout, &scratch, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, mem);
    pshift_priv_agent_layout(&layout, agent, config);
    agent->config = *config;
    agent->scheduler = config->scheduler;
    agent->slots = pshift_priv_slots(config->scheduler->config.queues);
    for (q = 0; q < config->scheduler->config.queues; q++)
        agent->seen[q].flags = 0;
    for (q = 0; q < agent->slots; q++)
        agent->slot[q] = QOS_NONE;
    pshift_priv_set_clear(&agent->dirty, config->scheduler->config.queues);
    agent->used = agent->freed_count = agent->open = agent->dirty_count = agent->at = 0;
    agent->seq = agent->period = agent->heard = agent->ends_ns = agent->stamps = 0;
    agent->granted = agent->interval_ns = agent->expected = agent->left_ns = 0;
    agent->first_seq = 1;
    agent->owner.hi = agent->owner.lo = 0;
    for (q = 0; q < PSHIFT_RANGES; q++)
        agent->ack[q] = none;
    agent->scheduler->measured = agent->scheduler->counters.granted;
    agent->due = false;
    agent->scheduler->default_l_tokens = config->default_l_tokens;
    agent->scheduler->period_ns = agent->config.period_ns = qos_default(config->period_ns, QOS_NS_PER_S);
    return QOS_OK;
}

/* Requests of the queue that a token has paid. */
QOS_PRIV uint64_t pshift_priv_paid(const struct pshift_priv_queue *queue)
{
    QOS_ASSERT(queue->debt <= queue->served);
    return queue->served - queue->debt;
}

/* Slot of the bucket, or the empty slot where it would go. */
QOS_PRIV uint32_t pshift_priv_agent_slot(const struct pshift_agent *agent, uint64_t bucket)
{
    uint32_t at = pshift_priv_hash(agent->config.boot, bucket, 0, agent->slots);
    while (agent->slot[at] != QOS_NONE && agent->seen[agent->slot[at]].bucket != bucket)
        at = (at + 1) & (agent->slots - 1);
    return at;
}

QOS_API enum qos_status pshift_agent_open(struct pshift_agent *agent, uint64_t bucket, uint32_t *queue)
{
    const uint32_t at = pshift_priv_agent_slot(agent, bucket);
    uint32_t q = agent->slot[at];
    if (q == QOS_NONE) {
        const struct pshift_priv_seen blank = {bucket, 0, 0, 0, 0, 0, 0, 0, 0, PSHIFT_PRIV_OPEN};
        if (agent->used < agent->scheduler->config.queues)
            q = agent->used++;
        else if (agent->freed_count != 0)
            q = agent->freed[--agent->freed_count];
        else
            return QOS_EFULL;
        agent->seen[q] = blank;
        agent->seen[q].base = pshift_priv_paid(&agent->scheduler->queue[q]);
        agent->seen[q].arrived = qos_sat_add(agent->scheduler->queue[q].served, agent->scheduler->queue[q].pending);
        agent->slot[at] = q;
        agent->open++;
        QOS_ASSERT(agent->open + agent->freed_count == agent->used);
        agent->scheduler->queue[q].renewal = 0;
        pshift_priv_put_tokens(agent->scheduler, q, 0, agent->config.default_l_tokens);
    }
    agent->seen[q].flags &= ~(PSHIFT_PRIV_CLOSING | PSHIFT_PRIV_ENDED);
    *queue = q;
    return QOS_OK;
}

QOS_API enum qos_status pshift_agent_close(struct pshift_agent *agent, uint64_t bucket)
{
    const uint32_t q = agent->slot[pshift_priv_agent_slot(agent, bucket)];
    if (q == QOS_NONE)
        return QOS_ENOENT;
    if (agent->scheduler->queue[q].pending != 0)
        return QOS_EBUSY;
    agent->seen[q].flags |= PSHIFT_PRIV_CLOSING;
    return QOS_OK;
}

/* Sets the queue's flags NEWS and SENT; keeps `dirty` and its count in step. */
QOS_PRIV void pshift_priv_agent_flag(struct pshift_agent *agent, uint32_t q, uint32_t flags)
{
    const uint32_t both = PSHIFT_PRIV_NEWS | PSHIFT_PRIV_SENT;
    struct pshift_priv_seen *s = &agent->seen[q];
    bool was = (s->flags & both) != 0, is = flags != 0;
    s->flags = (s->flags & ~both) | flags;
    if (was == is)
        return;
    pshift_priv_set_write(&agent->dirty, q, is);
    agent->dirty_count = is ? agent->dirty_count + 1 : agent->dirty_count - 1;
    QOS_ASSERT((agent->dirty_count == 0) == pshift_priv_set_empty(&agent->dirty));
}

/* Frees closed queues that owe nothing and that the controller knows to be idle; rehashes the others. The next bucket
 * finds a queue like a new one. */
QOS_PRIV void pshift_priv_agent_free(struct pshift_agent *agent)
{
    uint32_t q;
    for (q = 0; q < agent->slots; q++)
        agent->slot[q] = QOS_NONE;
    for (q = 0; q < agent->used; q++) {
        struct pshift_priv_seen *s = &agent->seen[q];
        bool idle = (s->flags & PSHIFT_PRIV_CLOSING) && s->told == 0 && agent->scheduler->queue[q].pending == 0 &&
                    agent->scheduler->queue[q].debt == 0;
        if (!(s->flags & PSHIFT_PRIV_OPEN))
            continue;
        if (idle && (s->flags & (PSHIFT_PRIV_SENT | PSHIFT_PRIV_ENDED)) != PSHIFT_PRIV_SENT) {
            pshift_priv_agent_flag(agent, q, 0);
            s->flags = 0;
            pshift_priv_put_tokens(agent->scheduler, q, 0, 0);
            agent->scheduler->queue[q].weight = 1;
            if (agent->scheduler->r.turn == q)
                agent->scheduler->r.turn = QOS_NONE;
            if (agent->scheduler->l.turn == q)
                agent->scheduler->l.turn = QOS_NONE;
            agent->freed[agent->freed_count++] = q;
            agent->open--;
        } else {
            s->flags |= idle ? PSHIFT_PRIV_ENDED : 0; /* it says so for one more period */
            agent->slot[pshift_priv_agent_slot(agent, s->bucket)] = q;
        }
    }
}

/* What the estimates are of, if the period's tokens end at ends_ns. */
QOS_PRIV uint64_t pshift_priv_agent_left(const struct pshift_agent *agent, uint64_t now_ns, uint64_t ends_ns)
{
    return ends_ns > now_ns ? qos_min(ends_ns - now_ns, agent->config.period_ns) : agent->config.period_ns;
}

/* What the server is expected to serve in left_ns from now on, by the last interval. */
QOS_PRIV void pshift_priv_agent_expect(struct pshift_agent *agent, uint64_t left_ns)
{
    agent->left_ns = left_ns;
    agent->expected = qos_sat_add(agent->scheduler->counters.granted,
                                  pshift_priv_extend(agent->granted, agent->interval_ns, left_ns));
}

/* How much of that is still to come. */
QOS_PRIV uint64_t pshift_priv_agent_capacity(const struct pshift_agent *agent)
{
    return qos_sat_sub(agent->expected, agent->scheduler->counters.granted);
}

/* The same of a queue: what it is expected to ask for. */
QOS_PRIV void pshift_priv_agent_demand(struct pshift_agent *agent, uint32_t q)
{
    const struct pshift_priv_queue *queue = &agent->scheduler->queue[q];
    struct pshift_priv_seen *s = &agent->seen[q];
    const uint64_t arrivals = pshift_priv_extend(s->recent, agent->interval_ns, agent->left_ns);
    s->expected = qos_sat_add(queue->pending, arrivals);
    if (s->flags & PSHIFT_PRIV_LOOP)
        s->expected = qos_max(s->expected, qos_min(qos_sat_add(queue->pending, qos_sat_mul(arrivals, 16)),
                                                   pshift_priv_agent_capacity(agent)));
    s->expected = qos_sat_add(s->expected, qos_sat_add(pshift_priv_paid(queue) - s->base, queue->debt));
}

/* Invariant 4: a larger period begins, of which left_ns is left. */
QOS_PRIV void pshift_priv_agent_begin(struct pshift_agent *agent, uint64_t now_ns, uint64_t left_ns,
                                      const struct pshift_message *message)
{
    uint32_t q;
    if (qos_cmp_wide(agent->owner, message->owner) != 0)
        agent->heard = 0;
    if (agent->period == 0)
        agent->due = true; /* a start answers its first grant */
    agent->owner = message->owner;
    agent->period = message->period;
    agent->ends_ns = 0;
    agent->scheduler->void_ns = qos_sat_add(now_ns, agent->config.period_ns);
    pshift_priv_agent_expect(agent, left_ns);
    pshift_priv_agent_free(agent);
    for (q = 0; q < agent->used; q++) {
        struct pshift_priv_queue *queue = &agent->scheduler->queue[q];
        struct pshift_priv_seen *s = &agent->seen[q];
        if (!(s->flags & PSHIFT_PRIV_OPEN))
            continue;
        queue->renewal = 0;
        pshift_priv_put_tokens(agent->scheduler, q, 0, agent->config.default_l_tokens);
        s->base = pshift_priv_paid(queue);
        s->told_paid = s->grant_seq = 0;
        pshift_priv_agent_demand(agent, q);
        /* Demand that ended with the last period is news too, or the controller would grant tokens for it. So is its
         * end, if the owner perhaps did not hear it, or was in this period already. */
        pshift_priv_agent_flag(agent, q,
                               (s->flags & PSHIFT_PRIV_SENT) != 0 ||
                                       (s->told | s->expected | queue->pending | queue->debt) != 0
                                   ? PSHIFT_PRIV_NEWS
                                   : 0);
    }
}

/* Does the newest grant acknowledge report `seq`? */
QOS_PRIV bool pshift_priv_acknowledged(const struct pshift_agent *agent, uint64_t seq)
{
    uint32_t k;
    for (k = 0; k < PSHIFT_RANGES; k++)
        if (agent->ack[k].first <= seq && seq <= agent->ack[k].last)
            return true;
    return false;
}

QOS_API void pshift_agent_measure(struct pshift_agent *agent, uint64_t now_ns)
{
    struct pshift_scheduler *scheduler = agent->scheduler;
    const uint32_t queues = scheduler->config.queues;
    const uint64_t last_ns = agent->stamps ? agent->stamp[(agent->stamps - 1) % PSHIFT_PRIV_STAMPS].at_ns : now_ns;
    const uint64_t interval_ns = qos_sat_sub(now_ns, last_ns);
    const uint64_t granted = scheduler->counters.granted - scheduler->measured;
    struct pshift_priv_stamp *stamp = &agent->stamp[agent->stamps++ % PSHIFT_PRIV_STAMPS];
    uint32_t q;
    stamp->seq = agent->first_seq = agent->seq + 1;
    stamp->at_ns = now_ns;
    agent->granted = granted;
    agent->interval_ns = interval_ns;
    pshift_priv_agent_expect(agent, pshift_priv_agent_left(agent, now_ns, agent->ends_ns));
    agent->due = true;
    for (q = pshift_priv_set_from(&agent->dirty, 0, queues); q != QOS_NONE;
         q = pshift_priv_set_from(&agent->dirty, q + 1, queues))
        if ((agent->seen[q].flags & PSHIFT_PRIV_SENT) && pshift_priv_acknowledged(agent, agent->seen[q].sent_seq))
            pshift_priv_agent_flag(agent, q, agent->seen[q].flags & PSHIFT_PRIV_NEWS);
    for (q = pshift_priv_set_from(&scheduler->touched, 0, queues); q != QOS_NONE;
         q = pshift_priv_set_from(&scheduler->touched, q + 1, queues)) {
        struct pshift_priv_queue *queue = &scheduler->queue[q];
        struct pshift_priv_seen *s = &agent->seen[q];
        uint64_t all = qos_sat_add(queue->served, queue->pending), recent = qos_sat_sub(all, s->arrived), moved;
        const uint64_t paid = pshift_priv_paid(queue) - s->base;
        if (!(s->flags & PSHIFT_PRIV_OPEN)) {
            pshift_priv_set_write(&scheduler->touched, q, false);
            continue;
        }
        s->arrived = all;
        s->recent = recent;
        queue->idle += queue->pending == 0 ? pshift_priv_idle(scheduler, queue) : 0;
        s->flags &= ~PSHIFT_PRIV_LOOP;
        if (recent != 0 && queue->idle <= granted / 4)
            s->flags |= PSHIFT_PRIV_LOOP;
        queue->idle = 0;
        pshift_priv_agent_demand(agent, q);
        moved = qos_max(s->expected > s->told ? s->expected - s->told : s->told - s->expected,
                        qos_sat_sub(paid, s->told_paid));
        if (moved > qos_mul_div_floor(s->told, agent->config.unchanged_permille, 1000))
            pshift_priv_agent_flag(agent, q, PSHIFT_PRIV_NEWS);
        if (recent == 0) /* otherwise the next measure must see the arrivals end */
            pshift_priv_set_write(&scheduler->touched, q, false);
    }
    scheduler->measured = scheduler->counters.granted;
}

/* Does the queue belong in a report now: has it news, or has no report of this interval repeated it yet? */
QOS_PRIV bool pshift_priv_agent_owes(const struct pshift_agent *agent, uint32_t q)
{
    return (agent->seen[q].flags & PSHIFT_PRIV_NEWS) != 0 || agent->seen[q].sent_seq < agent->first_seq;
}

QOS_PRIV void pshift_priv_agent_tell(struct pshift_agent *agent, uint32_t q, struct pshift_report_entry *entry)
{
    const struct pshift_priv_queue *queue = &agent->scheduler->queue[q];
    struct pshift_priv_seen *s = &agent->seen[q];
    QOS_ASSERT(s->base <= pshift_priv_paid(queue) && s->grant_seq <= agent->heard);
    entry->bucket = s->bucket;
    entry->served = pshift_priv_paid(queue) - s->base;
    entry->demand = qos_max(qos_sat_sub(s->expected, entry->served), qos_sat_add(queue->pending, queue->debt));
    entry->held = qos_sat_add(queue->r_tokens, queue->l_tokens);
    entry->grant_seq = s->grant_seq;
    s->told = qos_sat_add(entry->served, entry->demand);
    s->told_paid = entry->served;
    s->sent_seq = agent->seq;
    pshift_priv_agent_flag(agent, q, PSHIFT_PRIV_SENT);
}

QOS_API enum qos_status pshift_agent_report(struct pshift_agent *agent, struct pshift_message *message,
                                            struct pshift_report_entry *entry, uint32_t entries_max)
{
    const struct pshift_range none = {0, 0};
    const uint32_t queues = agent->scheduler->config.queues;
    uint32_t q, n = 0, left = agent->dirty_count;
    if (entries_max == 0)
        return QOS_EINVAL;
    agent->seq++;
    for (q = agent->at; left != 0 && n < entries_max; left--, q++) {
        q = pshift_priv_set_around(&agent->dirty, q == queues ? 0 : q, queues);
        if (pshift_priv_agent_owes(agent, q))
            pshift_priv_agent_tell(agent, q, &entry[n++]);
    }
    agent->at = q == queues ? 0 : q;
    if (n == 0 && !agent->due) {
        agent->seq--;
        return QOS_EAGAIN;
    }
    agent->due = false;
    message->server = agent->config.server;
    message->count = n;
    message->boot = agent->config.boot;
    message->owner = agent->owner;
    message->period = agent->period;
    message->seq = agent->seq;
    message->answers = agent->heard;
    message->left_ns = agent->left_ns;
    message->capacity = pshift_priv_agent_capacity(agent);
    for (n = 0; n < PSHIFT_RANGES; n++)
        message->ack[n] = none;
    return QOS_OK;
}

/* When tokens end of which the owner has left_ns left, if it answers report `seq` (invariant 5); 0: unknown. */
QOS_PRIV uint64_t pshift_priv_agent_ends(const struct pshift_agent *agent, uint64_t seq, uint64_t left_ns)
{
    uint64_t back;
    for (back = 1; back <= agent->stamps && back <= PSHIFT_PRIV_STAMPS && seq <= agent->seq; back++) {
        const struct pshift_priv_stamp *stamp = &agent->stamp[(agent->stamps - back) % PSHIFT_PRIV_STAMPS];
        if (stamp->seq <= seq)
            return qos_sat_add(stamp->at_ns, left_ns);
    }
    return 0;
}

QOS_PRIV void pshift_priv_agent_apply(struct pshift_agent *agent, uint32_t q, uint64_t seq,
                                      const struct pshift_grant_entry *entry)
{
    struct pshift_priv_seen *s = &agent->seen[q];
    struct pshift_priv_queue *queue = &agent->scheduler->queue[q];
    uint64_t paid = pshift_priv_paid(queue) - s->base, r_total = qos_min(entry->r_total, entry->total);
    uint64_t l = entry->total == QOS_UNLIMITED ? QOS_UNLIMITED : qos_sat_sub(entry->total, qos_max(paid, r_total));
    /* What L-tokens paid is in r_total, and is not renewed. */
    queue->renewal = qos_sat_add(qos_sat_sub(queue->renewal, queue->r_tokens), qos_sat_sub(r_total, paid));
    pshift_priv_put_tokens(agent->scheduler, q, qos_sat_sub(r_total, paid), l);
    QOS_ASSERT(queue->renewal >= queue->r_tokens);
    QOS_ASSERT(l == QOS_UNLIMITED || queue->r_tokens + queue->l_tokens <= qos_sat_sub(entry->total, paid));
    s->grant_seq = seq;
    pshift_priv_agent_flag(agent, q, (s->flags & PSHIFT_PRIV_SENT) | PSHIFT_PRIV_NEWS);
}

QOS_API enum qos_status pshift_agent_install(struct pshift_agent *agent, uint64_t now_ns,
                                             const struct pshift_message *message,
                                             const struct pshift_grant_entry *entry)
{
    const bool newer = message->period > agent->period;
    const uint64_t ends_ns = pshift_priv_agent_ends(agent, message->answers, message->left_ns);
    uint32_t k, applied = 0;
    if (message->server != agent->config.server)
        return QOS_ENOENT;
    if (qos_cmp_wide(message->boot, agent->config.boot) != 0 || message->period < agent->period ||
        message->period == 0 || (!newer && qos_cmp_wide(message->owner, agent->owner) != 0))
        return QOS_ESTALE;
    if (newer)
        pshift_priv_agent_begin(agent, now_ns, pshift_priv_agent_left(agent, now_ns, ends_ns), message);
    if (message->seq > agent->heard) {
        agent->heard = message->seq;
        for (k = 0; k < PSHIFT_RANGES; k++)
            agent->ack[k] = message->ack[k];
    }
    if (ends_ns <= now_ns)
        return QOS_ESTALE;
    if (ends_ns > agent->ends_ns) {
        pshift_priv_expire(agent->scheduler, now_ns); /* what is over stays void */
        agent->scheduler->void_ns = agent->ends_ns = ends_ns;
    }
    for (k = 0; k < message->count; k++) {
        uint32_t q = agent->slot[pshift_priv_agent_slot(agent, entry[k].bucket)];
        if (q == QOS_NONE || message->seq <= agent->seen[q].grant_seq)
            continue;
        pshift_priv_agent_apply(agent, q, message->seq, &entry[k]);
        applied++;
    }
    return newer || applied != 0 || message->count == 0 ? QOS_OK : QOS_ESTALE;
}

QOS_API enum qos_status pshift_agent_info(const struct pshift_agent *agent, struct pshift_agent_state *out)
{
    out->period = agent->period;
    out->ends_ns = agent->ends_ns;
    out->open = agent->open;
    out->unacknowledged = agent->dirty_count;
    return QOS_OK;
}

/* Messages. */

QOS_PRIV void pshift_priv_write_head(struct qos_writer *w, const struct pshift_message *m)
{
    uint32_t k;
    qos_write_u32(w, m->server);
    qos_write_u32(w, m->count);
    qos_write_u64(w, m->boot.hi);
    qos_write_u64(w, m->boot.lo);
    qos_write_u64(w, m->owner.hi);
    qos_write_u64(w, m->owner.lo);
    qos_write_u64(w, m->period);
    qos_write_u64(w, m->seq);
    qos_write_u64(w, m->answers);
    qos_write_u64(w, m->left_ns);
    qos_write_u64(w, m->capacity);
    for (k = 0; k < PSHIFT_RANGES; k++) {
        qos_write_u64(w, m->ack[k].last);
        qos_write_u32(w, (uint32_t)(m->ack[k].last - m->ack[k].first)); /* ranges are shorter than 2^32 */
    }
}

/* Leaves room for the frame's header and writes the head after it. */
QOS_PRIV enum qos_status pshift_priv_wire_begin(const struct pshift_message *m, uint32_t entry_bytes, void *buf,
                                                size_t size_bytes, struct qos_writer *w)
{
    uint64_t need = PSHIFT_WIRE_HEAD_BYTES + (uint64_t)m->count * entry_bytes;
    if (!buf)
        return QOS_EINVAL;
    if (need > UINT32_MAX || need + QOS_FRAME_HEADER_BYTES > size_bytes)
        return QOS_EMEMORY;
    qos_writer_init(w, (uint8_t *)buf + QOS_FRAME_HEADER_BYTES, (uint32_t)need);
    pshift_priv_write_head(w, m);
    return QOS_OK;
}

QOS_PRIV enum qos_status pshift_priv_wire_seal(void *buf, size_t size_bytes, uint16_t type, size_t payload_bytes,
                                               size_t *len_bytes)
{
    struct qos_frame f;
    f.magic = PSHIFT_WIRE_MAGIC;
    f.version = PSHIFT_WIRE_VERSION;
    f.type = type;
    f.payload_bytes = (uint32_t)payload_bytes;
    return qos_frame_seal(&f, buf, size_bytes, len_bytes);
}

/* Opens the frame and reads the head. Leaves the reader at the first entry. */
QOS_PRIV enum qos_status pshift_priv_wire_open(const void *buf, size_t size_bytes, uint16_t type, uint32_t entry_bytes,
                                               uint32_t entries_max, struct pshift_message *m, struct qos_reader *rd)
{
    struct qos_frame f;
    enum qos_status status = qos_frame_open(buf, size_bytes, PSHIFT_WIRE_MAGIC, PSHIFT_WIRE_VERSION, &f);
    uint32_t k;
    bool sane = true;
    if (status != QOS_OK)
        return status;
    qos_reader_init(rd, (const uint8_t *)buf + QOS_FRAME_HEADER_BYTES, f.payload_bytes);
    m->server = qos_read_u32(rd);
    m->count = qos_read_u32(rd);
    m->boot.hi = qos_read_u64(rd);
    m->boot.lo = qos_read_u64(rd);
    m->owner.hi = qos_read_u64(rd);
    m->owner.lo = qos_read_u64(rd);
    m->period = qos_read_u64(rd);
    m->seq = qos_read_u64(rd);
    m->answers = qos_read_u64(rd);
    m->left_ns = qos_read_u64(rd);
    m->capacity = qos_read_u64(rd);
    for (k = 0; k < PSHIFT_RANGES; k++) {
        uint32_t more;
        m->ack[k].last = qos_read_u64(rd);
        more = qos_read_u32(rd);
        sane &= more <= m->ack[k].last;
        if (m->ack[k].last >= UINT32_MAX) {
            m->ack[k].first = m->ack[k].last - more;
        } else { /* so small that a difference has a sign */
            const int64_t first = (int64_t)m->ack[k].last - (int64_t)more;
            m->ack[k].first = first > 0 ? (uint64_t)first : 0;
        }
    }
    if (rd->bad || !sane || f.type != type ||
        f.payload_bytes - PSHIFT_WIRE_HEAD_BYTES != (uint64_t)m->count * entry_bytes)
        return QOS_ECORRUPT;
    return m->count > entries_max ? QOS_EFULL : QOS_OK;
}

QOS_API enum qos_status pshift_report_encode(const struct pshift_message *in, const struct pshift_report_entry *entry,
                                             void *buf, size_t size_bytes, size_t *len_bytes)
{
    struct qos_writer w;
    enum qos_status status = pshift_priv_wire_begin(in, PSHIFT_REPORT_ENTRY_BYTES, buf, size_bytes, &w);
    uint32_t k;
    if (status != QOS_OK)
        return status;
    for (k = 0; k < in->count; k++) {
        qos_write_u64(&w, entry[k].bucket);
        qos_write_u64(&w, entry[k].served);
        qos_write_u64(&w, entry[k].demand);
        qos_write_u64(&w, entry[k].held);
        qos_write_u64(&w, entry[k].grant_seq);
    }
    return pshift_priv_wire_seal(buf, size_bytes, PSHIFT_WIRE_REPORT, w.pos, len_bytes);
}

QOS_API enum qos_status pshift_grant_encode(const struct pshift_message *in, const struct pshift_grant_entry *entry,
                                            void *buf, size_t size_bytes, size_t *len_bytes)
{
    struct qos_writer w;
    enum qos_status status = pshift_priv_wire_begin(in, PSHIFT_GRANT_ENTRY_BYTES, buf, size_bytes, &w);
    uint32_t k;
    if (status != QOS_OK)
        return status;
    for (k = 0; k < in->count; k++) {
        qos_write_u64(&w, entry[k].bucket);
        qos_write_u64(&w, entry[k].r_total);
        qos_write_u64(&w, entry[k].total);
    }
    return pshift_priv_wire_seal(buf, size_bytes, PSHIFT_WIRE_GRANT, w.pos, len_bytes);
}

QOS_API enum qos_status pshift_report_decode(const void *buf, size_t size_bytes, struct pshift_message *out,
                                             struct pshift_report_entry *entry, uint32_t entries_max)
{
    struct qos_reader rd;
    enum qos_status status =
        pshift_priv_wire_open(buf, size_bytes, PSHIFT_WIRE_REPORT, PSHIFT_REPORT_ENTRY_BYTES, entries_max, out, &rd);
    uint32_t k;
    for (k = 0; status == QOS_OK && k < out->count; k++) {
        entry[k].bucket = qos_read_u64(&rd);
        entry[k].served = qos_read_u64(&rd);
        entry[k].demand = qos_read_u64(&rd);
        entry[k].held = qos_read_u64(&rd);
        entry[k].grant_seq = qos_read_u64(&rd);
    }
    return status;
}

QOS_API enum qos_status pshift_grant_decode(const void *buf, size_t size_bytes, struct pshift_message *out,
                                            struct pshift_grant_entry *entry, uint32_t entries_max)
{
    struct qos_reader rd;
    enum qos_status status =
        pshift_priv_wire_open(buf, size_bytes, PSHIFT_WIRE_GRANT, PSHIFT_GRANT_ENTRY_BYTES, entries_max, out, &rd);
    uint32_t k;
    for (k = 0; status == QOS_OK && k < out->count; k++) {
        entry[k].bucket = qos_read_u64(&rd);
        entry[k].r_total = qos_read_u64(&rd);
        entry[k].total = qos_read_u64(&rd);
        if (entry[k].r_total > entry[k].total)
            status = QOS_ECORRUPT;
    }
    return status;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: owner ============================================================================================
 *
 *   One key of a linearizable store says who owns which periods: (number, nonce of a controller's process). It is
 *   changed by compare-and-swap only, is never deleted, and its number only grows. A swap to number n makes its caller
 *   the owner of the periods n - k + 1 .. n. This chapter decides when to swap, and what came of it:
 *
 *                    +------------- saw(an old number) <---------------+
 *                    v                                                 |
 *       reads --> waits --- ask, k T after the key was first seen --> asks
 *                    ^                                                 |
 *                    +-- saw(asked number, own nonce): owns from the --+
 *                        time before the swap; else: somebody else does
 *
 *   Invariants:
 *   1. The next swap comes at least k T after its caller first saw the key's number, by its elapsed clock; the owner's
 *      own next one k T after the reply. The owner counts from before its swap, so its periods are over by then.
 *   2. Each swap has a larger number than all before it that this process sent. So an ambiguous reply does no harm:
 *      what the key holds later says which swap succeeded, if any. If it is not the last one, nothing is owned.
 *   3. A process that restarts has another nonce. It never resumes a number.
 *
 *   Why L in a period and 2 L in a window: tokens of period P are spent only between its swap and T later (agent,
 *   invariant 5), and swaps are T apart (invariant 1). So two periods' tokens are never spent at one time, and a window
 *   of length T meets at most two periods. The controller issues at most L in each (controller, invariant 1). What was
 *   granted to a server that restarted counts as spent.
 *
 *   Which k: under limits, a controller that dies costs the rest of its periods, k T / 2 on average. A store that fails
 *   for O costs O - k T / 2 if k T < O (a swap falls into it), else O^2 / (2 k T). Both together are least at k T = O,
 *   and as good at any smaller k. etcd's leader, killed, took O = 2.0 s (bench/etcd.sh, default settings), so with
 *   T = 1 s k = 1 and 2 are equal. 1 is the default, as controllers restart more often.
 */

#ifndef QOS_DECLARE_ONLY

QOS_API const char *pshift_owner_config_error(const struct pshift_owner_config *config)
{
    if (!config)
        return "config: is NULL; give a struct pshift_owner_config";
    if ((config->nonce.hi | config->nonce.lo) == 0)
        return "nonce: give 128 random bits, new at each start of the process";
    if (config->period_ns > PSHIFT_COUNT_MAX / 1024)
        return "period_ns: give at most PSHIFT_COUNT_MAX / 1024, or 0 for one second";
    if (config->periods > 64)
        return "periods: give at most 64, or 0 for 1";
    return NULL;
}

QOS_API enum qos_status pshift_owner_init(struct pshift_owner *owner, const struct pshift_owner_config *config)
{
    const enum qos_status status = pshift_priv_config_status(config, pshift_owner_config_error(config));
    QOS_ASSERT(owner);
    if (status != QOS_OK)
        return status;
    owner->config = *config;
    owner->config.period_ns = qos_default(config->period_ns, QOS_NS_PER_S);
    owner->config.periods = config->periods ? config->periods : 1;
    owner->step = PSHIFT_OWNER_READS;
    owner->seen = owner->seen_ns = owner->asked = owner->asked_ns = owner->owned = owner->start_ns = 0;
    return QOS_OK;
}

QOS_API void pshift_owner_saw(struct pshift_owner *owner, uint64_t now_ns, uint64_t number, struct qos_u128 nonce)
{
    if (owner->step != PSHIFT_OWNER_READS && number < owner->seen)
        return; /* a read that is older than what is known */
    if (owner->step == PSHIFT_OWNER_READS || number > owner->seen) {
        owner->seen = number;
        owner->seen_ns = now_ns;
    }
    if (owner->step == PSHIFT_OWNER_ASKS && number == owner->asked && qos_cmp_wide(nonce, owner->config.nonce) == 0) {
        QOS_ASSERT(number > owner->owned || number == UINT64_MAX);
        owner->owned = number;
        owner->start_ns = owner->asked_ns;
    }
    QOS_ASSERT(owner->owned <= owner->seen);
    owner->step = PSHIFT_OWNER_WAITS;
}

QOS_API uint64_t pshift_owner_next_ns(const struct pshift_owner *owner, uint64_t now_ns)
{
    if (owner->step != PSHIFT_OWNER_WAITS)
        return now_ns;
    return qos_max(now_ns, qos_sat_add(owner->seen_ns, owner->config.periods * owner->config.period_ns));
}

QOS_API enum qos_status pshift_owner_ask(struct pshift_owner *owner, uint64_t now_ns, uint64_t *number)
{
    if (owner->step == PSHIFT_OWNER_ASKS)
        return QOS_EBUSY;
    if (owner->step == PSHIFT_OWNER_READS || pshift_owner_next_ns(owner, now_ns) > now_ns)
        return QOS_EAGAIN;
    if (!qos_checked_add(qos_max(owner->asked, owner->seen), owner->config.periods, &owner->asked))
        return QOS_ERANGE;
    owner->asked_ns = now_ns;
    owner->step = PSHIFT_OWNER_ASKS;
    *number = owner->asked;
    return QOS_OK;
}

QOS_API enum qos_status pshift_owner_holds(const struct pshift_owner *owner, uint64_t now_ns, uint64_t *period,
                                           uint64_t *start_ns)
{
    const uint64_t gone = qos_sat_sub(now_ns, owner->start_ns) / owner->config.period_ns;
    if (owner->owned == 0 || owner->owned != owner->seen || gone >= owner->config.periods)
        return QOS_EAGAIN;
    *period = owner->owned - owner->config.periods + 1 + gone;
    *start_ns = owner->start_ns + gone * owner->config.period_ns;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: controller =======================================================================================
 *
 *   The controller's side of the runtime (Section III-D). Each round it subtracts all requests served, whatever token
 *   paid for them, from reservations and limits. It solves for the R-tokens, then for the L-tokens on what the R-tokens
 *   leave, and sends what changed. A record is what it knows of one bucket at one server:
 *
 *       0            served      may                 new_max
 *       |--------------|----------|---------------------|----------> requests of the period
 *          reported       held       grants in flight
 *                                                       ^ ceiling: the most that the server can serve
 *
 *   Invariants:
 *   1. Limit: a bucket's ceilings, plus what crashed servers may have served, never exceed its limit. Tokens are issued
 *      only from what the ceilings leave of the limit. A ceiling falls only when a report shows that no older, larger
 *      grant can be obeyed any more. So tokens under a limit move in two steps: first taken here, then given there.
 *   2. A record has two maxima: old_max of the grants up to mark_seq, new_max of later grants. A report that names
 *      grant mark_seq or a later one replaces old_max by what the server may still serve. So a ceiling can fall even if
 *      new grants are sent before reports on the older ones come.
 *   3. A report of an earlier period says nothing about tokens of this one: its server has none yet. It only tells of
 *      demand, and that the server lives.
 *   4. Restart: what the server may have served after its last report counts against the limit, but not towards the
 *      reservation. A boot nonce is believed when it has answered a grant that was made for it: a late report of a
 *      dead start cannot. Until then plans give the server's tokens to nobody: those of a dead start would be lost.
 *   5. Silence: a server without a report for more than silent_after rounds has no demand and no capacity. A plan that
 *      is repeated for answers is no new round, as servers need not report between the two. What a silent server may
 *      serve counts against the limits until the period ends.
 *   6. A report is merged entry by entry. An entry is skipped if its record has merged a later report, or if there is
 *      no room for its pair. Each report is acknowledged, as part of a range. A grant is repeated each round until a
 *      report names it.
 *   7. Records of pairs that were idle for a whole period, that no report of the period named although the server was
 *      heard after the first plan, or whose server is silent, expire. So do buckets with neither records nor a
 *      contract. An agent names each bucket with demand in each period, and the end of demand, too.
 *
 *   Plans are warm: rows have spare entries, so a new pair changes only its own row. Rows are laid out again and solved
 *   from scratch at the first plan of a period, or when a row has no spare entry left.
 *
 *   Map (without pshift_priv_)
 *   contracts       pshift_controller_change: contract_of; keep_buckets
 *   a period        pshift_controller_begin
 *   reports         pshift_controller_report: report_check, peer_is (which start), record_of: find; merge
 *   a plan          pshift_controller_plan: listen (who is silent), plan_rows: lay_out, half_solve: r_row, l_row;
 *                   target_limited, target
 *   grants          pshift_controller_grant: challenge, grant_head
 *   what is read    pshift_controller_certificate, _info, _bucket_info
 *
 *   Where we differ: the paper sends all tokens each interval. It covers neither limits when messages are lost nor
 *   restarts. And it gives tokens to demand only: then callers that go from server to server wait for the next interval
 *   at each, whatever the limit is. Here what demand leaves of a limit goes to all records of the bucket.
 */

struct pshift_priv_contract {
    uint64_t id, reservation, limit; /* limit: QOS_UNLIMITED for none */
    uint64_t lost;                   /* requests that crashed servers may have served unreported */
    uint32_t records;                /* entries of its row in use */
};

/* What a plan reads of a record, in the order of buckets: one cache line. */
struct pshift_priv_record {
    uint64_t served, banked, demand; /* in this period: since the server's start; before it; still to come */
    uint64_t old_max, new_max;       /* most it may have served under grants up to mark_seq; under later ones */
    uint64_t r_total, total;         /* of the last plan, counted from the server's start */
    uint32_t server;
    bool changed; /* the last plan is not sent yet */
};
QOS_STATIC_ASSERT(sizeof(struct pshift_priv_record) == 64, "a plan fetches one line of a record");

/* What only its server's messages need of it, in the order of its server's list. */
struct pshift_priv_pair {
    uint64_t id;                  /* of the bucket */
    uint64_t mark_seq, last_seq;  /* grant numbers: of invariant 2; the last one sent */
    uint64_t acked_seq, seen_seq; /* last grant that the server named; last report merged */
    uint32_t bucket, next;        /* next: next record of the same server */
};

struct pshift_priv_peer {
    struct qos_u128 boot;             /* the start whose reports are merged; 0: none yet */
    struct qos_u128 candidate;        /* another one that has reported and must answer a grant first; 0: none */
    uint64_t challenge;               /* the first grant made for it; 0: none yet */
    uint64_t candidate_seq;           /* its newest report */
    uint64_t newest, grant_seq;       /* newest report merged; grants made */
    uint64_t newest_ns, candidate_ns; /* when these two reports came */
    uint64_t heard;                   /* round of the last report */
    uint64_t capacity, left_ns;       /* that it told: the estimate; the time that it is of */
    uint64_t used;                    /* of its records in the last period, when one begins */
    uint64_t told, asked;             /* tick of the last message sent to it; to the candidate */
    uint32_t first, last;             /* its records */
    uint32_t at;                      /* record at which the next message begins */
    uint32_t expected; /* record that the next entry of a report is about, if it comes in the order of the last one */
    bool silent;       /* at the last plan */
    struct pshift_range merged[PSHIFT_RANGES];
};

/* One of the two problems of a plan, with its solution. */
struct pshift_priv_half {
    struct pshift_solver solver;
    struct pshift_solution solution;
    uint64_t *capacity, *reservation, *demand, *alloc;
    uint8_t *cut;
};

struct pshift_controller {
    struct pshift_controller_config config;
    struct pshift_priv_peer *peer;         /* [servers] */
    struct pshift_priv_contract *contract; /* [buckets] */
    struct pshift_priv_record *record;     /* [records] */
    struct pshift_priv_pair *pair;         /* [records] */
    uint32_t *bucket_slot, *record_slot;   /* hashes */
    uint32_t *row, *server, *holder;       /* [buckets + 1], [entries], [entries] record of the entry */
    uint32_t *list;                        /* [buckets] changed rows; scratch */
    uint64_t *left;                        /* [buckets] of the limit; QOS_UNLIMITED for none */
    uint8_t *changed;                      /* [buckets] 1: the row must be solved again */
    uint64_t *shortfall;                   /* [buckets] */
    struct pshift_priv_half r, l;
    struct pshift_controller_state info;
    uint64_t start_ns;             /* of the period */
    uint64_t rounds;               /* for silence: plans but repeated ones */
    uint64_t round_ns, granted_ns; /* when the last of them was granted; the last plan, 0: it was not */
    uint64_t begun;                /* round in which the period began */
    uint64_t tick;                 /* grows with each begin and plan; each time, a message to each server is due */
    uint64_t planned_period;
    uint32_t bucket_slots, record_slots, entries, laid_buckets;
    bool laid;
};

#ifndef QOS_DECLARE_ONLY

#define PSHIFT_PRIV_ROWS_AHEAD 4 /* fetched before they are planned: some 50 records */
#define PSHIFT_PRIV_AHEAD 32     /* records that are looked at before the tables, as a look there costs as much */

QOS_PRIV uint32_t pshift_priv_controller_entries(const struct pshift_controller_config *config)
{
    return config->records + config->records / 4 + 8;
}

QOS_PRIV struct pshift_solver_config pshift_priv_half_config(const struct pshift_controller_config *config)
{
    struct pshift_solver_config sizes;
    sizes.servers = config->servers;
    sizes.buckets = config->buckets;
    sizes.entries = pshift_priv_controller_entries(config);
    return sizes;
}

QOS_PRIV void pshift_priv_half_layout(struct qos_layout *layout, struct pshift_priv_half *half,
                                      const struct pshift_controller_config *config,
                                      const struct pshift_priv_half *lender)
{
    const struct pshift_solver_config sizes = pshift_priv_half_config(config);
    half->capacity = (uint64_t *)qos_layout_part(layout, sizes.servers, sizeof(uint64_t), QOS_CACHE_LINE);
    half->reservation = (uint64_t *)qos_layout_part(layout, sizes.buckets, sizeof(uint64_t), QOS_CACHE_LINE);
    half->demand = (uint64_t *)qos_layout_part(layout, sizes.entries, sizeof(uint64_t), QOS_CACHE_LINE);
    half->alloc = (uint64_t *)qos_layout_part(layout, sizes.entries, sizeof(uint64_t), QOS_CACHE_LINE);
    half->cut = (uint8_t *)qos_layout_part(layout, sizes.servers, 1, QOS_CACHE_LINE);
    pshift_priv_solver_layout(layout, &half->solver, &sizes, lender ? &lender->solver : NULL);
}

QOS_PRIV void pshift_priv_controller_layout(struct qos_layout *layout, struct pshift_controller *controller,
                                            const struct pshift_controller_config *config)
{
    const uint32_t entries = pshift_priv_controller_entries(config);
    controller->peer = (struct pshift_priv_peer *)qos_layout_part(layout, config->servers,
                                                                  sizeof(struct pshift_priv_peer), QOS_CACHE_LINE);
    controller->contract = (struct pshift_priv_contract *)qos_layout_part(
        layout, config->buckets, sizeof(struct pshift_priv_contract), QOS_CACHE_LINE);
    controller->record = (struct pshift_priv_record *)qos_layout_part(
        layout, config->records, sizeof(struct pshift_priv_record), QOS_CACHE_LINE);
    controller->pair = (struct pshift_priv_pair *)qos_layout_part(layout, config->records,
                                                                  sizeof(struct pshift_priv_pair), QOS_CACHE_LINE);
    controller->bucket_slot =
        (uint32_t *)qos_layout_part(layout, pshift_priv_slots(config->buckets), sizeof(uint32_t), QOS_CACHE_LINE);
    controller->record_slot =
        (uint32_t *)qos_layout_part(layout, pshift_priv_slots(config->records), sizeof(uint32_t), QOS_CACHE_LINE);
    controller->row =
        (uint32_t *)qos_layout_part(layout, (size_t)config->buckets + 1, sizeof(uint32_t), QOS_CACHE_LINE);
    controller->server = (uint32_t *)qos_layout_part(layout, entries, sizeof(uint32_t), QOS_CACHE_LINE);
    controller->holder = (uint32_t *)qos_layout_part(layout, entries, sizeof(uint32_t), QOS_CACHE_LINE);
    controller->list = (uint32_t *)qos_layout_part(layout, config->buckets, sizeof(uint32_t), QOS_CACHE_LINE);
    controller->left = (uint64_t *)qos_layout_part(layout, config->buckets, sizeof(uint64_t), QOS_CACHE_LINE);
    controller->changed = (uint8_t *)qos_layout_part(layout, config->buckets, 1, QOS_CACHE_LINE);
    controller->shortfall = (uint64_t *)qos_layout_part(layout, config->buckets, sizeof(uint64_t), QOS_CACHE_LINE);
    pshift_priv_half_layout(layout, &controller->r, config, NULL);
    pshift_priv_half_layout(layout, &controller->l, config, &controller->r);
}

QOS_API const char *pshift_controller_config_error(const struct pshift_controller_config *config)
{
    if (!config)
        return "config: is NULL; give a struct pshift_controller_config";
    if (config->servers == 0 || config->servers > PSHIFT_QUEUES_MAX)
        return "servers: give 1..PSHIFT_QUEUES_MAX";
    if (config->buckets == 0 || config->buckets > PSHIFT_RECORDS_MAX)
        return "buckets: give 1..PSHIFT_RECORDS_MAX";
    if (config->records == 0 || config->records > PSHIFT_RECORDS_MAX)
        return "records: give 1..PSHIFT_RECORDS_MAX, the (bucket, server) pairs that are in use in two periods";
    if ((config->nonce.hi | config->nonce.lo) == 0)
        return "nonce: give that of the struct pshift_owner";
    return NULL;
}

QOS_API size_t pshift_controller_memsize(const struct pshift_controller_config *config)
{
    struct pshift_controller scratch;
    struct qos_layout layout;
    if (pshift_controller_config_error(config))
        return 0;
    qos_layout_begin(&layout, NULL);
    pshift_priv_controller_layout(&layout, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_PRIV void pshift_priv_half_init(struct pshift_priv_half *half, const struct pshift_solver_config *sizes)
{
    const struct pshift_solution none = {NULL,   NULL,   NULL,   {0, 0}, {0, 0}, {0, 0},
                                         {0, 0}, {0, 0}, {0, 0}, 0,      false,  false};
    half->solution = none;
    half->solution.alloc = half->alloc;
    half->solution.cut = half->cut;
    pshift_priv_solver_open(&half->solver, sizes);
}

QOS_API enum qos_status pshift_controller_init(struct pshift_controller *controller, void *mem, size_t size_bytes,
                                               const struct pshift_controller_config *config)
{
    const struct pshift_priv_peer unknown = {{0, 0},   {0, 0},   0,        0,        0,     0,         0,
                                             0,        0,        0,        0,        0,     QOS_NEVER, QOS_NEVER,
                                             QOS_NONE, QOS_NONE, QOS_NONE, QOS_NONE, false, {{0, 0}}};
    const struct pshift_controller_state no_info = {0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    struct pshift_controller scratch;
    struct pshift_solver_config sizes;
    struct qos_layout layout;
    enum qos_status status = pshift_priv_config_status(config, pshift_controller_config_error(config));
    uint32_t i;
    QOS_ASSERT(controller);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, NULL);
    pshift_priv_controller_layout(&layout, &scratch, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    qos_layout_begin(&layout, mem);
    pshift_priv_controller_layout(&layout, controller, config);
    controller->config = *config;
    controller->config.silent_after = config->silent_after ? config->silent_after : 2;
    controller->config.period_ns = qos_default(config->period_ns, QOS_NS_PER_S);
    sizes = pshift_priv_half_config(config);
    pshift_priv_half_init(&controller->r, &sizes);
    pshift_priv_half_init(&controller->l, &sizes);
    controller->bucket_slots = pshift_priv_slots(config->buckets);
    controller->record_slots = pshift_priv_slots(config->records);
    controller->entries = sizes.entries;
    controller->info = no_info;
    controller->tick = controller->planned_period = controller->start_ns = 0;
    controller->rounds = controller->begun = controller->round_ns = controller->granted_ns = 0;
    controller->laid_buckets = 0;
    controller->laid = false;
    for (i = 0; i < controller->bucket_slots; i++)
        controller->bucket_slot[i] = QOS_NONE;
    for (i = 0; i < controller->record_slots; i++)
        controller->record_slot[i] = QOS_NONE;
    for (i = 0; i < config->servers; i++)
        controller->peer[i] = unknown;
    return QOS_OK;
}

/* Slot of a bucket or of a pair, or the empty slot where it would go. */
QOS_PRIV uint32_t pshift_priv_bucket_slot(const struct pshift_controller *c, uint64_t id)
{
    uint32_t at = pshift_priv_hash(c->config.nonce, id, 0, c->bucket_slots);
    while (c->bucket_slot[at] != QOS_NONE && c->contract[c->bucket_slot[at]].id != id)
        at = (at + 1) & (c->bucket_slots - 1);
    return at;
}

QOS_PRIV uint32_t pshift_priv_record_slot(const struct pshift_controller *c, uint32_t bucket, uint32_t server)
{
    uint32_t at = pshift_priv_hash(c->config.nonce, bucket, server + UINT64_C(1), c->record_slots);
    while (c->record_slot[at] != QOS_NONE &&
           (c->pair[c->record_slot[at]].bucket != bucket || c->record[c->record_slot[at]].server != server))
        at = (at + 1) & (c->record_slots - 1);
    return at;
}

/* Index of the bucket's contract; makes an empty one if there is none. */
QOS_PRIV uint32_t pshift_priv_contract_of(struct pshift_controller *c, uint64_t id)
{
    const struct pshift_priv_contract blank = {id, 0, QOS_UNLIMITED, 0, 0};
    uint32_t at = pshift_priv_bucket_slot(c, id);
    if (c->bucket_slot[at] == QOS_NONE) {
        c->contract[c->info.buckets] = blank;
        c->changed[c->info.buckets] = 1;
        c->bucket_slot[at] = c->info.buckets++;
    }
    return c->bucket_slot[at];
}

QOS_API enum qos_status pshift_controller_change(struct pshift_controller *controller, uint64_t bucket,
                                                 uint64_t reservation, uint64_t limit)
{
    const uint64_t most = limit == QOS_NOTHING ? 0 : qos_default(limit, QOS_UNLIMITED);
    struct pshift_priv_contract *contract;
    uint32_t b;
    if (reservation > PSHIFT_COUNT_MAX || reservation > most)
        return QOS_ERANGE;
    if (controller->bucket_slot[pshift_priv_bucket_slot(controller, bucket)] == QOS_NONE &&
        controller->info.buckets == controller->config.buckets)
        return QOS_EFULL;
    b = pshift_priv_contract_of(controller, bucket);
    contract = &controller->contract[b];
    contract->reservation = reservation;
    contract->limit = most;
    controller->changed[b] = 1;
    return QOS_OK;
}

QOS_PRIV uint64_t pshift_priv_used(const struct pshift_priv_record *x)
{
    return qos_sat_add(x->banked, x->served);
}

/* Most that the last plan lets it serve in the period. */
QOS_PRIV uint64_t pshift_priv_planned(const struct pshift_priv_record *x)
{
    return qos_sat_add(x->banked, x->total);
}

QOS_PRIV uint64_t pshift_priv_ceiling(const struct pshift_priv_record *x)
{
    return qos_max(pshift_priv_used(x), qos_max(x->old_max, x->new_max));
}

/* Puts a record at the end of its server's list, and into the hash. */
QOS_PRIV void pshift_priv_link(struct pshift_controller *c, uint32_t i)
{
    const uint32_t server = c->record[i].server;
    struct pshift_priv_peer *peer = &c->peer[server];
    c->pair[i].next = QOS_NONE;
    if (peer->first == QOS_NONE)
        peer->first = i;
    else
        c->pair[peer->last].next = i;
    peer->last = i;
    c->record_slot[pshift_priv_record_slot(c, c->pair[i].bucket, server)] = i;
}

/* Keeps the buckets with records or a contract. c->list maps old indexes to new ones. */
QOS_PRIV void pshift_priv_keep_buckets(struct pshift_controller *c)
{
    uint32_t i, n = 0;
    for (i = 0; i < c->bucket_slots; i++)
        c->bucket_slot[i] = QOS_NONE;
    for (i = 0; i < c->info.buckets; i++) {
        struct pshift_priv_contract *contract = &c->contract[i];
        if (contract->records == 0 && contract->reservation == 0 && contract->limit == QOS_UNLIMITED)
            continue;
        contract->lost = 0;
        c->changed[n] = 1;
        c->list[i] = n;
        c->contract[n] = *contract;
        c->bucket_slot[pshift_priv_bucket_slot(c, contract->id)] = n++;
    }
    c->info.buckets = n;
}

/* Has the server not reported for more than silent_after rounds, or never? */
QOS_PRIV bool pshift_priv_silent(const struct pshift_controller *c, const struct pshift_priv_peer *peer)
{
    return (peer->boot.hi | peer->boot.lo) == 0 || c->rounds - peer->heard > c->config.silent_after;
}

/* Until reports come, we expect the period to be like the last one. An estimate of less than T lacks what was used; one
 * of T may have been made while the server had no tokens. */
QOS_PRIV uint64_t pshift_priv_expect(const struct pshift_controller *c, uint32_t server, uint64_t used,
                                     uint64_t estimate)
{
    const bool whole = c->peer[server].left_ns >= c->config.period_ns;
    return qos_min(whole ? qos_max(used, estimate) : qos_sat_add(used, estimate), PSHIFT_COUNT_MAX);
}

QOS_API enum qos_status pshift_controller_begin(struct pshift_controller *controller, uint64_t start_ns,
                                                uint64_t period)
{
    struct pshift_controller *c = controller;
    uint32_t i, n = 0;
    if (period <= c->info.period)
        return QOS_ESTALE;
    for (i = 0; i < c->config.servers; i++) {
        c->peer[i].first = c->peer[i].last = c->peer[i].expected = QOS_NONE;
        c->peer[i].used = 0;
    }
    for (i = 0; i < c->info.buckets; i++)
        c->contract[i].records = 0;
    for (i = 0; i < c->info.records; i++) {
        const struct pshift_priv_pair old = c->pair[i], fresh = {old.id, 0, 0, 0, 0, old.bucket, QOS_NONE};
        struct pshift_priv_record x = c->record[i];
        if ((pshift_priv_used(&x) == 0 && x.demand == 0) || pshift_priv_silent(c, &c->peer[x.server]) ||
            (old.seen_seq == 0 && c->peer[x.server].heard > c->begun))
            continue;
        x.demand = pshift_priv_expect(c, x.server, pshift_priv_used(&x), x.demand);
        c->peer[x.server].used = qos_sat_add(c->peer[x.server].used, pshift_priv_used(&x));
        x.served = x.banked = x.old_max = x.new_max = x.r_total = x.total = 0;
        x.changed = false;
        c->contract[old.bucket].records++;
        c->pair[n] = fresh;
        c->record[n++] = x;
    }
    for (i = 0; i < c->config.servers; i++)
        c->peer[i].capacity = pshift_priv_expect(c, i, c->peer[i].used, c->peer[i].capacity);
    pshift_priv_keep_buckets(c);
    c->info.records = n;
    for (i = 0; i < c->record_slots; i++)
        c->record_slot[i] = QOS_NONE;
    for (i = 0; i < n; i++) {
        c->pair[i].bucket = c->list[c->pair[i].bucket];
        pshift_priv_link(c, i);
    }
    c->info.period = period;
    c->info.refused = 0;
    c->start_ns = start_ns;
    c->begun = c->rounds;
    c->laid = false;
    c->tick++;
    return QOS_OK;
}

/* Was report `seq` of this server merged before? If its number lies before all ranges that are kept: entries of later
 * reports are newer, so merging it again does no harm. */
QOS_PRIV bool pshift_priv_peer_has(const struct pshift_priv_peer *peer, uint64_t seq)
{
    uint32_t k;
    for (k = 0; k < PSHIFT_RANGES; k++)
        if (peer->merged[k].first <= seq && seq <= peer->merged[k].last)
            return true;
    return false;
}

/* Adds report `seq` to the ranges: they are in descending order, do not touch, and the oldest is dropped. */
QOS_PRIV void pshift_priv_peer_note(struct pshift_priv_peer *peer, uint64_t seq)
{
    struct pshift_range *range = peer->merged, add;
    uint32_t k = 0, m;
    while (k < PSHIFT_RANGES && range[k].first > seq + 1)
        k++;
    if (k < PSHIFT_RANGES && range[k].last != 0 && seq + 1 >= range[k].first && seq <= range[k].last + 1) {
        range[k].first = qos_min(range[k].first, seq);
        range[k].last = qos_max(range[k].last, seq);
        QOS_ASSERT(k == 0 || range[k - 1].first > range[k].last + 1);
        m = k + 1;
        if (m == PSHIFT_RANGES || range[m].last == 0 || range[m].last + 1 < range[k].first)
            return;
        range[k].first = range[m].first; /* it closed the gap */
        for (; m + 1 < PSHIFT_RANGES; m++)
            range[m] = range[m + 1];
        range[m].first = range[m].last = 0;
        return;
    }
    QOS_ASSERT(k == PSHIFT_RANGES || range[k].last == 0 || range[k].last + 1 < seq);
    add.first = add.last = seq;
    for (; k < PSHIFT_RANGES; k++) {
        const struct pshift_range next = range[k];
        range[k] = add;
        add = next;
    }
}

/* The pair's record, or QOS_NONE. A report names its buckets in the order of the one before and leaves some out: while
 * these are few, no table is read. */
QOS_PRIV uint32_t pshift_priv_find(struct pshift_controller *c, uint64_t id, uint32_t server)
{
    struct pshift_priv_peer *peer = &c->peer[server];
    uint32_t i = peer->expected, b, ahead;
    for (ahead = 0; ahead < PSHIFT_PRIV_AHEAD && i != QOS_NONE && c->pair[i].id != id; ahead++)
        i = c->pair[i].next;
    if (i == QOS_NONE || c->pair[i].id != id) {
        b = c->bucket_slot[pshift_priv_bucket_slot(c, id)];
        i = b == QOS_NONE ? QOS_NONE : c->record_slot[pshift_priv_record_slot(c, b, server)];
    }
    QOS_ASSERT(i == QOS_NONE || (c->pair[i].id == id && c->record[i].server == server));
    if (i != QOS_NONE)
        peer->expected = c->pair[i].next != QOS_NONE ? c->pair[i].next : peer->first;
    return i;
}

/* Checks the whole report before any of it is merged. */
QOS_PRIV enum qos_status pshift_priv_report_check(struct pshift_controller *c, const struct pshift_message *message,
                                                  const struct pshift_report_entry *entry, bool same, bool ours)
{
    struct pshift_priv_peer *peer = &c->peer[message->server];
    const uint32_t expected = peer->expected;
    enum qos_status status = QOS_OK;
    uint32_t k;
    if (message->seq == 0 || message->seq == UINT64_MAX || (same && pshift_priv_peer_has(peer, message->seq)))
        return QOS_ESTALE;
    for (k = 0; k < message->count && same && ours; k++) {
        const uint32_t i = pshift_priv_find(c, entry[k].bucket, message->server);
        if (i != QOS_NONE && message->seq > c->pair[i].seen_seq && entry[k].served < c->record[i].served)
            status = QOS_ECORRUPT;
    }
    peer->expected = expected; /* now they are merged */
    return status;
}

/* The server restarted: its counters began at zero and its tokens are gone. */
QOS_PRIV void pshift_priv_restarted(struct pshift_controller *c, struct pshift_priv_peer *peer)
{
    const struct pshift_range none = {0, 0};
    uint32_t i;
    for (i = 0; i < PSHIFT_RANGES; i++)
        peer->merged[i] = none;
    peer->newest = 0;
    for (i = peer->first; i != QOS_NONE; i = c->pair[i].next) {
        struct pshift_priv_pair *pair = &c->pair[i];
        struct pshift_priv_record *x = &c->record[i];
        struct pshift_priv_contract *contract = &c->contract[pair->bucket];
        uint64_t ceiling = pshift_priv_ceiling(x);
        x->banked = pshift_priv_used(x);
        contract->lost = qos_sat_add(contract->lost, ceiling - x->banked);
        c->changed[pair->bucket] = 1;
        x->served = x->demand = x->r_total = x->total = x->new_max = 0;
        pair->mark_seq = pair->last_seq = pair->acked_seq = pair->seen_seq = 0;
        x->old_max = x->banked;
        x->changed = false;
    }
}

/* The pair's record, made if there is none; QOS_NONE: no room. */
QOS_PRIV uint32_t pshift_priv_record_of(struct pshift_controller *c, uint64_t id, uint32_t server)
{
    const struct pshift_priv_record blank = {0, 0, 0, 0, 0, 0, 0, server, false};
    struct pshift_priv_pair pair = {id, 0, 0, 0, 0, 0, QOS_NONE};
    struct pshift_priv_contract *contract;
    uint32_t i = pshift_priv_find(c, id, server), b;
    if (i != QOS_NONE)
        return i;
    b = c->bucket_slot[pshift_priv_bucket_slot(c, id)];
    if (b == QOS_NONE && c->info.buckets == c->config.buckets)
        return QOS_NONE;
    b = pshift_priv_contract_of(c, id);
    if (c->info.records == c->config.records)
        return QOS_NONE;
    contract = &c->contract[b];
    pair.bucket = b;
    c->record[c->info.records] = blank;
    c->pair[c->info.records] = pair;
    if (b >= c->laid_buckets || contract->records >= c->row[b + 1] - c->row[b])
        c->laid = false;
    else if (c->laid)
        c->holder[c->row[b] + contract->records] = c->info.records;
    contract->records++;
    QOS_ASSERT(!c->laid || contract->records <= c->row[b + 1] - c->row[b]);
    c->changed[b] = 1;
    pshift_priv_link(c, c->info.records);
    return c->info.records++;
}

/* Merges one entry of a report into its record. ours: the server had begun this period; else only demand counts, and
 * until the period's first plan (early) what the last period made us expect, if that is more. */
QOS_PRIV void pshift_priv_merge(struct pshift_priv_record *x, struct pshift_priv_pair *pair,
                                const struct pshift_report_entry *entry, bool ours, bool early)
{
    uint64_t may, after = x->changed ? pshift_priv_planned(x) : 0;
    QOS_ASSERT(pair->mark_seq <= pair->last_seq);
    if (!ours) {
        x->demand = qos_max(early ? x->demand : 0, qos_min(entry->demand, PSHIFT_COUNT_MAX));
        return;
    }
    x->served = entry->served;
    x->demand = qos_min(entry->demand, PSHIFT_COUNT_MAX);
    may = qos_sat_add(pshift_priv_used(x), entry->held);
    if (entry->grant_seq >= pair->mark_seq) {
        x->old_max = entry->grant_seq >= pair->last_seq ? may : qos_max(may, x->new_max);
        x->new_max = after;
        pair->mark_seq = pair->last_seq;
        pair->acked_seq = entry->grant_seq;
    } else {
        x->old_max = qos_max(x->old_max, may);
    }
}

/* Is the report of the start that we talk to? If it is of another one, that becomes the candidate; once it has answered
 * a grant made for it, it takes the place. */
QOS_PRIV bool pshift_priv_peer_is(struct pshift_controller *c, uint64_t now_ns, struct pshift_priv_peer *peer,
                                  const struct pshift_message *message, bool ours)
{
    const struct qos_u128 none = {0, 0};
    const bool answers = pshift_priv_same(message->owner, c->config.nonce) && peer->challenge != 0 &&
                         message->answers >= peer->challenge; /* perhaps in the period before */
    if (ours && (peer->boot.hi | peer->boot.lo) == 0)
        peer->boot = message->boot; /* only a grant of this owner can have told it the period */
    if (pshift_priv_same(peer->boot, message->boot)) {
        peer->candidate = answers ? none : peer->candidate; /* this one lives, so the other one does not */
        return true;
    }
    if (!pshift_priv_same(peer->candidate, message->boot)) {
        peer->candidate = message->boot;
        peer->candidate_seq = peer->challenge = 0;
    }
    if (message->seq > peer->candidate_seq) {
        peer->candidate_seq = message->seq;
        peer->candidate_ns = now_ns;
    }
    if (!answers || peer->challenge == 0)
        return false;
    pshift_priv_restarted(c, peer);
    peer->boot = peer->candidate;
    peer->candidate = none;
    return true;
}

QOS_API enum qos_status pshift_controller_report(struct pshift_controller *controller, uint64_t now_ns,
                                                 const struct pshift_message *message,
                                                 const struct pshift_report_entry *entry)
{
    struct pshift_controller *c = controller;
    const bool ours =
        message->period == c->info.period && pshift_priv_same(message->owner, c->config.nonce) && c->info.period != 0;
    const bool early = c->planned_period != c->info.period;
    struct pshift_priv_peer *peer;
    enum qos_status status;
    uint32_t k;
    if (message->server >= c->config.servers)
        return QOS_ENOENT;
    if ((message->period >= c->info.period && !ours && message->period != 0 && c->info.period != 0) ||
        (message->boot.hi | message->boot.lo) == 0)
        return QOS_ESTALE;
    peer = &c->peer[message->server];
    status = pshift_priv_report_check(c, message, entry, pshift_priv_same(peer->boot, message->boot), ours);
    if (status != QOS_OK)
        return status;
    if (!pshift_priv_peer_is(c, now_ns, peer, message, ours))
        return QOS_EAGAIN;
    if (message->seq > peer->newest) {
        const uint64_t capacity = qos_min(message->capacity, PSHIFT_COUNT_MAX);
        peer->capacity = early && !ours ? qos_max(capacity, peer->capacity) : capacity;
        peer->left_ns = message->left_ns;
        peer->newest = message->seq;
        peer->newest_ns = now_ns;
        peer->heard = c->rounds;
    }
    pshift_priv_peer_note(peer, message->seq);
    for (k = 0; k < message->count; k++) {
        const uint32_t i = pshift_priv_record_of(c, entry[k].bucket, message->server);
        struct pshift_priv_record *x;
        uint64_t served, demand;
        if (i == QOS_NONE)
            c->info.refused++;
        if (i == QOS_NONE || message->seq <= c->pair[i].seen_seq)
            continue;
        c->pair[i].seen_seq = message->seq;
        x = &c->record[i];
        served = x->served;
        demand = x->demand;
        pshift_priv_merge(x, &c->pair[i], &entry[k], ours, early);
        /* A report that only confirms a grant must not change the plan, or it would never become stable. */
        if (x->served != served || x->demand != demand)
            c->changed[c->pair[i].bucket] = 1;
    }
    return QOS_OK;
}

/* Finds the servers that are silent now. Marks the rows of servers that fell silent or came back. */
QOS_PRIV void pshift_priv_listen(struct pshift_controller *c)
{
    uint32_t j, i;
    c->info.silent = 0;
    for (j = 0; j < c->config.servers; j++) {
        struct pshift_priv_peer *peer = &c->peer[j];
        bool silent = pshift_priv_silent(c, peer);
        c->info.silent += silent ? 1u : 0u;
        for (i = peer->first; silent != peer->silent && i != QOS_NONE; i = c->pair[i].next)
            c->changed[c->pair[i].bucket] = 1;
        peer->silent = silent;
        c->r.capacity[j] = silent ? 0 : qos_min(peer->capacity, PSHIFT_COUNT_MAX);
    }
}

/* Lays out the rows, each with up to 4 spare entries as far as there is room. */
QOS_PRIV void pshift_priv_lay_out(struct pshift_controller *c)
{
    uint32_t i, e, used = 0, spare = c->info.buckets ? (c->entries - c->info.records) / c->info.buckets : 0;
    spare = spare < 4 ? spare : 4;
    for (i = 0; i < c->info.buckets; i++) {
        c->row[i] = used;
        used += c->contract[i].records + spare;
        c->contract[i].records = 0; /* counted again below */
        c->changed[i] = 1;
        c->r.reservation[i] = c->l.reservation[i] = 0;
    }
    QOS_ASSERT(used <= c->entries);
    c->row[c->info.buckets] = used;
    for (e = 0; e < used; e++) {
        c->server[e] = 0;
        c->holder[e] = QOS_NONE;
        c->r.demand[e] = c->r.alloc[e] = c->l.demand[e] = c->l.alloc[e] = 0;
    }
    for (i = 0; i < c->info.records; i++) {
        const uint32_t b = c->pair[i].bucket;
        c->holder[c->row[b] + c->contract[b].records++] = i;
    }
    c->laid = true;
    c->laid_buckets = c->info.buckets;
}

QOS_PRIV struct pshift_problem pshift_priv_half_problem(const struct pshift_controller *c,
                                                        const struct pshift_priv_half *half)
{
    struct pshift_problem p;
    p.servers = c->config.servers;
    p.buckets = c->laid_buckets;
    p.capacity = half->capacity;
    p.reservation = half->reservation;
    p.row = c->row;
    p.server = c->server;
    p.demand = half->demand;
    return p;
}

/* Records lie in the order in which servers reported them, rows in that of buckets: before row b is read, fetches those
 * of a row that comes soon. Inline, as gcc drops calls of a function that only prefetches. */
QOS_PRIV __attribute__((always_inline)) void pshift_priv_fetch(const struct pshift_controller *c, uint32_t b)
{
    const uint32_t ahead = b + PSHIFT_PRIV_ROWS_AHEAD;
    uint32_t e;
    if (ahead >= c->laid_buckets)
        return;
    for (e = c->row[ahead]; e < c->row[ahead] + c->contract[ahead].records; e++)
        __builtin_prefetch(&c->record[c->holder[e]], 1);
}

/* Updates row b of the R-problem: its demands, and the reservation left, capped by the limit left. */
QOS_PRIV void pshift_priv_r_row(struct pshift_controller *c, uint32_t b)
{
    const struct pshift_priv_contract *contract = &c->contract[b];
    uint64_t left = contract->reservation, under = contract->limit;
    uint32_t e;
    pshift_priv_fetch(c, b);
    if (under != QOS_UNLIMITED)
        under = qos_sat_sub(under, contract->lost);
    for (e = c->row[b]; e < c->row[b] + contract->records; e++) {
        const struct pshift_priv_record *x = &c->record[c->holder[e]];
        bool silent = c->peer[x->server].silent;
        QOS_ASSERT(c->pair[c->holder[e]].bucket == b);
        c->server[e] = x->server;
        c->r.demand[e] = silent ? 0 : x->demand;
        left = qos_sat_sub(left, pshift_priv_used(x));
        if (under != QOS_UNLIMITED)
            under = qos_sat_sub(under, silent ? pshift_priv_ceiling(x) : pshift_priv_used(x));
    }
    c->r.reservation[b] = qos_min(left, qos_min(under, PSHIFT_COUNT_MAX));
    c->left[b] = under;
}

/* What the R-tokens of row b leave of its limit. 0 without a limit: unlimited L-tokens need no plan. */
QOS_PRIV uint64_t pshift_priv_l_left(const struct pshift_controller *c, uint32_t b)
{
    uint64_t left = c->left[b];
    uint32_t e;
    if (left == QOS_UNLIMITED)
        return 0;
    for (e = c->row[b]; e < c->row[b] + c->contract[b].records; e++) {
        QOS_ASSERT(c->r.alloc[e] <= left);
        left = qos_sat_sub(left, c->r.alloc[e]);
    }
    return qos_min(left, PSHIFT_COUNT_MAX);
}

/* Has row b of the L-problem changed? write: also updates it. */
QOS_PRIV bool pshift_priv_l_row(struct pshift_controller *c, uint32_t b, bool write)
{
    const bool limited = c->contract[b].limit != QOS_UNLIMITED;
    uint64_t left = pshift_priv_l_left(c, b);
    bool other = left != c->l.reservation[b] || c->changed[b];
    uint32_t e;
    for (e = c->row[b]; e < c->row[b] + c->contract[b].records; e++) {
        uint64_t demand = limited ? c->r.demand[e] - c->r.alloc[e] : 0;
        QOS_ASSERT(c->r.alloc[e] <= c->r.demand[e]);
        other |= demand != c->l.demand[e];
        if (write)
            c->l.demand[e] = demand;
    }
    if (write)
        c->l.reservation[b] = left;
    return other;
}

/* Updates the first n rows of c->list, then solves them again (cold: all rows). A warm solve retracts them before they
 * change. The problem is this controller's own, so no call can fail. */
QOS_PRIV void pshift_priv_half_solve(struct pshift_controller *c, struct pshift_priv_half *half, uint32_t n, bool cold,
                                     const struct pshift_options *options)
{
    const struct pshift_problem p = pshift_priv_half_problem(c, half);
    enum qos_status status = QOS_OK;
    uint32_t t;
    if (!cold)
        status = pshift_solver_retract(&half->solver, c->list, n, &p, &half->solution);
    QOS_ASSERT(status == QOS_OK);
    for (t = 0; t < n; t++)
        if (half == &c->r)
            pshift_priv_r_row(c, c->list[t]);
        else
            (void)pshift_priv_l_row(c, c->list[t], true);
    if (cold)
        status = pshift_solver_solve(&half->solver, &p, options, &half->solution);
    else
        status = pshift_solver_resolve(&half->solver, c->list, n, &p, options, &half->solution);
    QOS_ASSERT(status == QOS_OK);
    (void)status;
}

/* Solves both halves. They can share server[], as spare entries have no tokens. */
QOS_PRIV void pshift_priv_plan_rows(struct pshift_controller *c, const struct pshift_options *options)
{
    const bool fresh = !c->laid;
    uint32_t b, j, n = 0, most;
    if (fresh)
        pshift_priv_lay_out(c);
    most = c->laid_buckets / 4; /* if more rows changed, solving all is faster */
    for (b = 0; b < c->laid_buckets; b++)
        if (c->changed[b])
            c->list[n++] = b;
    c->info.cold = fresh || n > most;
    c->info.planned_buckets = c->info.cold ? c->laid_buckets : n;
    pshift_priv_half_solve(c, &c->r, n, c->info.cold, options);
    for (j = 0; j < c->config.servers; j++) {
        const struct qos_u128 load = c->r.solver.load[j];
        c->l.capacity[j] = load.hi ? 0 : qos_sat_sub(c->r.capacity[j], load.lo);
    }
    for (b = 0, n = 0; b < c->laid_buckets; b++)
        if (pshift_priv_l_row(c, b, false))
            c->list[n++] = b;
    pshift_priv_half_solve(c, &c->l, n, fresh || n > most, options);
}

/* Has another start of the server reported, which must answer a grant first? */
QOS_PRIV bool pshift_priv_awaited(const struct pshift_priv_peer *peer)
{
    return (peer->candidate.hi | peer->candidate.lo) != 0;
}

/* How many of `want` tokens may be issued. The server may spend `held` already; more must come from *budget. */
QOS_PRIV uint64_t pshift_priv_issue(uint64_t want, uint64_t held, uint64_t *budget)
{
    uint64_t first = qos_min(want, held), more = qos_min(want - first, *budget);
    *budget -= more;
    return first + more;
}

QOS_PRIV void pshift_priv_target(struct pshift_priv_record *x, uint64_t r, uint64_t l)
{
    uint64_t r_total = qos_sat_add(x->served, r), total = qos_sat_add(r_total, l);
    if (r_total == x->r_total && total == x->total)
        return;
    x->r_total = r_total;
    x->total = total;
    x->new_max = qos_max(x->new_max, pshift_priv_planned(x));
    x->changed = true;
}

/* Grants of a row under a limit. R-tokens of all servers go before any L-tokens. What demand leaves of the limit is
 * spare: it goes last, in equal parts, for requests that come where the last interval saw none. No token is issued that
 * another server may still hold. */
QOS_PRIV void pshift_priv_target_limited(struct pshift_controller *c, uint32_t b)
{
    const struct pshift_priv_contract *contract = &c->contract[b];
    const uint32_t begin = c->row[b], end = c->row[b] + contract->records;
    uint64_t budget = qos_sat_sub(contract->limit, contract->lost), r_budget, spare_budget;
    uint64_t spare = c->l.reservation[b], wanted = 0;
    uint32_t e, live = 0;
    for (e = begin; e < end; e++) {
        budget = qos_sat_sub(budget, pshift_priv_ceiling(&c->record[c->holder[e]]));
        spare = qos_sat_sub(spare, c->l.alloc[e]);
        live += c->peer[c->server[e]].silent ? 0u : 1u;
    }
    spare = live == 0 ? 0 : spare / live;
    r_budget = budget;
    for (e = begin; e < end; e++) {
        const struct pshift_priv_record *x = &c->record[c->holder[e]];
        const uint64_t held = pshift_priv_ceiling(x) - pshift_priv_used(x);
        (void)pshift_priv_issue(c->r.alloc[e], held, &budget);
        wanted = qos_sat_add(wanted, qos_sat_sub(c->l.alloc[e], qos_sat_sub(held, c->r.alloc[e])));
    }
    spare_budget = qos_sat_sub(budget, wanted);
    for (e = begin; e < end; e++) { /* the R-tokens once more, the same as before */
        struct pshift_priv_record *x = &c->record[c->holder[e]];
        const bool silent = c->peer[x->server].silent;
        uint64_t held = pshift_priv_ceiling(x) - pshift_priv_used(x), r, l;
        r = pshift_priv_issue(c->r.alloc[e], held, &r_budget);
        held -= qos_min(held, r);
        l = silent ? 0 : pshift_priv_issue(c->l.alloc[e], held, &budget);
        held -= qos_min(held, l);
        QOS_ASSERT(c->l.alloc[e] <= c->r.demand[e] - c->r.alloc[e]);
        c->info.withheld = qos_sat_add(c->info.withheld, c->r.alloc[e] - r + c->l.alloc[e] - l);
        QOS_ASSERT(budget <= r_budget); /* no more R-tokens than in the first pass */
        if (!silent && !pshift_priv_awaited(&c->peer[x->server]))
            pshift_priv_target(x, r, l + pshift_priv_issue(spare, held, &spare_budget));
    }
}

QOS_API enum qos_status pshift_controller_plan(struct pshift_controller *controller,
                                               const struct pshift_options *options)
{
    struct pshift_controller *c = controller;
    uint32_t b, e;
    if (c->info.period == 0)
        return QOS_EAGAIN;
    if (options && options->initial_only)
        return QOS_EINVAL;
    c->info.round++;
    /* Invariant 5. Time is known from grants: a plan that was not granted counts as a round. */
    if (c->granted_ns == 0 || c->granted_ns - c->round_ns >= c->config.period_ns / 32) {
        c->rounds++;
        c->round_ns = c->granted_ns;
    }
    c->granted_ns = 0;
    pshift_priv_listen(c);
    pshift_priv_plan_rows(c, options);
    c->info.withheld = 0;
    for (b = 0; b < c->laid_buckets; b++) {
        c->changed[b] = 0;
        pshift_priv_fetch(c, b);
        if (c->contract[b].limit != QOS_UNLIMITED) {
            pshift_priv_target_limited(c, b);
            continue;
        }
        for (e = c->row[b]; e < c->row[b] + c->contract[b].records; e++) {
            if (!c->peer[c->server[e]].silent && !pshift_priv_awaited(&c->peer[c->server[e]]))
                pshift_priv_target(&c->record[c->holder[e]], c->r.alloc[e], QOS_UNLIMITED);
        }
    }
    c->planned_period = c->info.period;
    c->tick++;
    return QOS_OK;
}

/* What the period has left at now_ns. */
QOS_PRIV uint64_t pshift_priv_left(const struct pshift_controller *c, uint64_t now_ns)
{
    return qos_sat_sub(qos_sat_add(c->start_ns, c->config.period_ns), now_ns);
}

/* Head of the next grant to a server's start. */
QOS_PRIV void pshift_priv_grant_head(const struct pshift_controller *c, uint32_t server, struct pshift_message *message)
{
    struct pshift_priv_peer *peer = &c->peer[server];
    uint32_t k;
    message->server = server;
    message->count = 0;
    message->boot = peer->boot;
    message->owner = c->config.nonce;
    message->period = c->info.period;
    message->seq = ++peer->grant_seq;
    message->answers = peer->newest;
    message->left_ns = pshift_priv_left(c, peer->newest_ns);
    message->capacity = 0;
    for (k = 0; k < PSHIFT_RANGES; k++)
        message->ack[k] = peer->merged[k];
}

/* A grant without entries for a start that must answer it. */
QOS_PRIV void pshift_priv_challenge(struct pshift_controller *c, uint32_t server, struct pshift_message *message)
{
    const struct pshift_range none = {0, 0};
    struct pshift_priv_peer *peer = &c->peer[server];
    uint32_t k;
    pshift_priv_grant_head(c, server, message);
    message->boot = peer->candidate;
    message->answers = peer->candidate_seq;
    message->left_ns = pshift_priv_left(c, peer->candidate_ns);
    for (k = 0; k < PSHIFT_RANGES; k++)
        message->ack[k] = none;
    peer->challenge = qos_default(peer->challenge, message->seq);
    peer->asked = c->tick;
}

QOS_API enum qos_status pshift_controller_grant(struct pshift_controller *controller, uint64_t now_ns, uint32_t server,
                                                struct pshift_message *message, struct pshift_grant_entry *entry,
                                                uint32_t entries_max)
{
    struct pshift_controller *c = controller;
    struct pshift_priv_peer *peer;
    uint32_t n = 0, i;
    if (server >= c->config.servers)
        return QOS_ENOENT;
    if (entries_max == 0)
        return QOS_EINVAL;
    c->granted_ns = now_ns;
    if (pshift_priv_left(c, now_ns) == 0 || c->info.period == 0)
        return QOS_EAGAIN;
    peer = &c->peer[server];
    if (pshift_priv_awaited(peer) && peer->asked != c->tick) {
        pshift_priv_challenge(c, server, message);
        return QOS_OK;
    }
    if ((peer->boot.hi | peer->boot.lo) == 0)
        return QOS_EAGAIN;
    if (peer->told != c->tick)
        peer->at = peer->first;
    for (i = peer->at; i != QOS_NONE && n < entries_max; i = c->pair[i].next) {
        struct pshift_priv_record *x = &c->record[i];
        struct pshift_priv_pair *pair = &c->pair[i];
        if (!x->changed && pair->acked_seq == pair->last_seq)
            continue;
        entry[n].bucket = pair->id;
        entry[n].r_total = x->r_total;
        entry[n++].total = x->total;
        pair->last_seq = peer->grant_seq + 1;
        x->new_max = qos_max(x->new_max, pshift_priv_planned(x));
        x->changed = false;
    }
    peer->at = i;
    if (n == 0 && peer->told == c->tick)
        return QOS_EAGAIN;
    peer->told = c->tick;
    pshift_priv_grant_head(c, server, message);
    message->count = n;
    return QOS_OK;
}

QOS_API enum qos_status pshift_controller_certificate(struct pshift_controller *controller,
                                                      struct pshift_problem *problem, struct pshift_solution *solution)
{
    if (controller->planned_period == 0 || controller->planned_period != controller->info.period)
        return QOS_EAGAIN;
    *problem = pshift_priv_half_problem(controller, &controller->r);
    *solution = controller->r.solution;
    solution->shortfall = controller->shortfall;
    return pshift_solver_shortfall(&controller->r.solver, problem, solution);
}

QOS_API enum qos_status pshift_controller_info(const struct pshift_controller *controller,
                                               struct pshift_controller_state *out)
{
    uint32_t j;
    *out = controller->info;
    for (j = 0, out->awaited = 0; j < controller->config.servers; j++)
        out->awaited += pshift_priv_awaited(&controller->peer[j]) ? 1u : 0u;
    return QOS_OK;
}

QOS_API enum qos_status pshift_controller_bucket_info(const struct pshift_controller *controller, uint64_t bucket,
                                                      struct pshift_bucket_state *out)
{
    const struct pshift_controller *c = controller;
    const uint32_t b = c->bucket_slot[pshift_priv_bucket_slot(c, bucket)];
    uint32_t j;
    if (b == QOS_NONE)
        return QOS_ENOENT;
    out->reservation = c->contract[b].reservation;
    out->limit = c->contract[b].limit;
    out->served = 0;
    out->ceiling = c->contract[b].lost;
    out->row = b;
    for (j = 0; j < c->config.servers; j++) {
        uint32_t i = c->record_slot[pshift_priv_record_slot(c, b, j)];
        if (i == QOS_NONE)
            continue;
        out->served = qos_sat_add(out->served, pshift_priv_used(&c->record[i]));
        out->ceiling = qos_sat_add(out->ceiling, pshift_priv_ceiling(&c->record[i]));
    }
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_PSHIFT_H */
