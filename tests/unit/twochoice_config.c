// proves: every field of every configuration of twochoice.h: what zero means, both ends of its range, one past each end
// proves: with a sentence that names the field, and an object that is as it was after the error.
#include "check.h"
#include "twochoice.h"

enum { NARROW, WIDE };

/* One field of one configuration, and values that must be taken or refused. */
struct field {
    const char *name;
    size_t at;
    uint32_t width;
    uint64_t good[4];
    uint32_t goods;
    uint64_t bad[2];
    uint32_t bads;
};

#define FIELD(config, field, width) #field, offsetof(struct config, field), width

static void set(void *config, const struct field *f, uint64_t value)
{
    uint32_t narrow = (uint32_t)value;
    if (f->width == WIDE)
        memcpy((char *)config + f->at, &value, sizeof value);
    else
        memcpy((char *)config + f->at, &narrow, sizeof narrow);
}

/* Tries all values on a copy of a good configuration. error, init: of one object. */
static void try_fields(const struct field *fields, size_t n, const void *good, size_t size,
                       const char *(*error)(const void *), enum qos_status (*init)(const void *), const void *object,
                       size_t object_size)
{
    static unsigned char config[256], before[65536];
    size_t i, v;
    CHECK(size <= sizeof config && object_size <= sizeof before);
    CHECK(!error(good));
    for (i = 0; i < n; i++) {
        const struct field *f = &fields[i];
        for (v = 0; v < f->goods; v++) {
            CHECK_CONTEXT("%s = %llu", f->name, (unsigned long long)f->good[v]);
            memcpy(config, good, size);
            set(config, f, f->good[v]);
            CHECK(!error(config));
        }
        for (v = 0; v < f->bads; v++) {
            const char *text;
            CHECK_CONTEXT("%s = %llu", f->name, (unsigned long long)f->bad[v]);
            memcpy(config, good, size);
            set(config, f, f->bad[v]);
            text = error(config);
            CHECK(text && strncmp(text, f->name, strlen(f->name)) == 0);
            CHECK_EQ(init(good), QOS_OK);
            memcpy(before, object, object_size);
            CHECK_EQ(init(config), QOS_ERANGE);
            CHECK(memcmp(before, object, object_size) == 0);
        }
    }
}

static struct twochoice_table table;
static struct twochoice_maintainer maintainer;
static struct twochoice_placement placement;
static struct twochoice_detector detector;
static void *mem;
static size_t mem_bytes;

static void need(size_t size_bytes)
{
    if (size_bytes <= mem_bytes)
        return;
    free(mem);
    mem = aligned_alloc(64, (size_bytes + 63) / 64 * 64);
    mem_bytes = size_bytes;
}

static const char *table_error(const void *config)
{
    return twochoice_table_config_error((const struct twochoice_table_config *)config);
}

static enum qos_status table_init(const void *config)
{
    const struct twochoice_table_config *c = (const struct twochoice_table_config *)config;
    need(twochoice_table_memsize(c));
    return twochoice_table_init(&table, mem, mem_bytes, c);
}

static const char *maintainer_error(const void *config)
{
    return twochoice_maintainer_config_error((const struct twochoice_maintainer_config *)config);
}

static enum qos_status maintainer_init(const void *config)
{
    const struct twochoice_maintainer_config *c = (const struct twochoice_maintainer_config *)config;
    need(twochoice_maintainer_memsize(c));
    return twochoice_maintainer_init(&maintainer, mem, mem_bytes, c);
}

static const char *placement_error(const void *config)
{
    return twochoice_placement_config_error((const struct twochoice_placement_config *)config);
}

static enum qos_status placement_init(const void *config)
{
    const struct twochoice_placement_config *c = (const struct twochoice_placement_config *)config;
    need(twochoice_placement_memsize(c));
    return twochoice_placement_init(&placement, mem, mem_bytes, c);
}

