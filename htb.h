/* htb.h - hierarchical token buckets                       SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   One device, many tenants. Each tenant is promised a rate. No tenant may take what
 *   another was promised, and what nobody uses must not be wasted. This header decides
 *   which request may go now. It follows AQuA (Wu and Brandt, MSST 2006), for trees of
 *   any depth.
 *
 * THE MODEL
 *
 *   Each class has a bucket that fills with tokens at its reserved rate. The root's fills
 *   at the rate of the device. What the classes do not use stays in the root's.
 *
 *                     root  40 MB/s                 a request of class gold goes
 *                    /      |       \               1. if its limit allows it, and
 *             best effort  gold   group 20 MB/s     2. if gold has tokens (its own),
 *               0 MB/s    15 MB/s   /     \         3. or else if the nearest ancestor
 *                        limit 30  a 8   b 12          has tokens left (it borrows).
 *
 *   Use it in one of two ways:
 *     gate     htb_take() says yes or no. The queues are yours. If no, ask again at
 *              htb_next_ns(), or submit it with `gate` set: htb_dispatch() says when.
 *     queues   htb_submit(), htb_dispatch(), htb_complete(): a queue for each class and a
 *              dispatch queue before the device (the paper's ODIS).
 *
 * THE CALLS
 *
 *     #include "htb.h"
 *     static unsigned char memory[16384] __attribute__((aligned(64)));
 *     static struct htb_config config;      // zero means the default in every field
 *     static struct htb_class gold;
 *     static struct htb tree;
 *
 *     int main(void)
 *     {
 *         uint64_t now_ns = 1000000000, wake_ns; // from your monotonic clock
 *         struct qos_stats stats;
 *
 *         config.rate_per_s[0] = 40000000;  // what the device always sustains: bytes/s
 *         if (htb_init(&tree, memory, sizeof memory, &config) != QOS_OK)
 *             return 1;                     // htb_config_error(&config) says why
 *
 *         gold.rate_per_s[0] = 15000000;    // 15 MB/s guaranteed, more if some is unused
 *         gold.limit_per_s[0] = 30000000;   // never more than 30 MB/s
 *         if (htb_reserve(&tree, now_ns, 1, &gold, NULL) != QOS_OK)
 *             return 1;                     // htb_class_error(&gold), or it does not fit
 *
 *         if (htb_take(&tree, now_ns, 1, 4096) != QOS_OK) {  // may it send 4096 bytes?
 *             wake_ns = htb_next_ns(&tree, now_ns, 1, 4096); // no: sleep until then
 *             if (htb_take(&tree, wake_ns, 1, 4096) != QOS_OK)
 *                 return 1;
 *         }
 *         return htb_stats(&tree, 1, &stats) == QOS_OK && stats.granted == 4096 ? 0 : 1;
 *     }
 *
 * THE CONTRACT
 *
 *   That of qos.h, and:
 *   - One thread owns a tree: its calls must not overlap. Give each device a tree and a
 *     thread, or take your own lock. Any thread may call htb_stats at any time.
 *   - The memory holds pointers to queued requests: it is private to one process.
 *   - A class of rate R, limit L, burst B and requests of at most n tokens gets
 *         own tokens       at least R * t - one bucket - n in any time t in which a
 *                          request always waits, if the device keeps up; later by what
 *                          one request of each class takes, if that is more than B, as
 *                          far as its limit's bucket holds that. Stalls of up to lag_ns
 *                          are made up, if its limit is above R. A caller at the gate
 *                          may be B late. A slower device cuts all to the same part of R;
 *         a limit          at most L * t + one bucket + n in any time t, and what its
 *                          outstanding requests cost above their estimates; forced and
 *                          urgent ones may take L * debt_ns more. These pass all others:
 *                          give the class that sends them a rate or a limit.
 *     B is burst_ns, 10 ms by default. A bucket is 2 * R * B (its limit's 2 * L * B),
 *     unless request_max_tokens is set: see there. No class lends tokens it wants itself.
 *   - Worst wait of a request of a class that stays within its rate R:
 *         gate             B + n / R
 *         queues           n / R + the dispatched requests + the tree's largest request,
 *                          if the reservations fit the device, whatever other classes do;
 *                          in elevator order also bypass_max requests.
 *   - HTB_BY_FLIGHT moves the device time in flight so that 99 of 100 requests of a class
 *     with latency_ns T complete by S + T, if that helps: S is the later of its arrival
 *     and n / R after the S before it; service above R counts for burst_ns at most. So N
 *     outstanding get min(R, N * n / T). The class that needs the least decides. Pauses
 *     of the device do not count. Without latency_ns, who has one request at a time has
 *     no such promise: nothing of it waits. Give it a T of at most n / R. What hangs at
 *     the device takes its own room only: if nothing completes for 100 ms and 16 usual
 *     gaps, more goes; if that is done first, what was there before counts no more.
 *   - Borrowers of one lender with weights w and requests of at most n tokens get service
 *     in the ratio of the weights: any two differ by at most n1 / w1 + n2 / w2 at any
 *     time. If the lender lends Q tokens/s and the weights add up to W, a borrower waits
 *     at most (n * W / w + the largest request of each other borrower) / Q. Only ratios
 *     of weights matter. So do callers of htb_take that ask until refused and again when
 *     told, or all up to B / 2 later (each with its timer t late: 2 * t * Q / W more; the
 *     chapter "gate" says when), if nothing is queued. Others are promised no share.
 *   - A group's limit stops borrowing only: its classes' reservations may exceed it.
 *   - htb_take is O(depth) while nothing waits, else O(64 * depth * depth), once more for
 *     each claim that ends first. Any other call is O(depth * (depth + log classes)) for
 *     each request moved, each wait that ends; changes, htb_maximize look at all classes.
 */
#ifndef QOS_HTB_H
#define QOS_HTB_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration and public types ----------------------------------------------------------------------------- */

#define HTB_RESOURCES_MAX 4                      /* bytes and operations, reads and writes */
#define HTB_CLASSES_MAX 16777216u                /* ids in one tree */
#define HTB_DISPATCH_MAX 65536u                  /* requests dispatched at once */
#define HTB_WEIGHT_MAX 1000000u                  /* largest weight */
#define HTB_BURST_MAX_NS UINT64_C(1000000000000) /* 1,000 s */
#define HTB_BEST_EFFORT 0u                       /* the class of every id that has no class */
#define HTB_TREES_MAX 64u                        /* trees that share classes */

#if QOS_HAS_ATOMIC64 || defined(QOS_ATOMIC_HOOK)
#define HTB_HAS_SHARED 1 /* several trees can share classes: needs a lock-free 64-bit word */
#else
#define HTB_HAS_SHARED 0
#endif

struct htb;        /* the tree; its fields are private */
struct htb_shared; /* what several trees share; lies in your memory */

/* Order of the dispatch queue. */
enum htb_order {
    HTB_ELEVATOR = 0, /* ascending offsets, then back to the lowest: for disks */
    HTB_FIFO = 1      /* first in, first out: for flash */
};

/* What bounds the requests that go to the device. */
enum htb_bound {
    HTB_BY_FLIGHT = 0, /* the device time in flight: the root's rate counts in admission only; no time is left idle */
    HTB_BY_RATE = 1    /* the root's rate: borrowers wait for its tokens (the paper's way, see htb_maximize) */
};

/* Terms of a class or group. */
struct htb_class {
    uint32_t parent;                         /* id of a group; 0: the root */
    uint32_t weight;                         /* its share when it borrows; 1..HTB_WEIGHT_MAX; 0: 1 */
    uint64_t rate_per_s[HTB_RESOURCES_MAX];  /* reservation, tokens/s; 0: none; at most QOS_RATE_MAX. Own tokens go
                                              * in all resources at once: give it in each that requests use */
    uint64_t limit_per_s[HTB_RESOURCES_MAX]; /* tokens/s, rate_per_s..QOS_RATE_MAX; 0 or QOS_UNLIMITED: none;
                                              * QOS_NOTHING: nothing may go */
    uint64_t burst_ns;                       /* depth of its buckets in time; at most HTB_BURST_MAX_NS; 0: the tree's;
                                              * rounded up to a microsecond */
    uint64_t latency_ns;                     /* HTB_BY_FLIGHT, of a class with a rate: its requests complete this long
                                              * after their turn (see the contract); at most HTB_BURST_MAX_NS; 0: no
                                              * such promise; rounded up to a microsecond */
    uint64_t expires_ns;                     /* time of its automatic release; 0: never; not for groups */
    bool group;                              /* has classes below it, and no requests of its own */
};

struct htb_config {
    uint32_t classes;                       /* ids 0..classes - 1, groups included; 1..HTB_CLASSES_MAX; 0: 16 */
    uint32_t resources;                     /* kinds of cost of a request; 1..HTB_RESOURCES_MAX; 0: 1 */
    uint64_t rate_per_s[HTB_RESOURCES_MAX]; /* of the root: what the device always sustains; 1..QOS_RATE_MAX */
    struct htb_class best_effort;           /* terms of class 0, which every unknown id shares; zero: no reservation,
                                             * no limit; parent 0, no group, no expiry */
    uint64_t burst_ns;                      /* of the root, and of each class that sets none; 1..HTB_BURST_MAX_NS;
                                             * 0: 10 ms, at 40 MB/s one seek's worth of data */
    uint64_t request_max_tokens;            /* how much a bucket holds beside a burst: 1..QOS_TOKENS_MAX / 4; 0:
                                             * another burst; QOS_NOTHING: none, so who asks late at the gate loses
                                             * tokens. Not 0: a group's holds twice that beside a
                                             * claim for all of it. The chapter "tree" has a table */
    uint64_t debt_ns;              /* how far ahead of its rate htb_force may run; 1..HTB_BURST_MAX_NS; 0: 1 s */
    uint64_t lag_ns;               /* a slow device makes up for this much lost service; all classes alike
                                    * lose what is older, also while one request takes longer at the device: give
                                    * more than the largest does; 1..HTB_BURST_MAX_NS; 0: 1 s */
    uint64_t start_ns;             /* the time now */
    uint32_t depth_max;            /* levels below the root; 1..4096; 0: 8 */
    enum htb_bound bound;          /* on requests at the device, see the chapter on flight */
    uint64_t flight_min_ns;        /* HTB_BY_FLIGHT: least device time in flight. A request takes the time of its tokens
                                    * at the root's rates; 0: 1 ns, one request at a time */
    uint64_t flight_max_ns;        /* most; flight_min_ns..HTB_BURST_MAX_NS; 0: max(1 s, flight_min_ns). A class with K
                                    * requests of n tokens outstanding has its share by weight if K * n, at the root's
                                    * rate, is more than w / W of the bound: else all are at the device, which serves
                                    * all alike. Where the knee is wider, less than K * n * W / w here buys shares with
                                    * throughput. Give 50 ms, or
                                    * four of the largest requests if longer, where a device is fast for a while (a
                                    * credit, a write cache), or one of its members is slow: else it may be too wide for
                                    * ten seconds and more, and a few requests are late, or a rate has three quarters of
                                    * it. Give N * n if more than N requests of n ns make it slower until far fewer are
                                    * there (TCP incast) and N * n is below burst_ns: one that is alone may fill that */
    enum htb_order order;          /* of the dispatch queue */
    uint32_t dispatch_max;         /* requests dispatched and not completed; 1..HTB_DISPATCH_MAX; 0: 64.
                                    * They are not called back when a class gets tokens */
    uint32_t device_max;           /* of them at the device; 1..dispatch_max; 0: min(32, dispatch_max) */
    uint32_t bypass_max;           /* requests that may overtake one in elevator order; 0: 64 */
    uint32_t maximize_step;        /* the maximizer changes the root's rate by 1/step; 2..1024; 0: 32 */
    uint64_t maximize_interval_ns; /* at least 1 us; 0: 100 ms */
    uint64_t maximize_rate_max;    /* of the first resource; rate_per_s[0]..QOS_RATE_MAX; 0: QOS_RATE_MAX */
};

/* Several trees, each with its thread, that serve the same classes. */
struct htb_shared_config {
    uint32_t trees;       /* 1..HTB_TREES_MAX */
    uint32_t classes;     /* as in the trees' htb_config; 1..HTB_CLASSES_MAX; 0: 16 */
    uint64_t interval_ns; /* between two exchanges of a tree; 1000..HTB_BURST_MAX_NS; 0: 5 ms */
};

enum htb_request_state { HTB_IDLE = 0, HTB_QUEUED = 1, HTB_DISPATCHED = 2, HTB_AT_DEVICE = 3 };

/* A request in the queues: yours, inside your own struct. Set the first part; set the second to zero once. */
struct htb_request {
    uint32_t class_id;                  /* unknown ids are best effort */
    bool urgent;                        /* goes at once, on debt (as htb_force) */
    bool gate;                          /* if not urgent: waits for its tokens only; done when htb_dispatch gives it */
    uint64_t tokens[HTB_RESOURCES_MAX]; /* its cost in each resource, 0..QOS_TOKENS_MAX */
    uint64_t offset;                    /* its place on the device, for the elevator */

    enum htb_request_state state; /* yours to read; private from the next field on */
    uint32_t slot, payer, paid_by, generation;
    uint64_t since_ns, due_ns, sent_ns, flight_ns;
    struct htb_request *next, *prev;
};

/* What became of a request. */
enum htb_outcome {
    HTB_DONE = 0,    /* the device has worked on it, even if it failed: it is charged */
    HTB_NOT_DONE = 1 /* the device has not worked on it: all its tokens are given back */
};

/* What the maximizer saw at its last look. */
enum htb_scenario {
    HTB_UNCAPPED = 0,          /* 5.5, scenarios 1 and 2: demand or the device is the bound */
    HTB_CAPPED = 1,            /* scenario 3: the root's rate is the bound; raised */
    HTB_CAPPED_AND_BROKEN = 2, /* the root's rate is the bound, and a class misses its rate; lowered */
    HTB_BROKEN = 3             /* a class misses its rate; lowered */
};

/* The tree as a whole (htb_info). */
struct htb_state {
    uint64_t rate_per_s[HTB_RESOURCES_MAX];     /* of the root now: at least the configured one */
    uint64_t reserved_per_s[HTB_RESOURCES_MAX]; /* sum of the reservations below the root */
    uint64_t queued;                            /* requests that wait in the queues of their classes */
    uint32_t dispatched;                        /* requests that wait in the dispatch queue */
    uint32_t at_device;                         /* requests at the device */
    enum htb_scenario scenario;                 /* of the maximizer's last look */
    uint64_t flight_ns;                         /* device time in flight */
    uint64_t hung_ns;                           /* of it, requests that hang: the bound does not count them */
    uint64_t flight_bound_ns;                   /* its bound now; HTB_BY_RATE: QOS_UNLIMITED */
    uint32_t flight_by;                         /* the class that it is narrowed for; QOS_NONE: none; the number of
                                                 * classes: for another tree */
    uint64_t flight_cost_permille;              /* part of the throughput that this took away; 0: none was seen. It
                                                 * may be more: if a class has latency_ns from the start, and hurts
                                                 * none, no wider bound is tried */
};

/* Why the next request of a class is not dispatched yet: the first reason that applies. */
enum htb_wait {
    HTB_WAITS_NOT = 0,     /* it has none */
    HTB_OWN_LIMIT = 1,     /* the limit of its class */
    HTB_PARENT_LIMIT = 2,  /* the limit of a group above it */
    HTB_TURN = 3,          /* tokens are there: others are served before it, or the device is full */
    HTB_LENDERS_TOKENS = 4 /* neither it nor a lender has tokens: others borrowed them */
};

/* One class or group (htb_class_info). */
struct htb_class_state {
    struct htb_class terms; /* as reserved, with defaults filled in; no limit: QOS_UNLIMITED */
    uint32_t queued;        /* class: requests in its queue; group: children */
    uint32_t outstanding;   /* class: requests dispatched or at the device */
    enum htb_wait waits;    /* class: what its next request waits for, as of the latest now_ns */
    uint64_t since_ns;      /* class: when that request was submitted; QOS_NEVER: it has none */
    uint64_t p50_ns;        /* HTB_BY_FLIGHT, class: median time from submission to completion of its latest requests,
                             * in the mean to a tenth; not below 1,024 */
    uint64_t p99_ns;        /* 99th percentile of about the latest 1,000, in the mean to a fifth; both 0: none yet */
};

/* ---- the API at a glance ------------------------------------------------------------------------------------------
 *
 *   htb_config_error    why a configuration is wrong         htb_class_error     why terms are wrong
 *   htb_memsize         bytes of memory for htb_init         htb_init            makes a tree
 *   htb_reserve         admits a class or a group            htb_change          changes its terms
 *   htb_release         ends it                              htb_expired         the next that expired
 *   htb_change_root     changes the device's rate            htb_reset_clock     after a wrong now_ns
 *   htb_take            gate: may n tokens go now?           htb_take_all        the same over all resources
 *   htb_force           takes at once, on bounded debt       htb_next_ns, _all   when would htb_take succeed?
 *   htb_submit          queues a request                     htb_dispatch        the next request for the device
 *   htb_complete        the device is done with it           htb_cancel          takes a queued request back
 *   htb_dispatch_next_ns  when htb_dispatch has the next     htb_queue_next      walks the queue of a class
 *   htb_stats           counters of a class or of all        htb_info            the tree as a whole
 *   htb_class_info      terms and queue of a class           htb_maximize        lets the root's rate rise
 *   htb_shared_config_error, _memsize, _init                 memory that several trees share
 *   htb_join            a tree shares its classes            htb_exchange        moves rates to where the demand is
 */

/* ---- the API ------------------------------------------------------------------------------------------------------
 *
 * Common errors. QOS_EINVAL: an argument that is never right. QOS_ERANGE: a number out of its range. QOS_ENOENT: no
 * such id. After an error the tree is as it was. The time of a tree is the latest now_ns of any call. An earlier now_ns
 * counts as that time, so a clock that goes back and forth gains nothing. A tree must not be NULL. */

/* NULL, or a message that names the wrong field and its remedy. A NULL config is an error too. */
QOS_API const char *htb_config_error(const struct htb_config *config);
/* The same for terms; they are also checked against the tree when they are used. */
QOS_API const char *htb_class_error(const struct htb_class *terms);
/* Bytes for htb_init, aligned to 64; 0 if the configuration is wrong or the size does not fit in a size_t. */
QOS_API size_t htb_memsize(const struct htb_config *config);
/* QOS_EINVAL: mem or config is NULL. QOS_ERANGE: htb_config_error says what. QOS_EALIGN, QOS_EMEMORY. All buckets
 * start empty. */
QOS_API QOS_NODISCARD enum qos_status htb_init(struct htb *tree, void *mem, size_t size_bytes,
                                               const struct htb_config *config);

/* Reserves, if it fits (5.1): at every level the rates of the children add up to at most that of their parent. For the
 * root the configured rate counts. On QOS_OK and QOS_EADMISSION, fits (may be NULL; one number per resource) gets the
 * largest rate that would be admitted here. QOS_ENOENT: id >= classes, or no such parent. QOS_EEXIST. QOS_EINVAL: id
 * 0, a parent that is no group, a group that expires. QOS_ERANGE: see htb_class_error; or expires_ns has passed.
 * QOS_EFULL: deeper than depth_max. O(depth + log classes). */
QOS_API QOS_NODISCARD enum qos_status htb_reserve(struct htb *tree, uint64_t now_ns, uint32_t id,
                                                  const struct htb_class *terms, uint64_t *fits);
/* Changes rates, limits, weight, burst, expiry and parent in one step. Earned tokens stay, up to the new burst; debt
 * stays. A group moves with all below it, O(classes * depth); QOS_EINVAL: to below itself. After a move, the cost of
 * requests dispatched before is not corrected when they complete. `group` must not change (QOS_EINVAL). Id 0 neither
 * moves nor expires. A rate below the sum of the children's: QOS_EADMISSION, and fits gets that sum. Other errors as
 * for htb_reserve. */
QOS_API QOS_NODISCARD enum qos_status htb_change(struct htb *tree, uint64_t now_ns, uint32_t id,
                                                 const struct htb_class *terms, uint64_t *fits);
/* Ends a reservation. Its queued requests go to best effort, in their order. QOS_EINVAL: id 0. QOS_EBUSY: a group with
 * children. */
QOS_API QOS_NODISCARD enum qos_status htb_release(struct htb *tree, uint64_t now_ns, uint32_t id);
/* The id of an expired class, each once; QOS_NONE: no more. Ids that were reserved again are left out. O(depth + log
 * classes) for each that expires. This, a change of classes and htb_release look at all classes with tokens of their
 * own to spend, when one of these expires. */
QOS_API uint32_t htb_expired(struct htb *tree, uint64_t now_ns);
/* New configured rate of the root, one number per resource; the maximizer starts again from it. QOS_EADMISSION: below
 * the sum of the reservations. O(classes). */
QOS_API QOS_NODISCARD enum qos_status htb_change_root(struct htb *tree, uint64_t now_ns, const uint64_t *rate_per_s);

/* Gate. QOS_OK: n tokens of the first resource are taken, send the request. QOS_EAGAIN: nothing is taken, ask again at
 * htb_next_ns; until then the class has a claim to n tokens (see the chapter on the gate). Either tokens are missing,
 * or claims go before it. Or queued requests wait for the same tokens and go first: those of its class, and for
 * borrowed tokens those of all that may borrow there. QOS_ERANGE: n > QOS_TOKENS_MAX. Unknown ids, groups and expired
 * classes are best effort. By flight give all requests of a device to the queues, or none: what passes here, or with
 * `gate`, is not seen at the device, and may get a tenth of its rate beside classes with queues. */
QOS_API QOS_NODISCARD enum qos_status htb_take(struct htb *tree, uint64_t now_ns, uint32_t id, uint64_t n);
/* The same over all resources of the tree, all or none; n[resources]. */
QOS_API QOS_NODISCARD enum qos_status htb_take_all(struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n);
/* For requests that must not wait (flush, journal, metadata): takes n[resources] at once, on debt. QOS_EDEBT, nothing
 * taken: who pays already owes more than rate * debt_ns. That is the class or, if it has no rate, or in joined trees no
 * part of it in this tree, its nearest ancestor with one. Or a limit, of the class or on the way to who pays, is over
 * by more than limit * debt_ns already. So a debt is at most that plus n. O(depth). */
QOS_API QOS_NODISCARD enum qos_status htb_force(struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n);
/* Exact first time at which htb_take succeeds if nobody else takes or asks: now_ns if at once; QOS_NEVER if never, or
 * as queued requests go first: ask again after htb_dispatch, htb_complete, htb_cancel or a change of classes. In a tree
 * that has joined others at most the next exchange, as that changes what the tree has: ask again then. As fast as
 * htb_take. */
QOS_API uint64_t htb_next_ns(const struct htb *tree, uint64_t now_ns, uint32_t id, uint64_t n);
QOS_API uint64_t htb_next_ns_all(const struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n);

/* Queues. The request waits in the queue of its class; keep it alive until it is completed or cancelled. QOS_EINVAL:
 * NULL. QOS_ERANGE: its tokens. QOS_EBUSY: it is queued already. QOS_EDEBT: it is urgent, see htb_force. A request
 * without tokens is free and goes first: charge at least one for all that uses the device, as qos_cost does. */
QOS_API QOS_NODISCARD enum qos_status htb_submit(struct htb *tree, uint64_t now_ns, struct htb_request *request);
/* The next request for the device; NULL: none now, see htb_dispatch_next_ns. Call it until it returns NULL. Limits
 * count a request when it moves to the dispatch queue. With device_max below dispatch_max it may wait there for the
 * device. */
QOS_API struct htb_request *htb_dispatch(struct htb *tree, uint64_t now_ns);
/* Time of the next event: now_ns if htb_dispatch has a request, else the first time at which one can be served or a
 * class expires, if nothing else happens; QOS_NEVER if only a submit or a complete can bring one. By flight that may
 * be the time at which one goes beyond the bound, as all that is at the device may hang. Never late. Early at most
 * once for each limit on a request's way: when that may pass it, but another one does not yet, others have the turn or,
 * by rate, no lender has tokens. */
QOS_API uint64_t htb_dispatch_next_ns(struct htb *tree, uint64_t now_ns);
/* The device is done with a request from htb_dispatch. tokens[resources]: its real cost; the difference from the
 * estimate is charged or given back. NULL: it cost the estimate. HTB_NOT_DONE: it cost nothing. A request that hangs
 * keeps its place in device_max and dispatch_max until then. QOS_EINVAL: it is not at the device. QOS_ERANGE:
 * tokens. */
QOS_API QOS_NODISCARD enum qos_status htb_complete(struct htb *tree, uint64_t now_ns, enum htb_outcome outcome,
                                                   const uint64_t *tokens, struct htb_request *request);
/* Withdraws a request that htb_dispatch has not returned; its tokens are given back. QOS_EINVAL: it is not queued. */
QOS_API QOS_NODISCARD enum qos_status htb_cancel(struct htb *tree, uint64_t now_ns, struct htb_request *request);
/* Walks the queue of a class: the request behind `after` (NULL: the first), or NULL. To cancel while walking, take the
 * next one first. O(1). */
QOS_API struct htb_request *htb_queue_next(const struct htb *tree, uint32_t id, const struct htb_request *after);

/* After a wrong now_ns, far ahead: sets the time to now_ns. Buckets, debts and turns stay as they are. Change times of
 * expiry yourself. O(classes). */
QOS_API void htb_reset_clock(struct htb *tree, uint64_t now_ns);

/* Bandwidth maximizer (5.5): call it often, it looks once per interval. violated: true if your own measurement shows
 * that a class misses its rate. Returns what it saw at its last look. A tree that has joined others stays at the
 * configured rate. O(classes) per look. */
QOS_API enum htb_scenario htb_maximize(struct htb *tree, uint64_t now_ns, bool violated);

/* Several trees with the same classes, one per thread: see the chapter on several threads. Give each tree the whole
 * configuration and all reservations, as if it were the only one. Sizes, alignment and errors as for a tree. */
#if HTB_HAS_SHARED
QOS_API const char *htb_shared_config_error(const struct htb_shared_config *config);
QOS_API size_t htb_shared_memsize(const struct htb_shared_config *config);
QOS_API QOS_NODISCARD enum qos_status htb_shared_init(struct htb_shared *shared, size_t size_bytes,
                                                      const struct htb_shared_config *config);
/* Joins as number `slot` of the trees that share: 0..trees - 1, each once. A tree that joins in the slot of one that is
 * gone takes over what that one held, but not its debts. QOS_EINVAL: NULL; it has joined already, has another
 * number of classes, or has requests queued. QOS_ENOENT: no such slot. Its thread only; O(classes). */
QOS_API QOS_NODISCARD enum qos_status htb_join(struct htb *tree, uint64_t now_ns, struct htb_shared *shared,
                                               uint32_t slot);
/* Moves rates and limits to the trees that have the demand. Returns the time of the next exchange; QOS_NEVER: the tree
 * has not joined. Call it often: before that time it does nothing. Lock-free; an exchange is O(trees) for each class
 * with demand, group above it, and class whose demand came or went elsewhere; and looks at classes / 4096 words. */
QOS_API uint64_t htb_exchange(struct htb *tree, uint64_t now_ns);
#endif

/* Counters of the first resource. Those of a class run from its reservation, and stay after its end until the id is
 * reserved again; debt is that after its last take, less what a later call saw paid, and 0 while granted is. QOS_NONE:
 * sum over all ids, O(classes). A group: zeros; add up its classes. QOS_ENOENT (zeros): id >= classes. Any thread at
 * any time, wait-free. */
QOS_API enum qos_status htb_stats(const struct htb *tree, uint32_t id, struct qos_stats *out);
/* Owner only; O(1). */
QOS_API enum qos_status htb_info(const struct htb *tree, struct htb_state *out);
/* QOS_ENOENT: the id is not reserved. An expired class remains until htb_dispatch, htb_expired or a change of classes
 * ends it. Owner only; O(depth). */
QOS_API enum qos_status htb_class_info(const struct htb *tree, uint32_t id, struct htb_class_state *out);

/* ==== chapter: tree ================================================================================================
 *
 * The buckets (Sections 5.1 and 5.3). Each node of the tree has a rate bucket, and a limit bucket if it has a limit.
 * They are exact (see qos.h). A bucket starts empty, minus any debt of the last holder of its id: a class that is
 * released and reserved again gains nothing. A request of n tokens passes when the bucket holds n or its threshold,
 * whichever is less; a larger one leaves a debt, which is paid off before anything else passes. A burst is
 * rate * burst_ns:
 *
 *     request_max_tokens   a bucket holds      threshold     so
 *       0                  two bursts          one burst     a caller that is up to burst_ns late loses no tokens
 *       m                  one burst and m     all of it     a request up to that leaves no debt
 *       QOS_NOTHING        one burst           all of it     at once goes one burst, or one larger request
 *
 * Where the threshold is all of it, a bucket of a group holds twice that beside a claim for all of it (see the gate).
 * A class that has tokens waits for its turn in the queues. Meanwhile its rate bucket earns above its depth, for up
 * to lag_ns, so a slow device costs no class its rate. A limit bucket does not: to catch up, a class needs a limit
 * above its rate.
 *
 *     take(class, n):  its limit passes, and its rate bucket passes    own tokens: "every class is always able to
 *                                                                      freely request up to its reservation" (5.3)
 *                      else the nearest ancestor whose rate passes     borrowed, if all limits up to there pass
 *                      else                                            refused
 *
 *     charged                    class   groups between   payer   above it
 *       rate buckets, own        yes     (class = payer)          yes
 *       rate buckets, borrowed   no      no               yes     yes
 *       limit buckets            yes     yes              yes     yes
 *
 * Example (Figure 9). Root 40 MB/s; classes of 5, 15 and 20 MB/s; each sends 512 KB requests as fast as it may.
 *
 *     time      class 1   class 2   class 3   why
 *     0-30 s    40 MB/s                       5 of its own, 35 borrowed from the root
 *     30-60 s   15        25                  own 5 and 15; the root's other 20 in equal shares (weights 1:1)
 *     60-90 s   5         15        20        the root has nothing to lend: exactly the reservations
 *
 * Invariants
 *   1. level <= depth, and rate * lag_ns more while HTB_PRIV_OWN is set, or as much again (htb_priv_held), until it is
 *      spent; level >= the floor of debt (qos_level_charge).
 *   2. A rate bucket without a rate has the lowest level, so that it never passes and no charge moves it; `depth` is
 *      then the debt carried over, as a level (0: none). That of a class with a rate is above it.
 *   3. A limit bucket without a limit has rate QOS_UNLIMITED; its level is the debt carried over, its depth what the
 *      rate bucket gains in each ns, in sub-tokens.
 *   4. The rates of a node's children add up to its sum, which is at most its own rate (the root: the configured one).
 *   5. detours = queued requests + claims + nodes with a limit + resources - 1. htb_take takes its short path only if
 *      there is nothing else.
 *
 * docs/papers.md says where we differ from the paper, in this chapter and the others. */

struct htb_priv_bucket {
    int64_t level __attribute__((aligned(8))); /* sub-tokens; htb_stats reads it in any thread: htb_priv_set_level */
    int64_t depth;
    uint64_t rate; /* tokens per second */
};
struct htb_priv_pair {
    struct htb_priv_bucket rate, limit;
};

/* What every take touches: one cache line. */
struct htb_priv_node {
    struct htb_priv_pair pair; /* of the first resource */
    uint64_t last_ns;          /* of the last refill, all resources */
    uint32_t parent;           /* index; QOS_NONE above the root */
    uint16_t depth;            /* levels below the root */
    uint16_t flags;            /* HTB_PRIV_USED ... */
};
QOS_STATIC_ASSERT(sizeof(struct htb_priv_node) == QOS_CACHE_LINE, "a node is one cache line");

/* A node's place in its parent's ring. Kept small: one turn reads several. */
struct htb_priv_ring_entry {
    uint64_t tag;         /* where its next borrowed request starts on the clock of the ring */
    uint32_t left, right; /* in the run: before and behind it; in the heap: children, QOS_NONE: none */
    uint32_t up;          /* in the heap: parent */
    uint32_t rank : 5;    /* in the heap: that of leftist heaps; in the run: 0 */
    uint32_t weight : 20;
    uint32_t returns : 6; /* class: it came back for claims of up to this size, see htb_priv_size_of; while `fresh`,
                           * nothing is known */
    uint32_t fresh : 1;
};

/* A node's other fields. */
struct htb_priv_class {
    struct qos_counters counters;
    union {
        struct {
            struct htb_request *tail; /* ring of waiting requests, last one */
            uint64_t expires_ns;      /* QOS_NEVER if it stays */
            uint32_t queued;          /* requests in that ring */
            uint32_t outstanding;     /* requests of this holder that are dispatched or at the device */
            uint32_t latency_us;      /* promised; 0: none */
            uint16_t p50, p99;        /* measured, see htb_priv_log2 */
            union {
                uint64_t turn_ns;   /* see htb_priv_has_turns: when its next would begin on a device of its own */
                uint64_t rested_ns; /* else: how long it asked for nothing since the last look of the maximizer; while
                                     * HTB_PRIV_RESTS, less the time at which that began (wraps) */
            };
        } leaf;
        struct {
            uint32_t first;     /* of the children that may borrow: the one with the least ring tag; QOS_NONE: none */
            uint32_t run, heap; /* those children: last one of the run, first one of the heap; QOS_NONE: none */
            uint32_t children;  /* how many are reserved */
            uint64_t clock;     /* ring tag of the child that was served last */
            uint64_t sum_per_s; /* rates of the children, first resource */
            uint64_t kept_ns;   /* so long full buckets are kept for those that come back, see htb_priv_keep */
        } group;
    } u;
    uint64_t tag;                             /* own tokens: where the next request starts on the clock of all */
    uint32_t ring_rest : 20, generation : 12; /* remainder of the ring tag; which holder of the id (wraps) */
    uint32_t burst_us;
};

/* A place in the dispatch queue. */
struct htb_priv_slot {
    struct htb_request *request;
    uint64_t entered; /* handed_out when it came */
    uint32_t next;    /* free one */
};

/* Indexed 4-ary min-heap of (key, id), each id at most once. The least id breaks ties. */
struct htb_priv_heap {
    uint64_t *key;
    uint32_t *id;  /* the id of each key */
    uint32_t *pos; /* where each id is, or QOS_NONE */
    uint32_t count;
    int64_t first, step; /* entry i is at first + step * i: two heaps share one memory, from both ends */
};
struct htb_priv_heap_entry {
    uint64_t key;
    uint32_t id;
};

/* One per node in a tree that has joined others; only its thread reads and writes it. */
struct htb_priv_lease {
    uint64_t used, lent;        /* since the last exchange, cost: of a class's requests; that the node paid for */
    uint64_t granted, borrowed; /* class: its counters, less what is not in `used` and `lent` yet (wrap) */
    uint32_t parts;             /* this tree's share of the node's time, of HTB_PRIV_WHOLE */
    bool refused;               /* since the last exchange a request at the gate had to wait to borrow */
    uint32_t demand;            /* this tree's part of the demand for the node, of HTB_PRIV_WANT: at least 1 */
    uint64_t below;             /* of `used`, group: paid by nodes below it */
    uint64_t queued;            /* class: cost of its waiting requests */
    uint64_t asked;             /* cost of the last one that had to wait there since then; 0: none had */
    uint64_t want, want_own;    /* used, but for what is below; below; smoothed */
    uint64_t published;         /* what this tree wants of the node, as of the last exchange */
    uint64_t lacked;            /* group: of its share as of then, what the pool did not have */
    uint64_t turns;             /* group: weights of those that wait to borrow here; weight 1 counts 2^10 */
    uint64_t rate[HTB_RESOURCES_MAX], limit[HTB_RESOURCES_MAX]; /* of all trees together; limits as in buckets */
};

/* A class whose requests are or were late (chapter on flight). */
struct htb_priv_late {
    uint32_t id;          /* QOS_NONE: none; that of the root: the other trees */
    uint16_t bound, from; /* what it narrows the bound to, HTB_PRIV_WIDE: nothing; where that began; logarithms */
    uint16_t speed;       /* of the device before it narrowed in vain; logarithm; 0: not known */
    uint16_t step;        /* by how much the next late request narrows it */
    int32_t credit;       /* latency_ns given: late requests that it may have before that, in HTB_PRIV_GOOD-ths */
    int32_t score;        /* late requests so far, less 1/64 of all, in 64ths; never below -HTB_PRIV_TRUSTED of them */
    uint32_t move, run;   /* the last move; requests in time since then; rate only: of the 16 */
    uint32_t seen, lates; /* latency_ns given: requests in this look, late ones of them */
    uint32_t before;      /* late ones of 64 in the last look at the knee */
    uint64_t behind_ns, at_ns;  /* rate only: how far its service is behind its rate, as of then on the active clock */
    uint64_t stalled_ns;        /* rate only: what pauses took from it, at most lag_ns, less what it has made up for */
    uint64_t begun_ns, sum_ns;  /* when it began to narrow, on the active clock; device time that was complete then */
    uint64_t unit_ns, half_ns;  /* rate only: u as of then; since when the bound is half of `half` or less */
    uint64_t took_ns, was_ns;   /* rate only: what 16 of its requests take at the device, so far; a mean took before */
    uint16_t half, vain;        /* rate only: the bound of the 16 before; how often half of it did not help */
    bool anew;                  /* it was away since it began to narrow */
    uint64_t retry_ns, rest_ns; /* it narrows nothing before; the next rest is twice as long */
};

