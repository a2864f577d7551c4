// proves: the Haechi paper's Examples 1 and 2, Definitions 1 and 2, and Sets 1 to 4 in simulated time, with its numbers;
// where a faithful model differs (Zipf above 70 % reserved), the difference, and that the guard repairs it
// links: -lm
// variants: native
// coverage: report set_4
#include "pshift.h"
#include "examples/simulate/haechi_nodes.h"
#include "check.h"

static char memory[8192] __attribute__((aligned(64)));
static struct haechi h;

static void run(const char *name)
{
    CHECK_CONTEXT("%s", name);
    CHECK(haechi_run(&h, memory));
}

/* Example 2 and Definition 2: C_G = 100, C_L = 50, reservations 40, 10, 10, 10, 10: admitted. At 0.5 s each has completed
 * 10, as the server shares equally; client 1 has 30 left and can do 25. The guard keeps the pool closed from the start. */
static void test_example_2(void)
{
    static const uint64_t reserved[5] = {40, 10, 10, 10, 10};
    static struct tokenpool_monitor monitor;
    struct tokenpool_config config;
    uint64_t fits = 0;
    unsigned guard;
    uint32_t i;
    for (guard = 0; guard < 2; guard++) {
        memset(&config, 0, sizeof config);
        config.clients = 5;
        config.capacity = 100;
        config.client_capacity = 50;
        config.flags = guard ? TOKENPOOL_GUARD : 0;
        CHECK_EQ(tokenpool_monitor_init(&monitor, memory, 4096, memory + 4096, 4096, &config), QOS_OK);
        CHECK_EQ(tokenpool_monitor_join(&monitor, 0, 51, 0, &fits), QOS_EADMISSION); /* R <= T x C_L */
        CHECK_EQ(fits, 50);
        for (i = 0; i < 5; i++)
            CHECK_EQ(tokenpool_monitor_join(&monitor, i, reserved[i], 0, &fits), QOS_OK);
        tokenpool_monitor_run(&monitor, 0);
        memcpy(&fits, memory + 4096 + TOKENPOOL_OFFSET_POOL, sizeof fits);
        CHECK_EQ(tokenpool_word_count(fits), guard ? 0 : 20);
    }
}

static void test_set_1(void)
{
    uint32_t n;
    for (n = 1; n <= 10; n++) { /* 1A, 1B: linear to three clients, saturated from the fourth */
        haechi_base(&h, 2);
        h.bare = true;
        h.active = n;
        haechi_spike(&h, 2000000, 2000000);
        run("1B");
        CHECK_WITHIN(haechi_mean(&h, 0), 0.999 * fmin(n * HAECHI_C_L, HAECHI_C_G),
                     fmin(n * HAECHI_C_L, HAECHI_C_G) + 10);
    }
    haechi_base(&h, 3); /* 1C: 1,570 K; 1,380 K; 1,564 K */
    h.bare = true;
    haechi_spike(&h, 158000, 158000);
    run("1C uniform");
    CHECK_WITHIN(haechi_mean(&h, 1), 0.98 * 1570e3, 1.02 * 1570e3);
    CHECK_WITHIN(haechi_mean_of(&h, 4, 1), 0.98 * 157e3, 1.02 * 157e3);
    haechi_spike(&h, 340000, 80000);
    memset(h.done, 0, sizeof h.done);
    run("1C spike, burst");
    CHECK_WITHIN(haechi_mean(&h, 1), 0.98 * 1380e3, 1.02 * 1380e3);
    CHECK_WITHIN(haechi_mean_of(&h, 0, 1), 0.98 * 278e3, 1.02 * 278e3);
    haechi_base(&h, 3);
    h.bare = h.constant_rate = true;
    haechi_spike(&h, 340000, 80000);
    run("1C spike, constant rate");
    CHECK_WITHIN(haechi_mean(&h, 1), 0.98 * 1564e3, 1.02 * 1564e3);
    CHECK_WITHIN(haechi_mean_of(&h, 0, 1), 0.98 * 332e3, 1.02 * 332e3);
}

