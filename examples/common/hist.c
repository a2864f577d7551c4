// Log-linear latency histogram.
#include "common.h"
#include <string.h>

/* Values below 2 * HIST_STEPS have a step each; a value in [2^e, 2^(e+1)) goes to one of HIST_STEPS equal steps. */
static uint32_t step_of(uint64_t value)
{
    unsigned e;
    if (value < 2 * HIST_STEPS)
        return (uint32_t)value;
    e = 63u - (unsigned)__builtin_clzll(value); /* 7..63 */
    return (e - 5) * HIST_STEPS + (uint32_t)(value >> (e - 6)) - HIST_STEPS;
}

static uint64_t last_of_step(uint32_t step)
{
    unsigned shift;
    if (step < 2 * HIST_STEPS)
        return step;
    shift = step / HIST_STEPS - 1; /* e - 6 */
    return ((uint64_t)(step % HIST_STEPS + HIST_STEPS) << shift) + ((UINT64_C(1) << shift) - 1);
}

void hist_clear(struct hist *h)
{
    memset(h, 0, sizeof *h);
    h->min = UINT64_MAX;
}

void hist_add(struct hist *h, uint64_t value)
{
    h->bucket[step_of(value)]++;
    h->count++;
    h->sum_high += __builtin_add_overflow(h->sum_low, value, &h->sum_low) ? 1 : 0;
    if (value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    uint32_t i;
    for (i = 0; i < HIST_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
    into->count += from->count;
    into->sum_high +=
        from->sum_high + (__builtin_add_overflow(into->sum_low, from->sum_low, &into->sum_low) ? UINT64_C(1) : 0);
    if (from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
}

uint64_t hist_quantile(const struct hist *h, double p)
{
    double rank = p * (double)h->count * (1 - 1e-12); /* 0.171 * 20000 must not become 3420.0000000000005 */
    uint64_t seen = 0;
    uint32_t i;
    if (h->count == 0)
        return 0;
    for (i = 0; i < HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (h->bucket[i] && (double)seen >= rank)
            return last_of_step(i) < h->max ? last_of_step(i) : h->max;
    }
    return h->max;
}

double hist_mean(const struct hist *h)
{
    return h->count ? ((double)h->sum_high * 18446744073709551616.0 + (double)h->sum_low) / (double)h->count : 0;
}
