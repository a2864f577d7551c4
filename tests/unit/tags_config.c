// proves: every field of tags_config, tags_shared_config and tags_client: the value that zero stands for, both ends of the
// range, and one past each end, where the error names the field and the object stays as it was
#include "config_table.h"
#include "tags.h"

CONFIG_CALLS(tags)

#if TAGS_HAS_SHARED
CONFIG_ERROR(tags_shared)
CONFIG_MEMSIZE(tags_shared)
static enum qos_status tags_shared_init_of(void *handle, void *mem, size_t size_bytes, const void *config)
{
    (void)handle; /* shared tags lie in the memory themselves */
    return tags_shared_init((struct tags_shared *)mem, 7, size_bytes, (const struct tags_shared_config *)config);
}
#endif

/* Terms have no init: adding or changing a client takes them, or leaves the client as it was. */
static void terms(void)
{
    static const uint64_t longest = TAGS_WEIGHT_MAX;
    struct tags_config config;
    struct tags tags;
    struct tags_client good, bad;
    struct tags_state before, after;
    uint32_t i;
    memset(&config, 0, sizeof config);
    memset(&good, 0, sizeof good);
    config.clients = 2;
    CHECK(tags_memsize(&config) <= CONFIG_MEM_BYTES);
    CHECK_EQ(tags_init(&tags, config_mem[0], CONFIG_MEM_BYTES, &config), QOS_OK);
    CHECK(tags_client_error(&good) == NULL); /* weight 1, no reservation, no limit */
    CHECK_EQ(tags_add(&tags, 0, 0, &good), QOS_OK);
    good.weight = longest;
    good.reservation_per_s = good.limit_per_s = QOS_RATE_MAX;
    CHECK(tags_client_error(&good) == NULL);
    good.limit_per_s = QOS_UNLIMITED;
    CHECK(tags_client_error(&good) == NULL);
    for (i = 0; i < 5; i++) {
        static const char *const named[] = {"weight", "reservation_per_s", "limit_per_s", "at least reservation_per_s",
                                            "limit_per_s"};
        bad = good;
        switch (i) {
        case 0: bad.weight = longest + 1; break;
        case 1: bad.reservation_per_s = QOS_RATE_MAX + 1; break;
        case 2: bad.limit_per_s = QOS_RATE_MAX + 1; break;
        case 3: bad.limit_per_s = QOS_RATE_MAX - 1; break; /* below its reservation */
        default: bad.limit_per_s = QOS_NOTHING; break;
        }
        CHECK_CONTEXT("terms %u", i);
        CHECK(tags_client_error(&bad) != NULL && strstr(tags_client_error(&bad), named[i]) != NULL);
        CHECK_EQ(tags_info(&tags, 0, &before), QOS_OK);
        CHECK_EQ(tags_change(&tags, 0, 0, &bad), QOS_ERANGE);
        CHECK_EQ(tags_add(&tags, 0, 1, &bad), QOS_ERANGE);
        CHECK_EQ(tags_info(&tags, 0, &after), QOS_OK);
        CHECK(memcmp(&before, &after, sizeof before) == 0);
        CHECK(tags_info(&tags, 1, &after) != QOS_OK); /* no client was added */
    }
    CHECK_CONTEXT("%s", "");
}

