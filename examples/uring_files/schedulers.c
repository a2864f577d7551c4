// The schedulers behind scheduler.h: none (first in, first out) and htb (htb.h's queues, the paper's ODIS).
#include "scheduler.h"
#include "common.h"
#include <stdlib.h>
#include <string.h>

const struct scheduler *scheduler_find(int choice)
{
    static const struct scheduler *const all[] = {&scheduler_none, &scheduler_htb, &scheduler_tags, &scheduler_tags_ps,
                                                  &scheduler_token};
    return all[choice];
}

/* ---- none: first come, first served; up to dispatch_depth requests at the device -------------------------- */

struct none {
    struct request_list waiting;
    uint32_t at_device, dispatch_depth;
    struct qos_stats stats[];
};

static void *none_open(const struct sched_config *config, struct sched_refusal *refusal)
{
    struct none *n = tool_alloc(sizeof *n + config->tenants * sizeof n->stats[0]);
    (void)refusal;
    request_list_init(&n->waiting);
    n->dispatch_depth = config->dispatch_depth ? config->dispatch_depth : UINT32_MAX;
    return n;
}

static void none_submit(void *s, struct sched_request *r, uint64_t now_ns)
{
    struct none *n = s;
    (void)now_ns;
    request_list_add(&n->waiting, r);
}

static struct sched_request *none_pop(void *s, uint64_t now_ns)
{
    struct none *n = s;
    struct sched_request *r;
    (void)now_ns;
    if (!n->waiting.first || n->at_device >= n->dispatch_depth)
        return NULL;
    r = request_list_take(&n->waiting);
    n->at_device++;
    n->stats[r->tenant].granted += r->cost;
    return r;
}

static void none_complete(void *s, struct sched_request *r, bool ok, uint64_t now_ns)
{
    struct none *n = s;
    (void)r;
    (void)ok;
    (void)now_ns;
    n->at_device--;
}

static uint64_t none_next_ns(void *s, uint64_t now_ns)
{
    (void)s;
    (void)now_ns;
    return QOS_NEVER;
}

static void none_stats(void *s, uint32_t tenant, struct qos_stats *out)
{
    struct none *n = s;
    *out = n->stats[tenant];
}

const struct scheduler scheduler_none = {
    "none", 0, false, none_open, none_submit, none_pop, none_complete, none_next_ns, none_stats, free, NULL, NULL};

/* ---- htb: tenant i is class i + 1 below the root; class 0 stays empty and reserves nothing ----------------- */

/* Half of htb.h's default. Such devices serve thousands of requests in 50 ms, enough to measure their rate, and the
 * ramp-up must be a small part of a run of a few seconds: the root's rate doubles in 1.2 s at the fastest. */
#define MAXIMIZE_INTERVAL_NS UINT64_C(50000000)

struct htb_sched {
    struct htb tree;
    void *mem;
    bool maximizer;
};

static void htb_sched_close(void *s)
{
    struct htb_sched *h = s;
    free(h->mem);
    free(h);
}

static void *htb_sched_open(const struct sched_config *config, struct sched_refusal *refusal)
{
    struct htb_sched *h = tool_alloc(sizeof *h);
    struct htb_config c;
    enum qos_status status;
    uint32_t i;
    memset(&c, 0, sizeof c);
    c.classes = config->tenants + 1;
    c.rate_per_s[0] = config->root_cost_per_s;
    c.burst_ns = config->burst_ns;
    c.request_max_tokens = QOS_NOTHING;
    c.start_ns = config->now_ns;
    c.device_max = config->dispatch_depth;
    c.maximize_interval_ns = MAXIMIZE_INTERVAL_NS;
    c.bound = config->flight ? HTB_BY_FLIGHT : HTB_BY_RATE;
    /* On flash the order does not matter: a dispatched request goes to the device, and is charged, at once. For a disk
     * as many requests again are kept for sorting. */
    c.order = config->elevator ? HTB_ELEVATOR : HTB_FIFO;
    c.dispatch_max = config->elevator ? 2 * config->dispatch_depth : config->dispatch_depth;
    refusal->tenant = UINT32_MAX;
    refusal->why = htb_config_error(&c);
    if (refusal->why) {
        free(h);
        return NULL;
    }
    h->maximizer = config->maximizer;
    h->mem = tool_alloc_aligned(htb_memsize(&c), 64);
    status = htb_init(&h->tree, h->mem, htb_memsize(&c), &c);
    refusal->why = qos_strerror(status);
    for (i = 0; status == QOS_OK && i < config->tenants; i++) {
        const struct sched_tenant *t = &config->tenant[i];
        struct htb_class class;
        uint64_t fits[HTB_RESOURCES_MAX];
        memset(&class, 0, sizeof class);
        class.weight = t->weight;
        class.rate_per_s[0] = qos_min(t->reserve_cost_per_s, QOS_RATE_MAX); /* more is not admitted anyway */
        class.limit_per_s[0] = qos_min(t->limit_cost_per_s, QOS_RATE_MAX);
        class.latency_ns = config->flight ? t->latency_ns : 0;
        status = htb_reserve(&h->tree, config->now_ns, i + 1, &class, fits);
        if (status != QOS_OK) {
            refusal->why = qos_strerror(status);
            refusal->tenant = i;
            refusal->fits_cost_per_s = fits[0];
        }
    }
    if (status == QOS_OK)
        return h;
    htb_sched_close(h);
    return NULL;
}

