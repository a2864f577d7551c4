// Tables, JSON, plots, the log as CSV.
#include "uring_files.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CURVE_POINTS_MAX 120

/* The time in which all tenants ran. */
static double seconds_of(const struct run *run)
{
    return (double)qos_sat_sub(run->elapsed_ns, run->all_run_ns) / 1e9;
}

static double rate_of(const struct run *run, uint32_t k)
{
    double seconds = seconds_of(run);
    return seconds > 0 ? (double)run->result[k].bytes / seconds : 0;
}

static uint64_t total(const struct run *run, bool cost)
{
    uint64_t sum = 0;
    uint32_t k;
    for (k = 0; k < run->tenants; k++)
        sum += cost ? run->result[k].cost : run->result[k].bytes;
    return sum;
}

#define RUNS 3
struct column {
    const struct run *run;
    const char *heading, *key; /* in the table, the JSON */
};

/* Collects the runs made, in the table's order; returns their number. */
static int columns_of(const struct runs *runs, struct column *c)
{
    const struct column all[RUNS] = {{runs->without, "without", "without"},
                                     {runs->same_depth, "same depth", "same_depth"},
                                     {runs->with, "with", "with"}};
    int i, n = 0;
    for (i = 0; i < RUNS; i++)
        if (all[i].run)
            c[n++] = all[i];
    return n;
}

static void total_row(struct table *t, const char *name, const struct column *c, int n, bool cost)
{
    int i;
    table_cell(t, name);
    table_cell(t, "");
    table_cell(t, "");
    for (i = 0; i < n; i++) {
        double seconds = seconds_of(c[i].run), sum = (double)total(c[i].run, cost);
        table_cell(t, seconds <= 0 ? NULL : cost ? human_ns(sum / seconds).text : human_rate(sum / seconds).text);
    }
    for (i = 0; i < (n == 1 ? 3 : n); i++)
        table_cell(t, "");
}

/* All quantiles in the table of one run; only the p99 in a table of several runs. */
static void latency_cells(struct table *t, const struct column *c, int n, uint32_t k)
{
    static const double p[] = {0.5, 0.99, 0.999};
    int i;
    for (i = 0; i < (n == 1 ? 3 : n); i++) {
        const struct hist *h = &c[n == 1 ? 0 : i].run->result[k].latency;
        table_cell(t, h->count ? human_ns((double)hist_quantile(h, n == 1 ? p[i] : 0.99)).text : NULL);
    }
}

/* Of a tenant with a promise in time: how many requests kept it. */
static void note_times(const struct settings *s, const struct column *c, int n)
{
    uint32_t k;
    int i;
    for (k = 0; k < s->tenants; k++) {
        if (!tenant_timed(&s->tenant[k]))
            continue;
        printf("tenant %s: requests done within %s of their turn:", s->tenant[k].name,
               human_ns((double)s->tenant[k].due_ns).text);
        for (i = 0; i < n; i++) {
            const struct tenant_result *r = &c[i].run->result[k];
            printf("%s %s %s", i ? "," : "",
                   human_percent((double)r->timely / fmax((double)(r->timely + r->late), 1)).text, c[i].heading);
        }
        printf("\n");
    }
}

static void note_counts(const struct settings *s, const struct run *run)
{
    uint32_t k;
    int i;
    for (k = 0; run && k < run->tenants; k++) {
        const struct tenant_result *r = &run->result[k];
        if (r->failed == 0 && r->short_ios == 0)
            continue;
        printf("tenant %s, %s: %" PRIu64 " submitted = %" PRIu64 " completed + %" PRIu64 " failed; %" PRIu64
               " partial ones continued\n",
               s->tenant[k].name, run->label, r->submitted, r->completed, r->failed, r->short_ios);
        for (i = 0; i < ERRORS_SHOWN && r->errors[i]; i++)
            printf("    %" PRIu64 " x %s\n", r->errors[i],
                   r->error[i] >= 0x7fff ? "end of file" : strerror(r->error[i]));
    }
}

