// proves: the monitor alone: memory (red zones, one byte short, misaligned), admission, terms, conversion, the guard,
// Basic Haechi, ordered serving, silent clients, report tags, counters
#include "unit/tokenpool_rig.h"

static void base(uint32_t clients, uint64_t capacity, uint32_t flags)
{
    rig_config(clients, 10, capacity, flags);
    config.silent_periods = 0;
    rig_init();
}

static void test_memory(void)
{
    struct check_mem a, b;
    struct tokenpool_monitor m;
    size_t need, room;
    unsigned clients;
    for (clients = 1; clients < 70; clients += 23) {
        struct tokenpool_monitor saved;
        base(2, 100, 0);
        config.clients = clients;
        need = tokenpool_monitor_memsize(&config);
        room = tokenpool_storage_memsize(&config);
        CHECK(need >= clients * 49u && room >= clients * 32u);
        CHECK(need <= clients * 49u + 12 * 64 && room <= clients * 32u + 256 + 4 * 64);
        memset(&m, 0x5a, sizeof m);
        saved = m;
        check_mem_new(&a, need, 64, 0);
        check_mem_new(&b, room, 64, 0);
        memset(b.mem, 0, room);
        CHECK_EQ(tokenpool_monitor_init(&m, NULL, need, b.mem, room, &config), QOS_EINVAL);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, NULL, room, &config), QOS_EINVAL);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need - 1, b.mem, room, &config), QOS_EMEMORY);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, b.mem, room - 1, &config), QOS_EMEMORY);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem + 8, need, b.mem, room, &config), QOS_EALIGN);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, b.mem + 8, room, &config), QOS_EALIGN);
        CHECK_EQ(tokenpool_monitor_resume(&m, a.mem, need, b.mem, room, &config), QOS_ECORRUPT);
        CHECK(memcmp(&m, &saved, sizeof m) == 0);
        CHECK_EQ(tokenpool_monitor_init(&m, a.mem, need, b.mem, room, &config), QOS_OK);
        CHECK_EQ(tokenpool_monitor_join(&m, clients - 1, 100, 0, NULL), QOS_OK);
        rig_run(&m, 5);
        rig_run(&m, 5 + MS);
        rig_run(&m, 5 + S);
        CHECK_EQ(tokenpool_monitor_resume(&m, a.mem, need, b.mem, room, &config), QOS_OK);
        rig_run(&m, 5 + 3 * S);
        config.batch = 11;
        CHECK_EQ(tokenpool_monitor_resume(&m, a.mem, need, b.mem, room, &config), QOS_ECORRUPT);
        CHECK(check_mem_free(&a));
        CHECK(check_mem_free(&b));
    }
}

