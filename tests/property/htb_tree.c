// proves: htb_take, htb_take_all and htb_next_ns agree exactly with token buckets by definition, in random trees, with
// proves: the claims of those who were refused
// scale: 2
//
// Oracle: htb_oracle.h. At each step time passes or steps back, and a random class takes one or both resources. Result
// and payer (own or borrowed, by the counters) must agree, and so must the time of the next success, to the nanosecond.
// A refused take leaves a claim, which others must leave tokens for.
#include "htb_random.h"

static void step(struct twin *t, uint64_t *now)
{
    struct qos_stats before, after;
    uint64_t n[HTB_RESOURCES_MAX] = {0}, next, expect;
    int id = t->leaf[check_between(&t->rng, 0, (uint64_t)t->leaves - 1)], payer, r;
    bool seen = check_between(&t->rng, 0, 3) == 0;
    enum qos_status status;
    switch (check_between(&t->rng, 0, 7)) {
    case 0: *now += check_between(&t->rng, 0, 2000000000); break;
    case 1: break;
    default: *now += check_between(&t->rng, 0, 2000000); break;
    }
    oracle_advance(&t->o, *now);
    for (r = 0; r < t->o.resources; r++)
        n[r] = check_between(&t->rng, 0, 5) ? check_between(&t->rng, 0, 2000) : check_between(&t->rng, 0, 60000);
    payer = oracle_payer(&t->o, id, n);
    htb_stats(&t->h, (uint32_t)id, &before);
    /* A request of no tokens is free. Once the tree has seen `now`, an earlier time counts as `now`. */
    if (seen)
        CHECK_EQ(htb_take(&t->h, *now, (uint32_t)id, 0), QOS_OK);
    if (id == 0 && check_between(&t->rng, 0, 1))
        status = htb_take_all(&t->h, *now, 1000 + (uint32_t)n[0], n); /* an unknown id is best effort */
    else if (t->o.resources == 1)
        status = htb_take(&t->h, *now - (seen ? check_between(&t->rng, 0, 1000) : 0), (uint32_t)id, n[0]);
    else
        status = htb_take_all(&t->h, *now, (uint32_t)id, n);
    CHECK_EQ(status, payer == ORACLE_NONE ? QOS_EAGAIN : QOS_OK);
    htb_stats(&t->h, (uint32_t)id, &after);
    if (payer != ORACLE_NONE) {
        oracle_charge(&t->o, id, payer, n);
        CHECK_EQ(after.granted - before.granted, n[0]);
        CHECK_EQ(after.borrowed - before.borrowed, payer == id ? 0 : n[0]);
        oracle_took(&t->o, id, payer, n);
    } else {
        oracle_refused(&t->o, id, n);
    }
    if (check_between(&t->rng, 0, 3) == 0) {
        id = t->leaf[check_between(&t->rng, 0, (uint64_t)t->leaves - 1)];
        for (r = 0; r < t->o.resources; r++)
            n[r] = check_between(&t->rng, 0, 20000);
        expect = oracle_next(&t->o, id, n, UINT64_C(200000000000));
        next = htb_next_ns_all(&t->h, *now, (uint32_t)id, n);
        if (expect == UINT64_MAX)
            CHECK(next > *now + UINT64_C(200000000000));
        else
            CHECK_EQ(next, expect);
    }
}

int main(void)
{
    uint64_t trees, steps, i, k;
    check_begin("property/htb_tree");
    trees = check_scaled(240);
    steps = check_state.scale > 2 ? 750 : 1500;
    for (i = 0; i < trees; i++) {
        struct twin t;
        uint64_t now = 1000000000;
        twin_init(&t, i, i % 3 == 0 ? 2 : 1, now, NULL);
        for (k = 0; k < steps; k++) {
            CHECK_CONTEXT("tree %" PRIu64 ", step %" PRIu64, i, k);
            step(&t, &now);
        }
        CHECK(check_mem_free(&t.m));
    }
    return check_end();
}
