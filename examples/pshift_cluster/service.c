// `pshift_cluster controller`: the controller as a separate process. Several may run: one active, the others standby.
//
// Periods are numbered by the clock (seconds since 1970 / period), so no process has to announce them. The clocks of
// all hosts must agree to a fraction of an interval (NTP). A node whose clock is wrong works in another period, where
// its reports and grants are void.
//
// Nodes report to every controller how long ago they obeyed a grant. A standby controller takes over when more than
// half of all nodes report AFTER_INTERVALS or more. It takes a larger epoch, which the nodes obey from then on: larger
// than those that most nodes name, whatever its clock says. A controller stands by when more than half of all nodes name
// a larger epoch than its own; fewer may lie, so their reports are dropped then. So a controller that is cut off from
// most nodes does not take over and does no harm. Two that take over at once have different epochs, and the larger one
// wins. pshift.h issues tokens under limits for one controller at a time.
//
// A new controller does not wait for nodes that are gone, as long as they are less than half (absent_max). If more are
// gone for good, the operator names them: --without.
#include "cluster.h"
#include <stdlib.h>
#include <string.h>

#define LOOK_NS 500000
#define AGE_BYTES 8
#define AHEAD_MS 60000    /* largest accepted difference between clocks */
#define LATE_PART 4       /* reports are waited for up to this part of an interval */
#define LOOK_REPORTS 4096 /* messages taken before the clock is checked again: a flooding node delays no other */
#define AFTER_INTERVALS 5 /* intervals without a grant; with fewer, a busy host changes its controller needlessly */

static struct {
    struct scene s;
    struct pshift_controller controller;
    bool active;
    void *mem, *wire;
    size_t wire_bytes;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    bool *expected, *heard;   /* [nodes] a report is due; came in this round */
    uint64_t epoch, *claimed; /* this controller's; [nodes] that each node's last report names */
    uint32_t waiting, heard_count, deaf;
    uint64_t period, round, deadline_ns;
    bool news, asked;
    uint64_t refused, messages, bytes;
    uint32_t without; /* nodes of --without */
    uint64_t late_ns; /* this process's latest wake-up in this period */
} c;

uint64_t epoch_at(uint64_t ms)
{
    return ms * CONTROLLERS_MAX;
}

bool epoch_possible(uint64_t epoch)
{
    return epoch < epoch_at(wall_ns() / 1000000 + AHEAD_MS);
}

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

/* The operator's --without, applied again in each period: a node that reports is back, even if the report was late. */
static void remove_without(void)
{
    uint32_t j;
    for (j = 0; j < c.s.nodes; j++)
        if (settings.without && scene_names(settings.without, j))
            must(pshift_controller_remove(&c.controller, j), "--without");
}

/* How many nodes name an epoch above this one in their last report? */
static uint32_t claims_above(uint64_t epoch)
{
    uint32_t k, claims = 0;
    for (k = 0; k < c.s.nodes; k++)
        claims += c.claimed[k] > epoch;
    return claims;
}

static bool most(uint32_t nodes)
{
    return nodes * 2 > c.s.nodes - c.without;
}

/* ---- active ------------------------------------------------------------------------------------------------- */

static void stand_by(const char *why)
{
    free(c.mem);
    c.mem = NULL;
    c.active = false;
    say(why);
}

/* Sends the next grants to all nodes. ask: they answer at once. False: a newer controller has taken over. */
static bool send_grants(bool ask)
{
    struct pshift_message m;
    size_t bytes;
    uint32_t j;
    for (j = 0; j < c.s.nodes; j++) {
        enum qos_status st;
        while ((st = pshift_controller_grant(&c.controller, j, &m, c.grant, c.s.buckets)) == QOS_OK) {
            must(pshift_grant_encode(&m, c.grant, c.wire, c.wire_bytes, &bytes), "a grant");
            mail_send((int)j + 1, ask ? MAIL_GRANT_ASK : MAIL_GRANT, c.wire, bytes);
            c.messages++;
            c.bytes += bytes;
        }
        if (st == QOS_ESTALE)
            return false;
    }
    return true;
}

static void plan(uint64_t now_ns)
{
    struct pshift_controller_state state;
    enum qos_status st = pshift_controller_plan(&c.controller, NULL);
    bool ask;
    c.news = false;
    if (st != QOS_ESTALE)
        must(st, "plan");
    (void)pshift_controller_info(&c.controller, &state);
    ask = !c.asked && state.withheld != 0;
    if (st == QOS_ESTALE || !send_grants(ask)) {
        stand_by("stands by: a newer controller has taken over");
        return;
    }
    if (ask) {
        c.asked = true;
        wait_for_all(now_ns);
    } else { /* handle later reports of this round together */
        c.deadline_ns = now_ns + c.s.period_ns / c.s.intervals / LATE_PART;
        c.waiting = 1;
    }
}

