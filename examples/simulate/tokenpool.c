/* tokenpool.c - `simulate tokenpool`: the Haechi paper's experiments in simulated time (the data node: haechi.h). */
#include "haechi_nodes.h"
#include "common.h"
#include "simulate.h"
#include <stdlib.h>

static uint64_t periods = 8;
static struct table *table;
static struct simulate_output out;
static struct haechi h;
static void *memory;

static void run(void)
{
    if (!haechi_run(&h, memory))
        tool_die(TOOL_FAILED, "tokenpool.h refused the configuration of the simulation");
}

/* One row: total, the largest and the smallest client, periods with a missed reservation. */
static void row(const char *name, const char *paper)
{
    uint32_t from = 1, i;
    table_cell(table, name);
    table_cellf(table, "%.0f", haechi_mean(&h, from) / 1000);
    for (i = 0; i < h.clients; i += 3)
        table_cellf(table, "%.1f", haechi_mean_of(&h, i, from) / 1000);
    table_cellf(table, "%.1f", (double)h.reservation[0] / 1000);
    if (h.bare)
        table_cell(table, NULL);
    else
        table_cellf(table, "%u/%u", haechi_missed(&h, from), h.periods - from);
    table_cell(table, paper);
    json_object(&out.json, NULL);
    json_text(&out.json, "experiment", name);
    json_real(&out.json, "total_per_period", haechi_mean(&h, from));
    json_u64(&out.json, "periods_missed", h.bare ? 0 : haechi_missed(&h, from));
    json_text(&out.json, "paper", paper);
    json_array(&out.json, "clients");
    for (i = 0; i < h.clients; i++) {
        json_object(&out.json, NULL);
        json_u64(&out.json, "reservation", h.reservation[i]);
        json_real(&out.json, "completed_per_period", haechi_mean_of(&h, i, from));
        json_end(&out.json);
    }
    json_end(&out.json);
    json_end(&out.json);
}

static void base(void)
{
    haechi_base(&h, (uint32_t)periods);
    h.flags = TOKENPOOL_FIXED;
}

static double *series(size_t n)
{
    return (double *)tool_alloc(n * sizeof(double));
}

static bool draw(struct plot p, const char *title, const char *x, const char *file, struct plot_curve *curves, size_t n)
{
    p.title = title;
    p.x_label = x;
    p.y_label = "K I/Os in a period";
    p.curve = curves;
    p.curves = n;
    return simulate_draw(&out, &p, file);
}

static bool set_1(void)
{
    static const char *name[10] = {"1A one client", "1B 2 clients", "1B 3 clients", "1B 4 clients", "1B 5 clients",
                                   "1B 6 clients",  "1B 7 clients", "1B 8 clients", "1B 9 clients", "1B 10 clients"};
    double *x = series(10), *y = series(10);
    struct plot_curve curve = {"one-sided", x, y, 10};
    uint32_t n;
    bool ok;
    for (n = 1; n <= 10; n++) {
        base();
        h.bare = true;
        h.active = n;
        haechi_spike(&h, 2000000, 2000000);
        run();
        x[n - 1] = n;
        y[n - 1] = haechi_mean(&h, 1) / 1000;
        if (n <= 5 || n == 10)
            row(name[n - 1], n == 1 ? "400" : n == 10 ? "slightly below 1600" : "");
    }
    ok = draw((struct plot){.points = true}, "Haechi, Figure 7: throughput by number of active clients", "clients",
              "tokenpool_figure7.svg", &curve, 1);
    free(x);
    free(y);
    base();
    h.bare = true;
    haechi_spike(&h, 158000, 158000);
    run();
    row("1C uniform, burst", "1570");
    base();
    h.bare = true;
    haechi_spike(&h, 340000, 80000);
    run();
    row("1C spike, burst", "1380, C1 278");
    base();
    h.bare = h.constant_rate = true;
    haechi_spike(&h, 340000, 80000);
    run();
    row("1C spike, constant rate", "1564, C1 332");
    return ok;
}