static void test_admission(void)
{
    uint64_t fits = 0;
    struct tokenpool_slot_state slot;
    struct qos_stats s;
    base(3, 100, 0);
    config.client_capacity = 60;
    rig_init();
    CHECK_EQ(tokenpool_monitor_join(&monitor, 0, 61, 0, &fits), QOS_EADMISSION); /* local constraint */
    CHECK_EQ(fits, 60);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 0, 60, 0, &fits), QOS_OK);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 0, 1, 0, &fits), QOS_EEXIST);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 41, 0, &fits), QOS_EADMISSION); /* aggregate constraint */
    CHECK_EQ(fits, 40);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 41, 0, NULL), QOS_EADMISSION);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 40, 39, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, TOKENPOOL_TOKENS_MAX + 1, 0, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 0, TOKENPOOL_TOKENS_MAX + 1, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 0, QOS_NOTHING, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 3, 1, 0, &fits), QOS_ENOENT);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 40, 40, &fits), QOS_OK);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 1, 41, 41, &fits), QOS_EADMISSION);
    CHECK_EQ(fits, 40);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 1, 10, QOS_UNLIMITED, &fits), QOS_OK);
    CHECK_EQ(rig_slot(1).limit, TOKENPOOL_TOKENS_MAX);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 1, 10, 50, &fits), QOS_OK);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 2, 10, 50, &fits), QOS_ENOENT);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 3, 10, 50, &fits), QOS_ENOENT);
    slot = rig_slot(1);
    CHECK(slot.joined && slot.reservation == 10 && slot.limit == 50 && !slot.alert && !slot.silent);
    CHECK_EQ(slot.generation, 1);
    CHECK_EQ(tokenpool_monitor_slot_info(&monitor, 3, &slot), QOS_ENOENT);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 1), QOS_OK);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 1), QOS_ENOENT);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 3), QOS_ENOENT);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 2, 40, QOS_UNLIMITED, &fits), QOS_OK);
    CHECK_EQ(rig_slot(2).limit, TOKENPOOL_TOKENS_MAX);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 1, 0, 0, &fits), QOS_OK);
    CHECK_EQ(rig_slot(1).generation, 2);
    CHECK_EQ(tokenpool_monitor_stats(&monitor, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.refused, 4);
    CHECK_EQ(s.granted + s.borrowed + s.waited + s.debt, 0);
    CHECK_EQ(tokenpool_monitor_stats(&monitor, 3, &s), QOS_ENOENT);
    /* the size is a multiple of eight words */
    CHECK_EQ(tokenpool_storage_report(8, 0), TOKENPOOL_OFFSET_TERMS + 3 * 64);
    CHECK_EQ(tokenpool_storage_report(9, 0), TOKENPOOL_OFFSET_TERMS + 3 * 128);
    base(2, TOKENPOOL_TOKENS_MAX, 0);
    CHECK_EQ(tokenpool_monitor_join(&monitor, 0, TOKENPOOL_TOKENS_MAX, TOKENPOOL_TOKENS_MAX, &fits), QOS_OK);
}

/* A smaller reservation is always accepted. */
static void test_lowering_a_reservation(void)
{
    uint64_t fits = 0, p;
    rig_config(2, 10, 1000, 0);
    config.flags = 0;
    rig_init();
    rig_join(0, 600, 0);
    rig_join(1, 400, 0);
    for (p = 0; p < 6; p++) {
        rig_run(&monitor, p * S);
        rig_report(0, rig_info().epoch, 2, 600, 100);
        storage[tokenpool_storage_report(2, 0) / 8] ^= UINT64_C(3) << 52; /* it has a queue */
    }
    CHECK(rig_info().capacity < 600);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 601, 0, &fits), QOS_EADMISSION);
    CHECK_EQ(fits, 600);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 599, 0, &fits), QOS_OK);
    CHECK_EQ(tokenpool_monitor_change(&monitor, 0, 0, 0, &fits), QOS_OK);
}

/* Step T2 by hand: C = 100, reservations 60 and 0; client 1 uses the pool, client 0 completes little. */
static void test_conversion(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_monitor_state info;
    struct qos_stats s;
    base(2, 100, 0);
    CHECK_EQ(tokenpool_monitor_next_ns(&monitor, 7), 7);
    rig_join(0, 60, 0);
    rig_join(1, 0, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    rig_run(&monitor, 0);
    CHECK_EQ(tokenpool_monitor_next_ns(&monitor, 0), S / 1024 + 1);
    rig_tick(&a, 0);
    rig_tick(&b, 0);
    CHECK_EQ(rig_pool(), 40);
    rig_run(&monitor, MS);
    CHECK(!rig_info().converting);
    CHECK_EQ(tokenpool_client_take(&b, 2 * MS, 40), QOS_OK);
    tokenpool_client_complete(&b, 40);
    CHECK_EQ(rig_pool(), 0);
    rig_run(&monitor, 2 * MS);
    CHECK(rig_info().converting); /* S2 */
    /* At 0.5 s client 0 has asked for 10 of the 30 tokens that its reservation allows by then: K = 60 - 20. */
    tokenpool_client_set_queued(&a, 10);
    tokenpool_client_run(&a, S / 2, 0);
    tokenpool_client_run(&a, S / 2 + MS, 0); /* by rho at the call before */
    rig_run(&monitor, S / 2);
    info = rig_info();
    CHECK(info.claimed == 40 && info.reserved == 60 && info.bound == 100);
    /* room 100 x 0.5 - 40 = 10, budget 100 - 40 - 40 = 20 */
    CHECK(info.kept == 40 && info.left == 40);
    CHECK_EQ(rig_pool(), 10);
    CHECK_EQ(tokenpool_client_take(&b, S / 2 + MS, 10), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, S / 2 + MS, 1), QOS_EAGAIN);
    tokenpool_client_run(&b, S - MS, 0);
    rig_run(&monitor, S);
    info = rig_info();
    CHECK_EQ(info.last_claimed, 50);
    CHECK_EQ(info.last_put, info.last_claimed);
    CHECK_EQ(info.last_bound, 100);
    CHECK(info.claimed == 0 && info.used == 0 && !info.converting); /* of the new period */
    CHECK_EQ(tokenpool_monitor_stats(&monitor, QOS_NONE, &s), QOS_OK);
    CHECK_EQ(s.granted, 60 + info.last_claimed);
    CHECK_EQ(s.borrowed, info.last_claimed);
    CHECK_EQ(tokenpool_monitor_stats(&monitor, 1, &s), QOS_OK);
    CHECK_EQ(s.granted, 40);
    CHECK_EQ(s.borrowed, 40);
}

