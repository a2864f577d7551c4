/* tokenpool.h - Haechi: tokens for one-sided I/O, with a lock-free pool        SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   Clients read a data node's memory without asking its CPU: RDMA READ, shared memory, MPI_Get. Nobody sees the
 *   requests, so no scheduler can order them, and the device shares its rate equally among whoever is greedy.
 *   A client that was promised 236 K I/Os a second gets 157 K. Haechi moves the decision to the clients: an I/O
 *   costs a token; a client is given its reservation in tokens at the start of every period and takes the rest
 *   from a pool that is one 64-bit word, by a one-sided fetch-and-add. The data node's CPU looks once in a
 *   millisecond. Whoever holds no token waits, so promises hold although nobody schedules.
 *
 * SYNOPSIS
 *
 *     #include "tokenpool.h"
 *
 *     int main(void)
 *     {
 *         static uint64_t storage[64] __attribute__((aligned(64))), control[128] __attribute__((aligned(64)));
 *         static struct tokenpool_config cfg;
 *         static struct tokenpool monitor;
 *         static struct tokenpool_client client;
 *         uint64_t now_ns = 1000, fits;
 *         cfg.clients = 2;
 *         cfg.capacity = 10000;                                        // tokens (I/Os) a period of 1 s
 *         cfg.batch = 100;
 *         if (tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg) != QOS_OK)
 *             return 1;
 *         if (tokenpool_join(&monitor, 0, 6000, TOKENPOOL_NO_LIMIT, &fits) != QOS_OK)
 *             return 1;
 *         tokenpool_run(&monitor, now_ns);                             // at least every check_ns, by one thread
 *         if (tokenpool_client_init(&client, &cfg, 0) != QOS_OK)
 *             return 1;
 *         tokenpool_client_start_now(&client);
 *         if (tokenpool_take_local(&client, storage, now_ns, 1) != QOS_OK)
 *             return 1;                                                // QOS_EAGAIN: no token now
 *         // ... the I/O ...
 *         tokenpool_complete(&client, 1);
 *         return 0;
 *     }
 *
 * CONTRACT
 *
 *   - That of qos.h. The target needs a lock-free 64-bit word, otherwise #error.
 *   - Two objects and a storage. struct tokenpool_client, the engine, belongs to one thread (N threads: N
 *     engines, each its own slot). struct tokenpool, the monitor, belongs to one thread of the data node. The
 *     storage is words that both reach, and nothing else: no pointers, so it may be mapped by processes or
 *     registered with an RDMA device. All hosts of one storage have the same byte order.
 *   - Transport-free: an engine (or the monitor) says which word operation is next (X_next), the caller's
 *     transport performs it (a load, a store, a fetch-and-add or a compare-and-swap of 8 aligned bytes at an
 *     offset) and hands back the answer (X_done). Only the pool word is ever changed by two parties; all
 *     accesses to it, the monitor's too, must be atomic towards each other: on a device with ATOMIC_HCA run the
 *     monitor's operations through the device as well. For local memory tokenpool_op_run is the transport, and
 *     tokenpool_take_local and tokenpool_run are the loops.
 *   - Tokens that can be spent in a period never exceed
 *
 *         max(C, sum of R_i) + overrun x clients x batch        (overrun: configuration, default 1, may be none)
 *
 *     for C the capacity estimate at its start and clients those admitted at its start, plus what force() puts
 *     into debt. This holds over all interleavings, delays, deaths and lost messages.
 *   - The pool word is never below -(clients x batch), however many clients knock and however often.
 *   - A token is spent in the period that issued it, by the client that was given it, or never.
 *   - A client that dies keeps nothing: its tokens end with their period, and a client that was not heard in the
 *     last quarter of a period is given none in the next (it may come back: one report, and from the period
 *     after that it has its reservation again). Worst case, a death in the last quarter: its reservation idles
 *     for one period.
 *   - Worst wait of a continuously backlogged client that has reservation left: none in the engine. Without, it
 *     waits for the pool, at longest until its next period: T + check_ns.
 *   - Errors are values; the object is unchanged after one.
 *
 * WORKED EXAMPLE (the paper's Example 1: T = 1 s, R = 50)
 *
 *     t = 0.6 s, so rho = 50 x 0.6 = 30      demand D    returned       residual
 *     insufficient demand                    20          30 - 20 = 10   50 - 30 = 20
 *     sufficient demand                      40          0              50 - 40 = 10   (R - D)
 *     all asked for                          50          0              0
 *
 *   The pool with capacity 100, reservations 60, batch 30: it starts at 40. A claims: the word says 40, A has 30.
 *   B claims: the word says 10, B has 10 and knows that the pool is empty; the word says -20 now. Nobody asks
 *   again until the monitor has raised it. A returns 12 unused reservation tokens with its next report; the
 *   monitor finds room for 12 and adds 12 - (-20) = 32 in one fetch-and-add: the word says 12, or less by what
 *   was claimed in the meantime: no claim is lost.
 *
 * ALGORITHM (Section II; names are the paper's)
 *
 *   Pool word        [ count 36, signed | epoch 16 | seq 12 ]   count in the top bits: a fetch-and-add of
 *                    -batch x 2^28 cannot touch the others, and a count below zero borrows from nobody.
 *   Period word      [ epoch 16 | seq 12 | flags 8 ]            written by the monitor only
 *   Terms, a client  [ reservation 32 | limit 32 ]              written by the monitor only
 *   Report, a client [ tag 6 | quarter 2 | K 28 | N 28 ]        written by that client only
 *
 *   Engine (Section II-D). At the start of a period it has R reservation tokens. A request takes one, or a token
 *   from the pool, claimed `batch` at a time: an answer of v gives min(batch, max(v, 0)). Every check_ns it
 *   gives back what its demand does not justify: K, the part of R that is spent or kept, falls to
 *   R - (rho(t) - D(t)) when demand D lags behind rho(t) = R t / T, and never rises within a period.
 *   Reports carry K and N, the I/Os completed.
 *
 *   Monitor (Section II-E). Period start: C tokens, R_i to each client, C - sum R_i to the pool. When the pool is
 *   first used it asks for reports (step S3). Then at every check it sets the pool to
 *
 *       min( max(C (T - t) / T - L, 0),  C + overrun x clients x batch - sum K_i - claimed )
 *
 *   with L = sum max(K_i - N_i, 0) the reservation I/Os that are still to come, and `claimed` counted exactly
 *   from the pool word's own answers. Raising is one fetch-and-add, lowering a compare-and-swap. At the end of
 *   the period it estimates the capacity (Algorithm 1) and counts who did not use his reservation.
 *
 *   Ordered mode (TOKENPOOL_ORDERED): the pool word counts tickets upwards, one per token; a claim of b tokens
 *   owns tickets [v, v + b), and may spend those below the `served` word, which the monitor moves. So clients
 *   are served in the order of their claims, token by token: a large claim waits for as many tokens as it asks.
 *
 *   Edges between words (the rest is relaxed, because each word is complete in itself: an answer of the pool
 *   carries the epoch and the seq it belongs to):
 *     P1  monitor: terms, then period word OPEN (release)        engine: period word (acquire), then terms.
 *         Without it an engine starts a period with the terms of another.
 *     P2  monitor: period word CHANGING, then terms (release)    engine: terms (acquire), then the period word again.
 *         An engine that read a later period's terms sees that the period word has moved, and starts over.
 *     S1  monitor: served (release)                              engine: served (acquire). Epoch is in the word;
 *         the order keeps `served` from being seen before the period that it belongs to is announced.
 *   Wake-up: a failed claim learns from its own answer the seq of the pool that failed it, and waits until the
 *   period word shows a later one. The monitor changes the seq in the same fetch-and-add that raises the count and,
 *   if the count is above zero now, announces it after that: no raise goes unnoticed, and nobody knocks twice at the
 *   same empty pool.
 *
 * WHERE WE DIFFER from the paper, and why
 *
 *     - The decay compares with demand (spent, which is completed and outstanding, plus queued), as Definition 1 has
 *       it, not with tokens spent: with 64 requests outstanding a backlogged client would lose its reservation.
 *     - Example 1, second case: R_1 - rho_1 = 10 is R_1 - D_1.
 *     - Reports carry K where the paper has the residual reservation K - N: with K the monitor can account for
 *       every token issued (second bound above), which the paper does not do. An engine reports every T/8
 *       before the monitor asks, as a sign of life.
 *     - The paper writes the new pool value; that loses concurrent claims. It lets clients knock at an empty pool;
 *       that drives the count down without end. It does not say what a claim across a period boundary gets:
 *       here an old pool's tokens are void, and a new pool's tokens are kept for the new period.
 *     - "Reservations are met" needs the guard (TOKENPOOL_GUARD) when reservations differ: a server that shares
 *       equally gives each of n clients C/n, and a client with R_i > C/n catches up only while others pause; on
 *       top each is bounded by C_L (Definition 2). With the guard no pool token is granted while some residual
 *       reservation exceeds C (T - t) / (T n). It costs throughput; examples/simulate prints how much.
 *     - Algorithm 1 with U == Omega never fires once a batch remainder stays unspent, and below
 *       Omega_prof - 3 sigma the estimate never moves again. Here U within clients x batch of Omega counts as
 *       equal, and the floor is configuration. W forgets its records when the estimate grows: they are smaller, and a
 *       single period below the grown estimate would pull it down to their mean. TOKENPOOL_EXACT and a floor give
 *       the literal rule.
 *     - When the estimate falls below the reservations admitted, they are still issued: see the bound.
 *
 * TUNABLES (struct tokenpool_config; zero means the default)
 *
 *   batch 1000        the paper's. One atomic for 1000 I/Os: 3 us of round trip cost 3 ns each. Tokens that one
 *                     client may sit on; with 10 clients 10,000 of 1,570,000 or 0.6 %.
 *   period_ns 1 s     T of the paper. Reservations hold per period.
 *   check_ns 1 ms     delta of the paper: engine's tick and monitor's check. Work done at C tokens/T while a change
 *                     goes unnoticed: 0.1 %.
 *   poll_ns check/8   how often a starving engine reads the period word.
 *   capacity          Omega_prof: tokens a period, from a profile. The least of it is capacity_min, default 0.7 of it;
 *                     eta (capacity_step) default 2 %: 35 % of growth takes 15 periods; M (history) default 5.
 *   overrun 1         batches per client that may be issued above C: tokens asleep in somebody's hand are replaced.
 *   silent_periods 1  periods without a sign of life after which a reservation is withheld.
 *   alert_periods 10  periods in a row with an unused reservation until alert() says so.
 *
 * REFERENCES
 *
 *   Liu, Varman: Haechi: A Token-based QoS Mechanism for One-sided I/Os in RDMA based Storage System. IPDPS 2021.
 *   Reed, Kanodia: Synchronization with eventcounts and sequencers. CACM 22(2), 1979 (the ordered mode).
 */
