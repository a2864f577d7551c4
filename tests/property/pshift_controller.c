// proves: warm plans are as good as fresh ones. For random reports, round after round, the certificate's problem
// proves: matches the reports and contracts, and its cut proves the allocation by this test's own sums. R- and
// proves: L-tokens together use all that limit and demand allow. Records expire, ids have 64 bits, and quiet rounds
// proves: send almost nothing
// variants: native san i386 s390x
#include "pshift.h"
#include "check.h"

#define SERVERS 8
#define BUCKETS 60
#define RECORDS (BUCKETS * 5)
#define ROUNDS 12

static struct pshift_controller controller;
static struct check_mem memory;
static struct {
    uint64_t id, reservation, limit;
} contract[BUCKETS];
static struct {
    uint64_t served, demand, r_total, total, grant_seq;
    bool known;
} pair[BUCKETS][SERVERS];
static uint64_t capacity[SERVERS], seq[SERVERS], period;
static struct check_rng rng;
static uint64_t warm_plans, cold_plans;

static uint32_t bucket_of(uint64_t id)
{
    uint32_t i;
    for (i = 0; i < BUCKETS; i++)
        if (contract[i].id == id)
            return i;
    CHECK(false);
    return 0;
}

/* Reports the buckets in `changed`, from a perfect server: it has installed all grants. */
static void report(uint32_t j, const bool changed[BUCKETS])
{
    struct pshift_message m;
    struct pshift_report_entry entry[BUCKETS];
    uint32_t i;
    memset(&m, 0, sizeof m);
    m.server = j;
    m.boot.lo = 1;
    m.owner.lo = 7;
    m.seq = ++seq[j];
    m.period = period;
    m.capacity = capacity[j];
    for (i = 0; i < BUCKETS; i++) {
        if (!changed[i])
            continue;
        entry[m.count].bucket = contract[i].id;
        entry[m.count].served = pair[i][j].served;
        entry[m.count].demand = pair[i][j].demand;
        entry[m.count].held = pair[i][j].total == QOS_UNLIMITED      ? QOS_UNLIMITED
                              : pair[i][j].total > pair[i][j].served ? pair[i][j].total - pair[i][j].served
                                                                     : 0;
        entry[m.count++].grant_seq = pair[i][j].grant_seq;
        pair[i][j].known = true;
    }
    CHECK_EQ(pshift_controller_report(&controller, &m, entry), QOS_OK);
}

