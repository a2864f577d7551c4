// proves: htb_init accepts every valid configuration up to its ends and says of every other what is wrong with it;
// it stays inside the memory, which may not be a byte smaller; zeros become the documented defaults
#include "htb_world.h"

static void expect(const struct htb_config *c, const char *begins)
{
    const char *said = htb_config_error(c);
    struct htb tree;
    static unsigned char memory[65536] __attribute__((aligned(64)));
    CHECK_CONTEXT("%s", begins);
    CHECK(said != NULL && strncmp(said, begins, strlen(begins)) == 0);
    CHECK_EQ(htb_memsize(c), 0);
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, c), c ? QOS_ERANGE : QOS_EINVAL);
    CHECK_CONTEXT("%s", "");
}

/* Each field just outside its range is named; just inside it is fine. */
static void every_sentence(void)
{
    struct htb_config good = world_config(), c;
    uint32_t r;
    int order = 2;
    expect(NULL, "config is NULL");
    CHECK(htb_config_error(&good) == NULL);
#define BAD(field, worst, best, sentence)                                                                              \
    do {                                                                                                               \
        c = good;                                                                                                      \
        c.field = worst;                                                                                               \
        expect(&c, sentence);                                                                                          \
        c.field = best;                                                                                                \
        CHECK(htb_config_error(&c) == NULL);                                                                           \
    } while (0)
    BAD(classes, HTB_CLASSES_MAX + 1, HTB_CLASSES_MAX, "classes:");
    BAD(resources, HTB_RESOURCES_MAX + 1, 1, "resources:");
    BAD(rate_per_s[0], 0, 1, "rate_per_s:");
    BAD(rate_per_s[0], QOS_RATE_MAX + 1, QOS_RATE_MAX, "rate_per_s:");
    BAD(rate_per_s[0], HTB_NONE, QOS_RATE_MAX, "rate_per_s:");
    BAD(best_effort_per_s[0], 1000001, 1000000, "best_effort_per_s:");
    BAD(best_effort_per_s[0], HTB_NONE - 1, HTB_NONE, "best_effort_per_s:");
    BAD(burst_ns, HTB_BURST_MAX_NS + 1, HTB_BURST_MAX_NS, "burst_ns:");
    BAD(burst_ns, UINT64_MAX, 1, "burst_ns:");
    BAD(request_max_tokens, QOS_TOKENS_MAX / 4 + 1, QOS_TOKENS_MAX / 4, "request_max_tokens:");
    BAD(debt_ns, HTB_BURST_MAX_NS + 1, HTB_BURST_MAX_NS, "debt_ns:");
    BAD(depth_max, 4097, 4096, "depth_max:");
    BAD(dispatch_max, HTB_DISPATCH_MAX + 1, HTB_DISPATCH_MAX, "dispatch_max:");
    BAD(device_max, 65, 64, "device_max:");
    BAD(maximize_step, 1, 2, "maximize_step:");
    BAD(maximize_step, 1025, 1024, "maximize_step:");
    BAD(maximize_interval_ns, 999, 1000, "maximize_interval_ns:");
    BAD(maximize_rate_max, 999999, 1000000, "maximize_rate_max:");
    BAD(maximize_rate_max, QOS_RATE_MAX + 1, QOS_RATE_MAX, "maximize_rate_max:");
    c = good;
    memcpy(&c.order, &order, sizeof c.order);
    expect(&c, "order:");
    c.order = HTB_FIFO;
    CHECK(htb_config_error(&c) == NULL);
    c = good;
    c.dispatch_max = 3;
    c.device_max = 4;
    expect(&c, "device_max:");
    /* Each resource that is used needs a rate; those that are not used are not looked at. */
    for (r = 1; r < HTB_RESOURCES_MAX; r++) {
        c = good;
        c.rate_per_s[r] = UINT64_MAX;
        CHECK(htb_config_error(&c) == NULL);
        c.resources = r + 1;
        expect(&c, "rate_per_s:");
    }
}

