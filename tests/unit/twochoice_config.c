// proves: every field of every configuration of twochoice.h: the value that zero stands for, both ends of the range, and one
// past each end, where the error names the field and the object stays as it was
#include "config_table.h"
#include "twochoice.h"

CONFIG_CALLS(twochoice_table)
CONFIG_CALLS(twochoice_maintainer)
CONFIG_CALLS(twochoice_placement)
CONFIG_CALLS(twochoice_intake)

int main(void)
{
    static const struct config_field table_fields[] = {
        {CONFIG_FIELD(twochoice_table_config, max_fragments), TWOCHOICE_MAX_FRAGMENTS, CONFIG_VALUES(0, 1, 100000),
         CONFIG_VALUES((1u << 30) + 1, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_table_config, max_writes), TWOCHOICE_MAX_WRITES, CONFIG_VALUES(0, 1, 65536),
         CONFIG_VALUES(65537, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_table_config, max_pulls), TWOCHOICE_MAX_PULLS, CONFIG_VALUES(0, 1, 65536),
         CONFIG_VALUES(65537, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_table_config, mark_commits), TWOCHOICE_MARK_COMMITS, CONFIG_VALUES(0, 1, UINT32_MAX),
         CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_table_config, home), 0, CONFIG_VALUES(0, 65534), CONFIG_VALUES(65535, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_table_config, max_log_bytes), QOS_UNLIMITED, CONFIG_VALUES(0, 96 * 12, QOS_UNLIMITED),
         CONFIG_VALUES(96 * 12 - 1, 1)},
    };
    static const struct config_field maintainer_fields[] = {
        {CONFIG_FIELD(twochoice_maintainer_config, servers), 0, CONFIG_VALUES(1, 65535), CONFIG_VALUES(0, 65536)},
        {CONFIG_FIELD(twochoice_maintainer_config, rate_bytes_per_s), 64 << 20,
         CONFIG_VALUES(0, 1, QOS_RATE_MAX, QOS_UNLIMITED), CONFIG_VALUES(QOS_RATE_MAX + 1, QOS_NOTHING)},
        {CONFIG_FIELD(twochoice_maintainer_config, piece_bytes), 1 << 20, CONFIG_VALUES(0, 1, QOS_TOKENS_MAX),
         CONFIG_VALUES(QOS_TOKENS_MAX + 1)},
        {CONFIG_FIELD(twochoice_maintainer_config, idle_load), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_maintainer_config, idle_ns), 100000000, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
    };
    static const struct config_field placement_fields[] = {
        {CONFIG_FIELD(twochoice_placement_config, servers), 0, CONFIG_VALUES(1, 65535), CONFIG_VALUES(0, 65536)},
        {CONFIG_FIELD(twochoice_placement_config, max_writes), 128, CONFIG_VALUES(0, 1, 1024),
         CONFIG_VALUES(1025, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_placement_config, max_requests), 4, CONFIG_VALUES(0, 1, 256),
         CONFIG_VALUES(257, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_placement_config, min_write_bytes), TWOCHOICE_MIN_WRITE_BYTES,
         CONFIG_VALUES(0, 1, QOS_NOTHING), CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_placement_config, timeout_ns), 200000000, CONFIG_VALUES(0, 1, UINT64_C(1) << 42),
         CONFIG_VALUES((UINT64_C(1) << 42) + 1, UINT64_MAX)},
        {CONFIG_FIELD(twochoice_placement_config, client), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_placement_config, seed), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
    };
    static const struct config_field intake_fields[] = {
        {CONFIG_FIELD(twochoice_intake_config, server), 0, CONFIG_VALUES(0, UINT32_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_intake_config, max_reservations), 4096, CONFIG_VALUES(0, 1, 65536),
         CONFIG_VALUES(65537, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_intake_config, max_per_client), 64, CONFIG_VALUES(0, 1, UINT32_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_intake_config, parallel), 1, CONFIG_VALUES(0, 1, 65536),
         CONFIG_VALUES(65537, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_intake_config, op_cost_bytes), 65536,
         CONFIG_VALUES(0, 1, UINT64_C(1) << 36, QOS_NOTHING), CONFIG_VALUES((UINT64_C(1) << 36) + 1, UINT64_MAX)},
        {CONFIG_FIELD(twochoice_intake_config, timeout_ns), 50000000, CONFIG_VALUES(0, 1, UINT64_C(1) << 42),
         CONFIG_VALUES((UINT64_C(1) << 42) + 1, UINT64_MAX)},
    };
    static struct twochoice_table_config table;
    static struct twochoice_maintainer_config maintainer;
    static struct twochoice_placement_config placement;
    static struct twochoice_intake_config intake;
    const struct config_table tables[] = {
        CONFIG_TABLE(twochoice_table, table, table_fields),
        CONFIG_TABLE(twochoice_maintainer, maintainer, maintainer_fields),
        CONFIG_TABLE(twochoice_placement, placement, placement_fields),
        CONFIG_TABLE(twochoice_intake, intake, intake_fields),
    };
    uint32_t i;
    check_begin("unit/twochoice_config");
    table.max_fragments = 10;
    maintainer.servers = placement.servers = 10;
    for (i = 0; i < sizeof tables / sizeof *tables; i++)
        config_check_table(&tables[i]);
    return check_end();
}
