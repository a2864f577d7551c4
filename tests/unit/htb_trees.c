// proves: trees of 1, 2 and 4 real threads share classes without a race, and a limit holds for their sum. Which trees
// proves: may join. Terms, admission and live changes are as in a single tree. A new tree takes over its slot's tokens;
// proves: what was served before is no demand, and a tree that stops holds none back. Any rate from 1/s arrives,
// proves: wherever the demand is. Surplus goes by weight, however large the requests are. No tree tells a bound that is
// proves: none. A clock set anew, a root that changes while requests wait, and large rates take no part
// variants: native tsan san
// flags: -pthread
// whole: san
#include "htb_world.h"
#include <pthread.h>

enum { TREES = 4, MOST_TREES = 8, STEPS = 400, LIMIT = 1000000 };

static struct world w[TREES], many[MOST_TREES];
static struct htb_shared *shared;
static void *shared_memory;

static void open_shared_every(uint64_t interval_ns, uint32_t trees, uint32_t classes)
{
    struct htb_shared_config config;
    memset(&config, 0, sizeof config);
    config.trees = trees;
    config.classes = classes;
    config.interval_ns = interval_ns;
    free(shared_memory);
    CHECK(posix_memalign(&shared_memory, 64, htb_shared_memsize(&config) + 64) == 0);
    memset(shared_memory, 0xff, htb_shared_memsize(&config) + 64);
    shared = (struct htb_shared *)shared_memory;
    CHECK_EQ(htb_shared_init(shared, htb_shared_memsize(&config) - 1, &config), QOS_EMEMORY);
    CHECK_EQ(
        htb_shared_init((struct htb_shared *)(void *)((char *)shared_memory + 8), htb_shared_memsize(&config), &config),
        QOS_EALIGN);
    CHECK_EQ(htb_shared_init(shared, htb_shared_memsize(&config), &config), QOS_OK);
}

static void open_shared(uint32_t trees, uint32_t classes)
{
    open_shared_every(0, trees, classes);
}

/* Two trees with class 1. */
static void open_pair(uint64_t interval_ns, const struct htb_config *config, const struct htb_class *c)
{
    unsigned k;
    open_shared_every(interval_ns, 2, 8);
    for (k = 0; k < 2; k++) {
        world_open(&w[k], config);
        CHECK_EQ(htb_reserve(&w[k].tree, 0, 1, c, NULL), QOS_OK);
        CHECK_EQ(htb_join(&w[k].tree, 0, shared, k), QOS_OK);
    }
}

static void joining(void)
{
    struct htb_config config = world_config();
    struct htb_class_state state;
    static struct htb_request request;
    struct htb_class c;
    uint64_t fits[HTB_RESOURCES_MAX], rate[HTB_RESOURCES_MAX] = {2000000, 0, 0, 0}, now;
    open_shared(2, 8);
    world_open(&w[0], &config);
    world_open(&w[1], &config);
    world_draw(&w[0]);
    CHECK_EQ(htb_exchange(&w[0].tree, 0), QOS_NEVER);
    CHECK_EQ(htb_join(&w[0].tree, 0, NULL, 0), QOS_EINVAL);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 2), QOS_ENOENT);
    CHECK(world_same(&w[0]));
    request.tokens[0] = 10;
    CHECK_EQ(htb_submit(&w[0].tree, 0, &request), QOS_OK);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 0), QOS_EINVAL); /* something is queued */
    CHECK_EQ(htb_cancel(&w[0].tree, 0, &request), QOS_OK);
    reserve(&w[0], 1, 0, 400000, 600000, 0);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 0), QOS_OK);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 1), QOS_EINVAL);
    CHECK_EQ(htb_join(&w[1].tree, 0, shared, 1), QOS_OK);
    reserve(&w[1], 1, 0, 400000, 600000, 0);
    /* The terms are those of all trees; admission too. */
    CHECK_EQ(htb_class_info(&w[1].tree, 1, &state), QOS_OK);
    CHECK(state.terms.rate_per_s[0] == 400000 && state.terms.limit_per_s[0] == 600000);
    c = class_of(0, 600001, 0);
    CHECK_EQ(htb_reserve(&w[0].tree, 0, 2, &c, fits), QOS_EADMISSION);
    CHECK_EQ(fits[0], 600000);
    c.rate_per_s[0] = 600000;
    c.limit_per_s[0] = QOS_NOTHING;
    CHECK_EQ(htb_reserve(&w[0].tree, 0, 2, &c, NULL), QOS_ERANGE);
    c.limit_per_s[0] = 0;
    CHECK_EQ(htb_reserve(&w[0].tree, 0, 2, &c, NULL), QOS_OK);
    CHECK_EQ(info_of(&w[0].tree).reserved_per_s[0], 1000000);
    CHECK_EQ(htb_change_root(&w[0].tree, 0, rate), QOS_OK);
    c.rate_per_s[0] = 1600000;
    CHECK_EQ(htb_change(&w[0].tree, 0, 2, &c, NULL), QOS_OK);
    CHECK_EQ(htb_release(&w[0].tree, 0, 2), QOS_OK);
    CHECK_EQ(info_of(&w[0].tree).reserved_per_s[0], 400000);
    CHECK_EQ(htb_maximize(&w[0].tree, S, true), HTB_UNCAPPED);
    /* Each tree has half of the rates: of 400,000, and of the root's 2,000,000. Then tree 0 has all the demand. */
    CHECK_EQ(drain(&w[0], 1, 100, S), 3000); /* 10 ms of its half of the limit */
    for (now = S; now < 2 * S; now += MS) {
        (void)drain(&w[0], 1, 100, now);
        CHECK_GE(htb_exchange(&w[0].tree, now), now + 1);
        (void)htb_exchange(&w[1].tree, now);
    }
    fits[0] = stats_of(&w[0], 1).granted;
    for (; now < 3 * S; now += MS) {
        (void)drain(&w[0], 1, 100, now);
        (void)htb_exchange(&w[0].tree, now);
        (void)htb_exchange(&w[1].tree, now);
    }
    CHECK_WITHIN((double)(stats_of(&w[0], 1).granted - fits[0]), 590000, 600001);  /* the limit, whole */
    CHECK_EQ(htb_next_ns(&w[1].tree, now, 1, 100), htb_exchange(&w[1].tree, now)); /* no token of it is there */
    /* After a crash, a new tree in the same slot has the tokens of the old one. */
    world_close(&w[0]);
    config.start_ns = now;
    config.rate_per_s[0] = 2000000;
    world_open(&w[0], &config);
    reserve(&w[0], 1, 0, 400000, 600000, now);
    CHECK_EQ(htb_join(&w[0].tree, now, shared, 0), QOS_OK);
    CHECK_EQ(drain(&w[0], 1, 100, now + S), 6000);
    world_close(&w[0]);
    world_close(&w[1]);
    config.classes = 9;
    world_open(&w[0], &config);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 0), QOS_EINVAL); /* another number of classes */
    world_close(&w[0]);
}

