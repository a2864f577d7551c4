// proves: over all interleavings (stale values included) of clients, monitors, period starts, deaths and takeovers: no
// proves: token is issued twice or beyond the bound, none is lost by a refill, no wake-up is lost, and the pool does
// proves: not drift. Terms are never torn. A monitor that was replaced changes nothing, and an engine whose slot was
// proves: given away spends nothing. With clocks that stand still, step back or jump at any reading, a token is spent in its epoch
// proves: or never, epochs are T apart, and an engine that has its slot is always told when to come again.
// flags: -O2
// scale: 2
#include "interleave/explore.h"
#include "tokenpool.h"

enum { CLIENTS = 3, EPOCHS = 8, PERIOD_NS = 1000, POLL_NS = 30, LONG_NS = 1 << 20 /* with a margin for clocks */ };
static qos_word_t storage[64] __attribute__((aligned(64)));
static uint64_t memory[128] __attribute__((aligned(64)));
static struct tokenpool_config config;
static struct tokenpool_monitor monitor;
static struct tokenpool_client client[CLIENTS];
static uint64_t spent[EPOCHS][CLIENTS], now_of[CLIENTS], monitor_now;
static int64_t lowest;
static uint64_t period_ns = PERIOD_NS;

static qos_word_t *word(uint64_t offset)
{
    return &storage[offset / 8];
}

static void require(enum qos_status s)
{
    if (s != QOS_OK)
        abort();
}

static struct tokenpool_client_state state_of(unsigned who)
{
    struct tokenpool_client_state state;
    require(tokenpool_client_info(&client[who], &state));
    return state;
}

static struct tokenpool_monitor_state state_of_monitor(const struct tokenpool_monitor *m)
{
    struct tokenpool_monitor_state state;
    require(tokenpool_monitor_info(m, &state));
    return state;
}

/* Runs the monitor again if it is due at once: this confirms a period that has just begun. */
static void run_monitor(struct tokenpool_monitor *m, uint64_t now_ns)
{
    tokenpool_monitor_run(m, now_ns);
    if (tokenpool_monitor_next_ns(m, now_ns) <= now_ns)
        tokenpool_monitor_run(m, now_ns);
}

/* The pool word now, read without the hook. */
static void watch(void)
{
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    if (count < lowest)
        lowest = count;
    EXPLORE_CHECK(lowest >= -(int64_t)config.clients * config.batch);
}

static bool take(unsigned who, uint64_t n)
{
    enum qos_status s = tokenpool_client_take(&client[who], now_of[who], n);
    watch();
    if (s == QOS_OK)
        spent[tokenpool_client_epoch(&client[who])][who] += n;
    return s == QOS_OK;
}

/* As after a message: the engine reads the period word before it takes. */
static bool take_hinted(unsigned who, uint64_t n)
{
    tokenpool_client_hint(&client[who]);
    return take(who, n);
}

