/* htb.h - hierarchical token buckets, bandwidth maximizer and ODIS queues      SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   One disk, many tenants. Each is promised a rate; none may take what another was promised; what nobody uses
 *   must not be wasted. AQuA (Wu and Brandt, MSST 2006) gives every class of requests a token bucket that fills at
 *   its reserved rate, and the disk as a whole a root bucket. A request goes when its class has tokens, or
 *   else when the root has tokens that the others leave. This header is that scheduler, for trees of any depth.
 *
 *   It is used in one of two ways:
 *     gate      htb_take() says yes or no; the queues are yours.
 *     queues    htb_submit(), htb_dispatch(), htb_complete(): the paper's ODIS, with a queue for each class and one
 *               dispatch queue in elevator order.
 *
 * SYNOPSIS
 *
 *     #include "htb.h"
 *
 *     static unsigned char memory[16384] __attribute__((aligned(64)));
 *     static struct htb_config config; // zero means default, everywhere
 *     static struct htb_class gold;
 *
 *     int main(void)
 *     {
 *         struct htb tree;
 *         uint64_t fits;
 *
 *         config.classes = 4;                  // class ids 0..3; 0 is best effort
 *         config.rate_per_s[0] = 40000000;     // what the disk can surely do: 40 MB/s, a token is a byte
 *         if (htb_init(&tree, memory, sizeof memory, &config) != QOS_OK)
 *             return 1; // htb_config_error(&config) says why, htb_memsize(&config) how much memory
 *
 *         gold.rate_per_s[0] = 15000000;       // 15 MB/s for sure, more when others leave it
 *         gold.limit_per_s[0] = 30000000;      // never more than 30 MB/s
 *         if (htb_reserve(&tree, 1, &gold, 0, &fits) != QOS_OK)
 *             return 1;                        // fits: the rate that could still be admitted
 *
 *         if (htb_take(&tree, 1, 4096, 1000000000) == QOS_OK) {
 *             // send 4096 bytes of class 1 now
 *         } else {
 *             // sleep until htb_next_ns(&tree, 1, 4096, now)
 *         }
 *         return 0;
 *     }
 *
 * CONTRACT
 *
 *   That of qos.h. The tree has one owner: calls on it must not overlap, so give each device its tree and its thread,
 *   or take your own lock around it; N threads with a tree each may split a rate N ways. Exception: htb_stats may be
 *   called by any thread at any time. Memory holds pointers to the requests in the queues: it is private to a process.
 *   A gate call ends after O(depth) steps while the queues are empty, any other after O(depth * (depth + log classes))
 *   for each request that it moves and each node that was waiting until now. htb_maximize, htb_set_root_rate and a
 *   change of a group look at every node.
 *
 * WORKED EXAMPLE (Figure 9 of the paper)
 *
 *   Root 40 MB/s; classes of 5, 15 and 20 MB/s; each writes 512 KB requests as fast as it may; a new one starts every
 *   30 s. 1 token = 1 KB.
 *
 *       time       class 1    class 2    class 3    why
 *       0-30 s     40 MB/s                          5 of its own, 35 borrowed from the root
 *       30-60 s    15         25                    own 5 and 15; the root's other 20 in equal shares (weights 1:1)
 *       60-90 s    5          15         20         the root has nothing to lend: exactly the reservations
 *
 * ALGORITHM (Sections 5.1 to 5.5; ODIS = Object Disk I/O Scheduler)
 *
 *   Buckets     Each node has a rate bucket, and a limit bucket if it has a limit. Both are exact (see qos.h). A bucket
 *               holds rate * burst_ns + request_max_tokens; it starts empty, or with the debt that the last holder of
 *               its id has left, so that a class that is released and reserved again gains nothing. A request of n
 *               tokens passes a bucket that holds min(n, depth): a request larger than the bucket leaves a debt that
 *               is paid off before anything else passes.
 *   Take        If the limit of the class passes and its own rate bucket passes, it uses its own tokens (5.3: "every
 *               class is always able to freely request up to its reservation"). Otherwise it borrows from the nearest
 *               ancestor whose rate and limit buckets pass, provided that the limits on the way pass too.
 *               Own:      charges the rate buckets of the class and of all ancestors.
 *               Borrowed: charges the rate buckets from the lender upwards; the class keeps what it had.
 *               Limit buckets are charged all the way up in both cases.
 *   Queues      (5.2) A class with a queue is in two lists: the row of nodes whose own tokens pass their next request,
 *               and the ring of its parent's borrowers. htb_dispatch serves the row of the classes first, then the
 *               lenders, deepest first. A lender serves its ring by deficit round robin in proportion to the weights.
 *               Whoever has the turn keeps it until it was served: a large request is not starved by small ones.
 *               Nodes that wait for tokens stand in a heap by the time when they can be served.
 *   Dispatch    (5.2) What was moved waits in one queue in elevator order (one direction, then back to the lowest
 *               offset) or first in, first out. At most dispatch_max requests are in it or at the device, urgent
 *               ones apart. A request is overtaken by at most bypass_max + dispatch_max others.
 *   Maximizer   (5.5) htb_maximize raises the root's rate while it is what holds the demand back, and lowers it
 *               when an assurance breaks. Never below the configured rate, which alone counts in admission.
 *
 *   Bounds. For a class with limit L, burst B ns and requests of at most n tokens, in every window of w seconds:
 *       granted <= L * (w + B / 10^9) + request_max_tokens + n     (the last n only if it exceeds the depth)
 *   For a group the same plus the depths of the buckets of its classes, as a limit of a group stops borrowing only.
 *   Worst wait of a class that keeps within its rate R, at the gate: (depth + n) / R; with queues, add the service
 *   time of dispatch_max + bypass_max requests. That of a borrower is unbounded: nothing was promised.
 *
 * WHERE WE DIFFER FROM THE PAPER
 *
 *   - Any depth instead of two levels; limits; weights for the surplus (the paper: first come, first served).
 *   - One owner and a heap instead of a thread for each queue: no lock, no polling, same result on each run.
 *   - "Capped by G" (5.5) is not defined there. Here: at two looks in a row, the root was empty while demand waited,
 *     and at least 7/8 of G was granted since the look before.
 *   - The paper lowers G only when capped by G. A G that was raised above what the disk achieves is no longer what
 *     caps, and would stay up for ever. Here a broken assurance lowers it whatever caps.
 *   - A broken assurance is a class that had waiting requests from one look to the next, and was granted less than its
 *     rate in that time (less 1/16, first resource). Your own measurement (latency, completions) can be added.
 *   - Best effort's minimum counts in admission like any reservation and may be nothing (it is in Figures 8 to 10).
 *
 * TUNABLES (struct htb_config, struct htb_class)
 *
 *   burst_ns            10 ms: at 40 MB/s a burst of 400 KB, about one seek's worth of data. Longer bursts absorb
 *                       later polls; shorter ones make a smoother stream.
 *   request_max_tokens  0. Set it to the largest usual request: then a caller that is up to burst_ns late loses
 *                       no tokens, even if its requests are larger than its burst.
 *   dispatch_max        64, device_max 32: what a disk or SSD needs to be busy, and no more, since what is dispatched
 *                       cannot be taken back when a class with tokens arrives.
 *   bypass_max          64: a full sweep of the default dispatch queue.
 *   debt_ns             1 s: how far ahead of its rate htb_force may run.
 *   maximize_interval_ns 100 ms, maximize_step 1/32: the root's rate doubles in 2.3 s at the fastest.
 *
 * REFERENCES
 *
 *   J. C. Wu, S. A. Brandt: The Design and Implementation of AQuA: an Adaptive Quality of Service Aware Object-Based
 *   Storage Device, MSST 2006.
 *   S. Floyd, V. Jacobson: Link-sharing and resource management models for packet networks, ToN 3(4), 1995.
 *   M. Shreedhar, G. Varghese: Efficient fair queueing using deficit round robin, SIGCOMM 1995.
 */
#ifndef QOS_HTB_H
#define QOS_HTB_H

#include "qos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants and types ------------------------------------------------------------------------- */

#define HTB_RESOURCES_MAX 4       /* bytes and operations, reads and writes */
#define HTB_CLASSES_MAX 16777216u /* ids in one tree */
#define HTB_DISPATCH_MAX 65536u   /* requests dispatched at once */
#define HTB_WEIGHT_MAX 1000000u
#define HTB_BURST_MAX_NS UINT64_C(1000000000000) /* 1,000 s */
#define HTB_BEST_EFFORT 0u                       /* the class of everybody without a class */
#define HTB_ROOT UINT32_MAX                      /* the root, as a parent or in htb_stats */
#define HTB_NONE UINT64_MAX                      /* as a rate: nothing at all; as a limit: no limit */

enum htb_order {
    HTB_ELEVATOR = 0, /* ascending offsets, then back to the lowest: for disks */
    HTB_FIFO = 1      /* first in, first out: for flash */
};

struct htb_config {
    uint32_t classes;                              /* ids 0..classes-1, groups included; 0: 16; at least 1 */
    uint32_t resources;                            /* that a take names; 0: 1; at most HTB_RESOURCES_MAX */
    uint64_t rate_per_s[HTB_RESOURCES_MAX];        /* root: what the device surely does; 1..QOS_RATE_MAX */
    uint64_t best_effort_per_s[HTB_RESOURCES_MAX]; /* minimum of class 0; 0: 1 % of the root; or HTB_NONE */
    uint64_t burst_ns;                             /* of every node without its own; 0: 10 ms; 1..HTB_BURST_MAX_NS */
    uint64_t request_max_tokens;                   /* added to every depth; 0..QOS_TOKENS_MAX / 4 */
    uint64_t debt_ns;                              /* bound of htb_force; 0: 1 s; 1..HTB_BURST_MAX_NS */
    uint64_t start_ns;                             /* the time now */
    uint32_t depth_max;                            /* levels below the root; 0: 8; at most 4096 */
    enum htb_order order;                          /* of the dispatch queue */
    uint32_t dispatch_max;                         /* dispatched and not completed; 0: 64 */
    uint32_t device_max;                           /* of them handed out; 0: min(32, dispatch_max) */
    uint32_t bypass_max;                           /* 0: 64; at least 1 */
    uint32_t maximize_step;                        /* the rate changes by 1/step; 0: 32; 2..1024 */
    uint64_t maximize_interval_ns;                 /* 0: 100 ms; at least 1 us */
    uint64_t maximize_rate_max;                    /* first resource; 0: QOS_RATE_MAX */
};

struct htb_class {
    uint32_t parent;                         /* a group; 0: the root */
    uint32_t weight;                         /* share of the parent's surplus; 0: 1; 1..HTB_WEIGHT_MAX */
    uint64_t rate_per_s[HTB_RESOURCES_MAX];  /* reservation; 0: none; or HTB_NONE; at most QOS_RATE_MAX */
    uint64_t limit_per_s[HTB_RESOURCES_MAX]; /* 0: none; or HTB_NONE; at least the rate */
    uint64_t burst_ns;                       /* 0: the tree's; rounded up to a microsecond */
    uint64_t expires_ns;                     /* time of the automatic release; 0: never; not for groups */
    bool group;                              /* has classes below it instead of requests */
};

