// proves: the settings of a placement and of an intake do what their comments say: min_write_bytes, include_home, timeout_ns,
// proves: client, max_reservations, max_per_client, parallel, op_cost_bytes, at their default and at other values
#include "check.h"
#include "twochoice.h"

static unsigned char mem[1 << 20] __attribute__((aligned(64)));
static struct twochoice_placement placement;
static struct twochoice_intake intake;
static struct twochoice_place_order o;

static void make(uint64_t min_write_bytes, uint64_t timeout_ns, bool include_home)
{
    struct twochoice_placement_config config;
    memset(&config, 0, sizeof config);
    config.servers = 100;
    config.max_writes = 2;
    config.min_write_bytes = min_write_bytes;
    config.timeout_ns = timeout_ns;
    config.include_home = include_home;
    config.client = 4711;
    config.seed = 5;
    CHECK_EQ(twochoice_placement_init(&placement, mem, sizeof mem, &config), QOS_OK);
}

/* Where a write of this length reserves: how many servers, and is its home one of them? It ends at once. */
static uint32_t reserves(uint64_t len_bytes, uint32_t home, bool *at_home)
{
    const struct twochoice_write w = {home, len_bytes};
    uint32_t n = 0;
    uint64_t request = 0;
    *at_home = false;
    CHECK_EQ(twochoice_placement_begin(&placement, 0, &w, 1, 0, &request), QOS_OK);
    for (;;) {
        twochoice_placement_step(&placement, 0, &o);
        if (o.todo != TWOCHOICE_PLACE_SEND)
            break;
        CHECK_EQ(o.message.client, 4711);
        CHECK_EQ(o.message.len_bytes, len_bytes);
        n++;
        *at_home = *at_home || o.server == home;
    }
    CHECK_EQ(o.todo, n ? TWOCHOICE_PLACE_WAIT : TWOCHOICE_PLACE_BIND);
    CHECK_EQ(twochoice_placement_ended(&placement, 0, request, 0, true), QOS_OK);
    while (twochoice_placement_step(&placement, 0, &o), o.todo != TWOCHOICE_PLACE_WAIT)
        continue;
    return n;
}

/* When a write is sent elsewhere whose server asked at 0, without any bound, and hangs. */
static uint64_t overdue_ns(void)
{
    const struct twochoice_write w = {7, 1 << 20};
    struct twochoice_message m, answer;
    uint64_t request = 0, now = 0;
    CHECK_EQ(twochoice_placement_begin(&placement, 0, &w, 1, 0, &request), QOS_OK);
    while (twochoice_placement_step(&placement, 0, &o), o.todo == TWOCHOICE_PLACE_SEND)
        m = o.message;
    m.type = TWOCHOICE_ASK;
    CHECK(m.server != 7);
    CHECK(!twochoice_placement_heard(&placement, 0, &m, &answer));
    while (twochoice_placement_step(&placement, 0, &o), o.todo == TWOCHOICE_PLACE_SEND)
        continue;
    CHECK(o.todo == TWOCHOICE_PLACE_BIND && o.server == m.server);
    for (;;) {
        twochoice_placement_step(&placement, now, &o);
        if (o.todo == TWOCHOICE_PLACE_SEND && o.message.type == TWOCHOICE_RESERVE)
            return now;
        if (o.todo == TWOCHOICE_PLACE_WAIT)
            now = o.next_ns;
    }
}

/* How many reservations of one client, and of all, the intake takes; how many writes it asks for at once. */
static void taken(const struct twochoice_intake_config *config, uint32_t of_one, uint32_t of_all, uint32_t at_once)
{
    struct twochoice_message m, answer;
    uint32_t one = 0, all = 0, asks = 0, i;
    CHECK_EQ(twochoice_intake_init(&intake, mem, sizeof mem, config), QOS_OK);
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_RESERVE;
    m.count = 1;
    for (i = 0; i < 10000; i++) {
        m.client = i < 5000 ? 1 : i;
        m.request = i;
        CHECK(twochoice_intake_heard(&intake, 0, &m, &answer));
        one += i < 5000 && answer.state == TWOCHOICE_UP;
        all += answer.state == TWOCHOICE_UP;
    }
    while (twochoice_intake_ask(&intake, 0, &answer))
        asks++;
    CHECK_EQ(one, of_one);
    CHECK_EQ(all, of_all);
    CHECK_EQ(asks, at_once);
}

int main(void)
{
    struct twochoice_intake_config config;
    struct twochoice_intake_state state;
    uint32_t i, homes = 0;
    bool at_home;
    check_begin("unit/twochoice_settings");
    make(0, 0, false); /* the defaults: 1024 bytes, 200 ms */
    CHECK_EQ(reserves(1023, 7, &at_home), 0);
    CHECK_EQ(reserves(1024, 7, &at_home), 2);
    CHECK_EQ(overdue_ns(), 200000000);
    make(50000, 777, false);
    CHECK_EQ(reserves(49999, 7, &at_home), 0);
    CHECK_EQ(reserves(50000, 7, &at_home), 2);
    CHECK_EQ(overdue_ns(), 777);
    make(QOS_NOTHING, 0, true);
    CHECK_EQ(reserves(0, 7, &at_home), 2);
    for (i = 0; i < 50; i++) { /* the home is always one of the two */
        CHECK_EQ(reserves(1 << 20, i, &at_home), 2);
        homes += at_home;
    }
    CHECK_EQ(homes, 50);
    memset(&config, 0, sizeof config);
    taken(&config, 64, 4096, 1); /* the defaults */
    config.max_reservations = 100;
    config.max_per_client = 7;
    config.parallel = 3;
    taken(&config, 7, 100, 3);
    for (i = 0; i < 3; i++) {
        static const uint64_t op_cost[3] = {0, 5, QOS_NOTHING}, want[3] = {65536 + 1000, 1005, 1000};
        config.op_cost_bytes = op_cost[i];
        CHECK_EQ(twochoice_intake_init(&intake, mem, sizeof mem, &config), QOS_OK);
        twochoice_intake_begin(&intake, 0, 1000);
        CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
        CHECK_EQ(state.cost_bytes, want[i]);
    }
    for (i = 0; i < 2; i++) { /* an ask without an answer is given up by then: 50 ms */
        const uint64_t timeout_ns = i ? 1234 : 50000000;
        struct twochoice_message m, answer;
        config.timeout_ns = i ? timeout_ns : 0;
        CHECK_EQ(twochoice_intake_init(&intake, mem, sizeof mem, &config), QOS_OK);
        memset(&m, 0, sizeof m);
        m.type = TWOCHOICE_RESERVE;
        m.count = 1;
        CHECK(twochoice_intake_heard(&intake, 0, &m, &answer));
        CHECK(twochoice_intake_ask(&intake, 0, &answer));
        CHECK_EQ(twochoice_intake_next_ns(&intake, 0), timeout_ns);
        CHECK(!twochoice_intake_ask(&intake, timeout_ns - 1, &answer));
        CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
        CHECK_EQ(state.lost, 0);
        CHECK(!twochoice_intake_ask(&intake, timeout_ns, &answer));
        CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
        CHECK_EQ(state.lost, 1);
    }
    return check_end();
}
