/* tags.h - reward scheduling: reservation, limit and service-time tags         SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   Several clients share one storage server. Each was sold a weight, perhaps a reservation (at least so many
 *   requests per second) and a limit (at most so many). Proportional sharing hands out requests by weight, so a
 *   client that makes its requests cheap - better caching, smarter placement - pays for the others: the time that
 *   it frees is given to everybody. Reward scheduling shares device *time* by weight instead: who needs half the
 *   time per request gets twice the requests, as on a machine of its own, and nobody else loses.
 *
 *   This header chooses the next client to serve. It has both policies, reward and proportional sharing (mClock),
 *   for 1 to 4 million clients, in O(log n) per request.
 *
 * SYNOPSIS
 *
 *     #include "tags.h"
 *     #include <stdlib.h>
 *
 *     int main(void)
 *     {
 *         static struct tags_config config; // zero: the default, everywhere
 *         static struct tags_client fast, slow;
 *         struct tags_grant grant;
 *         struct tags sched;
 *         size_t size;
 *         void *mem;
 *
 *         config.clients = 2;                                  // ids 0 and 1
 *         size = tags_memsize(&config);
 *         mem = aligned_alloc(QOS_CACHE_LINE, size);
 *         if (!mem || tags_init(&sched, mem, size, &config) != QOS_OK)
 *             return 1;
 *         fast.weight = 1;
 *         slow.weight = 2;
 *         slow.reservation_per_s = 50;
 *         slow.limit_per_s = 200;
 *         if (tags_add(&sched, 0, 0, &fast) != QOS_OK || tags_add(&sched, 0, 1, &slow) != QOS_OK)
 *             return 1;
 *         if (tags_arrive(&sched, 0, 0, 3) != QOS_OK || tags_arrive(&sched, 0, 1, 2) != QOS_OK)
 *             return 1;
 *         while (tags_pull(&sched, 1000, 1, &grant) == QOS_OK) {
 *             // ... send the oldest request of client grant.client to the device, wait for it ...
 *             if (tags_complete(&sched, 2000, &grant, 1000) != QOS_OK) // it took the device 1000 ns
 *                 return 1;
 *         }
 *         // nothing now: sleep until tags_next_ns(&sched, now) or the next arrival
 *         free(mem);
 *         return 0;
 *     }
 *
 * CONTRACT
 *
 *   - That of qos.h. Single owner: one thread (or one lock) per `struct tags`; counters may be read by anybody.
 *     Several queues of one server, each with an owner of its own, share reservations and limits through a
 *     `struct tags_shared`, lock-free (see SHARDS).
 *   - Requests are the caller's: either plain counts (tags_arrive, tags_pull) with queues of the caller's own, or
 *     intrusive (tags_push, tags_pop). Within a client they are served in the order of their arrival.
 *   - Every dispatch hands out a `struct tags_grant`; give it back exactly once: tags_complete, tags_fail (the
 *     device worked, the client got nothing) or tags_cancel (it never reached the device).
 *   - Reservations hold if they fit (ADMISSION). Limits hold whatever the load: over any w ns in which a client
 *     keeps demand it is sent at most   limit * (w + limit_burst_ns) / 10^9 + 1   requests, forced ones aside: its
 *     burst and the one that a window of no length has too. (A dispatch finds t - limit_burst <= lTag <= t and adds
 *     1 / L to it, so k of them within w move it by (k - 1) / L <= w + limit_burst. With count_cost the 1 is the
 *     largest request; a choice of the caller's own that tags_choose did not make is not held back.)
 *   - A removed client is gone at once, with its queued requests and its reservation; what it has at the device is
 *     given back as ever, and the last of it frees the id.
 *   - No latency is promised. Worst wait of a client's head request while all clients keep demand and the device
 *     keeps up: 1 / R plus one request of each other reservation, or, without reservation, about
 *     (F + sum of F_j) / f, F being the mean service time and f the client's share among active clients.
 *
 * WORKED EXAMPLE (Sections II and III)
 *
 *   Weights 1, 2, 2; every request takes 10 ms: tags are 10, 5 and 5 ms apart, so the clients get 20, 40 and 40
 *   requests per second. Now half of A's requests hit the cache: 5 ms on average. Reward: A's tags are 5 ms apart
 *   too, all three get the same number, 3 requests per 25 ms = 40 each, 120 in all: A doubled, B and C kept
 *   theirs. Proportional sharing keeps 1 : 2 : 2, 5 requests in 45 ms: 22.2, 44.4, 44.4, 111.1 in all.
 *
 * ALGORITHM (Algorithms 1 and 2 of the paper; tags at the head of each client's queue)
 *
 *   arrival   If the client is idle: sTag, rTag, lTag = max(own, t). Append.
 *   schedule  Of the clients with lTag <= t: if some rTag <= t, send the request with the smallest: reservation
 *             phase. Else the one with the smallest sTag: weight phase; its rTag is not charged.
 *   complete  sTag += F / w, F the mean service time of the client's last N requests (PS: its cost / w);
 *             lTag += 1 / L; in the reservation phase rTag += 1 / R. AdjustTags: the smallest sTag of the active
 *             clients becomes t, the others keep their distance.
 *   phase     A client whose reservation exceeds its entitlement (F / f >= 1 / R, f = w / sum of active w) is
 *             reservation bound: its sTag runs ahead. When F / f < 1 / R has held for K requests in a row, its
 *             sTag is brought back, once.
 *
 *   How it is stored. rTag and lTag are whole ns and a remainder in units of 1/R ns: a spacing of 10^9 / R ns is
 *   added exactly, so that rates are kept to the last request over any time. A tag is compared by its ns, rounded
 *   up: nothing is sent early; equal tags go by id. sTag is a fixed-point number with 72 fraction bits, advanced
 *   by cost * floor(2^72 / w): weights of 2^40 are kept to 2^-32; compared to 2^-40 ns, ties by id.
 *   AdjustTags moves no tag: active sTags stand on a virtual axis, V is the point of it that is t. An idle client
 *   keeps its sTag in real time. V rises for ever (2^62 / 256 ns of weight-1 time: 208 days of it); then all
 *   tags on the axis are moved back by it, in one O(n) pass.
 *
 *   Structures. Three tournament trees over the dense ids: sTags of the eligible (4-ary, 16-byte keys), rTags of
 *   those of them who have a reservation, lTags of those who stepped aside at their limit (8-ary, 8-byte keys; their
 *   places are those that they left in the first tree).
 *   A tree of fixed places, not a heap: the path of an update is known from the id alone, so the loads of all
 *   levels overlap, nothing depends on a branch that cannot be predicted, and no index of positions is kept.
 *   Per request: at most one update of each, log4 n and log8 n levels, with an early end where the winner stays.
 *   Bytes per client from 1,000 clients on: trees 31.7, tags and counters 96: 128 in all; under reward 32 more for the
 *   last N service times: 160. Below that the padding shows: 132 and 164 at 100 clients, 160 and 192 at 10. By option:
 *   exact_window 4 N, intrusive 16, count_by_client 96, count_cost with TAGS_REJECT 8.
 *
 * WHERE WE DIFFER from the paper, or choose where it is silent
 *
 *   - The phase test has normalised weights. With weights 1:2:5, 5 ms and R = 60/s the raw 5 / 2 = 2.5 ms is always
 *     below 16.7 ms, although the client's entitlement is 50/s; normalised it is 20 ms: reservation bound.
 *   - The synchronisation happens once, on a change confirmed over K requests, not at every completion; it only ever
 *     brings a tag back. Its target is rTag, but rTag is in real time and sTags are in time / weight: what rTag is
 *     ahead of t is divided by the sum of active weights. (Unscaled, a lead of 1 ms would, at weights of 2^40,
 *     be 2^40 requests of the others.) Never below the smallest active tag: no monopoly.
 *   - F is the mean over the last N, as text and Algorithm 1 have it, not the last service time of Algorithm 2. By
 *     default it is taken anew every N / 5 requests: the mean of N requests in a row, of which the last is at most
 *     N / 5 - 1 requests old (9 at N = 50), kept as five means of N / 5 each in whole ns, remainders carried on. So a
 *     client without history has the mean of all its requests until there are N; a change is seen N / 10 requests
 *     later, on average, than by a mean that slides; and each service time is charged in full, N times 1 / N, as in the
 *     paper: shares over any longer run are the same, to what the last 1.2 N requests took. N above 5 is
 *     rounded up to a multiple of 5. exact_window slides with every request, literally, for 4 N bytes more per client.
 *   - R = 0: no rTag, no phase test. No limit: no lTag.
 *   - AdjustTags covers active clients, one whose request is being served included (Algorithm 1). It is done for an
 *     arrival at an idle client too, as the text asks of a client that joins: else it would stand behind the others by
 *     the time since the last completion, which at large weights is thousands of requests.
 *   - Algorithm 2 sends a due rTag without asking the lTag; Section V says that past its limit a client "should not be
 *     serviced till lTag falls behind the current time". The limit is asked: after a device that could not keep up for
 *     ten seconds, ten seconds' worth of reservations would else be sent at once. No reservation is lost by
 *     it: a client whose lTag is ahead has been sent L >= R requests per second, to within the burst.
 *   - A client passed over because it is at its limit steps aside: until its lTag is due its sTag stays in real time,
 *     like an idle client's, and AdjustTags leaves it out. In the paper it would hold the smallest sTag, and a
 *     newcomer, who starts there, would have the server to itself until it caught up with the others.
 *   - Unused limit is kept for limit_burst_ns at most, and a reservation that the device could not serve for
 *     reserve_lag_ns. In the paper an active client keeps both for ever.
 *   - Several requests in the device (the paper's future work): all tags are charged at dispatch, the sTag by
 *     the estimate F, which completion replaces by the new mean. V is the smallest sTag just before the last
 *     dispatch while requests are at the device, the smallest sTag now when none is. With one request in
 *     the device this is Algorithm 2, step by step.
 *   - dmClock's rho and delta: what the client was served elsewhere since its last request here (in the reservation
 *     phase; in all). They are charged with the request that carries them. (The dmClock paper charges one
 *     request later and counts the server's own request in: sums over any run are the same.)
 *   - A rate that changes rescales what a tag is ahead or behind: outstanding tokens are kept, not time.
 *
 * ADMISSION (Section V)
 *
 *   With capacity_per_s set to the worst case (1 / largest mean service time: zero hit ratio), tags_add and tags_set
 *   refuse a reservation that does not fit with QOS_EADMISSION; tags_admissible says what would.
 *
 * SHARDS
 *
 *   Queues of one server (one per core) that serve the same clients put a `struct tags_shared` behind them: two words
 *   per client, the reserved and the limited requests granted since a common start. A dispatch claims from these
 *   words; its queue's own rTag and lTag are then copies, corrected by each claim. Reservations and limits hold for the
 *   sum; weights remain per shard. The words count whole requests: where limit_burst is less than one, the bound is one
 *   request more than in CONTRACT.
 *
 * TUNABLES (struct tags_config, 0 = the default)
 *
 *   window (N = 50)         At 100 requests/s a change of hit ratio is seen in half a second; the mean of 50 uniform
 *                           service times has a standard error of 8 %. More: smoother, slower.
 *   phase_requests (K = 10) A mean that wanders about the threshold crosses it often; ten in a row is a change.
 *                           N <= 100 and K <= 20 bring the reward within about a second at 60 requests/s.
 *   limit_burst (100 ms)    Longer than a device keeps a request: at 0 every late dispatch would be lost (a 5 ms device
 *                           loses 2.5 ms per request), and the client stays below its limit.
 *   reserve_lag (600 s)     A reservation is a debt; but a clock that jumps a year must not make one of a year.
 *   exact_window (no)       For experiments that must be the paper's request by request.
 *
 * REFERENCES
 *
 *   A. Elnably, K. Du, P. Varman: Reward Scheduling for QoS in Cloud Applications, CCGrid 2012 ("the paper").
 *   A. Gulati, A. Merchant, P. Varman: mClock, OSDI 2010 (tags, dmClock's rho and delta).
 *   P. Goyal, H. Vin, H. Cheng: Start-time Fair Queueing, 1996; W. Jin, J. Chase, J. Kaur: SFQ(D), 2004 (V).
 *   D. Knuth: TAOCP vol. 3, 5.4.1 (tournament trees).
 */
#ifndef QOS_TAGS_H
#define QOS_TAGS_H

#include "qos.h"

/* ---- configuration ------------------------------------------------------------------------------- */

/* Shared tags need a lock-free 64-bit word; the rest does not. Define TAGS_NEED_SHARED to insist. */
#if QOS_HAS_ATOMIC64 || defined(QOS_ATOMIC_HOOK)
#define TAGS_HAS_SHARED 1
#else
#define TAGS_HAS_SHARED 0
#endif
#if defined(TAGS_NEED_SHARED) && !TAGS_HAS_SHARED
#error "shared tags need a lock-free 64-bit word"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants and types ------------------------------------------------------------------------- */

#define TAGS_CLIENTS_MAX (UINT32_C(1) << 22)     /* a sum of weights stays below 2^63 */
#define TAGS_WEIGHT_MAX (UINT64_C(1) << 40)      /* weights are 1..2^40 */
#define TAGS_SHARED_RATE_MAX (UINT64_C(1) << 32) /* shared words count for 136 years at this rate */
#define TAGS_WINDOW_MAX 4096                     /* N */
#define TAGS_NONE UINT64_MAX                     /* "nothing at all", for settings in which 0 is the default */
#define TAGS_NO_SYNC UINT32_MAX                  /* phase_requests: never synchronise (Figure 6(a)) */
#define TAGS_BACKLOG_MAX (UINT32_MAX >> 1)       /* queued requests of one client */
#define TAGS_DEFAULT_WINDOW 50                   /* requests */
#define TAGS_DEFAULT_PHASE_REQUESTS 10           /* requests */
#define TAGS_DEFAULT_LIMIT_BURST_NS UINT64_C(100000000)
#define TAGS_DEFAULT_RESERVE_LAG_NS UINT64_C(600000000000)
#define TAGS_DEFAULT_FORCE_DEBT_NS UINT64_C(1000000000)
#define TAGS_DEFAULT_SERVICE_NS UINT64_C(1000000)

enum tags_mode {
    TAGS_REWARD = 0, /* tags advance by mean service time / weight */
    TAGS_PS = 1      /* proportional sharing (mClock): by cost / weight */
};

