// proves: reservations where nothing changes, by the agent's own estimates of demand and capacity: clients in closed loops on
// proves: random clusters, all of whose servers can do what is reserved there, and requests that come evenly, whether servers
// proves: measure just before a plan or at any other time of an interval, with limits and without. Each bucket gets 0.98 of
// proves: its reservation in each period, at 0.6 to 0.9 of the capacity reserved; 0.94 where grants come late and one server
// proves: is full. Who keeps its R-tokens until half of a period costs others those beyond R / 2. Even requests that wait
// proves: count 16 times in demand; it may move, as in Experiment 5 of the paper. A loop may begin anew under a limit
// variants: native san
#include "pshift_rig.h"

#define SERVERS 6
#define BUCKETS 12
#define PERIODS 7
#define WARM 3   /* the first periods make the demand known: they do not count */
#define TURNS 50 /* of an interval: in each, every server serves its part */
#define TURN_NS UINT64_C(1000)

/* capacity: of a server in a period. waiting: requests of a bucket that always wait where it sends. comes: those that come
 * in a period, in equal parts at each interval's begin; of a bucket that is late, all when half of it is over. least: what
 * it is to get; 0: its reservation. delay: turns from a plan's reports to its grants. measures: turn of an interval in which a
 * server measures; 0: just before the plan. limits: times the reservation; 0: none. begins: period in
 * which bucket 0 first sends, once its first plan is made; 0: at once. */
static struct cluster {
    uint32_t servers, buckets, intervals, delay, measures[SERVERS], limits, begins;
    uint64_t capacity[SERVERS], reservation[BUCKETS], waiting[BUCKETS][SERVERS], comes[BUCKETS][SERVERS];
    uint64_t least[BUCKETS];
    bool late[BUCKETS];
} at;
static uint64_t now_ns;

static void open_all(void)
{
    const uint64_t period_ns = at.intervals * TURNS * TURN_NS;
    uint32_t i, j, queue;
    now_ns = 1;
    rig_controller(at.servers, at.buckets, at.servers * at.buckets, period_ns);
    for (i = 0; i < at.buckets; i++)
        CHECK_EQ(pshift_controller_change(&controller, i, at.reservation[i], at.limits * at.reservation[i]), QOS_OK);
    for (j = 0; j < at.servers; j++) {
        rig_server(j, at.buckets, period_ns, 0);
        for (i = 0; i < at.buckets; i++) {
            CHECK_EQ(pshift_agent_open(&node[j].agent, i, &queue), QOS_OK);
            CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, queue, i == 0 && at.begins ? 0 : at.waiting[i][j]),
                     QOS_OK);
        }
    }
}

static void reports_of(uint32_t j)
{
    struct pshift_message m;
    struct pshift_report_entry report[BUCKETS];
    while (pshift_agent_report(&node[j].agent, &m, report, BUCKETS) == QOS_OK)
        CHECK_EQ(pshift_controller_report(&controller, now_ns, &m, report), m.period == 0 ? QOS_EAGAIN : QOS_OK);
}

/* All messages arrive, answers to grants too. */
static void measure(uint32_t turn)
{
    uint32_t j;
    for (j = 0; j < at.servers; j++)
        if (at.measures[j] == turn) {
            pshift_agent_measure(&node[j].agent, now_ns);
            reports_of(j);
        }
}

static void grants(void)
{
    struct pshift_controller_state info;
    struct pshift_message m;
    struct pshift_grant_entry grant[BUCKETS];
    uint32_t j, n;
    for (n = 0; n < 2; n++) {
        CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
        for (j = 0; j < at.servers; j++) {
            while (pshift_controller_grant(&controller, now_ns, j, &m, grant, BUCKETS) == QOS_OK)
                (void)!pshift_agent_install(&node[j].agent, now_ns, &m, grant);
            reports_of(j);
        }
        if (info.awaited == 0 && info.withheld == 0)
            return;
        CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    }
    CHECK_CONTEXT("a start has answered its first grant");
    CHECK_EQ(info.awaited, 0);
}

