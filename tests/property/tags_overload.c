// proves: reservations that do not fit are cut in proportion (0.5 of each at half the capacity, within 0.02), with
// proves: requests of one size or of many. A newcomer waits at most for one request of each other client. After a
// proves: stall of any length, service by weight starts again within a stated time. The weight phase keeps its
// proves: configured part. A limit holds after a stall, too. A client that changes its reservation all the time delays
// proves: no other
#include "check.h"
#include "tags.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
enum { CLIENTS = 11 };

static struct tags tags;
static struct check_mem memory;
static uint64_t now, work[CLIENTS], size_of[CLIENTS];

static void open_tags(struct tags_config *c, enum tags_mode mode)
{
    c->clients = CLIENTS;
    c->mode = mode;
    c->cost_max = 64;
    check_mem_new(&memory, tags_memsize(c), 64, 0);
    CHECK_EQ(tags_init(&tags, memory.mem, memory.size, c), QOS_OK);
    now = SECOND;
    memset(work, 0, sizeof work);
}

static void add(uint32_t id, uint64_t w, uint64_t r, uint64_t l, uint64_t size)
{
    struct tags_client k;
    k.weight = w;
    k.reservation_per_s = r;
    k.limit_per_s = l;
    size_of[id] = size;
    CHECK_EQ(tags_add(&tags, now, id, &k), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, now, id, TAGS_BACKLOG_MAX, size), QOS_OK);
}

/* Serves one request, at ns_per_unit for each unit; returns its client. */
static uint32_t serve(uint64_t ns_per_unit)
{
    struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    struct tags_grant g;
    CHECK_EQ(tags_choose(&tags, now, &choice), QOS_OK);
    CHECK_EQ(tags_dispatch(&tags, now, &choice, size_of[choice.client], 0, 0, &g), QOS_OK);
    now += ns_per_unit * size_of[choice.client];
    CHECK_EQ(tags_complete(&tags, now, &g, ns_per_unit * size_of[choice.client]), QOS_OK);
    work[choice.client] += size_of[choice.client];
    return choice.client;
}

/* Ten clients reserve 1000 and 9 x 100 per second of a device of half as much. mixed: requests have 1 to 64 units, and
 * units count. */
static void infeasible(enum tags_mode mode, bool mixed)
{
    struct tags_config c;
    struct check_rng rng;
    uint64_t begin, unit = mixed ? 20 : 1, wait;
    uint32_t i, round;
    double share;
    memset(&c, 0, sizeof c);
    c.count_cost = mixed;
    check_rng_init(&rng, 5);
    open_tags(&c, mode);
    for (i = 0; i < 10; i++)
        add(i, check_between(&rng, 1, 1000), (i ? 100 : 1000) * unit, 0, mixed ? check_between(&rng, 1, 64) : 1);
    for (round = 0; round < 4; round++) {
        memset(work, 0, sizeof work);
        for (begin = now; now < begin + 100 * SECOND;)
            (void)serve(2 * SECOND / (1900 * unit));
        for (i = 0; i < 10; i++) {
            share = (double)work[i] * 1e9 / (double)(now - begin) / (double)((i ? 100 : 1000) * unit);
            CHECK_CONTEXT("mode %d, mixed %d, round %u, client %u: %g of its reservation", mode, mixed, round, i,
                          share);
            CHECK_WITHIN(share, 0.48, 0.52);
        }
    }
    /* A newcomer is not behind the others: it waits for its own 1 / R on their clock, of which half passes, and for the
       largest request. */
    add(10, 1, 100 * unit, 0, 1);
    for (begin = now; serve(2 * SECOND / (1900 * unit)) != 10;)
        continue;
    wait = now - begin;
    CHECK_LE(wait, 2 * (SECOND / (100 * unit)) + 2 * (mixed ? UINT64_C(64) : 1) * (2 * SECOND / (1900 * unit)));
    CHECK(check_mem_free(&memory));
}

