// proves: trees of 1, 2 and 4 threads share classes. Wherever the demand is, the sum over all trees keeps the limits
// proves: in every window, and the reservations within the stated error. The root's rate is neither exceeded nor left
// proves: idle. Borrowers in different trees share by their weights, by flight beside a reservation in one of them and
// proves: while requests hang, too. By flight a class whose rate is out of reach does not narrow other trees for ever
// variants: native san
// whole: san
// scale: 2
//
// The threads are simulated, one step of each in turn. The device takes everything at once. The oracle counts tokens.
#include "htb.h"
#include "check.h"

#define S UINT64_C(1000000000)
#define MS UINT64_C(1000000)
#define ROOT UINT64_C(100000000)

enum { TREES = 4, CLASSES = 8, DEPTH = 12 };

/* 5 is a group: 6 and 7 are below it. */
static const struct {
    uint64_t rate, limit;
    uint32_t weight, parent;
    uint64_t size;
} class[CLASSES] = {
    {0, 0, 0, 0, 0},
    {ROOT * 3 / 10, 0, 1, 0, 4096},
    {ROOT * 2 / 10, ROOT * 4 / 10, 1, 0, 65536},
    {0, 0, 1, 0, 16384},
    {0, 0, 3, 0, 16384},
    {ROOT * 2 / 10, 0, 1, 0, 0},
    {ROOT / 10, 0, 1, 5, 8192},
    {0, ROOT * 15 / 100, 2, 5, 8192},
};

static struct htb tree[TREES];
static unsigned char memory[TREES][65536] __attribute__((aligned(64)));
static struct htb_request request[TREES][CLASSES][DEPTH];
static bool demand[TREES][CLASSES];
static uint64_t served[CLASSES], served_in[TREES][CLASSES];
static void *shared;

static void open_trees(uint32_t trees, enum htb_bound bound, uint32_t device_max, uint64_t flight_max_ns)
{
    struct htb_shared_config config;
    struct htb_config c;
    uint32_t k, id;
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    memset(request, 0, sizeof request);
    memset(demand, 0, sizeof demand);
    memset(served, 0, sizeof served);
    config.trees = trees;
    config.classes = CLASSES;
    free(shared);
    CHECK(posix_memalign(&shared, 64, htb_shared_memsize(&config)) == 0);
    CHECK_EQ(htb_shared_init((struct htb_shared *)shared, htb_shared_memsize(&config), &config), QOS_OK);
    c.classes = CLASSES;
    c.rate_per_s[0] = ROOT;
    c.bound = bound;
    c.dispatch_max = c.device_max = device_max;
    c.flight_max_ns = flight_max_ns;
    for (k = 0; k < trees; k++) {
        CHECK_EQ(htb_init(&tree[k], memory[k], sizeof memory[k], &c), QOS_OK);
        CHECK_EQ(htb_join(&tree[k], 0, (struct htb_shared *)shared, k), QOS_OK);
        for (id = 1; id < CLASSES; id++) {
            struct htb_class terms;
            memset(&terms, 0, sizeof terms);
            terms.rate_per_s[0] = class[id].rate;
            terms.limit_per_s[0] = class[id].limit;
            terms.weight = class[id].weight;
            terms.parent = class[id].parent;
            terms.group = id == 5;
            CHECK_EQ(htb_reserve(&tree[k], 0, id, &terms, NULL), QOS_OK);
        }
    }
}

/* One pass through the loop of thread k. */
static void turn(uint32_t k, uint64_t now)
{
    struct htb_request *r;
    uint32_t id, i;
    CHECK(htb_exchange(&tree[k], now) > now);
    for (id = 1; id < CLASSES; id++)
        for (i = 0; i < DEPTH && demand[k][id]; i++)
            if (request[k][id][i].state == HTB_IDLE) {
                request[k][id][i].class_id = id;
                request[k][id][i].tokens[0] = class[id].size;
                CHECK_EQ(htb_submit(&tree[k], now, &request[k][id][i]), QOS_OK);
            }
    while ((r = htb_dispatch(&tree[k], now)) != NULL) {
        served[r->class_id] += r->tokens[0];
        served_in[k][r->class_id] += r->tokens[0];
        CHECK_EQ(htb_complete(&tree[k], now, HTB_DONE, NULL, r), QOS_OK);
    }
}