static void htb_sched_submit(void *s, struct sched_request *r, uint64_t now_ns)
{
    struct htb_sched *h = s;
    struct htb_request *q = &r->link.htb;
    memset(q, 0, sizeof *q);
    q->class_id = r->tenant + 1;
    q->tokens[0] = r->cost;
    q->offset = r->offset;
    if (htb_submit(&h->tree, now_ns, q) != QOS_OK)
        tool_die(TOOL_FAILED, "htb_submit refused a valid request: this is a bug");
}

static struct sched_request *htb_sched_pop(void *s, uint64_t now_ns)
{
    struct htb_sched *h = s;
    struct htb_request *q = htb_dispatch(&h->tree, now_ns);
    return q ? (struct sched_request *)(void *)((char *)q - offsetof(struct sched_request, link)) : NULL;
}

static void htb_sched_complete(void *s, struct sched_request *r, bool ok, uint64_t now_ns)
{
    struct htb_sched *h = s;
    if (htb_complete(&h->tree, now_ns, ok ? HTB_DONE : HTB_NOT_DONE, NULL, &r->link.htb) != QOS_OK)
        tool_die(TOOL_FAILED, "htb_complete does not know a request that it dispatched: this is a bug");
}

static uint64_t htb_sched_next_ns(void *s, uint64_t now_ns)
{
    struct htb_sched *h = s;
    if (h->maximizer)
        (void)htb_maximize(&h->tree, now_ns, false);
    return htb_dispatch_next_ns(&h->tree, now_ns);
}

static uint64_t htb_sched_root_rate(void *s)
{
    struct htb_sched *h = s;
    struct htb_state report;
    return htb_info(&h->tree, &report) == QOS_OK ? report.rate_per_s[0] : 0;
}

static void htb_sched_stats(void *s, uint32_t tenant, struct qos_stats *out)
{
    struct htb_sched *h = s;
    if (htb_stats(&h->tree, tenant + 1, out) != QOS_OK)
        tool_die(TOOL_FAILED, "htb_stats does not know a tenant: this is a bug");
}

static const char *htb_sched_waits(void *s, uint32_t tenant)
{
    static const char *const why[] = {[HTB_WAITS_NOT] = "nothing",
                                      [HTB_OWN_LIMIT] = "its limit",
                                      [HTB_PARENT_LIMIT] = "its group's limit",
                                      [HTB_TURN] = "its turn",
                                      [HTB_LENDERS_TOKENS] = "tokens to borrow"};
    struct htb_sched *h = s;
    struct htb_class_state state;
    return htb_class_info(&h->tree, tenant + 1, &state) == QOS_OK ? why[state.waits] : "nothing";
}

bool scheduler_htb_flight(const struct scheduler *scheduler, void *s, uint64_t *bound_ns, uint32_t *tenant)
{
    struct htb_sched *h = s;
    struct htb_state report;
    if (scheduler != &scheduler_htb || htb_info(&h->tree, &report) != QOS_OK || report.flight_bound_ns == QOS_UNLIMITED)
        return false;
    *bound_ns = report.flight_bound_ns;
    *tenant = report.flight_by == QOS_NONE ? UINT32_MAX : report.flight_by - 1;
    return true;
}

const struct scheduler scheduler_htb = {"htb",
                                        1,
                                        false,
                                        htb_sched_open,
                                        htb_sched_submit,
                                        htb_sched_pop,
                                        htb_sched_complete,
                                        htb_sched_next_ns,
                                        htb_sched_stats,
                                        htb_sched_close,
                                        htb_sched_waits,
                                        htb_sched_root_rate};
