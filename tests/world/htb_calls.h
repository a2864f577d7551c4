/* htb_calls.h - programs of calls of htb.h beside an account of every token that is kept in the plainest way
 *
 * A program is a small tree and some dozens of random calls: all functions of one tree, right and wrong arguments,
 * times that go on, stand, go back or jump to what was told. The account refills every bucket at every step and looks
 * at all of them for every answer; it is written from the contract and the chapters' public comments, in 128 bits. What
 * the contract leaves open (who waited in a queue earns more, who lent) is an interval: low..high. In a tree without
 * queues low is high. What is answered must be possible in the interval. `settings`: the same with settings that the
 * other programs leave alone. `waits`: the same with times as long as a device pauses or hangs, and told times that are
 * waited for until something goes.
 */
#ifndef QOS_TESTS_WORLD_HTB_CALLS_H
#define QOS_TESTS_WORLD_HTB_CALLS_H

__extension__ typedef __int128 wide;

#define ACC_CLASSES 48u
#define ACC_NODES (ACC_CLASSES + 1)
#define ACC_REQUESTS 32u
#define ACC_TOKEN ((wide)1000000000) /* levels and amounts are in 10^-9 tokens */
#define ACC_MOST ((wide)4000000000 * ACC_TOKEN)
#define ACC_FAR_NS (UINT64_C(1) << 61)
#define ACC_NONE UINT32_MAX
#define ACC_UNIT ((wide)1 << 20) /* of a tag: one token of a class of weight 1 */

enum tri { NO = 0, MAYBE = 1, YES = 2 };

struct acc_bucket {
    bool on; /* a rate: has one; a limit: has one. If off or of rate 0, low and high are the debt carried over */
    uint64_t rate;
    wide depth, low, high;
};
struct acc_claim {
    bool on, sure; /* sure: its reach is known */
    uint64_t n[HTB_RESOURCES_MAX], until, burst;
    uint32_t reach;
    enum tri returns, fresh;
};
struct acc_node {
    bool used, group, former, over; /* over: it has expired, and may have ended */
    bool told;                      /* that it has expired */
    bool to_tell;
    struct htb_class terms; /* with defaults; limits: QOS_UNLIMITED for none */
    struct acc_bucket rate[HTB_RESOURCES_MAX], limit[HTB_RESOURCES_MAX];
    wide tag, clock;
    struct acc_claim claim;
    uint32_t comes_low, comes_high;       /* it came back for claims of less than 2^ this */
    enum tri fresh;                       /* and nothing is known of it */
    uint32_t up, generation, outstanding; /* up: the parent, as an index */
    uint64_t granted, borrowed, refused, waited;
    bool waited_unsure;
};
enum acc_life { R_IDLE = 0, R_QUEUED, R_URGENT, R_DISPATCHED, R_AT_DEVICE };
struct acc_request {
    enum acc_life life;
    bool gate;
    uint32_t slot, generation, first, last; /* may have paid: first and above; must have: last and above */
    uint32_t from;                          /* the class that ended in this call while it waited there; 0: none */
    uint64_t order, since_ns;
    uint64_t n[HTB_RESOURCES_MAX];
    wide flight_ns;
    uint64_t sent_ns;
    bool beyond,
        may_hang; /* it may have gone as what was there may hang; one of those that did was complete before it */
    uint32_t call, passed; /* of htb_dispatch, when it was moved; later ones that were given since */
};

static struct {
    struct world *w;
    struct world_rng rng;
    struct htb_config config; /* with defaults */
    struct acc_node node[ACC_NODES];
    struct acc_request request[ACC_REQUESTS];
    uint32_t classes, resources, root;
    uint64_t now, orders, gate_end, tokens_max, base[HTB_RESOURCES_MAX];
    uint64_t seen_ns, looked_ns, root_max;         /* seen_ns: the tree has seen this time */
    bool queues, tags_unsure, half, by_rate, ends; /* ends: what follows is not judged */
    wide slop;                                     /* of tags */
    uint64_t submits, early, granted, rounded;     /* granted: since the maximizer's last look */
    uint64_t slow_from, slow_looks;                /* where a class missed its rate before */
    enum tri lacked, was_capped; /* since that, the root had no tokens for somebody; it capped at that look */
    uint32_t step;
    bool settings, waits, swept, hung_unsure; /* swept: a sweep is at head */
    uint32_t dispatches;
    uint64_t head, done_ns; /* done_ns: something was done last, or nothing was in flight */
    /* something went or was done last, or the clock was set; something was done last, or the device was idle; the
     * longest of these gaps */
    uint64_t moved_ns, last_ns, gap_ns;
} acc;
static struct htb acc_tree;
static struct htb_request acc_queue[ACC_REQUESTS];
static unsigned char acc_memory[65536] __attribute__((aligned(64)));

#define ACC_FAIL(oracle, ...) world_fail(acc.w, oracle, acc.now, __VA_ARGS__)

static uint64_t acc_any(uint64_t low, uint64_t high)
{
    return world_between(&acc.rng, low, high);
}
static bool acc_chance(uint32_t permille)
{
    return world_chance(&acc.rng, permille);
}
static wide acc_least(wide a, wide b)
{
    return a < b ? a : b;
}
static wide acc_largest(wide a, wide b)
{
    return a > b ? a : b;
}
static void acc_say(const char *what, uint32_t id, uint64_t n)
{
    world_trace(acc.now, id, what, n);
    acc.w->events++;
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

static wide acc_depth(uint64_t rate, uint64_t burst_ns)
{
    wide more = acc.config.request_max_tokens == QOS_NOTHING ? 0 : (wide)acc.config.request_max_tokens * ACC_TOKEN;
    return acc_least((wide)rate * burst_ns * (acc.half ? 2 : 1) + more, ACC_MOST);
}

/* What of n must be there. */
static wide acc_need(const struct acc_bucket *b, uint64_t n)
{
    return acc_least((wide)n * ACC_TOKEN, acc.half ? b->depth / 2 : b->depth);
}

static void acc_set(struct acc_bucket *b, bool on, uint64_t rate, uint64_t burst_ns)
{
    b->on = on;
    b->rate = rate;
    b->depth = on && rate ? acc_depth(rate, burst_ns) : 0; /* earned tokens stay up to that; debt stays */
    b->low = acc_least(b->low, b->depth);
    b->high = acc_least(b->high, b->depth);
}

static wide acc_fill(const struct acc_bucket *b, wide level, uint64_t ns, uint64_t more_ns)
{
    if (!b->on || b->rate == 0)
        return level;
    /* What was earned above the depth stays until it is spent; nothing is added to it. */
    return acc_largest(level, acc_least(level + (wide)b->rate * ns, b->depth + (wide)b->rate * more_ns));
}

static void acc_charge(struct acc_bucket *b, wide n, bool sure)
{
    if (!b->on || b->rate == 0)
        return;
    b->low = n >= 0 ? acc_largest(b->low - n, -2 * ACC_MOST) : acc_least(b->low - (sure ? n : 0), b->depth);
    if (n >= 0)
        b->high = acc_largest(b->high - (sure ? n : 0), -2 * ACC_MOST);
    else
        b->high = acc_largest(b->high, acc_least(b->high - n, b->depth));
}

static bool acc_below(uint32_t id, uint32_t above)
{
    while (id != ACC_NONE && id != above)
        id = acc.node[id].up;
    return id == above;
}

static bool acc_queued_below(uint32_t id)
{
    uint32_t i;
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_QUEUED && acc_below(acc.request[i].slot, id))
            return true;
    return false;
}

static bool acc_claims(uint32_t c, uint32_t i, uint64_t ns);
static wide acc_cost(const uint64_t *n);

/* A bucket may hold as much again while a claim needs all of it: so long it earns above its depth. */
static uint64_t acc_held_ns(uint32_t i, const struct acc_bucket *b, uint32_t r)
{
    uint32_t c;
    for (c = 0; c < acc.classes && b->on && b->rate != 0; c++)
        if (acc.node[c].claim.on && acc_claims(c, i, 0) && acc_need(b, acc.node[c].claim.n[r]) >= b->depth)
            return (uint64_t)(b->depth / (wide)b->rate) + 1;
    return 0;
}

