// proves: Section 5.2: submit, dispatch, complete and cancel in every state; and what world/htb does not draw: who was away
// proves: has a bucket and no more, holders of an id, rings of many classes, clocks near 2^62, stalls of 100 s, fast devices
// proves: (order, bounds, weights, debts, costs and reasons: world/htb)
// variants: native san i386
#include "htb_world.h"

#define MANY 512

static struct htb_request pool[MANY];

static struct htb_request *request(unsigned i, uint32_t id, uint64_t tokens, uint64_t offset)
{
    memset(&pool[i], 0, sizeof pool[i]);
    pool[i].class_id = id;
    pool[i].tokens[0] = tokens;
    pool[i].offset = offset;
    return &pool[i];
}

static void submit(struct world *w, unsigned i, uint32_t id, uint64_t tokens, uint64_t offset, uint64_t now_ns)
{
    CHECK_EQ(htb_submit(&w->tree, now_ns, request(i, id, tokens, offset)), QOS_OK);
}

static void states(void)
{
    struct htb_config config = world_config();
    struct world w;
    struct htb_request *a = request(0, 1, 100, 0), *b = request(1, 1, 100, 10);
    world_open(&w, &config);
    reserve(&w, 1, 0, 10000, 0, 0);
    CHECK_EQ(htb_submit(&w.tree, 0, NULL), QOS_EINVAL);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, NULL), QOS_EINVAL);
    CHECK_EQ(htb_cancel(&w.tree, 0, NULL), QOS_EINVAL);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, a), QOS_EINVAL);
    CHECK_EQ(htb_cancel(&w.tree, 0, a), QOS_EINVAL);
    CHECK(htb_dispatch(&w.tree, 0) == NULL);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), QOS_NEVER);
    a->tokens[0] = QOS_TOKENS_MAX + 1;
    world_draw(&w);
    CHECK_EQ(htb_submit(&w.tree, 0, a), QOS_ERANGE);
    CHECK(world_same(&w));
    CHECK_EQ(a->state, HTB_IDLE);
    a->tokens[0] = 100;
    CHECK_EQ(htb_submit(&w.tree, 0, a), QOS_OK); /* queued: no tokens yet */
    CHECK_EQ(a->state, HTB_QUEUED);
    world_draw(&w);
    CHECK_EQ(htb_submit(&w.tree, 0, a), QOS_EBUSY);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, a), QOS_EINVAL);
    CHECK(world_same(&w));
    CHECK_EQ(htb_submit(&w.tree, 0, b), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 0), 100000); /* the root's 100 */
    CHECK(htb_dispatch(&w.tree, 99999) == NULL);
    CHECK(htb_dispatch(&w.tree, S) == a);
    CHECK_EQ(a->state, HTB_AT_DEVICE);
    CHECK_EQ(b->state, HTB_DISPATCHED);
    CHECK_EQ(stats_of(&w, 1).waited, 2);
    CHECK_EQ(stats_of(&w, 1).granted, 200);
    CHECK_EQ(stats_of(&w, 1).borrowed, 0); /* both waited for its tokens, for a second */
    world_draw(&w);
    CHECK_EQ(htb_submit(&w.tree, S, a), QOS_EBUSY);
    CHECK_EQ(htb_submit(&w.tree, S, b), QOS_EBUSY);
    CHECK_EQ(htb_cancel(&w.tree, S, a), QOS_EINVAL);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, b), QOS_EINVAL);
    CHECK(world_same(&w));
    CHECK_EQ(htb_cancel(&w.tree, S, b), QOS_OK); /* its tokens are given back */
    CHECK_EQ(stats_of(&w, 1).granted, 100);
    CHECK_EQ(stats_of(&w, 1).borrowed, 0);
    CHECK(htb_dispatch(&w.tree, S) == NULL);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, a), QOS_OK);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, a), QOS_EINVAL);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, b), QOS_EINVAL);
    /* Both can go again. A request that is cancelled in the queue costs nothing, and those behind it move up. */
    CHECK_EQ(force(&w, 1, 1000, 0, S), QOS_OK);
    CHECK_EQ(force(&w, 0, 20000, 0, S), QOS_OK);
    a->tokens[0] = 9000;
    CHECK_EQ(htb_submit(&w.tree, S, a), QOS_OK);
    CHECK_EQ(htb_submit(&w.tree, S, b), QOS_OK);
    {
        uint64_t with_a = htb_dispatch_next_ns(&w.tree, S);
        CHECK_EQ(htb_cancel(&w.tree, S, a), QOS_OK);
        CHECK_LE(htb_dispatch_next_ns(&w.tree, S), with_a - 8 * MS);
    }
    CHECK_EQ(htb_cancel(&w.tree, S, b), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S), QOS_NEVER);
    CHECK_EQ(a->state + b->state, HTB_IDLE);
    CHECK_EQ(stats_of(&w, 1).granted, 1100);
    /* The middle and the last of a queue. */
    submit(&w, 2, 1, 9000, 0, S);
    submit(&w, 3, 1, 1, 0, S);
    submit(&w, 4, 1, 1, 0, S);
    CHECK_EQ(htb_cancel(&w.tree, S, &pool[3]), QOS_OK);
    CHECK_EQ(htb_cancel(&w.tree, S, &pool[4]), QOS_OK);
    CHECK(htb_dispatch(&w.tree, 9 * S) == &pool[2]);
    CHECK(htb_dispatch(&w.tree, 9 * S) == NULL);
    world_close(&w);
}

