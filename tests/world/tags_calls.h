/* tags_calls.h - small programs of calls beside a plain account of every tag
 *
 * One to five clients, a few hundred calls: what the chapters "tags" and "requests" say of each tag is kept here in the
 * plainest way, one client after the other, so each choice, status, counter and time told has one right value, or a narrow
 * range. Rates divide 10^9, so times are whole ns. Which clients were looked at is the header's business (it does so only
 * as far as it must): the account follows what tags_info says of who waits, and judges that. Of a reservation tag a range
 * is kept, as who returns is placed by those that the header has looked at. Included by tags.c; k_ is of these worlds. */
#ifndef QOS_TESTS_WORLD_TAGS_CALLS_H
#define QOS_TESTS_WORLD_TAGS_CALLS_H

#define K_CLIENTS 5u
#define K_DEVICE 8u
#define K_QUEUE 64u
#define K_YEAR (INT64_C(1) << 55)
#define K_REQUESTS (K_CLIENTS * K_QUEUE + K_DEVICE)

struct k_range { /* of a reservation tag */
    int64_t lo, hi;
};

struct k_client {
    bool is, reserved, limited, waiting;
    struct tags_client terms;
    int64_t limit_rate, reserve_rate; /* of the last terms that had one */
    int64_t limit, limit_skip; /* tag, and by how much it was raised since the last dispatch when its client came */
    struct k_range reserve, skip;
    long double share, share_skip, surplus;
    bool known, fresh; /* it was a client; nothing was sent since */
    uint32_t queued, at_device, last_cost, services;
    uint64_t cost[K_QUEUE], queued_cost;
    uint32_t request[K_QUEUE];
    int64_t mean;
    uint64_t served[TAGS_PHASES], cancelled, failed, given_up, device_ns, granted, borrowed_units, waited, refused,
        debt;
};

struct k_slot {
    uint32_t client, cost, rho, delta, phase;
    bool by_limit, no_share, above, earned, spent;
    bool by_reserve, perhaps;  /* perhaps: it may not have been charged by reservation */
    long double amount, share; /* share: where its charge ended */
    int64_t limit, sent_ns;
    struct k_range reserve;
    struct tags_grant grant;
};

static struct {
    struct world *w;
    struct world_rng rng;
    struct tags_config config;
    uint32_t clients, slots, next_request, unused[K_REQUESTS], unused_count;
    struct k_client client[K_CLIENTS], all;
    struct k_slot slot[K_DEVICE]; /* in order of dispatch */
    struct tags_request request[K_REQUESTS];
    struct tags_grant old;
    bool has_old, reward, unsure; /* unsure: it ends here, as two things were equal but for rounding */
    uint64_t base, floor_ns, forgiven_ns, measured;
    int64_t t, shown, shift, held, held_step, late, stood, spacing, behind, credit; /* t: the time of the tags */
    int64_t burst, lag;
    bool shifted, began;
    long double v, surplus_v, largest;
    uint64_t step;
    const char *doing;
} calls;

static int64_t k_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t k_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static long double k_weight(const struct k_client *c)
{
    return c->terms.weight ? (long double)c->terms.weight : 1;
}
static bool k_cost_counts(void)
{
    return calls.config.count_cost;
}
static uint64_t k_draw(uint64_t low, uint64_t high)
{
    return world_between(&calls.rng, low, high);
}
static int64_t k_clock(void)
{
    return calls.t - calls.behind;
}
/* Shares that are equal but for rounding. */
static long double k_eps(void)
{
    return calls.reward ? 1e-3L : 1e-11L;
}

/* ---- the time of the tags ---- */

static bool k_near(int64_t at, int64_t most)
{
    return (at >= calls.t && at - calls.t < most) || (at < calls.t && calls.t - at <= 1000000000);
}

/* A call at this time: monotone; a setback makes time stand still for what a wrong one may have given, and for 16 calls,
 * unless a time follows that is 1/16 s at most after the latest. */
static void k_now(int64_t at)
{
    int64_t ahead = at + calls.shift - calls.t;
    if (!calls.began) {
        calls.t = at;
        calls.began = true;
        return;
    }
    if (!calls.shifted && ahead >= 0 && ahead < K_YEAR) {
        calls.t = at;
        return;
    }
    if (ahead <= 0 && -ahead <= 1000000000)
        calls.late = -ahead;
    if ((at >= calls.t && at - calls.t < 62500000) || (calls.held == 0 && k_near(at, 62500000))) {
        calls.t = k_max(calls.t, at);
        calls.shift = calls.held = 0;
    } else if (ahead >= 0 && calls.held == 0) {
        calls.t += ahead;
    } else if (ahead >= 0) {
        calls.shift -= ahead;
        calls.stood += k_min(calls.held, ahead);
        calls.held = k_max(0, calls.held - k_min(ahead, calls.held_step));
    } else if (-ahead > 1000000000) {
        calls.shift -= ahead;
        calls.held = k_min(-ahead, calls.late + calls.spacing + calls.burst);
        calls.held_step = calls.held / 16 + 1;
        calls.late = 0;
    }
    calls.shifted = calls.shift != 0;
}

/* ---- tags ---- */

static uint64_t k_units(uint64_t cost)
{
    return k_cost_counts() ? cost : 1;
}
static int64_t k_step_ns(int64_t rate, uint64_t units)
{
    return rate ? (int64_t)units * (1000000000 / rate) : 0;
}
static void k_raise(struct k_range *r, int64_t lo, int64_t hi)
{
    r->lo = k_max(r->lo, lo);
    r->hi = k_max(r->hi, hi);
}

static void k_lower(struct k_range *r, int64_t most)
{
    r->lo = k_min(r->lo, most);
    r->hi = k_min(r->hi, most);
}

/* From its tag to the deadline of its next request. */
static int64_t k_spacing(const struct k_client *c)
{
    return k_step_ns(c->reserve_rate, k_cost_counts() ? c->last_cost : 1);
}

/* Where the reservation tag of one that returns may be: the clock, or the earliest deadline of those that wait and are
 * due; `keep`: a request before. */
static struct k_range k_floor(const struct k_client *of, bool keep)
{
    struct k_range r = {k_clock(), k_clock()};
    int64_t latest = INT64_MIN;
    bool due = false;
    uint32_t i;
    for (i = 0; i < calls.clients; i++) {
        const struct k_client *c = &calls.client[i];
        if (c->waiting && c->queued) /* it may be due, and not looked at yet */
            k_lower(&r, c->limit - calls.behind);
        if (!c->is || !c->reserved || c->queued == 0 || c->waiting)
            continue;
        if (c->reserve.lo <= k_clock()) { /* any of these may be the one that is looked at */
            r.lo = k_min(r.lo, c->reserve.lo + k_spacing(c));
            latest = k_max(latest, c->reserve.hi + k_spacing(c));
        }
        due |= c->reserve.hi <= k_clock();
        if (c->reserve.hi <= k_clock() && calls.config.moves_max == 0) /* else not all are looked at */
            r.hi = k_min(r.hi, c->reserve.hi + k_spacing(c));
    }
    if (due)
        r.hi = k_min(r.hi, latest);
    if (keep && of->is && of->reserved) {
        r.lo -= k_spacing(of);
        r.hi -= k_spacing(of);
    }
    return r;
}

static long double k_weights(void)
{
    long double sum = 0;
    uint32_t i;
    for (i = 0; i < calls.clients; i++)
        if (calls.client[i].queued)
            sum += k_weight(&calls.client[i]);
    return sum;
}

