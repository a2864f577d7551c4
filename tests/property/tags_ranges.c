// proves: two that always wait stay within the pair range of the first page's formula, under reward with services of any
// proves: length, and under PS with costs that are said too small or too large, both corrected at completion; weights near
// proves: 2^40 do not drift in 2 * 10^7 requests
// variants: native
// scale: 3
// coverage: report
#include "check.h"
#include "tags.h"

#define SECOND UINT64_C(1000000000)

static struct tags tags;
static struct check_mem memory;
static struct check_rng rng;

static struct tags_config plain(uint32_t clients, enum tags_mode mode)
{
    struct tags_config c;
    memset(&c, 0, sizeof c);
    c.clients = clients;
    c.mode = mode;
    return c;
}

static void open_tags(const struct tags_config *c)
{
    check_mem_new(&memory, tags_memsize(c), 64, 0);
    CHECK_EQ(tags_init(&tags, memory.mem, memory.size, c), QOS_OK);
}

static void add(uint64_t now, uint32_t id, uint64_t weight, uint64_t reservation, uint64_t limit)
{
    struct tags_client k;
    k.weight = weight;
    k.reservation_per_s = reservation;
    k.limit_per_s = limit;
    CHECK_EQ(tags_add(&tags, now, id, &k), QOS_OK);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* ---- the pair range: device time or cost per weight of two that always wait, in any window, with services of any length
 * that are known at completion, over that of PS with right costs, c_0 / w_0 + c_1 / w_1. D at the device: as m is sent
 * when its tag is the least, and each of the others there may be charged a service too little, or 3/4 of one too much, x
 * leads by at most (D - 1) max(c_m / w_m, 3/4 c_f / w_f) + c_m / w_m. A climb looks for the worst services: under reward
 * 1 + 1.1 D times that of PS at most, whatever the weights. PS, costs that are corrected: all of one too much, so
 * 2 (D - 1) max(c_0 / w_0, c_1 / w_1) more. */
enum { PHASES = 10, DEPTH_MAX = 128 };
struct pattern {
    /* requests; how long the two clients' services are in it, and what is said of them (PS), in percent */
    uint32_t phase[PHASES][5];
};
/* From a climb in which all of the mean was charged: 1 + 1.11 D at D = 64, weights 1 : 3. And any services. */
static const struct pattern known = {{{192, 100, 24},
                                      {137, 100, 4},
                                      {182, 100, 0},
                                      {170, 0, 4},
                                      {192, 61, 0},
                                      {152, 0, 100},
                                      {143, 0, 50},
                                      {1, 0, 20},
                                      {44, 92, 100},
                                      {131, 0, 0}}};
static const struct pattern any = {{{0, 0, 0}}};

static double pair_range(enum tags_mode mode, uint32_t depth, const uint64_t *weight, const struct pattern *p)
{
    struct tags_config c = plain(2, mode);
    const uint64_t longest = 100000;
    struct tags_grant flight[DEPTH_MAX];
    uint64_t now = SECOND, service[DEPTH_MAX];
    double x = 0, low = 0, high = 0, each[2], most;
    uint32_t k = 0, i, at = 0, left = p->phase[0][0];
    c.at_device_max = depth;
    c.service_floor_ns = QOS_NOTHING;
    c.service_ns = longest / 2;
    c.cost_max = longest;
    open_tags(&c);
    memset(flight, 0, sizeof flight);
    for (i = 0; i < 2; i++) {
        add(now, i, weight[i], 0, 0);
        if (tags_arrive(&tags, now, i, 100000000, 1) != QOS_OK)
            return 1e9;
    }
    for (i = 0; i < 4000; i++) {
        for (; k < depth; k++) {
            struct tags_choice who;
            if (tags_choose(&tags, now, &who) != QOS_OK ||
                tags_dispatch(&tags, now, &who,
                              p == &any ? check_between(&rng, 1, longest)
                                        : p->phase[at][3 + who.client] * longest / 100,
                              0, 0, &flight[k]) != QOS_OK)
                return 1e9;
            service[k] = p == &any ? check_between(&rng, 1, longest) : p->phase[at][1 + who.client] * longest / 100;
            if (mode == TAGS_PS && service[k] == 0)
                service[k] = 1; /* a cost of 0 is the one at dispatch */
            x += (flight[k].client ? 1 : -1) * (double)service[k] / (double)weight[flight[k].client];
            low = smaller(low, x);
            high = larger(high, x);
            for (; p != &any && left == 0; left = p->phase[at][0])
                at = (at + 1) % PHASES;
            left--;
        }
        now += service[0];
        if (mode == TAGS_PS)
            flight[0].cost = (uint32_t)service[0];
        if (tags_complete(&tags, now, &flight[0], service[0]) != QOS_OK)
            return 1e9;
        k--;
        memmove(flight, flight + 1, k * sizeof *flight);
        memmove(service, service + 1, k * sizeof *service);
    }
    CHECK(check_mem_free(&memory));
    for (i = 0; i < 2; i++)
        each[i] = (double)longest / (double)weight[i];
    most = larger(each[0], 0.75 * each[1]) + larger(each[1], 0.75 * each[0]);
    if (mode == TAGS_PS)
        most = 2 * larger(each[0], each[1]);
    CHECK_WITHIN(high - low, 0, 1.001 * (each[0] + each[1] + (depth - 1) * most));
    return (high - low) / (each[0] + each[1]);
}

static void change(struct pattern *p, uint32_t depth)
{
    uint64_t n = check_between(&rng, 1, 3);
    while (n--) {
        uint32_t *phase = p->phase[check_between(&rng, 0, PHASES - 1)];
        const uint64_t to = check_between(&rng, 0, 4);
        if (to == 0)
            phase[0] = (uint32_t)check_between(&rng, 1, 3 * depth + 10);
        else
            phase[to] =
                (uint32_t)(check_between(&rng, 0, 2) ? 100 * check_between(&rng, 0, 1) : check_between(&rng, 0, 100));
    }
}

static void pair_ranges(enum tags_mode mode)
{
    static const uint32_t depths[] = {1, 2, 8, 32, 64, 128};
    static const uint64_t weights[][2] = {{1, 1}, {1, 3}, {1, 4}, {4, 7}};
    size_t i, j;
    for (i = 0; i < sizeof depths / sizeof *depths; i++) {
        const uint32_t d = depths[i];
        double all = 0;
        for (j = 0; j < sizeof weights / sizeof *weights; j++) {
            struct pattern best = known;
            double worst, again;
            uint64_t n;
            CHECK_CONTEXT("%u at the device, weights %" PRIu64 " and %" PRIu64, d, weights[j][0], weights[j][1]);
            for (n = 0; n < PHASES; n++)
                best.phase[n][0] = best.phase[n][0] * d / 64 + 1;
            worst = pair_range(mode, d, weights[j], &best);
            for (n = 0; n < check_scaled(200); n++) {
                struct pattern next = best;
                change(&next, d);
                again = pair_range(mode, d, weights[j], &next);
                best = again >= worst ? next : best;
                worst = larger(worst, again);
            }
            all = larger(larger(all, worst), pair_range(mode, d, weights[j], &any));
        }
        printf("%s, %u at the device: pair range %.2f of that of PS, 1 + %.3f D\n",
               mode == TAGS_PS ? "corrected costs" : "reward", d, all, (all - 1) / d);
        if (mode == TAGS_REWARD)
            CHECK_WITHIN(all, 0, d == 1 ? 1.001 : 1 + 1.1 * d);
    }
}

/* ---- weights of some 40 bits: in 2 * 10^7 requests two clients are as near as in the first ones. */
static void large_weights(uint64_t other, uint64_t requests)
{
    struct tags_config c = plain(2, TAGS_PS);
    const uint64_t weight[2] = {TAGS_WEIGHT_MAX, other};
    const double part = (double)other / (double)TAGS_WEIGHT_MAX;
    double x = 0, low = 0, high = 0;
    struct tags_grant g = {0, TAGS_PHASE_WEIGHT, 0, 0, 0};
    uint64_t i;
    c.no_completions = true;
    open_tags(&c);
    CHECK_CONTEXT("weights of 2^40 and %" PRIu64, other);
    for (i = 0; i < 2; i++) {
        add(SECOND, (uint32_t)i, weight[i], 0, 0);
        CHECK_EQ(tags_arrive(&tags, SECOND, (uint32_t)i, 1000000000, 1), QOS_OK);
    }
    for (i = 0; i < requests; i++) {
        if (tags_pull(&tags, SECOND, 1, &g) != QOS_OK)
            break;
        x += g.client ? 1 : -part;
        low = smaller(low, x);
        high = larger(high, x);
    }
    CHECK_EQ(i, requests);
    CHECK_WITHIN(high - low, 0, 1 + part + 0.001);
    CHECK(check_mem_free(&memory));
}

int main(void)
{
    check_begin("property/tags_ranges");
    check_rng_init(&rng, 29);
    pair_ranges(TAGS_PS);
    pair_ranges(TAGS_REWARD);
    large_weights(TAGS_WEIGHT_MAX - (1 << 18) + 1, check_scaled(20000000));
    large_weights((1 << 20) + 1, check_scaled(2000000));
    CHECK_CONTEXT("%s", "");
    return check_end();
}