enum htb_priv_phase { HTB_PRIV_BASE = 0, HTB_PRIV_TRIAL = 1, HTB_PRIV_AGAIN = 2 };
enum htb_priv_move { HTB_PRIV_CUT = 0, HTB_PRIV_CLIMBED = 1, HTB_PRIV_WIDENED = 2 };
#define HTB_PRIV_LATE_MAX 16
#define HTB_PRIV_LOOK_NS UINT64_C(100000000) /* a look of 64 requests may take so long; else it takes 8 */
#define HTB_PRIV_FLIGHT_NS UINT64_C(1250000) /* where the bound begins */
#define HTB_PRIV_FLIGHT_MAX_NS UINT64_C(1000000000)
#define HTB_PRIV_FINE 4        /* the smallest step of the search is 1 / 2^4 */
#define HTB_PRIV_STEP_MAX 256u /* a quarter of an octave: the way back up takes hundreds of requests */
#define HTB_PRIV_STEP_MIN 16u  /* 1.1 %, a third of what total may lack */
#define HTB_PRIV_GOOD 176      /* one late of 176, as one of 100 is allowed and the bound is never quite right */
#define HTB_PRIV_CLUSTER 64    /* late ones of one burst that count */
#define HTB_PRIV_HOPELESS 10   /* late requests: during a search, the way down to a quarter is 9 */
#define HTB_PRIV_TRUSTED 20    /* and so many more, if it was in time before: late ones come in clusters */
#define HTB_PRIV_WIDE 65535u   /* the bound of a class that narrows nothing */
#define HTB_PRIV_HALF 600u     /* a factor of 1.5 as a logarithm */
#define HTB_PRIV_EVEN 20480u   /* HTB_PRIV_WHOLE as a logarithm */
#define HTB_PRIV_PATIENCE_NS UINT64_C(100000000)

/* The controller of the device time in flight. */
struct htb_priv_flight {
    uint64_t now_ns, bound_ns, min_ns, max_ns; /* device time in flight; its bound now, and what that may be */
    uint64_t lends_ns;                         /* of now_ns, what the root lent */
    uint64_t before_ns;                        /* what was in flight as it last lent, and has not left since */
    uint64_t knee_ns;                          /* what the throughput needs */
    uint16_t narrow;                           /* what the late classes need: the least of theirs */
    uint16_t part;                             /* what the root lends has of the bound, of HTB_PRIV_WHOLE; logarithm */
    enum htb_priv_phase phase;
    bool up, searching, full;       /* direction of the trial; look for the knee; a request had to wait for room */
    bool waits;                     /* one does now */
    bool later;                     /* the latest completion came later than the one before */
    bool failed;                    /* the other direction, at this step */
    bool known;                     /* what narrowing costs: a wider knee was tried in vain */
    bool hurts;                     /* the trial delays own tokens */
    bool draining;                  /* more is in flight than a bound that was narrowed */
    bool alone;                     /* one class has the device for itself */
    uint32_t step;                  /* the bound changes by 1 + 2^-step */
    uint32_t times;                 /* different times of completions in this look */
    uint32_t longer;                /* looks are 4^longer times as long, as the demand or the device varies */
    uint32_t by;                    /* class that the bound is narrowed for; QOS_NONE */
    uint32_t had;                   /* requests that are at the device still since the last gap that may be a pause */
    uint64_t base_ns;               /* the knee while another one is tried */
    uint64_t look_speed;            /* the best of the looks at the knee, of late */
    uint64_t wide_ns, wide_done_ns; /* time at the knee, of late, and what was completed in it */
    uint64_t wide_at_ns;            /* so far that is counted, on the active clock */
    uint64_t speed[3];              /* by phase: device time completed in 2^20 ns */
    uint64_t settled_speed, probe_ns, hold_ns; /* when the knee was found; the next search; its pause */
    uint64_t settle_ns, changed_ns;            /* device time that the old bound let in; when it changed */
    uint64_t stay, held, filling_ns; /* of this look, / 2^10: time at the device * device time of what is complete; time
                                      * * device time in flight; device time complete in looks that began again */
    uint64_t base_stay;              /* htb_priv_stay of the look at the knee */
    uint64_t waited, on_end;         /* complete while others wait: in this look; on end, at the knee */
    uint32_t waits_of[3], found_waits;      /* of 64 requests, so many did: by phase; when the knee was judged */
    uint64_t n, done_ns, begun_ns, most_ns; /* of this look: requests, device time, begin (active); most in flight */
    uint64_t active_ns, last_ns, gap_ns,
        pause_end_ns;                   /* the clock without pauses; last completion; longest usual gap */
    uint64_t stalled_ns, stalled_at_ns; /* pauses, of the latest lag_ns; the last one on the active clock */
    uint64_t took_ns, cost_ns;          /* of the latest 64 requests or so: at the device; device time */
    uint64_t gap_end_ns, hidden_ns;     /* the last gap that may be a pause: its end; how much longer than usual */
    uint64_t had_ns;                    /* device time of what was in flight then */
    uint64_t dry_ns, dry_at_ns;         /* idle as the caller was late, less 1/128 of the time; on the active clock */
    uint64_t sum_ns;                    /* device time completed */
    uint64_t lent_ns;                   /* when no own tokens waited for room, on the active clock */
    uint64_t gate_end_ns;               /* until then the device is taken to serve gate requests */
    uint64_t completed_ns;              /* time of the latest completion */
    uint64_t moved_ns, extra_ns;  /* since then nothing completed, all sent is beyond the bound; these: their time */
    uint64_t next_ns;             /* when the next may go, or when that is looked at */
    uint64_t hung_ns, hung_at_ns; /* device time that hangs, not in now_ns; what was sent before then does */
    uint64_t alone_ns;            /* the bound for one that is alone: what a newcomer may wait for */
    uint64_t alone_from_ns;       /* when one is alone, if no other asks; on the active clock */
    uint64_t lone_ns, lone_speed; /* its bound now; its speed under half of that, 0: not known */
    uint64_t lone_retry_ns;       /* it gets no wider before; on the active clock */
    struct htb_priv_late *cls;    /* HTB_PRIV_LATE_MAX */
};

/* What a class that was refused at the gate needs (chapter on the gate). */
struct htb_priv_claim {
    uint64_t until_ns;
    uint64_t n[HTB_RESOURCES_MAX];
    uint64_t times;      /* how many such requests go before the class that htb_priv_claims_before looked at */
    uint32_t id, reach;  /* its class; up to which node its limits pass it */
    bool returns, fresh; /* its class came back for one of this size; it is not known whether it does */
    uint8_t lacks;       /* bits: the resources that it waits for */
};
#define HTB_PRIV_CLAIMS_MAX 64u /* the bits of a set of claims */

/* Chapter "queues": requests from their class's turn to their completion. */
struct htb_priv_dispatch {
    struct htb_priv_slot *slot;    /* of the dispatch queue */
    struct htb_priv_heap sweep[2]; /* slots by offset: this sweep, the next one */
    struct htb_request *urgent;    /* ring, last one; goes before all others */
    struct htb_request *newest;    /* the same of the dispatch queue */
    uint32_t free_slot;            /* QOS_NONE: none */
    uint32_t waiting, at_device;   /* requests in the dispatch queue; handed out */
    uint32_t this_sweep;           /* index into sweep */
    uint64_t head_offset, handed_out;
};

/* Chapter "maximizer": the root's rate follows what the device does. */
struct htb_priv_maximize {
    bool starved;     /* since the last look: requests waited for root tokens */
    bool was_starved; /* at the look before */
    uint32_t looks;   /* at a rate above slow_from, which was too high before: one of 8 may raise it */
    uint64_t last_ns, granted, slow_from;
};

/* Chapter "several threads": what this tree has of the rates that it shares with others. */
struct htb_priv_joined {
    struct htb_priv_lease *lease; /* NULL: has not joined other trees */
    struct htb_shared *shared;
    uint32_t *visit; /* the nodes that the next exchange looks at, in any order */
    uint32_t visits;
    uint32_t slot;
    uint64_t exchange_ns, exchanged_ns; /* the next exchange; the last */
    uint64_t clock;                     /* what the root's ring's is moved by (wraps) */
    uint32_t fits, least;               /* the bound told, as this tree has few places, HTB_PRIV_WIDE: none; the least
                                         * that may be; logarithms */
};

struct htb {
    struct htb_priv_node *node; /* classes + 1: the last one is the root */
    struct htb_priv_class *cls;
    struct htb_priv_ring_entry *turn;
    struct htb_priv_pair *more;   /* buckets of the resources after the first */
    uint64_t *more_sum;           /* sums of the children's rates in them */
    struct htb_priv_claim *claim; /* min(classes, HTB_PRIV_CLAIMS_MAX) */
    struct htb_priv_heap own;     /* nodes whose own tokens pass their next request, by finish tags */
    struct htb_priv_heap event;   /* nodes that wait, by time; a node is in at most one of these two */
    uint32_t classes, resources;
    uint32_t claims, gates; /* gate: requests in the queues that are for it */
    uint64_t detours;       /* invariant 5 */
    enum htb_scenario scenario;
    enum htb_bound bound;
    bool root_ready; /* the root's tokens pass the next request of its ring */
    uint8_t half;    /* 1: buckets hold two bursts, the threshold is one; 0: see request_max_tokens */
    uint32_t notice; /* the last of a list of expired classes that htb_expired has not returned; QOS_NONE: none */
    uint64_t own_expiry_ns;        /* no class in the heap of own tokens expires before */
    uint64_t root_wake_ns;         /* when root_ready becomes true; QOS_NEVER: no request waits for it */
    struct htb_request *root_next; /* the next request of its ring; NULL: none */
    uint64_t root_next_ns;         /* its device time in flight */
    uint64_t now_ns;               /* the latest time seen */
    uint64_t tag_offset;           /* the clock of the own tags is now_ns less this */
    uint64_t lag_ns, request_max_tokens, queued;
    uint64_t granted; /* as in the rings, to all classes (wraps) */
    struct htb_priv_dispatch dispatch;
    struct htb_priv_flight flight;
    struct htb_priv_maximize maximize;
    struct htb_priv_joined joined;
    struct htb_config set; /* with its defaults filled in; rate_per_s: the configured rate, the paper's original G */
};

/* See "several threads". */
struct htb_shared {
    uint64_t trees, classes, interval_ns, unused;
};

#ifndef QOS_DECLARE_ONLY

#define HTB_PRIV_INLINE QOS_PRIV __attribute__((always_inline))
#define HTB_PRIV_FLOOR (-2 * (int64_t)QOS_TOKENS_MAX * QOS_SUBTOKENS) /* lowest level, see qos_level_charge */

