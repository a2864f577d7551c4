// proves: whatever one client of tags.h does (think times, bursts, costs, service times, failures, cancelled and forced
// proves: requests, removal and return, other weights and reservations), a limit, a victim's share by weight, its
// proves: reservation and the surplus above the limits keep the bounds that the header states, in every window.
// scale: 3
#include "adversary/adversary.h"
#include "tags.h"

enum { VICTIM, RIVAL, CLIENTS, DEPTH = 64, EVENTS = 800, WAITING = 256 };
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define COST_MAX 64
#define WEIGHT_MAX 1000
#define SERVICE_MAX (2 * MS)
#define BURST_NS (20 * MS)
#define LAG_NS (50 * MS)
#define DEBT 4
#define WINDOW 5
#define LEAD 3

enum { SEND, CLOSED, PAUSE, CANCEL, FAIL, SERVICE, REMOVE, WEIGHT, RESERVE, WITHDRAW, FORCE, OPS };
static const struct adversary_op ops[OPS] = {
    {"send", 1, 100, 1, COST_MAX}, /* a requests of cost b */
    /* waits until its requests have ended, thinks b ns, sends a requests; again and again */
    {"closed", 1, DEPTH, 0, 10 * MS},
    {"pause", 1000, 10 * SECOND, 0, 0}, /* a ns */
    {"cancel", 1, DEPTH, 0, 0},         /* a requests that the device has not begun */
    {"fail", 0, 1, 0, SERVICE_MAX},     /* a = 1: from now on requests fail, after b ns of the device */
    {"service", 1, SERVICE_MAX, 0, 0},  /* from now on its requests take the device a ns */
    {"remove", 1000, 100 * MS, 0, 0},   /* and returns after a ns */
    {"weight", 1, WEIGHT_MAX, 0, 0},    /* its weight: a */
    {"reserve", 0, 200, 0, 0},          /* its reservation: a requests per second */
    {"withdraw", 1, 100, 0, 0},         /* withdraws its queue */
    {"force", 1, 20, 1, COST_MAX},      /* a forced requests of cost b */
};

struct event {
    uint64_t at_ns, cost, service_ns;
    uint32_t client;
    enum tags_phase phase;
    bool cancelled;
};

struct flight {
    struct tags_grant grant;
    uint64_t end_ns; /* 0: the device has not begun it */
    uint32_t event;
    bool fails;
};

static struct {
    struct tags tags;
    unsigned char memory[1 << 16] __attribute__((aligned(64)));
    struct tags_config config;
    struct tags_client terms[CLIENTS];
    struct event event[EVENTS];
    uint32_t events;
    struct flight flight[DEPTH];
    uint32_t flights, depth, channels;
    uint64_t now, wake_ns, step, poll_ns;
    uint64_t cost[WAITING], victim_cost, victim_service;
    uint32_t first_cost, costs; /* of the requests in the rival's queue */
    uint64_t service_ns, fail_service, closed_think;
    uint32_t closed_send, own_at_device;
    uint64_t victim_busy_ns;
    bool fails, present, waits_for_end;
} w;

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        CHECK_EQ(status, QOS_OK);
}

static void record(const struct tags_grant *g, uint64_t cost, uint64_t service_ns)
{
    struct event *e = &w.event[w.events];
    struct flight *f = &w.flight[w.flights++];
    e->at_ns = w.now;
    e->cost = cost;
    e->service_ns = service_ns;
    e->client = g->client;
    e->phase = g->phase;
    e->cancelled = false;
    f->grant = *g;
    f->end_ns = 0;
    f->event = w.events++;
    f->fails = g->client == RIVAL && w.fails;
    w.own_at_device += g->client == RIVAL;
}

static void send(uint32_t count, uint64_t cost)
{
    while (count-- > 0 && w.costs < WAITING && w.present) {
        w.cost[(w.first_cost + w.costs) % WAITING] = cost;
        w.costs++;
        must(tags_arrive(&w.tags, w.now, RIVAL, 1, cost));
    }
}

