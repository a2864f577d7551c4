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
};

struct oracle {
    struct oracle_node node[ORACLE_NODES];
    int resources;
    uint64_t now;
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

static bool oracle_has(const struct oracle_bucket *b, int64_t tokens)
{
    int64_t need = tokens * 1000000000;
    if (need > b->depth)
        need = b->depth;
    return b->level >= need;
}

static bool oracle_limit_ok(const struct oracle *o, int i, const uint64_t *n)
{
    int r;
    for (r = 0; r < o->resources; r++)
        if (n[r] && o->node[i].limit[r].on && !oracle_has(&o->node[i].limit[r], (int64_t)n[r]))
            return false;
    return true;
}

static bool oracle_rate_ok(const struct oracle *o, int i, const uint64_t *n)
{
    int r;
    for (r = 0; r < o->resources; r++)
        if (n[r] && !(o->node[i].rate[r].on && oracle_has(&o->node[i].rate[r], (int64_t)n[r])))
            return false;
    return true;
}

/* The payer for n tokens of class i: itself, its nearest ancestor that can pay, or ORACLE_NONE. */
static int oracle_payer(const struct oracle *o, int i, const uint64_t *n)
{
    while (i != ORACLE_NONE) {
        if (!oracle_limit_ok(o, i, n))
            return ORACLE_NONE;
        if (oracle_rate_ok(o, i, n))
            return i;
        i = o->node[i].parent;
    }
    return ORACLE_NONE;
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
    uint64_t low = o->now, high = o->now + horizon;
    struct oracle later = *o;
    if (oracle_payer(o, i, n) != ORACLE_NONE)
        return o->now;
    oracle_advance(&later, high);
    if (oracle_payer(&later, i, n) == ORACLE_NONE)
        return UINT64_MAX;
    while (high - low > 1) { /* cannot go at low; can go at high */
        uint64_t middle = low + (high - low) / 2;
        later = *o;
        oracle_advance(&later, middle);
        if (oracle_payer(&later, i, n) == ORACLE_NONE)
            low = middle;
        else
            high = middle;
    }
    return high;
}

#endif
