// proves: any program of calls on htb.h keeps its lists, heap, sums and counts consistent, mints nothing, and is
// answered exactly: a refused take passes at htb_next_ns and not before, nothing leaves before htb_dispatch_next_ns
// runs: 15000
#include "htb.h"
#include "fuzz/fuzz.h"

/* Of the implementation, as this must also build against the prototypes alone. */
#define NIL UINT32_MAX
#define USED 1u
#define GROUP 2u
#define LIMITED 4u
#define EXPIRES 8u
#define IN_ROW 16u
#define IN_RING 32u
#define ROW 0
#define RING 1
#define FLOOR (-8 * INT64_C(1000000000) * QOS_SUBTOKENS)

#define IDS 12
#define REQUESTS 16
#define ARENA 16384

static unsigned char arena[ARENA] __attribute__((aligned(64)));
static struct htb tree;
static struct htb_request request[REQUESTS];
static struct {
    unsigned char arena[ARENA];
    struct htb tree;
    struct htb_request request[REQUESTS];
} saved[2];

static size_t arena_used;
static uint64_t now, latest, started;
/* What may have been granted at most. */
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

/* Nothing was written at all, padding included. */
static bool unchanged(int i)
{
    return same_bytes(arena, saved[i].arena, arena_used) && same_bytes(&tree, &saved[i].tree, sizeof tree) &&
           same_bytes(request, saved[i].request, sizeof request);
}

static const struct htb_priv_pair *pair_of(uint32_t id, uint32_t r)
{
    return r == 0 ? &tree.node[id].pair : &tree.more[(size_t)id * (tree.resources - 1) + r - 1];
}

static uint64_t sum_of(uint32_t id, uint32_t r)
{
    return r == 0 ? tree.cls[id].sum_per_s : tree.more_sum[(size_t)id * (tree.resources - 1) + r - 1];
}

static bool passes(const struct htb_priv_bucket *b, uint64_t n)
{
    int64_t n_sub = (int64_t)n * QOS_SUBTOKENS;
    return n == 0 || b->level >= (n_sub < b->depth ? n_sub : b->depth);
}

/* First time at which bucket b passes n, counted from last_ns; last_ns if it does already. */
static uint64_t ready_ns(const struct htb_priv_bucket *b, uint64_t last_ns, uint64_t n)
{
    int64_t n_sub = (int64_t)n * QOS_SUBTOKENS, gate = n_sub < b->depth ? n_sub : b->depth;
    uint64_t lack, t;
    if (passes(b, n))
        return last_ns;
    if (b->rate == 0)
        return UINT64_MAX;
    lack = b->level < 0 && gate > 0 ? (uint64_t)gate + (uint64_t)-b->level : (uint64_t)(gate - b->level);
    lack = lack / b->rate + (lack % b->rate != 0);
    return __builtin_add_overflow(last_ns, lack, &t) ? UINT64_MAX : t;
}

static const struct htb_request *next_request(uint32_t id)
{
    while (id != NIL && (tree.node[id].flags & GROUP))
        id = tree.cls[id].u.group.ring;
    return id == NIL || !tree.cls[id].u.tail ? NULL : tree.cls[id].u.tail->next;
}

/* Walks one circular list; returns how many are in it. */
static uint32_t walk(int which, uint32_t head, unsigned flag, uint32_t parent, uint32_t row)
{
    uint32_t id = head, count = 0;
    if (head == NIL)
        return 0;
    do {
        const struct htb_priv_link *link = &tree.cls[id].link[which];
        FUZZ_CHECK(id <= tree.classes && (tree.node[id].flags & USED) && (tree.node[id].flags & flag));
        FUZZ_CHECK(tree.cls[link->next].link[which].prev == id && tree.cls[link->prev].link[which].next == id);
        if (which == RING)
            FUZZ_CHECK(tree.node[id].parent == parent);
        else
            FUZZ_CHECK(row == (tree.node[id].flags & GROUP ? 1 + tree.depth_max - tree.node[id].depth : 0));
        FUZZ_CHECK(++count <= tree.classes + 1);
        id = link->next;
    } while (id != head);
    return count;
}

