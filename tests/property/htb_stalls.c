// proves: by flight, stalls of the device of up to lag_ns are made up, whenever they begin, for an owner that calls at
// completions and when it was told to, and not in between: its class waits for own tokens as the stall begins, and has
// them long before it ends
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

/* What the class was given in end_ns. */
static uint64_t run(uint64_t n, uint32_t weight, uint64_t stall_at_ns, uint64_t stall_ns, uint64_t end_ns)
{
    static unsigned char memory[1 << 17] __attribute__((aligned(64)));
    static struct htb tree;
    struct htb_config c;
    struct htb_class terms;
    struct htb_request *device[2 * EACH];
    uint64_t now = 1, finished = QOS_NEVER, got = 0;
    uint32_t at_device = 0, i;
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
    while (now < end_ns) {
        struct htb_request *r;
        uint64_t next;
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            if (at_device == 0)
                finished = now + n * S / RATE;
            device[at_device++] = r;
            got += r->class_id == 1 ? n : 0;
        }
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
            r = device[0];
            memmove(device, device + 1, --at_device * sizeof device[0]);
            finished = at_device ? now + n * S / RATE : QOS_NEVER;
            CHECK(htb_complete(&tree, now, HTB_DONE, NULL, r) == QOS_OK);
            CHECK(htb_submit(&tree, now, r) == QOS_OK);
        }
    }
    CHECK(now >= end_ns);
    return got;
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
                    uint64_t got = run(n, weight, S + offset * 700000, stall * MS, 4 * S);
                    CHECK(got + RATE / 2 / 50 + n >= 4 * (RATE / 2));
                }
    return check_end();
}
