// proves: tags.h chooses, step by step, whom a literal O(n) transcription of Algorithm 2 (with the corrections of
// tags.h, WHERE WE DIFFER) chooses, in both modes, with one request in the device, and names the same next event; with
// the mean of the very last N requests (exact_window), and with that of N requests as of the last block of N / 5
// variants: native san aarch64 s390x riscv64
#include "check.h"
#include <stdlib.h>
#include "tags.h"

/* The transcription. sTags are real times in units of 2^-72 ns; rTag and lTag are `base + count * 10^9 / rate` ns. */
__extension__ typedef __int128 wide;

#define FRACTION 72
#define MOST 24

struct task {
    wide stag;
    uint64_t weight, R, L, rbase, rcount, lbase, lcount;
    uint64_t *total; /* [i]: of the first i service times */
    uint64_t requests;
    unsigned streak;
    bool entitled, active, waiting;
    unsigned queue;
};

static struct {
    struct task task[MOST];
    unsigned n, N, K;
    bool reward, exact;
    uint64_t burst_ns, lag_ns;
    wide V;     /* where the smallest sTag stands from a fixed origin, in which tags are compared */
    wide moved; /* V - t of the last AdjustTags */
    int serving;
    bool by_reservation;
    uint64_t cost;
} o;

static wide ceil_div(wide a, wide b)
{
    return (a + b - 1) / b;
}

static uint64_t tag_at(uint64_t base, uint64_t count, uint64_t rate)
{
    return base + (uint64_t)ceil_div((wide)count * 1000000000, (wide)rate);
}

static void at_least(uint64_t *base, uint64_t *count, uint64_t rate, uint64_t t)
{
    if (rate == 0 || (wide)*base * (wide)rate + (wide)*count * 1000000000 < (wide)t * (wide)rate) {
        *base = t;
        *count = 0;
    }
}

static void stag_at_least(struct task *j, uint64_t t)
{
    if (j->stag < (wide)t << FRACTION)
        j->stag = (wide)t << FRACTION;
}

static void adjust_tags(uint64_t t)
{
    unsigned j;
    bool some = false;
    wide least = 0, delta;
    for (j = 0; j < o.n; j++)
        if (o.task[j].active && !o.task[j].waiting && (!some || o.task[j].stag < least)) {
            some = true;
            least = o.task[j].stag;
        }
    if (some) { /* to 2^-40 ns from the fixed origin, as tags are compared */
        least = ((least + o.moved) >> 32 << 32) - o.moved;
        delta = least - ((wide)t << FRACTION);
        for (j = 0; j < o.n; j++)
            if (o.task[j].active && !o.task[j].waiting)
                o.task[j].stag -= delta;
        o.V = least + o.moved;
    }
    o.moved = o.V - ((wide)t << FRACTION);
}

/* Off the block: the tag stays where it is, to 2^-64 ns. */
static void leave_block(struct task *j)
{
    j->stag -= j->stag & 0xff;
}

static void arrival(unsigned id, uint64_t t, unsigned count)
{
    struct task *j = &o.task[id];
    if (j->queue == 0 && o.serving != (int)id) {
        adjust_tags(t);
        stag_at_least(j, t);
        at_least(&j->rbase, &j->rcount, j->R, t);
        at_least(&j->lbase, &j->lcount, j->L, t);
        j->active = true;
    }
    j->queue += count;
}

static void withdrawal(unsigned id, uint64_t t, unsigned count)
{
    struct task *j = &o.task[id];
    j->queue -= count;
    if (j->queue > 0)
        return;
    if (o.serving == (int)id) {
        if (j->waiting) { /* on the block again */
            adjust_tags(t);
            j->waiting = false;
            stag_at_least(j, t);
        }
        return;
    }
    adjust_tags(t);
    if (!j->waiting)
        leave_block(j);
    j->active = j->waiting = false;
}

static void step_aside(uint64_t t, int id)
{
    adjust_tags(t);
    o.task[id].waiting = true;
    leave_block(&o.task[id]);
}

