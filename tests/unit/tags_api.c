// proves: every call of tags.h: ranges, errors that change nothing, limits (wait, allow, reject), force and its debt,
// proves: cancelled and failed requests, live change, removal, intrusive queues, dmClock's rho and delta, admission
#include "tags.h"
#include "check.h"

static struct check_mem memory;
static struct tags sched;

static struct tags_config plain(uint32_t clients, enum tags_mode mode)
{
    struct tags_config c;
    memset(&c, 0, sizeof c);
    c.clients = clients;
    c.mode = mode;
    return c;
}

static struct tags *open_tags(const struct tags_config *c)
{
    check_mem_new(&memory, tags_memsize(c), 64, 0);
    CHECK_EQ(tags_init(&sched, memory.mem, memory.size, c), QOS_OK);
    return &sched;
}

static void close_tags(void)
{
    CHECK(check_mem_free(&memory));
}

/* rTag or lTag. */
static struct tags_priv_due opened(const struct tags_priv_rate *p)
{
    struct tags_priv_due d;
    d.tag_ns = (uint64_t)p->tag_hi << 32 | p->tag_lo;
    d.rest = (uint64_t)p->rest_hi << 32 | p->rest_lo;
    d.rate_per_s = (uint64_t)p->rate_hi << 32 | p->rate_lo;
    return d;
}

static struct tags_client terms(uint64_t weight, uint64_t reservation, uint64_t limit)
{
    struct tags_client c;
    c.weight = weight;
    c.reservation_per_s = reservation;
    c.limit_per_s = limit;
    return c;
}

static enum qos_status add(struct tags *t, uint64_t now, uint32_t id, uint64_t w, uint64_t r, uint64_t l)
{
    struct tags_client c = terms(w, r, l);
    return tags_add(t, now, id, &c);
}

static enum qos_status set(struct tags *t, uint64_t now, uint32_t id, uint64_t w, uint64_t r, uint64_t l)
{
    struct tags_client c = terms(w, r, l);
    return tags_set(t, now, id, &c);
}

/* Who is sent at `now`, and completes after service ns at the same instant; -1: nobody. */
static int serve(struct tags *t, uint64_t now, uint64_t service)
{
    struct tags_grant g;
    if (tags_pull(t, now, 1, &g) != QOS_OK)
        return -1;
    CHECK_EQ(tags_complete(t, now, &g, service), QOS_OK);
    return (int)g.client;
}

static void configurations(void)
{
    const unsigned unknown = 9;
    struct tags_config c = plain(0, TAGS_REWARD);
    struct tags t;
    struct check_mem m;
    CHECK_EQ(tags_memsize(NULL), 0);
    CHECK_EQ(tags_memsize(&c), 0);
    c.clients = TAGS_CLIENTS_MAX + 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_REWARD);
    c.window = TAGS_WINDOW_MAX + 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_REWARD);
    c.no_completions = true; /* reward needs them */
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    memcpy(&c.mode, &unknown, sizeof c.mode);
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    memcpy(&c.at_limit, &unknown, sizeof c.at_limit);
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    c.phase_requests = TAGS_NO_SYNC - 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    c.service_ns = QOS_TOKENS_MAX + 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    c.limit_burst_ns = (UINT64_C(1) << 62) + 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    c.reserve_lag_ns = (UINT64_C(1) << 62) + 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_PS);
    c.force_debt_ns = (UINT64_C(1) << 62) + 1;
    CHECK_EQ(tags_memsize(&c), 0);
    c = plain(5, TAGS_REWARD);
    check_mem_new(&m, tags_memsize(&c), 64, 0);
    CHECK_EQ(tags_init(NULL, m.mem, m.size, &c), QOS_EINVAL);
    CHECK_EQ(tags_init(&t, NULL, m.size, &c), QOS_EINVAL);
    CHECK_EQ(tags_init(&t, m.mem, m.size, NULL), QOS_EINVAL);
    CHECK_EQ(tags_init(&t, m.mem, m.size - 1, &c), QOS_EMEMORY);
    CHECK_EQ(tags_init(&t, m.mem + 8, m.size, &c), QOS_EALIGN);
    c.clients = 0;
    CHECK_EQ(tags_init(&t, m.mem, m.size, &c), QOS_ERANGE);
    CHECK(check_mem_free(&m));
    for (c = plain(1, TAGS_PS); c.clients < 70; c.clients++) {
        struct tags *s = open_tags(&c);
        uint32_t i;
        for (i = 0; i < c.clients; i++) {
            CHECK_EQ(add(s, 0, i, 1, 1, 0), QOS_OK);
            CHECK_EQ(tags_arrive(s, 0, i, 1), QOS_OK);
        }
        for (i = 0; i < c.clients; i++)
            CHECK_EQ(serve(s, 5, 1), i); /* all tags equal: in the order of ids */
        CHECK_EQ(serve(s, 5, 1), -1);
        close_tags();
    }
    if (sizeof(void *) == 8) { /* at most 160 bytes a client, in both modes, from 1,000 on; exact: 200 more */
        for (c = plain(1000, TAGS_PS); c.clients <= 100000; c.clients *= 10) {
            uint64_t all;
            c.mode = TAGS_PS;
            all = tags_memsize(&c);
            CHECK_LE(all, 128 * (uint64_t)c.clients);
            c.mode = TAGS_REWARD;
            all = tags_memsize(&c);
            CHECK_LE(all, 160 * (uint64_t)c.clients);
            c.exact_window = true;
            CHECK_WITHIN(tags_memsize(&c) - all, 200 * (uint64_t)c.clients - 64, 200 * (uint64_t)c.clients + 64);
            c.exact_window = false;
        }
    }
}

