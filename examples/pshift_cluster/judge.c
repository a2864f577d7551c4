// Judges the logs of the nodes.
// Must hold, however busy the machine is:
//   - all nodes together pick a bucket at most `limit` times in a period;
//   - no token is spent twice. Between two grants a node picks a bucket at most as often as the earlier grant allows,
//     minus what it had served before that grant came. The R-tokens that all nodes spend in a period are at most the
//     reservation, plus what nodes had already spent when a smaller grant arrived;
//   - when a grant's period is over (its node may have to wait for the next one), its tokens are void: a bucket with a
//     limit is not picked, one without spends at most the R-tokens of its last grant, once for each T since then;
//   - every picked request came back with the data that was stored.
// Reservations are judged in eligible periods only: every node without an active fault served at least ELIGIBLE of its
// paced slots, or had no requests to serve. A period with a fault counts for the buckets whose reservation, by the
// certificate, can be met without the faulty nodes. If fewer than 80 % of the periods are eligible, reservations are
// not judged.
#include "cluster.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define ELIGIBLE 0.98
#define ELIGIBLE_PERIODS 0.8
#define TOLD_MAX 5

struct judging {
    const struct scene_run *run;
    const struct scene *s;
    struct verdict *v;
    uint64_t *r_spent, *overdraft; /* [periods * buckets] */
    uint32_t told;
};

static void say(struct judging *j, const char *fmt, ...) COMMON_PRINTF(2, 3);
static void say(struct judging *j, const char *fmt, ...)
{
    size_t at = strlen(j->v->text);
    va_list args;
    if (++j->told > TOLD_MAX)
        return;
    va_start(args, fmt);
    vsnprintf(j->v->text + at, sizeof j->v->text - at, fmt, args);
    va_end(args);
}

static void broken(struct judging *j)
{
    j->v->hard_ok = false;
}

/* ---- the log ------------------------------------------------------------------------------------------------ */

static void count_picks(struct judging *j)
{
    struct hist *h = tool_alloc(sizeof *h);
    uint32_t node;
    size_t k;
    hist_clear(h);
    for (node = 0; node < j->s->nodes; node++) {
        const struct node_log *l = &j->run->node[node];
        uint64_t lost = 0;
        for (k = 0; k < l->picks; k++) {
            const struct log_pick *p = &l->pick[k];
            size_t at = p->period * j->s->buckets + p->bucket;
            j->v->picked[at]++;
            j->v->got[at] += p->done_us != 0;
            j->r_spent[at] += p->reserved && !p->ended;
            lost += p->done_us == 0;
            if (p->done_us)
                hist_add(h, p->done_us - p->at_us);
        }
        if (lost) {
            say(j, "node %u: %" PRIu64 " requests never came back: BROKEN\n", node + 1, lost);
            broken(j);
        }
    }
    j->v->p50_us = hist_quantile(h, 0.5);
    j->v->p99_us = hist_quantile(h, 0.99);
    free(h);
}

/* What was picked of each (period, bucket) on a node; its n-th pick stands at first[pair] + n. */
struct picks {
    size_t *first;           /* [pairs + 1] */
    uint64_t *r;             /* R-tokens that were spent before it, while their grant was valid */
    uint64_t *ended, *again; /* picks before it after their grant's end, and R-tokens that these spent */
    uint64_t *at_us;
};

static void order_picks(const struct judging *j, const struct node_log *l, struct picks *o)
{
    size_t pairs = (size_t)j->s->periods * j->s->buckets, room = l->picks + pairs + 1, k, at;
    size_t *fill = tool_alloc(pairs * sizeof *fill);
    o->first = tool_alloc((pairs + 1) * sizeof *o->first);
    o->r = tool_alloc(room * sizeof *o->r);
    o->ended = tool_alloc(room * sizeof *o->ended);
    o->again = tool_alloc(room * sizeof *o->again);
    o->at_us = tool_alloc(room * sizeof *o->at_us);
    for (k = 0; k < l->picks; k++)
        o->first[l->pick[k].period * j->s->buckets + l->pick[k].bucket + 1]++;
    for (k = 0; k < pairs; k++)
        o->first[k + 1] += o->first[k] + 1; /* one more entry: the sums after the last pick */
    for (k = 0; k < l->picks; k++) {
        const struct log_pick *p = &l->pick[k];
        size_t pair = p->period * j->s->buckets + p->bucket;
        at = o->first[pair] + fill[pair]++;
        o->at_us[at] = p->at_us;
        o->r[at + 1] = o->r[at] + (p->reserved && !p->ended);
        o->ended[at + 1] = o->ended[at] + p->ended;
        o->again[at + 1] = o->again[at] + (p->reserved && p->ended);
    }
    free(fill);
}

