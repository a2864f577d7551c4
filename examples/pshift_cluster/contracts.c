// The contracts that etcd has. At the beginning of a period each tenant's text is judged; what is in force, or why a text is
// refused, is written to qos/status/tenant/NAME. A refused text changes nothing: the contract in force, which the status has for
// all controllers, stays. Without one the tenant is not served.
//
// Reservations must fit: all together are at most what the servers can serve. Those in force come first, then later ones in the
// order in which they were written.
//
// A removed tenant gets a contract of nothing for as long as this process lives: servers may ask for it for ever. After three
// periods nobody holds tokens of it, and another token= may come.
#include "cluster.h"
#include <stdlib.h>
#include <string.h>

#define STATUSES_MAX 6 /* on their way at a time; others follow in the next period */
#define GONE_PERIODS 3

struct known { /* a tenant that this controller has given a contract */
    uint64_t id;
    uint32_t gone; /* periods since it was removed, at most GONE_PERIODS */
    bool there;
};

static struct {
    struct known known[CLUSTER_TENANTS_MAX]; /* by id */
    uint32_t count, statuses;
    uint64_t capacity, reserved; /* tokens per second */
} k;

/* ---- status ------------------------------------------------------------------------------------------------------ */

static void written(const struct etcd_reply *reply)
{
    (void)reply; /* it is compared again in the next period */
    k.statuses--;
}

void contracts_status(const char *key, const char *text)
{
    if (k.statuses == STATUSES_MAX)
        return;
    k.statuses++;
    etcd_put(key, text, written);
}

/* ---- known tenants ----------------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const struct known *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct known *find(uint64_t id)
{
    const struct known key = {.id = id};
    return bsearch(&key, k.known, k.count, sizeof *k.known, by_id);
}

bool contracts_have(uint64_t bucket)
{
    return find(bucket) != NULL;
}

static void remember(uint64_t id)
{
    uint32_t at = k.count;
    for (; at > 0 && k.known[at - 1].id > id; at--)
        k.known[at] = k.known[at - 1];
    k.known[at] = (struct known){.id = id, .there = true};
    k.count++;
}

static void change(struct pshift_controller *controller, uint64_t id, uint64_t reservation, uint64_t limit)
{
    const enum qos_status st = pshift_controller_change(controller, id, reservation, limit);
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "a contract: %s", qos_strerror(st)); /* all were checked */
}

static void retire(struct pshift_controller *controller)
{
    uint32_t n;
    for (n = 0; n < k.count; n++) {
        struct known *t = &k.known[n];
        t->gone = t->there ? 0 : (uint32_t)qos_min(t->gone + 1, GONE_PERIODS);
        if (!t->there)
            change(controller, t->id, 0, QOS_NOTHING);
    }
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* NULL: the text is a contract that can be in force now. old: what is in force; NULL: nothing. */
static const char *judge_text(const struct cluster_tenant *t, const struct cluster_contract *old,
                              struct cluster_contract *wanted)
{
    static char why[80];
    const char *wrong = cluster_contract(t->text, cluster.period_ns, wanted);
    const struct known *has = find(t->id);
    const uint64_t room = qos_sat_sub(k.capacity, k.reserved - (old ? old->reserve_per_s : 0));
    if (wrong)
        return wrong;
    if (has && has->there)
        return "its name is too much like another's: take another name";
    if ((has && has->gone && has->gone < GONE_PERIODS) || (old && old->token_bytes != wanted->token_bytes))
        return "token= of a tenant does not change: remove it, and add it three periods later";
    if (!has && k.count == CLUSTER_TENANTS_MAX)
        return "there are too many tenants";
    if (wanted->reserve_per_s > room && (!old || wanted->reserve_per_s > old->reserve_per_s)) {
        snprintf(why, sizeof why, "reserve= does not fit: %" PRIu64 " tokens a second are left", room);
        return why;
    }
    return NULL;
}

static void apply(struct pshift_controller *controller, const struct cluster_tenant *t)
{
    struct cluster_contract old, wanted;
    char in_force[CLUSTER_TEXT] = "", status[2 * CLUSTER_TEXT], key[100];
    const bool had = cluster_in_force(t->status, cluster.period_ns, &old, in_force);
    const char *why = judge_text(t, had ? &old : NULL, &wanted);
    struct known *has = find(t->id);
    if (why && had)
        snprintf(status, sizeof status, "in force: %s; refused: %s", in_force, why);
    else
        snprintf(status, sizeof status, "%s%s", why ? "refused: " : "in force: ", why ? why : t->text);
    status[CLUSTER_TEXT - 1] = 0;
    snprintf(key, sizeof key, "status/tenant/%s", t->name);
    if (strcmp(status, t->status) != 0)
        contracts_status(key, status);
    if ((has && (has->there || (why && has->gone))) || (!has && k.count == CLUSTER_TENANTS_MAX))
        return; /* another tenant's id, one that was removed a moment ago, or one too many */
    if (!has)
        remember(t->id);
    has = find(t->id);
    has->there = true;
    if (why && !had) {
        change(controller, t->id, 0, QOS_NOTHING);
        return;
    }
    if (!why)
        k.reserved = qos_sat_add(k.reserved - (had ? old.reserve_per_s : 0), wanted.reserve_per_s);
    change(controller, t->id, why ? old.reservation : wanted.reservation, why ? old.limit : wanted.limit);
}

static int by_revision(const void *a, const void *b)
{
    const struct cluster_tenant *const *x = a, *const *y = b;
    return (*x)->revision < (*y)->revision ? -1 : (*x)->revision > (*y)->revision;
}

void contracts_apply(struct pshift_controller *controller)
{
    static const struct cluster_tenant *order[CLUSTER_TENANTS_MAX];
    struct cluster_contract contract;
    char period[CLUSTER_TEXT];
    uint32_t n;
    snprintf(period, sizeof period, "in force: %s%s", cluster.period,
             strcmp(cluster.period, cluster.period_asked) != 0 ? "; another one needs a restart of all" : "");
    if (strcmp(period, cluster.period_status) != 0)
        contracts_status("status/period", period);
    k.capacity = k.reserved = 0;
    for (n = 0; n < cluster.servers; n++)
        k.capacity = qos_sat_add(k.capacity, *cluster.server[n].wrong ? 0 : cluster.server[n].capacity_per_s);
    for (n = 0; n < cluster.tenants; n++) {
        order[n] = &cluster.tenant[n];
        if (cluster_in_force(order[n]->status, cluster.period_ns, &contract, NULL))
            k.reserved = qos_sat_add(k.reserved, contract.reserve_per_s);
    }
    qsort(order, cluster.tenants, sizeof *order, by_revision);
    for (n = 0; n < k.count; n++)
        k.known[n].there = false;
    for (n = 0; n < cluster.tenants; n++)
        apply(controller, order[n]);
    retire(controller);
}