/* 2A and 2C. */
static void test_reserved_share(void)
{
    /* the total of a guard that closes the pool while a residual reservation exceeds an equal share; ours gets more */
    static const double guarded[5] = {1570e3, 1570e3, 1561e3, 1488e3, 1416e3};
    unsigned percent;
    for (percent = 50; percent <= 90; percent += 10) {
        double bare;
        haechi_base(&h, 4);
        haechi_reserve(&h, percent, false);
        h.bare = true;
        run("2C uniform, bare");
        bare = haechi_mean(&h, 1);
        haechi_base(&h, 4);
        haechi_reserve(&h, percent, false);
        run("2C uniform");
        CHECK_EQ(haechi_missed(&h, 0), 0);
        CHECK_WITHIN(haechi_mean(&h, 1), 0.999 * bare, 1.001 * bare);

        haechi_base(&h, 4); /* equal sharing gives C1 157 K, whatever it reserved */
        haechi_reserve(&h, percent, true);
        h.bare = true;
        run("2C Zipf, bare");
        CHECK_WITHIN(haechi_mean_of(&h, 0, 1), 156e3, 158e3);
        haechi_base(&h, 4);
        haechi_reserve(&h, percent, true);
        h.flags = TOKENPOOL_FIXED;
        run("2C Zipf, no guard");
        if (percent >= 70) {
            CHECK_EQ(haechi_missed(&h, 0), 4);
            CHECK(h.done[2][0] < h.reservation[0] && h.done[2][1] < h.reservation[1]);
        }
        if (percent == 90) { /* Definition 2: 196 K of 236 K; a little more, as others begin with small claims */
            CHECK_WITHIN(haechi_mean_of(&h, 0, 1), 0.98 * 196e3, 1.03 * 196e3);
            CHECK_WITHIN(h.reservation[0], 235e3, 237e3);
        }
        h.flags |= TOKENPOOL_GUARD;
        memset(h.done, 0, sizeof h.done);
        run("2C Zipf, guard");
        CHECK_EQ(haechi_missed(&h, 0), 0);
        CHECK_WITHIN(haechi_mean(&h, 1), 0.995 * guarded[percent / 10 - 5], 1.001 * HAECHI_C_G);
    }
}

/* 2B: C1 and C2 stop at half of their reservation. */
static void test_unused_reservations(void)
{
    unsigned zipf;
    for (zipf = 0; zipf < 2; zipf++) {
        double total[3], c3[3];
        unsigned kind;
        for (kind = 0; kind < 3; kind++) { /* Basic Haechi, Haechi, bare */
            haechi_base(&h, 4);
            haechi_reserve(&h, 90, zipf);
            h.demand[0] = h.reservation[0] / 2;
            h.demand[1] = h.reservation[1] / 2;
            h.flags = TOKENPOOL_FIXED;
            h.literal = h.basic = kind == 0;
            h.bare = kind == 2;
            run("2B");
            total[kind] = haechi_mean(&h, 1);
            c3[kind] = haechi_mean_of(&h, 2, 1);
            CHECK(kind == 2 || haechi_missed(&h, 0) == 0);
        }
        CHECK_WITHIN(total[1], 0.99 * total[2], 1.01 * total[2]);
        /* Basic Haechi wastes their unused tokens; part of a Zipf client's waste is its low speed, not its tokens. */
        CHECK_WITHIN(total[2] - total[0], 0.9 * (double)(h.reservation[0]), 2.1 * (double)h.reservation[0]);
        CHECK(c3[1] > c3[0]);
    }
}

