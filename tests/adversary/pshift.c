// proves: no bucket is served above its limit, and a reservation is met if every certificate of the period says that it
// proves: can be, less one interval for a lost message. This holds whatever the network, other buckets, servers and
// proves: controllers do: messages lost, late, repeated, reordered; restarts; a second controller; arrivals anywhere at
// proves: any time; a hostile server that lies in its reports
// scale: 3
#include "adversary/adversary.h"
#include "pshift.h"

enum {
    SERVERS = 3,
    BUCKETS = 3,
    VICTIM = 0,
    CONTROLLERS = 2,
    WIRE = 32,
    INTERVALS = 5,
    STEPS = 120,
    PERIODS = 6,
    T_NS = 5000
};
#define LIMIT 100
#define RESERVATION 60
#define SPEED 40 /* requests that a server can serve in an interval, in the game of reservations */
#define BYTES (QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + BUCKETS * PSHIFT_REPORT_ENTRY_BYTES)

struct server {
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    uint64_t boots;
    unsigned char scheduler_mem[4096] __attribute__((aligned(64)));
    unsigned char agent_mem[4096] __attribute__((aligned(64)));
};

struct brain {
    struct pshift_controller controller;
    bool alive;
    unsigned char mem[65536] __attribute__((aligned(64)));
};

struct message {
    uint8_t bytes[BYTES];
    size_t size;
    uint32_t to; /* below CONTROLLERS: a report; else a grant for server to - CONTROLLERS */
};

static struct {
    struct server server[SERVERS];
    struct brain brain[CONTROLLERS];
    struct message wire[WIRE];
    uint32_t on_wire;
    uint64_t now_ns, start_ns, period, epochs, worst;
    uint64_t done[PERIODS + 1][BUCKETS]; /* requests that all servers served, each in its own period */
    const uint64_t *reservation;
    uint64_t limit, capacity;
    uint32_t owner; /* the controller that owns w.period */
} w;

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        CHECK_EQ(status, QOS_OK);
}

static void server_start(uint32_t j)
{
    struct server *s = &w.server[j];
    const struct pshift_scheduler_config queues = {BUCKETS, 0};
    struct pshift_agent_config config = {NULL, 0, {0, 0}, T_NS, 0, 0};
    uint32_t i, queue = 0;
    config.scheduler = &s->scheduler;
    config.server = j;
    config.boot.lo = ++s->boots; /* a nonce */
    config.boot.hi = j;
    must(pshift_scheduler_init(&s->scheduler, s->scheduler_mem, sizeof s->scheduler_mem, &queues));
    must(pshift_agent_init(&s->agent, s->agent_mem, sizeof s->agent_mem, &config));
    for (i = 0; i < BUCKETS; i++)
        must(pshift_agent_open(&s->agent, i, &queue));
}

/* The owner begins the next period when the last one is over. */
static void next_period(void)
{
    if (w.period == PERIODS || !w.brain[w.owner].alive)
        return;
    w.period++;
    w.now_ns = w.start_ns = qos_max(w.now_ns, w.period == 1 ? 0 : w.start_ns + T_NS);
    must(pshift_controller_begin(&w.brain[w.owner].controller, w.start_ns, w.period));
}

static void brain_start(struct brain *b)
{
    struct pshift_controller_config config = {SERVERS, BUCKETS, SERVERS * BUCKETS, {0, 0}, T_NS, 0};
    uint32_t i;
    config.nonce.lo = ++w.epochs;
    must(pshift_controller_init(&b->controller, b->mem, sizeof b->mem, &config));
    for (i = 0; i < BUCKETS; i++)
        must(pshift_controller_change(&b->controller, i, w.reservation[i], w.limit));
    b->alive = true;
}

static void world(const uint64_t *reservation, uint64_t limit)
{
    uint32_t j;
    memset(&w, 0, sizeof w);
    w.reservation = reservation;
    w.limit = limit;
    for (j = 0; j < SERVERS; j++)
        server_start(j);
    brain_start(&w.brain[0]);
    next_period();
}

static void arrive(uint32_t j, uint32_t i, uint64_t n)
{
    if (pshift_scheduler_arrive(&w.server[j].scheduler, i, n) != QOS_OK)
        must(pshift_scheduler_arrive(&w.server[j].scheduler, i, 0)); /* otherwise more than 2^64 - 1 would wait */
}