/* Picks from..to - 1 of a pair: those after ends_us, by a share of r_total R-tokens. Renewals are T apart, the first at the
 * end or later. */
static void check_ended(struct judging *j, uint32_t node, const struct picks *o, size_t pair, size_t from, size_t to,
                        uint64_t r_total, uint64_t ends_us)
{
    size_t first = o->first[pair];
    uint64_t ended = o->ended[first + to] - o->ended[first + from], times;
    uint64_t again = o->again[first + to] - o->again[first + from];
    if (ended == 0)
        return;
    times = 1 + qos_sat_sub(o->at_us[first + to - 1] + 1, ends_us) / (j->s->period_ns / 1000);
    if (j->s->limit[pair % j->s->buckets] == QOS_UNLIMITED && again <= times * r_total)
        return;
    say(j,
        "node %u, period %zu, bucket %zu: picked %" PRIu64 " times, %" PRIu64
        " of them by R-tokens, after the end of a "
        "grant of %" PRIu64 ": BROKEN\n",
        node + 1, pair / j->s->buckets + 1, pair % j->s->buckets + 1, ended, again, r_total);
    broken(j);
}

/* Picks before the first grant of a period: they have what was renewed of the last grant of an earlier one. */
static void check_before(struct judging *j, uint32_t node, const struct picks *o, size_t pair, size_t to)
{
    const struct node_log *l = &j->run->node[node];
    uint64_t r_total = 0;
    size_t k;
    for (k = l->installs; k > 0; k--) {
        const struct log_install *g = &l->install[k - 1];
        if (!g->stale && g->bucket == pair % j->s->buckets && g->period < pair / j->s->buckets) {
            r_total = g->r_total;
            break;
        }
    }
    check_ended(j, node, o, pair, 0, to, r_total, l->period[pair / j->s->buckets].begin_us);
}

/* Compares each grant of a node with the picks until the next grant. */
static void check_grants(struct judging *j, uint32_t node)
{
    const struct node_log *l = &j->run->node[node];
    size_t pairs = (size_t)j->s->periods * j->s->buckets, k, at;
    size_t *next = tool_alloc(pairs * sizeof *next);
    struct picks o;
    order_picks(j, l, &o);
    for (at = 0; at < pairs; at++) /* picks until the next installed grant, walking backwards */
        next[at] = o.first[at + 1] - o.first[at] - 1;
    for (k = l->installs; k > 0; k--) {
        const struct log_install *g = &l->install[k - 1];
        uint64_t r_left, l_left, r_used, l_used;
        size_t from, to;
        at = g->period * j->s->buckets + g->bucket;
        if (g->stale) { /* it missed its period: the tokens held may have been given to others as well */
            j->overdraft[at] += g->r_held;
            continue;
        }
        j->overdraft[at] += qos_sat_sub(g->served, g->r_total);
        r_left = qos_sat_sub(g->r_total, g->served);
        l_left = g->total == QOS_UNLIMITED ? g->total : qos_sat_sub(g->total, qos_max(g->served, g->r_total));
        from = o.first[at] + g->served;
        to = o.first[at] + next[at];
        r_used = o.r[to] - o.r[from];
        l_used = to - from - r_used - (o.ended[to] - o.ended[from]);
        if (r_used > r_left || l_used > l_left) {
            say(j,
                "node %u, period %" PRIu64 ", bucket %" PRIu64 ": spent %" PRIu64 " R- and %" PRIu64
                " L-tokens of %" PRIu64 " and %" PRIu64 ": BROKEN\n",
                node + 1, g->period + 1, g->bucket + 1, r_used, l_used, r_left, l_left);
            broken(j);
        }
        check_ended(j, node, &o, at, g->served, next[at], g->r_total, g->ends_us);
        next[at] = g->served;
    }
    for (at = 0; at < pairs; at++)
        check_before(j, node, &o, at, next[at]);
    free(o.first);
    free(o.r);
    free(o.ended);
    free(o.again);
    free(o.at_us);
    free(next);
}