#ifndef TOKENPOOL_H
#define TOKENPOOL_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ------------------------------------------------------------------------------- */

#if !QOS_HAS_ATOMIC64 && !defined(QOS_ATOMIC_HOOK)
#error "tokenpool.h needs a lock-free 64-bit atomic word, which this target does not have"
#endif

/* ---- constants and types ------------------------------------------------------------------------- */

#define TOKENPOOL_CLIENTS_MAX (1u << 20)
#define TOKENPOOL_BATCH_MAX (1u << 20)
#define TOKENPOOL_TOKENS_MAX ((UINT64_C(1) << 28) - 1) /* in one period: what a report can carry */
#define TOKENPOOL_KNOCK_MAX (UINT64_C(1) << 33)        /* clients x batch: a quarter of the count's range */
#define TOKENPOOL_PERIOD_NS_MAX UINT64_C(1000000000000)
#define TOKENPOOL_HISTORY_MAX 64u

#define TOKENPOOL_NO_LIMIT UINT32_MAX     /* join: no limit */
#define TOKENPOOL_BACKLOGGED UINT64_MAX   /* set_queued: demand without end */
#define TOKENPOOL_NO_OVERRUN UINT32_MAX   /* config.overrun: never a token above C */
#define TOKENPOOL_NO_FLOOR UINT64_MAX     /* config.capacity_min: every total is remembered */
#define TOKENPOOL_NO_STEP UINT64_MAX      /* config.capacity_step: the estimate never grows */
#define TOKENPOOL_EXACT UINT64_MAX        /* config.equal_within: U must be Omega to the token */
#define TOKENPOOL_NO_DEBT UINT64_MAX      /* config.debt_max: force() refuses what take() refuses */
#define TOKENPOOL_NEVER_SILENT UINT32_MAX /* config.silent_periods: nobody is taken for dead */

/* config.flags */
#define TOKENPOOL_GUARD 1u   /* no pool tokens while a residual reservation is out of reach of equal sharing */
#define TOKENPOOL_ORDERED 2u /* claims are served in their order */
#define TOKENPOOL_BASIC 4u   /* Basic Haechi: unused reservations are wasted (for comparison) */
#define TOKENPOOL_FIXED 8u   /* the capacity stays what the profile says */

struct tokenpool_config {
    uint32_t clients;         /* slots, 1..TOKENPOOL_CLIENTS_MAX */
    uint32_t batch;           /* tokens of one claim, 1..TOKENPOOL_BATCH_MAX; clients x batch <= TOKENPOOL_KNOCK_MAX */
    uint32_t flags;           /* TOKENPOOL_GUARD | ... */
    uint32_t overrun;         /* batches per client above C, 1..1000, or TOKENPOOL_NO_OVERRUN */
    uint32_t history;         /* M, 1..TOKENPOOL_HISTORY_MAX */
    uint32_t alert_periods;   /* >= 1 */
    uint32_t silent_periods;  /* >= 1, or TOKENPOOL_NEVER_SILENT */
    uint64_t period_ns;       /* T, 8..TOKENPOOL_PERIOD_NS_MAX */
    uint64_t check_ns;        /* delta, 1..period_ns; default 1 ms, or T/8 if that is less */
    uint64_t poll_ns;         /* 1..check_ns */
    uint64_t capacity;        /* Omega_prof in tokens a period, 1..TOKENPOOL_TOKENS_MAX; no default */
    uint64_t capacity_min;    /* Omega_min, 1..capacity, or TOKENPOOL_NO_FLOOR */
    uint64_t capacity_step;   /* eta, 1..TOKENPOOL_TOKENS_MAX, or TOKENPOOL_NO_STEP */
    uint64_t client_capacity; /* C_L x T, 1..TOKENPOOL_TOKENS_MAX; default: capacity */
    uint64_t equal_within;    /* tolerance of U == Omega; default clients x batch; or TOKENPOOL_EXACT */
    uint64_t debt_max;        /* of force(), 1..TOKENPOOL_TOKENS_MAX, or TOKENPOOL_NO_DEBT; default batch */
};

/* A word operation. offset is in bytes from the start of the storage, a multiple of 8. The answer of WRITE is
 * ignored, that of the others is the word's old value. */
enum tokenpool_kind { TOKENPOOL_READ, TOKENPOOL_WRITE, TOKENPOOL_FETCH_ADD, TOKENPOOL_COMPARE_SWAP };
struct tokenpool_op {
    enum tokenpool_kind kind;
    uint64_t offset;
    uint64_t operand; /* WRITE, FETCH_ADD, COMPARE_SWAP: value, addend (mod 2^64), new value */
    uint64_t compare; /* COMPARE_SWAP */
};

/* Storage: three words that different parties hit, a cache line each; then dense terms, then dense reports. */
#define TOKENPOOL_OFFSET_PERIOD 0u
#define TOKENPOOL_OFFSET_IDENTITY 8u
#define TOKENPOOL_OFFSET_POOL 64u
#define TOKENPOOL_OFFSET_SERVED 128u
#define TOKENPOOL_OFFSET_TERMS 192u

/* Engine. Fields are private; the first cache line is all that a take and a completion touch. */
struct tokenpool_client {
    int64_t ready;      /* tokens that may be spent now; negative: debt of force() */
    uint64_t completed; /* N: I/Os completed in this period */
    uint64_t queued;    /* requests that wait for tokens outside */
    uint64_t allowance; /* min(kept + gained, limit): spent = allowance - ready */
    uint64_t kept;      /* K: reservation spent or kept */
    uint64_t gained;    /* pool tokens of this period */
    uint32_t reservation, limit;
    uint64_t start_ns;
    /* second line: the rest of the state */
    uint64_t tick_ns, poll_ns, report_ns, served_ns; /* last time of each */
    uint64_t now_ns;                                 /* of the last tokenpool_client_next */
    uint64_t seen_period, seen_terms;                /* while a period starts */
    uint64_t ticket, tickets;                        /* ordered: range that is not served yet */
    uint64_t early_tokens;                           /* of a pool that is ahead of us */
    uint64_t claim;                                  /* tokens of the claim under way */
    uint64_t published, published_borrowed;          /* of this period, in the counters already */
    uint32_t epoch, early_epoch, empty_seq, id;      /* empty_seq: of the pool that failed us, early or not */
    uint32_t waiting;                                /* tokens that the refused request needs; 0: none */
    uint8_t pending, starting;                       /* enum tokenpool_pending */
    bool running, known, unused_slot, empty, early, early_empty, asked, polled, reported, served_polled;
    struct tokenpool_config cfg; /* defaults filled in */
    qos_counter_t granted, borrowed, refused, waited, claims, voided, debt;
} __attribute__((aligned(QOS_CACHE_LINE)));
QOS_STATIC_ASSERT(offsetof(struct tokenpool_client, tick_ns) == 64, "a take touches one cache line");

/* What the monitor knows about a client. */
struct tokenpool_client_info {
    uint64_t reservation, limit; /* as admitted */
    uint64_t used;               /* N of the last period */
    uint32_t under_used;         /* periods in a row that left reservation unused */
    bool joined, silent, alert;
};

/* What the monitor knows about its period. */
struct tokenpool_info {
    uint64_t epoch, start_ns;
    uint64_t capacity;  /* Omega for this period */
    uint64_t reserved;  /* tokens issued as reservations at its start */
    uint64_t put;       /* tokens that the pool was given in this period, less what was withdrawn */
    uint64_t claimed;   /* of them claimed, at the last look */
    uint64_t bound;     /* tokens that this period may issue at most */
    uint64_t last_used; /* U of the period before */
    uint64_t last_put, last_claimed, last_reserved, last_bound; /* of the period before, final */
    uint32_t clients;                                           /* admitted at its start */
    bool reporting;                                             /* reports have been asked for */
};

/* Monitor. Fields are private. */
struct tokenpool {
    struct tokenpool_config cfg;
    qos_word_t *shared; /* storage */
    uint32_t *reservation, *limit, *issued, *used, *under, *silent;
    uint8_t *state; /* enum tokenpool_state */
    uint64_t report_offset;
    uint64_t total;   /* sum of admitted reservations */
    uint64_t next_ns; /* of the next check */
    uint64_t pool;    /* the word as last seen or written */
    int64_t target;   /* of the change under way */
    uint64_t now_ns;
    uint64_t capacity_next;
    uint64_t window[TOKENPOOL_HISTORY_MAX]; /* W */
    uint32_t window_used, window_at, joined;
    uint32_t seq, settle, tries;
    uint8_t pending, change; /* enum tokenpool_pending: under way; to be done next */
    bool started;
    struct tokenpool_info info;
    qos_counter_t granted, borrowed, refused, waited;
};

/* ---- API ----------------------------------------------------------------------------------------- */

/* Bytes of the monitor's memory and of the storage; 0 if the configuration is invalid. Both at 64-byte alignment. */
QOS_API size_t tokenpool_memsize(const struct tokenpool_config *cfg);
QOS_API size_t tokenpool_storage_size(const struct tokenpool_config *cfg);
/* QOS_OK, or what is wrong with it: QOS_EINVAL (NULL, unknown flags), QOS_ERANGE. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_check(const struct tokenpool_config *cfg);

/* Performs an operation on local memory. Lock-free; any thread. */
QOS_API uint64_t tokenpool_op_run(void *storage, const struct tokenpool_op *op);

/* -- engine: one thread each. Wait-free but for the operations themselves. */

/* id 0..clients-1, the slot that tokenpool_join admitted. The configuration must be the monitor's. The engine
 * starts with nothing, and gets its first tokens in the period after the one that it finds running: another engine
 * may have used the slot's reservation in that one, and died. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_client_init(struct tokenpool_client *c,
                                                            const struct tokenpool_config *cfg, uint32_t id);
/* The caller vouches that nobody used this slot in the running period: the engine starts in that one. After init. */
QOS_API void tokenpool_client_start_now(struct tokenpool_client *c);
/* Fast path: n tokens, 1..TOKENPOOL_TOKENS_MAX, out of what the engine holds; one cache line, no atomic, no clock.
 * Call tokenpool_client_next at least every check_ns besides. QOS_EAGAIN: too few held; QOS_ERANGE. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_take(struct tokenpool_client *c, uint64_t n);
/* The next operation on behalf of the engine: reports, polls, and, if `need` > 0 tokens are wanted and not held,
 * claims. True: perform *op, then call tokenpool_client_done, before anything else of the engine but take and
 * complete. False: nothing to do now. */
