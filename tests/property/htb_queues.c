// proves: htb_dispatch sends every request that may go, loses no token while demand waits, and wakes up at the right
// proves: time
// variants: native san i386
//
// Oracle: htb_oracle.h, which rescans every class and bucket. dispatch_max is 1, so that each call makes one choice.
//   - A dispatched request is the head of its class's queue, and the oracle finds a payer for it.
//   - If any class can pay for its own next request, one of those is chosen (Section 5.3: reservations always hold).
//   - Work conservation: nothing is dispatched only if no class may send or, at mixed request sizes, if a larger
//     request has the turn before all that may.
//   - htb_dispatch_next_ns: at equal sizes the first time, to the nanosecond, at which the oracle lets any class send.
//     At mixed sizes it is never late, and early at most once per request.
#include "htb_random.h"

#define REQUESTS 120

struct request {
    struct htb_request r; /* first member */
    int id;
    uint64_t order;
};

struct run {
    struct twin t;
    struct request request[REQUESTS];
    bool equal;
    uint64_t submitted, dispatched, served_own, served_borrowed, early;
};

static void one_at_a_time(struct htb_config *c)
{
    c->dispatch_max = 1;
    c->order = HTB_FIFO;
}

/* The oldest request that waits in class id, or NULL. */
static struct request *head(struct run *run, int id)
{
    struct request *oldest = NULL;
    int i;
    for (i = 0; i < REQUESTS; i++)
        if (run->request[i].r.state == HTB_QUEUED && run->request[i].id == id &&
            (!oldest || run->request[i].order < oldest->order))
            oldest = &run->request[i];
    return oldest;
}

static bool below(const struct oracle *o, int id, int ancestor)
{
    while (id != ORACLE_NONE && id != ancestor)
        id = o->node[id].parent;
    return id == ancestor;
}

static void submit(struct run *run)
{
    int i = (int)check_between(&run->t.rng, 0, REQUESTS - 1), r;
    struct request *q = &run->request[i];
    if (q->r.state != HTB_IDLE)
        return;
    q->id = run->t.leaf[check_between(&run->t.rng, 0, (uint64_t)run->t.leaves - 1)];
    q->order = ++run->submitted;
    q->r.class_id = (uint32_t)q->id;
    for (r = 0; r < run->t.o.resources; r++)
        q->r.tokens[r] = run->equal                         ? 700
                         : check_between(&run->t.rng, 0, 9) ? check_between(&run->t.rng, 1, 2000)
                                                            : 30000;
    CHECK_EQ(htb_submit(&run->t.h, run->t.o.now, &q->r), QOS_OK);
}

static void check_choice(struct run *run, struct request *q)
{
    int payer = oracle_payer(&run->t.o, q->id, q->r.tokens), i;
    CHECK(payer != ORACLE_NONE);
    if (payer != q->id) {
        for (i = 0; i < run->t.leaves; i++) {
            struct request *other = head(run, run->t.leaf[i]);
            CHECK(!other || oracle_payer(&run->t.o, other->id, other->r.tokens) != other->id);
        }
        run->served_borrowed++;
    } else {
        run->served_own++;
    }
    if (payer != ORACLE_NONE)
        oracle_charge(&run->t.o, q->id, payer, q->r.tokens);
}

static void check_idle(struct run *run)
{
    int i, k, r;
    for (i = 0; i < run->t.leaves; i++) {
        struct request *q = head(run, run->t.leaf[i]);
        int payer = q ? oracle_payer(&run->t.o, q->id, q->r.tokens) : ORACLE_NONE;
        bool larger_first = false;
        if (payer == ORACLE_NONE)
            continue;
        CHECK(!run->equal && payer != q->id);
        for (k = 0; k < run->t.leaves; k++) { /* is a larger request due first at that lender or below it? */
            struct request *other = head(run, run->t.leaf[k]);
            if (!other || other == q || !below(&run->t.o, other->id, payer))
                continue;
            for (r = 0; r < run->t.o.resources; r++)
                larger_first = larger_first || other->r.tokens[r] > q->r.tokens[r];
        }
        CHECK(larger_first);
    }
}