/* Takes n tokens, one by one; without tokens it waits for the monitor. */
static void take_all(unsigned who, uint64_t n)
{
    uint64_t last = *word(TOKENPOOL_OFFSET_POOL);
    while (n > 0) {
        if (take(who, 1)) {
            n--;
        } else {
            last = explore_await(word(TOKENPOOL_OFFSET_POOL), last);
            now_of[who] += POLL_NS; /* it is time to read again */
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

/* It has demand until now: not for so long that it rests. What it returns it reports. */
static void idle(unsigned who, uint64_t now_ns)
{
    tokenpool_client_set_queued(&client[who], 1);
    tokenpool_client_run(&client[who], now_ns - 10, 0);
    tokenpool_client_set_queued(&client[who], 0);
    tokenpool_client_run(&client[who], now_ns, 0);
    tokenpool_client_run(&client[who], now_ns + 10, 0);
}

static void attach(unsigned who, uint32_t generation)
{
    require(tokenpool_client_attach(&client[who], who % config.clients, generation, storage, sizeof storage));
}

/* Clients 0..n-1 with these reservations and limits (0: none), the first period begun by all. */
static void base_limits(unsigned n, uint32_t batch, uint64_t capacity, const uint64_t *reservation,
                        const uint64_t *limit, uint32_t flags)
{
    unsigned i;
    memset(&config, 0, sizeof config);
    memset(spent, 0, sizeof spent);
    memset(storage, 0, sizeof storage);
    config.clients = n;
    config.batch = batch;
    config.flags = flags | TOKENPOOL_FIXED;
    config.overrun = QOS_NOTHING;
    config.silent_periods = QOS_UNLIMITED;
    config.capacity = capacity;
    config.period_ns = period_ns;
    config.check_ns = 10;
    config.poll_ns = 1;
    config.lease_ns = 40;
    require(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config));
    for (i = 0; i < n; i++) {
        require(tokenpool_monitor_join(&monitor, i, reservation[i], limit ? limit[i] : 0, NULL));
        attach(i, 0);
        tokenpool_client_run(&client[i], 0, 0);
    }
    run_monitor(&monitor, 0);
    for (i = 0; i < n; i++) {
        now_of[i] = period_ns / 4096 + 1;
        tokenpool_client_run(&client[i], now_of[i], 0);
        if (!state_of(i).running)
            abort();
    }
    lowest = 0;
    monitor_now = 0;
}

static void base_setup(unsigned n, uint64_t capacity, const uint64_t *reservation, uint32_t flags)
{
    base_limits(n, 2, capacity, reservation, NULL, flags);
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
    EXPLORE_CHECK(spent_in(1) == 5); /* 12 were requested: all tokens are claimed, and no more */
}

/* ---- a client that rests rises, while the monitor gives what it returned to another one */

static void rest_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {6, 0, 0};
    base_limits(2, 2, 10, reserved, NULL, 0);
    tokenpool_client_run(&client[0], 130, 0);
    if (!take(1, 2) || !take(1, 2)) /* the pool is in use */
        abort();
    now_of[0] = now_of[1] = 500;
}

static void rest_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        for (i = 500; i < 600; i += 50)
            run_monitor(&monitor, i);
        return;
    }
    for (i = 0; i < (who ? 2 : 6); i++)
        (void)take(who, who ? 2 : 1);
}

static void rest_check(void)
{
    EXPLORE_CHECK(spent_in(1) <= 10);
    EXPLORE_CHECK(spent[1][0] >= 2); /* 6 x what is left after the second check and T / 32 */
}

/* ---- the monitor raises the pool while others claim; no client may miss it */

static uint32_t raise_batch;

static void raise_base(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 6};
    base_limits(3, raise_batch, 10, reserved, NULL, 0);
    /* Client 2 has no demand: at 0.5 T by its own clock it returns 3 of 6. Client 0 uses the pool. */
    if (!take(0, 1) || !take(0, 1))
        abort();
    run_monitor(&monitor, 10);
    idle(2, 501);
    if (state_of(2).kept != 3)
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
        run_monitor(&monitor, monitor_now);
        watch();
        return;
    }
    /* 10 - 3 tokens are issued to 0 and 1 in all, 2 of them spent already. */
    if (raise_batch == 1)
        take_all(who, 2 - who); /* one of three waits for the raise */
    else if (who == 0)
        take_all(0, 3);
    else
        (void)take(1, 1); /* it may hold one more: 5 - 2 are left for client 0 */
}

static void raise_check(void)
{
    EXPLORE_CHECK(raise_batch == 2 || spent_in(1) == 5);
    (void)take(0, 1);
    (void)take(0, 1);
    (void)take(1, 1);
    (void)take(1, 1);
    EXPLORE_CHECK(spent_in(1) <= 7);
    EXPLORE_CHECK(state_of_monitor(&monitor).reserved + state_of_monitor(&monitor).put <= 10 + 3); /* 3 came back */
}

/* ---- the monitor lowers the pool (late in the period) while clients claim */

static void lower_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 4};
    base_setup(3, 10, reserved, 0);
    if (!take(0, 1))
        abort();
    /* client 0 is backlogged and has completed nothing: all of its 4 are still to come */
    tokenpool_client_set_queued(&client[2], 4);
    tokenpool_client_run(&client[2], 401, 0);
    monitor_now = 450; /* room for 5: 4 for the reservation, 1 for the pool, which holds 4 */
}

static void lower_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        run_monitor(&monitor, monitor_now);
        watch();
        return;
    }
    for (i = 0; i < 3; i++)
        (void)take(who, 1);
}

