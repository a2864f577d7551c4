/* twochoice_calls.h - a write to the redirect table in one call, for a server that has the data at once; and the
 * table's counts. Shared by the tests of twochoice.h. */
#ifndef QOS_TESTS_TWOCHOICE_CALLS_H
#define QOS_TESTS_TWOCHOICE_CALLS_H

#include "twochoice.h"
#include "examples/common/twochoice_check.h"
#include <stdlib.h>

/* Ends a write (pull: a pull) and forgets what it replaced, however much that is. */
static __attribute__((unused)) enum qos_status end_whole(struct twochoice_table *table, bool pull, uint64_t id)
{
    struct twochoice_piece few[8], *replaced = few;
    enum qos_status st;
    size_t max = 8, n;
    for (;;) {
        st = pull ? twochoice_table_pull_finish(table, (uint32_t)id, replaced, max, &n)
                  : twochoice_table_write_end(table, id, replaced, max, &n);
        if (replaced != few)
            free(replaced);
        if (st != QOS_EAGAIN)
            return st;
        max *= 8;
        replaced = (struct twochoice_piece *)malloc(max * sizeof *replaced);
        if (!replaced)
            abort();
    }
}

/* Records a write whose data is already there. A write at home: target TWOCHOICE_LOCAL. */
static __attribute__((unused)) enum qos_status redirect(struct twochoice_table *table, uint64_t object, uint64_t offset,
                                                        uint64_t len, uint32_t target)
{
    enum qos_status st, cancelled;
    uint64_t stamp = 0;
    st = twochoice_table_write_begin(table, object, target, offset, len, &stamp);
    if (st != QOS_OK)
        return st;
    st = end_whole(table, false, stamp);
    if (st != QOS_OK) {
        cancelled = twochoice_table_write_cancel(table, stamp);
        if (cancelled != QOS_OK)
            return cancelled;
    }
    return st;
}

/* Begins a pull of the first redirected bytes at or behind (object, offset). */
static __attribute__((unused)) enum qos_status start_pull_behind(struct twochoice_table *table, uint64_t object,
                                                                 uint64_t offset, uint64_t max_bytes, uint32_t *pull,
                                                                 struct twochoice_piece *piece)
{
    if (!twochoice_table_next(table, object, offset, piece))
        return QOS_ENOENT;
    return twochoice_table_pull_start(table, piece->object, piece->offset, max_bytes, pull, piece);
}

/* Ends a pull whose data has arrived at home. */
static __attribute__((unused)) enum qos_status finish_pull(struct twochoice_table *table, uint32_t pull)
{
    return end_whole(table, true, pull);
}

static __attribute__((unused)) struct twochoice_table_state counts_of(const struct twochoice_table *table)
{
    struct twochoice_table_state c;
    (void)twochoice_table_info(table, &c);
    return c;
}

#endif
