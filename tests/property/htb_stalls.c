// proves: by flight, stalls of the device of up to lag_ns are made up, whenever they begin, for an owner that calls at
// completions and when it was told to, and not in between: its class waits for own tokens as the stall begins, and has
// them long before it ends. A class that waited, took all back and is away meanwhile earns a bucket and no more
// flags: -O2
// variants: native san
//
// The device here is serial, its rate constant. A class with a limit of twice its rate has always requests; best effort, too.
#include "htb.h"
#include "check.h"

#define S UINT64_C(1000000000)
#define MS UINT64_C(1000000)
#define RATE 40000000u /* bytes/s of the device */
#define EACH 64u

static struct htb_request request[2][EACH];

static struct htb tree;
static struct htb_request *device[2 * EACH];
static uint32_t at_device;
static uint64_t got; /* what the class was given */

static void begin(uint64_t now, uint64_t n, uint32_t weight)
{
    static unsigned char memory[1 << 17] __attribute__((aligned(64)));
    struct htb_config c;
    struct htb_class terms;
    uint32_t i;
    memset(&c, 0, sizeof c);
    memset(&terms, 0, sizeof terms);
    c.rate_per_s[0] = RATE;
    c.best_effort.weight = weight;
    c.order = HTB_FIFO;
    c.start_ns = now;
    CHECK(htb_memsize(&c) <= sizeof memory);
    CHECK(htb_init(&tree, memory, sizeof memory, &c) == QOS_OK);
    terms.rate_per_s[0] = RATE / 2;
    terms.limit_per_s[0] = RATE;
    CHECK(htb_reserve(&tree, now, 1, &terms, NULL) == QOS_OK);
    memset(request, 0, sizeof request);
    for (i = 0; i < 2 * EACH; i++) {
        struct htb_request *r = &request[i % 2][i / 2];
        r->class_id = i % 2;
        r->tokens[0] = n;
        CHECK(htb_submit(&tree, now, r) == QOS_OK);
    }
    at_device = 0;
    got = 0;
}

static void dispatch(uint64_t now)
{
    struct htb_request *r;
    while ((r = htb_dispatch(&tree, now)) != NULL) {
        device[at_device++] = r;
        got += r->class_id == 1 ? r->tokens[0] : 0;
    }
}

/* The oldest at the device is done. */
static struct htb_request *complete(uint64_t now)
{
    struct htb_request *r = device[0];
    memmove(device, device + 1, --at_device * sizeof device[0]);
    CHECK(htb_complete(&tree, now, HTB_DONE, NULL, r) == QOS_OK);
    return r;
}

/* What the class was given in end_ns. */
static uint64_t run(uint64_t n, uint32_t weight, uint64_t stall_at_ns, uint64_t stall_ns, uint64_t end_ns)
{
    uint64_t now = 1, finished = QOS_NEVER;
    begin(now, n, weight);
    while (now < end_ns) {
        uint64_t next;
        bool was_idle = at_device == 0;
        dispatch(now);
        if (was_idle && at_device)
            finished = now + n * S / RATE;
        next = htb_dispatch_next_ns(&tree, now);
        if (stall_at_ns && finished > stall_at_ns && at_device) {
            finished += stall_ns;
            stall_at_ns = 0;
        }
        next = at_device && finished < next ? finished : next;
        if (next == QOS_NEVER)
            break;
        now = next > now ? next : now + 1;
        if (at_device && now >= finished) {
            CHECK(htb_submit(&tree, now, complete(now)) == QOS_OK);
            finished = at_device ? now + n * S / RATE : QOS_NEVER;
        }
    }
    CHECK(now >= end_ns);
    return got;
}

/* The most of own tokens that the class has at once after it was away for away_ns; nobody calls meanwhile. */
static uint64_t away(uint64_t n, uint32_t steps, uint64_t away_ns)
{
    struct qos_stats stats;
    uint64_t now = 1, before;
    uint32_t i;
    begin(now, n, 1000);
    dispatch(now);
    for (i = 0; i < steps; i++) {
        now += n * S / RATE;
        CHECK(htb_submit(&tree, now, complete(now)) == QOS_OK);
        dispatch(now);
    }
    for (i = 0; i < EACH; i++)
        if (request[1][i].state == HTB_QUEUED || request[1][i].state == HTB_DISPATCHED)
            CHECK(htb_cancel(&tree, now, &request[1][i]) == QOS_OK);
    now += away_ns;
    CHECK(htb_stats(&tree, 1, &stats) == QOS_OK);
    before = stats.granted - stats.borrowed;
    for (i = 0; i < EACH; i++)
        if (request[1][i].state == HTB_IDLE)
            CHECK(htb_submit(&tree, now, &request[1][i]) == QOS_OK);
    do { /* time stands still, so all that goes is from the bucket */
        dispatch(now);
        if (at_device)
            CHECK(complete(now) != NULL);
    } while (at_device);
    CHECK(htb_stats(&tree, 1, &stats) == QOS_OK);
    return stats.granted - stats.borrowed - before;
}

int main(void)
{
    uint64_t n, stall, offset;
    uint32_t weight;
    check_begin("property/htb_stalls");
    for (weight = 1; weight <= 1000; weight *= 1000)
        for (n = 4096; n <= 65536; n *= 4)
            for (stall = 100; stall <= 900; stall += 400)
                for (offset = 0; offset < 5; offset++) {
                    /* R t - one bucket - n */
                    uint64_t all = run(n, weight, S + offset * 700000, stall * MS, 4 * S);
                    CHECK(all + RATE / 2 / 50 + n >= 4 * (RATE / 2));
                }
    for (n = 4096; n <= 65536; n *= 4)
        for (stall = 1; stall <= 901; stall += 100)
            for (offset = 0; offset < 20; offset++)
                CHECK(away(n, 200 + (uint32_t)offset, stall * MS) <= RATE / 2 / 50 + n);
    return check_end();
}
