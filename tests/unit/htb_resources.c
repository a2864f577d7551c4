// proves: which resource the rates, limits and tokens are in makes no difference: in trees of 2 to 4 resources of one rate, with
// proves: groups, by rate and by flight, with queues, the gate, late callers, the maximizer and changes of terms and of the
// proves: root, each answer is the same whichever resource all requests use
// variants: native san i386
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define CLASSES 8u /* the last one is a group, or not there */
#define REQUESTS 100u
#define STEPS 300u

static struct htb tree;
static unsigned char memory[1 << 16] __attribute__((aligned(64)));
static struct htb_request request[REQUESTS];
static uint64_t end_ns[REQUESTS];
static struct check_rng rng;
static uint32_t used;    /* the resource */
static uint64_t answers; /* a hash of all so far */

static uint64_t below(uint64_t n)
{
    return check_between(&rng, 0, n - 1);
}

static void note(uint64_t answer)
{
    answers = (answers ^ answer ^ answers >> 29) % UINT64_C(4294967291) * UINT64_C(2654435769);
}

static void give(uint64_t all[HTB_RESOURCES_MAX], uint64_t n)
{
    memset(all, 0, HTB_RESOURCES_MAX * sizeof *all);
    all[used] = n;
}

/* Of rate R, with a limit or none, and maybe in the group. */
static struct htb_class terms_of(uint64_t rate, uint64_t root, uint32_t group)
{
    struct htb_class k;
    memset(&k, 0, sizeof k);
    give(k.rate_per_s, rate);
    give(k.limit_per_s, below(3) ? 0 : rate + 1 + below(root / 5));
    k.parent = below(2) ? group : 0;
    k.weight = (uint32_t)below(5);
    k.latency_ns = below(3) ? 0 : (1 + below(50)) * MS;
    k.burst_ns = below(3) ? 0 : (1 + below(30)) * MS;
    return k;
}

/* A request that is complete comes back some time, of another class. */
static void submit(struct htb_request *r, uint64_t now, uint64_t root)
{
    r->class_id = (uint32_t)below(CLASSES);
    give(r->tokens, 1 + root / (100 + 100 * r->class_id));
    r->offset = below(1000000);
    r->urgent = below(100) == 0;
    r->gate = below(20) == 0;
    note(htb_submit(&tree, now, r) == QOS_OK);
}

static void change(uint64_t now, uint64_t root, uint32_t group)
{
    const uint32_t id = 1 + (uint32_t)below(CLASSES - 2);
    const struct htb_class k = terms_of(below(root / 5), root, group);
    uint64_t fits[HTB_RESOURCES_MAX] = {0}, rates[HTB_RESOURCES_MAX];
    uint32_t i;
    note((uint64_t)-htb_change(&tree, now, id, &k, fits));
    note((uint64_t)-htb_reserve(&tree, now, id, &k, fits));
    note(fits[used]);
    for (i = 0; i < HTB_RESOURCES_MAX; i++)
        rates[i] = root + below(2) * (i == 0) * root / 10;
    rates[used] = rates[0];
    if (below(10) == 0)
        note((uint64_t)-htb_change_root(&tree, now, rates));
    if (below(10) == 0)
        note((uint64_t)-htb_release(&tree, now, id));
}

static void take(uint64_t now, uint64_t root)
{
    const uint32_t id = (uint32_t)below(CLASSES);
    uint64_t n[HTB_RESOURCES_MAX];
    give(n, 1 + root / (100 + 100 * id));
    note((uint64_t)-htb_take_all(&tree, now, id, n));
    note(htb_next_ns_all(&tree, now, id, n));
}

static uint64_t run(uint64_t seed, uint32_t resources)
{
    const uint64_t root = UINT64_C(100000) << seed % 14;
    struct htb_config c;
    struct htb_class k;
    struct htb_state state;
    struct htb_request *r;
    uint64_t now = S, device = S, next, late, slow;
    uint32_t i, step, group, gate;
    check_rng_init(&rng, seed);
    memset(&c, 0, sizeof c);
    memset(request, 0, sizeof request);
    c.resources = resources;
    c.classes = CLASSES;
    for (i = 0; i < HTB_RESOURCES_MAX; i++)
        c.rate_per_s[i] = root;
    c.bound = below(2) ? HTB_BY_RATE : HTB_BY_FLIGHT;
    c.request_max_tokens = below(3) ? 0 : below(2) ? root / 100 : QOS_NOTHING;
    c.dispatch_max = c.device_max = below(2) ? REQUESTS : 1 + (uint32_t)below(40);
    c.maximize_interval_ns = 10 * MS;
    c.start_ns = now;
    CHECK_EQ(htb_init(&tree, memory, sizeof memory, &c), QOS_OK);
    late = below(3) ? 1 + below(40) * MS : 1;
    slow = 3 + below(15); /* time that the device takes, in tenths of what the root's rate says */
    gate = (uint32_t)below(2);
    group = below(2) ? CLASSES - 1 : 0;
    answers = 1;
    k = terms_of(root / 3, root, 0);
    k.group = true;
    if (group != 0)
        CHECK_EQ(htb_reserve(&tree, now, group, &k, NULL), QOS_OK);
    for (i = 1; i < CLASSES - 1; i++) {
        k = terms_of(below(3) ? below(root / 10) : 0, root, group);
        note((uint64_t)-htb_reserve(&tree, now, i, &k, NULL));
    }
    for (step = 0; step < STEPS; step++) {
        for (i = 0; i < REQUESTS; i++)
            if (request[i].state == HTB_AT_DEVICE && end_ns[i] <= now)
                CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, &request[i]), QOS_OK);
            else if (request[i].state == HTB_IDLE && below(2))
                submit(&request[i], now, root);
        for (i = 0; gate && i < 3; i++)
            take(now, root);
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            note((uint64_t)(r - request));
            device = qos_max(device, now) + r->tokens[used] * (S / 1000 * slow / 10) / (root / 1000);
            end_ns[r - request] = device;
        }
        if (c.bound == HTB_BY_RATE)
            note((uint64_t)htb_maximize(&tree, now, false));
        if (below(40) == 0)
            change(now, root, group);
        CHECK_EQ(htb_info(&tree, &state), QOS_OK);
        note(state.flight_bound_ns);
        note(state.rate_per_s[used]);
        next = qos_min(htb_dispatch_next_ns(&tree, now), now + 100 * MS);
        note(next);
        for (i = 0; i < REQUESTS; i++)
            if (request[i].state == HTB_AT_DEVICE)
                next = qos_min(next, end_ns[i]);
        now = qos_max(next, now) + below(late);
    }
    return answers;
}

int main(void)
{
    uint64_t seed, first;
    uint32_t resources;
    check_begin("unit/htb_resources");
    for (seed = 0; seed < 60; seed++) {
        resources = 2 + (uint32_t)(seed % 3);
        used = 0;
        first = run(seed, resources);
        used = 1 + (uint32_t)(seed / 3 % (resources - 1));
        CHECK_CONTEXT("seed %" PRIu64 ": all in resource %u of %u", seed, used, resources);
        CHECK_EQ(run(seed, resources), first);
    }
    return check_end();
}
