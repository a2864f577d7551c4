/* pshift.c - `simulate pshift`: the pShift paper's Experiments 1 and 2 in simulated time (the cluster is in
 * buckets.h). */
#include "buckets.h"
#include "common.h"
#include "policies.h"
#include "simulate.h"

#define EVERY 50 /* Figure 3 shows every 50th bucket */

static uint64_t seed = 2, runs = 5;
static struct simulate_output out;

static int larger_first(const void *a, const void *b)
{
    return -buckets_earlier(a, b);
}

/* Figure 3: reservations, times of changes, requests completed in each interval; buckets sorted by reservation. */
static bool figure_3(const struct buckets_world *w)
{
    static const char *name[BUCKETS_INTERVALS] = {"interval 1", "to 2", "to 3", "to 4", "to 5"};
    uint32_t n = w->setup.buckets / EVERY, i, v, k, changes = 0;
    double *x = (double *)tool_alloc(n * sizeof(double)), *r = (double *)tool_alloc(n * sizeof(double));
    double *y[BUCKETS_INTERVALS];
    double *cx = (double *)tool_alloc(n * BUCKETS_CHANGES_MAX * sizeof(double));
    double *cy = (double *)tool_alloc(n * BUCKETS_CHANGES_MAX * sizeof(double));
    uint64_t *order = (uint64_t *)tool_alloc(w->setup.buckets * sizeof(uint64_t));
    struct plot_curve a = {"reservation", x, r, n}, b = {"change", cx, cy, 0}, c[BUCKETS_INTERVALS];
    struct plot p = {0};
    bool ok;
    for (i = 0; i < w->setup.buckets; i++)
        order[i] = w->reservation[i] << 24 | i; /* reservations are below 2^40 */
    qsort(order, w->setup.buckets, sizeof *order, larger_first);
    for (v = 0; v < BUCKETS_INTERVALS; v++) {
        y[v] = (double *)tool_alloc(n * sizeof(double));
        c[v].name = name[v];
        c[v].x = x;
        c[v].y = y[v];
        c[v].n = n;
    }
    for (i = 0; i < n; i++) {
        uint32_t bucket = (uint32_t)(order[i * EVERY] & 0xffffffu);
        double sum = 0;
        x[i] = i * EVERY;
        r[i] = (double)w->reservation[bucket];
        for (v = 0; v < BUCKETS_INTERVALS; v++) {
            sum += (double)w->served[(size_t)v * w->setup.buckets + bucket];
            y[v][i] = sum > 0 ? sum : 0.5;
        }
        for (k = 0; k < BUCKETS_CHANGES_MAX; k++)
            if (w->change_ns[(size_t)bucket * BUCKETS_CHANGES_MAX + k] != UINT64_MAX) {
                cx[changes] = x[i];
                cy[changes++] = (double)w->change_ns[(size_t)bucket * BUCKETS_CHANGES_MAX + k] / 1e9;
            }
    }
    b.n = changes;
    p.title = "pShift, Figure 3(a): reservations";
    p.x_label = "bucket";
    p.y_label = "requests";
    p.curve = &a;
    p.curves = 1;
    p.log_y = true;
    ok = simulate_draw(&out, &p, "pshift_3a.svg");
    p.title = "pShift, Figure 3(c): requests completed up to each interval's end";
    p.curve = c;
    p.curves = BUCKETS_INTERVALS;
    ok = simulate_draw(&out, &p, "pshift_3c.svg") && ok;
    p.title = "pShift, Figure 3(b): times of the demand changes";
    p.y_label = "s";
    p.curve = &b;
    p.curves = 1;
    p.log_y = false;
    p.dots = true;
    ok = simulate_draw(&out, &p, "pshift_3b.svg") && ok;
    for (v = 0; v < BUCKETS_INTERVALS; v++)
        free(y[v]);
    free(x);
    free(r);
    free(cx);
    free(cy);
    free(order);
    return ok;
}

static bool experiment_1(void)
{
    struct buckets_world w;
    struct buckets_setup setup = buckets_paper(8, 2, seed);
    double half;
    bool ok = true;
    setup.up_to = true;
    setup.recent_half = true;
    buckets_period(&w, &setup);
    half = 1 - buckets_missed(&w, 95);
    buckets_done(&w);
    setup.recent_half = false;
    buckets_period(&w, &setup);
    printf(
        "Experiment 1: 64 servers of 20,000 IOPS, all reserved; 10,000 buckets on 8 servers, up to 2 demand changes\n");
    printf("  buckets with at least 95 %% of their reservation   (the paper: 99.5 %%)\n");
    printf("    demand expected by the arrivals of an interval, as in the paper: %.2f %%\n",
           100 - 100 * buckets_missed(&w, 95));
    printf("    by those of its second half, which show where demand is now:     %.2f %%\n\n", 100 * half);
    json_object(&out.json, "experiment_1");
    json_u64(&out.json, "seed", seed);
    json_real(&out.json, "met_share", 1 - buckets_missed(&w, 95));
    json_real(&out.json, "met_share_recent_half", half);
    json_real(&out.json, "intrinsic_error", w.intrinsic);
    json_end(&out.json);
    if (out.figure_dir)
        ok = figure_3(&w);
    buckets_done(&w);
    return ok;
}

