/* plain.h - gcc's builtins in plain C with contracts, for Frama-C, which does not know them.
 *
 * Included before a header of ours. One thread: an atomic is an ordinary access. The contracts are gcc's manual
 * (6.56 Built-in functions to perform arithmetic with overflow checking); those of sum and difference are proved, that
 * of the product is taken from the manual. All our uses have 64-bit unsigned operands. */
#ifndef QOS_TESTS_PLAIN_H
#define QOS_TESTS_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define QOS_NO_INT128

#ifdef PLAIN_PROVE /* qos.c proves that these two keep their contracts; the value analysis uses the bodies */
/*@ requires \valid(r);
    assigns *r \from a, b;
    assigns \result \from a, b;
    ensures \result == (a + b > UINT64_MAX ? 1 : 0);
    ensures *r == (a + b > UINT64_MAX ? a + b - UINT64_MAX - 1 : a + b); */
#endif
static inline int plain_add_overflow(uint64_t a, uint64_t b, uint64_t *r)
{
    if (b > UINT64_MAX - a) {
        *r = a - (UINT64_MAX - b) - 1;
        return 1;
    }
    *r = a + b;
    return 0;
}

#ifdef PLAIN_PROVE /* qos.c proves that these two keep their contracts; the value analysis uses the bodies */
/*@ requires \valid(r);
    assigns *r \from a, b;
    assigns \result \from a, b;
    ensures \result == (a < b ? 1 : 0);
    ensures *r == (a < b ? a - b + UINT64_MAX + 1 : a - b); */
#endif
static inline int plain_sub_overflow(uint64_t a, uint64_t b, uint64_t *r)
{
    if (a < b) {
        *r = UINT64_MAX - (b - a) + 1;
        return 1;
    }
    *r = a - b;
    return 0;
}

/*@ requires \valid(r);
    assigns *r \from a, b;
    assigns \result \from a, b;
    ensures \result == (a * b > UINT64_MAX ? 1 : 0);
    ensures \initialized(r);
    ensures \result == 0 ==> *r == a * b;
    ensures \result == 1 ==> *r == (uint64_t)(a * b); */
int plain_mul_overflow(uint64_t a, uint64_t b, uint64_t *r);

/*@ requires v != 0;
    assigns \result \from v;
    ensures 0 <= \result <= 63;
    ensures v * (1 << \result) <= UINT64_MAX;
    ensures v * (1 << \result) >= 0x8000000000000000; */
int plain_clz(uint64_t v);

/*@ requires v != 0;
    assigns \result \from v;
    ensures 0 <= \result <= 63; */
int plain_ctz(uint64_t v);

#define __builtin_add_overflow(a, b, r) plain_add_overflow(a, b, r)
#define __builtin_sub_overflow(a, b, r) plain_sub_overflow(a, b, r)
#define __builtin_mul_overflow(a, b, r) plain_mul_overflow(a, b, r)
#define __builtin_clzll(v) plain_clz(v)
#define __builtin_ctzll(v) plain_ctz(v)
#define __builtin_memcpy(to, from, n) memcpy(to, from, n)
#define __builtin_memmove(to, from, n) memmove(to, from, n)
#define __builtin_memset(to, v, n) memset(to, v, n)
#define __builtin_expect(condition, likely) (condition)
#define __atomic_load_n(word, order) (*(word))
#define __atomic_store_n(word, v, order) (*(word) = (v))
#define __atomic_fetch_add(word, v, order) plain_fetch_add(word, v)
#define __atomic_compare_exchange_n(word, expected, desired, weak, success, failure) plain_cas(word, expected, desired)

static inline uint64_t plain_fetch_add(uint64_t *word, uint64_t v)
{
    uint64_t before = *word;
    (void)plain_add_overflow(before, v, word);
    return before;
}

static inline bool plain_cas(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    if (*word != *expected) {
        *expected = *word;
        return false;
    }
    *word = desired;
    return true;
}

#endif