/* Does the node stand where its request and its buckets put it? */
static void check_place(uint32_t id)
{
    const struct htb_request *q = next_request(id);
    unsigned flags = tree.node[id].flags;
    uint32_t at = tree.event.pos[id], r;
    uint64_t key = at == UINT32_MAX ? QOS_NEVER : tree.event.entry[at].key, own_ns = 0;
    uint64_t expires_ns = flags & EXPIRES ? tree.cls[id].expires_ns : QOS_NEVER;
    uint64_t last_ns = tree.node[id].last_ns;
    bool limit_passes = true, own_passes = true;
    if (!q) {
        FUZZ_CHECK(!(flags & (IN_ROW | IN_RING)) && key == expires_ns);
        return;
    }
    for (r = 0; r < tree.resources; r++) {
        uint64_t t = ready_ns(&pair_of(id, r)->rate, last_ns, q->tokens[r]);
        own_ns = q->tokens[r] != 0 && t > own_ns ? t : own_ns;
        own_passes = own_passes && passes(&pair_of(id, r)->rate, q->tokens[r]);
        limit_passes =
            limit_passes && (pair_of(id, r)->limit.rate == HTB_NONE || passes(&pair_of(id, r)->limit, q->tokens[r]));
    }
    if (flags & IN_ROW) {
        FUZZ_CHECK(own_passes && limit_passes && key == expires_ns);
        FUZZ_CHECK(id == tree.classes || (flags & IN_RING));
    } else if ((flags & IN_RING) || id == tree.classes) {
        FUZZ_CHECK(limit_passes);
        if (own_passes) /* refilled since it was placed: it is due */
            FUZZ_CHECK(key <= last_ns);
        else
            FUZZ_CHECK(key == (own_ns < expires_ns ? own_ns : expires_ns));
    } else { /* it was at its limit */
        if (!(flags & GROUP))
            FUZZ_CHECK(key <= htb_next_ns_all(&tree, id, q->tokens, latest));
    }
}

static void check_tree(void)
{
    uint32_t id, r, i, rows = 0, rings = 0, in_row = 0, in_ring = 0, limited = 0, children[IDS + 1] = {0};
    uint64_t sums[IDS + 1][HTB_RESOURCES_MAX] = {{0}}, queued = 0;
    for (id = 0; id <= tree.classes; id++) {
        unsigned flags = tree.node[id].flags;
        uint32_t parent = tree.node[id].parent;
        if (!(flags & USED)) {
            FUZZ_CHECK(tree.event.pos[id] == UINT32_MAX);
            continue;
        }
        in_row += (flags & IN_ROW) != 0;
        in_ring += (flags & IN_RING) != 0;
        limited += (flags & LIMITED) != 0;
        if (id != tree.classes) {
            FUZZ_CHECK((tree.node[parent].flags & (USED | GROUP)) == (USED | GROUP));
            FUZZ_CHECK(tree.node[id].depth == tree.node[parent].depth + 1 && tree.node[id].depth <= tree.depth_max);
            children[parent]++;
        }
        for (r = 0; r < tree.resources; r++) {
            const struct htb_priv_pair *p = pair_of(id, r);
            FUZZ_CHECK(p->rate.level <= p->rate.depth && p->rate.level >= FLOOR);
            FUZZ_CHECK(p->rate.rate != 0 ? p->rate.depth > 0 : p->rate.depth <= 0 && p->rate.level == FLOOR);
            if (p->limit.rate != HTB_NONE) {
                FUZZ_CHECK((flags & LIMITED) && p->limit.level <= p->limit.depth && p->limit.level >= FLOOR);
                FUZZ_CHECK(p->limit.rate >= p->rate.rate && p->limit.rate != 0);
            }
            if (id != tree.classes)
                sums[parent][r] += p->rate.rate;
        }
        if (flags & GROUP) {
            rings += walk(RING, tree.cls[id].u.group.ring, IN_RING, id, 0);
        } else {
            const struct htb_request *q = tree.cls[id].u.tail;
            if (q)
                do {
                    q = q->next;
                    FUZZ_CHECK(q->state == HTB_QUEUED && q->slot == id && q->prev->next == q);
                    FUZZ_CHECK(++queued <= REQUESTS);
                } while (q != tree.cls[id].u.tail);
        }
        check_place(id);
    }
    for (id = 0; id <= tree.classes; id++)
        if (tree.node[id].flags & USED) {
            FUZZ_CHECK(!(tree.node[id].flags & GROUP) || tree.cls[id].u.group.children == children[id]);
            for (r = 0; r < tree.resources; r++) {
                FUZZ_CHECK(sum_of(id, r) == sums[id][r]);
                FUZZ_CHECK(sums[id][r] <= (id == tree.classes ? tree.base_per_s[r] : pair_of(id, r)->rate.rate));
            }
        }
    for (i = 0; i < tree.depth_max + 2; i++)
        rows += walk(ROW, tree.row[i], IN_ROW, 0, i);
    FUZZ_CHECK(rows == in_row && rings == in_ring && queued == tree.queued);
    FUZZ_CHECK(tree.detours == queued + limited + tree.resources - 1);
    for (i = 0; i < tree.event.count; i++) {
        FUZZ_CHECK(tree.event.pos[tree.event.entry[i].id] == i);
        FUZZ_CHECK(i == 0 || tree.event.entry[(i - 1) / 4].key <= tree.event.entry[i].key);
    }
    for (r = 0; r < tree.resources; r++)
        FUZZ_CHECK(pair_of(tree.classes, r)->rate.rate >= tree.base_per_s[r]);
}

