/* scene.c - what all scenes share: settings in their ranges, and what is told after a run  SPDX-License-Identifier: MIT */
#include "scene.h"
#include <string.h>

const struct scene *const scenes[SCENES] = {&scene_htb, &scene_tags, &scene_pshift, &scene_twochoice, &scene_tokenpool};

/* Times in us, counted: exact up to 255, then in steps of less than one of 128. */
#define STEPS 128u
#define BUCKETS (26 * STEPS)
static uint32_t histogram[SCENE_TENANTS][SCENE_TENTHS + 1][BUCKETS]; /* the last one: of all tenths */

static uint32_t bucket_of(uint64_t us)
{
    uint32_t shift = 0;
    us = us > UINT32_MAX ? UINT32_MAX : us;
    while (us >> shift >= 2 * STEPS)
        shift++;
    return shift * STEPS + (uint32_t)(us >> shift);
}

static uint64_t quantile(const uint32_t *count, uint64_t n, uint64_t permille)
{
    const uint64_t wanted = n ? (n - 1) * permille / 1000 : 0;
    uint64_t below = 0;
    uint32_t i, shift;
    for (i = 0; n && i + 1 < BUCKETS && below + count[i] <= wanted; i++)
        below += count[i];
    shift = i < 2 * STEPS ? 0 : i / STEPS - 1;
    return (uint64_t)(i - shift * STEPS) << shift;
}

void scene_ended(struct scene_result *result, uint32_t i, uint64_t now_ns, uint64_t work, uint64_t n, uint64_t took_ns,
                 bool late)
{
    const uint64_t tenth = now_ns / SCENE_TENTH_NS;
    struct scene_total *total = &result->total[i];
    if (tenth >= SCENE_TENTHS)
        return;
    result->tenth[i][tenth].work += work;
    result->tenth[i][tenth].requests += n;
    result->tenth[i][tenth].late += late ? n : 0;
    total->work += work;
    total->requests += n;
    total->late += late ? n : 0;
    histogram[i][tenth][bucket_of(took_ns / 1000)] += (uint32_t)n;
    histogram[i][SCENE_TENTHS][bucket_of(took_ns / 1000)] += (uint32_t)n;
}

void scene_missed(struct scene_result *result, uint32_t i, uint64_t now_ns, enum scene_miss why)
{
    if (now_ns / SCENE_TENTH_NS < SCENE_TENTHS)
        result->tenth[i][now_ns / SCENE_TENTH_NS].missed |= (uint64_t)why;
}

/* After the run: quantiles, and the seconds in which more than one request of 100 was late. */
static void look_back(struct scene_result *result)
{
    uint32_t i, k, j;
    for (i = 0; i < SCENE_TENANTS; i++) {
        struct scene_total *total = &result->total[i];
        for (k = 0; k < SCENE_TENTHS; k++) {
            struct scene_tenth *s = &result->tenth[i][k];
            uint64_t requests = 0, late = 0;
            s->p99_us = quantile(histogram[i][k], s->requests, 990);
            for (j = k < 9 ? 0 : k - 9; j <= k; j++) {
                requests += result->tenth[i][j].requests;
                late += result->tenth[i][j].late;
            }
            if (s->late && late * 100 > requests)
                s->missed |= SCENE_LATENCY_MISSED;
            total->missed_tenths += s->missed != 0;
        }
        total->p50_us = quantile(histogram[i][SCENE_TENTHS], total->requests, 500);
        total->p99_us = quantile(histogram[i][SCENE_TENTHS], total->requests, 990);
    }
}

void scene_run(const struct scene *scene, const int32_t *setting, struct scene_result *result)
{
    int32_t clamped[SCENE_SETTINGS_MAX];
    uint32_t i;
    for (i = 0; i < scene->settings; i++) {
        const struct scene_setting *s = &scene->setting[i];
        clamped[i] = setting[i] < s->least ? s->least : setting[i] > s->most ? s->most : setting[i];
    }
    memset(result, 0, sizeof *result);
    memset(histogram, 0, sizeof histogram);
    scene->run(clamped, result);
    look_back(result);
}