enum tags_at_limit {
    TAGS_WAIT = 0,  /* requests wait in their queue until the limit allows them */
    TAGS_ALLOW = 1, /* they wait while others can be served; instead of idling the device takes them */
    TAGS_REJECT = 2 /* an arrival that its limit would make wait longer than reject_after_ns: QOS_ELIMIT */
};

enum tags_phase {
    TAGS_PHASE_RESERVATION = 0, /* its rTag was due */
    TAGS_PHASE_WEIGHT = 1,      /* smallest sTag below its limit */
    TAGS_PHASE_ABOVE_LIMIT = 2, /* TAGS_ALLOW, nobody else could be served */
    TAGS_PHASE_FORCED = 3       /* tags_force */
};
#define TAGS_PHASES 4

struct tags_config {
    uint32_t clients;    /* ids 0..clients-1; 1..TAGS_CLIENTS_MAX */
    enum tags_mode mode; /* default TAGS_REWARD */
    enum tags_at_limit at_limit;
    bool count_cost;            /* reservations, limits, rho and delta count cost units (qos_cost), not requests */
    bool intrusive;             /* tags_push and tags_pop will be used: two pointers more per client */
    bool no_completions;        /* TAGS_PS only: grants are not given back (but may be cancelled) */
    bool exact_window;          /* TAGS_REWARD: F is the mean of the very last N: 4 N bytes more per client */
    bool count_by_client;       /* tags_client_counters: sizeof(struct tags_counters) bytes more per client */
    uint32_t window;            /* N, 1..TAGS_WINDOW_MAX; above 5 and not exact: rounded up to a multiple of 5 */
    uint32_t phase_requests;    /* K, 1..2^31, or TAGS_NO_SYNC */
    uint64_t capacity_per_s;    /* worst case, for admission; 0: everything is admitted */
    uint64_t limit_burst_ns;    /* unused limit that is kept, or TAGS_NONE; up to 2^62 */
    uint64_t reserve_lag_ns;    /* unserved reservation that is kept, or TAGS_NONE; up to 2^62 */
    uint64_t reject_after_ns;   /* TAGS_REJECT: longest wait at the limit that is accepted; default none */
    uint64_t force_debt_ns;     /* tags_force is refused while the client is further ahead, or TAGS_NONE */
    uint64_t service_ns;        /* TAGS_REWARD: estimate before the first completion, 1..QOS_TOKENS_MAX */
    struct tags_shared *shared; /* NULL: this queue is alone */
};

/* A client's terms. Requests per second; cost units per second with count_cost. */
struct tags_client {
    uint64_t weight;            /* 1..TAGS_WEIGHT_MAX; 0: 1 */
    uint64_t reservation_per_s; /* 0: none; up to QOS_RATE_MAX */
    uint64_t limit_per_s;       /* 0: none; reservation_per_s..QOS_RATE_MAX */
};

/* Who is next, and why. */
struct tags_choice {
    uint32_t client;
    enum tags_phase phase;
};

/* One dispatched request: what it was charged. Opaque but for client and phase. */
struct tags_grant {
    uint32_t client;
    enum tags_phase phase;
    uint32_t delta;                         /* units served elsewhere that came with it */
    uint64_t reserved_units, limited_units; /* charged to rTag and lTag */
    struct qos_u128 charge;                 /* charged to sTag */
};

/* Intrusive request. Set cost, rho and delta (0 is fine); the rest is the scheduler's until it is popped. */
struct tags_request {
    struct tags_request *next, *prev;
    uint64_t cost;   /* as in tags_dispatch */
    uint32_t client; /* set by tags_push */
    uint32_t rho, delta;
    struct tags_grant grant; /* set by tags_pop */
};

/* Counters, of all clients or of one: one writer (the owner), any reader. */
struct tags_counters {
    qos_counter_t served[TAGS_PHASES]; /* dispatches, by enum tags_phase */
    qos_counter_t units;               /* requests, or cost units with count_cost */
    qos_counter_t units_beyond;        /* of them, not in the reservation phase */
    qos_counter_t refused;             /* QOS_ELIMIT and QOS_EDEBT */
    qos_counter_t stepped_aside;       /* times that a client had to wait at its limit */
    qos_counter_t cancelled, failed;
    qos_counter_t synchronised; /* confirmed changes from reservation to entitlement bound */
    qos_counter_t debt;         /* units that the last forced request left its client ahead of its limit, rounded up */
};

/* One client, now. */
struct tags_client_state {
    uint64_t granted;          /* dispatches, all phases */
    uint64_t granted_reserved; /* of them in the reservation phase */
    uint32_t queued, at_device;
    uint64_t mean_service_ns; /* TAGS_REWARD; 0 before the first completion */
    bool entitlement_bound;   /* TAGS_REWARD with a reservation: the confirmed phase */
    bool waiting_at_limit;    /* stepped aside */
    uint64_t limit_debt_ns;   /* how far its lTag is ahead */
};

/* Shared tags: a header and one entry per client, in memory that the shards (threads or processes) share. No pointers.
 */
struct tags_shared_client {
    qos_word_t reserved, limited; /* units granted since base_ns, idle time counted in */
    uint64_t reservation_per_s, limit_per_s;
};
struct tags_shared {
    uint64_t base_ns, reserve_lag_ns, limit_burst_ns;
    uint64_t clients;
};
QOS_STATIC_ASSERT(sizeof(struct tags_shared) == 32 && sizeof(struct tags_shared_client) == 32, "shared layout");

/* Private: constants of the tags. */
#define TAGS_PRIV_FRACTION 8 /* bits of a ns in the high word of a tag */
#define TAGS_PRIV_ABSENT UINT64_MAX
#define TAGS_PRIV_V_BITS 62                    /* when V has so many, the axis is moved back */
#define TAGS_PRIV_LEAD_MAX (UINT64_C(1) << 61) /* in the high word: 104 days of weight-1 time */
#define TAGS_PRIV_X_MAX (UINT64_C(1) << 54)    /* times a unit of at most 2^72: below 2^127 */

/* packed: weight (41 bits), high bits of the unit (9), flags */
#define TAGS_PRIV_WEIGHT_MASK ((UINT64_C(1) << 41) - 1)
#define TAGS_PRIV_UNIT_SHIFT 41
#define TAGS_PRIV_UNIT_MASK UINT64_C(0x1ff)
#define TAGS_PRIV_CLIENT (UINT64_C(1) << 50)   /* the id is a client */
#define TAGS_PRIV_VIRTUAL (UINT64_C(1) << 51)  /* its sTag stands on the axis of V */
#define TAGS_PRIV_WAITING (UINT64_C(1) << 52)  /* stepped aside at its limit; has requests queued */
#define TAGS_PRIV_RESERVED (UINT64_C(1) << 53) /* has a reservation */
#define TAGS_PRIV_LIMITED (UINT64_C(1) << 54)  /* has a limit */
#define TAGS_PRIV_LEAVING (UINT64_C(1) << 55)  /* removed, but requests of it are at the device */

/* Private: sTag and its tree key. Whole part in 1/256 ns, then 64 (in a key: 32, then the id) fraction bits. */
struct tags_priv_key {
    uint64_t hi, lo;
};

/* Private: what every dispatch touches. */
struct tags_priv_hot {
    struct tags_priv_key tag; /* on the axis of V; while idle or waiting: ns and 2^-64 ns of real time */
    uint64_t unit_lo;         /* floor(2^72 / w), low 64 bits */
    uint64_t packed;          /* weight, the high bits of the unit, flags */
    uint32_t queued, at_device;
    qos_counter_t granted;
};
QOS_STATIC_ASSERT(sizeof(struct tags_priv_hot) == 48, "three clients in 144 bytes");

/* Private: rTag or lTag, packed: the tag in ns (64 bits), its remainder (40) and its rate (41). The spacing 10^9 / rate
 * is a division of 32 bits, made anew where it is needed: cheaper than the memory that it would take. */
struct tags_priv_rate {
    uint32_t tag_lo, tag_hi, rest_lo, rate_lo;
    uint16_t rate_hi;
    uint8_t rest_hi, unused;
};
QOS_STATIC_ASSERT(sizeof(struct tags_priv_rate) == 20, "rTag and lTag take 40 bytes a client");

/* Private: the same, to calculate with. */
struct tags_priv_due {
    uint64_t tag_ns, rest; /* tag = tag_ns + rest / rate ns, rest < rate */
    uint64_t rate_per_s;   /* 0: no such tag */
};

/* Private: the last N service times as the means of TAGS_PRIV_BLOCKS blocks of as many requests each, in whole ns; what
 * a mean leaves over goes to the next block. With exact_window they are in a ring; block[0] is where the next goes. */
#define TAGS_PRIV_BLOCKS 5
struct tags_priv_mean {
    uint32_t block[TAGS_PRIV_BLOCKS]; /* the oldest first; 0 where there is none yet */
    uint32_t streak;                  /* completions in a row that contradict TAGS_PRIV_ENTITLED */
    uint64_t packed;                  /* sum of the block that is being filled (the ring): 44 bits, below 2^44 */
};
QOS_STATIC_ASSERT(sizeof(struct tags_priv_mean) == 32, "a client's means take 32 bytes");
#define TAGS_PRIV_SUM_MASK ((UINT64_C(1) << 44) - 1)
#define TAGS_PRIV_ONE_MORE (UINT64_C(1) << 44)  /* requests in that sum: 13 bits */
#define TAGS_PRIV_ONE_BLOCK (UINT64_C(1) << 57) /* complete blocks: 3 bits */
#define TAGS_PRIV_ENTITLED (UINT64_C(1) << 60)  /* the confirmed phase is entitlement bound */

struct tags_priv_queue {
    struct tags_request *head, *tail;
};

#define TAGS_PRIV_S_LEVELS 12 /* 4^11 = TAGS_CLIENTS_MAX */
#define TAGS_PRIV_T_LEVELS 9  /* 8^8 > TAGS_CLIENTS_MAX */

struct tags {
    struct qos_u128 v;     /* the point of the virtual axis that is "now" */
    uint64_t now_ns;       /* latest time seen */
    uint64_t at_device;    /* requests, all clients */
    uint64_t weight_sum;   /* of active clients */
    uint64_t reserved_sum; /* of all clients */
    uint64_t estimate;     /* service time in 1/256 ns for a client without history */
    struct tags_priv_key *s;
    uint64_t *r, *l; /* r: all levels; l: those above the leaves, which are in s */
    struct tags_priv_hot *hot;
    struct tags_priv_rate *limit, *reserve;
    qos_counter_t *granted_reserved;
    struct tags_priv_mean *mean;     /* TAGS_REWARD, else NULL */
    uint32_t *ring;                  /* exact_window: N service times per client, else NULL */
    struct tags_priv_queue *queue;   /* intrusive, else NULL */
    uint64_t *queued_cost;           /* TAGS_REJECT and count_cost: units queued per client, else NULL */
    struct tags_counters *by_client; /* count_by_client, else NULL */
    size_t s_base[TAGS_PRIV_S_LEVELS], t_base[TAGS_PRIV_T_LEVELS];
    uint32_t s_levels, t_levels;
    uint32_t blocks, block_requests; /* the window: so many blocks of so many requests */
    struct tags_config config;       /* defaults filled in */
    struct tags_counters counters;
};

/* ---- API: single owner, bounded time, unless it says otherwise -------------------------------------- */
/* `now_ns`: monotonic; one that goes backwards counts as the latest seen. `id`: below config.clients, else QOS_ENOENT,
 * as for an id that was not added. All are O(log n) or better but tags_init and tags_debt. */

/* Bytes to hand to tags_init; 0 if the configuration is invalid. */
QOS_API size_t tags_memsize(const struct tags_config *config);
/* mem: aligned to QOS_CACHE_LINE. QOS_EINVAL: NULL, or settings that contradict each other; QOS_ERANGE: a number
 * outside the range beside it; QOS_EMEMORY, QOS_EALIGN. The config is copied. */
QOS_API QOS_NODISCARD enum qos_status tags_init(struct tags *t, void *mem, size_t size_bytes,
                                                const struct tags_config *config);

/* Makes id a client. QOS_EEXIST: it is one. QOS_EBUSY: it was one, and requests are still at the device. QOS_ERANGE:
 * terms out of range. QOS_EINVAL: limit below reservation, or terms that differ from those of the shared tags.
 * QOS_EADMISSION: see tags_admissible. */
QOS_API QOS_NODISCARD enum qos_status tags_add(struct tags *t, uint64_t now_ns, uint32_t id,
                                               const struct tags_client *terms);
/* New terms from now on. Outstanding tokens are kept: what a tag is ahead or behind is rescaled by old / new rate. */
QOS_API QOS_NODISCARD enum qos_status tags_set(struct tags *t, uint64_t now_ns, uint32_t id,
                                               const struct tags_client *terms);
/* Removes the client; its queued requests are forgotten (intrusive ones: walk them from tags_head before, or after from
 * what it was: the list stays as it is). *dropped (may be NULL): how many. Its reservation is free at once. Requests
 * at the device are given back as ever; with the last of them the id can be added again. */
QOS_API QOS_NODISCARD enum qos_status tags_remove(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t *dropped);
/* The largest reservation that a new client could have. */
QOS_API uint64_t tags_admissible(const struct tags *t);

/* count (1..) requests of the client arrived. QOS_ELIMIT: rejected at the limit, all of them, at no cost to
 * the client. QOS_EFULL: TAGS_BACKLOG_MAX queued. QOS_ERANGE: count is 0. */
QOS_API QOS_NODISCARD enum qos_status tags_arrive(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count);
/* The same for requests of this cost each (as in tags_dispatch): TAGS_REJECT with count_cost asks what the units queued
 * would wait, and counts 1 for each request that tags_arrive brought. tags_push says its request's cost by itself. */
QOS_API QOS_NODISCARD enum qos_status tags_arrive_cost(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count,
                                                       uint64_t cost);
/* count queued requests leave unserved, at no cost. QOS_ERANGE: 0, or more than are queued. */
QOS_API QOS_NODISCARD enum qos_status tags_withdraw(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count);

