/* htb_members.h - programs of calls on trees that have joined, beside an account of each tree
 *
 * Two to four trees with the same classes, of any bound, exchange in time or late while all other functions are called on
 * any of them: the gate, htb_force until each tree refuses it, queues, htb_maximize, changes of terms, wrong calls. What
 * one tree shows must be what was called there; what all gave at one moment is what one tree may. */
#ifndef QOS_TESTS_WORLD_HTB_MEMBERS_H
#define QOS_TESTS_WORLD_HTB_MEMBERS_H

#define ME_CLASSES 6u
#define ME_REQUESTS 12u

static struct {
    struct world *w;
    struct world_rng rng;
    struct htb_config config;
    struct htb_shared_config shared;
    struct htb_class terms[ME_CLASSES];
    bool used[ME_CLASSES], exchanged;
    uint32_t trees;
    uint64_t now, interval_ns, burst_ns, debt_ns, exchange_ns[JO_TREES];
    uint64_t granted[JO_TREES][ME_CLASSES], charge[JO_TREES][ME_REQUESTS];
    bool gate_asked[JO_TREES], moved[JO_TREES][ME_REQUESTS]; /* moved: its class ended since it went */
} me;
static struct htb_request me_request[JO_TREES][ME_REQUESTS];

#define ME_FAIL(oracle, ...) world_fail(me.w, oracle, me.now, __VA_ARGS__)

static uint64_t me_any(uint64_t low, uint64_t high)
{
    return world_between(&me.rng, low, high);
}

static uint64_t me_sum(uint32_t but)
{
    uint64_t sum = me.config.best_effort.rate_per_s[0];
    uint32_t id;
    for (id = 1; id < ME_CLASSES; id++)
        sum += me.used[id] && id != but && me.terms[id].parent == 0 ? me.terms[id].rate_per_s[0] : 0;
    return sum;
}

/* The class that a request of this id belongs to. */
static uint32_t me_class(uint32_t id)
{
    return id < ME_CLASSES && me.used[id] && !me.terms[id].group ? id : 0;
}

static void me_draw_terms(uint32_t id)
{
    struct htb_class *t = &me.terms[id];
    const uint64_t room = me.config.rate_per_s[0] - me_sum(id);
    memset(t, 0, sizeof *t);
    t->group = id == 1;
    t->parent = id == 2 && me.used[1] ? 1 : 0;
    t->weight = (uint32_t)me_any(1, 9);
    t->rate_per_s[0] = world_chance(&me.rng, 300) ? 0 : me_any(0, room / 2);
    if (t->parent)
        t->rate_per_s[0] = me_any(0, me.terms[1].rate_per_s[0]);
    if (t->group && t->rate_per_s[0] < me.terms[2].rate_per_s[0] && me.used[2] && me.terms[2].parent)
        t->rate_per_s[0] = me.terms[2].rate_per_s[0];
    if (!t->group && world_chance(&me.rng, 300))
        t->limit_per_s[0] = t->rate_per_s[0] + me_any(1, me.config.rate_per_s[0] / 4 + 1);
    t->burst_ns = world_chance(&me.rng, 700) ? 0 : me_any(1, 50) * 1000000;
}

/* The same call in each tree has the same answer: `admission`, exact. */
static void me_change(uint32_t id, bool too_much)
{
    const bool change = me.used[id];
    const struct htb_class before = me.terms[id];
    uint64_t fits = 0, room;
    uint32_t k;
    me_draw_terms(id);
    if (me.terms[id].parent != before.parent && change)
        me.terms[id].parent = before.parent;
    room = me.terms[id].parent ? me.terms[1].rate_per_s[0] : me.config.rate_per_s[0] - me_sum(id);
    if (me.terms[id].rate_per_s[0] > room)
        me.terms[id].rate_per_s[0] = room;
    if (too_much) {
        me.terms[id].rate_per_s[0] = room + 1;
        me.terms[id].limit_per_s[0] = 0;
    }
    for (k = 0; k < me.trees; k++) {
        enum qos_status s = change ? htb_change(&jo_tree[k], me.now, id, &me.terms[id], &fits)
                                   : htb_reserve(&jo_tree[k], me.now, id, &me.terms[id], &fits);
        if (s != (too_much ? QOS_EADMISSION : QOS_OK) || fits != room)
            ME_FAIL("admission", "tree %" PRIu32 ", class %" PRIu32 ": %s, %" PRIu64 " would fit, told %" PRIu64, k, id,
                    qos_strerror(s), room, fits);
        if (!change && !too_much)
            me.granted[k][id] = 0;
    }
    if (too_much)
        me.terms[id] = before;
    else
        me.used[id] = true;
}

