// proves: groups: two groups, and two clients of one group, get by weight within a request of each of one another in any
// proves: window, whatever others do, cancelled requests too; no window exceeds a limit of either level; what is refused.
// proves: With weights, reservations and limits at both levels, or without groups, with any answer to a limit near the
// proves: share, for 2 to 100 clients, everybody has 99 % of its max-min share over 100 rounds, if
// proves: limit_burst_ns is 5 ms or more; with less, which no scheduler can do, it has what is left of its limit.
// proves: A new group begins anew: a reservation in it is served at once, whatever its number and its ids went through
// proves: A group whose clients use four servers in turn has its share, its limit and its reservation in the sum
#include "check.h"
#include "tags.h"

#define GROUPS 6
#define IDS 24 /* of a group; fewer are clients */
#define CLIENTS (GROUPS * IDS)
#define SECOND UINT64_C(1000000000)

struct terms {
    double weight, limit; /* per second; limit 0: none */
    double reserved, share;
    uint64_t cost;
};

static struct terms group[GROUPS], client[CLIENTS];
static uint32_t groups, clients_of[GROUPS];
static struct tags t;
static struct check_mem mem;
static struct tags_config config;
static uint64_t factor; /* of the limits near a share, in percent; 0: each any of 80 to 150 */

static struct terms *of(uint32_t g, uint32_t i)
{
    return &client[g * IDS + i];
}

/* ---- set up ---- */

static void begin(uint32_t depth)
{
    uint32_t g, i;
    config.clients = CLIENTS;
    config.groups = groups;
    config.at_device_max = depth;
    config.count_by_client = true;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    for (g = 0; g < groups; g++) {
        struct tags_client x = {(uint64_t)group[g].weight, 0, (uint64_t)group[g].limit};
        CHECK_EQ(tags_group_add(&t, 1, CLIENTS + g, &x, g * IDS, IDS), QOS_OK);
        for (i = 0; i < clients_of[g]; i++) {
            struct tags_client y = {(uint64_t)of(g, i)->weight, 0, (uint64_t)of(g, i)->limit};
            CHECK_EQ(tags_add(&t, 1, g * IDS + i, &y), QOS_OK);
        }
    }
}

static void draw(struct check_rng *rng, uint32_t most_clients)
{
    uint32_t g, i;
    memset(&config, 0, sizeof config);
    memset(group, 0, sizeof group);
    memset(client, 0, sizeof client);
    groups = (uint32_t)check_between(rng, 1, GROUPS);
    for (g = 0; g < groups; g++) {
        clients_of[g] = (uint32_t)check_between(rng, 1, most_clients);
        group[g].weight = (double)check_between(rng, 1, 9);
        for (i = 0; i < clients_of[g]; i++)
            of(g, i)->weight = (double)check_between(rng, 1, 9);
    }
}

/* ---- windows ---- */

/* The most that something rose above a rate, over all windows that end now. */
struct window {
    double level;
    uint64_t at_ns;
};

static double above(struct window *w, double rate_per_s, uint64_t now, double units)
{
    w->level -= rate_per_s * (double)(now - w->at_ns) / (double)SECOND;
    w->level = (w->level > 0 ? w->level : 0) + units;
    w->at_ns = now;
    return w->level;
}

/* Of two that both wait all the time: how far the difference of their work per weight ranged. */
struct pair {
    double now, low, high;
};

static double range(struct pair *p, double by)
{
    p->now += by;
    p->low = p->now < p->low ? p->now : p->low;
    p->high = p->now > p->high ? p->now : p->high;
    return p->high - p->low;
}

static void top_up(uint32_t id, uint64_t now, unsigned *queued, unsigned n)
{
    CHECK_EQ(tags_arrive(&t, now, id, n, 1), QOS_OK);
    queued[id] += n;
}

/* Groups 0 and 1 and of each its clients 0 and 1 always wait, unlimited; all others come, go and are limited. One of
 * eight requests is cancelled. */