/* Who is next? QOS_EAGAIN: nobody now; tags_next_ns says when. Charges nothing. */
QOS_API QOS_NODISCARD enum qos_status tags_choose(struct tags *t, uint64_t now_ns, struct tags_choice *choice);
/* Sends the oldest request of the chosen client, in the chosen phase (ABOVE_LIMIT with TAGS_ALLOW only). cost:
 * 1..QOS_TOKENS_MAX, 0 counts as 1; used by TAGS_PS and with count_cost. rho <= delta: units served elsewhere, 0 on a
 * single server. QOS_EINVAL: no request queued, unknown phase, rho > delta. QOS_EAGAIN (shared tags only): another
 * shard was faster; choose again. */
QOS_API QOS_NODISCARD enum qos_status tags_dispatch(struct tags *t, uint64_t now_ns, const struct tags_choice *choice,
                                                    uint64_t cost, uint32_t rho, uint32_t delta,
                                                    struct tags_grant *grant);
/* choose and dispatch in one, rho = delta = 0. */
QOS_API QOS_NODISCARD enum qos_status tags_pull(struct tags *t, uint64_t now_ns, uint64_t cost,
                                                struct tags_grant *grant);
/* Sends a request that was never queued (flush, journal) at once, past limits and other clients' tags, and charges
 * it. QOS_EDEBT: the client is more than force_debt_ns ahead of its limit or share already; so the debt
 * is at most that and one request. */
QOS_API QOS_NODISCARD enum qos_status tags_force(struct tags *t, uint64_t now_ns, uint32_t id, uint64_t cost,
                                                 struct tags_grant *grant);

/* The request is done; service_ns: the time that the device spent on it (capped at QOS_TOKENS_MAX). With one request at
 * a time, that is the time since its dispatch; with more, the time since its dispatch or the completion before
 * it, whichever is later, on a device that works on one at a time. QOS_EINVAL: nothing of it is at the device. */
QOS_API QOS_NODISCARD enum qos_status tags_complete(struct tags *t, uint64_t now_ns, const struct tags_grant *grant,
                                                    uint64_t service_ns);
/* It failed at the device: charged the time that it took (PS: its cost), but not as a service received: rTag and lTag
 * get theirs back, the mean is left alone. */
QOS_API QOS_NODISCARD enum qos_status tags_fail(struct tags *t, uint64_t now_ns, const struct tags_grant *grant,
                                                uint64_t service_ns);
/* It never reached the device: everything it was charged is given back. It is not queued again. */
QOS_API QOS_NODISCARD enum qos_status tags_cancel(struct tags *t, uint64_t now_ns, const struct tags_grant *grant);

/* First time at which tags_choose finds somebody if nothing arrives or completes: now_ns if now, QOS_NEVER if nobody
 * waits. Exact; with shared tags it may be early, when another shard was served meanwhile. */
QOS_API uint64_t tags_next_ns(struct tags *t, uint64_t now_ns);

/* Intrusive requests (config.intrusive; QOS_EINVAL without). push: as tags_arrive. pop: choose, dispatch with the
 * request's own cost, rho and delta; *request->grant is set. unlink: takes a queued request back, O(1) and the tags as
 * tags_withdraw.
 */
QOS_API QOS_NODISCARD enum qos_status tags_push(struct tags *t, uint64_t now_ns, uint32_t id,
                                                struct tags_request *request);
QOS_API QOS_NODISCARD enum qos_status tags_pop(struct tags *t, uint64_t now_ns, struct tags_request **request);
QOS_API QOS_NODISCARD enum qos_status tags_unlink(struct tags *t, uint64_t now_ns, struct tags_request *request);

/* The client's oldest queued request, from which `next` leads to the others: to look at what is queued, to unlink it,
 * or to answer it before tags_remove. NULL: none. */
QOS_API struct tags_request *tags_head(const struct tags *t, uint32_t id);

/* One client, O(1); owner only, but for the two counters. */
QOS_API QOS_NODISCARD enum qos_status tags_client_stats(const struct tags *t, uint64_t now_ns, uint32_t id,
                                                        struct tags_client_state *out);
/* Counters of all clients together. refused: QOS_ELIMIT and QOS_EDEBT; waited: times that a client had to wait at its
 * limit; debt: what the last forced request left its client owing. Any thread at any time, wait-free. */
QOS_API void tags_stats(const struct tags *t, struct qos_stats *out);
/* Dispatches in a phase so far. Any thread at any time, wait-free, as all of t->counters (qos_counter_read). */
QOS_API uint64_t tags_served(const struct tags *t, enum tags_phase phase);
/* The same counters of one client since it was added, for qos_counter_read by any thread at any time; they stay when it
 * is removed, until the id is added again. NULL without config.count_by_client. */
QOS_API const struct tags_counters *tags_client_counters(const struct tags *t, uint32_t id);
/* Units by which all clients together are ahead of their limits now, beyond one each, each rounded up. Owner only,
 * O(n). */
QOS_API uint64_t tags_debt(const struct tags *t, uint64_t now_ns);

#if TAGS_HAS_SHARED
/* Shared tags. mem: 8-byte aligned, in memory that all shards map. init: once, before any shard attaches
 * (config.shared). lag and burst as in tags_config (0: 100 ms each). set: terms of one client; call it while no shard
 * has it as a client or requests of it at the device. QOS_ERANGE: above TAGS_SHARED_RATE_MAX. Claims on a client's
 * words are lock-free between any number of shards. */
QOS_API size_t tags_shared_memsize(uint32_t clients);
QOS_API QOS_NODISCARD enum qos_status tags_shared_init(struct tags_shared *sh, size_t size_bytes, uint32_t clients,
                                                       uint64_t now_ns, uint64_t reserve_lag_ns,
                                                       uint64_t limit_burst_ns);
QOS_API QOS_NODISCARD enum qos_status tags_shared_set(struct tags_shared *sh, uint64_t now_ns, uint32_t id,
                                                      const struct tags_client *terms);
/* Units of a rate granted between base and now (rounded down): the tag is due when the word is at most this. */
QOS_API uint64_t tags_shared_due(const struct tags_shared *sh, uint64_t now_ns, uint64_t rate_per_s);
/* Takes `units` if the word's tag is due (or in any case, with `force`): true. Credit older than keep_ns is dropped.
 * *tag_ns: the tag afterwards, or the one that was not due. Lock-free. */
QOS_API bool tags_shared_claim(const struct tags_shared *sh, qos_word_t *word, uint64_t now_ns, uint64_t rate_per_s,
                               uint64_t keep_ns, uint64_t units, bool force, uint64_t *tag_ns);
#endif

/* ---- implementation ------------------------------------------------------------------------------ */

#ifndef QOS_DECLARE_ONLY

/* ---- 128-bit helpers */

QOS_API bool tags_priv_less(struct tags_priv_key a, struct tags_priv_key b)
{
#if QOS_HAS_INT128
    __extension__ typedef unsigned __int128 tags_priv_u128;
    return ((tags_priv_u128)a.hi << 64 | a.lo) < ((tags_priv_u128)b.hi << 64 | b.lo);
#else
    return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
#endif
}

QOS_API struct tags_priv_key tags_priv_least(struct tags_priv_key a, struct tags_priv_key b)
{
    return tags_priv_less(b, a) ? b : a;
}

QOS_API struct qos_u128 tags_priv_wide(uint64_t hi, uint64_t lo)
{
    struct qos_u128 r;
    r.hi = hi;
    r.lo = lo;
    return r;
}

/* a - b, 0 if b is larger. */
QOS_API struct qos_u128 tags_priv_sub(struct qos_u128 a, struct qos_u128 b)
{
    uint64_t borrow;
    if (qos_cmp_wide(a, b) <= 0)
        return tags_priv_wide(0, 0);
    borrow = a.lo < b.lo;
    return tags_priv_wide(a.hi - b.hi - borrow, qos_wrap_sub(a.lo, b.lo));
}

/* a * num / den rounded down, saturating. */
QOS_API struct qos_u128 tags_priv_scale(struct qos_u128 a, uint64_t num, uint64_t den)
{
    struct qos_u128 low = qos_mul_wide(a.lo, num), high = qos_mul_wide(a.hi, num);
    struct qos_u128 upper = qos_add_wide(high, tags_priv_wide(0, low.hi)); /* < 2^64 * num: no wrap */
    uint64_t rest, q1, q0;
    if (upper.hi >= den)
        return tags_priv_wide(UINT64_MAX, UINT64_MAX);
    q1 = qos_div_wide(upper, den, &rest);
    q0 = qos_div_wide(tags_priv_wide(rest, low.lo), den, NULL);
    return tags_priv_wide(q1, q0);
}

/* ---- trees */

/* Nodes per level: n places, then a node per `arity` of them, ..., 1. Padded, so that a group is read as a whole: the
 * places to 8 in both trees, as an l group reads 8 places of the s tree. */
QOS_API uint32_t tags_priv_levels(uint32_t n, uint32_t arity, size_t *base, size_t *total)
{
    uint32_t levels = 0, count = (uint32_t)qos_max(n, 2), padded = 8;
    *total = 0;
    for (;;) {
        base[levels++] = *total;
        if (count == 1)
            break;
        *total += ((size_t)count + padded - 1) / padded * padded;
        count = (count + arity - 1) / arity;
        padded = arity;
    }
    ++*total;
    return levels;
}

/* Puts a key at its place and lets the winners rise; stops where the winner stays the same. */
QOS_API void tags_priv_s_put(struct tags *t, uint32_t id, struct tags_priv_key key)
{
    uint32_t k, top = t->s_levels - 1;
    size_t i = id;
    for (k = 0; k < top; k++) {
        struct tags_priv_key *node = t->s + t->s_base[k] + i, *up;
        struct tags_priv_key *group = t->s + t->s_base[k] + (i & ~(size_t)3);
        struct tags_priv_key a = group[(i ^ 1) & 3], b = group[(i ^ 2) & 3], c = group[(i ^ 3) & 3];
        *node = key;
        key = tags_priv_least(tags_priv_least(a, b), tags_priv_least(c, key));
        i >>= 2;
        up = t->s + t->s_base[k + 1] + i;
        if (up->hi == key.hi && up->lo == key.lo)
            return;
    }
    t->s[t->s_base[top]] = key;
}

QOS_API void tags_priv_s_set(struct tags *t, uint32_t id, struct tags_priv_key tag)
{
    struct tags_priv_key key;
    key.hi = tag.hi;
    key.lo = (tag.lo & ~UINT64_C(0xffffffff)) | id;
    tags_priv_s_put(t, id, key);
}

QOS_API void tags_priv_s_clear(struct tags *t, uint32_t id)
{
    struct tags_priv_key key;
    key.hi = key.lo = TAGS_PRIV_ABSENT;
    tags_priv_s_put(t, id, key);
}

QOS_API struct tags_priv_key tags_priv_s_top(const struct tags *t)
{
    return t->s[t->s_base[t->s_levels - 1]];
}

/* From node i of level k upwards. skip: nodes of lower levels that the tree does not store. */
QOS_API void tags_priv_t_rise(const struct tags *t, uint64_t *tree, size_t skip, uint32_t k, size_t i, uint64_t key)
{
    uint32_t top = t->t_levels - 1;
    for (; k < top; k++) {
        uint64_t *group = tree + (t->t_base[k] - skip) + (i & ~(size_t)7), *up;
        unsigned j;
        group[i & 7] = key;
        key = group[0];
        for (j = 1; j < 8; j++)
            key = qos_min(key, group[j]);
        i >>= 3;
        up = tree + (t->t_base[k + 1] - skip) + i;
        if (*up == key)
            return;
    }
    tree[t->t_base[top] - skip] = key;
}

QOS_API void tags_priv_r_set(struct tags *t, uint32_t id, uint64_t key)
{
    tags_priv_t_rise(t, t->r, 0, 0, id, key);
}

/* A place of the l tree: the unused place of the s tree. */
QOS_API uint64_t tags_priv_l_leaf(struct tags_priv_key place)
{
    return place.hi == TAGS_PRIV_ABSENT ? place.lo : TAGS_PRIV_ABSENT;
}

/* After place id of the s tree changed from or to one of the l tree. */
QOS_API void tags_priv_l_update(struct tags *t, uint32_t id)
{
    const struct tags_priv_key *group = t->s + (id & ~UINT32_C(7));
    uint64_t key = tags_priv_l_leaf(group[0]);
    unsigned j;
    for (j = 1; j < 8; j++)
        key = qos_min(key, tags_priv_l_leaf(group[j]));
    tags_priv_t_rise(t, t->l, t->t_base[1], 1, id >> 3, key);
}

/* Out of the s tree, into the l tree; TAGS_PRIV_ABSENT: out of both. */
QOS_API void tags_priv_l_set(struct tags *t, uint32_t id, uint64_t key)
{
    struct tags_priv_key place;
    place.hi = TAGS_PRIV_ABSENT;
    place.lo = key;
    tags_priv_s_put(t, id, place);
    tags_priv_l_update(t, id);
}

QOS_API uint64_t tags_priv_r_min(const struct tags *t)
{
    return t->r[t->t_base[t->t_levels - 1]];
}

QOS_API uint64_t tags_priv_l_min(const struct tags *t)
{
    return t->l[t->t_base[t->t_levels - 1] - t->t_base[1]];
}

/* The first node of `level` (0 or 1) below the top that holds the least key; the tree is not empty. */
QOS_API size_t tags_priv_t_top(const struct tags *t, const uint64_t *tree, size_t skip, uint32_t level)
{
    uint32_t k = t->t_levels - 1;
    uint64_t key = tree[t->t_base[k] - skip];
    size_t i = 0;
    for (; k > level; k--) {
        const uint64_t *group = tree + (t->t_base[k - 1] - skip);
        i *= 8;
        while (group[i] != key)
            i++;
    }
    return i;
}

/* The lowest id that holds the least key. */
QOS_API uint32_t tags_priv_r_top(const struct tags *t)
{
    return (uint32_t)tags_priv_t_top(t, t->r, 0, 0);
}

QOS_API uint32_t tags_priv_l_top(const struct tags *t)
{
    size_t i = 8 * tags_priv_t_top(t, t->l, t->t_base[1], 1);
    while (tags_priv_l_leaf(t->s[i]) != tags_priv_l_min(t))
        i++;
    return (uint32_t)i;
}

/* ---- rTag and lTag */

