// Figures like the paper's 8 (completed over one period), 9 (per bucket and period) and 10 (up to each interval).
#include "cluster.h"
#include <stdlib.h>
#include <string.h>

#define BINS 100
#define CURVES 8

static bool draw(struct plot *p, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/pshift_%s.svg", settings.figures, name);
    return plot_svg(p, path);
}

/* Completions of a period by bucket, up to each of `bins` moments: sum[bucket * (bins + 1) + bin]. */
static double *cumulate(const struct scene_run *run, uint32_t period, uint32_t bins)
{
    const struct scene *s = &run->scene;
    double *sum = tool_alloc((size_t)s->buckets * (bins + 1) * sizeof *sum);
    uint32_t node, i, b;
    size_t k;
    for (node = 0; node < s->nodes; node++)
        for (k = 0; k < run->node[node].picks; k++) {
            const struct log_pick *p = &run->node[node].pick[k];
            uint64_t at = done_in_period_us(&run->node[node], p);
            if (p->period == period && at != UINT64_MAX)
                sum[p->bucket * (bins + 1) + qos_min(at * 1000 * bins / s->period_ns + 1, bins)]++;
        }
    for (i = 0; i < s->buckets; i++)
        for (b = 1; b <= bins; b++)
            sum[i * (bins + 1) + b] += sum[i * (bins + 1) + b - 1];
    return sum;
}

static uint32_t an_eligible_period(const struct scene_run *run, const struct verdict *v)
{
    uint32_t k;
    for (k = 0; k + 1 < run->scene.periods && !v->eligible[k]; k++)
        ;
    return k;
}

static bool figure_8(const struct scene_run *run, const struct verdict *v)
{
    static const char *const names[] = {"bucket 1", "bucket 2", "bucket 3", "bucket 4"};
    const struct scene *s = &run->scene;
    struct plot_curve curve[4];
    struct plot_mark mark[2] = {{"reservation", (double)s->reservation[0], false, -1},
                                {"limit", (double)s->limit[0], false, -1}};
    struct plot p = {.title = s->title, .x_label = "ms", .y_label = "requests completed", .curve = curve, .curves = 4};
    double *y = cumulate(run, an_eligible_period(run, v), BINS), x[BINS + 1];
    uint32_t i;
    bool ok;
    for (i = 0; i <= BINS; i++)
        x[i] = (double)s->period_ns / 1e6 * i / BINS;
    for (i = 0; i < 4; i++)
        curve[i] = (struct plot_curve){names[i], x, y + (size_t)i * (BINS + 1), BINS + 1};
    p.mark = mark;
    p.marks = !s->qos ? 0 : strcmp(s->key, "limits") == 0 ? 2 : 1;
    ok = draw(&p, !s->qos ? "8a" : p.marks == 2 ? "8c" : "8b");
    free(y);
    return ok;
}

/* Requests of each bucket completed in each period; one mark if all contracts are equal. */
static bool figure_9(const struct scene_run *run, const struct verdict *v, const char *name)
{
    static const char *const names[CURVES] = {"period 1", "period 2", "period 3", "period 4",
                                              "period 5", "period 6", "period 7", "period 8"};
    const struct scene *s = &run->scene;
    struct plot_curve curve[CURVES];
    struct plot_mark mark[2] = {{"reservation", (double)s->reservation[0], false, -1},
                                {"limit", (double)s->limit[0], false, -1}};
    static double highest; /* one axis for both runs; the run without QoS comes first */
    struct plot p = {
        .title = s->title, .x_label = "bucket", .y_label = "requests completed", .curve = curve, .dots = true};
    double *y = tool_alloc((size_t)s->buckets * CURVES * sizeof *y), *x = tool_alloc(s->buckets * sizeof *x);
    uint32_t i, k;
    bool ok, same = true;
    if (!s->qos)
        highest = 0;
    for (i = 0; i < s->buckets; i++) {
        x[i] = i + 1;
        same &= s->reservation[i] == s->reservation[0] && s->limit[i] == s->limit[0];
    }
    for (k = 0; k < s->periods && k < CURVES; k++) {
        for (i = 0; i < s->buckets; i++) {
            y[(size_t)k * s->buckets + i] = (double)v->got[(size_t)k * s->buckets + i];
            if (y[(size_t)k * s->buckets + i] > highest)
                highest = y[(size_t)k * s->buckets + i];
        }
        curve[p.curves++] = (struct plot_curve){names[k], x, y + (size_t)k * s->buckets, s->buckets};
    }
    p.y_max = 1.05 * highest;
    p.mark = mark;
    p.marks = !same ? 0 : s->limit[0] == QOS_UNLIMITED ? 1 : 2;
    ok = draw(&p, name);
    free(x);
    free(y);
    return ok;
}