/* Requests of the k-th interval. Of those of the last period, no more than come in one are kept. */
static void arrivals(uint32_t k)
{
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    uint32_t i, j;
    for (j = 0; j < at.servers; j++)
        for (i = 0; i < at.buckets; i++) {
            const uint64_t all = at.comes[i][j], half = k == at.intervals / 2 ? all : 0;
            const uint64_t even = all * (k + 1) / at.intervals - all * k / at.intervals;
            if (all == 0)
                continue;
            CHECK_EQ(pshift_scheduler_info(&node[j].scheduler, i, &info), QOS_OK);
            if (k == 0 && info.pending > all)
                CHECK_EQ(pshift_scheduler_cancel(&node[j].scheduler, i, info.pending - all), QOS_OK);
            CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, i, at.late[i] ? half : even), QOS_OK);
        }
}

/* All buckets together are served as the cluster can. */
static void run(const char *name, uint64_t seed)
{
    uint64_t served[BUCKETS], left[SERVERS];
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    uint32_t i, j, period, t;
    open_all();
    for (period = 1; period <= PERIODS; period++) {
        CHECK_EQ(pshift_controller_begin(&controller, now_ns, period), QOS_OK);
        memset(served, 0, sizeof served);
        memcpy(left, at.capacity, sizeof left);
        for (t = 0; t < at.intervals * TURNS; t++, now_ns += TURN_NS) {
            if (t % TURNS == 0)
                arrivals(t / TURNS);
            measure(t % TURNS);
            if (t % TURNS == 0)
                CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
            for (j = 0; t == 1 && period == at.begins && j < at.servers; j++)
                CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, 0, at.waiting[0][j]), QOS_OK);
            if (t % TURNS == at.delay)
                grants();
            for (j = 0; j < at.servers; j++)
                while (at.capacity[j] - left[j] < at.capacity[j] * (t + 1) / (at.intervals * TURNS) &&
                       pshift_scheduler_pick(&node[j].scheduler, now_ns, &pick) == QOS_OK) {
                    CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, pick.queue, at.waiting[pick.queue][j] != 0),
                             QOS_OK);
                    served[pick.queue]++;
                    left[j]--;
                }
        }
        for (i = 0; period > WARM && i < at.buckets; i++) {
            CHECK_CONTEXT("%s, seed %u, bucket %u", name, (unsigned)seed, i);
            CHECK_GE(served[i] * 100, (at.least[i] ? at.least[i] : at.reservation[i]) * 98);
        }
    }
    rig_close(at.servers);
}

/* Two servers; one bucket has no other server than the one that another one could leave. */
static void fixed(void)
{
    static const struct cluster c = {
        2,     3,   10,     0, {0}, 0, 0, {5650, 2000}, {1800, 1755, 3330}, {{0, 1000}, {1000, 0}, {1000, 1000}},
        {{0}}, {0}, {false}};
    at = c;
    run("two servers", 0);
    memset(at.waiting, 0, sizeof at.waiting);
    at.comes[0][1] = 2950;
    at.comes[1][0] = 3000;
    at.comes[2][0] = 4750;
    at.comes[2][1] = 3550;
    run("two servers, evenly", 0);
}

/* Two servers that measure as soon as their grants have come. Tokens under a limit must last until the period ends: each
 * server must serve all that it can. */
static void limited(void)
{
    memset(&at, 0, sizeof at);
    at.servers = at.buckets = 2;
    at.intervals = 5;
    at.limits = 2;
    at.capacity[0] = at.capacity[1] = 5000;
    at.reservation[0] = at.reservation[1] = 4900;
    at.waiting[0][0] = at.waiting[0][1] = at.waiting[1][0] = 200;
    at.measures[0] = at.measures[1] = 2;
    at.delay = 1;
    run("limited", 0);
}

