/* fuzz.h - what fuzz targets share: a check that aborts (so that every fuzzer sees it) and a reader of the input.
 * A target is one file with LLVMFuzzerTestOneInput; driver.c makes a plain test of it. */
#ifndef QOS_TESTS_FUZZ_H
#define QOS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(cond)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: property broken: %s\n", __FILE__, __LINE__, #cond);                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Reads numbers from the input, and zeros after its end: every prefix is a valid program. */
struct fuzz_input {
    const uint8_t *data;
    size_t left;
};

static inline uint64_t fuzz_bytes(struct fuzz_input *in, size_t n)
{
    uint64_t v = 0;
    for (; n > 0; n--) {
        v = v << 8 | (in->left ? *in->data : 0u);
        if (in->left) {
            in->data++;
            in->left--;
        }
    }
    return v;
}

/* Roughly uniform in [low, high], low <= high; uses as few bytes as the span needs. */
static inline uint64_t fuzz_between(struct fuzz_input *in, uint64_t low, uint64_t high)
{
    uint64_t span = high - low;
    uint64_t v = fuzz_bytes(in, span < 0x100 ? 1 : span < 0x10000 ? 2 : span <= UINT32_MAX ? 4 : 8);
    return span == UINT64_MAX ? v : low + v % (span + 1);
}

#endif