static struct pshift_scheduler_state state_of(uint32_t j, uint32_t i)
{
    struct pshift_scheduler_state state = {0, 0, 0, 0, 0, 0};
    must(pshift_scheduler_info(&w.server[j].scheduler, i, &state));
    return state;
}

static uint64_t serve(uint32_t j, uint64_t most)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    struct pshift_agent_state state;
    uint64_t n = 0;
    must(pshift_agent_info(&w.server[j].agent, &state));
    for (; n < most && pshift_scheduler_pick(&w.server[j].scheduler, w.now_ns, &pick) == QOS_OK; n++)
        w.done[state.period][pick.queue]++;
    return n;
}

static void deliver(const struct message *m)
{
    struct pshift_message head;
    struct pshift_report_entry report[BUCKETS];
    struct pshift_grant_entry grant[BUCKETS];
    if (m->to < CONTROLLERS) {
        must(pshift_report_decode(m->bytes, m->size, &head, report, BUCKETS));
        if (w.brain[m->to].alive)
            (void)!pshift_controller_report(&w.brain[m->to].controller, &head, report);
    } else {
        struct server *s = &w.server[m->to - CONTROLLERS];
        must(pshift_grant_decode(m->bytes, m->size, &head, grant, BUCKETS));
        (void)!pshift_agent_install(&s->agent, w.now_ns, &head, grant);
    }
}

static void remove_from_wire(uint32_t k)
{
    w.on_wire--;
    memmove(&w.wire[k], &w.wire[k + 1], (w.on_wire - k) * sizeof w.wire[0]);
}

/* If the wire is full, the oldest message is lost. */
static struct message *post(uint32_t to)
{
    if (w.on_wire == WIRE)
        remove_from_wire(0);
    w.wire[w.on_wire].to = to;
    return &w.wire[w.on_wire++];
}

/* Onto the wire, or straight to all controllers. */
static void report(uint32_t j, uint64_t remaining, bool at_once)
{
    struct pshift_message head;
    struct pshift_report_entry entry[BUCKETS];
    uint32_t c;
    pshift_agent_measure(&w.server[j].agent, w.now_ns);
    while (pshift_agent_report(&w.server[j].agent, &head, entry, BUCKETS) == QOS_OK) {
        head.capacity = w.capacity * remaining;
        for (c = 0; c < CONTROLLERS; c++) {
            struct message *m = post(c);
            must(pshift_report_encode(&head, entry, m->bytes, sizeof m->bytes, &m->size));
            if (at_once) {
                deliver(m);
                w.on_wire--;
            }
        }
    }
}

static void grants(struct brain *b, uint32_t j, bool at_once)
{
    struct pshift_message head;
    struct pshift_grant_entry entry[BUCKETS];
    while (b->alive && pshift_controller_grant(&b->controller, w.now_ns, j, &head, entry, BUCKETS) == QOS_OK) {
        struct message *m = post(CONTROLLERS + j);
        must(pshift_grant_encode(&head, entry, m->bytes, sizeof m->bytes, &m->size));
        if (at_once) {
            deliver(m);
            w.on_wire--;
        }
    }
}

/* ---- against a limit: the adversary controls everything ---------------------------------------------------- */

enum { ROUND, ARRIVE, SERVE, REPORT, PLAN, GRANT, DELIVER, REPEAT, LOSE, RESTART, TAKE_OVER, STOP, PERIOD, LIMIT_OPS };
static const struct adversary_op limit_ops[LIMIT_OPS] = {
    {"round", 0, 63, 0, 1},         /* reports, plan, grants; a: which messages stay on the wire; b: the controller */
    {"arrive", 0, 8, 1, 2 * LIMIT}, /* b requests arrive; a: bucket and server */
    {"serve", 0, 2, 1, 2 * LIMIT},  /* server a serves at most b requests */
    {"report", 0, 2, 0, 0},         /* server a sends its report */
    {"plan", 0, 1, 0, 0},           /* controller a plans */
    {"grant", 0, 1, 0, 2},          /* controller a sends its grant to server b */
    {"deliver", 0, WIRE - 1, 0, 0}, /* message a of the wire arrives */
    {"repeat", 0, WIRE - 1, 0, 0},  /* as deliver, but it stays on the wire */
    {"lose", 0, WIRE - 1, 0, 0},    /* message a of the wire is lost */
    {"restart", 0, 2, 0, 0},        /* server a restarts */
    {"take_over", 0, 1, 0, 1}, /* controller a, b = 1: after a restart, owns the next period; the other one runs on */
    {"stop", 0, 1, 0, 0},      /* controller a stops */
    {"period", 0, T_NS, 0, 1}, /* a ns pass; b = 1: the next period */
};

