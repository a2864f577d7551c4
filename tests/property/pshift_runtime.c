// proves: with messages lost, doubled, reordered, stale or damaged, servers silent or restarted, no limit is exceeded
// proves: and, once messages arrive again, every reservation is held somewhere: no token is issued twice, none is lost;
// proves: each kind of fault alone, and all of them together
// variants: native san i386 s390x aarch64
#include "pshift.h"
#include "check.h"

#define SERVERS 4
#define BUCKETS 6
#define RECORDS (SERVERS * BUCKETS)
#define WIRE 64
#define BYTES (QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + BUCKETS * PSHIFT_WIRE_ENTRY_BYTES)

struct node {
    struct check_mem sched_mem, agent_mem;
    struct pshift_sched sched;
    struct pshift_agent agent;
    uint64_t epoch;
};

/* Kinds of faults. A message is stale if it comes again, or a newer one has overtaken it. */
enum { LOST = 1, DOUBLED = 2, REORDERED = 4, DAMAGED = 8, SILENT = 16, RESTARTED = 32, CONTROLLER = 64, ALL = 127 };
static const struct {
    const char *name;
    unsigned kinds;
} faults[] = {
    {"none", 0},
    {"lost", LOST},
    {"duplicated", DOUBLED},
    {"reordered", REORDERED},
    {"duplicated and reordered", DOUBLED | REORDERED},
    {"damaged", DAMAGED},
    {"a silent server", SILENT},
    {"a server whose counters start again", RESTARTED},
    {"a restarted controller", CONTROLLER},
};
static unsigned kinds; /* of this run */

static struct node node[SERVERS];
static struct pshift_control control;
static struct check_mem control_mem, solver_mem;
static struct pshift solver;
static uint64_t reservation[BUCKETS], limit[BUCKETS], truly_served[BUCKETS], period, controller_epoch;
static struct {
    uint8_t bytes[BYTES];
    size_t size;
    bool report;
    uint32_t server;
} wire[WIRE];
static uint32_t on_wire;
/* Served in this period by servers before they crashed: a controller that starts again cannot know it, so its bound is the
 * limit and this. */
static uint64_t crashed[BUCKETS];
static bool control_restarted;
static uint64_t stale, damaged, installed, restarts, silences, lost, doubled, overtaken, controllers;
static struct check_rng rng;

static bool chance(uint64_t one_in)
{
    return check_between(&rng, 1, one_in) == 1;
}

static void node_start(uint32_t j)
{
    struct pshift_sched_config sc = {BUCKETS, 0};
    struct pshift_agent_config ac = {BUCKETS, 0, 0, 0, 0};
    ac.server = j;
    ac.epoch = ++node[j].epoch;
    ac.unchanged_permille = j % 2 ? 100 : 0;
    (void)check_mem_new(&node[j].sched_mem, pshift_sched_memsize(&sc), 64, 0);
    (void)check_mem_new(&node[j].agent_mem, pshift_agent_memsize(&ac), 64, 0);
    CHECK_EQ(pshift_sched_init(&node[j].sched, node[j].sched_mem.mem, node[j].sched_mem.size, &sc), QOS_OK);
    CHECK_EQ(pshift_agent_init(&node[j].agent, node[j].agent_mem.mem, node[j].agent_mem.size, &ac, &node[j].sched),
             QOS_OK);
    CHECK_EQ(pshift_agent_begin(&node[j].agent, period), QOS_OK);
}

static void node_stop(uint32_t j)
{
    CHECK(check_mem_free(&node[j].sched_mem));
    CHECK(check_mem_free(&node[j].agent_mem));
}

static void control_start(void)
{
    struct pshift_control_config cc = {SERVERS, BUCKETS, RECORDS, 0, 0, false};
    uint32_t i;
    cc.epoch = ++controller_epoch;
    (void)check_mem_new(&control_mem, pshift_control_memsize(&cc), 64, 0);
    CHECK_EQ(pshift_control_init(&control, control_mem.mem, control_mem.size, &cc), QOS_OK);
    for (i = 0; i < BUCKETS; i++)
        CHECK_EQ(pshift_control_set(&control, i, reservation[i], limit[i]), QOS_OK);
    CHECK_EQ(pshift_control_begin(&control, period), QOS_OK);
}