static bool set_2(void)
{
    static const char *kinds[4] = {"bare", "Haechi", "Haechi with guard", "Basic Haechi"};
    double *x = series(5), *y[3] = {series(5), series(5), series(5)}, *who = series(10), *bars[3];
    char name[80];
    unsigned zipf, percent, kind, i;
    bool ok = true;
    for (i = 0; i < 3; i++)
        bars[i] = series(10);
    for (zipf = 0; zipf < 2; zipf++)
        for (percent = 50; percent <= 90; percent += 10)
            for (kind = 0; kind < (zipf ? 3u : 2u); kind++) {
                base();
                haechi_reserve(&h, percent, zipf);
                h.bare = kind == 0;
                h.flags |= kind == 2 ? TOKENPOOL_GUARD : 0;
                run();
                snprintf(name, sizeof name, "2C %s, %u %% reserved, %s", zipf ? "Zipf" : "uniform", percent,
                         kinds[kind]);
                row(name, kind == 0 ? "" : zipf ? "all met" : "all met, loss < 0.1 %");
                x[percent / 10 - 5] = percent;
                if (kind > 0)
                    y[zipf ? kind : 0][percent / 10 - 5] = haechi_mean(&h, 1) / 1000;
                for (i = 0; zipf && percent == 90 && i < 10; i++) {
                    who[i] = i + 1;
                    bars[0][i] = (double)h.reservation[i] / 1000;
                    bars[kind == 0 ? 1 : 2][i] = haechi_mean_of(&h, i, 1) / 1000;
                }
            }
    {
        struct plot_curve f12[3] = {{"uniform", x, y[0], 5}, {"Zipf", x, y[1], 5}, {"Zipf, guard", x, y[2], 5}};
        struct plot_curve f9[3] = {
            {"reserved", who, bars[0], 10}, {"bare", who, bars[1], 10}, {"Haechi, guard", who, bars[2], 10}};
        ok = draw((struct plot){.points = true, .nested = true}, "Haechi, Figure 12: throughput by share reserved",
                  "% reserved", "tokenpool_figure12.svg", f12, 3);
        ok = draw((struct plot){.bars = true}, "Haechi, Figure 9(b): Zipf, 90 % reserved", "client",
                  "tokenpool_figure9.svg", f9, 3) &&
             ok;
    }
    for (zipf = 0; zipf < 2; zipf++) {
        for (kind = 0; kind < 4; kind++) {
            if (kind == 2)
                continue;
            base();
            haechi_reserve(&h, 90, zipf);
            h.demand[0] = h.reservation[0] / 2;
            h.demand[1] = h.reservation[1] / 2;
            h.bare = kind == 0;
            h.literal = h.basic = kind == 3;
            run();
            snprintf(name, sizeof name, "2B %s, C1 and C2 stop at half, %s", zipf ? "Zipf" : "uniform", kinds[kind]);
            row(name, kind == 3 ? "wastes what they leave" : "");
            for (i = 0; zipf == 0 && i < h.periods && i < 10; i++) {
                who[i] = i;
                bars[kind == 3 ? 2 : kind][i] = (double)haechi_total(&h, i) / 1000;
            }
        }
        if (zipf == 0) {
            size_t n = periods < 10 ? (size_t)periods : 10;
            struct plot_curve f11[3] = {
                {"bare", who, bars[0], n}, {"Haechi", who, bars[1], n}, {"Basic Haechi", who, bars[2], n}};
            ok = draw((struct plot){.bars = true}, "Haechi, Figure 11: C1 and C2 use half of their reservation",
                      "period", "tokenpool_figure11.svg", f11, 3) &&
                 ok;
        }
    }
    free(x);
    free(who);
    for (i = 0; i < 3; i++) {
        free(y[i]);
        free(bars[i]);
    }
    return ok;
}

static void set_3(void)
{
    unsigned constant, i;
    for (constant = 0; constant < 2; constant++) {
        base();
        for (i = 0; i < 10; i++)
            h.reservation[i] = i < 3 ? 285000 : 80000;
        haechi_spike(&h, 340000, 80000);
        h.constant_rate = constant;
        run();
        row(constant ? "3 spike, constant rate" : "3 spike, burst",
            constant ? "0.7 % below" : "12.9 % below, C1-C3 miss");
        printf("Set 3, %s: %.1f %% below C_G; latency mean %.1f ms, 99 %% %.0f ms, 99.9 %% %.0f ms\n",
               constant ? "constant rate" : "burst", 100 * (1 - haechi_mean(&h, 1) / HAECHI_C_G),
               h.latency_sum_ms / (double)h.latencies, haechi_latency_ms(&h, 0.99), haechi_latency_ms(&h, 0.999));
    }
}

