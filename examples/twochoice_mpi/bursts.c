// Bursts of writes under one scheduler after the other: all processes at once (Figure 14), and applications of three
// sizes at the same time (Table II, Figure 13).
#include "twochoice_mpi.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A process of an application on this node: does its share of the writes, one at a time. */
struct process {
    struct file_layout layout;
    uint64_t at, end; /* of the file */
    struct transfer t;
    bool busy, over;
    uint64_t end_ns;
    uint8_t *data;
};

/* A node's result of a run. */
struct share {
    struct client_tally tally;
    uint64_t bytes, wrong;
    uint64_t to[SERVERS_MAX];
    double probe_ns, write_ns;
};

struct run {
    int scheduler;
    struct share sum;
    uint64_t *end_ns; /* of all processes of all nodes, ascending */
    size_t processes;
    uint64_t largest, pulled, given_up;
    double mean, over_mean;
};

static void fill(uint8_t *data, uint64_t at, uint64_t len)
{
    uint64_t i;
    for (i = 0; i < len; i++)
        data[i] = (uint8_t)((at + i) * 0x9e3779b97f4a7c15u >> 56);
}

static void start_next(struct process *p, uint32_t number, bool write)
{
    uint64_t len = qos_min(settings.write_bytes, p->end - p->at);
    memset(&p->t, 0, sizeof p->t);
    p->t.write = write;
    p->t.process = number;
    p->t.layout = &p->layout;
    p->t.offset = p->at;
    p->t.len = len;
    p->t.data = p->data;
    if (write)
        fill(p->data, p->at, len);
    p->at += len;
    p->busy = true;
    client_start(&p->t);
}

static uint64_t compare(const struct process *p)
{
    uint8_t *want = tool_alloc(settings.write_bytes);
    uint64_t wrong = 0, i;
    fill(want, p->t.offset, p->t.len);
    for (i = 0; i < p->t.len; i++)
        wrong += p->t.data[i] != want[i];
    free(want);
    return p->t.failed ? p->t.len : wrong;
}