/* The pool is lowered when the time left is too short for it; a claim between read and swap counts. */
static void test_lowering(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    base(2, 100, 0);
    rig_join(0, 40, 0);
    rig_join(1, 0, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    rig_run(&monitor, 0);
    rig_tick(&a, 0);
    rig_tick(&b, 0);
    tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
    CHECK_EQ(tokenpool_client_take(&b, MS, 1), QOS_OK);
    CHECK_EQ(rig_pool(), 50);
    tokenpool_client_run(&a, S / 2, 0);
    CHECK(tokenpool_monitor_next(&monitor, S / 2, &op));  /* reads the report */
    CHECK(!tokenpool_monitor_next(&monitor, S / 2, &op)); /* one at a time */
    tokenpool_monitor_run(&monitor, S / 2);
    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
    CHECK(tokenpool_monitor_next(&monitor, S / 2, &op) && op.kind == TOKENPOOL_COMPARE_SWAP); /* 100 x 0.5 - 40 = 10 */
    CHECK(tokenpool_monitor_next_ns(&monitor, S / 2) > S / 2);
    CHECK_EQ(tokenpool_client_take(&b, S / 2, 10), QOS_OK); /* a claim comes between: 9 held, 10 claimed */
    CHECK_EQ(rig_pool(), 40);
    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
    CHECK_EQ(tokenpool_monitor_next_ns(&monitor, S / 2), S / 2);
    rig_run(&monitor, S / 2);
    CHECK_EQ(rig_pool(), 10); /* the same room: 20 claimed, 40 kept, 100 in total */
    CHECK_EQ(rig_info().claimed, 20);
    tokenpool_monitor_done(&monitor, 0); /* an answer without an operation */
    rig_run(&monitor, 3 * S);            /* two missed periods are not repeated */
    CHECK_EQ(rig_info().start_ns, 3 * S);
    CHECK_EQ(rig_info().last_claimed, 20);
    CHECK(tokenpool_monitor_next(&monitor, 4 * S, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    tokenpool_monitor_fail(&monitor); /* it looks again after one check, not at once */
    CHECK_EQ(tokenpool_monitor_next_ns(&monitor, 4 * S), 4 * S + MS);
}

/* Each of the 19 check bits of the period word depends on the epoch. */
static void test_check_bits(void)
{
    uint64_t k, some = 0, all = UINT64_MAX;
    base(2, 100, 0);
    for (k = 0; k < 64; k++) {
        rig_run(&monitor, k * S);
        some |= storage[TOKENPOOL_OFFSET_PERIOD / 8];
        all &= storage[TOKENPOOL_OFFSET_PERIOD / 8];
    }
    CHECK_EQ(some >> 9 & 0x7ffff, 0x7ffff);
    CHECK_EQ(all >> 9 & 0x7ffff, 0);
}

/* What was claimed after the last look of a period: all of it is in last_claimed, and what was used of it in no sum. */
static void test_late_claims(void)
{
    base(2, 100, 0);
    rig_join(0, 60, 0);
    rig_join(1, 0, 0);
    rig_run(&monitor, S);
    rig_run(&monitor, 2 * S - S / 1024);
    CHECK_EQ(rig_info().claimed, 0);
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(30) << 32;
    rig_report(0, rig_info().epoch, 2, 60, 50);
    rig_report(1, rig_info().epoch, 2, 0, 30);
    rig_run(&monitor, 2 * S);
    CHECK_EQ(rig_info().last_claimed, 30);
    CHECK_EQ(rig_info().last_used, 50);
}

/* Who leaves and joins in a period: what it spent leaves the rest of the period to others, and what it did not spend is not
 * issued again. */
static void test_joined_again(uint64_t spent, uint64_t at_ns, int64_t pool)
{
    base(2, 1000, 0);
    rig_join(0, 200, 0);
    rig_join(1, 300, 0);
    rig_run(&monitor, 0);
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(1) << 32; /* a claim: the pool is in use */
    rig_report(0, rig_info().epoch, 0, 200, spent);
    rig_report(1, rig_info().epoch, 0, 0, 0);
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
    rig_join(0, 200, 0);
    rig_run(&monitor, at_ns);
    CHECK_CONTEXT("%" PRIu64 " of 200 tokens spent", spent);
    CHECK_EQ(rig_pool(), pool);
}

/* A swap whose answer was lost: the next look finds that it was performed, and the monitor goes on. */
static void test_lost_answer(void)
{
    struct tokenpool_op op;
    base(2, 100, 0);
    rig_join(0, 60, 0);
    rig_run(&monitor, 0);
    CHECK_EQ(rig_pool(), 40);
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(10) << 32; /* a claim */
    rig_report(0, 1, 1, 10, 0);                               /* 50 are returned */
    rig_run(&monitor, 100 * MS);
    CHECK_EQ(rig_pool(), 80);
    CHECK(tokenpool_monitor_next(&monitor, 800 * MS, &op) && op.kind == TOKENPOOL_READ);
    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
    CHECK(tokenpool_monitor_next(&monitor, 800 * MS, &op) && op.kind == TOKENPOOL_COMPARE_SWAP); /* 20 - 10 */
    (void)tokenpool_storage_run(storage, &op);
    tokenpool_monitor_fail(&monitor);
    CHECK_EQ(rig_pool(), 10);
    tokenpool_monitor_run(&monitor, 801 * MS);
    CHECK(rig_info().active);
    CHECK_EQ(rig_info().put, 19); /* 100 x 0.199, of which 10 are kept: 9 are left in the pool */
    CHECK_EQ(rig_info().claimed, 10);
    CHECK_EQ(rig_pool(), 9);
}

/* A period start whose operation was lost is tried again at the next check. */
static void test_lost_start(void)
{
    struct tokenpool_op op;
    base(2, 100, 0);
    rig_join(0, 60, 0);
    rig_run(&monitor, 0);
    CHECK(tokenpool_monitor_next(&monitor, S, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    tokenpool_monitor_fail(&monitor);
    CHECK_EQ(rig_info().epoch, 1);
    CHECK(tokenpool_monitor_next(&monitor, S + MS, &op) && op.kind == TOKENPOOL_READ);
    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
    CHECK(tokenpool_monitor_next(&monitor, S + MS, &op) && op.kind == TOKENPOOL_COMPARE_SWAP);
    CHECK_EQ(tokenpool_word_epoch(op.operand), 2);
    tokenpool_monitor_done(&monitor, tokenpool_storage_run(storage, &op));
    rig_run(&monitor, S + MS);
    CHECK_EQ(rig_info().epoch, 2);
}

/* 64 slots: all reports of this period are summed; slots without a client add nothing. */
static void test_sums(void)
{
    uint32_t i;
    base(64, 1000, 0);
    for (i = 0; i < 60; i++)
        rig_join(i, 10, 0);
    rig_run(&monitor, 0);
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(10) << 32; /* a claim: from now on reports count */
    for (i = 0; i < 60; i++)
        rig_report(i, i % 3 == 0 ? 7 : 1, 3, 9, 5);
    rig_run(&monitor, S / 2);
    CHECK_EQ(rig_info().used, 40 * 5);
    CHECK_EQ(rig_info().kept, 40 * 9 + 20 * 10);
    CHECK_EQ(rig_info().left, 40 * 4 + 20 * 10);
    rig_run(&monitor, S);
    CHECK_EQ(rig_info().last_used, 40 * 5);
}

/* The generations of a slot are 1..1023, one after the other. */
static void test_generations(void)
{
    uint32_t i;
    base(2, 100, 0);
    for (i = 0; i < 2500; i++) {
        CHECK_EQ(tokenpool_monitor_join(&monitor, 0, 10, 0, NULL), QOS_OK);
        CHECK_EQ(rig_slot(0).generation, i % 127 + 1);
        CHECK_EQ(tokenpool_monitor_leave(&monitor, 0), QOS_OK);
    }
}

/* After one claimed ticket unused reservations go to the pool. */
static void test_first_ticket(void)
{
    base(2, 100, TOKENPOOL_ORDERED);
    rig_join(0, 60, 0);
    rig_run(&monitor, 0);
    rig_run(&monitor, MS);
    CHECK(!rig_info().converting);
    storage[TOKENPOOL_OFFSET_POOL / 8] += UINT64_C(1) << 32;
    rig_run(&monitor, 2 * MS);
    CHECK(rig_info().converting);
}

/* A stray store raises the pool above what the monitor put there: then all tokens of the period's bound count as
 * claimed. */
static void test_stray_pool(void)
{
    base(2, 100, 0);
    rig_join(0, 60, 0);
    rig_run(&monitor, 0);
    rig_report(0, 1, 1, 0, 0); /* the client returned its reservation */
    storage[TOKENPOOL_OFFSET_POOL / 8] += UINT64_C(1000) << 32;
    rig_run(&monitor, S / 2);
    CHECK(rig_pool() <= 0);
    CHECK_EQ(rig_info().claimed, 100);
}

static void test_guard(void)
{
    struct tokenpool_client a, b;
    base(2, 100, TOKENPOOL_GUARD);
    rig_join(0, 60, 0); /* more than an equal share of 50 */
    rig_join(1, 10, 0);
    rig_run(&monitor, 0);
    /* With 30 from the pool client 1 has 40: at equal shares that takes 0.8 s, and client 0 has 40; it completes 20 in
     * the remaining time. */
    CHECK_EQ(rig_pool(), 30);
    base(2, 100, TOKENPOOL_GUARD);
    config.client_capacity = 60; /* it could not complete 20 in the remaining time */
    rig_init();
    rig_join(0, 60, 0);
    rig_join(1, 10, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    rig_run(&monitor, 0);
    CHECK_EQ(rig_pool(), 0);
    rig_tick(&a, 0);
    rig_tick(&b, 0);
    tokenpool_client_set_queued(&a, TOKENPOOL_BACKLOGGED);
    CHECK_EQ(tokenpool_client_take(&b, MS, 10), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, MS, 1), QOS_EAGAIN); /* one failed claim: the pool is used */
    rig_run(&monitor, MS);
    /* At 0.5 s client 0 has spent 30 of 60; 30 exceeds 100 x 0.5 / 2. With 51 spent, 9 do not. */
    CHECK_EQ(tokenpool_client_take(&a, S / 2 - MS, 30), QOS_OK);
    tokenpool_client_run(&a, S / 2, 0);
    rig_run(&monitor, S / 2);
    CHECK(rig_pool() <= 0);
    CHECK_EQ(rig_info().largest, 40); /* 20 of the 30 are reported */
    CHECK_EQ(rig_info().busy, 2);     /* the I/Os of the other are not completed */
    CHECK_EQ(tokenpool_client_take(&a, S / 2 + MS, 21), QOS_OK);
    tokenpool_client_run(&a, S / 2 + 2 * MS, 0);
    rig_run(&monitor, S / 2 + 2 * MS);
    CHECK(rig_pool() > 0);
    CHECK_EQ(tokenpool_client_take(&b, S / 2 + 300 * MS, 1), QOS_OK);
}

/* Unused slots change nothing: with 100 to spare at 400 a period the others get 500. */
static void test_guard_free_slots(void)
{
    uint32_t i;
    base(8, 1000, TOKENPOOL_GUARD);
    config.batch = 30;
    config.client_capacity = 500;
    rig_init();
    for (i = 0; i < 4; i++)
        rig_join(i, i == 0 ? 300 : 0, 0);
    rig_run(&monitor, 0);
    CHECK_EQ(rig_pool(), 500);
}

/* The same at 0.8 T: with 20 to spare at 400 a period the others get 100 tokens. Client 1 still holds the 30 of its
 * claim; its reservation of 100 is completed. */
static void test_guard_held(void)
{
    uint32_t i;
    base(4, 1000, TOKENPOOL_GUARD);
    config.batch = 30;
    config.client_capacity = 500;
    rig_init();
    for (i = 0; i < 4; i++)
        rig_join(i, i == 0 ? 300 : i == 1 ? 100 : 0, 0);
    rig_run(&monitor, 0);
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(30) << 32;
    for (i = 0; i < 4; i++) {
        rig_report(i, 1, 0, i == 0 ? 300 : i == 1 ? 100 : 0, i == 1 ? 100 : 0);
        storage[tokenpool_storage_report(4, i) / 8] |= UINT64_C(2) << 52;
    }
    rig_run(&monitor, 200 * MS);
    CHECK_EQ(rig_pool(), 70);
}

static void test_ordered(void)
{
    struct tokenpool_client a, b;
    uint64_t now;
    base(2, 100, TOKENPOOL_ORDERED);
    rig_join(0, 60, 0);
    rig_join(1, 0, 0);
    rig_engine(&a, 0);
    rig_engine(&b, 1);
    rig_run(&monitor, 0);
    rig_tick(&a, 0);
    rig_tick(&b, 0);
    CHECK_EQ(rig_info().put, 0); /* claims first */
    CHECK_EQ(tokenpool_client_take(&b, MS, 5), QOS_EAGAIN);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, 3), QOS_OK); /* from its next period on */
    CHECK_EQ(rig_pool(), 10);                                       /* tickets 0 to 9 */
    rig_run(&monitor, 2 * MS);
    CHECK_EQ(rig_info().put, 1); /* the node's pace: 100 in a second */
    rig_run(&monitor, 41 * MS);
    CHECK_EQ(rig_info().put, 2); /* what the monitor was late for comes at twice that pace */
    CHECK_EQ(tokenpool_client_take(&b, 43 * MS, 5), QOS_EAGAIN);
    CHECK_EQ(tokenpool_client_held(&b), 2);
    for (now = 50 * MS; now < 100 * MS; now += MS)
        rig_run(&monitor, now);
    CHECK_EQ(rig_info().put, 10); /* not ahead of the tickets */
    CHECK_EQ(tokenpool_client_take(&b, 100 * MS, 10), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, 100 * MS, 1), QOS_EAGAIN);
    CHECK_EQ(rig_pool(), 20);
    rig_run(&monitor, S);
    CHECK_EQ(rig_info().last_claimed, 10);
    rig_tick(&b, S);
    CHECK_EQ(tokenpool_client_take(&b, S, 1), QOS_EAGAIN);
    CHECK_EQ(rig_pool(), 15); /* weights 3 and 1, a pool of 40: two claims of each in a period */
}

/* Weights: ranges, and the same after a takeover, another join, and a stray store. */
static void test_weights(void)
{
    struct tokenpool_client b;
    const uint64_t word = tokenpool_storage_report(2, 1) / 8 - 8;
    unsigned i;
    base(2, 100, TOKENPOOL_ORDERED);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, 1), QOS_ENOENT);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 2, 1), QOS_ENOENT);
    rig_join(1, 0, 0);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, 0), QOS_ERANGE);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, TOKENPOOL_WEIGHT_MAX + 1), QOS_ERANGE);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, TOKENPOOL_WEIGHT_MAX), QOS_OK);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, 7), QOS_OK);
    rig_engine(&b, 1);
    for (i = 0; i < 4; i++) {
        CHECK_CONTEXT("weights, %u", i);
        rig_run(&monitor, i * S);
        rig_tick(&b, i * S);
        if (i == 2)
            storage[word] ^= UINT64_C(1) << 40;
        /* the epoch that was taken over goes on for a while */
        CHECK_EQ(tokenpool_client_take(&b, i * S, 1), i == 1 ? QOS_OK : QOS_EAGAIN);
        CHECK_EQ(rig_pool(), i == 2 ? 10 : 50); /* half of the pool; a word that cannot be read is a weight of 1 */
        if (i == 0) {
            CHECK_EQ(tokenpool_monitor_resume(&monitor, memory, sizeof memory, storage, sizeof storage, &config),
                     QOS_OK);
            rig_run(&monitor, MS);
        }
    }
    CHECK_EQ(tokenpool_monitor_leave(&monitor, 1), QOS_OK);
    rig_join(1, 0, 0);
    rig_run(&monitor, 4 * S);
    CHECK_EQ(tokenpool_client_attach(&b, 1, 0, storage, sizeof storage), QOS_OK);
    CHECK_EQ(tokenpool_client_take(&b, 4 * S, 1), QOS_EAGAIN);
    CHECK_EQ(rig_pool(), 10);
    /* The count of the pool word holds the claims of all. */
    rig_config(3, TOKENPOOL_BATCH_MAX, TOKENPOOL_TOKENS_MAX, TOKENPOOL_ORDERED);
    rig_init();
    rig_join(0, 0, 0);
    rig_join(1, 0, 0);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 0, 1023), QOS_OK);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, 2), QOS_EADMISSION);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 0, 1022), QOS_OK);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, 1, 2), QOS_OK);
}