/* The device stalls; a client of weight 1000 without reservation is served again within the lag, and one request. */
static void stalls(uint64_t stall_ns, uint64_t lag_ns)
{
    struct tags_config c;
    struct tags_state report;
    struct tags_grant g;
    uint64_t back, lag = lag_ns ? lag_ns : TAGS_DEFAULT_RESERVE_LAG_NS;
    memset(&c, 0, sizeof c);
    c.reserve_lag_ns = lag_ns;
    CHECK_CONTEXT("stall of %" PRIu64 " ms, lag %" PRIu64 " ms", stall_ns / MS, lag / MS);
    open_tags(&c, TAGS_PS);
    add(0, 1, 500, 0, 1);
    add(1, 1000, 0, 0, 1);
    add(2, 1, 100, 0, 1);
    CHECK_EQ(tags_pull(&tags, now, 1, &g), QOS_OK);
    now += stall_ns;
    CHECK_EQ(tags_complete(&tags, now, &g, stall_ns), QOS_OK);
    for (back = now; serve(MS) != 1;)
        CHECK_LE(now - back, 10 * SECOND);
    /* 600 of 1000 per second are reserved: the kept credit takes 0.6 lag / 0.4. */
    CHECK_LE(now - back, lag * 6 / 4 + 10 * MS);
    memset(work, 0, sizeof work);
    for (back = now; now < back + 20 * SECOND;)
        (void)serve(MS);
    CHECK_WITHIN(work[0] / 20, 499, 501 + (stall_ns ? 30 : 0));
    CHECK_WITHIN(work[2] / 20, 99, 101 + (stall_ns ? 6 : 0));
    CHECK_EQ(tags_info(&tags, QOS_NONE, &report), QOS_OK);
    CHECK_EQ(report.clock_behind_ns > 0, stall_ns > lag + 10 * MS);
    CHECK(check_mem_free(&memory));
}

/* A client changes its reservation all the time while a request is served: up, and down when it is due. It delays no
 * other client: reservations of 250 of 500 per second are met. */
static void toggling(void)
{
    struct tags_config c;
    struct tags_client terms;
    struct tags_state report;
    uint64_t end, served, i;
    memset(&c, 0, sizeof c);
    memset(&terms, 0, sizeof terms);
    check_state.context[0] = 0;
    c.reserve_lag_ns = 50 * MS;
    open_tags(&c, TAGS_PS);
    add(0, 1, 250, 0, 1);
    add(1, 1000, 1, 0, 1);
    terms.weight = 1000;
    for (served = 0, end = now + 100 * SECOND; now < end; served++) {
        struct tags_grant g = {0, TAGS_PHASE_WEIGHT, 0, 0, 0};
        CHECK_EQ(tags_pull(&tags, now, 1, &g), QOS_OK);
        work[g.client]++;
        if (served % 3 == 0) {
            terms.reservation_per_s = 200;
            CHECK_EQ(tags_change(&tags, now + MS / 10, 1, &terms), QOS_OK);
        }
        for (i = 0; i < 2 && served % 3 == 2; i++) { /* its request is due then, and not served yet */
            terms.reservation_per_s = i ? 1 : 28;
            CHECK_EQ(tags_change(&tags, now + MS * 13 / 10, 1, &terms), QOS_OK);
        }
        now += 2 * MS;
        CHECK_EQ(tags_complete(&tags, now, &g, 2 * MS), QOS_OK);
    }
    CHECK_GE(work[0], 250 * 100 - 5);
    CHECK_EQ(tags_info(&tags, QOS_NONE, &report), QOS_OK);
    CHECK_LE(report.clock_behind_ns, 10 * MS);
    CHECK(check_mem_free(&memory));
}

/* Reservation = limit, and a stall of 1 s in every 10. The limit allows to make up its burst only, and all that it
 * allows is served: 10 s - 1 s, plus 100 ms of burst. */
static void limited(void)
{
    struct tags_config c;
    uint64_t end, next;
    memset(&c, 0, sizeof c);
    check_state.context[0] = 0;
    open_tags(&c, TAGS_PS);
    add(0, 1, 100, 100, 1);
    add(1, 1, 0, 0, 1);
    for (end = now + 600 * SECOND, next = now + 10 * SECOND; now < end;) {
        uint64_t ns = MS;
        if (now >= next) {
            ns = SECOND;
            next += 10 * SECOND;
        }
        (void)serve(ns);
    }
    CHECK_WITHIN((double)work[0] / 600, 91, 92.5);
    CHECK(check_mem_free(&memory));
}

/* Reservations take the whole device; the weight phase keeps 10 % and 50 % of the work. */
static void least_share(uint32_t permille, enum tags_mode mode)
{
    struct tags_config c;
    uint64_t begin, by_weight = 0, all = 0;
    memset(&c, 0, sizeof c);
    c.weight_share_permille = permille;
    CHECK_CONTEXT("weights keep %u of 1000, mode %u", permille, (unsigned)mode);
    open_tags(&c, mode);
    add(0, 1, 2000, 0, 1);
    add(1, 1, 1000, 0, 1);
    add(2, 1, 0, 0, 1);
    add(3, 3, 0, 0, 1);
    for (begin = now; now < begin + 50 * SECOND; all++)
        by_weight += serve(MS) >= 2;
    CHECK_WITHIN((double)by_weight / (double)all, permille / 1000.0 * 0.97, permille / 1000.0 * 1.03);
    if (permille) {
        CHECK_WITHIN((double)work[3] / (double)work[2], 2.9, 3.1);
        CHECK_WITHIN((double)work[0] / (double)work[1], 1.9, 2.1);
    }
    CHECK(check_mem_free(&memory));
}

