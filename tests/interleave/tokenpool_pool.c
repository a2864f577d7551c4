// proves: over all interleavings (stale values included) of clients, monitor, period starts and deaths: no token is
// issued twice or beyond the bound, none is lost by a refill, no wake-up is lost, the pool does not drift, terms are
// whole
#include "interleave/explore.h"
#include "tokenpool.h"

enum { CLIENTS = 3, EPOCHS = 5, PERIOD_NS = 1000 };
static qos_word_t storage[64] __attribute__((aligned(64)));
static uint64_t control[64] __attribute__((aligned(64)));
static struct tokenpool_config cfg;
static struct tokenpool monitor;
static struct tokenpool_client client[CLIENTS];
static uint64_t spent[EPOCHS][CLIENTS], now_of[CLIENTS], monitor_now;
static int64_t lowest;

static qos_word_t *word(uint64_t offset)
{
    return &storage[offset / 8];
}

/* What the pool word holds at this moment, past the hook. */
static void watch(void)
{
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    if (count < lowest)
        lowest = count;
    EXPLORE_CHECK(lowest >= -(int64_t)cfg.clients * cfg.batch);
}

static bool take(unsigned who, uint64_t n)
{
    enum qos_status s = tokenpool_take_local(&client[who], storage, now_of[who], n);
    watch();
    if (s == QOS_OK)
        spent[client[who].epoch][who] += n;
    return s == QOS_OK;
}

/* Takes n tokens, one by one, and waits for the monitor as long as there are none. */
static void take_all(unsigned who, uint64_t n)
{
    uint64_t last = *word(TOKENPOOL_OFFSET_PERIOD);
    while (n > 0) {
        if (take(who, 1)) {
            n--;
        } else {
            last = explore_await(word(TOKENPOOL_OFFSET_PERIOD), last);
            now_of[who]++; /* time to poll again */
        }
    }
}

static uint64_t spent_in(unsigned epoch)
{
    uint64_t sum = 0;
    unsigned i;
    for (i = 0; i < CLIENTS; i++)
        sum += spent[epoch][i];
    return sum;
}

/* Clients 0..n-1 with these reservations, the first period begun by all. */
static void base_setup(unsigned n, uint64_t capacity, const uint64_t *reservation, uint32_t flags)
{
    unsigned i;
    memset(&cfg, 0, sizeof cfg);
    memset(spent, 0, sizeof spent);
    cfg.clients = n;
    cfg.batch = 2;
    cfg.flags = flags | TOKENPOOL_FIXED;
    cfg.overrun = TOKENPOOL_NO_OVERRUN;
    cfg.silent_periods = TOKENPOOL_NEVER_SILENT;
    cfg.capacity = capacity;
    cfg.period_ns = PERIOD_NS;
    cfg.check_ns = 10;
    cfg.poll_ns = 1;
    if (tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg) != QOS_OK)
        abort();
    for (i = 0; i < n; i++)
        if (tokenpool_join(&monitor, i, reservation[i], TOKENPOOL_NO_LIMIT, NULL) != QOS_OK)
            abort();
    tokenpool_run(&monitor, 0);
    for (i = 0; i < n; i++) {
        if (tokenpool_client_init(&client[i], &cfg, i) != QOS_OK)
            abort();
        tokenpool_client_start_now(&client[i]);
        now_of[i] = 1;
        tokenpool_tick_local(&client[i], storage, now_of[i]);
        if (!client[i].running)
            abort();
    }
    lowest = 0;
    monitor_now = 0;
}

/* ---- claims alone: partial batches, exact sums */

static void claims_setup(void)
{
    static const uint64_t none[CLIENTS] = {0, 0, 0};
    base_setup(3, 5, none, 0);
}

static void claims_actor(unsigned who)
{
    unsigned i;
    for (i = 0; i < 4; i++)
        (void)take(who, 1);
}

static void claims_check(void)
{
    EXPLORE_CHECK(spent_in(1) == 5); /* 12 were wanted: all that there is, and no more */
}

/* ---- a raise while others claim; nobody may sleep through it */

static uint32_t raise_batch;

static void raise_base(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 6};
    unsigned i;
    base_setup(3, 10, reserved, 0);
    for (i = 0; i < 3; i++)
        client[i].cfg.batch = raise_batch;
    /* Client 2 has no demand: at 0.5 T by its own clock it returns 3 of 6. Client 0 makes the monitor ask. */
    if (!take(0, 1) || !take(0, 1))
        abort();
    tokenpool_run(&monitor, 10); /* sees that the pool is used, asks for reports */
    tokenpool_run(&monitor, 20); /* waits for them */
    tokenpool_tick_local(&client[2], storage, 501);
    if (client[2].kept != 3)
        abort();
    monitor_now = 30;
}