/* One server of two loops. The one that begins has 8 requests, and gets no token before the second of four intervals. */
static void begins(void)
{
    memset(&at, 0, sizeof at);
    at.servers = 1;
    at.buckets = 2;
    at.intervals = 4;
    at.limits = 4;
    at.capacity[0] = 4000;
    at.reservation[0] = 2000;
    at.reservation[1] = 1000;
    at.waiting[0][0] = 8;
    at.waiting[1][0] = 20;
    at.begins = WARM + 1;
    run("begins", 0);
}

/* One server; eleven buckets keep 4,000 R-tokens until half of the period is over: 2,000 too many. */
static void late(void)
{
    uint32_t i;
    memset(&at, 0, sizeof at);
    at.servers = 1;
    at.buckets = BUCKETS;
    at.intervals = 10;
    at.capacity[0] = 10000;
    at.reservation[0] = at.comes[0][0] = 6000;
    at.least[0] = 4000;
    for (i = 1; i < BUCKETS; i++) {
        at.reservation[i] = at.comes[i][0] = 4000 / (BUCKETS - 1);
        at.late[i] = true;
    }
    run("late", 0);
}

/* What each server can do is dealt to buckets that send there. */
static void drawn(uint64_t seed)
{
    struct check_rng rng;
    const uint64_t depth = (check_rng_init(&rng, seed), check_between(&rng, 20, 120));
    const uint64_t reserved_permille = check_between(&rng, 600, 900);
    uint32_t i, j;
    memset(&at, 0, sizeof at);
    at.servers = (uint32_t)check_between(&rng, 2, SERVERS);
    at.buckets = (uint32_t)check_between(&rng, 2, BUCKETS);
    at.intervals = (uint32_t)check_between(&rng, 4, 20);
    at.limits = (uint32_t)(seed % 2 * 4);
    for (j = 0; j < at.servers; j++) {
        uint64_t left;
        at.measures[j] = seed % 4 < 2 ? 0 : (uint32_t)check_between(&rng, 0, TURNS - 1);
        at.capacity[j] = check_between(&rng, 1000, 4000);
        left = at.capacity[j] * reserved_permille / 1000;
        for (i = 0; i < at.buckets; i++) {
            const uint64_t part = check_between(&rng, 0, 2) ? 0 : left * check_between(&rng, 0, 100) / 100;
            at.waiting[i][j] = part || !check_between(&rng, 0, 2) ? depth : 0;
            at.reservation[i] += part;
            left -= part;
        }
    }
    run("drawn", seed);
}

/* Two servers. Bucket 0 sends to server 0 only, and a plan by demand fills it. All fits if the others spend at server 1
 * what comes there: then server 0 does the rest. Each grant comes 2 to 10 % of an interval after its plan's reports. */
static void full(uint64_t seed)
{
    uint64_t rest, there = 0;
    struct check_rng rng;
    uint32_t i;
    check_rng_init(&rng, seed);
    memset(&at, 0, sizeof at);
    at.servers = 2;
    at.buckets = BUCKETS;
    at.intervals = 10;
    at.delay = (uint32_t)check_between(&rng, 1, 5);
    at.capacity[0] = at.capacity[1] = 3000;
    rest = at.reservation[0] = check_between(&rng, 800, 1500);
    at.comes[0][0] = rest * 13 / 10;
    for (i = 1; i < BUCKETS; i++) {
        at.reservation[i] = check_between(&rng, 200, 440);
        at.comes[i][0] = at.reservation[i] * check_between(&rng, 60, 100) / 100;
        at.comes[i][1] = at.reservation[i] * check_between(&rng, 60, 80) / 100;
        there += at.comes[i][1];
        rest += at.reservation[i] - at.comes[i][1];
    }
    for (i = 0; i < BUCKETS; i++)
        at.least[i] = at.reservation[i] * 96 / 100;
    if (there < 2900 && rest < 2900)
        run("full", seed);
}