/* Runs until every process has done its share, or a stop is requested. Returns the number of wrong bytes read back. */
static uint64_t run_processes(struct process *process, uint32_t count, bool write, const char *what)
{
    struct progress progress;
    uint64_t start_ns = tool_now_ns(), wrong = 0, left = count;
    uint32_t i;
    progress_init(&progress, settings.progress);
    progress.next_ns = start_ns + 1000000000;
    while (left) {
        for (i = 0, left = 0; i < count; i++) {
            struct process *p = &process[i];
            if (p->busy && p->t.done) {
                p->busy = false;
                if (!write)
                    wrong += compare(p);
            }
            if (!p->busy && p->at < p->end && !stop_asked())
                start_next(p, i, write);
            if (!p->busy && !p->over) {
                p->over = true;
                p->end_ns = qos_elapsed_ns(start_ns, tool_now_ns());
            }
            left += p->busy;
        }
        if (left && !client_poll())
            client_wait();
        if (nodes.node == 0 && progress_due(&progress, tool_now_ns()))
            progress_show(&progress, "%s: %" PRIu64 " of %u processes of node 0 at work", what, left, count);
    }
    progress_end(&progress);
    return wrong;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sums the nodes' results and sorts the processes' times. */
static void gather_run(struct run *r, const struct process *process, uint32_t count, uint64_t wrong)
{
    struct share mine = {0}, *all = tool_alloc(nodes.count * sizeof *all);
    uint64_t *times = tool_alloc((count + 1) * sizeof *times), most = 0, *every, total = 0;
    uint64_t counts[1] = {count}, *each = tool_alloc(nodes.count * sizeof *each);
    uint32_t i, k;
    mine.tally = client_counts.tally;
    mine.wrong = wrong;
    mine.probe_ns = hist_mean(&client_counts.decide);
    mine.write_ns = hist_mean(&client_counts.write);
    memcpy(mine.to, client_counts.bytes_to, sizeof mine.to);
    nodes_gather(&mine, sizeof mine, all);
    nodes_gather(counts, sizeof counts, each);
    for (i = 0; i < nodes.count; i++)
        most = qos_max(most, each[i]);
    times = tool_grow(times, (most + 1) * sizeof *times);
    memset(times, 0, (most + 1) * sizeof *times);
    for (k = 0; k < count; k++)
        times[k] = process[k].end_ns;
    every = tool_alloc(nodes.count * (most + 1) * sizeof *every);
    nodes_gather(times, (most + 1) * sizeof *times, every);
    r->end_ns = tool_alloc((nodes.count * most + 1) * sizeof *r->end_ns);
    for (i = 0; i < nodes.count; i++)
        for (k = 0; k < each[i]; k++)
            r->end_ns[r->processes++] = every[i * (most + 1) + k];
    qsort(r->end_ns, r->processes, sizeof *r->end_ns, by_value);
    for (i = 0; i < nodes.count; i++) {
        client_tally_add(&r->sum.tally, &all[i].tally);
        r->sum.wrong += all[i].wrong;
        r->sum.probe_ns += all[i].probe_ns / nodes.count;
        r->sum.write_ns += all[i].write_ns / nodes.count;
        for (k = 0; k < settings.servers; k++)
            r->sum.to[k] += all[i].to[k];
    }
    for (k = 0; k < settings.servers; k++) {
        total += r->sum.to[k];
        r->largest = qos_max(r->largest, r->sum.to[k]);
    }
    r->sum.bytes = total;
    r->mean = (double)total / (double)settings.servers;
    r->over_mean = r->mean > 0 ? (double)r->largest / r->mean : 0;
    free(all);
    free(times);
    free(each);
    free(every);
}

/* ---- results --------------------------------------------------------------------------------------------- */

static double quantile(const struct run *r, double p)
{
    size_t i = (size_t)ceil(p * (double)r->processes);
    return r->processes ? (double)r->end_ns[i ? i - 1 : 0] : 0;
}

static void print_runs(const struct run *run, size_t runs)
{
    struct table *t = table_new("<scheduler|bytes|first process|median|p95|last process|largest/mean|redirected|probes|"
                                "no answer|decision|write|failed");
    size_t i;
    for (i = 0; i < runs; i++) {
        const struct run *r = &run[i];
        table_cell(t, scheduler_name[r->scheduler]);
        table_cell(t, human_bytes((double)r->sum.bytes).text);
        table_cell(t, human_ns(quantile(r, 0)).text);
        table_cell(t, human_ns(quantile(r, 0.5)).text);
        table_cell(t, human_ns(quantile(r, 0.95)).text);
        table_cell(t, human_ns(quantile(r, 1)).text);
        table_cellf(t, "%.3f", r->over_mean);
        table_cell(
            t,
            human_percent(r->sum.tally.parts ? (double)r->sum.tally.redirected / (double)r->sum.tally.parts : 0).text);
        table_cellf(t, "%" PRIu64, r->sum.tally.probes);
        table_cellf(t, "%" PRIu64, r->sum.tally.no_answer);
        table_cell(t, human_ns(r->sum.probe_ns).text);
        table_cell(t, human_ns(r->sum.write_ns).text);
        table_cellf(t, "%" PRIu64, r->sum.tally.failed);
    }
    table_print(t, stdout);
    table_free(t);
}

static bool json_runs(const struct run *run, size_t runs)
{
    struct json j;
    size_t i, k;
    if (!settings.json || !json_open(&j, settings.json))
        return !settings.json;
    json_text(&j, "command", settings.command);
    json_u64(&j, "servers", settings.servers);
    json_u64(&j, "nodes", nodes.count);
    json_array(&j, "runs");
    for (i = 0; i < runs; i++) {
        const struct run *r = &run[i];
        json_object(&j, NULL);
        json_text(&j, "scheduler", scheduler_name[r->scheduler]);
        json_u64(&j, "bytes", r->sum.bytes);
        json_u64(&j, "last_process_ns", (uint64_t)quantile(r, 1));
        json_u64(&j, "median_process_ns", (uint64_t)quantile(r, 0.5));
        json_real(&j, "largest_over_mean", r->over_mean);
        client_tally_json(&j, &r->sum.tally);
        json_u64(&j, "wrong_bytes", r->sum.wrong);
        json_u64(&j, "given_up", r->given_up);
        json_array(&j, "server_bytes");
        for (k = 0; k < settings.servers; k++)
            json_u64(&j, NULL, r->sum.to[k]);
        json_end(&j);
        json_array(&j, "process_ns");
        for (k = 0; k < r->processes; k++)
            json_u64(&j, NULL, r->end_ns[k]);
        json_end(&j);
        json_end(&j);
    }
    json_end(&j);
    return json_close(&j);
}

/* Figure 14: number of finished processes over time. */
static bool draw_completions(const struct run *run, size_t runs)
{
    struct plot_curve curve[SCHEDS] = {{NULL, NULL, NULL, 0}};
    struct plot p = {.title = "Figure 14: processes that have completed, one server slower",
                     .x_label = "seconds",
                     .y_label = "share of processes",
                     .curve = curve,
                     .curves = runs,
                     .steps = true,
                     .y_max = 1};
    double *x[SCHEDS], *y[SCHEDS];
    char path[600];
    size_t i, k;
    bool ok;
    for (i = 0; i < runs; i++) {
        x[i] = tool_alloc((run[i].processes + 1) * sizeof(double));
        y[i] = tool_alloc((run[i].processes + 1) * sizeof(double));
        for (k = 0; k < run[i].processes; k++) {
            x[i][k + 1] = (double)run[i].end_ns[k] / 1e9;
            y[i][k + 1] = (double)(k + 1) / (double)run[i].processes;
        }
        curve[i] = (struct plot_curve){scheduler_name[run[i].scheduler], x[i], y[i], run[i].processes + 1};
    }
    snprintf(path, sizeof path, "%s/twochoice_mpi_figure14.svg", settings.figures);
    ok = plot_svg(&p, path);
    for (i = 0; i < runs; i++) {
        free(x[i]);
        free(y[i]);
    }
    return ok;
}

/* Figure 13: bytes received by each server. */
static bool draw_loads(const struct run *run, size_t runs)
{
    struct plot_curve curve[SCHEDS];
    struct plot p = {.title = "Figure 13: what each server received",
                     .x_label = "server",
                     .y_label = "MiB",
                     .curve = curve,
                     .curves = runs,
                     .bars = true};
    char name[SCHEDS][80], path[600];
    double *x = tool_alloc(settings.servers * sizeof *x), *y = tool_alloc(SCHEDS * settings.servers * sizeof *y);
    size_t i, k;
    bool ok;
    for (i = 0; i < runs; i++) {
        double *of = y + i * settings.servers;
        for (k = 0; k < settings.servers; k++) {
            x[k] = (double)k;
            of[k] = (double)run[i].sum.to[k] / (1 << 20);
        }
        snprintf(name[i], sizeof name[i], "%s: largest / mean %.2f", scheduler_name[run[i].scheduler],
                 run[i].over_mean);
        curve[i] = (struct plot_curve){name[i], x, of, settings.servers};
    }
    snprintf(path, sizeof path, "%s/twochoice_mpi_figure13.svg", settings.figures);
    ok = plot_svg(&p, path);
    free(x);
    free(y);
    return ok;
}

/* ---- the runs -------------------------------------------------------------------------------------------- */

/* "fixed,native": the next one, or -1 at the end. */
static int next_scheduler(char **rest)
{
    char *key, *value;
    int i;
    if (!opt_next_pair(rest, &key, &value))
        return -1;
    for (i = 0; i < SCHEDS; i++)
        if (strcmp(key, scheduler_name[i]) == 0 && !value)
            return i;
    tool_die(TOOL_USAGE, "--schedulers: %s: must be of fixed, random, native, dynamic, informed", key);
}

typedef uint32_t make_processes(struct process **process);

static void one_run(struct run *r, make_processes *make)
{
    struct process *process = NULL;
    uint32_t count = make(&process), i;
    uint64_t wrong = 0;
    char what[80];
    if (!nodes_reset())
        tool_die(TOOL_FAILED, "the servers cannot be emptied");
    nodes_tell(OP_GO, 0, NULL);
    client_policy(r->scheduler, settings.seed, true);
    for (i = 0; i < count; i++)
        process[i].data = tool_alloc(settings.write_bytes);
    nodes_barrier();
    run_processes(process, count, true, scheduler_name[r->scheduler]);
    client_finish();
    nodes_barrier();
    if (settings.verify) {
        struct process *again = NULL;
        uint32_t n = make(&again);
        for (i = 0; i < n; i++)
            again[i].data = process[i].data;
        snprintf(what, sizeof what, "%s, reading back", scheduler_name[r->scheduler]);
        wrong = run_processes(again, n, false, what);
        free(again);
        nodes_barrier();
    }
    gather_run(r, process, count, wrong);
    r->given_up = nodes.node == 0 ? nodes_count(COUNT_GIVEN_UP) : 0;
    for (i = 0; i < count; i++)
        free(process[i].data);
    free(process);
}

static int all_runs(make_processes *make, bool (*draw)(const struct run *run, size_t runs))
{
    struct run run[SCHEDS];
    char *list = tool_copy(settings.schedulers), *rest = list;
    int scheduler, status = TOOL_OK;
    size_t runs = 0, i;
    memset(run, 0, sizeof run);
    while (runs < SCHEDS && !stop_asked() && (scheduler = next_scheduler(&rest)) >= 0) {
        run[runs].scheduler = scheduler;
        one_run(&run[runs++], make);
        if (run[runs - 1].sum.wrong || run[runs - 1].sum.tally.failed)
            status = TOOL_FAILED;
    }
    if (nodes.node == 0) {
        print_runs(run, runs);
        for (i = 0; i < runs; i++)
            if (run[i].sum.wrong)
                tool_warn("%s: %" PRIu64 " bytes read back are wrong", scheduler_name[run[i].scheduler],
                          run[i].sum.wrong);
        if (!json_runs(run, runs) || (settings.figures && !stop_asked() && !draw(run, runs)))
            status = TOOL_FAILED;
    }
    for (i = 0; i < runs; i++)
        free(run[i].end_ns);
    free(list);
    return status;
}

/* One file; process i writes its i-th part. */
static uint32_t burst_processes(struct process **process)
{
    uint32_t i;
    *process = tool_alloc(settings.procs * sizeof **process);
    for (i = 0; i < settings.procs; i++) {
        struct process *p = &(*process)[i];
        p->layout.width = (uint32_t)settings.servers;
        p->at = (nodes.node * settings.procs + i) * settings.per_process;
        p->end = p->at + settings.per_process;
    }
    return (uint32_t)settings.procs;
}

/* Table II's mix, as Section VI-B scales it: one application on all nodes and servers, ten on half of both, ten on a
 * quarter. Each has one file, whose first server is drawn at random. */
static uint32_t mix_processes(struct process **process)
{
    static const uint32_t applications[] = {1, 10, 10};
    struct qos_rng rng;
    uint32_t kind, app, number = 0, count = 0;
    *process = NULL;
    qos_rng_seed(&rng, settings.seed);
    for (kind = 0; kind < 3; kind++)
        for (app = 0; app < applications[kind]; app++, number++) {
            uint32_t width = (uint32_t)qos_max(settings.servers >> kind, 1),
                     on = (uint32_t)qos_max(nodes.count >> kind, 1);
            uint32_t first = (uint32_t)qos_rng_below(&rng, settings.servers);
            uint32_t first_node = (uint32_t)qos_rng_below(&rng, nodes.count);
            uint32_t place = (nodes.node + nodes.count - first_node) % nodes.count;
            struct process *p;
            if (place >= on)
                continue;
            *process = tool_grow(*process, (count + 1) * sizeof **process);
            p = &(*process)[count++];
            memset(p, 0, sizeof *p);
            p->layout = (struct file_layout){number, first, width};
            p->at = place * settings.per_process;
            p->end = p->at + settings.per_process;
        }
    return count;
}

int workload_burst(void)
{
    return all_runs(burst_processes, draw_completions);
}

int workload_mix(void)
{
    return all_runs(mix_processes, draw_loads);
}
