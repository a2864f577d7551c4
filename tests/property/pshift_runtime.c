// proves: no limit is ever exceeded, with the threshold on and off, when messages are lost, repeated, late by any
// proves: number of periods, damaged or reordered; when servers are silent, restart, die for good or are removed by an
// proves: operator, who may be wrong; when controllers restart while old ones still send. After the faults every
// proves: reservation is met again in the second period, without the dead servers. Messages stay on the wire.
// variants: native san i386 s390x
#include "pshift.h"
#include "check.h"

#define SERVERS 5
#define BUCKETS 24
#define CONTROLLERS 2
#define PERIODS 6 /* the last two without faults */
#define WIRE 160
#define PART 9 /* entries of a message: a round takes several messages */
#define BYTES (QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + PART * PSHIFT_REPORT_ENTRY_BYTES)
#define QUEUES (BUCKETS + 1)

struct node {
    struct check_mem scheduler_mem, agent_mem;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    uint64_t epoch, period;
    uint64_t kept_epoch; /* on its disk */
    bool late_disk;      /* the epoch is stored before the next report, not before a grant is installed */
    bool quiet, dead;
};

struct brain {
    struct check_mem mem;
    struct pshift_controller controller;
    uint64_t epoch;
    bool alive, quiet;
};

enum {
    LOST = 1,
    DOUBLED = 2,
    REORDERED = 4,
    DAMAGED = 8,
    SILENT = 16,
    RESTARTED = 32,
    CONTROLLER = 64,
    TWINS = 128,
    LATE = 256,
    SKEW = 512,
    DEAD = 1024,
    WRONG = 2048,
    ALL = 4095
};
static const struct {
    const char *name;
    unsigned kinds;
} faults[] = {
    {"none", 0},
    {"lost", LOST},
    {"duplicated", DOUBLED},
    {"reordered", REORDERED},
    {"late by periods", LATE | REORDERED},
    {"damaged", DAMAGED},
    {"silent servers", SILENT},
    {"restarted servers", RESTARTED},
    {"restarted controllers", CONTROLLER},
    {"old controllers that go on", CONTROLLER | TWINS | REORDERED},
    {"periods that begin at different times", SKEW | REORDERED},
    {"dead servers", DEAD | CONTROLLER},
    {"dead servers, old controllers", DEAD | CONTROLLER | TWINS | SKEW | LATE | REORDERED},
    {"removed servers that live", WRONG | CONTROLLER | TWINS | RESTARTED | SKEW | REORDERED},
    {"all but lost", ALL - LOST},
};
static unsigned kinds; /* of this run */

static struct node node[SERVERS];
static struct brain brain[CONTROLLERS];
static uint64_t bucket_id[BUCKETS], reservation[BUCKETS], limit[BUCKETS]; /* limit: UINT64_MAX for none */
static uint64_t served[PERIODS + 1][BUCKETS], period, epochs;
static uint32_t threshold, steps, rarity; /* rarity of faults, random for each run */
static uint32_t absent;                   /* absent_max */
static bool word;                         /* the operator tells the controllers which servers are dead */
static struct {
    uint8_t bytes[BYTES];
    size_t size;
    bool report;
    uint32_t to; /* server or controller */
} wire[WIRE];
static uint32_t on_wire;
static bool cut[CONTROLLERS][SERVERS]; /* no message passes between these two, in either direction */
static uint64_t stale, damaged, installed, restarts, lost, doubled, overtaken, controllers, pairs, twins, deaths, words;
static struct check_rng rng;

static bool chance(uint64_t one_in)
{
    return check_between(&rng, 1, one_in) == 1;
}

static void node_start(uint32_t j)
{
    struct node *n = &node[j];
    struct pshift_scheduler_config sc = {QUEUES, 0};
    struct pshift_agent_config ac = {NULL, 0, 0, 0, 0, 0};
    uint32_t i, queue = 0;
    ac.scheduler = &n->scheduler;
    ac.server = j;
    ac.epoch = ++n->epoch;
    ac.controller_epoch = n->kept_epoch;
    ac.unchanged_permille = threshold;
    (void)check_mem_new(&n->scheduler_mem, pshift_scheduler_memsize(&sc), 64, 0);
    CHECK_EQ(pshift_scheduler_init(&n->scheduler, n->scheduler_mem.mem, n->scheduler_mem.size, &sc), QOS_OK);
    (void)check_mem_new(&n->agent_mem, pshift_agent_memsize(&ac), 64, 0);
    CHECK_EQ(pshift_agent_init(&n->agent, n->agent_mem.mem, n->agent_mem.size, &ac), QOS_OK);
    for (i = 0; i < BUCKETS; i++) { /* queue numbers differ from server to server */
        CHECK_EQ(pshift_agent_open(&n->agent, bucket_id[(i + j) % BUCKETS], &queue), QOS_OK);
        CHECK_EQ(queue, i);
    }
    n->period = period;
    CHECK_EQ(pshift_agent_begin(&n->agent, period), QOS_OK);
}