static const uint64_t htb_priv_nothing[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
#define HTB_PRIV_WHOLE (1u << 20) /* parts of a node's time that trees share */
#define HTB_PRIV_WANT 1024        /* an offer counts 1/1024 of a token */

#define HTB_PRIV_USED 1u
#define HTB_PRIV_GROUP 2u
#define HTB_PRIV_LIMITED 4u /* a limit in any resource */
#define HTB_PRIV_EXPIRES 8u
#define HTB_PRIV_OWN 16u       /* in the heap of own tokens: they pass its next request */
#define HTB_PRIV_RING 32u      /* may borrow, in its parent's ring: its limit passes its next request */
#define HTB_PRIV_BACKLOG 64u   /* has a next request */
#define HTB_PRIV_NOTED 128u    /* is in joined.visit; in a tree that has not joined others: used */
#define HTB_PRIV_NOTICE 512u   /* expired, not yet returned by htb_expired */
#define HTB_PRIV_WATCHED 1024u /* has a place in flight.cls */
#define HTB_PRIV_RESTED 2048u  /* group: at the last look of the maximizer, it asked for nothing */
#define HTB_PRIV_RESTS 4096u   /* class: has nothing queued or outstanding */

/* `parts` of some time. */
QOS_PRIV uint64_t htb_priv_part_of(uint64_t parts, uint64_t ns)
{
    return ns % HTB_PRIV_WHOLE * parts / HTB_PRIV_WHOLE + ns / HTB_PRIV_WHOLE * parts;
}

/* A tree's part of some time of the node: all of it, if it has not joined others. */
QOS_PRIV_NOINLINE uint64_t htb_priv_part_ns(const struct htb *tree, uint32_t id, uint64_t ns)
{
    return tree->joined.lease ? htb_priv_part_of(tree->joined.lease[id].parts, ns) : ns;
}

/* The next exchange looks at the node. */
QOS_PRIV void htb_priv_note(struct htb *tree, uint32_t id)
{
    if (tree->node[id].flags & HTB_PRIV_NOTED)
        return;
    QOS_ASSERT(tree->joined.visits <= tree->classes);
    tree->node[id].flags |= HTB_PRIV_NOTED;
    tree->joined.visit[tree->joined.visits++] = id;
}

/* How a request of n tokens at a node can be sent, if nobody else takes or asks. */
struct htb_priv_way {
    uint64_t send_ns;        /* the first time at which it can, from its own tokens or a lender's */
    uint32_t payer, blocked; /* who pays, if that is now; the first node whose limit does not pass it now; QOS_NONE */
};

/* Defined in later chapters. */
#define HTB_PRIV_KEPT (UINT64_C(1) << 63) /* see htb_priv_claimed */
QOS_PRIV_NOINLINE uint64_t htb_priv_claimed(const struct htb *tree, const struct htb_priv_bucket *b, uint32_t r,
                                            int64_t level_sub, uint64_t some);
QOS_PRIV_NOINLINE int64_t htb_priv_held(const struct htb *tree, uint32_t id, const struct htb_priv_bucket *b,
                                        uint32_t r);
QOS_PRIV uint64_t htb_priv_exp2(uint16_t log);
QOS_PRIV uint64_t htb_priv_ring_cost(const struct htb *tree, const uint64_t *n);
QOS_PRIV struct htb_priv_heap_entry htb_priv_heap_at(const struct htb_priv_heap *heap, uint32_t i);
QOS_PRIV uint64_t htb_priv_claimed_tag(const struct htb *tree, uint32_t group);
QOS_PRIV_NOINLINE bool htb_priv_end_claims(struct htb *tree, uint32_t above, uint64_t now_ns);
QOS_PRIV_NOINLINE void htb_priv_renew_claims(struct htb *tree, uint32_t above, uint64_t now_ns);
QOS_PRIV_NOINLINE void htb_priv_end(struct htb *tree, uint32_t id, bool expired, uint64_t now_ns);
QOS_PRIV_NOINLINE struct htb_priv_way htb_priv_way_of(const struct htb *tree, uint32_t id, const uint64_t *n, bool gate,
                                                      uint64_t now_ns);
QOS_PRIV_NOINLINE enum qos_status htb_priv_force(struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n,
                                                 uint32_t *payer);

QOS_PRIV void htb_priv_mark(struct htb *tree, uint32_t id, unsigned flag, bool on)
{
    tree->node[id].flags = (uint16_t)(on ? tree->node[id].flags | flag : tree->node[id].flags & ~flag);
}

/* The time of the tree: the latest that it was given. */
QOS_PRIV uint64_t htb_priv_now(struct htb *tree, uint64_t now_ns)
{
    return tree->now_ns = now_ns > tree->now_ns ? now_ns : tree->now_ns;
}

QOS_PRIV struct htb_priv_pair *htb_priv_pair_of(const struct htb *tree, uint32_t id, uint32_t r)
{
    return r == 0 ? &tree->node[id].pair : &tree->more[(size_t)id * (tree->resources - 1) + r - 1];
}

/* The pair behind that of resource *r, which becomes the next; NULL: there is none. */
QOS_PRIV struct htb_priv_pair *htb_priv_next_pair(const struct htb *tree, uint32_t id, uint32_t *r)
{
    return QOS_LIKELY(++*r == tree->resources) ? NULL : htb_priv_pair_of(tree, id, *r);
}

QOS_PRIV uint64_t *htb_priv_sum_of(const struct htb *tree, uint32_t id, uint32_t r)
{
    return r == 0 ? &tree->cls[id].u.group.sum_per_s : &tree->more_sum[(size_t)id * (tree->resources - 1) + r - 1];
}

/* The reserved rate, of all trees together. The bucket has this tree's part of the time; none: no rate. */
QOS_PRIV uint64_t htb_priv_rate_of(const struct htb *tree, uint32_t id, uint32_t r)
{
    return tree->joined.lease ? tree->joined.lease[id].rate[r] : htb_priv_pair_of(tree, id, r)->rate.rate;
}

QOS_PRIV uint64_t htb_priv_limit_of(const struct htb *tree, uint32_t id, uint32_t r)
{
    return tree->joined.lease ? tree->joined.lease[id].limit[r] : htb_priv_pair_of(tree, id, r)->limit.rate;
}

/* Any thread may read a level: htb_stats tells the debt. */
QOS_PRIV void htb_priv_set_level(struct htb_priv_bucket *b, int64_t level)
{
    qos_counter_add((qos_counter_t *)&b->level, qos_wrap_sub((uint64_t)level, (uint64_t)b->level));
}

/* Depth of a bucket of the node, in sub-tokens. */
QOS_PRIV int64_t htb_priv_depth(const struct htb *tree, uint32_t id, uint64_t rate_per_s)
{
    const uint64_t burst_ns = (uint64_t)tree->cls[id].burst_us * 1000 << tree->half;
    uint64_t depth = qos_sat_add(qos_sat_mul(rate_per_s, htb_priv_part_ns(tree, id, burst_ns)),
                                 tree->request_max_tokens * (uint64_t)QOS_SUBTOKENS);
    return (int64_t)qos_min(depth, QOS_TOKENS_MAX * (uint64_t)QOS_SUBTOKENS);
}

/* The least level at which a bucket passes n tokens. */
QOS_PRIV int64_t htb_priv_gate(const struct htb *tree, const struct htb_priv_bucket *b, uint64_t n)
{
    return qos_level_gate(b->depth >> tree->half, (int64_t)n * QOS_SUBTOKENS);
}

/* A new rate starts with an empty bucket, minus any debt carried over. 0: nothing passes. A limit of QOS_UNLIMITED:
 * none. */
QOS_PRIV void htb_priv_set_bucket(const struct htb *tree, uint32_t id, struct htb_priv_bucket *b, uint64_t rate_per_s)
{
    const int64_t level = b->rate == 0 ? b->depth : b->level;
    b->rate = rate_per_s;
    if (rate_per_s == 0) {
        b->depth = level <= HTB_PRIV_FLOOR ? HTB_PRIV_FLOOR + 1 : level < 0 ? level : 0; /* above the level */
        htb_priv_set_level(b, HTB_PRIV_FLOOR);
    } else {
        b->depth = rate_per_s == QOS_UNLIMITED ? 0 : htb_priv_depth(tree, id, rate_per_s);
        htb_priv_set_level(b, level < b->depth ? level : b->depth);
    }
}

/* Sets both buckets of resource r. */
QOS_PRIV void htb_priv_set_pair(struct htb *tree, uint32_t id, uint32_t r, uint64_t rate_per_s, uint64_t limit_per_s)
{
    struct htb_priv_pair *p = htb_priv_pair_of(tree, id, r);
    if (tree->joined.lease) {
        tree->joined.lease[id].rate[r] = rate_per_s;
        tree->joined.lease[id].limit[r] = limit_per_s;
        rate_per_s = tree->joined.lease[id].parts != 0 ? rate_per_s : 0;
        limit_per_s = tree->joined.lease[id].parts != 0 || limit_per_s == QOS_UNLIMITED ? limit_per_s : 0;
    }
    htb_priv_set_bucket(tree, id, &p->rate, rate_per_s);
    htb_priv_set_bucket(tree, id, &p->limit, limit_per_s);
    if (limit_per_s == QOS_UNLIMITED)
        p->limit.depth = (int64_t)htb_priv_part_ns(tree, id, rate_per_s);
}

/* What the device's pauses of the latest lag_ns took from a class whose requests are all at the device. */
QOS_PRIV uint64_t htb_priv_stalled_ns(const struct htb *tree, uint32_t id)
{
    if (QOS_LIKELY(tree->flight.stalled_ns == 0) || (tree->node[id].flags & HTB_PRIV_GROUP))
        return 0;
    return tree->cls[id].u.leaf.outstanding != 0 ? tree->flight.stalled_ns : 0;
}

/* The level of a bucket of the node at now_ns. With parts of the time, what is less than 1 in a ns comes at the end of
 * each WHOLE ns: so no rate is rounded. */
HTB_PRIV_INLINE int64_t htb_priv_earned(const struct htb *tree, uint32_t id, const struct htb_priv_bucket *b,
                                        int64_t depth, uint64_t now_ns)
{
    const uint64_t last_ns = tree->node[id].last_ns;
    uint64_t whole; /* at most 2^60 */
    int64_t level;
    if (QOS_LIKELY(tree->joined.lease == NULL))
        return qos_level_refill(b->level, depth, b->rate, now_ns - last_ns);
    whole = b->rate * tree->joined.lease[id].parts;
    level = qos_level_refill(b->level, depth, whole / HTB_PRIV_WHOLE, now_ns - last_ns);
    return qos_level_refill(level, depth, whole % HTB_PRIV_WHOLE, now_ns / HTB_PRIV_WHOLE - last_ns / HTB_PRIV_WHOLE);
}

HTB_PRIV_INLINE void htb_priv_earn(const struct htb *tree, uint32_t id, uint64_t now_ns)
{
    struct htb_priv_node *node = &tree->node[id];
    struct htb_priv_pair *p;
    const bool claims = tree->claims != 0 && !tree->half;
    uint64_t more_ns; /* how long the rate buckets earn above their depth */
    uint32_t r = 0;
    more_ns = node->flags & HTB_PRIV_OWN ? tree->lag_ns : htb_priv_stalled_ns(tree, id);
    if ((node->flags & (HTB_PRIV_OWN | HTB_PRIV_BACKLOG)) == HTB_PRIV_BACKLOG &&
        tree->event.pos[id] != QOS_NONE) { /* so long it had its tokens, and nobody called */
        const uint64_t had_ns = qos_sat_sub(now_ns, htb_priv_heap_at(&tree->event, tree->event.pos[id]).key);
        more_ns = qos_max(more_ns, qos_min(had_ns, tree->lag_ns));
    }
    QOS_ASSERT(more_ns <= tree->lag_ns);
    for (p = &node->pair; p; p = htb_priv_next_pair(tree, id, &r)) {
        uint64_t depth = (uint64_t)(claims ? htb_priv_held(tree, id, &p->rate, r) : p->rate.depth);
        if (QOS_UNLIKELY(more_ns != 0) && p->rate.rate != 0)
            depth = qos_min(qos_sat_add(qos_sat_mul(p->rate.rate, htb_priv_part_ns(tree, id, more_ns)), depth),
                            QOS_TOKENS_MAX * (uint64_t)QOS_SUBTOKENS);
        htb_priv_set_level(&p->rate, htb_priv_earned(tree, id, &p->rate, (int64_t)depth, now_ns));
        if ((node->flags & HTB_PRIV_LIMITED) && p->limit.rate != QOS_UNLIMITED)
            p->limit.level = htb_priv_earned(tree, id, &p->limit,
                                             claims ? htb_priv_held(tree, id, &p->limit, r) : p->limit.depth, now_ns);
        QOS_ASSERT(p->limit.level / 2 <= p->limit.depth);
    }
    node->last_ns = now_ns;
}

/* In a tree that has joined others also the nodes above it: none is as of an earlier time than one below it. */
QOS_PRIV_NOINLINE void htb_priv_earn_up(const struct htb *tree, uint32_t id, uint64_t now_ns)
{
    do {
        htb_priv_earn(tree, id, now_ns);
        id = tree->node[id].parent;
    } while (QOS_UNLIKELY(tree->joined.lease != NULL) && id != QOS_NONE && now_ns > tree->node[id].last_ns);
}

QOS_PRIV void htb_priv_refill(const struct htb *tree, uint32_t id, uint64_t now_ns)
{
    if (now_ns > tree->node[id].last_ns)
        htb_priv_earn_up(tree, id, now_ns);
}

/* All nodes, before the first of them has another time or part: that of one goes up. */
QOS_PRIV void htb_priv_refill_all(const struct htb *tree, uint64_t now_ns)
{
    uint32_t id;
    for (id = 0; id <= tree->classes; id++)
        htb_priv_refill(tree, id, now_ns);
}

/* For a node without waiting requests: drops what it earned above the depth of its buckets. */
QOS_PRIV void htb_priv_cut(const struct htb *tree, uint32_t id)
{
    uint32_t r;
    for (r = 0; r < tree->resources; r++) {
        struct htb_priv_bucket *b = &htb_priv_pair_of(tree, id, r)->rate;
        htb_priv_set_level(b, b->rate != 0 && b->level > b->depth ? b->depth : b->level);
    }
}

/* First time, not before now, at which bucket b of the node has `level_sub`, which is more than it has. */
QOS_PRIV_NOINLINE uint64_t htb_priv_bucket_ready_ns(const struct htb *tree, uint32_t id,
                                                    const struct htb_priv_bucket *b, int64_t level_sub, uint64_t now_ns)
{
    uint64_t last_ns = tree->node[id].last_ns, ns = 0, whole, lack;
    if (b->rate == 0)
        return QOS_NEVER;
    if (QOS_LIKELY(tree->joined.lease == NULL)) {
        ns = qos_level_wait_ns(b->level, level_sub, b->rate);
    } else { /* from the last whole WHOLE on; see htb_priv_earned */
        whole = b->rate * tree->joined.lease[id].parts;
        lack =
            qos_wrap_sub((uint64_t)level_sub, (uint64_t)b->level) + whole / HTB_PRIV_WHOLE * (last_ns % HTB_PRIV_WHOLE);
        last_ns -= last_ns % HTB_PRIV_WHOLE;
        ns = qos_min(qos_level_wait_ns(0, (int64_t)(lack % whole), whole / HTB_PRIV_WHOLE), HTB_PRIV_WHOLE);
        ns = qos_sat_add(ns, qos_sat_mul(lack / whole, HTB_PRIV_WHOLE));
    }
    return qos_max(now_ns, qos_sat_add(last_ns, ns));
}

/* First time, not before from_ns, at which the node's rate buckets, or its limit buckets, pass n[resources] and hold
 * beside it what some claims need there. */
HTB_PRIV_INLINE uint64_t htb_priv_ready_ns(const struct htb *tree, uint32_t id, bool limit, const uint64_t *n,
                                           uint64_t some, uint64_t from_ns)
{
    const struct htb_priv_pair *p;
    uint64_t ready_ns = from_ns;
    uint32_t r = 0;
    for (p = &tree->node[id].pair; p; p = htb_priv_next_pair(tree, id, &r)) {
        const struct htb_priv_bucket *b = limit ? &p->limit : &p->rate;
        int64_t level_sub = htb_priv_gate(tree, b, n[r]);
        if (n[r] == 0 || b->rate == QOS_UNLIMITED)
            continue;
        if (QOS_UNLIKELY(some != 0)) {
            const uint64_t claimed_sub = htb_priv_claimed(tree, b, r, level_sub, some);
            if (claimed_sub >= HTB_PRIV_KEPT)
                ready_ns = qos_max(ready_ns, tree->cls[id].u.group.kept_ns);
            level_sub = (int64_t)(claimed_sub & ~HTB_PRIV_KEPT);
        }
        if (b->level < level_sub)
            ready_ns = qos_max(ready_ns, htb_priv_bucket_ready_ns(tree, id, b, level_sub, from_ns));
    }
    return ready_ns;
}

QOS_PRIV void htb_priv_count(struct htb *tree, uint32_t id, uint64_t tokens, uint64_t borrowed)
{
    struct qos_counters *c = &tree->cls[id].counters;
    qos_counter_add(&c->granted, tokens);
    qos_counter_add(&c->borrowed, borrowed);
}

/* The level of a bucket after a charge; below 0: tokens are given back, up to its depth. */
QOS_PRIV int64_t htb_priv_charged(const struct htb_priv_bucket *b, int64_t n_sub)
{
    if (QOS_LIKELY(n_sub >= 0))
        return qos_level_charge(b->level, n_sub);
    if (b->rate == 0 || b->level >= b->depth)
        return b->level;
    return b->level >= b->depth + n_sub ? b->depth : b->level - n_sub;
}

/* Charges a request of class `id` that `payer` pays for: n, less what was charged before. */
QOS_PRIV_NOINLINE void htb_priv_charge(struct htb *tree, uint32_t id, uint32_t payer, const uint64_t *n,
                                       const uint64_t *before, uint64_t now_ns)
{
    const uint64_t cost = htb_priv_ring_cost(tree, n), first = qos_wrap_sub(n[0], before[0]);
    struct htb_priv_pair *p;
    uint32_t at, r;
    bool pays = false;
    for (at = id; at != QOS_NONE; at = tree->node[at].parent) {
        pays = pays || at == payer;
        htb_priv_refill(tree, at, now_ns); /* before the charge, so that overflow is lost, not spent */
        for (r = 0, p = &tree->node[at].pair; p; p = htb_priv_next_pair(tree, at, &r)) {
            const int64_t n_sub = (int64_t)qos_wrap_sub(n[r], before[r]) * QOS_SUBTOKENS;
            if (pays)
                htb_priv_set_level(&p->rate, htb_priv_charged(&p->rate, n_sub));
            if (p->limit.rate != QOS_UNLIMITED)
                p->limit.level = htb_priv_charged(&p->limit, n_sub);
            QOS_ASSERT(p->rate.level >= HTB_PRIV_FLOOR && p->limit.level >= HTB_PRIV_FLOOR);
            QOS_ASSERT(p->rate.rate != 0 || p->rate.level == HTB_PRIV_FLOOR);
        }
    }
    if (QOS_UNLIKELY(tree->node[id].pair.rate.level == HTB_PRIV_FLOOR) && tree->node[id].pair.rate.rate != 0)
        htb_priv_set_level(&tree->node[id].pair.rate, HTB_PRIV_FLOOR + 1); /* invariant 2 */
    htb_priv_count(tree, id, first, payer == id ? 0 : first);
    tree->granted = qos_wrap_add(tree->granted, cost);
    if (before != htb_priv_nothing)
        tree->granted = qos_wrap_sub(tree->granted, htb_priv_ring_cost(tree, before));
    if (QOS_UNLIKELY(tree->joined.lease != NULL)) { /* costs are counted here, tokens of the short path by counters */
        struct htb_priv_lease *lease = tree->joined.lease;
        lease[id].granted = qos_wrap_add(lease[id].granted, first);
        lease[id].borrowed = qos_wrap_add(lease[id].borrowed, payer == id ? 0 : first);
        if (before == htb_priv_nothing) {
            lease[id].used += cost;
            lease[payer == QOS_NONE ? tree->classes : payer].lent += cost;
            htb_priv_note(tree, id);
        }
    }
}

/* Is each of the n[resources] numbers of tokens in its range? */
QOS_PRIV bool htb_priv_in_range(const struct htb *tree, const uint64_t *n)
{
    uint32_t r;
    for (r = 0; r < tree->resources; r++)
        if (n[r] > QOS_TOKENS_MAX)
            return false;
    return true;
}

/* ==== chapter: queues ==============================================================================================
 *
 * ODIS, the Object Disk I/O Scheduler (Section 5.2). Each class has a queue; what may go moves to one dispatch queue in
 * elevator order, from which the device is fed.
 *
 *     queue of class a  |r r r|--,    own: nodes whose own tokens pass their next request, least finish tag first
 *     queue of class b  |r|------+--> ring of a group: nodes that may borrow from it, least ring tag first
 *     queue of class c  |r r|----'    event: nodes that wait for tokens or for their expiry
 *                                          |
 *                                          '--> dispatch queue (dispatch_max) --> device (device_max)
 *
 * Own tokens are served first, in the order of finish tags: a request of n tokens of a class of rate R is due n / R
 * after its start, and the next one starts then (earliest deadline first). If the reservations fit the device, no class
 * waits longer than n / R and what is being served. All tags are on one clock. If the device gives less, all tags fall
 * behind the clock, and every class gets the same part of its rate. If they are more than lag_ns behind, the clock is
 * set back: so all classes lose the same time of an old shortage. A class that has demand again starts at the clock or
 * at the first tag that is behind the clock, but not before its own tag: a pause earns nothing, and a newcomer does not
 * wait for older shortages. Several resources: n / R is the longest over the resources. A group that lends its tokens
 * has a tag as a class has.
 *
 * If no class has own tokens, the root lends. A lender serves its ring by start-time fair queueing: a request of cost n
 * moves the ring tag of its class on by n / weight, and that of each group up to the lender; the least tag is next. The
 * clock of a ring is the tag that was served last; a class that joins starts there or at its own tag. What a completion
 * gives back moves both back. The class that has the turn keeps it until it is served, so small requests do not starve
 * a large one. With several resources the cost is the time that the request takes at the root's rates, the longest over
 * the resources.
 *
 * The dispatch queue is swept in one direction, then from the lowest offset again; or it is first in, first out. A
 * request is overtaken by at most bypass_max + dispatch_max others. Urgent requests go before all others, and do not
 * count in dispatch_max. A gate request is done when it has its turn; by flight it is taken to be at the device for the
 * time of its tokens.
 *
 * Invariants
 *   1. After every call each node is where htb_priv_place puts it at the latest now_ns.
 *   2. A request is in one list: its class's queue (slot = class), the urgent one or the dispatch queue (slot = place).
 *   3. A node is in one of the heaps `own` and `event` at most; they share one memory, from both ends. A node without
 *      requests may stay in `event` until its time comes. The root is not in it: root_wake_ns.
 *   4. Ring tags of those in a ring are not below its clock.
 *   5. What htb_complete and htb_cancel give back was charged to the same holder of the id (generation).
 *
 * Map (without htb_priv_)
 *   heaps           heap_* (`event`, `own`), leftist_* (a ring's)
 *   rings           ring_in, ring_out, ring_settle; advance, move_rings; turn, next_request
 *   where a node is place, place_root, place_up; set_due, run_events, run_expiries
 *   the queues      enqueue, dequeue; htb_submit; resolve (who pays)
 *   a dispatch      htb_dispatch: fill, serve, next_slot, hand_out; htb_dispatch_next_ns
 *   the end         htb_complete, htb_cancel: leave, correct; htb_queue_next
 *
 * References
 *   S. Floyd, V. Jacobson: Link-sharing and resource management models for packet networks, ToN 3(4), 1995.
 *   P. Goyal, H. M. Vin, H. Cheng: Start-time fair queueing, SIGCOMM 1996.
 *   L. Zhang: VirtualClock: a new traffic control algorithm for packet switching networks, SIGCOMM 1990.
 *   C. A. Crane: Linear lists and priority queues as balanced binary trees, Stanford 1972 (leftist heaps). */

QOS_PRIV struct htb_priv_heap_entry htb_priv_heap_at(const struct htb_priv_heap *heap, uint32_t i)
{
    int64_t at = heap->first + heap->step * (int64_t)i;
    struct htb_priv_heap_entry e;
    e.key = heap->key[at];
    e.id = heap->id[at];
    return e;
}

QOS_PRIV bool htb_priv_heap_less(const struct htb_priv_heap *heap, struct htb_priv_heap_entry e, uint32_t i)
{
    const struct htb_priv_heap_entry other = htb_priv_heap_at(heap, i);
    return e.key != other.key ? e.key < other.key : e.id < other.id;
}

QOS_PRIV void htb_priv_heap_put(struct htb_priv_heap *heap, uint32_t i, struct htb_priv_heap_entry e)
{
    int64_t at = heap->first + heap->step * (int64_t)i;
    heap->key[at] = e.key;
    heap->id[at] = e.id;
    heap->pos[e.id] = i;
}

/* Entry i becomes e: up as far as it is less, or else down. */
QOS_PRIV void htb_priv_heap_sift(struct htb_priv_heap *heap, uint32_t i, struct htb_priv_heap_entry e)
{
    uint32_t least = i;
    for (; i > 0 && htb_priv_heap_less(heap, e, (i - 1) / 4); i = (i - 1) / 4)
        htb_priv_heap_put(heap, i, htb_priv_heap_at(heap, (i - 1) / 4));
    while (least == i && (uint64_t)i * 4 + 1 < heap->count) {
        const uint64_t first = (uint64_t)i * 4 + 1, last = qos_min(first + 4, heap->count);
        uint64_t c;
        least = (uint32_t)first;
        for (c = first + 1; c < last; c++)
            if (htb_priv_heap_less(heap, htb_priv_heap_at(heap, (uint32_t)c), least))
                least = (uint32_t)c;
        if (htb_priv_heap_less(heap, e, least))
            break;
        htb_priv_heap_put(heap, i, htb_priv_heap_at(heap, least));
        i = least;
    }
    QOS_ASSERT(i == 0 || !htb_priv_heap_less(heap, e, (i - 1) / 4));
    QOS_ASSERT(4 * i + 1 >= heap->count || htb_priv_heap_at(heap, 4 * i + 1).id == e.id ||
               htb_priv_heap_less(heap, e, 4 * i + 1));
    htb_priv_heap_put(heap, i, e);
}

QOS_PRIV void htb_priv_heap_clear(struct htb_priv_heap *heap, uint32_t capacity)
{
    uint32_t i;
    heap->count = 0;
    heap->first = 0;
    heap->step = 1;
    for (i = 0; i < capacity; i++)
        heap->pos[i] = QOS_NONE;
}

/* Inserts or moves. */
QOS_PRIV void htb_priv_heap_set(struct htb_priv_heap *heap, uint32_t id, uint64_t key)
{
    struct htb_priv_heap_entry e;
    uint32_t i = heap->pos[id];
    QOS_ASSERT(i == QOS_NONE || (i < heap->count && htb_priv_heap_at(heap, i).id == id)); /* it is in no other heap */
    e.key = key;
    e.id = id;
    if (i == QOS_NONE)
        i = heap->count++;
    else if (key == htb_priv_heap_at(heap, i).key)
        return;
    htb_priv_heap_sift(heap, i, e);
}

/* An id that is not there changes nothing. */
QOS_PRIV_NOINLINE void htb_priv_heap_remove(struct htb_priv_heap *heap, uint32_t id)
{
    struct htb_priv_heap_entry last;
    uint32_t i = heap->pos[id];
    if (i >= heap->count) /* QOS_NONE is above every count */
        return;
    QOS_ASSERT(htb_priv_heap_at(heap, i).id == id);
    heap->pos[id] = QOS_NONE;
    last = htb_priv_heap_at(heap, --heap->count);
    if (i != heap->count)
        htb_priv_heap_sift(heap, i, last);
}

/* QOS_NEVER if it is empty. */
QOS_PRIV uint64_t htb_priv_heap_min_key(const struct htb_priv_heap *heap)
{
    return heap->count ? htb_priv_heap_at(heap, 0).key : QOS_NEVER;
}

/* QOS_NONE if it is empty. */
QOS_PRIV uint32_t htb_priv_heap_min_id(const struct htb_priv_heap *heap)
{
    return heap->count ? htb_priv_heap_at(heap, 0).id : QOS_NONE;
}

/* Rings. Most nodes that were served join again behind all others: these form the run, a list in the order of tags. The
 * others form a leftist heap: the path of right children from any node is at most log2 n long. */
QOS_PRIV uint32_t htb_priv_rank(const struct htb *tree, uint32_t id)
{
    return id == QOS_NONE ? 0 : tree->turn[id].rank;
}

QOS_PRIV void htb_priv_leftist_fix_rank(struct htb_priv_ring_entry *turn, uint32_t id, const struct htb *tree)
{
    uint32_t left = turn[id].left, right = turn[id].right;
    if (htb_priv_rank(tree, left) < htb_priv_rank(tree, right)) {
        turn[id].left = right;
        turn[id].right = left;
    }
    turn[id].rank = (htb_priv_rank(tree, turn[id].right) + 1) & 31u;
}

/* One heap of two; QOS_NONE is an empty one. If neither is, the root's `up` is set. O(log n). */
QOS_PRIV uint32_t htb_priv_leftist_merge(struct htb *tree, uint32_t a, uint32_t b)
{
    struct htb_priv_ring_entry *turn = tree->turn;
    uint32_t root = QOS_NONE, at = QOS_NONE;
    while (a != QOS_NONE && b != QOS_NONE) {
        uint32_t least = turn[b].tag < turn[a].tag ? b : a;
        b = least == a ? b : a;
        if (at == QOS_NONE)
            root = least;
        else
            turn[at].right = least;
        turn[least].up = at;
        at = least;
        a = turn[least].right;
    }
    a = a == QOS_NONE ? b : a;
    if (at == QOS_NONE)
        return a;
    turn[at].right = a;
    if (a != QOS_NONE)
        turn[a].up = at;
    for (; at != QOS_NONE; at = turn[at].up)
        htb_priv_leftist_fix_rank(turn, at, tree);
    return root;
}

QOS_PRIV void htb_priv_leftist_insert(struct htb *tree, uint32_t *root, uint32_t id)
{
    struct htb_priv_ring_entry *t = &tree->turn[id];
    t->left = t->right = t->up = QOS_NONE;
    t->rank = 1;
    *root = htb_priv_leftist_merge(tree, *root, id);
}

QOS_PRIV void htb_priv_leftist_remove(struct htb *tree, uint32_t *root, uint32_t id)
{
    struct htb_priv_ring_entry *turn = tree->turn;
    uint32_t below, up = turn[id].up;
    QOS_ASSERT(up == QOS_NONE ? *root == id : turn[up].left == id || turn[up].right == id);
    QOS_ASSERT(up == QOS_NONE || turn[up].tag <= turn[id].tag);
    below = htb_priv_leftist_merge(tree, turn[id].left, turn[id].right);
    if (below != QOS_NONE)
        turn[below].up = up;
    if (up == QOS_NONE) {
        *root = below;
        return;
    }
    if (turn[up].left == id)
        turn[up].left = below;
    else
        turn[up].right = below;
    for (; up != QOS_NONE; up = turn[up].up) {
        uint32_t rank = turn[up].rank;
        htb_priv_leftist_fix_rank(turn, up, tree);
        if (turn[up].rank == rank)
            break;
    }
}

QOS_PRIV void htb_priv_run_out(struct htb_priv_ring_entry *turn, uint32_t *run, uint32_t id)
{
    uint32_t left = turn[id].left, right = turn[id].right;
    QOS_ASSERT(turn[left].right == id && turn[right].left == id);
    turn[left].right = right;
    turn[right].left = left;
    if (*run == id)
        *run = left == id ? QOS_NONE : left;
}

QOS_PRIV void htb_priv_run_in(struct htb_priv_ring_entry *turn, uint32_t *run, uint32_t id)
{
    uint32_t last = *run == QOS_NONE ? id : *run, first = *run == QOS_NONE ? id : turn[*run].right;
    turn[id].left = last;
    turn[id].right = first;
    turn[last].right = id;
    turn[first].left = id;
    *run = id;
}

QOS_PRIV uint32_t htb_priv_ring_least(const struct htb *tree, uint32_t group)
{
    const struct htb_priv_class *g = &tree->cls[group];
    uint32_t heap = g->u.group.heap, run = g->u.group.run, head;
    if (run == QOS_NONE)
        return heap;
    head = tree->turn[run].right;
    return heap == QOS_NONE || tree->turn[head].tag < tree->turn[heap].tag ? head : heap;
}

/* Takes a node out of its parent's ring. */
QOS_PRIV void htb_priv_ring_out(struct htb *tree, uint32_t group, uint32_t id)
{
    if (tree->turn[id].rank == 0)
        htb_priv_run_out(tree->turn, &tree->cls[group].u.group.run, id);
    else
        htb_priv_leftist_remove(tree, &tree->cls[group].u.group.heap, id);
}

/* The turn goes to the first. */
QOS_PRIV void htb_priv_ring_settle(struct htb *tree, uint32_t group)
{
    const uint32_t first = htb_priv_ring_least(tree, group);
    uint32_t next;
    tree->cls[group].u.group.first = first;
    if (first == QOS_NONE)
        return;
    QOS_ASSERT(tree->turn[first].tag >= tree->cls[group].u.group.clock);
    next = tree->turn[first].right; /* of many classes, the lines of the next turns are far away */
    if (next != QOS_NONE) {
        __builtin_prefetch(&tree->node[next]);
        __builtin_prefetch(&tree->cls[next]);
        __builtin_prefetch(&tree->cls[next].burst_us);
    }
    if (!(tree->node[first].flags & HTB_PRIV_GROUP))
        __builtin_prefetch(tree->cls[first].u.leaf.tail);
}

/* A node far ahead of the others, such as one of small weight, goes to the heap: at the end of the run it would keep
 * all others out of it. */
QOS_PRIV void htb_priv_ring_in(struct htb *tree, uint32_t group, uint32_t id)
{
    struct htb_priv_ring_entry *turn = tree->turn;
    uint32_t *run = &tree->cls[group].u.group.run, last = *run;
    QOS_ASSERT(turn[id].tag >= tree->cls[group].u.group.clock);
    if (last != QOS_NONE && turn[last].tag > turn[id].tag) {
        htb_priv_run_out(turn, run, last);
        htb_priv_leftist_insert(tree, &tree->cls[group].u.group.heap, last);
        last = *run;
    }
    if (last != QOS_NONE && turn[last].tag > turn[id].tag) {
        htb_priv_leftist_insert(tree, &tree->cls[group].u.group.heap, id);
    } else {
        turn[id].rank = 0;
        htb_priv_run_in(turn, run, id);
    }
}

/* The class whose turn it is below the node (itself, if it is a class); QOS_NONE if none borrows here. */
QOS_PRIV uint32_t htb_priv_turn(const struct htb *tree, uint32_t id)
{
    while (id != QOS_NONE && (tree->node[id].flags & HTB_PRIV_GROUP))
        id = tree->cls[id].u.group.first;
    return id;
}

/* The request that the node would send next, or NULL. */
QOS_PRIV struct htb_request *htb_priv_next_request(const struct htb *tree, uint32_t id)
{
    uint32_t turn = htb_priv_turn(tree, id);
    return turn == QOS_NONE || !tree->cls[turn].u.leaf.tail ? NULL : tree->cls[turn].u.leaf.tail->next;
}

/* Own tokens: the time on the clock of the tags, which is the tree's time less the time that the device is behind. */
QOS_PRIV uint64_t htb_priv_tag_clock(const struct htb *tree)
{
    return qos_wrap_sub(tree->now_ns, tree->tag_offset);
}

/* Time that n tokens take at the node's own rates: the longest over the resources. Each product is below 2^62. */
QOS_PRIV uint64_t htb_priv_own_ns(const struct htb *tree, uint32_t id, const uint64_t *n)
{
    const struct htb_priv_pair *p;
    uint64_t longest = 0;
    uint32_t r = 0;
    for (p = &tree->node[id].pair; p; p = htb_priv_next_pair(tree, id, &r)) {
        const uint64_t rate = p->rate.rate;
        if (n[r] != 0 && rate != 0)
            longest = qos_max(longest, (n[r] * QOS_NS_PER_S + rate - 1) / rate);
    }
    if (QOS_UNLIKELY(tree->joined.lease != NULL) && longest != 0)
        longest = qos_mul_div_ceil(longest, HTB_PRIV_WHOLE, tree->joined.lease[id].parts);
    return longest;
}

/* Where a node starts that gets tokens of its own, but not before its own tag. If it has demand again: at the clock, or
 * at the first tag that is behind the clock; a class whose requests are all at the device keeps what it is late by, up
 * to lag_ns. If it waited for tokens: when it got them, or, if the device is behind, own_ns before what is due first,
 * so it is neither first nor last. */
QOS_PRIV void htb_priv_begin(struct htb *tree, uint32_t id, bool waited, uint64_t own_ns)
{
    uint64_t *tag = &tree->cls[id].tag, start = htb_priv_tag_clock(tree), due = htb_priv_heap_min_key(&tree->own);
    if (waited)
        start = due < start ? qos_sat_sub(due, own_ns) : start;
    else if (tree->own.count != 0)
        start = qos_min(start, tree->cls[htb_priv_heap_min_id(&tree->own)].tag);
    *tag = qos_max(*tag, waited ? start : qos_sat_sub(start, htb_priv_stalled_ns(tree, id)));
}

/* Device time of n tokens: at the configured rates of the root, the longest over the resources. */
QOS_PRIV uint64_t htb_priv_device_ns(const struct htb *tree, const uint64_t *n)
{
    uint64_t longest = 0;
    uint32_t r;
    for (r = 0; r < tree->resources; r++)
        longest = qos_max(longest, n[r] * QOS_NS_PER_S / tree->set.rate_per_s[r]);
    return longest;
}

/* Device time in flight of a request. */
QOS_PRIV uint64_t htb_priv_flight_ns(const struct htb *tree, const struct htb_request *r)
{
    return tree->bound == HTB_BY_FLIGHT ? htb_priv_device_ns(tree, r->tokens) : 0;
}

/* Borrowing: what a request of n tokens costs in the rings. One resource: tokens; several: time that it takes the root,
 * in ns, the longest over the resources. At least 1, at most 2^42. */
QOS_PRIV uint64_t htb_priv_ring_cost(const struct htb *tree, const uint64_t *n)
{
    uint64_t cost = tree->resources > 1 ? htb_priv_device_ns(tree, n) : n[0];
    return qos_min(qos_max(cost, 1), UINT64_C(1) << 42);
}

/* The weight of a node counts over all trees: where its demand is a part of that, its requests cost more there. */
QOS_PRIV uint64_t htb_priv_thinned(const struct htb *tree, uint32_t id, uint64_t cost)
{
    if (QOS_LIKELY(tree->joined.lease == NULL))
        return cost;
    return qos_min(cost * HTB_PRIV_WANT / tree->joined.lease[id].demand, UINT64_C(1) << 42);
}

/* Moves the ring tag on by cost / weight, or back, exactly: the remainder is kept. One unit of cost is 2^16 of it. */
QOS_PRIV void htb_priv_advance(struct htb *tree, uint32_t id, int64_t cost)
{
    struct htb_priv_ring_entry *t = &tree->turn[id];
    const int64_t units = (int64_t)htb_priv_thinned(tree, id, (uint64_t)(cost < 0 ? -cost : cost)) << 16;
    const int64_t scaled = (cost < 0 ? -units : units) + (int64_t)tree->cls[id].ring_rest, weight = t->weight;
    const int64_t steps = scaled / weight - (scaled % weight < 0);
    t->tag = steps < 0 ? qos_sat_sub(t->tag, (uint64_t)-steps) : qos_sat_add(t->tag, (uint64_t)steps);
    tree->cls[id].ring_rest = (uint64_t)(scaled - steps * weight) & 0xfffffu;
}

/* Before the clock of a ring could overflow, all tags are moved back by it. Those in the ring are not below it, so
 * their order stays. */
QOS_COLD QOS_PRIV void htb_priv_rebase(struct htb *tree, uint32_t group)
{
    uint64_t by = tree->cls[group].u.group.clock;
    uint32_t id;
    for (id = 0; id < tree->classes; id++)
        if ((tree->node[id].flags & HTB_PRIV_USED) && tree->node[id].parent == group)
            tree->turn[id].tag = qos_sat_sub(tree->turn[id].tag, by);
    tree->cls[group].u.group.clock = 0;
    if (group == tree->classes)
        tree->joined.clock = qos_wrap_add(tree->joined.clock, by);
}

QOS_PRIV void htb_priv_wake_at(struct htb *tree, uint32_t id, uint64_t at_ns)
{
    if (tree->node[id].flags & HTB_PRIV_EXPIRES)
        at_ns = qos_min(at_ns, tree->cls[id].u.leaf.expires_ns);
    if (at_ns == QOS_NEVER)
        htb_priv_heap_remove(&tree->event, id);
    else
        htb_priv_heap_set(&tree->event, id, at_ns);
}

/* Sets whether a node may borrow. */
QOS_PRIV_NOINLINE void htb_priv_set_ring(struct htb *tree, uint32_t id, bool may)
{
    uint32_t group = tree->node[id].parent;
    if (may == ((tree->node[id].flags & HTB_PRIV_RING) != 0))
        return;
    htb_priv_mark(tree, id, HTB_PRIV_RING, may);
    if (may) {
        tree->turn[id].tag = qos_max(tree->turn[id].tag, tree->cls[group].u.group.clock);
        htb_priv_ring_in(tree, group, id);
    } else {
        htb_priv_ring_out(tree, group, id);
    }
    htb_priv_ring_settle(tree, group);
}

/* Moves the tag of a node that is in its parent's ring: out of it, by the cost on or back, and into it. What is given
 * back moves the clock back, if others have moved it on meanwhile: who joins starts there, too. */
QOS_PRIV void htb_priv_move_ring(struct htb *tree, uint32_t id, int64_t cost)
{
    struct htb_priv_ring_entry *t = &tree->turn[id];
    uint32_t group = tree->node[id].parent;
    if (tree->node[id].flags & HTB_PRIV_RING)
        htb_priv_ring_out(tree, group, id);
    htb_priv_advance(tree, id, cost);
    if (tree->node[id].flags & HTB_PRIV_RING) {
        tree->cls[group].u.group.clock = qos_min(tree->cls[group].u.group.clock, t->tag);
        htb_priv_ring_in(tree, group, id);
    }
    htb_priv_ring_settle(tree, group);
}

/* After a request of class `id` that `payer` lends to: each ring between them moves on. Its clock does not pass who is
 * first there, in the ring or among the claims. */
QOS_PRIV_NOINLINE void htb_priv_move_rings(struct htb *tree, uint32_t id, uint32_t payer, uint64_t cost, bool queued)
{
    for (; id != payer; id = tree->node[id].parent) {
        const uint32_t group = tree->node[id].parent, first = tree->cls[group].u.group.first;
        uint64_t *clock = &tree->cls[group].u.group.clock, *tag = &tree->turn[id].tag, least;
        *tag = qos_max(*tag, *clock);
        least = first == QOS_NONE ? *tag : qos_min(*tag, tree->turn[first].tag);
        /* A claim that queued requests overtake does not hold the clock: who joins would start too far behind them. */
        if (QOS_UNLIKELY(tree->claims != 0) && !queued)
            least = qos_min(least, htb_priv_claimed_tag(tree, group));
        *clock = qos_max(*clock, least);
        htb_priv_move_ring(tree, id, (int64_t)cost);
        if (QOS_UNLIKELY(*clock >> 62))
            htb_priv_rebase(tree, group);
    }
}

/* Sorts a node anew after its next request or its buckets changed: heap `own`, heap `event`, its parent's ring. True if
 * the request that its parent would send next may have changed. */
QOS_PRIV bool htb_priv_place(struct htb *tree, uint32_t id, uint64_t now_ns)
{
    const struct htb_request *request = htb_priv_next_request(tree, id);
    const uint32_t parent = tree->node[id].parent, turn_before = tree->cls[parent].u.group.first;
    const uint64_t at_ns = qos_min(now_ns, QOS_NEVER - 1); /* what never comes is later */
    uint64_t wake_ns = request ? at_ns : QOS_NEVER;
    bool limit_passes = false, own_passes = false, waited = (tree->node[id].flags & HTB_PRIV_BACKLOG) != 0;

    htb_priv_refill(tree, id, now_ns); /* it waited until now only if it did before: idle time earns nothing more */
    htb_priv_mark(tree, id, HTB_PRIV_BACKLOG, request != NULL);
    if (request) {
        if (tree->node[id].flags & HTB_PRIV_LIMITED)
            wake_ns = htb_priv_ready_ns(tree, id, true, request->tokens, 0, at_ns);
        limit_passes = wake_ns == at_ns;
        if (limit_passes)
            wake_ns = htb_priv_ready_ns(tree, id, false, request->tokens, 0, at_ns);
        own_passes = limit_passes && wake_ns == at_ns;
    }
    htb_priv_set_ring(tree, id, limit_passes);
    if (own_passes != ((tree->node[id].flags & HTB_PRIV_OWN) != 0)) {
        htb_priv_heap_remove(own_passes ? &tree->event : &tree->own, id);
        htb_priv_mark(tree, id, HTB_PRIV_OWN, own_passes);
        if (own_passes)
            htb_priv_begin(tree, id, waited, htb_priv_own_ns(tree, id, request->tokens));
        else if (htb_priv_stalled_ns(tree, id) == 0)
            htb_priv_cut(tree, id);
    }
    if (own_passes && (tree->node[id].flags & HTB_PRIV_EXPIRES))
        tree->own_expiry_ns = qos_min(tree->own_expiry_ns, tree->cls[id].u.leaf.expires_ns);
    if (own_passes)
        htb_priv_heap_set(&tree->own, id, qos_sat_add(tree->cls[id].tag, htb_priv_own_ns(tree, id, request->tokens)));
    else if (request || (tree->node[id].flags & HTB_PRIV_EXPIRES)) /* else it may stay: run_events takes it out */
        htb_priv_wake_at(tree, id, wake_ns);
    QOS_ASSERT(tree->own.count + tree->event.count <= tree->classes); /* they share one memory */
    return tree->cls[parent].u.group.first != turn_before || tree->cls[parent].u.group.first == id;
}

/* The same for the root. By flight its tokens delay no request. */
QOS_PRIV void htb_priv_place_root(struct htb *tree, uint64_t now_ns)
{
    const uint64_t at_ns = qos_min(now_ns, QOS_NEVER - 1);
    tree->root_next = htb_priv_next_request(tree, tree->classes);
    tree->root_ready = tree->root_next != NULL;
    tree->root_wake_ns = QOS_NEVER;
    if (!tree->root_ready)
        return;
    tree->root_next_ns = htb_priv_flight_ns(tree, tree->root_next);
    if (tree->bound == HTB_BY_FLIGHT)
        return;
    htb_priv_refill(tree, tree->classes, now_ns);
    tree->root_wake_ns = htb_priv_ready_ns(tree, tree->classes, false, tree->root_next->tokens, 0, at_ns);
    tree->root_ready = tree->root_wake_ns == at_ns;
    if (tree->root_ready)
        tree->root_wake_ns = QOS_NEVER;
}

/* Places a node, and those above it as far as it matters to them (all of them after a charge). */
QOS_PRIV_NOINLINE void htb_priv_place_up(struct htb *tree, uint32_t id, bool charged, uint64_t now_ns)
{
    for (; id != tree->classes; id = tree->node[id].parent)
        if (!htb_priv_place(tree, id, now_ns) && !charged)
            return;
    htb_priv_place_root(tree, now_ns);
}

QOS_PRIV void htb_priv_append(struct htb_request **tail, struct htb_request *r)
{
    if (*tail) {
        r->next = (*tail)->next;
        r->prev = *tail;
        r->next->prev = r;
        (*tail)->next = r;
    } else {
        r->next = r->prev = r;
    }
    *tail = r;
}

QOS_PRIV void htb_priv_unlink(struct htb_request **tail, struct htb_request *r)
{
    QOS_ASSERT(r->next->prev == r && r->prev->next == r);
    if (r->next == r) {
        *tail = NULL;
    } else {
        r->prev->next = r->next;
        r->next->prev = r->prev;
        if (*tail == r)
            *tail = r->prev;
    }
}

/* Into and out of the queue of class r->slot. */
QOS_PRIV void htb_priv_enqueue(struct htb *tree, struct htb_request *r)
{
    tree->queued++;
    tree->detours++;
    tree->gates += r->gate;
    tree->cls[r->slot].u.leaf.queued++;
    if (QOS_UNLIKELY(tree->joined.lease != NULL)) {
        r->flight_ns = htb_priv_ring_cost(tree, r->tokens); /* while it waits: rates of the root may change */
        tree->joined.lease[r->slot].queued += r->flight_ns;
        htb_priv_note(tree, r->slot);
    }
    htb_priv_append(&tree->cls[r->slot].u.leaf.tail, r);
    r->state = HTB_QUEUED;
    QOS_ASSERT((tree->cls[r->slot].u.leaf.queued == 1) == (r->next == r));
}

QOS_PRIV void htb_priv_dequeue(struct htb *tree, struct htb_request *r)
{
    tree->queued--;
    tree->detours--;
    tree->gates -= r->gate;
    tree->cls[r->slot].u.leaf.queued--;
    if (QOS_UNLIKELY(tree->joined.lease != NULL))
        tree->joined.lease[r->slot].queued -= r->flight_ns;
    htb_priv_unlink(&tree->cls[r->slot].u.leaf.tail, r);
    QOS_ASSERT((tree->cls[r->slot].u.leaf.queued == 0) == (tree->cls[r->slot].u.leaf.tail == NULL));
    QOS_ASSERT(tree->detours >= tree->queued + tree->claims + tree->resources - 1);
}

/* A stale event: the node waits neither for tokens nor for its expiry. */
QOS_PRIV bool htb_priv_is_stale(const struct htb *tree, uint32_t id)
{
    return (tree->node[id].flags & (HTB_PRIV_BACKLOG | HTB_PRIV_EXPIRES)) == 0;
}

/* Has the reservation expired? id may be QOS_NONE. */
QOS_PRIV bool htb_priv_is_over(const struct htb *tree, uint32_t id, uint64_t now_ns)
{
    return id != QOS_NONE && (tree->node[id].flags & HTB_PRIV_EXPIRES) && tree->cls[id].u.leaf.expires_ns <= now_ns;
}

/* Reservations whose time is over end; nodes whose tokens have come move to their heaps. */
QOS_PRIV_NOINLINE void htb_priv_run_due(struct htb *tree, uint64_t now_ns)
{
    while (tree->event.count != 0 && htb_priv_heap_min_key(&tree->event) <= now_ns) {
        uint32_t id = htb_priv_heap_min_id(&tree->event);
        if (htb_priv_is_over(tree, id, now_ns))
            htb_priv_end(tree, id, true, now_ns);
        else if (htb_priv_is_stale(tree, id))
            htb_priv_heap_remove(&tree->event, id);
        else
            htb_priv_place_up(tree, id, false, now_ns);
    }
    if (tree->root_wake_ns <= now_ns)
        htb_priv_place_root(tree, now_ns);
}

QOS_PRIV void htb_priv_run_events(struct htb *tree, uint64_t now_ns)
{
    if (qos_min(htb_priv_heap_min_key(&tree->event), tree->root_wake_ns) <= now_ns)
        htb_priv_run_due(tree, now_ns);
}

/* The same for classes that have tokens of their own to spend: they are in no event. O(log classes), but when one of
 * them may have expired it looks at all of them. To end one moves others in the heap, so the last look finds none. */
QOS_PRIV void htb_priv_run_expiries(struct htb *tree, uint64_t now_ns)
{
    bool ended;
    htb_priv_run_events(tree, now_ns);
    if (QOS_LIKELY(now_ns < tree->own_expiry_ns))
        return;
    do {
        uint32_t i, id;
        ended = false;
        tree->own_expiry_ns = QOS_NEVER;
        for (i = tree->own.count; i > 0; i--) {
            id = i <= tree->own.count ? htb_priv_heap_at(&tree->own, i - 1).id : QOS_NONE;
            if (htb_priv_is_over(tree, id, now_ns)) {
                htb_priv_end(tree, id, true, now_ns);
                ended = true;
            } else if (id != QOS_NONE && (tree->node[id].flags & HTB_PRIV_EXPIRES)) {
                tree->own_expiry_ns = qos_min(tree->own_expiry_ns, tree->cls[id].u.leaf.expires_ns);
            }
        }
    } while (ended);
}

/* The class that pays for requests of `id`: itself, or best effort. What has expired ends at the next event. */
QOS_PRIV uint32_t htb_priv_resolve(const struct htb *tree, uint32_t id, uint64_t now_ns)
{
    unsigned flags;
    if (QOS_UNLIKELY(id >= tree->classes))
        return HTB_BEST_EFFORT;
    flags = tree->node[id].flags & (HTB_PRIV_USED | HTB_PRIV_GROUP | HTB_PRIV_EXPIRES);
    if (QOS_LIKELY(flags == HTB_PRIV_USED))
        return id;
    if (flags == (HTB_PRIV_USED | HTB_PRIV_EXPIRES) && now_ns < tree->cls[id].u.leaf.expires_ns)
        return id;
    return HTB_BEST_EFFORT;
}

/* Who paid for a request that leaves its queue: kept in it for htb_complete and htb_cancel. */
QOS_PRIV void htb_priv_paid(struct htb *tree, struct htb_request *r, uint32_t id, uint32_t payer)
{
    r->payer = payer;
    r->paid_by = id;
    r->generation = tree->cls[id].generation;
    tree->cls[id].u.leaf.outstanding++;
}

/* Is it said when the requests of a class are due? */
QOS_PRIV bool htb_priv_has_turns(const struct htb *tree, uint32_t id)
{
    return tree->bound == HTB_BY_FLIGHT && tree->cls[id].u.leaf.latency_us != 0;
}

/* Something of a class came or went: it may have requests now, or none. One that only has urgent ones rests. */
QOS_PRIV void htb_priv_rest(struct htb *tree, uint32_t id)
{
    struct htb_priv_class *c = &tree->cls[id];
    const bool rests = c->u.leaf.queued + c->u.leaf.outstanding == 0;
    if (QOS_LIKELY(rests == ((tree->node[id].flags & HTB_PRIV_RESTS) != 0)))
        return;
    htb_priv_mark(tree, id, HTB_PRIV_RESTS, rests);
    if (htb_priv_has_turns(tree, id))
        return;
    if (rests)
        c->u.leaf.rested_ns = qos_wrap_sub(c->u.leaf.rested_ns, tree->now_ns);
    else
        c->u.leaf.rested_ns = qos_wrap_add(c->u.leaf.rested_ns, tree->now_ns);
}

/* With latency_ns: the turn of a request is at its submission or n / R after that of the one before; it is due
 * latency_ns after its turn. A queue of more than lag_ns counts as one of lag_ns. */
QOS_PRIV void htb_priv_set_due(struct htb *tree, struct htb_request *r)
{
    struct htb_priv_class *c = &tree->cls[r->slot];
    uint64_t turn_ns;
    r->due_ns = QOS_NEVER;
    if (!htb_priv_has_turns(tree, r->slot))
        return;
    turn_ns = qos_max(r->since_ns, qos_min(c->u.leaf.turn_ns, qos_sat_add(r->since_ns, tree->lag_ns)));
    r->due_ns = qos_sat_add(turn_ns, (uint64_t)c->u.leaf.latency_us * 1000);
    c->u.leaf.turn_ns = qos_sat_add(turn_ns, htb_priv_own_ns(tree, r->slot, r->tokens));
}

QOS_PRIV void htb_priv_asks_anew(struct htb *tree, uint32_t id);

QOS_API enum qos_status htb_submit(struct htb *tree, uint64_t now_ns, struct htb_request *request)
{
    if (!request)
        return QOS_EINVAL;
    if (request->state != HTB_IDLE)
        return QOS_EBUSY;
    if (!htb_priv_in_range(tree, request->tokens))
        return QOS_ERANGE;
    now_ns = htb_priv_now(tree, now_ns);
    if (request->urgent) {
        uint32_t payer, id = htb_priv_resolve(tree, request->class_id, now_ns);
        enum qos_status status = htb_priv_force(tree, now_ns, id, request->tokens, &payer);
        if (status != QOS_OK)
            return status;
        if (tree->queued)
            htb_priv_place_up(tree, id, true, now_ns);
        htb_priv_paid(tree, request, id, payer);
        htb_priv_append(&tree->dispatch.urgent, request);
        request->state = HTB_DISPATCHED;
        request->slot = QOS_NONE;
        request->since_ns = request->sent_ns = now_ns;
        request->due_ns = QOS_NEVER;
        request->flight_ns = 0;
        return QOS_OK;
    }
    request->slot = htb_priv_resolve(tree, request->class_id, now_ns);
    request->since_ns = now_ns;
    if (QOS_UNLIKELY(tree->node[request->slot].flags & HTB_PRIV_WATCHED))
        htb_priv_asks_anew(tree, request->slot);
    htb_priv_set_due(tree, request);
    htb_priv_enqueue(tree, request);
    if (request->next == request) {
        htb_priv_rest(tree, request->slot);
        htb_priv_place_up(tree, request->slot, false, now_ns);
    }
    return QOS_OK;
}

/* Out of the dispatch queue, and into it. */
QOS_PRIV void htb_priv_slot_unlink(struct htb *tree, struct htb_request *r)
{
    const uint32_t i = r->slot;
    htb_priv_unlink(&tree->dispatch.newest, r);
    if (tree->set.order == HTB_ELEVATOR) {
        htb_priv_heap_remove(&tree->dispatch.sweep[0], i);
        htb_priv_heap_remove(&tree->dispatch.sweep[1], i);
    }
    tree->dispatch.slot[i].next = tree->dispatch.free_slot;
    tree->dispatch.free_slot = i;
    tree->dispatch.waiting--;
    QOS_ASSERT((tree->dispatch.waiting == 0) == (tree->dispatch.newest == NULL));
}

QOS_PRIV void htb_priv_slot_add(struct htb *tree, struct htb_request *r)
{
    const uint32_t i = tree->dispatch.free_slot;
    struct htb_priv_slot *s = &tree->dispatch.slot[i];
    QOS_ASSERT(i != QOS_NONE);
    tree->dispatch.free_slot = s->next;
    s->request = r;
    s->entered = tree->dispatch.handed_out;
    htb_priv_append(&tree->dispatch.newest, r);
    tree->dispatch.waiting++;
    if (tree->set.order == HTB_ELEVATOR)
        htb_priv_heap_set(
            &tree->dispatch.sweep[r->offset >= tree->dispatch.head_offset ? tree->dispatch.this_sweep
                                                                          : 1 - tree->dispatch.this_sweep],
            i, r->offset);
    r->slot = i;
    r->state = HTB_DISPATCHED;
}

/* Takes the request whose turn it is below `payer` out of its queue, and charges it: the buckets, the own tags from the
 * payer upwards, the rings below the payer. If a node on the way has own tokens, that node pays. */
QOS_PRIV struct htb_request *htb_priv_serve(struct htb *tree, uint32_t payer, uint64_t now_ns)
{
    struct htb_request *r = payer == tree->classes ? tree->root_next : htb_priv_next_request(tree, payer);
    uint32_t id = r->slot, at;
    QOS_ASSERT(r == htb_priv_next_request(tree, payer));
    for (at = id; at != payer && !(tree->node[at].flags & HTB_PRIV_OWN);)
        at = tree->node[at].parent;
    payer = at;
    QOS_ASSERT(tree->node[id].flags & HTB_PRIV_RING); /* its limit passes the request */
    /* By flight room at the device is what the root lends; its tokens are for the gate and for urgent requests. */
    r->payer = payer == tree->classes && tree->bound == HTB_BY_FLIGHT ? QOS_NONE : payer;
    htb_priv_charge(tree, id, r->payer, r->tokens, htb_priv_nothing, now_ns);
    htb_priv_dequeue(tree, r);
    htb_priv_paid(tree, r, id, r->payer);
    if (r->since_ns < now_ns)
        qos_counter_add(&tree->cls[id].counters.waited, 1);

    for (at = payer; at != tree->classes; at = tree->node[at].parent)
        tree->cls[at].tag = qos_sat_add(tree->cls[at].tag, htb_priv_own_ns(tree, at, r->tokens));
    if (id != payer)
        htb_priv_move_rings(tree, id, payer, htb_priv_ring_cost(tree, r->tokens), true);
    htb_priv_place_up(tree, id, true, now_ns);
    return r;
}

/* What the bound counts: what is in flight, in trees that have joined only what the root lent of that. */
QOS_PRIV uint64_t htb_priv_counts_ns(const struct htb *tree)
{
    return tree->joined.lease ? tree->flight.lends_ns : tree->flight.now_ns;
}

/* Room below the bound. What the root lends has to fit there: a small request with own tokens finds room that a larger
 * one must not take, and a full device gets no further one. It goes also if nothing is in flight, or all that was when
 * the root last lent has left: beside own tokens a large one might never fit. In trees that have joined own tokens have
 * as much beside it, up to the knee: what is narrowed in all trees must not keep those out that it is for, and these no
 * borrowers. What the root lends has a part of it. */
QOS_PRIV uint64_t htb_priv_room(const struct htb *tree, uint32_t payer)
{
    const struct htb_priv_flight *f = &tree->flight;
    const uint64_t counts_ns = htb_priv_counts_ns(tree);
    uint64_t bound_ns = f->bound_ns, room_ns;
    if (QOS_UNLIKELY(tree->joined.lease != NULL) && payer < tree->classes)
        return qos_sat_sub(qos_max(bound_ns, f->knee_ns), f->now_ns - f->lends_ns);
    if (QOS_UNLIKELY(f->part != HTB_PRIV_EVEN) && bound_ns != QOS_UNLIMITED)
        bound_ns = qos_max(htb_priv_part_of(htb_priv_exp2(f->part), bound_ns), 1);
    room_ns = qos_sat_sub(bound_ns, counts_ns);
    if (payer != tree->classes || tree->root_next_ns <= room_ns)
        return room_ns;
    return counts_ns == 0 || f->before_ns == 0 ? room_ns : 0;
}

/* Who pays next: the node with own tokens whose finish tag is least, or else the root for its ring; QOS_NONE if none.
 * The clock of the tags waits for a device that is more than lag_ns behind. */
QOS_PRIV uint32_t htb_priv_servable(struct htb *tree)
{
    if (tree->own.count != 0) {
        uint32_t first = htb_priv_heap_min_id(&tree->own);
        uint64_t clock = htb_priv_tag_clock(tree), due = htb_priv_heap_min_key(&tree->own);
        QOS_ASSERT(tree->node[first].flags & HTB_PRIV_OWN);
        if (clock > due && clock - due > tree->lag_ns)
            tree->tag_offset = qos_wrap_add(tree->tag_offset, clock - due - tree->lag_ns);
        if (QOS_LIKELY(tree->joined.lease == NULL) || !tree->root_ready || htb_priv_room(tree, first) != 0)
            return first;
    }
    return tree->root_ready ? tree->classes : QOS_NONE;
}

QOS_PRIV uint32_t htb_priv_next_slot(struct htb *tree)
{
    uint32_t oldest = tree->dispatch.newest->next->slot;
    if (tree->set.order == HTB_FIFO ||
        qos_wrap_sub(tree->dispatch.handed_out, tree->dispatch.slot[oldest].entered) >= tree->set.bypass_max)
        return oldest;
    QOS_ASSERT(tree->dispatch.sweep[0].count + tree->dispatch.sweep[1].count == tree->dispatch.waiting);
    if (tree->dispatch.sweep[tree->dispatch.this_sweep].count == 0)
        tree->dispatch.this_sweep = 1 - tree->dispatch.this_sweep;
    oldest = htb_priv_heap_min_id(&tree->dispatch.sweep[tree->dispatch.this_sweep]);
    tree->dispatch.head_offset = tree->dispatch.slot[oldest].request->offset;
    return oldest;
}

QOS_PRIV struct htb_request *htb_priv_hand_out(struct htb *tree, struct htb_request *r)
{
    r->state = HTB_AT_DEVICE;
    if (tree->dispatch.at_device++ == 0)
        tree->flight.last_ns = tree->now_ns; /* an idle device does not pause */
    return r;
}

/* If nothing completes for so long, all that is at the device may hang. */
QOS_PRIV uint64_t htb_priv_patience_ns(const struct htb_priv_flight *f)
{
    return qos_max(HTB_PRIV_PATIENCE_NS, 16 * f->gap_ns);
}

/* When a request may go beyond the bound, as that may be so. */
QOS_PRIV uint64_t htb_priv_beyond_ns(const struct htb_priv_flight *f)
{
    return f->extra_ns != 0 ? f->next_ns : qos_sat_add(f->moved_ns, htb_priv_patience_ns(f));
}

/* May one now? next_ns is so early at least; looked at anew when it is over. */
QOS_PRIV_NOINLINE bool htb_priv_may_go_beyond(struct htb_priv_flight *f, uint64_t now_ns)
{
    const bool may = htb_priv_beyond_ns(f) <= qos_min(now_ns, QOS_NEVER - 1);
    if (!may && f->extra_ns == 0)
        f->next_ns = qos_sat_add(f->moved_ns, HTB_PRIV_PATIENCE_NS);
    return may;
}

/* One goes. */
QOS_PRIV_NOINLINE void htb_priv_go_beyond(struct htb_priv_flight *f, const struct htb_request *r, uint64_t now_ns)
{
    const uint64_t ns = r->gate ? 0 : r->flight_ns;
    if (f->extra_ns == 0)
        f->moved_ns = now_ns;
    f->extra_ns += ns;
    f->next_ns = qos_sat_add(
        now_ns, qos_max(qos_sat_mul(64, ns), qos_mul_div_floor(htb_priv_patience_ns(f), ns, qos_max(f->extra_ns, 1))));
}

/* A request is complete, and others had gone beyond the bound. If it is one of those, the device works, and what has
 * been there since before hangs: it counts no more. */
QOS_PRIV_NOINLINE void htb_priv_tell_hung(struct htb_priv_flight *f, const struct htb_request *r, uint64_t now_ns)
{
    if (r->sent_ns >= f->moved_ns && r->sent_ns <= now_ns) { /* later: by a wrong clock */
        const uint64_t counts_ns = qos_min(f->extra_ns, f->now_ns);
        f->hung_ns += f->now_ns - counts_ns;
        f->now_ns = counts_ns;
        f->lends_ns = qos_min(f->lends_ns, counts_ns);
        f->hung_at_ns = f->moved_ns;
    }
    f->extra_ns = 0;
    f->next_ns = 1;
}

/* Was it found to hang? */
QOS_PRIV bool htb_priv_hangs(const struct htb_priv_flight *f, const struct htb_request *r)
{
    return r->sent_ns < f->hung_at_ns;
}

QOS_PRIV bool htb_priv_has_place(const struct htb *tree)
{
    return tree->dispatch.waiting + tree->dispatch.at_device < tree->set.dispatch_max;
}

/* When there is room at the device for the next request: by flight, as htb_priv_room says, or when all of what is in
 * flight may hang. A gate request is taken to be there for the time of its tokens; an idle device does not
 * wait for that. QOS_NEVER: a request must complete first. */
QOS_PRIV uint64_t htb_priv_room_ns(const struct htb *tree, uint32_t payer)
{
    const struct htb_priv_flight *f = &tree->flight;
    const uint64_t room_ns = htb_priv_room(tree, payer);
    const struct htb_request *next;
    if (room_ns == 0)
        return f->next_ns;
    if (QOS_LIKELY(qos_sat_sub(f->gate_end_ns, tree->now_ns) < room_ns))
        return 0;
    next = f->now_ns == 0 && payer != QOS_NONE ? htb_priv_next_request(tree, payer) : NULL;
    return next && !next->gate ? 0 : f->gate_end_ns - room_ns + 1;
}

/* Moves requests to the dispatch queue while there is room, up to an expired class. Returns a gate request whose turn
 * it is, or NULL. */
QOS_PRIV_NOINLINE struct htb_request *htb_priv_fill(struct htb *tree, uint64_t now_ns)
{
    tree->flight.waits = false;
    do {
        uint32_t payer = htb_priv_servable(tree);
        struct htb_request *r;
        const uint64_t room_ns = htb_priv_room_ns(tree, payer), lent_ns = tree->root_next_ns;
        if (room_ns > qos_min(now_ns, QOS_NEVER - 1) ||
            (room_ns != 0 && !htb_priv_may_go_beyond(&tree->flight, now_ns))) { /* what never comes is later */
            tree->flight.waits = payer != QOS_NONE;
            tree->flight.full = tree->flight.full || tree->flight.waits;
            break;
        }
        if (payer == QOS_NONE) {
            tree->maximize.starved = tree->maximize.starved || tree->cls[tree->classes].u.group.first != QOS_NONE;
            break;
        }
        if (htb_priv_is_over(tree, payer, now_ns))
            break;
        r = htb_priv_serve(tree, payer, now_ns);
        r->flight_ns = payer == tree->classes ? lent_ns : htb_priv_flight_ns(tree, r);
        if (QOS_LIKELY(room_ns == 0))
            tree->flight.moved_ns = now_ns;
        else
            htb_priv_go_beyond(&tree->flight, r, now_ns);
        if (r->gate) {
            tree->flight.gate_end_ns = qos_sat_add(qos_max(tree->flight.gate_end_ns, now_ns), r->flight_ns);
            r->state = HTB_IDLE;
            tree->cls[r->paid_by].u.leaf.outstanding--;
            htb_priv_rest(tree, r->paid_by);
            return r;
        }
        r->sent_ns = now_ns;
        tree->flight.now_ns += r->flight_ns;
        tree->flight.lends_ns += r->payer == QOS_NONE ? r->flight_ns : 0;
        if (payer == tree->classes)
            tree->flight.before_ns = tree->flight.now_ns;
        tree->flight.most_ns = qos_max(tree->flight.most_ns, tree->flight.now_ns);
        htb_priv_slot_add(tree, r);
    } while (tree->queued != 0 && htb_priv_has_place(tree));
    return NULL;
}

QOS_API struct htb_request *htb_dispatch(struct htb *tree, uint64_t now_ns)
{
    struct htb_request *r;
    uint32_t i;
    now_ns = htb_priv_now(tree, now_ns);
    if (tree->dispatch.urgent) {
        r = tree->dispatch.urgent->next;
        htb_priv_unlink(&tree->dispatch.urgent, r);
        return htb_priv_hand_out(tree, r);
    }
    htb_priv_run_events(tree, now_ns);
    while (!(r = htb_priv_has_place(tree) && tree->queued != 0 ? htb_priv_fill(tree, now_ns) : NULL) &&
           now_ns >= tree->own_expiry_ns && htb_priv_is_over(tree, htb_priv_heap_min_id(&tree->own), now_ns))
        htb_priv_end(tree, htb_priv_heap_min_id(&tree->own), true, now_ns);
    if (r || tree->dispatch.waiting == 0 || tree->dispatch.at_device >= tree->set.device_max)
        return r;
    i = htb_priv_next_slot(tree);
    QOS_ASSERT(qos_wrap_sub(tree->dispatch.handed_out, tree->dispatch.slot[i].entered) <
               (uint64_t)tree->set.bypass_max + tree->set.dispatch_max);
    r = tree->dispatch.slot[i].request;
    htb_priv_slot_unlink(tree, r);
    tree->dispatch.handed_out = qos_wrap_add(tree->dispatch.handed_out, 1);
    return htb_priv_hand_out(tree, r);
}

QOS_API uint64_t htb_dispatch_next_ns(struct htb *tree, uint64_t now_ns)
{
    uint64_t event_ns, room_ns, beyond_ns = 0, given_ns = now_ns;
    uint32_t turn, own;
    bool full;
    now_ns = htb_priv_now(tree, now_ns);
    if (tree->dispatch.urgent)
        return given_ns;
    htb_priv_run_events(tree, now_ns);
    full = tree->dispatch.at_device >= tree->set.device_max;
    if (!full && tree->dispatch.waiting != 0)
        return given_ns;
    turn = htb_priv_servable(tree);
    room_ns = (full && tree->gates == 0) || !htb_priv_has_place(tree) ? QOS_NEVER : htb_priv_room_ns(tree, turn);
    if (room_ns == QOS_NEVER)
        return QOS_NEVER;
    if (room_ns != 0 && htb_priv_room(tree, turn) == 0)
        room_ns = beyond_ns = htb_priv_may_go_beyond(&tree->flight, now_ns) ? 0 : htb_priv_beyond_ns(&tree->flight);
    while (tree->event.count != 0 && htb_priv_is_stale(tree, htb_priv_heap_min_id(&tree->event)))
        htb_priv_heap_remove(&tree->event, htb_priv_heap_min_id(&tree->event));
    event_ns = qos_min(turn == QOS_NONE ? tree->root_wake_ns : room_ns, htb_priv_heap_min_key(&tree->event));
    own = htb_priv_heap_min_id(&tree->own);
    if (own != QOS_NONE && (tree->node[own].flags & HTB_PRIV_EXPIRES)) /* then the turn is another's */
        event_ns = qos_min(event_ns, tree->cls[own].u.leaf.expires_ns);
    if (!tree->joined.lease && htb_priv_room(tree, QOS_NONE) == 0) /* else own tokens may have room */
        event_ns = qos_max(event_ns, beyond_ns);
    return qos_max(event_ns, given_ns);
}

/* The request cost `tokens` instead of what it was charged: the difference is charged, or given back, where it was
 * paid. Not if its class has ended since: its buckets have another holder. True: its class has to be placed again. */
QOS_PRIV_NOINLINE bool htb_priv_correct(struct htb *tree, const struct htb_request *r, const uint64_t *tokens,
                                        uint64_t now_ns)
{
    const int64_t more = (int64_t)htb_priv_ring_cost(tree, tokens) - (int64_t)htb_priv_ring_cost(tree, r->tokens);
    uint32_t at;
    bool pays = false;
    if (__builtin_memcmp(tokens, r->tokens, tree->resources * sizeof *tokens) == 0 ||
        r->generation != tree->cls[r->paid_by].generation)
        return false;
    htb_priv_charge(tree, r->paid_by, r->payer, tokens, r->tokens, now_ns);
    for (at = r->paid_by; at != tree->classes; at = tree->node[at].parent) {
        uint64_t *tag = &tree->cls[at].tag;
        pays = pays || at == r->payer;
        if (pays)
            *tag =
                qos_sat_sub(qos_sat_add(*tag, htb_priv_own_ns(tree, at, tokens)), htb_priv_own_ns(tree, at, r->tokens));
        else
            htb_priv_move_ring(tree, at, more); /* the ring that it borrowed from */
    }
    return tree->queued != 0;
}

/* A request leaves the tree. tokens: what it cost; NULL: nothing. */
QOS_PRIV void htb_priv_leave(struct htb *tree, struct htb_request *r, const uint64_t *tokens, uint64_t now_ns)
{
    uint64_t hung_ns = 0;
    QOS_ASSERT(r->generation != tree->cls[r->paid_by].generation || tree->cls[r->paid_by].u.leaf.outstanding != 0);
    QOS_ASSERT(r->flight_ns <= tree->flight.now_ns + tree->flight.hung_ns);
    if (QOS_UNLIKELY(tree->flight.hung_ns != 0)) {
        hung_ns = htb_priv_hangs(&tree->flight, r) ? qos_min(r->flight_ns, tree->flight.hung_ns)
                                                   : qos_sat_sub(r->flight_ns, tree->flight.now_ns);
        tree->flight.hung_ns -= hung_ns;
    }
    if (r->generation == tree->cls[r->paid_by].generation && --tree->cls[r->paid_by].u.leaf.outstanding == 0)
        htb_priv_rest(tree, r->paid_by);
    tree->flight.now_ns -= r->flight_ns - hung_ns;
    tree->flight.before_ns = qos_sat_sub(tree->flight.before_ns, r->flight_ns - hung_ns);
    if (r->payer == QOS_NONE)
        tree->flight.lends_ns = qos_sat_sub(tree->flight.lends_ns, r->flight_ns - hung_ns);
    tree->flight.lends_ns = qos_min(tree->flight.lends_ns, tree->flight.now_ns);
    QOS_ASSERT(tree->flight.now_ns == 0 || tree->dispatch.waiting + tree->dispatch.at_device != 0);
    if (tokens != r->tokens && htb_priv_correct(tree, r, tokens ? tokens : htb_priv_nothing, now_ns))
        htb_priv_place_up(tree, r->paid_by, true, now_ns);
    r->state = HTB_IDLE;
}

QOS_PRIV void htb_priv_run_clock(struct htb *tree, const struct htb_request *r, uint64_t now_ns);
QOS_PRIV void htb_priv_watch(struct htb *tree, const struct htb_request *r, const uint64_t *tokens, uint64_t now_ns);

QOS_API enum qos_status htb_complete(struct htb *tree, uint64_t now_ns, enum htb_outcome outcome,
                                     const uint64_t *tokens, struct htb_request *request)
{
    if (!request || request->state != HTB_AT_DEVICE || tree->dispatch.at_device == 0)
        return QOS_EINVAL;
    if (tokens && !htb_priv_in_range(tree, tokens))
        return QOS_ERANGE;
    now_ns = htb_priv_now(tree, now_ns);
    tree->dispatch.at_device--;
    htb_priv_run_clock(tree, request, now_ns);
    if (tree->bound == HTB_BY_FLIGHT) {
        if (QOS_UNLIKELY(tree->flight.extra_ns != 0) && request->flight_ns != 0)
            htb_priv_tell_hung(&tree->flight, request, now_ns);
        if (request->flight_ns != 0)
            tree->flight.moved_ns = now_ns;
        htb_priv_watch(tree, request, tokens ? tokens : request->tokens, now_ns);
    }
    htb_priv_leave(tree, request, outcome == HTB_NOT_DONE ? NULL : tokens ? tokens : request->tokens, now_ns);
    return QOS_OK;
}

QOS_API enum qos_status htb_cancel(struct htb *tree, uint64_t now_ns, struct htb_request *request)
{
    if (!request || (request->state != HTB_QUEUED && request->state != HTB_DISPATCHED))
        return QOS_EINVAL;
    now_ns = htb_priv_now(tree, now_ns);
    if (request->state == HTB_QUEUED) {
        htb_priv_dequeue(tree, request);
        htb_priv_rest(tree, request->slot);
        htb_priv_place_up(tree, request->slot, true, now_ns);
        request->state = HTB_IDLE;
        return QOS_OK;
    }
    if (request->slot == QOS_NONE)
        htb_priv_unlink(&tree->dispatch.urgent, request);
    else
        htb_priv_slot_unlink(tree, request);
    htb_priv_leave(tree, request, NULL, now_ns);
    return QOS_OK;
}

QOS_API struct htb_request *htb_queue_next(const struct htb *tree, uint32_t id, const struct htb_request *after)
{
    const struct htb_request *tail;
    if (id >= tree->classes || (tree->node[id].flags & (HTB_PRIV_USED | HTB_PRIV_GROUP)) != HTB_PRIV_USED)
        return NULL;
    tail = tree->cls[id].u.leaf.tail;
    return !tail || after == tail ? NULL : after ? after->next : tail->next;
}

/* Logarithms for the quantiles: 2^10 steps in each octave, linear in between. */
QOS_PRIV uint16_t htb_priv_log2(uint64_t ns)
{
    const uint32_t e = 63u - qos_clz64(ns | 1024u);
    return (uint16_t)((e << 10) | ((ns >> (e - 10)) & 1023u));
}

QOS_PRIV uint64_t htb_priv_exp2(uint16_t log)
{
    return log == 0 ? 0 : (UINT64_C(1024) | (log & 1023u)) << ((log >> 10) - 10);
}

/* ==== chapter: flight ==============================================================================================
 *
 * HTB_BY_FLIGHT: the whole device in use. The configured rate of the root counts in admission only. The next request
 * goes, with or without tokens of the root, while the device time in flight is below a bound. What the root lends has
 * to fit there, or all that was in flight when it last lent has to be complete. That time is the cost, at the root's
 * rates, of what is dispatched and not completed. Own tokens still go first, and limits still hold.
 *
 *     in flight   |=========|=====|== bound              too little: the device has gaps
 *                                                        too much: a request waits long inside the device, and a class
 *                                                        with N requests at once gets no more than N * n / wait
 *
 * The bound is the smaller of two: the knee, which the throughput needs, and the least that a late class needs.
 *
 *   the knee    BASE --- a search ---> TRIAL         a look: 64 requests, 4 and 16 times as many for smaller steps, 4
 *                ^  at the knee         |  at another times as many while looks at the knee differ by half a step; an
 *                |                      v             eighth of that if it takes longer than 100 ms times the factor
 *                '--- kept, undone --- AGAIN  at the knee; hurt, or more are late than at the knee: undone
 *
 *     trial     by a factor of 2, 1.5, 1.25, 1.13, 1.06, wider by one request at least. Wider is kept if more is
 *               completed than in both looks at the knee: by one request of the look, or by 1/64, as below that seeds
 *               of one device differ. Narrower is kept if not less by half of that than in the mean of both, in steps
 *               below 1.5 than in the better one, as what small steps lose adds up; in looks of less than 64 requests,
 *               within 1024 times what the caller was away for, and lag_ns of a pause, beyond half of what the two
 *               differ by: these make them differ (who makes up for a pause asks for another mix). Twice the bound is
 *               kept at once if such a look, or one of more than 50 ms, shows 7/4 of the speed: another look at the
 *               knee may take a hundred times as long. Or if it takes more than 50 ms, and requests wait all the time
 *               and are at the device no longer than at the knee, but for an eighth: few of unequal sizes show the
 *               speed badly, but how long they stay well. A trial's look ends after 64 requests if slower by a third,
 *               after 256 if by a sixth
 *     filling   a wider deep knee: its look begins again, and takes longer, while it shows no less speed, and what
 *               completes was there for less than what is in flight is, by Little's law: the new room fills the queue
 *               of the slowest member, and until then the others do more. For 64 bounds at most
 *     dive      in or after a wider trial less than half completes as before, though requests wait: too much in flight
 *               may have made the device slower, so that only far less ends it (TCP incast). An eighth of the knee is
 *               tried, as a narrower trial, but nobody's tokens end it
 *     away      the caller is away for longer than what is in flight lasts, so the device is idle: the knee is at least
 *               what it was idle for, less 1/128 of the time since, and at most the bound of one that is alone. So what
 *               comes again and again costs 1/128 of the time, and what is rare widens nothing for long
 *     search    from the start; when the speed changes by a quarter (while one is on, not in steps of 2 and 1.5: by
 *               two, or by a quarter between both looks at the knee, if these take more than 100 ms); when more is
 *               asked for: at the knee, requests wait for room while 64 / (1 - w)^2 complete on end. w is the part
 *               that did as the knee was judged: in the trial that was kept, else in the look before or after it,
 *               whichever is less; a queue that is there w of the time is there on end for about 1 / (1 - w)^2
 *               services by chance. With w = 1 the knee is the device's, else what the tenants needed. And after
 *               pauses that begin with 64 looks and double, up to 60 s: probing takes at most 1/64
 *     narrow    in the first search: a class has narrowed the bound for lag_ns on end, and no less is completed than at
 *               the knee: that bound is the knee. At any time: a bound b below the knee k shows more than 1 + 2 b / k
 *               of the speed at the knee (looks differ by chance, by less the narrower they are): the device is another
 *               one, so b is the knee, no class needs less, and a search begins
 *
 *   a class     WIDE --- late ---> NARROW --- hopeless, or it hurts ---> RESTS: 64 times as long as it narrowed on end,
 *                ^ needs nothing     |  ^                                 then for twice as long, up to 64 s
 *                '--- above the knee-'  '--- time is over, or the device is slower or faster than then by a half
 *
 *     latency_ns: late is later than S + latency_ns. A late request costs 176 of a credit of at most 352, one in time
 *               earns 1: fewer than one of 100 stay late.
 *       cut     the credit is below 0, and it was long at the device: the bound falls by a step
 *       widen   the same, but it was longer in its queue, for lack of room: the bound rises by a step, at the knee to
 *               WIDE: what it needs there is a wider knee
 *       climb   a credit of 176 or more: each request in time raises the bound by 1/64 of a step, up to 1.4 knees
 *       step    twice as long if the same move comes within 16 requests, half as long if the moves turn; 2^(1/64) to
 *               2^(1/4)
 *       hopeless  10 late requests while it narrows, beside one of 64, and up to 20 more, as it was in time before:
 *                 narrowing does not keep the promise. Those on the way down by the longest step do not count, as a
 *                 knee may be a hundred times what it needs, unless the search takes steps of 2 or 1.5
 *     rate only: behind its rate by the time d, while it asks for more: the bound falls by the factor 2^(d / u - 1/2),
 *       where u is burst_ns, or what a request took at the device as it began, if longer. So it gets its rate exactly,
 *       in the mean, and never more of the device's speed than that takes; twice its rate while it makes up for a
 *       pause and does not wait for room. Not before a look at the knee has shown what narrowing would cost, nor while
 *       the search takes steps of 2 or 1.5 (if it is behind by less than 3.2 s, or than 64 of the longest usual gaps):
 *       a class is late under too small a knee, too
 *       hopeless  slower by an eighth since it narrows, and the least bound is reached, or one request at a time for
 *                 3.2 s, or half of the bound has twice not made requests faster by an eighth: the device has no queue
 *     before    the best of the looks at the knee, of late. A knee above burst_ns takes longer to fill and to drain
 *               than a look: what is gained by the one is lost by the other (most of it waits in the slowest member).
 *               So there it is the mean of the latest 1.6 s at the knee, drains included
 *     hurts     own tokens of other classes have waited for room for two bursts on end, and the device is slower by an
 *               eighth than it was before: they lose what is theirs. If the bound was narrow from the start, no knee
 *               was wider by 2 or 1.5 in vain: what was before is not known, and that they wait for 16 bursts on end is
 *               enough. The class rests until it is known. A bound above burst_ns shows nothing while it drains
 *
 *   alone     no other class has asked for lag_ns: the bound is as wide as a newcomer may wait for: burst_ns, half of
 *             the least latency_ns that any class has had, at the knee's speed if that is less than configured, or
 *             the knee, if that is more. A narrower one is for nobody, and loses time when the caller is late. Twice
 *             as wide, if requests wait for room, as long as each time an eighth more is completed, of 64 requests,
 *             or of 8 if these take more than 1 s. If less than half of that completes, or than at the knee of many: a
 *             dive, then half of the bound, or the knee. A look counts if the bound was in use, or all are less. No
 *             other looks: who comes finds the knee as it was for many, but if that makes the device slower, too
 *
 * A request proves nothing if a pause of the device met it, or if it was submitted before the bound of now held. So
 * each class moves by what its own last move did; a hopeless one is undone wholly and masks no other; and a class that
 * asks nothing for lag_ns needs nothing.
 *
 * A device that completes nothing for more than 1 ms, four of its longest usual gaps and twice what a request of that
 * size takes pauses. The clock of the looks stands still then, and classes whose requests are all at the device earn
 * tokens for it, up to lag_ns. It was the caller, and the time counts, if what was at the device is complete after
 * that sooner than the device can do it. Trees that have joined take the least bound of all, until it has cost one
 * three quarters of its speed for 3.2 s.
 *
 *   hangs     nothing with device time completes for p, the longer of 100 ms and 16 of the longest usual gaps: a
 *             request goes beyond the bound, the next p / 1 after it, then p / 2, p / 3, but none before 64 times what
 *             the last one cost, so a pause of the device ends with one more and 1/64 of it in flight, at most. If one
 *             of these is complete first, the device works, and what was there before hangs: it counts no more,
 *             neither in flight nor as evidence. Its class pays for it and sees its latency when it is complete
 *
 * A bound below one request lets one go, one below two in the mean one at a time: trials begin from two of it then, as
 * where one is larger than twice the bound.
 * Limits of the method: loads that go on and off in tens of ms blur the looks; of HTB_PRIV_LATE_MAX - 1 late classes at
 * once the others are seen later.
 *
 * Map (without htb_priv_)
 *   the bound       bind, look_begin, break_off; counts_ns, drains
 *   the knee        search, tried, failed; choose, better, judge, look; trial_fell, dive; more_is_asked; ran_dry
 *   the device      run_clock, doubt_pause, hangs; is_filling
 *   a late class    witness: keep_rate, was_late, was_in_time; need, give_up; narrow; hurt
 *   one alone       note_alone, newcomer, look_alone
 *   a completion    watch, which calls all of these */

/* Moves the estimate of a quantile: up and down by steps whose ratio is that of the requests on both sides of it. */
QOS_PRIV uint16_t htb_priv_quantile(uint16_t estimate, uint16_t seen, uint32_t up, uint32_t down)
{
    if (estimate == 0)
        return seen;
    if (seen > estimate)
        return (uint16_t)qos_min((uint64_t)estimate + up, seen);
    return (uint16_t)qos_max(estimate - qos_min(down, estimate), seen);
}

/* The class's place among those that were late; QOS_NONE: it was not. */
QOS_PRIV uint32_t htb_priv_watched(const struct htb *tree, uint32_t id)
{
    uint32_t i;
    if (!(tree->node[id].flags & HTB_PRIV_WATCHED))
        return QOS_NONE;
    for (i = 1; tree->flight.cls[i].id != id; i++)
        QOS_ASSERT(i + 1 < HTB_PRIV_LATE_MAX);
    return i;
}

/* A class is late: it gets a free place, or that of the class that is least behind of those that narrow nothing. (If it
 * took such a place while others are free, two classes that are late by chance now and then would take each other's for
 * ever, and neither would be helped.) */
QOS_PRIV_NOINLINE void htb_priv_watch_also(struct htb *tree, uint32_t id)
{
    struct htb_priv_late *place = NULL, *c;
    for (c = &tree->flight.cls[1]; c != &tree->flight.cls[HTB_PRIV_LATE_MAX]; c++) {
        if (c->id == QOS_NONE) {
            place = c;
            break;
        }
        if (c->bound == HTB_PRIV_WIDE && c->retry_ns <= tree->now_ns &&
            (place == NULL || c->behind_ns < place->behind_ns))
            place = c;
    }
    if (place == NULL)
        return;
    c = place;
    if (c->id != QOS_NONE)
        htb_priv_mark(tree, c->id, HTB_PRIV_WATCHED, false);
    c->id = id;
    c->bound = HTB_PRIV_WIDE;
    c->step = HTB_PRIV_STEP_MAX / 2;
    c->credit = 0;
    c->score = 0;
    c->run = c->seen = c->lates = c->before = c->vain = 0;
    c->took_ns = c->was_ns = 0;
    c->anew = false;
    c->move = HTB_PRIV_CUT;
    c->retry_ns = c->rest_ns = c->behind_ns = c->stalled_ns = 0;
    c->at_ns = tree->flight.active_ns;
    htb_priv_mark(tree, id, HTB_PRIV_WATCHED, true);
}

QOS_PRIV uint64_t htb_priv_apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The bound: what the throughput needs, or what the late classes need; while one class is alone, more. */
QOS_PRIV void htb_priv_bind(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t most_ns = f->alone && f->phase == HTB_PRIV_BASE ? qos_max(f->knee_ns, f->lone_ns) : f->knee_ns;
    const bool narrows = f->narrow < htb_priv_log2(most_ns);
    const uint64_t bound_ns = qos_max(narrows ? htb_priv_exp2(f->narrow) : most_ns, f->min_ns);
    if (htb_priv_apart(bound_ns, f->bound_ns) > f->bound_ns / 16) {
        f->settle_ns = f->now_ns;
        f->filling_ns = 0;
    }
    f->draining = f->draining || (bound_ns < f->bound_ns && htb_priv_counts_ns(tree) > bound_ns);
    f->bound_ns = bound_ns;
    f->gate_end_ns = qos_min(f->gate_end_ns, qos_sat_add(tree->now_ns, bound_ns)); /* what is only taken to be there */
}

/* A look begins at this bound. What the old bound let in is no evidence. */
QOS_PRIV void htb_priv_look_begin(struct htb *tree, uint64_t knee_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    uint32_t i;
    QOS_ASSERT(f->min_ns <= knee_ns && knee_ns <= f->max_ns);
    for (i = 0; i < HTB_PRIV_LATE_MAX; i++)
        f->cls[i].seen = f->cls[i].lates = 0;
    f->knee_ns = knee_ns;
    htb_priv_bind(tree);
    f->begun_ns = f->active_ns;
    f->n = f->done_ns = f->most_ns = f->stay = f->held = 0;
    f->waited = f->times = 0;
    f->full = false;
}

/* At the knee again, at once: a trial is undone. */
QOS_PRIV void htb_priv_break_off(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t knee_ns = f->phase == HTB_PRIV_TRIAL ? f->base_ns : f->knee_ns;
    f->phase = HTB_PRIV_BASE;
    htb_priv_look_begin(tree, knee_ns);
}

/* Device time of a request of this look, on average. */
QOS_PRIV uint64_t htb_priv_mean_ns(const struct htb_priv_flight *f)
{
    return f->done_ns / qos_max(f->n, 1);
}

/* What fills a bound: if one request is larger than twice the bound, or all than half of it in the mean, that. */
QOS_PRIV uint64_t htb_priv_filled(const struct htb_priv_flight *f, uint64_t bound_ns)
{
    return f->most_ns / 2 > bound_ns || htb_priv_mean_ns(f) > bound_ns / 2 ? f->most_ns : bound_ns;
}

/* The least that is tried: what a late caller needs. */
QOS_PRIV uint64_t htb_priv_least(const struct htb_priv_flight *f)
{
    return qos_max(f->min_ns, qos_sat_sub(f->dry_ns, (f->active_ns - f->dry_at_ns) / 128));
}

/* Is what the bound before let in still leaving? (In joined trees that is not known.) */
QOS_PRIV bool htb_priv_drains(const struct htb *tree)
{
    return tree->flight.draining && !tree->joined.lease;
}

/* The bound to try in the present direction: wider by one request at least, or narrower than what was in flight. */
QOS_PRIV uint64_t htb_priv_tried(const struct htb_priv_flight *f)
{
    uint64_t bound_ns = qos_min(f->knee_ns, f->most_ns);
    if (!f->up) {
        bound_ns -= bound_ns / ((UINT64_C(1) << f->step) + 1);
        return qos_min(qos_max(bound_ns, htb_priv_least(f)), f->max_ns);
    }
    if (!f->full)
        return f->knee_ns;
    bound_ns = htb_priv_filled(f, f->knee_ns);
    if (bound_ns != f->knee_ns) /* one alone: a disk gains nothing by a second one, much by a choice */
        bound_ns *= 2;
    bound_ns = qos_max(bound_ns + (bound_ns >> f->step), f->most_ns + htb_priv_mean_ns(f));
    if (htb_priv_log2(bound_ns) > f->narrow) {
        bound_ns = htb_priv_exp2(f->narrow);
        if (bound_ns < f->knee_ns + f->knee_ns / 32)
            return f->knee_ns;
    }
    return qos_min(qos_max(bound_ns, htb_priv_least(f)), f->max_ns);
}

/* A trial has failed: the other direction, then smaller steps, then the search pauses. */
QOS_PRIV void htb_priv_failed(struct htb_priv_flight *f, uint64_t now_ns)
{
    if (f->up && f->step < 2) /* did no class keep it from being tried? */
        f->known = f->known || f->narrow >= htb_priv_log2(f->knee_ns + (f->knee_ns >> f->step));
    f->up = !f->up;
    f->failed = !f->failed;
    if (f->failed)
        return;
    if (++f->step <= HTB_PRIV_FINE)
        return;
    f->searching = false;
    f->settled_speed = f->speed[0];
    f->hold_ns = qos_min(qos_max(2 * f->hold_ns, 64 * (f->active_ns - f->begun_ns)), UINT64_C(60000000000));
    f->probe_ns = qos_sat_add(now_ns, f->hold_ns);
}

QOS_PRIV void htb_priv_search(struct htb_priv_flight *f, uint32_t step)
{
    f->searching = f->up = true;
    f->step = step;
    f->failed = false;
}

/* Another device: what was learned does not count. */
QOS_PRIV void htb_priv_search_anew(struct htb_priv_flight *f)
{
    htb_priv_search(f, 0);
    f->settled_speed = f->look_speed = f->speed[f->phase];
    f->wide_ns = f->active_ns - f->begun_ns;
    f->wide_done_ns = f->done_ns;
}

/* Does the knee take longer to fill and to drain than own tokens are waited for? */
QOS_PRIV bool htb_priv_is_deep(const struct htb *tree)
{
    return tree->flight.knee_ns > tree->set.burst_ns;
}

/* The speed before the bound was narrowed for classes; 0: not known. */
QOS_PRIV uint64_t htb_priv_from_speed(const struct htb *tree)
{
    const struct htb_priv_flight *f = &tree->flight;
    if (!htb_priv_is_deep(tree))
        return f->look_speed;
    if (f->look_speed == 0 || f->wide_ns == 0)
        return 0;
    return qos_mul_div_floor(f->wide_done_ns, UINT64_C(1) << 20, f->wide_ns);
}

/* What a class learned of a device that was slower or faster by a half does not count, nor what was not known. */
QOS_PRIV void htb_priv_rested(struct htb_priv_flight *f, uint64_t now_speed)
{
    const uint16_t speed = htb_priv_log2(now_speed);
    uint32_t i;
    for (i = 0; i < HTB_PRIV_LATE_MAX; i++) {
        struct htb_priv_late *c = &f->cls[i];
        if (c->speed == 0 ? f->known : speed > c->speed + HTB_PRIV_HALF || c->speed > speed + HTB_PRIV_HALF)
            c->retry_ns = 0;
    }
}

/* The speed in this look, so far: device time completed in 2^20 ns. */
QOS_PRIV uint64_t htb_priv_speed(const struct htb_priv_flight *f)
{
    const uint64_t took_ns = qos_max(f->active_ns - f->begun_ns, 1);
    return qos_min(qos_mul_div_floor(f->done_ns, UINT64_C(1) << 20, took_ns), UINT64_C(1) << 60);
}

/* Is a dive due? */
QOS_PRIV bool htb_priv_trial_fell(const struct htb_priv_flight *f)
{
    return f->phase != HTB_PRIV_BASE && f->up && f->n >= 8 && f->waited >= f->n / 4 * 3 &&
           htb_priv_speed(f) < f->speed[HTB_PRIV_BASE] / 2;
}

QOS_PRIV void htb_priv_dive(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    f->base_ns = f->phase == HTB_PRIV_TRIAL ? f->base_ns : f->knee_ns;
    f->speed[HTB_PRIV_BASE] = htb_priv_speed(f);
    f->longer = 0;
    f->up = f->hurts = false;
    f->phase = HTB_PRIV_TRIAL;
    htb_priv_look_begin(tree, qos_max(qos_min(f->base_ns, f->most_ns) / 8, htb_priv_least(f)));
}

/* In the first search: has a class narrowed the bound for lag_ns on end, and no less is completed than at the knee?
 * Then that is the knee. (Sooner it may be that of one phase of a load that goes on and off.) */
QOS_PRIV bool htb_priv_narrow_is_knee(const struct htb *tree)
{
    const struct htb_priv_flight *f = &tree->flight;
    const uint32_t by = f->by == QOS_NONE ? QOS_NONE : htb_priv_watched(tree, f->by);
    const uint64_t from = htb_priv_from_speed(tree);
    return f->searching && f->settled_speed == 0 && f->bound_ns < f->knee_ns && from != 0 && f->speed[0] >= from &&
           by != QOS_NONE && f->active_ns - f->cls[by].begun_ns > tree->lag_ns;
}

/* At the bound: begins a trial, or stays. */
QOS_PRIV void htb_priv_choose(struct htb *tree, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    uint64_t bound_ns, tried_ns;
    if (htb_priv_narrow_is_knee(tree))
        f->knee_ns = f->bound_ns;
    bound_ns = tried_ns = f->knee_ns;
    if (f->bound_ns >= f->knee_ns) {
        const uint64_t apart = htb_priv_apart(f->speed[0], f->settled_speed);
        f->look_speed = qos_max(f->speed[0], f->look_speed - f->look_speed / 16); /* single looks may show less */
        if (f->searching ? f->step >= 2 && f->settled_speed != 0 && apart > qos_min(f->speed[0], f->settled_speed)
                         : apart > f->settled_speed / 4) {
            htb_priv_search_anew(f);
        } else if (!f->searching && now_ns >= f->probe_ns) {
            htb_priv_search(f, HTB_PRIV_FINE);
        }
        while (f->searching && (tried_ns = htb_priv_tried(f)) == bound_ns)
            htb_priv_failed(f, now_ns);
    }
    f->base_ns = bound_ns;
    f->hurts = false;
    f->phase = tried_ns == bound_ns ? HTB_PRIV_BASE : HTB_PRIV_TRIAL;
    htb_priv_look_begin(tree, tried_ns);
}

/* Was the trial better? */
QOS_PRIV bool htb_priv_better(const struct htb *tree)
{
    const struct htb_priv_flight *f = &tree->flight;
    const uint64_t before = f->speed[HTB_PRIV_BASE], after = f->speed[HTB_PRIV_AGAIN];
    const uint64_t mean = (before + after) / 2, best = qos_max(before, after), least = mean / qos_min(f->n, 64);
    const bool unsteady = f->n < 64 || f->stalled_ns != 0 || (f->active_ns - f->dry_at_ns) / 1024 < f->dry_ns;
    const uint64_t alike = unsteady ? best + (best - mean) : f->step < 2 ? mean : best;
    return !f->hurts &&
           (f->up ? f->speed[HTB_PRIV_TRIAL] > best + least : f->speed[HTB_PRIV_TRIAL] + least / 2 >= alike);
}

/* At the bound again after a trial. */
QOS_PRIV void htb_priv_judge(struct htb *tree, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    uint64_t bound_ns = f->knee_ns;
    const uint64_t before = f->speed[HTB_PRIV_BASE], after = f->speed[HTB_PRIV_AGAIN],
                   apart = htb_priv_apart(before, after);
    f->found_waits = (uint32_t)qos_min(f->waits_of[HTB_PRIV_BASE], f->waits_of[HTB_PRIV_AGAIN]);
    /* No evidence, unless a wider bound gives plainly more than both: look for longer. */
    if (apart > qos_max(before, after) >> (f->step + 1) && f->longer < 3 &&
        !(f->up && f->speed[HTB_PRIV_TRIAL] > qos_max(before, after) + 2 * apart)) {
        f->longer++;
        if (f->step >= 2 && apart > qos_max(before, after) / 4 && f->active_ns - f->begun_ns > HTB_PRIV_LOOK_NS)
            htb_priv_search_anew(f); /* else at a speed that fell looks would take seconds */
    } else if (htb_priv_better(tree)) {
        bound_ns = f->base_ns; /* here: the bound that was tried */
        f->step -= f->step != 0;
        f->failed = false;
        f->hold_ns = 0;
        f->found_waits = f->waits_of[HTB_PRIV_TRIAL];
    } else {
        htb_priv_failed(f, now_ns);
    }
    if (f->longer != 0 && apart < qos_max(before, after) >> (f->step + 3))
        f->longer--;
    if (apart < before / 8)
        htb_priv_rested(f, before);
    f->phase = HTB_PRIV_BASE;
    htb_priv_look_begin(tree, bound_ns);
}

/* The classes' bound has changed: it holds at once. A trial of another knee that it cuts ends. */
QOS_PRIV void htb_priv_narrow(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    uint32_t i;
    f->narrow = HTB_PRIV_WIDE;
    for (i = 0; i < HTB_PRIV_LATE_MAX; i++)
        if (f->cls[i].bound < f->narrow) {
            f->narrow = f->cls[i].bound;
            f->by = f->cls[i].id;
        }
    if (f->narrow == HTB_PRIV_WIDE)
        f->by = QOS_NONE;
    if (f->bound_ns > htb_priv_exp2(f->narrow) && f->phase != HTB_PRIV_BASE) {
        if (htb_priv_trial_fell(f)) {
            htb_priv_dive(tree);
            return;
        }
        if (f->phase == HTB_PRIV_TRIAL && f->knee_ns > f->base_ns)
            htb_priv_failed(f, tree->now_ns);
        htb_priv_break_off(tree);
        return;
    }
    htb_priv_bind(tree);
}

/* A class that ends needs nothing. */
QOS_PRIV void htb_priv_unwatch(struct htb *tree, uint32_t id)
{
    const uint32_t i = htb_priv_watched(tree, id);
    if (i == QOS_NONE)
        return;
    tree->flight.cls[i].id = QOS_NONE;
    tree->flight.cls[i].bound = HTB_PRIV_WIDE;
    htb_priv_narrow(tree);
}

/* A look at the knee ends: how late were the classes there? One that has asked nothing for lag_ns needs nothing, and
 * none does if a narrow bound shows plainly more than the knee did: the device is another one. */
QOS_PRIV void htb_priv_look_back(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t from = htb_priv_from_speed(tree);
    const uint64_t least = qos_sat_add(from, qos_mul_div_floor(2 * from, f->bound_ns, f->knee_ns));
    const bool another =
        f->bound_ns < f->knee_ns && from != 0 && f->speed[HTB_PRIV_BASE] > least && !tree->joined.lease;
    uint32_t i;
    for (i = 1; i < HTB_PRIV_LATE_MAX; i++) {
        struct htb_priv_late *c = &f->cls[i];
        c->before = (uint32_t)(UINT64_C(64) * c->lates / qos_max(c->seen, 1));
        if (another || f->active_ns - c->at_ns > tree->lag_ns)
            c->bound = HTB_PRIV_WIDE;
    }
    if (another) {
        f->knee_ns = f->bound_ns;
        htb_priv_search_anew(f);
    }
    htb_priv_narrow(tree);
}

/* How long requests were at the device in this look, on average by device time. */
QOS_PRIV uint64_t htb_priv_stay(const struct htb_priv_flight *f)
{
    return f->stay / qos_max(f->done_ns >> 10, 1);
}

/* A trial of twice the bound, of few requests, or which takes long: does it complete nearly twice as much, or, if it
 * takes long, are requests at the device no longer, so that no other look is needed? */
QOS_PRIV bool htb_priv_doubled(const struct htb_priv_flight *f)
{
    const uint64_t before = f->speed[HTB_PRIV_BASE];
    const bool stays = f->waited == f->n && htb_priv_stay(f) < qos_sat_add(f->base_stay, f->base_stay / 8);
    const bool takes_long = f->active_ns - f->begun_ns > HTB_PRIV_LOOK_NS / 2;
    return f->up && f->step == 0 &&
           (((takes_long || f->n < 64) && htb_priv_speed(f) > before + before / 4 * 3) || (takes_long && stays));
}

/* Was what completes in this look there for less than what is in flight? By more than an eighth, and than the ends of
 * a look differ by chance: a quarter of the bound, for its mean stay. Then it begins again. */
QOS_PRIV bool htb_priv_is_filling(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t ends = qos_sat_mul(htb_priv_stay(f), f->bound_ns >> 12);
    if (f->phase != HTB_PRIV_TRIAL || !f->up || f->hurts || !htb_priv_is_deep(tree) ||
        f->filling_ns > qos_sat_mul(64, f->bound_ns) || qos_sat_add(f->stay, ends) >= f->held - f->held / 8)
        return false;
    f->filling_ns = qos_sat_add(f->filling_ns, f->done_ns);
    f->longer += f->longer < 3;
    htb_priv_look_begin(tree, f->knee_ns);
    return true;
}

/* A look ends. */
QOS_COLD QOS_PRIV void htb_priv_look(struct htb *tree, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t tried_ns = f->knee_ns;
    const bool doubled = f->phase == HTB_PRIV_TRIAL && htb_priv_doubled(f);
    if (htb_priv_is_filling(tree))
        return;
    f->speed[f->phase] = htb_priv_speed(f);
    if (doubled || f->phase == HTB_PRIV_BASE)
        f->base_stay = htb_priv_stay(f);
    f->waits_of[f->phase] = (uint32_t)(64 * f->waited / qos_max(f->n, 1));
    if (doubled && !f->hurts) { /* kept */
        f->speed[HTB_PRIV_BASE] = f->speed[HTB_PRIV_TRIAL];
        f->failed = false;
        htb_priv_choose(tree, now_ns);
    } else if (f->phase == HTB_PRIV_BASE) {
        htb_priv_look_back(tree);
        htb_priv_choose(tree, now_ns);
    } else if (htb_priv_trial_fell(f)) {
        htb_priv_dive(tree);
    } else if (f->phase == HTB_PRIV_TRIAL) {
        f->phase = HTB_PRIV_AGAIN;
        htb_priv_look_begin(tree, f->base_ns);
        f->base_ns = tried_ns;
    } else {
        htb_priv_judge(tree, now_ns);
    }
}

/* The caller came late: the device was idle for so long. The knee is at least what it was idle for, less 1/128 of the
 * time since, and at most what a newcomer may wait for. It is looked for again when that is gone. */
QOS_PRIV void htb_priv_ran_dry(struct htb *tree, uint64_t idle_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    f->dry_ns = qos_min(qos_sat_add(htb_priv_least(f), idle_ns), f->alone_ns);
    f->dry_at_ns = f->active_ns;
    if (f->alone || htb_priv_least(f) <= f->knee_ns)
        return;
    htb_priv_break_off(tree);
    htb_priv_look_begin(tree, qos_max(f->knee_ns, htb_priv_least(f)));
    f->hold_ns = 0;
    f->probe_ns = qos_min(f->probe_ns, qos_sat_add(tree->now_ns, 128 * f->dry_ns));
}

/* Was the last pause none? What was at the device then is complete. The device needs `needs_ns` for that; if it took
 * less by what it could have done in the pause, but for an eighth, the device worked and the caller was away. */
QOS_PRIV_NOINLINE void htb_priv_doubt_pause(struct htb *tree, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t speed = f->speed[HTB_PRIV_BASE];
    const uint64_t needs_ns = qos_mul_div_floor(f->had_ns, UINT64_C(1) << 20, speed);
    const uint64_t could_ns = qos_min(f->hidden_ns, needs_ns);
    if (speed == 0 || now_ns - f->gap_end_ns >= needs_ns - could_ns + could_ns / 8)
        return;
    if (f->pause_end_ns == f->gap_end_ns)
        f->active_ns += f->hidden_ns;
    if (f->hidden_ns > needs_ns)
        htb_priv_ran_dry(tree, f->hidden_ns - needs_ns);
}

/* The active clock: it stands still while the device pauses: longer than a ms, than four of the longest gaps between
 * the times of the latest completions (of many at one time the first shows the gap), and than twice what requests of
 * this size take. (Under a bound below one large request this is alone at the device: the gap is what the bound
 * costs.) */
QOS_PRIV void htb_priv_run_clock(struct htb *tree, const struct htb_request *r, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t gap_ns = qos_min(qos_elapsed_ns(f->last_ns, now_ns), HTB_BURST_MAX_NS), /* a wrong now_ns */
        most_ns = f->gap_ns == 0 ? gap_ns : qos_max(4 * f->gap_ns, 1000000);
    const bool pause =
        gap_ns > most_ns && gap_ns / 2 > qos_mul_div_floor(r->flight_ns, f->took_ns, qos_max(f->cost_ns, 1));
    uint32_t i;
    if (gap_ns > most_ns) {
        f->gap_end_ns = now_ns;
        f->hidden_ns = gap_ns - most_ns;
        f->had_ns = f->now_ns;
        f->had = tree->dispatch.at_device;
    }
    if (pause) {
        f->pause_end_ns = now_ns;
        f->lent_ns = f->active_ns + gap_ns;
        f->stalled_ns = qos_min(f->stalled_ns + gap_ns - most_ns, tree->lag_ns);
        f->stalled_at_ns = f->active_ns;
        for (i = 1; i < HTB_PRIV_LATE_MAX; i++)
            f->cls[i].stalled_ns = qos_min(f->cls[i].stalled_ns + gap_ns - most_ns, tree->lag_ns);
    } else if (f->active_ns - f->stalled_at_ns > tree->lag_ns) {
        f->stalled_ns = 0;
    }
    f->active_ns += pause ? most_ns : gap_ns;
    f->held = qos_sat_add(f->held, qos_sat_mul(f->now_ns >> 10, gap_ns));
    f->later = now_ns != f->completed_ns;
    f->completed_ns = now_ns;
    if (r->sent_ns >= f->pause_end_ns) {
        f->took_ns = f->took_ns - f->took_ns / 64 + qos_min(qos_elapsed_ns(r->sent_ns, now_ns), HTB_BURST_MAX_NS);
        f->cost_ns = f->cost_ns - f->cost_ns / 64 + qos_min(r->flight_ns, HTB_BURST_MAX_NS);
    }
    if (f->gap_ns == 0)
        f->gap_ns = gap_ns; /* the first one shows what is usual */
    else if (f->later && !htb_priv_hangs(f, r))
        f->gap_ns = qos_max(f->gap_ns - f->gap_ns / 64, qos_min(gap_ns, 2 * f->gap_ns + 1000));
    f->last_ns = now_ns;
    if (gap_ns <= most_ns && f->had != 0 && r->sent_ns < f->gap_end_ns && --f->had == 0)
        htb_priv_doubt_pause(tree, now_ns);
}

/* Narrowing does not help this class: what was narrowed for it is undone, and it rests. */
QOS_PRIV void htb_priv_give_up(struct htb *tree, struct htb_priv_late *c)
{
    uint32_t i;
    c->rest_ns = qos_min(qos_max(2 * c->rest_ns, 64 * (tree->flight.active_ns - c->begun_ns)), UINT64_C(64000000000));
    c->retry_ns = qos_sat_add(tree->now_ns, c->rest_ns);
    c->speed = htb_priv_log2(htb_priv_from_speed(tree));
    c->bound = HTB_PRIV_WIDE;
    c->step = HTB_PRIV_STEP_MAX / 2;
    c->credit = 0;
    c->score = 0;
    c->vain = 0;
    c->stalled_ns = 0;
    for (i = 1; i < HTB_PRIV_LATE_MAX; i++) /* it may be why others are behind */
        tree->flight.cls[i].behind_ns = qos_min(tree->flight.cls[i].behind_ns, tree->set.burst_ns);
    c->behind_ns = 0;
    htb_priv_narrow(tree);
    if (tree->flight.phase == HTB_PRIV_BASE)
        htb_priv_look_begin(tree, tree->flight.knee_ns);
}

/* Sets what a class needs. */
QOS_PRIV void htb_priv_need(struct htb *tree, struct htb_priv_late *c, uint32_t bound)
{
    if (c->bound == HTB_PRIV_WIDE) {
        c->begun_ns = tree->flight.active_ns;
        c->sum_ns = tree->flight.sum_ns;
    }
    c->bound = (uint16_t)bound;
    htb_priv_narrow(tree);
}

/* The step doubles when moves one way come in haste, and halves when they turn. */
QOS_PRIV void htb_priv_stride(struct htb_priv_late *c, enum htb_priv_move move)
{
    if (c->move != (uint32_t)move)
        c->step = (uint16_t)qos_max(c->step / 2u, HTB_PRIV_STEP_MIN);
    else if (c->run < 16)
        c->step = (uint16_t)qos_min(2u * c->step, HTB_PRIV_STEP_MAX);
    c->move = (uint32_t)move;
    c->run = 0;
}

/* It was long at the device: the bound falls. */
QOS_PRIV void htb_priv_cut_for(struct htb *tree, struct htb_priv_late *c)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint32_t now = (uint32_t)qos_min(c->bound, htb_priv_log2(f->bound_ns)), least = htb_priv_log2(f->min_ns);
    htb_priv_stride(c, HTB_PRIV_CUT);
    if (f->phase == HTB_PRIV_TRIAL && f->knee_ns > f->base_ns) /* half of the way back */
        htb_priv_need(tree, c, (now + htb_priv_log2(f->base_ns) + 1u) / 2u);
    else if (now <= least)
        htb_priv_give_up(tree, c);
    else
        htb_priv_need(tree, c, (uint32_t)qos_max(qos_sat_sub(now, c->step), least));
}

