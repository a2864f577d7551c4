// A gate as a node of a pShift cluster: reports its buckets' demand to every controller and installs the granted
// tokens. The period is the one that the last grant names.
#include "agent.h"
#include "../pshift_cluster/cluster.h"

#define LOOK_NS 1000000      /* between checks for messages */
#define LOOK_OFTEN_NS 300000 /* while a grant is on its way */
#define WAIT_NS 100000000    /* after this no grant is expected */

struct agent_config agent_config;

static struct {
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    pthread_t thread;
    uint32_t buckets;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    uint64_t *told; /* [buckets] demand in the round's report */
    uint8_t *wire;
    size_t wire_bytes;
    uint64_t interval_ns, next_report_ns;
    uint64_t now_ns, asked_ns, told_capacity;
} a;

static void must(enum qos_status st)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "agent: %s", qos_strerror(st));
}

/* ---- reports and grants -------------------------------------------------------------------------------------------- */

static uint64_t remaining(void)
{
    struct pshift_agent_state state;
    (void)pshift_agent_info(&a.agent, &state);
    return state.ends_ns > a.now_ns ? state.ends_ns - a.now_ns : agent_config.period_ns;
}

/* Plans to spend tokens one interval before the end: a change of demand in the last interval comes too late. */
static uint64_t expect_capacity(void)
{
    uint64_t left_ns = remaining();
    left_ns = left_ns > 2 * a.interval_ns ? left_ns - a.interval_ns : qos_min(left_ns, a.interval_ns);
    return gate_backend_up() ? qos_mul_div_floor(agent_config.capacity, left_ns, QOS_NS_PER_S) : 0;
}

/* Waiting clients could use all of memcached's capacity: their arrivals only follow their service. */
static uint64_t could_use(const struct pshift_report_entry *e)
{
    if (bucket_waiting((uint32_t)e->bucket) == 0)
        return e->demand;
    return qos_max(e->demand, qos_mul_div_ceil(agent_config.capacity, remaining(), QOS_NS_PER_S));
}

static void report(bool answer)
{
    struct pshift_message m;
    size_t bytes;
    uint32_t k;
    enum qos_status st;
    pthread_mutex_lock(&buckets_lock);
    if (!answer)
        pshift_agent_measure(&a.agent, a.now_ns);
    st = pshift_agent_report(&a.agent, &m, a.entry, a.buckets);
    for (k = 0; st == QOS_OK && k < m.count; k++) {
        struct pshift_report_entry *e = &a.entry[k];
        if (!answer)
            a.told[e->bucket] = could_use(e);
        e->demand = a.told[e->bucket];
    }
    pthread_mutex_unlock(&buckets_lock);
    if (st != QOS_OK)
        return; /* an answer with nothing new */
    if (!answer)
        a.told_capacity = expect_capacity();
    m.capacity = a.told_capacity;
    must(pshift_report_encode(&m, a.entry, a.wire, a.wire_bytes, &bytes));
    for (k = 0; k < CONTROLLERS_MAX; k++)
        mail_send((int)k, MAIL_REPORT, a.wire, bytes);
    a.asked_ns = a.now_ns;
}

static void install(const struct mail *mail)
{
    struct pshift_message m;
    enum qos_status st = pshift_grant_decode(mail->data, mail->bytes, &m, a.grant, a.buckets);
    if (st != QOS_OK)
        return; /* damaged */
    pthread_mutex_lock(&buckets_lock);
    st = pshift_agent_install(&a.agent, a.now_ns, &m, a.grant);
    pthread_mutex_unlock(&buckets_lock);
    if (st != QOS_OK)
        return;
    a.asked_ns = 0;
    workers_wake();
    if (mail->tag == MAIL_GRANT_ASK)
        report(true);
}

/* ---- periods ------------------------------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    (void)arg;
    while (!gate_ended()) { /* while the gate drains, too: what waits needs tokens */
        struct mail m;
        bool waits;
        a.now_ns = tool_now_ns();
        while (mail_take(&m))
            if (m.tag == MAIL_GRANT || m.tag == MAIL_GRANT_ASK)
                install(&m);
        if (a.now_ns >= a.next_report_ns) {
            a.next_report_ns = a.now_ns + a.interval_ns;
            report(false);
        }
        waits = a.now_ns - a.asked_ns < WAIT_NS;
        tool_sleep_until_ns(a.now_ns + (waits ? LOOK_OFTEN_NS : LOOK_NS));
    }
    return NULL;
}

void agent_open(uint32_t buckets, bool limits)
{
    struct pshift_scheduler_config sc = {.queues = buckets};
    struct pshift_agent_config ac = {.scheduler = &a.scheduler, .server = (uint32_t)agent_config.number - 1};
    uint32_t k, queue;
    settings.nodes = (uint32_t)agent_config.nodes;
    settings.number = agent_config.number;
    settings.controllers = agent_config.controllers;
    settings.keys = agent_config.keys;
    a.buckets = buckets;
    a.interval_ns = agent_config.period_ns / agent_config.intervals;
    ac.boot = owner_nonce();
    ac.period_ns = agent_config.period_ns;
    ac.default_l_tokens = limits ? 0 : QOS_UNLIMITED;
    must(pshift_scheduler_init(&a.scheduler, tool_alloc_aligned(pshift_scheduler_memsize(&sc), 64),
                               pshift_scheduler_memsize(&sc), &sc));
    must(
        pshift_agent_init(&a.agent, tool_alloc_aligned(pshift_agent_memsize(&ac), 64), pshift_agent_memsize(&ac), &ac));
    for (k = 0; k < buckets; k++) /* in this order: bucket k has queue k */
        must(pshift_agent_open(&a.agent, k, &queue));
    a.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)buckets * PSHIFT_REPORT_ENTRY_BYTES;
    a.wire = tool_alloc(a.wire_bytes);
    a.entry = tool_alloc(buckets * sizeof *a.entry);
    a.grant = tool_alloc(buckets * sizeof *a.grant);
    a.told = tool_alloc(buckets * sizeof *a.told);
    buckets_pshift = &a.scheduler;
}

void agent_serve(void)
{
    zmq_open_node();
    a.next_report_ns = tool_now_ns();
    if (pthread_create(&a.thread, NULL, serve, NULL) != 0)
        tool_die(TOOL_FAILED, "a thread cannot be started");
}

void agent_end(void)
{
    pthread_join(a.thread, NULL);
}
