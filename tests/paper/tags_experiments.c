// proves: the reward paper's experiments in simulated time, with its numbers: Section II's example, Table I, Figures 2 to 6,
// proves: Section IV-A's 100 and 25 against 40 and 40, B with a reservation of 150 in region 4; medians over seeds.
// variants: native
// coverage: report
#include "check.h"
#include "examples/simulate/reward.h"
#include <stdlib.h>

#define SEEDS 9

static void *memory;
static size_t memory_size;

static void make_room(const struct tags_config *config)
{
    if (tags_memsize(config) > memory_size) {
        free(memory);
        memory_size = (tags_memsize(config) + 63) / 64 * 64;
        memory = aligned_alloc(64, memory_size);
    }
}

static void run(struct reward *s)
{
    struct tags_config config;
    reward_config(s, &config);
    make_room(&config);
    CHECK(reward_run(s, memory, memory_size));
}

static int less(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
    qsort(v, n, sizeof *v, less);
    return v[n / 2];
}

/* Median over the seeds of a client's rate in [from, to). */
static struct reward sims[SEEDS];

static void run_seeds(void (*set_up)(struct reward *))
{
    unsigned i;
    for (i = 0; i < SEEDS; i++) {
        set_up(&sims[i]);
        sims[i].seed = check_seed() * 1000 + i;
        run(&sims[i]);
    }
}

static double rate(uint32_t client, double from_s, double to_s)
{
    double v[SEEDS];
    unsigned i;
    for (i = 0; i < SEEDS; i++)
        v[i] = reward_rate(&sims[i], client, from_s, to_s);
    return median(v, SEEDS);
}

static void about(double got, double want, double tolerance, const char *what)
{
    CHECK_CONTEXT("%s: %g, the paper has %g", what, got, want);
    CHECK_WITHIN(got, want * (1 - tolerance), want * (1 + tolerance));
}

/* ---- Section II */

static enum tags_mode mode;
static bool efficient;

static void section2(struct reward *s)
{
    reward_section2(s, efficient);
    s->mode = mode;
}

static void test_section2(void)
{
    efficient = false;
    for (mode = TAGS_REWARD;; mode = TAGS_PS) {
        run_seeds(section2);
        about(rate(0, 10, 400), 20, 0.02, "II, A");
        about(rate(1, 10, 400), 40, 0.02, "II, B");
        about(rate(2, 10, 400), 40, 0.02, "II, C");
        if (mode == TAGS_PS)
            break;
    }
    efficient = true;
    mode = TAGS_REWARD;
    run_seeds(section2);
    about(rate(0, 10, 400), 40, 0.02, "II, A rewarded");
    about(rate(1, 10, 400), 40, 0.02, "II, B beside it");
    about(rate(2, 10, 400), 40, 0.02, "II, C beside it");
    mode = TAGS_PS;
    run_seeds(section2);
    about(rate(0, 10, 400), 22.2, 0.02, "II, A, PS");
    about(rate(1, 10, 400), 44.4, 0.02, "II, B, PS");
    about(rate(2, 10, 400), 44.4, 0.02, "II, C, PS");
}

/* ---- Table I on random sets of clients, with the mean service times of the run: within 1 % */

static void test_table1(void)
{
    struct check_rng rng;
    uint64_t set, sets = check_scaled(100);
    check_rng_init(&rng, 1);
    for (set = 0; set < sets; set++) {
        static struct reward s;
        double weights, harmonic, total_reward, total_ps;
        uint32_t i, m, clients = (uint32_t)check_between(&rng, 2, 6);
        uint64_t weight[REWARD_CLIENTS];
        double hit[REWARD_CLIENTS];
        for (i = 0; i < clients; i++) {
            weight[i] = check_between(&rng, 1, 5);
            hit[i] = (double)check_between(&rng, 0, 90) / 100;
        }
        for (m = 0; m < 2; m++) {
            double sum = 0;
            reward_paper(&s, clients, 250);
            s.mode = m == 0 ? TAGS_REWARD : TAGS_PS;
            s.seed = check_rand(&rng);
            for (weights = 0, i = 0; i < clients; i++) {
                s.client[i].weight = weight[i];
                s.client[i].hit_ratio[0] = hit[i];
                weights += (double)weight[i];
            }
            run(&s);
            total_reward = harmonic = 0;
            for (i = 0; i < clients; i++) {
                double f = (double)weight[i] / weights, e = 1e9 / s.service_ns[i];
                total_reward += f * e;
                harmonic += f / e;
            }
            total_ps = 1 / harmonic;
            for (i = 0; i < clients; i++) {
                double f = (double)weight[i] / weights, e = 1e9 / s.service_ns[i];
                double got = reward_rate(&s, i, 0, 250);
                CHECK_CONTEXT("Table I, set %" PRIu64 ", client %u of %u", set, i, clients);
                CHECK_WITHIN(got / (m == 0 ? f * e : f * total_ps), 0.99, 1.01);
                sum += got;
            }
            CHECK_WITHIN(sum / (m == 0 ? total_reward : total_ps), 0.99, 1.01);
        }
    }
}

