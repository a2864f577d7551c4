// proves: no limit is exceeded in any period, nor twice the limit in any window of real time of a period's length, less
// proves: the drift: when messages are lost, repeated, damaged, late by periods; servers and controllers restart with
// proves: nothing on a disk, pause, are partitioned; clocks have any value and rates that differ; several controllers
// proves: compete; the store is slow, gone, or its replies are lost; the cluster grows from 3 servers to 9 and shrinks.
// proves: From the second quiet period on every reservation is met. Messages stay on the wire.
// variants: native san i386 s390x
#include "pshift.h"
#include "check.h"

#define SERVERS 9
#define BUCKETS 24
#define BRAINS 3
#define T 100 /* steps of real time in a period */
#define STEP_NS (QOS_NS_PER_S / T)
#define WINDOW (T - 1) /* rates differ by up to 2 permille: windows that are shorter by the drift */
#define QUIET (4 * T)
#define INTERVAL 8
#define MOST 1300 /* steps of a run */
#define NUMBERS 200
#define WIRE 600
#define PART 9 /* entries of a message: a round takes several messages */
#define BYTES (QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + PART * PSHIFT_REPORT_ENTRY_BYTES)

/* An elapsed clock: any value at the start of its process, a rate that is slightly wrong. */
struct clock {
    uint64_t value, since;
    int64_t ppm;
};

struct node {
    struct check_mem scheduler_mem, agent_mem;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct clock clock;
    uint64_t paused_until;
    uint32_t queue[BUCKETS];
    bool alive;
};

enum request { NOTHING, READ, SWAP };

struct brain {
    struct check_mem mem;
    struct pshift_controller controller;
    struct pshift_owner owner;
    struct clock clock;
    uint64_t paused_until, begun, planned;
    enum request asks;
    uint64_t asked_at, arrives_at, returns_at, expected, number; /* one request to the store */
    uint64_t found;                                              /* what it found there */
    struct qos_u128 found_nonce;
    bool alive, executed, withheld, news;
};

static struct node node[SERVERS];
static struct brain brain[BRAINS];
static struct {
    uint64_t number, gone_until;
    struct qos_u128 nonce;
} store;
static struct {
    uint64_t at;
    uint32_t server, brain;
    size_t size;
    bool report;
    uint8_t bytes[BYTES];
} wire[WIRE];
static uint32_t on_wire, rarity, servers_now;
static uint64_t now, end, threshold, largest;
static uint64_t reservation[BUCKETS], limit[BUCKETS];
static uint64_t by_number[NUMBERS][BUCKETS], by_step[MOST][BUCKETS], first_step[NUMBERS];
static bool cut[BRAINS][SERVERS];
static struct check_rng rng;
static uint64_t pairs, restarts, twins, swaps, lost, met, windows, ambiguous, full;

static uint64_t draw(uint64_t low, uint64_t high)
{
    return check_between(&rng, low, high);
}

static bool chance(uint64_t one_in)
{
    return draw(1, one_in) == 1;
}

static bool faulty(void)
{
    return now + QUIET < end;
}

static struct qos_u128 nonce(void)
{
    struct qos_u128 n;
    n.hi = check_rand(&rng);
    n.lo = check_rand(&rng) | 1;
    return n;
}

static struct clock new_clock(void)
{
    struct clock c;
    c.value = draw(0, UINT64_C(1) << draw(10, 60));
    c.since = now;
    c.ppm = (int64_t)draw(0, 4000) - 2000;
    return c;
}

static uint64_t time_of(const struct clock *c)
{
    const int64_t gone = (int64_t)((now - c->since) * STEP_NS);
    return c->value + (uint64_t)(gone + gone / 1000 * c->ppm / 1000);
}

/* ---- servers ---------------------------------------------------------------------------------------------------- */

static void node_stop(struct node *n)
{
    if (n->alive) {
        CHECK(check_mem_free(&n->scheduler_mem));
        CHECK(check_mem_free(&n->agent_mem));
    }
    n->alive = false;
}