static void round_of(struct brain *b, uint64_t stay)
{
    uint32_t j;
    for (j = 0; j < SERVERS; j++)
        report(j, 1, !(stay >> j & 1));
    if (b->alive)
        (void)!pshift_controller_plan(&b->controller, NULL);
    for (j = 0; j < SERVERS; j++)
        grants(b, j, !(stay >> (3 + j) & 1));
}

static void limit_step(const struct adversary_step *s)
{
    uint32_t a = (uint32_t)s->a, k;
    switch (s->op) {
    case ROUND: round_of(&w.brain[s->b], s->a); break;
    case ARRIVE: arrive(a % SERVERS, a / SERVERS, s->b); break;
    case SERVE: (void)serve(a, s->b); break;
    case REPORT: report(a, 1, false); break;
    case PLAN:
        if (w.brain[a].alive)
            (void)!pshift_controller_plan(&w.brain[a].controller, NULL);
        break;
    case GRANT: grants(&w.brain[a], (uint32_t)s->b, false); break;
    case DELIVER:
    case REPEAT:
    case LOSE:
        if (w.on_wire == 0)
            break;
        k = a % w.on_wire;
        if (s->op != LOSE)
            deliver(&w.wire[k]);
        if (s->op != REPEAT)
            remove_from_wire(k);
        break;
    case RESTART: server_start(a); break;
    case TAKE_OVER:
        if (s->b || !w.brain[a].alive)
            brain_start(&w.brain[a]);
        w.owner = a;
        next_period();
        break;
    case STOP: w.brain[a].alive = false; break;
    default:
        w.now_ns += s->a;
        if (s->b)
            next_period();
    }
}

/* What all servers served of a bucket in a period, and can still serve with the tokens that they hold. */
static void weigh(void)
{
    struct pshift_agent_state agent[SERVERS];
    uint32_t i, j, k;
    for (j = 0; j < SERVERS; j++)
        must(pshift_agent_info(&w.server[j].agent, &agent[j]));
    for (i = 0; i < BUCKETS; i++)
        for (j = 0; j < SERVERS; j++) {
            uint64_t sum = w.done[agent[j].period][i];
            for (k = 0; k < SERVERS; k++)
                if (agent[k].period == agent[j].period && agent[k].ends_ns > w.now_ns) {
                    struct pshift_scheduler_state state = state_of(k, i);
                    sum = qos_sat_add(sum, qos_sat_add(state.r_tokens, state.l_tokens));
                }
            w.worst = qos_max(w.worst, sum);
        }
}

static void play_limit(const struct adversary_program *program, struct adversary_score *score)
{
    static const uint64_t reservation[BUCKETS] = {RESERVATION, 30, 0};
    uint32_t step;
    world(reservation, LIMIT);
    w.capacity = 1000;
    for (step = 0; step < SERVERS * BUCKETS; step++)
        arrive(step % SERVERS, step / SERVERS, LIMIT);
    for (step = 0; step < 3; step++) /* the servers make themselves known, report, get tokens */
        round_of(&w.brain[0], 0);
    for (step = 0; step < STEPS; step++) {
        limit_step(adversary_at(program, step));
        weigh();
    }
    score->harm = (double)w.worst;
    score->bound = LIMIT;
}

/* ---- against a reservation: the adversary controls the other buckets and which messages are lost ----------- */