/* Deliver one message and judge what becomes of it. */
static void deliver(uint32_t k)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0};
    struct pshift_report_entry re[BUCKETS];
    struct pshift_grant_entry ge[BUCKETS];
    enum qos_status st;
    if (wire[k].report) {
        st = pshift_report_decode(wire[k].bytes, wire[k].size, &m, re, BUCKETS);
        if (st == QOS_OK)
            st = pshift_control_report(&control, &m, re);
    } else {
        st = pshift_grant_decode(wire[k].bytes, wire[k].size, &m, ge, BUCKETS);
        if (st == QOS_OK)
            st = pshift_agent_install(&node[wire[k].server].agent, &m, ge);
        installed += st == QOS_OK;
    }
    stale += st == QOS_ESTALE;
    damaged += st == QOS_ECORRUPT || st == QOS_ETRUNCATED;
    CHECK(st == QOS_OK || st == QOS_ESTALE || st == QOS_ECORRUPT || st == QOS_ETRUNCATED);
}

static void drop(uint32_t k)
{
    memmove(wire + k, wire + k + 1, (--on_wire - k) * sizeof *wire);
}

static void post(const uint8_t *bytes, size_t size, bool report, uint32_t server)
{
    CHECK(size != 0 && size <= BYTES);
    if (on_wire == WIRE && (kinds & LOST)) {
        drop((uint32_t)check_between(&rng, 0, WIRE - 1));
    } else if (on_wire == WIRE) {
        deliver(0);
        drop(0);
    }
    memcpy(wire[on_wire].bytes, bytes, size);
    wire[on_wire].size = size;
    wire[on_wire].report = report;
    wire[on_wire++].server = server;
}

static void send_report(uint32_t j)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0};
    struct pshift_report_entry entry[BUCKETS];
    uint8_t bytes[BYTES];
    CHECK_EQ(pshift_agent_report(&node[j].agent, 1000, 1000, &m, entry, BUCKETS), QOS_OK);
    m.capacity = 1000000; /* capacity is not what this test is about */
    post(bytes, pshift_report_encode(bytes, sizeof bytes, &m, entry), true, j);
}

static void send_grant(uint32_t j)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0};
    struct pshift_grant_entry entry[BUCKETS];
    uint8_t bytes[BYTES];
    if (pshift_control_grant(&control, j, &m, entry, BUCKETS) == QOS_OK)
        post(bytes, pshift_grant_encode(bytes, sizeof bytes, &m, entry), false, j);
}

static void plan(void)
{
    CHECK_EQ(pshift_control_plan(&control, &solver, NULL), QOS_OK);
}

static void serve(uint32_t j, uint64_t most)
{
    struct pshift_pick pick;
    for (; most > 0 && pshift_sched_pick(&node[j].sched, &pick) == QOS_OK; most--) {
        truly_served[pick.queue]++;
        if (limit[pick.queue] != PSHIFT_UNLIMITED)
            CHECK_LE(truly_served[pick.queue], limit[pick.queue] + (control_restarted ? crashed[pick.queue] : 0));
    }
}

/* A round without faults: all report, one plan, all grants arrive. */
static void healthy_round(void)
{
    uint32_t j;
    on_wire = 0;
    for (j = 0; j < SERVERS; j++) {
        send_report(j);
        deliver(0);
        on_wire = 0;
    }
    plan();
    for (j = 0; j < SERVERS; j++) {
        send_grant(j);
        deliver(0);
        on_wire = 0;
    }
}

