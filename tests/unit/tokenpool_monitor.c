// proves: the monitor alone: memory (red zones, one byte short, misaligned), admission, terms, conversion, the guard,
// Basic Haechi, ordered serving, silent clients, resume, messages, counters
#include "tokenpool.h"
#include "check.h"

static uint64_t storage[64] __attribute__((aligned(64)));
static uint64_t control[128] __attribute__((aligned(64)));
static struct tokenpool monitor;
static struct tokenpool_config cfg;
#define S QOS_NS_PER_S
#define MS UINT64_C(1000000)

static void base(uint32_t clients, uint64_t capacity, uint32_t flags)
{
    memset(&cfg, 0, sizeof cfg);
    cfg.clients = clients;
    cfg.batch = 10;
    cfg.capacity = capacity;
    cfg.flags = flags | TOKENPOOL_FIXED;
    cfg.overrun = TOKENPOOL_NO_OVERRUN;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
}

static void join(uint32_t id, uint64_t reservation)
{
    CHECK_EQ(tokenpool_join(&monitor, id, reservation, TOKENPOOL_NO_LIMIT, NULL), QOS_OK);
}

static void engine(struct tokenpool_client *c, uint32_t id)
{
    CHECK_EQ(tokenpool_client_init(c, &cfg, id), QOS_OK);
    tokenpool_client_start_now(c);
    tokenpool_tick_local(c, storage, 0);
}

static int64_t pool(void)
{
    return tokenpool_word_count(storage[TOKENPOOL_OFFSET_POOL / 8]);
}

static void test_memory(void)
{
    struct check_mem a, b;
    struct tokenpool m;
    size_t need, room;
    unsigned clients;
    for (clients = 1; clients < 70; clients += 23) {
        struct tokenpool saved;
        base(2, 100, 0);
        cfg.clients = clients;
        need = tokenpool_memsize(&cfg);
        room = tokenpool_storage_size(&cfg);
        CHECK(need >= clients * 25u && room >= clients * 16u);
        memset(&m, 0x5a, sizeof m);
        saved = m;
        check_mem_new(&a, need, 64, 0);
        check_mem_new(&b, room, 64, 0);
        CHECK_EQ(tokenpool_init(NULL, a.mem, need, b.mem, room, &cfg), QOS_EINVAL);
        CHECK_EQ(tokenpool_init(&m, NULL, need, b.mem, room, &cfg), QOS_EINVAL);
        CHECK_EQ(tokenpool_init(&m, a.mem, need, NULL, room, &cfg), QOS_EINVAL);
        CHECK_EQ(tokenpool_init(&m, a.mem, need - 1, b.mem, room, &cfg), QOS_EMEMORY);
        CHECK_EQ(tokenpool_init(&m, a.mem, need, b.mem, room - 1, &cfg), QOS_EMEMORY);
        CHECK_EQ(tokenpool_init(&m, a.mem + 8, need, b.mem, room, &cfg), QOS_EALIGN);
        CHECK_EQ(tokenpool_init(&m, a.mem, need, b.mem + 8, room, &cfg), QOS_EALIGN);
        CHECK_EQ(tokenpool_init(&m, a.mem, need, b.mem, room, NULL), QOS_EINVAL);
        CHECK_EQ(tokenpool_resume(&m, a.mem, need, b.mem, room, &cfg), QOS_ECORRUPT);
        CHECK(memcmp(&m, &saved, sizeof m) == 0);
        CHECK_EQ(tokenpool_init(&m, a.mem, need, b.mem, room, &cfg), QOS_OK);
        CHECK_EQ(tokenpool_join(&m, clients - 1, 100, TOKENPOOL_NO_LIMIT, NULL), QOS_OK);
        tokenpool_run(&m, 5);
        tokenpool_run(&m, 5 + S);
        CHECK(check_mem_free(&a));
        CHECK(check_mem_free(&b));
    }
}

