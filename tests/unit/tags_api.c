// proves: every call of tags.h: errors that change nothing; memory and shapes of trees; forced requests and their debt;
// proves: intrusive queues; attribute and channels; rates that do not divide a second; clocks that jump; shared terms; the
// proves: ends of time (single calls beside an account of every tag: world/tags)
#include "tags.h"
#include "check.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static struct check_mem memory;
static struct tags tags;

static struct tags_config plain(uint32_t clients, enum tags_mode mode)
{
    struct tags_config c;
    memset(&c, 0, sizeof c);
    c.clients = clients;
    c.mode = mode;
    return c;
}

static void open_tags(const struct tags_config *c)
{
    check_mem_new(&memory, tags_memsize(c), 64, 0);
    CHECK_EQ(tags_init(&tags, memory.mem, memory.size, c), QOS_OK);
}

static void close_tags(void)
{
    CHECK(check_mem_free(&memory));
}

static enum qos_status add(uint64_t now, uint32_t id, uint64_t w, uint64_t r, uint64_t l)
{
    struct tags_client c;
    c.weight = w;
    c.reservation_per_s = r;
    c.limit_per_s = l;
    return tags_add(&tags, now, id, &c);
}

static enum qos_status change(uint64_t now, uint32_t id, uint64_t w, uint64_t r, uint64_t l)
{
    struct tags_client c;
    c.weight = w;
    c.reservation_per_s = r;
    c.limit_per_s = l;
    return tags_change(&tags, now, id, &c);
}

static struct tags_state report(uint32_t id)
{
    struct tags_state r;
    memset(&r, 0, sizeof r);
    CHECK_EQ(tags_info(&tags, id, &r), QOS_OK);
    return r;
}

/* Returns the client that is dispatched at `now` and completes at the same instant, after service ns; -1: none. */
static int serve(uint64_t now, uint64_t service)
{
    struct tags_grant g;
    if (tags_pull(&tags, now, 1, &g) != QOS_OK)
        return -1;
    CHECK_EQ(tags_complete(&tags, now, &g, service), QOS_OK);
    return (int)g.client;
}

/* ---- memory; fields and terms: unit/tags_config */

static void memory_and_trees(void)
{
    struct tags_config c = plain(5, TAGS_REWARD);
    struct tags t;
    struct check_mem m;
    c.attribute = true;
    c.channels = TAGS_AT_DEVICE_MAX;
    CHECK(tags_config_error(&c) == NULL);
    check_mem_new(&m, tags_memsize(&c), 64, 0);
    CHECK_EQ(tags_init(&t, NULL, m.size, &c), QOS_EINVAL);
    CHECK_EQ(tags_init(&t, m.mem, m.size - 1, &c), QOS_EMEMORY);
    CHECK_EQ(tags_init(&t, m.mem + 8, m.size, &c), QOS_EALIGN);
    CHECK(check_mem_free(&m));
    for (c = plain(1, TAGS_PS); c.clients < 70; c.clients++) { /* all shapes of trees; equal tags go by id */
        uint32_t k;
        open_tags(&c);
        for (k = 0; k < c.clients; k++) {
            CHECK_EQ(add(0, k, 1, 1, 0), QOS_OK);
            CHECK_EQ(tags_arrive(&tags, 0, k, 1, 1), QOS_OK);
        }
        for (k = 0; k < c.clients; k++)
            CHECK_EQ(serve(5, 1), k);
        CHECK_EQ(serve(5, 1), -1);
        close_tags();
    }
    if (sizeof(void *) == 8)
        for (c = plain(10000, TAGS_PS); c.clients <= 100000; c.clients *= 10) {
            c.mode = TAGS_PS;
            CHECK_LE(tags_memsize(&c), 184 * (uint64_t)c.clients);
            c.mode = TAGS_REWARD;
            CHECK_LE(tags_memsize(&c), 200 * (uint64_t)c.clients);
        }
}

static void clients(void)
{
    struct tags_config c = plain(4, TAGS_PS);
    struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    struct tags_grant g;
    struct qos_stats stats;
    struct tags_state r;
    uint32_t dropped = 9;
    c.capacity_per_s = 100;
    c.at_device_max = 1;
    open_tags(&c);
    CHECK_EQ(report(QOS_NONE).admissible_per_s, 100);
    CHECK_EQ(tags_add(&tags, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(add(0, 4, 1, 0, 0), QOS_ENOENT);
    CHECK_EQ(add(0, 0, TAGS_WEIGHT_MAX + 1, 0, 0), QOS_ERANGE);
    CHECK_EQ(add(0, 0, 1, 20, 19), QOS_ERANGE);
    CHECK_EQ(add(0, 0, 1, 101, 0), QOS_EADMISSION);
    CHECK_EQ(add(0, 0, 1, 60, 0), QOS_OK);
    CHECK_EQ(add(0, 0, 1, 60, 0), QOS_EEXIST);
    CHECK_EQ(report(QOS_NONE).admissible_per_s, 40);
    CHECK_EQ(report(0).admissible_per_s, 100);
    CHECK_EQ(add(0, 1, 0, 41, 0), QOS_EADMISSION);
    CHECK_EQ(add(0, 1, 0, 40, 0), QOS_OK);
    CHECK_EQ(change(0, 1, 1, 41, 0), QOS_EADMISSION);
    CHECK_EQ(change(0, 0, 1, 10, 0), QOS_OK);
    CHECK_EQ(report(QOS_NONE).admissible_per_s, 50);
    CHECK_EQ(change(0, 1, 1, 90, 0), QOS_OK);
    CHECK_EQ(report(QOS_NONE).reserved_per_s, 100);
    CHECK_EQ(change(0, 2, 1, 0, 0), QOS_ENOENT);
    CHECK_EQ(change(0, 1, 1, 5, 4), QOS_ERANGE);
    CHECK_EQ(tags_change(&tags, 0, 1, NULL), QOS_EINVAL);

    CHECK_EQ(tags_arrive(&tags, 0, 3, 1, 1), QOS_ENOENT);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 0, 1), QOS_ERANGE);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 2), QOS_ERANGE); /* cost_max is 1: the unit is requests */
    CHECK_EQ(tags_arrive(&tags, 0, 0, TAGS_BACKLOG_MAX, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 1), QOS_EFULL);
    CHECK_EQ(tags_withdraw(&tags, 0, 2, 1), QOS_ENOENT);
    CHECK_EQ(tags_withdraw(&tags, 0, 0, 0), QOS_ERANGE);
    CHECK_EQ(tags_withdraw(&tags, 0, 0, TAGS_BACKLOG_MAX + 1), QOS_ERANGE);
    CHECK_EQ(tags_withdraw(&tags, 0, 0, TAGS_BACKLOG_MAX - 2), QOS_OK);

    CHECK_EQ(tags_choose(&tags, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_choose(&tags, 0, &choice), QOS_OK);
    CHECK_EQ(choice.client, 0);
    CHECK_EQ(choice.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_dispatch(&tags, 0, NULL, 1, 0, 0, &g), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 2, 1, &g), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 2, 0, 0, &g), QOS_ERANGE);
    CHECK_EQ(tags_pull(&tags, 0, 2, &g), QOS_ERANGE);
    CHECK_EQ(tags_pull(&tags, 0, 1, NULL), QOS_EINVAL);
    choice.phase = TAGS_PHASE_ABOVE_LIMIT; /* not with TAGS_WAIT */
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    choice.phase = TAGS_PHASE_FORCED;
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    choice.phase = TAGS_PHASE_RESERVATION;
    choice.client = 3;
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 0, 0, &g), QOS_ENOENT);
    choice.client = 1; /* nothing queued */
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    choice.client = 0;
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 0, 0, 0, &g), QOS_OK);
    {
        struct tags_grant more;
        CHECK_EQ(tags_pull(&tags, 0, 1, &more), QOS_EFULL); /* at_device_max */
        CHECK_EQ(tags_force(&tags, 0, 0, 1, &more), QOS_EFULL);
    }
    CHECK_EQ(tags_complete(&tags, 0, NULL, 1), QOS_EINVAL);
    CHECK_EQ(tags_fail(&tags, 0, NULL, 1), QOS_EINVAL);
    CHECK_EQ(tags_cancel(&tags, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_complete(&tags, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_complete(&tags, 0, &g, 1), QOS_ESTALE); /* once only */
    CHECK_EQ(tags_fail(&tags, 0, &g, 1), QOS_ESTALE);
    CHECK_EQ(tags_cancel(&tags, 0, &g), QOS_ESTALE);
    g.slot = 1;
    CHECK_EQ(tags_cancel(&tags, 0, &g), QOS_EINVAL);
    CHECK_EQ(report(0).queued, 1);
    CHECK_EQ(report(QOS_NONE).queued, 1);
    CHECK_EQ(report(QOS_NONE).served[TAGS_PHASE_RESERVATION], 1);
    CHECK_EQ(tags_stats(&tags, 0, &stats), QOS_EINVAL); /* without count_by_client */
    CHECK_EQ(tags_stats(&tags, 4, &stats), QOS_ENOENT);
    CHECK_EQ(tags_stats(&tags, QOS_NONE, NULL), QOS_EINVAL);
    CHECK_EQ(tags_info(&tags, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_info(&tags, 3, &r), QOS_ENOENT);
    CHECK_EQ(tags_remove(&tags, 0, 0, &dropped), QOS_OK);
    CHECK_EQ(dropped, 1);
    CHECK_EQ(tags_remove(&tags, 0, 0, NULL), QOS_ENOENT);
    CHECK_EQ(tags_next_ns(&tags, 7), QOS_NEVER);
    CHECK_EQ(tags_remove(&tags, 0, 1, NULL), QOS_OK);
    CHECK_EQ(report(QOS_NONE).admissible_per_s, 100);
    close_tags();
    c = plain(1, TAGS_PS);
    open_tags(&c);
    CHECK_EQ(report(QOS_NONE).admissible_per_s, QOS_RATE_MAX);
    close_tags();
}

/* ---- limits. 10 per second: at 0, 100, 200 ms ... */

/* A group waits as long as its only client. */
static void group_at_the_limit(void)
{
    static const struct tags_client all = {1, 0, 0};
    struct tags_config c = plain(8, TAGS_PS);
    c.groups = 1;
    c.limit_burst_ns = QOS_NOTHING;
    open_tags(&c);
    CHECK_EQ(tags_group_add(&tags, 0, 8, &all, 0, 8), QOS_OK);
    CHECK_EQ(add(0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 1000, 1), QOS_OK);
    CHECK_EQ(serve(0, 1), 0);
    CHECK_EQ(serve(0, 1), -1);
    CHECK_EQ(tags_next_ns(&tags, 50 * MS), 100 * MS);
    CHECK_EQ(serve(100 * MS - 1, 1), -1);
    CHECK_EQ(serve(100 * MS, 1), 0);
    close_tags();
}

/* A client waits for more than 2^64 ns, or to the last moment that there is. */
static void rejected(void)
{
    struct tags_config c = plain(1, TAGS_PS);
    c.at_limit = TAGS_REJECT;
    c.count_cost = true;
    c.cost_max = QOS_TOKENS_MAX;
    c.reject_after_ns = UINT64_MAX - 2;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 20, QOS_TOKENS_MAX), QOS_ELIMIT);
    close_tags();
    c.reject_after_ns = UINT64_MAX - 1; /* nothing is refused */
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 20, QOS_TOKENS_MAX), QOS_OK);
    close_tags();
}