static void windows(struct check_rng *rng, uint64_t steps)
{
    static unsigned queued[CLIENTS];
    static struct window limit[CLIENTS + GROUPS];
    struct pair between_groups = {0, 0, 0}, inside[2] = {{0, 0, 0}, {0, 0, 0}};
    const double most = 10;
    uint64_t now = 1000, step, s;
    uint32_t g, i;
    draw(rng, 8);
    memset(queued, 0, sizeof queued);
    memset(limit, 0, sizeof limit);
    groups = groups < 2 ? 2 : groups;
    for (g = 0; g < groups; g++) {
        group[g].weight = group[g].weight > 0 ? group[g].weight : 1;
        for (i = clients_of[g]; i < 2; i++)
            of(g, i)->weight = (double)check_between(rng, 1, 9);
        clients_of[g] = clients_of[g] < 2 ? 2 : clients_of[g];
        if (g >= 2)
            group[g].limit = (double)check_between(rng, 5, 2000);
        for (i = 2; i < clients_of[g]; i++)
            of(g, i)->limit = (double)check_between(rng, 5, 500);
    }
    config.mode = TAGS_PS;
    config.cost_max = (uint64_t)most;
    config.limit_burst_ns = 1 + check_between(rng, 0, 100000000);
    config.at_limit = TAGS_WAIT;
    begin(4);
    for (step = 0; step < steps; step++) {
        struct tags_grant grant;
        uint64_t cost = check_between(rng, 1, 10);
        for (g = 0; g < 2; g++)
            for (i = 0; i < 2; i++)
                if (queued[g * IDS + i] < 2)
                    top_up(g * IDS + i, now, queued, 5);
        g = (uint32_t)check_between(rng, 0, groups - 1);
        i = (uint32_t)check_between(rng, 0, clients_of[g] - 1);
        if (queued[g * IDS + i] == 0 && check_between(rng, 0, 9) == 0)
            top_up(g * IDS + i, now, queued, (unsigned)check_between(rng, 1, 40));
        CHECK_EQ(tags_pull(&t, now, cost, &grant), QOS_OK); /* some always may */
        queued[grant.client]--;
        if (check_between(rng, 0, 7) == 0) {
            CHECK_EQ(tags_cancel(&t, now, &grant), QOS_OK);
            continue;
        }
        i = grant.client;
        g = i / IDS;
        s = (uint64_t)config.limit_burst_ns;
        if (client[i].limit > 0)
            CHECK(above(&limit[i], client[i].limit, now, 1) <= client[i].limit * (double)s / (double)SECOND + 1 + 1e-6);
        if (group[g].limit > 0)
            CHECK(above(&limit[CLIENTS + g], group[g].limit, now, 1) <=
                  group[g].limit * (double)s / (double)SECOND + 1 + 1e-6);
        if (g < 2) {
            double by = (g == 0 ? 1 : -1) * (double)cost / group[g].weight;
            CHECK_CONTEXT("groups 0 and 1, step %" PRIu64, step);
            CHECK(range(&between_groups, by) <= most / group[0].weight + most / group[1].weight + 1e-6);
            CHECK_CONTEXT("clients 0 and 1 of group %u, step %" PRIu64, g, step);
            if (i % IDS < 2)
                CHECK(range(&inside[g], (i % IDS ? -1 : 1) * (double)cost / client[i].weight) <=
                      most / of(g, 0)->weight + most / of(g, 1)->weight + 1e-6);
        }
        now += check_between(rng, 1, 1000000);
        CHECK_EQ(tags_complete(&t, now, &grant, 1000), QOS_OK);
    }
    CHECK(check_mem_free(&mem));
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* ---- shares: all keep requests queued, at a device of 1000 ns per unit of cost, which reservations and limits count ---- */

/* What each of n gets of `all` if it is weight * level, at least its reservation and at most its limit. */
static void fill(struct terms *const *of_n, uint32_t n, double all)
{
    double low = 0, high = all; /* weights are at least 1 */
    uint32_t i, k;
    for (k = 0; k < 100; k++) {
        double level = (low + high) / 2, sum = 0;
        for (i = 0; i < n; i++) {
            struct terms *x = of_n[i];
            x->share = x->weight * level > x->reserved ? x->weight * level : x->reserved;
            x->share = smaller(x->share, x->limit);
            sum += x->share;
        }
        if (sum < all)
            low = level;
        else
            high = level;
    }
}

/* Less than 5 ms: then limits are those of clients alone. */
static bool small_burst(void)
{
    return config.limit_burst_ns < 5000000 || config.limit_burst_ns == QOS_NOTHING;
}

/* A limit of 0.8 to 1.5 of what its weight gives, at least its reservation; or none. */
static struct tags_client near_share(struct check_rng *rng, struct terms *x, double by_weight)
{
    struct tags_client c = {(uint64_t)x->weight, (uint64_t)x->reserved, 0};
    if (check_between(rng, 0, 1))
        c.limit_per_s = (uint64_t)(by_weight * (double)(factor ? factor : check_between(rng, 80, 150)) / 100) + 1;
    if (c.limit_per_s)
        c.limit_per_s = qos_max(c.limit_per_s, c.reservation_per_s);
    x->limit = c.limit_per_s ? (double)c.limit_per_s : 1e18;
    return c;
}

/* The clients of a group and their part of `fair`, what its weight gives it. */
static void draw_inside(struct check_rng *rng, uint32_t g, double fair)
{
    double weights = 0, held = 0, limits = 0;
    struct tags_client c, inside[CLIENTS];
    uint32_t i;
    for (i = 0; i < clients_of[g]; i++)
        weights += of(g, i)->weight;
    for (i = 0; i < clients_of[g]; i++) {
        struct terms *x = of(g, i);
        double part = fair * x->weight / weights;
        if (config.groups && check_between(rng, 0, 2) == 0)
            x->reserved = (double)(uint64_t)(part * (double)check_between(rng, 20, 150) / 100);
        if (held + x->reserved > 0.8 * fair)
            x->reserved = 0;
        held += x->reserved;
        inside[i] = near_share(rng, x, part);
        limits += x->limit;
        x->cost = check_between(rng, 1, config.cost_max);
    }
    group[g].reserved = check_between(rng, 0, 1) ? (double)(uint64_t)(0.9 * fair) : held;
    c = near_share(rng, &group[g], fair);
    if (small_burst() || !config.groups) {
        c.limit_per_s = 0;
        group[g].limit = 1e18;
    }
    group[g].limit = limits < group[g].limit ? limits : group[g].limit;
    group[g].reserved = limits < group[g].reserved ? limits : group[g].reserved;
    if (config.groups)
        CHECK_EQ(tags_group_add(&t, SECOND, CLIENTS + g, &c, g * IDS, IDS), QOS_OK);
    for (i = 0; i < clients_of[g]; i++) {
        CHECK_EQ(tags_add(&t, SECOND, g * IDS + i, &inside[i]), QOS_OK);
        CHECK_EQ(tags_arrive(&t, SECOND, g * IDS + i, 10000000, of(g, i)->cost), QOS_OK);
    }
}

/* What a limit is worth with a small burst. With a burst of 0 two requests are c / L apart, by the bound of the limit; when
 * one may be sent, the device is busy with another one: it is late by half a request of others on average, whatever the
 * scheduler does. By a turn at most, which is one request of each client; by reservation until its deadline. */
static double worth(const struct terms *x, double turn_ns)
{
    const double burst_ns = (double)(config.limit_burst_ns == QOS_NOTHING ? 0 : config.limit_burst_ns);
    const double late_ns = turn_ns + (x->reserved > 0 ? (double)x->cost / x->reserved * 1e9 : 0) - burst_ns;
    if (!small_burst() || late_ns <= 0 || x->limit > 1e17)
        return x->limit;
    return (double)x->cost / ((double)x->cost / x->limit + late_ns / 1e9);
}

/* Each group has 99 % of its max-min share of the device, and each client of its group's, over 100 rounds. Returns the
 * least part of a share. flat: without groups, one request at a time. */
static double shares(struct check_rng *rng, uint64_t stream, bool flat)
{
    static const uint64_t factors[] = {80, 90, 100, 102, 110, 150}, bursts[] = {0, SECOND / 100, SECOND / 10};
    struct terms *level[CLIENTS] = {NULL};
    double sum = 0, round = 0, least = 9, turn_ns = 0;
    static double got[CLIENTS];
    struct tags_grant flight[4];
    uint64_t now = SECOND, end;
    uint32_t g, i, flights = 0;
    draw(rng, IDS);
    factor = flat ? factors[stream % 6] : 0;
    if (flat) {
        groups = 1;
        clients_of[0] = (uint32_t)check_between(rng, 2, stream % 5 ? 12 : 100);
        for (i = 0; i < clients_of[0]; i++)
            client[i].weight = (double)check_between(rng, 1, stream % 3 ? 1 : 10);
        config.at_limit = (enum tags_at_limit)(stream / 18 % 3);
        config.reject_after_ns = UINT64_MAX - 1;
    }
    memset(got, 0, sizeof got);
    memset(flight, 0, sizeof flight);
    config.mode = TAGS_PS;
    config.count_cost = true;
    config.cost_max = stream % 4 ? 100 : 1;
    config.limit_burst_ns =
        stream % 2 ? check_between(rng, 0, 49) * 100000 : check_between(rng, 5, 100) * (SECOND / 1000);
    config.limit_burst_ns = flat ? bursts[stream / 6 % 3] : config.limit_burst_ns;
    config.limit_burst_ns = config.limit_burst_ns ? config.limit_burst_ns : QOS_NOTHING;
    config.clients = CLIENTS;
    config.groups = flat ? 0 : groups;
    config.at_device_max = flat ? 1 : (uint32_t)check_between(rng, 1, 4);
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    CHECK_CONTEXT("shares, run %" PRIu64 ": %u groups, %u at the device", stream, groups, config.at_device_max);
    for (g = 0; g < groups; g++)
        sum += group[g].weight;
    for (g = 0; g < groups; g++) {
        level[g] = &group[g];
        draw_inside(rng, g, 1e6 * group[g].weight / sum);
    }
    fill(level, groups, 1e6);
    for (i = 0; i < CLIENTS; i++)
        turn_ns += 1000 * (double)client[i].cost;
    for (g = 0; g < groups; g++) {
        for (i = 0; i < clients_of[g]; i++)
            level[i] = of(g, i);
        fill(level, clients_of[g], group[g].share);
        for (i = 0; i < clients_of[g]; i++)
            level[i]->share = smaller(level[i]->share, worth(level[i], turn_ns));
        for (i = 0; i < clients_of[g]; i++)
            round = (double)level[i]->cost / level[i]->share > round ? (double)level[i]->cost / level[i]->share : round;
    }
    for (end = now + (uint64_t)(100 * round * (double)SECOND); now < end;) {
        struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
        while (flights < config.at_device_max && tags_choose(&t, now, &choice) == QOS_OK) {
            CHECK_EQ(tags_dispatch(&t, now, &choice, client[choice.client].cost, 0, 0, &flight[flights++]), QOS_OK);
            got[choice.client] += (double)client[choice.client].cost;
        }
        if (flights == 0) {
            now = tags_next_ns(&t, now);
            continue;
        }
        now += client[flight[0].client].cost * 1000;
        CHECK_EQ(tags_complete(&t, now, &flight[0], 0), QOS_OK);
        memmove(flight, flight + 1, --flights * sizeof *flight);
    }
    for (i = 0; i < CLIENTS; i++) {
        double part = got[i] / (client[i].share * (double)(now - SECOND) / (double)SECOND);
        if (flat ? i >= clients_of[0] : i / IDS >= groups || i % IDS >= clients_of[i / IDS])
            continue;
        least = smaller(part, least);
        CHECK_CONTEXT("shares, run %" PRIu64 ", client %u of group %u", stream, i % IDS, i / IDS);
        CHECK_WITHIN(part, 0.99, small_burst() ? 1e9 : 9);
    }
    CHECK(check_mem_free(&mem));
    return least;
}

/* ---- what is refused ---- */

static void refusals(void)
{
    const struct tags_client small = {1, 40, 100}, large = {2, 100, 200}, bare = {1, 0, 0}, more = {1, 61, 0};
    const struct tags_client less = {2, 79, 200}, enough = {2, 80, 200}, none = {1, 0, 50};
    struct tags_state state;
    struct tags_grant grant;
    uint32_t dropped;
    CHECK_CONTEXT("refusals");
    memset(&config, 0, sizeof config);
    config.clients = 28;
    config.groups = 3;
    CHECK(tags_config_error(&config) != NULL); /* not a multiple of 8 */
    config.clients = TAGS_CLIENTS_MAX;
    CHECK(tags_config_error(&config) != NULL); /* groups included */
    config.clients = 32;
    config.mode = TAGS_PS;
    config.capacity_per_s = 150;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(tags_add(&t, 1, 0, &bare), QOS_ENOENT); /* in no group */
    CHECK_EQ(tags_add(&t, 1, 32, &bare), QOS_ENOENT);
    CHECK_EQ(tags_group_add(&t, 1, 31, &large, 0, 8), QOS_ENOENT);
    CHECK_EQ(tags_group_add(&t, 1, 35, &large, 0, 8), QOS_ENOENT);
    CHECK_EQ(tags_group_add(&t, 1, 32, &large, 4, 8), QOS_EINVAL);
    CHECK_EQ(tags_group_add(&t, 1, 32, &large, 0, 0), QOS_EINVAL);
    CHECK_EQ(tags_group_add(&t, 1, 32, NULL, 0, 8), QOS_EINVAL);
    CHECK_EQ(tags_group_add(&t, 1, 32, &large, 24, 16), QOS_ERANGE);
    CHECK_EQ(tags_group_add(&t, 1, 32, &large, 8, 16), QOS_OK);
    CHECK_EQ(tags_group_add(&t, 1, 32, &large, 0, 8), QOS_EEXIST);
    CHECK_EQ(tags_group_add(&t, 1, 33, &small, 16, 8), QOS_EEXIST);
    CHECK_EQ(tags_group_add(&t, 1, 33, &more, 24, 8), QOS_EADMISSION); /* 61 of 50 that are left */
    CHECK_EQ(tags_group_add(&t, 1, 33, &small, 24, 8), QOS_OK);
    CHECK_EQ(tags_info(&t, QOS_NONE, &state), QOS_OK);
    CHECK_EQ(state.admissible_per_s, 10);
    CHECK_EQ(tags_add(&t, 1, 8, &small), QOS_OK);
    CHECK_EQ(tags_add(&t, 1, 8, &small), QOS_EEXIST);
    CHECK_EQ(tags_add(&t, 1, 9, &more), QOS_EADMISSION); /* 61 of 60 */
    CHECK_EQ(tags_add(&t, 1, 9, &small), QOS_OK);
    CHECK_EQ(tags_info(&t, 9, &state), QOS_OK);
    CHECK_EQ(state.admissible_per_s, 60);
    CHECK_EQ(tags_change(&t, 1, 32, &less), QOS_EADMISSION); /* its clients have 80 */
    CHECK_EQ(tags_change(&t, 1, 32, &enough), QOS_OK);
    CHECK_EQ(tags_add(&t, 1, 10, &small), QOS_EADMISSION);
    CHECK_EQ(tags_arrive(&t, 1, 32, 1, 1), QOS_ENOENT); /* requests are a client's */
    CHECK_EQ(tags_force(&t, 1, 32, 1, &grant), QOS_ENOENT);
    CHECK_EQ(tags_arrive(&t, 1, 8, 2, 1), QOS_OK);
    CHECK_EQ(tags_info(&t, 32, &state), QOS_OK);
    CHECK(state.queued == 2 && state.at_device == 0 && state.reserved_per_s == 80);
    CHECK_EQ(tags_pull(&t, 1, 1, &grant), QOS_OK);
    CHECK(grant.client == 8 && grant.phase == TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_remove(&t, 1, 32, NULL), QOS_EBUSY);
    CHECK_EQ(tags_remove(&t, 1, 8, &dropped), QOS_OK);
    CHECK_EQ(dropped, 1);
    CHECK_EQ(tags_remove(&t, 1, 9, NULL), QOS_OK);
    CHECK_EQ(tags_remove(&t, 1, 32, NULL), QOS_EBUSY); /* a grant is out */
    CHECK_EQ(tags_complete(&t, 2, &grant, 1), QOS_OK);
    CHECK_EQ(tags_info(&t, 32, &state), QOS_OK);
    CHECK(state.queued == 0 && state.at_device == 0);
    CHECK_EQ(tags_remove(&t, 1, 32, NULL), QOS_OK);
    CHECK_EQ(tags_info(&t, 32, &state), QOS_ENOENT);
    CHECK_EQ(tags_add(&t, 1, 8, &small), QOS_ENOENT);
    CHECK_EQ(tags_group_add(&t, 3, 34, &none, 0, 24), QOS_OK); /* its ids are free again */
    CHECK_EQ(tags_add(&t, 3, 8, &small), QOS_EADMISSION);
    CHECK_EQ(tags_add(&t, 3, 8, &bare), QOS_OK);
    CHECK(check_mem_free(&mem));
}

static uint32_t serve(uint64_t *now, uint64_t service_ns)
{
    struct tags_grant grant;
    CHECK_EQ(tags_pull(&t, *now, 1, &grant), QOS_OK);
    *now += service_ns;
    CHECK_EQ(tags_complete(&t, *now, &grant, service_ns), QOS_OK);
    return grant.client;
}

/* An hour's stall moves the reservation clock inside of a group back. Then both groups go, and its number is that of a
 * new group, of the ids of the other one. */
static void regrouped(void)
{
    const struct tags_client of_group = {1, 500, 0}, reserved = {1, 100, 0}, heavy = {1000, 0, 0};
    uint64_t now = SECOND, got = 0;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.clients = 16;
    config.groups = 2;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 16, &of_group, 0, 8), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 17, &of_group, 8, 8), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 0, &reserved), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 8, &reserved), QOS_OK);
    CHECK_EQ(tags_arrive(&t, now, 8, 10, 1), QOS_OK);
    (void)serve(&now, 3600 * SECOND);
    for (i = 0; i < 9; i++)
        (void)serve(&now, SECOND / 1000);
    CHECK_EQ(tags_arrive(&t, now, 0, 1, 1), QOS_OK);
    (void)serve(&now, SECOND / 1000);
    CHECK_EQ(tags_remove(&t, now, 0, NULL), QOS_OK);
    CHECK_EQ(tags_remove(&t, now, 8, NULL), QOS_OK);
    CHECK_EQ(tags_remove(&t, now, 16, NULL), QOS_OK);
    CHECK_EQ(tags_remove(&t, now, 17, NULL), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 17, &of_group, 0, 8), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 0, &reserved), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 1, &heavy), QOS_OK);
    CHECK_EQ(tags_arrive(&t, now, 0, 20000, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&t, now, 1, 20000, 1), QOS_OK);
    for (i = 0; i < 10000; i++)
        got += serve(&now, SECOND / 1000) == 0;
    CHECK_LE(998, got); /* 100 per second for 10 s; it may miss two */
    CHECK(check_mem_free(&mem));
}

