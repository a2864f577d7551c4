// proves: what lost messages cost. 6 servers, 12 buckets, 5 intervals, 0.6 of the capacity reserved, demand 3 x. At
// proves: least this share of (bucket, period) pairs gets 0.99 of its reservation: 99.9 % at 1 % loss, 99.7 % at 5 %,
// proves: 99.5 % at 10 %, 96 % at 20 %. One lost report or grant costs at most one interval, with the threshold on and
// proves: off
// variants: native san
#include "pshift.h"
#include "check.h"

#define SERVERS 6
#define BUCKETS 12
#define INTERVALS 5
#define SLOTS 120 /* requests that a server can serve in an interval */

static struct node {
    struct check_mem scheduler_mem, agent_mem;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
} node[SERVERS];
static struct check_mem controller_mem;
static struct pshift_controller controller;
static uint64_t reservation[BUCKETS], share[BUCKETS][SERVERS], served[BUCKETS];
static struct check_rng rng;

static void open_all(uint32_t permille, bool limited)
{
    struct pshift_controller_config cc = {SERVERS, BUCKETS, SERVERS * BUCKETS, 1, 0, 0};
    struct pshift_scheduler_config sc = {BUCKETS, 0};
    uint64_t left = SERVERS * SLOTS * INTERVALS * 6 / 10;
    uint32_t i, j, queue;
    (void)check_mem_new(&controller_mem, pshift_controller_memsize(&cc), 64, 0);
    CHECK_EQ(pshift_controller_init(&controller, controller_mem.mem, controller_mem.size, &cc), QOS_OK);
    for (i = 0; i < BUCKETS; i++) {
        reservation[i] = left / (BUCKETS - i) * check_between(&rng, 50, 150) / 100;
        if (i == BUCKETS - 1)
            reservation[i] = left;
        left -= reservation[i];
        CHECK_EQ(pshift_controller_change(&controller, i, reservation[i], limited ? 2 * reservation[i] : 0), QOS_OK);
        memset(share[i], 0, sizeof share[i]);
        for (j = 0; j < 3; j++) /* demand 3 x, on up to three servers, and a little everywhere */
            share[i][check_between(&rng, 0, SERVERS - 1)] += reservation[i];
    }
    for (j = 0; j < SERVERS; j++) {
        struct pshift_agent_config ac = {NULL, 0, 1, 0, 0, 0};
        ac.scheduler = &node[j].scheduler;
        ac.server = j;
        ac.unchanged_permille = permille;
        (void)check_mem_new(&node[j].scheduler_mem, pshift_scheduler_memsize(&sc), 64, 0);
        CHECK_EQ(pshift_scheduler_init(&node[j].scheduler, node[j].scheduler_mem.mem, node[j].scheduler_mem.size, &sc),
                 QOS_OK);
        (void)check_mem_new(&node[j].agent_mem, pshift_agent_memsize(&ac), 64, 0);
        CHECK_EQ(pshift_agent_init(&node[j].agent, node[j].agent_mem.mem, node[j].agent_mem.size, &ac), QOS_OK);
        for (i = 0; i < BUCKETS; i++)
            CHECK_EQ(pshift_agent_open(&node[j].agent, i, &queue), QOS_OK);
    }
}

static void close_all(void)
{
    uint32_t j;
    CHECK(check_mem_free(&controller_mem));
    for (j = 0; j < SERVERS; j++) {
        CHECK(check_mem_free(&node[j].scheduler_mem));
        CHECK(check_mem_free(&node[j].agent_mem));
    }
}

static bool passes(uint32_t loss_permille)
{
    return check_between(&rng, 1, 1000) > loss_permille;
}

static void round_of_messages(uint32_t interval, uint32_t loss_permille)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    struct pshift_report_entry report[BUCKETS];
    struct pshift_grant_entry grant[BUCKETS];
    uint32_t j;
    for (j = 0; j < SERVERS; j++) {
        pshift_agent_measure(&node[j].agent, 1000, (uint64_t)(INTERVALS - interval) * 1000);
        while (pshift_agent_report(&node[j].agent, &m, report, BUCKETS) == QOS_OK) {
            m.capacity = (INTERVALS - interval) * SLOTS;
            if (passes(loss_permille))
                CHECK_EQ(pshift_controller_report(&controller, &m, report), QOS_OK);
        }
    }
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    for (j = 0; j < SERVERS; j++)
        while (pshift_controller_grant(&controller, j, &m, grant, BUCKETS) == QOS_OK)
            if (passes(loss_permille))
                (void)!pshift_agent_install(&node[j].agent, &m, grant);
}

static void serve(uint32_t j)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    uint32_t n;
    for (n = 0; n < SLOTS && pshift_scheduler_pick(&node[j].scheduler, &pick) == QOS_OK; n++)
        served[pick.queue]++;
}