static void cancel(uint64_t count)
{
    uint32_t i;
    for (i = w.flights; i > 0 && count > 0; i--) {
        struct flight *f = &w.flight[i - 1];
        if (f->grant.client != RIVAL || f->end_ns)
            continue;
        must(tags_cancel(&w.tags, w.now, &f->grant));
        w.event[f->event].cancelled = true;
        memmove(f, f + 1, (w.flights - i) * sizeof *f);
        w.flights--;
        w.own_at_device--;
        count--;
    }
}

static uint64_t rival_service(void)
{
    return w.fails ? w.fail_service : w.service_ns;
}

static void force(uint64_t count, uint64_t cost)
{
    struct tags_grant g;
    while (count-- > 0 && w.present && w.flights < w.depth && w.events < EVENTS &&
           tags_force(&w.tags, w.now, RIVAL, cost, &g) == QOS_OK)
        record(&g, cost, rival_service());
}

/* One step of the program; false: it has to wait. */
static bool act(const struct adversary_step *s)
{
    uint32_t dropped;
    switch (s->op) {
    case SEND: send((uint32_t)s->a, s->b); break;
    case CLOSED:
        w.closed_send = (uint32_t)s->a;
        w.closed_think = s->b;
        w.waits_for_end = true;
        return false;
    case PAUSE: w.wake_ns = w.now + s->a; return false;
    case CANCEL: cancel(s->a); break;
    case FAIL:
        w.fails = s->a != 0;
        w.fail_service = s->b;
        break;
    case SERVICE: w.service_ns = s->a; break;
    case REMOVE:
        if (w.present) {
            must(tags_remove(&w.tags, w.now, RIVAL, &dropped));
            w.present = false;
            w.costs = 0;
        }
        w.wake_ns = w.now + s->a;
        return false;
    case WEIGHT:
    case RESERVE:
        if (s->op == WEIGHT)
            w.terms[RIVAL].weight = s->a;
        else if (!w.terms[RIVAL].limit_per_s || s->a <= w.terms[RIVAL].limit_per_s)
            w.terms[RIVAL].reservation_per_s = s->a;
        if (w.present)
            must(tags_change(&w.tags, w.now, RIVAL, &w.terms[RIVAL]));
        break;
    case FORCE: force(s->a, s->b); break;
    default: /* WITHDRAW */
        if (w.costs && w.present) {
            uint32_t n = (uint32_t)(s->a < w.costs ? s->a : w.costs);
            must(tags_withdraw(&w.tags, w.now, RIVAL, n));
            w.costs -= n;
        }
    }
    return true;
}

static void play_rival(const struct adversary_program *p)
{
    unsigned acts = 0;
    if (w.waits_for_end) {
        if (w.own_at_device || w.costs)
            return;
        w.waits_for_end = false;
        w.wake_ns = w.now + w.closed_think;
        if (w.closed_think)
            return;
    }
    if (w.wake_ns > w.now)
        return;
    if (!w.present) {
        must(tags_add(&w.tags, w.now, RIVAL, &w.terms[RIVAL]));
        w.present = true;
    }
    if (w.closed_send) {
        send(w.closed_send, 1 + w.step % COST_MAX);
        w.closed_send = 0;
    }
    while (act(adversary_at(p, w.step++)))
        if (++acts == p->steps) { /* a program without a pause: it lets time pass */
            w.wake_ns = w.now + 20000;
            return;
        }
}

static void fill_device(void)
{
    struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    struct tags_grant g;
    uint32_t i, busy = 0;
    while (w.flights < w.depth && w.events < EVENTS && tags_choose(&w.tags, w.now, &choice) == QOS_OK) {
        uint64_t cost = w.victim_cost, service = w.victim_service;
        if (choice.client == RIVAL) {
            cost = w.cost[w.first_cost];
            service = rival_service();
            w.first_cost = (w.first_cost + 1) % WAITING;
            w.costs--;
        }
        must(tags_dispatch(&w.tags, w.now, &choice, cost, 0, 0, &g));
        record(&g, cost, service);
        if (g.client == VICTIM)
            must(tags_arrive(&w.tags, w.now, VICTIM, 1, w.victim_cost));
    }
    for (i = 0; i < w.flights && busy < w.channels; i++, busy++) /* in order of dispatch */
        if (w.flight[i].end_ns == 0)
            w.flight[i].end_ns = w.now + w.event[w.flight[i].event].service_ns + 1;
}

