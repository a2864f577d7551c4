// proves: an agent reports exactly what a plain model of its chapter's rules reports, entry by entry: what is new,
// proves: what is sent again, what an acknowledgement ends, every estimate, every token after a grant, and when a
// proves: closed queue is free. Programs of arrivals, service, grants of any kind, acknowledgements, periods and
// proves: controllers are random
// variants: native san i386 s390x
#include "pshift.h"
#include "check.h"

#define QUEUES 70
#define BUCKETS 90 /* more than there are queues */
#define NEWS 1u
#define SENT 2u
#define T_NS 1000000
#define SEQ_MOST 20000

/* What the model knows of a bucket. */
static struct tenant {
    uint64_t id, pending, served, ever, before, demand, told, r, l, grant_seq, sent_seq;
    uint32_t queue;
    unsigned state; /* NEWS: not reported yet; SENT: not acknowledged */
    bool open, closing;
} tenant[BUCKETS];
static struct {
    uint64_t seq, first_seq, period, boot, owner, heard, ends, now, last, granted, measured, capacity, left;
    uint64_t of[SEQ_MOST]; /* when the measurement of each report was */
    struct pshift_range ack[PSHIFT_RANGES];
    uint32_t permille, used, freed[QUEUES], freed_count;
    uint64_t default_l;
    bool due, measured_once;
} model;
static struct pshift_scheduler scheduler;
static struct pshift_agent agent;
static struct check_rng rng;
static uint64_t repeats, acked, reused, installs, rests;

static uint64_t draw(uint64_t low, uint64_t high)
{
    return check_between(&rng, low, high);
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* n requests of an interval, extrapolated to the remaining time; all numbers are small here. */
static uint64_t extended(uint64_t n, uint64_t interval_ns, uint64_t remaining_ns)
{
    return interval_ns == 0 ? 0 : (n * remaining_ns + interval_ns - 1) / interval_ns;
}

static uint32_t unacknowledged(void)
{
    uint32_t i, n = 0;
    for (i = 0; i < BUCKETS; i++)
        n += tenant[i].open && tenant[i].state != 0;
    return n;
}

static struct tenant *any_open(void)
{
    struct tenant *t = &tenant[draw(0, BUCKETS - 1)];
    uint32_t k;
    for (k = 0; k < BUCKETS && !t->open; k++)
        t = t == &tenant[BUCKETS - 1] ? tenant : t + 1;
    return t->open ? t : NULL;
}

static void open_one(struct tenant *t)
{
    uint32_t queue = QOS_NONE;
    enum qos_status status = pshift_agent_open(&agent, t->id, &queue);
    if (t->open) {
        CHECK_EQ(status, QOS_OK);
        CHECK_EQ(queue, t->queue);
        t->closing = false;
        return;
    }
    if (model.used == QUEUES && model.freed_count == 0) {
        CHECK_EQ(status, QOS_EFULL);
        return;
    }
    CHECK_EQ(status, QOS_OK);
    reused += model.used == QUEUES;
    CHECK_EQ(queue, model.used < QUEUES ? model.used : model.freed[model.freed_count - 1]);
    model.used < QUEUES ? model.used++ : model.freed_count--;
    t->queue = queue;
    t->open = true;
    t->closing = false;
    t->served = t->ever = t->before = t->demand = t->told = t->grant_seq = t->sent_seq = t->r = 0;
    t->l = model.default_l;
    t->state = 0;
}

static void close_one(struct tenant *t)
{
    CHECK_EQ(pshift_agent_close(&agent, t->id), t->open ? (t->pending ? QOS_EBUSY : QOS_OK) : QOS_ENOENT);
    t->closing |= t->open && t->pending == 0;
}

static void serve(uint64_t most)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    uint32_t i;
    for (; most > 0 && pshift_scheduler_pick(&scheduler, model.now, &pick) == QOS_OK; most--) {
        for (i = 0; i < BUCKETS && !(tenant[i].open && tenant[i].queue == pick.queue); i++)
            ;
        CHECK(i < BUCKETS && tenant[i].pending > 0);
        tenant[i].pending--;
        tenant[i].served++;
        tenant[i].ever++;
        model.granted++;
        if (pick.backing == PSHIFT_RESERVATION)
            tenant[i].r -= tenant[i].r != QOS_UNLIMITED;
        else
            tenant[i].l -= tenant[i].l != QOS_UNLIMITED;
    }
}

