// Rank 0. Begins periods, gathers reports at the start of each interval, plans, sends grants; gathers the logs last.
//
// A round may send grants twice. To move tokens under a limit, pshift.h issues them only after the node that held them
// has confirmed their return. So the first grants take tokens away, the nodes answer at once, and the second grants
// hand them out. No token is issued twice, and no node waits an interval for it.
#include "cluster.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 200000                /* between polls for mail */
#define LATE_PART 4                   /* reports are waited for up to this part of an interval */
#define READY_NS (120 * QOS_NS_PER_S) /* for a backend to start: 1 GiB may have to be written */

static struct {
    const struct scene *s;
    struct scene_run *run;
    struct pshift_controller controller;
    void *controller_mem, *wire;
    size_t wire_bytes;
    struct pshift_report_entry *entry;
    struct pshift_grant_entry *grant;
    uint64_t *served; /* [nodes * buckets] in this period, as reported; for the live table */
    struct progress progress;
    int lines; /* of the live table on the terminal */
} c;

static void must(enum qos_status st, const char *what)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "controller: %s: %s", what, qos_strerror(st));
}

static void to_all(uint32_t nodes, int tag, const uint64_t *word, size_t words)
{
    uint32_t j;
    for (j = 0; j < nodes; j++)
        mail_words((int)j + 1, tag, word, words);
}

/* ---- live -------------------------------------------------------------------------------------------------- */

static uint64_t bucket_served(uint32_t i)
{
    uint64_t sum = 0;
    uint32_t j;
    for (j = 0; j < c.s->nodes; j++)
        sum += c.served[(size_t)j * c.s->buckets + i];
    return sum;
}

/* At most SHOWN buckets, those furthest from their reservation first; redrawn in place. */
#define SHOWN 12
static void live_table(uint32_t period, uint32_t round)
{
    uint32_t order[SHOWN], shown = 0, i, k;
    for (i = 0; i < c.s->buckets; i++) {
        double want = (double)bucket_served(i) / (double)qos_max(c.s->reservation[i], 1);
        for (k = shown; k > 0; k--)
            if (want >= (double)bucket_served(order[k - 1]) / (double)qos_max(c.s->reservation[order[k - 1]], 1))
                break;
        if (k == SHOWN)
            continue;
        memmove(order + k + 1, order + k, (qos_min(shown, SHOWN - 1) - k) * sizeof *order);
        order[k] = i;
        shown = (uint32_t)qos_min(shown + 1, SHOWN);
    }
    if (c.lines)
        printf("\033[%dA", c.lines);
    printf("\033[K%s: period %u of %u, after interval %u of %u\n", c.s->title, period + 1, c.s->periods, round,
           c.s->intervals);
    for (k = 0; k < shown; k++) {
        uint64_t got = bucket_served(order[k]), r = c.s->reservation[order[k]], l = c.s->limit[order[k]];
        int filled = (int)qos_min(got * 40 / qos_max(r, 1), 60);
        printf("\033[K  bucket %3u %7" PRIu64 " of %7" PRIu64 " %s%7" PRIu64 " |%.*s\n", order[k] + 1, got, r,
               l == QOS_UNLIMITED ? "      " : "limit ", l == QOS_UNLIMITED ? 0 : l, filled,
               "########################################++++++++++++++++++++");
    }
    c.lines = (int)shown + 1;
    fflush(stdout);
}

static void live(uint32_t period, uint32_t round)
{
    uint64_t all = 0, now_ns = tool_now_ns();
    uint32_t i, below = 0;
    if (settings.live) {
        live_table(period, round);
        return;
    }
    if (!progress_due(&c.progress, now_ns))
        return;
    for (i = 0; i < c.s->buckets; i++) {
        uint64_t got = bucket_served(i);
        all += got;
        below += got * c.s->intervals < c.s->reservation[i] * round;
    }
    progress_show(&c.progress, "%s: period %u/%u, interval %u/%u: %" PRIu64 " served, %u buckets behind", c.s->title,
                  period + 1, c.s->periods, round, c.s->intervals, all, below);
}

/* ---- a round --------------------------------------------------------------------------------------------------- */

