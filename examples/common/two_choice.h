/* two_choice.h - how the two-choice paper (Dai and others, SC 2014) draws and chooses servers, as a short reference:
 * simulate and twochoice_mpi show the rule of twochoice.h beside it. */
#ifndef EXAMPLES_COMMON_TWO_CHOICE_H
#define EXAMPLES_COMMON_TWO_CHOICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include "qos.h"

struct two_choice_probe {
    uint32_t server, chosen; /* chosen: how many writes go there */
    uint64_t load;           /* UINT64_MAX: it takes none, or did not answer */
};

/* Draws up to `count` different servers of order[0..servers), which is any permutation of all; those that are out are
 * left aside. Returns how many it found. */
static inline uint32_t two_choice_draw(struct qos_rng *rng, uint32_t *order, uint32_t servers, const bool *out,
                                       uint32_t count, struct two_choice_probe *probe)
{
    uint32_t i, n = 0;
    for (i = 0; i < servers && n < count; i++) {
        uint32_t j = i + (uint32_t)qos_rng_below(rng, servers - i), s = order[j];
        order[j] = order[i];
        order[i] = s;
        if (out && out[s])
            continue;
        probe[n].server = s;
        probe[n].chosen = 0;
        probe[n++].load = 0;
    }
    return n;
}

static inline int two_choice_compare(const void *a, const void *b)
{
    const struct two_choice_probe *x = (const struct two_choice_probe *)a, *y = (const struct two_choice_probe *)b;
    return x->load != y->load ? (x->load > y->load) - (x->load < y->load) : 0;
}

/* Collaborative probe (Section III-B): one write for each of the k least loaded of n, in turn if n < k. Sorts the
 * probes; target[i] is UINT32_MAX if none takes a write. */
static inline void two_choice_keep(struct two_choice_probe *probe, uint32_t n, uint32_t k, uint32_t *target)
{
    uint32_t i, usable = 0;
    qsort(probe, n, sizeof *probe, two_choice_compare);
    while (usable < n && usable < k && probe[usable].load != UINT64_MAX)
        usable++;
    for (i = 0; i < k; i++) {
        target[i] = usable ? probe[i % usable].server : UINT32_MAX;
        if (usable)
            probe[i % usable].chosen++;
    }
}

#endif
