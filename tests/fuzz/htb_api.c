// proves: under any program of calls htb.h keeps the sums of admission and all counts consistent, and mints no tokens.
// proves: A refused take passes at htb_next_ns and not before. Nothing is dispatched before htb_dispatch_next_ns.
#include "htb.h"
#include "fuzz/fuzz.h"

#define IDS 12
#define REQUESTS 16
#define ARENA 16384

static unsigned char arena[ARENA] __attribute__((aligned(64)));
static struct htb tree;
static struct htb_config config; /* of the tree, as given */
static uint32_t resources, dispatch_max, device_max;
static uint64_t base_per_s[HTB_RESOURCES_MAX], maximize_rate_max;
static struct htb_request request[REQUESTS];
static struct {
    unsigned char arena[ARENA];
    struct htb tree;
    struct htb_request request[REQUESTS];
} saved[2];

static size_t arena_used;
static uint64_t now, latest, started;
/* Upper bound of the granted tokens. */
static struct {
    uint64_t max_rate, most_depth, forced, granted_before, largest;
    uint64_t last_granted;
} account[IDS + 1];
static uint64_t submitted, completed, cancelled;

static void save(int i)
{
    memcpy(saved[i].arena, arena, arena_used);
    memcpy(&saved[i].tree, &tree, sizeof tree);
    memcpy(saved[i].request, request, sizeof request);
}

static void restore(int i)
{
    memcpy(arena, saved[i].arena, arena_used);
    memcpy(&tree, &saved[i].tree, sizeof tree);
    memcpy(request, saved[i].request, sizeof request);
}

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

/* Nothing was written, not even padding. */
static bool unchanged(int i)
{
    return same_bytes(arena, saved[i].arena, arena_used) && same_bytes(&tree, &saved[i].tree, sizeof tree) &&
           same_bytes(request, saved[i].request, sizeof request);
}

static struct htb_state info(void)
{
    struct htb_state r;
    FUZZ_CHECK(htb_info(&tree, &r) == QOS_OK);
    return r;
}

/* The terms of class id; false: it does not exist. */
static bool terms_of(uint32_t id, struct htb_class *terms)
{
    struct htb_class_state r;
    enum qos_status status = htb_class_info(&tree, id, &r);
    FUZZ_CHECK(status == QOS_OK || status == QOS_ENOENT);
    if (status == QOS_OK)
        *terms = r.terms;
    return status == QOS_OK;
}

/* The sums of admission, the depths of the tree, and the queues' lengths. */
static void check_tree(void)
{
    uint64_t sum[IDS + 1][HTB_RESOURCES_MAX] = {{0}}, queued = 0;
    uint32_t children[IDS + 1] = {0}, id, r;
    struct htb_state all = info();
    struct htb_class terms, parent;
    struct htb_class_state report;
    for (id = 0; id < config.classes; id++) {
        uint32_t levels = 1, at;
        if (!terms_of(id, &terms))
            continue;
        FUZZ_CHECK(htb_class_error(&terms) == NULL);
        for (at = terms.parent; at != 0; at = parent.parent) {
            FUZZ_CHECK(terms_of(at, &parent) && parent.group && ++levels <= IDS);
        }
        FUZZ_CHECK(levels <= (config.depth_max ? config.depth_max : 8));
        children[terms.parent]++;
        for (r = 0; r < resources; r++)
            sum[terms.parent][r] += terms.rate_per_s[r];
    }
    for (id = 0; id < config.classes; id++) {
        if (!terms_of(id, &terms))
            continue;
        FUZZ_CHECK(htb_class_info(&tree, id, &report) == QOS_OK);
        if (terms.group) {
            FUZZ_CHECK(report.queued == children[id]);
            for (r = 0; r < resources; r++)
                FUZZ_CHECK(sum[id][r] <= terms.rate_per_s[r]);
        } else {
            queued += report.queued;
        }
    }
    FUZZ_CHECK(queued == all.queued);
    for (r = 0; r < resources; r++) {
        FUZZ_CHECK(all.reserved_per_s[r] == sum[0][r] && sum[0][r] <= base_per_s[r]);
        FUZZ_CHECK(all.rate_per_s[r] >= base_per_s[r]);
    }
}