static void merge(const struct mail *m)
{
    struct pshift_message head;
    enum qos_status st;
    uint32_t k;
    must(pshift_report_decode(m->data, m->bytes, &head, c.entry, c.s->buckets), "a report");
    st = pshift_controller_report(&c.controller, tool_now_ns(), &head, c.entry);
    if (st != QOS_OK && st != QOS_ESTALE && st != QOS_EAGAIN) /* late, or the node must answer a grant first */
        must(st, "a report");
    c.run->bytes += m->bytes;
    c.run->messages++;
    for (k = 0; st == QOS_OK && k < head.count; k++)
        c.served[(size_t)head.server * c.s->buckets + c.entry[k].bucket] = c.entry[k].served;
}

/* Takes reports with this tag until all nodes have reported or time is up. Returns how many have, `heard` included. */
static uint32_t gather(int tag, uint32_t heard, uint64_t until_ns)
{
    while (heard < c.s->nodes && !stop_asked()) {
        struct mail m;
        if (mail_take(&m)) {
            if (m.tag >= MAIL_REPORT)
                merge(&m);
            if (m.tag == MAIL_NOTE)
                tool_warn("%s", (const char *)m.data);
            heard += m.tag == tag;
        } else if (tool_now_ns() >= until_ns) {
            break;
        } else {
            tool_sleep_until_ns(tool_now_ns() + LOOK_NS);
        }
    }
    return heard;
}

static void plan(void)
{
    uint64_t begin_ns = tool_now_ns(), spent;
    must(pshift_controller_plan(&c.controller, NULL), "plan");
    spent = tool_now_ns() - begin_ns;
    c.run->plan_ns += spent;
    c.run->plan_max_ns = qos_max(c.run->plan_max_ns, spent);
    c.run->rounds++;
}

/* Makes and sends all grants. Tokens under a limit are withheld while another node may hold them, and
 * a new node gets none before it has answered a grant. Then, if may_ask, it asks the nodes to answer at once. Returns whether it asked. */
static bool grants(bool may_ask)
{
    struct pshift_controller_state state;
    size_t bytes;
    uint32_t j;
    bool ask;
    (void)pshift_controller_info(&c.controller, &state);
    ask = may_ask && (state.withheld != 0 || state.awaited != 0);
    for (j = 0; j < c.s->nodes; j++) {
        struct pshift_message m;
        while (pshift_controller_grant(&c.controller, tool_now_ns(), j, &m, c.grant, c.s->buckets) == QOS_OK) {
            must(pshift_grant_encode(&m, c.grant, c.wire, c.wire_bytes, &bytes), "a grant");
            mail_send((int)j + 1, ask ? MAIL_GRANT_ASK : MAIL_GRANT, c.wire, bytes);
            c.run->bytes += bytes;
            c.run->messages++;
        }
    }
    return ask;
}

static void distribute(int tag, uint64_t late_ns)
{
    plan();
    if (!grants(true))
        return;
    c.run->asked++;
    (void)gather(tag + 1, 0, tool_now_ns() + late_ns);
    plan();
    grants(false);
}

/* Plans without the late nodes, and again once they have reported, until the next round is due. */
static void play_round(uint32_t round, uint64_t at_ns, uint64_t interval_ns)
{
    int tag = MAIL_REPORT + 2 * (int)round;
    uint64_t late_ns = interval_ns / LATE_PART;
    uint32_t heard = gather(tag, 0, at_ns + late_ns), before;
    c.run->missed += c.s->nodes - heard;
    do {
        if (c.s->qos && !stop_asked())
            distribute(tag, late_ns);
        before = heard;
        heard = gather(tag, heard, at_ns + interval_ns);
    } while (heard > before);
}

/* ---- a scene ----------------------------------------------------------------------------------------------------- */

static void open_control(void)
{
    const struct scene *s = c.s;
    struct pshift_controller_config cc = {s->nodes,        s->buckets,   s->nodes * s->buckets,
                                          cluster_nonce(), s->period_ns, 4};
    uint32_t i;
    c.controller_mem = tool_alloc_aligned(pshift_controller_memsize(&cc), 64);
    must(pshift_controller_init(&c.controller, c.controller_mem, pshift_controller_memsize(&cc), &cc), "memory");
    for (i = 0; i < s->buckets; i++)
        must(pshift_controller_change(&c.controller, i, s->reservation[i], s->limit[i]), "contract");
    c.wire_bytes = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + (size_t)s->buckets * PSHIFT_REPORT_ENTRY_BYTES;
    c.wire = tool_alloc(c.wire_bytes);
    c.entry = tool_alloc(s->buckets * sizeof *c.entry);
    c.grant = tool_alloc(s->buckets * sizeof *c.grant);
    c.served = tool_alloc((size_t)s->nodes * s->buckets * sizeof *c.served);
}

