// proves: memory and every error of scheduler, agent, controller and messages; rounding of the estimator
#include "pshift.h"
#include "check.h"

#define MEM(m, size) check_mem_new(&(m), (size), 64, 0)

/* A field of a configuration at the end of its range and one past it, with the error text that names it. */
#define FIELD(error, config, field, good, bad)                                                                         \
    do {                                                                                                               \
        (config).field = (good);                                                                                       \
        CHECK(error(&(config)) == NULL);                                                                               \
        (config).field = (bad);                                                                                        \
        CHECK(error(&(config)) != NULL && strncmp(error(&(config)), #field, strlen(#field)) == 0);                     \
        (config).field = (good);                                                                                       \
    } while (0)

static void configs(void)
{
    static struct pshift_scheduler scheduler;
    struct pshift_solver_config solver = {0, 0, 0};
    struct pshift_scheduler_config queues = {1, 0};
    struct pshift_agent_config agent = {NULL, 0, 1, 0, 0, 0};
    struct pshift_controller_config controller = {1, 1, 1, 1, 0, 0};
    CHECK(pshift_solver_config_error(NULL) && pshift_scheduler_config_error(NULL));
    CHECK(pshift_agent_config_error(NULL) && pshift_controller_config_error(NULL));
    CHECK_EQ(pshift_solver_memsize(NULL) + pshift_scheduler_memsize(NULL), 0);
    CHECK_EQ(pshift_agent_memsize(NULL) + pshift_controller_memsize(NULL), 0);
    CHECK(pshift_solver_config_error(&solver) == NULL);
    FIELD(pshift_solver_config_error, solver, servers, PSHIFT_ENTRIES_MAX, UINT32_MAX);
    FIELD(pshift_solver_config_error, solver, buckets, PSHIFT_ENTRIES_MAX, UINT32_MAX);
    FIELD(pshift_solver_config_error, solver, entries, PSHIFT_ENTRIES_MAX, UINT32_MAX);
    FIELD(pshift_scheduler_config_error, queues, queues, PSHIFT_QUEUES_MAX, PSHIFT_QUEUES_MAX + 1);
    FIELD(pshift_scheduler_config_error, queues, queues, 1, 0);
    FIELD(pshift_scheduler_config_error, queues, debt_max_ops, QOS_TOKENS_MAX, QOS_TOKENS_MAX + 1);
    FIELD(pshift_agent_config_error, agent, scheduler, &scheduler, NULL);
    FIELD(pshift_agent_config_error, agent, epoch, 1, 0);
    FIELD(pshift_agent_config_error, agent, unchanged_permille, 1000, 1001);
    FIELD(pshift_controller_config_error, controller, servers, PSHIFT_QUEUES_MAX, PSHIFT_QUEUES_MAX + 1);
    FIELD(pshift_controller_config_error, controller, servers, 1, 0);
    FIELD(pshift_controller_config_error, controller, buckets, PSHIFT_RECORDS_MAX, PSHIFT_RECORDS_MAX + 1);
    FIELD(pshift_controller_config_error, controller, buckets, 1, 0);
    FIELD(pshift_controller_config_error, controller, records, PSHIFT_RECORDS_MAX, PSHIFT_RECORDS_MAX + 1);
    FIELD(pshift_controller_config_error, controller, records, 1, 0);
    FIELD(pshift_controller_config_error, controller, epoch, 1, 0);
}

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
    CHECK_EQ(pshift_scheduler_force(&scheduler, 5), QOS_ENOENT);
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
        CHECK_EQ(pshift_scheduler_pick(&scheduler, &pick), QOS_EAGAIN);
    CHECK_EQ(pshift_scheduler_stats(&scheduler, QOS_NONE, &stats), QOS_OK);
    CHECK_EQ(stats.refused, 0);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 2, 3), QOS_OK);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, &pick), QOS_EAGAIN);
    CHECK_EQ(pshift_scheduler_force(&scheduler, 2), QOS_OK);
    CHECK_EQ(pshift_scheduler_stats(&scheduler, QOS_NONE, &stats), QOS_OK);
    CHECK(stats.refused == 1 && stats.granted == 1 && stats.debt == 1);
    CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, 2, 2, 0), QOS_OK); /* one of them pays the debt */
    CHECK_EQ(pshift_scheduler_next_ns(&scheduler, 3), 3);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, &pick), QOS_OK);
    CHECK(pick.queue == 2 && pick.backing == PSHIFT_RESERVATION);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, &pick), QOS_EAGAIN);
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
                CHECK_EQ(pshift_scheduler_pick(&scheduler, &pick), QOS_OK);
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

static const struct pshift_message blank = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};