/* It waited long for room: the bound rises, as from now. At the knee it needs nothing narrower. */
QOS_PRIV void htb_priv_widen_for(struct htb *tree, struct htb_priv_late *c)
{
    const uint32_t bound = (uint32_t)c->bound + c->step;
    htb_priv_stride(c, HTB_PRIV_WIDENED);
    htb_priv_need(tree, c, bound < htb_priv_log2(tree->flight.knee_ns) ? bound : HTB_PRIV_WIDE);
    tree->flight.changed_ns = tree->now_ns;
}

/* In a trial of a wider bound: are no more late than at the knee? One may be by chance. */
QOS_PRIV bool htb_priv_no_later(const struct htb_priv_flight *f, const struct htb_priv_late *c)
{
    return f->phase == HTB_PRIV_TRIAL && f->knee_ns > f->base_ns &&
           UINT64_C(64) * (c->lates - 1) <= (uint64_t)c->before * c->seen;
}

/* Of a class with latency_ns, a request is late. A burst of them costs as much credit as it had requests at the
 * device, so that it is made up for, but moves the bound once. */
QOS_PRIV void htb_priv_was_late(struct htb *tree, struct htb_priv_late *c, const struct htb_request *r, bool room)
{
    const struct htb_priv_flight *f = &tree->flight;
    const bool narrows = f->narrow < htb_priv_log2(f->knee_ns);
    const int32_t least =
        -HTB_PRIV_GOOD * (int32_t)qos_min(qos_max(tree->cls[c->id].u.leaf.outstanding, 1), HTB_PRIV_CLUSTER);
    const bool goes_down = !room && c->move == HTB_PRIV_CUT && c->step == HTB_PRIV_STEP_MAX;
    c->lates++;
    if ((room && c->bound == HTB_PRIV_WIDE) || htb_priv_no_later(f, c))
        return;
    c->credit = c->credit - HTB_PRIV_GOOD < least ? least : c->credit - HTB_PRIV_GOOD;
    if (r->since_ns < f->changed_ns || f->draining)
        return;
    if (f->phase == HTB_PRIV_BASE && narrows && (!goes_down || (f->searching && f->step < 2)))
        c->score += 64;
    if (c->score > 64 * HTB_PRIV_HOPELESS)
        htb_priv_give_up(tree, c);
    else if (c->credit < 0 && room)
        htb_priv_widen_for(tree, c);
    else if (c->credit < 0)
        htb_priv_cut_for(tree, c);
}