static const char *detector_error(const void *config)
{
    return twochoice_detector_config_error((const struct twochoice_detector_config *)config);
}

static enum qos_status detector_init(const void *config)
{
    const struct twochoice_detector_config *c = (const struct twochoice_detector_config *)config;
    need(twochoice_detector_memsize(c));
    return twochoice_detector_init(&detector, mem, mem_bytes, c);
}

/* A configuration of zeros does what the defaults do that are written beside the fields. */
static void zeros(void)
{
    struct twochoice_table_config tc, tc0;
    struct twochoice_placement_config pc, pc0;
    struct twochoice_detector_config dc, dc0;
    struct twochoice_detector_state counts;
    struct twochoice_table_state sizes;
    memset(&tc0, 0, sizeof tc0);
    memset(&pc0, 0, sizeof pc0);
    memset(&dc0, 0, sizeof dc0);
    tc = tc0;
    tc.max_fragments = TWOCHOICE_MAX_FRAGMENTS;
    tc.max_writes = TWOCHOICE_MAX_WRITES;
    tc.max_pulls = TWOCHOICE_MAX_PULLS;
    CHECK_EQ(twochoice_table_memsize(&tc0), twochoice_table_memsize(&tc));
    CHECK_EQ(table_init(&tc0), QOS_OK);
    CHECK_EQ(twochoice_table_info(&table, &sizes), QOS_OK);
    CHECK_EQ(sizes.max_fragments, TWOCHOICE_MAX_FRAGMENTS);
    pc0.servers = pc.servers = 100;
    pc = pc0;
    pc.max_writes = 128;
    CHECK_EQ(twochoice_placement_memsize(&pc0), twochoice_placement_memsize(&pc));
    dc = dc0;
    dc.max_probes = 1024;
    dc.max_peers = 256;
    CHECK_EQ(twochoice_detector_memsize(&dc0), twochoice_detector_memsize(&dc));
    CHECK_EQ(detector_init(&dc0), QOS_OK);
    twochoice_detector_begin(&detector, 100);
    CHECK_EQ(twochoice_detector_load(&detector, 0), 65536 + 100); /* op_cost_bytes */
    CHECK_EQ(twochoice_detector_probed(&detector, 0, 1, 1, 100), 65636);
    CHECK_EQ(twochoice_detector_next_ns(&detector, 0), 200000000); /* timeout_ns */
    CHECK_EQ(twochoice_detector_info(&detector, &counts), QOS_OK);
    CHECK(counts.ops == 1 && counts.bytes == 100 && counts.expected == 50 && counts.undecided == 1);
}

