/* tokenpool.h - Haechi: tokens for one-sided I/O             SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   Clients read a data node's memory without its CPU: RDMA READ, shared memory, MPI_Get.
 *   Nobody sees the requests, so no scheduler can order them. The device shares its rate
 *   equally among greedy clients; one that was promised 236 K I/Os a second gets
 *   157 K. Haechi moves the decision to the clients: an I/O costs a token. A client gets
 *   its reservation in tokens each period and takes more from a shared pool, one 64-bit
 *   word, by a fetch-and-add. A client without a token waits.
 *
 * THE MODEL
 *
 *       data node                                           client, one thread each
 *     +-----------+   period, heartbeat, terms (read)     +--------------------------+
 *     |  monitor  |-------------------------------------->|  engine: reservation R   |
 *     |  1 thread |   pool word  <---- fetch-and-add -----|  + batches from the pool |
 *     |           |<-------------------------- report ----|  take -> I/O -> complete |
 *     +-----------+            one storage                +--------------------------+
 *
 *   In every period of length T the monitor issues C tokens, the estimated capacity: R_i
 *   to each client, the remainder to the pool. Unused reservations return to the pool.
 *
 * THE CALLS
 *
 *     #include "tokenpool.h"
 *
 *     int main(void)
 *     {
 *         static uint64_t storage[256] __attribute__((aligned(64))); // mmap it
 *         static uint64_t memory[256] __attribute__((aligned(64)));  // the monitor's
 *         static struct tokenpool_monitor monitor;
 *         static struct tokenpool_client client;
 *         static struct tokenpool_config config;
 *         uint64_t now_ns = 0, fits, done = 0;
 *         config.clients = 2; // sizes: tokenpool_storage_memsize, _monitor_memsize
 *         config.capacity = 10000; // I/Os a period (1 s), at first; the estimate follows
 *         if (tokenpool_monitor_init(&monitor, memory, sizeof memory, storage,
 *                                    sizeof storage, &config) != QOS_OK ||
 *             tokenpool_monitor_join(&monitor, 1, 6000, 0, &fits) != QOS_OK || // id 1, R
 *             tokenpool_client_attach(&client, 1, 0, storage, sizeof storage) != QOS_OK)
 *             return 1;
 *         while (done < 100) {
 *             tokenpool_monitor_run(&monitor, now_ns); // data node, at monitor_next_ns
 *             if (tokenpool_client_take(&client, now_ns, 1) == QOS_OK) { // client
 *                 tokenpool_client_complete(&client, 1); // ... after the I/O
 *                 done++;
 *             } else { // no token now: sleep until then
 *                 now_ns = tokenpool_client_next_ns(&client, now_ns, 1);
 *             }
 *         }
 *         return 0;
 *     }
 *
 * THE CONTRACT (besides that of qos.h; the target needs a lock-free 64-bit word)
 *
 *   - An engine belongs to one thread, a monitor to one thread. The storage is words that
 *     both reach; it holds no pointers. All its hosts have one byte order.
 *   - An engine needs take and complete only. Calls at most T / 4 apart get 99.9 % of
 *     min(R, demand); rarer ones R in each epoch with a call in its first quarter; who
 *     took nothing for T / 8, R x the time left less two checks. Its clock may be cached,
 *     or go back. Behind a transport answers come within T / 8; if not within a tick, who
 *     starts, or is back by T / 8192, waits for an epoch. A late one is seen T / 8 later.
 *   - Of what idle clients leave, up to 0.9 C, backlogged ones get 99 % if all are called
 *     each T / 512; of what others leave that use a part of R evenly, 0.8, but in trials.
 *   - With TOKENPOOL_ORDERED backlogged clients share the pool by weight: what they got
 *     in a period, by weight, differs by two claims and a token. Without, first come.
 *   - If the node gets slower, once in 8 periods at most, it is known within 5 if engines
 *     say what waits. If a node shares equally, and less than 1 % of C is outstanding,
 *     99 % of min(R, an equal share) is met; with GUARD of what can be, but in trials.
 *   - The tokens of an epoch never exceed, with any delays, deaths and lost messages,
 *         max(C, sum of R_i) + overrun       (default: 5 % of C) + debts of force().
 *     Epochs start at least T - T / 4096 apart: any window of that length sees at most
 *     twice that. A monitor's clock must not jump ahead. A reading up to T / 4 below the
 *     latest counts as an old one: a step back of b, up to that, makes an epoch b longer.
 *   - A client that starts anew continues where its report stands, in its limit, without
 *     debt but an advance. A start costs itself at most X = max(batch, R / 8), R / 2 if
 *     answers take over T / 16, in the last T / 64 the rest of R; others a batch, of an
 *     idle one X and R for T / 8, unless idle for that. An engine before gets QOS_ESTALE.
 *   - A token is spent in the epoch that issued it, by the client that got it, or never.
 *     An epoch lasts until the period word shows the next one.
 *   - Each client makes at most one failed claim between two fills of the pool, so the
 *     count of the pool word stays above -(clients x batch).
 *   - A backlogged client that has reservation left never waits in its engine. Without,
 *     it is told to come again within T + check_ns, but first come may mean never: it
 *     needs a reservation, or ORDERED, and there at most half a batch at a time.
 *   - Tokens of who dies end with their period. Who did not report in a last quarter (in
 *     two, if it said that it takes again) has no R until the period after it does.
 *   - Two monitors of one storage fence each other. A takeover starts its first period at
 *     most T + lease_ns later, without fills till then. Without one engines stop, or
 *     with TOKENPOOL_GO_ON go on with the reservations they had, on account of the
 *     slot's next epoch (safe while those fit), and wait for a clock that went back.
 *   - Engines and monitors are trusted. Reports are clamped to what was given: a liar can
 *     get its R twice, move the estimate by its own tokens if others want any, with GUARD
 *     by R and what it keeps for that, and by forged reports R at each start. Terms are
 *     clamped to client_capacity. One stray store costs C or clients x batch, with GO_ON
 *     2 C; after three periods all is as before. Whose report is hit gets QOS_ESTALE.
 *   - Pool, period with terms, and each report are regions of their own. Who has no more
 *     than the pool's key can take the pool only; in shared memory all keys are one.
 */
#ifndef QOS_TOKENPOOL_H
#define QOS_TOKENPOOL_H

#include "qos.h"

#if !QOS_HAS_ATOMIC64 && !defined(QOS_ATOMIC_HOOK)
#error "tokenpool.h needs a lock-free 64-bit atomic word, which this target does not have"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration and public types --------------------------------------------------------------- */

#define TOKENPOOL_CLIENTS_MAX (1u << 20)
#define TOKENPOOL_BATCH_MAX (1u << 20)
#define TOKENPOOL_TOKENS_MAX ((UINT64_C(1) << 26) - 1) /* in one period: what a report can carry */
#define TOKENPOOL_CLAIMS_MAX (UINT64_C(1) << 30)       /* clients x batch: a quarter of the count's range */
#define TOKENPOOL_PERIOD_NS_MAX UINT64_C(1000000000000)
#define TOKENPOOL_HISTORY_MAX 64u
#define TOKENPOOL_WEIGHT_MAX 1024u      /* the sum of weights x batch is at most TOKENPOOL_CLAIMS_MAX */
#define TOKENPOOL_BACKLOGGED UINT64_MAX /* set_queued: demand without end */
#define TOKENPOOL_HEAD_BYTES 64u        /* what a remote engine reads before it attaches */

/* config.flags */
#define TOKENPOOL_GUARD 1u   /* the pool holds no more than what lets equal sharing meet all reservations */
#define TOKENPOOL_ORDERED 2u /* the pool is shared by weight; default: who claims first gets it */
#define TOKENPOOL_FIXED 4u   /* the capacity stays what the profile says */
#define TOKENPOOL_GO_ON 8u   /* without a monitor engines renew their reservations; default: they stop */

struct tokenpool_monitor; /* data node: forward declarations, the structs are in the chapters */
struct tokenpool_client;

/* The paper's names: T = period_ns, delta = check_ns, Omega_prof = capacity, B = batch. 0 = the default. */
struct tokenpool_config {
    uint32_t clients;         /* slots, 1..TOKENPOOL_CLIENTS_MAX; no default */
    uint32_t batch;           /* tokens of one claim, 1..TOKENPOOL_BATCH_MAX, clients x batch <= TOKENPOOL_CLAIMS_MAX.
                               * The first one of an epoch is of batch / clients, later ones, if the pool holds less for
                               * each slot, of that; none is less than batch / 8, and than 1000 (the paper's) or batch.
                               * What its client leaves of a claim ends with the period;
                               * TOKENPOOL_ORDERED: weight x batch, or if more, the client's part by weight of what
                               * the estimate has for T / 64, or for two checks; but at most half of its part of the
                               * pool of a period, where that is taken for at least an eighth of the period's tokens;
                               * default capacity / (7 x clients), rounded up; TOKENPOOL_GUARD: at most 1000 */
    uint32_t flags;           /* TOKENPOOL_GUARD | ... */
    uint32_t history;         /* M of Algorithm 1, 1..TOKENPOOL_HISTORY_MAX; default 5 */
    uint32_t alert_periods;   /* periods in a row with an unused reservation until alert is set; default 10 */
    uint64_t silent_periods;  /* periods without a sign of life until a reservation is withheld, 1..2^32 - 1, or
                               * QOS_UNLIMITED: never; default 1 */
    uint64_t period_ns;       /* 8..TOKENPOOL_PERIOD_NS_MAX; default 1 s */
    uint64_t check_ns;        /* engine's tick, monitor's check, 1..period_ns; default 1 ms, at most T/8, with
                               * TOKENPOOL_ORDERED T/128. At the end of a period an eighth of the time left, at least
                               * T/1024, if that is less */
    uint64_t poll_ns;         /* least time between two reads of a waiting engine, 1..check_ns; default check_ns / 8; of
                              * one that waits for its next epoch T / 4096 */
    uint64_t lease_ns;        /* another monitor takes over after so long without a heartbeat,
                               * check_ns..TOKENPOOL_PERIOD_NS_MAX; default 16 checks */
    uint64_t capacity;        /* tokens in a period, from a profile, 1..TOKENPOOL_TOKENS_MAX; no default. The
                               * estimate begins with it and follows what is used; TOKENPOOL_FIXED: it stays */
    uint64_t capacity_step;   /* growth of the estimate, 1..TOKENPOOL_TOKENS_MAX; default 5 %; QOS_NOTHING: none */
    uint64_t client_capacity; /* C_L x T, what one client can do in a period, 1..capacity; default: capacity */
    uint64_t overrun;         /* tokens above the estimate, 1..TOKENPOOL_TOKENS_MAX; default 5 % of the estimate;
                               * QOS_NOTHING: none. Backlogged clients use them in every period, not with
                               * TOKENPOOL_ORDERED or TOKENPOOL_GUARD */
    uint64_t equal_within;    /* a total so close to the estimate counts as all of it, 1..TOKENPOOL_TOKENS_MAX; default
                               * clients x batch, at most 2 %; QOS_NOTHING: exactly. Where it grows 0.8 % at least */
    uint64_t debt_max;        /* of force(), 1..TOKENPOOL_TOKENS_MAX; default batch; QOS_NOTHING: no debt */
};

/* A word operation of a transport. offset_bytes counts from the start of the storage, a multiple of 8. The answer of
 * TOKENPOOL_WRITE is ignored, that of the others is the word's old value. All accesses to the pool word, the monitor's
 * too, must be atomic towards each other: on a device with ATOMIC_HCA run the monitor's through the device as well. */
enum tokenpool_kind { TOKENPOOL_READ, TOKENPOOL_WRITE, TOKENPOOL_FETCH_ADD, TOKENPOOL_COMPARE_SWAP };
struct tokenpool_op {
    enum tokenpool_kind kind;
    uint64_t offset_bytes;
    uint64_t operand; /* WRITE, FETCH_ADD, COMPARE_SWAP: value, addend (mod 2^64), new value */
    uint64_t compare; /* COMPARE_SWAP: expected value */
};

/* Storage, in bytes. Clients need: the pool word atomically; [PERIOD, reports) for reading; their own report for
 * writing. tokenpool_storage_report gives a client's report. */
#define TOKENPOOL_OFFSET_POOL 0u
#define TOKENPOOL_OFFSET_PERIOD 64u
#define TOKENPOOL_OFFSET_BEAT 72u
#define TOKENPOOL_OFFSET_SERVED 128u
#define TOKENPOOL_OFFSET_HEAD 192u
#define TOKENPOOL_OFFSET_TERMS 256u

/* What an engine knows of itself. */
struct tokenpool_client_state {
    uint64_t epoch;              /* whose tokens it holds; 0: none yet */
    uint64_t reservation, limit; /* of this epoch */
    uint64_t kept;               /* K: tokens of the reservation that this engine has spent or still claims */
    uint64_t gained;             /* tokens from the pool */
    uint64_t held;               /* tokens that can be spent now */
    uint64_t deadline_ns;        /* until when; 0: nothing can be spent */
    uint64_t claims, voided;     /* since attach: claims made; tokens that ended unspent */
    uint32_t generation;         /* of the slot; 0: not known yet */
    bool running;                /* it has tokens of a period that has not ended */
    bool stale;                  /* the slot or the storage is another's now: attach again */
};

/* What the monitor knows of a client. */
struct tokenpool_slot_state {
    uint64_t reservation, limit; /* as admitted; limit TOKENPOOL_TOKENS_MAX: none */
    uint64_t used;               /* I/Os completed in the last period */
    uint32_t under_used;         /* periods in a row that left reservation unused */
    uint32_t generation;         /* of the slot; grows with each join, 1 to 127, then 1 again */
    bool joined, silent, alert;
};

/* What the monitor knows of its period. */
struct tokenpool_monitor_state {
    uint64_t epoch, start_ns;
    uint64_t capacity; /* estimate for this period */
    uint64_t reserved; /* tokens issued as reservations */
    uint64_t put;      /* tokens given to the pool, less what was withdrawn */
    uint64_t claimed;  /* of them claimed, at the last check */
    uint64_t bound;    /* tokens that this period may issue at most */
    uint64_t kept, left, used,
        largest;        /* reports at the last check: sum of K, of K - N, of N; largest K - N of a busy one */
    uint64_t last_used; /* total of the period before */
    uint64_t last_put, last_claimed, last_reserved, last_bound, last_capacity; /* of the period before, final */
    uint32_t clients;                                                          /* admitted */
    uint32_t busy;   /* of them not idle, by their reports; with TOKENPOOL_GUARD, as is largest */
    uint32_t lost;   /* takeover: clients whose admission could not be read */
    bool active;     /* false: another monitor has the storage, or this one waits to take it */
    bool converting; /* the pool is in use, unused reservations go there */
};

/* ---- the API at a glance ----------------------------------------------------------------------------
 *
 *   configuration  tokenpool_config_error                what is wrong with it
 *   storage        tokenpool_storage_memsize, report     bytes of it; where a client's report is
 *                  tokenpool_storage_run                 performs an operation on local memory
 *                  tokenpool_word_count, epoch           fields of the pool word
 *   client         tokenpool_client_attach, _remote      an engine for a slot
 *                  tokenpool_client_take, complete       a token before an I/O, a note after it
 *                  tokenpool_client_next_ns              when a take is worth trying again
 *                  tokenpool_client_set_queued           demand that waits outside
 *                  tokenpool_client_force, put_back      tokens on credit; tokens of an I/O that did not happen
 *                  tokenpool_client_next, done, fail     operations for a transport
 *                  tokenpool_client_hint                 a period may have begun
 *                  tokenpool_client_epoch, held          whose tokens; how many
 *                  tokenpool_client_info, stats          all of it
 *   monitor        tokenpool_monitor_memsize, init       a fresh storage
 *                  tokenpool_monitor_resume              takes over a storage
 *                  tokenpool_monitor_join, change, leave admission
 *                  tokenpool_monitor_set_weight          a client's part of the pool
 *                  tokenpool_monitor_run, next_ns        the loop for local memory
 *                  tokenpool_monitor_next, done, fail    operations for a transport
 *                  tokenpool_monitor_info, slot_info,      the period; a client
 *                  tokenpool_monitor_stats               totals
 */

/* ---- the API ---------------------------------------------------------------------------------------- */

/* NULL, or one sentence that names the field and says what to do. */
QOS_API const char *tokenpool_config_error(const struct tokenpool_config *config);

/* Bytes of the storage, at 64-byte alignment; 0 if the configuration is wrong. */
QOS_API size_t tokenpool_storage_memsize(const struct tokenpool_config *config);
/* Offset of a client's report, the only word that the client writes. */
QOS_API uint64_t tokenpool_storage_report(uint32_t clients, uint32_t id);
/* Performs an operation on local memory. Lock-free; any thread. */
QOS_API uint64_t tokenpool_storage_run(void *storage, const struct tokenpool_op *op);
/* Fields of a pool word, for tools that show them. */
QOS_API int64_t tokenpool_word_count(uint64_t pool);
QOS_API uint32_t tokenpool_word_epoch(uint64_t pool);

/* -- client: one thread each; wait-free but for the operations of a transport. */

/* An engine for slot id of a local storage; take performs its operations. generation: as in tokenpool_monitor_slot_info
 * when the slot was joined, or 0: that of the first epoch in which the engine reads its terms. So give the number where
 * a slot may go to another client before that. An engine that had the slot before is fenced: it gets QOS_ESTALE.
 * The new one has the slot from its first epoch on, and continues from the last report, less X = max(batch, R / 8)
 * tokens. QOS_EMEMORY, QOS_EALIGN, QOS_ECORRUPT (not a storage), QOS_EVERSION, QOS_ENOENT (id), QOS_ESTALE (another
 * generation). */
QOS_API QOS_NODISCARD enum qos_status tokenpool_client_attach(struct tokenpool_client *client, uint32_t id,
                                                              uint32_t generation, void *storage, size_t storage_bytes);
/* The same for a storage behind a transport: head is a copy of its TOKENPOOL_HEAD_BYTES at TOKENPOOL_OFFSET_HEAD,
 * storage_bytes the size of the remote region. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_client_attach_remote(struct tokenpool_client *client, uint32_t id,
                                                                     uint32_t generation, const void *head,
                                                                     uint64_t storage_bytes);
/* n tokens, 1..client_capacity. QOS_EAGAIN: none now; see tokenpool_client_next_ns, and with a transport first
 * tokenpool_client_next. QOS_ELIMIT: at the limit until the next period. QOS_ERANGE: n cannot be granted (0, above
 * client_capacity, above the client's limit, above its reservation and the pool of this period together). QOS_ESTALE:
 * attach again. A request above the least claim (see batch) is claimed in one piece, once the pool holds all of it. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_client_take(struct tokenpool_client *client, uint64_t now_ns,
                                                            uint64_t n);
/* n I/Os (tokens' worth) completed. */
QOS_API void tokenpool_client_complete(struct tokenpool_client *client, uint64_t n);
/* When to call again for n tokens (0: for reports only): now_ns if they are held or an operation is due, else the next
 * poll or tick. While an operation of a transport is under way wait for its answer, not for this. */
QOS_API uint64_t tokenpool_client_next_ns(const struct tokenpool_client *client, uint64_t now_ns, uint64_t n);
/* Cost of the requests that wait in the caller's queue, in tokens. TOKENPOOL_BACKLOGGED: always more. Holds until
 * changed. */
QOS_API void tokenpool_client_set_queued(struct tokenpool_client *client, uint64_t n);
/* Takes n tokens, also those that are not held: debt, paid by the next tokens received; so are those that need a report
 * first. QOS_EDEBT, nothing taken: the debt is above debt_max. So it stays below debt_max + n. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_client_force(struct tokenpool_client *client, uint64_t now_ns,
                                                             uint64_t n);
/* Tokens of a take in `epoch` whose I/O did not happen, up to what was taken. QOS_ESTALE: that period is over, and with
 * it the tokens. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_client_put_back(struct tokenpool_client *client, uint64_t now_ns,
                                                                uint64_t epoch, uint64_t n);
/* The next operation on behalf of the engine: reports, polls, and, if `need` > 0 tokens are wanted and not held,
 * claims. True: perform *op, then call done or fail. False: nothing to do now, or one is under way. take and complete
 * may be called meanwhile. Call it until it returns false: with one operation a call, who is called each T / 15 or less
 * often counts as slow. */
QOS_API QOS_NODISCARD bool tokenpool_client_next(struct tokenpool_client *client, uint64_t now_ns, uint64_t need,
                                                 struct tokenpool_op *op);
QOS_API void tokenpool_client_done(struct tokenpool_client *client, uint64_t answer);
/* The operation failed (transport error), whether it was performed or not. The tokens of a lost claim are void. */
QOS_API void tokenpool_client_fail(struct tokenpool_client *client);
/* Performs all operations that are due, on local memory, at most 256. For an engine without requests: its reports keep
 * its reservation for the next period. */
QOS_API void tokenpool_client_run(struct tokenpool_client *client, uint64_t now_ns, uint64_t need);
/* A period may have begun (a message came): the engine reads the period word at its next call. */
QOS_API void tokenpool_client_hint(struct tokenpool_client *client);
/* Epoch and number of the tokens held now. */
QOS_API uint64_t tokenpool_client_epoch(const struct tokenpool_client *client);
QOS_API uint64_t tokenpool_client_held(const struct tokenpool_client *client);
QOS_API enum qos_status tokenpool_client_info(const struct tokenpool_client *client,
                                              struct tokenpool_client_state *out);
/* Counters as of the last tick; any thread, but not during an attach. id: QOS_NONE or the engine's own; QOS_ENOENT. */
QOS_API enum qos_status tokenpool_client_stats(const struct tokenpool_client *client, uint32_t id,
                                               struct qos_stats *out);

/* -- monitor: one thread. */

/* Bytes of the monitor's memory, at 64-byte alignment; 0 if the configuration is wrong. */
QOS_API size_t tokenpool_monitor_memsize(const struct tokenpool_config *config);
/* A new storage: writes every word of it. Engines of an older storage in the same memory must attach again. The first
 * period starts with the first operation. QOS_EMEMORY, QOS_EALIGN, QOS_EINVAL, QOS_ERANGE. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_monitor_init(struct tokenpool_monitor *monitor, void *mem,
                                                             size_t size_bytes, void *storage, size_t storage_bytes,
                                                             const struct tokenpool_config *config);
/* A monitor for a storage that has one, dead or alive: its first operation takes the storage from the other, with the
 * clients that were admitted. The running period ends first. QOS_ECORRUPT: not such a storage, or of another
 * configuration. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_monitor_resume(struct tokenpool_monitor *monitor, void *mem,
                                                               size_t size_bytes, void *storage, size_t storage_bytes,
                                                               const struct tokenpool_config *config);
/* Admission (Section II-C), from the next period on: a reservation of 0..TOKENPOOL_TOKENS_MAX tokens a period, a limit
 * from there to TOKENPOOL_TOKENS_MAX; 0 or QOS_UNLIMITED: none. QOS_NOTHING is QOS_ERANGE: a client that may do nothing
 * leaves. QOS_EADMISSION: *fits (may be NULL) says what would fit. QOS_EEXIST,
 * QOS_ENOENT (id), QOS_ERANGE, QOS_ESTALE (this monitor is not active). */
QOS_API QOS_NODISCARD enum qos_status tokenpool_monitor_join(struct tokenpool_monitor *monitor, uint32_t id,
                                                             uint64_t reservation, uint64_t limit, uint64_t *fits);
/* New terms from the next period on; errors as above, the old terms stay. A smaller reservation is always accepted. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_monitor_change(struct tokenpool_monitor *monitor, uint32_t id,
                                                               uint64_t reservation, uint64_t limit, uint64_t *fits);
/* TOKENPOOL_ORDERED: a backlogged client gets the pool's tokens by weight, from 1 (as after a join) to
 * TOKENPOOL_WEIGHT_MAX, from its next period on, in this one if it made no claim yet. QOS_ENOENT, QOS_ERANGE,
 * QOS_ESTALE; QOS_EADMISSION: the sum of weights x batch would be above TOKENPOOL_CLAIMS_MAX. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_monitor_set_weight(struct tokenpool_monitor *monitor, uint32_t id,
                                                                   uint32_t weight);
/* The client has no tokens from the next period on. Its slot can be joined again at once. QOS_ENOENT, QOS_ESTALE. */
QOS_API QOS_NODISCARD enum qos_status tokenpool_monitor_leave(struct tokenpool_monitor *monitor, uint32_t id);
/* The monitor's next operation on the pool word; as tokenpool_client_next. Call it at tokenpool_monitor_next_ns, and
 * read the clock for each call: the first call after a period began bounds the time at which it began. */
QOS_API QOS_NODISCARD bool tokenpool_monitor_next(struct tokenpool_monitor *monitor, uint64_t now_ns,
                                                  struct tokenpool_op *op);
QOS_API void tokenpool_monitor_done(struct tokenpool_monitor *monitor, uint64_t answer);
/* The operation failed, whether it was performed or not: the next look finds out. */
QOS_API void tokenpool_monitor_fail(struct tokenpool_monitor *monitor);
/* All operations that are due, on local memory. */
QOS_API void tokenpool_monitor_run(struct tokenpool_monitor *monitor, uint64_t now_ns);
/* Time of the next check or period start, at least now_ns; at once when a period has just begun. A loop that does not
 * come back before its next check makes the period longer by that check. */
QOS_API uint64_t tokenpool_monitor_next_ns(const struct tokenpool_monitor *monitor, uint64_t now_ns);
QOS_API enum qos_status tokenpool_monitor_info(const struct tokenpool_monitor *monitor,
                                               struct tokenpool_monitor_state *out);
/* QOS_ENOENT: no such slot. */
QOS_API enum qos_status tokenpool_monitor_slot_info(const struct tokenpool_monitor *monitor, uint32_t id,
                                                    struct tokenpool_slot_state *out);
/* Totals of the finished periods. QOS_NONE: granted (reservations and claims), borrowed (claims), refused (admissions).
 * A slot: granted (I/Os completed, as its last report of a period says: without what comes after it, T/64 at most, and
 * some of its first period), borrowed (of them beyond the reservation). QOS_ENOENT. */
QOS_API enum qos_status tokenpool_monitor_stats(const struct tokenpool_monitor *monitor, uint32_t id,
                                                struct qos_stats *out);

