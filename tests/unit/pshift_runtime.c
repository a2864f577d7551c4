// proves: memory and every error of the scheduler, the agent and the controller; the estimator's rounding
#include "pshift.h"
#include "check.h"

static void sched_and_agent(void)
{
    struct pshift_sched_config sc = {5, 0}, none = {0, 0}, deep = {5, UINT64_MAX};
    struct pshift_agent_config ac = {5, 2, 7, PSHIFT_UNLIMITED, 0}, bad;
    struct check_mem m, n;
    struct pshift_sched sched;
    struct pshift_agent agent;
    struct pshift_message msg = {2, 1, 7, 1, 1, 1, 1, 0};
    struct pshift_report_entry re[5];
    struct pshift_grant_entry ge[5] = {{3, 10, 4, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    struct pshift_pick pick;
    CHECK_EQ(pshift_sched_memsize(NULL), 0);
    CHECK_EQ(pshift_sched_memsize(&none), 0);
    CHECK_EQ(pshift_agent_memsize(NULL), 0);
    (void)check_mem_new(&m, pshift_sched_memsize(&sc), 64, 0);
    (void)check_mem_new(&n, pshift_agent_memsize(&ac), 64, 0);
    CHECK_EQ(pshift_sched_init(NULL, m.mem, m.size, &sc), QOS_EINVAL);
    CHECK_EQ(pshift_sched_init(&sched, m.mem, m.size, NULL), QOS_EINVAL);
    CHECK_EQ(pshift_sched_init(&sched, m.mem, m.size, &none), QOS_ERANGE);
    CHECK_EQ(pshift_sched_init(&sched, m.mem, m.size, &deep), QOS_ERANGE);
    CHECK_EQ(pshift_sched_init(&sched, m.mem, m.size - 1, &sc), QOS_EMEMORY);
    CHECK_EQ(pshift_sched_init(&sched, m.mem + 8, m.size, &sc), QOS_EALIGN);
    CHECK_EQ(pshift_sched_init(&sched, m.mem, m.size, &sc), QOS_OK);
    CHECK_EQ(pshift_sched_arrive(&sched, 5, 1), QOS_ENOENT);
    CHECK_EQ(pshift_sched_cancel(&sched, 5, 1), QOS_ENOENT);
    CHECK_EQ(pshift_sched_set_weight(&sched, 5, 1), QOS_ENOENT);
    CHECK_EQ(pshift_sched_set_tokens(&sched, 5, 1, 1), QOS_ENOENT);
    CHECK_EQ(pshift_sched_force(&sched, 5), QOS_ENOENT);
    CHECK_EQ(pshift_sched_served(&sched, 5), 0);
    CHECK_EQ(pshift_sched_pending(&sched, 5), 0);
    CHECK_EQ(pshift_sched_r_tokens(&sched, 5) + pshift_sched_l_tokens(&sched, 5), 0);
    CHECK_EQ(pshift_sched_arrive(&sched, 0, UINT64_MAX), QOS_OK);
    CHECK_EQ(pshift_sched_arrive(&sched, 0, 1), QOS_ERANGE);
    CHECK_EQ(pshift_sched_pending(&sched, 0), UINT64_MAX);
    CHECK_EQ(pshift_sched_cancel(&sched, 0, UINT64_MAX), QOS_OK);
    CHECK_EQ(pshift_sched_set_weight(&sched, 0, 0), QOS_OK);
    CHECK_EQ(pshift_sched_pick(&sched, &pick), QOS_EAGAIN);
    CHECK_EQ(pshift_sched_next_ns(&sched, 3), QOS_NEVER);

    CHECK_EQ(pshift_agent_init(NULL, n.mem, n.size, &ac, &sched), QOS_EINVAL);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &ac, NULL), QOS_EINVAL);
    bad = ac;
    bad.epoch = 0;
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &bad, &sched), QOS_ERANGE);
    bad = ac;
    bad.queues = 4;
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &bad, &sched), QOS_ERANGE);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size - 1, &ac, &sched), QOS_EMEMORY);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &ac, &sched), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&agent, 1), QOS_OK);
    CHECK_EQ(pshift_sched_l_tokens(&sched, 4), PSHIFT_UNLIMITED); /* the default */
    CHECK_EQ(pshift_sched_arrive(&sched, 3, 6), QOS_OK);
    CHECK_EQ(pshift_sched_arrive(&sched, 4, 1), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, 10, 20, &msg, re, 1), QOS_EFULL);
    CHECK_EQ(pshift_agent_report(&agent, 10, 20, &msg, re, 5), QOS_OK);
    CHECK_EQ(msg.count, 2);
    CHECK_EQ(msg.seq, 1);
    CHECK_EQ(re[0].bucket, 3);
    CHECK_EQ(re[0].demand, 6 + 12); /* 6 wait, and 6 came in an interval of which two more follow */
    /* A grant of 10 R- and 4 L-tokens from 0 served: after 2 of them 8 and 4 are left, after 12 none and 2. */
    msg.count = 1;
    msg.controller_epoch = 1;
    msg.period = 1;
    CHECK_EQ(pshift_sched_pick(&sched, &pick), QOS_OK);
    CHECK_EQ(pick.queue, 3);
    msg.server = 1;
    CHECK_EQ(pshift_agent_install(&agent, &msg, ge), QOS_ENOENT);
    msg.server = 2;
    ge[0].bucket = 5;
    CHECK_EQ(pshift_agent_install(&agent, &msg, ge), QOS_ENOENT);
    ge[0].bucket = 3;
    CHECK_EQ(pshift_agent_install(&agent, &msg, ge), QOS_OK);
    CHECK_EQ(pshift_sched_r_tokens(&sched, 3), 9);
    CHECK_EQ(pshift_sched_l_tokens(&sched, 3), 4);
    CHECK_EQ(pshift_agent_install(&agent, &msg, ge), QOS_ESTALE); /* again */
    msg.seq++;
    msg.server_epoch++;
    CHECK_EQ(pshift_agent_install(&agent, &msg, ge), QOS_ESTALE);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