enum htb_request_state { HTB_IDLE = 0, HTB_QUEUED = 1, HTB_DISPATCHED = 2, HTB_AT_DEVICE = 3 };

/* A request in the queues: yours, inside your own struct. Set the first part, zero the second once. */
struct htb_request {
    uint32_t class_id;                  /* unknown ids go to best effort */
    bool urgent;                        /* goes at once, on debt (htb_force) */
    uint64_t tokens[HTB_RESOURCES_MAX]; /* cost in each resource, 0..QOS_TOKENS_MAX */
    uint64_t offset;                    /* position on the device, for the elevator */

    enum htb_request_state state; /* private from here on */
    uint32_t slot;
    uint64_t submitted_ns;
    struct htb_request *next, *prev;
};

/* What the maximizer saw at its last look. */
enum htb_scenario {
    HTB_UNCAPPED = 0,          /* 5.5, scenarios 1 and 2: demand or the device is the bound */
    HTB_CAPPED = 1,            /* scenario 3: the root's rate is the bound; raised */
    HTB_CAPPED_AND_BROKEN = 2, /* the root's rate is the bound, and an assurance is broken; lowered */
    HTB_BROKEN = 3             /* an assurance is broken; lowered */
};

/* A bucket in sub-tokens. Without a reservation the rate bucket has rate 0 and the lowest level, so that it never
 * passes and a charge does not move it; its depth is then the debt that was left, as a level (0: none). Without a limit
 * the limit bucket has the rate HTB_NONE, and its level is the debt that was left. */
struct htb_priv_bucket {
    int64_t level, depth;
    uint64_t rate;
};
struct htb_priv_pair {
    struct htb_priv_bucket rate, limit;
};

/* What every take touches: one cache line. */
struct htb_priv_node {
    struct htb_priv_pair pair; /* of the first resource */
    uint64_t last_ns;          /* of the last refill, all resources */
    uint32_t parent;           /* index, or HTB_PRIV_NIL above the root */
    uint16_t depth;            /* levels below the root */
    uint16_t flags;            /* HTB_PRIV_USED ... */
};
QOS_STATIC_ASSERT(sizeof(struct htb_priv_node) == QOS_CACHE_LINE, "a node is one cache line");

struct htb_priv_link {
    uint32_t next, prev;
};

struct htb_priv_group {
    uint32_t ring;     /* the child whose turn it is to borrow, or HTB_PRIV_NIL */
    uint32_t children; /* how many are reserved */
};

/* The rest of a node. */
struct htb_priv_class {
    qos_counter_t granted, borrowed, refused, waited, debt;
    union {
        struct htb_request *tail;    /* class: ring of waiting requests, last one */
        struct htb_priv_group group; /* group: its children */
    } u;
    uint64_t mark;       /* tokens granted and left at the maximizer's last look (wraps) */
    int64_t deficit;     /* tokens that it may still use in this round of its parent's ring */
    uint64_t expires_ns; /* class: QOS_NEVER if it stays */
    uint64_t sum_per_s;  /* group: rates of its children, first resource */
    uint32_t weight, burst_us;
    struct htb_priv_link link[2]; /* HTB_PRIV_ROW, HTB_PRIV_RING */
};

/* A place in the dispatch queue. */
struct htb_priv_slot {
    struct htb_request *request;
    uint64_t entered;          /* handed_out when it came */
    struct htb_priv_link link; /* by age; next also chains the free ones */
};

/* Indexed 4-ary min-heap of (key, id); ids 0..capacity - 1, each at most once. Equal keys come out in the
 * order of their ids. */
struct htb_priv_heap_entry {
    uint64_t key;
    uint32_t id;
    uint32_t unused_zero;
};
struct htb_priv_heap {
    struct htb_priv_heap_entry *entry; /* capacity entries */
    uint32_t *pos;                     /* capacity positions: where id stands, or HTB_PRIV_NIL */
    uint32_t count, capacity;
};

/* The handle; the fields are private. */
struct htb {
    struct htb_priv_node *node; /* classes + 1: the last one is the root */
    struct htb_priv_class *cls;
    struct htb_priv_pair *more;    /* buckets of the resources after the first */
    uint64_t *more_sum;            /* sums of the children's rates in them */
    struct htb_priv_slot *slot;    /* of the dispatch queue */
    uint32_t *row;                 /* heads of the lists of nodes that can be served from their own tokens */
    struct htb_priv_heap event;    /* nodes that wait, by time */
    struct htb_priv_heap sweep[2]; /* dispatch slots by offset: this sweep, the next one */
    struct htb_request *urgent;    /* ring, last one; goes before all others */
    uint32_t classes, resources, depth_max, dispatch_max, device_max, bypass_max, maximize_step;
    uint32_t free_slot, oldest_slot, newest_slot; /* HTB_PRIV_NIL: none */
    uint32_t waiting, at_device;                  /* requests in the dispatch queue; handed out */
    uint32_t this_sweep;                          /* index into sweep */
    uint64_t detours;                             /* htb_take goes the long way: queued + limits + more resources */
    enum htb_order order;
    enum htb_scenario scenario;
    bool starved_at_root; /* since the last look: demand waited for root tokens */
    bool was_starved;     /* so it was at the look before */
    uint64_t burst_ns, debt_ns, request_max_tokens, head_offset, handed_out, queued, quantum;
    uint64_t base_per_s[HTB_RESOURCES_MAX]; /* the paper's original G, which admission uses */
    uint64_t maximize_interval_ns, maximize_last_ns, maximize_granted, maximize_rate_max;
    uint64_t ended_granted; /* by classes that are no more */
};

/* ---- API ------------------------------------------------------------------------------------------- */

/* NULL if the configuration is valid, else a sentence that says what is wrong with it. */
QOS_API const char *htb_config_error(const struct htb_config *config);
/* Bytes for htb_init, at an alignment of 64; 0 if the configuration is invalid. */
QOS_API size_t htb_memsize(const struct htb_config *config);
/* QOS_EINVAL (NULL), QOS_ERANGE (htb_config_error says what), QOS_EALIGN, QOS_EMEMORY. Buckets start empty. */
QOS_API QOS_NODISCARD enum qos_status htb_init(struct htb *h, void *mem, size_t size_bytes,
                                               const struct htb_config *config);

/* Reservation with admission control (5.1: linear, additive, at every level: the rates of the children may not exceed
 * that of their parent; for the root the configured one). fits (may be NULL) gets, on QOS_OK and QOS_EADMISSION, the
 * largest rate that could be admitted here, for each resource.
 * QOS_ENOENT: id >= classes, or no such parent. QOS_EEXIST. QOS_EINVAL: id 0, parent not a group, or an expiring group.
 * QOS_ERANGE: a number, or a time of expiry that has passed. QOS_EFULL: deeper than depth_max. O(depth + log classes).
 */
QOS_API QOS_NODISCARD enum qos_status htb_reserve(struct htb *h, uint32_t id, const struct htb_class *c,
                                                  uint64_t now_ns, uint64_t *fits);
/* Live change of rates, limits, weight, burst and expiry. Tokens earned at the old rate stay, up to the new
 * burst; debt stays in tokens. c->parent and c->group must be what they were (QOS_EINVAL). Id 0 may be changed too. A
 * rate below the sum of the children's: QOS_EADMISSION, fits gets that sum as the least. Other errors as above. */
QOS_API QOS_NODISCARD enum qos_status htb_change(struct htb *h, uint32_t id, const struct htb_class *c, uint64_t now_ns,
                                                 uint64_t *fits);
/* Ends a reservation. Requests in its queue go to best effort, in their order. QOS_EBUSY: a group with children. */
QOS_API QOS_NODISCARD enum qos_status htb_release(struct htb *h, uint32_t id, uint64_t now_ns);
/* What id was reserved with (rates of HTB_NONE and limits of HTB_NONE spelled out). QOS_ENOENT. */
QOS_API QOS_NODISCARD enum qos_status htb_get(const struct htb *h, uint32_t id, struct htb_class *c);
/* New configured rate of the root, for each resource; the maximizer starts again from it. QOS_EADMISSION: below
 * the sum of the reservations. */
QOS_API QOS_NODISCARD enum qos_status htb_set_root_rate(struct htb *h, const uint64_t *rate_per_s, uint64_t now_ns);

/* Gate. QOS_OK: n tokens of the first resource taken, send the request. QOS_EAGAIN: nothing taken; htb_next_ns says
 * when. QOS_ERANGE: n > QOS_TOKENS_MAX. Unknown ids, groups and expired classes are best effort. O(depth). */
QOS_API QOS_NODISCARD enum qos_status htb_take(struct htb *h, uint32_t id, uint64_t n, uint64_t now_ns);
/* The same over all resources of the tree, all or none; n[resources]. */
QOS_API QOS_NODISCARD enum qos_status htb_take_all(struct htb *h, uint32_t id, const uint64_t *n, uint64_t now_ns);
/* For what must not wait (flush, journal, metadata): takes without asking, on debt. QOS_EDEBT, nothing taken, while
 * the class (or, if it has no rate, the nearest ancestor with one) owes more than rate * debt_ns; so a debt stays below
 * that plus n. n[resources]. O(depth). */
QOS_API QOS_NODISCARD enum qos_status htb_force(struct htb *h, uint32_t id, const uint64_t *n, uint64_t now_ns);
/* Exact first time at which htb_take(id, n) succeeds if nobody else takes; now_ns if at once, QOS_NEVER if never. */
QOS_API uint64_t htb_next_ns(const struct htb *h, uint32_t id, uint64_t n, uint64_t now_ns);
QOS_API uint64_t htb_next_ns_all(const struct htb *h, uint32_t id, const uint64_t *n, uint64_t now_ns);

/* Queues. submit: the request waits in the queue of its class, and stays yours to keep alive until dispatched and
 * completed. QOS_ERANGE: tokens; QOS_EBUSY: it is queued already; QOS_EDEBT: urgent, and see htb_force (then submit it
 * as not urgent, or wait). O(depth * log classes) at most. */
QOS_API QOS_NODISCARD enum qos_status htb_submit(struct htb *h, struct htb_request *r, uint64_t now_ns);
/* The next request to send to the device, or NULL: none now; htb_dispatch_next_ns says when. */
QOS_API struct htb_request *htb_dispatch(struct htb *h, uint64_t now_ns);
/* Exact time of the next event: now_ns if htb_dispatch has a request, else the first time at which one can be served or
 * a reservation expires, if nothing else happens; QOS_NEVER if only a submit or a complete can bring one. Never late.
 * Early only if a class comes off its limit to find a larger request ahead of its own: then one call finds nothing. */
QOS_API uint64_t htb_dispatch_next_ns(struct htb *h, uint64_t now_ns);
/* The device is done with a request that htb_dispatch gave, well or not. QOS_EINVAL: it did not. */
QOS_API QOS_NODISCARD enum qos_status htb_complete(struct htb *h, struct htb_request *r);
/* Takes back a request that was not handed out yet. Tokens already taken for it are not given back. QOS_EINVAL: not
 * here. */
QOS_API QOS_NODISCARD enum qos_status htb_cancel(struct htb *h, struct htb_request *r, uint64_t now_ns);

