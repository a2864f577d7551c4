/* twochoice_check.h - is the table's tree sound, and do table, log and data of a home server agree (Section V-C)? Changes
 * nothing: the log is recovered into a table of its own, over a storage that keeps no write. */
#ifndef EXAMPLES_COMMON_TWOCHOICE_CHECK_H
#define EXAMPLES_COMMON_TWOCHOICE_CHECK_H

#include <string.h>
#include "twochoice.h"

/* What is found. table, log: where the bytes are by each of them (TWOCHOICE_LOCAL: no redirect). */
enum check_finding {
    CHECK_TREE_BROKEN = 1,    /* the tree breaks its own rules: see check_tree */
    CHECK_LOG_UNREADABLE = 2, /* damaged; what comes before is compared */
    CHECK_LOG_DIFFERS = 3,    /* table and log name different places */
    CHECK_DATA_MISSING = 4,   /* the target does not have the bytes */
    CHECK_DATA_UNKNOWN = 5    /* no server could tell whether it has */
};
struct check_calls {
    void *ctx;
    /* Does piece->target hold the bytes? > 0 yes, 0 no, < 0 not known. NULL: data are not checked. */
    int (*has_data)(void *ctx, const struct twochoice_piece *piece);
    void (*report)(void *ctx, enum check_finding what, const struct twochoice_piece *table,
                   const struct twochoice_piece *log);
};

/* ---- the tree: the invariants of the header's chapter "table" (order, fill, links, counts) --------------------- */

struct check_walk {
    const struct twochoice_table *table;
    struct twochoice_priv_range last;
    uint32_t fragments, nodes, before; /* before: the last leaf */
};
static inline bool check_at_most(uint64_t object, uint64_t offset, const struct twochoice_priv_range *f)
{
    return object < f->object || (object == f->object && offset <= f->offset);
}
static inline struct twochoice_priv_range check_fragment(const struct twochoice_priv_node *n, uint32_t slot)
{
    const uint32_t *w = n->u.narrow.word + slot;
    struct twochoice_priv_range f = {n->object, 0, 0, 0};
    if (!n->narrow)
        return n->u.wide.entry[slot];
    f.offset = qos_sat_add(n->u.narrow.base, w[0]);
    f.end = qos_sat_add(f.offset, n->narrow == TWOCHOICE_EVEN_SLOTS ? n->u.narrow.len : w[2 * TWOCHOICE_NARROW_SLOTS]);
    f.tag = qos_sat_mul(qos_sat_add(n->u.narrow.version, w[n->narrow]), 65536) | n->u.narrow.target[slot];
    return f;
}

/* 0: it is in none of the forms. */
static inline uint32_t check_slots(const struct twochoice_priv_node *n)
{
    const bool narrow = n->narrow == TWOCHOICE_NARROW_SLOTS || n->narrow == TWOCHOICE_EVEN_SLOTS;
    return narrow ? n->narrow : n->narrow ? 0 : TWOCHOICE_WIDE_SLOTS;
}

/* In a slot that is not used. */
static inline bool check_blank(const struct twochoice_priv_node *n, uint32_t slot)
{
    const struct twochoice_priv_range *f = &n->u.wide.entry[n->narrow ? 0 : slot];
    return n->narrow ? n->u.narrow.word[slot] == UINT32_MAX : (f->object & f->offset & f->end & f->tag) == UINT64_MAX;
}

static inline bool check_leaf(struct check_walk *w, const struct twochoice_priv_node *n)
{
    const uint32_t slots = check_slots(n);
    uint32_t i;
    for (i = 0; i < n->count; i++) {
        const struct twochoice_priv_range f = check_fragment(n, i), *l = &w->last;
        if (f.end <= f.offset || f.object < l->object || (f.object == l->object && f.offset < l->end) ||
            f.tag >> 16 > w->table->version || (f.tag & 0xffff) == w->table->home)
            return false;
        w->last = f;
    }
    for (; i < slots; i++)
        if (!check_blank(n, i))
            return false;
    for (i = 16; n->narrow && i <= 80; i += 16)
        if (n->u.narrow.lead[i / 16 - 1] != (i < slots ? n->u.narrow.word[i] : UINT32_MAX))
            return false;
    w->fragments += n->count;
    return true;
}

/* A node that holds at least `least` keys, from (object, offset) on, and all below it. */
static inline bool check_node(struct check_walk *w, uint32_t at, uint32_t level, uint32_t least, uint64_t object,
                              uint64_t offset)
{
    const struct twochoice_table *t = w->table;
    const struct twochoice_priv_node *n = t->node + (at < t->node_count ? at : 0);
    const uint64_t *objects = n->u.inner.object;
    uint64_t offsets[TWOCHOICE_INNER_SLOTS];
    bool narrow = true;
    const uint32_t most = level > 0 ? TWOCHOICE_INNER_SLOTS : check_slots(n);
    uint32_t i;
    if (at >= t->node_count || most == 0 || n->count > most || n->count < least)
        return false;
    w->nodes++;
    if (level == 0) {
        const struct twochoice_priv_range first = check_fragment(n, 0);
        if (n->prev != w->before || (w->before != QOS_NONE && t->node[w->before].next != at) ||
            (n->count && !check_at_most(object, offset, &first)))
            return false;
        w->before = at;
        return check_leaf(w, n);
    }
    for (i = 0; i < 5; i++)
        if (n->u.inner.lead[i] != n->u.inner.offset[8 * i + 8])
            return false;
    for (i = n->count; i < TWOCHOICE_INNER_SLOTS; i++)
        if ((objects[i] & n->u.inner.offset[i]) != UINT64_MAX)
            return false;
    for (i = 0; i < n->count; i++) { /* of a narrow node the object's 16 low bits, then 48 of the offset */
        offsets[i] = n->u.inner.offset[i];
        if (i > 0 && n->narrow && offsets[i] >> 48 != objects[i] % 65536)
            return false;
        if (i > 0 && n->narrow)
            offsets[i] %= UINT64_C(1) << 48;
        narrow = narrow && (i == 0 || (offsets[i] >> 47 == 0 && objects[i] / 65536 == objects[1] / 65536));
    }
    if (objects[0] != object || offsets[0] != offset || n->object != objects[1] || n->narrow != narrow)
        return false;
    least = level == t->height && n->count < 3 ? 1 : level > 1 ? TWOCHOICE_INNER_LEAST : TWOCHOICE_LEAF_LEAST;
    for (i = 0; i < n->count; i++)
        if ((i > 0 && check_at_most(objects[i], offsets[i], &w->last)) ||
            !check_node(w, n->u.inner.child[i], level - 1, least, objects[i], offsets[i]))
            return false;
    return true;
}