static void node_start(uint32_t j)
{
    struct node *n = &node[j];
    const struct pshift_scheduler_config sc = {BUCKETS + 1, 0};
    struct pshift_agent_config ac = {NULL, 0, {0, 0}, 0, 0, 0};
    uint32_t i, k;
    node_stop(n);
    (void)check_mem_new(&n->scheduler_mem, pshift_scheduler_memsize(&sc), 64, 0);
    CHECK_EQ(pshift_scheduler_init(&n->scheduler, n->scheduler_mem.mem, n->scheduler_mem.size, &sc), QOS_OK);
    ac.scheduler = &n->scheduler;
    ac.server = j;
    ac.boot = nonce();
    ac.unchanged_permille = (uint32_t)threshold;
    (void)check_mem_new(&n->agent_mem, pshift_agent_memsize(&ac), 64, 0);
    CHECK_EQ(pshift_agent_init(&n->agent, n->agent_mem.mem, n->agent_mem.size, &ac), QOS_OK);
    for (i = 0, k = (uint32_t)draw(0, BUCKETS - 1); i < BUCKETS; i++) /* in any order */
        CHECK_EQ(pshift_agent_open(&n->agent, 1000 + (i + k) % BUCKETS, &n->queue[(i + k) % BUCKETS]), QOS_OK);
    n->clock = new_clock();
    n->paused_until = 0;
    n->alive = true;
}

static void post(const uint8_t *bytes, size_t size, bool report, uint32_t b, uint32_t j)
{
    uint32_t k, copies = faulty() && chance(30) ? 2 : 1;
    if (faulty() && (cut[b][j] || chance(8 * rarity))) {
        lost++;
        return;
    }
    for (; copies != 0; copies--) {
        if (on_wire == WIRE) /* the oldest slot is lost */
            k = (uint32_t)draw(0, WIRE - 1);
        else
            k = on_wire++;
        memcpy(wire[k].bytes, bytes, size);
        wire[k].size = size;
        wire[k].report = report;
        wire[k].brain = b;
        wire[k].server = j;
        wire[k].at = now + draw(0, faulty() && chance(10) ? (chance(4) ? 4 * T : 20) : 1);
        if (faulty() && chance(300))
            wire[k].bytes[draw(0, size - 1)] ^= (uint8_t)(1 << draw(0, 7));
    }
}

static void send_reports(uint32_t j)
{
    struct pshift_message m;
    struct pshift_report_entry entry[PART];
    uint8_t bytes[BYTES];
    size_t size;
    uint32_t b;
    while (pshift_agent_report(&node[j].agent, &m, entry, PART) == QOS_OK) {
        m.capacity = 4000;
        CHECK_EQ(pshift_report_encode(&m, entry, bytes, sizeof bytes, &size), QOS_OK);
        for (b = 0; b < BRAINS; b++)
            post(bytes, size, true, b, j);
    }
}

static void serve(struct node *n)
{
    struct pshift_agent_state state;
    struct pshift_pick pick;
    uint32_t k, i;
    for (k = 0; k < 60 && pshift_scheduler_pick(&n->scheduler, time_of(&n->clock), &pick) == QOS_OK; k++) {
        (void)pshift_agent_info(&n->agent, &state);
        for (i = 0; n->queue[i] != pick.queue; i++) {
        }
        CHECK(state.period < NUMBERS);
        by_number[state.period % NUMBERS][i]++;
        by_step[now][i]++;
    }
}

static void node_step(uint32_t j)
{
    struct node *n = &node[j];
    struct pshift_scheduler_state state;
    uint32_t i;
    if (!n->alive || now < n->paused_until)
        return;
    for (i = 0; i < BUCKETS; i++) {
        (void)pshift_scheduler_info(&n->scheduler, n->queue[i], &state);
        if (state.pending < 60)
            CHECK_EQ(pshift_scheduler_arrive(&n->scheduler, n->queue[i], 60 - state.pending), QOS_OK);
    }
    if ((now + j) % INTERVAL == 0) {
        pshift_agent_measure(&n->agent, time_of(&n->clock));
        send_reports(j);
    }
    serve(n);
}

