// proves: htb_init accepts every valid configuration up to its ends and says of every other what is wrong with it;
// it stays inside the memory, which may not be a byte smaller; zeros become the documented defaults
#include "htb_world.h"

static unsigned char memory_of[2][65536] __attribute__((aligned(64)));
static struct htb handle_of[2];

/* The configuration is refused with a sentence that begins with `begins`; memory and handle stay as they were. */
static void expect(const struct htb_config *c, const char *begins)
{
    const char *said = htb_config_error(c);
    CHECK_CONTEXT("%s", begins);
    CHECK(said != NULL && strncmp(said, begins, strlen(begins)) == 0);
    CHECK_EQ(htb_memsize(c), 0);
    memset(memory_of, 0x3c, sizeof memory_of);
    memset(handle_of, 0x3c, sizeof handle_of);
    CHECK_EQ(htb_init(&handle_of[0], memory_of[0], sizeof memory_of[0], c), c ? QOS_ERANGE : QOS_EINVAL);
    CHECK(memcmp(&handle_of[0], &handle_of[1], sizeof handle_of[0]) == 0);
    CHECK(memcmp(memory_of[0], memory_of[1], sizeof memory_of[0]) == 0);
    CHECK_CONTEXT("%s", "");
}

/* Both configurations make the same tree, byte for byte. */
static void same_tree(const struct htb_config *a, const struct htb_config *b, const char *what)
{
    CHECK_CONTEXT("%s", what);
    memset(memory_of, 0x3c, sizeof memory_of);
    memset(handle_of, 0x3c, sizeof handle_of);
    CHECK_EQ(htb_init(&handle_of[0], memory_of[0], sizeof memory_of[0], a), QOS_OK);
    memcpy(&handle_of[1], &handle_of[0], sizeof handle_of[0]);
    memcpy(memory_of[1], memory_of[0], sizeof memory_of[0]);
    memset(&handle_of[0], 0x3c, sizeof handle_of[0]);
    memset(memory_of[0], 0x3c, sizeof memory_of[0]);
    CHECK_EQ(htb_init(&handle_of[0], memory_of[0], sizeof memory_of[0], b), QOS_OK);
    CHECK(memcmp(&handle_of[0], &handle_of[1], sizeof handle_of[0]) == 0);
    CHECK(memcmp(memory_of[0], memory_of[1], sizeof memory_of[0]) == 0);
    CHECK_CONTEXT("%s", "");
}

static void accept(const struct htb_config *c, const char *what)
{
    CHECK_CONTEXT("%s", what);
    CHECK(htb_config_error(c) == NULL);
    CHECK_CONTEXT("%s", "");
}