static bool wanted(uint32_t trees, uint32_t id)
{
    uint32_t k;
    for (k = 0; k < trees; k++)
        if (demand[k][id])
            return true;
    return false;
}

/* Once a second the demand moves between the trees at random. */
static void moving_demand(uint32_t trees, uint64_t seed)
{
    double least = 9, idle = 1, over = 0;
    uint64_t now = 0, phase, before[CLASSES], total_before = 0;
    double lowest[CLASSES + 1], at, total;
    struct check_rng rng;
    uint32_t k, id;
    CHECK_CONTEXT("%u trees, demand of seed %" PRIu64, trees, seed);
    check_rng_init(&rng, seed);
    open_trees(trees, HTB_BY_RATE, 0, 0);
    for (id = 0; id <= CLASSES; id++)
        lowest[id] = 0;
    for (phase = 0; phase < (check_state.scale < 20 ? 12 : 4); phase++) {
        for (k = 0; k < trees; k++)
            for (id = 1; id < CLASSES; id++)
                demand[k][id] = id != 5 && check_between(&rng, 0, trees) == 0;
        demand[check_between(&rng, 0, trees - 1)][3] = true; /* class 3 takes the surplus */
        memcpy(before, served, sizeof before);
        for (; now < (phase + 1) * S; now += S / 4000) {
            if (now == phase * S + S / 10)
                for (id = 1, total_before = 0; id < CLASSES; id++)
                    total_before += served[id];
            for (k = 0; k < trees; k++)
                turn(k, now);
            for (id = 1, total = 0; id < CLASSES; id++) {
                total += (double)served[id];
                if (class[id].limit == 0)
                    continue;
                at = (double)served[id] - (double)class[id].limit * (double)now / 1e9;
                lowest[id] = at < lowest[id] ? at : lowest[id];
                at = (at - lowest[id]) / (double)(trees * (class[id].limit / 50 + class[id].size));
                over = at > over ? at : over;
            }
            at = total - (double)ROOT * (double)now / 1e9;
            lowest[CLASSES] = at < lowest[CLASSES] ? at : lowest[CLASSES];
        }
        for (id = 1, total = 0; id < CLASSES; id++) {
            total += (double)served[id];
            if (class[id].rate == 0 || !wanted(trees, id))
                continue;
            at = (double)(served[id] - before[id]) / (double)class[id].rate;
            least = at < least ? at : least;
        }
        at = (total - (double)total_before) / (double)ROOT / 0.9;
        idle = at < idle ? at : idle;
        CHECK_WITHIN(at, 0.97, 1.06); /* tokens that moved away from the root's buckets count, too */
    }
    printf("%u trees: reservation at least %.3f, limit + buckets %.3f, busy at least %.3f\n", trees, least, over, idle);
    CHECK_WITHIN(least, 1 - 0.015 - (double)trees / 256 - 0.02, 9);
    CHECK_LE(over, 1);
}

/* Borrowers of weights 1 and 3, each in its own tree. */
static void weights(uint32_t trees)
{
    uint64_t now, light = 0, heavy = 0;
    uint32_t k;
    open_trees(trees, HTB_BY_RATE, 0, 0);
    demand[0][3] = demand[trees - 1][4] = true;
    for (now = 0; now < 6 * S; now += S / 4000) {
        if (now == S) {
            light = served[3];
            heavy = served[4];
        }
        for (k = 0; k < trees; k++)
            turn(k, now);
    }
    light = served[3] - light;
    heavy = served[4] - heavy;
    printf("%u trees: weights 1 : 3 give %.3f\n", trees, (double)heavy / (double)light);
    CHECK_WITHIN((double)heavy / (double)light, 2.7, 3.3);
    CHECK_WITHIN((double)(heavy + light) / (double)ROOT / 5, 0.98, 1.01);
}