static void faulty_step(bool quiet[SERVERS])
{
    uint32_t j = (uint32_t)check_between(&rng, 0, SERVERS - 1), k, i = (uint32_t)check_between(&rng, 0, BUCKETS - 1);
    switch (check_between(&rng, 0, 11)) {
    case 0:
    case 1: CHECK_EQ(pshift_sched_arrive(&node[j].sched, i, check_between(&rng, 0, 30)), QOS_OK); break;
    case 2:
    case 3: serve(j, check_between(&rng, 0, 40)); break;
    case 4:
    case 5:
        if (!quiet[j])
            send_report(j);
        break;
    case 6: plan(); break;
    case 7: send_grant(j); break;
    case 8:
        if ((kinds & SILENT) && chance(30)) {
            quiet[j] = !quiet[j];
            silences++;
        }
        break;
    case 9:
        if ((kinds & RESTARTED) && chance(25)) {
            for (k = 0; k < BUCKETS; k++)
                crashed[k] += pshift_sched_served(&node[j].sched, k) - node[j].agent.seen[k].base;
            node_stop(j);
            node_start(j);
            restarts++;
        }
        break;
    default:
        if (on_wire == 0)
            break;
        k = kinds & REORDERED ? (uint32_t)check_between(&rng, 0, on_wire - 1) : 0;
        overtaken += k != 0;
        if ((kinds & LOST) && chance(4)) {
            drop(k);
            lost++;
        } else if ((kinds & DAMAGED) && chance(6)) { /* damaged: one bit, or cut short */
            if (chance(2))
                wire[k].bytes[check_between(&rng, 0, wire[k].size - 1)] ^= (uint8_t)(1u << check_between(&rng, 0, 7));
            else
                wire[k].size = (size_t)check_between(&rng, 0, wire[k].size - 1);
            deliver(k);
            drop(k);
        } else {
            deliver(k);
            if ((kinds & DOUBLED) && chance(3)) /* it comes again later */
                doubled++;
            else
                drop(k);
        }
    }
}

/* After messages flow again, R-tokens and past service cover every reservation with demand, and exceed no limit. */
static void settled(void)
{
    uint32_t i, j, round;
    uint64_t served_at[BUCKETS], held;
    for (i = 0; i < BUCKETS; i++)
        for (j = 0; j < SERVERS; j++)
            CHECK_EQ(pshift_sched_arrive(&node[j].sched, i, 400), QOS_OK); /* demand for all of it anywhere */
    for (round = 0; round < 3; round++)
        healthy_round();
    memcpy(served_at, truly_served, sizeof served_at);
    for (i = 0; i < BUCKETS; i++) {
        uint64_t known = 0, must;
        held = 0;
        for (j = 0; j < SERVERS; j++)
            held += pshift_sched_r_tokens(&node[j].sched, i);
        for (j = 0; j < control.count; j++)
            if (control.record[j].bucket == i)
                known += control.record[j].served + control.record[j].banked;
        /* Service that a crash hid from the controller counts against the limit (control.lost), not for the reservation. */
        must = limit[i] == PSHIFT_UNLIMITED || limit[i] - control.lost[i] > reservation[i] ? reservation[i]
                                                                                           : limit[i] - control.lost[i];
        CHECK_LE(known, truly_served[i]);
        CHECK_GE(held + known, must);
        if (known <= must)
            CHECK_EQ(held + known, must);
    }
    for (j = 0; j < SERVERS; j++)
        serve(j, UINT64_MAX);
    for (i = 0; i < BUCKETS; i++)
        CHECK_GE(truly_served[i], reservation[i] < served_at[i] ? reservation[i] : 0);
}