/* After a wrong time, htb_reset_clock: the exchanges go on at once, so demand that moved takes its limit along. */
static void one_wrong_time(void)
{
    const struct htb_config config = world_config();
    const struct htb_class c = class_of(0, 400000, 600000);
    uint64_t before = 0, now;
    open_pair(0, &config, &c);
    (void)htb_exchange(&w[0].tree, 3600 * S);
    htb_reset_clock(&w[0].tree, MS);
    CHECK_LE(htb_exchange(&w[0].tree, S), 2 * S);
    for (now = S; now < 3 * S; now += MS) {
        if (now == 2 * S)
            before = stats_of(&w[0], 1).granted;
        (void)drain(&w[0], 1, 100, now);
        (void)htb_exchange(&w[0].tree, now);
        (void)htb_exchange(&w[1].tree, now);
    }
    CHECK_WITHIN((double)(stats_of(&w[0], 1).granted - before), 590000, 600001);
    world_close(&w[0]);
    world_close(&w[1]);
}

/* Both trees ask for class 1, and the clock of one is set anew each 50 ms: the other keeps its half. What one serves in
 * the instant after that is not what it serves in an interval. */
static void clock_set_anew(void)
{
    const struct htb_config config = world_config();
    const struct htb_class c = class_of(0, 400000, 400000);
    uint64_t now;
    unsigned k;
    open_pair(0, &config, &c);
    for (now = 0; now < 2 * S; now += MS / 2)
        for (k = 0; k < 2; k++) {
            if (k == 0 && now % (50 * MS) == 0)
                htb_reset_clock(&w[k].tree, now);
            (void)htb_exchange(&w[k].tree, now);
            (void)drain(&w[k], 1, 100, now);
        }
    CHECK_GE(stats_of(&w[1], 1).granted, 2 * 180000);
    world_close(&w[0]);
    world_close(&w[1]);
}

/* Bytes and operations. The rates of the root fall to a half while requests wait in tree 0. When they are served, they are
 * no demand any more: tree 1, which asks alone for class 1, has its rate. */
static void root_changes_while_requests_wait(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 400000, 400000);
    static const uint64_t half[HTB_RESOURCES_MAX] = {500000, 500, 0, 0}, n[HTB_RESOURCES_MAX] = {1000, 1, 0, 0};
    static struct htb_request request[8];
    struct htb_request *r;
    uint64_t now, got = 0;
    unsigned k, done = 0;
    config.resources = 2;
    config.rate_per_s[1] = 1000;
    c.rate_per_s[1] = 400;
    open_pair(0, &config, &c);
    memset(request, 0, sizeof request);
    for (k = 0; k < 8; k++) {
        request[k].class_id = 1;
        memcpy(request[k].tokens, n, sizeof n);
        CHECK_EQ(htb_submit(&w[0].tree, 0, &request[k]), QOS_OK);
    }
    for (k = 0; k < 2; k++)
        CHECK_EQ(htb_change_root(&w[k].tree, 0, half), QOS_OK);
    for (now = 0; now < 2 * S; now += MS) {
        for (k = 0; k < 2; k++)
            (void)htb_exchange(&w[k].tree, now);
        for (; (r = htb_dispatch(&w[0].tree, now)) != NULL; done++)
            CHECK_EQ(htb_complete(&w[0].tree, now, HTB_DONE, NULL, r), QOS_OK);
        while (now > S && htb_take_all(&w[1].tree, now, 1, n) == QOS_OK)
            got += n[0];
    }
    CHECK_EQ(done, 8);
    CHECK_GE(got, 360000);
    world_close(&w[0]);
    world_close(&w[1]);
}

/* Two resources, 1.8e10 tokens in an interval: who begins to ask has its half within three intervals. */
static void much_in_an_interval(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, UINT64_C(922337203700), UINT64_C(922337203700));
    static const uint64_t n[HTB_RESOURCES_MAX] = {200000000, 0, 0, 0};
    uint64_t now, got[2] = {0, 0};
    unsigned k;
    config.resources = 2;
    config.rate_per_s[0] = config.rate_per_s[1] = UINT64_C(1) << 40;
    config.request_max_tokens = 0;
    open_pair(20 * MS, &config, &c);
    for (now = 0; now < S; now += MS / 2)
        for (k = 0; k < 2; k++) {
            (void)htb_exchange(&w[k].tree, now);
            while ((k == 0 || now >= S / 2) && htb_take_all(&w[k].tree, now, 1, n) == QOS_OK)
                got[k] += now >= S / 2 + 60 * MS && now < S / 2 + 100 * MS ? n[0] : 0;
        }
    CHECK_WITHIN((double)got[1] / (double)got[0], 0.8, 1.25);
    world_close(&w[0]);
    world_close(&w[1]);
}

static pthread_barrier_t barrier;
static uint64_t granted[TREES][STEPS];

/* Exchanges; then a request of this class is at the device for device_ns. */
static void serve(struct world *one, uint64_t now_ns, uint32_t id, uint64_t device_ns)
{
    static struct htb_request request;
    (void)htb_exchange(&one->tree, now_ns);
    memset(&request, 0, sizeof request);
    request.class_id = id;
    request.tokens[0] = 10;
    CHECK_EQ(htb_submit(&one->tree, now_ns, &request), QOS_OK);
    CHECK(htb_dispatch(&one->tree, now_ns) == &request);
    CHECK_EQ(htb_complete(&one->tree, now_ns + device_ns, HTB_DONE, NULL, &request), QOS_OK);
}