static bool set_4(void)
{
    static const char *name[4] = {"4 uniform, the node slows down", "4 uniform, it speeds up",
                                  "4 Zipf (guard), it slows down", "4 Zipf (guard), it speeds up"};
    static const char *file[4] = {"tokenpool_figure16a.svg", "tokenpool_figure18a.svg", "tokenpool_figure16b.svg",
                                  "tokenpool_figure18b.svg"};
    unsigned kind, p;
    bool ok = true;
    for (kind = 0; kind < 4; kind++) {
        double *x = series(30), *total = series(30), *estimate = series(30), *c1 = series(30);
        struct plot_curve curves[3] = {{"completed", x, total, 30}, {"estimate", x, estimate, 30}, {"C1", x, c1, 30}};
        haechi_base(&h, 30);
        haechi_reserve(&h, 80, kind >= 2);
        h.flags = kind >= 2 ? TOKENPOOL_GUARD : 0;
        h.change_at = 15;
        h.rate = kind % 2 ? 0.9 * HAECHI_C_G : HAECHI_C_G;
        h.changed = kind % 2 ? HAECHI_C_G : 0.9 * HAECHI_C_G;
        run();
        row(name[kind], kind % 2 ? "grows step by step" : "met after a few rounds");
        for (p = 0; p < 30; p++) {
            x[p] = p;
            total[p] = (double)haechi_total(&h, p) / 1000;
            estimate[p] = (double)h.capacity_of[p] / 1000;
            c1[p] = (double)h.done[p][0] / 1000;
        }
        ok = draw((struct plot){.nested = true}, name[kind], "period", file[kind], curves, 3) && ok;
        free(x);
        free(total);
        free(estimate);
        free(c1);
    }
    return ok;
}

/* Beyond the paper: three data nodes. */
static void nodes(void)
{
    static const char *name[2] = {"equal parts", "split by pshift.h"};
    struct table *t = table_new("<three nodes, reservations in|C1 got|of which reserved at its node|clients missed");
    void *pshift_mem = tool_alloc_aligned(16384, QOS_CACHE_LINE);
    struct haechi_nodes n;
    unsigned by_demand;
    for (by_demand = 0; by_demand < 2; by_demand++) {
        if (!haechi_nodes_run(&n, by_demand, 3, memory, pshift_mem, 16384))
            tool_die(TOOL_FAILED, "tokenpool.h refused the configuration of the simulation");
        table_cell(t, name[by_demand]);
        table_cellf(t, "%.0f of %.0f", n.got[0] / 1000, (double)n.reservation[0] / 1000);
        table_cellf(t, "%.0f", (double)n.part[0][0] / 1000);
        table_cellf(t, "%u of %d", n.missed, HAECHI_NODES_CLIENTS);
    }
    table_print(t, stdout);
    table_free(t);
    free(pshift_mem);
}

int simulate_tokenpool(int argc, char **argv)
{
    const struct opt opts[] = {
        {"periods", OPT_COUNT, &periods, "N", "periods of 1 s in each experiment, 2 to 64; default 8", NULL},
        SIMULATE_OUTPUT(&out),
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    bool ok;
    simulate_parse(argc, argv, opts,
                   "Ten clients read from a data node that does 1,570 K I/Os a second, at most 400 K for one client.",
                   "simulate tokenpool --figures build/figures\n");
    if (periods < 2 || periods > HAECHI_PERIODS)
        tool_die(TOOL_USAGE, "--periods: from 2 to %d", HAECHI_PERIODS);
    simulate_open(&out);
    json_array(&out.json, "rows");
    memory = tool_alloc_aligned(8192, QOS_CACHE_LINE);
    table = table_new("<experiment|total|C1|C4|C7|C10|R1|missed|<the paper");
    ok = set_1();
    table_rule(table);
    ok = set_2() && ok;
    table_rule(table);
    set_3();
    table_rule(table);
    ok = set_4() && ok;
    printf("K I/Os in a period of 1 s; missed: periods in which some client did not get its reservation\n");
    table_print(table, stdout);
    printf(
        "Without the guard Zipf reservations are missed from 60 %% on. While all clients are active, equal sharing\n"
        "gives C1 a tenth of C_G. Later it cannot catch up, as one client does at most C_L (Definition 2). With the\n"
        "guard the pool gives out no more than lets C1 catch up.\n");
    table_free(table);
    nodes();
    free(memory);
    return simulate_close(&out, ok);
}
