// tags.h behind scheduler.h: reward scheduling (tags) and proportional sharing (tags-ps).
//
// Reservations and limits count device time (count_cost), so the profiled rate is admission's capacity for any mix of
// sizes. Under reward the header measures service times itself (attribution); completions that are
// reaped together carry one time.
#include "scheduler.h"
#include "common.h"
#include "tags.h"
#include <stdlib.h>
#include <string.h>

struct tags_sched {
    struct tags tags;
    void *mem;
    uint32_t at_device, dispatch_depth;
};

QOS_STATIC_ASSERT(sizeof(struct tags_request) <= sizeof(((struct sched_request *)NULL)->link.other),
                  "the link has room for a request of tags.h");

static struct tags_request *link_of(struct sched_request *r)
{
    return (struct tags_request *)(void *)r->link.other;
}

static void tags_sched_close(void *s)
{
    struct tags_sched *t = s;
    free(t->mem);
    free(t);
}

static void *tags_sched_open_mode(const struct sched_config *config, struct sched_refusal *refusal, enum tags_mode mode)
{
    struct tags_sched *t = tool_alloc(sizeof *t);
    struct tags_config c;
    struct tags_state report;
    enum qos_status status;
    uint32_t i;
    memset(&c, 0, sizeof c);
    c.clients = config->tenants;
    c.mode = mode;
    c.count_cost = c.intrusive = c.count_by_client = true;
    c.cost_max = QOS_TOKENS_MAX; /* the cost is ns of device time */
    c.at_device_max = config->dispatch_depth;
    c.capacity_per_s = config->root_cost_per_s;
    c.limit_burst_ns = config->burst_ns;
    c.attribute = mode == TAGS_REWARD;
    c.channels = c.attribute ? TAGS_CHANNELS_ALL : 0; /* flash: what is dispatched is served at once */
    t->dispatch_depth = config->dispatch_depth;
    t->mem = tool_alloc_aligned(tags_memsize(&c), QOS_CACHE_LINE);
    status = tags_init(&t->tags, t->mem, tags_memsize(&c), &c);
    refusal->tenant = UINT32_MAX;
    refusal->why = status == QOS_OK ? NULL : tags_config_error(&c);
    for (i = 0; status == QOS_OK && i < config->tenants; i++) {
        const struct sched_tenant *tenant = &config->tenant[i];
        struct tags_client terms;
        memset(&terms, 0, sizeof terms);
        terms.weight = tenant->weight;
        terms.reservation_per_s = qos_min(tenant->reserve_cost_per_s, QOS_RATE_MAX);
        terms.limit_per_s = qos_min(tenant->limit_cost_per_s, QOS_RATE_MAX);
        status = tags_add(&t->tags, config->now_ns, i, &terms);
        if (status != QOS_OK) {
            refusal->why = qos_strerror(status);
            refusal->tenant = i;
            if (tags_info(&t->tags, QOS_NONE, &report) == QOS_OK)
                refusal->fits_cost_per_s = report.admissible_per_s;
        }
    }
    if (status == QOS_OK)
        return t;
    tags_sched_close(t);
    return NULL;
}

static void *tags_sched_open(const struct sched_config *config, struct sched_refusal *refusal)
{
    return tags_sched_open_mode(config, refusal, TAGS_REWARD);
}

static void *tags_sched_open_ps(const struct sched_config *config, struct sched_refusal *refusal)
{
    return tags_sched_open_mode(config, refusal, TAGS_PS);
}

static void tags_sched_submit(void *s, struct sched_request *r, uint64_t now_ns)
{
    struct tags_sched *t = s;
    struct tags_request *q = link_of(r);
    memset(q, 0, sizeof *q);
    q->cost = r->cost;
    if (tags_push(&t->tags, now_ns, r->tenant, q) != QOS_OK)
        tool_die(TOOL_FAILED, "tags_push refused a valid request: this is a bug");
}

static struct sched_request *tags_sched_pop(void *s, uint64_t now_ns)
{
    struct tags_sched *t = s;
    struct tags_request *q;
    if (t->at_device >= t->dispatch_depth || tags_pop(&t->tags, now_ns, &q) != QOS_OK)
        return NULL;
    t->at_device++;
    return (struct sched_request *)(void *)((char *)q - offsetof(struct sched_request, link));
}

static void tags_sched_complete(void *s, struct sched_request *r, bool ok, uint64_t now_ns)
{
    struct tags_sched *t = s;
    const struct tags_grant *grant = &link_of(r)->grant;
    enum qos_status status = ok ? tags_complete(&t->tags, now_ns, grant, 0) : tags_fail(&t->tags, now_ns, grant, 0);
    t->at_device--;
    if (status != QOS_OK)
        tool_die(TOOL_FAILED, "tags.h does not know a request that it dispatched: this is a bug");
}

static uint64_t tags_sched_next_ns(void *s, uint64_t now_ns)
{
    struct tags_sched *t = s;
    return t->at_device >= t->dispatch_depth ? QOS_NEVER : tags_next_ns(&t->tags, now_ns);
}

/* In ns of device time, like the cost. */
static void tags_sched_stats(void *s, uint32_t tenant, struct qos_stats *out)
{
    struct tags_sched *t = s;
    if (tags_stats(&t->tags, tenant, out) != QOS_OK)
        memset(out, 0, sizeof *out);
}

const struct scheduler scheduler_tags = {"tags",
                                         1,
                                         false,
                                         tags_sched_open,
                                         tags_sched_submit,
                                         tags_sched_pop,
                                         tags_sched_complete,
                                         tags_sched_next_ns,
                                         tags_sched_stats,
                                         tags_sched_close,
                                         NULL,
                                         NULL};
const struct scheduler scheduler_tags_ps = {"tags-ps",
                                            1,
                                            false,
                                            tags_sched_open_ps,
                                            tags_sched_submit,
                                            tags_sched_pop,
                                            tags_sched_complete,
                                            tags_sched_next_ns,
                                            tags_sched_stats,
                                            tags_sched_close,
                                            NULL,
                                            NULL};