/* After some are cancelled, the remaining requests go in the order of offsets, too. */
static void order_after_cancels(void)
{
    struct htb_config config = world_config();
    struct htb_request *r;
    struct check_rng rng;
    struct world w;
    unsigned round, i, left;
    uint64_t last;
    check_rng_init(&rng, 3);
    config.dispatch_max = 64;
    config.bypass_max = 1000;
    for (round = 0; round < 100; round++) {
        world_open(&w, &config);
        for (i = 0; i < 64; i++)
            submit(&w, i, 0, 1, check_between(&rng, 1, 1000), S);
        r = htb_dispatch(&w.tree, S);
        CHECK(r != NULL);
        for (i = 0, left = 0; i < 64; i++)
            if (pool[i].state == HTB_DISPATCHED && check_between(&rng, 0, 2) == 0)
                CHECK_EQ(htb_cancel(&w.tree, S, &pool[i]), QOS_OK);
            else
                left += pool[i].state == HTB_DISPATCHED;
        for (last = 0; r && left > 0; left--, last = r->offset) {
            CHECK_EQ(htb_complete(&w.tree, S, HTB_DONE, NULL, r), QOS_OK);
            r = htb_dispatch(&w.tree, S);
            CHECK(r != NULL && r->offset >= last);
            if (!r)
                break;
        }
        world_close(&w);
    }
}

/* By flight, a device whose channel of requests is the bound itself: class 1 has one request at a time with a latency of
 * 1 ms, class 2 fills what is in flight, and all complete in order at 1,000,000 tokens/s. The bound narrows until class 1
 * is in time, htb_info names it, and htb_class_info shows what its requests take. Without such a promise it is not so. */
static void in_time(uint64_t latency_ns, bool ends)
{
    struct htb_config config = world_config();
    struct htb_class terms = class_of(0, 100000, 0);
    struct htb_class_state report;
    struct htb_request *fifo[MANY];
    struct world w;
    uint64_t now = 0, done_ns = 0, turn_ns = 0, late = 0, all = 0, bound_ns;
    unsigned head = 0, count = 0, i;
    config.bound = HTB_BY_FLIGHT;
    config.order = HTB_FIFO;
    config.flight_min_ns = latency_ns ? 0 : 10 * MS;
    config.dispatch_max = config.device_max = 256;
    terms.latency_ns = latency_ns;
    world_open(&w, &config);
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &terms, NULL), QOS_OK);
    reserve(&w, 2, 0, 0, 0, 0);
    for (i = 0; i < 201; i++)
        submit(&w, i, i == 0 ? 1 : 2, 100, 0, 0);
    while (now < 20 * S && !(ends && info_of(&w.tree).flight_by == 1 && info_of(&w.tree).flight_bound_ns < 1100000)) {
        struct htb_request *r;
        while ((r = htb_dispatch(&w.tree, now)) != NULL) {
            if (count == 0)
                done_ns = now + MS / 10;
            fifo[(head + count++) % MANY] = r;
        }
        CHECK(count != 0);
        now = done_ns;
        r = fifo[head++ % MANY];
        count--;
        done_ns += MS / 10;
        if (r == &pool[0]) { /* its turn: 100 tokens at 100,000 a second take 1 ms */
            turn_ns = qos_max(turn_ns, r->since_ns);
            all += now > 10 * S;
            late += now > 10 * S && now > turn_ns + MS;
            turn_ns += MS;
        }
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        submit(&w, (unsigned)(r - pool), r->class_id, 100, 0, now);
    }
    CHECK_EQ(htb_class_info(&w.tree, 1, &report), QOS_OK);
    CHECK_EQ(report.terms.latency_ns, latency_ns);
    if (ends) { /* A class that ends needs nothing, at once: nobody waits for a look. */
        CHECK_LE(now, S);
        bound_ns = info_of(&w.tree).flight_bound_ns;
        CHECK_EQ(htb_release(&w.tree, now, 1), QOS_OK);
        CHECK_EQ(info_of(&w.tree).flight_by, QOS_NONE);
        CHECK(info_of(&w.tree).flight_bound_ns > bound_ns);
    } else if (latency_ns) {
        CHECK(late * 100 <= all);
        CHECK(info_of(&w.tree).flight_cost_permille <= 50); /* a serial device is as fast with one request */
        CHECK(report.p50_ns <= MS && report.p99_ns <= 5 * MS && report.p50_ns >= MS / 10);
    } else {
        CHECK(late > all / 2);
        CHECK_EQ(info_of(&w.tree).flight_by, QOS_NONE);
        CHECK_WITHIN(report.p50_ns, 8 * MS, 12 * MS);
        CHECK(report.p99_ns >= report.p50_ns);
    }
    world_close(&w);
}

/* A device stalls for 100 s: a class makes up at most QOS_TOKENS_MAX tokens. */
static void stood_still(void)
{
    struct htb_config config = world_config();
    struct world w;
    unsigned i;
    config.rate_per_s[0] = QOS_RATE_MAX;
    config.lag_ns = HTB_BURST_MAX_NS;
    config.dispatch_max = 1;
    world_open(&w, &config);
    reserve(&w, 1, 0, QOS_RATE_MAX, 0, 0);
    submit(&w, 0, 1, 100, 0, S);
    CHECK(htb_dispatch(&w.tree, S) == &pool[0]);
    submit(&w, 1, 1, 1, 0, S);
    submit(&w, 2, 1, QOS_TOKENS_MAX - 1, 0, S);
    submit(&w, 3, 1, 1, 0, S);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(htb_complete(&w.tree, 101 * S, HTB_DONE, NULL, &pool[i]), QOS_OK);
        CHECK(htb_dispatch(&w.tree, 101 * S) == (i < 2 ? &pool[i + 1] : NULL));
    }
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, 101 * S), 101 * S + 1);
    CHECK(htb_dispatch(&w.tree, 101 * S + 1) == &pool[3]);
    world_close(&w);
}