static void reap(void)
{
    uint32_t i = 0;
    while (i < w.flights) {
        struct flight *f = &w.flight[i];
        uint64_t service;
        if (f->end_ns == 0 || f->end_ns > w.now) {
            i++;
            continue;
        }
        service = w.config.attribute ? 0 : w.event[f->event].service_ns;
        must(f->fails ? tags_fail(&w.tags, w.now, &f->grant, service)
                      : tags_complete(&w.tags, w.now, &f->grant, service));
        w.own_at_device -= f->grant.client == RIVAL;
        memmove(f, f + 1, (w.flights - i - 1) * sizeof *f);
        w.flights--;
    }
}

/* Plays the program in a world of its own, until EVENTS dispatches or 100 s. The caller has set config and terms. */
static void run(const struct adversary_program *p)
{
    uint32_t i, turns;
    CHECK(tags_memsize(&w.config) <= sizeof w.memory);
    must(tags_init(&w.tags, w.memory, sizeof w.memory, &w.config));
    w.events = w.flights = w.first_cost = w.costs = w.own_at_device = w.closed_send = 0;
    w.now = w.wake_ns = SECOND;
    w.step = w.closed_think = w.fail_service = 0;
    w.service_ns = w.victim_service;
    w.fails = w.waits_for_end = false;
    w.present = true;
    must(tags_add(&w.tags, w.now, VICTIM, &w.terms[VICTIM]));
    must(tags_add(&w.tags, w.now, RIVAL, &w.terms[RIVAL]));
    must(tags_arrive(&w.tags, w.now, VICTIM, 2 * DEPTH, w.victim_cost));
    for (turns = 0; turns < 4 * EVENTS && w.events < EVENTS && w.now < 101 * SECOND; turns++) {
        uint64_t next;
        reap();
        play_rival(p);
        fill_device();
        next = w.flights < w.depth ? tags_next_ns(&w.tags, w.now) : UINT64_MAX;
        if (next == w.now) /* the table of events is full */
            break;
        if (!w.waits_for_end || (!w.own_at_device && !w.costs))
            next = w.wake_ns > w.now && w.wake_ns < next ? w.wake_ns : next;
        if (w.waits_for_end && !w.own_at_device && !w.costs)
            next = w.now + 1;
        for (i = 0; i < w.flights; i++)
            if (w.flight[i].end_ns && w.flight[i].end_ns < next)
                next = w.flight[i].end_ns;
        w.now = next > w.now ? next : w.now + 1;
        if (w.poll_ns)
            w.now += w.poll_ns - w.now % w.poll_ns;
    }
}

static void world(const struct adversary_program *p, enum tags_mode mode, struct check_rng *rng)
{
    static const uint32_t depths[] = {1, 2, 8, DEPTH};
    adversary_rng(p, rng);
    memset(&w.config, 0, sizeof w.config);
    memset(w.terms, 0, sizeof w.terms);
    w.depth = depths[check_between(rng, 0, 3)];
    w.channels = (uint32_t)check_between(rng, 1, w.depth);
    w.poll_ns = 0;
    w.victim_cost = check_between(rng, 1, COST_MAX);
    w.victim_service = check_between(rng, 1000, MS);
    w.terms[VICTIM].weight = check_between(rng, 0, 1) ? 1 : check_between(rng, 1, WEIGHT_MAX);
    w.terms[RIVAL].weight = check_between(rng, 0, 1) ? 1 : check_between(rng, 1, WEIGHT_MAX);
    w.config.clients = CLIENTS;
    w.config.mode = mode;
    w.config.cost_max = COST_MAX;
    w.config.at_device_max = DEPTH;
    w.config.limit_burst_ns = BURST_NS;
    w.config.reserve_lag_ns = LAG_NS;
    w.config.force_debt_requests = DEBT;
    w.config.lead_requests = LEAD;
    w.config.window = WINDOW;
}

/* The weight that the program gives the rival at most: what it is entitled to. *least, unless NULL: the least one. */
static double most_weight(const struct adversary_program *p, double *least)
{
    uint64_t most = w.terms[RIVAL].weight, low = most;
    uint32_t i;
    for (i = 0; i < p->steps; i++) {
        if (p->step[i].op != WEIGHT)
            continue;
        most = p->step[i].a > most ? p->step[i].a : most;
        low = p->step[i].a < low ? p->step[i].a : low;
    }
    if (least)
        *least = (double)low;
    return (double)most;
}