/* Time goes on. Who waits in a queue may earn up to lag_ns above its depth. */
static void acc_advance(uint64_t now)
{
    uint32_t i, r;
    uint64_t ns = now > acc.now ? now - acc.now : 0;
    for (i = 0; i < ACC_NODES && ns; i++) {
        struct acc_node *c = &acc.node[i];
        uint64_t more = 0;
        if (!c->former || i > acc.root)
            continue;
        if (acc.queues && (c->outstanding || acc_queued_below(i)))
            more = acc.config.lag_ns;
        for (r = 0; r < acc.resources; r++) {
            c->rate[r].low = acc_fill(&c->rate[r], c->rate[r].low, ns, 0);
            c->rate[r].high = acc_fill(&c->rate[r], c->rate[r].high, ns, more + acc_held_ns(i, &c->rate[r], r));
            c->limit[r].low = acc_fill(&c->limit[r], c->limit[r].low, ns, 0);
            c->limit[r].high = acc_fill(&c->limit[r], c->limit[r].high, ns, acc_held_ns(i, &c->limit[r], r));
        }
    }
    acc.now += ns;
    for (i = 0; i < acc.classes && ns; i++)
        if (acc.node[i].used && !acc.node[i].group && acc.node[i].terms.expires_ns &&
            acc.node[i].terms.expires_ns <= acc.now)
            acc.node[i].over = true;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static uint32_t acc_child(uint32_t above, uint32_t i)
{
    while (i != ACC_NONE && acc.node[i].up != above)
        i = acc.node[i].up;
    return i;
}

static wide acc_tag(uint32_t i)
{
    return acc_largest(acc.node[i].tag, acc.node[acc.node[i].up].clock);
}

/* Does class a go before class b, in the ring where their ways meet? */
static enum tri acc_before(uint32_t a, uint32_t b)
{
    uint32_t g;
    if (acc.tags_unsure)
        return MAYBE;
    for (g = 0; g <= acc.root; g++) {
        uint32_t at_a = acc_child(g, a), at_b = acc_child(g, b);
        if (at_a != ACC_NONE && at_b != ACC_NONE && at_a != at_b) {
            wide d = acc_tag(at_a) - acc_tag(at_b);
            if (d != 0 && d <= acc.slop && d >= -acc.slop)
                return MAYBE;
            if (d == 0 && acc.slop > 1)
                return MAYBE;
            return d != 0 ? (d < 0 ? YES : NO) : at_a < at_b ? YES : NO;
        }
    }
    return NO;
}

/* Does the claim of class c, ns from now, need what node i has? */
static bool acc_claims(uint32_t c, uint32_t i, uint64_t ns)
{
    const struct acc_claim *claim = &acc.node[c].claim;
    return claim->on && acc.now + ns < claim->until && acc_child(i, c) != ACC_NONE && acc_below(i, acc.root) &&
           acc_below(i, claim->reach);
}

/* Has class c expired ns from now? Then it ends at the next event. */
static bool acc_ends_by(uint32_t c, uint64_t ns)
{
    return acc.node[c].over ||
           (c != 0 && acc.node[c].terms.expires_ns != 0 && acc.node[c].terms.expires_ns <= acc.now + ns);
}

#define ACC_MANY ((wide)1 << 42) /* no cost counts more in the rings */

/* How many requests of this cost a class or group that is behind by `lead` has before it is not. At most: of what the
 * cost counts in the rings. */
static wide acc_times(wide lead, wide weight, wide cost, bool most)
{
    cost = most ? acc_least(cost, ACC_MANY) : cost;
    return lead <= 0 ? 1 : (lead * weight + ACC_UNIT * cost - 1) / (ACC_UNIT * cost);
}

/* Does the claim of class c count before class id at node i, ns from now, and for how many such requests? Of a group that
 * the class is not in only the first claim does, and the class stands where its own group will be after the claims there
 * that count before it. */
static enum tri acc_counts(uint32_t c, uint32_t id, uint32_t i, uint64_t ns, wide *few, wide *many)
{
    uint32_t g = 0, d;
    wide lead, least = 0, most = 0, slop, weight;
    enum tri first = YES;
    *few = 1;
    *many = ACC_MANY;
    while (g <= acc.root &&
           (acc_child(g, c) == ACC_NONE || acc_child(g, id) == ACC_NONE || acc_child(g, c) == acc_child(g, id)))
        g++;
    if (acc.tags_unsure || g > acc.root)
        return acc.tags_unsure ? MAYBE : NO;
    for (d = 0; d < acc.classes; d++) {
        const bool sure = acc.node[d].claim.sure && !acc_ends_by(d, ns);
        enum tri one;
        if (d == id || d == c || !acc.node[d].claim.on || !acc_claims(d, i, ns))
            continue;
        if (acc_below(d, acc_child(g, id))) {
            wide fewest, largest;
            one = acc_counts(d, id, i, ns, &fewest, &largest);
            most += one != NO ? acc_cost(acc.node[d].claim.n) * largest : 0;
            least += one == YES && sure ? acc_least(acc_cost(acc.node[d].claim.n), ACC_MANY) * fewest : 0;
        } else if (acc_below(d, acc_child(g, c))) {
            one = acc_before(d, c);
            first = one == YES && sure ? NO : one != NO && first == YES ? MAYBE : first;
        }
    }
    lead = acc_tag(acc_child(g, id)) - acc_tag(acc_child(g, c));
    slop = acc.slop + (most == 0 ? 0 : acc.resources > 1 ? ACC_UNIT : 64) * (wide)acc.classes;
    weight = (wide)acc.node[acc_child(g, c)].terms.weight;
    if (first == NO || most == 0) {
        *few = acc_times(lead - slop, weight, acc_cost(acc.node[c].claim.n), false);
        *many = acc_times(lead + slop, weight, acc_cost(acc.node[c].claim.n), true);
        return first == NO ? NO : acc_before(c, id) < first ? acc_before(c, id) : first;
    }
    least = lead + acc_least(least, ACC_MANY) * ACC_UNIT / (wide)acc.node[acc_child(g, id)].terms.weight;
    most = lead + most * ACC_UNIT / (wide)acc.node[acc_child(g, id)].terms.weight;
    *few = acc_times(least - slop, weight, acc_cost(acc.node[c].claim.n), false);
    *many = acc_times(most + slop, weight, acc_cost(acc.node[c].claim.n), true);
    return most < -slop ? NO : least > slop ? first : MAYBE;
}

/* What claims need of a bucket: of the classes that come back each, of the others the largest one; or, while nothing is
 * known of some, each of these if all have room. `wait`: more than there is room for, behind one that comes back. */
struct acc_claimed {
    wide sum, fresh, largest, more, room;
    bool returns;
};

static void acc_claim_adds(struct acc_claimed *a, wide need, wide depth, wide more, bool returns, bool fresh)
{
    if (need == depth && need != 0)
        a->room = 2 * depth;
    a->sum += returns ? need : 0;
    a->fresh += fresh && !returns ? need : 0;
    a->largest = returns ? a->largest : acc_largest(a->largest, need);
    a->more += returns || fresh ? more : 0;
    a->returns = a->returns || (returns && need != 0);
}

static bool acc_claim_all(struct acc_claimed *a, wide depth, wide *level)
{
    const bool each = a->sum + a->fresh <= a->room;
    *level = a->sum + (each ? acc_largest(a->fresh, a->largest) : a->largest);
    if (*level > a->room && a->returns)
        return false;
    *level = acc_least(*level, a->room);
    *level = acc_largest(*level, acc_least(*level + a->more, depth / 2));
    return true;
}

static enum tri acc_has(uint32_t i, const struct acc_bucket *b, uint32_t r, uint32_t id, uint64_t n, uint64_t ns)
{
    struct acc_claimed low, high; /* the least and the most that may be needed */
    wide level, need_low, need_high;
    bool unsure = false;
    uint32_t c;
    if (b->rate == 0)
        return NO;
    memset(&low, 0, sizeof low);
    low.sum = acc_need(b, n);
    low.room = b->depth;
    high = low;
    for (c = 0; c < acc.classes && i != id; c++)
        if (acc.node[c].claim.on && c != id && acc_claims(c, i, ns)) {
            const struct acc_claim *claim = &acc.node[c].claim;
            wide few, many, token = (wide)claim->n[r] * ACC_TOKEN;
            enum tri first = acc_counts(c, id, i, ns, &few, &many);
            const bool sure = first == YES && claim->sure && !acc_ends_by(c, ns);
            wide need = acc_need(b, claim->n[r]);
            if (first != NO) {
                acc_claim_adds(&high, need, b->depth, (many - 1) * token, claim->returns != NO, claim->fresh != NO);
                unsure = unsure || !sure || claim->returns == MAYBE || claim->fresh == MAYBE;
            }
            if (sure)
                acc_claim_adds(&low, need, b->depth, (few - 1) * token, claim->returns == YES, claim->fresh == YES);
        }
    if (unsure) {
        const wide most = high.room;
        if (high.sum + acc_largest(high.fresh, high.largest) > b->depth) { /* some of them may need more than all do */
            high.sum = most;
            high.fresh = high.largest = 0;
            high.room = high.returns ? most - 1 : most;
        }
        low.fresh = 0;
        low.room = low.returns ? most : low.room;
    }
    level = acc_fill(b, b->low, ns, 0);
    if (acc_claim_all(&high, b->depth, &need_high) && level >= need_high)
        return YES;
    if (!acc_claim_all(&low, b->depth, &need_low))
        need_low = b->depth; /* it waits for those that come back, or passes when full: how long is not modelled */
    return acc_fill(b, b->high, ns, acc_held_ns(i, b, r)) < need_low ? NO : MAYBE;
}

static enum tri acc_passes(uint32_t i, bool limit, uint32_t id, const uint64_t *n, uint64_t ns)
{
    enum tri all = YES, one;
    uint32_t r;
    for (r = 0; r < acc.resources; r++) {
        const struct acc_bucket *b = limit ? &acc.node[i].limit[r] : &acc.node[i].rate[r];
        if (n[r] == 0 || (limit && !b->on))
            continue;
        one = b->on ? acc_has(i, b, r, id, n[r], ns) : NO;
        all = one < all ? one : all;
    }
    return all;
}

/* Who pays n tokens of class id, ns from now. */
struct acc_way {
    enum tri passes;
    uint32_t first, last, blocked; /* the first that may, that must; the first whose limit may not pass, or NONE */
    bool blocked_sure;
};

static struct acc_way acc_way_of(uint32_t id, const uint64_t *n, uint64_t ns)
{
    struct acc_way way = {NO, ACC_NONE, ACC_NONE, ACC_NONE, true};
    enum tri limits = YES, one, both;
    uint32_t i;
    for (i = id; i != ACC_NONE; i = acc.node[i].up) {
        one = acc_passes(i, true, id, n, ns);
        limits = one < limits ? one : limits;
        if (one != YES && way.blocked == ACC_NONE) {
            way.blocked = i;
            way.blocked_sure = one == NO;
        }
        if (limits == NO)
            break;
        both = acc_passes(i, false, id, n, ns);
        both = both < limits ? both : limits;
        if (both != NO && way.first == ACC_NONE)
            way.first = i;
        way.passes = both > way.passes ? both : way.passes;
        if (both == YES) {
            way.last = i;
            break;
        }
    }
    return way;
}

/* Charges n of class id that first may have paid, and last must have, with those above them. */
static void acc_pay(uint32_t id, uint32_t first, uint32_t last, const uint64_t *n, const uint64_t *back)
{
    bool may = false, must = false;
    uint32_t i, r;
    for (i = id; i != ACC_NONE; i = acc.node[i].up) {
        may = may || i == first;
        must = must || i == last;
        for (r = 0; r < acc.resources; r++) {
            wide by = ((wide)n[r] - (back ? (wide)back[r] : 0)) * ACC_TOKEN;
            if (by == 0)
                continue;
            if (may || must)
                acc_charge(&acc.node[i].rate[r], by, must);
            acc_charge(&acc.node[i].limit[r], by, true);
        }
    }
}

/* Device time of n tokens, at the root's configured rates. */
static wide acc_device_ns(const uint64_t *n)
{
    wide ns = 0;
    uint32_t r;
    for (r = 0; r < acc.resources; r++)
        ns = acc_largest(ns, (wide)n[r] * 1000000000 / (wide)acc.base[r]);
    return ns;
}

/* Counts what is granted, as the maximizer does: tokens, or time if there are several resources, rounded down. What is
 * free may count 1, and what takes more than an hour less. */
static void acc_granted(const uint64_t *n)
{
    const uint64_t ns = (uint64_t)acc_device_ns(n);
    acc.granted += acc.resources == 1 ? n[0] : ns;
    acc.rounded += acc.resources > 1 && ns > UINT64_C(3600000000000) ? ns : acc.resources > 1 || n[0] == 0;
}

static wide acc_cost(const uint64_t *n)
{
    return acc_largest(1, acc.resources == 1 ? (wide)n[0] : acc_device_ns(n));
}

static uint32_t acc_bits(const uint64_t *n)
{
    const wide cost = acc_least(acc_cost(n), ACC_MANY);
    uint32_t bits = 0;
    while (cost >> bits != 0)
        bits++;
    return bits;
}

static bool acc_is_free(const uint64_t *n)
{
    uint32_t r;
    for (r = 0; r < acc.resources; r++)
        if (n[r] != 0)
            return false;
    return true;
}

/* The claim of class c ends: it was let go, or another demand of the class came. Did that take as much (never: there was
 * none), at a time at which it was told to come? */
static void acc_learn(uint32_t c, const uint64_t *n, bool takes)
{
    struct acc_node *t = &acc.node[c];
    const uint32_t bits = acc_bits(t->claim.n);
    const bool unsure = t->claim.until == UINT64_MAX, gone = !unsure && acc.now >= t->claim.until;
    const bool told = n != NULL && !gone && (unsure || t->claim.until - acc.now <= t->claim.burst);
    const bool less = gone || (told && acc_bits(n) < bits), came = told && !less && takes;
    if (less || unsure)
        t->comes_low = t->comes_low < bits ? t->comes_low : bits - 1;
    if (less && !unsure)
        t->comes_high = t->comes_high < bits ? t->comes_high : bits - 1;
    if (came && !unsure)
        t->comes_low = t->comes_low > bits ? t->comes_low : bits;
    if (came)
        t->comes_high = t->comes_high > bits ? t->comes_high : bits;
    if ((came || less) && !unsure)
        t->fresh = NO;
    else if (unsure && t->fresh == YES)
        t->fresh = MAYBE;
    t->claim.on = false;
}

/* While there are claims, what is borrowed moves the tags on; the clock of a ring does not pass those with claims. */
static void acc_took(uint32_t id, uint32_t payer, const uint64_t *n)
{
    bool claimed = false;
    uint32_t i, c;
    for (c = 0; c < acc.classes; c++)
        if (acc.node[c].claim.on && acc.now < acc.node[c].claim.until) {
            claimed = true;
            acc.tags_unsure = acc.tags_unsure || !acc.node[c].claim.sure || acc.node[c].over;
        }
    if (acc_is_free(n))
        return;
    if (claimed && (payer == ACC_NONE || acc_cost(n) > (wide)1 << 42)) /* costs of more than an hour count less */
        acc.tags_unsure = true;
    for (i = id; claimed && payer != ACC_NONE && i != payer; i = acc.node[i].up) {
        uint32_t g = acc.node[i].up;
        wide first = acc.node[i].tag = acc_tag(i);
        for (c = 0; c < acc.classes; c++)
            if (acc.node[c].claim.on && acc_claims(c, g, 0))
                first = acc_least(first, acc_tag(acc_child(g, c)));
        acc.node[g].clock = acc_largest(acc.node[g].clock, first);
        acc.node[i].tag += acc_cost(n) * ACC_UNIT / (wide)acc.node[i].terms.weight;
        acc.slop += acc.resources > 1 ? ACC_UNIT : 64;
    }
    if (acc.node[id].claim.on)
        acc_learn(id, n, true);
}

static void acc_end_claims(uint32_t above)
{
    uint32_t c;
    for (c = 0; c < acc.classes; c++)
        if (acc.node[c].claim.on && acc_below(c, above))
            acc_learn(c, NULL, false);
}

/* The terms of node `above` have changed: its claim, and those of classes below it, stay, but for those of classes at
 * their own limit or that nothing lets pass now. They end no later than what is told now says: if there are several,
 * which of them was told first is not known; nor when one of these ends at the latest, if its terms change again. */
static void acc_renew(uint32_t above)
{
    uint32_t c, renewed = 0;
    for (c = 0; c < acc.classes; c++) {
        if (acc.node[c].claim.on && acc.now >= acc.node[c].claim.until)
            acc_learn(c, NULL, false);
        renewed += acc.node[c].claim.on && acc_below(c, above);
    }
    for (c = 0; c < acc.classes; c++) {
        struct acc_claim *claim = &acc.node[c].claim;
        const struct acc_way way = acc_way_of(c, claim->n, 0);
        const uint64_t told = htb_next_ns_all(&acc_tree, acc.now, c, claim->n);
        const bool blocked = way.blocked == c, ends = acc_ends_by(c, ACC_FAR_NS);
        if (!claim->on || !acc_below(c, above))
            continue;
        if ((blocked && way.blocked_sure) || (told == QOS_NEVER && !ends)) {
            acc_learn(c, NULL, false);
            continue;
        }
        claim->burst = (uint64_t)acc_least(acc.node[c].terms.burst_ns, acc.node[acc.root].terms.burst_ns);
        claim->sure = claim->until != UINT64_MAX && !ends && !blocked && renewed == 1 &&
                      (way.blocked == ACC_NONE || way.blocked_sure);
        claim->reach = way.blocked == ACC_NONE || !claim->sure ? acc.root : way.blocked;
        claim->until = claim->sure && told + claim->burst < claim->until ? told + claim->burst : claim->until;
        if (!claim->sure)
            claim->until = UINT64_MAX;
    }
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

static bool acc_terms_right(const struct htb_class *t)
{
    uint32_t r;
    if (t->weight > 1000000 || t->burst_ns > UINT64_C(1000000000000) || *latency_of(t) > UINT64_C(1000000000000))
        return false;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        uint64_t limit = t->limit_per_s[r];
        if (t->rate_per_s[r] > UINT64_C(1) << 40)
            return false;
        if (limit == QOS_NOTHING
                ? t->rate_per_s[r] > 0
                : limit != 0 && limit != QOS_UNLIMITED && (limit > UINT64_C(1) << 40 || limit < t->rate_per_s[r]))
            return false;
    }
    return !t->group || t->expires_ns == 0;
}

static uint64_t acc_sum(uint32_t g, uint32_t r, uint32_t but)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < acc.classes; i++)
        if (acc.node[i].used && i != but && acc.node[i].up == g)
            sum += acc.node[i].terms.rate_per_s[r];
    return sum;
}

static uint32_t acc_levels(uint32_t id) /* below the root */
{
    uint32_t n = 0;
    for (; acc.node[id].up != ACC_NONE; id = acc.node[id].up)
        n++;
    return n;
}

static void acc_apply(uint32_t id, const struct htb_class *t)
{
    struct acc_node *c = &acc.node[id];
    uint32_t r;
    c->terms = *t;
    c->terms.weight = t->weight ? t->weight : 1;
    c->terms.burst_ns = ((t->burst_ns ? t->burst_ns : acc.config.burst_ns) + 999) / 1000 * 1000;
    *latency_of(&c->terms) = t->group ? 0 : (*latency_of(t) + 999) / 1000 * 1000;
    for (r = 0; r < HTB_RESOURCES_MAX; r++) {
        uint64_t limit = t->limit_per_s[r];
        if (r >= acc.resources) {
            c->terms.rate_per_s[r] = c->terms.limit_per_s[r] = 0;
            continue;
        }
        c->terms.limit_per_s[r] = limit ? limit : QOS_UNLIMITED;
        acc_set(&c->rate[r], t->rate_per_s[r] != 0, t->rate_per_s[r], c->terms.burst_ns);
        acc_set(&c->limit[r], limit != 0 && limit != QOS_UNLIMITED, limit == QOS_NOTHING ? 0 : limit,
                c->terms.burst_ns);
    }
    acc_renew(id);
}