/* ==== chapter: storage and words =======================================================================
 *
 *     offset   0      64       72      128      192     256      ...        ...      ...     (parts of cache lines)
 *              pool   period   beat    served   head    terms    admitted   weights  reports
 *     writer   all    monitor  monitor monitor  monitor monitor  monitor    monitor  each client its own
 *
 *     pool      [ count 32, signed | epoch 20 | seq 12 ]       count is on top: a fetch-and-add of -batch x 2^32 cannot
 *                                                              touch the others, a count below zero borrows from none
 *     period    [ incarnation 16 | epoch 20 | check 19 | crowd 1 | takeovers 7 | open 1 ]
 *                                                              check: a hash of the rest; crowd: many clients waited
 *                                                              at the end of the epoch before
 *     beat      [ epoch 20 | ns since its start 44 ]      for standbys
 *     estimate  [ tokens 32 | takeovers 8 | check 24 ]    beside the beat; for a monitor that takes over
 *     surplus   [ tokens 32 | epoch 20 | 0 ]                   beside them; of the epoch, what nobody reserved
 *     level     [ level 32 | epoch 20 | 0 ]                    beside them; of 2^26: chapter client, "Rest"
 *     served    [ count 32 | epoch 20 | 0 ]                    ordered mode
 *     terms     [ reservation 26 | limit 26 | generation 7 | tag 5 ]   of the period that the tag names
 *     admitted  [ reservation 26 | limit 26 | takeovers 7 | check 5 ]  for a monitor that takes over
 *     weight    [ weight 26 | claim 26 | takeovers 7 | check 5 ]       ordered mode; claim: its tokens in this period
 *     report    [ tag 5 | incarnation 3 | phase 2 | demand 2 | K 26 | S or N 26 ]
 *                                    phase and demand 3, 14, 15: final, see TOKENPOOL_PRIV_WAITED
 *     head      magic, version, incarnation, sizes, times, CRC32C
 *
 *   Epochs are numbers 1..2^20 - 1, then 1 again. They are compared for equality only, so an engine that slept cannot
 *   take an old number for a newer one. The incarnation changes with tokenpool_monitor_init, the generation with each
 *   join of a slot.
 *
 *   Each word is complete in itself, so accesses are relaxed, but for a monitor's reads (W1) and swaps (W2) of words
 *   besides pool and period, and an engine's swaps (R2): who finds another's report sees the terms that were before it.
 *   The level and the reports are in one order for all (R3).
 *   Terms carry the tag of their epoch: an engine that read those of an older or a later period finds another tag; 31
 *   periods later its deadline has passed, and it reads the period word before it spends. The period word is the
 *   monitors' lock: who it names owns the storage, and each change of it is a swap.
 *   Labels in the code: claims (C1), reports (R1), an engine's swaps (R2), level and reports (R3), a monitor's swaps
 *   (M1 to M6, W2).
 */

#define TOKENPOOL_PRIV_OFFSET_ESTIMATE 80u
#define TOKENPOOL_PRIV_OFFSET_SURPLUS 88u
#define TOKENPOOL_PRIV_OFFSET_LEVEL 96u
#define TOKENPOOL_PRIV_MAGIC 0x7174706cu
#define TOKENPOOL_PRIV_VERSION 7u
#define TOKENPOOL_PRIV_REPORT_IOS 128u /* spent between two reports, at least, so that they are below 1 % of the I/Os */
#define TOKENPOOL_PRIV_UNTOLD 400u     /* guard: what all did not report together is at most this part of C_L */
#define TOKENPOOL_PRIV_BATCH 1000u     /* the paper's */
#define TOKENPOOL_PRIV_CROWD 50u       /* more clients than that, if they wait, read an empty pool less often */
#define TOKENPOOL_PRIV_SHORT_NS UINT64_C(10000000) /* a period in which a drifting clock is looked after each time */
#define TOKENPOOL_PRIV_EARLY 0u                    /* phase of a report */
#define TOKENPOOL_PRIV_LAST 1u                     /* in the last quarter */
#define TOKENPOOL_PRIV_FINAL 2u                    /* carries N */
#define TOKENPOOL_PRIV_ADVANCE 3u                  /* S is of tokens without a monitor */
#define TOKENPOOL_PRIV_HOW (UINT64_C(15) << 52)    /* phase and demand: */
#define TOKENPOOL_PRIV_RISES (UINT64_C(3) << 54)   /* of an advance without demand: K is not yet as the level says */
#define TOKENPOOL_PRIV_WAITED 3u                   /* phase and demand: final, waited for tokens and was at the node */
#define TOKENPOOL_PRIV_QUEUED 14u                  /* final, has a queue, but was not at the node */
#define TOKENPOOL_PRIV_WORKED 15u                  /* final, is at work and was at the node */
#define TOKENPOOL_PRIV_OPEN 1u /* period word: terms and pool are of this epoch; the bits above count takeovers */
#define TOKENPOOL_PRIV_TAKEOVERS 0xfeu
#define TOKENPOOL_PRIV_CROWDED (1u << 8)               /* period word: more than TOKENPOOL_PRIV_CROWD wait */
#define TOKENPOOL_PRIV_FULL (1u << 26)                 /* a level: nothing is given back */
#define TOKENPOOL_PRIV_INCARNATION (UINT64_C(7) << 56) /* of the engine, in its reports */
#define TOKENPOOL_PRIV_EPOCH_MASK 0xfffffu
#define TOKENPOOL_PRIV_SEQ_MASK 0xfffu
#define TOKENPOOL_PRIV_SEQ_TAKE 1025u /* a takeover: far from a fill's 1, and 4096 takeovers until a word comes again */

/* Fields of the head; each engine keeps a copy. */
struct tokenpool_priv_head {
    uint32_t clients, batch, flags, incarnation;
    uint64_t period_ns, check_ns, poll_ns, client_capacity, debt_max;
};

#ifndef QOS_DECLARE_ONLY

QOS_PRIV uint64_t tokenpool_priv_word(int64_t count, uint64_t epoch, uint64_t seq)
{
    return qos_wrap_mul((uint64_t)count, UINT64_C(1) << 32) | (epoch & TOKENPOOL_PRIV_EPOCH_MASK) << 12 |
           (seq & TOKENPOOL_PRIV_SEQ_MASK);
}

QOS_API int64_t tokenpool_word_count(uint64_t pool)
{
    return (int64_t)((pool >> 32) ^ (UINT64_C(1) << 31)) - (INT64_C(1) << 31);
}

QOS_API uint32_t tokenpool_word_epoch(uint64_t pool)
{
    return (uint32_t)(pool >> 12) & TOKENPOOL_PRIV_EPOCH_MASK;
}

QOS_PRIV uint32_t tokenpool_priv_seq(uint64_t pool)
{
    return (uint32_t)pool & TOKENPOOL_PRIV_SEQ_MASK;
}

QOS_PRIV uint64_t tokenpool_priv_hash(uint64_t v)
{
    v = qos_wrap_mul(v ^ v >> 31, UINT64_C(0x9e3779b97f4a7c15));
    return qos_wrap_mul(v ^ v >> 29, UINT64_C(0xbf58476d1ce4e5b9)) >> 32;
}

QOS_PRIV uint64_t tokenpool_priv_period(uint64_t incarnation, uint64_t epoch, uint64_t flags)
{
    uint64_t v = incarnation << 48 | (epoch & TOKENPOOL_PRIV_EPOCH_MASK) << 28 | flags;
    return v | (tokenpool_priv_hash(v) & 0x7ffffu) << 9;
}

QOS_PRIV uint32_t tokenpool_priv_period_epoch(uint64_t period)
{
    return (uint32_t)(period >> 28) & TOKENPOOL_PRIV_EPOCH_MASK;
}

/* Zero is none: a storage without a period yet, or a stray store. */
QOS_PRIV bool tokenpool_priv_period_valid(uint64_t period)
{
    return period &&
           period == tokenpool_priv_period(period >> 48, tokenpool_priv_period_epoch(period), period & 0x1ffu);
}

QOS_PRIV uint64_t tokenpool_priv_terms(uint64_t reservation, uint64_t limit, uint64_t low)
{
    return reservation << 38 | limit << 12 | low;
}

QOS_PRIV uint64_t tokenpool_priv_reservation(uint64_t terms)
{
    return terms >> 38;
}

QOS_PRIV uint64_t tokenpool_priv_limit(uint64_t terms)
{
    return terms >> 12 & TOKENPOOL_TOKENS_MAX;
}

/* Generation of terms; takeovers of an admission. */
QOS_PRIV uint32_t tokenpool_priv_generation(uint64_t terms)
{
    return (uint32_t)(terms >> 5) & 0x7fu;
}

/* The word for a monitor that takes over; limit 0: a free slot. The check is a remainder, which a change of one bit
 * changes, and is never 0. */
QOS_PRIV uint64_t tokenpool_priv_admitted(uint32_t id, uint64_t reservation, uint64_t limit, uint64_t takeovers)
{
    uint64_t v = tokenpool_priv_terms(reservation, limit, takeovers << 5);
    return v | (((v >> 5) + id) % 31u + 1u);
}

/* The word of a weight is an admission's; one that cannot be read is 0. */
QOS_PRIV uint32_t tokenpool_priv_weight(uint32_t id, uint64_t word)
{
    uint64_t weight = tokenpool_priv_reservation(word);
    bool good =
        word == tokenpool_priv_admitted(id, weight, tokenpool_priv_limit(word), tokenpool_priv_generation(word));
    return good && weight <= TOKENPOOL_WEIGHT_MAX ? (uint32_t)weight : 0;
}

/* The estimate, for a monitor that takes over. */
QOS_PRIV uint64_t tokenpool_priv_estimate(uint64_t capacity, uint64_t takeovers)
{
    uint64_t v = capacity << 32 | takeovers << 24;
    return v | (tokenpool_priv_hash(v) & 0xffffffu);
}

QOS_PRIV uint64_t tokenpool_priv_after(uint64_t epoch)
{
    return epoch >= TOKENPOOL_PRIV_EPOCH_MASK ? 1 : epoch + 1;
}

/* Tag of an epoch's terms and reports, 1..31; 0 is no report. The monitor clears the report of a client that missed a
 * period, all but its incarnation. */
QOS_PRIV uint64_t tokenpool_priv_tag(uint64_t epoch)
{
    return epoch % 31u + 1u;
}

/* The demand of a report: 0 rests, 1 at work, 2 with a queue, 3 waited for tokens. */
QOS_PRIV uint8_t tokenpool_priv_demand(uint64_t report)
{
    uint64_t how = report >> 52 & 15;
    return (uint8_t)(how == TOKENPOOL_PRIV_WORKED ? 1 : how & 3);
}

/* Its phase; of one that rises EARLY. */
QOS_PRIV uint64_t tokenpool_priv_phase(uint64_t report)
{
    uint64_t how = report >> 52 & 15;
    if (how == TOKENPOOL_PRIV_WAITED || how >= TOKENPOOL_PRIV_QUEUED)
        return TOKENPOOL_PRIV_FINAL;
    return (report & TOKENPOOL_PRIV_HOW) == TOKENPOOL_PRIV_RISES ? TOKENPOOL_PRIV_EARLY : report >> 54 & 3;
}

/* It is of the last quarter, and its client had I/Os under way for most of the epoch. */
QOS_PRIV bool tokenpool_priv_at_node(uint64_t report)
{
    uint64_t how = report >> 52 & 15;
    return how == TOKENPOOL_PRIV_WAITED || how == TOKENPOOL_PRIV_WORKED ||
           ((how & 3) == 2 && how != TOKENPOOL_PRIV_QUEUED && how >> 2 != TOKENPOOL_PRIV_EARLY);
}

/* A report whose client has no token in hand: its K falls with the level, without further reports. */
QOS_PRIV bool tokenpool_priv_rests(uint64_t report)
{
    uint64_t how = report & TOKENPOOL_PRIV_HOW;
    return !(how & UINT64_C(3) << 52) && how != TOKENPOOL_PRIV_RISES;
}

/* The time between two ticks of an engine, two checks of the monitor, two looks at an empty pool: shorter at the end of
 * a period, so that what is returned late is still used. */
QOS_PRIV uint64_t tokenpool_priv_interval_ns(uint64_t check_ns, uint64_t period_ns, uint64_t left_ns)
{
    return qos_min(check_ns, qos_max(left_ns / 8, period_ns / 1024 + 1));
}

/* How long before the end of a period its last report is sent: it says how many I/Os completed. */
QOS_PRIV uint64_t tokenpool_priv_final_ns(uint64_t check_ns, uint64_t period_ns)
{
    return qos_min(2 * check_ns, period_ns / 64);
}

/* Offset of the terms (k = 0), admissions (1), weights (2), reports (3), each a word a client in whole cache lines; end
 * of the storage (4). */
QOS_PRIV uint64_t tokenpool_priv_offset(uint32_t clients, unsigned k)
{
    return TOKENPOOL_OFFSET_TERMS +
           k * ((UINT64_C(8) * clients + QOS_CACHE_LINE - 1) / QOS_CACHE_LINE * QOS_CACHE_LINE);
}

QOS_API uint64_t tokenpool_storage_report(uint32_t clients, uint32_t id)
{
    return tokenpool_priv_offset(clients, 3) + UINT64_C(8) * id;
}

QOS_API uint64_t tokenpool_storage_run(void *storage, const struct tokenpool_op *op)
{
    qos_word_t *word = (qos_word_t *)storage + op->offset_bytes / sizeof(qos_word_t);
    uint64_t old = op->compare;
    switch (op->kind) {
    case TOKENPOOL_WRITE: qos_atomic_store_relaxed(word, op->operand); return 0; /* a report is complete in itself */
    case TOKENPOOL_FETCH_ADD: return qos_atomic_add_relaxed(word, op->operand);  /* so is a pool word */
    case TOKENPOOL_COMPARE_SWAP:
        /* R2 */
        while (!qos_atomic_cas_seq_cst(word, &old, op->operand) && (old = qos_atomic_load_acquire(word)) == op->compare)
            ;
        return old;
    case TOKENPOOL_READ: break;
    }
    return qos_atomic_load_seq_cst(word); /* R3 */
}

/* -- configuration */

/* Zero becomes the default; named values stay. */
QOS_PRIV void tokenpool_priv_fill(struct tokenpool_config *out, const struct tokenpool_config *config)
{
    uint64_t capacity = config->capacity, parts = 7 * qos_max((uint64_t)config->clients, 1), batch;
    *out = *config;
    batch = qos_min(qos_sat_add(capacity, parts - 1) / parts,
                    config->flags & TOKENPOOL_GUARD ? TOKENPOOL_PRIV_BATCH : TOKENPOOL_BATCH_MAX);
    out->batch = config->batch ? config->batch : (uint32_t)batch;
    out->history = config->history ? config->history : 5;
    out->alert_periods = config->alert_periods ? config->alert_periods : 10;
    out->silent_periods = qos_default(config->silent_periods, 1);
    out->period_ns = qos_default(config->period_ns, QOS_NS_PER_S);
    out->check_ns = qos_default(
        config->check_ns, qos_max(qos_min(1000000, out->period_ns / (config->flags & TOKENPOOL_ORDERED ? 128 : 8)), 1));
    out->poll_ns = qos_default(config->poll_ns, qos_max(out->check_ns / 8, 1));
    out->lease_ns = qos_default(config->lease_ns, qos_min(qos_sat_mul(out->check_ns, 16), TOKENPOOL_PERIOD_NS_MAX));
    out->capacity_step = qos_default(config->capacity_step, qos_mul_div_ceil(capacity, 1, 20));
    out->client_capacity = qos_default(config->client_capacity, capacity);
    out->equal_within =
        qos_default(config->equal_within, qos_max(qos_min((uint64_t)config->clients * out->batch, capacity / 50), 1));
    out->debt_max = qos_default(config->debt_max, out->batch);
}

/* A field with a named value (QOS_NOTHING, QOS_UNLIMITED) besides its range. */
QOS_PRIV bool tokenpool_priv_within(uint64_t v, uint64_t high, uint64_t named)
{
    return v <= high || v == named;
}

/* The first range that is broken, as a sentence, or NULL. Zero has become the default. */
QOS_PRIV const char *tokenpool_priv_range_error(const struct tokenpool_config *f)
{
    const uint64_t tokens = TOKENPOOL_TOKENS_MAX, period = TOKENPOOL_PERIOD_NS_MAX;
    const struct qos_rule rules[] = {
        {f->clients && f->clients <= TOKENPOOL_CLIENTS_MAX, "clients: set it to 1..TOKENPOOL_CLIENTS_MAX"},
        {f->batch <= TOKENPOOL_BATCH_MAX && (uint64_t)f->clients * f->batch <= TOKENPOOL_CLAIMS_MAX,
         "batch: at most TOKENPOOL_BATCH_MAX, and clients x batch at most TOKENPOOL_CLAIMS_MAX"},
        {f->history <= TOKENPOOL_HISTORY_MAX, "history: at most TOKENPOOL_HISTORY_MAX"},
        {tokenpool_priv_within(f->silent_periods, UINT32_MAX, QOS_UNLIMITED),
         "silent_periods: at most 2^32 - 1, or QOS_UNLIMITED for never"},
        {f->period_ns >= 8 && f->period_ns <= period, "period_ns: 8..TOKENPOOL_PERIOD_NS_MAX"},
        {f->check_ns <= f->period_ns, "check_ns: at most period_ns"},
        {f->poll_ns <= f->check_ns, "poll_ns: at most check_ns"},
        {f->lease_ns >= f->check_ns && f->lease_ns <= period, "lease_ns: from check_ns to TOKENPOOL_PERIOD_NS_MAX"},
        {f->capacity && f->capacity <= tokens, "capacity: set it to the I/Os of a period, 1..TOKENPOOL_TOKENS_MAX"},
        {tokenpool_priv_within(f->capacity_step, tokens, QOS_NOTHING),
         "capacity_step: at most TOKENPOOL_TOKENS_MAX, or QOS_NOTHING for no growth"},
        {f->client_capacity <= f->capacity, "client_capacity: at most capacity"},
        {tokenpool_priv_within(f->overrun, tokens, QOS_NOTHING),
         "overrun: at most TOKENPOOL_TOKENS_MAX, or QOS_NOTHING for none"},
        {tokenpool_priv_within(f->equal_within, tokens, QOS_NOTHING),
         "equal_within: at most TOKENPOOL_TOKENS_MAX, or QOS_NOTHING for exact equality"},
        {tokenpool_priv_within(f->debt_max, tokens, QOS_NOTHING),
         "debt_max: at most TOKENPOOL_TOKENS_MAX, or QOS_NOTHING for no debt"},
    };
    return qos_first_broken(rules, sizeof rules / sizeof *rules);
}

/* The defaults filled in, or what is wrong. */
QOS_PRIV enum qos_status tokenpool_priv_check(const struct tokenpool_config *config, struct tokenpool_config *f,
                                              const char **why)
{
    const uint32_t known = TOKENPOOL_GUARD | TOKENPOOL_ORDERED | TOKENPOOL_FIXED | TOKENPOOL_GO_ON;
    *why = "config: pass a struct tokenpool_config, not NULL";
    if (!config)
        return QOS_EINVAL;
    *why = "flags: use only the TOKENPOOL_ flags of the header";
    if (config->flags & ~known)
        return QOS_EINVAL;
    tokenpool_priv_fill(f, config);
    *why = tokenpool_priv_range_error(f);
    return *why ? QOS_ERANGE : QOS_OK;
}

QOS_API const char *tokenpool_config_error(const struct tokenpool_config *config)
{
    struct tokenpool_config f;
    const char *why;
    (void)tokenpool_priv_check(config, &f, &why);
    return why;
}

QOS_API size_t tokenpool_storage_memsize(const struct tokenpool_config *config)
{
    return tokenpool_config_error(config) ? 0 : (size_t)tokenpool_priv_offset(config->clients, 4);
}

/* -- head: word 7 is the CRC32C of the seven before. */

QOS_PRIV void tokenpool_priv_head_put(const struct tokenpool_config *f, uint64_t incarnation, uint64_t *w)
{
    w[0] = (uint64_t)TOKENPOOL_PRIV_MAGIC << 32 | (uint64_t)TOKENPOOL_PRIV_VERSION << 16 | incarnation;
    w[1] = (uint64_t)f->clients << 32 | f->batch;
    w[2] = f->flags;
    w[3] = f->period_ns;
    w[4] = f->check_ns;
    w[5] = f->poll_ns;
    w[6] = f->client_capacity << 32 | (f->debt_max == QOS_NOTHING ? 0 : f->debt_max);
    w[7] = qos_crc32c(0, w, 7 * sizeof *w);
}