/* The first time at which the oracle lets any class send. */
static uint64_t oracle_wake(struct run *run)
{
    uint64_t first = UINT64_MAX;
    int i;
    for (i = 0; i < run->t.leaves; i++) {
        struct request *q = head(run, run->t.leaf[i]);
        uint64_t at = q ? oracle_next(&run->t.o, q->id, q->r.tokens, UINT64_C(100000000000)) : UINT64_MAX;
        if (at < first)
            first = at;
    }
    return first;
}

static void dispatch_all(struct run *run)
{
    struct htb_request *r;
    struct request *expect[ORACLE_NODES];
    int i;
    for (;;) {
        for (i = 0; i < run->t.leaves; i++)
            expect[run->t.leaf[i]] = head(run, run->t.leaf[i]);
        r = htb_dispatch(&run->t.h, run->t.o.now);
        if (!r)
            break;
        CHECK(expect[((struct request *)(void *)r)->id] == (struct request *)(void *)r); /* in order within a class */
        r->state = HTB_QUEUED; /* the oracle, before this choice */
        check_choice(run, (struct request *)(void *)r);
        r->state = HTB_AT_DEVICE;
        CHECK_EQ(htb_complete(&run->t.h, 0, HTB_DONE, NULL, r), QOS_OK);
        run->dispatched++;
    }
    check_idle(run);
}

static void one_run(struct run *run, uint64_t stream, uint64_t steps)
{
    uint64_t k, next, expect, before, now = 5000000000;
    bool woken = false;
    memset(run, 0, sizeof *run);
    run->equal = stream % 2 == 0;
    twin_init(&run->t, stream, stream % 5 == 4 ? 2 : 1, now, one_at_a_time);
    for (k = 0; k < steps; k++) {
        uint64_t burst = check_between(&run->t.rng, 0, 3) ? check_between(&run->t.rng, 0, 2) : 20;
        CHECK_CONTEXT("run %" PRIu64 ", step %" PRIu64, stream, k);
        for (; burst > 0; burst--)
            submit(run);
        before = run->dispatched;
        dispatch_all(run);
        run->early += woken && run->dispatched == before;
        next = htb_dispatch_next_ns(&run->t.h, run->t.o.now);
        CHECK(next > run->t.o.now);
        expect = oracle_wake(run);
        if (run->equal)
            CHECK_EQ(next, expect);
        else if (expect != UINT64_MAX)
            CHECK(next != QOS_NEVER);
        if (next == QOS_NEVER || check_between(&run->t.rng, 0, 2) == 0)
            now += check_between(&run->t.rng, 0, 3000000);
        else
            now = next;
        if (now > run->t.o.now && next > now) /* never late: nothing could go before */
            CHECK(htb_dispatch(&run->t.h, now) == NULL);
        oracle_advance(&run->t.o, now);
        woken = now == next;
    }
    CHECK(check_mem_free(&run->t.m));
}

int main(void)
{
    static struct run run;
    uint64_t i, runs, own = 0, borrowed = 0, early = 0;
    check_begin("property/htb_queues");
    runs = check_scaled(80);
    for (i = 0; i < runs; i++) {
        one_run(&run, i, 300);
        own += run.served_own;
        borrowed += run.served_borrowed;
        early += run.early;
        CHECK_LE(run.early, run.equal ? 0 : run.dispatched); /* at most one early wake-up per request */
    }
    printf("dispatched %" PRIu64 " on own tokens, %" PRIu64 " borrowed; woken early %" PRIu64 " times\n", own, borrowed,
           early);
    CHECK(own > runs * 10 && borrowed > runs * 10);
    return check_end();
}
