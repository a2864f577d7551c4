/* htb_random.h - random trees, each built twice: as a struct htb and as an oracle. */
#ifndef HTB_RANDOM_H
#define HTB_RANDOM_H

#include "htb.h"
#include "check.h"
#include "htb_oracle.h"

struct twin {
    struct htb h;
    struct oracle o;
    struct check_mem m;
    struct check_rng rng;
    int root; /* the oracle's index; the tree's classes */
    uint64_t burst_ns, request_max;
    int leaf[ORACLE_NODES], leaves;
};

static int64_t twin_depth(const struct twin *t, uint64_t rate)
{
    return (int64_t)(rate * t->burst_ns + t->request_max * 1000000000);
}

/* Rate 0: none. */
static void twin_set(const struct twin *t, struct oracle_bucket *b, uint64_t rate)
{
    if (rate && !b->on)
        b->level = 0;
    b->on = rate != 0;
    b->per_ns = (int64_t)rate;
    b->depth = rate ? twin_depth(t, rate) : 0;
    if (b->level > b->depth)
        b->level = b->depth;
}

/* Reserves the unused id `id` with random rates below a random group, within the rates of its parents. */
static void twin_reserve(struct twin *t, int id, uint64_t now)
{
    struct htb_class c;
    uint64_t fits[HTB_RESOURCES_MAX] = {0}, ask[ORACLE_RESOURCES];
    int parent = t->root, i, r, tries;
    memset(&c, 0, sizeof c);
    for (tries = 0; tries < 8; tries++) {
        int g = (int)check_between(&t->rng, 1, (uint64_t)t->root);
        if (t->o.node[g].used && t->o.node[g].group && check_between(&t->rng, 0, 2))
            parent = g;
    }
    for (i = 0; t->o.node[parent].parent != ORACLE_NONE && i < 8; i++) /* not too deep */
        if (i == 5)
            parent = t->root;
    c.parent = parent == t->root ? 0 : (uint32_t)parent;
    c.group = check_between(&t->rng, 0, 3) == 0;
    c.weight = 1u << check_between(&t->rng, 0, 3);
    for (r = 0; r < t->o.resources; r++)
        c.rate_per_s[r] = QOS_RATE_MAX; /* far too much: htb_reserve returns what fits */
    CHECK_EQ(htb_reserve(&t->h, now, (uint32_t)id, &c, fits), QOS_EADMISSION);
    for (r = 0; r < t->o.resources; r++) {
        ask[r] = check_between(&t->rng, 0, 3) ? check_between(&t->rng, 0, fits[r]) : 0;
        if (!c.group)
            ask[r] /= 2;
        c.rate_per_s[r] = ask[r];
        c.limit_per_s[r] = check_between(&t->rng, 0, 2) ? 0 : ask[r] + check_between(&t->rng, 1, 400000);
    }
    CHECK_EQ(htb_reserve(&t->h, now, (uint32_t)id, &c, NULL), QOS_OK);
    memset(&t->o.node[id], 0, sizeof t->o.node[id]);
    t->o.node[id].used = true;
    t->o.node[id].group = c.group;
    t->o.node[id].parent = parent;
    t->o.node[id].weight = (int64_t)c.weight;
    for (r = 0; r < t->o.resources; r++) {
        twin_set(t, &t->o.node[id].rate[r], ask[r]);
        twin_set(t, &t->o.node[id].limit[r], c.limit_per_s[r]);
    }
    if (!c.group)
        t->leaf[t->leaves++] = id;
}

/* A tree of up to ORACLE_NODES - 2 nodes at time `start`. `change` may be NULL. */
static void twin_init(struct twin *t, uint64_t stream, int resources, uint64_t start,
                      void (*change)(struct htb_config *))
{
    struct htb_config config;
    int id, r, nodes;
    memset(t, 0, sizeof *t);
    memset(&config, 0, sizeof config);
    check_rng_init(&t->rng, stream);
    t->root = ORACLE_NODES - 1;
    t->o.resources = resources;
    t->o.now = start;
    t->burst_ns = check_between(&t->rng, 1, 50) * 1000000;
    t->o.burst_ns = t->burst_ns;
    t->request_max = check_between(&t->rng, 0, 1) ? check_between(&t->rng, 0, 5000) : 0;
    config.classes = ORACLE_NODES - 1;
    config.resources = (uint32_t)resources;
    config.burst_ns = t->burst_ns;
    config.request_max_tokens = t->request_max ? t->request_max : QOS_NOTHING;
    config.bound = HTB_BY_RATE;
    config.start_ns = start;
    for (r = 0; r < resources; r++) {
        config.rate_per_s[r] = check_between(&t->rng, 1000, 1000000);
        config.best_effort.rate_per_s[r] = check_between(&t->rng, 0, 1) ? 0 : config.rate_per_s[r] / 10 + 1;
    }
    if (change)
        change(&config);
    check_mem_new(&t->m, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(&t->h, t->m.mem, t->m.size, &config), QOS_OK);
    t->o.node[t->root].used = t->o.node[t->root].group = true;
    t->o.node[t->root].parent = ORACLE_NONE;
    t->o.node[0].used = true;
    t->o.node[0].parent = t->root;
    t->o.node[0].weight = 1;
    t->leaf[t->leaves++] = 0;
    for (r = 0; r < resources; r++) {
        twin_set(t, &t->o.node[t->root].rate[r], config.rate_per_s[r]);
        twin_set(t, &t->o.node[0].rate[r], config.best_effort.rate_per_s[r]);
    }
    nodes = (int)check_between(&t->rng, 3, ORACLE_NODES - 3);
    for (id = 1; id < nodes; id++)
        twin_reserve(t, id, start);
}

#endif
