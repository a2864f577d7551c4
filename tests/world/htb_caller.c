// proves: HTB_BY_FLIGHT wastes no device where its caller gets no processor now and then, or is always there: tenants
// proves: with requests enough get 98 % of what they get without a scheduler, on serial and parallel devices. A device
// proves: that pauses is not taken for such a caller: the bound stays as narrow. Shares by weight hold where few requests
// proves: keep the device busy, as the bound does not stay where all of them fit
// scale: 3
#include "check.h"
#include "htb.h"
#include "examples/world/devices.h"

#define MS UINT64_C(1000000)
#define COST 93000u /* ns of the whole device */
#define MOST 512u
#define DEVICE_MAX 200u

/* A caller works for a while, then is away for a while: exponential times with these means. One that works for 0 comes
 * each away_ns. */
static const struct caller {
    uint32_t channels, outstanding, classes;
    uint64_t works_ns, away_ns;
    enum world_spread spread;
} callers[] = {
    {1, 32, 2, 4000000, 2000000, WORLD_TEN},
    {1, 32, 2, 4000000, 500000, WORLD_TEN},
    {1, 32, 2, 20000000, 2000000, WORLD_TEN},
    {8, 32, 2, 4000000, 500000, WORLD_TEN},
    {8, 200, 2, 4000000, 2000000, WORLD_TEN},
    {1, 8, 2, 4000000, 500000, WORLD_FIXED},
    {64, 200, 2, 4000000, 1000000, WORLD_EXPONENTIAL},
    {1, 512, 16, 12000000, 3000000, WORLD_FIXED},
    {1, 512, 16, 40000000, 5000000, WORLD_FIXED},
    {1, 512, 16, 100000000, 3000000, WORLD_FIXED},
    {8, 512, 16, 40000000, 5000000, WORLD_TEN},
    {2, 512, 16, 1000000000, 0, WORLD_FIXED},
    {8, 200, 2, 0, 8000000, WORLD_FIXED},
};

static const struct caller steady = {8, 32, 2, 1000000000, 0, WORLD_TEN};

/* Always there; half of the requests are more than 3/4 of what the device needs. */
static const struct caller saturated[] = {{1, 16, 2, 1000000000, 0, WORLD_THIRTY},
                                          {4, 16, 2, 1000000000, 0, WORLD_THIRTY}};

static struct htb tree;
static uint64_t from_ns = 500 * MS, to_ns = 10000 * MS; /* the time that is judged */
static uint64_t widest_ns;                              /* the bound, in the time that is judged */
static uint64_t first;                                  /* what the first class has done, in that time */
static struct htb_request request[MOST];

static void send(struct world_device *device, uint64_t now_ns, uint32_t id)
{
    const struct world_io io = {.cost_ns = COST, .id = id};
    world_device_submit(device, now_ns, &io);
}

static void dispatch(struct world_device *device, uint64_t now_ns)
{
    const struct htb_request *r;
    while ((r = htb_dispatch(&tree, now_ns)) != NULL)
        send(device, now_ns, (uint32_t)(r - request));
}

/* Requests that are done in the time that is judged. Several classes keep the knee; one alone has what a newcomer may
 * wait for. */
