/* digits.h - schoolbook numbers for oracles: 256 bits as 16 digits of base 2^16, lowest first.
 * Every step stays below 2^33, so nothing wraps. Slow, obvious, and the same on 32-bit targets. */
#ifndef QOS_TESTS_DIGITS_H
#define QOS_TESTS_DIGITS_H

#include <stdbool.h>
#include <stdint.h>

#define DIGITS 16
#define DIGITS_UNUSED __attribute__((unused))
struct digits {
    uint32_t d[DIGITS];
};

static DIGITS_UNUSED struct digits digits_of(uint64_t v)
{
    struct digits r;
    int i;
    for (i = 0; i < DIGITS; i++) {
        r.d[i] = (uint32_t)(v & 0xffffu);
        v >>= 16;
    }
    return r;
}

/* hi * 2^64 + lo */
static DIGITS_UNUSED struct digits digits_of_wide(uint64_t hi, uint64_t lo)
{
    struct digits r = digits_of(lo), h = digits_of(hi);
    int i;
    for (i = 0; i < 4; i++)
        r.d[i + 4] = h.d[i];
    return r;
}

static DIGITS_UNUSED struct digits digits_add(struct digits a, struct digits b)
{
    uint32_t carry = 0;
    int i;
    for (i = 0; i < DIGITS; i++) {
        uint32_t sum = a.d[i] + b.d[i] + carry;
        a.d[i] = sum & 0xffffu;
        carry = sum >> 16;
    }
    return a;
}

/* Modulo 2^256: operands of up to 128 bits never reach that. */
static DIGITS_UNUSED struct digits digits_mul(struct digits a, struct digits b)
{
    struct digits r = digits_of(0);
    int i, k;
    for (i = 0; i < DIGITS; i++) {
        uint64_t carry = 0;
        for (k = 0; i + k < DIGITS; k++) {
            uint64_t sum = (uint64_t)a.d[i] * b.d[k] + r.d[i + k] + carry;
            r.d[i + k] = (uint32_t)(sum & 0xffffu);
            carry = sum >> 16;
        }
    }
    return r;
}

static DIGITS_UNUSED int digits_compare(struct digits a, struct digits b)
{
    int i;
    for (i = DIGITS - 1; i >= 0; i--)
        if (a.d[i] != b.d[i])
            return a.d[i] < b.d[i] ? -1 : 1;
    return 0;
}

/* The low 64 bits, and whether any higher bit is set. */
static DIGITS_UNUSED uint64_t digits_low(struct digits a)
{
    return (uint64_t)a.d[0] | (uint64_t)a.d[1] << 16 | (uint64_t)a.d[2] << 32 | (uint64_t)a.d[3] << 48;
}

static DIGITS_UNUSED bool digits_fits64(struct digits a)
{
    return digits_compare(a, digits_of(UINT64_MAX)) <= 0;
}

/* Division by one digit, rounded down. */
static DIGITS_UNUSED struct digits digits_div_small(struct digits a, uint32_t by, uint32_t *rem)
{
    uint32_t r = 0;
    int i;
    for (i = DIGITS - 1; i >= 0; i--) {
        uint64_t part = (uint64_t)r << 16 | a.d[i];
        a.d[i] = (uint32_t)(part / by);
        r = (uint32_t)(part % by);
    }
    if (rem)
        *rem = r;
    return a;
}

#endif
