// proves: tokens per epoch stay within the bound, epochs start T apart, and the pool recovers within a stated number
// proves: of periods: when engines sleep for any time, clocks jump, monitors pause, run twice, restart every 10 ms,
// proves: lose an answer or die, storages are initialized again, or slots get new clients
// variants: native san i386
#include "unit/tokenpool_rig.h"

static struct tokenpool_monitor second;
static uint64_t second_memory[512] __attribute__((aligned(64)));

static void base(uint32_t flags)
{
    rig_config(2, 100, 10000, flags);
    config.silent_periods = 0;
    rig_init();
}

static uint64_t spend(struct tokenpool_client *c, uint64_t now_ns, uint64_t most)
{
    uint64_t n = 0;
    while (n < most && tokenpool_client_take(c, now_ns, 1) == QOS_OK)
        n++;
    tokenpool_client_complete(c, n);
    return n;
}

static void resume(struct tokenpool_monitor *m, uint64_t *mem)
{
    CHECK_EQ(tokenpool_monitor_resume(m, mem, sizeof second_memory, storage, sizeof storage, &config), QOS_OK);
}

/* The loop of the header's first page: take and complete, at any times. Client A takes once, sleeps five periods, and
 * returns with a burst. Client B takes all that it can get. */
static void test_take_is_enough(void)
{
    struct tokenpool_client a, b;
    uint64_t p, i, now = 1000, ga, gb;
    base(0);
    rig_join(0, 6000, 0);
    rig_join(1, 3000, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    tokenpool_client_set_queued(&b, TOKENPOOL_BACKLOGGED);
    for (p = 0; p < 8; p++) {
        for (i = ga = gb = 0; i < 1000; i++, now += MS) {
            rig_run(&monitor, now);
            gb += spend(&b, now, 40);
            if ((p == 0 && i == 0) || (p == 5 && i >= 10))
                ga += spend(&a, now, p ? 40 : 1);
        }
        CHECK_CONTEXT("period %" PRIu64, p);
        CHECK_LE(ga + gb, 2 * 10000); /* a window of T; the engines' epochs differ from the monitor's by a tick */
        CHECK(p == 0 || ga + gb <= 10000 + 100);
    }
    /* A client that uses a sixth of its reservation, one I/O each millisecond, is not declared dead. */
    base(0);
    rig_join(0, 6000, 0);
    rig_engine(&a, 0);
    for (p = 0, now = 1000; p < 10; p++) {
        for (i = ga = 0; i < 1000; i++, now += MS) {
            rig_run(&monitor, now);
            ga += spend(&a, now, 1);
        }
        CHECK_CONTEXT("period %" PRIu64, p);
        CHECK(!rig_slot(0).silent);
        CHECK_GE(ga, 990);
    }
}

/* A monitor that took the storage over does not change the pool of the running period, and starts the next one in
 * time. */
static void test_holding(void)
{
    struct tokenpool_monitor_state info;
    uint64_t now;
    base(0);
    rig_join(0, 6000, 0);
    rig_run(&monitor, 0);
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(100) << 32;
    resume(&second, second_memory);
    for (now = MS; now < 5 * S; now += MS) {
        rig_run(&second, now);
        if (tokenpool_word_epoch(storage[TOKENPOOL_OFFSET_POOL / 8]) != 1)
            break;
        CHECK_EQ(rig_pool(), 3900);
    }
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK(info.active);
    CHECK_EQ(info.epoch, 2);
    CHECK_WITHIN(now, S, 3 * S);
}

/* A monitor that takes back a storage which it had lost counts silent periods from then on, and I/Os of another client
 * that got the slot meanwhile from its first one on. */
static void test_taken_back(void)
{
    struct tokenpool_client a;
    struct qos_stats stats;
    uint64_t now, silent_ns = 0;
    base(0);
    config.silent_periods = 3;
    rig_init();
    rig_join(0, 6000, 0);
    rig_join(1, 1000, 0);
    rig_engine(&a, 0);
    for (now = 0; now < 2 * S + S / 2; now += MS) { /* slot 1 is silent for two periods that count */
        rig_run(&monitor, now);
        (void)spend(&a, now, 1);
    }
    CHECK(!rig_slot(1).silent);
    resume(&second, second_memory);
    for (; now < 4 * S; now += MS) {
        rig_run(&second, now);
        if (now == 3 * S + S / 2) {
            CHECK_EQ(tokenpool_monitor_leave(&second, 0), QOS_OK);
            CHECK_EQ(tokenpool_monitor_join(&second, 0, 6000, 0, NULL), QOS_OK);
        }
    }
    for (; now < 11 * S && !silent_ns; now += MS) { /* the second one is dead */
        rig_run(&monitor, now);
        silent_ns = rig_info().active && rig_slot(1).silent ? now : 0;
    }
    CHECK_GE(silent_ns, 7 * S); /* it takes the storage after 4, where an epoch begins: three of them */
    CHECK_EQ(tokenpool_monitor_stats(&monitor, 0, &stats), QOS_OK);
    CHECK_EQ(stats.granted, 0);
}

/* An engine that did not run for any number of periods recovers within one. */
static void test_sleep(void)
{
    static const uint64_t gaps[] = {1, 100, 32767, 32768, 40000, 65535, 65536, 1048574, 1048575, 1048576, 3000000};
    unsigned g, n = sizeof gaps / sizeof gaps[0];
    for (g = 0; g < n - (check_scaled(1000) < 1000 ? 4 : 0); g++) { /* the last four only natively */
        struct tokenpool_client a;
        uint64_t now = 0, i, wait = 0;
        rig_config(1, 100, 10000, 0);
        config.period_ns = 800;
        config.check_ns = 100;
        rig_init();
        rig_join(0, 6000, 0);
        rig_engine(&a, 0);
        rig_run(&monitor, now);
        rig_tick(&a, now);
        CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_OK);
        for (i = 0; i < gaps[g]; i++)
            rig_run(&monitor, now += config.period_ns);
        for (wait = 0; wait < 20 && tokenpool_client_take(&a, now, 1) != QOS_OK; wait++)
            rig_run(&monitor, now += config.check_ns);
        CHECK_CONTEXT("%" PRIu64 " periods", gaps[g]);
        CHECK_LE(wait, 10);
    }
}