/* A larger period begins. */
static void begin(uint64_t period, uint64_t owner)
{
    uint32_t i;
    if (owner != model.owner)
        model.heard = 0;
    model.owner = owner;
    model.period = period;
    model.ends = 0;
    for (i = 0; i < QUEUES; i++) { /* queues are freed in their order */
        struct tenant *t = NULL;
        uint32_t k;
        for (k = 0; k < BUCKETS; k++)
            if (tenant[k].open && tenant[k].queue == i)
                t = &tenant[k];
        if (t && t->closing && t->told == 0 && t->pending == 0) {
            t->open = false;
            model.freed[model.freed_count++] = i;
        }
    }
    for (i = 0; i < BUCKETS; i++) {
        struct tenant *t = &tenant[i];
        t->served = t->r = t->grant_seq = 0;
        t->l = model.default_l;
        t->state = t->told != 0 || t->pending != 0 || t->demand != 0 ? NEWS : 0;
    }
}

static void measure(void)
{
    const uint64_t step = draw(0, 9) ? draw(1, 50) : 0;
    uint64_t interval_ns, remaining_ns;
    uint32_t i, k;
    model.now += step;
    interval_ns = model.measured_once ? model.now - model.last : 0;
    remaining_ns = model.ends > model.now ? model.ends - model.now : T_NS;
    model.measured_once = true;
    model.last = model.now;
    pshift_agent_measure(&agent, model.now);
    for (i = 0; i < BUCKETS; i++) {
        struct tenant *t = &tenant[i];
        uint64_t total, change;
        for (k = 0; k < PSHIFT_RANGES; k++)
            if (t->open && (t->state & SENT) && model.ack[k].first <= t->sent_seq && t->sent_seq <= model.ack[k].last) {
                t->state &= NEWS;
                acked++;
            }
        if (!t->open)
            continue;
        t->demand = t->pending + extended(minus(t->ever + t->pending, t->before), interval_ns, remaining_ns);
        t->before = t->ever + t->pending;
        total = t->served + t->demand;
        change = total > t->told ? total - t->told : t->told - total;
        if (change * 1000 > t->told * model.permille && change > t->told * model.permille / 1000)
            t->state = NEWS;
    }
    model.capacity = extended(model.granted - model.measured, interval_ns, remaining_ns);
    model.left = remaining_ns;
    model.measured = model.granted;
    model.first_seq = model.seq + 1;
    model.due = true;
}

static void check_entry(const struct pshift_report_entry *entry)
{
    struct tenant *t = tenant;
    while (t < tenant + BUCKETS && !(t->open && t->id == entry->bucket))
        t++;
    CHECK(t < tenant + BUCKETS);
    if (t == tenant + BUCKETS)
        return;
    CHECK((t->state & NEWS) ||
          (t->state && t->sent_seq < model.first_seq)); /* once in an interval, unless it is not reported yet */
    repeats += !(t->state & NEWS);
    CHECK_EQ(entry->served, t->served);
    CHECK_EQ(entry->demand, t->demand > t->pending ? t->demand : t->pending);
    CHECK_EQ(entry->held, plus(t->r, t->l));
    CHECK_EQ(entry->grant_seq, t->grant_seq);
    t->told = entry->served + entry->demand;
    t->sent_seq = model.seq;
    t->state = SENT;
}