/* -1: nobody. *next: when somebody can be. */
static int schedule(uint64_t t, bool *by_reservation, uint64_t *next)
{
    unsigned j;
    int best = -1;
    uint64_t least = UINT64_MAX, tag;
    bool adjusted = false;
    for (j = 0; j < o.n; j++) {
        struct task *c = &o.task[j];
        if (c->waiting && tag_at(c->lbase, c->lcount, c->L) <= t) {
            if (!adjusted)
                adjust_tags(t);
            adjusted = true;
        }
    }
    for (j = 0; j < o.n; j++) {
        struct task *c = &o.task[j];
        if (c->waiting && tag_at(c->lbase, c->lcount, c->L) <= t) {
            c->waiting = false;
            stag_at_least(c, t);
        }
    }
    for (;;) {
        for (j = 0; j < o.n; j++) {
            struct task *c = &o.task[j];
            if (c->queue == 0 || c->R == 0 || c->waiting)
                continue;
            tag = tag_at(c->rbase, c->rcount, c->R);
            if (tag <= t && tag < least) {
                least = tag;
                best = (int)j;
            }
        }
        if (best < 0 || o.task[best].L == 0 || tag_at(o.task[best].lbase, o.task[best].lcount, o.task[best].L) <= t)
            break;
        step_aside(t, best); /* "should not be serviced till lTag falls behind the current time" */
        least = UINT64_MAX;
        best = -1;
    }
    *by_reservation = best >= 0;
    while (best < 0) {
        for (j = 0; j < o.n; j++) {
            struct task *c = &o.task[j];
            if (c->queue == 0 || c->waiting)
                continue;
            /* Compared to 2^-40 ns from the fixed origin; equal ones by id. */
            if (best < 0 || (c->stag + o.moved) >> 32 < (o.task[best].stag + o.moved) >> 32)
                best = (int)j;
        }
        if (best < 0)
            break;
        if (o.task[best].L == 0 || tag_at(o.task[best].lbase, o.task[best].lcount, o.task[best].L) <= t)
            break;
        step_aside(t, best);
        best = -1;
    }
    *next = UINT64_MAX;
    for (j = 0; j < o.n; j++) {
        struct task *c = &o.task[j];
        if (c->waiting) {
            tag = tag_at(c->lbase, c->lcount, c->L);
            *next = tag < *next ? tag : *next;
        } else if (c->queue && c->R) {
            tag = tag_at(c->rbase, c->rcount, c->R);
            *next = tag < *next ? tag : *next;
        }
    }
    return best;
}

static void dispatch(int id, uint64_t t, bool by_reservation, uint64_t cost)
{
    struct task *j = &o.task[id];
    adjust_tags(t);
    at_least(&j->lbase, &j->lcount, j->L, t > o.burst_ns ? t - o.burst_ns : 0);
    if (by_reservation)
        at_least(&j->rbase, &j->rcount, j->R, t > o.lag_ns ? t - o.lag_ns : 0);
    if (j->waiting) {
        stag_at_least(j, t);
        if (j->queue == 1)
            j->waiting = false;
    }
    o.serving = id;
    o.by_reservation = by_reservation;
    o.cost = cost;
}

/* The average of the last N requests as sum / count. Exact: literally. Else, once there are N, rounded up to a multiple
 * of 5: of the N up to the last whole block of N / 5; a block counts in whole ns, and its remainder in the next one. */
static void window(const struct task *j, wide *sum, wide *count)
{
    uint64_t n = o.N, block = 1, last = j->requests;
    if (!o.exact && n > 5) {
        block = (n + 4) / 5;
        n = block * 5;
    }
    *sum = j->total[last];
    *count = last;
    if (last >= n && o.exact) {
        *sum -= j->total[last - n];
        *count = n;
    } else if (last >= n) {
        last -= last % block;
        *sum = j->total[last] / block - j->total[last - n] / block;
        *count = n / block;
    }
}

static wide average_per_weight(const struct task *j)
{
    wide sum, count;
    window(j, &sum, &count);
    return (sum << 8) / count * (((wide)1 << FRACTION) / (wide)j->weight) >> 8;
}

