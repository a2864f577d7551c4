/* scheduler.h - the interface between uring_files and a scheduler: five calls, for any algorithm.
 *
 * A scheduler joins by one file that fills in a struct scheduler, and by one line in scheduler_find (schedulers.c).
 * All times are CLOCK_MONOTONIC nanoseconds of the loop's current round; costs are nanoseconds of device time.
 * One thread calls, never two at once.
 */
#ifndef URING_FILES_SCHEDULER_H
#define URING_FILES_SCHEDULER_H

#include "qos.h"
#include "htb.h"

/* A request as the scheduler sees it; the loop embeds it in its own. */
struct sched_request {
    uint32_t tenant;
    enum qos_op op;
    uint32_t len_bytes;
    uint64_t offset;
    uint64_t cost;        /* 1..QOS_TOKENS_MAX */
    uint64_t arrival_ns;  /* set before submit */
    uint64_t dispatch_ns; /* set by the loop when the request goes to the device */
    union {               /* the scheduler's own */
        struct htb_request htb;
        struct sched_request *next;
        uint64_t other[16]; /* for the assertion that a scheduler's struct fits */
    } link;
};

struct sched_tenant {
    const char *name;
    uint64_t reserve_cost_per_s; /* 0: none */
    uint64_t limit_cost_per_s;   /* 0: none */
    uint64_t reserve_ops_per_s;  /* the same in requests, for schedulers that count these; rounded up */
    uint64_t limit_ops_per_s;    /* rounded down, but at least 1 and the reservation */
    uint64_t latency_ns;         /* a request completes so long after its turn (htb with `flight`); 0: no promise */
    uint32_t weight;
};

struct sched_config {
    const struct sched_tenant *tenant;
    uint32_t tenants;
    uint32_t dispatch_depth; /* requests at the device; 0: no bound */
    uint64_t root_cost_per_s;
    uint64_t burst_ns;
    uint64_t now_ns;
    bool maximizer; /* let the root's rate rise while every assurance holds */
    bool flight;    /* bound the device time in flight instead of the rate (htb) */
    bool elevator;  /* dispatch in order of offsets */
};

/* Why open refused: a tenant whose reservation does not fit, and the amount that would fit; or (tenant == UINT32_MAX)
 * a sentence. */
struct sched_refusal {
    uint32_t tenant;
    uint64_t fits_cost_per_s;
    const char *why;
};

struct scheduler {
    const char *name;
    /* The form of a limit: in every window at most limit x window + burst + this many requests. */
    uint32_t limit_requests;
    bool counts_requests; /* limits in requests per second; otherwise in cost per second */
    /* NULL: *refusal says why. */
    void *(*open)(const struct sched_config *config, struct sched_refusal *refusal);
    /* The request waits; it stays alive until complete, or until close. */
    void (*submit)(void *s, struct sched_request *r, uint64_t now_ns);
    /* The next request for the device, or NULL: none now. */
    struct sched_request *(*pop)(void *s, uint64_t now_ns);
    /* The device is done with a request that pop gave, well or not. */
    void (*complete)(void *s, struct sched_request *r, bool ok, uint64_t now_ns);
    /* When pop may return a request without a submit or a complete before it; QOS_NEVER if it needs one of these. */
    uint64_t (*next_ns)(void *s, uint64_t now_ns);
    void (*stats)(void *s, uint32_t tenant, struct qos_stats *out);
    void (*close)(void *s);
    /* What the tenant's next request waits for, in a few words. NULL: the scheduler does not know. */
    const char *(*waits)(void *s, uint32_t tenant);
    /* The root's rate at the moment, in cost per second. NULL: there is none. */
    uint64_t (*root_rate)(void *s);
};

/* Requests in the order of their arrival, for schedulers whose headers count requests and do not link them. */
struct request_list {
    struct sched_request *first, **end;
};

static inline void request_list_init(struct request_list *l)
{
    l->first = NULL;
    l->end = &l->first;
}

static inline void request_list_add(struct request_list *l, struct sched_request *r)
{
    r->link.next = NULL;
    *l->end = r;
    l->end = &r->link.next;
}

/* Takes the first request; there must be one. */
static inline struct sched_request *request_list_take(struct request_list *l)
{
    struct sched_request *r = l->first;
    l->first = r->link.next;
    if (!l->first)
        l->end = &l->first;
    return r;
}

/* htb with `flight`: the present bound, and the tenant that narrowed it last (UINT32_MAX: none). false: not htb, or
 * without `flight`. */
bool scheduler_htb_flight(const struct scheduler *scheduler, void *s, uint64_t *bound_ns, uint32_t *tenant);

extern const struct scheduler scheduler_none, scheduler_htb, scheduler_tags, scheduler_tags_ps, scheduler_token;
#define SCHEDULER_CHOICES "none|htb|tags|tags-ps|token"
const struct scheduler *scheduler_find(int choice); /* index into SCHEDULER_CHOICES */

#endif