/* A refund goes to the class that paid: not to a later holder of its id, not even to the one 2,048 reservations later.
   */
static void holders(void)
{
    struct htb_config config = world_config();
    struct htb_class_state state;
    struct world w;
    unsigned k;
    world_open(&w, &config);
    reserve(&w, 1, 0, 100000, 0, 0);
    CHECK_EQ(htb_release(&w.tree, 0, 1), QOS_OK);
    reserve(&w, 1, 0, 100000, 0, 0);
    submit(&w, 0, 1, 300, 0, S);
    CHECK(htb_dispatch(&w.tree, S) == &pool[0]);
    CHECK_EQ(htb_complete(&w.tree, S, HTB_NOT_DONE, NULL, &pool[0]), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).granted, 0);
    CHECK_EQ(htb_class_info(&w.tree, 1, &state), QOS_OK);
    CHECK_EQ(state.outstanding, 0);
    submit(&w, 0, 1, 300, 0, S);
    CHECK(htb_dispatch(&w.tree, S) == &pool[0]);
    for (k = 0; k < 2048; k++) {
        CHECK_EQ(htb_release(&w.tree, S, 1), QOS_OK);
        reserve(&w, 1, 0, 100000, 0, S);
    }
    CHECK_EQ(htb_complete(&w.tree, S, HTB_NOT_DONE, NULL, &pool[0]), QOS_OK);
    CHECK_EQ(stats_of(&w, 1).granted, 0);
    world_close(&w);
}

/* The device serves n requests one by one, each submitted again at once. Returns how often it served this one. */
static unsigned times_served(struct world *w, unsigned n, const struct htb_request *which)
{
    unsigned i, times = 0;
    for (i = 0; i < n; i++) {
        struct htb_request *r = htb_dispatch(&w->tree, S);
        CHECK(r != NULL);
        if (!r)
            break;
        times += r == which;
        CHECK_EQ(htb_complete(&w->tree, S, HTB_DONE, NULL, r), QOS_OK);
        CHECK_EQ(htb_submit(&w->tree, S, r), QOS_OK);
    }
    return times;
}

/* Borrowers of a device that takes less than 1 ns for a request share its tokens, not its requests. */
static void shares_of_a_fast_device(void)
{
    struct htb_config config = world_config();
    struct world w;
    config.rate_per_s[0] = UINT64_C(1000000000000);
    config.bound = HTB_BY_FLIGHT;
    config.dispatch_max = 1;
    world_open(&w, &config);
    reserve(&w, 1, 0, 0, 0, 0);
    reserve(&w, 2, 0, 0, 0, 0);
    submit(&w, 0, 1, 100, 0, S);
    submit(&w, 1, 2, 300, 0, S);
    CHECK_WITHIN(times_served(&w, 400, &pool[0]), 298, 302);
    world_close(&w);
}

/* Two resources: a borrower's request that takes the root less than 1 ns counts as 1 ns, beside one of 2 ns. */
static void less_than_a_ns(void)
{
    struct htb_config config = world_config();
    struct world w;
    config.bound = HTB_BY_FLIGHT;
    config.resources = 2;
    config.rate_per_s[0] = config.rate_per_s[1] = QOS_RATE_MAX;
    config.dispatch_max = 1;
    world_open(&w, &config);
    reserve(&w, 1, 0, 0, 0, 0);
    reserve(&w, 2, 0, 0, 0, 0);
    submit(&w, 0, 1, 100, 0, S);
    submit(&w, 1, 2, 2300, 0, S);
    CHECK_WITHIN(times_served(&w, 300, &pool[1]), 99, 101);
    world_close(&w);
}

/* A class is at its limit, and its group owes: told is first when its limit passes, and then when the group has paid its
 * debt. At a higher rate the group pays sooner. */
static void group_rises_for_one_that_waits(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 10000, 0);
    struct world w;
    world_open(&w, &config);
    reserve_group(&w, 1, 0, 1000, 0, 0);
    reserve(&w, 2, 1, 0, 1000, 0);
    reserve(&w, 3, 1, 0, 0, 0);
    reserve(&w, 4, 0, 0, 0, 0);
    CHECK_EQ(force(&w, 2, 100, 0, S), QOS_OK); /* its limit owes 90, and the request needs 10: 100 ms */
    CHECK_EQ(force(&w, 3, 400, 0, S), QOS_OK);
    CHECK_EQ(force(&w, 4, 600000, 0, S), QOS_OK);
    submit(&w, 0, 2, 10, 0, S);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S), S + 100 * MS);
    CHECK(htb_dispatch(&w.tree, S + 100 * MS) == NULL);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S + 100 * MS), S + 500 * MS);
    c.group = true;
    CHECK_EQ(htb_change(&w.tree, S + 100 * MS, 1, &c, NULL), QOS_OK);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S + 100 * MS), S + 140 * MS);
    CHECK(htb_dispatch(&w.tree, S + 140 * MS - 1) == NULL);
    CHECK(htb_dispatch(&w.tree, S + 140 * MS) == &pool[0]);
    world_close(&w);
}

/* A class at its limit waits while the root owes: what the root is given back shortens that wait, too, without a question
 * for the next time in between. */