/* Takes all messages, or only some of them. */
static void report(void)
{
    struct pshift_report_entry entry[QUEUES];
    struct pshift_message m;
    uint64_t calls = draw(0, 2) ? UINT64_MAX : draw(1, 3);
    uint32_t i, k, most = (uint32_t)draw(1, QUEUES), owed;
    for (; calls > 0; calls--) {
        enum qos_status status = pshift_agent_report(&agent, &m, entry, most);
        for (i = 0, owed = 0; i < BUCKETS; i++)
            owed += tenant[i].open &&
                    ((tenant[i].state & NEWS) || (tenant[i].state && tenant[i].sent_seq < model.first_seq));
        CHECK_EQ(status, owed || model.due ? QOS_OK : QOS_EAGAIN);
        if (status != QOS_OK)
            break;
        model.due = false;
        CHECK_EQ(m.count, owed < most ? owed : most);
        CHECK_EQ(m.seq, ++model.seq);
        model.of[model.seq % SEQ_MOST] = model.measured_once ? model.last : UINT64_MAX; /* without a time */
        CHECK(m.server == 5 && m.boot.hi == 1 && m.boot.lo == model.boot);
        CHECK(m.owner.hi == 0 && m.owner.lo == model.owner && m.answers == model.heard && m.left_ns == model.left);
        for (k = 0; k < PSHIFT_RANGES; k++)
            CHECK(m.ack[k].first == 0 && m.ack[k].last == 0);
        CHECK_EQ(m.period, model.period);
        CHECK_EQ(m.capacity, model.capacity);
        for (k = 0; k < m.count; k++)
            check_entry(&entry[k]);
    }
}

static void pay(struct tenant *t, const struct pshift_grant_entry *g)
{
    const uint64_t r_total = g->r_total < g->total ? g->r_total : g->total;
    t->r = minus(r_total, t->served);
    t->l = g->total == QOS_UNLIMITED ? g->total : minus(g->total, t->served > r_total ? t->served : r_total);
}

/* A grant of any kind: of this period, an older or a larger one; of its owner or another; for this start or another; that
 * answers a report, a very old one, or one that was not sent; with time left or not. */
static void install(bool larger)
{
    struct pshift_grant_entry grant[8];
    struct pshift_message m;
    enum qos_status want = QOS_ESTALE, status;
    struct pshift_agent_state state;
    uint64_t ends = 0;
    bool newer, used = false;
    uint32_t k, i;
    memset(&m, 0, sizeof m);
    m.server = draw(0, 30) ? 5 : 4;
    m.count = (uint32_t)draw(0, 8);
    m.boot.hi = 1;
    m.boot.lo = draw(0, 15) ? model.boot : draw(0, 20);
    m.owner.lo = draw(0, 15) && model.owner ? model.owner : draw(1, 9);
    m.period = model.period + (larger ? draw(1, 2) : 0);
    if (!larger && draw(0, 15) == 0)
        m.period = minus(model.period, 1);
    m.seq = draw(1, 200);
    m.answers = draw(0, 9) ? minus(model.seq, draw(0, 3)) : draw(0, model.seq + 2);
    m.left_ns = draw(0, 9) ? T_NS + draw(0, 500) : 0;
    for (k = 0; k < PSHIFT_RANGES && draw(0, 2); k++) {
        m.ack[k].last = draw(0, model.seq + 3);
        m.ack[k].first = minus(m.ack[k].last, draw(0, 6));
        if (m.ack[k].first == 0)
            m.ack[k].first = m.ack[k].last ? 1 : 0;
    }
    for (k = 0; k < m.count; k++) {
        grant[k].bucket = tenant[draw(0, BUCKETS - 1)].id;
        grant[k].r_total = draw(0, 60);
        grant[k].total = draw(0, 9) ? grant[k].r_total + draw(0, 40) : draw(0, 1) ? QOS_UNLIMITED : draw(0, 60);
    }
    status = pshift_agent_install(&agent, model.now, &m, grant);
    newer = m.period > model.period;
    if (m.server != 5) {
        CHECK_EQ(status, QOS_ENOENT);
        return;
    }
    if (m.boot.lo != model.boot || m.period < model.period || m.period == 0 || (!newer && m.owner.lo != model.owner)) {
        CHECK_EQ(status, QOS_ESTALE);
        return;
    }
    if (newer)
        begin(m.period, m.owner.lo);
    if (m.seq > model.heard) {
        model.heard = m.seq;
        memcpy(model.ack, m.ack, sizeof m.ack);
    }
    if (m.answers >= 1 && m.answers <= model.seq && model.of[m.answers % SEQ_MOST] != UINT64_MAX)
        ends = model.of[m.answers % SEQ_MOST] + m.left_ns;
    if (m.left_ns == 0 || m.answers == 0 || m.answers > model.seq || status == QOS_ESTALE) {
        /* A very old report: its time is forgotten, which is as good as over. Else nothing in it may be new. */
        for (k = 0; status == QOS_ESTALE && ends > model.now && minus(model.seq, m.answers) < 3 && k < m.count; k++)
            for (i = 0; i < BUCKETS; i++)
                CHECK(!(tenant[i].open && tenant[i].id == grant[k].bucket && m.seq > tenant[i].grant_seq));
        CHECK_EQ(status, QOS_ESTALE);
        (void)pshift_agent_info(&agent, &state);
        if (ends > model.now && state.ends_ns == ends) /* not forgotten: nothing in it was new */
            model.ends = ends > model.ends ? ends : model.ends;
        return;
    }
    CHECK(ends > model.now);
    model.ends = ends > model.ends ? ends : model.ends;
    for (k = 0; k < m.count; k++)
        for (i = 0; i < BUCKETS; i++) {
            struct tenant *t = &tenant[i];
            if (!t->open || t->id != grant[k].bucket || m.seq <= t->grant_seq)
                continue;
            pay(t, &grant[k]);
            t->grant_seq = m.seq;
            t->state |= NEWS;
            used = true;
        }
    if (newer || used || m.count == 0)
        want = QOS_OK;
    installs += used;
    CHECK_EQ(status, want);
}