static void check_requests(void)
{
    uint64_t count[4] = {0, 0, 0, 0};
    struct htb_state all = info();
    uint32_t i, bulk = 0, urgent = 0;
    for (i = 0; i < REQUESTS; i++) {
        count[request[i].state]++;
        bulk += request[i].state == HTB_AT_DEVICE && !request[i].urgent;
        urgent += request[i].state == HTB_DISPATCHED && request[i].urgent;
    }
    FUZZ_CHECK(bulk <= device_max && all.dispatched + bulk <= dispatch_max);
    FUZZ_CHECK(submitted == completed + cancelled + count[HTB_QUEUED] + count[HTB_DISPATCHED] + count[HTB_AT_DEVICE]);
    FUZZ_CHECK(count[HTB_QUEUED] == all.queued && all.dispatched + urgent == count[HTB_DISPATCHED]);
    FUZZ_CHECK(count[HTB_AT_DEVICE] == all.at_device);
}

static uint64_t request_max(void)
{
    return config.request_max_tokens == QOS_NOTHING ? 0 : config.request_max_tokens;
}

/* Each class's counter equals what it was granted; its own tokens never exceed rate x time + burst. */
static void check_account(void)
{
    uint32_t id;
    for (id = 0; id < config.classes; id++) {
        struct qos_stats s;
        struct htb_class terms;
        uint64_t own, most, depth;
        if (!terms_of(id, &terms) || terms.group)
            continue;
        FUZZ_CHECK(htb_stats(&tree, id, &s) == QOS_OK && s.borrowed <= s.granted);
        if (s.granted < account[id].last_granted) /* reserved again */
            account[id].granted_before += account[id].last_granted;
        account[id].last_granted = s.granted;
        account[id].max_rate = qos_max(account[id].max_rate, terms.rate_per_s[0]);
        depth = 2 * qos_mul_div_ceil(terms.rate_per_s[0], terms.burst_ns, QOS_NS_PER_S) + request_max();
        if (terms.rate_per_s[0] != 0)
            account[id].most_depth = qos_max(account[id].most_depth, qos_min(depth, QOS_TOKENS_MAX));
        if (!(s.borrowed || account[id].granted_before)) {
            own = s.granted - qos_min(s.granted, account[id].forced);
            most = qos_sat_add(qos_mul_div_ceil(account[id].max_rate, latest - started, QOS_NS_PER_S),
                               account[id].most_depth + account[id].largest + 1);
            FUZZ_CHECK(own <= most);
        }
    }
}

static uint64_t any_rate(struct fuzz_input *in, uint64_t most)
{
    static const uint64_t rate[] = {0, QOS_NOTHING, 1, 3, 1000, 1000000, 1000000000, 999999999999, QOS_RATE_MAX};
    uint64_t kind = fuzz_between(in, 0, 15);
    if (kind < 9)
        return rate[kind];
    if (kind == 9)
        return QOS_RATE_MAX + fuzz_bytes(in, 1);
    return most / (1 + fuzz_bytes(in, 1));
}

static uint64_t any_tokens(struct fuzz_input *in)
{
    static const uint64_t tokens[] = {0, 1, QOS_TOKENS_MAX, QOS_TOKENS_MAX - 1, QOS_TOKENS_MAX + 1, UINT64_MAX};
    uint64_t kind = fuzz_between(in, 0, 31);
    if (kind < 6)
        return tokens[kind];
    return fuzz_bytes(in, kind < 12 ? 1 : kind < 20 ? 2 : kind < 28 ? 3 : 4);
}

static uint64_t any_span_ns(struct fuzz_input *in)
{
    uint64_t kind = fuzz_between(in, 0, 31);
    if (kind == 31)
        return UINT64_MAX;
    return fuzz_bytes(in, kind < 8 ? 1 : kind < 16 ? 2 : kind < 24 ? 3 : kind < 29 ? 4 : 6);
}

static uint32_t any_id(struct fuzz_input *in)
{
    uint32_t id = (uint32_t)fuzz_between(in, 0, IDS + 3);
    return id == IDS + 3 ? QOS_NONE : id == IDS + 2 ? QOS_NONE - 1 : id;
}

