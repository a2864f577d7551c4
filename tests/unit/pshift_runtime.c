// proves: memory and every error of scheduler, agent, controller and messages; rounding of the estimator
#include "pshift.h"
#include "check.h"

#define MEM(m, size) check_mem_new(&(m), (size), 64, 0)

static void scheduler_calls(void)
{
    struct pshift_scheduler_config config = {5, 0}, none = {0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    struct qos_stats stats;
    struct check_mem m;
    uint32_t k;
    (void)MEM(m, pshift_scheduler_memsize(&config));
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_scheduler_init(&scheduler, NULL, m.size, &config), QOS_EINVAL);
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &none), QOS_ERANGE);
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem + 8, m.size, &config), QOS_EALIGN);
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &config), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 5, 1), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_cancel(&scheduler, 5, 1), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_change(&scheduler, 5, 1), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, 5, 1, 1), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_force(&scheduler, 0, 5), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 5, &info), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_stats(&scheduler, 5, &stats), QOS_ENOENT);
    stats.refused = 9;
    CHECK_EQ(pshift_scheduler_stats(&scheduler, 0, &stats), QOS_OK);
    CHECK_EQ(stats.refused, 0); /* a queue has no limit */
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 0, UINT64_MAX), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 0, 1), QOS_ERANGE);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK_EQ(info.pending, UINT64_MAX);
    CHECK_EQ(pshift_scheduler_cancel(&scheduler, 0, UINT64_MAX), QOS_OK);
    CHECK_EQ(pshift_scheduler_cancel(&scheduler, 0, 1), QOS_ERANGE);
    CHECK_EQ(pshift_scheduler_change(&scheduler, 0, 0), QOS_OK);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK_EQ(info.weight, 1);
    CHECK_EQ(pshift_scheduler_next_ns(&scheduler, 3), QOS_NEVER);
    for (k = 0; k < 1000; k++) /* a poll without requests does not count as refused */
        CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_EAGAIN);
    CHECK_EQ(pshift_scheduler_stats(&scheduler, QOS_NONE, &stats), QOS_OK);
    CHECK_EQ(stats.refused, 0);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 2, 3), QOS_OK);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_EAGAIN);
    CHECK_EQ(pshift_scheduler_force(&scheduler, 0, 2), QOS_OK);
    CHECK_EQ(pshift_scheduler_stats(&scheduler, QOS_NONE, &stats), QOS_OK);
    CHECK(stats.refused == 1 && stats.granted == 1 && stats.debt == 1);
    CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, 2, 2, 0), QOS_OK); /* one of them pays the debt */
    CHECK_EQ(pshift_scheduler_next_ns(&scheduler, 3), 3);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_OK);
    CHECK(pick.queue == 2 && pick.backing == PSHIFT_RESERVATION);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_EAGAIN);
    CHECK(check_mem_free(&m));
}

/* Nine buckets without R-tokens beside one whose requests come one at a time: all get equal service. The paper's single
 * position starves eight of them. */
static void fair_beside_reservations(void)
{
    uint32_t where, every, q, n;
    for (where = 0; where < 10; where += 3)
        for (every = 2; every <= 5; every++) {
            struct pshift_scheduler_config config = {10, 0};
            struct pshift_scheduler scheduler;
            struct check_mem m;
            uint64_t served[10] = {0}, least = UINT64_MAX, most = 0;
            struct pshift_pick pick = {0, PSHIFT_NORMAL};
            (void)MEM(m, pshift_scheduler_memsize(&config));
            CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &config), QOS_OK);
            for (q = 0; q < 10; q++) {
                CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, q, q == where ? 1000000 : 0, 1000000), QOS_OK);
                CHECK_EQ(pshift_scheduler_arrive(&scheduler, q, q == where ? 0 : 1000000), QOS_OK);
            }
            for (n = 0; n < 50000; n++) {
                if (n % every == 0)
                    CHECK_EQ(pshift_scheduler_arrive(&scheduler, where, 1), QOS_OK);
                CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_OK);
                served[pick.queue]++;
            }
            for (q = 0; q < 10; q++)
                if (q != where) {
                    least = served[q] < least ? served[q] : least;
                    most = served[q] > most ? served[q] : most;
                }
            CHECK_LE(most - least, 1);
            CHECK(check_mem_free(&m));
        }
}

#define EVEN 12u

/* So many picks, all with R-tokens. Returns the longest run of one queue. */
static uint32_t picks_of(struct pshift_scheduler *scheduler, uint32_t picks, uint32_t *served)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    uint32_t last = EVEN, run = 0, longest = 0;
    memset(served, 0, EVEN * sizeof *served);
    for (; picks != 0; picks--) {
        CHECK_EQ(pshift_scheduler_pick(scheduler, 0, &pick), QOS_OK);
        CHECK_EQ(pick.backing, PSHIFT_RESERVATION);
        run = pick.queue == last ? run + 1 : 1;
        last = pick.queue;
        longest = run > longest ? run : longest;
        served[pick.queue]++;
    }
    return longest;
}

/* R-tokens are due at one time, so all are spent evenly, whatever a queue holds: at least 0.8 of its part. It stays so when
 * tokens are set anew, amid a period or when all are spent, and when queues have no requests any more. No turn is longer
 * than 16. */