/* Bandwidth maximizer (5.5): call it often; it looks once an interval. violated: true if you saw an assurance break
 * by your own measurement. Returns what it saw at its last look in *scenario (may be NULL). O(classes) a look. */
QOS_API void htb_maximize(struct htb *h, bool violated, uint64_t now_ns, enum htb_scenario *scenario);
/* The root's rate now: at least the configured one. */
QOS_API uint64_t htb_root_rate(const struct htb *h);

/* Counters of a class since it was reserved, in the first resource; debt is that after the last take. They stay when
 * it ends, until its id is reserved again. Zero for an unknown id. Any thread at any time, wait-free. */
QOS_API void htb_stats(const struct htb *h, uint32_t id, struct qos_stats *out);
/* Sums over the classes of a group, or of the whole tree for HTB_ROOT. Owner only; O(classes * depth). */
QOS_API void htb_stats_below(const struct htb *h, uint32_t id, struct qos_stats *out);

/* ---- implementation ------------------------------------------------------------------------------ */

#ifndef QOS_DECLARE_ONLY

#define HTB_PRIV_NIL UINT32_MAX
#define HTB_PRIV_ROW 0
#define HTB_PRIV_RING 1

#define HTB_PRIV_FLOOR (-2 * (int64_t)QOS_TOKENS_MAX * QOS_SUBTOKENS) /* lowest level, see qos_level_charge */

#define HTB_PRIV_USED 1u
#define HTB_PRIV_GROUP 2u
#define HTB_PRIV_LIMITED 4u /* a limit in any resource */
#define HTB_PRIV_EXPIRES 8u
#define HTB_PRIV_IN_ROW 16u  /* its own tokens pass its next request */
#define HTB_PRIV_IN_RING 32u /* its limit passes its next request: it may borrow */
#define HTB_PRIV_FORMER 128u /* was reserved before: its buckets know what it owes */
#define HTB_PRIV_BACKLOG 64u /* has had a waiting request ever since the maximizer's last look */

/* -- an indexed heap; O(log n) each */

QOS_API bool htb_priv_heap_less(const struct htb_priv_heap_entry *a, const struct htb_priv_heap_entry *b)
{
    return a->key != b->key ? a->key < b->key : a->id < b->id;
}

QOS_API void htb_priv_heap_up(struct htb_priv_heap *h, uint32_t i, struct htb_priv_heap_entry e)
{
    while (i > 0) {
        uint32_t up = (i - 1) / 4;
        if (!htb_priv_heap_less(&e, &h->entry[up]))
            break;
        h->entry[i] = h->entry[up];
        h->pos[h->entry[i].id] = i;
        i = up;
    }
    h->entry[i] = e;
    h->pos[e.id] = i;
}

QOS_API void htb_priv_heap_down(struct htb_priv_heap *h, uint32_t i, struct htb_priv_heap_entry e)
{
    for (;;) {
        uint64_t first = (uint64_t)i * 4 + 1, last = qos_min(first + 4, h->count), c;
        uint32_t least;
        if (first >= h->count)
            break;
        least = (uint32_t)first;
        for (c = first + 1; c < last; c++)
            if (htb_priv_heap_less(&h->entry[c], &h->entry[least]))
                least = (uint32_t)c;
        if (!htb_priv_heap_less(&h->entry[least], &e))
            break;
        h->entry[i] = h->entry[least];
        h->pos[h->entry[i].id] = i;
        i = least;
    }
    h->entry[i] = e;
    h->pos[e.id] = i;
}

QOS_API void htb_priv_heap_init(struct htb_priv_heap *h, struct htb_priv_heap_entry *entry, uint32_t *pos,
                                uint32_t capacity)
{
    uint32_t i;
    h->entry = entry;
    h->pos = pos;
    h->count = 0;
    h->capacity = capacity;
    for (i = 0; i < capacity; i++)
        pos[i] = HTB_PRIV_NIL;
}

/* Inserts or moves. */
QOS_API void htb_priv_heap_set(struct htb_priv_heap *h, uint32_t id, uint64_t key)
{
    struct htb_priv_heap_entry e;
    uint32_t i;
    QOS_ASSERT(id < h->capacity);
    i = h->pos[id];
    e.key = key;
    e.id = id;
    e.unused_zero = 0;
    if (i == HTB_PRIV_NIL)
        htb_priv_heap_up(h, h->count++, e);
    else if (key < h->entry[i].key)
        htb_priv_heap_up(h, i, e);
    else
        htb_priv_heap_down(h, i, e);
}

/* An id that is not there changes nothing. */
QOS_API void htb_priv_heap_remove(struct htb_priv_heap *h, uint32_t id)
{
    struct htb_priv_heap_entry last;
    uint32_t i = h->pos[id];
    if (i >= h->count) /* HTB_PRIV_NIL is above every count */
        return;
    h->pos[id] = HTB_PRIV_NIL;
    last = h->entry[--h->count];
    if (i == h->count)
        return;
    if (i > 0 && htb_priv_heap_less(&last, &h->entry[(i - 1) / 4]))
        htb_priv_heap_up(h, i, last);
    else
        htb_priv_heap_down(h, i, last);
}

/* QOS_NEVER if it is empty. */
QOS_API uint64_t htb_priv_heap_min_key(const struct htb_priv_heap *h)
{
    return h->count ? h->entry[0].key : QOS_NEVER;
}

/* HTB_PRIV_NIL if it is empty. */
QOS_API uint32_t htb_priv_heap_min_id(const struct htb_priv_heap *h)
{
    return h->count ? h->entry[0].id : HTB_PRIV_NIL;
}

/* -- configuration and memory */

/* 0 means `fallback`. */
QOS_API uint64_t htb_priv_or(uint64_t value, uint64_t fallback)
{
    return value ? value : fallback;
}

/* The configuration with its defaults spelled out. */
QOS_API struct htb_config htb_priv_defaults(const struct htb_config *config)
{
    struct htb_config c = *config;
    uint32_t r;
    c.classes = (uint32_t)htb_priv_or(c.classes, 16);
    c.resources = (uint32_t)htb_priv_or(c.resources, 1);
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        c.best_effort_per_s[r] = htb_priv_or(c.best_effort_per_s[r], c.rate_per_s[r] / 100);
        if (c.best_effort_per_s[r] == HTB_NONE)
            c.best_effort_per_s[r] = 0;
    }
    c.burst_ns = htb_priv_or(c.burst_ns, 10000000);
    c.debt_ns = htb_priv_or(c.debt_ns, QOS_NS_PER_S);
    c.depth_max = (uint32_t)htb_priv_or(c.depth_max, 8);
    c.dispatch_max = (uint32_t)htb_priv_or(c.dispatch_max, 64);
    c.device_max = (uint32_t)htb_priv_or(c.device_max, qos_min(32, c.dispatch_max));
    c.bypass_max = (uint32_t)htb_priv_or(c.bypass_max, 64);
    c.maximize_step = (uint32_t)htb_priv_or(c.maximize_step, 32);
    c.maximize_interval_ns = htb_priv_or(c.maximize_interval_ns, 100000000);
    c.maximize_rate_max = htb_priv_or(c.maximize_rate_max, QOS_RATE_MAX);
    return c;
}

QOS_API const char *htb_config_error(const struct htb_config *config)
{
    struct htb_config c;
    uint32_t r;
    if (!config)
        return "config is NULL";
    c = htb_priv_defaults(config);
    if (c.classes > HTB_CLASSES_MAX)
        return "classes: at most HTB_CLASSES_MAX";
    if (c.resources > HTB_RESOURCES_MAX)
        return "resources: at most HTB_RESOURCES_MAX";
    for (r = 0; r < c.resources; r++) {
        if (c.rate_per_s[r] == 0 || c.rate_per_s[r] > QOS_RATE_MAX)
            return "rate_per_s: what the device surely does, 1..QOS_RATE_MAX for each resource";
        if (c.best_effort_per_s[r] > c.rate_per_s[r])
            return "best_effort_per_s: at most rate_per_s, or HTB_NONE";
    }
    if (c.burst_ns > HTB_BURST_MAX_NS)
        return "burst_ns: at most HTB_BURST_MAX_NS";
    if (c.request_max_tokens > QOS_TOKENS_MAX / 4)
        return "request_max_tokens: at most QOS_TOKENS_MAX / 4";
    if (c.debt_ns > HTB_BURST_MAX_NS)
        return "debt_ns: at most HTB_BURST_MAX_NS";
    if (c.depth_max > 4096)
        return "depth_max: at most 4096";
    if (c.order != HTB_ELEVATOR && c.order != HTB_FIFO)
        return "order: HTB_ELEVATOR or HTB_FIFO";
    if (c.dispatch_max > HTB_DISPATCH_MAX)
        return "dispatch_max: at most HTB_DISPATCH_MAX";
    if (c.device_max > c.dispatch_max)
        return "device_max: at most dispatch_max";
    if (c.maximize_step < 2 || c.maximize_step > 1024)
        return "maximize_step: 2..1024";
    if (c.maximize_interval_ns < 1000)
        return "maximize_interval_ns: at least 1000";
    if (c.maximize_rate_max < c.rate_per_s[0] || c.maximize_rate_max > QOS_RATE_MAX)
        return "maximize_rate_max: between rate_per_s[0] and QOS_RATE_MAX";
    return NULL;
}

/* Where everything stands in the caller's memory; memsize and init both ask here. */
struct htb_priv_layout {
    struct qos_layout l;
    size_t node, cls, more, more_sum, slot, row, event, event_pos, sweep[2], sweep_pos[2];
};

QOS_API struct htb_priv_layout htb_priv_lay(const struct htb_config *c)
{
    struct htb_priv_layout o;
    size_t nodes = (size_t)c->classes + 1, extra = c->resources - 1u;
    int i;
    o.l.mem = NULL;
    o.l.size_bytes = 0;
    o.l.align = QOS_CACHE_LINE;
    o.l.overflow = false;
    o.node = qos_layout_add(&o.l, nodes, sizeof(struct htb_priv_node), QOS_CACHE_LINE);
    o.cls = qos_layout_add(&o.l, nodes, sizeof(struct htb_priv_class), 8);
    o.more = qos_layout_add(&o.l, nodes, extra * sizeof(struct htb_priv_pair), 8);
    o.more_sum = qos_layout_add(&o.l, nodes, extra * sizeof(uint64_t), 8);
    o.event = qos_layout_add(&o.l, nodes, sizeof(struct htb_priv_heap_entry), 8);
    o.slot = qos_layout_add(&o.l, c->dispatch_max, sizeof(struct htb_priv_slot), 8);
    for (i = 0; i < 2; i++)
        o.sweep[i] = qos_layout_add(&o.l, c->dispatch_max, sizeof(struct htb_priv_heap_entry), 8);
    o.event_pos = qos_layout_add(&o.l, nodes, sizeof(uint32_t), 4);
    for (i = 0; i < 2; i++)
        o.sweep_pos[i] = qos_layout_add(&o.l, c->dispatch_max, sizeof(uint32_t), 4);
    o.row = qos_layout_add(&o.l, (size_t)c->depth_max + 2, sizeof(uint32_t), 4);
    return o;
}