/* The first tree that joins sees no lateness of others, whatever was in the memory. It sees that of a tree that
 * exchanges, and forgets it soon after that tree's last exchange. */
static void others_are_late(void)
{
    struct htb_config config = world_config();
    uint64_t now, until, bound_ns, least_ns = UINT64_MAX;
    config.bound = HTB_BY_FLIGHT;
    config.burst_ns = 1; /* one ns late is late */
    open_shared(3, 8);
    world_open(&w[0], &config);
    reserve(&w[0], 1, 0, 400000, 0, 0);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 0), QOS_OK);
    bound_ns = info_of(&w[0].tree).flight_bound_ns;
    for (now = 1; now < 500 * MS; now += MS)
        serve(&w[0], now, 0, 0);
    CHECK_EQ(info_of(&w[0].tree).flight_bound_ns, bound_ns);
    world_open(&w[1], &config);
    CHECK_EQ(htb_join(&w[1].tree, now, shared, 1), QOS_OK);
    reserve(&w[1], 1, 0, 400000, 0, now);
    for (until = now + 2000 * MS; now < until; now += MS) {
        serve(&w[1], now, 1, MS / 2);
        serve(&w[0], now, 0, 0);
        least_ns = qos_min(least_ns, info_of(&w[0].tree).flight_bound_ns);
    }
    CHECK_GE(bound_ns - 1, least_ns);
    for (until = now + 1000 * MS; now < until; now += MS)
        serve(&w[0], now, 0, 0);
    CHECK(info_of(&w[0].tree).flight_by == 8 ||
          info_of(&w[0].tree).flight_by == QOS_NONE); /* for no class of its own */
    world_close(&w[1]);
    world_close(&w[0]);
}

/* A part that grows shortens the lead of its class's turn, to the ns: the same tokens take less time. */
static void lead_of_a_part_that_grows(void)
{
    struct htb_config config = world_config();
    static struct htb_request request[3];
    uint64_t now, lead = 2003;
    unsigned i;
    config.rate_per_s[0] = 4 * S;
    open_shared(2, 8);
    for (i = 0; i < 2; i++) {
        world_open(&w[i], &config);
        reserve(&w[i], 1, 0, S, 0, 0); /* in each tree half of it: 2 ns a token */
        reserve(&w[i], 2, 0, S, 0, 0);
        CHECK_EQ(htb_join(&w[i].tree, 0, shared, i), QOS_OK);
    }
    memset(request, 0, sizeof request);
    for (i = 0; i < 3; i++) {
        request[i].class_id = 1 + i % 2;
        request[i].tokens[0] = i == 0 ? 4000000 : i == 1 ? 501 : 1; /* 8 ms; 1,002 ns; 1 ns */
    }
    CHECK_EQ(htb_submit(&w[0].tree, S, &request[0]), QOS_OK);
    CHECK(htb_dispatch(&w[0].tree, S) == &request[0]);
    (void)htb_exchange(&w[0].tree, S);
    (void)htb_exchange(&w[1].tree, S); /* it wants nothing: gives its parts away */
    now = S + 8 * MS - lead;
    (void)htb_exchange(&w[0].tree, now); /* takes them: 1 ns a token, so a lead of 2,003 ns becomes one of 1,002 */
    CHECK_EQ(htb_submit(&w[0].tree, now, &request[1]), QOS_OK);
    CHECK_EQ(htb_submit(&w[0].tree, now, &request[2]), QOS_OK);
    CHECK(htb_dispatch(&w[0].tree, now) == &request[1]);
    CHECK(htb_dispatch(&w[0].tree, now) == &request[2]);
    world_close(&w[0]);
    world_close(&w[1]);
}

/* Three borrowers in tree 0, one in tree 1, from S on: each gets a quarter. Before S tree 1 had all of the root's
 * tokens: the others get their shares although none of their takes has passed yet. */
static void borrowers(void)
{
    struct htb_config config = world_config();
    uint64_t now, before[2] = {0, 0}, turn = 0;
    uint32_t id, i;
    open_shared(2, 8);
    for (i = 0; i < 2; i++) {
        world_open(&w[i], &config);
        for (id = 1; id <= 4; id++)
            reserve(&w[i], id, 0, 0, 0, 0);
        CHECK_EQ(htb_join(&w[i].tree, 0, shared, i), QOS_OK);
    }
    for (now = MS; now < 4 * S; now += MS) {
        if (now == 3 * S)
            for (i = 0; i < 2; i++)
                before[i] = stats_of(&w[i], QOS_NONE).granted;
        for (i = 0; i < 3 && now >= S; i++)
            (void)drain(&w[0], 1 + (uint32_t)(turn + i) % 3, 50, now);
        turn++;
        (void)drain(&w[1], 4, 50, now);
        (void)htb_exchange(&w[0].tree, now);
        (void)htb_exchange(&w[1].tree, now);
    }
    for (i = 0; i < 2; i++)
        CHECK_WITHIN((double)(stats_of(&w[i], QOS_NONE).granted - before[i]), i ? 240000 : 720000, i ? 265000 : 760000);
    for (i = 0; i < 2; i++)
        world_close(&w[i]);

    /* A tree keeps no tokens of the root for a class that is refused at its own limit. */
    open_shared(2, 8);
    for (i = 0; i < 2; i++) {
        world_open(&w[i], &config);
        reserve(&w[i], 1, 0, 0, 10000, 0);
        reserve(&w[i], 2, 0, 0, 0, 0);
        CHECK_EQ(htb_join(&w[i].tree, 0, shared, i), QOS_OK);
    }
    for (now = MS; now < 3 * S; now += MS) {
        if (now == 2 * S)
            before[1] = stats_of(&w[1], 2).granted;
        (void)drain(&w[0], 1, 5, now);
        (void)drain(&w[1], 2, 50, now);
        (void)htb_exchange(&w[0].tree, now);
        (void)htb_exchange(&w[1].tree, now);
    }
    CHECK_WITHIN((double)(stats_of(&w[1], 2).granted - before[1]), 970000, 990000);
    for (i = 0; i < 2; i++)
        world_close(&w[i]);
}