/* ---- Figures 2 and 3 */

static uint64_t reserve_b;
static int alone;

static void figure3(struct reward *s)
{
    reward_figure3(s);
    s->mode = mode;
    s->client[1].reservation_per_s = reserve_b;
    if (alone >= 0) {
        s->clients = 1;
        s->client[0] = s->client[alone];
    }
}

static void test_figures2_and_3(void)
{
    static const double hit[2][4] = {{0, 0.2, 0.4, 0.6}, {2.0 / 3, 0.5, 1.0 / 3, 0}};
    double phi[2][4], got;
    unsigned c, r;
    for (c = 0; c < 2; c++) {
        mode = TAGS_REWARD;
        alone = (int)c;
        reserve_b = 0;
        run_seeds(figure3);
        for (r = 0; r < 4; r++) {
            phi[c][r] = 0.1e-3 * hit[c][r] + 5e-3 * (1 - hit[c][r]);
            about(rate(0, r * 50.0 + 1, r * 50.0 + 50), 1 / phi[c][r], 0.03, "Figure 2");
        }
    }
    alone = -1;
    run_seeds(figure3);
    for (r = 0; r < 4; r++)
        for (c = 0; c < 2; c++)
            about(rate(c, r * 50.0 + 3, r * 50.0 + 50), 0.5 / phi[c][r], 0.04, "Figure 3(b)");
    mode = TAGS_PS;
    run_seeds(figure3);
    for (r = 0; r < 4; r++)
        for (c = 0; c < 2; c++)
            about(rate(c, r * 50.0 + 3, r * 50.0 + 50), 1 / (phi[0][r] + phi[1][r]), 0.03, "Figure 3(a)");
    /* Section V: B reserves 150. In region 4 it gets 150, more than its entitlement of 100; before, it gets more than
     * 150. */
    mode = TAGS_REWARD;
    reserve_b = 150;
    run_seeds(figure3);
    got = rate(1, 153, 200);
    CHECK_CONTEXT("Section V, B reserves 150: %g in region 4", got);
    CHECK_WITHIN(got, 149.5, 152);
    about(rate(0, 153, 200), (1 - 150 * phi[1][3]) / phi[0][3], 0.04, "Section V, A in region 4");
    for (r = 0; r < 2; r++)
        about(rate(1, r * 50.0 + 3, r * 50.0 + 50), 0.5 / phi[1][r], 0.04, "Section V, B in regions 1 and 2");
}

/* ---- Section IV-A */

static void section4(struct reward *s)
{
    reward_section4(s);
    s->mode = mode;
}

static void test_section4(void)
{
    mode = TAGS_REWARD;
    run_seeds(section4);
    about(rate(0, 5, 400), 100, 0.02, "IV-A, 5 ms");
    about(rate(1, 5, 400), 25, 0.02, "IV-A, 20 ms");
    mode = TAGS_PS;
    run_seeds(section4);
    about(rate(0, 5, 400), 40, 0.02, "IV-A, 5 ms, PS");
    about(rate(1, 5, 400), 40, 0.02, "IV-A, 20 ms, PS");
}

/* ---- Figures 4, 5 and 6 */

static double hit_b;
static bool literal; /* by the paper's algorithm instead of tags.h */
static bool synchronise;

static void figure5(struct reward *s)
{
    reward_figure5(s, hit_b, reserve_b);
    s->mode = mode;
    s->literal = literal || !synchronise;
}

static double gain_starts(void)
{
    double v[SEEDS];
    unsigned i;
    for (i = 0; i < SEEDS; i++)
        v[i] = reward_reaches(&sims[i], 1, 25, 71) - 25; /* half way from 60 to 82 */
    return median(v, SEEDS);
}