static void take_over(void)
{
    struct pshift_controller_config config = {c.s.nodes, c.s.buckets, c.s.nodes * c.s.buckets, 0, 4, 0};
    size_t size;
    uint32_t i;
    config.epoch = epoch_at(wall_ns() / 1000000) + settings.number - 1;
    for (i = 0; i < c.s.nodes; i++) /* the clock of an earlier controller may have been ahead */
        if (c.claimed[i] >= config.epoch && most(claims_above(c.claimed[i] - 1)))
            config.epoch = (c.claimed[i] / CONTROLLERS_MAX + 1) * CONTROLLERS_MAX + settings.number - 1;
    config.absent_max = (c.s.nodes - 1) / 2;
    size = pshift_controller_memsize(&config);
    c.mem = tool_alloc_aligned(size, 64);
    must(pshift_controller_init(&c.controller, c.mem, size, &config), "memory");
    for (i = 0; i < c.s.buckets; i++)
        must(pshift_controller_change(&c.controller, i, c.s.reservation[i], c.s.limit[i]), "contract");
    must(pshift_controller_begin(&c.controller, c.period), "period");
    remove_without();
    c.epoch = config.epoch;
    c.active = true;
    c.asked = false;
    say("takes over");
    (void)send_grants(true); /* tells the nodes the epoch; they report everything */
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

/* A report: how long ago its node obeyed a grant, in ms, little-endian, then the frame. It is counted and dropped if
 * it is damaged, if it is about another node than the key's or about a bucket that is not on that node, or if it names
 * an epoch that no controller can have yet. */
static void take_report(const struct mail *m)
{
    const uint8_t *data = m->data;
    const uint32_t j = (uint32_t)m->rank - 1;
    struct pshift_message head = {0};
    enum qos_status st = QOS_ECORRUPT;
    if (m->rank >= 1 && j < c.s.nodes && m->bytes > AGE_BYTES)
        st = pshift_report_decode(data + AGE_BYTES, m->bytes - AGE_BYTES, &head, c.entry, c.s.buckets);
    if (st != QOS_OK || head.server != j || !epoch_possible(head.controller_epoch) || !names_its_own(j, head.count)) {
        c.refused++;
        return;
    }
    c.messages++;
    c.bytes += m->bytes;
    if (!c.heard[j]) {
        c.heard[j] = true;
        c.heard_count++;
        c.deaf += qos_get_le64(data) >= AFTER_INTERVALS * (c.s.period_ns / c.s.intervals) / 1000000;
    }
    c.claimed[j] = head.controller_epoch;
    if (!c.active)
        return;
    st = head.controller_epoch > c.epoch && !most(claims_above(c.epoch))
             ? QOS_ESTALE
             : pshift_controller_report(&c.controller, &head, c.entry);
    c.refused += st != QOS_OK && st != QOS_ESTALE;
    c.news |= st == QOS_OK;
    if (c.expected[j]) {
        c.expected[j] = false;
        c.waiting -= c.waiting != 0;
    }
}

static void begin_round(uint64_t now_ns)
{
    struct pshift_controller_state state;
    if (c.active && pshift_controller_info(&c.controller, &state) == QOS_OK && state.newer_epoch != 0)
        stand_by("stands by: a newer controller has taken over"); /* it ignores further reports, so it plans no more */
    else if (!c.active && most(c.deaf))
        take_over();
    memset(c.heard, 0, c.s.nodes * sizeof *c.heard);
    c.heard_count = c.deaf = 0;
    c.asked = false;
    wait_for_all(now_ns);
}

static void begin_period(uint64_t period)
{
    char text[160];
    if (c.period && c.active) {
        struct pshift_controller_state state;
        (void)pshift_controller_info(&c.controller, &state);
        snprintf(text, sizeof text,
                 "active; %u of %u nodes silent, %u unconfirmed; %" PRIu64 " messages, %" PRIu64
                 " bytes, late by %" PRIu64 " ms",
                 state.silent, c.s.nodes, state.unconfirmed, c.messages, c.bytes, c.late_ns / 1000000);
        say(text);
    }
    c.messages = c.bytes = c.late_ns = 0;
    c.period = period;
    if (c.active) {
        must(pshift_controller_begin(&c.controller, period), "period");
        remove_without();
    }
}

static void open_scene(void)
{
    uint32_t j;
    scene_make(&c.s, 0, settings.seed, settings.capacity);
    c.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)c.s.buckets * PSHIFT_REPORT_ENTRY_BYTES;
    c.wire = tool_alloc(c.wire_bytes);
    c.entry = tool_alloc(c.s.buckets * sizeof *c.entry);
    c.grant = tool_alloc(c.s.buckets * sizeof *c.grant);
    c.expected = tool_alloc(c.s.nodes * sizeof *c.expected);
    c.heard = tool_alloc(c.s.nodes * sizeof *c.heard);
    c.claimed = tool_alloc(c.s.nodes * sizeof *c.claimed);
    memset(c.heard, 0, c.s.nodes * sizeof *c.heard);
    memset(c.claimed, 0, c.s.nodes * sizeof *c.claimed);
    for (j = 0; j < c.s.nodes && settings.without; j++)
        c.without += scene_names(settings.without, j);
    if (settings.without &&
        (settings.without[strspn(settings.without, "0123456789+,-")] || c.without == 0 || c.without == c.s.nodes))
        tool_die(TOOL_USAGE, "--without %s: name some of the nodes, e.g. 3+5-6", settings.without);
}

void controller_serve(void)
{
    open_scene();
    zmq_open_controller();
    say("stands by");
    while (!stop_asked()) {
        const uint64_t now_ns = tool_now_ns();
        uint64_t wall = wall_ns(), period = wall / c.s.period_ns;
        uint64_t round = wall % c.s.period_ns / (c.s.period_ns / c.s.intervals);
        struct mail m;
        uint32_t taken;
        if (period > c.period) { /* never go back */
            begin_period(period);
            c.round = UINT64_MAX;
        }
        if (period == c.period && round != c.round) {
            c.round = round;
            begin_round(now_ns);
        }
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