/* Returns how many pairs got 0.99 R under loss. The first two periods do not count: they make the demand known. */
static uint64_t run(uint32_t periods, uint32_t loss_permille, uint64_t *all)
{
    uint64_t met = 0, period;
    uint32_t i, j, k;
    for (period = 1; period <= periods + 2; period++) {
        const bool counts = period > 2;
        CHECK_EQ(pshift_controller_begin(&controller, period), QOS_OK);
        for (j = 0; j < SERVERS; j++) {
            CHECK_EQ(pshift_agent_begin(&node[j].agent, period), QOS_OK);
            for (i = 0; i < BUCKETS; i++) /* what was not served is withdrawn */
            {
                struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
                CHECK_EQ(pshift_scheduler_info(&node[j].scheduler, i, &info), QOS_OK);
                CHECK_EQ(pshift_scheduler_cancel(&node[j].scheduler, i, info.pending), QOS_OK);
            }
        }
        memset(served, 0, sizeof served);
        for (k = 0; k < INTERVALS; k++) {
            for (j = 0; j < SERVERS; j++)
                for (i = 0; i < BUCKETS; i++)
                    CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, i, share[i][j] / INTERVALS), QOS_OK);
            round_of_messages(k, counts ? loss_permille : 0);
            for (j = 0; j < SERVERS; j++)
                serve(j);
        }
        for (i = 0; counts && i < BUCKETS; i++) {
            met += served[i] * 100 >= reservation[i] * 99;
            ++*all;
        }
    }
    return met;
}

/* Can the reservations be met at all without loss? Demand is random and may exceed one server's capacity. */
static bool feasible(void)
{
    uint64_t all = 0;
    return run(2, 0, &all) == all;
}

static void share_at(uint32_t loss_permille, double least, uint32_t permille, bool limited)
{
    uint64_t met = 0, all = 0, seed, used = 0;
    for (seed = 1; used < check_scaled(60); seed++) {
        check_rng_init(&rng, seed);
        open_all(permille, limited);
        if (!feasible()) {
            close_all();
            continue;
        }
        close_all();
        check_rng_init(&rng, seed);
        open_all(permille, limited);
        met += run(20, loss_permille, &all);
        close_all();
        used++;
    }
    printf("loss %u permille, threshold %u%s: %.3f %% of %" PRIu64 " pairs\n", loss_permille, permille,
           limited ? ", limits" : "", 100.0 * (double)met / (double)all, all);
    CHECK_CONTEXT("loss of %u permille, threshold %u", loss_permille, permille);
    CHECK_WITHIN((double)met / (double)all, least, 1);
}

/* Loses one report or one grant, under steady demand on one server. Counts the intervals without any service. */
static void one_lost(uint32_t permille, bool grant_lost)
{
    struct pshift_message m = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    struct pshift_report_entry report[BUCKETS];
    struct pshift_grant_entry grant[BUCKETS];
    uint32_t k, idle = 0;
    check_rng_init(&rng, 1);
    open_all(permille, false);
    CHECK_EQ(pshift_controller_change(&controller, 0, 500, 0), QOS_OK);
    CHECK_EQ(pshift_controller_begin(&controller, 1), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&node[0].agent, 1), QOS_OK);
    CHECK_EQ(pshift_controller_grant(&controller, 0, &m, grant, BUCKETS), QOS_OK); /* sends the epoch early */
    CHECK_EQ(pshift_agent_install(&node[0].agent, &m, grant), QOS_OK);
    for (k = 0; k < 50; k++) {
        CHECK_EQ(pshift_scheduler_arrive(&node[0].scheduler, 0, 10), QOS_OK);
        pshift_agent_measure(&node[0].agent, 1000, (uint64_t)(50 - k - 1) * 1000);
        CHECK_EQ(pshift_agent_report(&node[0].agent, &m, report, BUCKETS), QOS_OK);
        m.capacity = 100000;
        if (k != 0 || grant_lost)
            CHECK_EQ(pshift_controller_report(&controller, &m, report), QOS_OK);
        CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
        CHECK_EQ(pshift_controller_grant(&controller, 0, &m, grant, BUCKETS), QOS_OK);
        if (k != 0 || !grant_lost)
            (void)!pshift_agent_install(&node[0].agent, &m, grant);
        memset(served, 0, sizeof served);
        serve(0);
        idle += served[0] == 0;
    }
    CHECK_CONTEXT("threshold %u, lost: %s", permille, grant_lost ? "grant" : "report");
    CHECK_EQ(idle, 1);
    close_all();
}

int main(void)
{
    uint32_t n;
    check_begin("property/pshift_loss");
    for (n = 0; n < 4; n++)
        one_lost(n % 2 ? 100 : 0, n / 2 != 0);
    for (n = 0; n < 3; n++) {
        share_at(0, 1, n == 1 ? 100 : 0, n == 2);
        share_at(10, 0.999, n == 1 ? 100 : 0, n == 2);
        share_at(50, 0.997, n == 1 ? 100 : 0, n == 2);
        share_at(100, 0.995, n == 1 ? 100 : 0, n == 2);
        share_at(200, 0.96, n == 1 ? 100 : 0, n == 2);
    }
    return check_end();
}