/* A class ends: its requests go to best effort; its debts stay, and are paid off. */
static void acc_end(uint32_t id)
{
    struct acc_node *c = &acc.node[id];
    uint32_t i;
    acc_end_claims(id);
    for (;;) { /* in their order */
        struct acc_request *oldest = NULL;
        for (i = 0; i < ACC_REQUESTS; i++)
            if (acc.request[i].life == R_QUEUED && acc.request[i].slot == id &&
                (!oldest || acc.request[i].order < oldest->order))
                oldest = &acc.request[i];
        if (!oldest)
            break;
        oldest->slot = 0;
        oldest->from = id;
        oldest->order = ++acc.orders;
    }
    c->tag = acc_largest(0, c->tag - acc.node[c->up].clock);
    c->used = false;
    c->to_tell = c->over;
    c->over = false;
    c->outstanding = 0;
    c->generation++;
}

/* Which of several classes that ended in one call came first to best effort, the header may choose. The requests of each
 * stay in their order, behind those that were there (from 0). */
static void acc_learn_order(void)
{
    uint64_t last[ACC_CLASSES] = {0};
    const struct htb_request *h = NULL;
    uint32_t i, n = 0;
    bool others = false;
    for (i = 0; i < ACC_REQUESTS; i++) { /* what went by this call came first, or went before its class ended */
        const struct acc_request *q = &acc.request[i];
        if (q->life == R_QUEUED && q->slot == 0 && acc_queue[i].state != HTB_QUEUED && q->order > last[q->from])
            last[q->from] = q->order;
    }
    while ((h = htb_queue_next(&acc_tree, 0, h)) != NULL && n++ <= ACC_REQUESTS) {
        struct acc_request *q = &acc.request[h - acc_queue];
        if (q->life != R_QUEUED || q->slot != 0) /* of a class that is released */
            continue;
        if (q->order <= last[q->from] || (others && q->from == 0))
            ACC_FAIL("order", "step %" PRIu32 ": the requests of an ended class go to best effort in another order",
                     acc.step);
        others = others || q->from != 0;
        last[q->from] = q->order;
        q->order = ++acc.orders;
    }
}

/* Classes that have expired are ended by the calls that may; `also`, too (ACC_NONE: none). */
static void acc_see_ends_and(uint32_t also)
{
    struct htb_class_state s;
    uint32_t i;
    bool ended = false;
    for (i = 0; i < ACC_REQUESTS; i++)
        acc.request[i].from = 0;
    for (i = 0; i < acc.classes; i++)
        if (acc.node[i].used && acc.node[i].over && (i == also || htb_class_info(&acc_tree, i, &s) == QOS_ENOENT)) {
            acc_end(i);
            ended = true;
        }
    if (ended && acc.queues)
        acc_learn_order();
}

static void acc_see_ends(void)
{
    acc_see_ends_and(ACC_NONE);
}

/* htb_expired and a change of classes end all that have expired. */
static void acc_none_remains(void)
{
    uint32_t i;
    for (i = 0; i < acc.classes; i++)
        if (acc.node[i].used && acc.node[i].over)
            ACC_FAIL("terms", "step %" PRIu32 ": class %" PRIu32 " has expired, and remains", acc.step, i);
}