QOS_PRIV enum qos_status tokenpool_priv_head_get(const uint64_t *w, struct tokenpool_priv_head *head)
{
    struct tokenpool_config config, f;
    const char *why;
    if (w[0] >> 32 != TOKENPOOL_PRIV_MAGIC || w[7] != qos_crc32c(0, w, 7 * sizeof *w))
        return QOS_ECORRUPT;
    if ((w[0] >> 16 & 0xffffu) != TOKENPOOL_PRIV_VERSION)
        return QOS_EVERSION;
    __builtin_memset(&config, 0, sizeof config);
    head->clients = config.clients = (uint32_t)(w[1] >> 32);
    head->batch = config.batch = (uint32_t)w[1];
    head->flags = config.flags = (uint32_t)w[2];
    head->incarnation = (uint32_t)w[0] & 0xffffu;
    head->period_ns = config.period_ns = w[3];
    head->check_ns = config.check_ns = w[4];
    head->poll_ns = config.poll_ns = w[5];
    head->client_capacity = config.client_capacity = config.capacity = w[6] >> 32;
    head->debt_max = w[6] & UINT32_MAX;
    if (tokenpool_priv_check(&config, &f, &why) != QOS_OK || head->debt_max > TOKENPOOL_TOKENS_MAX || !head->batch ||
        !head->period_ns || !head->check_ns || !head->poll_ns)
        return QOS_ECORRUPT;
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: client =================================================================================
 *
 *   Section II-D. At the start of a period the engine has R reservation tokens. A request takes one, or a token from
 *   the pool, claimed `batch` at a time: an answer of v gives min(batch, max(v, 0)). Every check_ns it returns what its
 *   demand does not need: K, the part of R that is spent or kept, falls to R - (rho(t) - D(t)) when demand D
 *   lags behind rho(t) = R t / T, and never rises within a period. Example 1: T = 1 s, R = 50, t = 0.6 s, so rho = 30:
 *
 *       demand D    returned       residual
 *       20          30 - 20 = 10   50 - 30 = 20
 *       40          0              50 - 40 = 10   (R - D, not R - rho)
 *       50          0              0
 *
 *   An engine is in one of nine states. Each has one answer to "what is the next operation, and when".
 *
 *                 open epoch              our terms            swapped
 *       WATCH ------------------> TERMS -------------> OPEN ------------> HOLD ----- over, no monitor: GO_ON
 *         ^ ^  reads the period    |  |  reads terms    |  swaps the       |  ^          |
 *         | +---- moved on --------+  |                 |  report in       |  |          v
 *         |                           | another's      +--- another's -+  | same epoch  ALONE -- T later: again
 *         |                           v generation     v   incarnation |  +--+           |
 *         |                          OUT             FENCED <----------+  |              |
 *         +------------- another epoch (tokens void, debt stays) ---------+--------------+
 *
 *       WATCH -> TERMS        an open epoch                WATCH, HOLD, REST, ALONE -> OUT   another storage
 *       TERMS -> WATCH        terms of another epoch       HOLD -> HOLD     the same epoch, after the deadline
 *       TERMS -> OPEN         our terms                    HOLD -> REST     no take for T/8
 *       TERMS -> OUT          another generation           REST -> RISE     a take: reports so
 *       OUT -> TERMS          the next open epoch          RISE -> HOLD     reads the level
 *       OPEN -> TERMS         another report than it knew  HOLD, REST, ALONE -> WATCH        another epoch
 *       OPEN -> HOLD          the report is swapped        HOLD, REST -> ALONE               GO_ON: no monitor for T/8
 *       OPEN -> REST          no take for T                ALONE -> ALONE   T later
 *       OPEN -> RISE          the former engine rested     OPEN, HOLD, REST, ALONE -> FENCED another's incarnation
 *
 *       WATCH, TERMS, OPEN, OUT, FENCED   no tokens. OUT looks again in each epoch, also for another storage; FENCED is
 *               final
 *       HOLD    tokens of `epoch`, the epoch that was read last. Valid while now < deadline_ns; after it a take first
 *               reads the period word: while that shows `epoch`, deadline_ns = time of the read + 1
 *       REST    no token in hand: the monitor takes back what is not used, without reports. It ends as HOLD does
 *       RISE    as REST, but how much is left the level says; it can only read that
 *       ALONE   tokens without a monitor, until end_ns. They are an advance on the next epoch
 *
 *   The deadline. Epochs start at least T apart. A read issued at p that shows E: no other epoch starts before p. If E
 *   ends at D or later, the next epoch ends at D + T - T/4096 or later; the margin covers clocks that differ by 1e-4.
 *   So one number, deadline_ns, is enough: max(p + 1) of the reads, and one link more for each new epoch. Each link
 *   loses T/4096; a read between the deadline and the start of the next epoch corrects it, and so does one that shows
 *   the next epoch before the deadline: then the clock hid time. A clock more than T/8192 below its own maximum makes
 *   it unknown (0): then every take reads the period word, until the next epoch.
 *
 *   Reports carry K, S (tokens spent, without a debt of before), and the engine's incarnation; the last one of a period
 *   has N (I/Os completed) in place of S, of who rests if it is more, and from who returned nothing K + G, G its pool
 *   tokens. If that was too early, N is told again. Each report swaps the engine's own last one, so an engine that was
 *   replaced finds out. At most X = max(batch, R/8) are spent beyond S: a take beyond that reports first. Three round
 *   trips pass before an epoch's first token, and one for each lease. So behind a slow transport S is ahead of what is
 *   spent: two leases are R, which is had at round trips below T/8. An engine that attaches continues from the report:
 *   S + X counts as spent, of one that rests S, and the tokens that the former one claimed are void. S of an engine in
 *   ALONE is an advance, so the next engine has it as a debt.
 *
 *   Rest. K of a client that rests is at most S + R x level, rounded up. The level is a word of the monitor; it falls
 *   to the time that is left, ahead of it by what passes until the next fill is seen. A client that begins to take
 *   swaps its report, and then reads the level. The monitor lowers the level, and then reads the reports. All four are
 *   sequentially consistent (R3), so one of them sees the other: K counts in full, or is as low as the monitor counted
 *   it. No clock of the client is in it, and no report while it rests but two near the end of the period.
 *   The report of the level comes with the next lease where the level leaves nearly all, but from the last quarter on
 *   at once. Who has neither reservation nor limit gives nothing back: it stays in HOLD (not with TOKENPOOL_GUARD).
 *
 *   Who uses a part of its reservation all the time returns the rest by its reports. They come late, so that they are
 *   few: the monitor keeps time for what such a client can still have, not for all of the last K - N. What the last
 *   report did not return is lost, a tenth about. In a trial nothing is returned.
 *
 *   Operations of an epoch that are needed: a read of the period word, of the terms, the swap that begins, one for
 *   each further X of R, one in the last quarter (perhaps its only call there), the final one, and a claim for each
 *   batch: 4 + R/X and the claims; who rises needs a swap and the level more. Two more kinds buy use of the node: a
 *   report as R ends, or the pool holds back for it (0.97 without), and looks at an empty pool, at the end of an epoch
 *   9 or so, or more than 1 % of what idle clients leave is lost. So it is 10 to 16 with nothing or 90 % reserved, up
 *   to 23 between and above; a local engine loads the period word besides, at each take after its deadline.
 *   Looks each quarter of the time left, from T/50 down to a check of T/1000, are ln 20 / ln (4/3) = 10; each half, 4,
 *   but that loses more than 1 %. Nor may looks end where a client would do less than a least claim in the rest, by
 *   what it completed: 16 to 18, but who waited for tokens completed little, and up to 1.4 % is lost.
 *   Ordered it is 23 to 45: each claim needs a read of `served` at least, so at 16 there are 4 claims at most, and two
 *   claims, by which shares may differ, are half of a share. Reads each T/64 in place of T/128 lose 0.04 of C.
 *   With the guard it is 15 to 30, of a large C up to 500: what all have spent and not reported, at most C_L/400, keeps
 *   so much more from the pool, and at C_L/100 less than 99 % of the node is used where one large client is idle.
 *
 *   Slack. A client that returned tokens and was then refused has lost what it could have used: so much less it
 *   returns in the next period. What stays unspent at the end lowers the slack again.
 *
 *   Invariants
 *     1. spent = allowance + debt - held - locked, allowance = min(kept + gained, limit); held > 0 or locked > 0 only
 *        without debt. `locked` needs a report first.
 *     2. base_ns <= now < base_ns + span_ns: nothing is due, the deadline is ahead, and held <= client_capacity. Else a
 *        take calls take_slow.
 *     3. From an answer that emptied the pool no claim is made until a read of the pool shows tokens, or a new period
 *        begins. So at most one claim of an engine fails between two fills, also when answers are lost.
 *     4. An engine's tokens of a period come from terms that carry the tag of its epoch.
 *     5. Outside HOLD, REST, RISE and ALONE there is no token, no report is due, and no request waits.
 *
 *   Where we differ from the paper
 *     - The decay compares with demand (spent, which is completed and outstanding, plus queued), as Definition 1 has
 *       it, not with tokens spent: with 64 requests outstanding a backlogged client would lose its reservation. It runs
 *       from the engine's own start to its deadline, and looks at rho as of the call before: a client that comes rarely
 *       has had no time to spend more.
 *     - Reports carry K where the paper has K - N: with K the monitor can account for every token. The monitor does not
 *       request them.
 *     - In the paper clients claim from an empty pool again and again, which lowers the count without end. It does not
 *       say what a claim across a period boundary gets: here tokens of the old pool are void, tokens of the new pool
 *       are kept for the new period.
 *     - A request above the least claim is taken from the pool in one piece by compare-and-swap, or not at all: a
 *       request that cannot be served costs others nothing.
 *     - Ordered mode: the pool word counts tickets upwards, one per token; a claim of b tokens owns tickets [v, v + b)
 *       and may spend those below the `served` word, which the monitor moves (Reed and Kanodia, CACM 22(2), 1979).
 *
 *   Map (without tokenpool_client_priv_)
 *     its tokens       until_ns (till when a lease holds), lease, allow; publish, unreported
 *     a period         learn (from words), lapse, decay, regret; phase
 *     the clock        clock, tick, consider
 *     begin            attach: tokenpool_client_attach, _attach_remote
 *     next operation   tokenpool_client_next: due, want, report, op; _done: saw_period, saw_terms, saw_pool, claimed,
 *                      reported, saw_level, saw_served; _fail; tokenpool_client_run does all three
 *     spending         tokenpool_client_take: take_slow; _complete, _force, _put_back; _set_queued
 *     what is read     tokenpool_client_next_ns, _info, _stats
 */

enum tokenpool_priv_pending {
    TOKENPOOL_PRIV_NONE,
    TOKENPOOL_PRIV_ANSWERED,  /* engine: none since the last call, in which one was under way */
    TOKENPOOL_PRIV_PERIOD,    /* engine: reads the period word */
    TOKENPOOL_PRIV_VOID,      /* engine: the clock went back during that read; its time is not known */
    TOKENPOOL_PRIV_TERMS,     /* engine: reads the terms of a new epoch */
    TOKENPOOL_PRIV_REPORT,    /* engine: compare-and-swap of its report */
    TOKENPOOL_PRIV_LEVEL,     /* engine: reads what is left of a reservation that was not used */
    TOKENPOOL_PRIV_WEIGHT,    /* engine, ordered: reads its weight, once an epoch */
    TOKENPOOL_PRIV_SURPLUS,   /* engine: reads what the period's pool holds, before a large request */
    TOKENPOOL_PRIV_SERVED,    /* engine, ordered: reads which tickets are served */
    TOKENPOOL_PRIV_PEEK,      /* engine: reads the pool */
    TOKENPOOL_PRIV_CLAIM,     /* engine: fetch-and-add of a batch */
    TOKENPOOL_PRIV_CLAIM_ALL, /* engine: compare-and-swap of a large request */
    TOKENPOOL_PRIV_LOOK,      /* monitor: reads the pool */
    TOKENPOOL_PRIV_START,     /* monitor: swaps the pool of the new period in */
    TOKENPOOL_PRIV_SET,       /* monitor: raises or lowers the pool */
    TOKENPOOL_PRIV_TAKE       /* monitor: takes the storage from another */
};

enum tokenpool_priv_engine {
    TOKENPOOL_PRIV_IN_WATCH,
    TOKENPOOL_PRIV_IN_TERMS,
    TOKENPOOL_PRIV_IN_OPEN,
    TOKENPOOL_PRIV_IN_HOLD,
    TOKENPOOL_PRIV_IN_REST,
    TOKENPOOL_PRIV_IN_RISE,
    TOKENPOOL_PRIV_IN_ALONE,
    TOKENPOOL_PRIV_IN_OUT,
    TOKENPOOL_PRIV_IN_FENCED
};

enum tokenpool_priv_telling {
    TOKENPOOL_PRIV_TOLD,
    TOKENPOOL_PRIV_DUE, /* it has tokens, and a report is due */
    TOKENPOOL_PRIV_LOST /* the answer of a report's swap was lost: the report is read next */
};

/* Engine. Fields are private; the first cache line is all that a take and a completion touch. */
struct tokenpool_client {
    uint64_t held;             /* tokens that may be spent now */
    uint64_t base_ns, span_ns; /* invariant 2 */
    uint64_t completed;        /* N: I/Os completed in this period */
    uint64_t queued;           /* requests that wait for tokens outside */
    uint64_t allowance, debt;  /* invariant 1 */
    uint64_t kept;             /* K: tokens of the reservation that it has spent or still claims */
    /* second line: the rest of the state */
    uint64_t locked; /* tokens that need a report first */
    uint64_t gained; /* pool tokens of this period */
    uint64_t reservation, limit;
    uint64_t surplus;            /* tokens of this epoch that nobody reserved; not read yet: QOS_UNLIMITED */
    uint64_t carried, owing;     /* spent already of the next epoch: debt, an advance; of it debt, no token of it */
    uint64_t slack, regret;      /* reservation that the decay leaves; what was returned and then missed */
    uint64_t idle_ns, waited_ns; /* of this period: ticks with nothing to do; waiting for tokens */
    uint64_t away_ns, last_done; /* of this period: without an I/O under way; completed by the last call */
    uint64_t under_way;          /* I/Os of the period before, not completed at its end */
    uint64_t busy_ns;            /* the last tick that found it at work, or call that wanted tokens */
    uint64_t base;               /* while it rises: S of the report that the level counts from */
    uint64_t refused_ns;         /* since when the refused request waits, or the last tick; in no take of this period:
                                  * QOS_NEVER, as who stops trying does not wait */
    uint64_t deadline_ns;        /* no epoch after `seen` starts before it; 0: not known */
    uint64_t due_ns;             /* when that start is expected; 0: not known */
    uint64_t first_ns, seen_ns;  /* first clock after the read that showed `seen` first; last such read */
    uint64_t looked_spent;       /* spent at the last such read; its answer came in time: QOS_UNLIMITED */
    uint64_t begin_ns, end_ns;   /* own start, and the latest end, if epochs start in time */
    uint64_t now_ns, op_ns;      /* last call; when the operation under way was issued */
    uint64_t top_ns;             /* the latest call */
    uint64_t tick_ns, next_tick_ns;
    uint64_t period_at_ns, peek_at_ns; /* not before: next read of each */
    uint64_t peek_wait_ns;             /* back-off */
    uint64_t seen_terms;               /* while a period starts */
    uint64_t pool;                     /* as last read or answered in this epoch; not yet: 0 */
    uint64_t ticket, tickets;          /* ordered: range that is not served yet */
    uint64_t early, early_tokens;      /* the pool of the next epoch as a claim left it, 0: none; what that claim got */
    uint64_t claim;                    /* of the claim under way or of the last one, 0 after a read */
    uint64_t period;                   /* the period word that showed the epoch seen last; none yet: 0 */
    uint64_t report, writing, declared;                /* last report; the one under way; spent by then */
    uint64_t reported_kept, reported_spent, lease_end; /* spent may grow up to lease_end */
    uint64_t published, published_borrowed;            /* of this period, in the counters already */
    qos_word_t *shared;                                /* local storage, or NULL */
    struct tokenpool_priv_head head;
    uint32_t epoch, counted;           /* whose terms were read; whose crowd counts this client, 0: none yet */
    uint32_t id, generation, attached; /* attached: incarnation in its reports; 0: none yet */
    uint32_t waiting;                  /* tokens that the refused request needs; 0: none */
    uint32_t share;                    /* ordered: tokens of a claim; 0: not read in this epoch */
    uint8_t trial_gap, trial_wait;     /* periods: least between two trials; since the last one */
    uint8_t state, pending, phase;     /* enum tokenpool_priv_engine, _pending; phase of the last report */
    uint8_t fresh;   /* periods that still begin with a read of the pool: a claim of ours may have emptied it */
    uint8_t telling; /* enum tokenpool_priv_telling */
    uint8_t slow;    /* answers in a row, up to 2, that were seen more than T/16 after their operation */
    struct qos_counters counters;
    qos_counter_t claims, voided, owed;
} __attribute__((aligned(QOS_CACHE_LINE)));
QOS_STATIC_ASSERT(offsetof(struct tokenpool_client, locked) == 64, "a take touches one cache line");

#ifndef QOS_DECLARE_ONLY

QOS_PRIV bool tokenpool_client_priv_has(const struct tokenpool_client *client)
{
    return client->state >= TOKENPOOL_PRIV_IN_HOLD && client->state <= TOKENPOOL_PRIV_IN_ALONE;
}

/* They are of an epoch. */
QOS_PRIV bool tokenpool_client_priv_holds(const struct tokenpool_client *client)
{
    return tokenpool_client_priv_has(client) && client->state != TOKENPOOL_PRIV_IN_ALONE;
}

QOS_PRIV uint64_t tokenpool_client_priv_spent(const struct tokenpool_client *client)
{
    return client->allowance + client->debt - client->held - client->locked;
}

/* Of them those of this period's I/Os: a debt is of before, and what a former engine may have spent is not its own. */
QOS_PRIV uint64_t tokenpool_client_priv_own(const struct tokenpool_client *client)
{
    return qos_sat_sub(tokenpool_client_priv_spent(client), client->carried);
}

/* The epoch seen last; 0: none yet. */
QOS_PRIV uint32_t tokenpool_client_priv_seen(const struct tokenpool_client *client)
{
    return tokenpool_priv_period_epoch(client->period);
}

/* It has tokens, and a report is due. */
QOS_PRIV void tokenpool_client_priv_owe(struct tokenpool_client *client)
{
    if (client->telling == TOKENPOOL_PRIV_TOLD)
        client->telling = TOKENPOOL_PRIV_DUE;
}

/* Until when tokens can be spent without a look at the period word. */
QOS_PRIV uint64_t tokenpool_client_priv_until_ns(const struct tokenpool_client *client)
{
    return client->state == TOKENPOOL_PRIV_IN_ALONE ? client->end_ns : client->deadline_ns;
}

/* X: what a restart may cost. */
QOS_PRIV uint64_t tokenpool_client_priv_unreported(const struct tokenpool_client *client, uint64_t reservation)
{
    return qos_max(client->head.batch, reservation / 8);
}

/* S of who is at work. Behind a slow transport it is ahead of what is spent: half of K may be spent until the answer of
 * the next report. */
QOS_PRIV uint64_t tokenpool_client_priv_ahead(const struct tokenpool_client *client, uint64_t kept, uint64_t spent)
{
    uint64_t more = qos_sat_sub(kept / 2, tokenpool_client_priv_unreported(client, kept));
    return client->slow < 2 ? spent : qos_max(spent, qos_min(kept, spent + more));
}

/* The allowance or the lease changed; what is spent stays spent. */
QOS_PRIV void tokenpool_client_priv_allow(struct tokenpool_client *client)
{
    uint64_t spent = tokenpool_client_priv_spent(client), left;
    client->allowance = qos_min(client->kept + client->gained, client->limit);
    left = qos_sat_sub(client->allowance, spent);
    client->held = qos_min(left, qos_sat_sub(client->lease_end, spent));
    client->locked = left - client->held;
    client->debt = qos_sat_sub(spent, client->allowance);
    if (client->waiting && left >= client->waiting) {
        client->waiting = 0;
        client->refused_ns = QOS_NEVER;
        qos_counter_add(&client->counters.waited, 1);
    }
}

/* The report says that `spent` tokens are spent: so many more may be. Pool tokens without a limit need no report. */
QOS_PRIV void tokenpool_client_priv_lease(struct tokenpool_client *client, uint64_t spent)
{
    client->reported_spent = spent;
    client->lease_end = spent + tokenpool_client_priv_unreported(client, client->reservation);
    if (client->phase == TOKENPOOL_PRIV_FINAL ||
        (client->limit == TOKENPOOL_TOKENS_MAX && client->lease_end >= client->kept))
        client->lease_end = QOS_UNLIMITED;
    if (client->state == TOKENPOOL_PRIV_IN_REST || client->state == TOKENPOOL_PRIV_IN_RISE)
        client->lease_end = spent;
    tokenpool_client_priv_allow(client);
}

/* Its report that it rests is one of REST. Who has nothing that others could use stays in HOLD, and begins without a
 * report. */
QOS_PRIV bool tokenpool_client_priv_to_rest(const struct tokenpool_client *client)
{
    bool lends = tokenpool_priv_reservation(client->seen_terms) ||
                 tokenpool_priv_limit(client->seen_terms) != TOKENPOOL_TOKENS_MAX;
    return tokenpool_priv_rests(client->writing) && (lends || (client->head.flags & TOKENPOOL_GUARD));
}

/* It has not taken for T/8, or for T when an epoch begins, and nothing is under way: it rests. A new engine goes on to
 * rest where the former one did. */
QOS_PRIV bool tokenpool_client_priv_still(const struct tokenpool_client *client, uint64_t need)
{
    bool opens = client->state == TOKENPOOL_PRIV_IN_OPEN;
    uint64_t since_ns = opens ? client->busy_ns : qos_max(client->busy_ns, client->begin_ns);
    if (need || client->queued || client->slack || client->state == TOKENPOOL_PRIV_IN_ALONE)
        return false;
    if (!client->attached)
        return client->report >> 59 == tokenpool_priv_tag(tokenpool_client_priv_seen(client)) &&
               tokenpool_priv_rests(client->report);
    return client->state == TOKENPOOL_PRIV_IN_REST ||
           qos_elapsed_ns(since_ns, client->now_ns) >= client->head.period_ns / (opens ? 1 : 8);
}

/* Brings the counters up to date. */
QOS_PRIV void tokenpool_client_priv_publish(struct tokenpool_client *client)
{
    uint64_t spent = tokenpool_client_priv_spent(client);
    uint64_t borrowed = qos_sat_sub(spent, qos_max(client->kept, client->carried));
    qos_counter_add(&client->counters.granted, qos_wrap_sub(spent, client->published)); /* put_back may lower it */
    qos_counter_add(&client->counters.borrowed, qos_wrap_sub(borrowed, client->published_borrowed));
    qos_counter_add(&client->owed, qos_wrap_sub(client->debt, qos_counter_read(&client->owed)));
    client->published = spent;
    client->published_borrowed = borrowed;
}

/* Slack, after a period. A client that took tokens or had I/Os under way in nearly every tick, and still returned a
 * part, may be limited by the node: a trial keeps all of it. Each trial that fails doubles the time to the next one. */
QOS_PRIV void tokenpool_client_priv_learn(struct tokenpool_client *client, uint64_t spent)
{
    uint64_t unspent = qos_sat_sub(client->kept, spent), little = client->reservation / 64;
    if (client->slack > little)
        client->trial_gap = (uint8_t)(unspent > little ? qos_min(2u * client->trial_gap, 128) : 1);
    client->slack = qos_sat_sub(client->slack, unspent) + client->regret;
    client->regret = 0;
    client->trial_wait = (uint8_t)qos_min(client->trial_wait + 1u, 255);
    if (client->reservation - client->kept > little && client->idle_ns < client->head.period_ns / 8 &&
        client->trial_wait >= client->trial_gap) {
        client->slack += client->reservation - client->kept; /* what it returned */
        client->trial_wait = 0;
    }
}

/* The period has ended for this engine: its tokens are void, its debt stays. An advance counts in the next epoch. */
QOS_PRIV void tokenpool_client_priv_lapse(struct tokenpool_client *client)
{
    uint64_t spent = tokenpool_client_priv_spent(client), own = tokenpool_client_priv_own(client);
    if (!tokenpool_client_priv_has(client))
        return;
    tokenpool_client_priv_publish(client);
    qos_counter_add(&client->voided, client->held + client->locked);
    tokenpool_client_priv_learn(client, spent);
    client->under_way = qos_min(qos_sat_sub(client->under_way + own, client->completed), own);
    client->carried = client->debt;
    if (client->phase == TOKENPOOL_PRIV_ADVANCE) /* tokens of the pool are none */
        client->carried = qos_min(spent, client->kept + client->debt);
    client->owing = client->phase == TOKENPOOL_PRIV_ADVANCE ? 0 : client->debt;
    client->held = client->locked = 0;
    client->allowance = spent - client->debt;
    if (tokenpool_priv_demand(client->report) >= 2 && client->peek_wait_ns) /* it waited, and said so: it counts */
        client->counted = (uint32_t)tokenpool_priv_after(client->epoch);
    client->refused_ns = QOS_NEVER;
    if (client->telling == TOKENPOOL_PRIV_DUE)
        client->telling = TOKENPOOL_PRIV_TOLD;
    client->declared = QOS_UNLIMITED; /* a report under way is of the past */
    client->span_ns = 0;
    client->state = TOKENPOOL_PRIV_IN_WATCH;
}

/* A tick was made, or the period began. */
QOS_PRIV void tokenpool_client_priv_ticked(struct tokenpool_client *client)
{
    uint64_t left_ns = qos_elapsed_ns(client->now_ns, client->end_ns), check_ns = client->head.check_ns;
    client->tick_ns = client->now_ns;
    client->next_tick_ns =
        qos_sat_add(client->now_ns, tokenpool_priv_interval_ns(check_ns, client->head.period_ns, left_ns));
}

QOS_PRIV void tokenpool_client_priv_decay(struct tokenpool_client *client)
{
    /* while the end of the epoch is not known (a start within it, a clock that went back) all of R stays */
    uint64_t elapsed_ns = qos_elapsed_ns(client->begin_ns, client->tick_ns);
    uint64_t life_ns = qos_max(qos_elapsed_ns(client->begin_ns, client->end_ns), 1);
    /* rounded down: the client gains */
    uint64_t rho = qos_mul_div_floor(client->reservation, qos_min(elapsed_ns, life_ns), life_ns);
    uint64_t demand = qos_sat_add(tokenpool_client_priv_spent(client), qos_sat_add(client->queued, client->slack));
    uint64_t kept = client->reservation - qos_sat_sub(rho, demand);
    if (kept < client->kept && client->due_ns && client->state == TOKENPOOL_PRIV_IN_HOLD) {
        client->kept = kept;
        tokenpool_client_priv_allow(client);
    }
}

/* A refused client misses what it returned: n, and what it can use in the time that is left at twice its speed. */
QOS_PRIV void tokenpool_client_priv_regret(struct tokenpool_client *client, uint64_t n)
{
    uint64_t elapsed_ns = qos_max(qos_elapsed_ns(client->begin_ns, client->now_ns), 1);
    uint64_t left_ns = qos_min(qos_elapsed_ns(client->now_ns, client->end_ns), client->head.period_ns);
    uint64_t more = qos_mul_div_floor(2 * tokenpool_client_priv_spent(client), left_ns, elapsed_ns);
    client->regret = qos_max(client->regret, qos_min(qos_sat_add(n, more), client->reservation - client->kept));
}

/* Phase of a report. The last quarter counts from the earliest end; an engine that does not know it is always in it.
 * The final report waits for the latest end: after it a start gets nothing of R. */
QOS_PRIV uint8_t tokenpool_client_priv_phase(const struct tokenpool_client *client)
{
    uint64_t left_ns = qos_elapsed_ns(client->now_ns, client->due_ns);
    uint64_t final_ns = tokenpool_priv_final_ns(client->head.check_ns, client->head.period_ns);
    if (client->state == TOKENPOOL_PRIV_IN_ALONE)
        return TOKENPOOL_PRIV_ADVANCE;
    if (client->due_ns && qos_elapsed_ns(client->now_ns, client->end_ns) <= final_ns)
        return TOKENPOOL_PRIV_FINAL;
    return left_ns <= client->head.period_ns / 4 ? TOKENPOOL_PRIV_LAST : TOKENPOOL_PRIV_EARLY;
}

/* Tokens that are needed beyond those held. */
QOS_PRIV uint64_t tokenpool_client_priv_lack(const struct tokenpool_client *client, uint64_t need)
{
    uint64_t held = tokenpool_client_held(client);
    return need > held ? qos_sat_add(need, client->debt) - held : 0;
}

/* Tokens up to the limit. */
QOS_PRIV uint64_t tokenpool_client_priv_room(const struct tokenpool_client *client)
{
    return qos_sat_sub(client->limit, client->kept + client->gained);
}

/* It had I/Os under way for most of the epoch; before its first call none. */
QOS_PRIV bool tokenpool_client_priv_at_node(const struct tokenpool_client *client)
{
    uint64_t period_ns = client->head.period_ns, start_ns = qos_sat_sub(client->due_ns, period_ns);
    return qos_sat_add(client->away_ns, qos_elapsed_ns(start_ns, client->begin_ns)) <= period_ns / 8;
}

/* Of a report: 0 rests, 1 at work, 2 with a queue, 3 waited for tokens, more than the time for a batch at the end. A
 * queue below 2 % of the completed I/Os is none: the next requests are on their way. Nor is one behind the limit; nor,
 * from the last quarter on until the final report, of an engine that was not at the node. */
QOS_PRIV uint64_t tokenpool_client_priv_demand(const struct tokenpool_client *client, uint64_t need, uint64_t done)
{
    bool more = tokenpool_client_priv_lack(client, qos_max(client->waiting, 1)) <= tokenpool_client_priv_room(client);
    if (more && client->waited_ns > client->head.period_ns / 64)
        return 3;
    if (more && (client->queued > done / 50 || client->refused_ns != QOS_NEVER) &&
        (tokenpool_client_priv_phase(client) != TOKENPOOL_PRIV_LAST || tokenpool_client_priv_at_node(client)))
        return 2;
    return !tokenpool_client_priv_still(client, need);
}

/* It has a queue of which the monitor does not know, which keeps time for R (T - t) / T only; or does not know its
 * epoch's end, so that no later report says so. Its stack is its own. */
QOS_PRIV_NOINLINE bool tokenpool_client_priv_behind(const struct tokenpool_client *client, uint64_t step)
{
    uint64_t left_ns = qos_min(qos_elapsed_ns(client->now_ns, client->end_ns), client->head.period_ns);
    uint64_t pace = qos_mul_div_floor(client->reservation, left_ns, client->head.period_ns);
    return (!client->due_ns || client->kept > tokenpool_client_priv_spent(client) + pace + step) &&
           tokenpool_priv_demand(client->report) < 2 && tokenpool_client_priv_demand(client, 0, client->completed) >= 2;
}

/* Decides at each tick whether a report is due: K or K - N is much other than the monitor knows. The guard needs fresh
 * ones, from those who have no reservation, too. */
QOS_PRIV void tokenpool_client_priv_consider(struct tokenpool_client *client)
{
    bool guard = (client->head.flags & TOKENPOOL_GUARD) != 0;
    uint64_t spent = tokenpool_client_priv_spent(client), step = client->reservation / 32;
    uint64_t returned = client->reported_kept - client->kept, left = qos_sat_sub(client->kept, spent);
    uint64_t reported_left = qos_sat_sub(client->reported_kept, client->reported_spent);
    uint64_t slots = qos_max(client->head.clients, 1); /* as is checked */
    uint64_t untold =
        qos_max(client->head.client_capacity / (TOKENPOOL_PRIV_UNTOLD * slots), TOKENPOOL_PRIV_REPORT_IOS);
    uint64_t ios = guard ? untold : QOS_UNLIMITED;
    bool rests = tokenpool_priv_rests(client->report);
    bool turns = client->state == TOKENPOOL_PRIV_IN_REST /* to work, or to rest, as the report would say */
                     ? !tokenpool_client_priv_still(client, 0)
                     : !rests && !tokenpool_client_priv_demand(client, 0, client->completed);
    bool behind = tokenpool_client_priv_behind(client, step);
    uint64_t final_ns = tokenpool_priv_final_ns(client->head.check_ns, client->head.period_ns);
    bool ends = qos_elapsed_ns(client->due_ns, client->end_ns) > final_ns && /* the final report waits for end_ns */
                qos_elapsed_ns(client->tick_ns, client->due_ns) > final_ns &&
                qos_elapsed_ns(client->now_ns, client->due_ns) <= final_ns;
    bool early = client->phase == TOKENPOOL_PRIV_FINAL && /* its clock jumped ahead: N goes on */
                 qos_sat_sub(client->completed, client->report & TOKENPOOL_TOKENS_MAX) > client->completed / 8;
    if ((returned > step && returned >= reported_left / 3) || (reported_left > step && left <= reported_left / 4) ||
        qos_sat_sub(spent, client->reported_spent) >= ios || tokenpool_client_priv_phase(client) > client->phase ||
        early || turns || behind || ends)
        tokenpool_client_priv_owe(client);
}

QOS_PRIV void tokenpool_client_priv_alone(struct tokenpool_client *client);

/* The time of a call. Two processors' clocks differ, so a reading may be a little lower than the one before: then time
 * stands still. Half of a link's margin (T/4096) is for that, the other half for drift. */
QOS_PRIV uint64_t tokenpool_client_priv_clock(const struct tokenpool_client *client, uint64_t now_ns)
{
    bool still = now_ns < client->now_ns && client->now_ns - now_ns <= client->head.period_ns / 8192;
    return still ? client->now_ns : now_ns;
}

/* A call. No I/O is under way, and since the call before none was; or the last one ended unseen, while it waited for
 * tokens, or had no queue. */
QOS_PRIV void tokenpool_client_priv_away(struct tokenpool_client *client, uint64_t now_ns)
{
    uint64_t own = tokenpool_client_priv_own(client), done = client->completed;
    bool next = done != client->last_done && client->queued && client->refused_ns == QOS_NEVER;
    client->last_done = done;
    if (tokenpool_client_priv_has(client) && client->under_way + own <= done && !next)
        client->away_ns = qos_sat_add(client->away_ns, qos_elapsed_ns(client->now_ns, now_ns));
}

/* The effects of time: decay, reports. Local, no operation. */
QOS_PRIV void tokenpool_client_priv_tick(struct tokenpool_client *client, uint64_t now_ns)
{
    if (now_ns < client->now_ns) { /* the clock went back, by an unknown time more than it shows */
        uint64_t back_ns = client->now_ns - now_ns;
        client->deadline_ns = client->due_ns = client->span_ns = client->period_at_ns = client->peek_at_ns = 0;
        client->begin_ns = qos_sat_sub(client->begin_ns, back_ns); /* estimates: ages stay */
        if (client->state != TOKENPOOL_PRIV_IN_ALONE)              /* which takes no time twice, so it waits */
            client->end_ns = qos_sat_sub(client->end_ns, back_ns);
        client->tick_ns = qos_sat_sub(client->tick_ns, back_ns);
        client->next_tick_ns = now_ns; /* perhaps its last report is late */
        client->busy_ns = qos_sat_sub(client->busy_ns, back_ns);
        client->op_ns = qos_min(client->op_ns, now_ns); /* waits count from it */
        client->seen_ns = qos_min(client->seen_ns, now_ns);
        if (client->pending == TOKENPOOL_PRIV_PERIOD)
            client->pending = TOKENPOOL_PRIV_VOID;
    }
    if (client->now_ns < client->top_ns && now_ns >= client->top_ns)
        client->due_ns = 0; /* it is right again, perhaps by a jump: this epoch's age is not known */
    if (!client->first_ns && now_ns > client->now_ns)
        client->first_ns = now_ns;
    if (client->pending <= TOKENPOOL_PRIV_ANSWERED && now_ns == client->op_ns) /* its answer came in time */
        client->looked_spent = QOS_UNLIMITED;
    if (client->pending == TOKENPOOL_PRIV_ANSWERED) {
        bool late = qos_elapsed_ns(client->op_ns, now_ns) > client->head.period_ns / 16;
        client->slow = late ? (uint8_t)qos_min(client->slow + 1u, 2) : 0;
        client->pending = TOKENPOOL_PRIV_NONE;
    }
    tokenpool_client_priv_away(client, now_ns);
    client->now_ns = now_ns;
    client->top_ns = qos_max(client->top_ns, now_ns);
    if (client->state == TOKENPOOL_PRIV_IN_ALONE && now_ns >= client->end_ns) {
        tokenpool_client_priv_lapse(client);
        tokenpool_client_priv_alone(client);
    }
    if (tokenpool_client_priv_has(client) && now_ns >= client->next_tick_ns) {
        bool waits = client->refused_ns != QOS_NEVER, takes = tokenpool_client_priv_spent(client) != client->published;
        if (waits || takes || client->queued || tokenpool_client_priv_own(client) > client->completed)
            client->busy_ns = now_ns;
        if (waits) {
            client->waited_ns = qos_sat_add(client->waited_ns, qos_elapsed_ns(client->refused_ns, now_ns));
            client->refused_ns = now_ns;
        } else if (!takes && !client->queued &&
                   client->under_way + tokenpool_client_priv_own(client) <= client->completed) {
            client->idle_ns = qos_sat_add(client->idle_ns, qos_elapsed_ns(client->tick_ns, now_ns));
        }
        tokenpool_client_priv_decay(client);
        /* Perhaps the last call before the deadline: a look, of long epochs in each eighth. A clock that hid time is
         * found. */
        if (now_ns < client->due_ns && client->due_ns - now_ns <= qos_elapsed_ns(client->tick_ns, now_ns) &&
            (client->epoch % 8 == 0 || client->head.period_ns <= TOKENPOOL_PRIV_SHORT_NS))
            client->period_at_ns = now_ns;
        tokenpool_client_priv_publish(client);
        tokenpool_client_priv_consider(client);
        tokenpool_client_priv_ticked(client);
    }
}

/* Invariant 2 again. */
QOS_PRIV void tokenpool_client_priv_arm(struct tokenpool_client *client)
{
    uint64_t until_ns = qos_min(tokenpool_client_priv_until_ns(client), client->period_at_ns);
    QOS_ASSERT(!client->debt || !tokenpool_client_held(client)); /* invariants 1 and 5 */
    QOS_ASSERT(client->waiting || client->refused_ns == QOS_NEVER);
    QOS_ASSERT(
        tokenpool_client_priv_has(client) ||
        (!tokenpool_client_held(client) && client->telling != TOKENPOOL_PRIV_DUE && client->refused_ns == QOS_NEVER));
    client->base_ns = client->now_ns;
    client->span_ns = 0;
    if (tokenpool_client_priv_has(client) && client->telling == TOKENPOOL_PRIV_TOLD &&
        client->held <= client->head.client_capacity)
        client->span_ns = qos_elapsed_ns(client->now_ns, qos_min(until_ns, client->next_tick_ns));
}

QOS_PRIV enum qos_status tokenpool_client_priv_attach(struct tokenpool_client *client, const uint64_t *head,
                                                      qos_word_t *shared, uint64_t storage_bytes, uint32_t id,
                                                      uint32_t generation)
{
    struct tokenpool_priv_head h;
    enum qos_status s = tokenpool_priv_head_get(head, &h);
    if (s != QOS_OK)
        return s;
    if (storage_bytes < tokenpool_priv_offset(h.clients, 4))
        return QOS_EMEMORY;
    if (id >= h.clients)
        return QOS_ENOENT;
    if (shared && generation &&
        tokenpool_priv_generation(qos_atomic_load_relaxed(&shared[TOKENPOOL_OFFSET_TERMS / 8 + id])) != generation)
        return QOS_ESTALE;
    __builtin_memset(client, 0, sizeof *client);
    client->shared = shared;
    client->head = h;
    client->id = id;
    client->generation = generation;
    client->trial_gap = 1;
    client->refused_ns = QOS_NEVER;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_client_attach(struct tokenpool_client *client, uint32_t id, uint32_t generation,
                                                void *storage, size_t storage_bytes)
{
    qos_word_t *shared = (qos_word_t *)storage;
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8];
    uint32_t i;
    QOS_ASSERT(client);
    if (!storage)
        return QOS_EINVAL;
    if ((uintptr_t)storage % QOS_CACHE_LINE)
        return QOS_EALIGN;
    if (storage_bytes < TOKENPOOL_OFFSET_TERMS)
        return QOS_EMEMORY;
    for (i = 0; i < TOKENPOOL_HEAD_BYTES / 8; i++)
        head[i] = qos_atomic_load_relaxed(&shared[TOKENPOOL_OFFSET_HEAD / 8 + i]);
    return tokenpool_client_priv_attach(client, head, shared, storage_bytes, id, generation);
}

QOS_API enum qos_status tokenpool_client_attach_remote(struct tokenpool_client *client, uint32_t id,
                                                       uint32_t generation, const void *head, uint64_t storage_bytes)
{
    uint64_t w[TOKENPOOL_HEAD_BYTES / 8];
    QOS_ASSERT(client);
    if (!head)
        return QOS_EINVAL;
    __builtin_memcpy(w, head, sizeof w);
    return tokenpool_client_priv_attach(client, w, NULL, storage_bytes, id, generation);
}

QOS_API uint64_t tokenpool_client_epoch(const struct tokenpool_client *client)
{
    return client->epoch;
}

QOS_API uint64_t tokenpool_client_held(const struct tokenpool_client *client)
{
    return client->held + client->locked;
}

QOS_API void tokenpool_client_complete(struct tokenpool_client *client, uint64_t n)
{
    client->completed = qos_sat_add(client->completed, n);
}

QOS_API void tokenpool_client_set_queued(struct tokenpool_client *client, uint64_t n)
{
    client->queued = n;
}

QOS_API void tokenpool_client_hint(struct tokenpool_client *client)
{
    client->period_at_ns = 0;
    client->span_ns = 0;
}

/* -- a period begins */

/* What an epoch begins with: K, and tokens that count as spent; the phase of its first report. That of an engine
 * continues the slot's, and is perhaps its only one: a sign of life. */
QOS_PRIV uint64_t tokenpool_client_priv_opening(const struct tokenpool_client *client, uint64_t *kept, uint64_t *spent)
{
    uint64_t reservation = qos_min(tokenpool_priv_reservation(client->seen_terms), client->head.client_capacity);
    uint64_t limit = tokenpool_priv_limit(client->seen_terms), phase = tokenpool_priv_phase(client->report);
    uint64_t reported = client->report & TOKENPOOL_TOKENS_MAX;
    *kept = reservation;
    *spent = client->carried;
    if (client->attached)
        return TOKENPOOL_PRIV_EARLY;
    if (!tokenpool_priv_rests(client->report)) /* else S is exact; N does not say what was spent */
        reported =
            phase == TOKENPOOL_PRIV_FINAL ? limit : reported + tokenpool_client_priv_unreported(client, reservation);
    if (phase == TOKENPOOL_PRIV_ADVANCE && !(client->head.flags & TOKENPOOL_GO_ON)) /* a stray store */
        phase = TOKENPOOL_PRIV_LAST;
    if (client->report >> 59 == tokenpool_priv_tag(tokenpool_client_priv_seen(client))) {
        *kept = qos_min(reservation, client->report >> 26 & TOKENPOOL_TOKENS_MAX);
        *spent += qos_min(reported, limit == TOKENPOOL_TOKENS_MAX ? *kept : limit);
        return phase == TOKENPOOL_PRIV_ADVANCE ? phase : TOKENPOOL_PRIV_LAST;
    }
    if (phase == TOKENPOOL_PRIV_ADVANCE)
        *spent += qos_min(reported, reservation);
    return TOKENPOOL_PRIV_LAST;
}

/* A pool of this epoch in which nothing is left. */
QOS_PRIV uint64_t tokenpool_client_priv_empty(const struct tokenpool_client *client)
{
    return tokenpool_priv_word(0, client->epoch, 0);
}

/* Begins the epoch seen last by its terms. Tokens claimed early from its pool count. */
QOS_PRIV void tokenpool_client_priv_begin(struct tokenpool_client *client)
{
    uint32_t epoch = tokenpool_client_priv_seen(client);
    bool early = client->early && tokenpool_word_epoch(client->early) == epoch;
    uint64_t kept, spent;
    (void)tokenpool_client_priv_opening(client, &kept, &spent);
    client->epoch = epoch;
    client->state = TOKENPOOL_PRIV_IN_HOLD;
    if (tokenpool_client_priv_to_rest(client)) { /* what S grew by at a start counts as spent */
        client->state = TOKENPOOL_PRIV_IN_REST;
        spent = qos_max(spent, qos_min(client->writing & TOKENPOOL_TOKENS_MAX, kept));
    }
    if ((client->writing & TOKENPOOL_PRIV_HOW) == TOKENPOOL_PRIV_RISES)
        client->state = TOKENPOOL_PRIV_IN_RISE;
    if (!client->attached && client->state != TOKENPOOL_PRIV_IN_REST)
        client->busy_ns = client->now_ns;
    client->claim = 0;
    client->pool = early ? client->early : 0;
    if (!early && (client->fresh || (!client->attached && client->report >> 59))) /* or a former engine emptied it */
        client->pool = tokenpool_client_priv_empty(client);
    if (client->fresh)
        client->fresh--;
    if (client->early && !early && !client->fresh) /* that claim was of a later pool */
        client->fresh = 1;
    client->peek_at_ns = client->peek_wait_ns = 0;
    client->reservation = qos_min(tokenpool_priv_reservation(client->seen_terms), client->head.client_capacity);
    client->limit = tokenpool_priv_limit(client->seen_terms);
    client->kept = client->reported_kept = kept;
    client->gained = early ? client->early_tokens : 0;
    if (!client->attached && client->report >> 59 == tokenpool_priv_tag(epoch))
        client->gained += qos_sat_sub(spent - client->carried, kept);
    client->carried = spent; /* not its own: put_back */
    if (!early)
        client->tickets = 0;
    client->early = 0;
    client->completed = client->share = 0;
    client->surplus = QOS_UNLIMITED;
    client->slack = qos_min(client->slack, client->reservation);
    client->allowance = client->held = client->locked = 0;
    client->debt = client->published = spent;
    client->published_borrowed = 0;
    client->phase = TOKENPOOL_PRIV_EARLY;
    client->begin_ns = client->now_ns;
    client->idle_ns = client->waited_ns = client->away_ns = client->last_done = 0;
    tokenpool_client_priv_ticked(client);
    tokenpool_client_priv_lease(client, spent);
}

/* TOKENPOOL_GO_ON: no monitor started the next period. The engine renews its reservation; it does not use the pool. */
QOS_PRIV void tokenpool_client_priv_alone(struct tokenpool_client *client)
{
    client->early = 0;
    client->carried = client->owing = client->debt; /* an advance is T old */
    tokenpool_client_priv_begin(client);
    client->state = TOKENPOOL_PRIV_IN_ALONE;
    client->end_ns = qos_sat_add(client->now_ns, client->head.period_ns);
    client->reported_spent = client->lease_end = 0; /* it reports first */
    tokenpool_client_priv_allow(client);
    tokenpool_client_priv_owe(client);
}

/* When the period word is read again: the longer the next epoch is overdue, the later. */
QOS_PRIV uint64_t tokenpool_client_priv_look_ns(const struct tokenpool_client *client)
{
    const struct tokenpool_priv_head *head = &client->head;
    uint64_t wait_ns = qos_min(qos_elapsed_ns(client->due_ns, client->op_ns), head->period_ns / 8);
    if (client->state == TOKENPOOL_PRIV_IN_ALONE)
        wait_ns = head->period_ns / 16;
    if (tokenpool_client_priv_holds(client) && !client->due_ns)
        wait_ns = head->period_ns / 64;
    /* the deadline is early by a link's drift: behind a transport the first look is two that late, and tells then */
    if (tokenpool_client_priv_holds(client) && client->op_ns < client->due_ns)
        return qos_sat_add(client->due_ns, client->shared ? 0 : head->period_ns / 2048);
    return qos_sat_add(client->op_ns, qos_max(wait_ns, head->period_ns / 4096 + 1));
}

QOS_PRIV void tokenpool_client_priv_saw_period(struct tokenpool_client *client, uint64_t period)
{
    uint64_t life_ns = client->head.period_ns - client->head.period_ns / 4096, links = 1; /* T less the clocks' drift */
    uint32_t epoch = tokenpool_priv_period_epoch(period), seen = tokenpool_client_priv_seen(client);
    uint64_t begin_ns; /* of the epoch, at the latest */
    client->period_at_ns = qos_sat_add(client->op_ns, client->head.poll_ns);
    if (!tokenpool_priv_period_valid(period) && (period || seen)) { /* a stray store; the monitor repairs it */
        client->due_ns = qos_default(client->due_ns, client->op_ns);
        return;
    }
    if (period && period >> 48 != client->head.incarnation) {
        tokenpool_client_priv_lapse(client);
        client->state = TOKENPOOL_PRIV_IN_OUT;
        client->period_at_ns = qos_sat_add(client->op_ns, client->head.period_ns / 8);
        return;
    }
    if (epoch != seen) {
        tokenpool_client_priv_lapse(client);
        begin_ns = client->op_ns;
        if (((period ^ client->period) & TOKENPOOL_PRIV_TAKEOVERS) == 0 && epoch > seen && epoch - seen < 1024) {
            links = epoch - seen; /* each one T long; a takeover may skip a number */
            if (client->due_ns && client->end_ns >= client->deadline_ns) /* the one before ended in time */
                begin_ns = qos_min(begin_ns, qos_sat_add(client->end_ns, (links - 1) * life_ns));
        }
        if (client->op_ns < client->deadline_ns) { /* the clock hid time: only the last read counts */
            client->deadline_ns = qos_sat_add(client->seen_ns, 1);
            links = 1;
        }
        if (client->deadline_ns)
            client->deadline_ns = qos_sat_add(client->deadline_ns, qos_sat_mul(links, life_ns));
        client->due_ns = client->deadline_ns > client->op_ns ? client->deadline_ns : 0;
        /* if the reads do not tell when it began, it may end later: K lasts as long as it can */
        client->end_ns = qos_sat_add(begin_ns, life_ns);
        if (client->due_ns && qos_elapsed_ns(client->due_ns, client->end_ns) <= client->head.period_ns / 512)
            client->end_ns = client->due_ns;
        client->period = period;
        client->first_ns = 0;
    }
    client->seen_ns = client->op_ns;
    client->deadline_ns = qos_max(client->deadline_ns, qos_sat_add(client->op_ns, 1));
    if (!tokenpool_client_priv_has(client) && (period & TOKENPOOL_PRIV_OPEN) && epoch != client->epoch) {
        client->state = TOKENPOOL_PRIV_IN_TERMS;
        return;
    }
    if (tokenpool_client_priv_holds(client) && (client->head.flags & TOKENPOOL_GO_ON) && client->first_ns &&
        qos_elapsed_ns(client->first_ns, client->op_ns) >= client->head.period_ns + client->head.period_ns / 8) {
        tokenpool_client_priv_lapse(client);
        tokenpool_client_priv_alone(client);
    }
    client->period_at_ns = tokenpool_client_priv_look_ns(client);
}

QOS_PRIV void tokenpool_client_priv_saw_terms(struct tokenpool_client *client, uint64_t terms)
{
    uint32_t generation = tokenpool_priv_generation(terms), seen = tokenpool_client_priv_seen(client);
    client->state = TOKENPOOL_PRIV_IN_WATCH;
    client->period_at_ns = qos_sat_add(client->op_ns, client->head.poll_ns);
    if ((terms & 0x1fu) != tokenpool_priv_tag(seen)) /* of another epoch, or a stray store */
        return;
    if (client->generation == 0 && tokenpool_priv_limit(terms))
        client->generation = generation;
    client->seen_terms = terms;
    if (client->generation && generation != client->generation) {
        client->state = TOKENPOOL_PRIV_IN_OUT;
        client->epoch = seen;
    } else if (tokenpool_priv_limit(terms) == 0) { /* not joined in this epoch */
        client->epoch = seen;
    } else {
        client->state = TOKENPOOL_PRIV_IN_OPEN;
        return;
    }
    client->period_at_ns = tokenpool_client_priv_look_ns(client);
}

/* The answer of a report's swap. */
QOS_PRIV void tokenpool_client_priv_reported(struct tokenpool_client *client, uint64_t answer)
{
    bool opening = client->state == TOKENPOOL_PRIV_IN_OPEN, swapped = answer == client->report;
    bool lost = client->telling == TOKENPOOL_PRIV_LOST;
    /* What it did not write is another engine's, or all but the incarnation was cleared by the monitor. Incarnations
     * repeat after seven. */
    bool own = swapped || answer == (uint64_t)client->attached << 56 || (lost && answer == client->writing);
    if (client->attached && !own) {
        tokenpool_client_priv_lapse(client);
        client->state = TOKENPOOL_PRIV_IN_FENCED;
        return;
    }
    if (lost) {
        client->telling = tokenpool_client_priv_has(client) ? TOKENPOOL_PRIV_DUE : TOKENPOOL_PRIV_TOLD;
        client->report = answer;
        return;
    }
    client->report = swapped && !opening ? client->writing : answer;
    if (!swapped && opening) /* a join changes the terms before the report: read them again */
        client->state = TOKENPOOL_PRIV_IN_TERMS;
    if (!swapped)
        return; /* the monitor, or a former engine, wrote first: again */
    if (opening) {
        tokenpool_client_priv_begin(client);
        tokenpool_client_priv_lease(client, qos_max(client->declared, client->reported_spent));
        client->report = client->writing;
        client->attached = (uint32_t)(client->writing >> 56 & 7);
        client->phase = (uint8_t)tokenpool_priv_phase(client->writing);
        client->period_at_ns = tokenpool_client_priv_look_ns(client);
        return;
    }
    if (client->declared == QOS_UNLIMITED)
        return;
    client->telling = TOKENPOOL_PRIV_TOLD;
    client->reported_kept = qos_min(client->writing >> 26 & TOKENPOOL_TOKENS_MAX, client->reservation);
    client->phase = (uint8_t)tokenpool_priv_phase(client->writing); /* final no more, if it rises: it has S */
    if ((client->writing & TOKENPOOL_PRIV_HOW) == TOKENPOOL_PRIV_RISES)
        client->state = TOKENPOOL_PRIV_IN_RISE;
    tokenpool_client_priv_lease(client, client->declared);
}

/* The level, read after the report that it rises: what the monitor left it of K, S and the level's part of R, rounded
 * up. Of another epoch: S. */
QOS_PRIV void tokenpool_client_priv_saw_level(struct tokenpool_client *client, uint64_t level)
{
    uint64_t left = tokenpool_word_epoch(level) == client->epoch ? level >> 32 : 0;
    uint64_t part = (client->reservation * left + TOKENPOOL_PRIV_FULL - 1) / TOKENPOOL_PRIV_FULL; /* below 2^58 */
    client->state = TOKENPOOL_PRIV_IN_HOLD;
    /* What is spent stays K: by a former engine that rose, or before the monitor cleared the report of an old epoch. A
     * debt of before is not: what the level took does not pay it, or the next engine had what others have. */
    client->kept =
        qos_min(client->kept, qos_max(client->base + part, tokenpool_client_priv_spent(client) - client->owing));
    /* its report says that it rises: for an heir and the monitor K is all of R, and it does not say when */
    if (tokenpool_client_priv_phase(client) != TOKENPOOL_PRIV_EARLY || (client->head.flags & TOKENPOOL_GUARD) ||
        client->reservation - client->kept > client->reservation / 32)
        tokenpool_client_priv_owe(client);
    tokenpool_client_priv_lease(client, client->reported_spent);
}

/* -- claims */

/* Back-off of reads of an empty pool: the wait doubles, up to a quarter of the time left. If many clients wait, it
 * begins longer and goes up to half of it, so that reads stay a small part of the I/Os: there is always another one who
 * takes what is left. */
QOS_PRIV void tokenpool_client_priv_wait(struct tokenpool_client *client)
{
    /* The monitor counted those that waited in the epoch before. Who was not among them may be one of many. */
    bool crowd = client->head.clients > TOKENPOOL_PRIV_CROWD &&
                 ((client->period & TOKENPOOL_PRIV_CROWDED) || client->counted != client->epoch);
    uint64_t left_ns = qos_elapsed_ns(client->now_ns, client->end_ns);
    uint64_t tick_ns = tokenpool_priv_interval_ns(client->head.check_ns, client->head.period_ns, left_ns);
    uint64_t least_ns = crowd ? 16 * tick_ns : client->head.poll_ns;
    uint64_t most_ns = qos_max(left_ns / (crowd ? 2 : 4), crowd ? least_ns : tick_ns);
    client->peek_wait_ns = qos_min(qos_max(qos_sat_mul(client->peek_wait_ns, 2), least_ns), most_ns);
    client->peek_at_ns = qos_sat_add(client->now_ns, client->peek_wait_ns);
}

/* A read or an answer of the pool word decides about the next claim. */
QOS_PRIV void tokenpool_client_priv_saw_pool(struct tokenpool_client *client, uint64_t pool)
{
    bool known = tokenpool_word_epoch(pool) == client->epoch;
    client->pool = known ? pool : tokenpool_client_priv_empty(client);
    if (!known)
        tokenpool_client_hint(client);
    tokenpool_client_priv_wait(client);
}

/* The answer of a claim. Its own epoch decides whose tokens they are. */
QOS_PRIV void tokenpool_client_priv_claimed(struct tokenpool_client *client, uint64_t pool)
{
    bool ordered = (client->head.flags & TOKENPOOL_ORDERED) != 0;
    int64_t count = tokenpool_word_count(pool);
    uint64_t got = count <= 0 || ordered ? 0 : qos_min((uint64_t)count, client->claim);
    uint32_t epoch = tokenpool_word_epoch(pool);
    if (ordered) {
        client->ticket = (uint64_t)count;
        client->tickets = client->claim;
        client->peek_wait_ns = client->peek_at_ns = 0;
    }
    if (epoch != client->epoch) { /* a new period, not known yet: the tokens are kept for it */
        tokenpool_client_priv_saw_pool(client, pool);
        client->early = tokenpool_priv_word((int64_t)qos_wrap_sub((uint64_t)count, client->claim), epoch, 0);
        client->early_tokens = got;
    } else if (!ordered) {
        client->gained += got;
        if (got)
            client->peek_wait_ns = 0;
        tokenpool_client_priv_saw_pool(client, pool);
        tokenpool_client_priv_allow(client);
    }
}

/* A read of `served`. The next one comes when all of the claim is served, at the pace so far: who is late for the next
 * claim loses its turn. */
QOS_PRIV void tokenpool_client_priv_saw_served(struct tokenpool_client *client, uint64_t served)
{
    uint64_t now = served >> 32, end = client->ticket + client->tickets, to = qos_min(now, end), wait_ns;
    uint64_t n = qos_sat_sub(to, client->ticket);
    wait_ns = qos_mul_div_floor(qos_elapsed_ns(client->begin_ns, client->now_ns), end - to, qos_max(now, 1));
    wait_ns = qos_min(qos_max(wait_ns, client->head.poll_ns),
                      tokenpool_priv_interval_ns(client->head.period_ns / 128 + 1, client->head.period_ns,
                                                 qos_elapsed_ns(client->now_ns, client->end_ns)));
    client->peek_at_ns = qos_sat_add(client->now_ns, wait_ns);
    if (tokenpool_word_epoch(served) != client->epoch || client->early)
        return;
    client->ticket += n;
    client->tickets -= n;
    client->gained += n;
    tokenpool_client_priv_allow(client);
}

/* -- operations */

/* The least claim. A larger request is claimed in one piece: of several, each may get a part that it cannot use. */
QOS_PRIV uint64_t tokenpool_client_priv_least(const struct tokenpool_client *client)
{
    return qos_min(client->head.batch, qos_max(client->head.batch / 8, TOKENPOOL_PRIV_BATCH));
}

/* The operation that gets `need` tokens, and when it is due: QOS_NEVER if none does. */
QOS_PRIV uint64_t tokenpool_client_priv_want(const struct tokenpool_client *client, uint64_t need,
                                             enum tokenpool_priv_pending *what)
{
    uint64_t lack = tokenpool_client_priv_lack(client, need), room = tokenpool_client_priv_room(client);
    bool large = /* a debt is paid in batches */
        qos_sat_sub(need, tokenpool_client_held(client)) > tokenpool_client_priv_least(client);
    if (lack == 0 || room == 0 || (large && lack > client->surplus))
        return QOS_NEVER;
    *what = TOKENPOOL_PRIV_SURPLUS;
    if (large && client->surplus == QOS_UNLIMITED)
        return 0;
    if (client->head.flags & TOKENPOOL_ORDERED) {
        *what = client->tickets ? TOKENPOOL_PRIV_SERVED : client->share ? TOKENPOOL_PRIV_CLAIM : TOKENPOOL_PRIV_WEIGHT;
        return client->tickets ? client->peek_at_ns : 0;
    }
    if (large && lack > room)
        return QOS_NEVER;
    *what = TOKENPOOL_PRIV_PEEK;
    if (client->pool && tokenpool_word_count(client->pool) <= (int64_t)client->claim) /* invariant 3 */
        return client->peek_at_ns;
    if (!large) {
        *what = TOKENPOOL_PRIV_CLAIM;
    } else if (client->pool) {
        if (tokenpool_word_count(client->pool) < (int64_t)lack)
            return client->peek_at_ns;
        *what = TOKENPOOL_PRIV_CLAIM_ALL;
    }
    return 0;
}

/* The next operation for `need` tokens, and since when it is due. Shared by next and next_ns. */
QOS_PRIV uint64_t tokenpool_client_priv_due(const struct tokenpool_client *client, uint64_t now_ns, uint64_t need,
                                            enum tokenpool_priv_pending *what)
{
    enum tokenpool_priv_pending claim = TOKENPOOL_PRIV_NONE;
    uint64_t at = client->period_at_ns, claim_at;
    bool has = tokenpool_client_priv_has(client), sure = now_ns < tokenpool_client_priv_until_ns(client);
    bool late = !sure && !client->shared && client->due_ns;
    *what = TOKENPOOL_PRIV_NONE;
    if (client->state == TOKENPOOL_PRIV_IN_FENCED)
        return QOS_NEVER;
    if (client->state == TOKENPOOL_PRIV_IN_TERMS || client->state == TOKENPOOL_PRIV_IN_OPEN) {
        *what = client->state == TOKENPOOL_PRIV_IN_OPEN ? TOKENPOOL_PRIV_REPORT : TOKENPOOL_PRIV_TERMS;
        return 0;
    }
    if (client->state == TOKENPOOL_PRIV_IN_RISE) {
        *what = TOKENPOOL_PRIV_LEVEL;
        return 0;
    }
    *what = TOKENPOOL_PRIV_PERIOD;
    if (!has || at == 0 || (late && need && at <= now_ns))
        return at;
    /* Behind a transport who rests rises in the next epoch, if that is near: it would get no token before. */
    if (!(late && client->state == TOKENPOOL_PRIV_IN_REST && client->phase >= TOKENPOOL_PRIV_LAST) &&
        (client->telling != TOKENPOOL_PRIV_TOLD ||
         (need > client->held && client->locked && need <= tokenpool_client_held(client)))) {
        *what = TOKENPOOL_PRIV_REPORT;
        return 0;
    }
    if (client->state == TOKENPOOL_PRIV_IN_ALONE)
        return qos_min(at, client->end_ns);
    /* A read tells until when it was issued. Behind a transport whose answers come later that helps nothing. */
    if (!sure && !client->shared && !client->due_ns && client->looked_spent == tokenpool_client_priv_spent(client))
        return qos_min(at, qos_sat_add(client->seen_ns, qos_max(client->head.period_ns / 4096 + 1,
                                                                qos_elapsed_ns(client->end_ns, client->seen_ns))));
    /* Tokens in hand, but perhaps over: behind a transport not at each take, where the next period is near. */
    if (!sure && need && need <= client->held)
        return late ? at : 0;
    claim_at = tokenpool_client_priv_want(client, need, &claim);
    /* Nor at each claim, once the next period is late: perhaps no monitor runs. */
    if (late && qos_elapsed_ns(client->due_ns, now_ns) >= client->head.poll_ns)
        return at;
    if (claim_at < at) {
        at = claim_at;
        *what = sure ? claim : TOKENPOOL_PRIV_PERIOD;
    }
    return at;
}

/* K and S are exact. The last report of a period carries N, and K + G of who returned nothing. Its stack is its own. */
QOS_PRIV_NOINLINE uint64_t tokenpool_client_priv_report(struct tokenpool_client *client, uint64_t need)
{
    uint64_t kept = client->kept, spent = tokenpool_client_priv_spent(client), shown, demand, how;
    bool rises, at_node = tokenpool_client_priv_at_node(client);
    uint64_t done = qos_min(client->completed, TOKENPOOL_TOKENS_MAX), phase;
    uint64_t incarnation = client->attached ? client->attached : (client->report >> 56 & 7) % 7 + 1;
    uint32_t epoch = client->epoch;
    demand = tokenpool_client_priv_demand(client, need, done);
    rises = demand && client->state == TOKENPOOL_PRIV_IN_REST;
    if (client->state == TOKENPOOL_PRIV_IN_OPEN) {
        phase = tokenpool_client_priv_opening(client, &kept, &spent);
        epoch = tokenpool_client_priv_seen(client);
        /* from the report of a former engine, or its own, whose answer was lost */
        rises = demand && client->report >> 59 == tokenpool_priv_tag(epoch) &&
                (tokenpool_priv_rests(client->report) || (client->report & TOKENPOOL_PRIV_HOW) == TOKENPOOL_PRIV_RISES);
    } else {
        phase = qos_max(client->phase, tokenpool_client_priv_phase(client));
        if (!rises && need <= tokenpool_client_held(client)) /* a request above the lease; who rises has none yet */
            spent += qos_sat_sub(need, tokenpool_client_priv_unreported(client, client->reservation));
    }
    if (phase == TOKENPOOL_PRIV_ADVANCE)
        demand = 1;
    if (phase == TOKENPOOL_PRIV_EARLY)
        demand = qos_min(demand, 2);
    how = phase << 2 | demand;
    if (phase == TOKENPOOL_PRIV_FINAL && demand == 2 && !at_node)
        how = TOKENPOOL_PRIV_QUEUED;
    else if (phase == TOKENPOOL_PRIV_FINAL && demand % 2 && at_node)
        how = demand == 3 ? TOKENPOOL_PRIV_WAITED : TOKENPOOL_PRIV_WORKED;
    if (demand && !rises && phase != TOKENPOOL_PRIV_ADVANCE)
        spent = tokenpool_client_priv_ahead(client, kept, spent);
    client->declared = spent;
    shown = spent - client->owing;
    if (phase == TOKENPOOL_PRIV_FINAL) /* who rests has used no less: an advance, and what a former engine spent, too */
        shown = demand ? done : qos_max(done, shown);
    /* S grows with each start, so that a former engine's report does not come again with its incarnation. */
    if (!client->attached && client->report >> 59 == tokenpool_priv_tag(epoch))
        shown = qos_max(shown, (client->report & TOKENPOOL_TOKENS_MAX) + 1);
    shown = qos_min(shown, TOKENPOOL_TOKENS_MAX);
    if (phase == TOKENPOOL_PRIV_FINAL && kept == client->reservation)
        kept = qos_min(kept + client->gained, TOKENPOOL_TOKENS_MAX);
    if (rises)
        client->base = client->report & TOKENPOOL_TOKENS_MAX;
    return tokenpool_priv_tag(epoch) << 59 | incarnation << 56 | kept << 26 | shown |
           (rises ? TOKENPOOL_PRIV_RISES : how << 52);
}

/* Tokens of a claim: the first of an epoch, which tells what the pool holds, and near its end fewer, so that who comes
 * next finds some, and little ends unspent in the hands of clients. */
QOS_PRIV uint64_t tokenpool_client_priv_batch(const struct tokenpool_client *client)
{
    uint64_t batch = client->head.batch, clients = qos_max(client->head.clients, 1); /* as is checked */
    if (client->gained == 0)
        batch /= clients;
    else /* by invariant 3 the pool has some */
        batch = qos_min(batch, (uint64_t)tokenpool_word_count(client->pool) / clients);
    return qos_max(batch, tokenpool_client_priv_least(client));
}

QOS_PRIV void tokenpool_client_priv_op(struct tokenpool_client *client, enum tokenpool_priv_pending what, uint64_t need,
                                       struct tokenpool_op *op)
{
    client->pending = (uint8_t)what;
    if (what == TOKENPOOL_PRIV_PERIOD)
        client->looked_spent = tokenpool_client_priv_spent(client);
    client->op_ns = client->now_ns;
    op->kind = TOKENPOOL_READ;
    op->operand = op->compare = 0;
    op->offset_bytes = TOKENPOOL_OFFSET_PERIOD;
    if (what == TOKENPOOL_PRIV_REPORT) { /* R1 */
        op->offset_bytes = tokenpool_storage_report(client->head.clients, client->id);
        if (client->telling != TOKENPOOL_PRIV_LOST) { /* else it looks whether its last swap was performed */
            client->writing = tokenpool_client_priv_report(client, need);
            if (client->state == TOKENPOOL_PRIV_IN_HOLD && tokenpool_client_priv_to_rest(client))
                client->state = TOKENPOOL_PRIV_IN_REST;
            if (client->state == TOKENPOOL_PRIV_IN_REST ||
                (tokenpool_client_priv_has(client) && client->declared < client->reported_spent))
                tokenpool_client_priv_lease(client, client->declared); /* from now on, as the answer may be lost */
            op->kind = TOKENPOOL_COMPARE_SWAP;
            op->compare = client->report;
            op->operand = client->writing;
        }
    } else if (what == TOKENPOOL_PRIV_CLAIM) { /* C1 */
        client->claim = qos_min(client->share ? client->share : tokenpool_client_priv_batch(client),
                                tokenpool_client_priv_room(client));
        op->kind = TOKENPOOL_FETCH_ADD;
        op->offset_bytes = TOKENPOOL_OFFSET_POOL;
        op->operand = client->claim << 32;
        if (!(client->head.flags & TOKENPOOL_ORDERED))
            op->operand = qos_wrap_sub(0, op->operand);
        qos_counter_add(&client->claims, 1);
    } else if (what == TOKENPOOL_PRIV_CLAIM_ALL) {
        client->claim = tokenpool_client_priv_lack(client, need);
        op->kind = TOKENPOOL_COMPARE_SWAP;
        op->offset_bytes = TOKENPOOL_OFFSET_POOL;
        op->compare = client->pool;
        op->operand = qos_wrap_sub(client->pool, client->claim << 32);
        qos_counter_add(&client->claims, 1);
    } else if (what == TOKENPOOL_PRIV_PEEK) {
        op->offset_bytes = TOKENPOOL_OFFSET_POOL;
    } else if (what == TOKENPOOL_PRIV_SERVED) {
        op->offset_bytes = TOKENPOOL_OFFSET_SERVED;
    } else if (what == TOKENPOOL_PRIV_SURPLUS) {
        op->offset_bytes = TOKENPOOL_PRIV_OFFSET_SURPLUS;
    } else if (what == TOKENPOOL_PRIV_LEVEL) {
        op->offset_bytes = TOKENPOOL_PRIV_OFFSET_LEVEL;
    } else if (what == TOKENPOOL_PRIV_TERMS) {
        op->offset_bytes = TOKENPOOL_OFFSET_TERMS + UINT64_C(8) * client->id;
    } else if (what == TOKENPOOL_PRIV_WEIGHT) {
        op->offset_bytes = tokenpool_priv_offset(client->head.clients, 2) + UINT64_C(8) * client->id;
    }
}

QOS_API bool tokenpool_client_next(struct tokenpool_client *client, uint64_t now_ns, uint64_t need,
                                   struct tokenpool_op *op)
{
    enum tokenpool_priv_pending what;
    QOS_ASSERT(client);
    now_ns = tokenpool_client_priv_clock(client, now_ns);
    if (need)
        client->busy_ns = now_ns;
    tokenpool_client_priv_tick(client, now_ns);
    tokenpool_client_priv_arm(client);
    if (client->pending || tokenpool_client_priv_due(client, now_ns, need, &what) > now_ns)
        return false;
    tokenpool_client_priv_op(client, what, need, op);
    return true;
}

QOS_API void tokenpool_client_done(struct tokenpool_client *client, uint64_t answer)
{
    uint8_t what = client->pending;
    client->pending = TOKENPOOL_PRIV_ANSWERED;
    switch (what) {
    case TOKENPOOL_PRIV_PERIOD: tokenpool_client_priv_saw_period(client, answer); break;
    case TOKENPOOL_PRIV_TERMS: tokenpool_client_priv_saw_terms(client, answer); break;
    case TOKENPOOL_PRIV_REPORT: tokenpool_client_priv_reported(client, answer); break;
    case TOKENPOOL_PRIV_LEVEL: tokenpool_client_priv_saw_level(client, answer); break;
    case TOKENPOOL_PRIV_WEIGHT: /* of one that cannot be read a batch */
        client->share = tokenpool_priv_weight(client->id, answer) ? (uint32_t)tokenpool_priv_limit(answer) : 0;
        client->share = client->share ? client->share : client->head.batch;
        break;
    case TOKENPOOL_PRIV_SURPLUS:
        client->surplus = tokenpool_word_epoch(answer) == client->epoch ? answer >> 32 : TOKENPOOL_TOKENS_MAX;
        break;
    case TOKENPOOL_PRIV_SERVED: tokenpool_client_priv_saw_served(client, answer); break;
    case TOKENPOOL_PRIV_PEEK:
        client->claim = 0;
        tokenpool_client_priv_saw_pool(client, answer);
        break;
    case TOKENPOOL_PRIV_CLAIM: tokenpool_client_priv_claimed(client, answer); break;
    case TOKENPOOL_PRIV_CLAIM_ALL:
        if (answer == client->pool) {
            tokenpool_client_priv_claimed(client, answer);
        } else { /* another claim came first: the answer is a read */
            client->claim = 0;
            tokenpool_client_priv_saw_pool(client, answer);
        }
        break;
    default: break;
    }
    tokenpool_client_priv_arm(client);
}

QOS_API void tokenpool_client_fail(struct tokenpool_client *client)
{
    uint8_t what = client->pending;
    client->pending = TOKENPOOL_PRIV_NONE;
    if (what == TOKENPOOL_PRIV_CLAIM || what == TOKENPOOL_PRIV_CLAIM_ALL) { /* invariant 3: read before the next */
        client->pool = tokenpool_client_priv_empty(client);
        client->peek_at_ns = 0;
        client->fresh = 2; /* it may have been of the pool of a period that is not known yet, or the one after */
    }
    if (client->attached && what == TOKENPOOL_PRIV_REPORT)
        client->telling = TOKENPOOL_PRIV_LOST;
    if (what == TOKENPOOL_PRIV_PERIOD)
        client->period_at_ns = qos_sat_add(client->now_ns, client->head.poll_ns);
    tokenpool_client_priv_arm(client); /* terms and reports: again at once */
}

/* Most operations of one call on local memory. */
#define TOKENPOOL_PRIV_OPS 256u

QOS_API void tokenpool_client_run(struct tokenpool_client *client, uint64_t now_ns, uint64_t need)
{
    struct tokenpool_op op;
    uint32_t i;
    for (i = 0; i < TOKENPOOL_PRIV_OPS && tokenpool_client_next(client, now_ns, need, &op); i++)
        tokenpool_client_done(client, tokenpool_storage_run(client->shared, &op));
}

/* After the operations that were due: n tokens, or why not. */
QOS_PRIV QOS_COLD enum qos_status tokenpool_client_priv_take_slow(struct tokenpool_client *client, uint64_t now_ns,
                                                                  uint64_t n)
{
    enum tokenpool_priv_pending what;
    uint64_t lack;
    if (n == 0 || n > client->head.client_capacity)
        return QOS_ERANGE;
    now_ns = tokenpool_client_priv_clock(client, now_ns);
    if (client->shared) {
        tokenpool_client_run(client, now_ns, n);
    } else {
        tokenpool_client_priv_tick(client, now_ns);
        tokenpool_client_priv_arm(client);
        if (!client->pending && tokenpool_client_priv_due(client, now_ns, n, &what) <= now_ns)
            return QOS_EAGAIN; /* tokenpool_client_next first: a report or a poll is due */
    }
    if (client->state >= TOKENPOOL_PRIV_IN_OUT)
        return QOS_ESTALE;
    if (!tokenpool_client_priv_has(client))
        return QOS_EAGAIN;
    if (n <= client->held && now_ns < tokenpool_client_priv_until_ns(client)) {
        client->held -= n;
        return QOS_OK;
    }
    lack = tokenpool_client_priv_lack(client, n);
    if (lack == 0)
        return QOS_EAGAIN; /* a report is under way, or a read */
    if (n > client->limit ||
        (n > tokenpool_client_priv_least(client) && n > qos_sat_add(client->reservation, client->surplus)))
        return QOS_ERANGE;
    if (!client->waiting) /* counted once for each request, not for each try */
        qos_counter_add(&client->counters.refused, 1);
    if (client->kept < client->reservation)
        tokenpool_client_priv_regret(client, n);
    if (client->refused_ns == QOS_NEVER)
        client->refused_ns = now_ns;
    client->waiting = (uint32_t)n;
    return lack > tokenpool_client_priv_room(client) ? QOS_ELIMIT : QOS_EAGAIN;
}

QOS_API enum qos_status tokenpool_client_take(struct tokenpool_client *client, uint64_t now_ns, uint64_t n)
{
    QOS_ASSERT(client);
    /* Unsigned: a clock that went back, n = 0 and n too large all fail one of the two comparisons. */
    if (QOS_LIKELY(qos_wrap_sub(now_ns, client->base_ns) < client->span_ns && qos_wrap_sub(n, 1) < client->held)) {
        client->held -= n;
        return QOS_OK;
    }
    return tokenpool_client_priv_take_slow(client, now_ns, n);
}

QOS_API enum qos_status tokenpool_client_force(struct tokenpool_client *client, uint64_t now_ns, uint64_t n)
{
    uint64_t held, debt;
    uint32_t i;
    QOS_ASSERT(client);
    if (n == 0 || n > TOKENPOOL_TOKENS_MAX)
        return QOS_ERANGE;
    now_ns = tokenpool_client_priv_clock(client, now_ns);
    tokenpool_client_priv_tick(client, now_ns);
    tokenpool_client_priv_arm(client);
    for (i = 0; i < 2 && client->shared && (!client->span_ns || n > client->held); i++) /* a period may begin: again */
        tokenpool_client_run(client, now_ns, qos_min(n, tokenpool_client_held(client)));
    if (client->state >= TOKENPOOL_PRIV_IN_OUT)
        return QOS_ESTALE;
    held = client->held;
    debt = client->debt;
    if (tokenpool_client_priv_has(client)) /* the next engine may have what no report tells of */
        debt = qos_max(debt, qos_sat_sub(tokenpool_client_priv_spent(client), client->lease_end));
    if (n > held && tokenpool_client_priv_has(client))
        tokenpool_client_priv_owe(client);
    if (n > held && (client->head.debt_max == 0 || debt > client->head.debt_max))
        return QOS_EDEBT;
    client->held = qos_sat_sub(held, n);
    if (tokenpool_client_priv_has(client)) { /* what is held behind a report is used before a debt is made */
        client->debt += qos_sat_sub(n, held);
        tokenpool_client_priv_allow(client);
    } else {
        client->debt += n;
        client->carried += n;
        client->owing += n;
    }
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_client_put_back(struct tokenpool_client *client, uint64_t now_ns, uint64_t epoch,
                                                  uint64_t n)
{
    bool current;
    QOS_ASSERT(client);
    tokenpool_client_priv_tick(client, tokenpool_client_priv_clock(client, now_ns));
    current = tokenpool_client_priv_has(client) && epoch == client->epoch;
    if (current) {
        n = qos_min(n, tokenpool_client_priv_own(client));
        client->held += qos_sat_sub(n, client->debt);
        client->debt = qos_sat_sub(client->debt, n);
        tokenpool_client_priv_allow(client);
    }
    tokenpool_client_priv_arm(client);
    return current ? QOS_OK : QOS_ESTALE;
}

QOS_API uint64_t tokenpool_client_next_ns(const struct tokenpool_client *client, uint64_t now_ns, uint64_t n)
{
    enum tokenpool_priv_pending what;
    uint64_t at;
    now_ns = tokenpool_client_priv_clock(client, now_ns);
    if (now_ns < client->now_ns || (client->now_ns < client->top_ns && now_ns >= client->top_ns))
        return now_ns; /* the clock went back, or is right again */
    at = tokenpool_client_priv_due(client, now_ns, n, &what);
    if (tokenpool_client_priv_has(client)) {
        if (n > 0 && n <= client->held && now_ns < tokenpool_client_priv_until_ns(client))
            return now_ns;
        at = qos_min(at, client->next_tick_ns);
    }
    return qos_max(at, now_ns);
}

QOS_API enum qos_status tokenpool_client_info(const struct tokenpool_client *client, struct tokenpool_client_state *out)
{
    out->epoch = client->epoch;
    out->reservation = client->reservation;
    out->limit = client->limit;
    out->kept = client->kept;
    out->gained = client->gained;
    out->held = tokenpool_client_held(client);
    out->deadline_ns = tokenpool_client_priv_has(client) ? tokenpool_client_priv_until_ns(client) : 0;
    out->claims = qos_counter_read(&client->claims);
    out->voided = qos_counter_read(&client->voided);
    out->generation = client->generation;
    out->running = tokenpool_client_priv_has(client);
    out->stale = client->state >= TOKENPOOL_PRIV_IN_OUT;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_client_stats(const struct tokenpool_client *client, uint32_t id,
                                               struct qos_stats *out)
{
    if (id != QOS_NONE && id != client->id)
        return QOS_ENOENT;
    qos_counters_read(&client->counters, out);
    out->debt = qos_counter_read(&client->owed);
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

/* ==== chapter: monitor ================================================================================
 *
 *   Section II-E. Period start: C tokens, R_i to each client, C - sum R_i to the pool. Once the pool is used (step S2)
 *   the monitor sets it at every check to
 *
 *       min( max(C (T - t) / T - L, 0),  C + overrun - sum K_i - claimed )
 *
 *   with L = sum max(K_i - N_i, 0), the reserved I/Os still to come, K_i of who rests as the level says; of who has no
 *   queue at most R_i (T - t) / T, as its K falls with the time between its reports; of reservations above C only their
 *   part, C / sum R_i. `claimed` is counted exactly from the pool word. The guard leaves the overrun out: I/Os of the
 *   period before are at the node first, and who has most reserved is served last.
 *   Example: capacity 100, reservations 60, batch 30. The pool starts at 40. A claims and reads 40: it gets 30. B
 *   claims and reads 10: it gets 10 and knows that the pool is empty. The count is -20 now. A returns 12 unused
 *   reservation tokens with its next report; the monitor finds room for 12 and swaps -20 for 12.
 *
 *   Start of epoch E+1
 *     1. swap the pool word, (count, E, seq) for (initial, E+1, seq + 1): if this fails, another monitor is active
 *     2. swap the period word for CHANGING; write the terms, each only while the period word is its own
 *     3. swap the period word for OPEN
 *   A monitor that dies or pauses in between is replaced by another, which starts E+2; E+1 gives no token. It also
 *   swaps the period word when it takes the storage, so that steps 2 and 3 of the first monitor fail from then on.
 *
 *   Fencing. The period word says whose the storage is, and how many takeovers there were; clients cannot write it. A
 *   monitor that finds another's there waits. If the pool word is not its own although the period word is, that is a
 *   stray store, or a client with the pool's key: it restores the pool word, and all counts as claimed if the epoch was
 *   changed. So such a client costs others at most the pool.
 *   Each other word is swapped: the monitor reads it, then finds the period word its own, then swaps what it read. A
 *   monitor that was replaced in between fails if the word has changed. The estimate and the admissions may have stayed
 *   as they were, so they carry the count of takeovers: who takes the storage first writes its own count into all of
 *   them. Terms and heartbeat carry their epoch. So an admission holds if and only if its call returned QOS_OK, however
 *   long that monitor paused (less than 128 takeovers, and no multiple of 31 periods).
 *
 *   A monitor is in one of eight roles. Each has one answer to "what is the next operation, and when".
 *
 *       init --> NEW --> OPENING ------> ACTIVE --> OPENING
 *                         |  ^ ^          |  ^
 *                         v  | HOLDING    v  |
 *       ACTIVE <-------- ASKING  ^       UNSURE
 *                                |
 *       resume --------> TAKING -+--> NEW
 *                          ^
 *                        WAITING <-- any but NEW of the six that have the storage
 *
 *       NEW -> OPENING        at once                      ACTIVE -> UNSURE   the answer of a SET is lost
 *       ACTIVE -> OPENING     its epoch is T old           UNSURE -> ACTIVE   a look tells if it was performed
 *       HOLDING -> OPENING    another's epoch is T old     WAITING -> TAKING  no heartbeat for lease_ns
 *       OPENING -> ACTIVE     swapped                      TAKING -> HOLDING  swapped
 *       OPENING -> ASKING     the answer is lost           TAKING -> NEW      swapped; no epoch yet
 *       ASKING -> ACTIVE      performed                    ACTIVE, UNSURE, HOLDING, OPENING, ASKING -> WAITING
 *       ASKING -> OPENING     not performed                                   the period word is another's
 *
 *       NEW, OPENING     START: its epoch over or none, and the next one's counts ready
 *       ACTIVE, HOLDING  LOOK at each check, SET when the pool is to change; the running epoch is its own, or another's
 *       ASKING, UNSURE   LOOK a check later
 *       WAITING, TAKING  LOOK; TAKING then TAKE at once
 *
 *   The start of an epoch. The monitor may pause between its clock and its swaps, so that the epoch starts later than
 *   it believes. The clock of the next call is later than the swaps: if it is late by more than T/8192 (half of the
 *   engines' margin), the epoch counts from there. So epochs start at least T less the margin apart, with any pauses.
 *   An old reading bounds nothing, and the time until the clock is right again must not count twice.
 *
 *   Holding: another monitor started the running epoch, and its counts are lost; so the epoch ends without further
 *   fills. In ordered mode tickets are served up to what nobody reserved. The heartbeat bounds the epoch's age: its
 *   value at the first look plus the time since. The new monitor continues the heartbeat, so that the period ends even
 *   if monitors restart all the time.
 *
 *   Invariants
 *     1. put = tokens given to the pool of this epoch; claimed = put - max(count, 0) <= put.
 *     2. sum K_i + claimed + max(count, 0) <= bound at every swap of the count, K_i as the client holds it or more.
 *     3. At most one epoch is started by (E, seq), and at most one monitor can do it.
 *
 *   Where we differ from the paper
 *     - The paper writes the new pool value, which loses concurrent claims; here a swap that failed is tried again with
 *       the value that it saw. The paper has the first term of the formula only; the second accounts for every token.
 *     - "Reservations are met" needs the guard (TOKENPOOL_GUARD) when reservations differ: a server that shares equally
 *       gives each of n clients C/n, and a client with R_i > C/n catches up only while others pause, at most at C_L
 *       (Definition 2). The guard limits the pool so that the client has the time for that; idle clients do not count.
 *     - When the estimate falls below the reservations admitted, they are still issued: see the bound.
 */

enum tokenpool_priv_state {
    TOKENPOOL_PRIV_FREE,
    TOKENPOOL_PRIV_FRESH, /* admitted, has not been given terms */
    TOKENPOOL_PRIV_LIVE,
    TOKENPOOL_PRIV_SILENT /* did not report: no reservation until it does */
};

enum tokenpool_priv_role {
    TOKENPOOL_PRIV_NEW,
    TOKENPOOL_PRIV_ACTIVE,
    TOKENPOOL_PRIV_UNSURE,
    TOKENPOOL_PRIV_HOLDING,
    TOKENPOOL_PRIV_OPENING,
    TOKENPOOL_PRIV_ASKING, /* the last one that has the storage */
    TOKENPOOL_PRIV_WAITING,
    TOKENPOOL_PRIV_TAKING
};

/* Of the estimate: its last move; AGAIN: a fall is judged once more, BACK: it was taken back. */
enum tokenpool_priv_trial {
    TOKENPOOL_PRIV_STILL,
    TOKENPOOL_PRIV_GREW,
    TOKENPOOL_PRIV_FELL,
    TOKENPOOL_PRIV_AGAIN,
    TOKENPOOL_PRIV_BACK
};

/* Monitor. Fields are private. */
struct tokenpool_monitor {
    struct tokenpool_config config; /* defaults filled in */
    qos_word_t *shared;             /* storage */
    uint32_t *reservation, *limit, *weight, *issued, *used, *under, *silent, *generation;
    uint64_t *done, *beyond;    /* I/Os of finished periods; of them beyond what was issued */
    uint8_t *state, *demand;    /* enum tokenpool_priv_state; demand of the last report, 3 if there is none */
    uint64_t admitted, weights; /* sums of reservations, of weights */
    uint64_t contending;        /* ordered: sum of the weights of those with a demand, as this period began */
    uint64_t now_ns, next_ns;   /* last call; next check */
    uint64_t top_ns;            /* the time, which does not go back: the latest call, since the clock was set */
    uint64_t pool;              /* the word as last seen or written */
    uint64_t period;            /* the word as last written */
    uint64_t swap;              /* the word that the swap under way writes */
    int64_t target;             /* of the change under way */
    uint64_t initial;           /* tokens in the pool of the next epoch, once it is ready */
    uint64_t capacity_next;
    uint64_t busy_left;                     /* busy clients at the last check: sum of K - N */
    uint64_t returning;                     /* of all K - N: what the next reports will return */
    uint64_t window[TOKENPOOL_HISTORY_MAX]; /* W */
    uint64_t beat, beat_ns;                 /* waiting: last heartbeat and since when */
    uint64_t look_ns,
        age_ns;             /* first clock after the epoch was seen, QOS_NEVER: the next one; another's: its age then */
    uint64_t claimed_early; /* of this period, at the last check before the final reports */
    /* At the end of a period: */
    uint64_t of_pool, hidden;   /* pool tokens in reports; not known: of no last report, or kept for a queue */
    uint64_t unwanted;          /* tokens that clients kept and did not want: others could not use them */
    uint64_t said;              /* I/Os, as reported */
    uint64_t late;              /* tokens left though wanted, by who was at the node */
    uint64_t room;              /* what those who were at the node could have used more */
    uint64_t lone, lone_issued; /* reservation less I/Os of the client that wants and left most; its reservation */
    uint64_t without;           /* at least the estimate: what it would be without that client's word */
    uint64_t excused;           /* how many are no sign of a slow node */
    uint64_t tried, fallen;     /* FELL, AGAIN, BACK: U before the fall, BACK: after it; how much it fell */
    uint32_t vain, trusted;     /* falls in a row that were taken back in vain; that will not be taken back */
    uint32_t level;             /* of 2^26: what clients that rest keep of their reservations */
    uint32_t window_used, window_at, grown, clients, incarnation, takeovers, epoch, seq, tries;
    uint32_t wanting, waiting, pressed;   /* at a period's end: want tokens; waited; waited, or want some at the node */
    uint8_t gap, since;                   /* periods from the last late one to a growth: least, now */
    uint8_t pending, change, role, trial; /* operation under way; next one; enum tokenpool_priv_role, _trial */
    struct tokenpool_monitor_state info;
    struct qos_counters counters;
};

#ifndef QOS_DECLARE_ONLY

QOS_PRIV void tokenpool_monitor_priv_layout(struct qos_layout *layout, struct tokenpool_monitor *monitor,
                                            const struct tokenpool_config *config)
{
    uint32_t **const words[] = {&monitor->reservation, &monitor->limit, &monitor->weight, &monitor->issued,
                                &monitor->used,        &monitor->under, &monitor->silent, &monitor->generation};
    const size_t n = config->clients, line = QOS_CACHE_LINE;
    size_t i;
    for (i = 0; i < sizeof words / sizeof *words; i++)
        *words[i] = (uint32_t *)qos_layout_part(layout, n, sizeof(uint32_t), line);
    monitor->done = (uint64_t *)qos_layout_part(layout, n, sizeof(uint64_t), line);
    monitor->beyond = (uint64_t *)qos_layout_part(layout, n, sizeof(uint64_t), line);
    monitor->state = (uint8_t *)qos_layout_part(layout, n, sizeof(uint8_t), line);
    monitor->demand = (uint8_t *)qos_layout_part(layout, n, sizeof(uint8_t), line);
}

QOS_API size_t tokenpool_monitor_memsize(const struct tokenpool_config *config)
{
    struct tokenpool_monitor scratch;
    struct qos_layout layout;
    if (tokenpool_config_error(config))
        return 0;
    qos_layout_begin(&layout, NULL);
    tokenpool_monitor_priv_layout(&layout, &scratch, config);
    return qos_layout_size_bytes(&layout);
}

QOS_PRIV qos_word_t *tokenpool_monitor_priv_at(const struct tokenpool_monitor *monitor, uint64_t offset_bytes)
{
    return monitor->shared + offset_bytes / sizeof(qos_word_t);
}

/* The low bits of a slot's terms: its generation and the epoch's tag. */
QOS_PRIV uint64_t tokenpool_monitor_priv_low(const struct tokenpool_monitor *monitor, uint32_t id)
{
    return (uint64_t)monitor->generation[id] << 5 | tokenpool_priv_tag(monitor->epoch);
}

/* Offset of a slot's terms (k = 0), admission (1), weight (2), report (3). */
QOS_PRIV uint64_t tokenpool_monitor_priv_slot(const struct tokenpool_monitor *monitor, unsigned k, uint32_t id)
{
    return tokenpool_priv_offset(monitor->config.clients, k) + UINT64_C(8) * id;
}

/* Fencing: W1 and W2 are a pair, so who sees a word of another monitor sees its period word, too. */
QOS_PRIV uint64_t tokenpool_monitor_priv_see(const struct tokenpool_monitor *monitor, uint64_t offset_bytes)
{
    return qos_atomic_load_acquire(tokenpool_monitor_priv_at(monitor, offset_bytes)); /* W1 */
}

QOS_PRIV bool tokenpool_monitor_priv_holds(const struct tokenpool_monitor *monitor)
{
    return qos_atomic_load_relaxed(tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_PERIOD)) == monitor->period;
}

QOS_PRIV bool tokenpool_monitor_priv_swap(const struct tokenpool_monitor *monitor, uint64_t offset_bytes, uint64_t seen,
                                          uint64_t v)
{
    return qos_atomic_cas_seq_cst(tokenpool_monitor_priv_at(monitor, offset_bytes), &seen, v); /* W2, R3 */
}

/* The word is v now, or the storage is another's. Mostly a load. */
QOS_PRIV bool tokenpool_monitor_priv_put(const struct tokenpool_monitor *monitor, uint64_t offset_bytes, uint64_t v)
{
    uint64_t seen;
    do {
        seen = tokenpool_monitor_priv_see(monitor, offset_bytes);
        if (seen == v)
            return true;
        if (!tokenpool_monitor_priv_holds(monitor))
            return false;
    } while (!tokenpool_monitor_priv_swap(monitor, offset_bytes, seen, v));
    return true;
}

QOS_PRIV void tokenpool_monitor_priv_write_head(const struct tokenpool_monitor *monitor)
{
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8] = {0};
    uint32_t i;
    tokenpool_priv_head_put(&monitor->config, monitor->incarnation, head);
    for (i = 0; i < TOKENPOOL_HEAD_BYTES / 8; i++)
        (void)tokenpool_monitor_priv_put(monitor, TOKENPOOL_OFFSET_HEAD + UINT64_C(8) * i, head[i]);
}

/* Checks all arguments; writes only if all are right. resume: the head must be that of this configuration. */
QOS_PRIV enum qos_status tokenpool_monitor_priv_setup(struct tokenpool_monitor *monitor, void *mem, size_t size_bytes,
                                                      void *storage, size_t storage_bytes,
                                                      const struct tokenpool_config *config, bool resume)
{
    struct tokenpool_monitor scratch;
    struct qos_layout layout, shared;
    struct tokenpool_config f;
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8], want[TOKENPOOL_HEAD_BYTES / 8];
    const qos_word_t *at;
    const char *why;
    enum qos_status s = tokenpool_priv_check(config, &f, &why);
    uint32_t i;
    QOS_ASSERT(monitor);
    if (s != QOS_OK)
        return s;
    qos_layout_begin(&layout, NULL);
    tokenpool_monitor_priv_layout(&layout, &scratch, &f);
    s = qos_layout_check(&layout, mem, size_bytes);
    if (s != QOS_OK)
        return s;
    qos_layout_begin(&shared, NULL);
    (void)qos_layout_part(&shared, (size_t)tokenpool_priv_offset(f.clients, 4), 1, QOS_CACHE_LINE);
    s = qos_layout_check(&shared, storage, storage_bytes);
    if (s != QOS_OK)
        return s;
    at = (const qos_word_t *)storage + TOKENPOOL_OFFSET_HEAD / 8;
    for (i = 0; i < TOKENPOOL_HEAD_BYTES / 8; i++)
        head[i] = qos_atomic_load_relaxed(&at[i]);
    tokenpool_priv_head_put(&f, head[0] & 0xffffu, want);
    if (resume && __builtin_memcmp(head, want, sizeof head) != 0)
        return QOS_ECORRUPT;
    __builtin_memset(monitor, 0, sizeof *monitor);
    qos_layout_begin(&layout, mem);
    tokenpool_monitor_priv_layout(&layout, monitor, &f);
    __builtin_memset(mem, 0, qos_layout_size_bytes(&layout));
    monitor->config = f;
    monitor->shared = (qos_word_t *)storage;
    monitor->capacity_next = f.capacity;
    monitor->incarnation = (uint32_t)head[0] & 0xffffu;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_monitor_init(struct tokenpool_monitor *monitor, void *mem, size_t size_bytes,
                                               void *storage, size_t storage_bytes,
                                               const struct tokenpool_config *config)
{
    enum qos_status s = tokenpool_monitor_priv_setup(monitor, mem, size_bytes, storage, storage_bytes, config, false);
    uint64_t at, bytes;
    uint32_t i;
    if (s != QOS_OK)
        return s;
    monitor->incarnation = (monitor->incarnation + 1) & 0xffffu; /* engines of the old storage notice */
    bytes = tokenpool_priv_offset(monitor->config.clients, 4);
    for (at = 0; at < bytes; at += 8) { /* reports keep their incarnation: a join fences an engine of the old storage */
        qos_word_t *word = tokenpool_monitor_priv_at(monitor, at);
        bool report = at >= tokenpool_monitor_priv_slot(monitor, 3, 0);
        qos_atomic_store_relaxed(word, report ? qos_atomic_load_relaxed(word) & TOKENPOOL_PRIV_INCARNATION : 0);
    }
    for (i = 0; i < monitor->config.clients; i++)
        (void)tokenpool_monitor_priv_put(monitor, tokenpool_monitor_priv_slot(monitor, 1, i),
                                         tokenpool_priv_admitted(i, 0, 0, 0));
    tokenpool_monitor_priv_write_head(monitor);
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_monitor_resume(struct tokenpool_monitor *monitor, void *mem, size_t size_bytes,
                                                 void *storage, size_t storage_bytes,
                                                 const struct tokenpool_config *config)
{
    enum qos_status s = tokenpool_monitor_priv_setup(monitor, mem, size_bytes, storage, storage_bytes, config, true);
    if (s == QOS_OK)
        monitor->role = TOKENPOOL_PRIV_TAKING;
    return s;
}

/* -- admission */

QOS_PRIV bool tokenpool_monitor_priv_has(const struct tokenpool_monitor *monitor)
{
    return monitor->role <= TOKENPOOL_PRIV_ASKING;
}

/* The storage is this monitor's: the period word is as it wrote it, or no monitor wrote it, and then it is repaired. A
 * swap, because a load may see an old value. */
QOS_PRIV bool tokenpool_monitor_priv_owns(const struct tokenpool_monitor *monitor)
{
    qos_word_t *at = tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_PERIOD);
    uint64_t seen = monitor->period;
    if (!tokenpool_monitor_priv_has(monitor))
        return false;
    while (!qos_atomic_cas_relaxed(at, &seen, monitor->period))
        if (tokenpool_priv_period_valid(seen))
            return false;
    return true;
}

/* others: reservations of the other clients; had: its own before. */
QOS_PRIV enum qos_status tokenpool_monitor_priv_admit(struct tokenpool_monitor *monitor, uint64_t others, uint64_t had,
                                                      uint64_t reservation, uint64_t limit, uint64_t *fits)
{
    uint64_t most = qos_min(qos_sat_sub(monitor->capacity_next, others), monitor->config.client_capacity);
    if (reservation > TOKENPOOL_TOKENS_MAX || limit > TOKENPOOL_TOKENS_MAX || (limit && limit < reservation))
        return QOS_ERANGE;
    if (!tokenpool_monitor_priv_owns(monitor))
        return QOS_ESTALE;
    if (reservation <= qos_max(most, had))
        return QOS_OK;
    if (fits)
        *fits = qos_max(most, had);
    qos_counter_add(&monitor->counters.refused, 1);
    return QOS_EADMISSION;
}

/* Ordered: tokens of a period at the node's pace. With those of the overrun tickets would be served before there is a
 * queue, and who asks more often would get more; but what the guard held back needs them. */
QOS_PRIV uint64_t tokenpool_monitor_priv_most(const struct tokenpool_monitor *monitor)
{
    return monitor->config.flags & TOKENPOOL_GUARD ? monitor->info.bound : monitor->info.capacity;
}

/* Ordered: tokens of a claim, so that all who have a demand get two served in a period: what is not served ends with
 * it, and in the next one the same client may come first again. What reservations return makes the pool larger. A claim
 * is seen at a check, and the client looks each T / 128: less than what is served until then would leave some unused.
 */
QOS_PRIV uint64_t tokenpool_monitor_priv_claim(const struct tokenpool_monitor *monitor, uint64_t weight)
{
    const struct tokenpool_monitor_state *info = &monitor->info;
    uint64_t pool = qos_max(qos_sat_sub(tokenpool_monitor_priv_most(monitor), monitor->busy_left), info->bound / 8);
    uint64_t period_ns = monitor->config.period_ns, least_ns = qos_max(2 * monitor->config.check_ns, period_ns / 64);
    uint64_t all = qos_max(monitor->contending, weight), part = qos_mul_div_floor(pool, weight, all);
    uint64_t claim = qos_mul_div_floor(qos_mul_div_floor(info->capacity, weight, all), least_ns, period_ns);
    return qos_min(info->bound ? qos_max(part / 2, 1) : TOKENPOOL_TOKENS_MAX,
                   qos_min(qos_max(claim, weight * monitor->config.batch), TOKENPOOL_TOKENS_MAX));
}

/* Writes a slot's weight; 0: a free slot. */
QOS_PRIV_NOINLINE enum qos_status tokenpool_monitor_priv_weigh(struct tokenpool_monitor *monitor, uint32_t id,
                                                               uint32_t weight)
{
    bool ordered = weight && (monitor->config.flags & TOKENPOOL_ORDERED);
    uint64_t claim = ordered ? tokenpool_monitor_priv_claim(monitor, weight) : 0;
    if (!tokenpool_monitor_priv_put(monitor, tokenpool_monitor_priv_slot(monitor, 2, id),
                                    tokenpool_priv_admitted(id, weight, claim, monitor->takeovers)))
        return QOS_ESTALE;
    monitor->weights = monitor->weights - monitor->weight[id] + weight;
    monitor->weight[id] = weight;
    return QOS_OK;
}

/* Admits terms: what a monitor that takes over finds in the storage, and only that. limit 0: the slot is free. */
QOS_PRIV enum qos_status tokenpool_monitor_priv_set_terms(struct tokenpool_monitor *monitor, uint32_t id,
                                                          uint64_t reservation, uint64_t limit)
{
    if (!tokenpool_monitor_priv_put(monitor, tokenpool_monitor_priv_slot(monitor, 1, id),
                                    tokenpool_priv_admitted(id, reservation, limit, monitor->takeovers)))
        return QOS_ESTALE;
    monitor->admitted = monitor->admitted - monitor->reservation[id] + reservation;
    monitor->reservation[id] = (uint32_t)reservation;
    monitor->limit[id] = (uint32_t)limit;
    return QOS_OK;
}

/* What a slot's client may use of what it was issued: K, or S if it rests; all, if it did not report. */
QOS_PRIV uint64_t tokenpool_monitor_priv_kept(const struct tokenpool_monitor *monitor, uint32_t id, uint64_t report)
{
    uint64_t kept = (tokenpool_priv_rests(report) ? report : report >> 26) & TOKENPOOL_TOKENS_MAX;
    bool heard = report >> 59 == tokenpool_priv_tag(monitor->epoch);
    return heard ? qos_min(kept, monitor->issued[id]) : monitor->issued[id];
}

QOS_API enum qos_status tokenpool_monitor_join(struct tokenpool_monitor *monitor, uint32_t id, uint64_t reservation,
                                               uint64_t limit, uint64_t *fits)
{
    enum qos_status s;
    uint64_t terms, report, word, kept;
    QOS_ASSERT(monitor);
    limit = limit == QOS_UNLIMITED ? 0 : limit;
    if (id >= monitor->config.clients)
        return QOS_ENOENT;
    if (monitor->state[id] != TOKENPOOL_PRIV_FREE)
        return QOS_EEXIST;
    s = tokenpool_monitor_priv_admit(monitor, monitor->admitted, 0, reservation, limit, fits);
    if (s != QOS_OK)
        return s;
    terms = tokenpool_monitor_priv_slot(monitor, 0, id);
    report = tokenpool_monitor_priv_slot(monitor, 3, id);
    if (!monitor->generation[id])
        monitor->generation[id] = tokenpool_priv_generation(tokenpool_monitor_priv_see(monitor, terms));
    monitor->generation[id] = monitor->generation[id] >= 0x7fu ? 1 : monitor->generation[id] + 1;
    /* The old engine is void before the new admission exists: a monitor that dies between has admitted nobody. */
    if (!tokenpool_monitor_priv_put(monitor, terms,
                                    tokenpool_priv_terms(0, 0, tokenpool_monitor_priv_low(monitor, id))))
        return QOS_ESTALE;
    do {
        word = tokenpool_monitor_priv_see(monitor, report);
        if (!tokenpool_monitor_priv_holds(monitor))
            return QOS_ESTALE;
    } while (!tokenpool_monitor_priv_swap(monitor, report, word, ((word >> 56 & 7) % 7 + 1) << 56));
    kept = tokenpool_monitor_priv_kept(monitor, id, word);
    s = tokenpool_monitor_priv_weigh(monitor, id, 1);
    if (s == QOS_OK)
        s = tokenpool_monitor_priv_set_terms(monitor, id, reservation, qos_default(limit, TOKENPOOL_TOKENS_MAX));
    if (s != QOS_OK)
        return s;
    monitor->state[id] = TOKENPOOL_PRIV_FRESH;
    monitor->hidden += kept; /* of who left in this period: no report tells of it any more */
    monitor->used[id] = monitor->issued[id] = monitor->under[id] = monitor->silent[id] = 0;
    monitor->done[id] = monitor->beyond[id] = 0;
    monitor->demand[id] = 3;
    monitor->clients++;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_monitor_change(struct tokenpool_monitor *monitor, uint32_t id, uint64_t reservation,
                                                 uint64_t limit, uint64_t *fits)
{
    enum qos_status s;
    QOS_ASSERT(monitor);
    limit = limit == QOS_UNLIMITED ? 0 : limit;
    if (id >= monitor->config.clients || monitor->state[id] == TOKENPOOL_PRIV_FREE)
        return QOS_ENOENT;
    s = tokenpool_monitor_priv_admit(monitor, monitor->admitted - monitor->reservation[id], monitor->reservation[id],
                                     reservation, limit, fits);
    if (s == QOS_OK)
        s = tokenpool_monitor_priv_set_terms(monitor, id, reservation, qos_default(limit, TOKENPOOL_TOKENS_MAX));
    return s;
}

QOS_API enum qos_status tokenpool_monitor_set_weight(struct tokenpool_monitor *monitor, uint32_t id, uint32_t weight)
{
    QOS_ASSERT(monitor);
    if (id >= monitor->config.clients || monitor->state[id] == TOKENPOOL_PRIV_FREE)
        return QOS_ENOENT;
    if (weight == 0 || weight > TOKENPOOL_WEIGHT_MAX)
        return QOS_ERANGE;
    if ((monitor->weights - monitor->weight[id] + weight) * monitor->config.batch > TOKENPOOL_CLAIMS_MAX)
        return QOS_EADMISSION;
    return tokenpool_monitor_priv_owns(monitor) ? tokenpool_monitor_priv_weigh(monitor, id, weight) : QOS_ESTALE;
}

QOS_API enum qos_status tokenpool_monitor_leave(struct tokenpool_monitor *monitor, uint32_t id)
{
    QOS_ASSERT(monitor);
    if (id >= monitor->config.clients || monitor->state[id] == TOKENPOOL_PRIV_FREE)
        return QOS_ENOENT;
    if (!tokenpool_monitor_priv_owns(monitor) || tokenpool_monitor_priv_set_terms(monitor, id, 0, 0) != QOS_OK)
        return QOS_ESTALE;
    monitor->clients--;
    monitor->weights -= monitor->weight[id];
    monitor->weight[id] = 0;
    monitor->state[id] = TOKENPOOL_PRIV_FREE;
    return QOS_OK;
}

/* What was admitted in a slot, now with this monitor's takeovers, so that a write of the former monitor fails. Counts a
 * word that cannot be read. */
QOS_PRIV uint64_t tokenpool_monitor_priv_stamp(struct tokenpool_monitor *monitor, uint32_t id)
{
    uint64_t at = tokenpool_monitor_priv_slot(monitor, 1, id), word, reservation, limit, mine;
    bool good;
    do {
        word = tokenpool_monitor_priv_see(monitor, at);
        reservation = tokenpool_priv_reservation(word);
        limit = tokenpool_priv_limit(word);
        good = word == tokenpool_priv_admitted(id, reservation, limit, tokenpool_priv_generation(word)) &&
               limit >= reservation && reservation <= monitor->config.client_capacity;
        mine = tokenpool_priv_admitted(id, good ? reservation : 0, good ? limit : 0, monitor->takeovers);
        if (!tokenpool_monitor_priv_holds(monitor))
            break;
    } while (!tokenpool_monitor_priv_swap(monitor, at, word, mine));
    monitor->info.lost += !good;
    return mine;
}

/* Takes over the estimate and the clients that another monitor admitted, all of them. One that cannot be read must join
 * again. */
QOS_PRIV void tokenpool_monitor_priv_adopt(struct tokenpool_monitor *monitor)
{
    uint64_t estimate = tokenpool_monitor_priv_see(monitor, TOKENPOOL_PRIV_OFFSET_ESTIMATE);
    uint32_t i;
    if (estimate == tokenpool_priv_estimate(estimate >> 32, estimate >> 24 & 0xffu) &&
        !(monitor->config.flags & TOKENPOOL_FIXED))
        monitor->capacity_next = qos_min(qos_max(estimate >> 32, 1), TOKENPOOL_TOKENS_MAX);
    (void)tokenpool_monitor_priv_put(monitor, TOKENPOOL_PRIV_OFFSET_ESTIMATE,
                                     tokenpool_priv_estimate(monitor->capacity_next, monitor->takeovers));
    /* what it learned when it had the storage before is old */
    monitor->window_used = monitor->window_at = monitor->grown = monitor->vain = monitor->trusted = 0;
    monitor->gap = monitor->since = 0;
    monitor->excused = monitor->without = 0;
    monitor->trial = TOKENPOOL_PRIV_STILL;
    monitor->admitted = monitor->weights = 0;
    monitor->clients = monitor->info.lost = 0;
    for (i = 0; i < monitor->config.clients; i++) {
        uint64_t word = tokenpool_monitor_priv_stamp(monitor, i);
        uint32_t was = monitor->generation[i], weight;
        monitor->reservation[i] = (uint32_t)tokenpool_priv_reservation(word);
        monitor->limit[i] = (uint32_t)tokenpool_priv_limit(word);
        monitor->generation[i] =
            tokenpool_priv_generation(tokenpool_monitor_priv_see(monitor, tokenpool_monitor_priv_slot(monitor, 0, i)));
        monitor->used[i] = monitor->under[i] = monitor->silent[i] = 0;
        if (monitor->generation[i] != was) /* another client's */
            monitor->done[i] = monitor->beyond[i] = 0;
        monitor->demand[i] = monitor->limit[i] ? 3 : 0;
        word = tokenpool_monitor_priv_see(monitor, tokenpool_monitor_priv_slot(monitor, 2, i));
        weight = tokenpool_priv_weight(i, word);
        monitor->weight[i] = 0;
        (void)tokenpool_monitor_priv_weigh(monitor, i, monitor->limit[i] ? weight + !weight : 0);
        monitor->state[i] = monitor->limit[i] ? TOKENPOOL_PRIV_FRESH : TOKENPOOL_PRIV_FREE;
        monitor->admitted += monitor->reservation[i];
        monitor->clients += monitor->limit[i] != 0;
    }
}

/* -- reports */

/* Reports whose sums fit 32 bits, as a field has 26. With 32 of them the first are read again before the processor has
 * stored them; 64 need more stack. */
#define TOKENPOOL_PRIV_SUM 48u

/* Adds the reports of a block to the sums. Lanes of 32 bits without branches, so that the loop vectorises and its time
 * does not depend on who reported, or rests: all fields are below 2^26, so that differences have a sign. With the 128
 * bits that each x86-64 has, four clients take some 92 instructions, a third of them for the level; a copy of the four
 * takes 14, a plain read 20. The same sums by hand over private arrays take 0.73 of the time, 2.8 plain reads
 * (bench/tokenpool). Always inlined, as gcc -O3 makes copies of it for the constants, and vectorises none of them. */
QOS_PRIV __attribute__((always_inline)) void tokenpool_monitor_priv_add(struct tokenpool_monitor *monitor,
                                                                        const uint64_t *word, uint32_t first,
                                                                        uint32_t n, bool guard)
{
    const int32_t tag = (int32_t)tokenpool_priv_tag(monitor->epoch), mask = (int32_t)TOKENPOOL_TOKENS_MAX;
    const int32_t phase = (int32_t)(TOKENPOOL_PRIV_RISES >> 26);
    const int32_t wants = (int32_t)((TOKENPOOL_PRIV_HOW ^ TOKENPOOL_PRIV_RISES) >> 26), queue = 2 << 26;
    const uint32_t gone = TOKENPOOL_PRIV_FULL - monitor->level; /* at most 2^26, so a product's high half is exact */
    const uint32_t *issued = monitor->issued + first;
    const uint8_t *demand = monitor->demand + first;
    struct tokenpool_monitor_state *info = &monitor->info;
    int32_t largest = (int32_t)info->largest;
    uint32_t kept = 0, left = 0, used = 0, busy = 0, busy_left = 0, returning = 0, resting = 0, j;
    for (j = 0; j < n; j++) {
        int32_t fresh = (int32_t)(word[j] >> 59) == tag ? -1 : 0, high = (int32_t)(word[j] >> 26);
        int32_t done = (int32_t)word[j] & mask & fresh, most = (int32_t)issued[j];
        int32_t paced = (high & queue) == 0 ? fresh : 0, still = (high & wants) == 0 ? paced : 0;
        int32_t rises = (high & phase) == phase ? -1 : 0, above = (high & mask) - most;
        int32_t k = most + ((above < 0 ? above : 0) & fresh); /* no client keeps more than it was issued */
        int32_t rest = k > done ? k - done : 0;
        /* Who has no queue has at most the level's part left, which is R less a part, rounded down: it returns the rest
         * with its next report, or has returned it if it rests. */
        int32_t over = rest + (int32_t)((uint64_t)(issued[j] << 6) * gone >> 32) - most;
        over = (over > 0 ? over : 0) & paced;
        kept += (uint32_t)k;
        used += (uint32_t)done;
        left += (uint32_t)rest;
        returning += (uint32_t)over;
        over &= still & ~rises;
        resting += (uint32_t)over;
        if (guard) { /* more than a quarter of the time */
            int32_t busy_mask = ((high & wants & fresh) | (demand[j] & ~fresh)) ? -1 : 0;
            rest = (rest - over) & busy_mask;
            busy += busy_mask & 1;
            busy_left += (uint32_t)rest;
            largest = rest > largest ? rest : largest;
        }
    }
    info->kept += kept - resting;
    info->left += left - resting;
    info->used += used;
    info->largest = (uint64_t)largest;
    info->busy += busy;
    monitor->busy_left += busy_left;
    monitor->returning += returning - resting;
}

/* Reads all reports: sums of K, K - N and N, the largest residual. Most of a check's time; its stack is its own. */
QOS_PRIV_NOINLINE void tokenpool_monitor_priv_scan(struct tokenpool_monitor *monitor)
{
    const qos_word_t *reports = tokenpool_monitor_priv_at(monitor, tokenpool_monitor_priv_slot(monitor, 3, 0));
    uint64_t word[TOKENPOOL_PRIV_SUM]; /* a copy: the loop over it has no atomics */
    bool guard = (monitor->config.flags & TOKENPOOL_GUARD) != 0;
    uint32_t i, j, n;
    monitor->info.kept = monitor->info.left = monitor->info.used = monitor->info.largest = monitor->info.busy = 0;
    monitor->busy_left = monitor->returning = 0;
    for (i = 0; i < monitor->config.clients; i += n) {
        const qos_word_t *from = reports + i;
        n = (uint32_t)qos_min(monitor->config.clients - i, TOKENPOOL_PRIV_SUM);
        for (j = 0; j + 8 <= n; j += 8, from += 8) { /* a cache line, written by another core: fetched ahead */
            __builtin_prefetch(&reports[qos_min(i + j + 128, monitor->config.clients - 1)]);
            word[j] = qos_atomic_load_seq_cst(from); /* R3; gcc -O2 unrolls nothing */
            word[j + 1] = qos_atomic_load_seq_cst(from + 1);
            word[j + 2] = qos_atomic_load_seq_cst(from + 2);
            word[j + 3] = qos_atomic_load_seq_cst(from + 3);
            word[j + 4] = qos_atomic_load_seq_cst(from + 4);
            word[j + 5] = qos_atomic_load_seq_cst(from + 5);
            word[j + 6] = qos_atomic_load_seq_cst(from + 6);
            word[j + 7] = qos_atomic_load_seq_cst(from + 7);
        }
        for (; j < n; j++, from++)
            word[j] = qos_atomic_load_seq_cst(from);
        if (n == TOKENPOOL_PRIV_SUM && !guard) /* a constant: gcc -O2 vectorises no other number */
            tokenpool_monitor_priv_add(monitor, word, i, TOKENPOOL_PRIV_SUM, false);
        else if (n == TOKENPOOL_PRIV_SUM)
            tokenpool_monitor_priv_add(monitor, word, i, TOKENPOOL_PRIV_SUM, true);
        else
            tokenpool_monitor_priv_add(monitor, word, i, n, guard);
    }
}

/* The last report of a slot for the period that ends. Returns its N, at most what the client can have got. */
QOS_PRIV uint64_t tokenpool_monitor_priv_finish_slot(struct tokenpool_monitor *monitor, uint32_t id, uint64_t tag)
{
    uint64_t word = tokenpool_monitor_priv_see(monitor, tokenpool_monitor_priv_slot(monitor, 3, id));
    uint64_t issued = monitor->issued[id];
    uint64_t kept = word >> 26 & TOKENPOOL_TOKENS_MAX, left, gained = qos_sat_sub(kept, issued);
    bool heard = word >> 59 == tag, unused;
    bool gone = monitor->state[id] == TOKENPOOL_PRIV_FREE || monitor->state[id] == TOKENPOOL_PRIV_FRESH;
    uint64_t most = qos_min(issued + monitor->info.claimed, qos_max(issued, monitor->config.client_capacity));
    uint64_t done = heard ? qos_min(word & TOKENPOOL_TOKENS_MAX, most) : 0;
    bool at_node = heard && tokenpool_priv_at_node(word);
    bool last = at_node || (heard && tokenpool_priv_phase(word) != TOKENPOOL_PRIV_EARLY);
    bool rises = heard && (word & TOKENPOOL_PRIV_HOW) == TOKENPOOL_PRIV_RISES; /* in place of its last one? */
    monitor->used[id] = (uint32_t)done;
    kept = tokenpool_monitor_priv_kept(monitor, id, word);
    if (gone || !last) /* it left, died, or comes rarely */
        monitor->hidden += gone ? kept : qos_sat_sub(issued, done);
    if (gone)
        return 0;
    monitor->said += heard ? word & TOKENPOOL_TOKENS_MAX : 0;
    monitor->of_pool += qos_max(heard && tokenpool_priv_demand(word) >= 2 ? gained : 0, qos_sat_sub(done, kept));
    monitor->done[id] += done;
    monitor->beyond[id] += qos_sat_sub(done, issued);
    unused = !heard || kept + issued / 64 < issued; /* it returned some of its reservation */
    monitor->under[id] = unused ? monitor->under[id] + 1 : 0;
    monitor->demand[id] = heard ? tokenpool_priv_demand(word) : 0;
    monitor->waiting += last && monitor->demand[id] == 3;
    monitor->wanting += last && monitor->demand[id] >= 2;
    monitor->pressed += last && monitor->demand[id] >= (at_node ? 2 : 3);
    left = qos_sat_sub(kept, done);
    if (last && !at_node && monitor->demand[id] >= 2)
        monitor->hidden += left;
    else if (last && !at_node)
        monitor->unwanted += left;
    monitor->late += at_node && monitor->demand[id] >= 2 ? left : 0;
    monitor->room += at_node ? qos_sat_sub(qos_min(monitor->limit[id], monitor->config.client_capacity), done) : 0;
    if (monitor->demand[id] >= 2 && issued > monitor->lone + done) {
        monitor->lone = issued - done;
        monitor->lone_issued = issued;
    }
    if (last || (heard && monitor->state[id] == TOKENPOOL_PRIV_SILENT)) {
        monitor->silent[id] = 0;
        monitor->state[id] = TOKENPOOL_PRIV_LIVE;
    } else if (monitor->config.silent_periods != QOS_UNLIMITED &&
               ++monitor->silent[id] >= monitor->config.silent_periods + rises) {
        monitor->state[id] = TOKENPOOL_PRIV_SILENT;
    }
    return done;
}

/* ==== chapter: capacity ===============================================================================
 *
 *   At the end of each period, U the sum of all N, Omega the estimate, M = config.history:
 *
 *       tokens left      that clients want: U joins the last M records W; Omega = their mean
 *       none, clients waited, U within equal_within of Omega, or as close as U is known, or Omega not above the
 *                        reservations (as then the pool has only what they return)
 *                        Omega grows by capacity_step; below the profile's capacity each step in a row is twice the
 *                        last, and U counts tokens that nobody's report tells of
 *       U above Omega    Omega = U: the overrun was used
 *       else             Omega stays: the demand was the limit
 *
 *   The node was the limit only of who had I/Os under way: for all but an eighth of the period, by its last report. Who
 *   waited for tokens, or had nothing to do, says nothing of the node. What is left is the larger of K - N of those who
 *   were at the node and want more, and, if any of them does, or anybody waited for tokens, of Omega - U (without
 *   equal_within, and what others kept and did not want), as far as those who were at the node can do more, each
 *   client_capacity.
 *   Tokens that nobody's report tells of (of a claim that was lost, of who died, left, or started anew), or that were
 *   kept for a queue by who was not at the node, are not known: U of a fall counts them as used, U before one does not.
 *
 *   That more waits in a client says its set_queued, or a take that was refused. An engine of take and complete cannot
 *   tell I/Os of 10 ms, one after the other, from I/Os of 0.1 ms after each of which its owner thinks for 9.9 ms. The
 *   calls and their times are the same. In the first world the node is slow, in the second it is idle.
 *
 *   Each move is a trial, which the next period judges:
 *
 *                  U near Omega, clients waited      tokens left          U lower by a fifth
 *          GREW <------------------------------ any ------------> FELL ---------------------> AGAIN
 *                                                |                  |  by two fifths            |  by a fifth
 *         STILL <--------------------------------+                  +----------> BACK <---------+
 *                      none of these                                  Omega as before the fall
 *
 *       STILL, GREW, FELL, AGAIN, BACK -> GREW     STILL, GREW, FELL, AGAIN, BACK -> FELL
 *       GREW, FELL, AGAIN, BACK -> STILL           FELL -> AGAIN     FELL, AGAIN -> BACK
 *
 *   If U falls with Omega by two fifths of the fall, and not by what was kept, the node was not
 *   the limit: the fall is taken back, and so many tokens are no sign for some time (their owner may lie, or the guard
 *   leaves a node idle). If U falls by less, I/Os of the period before may have taken their part; if by what was kept,
 *   that may be chance. So if U is lower by a fifth, and Omega stays, the fall is judged once more, a period later, by
 *   a fifth. With the guard U counts less what is left to who was at the node and wants more: what the others lose to
 *   it is no sign. What is below the I/Os that complete after the last reports is chance. If U does not rise by more
 *   than that, and by an eighth of what was taken back, and more is left, it was in vain: the node becomes slower all
 *   the time. The next fall is not taken back; after two in vain in a row the next two are not, up to four. A growth
 *   after which tokens are left doubles the time to the next one, up to 8 periods.
 *
 *   What one client says lowers the estimate by at most its reservation, as it may lie: it may confirm one lie by the
 *   next. `without` is what the estimate would be if the client that left most had used all it was issued: it falls by
 *   what the others left. If the estimate falls below that by more, while at least two want tokens, it is put back
 *   there for a period. If the node is slow, the others leave tokens then. If they leave none, and wait, `without`
 *   grows. The guard keeps tokens from the others for the sake of a client that says it is behind, and these count as
 *   left by them. Who wants tokens alone can be slow or lie, and nobody can tell: its word counts in full.
 *
 *   So tokens that are lost, by a stray store or a pause, are no sign, nor those that the guard or the order withholds.
 *   While these keep a node from its limit, one that does 8000 a period and one of 10000 both do 7000. The reports are
 *   the same, so a fall is known only once the node is the limit.
 *   Nor does a period teach in which U is above what was claimed at the last look, long ago; nor who did not report in
 *   its last quarter.
 *
 *   Where we differ from Algorithm 1 (`simulate tokenpool` has it): it judges by totals alone, so a demand below Omega
 *   looks like a slow node; with U == Omega the estimate never grows once part of a batch stays unspent; and below its
 *   floor (Omega_prof - 3 sigma) it never changes again.
 *
 *   References
 *     Liu, Varman: Haechi: A Token-based QoS Mechanism for One-sided I/Os in RDMA based Storage System. IPDPS 2021.
 *     Reed, Kanodia: Synchronization with eventcounts and sequencers. CACM 22(2), 1979 (the ordered mode).
 */

QOS_PRIV void tokenpool_monitor_priv_record(struct tokenpool_monitor *monitor, uint64_t used)
{
    uint64_t sum = 0;
    uint32_t i;
    monitor->window[monitor->window_at] = used;
    monitor->window_at = (monitor->window_at + 1) % monitor->config.history;
    if (monitor->window_used < monitor->config.history)
        monitor->window_used++;
    for (i = 0; i < monitor->window_used; i++)
        sum += monitor->window[i];
    monitor->capacity_next = sum / monitor->window_used; /* rounded down */
}

/* Omega grows. W is emptied: its records are smaller, and would pull the next one down. */
QOS_PRIV void tokenpool_monitor_priv_grow(struct tokenpool_monitor *monitor, uint64_t used)
{
    uint64_t omega = monitor->info.capacity, profile = monitor->config.capacity, step = monitor->config.capacity_step;
    monitor->window_used = monitor->window_at = 0;
    if (step == QOS_NOTHING)
        return;
    if (omega + step < profile) /* after a fall */
        step = qos_min(qos_sat_mul(step, UINT64_C(1) << monitor->grown), profile - omega);
    monitor->grown = (uint32_t)qos_min(monitor->grown + UINT64_C(1), 20);
    monitor->capacity_next = qos_max(omega + step, used);
    monitor->trial = TOKENPOOL_PRIV_GREW;
}

/* The node was slower than Omega. */
QOS_PRIV void tokenpool_monitor_priv_fall(struct tokenpool_monitor *monitor, uint64_t used, uint64_t known,
                                          uint64_t left, uint64_t within, uint64_t behind)
{
    uint64_t omega = monitor->info.capacity;
    if (known < monitor->capacity_next / 10 * 9) /* older records do not apply */
        monitor->window_used = monitor->window_at = 0;
    monitor->grown = 0;
    tokenpool_monitor_priv_record(monitor, known);
    /* what was kept and not wanted took no part */
    monitor->capacity_next = qos_min(qos_max(monitor->capacity_next, qos_sat_sub(omega, 2 * left)), omega);
    if (monitor->trusted) {
        monitor->trusted--;
    } else if (monitor->capacity_next + within / 4 < omega) {
        monitor->trial = TOKENPOOL_PRIV_FELL;
        monitor->tried = qos_sat_sub(used + monitor->unwanted, behind);
        monitor->fallen = omega - monitor->capacity_next;
    }
}

/* `without` follows the others; with the guard it does not grow, which keeps tokens from them. */
QOS_PRIV void tokenpool_monitor_priv_doubt(struct tokenpool_monitor *monitor, uint64_t others, uint64_t about)
{
    uint64_t omega = monitor->info.capacity, step = monitor->config.capacity_step;
    if (others)
        monitor->without = qos_min(monitor->without, qos_sat_sub(omega, others));
    else if (omega >= monitor->without && omega < monitor->config.capacity && monitor->waiting && step != QOS_NOTHING &&
             !(monitor->config.flags & TOKENPOOL_GUARD))
        monitor->without += step;
    monitor->without = qos_max(monitor->without, monitor->capacity_next);
    if (monitor->wanting < 2 || monitor->capacity_next >= omega ||
        monitor->capacity_next + monitor->lone_issued + about >= monitor->without)
        return;
    monitor->capacity_next = monitor->without;
    monitor->trial = TOKENPOOL_PRIV_STILL;
}

QOS_PRIV void tokenpool_monitor_priv_estimate(struct tokenpool_monitor *monitor, uint64_t used)
{
    const struct tokenpool_config *config = &monitor->config;
    uint64_t omega = monitor->info.capacity, within = config->equal_within == QOS_NOTHING ? 0 : config->equal_within;
    const uint8_t trial = monitor->trial;
    uint64_t before = trial == TOKENPOOL_PRIV_FELL || trial == TOKENPOOL_PRIV_AGAIN ? monitor->tried : 0;
    uint64_t left = monitor->late;
    /* The guard leaves a node idle for the sake of who is behind: a fall is judged by what both get. */
    uint64_t behind = config->flags & TOKENPOOL_GUARD ? monitor->late : 0;
    /* The last reports come up to final_ns before the end: what is served after them is not left. */
    uint64_t final =
        qos_mul_div_ceil(omega, tokenpool_priv_final_ns(config->check_ns, config->period_ns), config->period_ns);
    uint64_t known = used + monitor->hidden + qos_sat_sub(monitor->claimed_early, monitor->of_pool + final);
    uint64_t late_ns = qos_elapsed_ns(qos_sat_add(monitor->next_ns, config->period_ns / 64), monitor->now_ns);
    uint64_t about = qos_max(omega / 256, final + final / 4); /* so exactly U is known */
    uint64_t others = qos_sat_sub(left, monitor->lone), lower, some = qos_max(monitor->fallen / 5, about);
    bool unmet, vain, back, doubt, again;
    if (config->flags & TOKENPOOL_FIXED)
        return;
    if (omega > monitor->info.reserved) { /* else the pool had only what was returned */
        uint64_t idle = qos_min(qos_sat_sub(omega, known + monitor->unwanted), monitor->pressed ? monitor->room : 0);
        left = qos_max(left, qos_sat_sub(idle, within));
        others = qos_max(others, qos_sat_sub(idle, monitor->lone));
    }
    if (monitor->said > used && late_ns > 2 * config->check_ns) {
        if (trial != TOKENPOOL_PRIV_GREW)
            monitor->trial = TOKENPOOL_PRIV_STILL;
        return;
    }
    if (trial == TOKENPOOL_PRIV_BACK) {
        vain = known < monitor->tried + qos_max(monitor->fallen / 8, about) && left > monitor->fallen / 8;
        monitor->trusted = monitor->vain = vain ? (uint32_t)qos_min(monitor->vain + UINT64_C(1), 4) : 0;
        monitor->excused = vain ? 0 : monitor->excused;
    }
    unmet = left > monitor->excused + qos_max(monitor->excused / 2, about);
    if (trial == TOKENPOOL_PRIV_GREW) /* was that step too much? then the next one later */
        monitor->gap = (uint8_t)(unmet ? qos_min(2u * monitor->gap + 2u, 8) : 0);
    monitor->since = (uint8_t)(unmet ? 0 : qos_min(monitor->since + UINT64_C(1), 255));
    if (monitor->since > 4)
        monitor->vain = 0;
    monitor->excused -= (monitor->excused + 63) / 64; /* tried again after some periods */
    lower = qos_sat_sub(before, qos_sat_sub(known + monitor->unwanted, behind));
    back = lower > (trial == TOKENPOOL_PRIV_AGAIN ? some : qos_max(monitor->fallen * 2 / 5, about));
    again = trial == TOKENPOOL_PRIV_FELL && qos_sat_sub(known, behind) + some < before;
    doubt = trial == TOKENPOOL_PRIV_FELL && lower > some;
    monitor->trial = TOKENPOOL_PRIV_STILL;
    if (back) {
        monitor->excused = qos_min(left, monitor->fallen) + monitor->fallen; /* so much is left at the former one */
        monitor->capacity_next = qos_max(omega + monitor->fallen, monitor->capacity_next);
        monitor->trial = TOKENPOOL_PRIV_BACK;
        monitor->tried = used;
    } else if (unmet && known && known < omega + within && !doubt) {
        tokenpool_monitor_priv_fall(monitor, used, known, left, within, behind);
    } else if (monitor->waiting && !unmet && monitor->since > monitor->gap &&
               (qos_sat_add(omega < config->capacity ? known : used, qos_max(within, 2 * about)) >= omega ||
                omega <= monitor->info.reserved)) {
        tokenpool_monitor_priv_grow(monitor, used);
    } else if (used > omega) { /* with tokens of the overrun: the records are of a slower node */
        monitor->window_used = monitor->window_at = 0;
        monitor->capacity_next = used;
    } else if (again) { /* I/Os of the period before took their part, or what was kept may explain it */
        monitor->trial = TOKENPOOL_PRIV_AGAIN;
    }
    tokenpool_monitor_priv_doubt(monitor, unmet && others > about + within ? others : 0, about);
}

/* End of a period, by its reports: U, silent clients, unused reservations, the next estimate. Claims after the last
 * look, T / 1024 before the end, are not in U (of a pool in use C / 1024 at most): the swap that starts the next period
 * tells them, and needs the estimate. */
QOS_PRIV void tokenpool_monitor_priv_finish(struct tokenpool_monitor *monitor)
{
    const uint64_t tag = tokenpool_priv_tag(monitor->epoch);
    uint64_t total = 0;
    uint32_t i;
    monitor->waiting = monitor->wanting = monitor->pressed = 0;
    monitor->late = monitor->room = monitor->lone = monitor->lone_issued = 0;
    monitor->said = monitor->of_pool = monitor->unwanted = 0;
    for (i = 0; i < monitor->config.clients; i++)
        total += tokenpool_monitor_priv_finish_slot(monitor, i, tag);
    monitor->info.last_used = qos_min(total, monitor->info.reserved + monitor->info.claimed);
    tokenpool_monitor_priv_estimate(monitor, monitor->info.last_used);
    monitor->capacity_next = qos_min(monitor->capacity_next, TOKENPOOL_TOKENS_MAX);
}

/* ==== chapter: periods and fills ======================================================================
 *
 *   After a swap without an answer the next look decides: the word's (epoch, seq) shows whether it was performed,
 *   because only this swap can have written that pair.
 */

/* Tokens that the pool may hold so that the largest residual reservation r of a busy client is still met by equal
 * sharing. While all n busy clients are served, it gets C/n; when the others have spent what they hold, it goes on at a
 * rate S. With W tokens in the others' hands and in the pool this is in time if W <= (S left - r) x C (n - 1) / (n S -
 * C), all in tokens of a period. If r is below C/n it needs no guard. S could be C_L; but from k = C / C_L clients on
 * the node is used whole, so S is the rate with k or k + 1 clients, at most C_L. C_L is the profile's: an estimate
 * above the profile makes k no larger. Else one step up halves S, and a client that does not use its R stops all. */
QOS_PRIV uint64_t tokenpool_monitor_priv_guard(const struct tokenpool_monitor *monitor, uint64_t left_ns,
                                               uint64_t tokens)
{
    const struct tokenpool_monitor_state *info = &monitor->info;
    uint64_t n = qos_max(info->busy, 1), c = info->capacity, most = monitor->config.client_capacity;
    uint64_t period_ns = monitor->config.period_ns, k, rate, spare, others, held;
    if (!(monitor->config.flags & TOKENPOOL_GUARD) || info->largest <= qos_mul_div_floor(c, left_ns, period_ns * n) ||
        n * most <= c)
        return tokens;
    k = (qos_min(c, monitor->config.capacity) + most - 1) / most;
    rate = qos_min(most, k > 1 ? 2 * c / (2 * k + 1) : c);
    spare = qos_sat_sub(qos_mul_div_floor(rate, left_ns, period_ns), info->largest);
    others = n * rate > c ? qos_mul_div_floor(spare, c * (n - 1), n * rate - c) : 0;
    held = qos_sat_sub(info->claimed, qos_sat_sub(info->used, info->kept - info->left)); /* of the pool, not spent */
    others = qos_sat_sub(others, monitor->busy_left - info->largest + held);
    return qos_min(tokens, others);
}

QOS_PRIV uint64_t tokenpool_monitor_priv_age_ns(const struct tokenpool_monitor *monitor)
{
    return qos_elapsed_ns(monitor->info.start_ns, monitor->top_ns);
}

/* Another monitor has the storage: this one waits, and drops its next operation. It knows the age of its epoch better
 * than the heartbeat, which old readings hold back. */
QOS_PRIV void tokenpool_monitor_priv_fenced(struct tokenpool_monitor *monitor)
{
    if (monitor->look_ns == QOS_NEVER) {
        monitor->epoch = 0; /* none seen yet */
    } else {
        monitor->age_ns = tokenpool_monitor_priv_age_ns(monitor);
        monitor->look_ns = monitor->top_ns;
    }
    monitor->period = qos_atomic_load_relaxed(tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_PERIOD));
    monitor->role = TOKENPOOL_PRIV_WAITING;
    monitor->change = TOKENPOOL_PRIV_NONE;
    monitor->next_ns = monitor->now_ns;
    monitor->beat_ns = monitor->top_ns;
}

/* Until the next check. Ordered: a 16th of the time in which all who want tokens get a batch served, so that those who
 * got theirs claim again before the others' are served. */
QOS_PRIV uint64_t tokenpool_monitor_priv_interval_ns(const struct tokenpool_monitor *monitor)
{
    uint64_t period_ns = monitor->config.period_ns, check_ns = monitor->config.check_ns, claims, most;
    uint64_t age_ns = tokenpool_monitor_priv_age_ns(monitor);
    if (monitor->config.flags & TOKENPOOL_ORDERED) {
        claims = qos_max(monitor->contending, 1) * monitor->config.batch;
        most = qos_max(monitor->info.bound, monitor->capacity_next); /* holding: no bound is known */
        check_ns = qos_min(check_ns, qos_mul_div_ceil(period_ns, claims, 16 * qos_max(most, claims)));
        check_ns = qos_max(check_ns, period_ns / 1024 + 1);
    }
    check_ns = qos_min(check_ns, qos_max(age_ns, period_ns / 1024 + 1)); /* the first checks: what returns at once */
    return tokenpool_priv_interval_ns(check_ns, period_ns, qos_sat_sub(period_ns, age_ns));
}

/* Writes the heartbeat: a monitor runs, and the age of the epoch. */
QOS_PRIV void tokenpool_monitor_priv_beat(struct tokenpool_monitor *monitor)
{
    uint64_t age_ns = qos_min(tokenpool_monitor_priv_age_ns(monitor), (UINT64_C(1) << 44) - 1);
    (void)tokenpool_monitor_priv_put(monitor, TOKENPOOL_OFFSET_BEAT, (uint64_t)monitor->epoch << 44 | age_ns);
}

/* Swaps the period word; false: it is another's. */
QOS_PRIV bool tokenpool_monitor_priv_swap_period(struct tokenpool_monitor *monitor, uint64_t open)
{
    qos_word_t *at = tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_PERIOD);
    uint64_t crowd = monitor->wanting > TOKENPOOL_PRIV_CROWD ? TOKENPOOL_PRIV_CROWDED : 0;
    uint64_t flags = (uint64_t)monitor->takeovers << 1 | crowd | open;
    uint64_t to = tokenpool_priv_period(monitor->incarnation, monitor->epoch, flags), expected = monitor->period;
    bool swapped = qos_atomic_cas_relaxed(at, &expected, to);
    if (swapped)
        monitor->period = to;
    return swapped;
}

/* Prepares the counts of a new period and its pool word. The old pool serves until the swap. */
QOS_PRIV void tokenpool_monitor_priv_open(struct tokenpool_monitor *monitor)
{
    uint64_t reserved = 0, overrun = monitor->config.overrun;
    struct tokenpool_monitor_state *info = &monitor->info;
    uint32_t i;
    info->last_put = info->put;
    info->last_reserved = info->reserved;
    info->last_bound = info->bound;
    info->last_capacity = info->capacity;
    info->capacity = monitor->capacity_next;
    info->clients = monitor->clients;
    monitor->busy_left = monitor->contending = info->largest = info->busy = 0;
    for (i = 0; i < monitor->config.clients; i++) {
        if (monitor->state[i] == TOKENPOOL_PRIV_FRESH)
            monitor->state[i] = TOKENPOOL_PRIV_LIVE;
        monitor->issued[i] = monitor->state[i] == TOKENPOOL_PRIV_LIVE ? monitor->reservation[i] : 0;
        reserved += monitor->issued[i];
        info->busy += monitor->state[i] == TOKENPOOL_PRIV_LIVE && monitor->demand[i] != 0;
        info->largest = monitor->demand[i] ? qos_max(info->largest, monitor->issued[i]) : info->largest;
        monitor->busy_left += monitor->demand[i] ? monitor->issued[i] : 0;
        monitor->contending += monitor->state[i] == TOKENPOOL_PRIV_LIVE && monitor->demand[i] ? monitor->weight[i] : 0;
    }
    info->kept = info->left = reserved;
    info->claimed = info->used = monitor->claimed_early = monitor->hidden = 0;
    info->reserved = reserved;
    info->bound = qos_max(info->capacity, reserved);
    if (overrun != QOS_NOTHING)
        info->bound += qos_default(overrun, info->capacity / 20);
    monitor->initial = 0;
    if (!(monitor->config.flags & TOKENPOOL_ORDERED)) /* else claims first */
        monitor->initial =
            tokenpool_monitor_priv_guard(monitor, monitor->config.period_ns, qos_sat_sub(info->capacity, reserved));
    monitor->role = TOKENPOOL_PRIV_OPENING;
}

/* Tokens claimed in this period, exactly: tokens put into the pool less those left. A negative count is the sum of
 * failed claims. A count above what was put is a stray store: then all counts as claimed. */
QOS_PRIV uint64_t tokenpool_monitor_priv_count_claimed(const struct tokenpool_monitor *monitor, uint64_t pool)
{
    int64_t count = tokenpool_word_count(pool);
    uint64_t n = count > 0 ? (uint64_t)count : 0;
    if (monitor->config.flags & TOKENPOOL_ORDERED)
        return qos_min(n, monitor->info.put);
    return n > monitor->info.put ? monitor->info.put : monitor->info.put - n;
}

QOS_PRIV void tokenpool_monitor_priv_serve(struct tokenpool_monitor *monitor, uint64_t served)
{
    monitor->info.put = served;
    (void)tokenpool_monitor_priv_put(monitor, TOKENPOOL_OFFSET_SERVED,
                                     tokenpool_priv_word((int64_t)served, monitor->epoch, 0));
}

/* The level falls, so that who rises after this finds it; who rose before is seen by the scan that comes next. */
QOS_PRIV void tokenpool_monitor_priv_lower(struct tokenpool_monitor *monitor, uint64_t level)
{
    level = qos_min(level, monitor->level);
    if (tokenpool_monitor_priv_put(monitor, TOKENPOOL_PRIV_OFFSET_LEVEL,
                                   tokenpool_priv_word((int64_t)level, monitor->epoch, 0)))
        monitor->level = (uint32_t)level;
}

/* The pool is of the new epoch: writes the terms, while the period word is this monitor's. */
QOS_PRIV bool tokenpool_monitor_priv_announce(struct tokenpool_monitor *monitor)
{
    uint64_t tag = tokenpool_priv_tag(monitor->epoch);
    uint32_t i;
    if (!tokenpool_monitor_priv_swap_period(monitor, 0)) /* M2 */
        return false;
    monitor->level = TOKENPOOL_PRIV_FULL;
    tokenpool_monitor_priv_lower(monitor, TOKENPOOL_PRIV_FULL);
    tokenpool_monitor_priv_write_head(monitor);
    (void)tokenpool_monitor_priv_put(monitor, TOKENPOOL_PRIV_OFFSET_ESTIMATE,
                                     tokenpool_priv_estimate(monitor->info.capacity, monitor->takeovers));
    (void)tokenpool_monitor_priv_put(
        monitor, TOKENPOOL_PRIV_OFFSET_SURPLUS,
        tokenpool_priv_word((int64_t)qos_sat_sub(monitor->info.capacity, monitor->info.reserved), monitor->epoch, 0));
    for (i = 0; i < monitor->config.clients; i++) {
        uint64_t report = tokenpool_monitor_priv_slot(monitor, 3, i);
        uint64_t word = tokenpool_monitor_priv_see(monitor, report);
        if (word >> 59 == tag) /* 31 periods old: tags repeat */
            (void)tokenpool_monitor_priv_swap(monitor, report, word, word & TOKENPOOL_PRIV_INCARNATION);
        if (!tokenpool_monitor_priv_put(
                monitor, tokenpool_monitor_priv_slot(monitor, 0, i),
                tokenpool_priv_terms(monitor->issued[i], monitor->limit[i], tokenpool_monitor_priv_low(monitor, i))) ||
            !tokenpool_monitor_priv_put(
                monitor, tokenpool_monitor_priv_slot(monitor, 1, i),
                tokenpool_priv_admitted(i, monitor->reservation[i], monitor->limit[i], monitor->takeovers)) ||
            tokenpool_monitor_priv_weigh(monitor, i, monitor->weight[i]) != QOS_OK)
            return false;
    } /* if another monitor changed the period word, this swap fails */
    return tokenpool_monitor_priv_swap_period(monitor, TOKENPOOL_PRIV_OPEN); /* M3 */
}

/* An epoch that starts late by less than the engines' margin counts from its planned start, so that the rate stays
 * exact. A later one counts from now, to be T long; so does the first one, whose plan is ahead. */
QOS_PRIV void tokenpool_monitor_priv_late(struct tokenpool_monitor *monitor)
{
    if (qos_wrap_sub(monitor->top_ns, monitor->info.start_ns) > monitor->config.period_ns / 8192)
        monitor->info.start_ns = monitor->top_ns;
}

/* The swap of START succeeded; old_pool is what it replaced. */
QOS_PRIV void tokenpool_monitor_priv_started(struct tokenpool_monitor *monitor, uint64_t old_pool)
{
    struct tokenpool_monitor_state *info = &monitor->info;
    info->last_claimed = tokenpool_word_epoch(old_pool) == monitor->epoch
                             ? tokenpool_monitor_priv_count_claimed(monitor, old_pool)
                             : info->last_put;                                             /* not known: all */
    qos_counter_add(&monitor->counters.granted, info->last_reserved + info->last_claimed); /* of another's epoch 0 */
    qos_counter_add(&monitor->counters.borrowed, info->last_claimed);
    info->start_ns = qos_sat_add(info->start_ns, monitor->config.period_ns);
    tokenpool_monitor_priv_late(monitor);
    monitor->pool = monitor->swap;
    /* A number that the period word never showed was no epoch of T: engines must not count it. */
    if (tokenpool_word_epoch(monitor->pool) != tokenpool_priv_after(tokenpool_priv_period_epoch(monitor->period)))
        monitor->takeovers = (monitor->takeovers + 1) & 0x7fu;
    monitor->epoch = tokenpool_word_epoch(monitor->pool);
    monitor->seq = tokenpool_priv_seq(monitor->pool);
    monitor->look_ns = QOS_NEVER;
    monitor->role = TOKENPOOL_PRIV_ACTIVE;
    info->converting = false;
    info->epoch = monitor->epoch;
    info->put = monitor->initial;
    monitor->next_ns = qos_sat_add(monitor->now_ns, tokenpool_monitor_priv_interval_ns(monitor));
    if (monitor->config.flags & TOKENPOOL_ORDERED)
        tokenpool_monitor_priv_serve(monitor, 0);
    if (!tokenpool_monitor_priv_announce(monitor))
        tokenpool_monitor_priv_fenced(monitor);
    else
        tokenpool_monitor_priv_beat(monitor);
}

/* Step T2: the tokens that the pool should hold now. */
QOS_PRIV uint64_t tokenpool_monitor_priv_target(struct tokenpool_monitor *monitor)
{
    const struct tokenpool_monitor_state *info = &monitor->info;
    uint64_t left_ns = qos_sat_sub(monitor->config.period_ns, tokenpool_monitor_priv_age_ns(monitor));
    uint64_t room, budget, left;
    uint64_t step_ns = tokenpool_monitor_priv_interval_ns(monitor);
    uint64_t more_ns = qos_max(qos_min(step_ns, monitor->config.period_ns / 32), monitor->config.period_ns / 1024);
    uint64_t ahead_ns = step_ns + more_ns; /* until a client sees the next fill */
    tokenpool_monitor_priv_lower(
        monitor, qos_mul_div_ceil(TOKENPOOL_PRIV_FULL, qos_sat_sub(left_ns, ahead_ns), monitor->config.period_ns));
    tokenpool_monitor_priv_scan(monitor);
    /* reservations above the estimate have its part of the node: those of idle clients must not keep it idle */
    left = qos_mul_div_floor(info->left - monitor->returning, info->capacity, qos_max(info->capacity, info->reserved));
    room = qos_sat_sub(qos_mul_div_floor(info->capacity, left_ns, monitor->config.period_ns), left);
    budget = monitor->config.flags & TOKENPOOL_GUARD ? info->capacity : info->bound;
    budget = qos_sat_sub(budget, info->kept + monitor->hidden + info->claimed);
    return tokenpool_monitor_priv_guard(monitor, left_ns, qos_min(room, budget));
}

/* Ordered: how far tickets are served now, of `bound` tokens of which `used` were reserved. Not faster than the node,
 * so that there is always a queue in which each client has one claim; what returns in one piece at most at twice that
 * pace. */
QOS_PRIV uint64_t tokenpool_monitor_priv_pace(const struct tokenpool_monitor *monitor, uint64_t bound, uint64_t used,
                                              uint64_t put)
{
    uint64_t period_ns = monitor->config.period_ns;
    uint64_t step_ns = qos_min(tokenpool_monitor_priv_interval_ns(monitor), period_ns);
    uint64_t to_ns = qos_min(tokenpool_monitor_priv_age_ns(monitor) + step_ns, period_ns);
    uint64_t pace = qos_sat_sub(qos_mul_div_ceil(bound, to_ns, period_ns), used);
    return qos_min(pace, put + qos_mul_div_ceil(2 * bound, step_ns, period_ns));
}

/* Holding, ordered: serves what nobody reserved, for which it needs no reports. The former monitor may still write
 * more, by its counts: those are right, as K never rises within an epoch. */
QOS_PRIV void tokenpool_monitor_priv_go_on(const struct tokenpool_monitor *monitor, uint64_t pool)
{
    uint64_t surplus = tokenpool_monitor_priv_see(monitor, TOKENPOOL_PRIV_OFFSET_SURPLUS);
    uint64_t served = tokenpool_monitor_priv_see(monitor, TOKENPOOL_OFFSET_SERVED), most, to;
    int64_t count = tokenpool_word_count(pool);
    if (!(monitor->config.flags & TOKENPOOL_ORDERED) || tokenpool_word_epoch(surplus) != monitor->epoch ||
        tokenpool_word_epoch(served) != monitor->epoch)
        return;
    most = qos_min(surplus >> 32, monitor->capacity_next); /* a stray store */
    to = qos_min(count > 0 ? (uint64_t)count : 0,
                 qos_min(most, tokenpool_monitor_priv_pace(monitor, most, 0, served >> 32)));
    if (to > served >> 32)
        (void)tokenpool_monitor_priv_put(monitor, TOKENPOOL_OFFSET_SERVED,
                                         tokenpool_priv_word((int64_t)to, monitor->epoch, 0));
}

/* The pool word is `pool`, with our epoch and seq: decides whether to change it. */
QOS_PRIV void tokenpool_monitor_priv_fill(struct tokenpool_monitor *monitor, uint64_t pool)
{
    struct tokenpool_monitor_state *info = &monitor->info;
    const struct tokenpool_config *config = &monitor->config;
    int64_t count = tokenpool_word_count(pool);
    bool ordered = (config->flags & TOKENPOOL_ORDERED) != 0;
    uint64_t target;
    monitor->pool = pool;
    if (!ordered && count > (int64_t)info->put) { /* a stray store: what was claimed is unknown */
        info->put = qos_max(info->put, info->bound);
        info->converting = true;
    }
    info->claimed = tokenpool_monitor_priv_count_claimed(monitor, pool);
    if (tokenpool_monitor_priv_age_ns(monitor) + tokenpool_priv_final_ns(config->check_ns, config->period_ns) <
        config->period_ns)
        monitor->claimed_early = info->claimed;
    info->converting = info->converting || (ordered ? count > 0 : count < (int64_t)info->put); /* S2 */
    if (!info->converting)
        return;
    target = tokenpool_monitor_priv_target(monitor);
    if (ordered) {
        uint64_t most = tokenpool_monitor_priv_most(monitor), used = info->kept - info->left + monitor->hidden, served;
        served = qos_min(info->claimed + target, tokenpool_monitor_priv_pace(monitor, most, used, info->put));
        served = qos_min(served, count > 0 ? (uint64_t)count : 0);
        tokenpool_monitor_priv_serve(monitor, qos_max(served, info->put)); /* a stray store ends here */
        return;
    }
    monitor->target = (int64_t)target;
    if (target ? monitor->target != count : count > 0)
        monitor->change = TOKENPOOL_PRIV_SET;
}

/* Ours: (epoch, seq) is what this monitor wrote last. */
QOS_PRIV bool tokenpool_monitor_priv_ours(const struct tokenpool_monitor *monitor, uint64_t pool)
{
    return tokenpool_word_epoch(pool) == monitor->epoch && tokenpool_priv_seq(pool) == monitor->seq;
}

/* A swap replaced monitor->pool by monitor->swap. */
QOS_PRIV void tokenpool_monitor_priv_was_set(struct tokenpool_monitor *monitor)
{
    bool known = tokenpool_word_epoch(monitor->pool) == monitor->epoch;
    monitor->info.claimed = known ? tokenpool_monitor_priv_count_claimed(monitor, monitor->pool) : monitor->info.put;
    if (!(monitor->config.flags & TOKENPOOL_ORDERED))
        monitor->info.put = monitor->info.claimed + (uint64_t)monitor->target;
    monitor->pool = monitor->swap;
    monitor->seq = tokenpool_priv_seq(monitor->pool);
}

/* Waiting: watches another's epoch and heartbeat. */
QOS_PRIV void tokenpool_monitor_priv_watch(struct tokenpool_monitor *monitor, uint64_t pool)
{
    uint64_t beat = qos_atomic_load_relaxed(tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_BEAT));
    uint32_t epoch = tokenpool_word_epoch(pool);
    if (epoch != monitor->epoch) { /* it started before this look less the heartbeat's age */
        monitor->look_ns = QOS_NEVER;
        monitor->age_ns = beat >> 44 == epoch ? beat & ((UINT64_C(1) << 44) - 1) : 0;
        monitor->age_ns = qos_min(monitor->age_ns, monitor->config.period_ns);
        monitor->period = qos_atomic_load_relaxed(tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_PERIOD));
    }
    if (beat != monitor->beat) {
        monitor->beat = beat;
        monitor->beat_ns = monitor->top_ns;
    }
    monitor->pool = pool;
    monitor->epoch = epoch;
    monitor->seq = tokenpool_priv_seq(pool);
    if (monitor->role == TOKENPOOL_PRIV_TAKING ||
        qos_elapsed_ns(monitor->beat_ns, monitor->top_ns) >= monitor->config.lease_ns) {
        monitor->role = TOKENPOOL_PRIV_TAKING;
        monitor->change = TOKENPOOL_PRIV_TAKE;
    }
}