/* A client finds the pool empty and stalls while the monitor fills it thousands of times: then it sees the tokens at
 * once. */
static void test_wake_up(void)
{
    static const uint64_t fills[] = {1, 2047, 2048, 4095, 4096, 8192};
    unsigned f;
    for (f = 0; f < sizeof fills / sizeof fills[0]; f++) {
        struct tokenpool_client a;
        uint64_t now = MS, i, k = 60000;
        rig_config(2, 10, 60000, 0);
        config.period_ns = 60 * S;
        config.check_ns = MS;
        rig_init();
        rig_join(0, 0, 0);
        rig_join(1, 60000, 0);
        rig_engine(&a, 0);
        rig_run(&monitor, 0);
        rig_tick(&a, 0);
        CHECK_EQ(tokenpool_client_take(&a, 0, 1), QOS_EAGAIN);
        CHECK_EQ(rig_pool(), -10);
        for (i = 0; i < fills[f]; i++) { /* client 1 returns tokens, and others take them */
            rig_report(1, rig_info().epoch, 0, k -= 6, 0);
            rig_run(&monitor, now += MS);
            if (i + 1 < fills[f])
                storage[TOKENPOOL_OFFSET_POOL / 8] &= UINT32_MAX;
        }
        CHECK_CONTEXT("%" PRIu64 " fills", fills[f]);
        CHECK(rig_pool() > 0);
        CHECK_EQ(tokenpool_client_take(&a, now += MS, 1), QOS_OK);
    }
}

/* The engine's clock goes back by an hour or forward by a day: it recovers within a period and no tokens are added. */
static void test_engine_clock(void)
{
    static const uint64_t back[2] = {3600, 0}, forward[2] = {0, 86400};
    unsigned k, p;
    for (k = 0; k < 2; k++) {
        struct tokenpool_client a;
        uint64_t now = 7200 * S, i, got = 0;
        base(0);
        rig_join(0, 6000, 6000);
        rig_engine(&a, 0);
        tokenpool_client_run(&a, now - MS / 8, 0);
        rig_run(&monitor, now);
        rig_tick(&a, now);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        CHECK_EQ(spend(&a, now, 1000), 1000);
        for (p = 0; p < 4; p++) {
            for (i = 0, got = 0; i < 1000; i++) {
                now += MS;
                rig_run(&monitor, now);
                got += spend(&a, now - back[k] * S + forward[k] * S, 100);
            }
            CHECK_CONTEXT("jump %u, period %u", k, p);
            CHECK_LE(got, (p ? 6000 : 5000) + 100); /* the last tick may belong to the next period */
            CHECK_GE(got, p ? 5900 : 0);            /* the first one, too */
        }
    }
}

