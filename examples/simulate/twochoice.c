/* twochoice.c - `simulate twochoice`: Figures 3 and 4 of the two-choice paper, and larger clusters (the model is
 * bursts.h). */
#include "common.h"
#include "bursts.h"
#include "simulate.h"
#include <string.h>

static const double ratios[] = {0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5};
#define RATIOS (sizeof ratios / sizeof *ratios)

static struct simulate_output out;

static void say(const char *what, const struct burst_config *c, enum burst_rule rule, const struct burst_result *r)
{
    json_object(&out.json, NULL);
    json_text(&out.json, "figure", what);
    json_text(&out.json, "rule", burst_rule_names[rule]);
    json_real(&out.json, "ratio", c->ratio);
    json_u64(&out.json, "k", c->k);
    json_u64(&out.json, "servers", c->servers);
    json_u64(&out.json, "processes", c->processes);
    json_real(&out.json, "response_ms", r->response_ms);
    json_real(&out.json, "ideal_ms", r->ideal_ms);
    json_u64(&out.json, "on_stragglers", r->on_stragglers);
    json_end(&out.json);
}

/* Response time of the burst by the share of stragglers. y takes the times of each rule; may be NULL. */
static void figure_3(struct burst_config c, uint32_t seeds, double y[BURST_RULES + 1][RATIOS])
{
    struct table *t = table_new("stragglers|fixed|random|two-choice|collaborative|preassign|reused probes|ideal|"
                                "on stragglers: two-choice|preassign");
    size_t i;
    printf(
        "\nFigure 3: response time of %u writes of 1 MB on %u servers, ms (k = %u, %u nodes undecided; median of %u)\n",
        c.processes, c.servers, c.k, c.undecided, seeds);
    for (i = 0; i < RATIOS && !stop_asked(); i++) {
        struct burst_result r[BURST_RULES];
        int rule;
        c.ratio = ratios[i];
        table_cellf(t, "%.2f", c.ratio);
        for (rule = 0; rule < BURST_RULES; rule++) {
            r[rule] = burst_median(&c, (enum burst_rule)rule, seeds);
            table_cellf(t, "%.0f", r[rule].response_ms);
            say("3", &c, (enum burst_rule)rule, &r[rule]);
            if (y)
                y[rule][i] = r[rule].response_ms;
        }
        table_cellf(t, "%.0f", r[0].ideal_ms);
        if (y)
            y[BURST_RULES][i] = r[0].ideal_ms;
        table_cellf(t, "%" PRIu64, r[BURST_NATIVE].on_stragglers);
        table_cellf(t, "%" PRIu64, r[BURST_PREASSIGN].on_stragglers);
    }
    table_print(t, stdout);
    table_free(t);
}

/* The most writes that any server of a background load received. */
#define LOADS 46
static void figure_4(struct burst_config c, double y[BURST_RULES][LOADS], uint32_t servers[LOADS])
{
    struct table *t = table_new("background|servers|fixed|random|two-choice|collaborative|preassign|reused probes");
    uint32_t most[BURST_RULES][LOADS], load;
    int rule;
    memset(most, 0, sizeof most);
    c.ratio = 0.01;
    for (rule = 0; rule < BURST_RULES; rule++) {
        struct burst b;
        uint32_t i;
        burst_begin(&b, &c, (enum burst_rule)rule);
        memset(servers, 0, LOADS * sizeof *servers);
        for (i = 0; i < c.servers; i++) {
            const struct burst_server *v = &b.server[i];
            load = v->straggler || v->background >= LOADS ? LOADS - 1 : v->background;
            servers[load]++;
            if (v->placed > most[rule][load])
                most[rule][load] = v->placed;
        }
        burst_end(&b);
    }
    printf("\nFigure 4: the most writes that a server of each background load received, 1 %% stragglers (the last "
           "line)\n");
    for (load = 0; load < LOADS; load++) {
        if (servers[load] == 0)
            continue;
        if (load == LOADS - 1)
            table_cell(t, "stragglers");
        else
            table_cellf(t, "%u", load);
        table_cellf(t, "%u", servers[load]);
        for (rule = 0; rule < BURST_RULES; rule++)
            table_cellf(t, "%u", most[rule][load]);
    }
    for (rule = 0; rule < BURST_RULES; rule++)
        for (load = 0; load < LOADS; load++)
            y[rule][load] = most[rule][load];
    table_print(t, stdout);
    table_free(t);
}

/* A factor of 10: 10,000 servers and 1,000,000 processes. The last column is real time. */
static void scale(struct burst_config c, uint32_t factor)
{
    struct table *t = table_new("<rule|response ms|ideal ms|on stragglers|probes|simulated in s");
    int rule;
    c.servers *= factor;
    c.processes *= factor * factor;
    c.undecided *= factor;
    c.ratio = 0.1;
    c.warm_ups = 1;
    printf("\nScale: %u servers, %u processes, 10 %% stragglers, one burst to learn from and one that counts\n",
           c.servers, c.processes);
    for (rule = 0; rule < BURST_REUSED && !stop_asked(); rule++) {
        uint64_t from = tool_now_ns();
        struct burst_result r = burst_median(&c, (enum burst_rule)rule, 1);
        table_cell(t, burst_rule_names[rule]);
        table_cellf(t, "%.0f", r.response_ms);
        table_cellf(t, "%.0f", r.ideal_ms);
        table_cellf(t, "%" PRIu64, r.on_stragglers);
        table_cellf(t, "%" PRIu64, r.probes);
        table_cellf(t, "%.1f", (double)(tool_now_ns() - from) / 1e9);
        say("scale", &c, (enum burst_rule)rule, &r);
    }
    table_print(t, stdout);
    table_free(t);
}