static void run(uint64_t stream)
{
    bool quiet[SERVERS] = {false, false, false, false};
    uint64_t step;
    uint32_t i, j, turn;
    check_rng_init(&rng, stream);
    for (i = 0; i < BUCKETS; i++) {
        reservation[i] = check_between(&rng, 0, 150);
        limit[i] = chance(3) ? PSHIFT_UNLIMITED : reservation[i] + check_between(&rng, 0, 100);
    }
    period = 1;
    control_start();
    for (j = 0; j < SERVERS; j++)
        node_start(j);
    for (turn = 0; turn < 3; turn++) {
        memset(truly_served, 0, sizeof truly_served);
        memset(crashed, 0, sizeof crashed);
        control_restarted = false;
        for (step = 0; step < 400; step++) {
            CHECK_CONTEXT("faults %u, stream %" PRIu64 ", period %" PRIu64 ", step %" PRIu64, kinds, stream, period,
                          step);
            faulty_step(quiet);
        }
        memset(quiet, 0, sizeof quiet);
        if ((kinds & CONTROLLER) &&
            turn == 1) { /* the controller starts again; its messages under way are lost with it */
            CHECK(check_mem_free(&control_mem));
            on_wire = 0;
            control_restarted = true;
            control_start();
            controllers++;
            for (j = 0; j < SERVERS; j++) /* hears everybody in full before it plans: the old epoch's tokens count */
                for (i = 0; i < BUCKETS; i++)
                    node[j].agent.seen[i].sent = false;
        }
        settled();
        period++;
        CHECK_EQ(pshift_control_begin(&control, period), QOS_OK);
        CHECK_EQ(pshift_control_begin(&control, period), QOS_ESTALE);
        for (j = 0; j < SERVERS; j++) {
            CHECK_EQ(pshift_agent_begin(&node[j].agent, period), QOS_OK);
            CHECK_EQ(pshift_agent_begin(&node[j].agent, period), QOS_ESTALE);
        }
    }
    CHECK(check_mem_free(&control_mem));
    for (j = 0; j < SERVERS; j++)
        node_stop(j);
}

int main(void)
{
    struct pshift_config cfg = {SERVERS, BUCKETS, RECORDS};
    uint64_t stream, runs, seen[9];
    size_t k;
    check_begin("property/pshift_runtime");
    runs = check_scaled(400);
    (void)check_mem_new(&solver_mem, pshift_memsize(&cfg), 64, 0);
    CHECK_EQ(pshift_init(&solver, solver_mem.mem, solver_mem.size, &cfg), QOS_OK);
    kinds = ALL;
    for (stream = 0; stream < runs; stream++)
        run(stream);
    printf("%" PRIu64 " grants installed, %" PRIu64 " messages stale, %" PRIu64 " damaged, %" PRIu64
           " restarts, %" PRIu64 " silences\n",
           installed, stale, damaged, restarts, silences);
    CHECK(installed > runs && stale > runs && damaged > runs && restarts > runs && silences > runs);
    for (k = 0; k < sizeof faults / sizeof *faults; k++) {
        uint64_t *const count[] = {&lost,     &doubled,  &overtaken, &stale,      &damaged,
                                   &silences, &restarts, &installed, &controllers};
        static const unsigned makes[] = {LOST,   DOUBLED,   REORDERED, DOUBLED | REORDERED, DAMAGED,
                                         SILENT, RESTARTED, 0,         CONTROLLER};
        size_t c;
        for (c = 0; c < 9; c++)
            seen[c] = *count[c];
        kinds = faults[k].kinds;
        for (stream = 0; stream < check_scaled(40); stream++)
            run(stream);
        for (c = 0; c < 9; c++) {
            seen[c] = *count[c] - seen[c];
            if (makes[c] && (makes[c] & kinds) == makes[c])
                CHECK(seen[c] > 0); /* it did happen */
        }
        CHECK(seen[7] > 0);
        printf("only %s: %" PRIu64 " lost, %" PRIu64 " doubled, %" PRIu64 " out of turn, %" PRIu64 " stale, %" PRIu64
               " damaged, %" PRIu64 " silences, %" PRIu64 " restarts, %" PRIu64 " grants installed, %" PRIu64
               " new controllers\n",
               faults[k].name, seen[0], seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], seen[7], seen[8]);
    }
    CHECK(check_mem_free(&solver_mem));
    return check_end();
}
