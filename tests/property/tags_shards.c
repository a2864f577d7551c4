// proves: of schedulers that share tags: where reservations do not fit, no client starves: each gets one request in 1 / R
// proves: plus the time of one request of each other client of that shard. What schedulers force for one client adds the
// proves: debt and one for each of them to its limit. Who comes back from idleness takes nothing of the others'
// proves: reservations: they miss two requests and wait for 2 / R at most
// variants: native san i386
#include "check.h"
#include "tags.h"

#define SHARDS 4
#define SECOND UINT64_C(1000000000)
#define BURST_NS UINT64_C(50000000)

static struct tags_client client[10]; /* their terms */
static struct tags shard[SHARDS];
static struct check_mem memory[SHARDS], shared_memory;

/* Reservations that do not fit: two schedulers of half the capacity, five clients each, 1000 and 9 x 100 per second.
 * On each scheduler they are cut alike, within a quarter, as each word
 * forgets by itself. Once there is room, no client makes up more than the lag. */
static void overload(void)
{
    struct tags_config config;
    const struct tags_shared_config shared_config = {10, SECOND / 10, 0};
    const uint64_t service = SECOND / 480, seconds = 60;
    struct tags_shared *sh;
    uint64_t sent[10] = {0}, now;
    uint32_t i, k;
    CHECK_CONTEXT("%s", "reservations that do not fit");
    memset(&config, 0, sizeof config);
    config.clients = 10;
    config.mode = TAGS_PS;
    sh = (struct tags_shared *)check_mem_new(&shared_memory, tags_shared_memsize(&shared_config), 8, 0);
    CHECK_EQ(tags_shared_init(sh, 0, shared_memory.size, &shared_config), QOS_OK);
    config.shared = sh;
    for (i = 0; i < 10; i++) {
        memset(&client[i], 0, sizeof client[i]);
        client[i].weight = i == 9 ? 1000000 : 1;
        client[i].reservation_per_s = i ? 100 : 1000;
        CHECK_EQ(tags_shared_change(sh, 0, i, &client[i]), QOS_OK);
    }
    for (k = 0; k < 2; k++) {
        check_mem_new(&memory[k], tags_memsize(&config), 64, 0);
        CHECK_EQ(tags_init(&shard[k], memory[k].mem, memory[k].size, &config), QOS_OK);
        for (i = 0; i < 10; i++)
            CHECK_EQ(tags_add(&shard[k], 0, i, &client[i]), QOS_OK);
        for (i = 5 * k; i < 5 * k + 5; i++)
            CHECK_EQ(tags_arrive(&shard[k], 0, i, 1000000, 1), QOS_OK);
    }
    for (now = 0; now < seconds * SECOND; now += service)
        for (k = 0; k < 2; k++) {
            struct tags_grant g = {0, TAGS_PHASE_WEIGHT, 0, 0, 0};
            CHECK_EQ(tags_pull(&shard[k], now, 1, &g), QOS_OK);
            CHECK_EQ(tags_complete(&shard[k], now, &g, service), QOS_OK);
            sent[g.client] += g.phase == TAGS_PHASE_RESERVATION;
        }
    for (i = 0; i < 10; i++) {
        uint64_t reserved = i < 5 ? 1400 : 500; /* at its scheduler, which sends 480 */
        CHECK_GE(4 * sent[i], 3 * seconds * client[i].reservation_per_s * 480 / reserved);
        CHECK_LE(sent[i], seconds * client[i].reservation_per_s + 1);
    }
    printf("of 1000 and 100 reserved at half the capacity: %" PRIu64 " and %" PRIu64 " per second\n", sent[0] / seconds,
           sent[1] / seconds);
    for (k = 0; k < 2; k++)
        CHECK(check_mem_free(&memory[k]));
    CHECK(check_mem_free(&shared_memory));
}