static void root_is_given_back_to(void)
{
    static const uint64_t less[HTB_RESOURCES_MAX] = {1, 0, 0, 0};
    struct htb_config config = world_config();
    struct world w;
    unsigned way;
    for (way = 0; way < 2; way++) {
        world_open(&w, &config);
        reserve(&w, 1, 0, 0, 0, 0);
        reserve(&w, 2, 0, 0, 1000, 0);
        CHECK_EQ(drain(&w, 2, 1, S), 10);
        submit(&w, 0, 1, 1000000, 0, S + MS);
        CHECK(htb_dispatch(&w.tree, S + MS) == &pool[0]); /* the root owes for a second */
        submit(&w, 1, 2, 10, 0, S + MS);
        CHECK(htb_dispatch(&w.tree, S + MS) == NULL);
        CHECK_EQ(htb_complete(&w.tree, S + 2 * MS, way == 1 ? HTB_DONE : HTB_NOT_DONE, less, &pool[0]), QOS_OK);
        CHECK(htb_dispatch(&w.tree, S + 10 * MS - 1) == NULL);
        CHECK(htb_dispatch(&w.tree, S + 10 * MS) == &pool[1]);
        world_close(&w);
    }
}

/* Who borrows with the largest weights, and estimates twice what it uses, gets as much as its neighbour: what is given
 * back of a turn is less than a unit of the tag. */
static void small_turns_are_given_back(void)
{
    static const uint64_t real[HTB_RESOURCES_MAX] = {1, 0, 0, 0};
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 0, 0);
    struct htb_request *r;
    struct world w;
    unsigned i, done[2] = {0, 0};
    config.dispatch_max = 1; /* the turn decides, not the offset */
    world_open(&w, &config);
    c.weight = 1000000;
    for (i = 0; i < 2; i++) {
        CHECK_EQ(htb_reserve(&w.tree, 0, i + 1, &c, NULL), QOS_OK);
        submit(&w, i, i + 1, 2 - i, 0, S);
    }
    for (i = 0; i < 1000; i++) {
        r = htb_dispatch(&w.tree, 2 * S);
        if (!r) {
            CHECK(r != NULL);
            break;
        }
        CHECK_EQ(htb_complete(&w.tree, 2 * S, HTB_DONE, real, r), QOS_OK);
        done[r->class_id - 1]++;
        submit(&w, (unsigned)(r - pool), r->class_id, 3 - r->class_id, 0, 2 * S);
    }
    CHECK_WITHIN(done[0], 499, 501);
    for (i = 0; i < 2; i++)
        CHECK_EQ(htb_cancel(&w.tree, 2 * S, &pool[i]), QOS_OK);
    world_close(&w);
}

/* While a class leaves, a walk over its queue cancels all its requests. */
static void walk(void)
{
    struct htb_config config = world_config();
    struct htb_request *r, *next;
    struct world w;
    unsigned i;
    world_open(&w, &config);
    reserve(&w, 1, 0, 1000, 0, 0);
    CHECK(htb_queue_next(&w.tree, 1, NULL) == NULL);
    CHECK(htb_queue_next(&w.tree, 8, NULL) == NULL);
    reserve_group(&w, 2, 0, 0, 0, 0);
    CHECK(htb_queue_next(&w.tree, 2, NULL) == NULL);
    for (i = 0; i < 5; i++)
        submit(&w, i, 1, 10, 0, 0);
    for (i = 0, r = htb_queue_next(&w.tree, 1, NULL); r; r = htb_queue_next(&w.tree, 1, r))
        CHECK(r == &pool[i++]);
    CHECK_EQ(i, 5);
    for (r = htb_queue_next(&w.tree, 1, NULL); r; r = next) {
        next = htb_queue_next(&w.tree, 1, r);
        CHECK_EQ(htb_cancel(&w.tree, 0, r), QOS_OK);
    }
    CHECK_EQ(info_of(&w.tree).queued, 0);
    CHECK_EQ(htb_release(&w.tree, 0, 1), QOS_OK);
    world_close(&w);
}

/* The clock of a ring passes 2^62 after about 16 requests that take the root 2^42 ns each. Shares stay 1:1:2. A class
 * that ends with a lead keeps it: when it is reserved again, each of the others has a turn before it. */