QOS_API size_t htb_memsize(const struct htb_config *config)
{
    struct htb_config c;
    struct htb_priv_layout o;
    if (htb_config_error(config))
        return 0;
    c = htb_priv_defaults(config);
    o = htb_priv_lay(&c);
    return qos_layout_size(&o.l);
}

/* -- buckets */

QOS_API struct htb_priv_pair *htb_priv_pair_of(const struct htb *h, uint32_t id, uint32_t r)
{
    return r == 0 ? &h->node[id].pair : &h->more[(size_t)id * (h->resources - 1) + r - 1];
}

QOS_API uint64_t *htb_priv_sum_of(const struct htb *h, uint32_t id, uint32_t r)
{
    return r == 0 ? &h->cls[id].sum_per_s : &h->more_sum[(size_t)id * (h->resources - 1) + r - 1];
}

/* rate * burst + the largest request, in sub-tokens. */
QOS_API int64_t htb_priv_depth(const struct htb *h, uint64_t rate_per_s, uint64_t burst_ns)
{
    uint64_t depth = qos_sat_add(qos_sat_mul(rate_per_s, burst_ns), h->request_max_tokens * (uint64_t)QOS_SUBTOKENS);
    return (int64_t)qos_min(depth, QOS_TOKENS_MAX * (uint64_t)QOS_SUBTOKENS);
}

QOS_API int64_t htb_priv_debt_of(int64_t level)
{
    return level < 0 ? level : 0;
}

/* A rate that begins, begins empty or with the debt that was left. */
QOS_API void htb_priv_set_rate(const struct htb *h, struct htb_priv_bucket *b, uint64_t rate_per_s, uint64_t burst_ns)
{
    int64_t level = b->rate == 0 ? b->depth : b->level;
    b->rate = rate_per_s;
    if (rate_per_s == 0) {
        b->depth = level <= HTB_PRIV_FLOOR ? HTB_PRIV_FLOOR + 1 : htb_priv_debt_of(level); /* above the level */
        b->level = HTB_PRIV_FLOOR;
    } else {
        b->depth = htb_priv_depth(h, rate_per_s, burst_ns);
        b->level = level < b->depth ? level : b->depth;
    }
}

/* A limit that begins, begins empty or with the debt that was left. */
QOS_API void htb_priv_set_limit(const struct htb *h, struct htb_priv_bucket *b, uint64_t limit_per_s, uint64_t burst_ns)
{
    if (limit_per_s != HTB_NONE) {
        htb_priv_set_rate(h, b, limit_per_s, burst_ns);
        return;
    }
    b->rate = HTB_NONE;
    b->level = htb_priv_debt_of(b->level);
    b->depth = 0;
}

QOS_API void htb_priv_refill_pair(struct htb_priv_pair *p, uint64_t elapsed_ns, bool limited)
{
    p->rate.level = qos_level_refill(p->rate.level, p->rate.depth, p->rate.rate, elapsed_ns);
    if (limited && p->limit.rate != HTB_NONE)
        p->limit.level = qos_level_refill(p->limit.level, p->limit.depth, p->limit.rate, elapsed_ns);
}

QOS_API void htb_priv_refill(const struct htb *h, uint32_t id, uint64_t now_ns)
{
    struct htb_priv_node *node = &h->node[id];
    uint64_t elapsed_ns;
    uint32_t r;
    if (now_ns <= node->last_ns)
        return;
    elapsed_ns = now_ns - node->last_ns;
    node->last_ns = now_ns;
    for (r = 0; r < h->resources; r++)
        htb_priv_refill_pair(htb_priv_pair_of(h, id, r), elapsed_ns, (node->flags & HTB_PRIV_LIMITED) != 0);
}

QOS_API bool htb_priv_limit_passes_one(const struct htb_priv_bucket *b, int64_t n_sub)
{
    return n_sub == 0 || b->rate == HTB_NONE || b->level >= qos_level_gate(b->depth, n_sub);
}

QOS_API bool htb_priv_rate_passes(const struct htb *h, uint32_t id, const int64_t *n_sub)
{
    uint32_t r;
    for (r = 0; r < h->resources; r++) {
        const struct htb_priv_bucket *b = &htb_priv_pair_of(h, id, r)->rate;
        if (n_sub[r] != 0 && b->level < qos_level_gate(b->depth, n_sub[r]))
            return false;
    }
    return true;
}

QOS_API bool htb_priv_limit_passes(const struct htb *h, uint32_t id, const int64_t *n_sub)
{
    uint32_t r;
    if (!(h->node[id].flags & HTB_PRIV_LIMITED))
        return true;
    for (r = 0; r < h->resources; r++)
        if (!htb_priv_limit_passes_one(&htb_priv_pair_of(h, id, r)->limit, n_sub[r]))
            return false;
    return true;
}

/* First time, not before now, at which bucket b of a node that was refilled at last_ns passes n_sub. */
QOS_API uint64_t htb_priv_bucket_ready_ns(const struct htb_priv_bucket *b, uint64_t last_ns, int64_t n_sub,
                                          uint64_t now_ns)
{
    uint64_t from_ns = qos_max(now_ns, last_ns), wait_ns;
    int64_t level = qos_level_refill(b->level, b->depth, b->rate, from_ns - last_ns);
    wait_ns = qos_level_wait_ns(level, qos_level_gate(b->depth, n_sub), b->rate);
    return wait_ns == 0 ? now_ns : qos_sat_add(from_ns, wait_ns);
}

QOS_API uint64_t htb_priv_rate_ready_ns(const struct htb *h, uint32_t id, const int64_t *n_sub, uint64_t now_ns)
{
    uint64_t ready_ns = now_ns;
    uint32_t r;
    for (r = 0; r < h->resources; r++) {
        const struct htb_priv_bucket *b = &htb_priv_pair_of(h, id, r)->rate;
        if (n_sub[r] != 0)
            ready_ns = b->rate == 0
                           ? QOS_NEVER
                           : qos_max(ready_ns, htb_priv_bucket_ready_ns(b, h->node[id].last_ns, n_sub[r], now_ns));
    }
    return ready_ns;
}

QOS_API uint64_t htb_priv_limit_ready_ns(const struct htb *h, uint32_t id, const int64_t *n_sub, uint64_t now_ns)
{
    uint64_t ready_ns = now_ns;
    uint32_t r;
    for (r = 0; r < h->resources; r++) {
        const struct htb_priv_bucket *b = &htb_priv_pair_of(h, id, r)->limit;
        if (n_sub[r] != 0 && b->rate != HTB_NONE)
            ready_ns = qos_max(ready_ns, htb_priv_bucket_ready_ns(b, h->node[id].last_ns, n_sub[r], now_ns));
    }
    return ready_ns;
}

/* First time at which a request of n_sub at the node can be sent from its own tokens or a lender's, if nobody else
 * takes. */
QOS_API uint64_t htb_priv_send_ns(const struct htb *h, uint32_t id, const int64_t *n_sub, uint64_t now_ns)
{
    uint64_t limits_ns = now_ns, first_ns = QOS_NEVER;
    for (; id != HTB_PRIV_NIL; id = h->node[id].parent) {
        limits_ns = qos_max(limits_ns, htb_priv_limit_ready_ns(h, id, n_sub, now_ns));
        first_ns = qos_min(first_ns, qos_max(limits_ns, htb_priv_rate_ready_ns(h, id, n_sub, now_ns)));
    }
    return first_ns;
}

/* The node itself or the nearest ancestor that can pay for n_sub; HTB_PRIV_NIL if none, or a limit is in the way. */
QOS_API uint32_t htb_priv_payer(struct htb *h, uint32_t id, const int64_t *n_sub, uint64_t now_ns)
{
    for (;;) {
        htb_priv_refill(h, id, now_ns);
        if (!htb_priv_limit_passes(h, id, n_sub))
            return HTB_PRIV_NIL;
        if (htb_priv_rate_passes(h, id, n_sub))
            return id;
        if (id == h->classes) {
            h->starved_at_root = true;
            return HTB_PRIV_NIL;
        }
        id = h->node[id].parent;
    }
}

QOS_API void htb_priv_count(struct htb *h, uint32_t id, uint64_t tokens, uint64_t borrowed)
{
    struct htb_priv_class *c = &h->cls[id];
    int64_t level = h->node[id].pair.rate.level;
    qos_counter_add(&c->granted, tokens);
    qos_counter_add(&c->borrowed, borrowed);
    if (QOS_UNLIKELY(level < 0 || c->debt != 0))
        qos_counter_add(&c->debt, qos_wrap_sub(h->node[id].pair.rate.rate ? qos_level_debt(level) : 0, c->debt));
}

/* Charges a request of class `id` that `payer` pays for. */
QOS_API void htb_priv_charge(struct htb *h, uint32_t id, uint32_t payer, const int64_t *n_sub, uint64_t now_ns)
{
    uint64_t tokens;
    uint32_t at, r;
    bool pays = false;
    for (at = id; at != HTB_PRIV_NIL; at = h->node[at].parent) {
        pays = pays || at == payer;
        htb_priv_refill(h, at, now_ns); /* before the charge: what overflows must not be spent afterwards */
        for (r = 0; r < h->resources; r++) {
            struct htb_priv_pair *p = htb_priv_pair_of(h, at, r);
            if (pays)
                p->rate.level = qos_level_charge(p->rate.level, n_sub[r]);
            if (p->limit.rate != HTB_NONE)
                p->limit.level = qos_level_charge(p->limit.level, n_sub[r]);
        }
    }
    tokens = (uint64_t)(n_sub[0] / QOS_SUBTOKENS);
    htb_priv_count(h, id, tokens, payer == id ? 0 : tokens);
}

/* -- lists: rows (nodes with tokens of their own) and rings (borrowers of a group), both circular */

QOS_API void htb_priv_link_in(struct htb *h, int which, uint32_t *head, uint32_t id)
{
    struct htb_priv_link *link = &h->cls[id].link[which];
    if (*head == HTB_PRIV_NIL) {
        link->next = link->prev = *head = id;
    } else { /* before the head is behind the last */
        uint32_t last = h->cls[*head].link[which].prev;
        link->next = *head;
        link->prev = last;
        h->cls[last].link[which].next = id;
        h->cls[*head].link[which].prev = id;
    }
}

QOS_API void htb_priv_link_out(struct htb *h, int which, uint32_t *head, uint32_t id)
{
    const struct htb_priv_link *link = &h->cls[id].link[which];
    if (link->next == id) {
        *head = HTB_PRIV_NIL;
    } else {
        h->cls[link->prev].link[which].next = link->next;
        h->cls[link->next].link[which].prev = link->prev;
        if (*head == id)
            *head = link->next;
    }
}

/* Classes in row 0, then groups, the deepest first. */
QOS_API uint32_t *htb_priv_row_of(const struct htb *h, uint32_t id)
{
    return &h->row[h->node[id].flags & HTB_PRIV_GROUP ? 1 + h->depth_max - h->node[id].depth : 0];
}

/* -- queues: where each node stands */

/* The class whose turn it is below the node (itself, if it is a class); HTB_PRIV_NIL if nobody borrows here. */
QOS_API uint32_t htb_priv_turn(const struct htb *h, uint32_t id)
{
    while (id != HTB_PRIV_NIL && (h->node[id].flags & HTB_PRIV_GROUP))
        id = h->cls[id].u.group.ring;
    return id;
}