/* The usual lag: one of the largest requests of each that waits, but perhaps one, over their weights. */
static long double k_lag(const struct k_client *but)
{
    const long double weights = k_weights() - (but && but->queued ? k_weight(but) : 0);
    uint32_t i, n = 0;
    for (i = 0; i < calls.clients; i++)
        n += calls.client[i].queued > 0 && &calls.client[i] != but;
    return n ? calls.largest * n / weights : 0;
}

/* V rises to the least share tag of those that wait for nothing but their turn. */
static void k_raise_v(void)
{
    long double least = -1;
    uint32_t i;
    for (i = 0; i < calls.clients; i++)
        if (calls.client[i].queued && !calls.client[i].waiting && (least < 0 || calls.client[i].share < least))
            least = calls.client[i].share;
    if (least > calls.v)
        calls.v = least;
}

/* It comes off its limit: behind V by the usual lag at most. */
static void k_off_limit(struct k_client *c)
{
    const long double lag = k_lag(NULL);
    if (c->share < calls.v - lag)
        c->share = calls.v - lag < 0 ? 0 : calls.v - lag;
}

/* Nothing of it was queued. */
static void k_wake(struct k_client *c)
{
    struct k_range f = k_floor(c, c->at_device > 0);
    c->skip.lo += k_max(0, f.lo - c->reserve.hi);
    c->skip.hi += k_max(0, f.hi - c->reserve.lo);
    k_raise(&c->reserve, f.lo, f.hi);
    if (c->at_device == 0) {
        c->limit_skip += k_max(0, calls.t - c->limit);
        c->limit = k_max(c->limit, calls.t);
    }
    k_raise_v();
    if (c->share < calls.v) {
        c->share_skip += calls.v - c->share;
        c->share = calls.v;
    }
}

/* ---- reward: the mean of the last services ---- */

/* In 1/256 ns; -1: none. */
static int64_t k_mean_so_far(const struct k_client *c)
{
    return c->services ? c->mean : -1;
}
static int64_t k_mean(const struct k_client *c)
{
    int64_t mean = k_mean_so_far(c),
            most = (int64_t)(calls.config.service_ns ? calls.config.service_ns : 1000000) * 256;
    if (mean >= 0)
        return mean;
    mean = calls.measured ? k_mean_so_far(&calls.client[calls.measured - 1]) : -1;
    return mean >= 0 && mean < most ? mean : most;
}
/* The newest weighs 2 / (N + 1); as long as fewer came, all weigh the same. Rounded towards the mean before. */
static void k_measure(struct k_client *c, uint64_t service_ns)
{
    int64_t x = (int64_t)service_ns * 256;
    int64_t weight = (calls.config.window ? calls.config.window : 5) + INT64_C(1);
    if (c->services < 10000)
        c->services++;
    if (2 * (int64_t)c->services < weight)
        weight = 2 * (int64_t)c->services;
    c->mean += 2 * (x - c->mean) / weight;
}

/* ---- what a request is charged ---- */

static void k_count(struct k_client *c, uint32_t phase, uint64_t units)
{
    struct k_client *of[2] = {c, &calls.all};
    uint32_t i;
    for (i = 0; i < 2; i++) {
        of[i]->served[phase]++;
        of[i]->granted += units;
        of[i]->borrowed_units += phase == TAGS_PHASE_RESERVATION ? 0 : units;
    }
}

/* What it was served elsewhere moves its tags from where they were after its last request here. */
static void k_charge_limit(struct k_client *c, uint64_t units, uint64_t elsewhere)
{
    const int64_t limit = k_max(c->limit, calls.t - calls.burst);
    if (elsewhere && !c->fresh)
        c->limit = k_max(limit, c->limit - c->limit_skip + k_step_ns(c->limit_rate, elsewhere));
    c->limit = k_max(limit, c->limit) + k_step_ns(c->limit_rate, units);
}

/* Work that is due by weight, times 1000. */
static void k_credit(const struct k_slot *s, int64_t work)
{
    const int64_t permille = calls.config.weight_share_permille;
    calls.credit += work * (s->earned ? permille : s->spent ? permille - 1000 : 0);
}

static void k_charge(struct k_client *c, struct k_slot *s)
{
    const int64_t oldest = k_clock() - calls.lag;
    const uint64_t own = k_units(s->cost);
    long double by, brought;
    bool sure = true;
    struct tags_state state;
    if (!c->reserved || c->fresh)
        s->rho = 0;
    if (c->reserved && s->phase == TAGS_PHASE_RESERVATION)
        s->by_reserve = true;
    if (c->reserved && s->phase == TAGS_PHASE_FORCED) {
        s->by_reserve = c->reserve.lo <= k_clock();
        s->perhaps = s->by_reserve && c->reserve.hi > k_clock();
        sure = !s->perhaps;
    }
    if (s->by_reserve || s->rho) {
        const int64_t ns = k_step_ns(c->reserve_rate, s->by_reserve ? own : 0);
        const int64_t elsewhere = k_step_ns(c->reserve_rate, s->rho);
        const struct k_range last = c->reserve;
        if (s->phase != TAGS_PHASE_RESERVATION && !s->perhaps)
            k_raise(&c->reserve, oldest, oldest);
        if (s->rho) /* a forced one has none */
            k_raise(&c->reserve, last.lo - c->skip.hi + elsewhere, last.hi - c->skip.lo + elsewhere);
        if (s->perhaps) { /* it is charged if it is due: below the clock */
            c->reserve.hi = k_max(c->reserve.hi, k_max(k_clock(), oldest) + ns);
            c->reserve.lo = k_min(k_max(c->reserve.lo, oldest) + ns, k_clock() + 1);
        } else {
            c->reserve.lo += ns;
            c->reserve.hi += ns;
        }
        c->last_cost = k_cost_counts() && sure ? s->cost : c->last_cost;
        if (k_cost_counts() && !sure && c->last_cost != s->cost)
            calls.unsure = true;
        s->reserve = c->reserve;
    }
    if (c->limited && s->phase != TAGS_PHASE_ABOVE_LIMIT) {
        s->by_limit = true;
        k_charge_limit(c, own, s->delta);
        s->limit = c->limit;
    }
    if (s->phase == TAGS_PHASE_RESERVATION &&
        tags_info(&tags, QOS_NONE, &state) == QOS_OK) { /* late: the clock moves */
        const int64_t more = (int64_t)state.clock_behind_ns - calls.behind;
        if (!calls.unsure && (more < k_max(0, oldest - c->reserve.hi) || more > k_max(0, oldest - c->reserve.lo)))
            world_fail(calls.w, "exact", (uint64_t)calls.t,
                       "step %" PRIu64 ": the clock moves back by %" PRId64 " ns, not %" PRId64 "..%" PRId64,
                       calls.step, more, k_max(0, oldest - c->reserve.hi), k_max(0, oldest - c->reserve.lo));
        if (more > 0)
            c->reserve.lo = c->reserve.hi = oldest - more;
        else
            k_raise(&c->reserve, oldest, oldest);
        s->reserve = c->reserve;
        calls.behind += more;
    }
    s->amount = calls.reward ? (long double)(k_mean(c) - k_mean(c) / 4) : (long double)s->cost;
    if (calls.config.weight_share_permille) {
        s->earned = s->phase == TAGS_PHASE_RESERVATION;
        s->spent = !s->earned && calls.credit > 0;
        k_credit(s, (int64_t)s->amount);
    }
    by = s->amount / k_weight(c);
    brought = (calls.reward ? by * 4 / 3 : 1 / k_weight(c)) * s->delta - c->share_skip; /* of the mean */
    brought = brought > 0 && !c->fresh ? brought : 0;
    k_raise_v();
    if (s->amount > calls.largest)
        calls.largest = s->amount;
    if (s->phase == TAGS_PHASE_RESERVATION) {
        long double lead = c->share + brought + by - calls.v -
                           by * (calls.config.lead_requests ? calls.config.lead_requests : 16) - k_lag(c);
        const long double e = 3e-12L + (calls.reward ? 1e-6L + 1e-3L * by : 0);
        if (lead > 1e-15L && lead < e)
            calls.unsure = true;
        s->no_share = lead >= e && k_weights() > k_weight(c); /* V follows who is alone */
    }
    s->above = s->phase == TAGS_PHASE_ABOVE_LIMIT;
    if (s->no_share)
        return;
    if (s->above) {
        calls.surplus_v = c->surplus > calls.surplus_v ? c->surplus : calls.surplus_v;
        s->share = c->surplus += by;
    } else {
        s->share = c->share += brought + by;
    }
}