/* Changes the period word, but not its meaning: from now on the swaps of the replaced monitor fail. If that monitor
 * announced an epoch after our first look, it may have started just now. */
QOS_PRIV void tokenpool_monitor_priv_fence(struct tokenpool_monitor *monitor)
{
    qos_word_t *at = tokenpool_monitor_priv_at(monitor, TOKENPOOL_OFFSET_PERIOD);
    uint64_t seen = qos_atomic_load_relaxed(at), to;
    uint64_t looked = monitor->period, last;
    do {
        last = tokenpool_priv_period_valid(seen) ? seen : looked;
        monitor->takeovers = (uint32_t)((last >> 1) + 1) & 0x7fu;
        to = last != seen ? seen /* a stray store, not a monitor's */
                          : tokenpool_priv_period(monitor->incarnation, tokenpool_priv_period_epoch(seen),
                                                  (uint64_t)monitor->takeovers << 1 |
                                                      (seen & (TOKENPOOL_PRIV_OPEN | TOKENPOOL_PRIV_CROWDED)));
    } while (!qos_atomic_cas_release(at, &seen, to)); /* M6 */
    monitor->period = to;
    monitor->wanting = to & TOKENPOOL_PRIV_CROWDED ? TOKENPOOL_PRIV_CROWD + 1 : 0; /* all that it tells */
    if (tokenpool_priv_period_epoch(to) != tokenpool_priv_period_epoch(looked)) {
        monitor->look_ns = QOS_NEVER;
        monitor->age_ns = 0;
        monitor->epoch = tokenpool_priv_period_epoch(to); /* of an older number the next one would come twice */
    }
}

