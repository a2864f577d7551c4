// proves: qos.h keeps its promises for callers that a seed draws: buckets, levels, costs, 64 and 128 bits, frames and
// proves: damaged ones, memory layouts, random numbers, shared words, with any arguments, times and orders of calls
// variants: native san cxx i386 s390x
#define WORLD_HEADER "qos"
#define WORLD_COHORTS 3u /* buckets */
#define WORLD_FIELDS(X)                                                                                                \
    X(ONLY, "only", "all integers wide buckets levels cost random bytes frames settings memory words")                 \
    X(STEPS, "steps", "64 4 8 512")                                                                                    \
    X(NUMBERS, "numbers", "any small powers ends")                                                                     \
    X(CLOCK, "clock", "forward back any")
#define WORLD_COHORT(X)                                                                                                \
    X(RATE, "rate", "any 0 1 3 1000 1000000000 1099511627776")                                                         \
    X(BURST, "burst", "any 1 2 1000 4000000000")                                                                       \
    X(TAKES, "takes", "any 1 2 1000 4000000000")                                                                       \
    X(FORCED, "forced", "100 0 500")                                                                                   \
    X(CHANGES, "changes", "0 100")
#include "world_test.h"
#include "qos.h"
#include "digits.h"

/* Every chapter is a function that makes some calls and returns NULL, or what does not hold. */
#define HOLDS(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            return #x;                                                                                                 \
    } while (0)
#define TOKENS UINT64_C(4000000000) /* the most in one bucket, debt or request */
#define RATES (UINT64_C(1) << 40)
#define SUB UINT64_C(1000000000) /* sub-tokens in a token */

/* A bucket by its rules: a level of sub-tokens, negative in debt. And what it granted above rate * time since its terms
 * were set, with the largest request and the largest debt that were asked for meanwhile. */
struct account {
    struct qos_bucket bucket;
    int64_t level, depth;
    uint64_t rate, last_ns, above, largest, debt;
    bool forced;
};

static struct {
    struct world *w;
    struct world_rng rng;
    struct account account[WORLD_COHORTS];
    uint64_t now, said[4]; /* said: arguments of the last calls, for the message */
    uint32_t number;
} run;

static uint64_t any(uint64_t low, uint64_t high)
{
    return world_between(&run.rng, low, high);
}

static uint64_t said(uint64_t x)
{
    run.said[run.number++ % 4] = x;
    return x;
}

/* A 64-bit number: of any size; runs of ones and zeros, which carries and digits of 32 bits meet; the ends. */
static uint64_t number(void)
{
    uint64_t ones = UINT64_MAX >> any(0, 63);
    switch (world_choice(run.w, F_NUMBERS) ? world_choice(run.w, F_NUMBERS) : any(1, 5)) {
    case 1: return said(any(0, 20));
    case 2: return said(any(0, 1) ? ones - any(0, 1) : (UINT64_C(1) << any(0, 63)) + (any(0, 3) == 0));
    case 3: return said(any(0, 1) ? UINT64_MAX - any(0, 2) : any(0, 2));
    case 4: return said(any(0, 1) ? ones ^ UINT64_MAX >> any(0, 63) : ~ones);
    default: return said(any(0, 2) ? world_rand(&run.rng) & ones : (world_rand(&run.rng) | UINT32_MAX) ^ (ones >> 32));
    }
}

/* One in low..high, the ends often. */
static uint64_t between(uint64_t low, uint64_t high)
{
    uint64_t span = high - low;
    switch (any(0, 5)) {
    case 0: return said(low + (span > 2 ? any(0, 2) : 0));
    case 1: return said(high - (span > 2 ? any(0, 2) : 0));
    case 2: return said(any(low, high));
    default: return said(low + (span ? (world_rand(&run.rng) >> any(0, 63)) % span : 0));
    }
}

/* ---- integers, statuses, settings ------------------------------------------------------------------------------------ */

static const char *integers(void)
{
    uint64_t a = number(), b = any(0, 3) ? number() : a, out = 7, bit, zeros;
    struct digits sum = digits_add(digits_of(a), digits_of(b)), product = digits_mul(digits_of(a), digits_of(b));
    bool sum_fits = digits_fits64(sum), product_fits = digits_fits64(product);
    HOLDS(qos_wrap_add(a, b) == digits_low(sum));
    HOLDS(qos_wrap_mul(a, b) == digits_low(product));
    HOLDS(qos_wrap_sub(qos_wrap_add(a, b), b) == a && qos_wrap_sub(a, a) == 0);
    HOLDS(qos_sat_add(a, b) == (sum_fits ? digits_low(sum) : UINT64_MAX));
    HOLDS(qos_sat_mul(a, b) == (product_fits ? digits_low(product) : UINT64_MAX));
    HOLDS(qos_sat_sub(a, b) == (a > b ? a - b : 0) && qos_elapsed_ns(b, a) == (a > b ? a - b : 0));
    HOLDS(qos_min(a, b) == (a < b ? a : b) && qos_max(a, b) == (a < b ? b : a));
    HOLDS(qos_checked_add(a, b, &out) == sum_fits && out == (sum_fits ? digits_low(sum) : 7));
    out = 7;
    HOLDS(qos_checked_mul(a, b, &out) == product_fits && out == (product_fits ? digits_low(product) : 7));
    for (zeros = 0, bit = UINT64_C(1) << 63; bit && !(a & bit); bit >>= 1)
        zeros++;
    HOLDS(qos_clz64(a) == zeros);
    for (zeros = 0; zeros < 64 && !(a >> zeros & 1); zeros++) {
    }
    HOLDS(qos_ctz64(a) == zeros);
    return NULL;
}