static void raise_setup(void)
{
    raise_batch = 2;
    raise_base();
}

static void raise_single_setup(void)
{
    raise_batch = 1;
    raise_base();
}

static void raise_actor(unsigned who)
{
    if (who == 2) {
        tokenpool_run(&monitor, monitor_now);
        watch();
        return;
    }
    /* 10 - 3 tokens are issued to 0 and 1 in all, 2 of them spent already. */
    if (who == 0)
        take_all(0, 3);
    else if (raise_batch == 1)
        take_all(1, 2);
    else
        (void)take(1, 1); /* may hold one more: 5 - 2 are left for 0 */
}

static void raise_check(void)
{
    EXPLORE_CHECK(raise_batch == 2 || spent_in(1) == 7);
    (void)take(0, 1);
    (void)take(0, 1);
    (void)take(1, 1);
    (void)take(1, 1);
    EXPLORE_CHECK(spent_in(1) <= 7);
    EXPLORE_CHECK(monitor.info.reserved + monitor.info.put <= 10 + 3); /* 3 of the reserved came back */
}

/* ---- the monitor lowers the pool (late in the period) while clients claim */

static void lower_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 4};
    base_setup(3, 10, reserved, 0);
    if (!take(0, 1))
        abort();
    tokenpool_run(&monitor, 10);
    tokenpool_run(&monitor, 20);
    client[2].queued = 4; /* backlogged, nothing completed: all of its 4 are still to come */
    tokenpool_tick_local(&client[2], storage, 401);
    monitor_now = 450; /* room for 5: 4 for the reservation, 1 for the pool, which holds 4 */
}

static void lower_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        tokenpool_run(&monitor, monitor_now);
        watch();
        return;
    }
    for (i = 0; i < 3; i++)
        (void)take(who, 1);
}

static void lower_check(void)
{
    uint64_t got = client[0].gained + client[1].gained;
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    EXPLORE_CHECK(spent_in(1) <= 6);
    EXPLORE_CHECK(got >= 2 && got <= 6);
    /* The monitor's account is the clients', to the token. */
    EXPLORE_CHECK(monitor.info.put == got + (uint64_t)(count > 0 ? count : 0));
}

/* ---- empty pool: knocking does not drive it down, however often */

static void drift_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 2};
    base_setup(3, 3, reserved, 0);
    if (!take(0, 1)) /* pool empty now, client 0 knows */
        abort();
    tokenpool_run(&monitor, 10);
    tokenpool_run(&monitor, 20);
    tokenpool_tick_local(&client[2], storage, 501); /* one token comes back */
}

static void drift_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        tokenpool_run(&monitor, 30);
        tokenpool_run(&monitor, 40);
        watch();
        return;
    }
    for (i = 0; i < 3; i++, now_of[who]++)
        (void)take(who, 1);
}

static void drift_check(void)
{
    EXPLORE_CHECK(spent_in(1) <= 3 - 1);
}

/* ---- period starts: terms are whole, tokens stay in their period, deaths lose nothing for the next */

static const uint64_t epoch_reservation[EPOCHS] = {0, 1, 3, 2, 0}, epoch_limit[EPOCHS] = {0, 4, 5, 2, 0};

static void change_terms(unsigned epoch)
{
    if (tokenpool_change(&monitor, 0, epoch_reservation[epoch], epoch_limit[epoch], NULL) != QOS_OK)
        abort();
}

static void start_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {1, 0, 0};
    base_setup(1, 6, reserved, 0);
    client[0].limit = 4;
}

static void start_actor(unsigned who)
{
    unsigned i;
    if (who == 1) {
        change_terms(2);
        tokenpool_run(&monitor, PERIOD_NS);
        change_terms(3);
        tokenpool_run(&monitor, 2 * PERIOD_NS);
        return;
    }
    for (i = 0; i < 3; i++, now_of[0]++) {
        struct tokenpool_client *c = &client[0];
        (void)take(0, 2);
        if (c->running && c->epoch != 1) {
            EXPLORE_CHECK(c->reservation == epoch_reservation[c->epoch]);
            EXPLORE_CHECK(c->limit == epoch_limit[c->epoch]);
        }
    }
}

static void start_check(void)
{
    unsigned e;
    for (e = 1; e < EPOCHS; e++)
        EXPLORE_CHECK(spent_in(e) <= epoch_limit[e]);
}

/* Two clients claim across the boundary; the pool of each period is accounted for to the token. */
static void straddle_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 1, 0};
    base_setup(2, 4, reserved, 0);
}

static void straddle_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        tokenpool_run(&monitor, PERIOD_NS);
        return;
    }
    for (i = 0; i < 3; i++, now_of[who]++)
        (void)take(who, 2);
}