static void test_admission(void)
{
    uint64_t fits = 0;
    struct tokenpool_client_info info;
    struct qos_stats s;
    base(3, 100, 0);
    cfg.client_capacity = 60;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    CHECK_EQ(tokenpool_join(&monitor, 0, 61, TOKENPOOL_NO_LIMIT, &fits), QOS_EADMISSION); /* local constraint */
    CHECK_EQ(fits, 60);
    CHECK_EQ(tokenpool_join(&monitor, 0, 60, TOKENPOOL_NO_LIMIT, &fits), QOS_OK);
    CHECK_EQ(tokenpool_join(&monitor, 0, 1, TOKENPOOL_NO_LIMIT, &fits), QOS_EEXIST);
    CHECK_EQ(tokenpool_join(&monitor, 1, 41, TOKENPOOL_NO_LIMIT, &fits), QOS_EADMISSION); /* aggregate constraint */
    CHECK_EQ(fits, 40);
    CHECK_EQ(tokenpool_join(&monitor, 1, 41, TOKENPOOL_NO_LIMIT, NULL), QOS_EADMISSION);
    CHECK_EQ(tokenpool_join(&monitor, 1, 40, 39, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_join(&monitor, 1, 0, 0, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_join(&monitor, 1, TOKENPOOL_TOKENS_MAX + 1, TOKENPOOL_NO_LIMIT, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_join(&monitor, 1, 0, TOKENPOOL_TOKENS_MAX + 1, &fits), QOS_ERANGE);
    CHECK_EQ(tokenpool_join(&monitor, 3, 1, TOKENPOOL_NO_LIMIT, &fits), QOS_ENOENT);
    CHECK_EQ(tokenpool_join(&monitor, 1, 40, 40, &fits), QOS_OK);
    CHECK_EQ(tokenpool_change(&monitor, 1, 41, 41, &fits), QOS_EADMISSION);
    CHECK_EQ(fits, 40);
    CHECK_EQ(tokenpool_change(&monitor, 1, 10, 50, &fits), QOS_OK);
    CHECK_EQ(tokenpool_change(&monitor, 2, 10, 50, &fits), QOS_ENOENT);
    CHECK_EQ(tokenpool_change(&monitor, 3, 10, 50, &fits), QOS_ENOENT);
    CHECK_EQ(tokenpool_get_client(&monitor, 1, &info), QOS_OK);
    CHECK(info.joined && info.reservation == 10 && info.limit == 50 && !info.alert && !info.silent);
    CHECK_EQ(tokenpool_get_client(&monitor, 3, &info), QOS_ENOENT);
    CHECK_EQ(tokenpool_leave(&monitor, 1), QOS_OK);
    CHECK_EQ(tokenpool_leave(&monitor, 1), QOS_ENOENT);
    CHECK_EQ(tokenpool_leave(&monitor, 3), QOS_ENOENT);
    CHECK_EQ(tokenpool_join(&monitor, 2, 40, TOKENPOOL_NO_LIMIT, &fits), QOS_OK);
    tokenpool_stats(&monitor, &s);
    CHECK_EQ(s.refused, 4);
    CHECK_EQ(s.granted + s.borrowed + s.waited + s.debt, 0);
}

/* Step T2 by hand: C = 100, reservations 60 and 0; client 1 uses the pool, client 0 does little. */
static void test_conversion(uint32_t flags)
{
    struct tokenpool_client a, b;
    struct tokenpool_info info;
    struct tokenpool_scan scan;
    struct qos_stats s;
    base(2, 100, flags);
    CHECK_EQ(tokenpool_next_ns(&monitor), 0);
    join(0, 60);
    join(1, 0);
    tokenpool_run(&monitor, 0);
    CHECK_EQ(tokenpool_next_ns(&monitor), MS);
    engine(&a, 0);
    engine(&b, 1);
    CHECK_EQ(pool(), 40);
    tokenpool_run(&monitor, MS);
    CHECK(!(storage[0] & 2)); /* nobody used the pool: clients stay silent */
    CHECK_EQ(tokenpool_take_local(&b, storage, 2 * MS, 40), QOS_OK);
    tokenpool_complete(&b, 40);
    CHECK_EQ(pool(), 0);
    tokenpool_run(&monitor, 2 * MS);
    CHECK(storage[0] & 2); /* S3 */
    tokenpool_run(&monitor, 3 * MS);
    /* At 0.5 s client 0 has asked for 10 of the 30 that its reservation would be by then: K = 60 - 20. */
    tokenpool_set_queued(&a, 10);
    tokenpool_tick_local(&a, storage, S / 2);
    tokenpool_tick_local(&b, storage, S / 2);
    tokenpool_scan_reports(&monitor, &scan);
    CHECK(scan.kept == 40 && scan.left == 40 && scan.used == 40 && scan.largest == 40);
    tokenpool_run(&monitor, S / 2);
    tokenpool_get_info(&monitor, &info);
    CHECK(info.reporting && info.claimed == 40 && info.reserved == 60 && info.bound == 100);
    if (flags & TOKENPOOL_BASIC) {
        CHECK_EQ(pool(), 0);
        CHECK_EQ(tokenpool_take_local(&b, storage, S / 2, 1), QOS_EAGAIN);
    } else { /* room 100 x 0.5 - 40 = 10, budget 100 - 40 - 40 = 20 */
        CHECK_EQ(pool(), 10);
        CHECK_EQ(tokenpool_take_local(&b, storage, S / 2 + MS, 10), QOS_OK);
        CHECK_EQ(tokenpool_take_local(&b, storage, S / 2 + MS, 1), QOS_EAGAIN);
    }
    tokenpool_run(&monitor, S);
    tokenpool_get_info(&monitor, &info);
    CHECK_EQ(info.last_claimed, flags & TOKENPOOL_BASIC ? 40 : 50);
    CHECK_EQ(info.last_put, info.last_claimed);
    CHECK_EQ(info.last_bound, 100);
    tokenpool_stats(&monitor, &s);
    CHECK_EQ(s.granted, 60 + info.last_claimed);
    CHECK_EQ(s.borrowed, info.last_claimed);
}

/* The pool is lowered when the time that is left no longer suffices for it. */
static void test_lowering(void)
{
    struct tokenpool_client a, b;
    struct tokenpool_op op;
    base(2, 100, 0);
    join(0, 40);
    join(1, 0);
    tokenpool_run(&monitor, 0);
    engine(&a, 0);
    engine(&b, 1);
    tokenpool_set_queued(&a, TOKENPOOL_BACKLOGGED);
    CHECK_EQ(tokenpool_take_local(&b, storage, MS, 1), QOS_OK);
    CHECK_EQ(pool(), 50);
    tokenpool_run(&monitor, 2 * MS);
    tokenpool_run(&monitor, 3 * MS);
    tokenpool_tick_local(&a, storage, S / 2);
    CHECK(tokenpool_next(&monitor, S / 2, &op));  /* looks */
    CHECK(!tokenpool_next(&monitor, S / 2, &op)); /* one at a time */
    tokenpool_done(&monitor, tokenpool_op_run(storage, &op));
    CHECK(tokenpool_next(&monitor, S / 2, &op) && op.kind == TOKENPOOL_COMPARE_SWAP); /* 100 x 0.5 - 40 = 10 */
    CHECK_EQ(tokenpool_next_ns(&monitor) > S / 2, true);
    CHECK_EQ(tokenpool_take_local(&b, storage, S / 2, 10), QOS_OK); /* a claim comes between: 9 held, 10 claimed */
    CHECK_EQ(pool(), 40);
    tokenpool_done(&monitor, tokenpool_op_run(storage, &op));
    CHECK_EQ(tokenpool_next_ns(&monitor), 0);
    tokenpool_run(&monitor, S / 2);
    CHECK_EQ(pool(), 0);
    CHECK_EQ(monitor.info.claimed, 20);
    tokenpool_done(&monitor, 0);    /* an answer that nobody waits for */
    tokenpool_run(&monitor, 3 * S); /* two periods missed: they are not made up for */
    CHECK_EQ(monitor.info.start_ns, 3 * S);
    CHECK_EQ(monitor.info.last_claimed, 20);
}

static void test_guard(void)
{
    struct tokenpool_client a, b;
    base(2, 100, TOKENPOOL_GUARD);
    join(0, 60); /* more than an equal share of 50 */
    join(1, 10);
    tokenpool_run(&monitor, 0);
    CHECK_EQ(pool(), 0);
    engine(&a, 0);
    engine(&b, 1);
    tokenpool_set_queued(&a, TOKENPOOL_BACKLOGGED);
    CHECK_EQ(tokenpool_take_local(&b, storage, MS, 11), QOS_EAGAIN);
    tokenpool_run(&monitor, MS);
    tokenpool_run(&monitor, 2 * MS);
    /* At 0.5 s client 0 has completed 30 of 60; 30 exceeds 100 x 0.5 / 2. With 36 it does not. */
    tokenpool_complete(&a, 30);
    tokenpool_tick_local(&a, storage, S / 2);
    tokenpool_run(&monitor, S / 2);
    CHECK(pool() <= 0);
    tokenpool_complete(&a, 6);
    tokenpool_tick_local(&a, storage, S / 2 + 2 * MS);
    tokenpool_tick_local(&b, storage, S / 2 + 2 * MS);
    tokenpool_run(&monitor, S / 2 + 2 * MS);
    CHECK(pool() > 0);
    CHECK_EQ(tokenpool_take_local(&b, storage, S / 2 + 3 * MS, 11), QOS_OK);
}

static void test_ordered(void)
{
    struct tokenpool_client a, b;
    base(2, 100, TOKENPOOL_ORDERED);
    join(0, 60);
    join(1, 0);
    tokenpool_run(&monitor, 0);
    engine(&a, 0);
    engine(&b, 1);
    CHECK_EQ(monitor.info.put, 20); /* of 40: as far ahead as each can claim once */
    CHECK_EQ(tokenpool_take_local(&b, storage, MS, 25), QOS_EAGAIN);
    CHECK_EQ(tokenpool_held(&b), 20);
    tokenpool_run(&monitor, MS);
    tokenpool_run(&monitor, 2 * MS);
    tokenpool_run(&monitor, 3 * MS);
    CHECK_EQ(monitor.info.put, 40); /* claimed 20, budget 100 - 60 - 20; room is 39 */
    CHECK_EQ(tokenpool_take_local(&b, storage, 4 * MS, 25), QOS_OK);
    tokenpool_run(&monitor, S);
    CHECK_EQ(monitor.info.last_claimed, 30); /* tickets of three claims of ten */
}

/* Nobody reports: the reservation is withheld; one report brings it back. */
static void test_silent(void)
{
    struct tokenpool_client a;
    struct tokenpool_client_info info;
    base(2, 100, 0);
    join(0, 60);
    join(1, 30);
    tokenpool_run(&monitor, 0);
    engine(&a, 0);
    CHECK_EQ(pool(), 10);
    tokenpool_tick_local(&a, storage, S - MS); /* a sign of life in the last quarter; client 1 never came */
    tokenpool_run(&monitor, S);
    CHECK_EQ(pool(), 40); /* client 1's 30 are the pool's */
    CHECK_EQ(tokenpool_get_client(&monitor, 1, &info), QOS_OK);
    CHECK(info.silent && info.reservation == 30);
    tokenpool_tick_local(&a, storage, S); /* and dies */
    tokenpool_run(&monitor, 2 * S);
    CHECK_EQ(pool(), 100);
    CHECK_EQ(storage[TOKENPOOL_OFFSET_TERMS / 8] >> 32, 0);
    CHECK_EQ(tokenpool_client_init(&a, &cfg, 0), QOS_OK); /* comes back: first without a reservation */
    tokenpool_tick_local(&a, storage, 2 * S);
    tokenpool_run(&monitor, 3 * S);
    tokenpool_tick_local(&a, storage, 3 * S);
    CHECK_EQ(tokenpool_held(&a), 0);
    tokenpool_run(&monitor, 4 * S); /* it reported in period 4: so it has its reservation in 5 */
    tokenpool_tick_local(&a, storage, 4 * S);
    CHECK_EQ(tokenpool_held(&a), 60);
}

/* Reports older than a period are cleared: 63 periods later their tag would be current again. */
static void test_tags(void)
{
    struct tokenpool_scan scan;
    uint64_t i;
    qos_word_t *slot;
    base(1, 100, 0);
    cfg.silent_periods = TOKENPOOL_NEVER_SILENT;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    join(0, 60);
    tokenpool_run(&monitor, 0);
    slot = &storage[(tokenpool_storage_size(&cfg) - 64) / 8];
    *slot = UINT64_C(2) << 58 | UINT64_C(3) << 56 | 5; /* K = 0, N = 5 of period 1 */
    tokenpool_scan_reports(&monitor, &scan);
    CHECK(scan.kept == 0 && scan.used == 5);
    for (i = 1; i <= 63; i++)
        tokenpool_run(&monitor, i * S);
    CHECK_EQ(monitor.info.epoch, 64);
    tokenpool_scan_reports(&monitor, &scan);
    CHECK(scan.kept == 60 && scan.used == 0);
}

static void test_resume(void)
{
    struct tokenpool second;
    struct tokenpool_client a;
    struct tokenpool_client_info info;
    uint64_t period, terms;
    base(2, 100, 0);
    join(0, 60);
    CHECK_EQ(tokenpool_message(&monitor, 0, &period, &terms), QOS_EAGAIN);
    tokenpool_run(&monitor, 0);
    engine(&a, 0);
    CHECK_EQ(tokenpool_take_local(&a, storage, 0, 65), QOS_OK);
    CHECK_EQ(tokenpool_resume(&second, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    CHECK_EQ(tokenpool_get_client(&second, 0, &info), QOS_OK);
    CHECK(info.joined && info.reservation == 60 && info.limit == TOKENPOOL_NO_LIMIT);
    CHECK_EQ(tokenpool_get_client(&second, 1, &info), QOS_OK);
    CHECK(!info.joined);
    CHECK_EQ(tokenpool_join(&second, 1, 41, TOKENPOOL_NO_LIMIT, NULL), QOS_EADMISSION);
    tokenpool_run(&second, 10 * MS);
    CHECK_EQ(pool(), 40);
    CHECK_EQ(tokenpool_take_local(&a, storage, 11 * MS, 60), QOS_OK); /* 5 of the old period are void */
    CHECK_EQ(a.epoch, 2);
    CHECK_EQ(tokenpool_held(&a), 10); /* its claim met the new pool, and was kept for it */
    CHECK_EQ(pool(), 30);
    CHECK_EQ(tokenpool_message(&second, 0, &period, &terms), QOS_OK);
    CHECK_EQ(terms, UINT64_C(60) << 32 | UINT32_MAX);
    CHECK_EQ(tokenpool_message(&second, 2, &period, &terms), QOS_ENOENT);
    CHECK(!tokenpool_client_begin(&a, 12 * MS, period & ~UINT64_C(1), terms)); /* not open */
    cfg.batch = 11;
    CHECK_EQ(tokenpool_resume(&second, control, sizeof control, storage, sizeof storage, &cfg), QOS_ECORRUPT);
}

int main(void)
{
    check_begin("unit/tokenpool_monitor");
    test_memory();
    test_admission();
    test_conversion(0);
    test_conversion(TOKENPOOL_BASIC);
    test_lowering();
    test_guard();
    test_ordered();
    test_silent();
    test_tags();
    test_resume();
    return check_end();
}