/* The swap of TAKE succeeded: the storage is ours, the running epoch another monitor's. */
QOS_PRIV void tokenpool_monitor_priv_taken(struct tokenpool_monitor *monitor)
{
    monitor->pool = monitor->swap;
    monitor->seq = tokenpool_priv_seq(monitor->pool);
    monitor->info.converting = false;
    monitor->info.put = monitor->info.claimed = monitor->info.reserved = monitor->info.bound = 0;
    tokenpool_monitor_priv_fence(monitor);
    monitor->info.epoch = monitor->epoch;
    monitor->role = monitor->epoch ? TOKENPOOL_PRIV_HOLDING : TOKENPOOL_PRIV_NEW;
    monitor->info.start_ns = qos_sat_sub(qos_min(monitor->look_ns, monitor->top_ns), monitor->age_ns);
    tokenpool_monitor_priv_adopt(monitor);
    if (monitor->epoch)
        tokenpool_monitor_priv_beat(monitor);
}

/* The period word is ours, the pool word is not. known: it is of our epoch, and no fill lacks its answer, so the count
 * still counts. Else what was claimed is unknown: all of it, so the pool is empty until the next period. */
QOS_PRIV void tokenpool_monitor_priv_restore(struct tokenpool_monitor *monitor, bool known)
{
    int64_t count = known ? tokenpool_word_count(monitor->pool) : 0;
    if (!known && monitor->role == TOKENPOOL_PRIV_HOLDING)
        return; /* an epoch began that nobody announced: the next one is another */
    if (!known)
        monitor->info.put = qos_max(monitor->info.put, monitor->info.bound);
    monitor->target = (int64_t)(count > 0 ? qos_min((uint64_t)count, monitor->info.put) : 0);
    if (monitor->config.flags & TOKENPOOL_ORDERED)
        monitor->target = known ? count : (int64_t)monitor->info.put;
    monitor->change = TOKENPOOL_PRIV_SET;
}

