// proves: each arrow that tokenpool.h lists of the engine's nine states and the monitor's eight roles is taken by its
// proves: name (tests/build/arrows.sh compares the lists); the state is seen from outside, by the next operation
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

static void another_storage(uint64_t now)
{
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    rig_run(&monitor, now);
    tokenpool_client_hint(&a);
    CHECK_EQ(next(now), WATCH);
    answer();
    CHECK(rig_client(&a).stale && tokenpool_client_next_ns(&a, now, 1) != QOS_NEVER);
}

/* A take of n: it finds that another engine has the slot. */
static void fenced(uint64_t now, uint64_t n)
{
    struct tokenpool_client b;
    CHECK_EQ(tokenpool_client_attach(&b, 0, 0, storage, sizeof storage), QOS_OK);
    tokenpool_client_run(&b, now, 0);
    CHECK_EQ(tokenpool_client_take(&a, now, n), QOS_EAGAIN);
    CHECK(tokenpool_client_next(&a, now, n, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    answer();
    CHECK_EQ(next(now + MS), FENCED);
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
    fenced(MS, 30); /* more than it may spend before it reports */
    CHECK_CONTEXT("OPEN -> FENCED: another engine got the slot in the epoch before");
    base(0);
    hold(0);
    CHECK_EQ(tokenpool_client_attach(&b, 0, 0, storage, sizeof storage), QOS_OK);
    tokenpool_client_run(&b, MS, 0);
    rig_run(&monitor, S);
    tokenpool_client_hint(&a);
    CHECK_EQ(next(S), WATCH);
    answer();
    CHECK_EQ(next(S), TERMS);
    answer();
    CHECK_EQ(next(S), OPEN);
    answer();
    CHECK_EQ(next(S + MS), FENCED);
    CHECK_CONTEXT("HOLD -> OUT: another storage");
    base(0);
    hold(0);
    another_storage(MS);
    CHECK_CONTEXT("WATCH -> OUT: another storage");
    base(0);
    another_storage(0);
}

/* It has tokens, none of them in hand: the next operation of a take says which state. */
static bool takes_by(uint64_t now, enum tokenpool_kind kind, uint64_t offset_bytes)
{
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_EAGAIN);
    CHECK(rig_client(&a).running);
    return tokenpool_client_next(&a, now, 1, &op) && op.kind == kind && op.offset_bytes == offset_bytes;
}

static void run(uint64_t now)
{
    while (tokenpool_client_next(&a, now, 0, &op))
        answer();
}

/* To REST. Returns the time. */
static uint64_t rest(uint32_t flags)
{
    uint64_t now;
    base(flags);
    hold(0);
    for (now = MS; now < S / 8 + 4 * MS; now += MS)
        run(now);
    CHECK_EQ(storage[tokenpool_storage_report(2, 0) / 8] >> 52 & 3, 0);
    return now;
}

static void test_rest(void)
{
    const uint64_t report = tokenpool_storage_report(2, 0);
    uint64_t now;
    base(0);
    hold(0);
    CHECK_EQ(tokenpool_client_take(&a, 0, 1), QOS_OK);
    tokenpool_client_complete(&a, 1);
    run(MS);
    CHECK_CONTEXT("HOLD -> REST: no take for T/8");
    for (now = MS; (storage[report / 8] >> 52 & 3) && now < S; now += MS)
        run(now);
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
    CHECK_EQ(storage[report / 8] >> 26 & TOKENPOOL_TOKENS_MAX, 1 + 10); /* others can have the rest */

    CHECK_CONTEXT("OPEN -> REST: no take for T; REST -> WATCH: another epoch");
    for (now += MS; now < 3 * S + 5 * MS; now += MS) {
        rig_run(&monitor, now);
        run(now);
    }
    CHECK(rig_client(&a).epoch == 4 && (storage[report / 8] >> 52 & 3) == 0);
    CHECK(takes_by(now, TOKENPOOL_COMPARE_SWAP, report));
    CHECK_CONTEXT("REST -> OUT: another storage");
    another_storage(rest(0));
    CHECK_CONTEXT("REST -> FENCED: another engine has the slot");
    fenced(rest(0), 1);

    CHECK_CONTEXT("OPEN -> RISE: from the report of one that rested");
    now = rest(0);
    attach(0);
    while (tokenpool_client_next(&a, now, 1, &op) && !rig_client(&a).running)
        answer();
    CHECK(op.kind == TOKENPOOL_READ && tokenpool_client_held(&a) == 40); /* S is exact */
    answer();
    while (tokenpool_client_next(&a, now, 1, &op))
        answer();
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_OK);
}

