/* pshift_rig.h - a controller, and servers with a scheduler and an agent each, for tests of the runtime of pshift.h. */
#ifndef QOS_TESTS_PSHIFT_RIG_H
#define QOS_TESTS_PSHIFT_RIG_H

#include "pshift.h"
#include "check.h"

static struct node {
    struct check_mem scheduler_mem, agent_mem;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
} node[24]; /* servers at most */
static struct check_mem controller_mem;
static struct pshift_controller controller;

static void rig_controller(uint32_t servers, uint32_t buckets, uint32_t records, uint64_t period_ns)
{
    const struct pshift_controller_config config = {servers, buckets, records, {0, 1}, period_ns, 0};
    (void)check_mem_new(&controller_mem, pshift_controller_memsize(&config), 64, 0);
    CHECK_EQ(pshift_controller_init(&controller, controller_mem.mem, controller_mem.size, &config), QOS_OK);
}

static void rig_server(uint32_t j, uint32_t queues, uint64_t period_ns, uint32_t unchanged_permille)
{
    const struct pshift_scheduler_config sc = {queues, 0};
    const struct pshift_agent_config ac = {&node[j].scheduler, j, {0, 1}, period_ns, 0, unchanged_permille};
    (void)check_mem_new(&node[j].scheduler_mem, pshift_scheduler_memsize(&sc), 64, 0);
    CHECK_EQ(pshift_scheduler_init(&node[j].scheduler, node[j].scheduler_mem.mem, node[j].scheduler_mem.size, &sc),
             QOS_OK);
    (void)check_mem_new(&node[j].agent_mem, pshift_agent_memsize(&ac), 64, 0);
    CHECK_EQ(pshift_agent_init(&node[j].agent, node[j].agent_mem.mem, node[j].agent_mem.size, &ac), QOS_OK);
}

static void rig_close(uint32_t servers)
{
    uint32_t j;
    CHECK(check_mem_free(&controller_mem));
    for (j = 0; j < servers; j++) {
        CHECK(check_mem_free(&node[j].scheduler_mem));
        CHECK(check_mem_free(&node[j].agent_mem));
    }
}

#endif
