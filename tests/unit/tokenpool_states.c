// proves: each arrow of the drawings of tokenpool.h, the engine's nine states and the monitor's four roles, is taken
// proves: once, by its name; the state is seen from outside, by the engine's next operation
#include "unit/tokenpool_rig.h"

enum state { WATCH, TERMS, OPEN, HOLD, FENCED, NOTHING };
static struct tokenpool_client a;
static struct tokenpool_op op;

static void attach(uint32_t generation)
{
    CHECK_EQ(tokenpool_client_attach_remote(&a, 0, generation, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof storage),
             QOS_OK);
}

/* Prepares the next operation: in which state is that the one? */
static enum state next(uint64_t now)
{
    if (rig_client(&a).stale && tokenpool_client_next_ns(&a, now, 1) == QOS_NEVER)
        return FENCED;
    if (!tokenpool_client_next(&a, now, 0, &op))
        return rig_client(&a).running ? HOLD : NOTHING;
    if (op.offset_bytes == TOKENPOOL_OFFSET_PERIOD)
        return WATCH;
    return op.kind == TOKENPOOL_READ ? TERMS : rig_client(&a).running ? HOLD : OPEN;
}

static void answer(void)
{
    tokenpool_client_done(&a, tokenpool_storage_run(storage, &op));
}

static void base(uint32_t flags)
{
    rig_config(2, 10, 100, flags);
    rig_init();
    rig_join(0, 40, 0);
    rig_run(&monitor, 0);
    attach(0);
}

/* To HOLD, by the shortest way. */
static void hold(uint64_t now)
{
    CHECK_CONTEXT("WATCH -> TERMS: an open epoch");
    CHECK_EQ(next(now), WATCH);
    answer();
    CHECK_EQ(next(now), TERMS);
    CHECK_CONTEXT("TERMS -> OPEN: our terms");
    answer();
    CHECK_EQ(next(now), OPEN);
    CHECK_CONTEXT("OPEN -> TERMS: the report is not the one that it knows; so after a join");
    answer();
    CHECK_EQ(next(now), TERMS);
    answer();
    CHECK_EQ(next(now), OPEN);
    CHECK_CONTEXT("OPEN -> HOLD: the report is swapped");
    answer();
    CHECK(rig_client(&a).running && tokenpool_client_held(&a) == 40);
}

static void test_engine(void)
{
    struct tokenpool_client b;
    uint64_t now;
    base(0);
    hold(0);
    CHECK_CONTEXT("HOLD -> HOLD: the same epoch, after the deadline");
    tokenpool_client_hint(&a);
    CHECK_EQ(next(MS), WATCH);
    answer();
    CHECK(rig_client(&a).running);
    CHECK_CONTEXT("HOLD -> WATCH: another epoch, the tokens are void");
    rig_run(&monitor, S);
    tokenpool_client_hint(&a);
    CHECK_EQ(next(S), WATCH);
    answer();
    CHECK(!rig_client(&a).running && tokenpool_client_held(&a) == 0);

    CHECK_CONTEXT("TERMS -> WATCH: terms of another epoch");
    base(0);
    CHECK_EQ(next(0), WATCH);
    answer();
    CHECK_EQ(next(0), TERMS);
    tokenpool_client_done(&a, storage[TOKENPOOL_OFFSET_TERMS / 8] ^ 1);
    CHECK_EQ(next(MS), WATCH);
    CHECK_CONTEXT("TERMS -> OUT: another generation; OUT -> TERMS: it looks again in each epoch");
    base(0);
    attach(2);
    for (now = 0; now < 2 * S; now += S) {
        rig_run(&monitor, now);
        CHECK_EQ(next(now), WATCH);
        answer();
        CHECK_EQ(next(now), TERMS);
        answer();
        CHECK(rig_client(&a).stale && tokenpool_client_next_ns(&a, now, 1) != QOS_NEVER);
        (void)next(now + S / 2); /* the same epoch: nothing new */
        answer();
    }

    CHECK_CONTEXT("HOLD -> FENCED: another engine has the slot");
    base(0);
    hold(0);
    CHECK_EQ(tokenpool_client_attach(&b, 0, 0, storage, sizeof storage), QOS_OK);
    tokenpool_client_run(&b, MS, 0);
    CHECK_EQ(tokenpool_client_take(&a, MS, 30), QOS_EAGAIN); /* more than it may spend before it reports */
    CHECK(tokenpool_client_next(&a, MS, 30, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    answer();
    CHECK_EQ(next(2 * MS), FENCED);
}

/* It has tokens, none of them in hand: the next operation of a take says which state. */
static bool takes_by(uint64_t now, enum tokenpool_kind kind, uint64_t offset_bytes)
{
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_EAGAIN);
    CHECK(rig_client(&a).running);
    return tokenpool_client_next(&a, now, 1, &op) && op.kind == kind && op.offset_bytes == offset_bytes;
}

static void test_rest(void)
{
    const uint64_t report = tokenpool_storage_report(2, 0);
    uint64_t now;
    base(0);
    hold(0);
    CHECK_EQ(tokenpool_client_take(&a, 0, 1), QOS_OK);
    tokenpool_client_complete(&a, 1);
    while (tokenpool_client_next(&a, MS, 0, &op))
        answer();
    CHECK_CONTEXT("HOLD -> REST: no take for T/8");
    for (now = MS; (storage[report / 8] >> 52 & 3) && now < S; now += MS)
        while (tokenpool_client_next(&a, now, 0, &op))
            answer();
    CHECK_WITHIN(now, S / 8, S / 8 + 4 * MS);
    CHECK_CONTEXT("REST -> RISE: a take: reports so");
    CHECK(takes_by(now, TOKENPOOL_COMPARE_SWAP, report));
    answer();
    CHECK_CONTEXT("RISE -> HOLD: reads the level");
    CHECK(tokenpool_client_next(&a, now, 1, &op) && op.kind == TOKENPOOL_READ);
    tokenpool_client_done(&a, UINT64_C(1) << 56 | (storage[TOKENPOOL_OFFSET_POOL / 8] & 0xfffff000u)); /* a quarter */
    while (tokenpool_client_next(&a, now, 1, &op))
        answer();
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_OK);
    CHECK_EQ(rig_client(&a).kept, 1 + 10);

    CHECK_CONTEXT("OPEN -> REST: no take for T; REST -> WATCH, RISE -> WATCH: another epoch");
    for (now += MS; now < 3 * S + 5 * MS; now += MS) {
        rig_run(&monitor, now);
        while (tokenpool_client_next(&a, now, 0, &op))
            answer();
    }
    CHECK(rig_client(&a).epoch == 4 && (storage[report / 8] >> 52 & 3) == 0);
    CHECK(takes_by(now, TOKENPOOL_COMPARE_SWAP, report));
    answer();
    rig_run(&monitor, 4 * S);
    tokenpool_client_hint(&a);
    CHECK(tokenpool_client_next(&a, 4 * S, 1, &op));
    answer();
    CHECK_EQ(next(4 * S), WATCH);

    CHECK_CONTEXT("OPEN -> RISE: from the report of one that rested");
    base(0);
    hold(0);
    for (now = MS; now < S / 8 + 4 * MS; now += MS)
        while (tokenpool_client_next(&a, now, 0, &op))
            answer();
    CHECK_EQ(storage[report / 8] >> 52 & 3, 0);
    attach(0);
    while (tokenpool_client_next(&a, now, 1, &op) && !rig_client(&a).running)
        answer();
    CHECK(op.kind == TOKENPOOL_READ && tokenpool_client_held(&a) == 30); /* less X = 10 */
    answer();
    while (tokenpool_client_next(&a, now, 1, &op))
        answer();
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_OK);
}