/* 100 clients reach their limits together: a call moves 8 of them, and reports that more are left. */
static void bounded_moves(void)
{
    struct tags_config c = plain(101, TAGS_PS);
    struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    struct tags_grant g;
    uint32_t i, calls = 0;
    c.moves_max = 8;
    open_tags(&c);
    for (i = 0; i < 100; i++) {
        CHECK_EQ(add(0, i, 1, 0, 1), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, i, 2, 1), QOS_OK);
    }
    for (i = 0; i < 100; i++)
        CHECK(serve(0, 1) >= 0);
    CHECK_EQ(add(0, 100, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 100, 1, 1), QOS_OK); /* before it come ids that are at their limits */
    while (tags_pull(&tags, 0, 1, &g) == QOS_EAGAIN && tags_next_ns(&tags, 0) == 0)
        calls++;
    CHECK_WITHIN(calls, 4, 13); /* tags_next_ns moves 8, too */
    CHECK_EQ(g.client, 100);
    CHECK_EQ(tags_complete(&tags, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_choose(&tags, 0, &choice), QOS_EAGAIN);
    CHECK_EQ(tags_next_ns(&tags, 0), SECOND);
    for (calls = 0, i = 0; i < 100;) {
        int who = serve(SECOND, 1);
        if (i == 0)
            CHECK(report(8).waiting_at_limit); /* not looked at yet */
        if (who >= 0)
            i++;
        else
            calls++, CHECK_EQ(tags_next_ns(&tags, SECOND), SECOND);
        CHECK_LE(calls, 100);
    }
    close_tags();

    /* The same in the order of reservations. R = 1, L = 2: each is sent at 0 by reservation and at 0.9 s by weight.
     * Then all are due by reservation at 1 s and at their limits until 1.4 s. */
    c = plain(20, TAGS_PS);
    c.moves_max = 8;
    c.limit_burst_ns = QOS_NOTHING;
    open_tags(&c);
    for (i = 0; i < 20; i++) {
        CHECK_EQ(add(0, i, 1, 1, 2), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, i, 3, 1), QOS_OK);
    }
    for (i = 0; i < 20; i++)
        CHECK(serve(0, 1) >= 0);
    for (i = 0; i < 20;)
        i += serve(900 * MS, 1) >= 0;
    for (calls = 0; tags_next_ns(&tags, SECOND) == SECOND; calls++)
        CHECK_EQ(tags_choose(&tags, SECOND, &choice), QOS_EAGAIN);
    CHECK_WITHIN(calls, 1, 3);
    CHECK_EQ(tags_next_ns(&tags, SECOND), 1400 * MS);
    close_tags();
}

/* ---- grants */

/* A request that is given up has the phase in which it was dispatched, with attribute, too. */
static void given_up(uint64_t reservation, enum tags_phase phase)
{
    struct tags_config c = plain(1, TAGS_REWARD);
    struct tags_grant g, lost;
    c.attribute = true;
    c.channels = 1;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, reservation, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 1), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_give_up(&tags, 0, 0, &lost), QOS_OK);
    CHECK(g.phase == phase && lost.phase == phase);
    close_tags();
}

/* Grants that are final. */
static void no_completions(void)
{
    struct tags_config c = plain(1, TAGS_PS);
    struct tags_grant g;
    unsigned i;
    c.no_completions = true;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 5000, 1), QOS_OK);
    for (i = 0; i < 5000; i++)
        CHECK_EQ(tags_pull(&tags, i, 1, &g), QOS_OK);
    for (i = 0; i < 200; i++) /* nobody waits: it owes nothing */
        CHECK_EQ(tags_force(&tags, 5000, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_complete(&tags, 0, &g, 1), QOS_EINVAL);
    CHECK_EQ(tags_cancel(&tags, 0, &g), QOS_EINVAL);
    CHECK_EQ(tags_give_up(&tags, 0, 0, &g), QOS_EINVAL);
    close_tags();
}

/* Forced requests: at most force_debt_requests and one, with a limit or without, whatever the cost. */
static void forced(uint64_t limit, uint64_t cost_max, enum tags_mode mode)
{
    struct tags_config c = plain(2, mode);
    struct tags_grant g;
    struct qos_stats stats;
    unsigned n = 0, i;
    CHECK_CONTEXT("limit %" PRIu64 ", cost %" PRIu64, limit, cost_max);
    c.cost_max = cost_max;
    c.force_debt_requests = 5;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 3, 0, limit), QOS_OK);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 1, 100, cost_max), QOS_OK); /* one request waits */
    CHECK_EQ(tags_force(&tags, 0, 7, 1, &g), QOS_ENOENT);
    CHECK_EQ(tags_force(&tags, 0, 0, cost_max, NULL), QOS_EINVAL);
    CHECK_EQ(tags_force(&tags, 0, 0, cost_max + 1, &g), QOS_ERANGE);
    while (n < 1000 && tags_force(&tags, 0, 0, cost_max, &g) == QOS_OK) {
        CHECK_EQ(g.phase, TAGS_PHASE_FORCED);
        n++;
    }
    CHECK_EQ(n, 6);
    CHECK_EQ(tags_stats(&tags, QOS_NONE, &stats), QOS_OK);
    CHECK_EQ(stats.refused, 1);
    CHECK_EQ(stats.debt, limit ? 5 : 0);
    for (i = 0; i < 2; i++) { /* others are served: V comes nearer; and the limit tag by time */
        CHECK_EQ(tags_pull(&tags, limit ? SECOND : 0, cost_max, &g), QOS_OK);
        CHECK_EQ(g.client, 1);
        CHECK_EQ(tags_complete(&tags, limit ? SECOND : 0, &g, MS), QOS_OK);
    }
    CHECK_EQ(tags_force(&tags, limit ? SECOND : 0, 0, cost_max, &g), QOS_OK);
    close_tags();
}

