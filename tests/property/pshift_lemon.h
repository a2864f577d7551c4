/* pshift_lemon.h - the body of the tests that compare pshift.h with LEMON's maximum flow, at several settings of its
 * tunables. */
#include "pshift.h"
#include "pshift_instances.h"
#include "lemon_flow.h"
#include <vector>

__extension__ typedef __int128 wide;

static struct pshift_solver_state info_of(const struct pshift_solver *solver)
{
    struct pshift_solver_state info;
    (void)pshift_solver_info(solver, &info);
    return info;
}

/* The initial allocation by its definition (Section III-A, Algorithm 3, in integers): the floor of the proportional
 * share, plus one for the largest remainders; ties go to the earlier entry. */
static void check_shares(const instance &p, const uint64_t *alloc)
{
    for (uint32_t i = 0; i < p.buckets; i++) {
        wide total = 0, want = static_cast<wide>(p.reservation[i]);
        for (uint32_t e = p.row[i]; e < p.row[i + 1]; e++)
            total += static_cast<wide>(p.demand[e]);
        want = want < total ? want : total;
        for (uint32_t e = p.row[i]; e < p.row[i + 1]; e++) {
            wide share = want * static_cast<wide>(p.demand[e]), q = total ? share / total : 0;
            wide more = static_cast<wide>(alloc[e]) - q;
            CHECK(more == 0 || more == 1);
            for (uint32_t f = p.row[i]; f < e && total > 0 && total < static_cast<wide>(INSTANCE_HUGE); f++) {
                wide other = want * static_cast<wide>(p.demand[f]), rest = share % total, earlier = other % total;
                wide its = static_cast<wide>(alloc[f]) - other / total;
                CHECK(its >= more || rest > earlier); /* to go before an earlier entry takes a larger remainder */
                CHECK(more >= its || earlier >= rest);
            }
        }
    }
}

int main()
{
    check_begin("property/" LEMON_TEST);
    static instance p;
    static uint64_t alloc[INSTANCE_ENTRIES + 1];
    static uint8_t cut[INSTANCE_SERVERS + 1];
    pshift_solver_config config = {INSTANCE_SERVERS, INSTANCE_BUCKETS, INSTANCE_ENTRIES};
    std::vector<uint64_t> mem((pshift_solver_memsize(&config) + 128) / 8);
    uintptr_t at = (reinterpret_cast<uintptr_t>(mem.data()) + 63) & ~static_cast<uintptr_t>(63);
    pshift_solver ps;
    CHECK_EQ(pshift_solver_init(&ps, reinterpret_cast<void *>(at), pshift_solver_memsize(&config), &config), QOS_OK);
    uint64_t runs = check_scaled(12000), infeasible = 0, searched = 0, pulled = 0, long_paths = 0;
    for (uint64_t n = 0; n < runs; n++) {
        check_rng r;
        check_rng_init(&r, n);
        bool big = n % 4 == 0;
        instance_make(&p, &r, static_cast<unsigned>(n % 12), big ? INSTANCE_SERVERS : 6, big ? INSTANCE_BUCKETS : 9,
                      INSTANCE_HUGE);
        pshift_problem q = {p.servers, p.buckets, p.capacity, p.reservation, p.row, p.server, p.demand};
        pshift_solution s = {};
        s.alloc = alloc;
        s.cut = cut;
        CHECK_CONTEXT("instance %" PRIu64 ", %u servers, %u buckets", n, p.servers, p.buckets);
        if (n % 8 == 4) {
            pshift_options opt = {};
            opt.initial_only = true;
            CHECK_EQ(pshift_solver_solve(&ps, &q, &opt, &s), QOS_OK);
            check_shares(p, alloc);
        }
        CHECK_EQ(pshift_solver_solve(&ps, &q, nullptr, &s), QOS_OK);
        wide phi = static_cast<wide>(s.effective.hi) << 64 | static_cast<wide>(s.effective.lo);
        CHECK(phi == lemon_flow(p.servers, p.buckets, p.capacity, p.reservation, p.row, p.server, p.demand));
        CHECK_EQ(pshift_solver_verify(&ps, &q, &s), QOS_OK);
        pshift_solver_state work = info_of(&ps);
        infeasible += s.excess.hi != 0 || s.excess.lo != 0;
        searched += work.rounds != 0;
        pulled += work.pulled.lo != 0;
        long_paths += work.rounds > 2;
    }
    printf("%" PRIu64 " instances: %" PRIu64 " infeasible, %" PRIu64 " with brokers, %" PRIu64 " searched, %" PRIu64
           " in more than 2 rounds\n",
           runs, infeasible, pulled, searched, long_paths);
    CHECK(infeasible > runs / 20 && runs - infeasible > runs / 20);
    CHECK(LEMON_SEARCHES ? searched > runs / 20 && long_paths >= runs / 150 : pulled > runs / 50);
    return check_end();
}