static void test_set_3(void)
{
    double latency[2][3];
    unsigned constant, i;
    for (constant = 0; constant < 2; constant++) {
        double loss;
        haechi_base(&h, 4);
        for (i = 0; i < 10; i++)
            h.reservation[i] = i < 3 ? 285000 : 80000;
        haechi_spike(&h, 340000, 80000);
        h.constant_rate = constant;
        h.flags = TOKENPOOL_FIXED;
        run(constant ? "Set 3, constant rate" : "Set 3, burst");
        loss = 100 * (1 - haechi_mean(&h, 1) / HAECHI_C_G);
        for (i = 0; i < 3; i++)
            CHECK(constant ? haechi_mean_of(&h, i, 1) > 285e3 : haechi_mean_of(&h, i, 1) < 285e3);
        CHECK_WITHIN(loss, constant ? 0.7 - 2 : 12.9 - 2, constant ? 0.7 + 2 : 12.9 + 2);
        latency[constant][0] = h.latency_sum_ms / (double)h.latencies;
        latency[constant][1] = haechi_latency_ms(&h, 0.99);
        latency[constant][2] = haechi_latency_ms(&h, 0.999);
    }
    for (i = 0; i < 3; i++)
        CHECK(latency[1][i] < latency[0][i]); /* Figure 15 */
}

/* Set 4: a background job takes a tenth of the server, from period 10 on or until period 10. 80 % are reserved. */
static void set_4(bool zipf, bool down, bool literal)
{
    haechi_base(&h, 34);
    haechi_reserve(&h, 80, zipf);
    h.flags = zipf ? TOKENPOOL_GUARD : 0;
    h.literal = literal;
    h.change_at = 10;
    h.rate = down ? HAECHI_C_G : 0.9 * HAECHI_C_G;
    h.changed = down ? 0.9 * HAECHI_C_G : HAECHI_C_G;
    run(zipf ? "Set 4, Zipf" : "Set 4, uniform");
}

static void test_set_4(void)
{
    unsigned zipf, down, p;
    for (zipf = 0; zipf < 2; zipf++)
        for (down = 0; down < 2; down++) {
            double reached;
            set_4(zipf, down, false);
            reached = haechi_mean(&h, 24);
            CHECK_EQ(haechi_missed(&h, 20), 0); /* met again within 10 periods */
            /* the estimate follows the completed I/Os, within one step of 5 % and the tolerance */
            for (p = 20; p < h.periods; p++)
                CHECK_WITHIN(h.capacity_of[p], 0.98 * reached, 1.06 * reached);
            if (!zipf)
                CHECK_WITHIN(reached, 0.998 * h.changed, 1.002 * h.changed);
        }
    /* the paper's literal rule: 1,413 K is below Omega_min, and the estimate never learns of it */
    set_4(false, true, true);
    CHECK_WITHIN(h.capacity_of[33], 0.99 * HAECHI_C_G, HAECHI_C_G);
    CHECK_WITHIN(haechi_mean(&h, 24), 0.899 * HAECHI_C_G, 0.901 * HAECHI_C_G);
}

/* Beyond the paper (its future work): several data nodes, reservations split by pshift.h. */
static void test_nodes(void)
{
    static char pshift_memory[16384] __attribute__((aligned(64)));
    struct haechi_nodes n;
    unsigned by_demand, i;
    for (by_demand = 0; by_demand < 2; by_demand++) {
        CHECK_CONTEXT("three nodes, %s", by_demand ? "split by demand" : "equal parts");
        CHECK(haechi_nodes_run(&n, by_demand, 3, memory, pshift_memory, sizeof pshift_memory));
        CHECK_EQ(n.missed, by_demand ? 0 : 6);
        for (i = 0; i < HAECHI_NODES_CLIENTS; i++)
            CHECK(n.part[i][0] + n.part[i][1] + n.part[i][2] + 2 >= n.reservation[i]);
    }
}

int main(void)
{
    check_begin("paper/tokenpool_experiments");
    if (check_case("example_2"))
        test_example_2();
    if (check_case("set_1"))
        test_set_1();
    if (check_case("reserved_share"))
        test_reserved_share();
    if (check_case("unused_reservations"))
        test_unused_reservations();
    if (check_case("set_3"))
        test_set_3();
    if (check_case("set_4"))
        test_set_4();
    if (check_case("nodes"))
        test_nodes();
    return check_end();
}