static void lower_check(void)
{
    uint64_t got = state_of(0).gained + state_of(1).gained;
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    EXPLORE_CHECK(spent_in(1) <= 6);
    EXPLORE_CHECK(got >= 2 && got <= 6);
    /* The monitor's counts equal the clients', to the token. */
    EXPLORE_CHECK(state_of_monitor(&monitor).put == got + (uint64_t)(count > 0 ? count : 0));
}

/* ---- empty pool: failed claims do not lower it without end */

static void drift_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 2};
    base_setup(3, 3, reserved, 0);
    if (!take(0, 1)) /* pool empty now, client 0 knows */
        abort();
    run_monitor(&monitor, 10);
    idle(2, 501); /* one token comes back */
}

static void drift_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        run_monitor(&monitor, 30);
        run_monitor(&monitor, 40);
        watch();
        return;
    }
    for (i = 0; i < 3; i++, now_of[who] += POLL_NS)
        (void)take(who, 1);
}

static void drift_check(void)
{
    EXPLORE_CHECK(spent_in(1) <= 3 - 1);
}

/* ---- period starts: terms are never torn, tokens stay in their period, deaths lose nothing for the next period */

static const uint64_t epoch_reservation[EPOCHS] = {0, 1, 3, 2}, epoch_limit[EPOCHS] = {0, 4, 5, 2};

static void change_terms(unsigned epoch)
{
    require(tokenpool_monitor_change(&monitor, 0, epoch_reservation[epoch], epoch_limit[epoch], NULL));
}

static void start_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {1, 0, 0}, limit[CLIENTS] = {4, 0, 0};
    base_limits(1, 2, 6, reserved, limit, 0);
}

static void start_actor(unsigned who)
{
    unsigned i;
    if (who == 1) {
        change_terms(2);
        run_monitor(&monitor, PERIOD_NS);
        change_terms(3);
        run_monitor(&monitor, 2 * PERIOD_NS);
        return;
    }
    for (i = 0; i < 3; i++, now_of[0]++) {
        struct tokenpool_client_state c;
        (void)take_hinted(0, 2);
        c = state_of(0);
        if (c.running) {
            EXPLORE_CHECK(c.reservation == epoch_reservation[c.epoch]);
            EXPLORE_CHECK(c.limit == epoch_limit[c.epoch]);
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
        run_monitor(&monitor, PERIOD_NS);
        return;
    }
    for (i = 0; i < 3; i++, now_of[who]++)
        (void)take(who, 2);
}

static void straddle_check(void)
{
    uint64_t held[EPOCHS] = {0}, dead = 0, left;
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    struct tokenpool_monitor_state m = state_of_monitor(&monitor);
    unsigned i;
    for (i = 0; i < 2; i++) {
        dead += explore_dead(i);
        if (!explore_dead(i)) { /* its claims from the new pool are visible once it knows of the new period */
            tokenpool_client_hint(&client[i]);
            tokenpool_client_run(&client[i], now_of[i] + 1, 0);
        }
        held[state_of(i).epoch] += state_of(i).gained;
    }
    left = (uint64_t)(count > 0 ? count : 0);
    EXPLORE_CHECK(spent_in(1) <= 4 && spent_in(2) <= 4);
    EXPLORE_CHECK(m.epoch == 2 && m.put == 3);
    /* Claimed from the new pool: what the clients hold of it. A dead client may have lost one batch on the way. */
    EXPLORE_CHECK(held[2] <= 3 - left);
    EXPLORE_CHECK(held[2] + dead * config.batch >= 3 - left);
    EXPLORE_CHECK(m.last_put == 3 && m.last_claimed <= 3);
}

/* A claim that straddles the boundary finds the new pool empty. Then the client reads the pool before it claims again,
 * so that the pool never falls below minus one claim for each client. */
static void early_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 0};
    base_setup(2, 1, reserved, 0);
    if (!take(0, 1)) /* empty */
        abort();
}

static void early_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        run_monitor(&monitor, PERIOD_NS);
        watch();
        return;
    }
    now_of[who] = 900;
    for (i = 0; i < 2; i++, now_of[who] += POLL_NS)
        (void)take(who, 1);
}

