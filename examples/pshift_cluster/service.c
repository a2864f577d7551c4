// `pshift_cluster controller`: the controller as a separate process. Several may run: one owns the period, the others
// stand by. Who that is says the key of --owner (owner.c), a file on one host. Nodes report to every controller. Each
// tries to become the owner when the last one's period is over; the owner itself is usually first. So a controller that
// dies is replaced after at most two periods and a swap, and one that is cut off from the key does no harm: its grants end
// with its period. Clocks need not agree, and no disk but the key's matters.
#include "cluster.h"
#include <stdlib.h>
#include <string.h>

#define LOOK_NS 500000
#define LATE_PART 4       /* reports are waited for up to this part of an interval */
#define LOOK_REPORTS 4096 /* messages taken before the clock is checked again: a flooding node delays no other */

static struct {
    struct scene s;
    struct pshift_controller controller;
    bool active;
    void *wire;
    size_t wire_bytes;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    bool *expected; /* [nodes] a report is due */
    uint32_t waiting;
    uint64_t period, round_ns, deadline_ns;
    bool news, asked;
    uint64_t refused, messages, bytes;
    uint64_t late_ns; /* this process's latest wake-up in this period */
} c;

static void must(enum qos_status st, const char *what)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "controller: %s: %s", what, qos_strerror(st));
}

static void say(const char *what)
{
    printf("controller %" PRIu64 ", period %" PRIu64 ": %s\n", settings.number, c.period, what);
    fflush(stdout);
}

static void wait_for_all(uint64_t now_ns)
{
    uint32_t j;
    for (j = 0; j < c.s.nodes; j++)
        c.expected[j] = true;
    c.waiting = c.s.nodes;
    c.deadline_ns = now_ns + c.s.period_ns / c.s.intervals / LATE_PART;
}

/* ---- active ------------------------------------------------------------------------------------------------- */

/* Sends the next grants to all nodes. ask: they answer at once. */
static void send_grants(bool ask)
{
    struct pshift_message m;
    size_t bytes;
    uint32_t j;
    for (j = 0; j < c.s.nodes; j++) {
        while (pshift_controller_grant(&c.controller, tool_now_ns(), j, &m, c.grant, c.s.buckets) == QOS_OK) {
            must(pshift_grant_encode(&m, c.grant, c.wire, c.wire_bytes, &bytes), "a grant");
            mail_send((int)j + 1, ask ? MAIL_GRANT_ASK : MAIL_GRANT, c.wire, bytes);
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
        c.deadline_ns = now_ns + c.s.period_ns / c.s.intervals / LATE_PART;
        c.waiting = 1;
    }
}

/* ---- both --------------------------------------------------------------------------------------------------- */

/* Are all buckets of the report on node j? Otherwise a node could report another's bucket as served, and the controller
 * would take that from the bucket's reservation and limit everywhere. */
static bool names_its_own(uint32_t j, uint32_t count)
{
    uint32_t k = 0;
    while (k < count && c.entry[k].bucket < c.s.buckets && c.s.phase[c.s.first[c.entry[k].bucket]].rate[j] != 0)
        k++;
    return k == count;
}

/* A report is counted and dropped if it is damaged, or if it is about another node than the key's or about a bucket that
 * is not on that node. */
static void take_report(const struct mail *m)
{
    const uint32_t j = (uint32_t)m->rank - 1;
    struct pshift_message head = {0};
    enum qos_status st = QOS_ECORRUPT;
    if (m->rank >= 1 && j < c.s.nodes)
        st = pshift_report_decode(m->data, m->bytes, &head, c.entry, c.s.buckets);
    if (st != QOS_OK || head.server != j || !names_its_own(j, head.count)) {
        c.refused++;
        return;
    }
    c.messages++;
    c.bytes += m->bytes;
    st = pshift_controller_report(&c.controller, &head, c.entry);
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
    (void)pshift_controller_info(&c.controller, &state);
    if (c.active) {
        snprintf(text, sizeof text,
                 "active; %u of %u nodes silent, %u awaited; %" PRIu64 " messages, %" PRIu64 " bytes, late by %" PRIu64
                 " ms",
                 state.silent, c.s.nodes, state.awaited, c.messages, c.bytes, c.late_ns / 1000000);
        say(text);
    }
    c.messages = c.bytes = c.late_ns = 0;
    c.period = period;
    if (!c.active)
        say("takes over");
    c.active = true;
    must(pshift_controller_begin(&c.controller, start_ns, period), "period");
    c.asked = false;
    plan(tool_now_ns()); /* by what the last period was like */
}

static void open_controller(void)
{
    struct pshift_controller_config config = {c.s.nodes, c.s.buckets, c.s.nodes * c.s.buckets, {0, 0}, 0, 4};
    uint32_t i;
    size_t size;
    owner_open(settings.owner, c.s.period_ns);
    config.nonce = owner_own_nonce();
    config.period_ns = c.s.period_ns;
    size = pshift_controller_memsize(&config);
    must(pshift_controller_init(&c.controller, tool_alloc_aligned(size, 64), size, &config), "memory");
    for (i = 0; i < c.s.buckets; i++)
        must(pshift_controller_change(&c.controller, i, c.s.reservation[i], c.s.limit[i]), "contract");
}

static void open_scene(void)
{
    scene_make(&c.s, 0, settings.seed, settings.capacity);
    c.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)c.s.buckets * PSHIFT_REPORT_ENTRY_BYTES;
    c.wire = tool_alloc(c.wire_bytes);
    c.entry = tool_alloc(c.s.buckets * sizeof *c.entry);
    c.grant = tool_alloc(c.s.buckets * sizeof *c.grant);
    c.expected = tool_alloc(c.s.nodes * sizeof *c.expected);
    memset(c.expected, 0, c.s.nodes * sizeof *c.expected);
}

void controller_serve(void)
{
    open_scene();
    open_controller();
    zmq_open_controller();
    say("stands by");
    while (!stop_asked()) {
        const uint64_t now_ns = tool_now_ns();
        uint64_t period = 0, start_ns = 0;
        struct mail m;
        uint32_t taken;
        owner_step(now_ns);
        if (owner_holds(tool_now_ns(), &period, &start_ns)) {
            if (period > c.period)
                begin_period(period, start_ns);
        } else if (c.active && now_ns - c.round_ns > 2 * c.s.period_ns) {
            c.active = false;
            say("stands by: another controller owns the periods");
        }
        if (now_ns - c.round_ns >= c.s.period_ns / c.s.intervals && owner_holds(tool_now_ns(), &period, &start_ns))
            begin_round(now_ns);
        for (taken = 0; taken < LOOK_REPORTS && mail_take(&m); taken++)
            if (m.tag == MAIL_REPORT)
                take_report(&m);
        if (c.active && c.news && (c.waiting == 0 || now_ns >= c.deadline_ns))
            plan(now_ns);
        tool_sleep_until_ns(now_ns + LOOK_NS);
        c.late_ns = qos_max(c.late_ns, tool_now_ns() - now_ns - LOOK_NS);
    }
    say("stopped");
}
