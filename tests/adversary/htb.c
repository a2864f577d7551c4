// proves: whatever one tenant of htb.h does (sizes, bursts, closed loops, cancelled and failed requests, corrected
// proves: costs, unknown ids, other weights and rates, release and return, times that step back), a victim's
// proves: reservation, its wait, its share as a borrower and the rival's own limits keep the header's bounds, in every
// proves: window.
// scale: 3
//
// The device is simulated: it serves one request after the other at the root's rate. All bounds are computed here, from
// the requests sent to it.
#include "adversary/adversary.h"
#include "htb.h"

enum { VICTIM = 1, RIVAL, SECOND_ID, IDS, UNKNOWN = 77, POOL = 32, OWN = 8, DEPTH = 4, EVENTS = 600 };
#define MS UINT64_C(1000000)
#define START (100 * MS) /* all buckets are full */
#define END (START + 400 * MS)
#define RATE UINT64_C(1000000) /* tokens/s: a token takes the device 1 us */
#define RESERVED UINT64_C(300000)
#define LIMIT UINT64_C(100000)
#define BURST_NS (20 * MS) /* more than the worst wait of any request */
#define COST_MAX 2000
#define LOOK_NS 100000 /* time between two acts of the rival */
#define WEIGHT_MAX 1000

enum { SEND, CLOSED, PAUSE, CANCEL, FAIL, LESS, UNKNOWN_ID, BACK, WEIGHT, RETURN, RATES, SECOND, OPS };
static const struct adversary_op ops[OPS] = {
    {"send", 1, POOL, 1, COST_MAX},      /* a requests, each of cost b */
    {"closed", 1, POOL, 1, COST_MAX},    /* the same, when all earlier ones have ended */
    {"pause", 1000, 100 * MS, 0, 0},     /* a ns */
    {"cancel", 1, POOL, 0, 0},           /* a requests that are not at the device */
    {"fail", 0, 1, 0, 0},                /* a = 1: from now on the device refuses its requests at once */
    {"less", 0, 100, 0, 0},              /* from now on its requests cost a percent less than estimated */
    {"unknown", 1, POOL, 1, COST_MAX},   /* a requests of cost b, under an unknown id or that of its second class */
    {"back", 0, 50 * MS, 0, 0},          /* from now on its calls give times that are a ns old */
    {"weight", 1, WEIGHT_MAX, 0, 0},     /* of its class: a */
    {"return", 1, WEIGHT_MAX, 0, MS},    /* releases its class, and reserves it again b ns later with weight a */
    {"rates", 0, 500000, 0, 0},          /* its reservation: a */
    {"second", 0, 500000, 1, WEIGHT_MAX} /* a second class with reservation a and weight b; if there is one, it ends */
};

struct event {
    uint64_t at_ns, tokens;
    uint32_t id, weight;
};

static struct {
    struct htb tree;
    unsigned char memory[1 << 14] __attribute__((aligned(64)));
    struct htb_request pool[POOL], own[OWN];
    uint32_t event_of[POOL + OWN];
    struct event event[EVENTS];
    uint32_t events;
    struct htb_request *fifo[DEPTH]; /* at the device */
    uint32_t first, count, early, sent;
    uint64_t now, free_ns, wake_ns, back_ns, less, cost, victim_next_ns, victim_due_ns, worst_wait_ns, period_ns;
    struct htb_class terms;
    bool present, fails, refused, given_back;
    bool defaults; /* buckets of two bursts; otherwise of one burst and COST_MAX */
    uint64_t victim_cost;
    uint32_t victim_weight, weight_min;
} w;

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        CHECK_EQ(status, QOS_OK);
}

static uint64_t rival_now(void)
{
    return w.now - (w.back_ns < w.now - START ? w.back_ns : w.now - START);
}

static bool send(uint32_t id, uint64_t cost)
{
    uint32_t i;
    for (i = 0; i < POOL; i++)
        if (w.pool[i].state == HTB_IDLE) {
            w.pool[i].class_id = id;
            w.pool[i].tokens[0] = cost;
            must(htb_submit(&w.tree, rival_now(), &w.pool[i]));
            w.sent++;
            return true;
        }
    return false;
}