/* Who rises after its final report has told S again: beyond X it reports first, or the next engine has that, too. */
static void test_rise_at_the_end(void)
{
    const uint64_t report = tokenpool_storage_report(2, 0), full = UINT64_C(1) << 58;
    uint64_t now;
    base(0);
    hold(0);
    for (now = MS; (storage[report / 8] >> 52 & 15) != 8 && now < 3 * S; now += MS / 4) { /* final, rests */
        rig_run(&monitor, now);
        run(now);
    }
    now -= S / 2; /* its clock goes back */
    CHECK_EQ(next(now), WATCH);
    answer();
    CHECK(takes_by(now, TOKENPOOL_COMPARE_SWAP, report));
    answer();
    CHECK(tokenpool_client_next(&a, now, 40, &op) && op.kind == TOKENPOOL_READ);
    tokenpool_client_done(&a, full | (storage[TOKENPOOL_OFFSET_POOL / 8] & 0xfffff000u)); /* all of R */
    CHECK(tokenpool_client_next(&a, now, 40, &op) && op.offset_bytes == report);
    CHECK_EQ(tokenpool_client_take(&a, now, 11), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_take(&a, now, 10), QOS_OK); /* X */
    answer();
    CHECK_EQ(tokenpool_client_take(&a, now, 30), QOS_OK);
}

/* An engine without demand, behind a transport that answers after T / 20, but with demand in the last T / 40 of epochs
 * from the third to `last`. It is called until `until_ns`; restarts: each epoch has a new one near its end. After how many
 * epochs is it silent? */
static uint64_t silent_at(uint64_t last, uint64_t until_ns, bool restarts)
{
    uint64_t now, answer_ns = 0, answer_value = 0, nth;
    rig_config(2, 10, 100, 0);
    config.silent_periods = 1;
    rig_init();
    rig_join(0, 40, 0);
    attach(0);
    for (now = 0; now <= 7 * S; now += MS) {
        rig_run(&monitor, now);
        if (rig_slot(0).silent)
            return now / S;
        if (now >= until_ns)
            continue;
        nth = now / S + 1;
        if (restarts && now % S == S - 225 * MS) { /* its fifth operation begins */
            attach(0);
            answer_ns = 0;
        }
        if (answer_ns && answer_ns <= now) {
            tokenpool_client_done(&a, answer_value);
            answer_ns = 0;
        }
        if (tokenpool_client_next(&a, now, nth >= 3 && nth <= last && now % S >= S - S / 40, &op)) {
            answer_value = tokenpool_storage_run(storage, &op);
            answer_ns = now + S / 20;
        }
    }
    return 0;
}

/* A report that it rises takes the place of that of the last quarter. It excuses one silence, of who then dies, too. */
static void test_rise_is_no_silence(void)
{
    CHECK_EQ(silent_at(3, QOS_NEVER, false), 0);
    CHECK_EQ(silent_at(3, 3 * S, false), 4);
    CHECK_EQ(silent_at(7, QOS_NEVER, true), 4);
}

/* From REST to ALONE: it takes what it may before it reports again. */
static uint64_t alone(void)
{
    uint64_t now;
    CHECK_CONTEXT("REST -> ALONE: T and an eighth without a monitor");
    for (now = rest(TOKENPOOL_GO_ON); now < S + S / 4; now += MS)
        run(now);
    CHECK_EQ(tokenpool_client_take(&a, now, 10), QOS_OK);
    CHECK_EQ(rig_client(&a).epoch, 1);
    return now;
}