/* Of the request of this slot, units and an amount are given back, as far as nothing has passed them. */
static void k_refund(uint32_t at, uint64_t reserved, uint64_t limited, long double amount)
{
    struct k_slot *s = &calls.slot[at];
    struct k_client *c = &calls.client[s->client];
    struct k_range f = k_floor(c, true), back = {0, 0};
    int64_t limit_back = 0;
    long double share_back = 0, *tag = s->above ? &c->surplus : &c->share;
    uint32_t i;
    if (reserved && c->reserve_rate) {
        const int64_t ns = k_step_ns(c->reserve_rate, reserved);
        back.hi = k_max(0, k_min(ns, s->reserve.hi - f.lo));
        back.lo = k_max(0, k_min(ns, s->reserve.lo - f.hi));
        if (s->perhaps)
            back.lo = 0;
        c->reserve.lo -= back.hi;
        c->reserve.hi -= back.lo;
    }
    if (limited) {
        limit_back = k_max(0, k_min(k_step_ns(c->limit_rate, limited), s->limit - (calls.t - calls.burst)));
        c->limit -= limit_back;
    }
    if (!s->no_share) {
        const long double v = s->above ? calls.surplus_v : calls.v, ahead = s->share - v;
        share_back = amount / k_weight(c);
        share_back = share_back > ahead ? ahead : share_back;
        share_back = share_back > 0 ? share_back : 0;
        *tag = *tag > share_back ? *tag - share_back : 0;
    }
    for (i = at + 1; i < calls.slots; i++) {
        struct k_slot *later = &calls.slot[i];
        if (later->client != s->client)
            continue;
        later->reserve.lo -= back.hi;
        later->reserve.hi -= back.lo;
        later->limit -= limit_back;
        if (later->above == s->above)
            later->share = later->share > share_back ? later->share - share_back : 0;
    }
}

static void k_slot_leaves(uint32_t at)
{
    struct k_slot *s = &calls.slot[at];
    calls.client[s->client].at_device--;
    calls.old = s->grant;
    calls.has_old = true;
    memmove(s, s + 1, sizeof *s * (calls.slots - at - 1));
    calls.slots--;
}

/* Its cost was another one; the service is known. */
static void k_completed(uint32_t at, uint32_t cost, uint64_t service_ns)
{
    struct k_slot *s = &calls.slot[at];
    struct k_client *c = &calls.client[s->client];
    if (cost && cost != s->cost) {
        const bool more = cost > s->cost;
        const uint32_t diff = more ? cost - s->cost : s->cost - cost;
        const long double amount = calls.reward ? 0 : diff;
        const uint64_t reserved = k_cost_counts() && s->by_reserve ? diff : 0;
        const uint64_t limited = k_cost_counts() && s->by_limit ? diff : 0;
        k_credit(s, (more ? 1 : -1) * (int64_t)amount);
        if (!more) {
            long double *tag = s->above ? &c->surplus : &c->share;
            k_refund(at, reserved, limited, 0);
            if (!s->no_share) /* also what V has passed */
                *tag = *tag > amount / k_weight(c) ? *tag - amount / k_weight(c) : 0;
        } else {
            c->reserve.hi += k_step_ns(c->reserve_rate, reserved);
            c->reserve.lo += s->perhaps ? 0 : k_step_ns(c->reserve_rate, reserved);
            if (limited)
                k_charge_limit(c, limited, 0);
            if (!s->no_share)
                *(s->above ? &c->surplus : &c->share) += amount / k_weight(c);
        }
    }
    if (calls.reward) { /* beyond two means: up to its part of the lag; the rest is nobody's */
        const uint64_t estimate = (uint64_t)s->amount, least = calls.config.service_floor_ns;
        const long double w = k_weight(c), weights = k_weights() + (c->queued ? 0 : w);
        uint64_t work = service_ns * 256;
        calls.all.device_ns += service_ns;
        c->device_ns += service_ns;
        if (3 * work > 8 * estimate) {
            const uint64_t part = (uint64_t)((long double)calls.lag * 256 * w / weights);
            const uint64_t mean = estimate + estimate / 3, most = mean + (part > mean ? part : mean);
            if (work > most + 256 || work < most - 256)
                calls.forgiven_ns += work > most ? (work - most) / 256 : 0;
            else
                calls.unsure = true;
            work = work < most ? work : most;
        }
        if (work < least * 256) {
            calls.floor_ns += least - work / 256;
            work = least * 256;
        }
        k_measure(c, work / 256);
        calls.measured = s->client + 1;
        k_credit(s, (int64_t)work - (int64_t)estimate);
        if (!s->no_share) {
            long double *tag = s->above ? &c->surplus : &c->share;
            *tag += ((long double)work - (long double)estimate) / w;
            *tag = *tag > 0 ? *tag : 0;
        }
    }
    k_slot_leaves(at);
}

/* ---- terms ---- */

static int64_t k_rescale(int64_t tag, int64_t old, int64_t rate, int64_t now)
{
    if (old == 0 || rate == old)
        return tag;
    if (tag > now)
        return now + ((tag - now) * old + rate - 1) / rate;
    return now - (now - tag) * k_min(old, rate) / rate;
}
static long double k_reweigh(long double tag, long double v, long double old, long double weight)
{
    return tag > v ? v + (tag - v) * old / weight : tag;
}

static void k_apply(uint32_t i, const struct tags_client *terms)
{
    struct k_client *c = &calls.client[i];
    const bool never = !c->terms.weight && c->limit_rate == 0 && c->reserve_rate == 0;
    const long double old = k_weight(c), w = terms->weight ? (long double)terms->weight : 1;
    const int64_t r = (int64_t)terms->reservation_per_s, clock = k_clock();
    const int64_t l = terms->limit_per_s == QOS_UNLIMITED ? 0 : (int64_t)terms->limit_per_s;
    struct k_range f = k_floor(c, false);
    uint32_t j;
    for (j = 0; j < calls.slots; j++) {
        struct k_slot *s = &calls.slot[j];
        if (s->client != i)
            continue;
        s->share = k_reweigh(s->share, s->above ? calls.surplus_v : calls.v, old, w);
        if (r) {
            s->reserve.lo = k_rescale(s->reserve.lo, c->reserve_rate, r, clock);
            s->reserve.hi = k_rescale(s->reserve.hi, c->reserve_rate, r, clock);
        }
        if (l)
            s->limit = k_rescale(s->limit, c->limit_rate, l, calls.t);
    }
    if (!never) {
        c->share = k_reweigh(c->share, calls.v, old, w);
        c->surplus = k_reweigh(c->surplus, calls.surplus_v, old, w);
    }
    c->fresh = c->fresh || !c->known;
    c->known = true;
    if (!c->limited) {
        c->limit_skip += k_max(0, calls.t - c->limit);
        c->limit = k_max(c->limit, calls.t);
    }
    if (!c->reserved) {
        c->skip.lo += k_max(0, f.lo - c->reserve.hi);
        c->skip.hi += k_max(0, f.hi - c->reserve.lo);
        k_raise(&c->reserve, f.lo, f.hi);
    }
    if (l) {
        c->limit = k_rescale(c->limit, c->limit_rate, l, calls.t);
        c->limit_rate = l;
        calls.spacing =
            k_max(calls.spacing, k_min(1000000000, k_step_ns(l, k_cost_counts() ? calls.config.cost_max : 1)));
    }
    if (r && (!c->reserved || r != c->reserve_rate)) {
        int64_t oldest;
        c->reserve.lo = k_rescale(c->reserve.lo, c->reserve_rate, r, clock);
        c->reserve.hi = k_rescale(c->reserve.hi, c->reserve_rate, r, clock);
        c->reserve_rate = r;
        oldest = clock - calls.lag - k_spacing(c); /* not later than those that wait */
        k_raise(&c->reserve, oldest, oldest);
    }
    c->terms = *terms;
    c->is = true;
    c->reserved = r > 0;
    c->limited = l > 0;
    c->waiting = false;
}