static void even_spending(void)
{
    static const uint32_t held[3][EVEN] = {{1100, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180},
                                           {100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200},
                                           {20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20}};
    struct pshift_scheduler_config config = {EVEN, 0};
    struct pshift_scheduler scheduler;
    struct check_mem m;
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    uint32_t served[EVEN], round, q;
    (void)MEM(m, pshift_scheduler_memsize(&config));
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &config), QOS_OK);
    for (q = 0; q < EVEN; q++)
        CHECK_EQ(pshift_scheduler_arrive(&scheduler, q, 1000000), QOS_OK);
    for (round = 0; round < 6; round++) {
        uint32_t total = 0;
        for (q = 0; q < EVEN; q++) {
            CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, q, held[round % 3][q], 0), QOS_OK);
            total += held[round % 3][q];
        }
        (void)picks_of(&scheduler, total / 2, served);
        for (q = 0; q < EVEN; q++)
            CHECK_LE(held[round % 3][q] * 4, served[q] * 10 + (round % 3 == 2 ? 0 : 80));
        if (round % 2 != 0)
            (void)picks_of(&scheduler, total - total / 2, served);
    }
    for (q = 0; q < EVEN; q++)
        CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, q, q == 0 ? QOS_UNLIMITED : 1000 * q, 0), QOS_OK);
    CHECK_EQ(picks_of(&scheduler, 1000, served), 16);
    for (q = 0; q < EVEN; q++) {
        CHECK_EQ(pshift_scheduler_info(&scheduler, q, &info), QOS_OK);
        if (q != 2 && q != 6)
            CHECK_EQ(pshift_scheduler_cancel(&scheduler, q, info.pending), QOS_OK);
    }
    (void)picks_of(&scheduler, 400, served);
    CHECK_LE(285, served[6]);
    CHECK_LE(served[6], 315);
    CHECK(check_mem_free(&m));
}

static struct pshift_message blank; /* all zeros */
static const struct qos_u128 boot = {0, 7}, nonce = {0, 4};

