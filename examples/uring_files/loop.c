// One run: tenants and their requests, a scheduler, io_uring, counters and the log.
#include "uring_files.h"
#include <errno.h>
#include <liburing.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RING_ENTRIES 256u
#define BUFFER_ALIGN 4096u
#define BUFFERS_MAX_BYTES (UINT64_C(1) << 30)
/* Shortest sleep: one wake-up then serves several requests. The tokens gathered meanwhile are far below a burst, so
 * none is lost. */
#define NAP_NS 50000u
/* Requests are submitted in batches of four. The kernel holds a batch back until its last request is prepared (about 2
 * us each), and the device idles meanwhile. Compared with single submission, batches of 32 give 0.88 of the requests
 * per second; batches of four give 0.97, with a quarter less CPU. */
#define BATCH 4u
#define END_OF_FILE 0x7fff /* not an errno: a read found less data than expected */

/* One place of a tenant: it has one request at a time, then it is free for the next one. */
struct place {
    struct sched_request request; /* first */
    uint64_t turn_ns;             /* of the request, see tenant_turn_ns */
    uint64_t free_ns;             /* may be used from then on: the tenant thinks, or the last request failed */
    uint32_t done_bytes;          /* bytes of this request that earlier partial completions did */
    uint8_t *buffer;
    struct place *next; /* in the list of free places */
};

struct source {
    const struct tenant *tenant;
    const struct target *target;
    struct tenant_result *result;
    struct qos_rng rng, arrivals;
    uint64_t blocks, cursor, start_ns, waiting;
    struct place *place, *free, *last; /* free: in order of free_ns; last: of these */
    uint64_t wanted_ns;                /* with a rate: when its next request is wanted */
    uint64_t left_in_burst;            /* requests wanted at that time */
    uint64_t turn_ns, step_ns;         /* of its last request; tenant_turn_ns */
    bool started, fixed_buffers;
    uint64_t all_bytes, shown_bytes; /* for the progress display */
};

struct loop {
    const struct settings *s;
    const struct loop_options *o;
    struct run *run;
    const struct scheduler *scheduler;
    void *sched;
    struct io_uring ring;
    struct source source[TENANTS_MAX];
    uint64_t now_ns, end_ns, measure_from_ns, slice, full_since_ns, at_device, next_start_ns, shown_ns,
        last_completion_ns, last_round_ns;
    struct progress progress;
    struct live_run *live; /* --live, instead of the progress display; NULL: none */
    bool draining, fixed_files;
    uint8_t *memory;
};

uint64_t tenant_reserve_cost(const struct tenant *t)
{
    uint64_t r = tenant_uses(t, QOS_READ) ? qos_mul_div_ceil(t->reserve, t->cost[QOS_READ], t->bs) : 0;
    uint64_t w = tenant_uses(t, QOS_WRITE) ? qos_mul_div_ceil(t->reserve, t->cost[QOS_WRITE], t->bs) : 0;
    return qos_max(r, w);
}

uint64_t tenant_limit_cost(const struct tenant *t)
{
    uint64_t r = tenant_uses(t, QOS_READ) ? qos_mul_div_floor(t->limit, t->cost[QOS_READ], t->bs) : UINT64_MAX;
    uint64_t w = tenant_uses(t, QOS_WRITE) ? qos_mul_div_floor(t->limit, t->cost[QOS_WRITE], t->bs) : UINT64_MAX;
    if (t->limit == 0)
        return 0;
    return qos_max(qos_max(qos_min(r, w), tenant_reserve_cost(t)), 1);
}

uint64_t tenant_reserve_ops(const struct tenant *t)
{
    return qos_mul_div_ceil(t->reserve, 1, t->bs);
}

uint64_t tenant_limit_ops(const struct tenant *t)
{
    return t->limit ? qos_max(qos_max(t->limit / t->bs, tenant_reserve_ops(t)), 1) : 0;
}

/* ---- the log and the slices ------------------------------------------------------------------------------ */

static void log_event(struct loop *l, const struct sched_request *r, enum event_kind kind, int error)
{
    struct event_log *log = &l->run->log;
    struct event *e;
    if (!l->o->with_log || log->full)
        return;
    if (log->count == log->room) {
        if (log->room == LOG_EVENTS_MAX) {
            log->full = true;
            return;
        }
        log->room = log->room ? log->room * 2 : 65536;
        log->event = tool_grow(log->event, log->room * sizeof *log->event);
    }
    e = &log->event[log->count++];
    e->at_ns = kind == EVENT_ARRIVAL ? r->arrival_ns : l->now_ns;
    e->cost = (uint32_t)r->cost;
    e->tenant = (uint8_t)r->tenant;
    e->kind = (uint8_t)kind;
    e->error = (uint16_t)error;
    e->place = (uint32_t)((const struct place *)(const void *)r - l->source[r->tenant].place);
}

/* All places were taken until to_ns. */
static void note_full(struct loop *l, uint64_t to_ns)
{
    while (l->full_since_ns < to_ns) {
        uint64_t i = (l->full_since_ns - l->run->start_ns) / SLICE_NS, end_ns;
        if (i >= l->run->slices)
            return;
        end_ns = qos_min(to_ns, l->run->start_ns + (i + 1) * SLICE_NS);
        l->run->full_ns[i] += end_ns - l->full_since_ns;
        l->full_since_ns = end_ns;
    }
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

/* With a rate: when the burst after the present one is wanted. */
static void want_next(struct source *src)
{
    const struct tenant *t = src->tenant;
    double gap_ns = (double)t->burst * (double)t->bs / (double)t->rate * 1e9;
    if (!t->constant)
        gap_ns *= -log1p(-(double)(qos_rng_u64(&src->arrivals) >> 11) * 0x1p-53);
    src->wanted_ns += (uint64_t)gap_ns;
    src->left_in_burst = t->burst;
}

/* Puts a place back; a failure makes it rest longer than those before it, or shorter. */
static void free_place(struct source *src, struct place *p, uint64_t free_ns)
{
    struct place **at = src->last && src->last->free_ns <= free_ns ? &src->last->next : &src->free;
    p->free_ns = free_ns;
    while (*at && (*at)->free_ns <= free_ns)
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    if (!p->next)
        src->last = p;
}

/* When the tenant makes its next request; QOS_NEVER: a place must become free first. */
static uint64_t next_request_ns(const struct source *src)
{
    if (!src->free)
        return QOS_NEVER;
    return src->tenant->rate ? qos_max(src->free->free_ns, src->wanted_ns) : src->free->free_ns;
}

static void make_request(struct loop *l, struct source *src)
{
    const struct tenant *t = src->tenant;
    struct place *p = src->free;
    struct sched_request *r = &p->request;
    uint64_t left;
    src->free = p->next;
    if (!src->free)
        src->last = NULL;
    if (t->rw == RANDRW)
        r->op = qos_rng_below(&src->rng, 100) < t->write_percent ? QOS_WRITE : QOS_READ;
    if (access_random(t->rw)) {
        r->offset = qos_rng_below(&src->rng, src->blocks) * t->bs;
    } else {
        r->offset = src->cursor * t->bs;
        src->cursor = src->cursor + 1 < src->blocks ? src->cursor + 1 : 0;
    }
    r->cost = t->cost[r->op];
    /* It was wanted before now if no place was free, or this thread came late: that wait counts. */
    r->arrival_ns = t->rate ? src->wanted_ns : p->free_ns;
    left = src->result->arrived - src->result->completed - src->result->failed;
    src->turn_ns = qos_min(src->turn_ns + src->step_ns, l->now_ns + l->s->burst_ns + left * src->step_ns);
    src->turn_ns = qos_max(src->turn_ns, r->arrival_ns);
    p->turn_ns = src->turn_ns;
    p->done_bytes = 0;
    if (t->rate && --src->left_in_burst == 0)
        want_next(src);
    src->result->arrived++;
    log_event(l, r, EVENT_ARRIVAL, 0);
    src->waiting++;
    l->scheduler->submit(l->sched, r, l->now_ns);
}

/* Puts the remainder of a request into the ring. */
static void hand_over(struct loop *l, struct place *p)
{
    const struct source *src = &l->source[p->request.tenant];
    const struct sched_request *r = &p->request;
    uint32_t target = src->tenant->target;
    int fd = l->fixed_files ? (int)target : src->target->fd;
    uint8_t *buffer = p->buffer + p->done_bytes;
    unsigned len = r->len_bytes - p->done_bytes;
    uint64_t offset = r->offset + p->done_bytes;
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&l->ring)))
        io_uring_submit(&l->ring);
    if (src->fixed_buffers && r->op == QOS_READ)
        io_uring_prep_read_fixed(sqe, fd, buffer, len, offset, (int)r->tenant);
    else if (src->fixed_buffers)
        io_uring_prep_write_fixed(sqe, fd, buffer, len, offset, (int)r->tenant);
    else if (r->op == QOS_READ)
        io_uring_prep_read(sqe, fd, buffer, len, offset);
    else
        io_uring_prep_write(sqe, fd, buffer, len, offset);
    if (l->fixed_files)
        sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, p);
    if (io_uring_sq_ready(&l->ring) >= BATCH)
        io_uring_submit(&l->ring); /* entries not taken are submitted with the next wait */
}

static void dispatch(struct loop *l)
{
    struct sched_request *r;
    while ((r = l->scheduler->pop(l->sched, l->now_ns)) != NULL) {
        struct source *src = &l->source[r->tenant];
        r->dispatch_ns = l->now_ns;
        src->result->submitted++;
        src->waiting--;
        if (++l->at_device == l->o->dispatch_depth)
            l->full_since_ns = l->now_ns;
        if (l->at_device > l->run->at_device_max)
            l->run->at_device_max = l->at_device;
        log_event(l, r, EVENT_DISPATCH, 0);
        hand_over(l, (struct place *)r);
    }
}

static void note_error(struct loop *l, struct source *src, const struct sched_request *r, int error)
{
    int i;
    src->result->failed++;
    for (i = 0; i < ERRORS_SHOWN && src->result->errors[i] && src->result->error[i] != error; i++)
        ;
    if (i == ERRORS_SHOWN)
        return;
    if (src->result->errors[i]++ == 0) {
        src->result->error[i] = error;
        if (l->o->hush)
            return;
        progress_end(&l->progress);
        tool_warn("tenant %s: %s of %u bytes at %" PRIu64 " of %s: %s; counted as failed, the others go on",
                  src->tenant->name, r->op == QOS_READ ? "read" : "write", r->len_bytes, r->offset, src->target->path,
                  error == END_OF_FILE ? "end of file: it is shorter than it was at the start" : strerror(error));
    }
}

/* A request that was wanted at `arrival` is done now, or will never be: was it in time? */
static void note_time(struct loop *l, struct source *src, uint64_t arrival_ns, uint64_t turn_ns)
{
    bool late = l->now_ns > turn_ns + src->tenant->due_ns;
    if (!src->tenant->due_ns)
        return;
    if (arrival_ns >= l->measure_from_ns)
        *(late ? &src->result->late : &src->result->timely) += 1;
    if (l->slice < l->run->slices)
        *(late ? &src->result->slice[l->slice].late : &src->result->slice[l->slice].timely) += 1;
}

/* At the end: requests that were wanted and had no place count, if they are late by now. */
static void note_unmade(struct loop *l, struct source *src)
{
    while (src->started && src->tenant->rate && src->tenant->due_ns) {
        src->turn_ns = qos_max(src->wanted_ns, src->turn_ns + src->step_ns);
        if (src->turn_ns + src->tenant->due_ns >= l->now_ns)
            return;
        note_time(l, src, src->wanted_ns, src->turn_ns);
        if (--src->left_in_burst == 0)
            want_next(src);
    }
}

/* A request has ended; its place is free for the next one. */
static void finish(struct loop *l, struct place *p, int error)
{
    struct sched_request *r = &p->request;
    struct source *src = &l->source[r->tenant];
    uint64_t served_ns = qos_elapsed_ns(qos_max(r->dispatch_ns, l->last_completion_ns), l->now_ns);
    l->last_completion_ns = l->now_ns;
    src->result->served_ns += served_ns;
    src->result->served_max_ns = qos_max(src->result->served_max_ns, served_ns);
    if (l->at_device-- == l->o->dispatch_depth)
        note_full(l, l->now_ns);
    l->scheduler->complete(l->sched, r, error == 0, l->now_ns);
    log_event(l, r, error ? EVENT_FAILED : EVENT_DONE, error);
    if (error) {
        note_error(l, src, r, error);
        free_place(src, p, l->now_ns + FAILED_REST_NS);
        return;
    }
    src->result->completed++;
    if (r->arrival_ns >= l->measure_from_ns)
        hist_add(&src->result->latency, qos_elapsed_ns(r->arrival_ns, l->now_ns));
    note_time(l, src, r->arrival_ns, p->turn_ns);
    if (l->live)
        live_run_note(l->live, r->tenant, r->len_bytes, qos_elapsed_ns(r->arrival_ns, l->now_ns));
    if (l->draining)
        return;
    src->all_bytes += r->len_bytes;
    if (l->now_ns >= l->measure_from_ns) {
        src->result->bytes += r->len_bytes;
        src->result->cost += r->cost;
    }
    if (l->slice < l->run->slices) {
        struct slice *slice = &src->result->slice[l->slice];
        slice->bytes += r->len_bytes;
        slice->cost += r->cost;
        slice->ios++;
    }
    free_place(src, p, l->now_ns + src->tenant->think_ns);
    if (next_request_ns(src) <= l->now_ns)
        make_request(l, src);
}

/* Handles a completion: the whole request, a part, or an error. */
static void complete(struct loop *l, struct place *p, int result)
{
    struct source *src = &l->source[p->request.tenant];
    uint32_t left = p->request.len_bytes - p->done_bytes, got = result > 0 ? (uint32_t)result : 0;
    if (got == left) {
        finish(l, p, 0);
    } else if (result == -EAGAIN || result == -EINTR) {
        hand_over(l, p);
    } else if (result < 0) {
        finish(l, p, -result);
    } else if (got / src->target->align == 0) { /* under O_DIRECT the remainder begins at a block boundary */
        finish(l, p, p->request.op == QOS_READ ? END_OF_FILE : ENOSPC);
    } else {
        src->result->short_ios++;
        p->done_bytes += got / src->target->align * src->target->align;
        hand_over(l, p);
    }
}

/* ---- set-up ------------------------------------------------------------------------------------------------ */

static bool open_ring(struct loop *l, uint32_t places)
{
    static const unsigned flag_sets[] = {IORING_SETUP_COOP_TASKRUN,
                                         0}; /* no interrupt for a completion: 10 % less CPU */
    struct io_uring_params params;
    size_t i;
    int rc = -EINVAL;
    for (i = 0; i < sizeof flag_sets / sizeof *flag_sets && rc == -EINVAL; i++) {
        memset(&params, 0, sizeof params);
        params.flags = flag_sets[i] | IORING_SETUP_CQSIZE;
        params.cq_entries = places < RING_ENTRIES ? RING_ENTRIES : places;
        rc = io_uring_queue_init_params(RING_ENTRIES, &l->ring, &params);
    }
    if (rc == -EPERM || rc == -ENOSYS)
        tool_warn("io_uring is not available (%s): the kernel is too old, or a seccomp filter or "
                  "kernel.io_uring_disabled forbids it",
                  strerror(-rc));
    else if (rc < 0)
        tool_warn("io_uring: %s", strerror(-rc));
    return rc >= 0;
}

static bool open_places(struct loop *l)
{
    struct iovec part[TENANTS_MAX] = {{NULL, 0}};
    int fd[TENANTS_MAX + 1] = {0};
    uint64_t total = 0, at = 0;
    uint32_t i, k, places = 0;
    static bool told;
    int rc;
    for (i = 0; i < l->o->tenants; i++) {
        const struct tenant *t = &l->o->tenant[i];
        part[i].iov_len = t->depth * ((t->bs + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN);
        total += part[i].iov_len;
        places += (uint32_t)t->depth;
    }
    if (places > DEPTH_MAX || total > BUFFERS_MAX_BYTES) {
        tool_warn("the tenants' depths and blocks ask for %u requests and %s of buffers; at most %u and 1 GiB", places,
                  human_bytes((double)total).text, DEPTH_MAX);
        return false;
    }
    if (!open_ring(l, places))
        return false;
    l->memory = tool_alloc_aligned(total, BUFFER_ALIGN);
    for (i = 0; i < l->o->tenants; at += part[i].iov_len, i++)
        part[i].iov_base = l->memory + at;
    for (i = 0; i < l->s->targets; i++)
        fd[i] = l->s->target[i].fd;
    l->fixed_files = io_uring_register_files(&l->ring, fd, l->s->targets) == 0;
    rc = io_uring_register_buffers(&l->ring, part, l->o->tenants);
    if (rc < 0 && !told)
        tool_warn("buffers not registered (%s%s): slightly more CPU per request", strerror(-rc),
                  rc == -ENOMEM ? "; raise ulimit -l" : "");
    told |= rc < 0;
    for (i = 0; i < l->o->tenants; i++) {
        struct source *src = &l->source[i];
        const struct tenant *t = &l->o->tenant[i];
        uint8_t *buffer = part[i].iov_base;
        uint64_t b;
        src->tenant = t;
        src->target = &l->s->target[t->target];
        src->blocks = (t->area ? qos_min(t->area, src->target->size_bytes) : src->target->size_bytes) / t->bs;
        src->fixed_buffers = rc == 0;
        src->place = tool_alloc(t->depth * sizeof *src->place);
        src->step_ns = tenant_turn_ns(t);
        qos_rng_seed(&src->rng, l->s->seed * 1000003 + i);
        qos_rng_seed(&src->arrivals, l->s->seed * 1000003 + i + TENANTS_MAX);
        for (b = 0; tenant_uses(t, QOS_WRITE) && b + 8 <= part[i].iov_len; b += 8)
            qos_put_le64(buffer + b, qos_rng_u64(&src->rng));
        for (k = 0; k < t->depth; k++) {
            src->place[k].buffer = buffer + k * (part[i].iov_len / t->depth);
            src->place[k].request.tenant = i;
            src->place[k].request.op = tenant_uses(t, QOS_READ) ? QOS_READ : QOS_WRITE;
            src->place[k].request.len_bytes = (uint32_t)t->bs;
            free_place(src, &src->place[k], 0);
        }
    }
    return true;
}

static void explain_refusal(const struct loop *l, const struct sched_refusal *refusal)
{
    const struct tenant *t;
    uint64_t cost, others = 0;
    uint32_t i;
    if (refusal->tenant == UINT32_MAX) {
        tool_warn("%s: %s", l->scheduler->name, refusal->why);
        return;
    }
    t = &l->o->tenant[refusal->tenant];
    cost =
        qos_max(tenant_uses(t, QOS_READ) ? t->cost[QOS_READ] : 0, tenant_uses(t, QOS_WRITE) ? t->cost[QOS_WRITE] : 0);
    for (i = 0; i < refusal->tenant; i++)
        others += tenant_reserve_cost(&l->o->tenant[i]);
    tool_warn("tenant %s: reserve=%" PRIu64 " (%s) is not admitted: %s would fit, as the file sustains %s of device "
              "time a second, and the tenants before reserve %s of it",
              t->name, t->reserve, human_rate((double)t->reserve).text,
              human_rate((double)qos_mul_div_floor(refusal->fits_cost_per_s, t->bs, cost)).text,
              human_ns((double)l->o->root_cost_per_s).text, human_ns((double)others).text);
}

static bool open_scheduler(struct loop *l)
{
    struct sched_tenant tenant[TENANTS_MAX];
    struct sched_config config;
    struct sched_refusal refusal;
    uint32_t i;
    memset(tenant, 0, sizeof tenant);
    for (i = 0; i < l->o->tenants; i++) {
        const struct tenant *t = &l->o->tenant[i];
        tenant[i].name = t->name;
        tenant[i].reserve_cost_per_s = tenant_reserve_cost(t);
        tenant[i].limit_cost_per_s = tenant_limit_cost(t);
        tenant[i].reserve_ops_per_s = tenant_reserve_ops(t);
        tenant[i].limit_ops_per_s = tenant_limit_ops(t);
        tenant[i].weight = (uint32_t)t->weight;
        tenant[i].latency_ns = t->due_ns;
    }
    memset(&config, 0, sizeof config);
    config.tenant = tenant;
    config.tenants = l->o->tenants;
    config.dispatch_depth = (uint32_t)l->o->dispatch_depth;
    config.root_cost_per_s = l->o->root_cost_per_s;
    config.burst_ns = l->s->burst_ns;
    config.now_ns = l->run->start_ns;
    config.maximizer = l->s->maximizer;
    config.flight = l->s->flight;
    config.elevator = l->s->order == 1;
    memset(&refusal, 0, sizeof refusal);
    l->sched = l->scheduler->open(&config, &refusal);
    if (!l->sched)
        explain_refusal(l, &refusal);
    return l->sched != NULL;
}

/* ---- the loop ---------------------------------------------------------------------------------------------- */

static void show_progress(struct loop *l)
{
    char line[400] = "";
    size_t at = 0;
    uint32_t i;
    double s = (double)(l->now_ns - (l->shown_ns ? l->shown_ns : l->run->start_ns)) / 1e9;
    for (i = 0; i < l->o->tenants && at < sizeof line - 48; i++) {
        struct source *src = &l->source[i];
        double rate = s > 0 ? (double)(src->all_bytes - src->shown_bytes) / s : 0;
        at += (size_t)snprintf(line + at, sizeof line - at, "  %.20s %s", src->tenant->name, human_rate(rate).text);
        src->shown_bytes = src->all_bytes;
    }
    l->shown_ns = l->now_ns;
    progress_show(&l->progress, "%s %4.1f/%.0f s %s", l->o->label, (double)(l->now_ns - l->run->start_ns) / 1e9,
                  (double)l->o->duration_ns / 1e9, line);
}

/* For the live view: the scheduler's own answer, or an estimate. */
static const char *tenant_waits(void *of, uint32_t tenant, uint64_t *since_ns)
{
    struct loop *l = of;
    const struct source *src = &l->source[tenant];
    uint32_t k;
    if (!src->started)
        return "its start";
    if (src->waiting == 0)
        return "nothing";
    *since_ns = l->now_ns;
    for (k = 0; k < src->tenant->depth; k++) {
        const struct sched_request *r = &src->place[k].request;
        if (r->dispatch_ns < r->arrival_ns && r->arrival_ns < *since_ns)
            *since_ns = r->arrival_ns;
    }
    if (l->scheduler->waits)
        return l->scheduler->waits(l->sched, tenant);
    return l->o->dispatch_depth && l->at_device >= l->o->dispatch_depth ? "the device" : "the scheduler";
}

/* Starts tenants that are due, and makes the requests that are. */
static void wake(struct loop *l)
{
    uint32_t i, k;
    if (l->now_ns >= l->next_start_ns) {
        l->next_start_ns = QOS_NEVER;
        for (i = 0; i < l->o->tenants; i++) {
            struct source *src = &l->source[i];
            if (!src->started && src->start_ns <= l->now_ns) {
                src->started = true;
                src->wanted_ns = l->now_ns;
                src->left_in_burst = src->tenant->burst;
                for (k = 0; k < src->tenant->depth; k++)
                    src->place[k].free_ns = l->now_ns;
            } else if (!src->started) {
                l->next_start_ns = qos_min(l->next_start_ns, src->start_ns);
            }
        }
    }
    for (i = 0; i < l->o->tenants; i++)
        while (l->source[i].started && next_request_ns(&l->source[i]) <= l->now_ns)
            make_request(l, &l->source[i]);
}

static uint64_t next_time(struct loop *l)
{
    uint64_t next = qos_min(l->end_ns, l->next_start_ns);
    uint32_t i;
    for (i = 0; i < l->o->tenants; i++)
        if (l->source[i].started)
            next = qos_min(next, next_request_ns(&l->source[i]));
    if (l->live)
        next = qos_min(next, live_run_next_ns(l->live));
    else if (!l->o->quiet)
        next = qos_min(next, l->progress.next_ns);
    return qos_min(next, l->scheduler->next_ns(l->sched, l->now_ns));
}

uint64_t run_mean_depth(const struct run *run)
{
    uint64_t ns = qos_max(qos_sat_sub(run->elapsed_ns, run->all_run_ns), 1);
    return qos_max((run->at_device_ns + ns / 2) / ns, 1);
}

/* Handles completions; then, while tenants run, dispatches more. */
static void one_round(struct loop *l)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    if (!l->draining && (l->now_ns >= l->end_ns || stop_asked())) {
        uint32_t i;
        l->draining = true;
        l->run->stopped = l->now_ns < l->end_ns;
        l->run->elapsed_ns = l->now_ns - l->run->start_ns;
        for (i = 0; i < l->o->tenants; i++)
            note_unmade(l, &l->source[i]);
    }
    l->slice = (l->now_ns - l->run->start_ns) / SLICE_NS;
    if (!l->draining && l->last_round_ns >= l->measure_from_ns)
        l->run->at_device_ns += l->at_device * (l->now_ns - l->last_round_ns);
    l->last_round_ns = l->now_ns;
    io_uring_for_each_cqe(&l->ring, head, cqe)
    {
        complete(l, io_uring_cqe_get_data(cqe), cqe->res);
        n++;
    }
    io_uring_cq_advance(&l->ring, n);
    if (l->draining)
        return;
    wake(l);
    dispatch(l);
}

static bool loop_run(struct loop *l)
{
    for (;;) {
        struct __kernel_timespec ts;
        struct io_uring_cqe *cqe;
        uint64_t next, wait;
        int rc;
        l->now_ns = tool_now_ns();
        one_round(l);
        if (l->draining && l->at_device == 0)
            return true;
        next = l->draining ? l->now_ns + QOS_NS_PER_S : next_time(l);
        wait = qos_max(qos_elapsed_ns(l->now_ns, next), NAP_NS);
        ts.tv_sec = (int64_t)(wait / QOS_NS_PER_S);
        ts.tv_nsec = (int64_t)(wait % QOS_NS_PER_S);
        rc = io_uring_submit_and_wait_timeout(&l->ring, &cqe, 1, &ts, NULL);
        if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            tool_warn("io_uring: %s", strerror(-rc));
            return false;
        }
        if (l->live && l->now_ns >= live_run_next_ns(l->live))
            live_run_show(l->live, l->now_ns, tenant_waits, l);
        else if (!l->live && !l->o->quiet && progress_due(&l->progress, l->now_ns))
            show_progress(l);
    }
}

/* The time in which this thread has waited for a processor. */
static uint64_t cpu_wait_ns(void)
{
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    char line[128] = "", *wait = NULL; /* time on a processor, time waiting for one, slices */
    if (f && fgets(line, sizeof line, f))
        wait = strchr(line, ' ');
    if (f)
        fclose(f);
    return wait ? strtoull(wait, NULL, 10) : 0;
}

static void open_run(struct loop *l)
{
    struct run *run = l->run;
    uint32_t i;
    memset(run, 0, sizeof *run);
    run->scheduler = l->scheduler;
    run->label = l->o->label;
    run->tenants = l->o->tenants;
    run->dispatch_depth = l->o->dispatch_depth;
    run->slices = (uint32_t)((l->o->duration_ns + SLICE_NS - 1) / SLICE_NS);
    run->full_ns = tool_alloc(run->slices * sizeof *run->full_ns);
    run->result = tool_alloc(run->tenants * sizeof *run->result);
    for (i = 0; i < run->tenants; i++) {
        hist_clear(&run->result[i].latency);
        run->result[i].slice = tool_alloc(run->slices * sizeof *run->result[i].slice);
        l->source[i].result = &run->result[i];
    }
    progress_init(&l->progress, l->s->progress);
}

static void close_run(struct loop *l, uint64_t cpu_ns)
{
    uint32_t i;
    l->run->cpu_ns = tool_cpu_ns() - cpu_ns;
    l->run->cpu_wait_ns = cpu_wait_ns() - l->run->cpu_wait_ns;
    l->run->root_end = l->scheduler->root_rate ? l->scheduler->root_rate(l->sched) : 0;
    if (!scheduler_htb_flight(l->scheduler, l->sched, &l->run->flight_bound_ns, &l->run->flight_by))
        l->run->flight_bound_ns = 0;
    for (i = 0; i < l->o->tenants; i++) {
        l->scheduler->stats(l->sched, i, &l->run->result[i].stats);
        l->run->ios += l->run->result[i].completed;
    }
    if (!l->o->quiet)
        progress_end(&l->progress);
}

bool run_tenants(const struct settings *s, const struct loop_options *o, struct run *run)
{
    struct loop *l = tool_alloc(sizeof *l);
    uint64_t cpu_ns;
    uint32_t i;
    bool ok = false, ring;
    l->s = s;
    l->o = o;
    l->run = run;
    l->scheduler = o->scheduler;
    open_run(l);
    ring = open_places(l);
    run->start_ns = tool_now_ns();
    if (ring && open_scheduler(l)) {
        l->end_ns = run->start_ns + o->duration_ns;
        l->progress.next_ns = run->start_ns + (l->progress.live ? 200000000 : 2 * QOS_NS_PER_S);
        for (i = 0; i < o->tenants; i++) {
            l->source[i].start_ns = run->start_ns + (o->ignore_start ? 0 : o->tenant[i].start_ns);
            l->measure_from_ns = qos_max(l->measure_from_ns, l->source[i].start_ns);
        }
        run->all_run_ns = l->measure_from_ns - run->start_ns;
        if (s->live && !o->quiet && !o->hush)
            l->live = live_run_new(o, run->start_ns);
        cpu_ns = tool_cpu_ns();
        run->cpu_wait_ns = cpu_wait_ns();
        ok = loop_run(l);
        close_run(l, cpu_ns);
        l->scheduler->close(l->sched);
    }
    if (ring)
        io_uring_queue_exit(&l->ring);
    for (i = 0; i < o->tenants; i++)
        free(l->source[i].place);
    live_run_free(l->live);
    free(l->memory);
    free(l);
    run->failed = !ok;
    return ok;
}

void run_free(struct run *run)
{
    uint32_t i;
    for (i = 0; run->result && i < run->tenants; i++)
        free(run->result[i].slice);
    free(run->result);
    free(run->full_ns);
    free(run->log.event);
    memset(run, 0, sizeof *run);
}
