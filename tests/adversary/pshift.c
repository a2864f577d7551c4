// proves: a hostile server of pshift.h that lies in its reports takes no bucket above its limit, and nothing of a
// proves: reservation that the honest servers can meet alone
// scale: 3
#include "adversary/adversary.h"
#include "pshift.h"

/* Server 2 lies. The victim is on servers 0 and 1 only, bucket 2 on 1 and 2, bucket 1 everywhere. The honest servers can
 * meet all reservations alone. */
enum { SERVERS = 3, LIAR = 2, BUCKETS = 3, VICTIM = 0, INTERVALS = 5, PERIODS = 6, T_NS = 5000 };
#define LIMIT 200
#define SPEED 40 /* requests that a server can serve in an interval */

static const uint64_t reservation[BUCKETS] = {150, 60, 60}; /* of 400 */

struct server {
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    unsigned char scheduler_mem[4096] __attribute__((aligned(64)));
    unsigned char agent_mem[4096] __attribute__((aligned(64)));
};

static struct {
    struct server server[LIAR];
    struct pshift_controller controller;
    unsigned char mem[65536] __attribute__((aligned(64)));
    uint64_t now_ns, period;
    uint64_t done[PERIODS + 1][BUCKETS]; /* requests that the honest servers served, each in its own period */
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
    config.boot.lo = 1; /* a nonce */
    config.boot.hi = j;
    must(pshift_scheduler_init(&s->scheduler, s->scheduler_mem, sizeof s->scheduler_mem, &queues));
    must(pshift_agent_init(&s->agent, s->agent_mem, sizeof s->agent_mem, &config));
    for (i = 0; i < BUCKETS; i++)
        must(pshift_agent_open(&s->agent, i, &queue));
}

static void next_period(void)
{
    w.now_ns = w.period++ * T_NS;
    must(pshift_controller_begin(&w.controller, w.now_ns, w.period));
}

static void world(void)
{
    struct pshift_controller_config config = {SERVERS, BUCKETS, SERVERS * BUCKETS, {0, 0}, T_NS, 0};
    uint32_t i;
    memset(&w, 0, sizeof w);
    for (i = 0; i < LIAR; i++)
        server_start(i);
    config.nonce.lo = 1;
    must(pshift_controller_init(&w.controller, w.mem, sizeof w.mem, &config));
    for (i = 0; i < BUCKETS; i++)
        must(pshift_controller_change(&w.controller, i, reservation[i], LIMIT));
    next_period();
}

static void arrive(uint32_t j, uint32_t i, uint64_t n)
{
    struct pshift_scheduler_state state = {0, 0, 0, 0, 0, 0};
    must(pshift_scheduler_info(&w.server[j].scheduler, i, &state));
    if (state.pending < n)
        must(pshift_scheduler_arrive(&w.server[j].scheduler, i, n));
}

static void serve(uint32_t j, uint64_t most)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    struct pshift_agent_state state;
    uint64_t n = 0;
    must(pshift_agent_info(&w.server[j].agent, &state));
    for (; n < most && pshift_scheduler_pick(&w.server[j].scheduler, w.now_ns, &pick) == QOS_OK; n++)
        w.done[state.period][pick.queue]++;
}

static void report(uint32_t j, uint64_t remaining)
{
    struct pshift_message head;
    struct pshift_report_entry entry[BUCKETS];
    pshift_agent_measure(&w.server[j].agent, w.now_ns);
    while (pshift_agent_report(&w.server[j].agent, &head, entry, BUCKETS) == QOS_OK) {
        head.capacity = SPEED * remaining;
        (void)!pshift_controller_report(&w.controller, w.now_ns, &head, entry);
    }
}

static void grant(uint32_t j)
{
    struct pshift_message head;
    struct pshift_grant_entry entry[BUCKETS];
    while (pshift_controller_grant(&w.controller, w.now_ns, j, &head, entry, BUCKETS) == QOS_OK)
        (void)!pshift_agent_install(&w.server[j].agent, w.now_ns, &head, entry);
}

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
        (void)!pshift_controller_report(&w.controller, w.now_ns, &lies->head, lies->entry);
        break;
    case CAPACITY: lies->head.capacity = s->a; break;
    case DEMAND: e->demand = s->b; break;
    case SERVED: e->served = s->b; break;
    case HELD: e->held = s->b; break;
    case NAMED: e->grant_seq = s->b; break;
    case ANSWERS: lies->head.answers = s->a; break;
    case START: lies->head.boot.lo = 1 + s->a; break;
    default: lies->head.owner.lo = s->a;
    }
}

/* Keeps the most by which `is` is above `most`. */
static void note(struct adversary_score *score, uint64_t is, uint64_t most)
{
    if (is > most && (double)(is - most) > score->harm)
        score->harm = (double)(is - most);
}

static void play_liar(const struct adversary_program *program, struct adversary_score *score)
{
    struct lies lies;
    uint32_t step = 0, hush = 0, k, i, j;
    world();
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
                    if (i != 2 || j == 1)
                        arrive(j, i, 1000);
                report(j, INTERVALS - k);
            }
            must(pshift_controller_plan(&w.controller, NULL));
            for (j = 0; j < LIAR; j++) {
                grant(j);
                serve(j, SPEED);
            }
            w.now_ns += T_NS / INTERVALS;
        }
        for (i = 0; i < BUCKETS; i++)
            note(score, w.done[w.period][i], LIMIT);
        if (w.period > 2) /* in the second period the servers make themselves known */
            note(score, reservation[VICTIM], w.done[w.period][VICTIM]);
    }
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"liar", liar_ops, LIAR_OPS, play_liar, "requests", 10000},
    };
    return adversary_main("adversary/pshift", games, sizeof games / sizeof *games);
}
