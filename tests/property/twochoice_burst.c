// proves: bursts on clusters of 3 to 10,000 servers, 8 to 16,384 writes a decision, up to half of the servers stragglers:
// proves: one node that decides alone ends within 1.05 of two-choice, and within 1.2 of water-filling where at least half
// proves: of each decision's candidates are good; twenty nodes that decide at once within 1.25 of the better of two-choice
// proves: and "the k least loaded, in turn".
//
// The simulation is the test's own. Each server has a background of 30 writes (deviation 3), a straggler five times as
// many. Nodes place 10 writes for each server, k at a time; between a node's probes and its writes the u - 1 nodes before
// it place theirs. The result is the longest queue in front of a write, divided by the level of water-filling.
// QOS_TEST_LONG=1: all shares of stragglers for 10,000 servers, too.
#include "check.h"
#include "twochoice.h"

enum { TWO_CHOICE, LEAST_LOADED, OURS, RULES };
#define SERVERS_MAX 10000
#define AT_ONCE_MAX 20
#define WRITES_MAX TWOCHOICE_WRITES_MAX

struct node {
    uint32_t *server; /* the server was probed */
    uint32_t *load, *rivals;
    size_t probes;
};

static struct check_rng rng;
static uint32_t background[SERVERS_MAX], load[SERVERS_MAX], undecided[SERVERS_MAX], permutation[SERVERS_MAX];
static bool straggler[SERVERS_MAX], used[SERVERS_MAX];
static struct node node[AT_ONCE_MAX];
static struct twochoice_placement placement;
static struct twochoice_write writes[WRITES_MAX];
static struct twochoice_probe probes[2 * WRITES_MAX];
static bool half_good;

static void begin(uint32_t n, double ratio)
{
    uint32_t i, stragglers = (uint32_t)(ratio * n + 0.5);
    for (i = 0; i < n; i++) {
        int d;
        double sum = -6; /* a sum of twelve uniform numbers has deviation 1 */
        for (d = 0; d < 12; d++)
            sum += (double)check_between(&rng, 0, 1000000) / 1e6;
        background[i] = (uint32_t)(30.5 + 3 * sum);
        permutation[i] = i;
        straggler[i] = used[i] = false;
        undecided[i] = 0;
    }
    for (i = 0; i < stragglers; i++) {
        uint32_t j = (uint32_t)check_between(&rng, i, n - 1), s = permutation[j];
        permutation[j] = permutation[i];
        permutation[i] = s;
        straggler[s] = true;
        background[s] *= 5;
    }
    memcpy(load, background, sizeof load);
}

static void put(uint32_t server)
{
    load[server]++;
    used[server] = true;
}

/* ---- the rules --------------------------------------------------------------------------------------- */

static void probe(int rule, struct node *a, uint32_t n, uint32_t k)
{
    size_t i, good = 0;
    a->probes = 0;
    if (rule == OURS) {
        size_t asked = 0;
        for (i = 0; i < k; i++) {
            writes[i].home = (uint32_t)check_between(&rng, 0, n - 1);
            writes[i].len_bytes = 1 << 20;
        }
        CHECK_EQ(twochoice_placement_ask(&placement, writes, k, probes, &asked), QOS_OK);
        for (i = 0; i < asked; i++)
            a->server[a->probes++] = probes[i].server;
    } else if (rule == LEAST_LOADED) {
        for (i = 0; i < 2 * (size_t)k && i < n; i++) {
            uint32_t j = (uint32_t)check_between(&rng, i, n - 1), s = permutation[j];
            permutation[j] = permutation[i];
            permutation[i] = s;
            a->server[a->probes++] = s;
        }
    } else {
        for (i = 0; i < k; i++) {
            uint32_t x = (uint32_t)check_between(&rng, 0, n - 1), y = (uint32_t)check_between(&rng, 0, n - 2);
            a->server[a->probes++] = x;
            a->server[a->probes++] = y + (y >= x);
        }
    }
    for (i = 0; i < a->probes; i++) {
        uint32_t s = a->server[i];
        a->load[i] = load[s];
        a->rivals[i] = rule == OURS ? undecided[s]++ : 0;
        good += !straggler[s];
    }
    half_good = half_good && 2 * good >= a->probes;
}

static const struct node *ordered;
static int by_load(const void *a, const void *b)
{
    const uint32_t *x = (const uint32_t *)a, *y = (const uint32_t *)b;
    if (ordered->load[*x] != ordered->load[*y])
        return ordered->load[*x] < ordered->load[*y] ? -1 : 1;
    return *x < *y ? -1 : 1;
}

static void decide(int rule, struct node *a, uint32_t k)
{
    static uint32_t order[2 * WRITES_MAX];
    size_t i, kept = a->probes < k ? a->probes : k;
    if (rule == TWO_CHOICE) {
        for (i = 0; i < k; i++)
            put(a->load[2 * i] <= a->load[2 * i + 1] ? a->server[2 * i] : a->server[2 * i + 1]);
    } else if (rule == LEAST_LOADED) {
        for (i = 0; i < a->probes; i++)
            order[i] = (uint32_t)i;
        ordered = a;
        qsort(order, a->probes, sizeof *order, by_load);
        for (i = 0; i < k; i++)
            put(a->server[order[i % kept]]);
    } else {
        for (i = 0; i < a->probes; i++) {
            probes[i].server = a->server[i];
            probes[i].weight = 1;
            probes[i].state = TWOCHOICE_UP;
            probes[i].load = (uint64_t)a->load[i] << 20;
            probes[i].rivals = a->rivals[i];
            undecided[a->server[i]]--;
        }
        CHECK_EQ(twochoice_placement_decide(&placement, writes, k, probes, a->probes), QOS_OK);
        for (i = 0; i < k; i++)
            put(writes[i].target);
    }
}