QOS_API QOS_NODISCARD bool tokenpool_client_next(struct tokenpool_client *c, uint64_t now_ns, uint64_t need,
                                                 struct tokenpool_op *op);
QOS_API void tokenpool_client_done(struct tokenpool_client *c, uint64_t answer);
/* The operation failed for good (transport error): the engine forgets it. A claim's tokens are void. */
QOS_API void tokenpool_client_fail(struct tokenpool_client *c);
/* Direct path: take, and what next and done have to do for it, on local memory: a claim per batch, at most 256
 * operations in one call (a larger request keeps what it got so far, and is QOS_EAGAIN until it has all).
 * QOS_EAGAIN: no token now, see tokenpool_client_next_ns. QOS_ELIMIT: at the limit until the next period. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_take_local(struct tokenpool_client *c, void *storage, uint64_t now_ns,
                                                           uint64_t n);
/* The same without a request: reports and polls. */
QOS_API void tokenpool_tick_local(struct tokenpool_client *c, void *storage, uint64_t now_ns);
/* Takes n tokens that need not be there: debt, paid by the next tokens received. QOS_EDEBT, nothing taken, while more
 * than debt_max is owed already: so the debt stays below debt_max + n. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_force(struct tokenpool_client *c, uint64_t n);
/* Tokens of a take whose I/O did not happen, 0..what was taken in this period (more is cut off). */
QOS_API void tokenpool_put_back(struct tokenpool_client *c, uint64_t n);
/* n I/Os (tokens' worth) completed. */
QOS_API void tokenpool_complete(struct tokenpool_client *c, uint64_t n);
/* Tokens' worth of requests that wait outside for tokens; TOKENPOOL_BACKLOGGED: always more. Holds until changed. */
QOS_API void tokenpool_set_queued(struct tokenpool_client *c, uint64_t n);
/* A period started, as a message says (two-sided transports): instead of polling. Both words as the monitor's
 * tokenpool_message gives them. False: not newer than what the engine knows. */
QOS_API bool tokenpool_client_begin(struct tokenpool_client *c, uint64_t now_ns, uint64_t period, uint64_t terms);
/* Tokens held now; the status a take of n would have without any operation (QOS_OK, QOS_EAGAIN, QOS_ELIMIT). */
QOS_API uint64_t tokenpool_held(const struct tokenpool_client *c);
QOS_API QOS_NODISCARD enum qos_status tokenpool_probe(const struct tokenpool_client *c, uint64_t n);
/* When to call again for n tokens: now_ns if they are held or an operation is due, else the next poll or tick. */
QOS_API uint64_t tokenpool_client_next_ns(const struct tokenpool_client *c, uint64_t now_ns, uint64_t n);
/* Counters as of the last tick; any thread. */
QOS_API void tokenpool_client_stats(const struct tokenpool_client *c, struct qos_stats *out);

/* -- monitor: one thread. */

/* Fresh storage: writes every word of it. The first period starts with the first call of tokenpool_next.
 * QOS_EMEMORY, QOS_EALIGN, QOS_EINVAL, QOS_ERANGE. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_init(struct tokenpool *m, void *mem, size_t size, void *storage,
                                                     size_t storage_size, const struct tokenpool_config *cfg);
/* A new monitor for the storage of one that died: takes its clients (reservations as far as the terms show them) and
 * starts the period after its last. QOS_ECORRUPT: not such a storage, or of another configuration. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_resume(struct tokenpool *m, void *mem, size_t size, void *storage,
                                                       size_t storage_size, const struct tokenpool_config *cfg);
/* Admission (Section II-C): a reservation of 0..TOKENPOOL_TOKENS_MAX tokens a period and a limit >= it; from the next
 * period on. QOS_EADMISSION: *fits (may be NULL) says what would fit. QOS_EEXIST, QOS_ENOENT (id), QOS_ERANGE. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_join(struct tokenpool *m, uint32_t id, uint64_t reservation,
                                                     uint64_t limit, uint64_t *fits);
/* New terms for a client from the next period on; errors as above, the old terms stay. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_change(struct tokenpool *m, uint32_t id, uint64_t reservation,
                                                       uint64_t limit, uint64_t *fits);
/* From the next period on the client has nothing. Its slot can be joined again at once. QOS_ENOENT. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_leave(struct tokenpool *m, uint32_t id);
/* Definition 2, local part: can a client that has completed n of r tokens at elapsed_ns still complete them at the
 * rate of one client? */
QOS_API bool tokenpool_local_fits(const struct tokenpool_config *cfg, uint64_t r, uint64_t n, uint64_t elapsed_ns);
/* The monitor's next operation on the pool word; as tokenpool_client_next. Call it at tokenpool_next_ns. */
QOS_API QOS_NODISCARD bool tokenpool_next(struct tokenpool *m, uint64_t now_ns, struct tokenpool_op *op);
QOS_API void tokenpool_done(struct tokenpool *m, uint64_t answer);
/* The loop for local memory. */
QOS_API void tokenpool_run(struct tokenpool *m, uint64_t now_ns);
/* Time of the next check or period start. */
QOS_API uint64_t tokenpool_next_ns(const struct tokenpool *m);
/* The two words of a period start message for a client. QOS_EAGAIN: no period is open; QOS_ENOENT. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_message(const struct tokenpool *m, uint32_t id, uint64_t *period,
                                                        uint64_t *terms);
QOS_API void tokenpool_get_info(const struct tokenpool *m, struct tokenpool_info *out);
QOS_API QOS_NODISCARD enum qos_status tokenpool_get_client(const struct tokenpool *m, uint32_t id,
                                                           struct tokenpool_client_info *out);
/* Totals of the finished periods: granted (reservations and claims), borrowed (claims), refused (admissions). */
QOS_API void tokenpool_stats(const struct tokenpool *m, struct qos_stats *out);
/* One look at all reports of this period: sum of K, L, sum of N, largest residual. What a check spends its time on. */
struct tokenpool_scan {
    uint64_t kept, left, used, largest;
};
QOS_API void tokenpool_scan_reports(const struct tokenpool *m, struct tokenpool_scan *out);

/* The fields of the words, for tools that show them. */
QOS_API int64_t tokenpool_word_count(uint64_t pool);
QOS_API uint32_t tokenpool_word_epoch(uint64_t pool);
QOS_API uint32_t tokenpool_word_seq(uint64_t pool);
QOS_API uint64_t tokenpool_word(int64_t count, uint32_t epoch, uint32_t seq);

/* ---- implementation ------------------------------------------------------------------------------ */

#ifndef QOS_DECLARE_ONLY

#define TOKENPOOL_PRIV_MAGIC 0x7174706cu
#define TOKENPOOL_PRIV_OPEN 1u   /* period word: terms and pool are of this epoch */
#define TOKENPOOL_PRIV_REPORT 2u /* period word: report every check_ns */
#define TOKENPOOL_PRIV_COUNT_HALF (UINT64_C(1) << 35)
#define TOKENPOOL_PRIV_OPS 256u /* operations in one call of the direct path: it ends, whatever is asked for */
#define TOKENPOOL_PRIV_TRIES 4u /* changes of the pool in one check; the next check does the rest */

enum tokenpool_pending {
    TOKENPOOL_PRIV_NONE,
    TOKENPOOL_PRIV_PERIOD,  /* engine: reads the period word */
    TOKENPOOL_PRIV_TERMS,   /* engine: a new epoch was seen, reads its terms */
    TOKENPOOL_PRIV_CONFIRM, /* engine: reads the period word again (P2) */
    TOKENPOOL_PRIV_SERVED,  /* engine, ordered */
    TOKENPOOL_PRIV_CLAIM,   /* engine */
    TOKENPOOL_PRIV_REPORT_WRITE,
    TOKENPOOL_PRIV_START, /* monitor: swaps the pool of the new period in */
    TOKENPOOL_PRIV_LOOK,  /* monitor: reads the pool */
    TOKENPOOL_PRIV_RAISE, /* monitor: fetch-and-add */
    TOKENPOOL_PRIV_LOWER  /* monitor: compare-and-swap */
};

enum tokenpool_state {
    TOKENPOOL_PRIV_FREE,
    TOKENPOOL_PRIV_FRESH, /* admitted, has not been given terms */
    TOKENPOOL_PRIV_LIVE,
    TOKENPOOL_PRIV_SILENT /* not heard: no reservation until it reports */
};

QOS_API uint64_t tokenpool_word(int64_t count, uint32_t epoch, uint32_t seq)
{
    return qos_wrap_mul((uint64_t)count, UINT64_C(1) << 28) | (uint64_t)(epoch & 0xffffu) << 12 | (seq & 0xfffu);
}

QOS_API int64_t tokenpool_word_count(uint64_t pool)
{
    return (int64_t)((pool >> 28) ^ TOKENPOOL_PRIV_COUNT_HALF) - (int64_t)TOKENPOOL_PRIV_COUNT_HALF;
}

QOS_API uint32_t tokenpool_word_epoch(uint64_t pool)
{
    return (uint32_t)(pool >> 12) & 0xffffu;
}

QOS_API uint32_t tokenpool_word_seq(uint64_t pool)
{
    return (uint32_t)pool & 0xfffu;
}

QOS_API uint64_t tokenpool_priv_period(uint32_t epoch, uint32_t seq, uint32_t flags)
{
    return (uint64_t)epoch << 20 | (uint64_t)seq << 8 | flags;
}

QOS_API uint32_t tokenpool_priv_period_epoch(uint64_t period)
{
    return (uint32_t)(period >> 20) & 0xffffu;
}

QOS_API uint32_t tokenpool_priv_period_seq(uint64_t period)
{
    return (uint32_t)(period >> 8) & 0xfffu;
}

/* a is ahead of b by less than half of the range. */
QOS_API bool tokenpool_priv_newer(uint32_t a, uint32_t b)
{
    uint32_t ahead = (uint32_t)qos_wrap_sub(a, b) & 0xffffu;
    return ahead != 0 && ahead < 0x8000u;
}