/* ---- controllers ------------------------------------------------------------------------------------------------ */

static void brain_stop(struct brain *b)
{
    if (b->alive)
        CHECK(check_mem_free(&b->mem));
    b->alive = false;
}

/* Forgets everything; a request that it has sent stays on its way. */
static void brain_start(struct brain *b)
{
    struct pshift_controller_config cc = {SERVERS, BUCKETS, SERVERS * BUCKETS, {0, 0}, 0, 0};
    struct pshift_owner_config oc = {{0, 0}, 0, 0};
    uint32_t i;
    brain_stop(b);
    oc.nonce = cc.nonce = nonce();
    oc.periods = 1 + (uint32_t)largest % 3; /* the same for all controllers of a run */
    CHECK_EQ(pshift_owner_init(&b->owner, &oc), QOS_OK);
    (void)check_mem_new(&b->mem, pshift_controller_memsize(&cc), 64, 0);
    CHECK_EQ(pshift_controller_init(&b->controller, b->mem.mem, b->mem.size, &cc), QOS_OK);
    for (i = 0; i < BUCKETS; i++)
        CHECK_EQ(
            pshift_controller_change(&b->controller, 1000 + i, reservation[i], limit[i] == UINT64_MAX ? 0 : limit[i]),
            QOS_OK);
    b->clock = new_clock();
    b->paused_until = b->begun = b->planned = 0;
    b->asks = NOTHING;
    b->withheld = b->news = false;
    b->alive = true;
}

static void ask_store(struct brain *b, enum request what, uint64_t number)
{
    b->asks = what;
    b->asked_at = now;
    b->expected = b->owner.seen;
    b->number = number;
    b->executed = false;
    b->arrives_at = now + draw(0, faulty() && chance(6) ? 2 * T : 1);
    b->returns_at = b->arrives_at + draw(0, faulty() && chance(6) ? 2 * T : 1);
    if (faulty() && chance(12)) { /* the reply is lost */
        b->returns_at = UINT64_MAX;
        ambiguous += what == SWAP;
    }
}

/* The store executes a request at one moment, also that of a dead process. */
static void store_step(struct brain *b)
{
    if (b->asks == NOTHING || b->executed || now < b->arrives_at || now < store.gone_until)
        return;
    if (b->asks == SWAP && store.number == b->expected) {
        twins += store.nonce.lo != b->owner.config.nonce.lo && store.number != 0;
        store.number = b->number;
        store.nonce = b->owner.config.nonce;
        swaps++;
    }
    b->found = store.number;
    b->found_nonce = store.nonce;
    b->executed = true;
}

static void own(struct brain *b)
{
    const uint64_t time = time_of(&b->clock);
    uint64_t number;
    if (b->asks != NOTHING && b->executed && now >= b->returns_at) {
        pshift_owner_saw(&b->owner, time, b->found, b->found_nonce);
        b->asks = NOTHING;
    }
    if (b->asks != NOTHING && now - b->asked_at > 30 && (b->asks == READ || b->executed || chance(20)))
        b->asks = NOTHING; /* no reply: a swap that has not arrived may be lost, or is waited for */
    if (b->asks != NOTHING)
        return;
    if (pshift_owner_ask(&b->owner, time, &number) == QOS_OK)
        ask_store(b, SWAP, number);
    else if (b->owner.step != PSHIFT_OWNER_WAITS || (now + draw(0, 9)) % 10 == 0)
        ask_store(b, READ, 0);
}

