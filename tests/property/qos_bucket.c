// proves: a bucket's grants, refusals, debts and predicted times equal those of unbounded arithmetic, at any rate,
// proves: polling pattern and clock. Over an hour it grants rate x time, within one burst
#include "qos.h"
#include "check.h"
#include "digits.h"

/* The oracle: a level in sub-tokens. An offset is added, so that debts need no sign. Nothing can overflow. */
struct oracle {
    struct digits level, depth; /* both above the offset */
    uint64_t rate, burst, last;
};

#define SUB UINT64_C(1000000000)
static struct digits offset_level(uint64_t tokens)
{
    return digits_add(digits_of(UINT64_C(10000000000000000000)), digits_mul(digits_of(tokens), digits_of(SUB)));
}

static struct digits tokens_of(uint64_t n)
{
    return digits_mul(digits_of(n), digits_of(SUB));
}

static struct digits level_at(const struct oracle *o, uint64_t now)
{
    struct digits level = o->level;
    if (now > o->last)
        level = digits_add(level, digits_mul(digits_of(now - o->last), digits_of(o->rate)));
    return digits_compare(level, o->depth) > 0 ? o->depth : level;
}

static void pass_time(struct oracle *o, uint64_t now)
{
    o->level = level_at(o, now);
    o->last = now > o->last ? now : o->last;
}

/* Would a take of n be granted at this time? */
static bool grants(const struct oracle *o, uint64_t now, uint64_t n)
{
    uint64_t gate = n < o->burst ? n : o->burst;
    return n == 0 || digits_compare(level_at(o, now), offset_level(gate)) >= 0;
}

static uint64_t pick_rate(struct check_rng *rng)
{
    static const uint64_t some[] = {0, 1, 3, 7, 1000, 999999999, 1000000000, 1000000007, UINT64_C(1000000000000)};
    uint64_t i = check_between(rng, 0, 10);
    return i < 9    ? some[i]
           : i == 9 ? UINT64_C(1) << 40
                    : check_between(rng, 1, UINT64_C(1) << check_between(rng, 1, 40));
}

static uint64_t pick_tokens(struct check_rng *rng)
{
    switch (check_between(rng, 0, 4)) {
    case 0: return check_between(rng, 1, 10);
    case 1: return UINT64_C(4000000000) - check_between(rng, 0, 2);
    default: return check_between(rng, 1, UINT64_C(1) << check_between(rng, 0, 31));
    }
}

static uint64_t move_clock(struct check_rng *rng, uint64_t now, uint64_t rate)
{
    uint64_t step;
    switch (check_between(rng, 0, 9)) {
    case 0: return now - check_between(rng, 0, now < 5000 ? now : 5000); /* backwards */
    case 1: return check_between(rng, 0, 50) ? now : check_rand(rng);    /* the same time; rarely, any time */
    case 2: step = UINT64_C(1) << check_between(rng, 0, 45); break;
    case 3: step = rate ? SUB / rate + 1 : 1; break; /* about a token */
    default: step = check_between(rng, 0, UINT64_C(1) << check_between(rng, 0, 32)); break;
    }
    return step > UINT64_MAX - now ? now : now + step;
}

static void check_next(const struct qos_bucket *b, const struct oracle *o, uint64_t now, uint64_t n)
{
    uint64_t next = qos_bucket_next_ns(b, now, n);
    CHECK(next >= now);
    if (next == UINT64_MAX) { /* never: not at the last nanosecond, nor one before it */
        CHECK(!grants(o, UINT64_MAX - 1, n));
        return;
    }
    CHECK(grants(o, next, n));
    if (next > now) /* it is the first time: a nanosecond earlier fails */
        CHECK(!grants(o, next - 1, n));
}