/* The answer of a look: our word, a swap without an answer, a stray store, or another monitor's word. */
QOS_PRIV void tokenpool_monitor_priv_looked(struct tokenpool_monitor *monitor, uint64_t pool)
{
    bool ours = tokenpool_monitor_priv_ours(monitor, pool), unsure = monitor->role == TOKENPOOL_PRIV_UNSURE;
    bool performed = (uint32_t)pool == (uint32_t)monitor->swap; /* epoch and seq */
    if (!tokenpool_monitor_priv_has(monitor)) {
        tokenpool_monitor_priv_watch(monitor, pool);
    } else if (!(ours && tokenpool_monitor_priv_holds(monitor)) && !tokenpool_monitor_priv_owns(monitor)) {
        tokenpool_monitor_priv_fenced(monitor);
    } else if (monitor->role == TOKENPOOL_PRIV_ASKING && performed) {
        tokenpool_monitor_priv_started(monitor, monitor->pool);
    } else if (monitor->role == TOKENPOOL_PRIV_ASKING) { /* again, with the word as claims left it */
        monitor->pool = pool;
        monitor->role = TOKENPOOL_PRIV_OPENING;
    } else {
        if (unsure)
            monitor->role = TOKENPOOL_PRIV_ACTIVE;
        if (unsure && performed)
            tokenpool_monitor_priv_was_set(monitor);
        tokenpool_monitor_priv_beat(monitor);
        monitor->pool = pool;
        monitor->tries = 4; /* swaps in one check */
        if (!ours && !(unsure && performed))
            tokenpool_monitor_priv_restore(monitor, tokenpool_word_epoch(pool) == monitor->epoch && !unsure);
        else if (monitor->role == TOKENPOOL_PRIV_ACTIVE)
            tokenpool_monitor_priv_fill(monitor, pool);
        else
            tokenpool_monitor_priv_go_on(monitor, pool);
    }
}