static void agent_calls(void)
{
    struct pshift_scheduler_config queues = {3, 0};
    struct pshift_agent_config config = {NULL, 2, boot, 1000, 0, 0}, bad;
    struct check_mem m, n;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_agent_state state = {0, 0, 0, 0};
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    struct pshift_message message = blank;
    struct pshift_report_entry report[3];
    struct pshift_grant_entry grant = {333, 10, 14};
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    uint32_t queue = 9;
    (void)MEM(m, pshift_scheduler_memsize(&queues));
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &queues), QOS_OK);
    config.scheduler = &scheduler;
    (void)MEM(n, pshift_agent_memsize(&config));
    bad = config;
    bad.scheduler = NULL;
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &bad), QOS_EINVAL);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, NULL), QOS_EINVAL);
    bad = config;
    bad.boot.lo = 0;
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &bad), QOS_ERANGE);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(pshift_agent_init(&agent, n.mem + 8, n.size, &config), QOS_EALIGN);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &config), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 333, &queue), QOS_OK);
    CHECK_EQ(queue, 0);
    CHECK_EQ(pshift_scheduler_info(&scheduler, queue, &info), QOS_OK);
    CHECK(info.r_tokens == 0 && info.l_tokens == 0); /* no period has begun */
    CHECK_EQ(pshift_agent_open(&agent, UINT64_MAX, &queue), QOS_OK);
    CHECK_EQ(queue, 1);
    CHECK_EQ(pshift_agent_open(&agent, 333, &queue), QOS_OK);
    CHECK_EQ(queue, 0);
    CHECK_EQ(pshift_agent_open(&agent, 0, &queue), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 1, &queue), QOS_EFULL);
    CHECK_EQ(pshift_agent_close(&agent, 1), QOS_ENOENT);
    CHECK_EQ(pshift_agent_close(&agent, 0), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 1, &queue), QOS_EFULL); /* possible from the next period on */
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 0), QOS_EINVAL);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_EAGAIN); /* nothing was measured */
    pshift_agent_measure(&agent, 100);
    message.ack[0].last = message.left_ns = 7;
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* nothing to say, but the server lives */
    CHECK(message.count == 0 && message.seq == 1 && message.ack[0].last == 0 && message.left_ns == 1000);
    CHECK(message.period == 0 && message.owner.lo == 0 && message.boot.lo == 7 && message.answers == 0);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 0, 6), QOS_OK);
    CHECK_EQ(pshift_agent_close(&agent, 333), QOS_EBUSY);
    pshift_agent_measure(&agent, 500);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK);
    CHECK(message.count == 1 && message.seq == 2);
    CHECK(report[0].bucket == 333 && report[0].served == 0 && report[0].held == 0);
    CHECK_EQ(report[0].demand, 6 + 15); /* 6 wait, and 6 arrived in an interval of 400; a period has 2.5 of these */
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_EAGAIN);
    pshift_agent_measure(&agent, 600);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* not acknowledged: sent again */
    CHECK_EQ(message.count, 1);
    CHECK_EQ(report[0].demand, 6);

    message = blank; /* a grant: 10 with R-tokens, 14 in all; it answers the report of 500 */
    message.count = 1;
    message.boot = boot;
    message.owner = nonce;
    message.period = 5;
    message.seq = 1;
    message.answers = 2;
    message.left_ns = 900;
    message.server = 1;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ENOENT);
    message.server = 2;
    message.boot.hi = 1;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ESTALE); /* for another start */
    message.boot.hi = 0;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_agent_info(&agent, &state), QOS_OK);
    CHECK(state.period == 5 && state.ends_ns == 500 + 900 && state.open == 2);
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ESTALE); /* again */
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK(info.r_tokens == 10 && info.l_tokens == 4);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 700, &pick), QOS_OK);
    message.seq = 2; /* the same totals: they include the served requests */
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK(info.r_tokens == 9 && info.l_tokens == 4);
    message.seq = 3;
    message.period = 4;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ESTALE); /* of the period before */
    message.period = 5;
    message.owner.hi = 8;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ESTALE); /* another owner's */
    message.owner.hi = 0;
    message.answers = 99;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ESTALE); /* a report that was never sent */
    message.answers = 1;
    message.left_ns = 599;
    CHECK_EQ(pshift_agent_install(&agent, 700, &message, &grant), QOS_ESTALE); /* over: 100 + 599 */
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 1399, &pick), QOS_OK);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 1400, &pick), QOS_EAGAIN); /* the tokens have ended */
    message.seq = 4; /* a larger period: the closed queue is free */
    message.period = 9;
    message.answers = 3;
    message.left_ns = 1000;
    message.count = 0;
    CHECK_EQ(pshift_agent_install(&agent, 1400, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 1, &queue), QOS_OK);
    CHECK_EQ(queue, 2);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* it answers at once */
    CHECK(message.count == 1 && report[0].served == 0 && message.answers == 4 && message.period == 9);

    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 0, 8), QOS_OK);
    pshift_agent_measure(&agent, 1590); /* shortly before the period ends: 8 arrived and 2 were served in 990 */
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK);
    CHECK(message.left_ns == 10 && message.capacity == 1 && report[0].demand == 12 + 1);
    message.answers = message.seq;
    message.seq = 5;
    message.period = 10;
    message.left_ns = 1010;
    CHECK_EQ(pshift_agent_install(&agent, 1600, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* as much in all of the next one */
    CHECK(message.left_ns == 1000 && message.capacity == 3 && report[0].demand == 12 + 9);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 1600, &pick), QOS_OK);
    message.answers = message.seq;
    message.seq = 6;
    CHECK_EQ(pshift_agent_install(&agent, 1600, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* less what was served since */
    CHECK(message.capacity == 2 && report[0].served == 1 && report[0].demand == 11 + 9);
    message.answers = message.seq;
    message.seq = 7;
    message.period = 11;
    message.left_ns = 1010;
    CHECK_EQ(pshift_agent_install(&agent, 2100, &message, &grant), QOS_OK); /* half of that period is over */
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* not less what was served before it began */
    CHECK(message.left_ns == 500 && message.capacity == 2 && report[0].served == 0 && report[0].demand == 11 + 5);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* A scheduler, and its agent, each in its own memory. */
static void open_agent(struct pshift_scheduler *scheduler, struct check_mem *m,
                       const struct pshift_scheduler_config *queues, struct pshift_agent *agent, struct check_mem *n,
                       struct pshift_agent_config *config)
{
    (void)MEM(*m, pshift_scheduler_memsize(queues));
    CHECK_EQ(pshift_scheduler_init(scheduler, m->mem, m->size, queues), QOS_OK);
    config->scheduler = scheduler;
    (void)MEM(*n, pshift_agent_memsize(config));
    CHECK_EQ(pshift_agent_init(agent, n->mem, n->size, config), QOS_OK);
}

/* A larger period voids all tokens, also those without a limit, before its own come. */
static void larger_period(void)
{
    struct pshift_scheduler_config queues = {2, 0};
    struct pshift_agent_config config = {NULL, 0, boot, 1000, 0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_message message = blank;
    struct pshift_report_entry report[2];
    struct pshift_grant_entry grant[2] = {{1, 5, QOS_UNLIMITED}, {2, 3, 8}};
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    struct pshift_pick pick;
    struct check_mem m, n;
    uint32_t q, k;
    open_agent(&scheduler, &m, &queues, &agent, &n, &config);
    for (k = 0; k < 2; k++) {
        CHECK_EQ(pshift_agent_open(&agent, 1 + k, &q), QOS_OK);
        CHECK_EQ(pshift_scheduler_arrive(&scheduler, k, 100), QOS_OK);
    }
    pshift_agent_measure(&agent, 0);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 2), QOS_OK);
    message.owner = nonce;
    message.period = message.seq = message.answers = 1;
    message.left_ns = 500;
    CHECK_EQ(pshift_agent_install(&agent, 0, &message, grant), QOS_OK);
    /* Four more than it reserved, with L-tokens, which r_total then counts. */
    for (k = 0; k < 9; k++)
        CHECK_EQ(pshift_scheduler_force(&scheduler, 100, 0), QOS_OK);
    message.seq = 2;
    message.count = 1;
    grant[0].r_total = 9;
    CHECK_EQ(pshift_agent_install(&agent, 200, &message, grant), QOS_OK);
    /* The period ends without a new one: the limited bucket stops, the other one gets its R-tokens again, each T. */
    for (k = 0; k < 3; k++) {
        CHECK_EQ(pshift_scheduler_next_ns(&scheduler, 500 + 1000 * k), 500 + 1000 * k);
        CHECK_EQ(pshift_scheduler_pick(&scheduler, 500 + 1000 * k, &pick), QOS_OK);
        CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
        CHECK(info.r_tokens == 4 && info.l_tokens == QOS_UNLIMITED);
        CHECK_EQ(pshift_scheduler_info(&scheduler, 1, &info), QOS_OK);
        CHECK(info.r_tokens == 0 && info.l_tokens == 0);
    }
    message.period = 2;
    message.seq = 3;
    message.left_ns = 9000;
    CHECK_EQ(pshift_agent_install(&agent, 3000, &message, grant + 1), QOS_OK);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK(info.r_tokens == 0 && info.l_tokens == 0); /* perhaps it has a limit now */
    CHECK_EQ(pshift_scheduler_info(&scheduler, 1, &info), QOS_OK);
    CHECK(info.r_tokens == 3 && info.l_tokens == 5);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* A forced request is charged once, in the period of the token that pays for it. The queue keeps its debt until then, and
 * only then another bucket may have it, with weight 1. */
static void debts(void)
{
    struct pshift_scheduler_config queues = {1, 50};
    struct pshift_agent_config config = {NULL, 0, boot, 1000, 0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_message message = blank;
    struct pshift_report_entry report[1];
    struct pshift_grant_entry grant = {1, 0, 30};
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    struct pshift_pick pick;
    struct check_mem m, n;
    uint32_t q, k;
    open_agent(&scheduler, &m, &queues, &agent, &n, &config);
    CHECK_EQ(pshift_agent_open(&agent, 1, &q), QOS_OK);
    CHECK_EQ(pshift_scheduler_change(&scheduler, q, 9), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, q, 50), QOS_OK);
    for (k = 0; k < 50; k++)
        CHECK_EQ(pshift_scheduler_force(&scheduler, 0, q), QOS_OK);
    CHECK_EQ(pshift_agent_close(&agent, 1), QOS_OK);
    for (k = 1; k <= 3; k++) { /* 30, then 20 are paid; nothing is left over */
        pshift_agent_measure(&agent, 1000 * k);
        CHECK_EQ(pshift_agent_report(&agent, &message, report, 1), QOS_OK);
        CHECK_EQ(report[0].served, k == 1 ? 0 : k == 2 ? 30 : 20); /* of the period before */
        CHECK_EQ(report[0].demand, k == 1 ? 50 : k == 2 ? 20 : 0);
        message.owner = nonce;
        message.period = message.seq = k;
        message.answers = message.seq = k * 2 - 1;
        message.left_ns = 900;
        message.ack[0].first = 1;
        message.ack[0].last = message.answers;
        CHECK_EQ(pshift_agent_open(&agent, 2, &q), QOS_EFULL);
        CHECK_EQ(pshift_agent_install(&agent, 1000 * k, &message, &grant), QOS_OK);
        CHECK_EQ(pshift_agent_report(&agent, &message, report, 1), QOS_OK);
        CHECK_EQ(report[0].served, k == 1 ? 30 : k == 2 ? 20 : 0);
        CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
        CHECK_EQ(info.debt, k == 1 ? 20 : 0);
        if (k == 2)
            CHECK_EQ(info.l_tokens, 10);
        message.seq = 2 * k; /* again, with another number: nothing is paid twice */
        message.owner = nonce;
        message.left_ns = 900;
        CHECK_EQ(pshift_agent_install(&agent, 1000 * k, &message, &grant), QOS_OK);
        CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
        CHECK(info.debt == (k == 1 ? 20 : 0) && info.l_tokens == (k == 1 ? 0 : k == 2 ? 10 : 30));
    }
    (void)pick;
    for (k = 4; k <= 5; k++) { /* the report that it is idle is acknowledged in 4 */
        pshift_agent_measure(&agent, 1000 * k);
        CHECK_EQ(pshift_agent_report(&agent, &message, report, 1), QOS_OK);
        message.owner = nonce;
        message.period = k;
        message.answers = message.seq;
        message.ack[0].first = 1;
        message.ack[0].last = message.answers;
        message.left_ns = 900;
        message.count = 0;
        CHECK_EQ(pshift_agent_open(&agent, 2, &q), QOS_EFULL);
        CHECK_EQ(pshift_agent_install(&agent, 1000 * k, &message, &grant), QOS_OK);
    }
    CHECK_EQ(pshift_agent_open(&agent, 2, &q), QOS_OK);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK(info.debt == 0 && info.weight == 1 && info.l_tokens == 0);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* The end of demand is told in the period that runs, again and again until the owner has heard it: only then the closed
 * bucket's queue is free. A report from before the period is no such one: the owner expects what the last period had.
 * deaf: an owner that never says what it heard. Then it is told in all of a period. */
static void ended_demand(bool deaf)
{
    struct pshift_scheduler_config queues = {1, 0};
    struct pshift_agent_config config = {NULL, 0, boot, 1000, 0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_message message = blank;
    struct pshift_report_entry report[1];
    struct check_mem m, n;
    uint32_t q, k;
    open_agent(&scheduler, &m, &queues, &agent, &n, &config);
    CHECK_EQ(pshift_agent_open(&agent, 1, &q), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, q, 50), QOS_OK); /* no tokens come for them */
    for (k = 1; k <= 5; k++) {
        if (k == 2) {
            CHECK_EQ(pshift_scheduler_cancel(&scheduler, q, 50), QOS_OK);
            CHECK_EQ(pshift_agent_close(&agent, 1), QOS_OK);
        }
        pshift_agent_measure(&agent, 100 * k);
        CHECK_EQ(pshift_agent_report(&agent, &message, report, 1), QOS_OK);
        CHECK_EQ(message.count, k < 5 || deaf ? 1 : 0);
        CHECK(message.count == 0 || (report[0].bucket == 1 && report[0].demand == (k == 1 ? 50 : 0)));
        message.owner = nonce;
        message.answers = message.seq;
        message.period = k == 1 ? 1 : k < 5 ? 2 : 3; /* the second report meets an owner that is in period 2 already */
        message.ack[0].first = message.ack[0].last = k == 3 || deaf ? 0 : message.seq; /* the third one is lost */
        message.left_ns = 900;
        message.count = 0;
        CHECK_EQ(pshift_agent_open(&agent, 2, &q), QOS_EFULL);
        CHECK_EQ(pshift_agent_install(&agent, 100 * k, &message, NULL), QOS_OK);
    }
    CHECK_EQ(pshift_agent_open(&agent, 2, &q), QOS_OK);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* A million buckets use one server of 10,000 queues, at most 10,000 of them at a time. */
static void a_million_buckets(void)
{
    const uint32_t width = check_scaled(10000) > 100 ? 10000 : 500;
    struct pshift_scheduler_config queues = {0, 0};
    struct pshift_agent_config config = {NULL, 0, boot, 0, 0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct check_mem m, n;
    struct pshift_report_entry report;
    uint64_t period, id = UINT64_C(1) << 60;
    uint32_t k, queue = 0;
    queues.queues = width;
    open_agent(&scheduler, &m, &queues, &agent, &n, &config);
    for (period = 1; period <= 100; period++) {
        struct pshift_message message = blank;
        pshift_agent_measure(&agent, period);
        CHECK_EQ(pshift_agent_report(&agent, &message, &report, 1), QOS_OK);
        message.owner = nonce;
        message.period = message.answers = message.seq;
        message.left_ns = 9;
        message.count = 0;
        CHECK_EQ(pshift_agent_install(&agent, period, &message, NULL), QOS_OK);
        for (k = 0; k < width; k++) {
            CHECK_EQ(pshift_agent_open(&agent, id + k * 977, &queue), QOS_OK);
            CHECK_EQ(pshift_agent_close(&agent, id + k * 977), QOS_OK);
        }
        id += width * UINT64_C(977);
    }
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* The rules of the key, one by one. */
static void owners(void)
{
    const struct qos_u128 other = {3, 3}, none = {0, 0};
    struct pshift_owner_config config = {none, 100, 0}, three = {nonce, 100, 3};
    struct pshift_owner owner;
    uint64_t n = 0, start = 0;
    CHECK_EQ(pshift_owner_init(&owner, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_owner_init(&owner, &config), QOS_ERANGE);
    config.nonce = nonce;
    CHECK_EQ(pshift_owner_init(&owner, &config), QOS_OK);
    CHECK_EQ(pshift_owner_ask(&owner, 5, &n), QOS_EAGAIN); /* read first */
    CHECK_EQ(pshift_owner_next_ns(&owner, 5), 5);
    pshift_owner_saw(&owner, 10, 7, other);
    CHECK_EQ(pshift_owner_next_ns(&owner, 10), 110);
    CHECK_EQ(pshift_owner_ask(&owner, 109, &n), QOS_EAGAIN);
    pshift_owner_saw(&owner, 50, 7, other); /* again: the first time counts */
    CHECK_EQ(pshift_owner_ask(&owner, 110, &n), QOS_OK);
    CHECK_EQ(n, 8);
    CHECK_EQ(pshift_owner_ask(&owner, 110, &n), QOS_EBUSY);
    CHECK_EQ(pshift_owner_holds(&owner, 111, &n, &start), QOS_EAGAIN);
    pshift_owner_saw(&owner, 120, 8, nonce);
    CHECK_EQ(pshift_owner_holds(&owner, 120, &n, &start), QOS_OK);
    CHECK(n == 8 && start == 110); /* from before the swap */
    CHECK_EQ(pshift_owner_holds(&owner, 209, &n, &start), QOS_OK);
    CHECK_EQ(pshift_owner_holds(&owner, 210, &n, &start), QOS_EAGAIN);
    CHECK_EQ(pshift_owner_ask(&owner, 219, &n), QOS_EAGAIN); /* its own next one: from the reply on */
    CHECK_EQ(pshift_owner_ask(&owner, 220, &n), QOS_OK);
    CHECK_EQ(n, 9);
    pshift_owner_saw(&owner, 300, 8, nonce); /* no reply came, and the key is unchanged: the swap may come late */
    CHECK_EQ(pshift_owner_ask(&owner, 300, &n), QOS_OK);
    CHECK_EQ(n, 10);
    pshift_owner_saw(&owner, 301, 9, nonce); /* the first one did: nobody knows when, so nothing is owned */
    CHECK_EQ(pshift_owner_holds(&owner, 301, &n, &start), QOS_EAGAIN);
    CHECK_EQ(pshift_owner_ask(&owner, 400, &n), QOS_EAGAIN);
    pshift_owner_saw(&owner, 401, 4, other); /* an old read */
    CHECK_EQ(pshift_owner_ask(&owner, 401, &n), QOS_OK);
    CHECK_EQ(n, 11);
    pshift_owner_saw(&owner, 402, 11, other); /* somebody else was faster */
    CHECK_EQ(pshift_owner_holds(&owner, 402, &n, &start), QOS_EAGAIN);
    CHECK_EQ(pshift_owner_init(&owner, &three), QOS_OK);
    pshift_owner_saw(&owner, 0, 0, none); /* there is no key yet: somebody may be writing it */
    CHECK_EQ(pshift_owner_ask(&owner, 299, &n), QOS_EAGAIN);
    CHECK_EQ(pshift_owner_ask(&owner, 300, &n), QOS_OK);
    CHECK_EQ(n, 3);
    pshift_owner_saw(&owner, 310, 3, nonce);
    for (n = 0; n < 3; n++) {
        uint64_t period = 0;
        CHECK_EQ(pshift_owner_holds(&owner, 300 + 100 * n + 99, &period, &start), QOS_OK);
        CHECK(period == 1 + n && start == 300 + 100 * n);
    }
    CHECK_EQ(pshift_owner_holds(&owner, 600, &n, &start), QOS_EAGAIN);
    pshift_owner_saw(&owner, 610, UINT64_MAX - 3, other);
    CHECK_EQ(pshift_owner_ask(&owner, 910, &n), QOS_OK);
    CHECK_EQ(n, UINT64_MAX);
    pshift_owner_saw(&owner, 920, UINT64_MAX, other); /* that was the last one */
    CHECK_EQ(pshift_owner_ask(&owner, 1220, &n), QOS_ERANGE);
    CHECK_EQ(n, UINT64_MAX);
}

static void controller_calls(void)
{
    struct pshift_controller_config config = {2, 3, 3, nonce, 0, 0}, bad = {0, 1, 1, nonce, 0, 0};
    struct check_mem m;
    struct pshift_controller controller;
    struct pshift_message message = blank, got = blank;
    struct pshift_report_entry report[4] = {{10, 5, 50, 0, 0}, {11, 0, 1, 0, 0}, {12, 0, 1, 0, 0}, {13, 0, 1, 0, 0}};
    struct pshift_grant_entry grant[3];
    struct pshift_options options;
    struct pshift_problem p;
    struct pshift_solution s;
    memset(&options, 0, sizeof options);
    (void)MEM(m, pshift_controller_memsize(&config));
    CHECK_EQ(pshift_controller_init(&controller, m.mem, m.size, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_controller_init(&controller, m.mem, m.size, &bad), QOS_ERANGE);
    CHECK_EQ(pshift_controller_init(&controller, m.mem, m.size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(pshift_controller_init(&controller, m.mem, m.size, &config), QOS_OK);
    CHECK_EQ(pshift_controller_change(&controller, 10, PSHIFT_COUNT_MAX + 1, 0), QOS_ERANGE);
    CHECK_EQ(pshift_controller_change(&controller, 10, PSHIFT_COUNT_MAX, 0), QOS_OK);
    CHECK_EQ(pshift_controller_change(&controller, 10, 2, 1), QOS_ERANGE); /* a limit below its reservation */
    CHECK_EQ(pshift_controller_change(&controller, 10, 1, QOS_NOTHING), QOS_ERANGE);
    CHECK_EQ(pshift_controller_change(&controller, 10, 30, 30), QOS_OK); /* the same for both */
    CHECK_EQ(pshift_controller_change(&controller, 10, 20, 30), QOS_OK);
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_EAGAIN); /* no period */
    CHECK_EQ(pshift_controller_certificate(&controller, &p, &s), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, grant, 3), QOS_EAGAIN);
    message.server = 1; /* it is heard in the period of another owner: the first grant asks it to answer */
    message.boot.lo = message.owner.lo = message.period = 99;
    message.seq = 3;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_begin(&controller, 0, 1), QOS_OK);
    CHECK_EQ(pshift_controller_begin(&controller, 0, 1), QOS_ESTALE);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 1, &got, grant, 3), QOS_OK);
    CHECK(got.count == 0 && got.boot.lo == 99 && got.answers == 3);
    message = blank;
    CHECK_EQ(pshift_controller_grant(&controller, 0, 2, &got, grant, 3), QOS_ENOENT);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, grant, 0), QOS_EINVAL);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, grant, 3), QOS_EAGAIN); /* nobody is known */
    message.count = 1;
    message.boot = boot;
    message.owner = nonce;
    message.seq = message.period = 1;
    message.capacity = 100;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_OK);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, grant, 3), QOS_OK); /* before any plan */
    CHECK(got.count == 0 && got.owner.lo == 4 && got.boot.lo == 7 && got.period == 1 && got.answers == 1);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, grant, 3), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_ESTALE); /* twice */
    message.seq = 2;
    report[0].served = 4;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_ECORRUPT); /* it fell without a restart */
    report[0].served = 5;
    message.server = 2;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_ENOENT);
    message.server = 0;
    message.period = 2;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_ESTALE);
    message.period = 1;
    message.boot.lo = 0;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_ESTALE); /* no nonce */
    message.boot = boot;
    message.seq = UINT64_MAX;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_ESTALE);
    message.seq = 2;
    CHECK_EQ(pshift_controller_report(&controller, 0, &message, report), QOS_OK);
    options.initial_only = true;
    CHECK_EQ(pshift_controller_plan(&controller, &options), QOS_EINVAL);
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, grant, 3), QOS_OK);
    CHECK(got.count == 1 && got.answers == 2 && got.ack[0].first == 1 && got.ack[0].last == 2);
    CHECK(grant[0].bucket == 10 && grant[0].r_total == 20 && grant[0].total == 30); /* 5 are served */
    CHECK(check_mem_free(&m));
}