/* The request that the node would send next, or NULL. */
QOS_API struct htb_request *htb_priv_next_request(const struct htb *h, uint32_t id)
{
    uint32_t turn = htb_priv_turn(h, id);
    return turn == HTB_PRIV_NIL || !h->cls[turn].u.tail ? NULL : h->cls[turn].u.tail->next;
}

QOS_API void htb_priv_sub_tokens(const struct htb *h, const uint64_t *tokens, int64_t *n_sub)
{
    uint32_t r;
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        n_sub[r] = r < h->resources ? (int64_t)tokens[r] * QOS_SUBTOKENS : 0;
}

QOS_API void htb_priv_mark(struct htb *h, uint32_t id, unsigned flag, bool on)
{
    h->node[id].flags = (uint16_t)(on ? h->node[id].flags | flag : h->node[id].flags & ~flag);
}

QOS_API void htb_priv_wake_at(struct htb *h, uint32_t id, uint64_t at_ns)
{
    if (h->node[id].flags & HTB_PRIV_EXPIRES)
        at_ns = qos_min(at_ns, h->cls[id].expires_ns);
    if (at_ns == QOS_NEVER)
        htb_priv_heap_remove(&h->event, id);
    else
        htb_priv_heap_set(&h->event, id, at_ns);
}

/* Puts a node where its next request and its buckets say: its row, its parent's ring, the heap. True if
 * the request that its parent would send next may have changed. Invariant of the queues: after every call each node
 * stands where this function would put it, as of the latest now_ns. */
QOS_API bool htb_priv_place(struct htb *h, uint32_t id, uint64_t now_ns)
{
    const struct htb_request *request = htb_priv_next_request(h, id);
    uint32_t parent = h->node[id].parent, *ring = parent == HTB_PRIV_NIL ? NULL : &h->cls[parent].u.group.ring;
    uint32_t turn_before = ring ? *ring : HTB_PRIV_NIL;
    bool limit_passes = false, own_passes = false, in_ring, in_row;
    uint64_t wake_ns = QOS_NEVER;

    htb_priv_refill(h, id, now_ns);
    if (!request)
        htb_priv_mark(h, id, HTB_PRIV_BACKLOG, false);
    if (request) {
        int64_t n_sub[HTB_RESOURCES_MAX];
        htb_priv_sub_tokens(h, request->tokens, n_sub);
        limit_passes = htb_priv_limit_passes(h, id, n_sub);
        own_passes = limit_passes && htb_priv_rate_passes(h, id, n_sub);
        if (!limit_passes)
            wake_ns = htb_priv_send_ns(h, id, n_sub, now_ns);
        else if (!own_passes)
            wake_ns = htb_priv_rate_ready_ns(h, id, n_sub, now_ns);
    }
    in_ring = (h->node[id].flags & HTB_PRIV_IN_RING) != 0;
    in_row = (h->node[id].flags & HTB_PRIV_IN_ROW) != 0;
    if (ring && in_ring != limit_passes) {
        if (limit_passes) {
            struct htb_priv_class *c = &h->cls[id];
            c->deficit = (int64_t)qos_min((uint64_t)c->deficit, h->quantum * c->weight); /* no more than one round */
            htb_priv_link_in(h, HTB_PRIV_RING, ring, id);
        } else
            htb_priv_link_out(h, HTB_PRIV_RING, ring, id);
        htb_priv_mark(h, id, HTB_PRIV_IN_RING, limit_passes);
    }
    if (in_row != own_passes) {
        if (own_passes)
            htb_priv_link_in(h, HTB_PRIV_ROW, htb_priv_row_of(h, id), id);
        else
            htb_priv_link_out(h, HTB_PRIV_ROW, htb_priv_row_of(h, id), id);
        htb_priv_mark(h, id, HTB_PRIV_IN_ROW, own_passes);
    }
    htb_priv_wake_at(h, id, wake_ns);
    return ring && (*ring != turn_before || *ring == id);
}

/* Places a node, and those above it as far as it matters to them (all of them after a charge). */
QOS_API void htb_priv_place_up(struct htb *h, uint32_t id, bool charged, uint64_t now_ns)
{
    for (; id != HTB_PRIV_NIL; id = h->node[id].parent)
        if (!htb_priv_place(h, id, now_ns) && !charged)
            break;
}

/* After a rate above them changed: nodes at their limit wait for a time that depends on it. */
QOS_API void htb_priv_place_all(struct htb *h, uint64_t now_ns)
{
    uint32_t id;
    if (h->queued == 0)
        return;
    for (id = 0; id <= h->classes; id++)
        if (h->node[id].flags & HTB_PRIV_USED)
            htb_priv_place_up(h, id, false, now_ns);
}

QOS_API void htb_priv_append(struct htb_request **tail, struct htb_request *r)
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

QOS_API void htb_priv_unlink(struct htb_request **tail, struct htb_request *r)
{
    if (r->next == r) {
        *tail = NULL;
    } else {
        r->prev->next = r->next;
        r->next->prev = r->prev;
        if (*tail == r)
            *tail = r->prev;
    }
}

/* -- life of the tree */

/* A node without rates and limits; htb_priv_apply sets the rest. */
QOS_API void htb_priv_new_node(struct htb *h, uint32_t id, uint32_t parent, bool group, uint64_t now_ns)
{
    struct htb_priv_node *node = &h->node[id];
    struct htb_priv_class *c = &h->cls[id];
    uint32_t r;
    bool former = (node->flags & HTB_PRIV_FORMER) != 0;
    if (former)
        htb_priv_refill(h, id, now_ns);
    else
        node->last_ns = now_ns;
    /* A clock that went back must not pay a new reservation for a time that was paid for. */
    node->last_ns = qos_max(node->last_ns, h->node[h->classes].last_ns);
    node->parent = parent;
    node->depth = parent == HTB_PRIV_NIL ? (uint16_t)0 : (uint16_t)(h->node[parent].depth + 1u);
    node->flags = (uint16_t)(HTB_PRIV_USED | HTB_PRIV_FORMER | (group ? HTB_PRIV_GROUP : 0u));
    if (group) {
        c->u.group.ring = HTB_PRIV_NIL;
        c->u.group.children = 0;
    } else {
        c->u.tail = NULL;
    }
    c->deficit = 0;
    c->mark = 0;
    c->expires_ns = QOS_NEVER;
    c->weight = 1;
    c->burst_us = (uint32_t)((h->burst_ns + 999) / 1000);
    for (r = 0; r < h->resources; r++) {
        struct htb_priv_pair *p = htb_priv_pair_of(h, id, r);
        *htb_priv_sum_of(h, id, r) = 0;
        if (!former) {
            p->rate.rate = 0;
            p->rate.depth = p->limit.level = 0;
        }
        htb_priv_set_rate(h, &p->rate, 0, 0);
        htb_priv_set_limit(h, &p->limit, HTB_NONE, 0);
    }
}

/* Counters of a class that begins start at zero; they go through the atomic store as a reader may be looking. */
QOS_API void htb_priv_zero(qos_counter_t *c)
{
    qos_counter_add(c, qos_wrap_sub(0, *c));
}

QOS_API void htb_priv_zero_counters(struct htb *h, uint32_t id)
{
    struct htb_priv_class *c = &h->cls[id];
    h->ended_granted = qos_wrap_add(h->ended_granted, c->granted);
    htb_priv_zero(&c->granted);
    htb_priv_zero(&c->borrowed);
    htb_priv_zero(&c->refused);
    htb_priv_zero(&c->waited);
    htb_priv_zero(&c->debt);
}

QOS_API void htb_priv_set_root(struct htb *h, const uint64_t *rate_per_s, uint64_t now_ns)
{
    uint32_t r;
    htb_priv_refill(h, h->classes, now_ns);
    for (r = 0; r < h->resources; r++)
        htb_priv_set_rate(h, &htb_priv_pair_of(h, h->classes, r)->rate, rate_per_s[r], h->burst_ns);
    htb_priv_place_all(h, now_ns);
}

QOS_API void htb_priv_init_dispatch(struct htb *h)
{
    uint32_t i;
    for (i = 0; i < h->dispatch_max; i++)
        h->slot[i].link.next = i + 1 < h->dispatch_max ? i + 1 : HTB_PRIV_NIL;
    h->free_slot = 0;
    h->oldest_slot = h->newest_slot = HTB_PRIV_NIL;
    h->waiting = h->at_device = h->this_sweep = 0;
    h->head_offset = h->handed_out = 0;
    h->urgent = NULL;
    for (i = 0; i < h->depth_max + 2; i++)
        h->row[i] = HTB_PRIV_NIL;
    h->queued = 0;
    h->quantum = 1;
}

QOS_API enum qos_status htb_init(struct htb *h, void *mem, size_t size_bytes, const struct htb_config *config)
{
    struct htb_config c;
    struct htb_priv_layout o;
    unsigned char *base = (unsigned char *)mem;
    enum qos_status status;
    uint32_t i, r;
    if (!h || !config)
        return QOS_EINVAL;
    if (htb_config_error(config))
        return QOS_ERANGE;
    c = htb_priv_defaults(config);
    o = htb_priv_lay(&c);
    status = qos_layout_check(&o.l, mem, size_bytes);
    if (status != QOS_OK)
        return status;

    h->node = (struct htb_priv_node *)(void *)(base + o.node);
    h->cls = (struct htb_priv_class *)(void *)(base + o.cls);
    h->more = (struct htb_priv_pair *)(void *)(base + o.more);
    h->more_sum = (uint64_t *)(void *)(base + o.more_sum);
    h->slot = (struct htb_priv_slot *)(void *)(base + o.slot);
    h->row = (uint32_t *)(void *)(base + o.row);
    htb_priv_heap_init(&h->event, (struct htb_priv_heap_entry *)(void *)(base + o.event),
                       (uint32_t *)(void *)(base + o.event_pos), c.classes + 1);
    for (i = 0; i < 2; i++)
        htb_priv_heap_init(&h->sweep[i], (struct htb_priv_heap_entry *)(void *)(base + o.sweep[i]),
                           (uint32_t *)(void *)(base + o.sweep_pos[i]), c.dispatch_max);
    h->classes = c.classes;
    h->resources = c.resources;
    h->depth_max = c.depth_max;
    h->dispatch_max = c.dispatch_max;
    h->device_max = c.device_max;
    h->bypass_max = c.bypass_max;
    h->order = c.order;
    h->burst_ns = c.burst_ns;
    h->debt_ns = c.debt_ns;
    h->request_max_tokens = c.request_max_tokens;
    h->maximize_step = c.maximize_step;
    h->maximize_interval_ns = c.maximize_interval_ns;
    h->maximize_rate_max = c.maximize_rate_max;
    h->maximize_last_ns = c.start_ns;
    h->maximize_granted = h->ended_granted = 0;
    h->scenario = HTB_UNCAPPED;
    h->starved_at_root = h->was_starved = false;
    h->detours = c.resources - 1u;
    htb_priv_init_dispatch(h);

    for (i = 0; i <= c.classes; i++) {
        h->node[i].flags = 0;
        h->cls[i].granted = h->cls[i].borrowed = h->cls[i].refused = h->cls[i].waited = h->cls[i].debt = 0;
    }
    htb_priv_new_node(h, c.classes, HTB_PRIV_NIL, true, c.start_ns);
    for (r = 0; r < c.resources; r++)
        h->base_per_s[r] = c.rate_per_s[r];
    htb_priv_set_root(h, c.rate_per_s, c.start_ns);
    htb_priv_new_node(h, HTB_BEST_EFFORT, c.classes, false, c.start_ns);
    h->cls[c.classes].u.group.children = 1;
    for (r = 0; r < c.resources; r++) {
        htb_priv_set_rate(h, &htb_priv_pair_of(h, HTB_BEST_EFFORT, r)->rate, c.best_effort_per_s[r],
                          (uint64_t)h->cls[HTB_BEST_EFFORT].burst_us * 1000);
        *htb_priv_sum_of(h, c.classes, r) = c.best_effort_per_s[r];
    }
    return QOS_OK;
}