QOS_API struct tags_priv_due tags_priv_rate_open(const struct tags_priv_rate *p)
{
    struct tags_priv_due d;
    d.tag_ns = (uint64_t)p->tag_hi << 32 | p->tag_lo;
    d.rest = (uint64_t)p->rest_hi << 32 | p->rest_lo;
    d.rate_per_s = (uint64_t)p->rate_hi << 32 | p->rate_lo;
    return d;
}

/* The tag, not the rate. */
QOS_API void tags_priv_rate_close(struct tags_priv_rate *p, uint64_t tag_ns, uint64_t rest)
{
    p->tag_lo = (uint32_t)(tag_ns & UINT32_MAX);
    p->tag_hi = (uint32_t)(tag_ns >> 32);
    p->rest_lo = (uint32_t)(rest & UINT32_MAX);
    p->rest_hi = (uint8_t)(rest >> 32); /* below the rate, which is at most 2^40 */
}

/* 10^9 / rate; *rest: what it leaves over, below 2^30. */
QOS_API uint32_t tags_priv_step(uint64_t rate_per_s, uint32_t *rest)
{
    uint32_t rate = (uint32_t)qos_min(rate_per_s, QOS_NS_PER_S + 1);
    *rest = (uint32_t)QOS_NS_PER_S % rate;
    return (uint32_t)QOS_NS_PER_S / rate;
}

/* Due from this ns on: rounded up, so never early. */
QOS_API uint64_t tags_priv_rate_key(const struct tags_priv_rate *p)
{
    struct tags_priv_due d = tags_priv_rate_open(p);
    return qos_min(qos_sat_add(d.tag_ns, d.rest != 0), TAGS_PRIV_ABSENT - 1);
}

/* Due when so many more units have been charged, from floor_ns on if it is behind. */
QOS_API uint64_t tags_priv_rate_after(const struct tags_priv_rate *p, uint64_t floor_ns, uint64_t units)
{
    struct tags_priv_due d = tags_priv_rate_open(p);
    struct qos_u128 ahead;
    uint64_t ns, rest;
    if (d.tag_ns < floor_ns) {
        d.tag_ns = floor_ns;
        d.rest = 0;
    }
    ahead = qos_add_wide(qos_mul_wide(units, QOS_NS_PER_S), tags_priv_wide(0, d.rest));
    if (ahead.hi >= d.rate_per_s)
        return TAGS_PRIV_ABSENT - 1;
    ns = qos_div_wide(ahead, d.rate_per_s, &rest);
    return qos_min(qos_sat_add(qos_sat_add(d.tag_ns, ns), rest != 0), TAGS_PRIV_ABSENT - 1);
}

QOS_API void tags_priv_rate_raise(struct tags_priv_rate *p, uint64_t floor_ns)
{
    if (tags_priv_rate_open(p).tag_ns < floor_ns)
        tags_priv_rate_close(p, floor_ns, 0);
}

/* Adds units / rate, from floor_ns on if the tag is behind. units <= 2^33, a step < 2^30: no overflow. */
QOS_API void tags_priv_rate_charge(struct tags_priv_rate *p, uint64_t floor_ns, uint64_t units)
{
    struct tags_priv_due d = tags_priv_rate_open(p);
    uint32_t step_rest, step_ns = tags_priv_step(d.rate_per_s, &step_rest);
    uint64_t ns = step_ns;
    if (d.tag_ns < floor_ns) {
        d.tag_ns = floor_ns;
        d.rest = 0;
    }
    if (units == 1) {
        d.rest += step_rest;
        if (d.rest >= d.rate_per_s) { /* < 2 * rate */
            d.rest -= d.rate_per_s;
            ns++;
        }
    } else {
        d.rest += units * step_rest;
        ns = units * step_ns + d.rest / d.rate_per_s;
        d.rest %= d.rate_per_s;
    }
    tags_priv_rate_close(p, qos_sat_add(d.tag_ns, ns), d.rest);
}

QOS_API void tags_priv_rate_sub(struct tags_priv_rate *p, uint64_t units)
{
    struct tags_priv_due d = tags_priv_rate_open(p);
    uint32_t step_rest, step_ns = tags_priv_step(d.rate_per_s, &step_rest);
    uint64_t rest = units * step_rest, ns = units * step_ns + rest / d.rate_per_s;
    rest %= d.rate_per_s;
    if (d.rest < rest) {
        ns++;
        d.rest += d.rate_per_s;
    }
    tags_priv_rate_close(p, qos_sat_sub(d.tag_ns, ns), d.rest - rest);
}

/* A new rate: what the tag is ahead or behind is kept in tokens. Rounded against the client, below 1 ns. */
QOS_API void tags_priv_rate_set(struct tags_priv_rate *p, uint64_t rate_per_s, uint64_t now_ns)
{
    uint64_t key = tags_priv_rate_key(p), old = tags_priv_rate_open(p).rate_per_s;
    if (rate_per_s == old)
        return;
    p->rate_lo = (uint32_t)(rate_per_s & UINT32_MAX);
    p->rate_hi = (uint16_t)(rate_per_s >> 32);
    if (old == 0 || rate_per_s == 0)
        key = now_ns;
    else if (key > now_ns)
        key = qos_sat_add(now_ns, qos_mul_div_ceil(key - now_ns, old, rate_per_s));
    else
        key = qos_sat_sub(now_ns, qos_mul_div_floor(now_ns - key, old, rate_per_s));
    tags_priv_rate_close(p, key, 0);
}

/* ---- shared tags */

#if TAGS_HAS_SHARED
QOS_API struct tags_shared_client *tags_priv_shared(const struct tags_shared *sh, uint32_t id)
{
    /* The entries stand behind the header; both are 8-byte aligned. */
    return (struct tags_shared_client *)(uintptr_t)(sh + 1) + id;
}

QOS_API size_t tags_shared_memsize(uint32_t clients)
{
    struct qos_layout l = {NULL, 0, 0, false};
    if (clients == 0 || clients > TAGS_CLIENTS_MAX)
        return 0;
    (void)qos_layout_add(&l, 1, sizeof(struct tags_shared), 8);
    (void)qos_layout_add(&l, clients, sizeof(struct tags_shared_client), 8);
    return qos_layout_size(&l);
}

QOS_API enum qos_status tags_shared_init(struct tags_shared *sh, size_t size_bytes, uint32_t clients, uint64_t now_ns,
                                         uint64_t reserve_lag_ns, uint64_t limit_burst_ns)
{
    uint32_t i;
    if (!sh)
        return QOS_EINVAL;
    if (tags_shared_memsize(clients) == 0)
        return QOS_ERANGE;
    if (((uintptr_t)sh & 7) != 0)
        return QOS_EALIGN;
    if (size_bytes < tags_shared_memsize(clients))
        return QOS_EMEMORY;
    sh->base_ns = now_ns;
    sh->reserve_lag_ns = reserve_lag_ns == TAGS_NONE ? 0
                         : reserve_lag_ns            ? reserve_lag_ns
                                                     : TAGS_DEFAULT_LIMIT_BURST_NS;
    sh->limit_burst_ns = limit_burst_ns == TAGS_NONE ? 0
                         : limit_burst_ns            ? limit_burst_ns
                                                     : TAGS_DEFAULT_LIMIT_BURST_NS;
    sh->clients = clients;
    for (i = 0; i < clients; i++) {
        struct tags_shared_client *c = tags_priv_shared(sh, i);
        c->reserved = c->limited = 0;
        c->reservation_per_s = c->limit_per_s = 0;
    }
    return QOS_OK;
}

QOS_API uint64_t tags_shared_due(const struct tags_shared *sh, uint64_t now_ns, uint64_t rate_per_s)
{
    return qos_mul_div_floor(qos_elapsed_ns(sh->base_ns, now_ns), rate_per_s, QOS_NS_PER_S);
}

QOS_API enum qos_status tags_shared_set(struct tags_shared *sh, uint64_t now_ns, uint32_t id,
                                        const struct tags_client *terms)
{
    struct tags_shared_client *c;
    if (!sh || !terms)
        return QOS_EINVAL;
    if (id >= sh->clients)
        return QOS_ENOENT;
    if (terms->reservation_per_s > TAGS_SHARED_RATE_MAX || terms->limit_per_s > TAGS_SHARED_RATE_MAX)
        return QOS_ERANGE;
    c = tags_priv_shared(sh, id);
    c->reservation_per_s = terms->reservation_per_s;
    c->limit_per_s = terms->limit_per_s;
    c->reserved = tags_shared_due(sh, now_ns, terms->reservation_per_s);
    c->limited = tags_shared_due(sh, now_ns, terms->limit_per_s);
    return QOS_OK;
}

QOS_API bool tags_shared_claim(const struct tags_shared *sh, qos_word_t *word, uint64_t now_ns, uint64_t rate_per_s,
                               uint64_t keep_ns, uint64_t units, bool force, uint64_t *tag_ns)
{
    uint64_t due = tags_shared_due(sh, now_ns, rate_per_s);
    uint64_t lowest = qos_elapsed_ns(sh->base_ns, qos_sat_sub(now_ns, keep_ns));
    /* Relaxed throughout: the word is all there is, it publishes nothing else; that no unit is granted twice follows
     * from the single modification order of one word. */
    uint64_t seen = qos_atomic_load_relaxed(word), next = seen;
    bool granted = false;
    /* What is forgotten is rounded up, so that no more than keep_ns is kept, unless that is less than one unit: then
     * down, or whoever comes late would pay a whole one. */
    if (qos_mul_div_floor(keep_ns, rate_per_s, QOS_NS_PER_S) != 0)
        lowest = qos_mul_div_ceil(lowest, rate_per_s, QOS_NS_PER_S);
    else
        lowest = qos_mul_div_floor(lowest, rate_per_s, QOS_NS_PER_S);
    while (force || seen <= due) {
        next = qos_sat_add(qos_max(seen, lowest), units);
        if (qos_atomic_cas_relaxed(word, &seen, next)) { /* fails only if another shard's claim succeeded */
            granted = true;
            break;
        }
    }
    *tag_ns = qos_sat_add(sh->base_ns, qos_mul_div_ceil(granted ? next : seen, QOS_NS_PER_S, rate_per_s));
    return granted;
}

/* Claims the units on one shared word and copies its tag. */
QOS_API bool tags_priv_claim_one(struct tags *t, struct tags_priv_rate *own, qos_word_t *word, uint64_t keep_ns,
                                 uint64_t units, bool force)
{
    uint64_t tag_ns = 0;
    bool granted = tags_shared_claim(t->config.shared, word, t->now_ns, tags_priv_rate_open(own).rate_per_s, keep_ns,
                                     units, force, &tag_ns);
    tags_priv_rate_close(own, tag_ns, 0);
    return granted;
}

/* Takes the units from the shared words. false: another shard was faster; the tag that refused is known now, and the
 * client is not due before it.
 * The limit is charged before the reservation is asked: at no moment is more granted than charged to it, so that no
 * other shard slips in between. A reservation that is refused gives it back; meanwhile others may have been refused by
 * the limit, until the tag that they saw. */
QOS_API bool tags_priv_claim(struct tags *t, const struct tags_grant *g)
{
    const struct tags_shared *sh = t->config.shared;
    uint32_t id = g->client;
    struct tags_shared_client *c = tags_priv_shared(sh, id);
    bool forced = g->phase == TAGS_PHASE_FORCED, by_reservation = g->phase == TAGS_PHASE_RESERVATION;
    if (g->limited_units &&
        !tags_priv_claim_one(t, &t->limit[id], &c->limited, sh->limit_burst_ns, g->limited_units, forced))
        return false; /* it steps aside when it would be chosen again */
    if (!g->reserved_units ||
        tags_priv_claim_one(t, &t->reserve[id], &c->reserved, sh->reserve_lag_ns, g->reserved_units, !by_reservation))
        return true;
    if (g->limited_units) {
        (void)qos_atomic_add_relaxed(&c->limited, qos_wrap_sub(0, g->limited_units));
        tags_priv_rate_sub(&t->limit[id], g->limited_units);
    }
    return false;
}

/* An idle client's shared tags: other shards may have kept it active, so ask the words, and forgive only as they do. */
QOS_API void tags_priv_join_shared(struct tags *t, uint32_t id)
{
    const struct tags_shared *sh = t->config.shared;
    struct tags_shared_client *c = tags_priv_shared(sh, id);
    if (t->hot[id].packed & TAGS_PRIV_RESERVED)
        (void)tags_priv_claim_one(t, &t->reserve[id], &c->reserved, sh->reserve_lag_ns, 0, true);
    if (t->hot[id].packed & TAGS_PRIV_LIMITED)
        (void)tags_priv_claim_one(t, &t->limit[id], &c->limited, sh->limit_burst_ns, 0, true);
}

QOS_API void tags_priv_refund_shared(const struct tags *t, const struct tags_grant *g)
{
    struct tags_shared_client *c = tags_priv_shared(t->config.shared, g->client);
    /* A word is at least what was added to it: it does not wrap below 0. Relaxed: as in a claim. */
    (void)qos_atomic_add_relaxed(&c->reserved, qos_wrap_sub(0, g->reserved_units));
    (void)qos_atomic_add_relaxed(&c->limited, qos_wrap_sub(0, g->limited_units));
}

/* Are the terms those of the shared entry? */
QOS_API bool tags_priv_same_terms(const struct tags *t, uint32_t id, const struct tags_client *terms)
{
    const struct tags_shared_client *c = tags_priv_shared(t->config.shared, id);
    return c->reservation_per_s == terms->reservation_per_s && c->limit_per_s == terms->limit_per_s;
}

QOS_API bool tags_priv_has_shared(const struct tags_config *c)
{
    return c->shared != NULL;
}
#else /* config.shared is NULL: init has checked it */
QOS_API bool tags_priv_has_shared(const struct tags_config *c)
{
    (void)c;
    return false;
}
QOS_API bool tags_priv_claim(struct tags *t, const struct tags_grant *g)
{
    (void)t, (void)g;
    return true;
}
QOS_API void tags_priv_join_shared(struct tags *t, uint32_t id)
{
    (void)t, (void)id;
}
QOS_API void tags_priv_refund_shared(const struct tags *t, const struct tags_grant *g)
{
    (void)t, (void)g;
}
QOS_API bool tags_priv_same_terms(const struct tags *t, uint32_t id, const struct tags_client *terms)
{
    (void)t, (void)id, (void)terms;
    return true;
}
#endif

/* ---- configuration and memory */

