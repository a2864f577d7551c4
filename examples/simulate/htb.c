/* htb.c - `simulate htb`: AQuA's Figures 8, 9 and 10 in simulated time (the testbed is aqua.h). */
#include "aqua.h"
#include "common.h"
#include "simulate.h"

enum { FIGURES = 3, CURVES = AQUA_STREAMS + 2 };

static const struct figure {
    const char *name, *title, *file;
    bool qos, maximizer;
} figures[FIGURES] = {
    {"8: no QoS", "AQuA, Figure 8: no reservation", "htb_figure8.svg", false, false},
    {"9: reservations", "AQuA, Figure 9: 5, 15 and 20 MB/s reserved of 40", "htb_figure9.svg", true, false},
    {"10: and maximizer", "AQuA, Figure 10: the same, bandwidth maximizer at work", "htb_figure10.svg", true, true},
};

static struct simulate_output out;

static bool draw(const struct figure *fig, const struct aqua *a)
{
    static double x[AQUA_SECONDS], y[CURVES][AQUA_SECONDS];
    static const char *const names[CURVES] = {"workload 1 (5 MB/s)", "workload 2 (15 MB/s)", "workload 3 (20 MB/s)",
                                              "total", "root's rate"};
    struct plot_curve curve[CURVES];
    struct plot_mark mark[AQUA_STREAMS];
    struct plot plot = {0};
    uint32_t t, i;
    for (t = 0; t < a->seconds; t++) {
        x[t] = t;
        y[AQUA_STREAMS][t] = 0;
        for (i = 0; i < AQUA_STREAMS; i++) {
            y[i][t] = a->kb[i][t] / 1000;
            y[AQUA_STREAMS][t] += y[i][t];
        }
        y[AQUA_STREAMS + 1][t] = a->root_kb_s[t] / 1000;
    }
    for (i = 0; i < CURVES; i++) {
        curve[i].name = names[i];
        curve[i].x = x;
        curve[i].y = y[i];
        curve[i].n = a->seconds;
    }
    for (i = 0; i < AQUA_STREAMS; i++) {
        mark[i].name = "reserved";
        mark[i].at = (double)a->reserved_kb_per_s[i] / 1000;
        mark[i].vertical = false;
        mark[i].colour_of = (int)i;
    }
    plot.title = fig->title;
    plot.x_label = "time (s)";
    plot.y_label = "throughput (MB/s)";
    plot.curve = curve;
    plot.curves = fig->qos ? CURVES : CURVES - 1;
    plot.mark = mark;
    plot.marks = fig->qos ? AQUA_STREAMS : 0;
    plot.y_max = (double)a->disk_kb_per_s / 1000 * 1.25;
    plot.steps = true;
    return simulate_draw(&out, &plot, fig->file);
}

static void report(const struct figure *fig, const struct aqua *a, struct table *table)
{
    uint32_t phase, i;
    json_object(&out.json, NULL);
    json_text(&out.json, "figure", fig->name);
    json_array(&out.json, "phases");
    for (phase = 0; phase < AQUA_STREAMS; phase++) {
        double total = 0;
        table_cell(table, phase == 0 ? fig->name : "");
        table_cellf(table, "%u-%u s", phase * 30, phase * 30 + 30);
        json_array(&out.json, NULL);
        for (i = 0; i < AQUA_STREAMS; i++) { /* without the first second of a phase: buckets fill */
            double mb = aqua_mean(a, i, phase * 30 + 1, phase * 30 + 30) / 1000;
            total += mb;
            if (i <= phase)
                table_cellf(table, "%.1f", mb);
            else
                table_cell(table, NULL);
            json_real(&out.json, NULL, mb);
        }
        table_cellf(table, "%.1f", total);
        if (fig->qos)
            table_cellf(table, "%.1f", a->root_kb_s[phase * 30 + 29] / 1000);
        else
            table_cell(table, NULL);
        json_end(&out.json);
    }
    table_rule(table);
    json_end(&out.json);
    json_end(&out.json);
}

int simulate_htb(int argc, char **argv)
{
    static struct aqua a;
    const struct opt opts[] = {
        SIMULATE_OUTPUT(&out),
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    struct table *table;
    bool ok = true;
    int i;
    simulate_parse(argc, argv, opts,
                   "Three workloads write requests of 512 KB to one disk as fast as they may. One starts every 30 s.",
                   "simulate htb --figures build/figures\n");
    simulate_open(&out);
    json_array(&out.json, "figures");
    table = table_new("<figure|time|workload 1 (5)|workload 2 (15)|workload 3 (20)|total|root's rate");
    for (i = 0; i < FIGURES; i++) {
        aqua_paper(&a);
        a.qos = figures[i].qos;
        a.maximizer = figures[i].maximizer;
        if (!aqua_run(&a))
            tool_die(TOOL_FAILED, "htb.h refused the configuration of the simulation");
        report(&figures[i], &a, table);
        if (out.figure_dir)
            ok = draw(&figures[i], &a) && ok;
    }
    printf("MB/s, means of each phase\n");
    table_print(table, stdout);
    table_free(table);
    return simulate_close(&out, ok);
}
