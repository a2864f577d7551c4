// proves: groups: in the long run each client has the share that reservations, limits and weights at both levels give
// proves: it (water filling, twice), by cost or by device time; two groups, and two clients of one group, get by weight
// proves: within a request of each of one another in any window, whatever others do; a client has its reservation from
// proves: the moment it is backlogged; no window exceeds a limit of either level; next_ns is exact; what is refused
#include "check.h"
#include "tags.h"

#define GROUPS 6
#define IDS 24 /* of a group; fewer are clients */
#define CLIENTS (GROUPS * IDS)
#define SECOND UINT64_C(1000000000)

struct terms {
    double weight, reservation, limit; /* per second; limit 0: none */
    double got, share, size;
    bool on;
};

static struct terms group[GROUPS], client[CLIENTS];
static uint32_t groups, clients_of[GROUPS];
static struct tags t;
static struct check_mem mem;
static struct tags_config config;
static uint64_t waits, by_group;

static struct terms *of(uint32_t g, uint32_t i)
{
    return &client[g * IDS + i];
}

/* ---- the shares ---- */

static double between(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* What each of n gets of `all` if x = weight * level within its reservation and its most. More than that is left. */
static void fill(const double *weight, const double *least, const double *most, uint32_t n, double all, double *x)
{
    double low = 0, high = 1e18, sum;
    uint32_t i, k;
    for (k = 0; k < 400; k++) {
        double level = high > 4 * low + 1e-9 ? (low + 1e-9) * 2 : (low + high) / 2;
        sum = 0;
        for (i = 0; i < n; i++)
            sum += between(weight[i] * level, least[i], most[i]);
        if (sum < all)
            low = level;
        else
            high = level;
    }
    for (i = 0; i < n; i++)
        x[i] = between(weight[i] * low, least[i], most[i]);
}

/* Limits below which nobody is: what is left over goes by weight alone (TAGS_ALLOW). */
static void spill(const double *weight, uint32_t n, double all, double *x)
{
    double left = all, weights = 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        left -= x[i];
        weights += weight[i];
    }
    for (i = 0; i < n && left > 0; i++)
        x[i] += left * weight[i] / weights;
}

static void shares(double capacity, bool allow)
{
    double w[IDS] = {0}, least[IDS] = {0}, most[IDS] = {0}, x[IDS] = {0};
    double gw[GROUPS] = {0}, gleast[GROUPS] = {0}, gmost[GROUPS] = {0}, gx[GROUPS] = {0};
    uint32_t g, i;
    for (g = 0; g < groups; g++) {
        double all = 0;
        for (i = 0; i < clients_of[g]; i++)
            all += of(g, i)->limit > 0 ? of(g, i)->limit : 1e15;
        gw[g] = group[g].weight;
        gmost[g] = group[g].limit > 0 && group[g].limit < all ? group[g].limit : all;
        gleast[g] = group[g].reservation < gmost[g] ? group[g].reservation : gmost[g];
    }
    fill(gw, gleast, gmost, groups, capacity, gx);
    if (allow)
        spill(gw, groups, capacity, gx);
    for (g = 0; g < groups; g++) {
        for (i = 0; i < clients_of[g]; i++) {
            w[i] = of(g, i)->weight;
            least[i] = of(g, i)->reservation;
            most[i] = of(g, i)->limit > 0 ? of(g, i)->limit : 1e15;
        }
        fill(w, least, most, clients_of[g], gx[g], x);
        if (allow)
            spill(w, clients_of[g], gx[g], x);
        for (i = 0; i < clients_of[g]; i++)
            of(g, i)->share = x[i];
    }
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
        struct tags_client x = {(uint64_t)group[g].weight, (uint64_t)group[g].reservation, (uint64_t)group[g].limit};
        CHECK_EQ(tags_group_add(&t, 1, CLIENTS + g, &x, g * IDS, IDS), QOS_OK);
        for (i = 0; i < clients_of[g]; i++) {
            struct tags_client y = {(uint64_t)of(g, i)->weight, (uint64_t)of(g, i)->reservation,
                                    (uint64_t)of(g, i)->limit};
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
        for (i = 0; i < clients_of[g]; i++) {
            of(g, i)->weight = (double)check_between(rng, 1, 9);
            of(g, i)->size = 1;
        }
    }
}

/* ---- long-run shares ---- */

/* Reservations of at most 0.8 of the device, limits around the shares, at both levels. */
static void draw_rates(struct check_rng *rng, double capacity)
{
    const bool tight = check_between(rng, 0, 3) == 0; /* the device is not used up */
    uint32_t g, i;
    for (g = 0; g < groups; g++) {
        double left;
        if (check_between(rng, 0, 1))
            group[g].reservation = (double)(uint64_t)(capacity * 0.8 / groups * (double)check_between(rng, 1, 10) / 10);
        if (tight || check_between(rng, 0, 2) == 0)
            group[g].limit =
                (double)(uint64_t)(group[g].reservation + capacity / groups * (double)check_between(rng, 1, 15) / 10);
        if (tight)
            group[g].limit = (double)(uint64_t)(group[g].reservation + capacity / 6 / groups);
        left = group[g].reservation;
        for (i = 0; i < clients_of[g]; i++) {
            struct terms *c = of(g, i);
            if (check_between(rng, 0, 1)) {
                c->reservation = (double)(uint64_t)(left * (double)check_between(rng, 1, 10) / 10);
                left -= c->reservation;
            }
            if (check_between(rng, 0, 2) == 0)
                c->limit =
                    (double)(uint64_t)(c->reservation + 1 +
                                       capacity / groups / clients_of[g] * (double)check_between(rng, 1, 20) / 10);
        }
    }
}