/* The class that a request of `id` belongs to. */
static uint32_t acc_class(uint32_t id)
{
    return id < acc.classes && acc.node[id].used && !acc.node[id].group && !acc.node[id].over ? id : 0;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

static uint64_t acc_tokens(uint32_t r)
{
    uint64_t most = acc.tokens_max;
    (void)r;
    switch (acc_any(0, 9)) {
    case 0: return acc_any(0, 3);
    case 1: return acc_any(0, 3 * most < 4000000000 ? 3 * most : 4000000000);
    case 2: return acc_chance(100) ? 4000000000 - acc_any(0, 1) : most;
    default: return world_scale(&acc.rng, 1, most);
    }
}

static uint32_t acc_id(bool often_used)
{
    uint32_t id = (uint32_t)acc_any(0, acc.classes - 1), tries;
    for (tries = 0; often_used && tries < 6 && !(acc.node[id].used && !acc.node[id].group); tries++)
        id = (uint32_t)acc_any(0, acc.classes - 1);
    if (acc_chance(20))
        return acc_chance(500) ? acc.classes + (uint32_t)acc_any(0, 2) : UINT32_MAX;
    return id;
}

static uint64_t acc_span(void)
{
    uint64_t burst = acc.config.burst_ns;
    switch (acc_any(0, 15)) {
    case 0:
    case 1:
    case 2: return 0;
    case 3: return 1;
    case 4:
    case 5:
    case 6: return acc_any(0, burst);
    case 7: return acc_any(0, 20 * burst);
    case 8: return acc_chance(200) ? acc_any(0, UINT64_C(4000000000000)) : acc_any(0, 1000 * burst);
    default: return acc_any(0, burst / 10);
    }
}

static struct htb_class acc_draw_terms(uint32_t id, bool change)
{
    struct htb_class t;
    uint32_t r, tries, parent = acc.root;
    memset(&t, 0, sizeof t);
    for (tries = 0; tries < 4; tries++) {
        uint32_t g = (uint32_t)acc_any(0, acc.classes - 1);
        if (acc.node[g].used && acc.node[g].group && g != id && acc_chance(600))
            parent = g;
    }
    t.group = acc_chance(250);
    if (change && id < acc.classes) {
        t = acc.node[id].terms;
        if (acc_chance(700))
            parent = acc.node[id].up;
        if (acc_chance(300)) { /* the same terms, or one field of them */
            if (acc_chance(500))
                t.weight = (uint32_t)acc_any(0, 10);
            t.parent = parent == acc.root || parent == ACC_NONE ? 0 : parent;
            return t;
        }
    }
    if (parent == ACC_NONE)
        parent = acc.root;
    t.parent = parent == acc.root ? 0 : parent;
    if (acc.settings && !t.group && acc_chance(400))
        *latency_of(&t) = world_scale(&acc.rng, 1, UINT64_C(1000000000));
    t.weight = acc_chance(300) ? 0 : acc_chance(100) ? (uint32_t)acc_any(1, 1000000) : 1u << acc_any(0, 4);
    t.burst_ns = acc_chance(600) ? 0 : world_scale(&acc.rng, 1000, acc.config.burst_ns * 10);
    t.expires_ns = !t.group && id != 0 && acc_chance(150) ? acc.now + 1 + acc_span() : 0;
    for (r = 0; r < acc.resources; r++) {
        uint64_t whole = parent == acc.root ? acc.base[r] : acc.node[parent].terms.rate_per_s[r];
        uint64_t used = acc_sum(parent, r, id), room = whole > used ? whole - used : 0;
        t.rate_per_s[r] = acc_chance(350)   ? 0
                          : acc_chance(150) ? room
                          : acc_chance(70)  ? room + 1
                                            : acc_any(0, room / 2);
        t.limit_per_s[r] = 0;
        if (acc_chance(350))
            t.limit_per_s[r] = t.rate_per_s[r] + (acc_chance(300) ? 0 : acc_any(1, acc.base[r] / 2 + 1));
        if (acc_chance(30) && t.rate_per_s[r] == 0)
            t.limit_per_s[r] = QOS_NOTHING;
        if (acc_chance(50))
            t.limit_per_s[r] = QOS_UNLIMITED;
    }
    if (acc_chance(60)) /* something wrong */
        switch (acc_any(0, 7)) {
        case 0: t.weight = 1000001; break;
        case 1: t.burst_ns = UINT64_C(1000000000001); break;
        case 2: t.limit_per_s[0] = t.rate_per_s[0] > 1 ? t.rate_per_s[0] - 1 : 1; break;
        case 3: t.rate_per_s[0] = (UINT64_C(1) << 40) + 1; break;
        case 4: t.parent = acc_id(true); break;
        case 5: t.expires_ns = acc_chance(500) ? acc.now : 1; break;
        case 6: *latency_of(&t) = UINT64_C(1000000000001); break;
        default: t.limit_per_s[0] = (UINT64_C(1) << 40) + 1; break;
        }
    return t;
}

/* ---- calls: terms ------------------------------------------------------------------------------------------------ */

/* The tree sees the time. */
static void acc_see(void)
{
    (void)htb_dispatch_next_ns(&acc_tree, acc.now);
    acc.seen_ns = acc.now;
    acc_see_ends();
}

/* The time that a call is given: the tree's, or, if the tree has seen that, an earlier one, which counts as that. */
static uint64_t acc_shown(void)
{
    return acc.seen_ns == acc.now && acc_chance(200) && acc.now > 5000 ? acc.now - acc_any(1, 5000) : acc.now;
}

#define ACC_BIT(status) (1u << -(int)(status))

/* The statuses that are right for a reservation or change: a set of bits; 0: QOS_OK. */
static unsigned acc_may_reserve(uint32_t id, const struct htb_class *t, bool change, bool *fits_now, uint64_t *fits)
{
    unsigned e = 0;
    uint32_t parent = t->parent == 0 ? acc.root : t->parent, r, i, deepest = 0;
    bool known = id < acc.classes;
    *fits_now = false;
    if (!known || (change && !acc.node[id].used))
        return ACC_BIT(QOS_ENOENT) | (!change && id == 0 ? ACC_BIT(QOS_EINVAL) : 0);
    if (!change && id == 0)
        e |= ACC_BIT(QOS_EINVAL);
    if (!change && acc.node[id].used)
        e |= ACC_BIT(QOS_EEXIST);
    if (!acc_terms_right(t))
        e |= ACC_BIT(QOS_ERANGE);
    if (t->group && t->expires_ns)
        e |= ACC_BIT(QOS_EINVAL);
    if (t->expires_ns && t->expires_ns <= acc.now)
        e |= ACC_BIT(QOS_ERANGE);
    if (change && t->group != acc.node[id].group)
        e |= ACC_BIT(QOS_EINVAL);
    if (id == 0 && (t->expires_ns || parent != acc.root))
        e |= ACC_BIT(QOS_EINVAL);
    if (t->parent != 0 && (parent >= acc.classes || !acc.node[parent].used))
        return e | ACC_BIT(QOS_ENOENT);
    if (parent != acc.root && !acc.node[parent].group)
        return e | ACC_BIT(QOS_EINVAL);
    if (change && parent != acc.node[id].up && acc_below(parent, id))
        return e | ACC_BIT(QOS_EINVAL);
    for (i = 0; change && i < acc.classes; i++)
        if (acc.node[i].used && acc_below(i, id) && acc_levels(i) - acc_levels(id) > deepest)
            deepest = acc_levels(i) - acc_levels(id);
    if (acc_levels(parent) + 1 + deepest > acc.config.depth_max && !(change && parent == acc.node[id].up))
        e |= ACC_BIT(QOS_EFULL);
    *fits_now = e == 0;
    for (r = 0; r < acc.resources; r++) {
        uint64_t whole = parent == acc.root ? acc.base[r] : acc.node[parent].terms.rate_per_s[r];
        uint64_t least = change && acc.node[id].group ? acc_sum(id, r, ACC_NONE) : 0;
        fits[r] = t->rate_per_s[r] < least ? least : whole - acc_sum(parent, r, change ? id : ACC_NONE);
        if (t->rate_per_s[r] < least || t->rate_per_s[r] > fits[r])
            e |= ACC_BIT(QOS_EADMISSION);
    }
    return e;
}

static void acc_reserve(bool change)
{
    uint32_t id = change ? acc_id(acc_chance(700)) : acc_id(false), parent, i, r;
    struct htb_class t;
    uint64_t fits[HTB_RESOURCES_MAX] = {0}, told[HTB_RESOURCES_MAX] = {7, 7, 7, 7};
    bool known, ask = acc_chance(700);
    unsigned may;
    enum qos_status s;
    for (i = 0; !change && i < 4 && id < acc.classes && acc.node[id].used; i++)
        id = acc_id(false);
    t = acc_draw_terms(id, change && id < acc.classes && acc.node[id].used);
    parent = t.parent == 0 ? acc.root : t.parent;
    s = change ? htb_change(&acc_tree, acc_shown(), id, &t, ask ? told : NULL)
               : htb_reserve(&acc_tree, acc_shown(), id, &t, ask ? told : NULL);
    acc_see_ends_and(!change && s == QOS_OK ? id : ACC_NONE);
    may = acc_may_reserve(id, &t, change, &known, fits);
    acc_say(change ? "change" : "reserve", id, (uint64_t) - (int64_t)s);
    if (world_tracing)
        printf("        %s: parent %" PRIu32 " weight %" PRIu32 " rate %" PRIu64 " limit %" PRIu64 " burst %" PRIu64
               " expires %" PRIu64 "%s\n",
               qos_strerror(s), t.parent, t.weight, t.rate_per_s[0], t.limit_per_s[0], t.burst_ns, t.expires_ns,
               t.group ? " group" : "");
    if (may == 0 ? s != QOS_OK : s == QOS_OK || !(may & ACC_BIT(s)))
        ACC_FAIL("terms", "step %" PRIu32 ": %s of %" PRIu32 " says %s, expected set %#x", acc.step,
                 change ? "change" : "reserve", id, qos_strerror(s), may);
    for (r = 0; r < acc.resources && ask && known && (s == QOS_OK || s == QOS_EADMISSION); r++)
        if (told[r] != fits[r])
            ACC_FAIL("terms", "step %" PRIu32 ": %" PRIu64 " would fit, told %" PRIu64, acc.step, fits[r], told[r]);
    if (s != QOS_OK || acc.w->broken)
        return;
    acc_none_remains();
    if (!change) {
        struct acc_node *c = &acc.node[id];
        for (r = 0; r < acc.resources; r++) { /* a bucket starts empty, minus any debt */
            acc_set(&c->rate[r], false, 0, 0);
            acc_set(&c->limit[r], false, 0, 0);
        }
        c->used = c->former = true;
        c->comes_low = c->comes_high = 0;
        c->fresh = YES;
        c->group = t.group;
        c->to_tell = c->over = false;
        c->up = parent;
        c->tag += acc.node[parent].clock;
        c->clock = 0;
        c->granted = c->borrowed = c->refused = c->waited = 0;
        c->waited_unsure = false;
        c->outstanding = 0;
    } else if (parent != acc.node[id].up) {
        struct acc_node *c = &acc.node[id];
        acc_end_claims(id);
        c->tag = acc_largest(0, c->tag - acc.node[c->up].clock) + acc.node[parent].clock;
        c->up = parent;
        for (i = 0; i < acc.classes; i++)
            if (acc.node[i].used && acc_below(i, id)) {
                acc.node[i].generation++;
                acc.node[i].outstanding = 0;
            }
    }
    acc_apply(id, &t);
}

static void acc_release(void)
{
    uint32_t id = acc_id(acc_chance(700)), i, expect;
    enum qos_status s = htb_release(&acc_tree, acc_shown(), id);
    acc_see_ends();
    acc_say("release", id, (uint64_t) - (int64_t)s);
    expect = id == 0 ? ACC_BIT(QOS_EINVAL) : id >= acc.classes || !acc.node[id].used ? ACC_BIT(QOS_ENOENT) : 0;
    for (i = 0; !expect && i < acc.classes; i++)
        if (acc.node[i].used && acc.node[i].up == id)
            expect = ACC_BIT(QOS_EBUSY);
    if (expect ? s == QOS_OK || !(expect & ACC_BIT(s)) : s != QOS_OK)
        ACC_FAIL("terms", "step %" PRIu32 ": release of %" PRIu32 " says %s", acc.step, id, qos_strerror(s));
    else if (!expect)
        acc_end(id);
}

static void acc_expired(void)
{
    uint32_t id = htb_expired(&acc_tree, acc_shown()), i;
    acc_see_ends();
    acc_none_remains();
    acc_say("expired", id, 0);
    if (id == QOS_NONE) {
        for (i = 0; i < acc.classes; i++)
            if (acc.node[i].to_tell)
                ACC_FAIL("terms", "step %" PRIu32 ": class %" PRIu32 " expired, and is not told", acc.step, i);
    } else if (id >= acc.classes || !acc.node[id].to_tell) {
        ACC_FAIL("terms", "step %" PRIu32 ": class %" PRIu32 " has not expired, or was told", acc.step, id);
    } else {
        acc.node[id].to_tell = false;
    }
}

static void acc_change_root(void)
{
    uint64_t rate[HTB_RESOURCES_MAX] = {0};
    unsigned may = 0;
    uint32_t r;
    enum qos_status s;
    for (r = 0; r < acc.resources; r++) {
        rate[r] = acc.base[r] / 4 + acc_any(0, acc.base[r]) + 1;
        if (acc_chance(100))
            rate[r] = acc_sum(acc.root, r, ACC_NONE);
        if (acc_chance(50))
            rate[r] = acc_chance(500) ? 0 : (UINT64_C(1) << 40) + 1;
        if (rate[r] > UINT64_C(1) << 40 && acc_chance(900))
            rate[r] = acc.base[r];
    }
    if (!WORLD_V02 && htb_change_root(&acc_tree, acc_shown(), NULL) != QOS_EINVAL)
        ACC_FAIL("terms", "step %" PRIu32 ": htb_change_root takes no rates", acc.step);
    s = htb_change_root(&acc_tree, acc_shown(), rate);
    acc_see_ends();
    for (r = 0; r < acc.resources; r++) {
        if (rate[r] == 0 || rate[r] > UINT64_C(1) << 40)
            may |= ACC_BIT(QOS_ERANGE);
        if (rate[r] < acc_sum(acc.root, r, ACC_NONE))
            may |= ACC_BIT(QOS_EADMISSION);
    }
    acc_say("root", 0, rate[0]);
    if (may ? s == QOS_OK || !(may & ACC_BIT(s)) : s != QOS_OK)
        ACC_FAIL("terms", "step %" PRIu32 ": htb_change_root says %s", acc.step, qos_strerror(s));
    acc.slow_from = s == QOS_OK ? UINT64_MAX : acc.slow_from;
    for (r = 0; r < acc.resources && s == QOS_OK; r++) {
        acc.base[r] = rate[r];
        acc_set(&acc.node[acc.root].rate[r], true, rate[r], acc.node[acc.root].terms.burst_ns);
        acc.was_capped = acc.lacked = MAYBE;
        acc.root_max = r == 0 && rate[0] > acc.root_max ? rate[0] : acc.root_max;
    }
    if (s == QOS_OK)
        acc_renew(acc.root);
}

/* ---- calls: the gate --------------------------------------------------------------------------------------------- */

/* The debt told is that after the class's last take, which was just now; 0 if it was granted nothing yet. */
static void acc_judge_debt(uint32_t id)
{
    struct qos_stats s;
    const struct acc_bucket *b = &acc.node[id].rate[0];
    const bool owes = b->on && acc.node[id].granted != 0;
    uint64_t low = owes && b->high < 0 ? (uint64_t)((-b->high + ACC_TOKEN - 1) / ACC_TOKEN) : 0;
    uint64_t high = owes && b->low < 0 ? (uint64_t)((-b->low + ACC_TOKEN - 1) / ACC_TOKEN) : 0;
    (void)htb_stats(&acc_tree, id, &s);
    if (s.debt < low || s.debt > high)
        ACC_FAIL("stats", "step %" PRIu32 ": class %" PRIu32 " owes %" PRIu64 "..%" PRIu64 ", told %" PRIu64, acc.step,
                 id, low, high, s.debt);
}

/* What is granted to class id for n tokens, as the counters tell: NO: own; YES: borrowed. Counts it. */
static enum tri acc_counted(uint32_t id, const uint64_t *n, struct acc_way *way)
{
    struct qos_stats s;
    uint64_t more;
    (void)htb_stats(&acc_tree, id, &s);
    more = s.borrowed - acc.node[id].borrowed;
    acc.node[id].granted += n[0];
    if (more != 0 && more != n[0])
        ACC_FAIL("stats", "step %" PRIu32 ": class %" PRIu32 " borrowed %" PRIu64 " of %" PRIu64, acc.step, id, more,
                 n[0]);
    acc.node[id].borrowed += more;
    if (n[0] == 0)
        return MAYBE;
    if (more == 0) {
        if (way->first != id && way->first != ACC_NONE)
            ACC_FAIL("payer", "step %" PRIu32 ": class %" PRIu32 " has no own tokens, and took of them", acc.step, id);
        way->first = way->last = id;
        return NO;
    }
    if (way->last == id)
        ACC_FAIL("payer", "step %" PRIu32 ": class %" PRIu32 " borrowed and has own tokens", acc.step, id);
    if (way->first == id) { /* the next that may */
        uint32_t at;
        way->first = ACC_NONE;
        for (at = acc.node[id].up; at != ACC_NONE && way->first == ACC_NONE; at = acc.node[at].up)
            if (acc_passes(at, false, id, n, 0) != NO)
                way->first = at;
    }
    return YES;
}

/* Do requests in queues go before what class id takes from `payer`? */
static enum tri acc_overtakes(uint32_t id, uint32_t payer)
{
    enum tri most = NO;
    uint32_t i, at;
    for (i = 0; i < ACC_REQUESTS; i++) {
        const struct acc_request *q = &acc.request[i];
        enum tri one = NO;
        if (q->life != R_QUEUED)
            continue;
        if (q->slot == id)
            return YES;
        for (at = id; at != payer && at != ACC_NONE; at = acc.node[at].up) {
            uint32_t g = acc.node[at].up;
            if (g == ACC_NONE || !acc_below(q->slot, g) || (g == acc.root && !acc.by_rate))
                continue;
            one = YES;
        }
        for (at = q->slot; one == YES && at != ACC_NONE; at = acc.node[at].up) { /* it may not borrow at its limit */
            uint32_t r;
            for (r = 0; r < acc.resources; r++)
                if (acc.node[at].limit[r].on)
                    one = MAYBE;
        }
        if (one == YES && acc.node[q->slot].over)
            one = MAYBE;
        most = one > most ? one : most;
    }
    return most;
}

/* Can class id take, ns from now, if nothing else is called? */
static enum tri acc_can(uint32_t id, const uint64_t *n, uint64_t ns)
{
    const struct acc_way way = acc_way_of(id, n, ns);
    if (WORLD_V02)
        return way.passes;
    if (way.passes == NO || acc_overtakes(id, way.first) == YES)
        return NO;
    return way.passes == YES && acc_overtakes(id, way.last) == NO ? YES : MAYBE;
}

/* The time told for class id is the first at which it can take, if nobody else takes or asks. */
static void acc_judge_next(uint32_t id, const uint64_t *n, uint64_t told)
{
    const struct acc_node *c = &acc.node[id];
    bool ends = !c->over && c->terms.expires_ns && id != 0;
    uint64_t end = ends ? c->terms.expires_ns : UINT64_MAX, at;
    enum tri here, before = NO;
    if (told == QOS_NEVER) {
        at = ends ? end - 1 - acc.now : ACC_FAR_NS;
        if (acc_can(id, n, at) == YES || (ends && acc_can(0, n, ACC_FAR_NS) == YES))
            ACC_FAIL("next", "step %" PRIu32 ": class %" PRIu32 " is told never", acc.step, id);
        return;
    }
    if (told - acc.now > ACC_FAR_NS)
        return;
    here = acc_can(told < end ? id : 0, n, told - acc.now);
    if (told > acc.now)
        before = acc_can(told - 1 < end ? id : 0, n, told - 1 - acc.now);
    if (here == NO || before == YES || (told >= end && end > acc.now + 1 && acc_can(id, n, end - 1 - acc.now) == YES))
        ACC_FAIL("next",
                 "step %" PRIu32 ": class %" PRIu32 ", %" PRIu64 " tokens: told %" PRIu64 " ns from now, which is %s",
                 acc.step, id, n[0], told - acc.now, here == NO ? "too early" : "late");
}

static uint64_t acc_told_ns, acc_told_n[HTB_RESOURCES_MAX];
static uint32_t acc_told_id = ACC_NONE;

static uint64_t acc_ask_next(uint32_t asked, const uint64_t *n)
{
    uint64_t shown = acc_shown();
    uint64_t told = acc.resources == 1 && acc_chance(500) ? htb_next_ns(&acc_tree, shown, asked, n[0])
                                                          : htb_next_ns_all(&acc_tree, shown, asked, n);
    if (told == shown)
        told = acc.now;
    if (told < acc.now)
        ACC_FAIL("next", "step %" PRIu32 ": told a time that has passed", acc.step);
    return told;
}

static void acc_take(void)
{
    uint64_t n[HTB_RESOURCES_MAX] = {0}, told;
    uint32_t asked = acc_id(true), id, r;
    struct acc_way way;
    enum tri waits;
    enum qos_status s;
    bool too_many = false;
    for (r = 0; r < acc.resources; r++)
        n[r] = acc_tokens(r);
    if (acc_told_id != ACC_NONE && acc_told_ns == acc.now && acc_chance(700)) {
        asked = acc_told_id;
        memcpy(n, acc_told_n, sizeof n);
    }
    if (acc_chance(10)) {
        n[acc_any(0, acc.resources - 1)] = 4000000001;
        too_many = true;
    }
    id = acc_class(asked);
    way = acc_way_of(id, n, 0);
    s = acc.resources == 1 && acc_chance(500) ? htb_take(&acc_tree, acc_shown(), asked, n[0])
                                              : htb_take_all(&acc_tree, acc_shown(), asked, n);
    acc_say(s == QOS_OK ? "takes" : "refused", asked, n[0]);
    if (too_many) {
        if (s != QOS_ERANGE)
            ACC_FAIL("terms", "step %" PRIu32 ": a take of 4000000001 says %s", acc.step, qos_strerror(s));
        return;
    }
    waits = acc_overtakes(id, way.last != ACC_NONE ? way.last : acc.root);
    if (s == QOS_OK) {
        uint32_t payer;
        acc_granted(n);
        if (way.passes == NO)
            ACC_FAIL("gate",
                     "step %" PRIu32 ": class %" PRIu32 " takes %" PRIu64 ", and neither it nor a lender has them",
                     acc.step, id, n[0]);
        (void)acc_counted(id, n, &way);
        payer = way.last != ACC_NONE ? way.last : acc.root;
        if (way.first != ACC_NONE && acc_overtakes(id, way.first) == YES)
            ACC_FAIL("gate_queue",
                     "step %" PRIu32 ": class %" PRIu32 " takes before requests that wait for the same tokens",
                     acc.step, id);
        acc_pay(id, way.first, payer, n, NULL);
        acc_took(id, way.first == way.last || way.first == payer ? payer : ACC_NONE, n);
        acc_judge_debt(id);
        return;
    }
    acc.node[id].refused++;
    acc.lacked = acc.lacked == YES ? YES : MAYBE;
    if (s != QOS_EAGAIN)
        ACC_FAIL("gate", "step %" PRIu32 ": a take says %s", acc.step, qos_strerror(s));
    if (way.passes == YES && waits == NO)
        ACC_FAIL("gate", "step %" PRIu32 ": class %" PRIu32 " is refused %" PRIu64 ", and the tokens are there",
                 acc.step, id, n[0]);
    /* Its claim. */
    told = acc_ask_next(asked, n);
    if (acc.node[id].claim.on)
        acc_learn(id, acc_is_free(n) ? NULL : n, false);
    if (!WORLD_V02 && !(way.blocked == id && way.blocked_sure) && (told != QOS_NEVER || acc_ends_by(id, ACC_FAR_NS))) {
        struct acc_claim *c = &acc.node[id].claim;
        uint32_t at;
        for (at = id; at != acc.root; at = acc.node[at].up)
            acc.node[at].tag = acc_tag(at);
        c->on = true;
        c->sure = (way.blocked == ACC_NONE || way.blocked_sure) && way.passes != MAYBE;
        c->reach = way.blocked == ACC_NONE || !c->sure ? acc.root : way.blocked;
        c->burst = (uint64_t)acc_least(acc.node[id].terms.burst_ns, acc.node[acc.root].terms.burst_ns);
        c->until = told + c->burst;
        c->fresh = acc.node[id].fresh;
        c->returns = acc_bits(n) <= acc.node[id].comes_low ? YES : acc_bits(n) > acc.node[id].comes_high ? NO : MAYBE;
        if (acc_ends_by(id, told - acc.now)) { /* the time told is that of best effort */
            c->sure = false;
            c->until = UINT64_MAX;
        }
        memcpy(c->n, n, sizeof n);
        acc_told_ns = told;
        acc_told_id = asked;
        memcpy(acc_told_n, n, sizeof n);
    }
    acc_judge_next(id, n, told);
}

static void acc_next(void)
{
    uint64_t n[HTB_RESOURCES_MAX] = {0};
    uint32_t asked = acc_id(true), r;
    for (r = 0; r < acc.resources; r++)
        n[r] = acc_tokens(r);
    acc_told_ns = acc_ask_next(asked, n);
    acc_judge_next(acc_class(asked), n, acc_told_ns);
    acc_told_id = asked;
    memcpy(acc_told_n, n, sizeof n);
}

/* Is htb_force refused? */
static enum tri acc_in_debt(uint32_t id, const uint64_t *n, uint32_t *payer)
{
    enum tri most = NO;
    uint32_t at, r;
    bool pays = false, passed = false;
    for (at = id; !pays; at = pays ? at : acc.node[at].up) {
        pays = true;
        for (r = 0; r < acc.resources; r++)
            pays = pays && (n[r] == 0 || acc.node[at].rate[r].on);
    }
    *payer = at;
    for (at = id; at != ACC_NONE; at = acc.node[at].up) {
        for (r = 0; r < acc.resources; r++) {
            const struct acc_bucket *l = &acc.node[at].limit[r], *b = &acc.node[at].rate[r];
            wide limit = (wide)l->rate * acc.config.debt_ns, rate = (wide)b->rate * acc.config.debt_ns;
            enum tri one = NO;
            if (n[r] == 0)
                continue;
            if (!passed && l->on && l->rate == 0)
                one = YES;
            else if (!passed && l->on)
                one = l->high < -limit ? YES : l->low < -acc_least(limit, ACC_MOST) ? MAYBE : NO;
            most = one > most ? one : most;
            if (at == *payer)
                one = b->high < -rate ? YES : b->low < -acc_least(rate, ACC_MOST) ? MAYBE : NO;
            else if ((passed || acc_below(*payer, at)) && b->on && b->low < -2 * ACC_MOST + (wide)n[r] * ACC_TOKEN)
                one = MAYBE;
            most = one > most ? one : most;
        }
        passed = passed || at == *payer;
    }
    return most;
}

static void acc_force(void)
{
    uint64_t n[HTB_RESOURCES_MAX] = {0};
    uint32_t asked = acc_id(true), id = acc_class(asked), r, payer;
    struct acc_way way;
    enum tri debt;
    enum qos_status s;
    for (r = 0; r < acc.resources; r++)
        n[r] = acc_tokens(r);
    debt = acc_in_debt(id, n, &payer);
    s = htb_force(&acc_tree, acc_shown(), asked, n);
    acc_say(s == QOS_OK ? "forces" : "not forced", asked, n[0]);
    if (s == QOS_OK ? debt == YES : s != QOS_EDEBT || debt == NO)
        ACC_FAIL("force", "step %" PRIu32 ": class %" PRIu32 " forces %" PRIu64 ": %s", acc.step, id, n[0],
                 qos_strerror(s));
    if (s != QOS_OK)
        return;
    acc_granted(n);
    way.first = way.last = payer;
    (void)acc_counted(id, n, &way);
    acc_pay(id, payer, payer, n, NULL);
    acc_judge_debt(id);
}

/* ---- calls: the queues ------------------------------------------------------------------------------------------- */

static uint32_t acc_head(uint32_t id)
{
    uint32_t i, oldest = ACC_NONE;
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_QUEUED && acc.request[i].slot == id &&
            (oldest == ACC_NONE || acc.request[i].order < acc.request[oldest].order))
            oldest = i;
    return oldest;
}