/* The weight phase keeps the same part of the work if reserved requests and others differ in size. */
static void least_share_of_sizes(uint32_t permille, enum tags_mode mode, uint64_t reserved_size, uint64_t size)
{
    struct tags_config c;
    uint64_t begin;
    double share;
    memset(&c, 0, sizeof c);
    c.weight_share_permille = permille;
    c.count_cost = true;
    CHECK_CONTEXT("weights keep %u of 1000, mode %u, reserved requests of %u, others of %u", permille, (unsigned)mode,
                  (unsigned)reserved_size, (unsigned)size);
    open_tags(&c, mode);
    add(0, 1, 2000, 0, reserved_size);
    add(1, 1000, 0, 0, size);
    for (begin = now; now < begin + 100 * SECOND;)
        (void)serve(MS);
    share = (double)work[1] / (double)(work[0] + work[1]);
    CHECK_WITHIN(share, permille / 1000.0 * 0.97, permille / 1000.0 * 1.03);
    CHECK(check_mem_free(&memory));
}

/* A client whose requests are all cancelled before the next one is sent: by weight, or by its reservation. What was not executed
 * takes nothing from the part of the weights and adds nothing to it. */
static void cancelled_share(bool by_weight)
{
    struct tags_config c;
    struct tags_grant pending = {0, TAGS_PHASE_WEIGHT, 0, 0, 0};
    uint64_t begin, cancelled = 0;
    double share;
    memset(&c, 0, sizeof c);
    c.weight_share_permille = 100;
    c.count_cost = true;
    CHECK_CONTEXT("cancelled by %s", by_weight ? "weight" : "reservation");
    open_tags(&c, TAGS_PS);
    add(0, 1, 2000, 0, 1);
    add(1, 1000, 0, 0, 1);
    add(2, by_weight ? 1000 : 1, by_weight ? 0 : 1000, 0, 64);
    for (begin = now; now < begin + 100 * SECOND;) {
        struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
        struct tags_grant g;
        CHECK_EQ(tags_choose(&tags, now, &choice), QOS_OK);
        if (choice.client == 2 && pending.serial)
            CHECK_EQ(tags_cancel(&tags, now, &pending), QOS_OK);
        CHECK_EQ(tags_dispatch(&tags, now, &choice, size_of[choice.client], 0, 0, &g), QOS_OK);
        if (choice.client == 2) {
            pending = g;
            now += MS; /* the server needs time for it, too */
            cancelled++;
            continue;
        }
        now += MS;
        CHECK_EQ(tags_complete(&tags, now, &g, 0), QOS_OK);
        work[choice.client]++;
    }
    CHECK_GE(cancelled, 50);
    share = (double)work[1] / (double)(work[0] + work[1]);
    CHECK_WITHIN(share, 0.095, 0.105);
    CHECK(check_mem_free(&memory));
}

int main(void)
{
    unsigned mode;
    check_begin("property/tags_overload");
    for (mode = TAGS_REWARD; mode <= TAGS_PS; mode++) {
        infeasible((enum tags_mode)mode, false);
        infeasible((enum tags_mode)mode, true);
    }
    stalls(0, 0);
    stalls(500 * MS, 0);
    stalls(60 * SECOND, 0);
    stalls(3600 * SECOND, 0);
    stalls(60 * SECOND, 100 * MS);
    limited();
    toggling();
    for (mode = TAGS_REWARD; mode <= TAGS_PS; mode++) {
        least_share(0, (enum tags_mode)mode);
        least_share(100, (enum tags_mode)mode);
        least_share(500, (enum tags_mode)mode);
        least_share_of_sizes(100, (enum tags_mode)mode, 1, 64);
        least_share_of_sizes(100, (enum tags_mode)mode, 64, 1);
        least_share_of_sizes(500, (enum tags_mode)mode, 3, 50);
        least_share_of_sizes(900, (enum tags_mode)mode, 50, 3);
    }
    cancelled_share(true);
    cancelled_share(false);
    return check_end();
}
