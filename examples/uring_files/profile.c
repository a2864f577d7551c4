// The paper's profiling program (Section 5.5): the rates that the file sustains for the tenants' requests.
//
// Device time. A file that completes c requests of one kind per second, at the depth of the later run, spends 1/c of a
// second on each. So requests of all kinds can be added up, and there are 10^9 ns of device time in a second.
// Conservative in three ways, each stated in the profile's table:
//   1. a request's cost is taken from the slow slices: four in five slices of 50 ms were faster. Where these are slower
//      than the median by a quarter or more, the device was disturbed, and 1.25 times the median is taken;
//   2. the tenants' own mix is run as well; if it gets less than 10^9 ns a second, as requests of different kinds
//      disturb each other, the smaller number is taken (again the one that four in five slices exceed);
//   3. the root's rate is that number times --headroom.
// A disk may stall for longer than a measurement. So each is made of two passes. If they agree within a quarter, the
// slower one counts; if not, three more are run and the median of the five counts.
#include "uring_files.h"
#include <stdlib.h>
#include <string.h>

#define WARM_UP_SLICES 2
#define SLOW_SHARE 0.8
#define DISTURBED_PERCENT 80 /* of the median slice's requests */
#define PASSES_MAX 5
#define PASS_MIN_NS (6 * SLICE_NS)
#define OTHER_SIZE_SMALL UINT64_C(4096)
#define OTHER_SIZE_LARGE UINT64_C(131072)

static int ascending(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Returns what the slow slices after the warm-up completed. which: 0: requests; 1: cost. */
static uint64_t slow_slice(const struct run *run, int which)
{
    uint64_t n = run->elapsed_ns / SLICE_NS, i, k, *v, at, least, middle;
    if (n > run->slices)
        n = run->slices;
    if (n <= WARM_UP_SLICES)
        return 0;
    v = tool_alloc(n * sizeof *v);
    for (i = WARM_UP_SLICES; i < n; i++)
        for (k = 0; k < run->tenants; k++)
            v[i] += which ? run->result[k].slice[i].cost : run->result[k].slice[i].ios;
    n -= WARM_UP_SLICES;
    middle = WARM_UP_SLICES + n / 2;
    qsort(v + WARM_UP_SLICES, n, sizeof *v, ascending);
    at = v[WARM_UP_SLICES + (uint64_t)((1 - SLOW_SHARE) * (double)(n - 1) + 0.5)];
    least = v[middle] * DISTURBED_PERCENT / 100;
    free(v);
    return qos_max(at, least);
}

/* Runs passes until they agree. each() gives the value of one run; 0: the run gives none. *mean: requests per second
 * of the pass that counts. false: stopped, or it cannot run. *value 0: no pass showed anything. */
static bool passes(const struct settings *s, struct loop_options *o, uint64_t (*each)(const struct run *run),
                   uint64_t *value, uint64_t *ios_per_s)
{
    uint64_t pass[PASSES_MAX][2]; /* value, requests per second; ascending */
    uint32_t n, i, wanted = 2;
    o->duration_ns = qos_max(s->profile_ns / 2, PASS_MIN_NS);
    for (n = 0; n < wanted; n++) {
        struct run run;
        bool ok = run_tenants(s, o, &run) && !run.stopped;
        uint64_t v = ok ? each(&run) : 0;
        for (i = n; i > 0 && pass[i - 1][0] > v; i--)
            memcpy(pass[i], pass[i - 1], sizeof pass[i]);
        pass[i][0] = v;
        pass[i][1] = ok ? qos_mul_div_floor(run.ios, QOS_NS_PER_S, run.elapsed_ns) : 0;
        run_free(&run);
        if (!ok)
            return false;
        if (n == 1 && pass[0][0] < pass[1][0] - pass[1][0] / 4)
            wanted = PASSES_MAX;
    }
    i = wanted == PASSES_MAX ? PASSES_MAX / 2 : 0;
    *value = pass[i][0];
    *ios_per_s = pass[i][1];
    return true;
}

static uint64_t depth_in_play(const struct settings *s)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < s->tenants; i++)
        sum += s->tenant[i].depth;
    return qos_min(sum, s->dispatch_depth);
}

/* Requests in 10^9 seconds of slow slices. With fewer than 20 in a slice, quantiles are too coarse: then the mean
 * minus a tenth. */
static uint64_t requests_alone(const struct run *run)
{
    uint64_t slow = slow_slice(run, 0);
    return slow >= 20 ? slow * SLICES_PER_S * QOS_NS_PER_S
                      : qos_mul_div_floor(10 * run->ios, QOS_NS_PER_S * QOS_NS_PER_S, 11 * run->elapsed_ns);
}