/* A client was served 1,000 times by its share tag, or above its limit, when its group went. In a new one it owes nothing. */
static void owes_nothing(uint64_t limit_per_s)
{
    const struct tags_client of_group = {1, 0, 0}, terms = {1, 0, limit_per_s};
    uint64_t now = SECOND, i, got[2] = {0, 0};
    memset(&config, 0, sizeof config);
    config.clients = 8;
    config.groups = 2;
    config.mode = TAGS_PS;
    config.at_limit = TAGS_ALLOW;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 8, &of_group, 0, 8), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 0, &terms), QOS_OK);
    CHECK_EQ(tags_arrive(&t, now, 0, 1000, 1), QOS_OK);
    for (i = 0; i < 1000; i++)
        (void)serve(&now, SECOND / 1000);
    CHECK_EQ(tags_remove(&t, now, 0, NULL), QOS_OK);
    CHECK_EQ(tags_remove(&t, now, 8, NULL), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 9, &of_group, 0, 8), QOS_OK);
    for (i = 0; i < 2; i++) { /* the other one comes first */
        CHECK_EQ(tags_add(&t, now, (uint32_t)(1 - i), &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&t, now, (uint32_t)(1 - i), 100, 1), QOS_OK);
    }
    for (i = 0; i < 100; i++)
        got[serve(&now, SECOND / 1000)]++;
    CHECK_LE(47, got[0]); /* of 50; a burst of 100 ms may come first */
    CHECK_LE(47, got[1]);
    CHECK(check_mem_free(&mem));
}