/* Demand that ended with a period is told once in the next one, so that no tokens go where it was; then no more. */
static void demand_that_ended(void)
{
    struct pshift_sched_config sc = {2, 0};
    struct pshift_agent_config ac = {2, 0, 1, 0, 0};
    struct check_mem m, n;
    struct pshift_report_entry re[2];
    struct pshift_message msg;
    struct pshift_sched sched;
    struct pshift_agent agent;
    (void)check_mem_new(&m, pshift_sched_memsize(&sc), 64, 0);
    (void)check_mem_new(&n, pshift_agent_memsize(&ac), 64, 0);
    CHECK_EQ(pshift_sched_init(&sched, m.mem, m.size, &sc), QOS_OK);
    CHECK_EQ(pshift_agent_init(&agent, n.mem, n.size, &ac, &sched), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&agent, 1), QOS_OK);
    CHECK_EQ(pshift_sched_arrive(&sched, 1, 3), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, 1, 1, &msg, re, 2), QOS_OK);
    CHECK_EQ(msg.count, 1);
    CHECK_EQ(pshift_sched_cancel(&sched, 1, 3), QOS_OK);
    CHECK_EQ(pshift_agent_begin(&agent, 2), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, 1, 1, &msg, re, 2), QOS_OK);
    CHECK_EQ(msg.count, 1);
    CHECK_EQ(re[0].bucket, 1);
    CHECK_EQ(re[0].demand, 0);
    CHECK_EQ(pshift_agent_begin(&agent, 3), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, 1, 1, &msg, re, 2), QOS_OK);
    CHECK_EQ(msg.count, 0);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