static void early_check(void)
{
    EXPLORE_CHECK(spent_in(1) <= 1 && spent_in(2) <= 1);
}

/* ---- takeover: the monitor dies before any of its steps, another takes the storage */

static struct tokenpool_monitor successor;
static uint64_t successor_memory[128] __attribute__((aligned(64)));

static void resume(void)
{
    require(tokenpool_monitor_resume(&successor, successor_memory, sizeof successor_memory, storage, sizeof storage,
                                     &config));
}

static void takeover_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {1, 0, 0};
    base_setup(1, 4, reserved, 0);
}

static void takeover_actor(unsigned who)
{
    unsigned i;
    if (who == 1) {
        run_monitor(&monitor, PERIOD_NS);
        return;
    }
    for (i = 0; i < 2; i++, now_of[0]++)
        (void)take_hinted(0, 2);
}

static void takeover_check(void)
{
    unsigned e;
    uint64_t epoch;
    for (e = 1; e < EPOCHS; e++)
        EXPLORE_CHECK(spent_in(e) <= 4);
    resume();
    run_monitor(&successor, 5000);
    run_monitor(&successor, 5000 + PERIOD_NS);
    epoch = state_of_monitor(&successor).epoch;
    EXPLORE_CHECK(epoch >= 2 && epoch < EPOCHS);
    EXPLORE_CHECK(tokenpool_word_epoch(*word(TOKENPOOL_OFFSET_POOL)) == epoch);
    EXPLORE_CHECK(tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL)) == 3);
    /* The client goes on: it gets all tokens of the new period. Tokens of an old one do not count there. */
    now_of[0] += 10;
    while (take_hinted(0, 1))
        now_of[0]++;
    EXPLORE_CHECK(tokenpool_client_epoch(&client[0]) == epoch && spent_in((unsigned)epoch) == 4);
}

/* ---- two monitors: one pauses before any of its steps while another takes over, and then goes on */

static void fence_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {2, 0, 0};
    base_setup(1, 4, reserved, 0);
    resume();
}

static void fence_actor(unsigned who)
{
    if (who == 1) {
        run_monitor(&monitor, PERIOD_NS);
    } else {
        tokenpool_monitor_run(&successor, PERIOD_NS);
        run_monitor(&successor, 2 * PERIOD_NS);
    }
}

/* The word names one epoch and belongs to one monitor, and a client gets the tokens of one period in that epoch. */
static void fence_check(void)
{
    struct tokenpool_monitor_state a, b;
    uint64_t epoch, now;
    for (now = 2 * PERIOD_NS + 10; now < 5 * PERIOD_NS; now += 20) {
        run_monitor(&monitor, now);
        run_monitor(&successor, now);
        a = state_of_monitor(&monitor);
        b = state_of_monitor(&successor);
        EXPLORE_CHECK(!(a.active && b.active && a.epoch == b.epoch));
        tokenpool_client_hint(&client[0]);
        tokenpool_client_run(&client[0], now, 1);
        now_of[0] = now;
        while (take(0, 1))
            ;
    }
    for (epoch = 1; epoch < EPOCHS; epoch++)
        EXPLORE_CHECK(spent_in((unsigned)epoch) <= 4);
    EXPLORE_CHECK(a.active != b.active);
    EXPLORE_CHECK(state_of(0).epoch == (a.active ? a.epoch : b.epoch));
}

/* ---- admissions: one monitor pauses at any step of them while another takes over; then a third one takes over */

static enum qos_status told[3]; /* change and join of the first monitor, change of the second */

static void admit_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {2, 0, 0};
    base_setup(2, 6, reserved, 0);
    require(tokenpool_monitor_leave(&monitor, 1));
    resume();
    told[0] = told[1] = told[2] = QOS_EINVAL;
}

static void admit_actor(unsigned who)
{
    if (who == 1) {
        told[0] = tokenpool_monitor_change(&monitor, 0, 1, 1, NULL);
        told[1] = tokenpool_monitor_join(&monitor, 1, 1, 1, NULL);
        return;
    }
    tokenpool_monitor_run(&successor, 20);
    if (explore_choose(2))
        told[2] = tokenpool_monitor_change(&successor, 0, 3, 3, NULL);
}

