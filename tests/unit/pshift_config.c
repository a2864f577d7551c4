// proves: every field of every configuration of pshift.h: the value that zero stands for, both ends of the range, and
// proves: one past each end, where the error names the field and the object stays as it was
#include "config_table.h"
#include "pshift.h"

static struct pshift_scheduler scheduler_of_agent;
static unsigned char scheduler_mem[65536] __attribute__((aligned(64)));

CONFIG_CALLS(pshift_solver)
CONFIG_CALLS(pshift_scheduler)
CONFIG_CALLS(pshift_agent)
CONFIG_CALLS(pshift_controller)

int main(void)
{
    static const struct config_field solver_fields[] = {
        {CONFIG_FIELD(pshift_solver_config, servers), 0, CONFIG_VALUES(0, 1, 1000),
         CONFIG_VALUES(PSHIFT_ENTRIES_MAX + 1)},
        {CONFIG_FIELD(pshift_solver_config, buckets), 0, CONFIG_VALUES(0, 1, 1000),
         CONFIG_VALUES(PSHIFT_ENTRIES_MAX + 1)},
        {CONFIG_FIELD(pshift_solver_config, entries), 0, CONFIG_VALUES(0, 1, 1000),
         CONFIG_VALUES(PSHIFT_ENTRIES_MAX + 1)},
    };
    static const struct config_field scheduler_fields[] = {
        {CONFIG_FIELD(pshift_scheduler_config, queues), 0, CONFIG_VALUES(1, PSHIFT_QUEUES_MAX),
         CONFIG_VALUES(0, PSHIFT_QUEUES_MAX + 1, UINT32_MAX)},
        {CONFIG_FIELD(pshift_scheduler_config, debt_max_ops), 1024, CONFIG_VALUES(1, QOS_TOKENS_MAX),
         CONFIG_VALUES(QOS_TOKENS_MAX + 1, UINT64_MAX)},
    };
    static const struct config_field agent_fields[] = {
        {CONFIG_FIELD(pshift_agent_config, server), 0, CONFIG_VALUES(0, UINT32_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(pshift_agent_config, boot), 0, CONFIG_VALUES(1, 255), CONFIG_VALUES(0)}, /* its first byte */
        {CONFIG_FIELD(pshift_agent_config, period_ns), QOS_NS_PER_S, CONFIG_VALUES(1, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(pshift_agent_config, default_l_tokens), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(pshift_agent_config, unchanged_permille), 0, CONFIG_VALUES(0, 1000),
         CONFIG_VALUES(1001, UINT32_MAX)},
    };
    static const struct config_field controller_fields[] = {
        {CONFIG_FIELD(pshift_controller_config, servers), 0, CONFIG_VALUES(1, PSHIFT_QUEUES_MAX),
         CONFIG_VALUES(0, PSHIFT_QUEUES_MAX + 1, UINT32_MAX)},
        {CONFIG_FIELD(pshift_controller_config, buckets), 0, CONFIG_VALUES(1, 1000),
         CONFIG_VALUES(0, PSHIFT_RECORDS_MAX + 1)},
        {CONFIG_FIELD(pshift_controller_config, records), 0, CONFIG_VALUES(1, 1000),
         CONFIG_VALUES(0, PSHIFT_RECORDS_MAX + 1)},
        {CONFIG_FIELD(pshift_controller_config, nonce), 0, CONFIG_VALUES(1, 255), CONFIG_VALUES(0)},
        {CONFIG_FIELD(pshift_controller_config, period_ns), QOS_NS_PER_S, CONFIG_VALUES(1, UINT64_MAX),
         CONFIG_NO_VALUES},
        {CONFIG_FIELD(pshift_controller_config, silent_after), 2, CONFIG_VALUES(1, UINT32_MAX), CONFIG_NO_VALUES},
    };
    static const struct config_field owner_fields[] = {
        /* it has no memory */
        {CONFIG_FIELD(pshift_owner_config, nonce), 0, CONFIG_VALUES(1, 255), CONFIG_VALUES(0)},
        {CONFIG_FIELD(pshift_owner_config, period_ns), QOS_NS_PER_S, CONFIG_VALUES(1, PSHIFT_COUNT_MAX / 1024),
         CONFIG_VALUES(PSHIFT_COUNT_MAX / 1024 + 1, UINT64_MAX)},
        {CONFIG_FIELD(pshift_owner_config, periods), 1, CONFIG_VALUES(1, 64), CONFIG_VALUES(65, UINT32_MAX)},
    };
    struct pshift_solver_config solver;
    struct pshift_scheduler_config scheduler;
    struct pshift_agent_config agent;
    struct pshift_controller_config controller;
    const struct config_table tables[] = {
        CONFIG_TABLE(pshift_solver, solver, solver_fields),
        CONFIG_TABLE(pshift_scheduler, scheduler, scheduler_fields),
        CONFIG_TABLE(pshift_agent, agent, agent_fields),
        CONFIG_TABLE(pshift_controller, controller, controller_fields),
    };
    struct pshift_owner_config owner;
    struct pshift_owner made;
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
    memset(&agent.boot, 1, 1);
    controller.servers = controller.buckets = controller.records = 4;
    controller.nonce = agent.boot;
    for (i = 0; i < sizeof tables / sizeof *tables; i++)
        config_check_table(&tables[i]);
    for (i = 0; i < 3; i++) {
        const struct config_field *field = &owner_fields[i];
        uint32_t k;
        memset(&owner, 0, sizeof owner);
        owner.nonce = agent.boot;
        for (k = 0; k < field->good.count; k++) {
            config_set((unsigned char *)&owner, field, field->good.value[k]);
            CHECK_EQ(pshift_owner_init(&made, &owner), QOS_OK);
        }
        for (k = 0; k < field->bad.count; k++) {
            config_set((unsigned char *)&owner, field, field->bad.value[k]);
            CHECK_EQ(pshift_owner_init(&made, &owner), QOS_ERANGE);
            CHECK(strncmp(pshift_owner_config_error(&owner), field->name, strlen(field->name)) == 0);
        }
    }
    solver.servers = solver.buckets = solver.entries = PSHIFT_ENTRIES_MAX; /* more than 32-bit addresses */
    controller.buckets = controller.records = PSHIFT_RECORDS_MAX;
    CHECK(!pshift_solver_config_error(&solver) && !pshift_controller_config_error(&controller));
    memset(&owner, 0, sizeof owner);
    owner.nonce = agent.boot;
    CHECK_EQ(pshift_owner_init(&made, &owner), QOS_OK);
    CHECK(made.config.period_ns == QOS_NS_PER_S && made.config.periods == 1);
    agent.scheduler = NULL;
    CHECK(strncmp(pshift_agent_config_error(&agent), "scheduler", 9) == 0);
    return check_end();
}
