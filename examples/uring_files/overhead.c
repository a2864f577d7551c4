// What the scheduler costs when no limit is reached. Slices without, with and without it take turns, so that a drift
// of the device affects all kinds alike. The second slice without it is the A/A control: the difference between two
// equal slices shows how small a difference this machine can measure. With --maximizer the root's rate does bind: it
// is profiled, conservative, and raised by the maximizer. The maximizer begins anew in every slice, and raises the
// rate by 1/32 each 50 ms. So the first second of every slice is left out, with and without it.
#include "uring_files.h"
#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 1000u
#define RAMP_SLICES SLICES_PER_S
#define CONTROL_SHARE 1.96 /* 95 % of a normal distribution */
#define WIDTH_MAX 0.15     /* with a control less exact than this there is no verdict */

struct sample {
    double iops, cpu_ns;
};

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Half the width of the 95 % interval of the median, from order statistics: no assumption about the noise. */
static double half_width(double *v, size_t n)
{
    double spread = CONTROL_SHARE * 0.5 * __builtin_sqrt((double)n), middle = (double)(n - 1) / 2;
    size_t low = middle > spread ? (size_t)(middle - spread) : 0, high = n - 1 - low;
    qsort(v, n, sizeof *v, ascending);
    return (v[high] - v[low]) / 2;
}

/* root_cost_per_s 0: no rate limits. */
static bool one_slice(const struct settings *s, const struct scheduler *scheduler, uint64_t root_cost_per_s,
                      struct sample *out)
{
    struct loop_options o;
    struct run run;
    uint64_t ios = 0, depth = 0, from = root_cost_per_s ? RAMP_SLICES : 0, i, k;
    bool ok;
    for (i = 0; i < s->tenants; i++)
        depth += s->tenant[i].depth;
    memset(&o, 0, sizeof o);
    o.scheduler = scheduler;
    o.tenant = s->tenant;
    o.tenants = s->tenants;
    o.duration_ns = s->slice_ns;
    o.dispatch_depth = root_cost_per_s ? s->dispatch_depth : 2 * depth;
    if (scheduler == &scheduler_none)
        o.dispatch_depth = 0;
    o.root_cost_per_s = root_cost_per_s ? root_cost_per_s : QOS_RATE_MAX / 2;
    o.label = scheduler->name;
    o.quiet = o.ignore_start = true;
    ok = run_tenants(s, &o, &run) && !run.stopped;
    for (i = 0; ok && i < run.tenants; i++)
        for (k = from; k < run.slices; k++)
            ios += run.result[i].slice[k].ios;
    ok = ok && ios > 0;
    if (ok) {
        out->iops = (double)ios * 1e9 / (double)(run.elapsed_ns - from * SLICE_NS);
        out->cpu_ns = (double)run.cpu_ns / (double)run.ios;
    }
    run_free(&run);
    return ok;
}

static void json_line(FILE *f, const char *name, const char *metric, double value, const char *unit)
{
    printf("%-16s %10.4f %s\n", metric, value, unit);
    if (f)
        fprintf(f, "{\"bench\":\"uring_files\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n",
                name, metric, value, unit);
}

/* One value for each group of three slices. */
static double ratio[GROUPS_MAX], control[GROUPS_MAX], added[GROUPS_MAX], none[GROUPS_MAX], cpu[GROUPS_MAX];

static void write_results(FILE *f, const char *name, uint64_t groups, double width, uint64_t slice_ns)
{
    json_line(f, name, "iops_ratio", median(ratio, groups), "with/none");
    json_line(f, name, "aa_ratio", median(control, groups), "none/none");
    json_line(f, name, "aa_half_width", width, "of 95 %");
    json_line(f, name, "cpu_ns_per_io", median(added, groups), "ns added");
    json_line(f, name, "none_cpu_ns_per_io", median(cpu, groups), "ns");
    json_line(f, name, "none_iops", median(none, groups), "1/s");
    json_line(f, name, "slices", (double)groups * 3, "slices");
    json_line(f, name, "slice_seconds", (double)slice_ns / 1e9, "s");
}