/* Runs one kind of request alone. false: stopped, or it cannot run. */
static bool measure(const struct settings *s, struct profile *p, enum access_kind rw, uint64_t bs, uint32_t target)
{
    struct profile_point *point = &p->point[p->points];
    struct loop_options o;
    struct tenant t;
    char label[64];
    uint32_t i;
    uint64_t requests, ios_per_s;
    for (i = 0; i < p->points; i++)
        if (p->point[i].rw == rw && p->point[i].bs == bs && p->point[i].target == target)
            return true;
    if (p->points == POINTS_MAX || s->target[target].size_bytes < bs)
        return true;
    memset(&t, 0, sizeof t);
    snprintf(label, sizeof label, "profile %s %s", access_name[rw], human_bytes((double)bs).text);
    t.name = label;
    t.rw = rw;
    t.bs = bs;
    t.depth = depth_in_play(s);
    t.weight = 1;
    t.target = target;
    t.cost[QOS_READ] = t.cost[QOS_WRITE] = 1;
    memset(&o, 0, sizeof o);
    o.scheduler = &scheduler_none;
    o.tenant = &t;
    o.tenants = 1;
    o.label = label;
    o.hush = true;
    o.dispatch_depth = t.depth;
    if (!passes(s, &o, requests_alone, &requests, &ios_per_s))
        return false;
    if (requests == 0) {
        tool_warn("%s: no %s of %s succeeded while profiling; costs are taken from the others", s->target[target].path,
                  access_name[rw], human_bytes((double)bs).text);
        return true;
    }
    point->rw = rw;
    point->target = target;
    point->op = rw == RANDREAD || rw == READ ? QOS_READ : QOS_WRITE;
    point->bs = bs;
    point->ios_per_s = ios_per_s;
    point->cost = qos_mul_div_ceil(QOS_NS_PER_S, QOS_NS_PER_S, requests);
    point->cost = qos_min(qos_max(point->cost, 1), QOS_TOKENS_MAX);
    p->points++;
    return true;
}

/* A straight line over the sizes of one operation: through the costs of the smallest and the largest, then lifted until
 * no measured point lies above it. */
static bool fit(struct profile *p, enum qos_op op)
{
    const struct profile_point *small = NULL, *large = NULL;
    uint64_t lift = 0;
    uint32_t i;
    for (i = 0; i < p->points; i++) {
        const struct profile_point *q = &p->point[i];
        if (q->op != op)
            continue;
        if (!small || q->bs < small->bs || (q->bs == small->bs && q->cost > small->cost))
            small = q;
        if (!large || q->bs > large->bs || (q->bs == large->bs && q->cost > large->cost))
            large = q;
    }
    if (!small)
        return false;
    if (small->bs == large->bs) {
        p->model.fixed_cost[op] = small->cost;
        p->model.per_mib_cost[op] = 0;
        return true;
    }
    if (qos_cost_fit(&p->model, op, small->bs, small->cost, large->bs, large->cost) != QOS_OK)
        return false;
    for (i = 0; i < p->points; i++)
        if (p->point[i].op == op)
            lift = qos_max(lift, qos_sat_sub(p->point[i].cost, qos_cost(&p->model, op, p->point[i].bs)));
    p->model.fixed_cost[op] = qos_min(p->model.fixed_cost[op] + lift, QOS_TOKENS_MAX);
    return true;
}

/* As above, in cost. If the slow slices were empty: the mean minus a tenth. */
static uint64_t cost_together(const struct run *run)
{
    uint64_t slow = slow_slice(run, 1) * SLICES_PER_S, cost = 0;
    uint32_t k;
    for (k = 0; k < run->tenants; k++)
        cost += run->result[k].cost;
    return slow ? slow : qos_mul_div_floor(10 * cost, QOS_NS_PER_S, 11 * run->elapsed_ns);
}

/* All tenants, none of which leaves the device a pause. */
static bool measure_mix(const struct settings *s, struct profile *p)
{
    static struct tenant busy[TENANTS_MAX];
    struct loop_options o;
    uint64_t ios_per_s;
    uint32_t i;
    for (i = 0; i < s->tenants; i++) {
        busy[i] = s->tenant[i];
        busy[i].rate = busy[i].think_ns = 0;
    }
    memset(&o, 0, sizeof o);
    o.scheduler = &scheduler_none;
    o.tenant = busy;
    o.tenants = s->tenants;
    o.dispatch_depth = s->dispatch_depth;
    o.label = "profile, all tenants";
    o.ignore_start = o.hush = true;
    return passes(s, &o, cost_together, &p->mix_cost_per_s, &ios_per_s);
}

/* A tenant that asks at its own rate has the tree's burst. With N places and T each takes a request every T + think at the latest: N requests in that time are the reserved rate. */
static void resolve_latency(const struct settings *s, struct tenant *t)
{
    uint64_t round_ns = qos_sat_mul(t->depth, tenant_turn_ns(t));
    t->due_ns = t->latency_ns ? t->latency_ns : t->reserve && t->rate ? s->burst_ns : 0;
    if (t->due_ns || !t->reserve)
        return;
    if (round_ns <= t->think_ns)
        tool_die(TOOL_USAGE, "tenant %s: with depth=%" PRIu64 " and think=%s it cannot use %s; reserve less", t->name,
                 t->depth, human_ns((double)t->think_ns).text, human_rate((double)t->reserve).text);
    t->due_ns = qos_min(round_ns - t->think_ns, LATENCY_MAX_NS);
}

