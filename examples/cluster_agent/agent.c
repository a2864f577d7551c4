// A node's side. It begins when etcd knows this server: its number, the period, and the controllers.
#include "agent.h"
#include "common.h"
#include <string.h>

static struct {
    struct agent_config config;
    struct pshift_agent agent;
    bool begun, told;
    char *name; /* [tenants_max][CLUSTER_NAME] those that were named before the agent begins */
    uint32_t names, number;
    uint64_t capacity_per_s, interval_ns, next_report_ns, now_ns, told_capacity;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    uint64_t *told_demand; /* [tenants_max] in the round's report, by queue */
    uint8_t *wire;
    size_t wire_bytes;
} a;

static void must(enum qos_status st)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "agent: %s", qos_strerror(st));
}

static uint64_t remaining(void)
{
    const uint64_t ends_ns = agent_state().ends_ns;
    return ends_ns > a.now_ns ? ends_ns - a.now_ns : cluster.period_ns;
}

/* Plans to spend tokens one interval before the end: a change of demand in the last interval comes too late. */
static uint64_t expect_capacity(void)
{
    uint64_t left_ns = remaining();
    left_ns = left_ns > 2 * a.interval_ns ? left_ns - a.interval_ns : qos_min(left_ns, a.interval_ns);
    return a.config.up() ? qos_mul_div_floor(a.capacity_per_s, left_ns, QOS_NS_PER_S) : 0;
}

/* Waiting requests could use all that the server can do. */
static uint64_t could_use(const struct pshift_report_entry *e, uint32_t queue)
{
    if (!a.config.waits(queue))
        return e->demand;
    return qos_max(e->demand, qos_mul_div_ceil(a.capacity_per_s, remaining(), QOS_NS_PER_S));
}

static void report(bool answer)
{
    struct pshift_message m;
    size_t bytes;
    uint32_t k, queue;
    enum qos_status st;
    a.config.lock();
    if (a.config.before)
        a.config.before(false);
    if (!answer)
        pshift_agent_measure(&a.agent, a.now_ns);
    st = pshift_agent_report(&a.agent, &m, a.entry, a.config.tenants_max);
    for (k = 0; st == QOS_OK && k < m.count; k++) {
        struct pshift_report_entry *e = &a.entry[k];
        if (pshift_agent_open(&a.agent, e->bucket, &queue) != QOS_OK)
            continue;
        if (!answer)
            a.told_demand[queue] = could_use(e, queue);
        e->demand = a.told_demand[queue];
    }
    if (!answer)
        a.told_capacity = expect_capacity();
    a.config.unlock();
    if (st != QOS_OK)
        return; /* an answer with nothing new */
    m.capacity = a.told_capacity;
    must(pshift_report_encode(&m, a.entry, a.wire, a.wire_bytes, &bytes));
    for (k = 0; k < LINKS_CONTROLLERS_MAX; k++)
        links_send(k, LINKS_REPORT, a.wire, bytes);
}

static void install(const struct links_mail *mail)
{
    struct pshift_message m;
    enum qos_status st = pshift_grant_decode(mail->data, mail->bytes, &m, a.grant, a.config.tenants_max);
    if (st != QOS_OK)
        return; /* damaged */
    a.config.lock();
    if (a.config.before)
        a.config.before(true);
    st = pshift_agent_install(&a.agent, a.now_ns, &m, a.grant);
    a.config.unlock();
    a.config.granted(); /* a larger period may have begun in any case */
    if (st != QOS_OK)
        return;
    if (mail->tag == LINKS_GRANT_ASK)
        report(true);
}

/* ---- membership --------------------------------------------------------------------------------------------------- */

/* A controller keeps its place while it is there. */
static void reach_controllers(void)
{
    static char placed[LINKS_CONTROLLERS_MAX][CLUSTER_NAME];
    uint32_t k, n;
    for (k = 0; k < LINKS_CONTROLLERS_MAX; k++)
        if (*placed[k] && !cluster_find(cluster.controller, cluster.controllers, placed[k])) {
            *placed[k] = 0;
            (void)links_reach(k, "", "");
        }
    for (n = 0; n < cluster.controllers; n++) {
        const struct cluster_member *m = &cluster.controller[n];
        if (*m->wrong)
            continue;
        for (k = 0; k < LINKS_CONTROLLERS_MAX && strcmp(placed[k], m->name) != 0; k++)
            ;
        for (k = k == LINKS_CONTROLLERS_MAX ? 0 : k; *placed[k] && strcmp(placed[k], m->name) != 0; k++)
            ;
        snprintf(placed[k], sizeof placed[k], "%s", m->name);
        if (!links_reach(k, m->address, m->key))
            tool_warn("qos/config/controller/%s: %s is no address", m->name, m->address);
    }
}