/* One client, backlogged at all shards, with a limit. The first `forcing` shards force whatever they may, too. At times a
 * shard is away, so that its copy of the tag is old. The most in any window beyond the limit and its burst is
 * 1 + force_debt_requests, and 1 for each shard that forces. */
static void forced(uint64_t stream, unsigned forcing, int64_t *least_room)
{
    struct check_rng rng;
    struct tags_config config;
    struct tags_client terms;
    const struct tags_shared_config shared_config = {1, BURST_NS, BURST_NS};
    struct tags_shared *sh;
    uint64_t now = 0, sent = 0, away[SHARDS] = {0};
    int64_t lowest = INT64_MAX, widest = 0, bound;
    unsigned k;
    CHECK_CONTEXT("run %" PRIu64 ", %u shards force", stream, forcing);
    check_rng_init(&rng, stream);
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    terms.weight = 1;
    terms.limit_per_s = check_between(&rng, 40, 2000); /* a burst of 2 requests and more */
    config.clients = 1;
    config.limit_burst_ns = BURST_NS;
    config.force_debt_requests = check_between(&rng, 1, 20);
    config.mode = stream % 2 ? TAGS_PS : TAGS_REWARD;
    sh = (struct tags_shared *)check_mem_new(&shared_memory, tags_shared_memsize(&shared_config), 8, 0);
    CHECK_EQ(tags_shared_init(sh, 0, shared_memory.size, &shared_config), QOS_OK);
    CHECK_EQ(tags_shared_change(sh, 0, 0, &terms), QOS_OK);
    config.shared = sh;
    for (k = 0; k < SHARDS; k++) {
        check_mem_new(&memory[k], tags_memsize(&config), 64, 0);
        CHECK_EQ(tags_init(&shard[k], memory[k].mem, memory[k].size, &config), QOS_OK);
        CHECK_EQ(tags_add(&shard[k], 0, 0, &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&shard[k], 0, 0, 1000000, 1), QOS_OK);
    }
    bound = (int64_t)(terms.limit_per_s * BURST_NS + (1 + config.force_debt_requests + forcing) * SECOND);
    while (now < SECOND) {
        unsigned refused = 0;
        while (refused < 40) { /* each that is not away has been refused, or nearly so */
            unsigned at = (unsigned)check_between(&rng, 0, SHARDS - 1);
            bool force = at < forcing && check_between(&rng, 0, 1);
            struct tags_grant g;
            int64_t x;
            if (away[at] > now ||
                (force ? tags_force(&shard[at], now, 0, 1, &g) : tags_pull(&shard[at], now, 1, &g)) != QOS_OK) {
                refused++;
                continue;
            }
            CHECK_EQ(tags_complete(&shard[at], now, &g, 1000), QOS_OK);
            x = (int64_t)(sent++ * SECOND) - (int64_t)(terms.limit_per_s * now);
            lowest = x < lowest ? x : lowest;
            widest = x + (int64_t)SECOND - lowest > widest ? x + (int64_t)SECOND - lowest : widest;
        }
        if (check_between(&rng, 0, 9) == 0)
            away[check_between(&rng, 0, SHARDS - 1)] = now + check_between(&rng, 1, 3 * BURST_NS);
        now += check_between(&rng, 0, 29) ? check_between(&rng, 1, SECOND / terms.limit_per_s) : 2 * BURST_NS;
    }
    CHECK_LE(widest, bound);
    *least_room = bound - widest < *least_room ? bound - widest : *least_room;
    for (k = 0; k < SHARDS; k++)
        CHECK(check_mem_free(&memory[k]));
    CHECK(check_mem_free(&shared_memory));
}

/* A serial device of 1,000/s. Client 0 always waits; client 1 comes back after 5 s with more than it can have, idle or
 * removed meanwhile, to the same scheduler or to another one; client 2 has no reservation. */
