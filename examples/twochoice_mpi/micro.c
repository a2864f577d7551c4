// The paper's micro-benchmarks: probing (Figure 11, Table I), the redirect table (Figure 12).
#include "twochoice_mpi.h"
#include <stdlib.h>
#include <string.h>

#define KS 4u /* k = 1, 2, 4, 8 */

/* ---- Figure 11 ------------------------------------------------------------------------------------------- */

struct probe_point {
    uint64_t k, schedulers;
    double mean_ns, p50_ns, p99_ns;
};

/* The first `schedulers` nodes probe all of 2k servers `rounds` times; the slowest answer counts. */
static void measure_probes(struct probe_point *point)
{
    struct hist *mine = tool_alloc(sizeof *mine), *all = tool_alloc(nodes.count * sizeof *all), *sum;
    uint64_t i;
    hist_clear(mine);
    nodes_barrier();
    for (i = 0; i < settings.rounds && nodes.node < point->schedulers && !stop_asked(); i++)
        hist_add(mine, client_probe_all((uint32_t)(2 * point->k)));
    nodes_gather(mine, sizeof *mine, all);
    sum = &all[0];
    for (i = 1; i < nodes.count; i++)
        hist_merge(sum, &all[i]);
    point->mean_ns = hist_mean(sum);
    point->p50_ns = (double)hist_quantile(sum, 0.5);
    point->p99_ns = (double)hist_quantile(sum, 0.99);
    free(mine);
    free(all);
}

static bool report_probes(const struct probe_point *point, size_t points)
{
    struct table *t = table_new("k|servers|schedulers|mean|median|p99");
    struct plot_curve curve[KS];
    double *x = tool_alloc((points + 1) * sizeof *x), *y = tool_alloc((points + 1) * sizeof *y);
    static char name[KS][16];
    struct plot p = {.title = "Figure 11: probing 2k servers, the slowest answer",
                     .x_label = "schedulers",
                     .y_label = "milliseconds, median",
                     .curve = curve,
                     .log2_x = true,
                     .points = true};
    struct json j;
    char path[600];
    bool ok = true;
    size_t i;
    memset(curve, 0, sizeof curve);
    for (i = 0; i < points; i++) {
        table_cellf(t, "%" PRIu64, point[i].k);
        table_cellf(t, "%" PRIu64, 2 * point[i].k);
        table_cellf(t, "%" PRIu64, point[i].schedulers);
        table_cell(t, human_ns(point[i].mean_ns).text);
        table_cell(t, human_ns(point[i].p50_ns).text);
        table_cell(t, human_ns(point[i].p99_ns).text);
        x[i] = (double)point[i].schedulers;
        y[i] = point[i].p50_ns / 1e6;
        if (i == 0 || point[i].k != point[i - 1].k) {
            snprintf(name[p.curves], sizeof name[0], "k = %" PRIu64, point[i].k);
            curve[p.curves] = (struct plot_curve){name[p.curves], x + i, y + i, 0};
            p.curves++;
        }
        curve[p.curves - 1].n++;
    }
    table_print(t, stdout);
    table_free(t);
    if (settings.figures) {
        snprintf(path, sizeof path, "%s/twochoice_mpi_figure11.svg", settings.figures);
        ok = plot_svg(&p, path);
    }
    if (settings.json && json_open(&j, settings.json)) {
        json_text(&j, "command", settings.command);
        json_array(&j, "points");
        for (i = 0; i < points; i++) {
            json_object(&j, NULL);
            json_u64(&j, "k", point[i].k);
            json_u64(&j, "schedulers", point[i].schedulers);
            json_real(&j, "mean_ns", point[i].mean_ns);
            json_real(&j, "p50_ns", point[i].p50_ns);
            json_real(&j, "p99_ns", point[i].p99_ns);
            json_end(&j);
        }
        json_end(&j);
        ok &= json_close(&j);
    }
    free(x);
    free(y);
    return ok;
}

int workload_probe(void)
{
    struct probe_point point[KS * 16];
    uint64_t k, schedulers;
    size_t points = 0;
    memset(point, 0, sizeof point);
    for (k = 1; k <= 1u << (KS - 1) && 2 * k <= settings.servers; k *= 2)
        for (schedulers = 1; schedulers <= nodes.count && points < sizeof point / sizeof *point; schedulers *= 2) {
            point[points].k = k;
            point[points].schedulers = schedulers;
            measure_probes(&point[points++]);
        }
    if (points == 0 && nodes.node == 0)
        tool_warn("probe needs two servers");
    return points && (nodes.node != 0 || report_probes(point, points)) ? TOOL_OK : TOOL_FAILED;
}