static void me_release(uint32_t id)
{
    const bool busy = id == 1 && me.used[2] && me.terms[2].parent == 1;
    uint32_t k, i;
    for (k = 0; k < me.trees; k++) {
        enum qos_status s = htb_release(&jo_tree[k], me.now, id);
        if (s != (!me.used[id] ? QOS_ENOENT : busy ? QOS_EBUSY : QOS_OK))
            ME_FAIL("terms", "tree %" PRIu32 ": release of %" PRIu32 " says %s", k, id, qos_strerror(s));
        for (i = 0; i < ME_REQUESTS && !busy; i++)
            if (me_class(me_request[k][i].class_id) == id && me_request[k][i].state == HTB_QUEUED)
                me_request[k][i].class_id = 0; /* it goes to best effort */
            else if (me_class(me_request[k][i].class_id) == id)
                me.moved[k][i] = true;
    }
    me.used[id] = me.used[id] && busy;
}

/* `force`: at one moment all trees together force what one tree may, with a bucket and a request in each. After an
 * exchange only a limit bounds that: in a tree that has no part of a rate its next lender pays. */
static void me_force(void)
{
    const uint32_t id = me_class((uint32_t)me_any(0, ME_CLASSES - 1));
    const struct htb_class *c = &me.terms[id];
    const double limit = (double)c->limit_per_s[0], trees = me.trees;
    double rate = (double)c->rate_per_s[0], sum = 0, burst = (double)(c->burst_ns ? c->burst_ns : me.burst_ns), most;
    uint64_t n;
    uint32_t k, i;
    if (rate <= 0 && c->parent)
        rate = (double)me.terms[1].rate_per_s[0];
    if (rate <= 0)
        rate = (double)me.config.rate_per_s[0];
    burst = fmax(burst, fmax((double)me.burst_ns, me.terms[1].group ? (double)me.terms[1].burst_ns : 0));
    most = limit > 0 && (limit < rate || me.exchanged) ? limit : rate;
    n = (uint64_t)(most * (double)me.debt_ns / 1e9 / (double)me_any(3, 30)) + 1;
    for (k = 0; k < me.trees; k++)
        for (i = 0; i < 1000 && htb_force(&jo_tree[k], me.now, id, &n) == QOS_OK; i++) {
            me.granted[k][id] += n;
            sum += (double)n;
        }
    world_trace(me.now, id, "forced", (uint64_t)sum);
    me.w->events++;
    if ((limit > 0 || !me.exchanged) &&
        sum > (most * (2 * trees * burst + (double)me.debt_ns) / 1e9 + trees * (double)n) * 1.001 + 2)
        ME_FAIL("force", "class %" PRIu32 " forces %.0f in all trees, its rate or limit is %.0f, debt_ns %" PRIu64, id,
                sum, most, me.debt_ns);
}

static void me_take(uint32_t k)
{
    const uint32_t asked = (uint32_t)me_any(0, ME_CLASSES), id = me_class(asked);
    const uint64_t n = me_any(0, (uint64_t)((double)me.config.rate_per_s[0] * (double)me.burst_ns / 2e9) + 1);
    uint64_t told, latest = me.exchange_ns[k] > me.now ? me.exchange_ns[k] : me.now + me.interval_ns;
    enum qos_status s = htb_take(&jo_tree[k], me.now, asked, n);
    if (s == QOS_OK)
        me.granted[k][id] += n;
    else if (s != QOS_EAGAIN)
        ME_FAIL("gate", "a take says %s", qos_strerror(s));
    told = htb_next_ns(&jo_tree[k], me.now, asked, n);
    if (told > latest || (s != QOS_OK && told <= me.now))
        ME_FAIL("next", "tree %" PRIu32 ", class %" PRIu32 ": told %" PRIu64 " ns from now, exchanges %" PRIu64, k,
                asked, told - me.now, latest - me.now);
}

static void me_submit(uint32_t k, bool urgent)
{
    const uint32_t i = (uint32_t)me_any(0, ME_REQUESTS - 1), id = (uint32_t)me_any(0, ME_CLASSES);
    struct htb_request *r = &me_request[k][i];
    enum qos_status s;
    if (r->state != HTB_IDLE)
        return;
    memset(r, 0, sizeof *r);
    r->class_id = me_class(id);
    r->urgent = urgent;
    r->tokens[0] = me_any(1, (uint64_t)((double)me.config.rate_per_s[0] * (double)me.burst_ns / 1e9) + 1);
    s = htb_submit(&jo_tree[k], me.now, r);
    if (s != QOS_OK && !(urgent && s == QOS_EDEBT))
        ME_FAIL("submit", "a request is refused: %s", qos_strerror(s));
    me.moved[k][i] = false;
    if (s == QOS_OK && urgent)
        me.granted[k][r->class_id] += r->tokens[0];
}

