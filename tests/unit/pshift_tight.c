// proves: a bucket whose limit is its reservation, or little more, gets its whole reservation while its demand moves from
// proves: one server to another, if rounds with withheld tokens are repeated at once; without that it is short, and
// proves: info.withheld said so
// variants: native san i386 s390x
#include "pshift.h"
#include "check.h"

#define INTERVALS 5
#define RESERVED 1000
#define T QOS_NS_PER_S

struct server {
    struct check_mem queues, own;
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    uint32_t queue;
};
static struct server server[2];
static struct pshift_controller controller;
static struct check_mem memory;
static uint64_t now_ns;

static void open_all(uint64_t limit)
{
    const struct pshift_controller_config config = {2, 1, 4, {7, 7}, T, 4};
    const struct pshift_scheduler_config queues = {1, 0};
    uint32_t j;
    now_ns = 5 * T;
    (void)check_mem_new(&memory, pshift_controller_memsize(&config), 64, 0);
    CHECK_EQ(pshift_controller_init(&controller, memory.mem, memory.size, &config), QOS_OK);
    CHECK_EQ(pshift_controller_change(&controller, 0, RESERVED, limit), QOS_OK);
    for (j = 0; j < 2; j++) {
        struct server *s = &server[j];
        const struct pshift_agent_config agent = {&s->scheduler, j, {1, j + 1}, T, 0, 0};
        (void)check_mem_new(&s->queues, pshift_scheduler_memsize(&queues), 64, 0);
        CHECK_EQ(pshift_scheduler_init(&s->scheduler, s->queues.mem, s->queues.size, &queues), QOS_OK);
        (void)check_mem_new(&s->own, pshift_agent_memsize(&agent), 64, 0);
        CHECK_EQ(pshift_agent_init(&s->agent, s->own.mem, s->own.size, &agent), QOS_OK);
        CHECK_EQ(pshift_agent_open(&s->agent, 0, &s->queue), QOS_OK);
    }
}

static void close_all(void)
{
    uint32_t j;
    CHECK(check_mem_free(&memory));
    for (j = 0; j < 2; j++)
        CHECK(check_mem_free(&server[j].queues) && check_mem_free(&server[j].own));
}

/* What the server says goes to the controller. */
static void report(struct server *s, uint64_t capacity, bool measured)
{
    struct pshift_report_entry entry;
    struct pshift_message m;
    struct pshift_scheduler_state queue;
    if (measured)
        pshift_agent_measure(&s->agent, now_ns);
    while (pshift_agent_report(&s->agent, &m, &entry, 1) == QOS_OK) {
        enum qos_status status;
        (void)pshift_scheduler_info(&s->scheduler, s->queue, &queue);
        m.capacity = capacity;
        entry.demand = queue.pending; /* nothing else will come: the server knows */
        status = pshift_controller_report(&controller, now_ns, &m, &entry);
        CHECK(status == QOS_OK || status == QOS_EAGAIN || status == QOS_ESTALE);
    }
}

static uint64_t plan(void)
{
    struct pshift_controller_state info;
    struct pshift_grant_entry entry;
    struct pshift_message m;
    uint32_t j;
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    for (j = 0; j < 2; j++)
        while (pshift_controller_grant(&controller, now_ns, j, &m, &entry, 1) == QOS_OK)
            CHECK(pshift_agent_install(&server[j].agent, now_ns, &m, &entry) != QOS_ENOENT);
    (void)pshift_controller_info(&controller, &info);
    return info.withheld + info.awaited;
}

static uint64_t serve(struct server *s, uint64_t most)
{
    struct pshift_pick pick;
    uint64_t n = 0;
    while (n < most && pshift_scheduler_pick(&s->scheduler, now_ns, &pick) == QOS_OK)
        n++;
    return n;
}

/* The demand is at server 0, in the fourth period from interval `at` on at server 1. Returns what that period got. */
static uint64_t play(uint64_t limit, int at, bool repeats, uint64_t *withheld)
{
    uint64_t period, served = 0;
    int k;
    open_all(limit);
    *withheld = 0;
    for (period = 1; period <= 4; period++) {
        CHECK_EQ(pshift_controller_begin(&controller, now_ns, period), QOS_OK);
        for (served = 0, k = 0; k < INTERVALS; k++, now_ns += T / INTERVALS) {
            const int on = period == 4 && k >= at;
            const uint64_t wanted = RESERVED * (uint64_t)(INTERVALS - k) / INTERVALS;
            struct pshift_scheduler_state here, there;
            uint64_t kept;
            (void)pshift_scheduler_info(&server[on].scheduler, 0, &here);
            (void)pshift_scheduler_info(&server[!on].scheduler, 0, &there);
            CHECK_EQ(pshift_scheduler_cancel(&server[!on].scheduler, 0, there.pending), QOS_OK);
            if (here.pending < wanted)
                CHECK_EQ(pshift_scheduler_arrive(&server[on].scheduler, 0, wanted - here.pending), QOS_OK);
            report(&server[0], wanted, true);
            report(&server[1], wanted, true);
            kept = plan();
            *withheld += period == 4 ? kept : 0;
            for (; kept && repeats; kept = 0) {
                report(&server[0], wanted, false);
                report(&server[1], wanted, false);
                (void)plan();
            }
            served += serve(&server[0], RESERVED / INTERVALS) + serve(&server[1], RESERVED / INTERVALS);
        }
    }
    close_all();
    return served;
}

int main(void)
{
    static const uint64_t limit[] = {RESERVED, RESERVED * 11 / 10, RESERVED * 3 / 2, 2 * RESERVED, QOS_UNLIMITED};
    uint64_t withheld;
    uint32_t l;
    int at;
    check_begin("unit/pshift_tight");
    for (l = 0; l < 5; l++)
        for (at = 1; at < INTERVALS; at++) {
            CHECK_CONTEXT("limit %" PRIu64 ", demand moves at interval %d", limit[l], at);
            CHECK_EQ(play(limit[l], at, true, &withheld), RESERVED);
            if (limit[l] == RESERVED) {
                CHECK(withheld != 0);
                CHECK(play(limit[l], at, false, &withheld) < RESERVED);
            }
        }
    return check_end();
}
