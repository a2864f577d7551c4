// proves: the controller's records: which reports are acknowledged, compared with a plain list; what a new period
// proves: keeps and drops; when a plan is warm; how silence, a restart and an old grant change a bucket's tokens and
// proves: ceiling; when a start of a server is believed
// variants: native san i386 s390x
#include "pshift.h"
#include "check.h"

#define SERVERS 8
static const struct qos_u128 nonce = {9, 9}, first_boot = {1, 1}, second_boot = {2, 2};

static struct check_mem memory;
static struct pshift_controller controller;
static uint64_t period_ns, period, seq[SERVERS], answered[SERVERS];
static const struct pshift_message blank; /* all zeros */

static void open_controller(uint32_t servers, uint32_t buckets, uint32_t records)
{
    const struct pshift_controller_config config = {servers, buckets, records, nonce, period_ns, 0};
    (void)check_mem_new(&memory, pshift_controller_memsize(&config), 64, 0);
    memset(memory.mem, 1, memory.size); /* init writes all that is read */
    CHECK_EQ(pshift_controller_init(&controller, memory.mem, memory.size, &config), QOS_OK);
    memset(seq, 0, sizeof seq);
    memset(answered, 0, sizeof answered);
    period = 1;
    CHECK_EQ(pshift_controller_begin(&controller, 0, period), QOS_OK);
}

static void close_controller(void)
{
    CHECK(check_mem_free(&memory));
}

/* A report of a server that obeys this controller. */
static struct pshift_message head(uint32_t server, uint64_t capacity)
{
    struct pshift_message m = blank;
    m.server = server;
    m.count = 1;
    m.boot = first_boot;
    m.owner = nonce;
    m.seq = ++seq[server];
    m.answers = answered[server];
    m.period = period;
    m.capacity = capacity;
    return m;
}

static void say(uint32_t server, uint64_t capacity, struct pshift_report_entry entry)
{
    const struct pshift_message m = head(server, capacity);
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &entry), QOS_OK);
}

static struct pshift_report_entry needs(uint64_t bucket, uint64_t served, uint64_t demand)
{
    const struct pshift_report_entry entry = {bucket, served, demand, 0, 0};
    return entry;
}

static struct pshift_controller_state state(void)
{
    struct pshift_controller_state info;
    memset(&info, 0, sizeof info);
    CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
    return info;
}

static struct pshift_bucket_state bucket(uint64_t id)
{
    struct pshift_bucket_state info = {0, 0, 0, 0, 0};
    CHECK_EQ(pshift_controller_bucket_info(&controller, id, &info), QOS_OK);
    return info;
}

static void plan(void)
{
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
}

/* All grants to a server. Returns the entry for the bucket; count: how many entries there are. */
static struct pshift_grant_entry granted(uint32_t server, uint64_t id, uint32_t *count, struct pshift_message *last)
{
    struct pshift_grant_entry entry, found = {0, 0, 0};
    struct pshift_message m = blank;
    *count = 0;
    while (pshift_controller_grant(&controller, 0, server, &m, &entry, 1) == QOS_OK) {
        *count += m.count;
        answered[server] = m.seq;
        *last = m;
        if (m.count && entry.bucket == id)
            found = entry;
    }
    return found;
}

/* Reports come in any order, twice, with gaps. A grant acknowledges the merged reports in ranges: all of the newest
 * PSHIFT_RANGES runs, and nothing that was not merged. */
