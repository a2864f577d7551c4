// proves: Algorithm 1 step by step: growth when all tokens were used (within the tolerance), otherwise the mean of the
// proves: last M totals; the floor; the paper's literal rule, stuck as in the paper; under-use alerts; totals clamped
// proves: to the tokens issued
#include "unit/tokenpool_rig.h"

static uint64_t period;

/* Two clients; other fields are set in the configuration. */
static void begin(void)
{
    rig_init();
    rig_join(0, 200, 0);
    rig_join(1, 300, 0);
    period = 0;
    rig_run(&monitor, 0);
}

static void base(uint64_t equal_within, uint64_t capacity_min, uint64_t step, uint32_t history, uint32_t flags)
{
    rig_config(2, 5, 1000, 0);
    config.flags = flags | TOKENPOOL_PAPER;
    config.equal_within = equal_within;
    config.capacity_min = capacity_min;
    config.capacity_step = step;
    config.history = history;
    config.alert_periods = 3;
    begin();
}

/* Runs a period in which all is claimed and the clients complete these amounts; returns the next capacity. */
static uint64_t after(uint64_t a, uint64_t b)
{
    uint64_t epoch = rig_info().epoch;
    storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX; /* count 0: all claimed */
    rig_report(0, epoch, 2, 200, a);
    rig_report(1, epoch, 2, 300, b);
    rig_run(&monitor, period * S + MS);
    rig_run(&monitor, ++period * S);
    CHECK_EQ(rig_info().last_used, a + b);
    return rig_info().capacity;
}

