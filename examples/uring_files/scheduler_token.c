// pshift.h's token scheduler behind scheduler.h (Algorithm 1, weighted as in Section V), for one server that grants its
// own tokens: with a single server there is nothing to shift, so there is no controller.
//
// A token is a request. Tokens are granted for an interval, half of --burst long:
//   - A limit's tokens end with the interval that earned them. A window w touches at most w / interval + 2 intervals, so
//     at most limit x w + burst + 1 request are dispatched in it.
//   - A reservation's tokens stay valid: missed service is made up for, up to CATCH_UP_INTERVALS intervals.
//     Service without R-tokens counts towards an unmet reservation (Section III-D).
//   - A tenant's L-tokens are its limit minus its R-tokens; without a limit they are unlimited.
// A weight is the number of requests in one turn of the round robin, whatever their size.
#include "scheduler.h"
#include "common.h"
#include "pshift.h"
#include <stdlib.h>
#include <string.h>

#define CATCH_UP_INTERVALS 10 /* 100 ms with the default burst: limits what a tenant can claim after idling */

struct token_tenant {
    struct request_list waiting;
    uint64_t reserve_per_s, limit_per_s; /* requests; 0: none */
    uint64_t owed;                       /* requests that the reservation earned and that are not served yet */
    uint64_t granted, borrowed;
};

struct token_sched {
    struct pshift_scheduler sched;
    void *mem;
    uint64_t start_ns, interval_ns;
    uint64_t intervals; /* number of intervals begun; the tokens are those of the last */
    uint64_t waiting;   /* requests of all tenants */
    uint32_t tenants, at_device, dispatch_depth;
    struct token_tenant tenant[];
};

static void must(enum qos_status status, const char *what)
{
    if (status != QOS_OK)
        tool_die(TOOL_FAILED, "%s: %s: this is a bug", what, qos_strerror(status));
}

/* Requests earned in intervals from..to - 1: the difference of two rounded totals, so no fraction is lost. */
static uint64_t earned(const struct token_sched *t, uint64_t rate_per_s, uint64_t from, uint64_t to)
{
    return qos_mul_div_floor(rate_per_s, to * t->interval_ns, QOS_NS_PER_S) -
           qos_mul_div_floor(rate_per_s, from * t->interval_ns, QOS_NS_PER_S);
}

/* Issues new tokens to all if a new interval has begun. */
static void grant(struct token_sched *t, uint64_t now_ns)
{
    uint64_t intervals = qos_elapsed_ns(t->start_ns, now_ns) / t->interval_ns + 1, r, l;
    uint32_t i;
    if (intervals <= t->intervals)
        return;
    for (i = 0; i < t->tenants; i++) {
        struct token_tenant *tenant = &t->tenant[i];
        l = tenant->limit_per_s ? earned(t, tenant->limit_per_s, intervals - 1, intervals) : QOS_UNLIMITED;
        tenant->owed += earned(t, tenant->reserve_per_s, t->intervals, intervals);
        tenant->owed = qos_min(tenant->owed, earned(t, tenant->reserve_per_s, 0, CATCH_UP_INTERVALS) + 1);
        r = qos_min(tenant->owed, l);
        must(pshift_scheduler_set_tokens(&t->sched, i, r, l == QOS_UNLIMITED ? l : l - r),
             "pshift_scheduler_set_tokens");
    }
    t->intervals = intervals;
}

static void token_close(void *s)
{
    struct token_sched *t = s;
    free(t->mem);
    free(t);
}

static void *token_open(const struct sched_config *config, struct sched_refusal *refusal)
{
    struct token_sched *t = tool_alloc(sizeof *t + config->tenants * sizeof t->tenant[0]);
    struct pshift_scheduler_config c;
    uint64_t left = config->root_cost_per_s;
    uint32_t i;
    memset(&c, 0, sizeof c);
    c.queues = config->tenants;
    t->mem = tool_alloc_aligned(pshift_scheduler_memsize(&c), QOS_CACHE_LINE);
    must(pshift_scheduler_init(&t->sched, t->mem, pshift_scheduler_memsize(&c), &c), "pshift_scheduler_init");
    t->tenants = config->tenants;
    t->dispatch_depth = config->dispatch_depth;
    t->start_ns = config->now_ns;
    t->interval_ns = qos_max(config->burst_ns / 2, 1);
    for (i = 0; i < config->tenants; i++) {
        const struct sched_tenant *tenant = &config->tenant[i];
        if (tenant->reserve_cost_per_s > left) { /* requests differ in cost: admission counts device time */
            refusal->why = qos_strerror(QOS_EADMISSION);
            refusal->tenant = i;
            refusal->fits_cost_per_s = left;
            token_close(t);
            return NULL;
        }
        left -= tenant->reserve_cost_per_s;
        t->tenant[i].reserve_per_s = tenant->reserve_ops_per_s;
        t->tenant[i].limit_per_s = tenant->limit_ops_per_s;
        request_list_init(&t->tenant[i].waiting);
        must(pshift_scheduler_change(&t->sched, i, tenant->weight), "pshift_scheduler_change");
    }
    grant(t, config->now_ns);
    return t;
}

static void token_submit(void *s, struct sched_request *r, uint64_t now_ns)
{
    struct token_sched *t = s;
    (void)now_ns;
    request_list_add(&t->tenant[r->tenant].waiting, r);
    t->waiting++;
    must(pshift_scheduler_arrive(&t->sched, r->tenant, 1), "pshift_scheduler_arrive");
}

static struct sched_request *token_pop(void *s, uint64_t now_ns)
{
    struct token_sched *t = s;
    struct token_tenant *tenant;
    struct pshift_pick pick;
    grant(t, now_ns);
    if (t->at_device >= t->dispatch_depth || pshift_scheduler_pick(&t->sched, 0, &pick) != QOS_OK)
        return NULL;
    t->at_device++;
    t->waiting--;
    tenant = &t->tenant[pick.queue];
    tenant->owed -= tenant->owed != 0;
    tenant->granted++;
    tenant->borrowed += pick.backing == PSHIFT_NORMAL;
    return request_list_take(&tenant->waiting);
}

static void token_complete(void *s, struct sched_request *r, bool ok, uint64_t now_ns)
{
    struct token_sched *t = s;
    (void)r;
    (void)ok;
    (void)now_ns;
    t->at_device--;
}

/* Requests still waiting after pop wait for a place at the device or for the next interval's tokens. */
static uint64_t token_next_ns(void *s, uint64_t now_ns)
{
    struct token_sched *t = s;
    if (t->waiting == 0 || t->at_device >= t->dispatch_depth)
        return QOS_NEVER;
    return qos_min(pshift_scheduler_next_ns(&t->sched, now_ns), t->start_ns + t->intervals * t->interval_ns);
}

/* In requests; borrowed: those that took an L-token. */
static void token_stats(void *s, uint32_t tenant, struct qos_stats *out)
{
    struct token_sched *t = s;
    memset(out, 0, sizeof *out);
    out->granted = t->tenant[tenant].granted;
    out->borrowed = t->tenant[tenant].borrowed;
}

const struct scheduler scheduler_token = {"token",      1,           true,           token_open,
                                          token_submit, token_pop,   token_complete, token_next_ns,
                                          token_stats,  token_close, NULL,           NULL};