static uint64_t k_reserved_sum(void)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < calls.clients; i++)
        sum += calls.client[i].is ? calls.client[i].terms.reservation_per_s : 0;
    return sum;
}

/* ---- what is told ---- */

#define K_FAIL(oracle, ...)                                                                                            \
    do {                                                                                                               \
        char why[160];                                                                                                 \
        (void)snprintf(why, sizeof why, __VA_ARGS__);                                                                  \
        world_fail(calls.w, oracle, (uint64_t)calls.t, "step %" PRIu64 " (%s): %s", calls.step, calls.doing, why);     \
    } while (0)

/* After each call: what tags_info and tags_stats say of each client and of all. */
static void k_told(void)
{
    struct tags_state s;
    struct qos_stats stats = {0, 0, 0, 0, 0};
    const uint64_t sum = k_reserved_sum(),
                   capacity = calls.config.capacity_per_s ? calls.config.capacity_per_s : UINT64_MAX;
    uint32_t i, queued = 0;
    for (i = 0; i <= calls.clients && !calls.w->broken && !calls.unsure; i++) {
        const struct k_client *c = i < calls.clients ? &calls.client[i] : &calls.all;
        const uint32_t id = i < calls.clients ? i : QOS_NONE;
        const uint64_t held = i < calls.clients ? c->terms.reservation_per_s : 0;
        uint64_t most = capacity - (sum - held);
        enum qos_status e = tags_info(&tags, id, &s);
        queued += i < calls.clients ? c->queued : 0;
        if (i < calls.clients && !c->is) {
            if (e != QOS_ENOENT)
                K_FAIL("exact_told", "client %" PRIu32 " is none, and is known", i);
            continue;
        }
        most = most < held ? held : most > QOS_RATE_MAX ? QOS_RATE_MAX : most;
        if (e != QOS_OK || s.queued != (i < calls.clients ? c->queued : queued) ||
            s.at_device != (i < calls.clients ? c->at_device : calls.slots))
            K_FAIL("exact_told", "client %" PRIu32 ": %" PRIu64 " queued, %" PRIu64 " at the device", i, s.queued,
                   s.at_device);
        if (s.reserved_per_s != (i < calls.clients ? held : sum) || s.admissible_per_s != most)
            K_FAIL("exact_told", "client %" PRIu32 ": reserved %" PRIu64 ", admissible %" PRIu64 ", not %" PRIu64, i,
                   s.reserved_per_s, s.admissible_per_s, most);
        if (i < calls.clients && s.limit_ahead_ns != (c->limited ? (uint64_t)k_max(0, c->limit - calls.t) : 0))
            K_FAIL("exact_limit", "the limit tag of client %" PRIu32 " is %" PRIu64 " ns ahead, not %" PRId64, i,
                   s.limit_ahead_ns, c->limit - calls.t);
        if (i < calls.clients && calls.reward &&
            s.mean_service_ns != (k_mean_so_far(c) < 0 ? 0 : (uint64_t)k_mean_so_far(c) / 256))
            K_FAIL("exact_told", "the mean of client %" PRIu32 " is %" PRIu64 ", not %" PRId64, i, s.mean_service_ns,
                   k_mean_so_far(c) / 256);
        if (i == calls.clients && (s.floor_ns != calls.floor_ns || s.clock_behind_ns != (uint64_t)calls.behind ||
                                   s.forgiven_ns + 2 < calls.forgiven_ns || s.forgiven_ns > calls.forgiven_ns + 2))
            K_FAIL("exact_told", "floor %" PRIu64 ", forgiven %" PRIu64 " ns, not %" PRIu64 " and %" PRIu64, s.floor_ns,
                   s.forgiven_ns, calls.floor_ns, calls.forgiven_ns);
        if (i == calls.clients)
            calls.forgiven_ns = s.forgiven_ns;
        if (i < calls.clients && !calls.config.count_by_client)
            continue;
        if (memcmp(s.served, c->served, sizeof s.served) != 0 || s.cancelled != c->cancelled || s.failed != c->failed ||
            s.given_up != c->given_up || s.device_ns != c->device_ns)
            K_FAIL("exact_told", "the counters of client %" PRIu32 " are others", i);
        if (tags_stats(&tags, id, &stats) != QOS_OK || stats.granted != c->granted ||
            stats.borrowed != c->borrowed_units || stats.refused != c->refused || stats.waited != c->waited ||
            stats.debt != c->debt)
            K_FAIL("exact_told",
                   "client %" PRIu32 ": granted %" PRIu64 ", borrowed %" PRIu64 ", refused %" PRIu64 ", waited %" PRIu64
                   ", debt %" PRIu64,
                   i, stats.granted, stats.borrowed, stats.refused, stats.waited, stats.debt);
    }
}

/* ---- the choice ---- */

/* It could be sent: it waits for nothing but its turn. */
static bool k_may(const struct k_client *c)
{
    return c->queued && !c->waiting && (!c->limited || c->limit <= calls.t);
}

/* It comes off its limit, and is among those that wait for their turn. */
static void k_released(uint32_t i)
{
    struct k_client *c = &calls.client[i];
    const int64_t due = c->limit - calls.behind;
    const struct k_range f = k_floor(c, false); /* its limit forbade the rest */
    if (c->limit > calls.t)
        K_FAIL("exact_limit", "client %" PRIu32 " is back, %" PRId64 " ns too early", i, c->limit - calls.t);
    c->waiting = false;
    k_off_limit(c);
    calls.largest -= floorl(calls.largest / 4096); /* what was long ago is forgotten */
    if (c->reserved)
        k_raise(&c->reserve, k_min(due, f.lo), k_min(due, f.hi));
}

/* Whom the header looked at: who came off its limit, in the order of the limit tags; who stepped aside. `sent` may be sent
 * already: above its limit it waited there. */