static void acc_submit(void)
{
    uint32_t k = (uint32_t)acc_any(0, ACC_REQUESTS - 1), r, payer, id;
    struct acc_request *q = &acc.request[k];
    struct htb_request *h = &acc_queue[k];
    struct acc_way way;
    enum tri debt;
    enum qos_status s;
    if (q->life != R_IDLE) {
        s = htb_submit(&acc_tree, acc_shown(), h);
        if (s != QOS_EBUSY)
            ACC_FAIL("submit", "step %" PRIu32 ": a request that is queued is submitted: %s", acc.step,
                     qos_strerror(s));
        return;
    }
    memset(q, 0, sizeof *q);
    h->class_id = acc_id(true);
    h->urgent = acc_chance(80);
    q->gate = h->gate = !h->urgent && acc_chance(100);
    h->offset = acc_any(0, 9);
    for (r = 0; r < acc.resources; r++)
        q->n[r] = h->tokens[r] = acc_tokens(r);
    if (acc_chance(10)) {
        h->tokens[0] = 4000000001;
        s = htb_submit(&acc_tree, acc_shown(), h);
        if (s != QOS_ERANGE || h->state != HTB_IDLE)
            ACC_FAIL("submit", "step %" PRIu32 ": a request of 4000000001 tokens: %s", acc.step, qos_strerror(s));
        return;
    }
    id = q->slot = acc_class(h->class_id);
    debt = acc_in_debt(id, q->n, &payer);
    s = htb_submit(&acc_tree, acc_shown(), h);
    acc_say(h->urgent ? "urgent" : "submits", h->class_id, q->n[0]);
    if (h->urgent ? s == QOS_OK ? debt == YES : s != QOS_EDEBT || debt == NO : s != QOS_OK)
        ACC_FAIL("submit", "step %" PRIu32 ": class %" PRIu32 " submits %" PRIu64 ": %s", acc.step, id, q->n[0],
                 qos_strerror(s));
    if (s != QOS_OK)
        return;
    acc.submits++;
    q->life = h->urgent ? R_URGENT : R_QUEUED;
    q->order = ++acc.orders;
    q->since_ns = acc.now;
    if (h->urgent) {
        way.first = way.last = payer;
        (void)acc_counted(id, q->n, &way);
        acc_pay(id, payer, payer, q->n, NULL);
        q->first = q->last = payer;
        q->generation = acc.node[id].generation;
        acc.node[id].outstanding++;
    }
}

/* Can the first request of class id surely go, if there is room? own: of its own tokens only. */
static enum tri acc_could(uint32_t id, bool own, uint64_t ns)
{
    uint32_t k = acc_head(id), at;
    enum tri limits = YES, one, most = NO;
    if (k == ACC_NONE)
        return NO;
    for (at = id; at != ACC_NONE; at = acc.node[at].up) {
        one = acc_passes(at, true, ACC_NONE, acc.request[k].n, ns);
        limits = one < limits ? one : limits;
        one = at == acc.root && !acc.by_rate ? YES : acc_passes(at, false, ACC_NONE, acc.request[k].n, ns);
        one = one < limits ? one : limits;
        most = one > most ? one : most;
        if (own)
            break;
    }
    return most;
}

/* Is there another request that may have the turn before that of class id, and is larger in a resource? */
static bool acc_larger(uint32_t id)
{
    uint32_t k = acc_head(id), i, r;
    for (i = 0; i < acc.classes; i++) {
        uint32_t other = i == id ? ACC_NONE : acc_head(i);
        for (r = 0; r < acc.resources && other != ACC_NONE; r++)
            if (acc.request[other].n[r] > acc.request[k].n[r])
                return true;
    }
    return false;
}

/* Request k was of a class that ended in this call. Did it go before that, as its own class's? Then it is accounted for. */
static bool acc_moved_before(uint32_t k)
{
    struct acc_request *q = &acc.request[k];
    struct acc_node *c = &acc.node[q->from];
    struct htb_class_state info;
    struct qos_stats s;
    if (q->from == 0)
        return false;
    (void)htb_stats(&acc_tree, 0, &s);
    (void)htb_class_info(&acc_tree, 0, &info);
    if (s.granted != acc.node[0].granted || info.outstanding != acc.node[0].outstanding ||
        (s.waited != acc.node[0].waited && !acc.node[0].waited_unsure))
        return false;
    c->waited_unsure = c->waited_unsure || acc.node[0].waited_unsure; /* a free gate request shows nowhere else */
    (void)htb_stats(&acc_tree, q->from, &s);
    c->granted += q->n[0];
    c->borrowed = s.borrowed;
    c->waited += q->since_ns < acc.now;
    q->slot = q->first = q->from;
    q->last = ACC_NONE;
    q->generation = c->generation - 1;
    acc_pay(q->slot, q->first, q->last, q->n, NULL);
    q->life = R_DISPATCHED;
    q->flight_ns = acc.by_rate ? 0 : acc_device_ns(q->n);
    c->outstanding += q->gate; /* it is counted off */
    return true;
}

/* Request k of a class is moved out of its queue. */
static void acc_moved(uint32_t k, bool alone)
{
    struct acc_request *q = &acc.request[k];
    struct acc_way way = {NO, ACC_NONE, ACC_NONE, ACC_NONE, true};
    uint32_t at, i;
    enum tri limits = YES, one, borrowed;
    if (q->from != 0 && !alone)
        acc.ends = true; /* whose requests went as those of which class is not known */
    if (acc_moved_before(k))
        return;
    if (alone && acc_head(q->slot) != k)
        ACC_FAIL("order", "step %" PRIu32 ": a request of class %" PRIu32 " goes before an older one", acc.step,
                 q->slot);
    for (at = q->slot; at != ACC_NONE; at = acc.node[at].up) {
        one = acc_passes(at, true, ACC_NONE, q->n, 0);
        limits = one < limits ? one : limits;
        if (limits == NO)
            break;
        one = at == acc.root && !acc.by_rate ? YES : acc_passes(at, false, ACC_NONE, q->n, 0);
        one = one < limits ? one : limits;
        if (one != NO && way.first == ACC_NONE)
            way.first = at;
        if (one == YES && way.last == ACC_NONE)
            way.last = at;
    }
    if (alone && way.first == ACC_NONE)
        ACC_FAIL("queue", "step %" PRIu32 ": a request of class %" PRIu32 " goes, and neither it nor a lender may",
                 acc.step, q->slot);
    if (!alone) {
        way.first = q->slot;
        way.last = acc.root;
    }
    borrowed = alone ? acc_counted(q->slot, q->n, &way) : MAYBE;
    for (i = 0; alone && borrowed == YES && way.first == acc.root && i < acc.classes; i++)
        if (acc_head(i) != ACC_NONE && i != q->slot && !acc.node[i].over && acc_could(i, true, 0) == YES)
            ACC_FAIL("queue",
                     "step %" PRIu32 ": class %" PRIu32 " borrows before class %" PRIu32 ", which has own tokens",
                     acc.step, q->slot, i);
    q->first = way.first;
    q->last = way.last == ACC_NONE ? acc.root : way.last;
    if (!acc.by_rate && q->last == acc.root) { /* by flight the root lends room */
        q->last = ACC_NONE;
        q->first = way.first;
    }
    acc_pay(q->slot, q->first, q->last, q->n, NULL);
    q->generation = acc.node[q->slot].generation;
    acc.node[q->slot].outstanding++;
    acc.node[q->slot].waited += q->since_ns < acc.now;
    q->life = R_DISPATCHED;
    q->flight_ns = acc.by_rate ? 0 : acc_device_ns(q->n);
}

static uint32_t acc_count(enum acc_life life)
{
    uint32_t i, n = 0;
    for (i = 0; i < ACC_REQUESTS; i++)
        n += acc.request[i].life == life;
    return n;
}

/* Request k is given. Of the dispatch queue the one that came first goes; in elevator order the next one in the sweep, or,
 * if none is there, the lowest; but one that bypass_max others have passed goes first. */
static void acc_given_in_order(uint32_t k)
{
    const uint32_t bypass = acc.config.bypass_max ? acc.config.bypass_max : 64;
    struct acc_request *h = &acc.request[k];
    const uint64_t at = acc_queue[k].offset;
    const bool sweeps = acc.config.order == HTB_ELEVATOR && h->passed < bypass;
    uint32_t i;
    for (i = 0; i < ACC_REQUESTS; i++) {
        struct acc_request *q = &acc.request[i];
        const uint64_t other = acc_queue[i].offset;
        if (q->life != R_DISPATCHED || q->gate || i == k)
            continue;
        q->passed += q->call <= h->call || acc.config.order == HTB_ELEVATOR;
        if (acc.config.order == HTB_FIFO && q->call < h->call)
            ACC_FAIL("order", "step %" PRIu32 ": a request is given before one that came earlier", acc.step);
        if (sweeps && acc.swept && other > acc.head && (at < acc.head || at > other))
            ACC_FAIL("order",
                     "step %" PRIu32 ": the sweep from %" PRIu64 " goes to %" PRIu64 ", and one is at %" PRIu64,
                     acc.step, acc.head, at, other);
        if (q->passed > bypass + acc.config.dispatch_max)
            ACC_FAIL("order", "step %" PRIu32 ": %" PRIu32 " others go before one", acc.step, q->passed);
    }
    acc.swept = sweeps;
    acc.head = at;
}

/* `room`: at most dispatch_max are dispatched and not complete; by flight the next one goes only while less than the bound
 * is in flight, or nothing, or if nothing was done for 100 ms. before: this call, moved_ns: the most of what it moved. */
static void acc_judge_room(const struct htb_state *before, wide moved_ns)
{
    struct htb_state s;
    wide flight, bound;
    uint32_t i, there = 0;
    for (i = 0, flight = 0; i < ACC_REQUESTS; i++)
        if ((acc.request[i].life == R_DISPATCHED || acc.request[i].life == R_AT_DEVICE) && !acc_queue[i].urgent) {
            flight += acc.request[i].flight_ns;
            there++;
        }
    if (there > acc.config.dispatch_max)
        ACC_FAIL("room", "step %" PRIu32 ": %" PRIu32 " are dispatched, allowed %" PRIu32, acc.step, there,
                 acc.config.dispatch_max);
    (void)htb_info(&acc_tree, &s);
    flight -= moved_ns + (wide)(hung_of(&s) > hung_of(before) ? hung_of(&s) : hung_of(before));
    bound = s.flight_bound_ns > before->flight_bound_ns ? s.flight_bound_ns : before->flight_bound_ns;
    if (!acc.by_rate && moved_ns > 0 && flight > 40 && flight >= bound + 40 && acc.now < acc.done_ns + 100000000)
        ACC_FAIL("room", "step %" PRIu32 ": %" PRIu64 " ns are in flight, and one goes, with a bound of %" PRIu64,
                 acc.step, (uint64_t)flight, (uint64_t)bound);
}