static void test_alone(void)
{
    struct tokenpool_client c;
    uint64_t now = alone();
    CHECK_CONTEXT("ALONE -> FENCED: another engine has the slot");
    fenced(now, 30);
    now = alone();
    CHECK_CONTEXT("ALONE -> ALONE: the answer of a report comes later, and gives no leave to spend");
    CHECK(tokenpool_client_next(&a, now, 11, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    CHECK_EQ(tokenpool_client_take(&a, now += S + S / 8, 1), QOS_EAGAIN);
    answer();
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_EAGAIN);
    run(now);
    CHECK_EQ(tokenpool_client_take(&a, now, 10), QOS_OK);
    now = alone();
    CHECK_CONTEXT("ALONE -> OUT: another storage");
    another_storage(now);
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

/* The monitor's roles are seen by the next operation and by tokenpool_monitor_info: active, and the bound of the running
 * epoch, 0 if it was another's. */
static struct tokenpool_monitor second;
static uint64_t second_memory[512] __attribute__((aligned(64)));

static void resume(void)
{
    CHECK_EQ(tokenpool_monitor_resume(&second, second_memory, sizeof second_memory, storage, sizeof storage, &config),
             QOS_OK);
}

enum act { NONE, LOOK, START, SET, TAKE };
static enum act act(struct tokenpool_monitor *m, uint64_t now)
{
    if (!tokenpool_monitor_next(m, now, &op))
        return NONE;
    if (op.kind == TOKENPOOL_READ)
        return LOOK;
    if (tokenpool_word_epoch(op.operand) != tokenpool_word_epoch(op.compare))
        return START;
    return ((op.operand ^ op.compare) & 0x400u) ? TAKE : SET;
}

static bool has(const struct tokenpool_monitor *m, uint64_t bound)
{
    struct tokenpool_monitor_state info;
    return tokenpool_monitor_info(m, &info) == QOS_OK && info.active && info.bound == bound;
}

static void replied(struct tokenpool_monitor *m)
{
    tokenpool_monitor_done(m, tokenpool_storage_run(storage, &op));
}

/* The answer is lost; the operation was performed, or not. */
static void lost(struct tokenpool_monitor *m, bool performed)
{
    if (performed)
        (void)tokenpool_storage_run(storage, &op);
    tokenpool_monitor_fail(m);
}

static void claim(uint64_t n)
{
    storage[TOKENPOOL_OFFSET_POOL / 8] -= n << 32;
}

static void test_own_epochs(void)
{
    unsigned performed;
    uint64_t now = 0, begin;
    rig_config(2, 10, 100, 0);
    rig_init();
    rig_join(0, 40, 0);
    CHECK_CONTEXT("NEW -> OPENING: at once");
    CHECK(has(&monitor, 0) && act(&monitor, now) == START);
    CHECK_CONTEXT("OPENING -> ACTIVE: swapped");
    replied(&monitor);
    CHECK(has(&monitor, 100) && act(&monitor, now) == NONE);
    CHECK_CONTEXT("ACTIVE -> OPENING: the epoch is T old; again after a claim");
    CHECK_EQ(act(&monitor, now += S), START);
    claim(10);
    replied(&monitor);
    CHECK(rig_info().epoch == 1 && act(&monitor, now) == START);
    replied(&monitor);
    CHECK_EQ(act(&monitor, now), NONE);
    for (performed = 0; performed < 2; performed++) {
        CHECK_CONTEXT("OPENING -> ASKING: the answer is lost, performed %u", performed);
        CHECK_EQ(act(&monitor, now += S), START);
        lost(&monitor, performed != 0);
        CHECK_EQ(act(&monitor, now), NONE);
        CHECK_EQ(act(&monitor, now += MS), LOOK);
        replied(&monitor);
        CHECK_CONTEXT("ASKING -> ACTIVE: performed; ASKING -> OPENING: not; here %u", performed);
        CHECK_EQ(act(&monitor, now), performed ? NONE : START);
        if (!performed)
            replied(&monitor);
        CHECK(act(&monitor, begin = now) == NONE && has(&monitor, 100) && rig_info().epoch == 3 + performed);
        CHECK_CONTEXT("ACTIVE -> UNSURE: the answer of a SET is lost, performed %u", performed);
        claim(30);
        CHECK_EQ(act(&monitor, now += S / 2), LOOK);
        replied(&monitor);
        CHECK_EQ(act(&monitor, now), SET);
        lost(&monitor, performed != 0);
        CHECK_EQ(act(&monitor, now), NONE);
        CHECK_CONTEXT("UNSURE -> ACTIVE: a look tells, performed %u", performed);
        CHECK_EQ(act(&monitor, now += S / 8), LOOK);
        replied(&monitor);
        CHECK(has(&monitor, 100) && rig_info().claimed == 30 && act(&monitor, now) == SET);
        replied(&monitor);
        now = begin;
    }
}

static void test_takeovers(void)
{
    struct tokenpool_monitor_state state;
    uint64_t now = 0;
    base(0);
    CHECK_CONTEXT("TAKING -> HOLDING: swapped, again after a claim");
    resume();
    CHECK(!tokenpool_monitor_info(&second, &state) && !has(&second, 0));
    CHECK_EQ(act(&second, now += MS), LOOK);
    replied(&second);
    CHECK_EQ(act(&second, now), TAKE);
    claim(10);
    replied(&second);
    CHECK(!has(&second, 0) && act(&second, now) == TAKE);
    replied(&second);
    CHECK(has(&second, 0));
    CHECK_CONTEXT("ACTIVE -> WAITING: the period word is another's");
    rig_run(&monitor, now += MS);
    CHECK(!rig_info().active);
    CHECK_CONTEXT("HOLDING -> OPENING: the epoch is T old");
    rig_run(&second, now);
    CHECK_EQ(act(&second, now += S), START);
    replied(&second);
    CHECK(has(&second, 100));
    CHECK_CONTEXT("WAITING -> TAKING: no heartbeat for lease_ns");
    rig_run(&monitor, now += MS);
    CHECK(!rig_info().active);
    rig_run(&monitor, now += 20 * MS);
    CHECK(has(&monitor, 0));
    CHECK_CONTEXT("HOLDING -> WAITING: another took it");
    resume();
    rig_run(&second, now += MS);
    rig_run(&monitor, now += 20 * MS);
    CHECK(!rig_info().active && has(&second, 0));
    CHECK_CONTEXT("TAKING -> NEW: no epoch yet; OPENING -> WAITING: another took it");
    rig_init();
    CHECK_EQ(act(&monitor, now), START);
    resume();
    CHECK_EQ(act(&second, now), LOOK);
    replied(&second);
    CHECK_EQ(act(&second, now), TAKE);
    replied(&second);
    CHECK(has(&second, 0) && act(&second, now) == START);
    op.compare = 0; /* the other one's */
    tokenpool_monitor_done(&monitor, storage[TOKENPOOL_OFFSET_POOL / 8]);
    CHECK(!rig_info().active);
}

/* Whatever it does not know, the period word is another's. */
static void test_replaced(void)
{
    unsigned set;
    for (set = 0; set < 2; set++) {
        CHECK_CONTEXT("UNSURE -> WAITING, ASKING -> WAITING: another took it; here %u", set);
        base(0);
        claim(30);
        if (set) {
            CHECK_EQ(act(&monitor, S / 2), LOOK);
            replied(&monitor);
        }
        CHECK_EQ(act(&monitor, set ? S / 2 : S), set ? SET : START);
        lost(&monitor, false);
        resume();
        rig_run(&second, S);
        CHECK_EQ(act(&monitor, S + MS), LOOK);
        replied(&monitor);
        CHECK(!rig_info().active);
    }
}

int main(void)
{
    check_begin("unit/tokenpool_states");
    test_engine();
    test_rest();
    test_rise_at_the_end();
    test_rise_is_no_silence();
    test_alone();
    test_own_epochs();
    test_takeovers();
    test_replaced();
    return check_end();
}