/* All that may go, and some of what is at the device is complete. By flight each tree has a request there, if a class
 * without a limit has one. */
static void me_dispatch(uint32_t k)
{
    struct htb_request *r;
    struct htb_state s;
    uint32_t i, at = 0;
    for (i = 0; i < 3 * ME_REQUESTS && (r = htb_dispatch(&jo_tree[k], me.now)) != NULL; i++)
        if (!r->urgent)
            me.granted[k][r->class_id] += r->tokens[0];
    (void)htb_info(&jo_tree[k], &s);
    for (i = 0; i < ME_REQUESTS; i++)
        at += me_request[k][i].state == HTB_AT_DEVICE;
    for (i = 0; i < ME_REQUESTS && at == 0 && me.config.bound == HTB_BY_FLIGHT; i++)
        if (me_request[k][i].state == HTB_QUEUED && me.terms[me_request[k][i].class_id].limit_per_s[0] == 0)
            ME_FAIL("idle_queue", "tree %" PRIu32 " has nothing in flight, and class %" PRIu32 " waits", k,
                    me_request[k][i].class_id);
    for (i = 0; i < ME_REQUESTS; i++) {
        const bool not_done = world_chance(&me.rng, 100);
        uint64_t cost;
        r = &me_request[k][i];
        cost = world_chance(&me.rng, 700) ? r->tokens[0] : me_any(0, 2 * r->tokens[0]);
        if (r->state != HTB_AT_DEVICE || !world_chance(&me.rng, 600))
            continue;
        if (htb_complete(&jo_tree[k], me.now, not_done ? HTB_NOT_DONE : HTB_DONE, &cost, r) != QOS_OK)
            ME_FAIL("once", "a completion is refused");
        if (!me.moved[k][i])
            me.granted[k][r->class_id] += (not_done ? 0 : cost) - r->tokens[0];
    }
}

/* What tree k tells is what was called there; its reservations are those of all. */
static void me_judge(uint32_t k)
{
    const uint32_t id = (uint32_t)me_any(1, ME_CLASSES - 1);
    const struct htb_class *t = &me.terms[id];
    struct htb_class_state c;
    struct htb_state s;
    struct qos_stats stats;
    uint32_t i, queued = 0, at = 0, of_class = 0;
    double held = 0;
    enum qos_status status = htb_class_info(&jo_tree[k], id, &c);
    (void)htb_info(&jo_tree[k], &s);
    for (i = 0; i < ME_REQUESTS; i++) {
        queued += me_request[k][i].state == HTB_QUEUED;
        of_class += me_request[k][i].state == HTB_QUEUED && me_request[k][i].class_id == id;
        at += me_request[k][i].state == HTB_AT_DEVICE;
    }
    /* Urgent ones are queued until htb_dispatch gives them, but in no queue of a class. */
    if (s.reserved_per_s[0] != me_sum(ME_CLASSES) || s.queued > queued || s.at_device != at)
        ME_FAIL("info",
                "tree %" PRIu32 ": reserved %" PRIu64 ", at the device %" PRIu32 ", told %" PRIu64 " and %" PRIu32, k,
                me_sum(ME_CLASSES), at, s.reserved_per_s[0], s.at_device);
    if (status != (me.used[id] ? QOS_OK : QOS_ENOENT))
        ME_FAIL("info", "class %" PRIu32 ": %s", id, qos_strerror(status));
    else if (status == QOS_OK && (c.terms.rate_per_s[0] != t->rate_per_s[0] || c.terms.weight != t->weight ||
                                  c.terms.limit_per_s[0] != (t->limit_per_s[0] ? t->limit_per_s[0] : QOS_UNLIMITED) ||
                                  c.terms.parent != t->parent || (!t->group && c.queued > of_class)))
        ME_FAIL("info", "tree %" PRIu32 ", class %" PRIu32 ": rate %" PRIu64 ", told %" PRIu64, k, id, t->rate_per_s[0],
                c.terms.rate_per_s[0]);
    if (htb_stats(&jo_tree[k], id, &stats) != QOS_OK ||
        (me.used[id] && !t->group && stats.granted != me.granted[k][id]))
        ME_FAIL("stats", "tree %" PRIu32 ", class %" PRIu32 ": granted %" PRIu64 ", told %" PRIu64, k, id,
                me.granted[k][id], stats.granted);
    for (i = 0; i < me.trees; i++) {
        (void)htb_info(&jo_tree[i], &s);
        held += (double)s.rate_per_s[0];
    }
    if (held > (double)me.config.rate_per_s[0] + 1)
        ME_FAIL("trees_root", "the trees hold %.0f of the root's rate of %.0f", held, (double)me.config.rate_per_s[0]);
}