/* The next epoch: one that neither the pool word shows, which another monitor may have begun, nor the period word. */
QOS_PRIV uint64_t tokenpool_monitor_priv_next_epoch(const struct tokenpool_monitor *monitor)
{
    uint64_t next = tokenpool_priv_after(monitor->epoch), pool = tokenpool_word_epoch(monitor->pool);
    uint64_t period = tokenpool_priv_period_valid(monitor->period) ? tokenpool_priv_period_epoch(monitor->period) : 0;
    while (next == pool || next == period)
        next = tokenpool_priv_after(next);
    return next;
}

/* Decides on the next operation, if one is due. */
QOS_PRIV void tokenpool_monitor_priv_plan(struct tokenpool_monitor *monitor)
{
    bool runs = monitor->role == TOKENPOOL_PRIV_ACTIVE || monitor->role == TOKENPOOL_PRIV_HOLDING;
    bool over = runs && tokenpool_monitor_priv_age_ns(monitor) >= monitor->config.period_ns;
    if (over && monitor->role == TOKENPOOL_PRIV_ACTIVE)
        tokenpool_monitor_priv_finish(monitor);
    if (over || monitor->role == TOKENPOOL_PRIV_NEW)
        tokenpool_monitor_priv_open(monitor);
    if (monitor->role == TOKENPOOL_PRIV_OPENING) {
        monitor->change = TOKENPOOL_PRIV_START;
    } else if (monitor->now_ns >= monitor->next_ns) {
        monitor->change = TOKENPOOL_PRIV_LOOK;
        monitor->next_ns = qos_sat_add(monitor->now_ns, tokenpool_monitor_priv_interval_ns(monitor));
    }
}