static void ring_clock_is_moved_back(void)
{
    struct htb_config config;
    static struct htb_request request[3], newcomer, former;
    struct htb_class c = class_of(0, 0, 0);
    struct world w;
    uint64_t served[3] = {0, 0, 0}, i;
    struct htb_request *r;
    uint32_t k;
    memset(&config, 0, sizeof config);
    memset(request, 0, sizeof request);
    config.resources = 2;
    config.rate_per_s[0] = config.rate_per_s[1] = 1;
    world_open(&w, &config);
    former.class_id = 5;
    former.tokens[0] = 4399;
    CHECK_EQ(htb_reserve(&w.tree, 0, 5, &c, NULL), QOS_OK);
    CHECK_EQ(htb_submit(&w.tree, 0, &former), QOS_OK);
    CHECK(htb_dispatch(&w.tree, 0) == &former);
    CHECK_EQ(htb_complete(&w.tree, 0, HTB_DONE, NULL, &former), QOS_OK);
    CHECK_EQ(htb_release(&w.tree, 0, 5), QOS_OK);
    for (k = 0; k < 3; k++) {
        c.weight = k == 2 ? 2 : 1;
        CHECK_EQ(htb_reserve(&w.tree, 0, k + 1, &c, NULL), QOS_OK);
        request[k].class_id = k + 1;
        request[k].tokens[k % 2] = 4399; /* more than 2^42 ns */
        CHECK_EQ(htb_submit(&w.tree, 0, &request[k]), QOS_OK);
    }
    for (i = 1; i <= 400; i++) {
        r = htb_dispatch(&w.tree, i);
        CHECK(r != NULL);
        if (!r)
            break;
        served[r->class_id - 1]++;
        CHECK_EQ(htb_complete(&w.tree, i, HTB_DONE, NULL, r), QOS_OK);
        CHECK_EQ(htb_submit(&w.tree, i, r), QOS_OK);
        CHECK(served[0] <= served[1] + 2 && served[1] <= served[0] + 2);
        CHECK(served[2] <= 2 * served[0] + 3 && 2 * served[0] <= served[2] + 3);
        /* A newcomer has its first turn among the turns of the others, then it leaves. */
        c.weight = 1;
        CHECK_EQ(htb_reserve(&w.tree, i, 4, &c, NULL), QOS_OK);
        newcomer.class_id = 4;
        newcomer.tokens[0] = 1;
        CHECK_EQ(htb_submit(&w.tree, i, &newcomer), QOS_OK);
        for (k = 0; k < 6 && newcomer.state != HTB_AT_DEVICE; k++)
            if ((r = htb_dispatch(&w.tree, i)) != NULL) {
                CHECK_EQ(htb_complete(&w.tree, i, HTB_DONE, NULL, r), QOS_OK);
                if (r == &newcomer)
                    break;
                served[r->class_id - 1]++;
                CHECK_EQ(htb_submit(&w.tree, i, r), QOS_OK);
            }
        CHECK(k < 6);
        CHECK_EQ(htb_release(&w.tree, i, 4), QOS_OK);
    }
    CHECK_GE(served[0] + served[1] + served[2], 400);
    CHECK_EQ(htb_reserve(&w.tree, i, 5, &c, NULL), QOS_OK);
    CHECK_EQ(htb_submit(&w.tree, i, &former), QOS_OK);
    for (k = 0; k < 9 && former.state != HTB_AT_DEVICE; k++)
        if ((r = htb_dispatch(&w.tree, i)) != NULL && r != &former) {
            CHECK_EQ(htb_complete(&w.tree, i, HTB_DONE, NULL, r), QOS_OK);
            CHECK_EQ(htb_submit(&w.tree, i, r), QOS_OK);
        }
    CHECK_WITHIN(k, 4, 8);
    world_close(&w);
}

/* 90 classes have one request each in every second. That is more than stay in a ring without requests (64). Each second
 * they are served in the same order. */
static void more_than_stay_in_a_ring(void)
{
    enum { CLASSES = 91 };
    struct htb_config config = world_config();
    struct world w;
    uint32_t id, first[CLASSES], n;
    uint64_t now;
    config.classes = CLASSES;
    config.order = HTB_FIFO;
    config.dispatch_max = 1;
    world_open(&w, &config);
    for (id = 1; id < CLASSES; id++)
        reserve(&w, id, 0, 0, 0, 0);
    for (now = S; now <= 10 * S; now += S) {
        for (id = 1; id < CLASSES; id++)
            submit(&w, id, id, 10, 0, now);
        for (n = 0; n < CLASSES - 1; n++) {
            struct htb_request *r = htb_dispatch(&w.tree, now);
            CHECK(r != NULL);
            if (!r)
                break;
            if (now == S)
                first[n] = r->class_id;
            CHECK_EQ(r->class_id, first[n]);
            CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        }
    }
    world_close(&w);
}

/* Borrowers of many weights wait. Some are released and reserved again, anywhere in the ring. Each request is
 * dispatched once. Of the classes that stayed, the one with the largest weight gets the most service. */
static void leave_a_ring(void)
{
    enum { CLASSES = 40 };
    struct htb_config config = world_config();
    static struct htb_request request[CLASSES];
    struct htb_class c = class_of(0, 0, 0);
    uint64_t served[CLASSES] = {0}, now = S, submitted = 0, dispatched = 0, i;
    struct check_rng rng;
    struct world w;
    uint32_t id;
    check_rng_init(&rng, 11);
    memset(request, 0, sizeof request);
    config.classes = CLASSES;
    config.bound = HTB_BY_FLIGHT;
    config.dispatch_max = config.device_max = 1;
    world_open(&w, &config);
    for (i = 0; i < 20000; i++) {
        struct htb_request *r;
        for (id = 1; id < CLASSES; id++) {
            if (request[id].state != HTB_IDLE)
                continue;
            if (i == 0) {
                c.weight = 1 + id % 8 * 100;
                CHECK_EQ(htb_reserve(&w.tree, now, id, &c, NULL), QOS_OK);
            }
            request[id].class_id = id;
            request[id].tokens[0] = 100 + id;
            CHECK_EQ(htb_submit(&w.tree, now, &request[id]), QOS_OK);
            submitted++;
        }
        id = (uint32_t)check_between(&rng, CLASSES / 2, CLASSES - 1);
        if (i % 3 == 0 && request[id].state == HTB_QUEUED) {
            CHECK_EQ(htb_cancel(&w.tree, now, &request[id]), QOS_OK);
            submitted--;
            CHECK_EQ(htb_release(&w.tree, now, id), QOS_OK);
            c.weight = (uint32_t)check_between(&rng, 1, 1000);
            CHECK_EQ(htb_reserve(&w.tree, now, id, &c, NULL), QOS_OK);
        }
        r = htb_dispatch(&w.tree, now);
        CHECK(r != NULL);
        if (!r)
            break;
        served[r->class_id] += r->tokens[0];
        dispatched++;
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        now += 1000;
    }
    for (id = 1; id + 8 < CLASSES / 2; id++) {
        CHECK_WITHIN((double)served[id] / (double)(served[id + 8] + 1), id % 8 ? 0.8 : 0, id % 8 ? 1.25 : 9);
        CHECK(id % 8 != 1 || served[id + 6] > 3 * served[id]);
    }
    for (id = 1; id < CLASSES; id++)
        dispatched += request[id].state == HTB_QUEUED || request[id].state == HTB_DISPATCHED;
    CHECK_EQ(submitted, dispatched);
    world_close(&w);
}

