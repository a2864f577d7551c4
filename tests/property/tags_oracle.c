// proves: tags.h chooses, step by step, the client that a literal O(n) transcription of its algorithm chooses, and has
// proves: the same next event. With both modes, 1 to 16 requests at the device that end in any order, weights of 1 to
// proves: 2^40, limits (waiting and allowed), reservations that fit or not, cancelled requests, new weights, removal
// proves: and return, and an axis that is rebased
// variants: native san aarch64
// flags: -DTAGS_AXIS_BITS=24
#include "check.h"
#include <stdlib.h>
#include "tags.h"

/* The transcription. Share tags are work (reward: in 1/256 ns) per weight with 62 fraction bits; rTag and lTag are base +
 * count / rate. */
__extension__ typedef __int128 wide;

#define FRACTION 62
#define MOST 24
#define DEPTH 16

struct task {
    wide stag, surplus;
    uint64_t weight, R, L, rest; /* rest: of a large weight, what is below the last bit of stag */
    int64_t rbase, rcount, lbase, lcount;
    uint64_t *total; /* [i]: sum of the first i service times */
    uint64_t requests;
    bool present, waiting, due; /* due: its reservation was found due, and it is served by its deadline */
    bool borrowed;              /* its limit was last charged for something else than its reservation */
    unsigned queue, device;
};

struct flight {
    unsigned id;
    uint64_t order;
    uint64_t work;  /* reward: 1/256 ns */
    int64_t credit; /* what it added to the credit of the weight phase */
    bool by_reservation, limited, free, surplus;
    int64_t reserve_end, limit_end; /* where its charges ended */
    wide share_end;
    struct tags_grant grant;
};