/* Every field: what zero means, both ends of its range, and one past each end with the sentence that names it. */
static void every_field(void)
{
    struct htb_config good = world_config(), c, d;
    uint32_t r;
    int order = 2;
    expect(NULL, "config:");
    accept(&good, "good");
#define DEFAULT(field, value)                                                                                          \
    do {                                                                                                               \
        c = d = good;                                                                                                  \
        c.field = 0;                                                                                                   \
        d.field = value;                                                                                               \
        same_tree(&c, &d, #field);                                                                                     \
    } while (0)
#define GOOD(field, value)                                                                                             \
    do {                                                                                                               \
        c = good;                                                                                                      \
        c.field = value;                                                                                               \
        accept(&c, #field);                                                                                            \
    } while (0)
#define BAD(field, value, sentence)                                                                                    \
    do {                                                                                                               \
        c = good;                                                                                                      \
        c.field = value;                                                                                               \
        expect(&c, sentence);                                                                                          \
    } while (0)
    DEFAULT(classes, 16);
    GOOD(classes, 1);
    GOOD(classes, HTB_CLASSES_MAX);
    BAD(classes, HTB_CLASSES_MAX + 1, "classes:");
    DEFAULT(resources, 1);
    GOOD(resources, 1);
    BAD(resources, HTB_RESOURCES_MAX + 1, "resources:");
    BAD(rate_per_s[0], 0, "rate_per_s:");
    GOOD(rate_per_s[0], 1);
    GOOD(rate_per_s[0], QOS_RATE_MAX);
    BAD(rate_per_s[0], QOS_RATE_MAX + 1, "rate_per_s:");
    BAD(rate_per_s[0], QOS_UNLIMITED, "rate_per_s:");
    GOOD(best_effort.rate_per_s[0], 1000000);
    BAD(best_effort.rate_per_s[0], 1000001, "best_effort:");
    BAD(best_effort.rate_per_s[0], QOS_NOTHING, "best_effort:");
    DEFAULT(best_effort.limit_per_s[0], QOS_UNLIMITED);
    GOOD(best_effort.limit_per_s[0], QOS_NOTHING);
    BAD(best_effort.limit_per_s[0], QOS_RATE_MAX + 1, "best_effort:");
    DEFAULT(best_effort.weight, 1);
    GOOD(best_effort.weight, HTB_WEIGHT_MAX);
    BAD(best_effort.weight, HTB_WEIGHT_MAX + 1, "best_effort:");
    DEFAULT(best_effort.burst_ns, 10 * MS);
    BAD(best_effort.parent, 1, "best_effort:");
    BAD(best_effort.group, true, "best_effort:");
    BAD(best_effort.expires_ns, 1, "best_effort:");
    DEFAULT(burst_ns, 10 * MS);
    GOOD(burst_ns, 1);
    GOOD(burst_ns, HTB_BURST_MAX_NS);
    BAD(burst_ns, HTB_BURST_MAX_NS + 1, "burst_ns:");
    BAD(burst_ns, UINT64_MAX, "burst_ns:");
    GOOD(request_max_tokens, QOS_TOKENS_MAX / 4);
    BAD(request_max_tokens, QOS_TOKENS_MAX / 4 + 1, "request_max_tokens:");
    DEFAULT(debt_ns, S);
    GOOD(debt_ns, 1);
    GOOD(debt_ns, HTB_BURST_MAX_NS);
    BAD(debt_ns, HTB_BURST_MAX_NS + 1, "debt_ns:");
    GOOD(start_ns, UINT64_MAX);
    DEFAULT(lag_ns, S);
    GOOD(lag_ns, 1);
    GOOD(lag_ns, HTB_BURST_MAX_NS);
    BAD(lag_ns, HTB_BURST_MAX_NS + 1, "lag_ns:");
    GOOD(bound, HTB_BY_FLIGHT);
    c = good;
    memcpy(&c.bound, &order, sizeof c.bound);
    expect(&c, "bound:");
    DEFAULT(flight_min_ns, 1);
    GOOD(flight_min_ns, HTB_BURST_MAX_NS);
    BAD(flight_min_ns, HTB_BURST_MAX_NS + 1, "flight_min_ns:");
    DEFAULT(flight_max_ns, 20 * MS);
    GOOD(flight_max_ns, 1);
    GOOD(flight_max_ns, HTB_BURST_MAX_NS);
    BAD(flight_max_ns, HTB_BURST_MAX_NS + 1, "flight_max_ns:");
    good.flight_min_ns = 30 * MS;
    DEFAULT(flight_max_ns, 30 * MS); /* not below the least */
    BAD(flight_max_ns, 30 * MS - 1, "flight_max_ns:");
    good.flight_min_ns = 0;
    DEFAULT(depth_max, 8);
    GOOD(depth_max, 1);
    GOOD(depth_max, 4096);
    BAD(depth_max, 4097, "depth_max:");
    GOOD(order, HTB_FIFO);
    c = good;
    memcpy(&c.order, &order, sizeof c.order);
    expect(&c, "order:");
    DEFAULT(dispatch_max, 64);
    GOOD(dispatch_max, 1);
    GOOD(dispatch_max, HTB_DISPATCH_MAX);
    BAD(dispatch_max, HTB_DISPATCH_MAX + 1, "dispatch_max:");
    DEFAULT(device_max, 32);
    GOOD(device_max, 64);
    BAD(device_max, 65, "device_max:");
    good.dispatch_max = 8;
    DEFAULT(device_max, 8); /* min(32, dispatch_max) */
    BAD(device_max, 9, "device_max:");
    good.dispatch_max = 0;
    DEFAULT(bypass_max, 64);
    GOOD(bypass_max, UINT32_MAX);
    DEFAULT(maximize_step, 32);
    GOOD(maximize_step, 2);
    GOOD(maximize_step, 1024);
    BAD(maximize_step, 1, "maximize_step:");
    BAD(maximize_step, 1025, "maximize_step:");
    DEFAULT(maximize_interval_ns, 100 * MS);
    GOOD(maximize_interval_ns, 1000);
    BAD(maximize_interval_ns, 999, "maximize_interval_ns:");
    DEFAULT(maximize_rate_max, QOS_RATE_MAX);
    GOOD(maximize_rate_max, 1000000);
    BAD(maximize_rate_max, 999999, "maximize_rate_max:");
    BAD(maximize_rate_max, QOS_RATE_MAX + 1, "maximize_rate_max:");
    /* Each resource that is used needs a rate; those that are not used are not looked at. */
    for (r = 1; r < HTB_RESOURCES_MAX; r++) {
        c = good;
        c.rate_per_s[r] = UINT64_MAX;
        accept(&c, "a resource that is not used");
        c.resources = r + 1;
        expect(&c, "rate_per_s:");
    }
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

/* A limit of nothing: requests that cost something never go; without it, they do. */
static void limit_of_nothing(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 0, QOS_NOTHING);
    struct world w;
    world_open(&w, &config);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    CHECK_EQ(terms_of(&w, 1, &c), QOS_OK);
    CHECK_EQ(c.limit_per_s[0], QOS_NOTHING);
    CHECK_EQ(htb_take(&w.tree, 5 * S, 1, 1), QOS_EAGAIN);
    CHECK_EQ(htb_next_ns(&w.tree, 5 * S, 1, 1), QOS_NEVER);
    CHECK_EQ(htb_take(&w.tree, 5 * S, 1, 0), QOS_OK);
    c.limit_per_s[0] = 0;
    CHECK_EQ(htb_change(&w.tree, 5 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_take(&w.tree, 5 * S, 1, 1), QOS_OK);
    c.limit_per_s[0] = QOS_NOTHING;
    CHECK_EQ(htb_change(&w.tree, 5 * S, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&w.tree, 6 * S, 1, 1), QOS_NEVER);
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
    /* The largest: on a 32-bit machine it is more than the address space, which memsize and init say. */
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
    every_term();
    limit_of_nothing();
    memory();
    sizes();
    round_trip();
    return check_end();
}
