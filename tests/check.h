/* check.h - the whole test framework: checks, scale, seeds, red zones.
 *
 * A test is one program. Its first lines are `// proves: ...` and, if it needs libraries, `// links: ...`.
 * It calls check_begin() first and returns check_end(): 0 passed, 1 failed, 77 skipped (check_skip). A failed
 * check prints file, line, both values, and the command that repeats the run. C11 and C++17. It needs libc only,
 * so it also runs on cross targets.
 * A test that ends before check_end() fails (tests/run). So does one with statements after a return
 * (tests/build/early.sh).
 *
 *   QOS_TEST_SEED=n    seed of random tests (default 1)
 *   QOS_TEST_SCALE=n   random tests run 1/n of their length (default 1; 20 on emulated targets)
 *   QOS_TEST_FAILURES=n  give up after n failed checks (default 10)
 *   QOS_TEST_CASE=name   only the case of that name, in a test whose cases have names (check_case)
 */
#ifndef QOS_TESTS_CHECK_H
#define QOS_TESTS_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *name;
    uint64_t checks, failures, seed, scale, most_failures, cases;
    char context[160]; /* which case, which step: printed with a failure */
} check_state;

#define CHECK_UNUSED __attribute__((unused))
/* Marks a function that wraps deliberately: the tests also run under -fsanitize=integer. */
#ifdef __clang__
#define CHECK_WRAPS __attribute__((no_sanitize("integer")))
#else
#define CHECK_WRAPS
#endif

static uint64_t check_env(const char *name, uint64_t fallback)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 0) : fallback;
}

static CHECK_UNUSED void check_begin(const char *name)
{
    check_state.name = name;
    check_state.seed = check_env("QOS_TEST_SEED", 1);
    check_state.scale = check_env("QOS_TEST_SCALE", 1);
    if (check_state.scale == 0)
        check_state.scale = 1;
    check_state.most_failures = check_env("QOS_TEST_FAILURES", 10);
}

static CHECK_UNUSED uint64_t check_seed(void)
{
    return check_state.seed;
}

/* Number of random cases: n in a native run, n / scale in an emulated one, never fewer than one. */
static CHECK_UNUSED uint64_t check_scaled(uint64_t n)
{
    uint64_t m = n / check_state.scale;
    return m ? m : 1;
}

/* `if (check_case("burst")) burst();`: true unless QOS_TEST_CASE is neither the case's name nor its first word. */
static CHECK_UNUSED bool check_case(const char *name)
{
    const char *only = getenv("QOS_TEST_CASE");
    size_t len = only ? strlen(only) : 0;
    bool chosen =
        len == 0 || (strncmp(only, name, len) == 0 && (name[len] == 0 || name[len] == ' ' || name[len] == ','));
    check_state.cases += chosen;
    return chosen;
}

static CHECK_UNUSED int check_end(void)
{
    const char *only = getenv("QOS_TEST_CASE");
    if (only && *only && check_state.cases == 0) {
        printf("%s: has no case %s\n", check_state.name, only);
        exit(2);
    }
    printf("%s: %" PRIu64 " checks, %" PRIu64 " failed, seed %" PRIu64 ", scale 1/%" PRIu64 "\n", check_state.name,
           check_state.checks, check_state.failures, check_state.seed, check_state.scale);
    if (check_state.checks == 0) {
        printf("%s: a test that checked nothing counts as failed\n", check_state.name);
        return 1;
    }
    return check_state.failures ? 1 : 0;
}

static CHECK_UNUSED void check_skip(const char *reason)
{
    printf("SKIP %s: %s\n", check_state.name, reason);
    exit(77);
}

/* Sets the context of the next checks; printed with a failure. */
#define CHECK_CONTEXT(...) ((void)snprintf(check_state.context, sizeof check_state.context, __VA_ARGS__))

static CHECK_UNUSED void check_fail(const char *file, int line, const char *what)
{
    check_state.failures++;
    printf("%s:%d: failed: %s\n", file, line, what);
    if (check_state.context[0])
        printf("    context: %s\n", check_state.context);
    printf("    replay: QOS_TEST_SEED=%" PRIu64 " QOS_TEST_SCALE=%" PRIu64 " %s\n", check_state.seed, check_state.scale,
           check_state.name);
    if (check_state.failures >= check_state.most_failures) {
        printf("    giving up after %" PRIu64 " failures\n", check_state.failures);
        exit(check_end());
    }
}

#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        check_state.checks++;                                                                                          \
        if (!(cond))                                                                                                   \
            check_fail(__FILE__, __LINE__, #cond);                                                                     \
    } while (0)

