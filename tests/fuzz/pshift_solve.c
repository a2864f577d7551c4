// proves: any problem is solved or refused, and every solution verifies; warm starts too
#include "pshift.h"
#include "fuzz/fuzz.h"

#define SERVERS 9
#define BUCKETS 12
#define ENTRIES 96

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pshift_solver ps;
    static void *mem;
    struct pshift_solver_config config = {SERVERS, BUCKETS, ENTRIES};
    struct fuzz_input in = {data, size};
    uint64_t capacity[SERVERS], reservation[BUCKETS], demand[ENTRIES], alloc[ENTRIES], shortfall[BUCKETS], most;
    uint32_t row[BUCKETS + 1], server[ENTRIES], i, k;
    uint8_t cut[SERVERS];
    struct pshift_problem p = {1, 0, capacity, reservation, row, server, demand};
    struct pshift_solution s;
    struct pshift_options opt;
    memset(&s, 0, sizeof s);
    memset(&opt, 0, sizeof opt);
    memset(alloc, 0, sizeof alloc);
    s.alloc = alloc;
    s.cut = cut;
    s.shortfall = shortfall;
    if (!mem)
        mem = aligned_alloc(64, (pshift_solver_memsize(&config) + 63) / 64 * 64);
    FUZZ_CHECK(mem && pshift_solver_init(&ps, mem, pshift_solver_memsize(&config), &config) == QOS_OK);
    most = fuzz_bytes(&in, 1) % 4 == 0 ? UINT64_MAX >> 1 : UINT64_C(1) << fuzz_between(&in, 0, 40);
    if (fuzz_bytes(&in, 1) == 1)
        most = UINT64_MAX; /* sometimes out of range */
    p.servers = (uint32_t)fuzz_between(&in, 1, SERVERS);
    p.buckets = (uint32_t)fuzz_between(&in, 0, BUCKETS);
    opt.initial_only = fuzz_between(&in, 0, 7) == 7;
    row[0] = 0;
    for (i = 0; i < p.servers; i++)
        capacity[i] = fuzz_between(&in, 0, most);
    for (i = 0; i < p.buckets; i++) {
        row[i + 1] = row[i] + (uint32_t)fuzz_between(&in, 0, 8);
        reservation[i] = fuzz_between(&in, 0, most);
        for (k = row[i]; k < row[i + 1]; k++) {
            server[k] = (uint32_t)fuzz_between(&in, 0, p.servers - 1);
            demand[k] = fuzz_between(&in, 0, most);
        }
    }
    if (pshift_solver_solve(&ps, &p, &opt, &s) != QOS_OK)
        return 0;
    FUZZ_CHECK(pshift_solver_verify(&ps, &p, &s) == QOS_OK);
    FUZZ_CHECK(pshift_solver_shortfall(&ps, &p, &s) == QOS_OK);
    FUZZ_CHECK(pshift_solver_verify(&ps, &p, &s) == QOS_OK);
    for (i = 0; i < p.buckets; i++) {
        FUZZ_CHECK(pshift_solver_retract(&ps, &i, 1, &p, &s) == QOS_OK);
        reservation[i] /= 2;
        FUZZ_CHECK(pshift_solver_resolve(&ps, &i, 1, &p, NULL, &s) == QOS_OK);
        FUZZ_CHECK(pshift_solver_verify(&ps, &p, &s) == QOS_OK);
    }
    return 0;
}