static void clients(void)
{
    struct tags_config c = plain(4, TAGS_PS);
    struct tags *t;
    struct tags_client x = terms(1, 0, 0);
    struct tags_client_state state;
    struct tags_choice choice;
    struct tags_grant g;
    uint32_t dropped = 9;
    c.capacity_per_s = 100;
    t = open_tags(&c);
    CHECK_EQ(tags_admissible(t), 100);
    CHECK_EQ(tags_add(NULL, 0, 0, &x), QOS_EINVAL);
    CHECK_EQ(tags_add(t, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_add(t, 0, 4, &x), QOS_ENOENT);
    CHECK_EQ(add(t, 0, 0, TAGS_WEIGHT_MAX + 1, 0, 0), QOS_ERANGE);
    CHECK_EQ(add(t, 0, 0, 1, QOS_RATE_MAX + 1, 0), QOS_ERANGE);
    CHECK_EQ(add(t, 0, 0, 1, 0, QOS_RATE_MAX + 1), QOS_ERANGE);
    CHECK_EQ(add(t, 0, 0, 1, 20, 19), QOS_EINVAL);
    CHECK_EQ(add(t, 0, 0, 1, 101, 0), QOS_EADMISSION);
    CHECK_EQ(add(t, 0, 0, 1, 60, 0), QOS_OK);
    CHECK_EQ(add(t, 0, 0, 1, 60, 0), QOS_EEXIST);
    CHECK_EQ(tags_admissible(t), 40);
    CHECK_EQ(add(t, 0, 1, 0, 41, 0), QOS_EADMISSION);
    CHECK_EQ(add(t, 0, 1, 0, 40, 0), QOS_OK);
    CHECK_EQ(set(t, 0, 1, 1, 41, 0), QOS_EADMISSION);
    CHECK_EQ(set(t, 0, 0, 1, 10, 0), QOS_OK);
    CHECK_EQ(tags_admissible(t), 50);
    CHECK_EQ(set(t, 0, 1, 1, 90, 0), QOS_OK);
    CHECK_EQ(set(t, 0, 2, 1, 0, 0), QOS_ENOENT);
    CHECK_EQ(set(t, 0, 1, 1, 5, 4), QOS_EINVAL);
    CHECK_EQ(tags_set(NULL, 0, 1, &x), QOS_EINVAL);
    CHECK_EQ(tags_set(t, 0, 1, NULL), QOS_EINVAL);

    CHECK_EQ(tags_arrive(NULL, 0, 0, 1), QOS_EINVAL);
    CHECK_EQ(tags_arrive(t, 0, 3, 1), QOS_ENOENT);
    CHECK_EQ(tags_arrive(t, 0, 0, 0), QOS_ERANGE);
    CHECK_EQ(tags_arrive(t, 0, 0, TAGS_BACKLOG_MAX), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 1), QOS_EFULL);
    CHECK_EQ(tags_withdraw(NULL, 0, 0, 1), QOS_EINVAL);
    CHECK_EQ(tags_withdraw(t, 0, 2, 1), QOS_ENOENT);
    CHECK_EQ(tags_withdraw(t, 0, 0, 0), QOS_ERANGE);
    CHECK_EQ(tags_withdraw(t, 0, 0, TAGS_BACKLOG_MAX + 1), QOS_ERANGE);
    CHECK_EQ(tags_withdraw(t, 0, 0, TAGS_BACKLOG_MAX - 2), QOS_OK);

    CHECK_EQ(tags_choose(NULL, 0, &choice), QOS_EINVAL);
    CHECK_EQ(tags_choose(t, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_choose(t, 0, &choice), QOS_OK);
    CHECK_EQ(choice.client, 0);
    CHECK_EQ(choice.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_dispatch(NULL, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(t, 0, NULL, 1, 0, 0, &g), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 2, 1, &g), QOS_EINVAL);
    CHECK_EQ(tags_dispatch(t, 0, &choice, QOS_TOKENS_MAX + 1, 0, 0, &g), QOS_ERANGE);
    choice.phase = TAGS_PHASE_ABOVE_LIMIT; /* not with TAGS_WAIT */
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    choice.phase = TAGS_PHASE_FORCED;
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    choice.phase = TAGS_PHASE_RESERVATION;
    choice.client = 3;
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, 0, &g), QOS_ENOENT);
    choice.client = 1; /* nothing queued */
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, 0, &g), QOS_EINVAL);
    choice.client = 0;
    CHECK_EQ(tags_dispatch(t, 0, &choice, 0, 0, 0, &g), QOS_OK);
    CHECK_EQ(tags_complete(NULL, 0, &g, 1), QOS_EINVAL);
    CHECK_EQ(tags_complete(t, 0, NULL, 1), QOS_EINVAL);
    CHECK_EQ(tags_fail(NULL, 0, &g, 1), QOS_EINVAL);
    CHECK_EQ(tags_fail(t, 0, NULL, 1), QOS_EINVAL);
    CHECK_EQ(tags_cancel(NULL, 0, &g), QOS_EINVAL);
    CHECK_EQ(tags_cancel(t, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_EINVAL); /* once only */
    CHECK_EQ(tags_fail(t, 0, &g, 1), QOS_EINVAL);
    CHECK_EQ(tags_cancel(t, 0, &g), QOS_EINVAL);
    CHECK_EQ(tags_client_stats(t, 0, 0, &state), QOS_OK);
    CHECK_EQ(state.queued, 1);
    CHECK_EQ(state.granted, 1);
    CHECK_EQ(state.granted_reserved, 1);
    CHECK_EQ(tags_client_stats(NULL, 0, 0, &state), QOS_EINVAL);
    CHECK_EQ(tags_client_stats(t, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_client_stats(t, 0, 3, &state), QOS_ENOENT);
    CHECK_EQ(tags_remove(NULL, 0, 0, &dropped), QOS_EINVAL);
    CHECK_EQ(tags_remove(t, 0, 0, &dropped), QOS_OK);
    CHECK_EQ(dropped, 1);
    CHECK_EQ(tags_remove(t, 0, 0, NULL), QOS_ENOENT);
    CHECK_EQ(tags_next_ns(t, 7), QOS_NEVER);
    CHECK_EQ(tags_remove(t, 0, 1, NULL), QOS_OK);
    CHECK_EQ(tags_admissible(t), 100);
    close_tags();
    c = plain(1, TAGS_PS);
    t = open_tags(&c);
    CHECK_EQ(tags_admissible(t), QOS_RATE_MAX);
    close_tags();
}

/* 10 per second: at 0, 100, 200 ms ...; a weight-1 client. */
static void at_the_limit(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags *t;
    struct tags_grant g;
    struct tags_client_state state;
    const uint64_t ms = 1000000;
    uint64_t now;
    unsigned sent = 0;
    c.limit_burst_ns = TAGS_NONE;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 1000), QOS_OK);
    CHECK_EQ(tags_next_ns(t, 0), 0);
    CHECK_EQ(serve(t, 0, 1), 0);
    CHECK_EQ(serve(t, 0, 1), -1);
    CHECK_EQ(tags_client_stats(t, 0, 0, &state), QOS_OK);
    CHECK(state.waiting_at_limit);
    CHECK_EQ(state.limit_debt_ns, 100 * ms);
    CHECK_EQ(tags_next_ns(t, 0), 100 * ms);
    CHECK_EQ(tags_next_ns(t, 50 * ms), 100 * ms);
    CHECK_EQ(serve(t, 100 * ms - 1, 1), -1);
    CHECK_EQ(serve(t, 100 * ms, 1), 0);
    CHECK_EQ(serve(t, 50 * ms, 1), -1); /* backwards: the latest time seen counts */
    CHECK_EQ(serve(t, 0, 1), -1);
    for (now = 101 * ms; now < 10100 * ms; now += 7 * ms) /* late polls lose nothing but the burst... */
        sent += serve(t, now, 1) == 0;
    CHECK_WITHIN(sent, 95, 99); /* ...which is 0 here: 7 ms polling costs up to 7 % */
    /* Live change: ten times the limit, then none. */
    CHECK_EQ(set(t, now, 0, 1, 0, 100), QOS_OK);
    CHECK_LE(tags_next_ns(t, now), now + 10 * ms);
    CHECK_EQ(set(t, now, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_next_ns(t, now), now);
    CHECK_EQ(serve(t, now, 1), 0);
    CHECK_EQ(serve(t, now, 1), 0);
    close_tags();

    c.limit_burst_ns = 0; /* 100 ms: late polls within it lose nothing */
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 1000), QOS_OK);
    for (sent = 0, now = 0; now < 10000 * ms; now += 7 * ms)
        sent += serve(t, now, 1) == 0;
    CHECK_EQ(sent, 100);
    CHECK_EQ(tags_withdraw(t, now, 0, 900), QOS_OK); /* while it waits */
    CHECK_EQ(tags_next_ns(t, now), QOS_NEVER);
    close_tags();

    c.at_limit = TAGS_ALLOW; /* instead of idling */
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 5), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 1, 1), QOS_OK);
    CHECK_EQ(serve(t, 0, 1), 0);
    CHECK_EQ(serve(t, 0, 1), 1); /* the other first */
    CHECK_EQ(tags_next_ns(t, 0), 0);
    CHECK_EQ(tags_pull(t, 0, 1, &g), QOS_OK);
    CHECK_EQ(g.client, 0);
    CHECK_EQ(g.phase, TAGS_PHASE_ABOVE_LIMIT);
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_served(t, TAGS_PHASE_ABOVE_LIMIT), 1);
    CHECK_EQ(tags_pull(t, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_pull(t, 0, 1, &g), QOS_OK); /* two more, the last one empties the queue */
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_client_stats(t, 0, 0, &state), QOS_OK);
    CHECK_EQ(state.limit_debt_ns, 100 * ms); /* what was above the limit is not charged to it */
    close_tags();

    c.at_limit = TAGS_REJECT;
    c.reject_after_ns = 150 * ms;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 1, 100), QOS_OK);
    CHECK_EQ(tags_withdraw(t, 0, 1, 100), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 3), QOS_ELIMIT); /* the third would wait for 200 ms */
    CHECK_EQ(tags_arrive(t, 0, 0, 2), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 1), QOS_ELIMIT);
    CHECK_EQ(tags_arrive(t, 50 * ms, 0, 1), QOS_OK); /* waits for 150 ms */
    CHECK_EQ(serve(t, 50 * ms, 1), 0);
    CHECK_EQ(serve(t, 50 * ms, 1), -1);
    CHECK_EQ(tags_next_ns(t, 50 * ms), 100 * ms); /* rejected ones cost nothing */
    {
        struct qos_stats stats;
        tags_stats(t, &stats);
        CHECK_EQ(stats.refused, 4);
        CHECK_EQ(stats.granted, 1);
        CHECK_EQ(stats.borrowed, 1);
        CHECK_EQ(stats.waited, 1);
        CHECK_EQ(stats.debt, 0);
        CHECK_EQ(tags_debt(t, 50 * ms), 0);
    }
    close_tags();
}