static void comes_back(uint64_t r0, uint64_t r1, bool removed, unsigned at, enum tags_mode mode)
{
    struct tags_config config;
    const struct tags_shared_config shared_config = {3, 0, 0};
    struct tags_shared *sh;
    uint64_t now, last = 5 * SECOND, got = 0, theirs = 0;
    uint32_t i, k;
    CHECK_CONTEXT("%" PRIu64 " and %" PRIu64 " reserved, removed %u, back at %u", r0, r1, (unsigned)removed, at);
    memset(&config, 0, sizeof config);
    config.clients = 3;
    config.mode = mode;
    config.at_device_max = 1;
    sh = (struct tags_shared *)check_mem_new(&shared_memory, tags_shared_memsize(&shared_config), 8, 0);
    CHECK_EQ(tags_shared_init(sh, 0, shared_memory.size, &shared_config), QOS_OK);
    config.shared = sh;
    for (i = 0; i < 3; i++) {
        memset(&client[i], 0, sizeof client[i]);
        client[i].weight = 1;
        client[i].reservation_per_s = i == 0 ? r0 : i == 1 ? r1 : 0;
        CHECK_EQ(tags_shared_change(sh, 0, i, &client[i]), QOS_OK);
    }
    for (k = 0; k < 2; k++) {
        check_mem_new(&memory[k], tags_memsize(&config), 64, 0);
        CHECK_EQ(tags_init(&shard[k], memory[k].mem, memory[k].size, &config), QOS_OK);
        for (i = 0; i < 3; i++)
            if (i != 1 || k != at || !removed)
                CHECK_EQ(tags_add(&shard[k], 0, i, &client[i]), QOS_OK);
    }
    CHECK_EQ(tags_arrive(&shard[0], 0, 0, 1000000, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&shard[0], 0, 2, 1000000, 1), QOS_OK);
    for (now = 0; now < 7 * SECOND; now += SECOND / 1000) {
        struct tags_grant g = {0, TAGS_PHASE_WEIGHT, 0, 0, 0};
        k = now < 5 * SECOND ? 0 : at;
        if (now == 5 * SECOND) {
            if (removed)
                CHECK_EQ(tags_add(&shard[at], now, 1, &client[1]), QOS_OK);
            CHECK_EQ(tags_arrive(&shard[at], now, 1, 1000000, 1), QOS_OK);
            if (at > 0)
                CHECK_EQ(tags_arrive(&shard[at], now, 0, 1000000, 1), QOS_OK);
        }
        CHECK_EQ(tags_pull(&shard[k], now, 1, &g), QOS_OK);
        CHECK_EQ(tags_complete(&shard[k], now + SECOND / 1000, &g, SECOND / 1000), QOS_OK);
        theirs += g.client == 1;
        if (now < 5 * SECOND)
            continue;
        got += g.client == 0;
        last = g.client == 0 ? now : last;
        CHECK_LE((now - last) * r0, 2 * SECOND + r0 * SECOND / 1000);
        CHECK_LE((now - 5 * SECOND) * r0, (got + 2) * SECOND + r0 * SECOND / 1000);
    }
    CHECK_GE(theirs + 2, 2 * r1); /* it has its own */
    for (k = 0; k < 2; k++)
        CHECK(check_mem_free(&memory[k]));
    CHECK(check_mem_free(&shared_memory));
}

int main(void)
{
    uint64_t i;
    unsigned k;
    check_begin("property/tags_shards");
    overload();
    for (k = 0; k < 8; k++) {
        comes_back(300, 600, k & 1, k >> 1 & 1, k & 4 ? TAGS_PS : TAGS_REWARD);
        comes_back(10, 900, k & 1, k >> 1 & 1, k & 4 ? TAGS_PS : TAGS_REWARD);
    }
    for (k = 1; k <= SHARDS; k++) {
        int64_t least_room = INT64_MAX;
        for (i = 0; i < check_scaled(50); i++)
            forced(i, k, &least_room);
        printf("%u force: %.2f requests below the bound\n", k, (double)least_room / (double)SECOND);
        CHECK_LE(least_room, (int64_t)(3 * SECOND)); /* so it was tried */
    }
    return check_end();
}
