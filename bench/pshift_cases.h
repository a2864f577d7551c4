/* pshift_cases.h - the problems of the paper's Section IV-C. Reservations follow Zipf's law; their sum is the fraction
 * r of all capacity. Each bucket is active on some servers; its demand is m times its reservation, divided among them
 * by another Zipf law. The seed determines everything. */
#ifndef QOS_BENCH_PSHIFT_CASES_H
#define QOS_BENCH_PSHIFT_CASES_H

#include "examples/common/draw.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct case_spec {
    uint32_t servers, buckets, active; /* active servers of each bucket */
    uint64_t capacity;                 /* of each server, operations per period */
    double r, m, s_reservation, s_demand;
    uint64_t seed;
};

struct case_data {
    uint32_t servers, buckets, entries;
    uint64_t *capacity, *reservation, *demand;
    uint32_t *row, *server;
};

static uint64_t case_rand(uint64_t *s)
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * UINT64_C(0x2545f4914f6cdd1d);
}

static void *case_array(size_t n, size_t item)
{
    void *p = calloc(n ? n : 1, item);
    if (!p) {
        fprintf(stderr, "out of memory: %zu items of %zu bytes\n", n, item);
        exit(1);
    }
    return p;
}

/* One row: n different servers share a demand of m times the reservation. The first one gets most. */
static void case_fill_row(const struct case_spec *spec, struct case_data *c, uint32_t i, uint64_t *seed)
{
    uint32_t begin = c->row[i], n = c->row[i + 1] - begin, k, q;
    uint64_t total = (uint64_t)((double)c->reservation[i] * spec->m + 0.5), given = 0;
    double sum = 0;
    for (k = 0; k < n; k++) {
        for (;;) {
            uint32_t j = (uint32_t)(case_rand(seed) % spec->servers);
            for (q = 0; q < k && c->server[begin + q] != j; q++) {
            }
            if (q == k) {
                c->server[begin + k] = j;
                break;
            }
        }
        sum += draw_zipf_weight(k, spec->s_demand);
    }
    for (k = 0; k < n; k++) {
        c->demand[begin + k] = (uint64_t)((double)total * draw_zipf_weight(k, spec->s_demand) / sum);
        given += c->demand[begin + k];
    }
    c->demand[begin] += total - given;
}

static uint64_t case_bits(void *seed)
{
    return case_rand((uint64_t *)seed);
}

static void case_make(const struct case_spec *spec, struct case_data *c)
{
    uint64_t seed = spec->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    uint32_t n = spec->buckets, active = spec->active < spec->servers ? spec->active : spec->servers, i;
    double *sums = (double *)case_array(n + 1u, sizeof(double)), *part;
    part = (double *)case_array(n, sizeof(double));
    c->servers = spec->servers;
    c->buckets = n;
    c->entries = n * active;
    c->capacity = (uint64_t *)case_array(c->servers, 8);
    c->reservation = (uint64_t *)case_array(n, 8);
    c->demand = (uint64_t *)case_array(c->entries, 8);
    c->row = (uint32_t *)case_array(n + 1u, 4);
    c->server = (uint32_t *)case_array(c->entries, 4);
    for (i = 0; i < c->servers; i++)
        c->capacity[i] = spec->capacity;
    draw_zipf_parts(part, sums, n, spec->s_reservation, case_bits, &seed);
    for (i = 0; i < n; i++) {
        c->reservation[i] = (uint64_t)(part[i] * spec->r * (double)spec->capacity * (double)spec->servers);
        c->row[i + 1] = (i + 1) * active;
        case_fill_row(spec, c, i, &seed);
    }
    free(sums);
    free(part);
}

static void case_free(struct case_data *c)
{
    free(c->capacity);
    free(c->reservation);
    free(c->demand);
    free(c->row);
    free(c->server);
    memset(c, 0, sizeof *c);
}

#endif
