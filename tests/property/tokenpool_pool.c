// proves: compared with a one-word sequential pool, with every operation delayed at random or lost, clocks that drift,
// proves: deaths, new monitors and old ones that go on: the tokens of a period never exceed its bound, limits hold,
// proves: claims are counted to the token, the pool never drifts below -(clients x batch), a backlogged client loses
// proves: no reservation (Sections II-D, II-E)
#include "check.h"
#include <stdint.h>
static struct check_rng random_state;
static uint64_t model_choose(uint64_t low, uint64_t high)
{
    return check_between(&random_state, low, high);
}
#define MODEL_CHECK(cond) CHECK(cond)
#include "property/tokenpool_model.h"

int main(void)
{
    static struct model m;
    uint64_t i, takes = 0, claims = 0, deaths = 0, resumes = 0, periods = 0, losses = 0;
    check_begin("property/tokenpool_pool");
    for (i = 0; i < check_scaled(6000); i++) {
        check_rng_init(&random_state, i);
        CHECK_CONTEXT("run %" PRIu64, i);
        model_run(&m, 5000);
        takes += m.takes;
        claims += m.claims;
        deaths += m.deaths;
        resumes += m.resumes;
        periods += m.periods;
        losses += m.losses;
    }
    printf("%" PRIu64 " tokens taken, %" PRIu64 " claims, %" PRIu64 " periods, %" PRIu64 " deaths, %" PRIu64
           " new monitors, %" PRIu64 " operations lost\n",
           takes, claims, periods, deaths, resumes, losses);
    CHECK(takes > 0 && claims > 0 && deaths > 0 && resumes > 0 && losses > 0);
    return check_end();
}