/* By flight, a queued borrower has used a device of twice the root's rate for 10 s. It owes the root nothing: an urgent
 * request of a class without a rate goes at once, and gate requests have every second turn. */
static void the_root_owes_nothing(void)
{
    struct htb_config config = world_config();
    struct htb_request *r;
    struct world w;
    uint64_t now = 0, got = 0;
    unsigned i, granted = 0;
    config.bound = HTB_BY_FLIGHT;
    config.dispatch_max = 1;
    world_open(&w, &config);
    for (i = 1; i < 4; i++)
        reserve(&w, i, 0, 0, 0, 0);
    submit(&w, 0, 1, 2000, 0, 0);
    for (now = MS; now <= 10 * S; now += MS) {
        CHECK(htb_dispatch(&w.tree, now) == &pool[0]);
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, &pool[0]), QOS_OK);
        submit(&w, 0, 1, 2000, 0, now);
    }
    CHECK_EQ(force(&w, 3, 1000, 0, now), QOS_OK);
    for (i = 0; i < 20; i++) {
        request(1, 2, 1000, 0)->gate = true;
        CHECK_EQ(htb_submit(&w.tree, now, &pool[1]), QOS_OK);
        while (pool[1].state == HTB_QUEUED) {
            r = htb_dispatch(&w.tree, now);
            granted += r == &pool[1];
            if (r == &pool[0]) {
                got += 2000;
                CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
                submit(&w, 0, 1, 2000, 0, now);
                now += MS;
            }
            if (!r && pool[1].state == HTB_QUEUED && (now += MS) > 30 * S)
                break;
        }
        CHECK_EQ(granted, i + 1);
    }
    CHECK_LE(now, 10 * S + 21 * MS);
    CHECK(got >= 18000);
    world_close(&w);
}

/* By flight, the class that has the turn waits for what a gate request is taken to have at the device. As the class
 * expires, another one has the turn, and need not wait: that is told. */
static void expires_while_it_waits_for_room(void)
{
    struct htb_config config = world_config();
    struct htb_class c = class_of(0, 500000, 0);
    struct world w;
    config.bound = HTB_BY_FLIGHT;
    world_open(&w, &config);
    c.expires_ns = S + 20 * MS;
    CHECK_EQ(htb_reserve(&w.tree, 0, 1, &c, NULL), QOS_OK);
    reserve(&w, 2, 0, 0, 0, 0);
    reserve(&w, 3, 0, 0, 0, 0);
    request(0, 3, 100000, 0)->gate = true;
    request(1, 1, 1000, 0)->gate = true;
    CHECK_EQ(htb_submit(&w.tree, S, &pool[0]), QOS_OK);
    CHECK(htb_dispatch(&w.tree, S) == &pool[0]);
    submit(&w, 2, 2, 1000, 0, S);
    CHECK_EQ(htb_submit(&w.tree, S, &pool[1]), QOS_OK);
    CHECK(htb_dispatch(&w.tree, S) == NULL);
    CHECK_EQ(htb_dispatch_next_ns(&w.tree, S), S + 20 * MS);
    CHECK(htb_dispatch(&w.tree, S + 20 * MS) == &pool[2]);
    world_close(&w);
}

/* By flight, gate requests alone have the root's rate, and what may be in flight. */
static void gate_requests_alone(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t now = MS, end = now + 200 * MS, got = 0;
    config.bound = HTB_BY_FLIGHT;
    world_open(&w, &config);
    reserve(&w, 1, 0, 0, 0, 0);
    request(0, 1, 1000, 0)->gate = true;
    CHECK_EQ(htb_submit(&w.tree, now, &pool[0]), QOS_OK);
    while (now < end && got < 1000000) {
        if (htb_dispatch(&w.tree, now) == &pool[0]) {
            got += 1000;
            request(0, 1, 1000, 0)->gate = true;
            CHECK_EQ(htb_submit(&w.tree, now, &pool[0]), QOS_OK);
        } else {
            CHECK(htb_dispatch_next_ns(&w.tree, now) > now);
            now = htb_dispatch_next_ns(&w.tree, now);
        }
    }
    CHECK_WITHIN(got, 199000, 221000);
    world_close(&w);
}

/* The lead of a tag is of the rate at which it was earned: once the rate rises, a class that sent a large request has
 * the same turns as its equal. */
