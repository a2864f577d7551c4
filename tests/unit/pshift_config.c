// proves: every field of every configuration of pshift.h: what zero means, both ends of its range, one past each end with a
// sentence that names the field, and an object that is as it was after the error
#include "config_table.h"
#include "pshift.h"

static struct pshift_scheduler scheduler_of_agent;
static unsigned char scheduler_mem[65536] __attribute__((aligned(64)));

#define ADAPTERS(object)                                                                                               \
    static const char *object##_error(const void *config)                                                              \
    {                                                                                                                  \
        return pshift_##object##_config_error((const struct pshift_##object##_config *)config);                        \
    }                                                                                                                  \
    static size_t object##_memsize(const void *config)                                                                 \
    {                                                                                                                  \
        return pshift_##object##_memsize((const struct pshift_##object##_config *)config);                             \
    }                                                                                                                  \
    static enum qos_status object##_init(void *handle, void *mem, size_t size_bytes, const void *config)               \
    {                                                                                                                  \
        return pshift_##object##_init((struct pshift_##object *)handle, mem, size_bytes,                               \
                                      (const struct pshift_##object##_config *)config);                                \
    }
ADAPTERS(solver)
ADAPTERS(scheduler)
ADAPTERS(agent)
ADAPTERS(controller)

#define TABLE(object, good, fields)                                                                                    \
    {                                                                                                                  \
        "pshift_" #object "_config", &(good), sizeof(good), sizeof(struct pshift_##object), object##_error,            \
            object##_memsize, object##_init, fields, (uint32_t)(sizeof(fields) / sizeof *(fields))                     \
    }

int main(void)
{
    static const struct config_field solver_fields[] = {
        {CONFIG_FIELD(pshift_solver_config, servers), 0, {0, 1, 1000}, {PSHIFT_ENTRIES_MAX + 1}, 3, 1},
        {CONFIG_FIELD(pshift_solver_config, buckets), 0, {0, 1, 1000}, {PSHIFT_ENTRIES_MAX + 1}, 3, 1},
        {CONFIG_FIELD(pshift_solver_config, entries), 0, {0, 1, 1000}, {PSHIFT_ENTRIES_MAX + 1}, 3, 1},
    };
    static const struct config_field scheduler_fields[] = {
        {CONFIG_FIELD(pshift_scheduler_config, queues),
         0,
         {1, PSHIFT_QUEUES_MAX},
         {0, PSHIFT_QUEUES_MAX + 1, UINT32_MAX},
         2,
         3},
        {CONFIG_FIELD(pshift_scheduler_config, debt_max_ops),
         1024,
         {1, QOS_TOKENS_MAX},
         {QOS_TOKENS_MAX + 1, UINT64_MAX},
         2,
         2},
    };
    static const struct config_field agent_fields[] = {
        {CONFIG_FIELD(pshift_agent_config, server), 0, {0, UINT32_MAX}, {0}, 2, 0},
        {CONFIG_FIELD(pshift_agent_config, epoch), 0, {1, UINT64_MAX}, {0}, 2, 1},
        {CONFIG_FIELD(pshift_agent_config, controller_epoch), 0, {0, UINT64_MAX}, {0}, 2, 0},
        {CONFIG_FIELD(pshift_agent_config, period), 0, {0, UINT64_MAX}, {0}, 2, 0},
        {CONFIG_FIELD(pshift_agent_config, default_l_tokens), 0, {0, UINT64_MAX}, {0}, 2, 0},
        {CONFIG_FIELD(pshift_agent_config, unchanged_permille), 0, {0, 1000}, {1001, UINT32_MAX}, 2, 2},
    };
    static const struct config_field controller_fields[] = {
        {CONFIG_FIELD(pshift_controller_config, servers),
         0,
         {1, PSHIFT_QUEUES_MAX},
         {0, PSHIFT_QUEUES_MAX + 1, UINT32_MAX},
         2,
         3},
        {CONFIG_FIELD(pshift_controller_config, buckets), 0, {1, 1000}, {0, PSHIFT_RECORDS_MAX + 1}, 2, 2},
        {CONFIG_FIELD(pshift_controller_config, records), 0, {1, 1000}, {0, PSHIFT_RECORDS_MAX + 1}, 2, 2},
        {CONFIG_FIELD(pshift_controller_config, epoch), 0, {1, UINT64_MAX}, {0}, 2, 1},
        {CONFIG_FIELD(pshift_controller_config, silent_after), 2, {1, UINT32_MAX}, {0}, 2, 0},
    };
    struct pshift_solver_config solver;
    struct pshift_scheduler_config scheduler;
    struct pshift_agent_config agent;
    struct pshift_controller_config controller;
    const struct config_table tables[] = {
        TABLE(solver, solver, solver_fields),
        TABLE(scheduler, scheduler, scheduler_fields),
        TABLE(agent, agent, agent_fields),
        TABLE(controller, controller, controller_fields),
    };
    uint32_t i;
    check_begin("unit/pshift_config");
    memset(&solver, 0, sizeof solver);
    memset(&scheduler, 0, sizeof scheduler);
    memset(&agent, 0, sizeof agent);
    memset(&controller, 0, sizeof controller);
    solver.servers = solver.buckets = 4;
    solver.entries = 16;
    scheduler.queues = 4;
    CHECK(pshift_scheduler_memsize(&scheduler) <= sizeof scheduler_mem);
    CHECK_EQ(pshift_scheduler_init(&scheduler_of_agent, scheduler_mem, sizeof scheduler_mem, &scheduler), QOS_OK);
    agent.scheduler = &scheduler_of_agent;
    agent.epoch = 1;
    controller.servers = controller.buckets = controller.records = 4;
    controller.epoch = 1;
    for (i = 0; i < sizeof tables / sizeof *tables; i++) {
        CHECK(tables[i].error(NULL) != NULL);
        CHECK_EQ(tables[i].memsize(NULL), 0);
        config_check_table(&tables[i]);
    }
    agent.scheduler = NULL;
    CHECK(strstr(pshift_agent_config_error(&agent), "scheduler") != NULL);
    return check_end();
}