/* Each has its own clock, 1e-4 fast or slow: epochs stay within the bound, and reservations are met. */
static void test_drift(void)
{
    struct tokenpool_client a, b;
    uint64_t p, now = 0, ga, gb;
    base(0);
    rig_join(0, 5000, 0);
    rig_join(1, 5000, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
    tokenpool_client_set_queued(&b, TOKENPOOL_BACKLOGGED);
    for (p = 0; p < 30; p++) {
        uint64_t epoch = rig_info().epoch;
        ga = gb = 0;
        do {
            now += MS;
            rig_run(&monitor, now);
            if (rig_info().epoch != epoch)
                break;
            ga += spend(&a, now + now / 10000, 20);
            gb += spend(&b, now - now / 10000, 20);
        } while (true);
        CHECK_CONTEXT("period %" PRIu64, p);
        CHECK_LE(ga + gb, 10000);
        CHECK(p == 0 || (ga >= 5000 && gb >= 5000));
    }
}

/* A client that is descheduled at the start of each period, for up to half of it, loses nothing that it can still use. */
static void test_late_start(void)
{
    uint64_t late, p, i, now;
    for (late = 0; late <= 500; late += 50) {
        struct tokenpool_client a, b;
        uint64_t got = 0;
        base(0);
        rig_join(0, 6000, 6000);
        rig_join(1, 3000, 0);
        rig_engine(&a, 0);
        rig_engine(&b, 1);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        tokenpool_client_set_queued(&b, TOKENPOOL_BACKLOGGED);
        for (p = 0, now = 1000; p < 20; p++)
            for (i = got = 0; i < 1000; i++, now += MS) {
                rig_run(&monitor, now);
                (void)spend(&b, now, 50);
                if (i >= late)
                    got += spend(&a, now, 50);
                CHECK_CONTEXT("%" PRIu64 " ms late, period %" PRIu64, late, p);
                CHECK(i != 999 || p == 0 || got == 6000);
            }
    }
}

/* Some readings of the monitor's clock are old, by 3 ms or by T / 4: epochs are T long. A step back of T / 8: that epoch
 * is as much longer, and the heartbeat goes on. */
static void test_old_readings(void)
{
    static const uint64_t old[] = {1, 3 * MS, S / 4};
    uint64_t i, now, epoch, began, beat;
    unsigned k;
    for (k = 0; k < 3; k++) {
        base(0);
        epoch = began = 0;
        for (i = 0; i < 800; i++) {
            now = 100 * S + i * 5 * MS;
            CHECK_CONTEXT("%" PRIu64 " ns old, step %" PRIu64, old[k], i);
            rig_run(&monitor, i % 7 == 3 ? now - old[k] : now);
            if (rig_info().epoch == epoch)
                continue;
            CHECK(epoch == 0 || (now - began >= S && now - began <= S + 5 * MS));
            epoch = rig_info().epoch;
            began = now;
        }
        CHECK_EQ(epoch, 4);
    }
    base(0);
    rig_run(&monitor, 100 * S);
    rig_run(&monitor, 100 * S);
    rig_run(&monitor, 100 * S + S / 2);
    epoch = rig_info().epoch;
    for (i = 0, beat = 0; i < 120; i++) { /* of 125 that pass again */
        now = 100 * S + S / 2 - S / 8 + i * MS;
        rig_run(&monitor, now);
        CHECK_LE(tokenpool_monitor_next_ns(&monitor, now), now + MS);
        CHECK_GE(tokenpool_monitor_next_ns(&monitor, now), now + 1);
    }
    beat = storage[TOKENPOOL_OFFSET_BEAT / 8] & ((UINT64_C(1) << 44) - 1);
    CHECK_EQ(beat, S / 2);
    rig_run(&monitor, 101 * S - 1);
    CHECK_EQ(rig_info().epoch, epoch);
    rig_run(&monitor, 101 * S);
    CHECK_EQ(rig_info().epoch, epoch + 1);
}

/* The monitor's clock goes back by an hour: the period goes on. Forward by a day: one period starts early. */
static void test_monitor_clock(void)
{
    uint64_t epoch;
    base(0);
    rig_run(&monitor, 7200 * S);
    rig_run(&monitor, 7200 * S + S / 2);
    epoch = rig_info().epoch;
    rig_run(&monitor, 3600 * S);
    CHECK_EQ(rig_info().epoch, epoch);
    CHECK(tokenpool_monitor_next_ns(&monitor, 3600 * S) <= 3600 * S + MS);
    rig_run(&monitor, 3600 * S + S / 2 - 1);
    CHECK_EQ(rig_info().epoch, epoch);
    rig_run(&monitor, 3600 * S + S / 2);
    CHECK_EQ(rig_info().epoch, epoch + 1);
    rig_run(&monitor, 86400 * S);
    CHECK_EQ(rig_info().epoch, epoch + 2);
    rig_run(&monitor, 86400 * S + S - 1);
    CHECK_EQ(rig_info().epoch, epoch + 2);
}

/* A monitor that restarts again and again: in any window of T at most twice the bound, and epochs go on. */
static void test_restarts(void)
{
    static const uint64_t every[] = {1000, 500, 100, 50, 10};
    unsigned e;
    for (e = 0; e < 5; e++) {
        struct tokenpool_client a;
        uint64_t now = 0, i, window[10] = {0}, sum = 0, epochs, total = 0;
        base(0);
        rig_join(0, 9000, 0);
        rig_engine(&a, 0);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        for (i = 0; i < 10000; i++, now += MS) {
            uint64_t got;
            if (i && i % every[e] == 0)
                resume(&monitor, memory);
            rig_run(&monitor, now);
            got = spend(&a, now, 2000);
            total += got;
            if (i % 100 == 0) {
                sum -= window[i / 100 % 10];
                window[i / 100 % 10] = 0;
            }
            window[i / 100 % 10] += got;
            sum += got;
            CHECK_LE(sum, 2 * 10000);
        }
        epochs = tokenpool_word_epoch(storage[TOKENPOOL_OFFSET_POOL / 8]);
        CHECK_CONTEXT("every %" PRIu64 " ms: %" PRIu64 " tokens, %" PRIu64 " epochs", every[e], total, epochs);
        CHECK_LE(epochs, 11);
        CHECK_GE(epochs, 8);
        CHECK_LE(total, epochs * 10000);
        CHECK(rig_slot(0).reservation == 9000 && rig_info().lost == 0);
    }
}

/* A monitor pauses, another takes over, the first resumes: at whatever step it paused, it waits. */
static void test_returns(void)
{
    struct tokenpool_client a;
    struct tokenpool_op op;
    struct tokenpool_monitor_state first, other;
    uint64_t now = 0, i, p, g, answer;
    memset(&other, 0, sizeof other);
    base(0);
    rig_join(0, 4000, 0);
    rig_engine(&a, 0);
    tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
    for (p = 0; p < 8; p++) {
        uint64_t done = 0;
        for (i = g = 0; i < 1000; i++, now += MS) {
            if (p == 2 && i == 500)
                resume(&second, second_memory);
            if (p < 2 || p >= 4)
                rig_run(&monitor, now);
            if (p > 2 || (p == 2 && i >= 500))
                rig_run(&second, now);
            done = spend(&a, now, 100);
            g += done;
        }
        CHECK_CONTEXT("second %" PRIu64, p);
        CHECK_LE(g, 10000 + 100);
        CHECK(p < 4 || g >= 9900);
        if (p >= 4) {
            first = rig_info();
            CHECK_EQ(tokenpool_monitor_info(&second, &other), QOS_OK);
            CHECK(!first.active && other.active);
            CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 0, 0, NULL), QOS_ESTALE);
            CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 0, 0, NULL), QOS_ESTALE);
            CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_ESTALE);
        }
    }
    /* The second monitor dies; the first waits, and takes over by itself. */
    for (p = 0; p < 3; p++)
        for (i = g = 0; i < 1000; i++, now += MS) {
            rig_run(&monitor, now);
            g += spend(&a, now, 100);
        }
    CHECK(rig_info().active && rig_info().epoch > other.epoch);
    CHECK_GE(g, 9900);
    /* A swap that the first monitor prepared before its pause arrives after the other's. */
    for (;; now += MS / 8) {
        if (tokenpool_monitor_next(&monitor, now, &op) && op.kind == TOKENPOOL_COMPARE_SWAP)
            break;
        tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
        (void)spend(&a, now, 100);
    }
    resume(&second, second_memory);
    rig_run(&second, now);
    answer = storage[TOKENPOOL_OFFSET_POOL / 8];
    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
    CHECK_EQ(storage[TOKENPOOL_OFFSET_POOL / 8], answer);
    CHECK(!rig_info().active);
}