static void acknowledgements(uint64_t stream)
{
    static bool merged[1000];
    struct pshift_report_entry none = {0, 0, 0, 0, 0};
    struct check_rng rng;
    uint64_t newest = 0, k, n;
    check_rng_init(&rng, stream);
    open_controller(1, 1, 1);
    memset(merged, 0, sizeof merged);
    for (n = 0; n < 200 && newest < 900; n++) {
        struct pshift_message m = head(0, 1), got = blank;
        struct pshift_grant_entry grant;
        uint64_t ahead = check_between(&rng, 0, 9) ? check_between(&rng, 0, 3) : check_between(&rng, 0, 20);
        uint32_t r, runs = 0;
        m.count = 0;
        m.seq = newest + ahead;
        if (check_between(&rng, 0, 1))
            m.seq = newest > 30 ? newest - check_between(&rng, 0, 30) : newest - check_between(&rng, 0, newest);
        m.seq = m.seq ? m.seq : 1;
        CHECK_CONTEXT("stream %" PRIu64 ", report %" PRIu64 " after %" PRIu64, stream, m.seq, newest);
        if (!merged[m.seq])
            CHECK_EQ(pshift_controller_report(&controller, 0, &m, &none), QOS_OK);
        merged[m.seq] = true;
        newest = m.seq > newest ? m.seq : newest;
        plan();
        CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, &grant, 1), QOS_OK);
        CHECK_EQ(got.answers, newest);
        CHECK_EQ(got.ack[0].last, newest);
        for (k = newest; k != 0; k--) { /* the runs of the list, from the newest one on */
            runs += merged[k] && !(k < newest && merged[k + 1]) ? 1u : 0u;
            for (r = 0; r < PSHIFT_RANGES && !(got.ack[r].first <= k && k <= got.ack[r].last); r++) {
            }
            if (!merged[k])
                CHECK_EQ(r, PSHIFT_RANGES);
            else if (n < 8) /* nothing has been dropped yet: a run that came late was not displaced */
                CHECK_EQ(r, runs - 1);
        }
        m.answers = got.seq;
        m.seq = got.answers;
        CHECK_EQ(pshift_controller_report(&controller, 0, &m, &none), QOS_ESTALE); /* twice */
    }
    close_controller();
}

/* A start is believed when it has answered a grant that was made for it, and then the one before is dead. */
static void starts(void)
{
    const struct pshift_report_entry e = needs(1, 0, 100);
    struct pshift_message m, late, got = blank;
    struct pshift_grant_entry g;
    uint32_t n;
    open_controller(2, 2, 2);
    CHECK_EQ(pshift_controller_change(&controller, 1, 0, 60), QOS_OK);
    m = head(0, 100);
    m.period = 0; /* it has not heard of any period */
    m.owner.hi = m.owner.lo = 0;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_EAGAIN);
    CHECK_EQ(state().awaited, 1);
    plan();
    CHECK_EQ(state().silent, 2);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, &g, 1), QOS_OK);
    CHECK(got.count == 0 && got.answers == m.seq && memcmp(&got.boot, &first_boot, sizeof first_boot) == 0);
    m = head(0, 100);
    m.answers = 0; /* that grant is not answered */
    m.boot = second_boot;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e),
             QOS_OK); /* it names this owner and the period: it answers */
    CHECK_EQ(bucket(1).ceiling, 0);
    m.boot = first_boot; /* late */
    m.seq = 7;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_EAGAIN);
    plan();
    CHECK_EQ(state().awaited, 1);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, &g, 1), QOS_OK);
    CHECK(memcmp(&got.boot, &first_boot, sizeof first_boot) == 0);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &late, &g, 1), QOS_OK);
    CHECK(memcmp(&late.boot, &second_boot, sizeof second_boot) == 0 &&
          late.count == 0); /* nothing is given meanwhile */
    m = head(0, 100);
    m.boot = second_boot; /* this one answers: the other one was late */
    m.answers = late.seq;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_OK);
    CHECK_EQ(state().awaited, 0);
    plan();
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &late, &g, 1), QOS_OK);
    CHECK(memcmp(&late.boot, &second_boot, sizeof second_boot) == 0 && late.count == 1 && g.total == 60);
    CHECK_EQ(bucket(1).ceiling, 60);
    m.boot = first_boot; /* a restart, with the tokens of the grant: they count as spent */
    m.seq = 1;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_EAGAIN);
    plan();
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, &g, 1), QOS_OK);
    m.seq = 2;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_EAGAIN);
    plan();
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &late, &g, 1), QOS_OK);
    CHECK(late.seq > got.seq && memcmp(&late.boot, &first_boot, sizeof first_boot) == 0);
    m.seq = 3;
    m.answers = got.seq; /* of the grants made for a start each is an answer, not only the newest */
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_OK);
    CHECK_EQ(bucket(1).served, 0);
    CHECK_EQ(bucket(1).ceiling, 60);
    plan();
    CHECK_EQ(granted(0, 1, &n, &m).total, 0);
    m = head(1, 100);
    m.period = 2; /* a period that is not this owner's */
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_ESTALE);
    m.period = 1;
    m.owner.hi++;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_ESTALE);
    close_controller();
}