/* A step is 5 ms of simulated time. All threads run through it together, as fast as they can. */
static void *run(void *arg)
{
    const uint32_t k = (uint32_t)(uintptr_t)arg;
    uint64_t step, now, sum = 0;
    for (step = 0; step < STEPS; step++) {
        pthread_barrier_wait(&barrier);
        for (now = step * 5 * MS; now < (step + 1) * 5 * MS; now += MS / 4) {
            (void)htb_exchange(&w[k].tree, now);
            if (step / 16 % TREES != k) /* each tree is idle in turn */
                sum += drain(&w[k], 1, 50, now);
            (void)drain(&w[k], 2, 50, now);
        }
        granted[k][step] = sum;
    }
    return NULL;
}

static void threads(uint32_t trees)
{
    struct htb_config config = world_config();
    pthread_t thread[TREES];
    uint64_t most = 0, step;
    double lowest = 0, at;
    uint32_t k;
    CHECK_CONTEXT("%u threads", trees);
    open_shared(trees, 8);
    config.rate_per_s[0] = 10 * LIMIT;
    for (k = 0; k < trees; k++) {
        world_open(&w[k], &config);
        reserve(&w[k], 1, 0, LIMIT / 2, LIMIT, 0);
        reserve(&w[k], 2, 0, LIMIT, 0, 0);
        CHECK_EQ(htb_join(&w[k].tree, 0, shared, k), QOS_OK);
    }
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, trees), 0);
    for (k = 0; k < trees; k++)
        CHECK_EQ(pthread_create(&thread[k], NULL, run, (void *)(uintptr_t)k), 0);
    for (k = 0; k < trees; k++)
        CHECK_EQ(pthread_join(thread[k], NULL), 0);
    for (step = 0; step < STEPS; step++) { /* in every window of whole steps */
        for (k = 0, most = 0; k < trees; k++)
            most += granted[k][step];
        at = (double)most - (double)LIMIT * (double)(step + 1) / 200;
        lowest = at < lowest ? at : lowest;
        CHECK_WITHIN(at - lowest, 0, (double)(trees * (LIMIT / 100 + 50) + LIMIT / 200));
    }
    if (trees > 1) /* every 16 steps demand moves: one tree becomes idle, one busy; a move costs at most 3 intervals */
        CHECK_GE(most + (uint64_t)LIMIT / 200 * 3 * 2 * (STEPS / 16), (uint64_t)LIMIT / 200 * STEPS);
    for (k = 0; k < trees; k++)
        world_close(&w[k]);
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
}

/* Class 1 has rate and limit `rate`, on a root of 10,000/s. Tree 0 asks, or all do, each time until it is refused. With
 * more slots than trees these join one after the other, seconds apart; the other slots stay without a tree. */
static void any_rate(uint32_t trees, uint32_t slots, uint64_t rate, bool all)
{
    struct htb_config config = world_config();
    const uint64_t end_ns = 20 * S;
    uint64_t now, got = 0;
    uint32_t k;
    CHECK_CONTEXT("%u trees, %u slots, rate %" PRIu64 ", demand in all %d", trees, slots, rate, all);
    config.rate_per_s[0] = 10000;
    config.request_max_tokens = 0;
    open_shared(slots, 8);
    for (k = 0; k < trees; k++) {
        world_open(&many[k], &config);
        reserve(&many[k], 1, 0, rate, rate, 0);
    }
    for (now = 0; now < end_ns; now += 5 * MS)
        for (k = 0; k < trees && now >= k * (slots - trees) * S; k++) {
            if (now == k * (slots - trees) * S)
                CHECK_EQ(htb_join(&many[k].tree, now, shared, k), QOS_OK);
            (void)htb_exchange(&many[k].tree, now);
            got += k == 0 || all ? drain(&many[k], 1, 1, now) : 0;
        }
    /* Promised: R less N / 256 of it; at most L * t, a request and a bucket of each tree. */
    CHECK_GE(got + 1 + rate * 20 * trees / 256, rate * 20);
    CHECK_LE(got, rate * 20 + trees + rate / 50 + 1);
    for (k = 0; k < trees; k++)
        world_close(&many[k]);
}

/* Class 1 waits in tree 0 alone, class 2 in all trees; both borrow, with one weight. Fair is a half each: a weight counts
 * once over all trees, not in each. */
static void weights_over_trees(uint32_t trees)
{
    static struct htb_request request[MOST_TREES][2][64];
    struct htb_config config = world_config();
    uint64_t now, got[3] = {0, 0, 0};
    uint32_t k, i, id;
    CHECK_CONTEXT("%u trees", trees);
    config.rate_per_s[0] = 20000;
    config.request_max_tokens = 0;
    config.order = HTB_FIFO;
    memset(request, 0, sizeof request);
    open_shared(trees, 8);
    for (k = 0; k < trees; k++) {
        world_open(&many[k], &config);
        reserve(&many[k], 1, 0, 0, 0, 0);
        reserve(&many[k], 2, 0, 0, 0, 0);
        CHECK_EQ(htb_join(&many[k].tree, 0, shared, k), QOS_OK);
        for (id = k == 0 ? 1 : 2; id <= 2; id++)
            for (i = 0; i < 64; i++) {
                request[k][id - 1][i].class_id = id;
                request[k][id - 1][i].tokens[0] = 1;
                CHECK_EQ(htb_submit(&many[k].tree, 0, &request[k][id - 1][i]), QOS_OK);
            }
    }
    for (now = 0; now < 8 * S; now += S / 2000)
        for (k = 0; k < trees; k++) {
            struct htb_request *r;
            (void)htb_exchange(&many[k].tree, now);
            while ((r = htb_dispatch(&many[k].tree, now)) != NULL) {
                got[r->class_id] += now >= 2 * S;
                CHECK_EQ(htb_complete(&many[k].tree, now, HTB_DONE, NULL, r), QOS_OK);
                CHECK_EQ(htb_submit(&many[k].tree, now, r), QOS_OK);
            }
        }
    CHECK_WITHIN((double)got[1] / (double)(got[1] + got[2]), 0.43, 0.53);
    for (k = 0; k < trees; k++)
        world_close(&many[k]);
}

