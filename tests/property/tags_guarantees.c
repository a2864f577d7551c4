// proves: over 60 simulated seconds no client that keeps demand misses its reservation by more than one request and
// proves: 0.1 %; the reservations add up to the worst-case capacity, or to 95 % of the mean one. No limit is exceeded
// proves: by more than its burst. With 2 to 10,000 clients, 1, 8 and 128 requests in the device, bursts, idleness, and
// proves: clients that come and go
#include "check.h"
#include "tags.h"

#define DEPTH 128
#define SECOND UINT64_C(1000000000)
#define MEAN_NS 50000 /* service times are uniform in 1..100000 ns: 20,000 per second on average, 10,000 at worst */

enum habit { KEEPER, BURSTY, VISITOR };

struct client {
    struct tags_client terms;
    enum habit habit;
    bool present;
    uint64_t sent;
    int64_t lowest; /* of sent * 10^9 - limit * time, over all dispatches */
    unsigned queued, in_device;
};

static struct {
    struct tags t;
    struct client *client;
    uint32_t n;
    uint64_t now, end, burst_ns, bursts, visits, left_some, forced_idle;
    struct tags_grant device[DEPTH];
    uint32_t head, in_device, depth;
} sim;

static void check_limit(struct client *c)
{
    int64_t x = (int64_t)(c->sent * SECOND) - (int64_t)(c->terms.limit_per_s * (sim.now % (100 * SECOND)));
    if (x < c->lowest)
        c->lowest = x;
    c->sent++;
    /* Dispatches in any window that ends now exceed limit * window by at most (x - lowest) / 10^9 + 1: a window of 0
       ns has one. */
    if (c->terms.limit_per_s)
        CHECK(x - c->lowest + (int64_t)SECOND <= (int64_t)(c->terms.limit_per_s * sim.burst_ns + SECOND));
}

static void arrive(uint32_t id, uint32_t count)
{
    CHECK_EQ(tags_arrive(&sim.t, sim.now, id, count, 1), QOS_OK);
    sim.client[id].queued += count;
}

static void something_happens(struct check_rng *rng)
{
    uint32_t id = (uint32_t)check_between(rng, 0, sim.n - 1);
    struct client *c = &sim.client[id];
    if (c->habit == BURSTY && c->queued == 0) {
        arrive(id, (uint32_t)check_between(rng, 1, check_between(rng, 1, 200)));
        sim.bursts++;
    } else if (c->habit == VISITOR && !c->present) {
        CHECK_EQ(tags_add(&sim.t, sim.now, id, &c->terms), QOS_OK);
        c->present = true; /* earlier dispatches still count */
        arrive(id, (uint32_t)check_between(rng, 1, 50));
        sim.visits++;
    } else if (c->habit == VISITOR && check_between(rng, 0, 1)) { /* however many requests it has at the device */
        uint32_t dropped = 0;
        CHECK_EQ(tags_remove(&sim.t, sim.now, id, &dropped), QOS_OK);
        CHECK_EQ(dropped, c->queued);
        sim.left_some += c->in_device > 0;
        c->present = false;
        c->queued = 0;
    }
}

static void fill_device(void)
{
    while (sim.in_device < sim.depth) {
        struct tags_grant *g = &sim.device[(sim.head + sim.in_device) % DEPTH];
        struct client *c;
        if (tags_pull(&sim.t, sim.now, 1, g) != QOS_OK)
            return;
        sim.in_device++;
        c = &sim.client[g->client];
        check_limit(c);
        c->queued--;
        c->in_device++;
        if (c->habit == KEEPER)
            arrive(g->client, 1);
    }
}