/* ---- other calls */

static void intrusive(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags_request r[6], *popped;
    unsigned i;
    open_tags(&c);
    memset(r, 0, sizeof r);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_push(&tags, 0, 0, &r[0]), QOS_EINVAL); /* not configured */
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_EINVAL);
    CHECK_EQ(tags_unlink(&tags, 0, &r[0]), QOS_EINVAL);
    CHECK(tags_head(&tags, 0) == NULL);
    close_tags();
    c.intrusive = true;
    c.cost_max = 10;
    c.at_device_max = 2;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_push(&tags, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_push(&tags, 0, 1, &r[0]), QOS_ENOENT);
    CHECK_EQ(tags_pop(&tags, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_EAGAIN);
    r[0].rho = 1;
    CHECK_EQ(tags_push(&tags, 0, 0, &r[0]), QOS_EINVAL); /* rho above delta */
    r[0].rho = 0;
    r[0].cost = 11;
    CHECK_EQ(tags_push(&tags, 0, 0, &r[0]), QOS_ERANGE);
    for (i = 0; i < 6; i++) {
        r[i].cost = i + 1;
        CHECK_EQ(tags_push(&tags, 0, 0, &r[i]), QOS_OK);
    }
    CHECK(tags_head(&tags, 0) == &r[0]);
    CHECK_EQ(tags_unlink(&tags, 0, &r[0]), QOS_OK); /* first, middle, last */
    CHECK_EQ(tags_unlink(&tags, 0, &r[2]), QOS_OK);
    CHECK_EQ(tags_unlink(&tags, 0, &r[5]), QOS_OK);
    CHECK_EQ(report(0).queued, 3);
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_OK);
    CHECK(popped == &r[1] && popped->grant.client == 0);
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_OK);
    CHECK(popped == &r[3]);
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_EFULL);
    CHECK(popped == &r[3] && tags_head(&tags, 0) == &r[4]);
    CHECK_EQ(tags_complete(&tags, 0, &r[1].grant, 1), QOS_OK);
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_OK);
    CHECK(popped == &r[4] && tags_head(&tags, 0) == NULL);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 1), QOS_EINVAL); /* what is only counted could not be popped */
    CHECK_EQ(tags_complete(&tags, 0, &r[3].grant, 1), QOS_OK);
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_EAGAIN);
    CHECK_EQ(tags_remove(&tags, 0, 0, NULL), QOS_OK);
    CHECK(tags_head(&tags, 0) == NULL);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK); /* the queue is empty again */
    CHECK_EQ(tags_pop(&tags, 0, &popped), QOS_EAGAIN);
    close_tags();

    c.clients = 64; /* each has its own queue */
    open_tags(&c);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(add(0, i, 1, 0, 0), QOS_OK);
        memset(&r[i % 6], 0, sizeof r[0]);
        CHECK_EQ(tags_push(&tags, 0, i, &r[i % 6]), QOS_OK);
        CHECK_EQ(tags_unlink(&tags, 0, &r[i % 6]), QOS_OK);
    }
    close_tags();
}

/* Every hundredth request of a client takes the device 6 s, more than a mean can hold. If the lag is longer, it is
 * charged in full, and the rival of equal weight gets half of the time. */
static void rare_and_huge(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    uint64_t used[2] = {0, 0}, n = 0, i;
    c.reserve_lag_ns = UINT64_C(1) << 62; /* nothing is long enough for a stall */
    open_tags(&c);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(add(0, (uint32_t)i, 1, 0, 0), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, (uint32_t)i, 10000000, 1), QOS_OK);
    }
    for (i = 0; i < 300000; i++) {
        struct tags_grant g;
        uint64_t service = MS;
        CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
        if (g.client == 0 && ++n % 100 == 0)
            service = 6 * SECOND;
        used[g.client] += service;
        CHECK_EQ(tags_complete(&tags, 0, &g, service), QOS_OK);
    }
    CHECK_WITHIN((double)used[0] / (double)used[1], 0.9, 1.1);
    close_tags();
}

/* Long services are charged in full, too: after 2^41 ns of one client come 2048 times 2^30 ns of another. And in the long
 * run 20 s of one and 1 s of another share the time. */
static void long_services(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    uint32_t turns = 0, long_ones = 0;
    c.reserve_lag_ns = UINT64_C(1) << 62;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 2, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 1, 5000, 1), QOS_OK);
    CHECK_EQ(serve(0, UINT64_C(1) << 41), 0);
    while (turns < 4000 && serve(0, UINT64_C(1) << 30) == 1)
        turns++;
    CHECK_WITHIN(turns, 2047, 2049);
    close_tags();
    c.reserve_lag_ns = 0;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 2200, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 1, 2200, 1), QOS_OK);
    for (turns = 0; turns < 2100; turns++) {
        struct tags_grant g;
        CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
        long_ones += g.client == 0;
        CHECK_EQ(tags_complete(&tags, 0, &g, g.client ? SECOND : 20 * SECOND), QOS_OK);
    }
    CHECK_WITHIN(long_ones, 99, 108);
    close_tags();
}

/* In a group, too, a request is charged the time that it took, not the mean: after ten of 1 ms and one of a second the other
 * client has a second for itself, in requests of 1 ms. */
static void charged_as_used(void)
{
    static const struct tags_client all = {1, 0, 0};
    struct tags_config c = plain(8, TAGS_REWARD);
    struct tags_grant g;
    uint32_t i, turns = 0;
    c.groups = 1;
    c.reserve_lag_ns = UINT64_C(1) << 62;
    open_tags(&c);
    CHECK_EQ(tags_group_add(&tags, 0, 8, &all, 0, 8), QOS_OK);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 20, 1), QOS_OK);
    for (i = 0; i < 10; i++)
        CHECK_EQ(serve(0, MS), 0);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 1, 2000, 1), QOS_OK);
    do
        CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
    while (tags_complete(&tags, 0, &g, g.client ? MS : SECOND) == QOS_OK && g.client);
    while (turns < 1500 && serve(0, MS) == 1)
        turns++;
    CHECK_WITHIN(turns, 998, 1002);
    close_tags();
}

/* A cancelled request gives its tag back, to the fraction of a ns. At 3 a second and a burst of a second the four
 * requests of 9 s, 9 1/3 s, 9 2/3 s and 10 s can go at 10 s. The same holds if the burst has passed since and the tag
 * is where it began. */
static void refunded_exactly(void)
{
    static const struct {
        uint64_t cancel_ns;
        unsigned pulls, cancels;
    } row[] = {{10 * SECOND, 2, 2}, {10 * SECOND, 2, 1}, {10 * SECOND + 333333333, 1, 1}};
    struct tags_config c = plain(1, TAGS_PS);
    struct tags_grant g[2];
    unsigned i, k;
    c.limit_burst_ns = SECOND;
    for (k = 0; k < sizeof row / sizeof row[0]; k++) {
        CHECK_CONTEXT("row %u", k);
        open_tags(&c);
        CHECK_EQ(add(0, 0, 1, 0, 3), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 9 * SECOND, 0, 10, 1), QOS_OK);
        for (i = 0; i < row[k].pulls; i++)
            CHECK_EQ(tags_pull(&tags, 10 * SECOND, 1, &g[i]), QOS_OK);
        for (i = 0; i < row[k].cancels; i++)
            CHECK_EQ(tags_cancel(&tags, row[k].cancel_ns, &g[i]), QOS_OK);
        for (i = row[k].pulls - row[k].cancels; i < 4; i++)
            CHECK_EQ(serve(row[k].cancel_ns, 1), 0);
        CHECK_EQ(serve(row[k].cancel_ns, 1), -1);
        CHECK_EQ(tags_next_ns(&tags, row[k].cancel_ns), row[k].cancel_ns + 333333334);
        close_tags();
    }
}

/* A rate that does not divide 10^9 is exact over many requests of several units: 2 units at 3 a second. */
static void exact_costs(void)
{
    struct tags_config c = plain(1, TAGS_PS);
    struct tags_grant g;
    uint64_t now = 0;
    unsigned i;
    c.count_cost = true;
    c.cost_max = 2;
    c.limit_burst_ns = QOS_NOTHING;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 3), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 100, 2), QOS_OK);
    for (i = 0; i < 9; i++) { /* all are at their tags: the burst keeps fractions of the last only */
        CHECK_EQ(tags_force(&tags, 0, 0, 2, &g), QOS_OK);
        CHECK_EQ(tags_complete(&tags, 0, &g, 0), QOS_OK);
    }
    now = tags_next_ns(&tags, 0);
    CHECK_EQ(now, 6 * SECOND);
    close_tags();
}