static bool outstanding(void)
{
    uint32_t i;
    for (i = 0; i < POOL; i++)
        if (w.pool[i].state != HTB_IDLE)
            return true;
    return false;
}

static void change(void)
{
    if (w.present)
        (void)!htb_change(&w.tree, rival_now(), RIVAL, &w.terms, NULL);
}

/* One step of the program. False: it has to wait. */
static bool step(const struct adversary_step *s)
{
    struct htb_class second;
    uint64_t i;
    switch (s->op) {
    case CLOSED:
        if (outstanding())
            return false;
        /* fallthrough */
    case SEND:
        for (i = 0; i < s->a && send(RIVAL, s->b); i++)
            ;
        break;
    case UNKNOWN_ID:
        for (i = 0; i < s->a && send(s->b % 2 ? UNKNOWN : SECOND_ID, s->b); i++)
            ;
        break;
    case PAUSE: w.wake_ns = w.now + s->a; break;
    case CANCEL:
        for (i = 0; i < POOL && i < s->a; i++)
            if (w.pool[i].state == HTB_QUEUED || w.pool[i].state == HTB_DISPATCHED)
                must(htb_cancel(&w.tree, rival_now(), &w.pool[i]));
        break;
    case FAIL: w.fails = s->a != 0; break;
    case LESS: w.less = s->a; break;
    case BACK: w.back_ns = s->a; break;
    case WEIGHT:
        w.terms.weight = (uint32_t)s->a;
        w.weight_min = w.terms.weight < w.weight_min ? w.terms.weight : w.weight_min;
        change();
        break;
    case RETURN: /* cancels its queued requests, which otherwise go to best effort */
        for (i = 0; i < POOL; i++)
            if (w.pool[i].state == HTB_QUEUED)
                must(htb_cancel(&w.tree, rival_now(), &w.pool[i]));
        if (w.present)
            must(htb_release(&w.tree, rival_now(), RIVAL));
        w.present = false;
        w.terms.weight = (uint32_t)s->a;
        w.weight_min = w.terms.weight < w.weight_min ? w.terms.weight : w.weight_min;
        w.wake_ns = w.now + s->b;
        break;
    case RATES: {
        uint64_t before = w.terms.rate_per_s[0];
        w.terms.rate_per_s[0] = s->a;
        if (w.present && htb_change(&w.tree, rival_now(), RIVAL, &w.terms, NULL) != QOS_OK)
            w.terms.rate_per_s[0] = before;
        break;
    }
    default:
        memset(&second, 0, sizeof second);
        second.rate_per_s[0] = s->a;
        second.weight = (uint32_t)s->b;
        if (htb_reserve(&w.tree, rival_now(), SECOND_ID, &second, NULL) == QOS_EEXIST)
            must(htb_release(&w.tree, rival_now(), SECOND_ID));
    }
    return true;
}

static bool is_own(const struct htb_request *r)
{
    return r >= w.own && r < w.own + OWN;
}

/* The device starts its first request. */
static void begin(void)
{
    const struct htb_request *r = w.fifo[w.first];
    w.cost = r->tokens[0];
    w.refused = !is_own(r) && w.fails;
    if (!is_own(r))
        w.cost = w.fails ? 0 : w.cost - w.cost * w.less / 100;
    w.given_back = w.given_back || w.cost != r->tokens[0];
    w.free_ns = w.now + w.cost * 1000;
}

static void hand_out(struct htb_request *r)
{
    struct event *e = &w.event[w.events];
    e->at_ns = w.now;
    e->tokens = r->tokens[0];
    e->id = r->class_id;
    e->weight = is_own(r) ? w.victim_weight : w.terms.weight;
    w.event_of[is_own(r) ? POOL + (uint32_t)(r - w.own) : (uint32_t)(r - w.pool)] = w.events++;
    if (is_own(r) && w.now - w.victim_due_ns > w.worst_wait_ns)
        w.worst_wait_ns = w.now - w.victim_due_ns;
    w.fifo[(w.first + w.count++) % DEPTH] = r;
    if (w.count == 1)
        begin();
}

