/* placement_cases.h - the cases of `simulate placement`, and what is asked of the informed rule in each: a p99 of at most
 * `asked` times the oracle's, or of at most `asked_same` times that of the oracle that draws the same 2k servers. */
#ifndef EXAMPLES_SIMULATE_PLACEMENT_CASES_H
#define EXAMPLES_SIMULATE_PLACEMENT_CASES_H

#include "placement.h"

/* clang-format off */
#define PLACE_CASES(X) \
    /* name                    servers clients k  slow rounds gap  load hang change stale liars warm asked same */ \
    X("burst_equal",              100, 1000,  4, 0,     3, 500,   0,   0,     0,  0,    0, 1,   1.3,  0) \
    X("burst_tenth_slow",         100, 1000,  4, 0.1,   3, 900,   0,   0,     0,  0,    0, 1,   1.3,  0) \
    X("burst_tenth_slow_cold",    100, 1000,  4, 0.1,   1, 900,   0,   0,     0,  0,    0, 0,   1.3,  0) \
    X("burst_50x90",              100,   50, 90, 0.1,   3, 900,   0,   0,     0,  0,    0, 1,   1.3,  0) \
    X("burst_10_servers",          10,  100,  4, 0.1,  11, 900,   0,   0,     0,  0,    0, 1,   1.3,  0) \
    X("near_n_1x95",              100,    1, 95, 0.1,  41, 100,   0,   0,     0,  0,    0, 1,   0,  1.6) \
    X("near_n_1x95_cold",         100,    1, 95, 0.1,   1, 100,   0,   0,     0,  0,    0, 0,   0, 1.55) \
    X("light_100x4",              100,  100,  4, 0.1,  11, 100,   0,   0,     0,  0,    0, 1,   0,  1.6) \
    X("light_100x4_cold",         100,  100,  4, 0.1,   1, 100,   0,   0,     0,  0,    0, 0,   1.6,  0) \
    X("light_20x4",               100,   20,  4, 0.1,  41, 100,   0,   0,     0,  0,    0, 1,   0,  1.6) \
    X("steady_70_k1",             100, 1000,  1, 0,   200,   0, 0.7,   0,     0,  0,    0, 0.2, 3,    0) \
    X("steady_70_k1_tenth_slow",  100, 1000,  1, 0.1, 200,   0, 0.7,   0,     0,  0,    0, 0.2, 3,  1.6) \
    X("steady_90_k1_tenth_slow",  100, 1000,  1, 0.1, 200,   0, 0.9,   0,     0,  0,    0, 0.2, 3,  1.6) \
    X("steady_70_k8_tenth_slow",  100, 1000,  8, 0.1,  40,   0, 0.7,   0,     0,  0,    0, 0.2, 2.2,  0) \
    X("steady_90_k8_tenth_slow",  100, 1000,  8, 0.1,  40,   0, 0.9,   0,     0,  0,    0, 0.2, 2.2,  0) \
    X("steady_70_k8_one_client",  100,    1,  8, 0.1,  40,   0, 0.7,   0,     0,  0,    0, 0.2, 2.2,  0) \
    X("steady_70_k8_hangs",       100, 1000,  8, 0,    80,   0, 0.7, 100,     0,  0,    0, 0.2, 2.2,  0) \
    X("rates_change",             100, 1000,  8, 0.1, 160,   0, 0.7,   0,   200,  0,    0, 0.1, 4,    0) \
    X("stale_answers",            100, 1000,  8, 0.1,  40,   0, 0.7,   0,     0, 20,    0, 0.2, 2.2,  0) \
    X("liars",                    100, 1000,  8, 0,    40,   0, 0.7,   0,     0,  0,    3, 0.2, 0,  1.6) \
    X("burst_10000_servers",    10000,10000, 10, 0.1,   2, 900,   0,   0,     0,  0,    0, 1,   0,  1.3)
/* clang-format on */

#define PLACE_CASE(n, servers, clients, k, slow, rounds, gap, load, hang, change, stale, liars, warm, asked, same)     \
    {n, servers, clients, k, slow, rounds, gap, load, hang, change, stale, liars, warm, asked, same, 0, 0},
static const struct place_config place_cases[] = {PLACE_CASES(PLACE_CASE)};
#define PLACE_CASE_COUNT (sizeof place_cases / sizeof *place_cases)

/* The oracle that looks at all servers for each write is left out where that takes minutes: there the one with the same
 * 2k servers stands in. */
static inline bool place_has(const struct place_config *c, enum place_rule rule)
{
    return rule != PLACE_ORACLE || c->servers <= 1000;
}

#endif