/* ---- Table I --------------------------------------------------------------------------------------------- */

/* Node 0 does k writes of `bytes` each at once, `rounds` times: the share of their time spent on deciding. */
static double measure_delay(uint64_t k, uint64_t bytes)
{
    static const uint64_t first_round = 1; /* warms up, not counted */
    struct file_layout layout = {1, 0, (uint32_t)settings.servers};
    struct transfer *t = tool_alloc(k * sizeof *t);
    uint8_t *data = tool_alloc(bytes);
    double probing = 0, writing = 0;
    uint64_t round, i;
    for (round = 0; round < settings.rounds + first_round && !stop_asked(); round++) {
        for (i = 0; i < k; i++) {
            memset(&t[i], 0, sizeof t[i]);
            t[i].write = true;
            t[i].layout = &layout;
            t[i].offset = ((round % 4) * k + i) * bytes;
            t[i].len = bytes;
            t[i].data = data;
            client_start(&t[i]);
        }
        client_finish();
        for (i = 0; i < k && round >= first_round; i++) {
            probing += (double)t[i].probe_ns;
            writing += (double)qos_elapsed_ns(t[i].start_ns, t[i].end_ns) - (double)t[i].probe_ns;
        }
    }
    free(data);
    free(t);
    return writing > 0 ? probing / writing : 0;
}

int workload_delay(void)
{
    static const uint64_t size[] = {1 << 20, 2 << 20, 4 << 20};
    struct table *t = table_new("<write size|1 write|2 writes|4 writes|8 writes");
    struct json j;
    bool to_json;
    int status = TOOL_OK;
    uint64_t k;
    size_t i;
    if (settings.part_bytes < size[2] || settings.object_bytes < size[2] || settings.k < 8) {
        if (nodes.node == 0)
            tool_warn("delay needs --part and --object of 4M or more, and --k of 8 or more");
        return TOOL_USAGE;
    }
    if (!nodes_reset())
        tool_die(TOOL_FAILED, "the servers cannot be emptied");
    if (nodes.node != 0)
        return TOOL_OK;
    client_policy(SCHED_INFORMED, settings.seed, true);
    to_json = settings.json && json_open(&j, settings.json);
    if (to_json) {
        json_text(&j, "command", settings.command);
        json_array(&j, "delay");
    }
    for (i = 0; i < 3; i++) {
        table_cell(t, human_bytes((double)size[i]).text);
        for (k = 1; k <= 8; k *= 2) {
            double share = measure_delay(k, size[i]);
            table_cell(t, human_percent(share).text);
            if (to_json) {
                json_object(&j, NULL);
                json_u64(&j, "bytes", size[i]);
                json_u64(&j, "writes", k);
                json_real(&j, "share", share);
                json_end(&j);
            }
        }
    }
    if (to_json) {
        json_end(&j);
        status = json_close(&j) ? TOOL_OK : TOOL_FAILED;
    }
    printf("time to decide, as a share of the time to write (Table I):\n");
    table_print(t, stdout);
    table_free(t);
    return status;
}

/* ---- Figure 12 ------------------------------------------------------------------------------------------- */

#define SAMPLES_MAX 200u

struct sample {
    double operations, length, create_ms, query_ms;
};