/* A cost of 0 counts as 1. */
static void cost_of_0(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags_grant g[1];
    uint32_t i;
    open_tags(&c);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(add(0, i, 1, 0, 0), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, i, 10, 0), QOS_OK);
    }
    for (i = 0; i < 10; i++) {
        CHECK_EQ(tags_pull(&tags, 0, 0, &g[0]), QOS_OK);
        CHECK_EQ(g[0].client, i % 2);
        CHECK_EQ(tags_complete(&tags, 0, &g[0], 0), QOS_OK);
    }
    close_tags();

    c = plain(1, TAGS_PS);
    c.at_limit = TAGS_REJECT;
    c.count_cost = true;
    c.reject_after_ns = SECOND;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 3, 0), QOS_ELIMIT); /* the third would wait for 2 s */
    CHECK_EQ(tags_arrive(&tags, 0, 0, 2, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 0), QOS_ELIMIT);
    close_tags();
}

/* Of a stall a client alone in its group is charged what its group has of reserve_lag_ns by weight. */
static void stall_in_a_group(void)
{
    const struct tags_client terms = {1, 0, 0};
    struct tags_config c = plain(16, TAGS_REWARD);
    uint64_t now = 0, others = 0;
    int stalled;
    uint32_t i;
    c.groups = 2;
    open_tags(&c);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(tags_group_add(&tags, now, 16 + i, &terms, 8 * i, 8), QOS_OK);
        CHECK_EQ(tags_add(&tags, now, 8 * i, &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, now, 8 * i, 3000, 1), QOS_OK);
    }
    for (i = 0; i < 20; i++, now += MS)
        CHECK(serve(now, MS) >= 0);
    stalled = serve(now, 10 * SECOND);
    for (now += 10 * SECOND; serve(now, MS) != stalled; now += MS)
        others++;
    CHECK_WITHIN(others, 490, 510);
    close_tags();
}

/* With config.attribute, the time that a cancelled request may have used is charged to its own client. */
static void cancelled_at_work(void)
{
    struct tags_config c = plain(1, TAGS_REWARD);
    struct tags_grant a, b, g[3];
    uint32_t i;
    c.attribute = true;
    c.channels = 2;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 2, 1), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 0, 1, &a), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 0, 1, &b), QOS_OK);
    CHECK_EQ(tags_cancel(&tags, 1000, &a), QOS_OK);
    CHECK_EQ(tags_complete(&tags, 2000, &b, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 3000, 0, 1, 1), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 3000, 1, &a), QOS_OK); /* the next call that reads the device settles completions */
    CHECK_EQ(report(QOS_NONE).device_ns, 2000);
    close_tags();

    /* Two completions at one time share the time after it: there is one channel, which the cancelled request used for 1
     * us. */
    c.clients = 3;
    c.channels = 1;
    c.count_by_client = true;
    open_tags(&c);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(add(0, i, 1, 0, 0), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, i, 1, 1), QOS_OK);
        CHECK_EQ(tags_pull(&tags, 0, 1, &g[i]), QOS_OK);
    }
    CHECK_EQ(tags_cancel(&tags, 1000, &g[0]), QOS_OK);
    CHECK_EQ(tags_complete(&tags, 3000, &g[1], 0), QOS_OK);
    CHECK_EQ(tags_complete(&tags, 3000, &g[2], 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 4000, 0, 1, 1), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 4000, 1, &a), QOS_OK);
    CHECK_EQ(report(0).device_ns, 1000);
    CHECK_EQ(report(1).device_ns, 1000);
    CHECK_EQ(report(0).cancelled, 1);
    CHECK_EQ(report(QOS_NONE).cancelled, 1);
    CHECK_EQ(report(2).device_ns, 1000);
    close_tags();
}

/* Also of one that a reservation sent beyond the lead, which its share tag was not charged: it pays 50 ms later. */
static void cancelled_beyond_the_lead(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags_grant g;
    uint64_t now = 0, others = 0;
    uint32_t i;
    c.attribute = true;
    c.channels = 1;
    c.lead_requests = 1;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 1000, 0), QOS_OK);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    for (i = 0; i < 2; i++)
        CHECK_EQ(tags_arrive(&tags, 0, i, 100, 1), QOS_OK);
    for (i = 0; i <= 10; i++) {
        CHECK_EQ(tags_pull(&tags, now, 1, &g), QOS_OK);
        CHECK(g.client == 0 && g.phase == TAGS_PHASE_RESERVATION);
        now += i < 10 ? MS : 50 * MS;
        CHECK_EQ(i < 10 ? tags_complete(&tags, now, &g, 0) : tags_cancel(&tags, now, &g), QOS_OK);
    }
    CHECK_EQ(change(now, 0, 1, 0, 0), QOS_OK);
    for (;; others++, now += MS) {
        CHECK_EQ(tags_pull(&tags, now, 1, &g), QOS_OK);
        if (g.client == 0)
            break;
        CHECK_EQ(tags_complete(&tags, now + MS, &g, 0), QOS_OK);
    }
    CHECK_LE(50, others);
    CHECK_LE(others, 56);
    close_tags();
}

/* Two channels, four requests there, the newest of which ends first: the device is taken for a serial one. 65,536
 * later, none before two older ones, it is not any more, and of two at work each is charged half of the time. */
static void taken_for_serial(void)
{
    struct tags_config c = plain(1, TAGS_REWARD);
    struct tags_grant g[4];
    uint64_t now = SECOND, before;
    uint32_t i, k;
    c.at_device_max = 4;
    c.attribute = c.count_by_client = true;
    c.channels = 2;
    open_tags(&c);
    CHECK_EQ(add(now, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, now, 0, 1000000, 1), QOS_OK);
    for (i = 0; i < 400; i++, now += MS) {
        for (k = 0; k < 4; k++)
            CHECK_EQ(tags_pull(&tags, now, 1, &g[k]), QOS_OK);
        for (k = 4; k > 0; k--)
            CHECK_EQ(tags_complete(&tags, now += MS, &g[k - 1], 0), QOS_OK);
    }
    CHECK(report(QOS_NONE).as_serial);
    for (i = 0; i < 65536 / 4 + 1; i++, now += MS) {
        for (k = 0; k < 4; k++)
            CHECK_EQ(tags_pull(&tags, now, 1, &g[k]), QOS_OK);
        for (k = 0; k < 4; k++)
            CHECK_EQ(tags_complete(&tags, now += MS, &g[k ^ 1], 0), QOS_OK);
    }
    CHECK_EQ(tags_pull(&tags, now, 1, &g[0]), QOS_OK);
    CHECK_EQ(tags_pull(&tags, now, 1, &g[1]), QOS_OK);
    CHECK_EQ(tags_pull(&tags, now, 1, &g[2]), QOS_OK);
    before = report(0).device_ns;
    CHECK(!report(QOS_NONE).as_serial);
    CHECK_EQ(tags_complete(&tags, now += 3 * MS, &g[0], 0), QOS_OK);
    CHECK_EQ(tags_complete(&tags, now += MS, &g[1], 0), QOS_OK); /* the look before is over */
    CHECK_EQ(report(0).device_ns - before, 3 * MS / 2);
    CHECK_EQ(tags_complete(&tags, now += MS, &g[2], 0), QOS_OK); /* nothing is at the device: all is charged */
    CHECK_EQ(report(0).device_ns - before, 5 * MS);
    close_tags();
}

/* A limit changes while its tag is behind: the client may go at once, then at the new rate. */
static void changed_when_behind(void)
{
    struct tags_config c = plain(1, TAGS_PS);
    uint64_t start, now;
    unsigned i;
    c.limit_burst_ns = QOS_NOTHING;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 10, 10), QOS_OK);
    CHECK_EQ(change(10 * SECOND, 0, 1, 20, 20), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 10 * SECOND, 0, 2, 1), QOS_OK);
    CHECK_EQ(serve(10 * SECOND, 0), 0);
    CHECK_EQ(tags_next_ns(&tags, 10 * SECOND), 10 * SECOND + 50 * MS);
    CHECK_EQ(report(QOS_NONE).served[TAGS_PHASE_RESERVATION], 1);
    close_tags();

    open_tags(&c); /* ahead: 100 ms at 10 a second are 333333333 1/3 ns at 3, and it is never early */
    CHECK_EQ(add(0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 2, 1), QOS_OK);
    CHECK_EQ(serve(0, 0), 0);
    CHECK_EQ(change(0, 0, 1, 0, 3), QOS_OK);
    CHECK_EQ(tags_next_ns(&tags, 0), 333333334);
    close_tags();

    c.limit_burst_ns = MS; /* at 3 a second it is a third of a ns after the whole ns; at 7 that third has passed */
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 0, 3), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, SECOND, 0, 9, 1), QOS_OK);
    CHECK_EQ(serve(SECOND, 0), 0);
    CHECK_EQ(change(SECOND, 0, 1, 0, 7), QOS_OK);
    for (i = 0, now = start = tags_next_ns(&tags, SECOND); i < 7; i++) {
        CHECK_EQ(serve(now, 0), 0);
        now = tags_next_ns(&tags, now);
    }
    CHECK_EQ(start, SECOND + 142857144); /* 333333334 * 3 / 7, and never early */
    CHECK_EQ(now, start + SECOND);
    close_tags();
}