static void k_looked(uint32_t sent, enum tags_phase phase)
{
    bool waits[K_CLIENTS];
    struct tags_state s;
    uint32_t i, next;
    for (i = 0; i < calls.clients; i++) {
        waits[i] = calls.client[i].waiting;
        if (calls.client[i].queued && tags_info(&tags, i, &s) == QOS_OK)
            waits[i] = i == sent ? phase == TAGS_PHASE_ABOVE_LIMIT : s.waiting_at_limit;
    }
    do {
        for (i = 0, next = QOS_NONE; i < calls.clients; i++)
            if (calls.client[i].waiting && !waits[i] &&
                (next == QOS_NONE || calls.client[i].limit < calls.client[next].limit))
                next = i;
        if (next != QOS_NONE)
            k_released(next);
    } while (next != QOS_NONE);
    for (i = 0; i < calls.clients; i++) {
        struct k_client *c = &calls.client[i];
        if (waits[i] && !c->waiting) {
            if (!c->limited || c->limit <= calls.t)
                K_FAIL("exact_limit", "client %" PRIu32 " waits at its limit, which was due %" PRId64 " ns ago", i,
                       calls.t - c->limit);
            c->waiting = true;
            c->surplus = c->surplus < calls.surplus_v ? calls.surplus_v : c->surplus;
            c->waited++;
            calls.all.waited++;
        } else if (c->waiting && c->limit <= calls.t && calls.config.moves_max == 0) {
            K_FAIL("exact_limit", "client %" PRIu32 " still waits at its limit", i);
        }
    }
}

/* What was chosen, or nobody. */
static void k_judge_choice(bool any, uint32_t chosen, enum tags_phase phase)
{
    const struct k_client *c = any ? &calls.client[chosen] : NULL;
    long double least = -1, least_above = -1;
    int64_t first = INT64_MAX;
    bool may = false, due = false, waits = false;
    uint32_t i;
    k_looked(any ? chosen : QOS_NONE, phase);
    for (i = 0; i < calls.clients; i++) {
        const struct k_client *o = &calls.client[i];
        if (o->queued == 0)
            continue;
        waits = true;
        least_above = least_above < 0 || o->surplus < least_above ? o->surplus : least_above;
        if (!k_may(o))
            continue;
        may = true;
        least = least < 0 || o->share < least ? o->share : least;
        if (o->reserved && o->reserve.hi <= k_clock()) {
            due = true;
            first = k_min(first, o->reserve.hi + k_spacing(o));
        }
    }
    if (!any) {
        if ((may || (waits && calls.config.at_limit == TAGS_ALLOW)) && calls.config.moves_max == 0)
            K_FAIL("exact", "nobody is chosen");
        return;
    }
    if (!c->is || c->queued == 0) {
        K_FAIL("exact", "client %" PRIu32 " is chosen, and has nothing queued", chosen);
        return;
    }
    if (phase != TAGS_PHASE_ABOVE_LIMIT && !k_may(c))
        K_FAIL("exact", "client %" PRIu32 " is chosen, %" PRId64 " ns before its limit tag", chosen,
               c->limit - calls.t);
    if (phase == TAGS_PHASE_RESERVATION) {
        if (!c->reserved || c->reserve.lo > k_clock() || (calls.credit > 0 && may))
            K_FAIL("exact", "client %" PRIu32 " goes by reservation, %" PRId64 " ns before it is due", chosen,
                   c->reserve.lo - k_clock());
        if (due && c->reserve.lo + k_spacing(c) > first)
            K_FAIL("exact", "client %" PRIu32 " goes by reservation, and another deadline is %" PRId64 " ns earlier",
                   chosen, c->reserve.lo + k_spacing(c) - first);
        calls.client[chosen].reserve.hi = k_min(c->reserve.hi, k_clock());
    } else if (phase == TAGS_PHASE_WEIGHT) {
        if (due && calls.credit <= 0)
            K_FAIL("exact", "client %" PRIu32 " goes by weight, and a reservation is due", chosen);
        if (c->share > least + k_eps())
            K_FAIL("exact", "client %" PRIu32 " goes by weight with the share tag %.12Lg, the least is %.12Lg", chosen,
                   c->share, least);
        for (i = 0; i < calls.clients && calls.credit <= 0; i++) { /* nobody was due */
            struct k_client *o = &calls.client[i];
            if (!k_may(o) || !o->reserved)
                continue;
            o->reserve.lo = k_max(o->reserve.lo, k_clock() + 1);
        }
    } else if (phase != TAGS_PHASE_ABOVE_LIMIT || calls.config.at_limit != TAGS_ALLOW) {
        K_FAIL("exact", "the phase of client %" PRIu32 " is %u", chosen, (unsigned)phase);
    } else {
        if (may && calls.config.moves_max == 0)
            K_FAIL("exact", "client %" PRIu32 " goes above its limit, and another is below its own", chosen);
        if (c->surplus > least_above + k_eps())
            K_FAIL("exact", "client %" PRIu32 " goes above its limit with the surplus tag %.12Lg, the least is %.12Lg",
                   chosen, c->surplus, least_above);
    }
}

/* Is somebody served at this time, if nothing else happens? Of a copy of the clock. */
static bool k_would(int64_t at)
{
    const int64_t t = calls.t, shift = calls.shift, held = calls.held, held_step = calls.held_step;
    const int64_t late = calls.late, stood = calls.stood;
    const bool shifted = calls.shifted;
    bool some = false;
    uint32_t i;
    k_now(at);
    for (i = 0; i < calls.clients; i++)
        some |= calls.client[i].queued && (!calls.client[i].limited || calls.client[i].limit <= calls.t);
    calls.t = t, calls.shift = shift, calls.held = held, calls.held_step = held_step, calls.late = late;
    calls.stood = stood, calls.shifted = shifted;
    return some;
}

/* tags_next_ns: exact; early once after a setback. */
static void k_next(void)
{
    uint64_t told;
    int64_t at;
    uint32_t i, queued = 0;
    calls.doing = "next";
    told = tags_next_ns(&tags, calls.base + (uint64_t)calls.shown);
    if (calls.slots < calls.config.at_device_max) {
        k_now(calls.shown);
        k_looked(QOS_NONE, TAGS_PHASE_WEIGHT);
    }
    for (i = 0; i < calls.clients; i++)
        queued += calls.client[i].queued;
    if (queued == 0 || calls.slots >= calls.config.at_device_max) {
        if (told != QOS_NEVER)
            K_FAIL("exact_next", "nothing can be sent, and it is told to come");
        return;
    }
    if (told == QOS_NEVER) {
        K_FAIL("exact_next", "it is never to come");
        return;
    }
    at = (int64_t)(told - calls.base);
    if (at < calls.shown)
        K_FAIL("exact_next", "it is to come %" PRId64 " ns ago", calls.shown - at);
    if (calls.config.at_limit == TAGS_ALLOW) {
        if (at != calls.shown)
            K_FAIL("exact_next", "it is to come in %" PRId64 " ns, and not now", at - calls.shown);
        return;
    }
    if (calls.config.moves_max == 0 && !k_would(at) && !calls.shifted)
        K_FAIL("exact_next", "at the told time, in %" PRId64 " ns, nobody can be sent", at - calls.shown);
    if (at > calls.shown && (k_would(calls.shown) || k_would(at - 1)))
        K_FAIL("exact_next", "somebody can be sent before the told time, in %" PRId64 " ns", at - calls.shown);
}

/* ---- the calls ---- */

static uint32_t k_cost(void)
{
    return (uint32_t)k_draw(k_draw(0, 9) ? 1 : 0, calls.config.cost_max ? calls.config.cost_max : 1);
}

/* The oldest n requests leave, or with `newest` those that came last; the queue may be empty then. */
static void k_leave(uint32_t i, uint32_t n, uint64_t cost, uint32_t at)
{
    struct k_client *c = &calls.client[i];
    uint32_t j;
    for (j = 0; j < n && calls.config.intrusive; j++)
        calls.unused[calls.unused_count++] = c->request[at + j];
    memmove(c->cost + at, c->cost + at + n, sizeof *c->cost * (c->queued - at - n));
    memmove(c->request + at, c->request + at + n, sizeof *c->request * (c->queued - at - n));
    c->queued -= n;
    c->queued_cost = c->queued_cost > (cost ? cost : 1) ? c->queued_cost - (cost ? cost : 1) : 0;
    if (c->queued == 0) {
        c->waiting = false;
        c->queued_cost = 0;
    }
}