/* What a monitor was told holds for the next one, and nothing else. */
static void admit_check(void)
{
    uint64_t want = told[2] == QOS_OK ? 3 : told[0] == QOS_OK ? 1 : 2;
    struct tokenpool_slot_state slot;
    unsigned round;
    EXPLORE_CHECK(told[0] == QOS_OK || told[0] == QOS_ESTALE);
    EXPLORE_CHECK(told[1] == QOS_OK || told[1] == QOS_ESTALE);
    for (round = 0; round < 2; round++) { /* the second one, then a third */
        EXPLORE_CHECK(state_of_monitor(&successor).active && state_of_monitor(&successor).lost == 0);
        require(tokenpool_monitor_slot_info(&successor, 0, &slot));
        EXPLORE_CHECK(slot.reservation == want);
        require(tokenpool_monitor_slot_info(&successor, 1, &slot));
        EXPLORE_CHECK(slot.joined == (told[1] == QOS_OK));
        resume();
        tokenpool_monitor_run(&successor, 40);
    }
}

/* ---- a client leaves, another joins in its slot: together the two engines spend the tokens of one client */

static void reuse_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {2, 0, 0};
    base_setup(1, 4, reserved, 0);
    client[1] = client[0];
    now_of[1] = 1;
}

static void reuse_actor(unsigned who)
{
    unsigned i;
    if (who == 2) {
        require(tokenpool_monitor_leave(&monitor, 0));
        require(tokenpool_monitor_join(&monitor, 0, 3, 3, NULL));
        run_monitor(&monitor, PERIOD_NS);
        return;
    }
    if (who == 1) { /* the new client comes after the change */
        uint64_t terms = explore_await(word(TOKENPOOL_OFFSET_TERMS), *word(TOKENPOOL_OFFSET_TERMS));
        attach(1, (uint32_t)(terms >> 5) & 0x7fu);
        tokenpool_client_run(&client[1], 2, 0);
    }
    for (i = 0; i < 2; i++, now_of[who]++)
        (void)take_hinted(who, 1);
}

static void reuse_check(void)
{
    unsigned i;
    for (i = 0; i < 4; i++) {
        run_monitor(&monitor, PERIOD_NS + 10 + 10 * i);
        now_of[0] = now_of[1] = PERIOD_NS + 15 + 10 * i;
        while (take_hinted(0, 1) || take_hinted(1, 1))
            ;
    }
    EXPLORE_CHECK(spent[2][0] == 0); /* the old engine */
    EXPLORE_CHECK(spent_in(1) <= 4 && spent_in(2) <= 3);
    EXPLORE_CHECK(state_of(0).stale && !state_of(1).stale);
}

/* ---- clocks: the true one is a word; actor 0 moves it, monitors read it, an engine reads one that may be wrong */

static qos_word_t true_ns;
static uint64_t begun_ns, ended_ns[EPOCHS];     /* of the epoch in the period word; of each: 0 has not ended */
static unsigned shown_epoch, jumps_ns;          /* in the period word; by how much an engine's clock can jump ahead */
static int64_t last_ns, last_true_ns, ahead_ns; /* an engine's last reading; when; what its clock is ahead */

/* Epochs start at least T - T / 4096 apart. */
static void watch_epochs(void)
{
    unsigned epoch = (unsigned)(*word(TOKENPOOL_OFFSET_PERIOD) >> 28) & 0xfffffu;
    if (epoch == shown_epoch)
        return;
    EXPLORE_CHECK(true_ns - begun_ns >= LONG_NS - LONG_NS / 4096 && epoch < EPOCHS);
    ended_ns[shown_epoch] = begun_ns = true_ns;
    shown_epoch = epoch;
}

static void clock_base(uint64_t reserved)
{
    const uint64_t reservation[CLIENTS] = {reserved, 0, 0};
    period_ns = LONG_NS;
    base_setup(1, 4, reservation, 0);
    period_ns = PERIOD_NS;
    memset(ended_ns, 0, sizeof ended_ns);
    true_ns = begun_ns = 0;
    shown_epoch = 1;
}