static void test_figures4_to_6(void)
{
    double delay;
    mode = TAGS_REWARD;
    reserve_b = 0;
    synchronise = true;
    hit_b = 0;
    run_seeds(figure5);
    about(rate(0, 0, 100), 25, 0.03, "Figure 4, A");
    about(rate(1, 0, 100), 50, 0.03, "Figure 4, B");
    about(rate(2, 0, 100), 125, 0.03, "Figure 4, C");
    hit_b = 0.4;
    for (literal = true;; literal = false) {
        run_seeds(figure5);
        about(rate(0, 0, 25), 25, 0.05, "Figure 5(a), A before");
        about(rate(1, 0, 25), 50, 0.05, "Figure 5(a), B before");
        about(rate(2, 0, 25), 125, 0.05, "Figure 5(a), C before");
        about(rate(0, 26, 75), 25, 0.04, "Figure 5(a), A stays");
        about(rate(1, 26, 75), 83, 0.04, "Figure 5(a), B is rewarded");
        about(rate(2, 26, 75), 125, 0.04, "Figure 5(a), C stays");
        about(rate(1, 76, 100), 50, 0.05, "Figure 5(a), B after");
        if (!literal)
            break;
    }
    mode = TAGS_PS;
    run_seeds(figure5);
    about(rate(0, 26, 75), 27.7, 0.03, "Figure 5(b), A");
    about(rate(1, 26, 75), 55.4, 0.03, "Figure 5(b), B");
    about(rate(2, 26, 75), 138.6, 0.03, "Figure 5(b), C");
    about(rate(0, 26, 75) + rate(1, 26, 75) + rate(2, 26, 75), 222, 0.02, "Figure 5(b), all");

    mode = TAGS_REWARD;
    reserve_b = 60;
    run_seeds(figure5);
    about(rate(1, 1, 25), 60, 0.01, "Figure 6, B before");
    about(rate(0, 1, 25), 23.3, 0.05, "Figure 6, A before");
    about(rate(2, 1, 25), 116.7, 0.05, "Figure 6, C before");
    delay = gain_starts();
    printf("Figure 6(b): the gain starts %.1f s after the change\n", delay);
    CHECK_CONTEXT("Figure 6(b): %g s", delay);
    CHECK_WITHIN(delay, 0, 1.5);
    about(rate(1, 27, 75), 82, 0.04, "Figure 6(b), B");
    about(rate(0, 27, 75), 25, 0.05, "Figure 6(b), A");
    about(rate(2, 27, 75), 125, 0.05, "Figure 6(b), C");
    about(rate(1, 77, 100), 60, 0.02, "Figure 6(b), B after");
    synchronise = false;
    run_seeds(figure5);
    delay = gain_starts();
    printf("Figure 6(a): %.1f s\n", delay);
    CHECK_CONTEXT("Figure 6(a): %g s", delay);
    CHECK_WITHIN(delay, 15, 21);
    about(rate(1, 26, 40), 60, 0.02, "Figure 6(a), B starves at its reservation");
}

/* ---- the paper's rule for idle clients (tags in real time), and ours. Two clients of weight 1 think for 10 us
 * between requests of 100 us each; a client of weight 1000 always has requests. Returns the part of the device that
 * the third client gets in 10 s. */

static double heavy(bool by_paper)
{
    static struct reward s;
    static struct reward_scheduler r;
    struct tags_config config;
    uint64_t now = 0, arrives[3] = {0, 0, 0}, served[3] = {0, 0, 0};
    uint32_t i;
    reward_paper(&s, 3, 10);
    s.literal = by_paper;
    s.client[2].weight = 1000;
    reward_config(&s, &config);
    make_room(&config);
    CHECK(reward_open(&s, &r, memory, memory_size));
    for (i = 0; i < 3; i++) {
        struct tags_client terms = {s.client[i].weight, 0, 0};
        CHECK_EQ(tags_add(&r.tags, 0, i, &terms), QOS_OK);
    }
    CHECK(reward_arrive(&r, 0, 2, 1000000));
    while (now < UINT64_C(10000000000)) {
        struct tags_grant g = {0, TAGS_PHASE_WEIGHT, 0, 0, 0};
        for (i = 0; i < 2; i++)
            if (arrives[i] <= now) {
                CHECK(reward_arrive(&r, now, i, 1));
                arrives[i] = UINT64_MAX;
            }
        CHECK(reward_pull(&r, now, &g));
        now += 100000;
        CHECK(reward_complete(&r, now, &g, 100000));
        served[g.client]++;
        arrives[g.client] = now + 10000;
    }
    return (double)served[2] / (double)(served[0] + served[1] + served[2]);
}

static void test_idle_clients(void)
{
    CHECK_CONTEXT("%s", "idle clients: the paper's rule lets them starve a heavy one, ours does not");
    printf("idle clients: a heavy one keeps %.3f by the paper's rule, %.3f by ours\n", heavy(true), heavy(false));
    CHECK_WITHIN(heavy(true), 0, 0.1); /* by weight it would be 0.998 */
    CHECK_WITHIN(heavy(false), 0.997, 1);
}

int main(void)
{
    check_begin("paper/tags_experiments");
    if (check_case("section2"))
        test_section2();
    if (check_case("table1"))
        test_table1();
    if (check_case("figures2_and_3"))
        test_figures2_and_3();
    if (check_case("section4"))
        test_section4();
    if (check_case("figures4_to_6"))
        test_figures4_to_6();
    if (check_case("idle_clients"))
        test_idle_clients();
    free(memory);
    return check_end();
}