static struct {
    struct task task[MOST];
    struct flight flight[DEPTH];
    unsigned n, N, lead, flights, permille;
    bool reward, allow;
    int64_t burst_ns, lag_ns, behind_ns, credit;
    uint64_t floor_ns, largest, order, fastest; /* fastest: the largest reservation */
    wide V, VS;
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

/* One request is taken back, as far as its charge is ahead of least. Returns by how many ns, rounded up. */
static int64_t give_back(int64_t *base, int64_t *count, uint64_t rate, int64_t end, int64_t least)
{
    int64_t step = tag_key(0, 1, rate), ahead;
    if (least < 0)
        least = 0;
    ahead = end > least ? end - least : 0;
    if (ahead < tag_floor(0, 1, rate)) {
        *base -= ahead;
        return ahead;
    }
    --*count;
    return step;
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

static int64_t deadline(const struct task *c)
{
    return tag_key(c->rbase, c->rcount + 1, c->R);
}

/* The first in order of start (of those that are not due yet) or of deadline (of those that are). -1: none. */
static int first_reserved(bool due)
{
    int best = -1;
    unsigned j;
    for (j = 0; j < o.n; j++) {
        const struct task *c = &o.task[j], *b = &o.task[best < 0 ? 0 : best];
        if (contends(c) && c->R && c->due == due && (best < 0 || (due ? deadline(c) < deadline(b) : rkey(c) < rkey(b))))
            best = (int)j;
    }
    return best;
}

static int64_t reserve_floor(int64_t now, const struct task *c, bool keep)
{
    int64_t least = now > o.behind_ns ? now - o.behind_ns : 0;
    int first = first_reserved(true), next = first_reserved(false);
    if (first >= 0 && deadline(&o.task[first]) < least)
        least = deadline(&o.task[first]);
    if (next >= 0 && rkey(&o.task[next]) <= least && deadline(&o.task[next]) < least)
        least = deadline(&o.task[next]);
    if (keep && c->R && c->present)
        least -= deadline(c) - rkey(c);
    return least > 0 ? least : 0;
}

static int by_share(bool waiting);

static void raise_v(void)
{
    int first = by_share(false);
    if (first >= 0 && o.V < o.task[first].stag >> 22 << 22)
        o.V = o.task[first].stag >> 22 << 22;
}

static void back_from_idle(struct task *c)
{
    raise_v();
    if (c->stag < o.V)
        c->stag = o.V;
}

static uint64_t weights(unsigned *clients)
{
    uint64_t sum = 0;
    unsigned j;
    for (*clients = j = 0; j < o.n; j++)
        if (o.task[j].queue) {
            sum += o.task[j].weight;
            ++*clients;
        }
    return sum;
}

/* The lag: one of the largest requests for each that waits, but perhaps one, over their weights. */
static wide usual_lag(const struct task *but)
{
    unsigned clients;
    uint64_t sum = weights(&clients);
    if (but) {
        sum -= but->weight;
        clients--;
    }
    return clients ? ((wide)o.largest * clients << FRACTION) / (wide)sum : 0;
}

static void back_from_limit(struct task *c)
{
    wide most = usual_lag(NULL);
    if (c->stag < o.V - most)
        c->stag = o.V - most;
}

static void arrival(unsigned id, int64_t now, unsigned count)
{
    struct task *c = &o.task[id];
    if (c->queue == 0) {
        at_least(&c->rbase, &c->rcount, c->R, reserve_floor(now, c, c->device != 0));
        if (c->device == 0)
            at_least(&c->lbase, &c->lcount, c->L, now);
        back_from_idle(c);
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
        if (c->queue && c->waiting == waiting &&
            (best < 0 ||
             (waiting ? c->surplus >> 22 < o.task[best].surplus >> 22 : c->stag >> 22 < o.task[best].stag >> 22)))
            best = (int)j;
    }
    return best;
}

static void step_aside(struct task *c)
{
    c->waiting = true;
    c->due = false;
    if (c->surplus < o.VS)
        c->surplus = o.VS;
}

static int by_reservation(int64_t now)
{
    for (;;) {
        int next = first_reserved(false), first = first_reserved(true), best;
        int64_t clock = now - o.behind_ns;
        bool begins = next >= 0 && rkey(&o.task[next]) <= clock;
        unsigned j, others = 0;
        best = begins ? next : first;
        if (best < 0)
            return -1;
        if (o.task[best].L && lkey(&o.task[best]) > now) {
            step_aside(&o.task[best]);
            continue;
        }
        for (j = 0; j < o.n; j++) { /* those that may have an earlier deadline */
            const struct task *c = &o.task[j];
            if ((int)j == best || !contends(c) || !c->R || rkey(c) > clock || o.task[best].R == o.fastest)
                continue;
            others += deadline(&o.task[best]) > rkey(c) + (int64_t)(1000000000 / o.fastest);
        }
        if (!begins || (first < 0 && others == 0))
            return best;
        o.task[best].due = true;
    }
}

static int by_weight(int64_t now)
{
    for (;;) {
        int best = by_share(false);
        if (best < 0 || o.task[best].L == 0 || lkey(&o.task[best]) <= now)
            return best;
        step_aside(&o.task[best]);
    }
}

static int schedule(int64_t now, enum tags_phase *phase)
{
    int best;
    for (;;) { /* clients whose limit tags are due, in the order of these tags */
        int64_t least;
        unsigned j;
        best = -1;
        for (j = 0; j < o.n; j++)
            if (o.task[j].waiting && lkey(&o.task[j]) <= now && (best < 0 || lkey(&o.task[j]) < lkey(&o.task[best])))
                best = (int)j;
        if (best < 0)
            break;
        o.task[best].waiting = false;
        back_from_limit(&o.task[best]);
        o.largest -= o.largest >> 12;
        o.task[best].waiting = true; /* not counted among those that are late */
        least = reserve_floor(now, &o.task[best], !o.task[best].borrowed);
        if (o.task[best].borrowed && lkey(&o.task[best]) - o.behind_ns < least)
            least = lkey(&o.task[best]) - o.behind_ns;
        at_least(&o.task[best].rbase, &o.task[best].rcount, o.task[best].R, least > 0 ? least : 0);
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
    const uint64_t first = (uint64_t)TAGS_DEFAULT_SERVICE_NS << 8;
    return c->requests ? mean_of(c) : last_mean < first ? last_mean : first;
}

static wide per_weight(const struct task *c, uint64_t amount, uint64_t *rest)
{
    wide p = (wide)amount * (wide)((UINT64_C(1) << FRACTION) / c->weight);
    if (c->weight > 1 << 20) { /* 32 bits more */
        p = (wide)amount * (((wide)1 << (FRACTION + 32)) / (wide)c->weight) + (wide)*rest;
        *rest = (uint64_t)(p & UINT32_MAX);
        p >>= 32;
    }
    return p;
}

static wide *axis(struct flight *f)
{
    return f->surplus ? &o.task[f->id].surplus : &o.task[f->id].stag;
}

static wide ahead(wide a, wide b)
{
    return a > b ? a - b : 0;
}

static void move_back(void)
{
    unsigned j;
    if (o.V >> 64 < (wide)1 << TAGS_AXIS_BITS && o.VS >> 64 < (wide)1 << TAGS_AXIS_BITS)
        return;
    for (j = 0; j < o.n; j++) {
        o.task[j].stag = ahead(o.task[j].stag, o.V);
        o.task[j].surplus = ahead(o.task[j].surplus, o.VS);
    }
    for (j = 0; j < o.flights; j++)
        o.flight[j].share_end = ahead(o.flight[j].share_end, o.flight[j].surplus ? o.VS : o.V);
    o.V = o.VS = 0;
}

/* A reservation that is due no longer waits for its start again. */
static void look_at_due(struct task *c, int64_t now)
{
    c->due = c->due && c->queue && rkey(c) <= now - o.behind_ns;
}

static uint64_t uncharged, moved_back;

static struct flight *dispatch(unsigned id, int64_t now, enum tags_phase phase, uint64_t cost)
{
    struct task *c = &o.task[id];
    struct flight *f = &o.flight[o.flights++];
    wide charge, before = o.V;
    f->id = id;
    f->order = o.order++;
    f->by_reservation = phase == TAGS_PHASE_RESERVATION;
    f->surplus = phase == TAGS_PHASE_ABOVE_LIMIT;
    f->limited = c->L && phase != TAGS_PHASE_ABOVE_LIMIT;
    if (f->by_reservation) {
        int64_t late;
        c->rcount++;
        late = now - o.behind_ns - rkey(c);
        if (late > o.lag_ns)
            o.behind_ns += late - o.lag_ns;
    }
    if (f->limited) {
        at_least(&c->lbase, &c->lcount, c->L, now - o.burst_ns);
        c->lcount++;
        c->borrowed = !f->by_reservation;
    }
    f->reserve_end = c->R ? rkey(c) : 0;
    f->limit_end = c->L ? lkey(c) : 0;
    raise_v();
    move_back();
    moved_back += o.V < before;
    f->work = o.reward ? estimate(c) : cost;
    if (f->work > o.largest)
        o.largest = f->work;
    charge = per_weight(c, f->work, &c->rest);
    /* what is equal but for rounding is no lead: 2^-24 of a charge, and the bits that V lacks */
    f->free = f->by_reservation &&
              c->stag + charge - o.V > charge * o.lead + charge / (1 << 24) + (1 << 22) - 1 + usual_lag(c);
    uncharged += f->free;
    if (f->surplus && c->surplus > o.VS)
        o.VS = c->surplus;
    if (!f->free)
        *axis(f) += charge;
    f->share_end = *axis(f);
    f->credit = 0;
    if (o.permille)
        f->credit = f->by_reservation ? (int64_t)(o.permille * f->work)
                    : o.credit > 0    ? -(int64_t)((1000 - o.permille) * f->work)
                                      : 0;
    o.credit += f->credit;
    c->device++;
    c->queue--;
    if (c->queue == 0)
        c->waiting = c->due = false;
    if (f->by_reservation)
        look_at_due(c, now);
    return f;
}

/* A request counts twice its estimate at most, or beyond the estimate what the client makes up within the lag. */
static uint64_t worth(const struct task *c, uint64_t service, uint64_t estimated)
{
    unsigned clients;
    uint64_t sum = weights(&clients), extra, real = service << 8;
    if (sum < c->weight)
        sum = c->weight;
    extra = (uint64_t)((wide)o.lag_ns * 256 * (wide)c->weight / (wide)sum);
    if (real / 2 <= estimated)
        return real;
    if (extra < estimated)
        extra = estimated;
    return real < estimated + extra ? real : estimated + extra;
}

static void completion(struct flight *f, uint64_t service)
{
    struct task *c = &o.task[f->id];
    c->device--;
    if (o.reward) {
        uint64_t real = worth(c, service, f->work), none = 0;
        wide by;
        if (real < o.floor_ns << 8)
            real = o.floor_ns << 8;
        c->total[c->requests + 1] = c->total[c->requests] + (real >> 8);
        c->requests++;
        last_mean = mean_of(c);
        by = per_weight(c, real > f->work ? real - f->work : f->work - real, &none);
        if (!f->free)
            *axis(f) = real > f->work ? *axis(f) + by : ahead(*axis(f), by);
    }
    *f = o.flight[--o.flights];
}

static void cancellation(struct flight *f, int64_t now)
{
    struct task *c = &o.task[f->id];
    int64_t reserve = 0, limit = 0, least = reserve_floor(now, c, true);
    uint64_t none = 0;
    wide share = 0, charge = per_weight(c, f->work, &none);
    unsigned j;
    c->device--;
    if (f->by_reservation)
        reserve = give_back(&c->rbase, &c->rcount, c->R, f->reserve_end, least);
    if (f->limited)
        limit = give_back(&c->lbase, &c->lcount, c->L, f->limit_end, now - o.burst_ns);
    if (!f->free) {
        share = ahead(f->share_end, f->surplus ? o.VS : o.V);
        if (share > charge)
            share = charge;
        *axis(f) = ahead(*axis(f), share);
    }
    for (j = 0; j < o.flights; j++) {
        struct flight *later = &o.flight[j];
        if (later->id != f->id || later->order <= f->order)
            continue;
        later->reserve_end -= reserve;
        later->limit_end -= limit;
        if (later->surplus == f->surplus)
            later->share_end = ahead(later->share_end, share);
    }
    o.credit -= f->credit;
    look_at_due(c, now);
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

/* The lead, times old / new, with 62 fraction bits. */
static void reweigh(wide *tag, wide v, uint64_t old, uint64_t weight)
{
    wide lead = *tag - v, whole = lead / (wide)weight, rest = lead % (wide)weight;
    wide most = (wide)1 << 61 << 64;
    if (lead <= 0 || old == weight)
        return;
    if (whole > most / (wide)old)
        *tag = v + most;
    else
        *tag = v + whole * (wide)old + rest * (wide)old / (wide)weight;
    if (*tag > v + most)
        *tag = v + most;
}

/* Another weight, or removal and return. */
static void change(struct check_rng *rng, unsigned id)
{
    struct task *c = &o.task[id];
    struct tags_client terms;
    uint64_t old = c->weight;
    uint32_t dropped = 0;
    unsigned j;
    bool came_back = false;
    if (check_between(rng, 0, 1)) {
        if (!c->present)
            return;
        CHECK_EQ(tags_remove(&run.t, run.now, id, &dropped), QOS_OK);
        CHECK_EQ(dropped, c->queue);
        c->queue = 0;
        c->present = c->waiting = c->due = false;
        return;
    }
    c->weight = pick_weight(rng, run.weights);
    terms_of(id, &terms);
    if (c->present) {
        CHECK_EQ(tags_change(&run.t, run.now, id, &terms), QOS_OK);
        if (c->queue) {
            uint64_t new_weight = c->weight;
            c->weight = old; /* as the others see it until now */
            back_from_limit(c);
            c->weight = new_weight;
        }
        c->waiting = c->due = false;
        changed++;
    } else {
        CHECK_EQ(tags_add(&run.t, run.now, id, &terms), QOS_OK);
        returned++;
        came_back = true;
    }
    c->present = true;
    c->borrowed = false;
    if (came_back) {
        at_least(&c->rbase, &c->rcount, c->R, reserve_floor((int64_t)run.now, c, false));
        at_least(&c->lbase, &c->lcount, c->L, (int64_t)run.now);
    }
    if (came_back && c->R && deadline(c) < (int64_t)run.now - o.behind_ns - o.lag_ns) {
        int64_t late = (int64_t)run.now - o.behind_ns - o.lag_ns - deadline(c);
        at_least(&c->rbase, &c->rcount, c->R, rkey(c) + late);
    }
    reweigh(&c->stag, o.V, old, c->weight);
    reweigh(&c->surplus, o.VS, old, c->weight);
    for (j = 0; j < o.flights; j++)
        if (o.flight[j].id == id)
            reweigh(&o.flight[j].share_end, o.flight[j].surplus ? o.VS : o.V, old, c->weight);
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
        o.fastest = c->R > o.fastest ? c->R : o.fastest;
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
                c->due = c->due && c->queue;
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
    CHECK_GE(moved_back, check_scaled(10));
    return check_end();
}