/* -- reservations */

/* Rates and limits as the buckets want them: 0 for no rate, HTB_NONE for no limit. */
QOS_API enum qos_status htb_priv_class_of_config(const struct htb *h, const struct htb_class *in, uint64_t now_ns,
                                                 struct htb_class *out)
{
    uint32_t r;
    *out = *in;
    out->weight = (uint32_t)htb_priv_or(in->weight, 1);
    out->burst_ns = htb_priv_or(in->burst_ns, h->burst_ns);
    out->expires_ns = htb_priv_or(in->expires_ns, QOS_NEVER);
    if (out->weight > HTB_WEIGHT_MAX || out->burst_ns > HTB_BURST_MAX_NS ||
        (out->expires_ns <= now_ns && out->expires_ns != QOS_NEVER))
        return QOS_ERANGE;
    for (r = 0; r < h->resources; r++) {
        if (in->rate_per_s[r] == HTB_NONE)
            out->rate_per_s[r] = 0;
        out->limit_per_s[r] = htb_priv_or(in->limit_per_s[r], HTB_NONE);
        if (out->rate_per_s[r] > QOS_RATE_MAX)
            return QOS_ERANGE;
        if (out->limit_per_s[r] != HTB_NONE &&
            (out->limit_per_s[r] > QOS_RATE_MAX || out->limit_per_s[r] < out->rate_per_s[r]))
            return QOS_ERANGE;
    }
    return in->group && out->expires_ns != QOS_NEVER ? QOS_EINVAL : QOS_OK;
}

/* Does it fit, given what `id` has now if it exists? */
QOS_API enum qos_status htb_priv_admit(const struct htb *h, uint32_t parent, const struct htb_class *want, uint32_t id,
                                       bool exists, uint64_t *fits)
{
    bool admitted = true;
    uint32_t r;
    for (r = 0; r < h->resources; r++) {
        uint64_t whole = parent == h->classes ? h->base_per_s[r] : htb_priv_pair_of(h, parent, r)->rate.rate;
        uint64_t own = exists ? htb_priv_pair_of(h, id, r)->rate.rate : 0;
        uint64_t room = whole - (*htb_priv_sum_of(h, parent, r) - own);
        uint64_t least = exists ? *htb_priv_sum_of(h, id, r) : 0;
        if (fits)
            fits[r] = want->rate_per_s[r] < least ? least : room;
        admitted = admitted && want->rate_per_s[r] <= room && want->rate_per_s[r] >= least;
    }
    return admitted ? QOS_OK : QOS_EADMISSION;
}

QOS_API void htb_priv_count_limit(struct htb *h, uint32_t id, bool limited)
{
    h->detours -= (h->node[id].flags & HTB_PRIV_LIMITED) != 0;
    h->detours += limited;
    htb_priv_mark(h, id, HTB_PRIV_LIMITED, limited);
}

QOS_API void htb_priv_apply(struct htb *h, uint32_t id, const struct htb_class *c, uint64_t now_ns)
{
    uint32_t r, parent = h->node[id].parent;
    bool limited = false;
    htb_priv_refill(h, id, now_ns);
    h->cls[id].weight = c->weight;
    h->cls[id].deficit = (int64_t)qos_min((uint64_t)h->cls[id].deficit, h->quantum * c->weight); /* of this round */
    h->cls[id].burst_us = (uint32_t)((c->burst_ns + 999) / 1000);
    h->cls[id].expires_ns = c->expires_ns;
    for (r = 0; r < h->resources; r++) {
        struct htb_priv_pair *p = htb_priv_pair_of(h, id, r);
        uint64_t *sum = htb_priv_sum_of(h, parent, r);
        *sum = *sum - p->rate.rate + c->rate_per_s[r];
        htb_priv_set_rate(h, &p->rate, c->rate_per_s[r], (uint64_t)h->cls[id].burst_us * 1000);
        htb_priv_set_limit(h, &p->limit, c->limit_per_s[r], (uint64_t)h->cls[id].burst_us * 1000);
        limited = limited || c->limit_per_s[r] != HTB_NONE;
    }
    htb_priv_count_limit(h, id, limited);
    htb_priv_mark(h, id, HTB_PRIV_EXPIRES, c->expires_ns != QOS_NEVER);
    htb_priv_place_up(h, id, true, now_ns);
    if (h->node[id].flags & HTB_PRIV_GROUP)
        htb_priv_place_all(h, now_ns);
}

/* Ends a class or an empty group. Its requests go to the end of best effort's queue. */
QOS_COLD QOS_API void htb_priv_end(struct htb *h, uint32_t id, uint64_t now_ns)
{
    struct htb_priv_class *c = &h->cls[id];
    uint32_t r, parent = h->node[id].parent;
    unsigned remains = h->node[id].flags & (HTB_PRIV_FORMER | HTB_PRIV_LIMITED); /* its debts are paid off meanwhile */
    while (!(h->node[id].flags & HTB_PRIV_GROUP) && c->u.tail) {
        struct htb_request *first = c->u.tail->next;
        htb_priv_unlink(&c->u.tail, first);
        first->slot = HTB_BEST_EFFORT;
        htb_priv_append(&h->cls[HTB_BEST_EFFORT].u.tail, first);
    }
    htb_priv_mark(h, id, HTB_PRIV_EXPIRES, false);
    (void)htb_priv_place(h, id, now_ns); /* without requests it leaves row, ring and heap */
    htb_priv_count_limit(h, id, false);
    h->node[id].flags = (uint16_t)remains;
    h->cls[parent].u.group.children--;
    for (r = 0; r < h->resources; r++)
        *htb_priv_sum_of(h, parent, r) -= htb_priv_pair_of(h, id, r)->rate.rate;
    htb_priv_place_up(h, parent, true, now_ns);
    htb_priv_place_up(h, HTB_BEST_EFFORT, true, now_ns);
}

/* Reservations whose time is over end; nodes whose tokens have come move to their lists. */
QOS_API void htb_priv_run_events(struct htb *h, uint64_t now_ns)
{
    while (h->event.count != 0 && htb_priv_heap_min_key(&h->event) <= now_ns) {
        uint32_t id = htb_priv_heap_min_id(&h->event);
        if ((h->node[id].flags & HTB_PRIV_EXPIRES) && h->cls[id].expires_ns <= now_ns)
            htb_priv_end(h, id, now_ns);
        else
            htb_priv_place_up(h, id, false, now_ns);
    }
}

/* Index of the parent that a caller named; HTB_PRIV_NIL if there can be none of that id. */
QOS_API uint32_t htb_priv_parent(const struct htb *h, const struct htb_class *c)
{
    if (c->parent == 0 || c->parent == HTB_ROOT)
        return h->classes;
    return c->parent < h->classes ? c->parent : HTB_PRIV_NIL;
}

