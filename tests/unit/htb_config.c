// proves: each field of htb_config and htb_class: its default for zero, both ends of its range, and one past each end,
// where the error names the field and the object stays unchanged; a tree stays inside its memory, which must not be a
// byte smaller
#include "htb_world.h"
#include "config_table.h"

CONFIG_CALLS(htb)

#if HTB_HAS_SHARED
CONFIG_ERROR(htb_shared)
CONFIG_MEMSIZE(htb_shared)
static enum qos_status htb_shared_init_of(void *handle, void *mem, size_t size_bytes, const void *config)
{
    (void)handle; /* it may be in the memory itself */
    return htb_shared_init((struct htb_shared *)mem, size_bytes, (const struct htb_shared_config *)config);
}

static void shared_by_trees(void)
{
    static const struct config_field fields[] = {
        {CONFIG_FIELD(htb_shared_config, trees), 0, CONFIG_VALUES(1, HTB_TREES_MAX),
         CONFIG_VALUES(0, HTB_TREES_MAX + 1)},
        {CONFIG_FIELD(htb_shared_config, classes), 16, CONFIG_VALUES(1, 1000), CONFIG_VALUES(HTB_CLASSES_MAX + 1)},
        {CONFIG_FIELD(htb_shared_config, interval_ns), 5 * MS, CONFIG_VALUES(1000, HTB_BURST_MAX_NS),
         CONFIG_VALUES(999, HTB_BURST_MAX_NS + 1)},
    };
    struct htb_shared_config good;
    const struct config_table table = CONFIG_TABLE(htb_shared, good, fields);
    memset(&good, 0, sizeof good);
    good.trees = 2;
    config_check_table(&table);
}
#endif

