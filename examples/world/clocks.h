/* clocks.h - simulated clocks                                                          SPDX-License-Identifier: MIT
 *
 * A process reads its own clock: world_clock_read says what it shows at a true time. Zero is the true time. */
#ifndef QOS_WORLD_CLOCKS_H
#define QOS_WORLD_CLOCKS_H

#include "world.h"

enum world_clock_fault {
    WORLD_CLOCK_TRUE = 0,
    WORLD_CLOCK_CACHED = 1, /* read once, shown for `calls` calls */
    WORLD_CLOCK_BACK = 2,   /* by_ns back in one of `calls` readings */
    WORLD_CLOCK_JUMP = 3,   /* by_ns ahead in one reading, at at_ns; then right again */
    WORLD_CLOCK_STALL = 4,  /* up to by_ns pass between one of `calls` readings and the call */
    WORLD_CLOCK_LEAPS = 5   /* by_ns ahead in one of `calls` readings, then 2 by_ns, ...; right ones between */
};
#define WORLD_CLOCK_FAULTS 6

struct world_clock_config {
    enum world_clock_fault fault;
    int32_t drift_ppm;
    uint32_t calls; /* 0: 64 */
    uint64_t by_ns; /* 0: 1 */
    uint64_t at_ns;
};

struct world_clock {
    struct world_clock_config config;
    struct world_rng rng;
    uint64_t shown_ns, base_ns; /* base_ns: what every reading is shifted by */
    uint32_t left;
    bool jumped;
    uint64_t leaps;
};

void world_clock_init(struct world_clock *c, const struct world_clock_config *config, uint64_t base_ns, uint64_t seed,
                      uint64_t number);
/* What a call at the true time now_ns is given. */
uint64_t world_clock_read(struct world_clock *c, uint64_t now_ns);
/* The first true time at which the clock, without its fault, shows at least shown_ns; WORLD_NEVER stays. */
uint64_t world_clock_when(const struct world_clock *c, uint64_t shown_ns);

#endif