/* A time of the caller's: sometimes a wrong one. */
static uint64_t k_time(void)
{
    int64_t at = calls.shown;
    if (world_choice(calls.w, F_CLOCK) >= 2 && k_draw(0, 29) == 0) {
        static const int64_t by[] = {1, 1000, 400000000, 1500000000, 10000000000, 3600000000000};
        at += (k_draw(0, 1) ? 1 : -1) * by[k_draw(0, 5)];
        if (at < -100000000000)
            at = calls.shown;
    }
    k_now(at);
    return calls.base + (uint64_t)at;
}

/* TAGS_REJECT: would the last of n wait longer than is accepted? */
static bool k_rejects(const struct k_client *c, uint32_t n, uint32_t cost)
{
    const uint64_t before = k_cost_counts() ? c->queued_cost + (uint64_t)(n - 1) * cost : c->queued + n - 1;
    const bool idle = c->queued == 0 && c->at_device == 0;
    if (calls.config.at_limit != TAGS_REJECT || !c->limited)
        return false;
    return k_max(c->limit, idle ? calls.t : calls.t - calls.burst) + k_step_ns(c->limit_rate, before) >
           calls.t + (int64_t)calls.config.reject_after_ns;
}

static void k_arrive(uint32_t i)
{
    struct k_client *c = &calls.client[i];
    uint32_t cost = k_cost(), n = calls.config.intrusive ? 1 : (uint32_t)k_draw(1, 3), j, r = 0;
    enum qos_status s, wanted = QOS_OK;
    uint64_t now;
    calls.doing = "arrive";
    if (c->queued + n > K_QUEUE)
        return;
    now = c->is ? k_time() : calls.base + (uint64_t)calls.shown;
    cost = cost ? cost : 1;
    if (!c->is)
        wanted = QOS_ENOENT;
    else if (k_rejects(c, n, cost))
        wanted = QOS_ELIMIT;
    if (calls.config.intrusive) {
        struct tags_request *q = &calls.request[r = calls.unused[calls.unused_count - 1]];
        memset(q, 0, sizeof *q);
        q->cost = cost;
        q->delta = k_draw(0, 9) ? 0 : (uint32_t)k_draw(1, 3);
        q->rho = (uint32_t)k_draw(0, q->delta);
        s = tags_push(&tags, now, i, q);
        calls.unused_count -= s == QOS_OK;
    } else {
        s = tags_arrive(&tags, now, i, n, cost);
    }
    if (s != wanted)
        K_FAIL("exact_call", "client %" PRIu32 ": %d, not %d", i, (int)s, (int)wanted);
    if (wanted == QOS_ELIMIT) {
        c->refused += n;
        calls.all.refused += n;
    }
    if (s != QOS_OK || calls.w->broken)
        return;
    if (c->queued == 0) {
        c->last_cost = cost;
        k_wake(c);
    }
    for (j = 0; j < n; j++) {
        c->request[c->queued] = r;
        c->cost[c->queued++] = cost;
    }
    c->queued_cost += (uint64_t)n * cost;
}

static void k_withdraw(uint32_t i)
{
    struct k_client *c = &calls.client[i];
    uint32_t n = (uint32_t)k_draw(1, 3), at = 0;
    enum qos_status s;
    uint64_t cost;
    calls.doing = "withdraw";
    if (!c->is || c->queued == 0)
        return;
    n = n > c->queued || k_draw(0, 5) == 0 ? c->queued : n;
    if (calls.config.intrusive) {
        n = 1;
        at = (uint32_t)k_draw(0, c->queued - 1);
        cost = c->cost[at];
        s = tags_unlink(&tags, k_time(), &calls.request[c->request[at]]);
    } else {
        cost = c->queued_cost * n / c->queued;
        s = tags_withdraw(&tags, k_time(), i, n);
    }
    if (s != QOS_OK)
        K_FAIL("exact_call", "client %" PRIu32 ": %d", i, (int)s);
    k_leave(i, n, cost, at);
}

static void k_sent(uint32_t i, uint32_t phase, uint32_t cost, uint32_t rho, uint32_t delta, const struct tags_grant *g)
{
    struct k_client *c = &calls.client[i];
    struct k_slot *s = &calls.slot[calls.slots];
    memset(s, 0, sizeof *s);
    s->client = i;
    s->cost = cost ? cost : 1;
    s->rho = rho;
    s->delta = delta;
    s->phase = phase;
    s->sent_ns = calls.t + calls.stood;
    s->grant = *g;
    if (g->client != i || (uint32_t)g->phase != phase || g->cost != s->cost)
        K_FAIL("exact_call", "the grant is of client %" PRIu32 ", phase %u, cost %" PRIu32, g->client,
               (unsigned)g->phase, g->cost);
    k_charge(c, s);
    if (phase != TAGS_PHASE_FORCED) {
        memset(&c->skip, 0, sizeof c->skip);
        c->share_skip = 0;
        c->limit_skip = 0;
        c->fresh = false;
    }
    k_count(c, phase, k_units(s->cost));
    c->at_device++;
    calls.slots++;
}

static void k_send(void)
{
    struct tags_grant g;
    struct tags_choice c = {QOS_NONE, TAGS_PHASE_WEIGHT};
    uint32_t cost = k_cost(), rho = 0, delta = 0, i, tries = 0, queued;
    enum qos_status s, wanted;
    struct tags_request *q = NULL;
    const bool pull = k_draw(0, 1) == 0;
    uint64_t now;
    calls.doing = "send";
    wanted = calls.slots >= calls.config.at_device_max ? QOS_EFULL : QOS_OK;
    memset(&g, 0, sizeof g);
    if (wanted == QOS_EFULL && !calls.config.intrusive && !pull)
        return;
    now = wanted == QOS_EFULL ? calls.base + (uint64_t)calls.shown : k_time(); /* a refused call sees no time */
    for (;;) {
        s = calls.config.intrusive ? tags_pop(&tags, now, &q)
            : pull                 ? tags_pull(&tags, now, cost, &g)
                                   : tags_choose(&tags, now, &c);
        if (s != QOS_EAGAIN || calls.config.moves_max == 0 || ++tries > 20)
            break;
        k_judge_choice(false, 0, TAGS_PHASE_WEIGHT);
        for (i = queued = 0; i < calls.clients; i++)
            queued += calls.client[i].queued;
        if (queued == 0 || (calls.config.at_limit != TAGS_ALLOW && !k_would((int64_t)(now - calls.base))))
            break;
        k_now((int64_t)(now - calls.base));
    }
    if (wanted == QOS_EFULL) {
        if (s != QOS_EFULL)
            K_FAIL("exact_call", "the device is full: %d", (int)s);
        return;
    }
    if (s != QOS_OK && s != QOS_EAGAIN)
        K_FAIL("exact_call", "status %d", (int)s);
    if (s == QOS_OK && calls.config.intrusive) {
        g = q->grant;
        cost = (uint32_t)q->cost;
        rho = q->rho;
        delta = q->delta;
    }
    if (s == QOS_OK && (calls.config.intrusive || pull)) {
        c.client = g.client;
        c.phase = g.phase;
    }
    if (s == QOS_OK && c.client >= calls.clients) {
        K_FAIL("exact", "client %" PRIu32 " is chosen", c.client);
        return;
    }
    if (tries > 20)
        K_FAIL("exact", "nobody is chosen in 20 calls");
    k_judge_choice(s == QOS_OK, c.client, c.phase);
    if (s != QOS_OK || calls.w->broken)
        return;
    i = c.client;
    if (calls.config.intrusive && q != &calls.request[calls.client[i].request[0]]) {
        K_FAIL("exact_list", "of client %" PRIu32 " another request than the oldest was sent", i);
        return;
    }
    if (!calls.config.intrusive && !pull) {
        if (k_draw(0, 9) == 0) {
            delta = (uint32_t)k_draw(1, 3);
            rho = (uint32_t)k_draw(0, delta);
        }
        if (k_draw(0, 3))
            cost = (uint32_t)calls.client[i].cost[0];
        k_now((int64_t)(now - calls.base));
        s = tags_dispatch(&tags, now, &c, cost, rho, delta, &g);
        if (s != QOS_OK) {
            K_FAIL("exact_call", "the dispatch of a choice is refused: %d", (int)s);
            return;
        }
    }
    k_sent(i, (uint32_t)c.phase, cost, rho, delta, &g);
    k_leave(i, 1, cost ? cost : 1, 0);
}