/* The notes below the table. */
static void table_notes(const struct settings *s, const struct profile *p, const struct runs *runs)
{
    const struct run *with = runs->with, *any = with ? with : runs->without;
    if (runs->same_depth)
        printf("same depth: first come, first served with %" PRIu64 " requests at the device, as many as were there on "
               "average with QoS\n",
               runs->same_depth->dispatch_depth);
    if (with && runs->without && seconds_of(runs->without) > 0 && seconds_of(with) > 0 && total(runs->without, true))
        printf("total with QoS: %s of the total without, in profiled device time\n",
               human_percent((double)total(with, true) / seconds_of(with) * seconds_of(runs->without) /
                             (double)total(runs->without, true))
                   .text);
    if (with && with->flight_bound_ns)
        printf("at the end %s of device time were allowed in flight; the tenant that narrowed it last: %s\n",
               human_ns((double)with->flight_bound_ns).text,
               with->flight_by < s->tenants ? s->tenant[with->flight_by].name : "none");
    if (with && with->root_end > p->root_cost_per_s)
        printf("the maximizer raised the root from %s to %s of device time a second\n",
               human_ns((double)p->root_cost_per_s).text, human_ns((double)with->root_end).text);
    if (any && any->all_run_ns)
        printf("rates and latencies: of the time in which all tenants ran\n");
}