int main(void)
{
    static const struct field table_fields[] = {
        {FIELD(twochoice_table_config, max_fragments, NARROW), {0, 1, 100000}, 3, {(1u << 30) + 1, UINT32_MAX}, 2},
        {FIELD(twochoice_table_config, max_writes, NARROW), {0, 1, 65536}, 3, {65537, UINT32_MAX}, 2},
        {FIELD(twochoice_table_config, max_pulls, NARROW), {0, 1, 65536}, 3, {65537, UINT32_MAX}, 2},
        {FIELD(twochoice_table_config, mark_commits, NARROW), {0, 1, UINT32_MAX}, 3, {0}, 0},
        {FIELD(twochoice_table_config, home, NARROW), {0, 65534}, 2, {65535, UINT32_MAX}, 2},
        {FIELD(twochoice_table_config, max_log_bytes, WIDE), {0, 96 * 12, QOS_UNLIMITED}, 3, {96 * 12 - 1, 1}, 2},
    };
    static const struct field maintainer_fields[] = {
        {FIELD(twochoice_maintainer_config, servers, NARROW), {1, 65535}, 2, {0, 65536}, 2},
        {FIELD(twochoice_maintainer_config, rate_bytes_per_s, WIDE),
         {0, 1, QOS_RATE_MAX, QOS_UNLIMITED},
         4,
         {QOS_RATE_MAX + 1, QOS_NOTHING},
         2},
        {FIELD(twochoice_maintainer_config, piece_bytes, WIDE), {0, 1, QOS_TOKENS_MAX}, 3, {QOS_TOKENS_MAX + 1}, 1},
        {FIELD(twochoice_maintainer_config, idle_load, WIDE), {0, UINT64_MAX}, 2, {0}, 0},
        {FIELD(twochoice_maintainer_config, idle_ns, WIDE), {0, UINT64_MAX}, 2, {0}, 0},
    };
    static const struct field placement_fields[] = {
        {FIELD(twochoice_placement_config, servers, NARROW), {1, 65535}, 2, {0, 65536}, 2},
        {FIELD(twochoice_placement_config, max_writes, NARROW), {0, 1, 16384}, 3, {16385, UINT32_MAX}, 2},
        {FIELD(twochoice_placement_config, policy, NARROW), {0, 3}, 2, {4, UINT32_MAX}, 2},
        {FIELD(twochoice_placement_config, tries, NARROW), {0, 1, TWOCHOICE_NO_TRIES}, 3, {0}, 0},
        {FIELD(twochoice_placement_config, min_write_bytes, WIDE), {0, 1, QOS_NOTHING}, 3, {0}, 0},
        {FIELD(twochoice_placement_config, seed, WIDE), {0, UINT64_MAX}, 2, {0}, 0},
    };
    static const struct field detector_fields[] = {
        {FIELD(twochoice_detector_config, op_cost_bytes, WIDE),
         {0, 1, UINT64_C(1) << 40, QOS_NOTHING},
         4,
         {(UINT64_C(1) << 40) + 1, UINT64_MAX},
         2},
        {FIELD(twochoice_detector_config, bucket_bytes, WIDE),
         {0, 1, UINT64_C(1) << 40},
         3,
         {(UINT64_C(1) << 40) + 1, UINT64_MAX},
         2},
        {FIELD(twochoice_detector_config, timeout_ns, WIDE), {0, 1, UINT64_MAX}, 3, {0}, 0},
        {FIELD(twochoice_detector_config, lifetime_ns, WIDE), {0, 1, UINT64_MAX}, 3, {0}, 0},
        {FIELD(twochoice_detector_config, max_probes, NARROW), {0, 1, 1 << 20}, 3, {(1 << 20) + 1, UINT32_MAX}, 2},
        {FIELD(twochoice_detector_config, max_peers, NARROW), {0, 1, 1 << 20}, 3, {(1 << 20) + 1, UINT32_MAX}, 2},
        {FIELD(twochoice_detector_config, learn_shift, NARROW), {0, 1, 15}, 3, {16, UINT32_MAX}, 2},
    };
    struct twochoice_table_config tc;
    struct twochoice_maintainer_config mc;
    struct twochoice_placement_config pc;
    struct twochoice_detector_config dc;
    check_begin("twochoice_config");
    memset(&tc, 0, sizeof tc);
    memset(&mc, 0, sizeof mc);
    memset(&pc, 0, sizeof pc);
    memset(&dc, 0, sizeof dc);
    tc.max_fragments = 10;
    mc.servers = 10;
    try_fields(table_fields, sizeof table_fields / sizeof *table_fields, &tc, sizeof tc, table_error, table_init,
               &table, sizeof table);
    try_fields(maintainer_fields, sizeof maintainer_fields / sizeof *maintainer_fields, &mc, sizeof mc,
               maintainer_error, maintainer_init, &maintainer, sizeof maintainer);
    pc.servers = 10;
    try_fields(placement_fields, sizeof placement_fields / sizeof *placement_fields, &pc, sizeof pc, placement_error,
               placement_init, &placement, sizeof placement);
    try_fields(detector_fields, sizeof detector_fields / sizeof *detector_fields, &dc, sizeof dc, detector_error,
               detector_init, &detector, sizeof detector);
    zeros();
    free(mem);
    return check_end();
}