/* Has the pool been raised since the claim that failed at empty_seq? The announced seq may also lag behind it. */
QOS_API bool tokenpool_priv_raised_since(uint32_t announced_seq, uint32_t empty_seq)
{
    uint32_t ahead = (uint32_t)qos_wrap_sub(announced_seq, empty_seq) & 0xfffu;
    return ahead != 0 && ahead < 0x800u;
}

/* Tag of an epoch's reports, 1..63; 0 is no report. The monitor clears slots that missed a period, so a tag is never
 * older than one period. */
QOS_API uint64_t tokenpool_priv_tag(uint32_t epoch)
{
    return epoch % 63u + 1u;
}

/* -- configuration */

/* Storage: offset of the reports. */
QOS_API uint64_t tokenpool_priv_reports(uint32_t clients)
{
    return (TOKENPOOL_OFFSET_TERMS + UINT64_C(8) * clients + QOS_CACHE_LINE - 1) / QOS_CACHE_LINE * QOS_CACHE_LINE;
}

QOS_API uint64_t tokenpool_priv_default(uint64_t value, uint64_t fallback)
{
    return value ? value : fallback;
}

/* Zero becomes the default, the named "nothing" stays what it is. */
QOS_API void tokenpool_priv_fill(struct tokenpool_config *out, const struct tokenpool_config *cfg)
{
    *out = *cfg;
    out->batch = cfg->batch ? cfg->batch : 1000;
    out->overrun = cfg->overrun ? cfg->overrun : 1;
    out->history = cfg->history ? cfg->history : 5;
    out->alert_periods = cfg->alert_periods ? cfg->alert_periods : 10;
    out->silent_periods = cfg->silent_periods ? cfg->silent_periods : 1;
    out->period_ns = tokenpool_priv_default(cfg->period_ns, QOS_NS_PER_S);
    out->check_ns = tokenpool_priv_default(cfg->check_ns, qos_max(qos_min(1000000, out->period_ns / 8), 1));
    out->poll_ns = tokenpool_priv_default(cfg->poll_ns, qos_max(out->check_ns / 8, 1));
    out->capacity_min = tokenpool_priv_default(cfg->capacity_min, qos_mul_div_ceil(cfg->capacity, 7, 10));
    out->capacity_step = tokenpool_priv_default(cfg->capacity_step, qos_mul_div_ceil(cfg->capacity, 1, 50));
    out->client_capacity = tokenpool_priv_default(cfg->client_capacity, cfg->capacity);
    out->debt_max = tokenpool_priv_default(cfg->debt_max, out->batch);
}

QOS_API bool tokenpool_priv_within(uint64_t v, uint64_t low, uint64_t high, uint64_t named)
{
    return (v >= low && v <= high) || v == named;
}

QOS_API enum qos_status tokenpool_check(const struct tokenpool_config *cfg)
{
    const uint32_t known = TOKENPOOL_GUARD | TOKENPOOL_ORDERED | TOKENPOOL_BASIC | TOKENPOOL_FIXED;
    struct tokenpool_config f;
    if (!cfg || (cfg->flags & ~known) != 0)
        return QOS_EINVAL;
    tokenpool_priv_fill(&f, cfg);
    if (f.clients == 0 || f.clients > TOKENPOOL_CLIENTS_MAX || f.batch > TOKENPOOL_BATCH_MAX ||
        (uint64_t)f.clients * f.batch > TOKENPOOL_KNOCK_MAX)
        return QOS_ERANGE;
    if (!tokenpool_priv_within(f.overrun, 1, 1000, TOKENPOOL_NO_OVERRUN) || f.history > TOKENPOOL_HISTORY_MAX)
        return QOS_ERANGE;
    if (f.period_ns < 8 || f.period_ns > TOKENPOOL_PERIOD_NS_MAX || f.check_ns > f.period_ns || f.poll_ns > f.check_ns)
        return QOS_ERANGE;
    if (f.capacity == 0 || f.capacity > TOKENPOOL_TOKENS_MAX || f.client_capacity > TOKENPOOL_TOKENS_MAX)
        return QOS_ERANGE;
    if (!tokenpool_priv_within(f.capacity_min, 1, f.capacity, TOKENPOOL_NO_FLOOR) ||
        !tokenpool_priv_within(f.capacity_step, 1, TOKENPOOL_TOKENS_MAX, TOKENPOOL_NO_STEP) ||
        !tokenpool_priv_within(f.equal_within, 0, TOKENPOOL_TOKENS_MAX, TOKENPOOL_EXACT) ||
        !tokenpool_priv_within(f.debt_max, 1, TOKENPOOL_TOKENS_MAX, TOKENPOOL_NO_DEBT))
        return QOS_ERANGE;
    return QOS_OK;
}

/* -- engine */

QOS_API uint64_t tokenpool_priv_spent(const struct tokenpool_client *c)
{
    return (uint64_t)((int64_t)c->allowance - c->ready); /* ready <= allowance */
}

/* Tokens that may be spent changed: what is spent stays spent. */
QOS_API void tokenpool_priv_allow(struct tokenpool_client *c)
{
    uint64_t spent = tokenpool_priv_spent(c);
    c->allowance = qos_min(c->kept + c->gained, c->limit);
    c->ready = (int64_t)c->allowance - (int64_t)spent;
    if (c->waiting && c->ready >= (int64_t)c->waiting) {
        c->waiting = 0;
        qos_counter_add(&c->waited, 1);
    }
}

/* Brings the counters up to date. */
QOS_API void tokenpool_priv_publish(struct tokenpool_client *c)
{
    uint64_t spent = tokenpool_priv_spent(c), borrowed = qos_sat_sub(spent, c->kept);
    uint64_t debt = c->ready < 0 ? (uint64_t)-c->ready : 0;
    qos_counter_add(&c->granted, qos_wrap_sub(spent, c->published)); /* put_back may have made it less */
    qos_counter_add(&c->borrowed, qos_wrap_sub(borrowed, c->published_borrowed));
    qos_counter_add(&c->debt, qos_wrap_sub(debt, qos_counter_read(&c->debt)));
    c->published = spent;
    c->published_borrowed = borrowed;
}

/* The period is over for this engine: its tokens are void, its debt stays. */
QOS_API void tokenpool_priv_lapse(struct tokenpool_client *c)
{
    uint64_t spent = tokenpool_priv_spent(c);
    tokenpool_priv_publish(c);
    if (c->ready > 0)
        qos_counter_add(&c->voided, (uint64_t)c->ready);
    c->ready = c->ready < 0 ? c->ready : 0;
    c->allowance = (uint64_t)((int64_t)spent + c->ready);
    c->running = false;
}

/* Client Token Management: K never more than R - (rho - D). D counts what is spent and what is queued. */
QOS_API void tokenpool_priv_decay(struct tokenpool_client *c, uint64_t elapsed_ns)
{
    uint64_t rho = qos_mul_div_floor(c->reservation, elapsed_ns, c->cfg.period_ns); /* rounded down: the client gains */
    uint64_t demand = qos_sat_add(tokenpool_priv_spent(c), c->queued);
    uint64_t kept = c->reservation - qos_sat_sub(rho, demand);
    if (kept < c->kept) {
        c->kept = kept;
        tokenpool_priv_allow(c);
    }
}

QOS_API enum qos_status tokenpool_client_init(struct tokenpool_client *c, const struct tokenpool_config *cfg,
                                              uint32_t id)
{
    enum qos_status s = tokenpool_check(cfg);
    if (!c)
        return QOS_EINVAL;
    if (s != QOS_OK)
        return s;
    if (id >= cfg->clients)
        return QOS_ENOENT;
    __builtin_memset(c, 0, sizeof *c);
    tokenpool_priv_fill(&c->cfg, cfg);
    c->id = id;
    return QOS_OK;
}

QOS_API void tokenpool_client_start_now(struct tokenpool_client *c)
{
    c->unused_slot = true;
}

/* One refusal per request: further tries of one that waits already do not count. */
QOS_API void tokenpool_priv_refuse(struct tokenpool_client *c, uint64_t n)
{
    if (!c->waiting)
        qos_counter_add(&c->refused, 1);
    c->waiting = (uint32_t)n;
}

QOS_API enum qos_status tokenpool_take(struct tokenpool_client *c, uint64_t n)
{
    if (QOS_LIKELY(qos_wrap_sub(n, 1) < TOKENPOOL_TOKENS_MAX && (int64_t)n <= c->ready)) {
        c->ready -= (int64_t)n;
        return QOS_OK;
    }
    if (n == 0 || n > TOKENPOOL_TOKENS_MAX)
        return QOS_ERANGE;
    tokenpool_priv_refuse(c, n);
    return QOS_EAGAIN;
}

QOS_API enum qos_status tokenpool_probe(const struct tokenpool_client *c, uint64_t n)
{
    if ((int64_t)n <= c->ready)
        return QOS_OK;
    return c->running && c->kept + c->gained >= c->limit ? QOS_ELIMIT : QOS_EAGAIN;
}

QOS_API uint64_t tokenpool_held(const struct tokenpool_client *c)
{
    return c->ready > 0 ? (uint64_t)c->ready : 0;
}

QOS_API enum qos_status tokenpool_force(struct tokenpool_client *c, uint64_t n)
{
    uint64_t most = c->cfg.debt_max == TOKENPOOL_NO_DEBT ? 0 : c->cfg.debt_max;
    if (n == 0 || n > TOKENPOOL_TOKENS_MAX)
        return QOS_ERANGE;
    if ((int64_t)n > c->ready && (c->cfg.debt_max == TOKENPOOL_NO_DEBT || c->ready < -(int64_t)most))
        return QOS_EDEBT;
    c->ready -= (int64_t)n;
    return QOS_OK;
}

QOS_API void tokenpool_put_back(struct tokenpool_client *c, uint64_t n)
{
    c->ready += (int64_t)qos_min(n, tokenpool_priv_spent(c));
    if (!c->running && c->ready > 0) { /* they were of a period that is over */
        c->allowance -= (uint64_t)c->ready;
        c->ready = 0;
    }
}

QOS_API void tokenpool_complete(struct tokenpool_client *c, uint64_t n)
{
    c->completed = qos_sat_add(c->completed, n);
}

QOS_API void tokenpool_set_queued(struct tokenpool_client *c, uint64_t n)
{
    c->queued = n;
}