/* An exchange; before the next time it does nothing. */
static void me_exchange(uint32_t k)
{
    struct htb_state before, after;
    uint64_t next = htb_exchange(&jo_tree[k], me.now);
    if (next <= me.now || next > me.now + me.interval_ns)
        ME_FAIL("terms", "the next exchange is told to be %" PRIu64 " ns from now", next - me.now);
    me.exchange_ns[k] = next;
    me.exchanged = true;
    (void)htb_info(&jo_tree[k], &before);
    me.now += world_chance(&me.rng, 500) ? me_any(0, next - me.now - 1) : 0;
    next = htb_exchange(&jo_tree[k], me.now);
    (void)htb_info(&jo_tree[k], &after);
    if (next != me.exchange_ns[k] || before.rate_per_s[0] != after.rate_per_s[0])
        ME_FAIL("terms", "an exchange before its time says %" PRIu64 " ns, not %" PRIu64, next - me.now,
                me.exchange_ns[k] - me.now);
}

/* `terms`: what must not join does not, and nothing has changed. */
static void me_wrong_joins(void)
{
    static struct htb tree;
    static unsigned char memory[32768] __attribute__((aligned(64)));
    struct htb_shared *shared = (struct htb_shared *)(void *)jo_shared;
    struct htb_config c = me.config;
    struct htb_request r;
    c.classes = world_chance(&me.rng, 300) ? ME_CLASSES + 1 : ME_CLASSES;
    c.start_ns = me.now;
    memset(&r, 0, sizeof r);
    r.tokens[0] = 1;
    if (htb_init(&tree, memory, sizeof memory, &c) != QOS_OK)
        ME_FAIL("init", "%s", htb_config_error(&c));
    if (htb_exchange(&tree, me.now) != QOS_NEVER)
        ME_FAIL("terms", "a tree that has not joined is told of an exchange");
    if (htb_join(&tree, me.now, NULL, 0) != QOS_EINVAL ||
        htb_join(&jo_tree[0], me.now, shared, me.trees - 1) != QOS_EINVAL ||
        htb_join(&tree, me.now, shared, me.trees) != (c.classes == ME_CLASSES ? QOS_ENOENT : QOS_EINVAL))
        ME_FAIL("terms", "a tree joins nothing, twice, or in no slot");
    if (htb_submit(&tree, me.now, &r) != QOS_OK || htb_join(&tree, me.now, shared, 0) != QOS_EINVAL)
        ME_FAIL("terms", "a tree with a queue joins");
    if (htb_dispatch(&tree, me.now + UINT64_C(4000000000000)) != &r || htb_exchange(&tree, me.now) != QOS_NEVER)
        ME_FAIL("terms", "a tree that was refused is not as it was");
}

static bool me_begin(void)
{
    struct htb_shared *shared = (struct htb_shared *)(void *)jo_shared;
    struct htb_shared_config wrong;
    const size_t size = htb_shared_memsize(&me.shared);
    uint32_t k;
    wrong = me.shared;
    switch (me_any(0, 4)) {
    case 0: wrong.trees = 0; break;
    case 1: wrong.trees = HTB_TREES_MAX + 1; break;
    case 2: wrong.classes = HTB_CLASSES_MAX + 1; break;
    case 3: wrong.interval_ns = 999; break;
    default: wrong.interval_ns = HTB_BURST_MAX_NS + 1; break;
    }
    if (!htb_shared_config_error(&wrong) || htb_shared_memsize(&wrong) != 0 || !htb_shared_config_error(NULL) ||
        htb_shared_init(shared, sizeof jo_shared, &wrong) != QOS_ERANGE)
        ME_FAIL("ranges", "shared memory out of its ranges is accepted");
    if (size == 0 || size % 8 || size > sizeof jo_shared ||
        htb_shared_init(shared, size - 1, &me.shared) != QOS_EMEMORY ||
        htb_shared_init(NULL, size, &me.shared) != QOS_EINVAL || htb_shared_init(shared, size, NULL) != QOS_EINVAL ||
        htb_shared_init((struct htb_shared *)(void *)(jo_shared + 8), size, &me.shared) != QOS_EALIGN ||
        htb_shared_init(shared, size, &me.shared) != QOS_OK)
        ME_FAIL("init", "shared memory within the ranges is refused, or other is not");
    for (k = 0; k < me.trees && !me.w->broken; k++) {
        me.config.start_ns = me.now;
        if (htb_init(&jo_tree[k], jo_memory[k], sizeof jo_memory[k], &me.config) != QOS_OK ||
            htb_join(&jo_tree[k], me.now, shared, k) != QOS_OK)
            ME_FAIL("init", "a tree cannot join");
    }
    return !me.w->broken;
}