/* A period ends T after its start: no grant is made then. A grant tells how much was left when the report that it
 * answers came, whenever it is made. */
static void time_left(uint64_t t_ns)
{
    const uint64_t T = t_ns ? t_ns : QOS_NS_PER_S;
    const struct pshift_report_entry entry = needs(1, 0, 1);
    struct pshift_message got = blank, m;
    struct pshift_grant_entry g;
    period_ns = t_ns;
    open_controller(1, 1, 1);
    say(0, 1, needs(1, 0, 1));
    CHECK_EQ(pshift_controller_begin(&controller, 5 * T, 2), QOS_OK);
    CHECK_EQ(pshift_controller_grant(&controller, 5 * T + 7, 0, &got, &g, 1), QOS_OK);
    CHECK_EQ(got.left_ns, 6 * T);
    CHECK_EQ(got.period, 2);
    period = 2;
    m = head(0, 1);
    CHECK_EQ(pshift_controller_report(&controller, 5 * T + 9, &m, &entry), QOS_OK);
    plan();
    CHECK_EQ(pshift_controller_grant(&controller, 6 * T, 0, &got, &g, 1), QOS_EAGAIN);
    CHECK_EQ(pshift_controller_grant(&controller, 6 * T - 1, 0, &got, &g, 1), QOS_OK);
    CHECK(got.answers == m.seq && got.left_ns == T - 9);
    close_controller();
    period_ns = 0;
}

static void next_period(void)
{
    period++;
    CHECK_EQ(pshift_controller_begin(&controller, 0, period), QOS_OK);
}

/* Before the first report of a period the plan uses the last one: its demand, and its capacity. */
static void expects_the_same(void)
{
    struct pshift_message m;
    struct pshift_grant_entry g;
    uint32_t n;
    open_controller(1, 2, 2);
    CHECK_EQ(pshift_controller_change(&controller, 7, 1000, 0), QOS_OK);
    say(0, 100, needs(7, 0, 300));
    plan();
    g = granted(0, 7, &n, &m);
    CHECK(n == 1 && g.r_total == 100 + 200 && g.total == QOS_UNLIMITED); /* A = D: excess tokens are planned, too */
    say(0, 40, needs(7, 60, 250));                                       /* the last report: 40 of 100 are left */
    plan();
    next_period();
    g = granted(0, 7, &n, &m);
    CHECK_EQ(n, 0); /* tokens that were planned and not sent are void */
    CHECK_EQ(m.period, 2);
    plan();
    g = granted(0, 7, &n, &m);
    CHECK_EQ(n, 1);
    CHECK_EQ(g.r_total, 310);
    {
        struct pshift_problem p;
        struct pshift_solution s;
        memset(&p, 0, sizeof p);
        memset(&s, 0, sizeof s);
        CHECK_EQ(pshift_controller_certificate(&controller, &p, &s), QOS_OK);
        CHECK_EQ(p.capacity[0], 100);
    }
    next_period();
    CHECK_EQ(pshift_controller_bucket_info(&controller, 8, &(struct pshift_bucket_state){0, 0, 0, 0, 0}), QOS_ENOENT);
    close_controller();
}