/* A server with an agent, and a controller that knows of bucket 0 there. */
struct pair {
    struct check_mem scheduler_mem, agent_mem, controller_mem;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_controller controller;
    uint64_t now_ns;
};

static void hear(struct pair *p)
{
    struct pshift_message message = blank;
    struct pshift_report_entry report[2];
    pshift_agent_measure(&p->agent, ++p->now_ns);
    CHECK_EQ(pshift_agent_report(&p->agent, &message, report, 2), QOS_OK);
    message.capacity = 100;
    CHECK_EQ(pshift_controller_report(&p->controller, p->now_ns, &message, report), QOS_OK);
}

static void tell(struct pair *p)
{
    struct pshift_message message = blank;
    struct pshift_grant_entry grant[2];
    while (pshift_controller_grant(&p->controller, p->now_ns, 0, &message, grant, 2) == QOS_OK)
        CHECK_EQ(pshift_agent_install(&p->agent, p->now_ns, &message, grant), QOS_OK);
}

static struct pshift_scheduler_state queue_of(const struct pair *p, uint32_t q)
{
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    CHECK_EQ(pshift_scheduler_info(&p->scheduler, q, &info), QOS_OK);
    return info;
}

static void pair_open(struct pair *p, uint64_t default_l_tokens)
{
    struct pshift_scheduler_config queues = {2, 0};
    struct pshift_agent_config agent = {NULL, 0, {0, 1}, 0, 0, 0};
    struct pshift_controller_config controller = {1, 2, 2, nonce, 0, 0};
    struct pshift_message message = blank;
    uint32_t queue = 0;
    agent.scheduler = &p->scheduler;
    agent.default_l_tokens = default_l_tokens;
    (void)MEM(p->scheduler_mem, pshift_scheduler_memsize(&queues));
    CHECK_EQ(pshift_scheduler_init(&p->scheduler, p->scheduler_mem.mem, p->scheduler_mem.size, &queues), QOS_OK);
    (void)MEM(p->agent_mem, pshift_agent_memsize(&agent));
    CHECK_EQ(pshift_agent_init(&p->agent, p->agent_mem.mem, p->agent_mem.size, &agent), QOS_OK);
    (void)MEM(p->controller_mem, pshift_controller_memsize(&controller));
    CHECK_EQ(pshift_controller_init(&p->controller, p->controller_mem.mem, p->controller_mem.size, &controller),
             QOS_OK);
    CHECK_EQ(pshift_controller_change(&p->controller, 0, 10, 0), QOS_OK);
    p->now_ns = 0;
    CHECK_EQ(pshift_controller_begin(&p->controller, 0, 1), QOS_OK);
    CHECK_EQ(pshift_agent_open(&p->agent, 0, &queue), QOS_OK);
    CHECK_EQ(pshift_agent_open(&p->agent, 1, &queue), QOS_OK);
    pshift_agent_measure(&p->agent, 0); /* the first report only says that the server is there */
    CHECK_EQ(pshift_agent_report(&p->agent, &message, NULL, 1), QOS_OK);
    CHECK_EQ(pshift_controller_report(&p->controller, p->now_ns, &message, NULL), QOS_EAGAIN);
    tell(p);
    CHECK_EQ(pshift_scheduler_arrive(&p->scheduler, 0, 100), QOS_OK);
    hear(p);
}

