// proves: over 900 s of random polling, at rates from 1 to 10^12 tokens/s, grants are rate x time to the token
// variants: native san i386
// scale: 2
//
// Oracle: floor(rate * t / 10^9) in exact arithmetic, split at 10^9 so that every product fits in 64 bits. The bucket
// starts empty, is never full, and each poll drains it to the last token. So it must have granted exactly that, whether
// the tokens are the class's own, borrowed through four levels, or metered by a limit.
#include "htb.h"
#include "check.h"

#define GIGA UINT64_C(1000000000)

static uint64_t exact(uint64_t rate, uint64_t ns)
{
    uint64_t a = rate / GIGA, b = rate % GIGA, c = ns / GIGA, d = ns % GIGA;
    return a * ns + b * c + b * d / GIGA;
}

enum path { OWN, BORROWED, LIMITED, PATHS };

static void *tree(struct htb *h, struct check_mem *m, enum path path, uint64_t rate, uint64_t burst_ns,
                  uint64_t start_ns)
{
    struct htb_config config;
    struct htb_class c;
    uint32_t id;
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    config.classes = 8;
    config.rate_per_s[0] = path == LIMITED ? QOS_RATE_MAX : rate;
    config.burst_ns = burst_ns;
    config.start_ns = start_ns;
    check_mem_new(m, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(h, m->mem, m->size, &config), QOS_OK);
    for (id = 1; path == BORROWED && id <= 3; id++) { /* three groups without a rate between the class and the root */
        c.group = true;
        c.parent = id - 1;
        CHECK_EQ(htb_reserve(h, start_ns, id, &c, NULL), QOS_OK);
    }
    c.group = false;
    c.parent = path == BORROWED ? 3 : 0;
    c.rate_per_s[0] = path == OWN ? rate : 0;
    c.limit_per_s[0] = path == LIMITED ? rate : 0;
    CHECK_EQ(htb_reserve(h, start_ns, 7, &c, NULL), QOS_OK);
    return m->mem;
}

/* Takes all tokens: random amounts first, then halves down to single tokens. */
static uint64_t drain(struct htb *h, struct check_rng *rng, uint64_t most, uint64_t now)
{
    uint64_t got = 0, n = check_between(rng, 1, most);
    if (htb_take(h, now, 7, n) == QOS_OK)
        got += n;
    for (n = most; n > 0; n /= 2)
        while (htb_take(h, now, 7, n) == QOS_OK)
            got += n;
    return got;
}

static void run(enum path path, uint64_t rate, uint64_t stream)
{
    /* Long enough for a token, short enough for the largest bucket; polls come within half of it. */
    uint64_t burst_ns = rate < 10 ? 4 * GIGA : rate < 7000000000 ? 500000000 : UINT64_C(3900000000000000000) / rate;
    uint64_t start = stream << 50; /* any time origin */
    const uint64_t seconds = check_state.scale == 1 ? 900 : check_state.scale == 2 || rate < 10 ? 180 : 60;
    uint64_t end = start + seconds * GIGA, now = start, granted = 0, most, polls = 0, short_by = 0;
    struct check_rng rng;
    struct check_mem m;
    struct htb h;
    tree(&h, &m, path, rate, burst_ns, start);
    check_rng_init(&rng, stream);
    most = exact(rate, burst_ns) ? exact(rate, burst_ns) : 1;
    CHECK_CONTEXT("path %d, rate %" PRIu64, path, rate);
    while (now < end) {
        uint64_t gap =
            check_between(&rng, 0, 9) ? check_between(&rng, burst_ns / 4, burst_ns / 2) : check_between(&rng, 0, 1000);
        uint64_t back = check_between(&rng, 0, 19) ? 0 : check_between(&rng, 0, 1000000); /* a clock that steps back */
        now += gap;
        granted += drain(&h, &rng, most, now);
        if (granted != exact(rate, now - start))
            short_by++;
        if (back && now - start > back)
            granted += drain(&h, &rng, most, now - back);
        polls++;
    }
    CHECK_EQ(short_by, 0);
    CHECK_EQ(granted, exact(rate, now - start));
    CHECK(polls > 100);
    CHECK(check_mem_free(&m));
}

int main(void)
{
    static const uint64_t rates[] = {1,          2,          3,          7,           999,          1000003,
                                     4294967291, 1000000000, 1000000007, 98765432109, 1000000000000};
    uint64_t stream = 0;
    size_t i;
    int path;
    check_begin("property/htb_exact");
    for (i = 0; i < sizeof rates / sizeof *rates; i++)
        for (path = OWN; path < PATHS; path++)
            run((enum path)path, rates[i], ++stream);
    return check_end();
}
