/* draw.h - random draws for workloads: even, and by Zipf's law. The caller passes the random bits, 64 for a draw. C
 * and C++; needs libm only. */
#ifndef EXAMPLES_COMMON_DRAW_H
#define EXAMPLES_COMMON_DRAW_H

#include <math.h>
#include <stdint.h>

/* Even in [0, 1), in steps of 2^-53. */
static inline double draw_unit(uint64_t bits)
{
    return (double)(bits >> 11) / 9007199254740992.0;
}

/* Zipf's law with exponent s over n items: item i has weight (i + 1)^-s. */
static inline double draw_zipf_weight(uint64_t i, double s)
{
    return pow((double)i + 1, -s);
}

/* sum[i] is the weight of the first i items; n + 1 places. */
static inline void draw_zipf_sums(double *sum, uint64_t n, double s)
{
    uint64_t i;
    sum[0] = 0;
    for (i = 0; i < n; i++)
        sum[i + 1] = sum[i] + draw_zipf_weight(i, s);
}

/* One of the n items, with a probability in proportion to its weight. O(log n). */
static inline uint64_t draw_zipf(const double *sum, uint64_t n, uint64_t bits)
{
    double x = draw_unit(bits) * sum[n];
    uint64_t low = 0, high = n - 1;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (sum[mid + 1] > x)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Parts of a whole, as in Figures 3(a) and 10(a) of the pShift paper: draws n items; each part is an item's weight
 * divided by the sum of all n weights. sum: n + 1 places of scratch memory. */
static inline void draw_zipf_parts(double *part, double *sum, uint32_t n, double s, uint64_t (*bits)(void *),
                                   void *from)
{
    double all = 0;
    uint32_t i;
    draw_zipf_sums(sum, n, s);
    for (i = 0; i < n; i++)
        all += part[i] = draw_zipf_weight(draw_zipf(sum, n, bits(from)), s);
    for (i = 0; i < n; i++)
        part[i] /= all;
}

#endif