/* A device of 25 us a request and depth 8, seen by a clock of 1 ms. A sibling cancels 60 of 100 requests, or says a cost of 4 and takes
 * 1, and asks for its own reservation at once: that takes nothing of another one's. Half of the device is not reserved. */
static void corrected_sibling(bool cancels)
{
    const struct tags_client of_group = {3, 14000, 0}, other = {2, 0, 0}, honest = {1, 8000, 0},
                             sibling = {100, 3000, 0};
    const uint64_t tick_ns = SECOND / 1000;
    uint64_t now = SECOND, done_ns = 0, got = 0, sent = 0;
    struct at_device {
        struct tags_grant grant;
        uint64_t end_ns;
        bool cancel;
    } at_device[8], out;
    uint32_t i, n = 0;
    memset(&config, 0, sizeof config);
    config.clients = 16;
    config.groups = 2;
    config.at_device_max = 8;
    config.capacity_per_s = 40000;
    config.count_cost = !cancels;
    config.cost_max = 4;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 16, &of_group, 0, 8), QOS_OK);
    CHECK_EQ(tags_group_add(&t, now, 17, &other, 8, 8), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 0, &honest), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 1, &sibling), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 2, &sibling), QOS_OK);
    CHECK_EQ(tags_add(&t, now, 8, &other), QOS_OK);
    for (i = 0; i <= 8; i += i == 2 ? 6 : 1)
        CHECK_EQ(tags_arrive(&t, now, i, 100000, 1), QOS_OK);
    while (now < 2 * SECOND) {
        struct tags_choice choice;
        uint32_t first = 0;
        while (n < 8 && tags_choose(&t, now / tick_ns * tick_ns, &choice) == QOS_OK) {
            const uint64_t cost = choice.client == 1 && !cancels ? 4 : 1;
            CHECK_EQ(tags_dispatch(&t, now / tick_ns * tick_ns, &choice, cost, 0, 0, &at_device[n].grant), QOS_OK);
            at_device[n].cancel = cancels && choice.client == 1 && sent++ % 5 < 3;
            done_ns = at_device[n].cancel ? done_ns : (done_ns > now ? done_ns : now) + 25000;
            at_device[n].end_ns = at_device[n].cancel ? now + 10000 : done_ns;
            got += choice.client == 0;
            n++;
        }
        for (i = 1; i < n; i++)
            first = at_device[i].end_ns < at_device[first].end_ns ? i : first;
        out = at_device[first];
        at_device[first] = at_device[--n];
        now = out.end_ns;
        out.grant.cost = 1;
        if (out.cancel)
            CHECK_EQ(tags_cancel(&t, now / tick_ns * tick_ns, &out.grant), QOS_OK);
        else
            CHECK_EQ(tags_complete(&t, now / tick_ns * tick_ns, &out.grant, 25000), QOS_OK);
    }
    CHECK_LE(8000 - 12, got); /* the time of 9 requests, two more, and 8 for the clock */
    CHECK(check_mem_free(&mem));
}