QOS_API bool tokenpool_client_begin(struct tokenpool_client *c, uint64_t now_ns, uint64_t period, uint64_t terms)
{
    uint32_t epoch = tokenpool_priv_period_epoch(period);
    uint64_t debt;
    if (!(period & TOKENPOOL_PRIV_OPEN) || (c->known && !tokenpool_priv_newer(epoch, c->epoch)))
        return false;
    tokenpool_priv_lapse(c);
    debt = c->ready < 0 ? (uint64_t)-c->ready : 0;
    c->epoch = epoch;
    c->known = true;
    c->running = true;
    c->asked = (period & TOKENPOOL_PRIV_REPORT) != 0;
    c->reported = c->served_polled = false;
    c->empty = c->early && c->early_epoch == epoch && c->early_empty &&
               !tokenpool_priv_raised_since(tokenpool_priv_period_seq(period), c->empty_seq);
    c->start_ns = c->tick_ns = now_ns;
    c->reservation = (uint32_t)(terms >> 32);
    c->limit = (uint32_t)(terms & UINT32_MAX);
    c->kept = c->reservation;
    c->gained = 0;
    if (c->early && c->early_epoch == epoch)
        c->gained = c->early_tokens;
    else
        c->tickets = 0;
    c->early = false;
    c->completed = 0;
    c->allowance = qos_min(c->kept + c->gained, c->limit);
    c->ready = (int64_t)c->allowance - (int64_t)debt;
    c->published = debt;
    c->published_borrowed = qos_sat_sub(debt, c->kept);
    tokenpool_priv_allow(c);
    return true;
}

/* Tokens of the next claim; 0: none now. */
QOS_API uint64_t tokenpool_priv_claimable(const struct tokenpool_client *c)
{
    if (!c->running || c->empty || c->tickets)
        return 0;
    return qos_min(c->cfg.batch, qos_sat_sub(c->limit, c->kept + c->gained));
}

/* What is to be done first for `need` tokens, and since when it is due. One place for next and next_ns. */
QOS_API uint64_t tokenpool_priv_due(const struct tokenpool_client *c, uint64_t need, enum tokenpool_pending *what)
{
    bool want = need > 0 && (int64_t)need > c->ready;
    uint64_t at = QOS_NEVER, poll_at;
    *what = TOKENPOOL_PRIV_NONE;
    if (c->starting) {
        *what = (enum tokenpool_pending)c->starting;
        return 0;
    }
    if (c->running) {
        at = c->reported ? qos_sat_add(c->report_ns, c->asked ? c->cfg.check_ns : c->cfg.period_ns / 8) : 0;
        *what = TOKENPOOL_PRIV_REPORT_WRITE;
        if (at <= c->now_ns)
            return at;
        if (want && tokenpool_priv_claimable(c)) {
            *what = TOKENPOOL_PRIV_CLAIM;
            return 0;
        }
        if (want && c->tickets) {
            uint64_t served_at = c->served_polled ? qos_sat_add(c->served_ns, c->cfg.poll_ns) : 0;
            if (served_at < at) {
                at = served_at;
                *what = TOKENPOOL_PRIV_SERVED;
            }
        }
    }
    if (at <= c->now_ns)
        return at;
    poll_at = want || !c->running ? c->cfg.poll_ns : c->cfg.check_ns;
    poll_at = c->polled ? qos_sat_add(c->poll_ns, poll_at) : 0;
    if (poll_at < at) {
        at = poll_at;
        *what = TOKENPOOL_PRIV_PERIOD;
    }
    return at;
}

QOS_API uint64_t tokenpool_priv_report(const struct tokenpool_client *c)
{
    uint64_t elapsed_ns = qos_elapsed_ns(c->start_ns, c->now_ns);
    uint64_t quarter = qos_min(qos_mul_div_floor(elapsed_ns, 4, c->cfg.period_ns), 3);
    return tokenpool_priv_tag(c->epoch) << 58 | quarter << 56 | c->kept << 28 |
           qos_min(c->completed, TOKENPOOL_TOKENS_MAX);
}

QOS_API void tokenpool_priv_client_op(struct tokenpool_client *c, enum tokenpool_pending what, struct tokenpool_op *op)
{
    c->pending = (uint8_t)what;
    op->kind = TOKENPOOL_READ;
    op->operand = op->compare = 0;
    op->offset = TOKENPOOL_OFFSET_PERIOD;
    if (what == TOKENPOOL_PRIV_REPORT_WRITE) {
        op->kind = TOKENPOOL_WRITE;
        op->offset = tokenpool_priv_reports(c->cfg.clients) + UINT64_C(8) * c->id;
        op->operand = tokenpool_priv_report(c);
        c->report_ns = c->now_ns;
        c->reported = true;
    } else if (what == TOKENPOOL_PRIV_CLAIM) {
        c->claim = tokenpool_priv_claimable(c);
        op->kind = TOKENPOOL_FETCH_ADD;
        op->offset = TOKENPOOL_OFFSET_POOL;
        op->operand = c->cfg.flags & TOKENPOOL_ORDERED ? c->claim << 28 : qos_wrap_sub(0, c->claim << 28);
        qos_counter_add(&c->claims, 1);
    } else if (what == TOKENPOOL_PRIV_SERVED) {
        op->offset = TOKENPOOL_OFFSET_SERVED;
        c->served_ns = c->now_ns;
        c->served_polled = true;
    } else if (what == TOKENPOOL_PRIV_TERMS) {
        op->offset = TOKENPOOL_OFFSET_TERMS + UINT64_C(8) * c->id;
    } else {
        c->poll_ns = c->now_ns;
        c->polled = true;
    }
}

QOS_API bool tokenpool_client_next(struct tokenpool_client *c, uint64_t now_ns, uint64_t need, struct tokenpool_op *op)
{
    enum tokenpool_pending what;
    if (c->pending)
        return false;
    c->now_ns = now_ns;
    if (c->running) {
        uint64_t elapsed_ns = qos_elapsed_ns(c->start_ns, now_ns);
        if (elapsed_ns >= c->cfg.period_ns) {
            tokenpool_priv_lapse(c);
        } else if (qos_elapsed_ns(c->tick_ns, now_ns) >= c->cfg.check_ns) {
            c->tick_ns = now_ns;
            tokenpool_priv_decay(c, elapsed_ns);
            tokenpool_priv_publish(c);
        }
    }
    if (tokenpool_priv_due(c, need, &what) > now_ns)
        return false;
    tokenpool_priv_client_op(c, what, op);
    return true;
}

QOS_API void tokenpool_priv_saw_period(struct tokenpool_client *c, uint64_t period)
{
    uint32_t epoch = tokenpool_priv_period_epoch(period);
    if (epoch == 0 && period == 0)
        return; /* no period yet */
    if (!c->known && !c->unused_slot) {
        c->known = true;
        c->epoch = epoch;
    } else if (!c->known || tokenpool_priv_newer(epoch, c->epoch)) {
        if (c->running)
            tokenpool_priv_lapse(c);
        if (period & TOKENPOOL_PRIV_OPEN) {
            c->seen_period = period;
            c->starting = TOKENPOOL_PRIV_TERMS;
        }
    } else if (epoch == c->epoch) {
        c->asked = (period & TOKENPOOL_PRIV_REPORT) != 0;
        if (c->empty && tokenpool_priv_raised_since(tokenpool_priv_period_seq(period), c->empty_seq))
            c->empty = false;
    }
}

/* The answer of a claim. Its own epoch decides whose tokens they are. */
QOS_API void tokenpool_priv_claimed(struct tokenpool_client *c, uint64_t pool)
{
    bool ordered = (c->cfg.flags & TOKENPOOL_ORDERED) != 0;
    int64_t count = tokenpool_word_count(pool);
    uint64_t got = count <= 0 || ordered ? 0 : qos_min((uint64_t)count, c->claim);
    uint32_t epoch = tokenpool_word_epoch(pool);
    bool early = tokenpool_priv_newer(epoch, c->epoch);
    if (!early && (epoch != c->epoch || !c->running)) {
        qos_counter_add(&c->voided, got);
        return;
    }
    if (ordered) {
        c->ticket = (uint64_t)count;
        c->tickets = c->claim;
        c->served_polled = false;
    }
    c->empty_seq = tokenpool_word_seq(pool);
    if (early) { /* our period is over, and we do not know the new one yet: what we got waits for it */
        if (c->running)
            tokenpool_priv_lapse(c);
        c->early = true;
        c->early_epoch = epoch;
        c->early_tokens = got;
        c->early_empty = !ordered && count <= (int64_t)c->claim;
    } else if (!ordered) {
        c->gained += got;
        c->empty = count <= (int64_t)c->claim;
        tokenpool_priv_allow(c);
    }
}

QOS_API void tokenpool_priv_saw_served(struct tokenpool_client *c, uint64_t served)
{
    int64_t ready = tokenpool_word_count(served) - (int64_t)c->ticket;
    uint64_t n = ready <= 0 ? 0 : qos_min((uint64_t)ready, c->tickets);
    if (tokenpool_word_epoch(served) != c->epoch || !c->running)
        return;
    c->ticket += n;
    c->tickets -= n;
    c->gained += n;
    tokenpool_priv_allow(c);
}

QOS_API void tokenpool_client_done(struct tokenpool_client *c, uint64_t answer)
{
    uint8_t what = c->pending;
    c->pending = TOKENPOOL_PRIV_NONE;
    switch (what) {
    case TOKENPOOL_PRIV_PERIOD: tokenpool_priv_saw_period(c, answer); break;
    case TOKENPOOL_PRIV_TERMS:
        c->seen_terms = answer;
        c->starting = TOKENPOOL_PRIV_CONFIRM;
        break;
    case TOKENPOOL_PRIV_CONFIRM: /* P2 */
        c->starting = TOKENPOOL_PRIV_NONE;
        if (answer & TOKENPOOL_PRIV_OPEN &&
            tokenpool_priv_period_epoch(answer) == tokenpool_priv_period_epoch(c->seen_period))
            (void)tokenpool_client_begin(c, c->now_ns, answer, c->seen_terms);
        else
            c->polled = false;
        break;
    case TOKENPOOL_PRIV_SERVED: tokenpool_priv_saw_served(c, answer); break;
    case TOKENPOOL_PRIV_CLAIM: tokenpool_priv_claimed(c, answer); break;
    default: break;
    }
}

QOS_API void tokenpool_client_fail(struct tokenpool_client *c)
{
    c->pending = TOKENPOOL_PRIV_NONE;
    c->starting = TOKENPOOL_PRIV_NONE;
}

