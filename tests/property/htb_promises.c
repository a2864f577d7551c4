// proves: htb.h's promises under load: a slow device cuts all own tokens to the same part. A class within its rate
// proves: waits at most n / R + the device time in flight + the largest request, whatever 100,000 others do. Shares
// proves: follow the weights at any scale and over all resources. A waiter at the gate gets the same, with one wake-up
// proves: per grant.
// variants: native san i386
//
// Oracle: arithmetic on the cost of each class's requests. It uses only the header's calls.
#include "htb.h"
#include "check.h"

#define S UINT64_C(1000000000)
#define MS UINT64_C(1000000)

struct request {
    struct htb_request r; /* first member */
    uint64_t at_ns;       /* submitted */
};

static struct htb tree;
static void *memory;

static void open_tree(struct htb_config *config)
{
    size_t size = htb_memsize(config);
    free(memory);
    memory = NULL;
    CHECK(size != 0 && posix_memalign(&memory, 64, size) == 0);
    CHECK_EQ(htb_init(&tree, memory, size, config), QOS_OK);
}

static struct htb_config config_of(uint32_t classes, uint64_t rate_per_s)
{
    struct htb_config c;
    memset(&c, 0, sizeof c);
    c.classes = classes;
    c.rate_per_s[0] = rate_per_s;
    c.order = HTB_FIFO;
    c.bound = HTB_BY_RATE;
    c.dispatch_max = c.device_max = 4;
    return c;
}

static void reserve(uint32_t id, uint64_t rate_per_s, uint32_t weight, uint64_t now)
{
    struct htb_class c;
    memset(&c, 0, sizeof c);
    c.rate_per_s[0] = rate_per_s;
    c.weight = weight;
    CHECK_EQ(htb_reserve(&tree, now, id, &c, NULL), QOS_OK);
}

/* A device that serves one request at a time, at `per_s` tokens/s. */
struct device {
    struct htb_request *queue[64];
    uint32_t head, count;
    uint64_t per_s, done_ns;
};

static void device_feed(struct device *d, uint64_t now)
{
    struct htb_request *r;
    while ((r = htb_dispatch(&tree, now)) != NULL) {
        if (d->count == 0)
            d->done_ns = now + r->tokens[0] * S / d->per_s;
        d->queue[(d->head + d->count++) % 64] = r;
    }
}

static struct htb_request *device_done(struct device *d, uint64_t now)
{
    struct htb_request *r;
    if (d->count == 0 || d->done_ns > now)
        return NULL;
    r = d->queue[d->head];
    d->head = (d->head + 1) % 64;
    if (--d->count != 0)
        d->done_ns += d->queue[d->head]->tokens[0] * S / d->per_s;
    CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
    return r;
}

/* All classes are backlogged, the whole rate is reserved, and the device gives `percent` of it. So each gets that part
 * of its own rate, +- 0.02. */
static void device_gives_less(struct check_rng *rng, uint64_t percent, bool newcomer)
{
    enum { CLASSES = 9, DEPTH = 8 };
    static struct request request[CLASSES][DEPTH];
    struct htb_config config = config_of(CLASSES + 1, 1000000000);
    struct device d = {{NULL}, 0, 0, percent * 10000000, 0};
    uint64_t now = S, rate[CLASSES], size[CLASSES], got[CLASSES] = {0}, left = 1000000000, from = 4 * S, to = 14 * S;
    unsigned i, k;
    CHECK_CONTEXT("device gives %" PRIu64 " %%, newcomer %d", percent, newcomer);
    open_tree(&config);
    memset(request, 0, sizeof request);
    for (i = 0; i < CLASSES; i++) {
        rate[i] = i + 1 < CLASSES ? check_between(rng, left / 20, left / (CLASSES - i)) : left;
        left -= rate[i];
        size[i] = check_between(rng, 0, 1) ? check_between(rng, 5000, 20000) : check_between(rng, 100000, 1000000);
        reserve(i + 1, rate[i], 1, now);
        for (k = 0; k < DEPTH && !(newcomer && i == 0); k++) {
            request[i][k].r.class_id = i + 1;
            request[i][k].r.tokens[0] = size[i];
            CHECK_EQ(htb_submit(&tree, now, &request[i][k].r), QOS_OK);
        }
    }
    while (now < to) {
        struct htb_request *r;
        while ((r = device_done(&d, now)) != NULL) {
            if (now >= from)
                got[r->class_id - 1] += r->tokens[0];
            CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
        }
        if (newcomer && now >= from && request[0][0].r.class_id == 0)
            for (k = 0; k < DEPTH; k++) {
                request[0][k].r.class_id = 1;
                request[0][k].r.tokens[0] = size[0];
                CHECK_EQ(htb_submit(&tree, now, &request[0][k].r), QOS_OK);
            }
        device_feed(&d, now);
        CHECK(d.count != 0);
        now = d.done_ns;
    }
    for (i = 0; i < CLASSES; i++) { /* without the newcomer's rate the others would have had more before it came */
        double share = (double)got[i] / (double)(rate[i] * 10);
        CHECK_WITHIN(share, (double)percent / 100 - 0.02, (double)percent / 100 + 0.02);
    }
}