/* Converts shares of what the tenant would get alone, once: a second profile does not change the promises. */
static void resolve_terms(const struct settings *s, struct tenant *t)
{
    uint64_t cost =
        qos_max(tenant_uses(t, QOS_READ) ? t->cost[QOS_READ] : 0, tenant_uses(t, QOS_WRITE) ? t->cost[QOS_WRITE] : 0);
    uint64_t alone = qos_mul_div_floor(t->bs, QOS_NS_PER_S, cost);
    if (t->reserve == 0 && t->reserve_percent)
        t->reserve = qos_max(qos_mul_div_floor(alone, t->reserve_percent, 100), 1);
    if (t->limit == 0 && t->limit_percent)
        t->limit = qos_max(qos_mul_div_floor(alone, t->limit_percent, 100), 1);
    if (t->limit && t->limit < t->reserve)
        tool_die(TOOL_USAGE, "tenant %s: the limit is below the reservation", t->name);
    resolve_latency(s, t);
}

/* A tenant with a reservation, alone: what the device itself can keep with so many places. */
static bool measure_alone(const struct settings *s, uint32_t k, double *timely)
{
    struct loop_options o;
    struct run run;
    uint64_t in_time, all;
    bool ok;
    memset(&o, 0, sizeof o);
    o.scheduler = &scheduler_none;
    o.tenant = &s->tenant[k];
    o.tenants = 1;
    o.duration_ns = s->profile_ns;
    o.label = "profile, alone";
    o.ignore_start = o.hush = true;
    ok = run_tenants(s, &o, &run) && !run.stopped;
    in_time = ok ? run.result[0].timely : 0;
    all = ok ? in_time + run.result[0].late : 0;
    *timely = all ? (double)in_time / (double)all : 0;
    run_free(&run);
    return ok;
}

bool profile_file(struct settings *s, struct profile *p)
{
    uint32_t i;
    bool known[2];
    int op;
    memset(p, 0, sizeof *p);
    for (i = 0; i < s->tenants; i++) {
        const struct tenant *t = &s->tenant[i];
        for (op = QOS_READ; op <= QOS_WRITE; op++) {
            enum access_kind rw =
                op == QOS_READ ? (access_random(t->rw) ? RANDREAD : READ) : (access_random(t->rw) ? RANDWRITE : WRITE);
            /* A second size gives the line its slope. */
            uint64_t other = t->bs < OTHER_SIZE_LARGE ? OTHER_SIZE_LARGE : OTHER_SIZE_SMALL;
            if (tenant_uses(t, (enum qos_op)op) &&
                (!measure(s, p, rw, t->bs, t->target) || !measure(s, p, rw, other, t->target)))
                return false;
        }
    }
    for (op = QOS_READ; op <= QOS_WRITE; op++)
        known[op] = fit(p, (enum qos_op)op);
    if (!known[QOS_READ] && !known[QOS_WRITE])
        tool_die(TOOL_FAILED, "nothing could be profiled: no request succeeded");
    for (op = QOS_READ; op <= QOS_WRITE; op++)
        if (!known[op]) {
            p->model.fixed_cost[op] = p->model.fixed_cost[1 - op];
            p->model.per_mib_cost[op] = p->model.per_mib_cost[1 - op];
        }
    for (i = 0; i < s->tenants; i++)
        for (op = QOS_READ; op <= QOS_WRITE; op++)
            s->tenant[i].cost[op] = qos_cost(&p->model, (enum qos_op)op, s->tenant[i].bs);
    for (i = 0; i < s->tenants; i++)
        resolve_terms(s, &s->tenant[i]);
    for (i = 0; i < s->tenants; i++)
        if (s->judge && s->tenant[i].due_ns && !measure_alone(s, i, &p->timely_alone[i]))
            return false;
    if (!measure_mix(s, p))
        return false;
    p->root_cost_per_s = (uint64_t)((double)qos_min(p->mix_cost_per_s, QOS_NS_PER_S) * s->headroom);
    if (p->root_cost_per_s == 0)
        tool_die(TOOL_FAILED, "the tenants together got nothing done while profiling");
    return true;
}

void profile_print(const struct settings *s, const struct profile *p)
{
    struct table *t = table_new("<profile|requests/s|rate|device time each|model");
    uint32_t i;
    for (i = 0; i < p->points; i++) {
        const struct profile_point *q = &p->point[i];
        table_cellf(t, "%s %s", access_name[q->rw], human_bytes((double)q->bs).text);
        table_cell(t, human_count((double)q->ios_per_s).text);
        table_cell(t, human_rate((double)q->ios_per_s * (double)q->bs).text);
        table_cell(t, human_ns((double)q->cost).text);
        table_cell(t, human_ns((double)qos_cost(&p->model, q->op, q->bs)).text);
    }
    table_print(t, stdout);
    table_free(t);
    printf("Measured at depth %" PRIu64
           ". Device time each: four in five slices were faster. All tenants together got %s "
           "of device time\na second; four in five slices got more. At most %s a second is promised: the lesser of "
           "that and "
           "1 s, times %.2f.\n\n",
           depth_in_play(s), human_ns((double)p->mix_cost_per_s).text, human_ns((double)p->root_cost_per_s).text,
           s->headroom);
}