int main(void)
{
    static const struct config_field fields[] = {
        {CONFIG_FIELD(tags_config, clients), 0, CONFIG_VALUES(1, TAGS_CLIENTS_MAX),
         CONFIG_VALUES(0, TAGS_CLIENTS_MAX + 1, UINT32_MAX)},
        {CONFIG_FIELD(tags_config, groups), 0, CONFIG_VALUES(0),
         CONFIG_VALUES(1, TAGS_CLIENTS_MAX, UINT32_MAX)}, /* 4 clients: not a multiple of 8 */
        {CONFIG_FIELD(tags_config, at_device_max), 64, CONFIG_VALUES(1, TAGS_AT_DEVICE_MAX),
         CONFIG_VALUES(TAGS_AT_DEVICE_MAX + 1)},
        {CONFIG_FIELD(tags_config, mode), 0, CONFIG_VALUES(TAGS_REWARD, TAGS_PS),
         CONFIG_VALUES(TAGS_PS + 1, UINT32_MAX)},
        {CONFIG_FIELD(tags_config, at_limit), 0, CONFIG_VALUES(TAGS_WAIT, TAGS_REJECT),
         CONFIG_VALUES(TAGS_REJECT + 1, UINT32_MAX)},
        {CONFIG_FIELD(tags_config, channels), 0, CONFIG_VALUES(0),
         CONFIG_VALUES(1, TAGS_AT_DEVICE_MAX + 1)}, /* without attribute */
        {CONFIG_FIELD(tags_config, window), 5, CONFIG_VALUES(1, TAGS_WINDOW_MAX),
         CONFIG_VALUES(TAGS_WINDOW_MAX + 1, UINT32_MAX)},
        {CONFIG_FIELD(tags_config, lead_requests), 16, CONFIG_VALUES(1, 65536), CONFIG_VALUES(65537, UINT32_MAX - 1)},
        {CONFIG_FIELD(tags_config, weight_share_permille), 0, CONFIG_VALUES(0, 999), CONFIG_VALUES(1000, UINT32_MAX)},
        {CONFIG_FIELD(tags_config, moves_max), 0, CONFIG_VALUES(0, UINT32_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(tags_config, cost_max), 1, CONFIG_VALUES(1, QOS_TOKENS_MAX),
         CONFIG_VALUES(QOS_TOKENS_MAX + 1, UINT64_MAX)},
        {CONFIG_FIELD(tags_config, capacity_per_s), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(tags_config, limit_burst_ns), 100000000, CONFIG_VALUES(1, UINT64_C(1) << 62, QOS_NOTHING),
         CONFIG_VALUES((UINT64_C(1) << 62) + 1, UINT64_MAX)},
        {CONFIG_FIELD(tags_config, reserve_lag_ns), 1000000000, CONFIG_VALUES(1, UINT64_C(1) << 62, QOS_NOTHING),
         CONFIG_VALUES((UINT64_C(1) << 62) + 1, UINT64_MAX)},
        {CONFIG_FIELD(tags_config, reject_after_ns), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(tags_config, force_debt_requests), 64, CONFIG_VALUES(1, 65536, QOS_NOTHING),
         CONFIG_VALUES(65537, UINT64_MAX)},
        {CONFIG_FIELD(tags_config, service_ns), 1000000, CONFIG_VALUES(1, QOS_TOKENS_MAX),
         CONFIG_VALUES(QOS_TOKENS_MAX + 1, UINT64_MAX)},
        {CONFIG_FIELD(tags_config, service_floor_ns), 100, CONFIG_VALUES(1, QOS_NS_PER_S, QOS_NOTHING),
         CONFIG_VALUES(QOS_NS_PER_S + 1, UINT64_MAX)},
        {CONFIG_FIELD(tags_config, no_completions), 0, CONFIG_VALUES(0), CONFIG_VALUES(1)}, /* needs TAGS_PS */
    };
    static const struct config_field attributing[] = {
        {CONFIG_FIELD(tags_config, channels), 0, CONFIG_VALUES(0, 1, TAGS_AT_DEVICE_MAX),
         CONFIG_VALUES(TAGS_AT_DEVICE_MAX + 1, UINT32_MAX)},
        {CONFIG_FIELD(tags_config, mode), 0, CONFIG_VALUES(TAGS_REWARD), CONFIG_VALUES(TAGS_PS + 1)},
    };
    static const struct config_field grouped = {CONFIG_FIELD(tags_config, groups), 0, CONFIG_VALUES(0, 1, 100),
                                                CONFIG_VALUES(TAGS_CLIENTS_MAX - 7, UINT32_MAX)};
    struct tags_config good, attribute;
    struct config_table table = CONFIG_TABLE(tags, good, fields);
    check_begin("unit/tags_config");
    memset(&good, 0, sizeof good);
    good.clients = 4;
    config_check_table(&table);
    good.clients = 8;
    table.field = &grouped;
    table.fields = 1;
    config_check_table(&table);
    attribute = good;
    attribute.attribute = true;
    table.good = &attribute;
    table.field = attributing;
    table.fields = (uint32_t)(sizeof attributing / sizeof *attributing);
    config_check_table(&table);
    attribute.mode = TAGS_PS;
    CHECK(tags_config_error(&attribute) != NULL && strstr(tags_config_error(&attribute), "attribute") != NULL);
#if TAGS_HAS_SHARED
    {
        static const struct config_field shared_fields[] = {
            {CONFIG_FIELD(tags_shared_config, clients), 0, CONFIG_VALUES(1, TAGS_CLIENTS_MAX),
             CONFIG_VALUES(0, TAGS_CLIENTS_MAX + 1)},
            {CONFIG_FIELD(tags_shared_config, reserve_lag_ns), 1000000000,
             CONFIG_VALUES(1, UINT64_C(1) << 62, QOS_NOTHING), CONFIG_VALUES((UINT64_C(1) << 62) + 1, UINT64_MAX)},
            {CONFIG_FIELD(tags_shared_config, limit_burst_ns), 100000000,
             CONFIG_VALUES(1, UINT64_C(1) << 62, QOS_NOTHING), CONFIG_VALUES((UINT64_C(1) << 62) + 1, UINT64_MAX)},
        };
        struct tags_shared_config shared;
        const struct config_table shared_table = CONFIG_TABLE(tags_shared, shared, shared_fields);
        memset(&shared, 0, sizeof shared);
        shared.clients = 4;
        config_check_table(&shared_table);
    }
#endif
    terms();
    return check_end();
}
