// proves: late requests that come in clusters do not end a promise that narrowing keeps: on a serial device with
// proves: exponential times 98 of 100 requests of a class with latency_ns are in time beside bulk, in any 5 s, but in
// proves: few runs, in which it is given up at the start
#include "check.h"
#include "htb.h"
#include "examples/world/devices.h"

#define COST 164000u        /* ns of the device, in the mean */
#define LATENCY_NS 1400000u /* some eight requests: one of two at the device is always in time */
#define RATE 313650000u     /* 0.41 of the root, which is 0.765 of the device */
#define LOAD 0.37           /* of that rate, by chance: too little to be late by itself */
#define BULK 64u
#define MOST 512u
#define PART_NS (5 * WORLD_NS_PER_S)
#define PARTS 3u /* of a run; the first is not judged */

static struct htb tree;
static struct {
    struct htb_request request;
    uint64_t due_ns;
} io[MOST];

/* Was it late in any part? */
static bool run(uint64_t seed)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    const struct world_device_config kind = {.channels = 1, .spread = WORLD_EXPONENTIAL};
    const double gap_ns = COST * 1e9 / RATE / LOAD;
    struct world_device device;
    struct world_rng rng;
    struct htb_config config;
    struct htb_class terms;
    struct htb_request *r;
    struct world_io ended;
    uint64_t now_ns = 1, arrives_ns = 1, turn_ns = 0, all = 0, late = 0, part = 1;
    uint32_t spare[MOST], spares = 0, i;
    bool was_late = false;
    world_rng_init(&rng, seed, 1);
    world_device_init(&device, &kind, seed);
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    memset(io, 0, sizeof io);
    config.classes = 3;
    config.rate_per_s[0] = 765000000;
    config.order = HTB_FIFO;
    config.bound = HTB_BY_FLIGHT;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    CHECK_EQ(htb_reserve(&tree, now_ns, 2, &terms, NULL), QOS_OK);
    terms.rate_per_s[0] = RATE;
    terms.latency_ns = LATENCY_NS;
    CHECK_EQ(htb_reserve(&tree, now_ns, 1, &terms, NULL), QOS_OK);
    for (i = 0; i < MOST; i++) {
        io[i].request.tokens[0] = COST;
        io[i].request.class_id = i < BULK ? 2 : 1;
        if (i < BULK)
            CHECK_EQ(htb_submit(&tree, now_ns, &io[i].request), QOS_OK);
        else
            spare[spares++] = i;
    }
    while (part <= PARTS) {
        while ((r = htb_dispatch(&tree, now_ns)) != NULL) {
            for (i = 0; &io[i].request != r; i++)
                ;
            ended = (struct world_io){.cost_ns = COST, .id = i};
            world_device_submit(&device, now_ns, &ended);
        }
        now_ns = world_device_next_ns(&device);
        now_ns = now_ns < arrives_ns ? now_ns : arrives_ns;
        if (now_ns >= part * PART_NS) {
            was_late = was_late || (part > 1 && late * 50 > all);
            all = late = 0;
            part++;
        }
        if (now_ns == arrives_ns && spares > 0) {
            i = spare[--spares];
            turn_ns += (uint64_t)(COST * 1e9 / RATE);
            turn_ns = turn_ns > now_ns ? turn_ns : now_ns;
            io[i].due_ns = turn_ns + LATENCY_NS;
            CHECK_EQ(htb_submit(&tree, now_ns, &io[i].request), QOS_OK);
        }
        if (now_ns == arrives_ns)
            arrives_ns += 1 + (uint64_t)(gap_ns * world_exponential(&rng));
        while (world_device_take(&device, now_ns, &ended)) {
            i = ended.id;
            CHECK_EQ(htb_complete(&tree, now_ns, HTB_DONE, NULL, &io[i].request), QOS_OK);
            if (i < BULK) {
                CHECK_EQ(htb_submit(&tree, now_ns, &io[i].request), QOS_OK);
            } else {
                all++;
                late += now_ns > io[i].due_ns;
                spare[spares++] = i;
            }
        }
    }
    world_device_free(&device);
    return was_late;
}

int main(void)
{
    uint64_t seed, runs = 0;
    check_begin("world/htb_clusters");
    for (seed = 1; seed <= 60; seed++)
        runs += run(seed);
    printf("%u of 60 runs were late\n", (unsigned)runs);
    CHECK_LE(runs, 3);
    return check_end();
}
