// proves: the simulated network: shares of lost, repeated, damaged and late messages and delays as the formulas say;
// proves: cuts and order against a list by hand; every byte arrives as it was sent unless it was damaged; the same seed
// proves: gives the same arrivals on every machine
#include "check.h"
#include "examples/world/networks.h"

#define MESSAGES 100000u

static struct world_network n;

static struct world_network_config plain(void)
{
    struct world_network_config c;
    memset(&c, 0, sizeof c);
    return c;
}

/* What was sent as message `number`: its bytes follow from its number. */
static size_t fill(uint8_t *bytes, uint32_t number)
{
    size_t size = 4 + number % 13, k;
    for (k = 0; k < size; k++)
        bytes[k] = (uint8_t)(k < 4 ? number >> 8 * k : number * 7 + k);
    return size;
}

static void send_number(uint64_t now_ns, uint32_t from, uint32_t to, uint32_t number)
{
    uint8_t bytes[32];
    size_t size = fill(bytes, number);
    world_network_send(&n, now_ns, from, to, bytes, size);
}

static void shares(void)
{
    static uint8_t copies[MESSAGES];
    struct world_network_config c = plain();
    struct world_packet p;
    uint64_t arrived = 0, twice = 0, none = 0, damaged = 0, now_ns = 0, late = 0;
    double delay = 0, on_time = 0;
    uint32_t k;
    c.lost = 100;
    c.repeated = 50;
    c.damaged = 20;
    c.late = 30;
    c.delay_ns = 1000;
    c.jitter_ns = 400;
    c.late_ns = 1000000;
    world_network_init(&n, &c, check_seed());
    memset(copies, 0, sizeof copies);
    for (k = 0; k < MESSAGES; k++)
        send_number(k, k % 5, 5 + k % 3, k);
    while (world_network_next_ns(&n) != WORLD_NEVER) {
        uint8_t want[32];
        uint32_t number;
        size_t size;
        CHECK_GE(world_network_next_ns(&n), now_ns);
        now_ns = world_network_next_ns(&n);
        CHECK(!world_network_take(&n, now_ns - 1, &p));
        CHECK(world_network_take(&n, now_ns, &p));
        number = (uint32_t)p.sent_ns; /* message k was sent at k */
        size = fill(want, number);
        CHECK_EQ(p.size, size);
        CHECK_EQ(p.from, number % 5);
        CHECK_EQ(p.to, 5 + number % 3);
        CHECK_EQ(memcmp(p.bytes, want, size) != 0, p.damaged);
        arrived++;
        copies[number]++;
        damaged += p.damaged;
        late += now_ns - p.sent_ns > 1400;
        CHECK_GE(now_ns - p.sent_ns, 1000);
        CHECK_LE(now_ns - p.sent_ns, 1001400);
        delay += (double)(now_ns - p.sent_ns);
        if (now_ns - p.sent_ns <= 1400)
            on_time += (double)(now_ns - p.sent_ns);
    }
    for (k = 0; k < MESSAGES; k++) {
        none += copies[k] == 0;
        twice += copies[k] == 2;
    }
    CHECK_WITHIN(none, 0.095 * MESSAGES, 0.105 * MESSAGES); /* all bounds: at least 5 deviations */
    CHECK_WITHIN(twice, 0.0415 * MESSAGES, 0.0485 * MESSAGES);
    CHECK_EQ(arrived, MESSAGES - none + twice);
    CHECK_WITHIN(damaged, 0.0175 * (double)arrived, 0.0225 * (double)arrived);
    CHECK_WITHIN(late, 0.027 * (double)arrived, 0.033 * (double)arrived);
    CHECK_WITHIN(on_time / (double)(arrived - late), 1198, 1202); /* 1000 + 400 / 2 */
    CHECK_WITHIN(delay / (double)arrived, 1200 + 0.88 * 0.03 * 5e5, 1200 + 1.12 * 0.03 * 5e5);
    CHECK_EQ(n.lost, none);
    CHECK_EQ(n.repeated, twice);
    CHECK_EQ(n.damaged, damaged);
    CHECK_EQ(n.arrived, arrived);
    world_network_free(&n);
}