/* The device has finished its first request. */
static void complete(void)
{
    struct htb_request *r = w.fifo[w.first];
    w.event[w.event_of[is_own(r) ? POOL + (uint32_t)(r - w.own) : (uint32_t)(r - w.pool)]].tokens = w.cost;
    w.first = (w.first + 1) % DEPTH;
    w.count--;
    must(htb_complete(&w.tree, w.now, w.refused ? HTB_NOT_DONE : HTB_DONE, &w.cost, r));
    if (w.count != 0)
        begin();
}

static void victim(void)
{
    uint32_t i;
    if (w.period_ns != 0) { /* one request at a time, at most one per period: within its rate */
        if (w.now >= w.victim_next_ns && w.own[0].state == HTB_IDLE) {
            must(htb_submit(&w.tree, w.now, &w.own[0]));
            w.victim_due_ns = w.now;
            w.victim_next_ns = w.now + w.period_ns;
        }
        return;
    }
    for (i = 0; i < OWN; i++)
        if (w.own[i].state == HTB_IDLE)
            must(htb_submit(&w.tree, w.now, &w.own[i]));
}

static void world(const struct adversary_program *p, bool reserved)
{
    struct check_rng rng;
    struct htb_config config;
    struct htb_class terms;
    uint32_t i;
    adversary_rng(p, &rng);
    memset(&w, 0, sizeof w);
    memset(&config, 0, sizeof config);
    config.classes = IDS;
    config.rate_per_s[0] = RATE;
    config.burst_ns = BURST_NS;
    w.defaults = check_between(&rng, 0, 1);
    config.request_max_tokens = w.defaults ? 0 : COST_MAX;
    config.best_effort.limit_per_s[0] = LIMIT;
    config.dispatch_max = config.device_max = DEPTH;
    config.order = HTB_FIFO;
    config.bound = check_between(&rng, 0, 1) ? HTB_BY_FLIGHT : HTB_BY_RATE;
    must(htb_init(&w.tree, w.memory, sizeof w.memory, &config));
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = reserved ? RESERVED : 0;
    terms.weight = w.victim_weight = (uint32_t)adversary_draw(&rng, 1, WEIGHT_MAX);
    must(htb_reserve(&w.tree, 0, VICTIM, &terms, NULL));
    w.terms.weight = w.weight_min = (uint32_t)adversary_draw(&rng, 1, WEIGHT_MAX);
    w.victim_cost = adversary_draw(&rng, 1, COST_MAX);
    for (i = 0; i < OWN; i++) {
        w.own[i].class_id = VICTIM;
        w.own[i].tokens[0] = w.victim_cost;
    }
    w.now = w.victim_next_ns = START;
}

/* out: ops left out of this game, a set of 1 << op. */
static void run(const struct adversary_program *p, unsigned out)
{
    uint64_t at = 0;
    must(htb_reserve(&w.tree, 0, RIVAL, &w.terms, NULL));
    w.present = true;
    w.wake_ns = w.now;
    while (w.now < END && w.events + DEPTH + 1 < EVENTS) {
        uint64_t next, i;
        struct htb_request *r;
        while (w.count != 0 && w.free_ns <= w.now)
            complete();
        victim();
        if (w.now >= w.wake_ns) {
            if (!w.present) {
                if (htb_reserve(&w.tree, rival_now(), RIVAL, &w.terms, NULL) != QOS_OK) {
                    w.terms.rate_per_s[0] = 0; /* it no longer fits */
                    must(htb_reserve(&w.tree, rival_now(), RIVAL, &w.terms, NULL));
                }
                w.present = true;
            }
            for (i = 0; i < p->steps && w.now >= w.wake_ns && w.present; i++) {
                const struct adversary_step *s = adversary_at(p, at);
                if (!(out >> s->op & 1) && !step(s))
                    break;
                at++;
            }
            if (w.wake_ns < w.now + LOOK_NS)
                w.wake_ns = w.now + LOOK_NS;
        }
        while ((r = htb_dispatch(&w.tree, w.now)) != NULL)
            hand_out(r);
        next = htb_dispatch_next_ns(&w.tree, w.now);
        w.early += next <= w.now;
        next = w.wake_ns < next ? w.wake_ns : next;
        if (w.count != 0 && w.free_ns < next)
            next = w.free_ns;
        if (w.period_ns != 0 && w.own[0].state == HTB_IDLE && w.victim_next_ns < next)
            next = w.victim_next_ns;
        w.now = next > w.now ? next : w.now + 1;
    }
    CHECK_LE(w.early, w.sent); /* at most once per request at a limit: only the rival has one */
}