/* It was in time. */
QOS_PRIV void htb_priv_was_in_time(struct htb *tree, struct htb_priv_late *c)
{
    uint32_t bound = c->bound + (uint32_t)qos_max(c->step / 64u, 1);
    c->run++;
    c->score -= c->score > -64 * HTB_PRIV_TRUSTED;
    c->credit += c->credit < 2 * HTB_PRIV_GOOD;
    QOS_ASSERT(c->credit <= 2 * HTB_PRIV_GOOD);
    if (c->credit < HTB_PRIV_GOOD || c->bound == HTB_PRIV_WIDE)
        return;
    if (bound > htb_priv_log2(tree->flight.knee_ns) + 512u) {
        bound = HTB_PRIV_WIDE;
        c->rest_ns = 0;
    }
    c->move = HTB_PRIV_CLIMBED;
    htb_priv_need(tree, c, bound);
}

/* Is a speed less, by an eighth, than before the bound was narrowed? */
QOS_PRIV bool htb_priv_is_less(const struct htb *tree, uint64_t speed)
{
    const uint64_t before = htb_priv_from_speed(tree);
    return speed < before - before / 8;
}

/* Does the device complete less than before the bound was narrowed? A few requests do by chance. */
QOS_PRIV bool htb_priv_is_slower(const struct htb *tree)
{
    const struct htb_priv_flight *f = &tree->flight;
    const bool shows = f->phase == HTB_PRIV_BASE && f->n >= 64 && f->done_ns >= 2 * f->bound_ns;
    return htb_priv_is_less(tree, shows ? htb_priv_speed(f) : f->speed[HTB_PRIV_BASE]);
}

/* The speed since the bound was narrowed for this class, which may be too short for a look. */
QOS_PRIV uint64_t htb_priv_speed_since(const struct htb_priv_flight *f, const struct htb_priv_late *c)
{
    return qos_mul_div_floor(qos_wrap_sub(f->sum_ns, c->sum_ns), UINT64_C(1) << 20,
                             qos_max(f->active_ns - c->begun_ns, 1));
}

/* Does its bound let one request go at a time, 3.2 s after it began to narrow? */
QOS_PRIV bool htb_priv_lets_one_go(const struct htb_priv_flight *f, const struct htb_priv_late *c)
{
    return f->active_ns - c->begun_ns > 32 * HTB_PRIV_LOOK_NS && htb_priv_exp2(c->bound) < f->cost_ns / 32;
}

/* A class that had no requests is not behind. */
QOS_PRIV void htb_priv_asks_anew(struct htb *tree, uint32_t id)
{
    struct htb_priv_late *c = &tree->flight.cls[htb_priv_watched(tree, id)];
    if (tree->cls[id].u.leaf.outstanding + tree->cls[id].u.leaf.queued == 0) {
        c->behind_ns = c->stalled_ns = 0;
        c->anew = true;
    }
}

/* Half of the bound did not help: 16 requests that were sent under it (4, if these took 1.6 s in all) took no eighth
 * less at the device than 16 before it. (If they took longer, the device is slower by itself.) Twice, as it may have
 * become slower just then. */
QOS_PRIV bool htb_priv_in_vain(struct htb_priv_late *c, uint64_t sent_ns, uint64_t now_ns)
{
    const bool narrows = c->bound != HTB_PRIV_WIDE;
    if (narrows && c->bound + 1024u > c->half)
        c->half_ns = now_ns;
    if (narrows && sent_ns <= c->half_ns)
        return false;
    c->took_ns = qos_sat_add(c->took_ns, qos_elapsed_ns(sent_ns, now_ns));
    if (++c->run < (c->took_ns < 16 * HTB_PRIV_LOOK_NS ? 16u : 4u))
        return false;
    c->took_ns /= c->run;
    if (narrows && c->took_ns > c->was_ns - c->was_ns / 8 && c->took_ns < qos_sat_add(c->was_ns, c->was_ns / 16))
        c->vain++;
    c->was_ns = c->took_ns;
    c->half = c->bound;
    c->took_ns = c->run = 0;
    return c->vain > 1;
}

/* Of a class with a rate only: how far is it behind, in the time that it asked for more? */
QOS_PRIV void htb_priv_keep_rate(struct htb *tree, struct htb_priv_late *c, uint64_t own_ns, uint64_t took_ns,
                                 uint64_t sent_ns, bool room)
{
    /* A request that takes longer is no lateness. (Narrower, it takes less: what was behind must not count as more.) */
    const uint64_t unit_ns =
        c->bound == HTB_PRIV_WIDE ? qos_max(tree->set.burst_ns, qos_elapsed_ns(sent_ns, tree->now_ns)) : c->unit_ns;
    const bool vain = htb_priv_in_vain(c, sent_ns, tree->now_ns);
    const bool asks = tree->cls[c->id].u.leaf.outstanding + tree->cls[c->id].u.leaf.queued > 1;
    const uint64_t made_up_ns = qos_min(own_ns / 2, c->stalled_ns);
    uint64_t octaves, behind_ns;
    uint32_t bound;
    c->stalled_ns = asks ? c->stalled_ns - made_up_ns : 0;
    behind_ns = qos_sat_sub(c->behind_ns + took_ns, own_ns - made_up_ns);
    if (room && c->stalled_ns != 0) /* twice its rate is not due while it waits for room */
        behind_ns = qos_min(behind_ns, c->behind_ns);
    c->behind_ns = asks ? behind_ns : 0;
    octaves = qos_mul_div_floor(qos_sat_sub(c->behind_ns, unit_ns / 2), 1024, unit_ns);
    if (c->bound == HTB_PRIV_WIDE) {
        if (octaves == 0 || room || c->retry_ns > tree->now_ns || htb_priv_from_speed(tree) == 0)
            return;
        /* The knee may be too small. (In joined trees a search has no end while others have the device.) */
        if (!tree->joined.lease && tree->flight.searching && tree->flight.step < 2 &&
            c->behind_ns < qos_max(32 * HTB_PRIV_LOOK_NS, 64 * tree->flight.gap_ns))
            return;
        c->behind_ns = tree->joined.lease ? c->behind_ns : qos_min(c->behind_ns, unit_ns);
        c->from = htb_priv_log2(tree->flight.bound_ns);
        c->unit_ns = unit_ns;
        if (c->was_ns == 0)
            c->was_ns = c->took_ns / qos_max(c->run, 1);
        c->took_ns = c->run = 0;
        c->half = c->from;
    }
    if (octaves == 0) {
        if (!c->anew) /* it got its rate */
            c->rest_ns = c->vain = 0;
        c->anew = false;
        htb_priv_need(tree, c, HTB_PRIV_WIDE);
        return;
    }
    bound = (uint32_t)qos_max(qos_sat_sub(c->from, octaves), htb_priv_log2(tree->flight.min_ns));
    if (c->bound != HTB_PRIV_WIDE && /* as it begins it may be behind by a whole search */
        (vain || bound == htb_priv_log2(tree->flight.min_ns) || htb_priv_lets_one_go(&tree->flight, c)) &&
        htb_priv_is_less(tree, htb_priv_speed_since(&tree->flight, c))) {
        htb_priv_give_up(tree, c);
    } else if (!room || bound > c->bound) { /* what waits for room is not helped by less of it */
        htb_priv_need(tree, c, bound);
    }
}

/* A request of a class that was late is complete. */
QOS_PRIV_NOINLINE void htb_priv_witness(struct htb *tree, struct htb_priv_late *c, const struct htb_request *r,
                                        const uint64_t *tokens, uint64_t now_ns)
{
    const struct htb_priv_flight *f = &tree->flight;
    const uint64_t latency_ns = (uint64_t)tree->cls[c->id].u.leaf.latency_us * 1000;
    const uint64_t turn_ns = latency_ns ? qos_sat_sub(r->due_ns, latency_ns) : r->since_ns;
    const bool room = qos_sat_sub(r->sent_ns, turn_ns) > qos_elapsed_ns(r->sent_ns, now_ns);
    const uint64_t elapsed_ns = qos_min(f->active_ns - c->at_ns, qos_elapsed_ns(r->since_ns, now_ns));
    c->at_ns = f->active_ns;
    if (c->retry_ns > now_ns)
        return;
    if (latency_ns == 0)
        htb_priv_keep_rate(tree, c, htb_priv_own_ns(tree, c->id, tokens), elapsed_ns, r->sent_ns, room);
    if (latency_ns == 0 || r->since_ns < f->pause_end_ns)
        return;
    c->seen++;
    if (now_ns > r->due_ns)
        htb_priv_was_late(tree, c, r, room);
    else
        htb_priv_was_in_time(tree, c);
}

/* Should its class be watched? With N requests of n tokens outstanding that take this long, a class of rate R gets
 * N * n / took; one request of 8 is looked at. */
QOS_PRIV bool htb_priv_seems_late(const struct htb *tree, const struct htb_request *r, uint64_t took_ns)
{
    const struct htb_priv_class *c = &tree->cls[r->paid_by];
    uint64_t own_ns;
    if (c->u.leaf.latency_us != 0)
        return tree->now_ns > r->due_ns;
    own_ns = (tree->flight.n & 7) == 0 ? htb_priv_own_ns(tree, r->paid_by, r->tokens) : 0;
    return own_ns != 0 && took_ns > qos_sat_mul(own_ns, (uint64_t)c->u.leaf.outstanding + c->u.leaf.queued);
}

/* A bound that was narrowed must not hurt: a trial, but no dive, ends, or the class that narrowed it gives up. True: a
 * look ended. */
QOS_PRIV bool htb_priv_hurt(struct htb *tree, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    const bool trial = f->phase == HTB_PRIV_TRIAL && f->knee_ns < f->base_ns && f->knee_ns >= f->base_ns / 4;
    /* The class that the bound is narrowed for waits for what it gets by that. */
    const bool helped = f->by < tree->classes && (tree->node[f->by].flags & HTB_PRIV_OWN) != 0;
    const bool drains = htb_priv_drains(tree) && f->bound_ns > tree->set.burst_ns;
    const uint64_t burst_ns = tree->set.burst_ns;
    const uint64_t wait_ns = trial ? burst_ns / 2 : f->known ? burst_ns + burst_ns / 2 : 16 * burst_ns;
    uint32_t i;
    if (tree->own.count == helped || drains || (!trial && f->bound_ns >= f->knee_ns))
        f->lent_ns = qos_max(f->lent_ns, f->active_ns);
    if (qos_sat_sub(f->active_ns, f->lent_ns) <= wait_ns)
        return false; /* own tokens wait, but not on end */
    f->lent_ns = f->active_ns;
    if (trial) {
        f->hurts = true;
        htb_priv_look(tree, now_ns);
        return true;
    }
    if (f->known && !htb_priv_is_slower(tree))
        return false; /* it is the device */
    for (i = 0; f->cls[i].id != f->by; i++)
        QOS_ASSERT(i + 1 < HTB_PRIV_LATE_MAX);
    htb_priv_give_up(tree, &f->cls[i]);
    if (!f->known) {
        f->cls[i].speed = 0;
        htb_priv_search(f, 0);
        htb_priv_break_off(tree);
    }
    return false;
}

/* With latency_ns: a request is complete before its turn, by what others left. Turns follow, but for burst_ns and for
 * what is outstanding: who had more than its rate is not made to wait for it. */
QOS_PRIV void htb_priv_turn_early(struct htb *tree, const struct htb_request *r, uint64_t now_ns)
{
    struct htb_priv_class *c = &tree->cls[r->paid_by];
    uint64_t others = (uint64_t)c->u.leaf.outstanding + c->u.leaf.queued - 1;
    uint64_t ahead_ns = qos_sat_mul(htb_priv_own_ns(tree, r->paid_by, r->tokens), others);
    if (now_ns < qos_sat_sub(r->due_ns, (uint64_t)c->u.leaf.latency_us * 1000))
        c->u.leaf.turn_ns = qos_min(c->u.leaf.turn_ns, qos_sat_add(now_ns, qos_sat_add(tree->set.burst_ns, ahead_ns)));
}

/* How many requests a look takes: an eighth of them is enough where they take long. */
QOS_PRIV uint64_t htb_priv_look_least(const struct htb_priv_flight *f)
{
    const uint64_t shift = 2 * (f->phase == HTB_PRIV_BASE && !f->searching ? 1 : qos_min(f->step, 2) + f->longer);
    const uint64_t least = UINT64_C(64) << shift, long_ns = HTB_PRIV_LOOK_NS << shift;
    return f->active_ns - f->begun_ns < long_ns ? least : least / 8;
}

/* If requests seldom waited as the knee was judged, it is what was asked for then: when they do on end, it is looked
 * for anew, whatever the look. That counts at the knee only: a narrower trial makes requests wait itself. */
QOS_PRIV bool htb_priv_more_is_asked(struct htb *tree)
{
    struct htb_priv_flight *f = &tree->flight;
    const bool at_knee = f->phase != HTB_PRIV_TRIAL && f->bound_ns >= f->knee_ns;
    const uint64_t none_wait = 64 - f->found_waits;
    f->waited += f->waits;
    f->on_end = f->waits && at_knee ? f->on_end + 1 : 0;
    if (qos_sat_mul(f->on_end, none_wait * none_wait) < 64 * 64 * 64)
        return false;
    f->longer = 0;
    htb_priv_search(f, 0);
    f->found_waits = 64;
    htb_priv_break_off(tree);
    return true;
}

/* What a newcomer may find in flight: what is done in alone_ns, also by a device that is slower than configured. */
QOS_PRIV uint64_t htb_priv_newcomer(const struct htb_priv_flight *f)
{
    const uint64_t speed = f->speed[HTB_PRIV_BASE];
    return speed == 0 ? f->alone_ns : qos_min(f->alone_ns, qos_mul_div_floor(f->alone_ns, speed, UINT64_C(1) << 20));
}

/* Notes whether one class has asked alone for lag_ns: what is seen then is no evidence for the knee of several. */
QOS_PRIV void htb_priv_note_alone(struct htb *tree, const struct htb_priv_class *c)
{
    struct htb_priv_flight *f = &tree->flight;
    /* The request that is complete is outstanding still. Urgent ones that wait are counted for their class only. */
    const uint64_t all = (uint64_t)tree->queued + tree->dispatch.waiting + tree->dispatch.at_device + 1;
    bool alone;
    if (all > (uint64_t)c->u.leaf.queued + c->u.leaf.outstanding || tree->joined.lease)
        f->alone_from_ns = f->active_ns + tree->lag_ns;
    alone = f->active_ns >= f->alone_from_ns;
    if (alone != f->alone) {
        f->alone = alone;
        f->lone_ns = htb_priv_newcomer(f);
        f->lone_speed = f->lone_retry_ns = 0;
        htb_priv_break_off(tree);
        htb_priv_look_back(tree);
    }
}

/* A caller that comes each few ms sees many completions at one time. They took the time since it came before: a look
 * that ends among them, after few such times, would show many in no time. So it ends with the first of them. */
QOS_PRIV bool htb_priv_may_end(const struct htb_priv_flight *f)
{
    return f->later || f->times > 8;
}

/* One that is alone: twice the bound if requests wait for room, as long as each time an eighth more is completed. A
 * look counts if, by Little's law, three quarters of its bound were in flight in the mean: else less is asked for. */
QOS_PRIV void htb_priv_look_alone(struct htb *tree, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    const uint64_t took_ns = f->active_ns - f->begun_ns, speed = htb_priv_speed(f);
    const uint64_t bound_ns = qos_max(f->knee_ns, f->lone_ns),
                   usual_ns = qos_sat_sub(qos_max(f->knee_ns, qos_min(bound_ns, f->most_ns)),
                                          htb_priv_mean_ns(f)); /* the next one may not fit */
    const uint64_t before = qos_default(f->lone_speed, f->speed[HTB_PRIV_BASE]);
    const bool fell = speed < before / 2, again = f->phase == HTB_PRIV_AGAIN;
    if (!htb_priv_may_end(f) || f->n < (took_ns < 10 * HTB_PRIV_LOOK_NS ? 64 : 8) ||
        f->done_ns / 2 < htb_priv_filled(f, f->bound_ns))
        return;
    if (f->phase == HTB_PRIV_TRIAL) {
        htb_priv_look(tree, now_ns);
        return;
    }
    if (again && speed - speed / 4 < f->speed[HTB_PRIV_BASE]) { /* the knee is too wide, too, or the dive was in vain */
        if (f->speed[HTB_PRIV_TRIAL] / 2 >= f->speed[HTB_PRIV_BASE]) {
            f->knee_ns = f->base_ns;
            f->lone_retry_ns = 0;
        } else if (f->lone_ns == 0)
            f->lone_ns = htb_priv_newcomer(f);
    } else if (!again && f->stay >= qos_sat_mul(usual_ns >> 10, took_ns / 4 * 3) && f->active_ns >= f->lone_retry_ns) {
        if (fell || (f->lone_speed != 0 && speed < before + before / 8)) { /* in vain */
            f->lone_retry_ns = f->active_ns + 64 * took_ns;
            f->lone_ns = f->lone_speed != 0 ? bound_ns / 2 : 0;
            f->lone_speed = 0;
        } else if (f->full && 2 * bound_ns <= f->max_ns) {
            f->lone_speed = speed;
            f->lone_ns = 2 * bound_ns;
        }
        if (fell) {
            htb_priv_dive(tree);
            return;
        }
    }
    f->phase = HTB_PRIV_BASE;
    htb_priv_look_begin(tree, f->knee_ns);
}

/* Does a trial show early in its look that it is worse: by a third after 64 requests, by a sixth after 256? */
QOS_PRIV bool htb_priv_plainly_worse(const struct htb_priv_flight *f)
{
    const uint64_t before = f->speed[HTB_PRIV_BASE];
    return f->phase == HTB_PRIV_TRIAL && (f->n == 64 || f->n == 256) &&
           htb_priv_speed(f) < before - before / (f->n == 64 ? 3 : 6);
}

/* The speed at the knee, which narrowing is judged by, is the mean of the latest 1.6 s and 16 bounds. What is won as a
 * wider bound fills is lost as it drains: that counts, too. */
QOS_PRIV void htb_priv_count_wide(struct htb *tree, const struct htb_request *r)
{
    struct htb_priv_flight *f = &tree->flight;
    if (!f->alone && (f->bound_ns >= f->knee_ns || htb_priv_drains(tree))) {
        f->wide_ns = qos_sat_add(f->wide_ns, f->active_ns - f->wide_at_ns);
        f->wide_done_ns = qos_sat_add(f->wide_done_ns, r->flight_ns);
        if (f->wide_ns > 16 * HTB_PRIV_LOOK_NS && f->wide_done_ns > 16 * f->bound_ns) {
            f->wide_ns /= 2;
            f->wide_done_ns /= 2;
        }
    }
    f->wide_at_ns = f->active_ns;
}