int main(void)
{
    unsigned i;
    check_begin("unit/tokenpool_capacity");

    base(0, 0, 0, 3, 0); /* tolerance 2 x 5, floor 700, eta 20 */
    CHECK_EQ(after(500, 500), 1020);
    CHECK_EQ(after(510, 500), 1040); /* 1010 is 1020 within 10 */
    CHECK_EQ(after(529, 500), 1029); /* 1029 is not: the first record of W */
    CHECK_EQ(after(700, 119), 924);  /* (1029 + 819) / 2 */
    CHECK_EQ(after(500, 200), 849);  /* (1029 + 819 + 700) / 3, rounded down */
    CHECK_EQ(after(400, 300), 739);  /* the first record is gone: (819 + 700 + 700) / 3 */
    CHECK_EQ(after(400, 299), 739);  /* below the floor */
    CHECK_EQ(after(0, 0), 739);
    CHECK_EQ(after(400, 339), 759);

    /* The literal rule: exact equality is impossible once a part of a batch is left; a total above all tokens is no
     * growth. */
    base(QOS_NOTHING, 0, 0, 0, 0);
    CHECK_EQ(after(500, 499), 999);
    CHECK_EQ(after(500, 499), 1019);
    CHECK_EQ(after(300, 399), 1019); /* and below the floor the estimate never changes again */
    for (i = 0; i < 20; i++)
        CHECK_EQ(after(300, 300), 1019);

    base(0, QOS_NOTHING, QOS_NOTHING, 1, 0);
    CHECK_EQ(after(500, 500), 1000);
    CHECK_EQ(after(5, 0), 5);
    CHECK_EQ(after(0, 0), 5); /* 0 is within 10 of 5: equal, no step */
    base(1, QOS_NOTHING, TOKENPOOL_TOKENS_MAX, 1, 0);
    CHECK_EQ(after(500, 500), TOKENPOOL_TOKENS_MAX); /* at most that */

    base(0, 0, 0, 0, TOKENPOOL_FIXED);
    CHECK_EQ(after(0, 0), 1000);

    base(0, 0, 0, 0, 0);
    for (i = 0; i < 3; i++) {
        CHECK(!rig_slot(0).alert && rig_slot(0).under_used == i);
        (void)after(199, 300);
    }
    CHECK(rig_slot(0).alert && rig_slot(0).used == 199);
    CHECK(!rig_slot(1).alert && rig_slot(1).under_used == 0);
    (void)after(200, 300);
    CHECK(!rig_slot(0).alert && rig_slot(0).under_used == 0);

    /* By demand: a client that kept its whole reservation did not reserve too much, even if the node completed less. */
    base(0, 0, 0, 0, 0);
    config.flags = 0;
    begin();
    for (i = 0; i < 5; i++) {
        rig_report(0, rig_info().epoch, 2, 200, 190);
        rig_report(1, rig_info().epoch, 2, 290, 290);
        rig_run(&monitor, ++period * S);
    }
    CHECK(!rig_slot(0).alert && rig_slot(1).alert);
    CHECK_EQ(rig_info().capacity, 1000); /* no client lacked tokens: the totals do not measure the node */

    /* One part in 64 of a reservation may be returned: 100 of 6400. */
    rig_config(2, 5, 10000, 0);
    rig_init();
    rig_join(0, 6400, 0);
    period = 0;
    rig_run(&monitor, 0);
    for (i = 0; i < 2; i++) {
        rig_report(0, rig_info().epoch, 2, 6300 - i, 0);
        rig_run(&monitor, ++period * S);
        CHECK_EQ(rig_slot(0).under_used, i);
    }

    /* All was used and a client waited: the estimate grows, and older records no longer count. */
    base(0, 0, 0, 0, 0);
    config.flags = 0;
    begin();
    for (i = 0; i < 2; i++) {
        uint64_t epoch = rig_info().epoch;
        storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX;
        rig_report(0, epoch, 2, 200, 500);
        rig_report(1, epoch, 2, 300, i == 0 ? 500 : 470);
        /* a request waits; the client has a queue */
        storage[tokenpool_storage_report(2, 0) / 8] |= (i == 0 ? UINT64_C(3) : UINT64_C(2)) << 52;
        rig_run(&monitor, period * S + MS);
        rig_run(&monitor, ++period * S);
        CHECK_EQ(rig_info().capacity, i == 0 ? 1050 : 970);
    }

    /* By demand, too, the estimate is the mean over periods in which the node was the limit. After a fall by a tenth
     * the older records do not count. */
    base(0, 0, 0, 3, 0);
    config.flags = 0;
    begin();
    for (i = 0; i < 4; i++) {
        static const uint64_t first[] = {500, 500, 200, 200}, second[] = {470, 430, 300, 280};
        static const uint64_t next[] = {970, 950, 500, 490};
        uint64_t epoch = rig_info().epoch;
        rig_report(0, epoch, 2, 200, first[i]);
        rig_report(1, epoch, 2, 300, second[i]);
        storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX;
        storage[tokenpool_storage_report(2, 0) / 8] |= UINT64_C(2) << 52; /* the client has a queue */
        rig_run(&monitor, period * S + MS);
        rig_run(&monitor, ++period * S);
        CHECK_EQ(rig_info().capacity, next[i]);
    }

    /* A report above what was issued counts as what was issued. */
    base(0, 0, 0, 0, 0);
    rig_report(0, 1, 3, 200, TOKENPOOL_TOKENS_MAX);
    rig_run(&monitor, S);
    CHECK_EQ(rig_slot(0).used, 200);
    CHECK_EQ(rig_info().last_used, 200); /* the pool was not touched */
    /* A client with a queue that sends slowly while the others pause looks like a slow node: 10 of 1000. When the
     * others are back, the estimate reaches the profile within 6 periods, not 20. Above the profile it grows by steps.
       */
    base(0, 0, 0, 3, 0);
    config.flags = 0;
    begin();
    for (i = 0; i < 10; i++) {
        static const uint64_t next[] = {10, 60, 160, 360, 760, 1000, 1050, 1100, 900, 950};
        uint64_t epoch = rig_info().epoch, all = rig_info().capacity, queue = i == 0 || i == 8 ? 2 : 3;
        uint64_t second = i == 0 ? 0 : i == 8 ? 400 : qos_min(all, 300);
        rig_report(0, epoch, 2, 200, i == 0 ? 10 : i == 8 ? 500 : all - second);
        rig_report(1, epoch, 2, 300, second);
        storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX;
        storage[tokenpool_storage_report(2, 0) / 8] |= queue << 52;
        rig_run(&monitor, period * S + MS);
        rig_run(&monitor, ++period * S);
        CHECK_CONTEXT("after a slow client, period %u", i);
        CHECK_EQ(rig_info().capacity, next[i]);
    }
    return check_end();
}