/* Two periods without a sign of life are too few. */
static void test_silent_periods(void)
{
    uint64_t k;
    base(2, 100, 0);
    config.silent_periods = 3;
    rig_init();
    rig_join(0, 60, 0);
    rig_join(1, 30, 0);
    for (k = 0; k <= 3; k++) {
        rig_run(&monitor, k * S);
        CHECK_EQ(rig_slot(1).silent, k == 3);
        CHECK_EQ(rig_pool(), k == 3 ? 100 : 10);
    }
}

/* Without reports the reservation is withheld; one report brings it back. */
static void test_silent(void)
{
    struct tokenpool_client a;
    base(2, 100, 0);
    rig_join(0, 60, 0);
    rig_join(1, 30, 0);
    rig_engine(&a, 0);
    rig_run(&monitor, 0);
    rig_tick(&a, 0);
    CHECK_EQ(rig_pool(), 10);
    tokenpool_client_run(&a, S - 2 * MS, 0); /* a sign of life in the last quarter; client 1 never appeared */
    tokenpool_client_run(&a, S, 0);
    rig_run(&monitor, S);
    CHECK_EQ(rig_pool(), 40); /* client 1's 30 go to the pool */
    CHECK(rig_slot(1).silent && rig_slot(1).reservation == 30);
    rig_tick(&a, S);
    tokenpool_client_run(&a, S + S / 10, 0); /* and dies */
    rig_run(&monitor, 2 * S);
    CHECK_EQ(rig_pool(), 100);
    CHECK_EQ(storage[TOKENPOOL_OFFSET_TERMS / 8] >> 38, 0);
    rig_engine(&a, 0); /* comes back: first without a reservation */
    CHECK_EQ(tokenpool_client_held(&a), 0);
    rig_tick(&a, 3 * S - MS);
    rig_run(&monitor, 3 * S);
    rig_tick(&a, 3 * S);
    CHECK_EQ(tokenpool_client_held(&a), 60);
    tokenpool_client_run(&a, 3 * S + S / 2, 0); /* it reports in this period, so it has its reservation in the next */
    tokenpool_client_run(&a, 4 * S - MS / 4, 0);
    rig_run(&monitor, 4 * S);
    rig_tick(&a, 4 * S);
    CHECK_EQ(tokenpool_client_held(&a), 60);
}

