/* bench.h - shared by all benchmarks: options, clock, medians, the table and the JSON lines.
 *
 * Each header has one benchmark: build/bench/<header> [--quick] [--json FILE]. It prints a table. With --json it also
 * writes one object a line: {"bench":..., "case":..., "metric":..., "value":..., "unit":...}. Compare only ratios of
 * cases that ran side by side in one process; absolute times depend on the machine.
 */
#ifndef QOS_BENCH_H
#define QOS_BENCH_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown flags"
#endif
#define BENCH_UNUSED __attribute__((unused))

struct bench {
    const char *name;
    FILE *json;
    bool quick;
};

/* Makes the compiler compute a value that is not used. */
#define BENCH_KEEP(x) __asm__ volatile("" : : "r,m"(x) : "memory")

static BENCH_UNUSED uint64_t bench_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int bench_compare_double(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* The p-quantile, 0 <= p <= 1. Sorts v. */
static BENCH_UNUSED double bench_quantile(double *v, size_t n, double p)
{
    qsort(v, n, sizeof *v, bench_compare_double);
    return v[(size_t)(p * (double)(n - 1) + 0.5)];
}

static BENCH_UNUSED double bench_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, bench_compare_double);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static BENCH_UNUSED void bench_cpu_name(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, size, "%.100s", colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

static BENCH_UNUSED void bench_open(struct bench *b, const char *name, int argc, char **argv)
{
    char cpu[128];
    int i;
    memset(b, 0, sizeof *b);
    b->name = name;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            b->quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            b->json = fopen(argv[++i], "w");
            if (!b->json) {
                perror(argv[i]);
                exit(2);
            }
        } else {
            printf("usage: %s [--quick] [--json FILE]\n", argv[0]);
            exit(strcmp(argv[i], "--help") == 0 ? 0 : 2);
        }
    }
    bench_cpu_name(cpu, sizeof cpu);
    printf("# bench %s%s\n# cpu: %s\n# compiler: %s\n# flags: %s\n", name, b->quick ? " (quick)" : "", cpu, __VERSION__,
           BENCH_FLAGS);
    printf("%-34s %-26s %14s %s\n", "case", "metric", "value", "unit");
}

static BENCH_UNUSED void bench_report(struct bench *b, const char *case_name, const char *metric, double value,
                                      const char *unit)
{
    printf("%-34s %-26s %14.4g %s\n", case_name, metric, value, unit);
    if (b->json) {
        fprintf(b->json, "{\"bench\":\"%s\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.9g,\"unit\":\"%s\"}\n",
                b->name, case_name, metric, value, unit);
        fflush(b->json);
    }
    fflush(stdout);
}

static BENCH_UNUSED int bench_close(struct bench *b)
{
    return b->json && fclose(b->json) != 0 ? 1 : 0;
}

#endif