static void agent_calls(void)
{
    struct pshift_scheduler_config queues = {3, 0};
    struct pshift_agent_config config = {NULL, 2, 7, 0, 0, 0}, bad;
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
    bad.epoch = 0;
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &bad), QOS_ERANGE);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(pshift_agent_init(&agent, n.mem + 8, n.size, &config), QOS_EALIGN);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &config), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 333, &queue), QOS_OK);
    CHECK_EQ(pshift_scheduler_info(&scheduler, queue, &info), QOS_OK);
    CHECK(info.r_tokens == 0 && info.l_tokens == 0); /* no period has begun */
    CHECK_EQ(pshift_agent_begin(&agent, 1), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&agent, 1), QOS_ESTALE);
    CHECK_EQ(pshift_agent_open(&agent, 333, &queue), QOS_OK);
    CHECK_EQ(queue, 0);
    CHECK_EQ(pshift_agent_open(&agent, UINT64_MAX, &queue), QOS_OK);
    CHECK_EQ(queue, 1);
    CHECK_EQ(pshift_agent_open(&agent, 333, &queue), QOS_OK);
    CHECK_EQ(queue, 0);
    CHECK_EQ(pshift_agent_open(&agent, 0, &queue), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 1, &queue), QOS_EFULL);
    CHECK_EQ(pshift_agent_close(&agent, 1), QOS_ENOENT);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, 0, 6), QOS_OK);
    CHECK_EQ(pshift_agent_close(&agent, 333), QOS_EBUSY);
    CHECK_EQ(pshift_agent_close(&agent, 0), QOS_OK);
    CHECK_EQ(pshift_agent_open(&agent, 1, &queue), QOS_EFULL); /* possible from the next period on */
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 0), QOS_EINVAL);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_EAGAIN); /* nothing was measured */
    pshift_agent_measure(&agent, 10, 25);
    message.ack_seq = message.ack_mask = 7;
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK);
    CHECK(message.ack_seq == 0 && message.ack_mask == 0);
    CHECK_EQ(message.count, 1);
    CHECK_EQ(message.seq, 1);
    CHECK_EQ(message.untold, 0);
    CHECK(report[0].bucket == 333 && report[0].served == 0 && report[0].held == 0);
    CHECK_EQ(report[0].demand, 6 + 15); /* 6 wait, and 6 arrived in an interval; 2.5 intervals follow */
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_EAGAIN);
    pshift_agent_measure(&agent, 10, 0);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK); /* not acknowledged: sent again */
    CHECK_EQ(message.count, 1);
    CHECK_EQ(report[0].demand, 6);

    message = blank; /* a grant: 10 with R-tokens, 14 in all */
    message.server = 2;
    message.count = 1;
    message.server_epoch = 7;
    message.controller_epoch = message.period = message.seq = 1;
    message.server = 1;
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_ENOENT);
    message.server = 2;
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_ESTALE); /* again */
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK(info.r_tokens == 10 && info.l_tokens == 4);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, &pick), QOS_OK);
    message.seq = 2; /* the same totals: they include the served requests */
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_OK);
    CHECK_EQ(pshift_scheduler_info(&scheduler, 0, &info), QOS_OK);
    CHECK(info.r_tokens == 9 && info.l_tokens == 4);
    message.seq = 3;
    message.server_epoch = 6;
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_ESTALE);
    message.server_epoch = 7;
    message.period = 2;
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_ESTALE);
    message.period = 1;
    message.controller_epoch = 9; /* a new controller; its epoch survives a restart */
    message.count = 0;
    message.server_epoch = 0;
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_OK);
    message.controller_epoch = 1;
    message.server_epoch = 7;
    message.count = 1;
    message.seq = 99;
    CHECK_EQ(pshift_agent_install(&agent, &message, &grant), QOS_ESTALE);
    CHECK_EQ(pshift_agent_info(&agent, &state), QOS_OK);
    CHECK(state.controller_epoch == 9 && state.period == 1 && state.open == 3);
    CHECK_EQ(pshift_agent_begin(&agent, 2), QOS_OK); /* the closed queue is free */
    CHECK_EQ(pshift_agent_open(&agent, 1, &queue), QOS_OK);
    CHECK_EQ(queue, 2);
    CHECK(check_mem_free(&n));
    (void)MEM(n, pshift_agent_memsize(&config));
    config.controller_epoch = 9;
    config.epoch = 8;
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &config), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&agent, 2), QOS_OK);
    pshift_agent_measure(&agent, 10, 10);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK);
    CHECK(message.partial && message.controller_epoch == 9);
    CHECK_EQ(pshift_agent_begin(&agent, 3), QOS_OK);
    pshift_agent_measure(&agent, 10, 10);
    CHECK_EQ(pshift_agent_report(&agent, &message, report, 3), QOS_OK);
    CHECK(!message.partial);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* A million buckets use one server of 10,000 queues, at most 10,000 of them at a time. */
static void a_million_buckets(void)
{
    const uint32_t width = check_scaled(10000) > 100 ? 10000 : 500;
    struct pshift_scheduler_config queues = {0, 0};
    struct pshift_agent_config config = {NULL, 0, 1, 0, 0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct check_mem m, n;
    uint64_t period, id = UINT64_C(1) << 60;
    uint32_t k, queue = 0;
    queues.queues = width;
    (void)MEM(m, pshift_scheduler_memsize(&queues));
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &queues), QOS_OK);
    config.scheduler = &scheduler;
    (void)MEM(n, pshift_agent_memsize(&config));
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &config), QOS_OK);
    for (period = 1; period <= 100; period++) {
        CHECK_EQ(pshift_agent_begin(&agent, period), QOS_OK);
        for (k = 0; k < width; k++) {
            CHECK_EQ(pshift_agent_open(&agent, id + k * 977, &queue), QOS_OK);
            CHECK_EQ(pshift_agent_close(&agent, id + k * 977), QOS_OK);
        }
        id += width * UINT64_C(977);
    }
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