QOS_API uint64_t tags_priv_default(uint64_t value, uint64_t fallback)
{
    return value == TAGS_NONE ? 0 : value ? value : fallback;
}

QOS_API enum qos_status tags_priv_config(const struct tags_config *in, struct tags_config *out)
{
    const uint64_t longest = UINT64_C(1) << 62;
    *out = *in;
    if (in->clients == 0 || in->clients > TAGS_CLIENTS_MAX || in->window > TAGS_WINDOW_MAX)
        return QOS_ERANGE;
    if ((unsigned)in->mode > TAGS_PS || (unsigned)in->at_limit > TAGS_REJECT)
        return QOS_EINVAL;
    if (in->no_completions && in->mode != TAGS_PS)
        return QOS_EINVAL;
    if (in->phase_requests > UINT32_C(1) << 31 && in->phase_requests != TAGS_NO_SYNC)
        return QOS_ERANGE;
    if (in->service_ns > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    if (in->shared && (!TAGS_HAS_SHARED || in->clients > in->shared->clients))
        return QOS_EINVAL;
    out->window = in->window ? in->window : TAGS_DEFAULT_WINDOW;
    out->phase_requests = in->phase_requests ? in->phase_requests : TAGS_DEFAULT_PHASE_REQUESTS;
    out->limit_burst_ns = tags_priv_default(in->limit_burst_ns, TAGS_DEFAULT_LIMIT_BURST_NS);
    out->reserve_lag_ns = tags_priv_default(in->reserve_lag_ns, TAGS_DEFAULT_RESERVE_LAG_NS);
    out->force_debt_ns = tags_priv_default(in->force_debt_ns, TAGS_DEFAULT_FORCE_DEBT_NS);
    out->service_ns = in->service_ns ? in->service_ns : TAGS_DEFAULT_SERVICE_NS;
    if (out->limit_burst_ns > longest || out->reserve_lag_ns > longest || out->force_debt_ns > longest)
        return QOS_ERANGE;
    return QOS_OK;
}

/* Offsets of all parts; the only place that knows sizes. c has its defaults filled in. */
struct tags_priv_parts {
    size_t s, r, l, hot, limit, reserve, granted_reserved, mean, ring, queue, queued_cost, by_client;
};

QOS_API bool tags_priv_knows_cost(const struct tags_config *c)
{
    return c->count_cost && c->at_limit == TAGS_REJECT;
}

QOS_API void tags_priv_layout(struct tags *t, const struct tags_config *c, struct qos_layout *l,
                              struct tags_priv_parts *at)
{
    size_t n = c->clients, s_nodes, t_nodes;
    size_t reward = c->mode == TAGS_REWARD ? n : 0;
    t->s_levels = tags_priv_levels(c->clients, 4, t->s_base, &s_nodes);
    t->t_levels = tags_priv_levels(c->clients, 8, t->t_base, &t_nodes);
    at->s = qos_layout_add(l, s_nodes, sizeof(struct tags_priv_key), QOS_CACHE_LINE);
    at->l = qos_layout_add(l, t_nodes - t->t_base[1], sizeof(uint64_t), 8); /* seldom read: need not be aligned */
    at->hot = qos_layout_add(l, n, sizeof(struct tags_priv_hot), 16);
    at->r = qos_layout_add(l, t_nodes, sizeof(uint64_t), QOS_CACHE_LINE);
    at->mean = qos_layout_add(l, reward, sizeof(struct tags_priv_mean), 16);
    at->granted_reserved = qos_layout_add(l, n, sizeof(qos_counter_t), 8);
    at->limit = qos_layout_add(l, n, sizeof(struct tags_priv_rate), 4);
    at->reserve = qos_layout_add(l, n, sizeof(struct tags_priv_rate), 4);
    at->ring = qos_layout_add(l, c->exact_window ? reward * c->window : 0, sizeof(uint32_t), 4);
    at->queue = qos_layout_add(l, c->intrusive ? n : 0, sizeof(struct tags_priv_queue), sizeof(void *));
    at->queued_cost = qos_layout_add(l, tags_priv_knows_cost(c) ? n : 0, sizeof(uint64_t), 8);
    at->by_client = qos_layout_add(l, c->count_by_client ? n : 0, sizeof(struct tags_counters), 8);
}

QOS_API size_t tags_memsize(const struct tags_config *config)
{
    struct tags t;
    struct tags_config c;
    struct tags_priv_parts at;
    struct qos_layout l = {NULL, 0, 0, false};
    if (!config || tags_priv_config(config, &c) != QOS_OK)
        return 0;
    tags_priv_layout(&t, &c, &l, &at);
    return qos_layout_size(&l);
}

QOS_API void tags_priv_clear_client(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    h->tag.hi = h->tag.lo = h->unit_lo = h->packed = 0;
    h->queued = h->at_device = 0;
    h->granted = 0;
    t->granted_reserved[id] = 0;
    __builtin_memset(&t->limit[id], 0, sizeof t->limit[id]);
    __builtin_memset(&t->reserve[id], 0, sizeof t->reserve[id]);
    if (t->mean) {
        __builtin_memset(&t->mean[id], 0, sizeof t->mean[id]);
        t->mean[id].packed = TAGS_PRIV_ENTITLED;
    }
    if (t->queue)
        t->queue[id].head = t->queue[id].tail = NULL;
    if (t->queued_cost)
        t->queued_cost[id] = 0;
}

QOS_API enum qos_status tags_init(struct tags *t, void *mem, size_t size_bytes, const struct tags_config *config)
{
    struct tags_config c;
    struct tags fresh;
    struct tags_priv_parts at;
    struct qos_layout l = {NULL, 0, 0, false};
    uint8_t *base = (uint8_t *)mem;
    enum qos_status st;
    size_t i;
    uint32_t id;
    bool reward;
    if (!t || !config)
        return QOS_EINVAL;
    st = tags_priv_config(config, &c);
    if (st != QOS_OK)
        return st;
    tags_priv_layout(&fresh, &c, &l, &at);
    st = qos_layout_check(&l, mem, size_bytes);
    if (st != QOS_OK)
        return st;
    reward = c.mode == TAGS_REWARD;
    fresh.v = tags_priv_wide(0, 0);
    fresh.now_ns = fresh.at_device = fresh.weight_sum = fresh.reserved_sum = 0;
    fresh.estimate = c.service_ns << TAGS_PRIV_FRACTION;
    fresh.blocks = (uint32_t)qos_min(c.window, TAGS_PRIV_BLOCKS);
    fresh.block_requests = (c.window + fresh.blocks - 1) / fresh.blocks;
    fresh.s = (struct tags_priv_key *)(void *)(base + at.s);
    fresh.r = (uint64_t *)(void *)(base + at.r);
    fresh.l = (uint64_t *)(void *)(base + at.l);
    fresh.hot = (struct tags_priv_hot *)(void *)(base + at.hot);
    fresh.limit = (struct tags_priv_rate *)(void *)(base + at.limit);
    fresh.reserve = (struct tags_priv_rate *)(void *)(base + at.reserve);
    fresh.granted_reserved = (qos_counter_t *)(void *)(base + at.granted_reserved);
    fresh.mean = reward ? (struct tags_priv_mean *)(void *)(base + at.mean) : NULL;
    fresh.ring = reward && c.exact_window ? (uint32_t *)(void *)(base + at.ring) : NULL;
    fresh.queue = c.intrusive ? (struct tags_priv_queue *)(void *)(base + at.queue) : NULL;
    fresh.queued_cost = tags_priv_knows_cost(&c) ? (uint64_t *)(void *)(base + at.queued_cost) : NULL;
    fresh.by_client = c.count_by_client ? (struct tags_counters *)(void *)(base + at.by_client) : NULL;
    fresh.config = c;
    *t = fresh;
    __builtin_memset(&t->counters, 0, sizeof t->counters);
    for (i = 0; i <= t->s_base[t->s_levels - 1]; i++)
        t->s[i].hi = t->s[i].lo = TAGS_PRIV_ABSENT;
    for (i = 0; i <= t->t_base[t->t_levels - 1]; i++)
        t->r[i] = TAGS_PRIV_ABSENT;
    for (i = 0; i <= t->t_base[t->t_levels - 1] - t->t_base[1]; i++)
        t->l[i] = TAGS_PRIV_ABSENT;
    for (id = 0; id < c.clients; id++) {
        tags_priv_clear_client(t, id);
        if (t->by_client)
            __builtin_memset(&t->by_client[id], 0, sizeof t->by_client[id]);
    }
    return QOS_OK;
}

/* ---- virtual time */

QOS_API uint64_t tags_priv_now(struct tags *t, uint64_t now_ns)
{
    if (now_ns > t->now_ns)
        t->now_ns = qos_min(now_ns, TAGS_PRIV_ABSENT - 1);
    return t->now_ns;
}

QOS_API uint64_t tags_priv_weight(const struct tags_priv_hot *h)
{
    return h->packed & TAGS_PRIV_WEIGHT_MASK;
}

/* V rises to the smallest sTag of the eligible, rounded down as in the tree: so it does not depend on who of several is
 * taken for the smallest. */
QOS_API void tags_priv_raise_v(struct tags *t)
{
    struct tags_priv_key top = tags_priv_s_top(t);
    if (top.hi == TAGS_PRIV_ABSENT)
        return;
    top.lo &= ~UINT64_C(0xffffffff);
    if (qos_cmp_wide(tags_priv_wide(top.hi, top.lo), t->v) > 0)
        t->v = tags_priv_wide(top.hi, top.lo);
}

/* AdjustTags: before a client joins or leaves the axis. */
QOS_API void tags_priv_adjust(struct tags *t)
{
    if (t->at_device == 0)
        tags_priv_raise_v(t);
}

/* The same while this client is active without a request queued, so that the tree does not know it. */
QOS_API void tags_priv_adjust_with(struct tags *t, const struct tags_priv_hot *h)
{
    struct qos_u128 own = tags_priv_wide(h->tag.hi, h->tag.lo & ~UINT64_C(0xffffffff)), before = t->v;
    if (t->at_device != 0)
        return;
    tags_priv_raise_v(t); /* max(V, others), but max(V, min(own, others)) is meant */
    if (tags_priv_s_top(t).hi == TAGS_PRIV_ABSENT || qos_cmp_wide(own, t->v) < 0)
        t->v = qos_cmp_wide(own, before) > 0 ? own : before;
}

/* x units of 1/256 ns or of cost, over the weight: 72 fraction bits. */
QOS_API struct qos_u128 tags_priv_per_weight(const struct tags_priv_hot *h, uint64_t x)
{
    struct qos_u128 p = qos_mul_wide(h->unit_lo, x);
    p.hi += (h->packed >> TAGS_PRIV_UNIT_SHIFT & TAGS_PRIV_UNIT_MASK) * x; /* x < 2^55 */
    return p;
}

/* Lead on the axis -> ns and 2^-64 ns, and back. */
QOS_API struct tags_priv_key tags_priv_lead_to_ns(struct qos_u128 lead)
{
    struct tags_priv_key r;
    r.hi = lead.hi >> TAGS_PRIV_FRACTION;
    r.lo = (lead.hi & 0xffu) << 56 | lead.lo >> TAGS_PRIV_FRACTION;
    return r;
}

QOS_API struct qos_u128 tags_priv_ns_to_lead(struct tags_priv_key ns)
{
    const uint64_t most = TAGS_PRIV_LEAD_MAX;
    if (ns.hi >= most >> TAGS_PRIV_FRACTION)
        return tags_priv_wide(most, 0);
    return tags_priv_wide(ns.hi << TAGS_PRIV_FRACTION | ns.lo >> 56, (ns.lo & UINT64_MAX >> TAGS_PRIV_FRACTION)
                                                                         << TAGS_PRIV_FRACTION);
}

QOS_API struct qos_u128 tags_priv_lead(const struct tags *t, const struct tags_priv_hot *h)
{
    return tags_priv_sub(tags_priv_wide(h->tag.hi, h->tag.lo), t->v);
}

/* The sTag from now on stays in real time. */
QOS_API void tags_priv_to_real(const struct tags *t, struct tags_priv_hot *h)
{
    struct tags_priv_key ns = tags_priv_lead_to_ns(tags_priv_lead(t, h));
    ns.hi = qos_sat_add(ns.hi, t->now_ns);
    h->tag = ns;
    h->packed &= ~TAGS_PRIV_VIRTUAL;
}

/* sTag = max(sTag, now), then on the axis of V. */
QOS_API void tags_priv_to_virtual(const struct tags *t, struct tags_priv_hot *h)
{
    struct tags_priv_key ahead;
    struct qos_u128 tag = t->v;
    if (h->tag.hi >= t->now_ns) {
        ahead.hi = h->tag.hi - t->now_ns;
        ahead.lo = h->tag.lo;
        tag = qos_add_wide(tag, tags_priv_ns_to_lead(ahead));
    }
    h->tag.hi = tag.hi;
    h->tag.lo = tag.lo;
    h->packed |= TAGS_PRIV_VIRTUAL;
}

/* sTag += plus - minus, in either form; at most TAGS_PRIV_LEAD_MAX ahead of V. */
QOS_API void tags_priv_move(const struct tags *t, struct tags_priv_hot *h, struct qos_u128 plus, struct qos_u128 minus)
{
    struct qos_u128 tag = tags_priv_wide(h->tag.hi, h->tag.lo);
    if (QOS_LIKELY((h->packed & TAGS_PRIV_VIRTUAL) != 0)) {
        tag = qos_add_wide(tag, plus); /* below 2^63 + 2^63 in the high word */
        if (QOS_UNLIKELY(tag.hi >= t->v.hi && tag.hi - t->v.hi > TAGS_PRIV_LEAD_MAX))
            tag = tags_priv_wide(t->v.hi + TAGS_PRIV_LEAD_MAX, 0);
    } else {
        struct tags_priv_key p = tags_priv_lead_to_ns(plus), m = tags_priv_lead_to_ns(minus);
        if (tag.hi < UINT64_MAX - p.hi) /* else it stays: the end of time */
            tag = qos_add_wide(tag, tags_priv_wide(p.hi, p.lo));
        minus = tags_priv_wide(m.hi, m.lo);
    }
    if (minus.hi | minus.lo)
        tag = tags_priv_sub(tag, minus);
    h->tag.hi = tag.hi;
    h->tag.lo = tag.lo;
}

/* Everything on the axis moves back by V: a client that stood below it (a correction) stands at 0. */
QOS_API void tags_priv_rebase(struct tags *t)
{
    uint32_t id;
    for (id = 0; id < t->config.clients; id++) {
        struct tags_priv_hot *h = &t->hot[id];
        if (h->packed & TAGS_PRIV_VIRTUAL) {
            struct qos_u128 lead = tags_priv_lead(t, h);
            h->tag.hi = lead.hi;
            h->tag.lo = lead.lo;
            if (h->queued && !(h->packed & TAGS_PRIV_WAITING))
                tags_priv_s_set(t, id, h->tag);
        }
    }
    t->v = tags_priv_wide(0, 0);
}

/* ---- activity */

/* A client on the axis that is active no more keeps its sTag in real time. */
QOS_API void tags_priv_leave(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    t->weight_sum -= tags_priv_weight(h);
    if (!(h->packed & TAGS_PRIV_VIRTUAL))
        return;
    tags_priv_adjust_with(t, h);
    tags_priv_to_real(t, h);
}

QOS_API void tags_priv_join(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    t->weight_sum += tags_priv_weight(h);
    if (tags_priv_has_shared(&t->config)) {
        tags_priv_join_shared(t, id);
    } else {
        tags_priv_rate_raise(&t->reserve[id], t->now_ns);
        tags_priv_rate_raise(&t->limit[id], t->now_ns);
    }
    tags_priv_adjust(t);
    tags_priv_to_virtual(t, h);
}

/* Adds to one of the counters, of all clients and of this one. offset: that of a qos_counter_t in tags_counters. */
QOS_API void tags_priv_bump(struct tags *t, uint32_t id, size_t offset, uint64_t n)
{
    qos_counter_add((qos_counter_t *)(void *)((uint8_t *)&t->counters + offset), n);
    if (t->by_client)
        qos_counter_add((qos_counter_t *)(void *)((uint8_t *)&t->by_client[id] + offset), n);
}

/* Into the trees: its queue has a request again, or its lTag is due. */
QOS_API void tags_priv_enter_trees(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    tags_priv_s_set(t, id, h->tag);
    if (h->packed & TAGS_PRIV_RESERVED)
        tags_priv_r_set(t, id, tags_priv_rate_key(&t->reserve[id]));
}

/* Its queue is empty: out of the trees. A client that waited at its limit waits no more. */
QOS_API void tags_priv_leave_trees(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    if (h->packed & TAGS_PRIV_WAITING) {
        h->packed &= ~TAGS_PRIV_WAITING;
        tags_priv_l_set(t, id, TAGS_PRIV_ABSENT);
        return;
    }
    tags_priv_s_clear(t, id);
    if (h->packed & TAGS_PRIV_RESERVED)
        tags_priv_r_set(t, id, TAGS_PRIV_ABSENT);
}

/* At its limit: out of the s and r trees until its lTag is due. */
QOS_API void tags_priv_step_aside(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    tags_priv_adjust(t);
    tags_priv_to_real(t, h);
    h->packed |= TAGS_PRIV_WAITING;
    tags_priv_l_set(t, id, tags_priv_rate_key(&t->limit[id]));
    if (h->packed & TAGS_PRIV_RESERVED)
        tags_priv_r_set(t, id, TAGS_PRIV_ABSENT);
    tags_priv_bump(t, id, offsetof(struct tags_counters, stepped_aside), 1);
}

/* Clients whose lTag is due come back. */
QOS_API void tags_priv_release(struct tags *t)
{
    tags_priv_adjust(t);
    while (tags_priv_l_min(t) <= t->now_ns) {
        uint32_t id = tags_priv_l_top(t);
        struct tags_priv_hot *h = &t->hot[id];
        h->packed &= ~TAGS_PRIV_WAITING;
        tags_priv_to_virtual(t, h);
        tags_priv_enter_trees(t, id);
        tags_priv_l_update(t, id);
    }
}

QOS_API struct tags_priv_hot *tags_priv_client(const struct tags *t, uint32_t id)
{
    if (id >= t->config.clients || !(t->hot[id].packed & TAGS_PRIV_CLIENT))
        return NULL;
    return &t->hot[id];
}

/* What every call about a client asks first. */
QOS_API enum qos_status tags_priv_find(const struct tags *t, uint32_t id, struct tags_priv_hot **h)
{
    *h = t ? tags_priv_client(t, id) : NULL;
    return *h ? QOS_OK : t ? QOS_ENOENT : QOS_EINVAL;
}

/* ---- clients */

QOS_API uint64_t tags_admissible(const struct tags *t)
{
    if (t->config.capacity_per_s == 0)
        return QOS_RATE_MAX;
    return qos_min(qos_sat_sub(t->config.capacity_per_s, t->reserved_sum), QOS_RATE_MAX);
}

/* held: what the client has reserved already. */
QOS_API enum qos_status tags_priv_terms(const struct tags *t, uint32_t id, const struct tags_client *terms,
                                        uint64_t held)
{
    uint64_t others = t->reserved_sum - held;
    if (terms->weight > TAGS_WEIGHT_MAX || terms->reservation_per_s > QOS_RATE_MAX || terms->limit_per_s > QOS_RATE_MAX)
        return QOS_ERANGE;
    if (terms->limit_per_s != 0 && terms->limit_per_s < terms->reservation_per_s)
        return QOS_EINVAL;
    if (tags_priv_has_shared(&t->config) && !tags_priv_same_terms(t, id, terms))
        return QOS_EINVAL;
    if (t->config.capacity_per_s != 0 && terms->reservation_per_s > qos_sat_sub(t->config.capacity_per_s, others) &&
        terms->reservation_per_s > held)
        return QOS_EADMISSION;
    return QOS_OK;
}

QOS_API void tags_priv_apply(struct tags *t, uint32_t id, const struct tags_client *terms)
{
    struct tags_priv_hot *h = &t->hot[id];
    uint64_t weight = terms->weight ? terms->weight : 1, rest;
    uint64_t flags = h->packed & (TAGS_PRIV_VIRTUAL | TAGS_PRIV_WAITING);
    uint64_t unit_hi = (UINT64_C(1) << 8) / weight;
    rest = (UINT64_C(1) << 8) % weight;
    h->unit_lo = qos_div_wide(tags_priv_wide(rest, 0), weight, NULL);
    t->reserved_sum -= tags_priv_rate_open(&t->reserve[id]).rate_per_s;
    t->reserved_sum += terms->reservation_per_s;
    tags_priv_rate_set(&t->reserve[id], terms->reservation_per_s, t->now_ns);
    tags_priv_rate_set(&t->limit[id], terms->limit_per_s, t->now_ns);
    flags |= TAGS_PRIV_CLIENT | (terms->reservation_per_s ? TAGS_PRIV_RESERVED : 0);
    flags |= terms->limit_per_s ? TAGS_PRIV_LIMITED : 0;
    h->packed = weight | unit_hi << TAGS_PRIV_UNIT_SHIFT | flags;
}

QOS_API enum qos_status tags_add(struct tags *t, uint64_t now_ns, uint32_t id, const struct tags_client *terms)
{
    enum qos_status st;
    if (!t || !terms)
        return QOS_EINVAL;
    if (id >= t->config.clients)
        return QOS_ENOENT;
    if (t->hot[id].packed & TAGS_PRIV_LEAVING)
        return QOS_EBUSY;
    if (t->hot[id].packed & TAGS_PRIV_CLIENT)
        return QOS_EEXIST;
    st = tags_priv_terms(t, id, terms, 0);
    if (st != QOS_OK)
        return st;
    (void)tags_priv_now(t, now_ns);
    tags_priv_clear_client(t, id);
    if (t->by_client)
        __builtin_memset(&t->by_client[id], 0, sizeof t->by_client[id]);
    tags_priv_apply(t, id, terms);
    return QOS_OK;
}

QOS_API enum qos_status tags_set(struct tags *t, uint64_t now_ns, uint32_t id, const struct tags_client *terms)
{
    struct tags_priv_hot *h;
    uint64_t old_weight, weight;
    enum qos_status st;
    bool idle;
    if (!terms)
        return QOS_EINVAL;
    st = tags_priv_find(t, id, &h);
    if (st != QOS_OK)
        return st;
    st = tags_priv_terms(t, id, terms, tags_priv_rate_open(&t->reserve[id]).rate_per_s);
    if (st != QOS_OK)
        return st;
    (void)tags_priv_now(t, now_ns);
    old_weight = tags_priv_weight(h);
    weight = terms->weight ? terms->weight : 1;
    if (h->queued)
        tags_priv_leave_trees(t, id);
    idle = h->queued == 0 && h->at_device == 0;
    if (!idle)
        t->weight_sum = t->weight_sum - old_weight + weight;
    if (!(h->packed & TAGS_PRIV_VIRTUAL)) { /* a client that waited at its limit: the new one decides */
        tags_priv_adjust(t);
        tags_priv_to_virtual(t, h);
    }
    if (qos_cmp_wide(tags_priv_wide(h->tag.hi, h->tag.lo), t->v) > 0) {
        struct qos_u128 lead = tags_priv_scale(tags_priv_lead(t, h), old_weight, weight);
        if (lead.hi > TAGS_PRIV_LEAD_MAX)
            lead = tags_priv_wide(TAGS_PRIV_LEAD_MAX, 0);
        lead = qos_add_wide(t->v, lead);
        h->tag.hi = lead.hi;
        h->tag.lo = lead.lo;
    }
    if (idle)
        tags_priv_to_real(t, h);
    tags_priv_apply(t, id, terms);
    if (h->queued)
        tags_priv_enter_trees(t, id);
    return QOS_OK;
}

/* Nothing of it is queued any more. */
QOS_API void tags_priv_empty(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    tags_priv_leave_trees(t, id);
    if (h->at_device == 0)
        tags_priv_leave(t, id);
    else if (!(h->packed & TAGS_PRIV_VIRTUAL))
        tags_priv_to_virtual(t, h);
    h->queued = 0;
    if (t->queued_cost)
        t->queued_cost[id] = 0;
}

QOS_API enum qos_status tags_remove(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t *dropped)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_find(t, id, &h);
    if (st != QOS_OK)
        return st;
    (void)tags_priv_now(t, now_ns);
    if (dropped)
        *dropped = h->queued;
    if (h->queued)
        tags_priv_empty(t, id);
    t->reserved_sum -= tags_priv_rate_open(&t->reserve[id]).rate_per_s;
    if (h->at_device == 0) {
        tags_priv_clear_client(t, id);
    } else { /* active until the last one completes; refunds find no tags */
        h->packed &= ~(TAGS_PRIV_CLIENT | TAGS_PRIV_RESERVED | TAGS_PRIV_LIMITED);
        h->packed |= TAGS_PRIV_LEAVING;
    }
    return QOS_OK;
}