/* The same at the gate: a tenant in each of two trees takes until it is refused and asks again at the time told. Who is
 * away until then wants nothing at the exchanges between: it is told of the next one. */
static void gates_of_two_trees(uint64_t size, uint64_t other)
{
    const uint64_t n[2] = {size, other};
    struct htb_config config = world_config();
    uint64_t now = 0, next, got[2] = {0, 0}, told[2] = {0, 0};
    uint32_t k;
    CHECK_CONTEXT("requests of %llu and %llu", (unsigned long long)size, (unsigned long long)other);
    config.rate_per_s[0] = 40000000;
    config.request_max_tokens = 0;
    open_shared(2, 8);
    for (k = 0; k < 2; k++) {
        world_open(&many[k], &config);
        reserve(&many[k], 1, 0, 0, 0, 0);
        reserve(&many[k], 2, 0, 0, 0, 0);
        CHECK_EQ(htb_join(&many[k].tree, 0, shared, k), QOS_OK);
    }
    for (; now < 4 * S; now = next) {
        for (k = 0, next = QOS_NEVER; k < 2; k++) {
            next = qos_min(next, htb_exchange(&many[k].tree, now));
            while (told[k] <= now && htb_take(&many[k].tree, now, k + 1, n[k]) == QOS_OK)
                got[k] += now >= S ? n[k] : 0;
            if (told[k] <= now)
                told[k] = htb_next_ns(&many[k].tree, now, k + 1, n[k]);
            next = qos_min(next, told[k]);
        }
        CHECK(next > now);
    }
    CHECK_WITHIN((double)got[0] / (double)(got[0] + got[1]), 0.47, 0.53);
    CHECK_GE(got[0] + got[1], 3 * 38000000);
    for (k = 0; k < 2; k++)
        world_close(&many[k]);
}

/* Two tenants of tree 0 come back for whole bursts each, while most of the device is lent in tree 1: they are told of the
 * next exchange. So when all of these are gone, their claims end soon, not when what tree 0 had then has brought them. */
static void claims_of_a_small_part(void)
{
    static const uint64_t n[4] = {400000, 400000, 65536, 4096}, from[4] = {0, 0, S, 2 * S},
                          to[4] = {2 * S - 2 * MS, 2 * S - 2 * MS, 2 * S, 3 * S};
    struct htb_config config = world_config();
    struct htb_class heavy = class_of(0, 0, 0);
    uint64_t now, got[4] = {0}, told[4] = {0};
    uint32_t k, i;
    config.rate_per_s[0] = 40000000;
    config.request_max_tokens = 0;
    heavy.weight = 100000;
    open_shared(2, 8);
    for (k = 0; k < 2; k++) {
        world_open(&many[k], &config);
        for (i = 0; i < 4; i++)
            if (i == 2)
                CHECK_EQ(htb_reserve(&many[k].tree, 0, i + 1, &heavy, NULL), QOS_OK);
            else
                reserve(&many[k], i + 1, 0, 0, 0, 0);
        CHECK_EQ(htb_join(&many[k].tree, 0, shared, k), QOS_OK);
    }
    for (now = 0; now < 3 * S; now += MS / 10)
        for (i = 0; i < 4; i++) {
            struct htb *tree = &many[i == 2].tree;
            (void)htb_exchange(tree, now);
            if (now < from[i] || now >= to[i] || told[i] > now)
                continue;
            while (htb_take(tree, now, i + 1, n[i]) == QOS_OK)
                got[i] += n[i];
            told[i] = htb_next_ns(tree, now, i + 1, n[i]);
        }
    CHECK_GE(got[2], 32000000);
    CHECK_GE(got[3], 34000000);
    for (k = 0; k < 2; k++)
        world_close(&many[k]);
}

/* Tenants without a rate, of weights 1 and 4, take in each of three trees until they are refused, and ask again at the
 * time told. Each tenant gets what its weight is of all, and of that at least three fifths of an even part in each tree. */
static void greedy_in_all_trees(uint32_t weight)
{
    enum { IDS = 6, ALL = 3 };
    static const uint64_t n[IDS] = {4096, 65536, 1048576, 4096, 65536, 1048576};
    struct htb_config config = world_config();
    uint64_t now = 0, next, sum = 0, got[IDS][ALL] = {{0}}, told[IDS][ALL] = {{0}};
    uint32_t k, i;
    CHECK_CONTEXT("weights 1 and %u", (unsigned)weight);
    config.rate_per_s[0] = 100000000;
    config.request_max_tokens = 0;
    open_shared(ALL, 8);
    for (k = 0; k < ALL; k++) {
        world_open(&many[k], &config);
        for (i = 0; i < IDS; i++) {
            struct htb_class c = class_of(0, 0, 0);
            c.weight = i < IDS / 2 ? 1 : weight;
            CHECK_EQ(htb_reserve(&many[k].tree, 0, i + 1, &c, NULL), QOS_OK);
        }
        CHECK_EQ(htb_join(&many[k].tree, 0, shared, k), QOS_OK);
    }
    for (; now < 8 * S; now = next) {
        for (k = 0, next = QOS_NEVER; k < ALL; k++) {
            next = qos_min(next, htb_exchange(&many[k].tree, now));
            for (i = 0; i < IDS; i++) {
                while (told[i][k] <= now && htb_take(&many[k].tree, now, i + 1, n[i]) == QOS_OK)
                    got[i][k] += now >= S ? n[i] : 0;
                if (told[i][k] <= now)
                    told[i][k] = htb_next_ns(&many[k].tree, now, i + 1, n[i]);
                next = qos_min(next, told[i][k]);
            }
        }
        CHECK(next > now);
    }
    for (i = 0; i < IDS; i++) {
        const double part = (i < IDS / 2 ? 1.0 : weight) / (3.0 * (1 + weight));
        const uint64_t all = got[i][0] + got[i][1] + got[i][2];
        CHECK_WITHIN((double)all / (7 * 100e6) / part, 0.85, 1.15);
        for (k = 0; k < ALL; k++)
            CHECK_GE(got[i][k], all / 5);
        sum += all;
    }
    CHECK_GE(sum, 7 * UINT64_C(97000000));
    for (k = 0; k < ALL; k++)
        world_close(&many[k]);
}