static uint64_t run(const struct caller *c, uint32_t classes, uint32_t weight, uint64_t seed, uint64_t pause_ns,
                    bool scheduled)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    const struct world_device_config kind = {
        .channels = c->channels, .spread = c->spread, .pause_every_ns = 15 * pause_ns, .pause_ns = pause_ns};
    struct htb_config config;
    struct htb_class terms;
    struct world_device device;
    struct world_rng rng;
    uint64_t now_ns = 1, done = 0, leaves_ns, next_ns;
    uint32_t i, ended[MOST], ends;
    struct htb_state state;
    widest_ns = first = 0;
    world_rng_init(&rng, seed, 1);
    world_device_init(&device, &kind, seed);
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    memset(request, 0, sizeof request);
    config.classes = classes + 1;
    config.rate_per_s[0] = WORLD_NS_PER_S;
    config.bound = HTB_BY_FLIGHT;
    config.dispatch_max = config.device_max = DEVICE_MAX;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &config), QOS_OK);
    for (i = 1; i <= classes; i++) {
        terms.weight = i == 1 ? weight : 1;
        CHECK_EQ(htb_reserve(&tree, now_ns, i, &terms, NULL), QOS_OK);
    }
    for (i = 0; i < c->outstanding; i++) {
        request[i].class_id = 1 + i % classes;
        request[i].tokens[0] = COST;
        if (scheduled)
            CHECK_EQ(htb_submit(&tree, now_ns, &request[i]), QOS_OK);
        else
            send(&device, now_ns, i);
    }
    if (scheduled)
        dispatch(&device, now_ns);
    leaves_ns = now_ns + (uint64_t)((double)c->works_ns * world_exponential(&rng));
    while (now_ns < to_ns) {
        struct world_io io;
        next_ns = world_device_next_ns(&device);
        if (scheduled && htb_dispatch_next_ns(&tree, now_ns) > now_ns)
            next_ns = next_ns < htb_dispatch_next_ns(&tree, now_ns) ? next_ns : htb_dispatch_next_ns(&tree, now_ns);
        if (c->works_ns == 0)
            next_ns = (now_ns / c->away_ns + 1) * c->away_ns;
        /* it comes back after it was to act, or has missed nothing */
        while (c->works_ns != 0 && leaves_ns <= next_ns) {
            const uint64_t back_ns = leaves_ns + (uint64_t)((double)c->away_ns * world_exponential(&rng));
            next_ns = next_ns > back_ns ? next_ns : back_ns;
            leaves_ns = back_ns + 1 + (uint64_t)((double)c->works_ns * world_exponential(&rng));
        }
        now_ns = next_ns;
        for (ends = 0; world_device_take(&device, now_ns, &io); ends++)
            ended[ends] = io.id;
        done += now_ns >= from_ns ? ends : 0;
        for (i = 0; i < ends; i++) {
            first += now_ns >= from_ns && request[ended[i]].class_id == 1;
            if (scheduled) {
                CHECK_EQ(htb_complete(&tree, now_ns, HTB_DONE, NULL, &request[ended[i]]), QOS_OK);
                CHECK_EQ(htb_submit(&tree, now_ns, &request[ended[i]]), QOS_OK);
            } else {
                send(&device, now_ns, ended[i]);
            }
        }
        if (scheduled)
            dispatch(&device, now_ns);
        if (now_ns >= from_ns && htb_info(&tree, &state) == QOS_OK && state.flight_bound_ns > widest_ns)
            widest_ns = state.flight_bound_ns;
    }
    world_device_free(&device);
    return done;
}

int main(void)
{
    uint64_t best, got, k, seed;
    uint32_t classes;
    check_begin("world/htb_caller");
    for (k = 0; k < sizeof callers / sizeof *callers; k++)
        for (classes = 1; classes <= callers[k].classes; classes += callers[k].classes - 1) {
            /* two are near, by chance */
            const uint64_t seeds = classes == 1 ? 4 : k == 8 ? 128 : k == 6 ? 64 : 16;
            best = got = 0;
            for (seed = 1; seed <= check_scaled(seeds); seed++) {
                best += run(&callers[k], classes, 1, seed, 0, false);
                got += run(&callers[k], classes, 1, seed, 0, true);
            }
            printf("%2u channels, %3u requests of %u, works %6.1f ms, away %3.1f ms: %.3f\n", callers[k].channels,
                   callers[k].outstanding, classes, (double)callers[k].works_ns / 1e6, (double)callers[k].away_ns / 1e6,
                   (double)got / (double)best);
            CHECK_CONTEXT("caller %u", (unsigned)k);
            CHECK_LE(best * 98, got * 100);
        }
    for (seed = 1; seed <= 4; seed++) {
        (void)run(&steady, 2, 1, seed, 20 * MS, true);
        CHECK_CONTEXT("pauses of the device, seed %u", (unsigned)seed);
        CHECK_LE(widest_ns, 4 * MS);
    }
    from_ns = 5000 * MS; /* where looks scatter the bound falls slowly */
    to_ns = 20000 * MS;
    for (k = 0; k < sizeof saturated / sizeof *saturated; k++) {
        uint64_t mine = best = got = 0;
        for (seed = 1; seed <= check_scaled(12); seed++) {
            best += run(&saturated[k], 2, 3, seed, 0, false);
            got += run(&saturated[k], 2, 3, seed, 0, true);
            mine += first;
        }
        printf("%2u channels, weights 3 : 1, %u requests each: %.3f of %.3f\n", saturated[k].channels,
               saturated[k].outstanding / 2, (double)mine / (double)got, (double)got / (double)best);
        CHECK_CONTEXT("weights, %u channels", saturated[k].channels);
        CHECK_LE(best * 98, got * 100);
        CHECK_LE(got * 745, mine * 1000);
    }
    return check_end();
}