static struct digits modulo_128(struct digits a)
{
    int i;
    for (i = 8; i < DIGITS; i++)
        a.d[i] = 0;
    return a;
}

static bool same(struct qos_u128 a, struct digits b)
{
    return digits_compare(digits_of_wide(a.hi, a.lo), modulo_128(b)) == 0;
}

static const char *wide(void)
{
    uint64_t a = number(), b = number(), c = number(), rem = 5, q;
    struct digits product = digits_mul(digits_of(a), digits_of(b)), below;
    struct qos_u128 p = qos_mul_wide(a, b), n, s;
    int order;
    HOLDS(same(p, product));
    n.hi = any(0, 3) ? number() : p.hi;
    n.lo = any(0, 3) ? c : p.lo;
    s = qos_add_wide(p, n);
    HOLDS(same(s, digits_add(product, digits_of_wide(n.hi, n.lo))));
    HOLDS(same(qos_add_wide(qos_sub_wide(n, p), p), digits_of_wide(n.hi, n.lo)));
    order = digits_compare(product, digits_of_wide(n.hi, n.lo));
    HOLDS(qos_cmp_wide(p, n) * order > 0 || (qos_cmp_wide(p, n) == 0 && order == 0));
    n.hi = c && any(0, 7) ? n.hi % c : n.hi; /* mostly the quotient fits */
    q = qos_div_wide(n, c, any(0, 3) ? &rem : NULL);
    HOLDS(qos_div_wide(n, c, &rem) == q);
    if (n.hi >= c)
        HOLDS(q == UINT64_MAX && rem == 0);
    else
        HOLDS(rem < c && digits_compare(digits_add(digits_mul(digits_of(q), digits_of(c)), digits_of(rem)),
                                        digits_of_wide(n.hi, n.lo)) == 0);
    q = qos_mul_div_floor(a, b, c);
    if (c == 0 || digits_compare(product, digits_mul(digits_of_wide(1, 0), digits_of(c))) >= 0) {
        HOLDS(q == UINT64_MAX && qos_mul_div_ceil(a, b, c) == UINT64_MAX);
        return NULL;
    }
    below = digits_mul(digits_of(q), digits_of(c));
    HOLDS(digits_compare(below, product) <= 0 && digits_compare(digits_add(below, digits_of(c)), product) > 0);
    HOLDS(qos_mul_div_ceil(a, b, c) == q + (digits_compare(below, product) < 0 && q < UINT64_MAX));
    return NULL;
}

static const char *settings(void)
{
    struct qos_rule rule[12];
    size_t count = (size_t)any(0, 12), i, first = count;
    const char *why;
    int status = any(0, 3) ? -(int)any(0, 20) : (int)(uint32_t)(world_rand(&run.rng) >> 33);
    uint64_t a = number(), b = number();
    for (i = 0; i < count; i++) {
        rule[i].holds = any(0, 9) > 0;
        rule[i].why = "x";
        if (!rule[i].holds && first == count)
            rule[first = i].why = "the first";
    }
    why = qos_first_broken(rule, count);
    HOLDS(first == count ? !why : why == rule[first].why);
    HOLDS(qos_default(a, b) == (a ? a : b) && qos_default(0, b) == b);
    why = qos_strerror(status);
    HOLDS(why && *why);
    for (i = 0; i < 18; i++) /* each status has a sentence of its own, what is none has another one */
        HOLDS((strcmp(why, qos_strerror(-(int)i)) == 0) == (status == -(int)i));
    return NULL;
}

/* ---- buckets ------------------------------------------------------------------------------------------------------------ */

/* level + rate * elapsed, at most depth. */
static int64_t refilled(int64_t level, int64_t depth, uint64_t rate, uint64_t elapsed)
{
    uint64_t owed = level < 0 ? (uint64_t)-level : 0, room = (uint64_t)(level < 0 ? depth : depth - level) + owed, gain;
    if (rate == 0 || elapsed == 0)
        return level;
    if (elapsed > room / rate)
        return depth;
    gain = elapsed * rate;
    return level >= 0 ? level + (int64_t)gain : gain < owed ? -(int64_t)(owed - gain) : (int64_t)(gain - owed);
}