/* ---- requests */

/* Would the last of count new requests wait at the limit for longer than is accepted? */
QOS_API bool tags_priv_rejects(const struct tags *t, uint32_t id, uint32_t count, uint64_t cost)
{
    const struct tags_priv_hot *h = &t->hot[id];
    bool idle = h->queued == 0 && h->at_device == 0;
    uint64_t before = h->queued + (uint64_t)count - 1, floor_ns;
    if (t->config.at_limit != TAGS_REJECT || !(h->packed & TAGS_PRIV_LIMITED))
        return false;
    if (t->queued_cost)
        before = qos_sat_add(t->queued_cost[id], (count - 1) * cost); /* < 2^31 * 2^32 */
    floor_ns = idle ? t->now_ns : qos_sat_sub(t->now_ns, t->config.limit_burst_ns);
    return tags_priv_rate_after(&t->limit[id], floor_ns, before) > qos_sat_add(t->now_ns, t->config.reject_after_ns);
}

QOS_API enum qos_status tags_arrive_cost(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count, uint64_t cost)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_find(t, id, &h);
    if (st != QOS_OK)
        return st;
    if (count == 0 || cost > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    if (count > TAGS_BACKLOG_MAX - h->queued)
        return QOS_EFULL;
    cost = qos_max(cost, 1);
    (void)tags_priv_now(t, now_ns);
    if (tags_priv_rejects(t, id, count, cost)) {
        tags_priv_bump(t, id, offsetof(struct tags_counters, refused), count);
        return QOS_ELIMIT;
    }
    if (h->queued == 0) {
        if (h->at_device == 0)
            tags_priv_join(t, id);
        tags_priv_enter_trees(t, id);
    }
    h->queued += count;
    if (t->queued_cost)
        t->queued_cost[id] += count * cost; /* at most 2^31 requests of 2^32 */
    return QOS_OK;
}

QOS_API enum qos_status tags_arrive(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count)
{
    return tags_arrive_cost(t, now_ns, id, count, 1);
}

/* `cost` of what is queued is queued no more; a caller who said less at arrival than at dispatch is forgiven. */
QOS_API void tags_priv_unqueue_cost(struct tags *t, uint32_t id, uint64_t cost)
{
    if (t->queued_cost)
        t->queued_cost[id] = qos_sat_sub(t->queued_cost[id], qos_max(cost, 1));
}

/* cost: of all count; UINT64_MAX: their share of what is queued. */
QOS_API enum qos_status tags_priv_withdraw(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count, uint64_t cost)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_find(t, id, &h);
    if (st != QOS_OK)
        return st;
    if (count == 0 || count > h->queued)
        return QOS_ERANGE;
    (void)tags_priv_now(t, now_ns);
    if (count == h->queued) {
        tags_priv_empty(t, id);
        return QOS_OK;
    }
    if (t->queued_cost)
        tags_priv_unqueue_cost(t, id,
                               cost == UINT64_MAX ? qos_mul_div_floor(t->queued_cost[id], count, h->queued) : cost);
    h->queued -= count;
    return QOS_OK;
}

QOS_API enum qos_status tags_withdraw(struct tags *t, uint64_t now_ns, uint32_t id, uint32_t count)
{
    return tags_priv_withdraw(t, now_ns, id, count, UINT64_MAX);
}

/* Is it below its limit? */
QOS_API bool tags_priv_may(const struct tags *t, uint32_t id)
{
    return !(t->hot[id].packed & TAGS_PRIV_LIMITED) || tags_priv_rate_key(&t->limit[id]) <= t->now_ns;
}