/* One call of htb_dispatch. Returns whether it gave a request. */
static bool acc_dispatch_one(void)
{
    struct htb_state before;
    struct htb_request *h;
    uint32_t k, i, moved = 0, only = ACC_NONE;
    wide most_ns = 0;
    (void)htb_info(&acc_tree, &before);
    h = htb_dispatch(&acc_tree, acc_shown());
    k = h ? (uint32_t)(h - acc_queue) : ACC_NONE;
    acc.dispatches++;
    acc_see_ends();
    acc_say("dispatches", k, h ? h->tokens[0] : 0);
    if (h && (k >= ACC_REQUESTS || acc.request[k].life == R_IDLE || acc.request[k].life == R_AT_DEVICE)) {
        ACC_FAIL("once", "step %" PRIu32 ": a request is given that was not queued", acc.step);
        return false;
    }
    if (acc_count(R_URGENT) && !(h && acc.request[k].life == R_URGENT))
        ACC_FAIL("order", "step %" PRIu32 ": an urgent request waits, and another goes", acc.step);
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_QUEUED && acc_queue[i].state != HTB_QUEUED) {
            moved++;
            only = i;
            acc.request[i].call = acc.dispatches;
            most_ns = acc_largest(most_ns, acc_queue[i].gate ? 0 : acc_device_ns(acc.request[i].n));
        }
    if (before.flight_ns == 0 && hung_of(&before) == 0)
        acc.done_ns = acc.now;
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_QUEUED && acc_queue[i].state != HTB_QUEUED) {
            acc.request[i].sent_ns = acc.moved_ns = acc.now;
            acc.request[i].beyond = acc.now >= acc.done_ns + 100000000;
        }
    if (moved == 1)
        acc_moved(only, true);
    for (i = 0; moved > 1 && i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_QUEUED && acc_queue[i].state != HTB_QUEUED)
            acc_moved(i, false);
    for (i = 0; moved > 1 && i < acc.classes; i++) { /* who borrowed is not known */
        struct qos_stats s;
        (void)htb_stats(&acc_tree, i, &s);
        acc.node[i].granted = s.granted;
        acc.node[i].borrowed = s.borrowed;
    }
    if (h && acc.request[k].life == R_DISPATCHED && !h->urgent && !acc.request[k].gate)
        acc_given_in_order(k);
    if (h && acc_count(R_AT_DEVICE) == 0)
        acc.last_ns = acc.now;
    if (h)
        acc.request[k].life = R_AT_DEVICE;
    if (!h || !acc.request[k].gate)
        acc_judge_room(&before, most_ns);
    if (!h)
        return false;
    if (acc.request[k].gate) {
        uint64_t from = acc.gate_end > acc.now ? acc.gate_end : acc.now;
        acc.request[k].life = R_IDLE;
        acc.node[acc.request[k].slot].outstanding--;
        if (!acc.by_rate)
            acc.gate_end = from + (uint64_t)acc_device_ns(acc.request[k].n) + 1;
    }
    if (h->state != (acc.request[k].gate ? HTB_IDLE : HTB_AT_DEVICE))
        ACC_FAIL("once", "step %" PRIu32 ": the state of a request that is given is %d", acc.step, (int)h->state);
    return true;
}

/* Is there room at the device, whatever the bound in flight? By flight also if nothing was done for 100 ms, 16 of the
 * longest gaps, and 64 times what one of those takes that are there: all may hang. */
static bool acc_room(void)
{
    const wide long_ns = acc_largest(16 * (wide)acc.gap_ns, 100000000);
    const uint32_t there = acc_count(R_AT_DEVICE) + acc_count(R_DISPATCHED);
    wide most_ns = 0;
    uint32_t i;
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_DISPATCHED || acc.request[i].life == R_AT_DEVICE)
            most_ns = acc_largest(most_ns, acc.request[i].flight_ns);
    return there < acc.config.dispatch_max &&
           (acc.by_rate || there == 0 ||
            (acc.now >= acc.moved_ns && (wide)(acc.now - acc.moved_ns) >= acc_largest(long_ns, 64 * most_ns))) &&
           (acc.by_rate || acc.now >= acc.gate_end);
}

static void acc_judge_idle(void)
{
    uint32_t i;
    if (!acc_room())
        return;
    for (i = 0; i < acc.classes && !acc.w->broken; i++) {
        if (acc_head(i) == ACC_NONE || acc.node[i].over)
            continue;
        if (acc_could(i, true, 0) == YES)
            ACC_FAIL("idle_queue", "step %" PRIu32 ": class %" PRIu32 " has own tokens, and waits", acc.step, i);
        if (acc_could(i, false, 0) == YES && !acc_larger(i))
            ACC_FAIL("idle_queue", "step %" PRIu32 ": class %" PRIu32 " may borrow, and waits", acc.step, i);
    }
}

static void acc_complete(uint32_t k)
{
    struct acc_request *q = &acc.request[k];
    uint64_t cost[HTB_RESOURCES_MAX] = {0}, none[HTB_RESOURCES_MAX] = {0};
    bool known = acc_chance(500), not_done = acc_chance(150);
    const uint64_t *is = not_done ? none : known ? cost : q->n;
    struct acc_node *c = &acc.node[q->slot];
    enum qos_status s;
    uint32_t r;
    for (r = 0; r < acc.resources; r++)
        cost[r] = acc_chance(300) ? q->n[r] : acc_tokens(r);
    if (acc_chance(20)) {
        uint64_t bad[HTB_RESOURCES_MAX] = {4000000001, 0, 0, 0};
        if (htb_complete(&acc_tree, acc_shown(), HTB_DONE, bad, &acc_queue[k]) != QOS_ERANGE)
            ACC_FAIL("once", "step %" PRIu32 ": a completion of 4000000001 tokens is accepted", acc.step);
    }
    s = htb_complete(&acc_tree, acc_shown(), not_done ? HTB_NOT_DONE : HTB_DONE, known ? cost : NULL, &acc_queue[k]);
    acc_say("completes", q->slot, is[0]);
    if (s != QOS_OK || acc_queue[k].state != HTB_IDLE)
        ACC_FAIL("once", "step %" PRIu32 ": a completion says %s", acc.step, qos_strerror(s));
    if (acc.now > acc.last_ns && acc.now - acc.last_ns > acc.gap_ns)
        acc.gap_ns = acc.now - acc.last_ns;
    acc.last_ns = acc.now;
    if (q->flight_ns > 0 && !acc_queue[k].urgent) {
        acc.done_ns = acc.moved_ns = acc.now;
        for (r = 0; r < ACC_REQUESTS && q->beyond; r++) /* what was there before it may hang */
            acc.request[r].may_hang = acc.request[r].may_hang ||
                                      ((acc.request[r].life == R_DISPATCHED || acc.request[r].life == R_AT_DEVICE) &&
                                       (acc.request[r].sent_ns <= q->sent_ns || acc.request[r].sent_ns == QOS_NEVER));
    }
    if (q->generation == c->generation && c->used) {
        struct qos_stats stats;
        c->outstanding--;
        acc_pay(q->slot, q->first, q->last, is, q->n);
        (void)htb_stats(&acc_tree, q->slot, &stats);
        c->granted += is[0] - q->n[0];
        if (q->first == q->last && q->first == q->slot) {
            if (stats.borrowed != c->borrowed)
                ACC_FAIL("stats", "step %" PRIu32 ": class %" PRIu32 " paid itself, and borrowed changes", acc.step,
                         q->slot);
        } else if (q->last != ACC_NONE && q->first != q->slot && stats.borrowed != c->borrowed + is[0] - q->n[0]) {
            ACC_FAIL("stats", "step %" PRIu32 ": class %" PRIu32 " borrowed %" PRIu64 ", told %" PRIu64, acc.step,
                     q->slot, c->borrowed + is[0] - q->n[0], stats.borrowed);
        }
        c->borrowed = stats.borrowed;
    }
    q->life = R_IDLE;
}

static void acc_cancel(void)
{
    uint32_t k = (uint32_t)acc_any(0, ACC_REQUESTS - 1), tries;
    struct acc_request *q;
    enum qos_status s;
    bool can;
    for (tries = 0; tries < 8 && acc.request[k].life == R_IDLE; tries++)
        k = (uint32_t)acc_any(0, ACC_REQUESTS - 1);
    q = &acc.request[k];
    can = q->life == R_QUEUED || q->life == R_URGENT || q->life == R_DISPATCHED;
    s = htb_cancel(&acc_tree, acc_shown(), &acc_queue[k]);
    acc_say("cancels", q->slot, q->n[0]);
    if (s != (can ? QOS_OK : QOS_EINVAL))
        ACC_FAIL("once", "step %" PRIu32 ": a cancel says %s", acc.step, qos_strerror(s));
    if (!can)
        return;
    if (q->life != R_QUEUED && q->generation == acc.node[q->slot].generation && acc.node[q->slot].used) {
        static const uint64_t none[HTB_RESOURCES_MAX] = {0};
        struct qos_stats stats;
        acc.node[q->slot].outstanding--;
        acc_pay(q->slot, q->first, q->last, none, q->n);
        (void)htb_stats(&acc_tree, q->slot, &stats);
        acc.node[q->slot].granted -= q->n[0];
        acc.node[q->slot].borrowed = stats.borrowed;
    }
    q->life = R_IDLE;
}

/* `never`: only a submit or a completion can bring a request, if nothing waits, or all places are taken and no gate
 * request waits for less. A class that expires may be told. */
static void acc_judge_never(uint64_t told)
{
    const uint32_t at = acc_count(R_AT_DEVICE), there = at + acc_count(R_DISPATCHED);
    bool gates = false;
    uint32_t i;
    for (i = 0; i < ACC_REQUESTS; i++)
        gates = gates || (acc.request[i].life == R_QUEUED && acc_queue[i].gate);
    if (WORLD_V02 || told == QOS_NEVER || acc_count(R_URGENT) ||
        !((there == at && (acc_count(R_QUEUED) == 0 || at >= acc.config.dispatch_max)) ||
          (at >= acc.config.device_max && !gates)))
        return;
    for (i = 0; i < acc.classes; i++)
        if (acc.node[i].used && !acc.node[i].group && acc.node[i].terms.expires_ns &&
            (acc.node[i].over || acc.node[i].terms.expires_ns == told ||
             (!acc.by_rate && acc.node[i].terms.expires_ns < told))) /* open: late for that while the bound is full */
            return;
    ACC_FAIL("dispatch_next", "step %" PRIu32 ": only a submit or a completion can bring a request, told %" PRIu64,
             acc.step, told);
}

/* The time told was the end of a class (ends), or too early: once for each request. */
static void acc_was_early(bool ends)
{
    if (!ends && ++acc.early > acc.submits)
        ACC_FAIL("dispatch_next", "step %" PRIu32 ": told too early more often than there were requests", acc.step);
}

/* All that may go, goes. Then the time told for the next. */
static void acc_dispatch(void)
{
    uint64_t shown = acc_shown(), told;
    bool asked = acc_chance(600), gave = false, ends = false;
    uint32_t i, count = acc.config.dispatch_max == 1 || acc_chance(500) ? 100 : (uint32_t)acc_any(1, 4);
    for (i = 0; i < acc.classes; i++)
        ends = ends || acc.node[i].over;
    told = asked ? htb_dispatch_next_ns(&acc_tree, shown) : 0;
    acc_see_ends();
    if (asked)
        acc_judge_never(told);
    while (count-- && !acc.w->broken) {
        bool one = acc_dispatch_one();
        if (asked && !gave && !one && told <= acc.now)
            acc_was_early(ends);
        if (asked && !gave && one && told > acc.now)
            ACC_FAIL("dispatch_next", "step %" PRIu32 ": htb_dispatch_next_ns says later, and a request goes now",
                     acc.step);
        gave = true;
        if (!one) {
            acc_judge_idle();
            break;
        }
        for (i = 0; i < ACC_REQUESTS && !acc.w->broken; i++)
            if (acc.request[i].life == R_AT_DEVICE && acc_chance(acc.config.dispatch_max == 1 ? 900 : 500))
                acc_complete(i);
    }
}

/* Goes to the time that htb_dispatch_next_ns tells, or before: it is never late, and early once for each request. */
static void acc_wake(void)
{
    uint64_t shown = acc_shown(), told = htb_dispatch_next_ns(&acc_tree, shown), to;
    uint32_t i, ends;
    acc_see_ends();
    acc_judge_never(told);
    if (told <= acc.now)
        return;
    if (told == QOS_NEVER || told - acc.now > ACC_FAR_NS)
        to = acc.now + acc_span();
    else
        to = acc_chance(400) ? told : acc_any(acc.now, told - 1);
    if (acc_room() && acc_count(R_AT_DEVICE) < acc.config.device_max)
        for (i = 0; i < acc.classes && !acc.w->broken; i++)
            if (acc_head(i) != ACC_NONE && !acc.node[i].over && acc_could(i, true, to - acc.now) == YES && told > to)
                ACC_FAIL("dispatch_next", "step %" PRIu32 ": class %" PRIu32 " has own tokens before the time told",
                         acc.step, i);
    acc_advance(to);
    if (to < told && acc_dispatch_one())
        ACC_FAIL("dispatch_next", "step %" PRIu32 ": a request goes before the time told", acc.step);
    if (to != told)
        return;
    ends = 0;
    for (i = 0; i < acc.classes; i++)
        ends += acc.node[i].over;
    if (!acc_dispatch_one())
        acc_was_early(ends != 0);
}

/* `waits`: waits until something goes, at each time told: early at most once for each limit of a request. */
static void acc_wait(void)
{
    const uint32_t most = acc_count(R_QUEUED) + acc_count(R_DISPATCHED) + acc.classes + 1;
    uint32_t i;
    for (i = 0; i <= most && !acc.w->broken && !acc.ends; i++) {
        const uint64_t told = htb_dispatch_next_ns(&acc_tree, acc.now);
        acc_see_ends();
        acc_judge_never(told);
        if (told == QOS_NEVER || told - acc.now > ACC_FAR_NS)
            return;
        acc_advance(told);
        if (acc_dispatch_one())
            return;
    }
    if (i > most)
        ACC_FAIL("dispatch_next", "step %" PRIu32 ": told %" PRIu32 " times in vain", acc.step, i);
}

/* ---- calls: what is told ----------------------------------------------------------------------------------------- */