/* The first id that does not exist, whatever follows the last client in memory: tags of 2^55 - 1 ns. */
static void behind_the_last(void)
{
    struct tags_config c = plain(4, TAGS_PS);
    struct tags_state r;
    uint32_t id;
    open_tags(&c);
    for (id = 0; id < 4; id++)
        CHECK_EQ(add((UINT64_C(1) << 55) - 1, id, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_info(&tags, 4, &r), QOS_ENOENT);
    CHECK_EQ(tags_remove(&tags, 0, 4, NULL), QOS_ENOENT);
    close_tags();
}

/* One channel: a request that ends before an older one was at work in its place, since its own dispatch. The time of
 * the older one before that is nobody's. */
static void before_the_oldest(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags_grant g[3];
    unsigned i;
    c.attribute = true;
    c.channels = 1;
    c.lead_requests = 1;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 1, 1000000, 0), QOS_OK);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, SECOND, 0, 10, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, SECOND, 1, 10, 1), QOS_OK);
    for (i = 0; i < 2; i++)
        CHECK_EQ(tags_pull(&tags, SECOND + i * 1000, 1, &g[i]), QOS_OK);
    CHECK_EQ(tags_complete(&tags, SECOND + 2000, &g[1], 0), QOS_OK);
    CHECK_EQ(tags_pull(&tags, SECOND + 3000, 1, &g[2]), QOS_OK);
    CHECK_EQ(report(QOS_NONE).served[TAGS_PHASE_RESERVATION], 3);
    CHECK_EQ(report(QOS_NONE).device_ns, 1000);
    CHECK_EQ(tags_complete(&tags, SECOND + 4000, &g[0], 0), QOS_OK);
    CHECK_EQ(tags_complete(&tags, SECOND + 5000, &g[2], 0), QOS_OK);
    CHECK_EQ(tags_pull(&tags, SECOND + 6000, 1, &g[0]), QOS_OK);
    CHECK_EQ(report(QOS_NONE).device_ns, 4000);
    close_tags();
}

/* Before each present time come old ones, of ages that go down or up, or times ahead: the limit is neither exceeded nor
 * missed. Then the clock is set back: time goes on after 16 calls. begin: the first time, of a clock of any origin. */
static void old_times(uint64_t begin)
{
    static const int age[][6] = {{10000, 5000, 2000},
                                 {5000, 4000, 3000, 2000, 1100},
                                 {5000},
                                 {2000, 5000, 10000},
                                 {-5000},
                                 {-5000, -4000},
                                 {60000, 50000, 40000, 30000, 20000, 10000}};
    struct tags_config c = plain(1, TAGS_PS);
    uint64_t now, sent;
    unsigned i, k;
    for (i = 0; i < sizeof age / sizeof *age; i++) {
        open_tags(&c);
        CHECK_EQ(add(begin, 0, 1, 0, 1000), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, begin, 0, 100000, 1), QOS_OK);
        for (sent = 0, now = begin; now < begin + 5 * SECOND; now += MS)
            for (k = 0; k < 7; k++)
                if (k == 6 || age[i][k])
                    while (serve((uint64_t)((int64_t)now - (k == 6 ? 0 : (int64_t)age[i][k] * (int64_t)MS)), MS) == 0)
                        sent++;
        CHECK_WITHIN(sent, 4990, 5000 + 101);
        for (k = 0; k < 16; k++)
            CHECK_EQ(serve(now - 50 * SECOND + 2 * k * SECOND, MS), -1);
        CHECK_EQ(serve(now - 50 * SECOND + 32 * SECOND, MS), -1);
        CHECK_EQ(serve(now - 50 * SECOND + 34 * SECOND, MS), 0);
        close_tags();
    }
}

/* The clock is set back by little more than a second while a client owes 250 ms for forced requests: the next times that
 * are told are before the latest one, and never beyond what is owed, also where times are before the first. */
static void told_before_the_latest(uint64_t begin)
{
    const uint64_t back = begin - 1010 * MS;
    struct tags_config c = plain(1, TAGS_PS);
    struct tags_grant g;
    uint64_t told;
    unsigned i;
    c.limit_burst_ns = QOS_NOTHING;
    open_tags(&c);
    CHECK_EQ(add(begin, 0, 1, 0, 20), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, begin, 0, 9, 1), QOS_OK);
    CHECK_EQ(serve(begin, MS), 0);
    for (i = 0; i < 4; i++)
        CHECK_EQ(tags_force(&tags, begin, 0, 1, &g), QOS_OK);
    for (i = 0; i < 70; i++) { /* in 16 steps of an interval of the limit; then exact */
        told = tags_next_ns(&tags, back + i * 4 * MS);
        CHECK_LE(told, i < 16 ? back + (i + 1) * 4 * MS : begin + 300 * MS);
    }
    CHECK_EQ(serve(begin + 250 * MS, MS), 0);
    close_tags();
}

/* The clock is set back: a loop that sleeps until the told time stands still for limit_burst_ns and a request, as one
 * that polls does. */
static void slept_after_a_setback(void)
{
    struct tags_config c = plain(1, TAGS_PS);
    uint64_t now = 90 * SECOND;
    unsigned calls;
    open_tags(&c);
    CHECK_EQ(add(100 * SECOND, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 100 * SECOND, 0, 9, 1), QOS_OK);
    while (serve(100 * SECOND, MS) == 0)
        continue;
    for (calls = 0; serve(now, MS) != 0 && calls < 20; calls++)
        now = tags_next_ns(&tags, now);
    CHECK_WITHIN(calls, 1, 17);            /* early 16 times */
    CHECK_EQ(now, 90 * SECOND + 300 * MS); /* 100 ms of burst, and of a request; then it is due in 100 ms */
    close_tags();
}

/* A time a year (2^55 ns) ahead does not count; a time 1 ns less does. After an old time and then a present one, the
 * next event is in the caller's own time, to the ns. */
static void clock_borders(void)
{
    const uint64_t year = UINT64_C(1) << 55;
    struct tags_config c = plain(2, TAGS_PS);
    uint64_t now = 10 * SECOND, due, i;
    c.limit_burst_ns = QOS_NOTHING;
    open_tags(&c);
    CHECK_EQ(add(now, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, now, 0, 100, 1), QOS_OK);
    CHECK_EQ(serve(now, MS), 0);
    CHECK_EQ(serve(now + year, MS), -1);
    CHECK_EQ(serve(now, MS), -1);
    CHECK_EQ(tags_next_ns(&tags, now), now + SECOND);
    CHECK_EQ(serve(now + year - 1, MS), 0);
    now += year;
    CHECK_EQ(serve(now + SECOND, MS), 0);
    due = now + 2 * SECOND;
    CHECK_EQ(tags_next_ns(&tags, now + SECOND), due);
    CHECK_EQ(serve(now - SECOND, MS), -1); /* 2 s old */
    CHECK_EQ(serve(now + SECOND, MS), -1);
    CHECK_EQ(tags_next_ns(&tags, now + SECOND), due);
    CHECK_EQ(serve(due - 1, MS), -1);
    CHECK_EQ(serve(due, MS), 0);
    CHECK_EQ(serve(due - 2 * SECOND, MS), -1);
    for (i = 0; i < 17; i++) /* the first does not count; then time stands still for a request and 16 calls */
        CHECK_EQ(serve(due + year - 1 + i * SECOND, MS), -1);
    CHECK_EQ(serve(due + year - 1 + 17 * SECOND - 1, MS), -1);
    CHECK_EQ(serve(due + year - 1 + 17 * SECOND, MS), 0);
    close_tags();

    open_tags(&c); /* 5 s back; from there half a second back is late, and a present time is ordinary again */
    CHECK_EQ(add(10 * SECOND, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 10 * SECOND, 0, 100, 1), QOS_OK);
    CHECK_EQ(serve(10 * SECOND, MS), 0);
    CHECK_EQ(serve(5 * SECOND, MS), -1);
    CHECK_EQ(serve(5 * SECOND - 500 * MS, MS), -1);
    CHECK_EQ(serve(5 * SECOND + 700 * MS, MS), -1);
    CHECK_EQ(serve(5 * SECOND + 999 * MS, MS), -1);
    CHECK_EQ(serve(10 * SECOND + 50 * MS, MS), -1);
    CHECK_EQ(serve(10 * SECOND + 999 * MS, MS), -1);
    CHECK_EQ(serve(11 * SECOND, MS), 0);
    close_tags();

    open_tags(&c); /* a first time of 2^62 does not count */
    CHECK_EQ(add(UINT64_C(1) << 62, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, SECOND, 0, 100, 1), QOS_OK);
    CHECK_EQ(serve(SECOND, MS), 0);
    CHECK_EQ(serve((UINT64_C(1) << 62) + 5 * SECOND, MS), -1);
    close_tags();
}