/* Four trees and five classes that all want what they can get. Class 5 takes of its own tokens in requests of half an
 * interval of the root: what trees 1 and 2 serve goes up and down. They get the parts for it, so that the root has no debt
 * there, and above the reservations all get their weights' parts: classes 1 to 4 about 0.099 of the root each. */
static void large_own_requests(void)
{
    enum { IDS = 5 };
    static const uint64_t rate[IDS] = {50600, 0, 321310, 0, 819720}, n[IDS] = {10, 3536, 36, 681, 6641};
    static const bool in[IDS][TREES] = {{false, false, true, true},
                                        {false, true},
                                        {false, false, false, true},
                                        {true, true, true, true},
                                        {false, true, true}};
    struct htb_config config = world_config();
    uint64_t now = 0, next, all = 0, got[IDS] = {0}, told[IDS][TREES], exchange[TREES];
    uint32_t k, i;
    config.rate_per_s[0] = 2530000;
    config.request_max_tokens = 0;
    open_shared(TREES, 8);
    memset(told, 0, sizeof told);
    for (k = 0; k < TREES; k++) {
        exchange[k] = 1 + k * UINT64_C(1100000);
        world_open(&w[k], &config);
        for (i = 0; i < IDS; i++) {
            struct htb_class c = class_of(0, rate[i], i == 1 ? 551540 : 0);
            c.weight = i == 4 ? 4 : 3;
            CHECK_EQ(htb_reserve(&w[k].tree, 0, 1 + i, &c, NULL), QOS_OK);
        }
        CHECK_EQ(htb_join(&w[k].tree, 0, shared, k), QOS_OK);
    }
    for (; now < 5 * S; now = qos_max(next, now + 1))
        for (k = 0, next = QOS_NEVER; k < TREES; k++) {
            const bool again = exchange[k] <= now;
            exchange[k] = htb_exchange(&w[k].tree, now);
            next = qos_min(next, exchange[k]);
            for (i = 0; i < IDS; i++) {
                if (!in[i][k])
                    continue;
                while ((again || told[i][k] <= now) && htb_take(&w[k].tree, now, 1 + i, n[i]) == QOS_OK)
                    got[i] += now >= S ? n[i] : 0;
                if (again || told[i][k] <= now)
                    told[i][k] = htb_next_ns(&w[k].tree, now, 1 + i, n[i]);
                next = qos_min(next, told[i][k]);
            }
        }
    for (i = 0; i < IDS; i++) {
        CHECK_CONTEXT("class %u", 1 + i);
        all += got[i];
        CHECK_WITHIN(((double)got[i] / 4 - (double)rate[i]) / (double)config.rate_per_s[0], 0.085,
                     i == 4 ? 0.14 : 0.115);
    }
    CHECK_GE((double)all / 4, 0.96 * (double)config.rate_per_s[0]);
    for (k = 0; k < TREES; k++)
        world_close(&w[k]);
}

/* A third of the time of a tree, looked at every few ns: nothing of it is lost, and the time told is exact. */
static void part_of_the_time(void)
{
    struct htb_config config = world_config();
    uint64_t now = 0, got = 0, told;
    uint32_t i;
    config.rate_per_s[0] = S;
    open_shared(3, 8);
    world_open(&w[0], &config);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 0), QOS_OK);
    for (now = 1; now < 300001; now += 1 + now % 3)
        got += drain(&w[0], 0, 1, now);
    CHECK_WITHIN((double)got, 99998, 100001);
    for (i = 1; i < 2000; i++) {
        (void)drain(&w[0], 0, 1, now);
        told = htb_next_ns(&w[0].tree, now, 0, i);
        CHECK_EQ(htb_take(&w[0].tree, told - 1, 0, i), QOS_EAGAIN);
        CHECK_EQ(htb_next_ns(&w[0].tree, told - 1, 0, i), told);
        CHECK_EQ(htb_take(&w[0].tree, told, 0, i), QOS_OK);
        now = told + i % 7;
    }
    world_close(&w[0]);
}

/* A class that borrows from its group in tree 0, and moves away from there before the exchange: the group above has no
 * demand left in tree 0, so tree 1 keeps the tokens of that. */
static void a_move_before_the_exchange(void)
{
    struct htb_config config = world_config();
    const uint64_t n[HTB_RESOURCES_MAX] = {100, 0, 0, 0};
    struct htb_class c;
    uint64_t now;
    uint32_t k, id;
    open_shared(2, 8);
    for (k = 0; k < 2; k++) {
        world_open(&w[k], &config);
        for (id = 1; id <= 2; id++) { /* 2 is below 1 */
            c = class_of(id - 1, 200000, 200000);
            c.group = true;
            CHECK_EQ(htb_reserve(&w[k].tree, 0, id, &c, NULL), QOS_OK);
        }
        reserve(&w[k], 3, 2, 0, 0, 0);
        reserve(&w[k], 4, 1, 0, 0, 0);
        CHECK_EQ(htb_join(&w[k].tree, 0, shared, k), QOS_OK);
    }
    for (now = MS; now < 2 * S; now += MS) {
        if (now == S) {
            CHECK_EQ(htb_force(&w[0].tree, now, 3, n), QOS_OK);
            c = class_of(0, 0, 0);
            CHECK_EQ(htb_change(&w[0].tree, now, 3, &c, NULL), QOS_OK);
        }
        (void)drain(&w[1], 4, 50, now);
        (void)htb_exchange(&w[0].tree, now);
        (void)htb_exchange(&w[1].tree, now);
    }
    CHECK_GE(stats_of(&w[1], 4).granted, 200000 * 2 * 95 / 100);
    for (k = 0; k < 2; k++)
        world_close(&w[k]);
}

/* htb_take by its short path, and htb_take_all, which has none: two pairs of trees that are asked the same stay the
 * same, in what passes and in the parts that they hold. */