static void node_stop(uint32_t j)
{
    CHECK(check_mem_free(&node[j].scheduler_mem));
    CHECK(check_mem_free(&node[j].agent_mem));
}

static uint32_t queue_of(uint32_t j, uint32_t i)
{
    return (i + BUCKETS - j % BUCKETS) % BUCKETS;
}

static void remove_from(struct brain *b, uint32_t j)
{
    words++;
    CHECK_EQ(pshift_controller_remove(&b->controller, j), QOS_OK);
}

/* Again in each period: a report of a dead server that comes late brings it back. */
static void remove_dead(struct brain *b)
{
    uint32_t j;
    for (j = 0; word && j < SERVERS; j++)
        if (node[j].dead)
            remove_from(b, j);
}

static void brain_stop(struct brain *b)
{
    if (b->alive)
        CHECK(check_mem_free(&b->mem));
    b->alive = false;
}

static void brain_start(struct brain *b)
{
    struct pshift_controller_config cc = {SERVERS, BUCKETS, SERVERS * BUCKETS, 0, 0, absent};
    uint32_t i;
    brain_stop(b);
    b->epoch = cc.epoch = ++epochs;
    b->alive = true;
    b->quiet = false;
    (void)check_mem_new(&b->mem, pshift_controller_memsize(&cc), 64, 0);
    CHECK_EQ(pshift_controller_init(&b->controller, b->mem.mem, b->mem.size, &cc), QOS_OK);
    for (i = 0; i < BUCKETS; i++)
        CHECK_EQ(pshift_controller_change(&b->controller, bucket_id[i], reservation[i],
                                          limit[i] == 0 ? QOS_NOTHING : limit[i]),
                 QOS_OK);
    CHECK_EQ(pshift_controller_begin(&b->controller, period), QOS_OK);
    remove_dead(b);
}

/* Delivers one message. */
static void deliver(uint32_t k)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    struct pshift_report_entry re[PART];
    struct pshift_grant_entry ge[PART];
    enum qos_status st = QOS_OK;
    if (wire[k].report) {
        if (!brain[wire[k].to].alive)
            return;
        st = pshift_report_decode(wire[k].bytes, wire[k].size, &m, re, PART);
        if (st == QOS_OK)
            st = pshift_controller_report(&brain[wire[k].to].controller, &m, re);
    } else {
        struct node *n = &node[wire[k].to];
        struct pshift_agent_state info;
        if (n->dead)
            return;
        st = pshift_grant_decode(wire[k].bytes, wire[k].size, &m, ge, PART);
        if (st == QOS_OK)
            st = pshift_agent_install(&n->agent, &m, ge);
        installed += st == QOS_OK;
        CHECK_EQ(pshift_agent_info(&n->agent, &info), QOS_OK);
        n->kept_epoch = n->late_disk ? n->kept_epoch : info.controller_epoch;
    }
    stale += st == QOS_ESTALE;
    damaged += st == QOS_ECORRUPT || st == QOS_ETRUNCATED;
    CHECK(st == QOS_OK || st == QOS_ESTALE || st == QOS_ECORRUPT || st == QOS_ETRUNCATED);
}

static void drop(uint32_t k)
{
    wire[k] = wire[--on_wire];
}

static void drop_first(void)
{
    memmove(wire, wire + 1, --on_wire * sizeof *wire);
}

static void post(const uint8_t *bytes, size_t size, bool report, uint32_t to)
{
    CHECK(size != 0 && size <= BYTES);
    if (on_wire == WIRE && (kinds & (LOST | LATE))) {
        drop((uint32_t)check_between(&rng, 0, WIRE - 1));
    } else if (on_wire == WIRE) {
        deliver(0);
        drop_first();
    }
    memcpy(wire[on_wire].bytes, bytes, size);
    wire[on_wire].size = size;
    wire[on_wire].report = report;
    wire[on_wire++].to = to;
}