/* The largest rise, over any window, of the rival's tokens minus rate * time. */
static double above(double rate)
{
    double sum = 0, lowest = 0, most = 0;
    uint32_t i;
    for (i = 0; i < w.events; i++) {
        const struct event *e = &w.event[i];
        double before = sum - rate * (double)(e->at_ns - START) / 1e9;
        if (e->id == VICTIM)
            continue;
        lowest = before < lowest ? before : lowest;
        sum += (double)e->tokens;
        most = before + (double)e->tokens - lowest > most ? before + (double)e->tokens - lowest : most;
    }
    return most;
}

#define DISPATCHED_NS (DEPTH * (double)COST_MAX * 1000) /* service time of the dispatched requests */

static double bucket(double rate)
{
    return rate * (double)BURST_NS / 1e9 * (w.defaults ? 2 : 1) + (w.defaults ? 0 : COST_MAX);
}

/* A reserved victim with constant demand gets R * t minus one bucket and one request, at most DISPATCHED_NS late. */
static void reservation(const struct adversary_program *p, struct adversary_score *score)
{
    double got = 0, highest = 0, most = 0;
    uint32_t i;
    world(p, true);
    run(p, 0);
    for (i = 0; i <= w.events; i++) { /* tokens owed before each of its requests, and at the end */
        double at = (double)((i < w.events ? w.event[i].at_ns : w.now) - START) * (double)RESERVED / 1e9;
        if (i < w.events && w.event[i].id != VICTIM)
            continue;
        most = at - got - highest > most ? at - got - highest : most;
        got += i < w.events ? (double)w.event[i].tokens : 0;
        highest = at - got < highest ? at - got : highest;
    }
    score->harm = most;
    score->bound =
        bucket((double)RESERVED) + (double)RESERVED * (DISPATCHED_NS + COST_MAX * 1000) / 1e9 + (double)w.victim_cost;
}

/* The wait of a victim within its rate, until the device has its request. */
static void waiting(const struct adversary_program *p, struct adversary_score *score)
{
    world(p, true);
    w.period_ns = (w.victim_cost * 1000000000 + RESERVED - 1) / RESERVED;
    run(p, 0);
    score->harm = (double)w.worst_wait_ns;
    score->bound = (double)w.victim_cost * 1e9 / (double)RESERVED + DISPATCHED_NS + COST_MAX * 1000;
}

/* The rival's own limit, plus the limit of unknown ids: that one applies while its class is released. */
static void limit(const struct adversary_program *p, struct adversary_score *score)
{
    world(p, true);
    w.terms.limit_per_s[0] = LIMIT;
    run(p, 1u << RATES | 1u << SECOND);
    score->harm = above(2 * (double)LIMIT);
    score->bound = 2 * (bucket((double)LIMIT) + COST_MAX);
}

/* Both borrow. Measured: the rival's lead over the victim, by weight, in any window. The rival may use costs that were
 * given back: at most those of the requests at the device. */
static void share(const struct adversary_program *p, struct adversary_score *score)
{
    double lead = 0, lowest = 0, most = 0;
    uint32_t i;
    world(p, false);
    run(p, 1u << RATES | 1u << SECOND | 1u << UNKNOWN_ID);
    for (i = 0; i < w.events; i++) {
        const struct event *e = &w.event[i];
        double units = (double)e->tokens / e->weight;
        lead += e->id == VICTIM ? -units : units;
        lowest = lead < lowest ? lead : lowest;
        most = lead - lowest > most ? lead - lowest : most;
    }
    score->harm = most;
    score->bound =
        (double)(w.given_back ? 1 + DEPTH : 1) * COST_MAX / w.weight_min + (double)w.victim_cost / w.victim_weight;
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"share", ops, OPS, share, "tokens per weight", 3000},
        {"limit", ops, OPS, limit, "tokens", 3000},
        {"reservation", ops, OPS, reservation, "tokens missed", 3000},
        {"wait", ops, OPS, waiting, "ns", 3000},
    };
    return adversary_main("adversary/htb", games, sizeof games / sizeof *games);
}