/* ---- several servers ---- */

/* Four clients of a group of weight 1 use four servers of 2,000 requests a second in turn, 100 ms each, all at once, or
 * with a limit 5 ms apart. Beside them is one of this weight at each server. The group has its limit, its reservation, or
 * half a server. */
static void in_turn(enum tags_mode mode, uint64_t weight, uint64_t reservation, uint64_t limit, double want)
{
    static struct tags server[4];
    static struct check_mem memory[4];
    struct tags_tracker tracker[4];
    struct tags_tracker_server told[4][4];
    uint32_t queued[4][9], k, i, got = 0;
    const struct tags_client terms[2] = {{1, reservation, limit}, {weight, 0, 0}};
    struct tags_config c;
    uint64_t now;
    memset(&c, 0, sizeof c);
    memset(tracker, 0, sizeof tracker);
    memset(told, 0, sizeof told);
    memset(queued, 0, sizeof queued);
    c.clients = 16;
    c.groups = 2;
    c.mode = mode;
    for (k = 0; k < 4; k++) {
        check_mem_new(&memory[k], tags_memsize(&c), 64, 0);
        CHECK_EQ(tags_init(&server[k], memory[k].mem, memory[k].size, &c), QOS_OK);
        for (i = 0; i < 2; i++)
            CHECK_EQ(tags_group_add(&server[k], 1, 16 + i, &terms[i], 8 * i, 8), QOS_OK);
        for (i = 0; i < 5; i++) {
            const struct tags_client own = {1, i < 4 ? reservation / 4 : 0, 0};
            CHECK_EQ(tags_add(&server[k], 1, i < 4 ? i : 8, &own), QOS_OK);
        }
    }
    for (now = SECOND; now < 21 * SECOND; now += 500000)
        for (k = 0; k < 4; k++) {
            struct tags_choice choice;
            struct tags_grant g;
            uint32_t rho = 0, delta = 0, id;
            for (i = 0; i < 9; i += i == 3 ? 5 : 1)
                if (i < 4 && (now / 1000000 - (limit ? 5 * i : 0)) / 100 % 4 != k) {
                    if (queued[k][i])
                        CHECK_EQ(tags_withdraw(&server[k], now, i, queued[k][i]), QOS_OK);
                    queued[k][i] = 0;
                } else {
                    for (; queued[k][i] < 4; queued[k][i]++)
                        CHECK_EQ(tags_arrive(&server[k], now, i, 1, 1), QOS_OK);
                }
            if (tags_choose(&server[k], now, &choice) != QOS_OK)
                continue;
            id = choice.client;
            if (id < 4)
                tags_tracker_send(&tracker[id], &told[id][k], &rho, &delta);
            CHECK_EQ(tags_dispatch(&server[k], now, &choice, 1, rho, delta, &g), QOS_OK);
            CHECK_EQ(tags_complete(&server[k], now, &g, 500000), QOS_OK);
            queued[k][id]--;
            if (id < 4)
                tags_tracker_done(&tracker[id], g.phase, 1, &told[id][k]);
            got += id < 4;
        }
    CHECK_CONTEXT("mode %u, weight %" PRIu64 ", reservation %" PRIu64 ", limit %" PRIu64 ": %.1f a second",
                  (unsigned)mode, weight, reservation, limit, got / 20.0);
    CHECK(got / 20.0 > 0.98 * want && got / 20.0 < 1.02 * want);
    for (k = 0; k < 4; k++)
        check_mem_free(&memory[k]);
}

