/* tokenpool_rig.h - a storage, its monitor and simulated time, for the unit tests of tokenpool.h. */
#ifndef QOS_TESTS_TOKENPOOL_RIG_H
#define QOS_TESTS_TOKENPOOL_RIG_H

#include "tokenpool.h"
#include "check.h"

#define S QOS_NS_PER_S
#define MS UINT64_C(1000000)

static uint64_t storage[384] __attribute__((aligned(64)));
static uint64_t memory[512] __attribute__((aligned(64)));
static struct tokenpool_monitor monitor;
static struct tokenpool_config config;

static CHECK_UNUSED void rig_config(uint32_t clients, uint32_t batch, uint64_t capacity, uint32_t flags)
{
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.batch = batch;
    config.capacity = capacity;
    config.flags = flags | TOKENPOOL_FIXED;
    config.overrun = QOS_NOTHING;
    config.silent_periods = QOS_UNLIMITED;
}

static CHECK_UNUSED void rig_init(void)
{
    memset(storage, 0, sizeof storage);
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
}

static CHECK_UNUSED void rig_join(uint32_t id, uint64_t reservation, uint64_t limit)
{
    CHECK_EQ(tokenpool_monitor_join(&monitor, id, reservation, limit, NULL), QOS_OK);
}

/* An engine that reads the storage before the first period, so that it knows the start of that period. */
static CHECK_UNUSED void rig_engine(struct tokenpool_client *c, uint32_t id)
{
    CHECK_EQ(tokenpool_client_attach(c, id, 0, storage, sizeof storage), QOS_OK);
    tokenpool_client_run(c, 0, 0);
}

/* Runs the monitor again if it is due at once: this confirms a period that has just begun. */
static CHECK_UNUSED void rig_run(struct tokenpool_monitor *m, uint64_t now_ns)
{
    tokenpool_monitor_run(m, now_ns);
    if (tokenpool_monitor_next_ns(m, now_ns) <= now_ns)
        tokenpool_monitor_run(m, now_ns);
}

static CHECK_UNUSED struct tokenpool_monitor_state rig_info(void)
{
    struct tokenpool_monitor_state info;
    CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
    return info;
}

static CHECK_UNUSED struct tokenpool_client_state rig_client(const struct tokenpool_client *c)
{
    struct tokenpool_client_state info;
    CHECK_EQ(tokenpool_client_info(c, &info), QOS_OK);
    return info;
}

static CHECK_UNUSED struct tokenpool_slot_state rig_slot(uint32_t id)
{
    struct tokenpool_slot_state slot = {0, 0, 0, 0, 0, false, false, false};
    CHECK_EQ(tokenpool_monitor_slot_info(&monitor, id, &slot), QOS_OK);
    return slot;
}

/* An engine reads the period word, as after a message, and performs due operations. */
static CHECK_UNUSED void rig_tick(struct tokenpool_client *c, uint64_t now_ns)
{
    tokenpool_client_hint(c);
    tokenpool_client_run(c, now_ns, 0);
}

static CHECK_UNUSED int64_t rig_pool(void)
{
    return tokenpool_word_count(storage[TOKENPOOL_OFFSET_POOL / 8]);
}

/* Writes a report of a client at work in its documented bytes. phase: 0 early, 1 last quarter, 2 final. */
static CHECK_UNUSED void rig_report(uint32_t id, uint64_t epoch, uint64_t phase, uint64_t k, uint64_t n)
{
    storage[tokenpool_storage_report(config.clients, id) / 8] =
        (epoch % 31 + 1) << 59 | phase << 54 | UINT64_C(1) << 52 | k << 26 | n;
}

#endif