static void check_all(void)
{
    struct pshift_agent_state state = {0, 0, 0, 0};
    uint32_t i, open = 0;
    for (i = 0; i < BUCKETS; i++) {
        struct pshift_scheduler_state queue = {0, 0, 0, 0, 0, 0};
        if (!tenant[i].open)
            continue;
        open++;
        CHECK_EQ(pshift_scheduler_info(&scheduler, tenant[i].queue, &queue), QOS_OK);
        CHECK_EQ(queue.pending, tenant[i].pending);
        CHECK_EQ(queue.r_tokens, tenant[i].r);
        CHECK_EQ(queue.l_tokens, tenant[i].l);
    }
    CHECK_EQ(pshift_agent_info(&agent, &state), QOS_OK);
    CHECK_EQ(state.open, open);
    CHECK_EQ(state.unacknowledged, unacknowledged());
    CHECK_EQ(state.period, model.period);
    CHECK_EQ(state.ends_ns, model.ends);
}

/* Starts the agent on a scheduler that has served before it. */
static void start(struct check_mem *queues_mem, struct check_mem *agent_mem, bool mixed)
{
    const struct pshift_scheduler_config queues = {QUEUES, 0};
    struct pshift_agent_config config = {NULL, 5, {1, 0}, T_NS, 0, 0};
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    uint32_t queue = (uint32_t)draw(0, QUEUES - 1);
    uint64_t n;
    memset(tenant, 0, sizeof tenant);
    memset(&model, 0, sizeof model);
    (void)check_mem_new(queues_mem, pshift_scheduler_memsize(&queues), 64, 0);
    memset(queues_mem->mem, (int)draw(0, 255), queues_mem->size); /* init writes everything that is read */
    CHECK_EQ(pshift_scheduler_init(&scheduler, queues_mem->mem, queues_mem->size, &queues), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&scheduler, queue, 3), QOS_OK);
    CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, queue, 3, 0), QOS_OK);
    while (pshift_scheduler_pick(&scheduler, 0, &pick) == QOS_OK)
        ;
    config.scheduler = &scheduler;
    config.boot.lo = model.boot = draw(1, 20);
    model.now = draw(0, 1000);
    config.default_l_tokens = model.default_l = draw(0, 2) ? 0 : draw(1, 30);
    config.unchanged_permille = model.permille = (uint32_t)(draw(0, 2) ? draw(0, 300) : draw(0, 1) * 1000);
    (void)check_mem_new(agent_mem, pshift_agent_memsize(&config), 64, 0);
    memset(agent_mem->mem, (int)draw(0, 255), agent_mem->size);
    CHECK_EQ(pshift_agent_init(&agent, agent_mem->mem, agent_mem->size, &config), QOS_OK);
    model.first_seq = 1;
    for (queue = 0; queue < BUCKETS; queue++)
        tenant[queue].id = mixed ? check_rand(&rng) : queue;
    for (n = draw(0, 3); n > 0; n--) /* before the first period */
        open_one(&tenant[draw(0, BUCKETS - 1)]);
}