/* An operation of the monitor gets no answer, performed or not: the monitor goes on. */
static void test_lost_answers(void)
{
    unsigned performed, which;
    for (performed = 0; performed < 2; performed++)
        for (which = 0; which < 40; which++) {
            struct tokenpool_client a;
            struct tokenpool_op op;
            uint64_t now = 0, i, n = 0, g = 0, last;
            base(0);
            rig_join(0, 4000, 0);
            rig_join(1, 4000, 0);
            rig_engine(&a, 0);
            tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
            for (i = 0; i < 4000; i++, now += MS) {
                while (tokenpool_monitor_next(&monitor, now, &op)) {
                    bool lose = n++ == which * 50;
                    uint64_t answer = 0;
                    if (!lose || performed)
                        answer = tokenpool_storage_run(storage, &op);
                    if (lose)
                        tokenpool_monitor_fail(&monitor);
                    else
                        tokenpool_monitor_done(&monitor, answer);
                }
                last = spend(&a, now, 20);
                g += i >= 3000 ? last : 0;
            }
            CHECK_CONTEXT("operation %u lost, %s", which * 50, performed ? "performed" : "not performed");
            CHECK_EQ(rig_info().epoch, 4);
            CHECK_GE(g, 9800);
            CHECK_LE(g, 10100);
        }
}

/* The admissions in the storage are checked: words that no monitor wrote, or that do not fit, are ignored. */
static void test_adoption(void)
{
    const uint64_t admitted = tokenpool_storage_report(2, 0) / 8 - 16;
    unsigned bit;
    base(0);
    rig_join(0, 1000, 0);
    rig_join(1, 2000, 5000);
    rig_run(&monitor, 0);
    storage[admitted] = UINT64_MAX;
    storage[TOKENPOOL_OFFSET_TERMS / 8] = UINT64_MAX; /* not read here */
    resume(&monitor, memory);
    rig_run(&monitor, MS);
    rig_run(&monitor, 2 * S);
    CHECK_EQ(rig_info().lost, 1);
    CHECK(!rig_slot(0).joined && rig_slot(1).joined && rig_slot(1).reservation == 2000 && rig_slot(1).limit == 5000);
    CHECK_EQ(rig_info().reserved, 2000);
    /* Any one bit that changed is noticed. */
    for (bit = 0; bit < 256; bit++) {
        base(0);
        rig_join(0, 1000 + bit, 0);
        rig_join(1, 2000, 5000);
        rig_run(&monitor, 0);
        storage[admitted] ^= UINT64_C(1) << bit % 64;
        resume(&monitor, memory);
        rig_run(&monitor, MS);
        rig_run(&monitor, 2 * S);
        CHECK_CONTEXT("bit %u", bit % 64);
        CHECK(rig_info().lost == 1 && !rig_slot(0).joined && rig_slot(1).joined);
    }
    /* A client that was silent when the monitor was replaced keeps its admission. */
    base(0);
    rig_join(0, 6000, 0);
    rig_run(&monitor, 0);
    rig_run(&monitor, S);
    CHECK(rig_slot(0).silent);
    resume(&monitor, memory);
    rig_run(&monitor, S + MS);
    rig_run(&monitor, 3 * S);
    CHECK(rig_slot(0).joined && rig_slot(0).reservation == 6000);
    CHECK_EQ(rig_info().reserved, 6000);
}

/* init while engines run: they notice and attach again. */
static void test_started_anew(void)
{
    struct tokenpool_client a;
    uint64_t i, now = 0;
    base(0);
    rig_join(0, 3000, 3000);
    rig_engine(&a, 0);
    for (i = 0; i < 300; i++, now += S) {
        rig_run(&monitor, now);
        (void)spend(&a, now, 10);
    }
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    rig_join(0, 3000, 3000);
    rig_run(&monitor, now);
    CHECK_EQ(tokenpool_client_force(&a, now, 1), QOS_ESTALE); /* it looks, too */
    CHECK_EQ(tokenpool_client_take(&a, now, 1), QOS_ESTALE);
    CHECK(rig_client(&a).stale);
    CHECK_EQ(tokenpool_client_attach(&a, 0, rig_slot(0).generation, storage, sizeof storage), QOS_OK);
    CHECK_EQ(spend(&a, now += MS, 5000), 3000);
}

/* The same while the engine has tokens of a period that has not ended: they become void when it sees the new storage.
   */