static int64_t level_at(const struct account *a, uint64_t now)
{
    return now > a->last_ns ? refilled(a->level, a->depth, a->rate, now - a->last_ns) : a->level;
}

static bool grants(const struct account *a, uint64_t now, uint64_t n)
{
    int64_t gate = (int64_t)(n * SUB) < a->depth ? (int64_t)(n * SUB) : a->depth;
    return n == 0 || level_at(a, now) >= gate;
}

static void pass(struct account *a, uint64_t now)
{
    uint64_t elapsed = now > a->last_ns ? now - a->last_ns : 0;
    if (a->rate && elapsed)
        a->above = elapsed > a->above / a->rate ? 0 : a->above - elapsed * a->rate;
    a->level = level_at(a, now);
    a->last_ns = now > a->last_ns ? now : a->last_ns;
}

static const char *next(const struct account *a, uint64_t now, uint64_t n)
{
    uint64_t at = qos_bucket_next_ns(&a->bucket, now, n);
    if (n > TOKENS || at == UINT64_MAX)
        HOLDS(at == UINT64_MAX && (n > TOKENS || !grants(a, UINT64_MAX - 1, n)));
    else
        HOLDS(at >= now && grants(a, at, n) && (at == now || !grants(a, at - 1, n)));
    return NULL;
}

static uint64_t of(uint32_t k, uint32_t field, uint64_t low, uint64_t high)
{
    uint64_t value = (uint64_t)world_value(run.w, world_of(k, field));
    return world_choice(run.w, world_of(k, field)) ? said(value) : between(low, high);
}

/* The time of the next call: the same, about a token later, some time later, and with F_CLOCK earlier or any. */
static uint64_t tick(uint64_t rate)
{
    uint64_t step = 0;
    switch (any(0, 8)) {
    case 0:
    case 1: break;
    case 2: step = any(0, UINT64_C(1) << any(0, 45)); break;
    case 3:
    case 4: step = rate ? SUB / rate + 1 : 1; break;
    case 5:
        if (world_choice(run.w, F_CLOCK) && run.now > 0)
            return said(run.now - any(0, run.now < 5000 ? run.now : 5000));
        break;
    case 6:
        if (world_choice(run.w, F_CLOCK) == 2)
            return said(world_rand(&run.rng));
        break;
    default: step = any(0, UINT64_C(1) << any(0, 32));
    }
    run.now = step > UINT64_MAX - run.now ? run.now : run.now + step;
    return said(run.now);
}

static void begin(uint32_t k, struct account *a, uint64_t now)
{
    a->rate = of(k, F_RATE, 0, RATES);
    a->depth = (int64_t)(of(k, F_BURST, 1, TOKENS) * SUB);
    a->above = a->largest = a->debt = 0;
    a->forced = false;
    if (a->bucket.depth == 0 && qos_bucket_init(&a->bucket, now, a->rate, (uint64_t)a->depth / SUB) == QOS_OK)
        a->last_ns = now;
}

/* Calls with a number out of range, or that the bucket refuses: it is as it was. */
static const char *refused(uint32_t k, uint64_t now, uint64_t n)
{
    const struct qos_bucket was = run.account[k].bucket;
    struct qos_bucket *b = &run.account[k].bucket;
    uint64_t above = TOKENS + 1 + (any(0, 1) ? number() >> 1 : 0), rate = RATES + 1 + (any(0, 1) ? number() >> 1 : 0);
    HOLDS(qos_bucket_take(b, now, above) == QOS_ERANGE && qos_bucket_put(b, now, above) == QOS_ERANGE);
    HOLDS(qos_bucket_force(b, now, above, n) == QOS_ERANGE && qos_bucket_force(b, now, n, above) == QOS_ERANGE);
    HOLDS(qos_bucket_set_rate(b, now, rate, 1) == QOS_ERANGE && qos_bucket_set_rate(b, now, 1, 0) == QOS_ERANGE);
    HOLDS(qos_bucket_set_rate(b, now, 1, above) == QOS_ERANGE && qos_bucket_init(b, now, 1, above) == QOS_ERANGE);
    HOLDS(qos_bucket_init(b, now, rate, 1) == QOS_ERANGE && qos_bucket_init(b, now, 1, 0) == QOS_ERANGE);
    HOLDS(qos_bucket_next_ns(b, now, above) == UINT64_MAX);
    if (!grants(&run.account[k], now, n))
        HOLDS(qos_bucket_take(b, now, n) == QOS_EAGAIN);
    HOLDS(memcmp(&was, b, sizeof was) == 0);
    return NULL;
}

/* `window`: granted <= r w + max(d, n), with forced ones r w + d + m + n. */
static void granted(struct account *a, uint64_t n)
{
    uint64_t d = (uint64_t)a->depth, most;
    a->largest = n > a->largest ? n : a->largest;
    most = a->forced ? d + (a->debt + a->largest) * SUB : d > a->largest * SUB ? d : a->largest * SUB;
    a->above += n * SUB;
    if (a->above > most)
        world_fail(run.w, "window", run.now, "a bucket granted %" PRIu64 " sub-tokens above r w, allowed %" PRIu64,
                   a->above, most);
}