static void judge_log(struct judging *j)
{
    size_t pairs = (size_t)j->s->periods * j->s->buckets, at;
    uint32_t node;
    count_picks(j);
    for (node = 0; j->s->qos && node < j->s->nodes; node++)
        check_grants(j, node);
    for (at = 0; j->s->qos && at < pairs; at++) {
        uint64_t limit = j->s->limit[at % j->s->buckets], reservation = j->s->reservation[at % j->s->buckets];
        if (j->v->picked[at] > limit) {
            say(j, "period %zu, bucket %zu: %" PRIu64 " picked, above its limit of %" PRIu64 ": BROKEN\n",
                at / j->s->buckets + 1, at % j->s->buckets + 1, j->v->picked[at], limit);
            broken(j);
        }
        if (j->r_spent[at] > reservation + j->overdraft[at]) {
            say(j, "period %zu, bucket %zu: %" PRIu64 " R-tokens spent, of %" PRIu64 " and %" PRIu64 ": BROKEN\n",
                at / j->s->buckets + 1, at % j->s->buckets + 1, j->r_spent[at], reservation, j->overdraft[at]);
            broken(j);
        }
    }
}

/* ---- eligible periods ------------------------------------------------------------------------------------------ */

static void judge_periods(struct judging *j)
{
    uint64_t cpu_us = 0, waited_us = 0, k;
    double span_us = (double)j->s->periods * (double)j->s->period_ns / 1000;
    uint32_t node;
    for (k = 0; k < j->s->periods; k++)
        j->v->eligible[k] = true;
    for (node = 0; node < j->s->nodes; node++)
        for (k = 0; k < j->run->node[node].periods; k++) {
            const struct log_period *p = &j->run->node[node].period[k];
            double share = p->slots ? (double)(p->served + p->idle) / (double)p->slots : 0;
            j->v->share[p->period * j->s->nodes + node] = share;
            j->v->faulty[p->period] |= p->faulty != 0;
            j->v->eligible[p->period] &= p->faulty || share >= ELIGIBLE;
            j->v->failed += p->failed;
            j->v->wrong += p->wrong;
            cpu_us += p->cpu_us + p->backend_cpu_us;
            waited_us += p->waited_us;
        }
    for (k = 0; k < j->s->periods; k++)
        j->v->eligible_periods += j->v->eligible[k];
    j->v->cores = ((double)cpu_us + (double)j->run->busy_ns / 1000) / span_us;
    j->v->communication = (double)waited_us / span_us / j->s->nodes;
    j->v->busy = (double)j->run->busy_ns / 1000 / span_us;
    j->v->bytes = (double)j->run->bytes / j->s->periods;
    if (j->v->wrong) {
        say(j, "%" PRIu64 " answers are not what was stored: BROKEN\n", j->v->wrong);
        broken(j);
    }
}

/* Which buckets' reservations count in a period. */
static void sure_in(struct judging *j, uint32_t period, bool *sure)
{
    bool *one = tool_alloc(j->s->buckets);
    uint32_t i, node;
    scene_sure(j->s, period, UINT32_MAX, sure);
    for (node = 0; node < j->s->nodes; node++)
        if (j->run->node[node].period[period].faulty) {
            scene_sure(j->s, period, node, one);
            for (i = 0; i < j->s->buckets; i++)
                sure[i] = sure[i] && one[i];
        }
    free(one);
}

static double demanded(const struct scene *s)
{
    return !s->experiment || s->experiment == 3 ? 0.98 : s->experiment == 4 ? 1 : 0.99;
}

static void judge_contracts(struct judging *j)
{
    struct verdict *v = j->v;
    bool *sure = tool_alloc(j->s->buckets);
    uint32_t k, i;
    v->nearly_share = demanded(j->s);
    v->worst_reserve = 1e9;
    for (k = 0; k < j->s->periods; k++) {
        if (!v->eligible[k])
            continue;
        sure_in(j, k, sure);
        for (i = 0; i < j->s->buckets; i++) {
            size_t at = (size_t)k * j->s->buckets + i;
            double r = (double)j->s->reservation[i], got = (double)v->got[at];
            if (j->s->limit[i] != QOS_UNLIMITED) {
                double over = (double)v->picked[at] / (double)qos_max(j->s->limit[i], 1);
                v->limited++;
                v->kept += over <= 1.01;
                v->worst_limit = over > v->worst_limit ? over : v->worst_limit;
            }
            if (!sure[i])
                continue;
            v->judged++;
            v->met += got >= r;
            v->nearly += got >= r * v->nearly_share;
            if (r > 0 && got / r < v->worst_reserve)
                v->worst_reserve = got / r;
            if (j->s->qos && got < r * v->nearly_share)
                say(j, "period %u, bucket %u: %" PRIu64 " of its reservation of %" PRIu64 "\n", k + 1, i + 1,
                    v->got[at], j->s->reservation[i]);
        }
    }
    if (v->judged == 0)
        v->worst_reserve = 0;
    free(sure);
}