static uint64_t k_debt_units(const struct k_client *c)
{
    uint64_t units;
    if (!c->limited || c->limit <= calls.t)
        return 0;
    units = (uint64_t)(((c->limit - calls.t) * c->limit_rate + 999999999) / 1000000000);
    return units ? units - 1 : 0;
}

static void k_force(uint32_t i)
{
    struct k_client *c = &calls.client[i];
    struct tags_grant g;
    const uint64_t debt = calls.config.force_debt_requests == QOS_NOTHING ? 0 : calls.config.force_debt_requests;
    const uint64_t most = debt * (k_cost_counts() ? calls.config.cost_max : 1);
    uint32_t cost = k_cost(), j, queued = 0;
    long double lead, one, e;
    enum qos_status s;
    bool may;
    calls.doing = "force";
    if (!c->is || calls.slots >= calls.config.at_device_max)
        return;
    s = tags_force(&tags, k_time(), i, cost, &g);
    for (j = 0; j < calls.clients; j++)
        queued += calls.client[j].queued;
    if (c->queued == 0)
        k_wake(c);
    else if (c->waiting)
        k_off_limit(c);
    if (queued == 0 && calls.slots == 0 && c->share > calls.v)
        calls.v = c->share;
    one = (calls.reward ? (long double)(k_mean(c) - k_mean(c) / 4) : (long double)calls.config.cost_max) / k_weight(c);
    lead = c->share - calls.v - one * debt;
    e = 3e-12L + (calls.reward ? 1e-6L + 1e-3L * one : 0);
    may = k_debt_units(c) <= most && lead < e;
    /* On the bound itself rounding decides, where 1 / w or a mean is no binary fraction. */
    if (may && (lead > 1e-15L || (lead > -1e-15L && s == QOS_EDEBT &&
                                  (calls.reward || ((uint64_t)k_weight(c) & ((uint64_t)k_weight(c) - 1))))))
        calls.unsure = true;
    if (calls.unsure)
        return;
    if (s != (may ? QOS_OK : QOS_EDEBT))
        K_FAIL("exact_call", "client %" PRIu32 ": %d; %" PRIu64 " of %" PRIu64 " units owed, the share %.12Lg too far",
               i, (int)s, k_debt_units(c), most, lead);
    if (s != QOS_OK || calls.w->broken) {
        c->refused++;
        calls.all.refused++;
        return;
    }
    k_sent(i, TAGS_PHASE_FORCED, cost, 0, 0, &g);
    c->debt = calls.all.debt = k_debt_units(c);
}

static void k_give_back(void)
{
    uint32_t at, how = (uint32_t)k_draw(0, 9), cost;
    uint64_t service, now;
    struct k_client *c;
    struct k_slot *s;
    struct tags_grant g;
    enum qos_status e;
    long double amount;
    if (calls.slots == 0)
        return;
    at = (uint32_t)k_draw(0, calls.slots - 1);
    if (how == 9) {
        const uint64_t age =
            k_draw(0, 1) ? k_draw(0, 20000000) : (uint64_t)k_max(0, calls.t + calls.stood - calls.slot[0].sent_ns);
        bool old;
        calls.doing = "give up";
        now = k_time();
        s = &calls.slot[0];
        old = calls.t + calls.stood - s->sent_ns >= (int64_t)age;
        e = tags_give_up(&tags, now, age, &g);
        if (e != (old ? QOS_OK : QOS_EAGAIN) || (old && g.serial != s->grant.serial))
            K_FAIL("exact_call", "%d of an age of %" PRIu64 " ns", (int)e, age);
        if (!old || calls.w->broken)
            return;
        service = (uint64_t)(calls.t + calls.stood - s->sent_ns);
        k_now((int64_t)(now - calls.base)); /* it is seen twice */
        c = &calls.client[s->client];
        c->failed++, c->given_up++, calls.all.failed++, calls.all.given_up++;
        k_completed(0, 0, service);
        return;
    }
    calls.doing = how < 3 ? "cancel" : how == 3 ? "fail" : "complete";
    s = &calls.slot[at];
    c = &calls.client[s->client];
    g = s->grant;
    now = k_time();
    if (how < 3) {
        e = tags_cancel(&tags, now, &g);
        if (e != QOS_OK)
            K_FAIL("exact_call", "%d", (int)e);
        c->cancelled++, calls.all.cancelled++;
        amount = calls.reward ? floorl(s->amount) : s->cost;
        k_refund(at, s->by_reserve ? k_units(s->cost) : 0, s->by_limit ? k_units(s->cost) : 0, amount);
        k_credit(s, -(int64_t)amount);
        k_slot_leaves(at);
        return;
    }
    cost = k_draw(0, 3) ? s->cost : k_cost();
    service = k_draw(0, 9) ? k_draw(1, 2000000) : k_draw(0, 1) ? k_draw(0, 300) : k_draw(1, 3000000000);
    g.cost = cost;
    e = how == 3 ? tags_fail(&tags, now, &g, service) : tags_complete(&tags, now, &g, service);
    if (e != QOS_OK)
        K_FAIL("exact_call", "%d", (int)e);
    if (how == 3)
        c->failed++, calls.all.failed++;
    k_completed(at, cost, service);
}

static struct tags_client k_terms(uint32_t i)
{
    static const uint64_t rate[] = {1, 2, 5, 10, 16, 20, 50, 100, 125, 200, 500, 1000};
    static const uint64_t weight[] = {1, 1, 2, 3, 5, 10, 64, 1000};
    struct tags_client t;
    const uint32_t cohort = i % WORLD_COHORTS;
    memset(&t, 0, sizeof t);
    t.weight = weight[k_draw(0, world_choice(calls.w, world_of(cohort, F_WEIGHT)) ? 7 : 1)];
    if (world_choice(calls.w, world_of(cohort, F_LIMIT)) && k_draw(0, 9))
        t.limit_per_s = rate[k_draw(0, 11)];
    if (world_choice(calls.w, world_of(cohort, F_RESERVATION)) && k_draw(0, 9)) {
        t.reservation_per_s = rate[k_draw(0, 11)];
        if (t.limit_per_s && t.limit_per_s < t.reservation_per_s)
            t.limit_per_s = t.reservation_per_s;
    }
    if (t.limit_per_s == 0 && k_draw(0, 3) == 0)
        t.limit_per_s = QOS_UNLIMITED;
    return t;
}