static const char *forces(struct account *a, uint64_t now, uint64_t n)
{
    uint64_t most = between(0, TOKENS);
    if (level_at(a, now) < -(int64_t)(most * SUB)) {
        const struct qos_bucket was = a->bucket;
        HOLDS(qos_bucket_force(&a->bucket, now, n, most) == QOS_EDEBT);
        HOLDS(memcmp(&was, &a->bucket, sizeof was) == 0);
        return NULL;
    }
    HOLDS(qos_bucket_force(&a->bucket, now, n, most) == QOS_OK);
    pass(a, now);
    a->level -= (int64_t)(n * SUB);
    a->debt = most > a->debt ? most : a->debt;
    a->forced = true;
    granted(a, n);
    return NULL;
}

static const char *buckets(void)
{
    uint32_t k = (uint32_t)any(0, WORLD_COHORTS - 1);
    struct account *a = &run.account[k];
    uint64_t now = tick(a->rate), n = any(0, 9) ? of(k, F_TAKES, 1, TOKENS) : any(0, 1);
    const char *wrong = next(a, now, n);
    if (!wrong && any(0, 7) == 0)
        wrong = refused(k, now, n);
    if (wrong)
        return wrong;
    if (world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(k, F_CHANGES)))) {
        pass(a, now);
        begin(k, a, now);
        a->level = a->level < a->depth ? a->level : a->depth;
        HOLDS(qos_bucket_set_rate(&a->bucket, now, a->rate, (uint64_t)a->depth / SUB) == QOS_OK);
    } else if (world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(k, F_FORCED)))) {
        wrong = forces(a, now, n);
    } else if (any(0, 9) == 0) {
        HOLDS(qos_bucket_put(&a->bucket, now, n) == QOS_OK);
        pass(a, now);
        a->level = a->level > a->depth - (int64_t)(n * SUB) ? a->depth : a->level + (int64_t)(n * SUB);
        a->above = 0;
    } else if (grants(a, now, n)) {
        HOLDS(qos_bucket_take(&a->bucket, now, n) == QOS_OK);
        pass(a, now);
        a->level -= (int64_t)(n * SUB);
        granted(a, n);
    } else {
        const struct qos_bucket was = a->bucket;
        HOLDS(qos_bucket_take(&a->bucket, now, n) == QOS_EAGAIN);
        HOLDS(memcmp(&was, &a->bucket, sizeof was) == 0);
    }
    if (any(0, 3) == 0) {
        qos_bucket_refill(&a->bucket, now);
        pass(a, now);
    }
    if (!wrong)
        HOLDS(a->bucket.level == a->level && a->bucket.last_ns == a->last_ns && a->bucket.depth == a->depth &&
              a->bucket.rate_per_s == a->rate);
    return wrong;
}

/* The arithmetic on bare levels. */
static const char *levels(void)
{
    const int64_t lowest = -2 * (int64_t)(TOKENS * SUB);
    int64_t depth = (int64_t)between(1, TOKENS * SUB), n = (int64_t)between(0, TOKENS * SUB), gate;
    uint64_t below = between(0, (uint64_t)depth + 2 * TOKENS * SUB), owed, lack, wait, room;
    int64_t level = below > (uint64_t)depth ? -(int64_t)(below - (uint64_t)depth) : depth - (int64_t)below;
    uint64_t rate = between(0, RATES), elapsed = number();
    int64_t above = (int64_t)between((uint64_t)depth, TOKENS * SUB);
    HOLDS(qos_level_refill(level, depth, rate, elapsed) == refilled(level, depth, rate, elapsed));
    HOLDS(qos_level_refill(above, depth, rate, elapsed) == above);
    gate = qos_level_gate(depth, n);
    HOLDS(gate == (n < depth ? n : depth));
    wait = qos_level_wait_ns(level, gate, rate);
    if (level >= gate) {
        HOLDS(wait == 0);
    } else if (rate == 0) {
        HOLDS(wait == UINT64_MAX);
    } else {
        lack = level < 0 ? (uint64_t)gate + (uint64_t)-level : (uint64_t)(gate - level);
        HOLDS(digits_compare(digits_mul(digits_of(wait), digits_of(rate)), digits_of(lack)) >= 0);
        HOLDS(wait > 0 && digits_compare(digits_mul(digits_of(wait - 1), digits_of(rate)), digits_of(lack)) < 0);
    }
    room = (uint64_t)depth + 2 * TOKENS * SUB - below;
    HOLDS(qos_level_charge(level, n) == (room < (uint64_t)n ? lowest : level - n));
    owed = level < 0 ? (uint64_t)-level : 0;
    HOLDS(qos_level_debt(level) * SUB >= owed && (owed == 0 || (qos_level_debt(level) - 1) * SUB < owed));
    HOLDS(owed || qos_level_debt(level) == 0);
    return NULL;
}

