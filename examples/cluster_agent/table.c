// Reads all keys under qos/ at once, so that what is in the table was there at one time, and watches them.
#include "table.h"
#include "common.h"
#include "tokens.h"
#include <stdlib.h>
#include <string.h>

#define READ_AGAIN_NS (10 * QOS_NS_PER_S)
#define RETRY_NS (QOS_NS_PER_S / 5)
#define LOOK_NS (QOS_NS_PER_S / 20) /* between two reads, at least */
#define IN_FORCE "in force: "

struct cluster_table cluster;

static struct {
    bool reading, stale, news;
    char told[201];   /* what was said of etcd since it answered */
    bool watching[2]; /* config/ and status/: the owner's key changes in each period */
    uint64_t read_ns, next_ns, told_ns;
} t;

uint64_t cluster_id(const char *name)
{
    return tokens_id(name, strlen(name));
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

bool cluster_is_name(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n < CLUSTER_NAME &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == 0;
}

/* Tokens per period, rounded down. */
static uint64_t per_period(uint64_t per_s, uint64_t token_bytes, uint64_t period_ns)
{
    return qos_mul_div_floor(per_s, period_ns, QOS_NS_PER_S) / (token_bytes ? token_bytes : 1);
}

const char *cluster_contract(const char *text, uint64_t period_ns, struct cluster_contract *out)
{
    char copy[CLUSTER_TEXT], *rest = copy, *name, *value;
    const char *reserve = NULL, *limit = NULL, *why = NULL;
    uint64_t reserve_per_s = 0, limit_per_s = 0;
    memset(out, 0, sizeof *out);
    snprintf(copy, sizeof copy, "%s", text);
    if (strlen(text) > CLUSTER_TEXT / 2 || strchr(text, ';'))
        return "it is too long, or has a semicolon";
    while (opt_next_pair(&rest, &name, &value)) {
        if (!value || !*value)
            return "write reserve=,limit=,token=, each with a value";
        if ((reserve && strcmp(name, "reserve") == 0) || (limit && strcmp(name, "limit") == 0))
            return "reserve= or limit= is given twice; give it once";
        if (strcmp(name, "reserve") == 0)
            reserve = value;
        else if (strcmp(name, "limit") == 0)
            limit = value;
        else if (strcmp(name, "token") == 0)
            why = opt_size(value, &out->token_bytes);
        else
            return "reserve=, limit= and token= are known";
        if (why || (strcmp(name, "token") == 0 && out->token_bytes == 0))
            return "token= is a size, such as 64k";
    }
    if (reserve && (out->token_bytes ? opt_rate : opt_count)(reserve, &reserve_per_s) != NULL)
        return "reserve= is a number per second, such as 20M";
    if (limit && (out->token_bytes ? opt_rate : opt_count)(limit, &limit_per_s) != NULL)
        return "limit= is a number per second, such as 20M";
    out->reservation = per_period(reserve_per_s, out->token_bytes, period_ns);
    out->limit = limit ? per_period(limit_per_s, out->token_bytes, period_ns) : QOS_UNLIMITED;
    out->reserve_per_s = out->token_bytes ? reserve_per_s / out->token_bytes : reserve_per_s;
    if (limit && out->limit == 0)
        return "limit= is less than one token in a period";
    if (out->reservation > out->limit || out->reservation > PSHIFT_COUNT_MAX)
        return "reserve= is more than limit=";
    return NULL;
}

bool cluster_in_force(const char *status, uint64_t period_ns, struct cluster_contract *out, char text[CLUSTER_TEXT])
{
    char room[CLUSTER_TEXT];
    if (strncmp(status, IN_FORCE, sizeof IN_FORCE - 1) != 0)
        return false;
    snprintf(room, sizeof room, "%.*s", (int)strcspn(status + sizeof IN_FORCE - 1, ";"), status + sizeof IN_FORCE - 1);
    if (text)
        memcpy(text, room, sizeof room);
    return cluster_contract(room, period_ns, out) == NULL;
}

static void parse_member(struct cluster_member *m, const char *name, const char *text, bool server)
{
    char copy[CLUSTER_TEXT], *rest = copy, *key, *value;
    uint64_t number = 0;
    const char *why = NULL;
    memset(m, 0, sizeof *m);
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(copy, sizeof copy, "%s", text);
    while (!why && opt_next_pair(&rest, &key, &value)) {
        if (!value)
            why = "each word needs a value";
        else if (strcmp(key, "key") == 0 && links_is_key(value))
            snprintf(m->key, sizeof m->key, "%s", value);
        else if (strcmp(key, "key") == 0)
            why = "key= is a public key of pshift_cluster keys";
        else if (server && strcmp(key, "number") == 0)
            why = opt_count(value, &number);
        else if (server && strcmp(key, "capacity") == 0)
            why = opt_count(value, &m->capacity_per_s);
        else if (!server && strcmp(key, "address") == 0 && strlen(value) < sizeof m->address)
            snprintf(m->address, sizeof m->address, "%s", value);
        else
            why = server ? "number=, capacity= and key= are known" : "address= and key= are known";
    }
    m->number = number <= CLUSTER_SERVERS_MAX ? (uint32_t)number : 0;
    if (!why && !*m->key)
        why = "key= is missing";
    if (!why && server && m->number == 0)
        why = "number= is missing: 1 to 1024, no other server's";
    if (!why && server && m->capacity_per_s == 0)
        why = "capacity= is missing: tokens per second";
    if (!why && !server && !strchr(m->address, ':'))
        why = "address= is missing: HOST:PORT";
    snprintf(m->wrong, sizeof m->wrong, "%s", why ? why : "");
}

const struct cluster_member *cluster_find(const struct cluster_member *list, uint32_t count, const char *name)
{
    uint32_t k;
    for (k = 0; k < count; k++)
        if (strcmp(list[k].name, name) == 0)
            return &list[k];
    return NULL;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* NAME of PREFIX/NAME, or NULL. */
static const char *below(const char *key, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 && cluster_is_name(key + n) ? key + n : NULL;
}

static void take_status(struct cluster_member *list, uint32_t count, const char *name, const char *value)
{
    struct cluster_member *m = (struct cluster_member *)cluster_find(list, count, name);
    if (m)
        snprintf(m->status, sizeof m->status, "%s", value);
}

static void same_number_twice(void)
{
    uint32_t j, k;
    for (j = 0; j < cluster.servers; j++)
        for (k = 0; k < j; k++)
            if (cluster.server[j].number == cluster.server[k].number && !*cluster.server[k].wrong &&
                !*cluster.server[j].wrong)
                snprintf(cluster.server[j].wrong, CLUSTER_TEXT, "number=%u is %s's", cluster.server[j].number,
                         cluster.server[k].name);
}

/* qos/config/ comes before qos/status/, so its names are known when their status comes. */
static void take(const struct etcd_pair *p)
{
    const char *name;
    uint32_t k;
    if (strcmp(p->key, "config/period") == 0) {
        uint64_t ns = 0;
        if (opt_time(p->value, &ns) != NULL || ns < 50000000 || ns > 3600 * QOS_NS_PER_S)
            ns = 0;
        snprintf(cluster.period_asked, sizeof cluster.period_asked, "%.20s", p->value);
        if (cluster.period_ns == 0 && ns)
            snprintf(cluster.period, sizeof cluster.period, "%.20s", p->value);
        if (cluster.period_ns == 0)
            cluster.period_ns = ns;
    } else if ((name = below(p->key, "config/tenant/")) != NULL && cluster.tenants < CLUSTER_TENANTS_MAX) {
        struct cluster_tenant *n = &cluster.tenant[cluster.tenants++];
        memset(n, 0, sizeof *n);
        snprintf(n->name, sizeof n->name, "%s", name);
        n->id = cluster_id(name);
        snprintf(n->text, sizeof n->text, "%s", p->value);
        n->revision = p->revision;
    } else if ((name = below(p->key, "config/server/")) != NULL && cluster.servers < CLUSTER_SERVERS_MAX) {
        parse_member(&cluster.server[cluster.servers++], name, p->value, true);
    } else if ((name = below(p->key, "config/controller/")) != NULL && cluster.controllers < LINKS_CONTROLLERS_MAX) {
        parse_member(&cluster.controller[cluster.controllers++], name, p->value, false);
    } else if ((name = below(p->key, "status/tenant/")) != NULL) {
        for (k = 0; k < cluster.tenants; k++)
            if (strcmp(cluster.tenant[k].name, name) == 0)
                snprintf(cluster.tenant[k].status, CLUSTER_TEXT, "%s", p->value);
    } else if ((name = below(p->key, "status/server/")) != NULL) {
        take_status(cluster.server, cluster.servers, name, p->value);
    } else if ((name = below(p->key, "status/controller/")) != NULL) {
        take_status(cluster.controller, cluster.controllers, name, p->value);
    } else if (strcmp(p->key, "status/period") == 0) {
        snprintf(cluster.period_status, CLUSTER_TEXT, "%s", p->value);
    }
}

static void config_changed(void)
{
    t.watching[0] = false;
    t.stale = true;
}

static void status_changed(void)
{
    t.watching[1] = false;
    t.stale = true;
}

static void found(const struct etcd_reply *reply)
{
    size_t k;
    t.reading = false;
    if (reply->error) {
        const uint64_t now_ns = tool_now_ns();
        if (!*t.told ||
            (strncmp(t.told, reply->error, sizeof t.told - 1) != 0 && now_ns >= t.told_ns + READ_AGAIN_NS)) {
            snprintf(t.told, sizeof t.told, "%s", reply->error);
            tool_warn("etcd: %s", t.told);
            t.told_ns = now_ns;
        }
        t.next_ns = now_ns + RETRY_NS;
        return;
    }
    *t.told = 0;
    cluster.tenants = cluster.servers = cluster.controllers = 0;
    for (k = 0; k < reply->pairs; k++)
        take(&reply->pair[k]);
    same_number_twice();
    t.news = true;
    if (!t.watching[0])
        etcd_watch("config/", reply->store, config_changed);
    if (!t.watching[1])
        etcd_watch("status/", reply->store, status_changed);
    t.watching[0] = t.watching[1] = true;
}

bool cluster_step(uint64_t now_ns)
{
    bool news;
    etcd_step();
    if (!t.reading && (now_ns >= t.next_ns || (t.stale && now_ns >= t.read_ns + LOOK_NS))) {
        t.reading = true;
        t.stale = false;
        t.read_ns = now_ns;
        t.next_ns = now_ns + READ_AGAIN_NS;
        etcd_read_all("", found);
    }
    news = t.news;
    t.news = false;
    return news;
}

void cluster_open(const struct cluster_options *options)
{
    const struct etcd_config config = {options->endpoints, "qos/",        options->login,
                                       options->ca,        options->cert, options->key};
    etcd_open(&config);
}