/* Integers: both sides as 64 bits, printed on failure. */
#define CHECK_EQ(got, want) check_compare((uint64_t)(got), (uint64_t)(want), '=', __FILE__, __LINE__, #got " == " #want)
#define CHECK_LE(got, most) check_compare((uint64_t)(got), (uint64_t)(most), '<', __FILE__, __LINE__, #got " <= " #most)
#define CHECK_GE(got, least)                                                                                           \
    check_compare((uint64_t)(got), (uint64_t)(least), '>', __FILE__, __LINE__, #got " >= " #least)

static CHECK_UNUSED void check_compare(uint64_t a, uint64_t b, char op, const char *file, int line, const char *text)
{
    check_state.checks++;
    if (op == '=' ? a == b : op == '<' ? a <= b : a >= b)
        return;
    printf("    got %" PRIu64 " (%" PRId64 "), against %" PRIu64 " (%" PRId64 ")\n", a, (int64_t)a, b, (int64_t)b);
    check_fail(file, line, text);
}

/* Checks that a measured value (a double) lies in [low, high]. For simulations, not for clocks. */
#define CHECK_WITHIN(value, low, high)                                                                                 \
    do {                                                                                                               \
        double check_v = (double)(value), check_lo = (double)(low), check_hi = (double)(high);                         \
        check_state.checks++;                                                                                          \
        if (!(check_v >= check_lo && check_v <= check_hi)) {                                                           \
            printf("    got %g, allowed [%g, %g]\n", check_v, check_lo, check_hi);                                     \
            check_fail(__FILE__, __LINE__, #value " within " #low " .. " #high);                                       \
        }                                                                                                              \
    } while (0)

/* The tests' own random numbers (xorshift64*): an oracle shares no arithmetic with the headers. */
struct check_rng {
    uint64_t s;
};

/* Product modulo 2^64; the integer sanitizer does not report it. */
static CHECK_UNUSED uint64_t check_wrap_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    (void)__builtin_mul_overflow(a, b, &product);
    return product;
}

static CHECK_UNUSED void check_rng_step(struct check_rng *r)
{
    r->s ^= r->s >> 12;
    r->s ^= (r->s & (UINT64_MAX >> 25)) << 25;
    r->s ^= r->s >> 27;
}

static CHECK_UNUSED void check_rng_init(struct check_rng *r, uint64_t stream)
{
    unsigned i;
    r->s = check_wrap_mul(check_state.seed, UINT64_C(0x9e3779b97f4a7c15)) ^
           check_wrap_mul(stream + 1, UINT64_C(0xd1342543de82ef95));
    if (r->s == 0)
        r->s = 1;
    for (i = 0; i < 8; i++)
        check_rng_step(r);
}

static CHECK_UNUSED uint64_t check_rand(struct check_rng *r)
{
    check_rng_step(r);
    return check_wrap_mul(r->s, UINT64_C(0x2545f4914f6cdd1d));
}

/* Uniform in [low, high]. */
static CHECK_UNUSED uint64_t check_between(struct check_rng *r, uint64_t low, uint64_t high)
{
    return high - low == UINT64_MAX ? check_rand(r) : low + check_rand(r) % (high - low + 1);
}

/* Memory with red zones: `size` bytes at `align` plus `skew`, filled with noise, guarded on both sides. */
#define CHECK_ZONE 128
struct check_mem {
    unsigned char *raw, *mem;
    size_t raw_size, size;
};

static CHECK_UNUSED void *check_mem_new(struct check_mem *m, size_t size, size_t align, size_t skew)
{
    size_t i;
    m->raw_size = size + 2 * CHECK_ZONE + align + skew;
    m->raw = (unsigned char *)malloc(m->raw_size);
    if (!m->raw) {
        printf("out of memory\n");
        exit(1);
    }
    for (i = 0; i < m->raw_size && i < 256; i++)
        m->raw[i] = (unsigned char)(0xa5 ^ (i * 7));
    for (; i < m->raw_size; i += 256) /* the pattern's period */
        memcpy(m->raw + i, m->raw, m->raw_size - i < 256 ? m->raw_size - i : 256);
    m->mem = m->raw + CHECK_ZONE;
    while ((uintptr_t)m->mem % align)
        m->mem++;
    m->mem += skew;
    m->size = size;
    return m->mem;
}

/* True if nothing was written outside the memory; frees it. */
static CHECK_UNUSED bool check_mem_free(struct check_mem *m)
{
    size_t i, begin = (size_t)(m->mem - m->raw), end = begin + m->size;
    bool clean = true;
    for (i = begin ? 0 : end; i < m->raw_size; i = i + 1 == begin ? end : i + 1)
        if (m->raw[i] != (unsigned char)(0xa5 ^ (i * 7)))
            clean = false;
    free(m->raw);
    return clean;
}

#endif
