/* world.h - the core of the simulated world: random numbers, virtual time, an event queue   SPDX-License-Identifier: MIT
 *
 * A world is one process, one thread and one seed: the same seed gives the same world byte for byte on every machine.
 * So nothing here asks the machine: doubles meet + - * / and sqrt only (IEEE 754 fixes their results; logarithms and
 * exponentials of C libraries differ in the last digits), no address and no hash decides an order, and the compiler
 * must not fuse a product and a sum: -ffp-contract=off, and on i386 -msse2 -mfpmath=sse.
 *
 *     struct world_rng       a stream of random numbers; one for each part of a world, so that a change of one part
 *                            leaves the numbers of the others alone
 *     struct world_queue     events by time; those of one time in the order in which they were added
 *
 * Time is in ns from 0; WORLD_NEVER is no time. The parts of the world (devices, clients, clocks) are small files
 * beside this one. None of them knows what it is used for: they include no header of the product. */
#ifndef QOS_WORLD_H
#define QOS_WORLD_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "doubles must not be kept in longer registers: compile with -msse2 -mfpmath=sse"
#endif

#define WORLD_NEVER UINT64_MAX
#define WORLD_NS_PER_S UINT64_C(1000000000)
#define WORLD_UNUSED __attribute__((unused))
/* Marks what wraps on purpose. */
#ifdef __clang__
#define WORLD_WRAPS __attribute__((no_sanitize("integer")))
#else
#define WORLD_WRAPS
#endif

/* ---- random numbers ------------------------------------------------------------------------------------------------ */

/* SplitMix64 (Steele, Lea, Flood, 2014). */
struct world_rng {
    uint64_t s;
};