static void pair_close(struct pair *p)
{
    CHECK(check_mem_free(&p->scheduler_mem));
    CHECK(check_mem_free(&p->agent_mem));
    CHECK(check_mem_free(&p->controller_mem));
}

/* A failed plan is not a round: it does not make a server silent. */
static void failing_plans(void)
{
    struct pshift_controller_state info;
    struct pshift_options options;
    struct pair p;
    int k;
    memset(&options, 0, sizeof options);
    options.initial_only = true;
    pair_open(&p, 0);
    for (k = 0; k < 9; k++)
        CHECK_EQ(pshift_controller_plan(&p.controller, &options), QOS_EINVAL);
    CHECK_EQ(pshift_controller_plan(&p.controller, NULL), QOS_OK);
    CHECK_EQ(pshift_controller_info(&p.controller, &info), QOS_OK);
    CHECK(info.round == 1 && info.silent == 0);
    tell(&p);
    CHECK_EQ(queue_of(&p, 0).r_tokens, 10);
    for (k = 0; k < 3; k++) /* rounds without a report do */
        CHECK_EQ(pshift_controller_plan(&p.controller, NULL), QOS_OK);
    CHECK_EQ(pshift_controller_info(&p.controller, &info), QOS_OK);
    CHECK(info.round == 4 && info.silent == 1);
    pair_close(&p);
}