enum { COME, LEAVE, LOSE_REPORT, LOSE_GRANT, WAIT, FLOOD, RESERVATION_OPS };
static const struct adversary_op reservation_ops[RESERVATION_OPS] = {
    {"come", 0, 5, 1, 400},               /* b requests arrive; a: another bucket, at some server */
    {"leave", 0, 5, 1, 400},              /* as come, but they are withdrawn */
    {"lose_report", 0, 2, 0, 0},          /* server a loses its report in this interval */
    {"lose_grant", 0, 2, 0, 0},           /* server a loses its grant in this interval */
    {"wait", 1, INTERVALS, 0, 0},         /* a intervals pass */
    {"flood", 0, 5, 1, PSHIFT_COUNT_MAX}, /* as come, but more */
};

/* One interval. lost: bits 0..2 reports, 3..5 grants. False: a certificate says that the reservations cannot be met. */
static bool interval(uint32_t remaining, uint64_t lost)
{
    struct pshift_problem problem;
    struct pshift_solution solution;
    struct brain *b = &w.brain[0];
    uint32_t j;
    memset(&solution, 0, sizeof solution);
    for (j = 0; j < SERVERS; j++)
        if (state_of(j, VICTIM).pending < 1000)
            arrive(j, VICTIM, 1000);
    for (j = 0; j < SERVERS; j++)
        report(j, remaining, !(lost >> j & 1));
    must(pshift_controller_plan(&b->controller, NULL));
    must(pshift_controller_certificate(&b->controller, &problem, &solution));
    for (j = 0; j < SERVERS; j++)
        grants(b, j, !(lost >> (3 + j) & 1));
    w.on_wire = 0;
    for (j = 0; j < SERVERS; j++)
        (void)serve(j, SPEED);
    w.now_ns += T_NS / INTERVALS;
    return solution.excess.lo == 0;
}

static void play_reservation(const struct adversary_program *program, struct adversary_score *score)
{
    static const uint64_t reservation[BUCKETS] = {300, 120, 90}; /* of 600 requests */
    uint32_t step = 0, k, wait = 0;
    world(reservation, 0);
    w.capacity = SPEED;
    score->bound = 1;
    round_of(&w.brain[0], 0); /* the servers make themselves known */
    while (w.period < PERIODS) {
        uint64_t messages = 0, lost;
        bool fits = true;
        next_period();
        for (k = 0; k < INTERVALS; k++) {
            for (lost = 0; wait == 0; step++) {
                const struct adversary_step *s = adversary_at(program, step);
                uint32_t server = (uint32_t)s->a % SERVERS, other = (uint32_t)s->a / SERVERS + 1;
                if (s->op == COME || s->op == FLOOD)
                    arrive(server, other, s->b);
                else if (s->op == LEAVE)
                    must(pshift_scheduler_cancel(&w.server[server].scheduler, other,
                                                 qos_min(s->b, state_of(server, other).pending)));
                else if (s->op == LOSE_REPORT)
                    lost |= UINT64_C(1) << s->a;
                else if (s->op == LOSE_GRANT)
                    lost |= UINT64_C(8) << s->a;
                else
                    wait = (uint32_t)s->a;
                if (step % program->steps == program->steps - 1 && wait == 0)
                    wait = 1;
            }
            wait--;
            fits &= interval(INTERVALS - k, lost) || messages != 0;
            messages += (uint64_t)__builtin_popcountll(lost);
        }
        if (fits && w.done[w.period][VICTIM] < reservation[VICTIM]) {
            double harm = (double)(reservation[VICTIM] - w.done[w.period][VICTIM]),
                   bound = 0.5 + SPEED * (double)messages;
            if (harm / bound > score->harm / score->bound) {
                score->harm = harm;
                score->bound = bound;
            }
        }
    }
}

/* ---- a hostile server lies about itself and its buckets, against a bucket on other servers ------------------ */

/* Server 2 lies. The victim is on servers 0 and 1 only, bucket 2 on 1 and 2, bucket 1 everywhere. The honest servers can
 * meet all reservations alone. */