static void test_started_anew_in_a_period(void)
{
    struct tokenpool_client a;
    uint64_t period;
    base(0);
    rig_join(0, 3000, 3000);
    rig_engine(&a, 0);
    rig_run(&monitor, 0);
    CHECK_EQ(tokenpool_client_take(&a, MS, 10), QOS_OK);
    period = storage[TOKENPOOL_OFFSET_PERIOD / 8];
    storage[TOKENPOOL_OFFSET_PERIOD / 8] = 1; /* no monitor wrote this */
    rig_tick(&a, MS);
    CHECK_EQ(tokenpool_client_take(&a, MS, 1), QOS_OK);
    storage[TOKENPOOL_OFFSET_PERIOD / 8] = period;
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    rig_join(0, 3000, 3000);
    rig_run(&monitor, 2 * MS);
    rig_tick(&a, 2 * MS);
    CHECK_EQ(tokenpool_client_take(&a, 2 * MS, 1), QOS_ESTALE);
}

/* The same, and the engine is about to report before it sees the new storage, whose epoch has the same number. It is told,
 * and who starts then has all of its reservation. */
static void test_reports_to_the_new_storage(void)
{
    struct tokenpool_client a, b;
    unsigned i;
    base(0);
    rig_join(0, 3000, 3000);
    rig_run(&monitor, 0);
    for (i = 0; i < 7; i++) { /* incarnations repeat after seven: that of the new storage's report */
        CHECK_EQ(tokenpool_client_attach(&a, 0, 0, storage, sizeof storage), QOS_OK);
        CHECK_EQ(tokenpool_client_take(&a, 0, 1), QOS_OK);
    }
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    rig_join(0, 3000, 3000);
    rig_run(&monitor, S / 2);
    CHECK_EQ(tokenpool_client_take(&a, S - MS, 400), QOS_ESTALE); /* above X, so it reports first */
    CHECK_EQ(tokenpool_client_attach(&b, 0, rig_slot(0).generation, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, S, 3000), QOS_OK);
}

/* A monitor pauses after it took a storage: the epoch that it found may have begun during the pause. */
static void test_pause_after_a_takeover(void)
{
    struct tokenpool_monitor_state info;
    base(0);
    rig_join(0, 6000, 0);
    rig_run(&monitor, 0);
    rig_run(&monitor, 100 * MS);
    resume(&second, second_memory);
    CHECK_EQ(tokenpool_monitor_join(&second, 1, 1, 0, NULL), QOS_ESTALE); /* not before it has the storage */
    tokenpool_monitor_run(&second, 200 * MS);                             /* the heartbeat shows 100 ms */
    tokenpool_monitor_run(&second, 500 * MS);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK(info.active && info.epoch == 1 && info.start_ns == 400 * MS);
    CHECK_EQ(tokenpool_monitor_join(&second, 1, 4000, 0, NULL), QOS_OK); /* all that client 0 leaves */
    rig_run(&second, 1400 * MS - 1);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK_EQ(info.epoch, 1);
    rig_run(&second, 1400 * MS);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK_EQ(info.epoch, 2);
}

/* A monitor pauses between the swap that starts a period and its announcement. Another monitor reads the pool word before
 * the announcement and takes the storage after it. So it does not know when engines saw the epoch first: the age of the
 * epoch counts from the first time given after the take. */
static void test_announced_late(void)
{
    struct tokenpool_monitor_state info;
    struct tokenpool_op start, take;
    uint64_t answer;
    base(0);
    rig_join(0, 6000, 0);
    rig_run(&monitor, 0);
    while (tokenpool_monitor_next(&monitor, S, &start) && start.kind != TOKENPOOL_COMPARE_SWAP)
        tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &start));
    CHECK_EQ(start.kind, TOKENPOOL_COMPARE_SWAP);
    answer = tokenpool_storage_run(storage, &start);
    resume(&second, second_memory);
    CHECK(tokenpool_monitor_next(&second, 1100 * MS, &take) && take.kind == TOKENPOOL_READ);
    tokenpool_monitor_done(&second, tokenpool_storage_run(storage, &take));
    CHECK(tokenpool_monitor_next(&second, 1200 * MS, &take) && take.kind == TOKENPOOL_COMPARE_SWAP);
    tokenpool_monitor_done(&monitor, answer);
    CHECK_EQ(rig_info().epoch, 2);
    tokenpool_monitor_done(&second, tokenpool_storage_run(storage, &take));
    rig_run(&second, 1500 * MS);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK(info.active && info.epoch == 2);
    CHECK_EQ(info.start_ns, 1500 * MS);
}

/* A monitor pauses between its swaps of the pool and of the period word for two epochs of the other one. It goes on from the
 * epoch that the period word shows: a number that comes twice is an old epoch for who saw the first one. */
static void test_taken_late(void)
{
    struct tokenpool_monitor_state info;
    struct tokenpool_op take;
    uint64_t answer, now;
    base(0);
    rig_join(0, 6000, 0);
    rig_run(&monitor, 0);
    resume(&second, second_memory);
    CHECK(tokenpool_monitor_next(&second, 500 * MS, &take) && take.kind == TOKENPOOL_READ);
    tokenpool_monitor_done(&second, tokenpool_storage_run(storage, &take));
    CHECK(tokenpool_monitor_next(&second, 500 * MS, &take) && take.kind == TOKENPOOL_COMPARE_SWAP);
    answer = tokenpool_storage_run(storage, &take);
    for (now = 500 * MS; now <= 2 * S; now += 100 * MS)
        rig_run(&monitor, now);
    CHECK_EQ(rig_info().epoch, 3);
    tokenpool_monitor_done(&second, answer);
    rig_run(&second, 2500 * MS);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK(info.active && info.epoch == 3);
    rig_run(&second, 3499 * MS);
    CHECK_EQ(tokenpool_word_epoch(storage[0]), 3);
    rig_run(&second, 3500 * MS);
    CHECK_EQ(tokenpool_word_epoch(storage[0]), 4);
}