/* As a loop around a monitor: it reads the clock for each call. */
static void run_by_clock(struct tokenpool_monitor *m)
{
    uint64_t now;
    do {
        now = qos_atomic_add_relaxed(&true_ns, 0);
        tokenpool_monitor_run(m, now);
    } while (tokenpool_monitor_next_ns(m, now) <= now);
}

/* A take of one token by a clock that is right, or cached, or steps back behind its last reading, or once jumps ahead. */
static void take_by_clock(unsigned who)
{
    int64_t now = (int64_t)qos_atomic_add_relaxed(&true_ns, 0), shown = now + ahead_ns;
    unsigned kind = explore_choose(jumps_ns ? 4 : 3);
    uint64_t ended;
    enum qos_status s;
    if (kind == 3) {
        shown += jumps_ns;
        jumps_ns = 0;
    } else if (kind == 2) {
        shown = last_ns - LONG_NS / 4;
    }
    if (kind != 1) {
        last_true_ns = now;
        last_ns = shown;
        ahead_ns = shown - now;
    }
    s = tokenpool_client_take(&client[who], (uint64_t)last_ns, 1);
    if (s == QOS_OK) {
        spent[tokenpool_client_epoch(&client[who])][who]++;
        ended = ended_ns[tokenpool_client_epoch(&client[who])];
        EXPLORE_CHECK(ended == 0 || ended >= (uint64_t)last_true_ns);
    }
    EXPLORE_CHECK(s == QOS_ESTALE ||
                  tokenpool_client_next_ns(&client[who], (uint64_t)last_ns, 1) <= (uint64_t)last_ns + LONG_NS);
}

/* The engine knows the end of epoch 2 but for the margin. */
static void clocks_setup(void)
{
    clock_base(3);
    tokenpool_client_run(&client[0], LONG_NS - 100, 0);
    run_monitor(&monitor, LONG_NS);
    tokenpool_client_hint(&client[0]);
    tokenpool_client_run(&client[0], LONG_NS, 0);
    if (state_of(0).epoch != 2 || state_of(0).deadline_ns < 2 * LONG_NS - 400)
        abort();
    true_ns = 2 * LONG_NS - 400;
    last_true_ns = last_ns = LONG_NS;
    begun_ns = LONG_NS;
    shown_epoch = 2;
    ahead_ns = 0;
    jumps_ns = LONG_NS;
}

static void clocks_actor(unsigned who)
{
    unsigned i;
    if (who == 0)
        for (i = 0; i < 3; i++)
            take_by_clock(0);
    else if (who == 1)
        run_by_clock(&monitor);
    else
        for (i = 0; i < 2; i++)
            qos_atomic_store_relaxed(&true_ns, 2 * LONG_NS + 10 * i);
}

static void clocks_check(void)
{
    EXPLORE_CHECK(spent_in(2) <= 4 && spent_in(3) <= 4);
}

/* The old monitor may start an epoch, and the new one takes the storage, at any time of the clock. */
static void turn_setup(void)
{
    clock_base(2);
    run_monitor(&monitor, LONG_NS - 2); /* its heartbeat says how old the epoch is */
    resume();
    true_ns = LONG_NS - 1;
}

static void turn_actor(unsigned who)
{
    if (who < 2) {
        run_by_clock(who == 0 ? &monitor : &successor);
    } else {
        qos_atomic_store_relaxed(&true_ns, 2 * LONG_NS);
    }
}

/* One has the storage, and starts epochs; the other one watches. */
static void turn_check(void)
{
    uint64_t now, epoch = shown_epoch;
    struct tokenpool_monitor_state a, b;
    for (now = 2 * LONG_NS; now <= 4 * LONG_NS; now += LONG_NS / 4) {
        true_ns = now;
        run_by_clock(&monitor);
        run_by_clock(&successor);
        watch_epochs();
    }
    a = state_of_monitor(&monitor);
    b = state_of_monitor(&successor);
    EXPLORE_CHECK(a.active != b.active && (a.active ? a.epoch : b.epoch) == shown_epoch);
    EXPLORE_CHECK(shown_epoch > epoch && true_ns - begun_ns < LONG_NS);
}

/* ---- an engine attaches in a slot whose former engine goes on, and the monitor writes the next epoch */

static void attach_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {3, 0, 0};
    base_limits(1, 1, 4, reserved, NULL, 0);
    client[1] = client[0];
    if (!take(0, 1))
        abort();
    now_of[1] = 2;
}