/* A cancelled request leaves no trace; a failed one only its time. */
static void refunds(void)
{
    struct tags_config c = plain(3, TAGS_REWARD);
    struct tags *t = open_tags(&c);
    struct tags_grant g, many[8];
    struct tags_priv_hot before;
    struct tags_priv_due reserve, limit, after;
    unsigned i;
    CHECK_EQ(add(t, 0, 0, 3, 7, 1000), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 5, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 50), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 1, 50), QOS_OK);
    for (i = 0; i < 20; i++)
        CHECK(serve(t, i * 1000000, 1000000 + i) >= 0);
    for (i = 0; i < 30; i++) {
        uint64_t now = 20000000 + i * 50000000;
        before = t->hot[0];
        reserve = opened(&t->reserve[0]);
        limit = opened(&t->limit[0]);
        do {
            CHECK_EQ(tags_pull(t, now, 1, &g), QOS_OK);
            CHECK_EQ(tags_arrive(t, now, g.client, 1), QOS_OK);
            if (g.client != 0)
                CHECK_EQ(tags_complete(t, now, &g, 1000000), QOS_OK);
        } while (g.client != 0);
        CHECK_EQ(tags_cancel(t, now, &g), QOS_OK);
        CHECK_EQ(t->hot[0].tag.hi, before.tag.hi);
        CHECK_EQ(t->hot[0].tag.lo, before.tag.lo);
        after = opened(&t->reserve[0]);
        CHECK_EQ(after.tag_ns, reserve.tag_ns);
        CHECK_EQ(after.rest, reserve.rest);
        after = opened(&t->limit[0]);
        if (limit.tag_ns + 100000000 > now) { /* else its unused part was forgotten */
            CHECK_EQ(after.tag_ns, limit.tag_ns);
            CHECK_EQ(after.rest, limit.rest);
        }
    }
    CHECK_EQ(t->counters.cancelled, 30);
    /* Eight at the device, all cancelled in another order: no trace either. */
    before = t->hot[1];
    for (i = 0; i < 8;) {
        CHECK_EQ(tags_pull(t, 0, 1, &many[i]), QOS_OK);
        if (many[i].client == 1)
            i++;
        else
            CHECK_EQ(tags_complete(t, 0, &many[i], 1000000), QOS_OK);
    }
    for (i = 0; i < 8; i++)
        CHECK_EQ(tags_cancel(t, 0, &many[(i * 3) % 8]), QOS_OK);
    CHECK_EQ(t->hot[1].tag.hi, before.tag.hi);
    CHECK_EQ(t->hot[1].tag.lo, before.tag.lo);
    CHECK_EQ(t->hot[1].at_device, 0);
    /* Failed after 3 ms: 3 ms / 5 on the axis, exactly as much as a whole ns over the weight. */
    do
        CHECK_EQ(tags_pull(t, 0, 1, &g), QOS_OK);
    while (g.client != 1);
    CHECK_EQ(tags_fail(t, 0, &g, 3000000), QOS_OK);
    CHECK_EQ(t->hot[1].tag.hi, before.tag.hi + 3000000 * 256 / 5);
    CHECK_EQ(t->counters.failed, 1);
    close_tags();
}

static void forced(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags *t;
    struct tags_grant g;
    struct qos_stats stats;
    unsigned n = 0;
    c.force_debt_ns = 500000000;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 5, 10), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_force(NULL, 0, 0, 1, &g), QOS_EINVAL);
    CHECK_EQ(tags_force(t, 0, 0, 1, NULL), QOS_EINVAL);
    CHECK_EQ(tags_force(t, 0, 2, 1, &g), QOS_ENOENT);
    CHECK_EQ(tags_force(t, 0, 0, QOS_TOKENS_MAX + 1, &g), QOS_ERANGE);
    while (tags_force(t, 0, 0, 1, &g) == QOS_OK) {
        CHECK_EQ(g.phase, TAGS_PHASE_FORCED);
        CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_OK);
        n++;
    }
    CHECK_EQ(n, 6); /* 500 ms at 10 per second, and one */
    CHECK_EQ(tags_force(t, 0, 0, 1, &g), QOS_EDEBT);
    tags_stats(t, &stats);
    CHECK_EQ(stats.debt, 5);
    CHECK_EQ(tags_debt(t, 0), 5);
    CHECK_EQ(tags_debt(t, 150000000), 4); /* 450 ms ahead: 4.5 units, rounded up, but one */
    CHECK_EQ(stats.refused, 2);
    CHECK_EQ(tags_served(t, TAGS_PHASE_FORCED), 6);
    CHECK_EQ(tags_arrive(t, 0, 0, 2), QOS_OK);
    CHECK_EQ(tags_next_ns(t, 0), 600000000); /* its reservation is due at 200 ms, but it had more than that */
    CHECK_EQ(tags_force(t, 300000000, 1, 1000, &g), QOS_OK); /* idle, and while another waits */
    CHECK_EQ(tags_complete(t, 300000000, &g, 1), QOS_OK);
    CHECK_EQ(tags_pull(t, 600000000, 1, &g), QOS_OK);
    CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_complete(t, 600000000, &g, 1), QOS_OK);
    CHECK_EQ(tags_next_ns(t, 600000000), 700000000);
    CHECK_EQ(tags_force(t, 600000000, 0, 1, &g), QOS_OK); /* while it waits itself */
    CHECK_EQ(tags_complete(t, 600000000, &g, 1), QOS_OK);
    CHECK_EQ(tags_next_ns(t, 600000000), 800000000);
    close_tags();
    c.force_debt_ns = TAGS_NONE;
    c.no_completions = true;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 10), QOS_OK);
    CHECK_EQ(tags_force(t, 0, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_force(t, 0, 0, 1, &g), QOS_EDEBT);
    CHECK_EQ(tags_cancel(t, 0, &g), QOS_OK);
    CHECK_EQ(tags_force(t, 0, 0, 1, &g), QOS_OK);
    CHECK_EQ(t->weight_sum, 0); /* nothing is active */
    close_tags();
}

