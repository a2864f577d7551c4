// proves: a class with latency_ns that had more than its rate is not made to wait for that: its requests are in time as soon as
// proves: others come
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)
#define OTHERS 128u /* requests, MINE of them the class's */
#define MINE 32u
#define CHANNELS 64u
#define COST 7700u /* ns of device time; the others' requests cost ten times as much */

/* 64 channels, each with its own queue: the more is at the device, the more of them are busy, and the longer one waits. */
static struct htb tree;
static struct htb_request request[OTHERS + 1], *line[CHANNELS][OTHERS + 1];
static uint32_t first[CHANNELS], count[CHANNELS];
static uint64_t end_ns[CHANNELS];

static void begin(uint32_t ch, uint64_t now)
{
    end_ns[ch] = now + line[ch][first[ch]]->tokens[0] * CHANNELS;
}

static void serve(struct check_rng *rng, uint64_t now)
{
    struct htb_request *r;
    while ((r = htb_dispatch(&tree, now)) != NULL) {
        uint32_t ch = (uint32_t)check_between(rng, 0, CHANNELS - 1);
        line[ch][(first[ch] + count[ch]) % (OTHERS + 1)] = r;
        if (count[ch]++ == 0)
            begin(ch, now);
    }
}

/* Requests of the class that are done in each tenth of a second. */
static void run(uint64_t *done, uint32_t tenths, uint64_t others_ns)
{
    uint64_t now = 1, next;
    struct check_rng rng;
    uint32_t i;
    bool came = false;
    check_rng_init(&rng, 7);
    for (i = 0; i < MINE; i++)
        CHECK_EQ(htb_submit(&tree, now, &request[i]), QOS_OK);
    while (now < tenths * 100 * MS) {
        if (!came && now >= others_ns) {
            came = true;
            for (i = MINE; i < OTHERS; i++)
                CHECK_EQ(htb_submit(&tree, now, &request[i]), QOS_OK);
        }
        serve(&rng, now);
        next = htb_dispatch_next_ns(&tree, now);
        for (i = 0; i < CHANNELS; i++)
            next = count[i] && end_ns[i] < next ? end_ns[i] : next;
        now = next > now ? next : now + 1;
        for (i = 0; i < CHANNELS; i++)
            if (count[i] && end_ns[i] <= now) {
                struct htb_request *r = line[i][first[i]];
                first[i] = (first[i] + 1) % (OTHERS + 1);
                if (--count[i])
                    begin(i, now);
                CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
                done[now / (100 * MS)] += r < &request[MINE];
                CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
            }
    }
}

int main(void)
{
    static unsigned char memory[16384] __attribute__((aligned(64)));
    struct htb_config config;
    struct htb_class terms;
    uint64_t done[41] = {0};
    uint32_t i;
    check_begin("unit/htb_turns");
    memset(&config, 0, sizeof config);
    config.classes = 3;
    config.rate_per_s[0] = 900000000;
    config.bound = HTB_BY_FLIGHT;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = 100000000;
    terms.latency_ns = MS;
    CHECK_EQ(htb_reserve(&tree, 1, 1, &terms, NULL), QOS_OK);
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = 200000000;
    CHECK_EQ(htb_reserve(&tree, 1, 2, &terms, NULL), QOS_OK);
    for (i = 0; i < OTHERS; i++) {
        request[i].class_id = i < MINE ? 1 : 2;
        request[i].tokens[0] = i < MINE ? COST : 10 * COST;
    }
    run(done, 40, 2000 * MS);
    /* 2 s alone, at four times its rate; then beside others. Its rate is 1298 in a tenth of a second, its time hard to keep here. */
    CHECK_LE(4500, done[19]);
    for (i = 20; i < 40; i++) {
        CHECK_CONTEXT("tenth %" PRIu32, i);
        CHECK_LE(973, done[i]);
    }
    return check_end();
}
