// proves: against a one-word sequential pool, with every operation delayed at random, clocks that drift, deaths and new
// monitors: tokens of a period never exceed its bound, limits hold, claims are counted to the token, the pool never
// drifts below clients x batch, a backlogged client loses no reservation to the decay (Sections II-D, II-E)
#include "check.h"
#include <stdint.h>
static struct check_rng rng;
static uint64_t model_choose(uint64_t low, uint64_t high)
{
    return check_between(&rng, low, high);
}
#define MODEL_CHECK(cond) CHECK(cond)
#include "property/tokenpool_model.h"

int main(void)
{
    static struct model m;
    uint64_t i, takes = 0, claims = 0, deaths = 0, resumes = 0, periods = 0;
    check_begin("property/tokenpool_pool");
    for (i = 0; i < check_scaled(1500); i++) {
        check_rng_init(&rng, i);
        CHECK_CONTEXT("run %" PRIu64, i);
        model_run(&m, 4000);
        takes += m.takes;
        claims += m.claims;
        deaths += m.deaths;
        resumes += m.resumes;
        periods += m.periods;
    }
    printf("%" PRIu64 " tokens taken, %" PRIu64 " claims, %" PRIu64 " periods, %" PRIu64 " deaths, %" PRIu64
           " new monitors\n",
           takes, claims, periods, deaths, resumes);
    CHECK(takes > 0 && claims > 0 && deaths > 0 && resumes > 0);
    return check_end();
}
