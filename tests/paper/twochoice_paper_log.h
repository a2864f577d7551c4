/* twochoice_paper_log.h - the paper's own redirect table (Section V-B): a list of entries in the order of their times,
 * searched backwards; optionally with the Min/Max pair. It shares nothing with twochoice.h. Tests use it to show what
 * the paper's table answers.
 */
#ifndef QOS_TESTS_TWOCHOICE_PAPER_LOG_H
#define QOS_TESTS_TWOCHOICE_PAPER_LOG_H

#include "check.h"

#define PAPER_LOCAL UINT32_MAX
#define PAPER_MOST 4096

struct paper_entry {
    uint64_t from, to, time; /* [from, to) */
    uint32_t target;
};

struct paper_log {
    struct paper_entry entry[PAPER_MOST]; /* oldest first; entry 0: all bytes are local */
    size_t n;
    uint64_t now, min, max;
    bool use_min_max;
};

static CHECK_UNUSED void paper_init(struct paper_log *l, bool use_min_max)
{
    memset(l, 0, sizeof *l);
    l->entry[0].to = UINT64_MAX;
    l->entry[0].target = PAPER_LOCAL;
    l->n = 1;
    l->min = UINT64_MAX;
    l->use_min_max = use_min_max;
}

/* Inserts by time; drops older entries inside its range. */
static CHECK_UNUSED void paper_insert(struct paper_log *l, uint64_t from, uint64_t to, uint32_t target, uint64_t time)
{
    struct paper_entry e = {from, to, time, target};
    size_t i, kept = 1;
    for (i = 1; i < l->n; i++) {
        bool older = l->entry[i].time < time;
        if (older && l->entry[i].from >= from && l->entry[i].to <= to)
            continue;
        l->entry[kept++] = l->entry[i];
    }
    l->n = kept;
    for (i = l->n++; i > 1 && l->entry[i - 1].time >= time; i--)
        l->entry[i] = l->entry[i - 1];
    l->entry[i] = e;
}

static CHECK_UNUSED void paper_create(struct paper_log *l, uint64_t from, uint64_t to, uint32_t target)
{
    if (from < l->min)
        l->min = from;
    if (to > l->max)
        l->max = to;
    paper_insert(l, from, to, target, ++l->now * 2);
}

/* `started`: the time at which the maintainer began to pull (Section V-C). */
static CHECK_UNUSED void paper_delete(struct paper_log *l, uint64_t from, uint64_t to, uint64_t started)
{
    if (from <= l->min)
        l->min = to;
    paper_insert(l, from, to, PAPER_LOCAL, started * 2 + 1);
}

/* Where one byte is. */
static CHECK_UNUSED uint32_t paper_query(const struct paper_log *l, uint64_t at)
{
    size_t i;
    if (l->use_min_max && (at < l->min || at >= l->max))
        return PAPER_LOCAL;
    for (i = l->n; i-- > 0;)
        if (l->entry[i].from <= at && at < l->entry[i].to)
            return l->entry[i].target;
    return PAPER_LOCAL;
}

#endif
