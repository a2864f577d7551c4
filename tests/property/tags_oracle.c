// proves: tags.h chooses, step by step, the client that a literal O(n) transcription of its algorithm chooses, and has
// proves: the same next event. With both modes, 1 to 16 requests at the device that end in any order, weights of 1 to
// proves: 2^40, limits (waiting and allowed), reservations that fit or not, cancelled requests, new weights, removal
// proves: and return, and an axis that is rebased
// variants: native san aarch64
// flags: -DTAGS_AXIS_BITS=24
#include "check.h"
#include <stdlib.h>
#include "tags.h"

/* The transcription. Share tags are work per weight with 62 fraction bits; rTag and lTag are base + count / rate. */
__extension__ typedef __int128 wide;

#define FRACTION 62
#define MOST 24
#define DEPTH 16

struct task {
    wide stag;
    uint64_t weight, R, L;
    int64_t rbase, rcount, lbase, lcount;
    uint64_t *total; /* [i]: sum of the first i service times */
    uint64_t requests;
    bool present, waiting;
    unsigned queue, device;
};

struct flight {
    unsigned id;
    uint64_t amount; /* reward: 1/256 ns */
    int64_t credit;  /* what it added to the credit of the weight phase */
    bool by_reservation, limited;
    struct tags_grant grant;
};

static struct {
    struct task task[MOST];
    struct flight flight[DEPTH];
    unsigned n, N, lead, flights, permille;
    bool reward, allow;
    int64_t burst_ns, lag_ns, behind_ns, credit;
    uint64_t floor_ns;
    wide V;
} o;