static void intrusive(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags *t = open_tags(&c);
    struct tags_request r[6], *got;
    unsigned i;
    memset(r, 0, sizeof r);
    CHECK_EQ(tags_push(t, 0, 0, &r[0]), QOS_EINVAL); /* not configured */
    CHECK_EQ(tags_pop(t, 0, &got), QOS_EINVAL);
    CHECK_EQ(tags_unlink(t, 0, &r[0]), QOS_EINVAL);
    CHECK(tags_head(t, 0) == NULL);
    close_tags();
    c.intrusive = true;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 3, 0, 0), QOS_OK);
    CHECK_EQ(tags_push(NULL, 0, 0, &r[0]), QOS_EINVAL);
    CHECK_EQ(tags_push(t, 0, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_pop(NULL, 0, &got), QOS_EINVAL);
    CHECK_EQ(tags_pop(t, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_unlink(NULL, 0, &r[0]), QOS_EINVAL);
    CHECK_EQ(tags_unlink(t, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_pop(t, 0, &got), QOS_EAGAIN);
    r[0].rho = 1;
    CHECK_EQ(tags_push(t, 0, 0, &r[0]), QOS_EINVAL); /* rho > delta */
    r[0].rho = 0;
    r[0].cost = QOS_TOKENS_MAX + 1;
    CHECK_EQ(tags_push(t, 0, 0, &r[0]), QOS_ERANGE);
    for (i = 0; i < 6; i++) {
        r[i].cost = 30;
        CHECK_EQ(tags_push(t, 0, i < 3 ? 0 : 1, &r[i]), QOS_OK);
    }
    CHECK_EQ(tags_unlink(t, 0, &r[1]), QOS_OK); /* from the middle */
    CHECK_EQ(tags_push(t, 0, 7, &r[1]), QOS_ENOENT);
    CHECK_EQ(tags_pop(t, 0, &got), QOS_OK);
    CHECK(got == &r[0] && got->grant.client == 0);
    CHECK(tags_head(t, 0) == &r[2] && tags_head(t, 1) == &r[3] && tags_head(t, 1)->next == &r[4]);
    CHECK(tags_head(t, 2) == NULL && tags_head(NULL, 0) == NULL);
    CHECK_EQ(tags_unlink(t, 0, &r[2]), QOS_OK); /* the last one of client 0 */
    CHECK_EQ(tags_unlink(t, 0, &r[5]), QOS_OK); /* the tail */
    CHECK_EQ(tags_pop(t, 0, &got), QOS_OK);
    CHECK(got == &r[3]);
    CHECK_EQ(tags_push(t, 0, 1, &r[5]), QOS_OK);
    CHECK_EQ(tags_unlink(t, 0, &r[4]), QOS_OK); /* the head */
    CHECK_EQ(tags_pop(t, 0, &got), QOS_OK);
    CHECK(got == &r[5]);
    CHECK_EQ(tags_pop(t, 0, &got), QOS_EAGAIN);
    for (i = 0; i < 6; i++)
        if (i == 0 || i == 3 || i == 5)
            CHECK_EQ(tags_complete(t, 0, &r[i].grant, 1), QOS_OK);
    CHECK_EQ(t->at_device, 0);
    CHECK_EQ(tags_arrive(t, 0, 0, 1), QOS_OK); /* counted, not pushed */
    CHECK_EQ(tags_pop(t, 0, &got), QOS_EINVAL);
    close_tags();
}

/* rho and delta: what was served elsewhere counts here. */
static void elsewhere(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags *t = open_tags(&c);
    struct tags_choice choice;
    struct tags_grant g;
    CHECK_EQ(add(t, 0, 0, 1, 10, 100), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 10), QOS_OK);
    CHECK_EQ(tags_choose(t, 0, &choice), QOS_OK);
    CHECK_EQ(choice.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 2, 4, &g), QOS_OK);
    CHECK_EQ(opened(&t->reserve[0]).tag_ns, 300000000); /* 1 + 2 at 10 per second */
    CHECK_EQ(opened(&t->limit[0]).tag_ns, 50000000);    /* 1 + 4 at 100 per second */
    CHECK_EQ(t->hot[0].tag.hi, 5 * 256);                /* 1 + 4 at weight 1 */
    CHECK_EQ(tags_cancel(t, 0, &g), QOS_OK);
    CHECK_EQ(opened(&t->reserve[0]).tag_ns, 0);
    CHECK_EQ(opened(&t->limit[0]).tag_ns, 0);
    CHECK_EQ(t->hot[0].tag.hi, 0);
    choice.phase = TAGS_PHASE_WEIGHT; /* in the weight phase only rho is charged to the reservation */
    CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 3, 3, &g), QOS_OK);
    CHECK_EQ(opened(&t->reserve[0]).tag_ns, 300000000);
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_OK);
    close_tags();
    c.count_cost = true; /* 1 MB/s reserved, 4 MB/s at most */
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 1000000, 4000000), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 10), QOS_OK);
    CHECK_EQ(tags_pull(t, 0, 65536, &g), QOS_OK);
    CHECK_EQ(opened(&t->reserve[0]).tag_ns, 65536000);
    CHECK_EQ(opened(&t->limit[0]).tag_ns, 16384000);
    CHECK_EQ(t->counters.units, 65536);
    close_tags();
}

