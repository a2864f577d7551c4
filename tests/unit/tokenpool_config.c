// proves: every field of the configuration: the value that zero stands for, both ends of the range, and one past each
// end, where the error names the field; init, resume and attach refuse bad values and leave the object unchanged. A monitor
// stays in its memory (red zones, one byte short, misaligned); each check bit of the period word depends on the epoch
#include "config_table.h"
#include "unit/tokenpool_rig.h"

/* The first half is the memory of the monitor, the second half the storage, so that both are compared. */
#define HALF (CONFIG_MEM_BYTES / 2)

CONFIG_ERROR(tokenpool)

static size_t tokenpool_memsize_of(const void *any)
{
    const struct tokenpool_config *c = (const struct tokenpool_config *)any;
    size_t monitor_bytes = tokenpool_monitor_memsize(c), storage_bytes = tokenpool_storage_memsize(c);
    CHECK((monitor_bytes == 0) == (storage_bytes == 0));
    return monitor_bytes == 0 ? 0 : monitor_bytes <= HALF && storage_bytes <= HALF ? CONFIG_MEM_BYTES : SIZE_MAX;
}

static enum qos_status tokenpool_init_of(void *handle, void *mem, size_t size_bytes, const void *any)
{
    const struct tokenpool_config *c = (const struct tokenpool_config *)any;
    struct tokenpool_monitor *m = (struct tokenpool_monitor *)handle;
    unsigned char *half = (unsigned char *)mem + HALF;
    (void)size_bytes;
    if (tokenpool_config_error(c))
        CHECK(tokenpool_monitor_resume(m, mem, HALF, half, HALF, c) != QOS_OK);
    return tokenpool_monitor_init(m, mem, HALF, half, HALF, c);
}

/* The most tokens that a period may issue. */
static uint64_t bound_with(uint64_t overrun)
{
    rig_config(2, 0, 1000, 0);
    config.overrun = overrun;
    rig_init();
    rig_run(&monitor, 0);
    return rig_info().bound;
}

static void test_fields(void)
{
    static const struct config_field fields[] = {
        {CONFIG_FIELD(tokenpool_config, clients), 0, CONFIG_VALUES(1, TOKENPOOL_CLIENTS_MAX),
         CONFIG_VALUES(0, TOKENPOOL_CLIENTS_MAX + 1)},
        {CONFIG_FIELD(tokenpool_config, batch), 72, CONFIG_VALUES(1, TOKENPOOL_BATCH_MAX),
         CONFIG_VALUES(TOKENPOOL_BATCH_MAX + 1, UINT32_MAX)},
        {CONFIG_FIELD(tokenpool_config, flags), 0, CONFIG_VALUES(0, 15), CONFIG_VALUES(16, UINT32_MAX)},
        {CONFIG_FIELD(tokenpool_config, history), 5, CONFIG_VALUES(1, TOKENPOOL_HISTORY_MAX),
         CONFIG_VALUES(TOKENPOOL_HISTORY_MAX + 1)},
        {CONFIG_FIELD(tokenpool_config, alert_periods), 10, CONFIG_VALUES(1, UINT32_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(tokenpool_config, silent_periods), 1, CONFIG_VALUES(1, UINT32_MAX, QOS_UNLIMITED),
         CONFIG_VALUES(UINT64_C(1) << 32, QOS_NOTHING)},
        {CONFIG_FIELD(tokenpool_config, period_ns), QOS_NS_PER_S, CONFIG_VALUES(8, TOKENPOOL_PERIOD_NS_MAX),
         CONFIG_VALUES(7, TOKENPOOL_PERIOD_NS_MAX + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, check_ns), MS, CONFIG_VALUES(1, QOS_NS_PER_S),
         CONFIG_VALUES(QOS_NS_PER_S + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, poll_ns), MS / 8, CONFIG_VALUES(1, MS), CONFIG_VALUES(MS + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, lease_ns), 16 * MS, CONFIG_VALUES(MS, TOKENPOOL_PERIOD_NS_MAX),
         CONFIG_VALUES(MS - 1, TOKENPOOL_PERIOD_NS_MAX + 1)},
        {CONFIG_FIELD(tokenpool_config, capacity), 0, CONFIG_VALUES(1, TOKENPOOL_TOKENS_MAX),
         CONFIG_VALUES(0, TOKENPOOL_TOKENS_MAX + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, capacity_step), 50, CONFIG_VALUES(1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING),
         CONFIG_VALUES(TOKENPOOL_TOKENS_MAX + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, client_capacity), 1000, CONFIG_VALUES(1, 1000),
         CONFIG_VALUES(1001, QOS_NOTHING, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, overrun), 0, CONFIG_VALUES(1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING),
         CONFIG_VALUES(TOKENPOOL_TOKENS_MAX + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, equal_within), 20, CONFIG_VALUES(1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING),
         CONFIG_VALUES(TOKENPOOL_TOKENS_MAX + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(tokenpool_config, debt_max), 72, CONFIG_VALUES(1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING),
         CONFIG_VALUES(TOKENPOOL_TOKENS_MAX + 1, QOS_UNLIMITED)},
    };
    struct tokenpool_config good;
    const struct config_table table = CONFIG_TABLE_OF(tokenpool, struct tokenpool_monitor, good, fields);
    memset(&good, 0, sizeof good);
    good.clients = 2;
    good.capacity = 1000;
    config_check_table(&table);
    CHECK_EQ(bound_with(0), bound_with(50)); /* the default: 5 % of the estimate */
    CHECK(bound_with(0) != bound_with(51));
    CHECK(tokenpool_config_error(NULL) != NULL);
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, NULL), QOS_EINVAL);
    good.clients = TOKENPOOL_CLIENTS_MAX; /* clients x batch has a bound of its own */
    good.batch = 1024;
    CHECK(tokenpool_config_error(&good) == NULL);
    good.batch = 1025;
    CHECK(tokenpool_config_error(&good) != NULL && strstr(tokenpool_config_error(&good), "batch") != NULL);
}

