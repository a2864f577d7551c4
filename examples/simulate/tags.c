/* tags.c - `simulate tags`: the reward paper's experiments in simulated time (the server is in reward.h). */
#include "reward.h"
#include "common.h"
#include "simulate.h"
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

static void run(struct reward *s)
{
    struct tags_config config;
    void *mem;
    reward_config(s, &config);
    mem = tool_alloc_aligned(tags_memsize(&config), QOS_CACHE_LINE);
    s->seed = seed;
    if (!reward_run(s, mem, tags_memsize(&config)))
        tool_die(TOOL_FAILED, "tags.h refused the configuration of the simulation");
    free(mem);
}

static struct table *table;
static struct simulate_output out;

/* One row: an experiment's clients in one interval, beside the paper's numbers. */
static void row(const char *name, const char *when, const struct reward *s, double from_s, double to_s,
                const char *paper)
{
    uint32_t i;
    double total = 0;
    table_cell(table, name);
    table_cell(table, when);
    json_object(&out.json, NULL);
    json_text(&out.json, "experiment", name);
    json_text(&out.json, "when", when);
    json_array(&out.json, "requests_per_s");
    for (i = 0; i < 3; i++) {
        double rate = i < s->clients ? reward_rate(s, i, from_s, to_s) : 0;
        if (i < s->clients)
            table_cellf(table, "%.1f", rate);
        else
            table_cell(table, NULL);
        if (i < s->clients)
            json_real(&out.json, NULL, rate);
        total += rate;
    }
    table_cellf(table, "%.1f", total);
    table_cell(table, paper);
    json_end(&out.json);
    json_text(&out.json, "paper", paper);
    json_end(&out.json);
}

/* Requests per second over the last second, against time. */
static bool draw(const struct reward *s, const char *title, const char *file, double y_max)
{
    static double x[REWARD_BINS], y[REWARD_CLIENTS][REWARD_BINS];
    static const char *const names[] = {"A", "B", "C"};
    struct plot_curve curve[3];
    struct plot plot;
    const uint32_t clients = s->clients < 3 ? s->clients : 3;
    uint32_t i, b, n = 0;
    if (!out.figure_dir)
        return true;
    for (b = 0; b + 10 <= s->seconds * 10; b += 5, n++) {
        x[n] = b / 10.0 + 1;
        for (i = 0; i < clients; i++)
            y[i][n] = reward_rate(s, i, b / 10.0, b / 10.0 + 1);
    }
    for (i = 0; i < clients; i++) {
        curve[i].name = names[i];
        curve[i].x = x;
        curve[i].y = y[i];
        curve[i].n = n;
    }
    memset(&plot, 0, sizeof plot);
    plot.title = title;
    plot.x_label = "time (s)";
    plot.y_label = "requests per second";
    plot.curve = curve;
    plot.curves = clients;
    plot.y_max = y_max;
    return simulate_draw(&out, &plot, file);
}

static void sections(void)
{
    static struct reward s;
    reward_section2(&s, false);
    run(&s);
    row("Section II, all 10 ms", "", &s, 10, 400, "20 40 40");
    reward_section2(&s, true);
    run(&s);
    row("  A 5 ms: reward", "", &s, 10, 400, "40 40 40 = 120");
    reward_section2(&s, true);
    s.mode = TAGS_PS;
    run(&s);
    row("  A 5 ms: PS", "", &s, 10, 400, "22.2 44.4 44.4 = 111.1");
    table_rule(table);
    reward_section4(&s);
    run(&s);
    row("Section IV-A: reward", "5, 20 ms", &s, 10, 400, "100 25");
    reward_section4(&s);
    s.mode = TAGS_PS;
    run(&s);
    row("Section IV-A: PS", "5, 20 ms", &s, 10, 400, "40 40");
    table_rule(table);
}

static bool regions(const char *name, const struct reward *s)
{
    static const char *const when[] = {"region 1", "region 2", "region 3", "region 4"};
    uint32_t r;
    for (r = 0; r < 4; r++)
        row(r == 0 ? name : "", when[r], s, r * 50 + 3, r * 50 + 50, NULL);
    table_rule(table);
    return true;
}

