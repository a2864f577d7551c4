// proves: by flight, who has the device for itself loses nothing when its caller gets no processor now and then, also
// proves: after calm in which one request at a time was enough; who then comes is in time, also on a device that is slower
// proves: than configured, and who comes often finds no long queue
// variants: native
// coverage: report
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define COST 93000u /* ns of a device that serves one request at a time */
#define MOST 200u

static struct htb tree;
static struct htb_request request[MOST + 1]; /* the last one is the newcomer's */
static uint64_t end_ns[MOST + 1];            /* at the device; 0: not there */
static uint32_t came;                        /* the newcomer's requests that are done and judged */

static void begin(enum htb_bound bound, uint64_t latency_ns, uint64_t slower)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    struct htb_config config;
    struct htb_class terms;
    uint32_t i;
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    config.classes = 3;
    config.rate_per_s[0] = bound == HTB_BY_FLIGHT ? slower * S : 1000 * S;
    config.bound = bound;
    config.order = HTB_FIFO;
    config.dispatch_max = config.device_max = MOST + 1;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    CHECK_EQ(htb_reserve(&tree, 1, 1, &terms, NULL), QOS_OK);
    terms.rate_per_s[0] = S / 10;
    terms.latency_ns = latency_ns;
    CHECK_EQ(htb_reserve(&tree, 1, 2, &terms, NULL), QOS_OK);
    memset(request, 0, sizeof request);
    memset(end_ns, 0, sizeof end_ns);
    came = 0;
    for (i = 0; i <= MOST; i++) {
        request[i].class_id = i < MOST ? 1 : 2;
        request[i].tokens[0] = COST;
    }
}

/* One that has `outstanding` requests all the time; the newcomer has one each comes_ns (0: never). From away_from_ns on
 * the caller works for 4 ms and is away for half of one, in the mean. Returns the requests that are done from then on;
 * late: those of the newcomer that take longer than latency_ns from judged_ns on. */
static uint64_t run(uint32_t outstanding, uint64_t to_ns, uint64_t away_from_ns, uint64_t comes_ns, uint64_t judged_ns,
                    uint64_t latency_ns, uint32_t *late)
{
    uint64_t now = 1, done = 0, free_ns = 0, next, leaves_ns = away_from_ns, comes = comes_ns ? comes_ns : QOS_NEVER;
    struct check_rng rng;
    uint32_t i;
    check_rng_init(&rng, 1);
    for (i = 0; i < outstanding; i++)
        CHECK_EQ(htb_submit(&tree, now, &request[i]), QOS_OK);
    while (now < to_ns) {
        const struct htb_request *r;
        if (now >= comes && request[MOST].state == HTB_IDLE) {
            CHECK_EQ(htb_submit(&tree, now, &request[MOST]), QOS_OK);
            comes += comes_ns;
        }
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            free_ns = (free_ns > now ? free_ns : now) + COST;
            end_ns[r - request] = free_ns;
        }
        next = htb_dispatch_next_ns(&tree, now);
        next = request[MOST].state == HTB_IDLE && comes < next ? comes : next;
        for (i = 0; i <= MOST; i++)
            next = end_ns[i] != 0 && end_ns[i] < next ? end_ns[i] : next;
        while (leaves_ns <= next) { /* it comes back after it was to act, or has missed nothing */
            const uint64_t back_ns = leaves_ns + check_between(&rng, 0, MS);
            next = next > back_ns ? next : back_ns;
            leaves_ns = back_ns + 1 + check_between(&rng, 0, 8 * MS);
        }
        now = next > now ? next : now + 1;
        for (i = 0; i <= MOST; i++)
            if (end_ns[i] != 0 && end_ns[i] <= now) {
                end_ns[i] = 0;
                came += i == MOST && now >= judged_ns;
                *late += i == MOST && now >= judged_ns && now - request[i].since_ns > latency_ns;
                CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, &request[i]), QOS_OK);
                done += now >= away_from_ns;
                if (i < MOST)
                    CHECK_EQ(htb_submit(&tree, now, &request[i]), QOS_OK);
            }
    }
    return done;
}

int main(void)
{
    uint64_t best, got, slower;
    uint32_t late = 0;
    check_begin("unit/htb_alone");

    begin(HTB_BY_RATE, 0, 1);
    best = run(32, 6 * S, 2 * S, 0, 0, 0, &late);
    begin(HTB_BY_FLIGHT, 0, 1);
    got = run(32, 6 * S, 2 * S, 0, 0, 0, &late);
    CHECK_CONTEXT("alone: %" PRIu64 " of %" PRIu64, got, best);
    CHECK_LE(best * 98, got * 100);

    for (slower = 1; slower <= 16; slower *= 4) { /* nobody knows the device's speed as the first one comes */
        begin(HTB_BY_FLIGHT, 4 * MS, slower);     /* its requests are more than lag_ns apart */
        (void)run(MOST, 40 * S, QOS_NEVER, 1300 * MS, 2 * S, 4 * MS, &late);
        CHECK_CONTEXT("a newcomer, the device %" PRIu64 " times slower than configured", slower);
        CHECK_EQ(came, 29);
        CHECK_EQ(late, 0);
    }

    begin(HTB_BY_FLIGHT, 0, 1); /* two requests keep the device busy: nobody waits for more than a few */
    (void)run(MOST, 40 * S, QOS_NEVER, 100 * MS, 20 * S, 10 * COST, &late);
    CHECK_CONTEXT("one that comes often");
    CHECK_EQ(came, 200);
    CHECK_EQ(late, 0);
    return check_end();
}