/* ---- one burst --------------------------------------------------------------------------------------- */

static double burst(int rule, uint32_t n, uint32_t k, double ratio, uint32_t at_once, uint64_t seed)
{
    uint32_t nodes = 10 * n / k > 0 ? 10 * n / k : 1, i, low = 0, high = 1 << 30, longest = 0;
    check_rng_init(&rng, seed);
    begin(n, ratio);
    for (i = 0; i < nodes + at_once; i++) {
        if (i >= at_once)
            decide(rule, &node[i % at_once], k);
        if (i < nodes)
            probe(rule, &node[i % at_once], n, k);
    }
    for (i = 0; i < n; i++)
        if (used[i] && load[i] > longest)
            longest = load[i];
    while (high - low > 1) { /* the lowest level with room for all */
        uint32_t level = low + (high - low) / 2;
        uint64_t room = 0;
        for (i = 0; i < n; i++)
            room += background[i] < level ? level - background[i] : 0;
        if (room >= (uint64_t)nodes * k)
            high = level;
        else
            low = level;
    }
    return (double)longest / high;
}

static double median(int rule, uint32_t n, uint32_t k, double ratio, uint32_t at_once)
{
    double r[3];
    uint64_t i;
    for (i = 0; i < 3; i++) /* the same clusters for each rule */
        r[i] = burst(rule, n, k, ratio, at_once, 1000 * check_seed() + i);
    return r[0] > r[1] ? (r[1] > r[2]   ? r[1]
                          : r[0] < r[2] ? r[0]
                                        : r[2])
                       : (r[0] > r[2]   ? r[0]
                          : r[1] < r[2] ? r[1]
                                        : r[2]);
}

static void point(uint32_t n, uint32_t k, double ratio, uint32_t at_once)
{
    struct twochoice_placement_config config;
    struct check_mem m;
    double over[RULES], better;
    bool good = true;
    int rule;
    memset(&config, 0, sizeof config);
    config.servers = n;
    config.max_writes = k;
    config.seed = check_seed();
    check_mem_new(&m, twochoice_placement_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_placement_init(&placement, m.mem, m.size, &config), QOS_OK);
    for (rule = 0; rule < RULES; rule++) {
        half_good = true;
        over[rule] = median(rule, n, k, ratio, at_once);
        good = half_good; /* of the rule that ran last: ours */
    }
    better = over[TWO_CHOICE] < over[LEAST_LOADED] ? over[TWO_CHOICE] : over[LEAST_LOADED];
    printf("%6u %6u %5.0f %% %4u %11.2f %13.2f %6.2f%s\n", n, k, 100 * ratio, at_once, over[TWO_CHOICE],
           over[LEAST_LOADED], over[OURS], good ? "" : "  (some decisions see fewer than half good)");
    CHECK_CONTEXT("%u servers, %u writes, %u %% stragglers, %u nodes at once", n, k, (unsigned)(100 * ratio), at_once);
    if (at_once == 1) {
        CHECK_WITHIN(over[OURS] / over[TWO_CHOICE], 0, 1.05);
        CHECK_WITHIN(over[OURS], 0, good ? 1.2 : 1e9);
    } else {
        CHECK_WITHIN(over[OURS] / better, 0, 1.25);
    }
    CHECK(check_mem_free(&m));
}

int main(void)
{
    static const uint32_t sizes[] = {3, 10, 30, 100, 1000, 10000};
    static const uint32_t writes_of[] = {8, 32, 100, 1000, WRITES_MAX};
    static const double ratios[] = {0, 0.2, 0.5, 0.1, 0.3, 0.4};
    bool all = check_env("QOS_TEST_LONG", 0) != 0;
    size_t i, j, r;
    uint32_t u;
    check_begin("twochoice_burst");
    for (i = 0; i < AT_ONCE_MAX; i++) {
        node[i].server = (uint32_t *)malloc(2 * WRITES_MAX * sizeof(uint32_t));
        node[i].load = (uint32_t *)malloc(2 * WRITES_MAX * sizeof(uint32_t));
        node[i].rivals = (uint32_t *)malloc(2 * WRITES_MAX * sizeof(uint32_t));
    }
    printf("longest queue / water-filling; median of 3\nservers writes stragglers nodes  two-choice  least loaded  "
           "ours\n");
    for (u = 1; u <= AT_ONCE_MAX; u += AT_ONCE_MAX - 1)
        for (i = 0; i < (check_scaled(100) < 100 ? 4 : sizeof sizes / sizeof *sizes); i++)
            for (j = 0; j < sizeof writes_of / sizeof *writes_of; j++) {
                uint32_t most = 4 * sizes[i] < WRITES_MAX ? 4 * sizes[i] : WRITES_MAX;
                bool last = writes_of[j] >= most; /* at most 4 writes for each server */
                for (r = 0; r < (all || sizes[i] < 10000 ? 6 : 3); r++)
                    point(sizes[i], last ? most : writes_of[j], ratios[r], u);
                if (last)
                    break;
            }
    for (i = 0; i < AT_ONCE_MAX; i++) {
        free(node[i].server);
        free(node[i].load);
        free(node[i].rivals);
    }
    return check_end();
}