int main(void)
{
    struct check_rng rng;
    double least = 9, part;
    uint64_t i;
    check_begin("property/tags_groups");
    check_rng_init(&rng, check_seed());
    if (check_case("refusals"))
        refusals();
    if (check_case("regrouped"))
        regrouped();
    if (check_case("corrected_sibling")) {
        corrected_sibling(true);
        corrected_sibling(false);
    }
    for (i = 0; i < 2 && check_case("in_turn"); i++) {
        const enum tags_mode mode = i ? TAGS_PS : TAGS_REWARD;
        in_turn(mode, 1, 0, 0, 1000);
        in_turn(mode, 1, 0, 600, 600);
        in_turn(mode, 50, 600, 0, 600);
    }
    if (check_case("owes_nothing")) {
        owes_nothing(0);
        owes_nothing(1);
    }
    for (i = 0; i < check_scaled(60) && check_case("windows"); i++)
        windows(&rng, 20000);
    for (i = 0; i < check_scaled(40) && check_case("shares"); i++) {
        part = shares(&rng, i, false);
        least = smaller(part, least);
    }
    printf("least part of a max-min share: %.4f\n", least);
    for (i = 0, least = 9; i < check_scaled(72) && check_case("flat"); i++) {
        part = shares(&rng, i, true);
        least = smaller(part, least);
    }
    printf("the same without groups: %.4f\n", least);
    return check_end();
}