/* One serial device serves all trees, and each tree bounds its own time in flight. The reserved class is in the first
 * `reserved` trees. The class that fills the device is in the trees from `bulk` on, which must narrow their bounds. For
 * 60 % of the device the reserved one needs nearly all of its requests in flight, beside what its tree lends. */
static void flight(uint32_t trees, uint32_t reserved, uint32_t bulk, uint64_t rate, uint64_t size)
{
    static struct {
        struct htb_request *r;
        uint32_t k;
    } queue[TREES * CLASSES * DEPTH];
    uint32_t head = 0, count = 0, k, id, i;
    uint64_t now, done_ns = 0, first = 0, all = 0;
    struct htb_class terms;
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = rate;
    open_trees(trees, HTB_BY_FLIGHT, 0, 0);
    for (k = 0; k < trees; k++)
        CHECK_EQ(htb_change(&tree[k], 0, 1, &terms, NULL), QOS_OK);
    for (now = 0; now < 5 * S; now += S / 50000) {
        if (now == 2 * S) {
            first = served[1];
            all = served[1] + served[3];
        }
        while (count != 0 && done_ns <= now) {
            struct htb_request *r = queue[head].r;
            served[r->class_id] += r->tokens[0];
            CHECK_EQ(htb_complete(&tree[queue[head].k], now, HTB_DONE, NULL, r), QOS_OK);
            head = (head + 1) % (TREES * CLASSES * DEPTH);
            if (--count != 0)
                done_ns += queue[head].r->tokens[0] * S / ROOT;
        }
        for (k = 0; k < trees; k++) {
            struct htb_request *r;
            (void)htb_exchange(&tree[k], now);
            for (id = 1; id <= 3; id += 2)
                for (i = 0; i < DEPTH && (id == 1 ? k < reserved : k >= bulk); i++)
                    if (request[k][id][i].state == HTB_IDLE) {
                        request[k][id][i].class_id = id;
                        request[k][id][i].tokens[0] = id == 1 ? size : 16384;
                        CHECK_EQ(htb_submit(&tree[k], now, &request[k][id][i]), QOS_OK);
                    }
            while ((r = htb_dispatch(&tree[k], now)) != NULL) {
                i = (head + count) % (TREES * CLASSES * DEPTH);
                queue[i].r = r;
                queue[i].k = k;
                if (count++ == 0)
                    done_ns = now + r->tokens[0] * S / ROOT;
            }
        }
    }
    CHECK_CONTEXT("%u trees on one device, the reserved class in %u of them", trees, reserved);
    first = served[1] - first;
    all = served[1] + served[3] - all;
    printf("%u trees on one device, %u reserve, others from %u on: reservation %.3f, busy %.3f\n", trees, reserved,
           bulk, (double)first / 3 / (double)rate, (double)all / 3 / (double)ROOT);
    CHECK_WITHIN((double)first / 3 / (double)rate, 0.97, 4);
    CHECK_WITHIN((double)all / 3 / (double)ROOT, 0.97, 1.01);
}

/* A link of 50 us a request, and a millisecond beside it. In the last tree a class has two requests outstanding, which
 * cannot reach its rate: what all trees narrow for it helps nobody, and ends. */
