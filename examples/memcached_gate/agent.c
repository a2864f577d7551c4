// A gate as a node of a pShift cluster: reports its buckets' demand to every controller and installs the granted
// tokens. Periods are numbered by the clock, as `pshift_cluster controller` numbers them.
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
    uint64_t *wire; /* the time since a grant was obeyed, then the frame */
    size_t wire_bytes;
    struct node_state state;
    uint64_t period, begin_ns, interval_ns, round;
    uint64_t now_ns, last_report_ns, obeyed_ns, asked_ns, told_capacity;
} a;

static void must(enum qos_status st)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "agent: %s", qos_strerror(st));
}

/* ---- reports and grants -------------------------------------------------------------------------------------------- */

static uint64_t remaining(void)
{
    return qos_sat_sub(a.begin_ns + agent_config.period_ns, a.now_ns);
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
        pshift_agent_measure(&a.agent, a.now_ns - a.last_report_ns, remaining());
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
    *a.wire = (a.now_ns - a.obeyed_ns) / 1000000;
    must(pshift_report_encode(&m, a.entry, a.wire + 1, a.wire_bytes, &bytes));
    for (k = 0; k < CONTROLLERS_MAX; k++)
        mail_send((int)k, MAIL_REPORT, a.wire, bytes + sizeof *a.wire);
    a.last_report_ns = a.asked_ns = a.now_ns;
}

static void install(const struct mail *mail)
{
    struct pshift_message m;
    enum qos_status st = pshift_grant_decode(mail->data, mail->bytes, &m, a.grant, a.buckets);
    if (st != QOS_OK)
        return; /* damaged */
    if (!state_obeys(&a.state, m.controller_epoch, mail))
        return; /* it is delivered again when the epoch is on the disk */
    pthread_mutex_lock(&buckets_lock);
    st = pshift_agent_install(&a.agent, &m, a.grant);
    pthread_mutex_unlock(&buckets_lock);
    if (st != QOS_OK)
        return;
    a.obeyed_ns = a.now_ns;
    a.asked_ns = 0;
    workers_wake();
    if (mail->tag == MAIL_GRANT_ASK)
        report(true);
}

/* ---- periods ------------------------------------------------------------------------------------------------------- */

/* Never goes back. */
static void clock_period(void)
{
    uint64_t wall = wall_ns(), period = wall / agent_config.period_ns;
    enum qos_status st;
    if (period <= a.period)
        return;
    a.period = period;
    a.begin_ns = a.now_ns - wall % agent_config.period_ns;
    a.round = wall % agent_config.period_ns / a.interval_ns;
    pthread_mutex_lock(&buckets_lock);
    st = pshift_agent_begin(&a.agent, period);
    pthread_mutex_unlock(&buckets_lock);
    if (st != QOS_ESTALE) /* restarted in the same period */
        must(st);
    workers_wake();
}

static void *serve(void *arg)
{
    (void)arg;
    while (!gate_ended()) { /* while the gate drains, too: what waits needs tokens */
        struct mail m;
        bool waits;
        a.now_ns = tool_now_ns();
        clock_period();
        while (state_take(&m) || mail_take(&m))
            if (m.tag == MAIL_GRANT || m.tag == MAIL_GRANT_ASK)
                install(&m);
        if (a.round < agent_config.intervals && a.now_ns >= a.begin_ns + a.round * a.interval_ns) {
            report(false);
            a.round++;
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
    state_read(&a.state, agent_config.state);
    a.buckets = buckets;
    a.interval_ns = agent_config.period_ns / agent_config.intervals;
    ac.epoch = a.state.epoch;
    ac.controller_epoch = a.state.controller_epoch;
    ac.default_l_tokens = limits ? 0 : QOS_UNLIMITED;
    must(pshift_scheduler_init(&a.scheduler, tool_alloc_aligned(pshift_scheduler_memsize(&sc), 64),
                               pshift_scheduler_memsize(&sc), &sc));
    must(
        pshift_agent_init(&a.agent, tool_alloc_aligned(pshift_agent_memsize(&ac), 64), pshift_agent_memsize(&ac), &ac));
    for (k = 0; k < buckets; k++) /* in this order: bucket k has queue k */
        must(pshift_agent_open(&a.agent, k, &queue));
    a.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)buckets * PSHIFT_REPORT_ENTRY_BYTES;
    a.wire = tool_alloc(a.wire_bytes + sizeof *a.wire);
    a.entry = tool_alloc(buckets * sizeof *a.entry);
    a.grant = tool_alloc(buckets * sizeof *a.grant);
    a.told = tool_alloc(buckets * sizeof *a.told);
    buckets_pshift = &a.scheduler;
}

void agent_serve(void)
{
    zmq_open_node();
    a.last_report_ns = a.obeyed_ns = tool_now_ns();
    if (pthread_create(&a.thread, NULL, serve, NULL) != 0)
        tool_die(TOOL_FAILED, "a thread cannot be started");
}

void agent_end(void)
{
    pthread_join(a.thread, NULL);
}
