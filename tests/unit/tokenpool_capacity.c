// proves: Algorithm 1 step by step: growth when all was used (within the tolerance), the mean of the last M totals when
// not, the floor, the literal rule stuck where ERRATA says it is, under-use alerts
#include "tokenpool.h"
#include "check.h"

static uint64_t storage[64] __attribute__((aligned(64)));
static uint64_t control[128] __attribute__((aligned(64)));
static struct tokenpool monitor;
static struct tokenpool_config cfg;
static uint64_t period;

static void base(uint64_t equal_within, uint64_t capacity_min, uint64_t step, uint32_t history)
{
    memset(&cfg, 0, sizeof cfg);
    cfg.clients = 2;
    cfg.batch = 5;
    cfg.capacity = 1000;
    cfg.equal_within = equal_within;
    cfg.capacity_min = capacity_min;
    cfg.capacity_step = step;
    cfg.history = history;
    cfg.alert_periods = 3;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    CHECK_EQ(tokenpool_join(&monitor, 0, 200, TOKENPOOL_NO_LIMIT, NULL), QOS_OK);
    CHECK_EQ(tokenpool_join(&monitor, 1, 300, TOKENPOOL_NO_LIMIT, NULL), QOS_OK);
    period = 0;
    tokenpool_run(&monitor, 0);
}

/* A period in which the clients complete these; the capacity of the next. */
static uint64_t after(uint64_t a, uint64_t b)
{
    uint64_t tag = (monitor.info.epoch % 63 + 1) << 58 | UINT64_C(3) << 56;
    uint64_t *reports = storage + (tokenpool_storage_size(&cfg) - 64) / 8;
    reports[0] = tag | UINT64_C(200) << 28 | a;
    reports[1] = tag | UINT64_C(300) << 28 | b;
    tokenpool_run(&monitor, ++period * QOS_NS_PER_S);
    CHECK_EQ(monitor.info.last_used, a + b);
    return monitor.info.capacity;
}

int main(void)
{
    struct tokenpool_client_info info;
    unsigned i;
    check_begin("unit/tokenpool_capacity");

    base(0, 0, 0, 3); /* tolerance 2 x 5, floor 700, eta 20 */
    CHECK_EQ(after(500, 500), 1020);
    CHECK_EQ(after(510, 500), 1040); /* 1010 is 1020 within 10 */
    CHECK_EQ(after(529, 500), 1029); /* 1029 is not: the first record of W */
    CHECK_EQ(after(700, 119), 924);  /* (1029 + 819) / 2 */
    CHECK_EQ(after(500, 200), 849);  /* (1029 + 819 + 700) / 3, rounded down */
    CHECK_EQ(after(400, 300), 739);  /* the first record is gone: (819 + 700 + 700) / 3 */
    CHECK_EQ(after(500, 199), 739);  /* below the floor */
    CHECK_EQ(after(0, 0), 739);
    CHECK_EQ(after(500, 500), 759); /* more than estimated counts as equal */

    /* The literal rule: exact equality never comes once a remainder of a batch is left; more than all is no growth. */
    base(TOKENPOOL_EXACT, 0, 0, 0);
    CHECK_EQ(after(500, 499), 999);
    CHECK_EQ(after(500, 500), 999);
    CHECK_EQ(after(500, 499), 1019);
    CHECK_EQ(after(300, 399), 1019); /* and below the floor the estimate stays wrong for ever */
    for (i = 0; i < 20; i++)
        CHECK_EQ(after(300, 300), 1019);

    base(0, TOKENPOOL_NO_FLOOR, TOKENPOOL_NO_STEP, 1);
    CHECK_EQ(after(500, 500), 1000);
    CHECK_EQ(after(5, 0), 5);
    CHECK_EQ(after(0, 0), 5); /* 0 is within 10 of 5: equal, no step */
    base(1, TOKENPOOL_NO_FLOOR, TOKENPOOL_TOKENS_MAX, 1);
    CHECK_EQ(after(500, 500), TOKENPOOL_TOKENS_MAX); /* and no further */

    cfg.flags = TOKENPOOL_FIXED;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    period = 0;
    tokenpool_run(&monitor, 0);
    CHECK_EQ(after(0, 0), 1000);

    base(0, 0, 0, 0);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(tokenpool_get_client(&monitor, 0, &info), QOS_OK);
        CHECK(!info.alert && info.under_used == i);
        (void)after(199, 300);
    }
    CHECK_EQ(tokenpool_get_client(&monitor, 0, &info), QOS_OK);
    CHECK(info.alert && info.used == 199);
    CHECK_EQ(tokenpool_get_client(&monitor, 1, &info), QOS_OK);
    CHECK(!info.alert && info.under_used == 0);
    (void)after(200, 300);
    CHECK_EQ(tokenpool_get_client(&monitor, 0, &info), QOS_OK);
    CHECK(!info.alert && info.under_used == 0);
    return check_end();
}