/* `others` with full buckets all send at once. Gold sends a request every n / R, and never waits for their bursts. */
static void full_buckets(uint32_t others, uint64_t size, uint64_t start_ns)
{
    struct htb_config config = config_of(others + 2, 2000000000);
    struct device d = {{NULL}, 0, 0, 2000000000, 0};
    struct request *bulk = (struct request *)calloc(others * 4u, sizeof *bulk), gold[16];
    uint64_t now = start_ns, gap = 131072 * 2, worst = 0, next_gold = now, bound, sent = 0;
    uint32_t i, k;
    CHECK_CONTEXT("%u classes send at %" PRIu64 " ns, requests of %" PRIu64, others, start_ns, size);
    config.request_max_tokens = 131072;
    open_tree(&config);
    memset(gold, 0, sizeof gold);
    reserve(1, 500000000, 1, 0); /* a quarter of the time: 131,072 tokens every 262 us */
    for (i = 0; i < others; i++)
        reserve(i + 2, 1000000000 / others, 1, 0);
    for (i = 0; i < others; i++) {
        for (k = 0; k < 4; k++) {
            bulk[i * 4 + k].r.class_id = i + 2;
            bulk[i * 4 + k].r.tokens[0] = size;
            CHECK_EQ(htb_submit(&tree, now, &bulk[i * 4 + k].r), QOS_OK);
        }
    }
    while (now < start_ns + 500 * MS) {
        struct htb_request *r;
        uint64_t next;
        while ((r = device_done(&d, now)) != NULL)
            if (r->class_id == 1) {
                uint64_t wait = now - ((struct request *)(void *)r)->at_ns;
                worst = wait > worst ? wait : worst;
            }
        if (next_gold <= now) {
            for (k = 0; k < 15 && gold[k].r.state != HTB_IDLE; k++)
                ;
            CHECK_EQ(gold[k].r.state, HTB_IDLE);
            gold[k].r.class_id = 1;
            gold[k].r.tokens[0] = 131072;
            gold[k].at_ns = now;
            CHECK_EQ(htb_submit(&tree, now, &gold[k].r), QOS_OK);
            next_gold += gap;
            sent++;
        }
        device_feed(&d, now);
        next = htb_dispatch_next_ns(&tree, now);
        if (d.count != 0 && d.done_ns < next)
            next = d.done_ns;
        now = next_gold < next ? next_gold : next;
    }
    /* n / R, four requests in flight, and the largest request, at 2 tokens/ns. */
    bound = 131072 * 2 + 4 * 131072 / 2 + 131072 / 2;
    CHECK_LE(worst, bound);
    CHECK_GE(sent, 1900);
    free(bulk);
}

/* Borrowers only. In every interval the service per weight of two that always wait differs by at most one request of
 * each, divided by its weight. */
static void shares(struct check_rng *rng, uint32_t scale, uint32_t resources)
{
    enum { CLASSES = 7, DEPTH = 4 };
    static struct request request[CLASSES][DEPTH];
    struct htb_config config = config_of(CLASSES + 1, 100000000);
    uint64_t now = S, got[CLASSES] = {0}, size[CLASSES], weight[CLASSES], last[CLASSES], worst[CLASSES] = {0}, sum = 0;
    uint64_t largest = 0;
    unsigned i, k;
    CHECK_CONTEXT("weights times %u, %u resources", scale, resources);
    config.resources = resources;
    config.rate_per_s[1] = 100000000;
    config.dispatch_max = config.device_max = 1;
    config.burst_ns = 1000;
    open_tree(&config);
    memset(request, 0, sizeof request);
    for (i = 0; i < CLASSES; i++) {
        weight[i] = check_between(rng, 1, 9);
        size[i] = check_between(rng, 0, 1) ? check_between(rng, 100, 2000) : check_between(rng, 10000, 100000);
        largest = size[i] > largest ? size[i] : largest;
        sum += weight[i];
        last[i] = now;
        reserve(i + 1, 0, (uint32_t)weight[i] * scale, now);
        for (k = 0; k < DEPTH; k++) {
            request[i][k].r.class_id = i + 1;
            request[i][k].r.tokens[i % resources] = size[i];
            CHECK_EQ(htb_submit(&tree, now, &request[i][k].r), QOS_OK);
        }
    }
    while (now < 4 * S) {
        struct htb_request *r;
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            i = r->class_id - 1;
            got[i] += size[i];
            worst[i] = now - last[i] > worst[i] ? now - last[i] : worst[i];
            last[i] = now;
            CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
            CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
            if (resources > 1)
                continue;
            for (k = 0; k < CLASSES; k++) {
                double apart = (double)got[i] / (double)weight[i] - (double)got[k] / (double)weight[k];
                CHECK_WITHIN(apart, -(double)size[i] / (double)weight[i] - (double)size[k] / (double)weight[k] - 1,
                             (double)size[i] / (double)weight[i] + (double)size[k] / (double)weight[k] + 1);
            }
        }
        now = htb_dispatch_next_ns(&tree, now);
    }
    for (i = 0; i < CLASSES; i++) {
        /* The longest wait: n * W / w for its own request, and one request of each other borrower. */
        double bound = (double)size[i] * (double)sum / (double)weight[i] + (double)CLASSES * (double)largest;
        CHECK_LE(worst[i], (uint64_t)(bound * 10) + 1000000);
        for (k = 0; k < CLASSES; k++)
            CHECK_WITHIN((double)got[i] / (double)weight[i] / ((double)got[k] / (double)weight[k]), 0.97, 1.03);
    }
}