/* The largest rise, over all windows, of the rival's service divided by its weight, minus the victim's service divided
 * by its own. */
static double rise(double rival_weight, bool device_time, unsigned phases)
{
    double now = 0, lowest = 0, most = 0;
    uint32_t i;
    for (i = 0; i < w.events; i++) {
        const struct event *e = &w.event[i];
        double work = device_time ? (double)e->service_ns : (double)e->cost;
        if (e->cancelled)
            continue;
        if (e->client == VICTIM)
            now -= work / (double)w.terms[VICTIM].weight;
        else if (phases >> e->phase & 1)
            now += work / rival_weight;
        lowest = now < lowest ? now : lowest;
        most = now - lowest > most ? now - lowest : most;
    }
    return most;
}

/* The same for a rate: the requests of a client in these phases, minus rate x time. */
static double above_rate(uint32_t client, double rate, unsigned phases)
{
    double before = 0, lowest = 0, most = 0, n = 0;
    uint32_t i;
    for (i = 0; i < w.events; i++) {
        const struct event *e = &w.event[i];
        if (e->cancelled || e->client != client || !(phases >> e->phase & 1))
            continue;
        before = n - rate * (double)(e->at_ns - SECOND) / 1e9;
        n++;
        lowest = n == 1 || before < lowest ? before : lowest;
        most = before + 1 - lowest > most ? before + 1 - lowest : most;
    }
    return most;
}

#define BY_RESERVATION (1u << TAGS_PHASE_RESERVATION)
#define BY_WEIGHT (1u << TAGS_PHASE_WEIGHT)
#define ABOVE_LIMIT (1u << TAGS_PHASE_ABOVE_LIMIT)
#define BY_FORCE (1u << TAGS_PHASE_FORCED)

/* The victim has a weight only. */
static void weight(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    double most;
    world(p, TAGS_PS, &rng);
    if (check_between(&rng, 0, 1))
        w.terms[RIVAL].reservation_per_s = check_between(&rng, 1, 200);
    most = most_weight(p, NULL);
    run(p);
    score->harm = rise(most, false, BY_WEIGHT);
    score->bound = COST_MAX / most + (double)w.victim_cost / (double)w.terms[VICTIM].weight;
}

/* The victim has a weight, and a reservation by which it gets service ahead of its share tag: by the lag more than that,
 * one request of the rival. */
static void weight_lead(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    double most, least;
    world(p, TAGS_PS, &rng);
    w.terms[VICTIM].reservation_per_s = check_between(&rng, 1, 2000);
    w.terms[RIVAL].reservation_per_s = check_between(&rng, 0, 200);
    most = most_weight(p, &least);
    run(p);
    score->harm = rise(most, false, BY_WEIGHT);
    score->bound = COST_MAX / most + COST_MAX / least + LEAD * (double)w.victim_cost / (double)w.terms[VICTIM].weight;
}

/* The rival has a limit. */
static void limit(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    world(p, TAGS_PS, &rng);
    w.config.mode = check_between(&rng, 0, 1) ? TAGS_PS : TAGS_REWARD;
    w.terms[RIVAL].limit_per_s = check_between(&rng, 200, 3000);
    w.terms[RIVAL].reservation_per_s = check_between(&rng, 0, 200);
    run(p);
    score->harm = above_rate(RIVAL, (double)w.terms[RIVAL].limit_per_s, BY_RESERVATION | BY_WEIGHT);
    score->bound = (double)w.terms[RIVAL].limit_per_s * (double)BURST_NS / 1e9 + 1;
}

/* The rival has a limit, and forces requests. */
static void limit_forced(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    world(p, TAGS_PS, &rng);
    w.terms[RIVAL].limit_per_s = check_between(&rng, 200, 3000);
    run(p);
    score->harm = above_rate(RIVAL, (double)w.terms[RIVAL].limit_per_s, BY_RESERVATION | BY_WEIGHT | BY_FORCE);
    score->bound = (double)w.terms[RIVAL].limit_per_s * (double)BURST_NS / 1e9 + 1 + DEBT + 1;
}