/* What the next period is expected to be after a report of a whole period, by a server that served 60 in the last one. */
static void expect_after(uint64_t reported, uint64_t capacity)
{
    const struct pshift_report_entry entry = needs(7, 60, 110);
    struct pshift_message m;
    struct pshift_problem p;
    struct pshift_solution s;
    memset(&p, 0, sizeof p);
    memset(&s, 0, sizeof s);
    say(0, 40, needs(7, 60, 50));
    plan();
    m = head(0, reported);
    m.left_ns = QOS_NS_PER_S;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &entry), QOS_OK);
    next_period();
    plan();
    CHECK_EQ(pshift_controller_certificate(&controller, &p, &s), QOS_OK);
    CHECK_EQ(p.capacity[0], capacity);
    CHECK_EQ(p.demand[0], 110);
}

/* A server whose period has ended reports estimates of a whole period: the next one is not expected to be twice that. */
static void estimates_of_a_whole_period(void)
{
    open_controller(1, 1, 1);
    CHECK_EQ(pshift_controller_change(&controller, 7, 1000, 0), QOS_OK);
    expect_after(100, 100);
    expect_after(3, 60); /* it measured its service while it had no tokens */
    close_controller();
}

/* New pairs of a bucket use the spare entries of its row: the plan stays warm four times. */
static void stays_warm(void)
{
    struct pshift_message m;
    uint32_t j, k, n;
    open_controller(SERVERS, 4, 64);
    CHECK_EQ(pshift_controller_change(&controller, 3, 90, 0), QOS_OK);
    CHECK_EQ(pshift_controller_change(&controller, 4, 10, 0), QOS_OK);
    for (j = 0; j < 4; j++) /* there are enough rows: one changed row is a small part */
        say(0, 1000, needs(3 + j, 0, 10));
    for (j = 0; j < SERVERS; j++) {
        for (k = 0; k < j; k++) /* nothing new, but the server is not silent */
            say(k, 1000, needs(3, 0, 10));
        if (j != 0)
            say(j, 1000, needs(3, 0, 10));
        plan();
        CHECK_EQ(state().cold, j == 0 || j == 5);
        CHECK_EQ(state().planned_buckets, j == 0 || j == 5 ? 4 : 1);
        CHECK_EQ(granted(j, 3, &n, &m).r_total, 10);
    }
    plan();
    CHECK(!state().cold && state().planned_buckets == 0);
    for (j = 0; j < 2; j++) /* two of four rows: more than a quarter */
        say(0, 1000, needs(3 + j, 1, 10));
    plan();
    CHECK(state().cold && state().planned_buckets == 4);
    close_controller();
}

/* A pair without demand is planned, too: without a limit it may be served, whichever other servers are silent. */
static void asks_for_nothing(void)
{
    struct pshift_message m;
    struct pshift_grant_entry g;
    uint32_t n;
    open_controller(2, 5, 9);
    for (n = 6; n <= 9; n++) /* there are enough rows: one changed row is a small part */
        CHECK_EQ(pshift_controller_change(&controller, n, 0, 0), QOS_OK);
    say(1, 100, needs(5, 0, 1));
    plan();
    (void)granted(1, 5, &n, &m);
    say(1, 100, needs(6, 0, 0));
    plan();
    CHECK(!state().cold);
    g = granted(1, 6, &n, &m);
    CHECK(n >= 1 && g.bucket == 6 && g.r_total == 0 && g.total == QOS_UNLIMITED);
    close_controller();
}