/* Queue 0 gets one request in two turns, after 19 of another one are served: its requests wait. */
static void evenly(void)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    struct pshift_message m;
    struct pshift_report_entry report[2];
    uint32_t n, queue;
    now_ns = 1;
    rig_controller(1, 2, 2, 10 * TURNS * TURN_NS);
    rig_server(0, 2, 10 * TURNS * TURN_NS, 0);
    for (n = 0; n < 2; n++)
        CHECK_EQ(pshift_agent_open(&node[0].agent, n, &queue), QOS_OK);
    CHECK_EQ(pshift_scheduler_arrive(&node[0].scheduler, 1, 1000), QOS_OK);
    pshift_agent_measure(&node[0].agent, now_ns);
    for (n = 0; n < TURNS * 10; n++, now_ns += TURN_NS / 10) {
        if (n % 20 == 0)
            CHECK_EQ(pshift_scheduler_arrive(&node[0].scheduler, 0, 1), QOS_OK);
        CHECK_EQ(pshift_scheduler_set_tokens(&node[0].scheduler, n % 20 != 19, 1, 0), QOS_OK);
        CHECK_EQ(pshift_scheduler_pick(&node[0].scheduler, now_ns, &pick), QOS_OK);
    }
    pshift_agent_measure(&node[0].agent, now_ns);
    CHECK_EQ(pshift_agent_report(&node[0].agent, &m, report, 2), QOS_OK);
    CHECK_EQ(m.capacity, 100 * TURNS);
    n = report[0].bucket != 0;
    CHECK_EQ(report[n].bucket, 0);
    CHECK_EQ(report[n].demand, 16 * 5 * TURNS);
    rig_close(1);
}

#define NODES 8
#define TENANTS 200
#define NODE_TURNS 1000u /* of an interval; a request each */
#define PERIOD_TURNS (5 * NODE_TURNS)
#define PARTS 874u

static struct moving {
    uint64_t reservation, served, at_turn[2], rate[NODES], due[NODES];
} tenant[TENANTS];

/* What comes in a period, in parts by 1 / sqrt(rank) of the nodes, which are drawn. */
static void move(struct moving *x, struct check_rng *rng, uint64_t percent)
{
    static const uint32_t part[NODES] = {200, 141, 115, 100, 89, 82, 76, 71}; /* of PARTS */
    uint32_t order[NODES] = {0, 1, 2, 3, 4, 5, 6, 7}, j, k, to;
    for (j = 0; j < NODES; j++) {
        k = (uint32_t)check_between(rng, j, NODES - 1);
        to = order[k];
        order[k] = order[j];
        x->rate[to] = x->reservation * percent * part[j] / 100;
        x->due[to] = check_between(rng, 0, PARTS * PERIOD_TURNS - 1);
    }
}

/* Each node tells what it can do until an interval before the period ends; the second plan is by the answers. */
static void redistribute(uint64_t left)
{
    static struct pshift_report_entry report[TENANTS];
    static struct pshift_grant_entry grant[TENANTS];
    struct pshift_message m;
    uint32_t j, k;
    for (k = 0; k < 3; k++) {
        for (j = 0; j < NODES; j++) {
            while (k != 0 && pshift_controller_grant(&controller, now_ns, j, &m, grant, TENANTS) == QOS_OK)
                (void)!pshift_agent_install(&node[j].agent, now_ns, &m, grant);
            if (k == 0)
                pshift_agent_measure(&node[j].agent, now_ns);
            while (pshift_agent_report(&node[j].agent, &m, report, TENANTS) == QOS_OK) {
                m.capacity = left > 2 * NODE_TURNS ? left - NODE_TURNS : NODE_TURNS;
                (void)!pshift_controller_report(&controller, now_ns, &m, report);
            }
        }
        if (k < 2)
            CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    }
}