/* The ends of time: tags stay at the end, nothing wraps. */
static void end_of_time(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags_grant g;
    unsigned i;
    open_tags(&c);
    CHECK_EQ(add(UINT64_MAX, 0, 1, 1, 1), QOS_OK);
    CHECK_EQ(add(UINT64_MAX, 1, TAGS_WEIGHT_MAX, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, UINT64_MAX, 0, 10, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, UINT64_MAX, 1, 10, 1), QOS_OK);
    for (i = 0; i < 11; i++) {
        CHECK_EQ(tags_pull(&tags, UINT64_MAX, 1, &g), QOS_OK);
        CHECK_EQ(tags_complete(&tags, UINT64_MAX, &g, UINT64_MAX), QOS_OK);
    }
    CHECK_EQ(report(QOS_NONE).at_device, 0);
    close_tags();

    c = plain(2, TAGS_PS); /* who owes beyond the end is not told never; and a first time makes none stand still */
    open_tags(&c);
    CHECK_EQ(add(UINT64_MAX - 3 * SECOND, 0, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, UINT64_MAX - 3 * SECOND, 0, 4, 1), QOS_OK);
    CHECK_EQ(serve(UINT64_MAX - 3 * SECOND, MS), 0);
    CHECK_EQ(tags_next_ns(&tags, UINT64_MAX - 3 * SECOND), UINT64_MAX - 2 * SECOND);
    for (i = 0; i < 3; i++)
        CHECK_EQ(tags_force(&tags, UINT64_MAX - 3 * SECOND, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_next_ns(&tags, UINT64_MAX - 3 * SECOND), QOS_NEVER - 1);
    close_tags();
}

/* Words that schedulers share: their ranges, and terms that must agree. */
static void shared_terms(void)
{
#if TAGS_HAS_SHARED
    struct tags_shared_config s;
    struct tags_config c = plain(4, TAGS_PS);
    struct tags_client k;
    struct tags_shared *shared;
    struct check_mem m;
    unsigned i;
    memset(&s, 0, sizeof s);
    memset(&k, 0, sizeof k);
    s.clients = 3;
    s.reserve_lag_ns = QOS_NOTHING;
    s.limit_burst_ns = UINT64_C(1) << 62;
    check_mem_new(&m, tags_shared_memsize(&s), 8, 0);
    shared = (struct tags_shared *)(void *)m.mem;
    CHECK_EQ(tags_shared_init(NULL, 0, m.size, &s), QOS_EINVAL);
    CHECK_EQ(tags_shared_init(shared, 0, m.size - 1, &s), QOS_EMEMORY);
    CHECK_EQ(tags_shared_init((struct tags_shared *)(void *)(m.mem + 4), 0, m.size, &s), QOS_EALIGN);
    CHECK_EQ(tags_shared_init(shared, 0, m.size, &s), QOS_OK);
    k.limit_per_s = TAGS_SHARED_RATE_MAX + 1;
    CHECK_EQ(tags_shared_change(shared, 0, 0, &k), QOS_ERANGE);
    k.limit_per_s = 10;
    k.weight = TAGS_WEIGHT_MAX + 1;
    CHECK_EQ(tags_shared_change(shared, 0, 0, &k), QOS_ERANGE);
    k.weight = 0;
    CHECK_EQ(tags_shared_change(shared, 0, 3, &k), QOS_ENOENT);
    CHECK_EQ(tags_shared_change(shared, 0, 1, &k), QOS_OK);
    k.limit_per_s = QOS_UNLIMITED; /* counts as 0 */
    CHECK_EQ(tags_shared_change(shared, 0, 2, &k), QOS_OK);
    c.shared = shared;
    CHECK(strstr(tags_config_error(&c), "clients") != NULL);
    c.clients = 3;
    open_tags(&c);
    CHECK_EQ(add(0, 1, 1, 0, 11), QOS_EINVAL); /* not the terms of the entry */
    CHECK_EQ(add(0, 1, 1, 0, 10), QOS_OK);
    CHECK_EQ(add(0, 2, 1, 0, 0), QOS_OK);
    /* Lower terms count from the change on: the client no longer gets what the higher terms would have given since the
     * start. */
    k.limit_per_s = 1000;
    CHECK_EQ(tags_shared_change(shared, 0, 0, &k), QOS_OK);
    CHECK_EQ(add(0, 0, 1, 0, 1000), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 502, 1), QOS_OK);
    for (i = 0; i < 500; i++)
        CHECK_EQ(serve(SECOND, 1), 0);
    CHECK_EQ(tags_remove(&tags, SECOND, 0, NULL), QOS_OK);
    k.limit_per_s = 10;
    CHECK_EQ(tags_shared_change(shared, SECOND, 0, &k), QOS_OK);
    CHECK_EQ(add(SECOND, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, SECOND, 0, 2, 1), QOS_OK);
    CHECK_EQ(serve(SECOND, 1), 0);
    CHECK_EQ(serve(SECOND + 100 * MS, 1), 0);
    close_tags();
    open_tags(&c); /* a time at the end of times, of a clock that is near it: not taken for a tag that is absent */
    CHECK_EQ(add(UINT64_MAX - SECOND, 2, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, UINT64_MAX, 2, 1, 1), QOS_OK);
    CHECK_EQ(serve(UINT64_MAX, 1), 2);
    CHECK_EQ(tags_next_ns(&tags, UINT64_MAX), QOS_NEVER);
    close_tags();
    CHECK(check_mem_free(&m));
#endif
}

#if TAGS_HAS_SHARED
static struct tags other;
static struct check_mem other_memory, shared_memory;
static uint64_t shared_begin;

/* Two schedulers, one client with these terms, requests queued at both. */
static void open_shared(uint64_t reservation_per_s, uint64_t limit_per_s, uint64_t burst_ns)
{
    struct tags_shared_config s;
    struct tags_config c = plain(1, TAGS_PS);
    struct tags_client k;
    struct tags_shared *shared;
    memset(&s, 0, sizeof s);
    memset(&k, 0, sizeof k);
    s.clients = 1;
    s.limit_burst_ns = burst_ns;
    check_mem_new(&shared_memory, tags_shared_memsize(&s), 8, 0);
    shared = (struct tags_shared *)(void *)shared_memory.mem;
    CHECK_EQ(tags_shared_init(shared, shared_begin, shared_memory.size, &s), QOS_OK);
    k.reservation_per_s = reservation_per_s;
    k.limit_per_s = limit_per_s;
    CHECK_EQ(tags_shared_change(shared, shared_begin, 0, &k), QOS_OK);
    c.shared = shared;
    c.at_device_max = 90;
    open_tags(&c);
    check_mem_new(&other_memory, tags_memsize(&c), 64, 0);
    CHECK_EQ(tags_init(&other, other_memory.mem, other_memory.size, &c), QOS_OK);
    CHECK_EQ(tags_add(&tags, shared_begin, 0, &k), QOS_OK);
    CHECK_EQ(tags_add(&other, shared_begin, 0, &k), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, shared_begin, 0, 90, 1), QOS_OK);
    CHECK_EQ(tags_arrive(&other, shared_begin, 0, 90, 1), QOS_OK);
}

static void close_shared(void)
{
    CHECK(check_mem_free(&other_memory));
    close_tags();
    CHECK(check_mem_free(&shared_memory));
}
#endif