/* The server starts again, and this start answers a grant. It has begun the period. */
static void restart(uint32_t server, uint64_t capacity, const struct pshift_report_entry *entry)
{
    struct pshift_message m = head(server, capacity), got = blank;
    struct pshift_grant_entry g;
    m.boot = second_boot;
    m.seq = 1;
    m.answers = m.count = 0;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, NULL), QOS_EAGAIN);
    plan();
    CHECK_EQ(pshift_controller_grant(&controller, 0, server, &got, &g, 1), QOS_OK);
    m.answers = got.seq;
    m.seq = 2;
    m.count = entry ? 1 : 0;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, entry), QOS_OK);
    seq[server] = 2;
}

/* After silent_after (2) rounds without a report, the reservation moves to the other server, and back with a report. */
static void silence(void)
{
    struct pshift_message m;
    uint32_t n, k;
    open_controller(2, 1, 2);
    CHECK_EQ(pshift_controller_change(&controller, 1, 100, 0), QOS_OK);
    plan();
    CHECK_EQ(state().silent, 2); /* no report of them has come yet */
    say(0, 60, needs(1, 0, 100));
    say(1, 100, needs(1, 0, 100));
    plan();
    CHECK_EQ(state().silent, 0);
    CHECK_EQ(granted(0, 1, &n, &m).r_total, 50);
    CHECK_EQ(granted(1, 1, &n, &m).r_total, 50);
    for (k = 0; k < 2; k++) {
        CHECK_EQ(state().silent, 0);
        say(1, 100, needs(1, 0, 100));
        plan();
    }
    CHECK_EQ(state().silent, 1);
    CHECK_EQ(granted(1, 1, &n, &m).r_total, 100);
    (void)granted(0, 1, &n, &m);
    say(0, 60, needs(1, 0, 100));
    plan();
    CHECK_EQ(state().silent, 0);
    CHECK_EQ(granted(1, 1, &n, &m).r_total, 50);
    close_controller();
}

/* Plans that are repeated at once, as answers come, are one round: no server falls silent by them. Time goes on in grants. */
static void repeated_rounds(void)
{
    const uint64_t round_ns = QOS_NS_PER_S / 8;
    struct pshift_grant_entry entry;
    struct pshift_message m = blank;
    uint32_t k;
    open_controller(1, 1, 1);
    CHECK_EQ(pshift_controller_change(&controller, 1, 100, 0), QOS_OK);
    say(0, 60, needs(1, 0, 100));
    for (k = 0; k < 40; k++) {
        plan();
        CHECK_EQ(state().silent, 0);
        CHECK_EQ(pshift_controller_grant(&controller, round_ns + k, 0, &m, &entry, 1), QOS_OK);
    }
    for (k = 2; k < 6; k++) {
        plan();
        CHECK_EQ(state().silent, k > 2 ? 1 : 0); /* the third round since the report */
        (void)!pshift_controller_grant(&controller, k * round_ns, 0, &m, &entry, 1);
    }
    close_controller();
}

/* One server, limit 100: the tokens that it may hold with lost, confirmed and old grants, before and after a restart.
   */