/* Experiment 5 of the paper: one period of five intervals, of which 0.8 is reserved. `percent` of the reservations comes, and
 * moves twice. An interval without a plan goes before; what came in it and waits is all that the first plan knows. */
static void moves(uint64_t seed, uint64_t percent)
{
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    struct check_rng rng;
    uint32_t i, j, queue;
    uint64_t t, sum = 0, missing = 0;
    check_rng_init(&rng, seed);
    now_ns = 1;
    rig_controller(NODES, TENANTS, NODES * TENANTS, PERIOD_TURNS * TURN_NS);
    memset(tenant, 0, sizeof tenant);
    for (i = 0; i < TENANTS; i++)
        sum += tenant[i].reservation = check_between(&rng, 70, 400);
    for (j = 0; j < NODES; j++)
        rig_server(j, TENANTS, PERIOD_TURNS * TURN_NS, 0);
    for (i = 0; i < TENANTS; i++) {
        struct moving *x = &tenant[i];
        x->reservation = x->reservation * (NODES * PERIOD_TURNS * 8 / 10) / sum;
        x->at_turn[0] = NODE_TURNS + check_between(&rng, 1, PERIOD_TURNS - 1);
        x->at_turn[1] = NODE_TURNS + check_between(&rng, 1, PERIOD_TURNS - 1);
        CHECK_EQ(pshift_controller_change(&controller, i, x->reservation, x->reservation * 3 / 2), QOS_OK);
        for (j = 0; j < NODES; j++) {
            CHECK_EQ(pshift_agent_open(&node[j].agent, i, &queue), QOS_OK);
            CHECK_EQ(pshift_scheduler_set_tokens(&node[j].scheduler, i, 0, QOS_UNLIMITED), QOS_OK);
        }
    }
    for (t = 0; t < NODE_TURNS + PERIOD_TURNS; t++, now_ns += TURN_NS) {
        for (i = 0; i < TENANTS; i++) {
            struct moving *x = &tenant[i];
            if (t == 0 || t == x->at_turn[0] || t == x->at_turn[1])
                move(x, &rng, percent);
            for (j = 0; j < NODES; j++)
                if ((x->due[j] += x->rate[j]) >= PARTS * PERIOD_TURNS) {
                    x->due[j] -= PARTS * PERIOD_TURNS;
                    CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, i, 1), QOS_OK);
                }
        }
        for (i = 0; t == NODE_TURNS && i < TENANTS; i++)
            for (j = 0; j < NODES; j++)
                CHECK_EQ(pshift_scheduler_set_tokens(&node[j].scheduler, i, 0, 0), QOS_OK);
        if (t == NODE_TURNS)
            CHECK_EQ(pshift_controller_begin(&controller, now_ns, 1), QOS_OK);
        if (t != 0 && t % NODE_TURNS == 0)
            redistribute(NODE_TURNS + PERIOD_TURNS - t);
        for (j = 0; j < NODES; j++)
            if (pshift_scheduler_pick(&node[j].scheduler, now_ns, &pick) == QOS_OK && t >= NODE_TURNS)
                tenant[pick.queue].served++;
    }
    for (i = 0; i < TENANTS; i++)
        missing += qos_sat_sub(tenant[i].reservation, tenant[i].served);
    CHECK_CONTEXT("moves, seed %u, %u %%", (unsigned)seed, (unsigned)percent);
    CHECK_LE(missing, PERIOD_TURNS / 500);
    rig_close(NODES);
}

int main(void)
{
    uint64_t seed;
    check_begin("property/pshift_closed");
    fixed();
    limited();
    late();
    begins();
    evenly();
    moves(1, 150);
    moves(1, 130);
    moves(1, 105);
    for (seed = 1; seed <= check_scaled(200); seed++)
        drawn(check_seed() * 1000 + seed);
    for (seed = 1; seed <= check_scaled(200); seed++)
        full(check_seed() * 1000 + seed);
    return check_end();
}