static bool draw_figure_3(double y[BURST_RULES + 1][RATIOS])
{
    struct plot_curve curve[BURST_RULES + 1];
    const struct plot plot = {.title = "Two-choice, Figure 3: 10,000 writes of 1 MB on 1,000 servers",
                              .x_label = "stragglers (%)",
                              .y_label = "response time (ms)",
                              .curve = curve,
                              .curves = BURST_RULES + 1,
                              .points = true};
    double x[RATIOS];
    size_t i;
    for (i = 0; i < RATIOS; i++)
        x[i] = 100 * ratios[i];
    for (i = 0; i <= BURST_RULES; i++)
        curve[i] = (struct plot_curve){
            .name = i < BURST_RULES ? burst_rule_names[i] : "ideal", .x = x, .y = y[i], .n = RATIOS};
    return simulate_draw(&out, &plot, "twochoice_figure3.svg");
}

/* Loads that no server has are left out. */
static bool draw_figure_4(double y[BURST_RULES][LOADS], const uint32_t servers[LOADS])
{
    static const struct plot_mark stragglers = {"stragglers", LOADS - 1, true, -1};
    struct plot_curve curve[BURST_RULES];
    const struct plot plot = {.title = "Two-choice, Figure 4: the most writes that a server of each load received",
                              .x_label = "background load (writes)",
                              .y_label = "writes",
                              .curve = curve,
                              .curves = BURST_RULES,
                              .mark = &stragglers,
                              .marks = 1,
                              .points = true};
    double x[LOADS];
    size_t i, load, n = 0;
    for (load = 0; load < LOADS; load++) {
        if (servers[load] == 0)
            continue;
        x[n] = (double)load;
        for (i = 0; i < BURST_RULES; i++)
            y[i][n] = y[i][load];
        n++;
    }
    for (i = 0; i < BURST_RULES; i++)
        curve[i] = (struct plot_curve){.name = burst_rule_names[i], .x = x, .y = y[i], .n = n};
    return simulate_draw(&out, &plot, "twochoice_figure4.svg");
}

int simulate_twochoice(int argc, char **argv)
{
    uint64_t seeds = 5, seed = 1, factor = 0, k = 100;
    bool all = false, ok;
    const struct opt opts[] = {
        {"seeds", OPT_COUNT, &seeds, "N", "bursts, 1 to 99, of which medians are shown; default 5", NULL},
        {"seed", OPT_COUNT, &seed, "N", "of the first burst; default 1", NULL},
        {"k", OPT_COUNT, &k, "N", "writes that a node decides together; default 100", NULL},
        {"all", OPT_FLAG, &all, NULL, "Figure 3 also for k = 8", NULL},
        {"scale", OPT_COUNT, &factor, "N",
         "also a cluster of N times the servers and N^2 times the processes; up to 10", NULL},
        SIMULATE_OUTPUT(&out),
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    struct burst_config c;
    static double y3[BURST_RULES + 1][RATIOS], y4[BURST_RULES][LOADS];
    static uint32_t servers[LOADS];
    simulate_parse(argc, argv, opts, "Processes write a burst to many servers, of which some are slow (stragglers).",
                   "simulate twochoice --figures build/figures\n");
    if (seeds == 0 || seeds > 99 || k == 0 || k > 1000 || 10000 % k != 0 || factor > 10)
        tool_die(TOOL_USAGE, "--seeds is 1 to 99, --k a divisor of 10000 up to 1000, --scale up to 10");
    stop_on_signals();
    simulate_open(&out);
    json_array(&out.json, "results");
    burst_defaults(&c);
    c.k = (uint32_t)k;
    c.seed = seed;
    printf("Before the burst each server holds 30 writes (normal, deviation 3), a straggler five times as many.\n"
           "A write takes %.0f ms, a round trip %.0f ms; P(load) was learned in %u earlier bursts.\n",
           (double)c.service_ns / 1e6, (double)c.round_trip_ns / 1e6, c.warm_ups);
    figure_3(c, (uint32_t)seeds, y3);
    figure_4(c, y4, servers);
    ok = draw_figure_3(y3);
    ok = draw_figure_4(y4, servers) && ok;
    if (all) {
        struct burst_config other = c;
        other.k = 8;
        figure_3(other, (uint32_t)seeds, NULL);
    }
    if (factor > 1)
        scale(c, (uint32_t)factor);
    if (simulate_close(&out, ok) != TOOL_OK)
        return TOOL_FAILED;
    return stop_asked() ? TOOL_STOPPED : TOOL_OK;
}