static void close_control(void)
{
    free(c.controller_mem);
    free(c.wire);
    free(c.entry);
    free(c.grant);
    free(c.served);
}

/* Waits for mail of one kind from every node; `each` gets every mail. false: stopped, or a node reported an error
 * (printed). */
static bool await(uint32_t nodes, int tag, void (*each)(const struct mail *m))
{
    uint64_t end_ns = tool_now_ns() + READY_NS;
    uint32_t got = 0;
    bool fine = true;
    while (got < nodes && !stop_asked()) {
        struct mail m;
        if (!mail_take(&m)) {
            if (tool_now_ns() > end_ns)
                tool_die(TOOL_FAILED, "%u of %u nodes do not answer", nodes - got, nodes);
            tool_sleep_until_ns(tool_now_ns() + 5 * LOOK_NS);
            continue;
        }
        if (m.tag == MAIL_TROUBLE)
            tool_warn("node %d: %s", m.rank, (const char *)m.data);
        else if (m.tag == MAIL_NOTE)
            tool_warn("%s", (const char *)m.data);
        else if (each)
            each(&m);
        fine &= m.tag != MAIL_TROUBLE;
        got += m.tag == tag || m.tag == MAIL_TROUBLE;
    }
    return fine && !stop_asked();
}

static void keep(void **to, size_t *count, const struct mail *m, size_t record)
{
    *to = tool_alloc(m->bytes);
    memcpy(*to, m->data, m->bytes);
    *count = m->bytes / record;
}

static void take_log(const struct mail *m)
{
    struct node_log *l = &c.run->node[m->rank - 1];
    if (m->tag == MAIL_PICKS)
        keep((void **)&l->pick, &l->picks, m, sizeof *l->pick);
    else if (m->tag == MAIL_INSTALLS)
        keep((void **)&l->install, &l->installs, m, sizeof *l->install);
    else if (m->tag == MAIL_PERIODS)
        keep((void **)&l->period, &l->periods, m, sizeof *l->period);
}

static void play_periods(uint64_t *cpu_ns)
{
    const struct scene *s = c.s;
    uint64_t interval_ns = s->period_ns / s->intervals, begin_ns, period = 1;
    uint32_t k, v;
    to_all(s->nodes, MAIL_BEGIN, &period, 1); /* warm-up: the load runs and feeds the estimators */
    tool_sleep_until_ns(tool_now_ns() + interval_ns);
    *cpu_ns = tool_cpu_ns();
    begin_ns = tool_now_ns();
    for (k = 0; k < s->periods && !stop_asked(); k++, begin_ns += s->period_ns) {
        period = k + 2;
        tool_sleep_until_ns(begin_ns);
        /* a late start does not shorten the period: the nodes begin it when the message comes */
        begin_ns = tool_now_ns();
        memset(c.served, 0, (size_t)s->nodes * s->buckets * sizeof *c.served);
        must(pshift_controller_begin(&c.controller, begin_ns, period),
             "period"); /* rank 0 owns all periods of the job */
        to_all(s->nodes, MAIL_BEGIN, &period, 1);
        for (v = 0; v < s->intervals && !stop_asked(); v++) {
            tool_sleep_until_ns(begin_ns + v * interval_ns);
            play_round(v, begin_ns + v * interval_ns, interval_ns);
            live(k, v);
        }
    }
    tool_sleep_until_ns(begin_ns);
    *cpu_ns = tool_cpu_ns() - *cpu_ns;
    progress_end(&c.progress);
    c.lines = 0;
}

/* false: stopped. */
static bool play(struct scene_run *run, uint32_t index)
{
    const struct scene *s = &run->scene;
    uint64_t word[3] = {index, s->seed, s->capacity}, begin_ns = tool_now_ns();
    bool fine;
    run->node = tool_alloc(s->nodes * sizeof *run->node);
    c.s = s;
    c.run = run;
    to_all(s->nodes, MAIL_SCENE, word, 3);
    if (!await(s->nodes, MAIL_READY, NULL))
        return false;
    open_control();
    play_periods(&run->busy_ns);
    run->wall_ns = tool_now_ns() - begin_ns;
    to_all(s->nodes, MAIL_END, NULL, 0);
    fine = await(s->nodes, MAIL_PERIODS, take_log); /* a node's last */
    close_control();
    return fine;
}