static bool begin(struct fuzz_input *in)
{
    struct htb_config c;
    uint32_t r;
    memset(&c, 0, sizeof c);
    c.classes = (uint32_t)fuzz_between(in, 1, IDS);
    c.resources = (uint32_t)fuzz_between(in, 0, HTB_RESOURCES_MAX);
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        c.rate_per_s[r] = any_rate(in, 1000000000);
        c.best_effort.rate_per_s[r] = any_rate(in, c.rate_per_s[r]);
    }
    c.burst_ns = fuzz_between(in, 0, 3) ? fuzz_bytes(in, 4) : fuzz_bytes(in, 6);
    c.request_max_tokens = fuzz_between(in, 0, 3) ? fuzz_bytes(in, 2) : fuzz_bytes(in, 4);
    c.request_max_tokens = c.request_max_tokens % 8 == 7 ? QOS_NOTHING : c.request_max_tokens;
    c.debt_ns = fuzz_bytes(in, 4);
    c.start_ns = fuzz_between(in, 0, 3) ? 0 : fuzz_bytes(in, 8);
    c.depth_max = (uint32_t)fuzz_between(in, 0, 6);
    c.order = fuzz_between(in, 0, 1) ? HTB_FIFO : HTB_ELEVATOR;
    c.dispatch_max = (uint32_t)fuzz_between(in, 0, 5);
    c.device_max = (uint32_t)fuzz_between(in, 0, 5);
    c.bypass_max = (uint32_t)fuzz_between(in, 0, 5);
    c.maximize_step = (uint32_t)fuzz_between(in, 0, 5);
    c.maximize_interval_ns = fuzz_bytes(in, 3);
    c.maximize_rate_max = fuzz_between(in, 0, 1) ? 0 : any_rate(in, QOS_RATE_MAX);
    if (htb_config_error(&c)) {
        FUZZ_CHECK(htb_memsize(&c) == 0 && htb_init(&tree, arena, sizeof arena, &c) == QOS_ERANGE);
        for (r = 0; r < HTB_RESOURCES_MAX; r++) { /* made valid, so that most inputs get further */
            c.rate_per_s[r] = c.rate_per_s[r] == 0 || c.rate_per_s[r] > QOS_RATE_MAX ? 1000000 : c.rate_per_s[r];
            c.best_effort.rate_per_s[r] = 0;
        }
        c.burst_ns = c.burst_ns > HTB_BURST_MAX_NS ? 0 : c.burst_ns;
        c.request_max_tokens = c.request_max_tokens > 1000000000 ? 0 : c.request_max_tokens;
        c.device_max = 0;
        c.maximize_step = 0;
        c.maximize_interval_ns = 0;
        c.maximize_rate_max = 0;
    }
    arena_used = htb_memsize(&c);
    FUZZ_CHECK(arena_used != 0 && arena_used <= sizeof arena);
    memset(arena, 0xa5, sizeof arena);
    FUZZ_CHECK(htb_init(&tree, arena, arena_used - 1, &c) == QOS_EMEMORY);
    FUZZ_CHECK(htb_init(&tree, arena, arena_used, &c) == QOS_OK);
    config = c;
    resources = c.resources ? c.resources : 1;
    dispatch_max = c.dispatch_max ? c.dispatch_max : 64;
    device_max = c.device_max ? c.device_max : (uint32_t)qos_min(32, dispatch_max);
    maximize_rate_max = c.maximize_rate_max ? c.maximize_rate_max : QOS_RATE_MAX;
    memcpy(base_per_s, c.rate_per_s, sizeof base_per_s);
    memset(request, 0, sizeof request);
    memset(account, 0, sizeof account);
    now = latest = started = c.start_ns;
    submitted = completed = cancelled = 0;
    return true;
}

/* Runs due events first: then a call that fails must change nothing. */
static void settle(void)
{
    struct htb_class c;
    memset(&c, 0, sizeof c);
    FUZZ_CHECK(htb_change(&tree, now, UINT32_MAX, &c, NULL) == QOS_ENOENT);
    save(0);
}