static bool figures2_and_3(void)
{
    static struct reward s, both;
    static const double y_max = 650;
    bool ok = true;
    uint32_t c;
    memset(&both, 0, sizeof both);
    for (c = 0; c < 2; c++) { /* each client alone: two runs in one picture */
        reward_figure3(&s);
        s.client[0] = s.client[c];
        s.clients = 1;
        run(&s);
        memcpy(both.done[c], s.done[0], sizeof both.done[c]);
    }
    both.clients = 2;
    both.seconds = s.seconds;
    regions("Figure 2, each alone", &both);
    ok = draw(&both, "Reward scheduling, Figure 2: A and B separately", "tags_figure2.svg", y_max) && ok;
    reward_figure3(&s);
    s.mode = TAGS_PS;
    run(&s);
    regions("Figure 3(a), PS", &s);
    ok = draw(&s, "Reward scheduling, Figure 3(a): together, proportional sharing", "tags_figure3a.svg", y_max) && ok;
    reward_figure3(&s);
    s.literal = true;
    run(&s);
    regions("  by the paper's algorithm", &s);
    reward_figure3(&s);
    run(&s);
    regions("Figure 3(b), reward", &s);
    ok = draw(&s, "Reward scheduling, Figure 3(b): together, reward", "tags_figure3b.svg", y_max) && ok;
    reward_figure3(&s);
    s.client[1].reservation_per_s = 150;
    run(&s);
    regions("  B reserves 150", &s);
    return ok;
}

static bool figures4_to_6(void)
{
    static struct reward s;
    bool ok = true;
    reward_figure5(&s, 0, 0);
    run(&s);
    row("Figure 4", "", &s, 0, 100, "25 50 125");
    table_rule(table);
    ok = draw(&s, "Reward scheduling, Figure 4: weights 1, 2, 5", "tags_figure4.svg", 250) && ok;
    reward_figure5(&s, 0.4, 0);
    run(&s);
    row("Figure 5(a), reward", "before 25 s", &s, 0, 25, "25 50 125");
    row("", "25-75 s", &s, 26, 75, "25 83 125");
    reward_figure5(&s, 0.4, 0);
    s.literal = true;
    run(&s);
    row("  by the paper's algorithm", "25-75 s", &s, 26, 75, "25 83 125");
    reward_figure5(&s, 0.4, 0);
    run(&s);
    ok = draw(&s, "Reward scheduling, Figure 5(a): B's hit ratio is 0.4 in [25, 75] s", "tags_figure5a.svg", 250) && ok;
    reward_figure5(&s, 0.4, 0);
    s.mode = TAGS_PS;
    run(&s);
    row("Figure 5(b), PS", "25-75 s", &s, 26, 75, "27.7 55.4 138.6 = 222");
    ok = draw(&s, "Reward scheduling, Figure 5(b): the same, proportional sharing", "tags_figure5b.svg", 250) && ok;
    table_rule(table);
    reward_figure5(&s, 0.4, 60);
    s.literal = true;
    run(&s);
    row("Figure 6(a), the paper's algorithm", "26-40 s", &s, 26, 40, "B 60");
    row("", "50-75 s", &s, 50, 75, "B 82");
    ok = draw(&s, "Reward scheduling, Figure 6(a): B reserves 60, the paper's algorithm", "tags_figure6a.svg", 250) &&
         ok;
    printf("B's gain starts %.1f s after its hit ratio rises without synchronisation, ",
           reward_reaches(&s, 1, 25, 71) - 25);
    reward_figure5(&s, 0.4, 60);
    run(&s);
    printf("%.1f s with it\n", reward_reaches(&s, 1, 25, 71) - 25);
    row("Figure 6(b), synchronised", "before 25 s", &s, 1, 25, "23.3 60 116.7");
    row("", "27-75 s", &s, 27, 75, "25 82 125");
    ok = draw(&s, "Reward scheduling, Figure 6(b): the same, synchronised", "tags_figure6b.svg", 250) && ok;
    return ok;
}

int simulate_tags(int argc, char **argv)
{
    const struct opt opts[] = {
        {"seed", OPT_COUNT, &seed, "N", "of hits and service times; default 1", NULL},
        SIMULATE_OUTPUT(&out),
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    bool ok;
    simulate_parse(argc, argv, opts,
                   "Clients keep a server backlogged. Its SSD takes 0.1 ms for a request, its disk 5 ms, on average.",
                   "simulate tags --figures build/figures\n");
    simulate_open(&out);
    json_array(&out.json, "rows");
    table = table_new("<experiment|<when|A|B|C|total|<the paper");
    sections();
    ok = figures2_and_3();
    ok = figures4_to_6() && ok;
    printf("requests per second\n");
    table_print(table, stdout);
    table_free(table);
    return simulate_close(&out, ok);
}