static void both_paths(void)
{
    enum { PAIRS = 2, IDS = 7 };
    struct htb_config config = world_config();
    uint64_t now = 0, n[HTB_RESOURCES_MAX] = {0, 0, 0, 0}, passed = 0, round;
    struct htb_shared *both[PAIRS];
    void *memory[PAIRS];
    struct check_rng rng;
    uint32_t p, k, id;
    check_rng_init(&rng, 1);
    config.request_max_tokens = 0;
    for (p = 0; p < PAIRS; p++) {
        open_shared(2, 8);
        both[p] = shared;
        memory[p] = shared_memory;
        shared_memory = NULL;
        for (k = 0; k < 2; k++) {
            world_open(&many[2 * p + k], &config);
            for (id = 1; id <= 2; id++) {
                struct htb_class c = class_of(0, 400000, 0);
                c.group = true;
                CHECK_EQ(htb_reserve(&many[2 * p + k].tree, 0, id, &c, NULL), QOS_OK);
            }
            for (id = 3; id <= IDS; id++)
                reserve(&many[2 * p + k], id, id / 3, id * 10000, 0, 0);
            CHECK_EQ(htb_join(&many[2 * p + k].tree, 0, both[p], k), QOS_OK);
        }
    }
    for (round = 0; round < 40000; round++) {
        now += check_between(&rng, 0, 100000);
        k = (uint32_t)check_between(&rng, 0, 3) == 0;
        id = (uint32_t)check_between(&rng, round % 10000 < 5000 ? 3 : 5, IDS);
        n[0] = check_between(&rng, 0, 150);
        for (p = 0; p < 2 * PAIRS && round % 1000 == 999; p++) { /* another class of this id */
            CHECK_EQ(htb_release(&many[p].tree, now, IDS), QOS_OK);
            reserve(&many[p], IDS, 2, IDS * 10000, 0, 0);
        }
        for (p = 0; p < PAIRS; p++) {
            (void)htb_exchange(&many[2 * p].tree, now);
            (void)htb_exchange(&many[2 * p + 1].tree, now);
        }
        passed += htb_take(&many[k].tree, now, id, n[0]) == QOS_OK;
        (void)!htb_take_all(&many[2 + k].tree, now, id, n);
        CHECK_EQ(stats_of(&many[k], id).granted, stats_of(&many[2 + k], id).granted);
        CHECK_EQ(stats_of(&many[k], id).borrowed, stats_of(&many[2 + k], id).borrowed);
        CHECK_EQ(info_of(&many[k].tree).rate_per_s[0], info_of(&many[2 + k].tree).rate_per_s[0]);
        id = (uint32_t)check_between(&rng, 3, IDS);
        CHECK_EQ(htb_next_ns(&many[k].tree, now, id, 1000), htb_next_ns(&many[2 + k].tree, now, id, 1000));
    }
    CHECK_WITHIN((double)passed, 20000, 39000);
    for (p = 0; p < PAIRS; p++)
        free(memory[p]);
    for (k = 0; k < 2 * PAIRS; k++)
        world_close(&many[k]);
}

/* What buckets gained before a tree joins is there then: 10 ms, which is all that they hold. A clock that is set back
 * brings nothing: group 1 has what it gained in 2 ms. */
static void joins_with_its_tokens(void)
{
    struct htb_config config = world_config();
    struct htb_class group = class_of(0, 500000, 0);
    group.group = true;
    open_shared(1, 8);
    world_open(&w[0], &config);
    CHECK_EQ(htb_reserve(&w[0].tree, 0, 1, &group, NULL), QOS_OK);
    reserve(&w[0], 2, 1, 0, 0, 0);
    CHECK_EQ(htb_join(&w[0].tree, 10 * MS, shared, 0), QOS_OK);
    CHECK_EQ(drain(&w[0], 0, 1000, 10 * MS), 10000);
    CHECK_EQ(drain(&w[0], 2, 1000, 10 * MS), 5000);
    (void)htb_exchange(&w[0].tree, 12 * MS);
    htb_reset_clock(&w[0].tree, MS);
    CHECK_EQ(drain(&w[0], 2, 1000, MS), 1000);
    world_close(&w[0]);
}

/* What must not wait, in a tree that has no part of the root's rate: it has too much debt until exchanges give it one. */
static void force_without_a_part(void)
{
    struct htb_config config = world_config();
    uint64_t now, n[HTB_RESOURCES_MAX] = {100, 0, 0, 0};
    open_shared(2, 8);
    world_open(&w[0], &config);
    world_open(&w[1], &config);
    CHECK_EQ(htb_join(&w[0].tree, 0, shared, 0), QOS_OK);
    CHECK_EQ(htb_join(&w[1].tree, 0, shared, 1), QOS_OK);
    for (now = MS; now < S; now += MS) {
        (void)drain(&w[0], 1, 100, now);
        (void)htb_exchange(&w[0].tree, now);
        (void)htb_exchange(&w[1].tree, now);
    }
    CHECK_EQ(info_of(&w[1].tree).rate_per_s[0], 0);
    CHECK_EQ(htb_force(&w[1].tree, now, 0, n), QOS_EDEBT);
    for (; htb_force(&w[1].tree, now, 0, n) != QOS_OK && now < S + 50 * MS; now += MS) {
        (void)drain(&w[0], 1, 100, now);
        (void)htb_exchange(&w[1].tree, now);
        (void)htb_exchange(&w[0].tree, now);
    }
    CHECK_GE(S + 50 * MS - 1, now);
    world_close(&w[0]);
    world_close(&w[1]);
}

/* What tree 0 served before it joined, or for an earlier class of the id, is no demand: both trees that ask get a half,
 * within the 3 intervals that a move may cost. */
static void served_before(void)
{
    struct htb_config config = world_config();
    uint64_t now, until, got;
    uint32_t k, round;
    open_shared(2, 8);
    for (k = 0; k < 2; k++) {
        world_open(&w[k], &config);
        reserve(&w[k], 1, 0, 400000, 400000, 0);
    }
    for (now = MS; now < 100 * S; now += 10 * MS)
        (void)drain(&w[0], 1, 100, now);
    for (k = 0; k < 2; k++)
        CHECK_EQ(htb_join(&w[k].tree, now, shared, k), QOS_OK);
    for (round = 0; round < 2; round++) {
        for (until = now + 50 * MS, got = 0; now < until; now += MS) {
            (void)drain(&w[0], 1, 100, now);
            got += drain(&w[1], 1, 100, now);
            (void)htb_exchange(&w[0].tree, now);
            (void)htb_exchange(&w[1].tree, now);
        }
        CHECK_WITHIN((double)got, 0.7 * 10000, 1.3 * 10000);
        CHECK_EQ(htb_release(&w[0].tree, now, 1), QOS_OK);
        reserve(&w[0], 1, 0, 400000, 400000, now);
    }
    for (k = 0; k < 2; k++)
        world_close(&w[k]);
}

