// Where the difference in total comes from. A scheduler changes three things at once: how many requests are at the
// device, which ones, and when they go. Slices of four kinds take turns; all but the last kind are first come, first
// served:
//     without      all requests at the device
//     bound        as many at the device as the scheduler had there
//     mix          the same number, and each tenant in proportion to its service with the scheduler
//     scheduler    the scheduler itself
// Ratios of neighbours, in profiled device time per second, are the effect of each change. The control compares
// `without` with the next `without`: a difference between two equal slices is the resolution of this machine.
#include "uring_files.h"
#include <string.h>

#define GROUPS 5u      /* of five values the smallest and the largest are the 94 % interval of the median */
#define RAMP_PART 3u   /* the first third of each slice is left out: the scheduler looks for its bound */
#define WIDTH_MAX 0.15 /* with a control less exact than this there is no verdict */

enum kind { WITHOUT, BOUND, MIX, SCHEDULER, KINDS };

/* Tenants whose numbers of outstanding requests are in the ratio of their service: first come, first served keeps that
   ratio. */
static void same_mix(const struct settings *s, const struct run *with, struct tenant *tenant)
{
    uint64_t all = 0, depth = 0;
    uint32_t i;
    for (i = 0; i < s->tenants; i++) {
        all += with->result[i].bytes / s->tenant[i].bs;
        depth += s->tenant[i].depth;
    }
    for (i = 0; i < s->tenants; i++) {
        tenant[i] = s->tenant[i];
        tenant[i].depth = qos_max((with->result[i].bytes / s->tenant[i].bs * depth + all / 2) / qos_max(all, 1), 1);
    }
}

/* Device time per second of one slice; -1: it could not run. */
static double one_slice(const struct settings *s, const struct profile *p, const struct loop_options *options)
{
    struct loop_options o = *options;
    struct run run;
    uint64_t from, i, cost = 0;
    uint32_t k;
    double served = -1;
    o.root_cost_per_s = p->root_cost_per_s;
    o.duration_ns = s->slice_ns;
    o.quiet = o.ignore_start = true;
    if (run_tenants(s, &o, &run) && !run.stopped) {
        from = run.slices / RAMP_PART;
        for (k = 0; k < run.tenants; k++)
            for (i = from; i < run.slices; i++)
                cost += run.result[k].slice[i].cost;
        served = (double)cost / (double)(run.elapsed_ns - from * SLICE_NS);
    }
    run_free(&run);
    return served;
}

bool explain_runs(const struct settings *s, const struct profile *p, const struct run *with, struct explanation *e)
{
    static struct tenant mixed[TENANTS_MAX];
    struct loop_options o[KINDS];
    double served[GROUPS + 1][KINDS], ratio[KINDS + 1][GROUPS];
    struct progress progress;
    uint32_t i, k;
    bool nothing = false;
    memset(e, 0, sizeof *e);
    memset(o, 0, sizeof o);
    e->depth = run_mean_depth(with);
    same_mix(s, with, mixed);
    for (k = 0; k < KINDS; k++) {
        o[k].scheduler = k == SCHEDULER ? with->scheduler : &scheduler_none;
        o[k].tenant = k == MIX ? mixed : s->tenant;
        o[k].tenants = s->tenants;
        o[k].dispatch_depth = k == WITHOUT ? 0 : k == SCHEDULER ? s->dispatch_depth : e->depth;
        o[k].label = "explain";
    }
    progress_init(&progress, s->progress);
    for (i = 0; i <= GROUPS; i++)
        for (k = 0; k < (i < GROUPS ? KINDS : 1); k++) { /* one more `without` at the end, for the control */
            if ((served[i][k] = one_slice(s, p, &o[k])) < 0)
                return false;
            nothing = nothing || served[i][k] == 0;
            if (progress_due(&progress, tool_now_ns()))
                progress_show(&progress, "where the difference comes from: slice %u of %u", i * KINDS + k + 1,
                              GROUPS * KINDS + 1);
        }
    progress_end(&progress);
    e->made = true;
    if (nothing) { /* a slice without a request, on a very busy machine, gives no verdict */
        e->width = 1;
        return true;
    }
    for (i = 0; i < GROUPS; i++) {
        double without = (served[i][WITHOUT] + served[i + 1][WITHOUT]) / 2;
        ratio[WITHOUT][i] = served[i + 1][WITHOUT] / served[i][WITHOUT];
        ratio[BOUND][i] = served[i][BOUND] / without;
        ratio[MIX][i] = served[i][MIX] / served[i][BOUND];
        ratio[SCHEDULER][i] = served[i][SCHEDULER] / served[i][MIX];
        ratio[KINDS][i] = served[i][SCHEDULER] / without;
    }
    e->bound = median(ratio[BOUND], GROUPS);
    e->mix = median(ratio[MIX], GROUPS);
    e->scheduler = median(ratio[SCHEDULER], GROUPS);
    e->total = median(ratio[KINDS], GROUPS);
    (void)median(ratio[WITHOUT], GROUPS); /* sorts it */
    e->width = (ratio[WITHOUT][GROUPS - 1] - ratio[WITHOUT][0]) / 2;
    e->conclusive = e->width <= WIDTH_MAX;
    return true;
}

static double change(double ratio)
{
    return ratio > 1 ? ratio - 1 : 1 - ratio;
}

void explain_print(const struct settings *s, const struct explanation *e)
{
    static const char *const cause[] = {"the bound on requests at the device", "the mix of requests", "the scheduler"};
    const double part[] = {e->bound, e->mix, e->scheduler};
    uint32_t i, most = 0;
    for (i = 1; i < 3; i++)
        if (change(part[i]) > change(part[most]))
            most = i;
    if (!e->conclusive) {
        printf(
            "where the difference in total comes from: cannot tell on this machine, as two equal slices of %s differ "
            "by +- %s\n",
            human_ns((double)s->slice_ns).text, human_percent(e->width).text);
        return;
    }
    printf("where the difference in total comes from: %s, as the bound (%" PRIu64 " requests at the device) makes %s, "
           "the other mix %s and the scheduler %s, in all %s of the device time without QoS; each to +- %s\n",
           change(part[most]) > e->width ? cause[most] : "nothing that shows here", e->depth,
           human_percent(e->bound).text, human_percent(e->mix).text, human_percent(e->scheduler).text,
           human_percent(e->total).text, human_percent(e->width).text);
}
