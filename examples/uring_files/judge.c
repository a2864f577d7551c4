// What must hold, judged on the scheduler's log and on the seconds of a run.
//
// By the log, whatever the device does:
//   - in every window the cost that a tenant dispatched is at most limit x window + burst + one request;
//   - every submitted request completed or failed, once;
//   - never more than --dispatch-depth requests are at the device.
// Reservations are judged over eligible seconds only: those in which the device gave what admission counted on. The
// requests completed in it cost at least the root's rate, less what may be on its way at the two ends of the second; or
// the device never held anything back (its places were all taken for at most 1 % of the second), so the scheduler made
// the requests wait. If the scheduler waited for a processor for more than a twentieth of the run, only the device's
// service counts. A tenant without rate= and think= always asks. Over these seconds it must get at least 98 % of its reservation. No second counts for more than the reservation, so a
// good second does not make up for a bad one. If fewer than 80 % of the seconds are eligible, there is no verdict on
// reservations. A limit: at most 101 % over the whole run of the tenant.
//
// With latency=, rate= or think= a reservation is judged by time: of the requests that ended in eligible seconds, 99 %
// must be done by their turn + latency (tenant_turn_ns; from it follows the rate).
//
// The device itself must be able to: alone on it a tenant has at least 99.5 % of its requests in time (profile.c), else
// there is no verdict on its reservation.
#include "uring_files.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SLACK_NS (QOS_NS_PER_S / 100)
#define RESERVE_SHARE 0.98
#define LIMIT_SHARE 1.01
#define TIMELY_ALONE 0.995
#define ELIGIBLE_SHARE 0.8

__extension__ typedef unsigned __int128 wide;