static void ceilings(void)
{
    struct pshift_message m = blank;
    struct pshift_grant_entry g;
    struct pshift_report_entry e = needs(1, 0, 500);
    uint32_t n;
    open_controller(1, 1, 1);
    CHECK_EQ(pshift_controller_change(&controller, 1, 30, 100), QOS_OK);
    CHECK_EQ(bucket(1).ceiling, 0);
    say(0, 1000, e);
    plan();
    CHECK_EQ(state().withheld, 0);
    g = granted(0, 1, &n, &m);
    CHECK(g.r_total == 30 && g.total == 100);
    CHECK_EQ(bucket(1).ceiling, 100);
    e = needs(1, 20, 5); /* the server has not got the grant: it may still come */
    say(0, 1000, e);
    CHECK_EQ(bucket(1).ceiling, 100);
    CHECK_EQ(bucket(1).served, 20);
    CHECK_EQ(pshift_controller_change(&controller, 1, 25, 25), QOS_OK);
    plan();
    g = granted(0, 1, &n, &m); /* 5 more are left, and the remainder is taken back */
    CHECK(g.total == 25 && bucket(1).ceiling == 100);
    say(0, 1000, e); /* neither has come: the first one may still come first */
    CHECK_EQ(bucket(1).ceiling, 100);
    plan();
    (void)granted(0, 1, &n, &m);
    e.grant_seq = m.seq;
    e.held = 5;
    say(0, 1000, e);
    CHECK_EQ(bucket(1).ceiling, 25);
    CHECK_EQ(pshift_controller_change(&controller, 1, 30, 100), QOS_OK);
    /* After the server's restart: 20 were reported, 5 more may have been served. */
    e = needs(1, 3, 500);
    restart(0, 1000, &e);
    CHECK_EQ(bucket(1).served, 23);
    CHECK_EQ(bucket(1).ceiling, 28);
    plan();
    g = granted(0, 1, &n, &m);
    CHECK_EQ(state().withheld, 0); /* the plan knows of the 5 */
    CHECK_EQ(g.total, 3 + 72);     /* 100 - 23 served - 5 lost, on top of the 3 since its start */
    CHECK_EQ(g.r_total, 3 + 7);
    CHECK_EQ(bucket(1).ceiling, 100);
    next_period(); /* dropped with the period */
    CHECK_EQ(bucket(1).ceiling, 0);
    CHECK_EQ(bucket(1).served, 0);
    close_controller();
}

/* A new pair's server reports before the first grant of 100 comes, so the second one of 25 counts apart: when the server
 * names the first one and holds nothing of it, only the second is still to come. */
static void ceiling_of_a_new_pair(void)
{
    struct pshift_message m = blank;
    struct pshift_report_entry e = needs(1, 0, 500);
    uint32_t n;
    open_controller(1, 2, 2);
    CHECK_EQ(pshift_controller_change(&controller, 1, 30, 100), QOS_OK);
    say(0, 1000, needs(2, 0, 1));
    next_period();
    say(0, 1000, e);
    plan();
    CHECK_EQ(granted(0, 1, &n, &m).total, 100);
    e = needs(1, 20, 5);
    say(0, 1000, e);
    CHECK_EQ(bucket(1).ceiling, 100);
    e.grant_seq = m.seq;
    CHECK_EQ(pshift_controller_change(&controller, 1, 25, 25), QOS_OK);
    plan();
    CHECK_EQ(granted(0, 1, &n, &m).total, 25);
    say(0, 1000, e);
    CHECK_EQ(bucket(1).ceiling, 25);
    close_controller();
}

/* An idle pair is dropped, those after it stay. A bucket without a contract has no limit. */
static void keeps_the_busy(void)
{
    struct pshift_message m;
    uint32_t n;
    open_controller(1, 3, 3);
    say(0, 100, needs(5, 0, 0));
    CHECK_EQ(bucket(5).limit, QOS_UNLIMITED);
    CHECK_EQ(pshift_controller_change(&controller, 6, 40, 0), QOS_OK);
    say(0, 100, needs(6, 0, 90));
    next_period();
    CHECK_EQ(state().records, 1);
    plan();
    CHECK_EQ(granted(0, 6, &n, &m).r_total, 40);
    close_controller();
}

/* A pair that was dropped is unknown, whatever server it is of: its next report adds it again. */
static void forgets_the_idle(void)
{
    uint32_t j;
    open_controller(SERVERS, 1, 1);
    for (j = 0; j < SERVERS; j++) {
        say(j, 100, needs(5, 0, 0));
        CHECK_EQ(state().records, 1);
        next_period();
        CHECK_EQ(state().records, 0);
        say(j, 100, needs(5, 0, 0));
        CHECK_EQ(state().records, 1);
        next_period();
    }
    close_controller();
}