static void shared_claims(void)
{
#if TAGS_HAS_SHARED
    struct tags_grant g, h, held[30];
    unsigned i, limited;
    for (i = 0; i < 4; i++) { /* a clock of any origin */
        shared_begin = (uint64_t)i << 62;
        open_shared(0, 10, MS);
        CHECK_EQ(tags_pull(&tags, shared_begin, 1, &g), QOS_OK);
        CHECK_EQ(tags_pull(&other, shared_begin + MS, 1, &h), QOS_EAGAIN); /* a part of a unit does not count */
        CHECK_EQ(tags_pull(&other, shared_begin + 100 * MS, 1, &h), QOS_OK);
        close_shared();
    }
    shared_begin = 0;
    /* A burst of less than one request: at 1050 ms the word keeps only the fraction of a unit of the past. */
    open_shared(0, 10, MS);
    CHECK_EQ(tags_pull(&tags, 1050 * MS, 1, &g), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 1050 * MS, 1, &g), QOS_EAGAIN);
    CHECK_EQ(tags_next_ns(&tags, 1050 * MS), 1100 * MS);
    CHECK_EQ(tags_pull(&other, 1100 * MS, 1, &h), QOS_OK);
    CHECK_EQ(tags_next_ns(&other, 1100 * MS), 1200 * MS);
    close_shared();
    open_shared(0, 1, MS); /* 1 ns less than a kept unit: the word keeps none */
    CHECK_EQ(tags_pull(&tags, 1001 * MS - 1, 1, &g), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 1001 * MS - 1, 1, &g), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 1001 * MS - 1, 1, &g), QOS_EAGAIN);
    CHECK_EQ(tags_next_ns(&tags, 1001 * MS), 2000 * MS);
    close_shared();
    for (i = 0; i < 2; i++) { /* a burst 1 ns shorter than a unit, and one of a unit, at 2.5 s */
        open_shared(0, 1, SECOND - 1 + i);
        CHECK_EQ(tags_pull(&tags, 2500 * MS, 1, &g), QOS_OK);
        CHECK_EQ(tags_pull(&tags, 2500 * MS, 1, &g), i ? QOS_EAGAIN : QOS_OK);
        CHECK_EQ(tags_pull(&tags, 2500 * MS, 1, &g), QOS_EAGAIN);
        close_shared();
    }
    /* At most 1 s is kept: 9 units since then, and the one by which the client may always be ahead. */
    open_shared(0, 10, SECOND);
    for (i = 0; i < 10; i++)
        CHECK_EQ(tags_pull(&tags, 10050 * MS, 1, &g), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 10050 * MS, 1, &g), QOS_EAGAIN);
    close_shared();
    /* If the reservation's word refuses, the limit gets its unit back, and that is due at once, by weight. */
    open_shared(10, 20, MS);
    CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_pull(&other, 50 * MS, 1, &h), QOS_OK);
    CHECK_EQ(h.phase, TAGS_PHASE_WEIGHT);
    close_shared();
    open_shared(10, 10, MS); /* a burst of less than one request */
    CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
    CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_pull(&other, 0, 1, &h), QOS_EAGAIN); /* by its copy the limit is due, by its word it is not */
    CHECK_EQ(tags_next_ns(&other, 0), 100 * MS);
    CHECK_EQ(tags_cancel(&tags, 0, &g), QOS_OK); /* both words get their unit back */
    CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_OK);
    CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_complete(&tags, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_pull(&tags, 0, 1, &g), QOS_EAGAIN);
    CHECK_EQ(tags_force(&other, 0, 0, 1, &h), QOS_OK); /* forced: the next is due one unit later */
    CHECK_EQ(tags_pull(&tags, 100 * MS, 1, &g), QOS_EAGAIN);
    CHECK_EQ(tags_pull(&tags, 200 * MS, 1, &g), QOS_OK);
    close_shared();
    /* By its copy the reservation is due, by its word it is not: the limit gets back its charge, and the request goes
     * by weight. */
    open_shared(10, 100, SECOND);
    for (i = 0; i < 11; i++) {
        CHECK_EQ(tags_pull(&tags, SECOND, 1, &g), QOS_OK);
        CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    }
    for (i = 0; i < 90; i++) {
        CHECK_EQ(tags_pull(&other, SECOND, 1, &h), QOS_OK);
        CHECK_EQ(h.phase, TAGS_PHASE_WEIGHT);
    }
    CHECK_EQ(tags_pull(&tags, SECOND, 1, &g), QOS_EAGAIN); /* 101: at the limit, not before */
    CHECK_EQ(tags_next_ns(&tags, SECOND), 1010 * MS);
    close_shared();
    /* 30 requests that were dispatched longer ago than is kept, and are cancelled, give nothing to the words. */
    for (limited = 0; limited < 2; limited++) {
        open_shared(limited ? 0 : 10, limited ? 10 : 0, SECOND);
        for (i = 0; i < 30; i++)
            CHECK_EQ(tags_pull(&tags, i * 100 * MS, 1, &held[i]), QOS_OK);
        for (i = 0; i < 11; i++) {
            CHECK_EQ(tags_pull(&tags, 6 * SECOND, 1, &g), QOS_OK);
            CHECK_EQ(g.phase, limited ? TAGS_PHASE_WEIGHT : TAGS_PHASE_RESERVATION);
        }
        for (i = 0; i < 30; i++)
            CHECK_EQ(tags_cancel(&tags, 6 * SECOND, &held[i]), QOS_OK);
        CHECK_EQ(tags_pull(&other, 6 * SECOND, 1, &h), limited ? QOS_EAGAIN : QOS_OK);
        CHECK(limited || h.phase == TAGS_PHASE_WEIGHT);
        close_shared();
    }
    /* A clock that is set back stops until it has caught up, or its scheduler would run ahead of the others. */
    open_shared(0, 10, MS);
    for (i = 0; i < 2; i++)
        CHECK_EQ(tags_pull(&tags, 10 * SECOND, 1, &g), QOS_OK);
    for (i = 0; i < 100; i++)
        CHECK_EQ(tags_pull(&tags, 8 * SECOND + i * 20 * MS, 1, &g), QOS_EAGAIN);
    CHECK_EQ(tags_pull(&tags, 10100 * MS, 1, &g), QOS_OK);
    close_shared();
#endif
}

/* Requests of two clients, dispatched in turn, end at 0.5, 2, 2.5 and 4 ms. A serial device with 0.5 and 1.5 ms does
 * that, and so do two channels with 2 ms each, 0.5 ms after each other. Whose time it was cannot be told: without
 * `channels` the header says so, and shares go by cost. With them, each has an answer. */
static void channels_not_known(void)
{
    static const uint64_t end[] = {500000, 2000000, 2500000, 4000000};
    static const struct {
        uint32_t channels;
        bool by_time;
        uint64_t device_ns[2];
    } row[] = {{0, false, {0, 0}}, {1, true, {1000000, 3000000}}, {2, true, {1250000, 2750000}}};
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags_grant g[4], last;
    unsigned i, k;
    c.attribute = true;
    c.count_by_client = true;
    for (k = 0; k < sizeof row / sizeof row[0]; k++) {
        CHECK_CONTEXT("channels %u", row[k].channels);
        c.channels = row[k].channels;
        open_tags(&c);
        CHECK_EQ(report(QOS_NONE).by_time, row[k].by_time);
        CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
        CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
        for (i = 0; i < 2; i++)
            CHECK_EQ(tags_arrive(&tags, 0, i, 3, 1), QOS_OK);
        for (i = 0; i < 4; i++) {
            CHECK_EQ(tags_pull(&tags, 0, 1, &g[i]), QOS_OK);
            CHECK_EQ(g[i].client, i % 2);
        }
        for (i = 0; i < 4; i++)
            CHECK_EQ(tags_complete(&tags, end[i], &g[i], 0), QOS_OK);
        CHECK_EQ(tags_pull(&tags, 5000000, 1, &last), QOS_OK); /* settles the last one */
        CHECK_EQ(report(0).device_ns, row[k].device_ns[0]);
        CHECK_EQ(report(1).device_ns, row[k].device_ns[1]);
        close_tags();
    }
}

enum elsewhere { WAS_AWAY, FORCES_FIRST, CAME_AGAIN, IS_NEW };

/* A client of many servers, 100 a second, comes back after 10 s with what it was served elsewhere meanwhile: what fits in
 * that time costs it none of the time to come, the rest does; and a cancel gives none of it back. */