QOS_API enum qos_status tags_choose(struct tags *t, uint64_t now_ns, struct tags_choice *choice)
{
    struct tags_priv_key top;
    if (!t || !choice)
        return QOS_EINVAL;
    (void)tags_priv_now(t, now_ns);
    if (tags_priv_l_min(t) <= t->now_ns)
        tags_priv_release(t);
    while (tags_priv_r_min(t) <= t->now_ns) {
        choice->client = tags_priv_r_top(t);
        choice->phase = TAGS_PHASE_RESERVATION;
        if (tags_priv_may(t, choice->client))
            return QOS_OK;
        tags_priv_step_aside(t, choice->client);
    }
    for (;;) {
        top = tags_priv_s_top(t);
        if (top.hi == TAGS_PRIV_ABSENT)
            break;
        choice->client = (uint32_t)(top.lo & 0xffffffffu);
        choice->phase = TAGS_PHASE_WEIGHT;
        if (tags_priv_may(t, choice->client))
            return QOS_OK;
        tags_priv_step_aside(t, choice->client);
    }
    if (t->config.at_limit == TAGS_ALLOW && tags_priv_l_min(t) != TAGS_PRIV_ABSENT) {
        choice->client = tags_priv_l_top(t);
        choice->phase = TAGS_PHASE_ABOVE_LIMIT;
        return QOS_OK;
    }
    return QOS_EAGAIN;
}

QOS_API uint64_t tags_next_ns(struct tags *t, uint64_t now_ns)
{
    struct tags_choice choice;
    uint64_t next;
    if (tags_choose(t, now_ns, &choice) == QOS_OK)
        return now_ns;
    next = tags_priv_l_min(t); /* whoever waits now waits at a limit: below it, its weight would do */
    return next == TAGS_PRIV_ABSENT ? QOS_NEVER : next;
}

/* After its rTag or lTag changed. */
QOS_API void tags_priv_settle_rates(struct tags *t, uint32_t id)
{
    const struct tags_priv_hot *h = &t->hot[id];
    if (h->packed & TAGS_PRIV_WAITING)
        tags_priv_l_set(t, id, tags_priv_rate_key(&t->limit[id]));
    else if (h->queued && (h->packed & TAGS_PRIV_RESERVED))
        tags_priv_r_set(t, id, tags_priv_rate_key(&t->reserve[id]));
}

/* Units charged to a tag of one request: its own and what it brings from other servers. */
QOS_API uint64_t tags_priv_units(const struct tags *t, uint64_t cost, uint32_t elsewhere)
{
    return (t->config.count_cost ? cost : 1) + elsewhere;
}

/* Charges rTag and lTag. false: a shared word was not due, nothing was charged. */
QOS_API bool tags_priv_charge_rates(struct tags *t, struct tags_grant *g, uint64_t cost, uint32_t rho, uint32_t delta)
{
    uint32_t id = g->client;
    uint64_t packed = t->hot[id].packed;
    bool due = g->phase == TAGS_PHASE_RESERVATION;
    g->reserved_units = g->limited_units = 0;
    if (packed & TAGS_PRIV_RESERVED) {
        if (g->phase == TAGS_PHASE_FORCED)
            due = tags_priv_rate_key(&t->reserve[id]) <= t->now_ns;
        g->reserved_units = due ? tags_priv_units(t, cost, rho) : rho;
    }
    if ((packed & TAGS_PRIV_LIMITED) && g->phase != TAGS_PHASE_ABOVE_LIMIT)
        g->limited_units = tags_priv_units(t, cost, delta);
    if (tags_priv_has_shared(&t->config))
        return tags_priv_claim(t, g);
    if (g->reserved_units)
        tags_priv_rate_charge(&t->reserve[id], qos_sat_sub(t->now_ns, t->config.reserve_lag_ns), g->reserved_units);
    if (g->limited_units)
        tags_priv_rate_charge(&t->limit[id], qos_sat_sub(t->now_ns, t->config.limit_burst_ns), g->limited_units);
    return true;
}

/* The last N service times: their sum and number; below 2^45 and 2^13. After the first N requests of a client, the
 * number is that of the blocks, as a block holds its mean. */
QOS_API uint64_t tags_priv_window(const struct tags *t, const struct tags_priv_mean *m, uint64_t *count)
{
    uint64_t sum = 0, open_count = m->packed / TAGS_PRIV_ONE_MORE % 8192, blocks = m->packed / TAGS_PRIV_ONE_BLOCK % 8;
    unsigned i;
    for (i = 0; i < TAGS_PRIV_BLOCKS && !t->ring; i++)
        sum += m->block[i];
    *count = t->blocks;
    if (blocks == t->blocks)
        return sum;
    *count = blocks * t->block_requests + open_count;
    return sum * t->block_requests + (m->packed & TAGS_PRIV_SUM_MASK);
}

/* F in 1/256 ns. */
QOS_API uint64_t tags_priv_mean_of(const struct tags *t, uint32_t id)
{
    uint64_t count, sum = tags_priv_window(t, &t->mean[id], &count) << TAGS_PRIV_FRACTION;
    if (count == TAGS_PRIV_BLOCKS) /* the usual case, without a division */
        return sum / TAGS_PRIV_BLOCKS;
    return count ? sum / count : t->estimate;
}

/* count times the mean, over the client's weight. */
QOS_API struct qos_u128 tags_priv_mean_charge(const struct tags *t, uint32_t id, uint64_t mean, uint64_t count)
{
    struct qos_u128 p = tags_priv_per_weight(&t->hot[id], qos_min(qos_sat_mul(mean, count), TAGS_PRIV_X_MAX));
    return tags_priv_wide(p.hi >> TAGS_PRIV_FRACTION, (p.hi & 0xffu) << 56 | p.lo >> TAGS_PRIV_FRACTION);
}

QOS_API void tags_priv_charge_share(struct tags *t, struct tags_grant *g, uint64_t cost, uint32_t delta)
{
    struct tags_priv_hot *h = &t->hot[g->client];
    g->delta = delta;
    g->charge = t->mean ? tags_priv_mean_charge(t, g->client, tags_priv_mean_of(t, g->client), UINT64_C(1) + delta)
                        : tags_priv_per_weight(h, cost + delta);
    tags_priv_move(t, h, g->charge, tags_priv_wide(0, 0));
}

QOS_API void tags_priv_count_in(struct tags_counters *c, enum tags_phase phase, uint64_t units)
{
    qos_counter_add(&c->served[phase], 1);
    qos_counter_add(&c->units, units);
    if (phase != TAGS_PHASE_RESERVATION)
        qos_counter_add(&c->units_beyond, units);
}

/* Counts the dispatch. */
QOS_API void tags_priv_count(struct tags *t, const struct tags_grant *g, uint64_t cost)
{
    struct tags_priv_hot *h = &t->hot[g->client];
    uint64_t units = tags_priv_units(t, cost, 0);
    qos_counter_add(&h->granted, 1);
    if (g->phase == TAGS_PHASE_RESERVATION)
        qos_counter_add(&t->granted_reserved[g->client], 1);
    tags_priv_count_in(&t->counters, g->phase, units);
    if (t->by_client)
        tags_priv_count_in(&t->by_client[g->client], g->phase, units);
    if (!t->config.no_completions) {
        h->at_device++;
        t->at_device++;
    }
}

/* Before the sTag of a client that stepped aside is charged: sTag = max(sTag, now), or, with its last request, back to
 * the axis, where it is the only one if all others wait too. */
QOS_API void tags_priv_charge_waiting(struct tags *t, uint32_t id)
{
    struct tags_priv_hot *h = &t->hot[id];
    if (h->queued > 1) {
        if (h->tag.hi < t->now_ns) {
            h->tag.hi = t->now_ns;
            h->tag.lo = 0;
        }
        return;
    }
    tags_priv_to_virtual(t, h);
    if (tags_priv_s_top(t).hi == TAGS_PRIV_ABSENT)
        t->v = tags_priv_wide(h->tag.hi, h->tag.lo & ~UINT64_C(0xffffffff));
}

QOS_API void tags_priv_begin(struct tags *t)
{
    tags_priv_raise_v(t);
    if (QOS_UNLIKELY(t->v.hi >> TAGS_PRIV_V_BITS))
        tags_priv_rebase(t);
}