static void say(struct verdict *v, const char *fmt, ...)
{
    size_t at = strlen(v->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(v->text + at, sizeof v->text - at, fmt, args);
    va_end(args);
}

/* The largest excess of any window of the log over limit x window, in tokens rounded up: the peak of a bucket that
 * leaks at the limit's rate, is filled by every dispatch, and is never below empty. Shares no code with the
 * scheduler's buckets.
 * fixed_cost: of every request; 0: as the log says. */
static uint64_t worst_excess(const struct event_log *log, uint32_t tenant, uint64_t limit, uint32_t fixed_cost)
{
    wide level = 0, peak = 0;
    uint64_t last = 0, i;
    for (i = 0; i < log->count; i++) {
        const struct event *e = &log->event[i];
        wide leaked;
        if (e->tenant != tenant || e->kind != EVENT_DISPATCH)
            continue;
        leaked = (wide)limit * (e->at_ns - last);
        last = e->at_ns;
        level = (level > leaked ? level - leaked : 0) + (wide)(fixed_cost ? fixed_cost : e->cost) * QOS_NS_PER_S;
        if (level > peak)
            peak = level;
    }
    return (uint64_t)((peak + QOS_NS_PER_S - 1) / QOS_NS_PER_S);
}

static struct human amount(bool requests, uint64_t n)
{
    struct human h;
    if (!requests)
        return human_ns((double)n);
    snprintf(h.text, sizeof h.text, "%" PRIu64 " requests", n);
    return h;
}

static void judge_windows(const struct settings *s, const struct run *run, uint32_t k, struct verdict *v)
{
    const struct tenant *t = &s->tenant[k];
    bool requests = run->scheduler->counts_requests;
    uint64_t limit = requests ? tenant_limit_ops(t) : tenant_limit_cost(t);
    uint64_t excess = worst_excess(&run->log, k, limit, requests ? 1 : 0);
    uint64_t one = requests ? 1
                            : qos_max(tenant_uses(t, QOS_READ) ? t->cost[QOS_READ] : 0,
                                      tenant_uses(t, QOS_WRITE) ? t->cost[QOS_WRITE] : 0);
    uint64_t bound = qos_mul_div_ceil(limit, s->burst_ns, QOS_NS_PER_S) + run->scheduler->limit_requests * one;
    say(v, "tenant %s: in every window at most limit x window + %s (allowed: burst + %u request%s = %s): %s\n", t->name,
        amount(requests, excess).text, run->scheduler->limit_requests, run->scheduler->limit_requests == 1 ? "" : "s",
        amount(requests, bound).text, excess <= bound ? "holds" : "BROKEN");
    v->hard_ok &= excess <= bound;
}

static void judge_log(const struct settings *s, const struct run *run, struct verdict *v)
{
    uint64_t arrived[TENANTS_MAX] = {0}, dispatched[TENANTS_MAX] = {0}, done[TENANTS_MAX] = {0},
             failed[TENANTS_MAX] = {0}, i;
    uint32_t k;
    for (i = 0; i < run->log.count; i++) {
        const struct event *e = &run->log.event[i];
        (e->kind == EVENT_DISPATCH ? dispatched
         : e->kind == EVENT_DONE   ? done
         : e->kind == EVENT_FAILED ? failed
                                   : arrived)[e->tenant]++;
    }
    if (run->log.full) {
        say(v, "log: full after %" PRIu64 " events; shorten --runtime\n", run->log.count);
        v->hard_ok = false;
        return;
    }
    for (k = 0; k < run->tenants; k++) {
        const struct tenant *t = &s->tenant[k];
        const struct tenant_result *r = &run->result[k];
        if (dispatched[k] != r->submitted || done[k] != r->completed || failed[k] != r->failed ||
            arrived[k] != r->arrived || r->submitted != r->completed + r->failed) {
            say(v, "tenant %s: %" PRIu64 " submitted, but %" PRIu64 " completed and %" PRIu64 " failed: BROKEN\n",
                t->name, r->submitted, r->completed, r->failed);
            v->hard_ok = false;
        }
        if (t->limit && run->scheduler != &scheduler_none)
            judge_windows(s, run, k, v);
    }
    if (run->dispatch_depth && run->at_device_max > run->dispatch_depth) {
        say(v, "%" PRIu64 " requests at the device, --dispatch-depth is %" PRIu64 ": BROKEN\n", run->at_device_max,
            run->dispatch_depth);
        v->hard_ok = false;
    }
}

/* Sums of one second of a run. */
struct second {
    uint64_t bytes, timely, late; /* of the tenant */
    uint64_t service, full_ns;
};

static struct second sum_second(const struct run *run, uint32_t tenant, uint32_t index)
{
    struct second sum = {0};
    uint64_t i;
    uint32_t k;
    for (i = index * SLICES_PER_S; i < (index + 1) * SLICES_PER_S; i++) {
        sum.bytes += run->result[tenant].slice[i].bytes;
        sum.timely += run->result[tenant].slice[i].timely;
        sum.late += run->result[tenant].slice[i].late;
        sum.full_ns += run->full_ns[i];
        for (k = 0; k < run->tenants; k++)
            sum.service += run->result[k].slice[i].cost;
    }
    return sum;
}

/* Cost that may be granted or on its way at the ends of a second without being completed in it. */
static uint64_t service_slack(const struct settings *s, const struct profile *p, const struct run *run)
{
    uint64_t most = 0;
    uint32_t k;
    for (k = 0; k < run->tenants; k++)
        most = qos_max(most, qos_max(tenant_uses(&s->tenant[k], QOS_READ) ? s->tenant[k].cost[QOS_READ] : 0,
                                     tenant_uses(&s->tenant[k], QOS_WRITE) ? s->tenant[k].cost[QOS_WRITE] : 0));
    return run->dispatch_depth * most + qos_mul_div_ceil(p->root_cost_per_s, s->burst_ns, QOS_NS_PER_S);
}

static bool service_enough(const struct run *run, const struct second *sec, const struct profile *p, uint64_t slack)
{
    const bool ran = run->cpu_wait_ns <= run->elapsed_ns / 20;
    return sec->service + slack >= p->root_cost_per_s || (ran && sec->full_ns <= SLACK_NS);
}

static uint32_t first_second(const struct tenant *t)
{
    return (uint32_t)((t->start_ns + QOS_NS_PER_S - 1) / QOS_NS_PER_S);
}

/* false: too few seconds to judge. */
static bool count_eligible(struct verdict *v, const struct tenant *t, const char *what, uint32_t eligible, uint32_t n)
{
    if (v->seconds == 0 || (uint64_t)eligible * v->seconds < (uint64_t)v->eligible * n) {
        v->seconds = n;
        v->eligible = eligible;
    }
    if (n > 0 && (double)eligible >= ELIGIBLE_SHARE * n)
        return true;
    say(v, "tenant %s: %s: %u of %u seconds eligible, too few: inconclusive\n", t->name, what, eligible, n);
    v->conclusive = false;
    return false;
}

static void judge_latency(const struct settings *s, const struct profile *p, const struct run *run, uint32_t k,
                          struct verdict *v)
{
    const struct tenant *t = &s->tenant[k];
    uint32_t seconds = (uint32_t)(run->elapsed_ns / QOS_NS_PER_S), first = first_second(t), i, eligible = 0;
    uint64_t slack = service_slack(s, p, run), timely = 0, late = 0;
    double share;
    for (i = first; i < seconds; i++) {
        struct second sec = sum_second(run, k, i);
        if (service_enough(run, &sec, p, slack)) {
            eligible++;
            timely += sec.timely;
            late += sec.late;
        }
    }
    if (!count_eligible(v, t, "latency", eligible, seconds > first ? seconds - first : 0))
        return;
    share = timely + late ? (double)timely / (double)(timely + late) : 0;
    say(v, "tenant %s: latency: %s of %" PRIu64 " requests within %s of their turn (required: 99 %%): %s\n", t->name,
        human_percent(share).text, timely + late, human_ns((double)t->due_ns).text,
        share >= JUDGE_TIMELY ? "holds" : "BROKEN");
    v->latency_ok &= share >= JUDGE_TIMELY;
}

static void judge_reservation(const struct settings *s, const struct profile *p, const struct run *run, uint32_t k,
                              struct verdict *v)
{
    const struct tenant *t = &s->tenant[k];
    uint32_t seconds = (uint32_t)(run->elapsed_ns / QOS_NS_PER_S), first = first_second(t), i, n, eligible = 0;
    uint64_t slack = service_slack(s, p, run), bytes = 0;
    double share;
    n = seconds > first ? seconds - first : 0;
    for (i = first; i < seconds; i++) {
        struct second sec = sum_second(run, k, i);
        if (service_enough(run, &sec, p, slack)) {
            eligible++;
            bytes += qos_min(sec.bytes, t->reserve);
        }
    }
    if (!count_eligible(v, t, "reservation", eligible, n))
        return;
    share = (double)bytes / eligible / (double)t->reserve;
    say(v, "tenant %s: reservation: %s of %s over %u eligible seconds of %u (required: 98 %%): %s\n", t->name,
        human_percent(share).text, human_rate((double)t->reserve).text, eligible, n,
        share >= RESERVE_SHARE ? "holds" : "BROKEN");
    v->reserve_ok &= share >= RESERVE_SHARE;
}

static void judge_limit(const struct settings *s, const struct run *run, uint32_t k, struct verdict *v)
{
    const struct tenant *t = &s->tenant[k];
    uint64_t bytes = 0, i;
    double seconds = (double)qos_sat_sub(run->elapsed_ns, t->start_ns) / 1e9, share;
    for (i = 0; i < run->slices; i++)
        bytes += run->result[k].slice[i].bytes;
    share = seconds > 0 ? (double)bytes / seconds / (double)t->limit : 0;
    say(v, "tenant %s: limit: %s of %s (allowed: 101 %%): %s\n", t->name, human_percent(share).text,
        human_rate((double)t->limit).text, share <= LIMIT_SHARE ? "holds" : "BROKEN");
    v->limit_ok &= share <= LIMIT_SHARE;
}

void judge_run(const struct settings *s, const struct profile *p, const struct run *run, struct verdict *v)
{
    uint32_t k;
    memset(v, 0, sizeof *v);
    v->judged = v->hard_ok = v->reserve_ok = v->limit_ok = v->latency_ok = v->conclusive = true;
    judge_log(s, run, v);
    for (k = 0; k < run->tenants && run->scheduler != &scheduler_none; k++) {
        const struct tenant *t = &s->tenant[k];
        if (t->reserve && p->timely_alone[k] < TIMELY_ALONE) {
            say(v, "tenant %s: alone on the device %s of its requests are in time: inconclusive\n", t->name,
                human_percent(p->timely_alone[k]).text);
            v->conclusive = false;
        } else if (s->flight && tenant_timed(t)) {
            judge_latency(s, p, run, k, v);
        } else if (t->rate || t->think_ns) {
            say(v, "tenant %s: reservation: not judged, as it does not always ask; --flight promises a time\n",
                t->name);
        } else if (t->reserve) {
            judge_reservation(s, p, run, k, v);
        }
        if (t->limit)
            judge_limit(s, run, k, v);
    }
}

void judge_print_trace(const struct settings *s, const struct profile *p, const struct run *run)
{
    struct table *t = table_new("second|device time served|places full|enough|<each reservation");
    uint32_t seconds = (uint32_t)(run->elapsed_ns / QOS_NS_PER_S), i, k;
    uint64_t slack = service_slack(s, p, run);
    for (i = 0; i < seconds; i++) {
        struct second sec = sum_second(run, 0, i);
        char idle[256] = "";
        table_cellf(t, "%u", i);
        table_cell(t, human_ns((double)sec.service).text);
        table_cell(t, human_percent((double)sec.full_ns / 1e9).text);
        table_cell(t, service_enough(run, &sec, p, slack) ? "yes" : "no");
        for (k = 0; k < run->tenants; k++)
            if (s->tenant[k].reserve) {
                size_t at = strlen(idle);
                sec = sum_second(run, k, i);
                snprintf(idle + at, sizeof idle - at, "%s%s %s", at ? ", " : "", s->tenant[k].name,
                         human_percent((double)sec.bytes / (double)s->tenant[k].reserve).text);
            }
        table_cell(t, idle);
    }
    printf("inconclusive: device. Admission counted on %s of device time a second (%s may be on its way); the seconds "
           "were:\n",
           human_ns((double)p->root_cost_per_s).text, human_ns((double)slack).text);
    table_print(t, stdout);
    table_free(t);
}