/* Weights at the ends, and a change of weight: nobody waits for ever. */
static void weights(void)
{
    struct tags_config c = plain(3, TAGS_PS);
    struct tags *t = open_tags(&c);
    unsigned i, got[3] = {0, 0, 0};
    CHECK_EQ(add(t, 0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(add(t, 0, 1, TAGS_WEIGHT_MAX, 0, 0), QOS_OK);
    CHECK_EQ(add(t, 0, 2, TAGS_WEIGHT_MAX / 2 + 1, 0, 0), QOS_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(tags_arrive(t, 0, i, 1000000), QOS_OK);
    for (i = 0; i < 3001; i++)
        got[serve(t, i, 1)]++;
    CHECK_EQ(got[0], 1);
    CHECK_WITHIN(got[1], 1998, 2002);
    CHECK_WITHIN(got[2], 998, 1002);
    /* Client 0 stands 2^40 requests of client 1 ahead; at the same weight that lead is one request. */
    CHECK_EQ(set(t, 3001, 0, TAGS_WEIGHT_MAX, 0, 0), QOS_OK);
    got[0] = got[1] = got[2] = 0;
    for (i = 0; i < 2500; i++)
        got[serve(t, 3001 + i, 1)]++;
    CHECK_WITHIN(got[0], 997, 1003);
    CHECK_WITHIN(got[1], 997, 1003);
    CHECK_EQ(set(t, 6000, 1, 1, 0, 0), QOS_OK); /* and down: it may finish what stands before it */
    CHECK_EQ(tags_withdraw(t, 6000, 0, t->hot[0].queued), QOS_OK);
    CHECK_EQ(set(t, 6000, 0, 1, 0, 0), QOS_OK); /* while idle */
    CHECK_EQ(tags_arrive(t, 6000, 0, 10), QOS_OK);
    got[0] = got[1] = got[2] = 0;
    for (i = 0; i < 1000; i++)
        got[serve(t, 6000 + i, 1)]++;
    CHECK_GE(got[2], 990);
    close_tags();
}

/* V at the end of its range: everything is moved back in one go, and the order stays. */
static void moved_back(void)
{
    struct tags_config c = plain(7, TAGS_PS);
    struct tags *t, plain_one;
    struct check_mem mem;
    unsigned i, rebased = 0;
    t = open_tags(&c);
    check_mem_new(&mem, tags_memsize(&c), 64, 0);
    CHECK_EQ(tags_init(&plain_one, mem.mem, mem.size, &c), QOS_OK);
    t->v.hi = (UINT64_C(1) << 62) - 1000 * 256; /* as after 208 days of weight-1 time, but for a microsecond */
    for (i = 0; i < 7; i++) {
        CHECK_EQ(add(t, 0, i, i + 1, i % 3 ? 0 : 1000, i % 2 ? 0 : 100000), QOS_OK);
        CHECK_EQ(add(&plain_one, 0, i, i + 1, i % 3 ? 0 : 1000, i % 2 ? 0 : 100000), QOS_OK);
        CHECK_EQ(tags_arrive(t, 0, i, 1000), QOS_OK);
        CHECK_EQ(tags_arrive(&plain_one, 0, i, 1000), QOS_OK);
    }
    for (i = 0; i < 2000; i++) {
        struct tags_grant a, b;
        enum qos_status st = tags_pull(t, i * 5000, 100 + i % 7, &a);
        CHECK_EQ(tags_pull(&plain_one, i * 5000, 100 + i % 7, &b), st);
        if (st != QOS_OK)
            continue;
        CHECK_EQ(a.client, b.client);
        CHECK_EQ(a.phase, b.phase);
        CHECK_EQ(tags_complete(t, i * 5000, &a, 1), QOS_OK);
        CHECK_EQ(tags_complete(&plain_one, i * 5000, &b, 1), QOS_OK);
        rebased += t->v.hi < UINT64_C(1) << 61;
    }
    CHECK_GE(rebased, 1000);
    CHECK(check_mem_free(&mem));
    close_tags();
}

/* A client that is charged without end stands at most 104 days of its time ahead; weights change that lead, within the
 * same bound; idle clients keep it in real time. */
static void far_ahead(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags *t = open_tags(&c);
    struct tags_choice choice;
    struct tags_grant g;
    unsigned i;
    CHECK_EQ(add(t, 0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 301), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 1, 2), QOS_OK);
    choice.client = 0;
    choice.phase = TAGS_PHASE_WEIGHT;
    for (i = 0; i < 300; i++) {
        CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, UINT32_MAX, &g), QOS_OK);
        CHECK_EQ(tags_complete(t, 0, &g, QOS_TOKENS_MAX), QOS_OK);
        CHECK_LE(t->hot[0].tag.hi - t->v.hi, UINT64_C(1) << 61);
    }
    CHECK_GE(t->hot[0].tag.hi - t->v.hi, UINT64_C(1) << 60);
    CHECK_EQ(set(t, 0, 0, 1000, 0, 0), QOS_OK);
    CHECK_LE(t->hot[0].tag.hi - t->v.hi, (UINT64_C(1) << 61) / 1000);
    CHECK_EQ(set(t, 0, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(set(t, 0, 0, TAGS_WEIGHT_MAX, 0, 0), QOS_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(set(t, 0, 0, i % 2 ? TAGS_WEIGHT_MAX : 1, 0, 0), QOS_OK);
    for (i = 0; i < 200; i++) {
        CHECK_EQ(tags_dispatch(t, 0, &choice, 1, 0, UINT32_MAX, &g), i == 0 ? QOS_OK : QOS_EINVAL);
        if (i == 0)
            CHECK_EQ(tags_complete(t, 0, &g, QOS_TOKENS_MAX), QOS_OK);
    }
    CHECK_EQ(tags_arrive(t, 1, 0, 400), QOS_OK); /* back from idle, as far ahead */
    CHECK_LE(t->hot[0].tag.hi - t->v.hi, UINT64_C(1) << 61);
    CHECK_EQ(serve(t, 1, 1), 1);
    CHECK_EQ(serve(t, 1, 1), 1);
    CHECK_EQ(serve(t, 1, 1), 0);
    /* Large leads at a large weight, then a small one: more than the bound becomes the bound. */
    CHECK_EQ(set(t, 1, 0, 2, 0, 0), QOS_OK);
    for (i = 0; i < 300; i++) {
        CHECK_EQ(tags_arrive(t, 1, 1, 1), QOS_OK);
        CHECK_EQ(tags_dispatch(t, 1, &choice, 1, 0, UINT32_MAX, &g), QOS_OK);
        CHECK_EQ(tags_complete(t, 1, &g, QOS_TOKENS_MAX), QOS_OK);
    }
    CHECK_EQ(set(t, 1, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(t->hot[0].tag.hi - t->v.hi, UINT64_C(1) << 61);
    CHECK_EQ(tags_withdraw(t, 1, 0, t->hot[0].queued), QOS_OK);
    CHECK_EQ(tags_arrive(t, 1, 0, 1), QOS_OK);
    CHECK_EQ(t->hot[0].tag.hi - t->v.hi, UINT64_C(1) << 61);
    /* As much at the largest weight would be more than 128 bits at weight 1. */
    CHECK_EQ(set(t, 1, 0, TAGS_WEIGHT_MAX, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 1, 0, 2000), QOS_OK);
    for (i = 0; i < 2000; i++) {
        CHECK_EQ(tags_dispatch(t, 1, &choice, 1, 0, UINT32_MAX, &g), QOS_OK);
        CHECK_EQ(tags_complete(t, 1, &g, QOS_TOKENS_MAX), QOS_OK);
    }
    CHECK_EQ(set(t, 1, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(t->hot[0].tag.hi - t->v.hi, UINT64_C(1) << 61);
    close_tags();
}

/* A client waiting at its limit is served by its reservation, fails, is withdrawn, is changed. */
static void waiting_client(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags *t = open_tags(&c);
    struct tags_choice choice;
    struct tags_grant g, h;
    const uint64_t ms = 1000000;
    unsigned round;
    CHECK_EQ(add(t, 0, 0, 1, 10, 10), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    for (round = 0; round < 3; round++) {
        uint64_t now = round * 10000 * ms;
        CHECK_EQ(tags_arrive(t, now, 1, 1), QOS_OK);
        CHECK_EQ(tags_arrive(t, now, 0, 3), QOS_OK);
        choice.client = 0;
        choice.phase = TAGS_PHASE_WEIGHT; /* a choice of the caller's own */
        CHECK_EQ(tags_dispatch(t, now, &choice, 1, 0, 0, &g), QOS_OK);
        choice.phase = TAGS_PHASE_RESERVATION; /* its own again: both tags are 100 ms ahead now, or more */
        CHECK_EQ(tags_dispatch(t, now, &choice, 1, 0, 0, &h), QOS_OK);
        CHECK_EQ(serve(t, now, ms), 1);
        CHECK_EQ(tags_choose(t, now, &choice), QOS_EAGAIN);
        CHECK((t->hot[0].packed & TAGS_PRIV_WAITING) != 0);
        CHECK_EQ(tags_fail(t, now, &g, ms), QOS_OK); /* while it waits: its lTag is 100 ms again */
        CHECK_EQ(tags_next_ns(t, now), now + 100 * ms);
        if (round == 0) { /* its last request, by reservation, at the limit */
            CHECK_EQ(tags_complete(t, now, &h, ms), QOS_OK);
            CHECK_EQ(tags_pull(t, now + 100 * ms, 1, &g), QOS_OK);
            CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
            CHECK_EQ(tags_complete(t, now + 100 * ms, &g, ms), QOS_OK);
        } else if (round == 1) { /* withdrawn with one at the device */
            CHECK_EQ(tags_withdraw(t, now, 0, 1), QOS_OK);
            CHECK_EQ(tags_complete(t, now, &h, ms), QOS_OK);
        } else {
            CHECK_EQ(tags_complete(t, now, &h, ms), QOS_OK);
            CHECK_EQ(set(t, now, 0, 1, 0, 1000), QOS_OK);
            CHECK_LE(tags_next_ns(t, now), now + ms);
            CHECK_EQ(set(t, now, 0, 1, 1, 1000), QOS_OK);
            CHECK_EQ(serve(t, now + ms, 1), 0);
        }
    }
    CHECK_EQ(t->at_device, 0);
    close_tags();
}

/* Words that shards share: ranges, terms that must agree, exactness, refunds. */
static void shared(void)
{
    struct check_mem m;
    struct tags_shared *sh;
    struct tags_shared_client *entry;
    struct tags_client x = terms(1, 1000, 2000);
    struct tags_config c = plain(3, TAGS_PS);
    struct tags *t;
    struct tags_grant g;
    const uint64_t ms = 1000000;
    unsigned i;
    CHECK_EQ(tags_shared_memsize(0), 0);
    CHECK_EQ(tags_shared_memsize(TAGS_CLIENTS_MAX + 1), 0);
    CHECK_EQ(tags_shared_memsize(2), 96);
    sh = (struct tags_shared *)check_mem_new(&m, 96, 8, 0);
    CHECK_EQ(tags_shared_init(NULL, 96, 2, 0, 0, 0), QOS_EINVAL);
    CHECK_EQ(tags_shared_init(sh, 96, 0, 0, 0, 0), QOS_ERANGE);
    CHECK_EQ(tags_shared_init(sh, 95, 2, 0, 0, 0), QOS_EMEMORY);
    CHECK_EQ(tags_shared_init((struct tags_shared *)(void *)(m.mem + 4), 92, 1, 0, 0, 0), QOS_EALIGN);
    CHECK_EQ(tags_shared_init(sh, 96, 2, 7, TAGS_NONE, TAGS_NONE), QOS_OK);
    CHECK_EQ(sh->limit_burst_ns, 0);
    CHECK_EQ(sh->reserve_lag_ns, 0);
    CHECK_EQ(tags_shared_init(sh, 96, 2, 7, 5, 6), QOS_OK);
    CHECK_EQ(sh->reserve_lag_ns, 5);
    CHECK_EQ(sh->limit_burst_ns, 6);
    CHECK_EQ(tags_shared_init(sh, 96, 2, 7, 0, 0), QOS_OK);
    CHECK_EQ(sh->limit_burst_ns, 100 * ms);
    CHECK_EQ(tags_shared_set(NULL, 7, 0, &x), QOS_EINVAL);
    CHECK_EQ(tags_shared_set(sh, 7, 0, NULL), QOS_EINVAL);
    CHECK_EQ(tags_shared_set(sh, 7, 2, &x), QOS_ENOENT);
    x.reservation_per_s = TAGS_SHARED_RATE_MAX + 1;
    CHECK_EQ(tags_shared_set(sh, 7, 0, &x), QOS_ERANGE);
    x = terms(1, 1000, TAGS_SHARED_RATE_MAX + 1);
    CHECK_EQ(tags_shared_set(sh, 7, 0, &x), QOS_ERANGE);
    x = terms(1, 1000, 2000);
    CHECK_EQ(tags_shared_set(sh, 7, 0, &x), QOS_OK);
    c.shared = sh;
    CHECK_EQ(tags_memsize(&c), 0); /* more clients than entries */
    c.clients = 2;
    t = open_tags(&c);
    CHECK_EQ(add(t, 7, 0, 1, 1000, 1999), QOS_EINVAL);
    CHECK_EQ(add(t, 7, 0, 1, 999, 2000), QOS_EINVAL);
    CHECK_EQ(add(t, 7, 0, 1, 1000, 2000), QOS_OK);
    CHECK_EQ(add(t, 7, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 7, 0, 9), QOS_OK);
    CHECK_EQ(tags_arrive(t, 7, 1, 9), QOS_OK);
    entry = (struct tags_shared_client *)(sh + 1);
    /* Another shard took the reservation meanwhile: this one learns it, and sends the other client. */
    entry->reserved += 4;
    CHECK_EQ(tags_pull(t, 7 + ms, 1, &g), QOS_OK);
    CHECK_EQ(g.client, 0); /* by weight: ids break the tie; its limit allows it */
    CHECK_EQ(g.phase, TAGS_PHASE_WEIGHT);
    CHECK_EQ(entry->limited, 1);
    CHECK_EQ(tags_cancel(t, 7 + ms, &g), QOS_OK);
    CHECK_EQ(entry->limited, 0);
    CHECK_EQ(entry->reserved, 4);
    entry->limited += 4; /* now the limit is taken too: 2 units are due at 1 ms */
    for (i = 0; i < 9; i++) {
        CHECK_EQ(tags_pull(t, 7 + ms, 1, &g), QOS_OK);
        CHECK_EQ(g.client, 1);
        CHECK_EQ(tags_complete(t, 7 + ms, &g, 1), QOS_OK);
    }
    CHECK_EQ(tags_next_ns(t, 7 + ms), 7 + 2 * ms);
    CHECK_EQ(tags_pull(t, 7 + 4 * ms, 1, &g), QOS_OK);
    CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(entry->reserved, 5);
    CHECK_EQ(entry->limited, 5);
    CHECK_EQ(tags_fail(t, 7 + 4 * ms, &g, 1), QOS_OK);
    CHECK_EQ(entry->reserved, 4);
    entry->limited += 10; /* used up by weight elsewhere: a reservation that is due waits for the limit, 14 / 2000 s */
    CHECK_EQ(tags_pull(t, 7 + 4 * ms, 1, &g), QOS_EAGAIN);
    CHECK_EQ(entry->limited, 14);
    CHECK_EQ(entry->reserved, 4);
    CHECK_EQ(tags_next_ns(t, 7 + 4 * ms), 7 + 7 * ms);
    CHECK_EQ(tags_pull(t, 7 + 7 * ms, 1, &g), QOS_OK);
    CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_complete(t, 7 + 7 * ms, &g, 1), QOS_OK);
    CHECK_EQ(tags_withdraw(t, 7 + 7 * ms, 0, 6), QOS_OK);
    close_tags();
    CHECK(check_mem_free(&m));
}

/* A shared burst below one unit: late claims lose what they were late, not a unit more; a larger one is never exceeded.
 */
static void shared_bursts(void)
{
    struct check_mem m;
    struct tags_shared *sh;
    struct tags_client x = terms(1, 0, 1000);
    struct tags_shared_client *entry;
    const uint64_t ms = 1000000;
    uint64_t tag, now;
    unsigned i;
    sh = (struct tags_shared *)check_mem_new(&m, tags_shared_memsize(1), 8, 0);
    entry = (struct tags_shared_client *)(sh + 1);
    CHECK_EQ(tags_shared_init(sh, m.size, 1, 0, 0, TAGS_NONE), QOS_OK);
    CHECK_EQ(tags_shared_set(sh, 0, 0, &x), QOS_OK);
    for (i = 0; i < 100; i++) {
        now = i * ms + ms / 2;
        CHECK(tags_shared_claim(sh, &entry->limited, now, 1000, 0, 1, false, &tag));
        CHECK_EQ(tag, (i + 1) * ms);
        CHECK(!tags_shared_claim(sh, &entry->limited, now, 1000, 0, 1, false, &tag));
    }
    for (now = 200 * ms + 1, i = 0; tags_shared_claim(sh, &entry->limited, now, 1000, 10 * ms, 1, false, &tag);)
        i++;
    CHECK_EQ(i, 10); /* 191 to 200: ten units in 10 ms and the one of a moment, less what rounding takes */
    for (now = 300 * ms, i = 0; tags_shared_claim(sh, &entry->limited, now, 1000, 10 * ms, 1, false, &tag);)
        i++;
    CHECK_EQ(i, 11);
    CHECK(check_mem_free(&m));
}

/* Removal does not wait for the device: the client is gone, its last request at the device frees the id. */
static void removed(void)
{
    struct tags_config c = plain(3, TAGS_REWARD);
    struct tags *t;
    struct tags_grant g[3];
    struct tags_client_state state;
    uint32_t dropped = 0;
    unsigned round, i;
    c.capacity_per_s = 100;
    c.intrusive = true;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    for (round = 0; round < 4; round++) {
        struct tags_request queued;
        uint64_t now = round * UINT64_C(10000000000);
        memset(&queued, 0, sizeof queued);
        CHECK_EQ(add(t, now, 0, 5, 60, 60), QOS_OK);
        CHECK_EQ(tags_arrive(t, now, 0, 4), QOS_OK);
        CHECK_EQ(tags_push(t, now, 0, &queued), QOS_OK);
        CHECK_EQ(tags_pull(t, now, 1, &g[0]), QOS_OK);
        CHECK_EQ(g[0].client, 0);
        if (round == 3) { /* at its limit */
            CHECK_EQ(tags_pull(t, now, 1, &g[1]), QOS_EAGAIN);
            CHECK_EQ(tags_client_stats(t, now, 0, &state), QOS_OK);
            CHECK(state.waiting_at_limit);
        }
        CHECK_EQ(tags_force(t, now, 0, 1, &g[1]), QOS_OK);
        CHECK_EQ(tags_remove(t, now, 0, &dropped), QOS_OK);
        CHECK_EQ(dropped, 4);
        CHECK_EQ(tags_admissible(t), 100); /* at once */
        CHECK_EQ(tags_remove(t, now, 0, &dropped), QOS_ENOENT);
        CHECK_EQ(tags_arrive(t, now, 0, 1), QOS_ENOENT);
        CHECK_EQ(tags_unlink(t, now, &queued), QOS_ENOENT);
        CHECK_EQ(tags_force(t, now, 0, 1, &g[2]), QOS_ENOENT);
        CHECK_EQ(tags_client_stats(t, now, 0, &state), QOS_ENOENT);
        CHECK_EQ(add(t, now, 0, 5, 60, 60), QOS_EBUSY);
        CHECK_EQ(tags_next_ns(t, now), QOS_NEVER);
        CHECK_EQ(t->weight_sum, 5); /* a request in service keeps its client active */
        for (i = 0; i < 2; i++) {
            CHECK_EQ(t->at_device, 2 - i);
            if (round == 0 || (round == 3 && i == 0))
                CHECK_EQ(tags_complete(t, now, &g[i], 1000), QOS_OK);
            else if (round == 1)
                CHECK_EQ(tags_fail(t, now, &g[i], 1000), QOS_OK);
            else
                CHECK_EQ(tags_cancel(t, now, &g[i]), QOS_OK);
        }
        CHECK_EQ(tags_complete(t, now, &g[1], 1000), QOS_EINVAL);
        CHECK_EQ(t->weight_sum, 0);
        CHECK_EQ(add(t, now, 0, 1, 100, 0), QOS_OK); /* a new client, from the start */
        CHECK_EQ(tags_client_stats(t, now, 0, &state), QOS_OK);
        CHECK_EQ(state.granted, 0);
        CHECK_EQ(state.mean_service_ns, 0);
        CHECK_EQ(tags_arrive(t, now, 0, 1), QOS_OK);
        CHECK_EQ(serve(t, now, 1), 0);
        CHECK_EQ(tags_remove(t, now, 0, NULL), QOS_OK);
    }
    close_tags();
}

/* TAGS_REJECT with count_cost asks for the units that are queued: 1,000 per second, a wait of at most a second. */
static void rejected_by_cost(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags *t;
    struct tags_request r[3], *got;
    struct tags_grant g;
    unsigned i;
    c.at_limit = TAGS_REJECT;
    c.reject_after_ns = 1000000000;
    c.count_cost = c.intrusive = true;
    t = open_tags(&c);
    CHECK_EQ(add(t, 0, 0, 1, 0, 1000), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 1), QOS_OK);
    CHECK_EQ(tags_arrive_cost(NULL, 0, 0, 1, 1), QOS_EINVAL);
    CHECK_EQ(tags_arrive_cost(t, 0, 0, 1, QOS_TOKENS_MAX + 1), QOS_ERANGE);
    CHECK_EQ(tags_arrive_cost(t, 0, 0, 4, 400), QOS_ELIMIT); /* the fourth would wait for 1.2 s */
    CHECK_EQ(tags_arrive_cost(t, 0, 0, 3, 400), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 1), QOS_ELIMIT); /* behind 1,200 units */
    CHECK_EQ(tags_withdraw(t, 0, 0, 1), QOS_OK);
    CHECK_EQ(t->queued_cost[0], 800);
    CHECK_EQ(tags_arrive(t, 0, 0, 201), QOS_OK); /* the last one behind 1,000 */
    CHECK_EQ(tags_arrive(t, 0, 0, 1), QOS_ELIMIT);
    CHECK_EQ(tags_withdraw(t, 0, 0, 203), QOS_OK);
    CHECK_EQ(t->queued_cost[0], 0);
    memset(r, 0, sizeof r);
    for (i = 0; i < 3; i++)
        r[i].cost = i == 2 ? 0 : 600; /* 0 counts as 1 */
    CHECK_EQ(tags_push(t, 0, 0, &r[0]), QOS_OK);
    CHECK_EQ(tags_push(t, 0, 0, &r[1]), QOS_OK);
    CHECK_EQ(tags_push(t, 0, 0, &r[2]), QOS_ELIMIT); /* 1,200 */
    CHECK_EQ(tags_unlink(t, 0, &r[1]), QOS_OK);
    CHECK_EQ(t->queued_cost[0], 600);
    CHECK_EQ(tags_push(t, 0, 0, &r[2]), QOS_OK);
    CHECK_EQ(t->queued_cost[0], 601);
    CHECK_EQ(tags_pop(t, 0, &got), QOS_OK);
    CHECK(got == &r[0]);
    CHECK_EQ(t->queued_cost[0], 1);
    CHECK_EQ(tags_complete(t, 0, &got->grant, 1), QOS_OK);
    CHECK_EQ(tags_unlink(t, 0, &r[2]), QOS_OK);
    /* Whoever says less at arrival is not charged twice. */
    CHECK_EQ(tags_arrive(t, 600000000, 0, 2), QOS_OK);
    CHECK_EQ(tags_pull(t, 600000000, 50, &g), QOS_OK);
    CHECK_EQ(tags_complete(t, 600000000, &g, 1), QOS_OK);
    CHECK_EQ(t->queued_cost[0], 0);
    /* More units than the time has nanoseconds. */
    CHECK_EQ(tags_arrive_cost(t, 0, 1, TAGS_BACKLOG_MAX, QOS_TOKENS_MAX), QOS_ELIMIT);
    CHECK_EQ(tags_arrive_cost(t, 0, 1, 1, QOS_TOKENS_MAX), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 1, 1), QOS_ELIMIT);
    close_tags();
}

/* Counters of one client beside those of all. */
static void counted(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags *t = open_tags(&c);
    const struct tags_counters *k;
    struct tags_grant g;
    CHECK(tags_client_counters(t, 0) == NULL); /* not configured */
    CHECK(tags_client_counters(NULL, 0) == NULL);
    close_tags();
    c.count_by_client = true;
    c.at_limit = TAGS_REJECT;
    c.reject_after_ns = 100000000;
    c.window = 4;
    c.phase_requests = 2;
    t = open_tags(&c);
    CHECK(tags_client_counters(t, 2) == NULL);
    k = tags_client_counters(t, 0);
    CHECK(k != NULL);
    CHECK_EQ(add(t, 0, 0, 1, 10, 10), QOS_OK);
    CHECK_EQ(add(t, 0, 1, 1, 0, 0), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 2), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 1), QOS_ELIMIT);
    CHECK_EQ(tags_pull(t, 0, 1, &g), QOS_OK);
    CHECK_EQ(g.phase, TAGS_PHASE_RESERVATION);
    CHECK_EQ(tags_fail(t, 0, &g, 1), QOS_OK);
    CHECK_EQ(tags_pull(t, 0, 1, &g), QOS_OK);
    CHECK_EQ(tags_cancel(t, 0, &g), QOS_OK);
    while (tags_force(t, 0, 0, 1, &g) == QOS_OK)
        CHECK_EQ(tags_complete(t, 0, &g, 4000000000), QOS_OK);
    CHECK_EQ(tags_arrive(t, 1000000000, 0, 1), QOS_OK);
    CHECK_EQ(tags_pull(t, 1000000000, 1, &g), QOS_EAGAIN);
    CHECK_EQ(tags_complete(t, 0, &g, 1), QOS_EINVAL);
    CHECK_EQ(k->refused, 2);
    CHECK_EQ(k->failed, 1);
    CHECK_EQ(k->cancelled, 1);
    CHECK_EQ(k->served[TAGS_PHASE_RESERVATION], 2);
    CHECK_GE(k->served[TAGS_PHASE_FORCED], 1);
    CHECK_EQ(k->units, 2 + k->served[TAGS_PHASE_FORCED]);
    CHECK_EQ(k->units_beyond, k->served[TAGS_PHASE_FORCED]);
    CHECK_EQ(k->stepped_aside, 1);
    CHECK_GE(k->debt, 1);
    CHECK_EQ(k->debt, t->counters.debt);
    CHECK_EQ(tags_client_counters(t, 1)->units, 0);
    CHECK_EQ(tags_remove(t, 1000000000, 0, NULL), QOS_OK);
    CHECK_EQ(k->failed, 1); /* they stay */
    CHECK_EQ(add(t, 1000000000, 0, 1, 0, 0), QOS_OK);
    CHECK_EQ(k->failed, 0);
    CHECK_EQ(tags_force(t, 1000000000, 0, 1, &g), QOS_OK); /* no limit: no debt */
    CHECK_EQ(tags_complete(t, 1000000000, &g, 1), QOS_OK);
    CHECK_EQ(k->debt, 0);
    close_tags();
}

/* N = 10: of the first 10 the mean of all; then that of ten requests as of the last even one, in whole ns a pair. */
static void windows(void)
{
    static const uint64_t service[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1011, 1012, 13, 14};
    static const uint64_t blocks[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 207, 207, 209};
    static const uint64_t exact[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 106, 207, 208, 209};
    struct tags_config c = plain(1, TAGS_REWARD);
    unsigned way, i;
    c.window = 10;
    for (way = 0; way < 2; way++) {
        struct tags *t;
        struct tags_client_state state;
        c.exact_window = way == 1;
        t = open_tags(&c);
        CHECK_EQ(add(t, 0, 0, 1, 0, 0), QOS_OK);
        CHECK_EQ(tags_arrive(t, 0, 0, 100), QOS_OK);
        for (i = 0; i < sizeof service / sizeof *service; i++) {
            CHECK_CONTEXT("request %u, %s", i, way ? "exact" : "blocks");
            CHECK_EQ(serve(t, 0, service[i]), 0);
            CHECK_EQ(tags_client_stats(t, 0, 0, &state), QOS_OK);
            CHECK_EQ(state.mean_service_ns, way ? exact[i] : blocks[i]);
        }
        close_tags();
    }
}

/* The device served nobody for ten seconds: the reservation catches up, but not past the limit. */
static void late_reservation(void)
{
    struct tags_config c = plain(2, TAGS_PS);
    struct tags *t = open_tags(&c);
    const uint64_t ms = 1000000;
    unsigned sent = 0;
    uint64_t now;
    CHECK_EQ(add(t, 0, 0, 1, 100, 200), QOS_OK);
    CHECK_EQ(tags_arrive(t, 0, 0, 100000), QOS_OK);
    CHECK_EQ(serve(t, 0, 1), 0);
    while (serve(t, 10000 * ms, 1) == 0)
        sent++;
    CHECK_EQ(sent, 21); /* 100 ms at 200 per second, and one */
    for (now = 10000 * ms; now < 12000 * ms; now += ms)
        while (serve(t, now, 1) == 0)
            sent++;
    CHECK_EQ(sent, 21 + 399);
    CHECK_EQ(tags_served(t, TAGS_PHASE_WEIGHT), 0); /* it owes 1,000: all by reservation */
    close_tags();
}

/* The time stands at the end of its range: tags stay there, nothing wraps. */
static void end_of_time(void)
{
    struct tags_config c = plain(2, TAGS_REWARD);
    struct tags *t = open_tags(&c);
    unsigned i;
    CHECK_EQ(add(t, UINT64_MAX - 5, 0, 1, 1, 0), QOS_OK);
    CHECK_EQ(add(t, UINT64_MAX - 5, 1, 1, 0, 1), QOS_OK);
    for (i = 0; i < 6; i++) {
        CHECK_EQ(tags_arrive(t, UINT64_MAX - 5 + i, 0, 1), QOS_OK);
        CHECK_EQ(tags_arrive(t, UINT64_MAX - 5 + i, 1, 1), QOS_OK);
        CHECK(serve(t, UINT64_MAX - 5 + i, 1000) >= 0);
    }
    CHECK(tags_next_ns(t, UINT64_MAX) >= UINT64_MAX - 1);
    close_tags();
}

int main(void)
{
    check_begin("unit/tags_api");
    configurations();
    clients();
    at_the_limit();
    refunds();
    forced();
    intrusive();
    elsewhere();
    weights();
    end_of_time();
    moved_back();
    far_ahead();
    waiting_client();
    removed();
    rejected_by_cost();
    counted();
    windows();
    late_reservation();
    shared();
    shared_bursts();
    return check_end();
}