static void out_of_reach(uint32_t trees)
{
    static struct {
        struct htb_request *r;
        uint64_t end_ns;
        uint32_t k;
    } queue[TREES * CLASSES * DEPTH];
    uint32_t head = 0, count = 0, k, i;
    uint64_t now, link_ns = 0, all = 0;
    open_trees(trees, HTB_BY_FLIGHT, 0, 0);
    for (now = 0; now < 20 * S; now += S / 50000) {
        if (now == 12 * S)
            all = served[1] + served[3];
        for (; count != 0 && queue[head].end_ns <= now; count--, head = (head + 1) % (TREES * CLASSES * DEPTH)) {
            served[queue[head].r->class_id] += 5000;
            CHECK_EQ(htb_complete(&tree[queue[head].k], now, HTB_DONE, NULL, queue[head].r), QOS_OK);
        }
        for (k = 0; k < trees; k++) {
            const uint32_t id = k + 1 == trees ? 1 : 3;
            struct htb_request *r;
            (void)htb_exchange(&tree[k], now);
            for (i = 0; i < (id == 1 ? 2 : DEPTH); i++)
                if (request[k][id][i].state == HTB_IDLE) {
                    request[k][id][i].class_id = id;
                    request[k][id][i].tokens[0] = 5000;
                    CHECK_EQ(htb_submit(&tree[k], now, &request[k][id][i]), QOS_OK);
                }
            while ((r = htb_dispatch(&tree[k], now)) != NULL) {
                i = (head + count++) % (TREES * CLASSES * DEPTH);
                link_ns = (link_ns > now ? link_ns : now) + 50000;
                queue[i].r = r;
                queue[i].k = k;
                queue[i].end_ns = link_ns + MS;
            }
        }
    }
    all = served[1] + served[3] - all;
    CHECK_CONTEXT("%u trees, a rate out of reach in one", trees);
    printf("%u trees on a link, a rate out of reach in one: busy %.3f\n", trees, (double)all / 8 / (double)ROOT);
    CHECK_WITHIN((double)all / 8 / (double)ROOT, 0.85, 1.01);
}

/* Channels that all trees share, first in, first out. In each tree another class borrows: of weight 3 in the first, if
 * so asked (then little may be in flight, as weights are for those that wait), else of 1. In the last tree class 1 has
 * a reservation, and borrows. From 10 s on `hung` requests that the last tree sends hang until 30 s. Each tree has at
 * most `places` at the device: if these are as many as channels in all, even shares would leave some of them idle. */