static void check_requests(void)
{
    uint64_t count[4] = {0, 0, 0, 0};
    uint32_t i, aged = 0, urgent = 0, bulk = 0;
    for (i = 0; i < REQUESTS; i++) {
        count[request[i].state]++;
        bulk += request[i].state == HTB_AT_DEVICE && !request[i].urgent;
    }
    FUZZ_CHECK(bulk <= tree.device_max && tree.waiting + bulk <= tree.dispatch_max);
    FUZZ_CHECK(submitted == completed + cancelled + count[HTB_QUEUED] + count[HTB_DISPATCHED] + count[HTB_AT_DEVICE]);
    for (i = tree.oldest_slot; i != NIL; i = tree.slot[i].link.next) {
        FUZZ_CHECK(tree.slot[i].request->state == HTB_DISPATCHED && tree.slot[i].request->slot == i);
        FUZZ_CHECK(++aged <= tree.dispatch_max);
    }
    if (tree.urgent) {
        const struct htb_request *q = tree.urgent;
        do {
            q = q->next;
            FUZZ_CHECK(q->state == HTB_DISPATCHED && q->slot == NIL);
            FUZZ_CHECK(++urgent <= REQUESTS);
        } while (q != tree.urgent);
    }
    FUZZ_CHECK(count[HTB_QUEUED] == tree.queued && aged == tree.waiting && aged + urgent == count[HTB_DISPATCHED]);
    FUZZ_CHECK(count[HTB_AT_DEVICE] == tree.at_device);
    if (tree.order == HTB_ELEVATOR)
        FUZZ_CHECK(tree.sweep[0].count + tree.sweep[1].count == aged);
}

/* The counter of each class is what it was granted; own tokens never exceed its rate times the time and a burst. */
static void check_account(void)
{
    uint32_t id;
    for (id = 0; id < tree.classes; id++) {
        struct qos_stats s;
        uint64_t own, most;
        const struct htb_priv_pair *p = pair_of(id, 0);
        if (!(tree.node[id].flags & USED) || (tree.node[id].flags & GROUP))
            continue;
        htb_stats(&tree, id, &s);
        FUZZ_CHECK(s.borrowed <= s.granted);
        if (s.granted < account[id].last_granted) /* reserved anew */
            account[id].granted_before += account[id].last_granted;
        account[id].last_granted = s.granted;
        if (p->rate.rate > account[id].max_rate)
            account[id].max_rate = p->rate.rate;
        if ((uint64_t)p->rate.depth > account[id].most_depth && p->rate.depth > 0)
            account[id].most_depth = (uint64_t)p->rate.depth;
        if (!(s.borrowed || account[id].granted_before)) {
            own = s.granted - qos_min(s.granted, account[id].forced);
            most = qos_sat_add(qos_mul_div_ceil(account[id].max_rate, latest - started, QOS_NS_PER_S),
                               account[id].most_depth / QOS_SUBTOKENS + account[id].largest + 1);
            FUZZ_CHECK(own <= most);
        }
    }
}

static uint64_t any_rate(struct fuzz_input *in, uint64_t most)
{
    static const uint64_t rate[] = {0, HTB_NONE, 1, 3, 1000, 1000000, 1000000000, 999999999999, QOS_RATE_MAX};
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
    return id == IDS + 3 ? HTB_ROOT : id == IDS + 2 ? UINT32_MAX - 1 : id;
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
        c.best_effort_per_s[r] = any_rate(in, c.rate_per_s[r]);
    }
    c.burst_ns = fuzz_between(in, 0, 3) ? fuzz_bytes(in, 4) : fuzz_bytes(in, 6);
    c.request_max_tokens = fuzz_between(in, 0, 3) ? fuzz_bytes(in, 2) : fuzz_bytes(in, 4);
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
        for (r = 0; r < HTB_RESOURCES_MAX; r++) { /* mended, so that most inputs get further */
            c.rate_per_s[r] = c.rate_per_s[r] == 0 || c.rate_per_s[r] > QOS_RATE_MAX ? 1000000 : c.rate_per_s[r];
            c.best_effort_per_s[r] = 0;
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
    memset(request, 0, sizeof request);
    memset(account, 0, sizeof account);
    now = latest = started = c.start_ns;
    submitted = completed = cancelled = 0;
    return true;
}