/* fixed + len * per_mib / 2^20, rounded up, in 1..QOS_TOKENS_MAX. */
static uint64_t cost_of(uint64_t fixed, uint64_t per_mib, uint64_t len)
{
    uint32_t low, high;
    struct digits c = digits_mul(digits_of(len), digits_of(per_mib));
    c = digits_div_small(digits_div_small(c, 1024, &low), 1024, &high);
    c = digits_add(c, digits_of(fixed + (low || high)));
    return digits_compare(c, digits_of(TOKENS)) > 0 ? TOKENS : digits_low(c) ? digits_low(c) : 1;
}

static const char *cost(void)
{
    struct qos_cost_model m, was;
    uint64_t len = number(), small = between(0, 5000), large = small + between(0, UINT64_C(1) << any(1, 41)), extra;
    uint64_t less = between(0, TOKENS + 1), more = any(0, 3) ? less + between(0, TOKENS) : between(0, TOKENS + 1);
    enum qos_op op = any(0, 1) ? QOS_WRITE : QOS_READ;
    bool fits = small && small < large && large <= RATES && less && less <= TOKENS && more && more <= TOKENS;
    bool steep = fits && more > less &&
                 digits_compare(digits_mul(digits_of(more - less), digits_of(UINT64_C(1) << 20)),
                                digits_mul(digits_of(large - small), digits_of(RATES))) > 0;
    m.fixed_cost[0] = between(0, TOKENS);
    m.fixed_cost[1] = between(0, TOKENS);
    m.per_mib_cost[0] = between(0, RATES);
    m.per_mib_cost[1] = between(0, RATES);
    was = m;
    HOLDS(qos_cost(&m, QOS_READ, len) == cost_of(m.fixed_cost[0], m.per_mib_cost[0], len));
    HOLDS(qos_cost(&m, QOS_WRITE, len) == cost_of(m.fixed_cost[1], m.per_mib_cost[1], len));
    if (!fits || steep) {
        HOLDS(qos_cost_fit(&m, op, small, less, large, more) == QOS_ERANGE && memcmp(&m, &was, sizeof m) == 0);
        return NULL;
    }
    HOLDS(qos_cost_fit(&m, op, small, less, large, more) == QOS_OK);
    HOLDS(m.fixed_cost[!op] == was.fixed_cost[!op] && m.per_mib_cost[!op] == was.per_mib_cost[!op]);
    HOLDS(m.fixed_cost[op] <= TOKENS && m.per_mib_cost[op] <= RATES && (more > less || m.per_mib_cost[op] == 0));
    HOLDS(cost_of(m.fixed_cost[op], m.per_mib_cost[op], small) >= less);
    HOLDS(cost_of(m.fixed_cost[op], m.per_mib_cost[op], large) >= more);
    if (m.fixed_cost[op] == 0)
        return NULL;
    HOLDS(cost_of(m.fixed_cost[op], m.per_mib_cost[op], small) == less);
    extra = (large - small) / 1048576 + 3; /* a slope rounded up */
    HOLDS(cost_of(m.fixed_cost[op], m.per_mib_cost[op], large) <= (more > less ? more : less) + extra);
    return NULL;
}

/* ---- random numbers ------------------------------------------------------------------------------------------------------- */

static const char *random_numbers(void)
{
    struct qos_rng r, again;
    struct world_rng plain; /* splitmix64, too */
    uint64_t bound, seed = number();
    uint32_t i, of_three[3] = {0, 0, 0}, of_few[8] = {0, 0, 0, 0, 0, 0, 0, 0}, few = (uint32_t)any(1, 8);
    qos_rng_seed(&r, seed);
    plain.s = seed;
    for (i = 0; i < 4; i++)
        HOLDS(qos_rng_u64(&r) == world_rand(&plain));
    again = r;
    bound = number();
    HOLDS(qos_rng_below(&r, bound) == qos_rng_below(&again, bound));
    for (i = 0; i < 4; i++)
        HOLDS(bound ? qos_rng_below(&r, bound) < bound : qos_rng_below(&r, bound) == 0);
    if (any(0, 3))
        return NULL;
    /* 600 draws: each of three, and of a few, as often as the others within seven deviations. */
    for (i = 0; i < 600; i++) {
        uint64_t x = qos_rng_below(&r, (UINT64_C(3) << 62)), y = qos_rng_below(&r, few);
        HOLDS(x < UINT64_C(3) << 62 && y < few);
        of_three[x % 3]++;
        of_few[y]++;
    }
    for (i = 0; i < 3; i++)
        HOLDS(of_three[i] > 200 - 81 && of_three[i] < 200 + 81);
    for (i = 0; i < few; i++) {
        int64_t off = (int64_t)of_few[i] * few - 600;
        HOLDS(off * off <= 49 * 600 * (int64_t)few);
    }
    return NULL;
}