/* The rival forces requests and has no limit: what it gets by weight and by force. */
static void forced(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    double most;
    world(p, TAGS_PS, &rng);
    most = most_weight(p, NULL);
    run(p);
    score->harm = rise(most, false, BY_WEIGHT | BY_FORCE);
    score->bound = (DEBT + 1) * COST_MAX / most + (double)w.victim_cost / (double)w.terms[VICTIM].weight;
}

/* The rival has a reservation: what it gets by it. */
static void reserved(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    uint32_t i;
    double most;
    world(p, TAGS_PS, &rng);
    w.terms[RIVAL].reservation_per_s = check_between(&rng, 1, 200);
    w.terms[VICTIM].reservation_per_s = check_between(&rng, 0, 200);
    most = (double)w.terms[RIVAL].reservation_per_s;
    for (i = 0; i < p->steps; i++)
        if (p->step[i].op == RESERVE && (double)p->step[i].a > most)
            most = (double)p->step[i].a;
    run(p);
    score->harm = above_rate(RIVAL, most, BY_RESERVATION);
    score->bound = most * (double)LAG_NS / 1e9 + 1;
}

/* The victim has a reservation that fits. In any window it lacks at most what it reserved for the time of the requests at
 * the device, and two requests. Nothing is forced. */
static void reservation(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    double served = 0, lowest, most = 0, at;
    uint32_t i;
    world(p, TAGS_PS, &rng);
    w.channels = 1; /* a request takes at most SERVICE_MAX: at worst 500 per second */
    w.terms[VICTIM].reservation_per_s = check_between(&rng, 1, 250);
    w.terms[RIVAL].reservation_per_s = check_between(&rng, 0, 200);
    run(p);
    for (lowest = 0, i = 0; i < w.events; i++) {
        const struct event *e = &w.event[i];
        if (e->client != VICTIM)
            continue;
        at = (double)w.terms[VICTIM].reservation_per_s * (double)(e->at_ns - SECOND) / 1e9;
        most = at - served - lowest > most ? at - served - lowest : most; /* owed before this request */
        served++;
        lowest = at - served < lowest ? at - served : lowest;
    }
    score->harm = most;
    score->bound = 2 + (double)w.terms[VICTIM].reservation_per_s * (double)w.depth * (double)SERVICE_MAX / 1e9;
}

/* The surplus above the limits. Both clients have a limit of next to nothing; by it the victim may be one request
 * ahead. */
static void surplus(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    double most;
    world(p, TAGS_PS, &rng);
    w.config.at_limit = TAGS_ALLOW;
    w.terms[VICTIM].limit_per_s = w.terms[RIVAL].limit_per_s = 1;
    w.config.limit_burst_ns = QOS_NOTHING;
    most = most_weight(p, NULL);
    run(p);
    score->harm = rise(most, false, ABOVE_LIMIT);
    score->bound = COST_MAX / most + 2 * (double)w.victim_cost / (double)w.terms[VICTIM].weight;
}

/* Under reward: time of a serial device, as the header measures it. A client's charge differs from its use by at most
 * its last 1.2 N requests and those at the device. This holds for both clients. */
static void reward(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    double most, late;
    world(p, TAGS_REWARD, &rng);
    w.channels = w.config.channels = 1;
    w.config.attribute = true;
    most = most_weight(p, NULL);
    run(p);
    late = 1.2 * WINDOW + (double)w.depth;
    score->harm = rise(most, true, BY_WEIGHT);
    score->bound =
        (1 + 2 * late) * ((double)SERVICE_MAX / most + (double)w.victim_service / (double)w.terms[VICTIM].weight);
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"limit", ops, OPS, limit, "requests", 4000},
        {"reward", ops, OPS, reward, "ns per weight", 4000},
        {"surplus", ops, OPS, surplus, "work per weight", 4000},
        {"weight", ops, OPS, weight, "work per weight", 4000},
        {"weight_lead", ops, OPS, weight_lead, "work per weight", 4000},
        {"limit_forced", ops, OPS, limit_forced, "requests", 4000},
        {"forced", ops, OPS, forced, "work per weight", 4000},
        {"reserved", ops, OPS, reserved, "requests", 4000},
        {"reservation", ops, FORCE, reservation, "requests missed", 4000},
    };
    return adversary_main("adversary/tags", games, sizeof games / sizeof *games);
}