/* All keep two requests queued; one request at the device. The time that one takes, by client. */
static void long_run(struct check_rng *rng, bool reward, enum tags_at_limit at_limit)
{
    const double capacity = 2000;
    const uint64_t begin_ns = 3 * SECOND, end_ns = 23 * SECOND;
    uint64_t now = 1000;
    uint32_t g, i;
    draw(rng, 8);
    if (!reward)
        draw_rates(rng, capacity);
    config.mode = reward ? TAGS_REWARD : TAGS_PS;
    config.at_limit = at_limit;
    config.cost_max = 10;
    for (g = 0; g < groups; g++)
        for (i = 0; i < clients_of[g] && reward; i++)
            of(g, i)->size = (double)check_between(rng, 1, 8);
    begin(1);
    for (g = 0; g < groups; g++)
        for (i = 0; i < clients_of[g]; i++)
            CHECK_EQ(tags_arrive(&t, now, g * IDS + i, 2, 1), QOS_OK);
    while (now < end_ns) {
        struct tags_grant grant;
        uint64_t next, service;
        struct terms *c;
        enum qos_status status = tags_pull(&t, now, 1, &grant);
        if (status != QOS_OK) {
            CHECK_EQ(status, QOS_EAGAIN);
            next = tags_next_ns(&t, now);
            CHECK(next > now && next < now + SECOND);
            waits++;
            struct tags_choice choice;
            CHECK_EQ(tags_choose(&t, next - 1, &choice), QOS_EAGAIN);
            now = next;
            CHECK_EQ(tags_choose(&t, now, &choice), QOS_OK);
            continue;
        }
        by_group += grant.phase == TAGS_PHASE_GROUP;
        c = &client[grant.client];
        service = (uint64_t)((double)SECOND / capacity * c->size);
        if (now >= begin_ns)
            c->got += c->size;
        now += service;
        CHECK_EQ(tags_complete(&t, now, &grant, service), QOS_OK);
        CHECK_EQ(tags_arrive(&t, now, grant.client, 1, 1), QOS_OK);
    }
    shares(capacity, at_limit == TAGS_ALLOW);
    for (g = 0; g < groups; g++)
        for (i = 0; i < clients_of[g]; i++) {
            double s = (double)(end_ns - begin_ns) / (double)SECOND, got = of(g, i)->got / s, share = of(g, i)->share;
            double slack = (3 + 2 * of(g, i)->size) / s;
            CHECK_CONTEXT("group %u of %u, client %u of %u: %.2f/s, share %.2f/s", g, groups, i, clients_of[g], got,
                          share);
            CHECK(got >= share * 0.99 - slack);
            CHECK(got <= share * 1.01 + slack + capacity * 0.002);
        }
    CHECK(check_mem_free(&mem));
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

/* Clients with reservations come and go; requests of equal cost, one at the device. */
static void reservations(struct check_rng *rng)
{
    static unsigned queued[CLIENTS];
    static struct window missed[CLIENTS];
    const double capacity = 2000, c = (double)SECOND / capacity;
    uint64_t now = 1000;
    uint32_t g, i;
    draw(rng, 8);
    memset(queued, 0, sizeof queued);
    draw_rates(rng, capacity);
    config.mode = TAGS_PS;
    for (g = 0; g < groups; g++) {
        group[g].limit = 0;
        for (i = 0; i < clients_of[g]; i++)
            of(g, i)->limit = 0;
    }
    begin(1);
    while (now < 10 * SECOND) {
        struct tags_grant grant;
        for (g = 0; g < groups; g++)
            for (i = 0; i < clients_of[g]; i++) {
                uint32_t id = g * IDS + i;
                if (queued[id])
                    continue;
                missed[id].level = 0;
                missed[id].at_ns = now;
                if (check_between(rng, 0, 200) == 0)
                    top_up(id, now, queued, (unsigned)check_between(rng, 1, 300));
            }
        if (tags_pull(&t, now, 1, &grant) != QOS_OK) {
            now += (uint64_t)c;
            continue;
        }
        for (g = 0; g < groups; g++)
            for (i = 0; i < clients_of[g]; i++) {
                struct window *m = &missed[g * IDS + i];
                double r = of(g, i)->reservation;
                if (queued[g * IDS + i] == 0 || r <= 0)
                    continue;
                m->level += r * (double)(now - m->at_ns) / (double)SECOND;
                m->at_ns = now;
                m->level -= grant.client == g * IDS + i;
                m->level = m->level > 0 ? m->level : 0;
                CHECK_CONTEXT("client %u of group %u misses %.2f at %" PRIu64 ", R %.0f of %.0f", i, g, m->level, now,
                              r, group[g].reservation);
                CHECK(m->level <= 2 + r * c / (double)SECOND + r / group[g].reservation);
            }
        queued[grant.client]--;
        now += (uint64_t)c;
        CHECK_EQ(tags_complete(&t, now, &grant, (uint64_t)c), QOS_OK);
    }
    CHECK(check_mem_free(&mem));
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

int main(void)
{
    struct check_rng rng;
    uint64_t i;
    check_begin("property/tags_groups");
    check_rng_init(&rng, check_seed());
    if (check_case("refusals"))
        refusals();
    for (i = 0; i < check_scaled(60) && check_case("windows"); i++)
        windows(&rng, 20000);
    for (i = 0; i < check_scaled(60) && check_case("reservations"); i++)
        reservations(&rng);
    for (i = 0; i < check_scaled(60) && check_case("shares"); i++)
        long_run(&rng, i % 3 == 2, i % 2 ? TAGS_ALLOW : TAGS_WAIT);
    CHECK(i == 0 || check_state.scale > 1 || (waits > 0 && by_group > 0)); /* what the shares are judged on happened */
    return check_end();
}
