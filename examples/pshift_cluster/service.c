// `pshift_cluster controller`: the controller as a separate process. Several may run: one owns the period, the others
// stand by. Who that is says one key (owner.c), in a file on one host or in etcd. Contracts and members are on the command line,
// or in etcd (contracts.c). Nodes report to every controller. Each
// tries to become the owner when the last one's period is over; the owner itself is usually first. So a controller that
// dies is replaced after at most two periods and a swap, and one that is cut off from the key does no harm: its grants end
// with its period. Clocks need not agree, and no disk but the key's matters.
#include "cluster.h"
#include <stdlib.h>
#include <string.h>

#define LOOK_NS 500000
#define RECORDS_MAX (1u << 18) /* of tenants at servers */
#define LATE_PART 4            /* reports are waited for up to this part of an interval */
#define LOOK_REPORTS 4096      /* messages taken before the clock is checked again: a flooding node delays no other */

static struct {
    struct scene s; /* of the command line */
    bool etcd;
    uint32_t nodes, buckets; /* at most */
    uint64_t period_ns, interval_ns;
    struct pshift_controller controller;
    bool active;
    void *wire;
    size_t wire_bytes;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    bool *member, *expected; /* [nodes] it is a node; a report is due */
    uint32_t waiting;
    uint64_t period, round_ns, deadline_ns;
    bool news, asked;
    uint64_t refused, messages, bytes;
    uint64_t heard;        /* the latest period that a node has heard of */
    uint32_t heard_server; /* its number */
    uint64_t late_ns;      /* this process's latest wake-up in this period */
} c;

static void must(enum qos_status st, const char *what)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "controller: %s: %s", what, qos_strerror(st));
}

static void say(const char *what)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, settings.number);
    printf("controller %s, period %" PRIu64 ": %s\n", c.etcd ? settings.cluster.name : number, c.period, what);
    fflush(stdout);
}

static void wait_for_all(uint64_t now_ns)
{
    uint32_t j;
    c.waiting = 0;
    for (j = 0; j < c.nodes; j++) {
        c.expected[j] = c.member[j];
        c.waiting += c.member[j];
    }
    c.deadline_ns = now_ns + c.interval_ns / LATE_PART;
}

/* ---- active ------------------------------------------------------------------------------------------------- */

/* Sends the next grants to all nodes. ask: they answer at once. */
static void send_grants(bool ask)
{
    struct pshift_message m;
    size_t bytes;
    uint32_t j;
    for (j = 0; j < c.nodes; j++) {
        while (pshift_controller_grant(&c.controller, tool_now_ns(), j, &m, c.grant, c.buckets) == QOS_OK) {
            must(pshift_grant_encode(&m, c.grant, c.wire, c.wire_bytes, &bytes), "a grant");
            links_send(j, ask ? LINKS_GRANT_ASK : LINKS_GRANT, c.wire, bytes);
            c.messages++;
            c.bytes += bytes;
        }
    }
}

static void plan(uint64_t now_ns)
{
    struct pshift_controller_state state;
    bool ask;
    must(pshift_controller_plan(&c.controller, NULL), "plan");
    c.news = false;
    (void)pshift_controller_info(&c.controller, &state);
    ask = !c.asked && (state.withheld != 0 || state.awaited != 0);
    send_grants(ask);
    if (ask) {
        c.asked = true;
        wait_for_all(now_ns);
    } else { /* handle later reports of this round together */
        c.deadline_ns = now_ns + c.interval_ns / LATE_PART;
        c.waiting = 1;
    }
}

/* ---- both --------------------------------------------------------------------------------------------------- */

/* Is this bucket on node j? Otherwise a node could report another's bucket as served, and the controller would take that from
 * the bucket's reservation and limit everywhere. In etcd's clusters all tenants are on all nodes. */
static bool names_its_own(uint32_t j, uint64_t bucket)
{
    if (c.etcd)
        return contracts_have(bucket);
    return bucket < c.s.buckets && c.s.phase[c.s.first[bucket]].rate[j] != 0;
}