/* A request is complete, and has cost `tokens`: what does it show of its class, and of the bound? */
QOS_PRIV void htb_priv_watch(struct htb *tree, const struct htb_request *r, const uint64_t *tokens, uint64_t now_ns)
{
    struct htb_priv_flight *f = &tree->flight;
    struct htb_priv_class *c = &tree->cls[r->paid_by];
    uint64_t took_ns;
    uint16_t took;
    uint32_t i;
    if (r->generation != c->generation || htb_priv_hurt(tree, now_ns))
        return;
    f->sum_ns = qos_wrap_add(f->sum_ns, r->flight_ns);
    htb_priv_count_wide(tree, r);
    took_ns = qos_elapsed_ns(r->since_ns, now_ns);
    took = htb_priv_log2(took_ns);
    if (c->u.leaf.latency_us != 0)
        htb_priv_turn_early(tree, r, now_ns);
    c->u.leaf.p50 = htb_priv_quantile(c->u.leaf.p50, took, 32, 32);
    c->u.leaf.p99 = htb_priv_quantile(c->u.leaf.p99, took, 198, 2);
    if (htb_priv_hangs(f, r))
        return;
    if (f->draining && htb_priv_counts_ns(tree) < f->bound_ns + r->flight_ns) {
        f->draining = false;
        f->changed_ns = now_ns;
    }
    i = htb_priv_watched(tree, r->paid_by);
    if (i != QOS_NONE)
        htb_priv_witness(tree, &f->cls[i], r, tokens, now_ns);
    else if (r->since_ns >= f->pause_end_ns && htb_priv_seems_late(tree, r, took_ns))
        htb_priv_watch_also(tree, r->paid_by);
    htb_priv_note_alone(tree, c);
    if (f->settle_ns > r->flight_ns) {
        f->settle_ns -= r->flight_ns;
        return;
    }
    if (f->settle_ns != 0) { /* now the bound shows */
        f->settle_ns = 0;
        htb_priv_look_begin(tree, f->knee_ns);
        return;
    }
    f->n++;
    f->times += f->later;
    f->stay = qos_sat_add(f->stay, qos_sat_mul(r->flight_ns >> 10, qos_elapsed_ns(r->sent_ns, now_ns)));
    f->done_ns += tokens == r->tokens ? r->flight_ns : htb_priv_device_ns(tree, tokens);
    if (f->alone)
        htb_priv_look_alone(tree, now_ns);
    else if (!htb_priv_more_is_asked(tree) && f->done_ns / 2 >= htb_priv_filled(f, f->bound_ns) &&
             ((htb_priv_may_end(f) && f->n >= htb_priv_look_least(f)) || htb_priv_plainly_worse(f)))
        htb_priv_look(tree, now_ns);
}

/* Exchanged with other trees: how much this one narrows the bound, 0: not. */
QOS_PRIV uint64_t htb_priv_worst(const struct htb *tree)
{
    uint32_t i, least = tree->joined.fits;
    for (i = 1; i < HTB_PRIV_LATE_MAX; i++)
        least = (uint32_t)qos_min(least, tree->flight.cls[i].bound);
    return HTB_PRIV_WIDE - least;
}

/* The bound that the other trees need. It is given up where it lets one request go, and this tree had less than a
 * quarter by that: a class with too few requests for its rate narrows for ever, and its tree does not see the cost. */
QOS_PRIV void htb_priv_others(struct htb *tree, uint64_t worst)
{
    const struct htb_priv_flight *f = &tree->flight;
    struct htb_priv_late *c = &tree->flight.cls[0];
    const uint32_t bound = HTB_PRIV_WIDE - (uint32_t)worst;
    if (bound != c->bound && c->retry_ns <= tree->now_ns && htb_priv_from_speed(tree) != 0)
        htb_priv_need(tree, c, bound);
    if (htb_priv_lets_one_go(f, c) && htb_priv_speed_since(f, c) < htb_priv_from_speed(tree) / 4)
        htb_priv_give_up(tree, c);
}

/* ==== chapter: classes =============================================================================================
 *
 * Configuration, memory, and the life of classes: reserved with admission control (5.1), changed, released, expired.
 * The memory is one block, laid out by htb_priv_layout:
 *
 *     nodes | other fields | turns | further resources | heap of events | dispatch places | heaps of offsets | rows
 *
 * Invariants
 *   1. An id that was used once keeps its buckets: they pay off the debt of its last holder. It also keeps the lead of
 *      that one over the clock of its ring. (All zero is a bucket without a rate, limit or debt, and no lead.)
 *   2. A class that ends passes its queue to best effort; its counters stay until the id is reserved again. */

/* The configuration with its defaults filled in. */
QOS_PRIV struct htb_config htb_priv_defaults(const struct htb_config *config)
{
    struct htb_config c = *config;
    c.classes = (uint32_t)qos_default(c.classes, 16);
    c.resources = (uint32_t)qos_default(c.resources, 1);
    c.burst_ns = qos_default(c.burst_ns, 10000000);
    c.debt_ns = qos_default(c.debt_ns, QOS_NS_PER_S);
    c.lag_ns = qos_default(c.lag_ns, QOS_NS_PER_S);
    c.depth_max = (uint32_t)qos_default(c.depth_max, 8);
    c.flight_min_ns = qos_default(c.flight_min_ns, 1);
    c.flight_max_ns = qos_default(c.flight_max_ns, qos_max(HTB_PRIV_FLIGHT_MAX_NS, c.flight_min_ns));
    c.dispatch_max = (uint32_t)qos_default(c.dispatch_max, 64);
    c.device_max = (uint32_t)qos_default(c.device_max, qos_min(32, c.dispatch_max));
    c.bypass_max = (uint32_t)qos_default(c.bypass_max, 64);
    c.maximize_step = (uint32_t)qos_default(c.maximize_step, 32);
    c.maximize_interval_ns = qos_default(c.maximize_interval_ns, 100000000);
    c.maximize_rate_max = qos_default(c.maximize_rate_max, QOS_RATE_MAX);
    return c;
}

QOS_API const char *htb_class_error(const struct htb_class *terms)
{
    uint32_t r;
    if (!terms)
        return "terms: is NULL; give a struct htb_class";
    if (terms->weight > HTB_WEIGHT_MAX)
        return "weight: give 1..HTB_WEIGHT_MAX, or 0 for 1";
    if (terms->burst_ns > HTB_BURST_MAX_NS)
        return "burst_ns: give at most HTB_BURST_MAX_NS, or 0 for the tree's";
    if (terms->latency_ns > HTB_BURST_MAX_NS)
        return "latency_ns: give at most HTB_BURST_MAX_NS, or 0 for no promise in time";
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        uint64_t rate = terms->rate_per_s[r], limit = qos_default(terms->limit_per_s[r], QOS_UNLIMITED);
        if (rate > QOS_RATE_MAX)
            return "rate_per_s: give at most QOS_RATE_MAX, or 0 for no reservation";
        if (limit > QOS_RATE_MAX && limit < QOS_NOTHING)
            return "limit_per_s: give at most QOS_RATE_MAX, 0 for no limit, or QOS_NOTHING";
        if (rate > (limit == QOS_NOTHING ? 0 : limit))
            return "limit_per_s: give at least rate_per_s, or 0 for no limit";
    }
    if (terms->group && terms->expires_ns != 0)
        return "expires_ns: give 0; a group does not expire, its classes do";
    return NULL;
}

/* What is wrong with the rates of the root and of best effort. */
QOS_PRIV const char *htb_priv_rates_error(const struct htb_config *c)
{
    uint32_t r;
    for (r = 0; r < c->resources && r < HTB_RESOURCES_MAX; r++) {
        if (c->rate_per_s[r] == 0 || c->rate_per_s[r] > QOS_RATE_MAX)
            return "rate_per_s: give what the device always sustains, 1..QOS_RATE_MAX, for each resource";
        if (c->best_effort.rate_per_s[r] > c->rate_per_s[r])
            return "best_effort: reserve at most rate_per_s for it, in each resource";
    }
    return NULL;
}

/* c: with its defaults filled in. */
QOS_PRIV const char *htb_priv_config_error(const struct htb_config *c)
{
    const struct htb_class *best_effort = &c->best_effort;
    const char *rates = htb_priv_rates_error(c);
    const struct qos_rule rules[] = {
        {c->classes <= HTB_CLASSES_MAX, "classes: give 1..HTB_CLASSES_MAX, or 0 for 16"},
        {c->resources <= HTB_RESOURCES_MAX, "resources: give 1..HTB_RESOURCES_MAX, or 0 for 1"},
        {!htb_class_error(best_effort), "best_effort: htb_class_error(&config->best_effort) says what is wrong"},
        {best_effort->parent == 0 && !best_effort->group && best_effort->expires_ns == 0,
         "best_effort: leave parent, group and expires_ns 0; class 0 is below the root and stays"},
        {!rates, rates},
        {c->burst_ns <= HTB_BURST_MAX_NS, "burst_ns: give 1..HTB_BURST_MAX_NS, or 0 for 10 ms"},
        {c->request_max_tokens <= QOS_TOKENS_MAX / 4 || c->request_max_tokens == QOS_NOTHING,
         "request_max_tokens: give 1..QOS_TOKENS_MAX / 4, QOS_NOTHING, or 0 for buckets of two bursts"},
        {c->debt_ns <= HTB_BURST_MAX_NS, "debt_ns: give 1..HTB_BURST_MAX_NS, or 0 for 1 s"},
        {c->lag_ns <= HTB_BURST_MAX_NS, "lag_ns: give 1..HTB_BURST_MAX_NS, or 0 for 1 s"},
        {c->depth_max <= 4096, "depth_max: give 1..4096, or 0 for 8"},
        {c->bound == HTB_BY_FLIGHT || c->bound == HTB_BY_RATE, "bound: give HTB_BY_FLIGHT or HTB_BY_RATE"},
        {c->flight_min_ns <= HTB_BURST_MAX_NS, "flight_min_ns: give at most HTB_BURST_MAX_NS, or 0 for one request"},
        {c->flight_min_ns <= c->flight_max_ns && c->flight_max_ns <= HTB_BURST_MAX_NS,
         "flight_max_ns: give flight_min_ns..HTB_BURST_MAX_NS, or 0 for 1 s"},
        {c->order == HTB_ELEVATOR || c->order == HTB_FIFO, "order: give HTB_ELEVATOR or HTB_FIFO"},
        {c->dispatch_max <= HTB_DISPATCH_MAX, "dispatch_max: give 1..HTB_DISPATCH_MAX, or 0 for 64"},
        {c->device_max <= c->dispatch_max,
         "device_max: give 1..dispatch_max, or 0 for the lesser of 32 and dispatch_max"},
        {2 <= c->maximize_step && c->maximize_step <= 1024, "maximize_step: give 2..1024, or 0 for 32"},
        {c->maximize_interval_ns >= 1000, "maximize_interval_ns: give at least 1000, or 0 for 100 ms"},
        {c->rate_per_s[0] <= c->maximize_rate_max && c->maximize_rate_max <= QOS_RATE_MAX,
         "maximize_rate_max: give rate_per_s[0]..QOS_RATE_MAX, or 0 for QOS_RATE_MAX"},
    };
    return qos_first_broken(rules, sizeof rules / sizeof *rules);
}

QOS_API const char *htb_config_error(const struct htb_config *config)
{
    struct htb_config c;
    if (!config)
        return "config: is NULL; give a struct htb_config";
    c = htb_priv_defaults(config);
    return htb_priv_config_error(&c);
}

/* Where everything is in the caller's memory. */
QOS_PRIV void htb_priv_layout(struct qos_layout *layout, struct htb *tree, const struct htb_config *config)
{
    const size_t nodes = (size_t)config->classes + 1, more = nodes * (config->resources - 1u), n = config->dispatch_max;
    int i;
    QOS_LAYOUT_SET(layout, tree->node, nodes);
    QOS_LAYOUT_SET(layout, tree->cls, nodes);
    QOS_LAYOUT_SET(layout, tree->turn, nodes);
    QOS_LAYOUT_SET(layout, tree->more, more);
    QOS_LAYOUT_SET(layout, tree->more_sum, more);
    QOS_LAYOUT_SET(layout, tree->event.key, nodes);
    QOS_LAYOUT_SET(layout, tree->event.id, nodes);
    QOS_LAYOUT_SET(layout, tree->event.pos, nodes);
    QOS_LAYOUT_SET(layout, tree->flight.cls, HTB_PRIV_LATE_MAX);
    QOS_LAYOUT_SET(layout, tree->claim, (size_t)qos_min(config->classes, HTB_PRIV_CLAIMS_MAX));
    QOS_LAYOUT_SET(layout, tree->dispatch.slot, n);
    for (i = 0; i < 2; i++) {
        QOS_LAYOUT_SET(layout, tree->dispatch.sweep[i].key, n);
        QOS_LAYOUT_SET(layout, tree->dispatch.sweep[i].id, n);
        QOS_LAYOUT_SET(layout, tree->dispatch.sweep[i].pos, n);
    }
}

/* What a tree of this configuration needs; nothing is placed. */
QOS_PRIV_NOINLINE void htb_priv_measure(struct qos_layout *layout, const struct htb_config *config)
{
    const struct htb_config c = htb_priv_defaults(config);
    struct htb scratch;
    qos_layout_begin(layout, NULL);
    htb_priv_layout(layout, &scratch, &c);
}

QOS_API size_t htb_memsize(const struct htb_config *config)
{
    struct qos_layout layout;
    if (htb_config_error(config))
        return 0;
    htb_priv_measure(&layout, config);
    return qos_layout_size_bytes(&layout);
}

/* A node comes into its group, or leaves it; then the tag of its turn is its lead over the clock of the ring. */
QOS_PRIV void htb_priv_in_group(struct htb *tree, uint32_t id, bool in)
{
    const uint32_t group = tree->node[id].parent;
    const uint64_t clock = tree->cls[group].u.group.clock;
    uint64_t *tag = &tree->turn[id].tag;
    uint32_t r;
    *tag = in ? qos_sat_add(*tag, clock) : qos_sat_sub(*tag, clock);
    QOS_ASSERT(in || tree->cls[group].u.group.children != 0);
    tree->cls[group].u.group.children = (uint32_t)((int64_t)tree->cls[group].u.group.children + (in ? 1 : -1));
    for (r = 0; r < tree->resources; r++) {
        uint64_t *sum = htb_priv_sum_of(tree, group, r), rate = htb_priv_rate_of(tree, id, r);
        *sum = in ? *sum + rate : *sum - rate;
    }
}

/* A node without rates and limits; htb_priv_apply sets them. */
QOS_PRIV void htb_priv_new_node(struct htb *tree, uint32_t id, uint32_t parent, bool group, uint64_t now_ns)
{
    struct htb_priv_node *node = &tree->node[id];
    struct htb_priv_class *c = &tree->cls[id];
    uint32_t r;
    if (node->flags & HTB_PRIV_NOTICE)
        htb_priv_run_out(tree->turn, &tree->notice, id);
    htb_priv_refill(tree, id, now_ns);
    node->parent = parent;
    node->depth = parent == QOS_NONE ? (uint16_t)0 : (uint16_t)(tree->node[parent].depth + 1u);
    QOS_ASSERT(node->depth <= tree->set.depth_max);
    node->flags = (uint16_t)((tree->joined.lease ? node->flags & HTB_PRIV_NOTED : HTB_PRIV_NOTED) | HTB_PRIV_USED |
                             (group ? HTB_PRIV_GROUP | HTB_PRIV_RESTED : HTB_PRIV_RESTS));
    __builtin_memset(&c->u, 0, sizeof c->u);
    if (group)
        c->u.group.first = c->u.group.run = c->u.group.heap = QOS_NONE;
    else
        c->u.leaf.expires_ns = QOS_NEVER;
    c->burst_us = (uint32_t)((tree->set.burst_ns + 999) / 1000);
    tree->turn[id].returns = 0;
    tree->turn[id].fresh = 1;
    for (r = 0; r < tree->resources; r++) {
        if (r > 0)
            *htb_priv_sum_of(tree, id, r) = 0;
        htb_priv_set_pair(tree, id, r, 0, QOS_UNLIMITED);
    }
    if (parent != QOS_NONE)
        htb_priv_in_group(tree, id, true);
}

/* A new class counts from zero. The stores are atomic because another thread may be reading. */
QOS_PRIV void htb_priv_zero_counters(struct htb *tree, uint32_t id)
{
    struct qos_counters *c = &tree->cls[id].counters;
    qos_counter_t *const counter[] = {&c->granted, &c->borrowed, &c->refused, &c->waited};
    size_t i;
    if (tree->joined.lease) {
        struct htb_priv_lease *lease = &tree->joined.lease[id];
        lease->granted = qos_wrap_sub(lease->granted, c->granted);
        lease->borrowed = qos_wrap_sub(lease->borrowed, c->borrowed);
    }
    for (i = 0; i < sizeof counter / sizeof *counter; i++)
        qos_counter_add(counter[i], qos_wrap_sub(0, *counter[i]));
}

QOS_PRIV void htb_priv_set_root(struct htb *tree, const uint64_t *rate_per_s, uint64_t now_ns)
{
    uint32_t r;
    htb_priv_refill(tree, tree->classes, now_ns);
    for (r = 0; r < tree->resources; r++) {
        QOS_ASSERT(rate_per_s[r] >= *htb_priv_sum_of(tree, tree->classes, r));
        htb_priv_set_pair(tree, tree->classes, r, rate_per_s[r], QOS_UNLIMITED);
    }
    htb_priv_place_up(tree, tree->classes, false, now_ns);
}

/* Terms with their defaults filled in, and limits as in the buckets: QOS_UNLIMITED for none, 0 for nothing. */
QOS_PRIV struct htb_class htb_priv_terms(const struct htb *tree, const struct htb_class *terms)
{
    struct htb_class out = *terms;
    uint32_t r;
    out.weight = (uint32_t)qos_default(out.weight, 1);
    out.burst_ns = qos_default(out.burst_ns, tree->set.burst_ns);
    out.expires_ns = qos_default(out.expires_ns, QOS_NEVER);
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        out.limit_per_s[r] = out.limit_per_s[r] == QOS_NOTHING ? 0 : qos_default(out.limit_per_s[r], QOS_UNLIMITED);
    return out;
}

/* Checks that the terms are right and fit. If `id` exists, what it has now counts as free. */
QOS_PRIV enum qos_status htb_priv_admit(const struct htb *tree, uint32_t parent, const struct htb_class *terms,
                                        uint32_t id, bool exists, uint64_t now_ns, uint64_t *fits)
{
    bool admitted = true;
    uint32_t r;
    if (htb_class_error(terms))
        return terms->group && terms->expires_ns != 0 ? QOS_EINVAL : QOS_ERANGE;
    if (terms->expires_ns != 0 && terms->expires_ns <= now_ns)
        return QOS_ERANGE;
    if (id == HTB_BEST_EFFORT && terms->expires_ns != 0)
        return QOS_EINVAL;
    for (r = 0; r < tree->resources; r++) {
        uint64_t whole = parent == tree->classes ? tree->set.rate_per_s[r] : htb_priv_rate_of(tree, parent, r);
        uint64_t own = exists && tree->node[id].parent == parent ? htb_priv_rate_of(tree, id, r) : 0;
        uint64_t room = whole - (*htb_priv_sum_of(tree, parent, r) - own);
        uint64_t least = exists && terms->group ? *htb_priv_sum_of(tree, id, r) : 0;
        QOS_ASSERT(own <= *htb_priv_sum_of(tree, parent, r) && room <= whole);
        if (fits)
            fits[r] = terms->rate_per_s[r] < least ? least : room;
        admitted = admitted && terms->rate_per_s[r] <= room && terms->rate_per_s[r] >= least;
    }
    return admitted ? QOS_OK : QOS_EADMISSION;
}

QOS_PRIV void htb_priv_count_limit(struct htb *tree, uint32_t id, bool limited)
{
    tree->detours -= (tree->node[id].flags & HTB_PRIV_LIMITED) != 0;
    tree->detours += limited;
    htb_priv_mark(tree, id, HTB_PRIV_LIMITED, limited);
}

/* If the rate, or the part of it, has risen, the lead of the tag shrinks: the same tokens take less time. */
QOS_PRIV void htb_priv_scale_lead(struct htb *tree, uint32_t id, uint64_t was, uint64_t is)
{
    const uint64_t clock = htb_priv_tag_clock(tree);
    uint64_t *tag = &tree->cls[id].tag;
    if (*tag > clock && is > was)
        *tag = clock + qos_mul_div_ceil(qos_min(*tag - clock, HTB_BURST_MAX_NS), was, is);
}

/* Gives the node these terms; defaults are filled in already. */
QOS_PRIV void htb_priv_apply(struct htb *tree, uint32_t id, const struct htb_class *c, uint64_t now_ns)
{
    uint32_t r, parent = tree->node[id].parent;
    bool limited = false;
    uint64_t lead_ns = 0; /* what a lead of HTB_BURST_MAX_NS becomes, by the rate that rises least */
    htb_priv_refill(tree, id, now_ns);
    tree->turn[id].weight = c->weight & 0xfffffu;
    tree->cls[id].ring_rest = 0;
    tree->cls[id].burst_us = (uint32_t)((c->burst_ns + 999) / 1000);
    if (!c->group) {
        tree->cls[id].u.leaf.expires_ns = c->expires_ns;
        htb_priv_mark(tree, id, HTB_PRIV_EXPIRES, c->expires_ns != QOS_NEVER);
        if ((tree->cls[id].u.leaf.latency_us == 0) != (c->latency_ns == 0))
            tree->cls[id].u.leaf.turn_ns = 0; /* another's field, see there */
        tree->cls[id].u.leaf.latency_us = (uint32_t)((c->latency_ns + 999) / 1000);
        if (c->latency_ns != 0)
            tree->flight.alone_ns = qos_min(tree->flight.alone_ns, c->latency_ns / 2);
    }
    for (r = 0; r < tree->resources; r++) {
        uint64_t *sum = htb_priv_sum_of(tree, parent, r);
        const uint64_t was_per_s = htb_priv_rate_of(tree, id, r);
        if (was_per_s != 0)
            lead_ns =
                qos_max(lead_ns, qos_mul_div_ceil(HTB_BURST_MAX_NS, was_per_s, qos_max(was_per_s, c->rate_per_s[r])));
        *sum = *sum - was_per_s + c->rate_per_s[r];
        QOS_ASSERT(*sum <= htb_priv_rate_of(tree, parent, r));
        htb_priv_set_pair(tree, id, r, c->rate_per_s[r], c->limit_per_s[r]);
        limited = limited || c->limit_per_s[r] != QOS_UNLIMITED;
    }
    htb_priv_count_limit(tree, id, limited);
    htb_priv_scale_lead(tree, id, lead_ns, HTB_BURST_MAX_NS);
    htb_priv_place_up(tree, id, true, now_ns);
}

QOS_PRIV_NOINLINE void htb_priv_start(struct htb *tree, void *mem, const struct htb_config *config)
{
    struct htb_config c = htb_priv_defaults(config);
    struct qos_layout layout;
    uint32_t i;
    __builtin_memset(tree, 0, sizeof *tree);
    qos_layout_begin(&layout, mem);
    htb_priv_layout(&layout, tree, &c);
    __builtin_memset(mem, 0, qos_layout_size_bytes(&layout));

    tree->set = c;
    tree->set.best_effort = htb_priv_terms(tree, &c.best_effort);
    tree->classes = c.classes;
    tree->resources = c.resources;
    tree->request_max_tokens = c.request_max_tokens == QOS_NOTHING ? 0 : c.request_max_tokens;
    tree->half = c.request_max_tokens == 0;
    tree->maximize.slow_from = UINT64_MAX;
    tree->lag_ns = c.lag_ns;
    tree->now_ns = tree->tag_offset = tree->maximize.last_ns = c.start_ns;
    tree->bound = c.bound;
    tree->flight.min_ns = c.flight_min_ns;
    tree->flight.max_ns = c.flight_max_ns;
    tree->flight.bound_ns = c.bound == HTB_BY_FLIGHT
                                ? qos_max(c.flight_min_ns, qos_min(c.flight_max_ns / 16, HTB_PRIV_FLIGHT_NS))
                                : QOS_UNLIMITED;
    tree->flight.knee_ns = tree->flight.bound_ns;
    tree->flight.alone_ns = qos_min(c.burst_ns, c.flight_max_ns);
    tree->flight.narrow = HTB_PRIV_WIDE;
    tree->joined.fits = HTB_PRIV_WIDE;
    tree->flight.by = QOS_NONE;
    tree->flight.up = tree->flight.searching = true;
    tree->flight.found_waits = 64;
    tree->flight.last_ns = c.start_ns;
    tree->flight.next_ns = 1;
    tree->flight.part = HTB_PRIV_EVEN;
    for (i = 0; i < HTB_PRIV_LATE_MAX; i++) {
        tree->flight.cls[i].id = i == 0 ? c.classes : QOS_NONE;
        tree->flight.cls[i].bound = HTB_PRIV_WIDE;
    }
    tree->joined.exchange_ns = tree->own_expiry_ns = QOS_NEVER;
    tree->notice = QOS_NONE;
    tree->detours = c.resources - 1u;

    htb_priv_heap_clear(&tree->event, c.classes + 1);
    tree->own = tree->event;
    tree->own.first = c.classes;
    tree->own.step = -1;
    htb_priv_heap_clear(&tree->dispatch.sweep[0], c.dispatch_max);
    htb_priv_heap_clear(&tree->dispatch.sweep[1], c.dispatch_max);
    for (i = 0; i < c.dispatch_max; i++)
        tree->dispatch.slot[i].next = i + 1 < c.dispatch_max ? i + 1 : QOS_NONE;

    htb_priv_new_node(tree, c.classes, QOS_NONE, true, c.start_ns);
    htb_priv_set_root(tree, c.rate_per_s, c.start_ns);
    htb_priv_new_node(tree, HTB_BEST_EFFORT, c.classes, false, c.start_ns);
    htb_priv_apply(tree, HTB_BEST_EFFORT, &tree->set.best_effort, c.start_ns);
}