/* A bucket that is first reported between a plan and its grants keeps its tokens. */
static void between_plan_and_grant(void)
{
    struct pair p;
    pair_open(&p, QOS_UNLIMITED);
    CHECK_EQ(pshift_controller_plan(&p.controller, NULL), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&p.scheduler, 1, 10), QOS_OK);
    hear(&p);
    tell(&p);
    CHECK(queue_of(&p, 0).r_tokens == 10 && queue_of(&p, 0).l_tokens == QOS_UNLIMITED);
    CHECK_EQ(queue_of(&p, 1).l_tokens, QOS_UNLIMITED);
    CHECK_EQ(pshift_controller_plan(&p.controller, NULL), QOS_OK);
    tell(&p);
    CHECK_EQ(queue_of(&p, 1).l_tokens, QOS_UNLIMITED);
    pair_close(&p);
}

static void messages(void)
{
    uint8_t bytes[QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + PSHIFT_REPORT_ENTRY_BYTES];
    const struct pshift_message m = {1, 1, {2, 3}, {4, 5}, 6, 7, 8, 9, 10, {{11, 12}, {2, 9}}};
    struct pshift_message got = blank;
    struct pshift_report_entry re = {9, 10, 11, 12, 13};
    struct pshift_grant_entry ge = {9, 10, 11}, wrong = {9, 11, 10};
    size_t len = 0;
    memset(bytes, 0x5a, sizeof bytes);
    CHECK_EQ(pshift_report_encode(&m, &re, bytes, sizeof bytes - 1, &len), QOS_EMEMORY);
    CHECK_EQ(bytes[sizeof bytes - 1], 0x5a); /* the caller cannot give this */
    CHECK_EQ(pshift_grant_encode(&m, &ge, NULL, sizeof bytes, &len), QOS_EINVAL);
    CHECK_EQ(len, 0);
    CHECK_EQ(pshift_report_encode(&m, &re, bytes, sizeof bytes, &len), QOS_OK);
    CHECK_EQ(len, sizeof bytes);
    CHECK_EQ(pshift_grant_decode(bytes, len, &got, &ge, 1), QOS_ECORRUPT); /* a report is not a grant */
    CHECK_EQ(pshift_report_decode(bytes, len, &got, &re, 0), QOS_EFULL);
    memset(&re, 0, sizeof re);
    CHECK_EQ(pshift_report_decode(bytes, len, &got, &re, 1), QOS_OK);
    CHECK(got.server == 1 && got.boot.hi == 2 && got.boot.lo == 3 && got.owner.hi == 4 && got.owner.lo == 5);
    CHECK(got.period == 6 && got.seq == 7 && got.answers == 8 && got.left_ns == 9 && got.capacity == 10);
    CHECK(got.ack[0].first == 11 && got.ack[0].last == 12 && got.ack[1].first == 2 && got.ack[1].last == 9);
    CHECK(re.bucket == 9 && re.served == 10 && re.demand == 11 && re.held == 12 && re.grant_seq == 13);
    CHECK_EQ(pshift_grant_encode(&m, &ge, bytes, sizeof bytes, &len), QOS_OK);
    CHECK_EQ(len, QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + PSHIFT_GRANT_ENTRY_BYTES);
    CHECK_EQ(pshift_grant_decode(bytes, len - 1, &got, &ge, 1), QOS_ETRUNCATED);
    CHECK_EQ(pshift_grant_decode(bytes, len, &got, &ge, 1), QOS_OK);
    CHECK(ge.bucket == 9 && ge.r_total == 10 && ge.total == 11);
    CHECK_EQ(pshift_grant_encode(&m, &wrong, bytes, sizeof bytes, &len), QOS_OK);
    CHECK_EQ(pshift_grant_decode(bytes, len, &got, &ge, 1), QOS_ECORRUPT); /* more R-tokens than tokens */
}

int main(void)
{
    check_begin("unit/pshift_runtime");
    scheduler_calls();
    fair_beside_reservations();
    even_spending();
    agent_calls();
    larger_period();
    debts();
    owners();
    ended_demand(false);
    ended_demand(true);
    a_million_buckets();
    controller_calls();
    failing_plans();
    between_plan_and_grant();
    messages();
    return check_end();
}