enum { LIAR = 2 };
enum { HUSH, SEND, CAPACITY, DEMAND, SERVED, HELD, NAMED, ANSWERS, START, OBEYS, LIAR_OPS };
static const struct adversary_op liar_ops[LIAR_OPS] = {
    {"hush", 1, INTERVALS, 0, 0}, /* a intervals pass */
    {"send", 0, 1, 0, 0},         /* sends a report of its current numbers; a = 1: one that skips a sequence number */
    {"capacity", 0, UINT64_MAX, 0, 0},
    {"demand", 0, 1, 0, UINT64_MAX}, /* bucket 1 or 2 */
    {"served", 0, 1, 0, UINT64_MAX},
    {"held", 0, 1, 0, UINT64_MAX},
    {"named", 0, 1, 0, UINT64_MAX},   /* the grant that it names */
    {"answers", 0, UINT64_MAX, 0, 0}, /* the newest grant that it says to have */
    {"start", 0, 3, 0, 0},            /* it has another nonce, or one that it had before */
    {"obeys", 0, 1, 0, 0},            /* 0: has heard of no period; 1: of this one */
};

struct lies {
    struct pshift_message head;
    struct pshift_report_entry entry[2];
};

static void lie(struct lies *lies, const struct adversary_step *s)
{
    struct pshift_report_entry *e = &lies->entry[s->a & 1];
    switch (s->op) {
    case SEND:
        lies->head.seq += 1 + s->a * 100;
        lies->head.period = lies->head.owner.lo ? w.period : 0;
        (void)!pshift_controller_report(&w.brain[0].controller, &lies->head, lies->entry);
        break;
    case CAPACITY: lies->head.capacity = s->a; break;
    case DEMAND: e->demand = s->b; break;
    case SERVED: e->served = s->b; break;
    case HELD: e->held = s->b; break;
    case NAMED: e->grant_seq = s->b; break;
    case ANSWERS: lies->head.answers = s->a; break;
    case START: lies->head.boot.lo = 1 + s->a; break;
    default: lies->head.owner.lo = s->a ? w.epochs : 0;
    }
}

/* Keeps the largest ratio of `is` to `most`. */
static void note(struct adversary_score *score, uint64_t is, uint64_t most)
{
    if (is > most && (double)(is - most) > score->harm)
        score->harm = (double)(is - most);
}

static void play_liar(const struct adversary_program *program, struct adversary_score *score)
{
    static const uint64_t reservation[BUCKETS] = {150, 60, 60}; /* of 400 */
    struct lies lies;
    uint32_t step = 0, hush = 0, k, i, j;
    world(reservation, 200);
    w.capacity = SPEED;
    memset(&lies, 0, sizeof lies);
    lies.head.server = LIAR;
    lies.head.count = 2;
    lies.head.boot.lo = 1;
    lies.entry[0].bucket = 1;
    lies.entry[1].bucket = 2;
    score->bound = 0.5;
    while (w.period < PERIODS) {
        next_period();
        for (k = 0; k < INTERVALS; k++) {
            for (; hush == 0; step++) {
                const struct adversary_step *s = adversary_at(program, step);
                if (s->op == HUSH)
                    hush = (uint32_t)s->a;
                else
                    lie(&lies, s);
                if (step % program->steps == program->steps - 1 && hush == 0)
                    hush = 1;
            }
            hush--;
            for (j = 0; j < LIAR; j++) {
                for (i = 0; i < BUCKETS; i++)
                    if ((i != 2 || j == 1) && state_of(j, i).pending < 1000)
                        arrive(j, i, 1000);
                report(j, INTERVALS - k, true);
            }
            must(pshift_controller_plan(&w.brain[0].controller, NULL));
            for (j = 0; j < LIAR; j++) {
                grants(&w.brain[0], j, true);
                (void)serve(j, SPEED);
            }
            w.on_wire = 0;
            w.now_ns += T_NS / INTERVALS;
        }
        for (i = 0; i < BUCKETS; i++)
            note(score, w.done[w.period][i], w.limit);
        if (w.period > 2) /* in the second period the servers make themselves known */
            note(score, reservation[VICTIM], w.done[w.period][VICTIM]);
    }
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"limit", limit_ops, LIMIT_OPS, play_limit, "requests", 20000},
        {"reservation", reservation_ops, RESERVATION_OPS, play_reservation, "requests", 10000},
        {"liar", liar_ops, LIAR_OPS, play_liar, "requests", 10000},
    };
    return adversary_main("adversary/pshift", games, sizeof games / sizeof *games);
}