/* Reports go to every controller. */
static void send_reports(uint32_t j, bool now)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    struct pshift_report_entry entry[PART];
    uint8_t bytes[BYTES];
    size_t size = 0;
    uint32_t c;
    struct pshift_agent_state info;
    if (node[j].dead || node[j].quiet)
        return;
    CHECK_EQ(pshift_agent_info(&node[j].agent, &info), QOS_OK);
    node[j].kept_epoch = info.controller_epoch;
    pshift_agent_measure(&node[j].agent, 1000, 1000);
    while (pshift_agent_report(&node[j].agent, &m, entry, (uint32_t)check_between(&rng, 1, PART)) == QOS_OK) {
        m.capacity = 1000000; /* ample: this test is not about capacity */
        CHECK_EQ(pshift_report_encode(&m, entry, bytes, sizeof bytes, &size), QOS_OK);
        for (c = 0; c < CONTROLLERS; c++) {
            if (!brain[c].alive || cut[c][j])
                continue;
            post(bytes, size, true, c);
            if (now) {
                deliver(on_wire - 1);
                on_wire--;
            }
        }
    }
}

static void send_grants(struct brain *b, uint32_t j, bool now)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    struct pshift_grant_entry entry[PART];
    uint8_t bytes[BYTES];
    size_t size = 0;
    while (pshift_controller_grant(&b->controller, j, &m, entry, (uint32_t)check_between(&rng, 1, PART)) == QOS_OK) {
        CHECK_EQ(pshift_grant_encode(&m, entry, bytes, sizeof bytes, &size), QOS_OK);
        if (cut[b - brain][j])
            continue;
        post(bytes, size, false, j);
        if (now) {
            deliver(on_wire - 1);
            on_wire--;
        }
    }
}

static void plan(struct brain *b)
{
    enum qos_status st = pshift_controller_plan(&b->controller, NULL);
    CHECK(st == QOS_OK || st == QOS_ESTALE);
}

static void serve(uint32_t j, uint64_t most)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    for (; !node[j].dead && most > 0 && pshift_scheduler_pick(&node[j].scheduler, &pick) == QOS_OK; most--) {
        uint32_t i = (pick.queue + j) % BUCKETS;
        CHECK_LE(++served[node[j].period][i], limit[i]);
    }
}

static void begin_node(uint32_t j)
{
    if (node[j].dead || node[j].period == period)
        return;
    node[j].period = period;
    CHECK_EQ(pshift_agent_begin(&node[j].agent, period), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&node[j].agent, period), QOS_ESTALE);
}

static void begin_brain(struct brain *b)
{
    struct pshift_controller_state info;
    if (!b->alive)
        return;
    CHECK_EQ(pshift_controller_info(&b->controller, &info), QOS_OK);
    if (info.period < period)
        CHECK_EQ(pshift_controller_begin(&b->controller, period), QOS_OK);
    CHECK_EQ(pshift_controller_begin(&b->controller, period), QOS_ESTALE);
    remove_dead(b);
}

static void faulty_delivery(void)
{
    uint32_t k;
    if (on_wire == 0)
        return;
    k = kinds & REORDERED ? (uint32_t)check_between(&rng, 0, on_wire - 1) : 0;
    overtaken += k != 0;
    if ((kinds & LOST) && chance(4)) {
        lost++;
    } else if ((kinds & DAMAGED) && chance(6)) { /* one bit, or cut short */
        if (chance(2))
            wire[k].bytes[check_between(&rng, 0, wire[k].size - 1)] ^= (uint8_t)(1u << check_between(&rng, 0, 7));
        else
            wire[k].size = (size_t)check_between(&rng, 0, wire[k].size - 1);
        deliver(k);
    } else {
        deliver(k);
        if ((kinds & DOUBLED) && chance(3)) { /* arrives again later */
            doubled++;
            return;
        }
    }
    if (kinds & REORDERED)
        drop(k);
    else
        drop_first();
}

/* Each server can reach one of the two controllers only. */
static void part_network(void)
{
    uint32_t j;
    for (j = 0; j < SERVERS; j++) {
        cut[0][j] = chance(2);
        cut[1][j] = !cut[0][j];
    }
}

static void replace_controllers(struct brain *b)
{
    controllers++;
    brain_stop(&brain[0]);
    brain_stop(&brain[1]);
    brain_start(b);
}

static void controller_fault(void)
{
    struct brain *b = &brain[check_between(&rng, 0, CONTROLLERS - 1)];
    if (!chance(3 * rarity))
        return;
    if (kinds & TWINS) {
        twins++;
        controllers++;
        brain_start(b); /* the other one keeps running */
        if (chance(3))
            part_network();
        return;
    }
    replace_controllers(b);
}