QOS_API enum qos_status tags_dispatch(struct tags *t, uint64_t now_ns, const struct tags_choice *choice, uint64_t cost,
                                      uint32_t rho, uint32_t delta, struct tags_grant *grant)
{
    struct tags_priv_hot *h;
    struct tags_grant g;
    uint32_t id;
    bool waiting;
    if (!t || !choice || !grant || rho > delta || (unsigned)choice->phase > TAGS_PHASE_ABOVE_LIMIT)
        return QOS_EINVAL;
    id = choice->client;
    h = tags_priv_client(t, id);
    if (!h)
        return QOS_ENOENT;
    if (h->queued == 0 || (choice->phase == TAGS_PHASE_RESERVATION && !(h->packed & TAGS_PRIV_RESERVED)) ||
        (choice->phase == TAGS_PHASE_ABOVE_LIMIT && t->config.at_limit != TAGS_ALLOW))
        return QOS_EINVAL;
    if (cost > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    cost = qos_max(cost, 1);
    (void)tags_priv_now(t, now_ns);
    g.client = id;
    g.phase = choice->phase;
    if (!tags_priv_charge_rates(t, &g, cost, rho, delta)) {
        tags_priv_settle_rates(t, id);
        return QOS_EAGAIN;
    }
    tags_priv_begin(t);
    waiting = (h->packed & TAGS_PRIV_WAITING) != 0;
    if (QOS_UNLIKELY(waiting))
        tags_priv_charge_waiting(t, id);
    tags_priv_charge_share(t, &g, cost, delta);
    tags_priv_count(t, &g, cost);
    if (t->queued_cost)
        tags_priv_unqueue_cost(t, id, cost);
    h->queued--;
    if (QOS_UNLIKELY(h->queued == 0)) {
        tags_priv_empty(t, id);
    } else if (QOS_UNLIKELY(waiting)) {
        tags_priv_settle_rates(t, id);
    } else {
        tags_priv_s_set(t, id, h->tag);
        if (g.reserved_units)
            tags_priv_r_set(t, id, tags_priv_rate_key(&t->reserve[id]));
    }
    *grant = g;
    return QOS_OK;
}

QOS_API enum qos_status tags_pull(struct tags *t, uint64_t now_ns, uint64_t cost, struct tags_grant *grant)
{
    struct tags_choice choice;
    enum qos_status st;
    do { /* again only after a lost race for a shared word, which takes the client out until its tag */
        st = tags_choose(t, now_ns, &choice);
        if (st != QOS_OK)
            return st;
        st = tags_dispatch(t, now_ns, &choice, cost, 0, 0, grant);
    } while (st == QOS_EAGAIN);
    return st;
}

/* Into place if its sTag changed; idle if nothing of it is left. */
QOS_API void tags_priv_settle(struct tags *t, uint32_t id, bool changed)
{
    struct tags_priv_hot *h = &t->hot[id];
    if (!(h->packed & TAGS_PRIV_VIRTUAL))
        return; /* at its limit, or idle already */
    if (h->queued && changed)
        tags_priv_s_set(t, id, h->tag);
    else if (h->queued == 0 && h->at_device == 0)
        tags_priv_leave(t, id);
}

/* How far the client is ahead of what it may have, in ns: its lTag, and its sTag at its share of the device. */
QOS_API uint64_t tags_priv_debt_ns(const struct tags *t, uint32_t id)
{
    const struct tags_priv_hot *h = &t->hot[id];
    uint64_t ahead = 0, share;
    if (h->packed & TAGS_PRIV_LIMITED)
        ahead = qos_sat_sub(tags_priv_rate_key(&t->limit[id]), t->now_ns);
    if (h->packed & TAGS_PRIV_VIRTUAL) {
        uint64_t lead = tags_priv_lead(t, h).hi >> TAGS_PRIV_FRACTION;
        share = qos_sat_mul(lead, t->weight_sum);
    } else {
        share = qos_sat_sub(h->tag.hi, t->now_ns);
    }
    return qos_max(ahead, share);
}

/* Units by which the client is ahead of its limit, beyond the one that it always may be. */
QOS_API uint64_t tags_priv_debt_units(const struct tags *t, uint64_t now_ns, uint32_t id)
{
    const struct tags_priv_rate *p = &t->limit[id];
    uint64_t ahead = qos_sat_sub(tags_priv_rate_key(p), now_ns);
    return qos_sat_sub(qos_mul_div_ceil(ahead, tags_priv_rate_open(p).rate_per_s, QOS_NS_PER_S), 1);
}

QOS_API void tags_priv_note_debt(struct tags_counters *c, uint64_t units)
{
    qos_counter_add(&c->debt, qos_wrap_sub(units, qos_counter_read(&c->debt)));
}

QOS_API void tags_priv_count_forced(struct tags *t, uint32_t id)
{
    uint64_t debt = t->hot[id].packed & TAGS_PRIV_LIMITED ? tags_priv_debt_units(t, t->now_ns, id) : 0;
    tags_priv_note_debt(&t->counters, debt);
    if (t->by_client)
        tags_priv_note_debt(&t->by_client[id], debt);
}

QOS_API enum qos_status tags_force(struct tags *t, uint64_t now_ns, uint32_t id, uint64_t cost,
                                   struct tags_grant *grant)
{
    struct tags_priv_hot *h;
    struct tags_grant g;
    enum qos_status st;
    bool alone;
    if (!grant)
        return QOS_EINVAL;
    st = tags_priv_find(t, id, &h);
    if (st != QOS_OK)
        return st;
    if (cost > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    cost = qos_max(cost, 1);
    (void)tags_priv_now(t, now_ns);
    if (tags_priv_debt_ns(t, id) > t->config.force_debt_ns) {
        tags_priv_bump(t, id, offsetof(struct tags_counters, refused), 1);
        return QOS_EDEBT;
    }
    alone = h->queued == 0 && h->at_device == 0;
    if (alone)
        tags_priv_join(t, id);
    g.client = id;
    g.phase = TAGS_PHASE_FORCED;
    (void)tags_priv_charge_rates(t, &g, cost, 0, 0); /* forced claims are not refused */
    tags_priv_begin(t);
    tags_priv_charge_share(t, &g, cost, 0);
    tags_priv_count(t, &g, cost);
    tags_priv_count_forced(t, id);
    tags_priv_settle_rates(t, id);
    tags_priv_settle(t, id, true);
    *grant = g;
    return QOS_OK;
}

/* Completions: the request leaves the device. */
QOS_API enum qos_status tags_priv_back(struct tags *t, uint64_t now_ns, const struct tags_grant *g,
                                       struct tags_priv_hot **back)
{
    struct tags_priv_hot *h;
    if (!t || !g || g->client >= t->config.clients)
        return QOS_EINVAL;
    *back = h = &t->hot[g->client];
    if (!(h->packed & (TAGS_PRIV_CLIENT | TAGS_PRIV_LEAVING)) || (h->at_device == 0 && !t->config.no_completions))
        return QOS_EINVAL;
    (void)tags_priv_now(t, now_ns);
    if (!t->config.no_completions) {
        h->at_device--;
        t->at_device--;
    }
    return QOS_OK;
}

/* After a completion. The last one of a removed client frees its place. */
QOS_API void tags_priv_settle_back(struct tags *t, uint32_t id, bool changed)
{
    tags_priv_settle(t, id, changed);
    if (QOS_UNLIKELY((t->hot[id].packed & TAGS_PRIV_LEAVING) != 0) && t->hot[id].at_device == 0)
        tags_priv_clear_client(t, id);
}

QOS_API void tags_priv_measure_exact(struct tags *t, uint32_t id, uint64_t service_ns)
{
    struct tags_priv_mean *m = &t->mean[id];
    uint32_t *slot = &t->ring[(size_t)id * t->config.window + m->block[0]];
    if (m->packed / TAGS_PRIV_ONE_MORE % 8192 == t->config.window)
        m->packed -= *slot;
    else
        m->packed += TAGS_PRIV_ONE_MORE;
    *slot = (uint32_t)service_ns;
    m->packed += service_ns;
    m->block[0] = m->block[0] + 1 == t->config.window ? 0 : m->block[0] + 1;
}

QOS_API void tags_priv_measure(struct tags *t, uint32_t id, uint64_t service_ns)
{
    struct tags_priv_mean *m = &t->mean[id];
    uint64_t sum, blocks = m->packed / TAGS_PRIV_ONE_BLOCK % 8;
    uint32_t i;
    m->packed += service_ns + TAGS_PRIV_ONE_MORE; /* the sum: below 820 * 2^32 */
    if (m->packed / TAGS_PRIV_ONE_MORE % 8192 < t->block_requests)
        return;
    if (blocks == t->blocks) {
        for (i = 1; i < t->blocks; i++)
            m->block[i - 1] = m->block[i];
        blocks--;
    } else {
        m->packed += TAGS_PRIV_ONE_BLOCK;
    }
    sum = m->packed & TAGS_PRIV_SUM_MASK;
    m->block[blocks] = (uint32_t)(sum / t->block_requests); /* a mean: at most QOS_TOKENS_MAX */
    m->packed -= t->block_requests * TAGS_PRIV_ONE_MORE + (sum - sum % t->block_requests);
}

/* F / f < 1 / R, that is F * W * R < w, exactly: F in ns is sum / count, R per 10^9 ns. */
QOS_API bool tags_priv_entitled(const struct tags *t, uint32_t id)
{
    uint64_t count, sum = tags_priv_window(t, &t->mean[id], &count);
    struct qos_u128 need = qos_mul_wide(sum, tags_priv_rate_open(&t->reserve[id]).rate_per_s); /* < 2^45 * 2^41 */
    struct qos_u128 have = qos_mul_wide(count * QOS_NS_PER_S, tags_priv_weight(&t->hot[id]));  /* < 2^43 * 2^41 */
    struct qos_u128 low = qos_mul_wide(need.lo, t->weight_sum), high = qos_mul_wide(need.hi, t->weight_sum);
    struct qos_u128 upper = qos_add_wide(high, tags_priv_wide(0, low.hi));
    return upper.hi == 0 && qos_cmp_wide(tags_priv_wide(upper.lo, low.lo), have) < 0;
}

/* The sTag is brought back to the rTag, in units of the axis, plus what is at the device and was charged already. */
QOS_API bool tags_priv_synchronise(struct tags *t, uint32_t id, uint64_t mean)
{
    struct tags_priv_hot *h = &t->hot[id];
    struct qos_u128 target;
    uint64_t ahead_ns, rest;
    tags_priv_bump(t, id, offsetof(struct tags_counters, synchronised), 1);
    if (!(h->packed & TAGS_PRIV_VIRTUAL)) /* it waits at its limit, in real time: nothing ran ahead */
        return false;
    if (h->queued)
        tags_priv_s_set(t, id, h->tag);
    tags_priv_adjust_with(t, h);
    ahead_ns = qos_min(qos_sat_sub(tags_priv_rate_key(&t->reserve[id]), t->now_ns), TAGS_PRIV_LEAD_MAX >> 8);
    target.hi = (ahead_ns << TAGS_PRIV_FRACTION) / t->weight_sum;
    rest = (ahead_ns << TAGS_PRIV_FRACTION) % t->weight_sum;
    target.lo = qos_div_wide(tags_priv_wide(rest, 0), t->weight_sum, NULL);
    target = qos_add_wide(qos_add_wide(t->v, target), tags_priv_mean_charge(t, id, mean, h->at_device));
    if (qos_cmp_wide(target, tags_priv_wide(h->tag.hi, h->tag.lo)) >= 0)
        return false;
    h->tag.hi = target.hi;
    h->tag.lo = target.lo;
    return true;
}

/* Confirms a change of phase over K completions in a row. Did the sTag change? */
QOS_API bool tags_priv_phase(struct tags *t, uint32_t id, uint64_t mean)
{
    struct tags_priv_mean *m = &t->mean[id];
    bool entitled;
    if (t->config.phase_requests == TAGS_NO_SYNC)
        return false;
    entitled = tags_priv_entitled(t, id);
    m->streak = entitled == ((m->packed & TAGS_PRIV_ENTITLED) != 0) ? 0 : m->streak + 1;
    if (m->streak < t->config.phase_requests)
        return false;
    m->streak = 0;
    m->packed ^= TAGS_PRIV_ENTITLED;
    return entitled && tags_priv_synchronise(t, id, mean);
}

/* Its sTag is charged by the mean with this request. Did it change? */
QOS_API bool tags_priv_correct(struct tags *t, const struct tags_grant *g, uint64_t service_ns)
{
    struct tags_priv_hot *h = &t->hot[g->client];
    struct qos_u128 charge;
    bool changed;
    if (t->ring)
        tags_priv_measure_exact(t, g->client, service_ns);
    else
        tags_priv_measure(t, g->client, service_ns);
    t->estimate = tags_priv_mean_of(t, g->client);
    charge = tags_priv_mean_charge(t, g->client, t->estimate, UINT64_C(1) + g->delta);
    changed = charge.hi != g->charge.hi || charge.lo != g->charge.lo;
    if (changed)
        tags_priv_move(t, h, charge, g->charge);
    if (h->packed & TAGS_PRIV_RESERVED)
        changed = tags_priv_phase(t, g->client, t->estimate) || changed;
    return changed;
}

QOS_API enum qos_status tags_complete(struct tags *t, uint64_t now_ns, const struct tags_grant *grant,
                                      uint64_t service_ns)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_back(t, now_ns, grant, &h);
    bool changed;
    if (st != QOS_OK)
        return st;
    changed = t->mean && tags_priv_correct(t, grant, qos_min(service_ns, QOS_TOKENS_MAX));
    tags_priv_settle_back(t, grant->client, changed);
    return QOS_OK;
}

/* rTag and lTag get their units back. */
QOS_API void tags_priv_refund(struct tags *t, const struct tags_grant *g)
{
    uint64_t packed = t->hot[g->client].packed;
    uint32_t id = g->client;
    if (g->reserved_units && (packed & TAGS_PRIV_RESERVED))
        tags_priv_rate_sub(&t->reserve[id], g->reserved_units);
    if (g->limited_units && (packed & TAGS_PRIV_LIMITED))
        tags_priv_rate_sub(&t->limit[id], g->limited_units);
    if (tags_priv_has_shared(&t->config))
        tags_priv_refund_shared(t, g);
    tags_priv_settle_rates(t, id);
}

QOS_API enum qos_status tags_fail(struct tags *t, uint64_t now_ns, const struct tags_grant *grant, uint64_t service_ns)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_back(t, now_ns, grant, &h);
    if (st != QOS_OK)
        return st;
    tags_priv_bump(t, grant->client, offsetof(struct tags_counters, failed), 1);
    tags_priv_refund(t, grant);
    if (t->mean) {
        struct qos_u128 own = tags_priv_per_weight(h, qos_min(service_ns, QOS_TOKENS_MAX));
        struct qos_u128 elsewhere =
            tags_priv_mean_charge(t, grant->client, tags_priv_mean_of(t, grant->client), grant->delta);
        tags_priv_move(t, h, qos_add_wide(own, elsewhere), grant->charge);
    }
    tags_priv_settle_back(t, grant->client, true);
    return QOS_OK;
}

QOS_API enum qos_status tags_cancel(struct tags *t, uint64_t now_ns, const struct tags_grant *grant)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_back(t, now_ns, grant, &h);
    if (st != QOS_OK)
        return st;
    tags_priv_bump(t, grant->client, offsetof(struct tags_counters, cancelled), 1);
    tags_priv_refund(t, grant);
    tags_priv_move(t, h, tags_priv_wide(0, 0), grant->charge);
    tags_priv_settle_back(t, grant->client, true);
    return QOS_OK;
}

/* ---- intrusive requests */

QOS_API enum qos_status tags_push(struct tags *t, uint64_t now_ns, uint32_t id, struct tags_request *request)
{
    struct tags_priv_queue *q;
    enum qos_status st;
    if (!t || !request || !t->queue || request->rho > request->delta)
        return QOS_EINVAL;
    st = tags_arrive_cost(t, now_ns, id, 1, request->cost);
    if (st != QOS_OK)
        return st;
    q = &t->queue[id];
    request->client = id;
    request->next = NULL;
    request->prev = q->tail;
    if (q->tail)
        q->tail->next = request;
    else
        q->head = request;
    q->tail = request;
    return QOS_OK;
}

QOS_API void tags_priv_unqueue(struct tags *t, struct tags_request *request)
{
    struct tags_priv_queue *q = &t->queue[request->client];
    if (request->prev)
        request->prev->next = request->next;
    else
        q->head = request->next;
    if (request->next)
        request->next->prev = request->prev;
    else
        q->tail = request->prev;
    request->next = request->prev = NULL;
}

QOS_API enum qos_status tags_pop(struct tags *t, uint64_t now_ns, struct tags_request **request)
{
    struct tags_choice choice;
    struct tags_request *head;
    enum qos_status st;
    if (!t || !request || !t->queue)
        return QOS_EINVAL;
    do {
        st = tags_choose(t, now_ns, &choice);
        if (st != QOS_OK)
            return st;
        head = t->queue[choice.client].head;
        if (!head) /* it was counted by tags_arrive, not pushed */
            return QOS_EINVAL;
        st = tags_dispatch(t, now_ns, &choice, head->cost, head->rho, head->delta, &head->grant);
    } while (st == QOS_EAGAIN);
    QOS_ASSERT(st == QOS_OK); /* push has checked what dispatch checks */
    tags_priv_unqueue(t, head);
    *request = head;
    return st;
}

QOS_API enum qos_status tags_unlink(struct tags *t, uint64_t now_ns, struct tags_request *request)
{
    enum qos_status st;
    if (!t || !request || !t->queue)
        return QOS_EINVAL;
    st = tags_priv_withdraw(t, now_ns, request->client, 1, request->cost);
    if (st == QOS_OK)
        tags_priv_unqueue(t, request);
    return st;
}

QOS_API struct tags_request *tags_head(const struct tags *t, uint32_t id)
{
    return t && t->queue && tags_priv_client(t, id) ? t->queue[id].head : NULL;
}

/* ---- statistics */

QOS_API enum qos_status tags_client_stats(const struct tags *t, uint64_t now_ns, uint32_t id,
                                          struct tags_client_state *out)
{
    struct tags_priv_hot *h;
    enum qos_status st = tags_priv_find(t, id, &h);
    if (!out)
        return QOS_EINVAL;
    if (st != QOS_OK)
        return st;
    out->granted = qos_counter_read(&h->granted);
    out->granted_reserved = qos_counter_read(&t->granted_reserved[id]);
    out->queued = h->queued;
    out->at_device = h->at_device;
    out->mean_service_ns = 0;
    if (t->mean) {
        uint64_t count, sum = tags_priv_window(t, &t->mean[id], &count);
        out->mean_service_ns = count ? sum / count : 0;
    }
    out->entitlement_bound = t->mean && (h->packed & TAGS_PRIV_RESERVED) && (t->mean[id].packed & TAGS_PRIV_ENTITLED);
    out->waiting_at_limit = (h->packed & TAGS_PRIV_WAITING) != 0;
    out->limit_debt_ns = 0;
    if (h->packed & TAGS_PRIV_LIMITED)
        out->limit_debt_ns = qos_sat_sub(tags_priv_rate_key(&t->limit[id]), qos_max(now_ns, t->now_ns));
    return QOS_OK;
}

QOS_API void tags_stats(const struct tags *t, struct qos_stats *out)
{
    const struct tags_counters *c = &t->counters;
    out->granted = qos_counter_read(&c->units);
    out->borrowed = qos_counter_read(&c->units_beyond);
    out->refused = qos_counter_read(&c->refused);
    out->waited = qos_counter_read(&c->stepped_aside);
    out->debt = qos_counter_read(&c->debt);
}

QOS_API const struct tags_counters *tags_client_counters(const struct tags *t, uint32_t id)
{
    return t && t->by_client && id < t->config.clients ? &t->by_client[id] : NULL;
}

QOS_API uint64_t tags_debt(const struct tags *t, uint64_t now_ns)
{
    uint64_t debt = 0;
    uint32_t id;
    now_ns = qos_max(now_ns, t->now_ns);
    for (id = 0; id < t->config.clients; id++)
        if (t->hot[id].packed & TAGS_PRIV_LIMITED)
            debt = qos_sat_add(debt, tags_priv_debt_units(t, now_ns, id));
    return debt;
}

QOS_API uint64_t tags_served(const struct tags *t, enum tags_phase phase)
{
    return qos_counter_read(&t->counters.served[phase]);
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_TAGS_H */
