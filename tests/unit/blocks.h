/* blocks.h - counts the basic blocks that a program runs. */
#ifndef QOS_TESTS_BLOCKS_H
#define QOS_TESTS_BLOCKS_H
#include <stdint.h>

#ifdef __clang__ /* only looks for faults here */
#define NOT_COUNTED __attribute__((no_sanitize("coverage")))
#else
#define NOT_COUNTED __attribute__((no_sanitize_coverage))
#endif

/* The compiler calls it at the begin of each basic block, of the bodies in this program, too (-D). */
static volatile uint64_t blocks;
void __sanitizer_cov_trace_pc(void);
NOT_COUNTED void __sanitizer_cov_trace_pc(void)
{
    blocks = blocks + 1;
}

#endif