QOS_API uint64_t tokenpool_op_run(void *storage, const struct tokenpool_op *op)
{
    qos_word_t *w = (qos_word_t *)storage + op->offset / sizeof(qos_word_t);
    uint64_t old = op->compare;
    switch (op->kind) {
    case TOKENPOOL_WRITE: qos_atomic_store_relaxed(w, op->operand); return 0; /* a report is complete in itself */
    case TOKENPOOL_FETCH_ADD: return qos_atomic_add_relaxed(w, op->operand);  /* so is a pool word */
    case TOKENPOOL_COMPARE_SWAP: (void)qos_atomic_cas_relaxed(w, &old, op->operand); return old;
    default: return qos_atomic_load_acquire(w); /* P1, P2, S1 */
    }
}

QOS_API void tokenpool_priv_drive(struct tokenpool_client *c, void *storage, uint64_t now_ns, uint64_t need)
{
    struct tokenpool_op op;
    uint32_t i;
    for (i = 0; i < TOKENPOOL_PRIV_OPS && tokenpool_client_next(c, now_ns, need, &op); i++)
        tokenpool_client_done(c, tokenpool_op_run(storage, &op));
}

QOS_API void tokenpool_tick_local(struct tokenpool_client *c, void *storage, uint64_t now_ns)
{
    tokenpool_priv_drive(c, storage, now_ns, 0);
}

QOS_API enum qos_status tokenpool_take_local(struct tokenpool_client *c, void *storage, uint64_t now_ns, uint64_t n)
{
    enum qos_status s;
    if (n == 0 || n > TOKENPOOL_TOKENS_MAX)
        return QOS_ERANGE;
    if (QOS_UNLIKELY((int64_t)n > c->ready)) {
        tokenpool_priv_drive(c, storage, now_ns, n);
        s = tokenpool_probe(c, n);
        if (s != QOS_OK) {
            tokenpool_priv_refuse(c, n);
            return s;
        }
    }
    c->ready -= (int64_t)n;
    return QOS_OK;
}

QOS_API uint64_t tokenpool_client_next_ns(const struct tokenpool_client *c, uint64_t now_ns, uint64_t n)
{
    enum tokenpool_pending what;
    uint64_t at;
    if (n > 0 && (int64_t)n <= c->ready)
        return now_ns;
    at = tokenpool_priv_due(c, n, &what);
    if (c->running) {
        at = qos_min(at, qos_sat_add(c->tick_ns, c->cfg.check_ns));
        at = qos_min(at, qos_sat_add(c->start_ns, c->cfg.period_ns));
    }
    return qos_max(at, now_ns);
}

QOS_API void tokenpool_client_stats(const struct tokenpool_client *c, struct qos_stats *out)
{
    out->granted = qos_counter_read(&c->granted);
    out->borrowed = qos_counter_read(&c->borrowed);
    out->refused = qos_counter_read(&c->refused);
    out->waited = qos_counter_read(&c->waited);
    out->debt = qos_counter_read(&c->debt);
}

/* -- monitor */

struct tokenpool_priv_layout {
    size_t reservation, limit, issued, used, under, silent, state;
};

QOS_API void tokenpool_priv_lay(uint32_t clients, struct tokenpool_priv_layout *at, struct qos_layout *l)
{
    l->mem = NULL;
    l->size_bytes = l->align = 0;
    l->overflow = false;
    at->reservation = qos_layout_add(l, clients, sizeof(uint32_t), QOS_CACHE_LINE);
    at->limit = qos_layout_add(l, clients, sizeof(uint32_t), QOS_CACHE_LINE);
    at->issued = qos_layout_add(l, clients, sizeof(uint32_t), QOS_CACHE_LINE);
    at->used = qos_layout_add(l, clients, sizeof(uint32_t), QOS_CACHE_LINE);
    at->under = qos_layout_add(l, clients, sizeof(uint32_t), QOS_CACHE_LINE);
    at->silent = qos_layout_add(l, clients, sizeof(uint32_t), QOS_CACHE_LINE);
    at->state = qos_layout_add(l, clients, sizeof(uint8_t), QOS_CACHE_LINE);
}

/* Storage: terms, then reports. */
QOS_API void tokenpool_priv_lay_storage(uint32_t clients, struct qos_layout *l)
{
    l->mem = NULL;
    l->size_bytes = l->align = 0;
    l->overflow = false;
    (void)qos_layout_add(l, (size_t)tokenpool_priv_reports(clients) / 8 + clients, 8, QOS_CACHE_LINE);
}

QOS_API size_t tokenpool_memsize(const struct tokenpool_config *cfg)
{
    struct tokenpool_priv_layout at;
    struct qos_layout l;
    if (tokenpool_check(cfg) != QOS_OK)
        return 0;
    tokenpool_priv_lay(cfg->clients, &at, &l);
    return qos_layout_size(&l);
}

QOS_API size_t tokenpool_storage_size(const struct tokenpool_config *cfg)
{
    struct qos_layout l;
    if (tokenpool_check(cfg) != QOS_OK)
        return 0;
    tokenpool_priv_lay_storage(cfg->clients, &l);
    return qos_layout_size(&l);
}

/* Says whose storage it is. */
QOS_API uint64_t tokenpool_priv_identity(const struct tokenpool_config *f)
{
    uint8_t b[20];
    qos_put_le32(b, f->clients);
    qos_put_le32(b + 4, f->batch);
    qos_put_le32(b + 8, f->flags);
    qos_put_le64(b + 12, f->period_ns);
    return (uint64_t)TOKENPOOL_PRIV_MAGIC << 32 | qos_crc32c(0, b, sizeof b);
}

QOS_API qos_word_t *tokenpool_priv_at(const struct tokenpool *m, uint64_t offset)
{
    return m->shared + offset / sizeof(qos_word_t);
}