static void attach_actor(unsigned who)
{
    if (who == 2) {
        change_terms(3);
        run_monitor(&monitor, PERIOD_NS);
        return;
    }
    if (who == 1)
        attach(1, 0);
    (void)take_hinted(who, 1);
}

/* In each epoch both spend what is one client's, and the pool; a start costs X, which is 1. The last one has the slot. */
static void attach_check(void)
{
    uint64_t before, i;
    for (i = 0; i < 2; i++) {
        now_of[0] = now_of[1] = PERIOD_NS + 2 + i;
        while (take_hinted(0, 1) || take_hinted(1, 1))
            ;
    }
    EXPLORE_CHECK(spent_in(1) <= 4 && spent_in(2) <= 2);
    run_monitor(&monitor, 2 * PERIOD_NS);
    now_of[0] = now_of[1] = 2 * PERIOD_NS;
    before = spent_in(3);
    while (take_hinted(0, 1) || take_hinted(1, 1))
        ;
    EXPLORE_CHECK(before == 0 && spent[3][0] == 0 && spent[3][1] == 2);
    EXPLORE_CHECK(state_of(0).stale && !state_of(1).stale);
}

/* Four actors: three clients, one of which may die, and a monitor that raises. */
static void four_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 2, 0};
    base_setup(3, 5, reserved, 0);
    if (!take(0, 1) || !take(0, 1))
        abort();
    run_monitor(&monitor, 10);
    idle(1, 501); /* one token comes back */
    now_of[1] = 511;
    if (!take(1, 1))
        abort();
}

static void four_actor(unsigned who)
{
    if (who == 3)
        run_monitor(&monitor, 30);
    else
        (void)take(who, 2);
}

static void four_check(void)
{
    uint64_t got = state_of(0).gained + state_of(1).gained + state_of(2).gained;
    uint64_t put = state_of_monitor(&monitor).put;
    int64_t count = tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    unsigned dead = explore_dead(0);
    EXPLORE_CHECK(spent_in(1) <= 5);
    EXPLORE_CHECK(got <= put);
    EXPLORE_CHECK(got + (uint64_t)(count > 0 ? count : 0) + (uint64_t)dead * config.batch >= put);
    EXPLORE_CHECK(put <= 4); /* 3 at the beginning, one returned */
}

/* ---- ordered: in the order of the claims, token by token */

static void ordered_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 5};
    base_limits(3, 1, 6, reserved, NULL, TOKENPOOL_ORDERED);
    idle(2, 601); /* returns 3: 4 in all; the two clients want 4 */
    if (state_of(2).kept != 2)
        abort();
}

static void ordered_actor(unsigned who)
{
    uint64_t last = *word(TOKENPOOL_OFFSET_SERVED), n = 0;
    if (who == 2) { /* once at any time, and again when both have claimed; each time a token is served */
        uint64_t pool = *word(TOKENPOOL_OFFSET_POOL), at;
        run_monitor(&monitor, 300);
        while (tokenpool_word_count(pool) < 2)
            pool = explore_await(word(TOKENPOOL_OFFSET_POOL), pool);
        for (at = 400; state_of_monitor(&monitor).put < 2; at += 10)
            run_monitor(&monitor, at);
        return;
    }
    while (n < 1) {
        if (take(who, 1)) {
            n++;
            continue;
        }
        last = explore_await(word(TOKENPOOL_OFFSET_SERVED), last);
        now_of[who] += POLL_NS;
    }
}

static void ordered_check(void)
{
    unsigned i;
    uint64_t tickets = (uint64_t)tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL));
    EXPLORE_CHECK(spent_in(1) == 2);
    EXPLORE_CHECK(state_of_monitor(&monitor).put == 2);
    EXPLORE_CHECK(tickets == 2); /* one claim each, of one token */
    for (i = 0; i < 2; i++)
        EXPLORE_CHECK(state_of(i).gained == 1);
}

/* First come, first served: client 0's claim comes before client 1's or after it. There are two tokens, and one client
 * gets both.
 */
static void fifo_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 0};
    base_setup(2, 3, reserved, TOKENPOOL_ORDERED);
    *word(TOKENPOOL_OFFSET_SERVED) += UINT64_C(3) << 32;
}