static void served_elsewhere(enum elsewhere how, uint32_t brought, uint64_t next_ns)
{
    const struct tags_config c = plain(1, TAGS_PS);
    const struct tags_choice choice = {0, TAGS_PHASE_RESERVATION};
    const uint64_t now = 10 * SECOND;
    struct tags_grant g;
    CHECK_CONTEXT("%u, %" PRIu32 " elsewhere", (unsigned)how, brought);
    open_tags(&c);
    if (how != IS_NEW) {
        CHECK_EQ(add(0, 0, 1, 100, 100), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 1), QOS_OK);
        CHECK_EQ(serve(0, MS), 0);
    }
    if (how == CAME_AGAIN)
        CHECK_EQ(tags_remove(&tags, now, 0, NULL), QOS_OK);
    if (how == CAME_AGAIN || how == IS_NEW)
        CHECK_EQ(add(now, 0, 1, 100, 100), QOS_OK);
    if (how == FORCES_FIRST)
        CHECK_EQ(tags_force(&tags, now, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, now, 0, 3, 1), QOS_OK);
    CHECK_EQ(tags_dispatch(&tags, now, &choice, 1, brought, brought, &g), QOS_OK);
    CHECK_EQ(tags_next_ns(&tags, now), now + next_ns);
    CHECK_EQ(tags_cancel(&tags, now, &g), QOS_OK);
    CHECK_EQ(tags_next_ns(&tags, now), now + next_ns - 10 * MS);
    close_tags();
}

/* The same by weight: as much as the neighbour was served meanwhile costs it no turn here, the rest does. `turns`: of the
 * neighbour, before it has its next one. */
static void passed_meanwhile(enum elsewhere how, uint32_t brought, int turns)
{
    struct tags_config c = plain(16, TAGS_PS);
    const struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    const struct tags_client terms = {1, 0, 0};
    struct tags_grant g;
    int i;
    CHECK_CONTEXT("%u, %" PRIu32 " elsewhere by weight", (unsigned)how, brought);
    c.groups = 1;
    open_tags(&c);
    CHECK_EQ(tags_group_add(&tags, 0, 16, &terms, 0, 16), QOS_OK);
    CHECK_EQ(add(0, 1, 1, 0, 0), QOS_OK);
    if (how != IS_NEW)
        CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 1, 2000, 1), QOS_OK);
    if (how != IS_NEW)
        CHECK_EQ(tags_arrive(&tags, 0, 0, 1, 1), QOS_OK);
    for (i = 0; i < 501; i++)
        CHECK_GE(serve(0, MS), 0);
    if (how == CAME_AGAIN)
        CHECK_EQ(tags_remove(&tags, 0, 0, NULL), QOS_OK);
    if (how == CAME_AGAIN || how == IS_NEW)
        CHECK_EQ(add(0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 0, 0, 2, 1), QOS_OK);
    CHECK_EQ(tags_dispatch(&tags, 0, &choice, 1, 0, brought, &g), QOS_OK);
    for (i = 0; serve(0, MS) == 1; i++)
        ;
    CHECK_GE(i, turns);
    CHECK_LE(i, turns + 2);
    close_tags();
}

/* Two clients of a group, 100 a second in all, that comes back after 10 s: the first tells of `first` and the second of
 * `brought`, late_ns after it, in which the first is served. What fits in the time in which the group was away since the
 * second one's last request, at last_ns, costs nothing. Client 2 is new. */
static void group_comes_back(uint32_t first, uint64_t last_ns, uint32_t second, uint64_t late_ns, uint32_t brought,
                             uint64_t next_ns)
{
    struct tags_config c = plain(8, TAGS_PS);
    const struct tags_client terms = {1, 0, 100};
    struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    uint64_t now;
    struct tags_grant g;
    uint32_t i;
    CHECK_CONTEXT("%" PRIu32 ", client %" PRIu32 ", last at %" PRIu64 ", %" PRIu64 " later, %" PRIu32 " elsewhere",
                  first, second, last_ns, late_ns, brought);
    c.groups = 1;
    open_tags(&c);
    CHECK_EQ(tags_group_add(&tags, 0, 8, &terms, 0, 8), QOS_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(add(0, i, 1, 0, 0), QOS_OK);
    for (i = 0; i < 2; i++) {
        now = i == 0 ? 0 : last_ns;
        CHECK_EQ(tags_arrive(&tags, now, i, 1, 1), QOS_OK);
        CHECK_EQ(serve(now, MS), (int)i);
    }
    now = 10 * SECOND;
    CHECK_EQ(tags_arrive(&tags, now, 0, 200, 1), QOS_OK);
    CHECK_EQ(tags_dispatch(&tags, now, &choice, 1, 0, first, &g), QOS_OK);
    for (; late_ns > 0; late_ns -= 10 * MS) {
        now += 10 * MS;
        CHECK_EQ(serve(now, MS), 0);
    }
    CHECK_EQ(tags_arrive(&tags, now, second, 3, 1), QOS_OK);
    now += 10 * MS;
    choice.client = second;
    CHECK_EQ(tags_dispatch(&tags, now, &choice, 1, 0, brought, &g), QOS_OK);
    CHECK_EQ(tags_next_ns(&tags, now), now + next_ns);
    close_tags();
}

/* Requests at the device keep what they were charged in requests: 10 a second, three of them, then 100 a second. All
 * three, cancelled, give the tag back. */
static void terms_between(void)
{
    struct tags_config c = plain(1, TAGS_PS);
    struct tags_grant g[3];
    unsigned i;
    c.limit_burst_ns = SECOND;
    open_tags(&c);
    CHECK_EQ(add(0, 0, 4, 10, 10), QOS_OK);
    CHECK_EQ(tags_arrive(&tags, 9 * SECOND, 0, 20, 1), QOS_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(tags_pull(&tags, 10 * SECOND, 1, &g[i]), QOS_OK);
    CHECK_EQ(change(10 * SECOND, 0, 1, 100, 100), QOS_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(tags_cancel(&tags, 10 * SECOND, &g[i]), QOS_OK);
    for (i = 0; i < 11; i++) /* a tenth of a second was behind, in requests: 8 of 10, 10 again */
        CHECK_EQ(serve(10 * SECOND, 0), 0);
    CHECK_LE(tags_next_ns(&tags, 10 * SECOND), 10 * SECOND + 10 * MS);
    close_tags();
}

int main(void)
{
    check_begin("unit/tags_api");
    memory_and_trees();
    clients();
    group_at_the_limit();
    rejected();
    bounded_moves();
    channels_not_known();
    served_elsewhere(WAS_AWAY, 0, 10 * MS);
    served_elsewhere(WAS_AWAY, 999, 10 * MS);
    served_elsewhere(WAS_AWAY, 1099, SECOND + 10 * MS);
    served_elsewhere(FORCES_FIRST, 999, 20 * MS);
    served_elsewhere(CAME_AGAIN, 999, 10 * MS);
    served_elsewhere(CAME_AGAIN, 1099, SECOND + 10 * MS);
    served_elsewhere(IS_NEW, 1000000, 10 * MS);
    passed_meanwhile(WAS_AWAY, 499, 0);
    passed_meanwhile(WAS_AWAY, 599, 99);
    passed_meanwhile(CAME_AGAIN, 499, 0);
    passed_meanwhile(CAME_AGAIN, 599, 99);
    passed_meanwhile(IS_NEW, 1000000, 0);
    group_comes_back(499, 10 * MS, 1, 0, 499, 10 * MS);
    group_comes_back(499, 10 * MS, 1, 0, 599, SECOND + 10 * MS);
    group_comes_back(0, 9 * SECOND, 1, 0, 599, 5010 * MS);
    group_comes_back(499, 10 * MS, 1, SECOND, 499, 920 * MS);
    group_comes_back(0, 10 * MS, 2, 0, 1000000, 10 * MS);
    terms_between();
    given_up(0, TAGS_PHASE_WEIGHT);
    given_up(10, TAGS_PHASE_RESERVATION);
    no_completions();
    forced(0, 1, TAGS_PS);
    forced(0, 1000000, TAGS_PS);
    forced(0, 4096, TAGS_REWARD);
    forced(10, 1, TAGS_PS);
    intrusive();
    rare_and_huge();
    long_services();
    charged_as_used();
    refunded_exactly();
    exact_costs();
    cost_of_0();
    stall_in_a_group();
    cancelled_at_work();
    cancelled_beyond_the_lead();
    taken_for_serial();
    changed_when_behind();
    behind_the_last();
    before_the_oldest();
    clock_borders();
    old_times(100 * SECOND);
    old_times(UINT64_C(3) << 62);
    slept_after_a_setback();
    told_before_the_latest(100 * SECOND);
    told_before_the_latest(UINT64_C(3) << 62);
    end_of_time();
    shared_terms();
    shared_claims();
    return check_end();
}
