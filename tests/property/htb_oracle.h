/* htb_oracle.h - hierarchical token buckets by definition: each step refills every bucket, each query scans all of
 * them, bisection finds times. Levels are exact rationals over 10^9; rates and times are small enough for 64 bits.
 * Shares no code with the headers. */
#ifndef HTB_ORACLE_H
#define HTB_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ORACLE_NODES 40
#define ORACLE_RESOURCES 2
#define ORACLE_NONE (-1)

struct oracle_bucket {
    bool on;        /* has a rate, or a limit */
    int64_t level;  /* tokens * 10^9 */
    int64_t depth;  /* tokens * 10^9 */
    int64_t per_ns; /* tokens per second = 10^-9 tokens per ns */
};

struct oracle_node {
    bool used, group;
    int parent; /* ORACLE_NONE above the root */
    struct oracle_bucket rate[ORACLE_RESOURCES], limit[ORACLE_RESOURCES];
    int64_t weight;     /* 1, 2, 4 or 8: sums of eighths are exact */
    int64_t tag, clock; /* in eighths: where it starts in its parent's ring; a group: the tag served last in its own */
};

/* What a class that was refused needs, up to the node `reach`. */
struct oracle_claim {
    bool on;
    uint64_t n[ORACLE_RESOURCES], until;
    int reach;
};

struct oracle {
    struct oracle_node node[ORACLE_NODES];
    struct oracle_claim claim[ORACLE_NODES]; /* of each class */
    int resources;
    uint64_t now, burst_ns;
};

static void oracle_fill(struct oracle_bucket *b, uint64_t ns)
{
    int64_t room = b->depth - b->level;
    if (b->on && ns > 0)
        b->level = (int64_t)ns > room / b->per_ns ? b->depth : b->level + b->per_ns * (int64_t)ns;
    if (b->on && b->level > b->depth)
        b->level = b->depth;
}

static void oracle_advance(struct oracle *o, uint64_t now)
{
    int i, r;
    if (now <= o->now)
        return;
    for (i = 0; i < ORACLE_NODES; i++)
        for (r = 0; r < o->resources; r++) {
            oracle_fill(&o->node[i].rate[r], now - o->now);
            oracle_fill(&o->node[i].limit[r], now - o->now);
        }
    o->now = now;
}

static int64_t oracle_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Level after ns more, if nothing is charged. */
static int64_t oracle_level(const struct oracle_bucket *b, uint64_t ns)
{
    struct oracle_bucket later = *b;
    oracle_fill(&later, ns);
    return later.level;
}

/* The child of `above` on the way from i to the root; ORACLE_NONE: i is not below it. */
static int oracle_child(const struct oracle *o, int above, int i)
{
    while (i != ORACLE_NONE && o->node[i].parent != above)
        i = o->node[i].parent;
    return i;
}

static int64_t oracle_tag(const struct oracle *o, int i)
{
    int64_t clock = o->node[o->node[i].parent].clock;
    return o->node[i].tag > clock ? o->node[i].tag : clock;
}

/* Does class a go before class b? Their tags are compared in the one ring that both are below, by different children. */
static bool oracle_before(const struct oracle *o, int a, int b)
{
    int g;
    for (g = 0; g < ORACLE_NODES; g++) {
        int at_a = oracle_child(o, g, a), at_b = oracle_child(o, g, b);
        if (at_a != ORACLE_NONE && at_b != ORACLE_NONE && at_a != at_b)
            return oracle_tag(o, at_a) != oracle_tag(o, at_b) ? oracle_tag(o, at_a) < oracle_tag(o, at_b) : at_a < at_b;
    }
    return false;
}

/* Does the claim of class c, ns from now, need what node i has? */
static bool oracle_claims(const struct oracle *o, int c, int i, uint64_t ns)
{
    const struct oracle_claim *claim = &o->claim[c];
    return claim->on && o->now + ns < claim->until && oracle_child(o, i, c) != ORACLE_NONE &&
           (claim->reach == i || oracle_child(o, claim->reach, i) != ORACLE_NONE);
}

/* Has bucket b of node i, ns from now, n[r] for class `id`, and beside it what the claims need that go before? Full is
 * enough, unless one of these needs all that it holds, and no limit blocks it. */
static bool oracle_has(const struct oracle *o, int i, const struct oracle_bucket *b, int r, int id, const uint64_t *n,
                       uint64_t ns)
{
    int64_t need = oracle_least((int64_t)n[r] * 1000000000, b->depth);
    int c;
    for (c = 0; c < ORACLE_NODES; c++)
        if (o->claim[c].on && c != id && oracle_claims(o, c, i, ns) && oracle_before(o, c, id)) {
            const int64_t needs = (int64_t)o->claim[c].n[r] * 1000000000;
            if (o->resources == 1 && needs != 0 && needs >= b->depth &&
                o->node[o->claim[c].reach].parent == ORACLE_NONE)
                return false;
            need += oracle_least(needs, b->depth);
        }
    return oracle_level(b, ns) >= oracle_least(need, b->depth);
}