/* The capacity is that of the newest report, whatever order they come in. */
static void late_capacity(void)
{
    const struct pshift_report_entry e = needs(1, 0, 50);
    struct pshift_problem p;
    struct pshift_solution s;
    struct pshift_message late, m;
    open_controller(1, 1, 1);
    late = head(0, 5);
    m = head(0, 100);
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_OK);
    CHECK_EQ(pshift_controller_report(&controller, 0, &late, &e), QOS_OK);
    plan();
    CHECK_EQ(pshift_controller_certificate(&controller, &p, &s), QOS_OK);
    CHECK_EQ(p.capacity[0], 100);
    close_controller();
}

/* New pairs beyond the room are skipped and counted; all others are merged, and the server is not silent. */
static void room_for_buckets(void)
{
    const struct pshift_report_entry entry[3] = {{1, 0, 5, 0, 0}, {2, 0, 5, 0, 0}, {3, 0, 5, 0, 0}};
    struct pshift_message m;
    open_controller(1, 2, 8);
    m = head(0, 100);
    m.count = 3;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, entry), QOS_OK);
    CHECK(state().records == 2 && state().refused == 1);
    plan();
    CHECK(state().silent == 0 && bucket(2).served == 0);
    next_period();
    CHECK_EQ(state().refused, 0);
    close_controller();
    open_controller(1, 8, 2);
    m = head(0, 100);
    m.count = 3;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, entry), QOS_OK);
    CHECK(state().records == 2 && state().refused == 1);
    close_controller();
}

/* A server that is silent when a period begins has no records in it. */
static void dead_server(void)
{
    uint32_t k;
    open_controller(2, 2, 4);
    say(0, 100, needs(1, 0, 5));
    say(1, 100, needs(1, 0, 5));
    for (k = 0; k < 3; k++) {
        plan();
        say(1, 100, needs(1, 0, 5));
    }
    plan();
    CHECK(state().silent == 1 && state().records == 2);
    next_period();
    CHECK_EQ(state().records, 1);
    close_controller();
}

/* A server that restarts and does not report has no demand: the next plan moves its tokens. */
static void restarted_idle(void)
{
    struct pshift_message m;
    uint32_t n;
    open_controller(2, 8, 16);
    for (n = 2; n <= 8; n++) /* there are enough rows: one changed row is a small part */
        CHECK_EQ(pshift_controller_change(&controller, n, 0, 0), QOS_OK);
    CHECK_EQ(pshift_controller_change(&controller, 1, 100, 0), QOS_OK);
    say(0, 60, needs(1, 0, 100));
    say(1, 100, needs(1, 0, 100));
    plan();
    CHECK_EQ(granted(0, 1, &n, &m).r_total, 50);
    CHECK_EQ(granted(1, 1, &n, &m).r_total, 50);
    restart(0, 60, NULL);
    say(1, 100, needs(1, 0, 100));
    plan();
    CHECK(!state().cold);
    CHECK_EQ(granted(1, 1, &n, &m).r_total, 100);
    close_controller();
}

/* What a server names no more is not expected for a third period. */
static void unnamed(void)
{
    uint32_t k;
    open_controller(2, 2, 4);
    say(0, 100, needs(1, 0, 50));
    say(0, 100, needs(2, 0, 50));
    plan();
    next_period();
    for (k = 0; k < 3; k++) { /* its first report names the other bucket only */
        say(0, 100, needs(2, 0, 50));
        plan();
    }
    CHECK_EQ(state().records, 2);
    next_period();
    CHECK_EQ(state().records, 1);
    close_controller();
}

/* A server that restarts between two periods costs the new one nothing: a plan gives no tokens to a start once another
 * one has reported, whichever of the two turns out to live. Limit and reservation are 100: what is lost is gone. */