/* A round in which most messages arrive at once; the others stay on the wire. */
static void busy_round(struct brain *b)
{
    uint32_t j, from, i;
    for (j = 0; j < SERVERS; j++) {
        i = (uint32_t)check_between(&rng, 0, BUCKETS - 1);
        CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, queue_of(j, i), check_between(&rng, 0, 90)), QOS_OK);
        from = on_wire;
        send_reports(j, false);
        for (; on_wire > from && on_wire < WIRE && !chance(4 * rarity); drop(on_wire - 1))
            deliver(on_wire - 1);
    }
    plan(b);
    for (j = 0; j < SERVERS; j++) {
        from = on_wire;
        send_grants(b, j, false);
        for (; on_wire > from && on_wire < WIRE && !chance(4 * rarity); drop(on_wire - 1))
            deliver(on_wire - 1);
        serve(j, check_between(&rng, 0, 60));
    }
}

/* A server is gone for good. If no controller knows it, at most absent_max servers may be; if the message may be wrong,
   none. */
static void die(uint32_t j)
{
    uint32_t k, dead = 0, c;
    for (k = 0; k < SERVERS; k++)
        dead += node[k].dead;
    if (node[j].dead || dead >= (word ? SERVERS - 1 : kinds & WRONG ? 0 : absent))
        return;
    node[j].dead = true;
    deaths++;
    if ((kinds & CONTROLLER) && chance(2)) /* and the controller with it, perhaps on the same host */
        replace_controllers(&brain[chance(2)]);
    for (c = 0; word && c < CONTROLLERS; c++)
        if (brain[c].alive)
            remove_from(&brain[c], j);
}

static void faulty_step(void)
{
    uint32_t j = (uint32_t)check_between(&rng, 0, SERVERS - 1), i = (uint32_t)check_between(&rng, 0, BUCKETS - 1);
    struct brain *b = &brain[check_between(&rng, 0, CONTROLLERS - 1)];
    b = b->alive ? b : &brain[b == brain];
    switch (check_between(&rng, 0, 17)) {
    case 0:
    case 1:
        CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, queue_of(j, i), check_between(&rng, 0, 30)), QOS_OK);
        break;
    case 2:
    case 3: serve(j, check_between(&rng, 0, 40)); break;
    case 4:
    case 5: send_reports(j, false); break;
    case 6: plan(b); break;
    case 7: send_grants(b, j, false); break;
    case 8:
        if ((kinds & SILENT) && chance(4 * rarity))
            node[j].quiet = !node[j].quiet;
        break;
    case 9:
        if ((kinds & RESTARTED) && !node[j].dead && chance(2 * rarity)) {
            node_stop(j);
            node_start(j);
            restarts++;
        }
        break;
    case 10:
        if (kinds & CONTROLLER)
            controller_fault();
        if ((kinds & TWINS) && chance(rarity))
            cut[b - brain][j] = !cut[b - brain][j];
        if ((kinds & TWINS) && chance(8 * rarity))
            memset(cut, 0, sizeof cut);
        break;
    case 11:
        begin_node(j);
        begin_brain(b);
        if ((kinds & DEAD) && chance(2 * rarity))
            die(j);
        if ((kinds & WRONG) && j < absent &&
            chance(2)) /* always the same servers, at most absent_max: no more dead ones */
            remove_from(b, j);
        break;
    case 12:
    case 13:
    case 14: busy_round(b); break;
    default: faulty_delivery();
    }
}

/* A round in which all messages arrive, and sometimes old ones too. */
static void healthy_round(void)
{
    uint32_t j, c;
    for (j = 0; j < SERVERS; j++)
        send_reports(j, true);
    for (c = 0; c < CONTROLLERS; c++) {
        if (!brain[c].alive)
            continue;
        plan(&brain[c]);
        for (j = 0; j < SERVERS; j++)
            send_grants(&brain[c], j, true);
    }
    for (j = 0; j < 8; j++)
        faulty_delivery();
}