static bool report_table(const struct sample *sample, size_t samples, uint64_t fragments_max)
{
    static double column[4][SAMPLES_MAX];
    const struct plot_curve length = {"redirects in the table", column[0], column[1], samples};
    const struct plot_curve times[] = {{"create", column[0], column[2], samples},
                                       {"query", column[0], column[3], samples}};
    struct plot panel[2] = {{.title = "Figure 12: length of the redirect table",
                             .x_label = "creates",
                             .y_label = "redirects",
                             .curve = &length,
                             .curves = 1},
                            {.title = "time of create and query, with MPI and the log's sync",
                             .x_label = "creates",
                             .y_label = "milliseconds, mean",
                             .curve = times,
                             .curves = 2}};
    struct table *t = table_new("creates|redirects in the table|create|query");
    struct json j;
    char path[600];
    bool ok = true;
    size_t i;
    for (i = 0; i < samples; i++) {
        column[0][i] = sample[i].operations;
        column[1][i] = sample[i].length;
        column[2][i] = sample[i].create_ms;
        column[3][i] = sample[i].query_ms;
        if (i % (samples / 10 + 1) != 0 && i + 1 != samples)
            continue;
        table_cellf(t, "%.0f", sample[i].operations);
        table_cellf(t, "%.0f", sample[i].length);
        table_cell(t, human_ns(sample[i].create_ms * 1e6).text);
        table_cell(t, human_ns(sample[i].query_ms * 1e6).text);
    }
    table_print(t, stdout);
    table_free(t);
    printf("longest: %" PRIu64 " redirects\n", fragments_max);
    if (settings.figures) {
        snprintf(path, sizeof path, "%s/twochoice_mpi_figure12.svg", settings.figures);
        ok = plot_panels(panel, 2, 1, path);
    }
    if (settings.json && json_open(&j, settings.json)) {
        json_text(&j, "command", settings.command);
        json_u64(&j, "longest", fragments_max);
        json_array(&j, "samples");
        for (i = 0; i < samples; i++) {
            json_object(&j, NULL);
            json_real(&j, "creates", sample[i].operations);
            json_real(&j, "redirects", sample[i].length);
            json_real(&j, "create_ms", sample[i].create_ms);
            json_real(&j, "query_ms", sample[i].query_ms);
            json_end(&j);
        }
        json_end(&j);
        ok &= json_close(&j);
    }
    return ok;
}

/* Time of a query of a random range in server 0's table; no data is fetched. */
static double time_query(struct qos_rng *rng, uint64_t object_bytes)
{
    struct note n;
    uint64_t start_ns = tool_now_ns();
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    n.op = OP_QUERY;
    n.object = OBJECT(0, 1, 0);
    n.len = 1 + qos_rng_below(rng, settings.write_bytes);
    n.offset = qos_rng_below(rng, object_bytes - n.len);
    client_ask(0, &n);
    return (double)qos_elapsed_ns(start_ns, tool_now_ns()) / 1e6;
}

static void take_sample(struct sample *s, struct qos_rng *rng, uint64_t object_bytes)
{
    struct note n;
    uint32_t i;
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    n.op = OP_COUNTS;
    client_ask(0, &n);
    s->operations = (double)n.word[COUNT_VERSION];
    s->length = (double)n.word[COUNT_FRAGMENTS];
    s->create_ms = hist_mean(&client_counts.create) / 1e6;
    s->query_ms = 0;
    for (i = 0; i < 4; i++)
        s->query_ms += time_query(rng, object_bytes) / 4;
    hist_clear(&client_counts.create);
}

/* All processes write random ranges of one object of 100 MB; its home redirects nearly all of them. */
int workload_table(void)
{
    struct file_layout layout = {1, 0, 1};
    struct transfer *t = tool_alloc(settings.procs * sizeof *t);
    struct sample *sample = tool_alloc(SAMPLES_MAX * sizeof *sample);
    uint64_t object_bytes = 100 << 20, writes = settings.per_process / (settings.write_bytes / 2 + 1), done = 0, i,
             peak;
    uint8_t *data = tool_alloc(settings.write_bytes);
    struct qos_rng rng;
    size_t samples = 0;
    int status = TOOL_OK;
    if (settings.servers < 2) {
        tool_warn("table needs two servers");
        return TOOL_USAGE;
    }
    settings.object_bytes = object_bytes;
    qos_rng_seed(&rng, settings.seed * 1000 + nodes.node);
    if (!nodes_reset())
        tool_die(TOOL_FAILED, "the servers cannot be emptied");
    client_policy(SCHED_RANDOM, settings.seed, false);
    nodes_barrier();
    for (; done < writes && !stop_asked(); done++) {
        for (i = 0; i < settings.procs; i++) {
            memset(&t[i], 0, sizeof t[i]);
            t[i].write = true;
            t[i].layout = &layout;
            t[i].len = 1 + qos_rng_below(&rng, settings.write_bytes);
            t[i].offset = qos_rng_below(&rng, object_bytes - t[i].len);
            t[i].data = data;
            client_start(&t[i]);
        }
        client_finish();
        if (nodes.node == 0 && samples < SAMPLES_MAX && (done + 1) * 40 / writes != done * 40 / writes)
            take_sample(&sample[samples++], &rng, object_bytes);
    }
    nodes_barrier();
    peak = nodes.node == 0 ? nodes_count(COUNT_PEAK) : 0;
    if (client_counts.tally.failed || (nodes.node == 0 && !report_table(sample, samples, peak)))
        status = TOOL_FAILED;
    free(data);
    free(sample);
    free(t);
    return status;
}