static void restarted_between(bool late)
{
    const struct pshift_report_entry e = needs(1, 0, 100);
    struct pshift_message m, got = blank;
    struct pshift_grant_entry g;
    uint32_t n;
    open_controller(2, 2, 4);
    CHECK_EQ(pshift_controller_change(&controller, 1, 100, 100), QOS_OK);
    say(0, 60, e);
    say(1, 40, e);
    plan();
    CHECK_EQ(granted(0, 1, &n, &m).total, 60);
    CHECK_EQ(granted(1, 1, &n, &m).total, 40);
    next_period();
    m = head(0, 60);
    m.boot = second_boot;
    m.seq = 1;
    m.answers = m.period = 0; /* it has not heard of any */
    m.owner = blank.owner;
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_EAGAIN);
    say(1, 40, e);
    plan();
    CHECK(state().silent == 0 && state().awaited == 1);
    CHECK_EQ(pshift_controller_grant(&controller, 0, 0, &got, &g, 1), QOS_OK);
    CHECK(got.count == 0 && memcmp(&got.boot, &second_boot, sizeof got.boot) == 0);
    CHECK_EQ(granted(0, 1, &n, &m).total, 0);
    CHECK_EQ(granted(1, 1, &n, &m).total, 40);
    m = head(0, 60); /* of the first start: that report was an old one */
    if (!late) {
        m.boot = second_boot;
        m.seq = 2;
        m.answers = got.seq;
    }
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, &e), QOS_OK);
    say(1, 40, e);
    plan();
    CHECK_EQ(state().awaited, 0);
    CHECK_EQ(granted(0, 1, &n, &m).total, 60);
    close_controller();
}

/* A contract that changes in a period holds from the next plan on, without any report. */
static void new_contract(void)
{
    struct pshift_message m;
    uint32_t n;
    open_controller(1, 5, 5);
    for (n = 1; n <= 5; n++) /* there are enough rows: one changed row is a small part */
        CHECK_EQ(pshift_controller_change(&controller, n, 10, 0), QOS_OK);
    say(0, 1000, needs(1, 0, 100));
    plan();
    CHECK_EQ(granted(0, 1, &n, &m).r_total, 10);
    CHECK_EQ(pshift_controller_change(&controller, 1, 60, 80), QOS_OK);
    plan();
    CHECK(!state().cold);
    CHECK_EQ(granted(0, 1, &n, &m).r_total, 60);
    close_controller();
}

/* L-tokens go where the R-tokens leave capacity. */
static void what_is_left(void)
{
    struct pshift_message m;
    struct pshift_report_entry both[2] = {{1, 0, 100, 0, 0}, {2, 0, 100, 0, 0}};
    uint32_t n;
    open_controller(2, 2, 4);
    CHECK_EQ(pshift_controller_change(&controller, 1, 80, 0), QOS_OK);
    CHECK_EQ(pshift_controller_change(&controller, 2, 0, 100), QOS_OK);
    m = head(0, 100);
    m.count = 2; /* only bucket 1 is on this server */
    CHECK_EQ(pshift_controller_report(&controller, 0, &m, both), QOS_OK);
    say(1, 100, needs(2, 0, 100));
    plan();
    CHECK_EQ(granted(0, 2, &n, &m).total, 20);
    CHECK_EQ(granted(1, 2, &n, &m).total, 80);
    close_controller();
}

int main(void)
{
    uint64_t stream;
    check_begin("unit/pshift_controller");
    for (stream = 0; stream < check_scaled(100); stream++)
        acknowledgements(stream);
    expects_the_same();
    estimates_of_a_whole_period();
    stays_warm();
    asks_for_nothing();
    silence();
    repeated_rounds();
    ceilings();
    ceiling_of_a_new_pair();
    keeps_the_busy();
    forgets_the_idle();
    late_capacity();
    room_for_buckets();
    restarted_idle();
    unnamed();
    restarted_between(false);
    restarted_between(true);
    what_is_left();
    new_contract();
    starts();
    time_left(0);
    time_left(QOS_NS_PER_S / 20);
    time_left(3 * QOS_NS_PER_S);
    dead_server();
    return check_end();
}