static void controller_calls(void)
{
    struct pshift_controller_config config = {2, 3, 3, 4, 0, 0}, bad = {0, 1, 1, 1, 0, 0};
    struct check_mem m;
    struct pshift_controller controller;
    struct pshift_controller_state info;
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
    CHECK_EQ(pshift_controller_remove(&controller, 0), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_certificate(&controller, &p, &s), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_begin(&controller, 1), QOS_OK);
    CHECK_EQ(pshift_controller_begin(&controller, 1), QOS_ESTALE);
    CHECK_EQ(pshift_controller_grant(&controller, 2, &got, grant, 3), QOS_ENOENT);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 0), QOS_EINVAL);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 3), QOS_OK); /* the epoch, before any plan */
    CHECK(got.count == 0 && got.controller_epoch == 4 && got.server_epoch == 0);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 3), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_remove(&controller, 2), QOS_ENOENT);
    message.count = 1;
    message.server_epoch = message.seq = message.period = 1;
    message.controller_epoch = 4;
    message.capacity = 100;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_OK);
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_ESTALE); /* twice */
    message.seq = 2;
    report[0].served = 4;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_ECORRUPT); /* it fell without a restart */
    report[0].served = 5;
    message.server = 2;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_ENOENT);
    message.server = 0;
    message.count = 4;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_EFULL);
    message.count = 1;
    message.period = 2;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_ESTALE);
    message.period = 1;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_OK);
    options.initial_only = true;
    CHECK_EQ(pshift_controller_plan(&controller, &options), QOS_EINVAL);
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
    CHECK_EQ(info.unconfirmed, 1); /* server 1 may obey another controller: no tokens are issued under limits */
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 3), QOS_OK);
    CHECK_EQ(got.count, 0);
    CHECK_EQ(pshift_controller_remove(&controller, 1), QOS_OK); /* it may have served in this period */
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 3), QOS_OK);
    CHECK_EQ(got.count, 0);
    CHECK(got.ack_seq == 2 && (got.ack_mask & 1) == 1);
    CHECK_EQ(pshift_controller_begin(&controller, 2), QOS_OK);
    message.period = 2;
    message.seq = 3;
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_OK);
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 3), QOS_OK);
    CHECK_EQ(got.count, 1);
    CHECK(grant[0].bucket == 10 && grant[0].r_total == 20 && grant[0].total == 30); /* 5 are served */
    message.seq = 4;
    message.controller_epoch = 5; /* the server obeys a newer one */
    CHECK_EQ(pshift_controller_report(&controller, &message, report), QOS_ESTALE);
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_ESTALE);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &got, grant, 3), QOS_ESTALE);
    CHECK(check_mem_free(&m));
}

/* A server with an agent, and a controller that knows of bucket 0 there. */
struct pair {
    struct check_mem scheduler_mem, agent_mem, controller_mem;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_controller controller;
};

static void hear(struct pair *p)
{
    struct pshift_message message = blank;
    struct pshift_report_entry report[2];
    pshift_agent_measure(&p->agent, 1, 1);
    CHECK_EQ(pshift_agent_report(&p->agent, &message, report, 2), QOS_OK);
    message.capacity = 100;
    CHECK_EQ(pshift_controller_report(&p->controller, &message, report), QOS_OK);
}

static void tell(struct pair *p)
{
    struct pshift_message message = blank;
    struct pshift_grant_entry grant[2];
    while (pshift_controller_grant(&p->controller, 0, &message, grant, 2) == QOS_OK)
        CHECK_EQ(pshift_agent_install(&p->agent, &message, grant), QOS_OK);
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
    struct pshift_agent_config agent = {NULL, 0, 1, 0, 0, 0};
    struct pshift_controller_config controller = {1, 2, 2, 1, 0, 0};
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
    CHECK_EQ(pshift_controller_begin(&p->controller, 1), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&p->agent, 1), QOS_OK);
    CHECK_EQ(pshift_agent_open(&p->agent, 0, &queue), QOS_OK);
    CHECK_EQ(pshift_agent_open(&p->agent, 1, &queue), QOS_OK);
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
    const struct pshift_message m = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, true};
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
    CHECK(got.server == 1 && got.server_epoch == 2 && got.controller_epoch == 3 && got.seq == 4);
    CHECK(got.ack_seq == 5 && got.ack_mask == 6 && got.period == 7 && got.capacity == 8);
    CHECK(got.untold == 9 && got.partial);
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
    configs();
    scheduler_calls();
    fair_beside_reservations();
    agent_calls();
    a_million_buckets();
    controller_calls();
    failing_plans();
    between_plan_and_grant();
    messages();
    return check_end();
}