int overhead_run(struct settings *s)
{
    uint64_t groups = s->overhead_slices / 3, i, k;
    const char *name = s->maximizer ? "maximizer" : "overhead";
    uint64_t root_cost_per_s = 0;
    struct profile profile;
    struct progress progress;
    struct sample sample[3];
    double asked, width;
    FILE *f = NULL;
    bool ok, holds, broken;
    if (groups < 2 || groups > GROUPS_MAX)
        tool_die(TOOL_USAGE, "--overhead: 6 to 3000 slices");
    if (s->maximizer && s->slice_ns < 2 * QOS_NS_PER_S)
        tool_die(TOOL_USAGE, "--slice: with --maximizer at least 2s, of which the first is left out");
    if (s->json && !(f = fopen(s->json, "w")))
        tool_die(TOOL_FAILED, "%s: cannot write", s->json);
    for (i = 0; i < s->tenants; i++)
        s->tenant[i].cost[QOS_READ] = s->tenant[i].cost[QOS_WRITE] = s->tenant[i].bs;
    if (s->maximizer) {
        if (!profile_file(s, &profile))
            return stop_asked() ? TOOL_STOPPED : TOOL_FAILED;
        root_cost_per_s = profile.root_cost_per_s;
    }
    progress_init(&progress, s->progress);
    for (i = 0; i < groups; i++) {
        /* The order rotates from group to group: each kind is first, second and third equally often. */
        for (k = 0; k < 3; k++) {
            uint64_t which = (i + k) % 3;
            if (!one_slice(s, which == 1 ? scheduler_find(s->scheduler) : &scheduler_none, root_cost_per_s,
                           &sample[which]))
                return stop_asked() ? TOOL_STOPPED : TOOL_FAILED;
        }
        none[i] = (sample[0].iops + sample[2].iops) / 2;
        ratio[i] = sample[1].iops / none[i];
        control[i] = sample[2].iops / sample[0].iops;
        cpu[i] = (sample[0].cpu_ns + sample[2].cpu_ns) / 2;
        added[i] = sample[1].cpu_ns - cpu[i];
        if (progress_due(&progress, tool_now_ns()))
            progress_show(&progress, "group %" PRIu64 "/%" PRIu64 ": none %.0f/s, with/none %.4f, none/none %.4f",
                          i + 1, groups, none[i], ratio[i], control[i]);
    }
    progress_end(&progress);
    printf("%" PRIu64 " slices of %s: none, %s, none in turn; %s\n", groups * 3, human_ns((double)s->slice_ns).text,
           scheduler_find(s->scheduler)->name, s->maximizer ? "the maximizer at work" : "nothing binds");
    asked = s->maximizer ? 0.98 : 0.99;
    width = half_width(control, groups);
    /* median() has sorted the ratios: it is broken if even the best group is below. */
    holds = median(ratio, groups) >= asked - width && width <= WIDTH_MAX;
    broken = ratio[groups - 1] < asked - width && width <= WIDTH_MAX;
    printf("with QoS: %s of the requests without; control: without against without %s, known to +- %s\n"
           "(required: at least %s minus the control's half-width: %s)\n\n",
           human_percent(median(ratio, groups)).text, human_percent(median(control, groups)).text,
           human_percent(width).text, human_percent(asked).text,
           holds    ? "holds"
           : broken ? "BROKEN"
                    : "inconclusive: the slices differ too much");
    write_results(f, name, groups, width, s->slice_ns);
    ok = !f || (fflush(f) == 0 && !ferror(f));
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        tool_warn("%s: cannot write", s->json);
    if (!ok || (broken && s->judge))
        return TOOL_FAILED;
    return holds || !s->judge ? TOOL_OK : TOOL_INCONCLUSIVE;
}