static void every_field(void)
{
    static const struct config_field fields[] = {
        {CONFIG_FIELD(htb_config, classes), 16, CONFIG_VALUES(1, HTB_CLASSES_MAX), CONFIG_VALUES(HTB_CLASSES_MAX + 1)},
        {CONFIG_FIELD(htb_config, resources), 1, CONFIG_VALUES(1), CONFIG_VALUES(HTB_RESOURCES_MAX + 1)},
        {CONFIG_PART(htb_config, rate_per_s[0], "rate_per_s"), 0, CONFIG_VALUES(1, QOS_RATE_MAX),
         CONFIG_VALUES(0, QOS_RATE_MAX + 1, QOS_UNLIMITED)},
        {CONFIG_PART(htb_config, best_effort.rate_per_s[0], "best_effort"), 0, CONFIG_VALUES(1000000),
         CONFIG_VALUES(1000001, QOS_NOTHING)},
        {CONFIG_PART(htb_config, best_effort.limit_per_s[0], "best_effort"), QOS_UNLIMITED, CONFIG_VALUES(QOS_NOTHING),
         CONFIG_VALUES(QOS_RATE_MAX + 1)},
        {CONFIG_PART(htb_config, best_effort.weight, "best_effort"), 1, CONFIG_VALUES(HTB_WEIGHT_MAX),
         CONFIG_VALUES(HTB_WEIGHT_MAX + 1)},
        {CONFIG_PART(htb_config, best_effort.burst_ns, "best_effort"), 10 * MS, CONFIG_VALUES(HTB_BURST_MAX_NS),
         CONFIG_VALUES(HTB_BURST_MAX_NS + 1)},
        {CONFIG_PART(htb_config, best_effort.parent, "best_effort"), 0, CONFIG_VALUES(0), CONFIG_VALUES(1)},
        {CONFIG_PART(htb_config, best_effort.group, "best_effort"), 0, CONFIG_VALUES(0), CONFIG_VALUES(1)},
        {CONFIG_PART(htb_config, best_effort.expires_ns, "best_effort"), 0, CONFIG_VALUES(0), CONFIG_VALUES(1)},
        {CONFIG_FIELD(htb_config, burst_ns), 10 * MS, CONFIG_VALUES(1, HTB_BURST_MAX_NS),
         CONFIG_VALUES(HTB_BURST_MAX_NS + 1, UINT64_MAX)},
        {CONFIG_FIELD(htb_config, request_max_tokens), 0, CONFIG_VALUES(0, QOS_TOKENS_MAX / 4, QOS_NOTHING),
         CONFIG_VALUES(QOS_TOKENS_MAX / 4 + 1, QOS_UNLIMITED)},
        {CONFIG_FIELD(htb_config, debt_ns), S, CONFIG_VALUES(1, HTB_BURST_MAX_NS), CONFIG_VALUES(HTB_BURST_MAX_NS + 1)},
        {CONFIG_FIELD(htb_config, lag_ns), S, CONFIG_VALUES(1, HTB_BURST_MAX_NS), CONFIG_VALUES(HTB_BURST_MAX_NS + 1)},
        {CONFIG_FIELD(htb_config, start_ns), 0, CONFIG_VALUES(0, UINT64_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(htb_config, depth_max), 8, CONFIG_VALUES(1, 4096), CONFIG_VALUES(4097)},
        {CONFIG_FIELD(htb_config, bound), 0, CONFIG_VALUES(HTB_BY_FLIGHT, HTB_BY_RATE), CONFIG_VALUES(HTB_BY_RATE + 1)},
        {CONFIG_FIELD(htb_config, flight_min_ns), 1, CONFIG_VALUES(HTB_BURST_MAX_NS),
         CONFIG_VALUES(HTB_BURST_MAX_NS + 1)},
        {CONFIG_FIELD(htb_config, flight_max_ns), S, CONFIG_VALUES(1, HTB_BURST_MAX_NS),
         CONFIG_VALUES(HTB_BURST_MAX_NS + 1)},
        {CONFIG_FIELD(htb_config, order), 0, CONFIG_VALUES(HTB_ELEVATOR, HTB_FIFO), CONFIG_VALUES(HTB_FIFO + 1)},
        {CONFIG_FIELD(htb_config, dispatch_max), 64, CONFIG_VALUES(1, HTB_DISPATCH_MAX),
         CONFIG_VALUES(HTB_DISPATCH_MAX + 1)},
        {CONFIG_FIELD(htb_config, device_max), 32, CONFIG_VALUES(1, 64), CONFIG_VALUES(65)},
        {CONFIG_FIELD(htb_config, bypass_max), 64, CONFIG_VALUES(1, UINT32_MAX), CONFIG_NO_VALUES},
        {CONFIG_FIELD(htb_config, maximize_step), 32, CONFIG_VALUES(2, 1024), CONFIG_VALUES(1, 1025)},
        {CONFIG_FIELD(htb_config, maximize_interval_ns), 100 * MS, CONFIG_VALUES(1000), CONFIG_VALUES(999)},
        {CONFIG_FIELD(htb_config, maximize_rate_max), QOS_RATE_MAX, CONFIG_VALUES(1000000),
         CONFIG_VALUES(999999, QOS_RATE_MAX + 1)},
    };
    /* Defaults and ranges that depend on other fields. */
    static const struct config_field above_flight_min[] = {
        {CONFIG_FIELD(htb_config, flight_max_ns), 2 * S, CONFIG_VALUES(2 * S), CONFIG_VALUES(2 * S - 1)},
    };
    static const struct config_field few_dispatched[] = {
        {CONFIG_FIELD(htb_config, device_max), 8, CONFIG_VALUES(8), CONFIG_VALUES(9)},
    };
    struct htb_config plain = world_config(), flight = plain, few = plain, c;
    const struct config_table tables[] = {
        CONFIG_TABLE(htb, plain, fields),
        CONFIG_TABLE(htb, flight, above_flight_min),
        CONFIG_TABLE(htb, few, few_dispatched),
    };
    uint32_t i, r;
    flight.flight_min_ns = 2 * S;
    few.dispatch_max = 8;
    for (i = 0; i < sizeof tables / sizeof *tables; i++)
        config_check_table(&tables[i]);
    /* Each used resource needs a rate; the others are ignored. */
    for (r = 1; r < HTB_RESOURCES_MAX; r++) {
        CHECK_CONTEXT("resource %u", r);
        c = plain;
        c.rate_per_s[r] = UINT64_MAX;
        CHECK(htb_config_error(&c) == NULL);
        c.resources = r + 1;
        config_bad(&tables[0], "rate_per_s", &c);
    }
    CHECK_CONTEXT("%s", "");
}

/* The same for the terms of a class: htb_class_error, and htb_reserve and htb_change refuse them. */
static void every_term(void)
{
    struct htb_config config = world_config();
    struct htb_class good = class_of(0, 1000, 2000), c;
    struct world w;
    uint32_t r;
    world_open(&w, &config);
    reserve(&w, 2, 0, 1, 0, 0);
    CHECK(htb_class_error(NULL) != NULL);
    CHECK(htb_class_error(&good) == NULL);
#define TERM_GOOD(field, value)                                                                                        \
    do {                                                                                                               \
        c = good;                                                                                                      \
        c.field = value;                                                                                               \
        CHECK_CONTEXT("%s", #field);                                                                                   \
        CHECK(htb_class_error(&c) == NULL);                                                                            \
        CHECK_EQ(htb_reserve(&w.tree, 5, 1, &c, NULL), QOS_OK);                                                        \
        CHECK_EQ(htb_release(&w.tree, 5, 1), QOS_OK);                                                                  \
    } while (0)
#define TERM_BAD(field, value, sentence)                                                                               \
    do {                                                                                                               \
        c = good;                                                                                                      \
        c.field = value;                                                                                               \
        CHECK_CONTEXT("%s", #field);                                                                                   \
        CHECK(htb_class_error(&c) != NULL && strncmp(htb_class_error(&c), sentence, strlen(sentence)) == 0);           \
        world_draw(&w);                                                                                                \
        CHECK_EQ(htb_reserve(&w.tree, 5, 1, &c, NULL), QOS_ERANGE);                                                    \
        CHECK_EQ(htb_change(&w.tree, 5, 2, &c, NULL), QOS_ERANGE);                                                     \
        CHECK(world_same(&w));                                                                                         \
    } while (0)
    TERM_GOOD(weight, HTB_WEIGHT_MAX);
    TERM_BAD(weight, HTB_WEIGHT_MAX + 1, "weight:");
    TERM_GOOD(burst_ns, 1);
    TERM_GOOD(burst_ns, HTB_BURST_MAX_NS);
    TERM_BAD(burst_ns, HTB_BURST_MAX_NS + 1, "burst_ns:");
    TERM_GOOD(latency_ns, 0);
    TERM_GOOD(latency_ns, HTB_BURST_MAX_NS);
    TERM_BAD(latency_ns, HTB_BURST_MAX_NS + 1, "latency_ns:");
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        TERM_GOOD(rate_per_s[r], 0);
        TERM_BAD(rate_per_s[r], QOS_RATE_MAX + 1, "rate_per_s:");
        TERM_BAD(rate_per_s[r], QOS_UNLIMITED, "rate_per_s:");
        TERM_BAD(rate_per_s[r], QOS_NOTHING, "rate_per_s:");
        TERM_BAD(limit_per_s[r], QOS_RATE_MAX + 1, "limit_per_s:");
        TERM_BAD(limit_per_s[r], QOS_NOTHING - 1, "limit_per_s:");
        TERM_GOOD(limit_per_s[r], QOS_RATE_MAX);
        TERM_GOOD(limit_per_s[r], QOS_UNLIMITED);
    }
    TERM_GOOD(limit_per_s[0], 1000);
    TERM_BAD(limit_per_s[0], 999, "limit_per_s:"); /* below the reservation */
    TERM_BAD(limit_per_s[0], QOS_NOTHING, "limit_per_s:");
    TERM_GOOD(limit_per_s[1], QOS_NOTHING);
    TERM_GOOD(expires_ns, 6);
    c = good;
    c.group = true;
    c.expires_ns = 6;
    CHECK(htb_class_error(&c) != NULL && strncmp(htb_class_error(&c), "expires_ns:", 11) == 0);
    CHECK_EQ(htb_reserve(&w.tree, 5, 1, &c, NULL), QOS_EINVAL);
    /* What zero means. */
    c = class_of(0, 0, 0);
    CHECK_EQ(htb_reserve(&w.tree, 5, 1, &c, NULL), QOS_OK);
    CHECK_EQ(terms_of(&w, 1, &c), QOS_OK);
    CHECK_EQ(c.parent, 0);
    CHECK_EQ(c.weight, 1);
    CHECK_EQ(c.rate_per_s[0], 0);
    CHECK_EQ(c.limit_per_s[0], QOS_UNLIMITED);
    CHECK_EQ(c.burst_ns, 10 * MS);
    CHECK_EQ(c.expires_ns, 0);
    CHECK_EQ(terms_of(&w, 3, &c), QOS_ENOENT);
    CHECK_CONTEXT("%s", "");
    world_close(&w);
}

static void memory(void)
{
    struct htb_config c = world_config();
    uint32_t r;
    for (r = 1; r <= HTB_RESOURCES_MAX; r++) {
        struct check_mem m;
        struct htb tree;
        size_t size;
        uint32_t i;
        c.resources = r;
        for (i = 0; i < r; i++) {
            c.rate_per_s[i] = 1000000 + i;
            c.best_effort.rate_per_s[i] = 0;
        }
        size = htb_memsize(&c);
        check_mem_new(&m, size, 64, 0);
        memset(&tree, 0x77, sizeof tree);
        CHECK_EQ(htb_init(&tree, NULL, size, &c), QOS_EINVAL);
        CHECK_EQ(htb_init(&tree, m.mem, size, NULL), QOS_EINVAL);
        CHECK_EQ(htb_init(&tree, m.mem, size - 1, &c), QOS_EMEMORY);
        CHECK_EQ(htb_init(&tree, m.mem, 0, &c), QOS_EMEMORY);
        for (i = 0; i < sizeof tree; i++)
            CHECK_EQ(((const unsigned char *)&tree)[i], 0x77);
        CHECK_EQ(htb_init(&tree, m.mem, size, &c), QOS_OK);
        CHECK(check_mem_free(&m));
        check_mem_new(&m, size, 64, 1);
        CHECK_EQ(htb_init(&tree, m.mem, size, &c), QOS_EALIGN);
        CHECK(check_mem_free(&m));
        check_mem_new(&m, size, 64, 32);
        CHECK_EQ(htb_init(&tree, m.mem, size, &c), QOS_EALIGN);
        CHECK(check_mem_free(&m));
    }
}

/* Every id, slot and level is used, between red zones. */
static void fill(uint32_t classes, uint32_t resources, uint32_t depth_max, uint32_t dispatch_max)
{
    struct htb_config c = world_config();
    static struct htb_request request[300];
    struct world w;
    uint32_t id, r, depth = 0, n = dispatch_max < 300 ? dispatch_max : 300;
    CHECK_CONTEXT("classes %u resources %u depth %u dispatch %u", classes, resources, depth_max, dispatch_max);
    c.classes = classes;
    c.resources = resources;
    c.depth_max = depth_max;
    c.dispatch_max = c.device_max = dispatch_max;
    for (r = 0; r < resources; r++) {
        c.rate_per_s[r] = QOS_RATE_MAX;
        c.best_effort.rate_per_s[r] = 0;
    }
    world_open(&w, &c);
    for (id = 1; id < classes; id++) {
        struct htb_class k = class_of(id == 1 || depth == 0 ? 0 : id - 1, 0, 0);
        k.group = ++depth < depth_max && id + 1 < classes;
        if (!k.group)
            depth = 0;
        for (r = 0; r < resources; r++) {
            k.rate_per_s[r] = QOS_RATE_MAX / classes;
            k.limit_per_s[r] = QOS_RATE_MAX;
        }
        if (id > 1 && depth != 1 && k.group)
            for (r = 0; r < resources; r++)
                k.rate_per_s[r] = 0;
        if (htb_reserve(&w.tree, 0, id, &k, NULL) != QOS_OK) { /* its parent has no rate to give */
            for (r = 0; r < resources; r++)
                k.rate_per_s[r] = 0;
            CHECK_EQ(htb_reserve(&w.tree, 0, id, &k, NULL), QOS_OK);
        }
    }
    memset(request, 0, sizeof request);
    for (id = 0; id < n; id++) {
        request[id].class_id = id % classes;
        for (r = 0; r < resources; r++)
            request[id].tokens[r] = 1;
        request[id].offset = id * 7919 % 1000;
        CHECK_EQ(htb_submit(&w.tree, 0, &request[id]), QOS_OK);
    }
    for (id = 0; id < n; id++)
        CHECK(htb_dispatch(&w.tree, 10 * S) != NULL);
    CHECK(htb_dispatch(&w.tree, 10 * S) == NULL);
    for (id = 0; id < n; id++)
        CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, &request[id]), QOS_OK);
    world_close(&w);
    CHECK_CONTEXT("%s", "");
}