static void a_raised_rate(void)
{
    struct htb_config config = world_config();
    struct htb_class terms = class_of(0, 500000, 0);
    struct world w;
    uint64_t now = S;
    unsigned i, turns[3] = {0, 0, 0};
    config.dispatch_max = 1;
    world_open(&w, &config);
    reserve(&w, 1, 0, 1000, 0, 0);
    reserve(&w, 2, 0, 499000, 0, 0);
    submit(&w, 0, 1, 10000, 0, now); /* 10 s of its rate */
    CHECK(htb_dispatch(&w.tree, now) == &pool[0]);
    CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, &pool[0]), QOS_OK);
    CHECK_EQ(htb_change(&w.tree, now, 1, &terms, NULL), QOS_OK);
    now += S;
    for (i = 0; i < 2; i++)
        submit(&w, i, i + 1, 1000, 0, now);
    for (i = 0; i < 200; i++) { /* half of what both are promised */
        struct htb_request *r = htb_dispatch(&w.tree, now);
        CHECK(r != NULL);
        if (!r)
            break;
        turns[r->class_id]++;
        now += 2 * MS;
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        submit(&w, (unsigned)(r - pool), r->class_id, 1000, 0, now);
    }
    CHECK_WITHIN(turns[1], 90, 110);
    world_close(&w);
}

/* A device does a quarter of what is reserved. Each second a request of a class of 1000 per s is due, as it costs 1000: its own
 * rate is why it is as old as that, not the device. Class 2 that asks again shares with class 1. */
static void one_is_due_each_second(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t now = S, done[4] = {0, 0, 0, 0};
    unsigned i, id;
    config.bound = HTB_BY_RATE;
    config.dispatch_max = config.device_max = 1;
    config.lag_ns = 50 * MS;
    world_open(&w, &config);
    reserve(&w, 1, 0, 400000, 0, 0);
    reserve(&w, 2, 0, 400000, 0, 0);
    reserve(&w, 3, 0, 1000, 0, 0);
    memset(pool, 0, sizeof pool);
    for (i = 0; i < 5500; i++) {
        struct htb_request *r;
        for (id = 1; id <= 3; id++)
            if (pool[id].state == HTB_IDLE && (id != 2 || i > 5000))
                submit(&w, id, (uint32_t)id, 1000, 0, now);
        r = htb_dispatch(&w.tree, now);
        CHECK(r != NULL);
        if (r == NULL)
            return;
        done[r->class_id] += i > 5000;
        now += 5 * MS;
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
    }
    CHECK_LE(240, done[1]);
    CHECK_LE(240, done[2]);
    world_close(&w);
}

/* By flight. A class waits for tokens, takes all back, and is away while nobody calls: its own tokens when it comes back are
 * a bucket and a request at most, not what it would have had while it waited. The device has done one request each step. */
static void away(uint64_t n, unsigned steps, uint64_t away_ns)
{
    enum { EACH = 64 };
    const uint64_t rate = 40000000;
    struct htb_config config = world_config();
    struct htb_request *device[2 * EACH], *r;
    struct world w;
    uint64_t now = 1, before = 0;
    unsigned i, held = 0, step;
    config.rate_per_s[0] = rate;
    config.request_max_tokens = 0;
    config.best_effort.weight = 1000;
    config.bound = HTB_BY_FLIGHT;
    config.order = HTB_FIFO;
    config.start_ns = now;
    world_open(&w, &config);
    reserve(&w, 1, 0, rate / 2, rate, now);
    for (i = 0; i < 2 * EACH; i++)
        submit(&w, i, i % 2, n, 0, now);
    for (step = 0;; step++) {
        while ((r = htb_dispatch(&w.tree, now)) != NULL)
            device[held++] = r;
        if (step == steps) {
            for (i = 1; i < 2 * EACH; i += 2)
                if (pool[i].state == HTB_QUEUED || pool[i].state == HTB_DISPATCHED)
                    CHECK_EQ(htb_cancel(&w.tree, now, &pool[i]), QOS_OK);
            now += away_ns;
            before = stats_of(&w, 1).granted - stats_of(&w, 1).borrowed;
            for (i = 1; i < 2 * EACH; i += 2)
                if (pool[i].state == HTB_IDLE)
                    CHECK_EQ(htb_submit(&w.tree, now, &pool[i]), QOS_OK);
            continue;
        }
        if (held == 0)
            break;
        r = device[0];
        memmove(device, device + 1, --held * sizeof *device);
        now += step < steps ? n * S / rate : 0; /* from then on time stands still: what goes is from the bucket */
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        if (step < steps)
            CHECK_EQ(htb_submit(&w.tree, now, r), QOS_OK);
    }
    CHECK_LE(stats_of(&w, 1).granted - stats_of(&w, 1).borrowed - before, rate / 2 / 50 + n);
    world_close(&w);
}

/* What was sent by a wrong clock, ahead, is no request that went beyond the bound later: when it is done, nobody hangs. */
static void sent_by_a_wrong_clock(void)
{
    struct htb_config config = world_config();
    struct world w;
    uint64_t now = S + MS;
    config.bound = HTB_BY_FLIGHT;
    world_open(&w, &config);
    submit(&w, 0, 0, 1000, 0, S);
    CHECK(htb_dispatch(&w.tree, S) == &pool[0]);
    submit(&w, 1, 0, 1000, 0, 1000 * S);
    CHECK(htb_dispatch(&w.tree, 1000 * S) == &pool[1]);
    htb_reset_clock(&w.tree, now);
    submit(&w, 2, 0, 1000, 0, now);
    while (now < 2 * S && htb_dispatch(&w.tree, now) == NULL) {
        CHECK(htb_dispatch_next_ns(&w.tree, now) > now);
        now = htb_dispatch_next_ns(&w.tree, now);
    }
    CHECK_WITHIN((double)now, 1.1e9, 1.9e9); /* one more goes, as all may hang */
    CHECK_EQ(htb_complete(&w.tree, now + MS, HTB_DONE, NULL, &pool[1]), QOS_OK);
    CHECK_EQ(info_of(&w.tree).hung_ns, 0);
    world_close(&w);
}

