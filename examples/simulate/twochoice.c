/* simulate twochoice - Figures 3 and 4 of the two-choice paper, and the same at ten times its size. */
#include "common.h"
#include "bursts.h"
#include "simulate.h"
#include <string.h>

static const double ratios[] = {0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5};
#define RATIOS (sizeof ratios / sizeof *ratios)

static struct json json;

static void say(const char *what, const struct burst_config *c, enum burst_rule rule, const struct burst_result *r)
{
    json_object(&json, NULL);
    json_text(&json, "figure", what);
    json_text(&json, "rule", burst_rule_names[rule]);
    json_real(&json, "ratio", c->ratio);
    json_u64(&json, "k", c->k);
    json_u64(&json, "servers", c->servers);
    json_u64(&json, "processes", c->processes);
    json_bool(&json, "peers", c->peers);
    json_real(&json, "response_ms", r->response_ms);
    json_real(&json, "ideal_ms", r->ideal_ms);
    json_u64(&json, "on_stragglers", r->on_stragglers);
    json_end(&json);
}

/* Response time of the burst by the ratio of stragglers. y: the responses of each rule, NULL: not wanted. */
static void figure_3(struct burst_config c, uint32_t seeds, double y[BURST_RULES + 1][RATIOS])
{
    struct table *t = table_new("stragglers|fixed|random|two-choice|collaborative|preassign|reused probes|ideal|"
                                "on stragglers: two-choice|collaborative|preassign");
    size_t i;
    printf("\nFigure 3: response time of %u writes of 1 MB on %u servers, ms (k = %u, %u nodes undecided%s; median of "
           "%u)\n",
           c.processes, c.servers, c.k, c.undecided, c.peers ? ", cached loads of peers" : "", seeds);
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
        table_cellf(t, "%" PRIu64, r[BURST_COLLABORATIVE].on_stragglers);
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

/* 10,000 servers x 1,000,000 processes, in real seconds. */
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

static void write_curves(const char *dir, double y3[BURST_RULES + 1][RATIOS], double y4[BURST_RULES][LOADS],
                         const uint32_t servers[LOADS])
{
    char path[512];
    FILE *f;
    size_t i;
    int rule;
    snprintf(path, sizeof path, "%s/twochoice_figure3.dat", dir);
    f = fopen(path, "w");
    if (!f)
        tool_die(TOOL_FAILED, "cannot write %s", path);
    for (i = 0; i < RATIOS; i++) {
        fprintf(f, "%g", ratios[i]);
        for (rule = 0; rule <= BURST_RULES; rule++)
            fprintf(f, " %g", y3[rule][i]);
        fprintf(f, "\n");
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/twochoice_figure4.dat", dir);
    f = fopen(path, "w");
    if (!f)
        tool_die(TOOL_FAILED, "cannot write %s", path);
    for (i = 0; i < LOADS; i++) {
        if (servers[i] == 0)
            continue;
        fprintf(f, "%zu %u", i, servers[i]);
        for (rule = 0; rule < BURST_RULES; rule++)
            fprintf(f, " %g", y4[rule][i]);
        fprintf(f, "\n");
    }
    fclose(f);
}

int simulate_twochoice(int argc, char **argv)
{
    uint64_t seeds = 5, seed = 1, factor = 0, k = 100;
    const char *json_path = NULL, *data = NULL;
    bool peers = false, all = false;
    const struct opt opts[] = {
        {"seeds", OPT_COUNT, &seeds, "N", "bursts to take the median of, 1 to 99 (5)", NULL},
        {"seed", OPT_COUNT, &seed, "N", "of the first (1)", NULL},
        {"k", OPT_COUNT, &k, "N", "writes that a node decides together (100)", NULL},
        {"peers", OPT_FLAG, &peers, NULL, "cached loads of peers ride on replies and decisions", NULL},
        {"all", OPT_FLAG, &all, NULL, "also k = 8, and with cached loads of peers", NULL},
        {"scale", OPT_COUNT, &factor, "N", "also N times the servers and N^2 times the processes", NULL},
        {"data", OPT_TEXT, &data, "DIR", "writes the curves of both figures there, for gnuplot", NULL},
        {"json", OPT_TEXT, &json_path, "FILE", "writes every result there", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    struct burst_config c;
    static double y3[BURST_RULES + 1][RATIOS], y4[BURST_RULES][LOADS];
    static uint32_t servers[LOADS];
    simulate_parse(argc, argv, opts, "Figures 3 and 4 of the two-choice paper: burst writes among stragglers.",
                   "simulate twochoice --all --scale 10\n");
    if (seeds == 0 || seeds > 99 || k == 0 || k > 1000 || 10000 % k != 0 || factor > 10)
        tool_die(TOOL_USAGE, "--seeds is 1 to 99, --k a divisor of 10000 up to 1000, --scale up to 10");
    stop_on_signals();
    if (!json_open(&json, json_path))
        tool_die(TOOL_FAILED, "cannot write %s", json_path);
    json_array(&json, "results");
    burst_defaults(&c);
    c.k = (uint32_t)k;
    c.seed = seed;
    c.peers = peers;
    printf("Background of each server: 30 writes (normal, deviation 3), a straggler's five times as many; %.0f ms a "
           "write,\n"
           "round trip %.0f ms; P(load) learned in %u earlier bursts.\n",
           (double)c.service_ns / 1e6, (double)c.round_trip_ns / 1e6, c.warm_ups);
    figure_3(c, (uint32_t)seeds, y3);
    figure_4(c, y4, servers);
    if (data)
        write_curves(data, y3, y4, servers);
    if (all) {
        struct burst_config other = c;
        other.k = 8;
        figure_3(other, (uint32_t)seeds, NULL);
        other = c;
        other.peers = true;
        figure_3(other, (uint32_t)seeds, NULL);
    }
    if (factor > 1)
        scale(c, (uint32_t)factor);
    if (!json_close(&json))
        return TOOL_FAILED;
    return stop_asked() ? TOOL_STOPPED : TOOL_OK;
}