/* The clock of a call. At an old reading time stands still. Below that the clock was set, and ages stay. The first one
 * that is not old after an epoch was announced, or was seen first, bounds when it began. */
QOS_PRIV void tokenpool_monitor_priv_clock(struct tokenpool_monitor *monitor, uint64_t now_ns)
{
    bool set = qos_elapsed_ns(now_ns, monitor->top_ns) > monitor->config.period_ns / 4;
    bool first = monitor->look_ns == QOS_NEVER && (set || now_ns >= monitor->top_ns);
    if (now_ns < monitor->now_ns)
        monitor->next_ns = now_ns; /* the checks go on */
    if (set) {
        monitor->info.start_ns = qos_sat_sub(now_ns, tokenpool_monitor_priv_age_ns(monitor));
        monitor->age_ns = qos_sat_add(monitor->age_ns, qos_elapsed_ns(monitor->look_ns, monitor->top_ns));
        monitor->look_ns = monitor->beat_ns = monitor->top_ns = now_ns;
    }
    monitor->now_ns = now_ns;
    monitor->top_ns = qos_max(monitor->top_ns, now_ns);
    if (!first)
        return;
    monitor->look_ns = now_ns;
    if (monitor->role == TOKENPOOL_PRIV_HOLDING)
        monitor->info.start_ns = qos_sat_sub(now_ns, monitor->age_ns);
    if (monitor->role == TOKENPOOL_PRIV_ACTIVE && set)
        monitor->info.start_ns = now_ns;
    if (monitor->role == TOKENPOOL_PRIV_ACTIVE)
        tokenpool_monitor_priv_late(monitor);
}

QOS_PRIV bool tokenpool_monitor_priv_next(struct tokenpool_monitor *monitor, struct tokenpool_op *op)
{
    uint64_t pool = monitor->pool;
    if (!monitor->change)
        tokenpool_monitor_priv_plan(monitor);
    if (!monitor->change)
        return false;
    monitor->pending = monitor->change;
    monitor->change = TOKENPOOL_PRIV_NONE;
    op->offset_bytes = TOKENPOOL_OFFSET_POOL;
    op->kind = TOKENPOOL_READ;
    op->operand = op->compare = 0;
    if (monitor->pending == TOKENPOOL_PRIV_LOOK)
        return true;
    if (monitor->pending == TOKENPOOL_PRIV_START) /* M1 */
        monitor->swap = tokenpool_priv_word((int64_t)monitor->initial, tokenpool_monitor_priv_next_epoch(monitor),
                                            monitor->seq + UINT64_C(1));
    else if (monitor->pending == TOKENPOOL_PRIV_SET) /* M4 */
        monitor->swap = tokenpool_priv_word(monitor->target, monitor->epoch, monitor->seq + UINT64_C(1));
    else /* M5 */
        monitor->swap = (pool & ~(uint64_t)TOKENPOOL_PRIV_SEQ_MASK) |
                        ((tokenpool_priv_seq(pool) + TOKENPOOL_PRIV_SEQ_TAKE) & TOKENPOOL_PRIV_SEQ_MASK);
    op->kind = TOKENPOOL_COMPARE_SWAP;
    op->compare = pool;
    op->operand = monitor->swap;
    return true;
}

QOS_API bool tokenpool_monitor_next(struct tokenpool_monitor *monitor, uint64_t now_ns, struct tokenpool_op *op)
{
    QOS_ASSERT(monitor);
    if (monitor->pending)
        return false;
    tokenpool_monitor_priv_clock(monitor, now_ns);
    return tokenpool_monitor_priv_next(monitor, op);
}

QOS_API void tokenpool_monitor_done(struct tokenpool_monitor *monitor, uint64_t answer)
{
    uint8_t what = monitor->pending;
    bool swapped = answer == monitor->pool, ours = tokenpool_monitor_priv_ours(monitor, answer);
    monitor->pending = TOKENPOOL_PRIV_NONE;
    if (what == TOKENPOOL_PRIV_LOOK) {
        tokenpool_monitor_priv_looked(monitor, answer);
    } else if (what == TOKENPOOL_PRIV_TAKE && swapped) {
        tokenpool_monitor_priv_taken(monitor);
    } else if (what == TOKENPOOL_PRIV_TAKE) {
        tokenpool_monitor_priv_watch(monitor, answer); /* a claim came between, or a swap */
    } else if (what == TOKENPOOL_PRIV_START && !swapped && !ours && !tokenpool_monitor_priv_owns(monitor)) {
        tokenpool_monitor_priv_fenced(monitor);
    } else if (what == TOKENPOOL_PRIV_SET && !swapped && !ours) {
        monitor->change = TOKENPOOL_PRIV_LOOK; /* whose it is, the period word says */
    } else if (what == TOKENPOOL_PRIV_START) {
        monitor->pool = answer;
        if (swapped) /* else a claim came first, of the old period: again with the new word */
            tokenpool_monitor_priv_started(monitor, answer);
    } else if (what == TOKENPOOL_PRIV_SET) {
        if (swapped)
            tokenpool_monitor_priv_was_set(monitor);
        else if (--monitor->tries)
            tokenpool_monitor_priv_fill(monitor, answer);
    }
}

QOS_API void tokenpool_monitor_fail(struct tokenpool_monitor *monitor)
{
    uint8_t what = monitor->pending;
    monitor->pending = TOKENPOOL_PRIV_NONE;
    if (what == TOKENPOOL_PRIV_START)
        monitor->role = TOKENPOOL_PRIV_ASKING;
    else if (what == TOKENPOOL_PRIV_SET && monitor->role == TOKENPOOL_PRIV_ACTIVE) /* HOLDING: it finds a stray word */
        monitor->role = TOKENPOOL_PRIV_UNSURE;
    monitor->next_ns = qos_sat_add(monitor->now_ns, monitor->config.check_ns);
}

QOS_API void tokenpool_monitor_run(struct tokenpool_monitor *monitor, uint64_t now_ns)
{
    struct tokenpool_op op;
    QOS_ASSERT(monitor);
    if (monitor->pending)
        return;
    tokenpool_monitor_priv_clock(monitor, now_ns);
    while (tokenpool_monitor_priv_next(monitor, &op)) /* one clock for all of them */
        tokenpool_monitor_done(monitor, tokenpool_storage_run(monitor->shared, &op));
}

QOS_API uint64_t tokenpool_monitor_next_ns(const struct tokenpool_monitor *monitor, uint64_t now_ns)
{
    uint64_t at = monitor->look_ns == QOS_NEVER ? qos_min(monitor->next_ns, monitor->top_ns) : monitor->next_ns;
    if (monitor->change || now_ns < monitor->now_ns || monitor->role == TOKENPOOL_PRIV_NEW ||
        monitor->role == TOKENPOOL_PRIV_OPENING)
        return now_ns;
    if (monitor->role == TOKENPOOL_PRIV_ACTIVE || monitor->role == TOKENPOOL_PRIV_HOLDING)
        at = qos_min(at, qos_sat_add(monitor->info.start_ns, monitor->config.period_ns));
    return qos_max(at, now_ns);
}

QOS_API enum qos_status tokenpool_monitor_info(const struct tokenpool_monitor *monitor,
                                               struct tokenpool_monitor_state *out)
{
    *out = monitor->info;
    out->active = tokenpool_monitor_priv_has(monitor);
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_monitor_slot_info(const struct tokenpool_monitor *monitor, uint32_t id,
                                                    struct tokenpool_slot_state *out)
{
    if (id >= monitor->config.clients)
        return QOS_ENOENT;
    out->reservation = monitor->reservation[id];
    out->limit = monitor->limit[id];
    out->used = monitor->used[id];
    out->under_used = monitor->under[id];
    out->generation = monitor->generation[id];
    out->joined = monitor->state[id] != TOKENPOOL_PRIV_FREE;
    out->silent = monitor->state[id] == TOKENPOOL_PRIV_SILENT;
    out->alert = out->joined && monitor->under[id] >= monitor->config.alert_periods;
    return QOS_OK;
}

QOS_API enum qos_status tokenpool_monitor_stats(const struct tokenpool_monitor *monitor, uint32_t id,
                                                struct qos_stats *out)
{
    if (id != QOS_NONE && id >= monitor->config.clients)
        return QOS_ENOENT;
    qos_counters_read(&monitor->counters, out); /* waited and debt are the engines' */
    if (id != QOS_NONE) {
        out->granted = monitor->done[id];
        out->borrowed = monitor->beyond[id];
        out->refused = 0;
    }
    return QOS_OK;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif
