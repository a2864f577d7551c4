// A storage node: generates its buckets' load, paces the backend, picks by tokens, reports, installs grants.
//
// One thread, one tick a millisecond (shorter for capacities above 2,000 a second). A tick handles mail, completions,
// arrivals, due reports, and picks for the due slots. The node sleeps between ticks, so a few requests share one
// wake-up.
//
// Pacing. A slot is the right to one request; exactly --capacity slots come per second. If no request can use a slot
// (none has a token, and none is at the backend), it is idle and expires. If this process or the backend was late, the
// slot is kept, up to BURST_NS worth; beyond that it is lost. served + idle + lost + kept = slots. The judge counts a
// period if almost nothing was lost.
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include "draw.h"
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TICK_NS 1000000
#define TICK_SLOTS 2   /* longest tick, in slots */
#define POLL_NS 200000 /* between polls for a grant that is due */
#define BURST_NS 100000000
#define STALLED_NS 50000000 /* the backend has requests and has finished none for this long */
#define DRAIN_NS (3 * QOS_NS_PER_S)
#define KEY_ZIPF 0.99 /* as YCSB's */
#define NO_PICK UINT32_MAX
#define LOOK_GRANTS 1024 /* taken before the queues are checked again */

struct local {              /* a bucket on this node */
    uint32_t window;        /* closed: outstanding requests */
    uint32_t rate;          /* open: requests per period */
    uint64_t from_ns, came; /* open: start of this rate, moved by a random head start; arrivals since */
    uint32_t at_backend;
    uint64_t base; /* served when the agent began its period */
    uint64_t told; /* demand in the round's report */
};

static struct {
    uint32_t me;
    const struct backend *backend;
    struct scene s;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    void *scheduler_mem, *agent_mem, *wire;
    size_t wire_bytes;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    struct local *local;
    struct qos_rng rng;
    double *zipf; /* [zipf_n + 1] */
    uint64_t zipf_n;
    uint64_t now_ns, origin_ns, begin_ns, interval_ns;
    uint64_t period;  /* 1 is the warm-up, 2 the first that is judged; a process: the agent's */
    uint64_t adopted; /* the agent's period: its tokens count there */
    uint64_t ends_ns; /* of the agent's grants; 0: it has none in its period */
    uint32_t round, next_phase;
    bool granted, ended;
    /* pacing */
    uint64_t used, lost; /* slots since the origin; used: all but the kept ones */
    uint64_t at_backend, finished_ns;
    uint64_t last_report_ns, report_accrued, report_lost, sent_ns, told_capacity, told_left_ns;
    bool waiting; /* for a grant */
    struct request *spare, *again;
    struct log_pick *pick;
    struct log_install *install;
    struct log_period *log, current;
    size_t picks, pick_room, installs, install_room, logs;
    uint64_t cpu_ns, backend_cpu_ns;
    bool fault_done[FAULTS_MAX];
    uint64_t faulty_until_ns;
    /* a process without MPI */
    bool serves;
    uint64_t next_report_ns;
    int journal;
    uint32_t *picked;  /* [buckets] since the journal was written */
    uint64_t stood_ns; /* the longest time between two polls in this period */
} n;

static uint64_t us(uint64_t at_ns)
{
    return (at_ns - n.origin_ns) / 1000;
}

/* One queue of the scheduler; the agent gave bucket i queue i. */
static struct pshift_scheduler_state queue(uint32_t bucket)
{
    struct pshift_scheduler_state state = {0};
    (void)pshift_scheduler_info(&n.scheduler, bucket, &state);
    return state;
}

static void must(enum qos_status st)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "node %u: %s", n.me + 1, qos_strerror(st));
}

/* ---- load ------------------------------------------------------------------------------------------------- */

static void zipf_table(uint64_t objects)
{
    if (objects == n.zipf_n)
        return;
    free(n.zipf);
    n.zipf_n = objects;
    n.zipf = tool_alloc((objects + 1) * sizeof *n.zipf);
    draw_zipf_sums(n.zipf, objects, KEY_ZIPF);
}

/* A bucket owns every buckets-th object of the node; one is chosen by Zipf's law (memcached) or uniformly. */
static uint64_t draw_object(uint32_t bucket)
{
    uint64_t objects = backend_objects(n.backend);
    if (!n.backend->keyed)
        return qos_rng_below(&n.rng, objects);
    return (draw_zipf(n.zipf, n.zipf_n, qos_rng_u64(&n.rng)) * n.s.buckets + bucket) % objects;
}

/* Closed: fills the window again. */
static void refill(uint32_t bucket)
{
    struct local *b = &n.local[bucket];
    uint64_t out = queue(bucket).pending + b->at_backend;
    if (out < b->window)
        must(pshift_scheduler_arrive(&n.scheduler, bucket, b->window - out));
}

static void arrivals(void)
{
    uint32_t i;
    if (!n.s.open)
        return;
    for (i = 0; i < n.s.buckets; i++) {
        struct local *b = &n.local[i];
        uint64_t due = b->rate ? qos_mul_div_floor(b->rate, n.now_ns - b->from_ns, n.s.period_ns) : 0;
        if (due > b->came)
            must(pshift_scheduler_arrive(&n.scheduler, i, due - b->came));
        b->came = qos_max(b->came, due);
    }
}

static void enter_phase(const struct phase *p)
{
    struct local *b = &n.local[p->bucket];
    uint32_t rate = p->rate[n.me];
    if (n.s.open) {
        b->rate = rate;
        b->came = 0;
        b->from_ns = n.now_ns - (rate ? qos_rng_below(&n.rng, n.s.period_ns / rate + 1) : 0);
        return;
    }
    b->window = rate;
    if (rate)
        refill(p->bucket);
    else /* its clients moved away and withdraw what still waits here */
        must(pshift_scheduler_cancel(&n.scheduler, p->bucket, queue(p->bucket).pending));
}

static uint64_t scene_ns(void)
{
    if (n.period < 2)
        return 0;
    return (n.period - 2) * n.s.period_ns + qos_min(n.now_ns - n.begin_ns, n.s.period_ns - 1);
}

static void phases(void)
{
    uint64_t at = scene_ns();
    for (; n.next_phase < n.s.phases && n.s.phase[n.next_phase].at_ns <= at; n.next_phase++)
        enter_phase(&n.s.phase[n.next_phase]);
}

/* ---- pacing and picking ---------------------------------------------------------------------------------------- */

static uint64_t accrued(void)
{
    return qos_mul_div_floor(n.now_ns - n.origin_ns, n.s.capacity, QOS_NS_PER_S);
}

static void log_pick(struct request *r, const struct pshift_pick *p)
{
    struct log_pick *l;
    r->pick = NO_PICK;
    if (n.serves)
        n.picked[p->queue]++;
    if (n.period < 2 || n.serves)
        return;
    if (n.picks == n.pick_room) {
        n.pick_room = n.pick_room * 2 + 16384;
        n.pick = tool_grow(n.pick, n.pick_room * sizeof *n.pick);
    }
    r->pick = (uint32_t)n.picks;
    l = &n.pick[n.picks++];
    l->at_us = us(n.now_ns);
    l->done_us = 0;
    l->bucket = p->queue;
    l->period = (n.s.qos ? n.adopted : n.period) - 2;
    l->reserved = p->backing == PSHIFT_RESERVATION;
    l->ended = n.s.qos && n.now_ns >= n.ends_ns;
}

static struct request *new_request(const struct pshift_pick *p)
{
    struct request *r = n.spare;
    if (r)
        n.spare = r->next;
    else
        r = tool_alloc(sizeof *r);
    r->bucket = p->queue;
    r->object = draw_object(p->queue);
    r->set = (qos_rng_u64(&n.rng) & 1) != 0;
    log_pick(r, p);
    n.local[p->queue].at_backend++;
    n.at_backend++;
    return r;
}

/* Written before the requests are served: a line for each bucket, with the period and the count. It survives this
 * process. */
static void write_journal(void)
{
    static char text[64 * 1024];
    size_t used = 0;
    uint32_t i;
    for (i = 0; i < n.s.buckets; i++) {
        if (n.picked[i] && used + 64 < sizeof text)
            used += (size_t)snprintf(text + used, 64, "%" PRIu64 " %u %u\n", n.period, i + 1, n.picked[i]);
        n.picked[i] = 0;
    }
    if (n.journal >= 0 && write(n.journal, text, used) != (ssize_t)used)
        tool_die(TOOL_FAILED, "%s: cannot be written", settings.journal);
}

/* A line with bucket 0: slots of the last period that were not used although requests waited, as this machine was too
 * busy or no grant had come; and the longest time in us between two polls of the node. */
static void write_lost(void)
{
    char text[96];
    int used = snprintf(text, sizeof text, "%" PRIu64 " 0 %" PRIu64 " %" PRIu64 "\n", n.period, n.current.lost,
                        n.stood_ns / 1000);
    n.stood_ns = 0;
    if (n.journal >= 0 && n.period && write(n.journal, text, (size_t)used) != used)
        tool_die(TOOL_FAILED, "%s: cannot be written", settings.journal);
}

static void dispatch(void)
{
    struct request *first = NULL, **end = &first;
    uint64_t kept = accrued() - n.used, most = qos_mul_div_floor(BURST_NS, n.s.capacity, QOS_NS_PER_S) + 1;
    bool ready = n.backend->ready();
    enum qos_status st = QOS_OK;
    struct pshift_pick p;
    if (kept > most) {
        n.lost += kept - most;
        n.current.lost += kept - most;
        n.used += kept - most;
        kept = most;
    }
    while (ready && kept > 0 && n.at_backend < n.backend->depth && !n.ended) {
        st = pshift_scheduler_pick(&n.scheduler, n.now_ns, &p);
        if (st != QOS_OK)
            break;
        *end = new_request(&p);
        end = &(*end)->next;
        kept--;
        n.used++;
        n.current.served++;
    }
    *end = NULL;
    if (first && n.serves)
        write_journal();
    if (first)
        n.backend->submit(first);
    if (st != QOS_OK && n.at_backend == 0 && n.granted) { /* no request can use them */
        n.current.idle += kept;
        n.used += kept;
    }
}

static void finish(void)
{
    struct request *r = n.backend->collect(), *next;
    for (; r; r = next) {
        next = r->next;
        if (r->failed) {
            n.current.failed++;
            r->next = n.again;
            n.again = r;
            continue;
        }
        n.current.wrong += r->wrong;
        n.finished_ns = n.now_ns;
        if (r->pick != NO_PICK)
            n.pick[r->pick].done_us = us(n.now_ns);
        n.local[r->bucket].at_backend--;
        n.at_backend--;
        if (!n.s.open)
            refill(r->bucket);
        r->next = n.spare;
        n.spare = r;
    }
    if (n.at_backend == 0)
        n.finished_ns = n.now_ns;
    if (n.again && n.backend->ready()) {
        n.backend->submit(n.again);
        n.again = NULL;
    }
}

static bool healthy(void)
{
    return n.backend->ready() && n.now_ns - n.finished_ns < STALLED_NS;
}

/* ---- reports and grants ---------------------------------------------------------------------------------------- */

/* The number of requests that the node expects to serve until the end of the period: the last interval's used or
 * usable slots, extrapolated; 0 while the backend does not answer. With --lead, tokens are planned to be spent that
 * many intervals before the end, because the plan cannot follow demand that moves in the last interval. */
static uint64_t expect_capacity(uint64_t interval_ns, uint64_t remaining_ns)
{
    uint64_t all = accrued(), usable, lead_ns = (uint64_t)(settings.lead * (double)n.interval_ns);
    remaining_ns =
        remaining_ns > lead_ns + n.interval_ns ? remaining_ns - lead_ns : qos_min(remaining_ns, n.interval_ns);
    usable = qos_sat_sub(all - n.report_accrued, n.lost - n.report_lost);
    n.report_accrued = all;
    n.report_lost = n.lost;
    if (!healthy())
        return 0;
    return qos_min(interval_ns ? qos_mul_div_ceil(usable, remaining_ns, interval_ns) : 0,
                   qos_mul_div_floor(n.s.capacity, remaining_ns, QOS_NS_PER_S));
}

static uint64_t remaining(void)
{
    const uint64_t left_ns = qos_sat_sub(n.begin_ns + n.s.period_ns, n.now_ns);
    return n.serves && left_ns == 0 ? n.s.period_ns : left_ns; /* the next period begins any moment */
}

/* A closed bucket with a full window could use all that the node can serve: its arrivals follow its service, so they
 * do not measure its demand. An open bucket: the agent's estimate from waiting and arrived requests. */
static void report(bool answer)
{
    uint64_t since = n.now_ns - n.last_report_ns;
    struct pshift_message m;
    size_t bytes;
    uint32_t k;
    if (!answer)
        pshift_agent_measure(&n.agent, n.now_ns);
    if (pshift_agent_report(&n.agent, &m, n.entry, n.s.buckets) != QOS_OK)
        return; /* nothing new to report */
    if (!answer) {
        n.told_left_ns = remaining();
        n.told_capacity = expect_capacity(since, n.told_left_ns);
    }
    m.capacity = n.told_left_ns ? qos_mul_div_floor(n.told_capacity, remaining(), n.told_left_ns) : 0;
    for (k = 0; k < m.count; k++) {
        struct pshift_report_entry *e = &n.entry[k];
        uint32_t bucket = (uint32_t)e->bucket;
        struct local *b = &n.local[bucket];
        if (answer) {
            e->demand = b->told;
        } else if (!n.s.open && b->window) {
            if (queue(bucket).pending + b->at_backend >= b->window)
                e->demand = qos_max(e->demand, qos_mul_div_ceil(n.s.capacity, remaining(), QOS_NS_PER_S));
        } else if (!n.s.open) {
            e->demand = queue(bucket).pending;
        }
        b->told = e->demand;
    }
    if (n.serves) { /* to every controller */
        must(pshift_report_encode(&m, n.entry, n.wire, n.wire_bytes, &bytes));
        for (k = 0; k < CONTROLLERS_MAX; k++)
            mail_send((int)k, MAIL_REPORT, n.wire, bytes);
    } else {
        must(pshift_report_encode(&m, n.entry, n.wire, n.wire_bytes, &bytes));
        mail_send(0, MAIL_REPORT + 2 * (int)(answer ? n.round - 1 : n.round) + answer, n.wire, bytes);
    }
    n.last_report_ns = n.sent_ns = n.now_ns;
    n.current.reports++;
    n.current.bytes_up += bytes;
    n.waiting = n.s.qos;
}

static void begin_period(uint64_t period);

/* The agent may have begun a period: its counts begin again, and older tokens are void. */
static void adopt(void)
{
    struct pshift_agent_state state;
    uint32_t i;
    (void)pshift_agent_info(&n.agent, &state);
    n.ends_ns = state.ends_ns;
    if (state.period == n.adopted)
        return;
    n.adopted = state.period;
    for (i = 0; i < n.s.buckets; i++)
        n.local[i].base = queue(i).served;
    if (n.serves)
        begin_period(state.period);
}

static void log_install(const struct pshift_message *m, bool stale)
{
    const bool fresh = m->period > n.adopted; /* the period begins with this grant */
    uint32_t k;
    if (n.installs + m->count > n.install_room) {
        n.install_room = (n.installs + m->count) * 2 + 4096;
        n.install = tool_grow(n.install, n.install_room * sizeof *n.install);
    }
    for (k = 0; k < m->count; k++) {
        const struct pshift_grant_entry *g = &n.grant[k];
        struct log_install *l = &n.install[n.installs++];
        l->period = m->period - 2;
        l->bucket = g->bucket;
        l->r_total = g->r_total;
        l->total = g->total;
        l->served = fresh ? 0 : queue((uint32_t)g->bucket).served - n.local[g->bucket].base;
        l->r_held = fresh ? 0 : queue((uint32_t)g->bucket).r_tokens;
        l->l_held = fresh ? 0 : queue((uint32_t)g->bucket).l_tokens;
        l->stale = stale;
    }
}

static void install(const struct mail *mail)
{
    struct pshift_message m;
    struct log_install *from;
    size_t first = n.installs, k;
    enum qos_status st = pshift_grant_decode(mail->data, mail->bytes, &m, n.grant, n.s.buckets);
    uint64_t waited = (n.now_ns - n.sent_ns) / 1000;
    if (n.serves && st != QOS_OK)
        return; /* damaged */
    must(st);
    if (!n.serves)
        log_install(&m, false);
    st = pshift_agent_install(&n.agent, n.now_ns, &m, n.grant);
    adopt();
    for (k = first; k < n.installs; k++) {
        from = &n.install[k];
        from->stale = st != QOS_OK;
        from->ends_us = n.ends_ns > n.origin_ns ? us(n.ends_ns) : 0;
    }
    if (st != QOS_OK && st != QOS_ESTALE && !n.serves)
        must(st);
    n.current.bytes_down += mail->bytes;
    if (st != QOS_OK)
        return;
    n.granted = true;
    n.waiting = false;
    n.current.waited_us += waited;
    n.current.waited_max_us = qos_max(n.current.waited_max_us, waited);
    if (mail->tag == MAIL_GRANT_ASK)
        report(true);
}

/* ---- periods -------------------------------------------------------------------------------------------- */

static void close_period(void)
{
    uint64_t cpu = tool_cpu_ns(), backend_cpu = n.backend->cpu_ns();
    n.current.slots = accrued() - n.current.slots;
    n.current.cpu_us = (cpu - n.cpu_ns) / 1000;
    n.current.backend_cpu_us = qos_sat_sub(backend_cpu, n.backend_cpu_ns) / 1000;
    n.cpu_ns = cpu;
    n.backend_cpu_ns = backend_cpu;
    if (n.serves)
        write_lost();
    else if (n.period >= 2)
        n.log[n.logs++] = n.current;
    memset(&n.current, 0, sizeof n.current);
    n.current.slots = accrued();
}

static void begin_period(uint64_t period)
{
    uint32_t i;
    close_period();
    n.period = period;
    n.begin_ns = n.now_ns;
    n.round = 0;
    n.current.period = qos_sat_sub(period, 2);
    n.current.begin_us = us(n.now_ns);
    for (i = 0; i < n.s.buckets && !n.serves; i++)
        if (!n.s.qos || period <= 2) /* free in the warm-up */
            must(pshift_scheduler_set_tokens(&n.scheduler, i, 0, n.s.qos && period == 2 ? 0 : QOS_UNLIMITED));
    n.granted = !n.s.qos || period < 2;
}

static void reports_due(void)
{
    if (n.serves && n.now_ns >= n.next_report_ns) {
        n.next_report_ns = n.now_ns + n.interval_ns;
        report(false);
    }
    if (n.serves)
        return;
    if (n.period < 2 || n.round >= n.s.intervals || n.now_ns < n.begin_ns + n.round * n.interval_ns)
        return;
    report(false);
    n.round++;
}

static void faults(void)
{
    uint32_t k;
    for (k = 0; k < settings.faults && n.period >= 2 && n.s.qos; k++) {
        const struct fault *f = &settings.fault[k];
        if (f->node != n.me || n.fault_done[k] || scene_ns() < f->at_ns)
            continue;
        n.fault_done[k] = true;
        n.backend->fault(f, n.now_ns);
        n.faulty_until_ns = qos_max(n.faulty_until_ns, n.now_ns + f->for_ns);
        n.current.faulty = 1;
    }
    if (n.faulty_until_ns > n.now_ns || !n.backend->ready())
        n.current.faulty = 1;
}

/* ---- a scene -------------------------------------------------------------------------------------------- */

static void open_scene(const uint64_t *word)
{
    struct pshift_scheduler_config sc = {0, 0};
    struct pshift_agent_config ac = {&n.scheduler, n.me, cluster_nonce(), 0, 0, 0};
    uint32_t k, q;
    scene_make(&n.s, (uint32_t)word[0], word[1], word[2]);
    sc.queues = n.s.buckets;
    ac.period_ns = n.s.period_ns;
    if (n.s.unlimited)
        ac.default_l_tokens = QOS_UNLIMITED;
    n.scheduler_mem = tool_alloc_aligned(pshift_scheduler_memsize(&sc), 64);
    must(pshift_scheduler_init(&n.scheduler, n.scheduler_mem, pshift_scheduler_memsize(&sc), &sc));
    n.agent_mem = tool_alloc_aligned(pshift_agent_memsize(&ac), 64);
    must(pshift_agent_init(&n.agent, n.agent_mem, pshift_agent_memsize(&ac), &ac));
    for (k = 0; k < n.s.buckets; k++) /* in this order: bucket k has queue k */
        must(pshift_agent_open(&n.agent, k, &q));
    n.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)n.s.buckets * PSHIFT_REPORT_ENTRY_BYTES;
    n.wire = tool_alloc(n.wire_bytes + sizeof(uint64_t));
    n.entry = tool_alloc(n.s.buckets * sizeof *n.entry);
    n.grant = tool_alloc(n.s.buckets * sizeof *n.grant);
    n.local = tool_alloc(n.s.buckets * sizeof *n.local);
    n.log = tool_alloc((n.s.periods + 1u) * sizeof *n.log);
    zipf_table(qos_max(backend_objects(n.backend) / n.s.buckets, 1));
    qos_rng_seed(&n.rng, word[1] * 1000 + n.me);
    n.picks = n.installs = n.logs = 0;
    n.interval_ns = n.s.period_ns / n.s.intervals;
    n.now_ns = n.origin_ns = n.last_report_ns = n.finished_ns = tool_now_ns();
    n.used = n.lost = n.report_accrued = n.report_lost = 0;
    n.period = n.adopted = n.ends_ns = 0;
    n.next_phase = 0;
    n.at_backend = 0;
    n.ended = n.waiting = false;
    n.again = NULL;
    n.faulty_until_ns = 0;
    for (k = 0; k < FAULTS_MAX; k++)
        n.fault_done[k] = false;
    memset(&n.current, 0, sizeof n.current);
}

static void close_scene(void)
{
    free(n.scheduler_mem);
    free(n.agent_mem);
    free(n.wire);
    free(n.entry);
    free(n.grant);
    free(n.local);
    free(n.log);
    scene_free(&n.s);
}

static void send_logs(void)
{
    close_period();
    mail_words(0, MAIL_PICKS, (const uint64_t *)(const void *)n.pick, n.picks * LOG_PICK_WORDS);
    mail_words(0, MAIL_INSTALLS, (const uint64_t *)(const void *)n.install, n.installs * LOG_INSTALL_WORDS);
    mail_words(0, MAIL_PERIODS, (const uint64_t *)(const void *)n.log, n.logs * LOG_PERIOD_WORDS);
    mail_flush();
}

/* false: the cluster stops. */
static bool take_mail(void)
{
    struct mail m;
    while (mail_take(&m))
        switch (m.tag) {
        case MAIL_BEGIN: begin_period(*(const uint64_t *)m.data); break;
        case MAIL_GRANT:
        case MAIL_GRANT_ASK: install(&m); break;
        case MAIL_END: n.ended = true; break;
        case MAIL_QUIT: return false;
        default: tool_die(TOOL_FAILED, "node %u: message %d is out of place", n.me + 1, m.tag);
        }
    return true;
}

/* On time for reports; often while a grant or the next period is due, so that nodes keep in step. */
static uint64_t next_tick(uint64_t tick_ns)
{
    uint64_t poll_ns = n.now_ns + qos_min(POLL_NS, tick_ns), report_ns;
    if (n.serves)
        return qos_min(n.now_ns + (n.waiting ? qos_min(POLL_NS, tick_ns) : tick_ns),
                       qos_max(n.next_report_ns, poll_ns));
    if (n.period < 2 || n.waiting || n.now_ns + tick_ns > n.begin_ns + n.s.period_ns)
        return poll_ns;
    report_ns = n.round < n.s.intervals ? n.begin_ns + n.round * n.interval_ns : UINT64_MAX;
    return qos_min(n.now_ns + tick_ns, qos_max(report_ns, n.now_ns + POLL_NS / 4));
}

/* false: the cluster stops. */
static bool play(const uint64_t *word)
{
    uint64_t tick_ns, end_ns = UINT64_MAX, begun = 1;
    bool go_on = true;
    open_scene(word);
    tick_ns = qos_max(qos_min(TICK_NS, TICK_SLOTS * QOS_NS_PER_S / n.s.capacity), 50000);
    mail_words(0, MAIL_READY, &begun, 1);
    while (go_on && !stop_asked() && (!n.ended || n.at_backend) && n.now_ns < end_ns) {
        n.now_ns = tool_now_ns();
        go_on = take_mail();
        if (n.ended && end_ns == UINT64_MAX)
            end_ns = n.now_ns + DRAIN_NS;
        n.backend->poll(n.now_ns);
        finish();
        if (n.period && !n.ended) {
            phases();
            faults();
            arrivals();
            reports_due();
            dispatch();
        }
        tool_sleep_until_ns(next_tick(tick_ns));
    }
    if (go_on && !stop_asked()) {
        if (n.at_backend)
            tool_die(TOOL_FAILED, "node %u: %" PRIu64 " requests never came back", n.me + 1, n.at_backend);
        send_logs();
    }
    close_scene();
    return go_on;
}

/* ---- between scenes --------------------------------------------------------------------------------------------- */

static void use_backend(enum backend_kind kind)
{
    const struct backend *b = backend_of(kind);
    char why[512] = "stopped";
    uint64_t one = 1;
    if (n.backend && n.backend != b)
        n.backend->stop();
    if (n.backend == b || b->start(n.me, why, sizeof why)) {
        n.backend = b;
        mail_words(0, MAIL_READY, &one, 1);
    } else {
        n.backend = NULL;
        mail_send(0, MAIL_TROUBLE, why, strlen(why));
    }
    mail_flush();
}

/* Measures the backend's rate: as many requests as it takes, half of them sets. */
static void profile(uint64_t for_ns)
{
    uint64_t begin = tool_now_ns(), done = 0, out = 0, now = begin, rate;
    struct request *r, *next;
    n.s.buckets = 1;
    zipf_table(backend_objects(n.backend));
    qos_rng_seed(&n.rng, 1 + n.me);
    while (!stop_asked() && (now < begin + for_ns || out)) {
        for (r = n.backend->collect(); r; r = next) {
            next = r->next;
            r->next = n.spare;
            n.spare = r;
            out--;
            done += now < begin + for_ns;
        }
        while (now < begin + for_ns && out < n.backend->depth) {
            r = n.spare ? n.spare : tool_alloc(sizeof *r);
            n.spare = r == n.spare ? r->next : n.spare;
            r->object = draw_object(0);
            r->set = (qos_rng_u64(&n.rng) & 1) != 0;
            r->next = NULL;
            n.backend->submit(r);
            out++;
        }
        tool_sleep_until_ns(now + 100000);
        now = tool_now_ns();
        n.backend->poll(now);
    }
    rate = qos_mul_div_floor(done, QOS_NS_PER_S, for_ns);
    mail_words(0, MAIL_RATE, &rate, 1);
}

void node_main(void)
{
    bool go_on = true;
    prctl(PR_SET_TIMERSLACK, 20000UL, 0UL, 0UL, 0UL);
    n.me = (uint32_t)mail_rank() - 1;
    while (go_on && !stop_asked()) {
        struct mail m;
        uint64_t word[3];
        if (n.backend)
            n.backend->poll(tool_now_ns());
        if (!mail_take(&m)) {
            tool_sleep_until_ns(tool_now_ns() + TICK_NS);
            continue;
        }
        memcpy(word, m.data, qos_min(m.bytes, sizeof word));
        switch (m.tag) {
        case MAIL_BACKEND: use_backend((enum backend_kind)word[0]); break;
        case MAIL_PROFILE: profile(word[0]); break;
        case MAIL_SCENE: go_on = play(word); break;
        case MAIL_QUIT: go_on = false; break;
        default: break; /* of a scene that is over */
        }
    }
    if (n.backend)
        n.backend->stop();
}

/* Serves the buckets of the free form by the controllers' grants, until stopped. */
void node_serve(void)
{
    const uint64_t word[3] = {0, settings.seed, settings.capacity};
    char why[512] = "stopped";
    uint64_t tick_ns, looked_ns;
    uint32_t taken;
    struct mail m;
    prctl(PR_SET_TIMERSLACK, 20000UL, 0UL, 0UL, 0UL);
    n.me = (uint32_t)settings.number - 1;
    n.serves = true;
    n.picked = tool_alloc(settings.buckets * sizeof *n.picked);
    memset(n.picked, 0, settings.buckets * sizeof *n.picked);
    n.journal = settings.journal ? open(settings.journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (settings.journal && n.journal < 0)
        tool_die(TOOL_FAILED, "%s: %s", settings.journal, strerror(errno));
    zmq_open_node();
    n.backend = backend_of(settings.backend == BACKEND_FILE ? BACKEND_FILE : BACKEND_MEMCACHED);
    if (!n.backend->start(n.me, why, sizeof why))
        tool_die(TOOL_FAILED, "node %" PRIu64 ": %s", settings.number, why);
    open_scene(word);
    n.begin_ns = n.next_report_ns = n.now_ns;
    for (; n.next_phase < n.s.phases && n.s.phase[n.next_phase].at_ns == 0; n.next_phase++)
        enter_phase(&n.s.phase[n.next_phase]); /* the load is the same in all periods */
    tick_ns = qos_max(qos_min(TICK_NS, TICK_SLOTS * QOS_NS_PER_S / n.s.capacity), 50000);
    printf("node %" PRIu64 ": serves\n", settings.number);
    fflush(stdout);
    while (!stop_asked()) {
        looked_ns = n.now_ns;
        n.now_ns = tool_now_ns();
        n.stood_ns = qos_max(n.stood_ns, n.now_ns - looked_ns);
        n.backend->poll(n.now_ns);
        finish();
        for (taken = 0; taken < LOOK_GRANTS && mail_take(&m); taken++)
            if (m.tag == MAIL_GRANT || m.tag == MAIL_GRANT_ASK)
                install(&m);
        arrivals();
        reports_due();
        dispatch();
        tool_sleep_until_ns(next_tick(tick_ns));
    }
    n.backend->stop();
}

const struct backend *backend_of(enum backend_kind kind)
{
    return kind == BACKEND_FILE ? &backend_file : &backend_memcached;
}

uint64_t backend_objects(const struct backend *b)
{
    return b->keyed ? settings.objects : settings.size_bytes / 4096;
}
