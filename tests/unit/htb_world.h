/* htb_world.h - shared by the unit tests of htb.h: a tree in memory with red zones, and a copy of it to compare. */
#ifndef QOS_TESTS_HTB_WORLD_H
#define QOS_TESTS_HTB_WORLD_H

#include "htb.h"
#include "check.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

struct world {
    struct htb tree;
    struct check_mem memory;
    size_t size;
    struct htb picture_tree;
    unsigned char *picture;
};

/* 8 ids, 1,000,000 tokens/s, no minimum for best effort, buckets of exactly 10 ms, HTB_BY_RATE. */
static CHECK_UNUSED struct htb_config world_config(void)
{
    struct htb_config c;
    memset(&c, 0, sizeof c);
    c.classes = 8;
    c.rate_per_s[0] = 1000000;
    c.request_max_tokens = QOS_NOTHING;
    c.bound = HTB_BY_RATE;
    return c;
}

static CHECK_UNUSED void world_open(struct world *w, const struct htb_config *c)
{
    memset(&w->tree, 0x5a, sizeof w->tree);
    w->size = htb_memsize(c);
    CHECK(w->size != 0);
    check_mem_new(&w->memory, w->size, 64, 0);
    CHECK_EQ(htb_init(&w->tree, w->memory.mem, w->size, c), QOS_OK);
    w->picture = (unsigned char *)malloc(w->size);
    if (!w->picture)
        exit(1);
}

static CHECK_UNUSED void world_close(struct world *w)
{
    CHECK(check_mem_free(&w->memory));
    free(w->picture);
}

static CHECK_UNUSED void world_draw(struct world *w)
{
    memcpy(&w->picture_tree, &w->tree, sizeof w->tree);
    memcpy(w->picture, w->memory.mem, w->size);
}

/* Handle and memory are unchanged, byte for byte. */
static CHECK_UNUSED bool world_same(const struct world *w)
{
    return memcmp(&w->picture_tree, &w->tree, sizeof w->tree) == 0 && memcmp(w->picture, w->memory.mem, w->size) == 0;
}

static CHECK_UNUSED struct htb_class class_of(uint32_t parent, uint64_t rate_per_s, uint64_t limit_per_s)
{
    struct htb_class c;
    memset(&c, 0, sizeof c);
    c.parent = parent;
    c.rate_per_s[0] = rate_per_s;
    c.limit_per_s[0] = limit_per_s;
    return c;
}

static CHECK_UNUSED void reserve(struct world *w, uint32_t id, uint32_t parent, uint64_t rate_per_s, uint64_t limit,
                                 uint64_t now_ns)
{
    struct htb_class c = class_of(parent, rate_per_s, limit);
    CHECK_EQ(htb_reserve(&w->tree, now_ns, id, &c, NULL), QOS_OK);
}

static CHECK_UNUSED void reserve_group(struct world *w, uint32_t id, uint32_t parent, uint64_t rate_per_s,
                                       uint64_t limit, uint64_t now_ns)
{
    struct htb_class c = class_of(parent, rate_per_s, limit);
    c.group = true;
    CHECK_EQ(htb_reserve(&w->tree, now_ns, id, &c, NULL), QOS_OK);
}

static CHECK_UNUSED struct qos_stats stats_of(const struct world *w, uint32_t id)
{
    struct qos_stats s;
    (void)htb_stats(&w->tree, id, &s);
    return s;
}

static CHECK_UNUSED struct htb_state info_of(const struct htb *tree)
{
    struct htb_state r;
    (void)htb_info(tree, &r);
    return r;
}

static CHECK_UNUSED uint64_t root_rate(const struct htb *tree)
{
    return info_of(tree).rate_per_s[0];
}

/* The terms of id. */
static CHECK_UNUSED enum qos_status terms_of(const struct world *w, uint32_t id, struct htb_class *terms)
{
    struct htb_class_state r;
    enum qos_status status = htb_class_info(&w->tree, id, &r);
    if (status == QOS_OK)
        *terms = r.terms;
    return status;
}

static CHECK_UNUSED enum qos_status force(struct world *w, uint32_t id, uint64_t n, uint64_t n_second, uint64_t now_ns)
{
    uint64_t all[HTB_RESOURCES_MAX] = {0, 0, 0, 0};
    all[0] = n;
    all[1] = n_second;
    return htb_force(&w->tree, now_ns, id, all);
}

/* Takes n tokens repeatedly at `now`; returns the sum. */
static CHECK_UNUSED uint64_t drain(struct world *w, uint32_t id, uint64_t n, uint64_t now_ns)
{
    uint64_t taken = 0;
    while (htb_take(&w->tree, now_ns, id, n) == QOS_OK)
        taken += n;
    return taken;
}

#endif