static void sizes(void)
{
    struct htb_config c = world_config();
    uint32_t r;
    fill(1, 1, 1, 1);
    fill(1, 4, 1, 1);
    fill(2, 2, 1, 2);
    fill(2, 3, 4096, 3);
    fill(7, 4, 3, 5);
    fill(40, 1, 40, 299);
    fill(1000, 2, 8, 65536);
    /* The largest tree: on a 32-bit machine it exceeds the address space, and memsize and init report that. */
    c.classes = HTB_CLASSES_MAX;
    c.dispatch_max = HTB_DISPATCH_MAX;
    c.depth_max = 4096;
    c.resources = HTB_RESOURCES_MAX;
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        c.rate_per_s[r] = 1000;
    c.best_effort.rate_per_s[0] = 0;
    CHECK(htb_config_error(&c) == NULL);
    if (sizeof(size_t) > 4) {
        CHECK_GE(htb_memsize(&c), (uint64_t)HTB_CLASSES_MAX * 300);
    } else {
        static unsigned char byte[64] __attribute__((aligned(64)));
        struct htb tree;
        CHECK_EQ(htb_memsize(&c), 0);
        CHECK_EQ(htb_init(&tree, byte, SIZE_MAX, &c), QOS_ERANGE);
    }
    /* The memory of a class: at most 192 bytes with one resource. */
    c = world_config();
    c.classes = 1000;
    r = (uint32_t)htb_memsize(&c);
    c.classes = 101000;
    CHECK_LE(htb_memsize(&c) - r, UINT64_C(192) * 100000);
}