/* Events that are due run first, so that a call that fails has nothing to do, and must change nothing. */
static void settle(void)
{
    struct htb_class c;
    memset(&c, 0, sizeof c);
    FUZZ_CHECK(htb_change(&tree, UINT32_MAX, &c, now, NULL) == QOS_ENOENT);
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
    if (change && htb_get(&tree, id, &c) == QOS_OK && fuzz_between(in, 0, 3) == 0) {
        status = htb_change(&tree, id, &c, now, fits); /* what it has fits */
        FUZZ_CHECK(status == QOS_OK || (c.expires_ns != 0 && c.expires_ns <= now));
        return;
    }
    if (!change || fuzz_between(in, 0, 7) == 0) {
        c.parent = any_id(in);
        c.group = fuzz_between(in, 0, 2) == 0;
    }
    c.weight = (uint32_t)fuzz_bytes(in, fuzz_between(in, 0, 3) ? 1 : 3);
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        c.rate_per_s[r] = any_rate(in, tree.base_per_s[0]);
        c.limit_per_s[r] = fuzz_between(in, 0, 1) ? 0 : any_rate(in, QOS_RATE_MAX);
    }
    c.burst_ns = fuzz_between(in, 0, 1) ? 0 : fuzz_bytes(in, 4);
    c.expires_ns = fuzz_between(in, 0, 3) ? 0 : qos_sat_add(now, any_span_ns(in));
    status = change ? htb_change(&tree, id, &c, now, fits) : htb_reserve(&tree, id, &c, now, fits);
    if (status == QOS_EADMISSION) { /* what fits is admitted */
        FUZZ_CHECK(unchanged(0));
        for (r = 0; r < tree.resources; r++) {
            c.rate_per_s[r] = fits[r] == 0 ? HTB_NONE : fits[r];
            c.limit_per_s[r] = 0;
        }
        status = change ? htb_change(&tree, id, &c, now, fits) : htb_reserve(&tree, id, &c, now, fits);
        FUZZ_CHECK(status == QOS_OK);
    }
    if (status != QOS_OK) {
        FUZZ_CHECK(unchanged(0));
        return;
    }
    FUZZ_CHECK(htb_get(&tree, id, &got) == QOS_OK);
    for (r = 0; r < tree.resources; r++) {
        FUZZ_CHECK(got.rate_per_s[r] == (c.rate_per_s[r] ? c.rate_per_s[r] : HTB_NONE));
        FUZZ_CHECK(got.limit_per_s[r] == (c.limit_per_s[r] ? c.limit_per_s[r] : HTB_NONE));
    }
    FUZZ_CHECK(got.group == c.group && got.weight == (c.weight ? c.weight : 1));
}

static uint32_t class_of(uint32_t id)
{
    if (id >= tree.classes || (tree.node[id].flags & (USED | GROUP)) != USED ||
        ((tree.node[id].flags & EXPIRES) && tree.cls[id].expires_ns <= now))
        return HTB_BEST_EFFORT;
    return id;
}

static bool take_at(uint32_t id, const uint64_t *n, uint64_t at_ns)
{
    bool taken;
    save(1);
    taken = htb_take_all(&tree, id, n, at_ns) == QOS_OK;
    restore(1);
    return taken;
}