static inline bool check_tree(const struct twochoice_table *table)
{
    struct check_walk w = {table, {0, 0, 0, 0}, 0, 0, QOS_NONE};
    return check_node(&w, table->root, table->height, table->height > 0, 0, 0) && w.fragments == table->fragments &&
           table->node[w.before].next == QOS_NONE && w.nodes == table->nodes_used;
}

/* ---- a storage that reads the active log as log 0, and keeps no write ----------------------------------------- */

struct check_source {
    const struct twochoice_storage *storage;
    int active;
};
static inline int check_read(void *ctx, int log, uint64_t offset, void *buf, size_t len_bytes, size_t *got)
{
    const struct check_source *s = (const struct check_source *)ctx;
    return s->storage->read(s->storage->ctx, log == TWOCHOICE_MARK_LOG ? log : s->active, offset, buf, len_bytes, got);
}
static inline int check_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len_bytes)
{
    (void)ctx, (void)log, (void)offset, (void)buf, (void)len_bytes;
    return 0;
}
static inline int check_nothing(void *ctx, int log)
{
    (void)ctx, (void)log;
    return 0;
}

/* ---- the check ------------------------------------------------------------------------------------------------ */

/* The first bytes at or behind (object, offset) that either table redirects, up to where either changes. */
static inline bool check_next(const struct twochoice_table *a, const struct twochoice_table *b, uint64_t object,
                              uint64_t offset, struct twochoice_piece *in_a, struct twochoice_piece *in_b)
{
    struct twochoice_piece x, y;
    const bool has_x = twochoice_table_next(a, object, offset, &x), has_y = twochoice_table_next(b, object, offset, &y);
    if (!has_x && !has_y)
        return false;
    if (!has_x || (has_y && (y.object < x.object || (y.object == x.object && y.offset < x.offset))))
        x = y;
    twochoice_table_find(a, x.object, x.offset, in_a);
    twochoice_table_find(b, x.object, x.offset, in_b);
    in_a->end = in_b->end = qos_min(in_a->end, in_b->end);
    return true;
}

/* config: of the table, with its storage. log, mem: a table for the log, with the memory that it wants; afterwards it
 * holds the log's contents. log NULL: the log is not compared. Returns the number of reports. */
static inline uint64_t check_redirects(const struct check_calls *calls, const struct twochoice_table *table,
                                       const struct twochoice_table_config *config, struct twochoice_table *log,
                                       void *mem)
{
    struct twochoice_piece in_table = {0, 0, 0, 0, TWOCHOICE_LOCAL}, in_log = {0, 0, 0, 0, TWOCHOICE_LOCAL};
    uint64_t found = 0;
    if (!check_tree(table)) {
        calls->report(calls->ctx, CHECK_TREE_BROKEN, &in_table, &in_log);
        return 1; /* the tree cannot be walked */
    }
    if (log) {
        struct twochoice_table_config copy = *config;
        struct check_source source = {config->storage, 0};
        const struct twochoice_storage storage = {&source,     check_nothing, check_read,
                                                  check_write, check_nothing, check_nothing};
        struct twochoice_table_state state;
        struct twochoice_recovery r;
        uint32_t flags = 0;
        (void)twochoice_table_info(table, &state);
        source.active = 1 - (int)state.next_log;
        copy.storage = &storage;
        while (twochoice_table_init(log, mem, twochoice_table_memsize(&copy), &copy) == QOS_OK &&
               twochoice_table_recover(log, flags, &r) != QOS_OK && flags == 0) {
            in_log.offset = r.valid_bytes;
            in_log.end = r.valid_bytes + r.dropped_bytes;
            calls->report(calls->ctx, CHECK_LOG_UNREADABLE, &in_table, &in_log);
            found++;
            flags = TWOCHOICE_ACCEPT_PREFIX;
        }
    }
    while (check_next(table, log ? log : table, in_table.object, in_table.end, &in_table, &in_log)) {
        int has = 1;
        if (in_table.target != in_log.target || in_table.version != in_log.version) {
            calls->report(calls->ctx, CHECK_LOG_DIFFERS, &in_table, &in_log);
            found++;
        }
        if (calls->has_data && in_table.target != TWOCHOICE_LOCAL)
            has = calls->has_data(calls->ctx, &in_table);
        if (has <= 0) {
            calls->report(calls->ctx, has == 0 ? CHECK_DATA_MISSING : CHECK_DATA_UNKNOWN, &in_table, &in_log);
            found++;
        }
    }
    return found;
}

#endif
