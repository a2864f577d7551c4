#include "clocks.h"

void world_clock_init(struct world_clock *c, const struct world_clock_config *config, uint64_t base_ns, uint64_t seed,
                      uint64_t number)
{
    memset(c, 0, sizeof *c);
    c->config = *config;
    if (c->config.calls == 0)
        c->config.calls = 64;
    if (c->config.by_ns == 0)
        c->config.by_ns = 1;
    c->base_ns = base_ns;
    world_rng_init(&c->rng, seed, 0xc10c0000 + number);
}

/* The drift is counted in whole ns of each 1,000,000, and the rest of them in proportion. */
static uint64_t drifted(const struct world_clock *c, uint64_t now_ns)
{
    int64_t ppm = c->config.drift_ppm, most = (int64_t)(now_ns / 1000000) * ppm;
    return c->base_ns + (uint64_t)((int64_t)now_ns + most + (int64_t)(now_ns % 1000000) * ppm / 1000000);
}

uint64_t world_clock_read(struct world_clock *c, uint64_t now_ns)
{
    uint64_t t = drifted(c, now_ns), by;
    switch (c->config.fault) {
    case WORLD_CLOCK_TRUE: break;
    case WORLD_CLOCK_CACHED:
        if (c->left > 0) {
            c->left--;
            return c->shown_ns;
        }
        c->left = c->config.calls - 1;
        break;
    case WORLD_CLOCK_BACK:
        if (world_rand(&c->rng) % c->config.calls == 0)
            t = t > c->config.by_ns ? t - c->config.by_ns : 0;
        break;
    case WORLD_CLOCK_JUMP:
        if (!c->jumped && now_ns >= c->config.at_ns) {
            c->jumped = true;
            t += c->config.by_ns;
        }
        break;
    case WORLD_CLOCK_STALL:
        if (world_rand(&c->rng) % c->config.calls == 0) {
            by = world_between(&c->rng, 0, c->config.by_ns);
            t = t > by ? t - by : 0;
        }
        break;
    case WORLD_CLOCK_LEAPS:
        c->jumped = !c->jumped && world_rand(&c->rng) % c->config.calls == 0;
        if (c->jumped)
            t += ++c->leaps * c->config.by_ns;
        break;
    }
    return c->shown_ns = t;
}

uint64_t world_clock_when(const struct world_clock *c, uint64_t shown_ns)
{
    uint64_t t;
    if (shown_ns == WORLD_NEVER)
        return WORLD_NEVER;
    if (shown_ns <= c->base_ns)
        return 0;
    t = shown_ns - c->base_ns;
    if (c->config.drift_ppm)
        t = (uint64_t)((double)t / (1 + c->config.drift_ppm / 1e6));
    while (drifted(c, t) < shown_ns)
        t++;
    while (t > 0 && drifted(c, t - 1) >= shown_ns)
        t--;
    return t;
}