static void check_operation(struct check_rng *rng, struct qos_bucket *b, struct oracle *o, uint64_t now)
{
    uint64_t n = check_between(rng, 0, 3) ? pick_tokens(rng) : check_between(rng, 0, 1), most, owed;
    struct digits zero = offset_level(0);
    check_next(b, o, now, n);
    switch (check_between(rng, 0, 9)) {
    case 0:
        CHECK_EQ(qos_bucket_put(b, now, n), QOS_OK);
        pass_time(o, now);
        o->level = digits_add(o->level, tokens_of(n));
        if (digits_compare(o->level, o->depth) > 0)
            o->level = o->depth;
        break;
    case 1:
        most = check_between(rng, 0, 1) ? 0 : pick_tokens(rng);
        if (digits_compare(digits_add(level_at(o, now), tokens_of(most)), zero) < 0) {
            CHECK_EQ(qos_bucket_force(b, now, n, most), QOS_EDEBT);
        } else {
            CHECK_EQ(qos_bucket_force(b, now, n, most), QOS_OK);
            pass_time(o, now);
            o->level = digits_sub(o->level, tokens_of(n));
        }
        break;
    case 2:
        pass_time(o, now);
        o->rate = pick_rate(rng);
        o->burst = pick_tokens(rng);
        o->depth = offset_level(o->burst);
        pass_time(o, now);
        CHECK_EQ(qos_bucket_set_rate(b, now, o->rate, o->burst), QOS_OK);
        break;
    default:
        if (grants(o, now, n)) {
            CHECK_EQ(qos_bucket_take(b, now, n), QOS_OK);
            pass_time(o, now);
            o->level = digits_sub(o->level, tokens_of(n));
        } else {
            CHECK_EQ(qos_bucket_take(b, now, n), QOS_EAGAIN);
        }
    }
    /* The object itself is compared: a refused call has not even moved its clock. */
    if (check_between(rng, 0, 3) == 0) {
        qos_bucket_refill(b, now);
        pass_time(o, now);
    }
    CHECK_EQ(b->last_ns, o->last);
    CHECK(digits_compare(digits_add(zero, digits_of((uint64_t)(b->level < 0 ? 0 : b->level))),
                         digits_add(o->level, digits_of((uint64_t)(b->level < 0 ? -b->level : 0)))) == 0);
    owed = digits_compare(o->level, zero) >= 0
               ? 0
               : digits_low(digits_sub(zero, o->level)) / SUB + (digits_low(digits_sub(zero, o->level)) % SUB != 0);
    CHECK_EQ(qos_level_debt(b->level), owed);
}

static void random_life(struct check_rng *rng, uint64_t life)
{
    struct qos_bucket b;
    struct oracle o;
    uint64_t now = check_between(rng, 0, 1) ? 0 : check_rand(rng), step;
    o.rate = pick_rate(rng);
    o.burst = pick_tokens(rng);
    o.depth = offset_level(o.burst);
    o.level = offset_level(0);
    o.last = now;
    memset(&b, 0, sizeof b);
    CHECK_EQ(qos_bucket_init(&b, now, o.rate, o.burst), QOS_OK);
    for (step = 0; step < 200; step++) {
        now = move_clock(rng, now, o.rate);
        CHECK_CONTEXT("life %" PRIu64 ", step %" PRIu64 ": rate %" PRIu64 ", burst %" PRIu64 ", now %" PRIu64, life,
                      step, o.rate, o.burst, now);
        check_operation(rng, &b, &o, now);
    }
}

/* 3,600 seconds of a client that always wants more. It polls at random times, no further apart than the burst lasts. */
static void hour(struct check_rng *rng, uint64_t rate)
{
    const uint64_t end = check_scaled(3600) * SUB;
    /* A burst of two seconds, if a bucket can hold it, and the longest gap that does not overflow it. */
    uint64_t burst = 2 * rate < UINT64_C(4000000000) ? 2 * rate : UINT64_C(4000000000);
    uint64_t gap = burst / 2 * SUB / rate, now = 0, granted = 0;
    struct qos_bucket b;
    struct digits earned;
    memset(&b, 0, sizeof b);
    CHECK_EQ(qos_bucket_init(&b, 0, rate, burst), QOS_OK);
    if (gap > SUB / 10)
        gap = SUB / 10;
    while (now < end) {
        uint64_t all;
        now += check_between(rng, 0, gap);
        if (now > end)
            now = end;
        qos_bucket_refill(&b, now);
        all = b.level > 0 ? (uint64_t)b.level / SUB : 0;
        if (all > 0)
            CHECK_EQ(qos_bucket_take(&b, now, all), QOS_OK);
        granted += all;
    }
    earned = digits_mul(digits_of(rate), digits_of(now));
    CHECK_CONTEXT("rate %" PRIu64 " for %" PRIu64 " ns: granted %" PRIu64, rate, now, granted);
    /* A client that takes every token gets all but the fraction of the last one. */
    CHECK(digits_compare(digits_mul(digits_of(granted), digits_of(SUB)), earned) <= 0);
    CHECK(digits_compare(digits_mul(digits_of(granted + 1), digits_of(SUB)), earned) > 0);
}

int main(void)
{
    static const uint64_t rates[] = {1, 3, 7, 1000, 999983, 1000000000, UINT64_C(1000000000000)};
    struct check_rng rng;
    uint64_t i, n;
    check_begin("property/qos_bucket");
    check_rng_init(&rng, 6);
    n = check_scaled(1000);
    for (i = 0; i < n; i++)
        random_life(&rng, i);
    for (i = 0; i < sizeof rates / sizeof *rates; i++)
        hour(&rng, rates[i]);
    return check_end();
}