static void straddle_check(void)
{
    uint64_t held[EPOCHS] = {0};
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    unsigned i, dead = 0;
    for (i = 0; i < 2; i++) {
        dead += explore_dead(i);
        held[client[i].epoch] += client[i].gained;
        if (client[i].early)
            held[client[i].early_epoch] += client[i].early_tokens;
    }
    EXPLORE_CHECK(spent_in(1) <= 4 && spent_in(2) <= 4);
    EXPLORE_CHECK(monitor.info.epoch == 2 && monitor.info.put == 3);
    /* Claimed of the new pool: what the clients hold of it; a dead one may have lost one batch on the way. */
    EXPLORE_CHECK(held[2] <= 3 - (uint64_t)(count > 0 ? count : 0));
    EXPLORE_CHECK(held[2] + dead * cfg.batch >= 3 - (uint64_t)(count > 0 ? count : 0));
    EXPLORE_CHECK(monitor.info.last_put == 3 && monitor.info.last_claimed <= 3);
}

/* A claim that straddles meets the new pool when it is empty and raised already, but not announced: it must wait for a
 * raise after the one that failed it. Three clients: the pool must not sink below three claims. */
static void early_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 2};
    base_setup(3, 3, reserved, 0);
    tokenpool_tick_local(&client[2], storage, 501);
    if (!take(0, 1)) /* empty */
        abort();
}

static void early_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        tokenpool_run(&monitor, PERIOD_NS);
        tokenpool_run(&monitor, PERIOD_NS + 10);
        tokenpool_run(&monitor, PERIOD_NS + 20);
        watch();
        return;
    }
    now_of[who] = 900;
    for (i = 0; i < 2; i++, now_of[who]++)
        (void)take(who, 1);
}

static void early_check(void)
{
    EXPLORE_CHECK(spent_in(1) <= 3 && spent_in(2) <= 3);
}

/* The monitor dies before any of its steps of a period start; another takes over. The client spends what it is given by
 * either, in no period more than that period has. */
static void takeover_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {1, 0, 0};
    base_setup(1, 4, reserved, 0);
}

static struct tokenpool successor;
static uint64_t successor_control[64] __attribute__((aligned(64)));

static void takeover_actor(unsigned who)
{
    unsigned i;
    if (who == 1) {
        tokenpool_run(&monitor, PERIOD_NS);
        tokenpool_run(&monitor, 2 * PERIOD_NS);
        return;
    }
    for (i = 0; i < 3; i++, now_of[0]++)
        (void)take(0, 2);
}

static void takeover_check(void)
{
    unsigned e;
    uint64_t epoch;
    for (e = 1; e < EPOCHS; e++)
        EXPLORE_CHECK(spent_in(e) <= 4);
    if (tokenpool_resume(&successor, successor_control, sizeof successor_control, storage, sizeof storage, &cfg) !=
        QOS_OK)
        abort();
    tokenpool_run(&successor, 5000);
    epoch = successor.info.epoch;
    EXPLORE_CHECK(epoch >= 2 && epoch <= 4);
    EXPLORE_CHECK(tokenpool_word_epoch(*word(TOKENPOOL_OFFSET_POOL)) == epoch);
    EXPLORE_CHECK(tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL)) == 3);
    /* The client goes on: it gets the whole of the new period, and no token of an old one counts there. */
    now_of[0] += 10;
    while (take(0, 1))
        now_of[0]++;
    EXPLORE_CHECK(client[0].epoch == epoch && spent_in((unsigned)epoch) == 4);
}

/* Four actors: three clients, one of which may die, and a monitor that raises. */
static void four_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 2, 0};
    base_setup(3, 5, reserved, 0);
    if (!take(0, 1) || !take(0, 1))
        abort();
    tokenpool_run(&monitor, 10);
    tokenpool_run(&monitor, 20);
    tokenpool_tick_local(&client[1], storage, 501); /* one token comes back */
    if (!take(1, 1))
        abort();
}

static void four_actor(unsigned who)
{
    if (who == 3)
        tokenpool_run(&monitor, 30);
    else
        (void)take(who, 2);
}

static void four_check(void)
{
    uint64_t got = client[0].gained + client[1].gained + client[2].gained;
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    unsigned dead = explore_dead(0);
    EXPLORE_CHECK(spent_in(1) <= 5);
    EXPLORE_CHECK(got <= monitor.info.put);
    EXPLORE_CHECK(got + (uint64_t)(count > 0 ? count : 0) + (uint64_t)dead * cfg.batch >= monitor.info.put);
    EXPLORE_CHECK(monitor.info.put <= 4); /* 3 to begin with, one returned */
}

