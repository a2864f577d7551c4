// proves: every field of every configuration of twochoice.h: the value that zero stands for, both ends of the range, and one
// past each end, where the error names the field and the object stays as it was
#include "config_table.h"
#include "twochoice.h"

CONFIG_CALLS(twochoice_table)
CONFIG_CALLS(twochoice_maintainer)
CONFIG_CALLS(twochoice_placement)
CONFIG_CALLS(twochoice_detector)

/* A detector of zeros uses the documented defaults. */
static void zeros(void)
{
    static unsigned char mem[1 << 18] __attribute__((aligned(64)));
    static struct twochoice_detector detector;
    struct twochoice_detector_config config;
    struct twochoice_detector_state counts;
    uint32_t rivals = 1;
    memset(&config, 0, sizeof config);
    CHECK_EQ(twochoice_detector_init(&detector, mem, sizeof mem, &config), QOS_OK);
    twochoice_detector_begin(&detector, 100);
    CHECK_EQ(twochoice_detector_load(&detector, 0), 65536 + 100); /* op_cost_bytes */
    CHECK_EQ(twochoice_detector_probed(&detector, 0, 1, 1, 100, &rivals), 65636);
    CHECK_EQ(rivals, 0);
    CHECK_EQ(twochoice_detector_next_ns(&detector, 0), 200000000); /* timeout_ns */
    CHECK_EQ(twochoice_detector_info(&detector, &counts), QOS_OK);
    CHECK(counts.ops == 1 && counts.bytes == 100 && counts.expected == 50 && counts.undecided == 1);
}

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
        {CONFIG_FIELD(twochoice_placement_config, max_writes), 128, CONFIG_VALUES(0, 1, 16384),
         CONFIG_VALUES(16385, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_placement_config, policy), 0, CONFIG_VALUES(0, 3), CONFIG_VALUES(4, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_placement_config, tries), TWOCHOICE_TRIES, CONFIG_VALUES(0, 1, TWOCHOICE_NO_TRIES),
         CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_placement_config, min_write_bytes), TWOCHOICE_MIN_WRITE_BYTES,
         CONFIG_VALUES(0, 1, QOS_NOTHING), CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_placement_config, seed), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
    };
    static const struct config_field detector_fields[] = {
        {CONFIG_FIELD(twochoice_detector_config, op_cost_bytes), 65536,
         CONFIG_VALUES(0, 1, UINT64_C(1) << 40, QOS_NOTHING), CONFIG_VALUES((UINT64_C(1) << 40) + 1, UINT64_MAX)},
        {CONFIG_FIELD(twochoice_detector_config, timeout_ns), 200000000, CONFIG_VALUES(0, 1, UINT64_MAX),
         CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_detector_config, lifetime_ns), 200000000, CONFIG_VALUES(0, 1, UINT64_MAX),
         CONFIG_NO_VALUES},
        {CONFIG_FIELD(twochoice_detector_config, max_probes), 1024, CONFIG_VALUES(0, 1, 1 << 20),
         CONFIG_VALUES((1 << 20) + 1, UINT32_MAX)},
        {CONFIG_FIELD(twochoice_detector_config, max_peers), 256, CONFIG_VALUES(0, 1, 1 << 20),
         CONFIG_VALUES((1 << 20) + 1, UINT32_MAX)},
    };
    static struct twochoice_table_config table;
    static struct twochoice_maintainer_config maintainer;
    static struct twochoice_placement_config placement;
    static struct twochoice_detector_config detector;
    const struct config_table tables[] = {
        CONFIG_TABLE(twochoice_table, table, table_fields),
        CONFIG_TABLE(twochoice_maintainer, maintainer, maintainer_fields),
        CONFIG_TABLE(twochoice_placement, placement, placement_fields),
        CONFIG_TABLE(twochoice_detector, detector, detector_fields),
    };
    uint32_t i;
    check_begin("unit/twochoice_config");
    table.max_fragments = 10;
    maintainer.servers = placement.servers = 10;
    for (i = 0; i < sizeof tables / sizeof *tables; i++)
        config_check_table(&tables[i]);
    zeros();
    return check_end();
}