static void test_alone(void)
{
    struct tokenpool_client c;
    rig_config(2, 10, 100, TOKENPOOL_GO_ON);
    rig_init();
    rig_join(0, 40, 40);
    rig_run(&monitor, 0);
    CHECK_EQ(tokenpool_client_attach(&c, 0, 0, storage, sizeof storage), QOS_OK);
    tokenpool_client_run(&c, 0, 0);
    CHECK_EQ(tokenpool_client_take(&c, 0, 40), QOS_OK);
    rig_tick(&c, MS); /* the first clock may be old: T counts from the second */
    CHECK_CONTEXT("HOLD -> ALONE: T and an eighth without a monitor");
    CHECK_EQ(tokenpool_client_take(&c, S + S / 16, 1), QOS_ELIMIT);
    CHECK_EQ(tokenpool_client_take(&c, S + S / 4, 40), QOS_OK);
    CHECK_CONTEXT("ALONE -> ALONE: T later again");
    CHECK_EQ(tokenpool_client_take(&c, 2 * S, 1), QOS_ELIMIT);
    CHECK_EQ(tokenpool_client_take(&c, 2 * S + S / 2, 40), QOS_OK);
    CHECK_CONTEXT("ALONE -> WATCH: an epoch began; what was spent is an advance on it");
    rig_run(&monitor, 2 * S + S / 2 + MS);
    rig_tick(&c, 3 * S);
    CHECK(rig_client(&c).running && rig_client(&c).epoch == 2 && tokenpool_client_held(&c) == 0);
}

/* The roles, by what tokenpool_monitor_info says: active, and the bound of the running epoch, 0 if it was another's. */
static void test_monitor(void)
{
    static struct tokenpool_monitor second;
    static uint64_t second_memory[512] __attribute__((aligned(64)));
    struct tokenpool_monitor_state s;
    base(0);
    CHECK_CONTEXT("init -> ACTIVE");
    CHECK(rig_info().active && rig_info().bound == 100);
    CHECK_CONTEXT("resume -> TAKING -> HOLDING");
    CHECK_EQ(tokenpool_monitor_resume(&second, second_memory, sizeof second_memory, storage, sizeof storage, &config),
             QOS_OK);
    CHECK(tokenpool_monitor_info(&second, &s) == QOS_OK && !s.active);
    rig_run(&second, MS);
    CHECK(tokenpool_monitor_info(&second, &s) == QOS_OK && s.active && s.bound == 0);
    CHECK_CONTEXT("ACTIVE -> WAITING: the period word is another's");
    rig_run(&monitor, 2 * MS);
    CHECK(!rig_info().active);
    CHECK_CONTEXT("HOLDING -> ACTIVE: the epoch is T old");
    rig_run(&second, S + 2 * MS);
    CHECK(tokenpool_monitor_info(&second, &s) == QOS_OK && s.active && s.bound == 100);
    CHECK_CONTEXT("WAITING -> TAKING -> HOLDING: no heartbeat for lease_ns");
    rig_run(&monitor, S + 3 * MS);
    CHECK(!rig_info().active);
    rig_run(&monitor, S + 40 * MS);
    CHECK(rig_info().active && rig_info().bound == 0);
    CHECK_CONTEXT("HOLDING -> WAITING: another took it");
    CHECK_EQ(tokenpool_monitor_resume(&second, second_memory, sizeof second_memory, storage, sizeof storage, &config),
             QOS_OK);
    rig_run(&second, S + 41 * MS);
    rig_run(&monitor, S + 60 * MS);
    CHECK(!rig_info().active);
}

int main(void)
{
    check_begin("unit/tokenpool_states");
    test_engine();
    test_rest();
    test_alone();
    test_monitor();
    return check_end();
}
