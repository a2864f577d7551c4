// proves: by flight, beside a class with too few requests for its rate, on a device that needs many, a neighbour gets its own
// proves: rate; and a class that keeps few requests outstanding is given what a pause of the device took from it
// variants: native san i386
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)
#define CHANNELS_MAX 64u
#define REQUESTS 256u

/* Channels that take the first that waits, or (hashed) each the first of its own: so the more is at the device, the more
 * are busy. Class 1 and class 2 keep their requests outstanding always. */
struct device {
    uint32_t channels, speed; /* a request of n tokens takes n * channels / speed ns at one */
    bool hashed;
    uint64_t pause_from_ns, pause_to_ns;
};
struct tenant {
    uint32_t outstanding;
    uint64_t cost, rate;
};
static struct htb tree;
static struct htb_request request[REQUESTS], *line[CHANNELS_MAX][REQUESTS], *at[CHANNELS_MAX];
static uint64_t end_ns[CHANNELS_MAX];
static uint32_t first[CHANNELS_MAX], count[CHANNELS_MAX];
static struct check_rng rng;

static void begin(const struct tenant *t)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    struct htb_config config;
    struct htb_class terms;
    uint32_t i;
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    config.classes = 3;
    config.rate_per_s[0] = 900 * MS;
    config.order = HTB_FIFO;
    config.dispatch_max = config.device_max = REQUESTS;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    memset(request, 0, sizeof request);
    memset(at, 0, sizeof at);
    memset(first, 0, sizeof first);
    memset(count, 0, sizeof count);
    check_rng_init(&rng, 1);
    for (i = 0; i < 2; i++) {
        terms.rate_per_s[0] = t[i].rate;
        CHECK_EQ(htb_reserve(&tree, 1, i + 1, &terms, NULL), QOS_OK);
    }
    for (i = 0; i < t[0].outstanding + t[1].outstanding; i++) {
        request[i].class_id = i < t[0].outstanding ? 1 : 2;
        request[i].tokens[0] = t[request[i].class_id - 1].cost;
        CHECK_EQ(htb_submit(&tree, 1, &request[i]), QOS_OK);
    }
}

/* What begins now ends then: nothing ends in a pause. */
static uint64_t ends_ns(const struct device *d, uint64_t now, uint64_t cost)
{
    const uint64_t ns = now + cost * d->channels / d->speed;
    return ns > d->pause_from_ns && ns <= d->pause_to_ns ? ns + d->pause_to_ns - d->pause_from_ns : ns;
}

/* Runs until then. Tokens that each class was given: done[0], done[1]. */
static uint64_t run(const struct device *d, uint64_t now, uint64_t to_ns, uint64_t *done)
{
    while (now < to_ns) {
        uint64_t next;
        struct htb_request *r;
        uint32_t i;
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            i = d->hashed ? (uint32_t)check_between(&rng, 0, d->channels - 1) : 0;
            line[i][(first[i] + count[i]++) % REQUESTS] = r;
        }
        next = htb_dispatch_next_ns(&tree, now);
        for (i = 0; i < d->channels; i++) {
            const uint32_t from = d->hashed ? i : 0;
            if (!at[i] && count[from] != 0) {
                at[i] = line[from][first[from]];
                first[from] = (first[from] + 1) % REQUESTS;
                count[from]--;
                end_ns[i] = ends_ns(d, now, at[i]->tokens[0]);
            }
            next = at[i] && end_ns[i] < next ? end_ns[i] : next;
        }
        now = next > now ? next : now + 1;
        for (i = 0; i < d->channels; i++)
            if (at[i] && end_ns[i] <= now) {
                r = at[i];
                at[i] = NULL;
                done[r->class_id - 1] += r->tokens[0];
                CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
                CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
            }
    }
    return now;
}

/* Two requests at once get a twelfth of the device at most, and a tenth is reserved: no bound helps them. The neighbour has a
 * third of the device, and requests for all of it. */
static void out_of_reach(uint32_t outstanding, uint64_t rate)
{
    const struct device device = {64, 1, false, 0, 0};
    const struct tenant tenants[2] = {{outstanding, 10000, rate}, {200, 100000, 261 * MS}};
    uint64_t done[2] = {0, 0}, now = 1;
    uint32_t tenths;
    begin(tenants);
    for (tenths = 2; tenths <= 30; tenths++) {
        now = run(&device, now, tenths * 100 * MS, done);
        CHECK_CONTEXT("%" PRIu32 " requests of %" PRIu64 ", after %" PRIu32 " tenths", outstanding, rate, tenths);
        CHECK_LE((tenths - 2) * 26100000, done[1]);
    }
}

/* A narrow bound gives 32 requests their rate, and no more. After a pause they need more for a while. */
static void paused(uint32_t pause_ms)
{
    const struct device device = {8, 4, true, 800 * MS, (800 + pause_ms) * MS};
    const struct tenant tenants[2] = {{32, 10000, 700 * MS}, {200, 10000, 90 * MS}};
    uint64_t done[2] = {0, 0}, before, now;
    begin(tenants);
    now = run(&device, 1, 799 * MS, done);
    before = done[0];
    (void)run(&device, now, (810 + 3 * pause_ms) * MS, done);
    CHECK_CONTEXT("a pause of %" PRIu32 " ms", pause_ms);
    CHECK_LE((3 * pause_ms - 40) * 700000, done[0] - before);
}

int main(void)
{
    check_begin("unit/htb_beside");
    out_of_reach(2, 90 * MS);
    out_of_reach(4, 261 * MS);
    paused(100);
    paused(400);
    return check_end();
}