/* Two messages d apart, each with a jitter uniform in 0..J, change places with probability (1 - d / J)^2 / 2; exponential with
 * mean J: e^(-d / J) / 2. */
static void overtaking(void)
{
    struct world_network_config c = plain();
    struct world_packet p;
    uint32_t k, way, changed;
    c.jitter_ns = 1000;
    for (way = 0; way < 3; way++) {
        c.in_order = way == 1;
        c.exponential = way == 2;
        changed = 0;
        world_network_init(&n, &c, check_seed());
        for (k = 0; k < MESSAGES / 10; k++) {
            uint64_t base = (uint64_t)k * 100000, first;
            send_number(base, 1, 2, k);
            send_number(base + 500, 1, 2, k);
            CHECK(world_network_take(&n, WORLD_NEVER - 1, &p));
            first = p.sent_ns;
            CHECK(world_network_take(&n, WORLD_NEVER - 1, &p));
            CHECK(!world_network_take(&n, WORLD_NEVER - 1, &p));
            changed += first == base + 500;
        }
        if (c.in_order)
            CHECK_EQ(changed, 0);
        else if (c.exponential)
            CHECK_WITHIN(changed, 0.28 * MESSAGES / 10, 0.327 * MESSAGES / 10); /* 0.3033 */
        else
            CHECK_WITHIN(changed, 0.108 * MESSAGES / 10, 0.142 * MESSAGES / 10); /* 0.125 */
        world_network_free(&n);
    }
}

/* Random partitions. */
static void cuts(void)
{
    struct world_network_config c = plain();
    struct world_packet p;
    struct check_rng r;
    uint64_t now_ns = 1, lost = 0, came = 0, group = 0;
    uint32_t k, a, b;
    bool apart;
    check_rng_init(&r, 3);
    c.delay_ns = 10;
    world_network_init(&n, &c, check_seed());
    for (k = 0; k < 20000; k++, now_ns += 100) {
        a = (uint32_t)check_between(&r, 0, 5);
        b = (uint32_t)check_between(&r, 0, 5);
        apart = (group >> a & 1) != (group >> b & 1);
        send_number(now_ns, a, b, k);
        if (check_between(&r, 0, 3) == 0) /* what is under way arrives */
            world_network_part(&n, group = check_between(&r, 0, 63));
        CHECK_EQ(world_network_take(&n, now_ns + 9, &p), false);
        CHECK_EQ(world_network_take(&n, now_ns + 10, &p), !apart);
        apart ? lost++ : came++;
    }
    CHECK(lost > 1000 && came > 1000);
    CHECK_EQ(n.cuts, lost);
    CHECK_EQ(n.arrived, came);
    world_network_free(&n);
}

/* All arrivals of a run as one number. */
static uint64_t digest(uint64_t seed)
{
    struct world_network_config c = plain();
    struct world_packet p;
    uint64_t sum = UINT64_C(1469598103934665603);
    uint32_t k;
    c.lost = c.repeated = c.damaged = c.late = 200;
    c.jitter_ns = 5000;
    c.late_ns = 1000000;
    world_network_init(&n, &c, seed);
    for (k = 0; k < 2000; k++) {
        send_number((uint64_t)k * 100, k % 7, k % 11, k);
        while (world_network_take(&n, (uint64_t)k * 100, &p)) {
            size_t i;
            sum = check_wrap_mul(sum ^ p.sent_ns, UINT64_C(1099511628211));
            for (i = 0; i < p.size; i++)
                sum = check_wrap_mul(sum ^ p.bytes[i], UINT64_C(1099511628211));
        }
    }
    world_network_free(&n); /* messages are still under way */
    return sum;
}

int main(void)
{
    check_begin("world/world_networks");
    shares();
    overtaking();
    cuts();
    CHECK_EQ(digest(1), digest(1));
    CHECK(digest(1) != digest(2));
    CHECK_EQ(digest(7), UINT64_C(11798396362268230296)); /* on every machine */
    return check_end();
}
