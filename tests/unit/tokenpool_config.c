// proves: every field of the configuration: the default that zero means, both ends of its range, one past each end with the
// sentence that names the field; init, resume and attach refuse what is wrong and leave the object as it was
#include "unit/tokenpool_rig.h"

/* A configuration that is right, with one field set. */
static struct tokenpool_config with(unsigned field, uint64_t v)
{
    struct tokenpool_config c;
    memset(&c, 0, sizeof c);
    c.clients = 2;
    c.capacity = 1000;
    switch (field) {
    case 0: c.clients = (uint32_t)v, c.batch = 1; break;
    case 1: c.batch = (uint32_t)v; break;
    case 2: c.flags = (uint32_t)v; break;
    case 3: c.history = (uint32_t)v; break;
    case 4: c.alert_periods = (uint32_t)v; break;
    case 5: c.silent_periods = v; break;
    case 6: c.period_ns = v; break;
    case 7: c.check_ns = v; break;
    case 8: c.poll_ns = v; break;
    case 9: c.lease_ns = v; break;
    case 10: c.capacity = v; break;
    case 11: c.capacity_min = v; break;
    case 12: c.capacity_step = v; break;
    case 13: c.client_capacity = v; break;
    case 14: c.overrun = v; break;
    case 15: c.equal_within = v; break;
    default: c.debt_max = v;
    }
    return c;
}

static const struct {
    const char *name;
    uint64_t low, high, special; /* special: a named value beyond the range, or 0 */
    bool zero;                   /* 0 is the default */
} fields[] = {
    {"clients", 1, TOKENPOOL_CLIENTS_MAX, 0, false},
    {"batch", 1, TOKENPOOL_BATCH_MAX, 0, true},
    {"flags", 0, 63, 0, true},
    {"history", 1, TOKENPOOL_HISTORY_MAX, 0, true},
    {"alert_periods", 1, UINT32_MAX, 0, true},
    {"silent_periods", 1, UINT32_MAX, QOS_UNLIMITED, true},
    {"period_ns", 8, TOKENPOOL_PERIOD_NS_MAX, 0, true},
    {"check_ns", 1, QOS_NS_PER_S, 0, true},
    {"poll_ns", 1, 1000000, 0, true},
    {"lease_ns", 1000000, TOKENPOOL_PERIOD_NS_MAX, 0, true},
    {"capacity", 1, TOKENPOOL_TOKENS_MAX, 0, false},
    {"capacity_min", 1, 1000, QOS_NOTHING, true},
    {"capacity_step", 1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING, true},
    {"client_capacity", 1, 1000, 0, true},
    {"overrun", 1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING, true},
    {"equal_within", 1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING, true},
    {"debt_max", 1, TOKENPOOL_TOKENS_MAX, QOS_NOTHING, true},
};

static void wrong(unsigned i, uint64_t v)
{
    struct tokenpool_config c = with(i, v);
    struct tokenpool_monitor m, saved;
    const char *why = tokenpool_config_error(&c);
    CHECK_CONTEXT("%s = %" PRIu64, fields[i].name, v);
    CHECK(why && strstr(why, fields[i].name) == why);
    CHECK_EQ(tokenpool_monitor_memsize(&c), 0);
    CHECK_EQ(tokenpool_storage_memsize(&c), 0);
    memset(&m, 0x5a, sizeof m);
    saved = m;
    CHECK_EQ(tokenpool_monitor_init(&m, memory, sizeof memory, storage, sizeof storage, &c),
             strcmp(fields[i].name, "flags") ? QOS_ERANGE : QOS_EINVAL);
    CHECK(tokenpool_monitor_resume(&m, memory, sizeof memory, storage, sizeof storage, &c) != QOS_OK);
    CHECK(memcmp(&m, &saved, sizeof m) == 0);
}

static void right(unsigned i, uint64_t v)
{
    struct tokenpool_config c = with(i, v);
    CHECK_CONTEXT("%s = %" PRIu64, fields[i].name, v);
    CHECK(tokenpool_config_error(&c) == NULL);
    CHECK(tokenpool_monitor_memsize(&c) > 0);
    CHECK(tokenpool_storage_memsize(&c) > 0);
}