static void control_errors(void)
{
    struct pshift_control_config cc = {2, 3, 2, 4, 0, true}, bad = {0, 1, 1, 1, 0, false};
    struct pshift_config small = {1, 1, 1}, fits = {2, 3, 2};
    struct check_mem m, n;
    struct pshift_control c;
    struct pshift ps;
    struct pshift_message msg = {0, 1, 1, 0, 1, 0, 1, 100}, got;
    struct pshift_report_entry re[3] = {{0, 5, 50, 0}, {1, 0, 0, 0}, {2, 0, 0, 0}};
    struct pshift_grant_entry ge[2];
    CHECK_EQ(pshift_control_memsize(NULL), 0);
    CHECK_EQ(pshift_control_memsize(&bad), 0);
    (void)check_mem_new(&m, pshift_control_memsize(&cc), 64, 0);
    (void)check_mem_new(&n, pshift_memsize(&fits), 64, 0);
    CHECK_EQ(pshift_control_init(NULL, m.mem, m.size, &cc), QOS_EINVAL);
    CHECK_EQ(pshift_control_init(&c, m.mem, m.size, &bad), QOS_ERANGE);
    CHECK_EQ(pshift_control_init(&c, m.mem, m.size - 1, &cc), QOS_EMEMORY);
    CHECK_EQ(pshift_control_init(&c, m.mem, m.size, &cc), QOS_OK);
    CHECK_EQ(pshift_control_set(&c, 3, 0, 0), QOS_ENOENT);
    CHECK_EQ(pshift_control_set(&c, 0, UINT64_MAX, 0), QOS_ERANGE);
    CHECK_EQ(pshift_control_set(&c, 0, 20, 30), QOS_OK);
    CHECK_EQ(pshift_control_begin(&c, 1), QOS_OK);
    CHECK_EQ(pshift_control_grant(&c, 0, &got, ge, 2), QOS_ENOENT);
    CHECK_EQ(pshift_control_grant(&c, 2, &got, ge, 2), QOS_ENOENT);
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_OK);
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_ESTALE); /* twice */
    msg.seq = 2;
    re[0].served = 4;
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_ECORRUPT); /* fell without a restart */
    re[0].served = 5;
    msg.server = 2;
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_ENOENT);
    msg.server = 0;
    re[0].bucket = 3;
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_ENOENT);
    re[0].bucket = 0;
    msg.count = 3;
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_EFULL);
    msg.count = 2;
    msg.period = 2;
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_ESTALE);
    msg.period = 1;
    CHECK_EQ(pshift_control_report(&c, &msg, re), QOS_OK);
    CHECK_EQ(pshift_init(&ps, n.mem, n.size, &small), QOS_OK);
    CHECK_EQ(pshift_control_plan(&c, &ps, NULL), QOS_EMEMORY);
    CHECK_EQ(pshift_init(&ps, n.mem, n.size, &fits), QOS_OK);
    CHECK_EQ(pshift_control_plan(&c, &ps, NULL), QOS_OK);
    CHECK_EQ(pshift_control_grant(&c, 0, &got, ge, 1), QOS_EFULL);
    CHECK_EQ(pshift_control_grant(&c, 0, &got, ge, 2), QOS_OK);
    CHECK_EQ(got.count, 2);
    CHECK_EQ(ge[1].bucket, 0); /* 20 reserved, 5 of them served; 10 more up to the limit */
    CHECK_EQ(ge[1].r_tokens, 15);
    CHECK_EQ(ge[1].l_tokens, 10);
    CHECK_EQ(ge[1].basis, 5);
    CHECK(check_mem_free(&m));
    CHECK(check_mem_free(&n));
}

static void wire_and_estimator(void)
{
    uint8_t bytes[64 + QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_ENTRY_BYTES];
    struct pshift_message m = {1, 1, 2, 3, 4, 5, 6, 7}, got;
    struct pshift_report_entry re = {9, 10, 11, 12};
    struct pshift_grant_entry ge = {9, 10, 11, 12};
    CHECK_EQ(pshift_extrapolate(5, 0, 9), 0);
    CHECK_EQ(pshift_extrapolate(5, 2, 3), 8); /* 7.5, rounded up */
    CHECK_EQ(pshift_extrapolate(UINT64_MAX, 1, 2), UINT64_MAX);
    CHECK_EQ(pshift_report_encode(bytes, sizeof bytes - 1, &m, &re), 0);
    CHECK_EQ(pshift_grant_encode(NULL, sizeof bytes, &m, &ge), 0);
    CHECK_EQ(pshift_report_encode(bytes, sizeof bytes, &m, &re), sizeof bytes);
    CHECK_EQ(pshift_grant_decode(bytes, sizeof bytes, &got, &ge, 1), QOS_ECORRUPT); /* a report is no grant */
    CHECK_EQ(pshift_report_decode(bytes, sizeof bytes, &got, &re, 0), QOS_EFULL);
    memset(&re, 0, sizeof re);
    CHECK_EQ(pshift_report_decode(bytes, sizeof bytes, &got, &re, 1), QOS_OK);
    CHECK(got.server == 1 && got.server_epoch == 2 && got.controller_epoch == 3 && got.seq == 4);
    CHECK(got.grant_seq == 5 && got.period == 6 && got.capacity == 7);
    CHECK(re.bucket == 9 && re.served == 10 && re.demand == 11 && re.held == 12);
    CHECK_EQ(pshift_grant_encode(bytes, sizeof bytes, &m, &ge), sizeof bytes);
    CHECK_EQ(pshift_grant_decode(bytes, sizeof bytes - 1, &got, &ge, 1), QOS_ETRUNCATED);
    CHECK_EQ(pshift_grant_decode(bytes, sizeof bytes, &got, &ge, 1), QOS_OK);
    CHECK(ge.bucket == 9 && ge.r_tokens == 10 && ge.l_tokens == 11 && ge.basis == 12);
}

int main(void)
{
    check_begin("unit/pshift_runtime");
    sched_and_agent();
    demand_that_ended();
    control_errors();
    wire_and_estimator();
    return check_end();
}