static void completion(uint64_t t, uint64_t service)
{
    struct task *j = &o.task[o.serving];
    wide sum_w = 0, sum, count;
    unsigned i;
    bool entitled;
    for (i = 0; i < o.n; i++)
        if (o.task[i].active)
            sum_w += (wide)o.task[i].weight;
    j->total[j->requests + 1] = j->total[j->requests] + service;
    j->requests++;
    j->queue--;
    if (o.by_reservation)
        j->rcount++;
    j->lcount++;
    j->stag += o.reward ? average_per_weight(j) : (wide)o.cost * (((wide)1 << FRACTION) / (wide)j->weight);
    if (!j->waiting)
        adjust_tags(t);
    if (o.reward && j->R != 0) {
        window(j, &sum, &count);
        entitled = sum * sum_w * (wide)j->R < (wide)j->weight * count * 1000000000;
        j->streak = entitled == j->entitled ? 0 : j->streak + 1;
        if (j->streak == o.K) {
            j->streak = 0;
            j->entitled = entitled;
            if (entitled && !j->waiting) {
                uint64_t rtag = tag_at(j->rbase, j->rcount, j->R);
                wide target = (wide)t << FRACTION;
                if (rtag > t)
                    target += ((wide)(rtag - t) << FRACTION) / sum_w;
                if (target < j->stag)
                    j->stag = target;
            }
        }
    }
    o.serving = -1;
    if (j->queue == 0) {
        adjust_tags(t);
        leave_block(j);
        j->active = j->waiting = false;
    }
}

/* ---- the run: the oracle and tags.h side by side */

static uint64_t pick_weight(struct check_rng *rng, unsigned kind)
{
    switch (kind) {
    case 0: return check_between(rng, 1, 7);
    case 1: return UINT64_C(1) << check_between(rng, 0, 40);
    case 2: return check_between(rng, 1, UINT64_C(1) << 40);
    default: return check_between(rng, (UINT64_C(1) << 40) - 3, UINT64_C(1) << 40);
    }
}

static uint64_t steps_done, waits, reservations, synchronised;