/* ---- bytes and frames --------------------------------------------------------------------------------------------------- */

static uint32_t crc_of(uint32_t crc, const uint8_t *p, size_t len)
{
    uint32_t k;
    for (crc = ~crc; len > 0; len--, p++)
        for (crc ^= *p, k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    return ~crc;
}

static uint64_t little(const uint8_t *p, size_t bytes)
{
    return bytes ? *p | little(p + 1, bytes - 1) << 8 : 0;
}

static void put_little(uint8_t *p, size_t bytes, uint64_t v)
{
    for (; bytes > 0; bytes--, v >>= 8)
        *p++ = (uint8_t)(v & 255);
}

static void noise(uint8_t *p, size_t bytes)
{
    for (; bytes > 0; bytes--)
        *p++ = (uint8_t)(world_rand(&run.rng) >> 56);
}

/* Numbers at any place; a writer, and a reader of what it wrote, up to and past the end. */
static const char *bytes(void)
{
    uint8_t have[96], want[96], *at = have + any(1, 8);
    size_t size = (size_t)any(0, 80), pos, part, width;
    uint64_t v = number();
    uint32_t begun = (uint32_t)(v >> 32);
    struct qos_writer w;
    struct qos_reader r;
    bool bad = false;
    noise(have, sizeof have);
    HOLDS(qos_get_le16(at) == little(at, 2) && qos_get_le32(at) == little(at, 4) && qos_get_le64(at) == little(at, 8));
    part = (size_t)any(0, size);
    HOLDS(qos_crc32c(begun, at, size) == crc_of(begun, at, size));
    HOLDS(qos_crc32c(qos_crc32c(0, at, part), at + part, size - part) == crc_of(0, at, size));
    memcpy(want, have, sizeof have);
    put_little(want + (at - have), 2, v & 0xffff);
    put_little(want + (at - have) + 3, 4, v & 0xffffffffu);
    put_little(want + (at - have) + 8, 8, v);
    qos_put_le16(at, (uint16_t)(v & 0xffff));
    qos_put_le32(at + 3, (uint32_t)(v & 0xffffffffu));
    qos_put_le64(at + 8, v);
    HOLDS(memcmp(have, want, sizeof have) == 0);
    qos_writer_init(&w, at, size);
    for (pos = 0; any(0, 15);) {
        width = (size_t)1 << any(0, 3);
        v = number();
        if (width == 1)
            qos_write_u8(&w, (uint8_t)(v & 0xff));
        else if (width == 2)
            qos_write_u16(&w, (uint16_t)(v & 0xffff));
        else if (width == 4)
            qos_write_u32(&w, (uint32_t)(v & 0xffffffffu));
        else
            qos_write_u64(&w, v);
        bad = bad || width > size - pos;
        if (!bad)
            put_little(want + (at - have) + pos, width, v);
        pos += bad ? 0 : width;
        HOLDS(w.bad == bad && w.pos == pos && memcmp(have, want, sizeof have) == 0);
    }
    qos_reader_init(&r, at, size);
    for (pos = 0, bad = false; any(0, 15);) {
        width = (size_t)1 << any(0, 3);
        bad = bad || width > size - pos;
        v = width == 1   ? qos_read_u8(&r)
            : width == 2 ? qos_read_u16(&r)
            : width == 4 ? qos_read_u32(&r)
                         : qos_read_u64(&r);
        HOLDS(v == (bad ? 0 : little(at + pos, width)));
        pos += bad ? 0 : width;
        HOLDS(r.bad == bad && r.pos == pos);
    }
    return NULL;
}

/* What the six rules of a frame say of these bytes. */
static int judged(const uint8_t *b, size_t size, uint32_t magic, uint16_t newest)
{
    if (size < 20)
        return QOS_ETRUNCATED;
    if (little(b, 4) != magic || little(b + 12, 4) != crc_of(0, b, 12))
        return QOS_ECORRUPT;
    if (little(b + 4, 2) > newest)
        return QOS_EVERSION;
    if (size - 20 < little(b + 8, 4))
        return QOS_ETRUNCATED;
    if (little(b + 16, 4) != crc_of(crc_of(0, b, 16), b + 20, (size_t)little(b + 8, 4)))
        return QOS_ECORRUPT;
    return QOS_OK;
}

static const char *frames(void)
{
    static uint8_t have[1200], want[1200];
    struct qos_frame f, g;
    size_t payload = (size_t)any(0, any(0, 9) ? 40 : 1000), size = payload + 20, room = (size_t)any(0, size + 40),
           len = 3;
    uint32_t magic = (uint32_t)(number() & 0xffffffffu);
    uint16_t newest = (uint16_t)(number() & 0xffff);
    const uint8_t *payload_at = have + 20;
    enum qos_status s;
    memset(&f, 0, sizeof f);
    f.magic = magic;
    f.version = (uint16_t)(any(0, 3) ? any(0, newest) : number() & 0xffff);
    f.type = (uint16_t)(number() & 0xffff);
    f.payload_bytes = (uint32_t)payload;
    noise(have, size + 60);
    memcpy(want, have, size + 60);
    if (any(0, 15) == 0) {
        f.payload_bytes = UINT32_MAX - (uint32_t)any(0, 30);
        HOLDS(qos_frame_seal(&f, have, size, &len) == QOS_EMEMORY && len == 3);
        f.payload_bytes = (uint32_t)payload;
        HOLDS(qos_frame_seal(NULL, have, size, &len) == QOS_EINVAL && len == 3);
        HOLDS(qos_frame_seal(&f, NULL, size, &len) == QOS_EINVAL && len == 3);
        HOLDS(qos_frame_seal(&f, have, size, NULL) == QOS_EINVAL);
    }
    s = qos_frame_seal(&f, have, room, &len);
    if (room < size) {
        HOLDS(s == QOS_EMEMORY && len == 3 && memcmp(have, want, size + 60) == 0);
        HOLDS(qos_frame_seal(&f, have, size, &len) == QOS_OK && len == size);
    } else {
        HOLDS(s == QOS_OK && len == size);
    }
    put_little(want, 4, magic);
    put_little(want + 4, 2, f.version);
    put_little(want + 6, 2, f.type);
    put_little(want + 8, 4, payload);
    put_little(want + 12, 4, crc_of(0, want, 12));
    put_little(want + 16, 4, crc_of(crc_of(0, want, 16), payload_at, payload));
    HOLDS(memcmp(have, want, size + 60) == 0);
    switch (any(0, 7)) { /* damage */
    case 0:
    case 1: { /* a bit */
        size_t bit = (size_t)any(0, 8 * (any(0, 1) ? size : 20) - 1);
        have[bit / 8] = (uint8_t)(have[bit / 8] ^ 1u << bit % 8);
        break;
    }
    case 2: noise(have + any(0, size - 1), (size_t)any(1, 8)); break;
    case 3: /* a header that is whole, of another length */
        put_little(have + 8, 4, any(0, 1) ? any(0, payload + 40) : number() & 0xffffffffu);
        put_little(have + 12, 4, crc_of(0, have, 12));
        if (any(0, 1) && little(have + 8, 4) <= payload)
            put_little(have + 16, 4, crc_of(crc_of(0, have, 16), have + 20, (size_t)little(have + 8, 4)));
        break;
    case 4: magic ^= 1u << any(0, 31); break;
    default: break;
    }
    size = any(0, 1) ? (size_t)any(0, size + 40) : size - (any(0, 3) == 0);
    memset(&g, 0x77, sizeof g);
    f = g;
    s = qos_frame_open(have, size, magic, newest, &g);
    HOLDS(s == judged(have, size, magic, newest));
    if (s != QOS_OK)
        HOLDS(memcmp(&f, &g, sizeof g) == 0);
    else
        HOLDS(g.magic == magic && g.version == little(have + 4, 2) && g.type == little(have + 6, 2) &&
              g.payload_bytes == little(have + 8, 4));
    HOLDS(qos_frame_open(NULL, size, magic, newest, &g) == QOS_EINVAL);
    HOLDS(qos_frame_open(have, size, magic, newest, NULL) == QOS_EINVAL);
    return NULL;
}

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

static const char *memory(void)
{
    static unsigned char block[16384] __attribute__((aligned(256)));
    struct qos_layout measured, placed;
    unsigned char *end = block;
    size_t strictest = 1, most = 0, need;
    uint32_t parts = (uint32_t)any(0, 6), i;
    bool overflow = false, large = any(0, 7) == 0;
    qos_layout_begin(&measured, NULL);
    qos_layout_begin(&placed, block);
    for (i = 0; i < parts; i++) {
        size_t align = (size_t)1 << any(0, 8), count = (size_t)any(0, 30), item = (size_t)any(0, 60);
        unsigned char *p;
        if (large && any(0, 1)) {
            count = (size_t)(number() & SIZE_MAX);
            item = any(0, 1) ? 1 : (size_t)(number() & SIZE_MAX);
        }
        strictest = align > strictest ? align : strictest;
        HOLDS(qos_layout_part(&measured, count, item, align) == NULL);
        overflow = overflow || most > SIZE_MAX - (align - 1) || (item && count > SIZE_MAX / item);
        most = overflow ? most : (most + (align - 1)) / align * align;
        overflow = overflow || most > SIZE_MAX - count * item;
        most += overflow ? 0 : count * item;
        if (large)
            continue;
        p = (unsigned char *)qos_layout_part(&placed, count, item, align);
        HOLDS(p >= end && (uintptr_t)p % align == 0 && p < end + align);
        end = p + count * item;
    }
    overflow = overflow || most > SIZE_MAX - (strictest - 1);
    need = overflow ? 0 : (most + (strictest - 1)) / strictest * strictest;
    HOLDS(qos_layout_size_bytes(&measured) == need && (large || qos_layout_size_bytes(&placed) == need));
    HOLDS(qos_layout_check(&measured, NULL, need) == (overflow ? qos_layout_check(&measured, NULL, need) : QOS_EINVAL));
    if (overflow)
        HOLDS(qos_layout_check(&measured, block, SIZE_MAX) == QOS_ERANGE);
    else
        HOLDS(qos_layout_check(&measured, block, need + (size_t)any(0, SIZE_MAX - need)) == QOS_OK &&
              (need == 0 || qos_layout_check(&measured, block, need - 1 - (size_t)any(0, 1) % need) == QOS_EMEMORY) &&
              (strictest == 1 || qos_layout_check(&measured, block + any(1, strictest - 1), need) == QOS_EALIGN));
    return NULL;
}

/* ---- shared words ----------------------------------------------------------------------------------------------------------- */

static const char *words(void)
{
    uint64_t a = number(), b = any(0, 1) ? a : number(), c = number(), d = number();
    struct qos_counters live = {a, b, c, d};
    struct qos_stats out;
    memset(&out, 0x55, sizeof out);
    qos_counters_read(&live, &out);
    HOLDS(out.granted == a && out.borrowed == b && out.refused == c && out.waited == d && out.debt == 0);
    qos_counter_add(&live.granted, d);
    HOLDS(qos_counter_read(&live.granted) == digits_low(digits_add(digits_of(a), digits_of(d))) && live.borrowed == b);
#if QOS_HAS_ATOMIC64
    {
        qos_word_t word = a;
        uint64_t expected = b;
        uint64_t way = any(0, 2);
        bool swapped = way == 0   ? qos_atomic_cas_relaxed(&word, &expected, c)
                       : way == 1 ? qos_atomic_cas_release(&word, &expected, c)
                                  : qos_atomic_cas_seq_cst(&word, &expected, c);
        HOLDS(swapped == (a == b) && expected == a && word == (a == b ? c : a));
        HOLDS(qos_atomic_load_relaxed(&word) == word && qos_atomic_load_acquire(&word) == word &&
              qos_atomic_load_seq_cst(&word) == word);
        if (way == 0)
            qos_atomic_store_relaxed(&word, d);
        else
            qos_atomic_store_release(&word, d);
        HOLDS(word == d && qos_atomic_add_relaxed(&word, c) == d);
        HOLDS(word == digits_low(digits_add(digits_of(c), digits_of(d))));
    }
#endif
    return NULL;
}

/* ---- the world ------------------------------------------------------------------------------------------------------------- */

/* What a chapter said. */
static void said_world_fail(struct world *w, const char *oracle, const char *what)
{
    if (what)
        world_fail(w, oracle, run.now, "not %.120s; of late %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64, what,
                   run.said[run.number % 4], run.said[(run.number + 1) % 4], run.said[(run.number + 2) % 4],
                   run.said[(run.number + 3) % 4]);
}

static void step(uint32_t chapter)
{
    const char *wrong = NULL;
    switch (chapter) {
    case 1: said_world_fail(run.w, "integers", integers()); break;
    case 2: said_world_fail(run.w, "wide", wide()); break;
    case 4: said_world_fail(run.w, "levels", levels()); break;
    case 5: said_world_fail(run.w, "cost", cost()); break;
    case 6: said_world_fail(run.w, "random", random_numbers()); break;
    case 7: said_world_fail(run.w, "bytes", bytes()); break;
    case 8: said_world_fail(run.w, "frames", frames()); break;
    case 9: said_world_fail(run.w, "settings", settings()); break;
    case 10: said_world_fail(run.w, "memory", memory()); break;
    case 11: said_world_fail(run.w, "words", words()); break;
    default:
        wrong = buckets();
        said_world_fail(run.w, wrong && strstr(wrong, "sizeof was") ? "unchanged" : "bucket", wrong);
    }
}

static void world_run(struct world *w)
{
    uint32_t steps = (uint32_t)world_value(w, F_STEPS), only = world_choice(w, F_ONLY), i, k;
    memset(&run, 0, sizeof run);
    run.w = w;
    world_rng_init(&run.rng, w->seed, 80);
    run.now = any(0, 1) ? 0 : any(0, UINT64_MAX);
    for (k = 0; k < WORLD_COHORTS; k++)
        begin(k, &run.account[k], run.now);
    for (i = 0; i < steps && !w->broken; i++) {
        w->events++;
        check_state.checks++;
        step(only ? only : (uint32_t)any(1, 22)); /* half of them: buckets */
    }
}

int main(int argc, char **argv)
{
    static const struct world_open open[] = {{0, NULL}};
    return world_main(argc, argv, "tests/world/qos.worlds", 20000, open);
}