/* A report is counted and dropped if it is damaged, or if it is about another node than the key's; its entries, if they are about
 * a bucket that is not on that node. */
static void take_report(uint32_t j, const void *data, size_t bytes)
{
    struct pshift_message head = {0};
    enum qos_status st = QOS_ECORRUPT;
    uint32_t k, kept = 0;
    if (j < c.nodes && c.member[j])
        st = pshift_report_decode(data, bytes, &head, c.entry, c.buckets);
    for (k = 0; st == QOS_OK && k < head.count; k++)
        if (names_its_own(j, c.entry[k].bucket))
            c.entry[kept++] = c.entry[k];
    if (st != QOS_OK || head.server != j || (kept < head.count && !c.etcd)) {
        c.refused++;
        return;
    }
    head.count = kept;
    c.messages++;
    c.bytes += bytes;
    if (head.period > c.heard) {
        c.heard = head.period;
        c.heard_server = j + 1;
    }
    st = pshift_controller_report(&c.controller, tool_now_ns(), &head, c.entry);
    c.refused += st != QOS_OK && st != QOS_ESTALE && st != QOS_EAGAIN;
    c.news |= st == QOS_OK || st == QOS_EAGAIN;
    if (c.expected[j]) {
        c.expected[j] = false;
        c.waiting -= c.waiting != 0;
    }
}

static void begin_round(uint64_t now_ns)
{
    c.asked = false;
    c.round_ns = now_ns;
    wait_for_all(now_ns);
}

static void begin_period(uint64_t period, uint64_t start_ns)
{
    struct pshift_controller_state state;
    char text[160];
    uint32_t j, members;
    (void)pshift_controller_info(&c.controller, &state);
    for (j = members = 0; j < c.nodes; j++)
        members += c.member[j];
    if (c.active) {
        snprintf(text, sizeof text,
                 "active; %u of %u nodes silent, %u awaited; %" PRIu64 " messages, %" PRIu64 " bytes, late by %" PRIu64
                 " ms",
                 (uint32_t)qos_sat_sub(state.silent, c.nodes - members), members, state.awaited, c.messages, c.bytes,
                 c.late_ns / 1000000);
        say(text);
    }
    c.messages = c.bytes = c.late_ns = 0;
    c.period = period;
    if (c.heard > period) /* none is above what the key had, unless the key fell */
        owner_behind(c.heard_server, c.heard);
    if (!c.active)
        say("takes over");
    c.active = true;
    if (c.etcd)
        contracts_apply(&c.controller);
    must(pshift_controller_begin(&c.controller, start_ns, period), "period");
    c.asked = false;
    plan(tool_now_ns()); /* by what the last period was like */
}

static void open_controller(void)
{
    struct pshift_controller_config config = {c.nodes, c.buckets, 0, {0, 0}, c.period_ns, 4};
    uint32_t i;
    size_t size;
    config.records = (uint32_t)qos_min((uint64_t)c.nodes * c.buckets, RECORDS_MAX);
    owner_open(settings.owner, c.period_ns);
    config.nonce = owner_own_nonce();
    size = pshift_controller_memsize(&config);
    must(pshift_controller_init(&c.controller, tool_alloc_aligned(size, 64), size, &config), "memory");
    for (i = 0; i < c.s.buckets; i++)
        must(pshift_controller_change(&c.controller, i, c.s.reservation[i], c.s.limit[i]), "contract");
    c.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)c.buckets * PSHIFT_REPORT_ENTRY_BYTES;
    c.wire = tool_alloc(c.wire_bytes);
    c.entry = tool_alloc(c.buckets * sizeof *c.entry);
    c.grant = tool_alloc(c.buckets * sizeof *c.grant);
    c.expected = tool_alloc(c.nodes * sizeof *c.expected);
}