/* Attach: every error of the memory. */
static void test_attach(void)
{
    struct tokenpool_client c, saved;
    struct tokenpool_slot_state slot;
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8];
    size_t bytes, i;
    rig_config(3, 10, 100, 0);
    rig_init();
    rig_join(0, 10, 0);
    bytes = tokenpool_storage_memsize(&config);
    memset(&c, 0x5a, sizeof c);
    saved = c;
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, NULL, bytes), QOS_EINVAL);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, bytes - 1), QOS_EMEMORY);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, 8), QOS_EMEMORY);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage + 1, bytes), QOS_EALIGN);
    CHECK_EQ(tokenpool_client_attach(&c, 3, 0, storage, bytes), QOS_ENOENT);
    slot = rig_slot(0);
    CHECK_EQ(tokenpool_client_attach(&c, 0, slot.generation + 1, storage, bytes), QOS_ESTALE);
    memcpy(head, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof head);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, NULL, bytes), QOS_EINVAL);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, head, bytes - 1), QOS_EMEMORY);
    for (i = 0; i < TOKENPOOL_HEAD_BYTES; i++) { /* any byte of the head */
        unsigned char *b = (unsigned char *)head + i;
        if (i == TOKENPOOL_HEAD_BYTES - 4)
            break; /* word 7 holds 32 bits: in any byte order one half is zero */
        *b ^= 0x10;
        CHECK(tokenpool_client_attach_remote(&c, 0, 0, head, bytes) != QOS_OK);
        *b ^= 0x10;
    }
    head[0] ^= 1 << 16; /* a good checksum over another version, and over a batch of zero */
    head[7] = qos_crc32c(0, head, 56);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, head, bytes), QOS_EVERSION);
    head[0] ^= 1 << 16;
    head[1] = UINT64_C(3) << 32;
    head[7] = qos_crc32c(0, head, 56);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, head, bytes), QOS_ECORRUPT);
    memcpy(head, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof head);
    CHECK(memcmp(&c, &saved, sizeof c) == 0);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, head, bytes), QOS_OK);
    CHECK_EQ(tokenpool_client_attach(&c, 0, slot.generation, storage, bytes), QOS_OK);
    storage[TOKENPOOL_OFFSET_HEAD / 8] = 0;
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, bytes), QOS_ECORRUPT);
    rig_run(&monitor, 0); /* the monitor rewrites its head at each period start */
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, bytes), QOS_OK);
}

static void test_memory(void)
{
    struct check_mem a, b;
    struct tokenpool_monitor m;
    size_t need, room;
    unsigned clients;
    for (clients = 1; clients < 70; clients += 23) {
        struct tokenpool_monitor saved;
        rig_config(clients, 10, 100, 0);
        need = tokenpool_monitor_memsize(&config);
        room = tokenpool_storage_memsize(&config);
        CHECK(need >= clients * 49u && room >= clients * 32u);
        CHECK(need <= clients * 49u + 12 * 64 && room <= clients * 32u + 256 + 4 * 64);
        memset(&m, 0x5a, sizeof m);
        saved = m;
        check_mem_new(&a, need, 64, 0);
        check_mem_new(&b, room, 64, 0);
        memset(b.mem, 0, room);
        CHECK_EQ(tokenpool_monitor_init(&m, NULL, need, b.mem, room, &config), QOS_EINVAL);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, NULL, room, &config), QOS_EINVAL);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need - 1, b.mem, room, &config), QOS_EMEMORY);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, b.mem, room - 1, &config), QOS_EMEMORY);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem + 8, need, b.mem, room, &config), QOS_EALIGN);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, b.mem + 8, room, &config), QOS_EALIGN);
        CHECK_EQ(tokenpool_monitor_resume(&m, a.mem, need, b.mem, room, &config), QOS_ECORRUPT);
        CHECK(memcmp(&m, &saved, sizeof m) == 0);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, b.mem, room, &config), QOS_OK);
        CHECK_EQ(tokenpool_monitor_join(&m, clients - 1, 100, 0, NULL), QOS_OK);
        rig_run(&m, 5);
        rig_run(&m, 5 + MS);
        rig_run(&m, 5 + S);
        CHECK_EQ(tokenpool_monitor_resume(&m, a.mem, need, b.mem, room, &config), QOS_OK);
        rig_run(&m, 5 + 3 * S);
        config.batch = 11;
        CHECK_EQ(tokenpool_monitor_resume(&m, a.mem, need, b.mem, room, &config), QOS_ECORRUPT);
        CHECK(check_mem_free(&a));
        CHECK(check_mem_free(&b));
    }
}

/* Each of the 19 check bits of the period word depends on the epoch. */
static void test_check_bits(void)
{
    uint64_t k, some = 0, all = UINT64_MAX;
    rig_config(2, 10, 100, 0);
    rig_init();
    for (k = 0; k < 64; k++) {
        rig_run(&monitor, k * S);
        some |= storage[TOKENPOOL_OFFSET_PERIOD / 8];
        all &= storage[TOKENPOOL_OFFSET_PERIOD / 8];
    }
    CHECK_EQ(some >> 9 & 0x7ffff, 0x7ffff);
    CHECK_EQ(all >> 9 & 0x7ffff, 0);
}

int main(void)
{
    check_begin("unit/tokenpool_config");
    test_fields();
    test_attach();
    test_memory();
    test_check_bits();
    return check_end();
}