static void step_take(struct fuzz_input *in)
{
    uint32_t id = any_id(in), r, class_id = class_of(id);
    uint64_t n[HTB_RESOURCES_MAX] = {0, 0, 0, 0}, next_ns;
    bool all = fuzz_between(in, 0, 1) != 0, too_many = false;
    enum qos_status status;
    for (r = 0; r < (all ? tree.resources : 1); r++) {
        n[r] = any_tokens(in);
        too_many = too_many || n[r] > QOS_TOKENS_MAX;
    }
    next_ns = all ? htb_next_ns_all(&tree, id, n, now) : htb_next_ns(&tree, id, n[0], now);
    settle();
    status = all ? htb_take_all(&tree, id, n, now) : htb_take(&tree, id, n[0], now);
    if (too_many) {
        FUZZ_CHECK(status == QOS_ERANGE && unchanged(0) && next_ns == QOS_NEVER);
        return;
    }
    if (status == QOS_OK) {
        FUZZ_CHECK(next_ns == now);
        if (n[0] > account[class_id].largest)
            account[class_id].largest = n[0];
        return;
    }
    FUZZ_CHECK(status == QOS_EAGAIN && (next_ns > now || now == QOS_NEVER));
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
    for (r = 0; r < tree.resources; r++) {
        n[r] = any_tokens(in);
        too_many = too_many || n[r] > QOS_TOKENS_MAX;
    }
    settle();
    status = htb_force(&tree, id, n, now);
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
        FUZZ_CHECK(htb_submit(&tree, q, now) == QOS_EBUSY && unchanged(0));
        return;
    }
    q->class_id = any_id(in);
    q->urgent = fuzz_between(in, 0, 7) == 0;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        q->tokens[r] = any_tokens(in);
        too_many = too_many || (r < tree.resources && q->tokens[r] > QOS_TOKENS_MAX);
    }
    q->offset = fuzz_bytes(in, 1);
    save(0);
    status = htb_submit(&tree, q, now);
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
    uint32_t at_device = tree.at_device;
    const struct htb_request *q;
    save(0);
    q = htb_dispatch(&tree, now);
    if (now == QOS_NEVER && !q)
        return;
    FUZZ_CHECK(q ? next_ns == now && q->state == HTB_AT_DEVICE && tree.at_device == at_device + 1 : next_ns > now);
    if (q || next_ns == now + 1)
        return;
    /* Nothing leaves before; and at that time something happens: a request, or a later time, or an expiry. */
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
    settle();
    state = q->state;
    if (cancel) {
        bool can = state == HTB_QUEUED || state == HTB_DISPATCHED;
        FUZZ_CHECK(htb_cancel(&tree, q, now) == (can ? QOS_OK : QOS_EINVAL));
        FUZZ_CHECK(can ? q->state == HTB_IDLE : unchanged(0));
        cancelled += can;
    } else {
        bool can = state == HTB_AT_DEVICE;
        FUZZ_CHECK(htb_complete(&tree, q) == (can ? QOS_OK : QOS_EINVAL));
        FUZZ_CHECK(can ? q->state == HTB_IDLE : unchanged(0));
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
    status = htb_set_root_rate(&tree, rate, now);
    FUZZ_CHECK(status == QOS_OK ? htb_root_rate(&tree) == rate[0]
                                : unchanged(0) && (status == QOS_ERANGE || status == QOS_EADMISSION));
}

static void step_maximize(struct fuzz_input *in)
{
    enum htb_scenario scenario;
    uint64_t before = htb_root_rate(&tree);
    htb_maximize(&tree, fuzz_between(in, 0, 3) == 0, now, &scenario);
    FUZZ_CHECK(htb_root_rate(&tree) >= tree.base_per_s[0]);
    FUZZ_CHECK(htb_root_rate(&tree) <= qos_max(before, tree.maximize_rate_max));
    FUZZ_CHECK(scenario == HTB_CAPPED || htb_root_rate(&tree) <= before);
}

static void step_release(struct fuzz_input *in)
{
    uint32_t id = any_id(in);
    enum qos_status status;
    settle();
    status = htb_release(&tree, id, now);
    if (status != QOS_OK) {
        FUZZ_CHECK(unchanged(0));
        FUZZ_CHECK(status == (id == 0                                               ? QOS_EINVAL
                              : id >= tree.classes || !(tree.node[id].flags & USED) ? QOS_ENOENT
                                                                                    : QOS_EBUSY));
    }
}

static void step_stats(struct fuzz_input *in)
{
    uint32_t id = any_id(in);
    struct qos_stats one, below, sum, s;
    uint32_t i;
    htb_stats(&tree, id, &one);
    htb_stats_below(&tree, id, &below);
    if (id < tree.classes && (tree.node[id].flags & (USED | GROUP)) == USED)
        FUZZ_CHECK(memcmp(&one, &below, sizeof one) == 0);
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < tree.classes; i++)
        if ((tree.node[i].flags & (USED | GROUP)) == USED) {
            htb_stats(&tree, i, &s);
            sum.granted += s.granted;
            sum.refused += s.refused;
        }
    htb_stats_below(&tree, HTB_ROOT, &below);
    FUZZ_CHECK(sum.granted == below.granted && sum.refused == below.refused);
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