static void k_client_terms(uint32_t i)
{
    struct k_client *c = &calls.client[i];
    struct tags_client t = c->terms.weight && k_draw(0, 2) == 0 ? c->terms : k_terms(i);
    const uint64_t held = c->is ? c->terms.reservation_per_s : 0;
    const bool fits = calls.config.capacity_per_s == 0 || t.reservation_per_s <= held ||
                      k_reserved_sum() - held + t.reservation_per_s <= calls.config.capacity_per_s;
    const uint64_t now = fits ? k_time() : calls.base + (uint64_t)calls.shown;
    const bool was = c->is;
    enum qos_status s;
    calls.doing = was ? "change" : "add";
    s = was ? tags_change(&tags, now, i, &t) : tags_add(&tags, now, i, &t);
    if (s != (fits ? QOS_OK : QOS_EADMISSION))
        K_FAIL("exact_call", "client %" PRIu32 ": %d", i, (int)s);
    if (!fits || calls.w->broken)
        return;
    if (c->queued)
        k_off_limit(c);
    if (was && c->queued) { /* it is in no tree meanwhile */
        const uint32_t queued = c->queued;
        c->queued = 0;
        k_apply(i, &t);
        c->queued = queued;
    } else {
        k_apply(i, &t);
    }
}

static void k_remove(uint32_t i)
{
    struct k_client *c = &calls.client[i];
    uint32_t dropped = UINT32_MAX;
    calls.doing = "remove";
    if (!c->is)
        return;
    if (tags_remove(&tags, k_time(), i, &dropped) != QOS_OK || dropped != c->queued)
        K_FAIL("exact_call", "client %" PRIu32 ": %" PRIu32 " dropped, not %" PRIu32, i, dropped, c->queued);
    if (c->queued)
        k_leave(i, c->queued, c->queued_cost, 0);
    c->is = c->reserved = c->limited = false;
}

/* The list of the client's requests, from tags_head on. */
static void k_lists(void)
{
    uint32_t i, j;
    for (i = 0; i < calls.clients && calls.config.intrusive; i++) {
        const struct k_client *c = &calls.client[i];
        const struct tags_request *q = tags_head(&tags, i);
        for (j = 0; j < c->queued && q == &calls.request[c->request[j]]; j++)
            q = q->next;
        if (j < c->queued || q != NULL)
            K_FAIL("exact_list",
                   "the list of client %" PRIu32 " is another one from request %" PRIu32 " of %" PRIu32 " on", i, j,
                   c->queued);
    }
}

static bool k_setup(struct world *w)
{
    struct tags_config *c = &calls.config;
    static unsigned char *mem;
    static size_t room;
    uint32_t i;
    memset(&calls, 0, sizeof calls);
    calls.w = w;
    calls.doing = "init";
    world_rng_init(&calls.rng, w->seed, 80);
    for (i = 0; i < WORLD_COHORTS; i++)
        calls.clients += (uint32_t)world_choice(w, world_of(i, F_NUMBER)) != 1;
    calls.clients += calls.clients < 2 ? 1 : (uint32_t)k_draw(0, 2);
    calls.reward = world_choice(w, F_MODE) == 1;
    calls.burst = (int64_t)(world_value(w, F_LIMIT_BURST) * 1e6);
    calls.lag = (int64_t)(world_value(w, F_LAG) * 1e6);
    calls.base = (uint64_t)world_value(w, F_BASE) + UINT64_C(400000000000);
    c->clients = calls.clients;
    c->mode = calls.reward ? TAGS_REWARD : TAGS_PS;
    c->at_limit = (enum tags_at_limit)world_choice(w, F_AT_LIMIT);
    c->count_cost = world_choice(w, F_COUNT_COST) == 1;
    c->cost_max = world_choice(w, F_WRONG) ? 1 : k_draw(1, 30);
    c->at_device_max = (uint32_t)k_draw(1, K_DEVICE);
    c->intrusive = world_choice(w, F_INTRUSIVE) == 1;
    c->count_by_client = k_draw(0, 3) != 0;
    c->window = k_draw(0, 1) ? 0 : (uint32_t)k_draw(1, 12);
    c->lead_requests = (uint32_t)world_value(w, F_LEAD);
    c->weight_share_permille = calls.reward ? 0 : (uint32_t)world_value(w, F_BY_WEIGHT);
    c->moves_max = world_choice(w, F_MOVES) == 1 ? 1 : 0;
    c->capacity_per_s = k_draw(0, 3) ? 0 : k_draw(1, 1000);
    c->limit_burst_ns = calls.burst ? (uint64_t)calls.burst : QOS_NOTHING;
    c->reserve_lag_ns = (uint64_t)calls.lag;
    c->reject_after_ns = c->at_limit == TAGS_REJECT && k_draw(0, 1) ? k_draw(0, 300000000) : 0;
    c->force_debt_requests = world_value(w, F_DEBT) > 0 ? (uint64_t)k_draw(1, 4) : QOS_NOTHING;
    c->service_floor_ns = k_draw(0, 1) ? 200 : QOS_NOTHING;
    if (tags_memsize(c) > room) {
        free(mem);
        room = tags_memsize(c);
        mem = (unsigned char *)aligned_alloc(QOS_CACHE_LINE, (room + 63) / 64 * 64);
    }
    if (tags_init(&tags, mem, room, c) != QOS_OK) {
        world_fail(w, "init", 0, "%s", tags_config_error(c) ? tags_config_error(c) : "refused");
        return false;
    }
    c->service_floor_ns = c->service_floor_ns == QOS_NOTHING ? 0 : c->service_floor_ns;
    for (i = 0; i < calls.clients; i++)
        calls.client[i].limit = calls.client[i].reserve.lo = calls.client[i].reserve.hi = -INT64_C(400000000000);
    for (i = 0; i < K_REQUESTS; i++)
        calls.unused[calls.unused_count++] = i;
    return true;
}

/* One program. */
static void k_run(struct world *w)
{
    static const int64_t pace[] = {0, 1000, 1000000, 20000000, 500000000, 3000000000};
    uint64_t steps;
    uint32_t busy, often[8], i, sum;
    if (!k_setup(w))
        return;
    steps = (uint64_t)world_value(w, F_STEPS);
    busy = (uint32_t)k_draw(0, 3);
    for (i = 0; i < 8; i++) /* a swarm: some kinds of calls are rare, or absent */
        often[i] = k_draw(0, 2) ? (uint32_t)k_draw(1, 12) : 0;
    often[0] += 10;
    often[1] += 12;
    often[2] += 3;
    for (calls.step = 1; calls.step <= steps && !w->broken && !calls.unsure; calls.step++) {
        uint32_t who = (uint32_t)k_draw(0, calls.clients - 1), kind;
        if (k_draw(0, 2) == 0)
            calls.shown += (int64_t)k_draw(0, (uint64_t)pace[k_draw(0, 2 + busy)]);
        for (i = sum = 0; i < 8; i++)
            sum += often[i];
        kind = (uint32_t)k_draw(1, sum);
        for (i = 0; kind > often[i]; i++)
            kind -= often[i];
        if (!calls.client[who].is && k_draw(0, 1))
            i = 5;
        switch (i) {
        case 0: k_arrive(who); break;
        case 1: k_send(); break;
        case 2: k_give_back(); break;
        case 3: k_force(who); break;
        case 4: k_withdraw(who); break;
        case 5: k_client_terms(who); break;
        case 6: k_draw(0, 3) ? k_next() : k_remove(who); break;
        default: k_next();
        }
        if (world_tracing)
            world_trace((uint64_t)calls.t, who, calls.doing, calls.step);
        if (!w->broken && !calls.unsure)
            k_told();
        if (!w->broken && !calls.unsure)
            k_lists();
        if (calls.has_old && calls.config.count_by_client && k_draw(0, 15) == 0 && !w->broken &&
            tags_complete(&tags, calls.base + (uint64_t)calls.shown, &calls.old, 1) != QOS_ESTALE)
            K_FAIL("exact_call", "a grant is given back twice");
        w->events++;
    }
}

#endif
