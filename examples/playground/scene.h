/* scene.h - three tenants, one simulated device, and htb.h between them                SPDX-License-Identifier: MIT
 *
 * What the playground shows: six seconds of virtual time, as tenths of a second. The same settings give the same numbers
 * on every machine, in a browser, too. A token is a byte; the device does 100 MB/s, of which 70 may be reserved. */
#ifndef QOS_PLAYGROUND_SCENE_H
#define QOS_PLAYGROUND_SCENE_H

#include <stdbool.h>
#include <stdint.h>

/* name, least, most, preset. Rates are MB/s, latencies ms; a limit or latency of 0 is none. */
#define SCENE_SETTINGS(X)                                                                                              \
    X(seed, 1, 9999, 7)                                                                                                \
    X(qos, 0, 1, 1)                                                                                                    \
    X(device, 0, 5, 0)                                                                                                 \
    X(database_rate, 0, 100, 50)                                                                                       \
    X(database_limit, 0, 100, 0)                                                                                       \
    X(database_weight, 1, 10, 1)                                                                                       \
    X(database_latency, 0, 50, 10)                                                                                     \
    X(database_outstanding, 1, 64, 32)                                                                                 \
    X(backup_rate, 0, 100, 0)                                                                                          \
    X(backup_limit, 0, 100, 0)                                                                                         \
    X(backup_weight, 1, 10, 1)                                                                                         \
    X(backup_does, 0, 5, 0)                                                                                            \
    X(web_rate, 0, 100, 15)                                                                                            \
    X(web_limit, 0, 100, 0)                                                                                            \
    X(web_weight, 1, 10, 2)                                                                                            \
    X(web_latency, 0, 50, 20)                                                                                          \
    X(web_demand, 0, 100, 15)                                                                                          \
    X(flood, 0, 1, 0)                                                                                                  \
    X(single, 0, 1, 0)                                                                                                 \
    X(stall, 0, 1, 0)                                                                                                  \
    X(restart, 0, 1, 0)

enum scene_setting {
#define X(name, least, most, preset) SCENE_##name,
    SCENE_SETTINGS(X)
#undef X
        SCENE_SETTINGS_COUNT
};

struct scene_setting_info {
    const char *name;
    int32_t least, most, preset;
};
extern const struct scene_setting_info scene_settings[SCENE_SETTINGS_COUNT];

enum { SCENE_DATABASE = 0, SCENE_BACKUP = 1, SCENE_WEB = 2, SCENE_TENANTS = 3 };
enum { SCENE_TENTHS = 60 };

/* Why a tenth of a second is red. */
enum scene_miss {
    SCENE_KEPT = 0,
    SCENE_RATE_MISSED = 1,    /* it waited, and got less than its reservation */
    SCENE_LATENCY_MISSED = 2, /* of its requests of the last second more than 1 of 100 were late */
    SCENE_LIMIT_BROKEN = 4    /* it got more than its limit */
};

/* One tenant in one tenth of a second. */
struct scene_tenth {
    uint64_t bytes, requests; /* completed */
    uint64_t late;            /* of these, after their promised time */
    uint64_t p99_us;          /* 99 of 100 of these took at most so long from their arrival on; 0: there were none */
    uint64_t missed;          /* enum scene_miss */
};

/* One tenant over all. */
struct scene_total {
    uint64_t bytes, requests, late, p50_us, p99_us; /* quantiles: of the times from arrival on */
    uint64_t missed_tenths;
    uint64_t promised_bytes_per_s; /* its reservation, or less if it asks for less; 0: none, or refused */
    uint64_t fits_bytes_per_s;     /* what could be reserved, if `refused` */
    int64_t refused;               /* enum qos_status of its reservation */
};

struct scene_result {
    struct scene_tenth tenth[SCENE_TENANTS][SCENE_TENTHS];
    struct scene_total total[SCENE_TENANTS];
};

/* Values outside of their range count as the nearest one in it. */
void scene_run(const int32_t setting[SCENE_SETTINGS_COUNT], struct scene_result *result);

#endif