/* A monitor of a smaller capacity takes over all clients: nobody that was admitted is evicted. */
static void test_adoption_of_too_much(void)
{
    struct tokenpool_monitor_state info;
    rig_config(2, 100, 10000, 0);
    config.client_capacity = 5000;
    rig_init();
    rig_join(0, 5000, 0);
    rig_join(1, 5000, 0);
    rig_run(&monitor, 0);
    config.capacity = 8000;
    resume(&second, second_memory);
    tokenpool_monitor_run(&second, MS);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK(info.active && info.lost == 0);
    CHECK_EQ(tokenpool_monitor_join(&second, 1, 3000, 0, NULL), QOS_EEXIST);
}

/* The monitor pauses between its clock and the operation that uses it: the swap that starts a period, or its heartbeat.
 * An engine spends the tokens of an epoch only before the next one starts, whether that is on time or late. */
static void test_paused(void)
{
    static const uint64_t pauses[] = {0, 1, 50, 100, 500, 999, 1000, 2500};
    unsigned k, late;
    for (late = 0; late < 2; late++)
        for (k = 0; k < sizeof pauses / sizeof pauses[0]; k++) {
            struct tokenpool_client a;
            uint64_t now = 0, i, started[16] = {0}, last_spent[16] = {0}, pause = pauses[k] * MS, epoch;
            base(0);
            rig_join(0, 6000, 0);
            rig_join(1, 3000, 0);
            CHECK_EQ(tokenpool_client_attach(&a, 0, 0, storage, sizeof storage), QOS_OK);
            tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
            for (i = 0; i < 9000; i++, now += MS) {
                struct tokenpool_op op;
                while (tokenpool_monitor_next(&monitor, now, &op)) {
                    uint64_t begin = now, end = now, was = rig_info().epoch;
                    if (late ? i == 700 : was == 2 && now >= started[2] + S) {
                        end += pause;
                        pause = 0;
                    }
                    while (now < end) { /* the engine goes on and reads */
                        tokenpool_client_hint(&a);
                        if (spend(&a, now += MS, 3))
                            last_spent[tokenpool_client_epoch(&a)] = now;
                    }
                    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
                    epoch = rig_info().epoch;
                    if (epoch != was)
                        started[epoch] = now;
                    if (end != begin && spend(&a, now += MS, 3)) /* sees what was just written */
                        last_spent[tokenpool_client_epoch(&a)] = now;
                    CHECK_CONTEXT("late %u, paused %" PRIu64 " ms, epoch %" PRIu64, late, pauses[k], epoch);
                    CHECK(epoch < 2 || started[epoch] - started[epoch - 1] >= S - S / 4096);
                    CHECK(epoch < 2 || last_spent[epoch - 1] <= started[epoch]);
                }
                if ((!late || i >= 700) && spend(&a, now, 3))
                    last_spent[tokenpool_client_epoch(&a)] = now;
                epoch = rig_info().epoch;
                CHECK(epoch < 2 || last_spent[epoch - 1] <= started[epoch]);
            }
            CHECK_GE(rig_info().epoch, 5);
            CHECK(last_spent[rig_info().epoch] > 0);
        }
}

/* A monitor pauses after its swap of the pool word, while an epoch begins and another takes the storage: one of the two
 * is fenced by its next look, though neither has begun an epoch. */