/* Tree k joins, with a class that has so many requests of 100 tokens. */
static void join_with(uint32_t k, const struct htb_config *config, struct htb_request *request, uint32_t requests)
{
    uint32_t i;
    world_open(&w[k], config);
    reserve(&w[k], 1, 0, 0, 0, 0);
    CHECK_EQ(htb_join(&w[k].tree, 0, shared, k), QOS_OK);
    for (i = 0; i < requests; i++) {
        memset(&request[i], 0, sizeof request[i]);
        request[i].class_id = 1;
        request[i].tokens[0] = 100;
        CHECK_EQ(htb_submit(&w[k].tree, 0, &request[i]), QOS_OK);
    }
}

/* By flight a tree stops while requests wait in it. The other's clock is not ahead of that one's: it lends as before. */
static void a_tree_stops(void)
{
    enum { MANY = 64 };
    static struct htb_request request[2][MANY];
    struct htb_config config = world_config();
    struct htb_request *r;
    uint64_t now, end_ns[2][MANY] = {{0}}, done = 0;
    double done_before = 0;
    uint32_t k, i;
    config.bound = HTB_BY_FLIGHT;
    open_shared(2, 8);
    for (k = 0; k < 2; k++)
        join_with(k, &config, request[k], MANY);
    for (now = 1; now < 4 * S; now += MS / 10)
        for (k = 0; k < (now < S ? 2u : 1u); k++) {
            (void)htb_exchange(&w[k].tree, now);
            for (i = 0; i < MANY; i++)
                if (end_ns[k][i] != 0 && end_ns[k][i] <= now) {
                    end_ns[k][i] = 0;
                    CHECK_EQ(htb_complete(&w[k].tree, now, HTB_DONE, NULL, &request[k][i]), QOS_OK);
                    CHECK_EQ(htb_submit(&w[k].tree, now, &request[k][i]), QOS_OK);
                    done += k == 0 && now > 3 * S;
                    done_before += k == 0 && now < S;
                }
            while ((r = htb_dispatch(&w[k].tree, now)) != NULL)
                end_ns[k][r - request[k]] = now + MS;
        }
    CHECK_WITHIN((double)done / done_before, 0.9, 1.1);
    for (k = 0; k < 2; k++)
        world_close(&w[k]);
}

/* By flight tree 0 has one place at the device, and requests of 10 ns that take 2 us: it holds less than its part, and the
 * bound that fits is below all that its logarithm can tell. The other tree's bound stays what a bound may be. */
static void few_places(void)
{
    enum { MANY = 128 };
    static struct htb_request request[2][MANY], *line[2 * MANY];
    struct htb_config config = world_config();
    uint64_t now, exchange = 0, first = 0, last = 0, bound_ns = 0;
    uint32_t k, refused = 0;
    struct htb_request *r;
    config.bound = HTB_BY_FLIGHT;
    config.order = HTB_FIFO;
    config.rate_per_s[0] = UINT64_C(10000000000);
    open_shared_every(100000, 2, 8);
    for (k = 0; k < 2; k++) {
        config.device_max = k == 0 ? 1 : 0;
        join_with(k, &config, request[k], MANY);
    }
    for (now = 1; now < S; now += 2000) {
        for (k = 0; k < 2; k++) {
            if (now >= exchange)
                (void)htb_exchange(&w[k].tree, now);
            while ((r = htb_dispatch(&w[k].tree, now)) != NULL)
                line[last++ % (2 * MANY)] = r;
        }
        if (now >= exchange) {
            exchange = now + 100000;
            bound_ns = qos_max(bound_ns, info_of(&w[1].tree).flight_bound_ns);
        }
        r = line[first++ % (2 * MANY)];
        k = r >= request[1] && r < request[1] + MANY;
        refused += htb_complete(&w[k].tree, now + 2000, HTB_DONE, NULL, r) != QOS_OK ||
                   htb_submit(&w[k].tree, now + 2000, r) != QOS_OK;
    }
    CHECK_EQ(refused, 0);
    CHECK_GE(S, bound_ns);
    for (k = 0; k < 2; k++)
        world_close(&w[k]);
}

static void one_thread(void)
{
    static const uint64_t rates[] = {1, 2, 3, 5, 10, 30, 100, 1000};
    uint32_t trees;
    size_t i;
    for (trees = 2; trees <= MOST_TREES; trees *= 2)
        for (i = 0; i < sizeof rates / sizeof *rates; i += check_state.scale < 20 ? 1 : 3) {
            any_rate(trees, trees, rates[i], false);
            any_rate(trees, trees, rates[i], true);
            any_rate(trees / 2, trees, rates[i], false);
            any_rate(trees / 2, trees, rates[i], true);
        }
    part_of_the_time();
    joins_with_its_tokens();
    force_without_a_part();
    served_before();
    a_tree_stops();
    few_places();
    both_paths();
    a_move_before_the_exchange();
    weights_over_trees(4);
    weights_over_trees(8);
    gates_of_two_trees(4096, 4096);
    gates_of_two_trees(65536, 65536);
    gates_of_two_trees(4096, 262144);
    claims_of_a_small_part();
    greedy_in_all_trees(1);
    greedy_in_all_trees(4);
    large_own_requests();
    joining();
    one_wrong_time();
    clock_set_anew();
    root_changes_while_requests_wait();
    much_in_an_interval();
    others_are_late();
    lead_of_a_part_that_grows();
    borrowers();
}

int main(void)
{
    check_begin("unit/htb_trees");
    if (!getenv("QOS_TEST_THREADS"))
        one_thread();
    threads(1);
    threads(2);
    threads(4);
    free(shared_memory);
    return check_end();
}