/* N of the last period does not count in this one. Reports older than a period are cleared: 63 periods later their tag
 * would be current again. */
static void test_tags(void)
{
    struct tokenpool_monitor_state info;
    uint64_t i;
    base(1, 100, 0);
    config.silent_periods = QOS_UNLIMITED;
    rig_init();
    rig_join(0, 60, 0);
    rig_run(&monitor, 0);
    rig_report(0, 1, 3, 0, 50); /* K = 0, N = 50 of period 1 */
    storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(10) << 32;
    rig_run(&monitor, MS);
    info = rig_info();
    CHECK(info.kept == 0 && info.used == 50 && info.left == 0);
    for (i = 1; i <= 63; i++) {
        rig_run(&monitor, i * S);
        storage[TOKENPOOL_OFFSET_POOL / 8] -= UINT64_C(10) << 32;
        rig_run(&monitor, i * S + MS);
        info = rig_info();
        CHECK(info.kept == 60 && info.used == 0 && info.left == 60);
    }
    CHECK_EQ(info.epoch, 64);
}

static void test_epoch_wraps(void)
{
    struct tokenpool_client c;
    uint64_t i;
    base(2, 100, 0);
    rig_join(0, 50, 0);
    storage[TOKENPOOL_OFFSET_POOL / 8] = UINT64_C(0xffffe) << 12; /* as left by another monitor */
    CHECK_EQ(tokenpool_monitor_resume(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    rig_engine(&c, 0);
    for (i = 1; i < 6; i++) {
        uint64_t now = i * S;
        tokenpool_client_run(&c, now - MS / 8, 0);
        rig_run(&monitor, i == 1 ? 0 : now);
        rig_run(&monitor, now);
        rig_tick(&c, now);
        CHECK_EQ(tokenpool_client_take(&c, now, 51), QOS_OK);
        CHECK_EQ(tokenpool_client_epoch(&c), i == 1 ? 0xfffff : i - 1);
        tokenpool_client_run(&c, now + S - 2 * MS, 0);
    }
    CHECK_EQ(tokenpool_word_count(UINT64_C(0xfffffffbfffff001)), -5);
    CHECK_EQ(tokenpool_word_epoch(UINT64_C(0xfffffffbfffff001)), 0xfffff);
}

/* A report comes 62 periods late: its client was silent and had no tokens, so none are issued for it. */
static void test_report_late_by_tags(void)
{
    uint64_t epoch, p;
    rig_config(2, 10, 1000, 0);
    config.silent_periods = 0;
    rig_init();
    rig_join(0, 600, 0);
    rig_run(&monitor, 0);
    epoch = rig_info().epoch;
    for (p = 1; p <= 62; p++)
        rig_run(&monitor, p * S);
    CHECK_EQ(rig_info().epoch, epoch + 62);
    CHECK(rig_slot(0).silent && rig_info().reserved == 0);
    rig_report(0, epoch, 2, 100, 500); /* it kept 100 of 600 then */
    rig_run(&monitor, 62 * S + 2 * MS);
    CHECK_LE(rig_info().put, 1000); /* no 500 more */
    CHECK_EQ(rig_info().reserved + rig_info().kept, 0);
    rig_run(&monitor, 63 * S);
    CHECK_EQ(rig_info().last_used, 0);  /* clamped: nothing was issued or claimed */
    CHECK_EQ(rig_info().reserved, 600); /* a sign of life */
}

int main(void)
{
    check_begin("unit/tokenpool_monitor");
    test_memory();
    test_admission();
    test_lowering_a_reservation();
    test_conversion();
    test_lowering();
    test_check_bits();
    test_late_claims();
    test_joined_again(200, 500 * MS, 500);
    test_joined_again(0, 100 * MS, 1000 - 200 - 1);
    test_lost_answer();
    test_lost_start();
    test_sums();
    test_generations();
    test_first_ticket();
    test_stray_pool();
    test_guard();
    test_guard_free_slots();
    test_guard_held();
    test_ordered();
    test_weights();
    test_silent();
    test_silent_periods();
    test_tags();
    test_epoch_wraps();
    test_report_late_by_tags();
    return check_end();
}