static wide floor_div(wide a, wide b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Whole ns, rounded down; and the first whole ns at which the tag is due. */
static int64_t tag_floor(int64_t base, int64_t count, uint64_t rate)
{
    return base + (int64_t)floor_div((wide)count * 1000000000, (wide)rate);
}

static int64_t tag_key(int64_t base, int64_t count, uint64_t rate)
{
    return base + (int64_t)-floor_div(-(wide)count * 1000000000, (wide)rate);
}

static void at_least(int64_t *base, int64_t *count, uint64_t rate, int64_t t)
{
    if (t < 0)
        t = 0;
    if (rate == 0 || tag_floor(*base, *count, rate) < t) {
        *base = t;
        *count = 0;
    }
}

static void give_back(int64_t *base, int64_t *count, uint64_t rate, int64_t least)
{
    if (least < 0)
        least = 0;
    if (tag_floor(*base, *count, rate) < least)
        return;
    --*count;
    if (tag_floor(*base, *count, rate) < least) {
        *base = least;
        *count = 0;
    }
}

static int64_t lkey(const struct task *c)
{
    return tag_key(c->lbase, c->lcount, c->L);
}

static int64_t rkey(const struct task *c)
{
    return tag_key(c->rbase, c->rcount, c->R);
}

static bool contends(const struct task *c)
{
    return c->queue > 0 && !c->waiting;
}

static int64_t reserve_floor(int64_t now, int64_t keep)
{
    int64_t least = INT64_MAX, clock = now - o.behind_ns;
    unsigned j;
    for (j = 0; j < o.n; j++)
        if (contends(&o.task[j]) && o.task[j].R && rkey(&o.task[j]) < least)
            least = rkey(&o.task[j]);
    if (keep > o.lag_ns)
        keep = o.lag_ns;
    clock = clock > keep ? clock - keep : 0;
    return clock < least ? clock : least;
}

static void back_on_axis(struct task *c)
{
    if (c->stag < o.V)
        c->stag = o.V;
}

static void arrival(unsigned id, int64_t now, unsigned count)
{
    struct task *c = &o.task[id];
    if (c->queue == 0) {
        int64_t least = reserve_floor(now, c->device ? o.burst_ns : 0);
        at_least(&c->rbase, &c->rcount, c->R, least);
        if (c->device == 0)
            at_least(&c->lbase, &c->lcount, c->L, now);
        back_on_axis(c);
    }
    c->queue += count;
}

/* The next client in order of share tags: those below their limit first (waiting: those at it). -1: none. */
static int by_share(bool waiting)
{
    int best = -1;
    unsigned j;
    for (j = 0; j < o.n; j++) {
        const struct task *c = &o.task[j];
        if (c->queue && c->waiting == waiting && (best < 0 || c->stag >> 22 < o.task[best].stag >> 22))
            best = (int)j;
    }
    return best;
}

static int by_reservation(int64_t now)
{
    for (;;) {
        int best = -1;
        unsigned j;
        for (j = 0; j < o.n; j++) {
            const struct task *c = &o.task[j];
            if (contends(c) && c->R && rkey(c) <= now - o.behind_ns && (best < 0 || rkey(c) < rkey(&o.task[best])))
                best = (int)j;
        }
        if (best < 0)
            return -1;
        if (o.task[best].L == 0 || lkey(&o.task[best]) <= now) {
            int64_t late = now - o.behind_ns - rkey(&o.task[best]);
            if (late > o.lag_ns)
                o.behind_ns += late - o.lag_ns;
            return best;
        }
        o.task[best].waiting = true;
    }
}

static int by_weight(int64_t now)
{
    for (;;) {
        int best = by_share(false);
        if (best < 0 || o.task[best].L == 0 || lkey(&o.task[best]) <= now)
            return best;
        o.task[best].waiting = true;
    }
}

static int schedule(int64_t now, enum tags_phase *phase)
{
    int best;
    for (;;) { /* clients whose limit tags are due, in the order of these tags */
        unsigned j;
        best = -1;
        for (j = 0; j < o.n; j++)
            if (o.task[j].waiting && lkey(&o.task[j]) <= now && (best < 0 || lkey(&o.task[j]) < lkey(&o.task[best])))
                best = (int)j;
        if (best < 0)
            break;
        if (!o.allow)
            back_on_axis(&o.task[best]);
        at_least(&o.task[best].rbase, &o.task[best].rcount, o.task[best].R, reserve_floor(now, o.burst_ns));
        o.task[best].waiting = false;
    }
    *phase = TAGS_PHASE_WEIGHT;
    if (o.credit > 0 && (best = by_weight(now)) >= 0)
        return best;
    *phase = TAGS_PHASE_RESERVATION;
    best = by_reservation(now);
    if (best >= 0)
        return best;
    *phase = TAGS_PHASE_WEIGHT;
    best = by_weight(now);
    if (best >= 0)
        return best;
    *phase = TAGS_PHASE_ABOVE_LIMIT;
    return o.allow ? by_share(true) : -1;
}

/* The average of the last N requests in 1/256 ns; N is rounded up to a multiple of 5. After the first N requests it is
 * that of the N up to the last whole block of N / 5. A block counts in whole ns, its remainder in the next one. */
static uint64_t mean_of(const struct task *c)
{
    uint64_t n = o.N, block = 1, last = c->requests, sum = c->total[last], count = last;
    if (n > 5) {
        block = (n + 4) / 5;
        n = block * 5;
    }
    if (last >= n) {
        last -= last % block;
        sum = c->total[last] / block - c->total[last - n] / block;
        count = n / block;
    }
    return count ? (sum << 8) / count : (uint64_t)TAGS_DEFAULT_SERVICE_NS << 8;
}

static uint64_t last_mean;

static uint64_t estimate(const struct task *c)
{
    return c->requests ? mean_of(c) : last_mean;
}

static wide per_weight(const struct task *c, uint64_t amount)
{
    wide p = (wide)amount * (wide)((UINT64_C(1) << FRACTION) / c->weight);
    return o.reward ? p >> 8 : p;
}

static void refund(struct task *c, wide minus)
{
    wide least = c->stag < o.V ? c->stag : o.V;
    c->stag = c->stag - least < minus ? least : c->stag - minus;
}

static void move_back(void)
{
    unsigned j;
    if (o.V >> 64 < (wide)1 << TAGS_AXIS_BITS)
        return;
    for (j = 0; j < o.n; j++)
        o.task[j].stag = o.task[j].stag > o.V ? o.task[j].stag - o.V : 0;
    o.V = 0;
}

static uint64_t uncharged, moved_back;

static struct flight *dispatch(unsigned id, int64_t now, enum tags_phase phase, uint64_t cost)
{
    struct task *c = &o.task[id];
    struct flight *f = &o.flight[o.flights++];
    int first = by_share(false);
    wide charge, before = o.V;
    uint64_t work;
    f->id = id;
    f->by_reservation = phase == TAGS_PHASE_RESERVATION;
    f->limited = c->L && phase != TAGS_PHASE_ABOVE_LIMIT;
    if (f->by_reservation) {
        at_least(&c->rbase, &c->rcount, c->R, now - o.behind_ns - o.lag_ns);
        c->rcount++;
    }
    if (f->limited) {
        at_least(&c->lbase, &c->lcount, c->L, now - o.burst_ns);
        c->lcount++;
    }
    if (first < 0)
        first = by_share(true);
    if (o.V < o.task[first].stag >> 22 << 22 && (first == (int)id || o.allow || !o.task[first].waiting))
        o.V = o.task[first].stag >> 22 << 22;
    move_back();
    moved_back += o.V < before;
    f->amount = work = o.reward ? estimate(c) : cost;
    charge = per_weight(c, f->amount);
    if (f->by_reservation && c->stag + charge - o.V > charge * o.lead) {
        f->amount = 0;
        uncharged++;
    } else {
        c->stag += charge;
    }
    f->credit = 0;
    if (o.permille)
        f->credit = f->by_reservation ? (int64_t)(o.permille * work)
                    : o.credit > 0    ? -(int64_t)((1000 - o.permille) * work)
                                      : 0;
    o.credit += f->credit;
    c->device++;
    c->queue--;
    if (c->queue == 0)
        c->waiting = false;
    return f;
}

static void completion(struct flight *f, uint64_t service)
{
    struct task *c = &o.task[f->id];
    c->device--;
    if (o.reward) {
        bool charged = f->amount != 0;
        if (service < o.floor_ns)
            service = o.floor_ns;
        c->total[c->requests + 1] = c->total[c->requests] + service;
        c->requests++;
        last_mean = mean_of(c);
        if (charged && last_mean != f->amount) {
            c->stag += per_weight(c, last_mean);
            refund(c, per_weight(c, f->amount));
        }
    }
    *f = o.flight[--o.flights];
}

static void cancellation(struct flight *f, int64_t now)
{
    struct task *c = &o.task[f->id];
    c->device--;
    if (f->by_reservation && c->present)
        give_back(&c->rbase, &c->rcount, c->R, reserve_floor(now, o.burst_ns));
    if (f->limited)
        give_back(&c->lbase, &c->lcount, c->L, now - o.burst_ns);
    refund(c, per_weight(c, f->amount));
    o.credit -= f->credit;
    *f = o.flight[--o.flights];
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

static struct {
    struct tags t;
    uint64_t now, mean_ns, cost_max;
    unsigned depth, weights;
} run;
static uint64_t steps_done, waits, phases[3], cancelled, changed, returned;

static void terms_of(unsigned id, struct tags_client *terms)
{
    terms->weight = o.task[id].weight;
    terms->reservation_per_s = o.task[id].R;
    terms->limit_per_s = o.task[id].L;
}

/* Another weight, or removal and return. */
static void change(struct check_rng *rng, unsigned id)
{
    struct task *c = &o.task[id];
    struct tags_client terms;
    uint64_t old = c->weight;
    uint32_t dropped = 0;
    bool came_back = false;
    if (check_between(rng, 0, 1)) {
        if (!c->present)
            return;
        CHECK_EQ(tags_remove(&run.t, run.now, id, &dropped), QOS_OK);
        CHECK_EQ(dropped, c->queue);
        c->queue = 0;
        c->present = c->waiting = false;
        return;
    }
    c->weight = pick_weight(rng, run.weights);
    terms_of(id, &terms);
    if (c->present) {
        CHECK_EQ(tags_change(&run.t, run.now, id, &terms), QOS_OK);
        if (c->queue && !o.allow)
            back_on_axis(c);
        c->waiting = false;
        changed++;
    } else {
        CHECK_EQ(tags_add(&run.t, run.now, id, &terms), QOS_OK);
        returned++;
        came_back = true;
    }
    c->present = true;
    if (came_back) {
        at_least(&c->rbase, &c->rcount, c->R, reserve_floor((int64_t)run.now, 0));
        at_least(&c->lbase, &c->lcount, c->L, (int64_t)run.now);
    }
    at_least(&c->rbase, &c->rcount, c->R, (int64_t)run.now - o.behind_ns - o.lag_ns);
    if (c->stag > o.V && old != c->weight) { /* the lead, times old / new, with 62 fraction bits */
        wide lead = c->stag - o.V, whole = lead / (wide)c->weight, rest = lead % (wide)c->weight;
        wide most = (wide)1 << 61 << 64;
        if (whole > most / (wide)old)
            c->stag = o.V + most;
        else
            c->stag = o.V + whole * (wide)old + rest * (wide)old / (wide)c->weight;
        if (c->stag > o.V + most)
            c->stag = o.V + most;
    }
}

static void open_run(struct check_rng *rng, struct check_mem *mem)
{
    struct tags_config config;
    unsigned j;
    uint64_t limits = check_between(rng, 0, 2);
    memset(&config, 0, sizeof config);
    o.n = (unsigned)check_between(rng, 1, check_between(rng, 1, MOST));
    o.N = (unsigned)check_between(rng, 1, 64);
    o.lead = (unsigned)check_between(rng, 1, check_between(rng, 1, 20));
    o.reward = check_between(rng, 0, 2) != 0;
    o.allow = check_between(rng, 0, 2) == 0;
    o.permille = check_between(rng, 0, 2) ? 0 : (unsigned)check_between(rng, 1, 999);
    o.burst_ns = (int64_t)check_between(rng, 1, 1000000000);
    o.lag_ns = (int64_t)check_between(rng, 1, 1000000000);
    o.floor_ns = check_between(rng, 1, 2000);
    run.depth = check_between(rng, 0, 1) ? 1 : (unsigned)check_between(rng, 1, DEPTH);
    run.cost_max = check_between(rng, 0, 1) ? 1 : check_between(rng, 1, 1000000);
    run.now = check_between(rng, 0, 1) ? 1000 : check_between(rng, 1000, UINT64_C(1) << 50);
    run.mean_ns = check_between(rng, 0, 1) ? 5000000 : check_between(rng, 10, 100000);
    run.weights = (unsigned)check_between(rng, 0, 3);
    last_mean = (uint64_t)TAGS_DEFAULT_SERVICE_NS << 8;
    config.clients = o.n;
    config.mode = o.reward ? TAGS_REWARD : TAGS_PS;
    config.at_limit = o.allow ? TAGS_ALLOW : TAGS_WAIT;
    config.window = o.N;
    config.lead_requests = o.lead;
    config.weight_share_permille = o.permille;
    config.limit_burst_ns = (uint64_t)o.burst_ns;
    config.reserve_lag_ns = (uint64_t)o.lag_ns;
    config.service_floor_ns = o.floor_ns;
    config.cost_max = run.cost_max;
    config.at_device_max = run.depth;
    check_mem_new(mem, tags_memsize(&config), 64, 0);
    CHECK_EQ(tags_init(&run.t, mem->mem, mem->size, &config), QOS_OK);
    for (j = 0; j < o.n; j++) {
        struct task *c = &o.task[j];
        struct tags_client terms;
        uint64_t fair = 1000000000 / run.mean_ns / o.n + 1; /* requests per second at an equal share */
        c->weight = pick_weight(rng, run.weights);
        c->present = true;
        if (check_between(rng, 0, 2) == 0)
            c->R = check_between(rng, 1, 2 * fair);
        if (limits && check_between(rng, 0, 2) == 0)
            c->L = c->R + check_between(rng, 1, limits == 1 ? 2 * fair : fair / 4 + 1);
        if (check_between(rng, 0, 9) == 0)
            c->R = c->L = c->R ? check_between(rng, UINT64_C(1) << 30, UINT64_C(1) << 40) : 0;
        terms_of(j, &terms);
        CHECK_EQ(tags_add(&run.t, run.now, j, &terms), QOS_OK);
        c->rbase = (int64_t)run.now; /* a new rate starts now */
        c->lbase = (int64_t)run.now;
    }
}

static void give_one_back(struct check_rng *rng)
{
    struct flight *f = &o.flight[check_between(rng, 0, o.flights - 1)];
    uint64_t service = check_between(rng, 1, 2 * run.mean_ns);
    struct tags_grant grant = f->grant;
    if ((steps_done / 3000 + f->id) % 2) /* fast and slow phases */
        service = service / 8 + 1;
    if (check_between(rng, 0, 19) == 0 && (o.task[f->id].present || !f->by_reservation)) {
        cancellation(f, (int64_t)run.now);
        CHECK_EQ(tags_cancel(&run.t, run.now, &grant), QOS_OK);
        cancelled++;
    } else {
        completion(f, service);
        CHECK_EQ(check_between(rng, 0, 9) ? tags_complete(&run.t, run.now, &grant, service)
                                          : tags_fail(&run.t, run.now, &grant, service),
                 QOS_OK);
    }
    CHECK_EQ(tags_complete(&run.t, run.now, &grant, service), QOS_ESTALE);
}

static void nobody(struct check_rng *rng)
{
    struct tags_choice choice;
    int64_t next = INT64_MAX;
    unsigned j;
    CHECK_EQ(tags_choose(&run.t, run.now, &choice), QOS_EAGAIN);
    for (j = 0; j < o.n; j++)
        if (o.task[j].waiting && lkey(&o.task[j]) < next)
            next = lkey(&o.task[j]);
    CHECK_EQ(tags_next_ns(&run.t, run.now), next == INT64_MAX ? QOS_NEVER : (uint64_t)next);
    run.now = check_between(rng, 0, 1) && next != INT64_MAX ? (uint64_t)next
                                                            : run.now + check_between(rng, 1, 2 * run.mean_ns);
    waits++;
}

static void one_run(uint64_t stream, uint64_t steps)
{
    struct check_rng rng;
    struct check_mem mem;
    uint64_t step, *totals;
    unsigned j;
    check_rng_init(&rng, stream);
    memset(&o, 0, sizeof o);
    open_run(&rng, &mem);
    totals = malloc(o.n * (steps + DEPTH + 1) * sizeof *totals);
    if (!totals)
        abort();
    for (j = 0; j < o.n; j++) {
        o.task[j].total = totals + j * (steps + DEPTH + 1);
        o.task[j].total[0] = 0;
    }
    for (step = 0; step < steps; step++, steps_done++) {
        struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
        enum tags_phase phase;
        unsigned arrivals = (unsigned)check_between(&rng, 0, 3);
        uint64_t cost;
        int who;
        CHECK_CONTEXT("run %" PRIu64 " step %" PRIu64, stream, step);
        for (; arrivals > 0; arrivals--) {
            unsigned id = (unsigned)check_between(&rng, 0, o.n - 1), count = (unsigned)check_between(&rng, 1, 3);
            if (o.task[id].queue > 20 || !o.task[id].present)
                continue;
            arrival(id, (int64_t)run.now, count);
            CHECK_EQ(tags_arrive(&run.t, run.now, id, count, 1), QOS_OK);
        }
        if (check_between(&rng, 0, 40) == 0)
            change(&rng, (unsigned)check_between(&rng, 0, o.n - 1));
        if (check_between(&rng, 0, 20) == 0) {
            unsigned id = (unsigned)check_between(&rng, 0, o.n - 1);
            struct task *c = &o.task[id];
            if (c->queue) {
                unsigned count = (unsigned)check_between(&rng, 1, c->queue);
                CHECK_EQ(tags_withdraw(&run.t, run.now, id, count), QOS_OK);
                c->queue -= count;
                c->waiting = c->waiting && c->queue;
            }
        }
        if (o.flights && (o.flights == run.depth || check_between(&rng, 0, 2) == 0)) {
            run.now += check_between(&rng, 0, 2 * run.mean_ns);
            give_one_back(&rng);
        }
        if (o.flights == run.depth)
            continue;
        who = schedule((int64_t)run.now, &phase);
        if (who < 0) {
            nobody(&rng);
            continue;
        }
        CHECK_EQ(tags_next_ns(&run.t, run.now), run.now);
        CHECK_EQ(tags_choose(&run.t, run.now, &choice), QOS_OK);
        CHECK_EQ(choice.client, who);
        CHECK_EQ(choice.phase, phase);
        if (check_state.failures)
            exit(check_end());
        cost = check_between(&rng, 1, run.cost_max);
        {
            struct flight *f = dispatch((unsigned)who, (int64_t)run.now, phase, cost);
            CHECK_EQ(tags_dispatch(&run.t, run.now, &choice, cost, 0, 0, &f->grant), QOS_OK);
        }
        phases[phase]++;
    }
    free(totals);
    CHECK(check_mem_free(&mem));
}

int main(void)
{
    uint64_t i;
    check_begin("property/tags_oracle");
    for (i = 0; i < 200; i++)
        one_run(i, check_scaled(20000));
    printf("%" PRIu64 " steps: %" PRIu64 " by reservation (%" PRIu64 " not charged to the share), %" PRIu64
           " by weight, %" PRIu64 " above the limit; nobody in %" PRIu64 "\n%" PRIu64 " cancelled, %" PRIu64
           " weights changed, %" PRIu64 " came back; the axis was moved back %" PRIu64 " times\n",
           steps_done, phases[0], uncharged, phases[1], phases[2], waits, cancelled, changed, returned, moved_back);
    CHECK_GE(phases[0], steps_done / 20);
    CHECK_GE(phases[2], steps_done / 1000);
    CHECK_GE(waits, steps_done / 5000);
    CHECK_GE(uncharged, 100);
    CHECK_GE(cancelled, steps_done / 1000);
    CHECK_GE(returned, 100);
    CHECK_GE(moved_back, 10);
    return check_end();
}