static void step_class(struct fuzz_input *in, bool change)
{
    struct htb_class c, got;
    uint32_t id = any_id(in), r;
    uint64_t fits[HTB_RESOURCES_MAX];
    enum qos_status status;
    settle();
    memset(&c, 0, sizeof c);
    if (change && terms_of(id, &c) && fuzz_between(in, 0, 3) == 0) {
        status = htb_change(&tree, now, id, &c, fits); /* the present terms fit */
        FUZZ_CHECK(status == QOS_OK || (c.expires_ns != 0 && c.expires_ns <= now));
        return;
    }
    if (!change || fuzz_between(in, 0, 7) == 0) {
        c.parent = any_id(in); /* a change moves it */
        c.group = fuzz_between(in, 0, 2) == 0;
    }
    c.weight = (uint32_t)fuzz_bytes(in, fuzz_between(in, 0, 3) ? 1 : 3);
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        c.rate_per_s[r] = any_rate(in, base_per_s[0]);
        c.limit_per_s[r] = fuzz_between(in, 0, 1) ? 0 : any_rate(in, QOS_RATE_MAX);
    }
    c.burst_ns = fuzz_between(in, 0, 1) ? 0 : fuzz_bytes(in, 4);
    c.expires_ns = fuzz_between(in, 0, 3) ? 0 : qos_sat_add(now, any_span_ns(in));
    status = change ? htb_change(&tree, now, id, &c, fits) : htb_reserve(&tree, now, id, &c, fits);
    if (status == QOS_EADMISSION) { /* the reported fit is admitted */
        FUZZ_CHECK(unchanged(0));
        for (r = 0; r < resources; r++) {
            c.rate_per_s[r] = fits[r];
            c.limit_per_s[r] = 0;
        }
        status = change ? htb_change(&tree, now, id, &c, fits) : htb_reserve(&tree, now, id, &c, fits);
        FUZZ_CHECK(status == QOS_OK);
    }
    if (status != QOS_OK) {
        FUZZ_CHECK(unchanged(0));
        return;
    }
    FUZZ_CHECK(terms_of(id, &got));
    for (r = 0; r < resources; r++) {
        FUZZ_CHECK(got.rate_per_s[r] == c.rate_per_s[r]);
        FUZZ_CHECK(got.limit_per_s[r] == (c.limit_per_s[r] ? c.limit_per_s[r] : QOS_UNLIMITED));
    }
    FUZZ_CHECK(got.group == c.group && got.weight == (c.weight ? c.weight : 1));
}

static uint32_t class_at(uint32_t id, uint64_t at_ns)
{
    struct htb_class terms;
    if (!terms_of(id, &terms) || terms.group || (terms.expires_ns != 0 && terms.expires_ns <= at_ns))
        return HTB_BEST_EFFORT;
    return id;
}

static uint32_t class_of(uint32_t id)
{
    return class_at(id, now);
}

static bool take_at(uint32_t id, const uint64_t *n, uint64_t at_ns)
{
    bool taken;
    save(1);
    taken = htb_take_all(&tree, at_ns, id, n) == QOS_OK;
    restore(1);
    return taken;
}

static void step_take(struct fuzz_input *in)
{
    uint32_t id = any_id(in), r, class_id = class_of(id);
    uint64_t n[HTB_RESOURCES_MAX] = {0, 0, 0, 0}, next_ns;
    bool all = fuzz_between(in, 0, 1) != 0, too_many = false;
    enum qos_status status;
    for (r = 0; r < (all ? resources : 1); r++) {
        n[r] = any_tokens(in);
        too_many = too_many || n[r] > QOS_TOKENS_MAX;
    }
    next_ns = all ? htb_next_ns_all(&tree, now, id, n) : htb_next_ns(&tree, now, id, n[0]);
    settle();
    status = all ? htb_take_all(&tree, now, id, n) : htb_take(&tree, now, id, n[0]);
    if (too_many) {
        FUZZ_CHECK(status == QOS_ERANGE && unchanged(0) && next_ns == QOS_NEVER);
        return;
    }
    if (status == QOS_OK)
        account[class_id].largest = qos_max(account[class_id].largest, n[0]);
    if (latest == QOS_NEVER) /* past the last time */
        return;
    if (status == QOS_OK) {
        FUZZ_CHECK(next_ns == now);
        return;
    }
    FUZZ_CHECK(status == QOS_EAGAIN);
    if (info().queued != 0 ||
        class_id != id) /* a class may have ended with this call: its queue and claim are others' */
        next_ns = all ? htb_next_ns_all(&tree, now, id, n) : htb_next_ns(&tree, now, id, n[0]);
    FUZZ_CHECK(next_ns > now || now == QOS_NEVER);
    /* Queued requests may come to go first until then. If the class ends before, its claim is another one's. */
    if (info().queued != 0 || (next_ns != QOS_NEVER && class_at(id, next_ns) != class_id))
        return;
    if (next_ns != QOS_NEVER) {
        FUZZ_CHECK(take_at(id, n, next_ns));
        FUZZ_CHECK(!take_at(id, n, next_ns - 1));
        FUZZ_CHECK(!take_at(id, n, now + (next_ns - now) / 2));
    } else {
        FUZZ_CHECK(!take_at(id, n, qos_sat_add(now, UINT64_C(1) << 40)));
    }
}