/* The second period without faults: every reservation with demand is met, and a limit can be used in full. */
static void healthy_period(bool judged)
{
    const unsigned were = kinds;
    uint32_t i, j, round;
    kinds &= REORDERED | DOUBLED | LATE;
    memset(cut, 0, sizeof cut);
    for (j = 0; j < SERVERS; j++)
        begin_node(j);
    begin_brain(&brain[0]);
    begin_brain(&brain[1]);
    for (i = 0; i < BUCKETS; i++)
        for (j = 0; j < SERVERS; j++)
            CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, queue_of(j, i), 260), QOS_OK);
    for (round = 0; round < 5; round++) {
        healthy_round();
        for (j = 0; j < SERVERS; j++)
            serve(j, UINT64_MAX);
    }
    for (i = 0; judged && i < BUCKETS; i++) {
        CHECK_GE(served[period][i], reservation[i]);
        if (limit[i] <= 250)
            CHECK_EQ(served[period][i], limit[i]);
    }
    kinds = were;
}

static void run(uint64_t stream)
{
    uint32_t i, j, step;
    check_rng_init(&rng, stream);
    memset(served, 0, sizeof served);
    for (i = 0; i < BUCKETS; i++) {
        bucket_id[i] = stream % 2 ? check_rand(&rng) : i;
        reservation[i] = check_between(&rng, 0, 150);
        limit[i] = chance(12) ? UINT64_MAX : reservation[i] + check_between(&rng, 0, 100);
        reservation[i] = chance(4) ? 0 : reservation[i];
        pairs += limit[i] != UINT64_MAX ? PERIODS : 0;
    }
    threshold = stream % 3 == 0 ? 0 : stream % 3 == 1 ? 100 : 1000;
    steps = (uint32_t)check_between(&rng, 20, 120);
    rarity = 1u << check_between(&rng, 0, 4);
    period = 1;
    epochs = on_wire = 0;
    memset(cut, 0, sizeof cut);
    for (j = 0; j < SERVERS; j++) {
        memset(&node[j], 0, sizeof node[j]);
        node[j].late_disk = chance(2);
        node_start(j);
    }
    absent = (uint32_t)check_between(&rng, 0, (SERVERS - 1) / 2);
    word = !(kinds & WRONG) && chance(2);
    brain_start(&brain[0]);
    for (; period <= PERIODS; period++) {
        for (j = 0; j < SERVERS && period > 1; j++)
            if (!(kinds & SKEW))
                begin_node(j);
        if (!(kinds & SKEW)) {
            begin_brain(&brain[0]);
            begin_brain(&brain[1]);
        }
        for (step = 0; period <= PERIODS - 2 && step < steps; step++) {
            CHECK_CONTEXT("faults %u, stream %" PRIu64 ", period %" PRIu64 ", step %u", kinds, stream, period, step);
            faulty_step();
        }
        CHECK_CONTEXT("faults %u, stream %" PRIu64 ", period %" PRIu64, kinds, stream, period);
        for (j = 0; j < SERVERS; j++)
            node[j].quiet = false;
        if (period > PERIODS - 2)
            healthy_period(period == PERIODS);
    }
    brain_stop(&brain[0]);
    brain_stop(&brain[1]);
    for (j = 0; j < SERVERS; j++)
        node_stop(j);
}

/* All runs together check a million pairs; with sanitizers and on emulated targets they check fewer. */
static uint64_t part_of(uint64_t runs)
{
    return check_scaled(check_scaled(4) == 4 ? runs : runs / 3);
}

int main(void)
{
    uint64_t stream, runs;
    size_t k;
    check_begin("property/pshift_runtime");
    runs = part_of(check_env("PAIRS_STREAMS", 4000));
    for (stream = 0; stream < runs; stream++) {
        kinds = stream / 2 % 2 ? ALL : ALL - WRONG;
        run(stream);
    }
    printf("%" PRIu64 " (bucket, period) pairs; %" PRIu64 " grants installed, %" PRIu64 " messages stale, %" PRIu64
           " damaged, %" PRIu64 " lost, %" PRIu64 " repeated, %" PRIu64 " overtaken, %" PRIu64 " restarts, %" PRIu64
           " new controllers, %" PRIu64 " beside an old one, %" PRIu64 "  removals that may be wrong\n",
           pairs, installed, stale, damaged, lost, doubled, overtaken, restarts, controllers, twins, words);
    CHECK(installed > runs && stale > runs && damaged > runs && restarts > runs && lost > runs && doubled > runs);
    CHECK(overtaken > runs && controllers > runs / 4 && twins > runs / 4 && words > runs / 4);
    for (k = 0; k < sizeof faults / sizeof *faults; k++) {
        kinds = faults[k].kinds;
        for (stream = 0; stream < part_of(250); stream++)
            run(stream);
    }
    printf("%" PRIu64 " (bucket, period) pairs in all, %" PRIu64 " servers dead for good\n", pairs, deaths);
    CHECK(deaths > runs / 8);
    return check_end();
}