static bool oracle_limit_ok(const struct oracle *o, int i, int id, const uint64_t *n, uint64_t ns)
{
    int r;
    for (r = 0; r < o->resources; r++)
        if (n[r] && o->node[i].limit[r].on && !oracle_has(o, i, &o->node[i].limit[r], r, id, n, ns))
            return false;
    return true;
}

static bool oracle_rate_ok(const struct oracle *o, int i, int id, const uint64_t *n, uint64_t ns)
{
    int r;
    for (r = 0; r < o->resources; r++)
        if (n[r] && !(o->node[i].rate[r].on && oracle_has(o, i, &o->node[i].rate[r], r, id, n, ns)))
            return false;
    return true;
}

/* The payer for n tokens of class id, ns from now: itself, its nearest ancestor that can pay, or ORACLE_NONE. */
static int oracle_payer_after(const struct oracle *o, int id, const uint64_t *n, uint64_t ns)
{
    int i;
    for (i = id; i != ORACLE_NONE; i = o->node[i].parent) {
        if (!oracle_limit_ok(o, i, id, n, ns))
            return ORACLE_NONE;
        if (oracle_rate_ok(o, i, id, n, ns))
            return i;
    }
    return ORACLE_NONE;
}

static int oracle_payer(const struct oracle *o, int id, const uint64_t *n)
{
    return oracle_payer_after(o, id, n, 0);
}

static void oracle_charge(struct oracle *o, int i, int payer, const uint64_t *n)
{
    bool pays = false;
    int r;
    for (; i != ORACLE_NONE; i = o->node[i].parent) {
        pays = pays || i == payer;
        for (r = 0; r < o->resources; r++) {
            if (pays && o->node[i].rate[r].on)
                o->node[i].rate[r].level -= (int64_t)n[r] * 1000000000;
            if (o->node[i].limit[r].on)
                o->node[i].limit[r].level -= (int64_t)n[r] * 1000000000;
        }
    }
}

/* First time from now on at which n tokens of class i can go; UINT64_MAX if not within `horizon` ns. A request that
 * can go can also go later, so bisection works. */
static uint64_t oracle_next(const struct oracle *o, int i, const uint64_t *n, uint64_t horizon)
{
    uint64_t low = 0, high = 1000;
    if (oracle_payer(o, i, n) != ORACLE_NONE)
        return o->now;
    while (oracle_payer_after(o, i, n, high) == ORACLE_NONE) {
        low = high;
        high *= 4;
        if (low > horizon)
            return UINT64_MAX;
    }
    while (high - low > 1) { /* cannot go at low; can go at high */
        uint64_t middle = low + (high - low) / 2;
        if (oracle_payer_after(o, i, n, middle) == ORACLE_NONE)
            low = middle;
        else
            high = middle;
    }
    return high > horizon ? UINT64_MAX : o->now + high;
}

/* Class id was refused n. Until its own limit blocks it, or it takes, or burst_ns after the time at which it could, the
 * others leave it what it needs: up to the node whose limit blocks it. */
static inline void oracle_refused(struct oracle *o, int id, const uint64_t *n)
{
    struct oracle_claim *claim = &o->claim[id];
    uint64_t told = oracle_next(o, id, n, UINT64_C(10000000000000000));
    int i, r;
    claim->on = false;
    if (told == UINT64_MAX || !oracle_limit_ok(o, id, id, n, 0))
        return;
    for (i = id; o->node[i].parent != ORACLE_NONE && oracle_limit_ok(o, i, id, n, 0); i = o->node[i].parent)
        ;
    claim->reach = i;
    for (i = id; o->node[i].parent != ORACLE_NONE; i = o->node[i].parent)
        o->node[i].tag = oracle_tag(o, i);
    claim->on = true;
    claim->until = told + o->burst_ns;
    for (r = 0; r < o->resources; r++)
        claim->n[r] = n[r];
}

/* Class id took n, which `payer` lent. While somebody has a claim, the tags move on from it to the lender; the clock of
 * a ring does not pass those who have claims in it. */
static inline void oracle_took(struct oracle *o, int id, int payer, const uint64_t *n)
{
    int64_t cost = 1;
    bool claimed = false;
    int i, c, r, root = id;
    while (o->node[root].parent != ORACLE_NONE)
        root = o->node[root].parent;
    for (r = 0; r < o->resources; r++) {
        int64_t one = o->resources == 1 ? (int64_t)n[r] : (int64_t)n[r] * 1000000000 / o->node[root].rate[r].per_ns;
        cost = one > cost ? one : cost;
    }
    for (c = 0; c < ORACLE_NODES; c++)
        claimed = claimed || (o->claim[c].on && o->now < o->claim[c].until);
    for (i = id; claimed && i != payer; i = o->node[i].parent) {
        int group = o->node[i].parent;
        int64_t first = o->node[i].tag = oracle_tag(o, i);
        for (c = 0; c < ORACLE_NODES; c++)
            if (o->claim[c].on && oracle_claims(o, c, group, 0))
                first = oracle_least(first, oracle_tag(o, oracle_child(o, group, c)));
        if (first > o->node[group].clock)
            o->node[group].clock = first;
        o->node[i].tag += cost * 8 / o->node[i].weight;
    }
    for (r = 0; r < o->resources; r++)
        if (n[r] != 0)
            o->claim[id].on = false;
}

#endif
