// proves: the settings of a placement do what their comments say: min_write_bytes, tries, include_home, at their default and at
// proves: other values
#include "check.h"
#include "twochoice.h"

static unsigned char mem[1 << 16] __attribute__((aligned(64)));
static struct twochoice_placement placement;

static void make(uint64_t min_write_bytes, uint32_t tries, bool include_home)
{
    struct twochoice_placement_config config;
    memset(&config, 0, sizeof config);
    config.servers = 100;
    config.max_writes = 2;
    config.policy = TWOCHOICE_COLLABORATIVE;
    config.min_write_bytes = min_write_bytes;
    config.tries = tries;
    config.include_home = include_home;
    config.seed = 5;
    CHECK_EQ(twochoice_placement_init(&placement, mem, sizeof mem, &config), QOS_OK);
}

static size_t probes_for(uint64_t len_bytes)
{
    const struct twochoice_write w = {7, 0, len_bytes};
    struct twochoice_probe probe[8];
    size_t n = 99;
    CHECK_EQ(twochoice_placement_ask(&placement, &w, 1, probe, &n), QOS_OK);
    return n;
}

/* How many rounds replace servers that never answer. */
static uint32_t rounds(void)
{
    const struct twochoice_write w = {7, 0, 1 << 20};
    struct twochoice_probe probe[8];
    size_t n = 0, changed = 1, i;
    uint32_t round = 0;
    CHECK_EQ(twochoice_placement_ask(&placement, &w, 1, probe, &n), QOS_OK);
    while (round < 40) {
        for (i = 0; i < n; i++)
            probe[i].state = TWOCHOICE_DOWN;
        CHECK_EQ(twochoice_placement_redraw(&placement, round, probe, n, &changed), QOS_OK);
        if (changed == 0)
            break;
        CHECK_EQ(changed, n);
        round++;
    }
    return round;
}

int main(void)
{
    uint32_t i, home = 0;
    check_begin("unit/twochoice_settings");
    make(0, 0, false); /* the defaults: 1024 bytes, 2 tries */
    CHECK_EQ(probes_for(1023), 0);
    CHECK_EQ(probes_for(1024), 2);
    CHECK_EQ(rounds(), 2);
    make(50000, 5, false);
    CHECK_EQ(probes_for(49999), 0);
    CHECK_EQ(probes_for(50000), 2);
    CHECK_EQ(rounds(), 5);
    make(QOS_NOTHING, TWOCHOICE_NO_TRIES, false);
    CHECK_EQ(probes_for(1), 2);
    CHECK_EQ(rounds(), 0);
    make(1, 1, true);
    CHECK_EQ(probes_for(1), 2);
    CHECK_EQ(rounds(), 1);
    for (i = 0; i < 50; i++) { /* the home is always one of the two */
        const struct twochoice_write w = {i, 0, 1 << 20};
        struct twochoice_probe probe[8];
        size_t n = 0;
        CHECK_EQ(twochoice_placement_ask(&placement, &w, 1, probe, &n), QOS_OK);
        CHECK_EQ(n, 2);
        home += probe[0].server == i || probe[1].server == i;
    }
    CHECK_EQ(home, 50);
    return check_end();
}