static WORLD_UNUSED WORLD_WRAPS uint64_t world_rand(struct world_rng *r)
{
    uint64_t z = r->s += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Stream number `stream` of a seed. */
static WORLD_UNUSED WORLD_WRAPS void world_rng_init(struct world_rng *r, uint64_t seed, uint64_t stream)
{
    struct world_rng s = {stream};
    r->s = seed ^ world_rand(&s);
    r->s = world_rand(r);
}

/* Uniform in low..high. */
static WORLD_UNUSED uint64_t world_between(struct world_rng *r, uint64_t low, uint64_t high)
{
    uint64_t x = world_rand(r);
    return high - low == UINT64_MAX ? x : low + x % (high - low + 1);
}

/* True in `permille` of 1000. */
static WORLD_UNUSED bool world_chance(struct world_rng *r, uint32_t permille)
{
    return world_rand(r) % 1000 < permille;
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static WORLD_UNUSED double world_unit(struct world_rng *r)
{
    return (double)(world_rand(r) >> 11) * (1.0 / 9007199254740992.0);
}

/* ---- logarithm and exponential --------------------------------------------------------------------------------------- */

#define WORLD_LN2 0.69314718055994530942

/* 2^n for n of -1022..1023. */
static WORLD_UNUSED double world_power2(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Natural logarithm of a normal x > 0, to 4 units in the last place: x = m 2^e with m near 1, and
 * ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1), |s| < 0.172. */
static WORLD_UNUSED double world_log(double x)
{
    uint64_t bits;
    double m, s, s2, sum = 0;
    int e, k;
    memcpy(&bits, &x, sizeof bits);
    e = (int)(bits >> 52) - 1023;
    bits = (bits & (UINT64_MAX >> 12)) | UINT64_C(1023) << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    s = (m - 1) / (m + 1);
    s2 = s * s;
    for (k = 21; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return (double)e * WORLD_LN2 + 2 * s * sum;
}

/* e^x for x of -700..700, to 1e-13: x = k ln 2 + r, and a series for r. */
static WORLD_UNUSED double world_exp(double x)
{
    int k = (int)(x * (1 / WORLD_LN2) + (x < 0 ? -0.5 : 0.5)), i;
    double r = x - k * WORLD_LN2, sum = 1;
    for (i = 14; i >= 1; i--)
        sum = 1 + sum * r / i;
    return sum * world_power2(k);
}

/* Exponential with mean 1. At most 37. */
static WORLD_UNUSED double world_exponential(struct world_rng *r)
{
    return -world_log(1 - world_unit(r));
}

/* Normal with mean 0 and deviation 1 (Marsaglia's polar method). */
static WORLD_UNUSED double world_normal(struct world_rng *r)
{
    double a, b, s;
    do {
        a = 2 * world_unit(r) - 1;
        b = 2 * world_unit(r) - 1;
        s = a * a + b * b;
    } while (s >= 1 || s < 1e-300);
    return a * sqrt(-2 * world_log(s) / s);
}

/* Log-normal with mean 1. */
static WORLD_UNUSED double world_lognormal(struct world_rng *r, double sigma)
{
    return world_exp(sigma * world_normal(r) - sigma * sigma / 2);
}

/* Between low and high, each order of magnitude as likely as any other. */
static WORLD_UNUSED uint64_t world_scale(struct world_rng *r, uint64_t low, uint64_t high)
{
    double l = world_log((double)low), h = world_log((double)high);
    uint64_t x = (uint64_t)(world_exp(l + (h - l) * world_unit(r)) + 0.5);
    return x < low ? low : x > high ? high : x;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

/* Of n elements, all zero; a world that has no memory ends. */
static WORLD_UNUSED void *world_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        fprintf(stderr, "world: out of memory\n");
        exit(1);
    }
    return p;
}

/* Room for one more element behind n. */
static WORLD_UNUSED void *world_grow(void *p, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return p;
    *room = *room ? 2 * *room : 16;
    p = realloc(p, *room * size);
    if (!p) {
        fprintf(stderr, "world: out of memory\n");
        exit(1);
    }
    return p;
}

/* ---- events ------------------------------------------------------------------------------------------------------------ */

struct world_event {
    uint64_t at_ns, number; /* number: the queue's own, in the order of adding */
    uint32_t kind, index;   /* the user's */
};

/* A binary heap. Zero is an empty queue. */
struct world_queue {
    struct world_event *event;
    size_t count, room;
    uint64_t number;
};

static inline bool world_before(const struct world_event *a, const struct world_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->number < b->number);
}

static WORLD_UNUSED void world_queue_add(struct world_queue *q, uint64_t at_ns, uint32_t kind, uint32_t index)
{
    struct world_event e = {at_ns, q->number++, kind, index};
    size_t i = q->count, up;
    q->event = (struct world_event *)world_grow(q->event, q->count, &q->room, sizeof *q->event);
    for (q->count++; i > 0 && (up = (i - 1) / 2, world_before(&e, &q->event[up])); i = up)
        q->event[i] = q->event[up];
    q->event[i] = e;
}

/* Time of the first event. */
static inline uint64_t world_queue_next_ns(const struct world_queue *q)
{
    return q->count ? q->event[0].at_ns : WORLD_NEVER;
}

/* Takes the first event if it is due by now_ns. */
static WORLD_UNUSED bool world_queue_take(struct world_queue *q, uint64_t now_ns, struct world_event *out)
{
    struct world_event last;
    size_t i = 0, below;
    if (q->count == 0 || q->event[0].at_ns > now_ns)
        return false;
    *out = q->event[0];
    last = q->event[--q->count];
    while ((below = 2 * i + 1) < q->count) {
        if (below + 1 < q->count && world_before(&q->event[below + 1], &q->event[below]))
            below++;
        if (!world_before(&q->event[below], &last))
            break;
        q->event[i] = q->event[below];
        i = below;
    }
    q->event[i] = last;
    return true;
}

static WORLD_UNUSED void world_queue_free(struct world_queue *q)
{
    free(q->event);
    memset(q, 0, sizeof *q);
}

#endif