static void one_run(uint64_t stream, uint64_t steps)
{
    struct check_rng rng;
    struct tags_config config;
    struct tags t;
    struct check_mem mem;
    struct tags_grant grant = {0};
    uint64_t now, limits, mean_ns, step, *totals;
    unsigned j, weights;
    check_rng_init(&rng, stream);
    memset(&config, 0, sizeof config);
    memset(&o, 0, sizeof o);
    o.n = (unsigned)check_between(&rng, 1, check_between(&rng, 1, MOST));
    o.N = (unsigned)check_between(&rng, 1, 64);
    totals = malloc(o.n * (steps + 1) * sizeof *totals);
    if (!totals)
        abort();
    o.K = (unsigned)check_between(&rng, 1, 12);
    o.reward = check_between(&rng, 0, 2) != 0;
    o.burst_ns = check_between(&rng, 0, 3) ? check_between(&rng, 1, 1000000000) : UINT64_C(1) << 62;
    o.lag_ns = check_between(&rng, 0, 3) ? UINT64_C(600000000000) : check_between(&rng, 1, 1000000000);
    o.serving = -1;
    config.clients = o.n;
    config.mode = o.reward ? TAGS_REWARD : TAGS_PS;
    o.exact = check_between(&rng, 0, 1);
    config.window = o.N;
    config.exact_window = o.exact;
    config.phase_requests = o.K;
    config.limit_burst_ns = o.burst_ns;
    config.reserve_lag_ns = o.lag_ns;
    check_mem_new(&mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&t, mem.mem, mem.size, &config), QOS_OK);
    now = check_between(&rng, 0, 1) ? 0 : check_between(&rng, 1, UINT64_C(1) << 50);
    mean_ns = check_between(&rng, 0, 1) ? 5000000 : check_between(&rng, 10, 100000);
    weights = (unsigned)check_between(&rng, 0, 3);
    limits = check_between(&rng, 0, 2);
    for (j = 0; j < o.n; j++) {
        struct task *c = &o.task[j];
        struct tags_client terms;
        uint64_t fair = 1000000000 / mean_ns / o.n + 1; /* requests per second of an equal share */
        c->weight = pick_weight(&rng, weights);
        c->total = totals + j * (steps + 1);
        c->total[0] = 0;
        c->entitled = true;
        if (check_between(&rng, 0, 2) == 0)
            c->R = check_between(&rng, 1, 2 * fair);
        if (limits && check_between(&rng, 0, 2) == 0)
            c->L = c->R + check_between(&rng, 1, limits == 1 ? 2 * fair : fair / 4 + 1);
        if (check_between(&rng, 0, 9) == 0)
            c->R = c->L = c->R ? check_between(&rng, UINT64_C(1) << 30, UINT64_C(1) << 40) : 0;
        terms.weight = c->weight;
        terms.reservation_per_s = c->R;
        terms.limit_per_s = c->L;
        CHECK_EQ(tags_add(&t, now, j, &terms), QOS_OK);
    }
    for (step = 0; step < steps; step++) {
        struct tags_choice choice;
        bool by_reservation;
        uint64_t next, service, until, cost;
        int who;
        unsigned arrivals = (unsigned)check_between(&rng, 0, 3);
        CHECK_CONTEXT("run %" PRIu64 " step %" PRIu64, stream, step);
        for (; arrivals > 0; arrivals--) {
            unsigned id = (unsigned)check_between(&rng, 0, o.n - 1), count = (unsigned)check_between(&rng, 1, 3);
            if (o.task[id].queue > 20)
                continue;
            arrival(id, now, count);
            CHECK_EQ(tags_arrive(&t, now, id, count), QOS_OK);
        }
        who = schedule(now, &by_reservation, &next);
        if (who < 0) {
            CHECK_EQ(tags_choose(&t, now, &choice), QOS_EAGAIN);
            CHECK_EQ(tags_next_ns(&t, now), next);
            now = check_between(&rng, 0, 1) && next != UINT64_MAX ? next : now + check_between(&rng, 1, 2 * mean_ns);
            waits++;
            continue;
        }
        CHECK_EQ(tags_next_ns(&t, now), now);
        CHECK_EQ(tags_choose(&t, now, &choice), QOS_OK);
        CHECK_EQ(choice.client, who);
        CHECK_EQ(choice.phase, by_reservation ? TAGS_PHASE_RESERVATION : TAGS_PHASE_WEIGHT);
        if (check_state.failures)
            exit(check_end());
        cost = check_between(&rng, 0, 1) ? 1 : check_between(&rng, 1, 1000000);
        dispatch(who, now, by_reservation, cost);
        CHECK_EQ(tags_dispatch(&t, now, &choice, cost, 0, 0, &grant), QOS_OK);
        reservations += by_reservation;
        /* Fast and slow phases, so that the mean crosses the threshold. */
        service = check_between(&rng, 1, 2 * mean_ns);
        if ((step / 3000 + (unsigned)who) % 2)
            service = service / 8 + 1;
        until = now + service;
        while (check_between(&rng, 0, 2) == 0) { /* meanwhile */
            unsigned id = (unsigned)check_between(&rng, 0, o.n - 1);
            now += check_between(&rng, 0, until - now);
            /* The oracle counts the request in service as queued. */
            if (o.task[id].queue <= 20) {
                arrival(id, now, 1);
                CHECK_EQ(tags_arrive(&t, now, id, 1), QOS_OK);
            }
        }
        if (check_between(&rng, 0, 5) == 0) {
            unsigned id = (unsigned)check_between(&rng, 0, o.n - 1);
            if (o.serving != (int)id && o.task[id].queue > 0) {
                unsigned count = (unsigned)check_between(&rng, 1, o.task[id].queue);
                withdrawal(id, now, count);
                CHECK_EQ(tags_withdraw(&t, now, id, count), QOS_OK);
            }
        }
        now = until;
        completion(now, service);
        CHECK_EQ(tags_complete(&t, now, &grant, service), QOS_OK);
    }
    steps_done += steps;
    synchronised += t.counters.synchronised;
    free(totals);
    CHECK(check_mem_free(&mem));
}

int main(void)
{
    uint64_t run;
    check_begin("property/tags_oracle");
    for (run = 0; run < 200; run++)
        one_run(run, check_scaled(20000));
    printf("%" PRIu64 " steps, %" PRIu64 " by reservation, %" PRIu64 " synchronised, nobody could be served in %" PRIu64
           "\n",
           steps_done, reservations, synchronised, waits);
    CHECK_GE(reservations, steps_done / 20);
    CHECK_GE(waits, steps_done / 5000);
    CHECK_GE(synchronised, 1);
    return check_end();
}