QOS_API enum qos_status htb_init(struct htb *tree, void *mem, size_t size_bytes, const struct htb_config *config)
{
    struct qos_layout layout;
    enum qos_status status;
    QOS_ASSERT(tree);
    if (htb_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    htb_priv_measure(&layout, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status == QOS_OK)
        htb_priv_start(tree, mem, config);
    return status;
}

/* Ends a class or an empty group. Its requests go to the end of best effort's queue. expired: htb_expired tells it. */
QOS_PRIV_NOINLINE void htb_priv_end(struct htb *tree, uint32_t id, bool expired, uint64_t now_ns)
{
    struct htb_priv_class *c = &tree->cls[id];
    const uint32_t parent = tree->node[id].parent;
    /* its debts are paid off meanwhile */
    const unsigned remains = tree->node[id].flags & (HTB_PRIV_LIMITED | HTB_PRIV_NOTED);
    struct htb_request *r;
    (void)htb_priv_end_claims(tree, id, now_ns);
    htb_priv_unwatch(tree, id);
    if (!(tree->node[id].flags & HTB_PRIV_GROUP)) {
        while (c->u.leaf.tail) {
            r = c->u.leaf.tail->next;
            htb_priv_dequeue(tree, r);
            r->slot = HTB_BEST_EFFORT;
            htb_priv_enqueue(tree, r);
        }
        htb_priv_rest(tree, HTB_BEST_EFFORT);
    }
    (void)htb_priv_place(tree, id, now_ns); /* without requests it leaves its heaps */
    htb_priv_heap_remove(&tree->event, id);
    htb_priv_count_limit(tree, id, false);
    tree->node[id].flags = (uint16_t)(remains | (expired ? HTB_PRIV_NOTICE : 0u));
    if (expired)
        htb_priv_run_in(tree->turn, &tree->notice, id); /* it is in no ring */
    c->generation = (c->generation + 1u) & 0xfffu;
    htb_priv_in_group(tree, id, false);
    htb_priv_place_up(tree, parent, true, now_ns);
    htb_priv_place_up(tree, HTB_BEST_EFFORT, true, now_ns);
}

QOS_API uint32_t htb_expired(struct htb *tree, uint64_t now_ns)
{
    uint32_t id;
    htb_priv_run_expiries(tree, htb_priv_now(tree, now_ns));
    if (tree->notice == QOS_NONE)
        return QOS_NONE;
    id = tree->turn[tree->notice].right;
    htb_priv_run_out(tree->turn, &tree->notice, id);
    htb_priv_mark(tree, id, HTB_PRIV_NOTICE, false);
    return id;
}

/* Is `id` the node `above`, or below it? */
QOS_PRIV bool htb_priv_is_below(const struct htb *tree, uint32_t id, uint32_t above)
{
    if (!(tree->node[id].flags & HTB_PRIV_USED))
        return false;
    while (id != QOS_NONE && id != above) /* nothing is below a class */
        id = tree->node[above].flags & HTB_PRIV_GROUP ? tree->node[id].parent : QOS_NONE;
    return id == above;
}

/* May node `id`, with all below it, be placed below `parent`? id QOS_NONE: a new node. */
QOS_PRIV enum qos_status htb_priv_may_join(const struct htb *tree, uint32_t id, uint32_t parent)
{
    uint32_t i, deepest = 0, depth = tree->node[parent].depth + 1u;
    if (!(tree->node[parent].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    if (!(tree->node[parent].flags & HTB_PRIV_GROUP) || id == HTB_BEST_EFFORT)
        return QOS_EINVAL;
    if (id != QOS_NONE && htb_priv_is_below(tree, parent, id))
        return QOS_EINVAL;
    for (i = 0; id != QOS_NONE && i < tree->classes; i++)
        if (htb_priv_is_below(tree, i, id))
            deepest = (uint32_t)qos_max(deepest, (uint32_t)tree->node[i].depth - tree->node[id].depth);
    return depth + deepest > tree->set.depth_max ? QOS_EFULL : QOS_OK;
}

/* Moves a node below another group. It keeps its lead over the clock of its ring, as if it were reserved again. Its
 * dispatched requests were charged to the old groups: a new generation prevents their correction. */
QOS_PRIV void htb_priv_move(struct htb *tree, uint32_t id, uint32_t parent, uint64_t now_ns)
{
    const uint32_t old = tree->node[id].parent;
    const int32_t deeper = (int32_t)tree->node[parent].depth + 1 - (int32_t)tree->node[id].depth;
    uint32_t i;
    (void)htb_priv_end_claims(tree, id, now_ns);
    htb_priv_set_ring(tree, id, false);
    htb_priv_in_group(tree, id, false);
    tree->node[id].parent = parent;
    htb_priv_in_group(tree, id, true);
    for (i = 0; i < tree->classes; i++) {
        if (!htb_priv_is_below(tree, i, id))
            continue;
        tree->node[i].depth = (uint16_t)((int32_t)tree->node[i].depth + deeper);
        tree->cls[i].generation = (tree->cls[i].generation + 1u) & 0xfffu;
        if (!(tree->node[i].flags & HTB_PRIV_GROUP)) {
            tree->cls[i].u.leaf.outstanding = 0;
            htb_priv_rest(tree, i);
        }
        QOS_ASSERT(tree->node[i].depth <= tree->set.depth_max);
    }
    htb_priv_place_up(tree, old, true, now_ns);
}

/* Reserves the id, or changes its terms. (Inline: else both need more stack.) */
HTB_PRIV_INLINE enum qos_status htb_priv_agree(struct htb *tree, uint64_t now_ns, uint32_t id, bool exists,
                                               const struct htb_class *terms, uint64_t *fits)
{
    struct htb_class want;
    enum qos_status status = QOS_OK;
    uint32_t parent;
    if (!terms)
        return QOS_EINVAL;
    now_ns = htb_priv_now(tree, now_ns);
    htb_priv_run_expiries(tree, now_ns);
    parent = terms->parent == 0 ? tree->classes : terms->parent;
    if (id >= tree->classes || terms->parent >= tree->classes)
        return QOS_ENOENT;
    if (exists != ((tree->node[id].flags & HTB_PRIV_USED) != 0))
        return exists ? QOS_ENOENT : QOS_EEXIST;
    if (exists && terms->group != ((tree->node[id].flags & HTB_PRIV_GROUP) != 0))
        return QOS_EINVAL;
    if (!exists || parent != tree->node[id].parent)
        status = htb_priv_may_join(tree, exists ? id : QOS_NONE, parent);
    if (status == QOS_OK)
        status = htb_priv_admit(tree, parent, terms, id, exists, now_ns, fits);
    if (status != QOS_OK)
        return status;
    want = htb_priv_terms(tree, terms);
    if (!exists) {
        htb_priv_new_node(tree, id, parent, terms->group, now_ns);
        htb_priv_zero_counters(tree, id);
    } else if (parent != tree->node[id].parent) {
        htb_priv_move(tree, id, parent, now_ns);
    }
    htb_priv_apply(tree, id, &want, now_ns);
    htb_priv_renew_claims(tree, id, now_ns);
    return QOS_OK;
}

QOS_API enum qos_status htb_reserve(struct htb *tree, uint64_t now_ns, uint32_t id, const struct htb_class *terms,
                                    uint64_t *fits)
{
    return id == HTB_BEST_EFFORT ? QOS_EINVAL : htb_priv_agree(tree, now_ns, id, false, terms, fits);
}

QOS_API enum qos_status htb_change(struct htb *tree, uint64_t now_ns, uint32_t id, const struct htb_class *terms,
                                   uint64_t *fits)
{
    return htb_priv_agree(tree, now_ns, id, true, terms, fits);
}

QOS_API enum qos_status htb_release(struct htb *tree, uint64_t now_ns, uint32_t id)
{
    if (id == HTB_BEST_EFFORT)
        return QOS_EINVAL;
    now_ns = htb_priv_now(tree, now_ns);
    htb_priv_run_expiries(tree, now_ns);
    if (id >= tree->classes || !(tree->node[id].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    if ((tree->node[id].flags & HTB_PRIV_GROUP) && tree->cls[id].u.group.children != 0)
        return QOS_EBUSY;
    htb_priv_end(tree, id, false, now_ns);
    return QOS_OK;
}

QOS_API enum qos_status htb_change_root(struct htb *tree, uint64_t now_ns, const uint64_t *rate_per_s)
{
    uint32_t r;
    if (!rate_per_s)
        return QOS_EINVAL;
    now_ns = htb_priv_now(tree, now_ns);
    htb_priv_run_expiries(tree, now_ns);
    for (r = 0; r < tree->resources; r++)
        if (rate_per_s[r] == 0 || rate_per_s[r] > QOS_RATE_MAX)
            return QOS_ERANGE;
    for (r = 0; r < tree->resources; r++)
        if (rate_per_s[r] < *htb_priv_sum_of(tree, tree->classes, r))
            return QOS_EADMISSION;
    __builtin_memcpy(tree->set.rate_per_s, rate_per_s, tree->resources * sizeof *rate_per_s);
    tree->set.maximize_rate_max = qos_max(tree->set.maximize_rate_max, rate_per_s[0]);
    tree->maximize.slow_from = UINT64_MAX;
    htb_priv_set_root(tree, rate_per_s, now_ns);
    htb_priv_renew_claims(tree, tree->classes, now_ns);
    return QOS_OK;
}

QOS_API void htb_reset_clock(struct htb *tree, uint64_t now_ns)
{
    uint32_t id;
    (void)htb_priv_end_claims(tree, tree->classes, now_ns);
    tree->tag_offset = qos_wrap_sub(now_ns, htb_priv_tag_clock(tree));
    htb_priv_refill_all(tree, tree->now_ns);
    for (id = 0; id <= tree->classes; id++) {
        tree->node[id].last_ns = now_ns;
        if (tree->node[id].flags & HTB_PRIV_GROUP)
            tree->cls[id].u.group.kept_ns = 0;
    }
    tree->flight.gate_end_ns = qos_sat_add(now_ns, qos_sat_sub(tree->flight.gate_end_ns, tree->now_ns));
    tree->now_ns = tree->maximize.last_ns = tree->flight.last_ns = tree->flight.changed_ns = now_ns;
    tree->flight.pause_end_ns = 0;
    tree->flight.had = 0; /* what pauses were is not asked by a wrong clock */
    tree->flight.now_ns += tree->flight.hung_ns;
    tree->flight.hung_ns = tree->flight.hung_at_ns = 0;
    tree->flight.moved_ns = now_ns;
    tree->flight.extra_ns = 0;
    tree->flight.next_ns = 1;
    tree->flight.probe_ns = now_ns;
    for (id = 0; id < HTB_PRIV_LATE_MAX; id++)
        tree->flight.cls[id].retry_ns = now_ns;
    if (tree->joined.lease)
        tree->joined.exchange_ns = tree->joined.exchanged_ns = now_ns;
    for (id = 0; id <= tree->classes; id++)
        if (tree->node[id].flags & HTB_PRIV_USED)
            htb_priv_place_up(tree, id, false, now_ns);
}

/* Why the first request in the queue of a class waits. Bucket levels are from the tree's time or earlier. */
QOS_PRIV enum htb_wait htb_priv_waits(const struct htb *tree, uint32_t id)
{
    const struct htb_request *request = htb_priv_next_request(tree, id);
    struct htb_priv_way way;
    if (!request)
        return HTB_WAITS_NOT;
    way = htb_priv_way_of(tree, id, request->tokens, false, tree->now_ns);
    if (way.blocked != QOS_NONE)
        return way.blocked == id ? HTB_OWN_LIMIT : HTB_PARENT_LIMIT;
    return way.payer != QOS_NONE || tree->bound == HTB_BY_FLIGHT ? HTB_TURN : HTB_LENDERS_TOKENS;
}

QOS_API enum qos_status htb_class_info(const struct htb *tree, uint32_t id, struct htb_class_state *out)
{
    struct htb_class *terms = &out->terms;
    const struct htb_priv_class *c = &tree->cls[id < tree->classes ? id : tree->classes];
    uint32_t r;
    if (id >= tree->classes || !(tree->node[id].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    terms->parent = tree->node[id].parent == tree->classes ? 0 : tree->node[id].parent;
    terms->weight = tree->turn[id].weight;
    terms->burst_ns = (uint64_t)c->burst_us * 1000;
    terms->expires_ns = tree->node[id].flags & HTB_PRIV_EXPIRES ? c->u.leaf.expires_ns : 0;
    terms->latency_ns = tree->node[id].flags & HTB_PRIV_GROUP ? 0 : (uint64_t)c->u.leaf.latency_us * 1000;
    terms->group = (tree->node[id].flags & HTB_PRIV_GROUP) != 0;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        bool has = r < tree->resources;
        uint64_t limit = has ? htb_priv_limit_of(tree, id, r) : 0;
        terms->rate_per_s[r] = has ? htb_priv_rate_of(tree, id, r) : 0;
        terms->limit_per_s[r] = has && limit == 0 ? QOS_NOTHING : limit;
    }
    out->queued = terms->group ? c->u.group.children : c->u.leaf.queued;
    out->outstanding = terms->group ? 0 : c->u.leaf.outstanding;
    out->waits = terms->group ? HTB_WAITS_NOT : htb_priv_waits(tree, id);
    out->since_ns = out->waits == HTB_WAITS_NOT ? QOS_NEVER : c->u.leaf.tail->next->since_ns;
    out->p50_ns = terms->group ? 0 : htb_priv_exp2(c->u.leaf.p50);
    out->p99_ns = terms->group ? 0 : htb_priv_exp2(c->u.leaf.p99);
    return QOS_OK;
}

QOS_API enum qos_status htb_info(const struct htb *tree, struct htb_state *out)
{
    uint32_t r;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        out->rate_per_s[r] = r < tree->resources ? htb_priv_pair_of(tree, tree->classes, r)->rate.rate : 0;
        if (tree->joined.lease) /* at most 2^60 */
            out->rate_per_s[r] = out->rate_per_s[r] * tree->joined.lease[tree->classes].parts / HTB_PRIV_WHOLE;
        out->reserved_per_s[r] = r < tree->resources ? *htb_priv_sum_of(tree, tree->classes, r) : 0;
    }
    out->queued = tree->queued;
    out->dispatched = tree->dispatch.waiting;
    out->at_device = tree->dispatch.at_device;
    out->scenario = tree->scenario;
    out->flight_ns = tree->flight.now_ns + tree->flight.hung_ns;
    out->hung_ns = tree->flight.hung_ns;
    out->flight_bound_ns = tree->flight.bound_ns;
    out->flight_by = tree->flight.by;
    out->flight_cost_permille = 0;
    if (tree->flight.by != QOS_NONE && htb_priv_from_speed(tree) != 0)
        out->flight_cost_permille = qos_sat_sub(1000, tree->flight.speed[0] * 1000 / htb_priv_from_speed(tree));
    return QOS_OK;
}

QOS_API enum qos_status htb_stats(const struct htb *tree, uint32_t id, struct qos_stats *out)
{
    uint32_t i = id == QOS_NONE ? 0 : id, last = id == QOS_NONE ? tree->classes : id + 1;
    struct qos_stats one;
    out->granted = out->borrowed = out->refused = out->waited = out->debt = 0;
    if (last > tree->classes)
        return QOS_ENOENT;
    for (; i < last; i++) {
        const int64_t level = (int64_t)qos_counter_read((const qos_counter_t *)&tree->node[i].pair.rate.level);
        qos_counters_read(&tree->cls[i].counters, &one);
        out->granted = qos_wrap_add(out->granted, one.granted);
        out->borrowed = qos_wrap_add(out->borrowed, one.borrowed);
        out->refused = qos_wrap_add(out->refused, one.refused);
        out->waited = qos_wrap_add(out->waited, one.waited);
        if (one.granted != 0 && level != HTB_PRIV_FLOOR) /* a group is granted nothing */
            out->debt = qos_wrap_add(out->debt, qos_level_debt(level));
    }
    return QOS_OK;
}

/* ==== chapter: several threads =====================================================================================
 *
 * A server with N threads gives each of them a tree, all with the same classes. The time of each class and group is
 * divided into HTB_PRIV_WHOLE parts: in a tree that holds k of them its buckets fill at k / WHOLE of the rate, and are
 * as deep. What is less than a sub-token in a ns, in all less than a token a second, comes at the end of each WHOLE ns,
 * for the parts held then. So no rate is rounded, the smallest arrives, and the trees together pass, but for that, at
 * most what one tree would. The other chapters are true of each tree. Only htb_exchange touches words of other threads.
 *
 *     tree 0          pool          tree 1        shared, for each node:  pool      parts that no tree holds
 *     parts 700 <---- 24 parts <---- 300 parts                            held      by each tree
 *     want  7 MB/s    (want is published)    3 MB/s                       want, turn  what each tree published last
 *
 * A tree that joins takes 1 / N from the pool, if that is there: so no slot without a tree keeps any. An exchange
 * publishes what this tree wants and reads what the others want. It gives parts above its share to the pool, and takes
 * from the pool what it lacks. It looks at the nodes with demand here, and at those to which another tree has called
 * it: one that wants a node calls all that hold parts of it and want none. Its share of a node:
 *   a class            in proportion to what it served here since the last exchange plus what waits here, as the last
 *                      request that was refused at the gate does; who was refused counts as having served at least what
 *                      it may have in an interval, as nobody knows what else waits there
 *   a group, the root  what it served here, and what its last share lacked. The remainder goes by the weights of those
 *                      below it that wait to borrow here. So does half of what it lent, so that shares follow the
 *                      weights. While they wait, what it served is the mean over 8 exchanges: a large request does not
 *                      move parts to and fro, which are idle on the way. What it lacks is owed to it, so its debt ends
 * If no tree wants a node, its parts stay. With HTB_BY_FLIGHT each tree bounds its own flight, and narrows it for the
 * most late class of all trees; requests with own tokens have room of their own, up to the tree's knee. So that what
 * the root lends goes by weights, each tree publishes the clock of the root's ring: one that is ahead of the others, in
 * the mean, lends less, one that is behind more.
 *
 * Promises, for T = interval_ns and trees that exchange in time
 *   limit          at most L * t + N buckets + N * n in any time t, even if trees exchange late
 *   reservation    R less N / 256 of it, less 3 * T * R each time the demand moves from tree to tree
 *   surplus        idle: at most N / 128 of the root's rate, plus 3 * T of it for each move; by weight over all trees
 *   stopped tree   keeps its parts until it exchanges again, or another joins in its slot
 *   flight         every tree has at least one request in flight. What the root lends goes by the weights of those that
 *                  have more outstanding than their part, as far as device_max of all trees together fills the device
 *                  then; on a slow device one may have twice its part
 *
 * Invariants
 *   1. pool + what the trees hold <= HTB_PRIV_WHOLE. A tree lowers its buckets before it gives, and takes before it
 *      raises them.
 *   2. Only its tree writes held, want and turn of a slot. The pool changes by atomic add and compare-and-swap. All
 *      accesses are relaxed: a stale word only delays a move, and invariant 1 depends on one word, the pool. A call
 *      that is lost is made again.
 *   3. Noted are: each class with requests in its queue and the groups above it; each class that was used and each node
 *      that was asked for since the last exchange; each node of which this tree has published a want or turns not 0. */

/* Published by a tree for a node; want and turn are 0 while it has no demand. */
struct htb_priv_offer {
    qos_word_t held; /* parts */
    qos_word_t want; /* class: cost per interval and of what waits; group: its cost, less what goes by turns */
    qos_word_t turn; /* group: weights of those that wait to borrow */
};
struct htb_priv_member {
    qos_word_t seen_ns; /* its last exchange */
    qos_word_t late;    /* excess of its most late class; 0: none is late */
    qos_word_t clock;   /* of the root's ring, as compared with those of other trees */
    qos_word_t done;    /* device time completed (wraps) */

    uint64_t sum_ns, all_ns, looked_ns; /* its own: that time, in its tree as told; in all trees, as of then */
    uint64_t best;                      /* its own: speed of all trees, of late: device time in 2^20 ns */
};
/* A request at the gate waits to borrow, up to the first node at its limit; that one wants more of its limit. */
QOS_PRIV void htb_priv_ask(struct htb *tree, uint32_t id, uint32_t blocked, const uint64_t *n)
{
    for (; tree->joined.lease && id != QOS_NONE; id = id == blocked ? QOS_NONE : tree->node[id].parent) {
        htb_priv_note(tree, id);
        tree->joined.lease[id].asked = htb_priv_ring_cost(tree, n);
        tree->joined.lease[id].refused = tree->joined.lease[id].refused || id != blocked;
    }
}

#if HTB_HAS_SHARED

QOS_API const char *htb_shared_config_error(const struct htb_shared_config *config)
{
    if (!config)
        return "config: is NULL; give a struct htb_shared_config";
    if (config->trees == 0 || config->trees > HTB_TREES_MAX)
        return "trees: give 1..HTB_TREES_MAX";
    if (config->classes > HTB_CLASSES_MAX)
        return "classes: give 1..HTB_CLASSES_MAX, or 0 for 16";
    if (config->interval_ns != 0 && (config->interval_ns < 1000 || config->interval_ns > HTB_BURST_MAX_NS))
        return "interval_ns: give 1000..HTB_BURST_MAX_NS, or 0 for 5 ms";
    return NULL;
}

/* Where everything is in the memory that the trees share. */
struct htb_priv_shared_map {
    struct htb_priv_member *member; /* trees */
    qos_word_t *pool;               /* nodes */
    struct htb_priv_offer *offer;   /* trees for each node */
    struct htb_priv_lease *lease;   /* nodes for each tree */
    uint32_t *visit;                /* nodes for each tree */
    qos_word_t *called;             /* for each tree: a bit for each node, behind them a bit for each of these words */
    size_t called_words[2];         /* for each tree: of nodes, of such words */
};

QOS_PRIV struct htb_priv_shared_map htb_priv_shared_layout(struct qos_layout *layout, size_t trees, size_t classes)
{
    struct htb_priv_shared_map m;
    const size_t nodes = classes + 1;
    (void)qos_layout_part(layout, 1, sizeof(struct htb_shared), 8);
    m.called_words[0] = nodes / 64 + 1;
    m.called_words[1] = nodes / 4096 + 1;
    QOS_LAYOUT_SET(layout, m.member, trees);
    QOS_LAYOUT_SET(layout, m.pool, nodes);
    QOS_LAYOUT_SET(layout, m.offer, nodes * trees);
    QOS_LAYOUT_SET(layout, m.lease, nodes * trees);
    QOS_LAYOUT_SET(layout, m.visit, nodes * trees);
    QOS_LAYOUT_SET(layout, m.called, trees * (m.called_words[0] + m.called_words[1]));
    return m;
}

QOS_PRIV struct htb_priv_shared_map htb_priv_map_of(struct htb_shared *shared)
{
    struct qos_layout layout;
    qos_layout_begin(&layout, shared);
    return htb_priv_shared_layout(&layout, (size_t)shared->trees, (size_t)shared->classes);
}

QOS_API size_t htb_shared_memsize(const struct htb_shared_config *config)
{
    struct qos_layout layout;
    if (htb_shared_config_error(config))
        return 0;
    qos_layout_begin(&layout, NULL);
    (void)htb_priv_shared_layout(&layout, config->trees, (size_t)qos_default(config->classes, 16));
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status htb_shared_init(struct htb_shared *shared, size_t size_bytes,
                                        const struct htb_shared_config *config)
{
    struct htb_priv_shared_map m;
    struct qos_layout layout;
    enum qos_status status;
    size_t nodes, i;
    if (htb_shared_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    nodes = (size_t)qos_default(config->classes, 16) + 1;
    qos_layout_begin(&layout, NULL);
    (void)htb_priv_shared_layout(&layout, config->trees, nodes - 1);
    status = qos_layout_check(&layout, shared, size_bytes);
    if (status != QOS_OK)
        return status;
    __builtin_memset((void *)shared, 0, qos_layout_size_bytes(&layout));
    shared->trees = config->trees;
    shared->classes = nodes - 1;
    shared->interval_ns = qos_default(config->interval_ns, 5000000);
    m = htb_priv_map_of(shared);
    for (i = 0; i < nodes; i++)
        m.pool[i] = HTB_PRIV_WHOLE;
    return QOS_OK;
}

/* Takes up to so many parts from a pool. Returns how many. */
QOS_PRIV uint32_t htb_priv_from_pool(qos_word_t *pool, uint32_t most)
{
    uint64_t left = qos_atomic_load_relaxed(pool), more;
    do
        more = qos_min(left, most);
    while (more != 0 && !qos_atomic_cas_relaxed(pool, &left, left - more));
    return (uint32_t)more;
}

/* From now on the node has these parts. */
QOS_PRIV void htb_priv_lease_apply(struct htb *tree, uint32_t id, uint32_t parts, uint64_t now_ns)
{
    struct htb_priv_lease *lease = &tree->joined.lease[id];
    const uint32_t was = lease->parts;
    uint32_t r;
    QOS_ASSERT(parts <= HTB_PRIV_WHOLE);
    htb_priv_refill(tree, id, now_ns);
    lease->parts = parts;
    for (r = 0; r < tree->resources; r++)
        htb_priv_set_pair(tree, id, r, lease->rate[r], lease->limit[r]);
    htb_priv_scale_lead(tree, id, was, parts);
}

QOS_API enum qos_status htb_join(struct htb *tree, uint64_t now_ns, struct htb_shared *shared, uint32_t slot)
{
    struct htb_priv_shared_map m;
    struct htb_priv_lease *lease;
    uint32_t id, r, held;
    if (!shared || tree->joined.lease || shared->classes != tree->classes || tree->queued != 0)
        return QOS_EINVAL;
    if (slot >= shared->trees)
        return QOS_ENOENT;
    now_ns = htb_priv_now(tree, now_ns);
    htb_priv_refill_all(tree, now_ns);
    m = htb_priv_map_of(shared);
    QOS_ASSERT(m.lease);
    tree->joined.lease = lease = m.lease + slot * ((size_t)tree->classes + 1);
    tree->joined.shared = shared;
    tree->joined.visit = m.visit + slot * ((size_t)tree->classes + 1);
    tree->joined.visits = 0;
    tree->joined.slot = slot;
    tree->joined.exchange_ns = tree->joined.exchanged_ns = now_ns;
    for (id = 0; id <= tree->classes; id++) {
        struct htb_priv_offer *offer = &m.offer[id * shared->trees + slot];
        __builtin_memset(&lease[id], 0, sizeof lease[id]);
        lease[id].parts = HTB_PRIV_WHOLE; /* until now */
        htb_priv_mark(tree, id, HTB_PRIV_NOTED, false);
        lease[id].demand = HTB_PRIV_WANT;
        lease[id].granted = tree->cls[id].counters.granted;
        lease[id].borrowed = tree->cls[id].counters.borrowed;
        for (r = 0; r < tree->resources; r++) {
            lease[id].rate[r] = htb_priv_pair_of(tree, id, r)->rate.rate;
            lease[id].limit[r] = htb_priv_pair_of(tree, id, r)->limit.rate;
        }
        qos_atomic_store_relaxed(&offer->want, 0);
        qos_atomic_store_relaxed(&offer->turn, 0);
        held = (uint32_t)qos_atomic_load_relaxed(&offer->held);
        if (held < HTB_PRIV_WHOLE / shared->trees) /* what no tree holds yet stays for those that have joined */
            held += htb_priv_from_pool(&m.pool[id], (uint32_t)(HTB_PRIV_WHOLE / shared->trees - held));
        qos_atomic_store_relaxed(&offer->held, held);
        htb_priv_lease_apply(tree, id, held, now_ns);
    }
    return QOS_OK;
}

/* What a node may use in an interval, in all trees: as htb_priv_ring_cost. */
QOS_PRIV uint64_t htb_priv_interval_cost(const struct htb *tree, uint32_t id)
{
    const struct htb_priv_lease *lease = &tree->joined.lease[id];
    uint64_t cost = 1;
    uint32_t r;
    for (r = 0; r < tree->resources; r++) {
        const uint64_t per_s = lease->limit[r] == QOS_UNLIMITED ? lease->rate[r] : lease->limit[r];
        cost = qos_max(cost, qos_mul_div_floor(per_s, tree->joined.shared->interval_ns,
                                               tree->resources > 1 ? tree->set.rate_per_s[r] : QOS_NS_PER_S));
    }
    return qos_min(cost, UINT64_C(1) << 42) * HTB_PRIV_WANT;
}

/* The groups above a node count what it used and lent. */
QOS_PRIV void htb_priv_use_up(struct htb *tree, uint32_t id)
{
    struct htb_priv_lease *lease = &tree->joined.lease[id];
    const struct qos_counters *c = &tree->cls[id].counters;
    const uint64_t granted = qos_wrap_sub(c->granted, lease->granted),
                   borrowed = qos_wrap_sub(c->borrowed, lease->borrowed), lent = lease->lent + granted - borrowed;
    uint64_t used;
    lease->used += granted;
    used = tree->node[id].flags & HTB_PRIV_GROUP ? 0 : lease->used;
    lease->granted = c->granted;
    lease->borrowed = c->borrowed;
    lease->lent = 0;
    if ((used | lent) == 0)
        return;
    while ((id = tree->node[id].parent) != QOS_NONE) {
        tree->joined.lease[id].used += used;
        tree->joined.lease[id].below += lent;
        htb_priv_note(tree, id);
    }
}

/* The mean over some 2 exchanges, so that parts follow the demand; over 8 where somebody waits to borrow the rest. */
QOS_PRIV uint64_t htb_priv_smooth(uint64_t mean, uint64_t one, bool lends)
{
    return lends ? mean - mean / 8 + one / 8 : (mean + one) / 2;
}

/* Publishes what this tree wants of a node. If the node waits to borrow here, its weight counts in the turns of the
 * group above, in proportion to this tree's part of the demand for the node. */
QOS_PRIV void htb_priv_publish(struct htb *tree, uint32_t id, struct htb_priv_offer *offer, uint64_t elapsed_ns)
{
    const unsigned mask = HTB_PRIV_RING | HTB_PRIV_BACKLOG | HTB_PRIV_OWN, flags = tree->node[id].flags;
    struct htb_priv_lease *lease = &tree->joined.lease[id];
    const uint64_t interval_ns = tree->joined.shared->interval_ns;
    const bool refused = lease->refused, waits = (flags & mask) == (HTB_PRIV_RING | HTB_PRIV_BACKLOG) || refused;
    const bool lends = (flags & HTB_PRIV_GROUP) && (refused || htb_priv_turn(tree, id) != QOS_NONE);
    uint64_t used, want, all = 0;
    uint32_t i;
    used = qos_sat_sub(lease->used, lease->below); /* a class that moved leaves behind what its old groups lent */
    lease->want = htb_priv_smooth(lease->want, qos_mul_div_ceil(used * HTB_PRIV_WANT, interval_ns, elapsed_ns), lends);
    lease->want_own = htb_priv_smooth(lease->want_own,
                                      qos_mul_div_ceil(lease->below * HTB_PRIV_WANT, interval_ns, elapsed_ns), lends);
    want = lease->want + lease->want_own + lease->queued * HTB_PRIV_WANT;
    if (lends)
        want -= lease->want / 2;
    if (lease->asked != 0 && !(flags & HTB_PRIV_GROUP))
        want = qos_max(want, htb_priv_interval_cost(tree, id)) + lease->asked * HTB_PRIV_WANT;
    if (waits || lease->asked != 0)
        want = qos_max(want, 1);
    want += want != 0 ? lease->lacked : 0;
    lease->used = lease->below = 0;
    lease->asked = 0;
    lease->refused = false;
    lease->published = want;
    qos_atomic_store_relaxed(&offer[tree->joined.slot].want, want);
    if ((flags & HTB_PRIV_BACKLOG) && id != tree->classes)
        htb_priv_note(tree, tree->node[id].parent);
    if (!waits || id == tree->classes)
        return;
    for (i = 0; i < tree->joined.shared->trees; i++)
        all = qos_sat_add(all, qos_atomic_load_relaxed(&offer[i].want));
    lease->demand = (uint32_t)qos_mul_div_ceil(HTB_PRIV_WANT, want, all);
    tree->joined.lease[tree->node[id].parent].turns += (uint64_t)tree->turn[id].weight * lease->demand;
}

/* Sets a bit of a word. */
QOS_PRIV void htb_priv_set_bit(qos_word_t *word, size_t bit)
{
    uint64_t was = qos_atomic_load_relaxed(&word[bit / 64]), one = UINT64_C(1) << bit % 64;
    while (!(was & one) && !qos_atomic_cas_relaxed(&word[bit / 64], &was, was | one))
        ;
}

/* Clears the bits of a word, and returns them. Others only set some. */
QOS_PRIV uint64_t htb_priv_clear_bits(qos_word_t *word)
{
    const uint64_t was = qos_atomic_load_relaxed(word);
    if (was != 0)
        (void)qos_atomic_add_relaxed(word, qos_wrap_sub(0, was));
    return was;
}

/* Calls a tree to a node. If it sees the second bit before the first, this tree will call it again. */
QOS_PRIV void htb_priv_call(const struct htb_priv_shared_map *m, size_t slot, uint32_t id)
{
    qos_word_t *called = m->called + slot * (m->called_words[0] + m->called_words[1]);
    htb_priv_set_bit(called, id);
    htb_priv_set_bit(called + m->called_words[0], id / 64);
}

/* Notes the nodes to which other trees have called this one. */
QOS_PRIV void htb_priv_answer_calls(struct htb *tree, const struct htb_priv_shared_map *m)
{
    qos_word_t *called = m->called + tree->joined.slot * (m->called_words[0] + m->called_words[1]);
    size_t i;
    for (i = 0; i < m->called_words[1]; i++) {
        uint64_t words = htb_priv_clear_bits(called + m->called_words[0] + i), bits;
        for (; words != 0; words &= words - 1) {
            const size_t word = 64 * i + qos_ctz64(words);
            for (bits = htb_priv_clear_bits(called + word); bits != 0; bits &= bits - 1)
                htb_priv_note(tree, (uint32_t)(64 * word) + qos_ctz64(bits));
        }
    }
}

/* Parts of a node that this tree should hold, for what it wants in all: those that it holds, if no tree wants the node.
 * If this one wants it, it calls those that hold parts and want none. */
QOS_PRIV uint32_t htb_priv_share(const struct htb *tree, uint32_t id, const struct htb_priv_shared_map *m,
                                 const struct htb_priv_offer *offer, uint64_t *all)
{
    const struct htb_priv_lease *lease = &tree->joined.lease[id];
    uint64_t mine = lease->published, want = 0, turns = 0, spare = 0, one, turn;
    uint32_t i;
    for (i = 0; i < tree->joined.shared->trees; i++) {
        one = qos_atomic_load_relaxed(&offer[i].want);
        turn = qos_atomic_load_relaxed(&offer[i].turn);
        if ((one | turn) == 0 && (mine | lease->turns) != 0 && qos_atomic_load_relaxed(&offer[i].held) != 0)
            htb_priv_call(m, i, id);
        want = qos_sat_add(want, one);
        turns = qos_sat_add(turns, turn);
    }
    if (turns != 0) {
        spare = qos_sat_sub(htb_priv_interval_cost(tree, id), want);
        mine = qos_sat_add(mine, qos_mul_div_floor(spare, qos_min(lease->turns, turns), turns));
    }
    want = qos_sat_add(want, spare);
    *all = mine;
    return want == 0 ? lease->parts : (uint32_t)qos_mul_div_floor(HTB_PRIV_WHOLE, qos_min(mine, want), want);
}

/* Gives parts of a node to the pool, or takes them from it. True if its parts have changed. */
QOS_PRIV bool htb_priv_balance(struct htb *tree, uint32_t id, const struct htb_priv_shared_map *m, uint64_t now_ns)
{
    struct htb_priv_offer *offer = &m->offer[id * (size_t)tree->joined.shared->trees];
    struct htb_priv_lease *lease = &tree->joined.lease[id];
    qos_word_t *pool = &m->pool[id];
    uint64_t all;
    const uint32_t share = htb_priv_share(tree, id, m, offer, &all), was = lease->parts;
    uint32_t parts = was;
    QOS_ASSERT(qos_atomic_load_relaxed(pool) + was <= HTB_PRIV_WHOLE);
    if (share > was)
        parts = was + htb_priv_from_pool(pool, share - was);
    else if (was - share > HTB_PRIV_WHOLE / 256 || share == 0)
        parts = share;
    lease->lacked = 0;
    if ((tree->node[id].flags & HTB_PRIV_GROUP) && parts < share)
        lease->lacked = qos_min(qos_mul_div_floor(all, share - parts, share), htb_priv_interval_cost(tree, id));
    if (parts == was)
        return false;
    htb_priv_lease_apply(tree, id, parts, now_ns);
    qos_atomic_store_relaxed(&offer[tree->joined.slot].held, parts);
    if (parts < was)
        (void)qos_atomic_add_relaxed(pool, was - parts);
    return true;
}

/* Does the tree in this slot exchange? One that has stopped does not count. */
QOS_PRIV bool htb_priv_is_there(const struct htb *tree, const struct htb_priv_member *member, uint32_t i)
{
    const uint64_t ago_ns = qos_elapsed_ns(qos_atomic_load_relaxed(&member[i].seen_ns), tree->now_ns);
    return i != tree->joined.slot && ago_ns < qos_max(4 * tree->joined.shared->interval_ns, 40000000);
}

/* Publishes this tree's lateness and reads the others'. */
QOS_PRIV void htb_priv_exchange_late(struct htb *tree, struct htb_priv_member *member, uint64_t now_ns)
{
    uint32_t i;
    uint64_t worst = 0;
    qos_atomic_store_relaxed(&member[tree->joined.slot].late, htb_priv_worst(tree));
    qos_atomic_store_relaxed(&member[tree->joined.slot].seen_ns, now_ns);
    for (i = 0; i < tree->joined.shared->trees; i++)
        if (htb_priv_is_there(tree, member, i))
            worst = qos_max(worst, qos_atomic_load_relaxed(&member[i].late));
    htb_priv_others(tree, worst);
}

/* By how much this tree's clock is ahead of the others, in the mean of those where somebody waits to borrow from the
 * root. *turns: the weights of these, in all. */
QOS_PRIV int64_t htb_priv_ahead(const struct htb *tree, const struct htb_priv_shared_map *m, uint64_t *turns)
{
    const struct htb_priv_offer *root = &m->offer[tree->classes * (size_t)tree->joined.shared->trees];
    const uint64_t clock = qos_atomic_load_relaxed(&m->member[tree->joined.slot].clock);
    int64_t ahead = 0, trees = 0;
    uint32_t i;
    for (i = 0; i < tree->joined.shared->trees; i++) {
        const uint64_t turn = qos_atomic_load_relaxed(&root[i].turn);
        if (turn == 0 || !htb_priv_is_there(tree, m->member, i))
            continue;
        *turns = qos_sat_add(*turns, turn);
        ahead += (int64_t)qos_wrap_sub(clock, qos_atomic_load_relaxed(&m->member[i].clock)) / (int64_t)HTB_TREES_MAX;
        trees++;
    }
    return trees == 0 ? 0 : ahead / trees * (int64_t)HTB_TREES_MAX;
}

/* By flight: what the root lends here has half of the bound for each lag_ns of all that is lent by which this tree's
 * clock is ahead, twice of it if behind. So the clocks of all trees go alike, whatever their bounds are and bring. What
 * is more than three of these is forgotten; where nobody waits, the clock goes with the others. */
QOS_PRIV void htb_priv_exchange_turns(struct htb *tree, const struct htb_priv_shared_map *m)
{
    const uint64_t intervals = 1 + tree->lag_ns / tree->joined.shared->interval_ns;
    struct htb_priv_member *member = &m->member[tree->joined.slot];
    const uint64_t mine =
        qos_atomic_load_relaxed(&m->offer[tree->classes * (size_t)tree->joined.shared->trees + tree->joined.slot].turn);
    uint64_t turns = mine;
    int64_t ahead, unit, kept;
    qos_atomic_store_relaxed(&member->clock, qos_wrap_add(tree->cls[tree->classes].u.group.clock, tree->joined.clock));
    ahead = htb_priv_ahead(tree, m, &turns);
    unit = (int64_t)qos_min(qos_mul_div_ceil(htb_priv_interval_cost(tree, tree->classes), intervals << 16, turns),
                            UINT64_C(1) << 48);
    kept = mine == 0 ? 0 : ahead > 3 * unit ? 3 * unit : ahead < -3 * unit ? -3 * unit : ahead;
    tree->joined.clock = qos_wrap_sub(tree->joined.clock, (uint64_t)(ahead - kept));
    if (mine != 0)
        tree->flight.part = (uint16_t)((int64_t)HTB_PRIV_EVEN - kept * 1024 / unit);
}

/* By flight: a tree whose device_max is full, and holds less than its part of the bound, tells the others a bound of
 * which its part fits. If by that all trees complete less by a sixteenth than the best 1.6 s, of late, the device has
 * too little: this bound is twice as wide then, and narrower again by an octave in 200 s. */
QOS_PRIV void htb_priv_exchange_places(struct htb *tree, const struct htb_priv_shared_map *m, uint64_t now_ns)
{
    const struct htb_priv_flight *f = &tree->flight;
    const uint32_t places = htb_priv_log2(tree->set.device_max * (f->cost_ns / 64));
    struct htb_priv_joined *joined = &tree->joined;
    struct htb_priv_member *own = &m->member[joined->slot];
    uint64_t all_ns = 0, speed;
    uint32_t i;
    qos_atomic_store_relaxed(&own->done,
                             qos_wrap_add(qos_atomic_load_relaxed(&own->done), qos_wrap_sub(f->sum_ns, own->sum_ns)));
    own->sum_ns = f->sum_ns;
    for (i = 0; i < joined->shared->trees; i++)
        all_ns = qos_wrap_add(all_ns, qos_atomic_load_relaxed(&m->member[i].done));
    if (qos_elapsed_ns(own->looked_ns, now_ns) > 16 * HTB_PRIV_LOOK_NS) {
        speed = qos_mul_div_floor(qos_wrap_sub(all_ns, own->all_ns), UINT64_C(1) << 20, now_ns - own->looked_ns);
        if (joined->fits != HTB_PRIV_WIDE && speed < own->best - own->best / 16)
            joined->least = joined->fits + 1024u;
        else
            joined->least -= (uint32_t)qos_min(joined->least, 8);
        own->best = qos_max(speed, own->best - own->best / 256);
        own->all_ns = all_ns;
        own->looked_ns = now_ns;
    }
    joined->fits = HTB_PRIV_WIDE;
    if (tree->dispatch.at_device >= tree->set.device_max && f->part > HTB_PRIV_EVEN &&
        htb_priv_log2(f->bound_ns) + f->part > HTB_PRIV_EVEN + places)
        joined->fits = (uint32_t)qos_min(
            qos_max(qos_max(HTB_PRIV_EVEN + places - f->part, joined->least), htb_priv_log2(0)), HTB_PRIV_WIDE);
}

QOS_PRIV_NOINLINE void htb_priv_exchange(struct htb *tree, uint64_t now_ns)
{
    const struct htb_priv_shared_map m = htb_priv_map_of(tree->joined.shared);
    const size_t trees = (size_t)tree->joined.shared->trees;
    struct htb_priv_joined *joined = &tree->joined;
    const uint64_t elapsed_ns = qos_max(now_ns - joined->exchanged_ns, joined->shared->interval_ns); /* a reset: less */
    uint32_t i, kept = 0;
    bool changed = false;
    joined->exchanged_ns = now_ns;
    joined->exchange_ns = qos_sat_add(now_ns, joined->shared->interval_ns);
    htb_priv_exchange_late(tree, m.member, now_ns);
    if (tree->bound == HTB_BY_FLIGHT) {
        htb_priv_exchange_turns(tree, &m);
        htb_priv_exchange_places(tree, &m, now_ns);
    }
    htb_priv_answer_calls(tree, &m);
    for (i = 0; i < joined->visits; i++) /* both note the groups above */
        htb_priv_use_up(tree, joined->visit[i]);
    for (i = 0; i < joined->visits; i++)
        htb_priv_publish(tree, joined->visit[i], &m.offer[joined->visit[i] * trees], elapsed_ns);
    for (i = 0; i < joined->visits; i++) {
        const uint32_t id = joined->visit[i];
        qos_atomic_store_relaxed(&m.offer[id * trees + joined->slot].turn, joined->lease[id].turns);
        changed = htb_priv_balance(tree, id, &m, now_ns) || changed;
    }
    for (i = 0; changed && tree->queued != 0 && i < joined->visits; i++) /* all that wait are visited */
        if (tree->node[joined->visit[i]].flags & HTB_PRIV_USED)
            htb_priv_place_up(tree, joined->visit[i], false, now_ns);
    for (i = 0; i < joined->visits; i++) { /* who wants nothing, and has published that, leaves */
        const uint32_t id = joined->visit[i];
        struct htb_priv_lease *lease = &joined->lease[id];
        const bool stays = (lease->published | lease->turns | lease->want | lease->want_own) != 0;
        lease->turns = 0;
        htb_priv_mark(tree, id, HTB_PRIV_NOTED, stays);
        if (stays)
            joined->visit[kept++] = id;
    }
    joined->visits = kept;
}

QOS_API uint64_t htb_exchange(struct htb *tree, uint64_t now_ns)
{
    now_ns = htb_priv_now(tree, now_ns);
    if (tree->joined.lease && now_ns >= tree->joined.exchange_ns)
        htb_priv_exchange(tree, now_ns);
    return tree->joined.exchange_ns;
}

#endif /* HTB_HAS_SHARED */

/* ==== chapter: gate ================================================================================================
 *
 * htb_take checks the buckets from the class up to the root, and charges them (see the chapter on the tree). It has two
 * paths with the same result:
 *   short   one resource, no limits, nothing queued (detours is 0), in a joined tree a class that is noted: one pass
 *           that refills, checks and charges. Nothing is charged below the payer, so a pass that finds no payer has
 *           charged nothing.
 *   long    everything else: find the payer, then charge.
 * If requests are queued, the nodes up to the root are placed again, because they hold fewer tokens.
 *
 * Who waits for tokens leaves a claim to its n of them, one a class, and others leave these to it: so callers share in
 * whatever order they are asked, and the device stays busy if one of them does not come back.
 *
 *     a take passes    if a bucket that it shares, of a lender or the limit of a group, holds what it needs and what
 *                      the claims before it need there: those of classes that come back each, those of the others
 *                      together the largest. If that is more than it can hold, it passes when the bucket is full;
 *                      beside those that come back also not before it was kept for them twice as long as it earned
 *                      what was taken of late, and two bursts. While a claim needs all that a bucket holds, which
 *                      the default never does, it earns as much again: so its rate is in use
 *     a class comes    for claims of one size, a power of two, if it took as much within burst_ns of the time told; to
 *     back             ask for less then, or to let one end, takes that back, for its size and more; to be refused
 *                      changes nothing. As long as nothing is known of a class, its claim counts like those of classes
 *                      that come back, if the bucket can hold all of these
 *     a claim needs    its n; and again for each request of that size that would go before the taker if the class had
 *                      so many, in the resources that it lacked when it asked, up to half the bucket for all claims: so
 *                      who is late and asks first leaves the others their part of what gathered meanwhile
 *     order            that of the ring tags, in the ring where two classes meet; then of the ids. A group has one
 *                      claim there: the first of its classes; the others stand where its tag will be then. While
 *                      there are claims, what is borrowed moves the tags on, as in the queues
 *     a claim counts   up to the node whose limit blocked it, else up to the root
 *     it ends          when the class takes, or asks again; is at its own limit; ends or moves; or burst_ns, its own
 *                      or the tree's if that is less, after the time told, or that told now if terms were changed
 *
 * Who takes leaves those behind it what they need to come, by whole requests, to where it was. So callers that ask
 * until they are refused and again when told differ as the contract says, in any order, if one request of each and what
 * gathers fit in half the bucket; in one loop that is late, once all were asked. A timer each, or requests that differ
 * in size, part two by four of the largest n / w of all more: a claim tells one size, and who jumped ahead leaves no
 * part.
 *
 * Nobody is woken. Claims that nobody comes for delay others by burst_ns at most, or until the bucket has what they
 * need; those of classes that came back and stop at once by burst_ns each, and four of these. What they leave then, at
 * most one bucket, goes to who asks first; so does that of a class that moves or ends. If more than
 * HTB_PRIV_CLAIMS_MAX classes wait, the first in the order have the claims. */

/* Do queued requests wait for the tokens of the node? By flight the root has others for them. */
QOS_PRIV bool htb_priv_overtakes(const struct htb *tree, uint32_t id)
{
    if (!(tree->node[id].flags & HTB_PRIV_GROUP))
        return tree->cls[id].u.leaf.tail != NULL;
    return (id != tree->classes || tree->bound == HTB_BY_RATE) && tree->cls[id].u.group.first != QOS_NONE;
}

/* The child of the group on the way to `id`; QOS_NONE: `id` is not below it. */
QOS_PRIV uint32_t htb_priv_child_to(const struct htb *tree, uint32_t group, uint32_t id)
{
    while (id != QOS_NONE && tree->node[id].parent != group)
        id = tree->node[id].parent;
    return id;
}

/* The child of the group on the way to the class of a claim that needs what the group has; else QOS_NONE. */
QOS_PRIV uint32_t htb_priv_claims_from(const struct htb *tree, const struct htb_priv_claim *c, uint32_t group)
{
    return tree->node[c->reach].depth > tree->node[group].depth ? QOS_NONE : htb_priv_child_to(tree, group, c->id);
}

/* level_sub, and what some claims need in resource r of the bucket: those of classes that come back each, those of the
 * others together the largest; at most all that it holds, with HTB_PRIV_KEPT if that is less and one comes back. For
 * more than one request of each at most half of it, or all would wait until most claims are over. */
QOS_PRIV_NOINLINE uint64_t htb_priv_claimed(const struct htb *tree, const struct htb_priv_bucket *b, uint32_t r,
                                            int64_t level_sub, uint64_t some)
{
    const uint64_t depth_sub = (uint64_t)b->depth;
    uint64_t holds_sub = depth_sub, sum_sub = (uint64_t)level_sub, fresh_sub = 0, largest_sub = 0, more_sub = 0;
    bool returns = false;
    for (; b->rate != 0 && some != 0; some &= some - 1) {
        const struct htb_priv_claim *c = &tree->claim[qos_ctz64(some)];
        const uint64_t needs_sub = (uint64_t)htb_priv_gate(tree, b, c->n[r]);
        if (needs_sub == depth_sub)
            holds_sub = 2 * depth_sub; /* see htb_priv_held */
        if ((c->returns || c->fresh) && (c->lacks >> r & 1) != 0)
            more_sub = qos_sat_add(more_sub, qos_sat_mul(c->n[r] * QOS_SUBTOKENS, c->times - 1));
        if (c->returns && needs_sub != 0) {
            returns = true;
            sum_sub = qos_min(sum_sub + needs_sub, 2 * depth_sub + 1);
        } else {
            largest_sub = qos_max(largest_sub, needs_sub);
            fresh_sub = qos_min(fresh_sub + (c->fresh ? needs_sub : 0), 2 * depth_sub + 1);
        }
    }
    if (sum_sub + fresh_sub <= holds_sub)
        largest_sub = qos_max(largest_sub, fresh_sub); /* nothing is known: each, if there is room for all */
    sum_sub += largest_sub;
    if (sum_sub > holds_sub)
        return returns ? holds_sub | HTB_PRIV_KEPT : holds_sub;
    if (sum_sub < depth_sub / 2)
        sum_sub = qos_min(qos_sat_add(sum_sub, more_sub), depth_sub / 2);
    return sum_sub;
}

/* The depth of a bucket; twice that while a claim needs all that it holds. */
QOS_PRIV_NOINLINE int64_t htb_priv_held(const struct htb *tree, uint32_t id, const struct htb_priv_bucket *b,
                                        uint32_t r)
{
    uint32_t i;
    for (i = 0; i < tree->claims && b->rate != 0; i++)
        if (tree->claim[i].until_ns > tree->now_ns && htb_priv_gate(tree, b, tree->claim[i].n[r]) == b->depth &&
            htb_priv_claims_from(tree, &tree->claim[i], id) != QOS_NONE)
            return 2 * b->depth;
    return b->depth;
}

QOS_PRIV uint64_t htb_priv_tag_of(const struct htb *tree, uint32_t id)
{
    return qos_max(tree->turn[id].tag, tree->cls[tree->node[id].parent].u.group.clock);
}

/* The least tag of those in the group's ring that have claims below them; QOS_NEVER: none has. */
QOS_PRIV uint64_t htb_priv_claimed_tag(const struct htb *tree, uint32_t group)
{
    uint64_t tag = QOS_NEVER;
    uint32_t i, id;
    for (i = 0; i < tree->claims; i++) {
        id = htb_priv_claims_from(tree, &tree->claim[i], group);
        if (id != QOS_NONE)
            tag = qos_min(tag, htb_priv_tag_of(tree, id));
    }
    return tag;
}

/* Moves two classes up to the ring where their ways to the root meet. */
QOS_PRIV void htb_priv_meet(const struct htb *tree, uint32_t *a, uint32_t *b)
{
    while (tree->node[*a].parent != tree->node[*b].parent) {
        const uint32_t depth_a = tree->node[*a].depth, depth_b = tree->node[*b].depth;
        *a = depth_a >= depth_b ? tree->node[*a].parent : *a;
        *b = depth_b >= depth_a ? tree->node[*b].parent : *b;
    }
}

/* Does class a go before class b? Their tags are compared in the ring where they meet. */
QOS_PRIV bool htb_priv_goes_before(const struct htb *tree, uint32_t a, uint32_t b)
{
    uint64_t tag_a, tag_b;
    htb_priv_meet(tree, &a, &b);
    tag_a = htb_priv_tag_of(tree, a);
    tag_b = htb_priv_tag_of(tree, b);
    return tag_a != tag_b ? tag_a < tag_b : a < b;
}

/* Where a class stands among the claims: behind those that it meets first. So all that are below a node adjoin. */
QOS_PRIV uint32_t htb_priv_claim_place(const struct htb *tree, uint32_t id)
{
    uint32_t i, place = tree->claims, depth = 0;
    for (i = 0; i < tree->claims && tree->node[id].depth > 1; i++) { /* else it meets all in the root's ring */
        uint32_t a = id, b = tree->claim[i].id;
        htb_priv_meet(tree, &a, &b);
        if (tree->node[a].depth < depth)
            continue;
        depth = tree->node[a].depth;
        place = i + 1;
    }
    return place;
}

/* Those of some claims that go before a class: a set of bits; their `times` are set. A group has one claim beside
 * others: its first. The class stands where its group will when the claims before it there are served. */
QOS_PRIV_NOINLINE uint64_t htb_priv_claims_before(const struct htb *tree, uint32_t id, uint64_t some)
{
    uint64_t before = 0, cost = 0;
    uint32_t from = some == 0 ? 0 : htb_priv_claim_place(tree, id), to = from; /* those below the ring so far */
    for (; some != 0 && id != tree->classes; id = tree->node[id].parent) {
        const uint64_t units = (htb_priv_thinned(tree, id, cost) << 16) + tree->cls[id].ring_rest;
        const uint64_t tag = htb_priv_tag_of(tree, id) + (cost == 0 ? 0 : units / tree->turn[id].weight);
        const uint32_t ring = tree->node[id].parent;
        uint32_t group = QOS_NONE, first = 0, other;
        uint64_t first_cost = 0;
        for (;;) {
            struct htb_priv_claim *c;
            uint64_t other_tag, due;
            uint32_t i;
            if (from > 0 && (other = htb_priv_child_to(tree, ring, tree->claim[from - 1].id)) != QOS_NONE)
                i = --from;
            else if (to < tree->claims && (other = htb_priv_child_to(tree, ring, tree->claim[to].id)) != QOS_NONE)
                i = to++;
            else
                break;
            other_tag = htb_priv_tag_of(tree, other);
            if (other == id || (some >> i & 1) == 0 || other_tag > tag || (other_tag == tag && other > id))
                continue;
            if (other == group) {
                if (!htb_priv_goes_before(tree, tree->claim[i].id, tree->claim[first].id))
                    continue;
                before &= ~(UINT64_C(1) << first);
                cost -= first_cost;
            }
            group = other;
            first = i;
            before |= UINT64_C(1) << i;
            c = &tree->claim[i];
            c->times = 1;
            first_cost = htb_priv_ring_cost(tree, c->n);
            if (other_tag < tag) {
                due = qos_sat_mul(tag - other_tag, tree->turn[other].weight);
                c->times = (due - 1) / (htb_priv_thinned(tree, other, first_cost) << 16) + 1;
                first_cost = qos_min(qos_sat_mul(first_cost, c->times), UINT64_C(1) << 42);
            }
            cost += first_cost;
        }
        cost = qos_min(cost, UINT64_C(1) << 42);
    }
    return before;
}

/* htb_priv_ready_ns at node `at` for a class, behind those of the claims before it that need what `at` has, and end.
 * Without them it is from_ns. */
QOS_PRIV_NOINLINE uint64_t htb_priv_claimed_ns(const struct htb *tree, uint32_t id, uint32_t at, bool limit,
                                               const uint64_t *n, uint64_t from_ns)
{
    uint64_t some = 0;
    uint32_t i;
    for (i = 0; i < tree->claims; i++)
        if (tree->claim[i].until_ns > from_ns && htb_priv_claims_from(tree, &tree->claim[i], at) != QOS_NONE)
            some |= UINT64_C(1) << i;
    for (;;) {
        uint64_t ready_ns, end_ns = QOS_NEVER, before = htb_priv_claims_before(tree, id, some);
        if (before == 0)
            return from_ns;
        ready_ns = htb_priv_ready_ns(tree, at, limit, n, before, from_ns);
        for (; before != 0; before &= before - 1)
            end_ns = qos_min(end_ns, tree->claim[qos_ctz64(before)].until_ns);
        if (ready_ns < end_ns)
            return ready_ns;
        from_ns = end_ns; /* then there is one claim less, or another one of that group */
        for (i = 0; i < tree->claims; i++)
            some &= ~((uint64_t)(tree->claim[i].until_ns <= from_ns) << i);
    }
}

/* The same, if there may be any. */
HTB_PRIV_INLINE uint64_t htb_priv_free_ns(const struct htb *tree, uint32_t id, uint32_t at, bool limit,
                                          const uint64_t *n, bool claims, uint64_t from_ns)
{
    const uint64_t ready_ns = htb_priv_ready_ns(tree, at, limit, n, 0, from_ns);
    return QOS_LIKELY(!claims) ? ready_ns : htb_priv_claimed_ns(tree, id, at, limit, n, ready_ns);
}

/* The way; at the `gate` behind the claims and the queued requests that go before it. */
QOS_PRIV_NOINLINE struct htb_priv_way htb_priv_way_of(const struct htb *tree, uint32_t id, const uint64_t *n, bool gate,
                                                      uint64_t now_ns)
{
    struct htb_priv_way way = {QOS_NEVER, QOS_NONE, QOS_NONE};
    const uint32_t class_id = id;
    uint64_t limits_ns = now_ns, ready_ns;
    bool may = true;
    for (; id != QOS_NONE && way.payer == QOS_NONE; id = tree->node[id].parent) {
        const bool claims = gate && tree->claims != 0 && (tree->node[id].flags & HTB_PRIV_GROUP);
        if (tree->node[id].flags & HTB_PRIV_LIMITED)
            limits_ns = htb_priv_free_ns(tree, class_id, id, true, n, claims, limits_ns);
        ready_ns = htb_priv_free_ns(tree, class_id, id, false, n, claims, now_ns);
        if (limits_ns > now_ns && way.blocked == QOS_NONE)
            way.blocked = id;
        ready_ns = qos_max(limits_ns, ready_ns);
        may = may && !(gate && htb_priv_overtakes(tree, id));
        way.send_ns = may ? qos_min(way.send_ns, ready_ns) : way.send_ns;
        if (ready_ns <= now_ns)
            way.payer = id;
    }
    return way;
}

/* At the gate, the first time from send_ns on at which all pass. When the first claim of a group ends, the next one may
 * need more: so what passes at one time, of several buckets on the way, may not pass later. */
HTB_PRIV_INLINE uint64_t htb_priv_told_ns(const struct htb *tree, uint32_t id, const uint64_t *n, uint64_t send_ns)
{
    uint64_t before_ns = QOS_NEVER;
    if (tree->claims == 0 || tree->detours == tree->claims + tree->queued)
        return send_ns; /* no limits, one resource */
    while (send_ns != before_ns && send_ns != QOS_NEVER) {
        before_ns = send_ns;
        send_ns = htb_priv_way_of(tree, id, n, true, send_ns).send_ns;
    }
    return send_ns;
}

/* The size of a request of a claim: the bits of what it costs in the rings. */
QOS_PRIV uint32_t htb_priv_size_of(const struct htb *tree, const uint64_t *n)
{
    return 64u - qos_clz64(htb_priv_ring_cost(tree, n));
}

/* The time told for send_ns: in a joined tree at most the next exchange, as that changes what the tree has. */
QOS_PRIV uint64_t htb_priv_exchanged_ns(const struct htb *tree, uint64_t send_ns, uint64_t now_ns)
{
    if (!tree->joined.lease || send_ns <= now_ns)
        return send_ns;
    return qos_min(send_ns, tree->joined.exchange_ns > now_ns ? tree->joined.exchange_ns
                                                              : qos_sat_add(now_ns, tree->joined.shared->interval_ns));
}

/* How long a class may come for its claim, from the time told on. */
QOS_PRIV uint64_t htb_priv_claim_ns(const struct htb *tree, uint32_t id)
{
    return qos_min(tree->cls[id].burst_us, tree->cls[tree->classes].burst_us) * UINT64_C(1000);
}

/* A claim of that size ended: did its class take as much when it was told? */
QOS_PRIV void htb_priv_learn(struct htb *tree, uint32_t id, uint32_t size, bool came)
{
    struct htb_priv_ring_entry *t = &tree->turn[id];
    t->fresh = 0;
    t->returns = (came ? qos_max(t->returns, size) : qos_min(t->returns, size - 1)) & 63u;
}

/* A class takes n tokens. So the groups above keep their full buckets for those that come back, twice as long as what
 * this needs takes to earn, and two bursts at most beside it: if they do not come, half of the time is lost. */
QOS_PRIV_NOINLINE void htb_priv_keep(struct htb *tree, uint32_t id, const uint64_t *n, uint64_t now_ns)
{
    uint32_t at, r;
    for (at = tree->node[id].parent; at != QOS_NONE; at = tree->node[at].parent) {
        uint64_t *kept_ns = &tree->cls[at].u.group.kept_ns, ns = 0;
        for (r = 0; r < tree->resources; r++) {
            const struct htb_priv_pair *p = htb_priv_pair_of(tree, at, r);
            const struct htb_priv_bucket *b = p->limit.rate != QOS_UNLIMITED ? &p->limit : &p->rate;
            const uint64_t parts = tree->joined.lease ? tree->joined.lease[at].parts : HTB_PRIV_WHOLE;
            if (b->rate != 0 && parts != 0)
                ns = qos_max(ns, qos_mul_div_ceil(qos_level_wait_ns(0, htb_priv_gate(tree, b, n[r]), b->rate),
                                                  HTB_PRIV_WHOLE, parts));
        }
        ns = 2 * qos_min(ns, HTB_BURST_MAX_NS);
        *kept_ns = qos_min(qos_sat_add(qos_max(*kept_ns, now_ns), ns),
                           qos_sat_add(now_ns, ns + 2 * UINT64_C(1000) * tree->cls[at].burst_us));
    }
}

/* Ends the claims of a node and of those below it (QOS_NONE: of none), and those whose time is over. False: there were
 * none but these last. */
QOS_PRIV_NOINLINE bool htb_priv_end_claims(struct htb *tree, uint32_t above, uint64_t now_ns)
{
    const bool group = above != QOS_NONE && (tree->node[above].flags & HTB_PRIV_GROUP);
    uint32_t i, kept = 0;
    bool others = false;
    for (i = 0; i < tree->claims; i++) {
        const struct htb_priv_claim *c = &tree->claim[i];
        if (c->until_ns <= now_ns) {
            htb_priv_learn(tree, c->id, htb_priv_size_of(tree, c->n), false);
            continue;
        }
        others = true;
        if (c->id == above || (group && htb_priv_is_below(tree, c->id, above)))
            continue;
        if (kept < i)
            tree->claim[kept] = *c;
        kept++;
    }
    tree->detours -= tree->claims - kept;
    tree->claims = kept;
    return others;
}

/* The size of the claim that a class is told to come for by now; 0: there is none. */
QOS_PRIV_NOINLINE uint32_t htb_priv_told_size(const struct htb *tree, uint32_t id, uint64_t now_ns)
{
    uint32_t i;
    for (i = 0; i < tree->claims; i++) {
        const struct htb_priv_claim *c = &tree->claim[i];
        if (c->id == id && c->until_ns > now_ns && c->until_ns - now_ns <= htb_priv_claim_ns(tree, id))
            return htb_priv_size_of(tree, c->n);
    }
    return 0;
}

/* How far a claim counts, and when it ends at the latest. */
QOS_PRIV void htb_priv_time_claim(const struct htb *tree, struct htb_priv_claim *c, const struct htb_priv_way *way,
                                  uint64_t now_ns)
{
    const uint64_t told_ns = htb_priv_exchanged_ns(tree, qos_max(way->send_ns, now_ns), now_ns);
    c->reach = way->blocked == QOS_NONE ? tree->classes : way->blocked;
    c->until_ns = qos_min(c->until_ns, qos_sat_add(told_ns, htb_priv_claim_ns(tree, c->id)));
}

/* The terms of a node have changed: its claim, and those of classes below it, stay as far as these still let them. */
QOS_PRIV_NOINLINE void htb_priv_renew_claims(struct htb *tree, uint32_t above, uint64_t now_ns)
{
    uint32_t i;
    (void)htb_priv_end_claims(tree, QOS_NONE, now_ns);
    for (i = tree->claims; i > 0; i--) {
        struct htb_priv_claim *c = &tree->claim[i - 1];
        struct htb_priv_way way;
        if (!htb_priv_is_below(tree, c->id, above))
            continue;
        way = htb_priv_way_of(tree, c->id, c->n, true, now_ns);
        way.send_ns = htb_priv_told_ns(tree, c->id, c->n, way.send_ns);
        if (way.blocked == c->id || way.send_ns == QOS_NEVER)
            (void)htb_priv_end_claims(tree, c->id, now_ns);
        else
            htb_priv_time_claim(tree, c, &way, now_ns);
    }
}

/* The resources that a claim lacks where it counts last; all, if it waits only for others. */
QOS_PRIV uint8_t htb_priv_lacks(const struct htb *tree, const struct htb_priv_claim *c)
{
    const struct htb_priv_pair *p;
    uint32_t lacks = 0, r = 0;
    for (p = &tree->node[c->reach].pair; p; p = htb_priv_next_pair(tree, c->reach, &r)) {
        const struct htb_priv_bucket *b = c->reach == tree->classes ? &p->rate : &p->limit;
        if (c->n[r] != 0 && b->rate != QOS_UNLIMITED && b->level < htb_priv_gate(tree, b, c->n[r]))
            lacks |= 1u << r;
    }
    return (uint8_t)qos_default(lacks, 255);
}

/* A class claims what it was refused, in the order of the rings. If there is no room, the last in that order goes. */
QOS_PRIV_NOINLINE void htb_priv_make_claim(struct htb *tree, uint32_t id, const struct htb_priv_way *way,
                                           const uint64_t *n, uint64_t now_ns)
{
    uint32_t at, i, last = 0;
    struct htb_priv_claim *c;
    if (way->blocked == id || way->send_ns == QOS_NEVER)
        return;
    for (at = id; at != tree->classes; at = tree->node[at].parent) {
        tree->turn[at].tag = htb_priv_tag_of(tree, at);
        htb_priv_refill(tree, tree->node[at].parent, now_ns); /* the claim holds from now on */
    }
    if (tree->claims == qos_min(tree->classes, HTB_PRIV_CLAIMS_MAX)) {
        for (i = 1; i < tree->claims; i++)
            if (htb_priv_goes_before(tree, tree->claim[last].id, tree->claim[i].id))
                last = i;
        if (htb_priv_goes_before(tree, tree->claim[last].id, id))
            return;
        (void)htb_priv_end_claims(tree, tree->claim[last].id, now_ns);
    }
    last = htb_priv_claim_place(tree, id);
    for (i = tree->claims++; i > last; i--)
        tree->claim[i] = tree->claim[i - 1];
    c = &tree->claim[last];
    tree->detours++;
    QOS_ASSERT(tree->claims <= qos_min(tree->classes, HTB_PRIV_CLAIMS_MAX));
    c->id = id;
    c->fresh = tree->turn[id].fresh;
    c->returns = htb_priv_size_of(tree, n) <= tree->turn[id].returns;
    c->until_ns = QOS_NEVER;
    htb_priv_time_claim(tree, c, way, now_ns);
    for (i = 0; i < tree->resources; i++)
        c->n[i] = n[i];
    c->lacks = htb_priv_lacks(tree, c);
}

QOS_API enum qos_status htb_take_all(struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n)
{
    struct htb_priv_way way;
    bool claims, is_free;
    uint32_t told = 0;
    if (!htb_priv_in_range(tree, n))
        return QOS_ERANGE;
    now_ns = htb_priv_now(tree, now_ns);
    id = htb_priv_resolve(tree, id, now_ns);
    is_free = tree->claims != 0 && __builtin_memcmp(n, htb_priv_nothing, tree->resources * sizeof *n) == 0;
    if (QOS_UNLIKELY(tree->claims != 0) && !is_free)
        told = htb_priv_told_size(tree, id, now_ns);
    claims = QOS_UNLIKELY(tree->claims != 0) && htb_priv_end_claims(tree, is_free ? QOS_NONE : id, now_ns);
    way = htb_priv_way_of(tree, id, n, true, qos_min(now_ns, QOS_NEVER - 1)); /* what never comes is later */
    if (told > htb_priv_size_of(tree, n) || (told != 0 && way.send_ns <= now_ns))
        htb_priv_learn(tree, id, told, told <= htb_priv_size_of(tree, n));
    if (way.send_ns > now_ns || way.send_ns == QOS_NEVER) {
        tree->maximize.starved = tree->maximize.starved || (way.payer == QOS_NONE && way.blocked == QOS_NONE);
        if (is_free)
            (void)htb_priv_end_claims(tree, id, now_ns);
        way.send_ns = htb_priv_told_ns(tree, id, n, way.send_ns);
        htb_priv_make_claim(tree, id, &way, n, now_ns);
        htb_priv_ask(tree, id, way.blocked, n);
        qos_counter_add(&tree->cls[id].counters.refused, 1);
        return QOS_EAGAIN;
    }
    if (QOS_UNLIKELY(claims))
        htb_priv_keep(tree, id, n, now_ns);
    htb_priv_charge(tree, id, way.payer, n, htb_priv_nothing, now_ns);
    if (QOS_UNLIKELY(claims) && !is_free) /* a free take ends no claim of its class, and moves nothing */
        htb_priv_move_rings(tree, id, way.payer, htb_priv_ring_cost(tree, n), false);
    if (tree->queued)
        htb_priv_place_up(tree, id, true, now_ns);
    return QOS_OK;
}

/* The level of a node as of now, which the caller stores once: charged or not. */
QOS_PRIV int64_t htb_priv_refill_one(struct htb_priv_node *node, uint64_t now_ns)
{
    const uint64_t elapsed_ns = now_ns - node->last_ns;
    node->last_ns = now_ns;
    return qos_level_refill(node->pair.rate.level, node->pair.rate.depth, (uint64_t)node->pair.limit.depth, elapsed_ns);
}

/* In a joined tree a WHOLE has ended: what a class and the nodes above it get then. */
QOS_PRIV_NOINLINE void htb_priv_end_whole(const struct htb *tree, struct htb_priv_node *node, uint64_t now_ns)
{
    for (; now_ns > node->last_ns; node = &tree->node[node->depth != 0 ? node->parent : tree->classes]) {
        struct htb_priv_bucket *b = &node->pair.rate;
        htb_priv_set_level(b, htb_priv_earned(tree, (uint32_t)(node - tree->node), b, b->depth, now_ns));
        node->last_ns = now_ns;
    }
}

/* The long path. Who is refused on the short one learns here for how long. */
QOS_PRIV_NOINLINE enum qos_status htb_priv_take_long(struct htb *tree, uint64_t now_ns, uint32_t id, uint64_t n)
{
    uint64_t all[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    all[0] = n;
    return htb_take_all(tree, now_ns, id, all);
}

/* Charges a node above a class, if one on the way to it has paid or this one can. Under load no branch predictor can
 * tell whether a class pays itself or borrows: so no branch. */
HTB_PRIV_INLINE bool htb_priv_charge_one(const struct htb *tree, struct htb_priv_node *node, uint64_t tokens, bool paid,
                                         uint64_t now_ns)
{
    const int64_t n_sub = (int64_t)tokens * QOS_SUBTOKENS;
    int64_t level = htb_priv_refill_one(node, now_ns);
    const bool pays = paid | (level >= n_sub);
    const bool passes = QOS_LIKELY(pays) || level >= htb_priv_gate(tree, &node->pair.rate, tokens);
    if (passes)
        level = qos_level_charge(level, n_sub);
    htb_priv_set_level(&node->pair.rate, level);
    return passes;
}

/* The short path. */
HTB_PRIV_INLINE enum qos_status htb_priv_take_one(struct htb *tree, uint32_t id, uint64_t tokens, uint64_t now_ns)
{
    struct htb_priv_node *const nodes = tree->node, *node = &nodes[id];
    const int64_t n_sub = (int64_t)tokens * QOS_SUBTOKENS;
    int64_t level;
    bool own, paid, pays;
    QOS_ASSERT((tree->queued | tree->claims) == 0 && tree->resources == 1 && !(node->flags & HTB_PRIV_LIMITED));
    if (QOS_UNLIKELY(tree->joined.lease != NULL) && (now_ns ^ node->last_ns) >= HTB_PRIV_WHOLE)
        htb_priv_end_whole(tree, node, now_ns);
    level = htb_priv_refill_one(node, now_ns);
    own = paid = level >= htb_priv_gate(tree, &node->pair.rate, tokens);
    htb_priv_set_level(&node->pair.rate, level - (n_sub & -(int64_t)own));
    for (node = &nodes[node->parent]; node->depth != 0; node = &nodes[node->parent]) {
        pays = htb_priv_charge_one(tree, node, tokens, paid, now_ns);
        if (QOS_UNLIKELY(tree->joined.lease != NULL))
            tree->joined.lease[node - nodes].lent += pays && !paid ? tokens : 0;
        paid = pays;
    }
    if (QOS_UNLIKELY(!htb_priv_charge_one(tree, node, tokens, paid, now_ns))) /* what the root lends nobody asks */
        return htb_priv_take_long(tree, now_ns, id, tokens);
    tree->granted = qos_wrap_add(tree->granted, tokens);
    htb_priv_count(tree, id, tokens, tokens & qos_wrap_sub((uint64_t)own, 1));
    return QOS_OK;
}

/* Who needs nothing passes at any level. */
QOS_API enum qos_status htb_take(struct htb *tree, uint64_t now_ns, uint32_t id, uint64_t n)
{
    now_ns = htb_priv_now(tree, now_ns);
    if (QOS_LIKELY(tree->detours == 0 && qos_wrap_sub(n, 1) < QOS_TOKENS_MAX)) {
        id = htb_priv_resolve(tree, id, now_ns);
        if (QOS_LIKELY(tree->node[id].flags & HTB_PRIV_NOTED))
            return htb_priv_take_one(tree, id, n, now_ns);
    }
    return htb_priv_take_long(tree, now_ns, id, n);
}

QOS_PRIV int64_t htb_priv_most_debt(const struct htb *tree, uint32_t id, const struct htb_priv_bucket *b)
{
    const uint64_t debt_ns = htb_priv_part_ns(tree, id, tree->set.debt_ns);
    return (int64_t)qos_min(qos_sat_mul(b->rate, debt_ns), QOS_TOKENS_MAX * (uint64_t)QOS_SUBTOKENS);
}

/* htb_force for a resolved class; *payer gets who pays. The caller places the class again. */
QOS_PRIV_NOINLINE enum qos_status htb_priv_force(struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n,
                                                 uint32_t *payer)
{
    bool owes = false;
    uint32_t at, r;
    *payer = QOS_NONE;
    for (at = id; at != QOS_NONE; at = tree->node[at].parent) {
        const bool borrows = *payer == QOS_NONE; /* limits count up to the payer, as for any other request */
        bool pays = true;
        for (r = 0; r < tree->resources; r++)
            pays = pays && (n[r] == 0 || htb_priv_pair_of(tree, at, r)->rate.rate != 0);
        if (borrows && (pays || at == tree->classes)) /* without a part of its rate here it owes too much already */
            *payer = at;
        htb_priv_refill(tree, at, now_ns);
        for (r = 0; r < tree->resources; r++) {
            const struct htb_priv_pair *p = htb_priv_pair_of(tree, at, r);
            if (n[r] == 0)
                continue;
            if (borrows && p->limit.rate != QOS_UNLIMITED && p->limit.level < -htb_priv_most_debt(tree, at, &p->limit))
                owes = true;
            if (at == *payer && p->rate.level < -htb_priv_most_debt(tree, at, &p->rate))
                owes = true;
            if (!borrows && p->rate.rate != 0 && p->rate.level < HTB_PRIV_FLOOR + (int64_t)n[r] * QOS_SUBTOKENS)
                owes = true; /* or the floor would cut off debt */
        }
    }
    if (owes) { /* it has to wait, too: a joined tree may have no part of the rates that pay it */
        htb_priv_ask(tree, id, QOS_NONE, n);
        return QOS_EDEBT;
    }
    htb_priv_charge(tree, id, *payer, n, htb_priv_nothing, now_ns);
    return QOS_OK;
}

QOS_API enum qos_status htb_force(struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n)
{
    enum qos_status status;
    uint32_t payer;
    if (!htb_priv_in_range(tree, n))
        return QOS_ERANGE;
    now_ns = htb_priv_now(tree, now_ns);
    id = htb_priv_resolve(tree, id, now_ns);
    status = htb_priv_force(tree, now_ns, id, n, &payer);
    if (status == QOS_OK && tree->queued)
        htb_priv_place_up(tree, id, true, now_ns);
    return status;
}

QOS_API uint64_t htb_next_ns_all(const struct htb *tree, uint64_t now_ns, uint32_t id, const uint64_t *n)
{
    const uint64_t at_ns = qos_max(now_ns, tree->now_ns);
    uint64_t send_ns;
    if (!htb_priv_in_range(tree, n))
        return QOS_NEVER;
    id = htb_priv_resolve(tree, id, at_ns);
    send_ns = htb_priv_told_ns(tree, id, n, htb_priv_way_of(tree, id, n, true, at_ns).send_ns);
    if ((tree->node[id].flags & HTB_PRIV_EXPIRES) && send_ns >= tree->cls[id].u.leaf.expires_ns) {
        send_ns = qos_max(at_ns, tree->cls[id].u.leaf.expires_ns); /* it is best effort by then */
        send_ns = htb_priv_way_of(tree, HTB_BEST_EFFORT, n, true, send_ns).send_ns;
        send_ns = htb_priv_told_ns(tree, HTB_BEST_EFFORT, n, send_ns);
    }
    send_ns = htb_priv_exchanged_ns(tree, send_ns, at_ns);
    return send_ns == at_ns ? now_ns : send_ns;
}

QOS_API uint64_t htb_next_ns(const struct htb *tree, uint64_t now_ns, uint32_t id, uint64_t n)
{
    uint64_t all[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    all[0] = n;
    return htb_next_ns_all(tree, now_ns, id, all);
}

/* ==== chapter: maximizer ===========================================================================================
 *
 * The bandwidth maximizer (Section 5.5). The device always sustains the configured rate G, and often does more (A).
 *
 *     scenario   demand is capped by   what happens
 *     1          neither G nor A       nothing is throttled; the rate stays
 *     2          A < G                 the device is the bound; the rate stays
 *     3          G < A                 the rate of the root rises by 1/maximize_step per interval
 *     any        a class misses its rate   the rate falls by half of what it is above G, at least by 1/maximize_step,
 *                                      but not below G. Above 7/8 of what it was above G it rises at one look of 8
 *
 * Admission always uses G. With the defaults the rate takes at least 2.3 s to double. A class with few requests
 * outstanding, beside one that has dispatch_max of them, may miss a part of its rate while the rate is above what the
 * device does: in the mean up to a quarter more than without the maximizer, where it misses some if A is about G.
 *
 * G caps if at two looks in a row the root was empty while demand waited, and at least 7/8 of the root's rate was
 * granted since the look before: of several resources that counts as time, of each request the longest (as in rings).
 * A class misses its rate if something of it was queued or outstanding for 7/8 of the time since the last look, and is
 * now, and its bucket is full; not if it has latency_ns by flight. You may add your own measurement (latency,
 * completions).
 *
 * Reference
 *   J. C. Wu, S. A. Brandt: The Design and Implementation of AQuA: an Adaptive Quality of Service Aware Object-Based
 *   Storage Device, MSST 2006. */

/* Has a class asked for nothing for an eighth of the time since the last look, or a group at that look? The next look
 * begins. */
QOS_PRIV bool htb_priv_asked_less(struct htb *tree, uint32_t id, uint64_t elapsed_ns, bool asks)
{
    const unsigned flags = tree->node[id].flags;
    const uint64_t begun_ns = flags & HTB_PRIV_RESTS ? tree->now_ns : 0;
    uint64_t *rested_ns = &tree->cls[id].u.leaf.rested_ns, ns;
    if (flags & HTB_PRIV_GROUP) {
        htb_priv_mark(tree, id, HTB_PRIV_RESTED, !asks);
        return (flags & HTB_PRIV_RESTED) != 0;
    }
    if (htb_priv_has_turns(tree, id))
        return true;
    ns = qos_wrap_add(*rested_ns, begun_ns);
    *rested_ns = qos_wrap_sub(0, begun_ns);
    return ns > elapsed_ns / 8;
}

/* Has the node a rate, and are its rate buckets full? */
QOS_PRIV bool htb_priv_is_full(const struct htb *tree, uint32_t id)
{
    const struct htb_priv_pair *p;
    bool has = false;
    uint32_t r = 0;
    for (p = &tree->node[id].pair; p; p = htb_priv_next_pair(tree, id, &r)) {
        if (p->rate.rate != 0 && p->rate.level < p->rate.depth)
            return false;
        has = has || p->rate.rate != 0;
    }
    return has;
}

/* Does a class or group get less than its rate although it asked for more? */
QOS_PRIV bool htb_priv_misses_rate(struct htb *tree, uint64_t elapsed_ns)
{
    bool misses = false;
    uint32_t id;
    for (id = 0; id < tree->classes; id++) {
        const struct htb_priv_node *node = &tree->node[id];
        const struct htb_priv_class *c = &tree->cls[id];
        const bool asks =
            (node->flags & HTB_PRIV_OWN) || (!(node->flags & HTB_PRIV_GROUP) && c->u.leaf.outstanding != 0);
        if (!(node->flags & HTB_PRIV_USED))
            continue;
        htb_priv_refill(tree, id, tree->now_ns);
        if (!htb_priv_asked_less(tree, id, elapsed_ns, asks) && asks && htb_priv_is_full(tree, id))
            misses = true;
    }
    return misses;
}

/* Root rate of resource r, one step up or down. */
QOS_PRIV uint64_t htb_priv_step(const struct htb *tree, uint32_t r, bool up)
{
    uint64_t rate = htb_priv_pair_of(tree, tree->classes, r)->rate.rate,
             step = qos_max(rate / tree->set.maximize_step, 1);
    const uint64_t base = tree->set.rate_per_s[r];
    if (up)
        return qos_min(rate + step, r == 0 ? tree->set.maximize_rate_max : QOS_RATE_MAX);
    return qos_max(qos_sat_sub(rate, qos_max(step, (rate - base) / 2)), base);
}

QOS_API enum htb_scenario htb_maximize(struct htb *tree, uint64_t now_ns, bool violated)
{
    uint64_t elapsed_ns, rates[HTB_RESOURCES_MAX];
    now_ns = htb_priv_now(tree, now_ns);
    elapsed_ns = qos_elapsed_ns(tree->maximize.last_ns, now_ns);
    if (elapsed_ns >= tree->set.maximize_interval_ns && !tree->joined.lease) {
        uint64_t rate = tree->node[tree->classes].pair.rate.rate, base = tree->set.rate_per_s[0];
        uint64_t earned = qos_mul_div_floor(rate, elapsed_ns, tree->resources > 1 ? base : QOS_NS_PER_S);
        uint64_t granted = qos_wrap_sub(tree->granted, tree->maximize.granted);
        bool broken = htb_priv_misses_rate(tree, elapsed_ns) || violated;
        bool starved = tree->maximize.starved && granted >= earned - earned / 8;
        bool capped = starved && tree->maximize.was_starved;
        uint32_t r;
        if (broken && (tree->scenario == HTB_UNCAPPED || tree->scenario == HTB_CAPPED))
            tree->maximize.slow_from = rate - (rate - base) / 8;
        tree->scenario = broken ? capped ? HTB_CAPPED_AND_BROKEN : HTB_BROKEN : capped ? HTB_CAPPED : HTB_UNCAPPED;
        tree->maximize.starved = false;
        tree->maximize.was_starved = starved;
        tree->maximize.granted = tree->granted;
        tree->maximize.last_ns = now_ns;
        if (broken ||
            (capped && (htb_priv_step(tree, 0, true) <= tree->maximize.slow_from || ++tree->maximize.looks % 8 == 0))) {
            bool moves = false;
            for (r = 0; r < tree->resources; r++) {
                rates[r] = htb_priv_step(tree, r, !broken);
                moves = moves || rates[r] != htb_priv_rate_of(tree, tree->classes, r);
            }
            if (moves)
                htb_priv_set_root(tree, rates, now_ns);
        }
    }
    return tree->scenario;
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_HTB_H */