static void step_force(struct fuzz_input *in)
{
    uint32_t id = any_id(in), r, class_id = class_of(id);
    uint64_t n[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    bool too_many = false;
    enum qos_status status;
    for (r = 0; r < resources; r++) {
        n[r] = any_tokens(in);
        too_many = too_many || n[r] > QOS_TOKENS_MAX;
    }
    settle();
    status = htb_force(&tree, now, id, n);
    FUZZ_CHECK(too_many ? status == QOS_ERANGE && unchanged(0) : status == QOS_OK || status == QOS_EDEBT);
    if (status == QOS_OK)
        account[class_id].forced += n[0];
}

static void step_submit(struct fuzz_input *in)
{
    struct htb_request *q = &request[fuzz_between(in, 0, REQUESTS - 1)];
    uint32_t r;
    enum qos_status status;
    bool too_many = false;
    settle();
    if (q->state != HTB_IDLE) {
        FUZZ_CHECK(htb_submit(&tree, now, q) == QOS_EBUSY && unchanged(0));
        return;
    }
    q->class_id = any_id(in);
    q->urgent = fuzz_between(in, 0, 7) == 0;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        q->tokens[r] = any_tokens(in);
        too_many = too_many || (r < resources && q->tokens[r] > QOS_TOKENS_MAX);
    }
    q->offset = fuzz_bytes(in, 1);
    save(0);
    status = htb_submit(&tree, now, q);
    if (too_many) {
        FUZZ_CHECK(status == QOS_ERANGE && unchanged(0));
        return;
    }
    FUZZ_CHECK(status == QOS_OK || (status == QOS_EDEBT && q->urgent));
    if (status != QOS_OK)
        return;
    submitted++;
    if (q->urgent)
        account[class_of(q->class_id)].forced += q->tokens[0];
    else
        for (r = 0; r < IDS; r++) /* it may be granted to any class that it passes to */
            account[r].largest = qos_max(account[r].largest, q->tokens[0]);
}

static void step_dispatch(void)
{
    uint64_t next_ns = htb_dispatch_next_ns(&tree, now);
    uint32_t at_device = info().at_device;
    const struct htb_request *q;
    save(0);
    q = htb_dispatch(&tree, now);
    if (now == QOS_NEVER && !q)
        return;
    FUZZ_CHECK(q ? next_ns == now && q->state == HTB_AT_DEVICE && info().at_device == at_device + 1 : next_ns > now);
    if (q || next_ns == now + 1)
        return;
    /* Nothing is dispatched earlier. At that time: a request, a later time, or an expiry. */
    save(1);
    FUZZ_CHECK(htb_dispatch(&tree, next_ns - 1) == NULL);
    restore(1);
    FUZZ_CHECK(htb_dispatch(&tree, now + (next_ns - now) / 2) == NULL);
    restore(1);
}

static void step_done(struct fuzz_input *in, bool cancel)
{
    struct htb_request *q = &request[fuzz_between(in, 0, REQUESTS - 1)];
    enum htb_request_state state;
    uint64_t real[HTB_RESOURCES_MAX];
    uint32_t r;
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        real[r] = fuzz_bytes(in, 3);
    settle();
    state = q->state;
    if (cancel) {
        bool can = state == HTB_QUEUED || state == HTB_DISPATCHED;
        FUZZ_CHECK(htb_cancel(&tree, now, q) == (can ? QOS_OK : QOS_EINVAL));
        FUZZ_CHECK(can ? q->state == HTB_IDLE : unchanged(0));
        cancelled += can;
    } else {
        bool can = state == HTB_AT_DEVICE, known = fuzz_between(in, 0, 3) == 0;
        enum htb_outcome outcome = fuzz_between(in, 0, 3) ? HTB_DONE : HTB_NOT_DONE;
        FUZZ_CHECK(htb_complete(&tree, now, outcome, known ? real : NULL, q) == (can ? QOS_OK : QOS_EINVAL));
        FUZZ_CHECK(can ? q->state == HTB_IDLE : unchanged(0));
        for (r = 0; r < IDS && can && known && outcome == HTB_DONE; r++) /* charged to the class that paid */
            account[r].forced += qos_sat_sub(real[0], q->tokens[0]);
        completed += can;
    }
}

