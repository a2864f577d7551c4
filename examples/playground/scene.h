/* scene.h - three tenants, a simulated world, and a header between them                SPDX-License-Identifier: MIT
 *
 * What the playground shows: six seconds of virtual time, as tenths of a second, for each question of the README's table
 * one scene. The same settings give the same numbers on every machine, in a browser, too. */
#ifndef QOS_PLAYGROUND_SCENE_H
#define QOS_PLAYGROUND_SCENE_H

#include <stdbool.h>
#include <stdint.h>

enum { SCENE_TENANTS = 3, SCENE_TENTHS = 60, SCENE_SETTINGS_MAX = 32 };
#define SCENE_MS UINT64_C(1000000)
#define SCENE_TENTH_NS (100 * SCENE_MS)
#define SCENE_END_NS (SCENE_TENTHS * SCENE_TENTH_NS)

/* Why a tenth of a second is red. */
enum scene_miss {
    SCENE_KEPT = 0,
    SCENE_RATE_MISSED = 1,    /* it waited, and got less than what was promised */
    SCENE_LATENCY_MISSED = 2, /* of its requests of the last second more than 1 of 100 were late */
    SCENE_LIMIT_BROKEN = 4    /* it got more than its limit */
};

/* One tenant in one tenth of a second. */
struct scene_tenth {
    uint64_t work, requests; /* ended; work in the scene's unit */
    uint64_t late;           /* of these, after their promised time */
    uint64_t p99_us;         /* 99 of 100 of these took at most so long from their arrival on; 0: there were none */
    uint64_t missed;         /* enum scene_miss */
};

/* One tenant over all. */
struct scene_total {
    uint64_t work, requests, late, p50_us, p99_us; /* quantiles: of the times from arrival on */
    uint64_t missed_tenths;
    uint64_t promised_per_s; /* its reservation or share, or less if it asks for less; 0: none, or refused */
    uint64_t fits_per_s;     /* what could be reserved, if `refused` */
    int64_t refused;         /* enum qos_status of its reservation */
};

struct scene_result {
    struct scene_tenth tenth[SCENE_TENANTS][SCENE_TENTHS];
    struct scene_total total[SCENE_TENANTS];
};

struct scene_setting {
    const char *name;
    int32_t least, most, preset;
};

/* From a list of X(name, least, most, preset). */
#define SCENE_ENUM(name, least, most, preset) SET_##name,
#define SCENE_ROW(name, least, most, preset) {#name, least, most, preset},

struct scene {
    const char *name; /* of its header */
    const struct scene_setting *setting;
    uint32_t settings;
    void (*run)(const int32_t *setting, struct scene_result *result);
};
extern const struct scene scene_htb, scene_tags, scene_pshift, scene_twochoice, scene_tokenpool;

#define SCENES 5
extern const struct scene *const scenes[SCENES];

/* Values outside of their range count as the nearest one in it. */
void scene_run(const struct scene *scene, const int32_t *setting, struct scene_result *result);

/* For a scene. n requests of tenant i have ended, which took took_ns each; some promise is missed. */
void scene_ended(struct scene_result *result, uint32_t i, uint64_t now_ns, uint64_t work, uint64_t n, uint64_t took_ns,
                 bool late);
void scene_missed(struct scene_result *result, uint32_t i, uint64_t now_ns, enum scene_miss why);

#endif
