// proves: simulated clocks: what each fault shows, call by call, against a count by hand
#include "check.h"
#include "examples/world/clocks.h"

static struct world_clock c;

static void make(enum world_clock_fault fault, int32_t ppm, uint32_t calls, uint64_t by_ns, uint64_t at_ns)
{
    struct world_clock_config config;
    memset(&config, 0, sizeof config);
    config.fault = fault;
    config.drift_ppm = ppm;
    config.calls = calls;
    config.by_ns = by_ns;
    config.at_ns = at_ns;
    world_clock_init(&c, &config, 5000, check_seed(), 1);
}

int main(void)
{
    uint64_t t, back = 0, most = 0;
    check_begin("world/world_clocks");
    make(WORLD_CLOCK_TRUE, 0, 0, 0, 0);
    for (t = 0; t < 100; t++)
        CHECK_EQ(world_clock_read(&c, t * 7), 5000 + t * 7);
    CHECK_EQ(world_clock_when(&c, 5123), 123);
    CHECK_EQ(world_clock_when(&c, 10), 0);
    CHECK_EQ(world_clock_when(&c, WORLD_NEVER), WORLD_NEVER);

    make(WORLD_CLOCK_TRUE, 200, 0, 0, 0);
    CHECK_EQ(world_clock_read(&c, WORLD_NS_PER_S), 5000 + 1000200000);
    make(WORLD_CLOCK_TRUE, -200, 0, 0, 0);
    CHECK_EQ(world_clock_read(&c, WORLD_NS_PER_S), 5000 + 999800000);
    for (t = 1; t < 2000000; t += 7919) { /* never back, and `when` is the first time that shows it */
        uint64_t when = world_clock_when(&c, 5000 + t);
        CHECK_GE(world_clock_read(&c, when), 5000 + t);
        CHECK(world_clock_read(&c, when - 1) < 5000 + t);
    }

    make(WORLD_CLOCK_CACHED, 0, 4, 0, 0);
    for (t = 0; t < 100; t++)
        CHECK_EQ(world_clock_read(&c, t), 5000 + t / 4 * 4);

    make(WORLD_CLOCK_BACK, 0, 10, 3, 0);
    for (t = 10; t < 10010; t++) {
        uint64_t shown = world_clock_read(&c, t);
        CHECK(shown == 5000 + t || shown == 5000 + t - 3);
        back += shown != 5000 + t;
    }
    CHECK_WITHIN(back, 850, 1150);

    make(WORLD_CLOCK_JUMP, 0, 0, 3600 * WORLD_NS_PER_S, 50);
    for (t = 0; t < 100; t++)
        CHECK_EQ(world_clock_read(&c, t), 5000 + t + (t == 50 ? 3600 * WORLD_NS_PER_S : 0));

    make(WORLD_CLOCK_STALL, 0, 5, 1000, 0);
    for (t = 2000, back = 0; t < 12000; t++) {
        uint64_t late = 5000 + t - world_clock_read(&c, t);
        back += late > 0;
        most = late > most ? late : most;
    }
    CHECK_WITHIN(back, 1850, 2150);
    CHECK_WITHIN(most, 990, 1000);

    make(WORLD_CLOCK_LEAPS, 0, 5, 1000, 0);
    for (t = 1, back = 0; t < 10000; t++) {
        uint64_t ahead = world_clock_read(&c, t) - 5000 - t;
        CHECK(ahead == 0 || ahead == 1000 * (back + 1));
        back += ahead > 0;
    }
    CHECK_WITHIN(back, 1500, 1800); /* one of five, and a right one after each: one of six */
    return check_end();
}