static void acc_judge_tree(void)
{
    struct htb_state s;
    wide flight = 0;
    uint32_t r, i, there = 0;
    (void)htb_info(&acc_tree, &s);
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_DISPATCHED || acc.request[i].life == R_AT_DEVICE)
            flight += acc_queue[i].urgent ? 0 : acc.request[i].flight_ns;
    for (r = 0; r < acc.resources; r++)
        if (s.rate_per_s[r] != acc.node[acc.root].rate[r].rate || s.reserved_per_s[r] != acc_sum(acc.root, r, ACC_NONE))
            ACC_FAIL("info",
                     "step %" PRIu32 ": the root's rate is %" PRIu64 ", reserved %" PRIu64 ", told %" PRIu64
                     " and %" PRIu64,
                     acc.step, acc.node[acc.root].rate[r].rate, acc_sum(acc.root, r, ACC_NONE), s.rate_per_s[r],
                     s.reserved_per_s[r]);
    for (i = 0; i < ACC_REQUESTS; i++)
        there += acc.request[i].life == R_AT_DEVICE && !acc_queue[i].urgent;
    if (there > acc.config.device_max)
        ACC_FAIL("room", "step %" PRIu32 ": %" PRIu32 " are at the device, allowed %" PRIu32, acc.step, there,
                 acc.config.device_max);
    if (s.queued != acc_count(R_QUEUED) || s.dispatched != acc_count(R_DISPATCHED) ||
        s.at_device != acc_count(R_AT_DEVICE))
        ACC_FAIL("info", "step %" PRIu32 ": queued %" PRIu64 ", dispatched %" PRIu32 ", at the device %" PRIu32,
                 acc.step, s.queued, s.dispatched, s.at_device);
    if (s.flight_ns > flight + 40 || s.flight_ns + 40 < flight)
        ACC_FAIL("info", "step %" PRIu32 ": device time in flight %" PRIu64 ", told %" PRIu64, acc.step,
                 (uint64_t)flight, s.flight_ns);
    /* Open: until what went before a reset is complete, it counts as other requests, which hang or do not. */
    for (i = 0, flight = 40, there = hung_of(&s) != 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_DISPATCHED || acc.request[i].life == R_AT_DEVICE) {
            flight += acc.request[i].may_hang ? acc.request[i].flight_ns : 0;
            there += acc.request[i].sent_ns == QOS_NEVER;
        }
    acc.hung_unsure = acc.hung_unsure && there != 0;
    if (hung_of(&s) > flight && !acc.hung_unsure)
        ACC_FAIL("info", "step %" PRIu32 ": %" PRIu64 " ns hang, and of what is there %" PRIu64 " can", acc.step,
                 hung_of(&s), (uint64_t)flight);
    if (acc.by_rate ? s.flight_bound_ns != QOS_UNLIMITED
                    : s.flight_bound_ns < acc.config.flight_min_ns || s.flight_bound_ns > acc.config.flight_max_ns)
        ACC_FAIL("info", "step %" PRIu32 ": the bound in flight is %" PRIu64 ", its range %" PRIu64 " to %" PRIu64,
                 acc.step, s.flight_bound_ns, acc.config.flight_min_ns, acc.config.flight_max_ns);
}

static enum htb_wait acc_waits_for(uint32_t id, bool *sure)
{
    const uint64_t *n;
    uint32_t at;
    *sure = acc.seen_ns == acc.now;
    if (acc_head(id) == ACC_NONE)
        return HTB_WAITS_NOT;
    n = acc.request[acc_head(id)].n;
    for (at = id; at != ACC_NONE; at = acc.node[at].up) {
        enum tri l = acc_passes(at, true, ACC_NONE, n, 0), t = acc_passes(at, false, ACC_NONE, n, 0);
        *sure = *sure && l != MAYBE && t != MAYBE;
        if (l == NO)
            return at == id ? HTB_OWN_LIMIT : HTB_PARENT_LIMIT;
        if (t == YES)
            return HTB_TURN;
    }
    return acc.by_rate ? HTB_LENDERS_TOKENS : HTB_TURN;
}

static void acc_judge_class(uint32_t id)
{
    struct htb_class_state s;
    const struct acc_node *c = &acc.node[id];
    uint32_t queued = 0, i, r, k = c->used && !c->group ? acc_head(id) : ACC_NONE;
    enum htb_wait waits;
    bool sure, same = true;
    enum qos_status status = htb_class_info(&acc_tree, id, &s);
    if (status != (c->used ? QOS_OK : QOS_ENOENT))
        ACC_FAIL("info", "step %" PRIu32 ": class %" PRIu32 ": %s", acc.step, id, qos_strerror(status));
    if (!c->used || acc.w->broken)
        return;
    for (i = 0; i < acc.classes; i++)
        queued += c->group && acc.node[i].used && acc.node[i].up == id;
    for (i = 0; i < ACC_REQUESTS; i++)
        queued += !c->group && acc.request[i].life == R_QUEUED && acc.request[i].slot == id;
    for (r = 0; r < HTB_RESOURCES_MAX; r++)
        same = same && s.terms.rate_per_s[r] == c->terms.rate_per_s[r] &&
               s.terms.limit_per_s[r] == c->terms.limit_per_s[r];
    if (!same || s.terms.parent != (c->up == acc.root ? 0 : c->up) || s.terms.weight != c->terms.weight ||
        s.terms.burst_ns != c->terms.burst_ns || *latency_of(&s.terms) != *latency_of(&c->terms) ||
        s.terms.expires_ns != c->terms.expires_ns || s.terms.group != c->group)
        ACC_FAIL("info", "step %" PRIu32 ": class %" PRIu32 " has other terms than told", acc.step, id);
    if (s.queued != queued || (!c->group && s.outstanding != c->outstanding))
        ACC_FAIL("info",
                 "step %" PRIu32 ": class %" PRIu32 ": %" PRIu32 " queued, %" PRIu32 " outstanding, told %" PRIu32
                 " and %" PRIu32,
                 acc.step, id, queued, c->outstanding, s.queued, s.outstanding);
    if (s.since_ns != (k == ACC_NONE ? QOS_NEVER : acc.request[k].since_ns))
        ACC_FAIL("info", "step %" PRIu32 ": class %" PRIu32 " waits since another time", acc.step, id);
    waits = c->group ? HTB_WAITS_NOT : acc_waits_for(id, &sure);
    if (s.waits != waits && (c->group || sure))
        ACC_FAIL("info", "step %" PRIu32 ": class %" PRIu32 " waits for reason %d, told %d", acc.step, id, (int)waits,
                 (int)s.waits);
}

static void acc_judge_stats(uint32_t id)
{
    struct qos_stats s;
    const struct acc_node *c = &acc.node[id];
    if (htb_stats(&acc_tree, id, &s) != QOS_OK || s.granted != c->granted || s.borrowed != c->borrowed ||
        s.refused != c->refused || s.waited != c->waited)
        ACC_FAIL("stats",
                 "step %" PRIu32 ": class %" PRIu32 ": granted %" PRIu64 " borrowed %" PRIu64 " refused %" PRIu64
                 " waited %" PRIu64 ", told %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
                 acc.step, id, c->granted, c->borrowed, c->refused, c->waited, s.granted, s.borrowed, s.refused,
                 s.waited);
}

static void acc_judge_queue(uint32_t id)
{
    const struct htb_request *h = NULL;
    uint64_t last = 0;
    uint32_t n = 0, i, queued = 0;
    for (i = 0; i < ACC_REQUESTS; i++)
        queued += acc.request[i].life == R_QUEUED && acc.request[i].slot == id;
    while ((h = htb_queue_next(&acc_tree, id, h)) != NULL && n++ <= ACC_REQUESTS) {
        const struct acc_request *q = &acc.request[h - acc_queue];
        if (q->life != R_QUEUED || q->slot != id || q->order <= last)
            ACC_FAIL("order", "step %" PRIu32 ": the queue of class %" PRIu32 " is not what was submitted", acc.step,
                     id);
        last = q->order;
    }
    if (n != queued)
        ACC_FAIL("order", "step %" PRIu32 ": %" PRIu32 " in the queue of class %" PRIu32 ", walked %" PRIu32, acc.step,
                 queued, id, n);
}

/* ---- calls: the clock, the maximizer ----------------------------------------------------------------------------- */

static void acc_reset_clock(void)
{
    const uint64_t was = acc.now, to = acc_chance(500) ? acc.now / 2 : acc.now + acc_span();
    uint32_t i;
    acc_see();
    htb_reset_clock(&acc_tree, to);
    acc_say("resets", 0, to);
    for (i = 0; i < acc.classes; i++) {
        if (acc.node[i].claim.on && acc.now >= acc.node[i].claim.until) {
            if (to < acc.node[i].claim.until) /* nobody may have looked in time */
                acc.node[i].claim.until = UINT64_MAX;
            acc_learn(i, NULL, false);
        } else if (acc.node[i].claim.on && acc.node[i].claim.until != UINT64_MAX && to >= acc.node[i].claim.until) {
            acc.now = to;
            acc_learn(i, NULL, false);
            acc.now = was;
        }
        acc.node[i].claim.on = false;
        acc.node[i].over = acc.node[i].used && !acc.node[i].group && acc.node[i].terms.expires_ns &&
                           acc.node[i].terms.expires_ns <= to;
    }
    for (i = 0; i < ACC_REQUESTS; i++)
        if (acc.request[i].life == R_QUEUED) /* when it began to wait is another clock's time */
            acc.node[acc.request[i].slot].waited_unsure = true;
    acc.done_ns = 0;
    acc.moved_ns = to;
    acc.last_ns = to < acc.last_ns ? to : acc.last_ns;
    for (i = 0; i < ACC_REQUESTS; i++) { /* it went at another clock's time */
        acc.request[i].beyond = true;
        acc.request[i].sent_ns = QOS_NEVER;
        acc.hung_unsure = acc.hung_unsure || acc.request[i].life == R_DISPATCHED || acc.request[i].life == R_AT_DEVICE;
    }
    acc.gate_end = acc.gate_end > acc.now ? to + (acc.gate_end - acc.now) : 0;
    acc.was_capped = acc.lacked = MAYBE;
    acc.now = acc.seen_ns = to;
    acc.looked_ns = to;
    acc_told_id = ACC_NONE;
}

/* Did the root's rate cap what was asked for since the last look? If it had no tokens for somebody, and at least 7/8 of
 * its rate was granted, or of several resources 7/8 of the time. What requests in queues cost is not followed. */
static enum tri acc_capped(void)
{
    const wide all = (wide)acc.node[acc.root].rate[0].rate * (acc.now - acc.looked_ns);
    const wide earned = acc.resources == 1 ? all : all / (wide)acc.base[0] * ACC_TOKEN;
    const wide granted = (wide)acc.granted * 8 * ACC_TOKEN, least = 7 * earned;
    const wide slack = (16 + 8 * (wide)acc.rounded) * ACC_TOKEN;
    if (acc.queues)
        return MAYBE;
    if (acc.lacked == NO || granted < least - slack)
        return NO;
    return acc.lacked == YES && granted > least + slack ? YES : MAYBE;
}

/* One look, and what it may do to the root's rate. */
/* Above where a class missed its rate before, the root's rate rises at one look of 8. */
static bool acc_rises(uint64_t rate, bool first)
{
    uint64_t to = rate + (rate / acc.config.maximize_step ? rate / acc.config.maximize_step : 1);
    bool slow = (to < acc.root_max ? to : acc.root_max) > acc.slow_from;
    acc.slow_looks += first && slow;
    return !slow || acc.slow_looks % 8 == 0;
}

static uint64_t acc_fallen(uint64_t was, uint64_t base, uint64_t step)
{
    uint64_t by = was - base;
    if (by > step)
        by = by / 2 > step ? by / 2 : step;
    return was - by;
}

static void acc_look(bool violated)
{
    struct htb_state before, after;
    enum htb_scenario seen;
    bool looks = acc.now - acc.looked_ns >= acc.config.maximize_interval_ns;
    enum tri capped = acc_capped(), both = capped < acc.was_capped ? capped : acc.was_capped;
    uint32_t r;
    (void)htb_info(&acc_tree, &before);
    seen = htb_maximize(&acc_tree, acc_shown(), violated);
    (void)htb_info(&acc_tree, &after);
    if (looks && seen != HTB_UNCAPPED && seen != HTB_CAPPED &&
        (before.scenario == HTB_UNCAPPED || before.scenario == HTB_CAPPED))
        acc.slow_from = before.rate_per_s[0] - (before.rate_per_s[0] - acc.base[0]) / 8;
    acc_say("maximizes", (uint32_t)seen, after.rate_per_s[0]);
    if (seen != after.scenario || (!looks && seen != before.scenario))
        ACC_FAIL("maximizer", "step %" PRIu32 ": it saw %d, told %d", acc.step, (int)seen, (int)after.scenario);
    if (looks && violated && seen != HTB_BROKEN && seen != HTB_CAPPED_AND_BROKEN)
        ACC_FAIL("maximizer", "step %" PRIu32 ": a class misses its rate, and it sees %d", acc.step, (int)seen);
    if (looks && !acc.queues && both != MAYBE &&
        seen != (violated      ? both == YES ? HTB_CAPPED_AND_BROKEN : HTB_BROKEN
                 : both == YES ? HTB_CAPPED
                               : HTB_UNCAPPED))
        ACC_FAIL("maximizer", "step %" PRIu32 ": what is asked for is %s by the root's rate, and it sees %d", acc.step,
                 both == YES ? "capped" : "not capped", (int)seen);
    for (r = 0; r < acc.resources; r++) {
        uint64_t was = before.rate_per_s[r], is = after.rate_per_s[r], step = was / acc.config.maximize_step;
        uint64_t expect = was;
        step = step ? step : 1;
        if (looks && seen == HTB_CAPPED && !acc_rises(before.rate_per_s[0], r == 0))
            expect = was;
        else if (looks && seen == HTB_CAPPED)
            expect = was + step < (r ? UINT64_C(1) << 40 : acc.root_max) ? was + step
                                                                         : (r ? UINT64_C(1) << 40 : acc.root_max);
        else if (looks && seen != HTB_UNCAPPED)
            expect = acc_fallen(was, acc.base[r], step);
        if (is != expect || is < acc.base[r])
            ACC_FAIL("maximizer",
                     "step %" PRIu32 ": the root's rate goes from %" PRIu64 " to %" PRIu64 ", expected %" PRIu64,
                     acc.step, was, is, expect);
        if (is != was) /* else what is above the depth stays */
            acc_set(&acc.node[acc.root].rate[r], true, is, acc.node[acc.root].terms.burst_ns);
    }
    if (!looks)
        return;
    acc.looked_ns = acc.now;
    acc.granted = acc.rounded = 0;
    acc.was_capped = capped;
    acc.lacked = NO;
}