static void test_two_hold(void)
{
    static struct tokenpool_monitor third;
    static uint64_t third_memory[512] __attribute__((aligned(64)));
    struct tokenpool_monitor_state a, b;
    struct tokenpool_op op;
    uint64_t answer;
    base(0);
    rig_run(&monitor, 0);
    resume(&second, second_memory);
    resume(&third, third_memory);
    CHECK(tokenpool_monitor_next(&second, MS, &op) && op.kind == TOKENPOOL_READ);
    tokenpool_monitor_done(&second, tokenpool_storage_run(storage, &op));
    CHECK(tokenpool_monitor_next(&second, MS, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    answer = tokenpool_storage_run(storage, &op);
    rig_run(&monitor, S); /* whose the period word still is */
    rig_run(&third, S + MS);
    tokenpool_monitor_done(&second, answer);
    rig_run(&second, S + 10 * MS);
    rig_run(&third, S + 10 * MS);
    CHECK_EQ(tokenpool_monitor_info(&second, &a), QOS_OK);
    CHECK_EQ(tokenpool_monitor_info(&third, &b), QOS_OK);
    CHECK(a.active && !b.active);
}

/* A client leaves and another joins in its slot: from the next period on the old engine has no tokens. */
static void test_slot_reused(void)
{
    struct tokenpool_client a, b;
    uint64_t ga, gb, now = S;
    base(0);
    rig_join(0, 3000, 3000);
    rig_engine(&a, 0);
    rig_run(&monitor, 0);
    rig_tick(&a, 0);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
    rig_join(0, 9000, 9000);
    CHECK_EQ(tokenpool_client_attach(&b, 0, rig_slot(0).generation, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_attach(&a, 1, rig_slot(0).generation, storage, sizeof storage), QOS_ESTALE);
    rig_engine(&a, 0);
    tokenpool_client_run(&b, 0, 0);
    rig_run(&monitor, now / 2);
    rig_tick(&b, now - MS / 8);
    rig_run(&monitor, now);
    rig_tick(&b, now);
    gb = spend(&b, now, 20000);
    CHECK_EQ(gb, 9000);
    base(0);
    rig_join(0, 3000, 3000);
    rig_engine(&a, 0);
    rig_run(&monitor, 0);
    rig_tick(&a, 0);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
    rig_join(0, 9000, 9000);
    CHECK_EQ(spend(&a, MS, 20000), 375); /* X: a report would be needed for more */
    rig_run(&monitor, S);
    rig_tick(&a, S);
    ga = spend(&a, S, 20000);
    CHECK_EQ(ga, 0);
    CHECK_EQ(tokenpool_client_take(&a, S, 1), QOS_ESTALE);
}

/* No monitor is left: engines stop after their period. With TOKENPOOL_GO_ON they renew their reservations once in T. */
static void test_no_monitor(void)
{
    unsigned go_on, p;
    for (go_on = 0; go_on < 2; go_on++) {
        struct tokenpool_client a, b;
        uint64_t now = 0, i, ga, gb;
        base(go_on ? TOKENPOOL_GO_ON : 0);
        rig_join(0, 4000, 0);
        rig_join(1, 2000, 0);
        rig_engine(&a, 0);
        rig_engine(&b, 1);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        tokenpool_client_set_queued(&b, TOKENPOOL_BACKLOGGED);
        for (p = 0; p < 8; p++) {
            for (i = ga = gb = 0; i < 1000; i++, now += MS) {
                if (p < 2)
                    rig_run(&monitor, now);
                if (p == 5 && i == 500)
                    resume(&second, second_memory);
                if (p > 5 || (p == 5 && i >= 500))
                    rig_run(&second, now);
                ga += spend(&a, now, 50);
                gb += spend(&b, now, 50);
            }
            CHECK_CONTEXT("go on %u, second %u", go_on, p);
            if (p >= 2 && p < 5) {
                CHECK_LE(ga, go_on ? 4000 : 0);
                CHECK_LE(gb, go_on ? 2000 : 0);
                CHECK(!go_on || (ga >= 3900 && gb >= 1900));
            }
            CHECK_LE(ga + gb, 2 * 10000);
            CHECK(p != 7 || ga + gb >= 9900); /* a monitor returns: all is as before */
        }
    }
}

/* Each takeover adds 1024 to the 12 bits of seq: after four in one epoch the first monitor finds its own word again.
 * It goes on with its counts. They are right, as nobody filled the pool meanwhile: the bound and the distance of
 * epochs hold. */
static void test_seq_comes_round(void)
{
    static uint64_t memories[5][512] __attribute__((aligned(64)));
    static struct tokenpool_monitor other[5];
    struct tokenpool_client a;
    uint64_t t, epoch, shown, shown_at, taken;
    unsigned n, i;
    for (n = 3; n <= 5; n++) {
        CHECK_CONTEXT("%u takeovers", n);
        epoch = taken = shown_at = 0;
        rig_config(2, 30, 1000, 0);
        rig_init();
        rig_join(0, 300, 0);
        rig_engine(&a, 0);
        rig_run(&monitor, 0);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        shown = storage[TOKENPOOL_OFFSET_PERIOD / 8] >> 28 & 0xfffff;
        for (t = MS; t < 5 * S; t += MS) {
            if (t < 100 * MS || t > 500 * MS)
                rig_run(&monitor, t);
            for (i = 0; i < n; i++) {
                if (t == (100 + 20 * i) * MS)
                    CHECK_EQ(tokenpool_monitor_resume(&other[i], memories[i], sizeof memories[i], storage,
                                                      sizeof storage, &config),
                             QOS_OK);
                if (t >= (100 + 20 * i) * MS && t < 3 * S)
                    rig_run(&other[i], t);
            }
            if (t == 501 * MS)
                CHECK(
                    !rig_info().active); /* after four takeovers the pool's seq is as it was; the period word is not */
            if ((storage[TOKENPOOL_OFFSET_PERIOD / 8] >> 28 & 0xfffff) != shown) {
                shown = storage[TOKENPOOL_OFFSET_PERIOD / 8] >> 28 & 0xfffff;
                CHECK(t - shown_at >= S - S / 4096);
                shown_at = t;
            }
            while (tokenpool_client_take(&a, t, 1) == QOS_OK) {
                taken = tokenpool_client_epoch(&a) == epoch ? taken + 1 : 1;
                epoch = tokenpool_client_epoch(&a);
                tokenpool_client_complete(&a, 1);
                CHECK(taken <= 1000);
            }
        }
        CHECK(epoch >= 4);
    }
}

/* An engine spends late in its first period without a monitor, all at once in the next one, and dies. The engines after it
 * pay: in no time of T more than twice the capacity is spent. */
static void test_advance_stays(void)
{
    unsigned engines, i;
    for (engines = 1; engines <= 3; engines++) {
        struct tokenpool_client a;
        uint64_t now, n, then = 0;
        CHECK_CONTEXT("engine %u after it", engines);
        rig_config(2, 10, 100, TOKENPOOL_GO_ON);
        rig_init();
        rig_join(0, 80, 0);
        rig_run(&monitor, 0);
        rig_engine(&a, 0);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        CHECK_EQ(spend(&a, 0, 80), 80);
        for (now = MS; now < 2 * S + S / 8; now += MS)
            tokenpool_client_run(&a, now, 0);
        for (n = 0; now < 2 * S + S / 4; now += MS)
            n += spend(&a, now, 100);
        CHECK_EQ(n, 2 * 80);
        for (i = 1; i < engines; i++) { /* those have the pool at most, and die, too */
            CHECK_EQ(tokenpool_client_attach(&a, 0, 0, storage, sizeof storage), QOS_OK);
            n += spend(&a, now, 100);
        }
        rig_run(&monitor, now);
        CHECK_EQ(tokenpool_client_attach(&a, 0, 0, storage, sizeof storage), QOS_OK);
        n += spend(&a, now, 200);
        CHECK_LE(n, 2 * (100 + 5));
        for (; now < 5 * S; now += MS) {
            rig_run(&monitor, now);
            then += now >= 3 * S + S / 2 ? spend(&a, now, 200) : 0;
        }
        CHECK_GE(then, 80); /* once */
    }
}

/* What was spent without a monitor is of the next epoch, also if its client has nothing to do there: the pool has no more
 * than the rest. */
static void test_advance_of_who_rests(void)
{
    struct tokenpool_client a, b;
    uint64_t now, n, alone = 0, then = 0;
    rig_config(2, 10, 10000, TOKENPOOL_GO_ON);
    config.check_ns = S / 8;
    rig_init();
    rig_join(0, 3000, 0);
    rig_join(1, 0, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    for (now = 0; now < 4 * S; now += MS / 4) {
        if (now < S || now >= 2 * S + S / 2)
            rig_run(&monitor, now);
        tokenpool_client_run(&a, now, 0);
        alone += now >= 2 * S + S / 4 && now < 2 * S + S / 2 ? spend(&a, now, 10) : 0;
        n = spend(&b, now, 10000);
        then += tokenpool_client_epoch(&b) == 2 ? n : 0;
    }
    CHECK_GE(alone, 2000);
    CHECK_GE(alone + then, 9900);
    CHECK_LE(alone + then, 10000);
}

/* A monitor that starts again keeps the estimate, and evicts nobody that the grown estimate had admitted. One that was
 * replaced, and does not know it yet, admits nobody and removes nobody. */
static void test_estimate_and_admissions_stay(void)
{
    struct tokenpool_client a;
    struct tokenpool_slot_state slot;
    struct tokenpool_monitor_state info;
    uint64_t now, p;
    base(0);
    config.flags = 0;
    rig_init();
    rig_join(0, 4000, 0);
    rig_engine(&a, 0);
    tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
    for (p = 0, now = 0; p < 12; p++)
        for (; now < (p + 1) * S; now += MS) {
            rig_run(&monitor, now);
            tokenpool_client_complete(&a, spend(&a, now, 40));
        }
    CHECK_GE(rig_info().capacity, 10500);
    rig_join(1, 6300, 0);
    rig_run(&monitor, now);
    resume(&second, second_memory);
    rig_run(&second, now += MS);
    rig_run(&second, now += S);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK_GE(info.capacity, 10500);
    CHECK_EQ(info.lost, 0);
    CHECK_EQ(tokenpool_monitor_slot_info(&second, 1, &slot), QOS_OK);
    CHECK(slot.joined && slot.reservation == 6300);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_ESTALE);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 0, 0, NULL), QOS_ESTALE);
    CHECK_EQ(tokenpool_monitor_slot_info(&second, 0, &slot), QOS_OK);
    CHECK(slot.joined && slot.reservation == 4000);
}

/* An old pool word comes back and the monitor dies: the next one opens no epoch that engines have had. */
static void test_old_pool_word(void)
{
    struct tokenpool_monitor_state info;
    uint64_t old, epoch;
    base(0);
    rig_init();
    rig_join(0, 4000, 0);
    rig_run(&monitor, 0);
    rig_run(&monitor, S);
    old = storage[TOKENPOOL_OFFSET_POOL / 8];
    rig_run(&monitor, 2 * S);
    epoch = rig_info().epoch;
    CHECK_EQ(tokenpool_word_epoch(old) + 1, epoch);
    storage[TOKENPOOL_OFFSET_POOL / 8] = old;
    resume(&second, second_memory);
    rig_run(&second, 2 * S + MS);
    rig_run(&second, 4 * S);
    CHECK_EQ(tokenpool_monitor_info(&second, &info), QOS_OK);
    CHECK_EQ(info.epoch, epoch + 1);
}

/* A client with the pool's key writes its epoch and seq, often: others keep their reservations. */
static void test_hostile_pool(void)
{
    static const uint64_t add[] = {1, 1 << 12, UINT64_C(1) << 32, UINT64_MAX << 32, UINT64_C(0x9e3779b97f4a7c15)};
    struct tokenpool_client a;
    uint64_t now, got;
    size_t k;
    for (k = 0; k < sizeof add / sizeof add[0]; k++) {
        CHECK_CONTEXT("adds %" PRIx64, add[k]);
        base(0);
        rig_join(0, 9000, 9000);
        rig_engine(&a, 0);
        tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
        for (now = got = 0; now < 20 * S; now += MS) {
            rig_run(&monitor, now);
            if (now / MS % 90 == 7)
                storage[TOKENPOOL_OFFSET_POOL / 8] = qos_wrap_add(storage[TOKENPOOL_OFFSET_POOL / 8], add[k]);
            got += spend(&a, now, 20);
        }
        CHECK_EQ(got, 20 * 9000);
    }
}

int main(void)
{
    check_begin("unit/tokenpool_takeover");
    test_take_is_enough();
    test_holding();
    test_taken_back();
    test_sleep();
    test_wake_up();
    test_engine_clock();
    test_drift();
    test_late_start();
    test_old_readings();
    test_monitor_clock();
    test_restarts();
    test_returns();
    test_lost_answers();
    test_adoption();
    test_started_anew();
    test_started_anew_in_a_period();
    test_reports_to_the_new_storage();
    test_pause_after_a_takeover();
    test_announced_late();
    test_taken_late();
    test_adoption_of_too_much();
    test_paused();
    test_two_hold();
    test_slot_reused();
    test_no_monitor();
    test_advance_stays();
    test_advance_of_who_rests();
    test_seq_comes_round();
    test_estimate_and_admissions_stay();
    test_old_pool_word();
    test_hostile_pool();
    return check_end();
}