void report_table(const struct settings *s, const struct profile *p, const struct runs *runs)
{
    struct column c[RUNS];
    int n = columns_of(runs, c), i;
    struct table *t;
    char headings[256];
    size_t at;
    uint32_t k;
    if (n == 0)
        return;
    at = (size_t)snprintf(headings, sizeof headings, "<tenant|reserved|limit");
    for (i = 0; i < n; i++)
        at += (size_t)snprintf(headings + at, sizeof headings - at, "|%s%s", i ? "" : "got ", c[i].heading);
    for (i = 0; i < n && n > 1; i++)
        at += (size_t)snprintf(headings + at, sizeof headings - at, "|%s%s", i ? "" : "p99 ", c[i].heading);
    if (n == 1)
        snprintf(headings + at, sizeof headings - at, "|p50|p99|p99.9");
    t = table_new(headings);
    for (k = 0; k < s->tenants; k++) {
        const struct tenant *tenant = &s->tenant[k];
        table_cellf(t, "%s (%s %s x %" PRIu64 ")", tenant->name, access_name[tenant->rw],
                    human_bytes((double)tenant->bs).text, tenant->depth);
        table_cell(t, tenant->reserve ? human_rate((double)tenant->reserve).text : NULL);
        table_cell(t, tenant->limit ? human_rate((double)tenant->limit).text : NULL);
        for (i = 0; i < n; i++)
            table_cell(t, human_rate(rate_of(c[i].run, k)).text);
        latency_cells(t, c, n, k);
    }
    table_rule(t);
    total_row(t, "device time per second", c, n, true);
    total_row(t, "all bytes", c, n, false);
    table_print(t, stdout);
    table_free(t);
    table_notes(s, p, runs);
    note_times(s, c, n);
    for (i = 0; i < n; i++)
        note_counts(s, c[i].run);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

static void json_tenant(struct json *j, const struct settings *s, const struct run *run, uint32_t k)
{
    const struct tenant_result *r = &run->result[k];
    const struct tenant *t = &s->tenant[k];
    uint32_t i;
    json_object(j, NULL);
    json_text(j, "name", t->name);
    json_real(j, "bytes_per_s", rate_of(run, k));
    json_u64(j, "bytes", r->bytes);
    json_u64(j, "device_time_ns", r->cost);
    json_u64(j, "arrived", r->arrived);
    json_u64(j, "submitted", r->submitted);
    json_u64(j, "served_ns", r->served_ns);
    json_u64(j, "served_max_ns", r->served_max_ns);
    json_u64(j, "completed", r->completed);
    json_u64(j, "failed", r->failed);
    json_u64(j, "partial", r->short_ios);
    json_u64(j, "p50_ns", hist_quantile(&r->latency, 0.5));
    json_u64(j, "p99_ns", hist_quantile(&r->latency, 0.99));
    json_u64(j, "p999_ns", hist_quantile(&r->latency, 0.999));
    json_u64(j, "max_ns", r->latency.max);
    json_real(j, "mean_ns", hist_mean(&r->latency));
    json_u64(j, "timely", r->timely);
    json_u64(j, "late", r->late);
    json_u64(j, "granted", r->stats.granted);
    json_u64(j, "borrowed", r->stats.borrowed);
    json_u64(j, "waited", r->stats.waited);
    json_array(j, "errors");
    for (i = 0; i < ERRORS_SHOWN && r->errors[i]; i++) {
        json_object(j, NULL);
        json_text(j, "error", r->error[i] >= 0x7fff ? "end of file" : strerror(r->error[i]));
        json_u64(j, "count", r->errors[i]);
        json_end(j);
    }
    json_end(j);
    json_array(j, "bytes_each_second");
    for (i = 0; i + SLICES_PER_S <= run->slices; i += (uint32_t)SLICES_PER_S) {
        uint64_t sum = 0, m;
        for (m = 0; m < SLICES_PER_S; m++)
            sum += r->slice[i + m].bytes;
        json_u64(j, NULL, sum);
    }
    json_end(j);
    json_end(j);
}

static void json_run(struct json *j, const char *key, const struct settings *s, const struct run *run)
{
    uint32_t k;
    json_object(j, key);
    json_text(j, "scheduler", run->scheduler->name);
    json_real(j, "seconds", (double)run->elapsed_ns / 1e9);
    json_real(j, "all_ran_seconds", seconds_of(run));
    json_bool(j, "stopped", run->stopped);
    json_u64(j, "bytes", total(run, false));
    json_u64(j, "device_time_ns", total(run, true));
    json_u64(j, "requests", run->ios);
    json_u64(j, "cpu_ns", run->cpu_ns);
    json_u64(j, "cpu_wait_ns", run->cpu_wait_ns);
    json_u64(j, "at_device_max", run->at_device_max);
    json_real(j, "at_device_mean", seconds_of(run) > 0 ? (double)run->at_device_ns / 1e9 / seconds_of(run) : 0);
    json_u64(j, "root_device_ns_per_s_at_end", run->root_end);
    json_u64(j, "flight_bound_ns_at_end", run->flight_bound_ns);
    json_array(j, "tenants");
    for (k = 0; k < run->tenants; k++)
        json_tenant(j, s, run, k);
    json_end(j);
    json_end(j);
}

static void json_explanation(struct json *j, const struct explanation *e)
{
    json_object(j, "explained");
    json_bool(j, "conclusive", e->conclusive);
    json_real(j, "total", e->total);
    json_real(j, "bound", e->bound);
    json_real(j, "mix", e->mix);
    json_real(j, "scheduler", e->scheduler);
    json_real(j, "half_width", e->width);
    json_u64(j, "at_device", e->depth);
    json_end(j);
}

bool report_json(const struct settings *s, const struct profile *p, const struct runs *runs, const struct verdict *v,
                 const struct explanation *e)
{
    struct column c[RUNS];
    struct json j;
    uint32_t i;
    int n = columns_of(runs, c), k;
    if (!json_open(&j, s->json)) {
        tool_warn("%s: cannot write: %s", s->json, strerror(errno));
        return false;
    }
    json_text(&j, "tool", "uring_files");
    json_text(&j, "version", QOS_VERSION_STRING);
    json_array(&j, "tenants");
    for (i = 0; i < s->tenants; i++) {
        const struct tenant *t = &s->tenant[i];
        json_object(&j, NULL);
        json_text(&j, "name", t->name);
        json_text(&j, "rw", access_name[t->rw]);
        json_u64(&j, "bs_bytes", t->bs);
        json_u64(&j, "depth", t->depth);
        json_u64(&j, "reserve_bytes_per_s", t->reserve);
        json_u64(&j, "limit_bytes_per_s", t->limit);
        json_u64(&j, "weight", t->weight);
        json_u64(&j, "rate_bytes_per_s", t->rate);
        json_u64(&j, "think_ns", t->think_ns);
        json_u64(&j, "latency_ns", t->due_ns);
        if (tenant_timed(t))
            json_real(&j, "timely_alone", p->timely_alone[i]);
        json_u64(&j, "reserve_device_ns_per_s", tenant_reserve_cost(t));
        json_u64(&j, "limit_device_ns_per_s", tenant_limit_cost(t));
        json_bool(&j, "direct", s->target[t->target].direct);
        json_end(&j);
    }
    json_end(&j);
    json_object(&j, "profile");
    json_array(&j, "points");
    for (i = 0; i < p->points; i++) {
        json_object(&j, NULL);
        json_text(&j, "rw", access_name[p->point[i].rw]);
        json_u64(&j, "bs_bytes", p->point[i].bs);
        json_u64(&j, "requests_per_s", p->point[i].ios_per_s);
        json_u64(&j, "device_ns", p->point[i].cost);
        json_end(&j);
    }
    json_end(&j);
    json_u64(&j, "mix_device_ns_per_s", p->mix_cost_per_s);
    json_u64(&j, "root_device_ns_per_s", p->root_cost_per_s);
    json_end(&j);
    for (k = 0; k < n; k++)
        json_run(&j, c[k].key, s, c[k].run);
    if (e->made)
        json_explanation(&j, e);
    if (v->judged) {
        json_object(&j, "judge");
        json_bool(&j, "log_holds", v->hard_ok);
        json_bool(&j, "reservations_hold", v->reserve_ok);
        json_bool(&j, "limits_hold", v->limit_ok);
        json_bool(&j, "latencies_hold", v->latency_ok);
        json_bool(&j, "conclusive", v->conclusive);
        json_u64(&j, "seconds", v->seconds);
        json_u64(&j, "eligible_seconds", v->eligible);
        json_end(&j);
    }
    return json_close(&j);
}

/* ---- plots ------------------------------------------------------------------------------------------------------ */

/* A tenant in a run: what it got over time, beside what was promised. A tenant with latency=: the part of its requests that
 * were done in time. */
struct panel {
    struct plot_curve curve;
    struct plot_mark mark;
    char title[160], name[64];
    double x[CURVE_POINTS_MAX], y[CURVE_POINTS_MAX], most; /* most: of curve and mark */
};

static double got_in(const struct tenant_result *r, bool in_time, uint32_t from, uint32_t slices)
{
    uint64_t bytes = 0, timely = 0, late = 0;
    uint32_t i;
    for (i = from; i < from + slices; i++) {
        bytes += r->slice[i].bytes;
        timely += r->slice[i].timely;
        late += r->slice[i].late;
    }
    if (in_time)
        return timely + late ? 100.0 * (double)timely / (double)(timely + late) : NAN;
    return (double)bytes / (slices * (double)SLICE_NS / 1e9 * 1048576);
}

static void put_title(struct panel *p, const struct tenant *t, const struct run *run, uint32_t k)
{
    const struct tenant_result *r = &run->result[k];
    char got[96];
    if (t->latency_ns)
        snprintf(got, sizeof got, "%s of its requests in time (%s)",
                 human_percent((double)r->timely / fmax((double)(r->timely + r->late), 1)).text,
                 human_ns((double)t->latency_ns).text);
    else
        snprintf(got, sizeof got, "%s%s%s%s", human_rate(rate_of(run, k)).text,
                 t->reserve ? ", promised "
                 : t->limit ? ", allowed "
                            : "",
                 t->reserve ? human_rate((double)t->reserve).text
                 : t->limit ? human_rate((double)t->limit).text
                            : "",
                 t->limit && !t->reserve ? " and a burst" : "");
    snprintf(p->title, sizeof p->title, "%.30s %s: %s", t->name, run->label, got);
}

static void draw_panel(struct panel *p, struct plot *plot, const struct settings *s, const struct run *run, uint32_t k)
{
    const struct tenant *t = &s->tenant[k];
    uint32_t n = (uint32_t)qos_min(run->elapsed_ns / SLICE_NS, run->slices), group, i;
    double at = t->latency_ns ? 100 * JUDGE_TIMELY : (double)(t->reserve ? t->reserve : t->limit) / 1048576;
    group = n / CURVE_POINTS_MAX + 1 > 5 ? n / CURVE_POINTS_MAX + 1 : 5; /* at most four points a second */
    p->curve = (struct plot_curve){t->name, p->x, p->y, n / group};
    p->most = at;
    for (i = 0; i < n / group; i++) {
        p->x[i] = (i + 0.5) * group * (double)SLICE_NS / 1e9;
        p->y[i] = got_in(&run->result[k], t->latency_ns != 0, i * group, group);
        p->most = fmax(p->most, p->y[i]);
    }
    snprintf(p->name, sizeof p->name, "%s", t->reserve ? "promised" : "limit");
    p->mark = (struct plot_mark){p->name, at, false, -1};
    put_title(p, t, run, k);
    plot->title = p->title;
    plot->x_label = k + 1 == run->tenants ? "time (s)" : "";
    plot->y_label = t->latency_ns ? "in time (%)" : "MiB/s";
    plot->curve = &p->curve;
    plot->curves = n / group > 1;
    plot->mark = &p->mark;
    plot->marks = at > 0;
    plot->colour = k;
}

static bool finish_plot(const struct settings *s, const struct plot *plot, size_t count, size_t columns,
                        const char *name)
{
    char path[4096];
    size_t i;
    for (i = 0; i < count; i++)
        if (plot[i].curves == 0) {
            tool_warn("%s: the run was too short for a figure", name);
            return false;
        }
    snprintf(path, sizeof path, "%s/%s.svg", s->plot, name);
    if (!plot_panels(plot, count, columns, path))
        return false;
    printf("figure: %s\n", path);
    return true;
}

static bool plot_latency(const struct settings *s, const struct column *c, int n)
{
    enum { N = 199 };
    struct plot_curve curve[RUNS * TENANTS_MAX];
    char name[RUNS * TENANTS_MAX][64];
    static double x[RUNS * TENANTS_MAX][N], y[N];
    struct plot plot;
    uint32_t k, i;
    int w;
    memset(&plot, 0, sizeof plot);
    for (i = 0; i < N; i++)
        y[i] = (i + 1) / 2.0;
    for (w = 0; w < n; w++)
        for (k = 0; k < c[w].run->tenants; k++) {
            const struct hist *h = &c[w].run->result[k].latency;
            size_t at = plot.curves;
            if (h->count == 0)
                continue;
            snprintf(name[at], sizeof name[0], "%.30s, %s", s->tenant[k].name, c[w].heading);
            for (i = 0; i < N; i++)
                x[at][i] = (double)hist_quantile(h, y[i] / 100) / 1e6;
            curve[at] = (struct plot_curve){name[at], x[at], y, N};
            plot.curves++;
        }
    plot.title = "Latency from arrival to completion";
    plot.x_label = "latency (ms)";
    plot.y_label = "requests that took at most this (%)";
    plot.curve = curve;
    plot.log_x = true;
    plot.y_max = 100;
    return finish_plot(s, &plot, 1, 1, "latency");
}

/* A row for each tenant: without QoS on the left, with it on the right; both with the same linear axis. */
bool report_plots(const struct settings *s, const struct runs *runs)
{
    static struct panel panel[TENANTS_MAX * 2];
    static struct plot plot[TENANTS_MAX * 2];
    const struct run *side[2];
    struct column c[RUNS];
    uint32_t sides = 0, k, i;
    bool ok = plot_mkdir(s->plot);
    if (!ok)
        tool_warn("%s: %s", s->plot, strerror(errno));
    if (runs->without)
        side[sides++] = runs->without;
    if (runs->with)
        side[sides++] = runs->with;
    memset(plot, 0, sizeof plot);
    for (k = 0; k < s->tenants; k++) {
        double most = 0;
        for (i = 0; i < sides; i++) {
            draw_panel(&panel[k * sides + i], &plot[k * sides + i], s, side[i], k);
            most = fmax(most, panel[k * sides + i].most);
        }
        for (i = 0; i < sides; i++)
            plot[k * sides + i].y_max = most * 1.05;
    }
    return ok && sides && finish_plot(s, plot, s->tenants * sides, sides, "compare") &&
           plot_latency(s, c, columns_of(runs, c));
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static void put_log(FILE *f, const struct settings *s, const struct run *run)
{
    static const char *const kind[] = {"dispatch", "done", "failed", "wanted"};
    uint64_t i;
    for (i = 0; run && i < run->log.count; i++) {
        const struct event *e = &run->log.event[i];
        fprintf(f, "%s,%" PRIu64 ",%s,%s,%" PRIu64 ",%u,%u,%u\n", run->label, e->at_ns - run->start_ns, kind[e->kind],
                s->tenant[e->tenant].name, s->tenant[e->tenant].bs, e->cost, e->error, e->place);
    }
}

bool report_log(const struct settings *s, const struct runs *runs)
{
    struct column c[RUNS];
    FILE *f = fopen(s->log, "w");
    int n = columns_of(runs, c), i;
    bool ok;
    if (f) {
        fputs("run,ns,event,tenant,bytes,device_ns,errno,place\n", f);
        for (i = 0; i < n; i++)
            put_log(f, s, c[i].run);
    }
    ok = f && !ferror(f);
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        tool_warn("%s: cannot write: %s", s->log, strerror(errno));
    return ok;
}