static bool experiment_2(void)
{
    static const uint32_t active[3] = {2, 4, 8}, changes[5] = {0, 1, 2, 5, 10};
    static const char *name[3] = {"2 active servers", "4 active servers", "8 active servers"};
    double x[5], y[3][5];
    struct plot_curve curve[3];
    struct plot p = {0};
    struct table *t = table_new("N_A|N_D|error|intrinsic");
    uint32_t a, d, k;
    json_array(&out.json, "experiment_2");
    for (a = 0; a < 3; a++) {
        curve[a].name = name[a];
        curve[a].x = x;
        curve[a].y = y[a];
        curve[a].n = 5;
        for (d = 0; d < 5; d++) {
            double error = 0, intrinsic = 0;
            for (k = 0; k < runs; k++) {
                struct buckets_world w;
                struct buckets_setup setup = buckets_paper(active[a], changes[d], seed + k);
                buckets_period(&w, &setup);
                error += buckets_missed(&w, 95) / (double)runs;
                intrinsic += w.intrinsic / (double)runs;
                buckets_done(&w);
            }
            x[d] = changes[d];
            y[a][d] = 100 * error;
            table_cellf(t, "%u", active[a]);
            table_cellf(t, "%u", changes[d]);
            table_cellf(t, "%.2f %%", 100 * error);
            table_cellf(t, "%.2f %%", 100 * intrinsic);
            json_object(&out.json, NULL);
            json_u64(&out.json, "active", active[a]);
            json_u64(&out.json, "changes", changes[d]);
            json_real(&out.json, "error", error);
            json_real(&out.json, "intrinsic_error", intrinsic);
            json_end(&out.json);
        }
        table_rule(t);
    }
    json_end(&out.json);
    printf("Experiment 2: share of buckets that miss 5 %% or more, mean of %u runs; N_A active servers, N_D changes\n",
           (unsigned)runs);
    table_print(t, stdout);
    table_free(t);
    p.title = "pShift, Figure 4: buckets that miss 5 % or more of their reservation";
    p.x_label = "demand changes in the period";
    p.y_label = "percent";
    p.curve = curve;
    p.curves = 3;
    p.points = true;
    return simulate_draw(&out, &p, "pshift_4.svg");
}

/* pShift beside what is deployed: one row for each case and policy. */
static bool policies(void)
{
    double x[POL_CASES], unmet[POLICIES][POL_CASES], over[POLICIES][POL_CASES];
    struct plot_curve curve[POLICIES];
    struct plot p = {0};
    struct table *t =
        table_new("<demand|<policy|reservation unmet|nobody could|above a limit|above two in T|idle|messages/s");
    size_t k, n;
    json_array(&out.json, "policies");
    for (k = 0; k < POL_CASES; k++) {
        for (n = 0; n < POLICIES; n++) {
            const struct pol_result r = pol_run(&pol_cases[k], (enum policy)n, seed);
            x[k] = (double)k;
            unmet[n][k] = 100 * r.unmet;
            over[n][k] = r.over > 0 ? 100 * r.over : 0;
            table_cell(t, n == 0 ? pol_cases[k].name : "");
            table_cell(t, pol_name[n]);
            table_cellf(t, "%.1f %%", 100 * r.unmet);
            table_cellf(t, "%.1f %%", 100 * r.possible);
            table_cellf(t, "%.1f %%", over[n][k]);
            table_cellf(t, "%.1f %%", r.over_window > 0 ? 100 * r.over_window : 0);
            table_cellf(t, "%.1f %%", 100 * r.unused);
            table_cellf(t, "%.0f", r.messages);
            json_object(&out.json, NULL);
            json_text(&out.json, "demand", pol_cases[k].name);
            json_text(&out.json, "policy", pol_name[n]);
            json_real(&out.json, "unmet", r.unmet);
            json_real(&out.json, "impossible", r.possible);
            json_real(&out.json, "over", r.over);
            json_real(&out.json, "over_window", r.over_window);
            json_real(&out.json, "idle", r.unused);
            json_real(&out.json, "messages_per_s", r.messages);
            json_end(&out.json);
        }
        table_rule(t);
    }
    json_end(&out.json);
    printf("%u buckets on %u servers of 1,000 requests a second; each has %u reserved and a limit of %u a second\n",
           POL_BUCKETS, POL_SERVERS, POL_R, POL_L);
    table_print(t, stdout);
    table_free(t);
    for (n = 0; n < POLICIES; n++) {
        const struct plot_curve a = {pol_name[n], x, unmet[n], POL_CASES};
        curve[n] = a;
    }
    p.title = "Reservations that were not met";
    p.x_label = "0 even, 1 skewed, 2 moves, 3 moves within a period, 4 servers saturate";
    p.y_label = "percent of what was reserved and asked for";
    p.curve = curve;
    p.curves = POLICIES;
    p.bars = true;
    return simulate_draw(&out, &p, "pshift_policies.svg");
}

int simulate_pshift(int argc, char **argv)
{
    bool only_policies = false;
    const struct opt opts[] = {
        {"policy", OPT_FLAG, &only_policies, NULL,
         "pShift beside fixed parts, leases and dmClock, instead of the paper's", NULL},
        {"seed", OPT_COUNT, &seed, "N", "of the first run; default 2", NULL},
        {"runs", OPT_COUNT, &runs, "N", "of each bar of Experiment 2, 1 to 100; default 5", NULL},
        SIMULATE_OUTPUT(&out),
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    bool ok;
    simulate_parse(argc, argv, opts,
                   "Buckets with reservations on 64 servers. Demand moves; tokens follow once an interval.",
                   "simulate pshift --figures build/figures\n");
    if (runs < 1 || runs > 100)
        tool_die(TOOL_USAGE, "--runs: from 1 to 100");
    simulate_open(&out);
    if (only_policies)
        return simulate_close(&out, policies());
    ok = experiment_1();
    ok = experiment_2() && ok;
    return simulate_close(&out, ok);
}