static void by_turns(uint32_t trees, uint32_t channels, bool weights, uint32_t hung, uint32_t places)
{
    enum { FROM = 20, TO = 30, OUT = 64 };
    static const uint32_t borrower[TREES] = {4, 3, 2, 7};
    static struct htb_request asks[TREES][CLASSES][OUT];
    static struct {
        struct htb_request *r;
        uint64_t end_ns;
        uint32_t k;
    } queue[TREES * 2 * OUT];
    uint64_t now, before[TREES] = {0}, reserved = 0, all, step = S / ROOT * 4096;
    double share[TREES], one;
    uint32_t count = 0, hang = hung, busy, k, i, id;
    open_trees(trees, HTB_BY_FLIGHT, places, weights ? MS : 0);
    memset(asks, 0, sizeof asks);
    for (k = 0; k < trees; k++)
        for (i = 0; i < TREES; i++) {
            struct htb_class terms;
            memset(&terms, 0, sizeof terms);
            terms.weight = weights && i == 0 ? 3 : 1;
            CHECK_EQ(htb_change(&tree[k], 0, borrower[i], &terms, NULL), QOS_OK);
        }
    for (now = 0; now < TO * S; now += step) {
        if (now / step == FROM * S / step)
            for (k = 0, reserved = served[1]; k < trees; k++)
                before[k] = served[borrower[k]];
        for (i = 0; i < count;) {
            struct htb_request *r = queue[i].r;
            if (queue[i].end_ns > now) {
                i++;
                continue;
            }
            served[r->class_id] += r->tokens[0];
            CHECK_EQ(htb_complete(&tree[queue[i].k], now, HTB_DONE, NULL, r), QOS_OK);
            count--;
            memmove(&queue[i], &queue[i + 1], (count - i) * sizeof queue[0]);
        }
        for (k = 0; k < trees; k++) {
            struct htb_request *r;
            (void)htb_exchange(&tree[k], now);
            for (id = 1; id < CLASSES; id++)
                for (i = 0; i < OUT && (id == 1 ? k + 1 == trees : id == borrower[k]); i++)
                    if (asks[k][id][i].state == HTB_IDLE) {
                        asks[k][id][i].class_id = id;
                        asks[k][id][i].tokens[0] = 4096;
                        CHECK_EQ(htb_submit(&tree[k], now, &asks[k][id][i]), QOS_OK);
                    }
            while ((r = htb_dispatch(&tree[k], now)) != NULL) {
                queue[count].r = r;
                queue[count].k = k;
                queue[count].end_ns = QOS_NEVER;
                if (k + 1 == trees && now >= 10 * S && hang != 0) {
                    queue[count].end_ns = TO * S;
                    hang--;
                }
                count++;
            }
        }
        for (i = 0, busy = 0; i < count; i++)
            busy += queue[i].end_ns != QOS_NEVER && queue[i].end_ns != TO * S;
        for (i = 0; i < count && busy < channels; i++)
            if (queue[i].end_ns == QOS_NEVER) {
                queue[i].end_ns = now + channels * step;
                busy++;
            }
    }
    reserved = served[1] - reserved;
    for (k = 0, all = reserved; k < trees; k++)
        all += served[borrower[k]] - before[k];
    CHECK_CONTEXT("%u trees, %u channels, weights %u : 1, %u hang, %u places", trees, channels, weights ? 3 : 1, hung,
                  places);
    printf("%u trees, %u channels, weights %u : 1, %u hang, %u places: reservation %.3f, in use %.3f, borrowed", trees,
           channels, weights ? 3 : 1, hung, places, (double)reserved / (TO - FROM) / (double)class[1].rate,
           (double)all / (TO - FROM) / (double)ROOT);
    for (k = 0, one = 0; k < trees; k++) {
        share[k] = (double)(served[borrower[k]] - before[k]) / (TO - FROM) / (double)ROOT;
        printf(" %.3f", share[k]);
        share[k] /= weights && k == 0 ? 3 : 1;
        one += share[k] / trees;
    }
    printf("\n");
    CHECK_WITHIN((double)reserved / (TO - FROM) / (double)class[1].rate, 0.98, 4);
    CHECK_WITHIN((double)all / (TO - FROM) / (double)ROOT, trees * places > channels ? 0.99 : 0.92, 1.01);
    for (k = 0; k < trees && trees * places > channels; k++)
        CHECK_WITHIN(share[k] / one, 0.95, 1.05);
}

static const struct {
    uint32_t trees, channels, hung, places;
    bool weights;
} turns[] = {{2, 8, 0, 4, false},   {4, 8, 0, 128, false}, {2, 8, 0, 128, true},   {4, 8, 0, 16, false},
             {2, 8, 0, 128, false}, {4, 1, 0, 128, false}, {3, 8, 16, 128, false}, {2, 8, 0, 8, false}};

int main(void)
{
    uint64_t i, runs;
    uint32_t trees;
    check_begin("property/htb_trees");
    runs = check_scaled(3);
    for (trees = 1; trees <= TREES; trees *= 2) {
        for (i = 0; i < runs; i++)
            moving_demand(trees, i);
        weights(trees);
    }
    flight(2, 1, 1, class[1].rate, 4096);
    flight(4, 4, 0, class[1].rate, 4096);
    flight(2, 1, 0, ROOT * 6 / 10, 6000);
    out_of_reach(3);
    if (check_state.scale < 20) {
        flight(4, 1, 1, class[1].rate, 4096);
        flight(2, 1, 0, class[1].rate, 4096);
        flight(3, 1, 0, class[1].rate, 4096);
        flight(4, 1, 0, class[1].rate, 4096);
        out_of_reach(4);
    }
    for (i = 0; i < check_scaled(8); i++)
        by_turns(turns[i].trees, turns[i].channels, turns[i].weights, turns[i].hung, turns[i].places);
    free(shared);
    return check_end();
}