/* Experiment 3 without QoS: 3:7:13:25, each within 5 %. */
static void judge_ratio(struct judging *j)
{
    static const double expected[4] = {3, 7, 13, 25};
    double sum[4] = {0}, all = 0;
    uint32_t k, i;
    for (k = 0; k < j->s->periods; k++)
        for (i = 0; i < 4 && j->v->eligible[k]; i++) {
            sum[i] += (double)j->v->got[k * 4 + i];
            all += (double)j->v->got[k * 4 + i];
        }
    for (i = 0; i < 4; i++) {
        j->v->ratio[i] = all > 0 ? sum[i] / all * 48 : 0;
        if (j->v->ratio[i] < expected[i] * 0.95 || j->v->ratio[i] > expected[i] * 1.05) {
            say(j, "bucket %u: %.2f parts of 48 instead of %.0f\n", i + 1, j->v->ratio[i], expected[i]);
            j->v->soft_ok = false;
        }
    }
}

uint64_t done_in_period_us(const struct node_log *l, const struct log_pick *p)
{
    uint64_t begin_us = l->period[p->period].begin_us;
    return p->done_us ? qos_sat_sub(p->done_us, begin_us) : UINT64_MAX;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* When the reservation of Experiment 3's last bucket was met. */
static void judge_done(struct judging *j)
{
    uint32_t last = j->s->buckets - 1, node, k, periods = 0;
    uint64_t *at = NULL, n, reservation = j->s->reservation[last];
    size_t q;
    for (k = 0; k < j->s->periods; k++) {
        if (!j->v->eligible[k] || j->v->got[(size_t)k * j->s->buckets + last] < reservation)
            continue;
        at = tool_grow(at, (j->v->got[(size_t)k * j->s->buckets + last] + 1) * sizeof *at);
        for (node = 0, n = 0; node < j->s->nodes; node++)
            for (q = 0; q < j->run->node[node].picks; q++) {
                const struct log_pick *p = &j->run->node[node].pick[q];
                if (p->period == k && p->bucket == last && p->done_us)
                    at[n++] = done_in_period_us(&j->run->node[node], p);
            }
        qsort(at, n, sizeof *at, by_value);
        j->v->done_ms += (double)at[reservation - 1] / 1000;
        periods++;
    }
    free(at);
    j->v->done_ms /= periods ? periods : 1;
}

void judge(const struct scene_run *run, struct verdict *v)
{
    const struct scene *s = &run->scene;
    size_t pairs = (size_t)s->periods * s->buckets;
    struct judging j = {.run = run, .s = s, .v = v};
    memset(v, 0, sizeof *v);
    j.r_spent = tool_alloc(pairs * 8);
    j.overdraft = tool_alloc(pairs * 8);
    v->got = tool_alloc(pairs * 8);
    v->picked = tool_alloc(pairs * 8);
    v->eligible = tool_alloc(s->periods);
    v->faulty = tool_alloc(s->periods);
    v->share = tool_alloc((size_t)s->periods * s->nodes * sizeof *v->share);
    v->hard_ok = v->soft_ok = true;
    judge_log(&j);
    judge_periods(&j);
    judge_contracts(&j);
    if (s->experiment == 3)
        judge_done(&j);
    if (s->qos) /* many buckets: 99 % of them */
        v->soft_ok = (double)v->nearly >= (double)v->judged * (s->buckets >= 200 ? 0.99 : 1);
    else if (s->experiment == 3)
        judge_ratio(&j);
    v->inconclusive = (double)v->eligible_periods < ELIGIBLE_PERIODS * s->periods && (s->qos || s->experiment == 3);
    free(j.r_spent);
    free(j.overdraft);
}

void judge_free(struct verdict *v)
{
    free(v->got);
    free(v->picked);
    free(v->eligible);
    free(v->faulty);
    free(v->share);
}