static void open_by_options(void)
{
    uint32_t j;
    scene_make(&c.s, 0, settings.seed, settings.capacity);
    c.nodes = c.s.nodes;
    c.buckets = c.s.buckets;
    c.period_ns = c.s.period_ns;
    c.interval_ns = c.period_ns / c.s.intervals;
    c.member = tool_alloc(c.nodes * sizeof *c.member);
    for (j = 0; j < c.nodes; j++)
        c.member[j] = true;
    open_controller();
    zmq_open_controller();
}

/* Who may report. */
static void members(void)
{
    uint32_t j, k;
    char key[80];
    memset(c.member, 0, c.nodes * sizeof *c.member);
    for (k = 0; k < cluster.servers; k++) {
        const struct cluster_member *m = &cluster.server[k];
        char text[CLUSTER_TEXT + 20];
        snprintf(text, sizeof text, "%s%s", *m->wrong ? "refused: " : "admitted", m->wrong);
        snprintf(key, sizeof key, "status/server/%s", m->name);
        if (c.active && strcmp(text, m->status) != 0)
            contracts_status(key, text);
        if (*m->wrong)
            continue;
        c.member[m->number - 1] = true;
        links_admit(m->number - 1, m->key);
    }
    for (j = 0; j < c.nodes; j++)
        if (!c.member[j])
            links_admit(j, "");
}

/* Waits until etcd knows this controller. */
static void open_by_etcd(void)
{
    const struct cluster_member *me = NULL;
    char key[LINKS_KEY];
    bool told = false;
    cluster_open(&settings.cluster);
    while (!stop_asked() && (cluster.period_ns == 0 || !me || *me->wrong)) {
        if (cluster_step(tool_now_ns())) {
            me = cluster_find(cluster.controller, cluster.controllers, settings.cluster.name);
            if (!told && (cluster.period_ns == 0 || !me || *me->wrong))
                tool_warn("waits for the key qos/config/%s%s%s", cluster.period_ns == 0 ? "period" : "controller/",
                          cluster.period_ns == 0 ? "" : settings.cluster.name, me && *me->wrong ? me->wrong : "");
            told = true;
        }
        tool_sleep_until_ns(tool_now_ns() + LOOK_NS);
    }
    if (stop_asked())
        return;
    c.nodes = CLUSTER_SERVERS_MAX;
    c.buckets = CLUSTER_TENANTS_MAX;
    c.period_ns = cluster.period_ns;
    c.interval_ns = c.period_ns / CLUSTER_INTERVALS;
    c.member = tool_alloc(c.nodes * sizeof *c.member);
    open_controller();
    links_read_key(key, settings.keys, settings.cluster.name, "secret");
    links_serve(me->address, key, c.nodes);
    members();
}

void controller_serve(void)
{
    c.etcd = settings.cluster.endpoints != NULL;
    if (c.etcd)
        open_by_etcd();
    else
        open_by_options();
    if (!stop_asked())
        say("stands by");
    while (!stop_asked()) {
        const uint64_t now_ns = tool_now_ns();
        uint64_t period = 0, start_ns = 0;
        struct links_mail m;
        uint32_t taken;
        if (c.etcd && cluster_step(now_ns))
            members();
        owner_step(now_ns);
        if (owner_holds(tool_now_ns(), &period, &start_ns)) {
            if (period > c.period)
                begin_period(period, start_ns);
        } else if (c.active && now_ns - c.round_ns > 2 * c.period_ns) {
            c.active = false;
            say("stands by: another controller owns the periods, or the store does not answer");
        }
        if (now_ns - c.round_ns >= c.interval_ns && owner_holds(tool_now_ns(), &period, &start_ns))
            begin_round(now_ns);
        for (taken = 0; taken < LOOK_REPORTS && links_take(&m); taken++)
            if (m.tag == LINKS_REPORT)
                take_report(m.from, m.data, m.bytes);
        if (c.active && c.news && (c.waiting == 0 || now_ns >= c.deadline_ns))
            plan(now_ns);
        tool_sleep_until_ns(now_ns + LOOK_NS);
        c.late_ns = qos_max(c.late_ns, tool_now_ns() - now_ns - LOOK_NS);
    }
    say("stopped");
}
