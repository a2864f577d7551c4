// proves: the rule of twochoice.h in simulated clusters (examples/simulate/placement.h): its p99 beside oracles that know all
// proves: speeds and queues, within what placement_cases.h asks of each case, within 5 % of the better form of Prequal, never
// proves: worse than random. Bursts, light and steady load, 2 to many servers, hangs, new rates, stale answers, liars
// flags: -Iexamples/simulate -ffp-contract=off
// links: examples/world/devices.c examples/world/clients.c examples/world/networks.c -lm
// variants: native
// scale: 3
// coverage: report
//
// One seed of each case; QOS_TEST_LONG=1: three seeds, and 10,000 servers. At a scale: shorter steady runs.
#include "check.h"
#include "placement_cases.h"

/* One client, one request. */
static bool first(const struct place_config *c)
{
    return c->clients == 1 && c->rounds == 1;
}

/* After a change of rates. */
static double recovers_ms, first_p99, calm_p99;

static double p99(const struct place_config *c, enum place_rule rule, uint32_t seeds)
{
    const double part = c->stale_ms > 0 ? 0.995 : 0.99; /* near 1 request in 100 is a first one, and knows no server */
    struct place_result r;
    const bool worst = c->clients == 1 && c->gap_ms > 0 && c->rounds > 1; /* 1 request in 128 is curious */
    double ms;
    if (first(c)) /* one request a seed */
        seeds = 100;
    else if (worst)
        seeds = check_state.scale > 2 ? 8 : 16;
    place_pooled(c, rule, 7 * check_seed(), seeds, &r);
    CHECK(r.requests > 0);
    ms = worst ? r.worst_p99 : place_quantile(r.ms, r.requests, part);
    if (c->change_ms > 0 && rule == PLACE_INFORMED) {
        recovers_ms = place_recovers_ms(c, &r, &calm_p99);
        first_p99 = place_slot_p99(&r, 0);
    }
    place_free(&r);
    return ms;
}

int main(void)
{
    bool all = check_env("QOS_TEST_LONG", 0) != 0;
    uint32_t seeds = all ? 3 : 1;
    size_t i;
    check_begin("twochoice_burst");
    printf("p99 in ms; times that of: the oracle, an oracle of the same 2k servers, Prequal's better form, random. In\n"
           "brackets: at most so much is asked; 0: nothing. Prequal and random are not run beside liars.\n");
    for (i = 0; i < PLACE_CASE_COUNT; i++) {
        struct place_config c = place_cases[i];
        const uint64_t failed = check_state.failures; /* before this case */
        double ours, same, oracle = 0, prequal = 1e18, pool = 1e18, random = 1e18;
        if (!check_case(c.name) || (!all && c.servers > 1000))
            continue;
        if (c.gap_ms <= 0) /* steady */
            c.rounds = (uint32_t)qos_max(check_scaled(c.rounds), qos_min(c.rounds, 40));
        ours = p99(&c, PLACE_INFORMED, seeds);
        same = p99(&c, PLACE_SAME, seeds);
        if (place_has(&c, PLACE_ORACLE))
            oracle = p99(&c, PLACE_ORACLE, seeds);
        if (c.liars == 0) {
            prequal = p99(&c, PLACE_PREQUAL, seeds);
            pool = p99(&c, PLACE_POOL, seeds);
            random = p99(&c, PLACE_RANDOM, seeds);
        }
        prequal = prequal < pool ? prequal : pool;
        CHECK_CONTEXT("case %s", c.name);
        if (c.asked > 0)
            CHECK_WITHIN(ours / oracle, 0, c.asked);
        if (c.asked_same > 0)
            CHECK_WITHIN(ours / same, 0, c.asked_same);
        if (c.change_ms > 0)
            CHECK_WITHIN(recovers_ms, 0, 100);
        CHECK_WITHIN(ours / prequal, 0, 1.05);
        CHECK_WITHIN(ours / random, 0, 1);
        printf("%-25s %7.2f %6.2f (%.2f) %6.2f (%.2f) %6.2f (1.05) %6.2f (1.00) %s\n", c.name, ours,
               oracle > 0 ? ours / oracle : 0, c.asked, ours / same, c.asked_same, ours / prequal, ours / random,
               check_state.failures == failed ? "held" : "MISSED");
        if (c.change_ms > 0)
            printf("    rates change every %.0f ms: p99 %.2f ms of who begins in the first %.0f, %.2f of who begins "
                   "long after; "
                   "the time to recover is %.0f ms\n",
                   c.change_ms, first_p99, c.change_ms / PLACE_SLOTS, calm_p99, recovers_ms);
    }
    return check_end();
}