/* All waiting requests are withdrawn, and most buckets are closed. A period later their queues are free. */
static void rest(void)
{
    uint32_t i;
    for (i = 0; i < BUCKETS; i++)
        if (tenant[i].open) {
            CHECK_EQ(pshift_scheduler_cancel(&scheduler, tenant[i].queue, tenant[i].pending), QOS_OK);
            tenant[i].pending = 0;
            if (draw(0, 3))
                close_one(&tenant[i]);
        }
    for (i = 0; i < 3; i++) {
        install(true);
        if (draw(0, 3))
            measure();
        if (draw(0, 3))
            report();
    }
    rests++;
}

static void run(uint64_t stream)
{
    struct check_mem queues_mem, agent_mem;
    struct tenant *t;
    uint64_t n;
    uint32_t i, step;
    check_rng_init(&rng, stream);
    start(&queues_mem, &agent_mem, stream % 2 != 0);
    for (i = 0; i < BUCKETS && stream % 4 < 2; i++)
        open_one(&tenant[i]);
    for (step = 0; step < 150; step++) {
        CHECK_CONTEXT("stream %" PRIu64 ", step %u", stream, step);
        switch (draw(0, 15)) {
        case 0:
        case 1: open_one(&tenant[draw(0, BUCKETS - 1)]); break;
        case 2: close_one(&tenant[draw(0, BUCKETS - 1)]); break;
        case 3:
        case 4:
        case 5:
            if ((t = any_open()) != NULL) {
                n = draw(0, 12);
                CHECK_EQ(pshift_scheduler_arrive(&scheduler, t->queue, n), QOS_OK);
                t->pending += n;
            }
            break;
        case 6:
            if ((t = any_open()) != NULL) {
                n = draw(0, t->pending);
                CHECK_EQ(pshift_scheduler_cancel(&scheduler, t->queue, n), QOS_OK);
                t->pending -= n;
            }
            break;
        case 7:
        case 8: serve(draw(0, 40)); break;
        case 9: measure(); break;
        case 10:
            measure();
            report();
            break;
        case 11: report(); break;
        case 12:
            if (draw(0, 3) == 0)
                install(true);
            break;
        case 13:
            if (draw(0, 2) == 0)
                rest();
            break;
        default: install(false); break;
        }
        check_all();
    }
    CHECK(check_mem_free(&queues_mem));
    CHECK(check_mem_free(&agent_mem));
}

/* One message in an interval, none acknowledged: the buckets take turns. */
static void turns(void)
{
    struct check_mem queues_mem, agent_mem;
    uint32_t named[QUEUES] = {0}, most = (uint32_t)draw(1, 9), opened = (uint32_t)draw(10, QUEUES), i, k, least,
             largest;
    start(&queues_mem, &agent_mem, false);
    for (i = 0; i < opened; i++) {
        open_one(&tenant[i]);
        CHECK_EQ(pshift_scheduler_arrive(&scheduler, tenant[i].queue, 1), QOS_OK);
    }
    for (i = 0; i < 50; i++) {
        struct pshift_report_entry entry[QUEUES];
        struct pshift_message m;
        pshift_agent_measure(&agent, i + 1);
        CHECK_EQ(pshift_agent_report(&agent, &m, entry, most), QOS_OK);
        CHECK_EQ(m.count, most);
        for (k = 0; k < m.count; k++)
            named[entry[k].bucket]++;
        for (k = 0, least = UINT32_MAX, largest = 0; k < opened; k++) {
            least = named[k] < least ? named[k] : least;
            largest = named[k] > largest ? named[k] : largest;
        }
        CHECK_LE(largest - least, 1);
    }
    CHECK(check_mem_free(&queues_mem));
    CHECK(check_mem_free(&agent_mem));
}

int main(void)
{
    uint64_t stream, runs;
    check_begin("property/pshift_agent");
    runs = check_scaled(3000);
    for (stream = 0; stream < runs; stream++)
        run(stream);
    for (stream = 0; stream < check_scaled(100); stream++) {
        check_rng_init(&rng, stream);
        turns();
    }
    printf("%" PRIu64 " grants installed, %" PRIu64 " entries repeated, %" PRIu64 " acknowledged, %" PRIu64
           " queues opened again\n",
           installs, repeats, acked, reused);
    CHECK(installs > runs && repeats > runs && acked > runs && rests > runs && reused > runs);
    return check_end();
}
