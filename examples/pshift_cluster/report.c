// Tables, JSON, figures.
#include "cluster.h"
#include <stdlib.h>
#include <string.h>

static struct json json;
static bool json_is_open;

static void bucket_table(const struct scene_run *run, const struct verdict *v)
{
    const struct scene *s = &run->scene;
    struct table *t = table_new("bucket|reservation|limit|least|mean|most|of reservation");
    uint32_t i, k;
    for (i = 0; i < s->buckets; i++) {
        uint64_t least = UINT64_MAX, most = 0, sum = 0, n = 0;
        for (k = 0; k < s->periods; k++) {
            uint64_t got = v->got[(size_t)k * s->buckets + i];
            if (!v->eligible[k])
                continue;
            least = qos_min(least, got);
            most = qos_max(most, got);
            sum += got;
            n++;
        }
        table_cellf(t, "%u", i + 1);
        table_cellf(t, "%" PRIu64, s->reservation[i]);
        table_cell(t, s->limit[i] == QOS_UNLIMITED ? NULL : human_count((double)s->limit[i]).text);
        table_cellf(t, "%" PRIu64, n ? least : 0);
        table_cellf(t, "%" PRIu64, n ? sum / n : 0);
        table_cellf(t, "%" PRIu64, most);
        table_cellf(t, "%.1f %%", n && s->reservation[i] ? 100 * (double)least / (double)s->reservation[i] : 0);
    }
    table_print(t, stdout);
    table_free(t);
}

/* Share of the paced capacity, of each node in each period: the trace. */
static void trace(const struct scene_run *run, const struct verdict *v)
{
    uint32_t k, j;
    for (k = 0; k < run->scene.periods; k++) {
        printf("    period %u:", k + 1);
        for (j = 0; j < run->scene.nodes; j++)
            printf(" %.3f", v->share[(size_t)k * run->scene.nodes + j]);
        printf("%s%s\n", v->eligible[k] ? "" : "  not eligible", v->faulty[k] ? "  fault" : "");
    }
}

void report_scene(const struct scene_run *run, const struct verdict *v)
{
    const struct scene *s = &run->scene;
    bool some_fault = false;
    uint32_t k;
    for (k = 0; k < s->periods; k++)
        some_fault |= v->faulty[k];
    printf("%s\n  %u nodes of %" PRIu64
           " requests/s (%s, paced), %u buckets, %u periods of %s, %u intervals, seed %" PRIu64,
           s->title, s->nodes, s->capacity, backend_of(s->backend)->name, s->buckets, s->periods,
           human_ns((double)s->period_ns).text, s->intervals, s->seed);
    printf(run->skipped ? " (%u before it are not feasible)\n" : "\n", run->skipped);
    if (run->shortfall)
        printf("  the certificate: reservations of %" PRIu64
               " requests cannot be met; buckets that depend on the nodes that "
               "bind are not judged\n",
               run->shortfall);
    if (s->buckets <= 16)
        bucket_table(run, v);
    printf("  reservations: met in %.2f %% of %" PRIu64 " (bucket, period) pairs",
           100 * (double)v->met / (double)qos_max(v->judged, 1), v->judged);
    if (v->nearly_share < 1)
        printf(", %.0f %% of it in %.2f %%", 100 * v->nearly_share,
               100 * (double)v->nearly / (double)qos_max(v->judged, 1));
    printf("; least %s\n", v->judged ? human_percent(v->worst_reserve).text : "-");
    if (v->limited)
        printf("  limits: kept (to 1 %%) in %.2f %%; most %.1f %%\n", 100 * (double)v->kept / (double)v->limited,
               100 * v->worst_limit);
    if (s->experiment == 3 && !s->qos)
        printf("  ratio %.2f : %.2f : %.2f : %.2f   (expected 3 : 7 : 13 : 25)\n", v->ratio[0], v->ratio[1],
               v->ratio[2], v->ratio[3]);
    if (s->experiment == 3 && s->qos && v->done_ms > 0)
        printf("  bucket 4 has its reservation after %.0f ms\n", v->done_ms);
    if (s->qos)
        printf(
            "  controller: report to grant %.2f %% of the period, CPU %.2f %%, %s and %.0f messages a period; plan %s, "
            "at most %s; %" PRIu64 " of %" PRIu64 " rounds asked twice, %" PRIu64 " reports late\n",
            100 * v->communication, 100 * v->busy, human_bytes(v->bytes).text, (double)run->messages / s->periods,
            human_ns((double)run->plan_ns / (double)qos_max(run->rounds, 1)).text,
            human_ns((double)run->plan_max_ns).text, run->asked, run->rounds - run->asked, run->missed);
    printf("  %u of %u periods eligible; %.2f cores busy; p50 %s, p99 %s (seen at ticks); %" PRIu64
           " requests sent again\n",
           v->eligible_periods, s->periods, v->cores, human_ns((double)v->p50_us * 1000).text,
           human_ns((double)v->p99_us * 1000).text, v->failed);
    if (v->eligible_periods < s->periods || some_fault)
        trace(run, v);
    printf("%s  %s\n\n", v->text,
           !v->hard_ok          ? "FAILED: the log is wrong"
           : v->inconclusive    ? "inconclusive: machine (the trace is above); the log holds"
           : !v->soft_ok        ? "FAILED: a promise was not kept; the log holds"
           : s->qos             ? "all promises kept; the log holds"
           : s->experiment == 3 ? "as expected"
                                : "for comparison");
    fflush(stdout);
}