static void plan(struct brain *b)
{
    struct pshift_controller_state state;
    struct pshift_grant_entry entry[PART];
    struct pshift_message m;
    uint8_t bytes[BYTES];
    size_t size;
    uint32_t j;
    CHECK_EQ(pshift_controller_plan(&b->controller, NULL), QOS_OK);
    (void)pshift_controller_info(&b->controller, &state);
    b->withheld = state.withheld != 0 || state.awaited != 0;
    b->news = false;
    b->planned = now;
    for (j = 0; j < SERVERS; j++)
        while (pshift_controller_grant(&b->controller, time_of(&b->clock), j, &m, entry, PART) == QOS_OK) {
            CHECK_EQ(pshift_grant_encode(&m, entry, bytes, sizeof bytes, &size), QOS_OK);
            post(bytes, size, false, (uint32_t)(b - brain), j);
        }
}

static void brain_step(struct brain *b)
{
    uint64_t period, start_ns;
    if (!b->alive || now < b->paused_until)
        return;
    own(b);
    if (pshift_owner_holds(&b->owner, time_of(&b->clock), &period, &start_ns) == QOS_OK && period > b->begun) {
        CHECK_EQ(pshift_controller_begin(&b->controller, start_ns, period), QOS_OK);
        b->begun = period;
        if (period < NUMBERS && time_of(&b->clock) - start_ns <= 8 * STEP_NS) /* else the store was slow */
            first_step[period] = now;
        plan(b);
    } else if (b->begun != 0 && (now - b->planned >= INTERVAL || (b->withheld && b->news))) {
        plan(b);
    }
}

/* ---- the wire, faults -------------------------------------------------------------------------------------------- */

static void deliver(uint32_t k)
{
    const uint32_t j = wire[k].server;
    struct brain *b = &brain[wire[k].brain];
    struct pshift_message m;
    struct pshift_report_entry report[PART];
    struct pshift_grant_entry grant[PART];
    if (wire[k].report && b->alive && now >= b->paused_until) {
        if (pshift_report_decode(wire[k].bytes, wire[k].size, &m, report, PART) == QOS_OK)
            b->news |= pshift_controller_report(&b->controller, &m, report) == QOS_OK;
    } else if (!wire[k].report && node[j].alive && now >= node[j].paused_until) {
        if (pshift_grant_decode(wire[k].bytes, wire[k].size, &m, grant, PART) == QOS_OK &&
            pshift_agent_install(&node[j].agent, time_of(&node[j].clock), &m, grant) == QOS_OK)
            send_reports(j);
    }
}

static void deliver_due(void)
{
    uint32_t k, tries = on_wire;
    for (; tries != 0 && on_wire != 0; tries--) {
        k = (uint32_t)draw(0, on_wire - 1);
        if (wire[k].at > now)
            continue;
        deliver(k);
        wire[k] = wire[--on_wire];
    }
    for (k = 0; k < on_wire;) /* those that the draw left out, in the quiet time */
        if (!faulty() && wire[k].at <= now) {
            deliver(k);
            wire[k] = wire[--on_wire];
        } else {
            k++;
        }
}

static void fault(void)
{
    const uint32_t j = (uint32_t)draw(0, SERVERS - 1), k = (uint32_t)draw(0, BRAINS - 1);
    uint32_t i;
    switch (draw(0, 9)) {
    case 0:
    case 1:
        if (j < servers_now) {
            node_start(j);
            restarts++;
        }
        break;
    case 2: node[j].paused_until = now + draw(1, chance(3) ? 3 * T : 20); break;
    case 3: brain_start(&brain[k]); break;
    case 4: brain[k].paused_until = now + draw(1, chance(3) ? 3 * T : 20); break;
    case 5: store.gone_until = now + draw(1, chance(3) ? 3 * T : 20); break;
    case 6: cut[k][j] = !cut[k][j]; break;
    case 7: memset(cut, 0, sizeof cut); break;
    case 8: /* growth, or the reverse */
        servers_now = (uint32_t)draw(3, SERVERS);
        for (i = 0; i < SERVERS; i++)
            if (i >= servers_now)
                node_stop(&node[i]);
            else if (!node[i].alive)
                node_start(i);
        break;
    default: brain_stop(&brain[k]); brain_start(&brain[k]);
    }
}