QOS_API enum qos_status tokenpool_priv_setup(struct tokenpool *m, void *mem, size_t size, void *storage,
                                             size_t storage_size, const struct tokenpool_config *cfg, bool resume)
{
    struct tokenpool_priv_layout at;
    struct qos_layout l, ls;
    struct tokenpool_config f;
    uint8_t *base = (uint8_t *)mem;
    enum qos_status s = tokenpool_check(cfg);
    if (!m)
        return QOS_EINVAL;
    if (s != QOS_OK)
        return s;
    tokenpool_priv_lay(cfg->clients, &at, &l);
    tokenpool_priv_lay_storage(cfg->clients, &ls);
    s = qos_layout_check(&l, mem, size);
    if (s == QOS_OK)
        s = qos_layout_check(&ls, storage, storage_size);
    if (s != QOS_OK)
        return s;
    tokenpool_priv_fill(&f, cfg);
    if (resume &&
        qos_atomic_load_acquire((qos_word_t *)storage + TOKENPOOL_OFFSET_IDENTITY / 8) != tokenpool_priv_identity(&f))
        return QOS_ECORRUPT;
    __builtin_memset(m, 0, sizeof *m);
    __builtin_memset(mem, 0, qos_layout_size(&l));
    m->cfg = f;
    m->shared = (qos_word_t *)storage;
    m->reservation = (uint32_t *)(void *)(base + at.reservation);
    m->limit = (uint32_t *)(void *)(base + at.limit);
    m->issued = (uint32_t *)(void *)(base + at.issued);
    m->used = (uint32_t *)(void *)(base + at.used);
    m->under = (uint32_t *)(void *)(base + at.under);
    m->silent = (uint32_t *)(void *)(base + at.silent);
    m->state = base + at.state;
    m->report_offset = tokenpool_priv_reports(f.clients);
    m->capacity_next = f.capacity;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_init(struct tokenpool *m, void *mem, size_t size, void *storage, size_t storage_size,
                                       const struct tokenpool_config *cfg)
{
    enum qos_status s = tokenpool_priv_setup(m, mem, size, storage, storage_size, cfg, false);
    uint64_t at;
    if (s != QOS_OK)
        return s;
    for (at = 0; at < m->report_offset + UINT64_C(8) * m->cfg.clients; at += 8)
        qos_atomic_store_relaxed(tokenpool_priv_at(m, at), 0);
    qos_atomic_store_release(tokenpool_priv_at(m, TOKENPOOL_OFFSET_IDENTITY), tokenpool_priv_identity(&m->cfg));
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_resume(struct tokenpool *m, void *mem, size_t size, void *storage,
                                         size_t storage_size, const struct tokenpool_config *cfg)
{
    enum qos_status s = tokenpool_priv_setup(m, mem, size, storage, storage_size, cfg, true);
    uint64_t period;
    uint32_t i;
    if (s != QOS_OK)
        return s;
    period = qos_atomic_load_acquire(tokenpool_priv_at(m, TOKENPOOL_OFFSET_PERIOD));
    m->info.epoch = tokenpool_priv_period_epoch(period);
    m->pool = qos_atomic_load_acquire(tokenpool_priv_at(m, TOKENPOOL_OFFSET_POOL));
    for (i = 0; i < m->cfg.clients; i++) {
        uint64_t terms = qos_atomic_load_acquire(tokenpool_priv_at(m, TOKENPOOL_OFFSET_TERMS + UINT64_C(8) * i));
        m->reservation[i] = (uint32_t)(terms >> 32);
        m->limit[i] = (uint32_t)(terms & UINT32_MAX);
        m->state[i] = m->limit[i] ? TOKENPOOL_PRIV_FRESH : TOKENPOOL_PRIV_FREE;
        m->joined += m->limit[i] != 0;
        m->total += m->reservation[i];
    }
    return QOS_OK;
}

QOS_API bool tokenpool_local_fits(const struct tokenpool_config *cfg, uint64_t r, uint64_t n, uint64_t elapsed_ns)
{
    struct tokenpool_config f;
    tokenpool_priv_fill(&f, cfg);
    return qos_cmp_wide(qos_mul_wide(qos_sat_sub(r, n), f.period_ns),
                        qos_mul_wide(qos_sat_sub(f.period_ns, elapsed_ns), f.client_capacity)) <= 0;
}

/* `others`: reservations admitted besides this client's. */
QOS_API enum qos_status tokenpool_priv_admit(struct tokenpool *m, uint64_t others, uint64_t reservation, uint64_t limit,
                                             uint64_t *fits)
{
    uint64_t most = qos_min(qos_sat_sub(m->capacity_next, others), m->cfg.client_capacity);
    if (reservation > TOKENPOOL_TOKENS_MAX || limit < reservation ||
        !tokenpool_priv_within(limit, 1, TOKENPOOL_TOKENS_MAX, TOKENPOOL_NO_LIMIT))
        return QOS_ERANGE;
    if (reservation <= most)
        return QOS_OK;
    if (fits)
        *fits = most;
    qos_counter_add(&m->refused, 1);
    return QOS_EADMISSION;
}

QOS_API enum qos_status tokenpool_join(struct tokenpool *m, uint32_t id, uint64_t reservation, uint64_t limit,
                                       uint64_t *fits)
{
    enum qos_status s;
    if (id >= m->cfg.clients)
        return QOS_ENOENT;
    if (m->state[id] != TOKENPOOL_PRIV_FREE)
        return QOS_EEXIST;
    s = tokenpool_priv_admit(m, m->total, reservation, limit, fits);
    if (s != QOS_OK)
        return s;
    m->state[id] = TOKENPOOL_PRIV_FRESH;
    m->reservation[id] = (uint32_t)reservation;
    m->limit[id] = (uint32_t)limit;
    m->used[id] = m->under[id] = m->silent[id] = 0;
    m->total += reservation;
    m->joined++;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_change(struct tokenpool *m, uint32_t id, uint64_t reservation, uint64_t limit,
                                         uint64_t *fits)
{
    enum qos_status s;
    if (id >= m->cfg.clients || m->state[id] == TOKENPOOL_PRIV_FREE)
        return QOS_ENOENT;
    s = tokenpool_priv_admit(m, m->total - m->reservation[id], reservation, limit, fits);
    if (s != QOS_OK)
        return s;
    m->total = m->total - m->reservation[id] + reservation;
    m->reservation[id] = (uint32_t)reservation;
    m->limit[id] = (uint32_t)limit;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_leave(struct tokenpool *m, uint32_t id)
{
    if (id >= m->cfg.clients || m->state[id] == TOKENPOOL_PRIV_FREE)
        return QOS_ENOENT;
    m->total -= m->reservation[id];
    m->joined--;
    m->state[id] = TOKENPOOL_PRIV_FREE;
    m->reservation[id] = m->limit[id] = 0;
    return QOS_OK;
}

QOS_API void tokenpool_scan_reports(const struct tokenpool *m, struct tokenpool_scan *out)
{
    const uint32_t block = 64;
    const uint64_t tag = tokenpool_priv_tag((uint32_t)m->info.epoch), mask = TOKENPOOL_TOKENS_MAX;
    const qos_word_t *reports = m->shared + m->report_offset / 8;
    uint64_t kept = 0, left = 0, used = 0, largest = 0;
    uint32_t i, j, n;
    for (i = 0; i < m->cfg.clients; i += n) {
        uint64_t word[64]; /* a copy: the loop over it has no atomics in it and vectorises */
        n = m->cfg.clients - i < block ? m->cfg.clients - i : block;
        for (j = 0; j < n; j++)
            word[j] = qos_atomic_load_relaxed(&reports[i + j]);
        for (j = 0; j < n; j++) {
            uint64_t issued = m->issued[i + j], k = word[j] >> 28 & mask, done = word[j] & mask, rest;
            bool fresh = word[j] >> 58 == tag;
            k = fresh && k < issued ? k : issued; /* nobody keeps more than he was given */
            done = fresh ? done : 0;
            rest = k > done ? k - done : 0;
            kept += k;
            used += done;
            left += rest;
            largest = rest > largest ? rest : largest;
        }
    }
    out->kept = kept;
    out->left = left;
    out->used = used;
    out->largest = largest;
}

/* Algorithm 1. */
QOS_API void tokenpool_priv_estimate(struct tokenpool *m, uint64_t used)
{
    uint64_t omega = m->info.capacity, sum = 0, floor_tokens = m->cfg.capacity_min, within;
    uint32_t i;
    bool equal;
    if (m->cfg.flags & TOKENPOOL_FIXED)
        return;
    within = m->cfg.equal_within ? m->cfg.equal_within : (uint64_t)m->info.clients * m->cfg.batch;
    equal = within == TOKENPOOL_EXACT ? used == omega : qos_sat_add(used, within) >= omega;
    if (equal) {
        if (within != TOKENPOOL_EXACT) /* all of Omega was done: records of less are of another time */
            m->window_used = m->window_at = 0;
        if (m->cfg.capacity_step != TOKENPOOL_NO_STEP)
            m->capacity_next = qos_min(omega + m->cfg.capacity_step, TOKENPOOL_TOKENS_MAX);
        return;
    }
    if (used > omega || used == 0 || (floor_tokens != TOKENPOOL_NO_FLOOR && used < floor_tokens))
        return;
    m->window[m->window_at] = used;
    m->window_at = (m->window_at + 1) % m->cfg.history;
    if (m->window_used < m->cfg.history)
        m->window_used++;
    for (i = 0; i < m->window_used; i++)
        sum += m->window[i];
    m->capacity_next = sum / m->window_used; /* rounded down */
}

/* End of a period, as far as the reports tell it: U, who is silent, who used too little, the next capacity. */
QOS_API void tokenpool_priv_finish(struct tokenpool *m)
{
    const uint64_t tag = tokenpool_priv_tag((uint32_t)m->info.epoch);
    uint64_t total = 0;
    uint32_t i;
    for (i = 0; i < m->cfg.clients; i++) {
        qos_word_t *slot = tokenpool_priv_at(m, m->report_offset + UINT64_C(8) * i);
        uint64_t word = qos_atomic_load_relaxed(slot);
        bool heard = word >> 58 == tag;
        if (word != 0 && !heard)
            qos_atomic_store_relaxed(slot, 0); /* tags repeat after 63 periods */
        m->used[i] = heard ? (uint32_t)(word & TOKENPOOL_TOKENS_MAX) : 0;
        if (m->state[i] == TOKENPOOL_PRIV_FREE || m->state[i] == TOKENPOOL_PRIV_FRESH)
            continue;
        total += m->used[i];
        m->under[i] = m->used[i] < m->issued[i] ? m->under[i] + 1 : 0;
        if (heard && (m->state[i] == TOKENPOOL_PRIV_SILENT || (word >> 56 & 3) == 3)) {
            m->silent[i] = 0;
            m->state[i] = TOKENPOOL_PRIV_LIVE;
        } else if (m->cfg.silent_periods != TOKENPOOL_NEVER_SILENT && ++m->silent[i] >= m->cfg.silent_periods) {
            m->state[i] = TOKENPOOL_PRIV_SILENT;
        }
    }
    m->info.last_used = total;
    tokenpool_priv_estimate(m, total);
}

QOS_API uint64_t tokenpool_priv_guard(const struct tokenpool *m, uint64_t largest, uint64_t left_ns, uint64_t tokens)
{
    uint64_t share = qos_mul_div_floor(m->info.capacity, left_ns, m->cfg.period_ns * qos_max(m->info.clients, 1));
    return m->cfg.flags & TOKENPOOL_GUARD && largest > share ? 0 : tokens;
}

/* A new period: terms go out, and the word that the pool becomes is ready. The old pool serves on until the swap. */
QOS_API void tokenpool_priv_open(struct tokenpool *m)
{
    uint64_t largest = 0, reserved = 0, end_ns = m->info.start_ns + m->cfg.period_ns, initial;
    uint32_t i, epoch = (uint32_t)(m->info.epoch + 1) & 0xffffu;
    m->info.last_put = m->info.put;
    m->info.last_reserved = m->info.reserved;
    m->info.last_bound = m->info.bound;
    m->info.epoch = epoch ? epoch : 1;
    m->info.start_ns = m->started && qos_elapsed_ns(end_ns, m->now_ns) < m->cfg.period_ns ? end_ns : m->now_ns;
    m->info.capacity = m->capacity_next;
    m->info.clients = m->joined;
    m->info.reporting = false;
    qos_atomic_store_relaxed(tokenpool_priv_at(m, TOKENPOOL_OFFSET_PERIOD),
                             tokenpool_priv_period((uint32_t)m->info.epoch, 0, 0)); /* CHANGING: P2 */
    for (i = 0; i < m->cfg.clients; i++) {
        if (m->state[i] == TOKENPOOL_PRIV_FRESH)
            m->state[i] = TOKENPOOL_PRIV_LIVE;
        m->issued[i] = m->state[i] == TOKENPOOL_PRIV_LIVE ? m->reservation[i] : 0;
        reserved += m->issued[i];
        largest = qos_max(largest, m->issued[i]);
        qos_atomic_store_release(tokenpool_priv_at(m, TOKENPOOL_OFFSET_TERMS + UINT64_C(8) * i),
                                 (uint64_t)m->issued[i] << 32 | m->limit[i]); /* P2 */
    }
    initial = tokenpool_priv_guard(m, largest, m->cfg.period_ns, qos_sat_sub(m->info.capacity, reserved));
    m->info.reserved = reserved;
    m->info.bound = qos_max(m->info.capacity, reserved);
    if (m->cfg.overrun != TOKENPOOL_NO_OVERRUN)
        m->info.bound += (uint64_t)m->cfg.overrun * m->info.clients * m->cfg.batch;
    if (m->cfg.flags & TOKENPOOL_ORDERED)
        initial = qos_min(initial, (uint64_t)m->info.clients * m->cfg.batch);
    m->target = (int64_t)initial;
}

/* Tokens of the period that somebody claimed, the pool being `pool`. Exact: what the pool was given, less what is
 * left of it; a negative count says by how much claims failed, not that they got something. */
QOS_API uint64_t tokenpool_priv_count_claimed(const struct tokenpool *m, uint64_t pool)
{
    int64_t count = tokenpool_word_count(pool);
    uint64_t n = count > 0 ? (uint64_t)count : 0;
    return m->cfg.flags & TOKENPOOL_ORDERED ? qos_min(n, m->info.put) : qos_sat_sub(m->info.put, n);
}

QOS_API void tokenpool_priv_announce(struct tokenpool *m)
{
    uint32_t flags = TOKENPOOL_PRIV_OPEN | (m->info.reporting ? TOKENPOOL_PRIV_REPORT : 0);
    qos_atomic_store_release(tokenpool_priv_at(m, TOKENPOOL_OFFSET_PERIOD),
                             tokenpool_priv_period((uint32_t)m->info.epoch, m->seq, flags)); /* P1 */
}

QOS_API void tokenpool_priv_serve(struct tokenpool *m, uint64_t served)
{
    m->info.put = served;
    qos_atomic_store_release(tokenpool_priv_at(m, TOKENPOOL_OFFSET_SERVED),
                             tokenpool_word((int64_t)served, (uint32_t)m->info.epoch, 0)); /* S1 */
}

QOS_API void tokenpool_priv_started(struct tokenpool *m, uint64_t old_pool)
{
    uint64_t initial = (uint64_t)m->target;
    m->info.last_claimed = tokenpool_priv_count_claimed(m, old_pool);
    if (m->started) {
        qos_counter_add(&m->granted, m->info.last_reserved + m->info.last_claimed);
        qos_counter_add(&m->borrowed, m->info.last_claimed);
    }
    m->info.claimed = 0;
    m->info.put = initial;
    m->seq = 0;
    m->started = true;
    m->next_ns = qos_sat_add(m->now_ns, m->cfg.check_ns);
    if (m->cfg.flags & TOKENPOOL_ORDERED)
        tokenpool_priv_serve(m, initial);
    tokenpool_priv_announce(m);
}

/* Step T2: what the pool should hold at this moment. */
QOS_API uint64_t tokenpool_priv_target(const struct tokenpool *m)
{
    struct tokenpool_scan scan;
    uint64_t left_ns = qos_sat_sub(m->cfg.period_ns, qos_elapsed_ns(m->info.start_ns, m->now_ns));
    uint64_t room, budget;
    tokenpool_scan_reports(m, &scan);
    room = qos_sat_sub(qos_mul_div_floor(m->info.capacity, left_ns, m->cfg.period_ns), scan.left);
    budget = qos_sat_sub(m->info.bound, scan.kept + m->info.claimed);
    return tokenpool_priv_guard(m, scan.largest, left_ns, qos_min(room, budget));
}

/* The pool as read: steps S2, S3 and T2. Leaves the change to be made in m->change and m->target. */
QOS_API void tokenpool_priv_looked(struct tokenpool *m, uint64_t pool)
{
    int64_t count = tokenpool_word_count(pool);
    bool ordered = (m->cfg.flags & TOKENPOOL_ORDERED) != 0;
    uint64_t target;
    m->pool = pool;
    m->info.claimed = tokenpool_priv_count_claimed(m, pool);
    if (!m->info.reporting) {
        if (ordered ? count > 0 : count < (int64_t)m->info.put) {
            m->info.reporting = true;
            m->settle = 1; /* the reports asked for are there at the check after the next */
            tokenpool_priv_announce(m);
        }
        return;
    }
    if (m->settle) {
        m->settle--;
        return;
    }
    if (m->cfg.flags & TOKENPOOL_BASIC)
        return;
    target = tokenpool_priv_target(m);
    if (ordered) { /* no lowering here: so never more than one claim each ahead of the tickets */
        /* a count below zero: somebody wrote the word who should not */
        uint64_t ahead = (count > 0 ? (uint64_t)count : 0) + (uint64_t)m->info.clients * m->cfg.batch;
        uint64_t served = qos_min(m->info.claimed + target, ahead);
        if (served > m->info.put)
            tokenpool_priv_serve(m, served);
        return;
    }
    m->target = (int64_t)target;
    m->tries = TOKENPOOL_PRIV_TRIES;
    if (m->target > count && target > 0)
        m->change = TOKENPOOL_PRIV_RAISE;
    else if (m->target < count)
        m->change = TOKENPOOL_PRIV_LOWER;
}

/* What was claimed between the look and the raise came out of the target. What was knocked for in vain did too, and
 * is put back by another raise; a client knocks once per raise, so this ends. */
QOS_API void tokenpool_priv_raised(struct tokenpool *m, uint64_t old_pool)
{
    int64_t seen = tokenpool_word_count(m->pool), old_count = tokenpool_word_count(old_pool);
    int64_t count = old_count + (m->target - seen);
    m->info.claimed = tokenpool_priv_count_claimed(m, old_pool);
    m->info.put = m->info.claimed + (count > 0 ? (uint64_t)count : 0);
    m->seq = (m->seq + 1) & 0xfffu;
    m->pool = tokenpool_word(count, (uint32_t)m->info.epoch, m->seq);
    if (count > 0) /* otherwise nobody should knock: each knock at an empty pool would lower it further */
        tokenpool_priv_announce(m);
    m->target -= (seen > 0 ? seen : 0) - (old_count > 0 ? old_count : 0);
    if (count < m->target && --m->tries)
        m->change = TOKENPOOL_PRIV_RAISE;
}

QOS_API void tokenpool_priv_lowered(struct tokenpool *m, uint64_t old_pool)
{
    int64_t count = tokenpool_word_count(old_pool);
    if (old_pool == m->pool) {
        /* count > target >= 0; more than was put if somebody wrote the word who should not */
        m->info.put = qos_sat_sub(m->info.put, (uint64_t)(count - m->target));
        m->pool = tokenpool_word(m->target, (uint32_t)m->info.epoch, m->seq);
        return;
    }
    /* Somebody claimed: what he took is lowered already, by the rest we still have to. */
    m->target -= tokenpool_word_count(m->pool) - count;
    m->target = m->target > 0 ? m->target : 0;
    m->pool = old_pool;
    m->info.claimed = tokenpool_priv_count_claimed(m, old_pool);
    if (count > m->target && --m->tries)
        m->change = TOKENPOOL_PRIV_LOWER;
}

QOS_API bool tokenpool_next(struct tokenpool *m, uint64_t now_ns, struct tokenpool_op *op)
{
    if (m->pending)
        return false;
    m->now_ns = now_ns;
    if (!m->change) {
        if (!m->started || qos_elapsed_ns(m->info.start_ns, now_ns) >= m->cfg.period_ns) {
            if (m->started)
                tokenpool_priv_finish(m);
            tokenpool_priv_open(m);
            m->change = TOKENPOOL_PRIV_START;
        } else if (now_ns >= m->next_ns) {
            m->next_ns = qos_sat_add(now_ns, m->cfg.check_ns);
            m->change = TOKENPOOL_PRIV_LOOK;
        } else {
            return false;
        }
    }
    m->pending = m->change;
    m->change = TOKENPOOL_PRIV_NONE;
    op->offset = TOKENPOOL_OFFSET_POOL;
    op->kind = TOKENPOOL_READ;
    op->operand = op->compare = 0;
    if (m->pending == TOKENPOOL_PRIV_RAISE) { /* the seq and the count in one go; nobody else changes the seq */
        uint64_t to = tokenpool_word(m->target, (uint32_t)m->info.epoch, m->seq + 1);
        uint64_t from = tokenpool_word(tokenpool_word_count(m->pool), (uint32_t)m->info.epoch, m->seq);
        op->kind = TOKENPOOL_FETCH_ADD;
        op->operand = qos_wrap_sub(to, from);
    } else if (m->pending != TOKENPOOL_PRIV_LOOK) {
        bool start_ordered = m->pending == TOKENPOOL_PRIV_START && m->cfg.flags & TOKENPOOL_ORDERED;
        uint32_t seq = m->pending == TOKENPOOL_PRIV_START ? 0 : m->seq;
        op->kind = TOKENPOOL_COMPARE_SWAP;
        op->compare = m->pool;
        op->operand = tokenpool_word(start_ordered ? 0 : m->target, (uint32_t)m->info.epoch, seq);
    }
    return true;
}

QOS_API void tokenpool_done(struct tokenpool *m, uint64_t answer)
{
    uint8_t what = m->pending;
    m->pending = TOKENPOOL_PRIV_NONE;
    if (what == TOKENPOOL_PRIV_LOOK) {
        tokenpool_priv_looked(m, answer);
    } else if (what == TOKENPOOL_PRIV_RAISE) {
        tokenpool_priv_raised(m, answer);
    } else if (what == TOKENPOOL_PRIV_LOWER) {
        tokenpool_priv_lowered(m, answer);
    } else if (what == TOKENPOOL_PRIV_START) {
        bool swapped = answer == m->pool;
        m->pool = answer;
        if (!swapped) /* a claim came between: it is of the old period. Try again with what it left. */
            m->change = TOKENPOOL_PRIV_START;
        else
            tokenpool_priv_started(m, answer);
    }
}

QOS_API void tokenpool_run(struct tokenpool *m, uint64_t now_ns)
{
    struct tokenpool_op op;
    while (tokenpool_next(m, now_ns, &op))
        tokenpool_done(m, tokenpool_op_run(m->shared, &op));
}

QOS_API uint64_t tokenpool_next_ns(const struct tokenpool *m)
{
    if (!m->started || m->change)
        return 0;
    return qos_min(m->next_ns, qos_sat_add(m->info.start_ns, m->cfg.period_ns));
}

QOS_API enum qos_status tokenpool_message(const struct tokenpool *m, uint32_t id, uint64_t *period, uint64_t *terms)
{
    uint32_t flags = TOKENPOOL_PRIV_OPEN | (m->info.reporting ? TOKENPOOL_PRIV_REPORT : 0);
    if (id >= m->cfg.clients)
        return QOS_ENOENT;
    if (!m->started || m->change == TOKENPOOL_PRIV_START || m->pending == TOKENPOOL_PRIV_START)
        return QOS_EAGAIN;
    *period = tokenpool_priv_period((uint32_t)m->info.epoch, m->seq, flags);
    *terms = qos_atomic_load_relaxed(tokenpool_priv_at(m, TOKENPOOL_OFFSET_TERMS + UINT64_C(8) * id)); /* our own */
    return QOS_OK;
}

QOS_API void tokenpool_get_info(const struct tokenpool *m, struct tokenpool_info *out)
{
    *out = m->info;
}

QOS_API enum qos_status tokenpool_get_client(const struct tokenpool *m, uint32_t id, struct tokenpool_client_info *out)
{
    if (id >= m->cfg.clients)
        return QOS_ENOENT;
    out->reservation = m->reservation[id];
    out->limit = m->limit[id];
    out->used = m->used[id];
    out->under_used = m->under[id];
    out->joined = m->state[id] != TOKENPOOL_PRIV_FREE;
    out->silent = m->state[id] == TOKENPOOL_PRIV_SILENT;
    out->alert = out->joined && m->under[id] >= m->cfg.alert_periods;
    return QOS_OK;
}

QOS_API void tokenpool_stats(const struct tokenpool *m, struct qos_stats *out)
{
    out->granted = qos_counter_read(&m->granted);
    out->borrowed = qos_counter_read(&m->borrowed);
    out->refused = qos_counter_read(&m->refused);
    out->waited = 0; /* engines wait, the monitor does not see it */
    out->debt = 0;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* TOKENPOOL_H */