static void step_root(struct fuzz_input *in)
{
    uint64_t rate[HTB_RESOURCES_MAX];
    enum qos_status status;
    uint32_t r;
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        rate[r] = any_rate(in, QOS_RATE_MAX);
    settle();
    status = htb_change_root(&tree, now, rate);
    if (status == QOS_OK) {
        memcpy(base_per_s, rate, sizeof base_per_s);
        maximize_rate_max = qos_max(maximize_rate_max, rate[0]);
    }
    FUZZ_CHECK(status == QOS_OK ? info().rate_per_s[0] == rate[0]
                                : unchanged(0) && (status == QOS_ERANGE || status == QOS_EADMISSION));
}

static void step_maximize(struct fuzz_input *in)
{
    enum htb_scenario scenario;
    uint64_t before = info().rate_per_s[0];
    scenario = htb_maximize(&tree, now, fuzz_between(in, 0, 3) == 0);
    FUZZ_CHECK(info().rate_per_s[0] >= base_per_s[0]);
    FUZZ_CHECK(info().rate_per_s[0] <= qos_max(before, maximize_rate_max));
    FUZZ_CHECK(scenario == HTB_CAPPED || info().rate_per_s[0] <= before);
}

static void step_release(struct fuzz_input *in)
{
    uint32_t id = any_id(in);
    struct htb_class terms;
    enum qos_status status;
    bool used;
    settle();
    used = terms_of(id, &terms);
    status = htb_release(&tree, now, id);
    if (status == QOS_OK) {
        FUZZ_CHECK(used && !terms_of(id, &terms));
        return;
    }
    FUZZ_CHECK(unchanged(0));
    FUZZ_CHECK(status == (id == 0 ? QOS_EINVAL : used ? QOS_EBUSY : QOS_ENOENT));
}

static void step_stats(struct fuzz_input *in)
{
    uint32_t id = any_id(in), i;
    struct qos_stats all, s, sum = {0, 0, 0, 0, 0};
    FUZZ_CHECK(htb_stats(&tree, id, &s) == (id < config.classes || id == QOS_NONE ? QOS_OK : QOS_ENOENT));
    for (i = 0; i < config.classes; i++) {
        FUZZ_CHECK(htb_stats(&tree, i, &s) == QOS_OK);
        sum.granted += s.granted;
        sum.debt += s.debt;
    }
    FUZZ_CHECK(htb_stats(&tree, QOS_NONE, &all) == QOS_OK && all.granted == sum.granted && all.debt == sum.debt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    unsigned steps;
    if (!begin(&in))
        return 0;
    for (steps = 0; in.left && steps < 300; steps++) {
        uint64_t op = fuzz_between(&in, 0, 31), span;
        switch (op) {
        case 0:
        case 1:
        case 2:
        case 3: step_class(&in, false); break;
        case 4:
        case 5: step_class(&in, true); break;
        case 6: step_release(&in); break;
        case 7: step_root(&in); break;
        case 8: step_stats(&in); break;
        case 9: step_maximize(&in); break;
        case 10: step_force(&in); break;
        case 11: step_done(&in, true); break;
        case 12:
        case 13: step_done(&in, false); break;
        case 14:
        case 15:
        case 16:
        case 17: step_take(&in); break;
        case 18:
        case 19:
        case 20:
        case 21: step_submit(&in); break;
        case 22: /* the clock goes back */
            span = any_span_ns(&in);
            now -= span < now ? span : now;
            break;
        case 23:
        case 24: /* to the next event */
            span = htb_dispatch_next_ns(&tree, now);
            now = span == QOS_NEVER ? now : span;
            break;
        case 25:
        case 26: step_dispatch(); break;
        default: now = qos_sat_add(now, any_span_ns(&in)); break;
        }
        if (now > latest)
            latest = now;
        check_tree();
        check_requests();
        check_account();
    }
    return 0;
}