/* Tenants at the gate. Each always has one request waiting, of its own size. One timer serves all. */
static void gate(uint32_t tenants)
{
    struct htb_config config = config_of(tenants + 1, 40000000);
    struct request *waiter = (struct request *)calloc(tenants, sizeof *waiter);
    uint64_t *got = (uint64_t *)calloc(tenants, sizeof *got), now = S, wakeups = 0, in_vain = 0, grants = 0;
    double least = 1e30, most = 0;
    uint32_t i;
    CHECK_CONTEXT("%u waiters at the gate", tenants);
    open_tree(&config);
    for (i = 0; i < tenants; i++) {
        reserve(i + 1, 0, 1 + i % 2, now);
        waiter[i].r.class_id = i + 1;
        waiter[i].r.gate = true;
        waiter[i].r.tokens[0] = i % 4 < 2 ? 4096 : 8192;
        CHECK_EQ(htb_submit(&tree, now, &waiter[i].r), QOS_OK);
    }
    while (now < 21 * S) {
        struct htb_request *r;
        uint64_t before = grants;
        now = htb_dispatch_next_ns(&tree, now);
        CHECK(now != QOS_NEVER);
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            CHECK_EQ(r->state, HTB_IDLE);
            got[r->class_id - 1] += r->tokens[0];
            grants++;
            CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
        }
        wakeups++;
        in_vain += grants == before;
    }
    for (i = 0; i < tenants; i++) {
        double share = (double)got[i] / (1 + i % 2);
        least = share < least ? share : least;
        most = share > most ? share : most;
    }
    CHECK_WITHIN(least / most, tenants == 1000 ? 0.9 : 0.98, 1);
    CHECK_WITHIN((double)(in_vain + grants) / (double)grants, 1, 1.1);
    CHECK_LE(wakeups, grants + grants / 10);
    CHECK_WITHIN((double)grants, 20 * 40e6 / 8192, 21 * 40e6 / 4096);
    /* A caller that is not queued cannot overtake the queued ones. */
    CHECK_EQ(htb_take(&tree, now + 25000, 0, 1), QOS_EAGAIN); /* by then there are 1,000 tokens */
    free(waiter);
    free(got);
}

/* With the defaults, a caller at the gate that is up to 10 ms late each time loses at most one bucket of tokens,
 * whatever the size of its requests. This holds for own tokens and for a limit. */
static void late_polls_lose_nothing(struct check_rng *rng, bool limited)
{
    const uint64_t rate = check_between(rng, 1, 100) * 1000000, from = S, to = 61 * S;
    uint64_t now = from, got = 0, n = check_between(rng, 1, rate / 100 * (check_between(rng, 0, 1) ? 1 : 50));
    struct htb_config config;
    struct htb_class c;
    CHECK_CONTEXT("polls late, rate %" PRIu64 ", requests of %" PRIu64 ", limited %d", rate, n, limited);
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    config.rate_per_s[0] = limited ? 1000 * rate : rate;
    config.start_ns = now;
    open_tree(&config);
    c.rate_per_s[0] = limited ? 0 : rate;
    c.limit_per_s[0] = limited ? rate : 0;
    CHECK_EQ(htb_reserve(&tree, now, 1, &c, NULL), QOS_OK);
    while (now < to) {
        if (htb_take(&tree, now, 1, n) == QOS_OK) {
            got += n;
            CHECK_LE(got, (now - from) / 1000 * (rate / 1000000) + rate / 50 + n);
        } else {
            now = htb_next_ns(&tree, now, 1, n) + check_between(rng, 0, 10 * MS);
        }
    }
    CHECK_GE(got + rate / 50 + n, 60 * rate);
}