static void fifo_actor(unsigned who)
{
    if (take(who, 2))
        return;
    now_of[who] += POLL_NS;
    (void)take(who, 2);
}

static void fifo_check(void)
{
    /* Tickets [0,2) and [2,4), three tokens: the first claim is whole, the second has one and waits for one. */
    uint64_t a = state_of(0).gained, b = state_of(1).gained;
    EXPLORE_CHECK(a + b <= 3 && (a == 2 || b == 2));
}

/* Served tickets are never taken back. So the monitor serves none before it is claimed, however large the pool is. */
static void cap_setup(void)
{
    static const uint64_t reserved[CLIENTS] = {0, 0, 4};
    base_setup(3, 40, reserved, TOKENPOOL_ORDERED);
}

static void cap_watch(void)
{
    int64_t served = tokenpool_word_count(*word(TOKENPOOL_OFFSET_SERVED));
    EXPLORE_CHECK(served <= tokenpool_word_count(*word(TOKENPOOL_OFFSET_POOL)));
}

static void cap_actor(unsigned who)
{
    unsigned i;
    for (i = 0; i < 2; i++, now_of[who] += POLL_NS) {
        if (who == 2)
            run_monitor(&monitor, 800 + 10 * i);
        else
            (void)take(who, 1);
        cap_watch();
    }
}

static void cap_check(void)
{
    cap_watch();
    EXPLORE_CHECK(spent_in(1) <= state_of_monitor(&monitor).put);
    EXPLORE_CHECK(state_of_monitor(&monitor).put <= 4); /* two claims of two */
}

int main(void)
{
    static struct explore scenario[] = {
        {.name = "claims, 3 clients", .actors = 3, .setup = claims_setup, .actor = claims_actor, .check = claims_check},
        {.name = "rest, 2 clients + monitor",
         .actors = 3,
         .setup = rest_setup,
         .actor = rest_actor,
         .check = rest_check},
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
         .history = 2,
         .setup = early_setup,
         .actor = early_actor,
         .check = early_check},
        {.name = "takeover, client + monitor that may die",
         .actors = 2,
         .history = 2,
         .mortal = 2,
         .setup = takeover_setup,
         .actor = takeover_actor,
         .check = takeover_check},
        {.name = "two monitors, one pauses",
         .actors = 2,
         .history = 2,
         .setup = fence_setup,
         .actor = fence_actor,
         .check = fence_check},
        {.name = "admissions, one monitor pauses",
         .actors = 2,
         .history = 2,
         .setup = admit_setup,
         .actor = admit_actor,
         .check = admit_check},
        {.name = "slot reused, old and new engine + monitor",
         .actors = 3,
         .history = 2,
         .setup = reuse_setup,
         .actor = reuse_actor,
         .check = reuse_check},
        {.name = "clocks, client + monitor + time",
         .actors = 3,
         .history = 1,
         .setup = clocks_setup,
         .actor = clocks_actor,
         .check = clocks_check,
         .watch = watch_epochs},
        {.name = "turn, two monitors + time",
         .actors = 3,
         .history = 1,
         .setup = turn_setup,
         .actor = turn_actor,
         .check = turn_check,
         .watch = watch_epochs},
        {.name = "attach, old and new engine + monitor",
         .actors = 3,
         .history = 2,
         .setup = attach_setup,
         .actor = attach_actor,
         .check = attach_check},
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
        {.name = "not ahead, ordered, 2 clients + monitor",
         .actors = 3,
         .setup = cap_setup,
         .actor = cap_actor,
         .check = cap_check},
    };
    uint64_t total = 0;
    unsigned i;
    check_begin("interleave/tokenpool_pool");
    for (i = 0; i < sizeof scenario / sizeof scenario[0]; i++) {
        if (!check_case(scenario[i].name))
            continue;
        if (check_state.scale > 1 && !scenario[i].history) /* loads read the last store or the one before */
            scenario[i].history = 2;
        explore(&scenario[i]);
        total += scenario[i].executions;
        CHECK(scenario[i].executions > 1);
    }
    printf("%" PRIu64 " executions in all\n", total);
    return check_end();
}