static void test_ranges(void)
{
    unsigned i;
    for (i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        bool narrow = i < 5; /* 32 bits */
        right(i, fields[i].low);
        right(i, fields[i].high);
        if (fields[i].low > 1)
            wrong(i, fields[i].low - 1);
        if (fields[i].zero)
            right(i, 0);
        else
            wrong(i, 0);
        if (!narrow || fields[i].high < UINT32_MAX)
            wrong(i, fields[i].high + 1);
        if (fields[i].special)
            right(i, fields[i].special);
        if (!narrow) {
            if (fields[i].special != QOS_NOTHING)
                wrong(i, QOS_NOTHING);
            if (fields[i].special != QOS_UNLIMITED)
                wrong(i, QOS_UNLIMITED);
        }
    }
    {
        struct tokenpool_config c = with(0, TOKENPOOL_CLIENTS_MAX);
        c.batch = 1024;
        CHECK(tokenpool_config_error(&c) == NULL);
        c.batch = 1025; /* clients x batch */
        CHECK(tokenpool_config_error(&c) && strstr(tokenpool_config_error(&c), "batch") != NULL);
    }
    CHECK(tokenpool_config_error(NULL) != NULL);
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, NULL), QOS_EINVAL);
}

/* Zero and the value that the header names as the default give the same storage, word for word, and the same books. */
static void test_defaults(void)
{
    static const struct {
        unsigned field;
        uint64_t value;
    } same[] = {{1, 62},       {3, 5},    {4, 10},  {5, 1},     {6, QOS_NS_PER_S}, {7, 1000000}, {8, 125000},
                {9, 16000000}, {11, 700}, {12, 50}, {13, 1000}, {14, 50},          {15, 20},     {16, 62}};
    unsigned i, p;
    for (i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct tokenpool_monitor_state info[2];
        struct tokenpool_slot_state slot[2];
        uint64_t words[2][64];
        unsigned k;
        CHECK_CONTEXT("%s = 0 and %" PRIu64, fields[same[i].field].name, same[i].value);
        for (k = 0; k < 2; k++) {
            config = with(same[i].field, k ? same[i].value : 0);
            rig_init();
            rig_join(0, 300, 0);
            for (p = 0; p < 12; p++) {
                tokenpool_monitor_run(&monitor, p * S);
                tokenpool_monitor_run(&monitor, p * S + MS);
                rig_report(0, rig_info().epoch, p == 3 ? 0 : 3, 300, p < 4 ? 990 : 800 - p);
            }
            info[k] = rig_info();
            slot[k] = rig_slot(0);
            memcpy(words[k], storage, sizeof words[k]);
        }
        CHECK(memcmp(words[0], words[1], sizeof words[0]) == 0);
        CHECK(info[0].capacity == info[1].capacity && info[0].bound == info[1].bound);
        CHECK(slot[0].silent == slot[1].silent && slot[0].alert == slot[1].alert);
    }
}

/* Attach: everything about the memory that can be wrong. */
static void test_attach(void)
{
    struct tokenpool_client c, saved;
    struct tokenpool_slot_state slot;
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8], bytes, i;
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
    for (i = 0; i < TOKENPOOL_HEAD_BYTES; i++) { /* any byte of it */
        unsigned char *b = (unsigned char *)head + i;
        if (i == TOKENPOOL_HEAD_BYTES - 4)
            break; /* word 7 has 32 bits, on any byte order one half of it is zero */
        *b ^= 0x10;
        CHECK(tokenpool_client_attach_remote(&c, 0, 0, head, bytes) != QOS_OK);
        *b ^= 0x10;
    }
    CHECK(memcmp(&c, &saved, sizeof c) == 0);
    CHECK_EQ(tokenpool_client_attach_remote(&c, 0, 0, head, bytes), QOS_OK);
    CHECK_EQ(tokenpool_client_attach(&c, 0, slot.generation, storage, bytes), QOS_OK);
    storage[TOKENPOOL_OFFSET_HEAD / 8] = 0;
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, bytes), QOS_ECORRUPT);
    tokenpool_monitor_run(&monitor, 0); /* the monitor mends its head at each period start */
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, bytes), QOS_OK);
}

int main(void)
{
    check_begin("unit/tokenpool_config");
    test_ranges();
    test_defaults();
    test_attach();
    return check_end();
}
