// proves: AQuA, Section 6: Figures 8, 9 and 10 with their numbers; and the three scenarios of the maximizer (5.5)
// flags: -Iexamples/simulate
#include "aqua.h"
#include "check.h"

static struct aqua a;

static double total(uint32_t from, uint32_t to)
{
    return aqua_mean(&a, 0, from, to) + aqua_mean(&a, 1, from, to) + aqua_mean(&a, 2, from, to);
}

/* Without QoS the streams get equal shares of the disk's throughput. */
static void figure_8(void)
{
    uint32_t i;
    CHECK_CONTEXT("Figure 8");
    aqua_paper(&a);
    CHECK(aqua_run(&a));
    CHECK_WITHIN(aqua_mean(&a, 0, 1, 30), 47500, 48100);
    for (i = 0; i < 2; i++)
        CHECK_WITHIN(aqua_mean(&a, i, 31, 60), 23700, 24300);
    for (i = 0; i < 3; i++)
        CHECK_WITHIN(aqua_mean(&a, i, 61, 90), 15800, 16200);
    CHECK_WITHIN(total(61, 90), 47500, 48100); /* "little loss of total throughput" */
}

/* 40 alone; both above their reservation when two are active; exactly 5, 15 and 20 when three are. */
static void figure_9(void)
{
    uint32_t t;
    CHECK_CONTEXT("Figure 9");
    aqua_paper(&a);
    a.qos = true;
    CHECK(aqua_run(&a));
    CHECK_WITHIN(aqua_mean(&a, 0, 1, 30), 39800, 40100);
    CHECK_WITHIN(aqua_mean(&a, 0, 31, 60), 14800, 15200); /* 5 of its own, and half of the root's remaining 20 */
    CHECK_WITHIN(aqua_mean(&a, 1, 31, 60), 24800, 25200);
    CHECK_WITHIN(aqua_mean(&a, 0, 61, 90), 4950, 5050);
    CHECK_WITHIN(aqua_mean(&a, 1, 61, 90), 14850, 15150);
    CHECK_WITHIN(aqua_mean(&a, 2, 61, 90), 19800, 20200);
    for (t = 1; t < 90; t++) /* never more in a second than the root's rate and burst */
        CHECK_WITHIN(total(t, t + 1), 38900, 41500);
}

/* With the maximizer the total rises to the disk's throughput, and every reservation holds. */
static void figure_10(void)
{
    uint32_t t;
    CHECK_CONTEXT("Figure 10");
    aqua_paper(&a);
    a.qos = a.maximizer = true;
    CHECK(aqua_run(&a));
    CHECK_WITHIN(total(5, 30), 47000, 48100);
    CHECK_WITHIN(total(65, 90), 47000, 48100);
    CHECK_WITHIN(aqua_mean(&a, 0, 61, 90), 5000, 48000);
    CHECK_WITHIN(aqua_mean(&a, 1, 61, 90), 15000, 48000);
    CHECK_WITHIN(aqua_mean(&a, 2, 61, 90), 20000, 48000);
    for (t = 0; t < 90; t++)
        CHECK(a.root_kb_s[t] >= 40000);
    CHECK(a.looks[HTB_CAPPED] > 0);
    CHECK_EQ(a.looks[HTB_CAPPED_AND_BROKEN] + a.looks[HTB_BROKEN], 0);
}

/* Scenario 1: neither A nor G caps the demand. Nothing is throttled, and G stays. */
static void scenario_1(void)
{
    uint32_t i, t;
    CHECK_CONTEXT("scenario 1");
    aqua_paper(&a);
    a.qos = a.maximizer = true;
    a.stream_start_s = 0;
    for (i = 0; i < 3; i++)
        a.demand_kb_per_s[i] = 10000; /* 30 of 40 MB/s; the first wants twice its reservation */
    CHECK(aqua_run(&a));
    for (i = 0; i < 3; i++)
        CHECK_WITHIN(aqua_mean(&a, i, 1, 90), 9900, 10100);
    for (t = 0; t < 90; t++)
        CHECK_EQ(a.root_kb_s[t], 40000);
    CHECK_EQ(a.looks[HTB_CAPPED], 0);
}

/* Scenario 2: A < G caps the demand. The disk is over-committed but fully used, and G stays. */
static void scenario_2(void)
{
    uint32_t t;
    CHECK_CONTEXT("scenario 2");
    aqua_paper(&a);
    a.qos = a.maximizer = true;
    a.stream_start_s = 0;
    a.disk_kb_per_s = a.disk_later_kb_per_s = 30000;
    CHECK(aqua_run(&a));
    CHECK_WITHIN(total(1, 90), 29800, 30100);
    for (t = 0; t < 90; t++)
        CHECK_EQ(a.root_kb_s[t], 40000);
}

/* Scenario 3: G < A caps the demand, and G rises. Then the disk slows below the reservations: one fails, G falls. */
static void scenario_3(void)
{
    uint32_t t;
    CHECK_CONTEXT("scenario 3");
    aqua_paper(&a);
    a.qos = a.maximizer = true;
    a.stream_start_s = 0;
    a.disk_later_kb_per_s = 35000;
    a.later_s = 40;
    CHECK(aqua_run(&a));
    CHECK(a.root_kb_s[39] > 46000);
    CHECK(a.looks[HTB_CAPPED] > 0);
    CHECK(a.looks[HTB_CAPPED_AND_BROKEN] + a.looks[HTB_BROKEN] > 0);
    CHECK_EQ(a.root_kb_s[89], 40000);
    for (t = 0; t < 90; t++)
        CHECK(a.root_kb_s[t] >= 40000);
}

/* Admission (5.1) is linear and additive: a root of 40 takes 5 + 15 + 20 and not one token more. */
static void admission(void)
{
    CHECK_CONTEXT("admission");
    aqua_paper(&a);
    a.qos = true;
    a.reserved_kb_per_s[2]++;
    CHECK(!aqua_run(&a));
}

int main(void)
{
    check_begin("paper/htb_figures");
    figure_8();
    figure_9();
    figure_10();
    scenario_1();
    scenario_2();
    scenario_3();
    admission();
    return check_end();
}