/* htb_reserve and htb_change accept the terms that htb_class_info returns, and nothing changes. */
static void round_trip(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_class in, out, again;
    uint32_t r;
    config.resources = 4;
    config.burst_ns = 1;
    config.start_ns = 3;
    for (r = 0; r < 4; r++) {
        config.rate_per_s[r] = 1000000;
        config.best_effort.rate_per_s[r] = 77;
    }
    world_open(&w, &config);
    memset(&in, 0, sizeof in);
    in.group = true;
    in.weight = HTB_WEIGHT_MAX;
    in.burst_ns = HTB_BURST_MAX_NS;
    for (r = 0; r < 4; r++) {
        in.rate_per_s[r] = r == 1 ? 0 : 1000 + r;
        in.limit_per_s[r] = r == 2 ? QOS_UNLIMITED : 5000 + r;
    }
    CHECK_EQ(htb_reserve(&w.tree, 3, 5, &in, NULL), QOS_OK);
    CHECK_EQ(terms_of(&w, 5, &out), QOS_OK);
    CHECK_EQ(out.parent, 0);
    CHECK_EQ(out.weight, HTB_WEIGHT_MAX);
    CHECK_EQ(out.burst_ns, HTB_BURST_MAX_NS);
    CHECK_EQ(out.expires_ns, 0);
    CHECK(out.group);
    for (r = 0; r < 4; r++) {
        CHECK_EQ(out.rate_per_s[r], in.rate_per_s[r]);
        CHECK_EQ(out.limit_per_s[r], in.limit_per_s[r]);
    }
    in.group = false;
    in.parent = 5;
    in.burst_ns = 1001; /* rounded up to 2 us */
    in.expires_ns = 4 * S;
    for (r = 0; r < 4; r++)
        in.rate_per_s[r] = r == 1 ? 0 : 10;
    CHECK_EQ(htb_reserve(&w.tree, 3, 6, &in, NULL), QOS_OK);
    CHECK_EQ(terms_of(&w, 6, &out), QOS_OK);
    CHECK_EQ(out.parent, 5);
    CHECK_EQ(out.burst_ns, 2000);
    CHECK_EQ(out.expires_ns, 4 * S);
    CHECK_EQ(out.rate_per_s[1], 0);
    world_draw(&w);
    CHECK_EQ(htb_change(&w.tree, 3, 6, &out, NULL), QOS_OK);
    CHECK_EQ(terms_of(&w, 0, &again), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 3, 0, &again, NULL), QOS_OK);
    CHECK(world_same(&w));
    CHECK_EQ(terms_of(&w, 6, &again), QOS_OK);
    CHECK_EQ(again.burst_ns, out.burst_ns);
    world_close(&w);
}

int main(void)
{
    check_begin("unit/htb_config");
    every_field();
#if HTB_HAS_SHARED
    shared_by_trees();
#endif
    every_term();
    memory();
    sizes();
    round_trip();
    return check_end();
}
