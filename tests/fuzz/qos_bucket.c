// proves: any calls on a bucket, in any order and with any clock, agree with 128-bit arithmetic
#include "fuzz/fuzz.h"
#include "qos.h"

__extension__ typedef __int128 wide;
#define SUB ((wide)1000000000)

/* The oracle: tokens earned by definition, capped at the burst. */
struct oracle {
    wide level, rate, burst;
    uint64_t last;
};

static wide level_at(const struct oracle *o, uint64_t now)
{
    wide level = o->level + (now > o->last ? (wide)(now - o->last) * o->rate : 0);
    return level > o->burst * SUB ? o->burst * SUB : level;
}

static void settle(struct oracle *o, uint64_t now)
{
    o->level = level_at(o, now);
    o->last = now > o->last ? now : o->last;
}

static uint64_t tokens(struct fuzz_input *in)
{
    switch (fuzz_between(in, 0, 3)) {
    case 0: return fuzz_between(in, 0, 20);
    case 1: return UINT64_C(4000000000) - fuzz_between(in, 0, 3);
    case 2: return fuzz_bytes(in, 8); /* mostly out of range */
    default: return fuzz_between(in, 0, UINT64_C(4000000000));
    }
}

static uint64_t rate(struct fuzz_input *in)
{
    uint64_t shift = fuzz_between(in, 0, 42);
    return fuzz_between(in, 0, 3) ? (UINT64_C(1) << shift) - fuzz_between(in, 0, 1) : fuzz_bytes(in, 2);
}

static bool granted(const struct oracle *o, uint64_t now, uint64_t n)
{
    return n == 0 || level_at(o, now) >= ((wide)n < o->burst ? (wide)n : o->burst) * SUB;
}

static void step(struct fuzz_input *in, struct qos_bucket *b, struct oracle *o, uint64_t now)
{
    uint64_t n = tokens(in), most, next, r;
    enum qos_status st;
    bool fits = n <= UINT64_C(4000000000);
    switch (fuzz_between(in, 0, 4)) {
    case 0:
        st = qos_bucket_take(b, now, n);
        FUZZ_CHECK(st == (!fits ? QOS_ERANGE : granted(o, now, n) ? QOS_OK : QOS_EAGAIN));
        if (st == QOS_OK) { /* a refused one changes nothing */
            settle(o, now);
            o->level -= (wide)n * SUB;
        }
        break;
    case 1:
        most = tokens(in);
        st = qos_bucket_force(b, now, n, most);
        if (!fits || most > UINT64_C(4000000000)) {
            FUZZ_CHECK(st == QOS_ERANGE);
            break;
        }
        FUZZ_CHECK(st == (level_at(o, now) < -(wide)most * SUB ? QOS_EDEBT : QOS_OK));
        if (st == QOS_OK) {
            settle(o, now);
            o->level -= (wide)n * SUB;
        }
        break;
    case 2:
        FUZZ_CHECK(qos_bucket_put(b, now, n) == (fits ? QOS_OK : QOS_ERANGE));
        if (!fits)
            break;
        settle(o, now);
        o->level += (wide)n * SUB;
        settle(o, now);
        break;
    case 3:
        r = rate(in);
        st = qos_bucket_set_rate(b, now, r, n);
        FUZZ_CHECK(st == (r > UINT64_C(1) << 40 || n == 0 || !fits ? QOS_ERANGE : QOS_OK));
        if (st != QOS_OK)
            break;
        settle(o, now);
        o->rate = (wide)r;
        o->burst = (wide)n;
        settle(o, now);
        break;
    default:
        next = qos_bucket_next_ns(b, now, n);
        FUZZ_CHECK(next >= now);
        if (!fits || next == UINT64_MAX) {
            FUZZ_CHECK(next == UINT64_MAX);
            FUZZ_CHECK(!fits || now == UINT64_MAX || !granted(o, UINT64_MAX - 1, n)); /* QOS_NEVER is not a time */
            break;
        }
        FUZZ_CHECK(granted(o, next, n) && (next == now || !granted(o, next - 1, n)));
        break;
    }
    FUZZ_CHECK((wide)b->level == o->level && b->last_ns == o->last);
    FUZZ_CHECK(qos_level_debt(b->level) == (o->level < 0 ? (uint64_t)((-o->level + SUB - 1) / SUB) : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint64_t now = fuzz_bytes(&in, 8), r = rate(&in), burst = tokens(&in), jump;
    struct qos_bucket b;
    struct oracle o;
    if (qos_bucket_init(&b, now, r, burst) != QOS_OK) {
        FUZZ_CHECK(r > UINT64_C(1) << 40 || burst == 0 || burst > UINT64_C(4000000000));
        return 0;
    }
    o.level = 0;
    o.rate = (wide)r;
    o.burst = (wide)burst;
    o.last = now;
    while (in.left > 0) {
        jump = fuzz_bytes(&in, (size_t)fuzz_between(&in, 0, 5));
        if (fuzz_between(&in, 0, 15) == 0)
            now = fuzz_bytes(&in, 8);
        else
            now = jump > UINT64_MAX - now ? UINT64_MAX : now + jump;
        step(&in, &b, &o, now);
    }
    return 0;
}