static void me_step(void)
{
    const uint32_t k = (uint32_t)me_any(0, me.trees - 1), id = (uint32_t)me_any(1, ME_CLASSES - 1);
    struct htb_state before, after;
    uint32_t i;
    me.now += world_chance(&me.rng, 300)  ? 0
              : world_chance(&me.rng, 20) ? me_any(0, UINT64_C(3000000000))
                                          : me_any(0, me.interval_ns);
    for (i = 0; i < me.trees; i++)
        if (me.now >= me.exchange_ns[i] && world_chance(&me.rng, 900))
            me_exchange(i);
    switch (me_any(0, 11)) {
    case 0: me_change(id, world_chance(&me.rng, 300)); break;
    case 1:
        if (world_chance(&me.rng, 300))
            me_release(id);
        break;
    case 2:
        if (world_chance(&me.rng, 300))
            me_force();
        break;
    case 3:
        (void)htb_info(&jo_tree[k], &before);
        (void)htb_maximize(&jo_tree[k], me.now, world_chance(&me.rng, 200));
        (void)htb_info(&jo_tree[k], &after);
        if (before.rate_per_s[0] != after.rate_per_s[0])
            ME_FAIL("maximizer", "the rate of a tree that has joined goes from %" PRIu64 " to %" PRIu64,
                    before.rate_per_s[0], after.rate_per_s[0]);
        break;
    case 4:
        if (world_chance(&me.rng, 200))
            me_wrong_joins();
        break;
    case 5: me_submit(k, world_chance(&me.rng, 200)); break;
    case 6:
    case 7: me_submit(k, false); break;
    case 8: me_dispatch(k); break;
    default:
        for (i = world_chance(&me.rng, 300) ? 40 : 1; i > 0 && !me.w->broken; i--)
            me_take(k);
    }
    if (!me.w->broken)
        me_judge(k);
}

static void members_run(struct world *w)
{
    uint32_t i, steps = (uint32_t)world_value(w, F_STEPS) * 4;
    memset(&me, 0, sizeof me);
    memset(me_request, 0, sizeof me_request);
    me.w = w;
    world_rng_init(&me.rng, w->seed, 113);
    me.trees = (uint32_t)me_any(2, JO_TREES);
    me.shared.trees = me.trees;
    me.shared.classes = me.config.classes = ME_CLASSES;
    me.shared.interval_ns = world_chance(&me.rng, 400) ? 0 : world_scale(&me.rng, 1000, 20000000);
    me.interval_ns = me.shared.interval_ns ? me.shared.interval_ns : 5000000;
    me.config.rate_per_s[0] = world_scale(&me.rng, 1000, UINT64_C(1000000000));
    me.config.bound = world_choice(w, F_BOUND) ? HTB_BY_RATE : HTB_BY_FLIGHT;
    me.config.burst_ns = world_chance(&me.rng, 500) ? 0 : world_scale(&me.rng, 1000000, 100000000) / 1000 * 1000;
    me.burst_ns = me.config.burst_ns ? me.config.burst_ns : 10000000;
    me.config.debt_ns = world_chance(&me.rng, 500) ? 0 : world_scale(&me.rng, 100000000, UINT64_C(2000000000));
    me.debt_ns = me.config.debt_ns ? me.config.debt_ns : 1000000000;
    me.config.maximize_interval_ns = 1000000;
    me.now = 1000000 + me_any(0, 1000000000);
    if (!me_begin())
        return;
    for (i = 1; i < ME_CLASSES; i++)
        if (world_chance(&me.rng, 700))
            me_change(i, false);
    if (world_chance(&me.rng, 500))
        me_force();
    for (i = 0; i < steps && !w->broken; i++)
        me_step();
}

#endif