static void begin(const struct cluster_member *me)
{
    const struct pshift_agent_config config = {.scheduler = a.config.scheduler,
                                               .server = me->number - 1,
                                               .boot = cluster_nonce(),
                                               .period_ns = cluster.period_ns};
    char public_key[LINKS_KEY], secret_key[LINKS_KEY];
    uint32_t k, queue;
    links_read_key(public_key, a.config.options.keys, a.config.options.name, "public");
    links_read_key(secret_key, a.config.options.keys, a.config.options.name, "secret");
    if (strcmp(public_key, me->key) != 0)
        tool_die(TOOL_FAILED, "qos/config/server/%s has another key than %s/%s.public", me->name, a.config.options.keys,
                 me->name);
    links_join(public_key, secret_key);
    a.config.lock();
    must(pshift_agent_init(&a.agent, tool_alloc_aligned(pshift_agent_memsize(&config), 64),
                           pshift_agent_memsize(&config), &config));
    for (k = 0; k < a.names; k++) /* in this order: tenant k has queue k */
        must(pshift_agent_open(&a.agent, cluster_id(a.name + (size_t)k * CLUSTER_NAME), &queue));
    a.number = me->number;
    a.interval_ns = cluster.period_ns / CLUSTER_INTERVALS;
    a.begun = true;
    a.config.unlock();
}

static void table_changed(void)
{
    const struct cluster_member *me = cluster_find(cluster.server, cluster.servers, a.config.options.name);
    const bool good = me && !*me->wrong && cluster.period_ns;
    if (!good && !a.told)
        tool_warn("waits for the key qos/config/%s%s: it is %s", cluster.period_ns ? "server/" : "period",
                  cluster.period_ns ? a.config.options.name : "", me && *me->wrong ? me->wrong : "missing");
    a.told = !good;
    if (!good)
        return;
    if (!a.begun)
        begin(me);
    if (me->number != a.number)
        tool_die(TOOL_FAILED, "qos/config/server/%s has another number now: start again", me->name);
    a.capacity_per_s = me->capacity_per_s;
    reach_controllers();
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

struct pshift_agent_state agent_state(void)
{
    struct pshift_agent_state state = {0};
    if (a.begun)
        (void)pshift_agent_info(&a.agent, &state);
    return state;
}

uint32_t agent_tenant(const char *name)
{
    uint32_t k;
    if (a.begun)
        return pshift_agent_open(&a.agent, cluster_id(name), &k) == QOS_OK ? k : QOS_NONE;
    for (k = 0; k < a.names; k++)
        if (strcmp(a.name + (size_t)k * CLUSTER_NAME, name) == 0)
            return k;
    if (a.names == a.config.tenants_max)
        return QOS_NONE;
    snprintf(a.name + (size_t)a.names * CLUSTER_NAME, CLUSTER_NAME, "%s", name);
    return a.names++;
}

void agent_forget(const char *name)
{
    if (a.begun)
        (void)!pshift_agent_close(&a.agent, cluster_id(name)); /* if requests wait, its queue stays */
}

bool agent_step(uint64_t now_ns)
{
    struct links_mail m;
    const bool news = cluster_step(now_ns);
    a.now_ns = now_ns;
    if (news)
        table_changed();
    if (!a.begun)
        return news;
    while (links_take(&m))
        if (m.tag == LINKS_GRANT || m.tag == LINKS_GRANT_ASK)
            install(&m);
    if (now_ns >= a.next_report_ns) {
        a.next_report_ns = now_ns + a.interval_ns;
        report(false);
    }
    return news;
}

void agent_open(const struct agent_config *config)
{
    a.config = *config;
    a.name = tool_alloc((size_t)config->tenants_max * CLUSTER_NAME);
    a.wire_bytes =
        QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)config->tenants_max * PSHIFT_REPORT_ENTRY_BYTES;
    a.wire = tool_alloc(a.wire_bytes);
    a.entry = tool_alloc(config->tenants_max * sizeof *a.entry);
    a.grant = tool_alloc(config->tenants_max * sizeof *a.grant);
    a.told_demand = tool_alloc(config->tenants_max * sizeof *a.told_demand);
    cluster_open(&config->options);
}