static uint32_t install_grants(bool named[SERVERS][BUCKETS])
{
    struct pshift_message m;
    struct pshift_grant_entry entry[7];
    uint32_t j, k, n = 0;
    memset(named, 0, sizeof(bool) * SERVERS * BUCKETS);
    for (j = 0; j < SERVERS; j++)
        while (pshift_controller_grant(&controller, 0, j, &m, entry, 7) == QOS_OK)
            for (k = 0; k < m.count; k++, n++) {
                uint32_t i = bucket_of(entry[k].bucket);
                pair[i][j].r_total = entry[k].r_total;
                pair[i][j].total = entry[k].total;
                pair[i][j].grant_seq = m.seq;
                named[j][i] = true;
            }
    return n;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The certificate's rows match the reports. Phi equals the cut by plain sums: no allocation does better. */
static void check_certificate(void)
{
    struct pshift_problem p;
    struct pshift_solution s;
    uint64_t load[SERVERS] = {0}, phi = 0, cut = 0, rows = 0;
    uint32_t i, j, e;
    memset(&p, 0, sizeof p);
    memset(&s, 0, sizeof s);
    CHECK_EQ(pshift_controller_certificate(&controller, &p, &s), QOS_OK);
    CHECK(s.exact);
    for (j = 0; j < SERVERS; j++) {
        CHECK_EQ(p.capacity[j], capacity[j]);
        cut += s.cut[j] ? p.capacity[j] : 0;
    }
    for (i = 0; i < BUCKETS; i++) {
        struct pshift_bucket_state info = {0, 0, 0, 0, 0};
        uint64_t used = 0, demand = 0, outside = 0, sum = 0, want, dense[SERVERS] = {0};
        if (pshift_controller_bucket_info(&controller, contract[i].id, &info) != QOS_OK)
            continue;
        for (j = 0; j < SERVERS; j++)
            used += pair[i][j].known ? pair[i][j].served : 0;
        CHECK_EQ(info.served, used);
        if (info.row >= p.buckets)
            continue;
        rows++;
        for (e = p.row[info.row]; e < p.row[info.row + 1]; e++) {
            dense[p.server[e]] += p.demand[e];
            demand += p.demand[e];
            outside += s.cut[p.server[e]] ? 0 : p.demand[e];
            CHECK_LE(s.alloc[e], p.demand[e]);
            sum += s.alloc[e];
            load[p.server[e]] += s.alloc[e];
        }
        for (j = 0; j < SERVERS; j++)
            CHECK_EQ(dense[j], pair[i][j].known ? pair[i][j].demand : 0);
        want = contract[i].reservation > used ? contract[i].reservation - used : 0;
        CHECK_EQ(p.reservation[info.row], want);
        CHECK_EQ(sum, least(want, demand));
        cut += least(least(want, demand), outside);
    }
    CHECK_GE(rows, 1);
    for (j = 0; j < SERVERS; j++)
        phi += least(load[j], capacity[j]);
    CHECK_EQ(phi, cut);
}

/* Once all grants are confirmed, a limited bucket has all tokens that its limit and demand allow. */
static void check_limits(void)
{
    uint32_t i, j;
    for (i = 0; i < BUCKETS; i++) {
        uint64_t used = 0, left = 0, demand = 0;
        if (contract[i].limit == 0)
            continue;
        for (j = 0; j < SERVERS; j++) {
            used += pair[i][j].served;
            demand += pair[i][j].known ? pair[i][j].demand : 0;
            left += pair[i][j].total > pair[i][j].served ? pair[i][j].total - pair[i][j].served : 0;
        }
        CHECK_EQ(left, least(demand, contract[i].limit - used));
    }
}

static void change_demand(uint32_t i, uint32_t j, bool changed[SERVERS][BUCKETS])
{
    pair[i][j].demand = check_between(&rng, 0, 3) ? check_between(&rng, 0, 200) : 0;
    changed[j][i] = true;
}

static void serve_some(uint32_t i, uint32_t j, bool changed[SERVERS][BUCKETS])
{
    uint64_t most = pair[i][j].total > pair[i][j].served ? pair[i][j].total - pair[i][j].served : 0;
    uint64_t n = check_between(&rng, 0, least(most, pair[i][j].demand));
    pair[i][j].served += n;
    pair[i][j].demand -= n;
    changed[j][i] = true;
}

static void run(uint64_t stream)
{
    struct pshift_controller_config cc = {SERVERS, BUCKETS, RECORDS, {0, 7}, 0, 0};
    bool changed[SERVERS][BUCKETS], acks[SERVERS][BUCKETS];
    struct pshift_controller_state info;
    uint32_t i, j, k, round, pairs_in_use = 0;
    memset(&info, 0, sizeof info);
    check_rng_init(&rng, stream);
    (void)check_mem_new(&memory, pshift_controller_memsize(&cc), 64, 0);
    CHECK_EQ(pshift_controller_init(&controller, memory.mem, memory.size, &cc), QOS_OK);
    memset(pair, 0, sizeof pair);
    memset(seq, 0, sizeof seq);
    for (i = 0; i < BUCKETS; i++) {
        contract[i].id = check_rand(&rng) | 1;
        contract[i].reservation = check_between(&rng, 0, 100);
        contract[i].limit = check_between(&rng, 0, 1) ? contract[i].reservation + check_between(&rng, 1, 100) : 0;
        CHECK_EQ(pshift_controller_change(&controller, contract[i].id, contract[i].reservation, contract[i].limit),
                 QOS_OK);
    }
    for (period = 1; period <= 4; period++) {
        CHECK_EQ(pshift_controller_begin(&controller, 0, period), QOS_OK);
        memset(changed, 0, sizeof changed);
        for (j = 0; j < SERVERS; j++) {
            capacity[j] = check_between(&rng, 100, 1000);
            for (i = 0; i < BUCKETS; i++) {
                changed[j][i] = pair[i][j].demand != 0 || pair[i][j].served != 0;
                if (!changed[j][i])
                    pair[i][j].known = false; /* it expires */
                pair[i][j].served = pair[i][j].total = pair[i][j].r_total = pair[i][j].grant_seq = 0;
                if (changed[j][i] && check_between(&rng, 0, 1))
                    pair[i][j].demand = 0; /* moved away */
            }
        }
        for (round = 0; round < ROUNDS; round++) {
            for (k = 0; k < BUCKETS / (round % 3 == 0 ? 3 : 20) && round % 3 != 2; k++) {
                i = (uint32_t)check_between(&rng, 0, BUCKETS - 1);
                j = (uint32_t)check_between(&rng, 0, SERVERS - 1);
                if (check_between(&rng, 0, 1) && pair[i][j].known)
                    serve_some(i, j, changed);
                else if (pair[i][j].known || pairs_in_use < RECORDS / 2)
                    change_demand(i, j, changed);
            }
            CHECK_CONTEXT("stream %" PRIu64 ", period %" PRIu64 ", round %u", stream, period, round);
            for (j = 0; j < SERVERS; j++)
                report(j, changed[j]);
            CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
            CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
            pairs_in_use = info.records;
            cold_plans += info.cold;
            warm_plans += !info.cold;
            check_certificate();
            k = install_grants(acks);
            memcpy(changed, acks, sizeof changed);
            if (round % 3 == 2) { /* nothing new is reported: confirmations, tokens that move, then silence */
                uint32_t turn;
                for (turn = 0; turn < 12 && (turn == 0 || k != 0); turn++) {
                    for (j = 0; j < SERVERS; j++)
                        report(j, changed[j]);
                    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
                    k = install_grants(acks);
                    memcpy(changed, acks, sizeof changed);
                }
                CHECK_EQ(k, 0);
                CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
                CHECK_EQ(info.withheld, 0);
                check_limits();
            }
        }
    }
    for (i = 0; i < BUCKETS; i++) /* all pairs go idle: two periods later no record is left */
        for (j = 0; j < SERVERS; j++)
            pair[i][j].demand = pair[i][j].served = 0;
    for (k = 0; k < 2; k++, period++) {
        CHECK_EQ(pshift_controller_begin(&controller, 0, period), QOS_OK);
        for (j = 0; j < SERVERS; j++) {
            for (i = 0; i < BUCKETS; i++)
                changed[j][i] = k == 0 && pair[i][j].known;
            report(j, changed[j]);
        }
    }
    CHECK_EQ(pshift_controller_begin(&controller, 0, period), QOS_OK);
    CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
    CHECK_EQ(info.records, 0);
    for (i = 0; i < BUCKETS; i++)
        CHECK_EQ(pshift_controller_change(&controller, contract[i].id, 0, 0), QOS_OK);
    CHECK_EQ(pshift_controller_begin(&controller, 0, period + 1), QOS_OK);
    CHECK_EQ(pshift_controller_info(&controller, &info), QOS_OK);
    CHECK_EQ(info.buckets, 0);
    CHECK(check_mem_free(&memory));
}

int main(void)
{
    uint64_t stream, runs;
    check_begin("property/pshift_controller");
    runs = check_scaled(300);
    for (stream = 0; stream < runs; stream++)
        run(stream);
    printf("%" PRIu64 " cold plans, %" PRIu64 " warm ones\n", cold_plans, warm_plans);
    CHECK(warm_plans > runs && cold_plans > runs);
    return check_end();
}