static void judge(void)
{
    uint64_t sum[BUCKETS] = {0};
    uint32_t i, p, t;
    for (i = 0; i < BUCKETS; i++) {
        if (limit[i] == UINT64_MAX)
            continue;
        for (p = 1; p <= store.number && p < NUMBERS; p++) {
            CHECK_LE(by_number[p][i], limit[i]);
            pairs++;
        }
        for (t = 0; t < end; t++) {
            sum[i] += by_step[t][i];
            sum[i] -= t >= WINDOW ? by_step[t - WINDOW][i] : 0;
            CHECK_LE(sum[i], 2 * limit[i]);
            windows++;
        }
    }
    for (p = 1; p < NUMBERS; p++) { /* begun in the second quiet period or later, and over */
        if (first_step[p] + QUIET <= end + 3 * T / 2 || first_step[p] + T >= end)
            continue;
        for (i = 0; i < BUCKETS; i++) {
            CHECK_GE(by_number[p][i], reservation[i]);
            met++;
            full += limit[i] != UINT64_MAX && by_number[p][i] == limit[i];
        }
    }
}

static void run(uint64_t stream)
{
    uint32_t i, j;
    check_rng_init(&rng, stream);
    memset(by_number, 0, sizeof by_number);
    memset(by_step, 0, sizeof by_step);
    memset(first_step, 0, sizeof first_step);
    memset(cut, 0, sizeof cut);
    memset(&store, 0, sizeof store);
    now = on_wire = 0;
    largest = stream;
    end = draw(8 * T, MOST - 1);
    rarity = 1u << draw(0, 4);
    threshold = stream % 3 == 0 ? 0 : stream % 3 == 1 ? 100 : 1000;
    for (i = 0; i < BUCKETS; i++) {
        reservation[i] = draw(0, 150);
        limit[i] = chance(12) ? UINT64_MAX : reservation[i] + draw(0, 100) + 1;
        reservation[i] = chance(4) ? 0 : reservation[i];
    }
    servers_now = (uint32_t)draw(3, SERVERS);
    for (j = 0; j < servers_now; j++)
        node_start(j);
    for (j = 0; j < BRAINS; j++)
        brain_start(&brain[j]);
    for (; now < end; now++) {
        if (faulty() && chance(rarity * 3))
            fault();
        if (now + QUIET == end) {
            memset(cut, 0, sizeof cut);
            store.gone_until = 0;
            for (j = 0; j < SERVERS; j++)
                node[j].paused_until = 0;
            for (j = 0; j < BRAINS; j++)
                brain[j].paused_until = 0;
            for (j = 0; j < on_wire; j++) /* what is late arrives in the first quiet period */
                if (wire[j].at > now + T)
                    wire[j].at = now + T;
        }
        for (j = 0; j < BRAINS; j++)
            store_step(&brain[j]);
        for (j = 0; j < BRAINS; j++)
            brain_step(&brain[j]);
        deliver_due();
        for (j = 0; j < SERVERS; j++)
            node_step(j);
    }
    CHECK_CONTEXT("stream %" PRIu64, stream);
    judge();
    for (j = 0; j < SERVERS; j++)
        node_stop(&node[j]);
    for (j = 0; j < BRAINS; j++)
        brain_stop(&brain[j]);
}

int main(void)
{
    uint64_t stream, runs;
    check_begin("property/pshift_runtime");
    runs = check_scaled(check_scaled(4) == 4 ? check_env("PAIRS_STREAMS", 400) : 130);
    for (stream = 0; stream < runs; stream++)
        run(stream);
    printf("%" PRIu64 " (bucket, period) pairs, %" PRIu64 " windows; %" PRIu64 " swaps, %" PRIu64
           " of them from another owner, %" PRIu64 " with a lost reply; %" PRIu64 " restarts, %" PRIu64
           " messages lost; %" PRIu64 " reservations judged, %" PRIu64 " limits used in full\n",
           pairs, windows, swaps, twins, ambiguous, restarts, lost, met, full);
    CHECK(swaps > runs && twins > runs / 2 && restarts > runs && lost > runs && met > runs);
    return check_end();
}