/* With the defaults, all are backlogged and the device gives exactly the reserved rates. After the first second, no
 * class loses a token while its request waits for its turn. One class sends requests larger than its burst. */
static void queues_lose_nothing(struct check_rng *rng, enum htb_bound bound, bool stalls)
{
    enum { CLASSES = 5, DEPTH = 70 }; /* more than can be dispatched, so that a request is always queued */
    static struct request request[CLASSES][DEPTH];
    struct device d = {{NULL}, 0, 0, 40000000, 0};
    uint64_t now = S, from[CLASSES] = {0}, rate[CLASSES], size[CLASSES], left = 40000000, stall_ns = 5 * S;
    struct htb_config config;
    struct qos_stats stats;
    unsigned i, k;
    CHECK_CONTEXT("queues with the defaults, bound %d, stalls %d", (int)bound, stalls);
    memset(&config, 0, sizeof config);
    config.rate_per_s[0] = left;
    config.bound = bound;
    config.start_ns = now;
    open_tree(&config);
    memset(request, 0, sizeof request);
    for (i = 0; i < CLASSES; i++) {
        rate[i] = i + 1 < CLASSES ? check_between(rng, left / 20, left / (CLASSES - i)) : left;
        left -= rate[i];
        size[i] = i == 1 ? 262144 : check_between(rng, 0, 1) ? 4096 : 131072;
        rate[i] -= stalls ? rate[i] / 10 : 0; /* otherwise it could not catch up */
        reserve(i + 1, rate[i], 1, now);
        for (k = 0; k < DEPTH; k++) {
            request[i][k].r.class_id = i + 1;
            request[i][k].r.tokens[0] = size[i];
            CHECK_EQ(htb_submit(&tree, now, &request[i][k].r), QOS_OK);
        }
    }
    while (now < 31 * S) {
        struct htb_request *r;
        uint64_t next;
        for (i = 0; i < CLASSES && now >= 2 * S && from[i] == 0; i++) {
            CHECK_EQ(htb_stats(&tree, i + 1, &stats), QOS_OK);
            from[i] = stats.granted;
        }
        while ((r = device_done(&d, now)) != NULL)
            CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
        device_feed(&d, now);
        next = htb_dispatch_next_ns(&tree, now);
        if (d.count != 0 && stalls && now >= stall_ns) { /* the device stops for 0.5 s */
            d.done_ns += S / 2;
            stall_ns += 10 * S;
        }
        now = d.count != 0 && d.done_ns < next ? d.done_ns : next;
    }
    for (i = 0; i < CLASSES; i++) { /* minus one bucket, a request at either end, and the dispatched ones */
        CHECK_EQ(htb_stats(&tree, i + 1, &stats), QOS_OK);
        CHECK_GE(stats.granted - from[i] + 2 * size[i] + rate[i] / 50 + rate[i] * 64 / 40000000 * 262144, rate[i] * 29);
    }
}

int main(void)
{
    struct check_rng rng;
    uint64_t i, n;
    check_begin("property/htb_promises");
    check_rng_init(&rng, 3);
    n = check_scaled(6);
    for (i = 0; i < n; i++) {
        if (check_case("gives_less")) {
            device_gives_less(&rng, 50, false);
            device_gives_less(&rng, check_between(&rng, 20, 95), false);
            device_gives_less(&rng, 50, true);
        }
        if (check_case("shares")) {
            shares(&rng, 1, 1);
            shares(&rng, 100, 1);
            shares(&rng, HTB_WEIGHT_MAX / 9, 1);
            shares(&rng, 1, 2);
            shares(&rng, HTB_WEIGHT_MAX / 9, 2);
        }
    }
    for (i = 0; i < 2 && check_case("full_buckets"); i++) { /* buckets start empty, then full */
        full_buckets(10, 131072, i * S);
        full_buckets(1000, 131072, i * S);
        full_buckets((uint32_t)(100000 / check_state.scale), 131072, i * S);
        full_buckets((uint32_t)(100000 / check_state.scale), 4096, i * S);
    }
    for (i = 0; i < 4 * n && check_case("lose_nothing"); i++) {
        late_polls_lose_nothing(&rng, i % 2);
        queues_lose_nothing(&rng, i % 2 ? HTB_BY_RATE : HTB_BY_FLIGHT, i % 4 >= 2);
    }
    if (check_case("gate")) {
        gate(10);
        gate(100);
        gate(1000);
    }
    free(memory);
    return check_end();
}