/* A load that is capped by the root's rate: at each of 32 moments of an interval all that may go is taken. */
static void acc_press(void)
{
    uint64_t n[HTB_RESOURCES_MAX] = {0};
    uint32_t k, j, looks = (uint32_t)acc_any(2, 5), tries;
    uint64_t interval = acc.config.maximize_interval_ns;
    acc.tags_unsure = true; /* its tags are not followed */
    for (k = 0; k < acc.resources; k++)
        n[k] = acc.base[k] / 64 * interval / 1000000000 + 1;
    for (k = 0; k < looks && !acc.w->broken; k++) {
        for (j = 0; j < 32; j++) {
            acc_advance(acc.now + interval / 32 + 1);
            for (tries = 0; tries < 200; tries++) {
                struct acc_way way = acc_way_of(0, n, 0);
                bool passes = htb_take_all(&acc_tree, acc_shown(), 0, n) == QOS_OK;
                if (passes ? way.passes == NO : way.passes == YES && acc_overtakes(0, acc.root) == NO)
                    ACC_FAIL("gate", "step %" PRIu32 ": best effort is %s", acc.step,
                             passes ? "not refused" : "refused");
                if (!passes) {
                    if (acc.node[0].claim.on)
                        acc_learn(0, n, false);
                    acc.node[0].refused++;
                    acc.lacked = way.passes == NO && way.blocked == ACC_NONE ? YES : acc.lacked == YES ? YES : MAYBE;
                    acc.node[0].claim.on = !WORLD_V02;
                    acc.node[0].claim.sure = false;
                    acc.node[0].claim.returns = acc.node[0].claim.fresh = MAYBE;
                    acc.node[0].claim.reach = acc.root;
                    acc.node[0].claim.until = UINT64_MAX;
                    memcpy(acc.node[0].claim.n, n, sizeof n);
                    break;
                }
                acc_granted(n);
                (void)acc_counted(0, n, &way);
                acc_pay(0, way.first, way.last == ACC_NONE ? acc.root : way.last, n, NULL);
                if (acc.node[0].claim.on)
                    acc_learn(0, n, true);
            }
        }
        acc_look(acc_chance(200));
    }
}

#if !WORLD_V02
/* Promise `ranges`: a setting is refused if, and only if, it is out of its range: one of them, at a border or beside it. */
static void acc_judge_ranges(void)
{
    struct htb_config tree;
    struct htb_class terms;
    struct world_rng r;
    const char *wrong = NULL;
    memset(&tree, 0, sizeof tree);
    memset(&terms, 0, sizeof terms);
    world_rng_init(&r, acc.w->seed, 0x9501);
    tree.rate_per_s[0] = 1000;
#define htb_class_config_error htb_class_error
    switch (world_between(&r, 0, 11)) {
    case 0: WORLD_RANGE(wrong, &r, htb_class, terms, weight, 0, HTB_WEIGHT_MAX); break;
    case 1: WORLD_RANGE(wrong, &r, htb_class, terms, burst_ns, 0, HTB_BURST_MAX_NS); break;
    case 2: WORLD_RANGE(wrong, &r, htb_class, terms, latency_ns, 0, HTB_BURST_MAX_NS); break;
    case 3: WORLD_RANGE(wrong, &r, htb_class, terms, rate_per_s[3], 0, QOS_RATE_MAX); break;
    case 4: WORLD_RANGE(wrong, &r, htb, tree, classes, 0, HTB_CLASSES_MAX); break;
    case 5: WORLD_RANGE(wrong, &r, htb, tree, rate_per_s[0], 1, QOS_RATE_MAX); break;
    case 6: WORLD_RANGE(wrong, &r, htb, tree, request_max_tokens, 0, QOS_TOKENS_MAX / 4); break;
    case 7: WORLD_RANGE(wrong, &r, htb, tree, debt_ns, 0, HTB_BURST_MAX_NS); break;
    case 8: WORLD_RANGE(wrong, &r, htb, tree, lag_ns, 0, HTB_BURST_MAX_NS); break;
    case 9: WORLD_RANGE(wrong, &r, htb, tree, depth_max, 0, 4096); break;
    case 10: WORLD_RANGE(wrong, &r, htb, tree, dispatch_max, 0, HTB_DISPATCH_MAX); break;
    default: WORLD_RANGE(wrong, &r, htb, tree, maximize_rate_max, 1000, QOS_RATE_MAX); break;
    }
    if (wrong)
        ACC_FAIL("ranges", "a value of %s at its border, or beside it, is judged wrongly", wrong);
}
#endif

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* Settings that are not drawn elsewhere. */
static void acc_settings(struct htb_config *c)
{
    c->flight_min_ns = acc_chance(500) ? 0 : world_scale(&acc.rng, 1, 100000000);
    c->flight_max_ns = acc_chance(500) ? 0 : c->flight_min_ns + world_scale(&acc.rng, 10000, UINT64_C(2000000000));
    c->dispatch_max = acc_chance(200) ? 1 : (uint32_t)acc_any(2, 12);
    c->device_max = acc_chance(400) ? 0 : (uint32_t)acc_any(1, c->dispatch_max);
    c->bypass_max = acc_chance(300) ? 0 : (uint32_t)acc_any(1, 4);
    c->best_effort.weight = (uint32_t)acc_any(0, 9);
    if (acc_chance(200))
        c->best_effort.limit_per_s[0] = c->best_effort.rate_per_s[0] + c->rate_per_s[0] / acc_any(2, 9) + 1;
    c->best_effort.burst_ns = acc_chance(600) ? 0 : world_scale(&acc.rng, 1000, 100000000);
    *latency_of(&c->best_effort) = acc_chance(700) ? 0 : world_scale(&acc.rng, 1, 100000000);
}

static bool acc_begin(void)
{
    struct htb_config c;
    uint64_t scale[] = {1, 20, 1000, 1000000, 100000000, 1000000000, UINT64_C(1) << 38};
    uint32_t r;
    const char *wrong;
    memset(&c, 0, sizeof c);
    c.classes = acc.classes;
    c.resources = acc.resources;
    c.burst_ns = acc_chance(300) ? 0 : world_scale(&acc.rng, 2000, 100000000) / 1000 * 1000;
    for (r = 0; r < acc.resources; r++) {
        c.rate_per_s[r] = world_scale(&acc.rng, 1, 4) * scale[acc_any(0, 6)];
        while (c.rate_per_s[r] > UINT64_C(1) << 36 && c.burst_ns != 0 && c.burst_ns < 2000000)
            c.rate_per_s[r] /= 2;
        c.best_effort.rate_per_s[r] = acc_chance(600) ? 0 : c.rate_per_s[r] / 8 + acc_any(0, 1);
        if (c.best_effort.rate_per_s[r] > c.rate_per_s[r])
            c.best_effort.rate_per_s[r] = 0;
    }
    c.request_max_tokens = acc_chance(500) ? 0 : acc_chance(500) ? QOS_NOTHING : acc_any(1, 5000);
    c.debt_ns = acc_chance(500) ? 0 : world_scale(&acc.rng, 1000, 100000000);
    c.lag_ns = acc_chance(500) ? 0 : world_scale(&acc.rng, 1000, 100000000);
    c.start_ns = acc_chance(300) ? 0 : acc_chance(500) ? 1000000007 : UINT64_C(1) << 61;
    c.depth_max = acc_chance(500) ? 0 : (uint32_t)acc_any(1, 5);
    c.bound = acc.by_rate ? HTB_BY_RATE : HTB_BY_FLIGHT;
    c.order = acc_chance(500) ? HTB_FIFO : HTB_ELEVATOR;
    c.dispatch_max = acc_chance(750) ? 1 : (uint32_t)acc_any(2, 6);
    c.device_max = acc_chance(700) ? c.dispatch_max : (uint32_t)acc_any(1, c.dispatch_max);
    c.maximize_step = acc_chance(500) ? 0 : (uint32_t)acc_any(2, 8);
    c.maximize_interval_ns = acc_chance(500) ? 0 : 1000000;
    c.maximize_rate_max = acc_chance(500) ? 0 : c.rate_per_s[0] + c.rate_per_s[0] / 16;
    if (c.maximize_rate_max > UINT64_C(1) << 40)
        c.maximize_rate_max = 0;
    if (acc.settings)
        acc_settings(&c);
    acc.config = c;
    acc.config.device_max = c.device_max ? c.device_max : c.dispatch_max;
    acc.config.burst_ns = c.burst_ns ? c.burst_ns : 10000000;
    acc.config.debt_ns = c.debt_ns ? c.debt_ns : 1000000000;
    acc.config.lag_ns = c.lag_ns ? c.lag_ns : 1000000000;
    acc.config.depth_max = c.depth_max ? c.depth_max : 8;
    acc.config.flight_min_ns = c.flight_min_ns ? c.flight_min_ns : 1;
    acc.config.flight_max_ns = c.flight_max_ns ? c.flight_max_ns : WORLD_V02 ? 20000000 : 1000000000;
    acc.config.maximize_step = c.maximize_step ? c.maximize_step : 32;
    acc.config.maximize_interval_ns = c.maximize_interval_ns ? c.maximize_interval_ns : 100000000;
    acc.root_max = c.maximize_rate_max ? c.maximize_rate_max : UINT64_C(1) << 40;
    acc.half = c.request_max_tokens == 0;
    acc.now = acc.looked_ns = c.start_ns;
    acc.slow_from = UINT64_MAX;
    memcpy(acc.base, c.rate_per_s, sizeof acc.base);
    acc.tokens_max = (uint64_t)acc_least((wide)c.rate_per_s[0] * acc.config.burst_ns / 1000000000 * 2 + 3, 1500000000);
    wrong = htb_config_error(&c);
    if (wrong || htb_init(&acc_tree, acc_memory, sizeof acc_memory, &c) != QOS_OK) {
        ACC_FAIL("init", "%s", wrong ? wrong : "htb_init fails");
        return false;
    }
    acc.node[acc.root].used = acc.node[acc.root].former = acc.node[acc.root].group = true;
    acc.node[acc.root].up = ACC_NONE;
    acc.node[acc.root].terms.burst_ns = (acc.config.burst_ns + 999) / 1000 * 1000;
    for (r = 0; r < acc.resources; r++)
        acc_set(&acc.node[acc.root].rate[r], true, c.rate_per_s[r], acc.node[acc.root].terms.burst_ns);
    acc.node[0].used = acc.node[0].former = true;
    acc.node[0].fresh = YES;
    acc.node[0].up = acc.root;
    acc_apply(0, &c.best_effort);
    return true;
}

static void acc_one_step(void)
{
    uint64_t kind = acc_any(0, 99), to = acc.now + acc_span();
    uint32_t id, i;
    const bool longer = acc.waits && acc_chance(250);
    if (longer) { /* as long as a device pauses, or after a wrong time */
        if (acc_chance(200))
            acc_reset_clock();
        to = acc.now + acc_any(100000000, 400000000);
        kind = acc_chance(500) ? 58 : kind;
    }
    if (acc_told_id != ACC_NONE && acc_told_ns > acc.now && acc_told_ns - acc.now < ACC_FAR_NS && acc_chance(300))
        to = acc_told_ns - (acc_chance(300) ? 1 : 0);
    if (to < ACC_FAR_NS * 3)
        acc_advance(to);
    if (acc_chance(300))
        acc_see();
    if (!acc.queues && kind >= 45 && kind < 72)
        kind = kind % 40;
    if (kind < 36)
        acc_take();
    else if (kind < 41)
        acc_next();
    else if (kind < 45)
        acc_force();
    else if (kind < 55) {
        for (i = acc_chance(150) ? 16 : 1; i > 0 && !acc.w->broken; i--)
            acc_submit();
    } else if (kind < 62)
        acc_dispatch();
    else if (acc.waits && kind < 64)
        acc_wait();
    else if (kind < 66)
        acc_wake();
    else if (kind < 69) {
        for (i = 0; i < ACC_REQUESTS && !acc.w->broken; i++)
            if (acc.request[i].life == R_AT_DEVICE && acc_chance(500))
                acc_complete(i);
    } else if (kind < 72)
        acc_cancel();
    else if (kind < 80)
        acc_reserve(false);
    else if (kind < 88)
        acc_reserve(true);
    else if (kind < 91)
        acc_release();
    else if (kind < 94)
        acc_expired();
    else if (kind < 96)
        acc_change_root();
    else if (kind < 97 && acc_chance(300))
        acc_reset_clock();
    else if (kind < 99)
        acc_look(acc_chance(300));
    else if (acc_chance(300))
        acc_press();
    acc_see_ends();
    id = (uint32_t)acc_any(0, acc.classes - 1);
    if (!acc.w->broken)
        acc_judge_tree();
    if (!acc.w->broken)
        acc_judge_class(id);
    if (!acc.w->broken && !acc.node[id].waited_unsure)
        acc_judge_stats(id);
    if (!acc.w->broken && acc.queues)
        acc_judge_queue(id);
}

static void calls_run(struct world *w)
{
    uint32_t steps = (uint32_t)world_value(w, F_STEPS), i;
    memset(&acc, 0, sizeof acc);
    memset(acc_queue, 0, sizeof acc_queue);
    acc.w = w;
    world_rng_init(&acc.rng, w->seed, 99);
    acc.classes = (uint32_t)world_value(w, F_NODES);
    acc.root = acc.classes;
    acc.resources = acc_chance(700) ? 1 : (uint32_t)acc_any(2, 4);
    acc.by_rate = world_choice(w, F_BOUND) == 1;
    acc.queues = world_choice(w, F_QUEUES) == 1;
    acc.waits = world_choice(w, F_PROGRAM) == 9;
    acc.queues = acc.queues || acc.waits;
    acc.settings = world_choice(w, F_PROGRAM) == 6 || (acc.waits && acc_chance(500));
    acc.tags_unsure = acc.queues;
    acc.slop = 1;
    acc_told_id = ACC_NONE;
#if !WORLD_V02
    acc_judge_ranges();
#endif
    if (!acc_begin())
        return;
    for (i = acc_chance(500) ? acc.classes / 2 + 1 : 2 * acc.classes; i > 0 && !w->broken && !acc.ends; i--)
        acc_reserve(false);
    for (acc.step = 1; acc.step <= steps && !w->broken && !acc.ends; acc.step++)
        acc_one_step();
}

#endif
