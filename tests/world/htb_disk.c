// proves: by flight, on a disk with seeks, which does more the more it may choose from, a class keeps its rate with few
// proves: requests outstanding, and of the throughput no more goes than that takes
//
// The disk serves the nearest of what it holds, 250 requests/s if that is much; the least that a fixed bound reaches
// which keeps the rate, too, is in the table.
#include "htb.h"
#include "check.h"
#include "examples/world/devices.h"

#define S UINT64_C(1000000000)
#define BULK 64u
#define REQUESTS_MAX 96u

static struct htb tree;
static struct htb_request request[REQUESTS_MAX];
static unsigned char memory[1 << 16] __attribute__((aligned(64)));
static struct world_device disk;

/* For 60 s of which 20 count: requests/s of the class, and of all. */
static void run(uint32_t few, uint64_t rate_per_s, uint64_t fixed_ns, uint64_t seed, double *own, double *all)
{
    const struct world_device_config device = {
        .order = WORLD_NEAREST, .seek_ns = 8000000, .turn_ns = 4000000, .channels = 1};
    struct htb_config config;
    struct htb_class terms;
    struct check_rng rng;
    uint64_t now = 1, next, done[2] = {0, 0};
    uint32_t i;
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    memset(request, 0, sizeof request);
    check_rng_init(&rng, seed);
    config.rate_per_s[0] = 250;
    config.start_ns = 1;
    config.dispatch_max = REQUESTS_MAX;
    config.flight_min_ns = config.flight_max_ns = fixed_ns;
    terms.rate_per_s[0] = rate_per_s;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    CHECK_EQ(htb_reserve(&tree, now, 1, &terms, NULL), QOS_OK);
    terms.rate_per_s[0] = 0;
    CHECK_EQ(htb_reserve(&tree, now, 2, &terms, NULL), QOS_OK);
    world_device_init(&disk, &device, seed);
    for (i = 0; i < few + BULK; i++) {
        request[i].class_id = i < few ? 1 : 2;
        request[i].tokens[0] = 1;
        request[i].offset = check_between(&rng, 0, WORLD_OFFSETS - 1);
        CHECK_EQ(htb_submit(&tree, now, &request[i]), QOS_OK);
    }
    while (now < 60 * S) {
        struct htb_request *r;
        struct world_io io;
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            memset(&io, 0, sizeof io);
            io.id = (uint32_t)(r - request);
            io.cost_ns = 500000;
            io.offset = r->offset;
            world_device_submit(&disk, now, &io);
        }
        next = htb_dispatch_next_ns(&tree, now);
        next = qos_min(next, world_device_next_ns(&disk));
        now = next > now ? next : now + 1;
        while (world_device_take(&disk, now, &io)) {
            r = &request[io.id];
            done[r->class_id - 1] += now > 40 * S;
            CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
            r->offset = check_between(&rng, 0, WORLD_OFFSETS - 1);
            CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
        }
    }
    world_device_free(&disk);
    *own = (double)done[0] / 20;
    *all = (double)(done[0] + done[1]) / 20;
}

/* A run may meet a search for the knee, so that it lacks a tenth: the mean of many decides. */
int main(void)
{
    static const struct {
        uint32_t few;
        uint64_t rate, fixed_ms;
        double kept; /* in the mean of the seeds */
    } row[] = {
        {16, 75, 160, 0.95}, {16, 100, 120, 0.95}, {16, 125, 100, 0.95}, {8, 100, 60, 0.95}, {32, 125, 160, 0.99}};
    const uint64_t seeds = 8;
    size_t i;
    uint64_t seed;
    check_begin("world/htb_disk");
    for (i = 0; i < sizeof row / sizeof *row; i++) {
        double own, all, fixed_own, fixed_all, kept = 0, rate = (double)row[i].rate;
        run(row[i].few, row[i].rate, row[i].fixed_ms * 1000000, 1, &fixed_own, &fixed_all);
        for (seed = 1; seed <= seeds; seed++) {
            CHECK_CONTEXT("%u outstanding for %u/s, seed %u", row[i].few, (unsigned)row[i].rate, (unsigned)seed);
            run(row[i].few, row[i].rate, 0, seed, &own, &all);
            printf("%2u outstanding for %3u/s: %5.1f/s, all %5.1f/s; with %3u ms in flight %5.1f and %5.1f/s\n",
                   row[i].few, (unsigned)row[i].rate, own, all, (unsigned)row[i].fixed_ms, fixed_own, fixed_all);
            kept += (own < rate ? own / rate : 1) / (double)seeds;
            CHECK_WITHIN(all, 0.85 * fixed_all, 1000);
        }
        CHECK_WITHIN(kept, row[i].kept, 1.001);
    }
    return check_end();
}
