// proves: no monopoly and no starvation, whichever client comes back from idleness or from its limit. Over every
// proves: interval in which two clients keep demand, requests per weight differ by at most 1/w + 1/w' (weights
// proves: 1..2^40). A factor on all weights changes nothing. A client lags the fluid schedule by at most w / (sum of
// proves: w) times one request of each other client. A reservation below its share adds nothing to it, however small
// proves: its client's requests are beside those of others, whose V stands meanwhile: flat and in groups. With the tracker's rho and delta, eight servers keep one client's
// proves: limit and reservation like one server
#include "check.h"
#include "tags.h"

#define MOST 9
#define SECOND UINT64_C(1000000000)

static uint64_t comebacks, steps_aside;

/* For a pair that keeps demand: the difference of their requests, each times the other's weight, and the range of that
 * difference so far. */
struct pair {
    int64_t now, low, high;
};

static void fairness(uint64_t stream, uint64_t steps)
{
    struct check_rng rng;
    struct tags_config config;
    struct tags t;
    struct qos_stats stats;
    struct check_mem mem;
    struct pair pair[MOST][MOST];
    struct tags_client terms[MOST];
    unsigned queued[MOST] = {0};
    uint64_t now = 1, step;
    uint32_t n, i, j, limited;
    CHECK_CONTEXT("fairness, run %" PRIu64, stream);
    check_rng_init(&rng, stream);
    memset(&config, 0, sizeof config);
    memset(terms, 0, sizeof terms);
    memset(pair, 0, sizeof pair);
    n = (uint32_t)check_between(&rng, 3, MOST);
    limited = n - 1; /* not compared: its limit holds it back */
    config.clients = n;
    config.mode = TAGS_PS;
    config.no_completions = check_between(&rng, 0, 1);
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    for (i = 0; i < n; i++) {
        terms[i].weight = stream % 2 ? check_between(&rng, 1, 9) : UINT64_C(1) << check_between(&rng, 30, 40);
        terms[i].limit_per_s = i == limited ? check_between(&rng, 1, 2000) : 0;
        CHECK_EQ(tags_add(&t, now, i, &terms[i]), QOS_OK);
    }
    for (step = 0; step < steps; step++) {
        struct tags_grant g;
        i = (uint32_t)check_between(&rng, 0, n - 1);
        if (queued[i] == 0 && (check_between(&rng, 0, 30) == 0 || i == limited || i == 0)) {
            queued[i] = i == 0 ? 1000000 : (unsigned)check_between(&rng, 1, 400);
            CHECK_EQ(tags_arrive(&t, now, i, queued[i], 1), QOS_OK);
            comebacks++;
            for (j = 0; j < n; j++)
                memset(&pair[i][j], 0, sizeof pair[i][j]), memset(&pair[j][i], 0, sizeof pair[j][i]);
        }
        if (tags_pull(&t, now, 1, &g) != QOS_OK) {
            now += 1000;
            continue;
        }
        i = g.client;
        queued[i]--;
        for (j = 0; j < n; j++) {
            /* One of each unordered pair: the smaller id first. */
            uint32_t a = i < j ? i : j, b = i < j ? j : i;
            struct pair *p = &pair[a][b];
            if (j == i || i == limited || j == limited || queued[j] == 0)
                continue;
            p->now += i == a ? (int64_t)terms[b].weight : -(int64_t)terms[a].weight;
            p->low = p->now < p->low ? p->now : p->low;
            p->high = p->now > p->high ? p->now : p->high;
            CHECK_LE(p->high - p->low, terms[a].weight + terms[b].weight + 1000);
        }
        now += check_between(&rng, 1, 10000);
        if (!config.no_completions)
            CHECK_EQ(tags_complete(&t, now, &g, 1000), QOS_OK);
    }
    CHECK_EQ(tags_stats(&t, QOS_NONE, &stats), QOS_OK);
    steps_aside += stats.waited;
    CHECK(check_mem_free(&mem));
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Behind the fluid schedule: while all are backlogged, a client lags by at most w / (sum of all w) times a request of each
 * other client. Returns the worst lag as a part of the bound; a client with half of all weight comes close to 1. */
static double lag(uint64_t stream, uint64_t steps)
{
    struct check_rng rng;
    struct tags_config config;
    struct tags t;
    struct check_mem mem;
    double sum = 0, work = 0, worst = 0, got[MOST] = {0}, weight[MOST], bound[MOST];
    uint64_t cost[MOST], step;
    uint32_t i;
    CHECK_CONTEXT("lag, run %" PRIu64, stream);
    check_rng_init(&rng, 500 + stream);
    memset(&config, 0, sizeof config);
    config.clients = MOST;
    config.mode = TAGS_PS;
    config.cost_max = 100;
    config.no_completions = true;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    for (i = 0; i < MOST; i++) {
        struct tags_client terms;
        memset(&terms, 0, sizeof terms);
        cost[i] = check_between(&rng, 1, config.cost_max);
        terms.weight = i ? check_between(&rng, 1, 1000) : 1000 * (MOST - 1);
        weight[i] = (double)terms.weight;
        sum += weight[i];
        CHECK_EQ(tags_add(&t, 0, i, &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&t, 0, i, TAGS_BACKLOG_MAX, 1), QOS_OK);
    }
    for (i = 0; i < MOST; i++) {
        uint32_t j;
        for (bound[i] = 0, j = 0; j < MOST; j++)
            bound[i] += j == i ? 0 : weight[i] / sum * (double)cost[j];
    }
    for (step = 0; step < steps; step++) {
        struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
        struct tags_grant g;
        CHECK_EQ(tags_choose(&t, 0, &choice), QOS_OK);
        CHECK_EQ(tags_dispatch(&t, 0, &choice, cost[choice.client], 0, 0, &g), QOS_OK);
        got[choice.client] += (double)cost[choice.client];
        work += (double)cost[choice.client];
        for (i = 0; i < MOST; i++)
            worst = larger(worst, (work * weight[i] / sum - got[i]) / bound[i]);
    }
    CHECK_WITHIN(worst, 0, 1 + 1e-9);
    CHECK(check_mem_free(&mem));
    return worst;
}

/* Client 0 has a reservation of 0.98 of its share and requests of cost 1; n others have requests of another cost, and no
 * reservation. All keep requests queued, for 100 rounds. Returns how far the part of a share is from 1, at most. */
static double small_requests(uint32_t n, uint64_t weight, uint64_t others, uint64_t cost, bool groups)
{
    const double sum = (double)(weight + n * others);
    struct tags_config config;
    struct tags t;
    struct check_mem mem;
    double got[101] = {0}, work = 0, worst = 0;
    const double most = 100 * larger(sum / (double)weight, sum / (double)others * (double)cost);
    uint64_t now = SECOND;
    uint32_t i, id;
    CHECK_CONTEXT("%u of weight %" PRIu64 " with requests of %" PRIu64 " beside one of weight %" PRIu64 ", %s", n,
                  others, cost, weight, groups ? "groups" : "flat");
    memset(&config, 0, sizeof config);
    config.clients = groups ? 8 * (n + 1) : n + 1;
    config.groups = groups ? n + 1 : 0;
    config.mode = TAGS_PS;
    config.count_cost = true;
    config.cost_max = 1000;
    config.no_completions = true;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    for (i = 0; i <= n; i++) {
        struct tags_client terms = {i ? others : weight, 0, 0};
        terms.reservation_per_s = i ? 0 : (uint64_t)(0.98e6 * (double)weight / sum);
        id = groups ? 8 * i : i;
        if (groups)
            CHECK_EQ(tags_group_add(&t, now, config.clients + i, &terms, id, 8), QOS_OK);
        CHECK_EQ(tags_add(&t, now, id, &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&t, now, id, TAGS_BACKLOG_MAX, i ? cost : 1), QOS_OK);
    }
    while (work < most) { /* the device does 10^6 units of cost in a second */
        struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
        struct tags_grant g;
        uint64_t c;
        CHECK_EQ(tags_choose(&t, now, &choice), QOS_OK);
        i = groups ? choice.client / 8 : choice.client;
        c = i ? cost : 1;
        CHECK_EQ(tags_dispatch(&t, now, &choice, c, 0, 0, &g), QOS_OK);
        got[i] += (double)c;
        work += (double)c;
        now += c * 1000;
    }
    for (i = 0; i <= n; i++) {
        double part = got[i] / work * sum / (double)(i ? others : weight);
        CHECK_WITHIN(part, 0.99, 1.01);
        worst = larger(worst, larger(part - 1, 1 - part));
    }
    CHECK(check_mem_free(&mem));
    return worst;
}

/* dmClock: the client tells each server how much others served it. Most of its requests go to server 0. */
#define SERVERS 8
static void servers(bool tell, uint64_t reservation, uint64_t limit, bool slow)
{
    struct check_rng rng;
    struct tags_config config;
    static struct tags server[SERVERS];
    struct check_mem mem[SERVERS];
    struct tags_client terms;
    struct tags_tracker tracker = {0, 0};
    struct tags_tracker_server at[SERVERS];
    uint64_t next[SERVERS] = {0}, served = 0, now = 0;
    uint32_t rho[SERVERS], delta[SERVERS];
    unsigned k;
    CHECK_CONTEXT("%u servers, R %" PRIu64 ", L %" PRIu64 ", %s", SERVERS, reservation, limit,
                  tell ? "told" : "not told");
    check_rng_init(&rng, 77);
    memset(at, 0, sizeof at);
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    config.clients = 2;
    config.mode = TAGS_PS;
    for (k = 0; k < SERVERS; k++) {
        check_mem_new(&mem[k], tags_memsize(&config), 64, 0);
        CHECK_EQ(tags_init(&server[k], mem[k].mem, mem[k].size, &config), QOS_OK);
        terms.weight = slow ? 1 : 1000; /* client 0: over all servers */
        terms.reservation_per_s = reservation;
        terms.limit_per_s = limit;
        CHECK_EQ(tags_add(&server[k], 0, 0, &terms), QOS_OK);
        terms.weight = slow ? 1000 : 1; /* client 1 gets the remainder */
        terms.reservation_per_s = terms.limit_per_s = 0;
        CHECK_EQ(tags_add(&server[k], 0, 1, &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&server[k], 0, 1, 1000000, 1), QOS_OK);
        CHECK_EQ(tags_arrive(&server[k], 0, 0, 1, 1), QOS_OK);
        rho[k] = delta[k] = 0; /* with its first request */
    }
    while (now < 20 * SECOND) {
        for (k = 0; k < SERVERS; k++) {
            struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
            struct tags_grant g;
            bool mine;
            if (next[k] > now || tags_choose(&server[k], now, &choice) != QOS_OK)
                continue;
            mine = choice.client == 0 && tell;
            CHECK_EQ(tags_dispatch(&server[k], now, &choice, 1, mine ? rho[k] : 0, mine ? delta[k] : 0, &g), QOS_OK);
            CHECK_EQ(tags_complete(&server[k], now, &g, 1000), QOS_OK);
            if (choice.client == 0) {
                served++;
                tags_tracker_done(&tracker, g.phase, 1, &at[k]);
                tags_tracker_send(&tracker, &at[k], &rho[k], &delta[k]); /* the next request */
                if (check_between(&rng, 0, 3) == 0) {                    /* the first was lost, and is sent again */
                    tags_tracker_server_lost(&at[k], rho[k], delta[k]);
                    tags_tracker_send(&tracker, &at[k], &rho[k], &delta[k]);
                }
                CHECK_EQ(tags_arrive(&server[k], now, 0, 1, 1), QOS_OK);
            }
            next[k] = now + check_between(&rng, 1,
                                          UINT64_C(2000000) << (k ? k / 2 : 0)); /* 1000 per second, and slower ones */
        }
        now += 50000;
    }
    if (tell)
        CHECK_WITHIN((double)served / 20, 0.95 * (double)(slow ? reservation : limit),
                     1.05 * (double)(slow ? reservation : limit));
    else
        /* each server alone would give all of it: so the test can fail */
        CHECK_GE(served, 20 * 2 * (slow ? reservation : limit));
    for (k = 0; k < SERVERS; k++)
        CHECK(check_mem_free(&mem[k]));
}

/* The same arrivals and services with all weights multiplied by a factor: at any time the same counts, within one
 * request. */
static void scale(uint64_t stream)
{
    static struct tags tags[2];
    struct check_rng rng;
    struct tags_config config;
    struct check_mem mem[2];
    unsigned queued[MOST] = {0}, i, k, step;
    uint64_t now = 1, count[2][MOST];
    check_rng_init(&rng, 1000 + stream);
    memset(&config, 0, sizeof config);
    memset(count, 0, sizeof count);
    config.clients = MOST;
    config.mode = stream % 2 ? TAGS_PS : TAGS_REWARD;
    for (k = 0; k < 2; k++) {
        check_mem_new(&mem[k], tags_memsize(&config), 64, 0);
        CHECK_EQ(tags_init(&tags[k], mem[k].mem, mem[k].size, &config), QOS_OK);
    }
    for (i = 0; i < MOST; i++) {
        struct tags_client terms;
        memset(&terms, 0, sizeof terms);
        terms.weight = i < 2 ? 1 + 999 * i : check_between(&rng, 1, 1000);
        CHECK_EQ(tags_add(&tags[0], now, i, &terms), QOS_OK);
        terms.weight *= 100;
        CHECK_EQ(tags_add(&tags[1], now, i, &terms), QOS_OK);
    }
    for (step = 0; step < 5000; step++) {
        i = (unsigned)check_between(&rng, 0, MOST - 1);
        if (queued[i] == 0) { /* a think time, a burst */
            queued[i] = (unsigned)check_between(&rng, 1, 30);
            for (k = 0; k < 2; k++)
                CHECK_EQ(tags_arrive(&tags[k], now, i, queued[i], 1), QOS_OK);
        }
        for (k = 0; k < 2; k++) {
            struct tags_grant g;
            if (tags_pull(&tags[k], now, 1, &g) != QOS_OK)
                continue;
            CHECK_EQ(tags_complete(&tags[k], now, &g, 1000 * (1 + g.client)), QOS_OK);
            count[k][g.client]++;
            if (k == 0)
                queued[g.client]--;
        }
        for (i = 0; i < MOST; i++)
            CHECK_LE(count[0][i] > count[1][i] ? count[0][i] - count[1][i] : count[1][i] - count[0][i], 1);
        now += check_between(&rng, 1, 100000);
    }
    for (k = 0; k < 2; k++)
        CHECK(check_mem_free(&mem[k]));
}

int main(void)
{
    uint64_t run;
    double worst;
    check_begin("property/tags_fairness");
    for (run = 0; run < 40; run++)
        fairness(run, check_scaled(30000));
    servers(true, 300, 0, true);
    servers(false, 300, 0, true);
    servers(true, 0, 400, false);
    servers(false, 0, 400, false);
    for (run = 0; run < 10; run++)
        scale(run);
    for (worst = 0, run = 0; run < check_scaled(36); run++) {
        static const uint32_t many[] = {2, 10, 100};
        static const uint64_t weights[][2] = {{1, 1}, {1, 10}, {10, 1}}, costs[] = {32, 1000};
        const uint64_t *w = weights[run / 3 % 3];
        worst = larger(worst, small_requests(many[run % 3], w[0], w[1], costs[run / 9 % 2], run >= 18));
    }
    printf("a small reservation beside large requests: within %.4f of the shares\n", worst);
    for (worst = 0, run = 0; run < 20; run++)
        worst = larger(worst, lag(run, 2000));
    printf("behind the fluid schedule: %.3f of the bound\n", worst);
    CHECK_CONTEXT("%s", "");
    CHECK_GE(worst, 0.5); /* the bound is tight */
    printf("%" PRIu64 " came back, %" PRIu64 " stepped aside\n", comebacks, steps_aside);
    CHECK_GE(comebacks, 100);
    CHECK_GE(steps_aside, 100);
    return check_end();
}
