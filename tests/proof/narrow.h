/* narrow.h - words of two digits of DIGIT bits each, in place of 64 bits: tests/build/narrow.sh. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define QOS_HAS_INT128 0
#define QOS_ASSERT(x) ((void)((x) ? 0 : (printf("assertion: %s\n", #x), failures++)))
#define DIGIT_MASK ((1u << DIGIT) - 1)
#define WORD_MAX ((1u << 2 * DIGIT) - 1)

static unsigned long failures;

/* Arithmetic is done in 32 bits; a variable holds 2 * DIGIT bits and records what does not fit. */
#if DIGIT == 8
typedef uint16_t word;
#else
typedef uint8_t word; /* of it, all 8 bits */
#endif

struct wide {
    word hi, lo;
};

static word narrow_wrap_add(unsigned a, unsigned b)
{
    return (word)((a + b) & WORD_MAX);
}

static word narrow_wrap_sub(unsigned a, unsigned b)
{
    return (word)((a - b) & WORD_MAX);
}

static word narrow_wrap_mul(unsigned a, unsigned b)
{
    return (word)((a * b) & WORD_MAX);
}

static unsigned narrow_clz(unsigned v)
{
    unsigned zeros = 0;
    while (zeros < 2 * DIGIT && !(v >> (2 * DIGIT - 1 - zeros) & 1))
        zeros++;
    return zeros;
}
