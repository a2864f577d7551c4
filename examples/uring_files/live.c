// The live view (--live) of a run: what each tenant gets, what was promised to it, and what it waits for.
#include "uring_files.h"
#include <stdlib.h>

struct live_run {
    const struct loop_options *o;
    struct live *view;
    uint64_t start_ns, shown_ns, next_ns;
    struct live_row *row;
    struct live_tenant {
        uint64_t bytes; /* since the last display, as is the latency */
        struct hist latency;
    } tenant[];
};

struct live_run *live_run_new(const struct loop_options *o, uint64_t now_ns)
{
    struct live_run *v = tool_alloc(sizeof *v + o->tenants * sizeof v->tenant[0]);
    uint32_t i;
    v->o = o;
    v->view = live_new(stderr, human_rate);
    v->row = tool_alloc(o->tenants * sizeof *v->row);
    v->start_ns = v->shown_ns = now_ns;
    v->next_ns = now_ns + live_every_ns(v->view);
    for (i = 0; i < o->tenants; i++)
        hist_clear(&v->tenant[i].latency);
    return v;
}

void live_run_free(struct live_run *v)
{
    if (!v)
        return;
    live_free(v->view);
    free(v->row);
    free(v);
}

uint64_t live_run_next_ns(const struct live_run *v)
{
    return v->next_ns;
}

void live_run_note(struct live_run *v, uint32_t tenant, uint64_t bytes, uint64_t latency_ns)
{
    v->tenant[tenant].bytes += bytes;
    hist_add(&v->tenant[tenant].latency, latency_ns);
}

void live_run_show(struct live_run *v, uint64_t now_ns, live_waits *waits, void *of)
{
    const double seconds = (double)qos_elapsed_ns(v->shown_ns, now_ns) / 1e9;
    char heading[64];
    uint32_t i;
    for (i = 0; i < v->o->tenants; i++) {
        struct live_tenant *t = &v->tenant[i];
        struct live_row *row = &v->row[i];
        uint64_t since_ns = QOS_NEVER;
        row->name = v->o->tenant[i].name;
        row->got = seconds > 0 ? (double)t->bytes / seconds : 0;
        row->reserve = v->o->tenant[i].reserve;
        row->limit = v->o->tenant[i].limit;
        row->p99_ns = hist_quantile(&t->latency, 0.99);
        row->waits = waits(of, i, &since_ns);
        row->waits_ns = since_ns == QOS_NEVER ? UINT64_MAX : qos_elapsed_ns(since_ns, now_ns);
        t->bytes = 0;
        hist_clear(&t->latency);
    }
    snprintf(heading, sizeof heading, "%.20s %.1f of %.0f s", v->o->label,
             (double)qos_elapsed_ns(v->start_ns, now_ns) / 1e9, (double)v->o->duration_ns / 1e9);
    live_show(v->view, heading, v->row, v->o->tenants);
    v->shown_ns = now_ns;
    v->next_ns = now_ns + live_every_ns(v->view);
}
