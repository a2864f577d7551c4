/* wasm.c - what the page calls, and what a browser has no C library for                 SPDX-License-Identifier: MIT */
#include "../scene.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE 65536u

static int32_t setting[SCENE_SETTINGS_MAX];
static const struct scene *scene;
static struct scene_result result;

/* ---- what the page calls: a scene by its number, its settings by theirs, results as words of 64 bits in the order of
 * struct scene_result ------------------------------------------------------------------------------------------------ */

EXPORT(scene) const char *choose(uint32_t i)
{
    scene = scenes[i];
    return scene->name;
}

EXPORT(scenes) uint32_t count(void)
{
    return SCENES;
}

EXPORT(settings) uint32_t settings(void)
{
    return scene->settings;
}

EXPORT(name) const char *name(uint32_t i)
{
    return scene->setting[i].name;
}

EXPORT(least) int32_t least(uint32_t i)
{
    return scene->setting[i].least;
}

EXPORT(most) int32_t most(uint32_t i)
{
    return scene->setting[i].most;
}

EXPORT(preset) int32_t preset(uint32_t i)
{
    return scene->setting[i].preset;
}

EXPORT(set) void set(uint32_t i, int32_t value)
{
    setting[i] = value;
}

/* ---- memory: taken in order, all given back before the next run ------------------------------------------------------ */

extern unsigned char __heap_base;
static size_t used;

static void *take(size_t size)
{
    size_t at = ((size_t)&__heap_base + used + 15) & ~(size_t)15, end = at + 16 + size;
    if (end > __builtin_wasm_memory_size(0) * PAGE &&
        __builtin_wasm_memory_grow(0, (end - __builtin_wasm_memory_size(0) * PAGE) / PAGE + 1) == (size_t)-1)
        __builtin_trap();
    used = end - (size_t)&__heap_base;
    *(size_t *)at = size;
    return (unsigned char *)at + 16;
}

void *calloc(size_t n, size_t size)
{
    void *p = take(n * size);
    memset(p, 0, n * size);
    return p;
}

void *realloc(void *p, size_t size)
{
    void *q = take(size);
    if (p)
        memcpy(q, p, *(size_t *)((unsigned char *)p - 16) < size ? *(size_t *)((unsigned char *)p - 16) : size);
    return q;
}

void free(void *p)
{
    (void)p;
}

void exit(int status)
{
    (void)status;
    __builtin_trap();
}

EXPORT(run) const struct scene_result *run(void)
{
    used = 0;
    scene_run(scene, setting, &result);
    return &result;
}

/* ---- the C library --------------------------------------------------------------------------------------------------- */

void *memcpy(void *to, const void *from, size_t n)
{
    unsigned char *a = to;
    const unsigned char *b = from;
    for (; n; n--)
        *a++ = *b++;
    return to;
}

void *memmove(void *to, const void *from, size_t n)
{
    unsigned char *a = to;
    const unsigned char *b = from;
    if (a < b)
        return memcpy(to, from, n);
    while (n--)
        a[n] = b[n];
    return to;
}

void *memset(void *to, int value, size_t n)
{
    unsigned char *a = to;
    for (; n; n--)
        *a++ = (unsigned char)value;
    return to;
}

int memcmp(const void *one, const void *other, size_t n)
{
    const unsigned char *a = one, *b = other;
    for (; n && *a == *b; n--, a++, b++)
        ;
    return n ? *a - *b : 0;
}

/* Heapsort. */
static void swap(unsigned char *a, unsigned char *b, size_t size)
{
    for (; size; size--, a++, b++) {
        const unsigned char c = *a;
        *a = *b;
        *b = c;
    }
}

void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    unsigned char *a = base;
    size_t begin = n / 2, end = n, i, below;
    while (end > 1) {
        if (begin > 0)
            begin--;
        else
            swap(a, a + --end * size, size);
        for (i = begin; (below = 2 * i + 1) < end; i = below) {
            if (below + 1 < end && compare(a + below * size, a + (below + 1) * size) < 0)
                below++;
            if (compare(a + i * size, a + below * size) >= 0)
                break;
            swap(a + i * size, a + below * size, size);
        }
    }
}

/* The product of 128 bits, for __builtin_mul_overflow: from products of 32 bits. */
__int128 __multi3(__int128 x, __int128 y);
__int128 __multi3(__int128 x, __int128 y)
{
    const uint64_t a = (uint64_t)x, b = (uint64_t)y, low = 0xffffffff;
    const uint64_t p = (a & low) * (b & low), q = (a >> 32) * (b & low) + (p >> 32),
                   r = (a & low) * (b >> 32) + (q & low);
    const uint64_t high =
        (a >> 32) * (b >> 32) + (q >> 32) + (r >> 32) + a * (uint64_t)(y >> 64) + b * (uint64_t)(x >> 64);
    return (__int128)(((unsigned __int128)high << 64) | (r << 32) | (p & low));
}