/* ---- JSON --------------------------------------------------------------------------------------------------- */

void report_json_begin(void)
{
    if (!settings.json)
        return;
    if (!json_open(&json, settings.json))
        tool_die(TOOL_FAILED, "%s: cannot be written", settings.json);
    json_is_open = true;
    json_array(&json, "scenes");
}

void report_json(const struct scene_run *run, const struct verdict *v)
{
    const struct scene *s = &run->scene;
    uint32_t i, k;
    if (!json_is_open)
        return;
    json_object(&json, NULL);
    json_i64(&json, "experiment", s->experiment);
    json_text(&json, "scene", s->key);
    json_bool(&json, "qos", s->qos);
    json_text(&json, "backend", backend_of(s->backend)->name);
    json_u64(&json, "nodes", s->nodes);
    json_u64(&json, "buckets", s->buckets);
    json_u64(&json, "capacity_per_s", s->capacity);
    json_u64(&json, "period_ns", s->period_ns);
    json_u64(&json, "intervals", s->intervals);
    json_u64(&json, "seed", s->seed);
    json_bool(&json, "log_holds", v->hard_ok);
    json_bool(&json, "kept", v->soft_ok);
    json_bool(&json, "inconclusive", v->inconclusive);
    json_bool(&json, "retried", run->retried);
    json_u64(&json, "eligible_periods", v->eligible_periods);
    json_real(&json, "met_share", (double)v->met / (double)qos_max(v->judged, 1));
    json_real(&json, "nearly_share", (double)v->nearly / (double)qos_max(v->judged, 1));
    json_real(&json, "nearly_at", v->nearly_share);
    json_real(&json, "worst_reserve", v->worst_reserve);
    json_real(&json, "kept_share", v->limited ? (double)v->kept / (double)v->limited : 1);
    json_real(&json, "worst_limit", v->worst_limit);
    json_real(&json, "communication_share", v->communication);
    json_real(&json, "controller_cpu_share", v->busy);
    json_real(&json, "controller_bytes_per_period", v->bytes);
    json_u64(&json, "certificate_shortfall", run->shortfall);
    json_u64(&json, "rounds", run->rounds);
    json_u64(&json, "rounds_asked_twice", run->asked);
    json_u64(&json, "reports_late", run->missed);
    json_real(&json, "cores_busy", v->cores);
    json_u64(&json, "p50_us", v->p50_us);
    json_u64(&json, "p99_us", v->p99_us);
    json_u64(&json, "sent_again", v->failed);
    if (s->experiment == 3) {
        json_array(&json, "ratio_of_48");
        for (i = 0; i < 4; i++)
            json_real(&json, NULL, v->ratio[i]);
        json_end(&json);
        json_real(&json, "bucket_4_done_ms", v->done_ms);
    }
    json_array(&json, "reservation");
    for (i = 0; i < s->buckets; i++)
        json_u64(&json, NULL, s->reservation[i]);
    json_end(&json);
    json_array(&json, "limit");
    for (i = 0; i < s->buckets; i++)
        if (s->limit[i] == QOS_UNLIMITED)
            json_text(&json, NULL, NULL);
        else
            json_u64(&json, NULL, s->limit[i]);
    json_end(&json);
    json_array(&json, "periods");
    for (k = 0; k < s->periods; k++) {
        json_object(&json, NULL);
        json_bool(&json, "eligible", v->eligible[k]);
        json_bool(&json, "fault", v->faulty[k]);
        json_array(&json, "served");
        for (i = 0; i < s->buckets; i++)
            json_u64(&json, NULL, v->got[(size_t)k * s->buckets + i]);
        json_end(&json);
        json_array(&json, "share_of_capacity");
        for (i = 0; i < s->nodes; i++)
            json_real(&json, NULL, v->share[(size_t)k * s->nodes + i]);
        json_end(&json);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
}

bool report_json_end(int status)
{
    if (!json_is_open)
        return true;
    json_end(&json);
    json_i64(&json, "status", status);
    return json_close(&json);
}