static void defaults(void)
{
    struct htb_config zero, spelled;
    struct world w;
    struct htb_class c;
    struct qos_stats s;
    uint32_t id;
    memset(&zero, 0, sizeof zero);
    zero.rate_per_s[0] = 1000000;
    memset(&spelled, 0, sizeof spelled);
    spelled.classes = 16;
    spelled.resources = 1;
    spelled.rate_per_s[0] = 1000000;
    spelled.best_effort_per_s[0] = 10000;
    spelled.burst_ns = 10 * MS;
    spelled.debt_ns = S;
    spelled.depth_max = 8;
    spelled.dispatch_max = 64;
    spelled.device_max = 32;
    spelled.bypass_max = 64;
    spelled.maximize_step = 32;
    spelled.maximize_interval_ns = 100 * MS;
    spelled.maximize_rate_max = QOS_RATE_MAX;
    CHECK_EQ(htb_memsize(&zero), htb_memsize(&spelled));
    world_open(&w, &zero);
    CHECK_EQ(w.tree.classes, 16);
    CHECK_EQ(w.tree.resources, 1);
    CHECK_EQ(w.tree.burst_ns, spelled.burst_ns);
    CHECK_EQ(w.tree.debt_ns, spelled.debt_ns);
    CHECK_EQ(w.tree.depth_max, spelled.depth_max);
    CHECK_EQ(w.tree.dispatch_max, spelled.dispatch_max);
    CHECK_EQ(w.tree.device_max, spelled.device_max);
    CHECK_EQ(w.tree.bypass_max, spelled.bypass_max);
    CHECK_EQ(w.tree.maximize_step, spelled.maximize_step);
    CHECK_EQ(w.tree.maximize_interval_ns, spelled.maximize_interval_ns);
    CHECK_EQ(w.tree.maximize_rate_max, spelled.maximize_rate_max);
    CHECK_EQ(w.tree.order, HTB_ELEVATOR);
    CHECK_EQ(htb_get(&w.tree, 0, &c), QOS_OK);
    CHECK_EQ(c.rate_per_s[0], 10000); /* 1 % */
    CHECK_EQ(c.limit_per_s[0], HTB_NONE);
    CHECK_EQ(c.burst_ns, 10 * MS);
    CHECK_EQ(c.weight, 1);
    CHECK_EQ(c.parent, HTB_ROOT);
    CHECK(!c.group);
    CHECK_EQ(c.expires_ns, 0);
    for (id = 1; id < 17; id++) {
        CHECK_EQ(htb_get(&w.tree, id, &c), QOS_ENOENT);
        htb_stats(&w.tree, id, &s);
        CHECK_EQ(s.granted + s.borrowed + s.refused + s.waited + s.debt, 0);
    }
    CHECK_EQ(htb_get(&w.tree, 0, NULL), QOS_EINVAL);
    CHECK_EQ(htb_root_rate(&w.tree), 1000000);
    world_close(&w);
    zero.dispatch_max = 8;
    world_open(&w, &zero);
    CHECK_EQ(w.tree.device_max, 8); /* min(32, dispatch_max) */
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
            c.best_effort_per_s[i] = 0;
        }
        size = htb_memsize(&c);
        check_mem_new(&m, size, 64, 0);
        memset(&tree, 0x77, sizeof tree);
        CHECK_EQ(htb_init(NULL, m.mem, size, &c), QOS_EINVAL);
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
        c.best_effort_per_s[r] = HTB_NONE;
    }
    world_open(&w, &c);
    for (id = 1; id < classes; id++) {
        struct htb_class k = class_of(id == 1 || depth == 0 ? HTB_ROOT : id - 1, 0, 0);
        k.group = ++depth < depth_max && id + 1 < classes;
        if (!k.group)
            depth = 0;
        for (r = 0; r < resources; r++) {
            k.rate_per_s[r] = QOS_RATE_MAX / classes;
            k.limit_per_s[r] = QOS_RATE_MAX;
        }
        if (id > 1 && depth != 1 && k.group)
            for (r = 0; r < resources; r++)
                k.rate_per_s[r] = HTB_NONE;
        if (htb_reserve(&w.tree, id, &k, 0, NULL) != QOS_OK) { /* its parent has no rate to give */
            for (r = 0; r < resources; r++)
                k.rate_per_s[r] = HTB_NONE;
            CHECK_EQ(htb_reserve(&w.tree, id, &k, 0, NULL), QOS_OK);
        }
    }
    memset(request, 0, sizeof request);
    for (id = 0; id < n; id++) {
        request[id].class_id = id % classes;
        for (r = 0; r < resources; r++)
            request[id].tokens[r] = 1;
        request[id].offset = id * 7919 % 1000;
        CHECK_EQ(htb_submit(&w.tree, &request[id], 0), QOS_OK);
    }
    for (id = 0; id < n; id++)
        CHECK(htb_dispatch(&w.tree, 10 * S) != NULL);
    CHECK(htb_dispatch(&w.tree, 10 * S) == NULL);
    for (id = 0; id < n; id++)
        CHECK_EQ(htb_complete(&w.tree, &request[id]), QOS_OK);
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
    /* The largest: on a 32-bit machine it is more than the address space, which memsize and init say. */
    c.classes = HTB_CLASSES_MAX;
    c.dispatch_max = HTB_DISPATCH_MAX;
    c.depth_max = 4096;
    c.resources = HTB_RESOURCES_MAX;
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        c.rate_per_s[r] = 1000;
    c.best_effort_per_s[0] = 0;
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

/* What htb_get gives, htb_reserve and htb_change take, and nothing changes. */
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
        config.best_effort_per_s[r] = 77;
    }
    world_open(&w, &config);
    memset(&in, 0, sizeof in);
    in.group = true;
    in.parent = HTB_ROOT;
    in.weight = HTB_WEIGHT_MAX;
    in.burst_ns = HTB_BURST_MAX_NS;
    for (r = 0; r < 4; r++) {
        in.rate_per_s[r] = r == 1 ? HTB_NONE : 1000 + r;
        in.limit_per_s[r] = r == 2 ? HTB_NONE : 5000 + r;
    }
    CHECK_EQ(htb_reserve(&w.tree, 5, &in, 3, NULL), QOS_OK);
    CHECK_EQ(htb_get(&w.tree, 5, &out), QOS_OK);
    CHECK_EQ(out.parent, HTB_ROOT);
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
    CHECK_EQ(htb_reserve(&w.tree, 6, &in, 3, NULL), QOS_OK);
    CHECK_EQ(htb_get(&w.tree, 6, &out), QOS_OK);
    CHECK_EQ(out.parent, 5);
    CHECK_EQ(out.burst_ns, 2000);
    CHECK_EQ(out.expires_ns, 4 * S);
    CHECK_EQ(out.rate_per_s[1], HTB_NONE);
    world_draw(&w);
    CHECK_EQ(htb_change(&w.tree, 6, &out, 3, NULL), QOS_OK);
    CHECK_EQ(htb_get(&w.tree, 0, &again), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, 0, &again, 3, NULL), QOS_OK);
    CHECK(world_same(&w));
    CHECK_EQ(htb_get(&w.tree, 6, &again), QOS_OK);
    CHECK_EQ(again.burst_ns, out.burst_ns);
    world_close(&w);
}

int main(void)
{
    check_begin("unit/htb_config");
    every_sentence();
    defaults();
    memory();
    sizes();
    round_trip();
    return check_end();
}