QOS_API enum qos_status htb_reserve(struct htb *h, uint32_t id, const struct htb_class *c, uint64_t now_ns,
                                    uint64_t *fits)
{
    struct htb_class want;
    enum qos_status status;
    uint32_t parent;
    if (!c || id == HTB_BEST_EFFORT)
        return QOS_EINVAL;
    parent = htb_priv_parent(h, c);
    if (id >= h->classes || parent == HTB_PRIV_NIL)
        return QOS_ENOENT;
    htb_priv_run_events(h, now_ns);
    if (h->node[id].flags & HTB_PRIV_USED)
        return QOS_EEXIST;
    if (!(h->node[parent].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    if (!(h->node[parent].flags & HTB_PRIV_GROUP))
        return QOS_EINVAL;
    if (h->node[parent].depth >= h->depth_max)
        return QOS_EFULL;
    status = htb_priv_class_of_config(h, c, now_ns, &want);
    if (status == QOS_OK)
        status = htb_priv_admit(h, parent, &want, id, false, fits);
    if (status != QOS_OK)
        return status;
    htb_priv_new_node(h, id, parent, want.group, now_ns);
    htb_priv_zero_counters(h, id);
    h->cls[parent].u.group.children++;
    htb_priv_apply(h, id, &want, now_ns);
    return QOS_OK;
}

QOS_API enum qos_status htb_change(struct htb *h, uint32_t id, const struct htb_class *c, uint64_t now_ns,
                                   uint64_t *fits)
{
    struct htb_class want;
    enum qos_status status;
    uint32_t parent;
    if (!c)
        return QOS_EINVAL;
    htb_priv_run_events(h, now_ns);
    if (id >= h->classes || !(h->node[id].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    parent = htb_priv_parent(h, c);
    if (parent != h->node[id].parent || c->group != ((h->node[id].flags & HTB_PRIV_GROUP) != 0))
        return QOS_EINVAL;
    status = htb_priv_class_of_config(h, c, now_ns, &want);
    if (status == QOS_OK && id == HTB_BEST_EFFORT && want.expires_ns != QOS_NEVER)
        status = QOS_EINVAL;
    if (status == QOS_OK)
        status = htb_priv_admit(h, parent, &want, id, true, fits);
    if (status == QOS_OK)
        htb_priv_apply(h, id, &want, now_ns);
    return status;
}

QOS_API enum qos_status htb_release(struct htb *h, uint32_t id, uint64_t now_ns)
{
    if (id == HTB_BEST_EFFORT)
        return QOS_EINVAL;
    if (id >= h->classes || !(h->node[id].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    if ((h->node[id].flags & HTB_PRIV_GROUP) && h->cls[id].u.group.children != 0)
        return QOS_EBUSY;
    htb_priv_end(h, id, now_ns);
    return QOS_OK;
}

QOS_API enum qos_status htb_get(const struct htb *h, uint32_t id, struct htb_class *c)
{
    uint32_t r;
    if (!c)
        return QOS_EINVAL;
    if (id >= h->classes || !(h->node[id].flags & HTB_PRIV_USED))
        return QOS_ENOENT;
    c->parent = h->node[id].parent == h->classes ? HTB_ROOT : h->node[id].parent;
    c->weight = h->cls[id].weight;
    c->burst_ns = (uint64_t)h->cls[id].burst_us * 1000;
    c->expires_ns = h->node[id].flags & HTB_PRIV_EXPIRES ? h->cls[id].expires_ns : 0;
    c->group = (h->node[id].flags & HTB_PRIV_GROUP) != 0;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        const struct htb_priv_pair *p = htb_priv_pair_of(h, id, r < h->resources ? r : 0);
        c->rate_per_s[r] = r >= h->resources ? 0 : p->rate.rate == 0 ? HTB_NONE : p->rate.rate;
        c->limit_per_s[r] = r >= h->resources ? 0 : p->limit.rate;
    }
    return QOS_OK;
}

QOS_API enum qos_status htb_set_root_rate(struct htb *h, const uint64_t *rate_per_s, uint64_t now_ns)
{
    uint32_t r;
    if (!rate_per_s)
        return QOS_EINVAL;
    htb_priv_run_events(h, now_ns);
    for (r = 0; r < h->resources; r++)
        if (rate_per_s[r] == 0 || rate_per_s[r] > QOS_RATE_MAX)
            return QOS_ERANGE;
    for (r = 0; r < h->resources; r++)
        if (rate_per_s[r] < *htb_priv_sum_of(h, h->classes, r))
            return QOS_EADMISSION;
    for (r = 0; r < h->resources; r++)
        h->base_per_s[r] = rate_per_s[r];
    h->maximize_rate_max = qos_max(h->maximize_rate_max, rate_per_s[0]);
    htb_priv_set_root(h, rate_per_s, now_ns);
    return QOS_OK;
}

/* -- the gate */

/* The class that pays for requests of `id`: itself, or best effort. */
QOS_API uint32_t htb_priv_resolve(struct htb *h, uint32_t id, uint64_t now_ns)
{
    unsigned flags;
    if (QOS_UNLIKELY(id >= h->classes))
        return HTB_BEST_EFFORT;
    flags = h->node[id].flags & (HTB_PRIV_USED | HTB_PRIV_GROUP | HTB_PRIV_EXPIRES);
    if (QOS_LIKELY(flags == HTB_PRIV_USED))
        return id;
    if (flags == (HTB_PRIV_USED | HTB_PRIV_EXPIRES)) {
        if (now_ns < h->cls[id].expires_ns)
            return id;
        htb_priv_end(h, id, now_ns);
    }
    return HTB_BEST_EFFORT;
}

QOS_COLD QOS_API enum qos_status htb_priv_refuse(struct htb *h, uint32_t id)
{
    qos_counter_add(&h->cls[id].refused, 1);
    return QOS_EAGAIN;
}

QOS_API enum qos_status htb_take_all(struct htb *h, uint32_t id, const uint64_t *n, uint64_t now_ns)
{
    int64_t n_sub[HTB_RESOURCES_MAX];
    uint32_t payer, r;
    for (r = 0; r < h->resources; r++)
        if (n[r] > QOS_TOKENS_MAX)
            return QOS_ERANGE;
    id = htb_priv_resolve(h, id, now_ns);
    htb_priv_sub_tokens(h, n, n_sub);
    payer = htb_priv_payer(h, id, n_sub, now_ns);
    if (payer == HTB_PRIV_NIL)
        return htb_priv_refuse(h, id);
    htb_priv_charge(h, id, payer, n_sub, now_ns);
    if (h->queued)
        htb_priv_place_up(h, id, true, now_ns);
    return QOS_OK;
}

QOS_API void htb_priv_refill_one(struct htb_priv_node *node, uint64_t now_ns)
{
    struct htb_priv_bucket *b = &node->pair.rate;
    if (QOS_UNLIKELY(now_ns <= node->last_ns))
        return;
    b->level = qos_level_refill(b->level, b->depth, b->rate, now_ns - node->last_ns);
    node->last_ns = now_ns;
}

/* htb_take_all for one resource, no limits and no queues, in one pass: nothing is charged below the payer, so a walk
 * that finds none has charged nothing. Whether a class pays itself or borrows is as good as random under load, so
 * that is arithmetic, not a branch. */
QOS_API enum qos_status htb_priv_take_one(struct htb *h, uint32_t id, int64_t n_sub, uint64_t now_ns)
{
    struct htb_priv_node *node = &h->node[id];
    struct htb_priv_bucket *b = &node->pair.rate;
    uint64_t tokens = (uint64_t)(n_sub / QOS_SUBTOKENS);
    bool own, paid;
    htb_priv_refill_one(node, now_ns);
    own = paid = (n_sub == 0) | (b->level >= qos_level_gate(b->depth, n_sub));
    b->level -= n_sub & -(int64_t)own;
    do {
        node = &h->node[node->parent];
        b = &node->pair.rate;
        htb_priv_refill_one(node, now_ns);
        paid |= b->level >= qos_level_gate(b->depth, n_sub);
        if (QOS_LIKELY(paid))
            b->level = qos_level_charge(b->level, n_sub);
    } while (node->depth != 0);
    if (QOS_UNLIKELY(!paid)) {
        h->starved_at_root = true;
        return htb_priv_refuse(h, id);
    }
    htb_priv_count(h, id, tokens, tokens & qos_wrap_sub((uint64_t)own, 1));
    return QOS_OK;
}

/* Apart from htb_take, so that the short way does not prepare the array. */
QOS_COLD QOS_API enum qos_status htb_priv_take_first(struct htb *h, uint32_t id, uint64_t n, uint64_t now_ns)
{
    uint64_t all[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    all[0] = n;
    return htb_take_all(h, id, all, now_ns);
}

QOS_API enum qos_status htb_take(struct htb *h, uint32_t id, uint64_t n, uint64_t now_ns)
{
    if (QOS_LIKELY(h->detours == 0 && n <= QOS_TOKENS_MAX))
        return htb_priv_take_one(h, htb_priv_resolve(h, id, now_ns), (int64_t)n * QOS_SUBTOKENS, now_ns);
    return htb_priv_take_first(h, id, n, now_ns);
}

QOS_API enum qos_status htb_force(struct htb *h, uint32_t id, const uint64_t *n, uint64_t now_ns)
{
    int64_t n_sub[HTB_RESOURCES_MAX];
    uint32_t payer, r;
    bool pays = false;
    for (r = 0; r < h->resources; r++)
        if (n[r] > QOS_TOKENS_MAX)
            return QOS_ERANGE;
    id = htb_priv_resolve(h, id, now_ns);
    htb_priv_sub_tokens(h, n, n_sub);
    for (payer = id; !pays; payer = pays ? payer : h->node[payer].parent) { /* the root has every rate */
        pays = true;
        for (r = 0; r < h->resources; r++)
            pays = pays && (n[r] == 0 || htb_priv_pair_of(h, payer, r)->rate.rate != 0);
    }
    htb_priv_refill(h, payer, now_ns);
    for (r = 0; r < h->resources; r++) {
        const struct htb_priv_bucket *b = &htb_priv_pair_of(h, payer, r)->rate;
        uint64_t most = qos_min(qos_sat_mul(b->rate, h->debt_ns), QOS_TOKENS_MAX * (uint64_t)QOS_SUBTOKENS);
        if (n[r] != 0 && b->level < -(int64_t)most)
            return QOS_EDEBT;
    }
    htb_priv_charge(h, id, payer, n_sub, now_ns);
    if (h->queued)
        htb_priv_place_up(h, id, true, now_ns);
    return QOS_OK;
}

QOS_API uint64_t htb_next_ns_all(const struct htb *h, uint32_t id, const uint64_t *n, uint64_t now_ns)
{
    int64_t n_sub[HTB_RESOURCES_MAX];
    uint64_t send_ns;
    uint32_t r;
    for (r = 0; r < h->resources; r++)
        if (n[r] > QOS_TOKENS_MAX)
            return QOS_NEVER;
    htb_priv_sub_tokens(h, n, n_sub);
    if (id >= h->classes || (h->node[id].flags & (HTB_PRIV_USED | HTB_PRIV_GROUP)) != HTB_PRIV_USED)
        return htb_priv_send_ns(h, HTB_BEST_EFFORT, n_sub, now_ns);
    send_ns = htb_priv_send_ns(h, id, n_sub, now_ns);
    if ((h->node[id].flags & HTB_PRIV_EXPIRES) && send_ns >= h->cls[id].expires_ns) /* it will be best effort by then */
        return htb_priv_send_ns(h, HTB_BEST_EFFORT, n_sub, qos_max(now_ns, h->cls[id].expires_ns));
    return send_ns;
}

QOS_API uint64_t htb_next_ns(const struct htb *h, uint32_t id, uint64_t n, uint64_t now_ns)
{
    uint64_t all[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    all[0] = n;
    return htb_next_ns_all(h, id, all, now_ns);
}

/* -- ODIS: queues and dispatch */

QOS_API enum qos_status htb_submit(struct htb *h, struct htb_request *r, uint64_t now_ns)
{
    uint32_t id, i;
    if (!r)
        return QOS_EINVAL;
    if (r->state != HTB_IDLE)
        return QOS_EBUSY;
    for (i = 0; i < h->resources; i++)
        if (r->tokens[i] > QOS_TOKENS_MAX)
            return QOS_ERANGE;
    if (r->urgent) {
        enum qos_status status = htb_force(h, r->class_id, r->tokens, now_ns);
        if (status != QOS_OK)
            return status;
        htb_priv_append(&h->urgent, r);
        r->state = HTB_DISPATCHED;
        r->slot = HTB_PRIV_NIL;
        r->submitted_ns = now_ns;
        return QOS_OK;
    }
    id = htb_priv_resolve(h, r->class_id, now_ns);
    h->quantum = qos_max(h->quantum, r->tokens[0]);
    h->queued++;
    h->detours++;
    htb_priv_append(&h->cls[id].u.tail, r);
    r->state = HTB_QUEUED;
    r->slot = id;
    r->submitted_ns = now_ns;
    if (r->next == r)
        htb_priv_place_up(h, id, false, now_ns);
    return QOS_OK;
}

/* Ages: the FIFO of the dispatch slots. */
QOS_API void htb_priv_slot_unlink(struct htb *h, uint32_t i)
{
    const struct htb_priv_link *link = &h->slot[i].link;
    if (link->prev == HTB_PRIV_NIL)
        h->oldest_slot = link->next;
    else
        h->slot[link->prev].link.next = link->next;
    if (link->next == HTB_PRIV_NIL)
        h->newest_slot = link->prev;
    else
        h->slot[link->next].link.prev = link->prev;
    htb_priv_heap_remove(&h->sweep[0], i);
    htb_priv_heap_remove(&h->sweep[1], i);
    h->slot[i].link.next = h->free_slot;
    h->free_slot = i;
    h->waiting--;
}

QOS_API void htb_priv_slot_add(struct htb *h, struct htb_request *r)
{
    uint32_t i = h->free_slot;
    struct htb_priv_slot *s = &h->slot[i];
    QOS_ASSERT(i != HTB_PRIV_NIL);
    h->free_slot = s->link.next;
    s->request = r;
    s->entered = h->handed_out;
    s->link.next = HTB_PRIV_NIL;
    s->link.prev = h->newest_slot;
    if (h->newest_slot == HTB_PRIV_NIL)
        h->oldest_slot = i;
    else
        h->slot[h->newest_slot].link.next = i;
    h->newest_slot = i;
    h->waiting++;
    if (h->order == HTB_ELEVATOR)
        htb_priv_heap_set(&h->sweep[r->offset >= h->head_offset ? h->this_sweep : 1 - h->this_sweep], i, r->offset);
    r->slot = i;
    r->state = HTB_DISPATCHED;
}

/* Sends the request whose turn it is below `payer`, which pays, to the dispatch queue. */
QOS_API void htb_priv_serve(struct htb *h, uint32_t payer, uint64_t now_ns)
{
    uint32_t id = htb_priv_turn(h, payer), at;
    struct htb_request *r = h->cls[id].u.tail->next;
    int64_t n_sub[HTB_RESOURCES_MAX];
    htb_priv_sub_tokens(h, r->tokens, n_sub);
    htb_priv_charge(h, id, payer, n_sub, now_ns);
    htb_priv_unlink(&h->cls[id].u.tail, r);
    h->queued--;
    h->detours--;
    if (r->submitted_ns < now_ns)
        qos_counter_add(&h->cls[id].waited, 1);
    /* Deficit round robin: weight * quantum >= the largest request, so one addition makes the deficit positive. */
    for (at = id; at != payer; at = h->node[at].parent) {
        struct htb_priv_class *c = &h->cls[at];
        c->deficit -= (int64_t)qos_max(r->tokens[0], 1);
        if (c->deficit <= 0) {
            c->deficit += (int64_t)(h->quantum * c->weight);
            h->cls[h->node[at].parent].u.group.ring = c->link[HTB_PRIV_RING].next;
        }
    }
    if (h->queued == 0)
        h->quantum = 1; /* it grows with the largest request that waits */
    htb_priv_slot_add(h, r);
    htb_priv_place_up(h, id, true, now_ns);
    if (h->node[payer].flags & HTB_PRIV_IN_ROW)
        *htb_priv_row_of(h, payer) = h->cls[payer].link[HTB_PRIV_ROW].next;
}

/* The node to serve next: classes with tokens of their own, then lenders from the deepest up; HTB_PRIV_NIL if none. */
QOS_API uint32_t htb_priv_servable(const struct htb *h)
{
    uint32_t i;
    for (i = 0; i < h->depth_max + 2; i++)
        if (h->row[i] != HTB_PRIV_NIL)
            return h->row[i];
    return HTB_PRIV_NIL;
}

QOS_API uint32_t htb_priv_next_slot(struct htb *h)
{
    uint32_t oldest = h->oldest_slot;
    if (h->order == HTB_FIFO || qos_wrap_sub(h->handed_out, h->slot[oldest].entered) >= h->bypass_max)
        return oldest;
    if (h->sweep[h->this_sweep].count == 0)
        h->this_sweep = 1 - h->this_sweep;
    oldest = htb_priv_heap_min_id(&h->sweep[h->this_sweep]);
    h->head_offset = h->slot[oldest].request->offset;
    return oldest;
}

QOS_API struct htb_request *htb_priv_hand_out(struct htb *h, struct htb_request *r)
{
    r->state = HTB_AT_DEVICE;
    h->at_device++;
    return r;
}

QOS_API struct htb_request *htb_dispatch(struct htb *h, uint64_t now_ns)
{
    struct htb_request *r;
    uint32_t payer, i;
    if (h->urgent) {
        r = h->urgent->next;
        htb_priv_unlink(&h->urgent, r);
        return htb_priv_hand_out(h, r);
    }
    htb_priv_run_events(h, now_ns);
    while (h->queued != 0 && h->waiting + h->at_device < h->dispatch_max) {
        payer = htb_priv_servable(h);
        if (payer == HTB_PRIV_NIL) {
            h->starved_at_root = h->starved_at_root || h->cls[h->classes].u.group.ring != HTB_PRIV_NIL;
            break;
        }
        htb_priv_serve(h, payer, now_ns);
    }
    if (h->waiting == 0 || h->at_device >= h->device_max)
        return NULL;
    i = htb_priv_next_slot(h);
    r = h->slot[i].request;
    htb_priv_slot_unlink(h, i);
    h->handed_out = qos_wrap_add(h->handed_out, 1);
    return htb_priv_hand_out(h, r);
}

QOS_API uint64_t htb_dispatch_next_ns(struct htb *h, uint64_t now_ns)
{
    if (h->urgent)
        return now_ns;
    htb_priv_run_events(h, now_ns);
    if (h->at_device >= h->device_max)
        return QOS_NEVER;
    while (h->waiting == 0 && htb_priv_servable(h) == HTB_PRIV_NIL) {
        uint32_t id = htb_priv_heap_min_id(&h->event);
        uint64_t at_ns = htb_priv_heap_min_key(&h->event);
        if (id == HTB_PRIV_NIL || (h->node[id].flags & HTB_PRIV_IN_RING))
            return at_ns;
        /* At its limit: its lenders may have been drained since it was placed, and its time is later by now. */
        htb_priv_place_up(h, id, false, now_ns);
        if (htb_priv_heap_min_id(&h->event) == id && htb_priv_heap_min_key(&h->event) == at_ns)
            return at_ns;
    }
    return now_ns;
}

QOS_API enum qos_status htb_complete(struct htb *h, struct htb_request *r)
{
    if (!r || r->state != HTB_AT_DEVICE || h->at_device == 0)
        return QOS_EINVAL;
    h->at_device--;
    r->state = HTB_IDLE;
    return QOS_OK;
}

QOS_API enum qos_status htb_cancel(struct htb *h, struct htb_request *r, uint64_t now_ns)
{
    if (!r || (r->state != HTB_QUEUED && r->state != HTB_DISPATCHED))
        return QOS_EINVAL;
    if (r->state == HTB_QUEUED) {
        htb_priv_unlink(&h->cls[r->slot].u.tail, r);
        h->queued--;
        h->detours--;
        htb_priv_place_up(h, r->slot, true, now_ns);
    } else if (r->slot == HTB_PRIV_NIL) {
        htb_priv_unlink(&h->urgent, r);
    } else {
        htb_priv_slot_unlink(h, r->slot);
    }
    r->state = HTB_IDLE;
    return QOS_OK;
}

/* -- the bandwidth maximizer (Section 5.5) */

/* Did the class, which had demand all the time since the last look, get less than its rate? What it was granted and
 * what its bucket gained must add up to rate * time, but for 1/16; less means that tokens ran over while requests
 * waited. A class at its own limit is not owed anything. */
QOS_API bool htb_priv_short_changed(struct htb *h, uint32_t id, uint64_t elapsed_ns, uint64_t now_ns)
{
    const struct htb_priv_bucket *b = &h->node[id].pair.rate;
    struct htb_priv_class *c = &h->cls[id];
    unsigned flags = h->node[id].flags;
    uint64_t owed = qos_mul_div_floor(b->rate, elapsed_ns, QOS_NS_PER_S), before = c->mark;
    htb_priv_refill(h, id, now_ns);
    c->mark = qos_wrap_add(c->granted, (uint64_t)(b->level / QOS_SUBTOKENS));
    if (!(flags & HTB_PRIV_GROUP))
        htb_priv_mark(h, id, HTB_PRIV_BACKLOG, c->u.tail != NULL);
    return (flags & HTB_PRIV_BACKLOG) && (flags & HTB_PRIV_IN_RING) && b->rate != 0 &&
           (int64_t)qos_wrap_sub(c->mark, before) < (int64_t)(owed - owed / 16);
}

/* Looks at each class: is an assurance broken, and how many tokens were granted since the beginning? */
QOS_API bool htb_priv_look(struct htb *h, uint64_t elapsed_ns, uint64_t now_ns, uint64_t *granted)
{
    bool broken = false;
    uint32_t id;
    *granted = h->ended_granted;
    for (id = 0; id < h->classes; id++) {
        *granted = qos_wrap_add(*granted, h->cls[id].granted); /* a class that ended keeps its counters */
        if ((h->node[id].flags & HTB_PRIV_USED) && htb_priv_short_changed(h, id, elapsed_ns, now_ns))
            broken = true;
    }
    return broken;
}

/* Root rate of resource r, one step up or down. */
QOS_API uint64_t htb_priv_step(const struct htb *h, uint32_t r, bool up)
{
    uint64_t rate = htb_priv_pair_of(h, h->classes, r)->rate.rate, step = qos_max(rate / h->maximize_step, 1);
    return up ? qos_min(rate + step, r == 0 ? h->maximize_rate_max : QOS_RATE_MAX)
              : qos_max(qos_sat_sub(rate, step), h->base_per_s[r]);
}

QOS_API void htb_maximize(struct htb *h, bool violated, uint64_t now_ns, enum htb_scenario *scenario)
{
    uint64_t elapsed_ns = qos_elapsed_ns(h->maximize_last_ns, now_ns), rates[HTB_RESOURCES_MAX];
    if (elapsed_ns >= h->maximize_interval_ns) {
        uint64_t earned = qos_mul_div_floor(htb_root_rate(h), elapsed_ns, QOS_NS_PER_S), granted;
        bool broken = htb_priv_look(h, elapsed_ns, now_ns, &granted) || violated;
        bool starved = h->starved_at_root && qos_wrap_sub(granted, h->maximize_granted) >= earned - earned / 8;
        bool capped = starved && h->was_starved;
        uint32_t r;
        h->scenario = broken ? capped ? HTB_CAPPED_AND_BROKEN : HTB_BROKEN : capped ? HTB_CAPPED : HTB_UNCAPPED;
        h->starved_at_root = false;
        h->was_starved = starved;
        h->maximize_granted = granted;
        h->maximize_last_ns = now_ns;
        if (h->scenario != HTB_UNCAPPED) {
            for (r = 0; r < h->resources; r++)
                rates[r] = htb_priv_step(h, r, !broken);
            htb_priv_set_root(h, rates, now_ns);
        }
    }
    if (scenario)
        *scenario = h->scenario;
}

QOS_API uint64_t htb_root_rate(const struct htb *h)
{
    return h->node[h->classes].pair.rate.rate;
}

QOS_API void htb_priv_add_stats(const struct htb_priv_class *c, struct qos_stats *out)
{
    out->granted = qos_wrap_add(out->granted, qos_counter_read(&c->granted));
    out->borrowed = qos_wrap_add(out->borrowed, qos_counter_read(&c->borrowed));
    out->refused = qos_wrap_add(out->refused, qos_counter_read(&c->refused));
    out->waited = qos_wrap_add(out->waited, qos_counter_read(&c->waited));
    out->debt = qos_wrap_add(out->debt, qos_counter_read(&c->debt));
}

QOS_API void htb_stats(const struct htb *h, uint32_t id, struct qos_stats *out)
{
    out->granted = out->borrowed = out->refused = out->waited = out->debt = 0;
    if (id < h->classes)
        htb_priv_add_stats(&h->cls[id], out);
}

QOS_API void htb_stats_below(const struct htb *h, uint32_t id, struct qos_stats *out)
{
    uint32_t i, at;
    out->granted = out->borrowed = out->refused = out->waited = out->debt = 0;
    id = id == HTB_ROOT ? h->classes : id;
    for (i = 0; i < h->classes; i++) {
        at = h->node[i].flags & HTB_PRIV_USED ? i : HTB_PRIV_NIL;
        while (at != HTB_PRIV_NIL && at != id)
            at = h->node[at].parent;
        if (at == id)
            htb_priv_add_stats(&h->cls[i], out);
    }
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_HTB_H */