static void run(uint32_t n, uint32_t depth, bool worst_case, enum tags_mode mode, uint64_t seconds)
{
    struct check_rng rng;
    struct tags_config config;
    struct check_mem mem, clients;
    uint64_t capacity = worst_case ? SECOND / (2 * MEAN_NS) : SECOND / MEAN_NS * 95 / 100, left, keepers = 0;
    uint32_t i, reserved = 0;
    CHECK_CONTEXT("%u clients, %u in the device, %s, %s", n, depth, worst_case ? "worst case" : "95 % of the mean",
                  mode == TAGS_PS ? "PS" : "reward");
    check_rng_init(&rng, n * 4096 + depth * 4 + worst_case * 2 + mode);
    memset(&config, 0, sizeof config);
    config.clients = n;
    config.mode = mode;
    config.capacity_per_s = capacity;
    config.limit_burst_ns = sim.burst_ns = 20000000;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    sim.client = (struct client *)check_mem_new(&clients, n * sizeof(struct client), 64, 0);
    memset(sim.client, 0, n * sizeof(struct client));
    CHECK_EQ(tags_init(&sim.t, mem.mem, mem.size, &config), QOS_OK);
    sim.n = n;
    sim.depth = depth;
    sim.head = sim.in_device = 0;
    sim.now = 0;
    sim.end = seconds * SECOND;
    for (i = 0; i < n; i++) {
        struct client *c = &sim.client[i];
        c->habit = i == 0 ? KEEPER : (enum habit)check_between(&rng, 0, 2);
        c->terms.weight = check_between(&rng, 1, 100);
        c->lowest = INT64_MAX;
        if (i % 7 == 6)
            c->terms.weight <<= 33; /* an aggressor: backlogged or bursty, without reservation */
        else
            reserved++;
    }
    left = capacity;
    for (i = 0; i < n; i++) {
        struct client *c = &sim.client[i];
        if (i % 7 != 6) {
            uint64_t most = left > reserved ? (left - reserved) * 2 / reserved : 0;
            c->terms.reservation_per_s = qos_min(check_between(&rng, 1, most + 1), left);
            reserved--;
            if (reserved == 0)
                c->terms.reservation_per_s = left; /* until the last request */
            left -= c->terms.reservation_per_s;
        }
        if (check_between(&rng, 0, 3) == 0)
            c->terms.limit_per_s = c->terms.reservation_per_s + check_between(&rng, i % 7 == 6, 1000);
        if (c->habit == VISITOR)
            continue;
        CHECK_EQ(tags_add(&sim.t, 0, i, &c->terms), QOS_OK);
        c->present = true;
        if (c->habit == KEEPER)
            arrive(i, 4);
    }
    while (sim.now < sim.end) {
        const struct tags_grant *g;
        uint64_t service = check_between(&rng, 1, 2 * MEAN_NS);
        if (check_between(&rng, 0, 7) == 0)
            something_happens(&rng);
        fill_device();
        if (sim.in_device == 0) {
            uint64_t next = tags_next_ns(&sim.t, sim.now);
            CHECK(next > sim.now);
            sim.now = qos_min(next, sim.now + check_between(&rng, 1, 1000000));
            sim.forced_idle++;
            continue;
        }
        sim.now += service;
        g = &sim.device[sim.head];
        sim.client[g->client].in_device--;
        CHECK_EQ(tags_complete(&sim.t, sim.now, g, service), QOS_OK);
        sim.head = (sim.head + 1) % DEPTH;
        sim.in_device--;
    }
    for (i = 0; i < n; i++) {
        const struct client *c = &sim.client[i];
        if (c->habit != KEEPER || c->terms.reservation_per_s == 0)
            continue;
        keepers++;
        /* 1000 * (sent + 1) >= 999 * R * seconds */
        CHECK_GE(1000 * (c->sent + 1), 999 * c->terms.reservation_per_s * seconds);
    }
    CHECK_GE(keepers, 1);
    CHECK(check_mem_free(&mem));
    CHECK(check_mem_free(&clients));
}

int main(void)
{
    static const uint32_t sizes[] = {2, 10, 100, 1000, 10000}, depths[] = {1, 8, 128};
    unsigned n, d, kind, which = 0;
    check_begin("property/tags_guarantees");
    for (n = 0; n < 5; n++)
        for (d = 0; d < 3; d++)
            for (kind = 0; kind < 2; kind++, which++) {
                /* Fewer runs when scaled down; 10,000 clients always get their 60 s. */
                if (check_scaled(30) < 30 && which % 8 != 1)
                    continue;
                run(sizes[n], depths[d], kind == 0, which % 4 < 2 ? TAGS_REWARD : TAGS_PS,
                    check_scaled(60) < 8 ? 8 : 60);
            }
    printf("%" PRIu64 " bursts, %" PRIu64 " visits (%" PRIu64
           " ended with requests at the device), the device idled %" PRIu64 " times\n",
           sim.bursts, sim.visits, sim.left_some, sim.forced_idle);
    CHECK_GE(sim.bursts, 100);
    CHECK_GE(sim.visits, 100);
    CHECK_GE(sim.left_some, 100);
    return check_end();
}