static void run_free(struct scene_run *run)
{
    uint32_t j;
    for (j = 0; j < run->scene.nodes; j++) {
        if (!run->node)
            break;
        free(run->node[j].pick);
        free(run->node[j].install);
        free(run->node[j].period);
    }
    free(run->node);
    scene_free(&run->scene);
}

/* Plays it again if the machine was too busy for the nodes to serve at their paced capacity. */
static bool play_and_judge(uint32_t index, uint64_t capacity, int *status)
{
    uint32_t try;
    bool again = true;
    for (try = 0; try < 2 && again; try++) {
        struct scene_run run;
        struct verdict v;
        memset(&run, 0, sizeof run);
        memset(&v, 0, sizeof v);
        run.retried = try > 0;
        scene_make(&run.scene, index, settings.seed, capacity);
        if (run.scene.experiment >= 4) {
            uint64_t seed = scene_feasible_seed(index, settings.seed, capacity, &run.skipped);
            scene_free(&run.scene);
            scene_make(&run.scene, index, seed, capacity);
        }
        if (run.scene.qos)
            run.shortfall = scene_shortfall(&run.scene);
        if (!play(&run, index)) {
            run_free(&run);
            return false;
        }
        judge(&run, &v);
        again = v.inconclusive && try == 0;
        report_scene(&run, &v);
        if (again)
            puts("  the machine was too busy to judge this; once more\n");
        if (!again) {
            report_json(&run, &v);
            if (!figures(&run, &v))
                *status = TOOL_FAILED;
        }
        if (!v.hard_ok || (!v.soft_ok && !v.inconclusive))
            *status = TOOL_FAILED;
        else if (v.inconclusive && !again && *status == TOOL_OK)
            *status = TOOL_INCONCLUSIVE;
        judge_free(&v);
        run_free(&run);
    }
    return true;
}

static uint64_t slowest;

static void take_rate(const struct mail *m)
{
    uint64_t rate;
    if (m->tag != MAIL_RATE)
        return;
    rate = *(const uint64_t *)m->data;
    printf("  node %d: %" PRIu64 " requests per second\n", m->rank, rate);
    slowest = qos_min(slowest, rate);
}

/* Starts the backend of this kind on all nodes. Returns the paced capacity of a node; 0: an error. */
static uint64_t prepare(enum backend_kind kind)
{
    uint64_t word = kind, ns = settings.profile_ns;
    to_all(settings.nodes, MAIL_BACKEND, &word, 1);
    if (!await(settings.nodes, MAIL_READY, NULL))
        return 0;
    if (!settings.profile)
        return settings.capacity ? settings.capacity : backend_of(kind)->capacity;
    printf("Profile: all nodes at once, as fast as they can, for %s\n", human_ns((double)ns).text);
    slowest = UINT64_MAX;
    to_all(settings.nodes, MAIL_PROFILE, &ns, 1);
    if (!await(settings.nodes, MAIL_RATE, take_rate))
        return 0;
    slowest = (uint64_t)((double)slowest * settings.headroom);
    printf("  every node is paced at %" PRIu64 " per second, %.0f %% of the slowest\n\n", slowest,
           100 * settings.headroom);
    return qos_max(slowest, 100);
}

int controller_main(void)
{
    enum backend_kind now = BACKEND_AUTO;
    uint64_t capacity = 0;
    int status = TOOL_OK;
    uint32_t k;
    progress_init(&c.progress, false);
    report_json_begin();
    for (k = 0; k < scene_count() && !stop_asked() && status != TOOL_STOPPED; k++) {
        struct scene s;
        scene_make(&s, k, settings.seed, 0);
        if (s.backend != now) {
            now = s.backend;
            capacity = prepare(now);
        }
        scene_free(&s);
        if (capacity == 0 || !play_and_judge(k, capacity, &status))
            status = stop_asked() ? TOOL_STOPPED : TOOL_FAILED;
        if (capacity == 0)
            break;
    }
    if (stop_asked())
        status = TOOL_STOPPED;
    to_all(settings.nodes, MAIL_QUIT, NULL, 0);
    mail_flush();
    if (!report_json_end(status) && status == TOOL_OK)
        status = TOOL_FAILED;
    return status;
}