/* A class that says ten times what its requests cost borrows as much as one that says it right: both are told at
 * completion, when others have been served. (As long as the ring kept its clock: 1 : 7.) */
static void estimates_too_large(void)
{
    const uint64_t cost[HTB_RESOURCES_MAX] = {100, 0, 0, 0};
    struct htb_config config = world_config();
    static struct htb_request all[64];
    struct htb_request *at[32], *r;
    unsigned first = 0, count = 0, i, done[3] = {0, 0, 0};
    struct world w;
    uint64_t now = S;
    config.rate_per_s[0] = 1250000; /* the device is the bound: 1,111,111 */
    config.dispatch_max = config.device_max = 32;
    config.order = HTB_FIFO;
    world_open(&w, &config);
    reserve(&w, 1, 0, 0, 0, now);
    reserve(&w, 2, 0, 0, 0, now);
    memset(all, 0, sizeof all);
    for (i = 0; i < 64; i++) {
        all[i].class_id = 1 + i % 2;
        all[i].tokens[0] = i % 2 == 0 ? 1000 : 100;
        CHECK_EQ(htb_submit(&w.tree, now, &all[i]), QOS_OK);
    }
    for (; now < 11 * S; now += 90000) {
        for (; (r = htb_dispatch(&w.tree, now)) != NULL; count++)
            at[(first + count) % 32] = r;
        if (count == 0)
            continue;
        r = at[first];
        first = (first + 1) % 32;
        count--;
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, cost, r), QOS_OK);
        done[r->class_id]++;
        CHECK_EQ(htb_submit(&w.tree, now, r), QOS_OK);
    }
    CHECK_GE(done[1] + done[2], 90000);
    CHECK_WITHIN((double)done[1] / done[2], 0.97, 1.03);
    world_close(&w);
}

/* A loop that runs every 100 ms, ten bursts: a class whose requests wait loses none of its rate. */
static void late_loop(void)
{
    struct htb_config config = world_config();
    static struct htb_request all[400];
    struct htb_request *r;
    struct world w;
    uint64_t now = 0;
    unsigned i;
    world_open(&w, &config);
    reserve(&w, 1, 0, 900000, 0, now);
    reserve(&w, 2, 0, 0, 0, now);
    memset(all, 0, sizeof all);
    for (i = 0; i < 400; i++) {
        all[i].class_id = 1 + i % 2;
        all[i].tokens[0] = 1000;
        CHECK_EQ(htb_submit(&w.tree, now, &all[i]), QOS_OK);
    }
    for (i = 0; i < 100; i++) {
        now += 100 * MS;
        while ((r = htb_dispatch(&w.tree, now)) != NULL) {
            CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
            CHECK_EQ(htb_submit(&w.tree, now, r), QOS_OK);
        }
    }
    CHECK_WITHIN((double)stats_of(&w, 1).granted, 0.99 * 9000000, 1.01 * 9000000);
    world_close(&w);
}

/* A device does 0.85 of what is reserved. A class whose requests take more than lag_ns of its rate waits for tokens after each
 * one: its part is that of the others. */
static void large_requests_of_a_small_rate(void)
{
    static const uint64_t rate[] = {0, 500000, 490000, 10000}, n[] = {0, 1000, 100, 8700};
    struct htb_config config = world_config();
    struct world w;
    uint64_t now = S;
    unsigned i;
    config.dispatch_max = 1;
    config.lag_ns = 500 * MS;
    world_open(&w, &config);
    for (i = 1; i <= 3; i++)
        reserve(&w, i, 0, rate[i], 0, 0);
    for (i = 0; i < 9; i++)
        submit(&w, i, i / 3 + 1, n[i / 3 + 1], 0, now);
    while (now < 41 * S) {
        struct htb_request *r = htb_dispatch(&w.tree, now);
        CHECK(r != NULL);
        if (!r)
            break;
        now += r->tokens[0] * 20000 / 17;
        CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        submit(&w, (unsigned)(r - pool), r->class_id, r->tokens[0], 0, now);
    }
    for (i = 1; i <= 3; i++)
        CHECK_WITHIN((double)stats_of(&w, i).granted, 40.0 * 0.8 * (double)rate[i], 40.0 * 0.9 * (double)rate[i]);
    world_close(&w);
}

int main(void)
{
    uint64_t n, away_ms;
    unsigned steps;
    check_begin("unit/htb_queues");
    estimates_too_large();
    late_loop();
    states();
    order_after_cancels();
    in_time(MS, false);
    in_time(MS, true);
    in_time(0, false);
    stood_still();
    holders();
    shares_of_a_fast_device();
    less_than_a_ns();
    group_rises_for_one_that_waits();
    root_is_given_back_to();
    small_turns_are_given_back();
    walk();
    ring_clock_is_moved_back();
    more_than_stay_in_a_ring();
    leave_a_ring();
    the_root_owes_nothing();
    expires_while_it_waits_for_room();
    gate_requests_alone();
    a_raised_rate();
    one_is_due_each_second();
    large_requests_of_a_small_rate();
    sent_by_a_wrong_clock();
    for (n = 4096; n <= 65536; n *= 4)
        for (away_ms = 1; away_ms <= 901; away_ms += 100)
            for (steps = 200; steps < 220; steps++)
                away(n, steps, away_ms * MS);
    return check_end();
}