static const struct scene *sorted_scene;

static int larger_first(const void *a, const void *b)
{
    uint64_t x = sorted_scene->reservation[*(const uint32_t *)a], y = sorted_scene->reservation[*(const uint32_t *)b];
    return x > y ? -1 : x < y;
}

/* Reservations, and requests completed up to each interval's end; buckets by reservation. */
static bool figure_10(const struct scene_run *run)
{
    static const char *const names[CURVES] = {"interval 1", "to 2", "to 3", "to 4", "to 5", "to 6", "to 7", "to 8"};
    const struct scene *s = &run->scene;
    uint32_t bins = (uint32_t)qos_min(s->intervals, CURVES), i, k, b, *order = tool_alloc(s->buckets * sizeof *order);
    double *x = tool_alloc(s->buckets * sizeof *x), *y = tool_alloc((size_t)s->buckets * CURVES * sizeof *y), *sum;
    struct plot_curve curve[CURVES];
    struct plot p = {.x_label = "bucket, by reservation", .y_label = "requests", .curve = curve, .log_y = true};
    char title[80], name[16];
    bool ok;
    for (i = 0; i < s->buckets; i++) {
        order[i] = i;
        x[i] = i + 1;
    }
    sorted_scene = s;
    qsort(order, s->buckets, sizeof *order, larger_first);
    for (i = 0; i < s->buckets; i++)
        y[i] = (double)s->reservation[order[i]];
    curve[0] = (struct plot_curve){"reservation", x, y, s->buckets};
    p.curves = 1;
    p.title = "Experiment 5: reservations";
    ok = draw(&p, "10a");
    for (k = 0; k < s->periods && k < 2; k++) {
        sum = cumulate(run, k, bins);
        for (b = 0; b < bins; b++) {
            for (i = 0; i < s->buckets; i++)
                y[(size_t)b * s->buckets + i] = sum[(size_t)order[i] * (bins + 1) + b + 1];
            curve[b] = (struct plot_curve){names[b], x, y + (size_t)b * s->buckets, s->buckets};
        }
        p.curves = bins;
        snprintf(title, sizeof title, "Experiment 5: completed up to each interval's end, period %u", k + 1);
        snprintf(name, sizeof name, "10%c", (char)('b' + (int)k));
        p.title = title;
        ok = draw(&p, name) && ok;
        free(sum);
    }
    free(x);
    free(y);
    free(order);
    return ok;
}

bool figures(const struct scene_run *run, const struct verdict *v)
{
    const struct scene *s = &run->scene;
    if (!settings.figures)
        return true;
    if (s->experiment == 3)
        return figure_8(run, v);
    if (s->experiment == 5)
        return s->qos ? figure_10(run) : true;
    if (s->experiment == 4 && s->buckets == 10)
        return figure_9(run, v, s->qos ? "9b" : "9a");
    if (s->experiment == 4)
        return figure_9(run, v, s->qos ? "9_200_with" : "9_200_without");
    return figure_9(run, v, s->key);
}