/* ---- ordered: in the order of the claims, token by token */

static void ordered_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 5};
    base_setup(3, 6, reserved, TOKENPOOL_ORDERED); /* 1 token to begin with */
    monitor.info.reporting = true;
    tokenpool_tick_local(&client[2], storage, 601); /* returns 3: 4 in all for two who want 4 */
    if (client[2].kept != 2)
        abort();
}

static void ordered_actor(unsigned who)
{
    uint64_t last = *word(TOKENPOOL_OFFSET_SERVED), n = 0;
    if (who == 2) { /* one look whenever, one when both have claimed */
        uint64_t pool = *word(TOKENPOOL_OFFSET_POOL);
        tokenpool_run(&monitor, 10);
        while (tokenpool_word_count(pool) < 4)
            pool = explore_await(word(TOKENPOOL_OFFSET_POOL), pool);
        tokenpool_run(&monitor, 20);
        return;
    }
    while (n < 2) {
        if (take(who, 1)) {
            n++;
            continue;
        }
        last = explore_await(word(TOKENPOOL_OFFSET_SERVED), last);
        now_of[who]++;
    }
}

static void ordered_check(void)
{
    unsigned i;
    uint64_t tickets = (uint64_t)tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    EXPLORE_CHECK(spent_in(1) == 4);
    EXPLORE_CHECK(monitor.info.put <= 6 - 2);
    EXPLORE_CHECK(tickets == 4); /* one claim each, of two tokens */
    for (i = 0; i < 2; i++)
        EXPLORE_CHECK(client[i].tickets == 0 && client[i].gained == 2);
}

/* First come, first served: client 0's claim is before client 1's or after it; with two tokens, one of them has both.
 */
static void fifo_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 0};
    base_setup(2, 3, reserved, TOKENPOOL_ORDERED);
}

static void fifo_actor(unsigned who)
{
    if (take(who, 2))
        return;
    now_of[who]++;
    (void)take(who, 2);
}

static void fifo_check(void)
{
    /* Tickets [0,2) and [2,4), three tokens: the first claim is whole, the second has one and waits for one. */
    uint64_t a = client[0].gained, b = client[1].gained;
    EXPLORE_CHECK(a + b <= 3 && (a == 2 || b == 2) && (client[0].tickets == 1 || client[1].tickets == 1));
}

int main(void)
{
    static struct explore scenario[] = {
        {.name = "claims, 3 clients", .actors = 3, .setup = claims_setup, .actor = claims_actor, .check = claims_check},
        {.name = "raise, 2 clients + monitor",
         .actors = 3,
         .setup = raise_setup,
         .actor = raise_actor,
         .check = raise_check},
        {.name = "raise, batch 1, 2 clients + monitor",
         .actors = 3,
         .setup = raise_single_setup,
         .actor = raise_actor,
         .check = raise_check},
        {.name = "lower, 2 clients + monitor",
         .actors = 3,
         .setup = lower_setup,
         .actor = lower_actor,
         .check = lower_check},
        {.name = "empty pool, 2 clients + monitor",
         .actors = 3,
         .setup = drift_setup,
         .actor = drift_actor,
         .check = drift_check},
        {.name = "terms, client + monitor",
         .actors = 2,
         .setup = start_setup,
         .actor = start_actor,
         .check = start_check},
        {.name = "straddle, 2 clients (one may die) + monitor",
         .actors = 3,
         .mortal = 1,
         .setup = straddle_setup,
         .actor = straddle_actor,
         .check = straddle_check},
        {.name = "early claims, 2 clients + monitor",
         .actors = 3,
         .setup = early_setup,
         .actor = early_actor,
         .check = early_check},
        {.name = "takeover, client + monitor that may die",
         .actors = 2,
         .mortal = 2,
         .setup = takeover_setup,
         .actor = takeover_actor,
         .check = takeover_check},
        {.name = "four actors, 3 clients (one may die) + monitor",
         .actors = 4,
         .mortal = 1,
         .setup = four_setup,
         .actor = four_actor,
         .check = four_check},
        {.name = "ordered, 2 clients + monitor",
         .actors = 3,
         .setup = ordered_setup,
         .actor = ordered_actor,
         .check = ordered_check},
        {.name = "first come, 2 clients", .actors = 2, .setup = fifo_setup, .actor = fifo_actor, .check = fifo_check},
    };
    uint64_t total = 0;
    unsigned i;
    check_begin("interleave/tokenpool_pool");
    for (i = 0; i < sizeof scenario / sizeof scenario[0]; i++) {
        explore(&scenario[i]);
        total += scenario[i].executions;
        CHECK(scenario[i].executions > 1);
    }
    printf("%" PRIu64 " executions in all\n", total);
    return check_end();
}
