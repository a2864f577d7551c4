// proves: a class with latency_ns that was alone, with more than its rate, gets as much when others come as if they had
// proves: been there from the start; where few ask and then many, the device is as busy as if they had always asked
// variants: native
// coverage: report
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)
#define REQUESTS 128u
#define SEEDS 16u
#define CHANNELS 64u
#define COST 7700u /* ns of device time; the others' requests may cost more */

/* 64 channels, each with its own queue: the more is at the device, the more of them are busy, and the longer one waits. */
struct terms {
    uint32_t mine; /* of the requests, this many are the class's */
    uint64_t rate, latency_ns, lag_ns;
    uint32_t theirs, times; /* requests of the others from the start; their cost */
};
static struct htb tree;
static struct htb_request request[REQUESTS + 1], *line[CHANNELS][REQUESTS + 1];
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
        line[ch][(first[ch] + count[ch]) % (REQUESTS + 1)] = r;
        if (count[ch]++ == 0)
            begin(ch, now);
    }
}

static void begin_tree(const struct terms *t)
{
    static unsigned char memory[16384] __attribute__((aligned(64)));
    struct htb_config config;
    struct htb_class terms;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.classes = 3;
    config.rate_per_s[0] = 900000000;
    config.bound = HTB_BY_FLIGHT;
    config.lag_ns = t->lag_ns;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = t->rate;
    terms.latency_ns = t->latency_ns;
    CHECK_EQ(htb_reserve(&tree, 1, 1, &terms, NULL), QOS_OK);
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = 200000000;
    CHECK_EQ(htb_reserve(&tree, 1, 2, &terms, NULL), QOS_OK);
    memset(request, 0, sizeof request);
    memset(first, 0, sizeof first);
    memset(count, 0, sizeof count);
    for (i = 0; i < REQUESTS; i++) {
        request[i].class_id = i < t->mine ? 1 : 2;
        request[i].tokens[0] = i < t->mine ? COST : t->times * COST;
    }
}

/* Requests of the class that are done in each tenth of a second; the others come at others_ns. Returns what all have done
 * half a second later. */
static uint64_t run(const struct terms *t, uint64_t *done, uint32_t tenths, uint64_t others_ns, uint64_t seed)
{
    uint64_t now = 1, next, all = 0;
    struct check_rng rng;
    uint32_t i;
    bool came = false;
    begin_tree(t);
    check_rng_init(&rng, seed);
    for (i = 0; i < t->mine + t->theirs; i++)
        CHECK_EQ(htb_submit(&tree, now, &request[i]), QOS_OK);
    while (now < tenths * 100 * MS) {
        if (!came && now >= others_ns) {
            came = true;
            for (i = t->mine + t->theirs; i < REQUESTS; i++)
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
                first[i] = (first[i] + 1) % (REQUESTS + 1);
                if (--count[i])
                    begin(i, now);
                CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
                done[now / (100 * MS)] += r < &request[t->mine];
                all += now >= 2500 * MS;
                CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
            }
    }
    return all;
}

/* After 2 s alone, or beside one request, it gets as much as if others had been there from the start. */
static void as_from_the_start(uint32_t theirs)
{
    const struct terms terms = {32, 100000000, MS, 0, theirs, 10};
    uint64_t late[SEEDS] = {0}, all_late = 0, all_early = 0, k;
    uint32_t i;
    for (k = 0; k < SEEDS; k++) {
        uint64_t after[41] = {0}, from_start[41] = {0};
        (void)run(&terms, after, 40, 2000 * MS, k + 1);
        (void)run(&terms, from_start, 40, 0, k + 1);
        CHECK_CONTEXT("seed %" PRIu64, k + 1);
        CHECK_LE(theirs ? 4300 : 4500, after[19]); /* alone, it has four times its rate */
        for (i = 20; i < 40; i++) {
            late[k] += after[i];
            all_early += from_start[i];
        }
        all_late += late[k];
    }
    CHECK_CONTEXT("all seeds");
    CHECK_LE(all_early * 9, all_late * 10);
    for (k = 0; k < SEEDS; k++) { /* with no seed is it stuck: where its bounds end scatters by a half */
        CHECK_CONTEXT("seed %" PRIu64, k + 1);
        CHECK_LE(all_early * 2, late[k] * 3 * SEEDS);
    }
}

/* Of the service above its rate that it had alone, at most burst_ns count against it; whatever the lag that a class may
 * make up for. Were it held against it for longer, no request would be late, and it would not have its rate. */
static void what_it_had_is_not_held_against_it(uint32_t theirs)
{
    const struct terms terms = {16, 30000000, 4 * MS, 10000 * MS, theirs, 10};
    const uint64_t rate = terms.rate / COST * 2; /* requests in 2 s */
    uint64_t seed, all = 0;
    uint32_t i;
    for (seed = 1; seed <= SEEDS; seed++) {
        uint64_t done[41] = {0};
        (void)run(&terms, done, 40, 2000 * MS, seed);
        CHECK_CONTEXT("seed %" PRIu64, seed);
        CHECK_LE(rate * 6 / 20, done[19]); /* six times its rate */
        for (i = 20; i < 40; i++)
            all += done[i];
    }
    CHECK_CONTEXT("all seeds, what is held against it");
    CHECK_LE(rate * SEEDS, all);
}

/* One request each keeps the device busy as well as two can; then 128 need more of it. */
static void few_then_many(void)
{
    static const struct terms terms = {1, 100000000, 10 * MS, 0, 1, 1};
    uint64_t seed;
    for (seed = 1; seed <= 4; seed++) {
        uint64_t done[41] = {0}, after = run(&terms, done, 40, 2000 * MS, seed);
        CHECK_CONTEXT("few, then many, seed %" PRIu64, seed);
        CHECK_LE(run(&terms, done, 40, 0, seed) * 9, after * 10);
    }
}

int main(void)
{
    uint32_t theirs;
    check_begin("unit/htb_turns");
    for (theirs = 0; theirs < 2; theirs++) {
        as_from_the_start(theirs);
        what_it_had_is_not_held_against_it(theirs);
    }
    few_then_many();
    return check_end();
}
