/* qos.h - the vocabulary that the qoskit headers share       SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   Storage quality of service is arithmetic on rates, times and counters. Careless code
 *   drops a fraction at every refill, overflows after a week, or trusts a clock that
 *   jumps. Each of the five algorithm headers (pshift.h, tags.h, twochoice.h,
 *   tokenpool.h, htb.h) solves one scheduling problem. What two or more of them need is
 *   here once, tested to the ends of its range.
 *
 * THE MODEL
 *
 *                                qos.h
 *         status  time  buckets  cost  128 bits  frames  layout  shared words
 *            ^       ^         ^          ^            ^
 *         htb.h   tags.h   pshift.h  twochoice.h  tokenpool.h   (none includes another)
 *
 *   The central object is a token bucket that never rounds. It counts in sub-tokens, 10^9
 *   to the token. A rate of r tokens/s then adds exactly r sub-tokens per nanosecond: one
 *   multiplication, nothing to round, nothing to carry. At 3 tokens/s, polled every 7 ns:
 *
 *       now_ns        sub-tokens    whole tokens
 *       7             21            0
 *       333333333     999999999     0
 *       333333334     1000000002    1    <- at ceil(10^9 / 3) ns, however it was polled
 *
 *   The price is range: a bucket holds, and a request takes, at most QOS_TOKENS_MAX
 *   tokens, 4 * 10^9 (4 GB if a token is a byte, 4 s of device time if it is a
 *   nanosecond).
 *
 * THE CALLS
 *
 *     #include "qos.h"
 *
 *     int main(void)
 *     {
 *         struct qos_cost_model model = {{50000, 60000}, {300000, 400000}}; // ns
 *         struct qos_bucket bucket;
 *         uint64_t now_ns = 1000000000, cost = qos_cost(&model, QOS_READ, 4096);
 *
 *         // half of the device's time, in bursts of up to 10 ms; the bucket starts empty
 *         if (qos_bucket_init(&bucket, now_ns, 500000000, 10000000) != QOS_OK)
 *             return 1;
 *         if (qos_bucket_take(&bucket, now_ns, cost) == QOS_EAGAIN) // not yet
 *             now_ns = qos_bucket_next_ns(&bucket, now_ns, cost);   // sleep until then
 *         return qos_bucket_take(&bucket, now_ns, cost) == QOS_OK ? 0 : 1;
 *     }
 *
 * THE CONTRACT (of this and of every other qoskit header)
 *
 *   - C11 and C++17, gcc or clang; freestanding: no allocation, no libc call, no floating
 *     point, no clock, no thread, no mutable static.
 *   - Memory is the caller's. Time is the caller's: now_ns is monotonic, in nanoseconds
 *     from any epoch. A now_ns that goes backwards adds no tokens and breaks nothing.
 *   - Arguments come in one order: handle, now_ns, ids, amounts, outputs. A handle is
 *     never NULL (asserted); a pointer that may be NULL says so.
 *   - Errors are values (enum qos_status, negative). After an error, "not yet" included,
 *     the object is as it was.
 *   - Ranges are written beside each argument and checked where the value enters.
 *   - In 64-bit settings QOS_UNLIMITED means no limit, QOS_NOTHING means nothing at all.
 *     A reservation or limit of 0 is none; any other 0 means the documented default.
 *     Clients of tags.h and tokenpool.h cannot be limited to nothing: remove them.
 *   - Every function here is reentrant, works on its arguments only and is wait-free.
 *
 *   A bucket of rate r and burst d, asked for at most n tokens at a time, grants in any
 *   window of w seconds, whatever the pattern of takes:  granted <= r * w + max(d, n).
 *   Forced requests with a debt of at most m add to it:  granted <= r * w + d + m + n.
 *   A request larger than the bucket waits for a full one and leaves a debt, which the
 *   refill pays off before anything else passes. So a lone request of n tokens waits at
 *   most (d + n) / r seconds.
 */
#ifndef QOS_H
#define QOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- configuration and public types -------------------------------------------------------------- */

#if !defined(__GNUC__) && !defined(__clang__)
#error "qoskit needs the builtins of gcc or clang (__atomic_*); on Windows compile with clang-cl, not with cl"
#endif
#if defined(__cplusplus) ? __cplusplus < 201703L : __STDC_VERSION__ < 201112L
#error "qoskit needs C11 or C++17: compile with -std=c11 or -std=c++17, or a newer standard"
#endif

#define QOS_VERSION_MAJOR 0
#define QOS_VERSION_MINOR 3
#define QOS_VERSION_PATCH 0
#define QOS_VERSION_STRING "0.3.0"

/* Macros that may be defined before the first include:
 *
 *   QOS_API           what precedes every public function; default `static inline`, unused-safe. Define it
 *                     empty in one .c file to get linkable symbols.
 *   QOS_DECLARE_ONLY  define it in the other files, to get types and prototypes without bodies.
 *   QOS_ASSERT(x)     check of an internal invariant; default: nothing. The compiler never assumes x.
 *   QOS_NO_INT128     use the portable 128-bit code although the compiler has __int128.
 *   QOS_ATOMIC_HOOK   route every atomic access to qos_hook_* functions of yours (model checking). */
#ifndef QOS_API
#ifdef QOS_DECLARE_ONLY
#define QOS_API
#else
#define QOS_API static inline
#endif
#endif

/* Private functions: static in every build, also where QOS_API is empty. */
#define QOS_PRIV static inline
/* The same, never inlined: rare work, and work that needs much stack. gcc allows no inline with noinline. */
#if defined(__clang__)
#define QOS_PRIV_NOINLINE QOS_PRIV __attribute__((noinline))
#else
#define QOS_PRIV_NOINLINE static __attribute__((unused, noinline))
#endif

#ifndef QOS_ASSERT
#define QOS_ASSERT(x) ((void)0)
#endif

#define QOS_NODISCARD __attribute__((warn_unused_result))
#define QOS_COLD __attribute__((cold)) /* rarely called: keep it out of the hot path */
#define QOS_LIKELY(x) __builtin_expect(!!(x), 1)
#define QOS_UNLIKELY(x) __builtin_expect(!!(x), 0)

#ifdef __cplusplus
#define QOS_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
extern "C" {
#else
#define QOS_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#endif

/* 1: the target has a lock-free 64-bit word. Shared state (tokenpool.h, shared tags) needs one, the rest does not. */
#if defined(__GCC_ATOMIC_LLONG_LOCK_FREE) && __GCC_ATOMIC_LLONG_LOCK_FREE == 2
#define QOS_HAS_ATOMIC64 1
#elif defined(__CLANG_ATOMIC_LLONG_LOCK_FREE) && __CLANG_ATOMIC_LLONG_LOCK_FREE == 2 /* clang-cl */
#define QOS_HAS_ATOMIC64 1
#else
#define QOS_HAS_ATOMIC64 0
#endif

#if defined(__SIZEOF_INT128__) && !defined(QOS_NO_INT128)
#define QOS_HAS_INT128 1
#else
#define QOS_HAS_INT128 0
#endif

#define QOS_NS_PER_S UINT64_C(1000000000)
#define QOS_NEVER UINT64_MAX                /* "never", as a time in ns */
#define QOS_UNLIMITED UINT64_MAX            /* no limit, in 64-bit settings */
#define QOS_NOTHING (UINT64_MAX - 1)        /* nothing at all, in 64-bit settings */
#define QOS_NONE UINT32_MAX                 /* no index; as the id of X_stats: the whole */
#define QOS_RATE_MAX (UINT64_C(1) << 40)    /* tokens per second: 1.1 * 10^12 */
#define QOS_TOKENS_MAX UINT64_C(4000000000) /* tokens in one bucket, one debt or one request */
#define QOS_SUBTOKENS INT64_C(1000000000)   /* sub-tokens in a token: rate * ns needs no division */
#define QOS_CACHE_LINE 64

enum qos_status {
    QOS_OK = 0,
    QOS_EINVAL = -1,      /* an argument makes no sense, whatever the state */
    QOS_ERANGE = -2,      /* a number is outside the range written beside it */
    QOS_EMEMORY = -3,     /* the memory handed in is too small */
    QOS_EALIGN = -4,      /* the memory handed in is not aligned */
    QOS_ENOENT = -5,      /* no such id */
    QOS_EEXIST = -6,      /* the id is taken */
    QOS_EFULL = -7,       /* a fixed pool has no room */
    QOS_EADMISSION = -8,  /* the reservation does not fit; the call says how much would */
    QOS_EAGAIN = -9,      /* not now; X_next_ns says when */
    QOS_EDEBT = -10,      /* the debt bound is reached */
    QOS_EBUSY = -11,      /* something still depends on it */
    QOS_ETRUNCATED = -12, /* fewer bytes than the format needs */
    QOS_ECORRUPT = -13,   /* checksum or structure is wrong */
    QOS_EVERSION = -14,   /* written by a newer version */
    QOS_ESTALE = -15,     /* older than what is known already */
    QOS_ELIMIT = -16,     /* rejected at the limit */
    QOS_EIO = -17         /* the caller's storage callback failed */
};
#define QOS_STATUS_LAST (-17)

/* Unsigned 128-bit value. */
struct qos_u128 {
    uint64_t hi, lo;
};

/* A word that several threads, processes or devices share. Reach it only through qos_atomic_*. */
typedef uint64_t qos_word_t __attribute__((aligned(8)));
QOS_STATIC_ASSERT(sizeof(qos_word_t) == 8 && __alignof__(qos_word_t) == 8, "a shared word is 8 aligned bytes");

/* A counter with one writer and any number of readers. */
typedef qos_word_t qos_counter_t;

/* What every scheduler counts, and what X_stats returns. Tokens are in the scheduler's unit. */
struct qos_stats {
    uint64_t granted;  /* tokens granted, borrowed ones included */
    uint64_t borrowed; /* of these, tokens beyond the class's own rate */
    uint64_t refused;  /* takes that were refused */
    uint64_t waited;   /* requests that waited in a queue before they were granted */
    uint64_t debt;     /* tokens owed at the moment (rounded up) */
};

/* The same while they count: the owner adds, any thread reads. */
struct qos_counters {
    qos_counter_t granted, borrowed, refused, waited;
};

/* Token bucket with exact refill. Plain struct, single owner. */
struct qos_bucket {
    int64_t level;       /* sub-tokens now; negative: debt. -2 * QOS_TOKENS_MAX tokens <= level <= depth */
    int64_t depth;       /* sub-tokens that it can hold: the burst */
    uint64_t rate_per_s; /* tokens per second = sub-tokens per ns */
    uint64_t last_ns;    /* time of the last refill */
};

enum qos_op { QOS_READ = 0, QOS_WRITE = 1 };

/* Cost of a request in integer units (usually ns of device time): fixed + bytes * per_mib / 2^20, rounded up. */
struct qos_cost_model {
    uint64_t fixed_cost[2];   /* per request, by enum qos_op; 0..QOS_TOKENS_MAX */
    uint64_t per_mib_cost[2]; /* per 2^20 bytes; 0..2^40 */
};

/* Seeded generator (splitmix64). Same seed, same sequence, on every target. */
struct qos_rng {
    uint64_t state;
};

/* What must hold for a configuration, and what to say if it does not. */
struct qos_rule {
    bool holds;
    const char *why;
};

/* Layout of the caller's memory: one function adds the parts in order. Begun on NULL it only measures; begun on
 * the memory it gives the pointers. So size and pointers come from the same calls. */
struct qos_layout {
    unsigned char *mem; /* NULL: measuring */
    size_t size_bytes;  /* so far */
    size_t align;       /* strictest alignment so far, a power of two */
    bool overflow;      /* a size did not fit in size_t */
};

/* Bounded little-endian writer and reader: past the end they set `bad` and touch nothing. */
struct qos_writer {
    uint8_t *buf;
    size_t size_bytes, pos;
    bool bad;
};
struct qos_reader {
    const uint8_t *buf;
    size_t size_bytes, pos;
    bool bad;
};

/* Frame of every wire message: magic, version, type, payload length, CRC32C of these, CRC32C of all, payload. */
#define QOS_FRAME_HEADER_BYTES 20
struct qos_frame {
    uint32_t magic;         /* which header's format */
    uint16_t version;       /* of that format */
    uint16_t type;          /* of the message */
    uint32_t payload_bytes; /* behind the header */
};

/* ---- the API at a glance --------------------------------------------------------------------------
 *
 *   status      qos_strerror                             a sentence for any status
 *   buckets     qos_bucket_init, set_rate                rate and burst
 *               qos_bucket_take, force, put              now or not, with a debt, given back
 *               qos_bucket_next_ns, refill               when a take will succeed; credit the time
 *               qos_level_*                              the same arithmetic for buckets of other shapes
 *   cost        qos_cost, qos_cost_fit                   of a request; a model from two measurements
 *   integers    qos_sat_*, qos_checked_*, qos_wrap_*     saturate, report or wrap at the ends
 *               qos_min, qos_max                         smaller, larger
 *               qos_clz64, qos_ctz64                     zero bits above and below
 *               qos_*_wide, qos_mul_div_floor, _ceil     128 bits: products, sums, division
 *               qos_elapsed_ns                           time that passed, never negative
 *   bytes       qos_crc32c, qos_get_le*, qos_put_le*     checksum, little-endian numbers
 *               qos_writer_*, qos_write_*                bounded writer
 *               qos_reader_*, qos_read_*                 bounded reader
 *               qos_frame_seal, qos_frame_open           checked frame of a message or record
 *   settings    qos_default, qos_first_broken            default if zero; the first rule that does not hold
 *   memory      qos_layout_begin, part                   parts of the caller's memory
 *               qos_layout_size_bytes, check             bytes to allocate; is the memory right?
 *   random      qos_rng_seed, u64, below                 reproducible numbers
 *   sharing     qos_counter_add, read, qos_counters_read one writer, any reader
 *               qos_atomic_*                             words that threads or processes share
 */

/* ---- the API -------------------------------------------------------------------------------------- */

/* One English sentence for any status, never NULL; says what to do where that is known. */
QOS_API const char *qos_strerror(int status);

/* Deliberate wrap-around (hashes, generators, free-running counters). Everything else must not wrap. */
QOS_API uint64_t qos_wrap_add(uint64_t a, uint64_t b);
QOS_API uint64_t qos_wrap_sub(uint64_t a, uint64_t b);
QOS_API uint64_t qos_wrap_mul(uint64_t a, uint64_t b);

/* Checked: true and *out set if the exact result fits; false and *out untouched if not. */
QOS_API QOS_NODISCARD bool qos_checked_add(uint64_t a, uint64_t b, uint64_t *out);
QOS_API QOS_NODISCARD bool qos_checked_mul(uint64_t a, uint64_t b, uint64_t *out);

/* Saturating: UINT64_MAX above, 0 below. */
QOS_API uint64_t qos_sat_add(uint64_t a, uint64_t b);
QOS_API uint64_t qos_sat_sub(uint64_t a, uint64_t b);
QOS_API uint64_t qos_sat_mul(uint64_t a, uint64_t b);
QOS_API uint64_t qos_min(uint64_t a, uint64_t b);
QOS_API uint64_t qos_max(uint64_t a, uint64_t b);

/* 128-bit: exact product; sum and difference (wrap at 2^128); comparison (<0, 0, >0). */
QOS_API struct qos_u128 qos_mul_wide(uint64_t a, uint64_t b);
QOS_API struct qos_u128 qos_add_wide(struct qos_u128 a, struct qos_u128 b);
QOS_API struct qos_u128 qos_sub_wide(struct qos_u128 a, struct qos_u128 b);
QOS_API int qos_cmp_wide(struct qos_u128 a, struct qos_u128 b);
/* n / d rounded down; *rem (may be NULL) the remainder. d == 0 or a quotient of 2^64 and more: UINT64_MAX, *rem 0. */
QOS_API uint64_t qos_div_wide(struct qos_u128 n, uint64_t d, uint64_t *rem);
/* a * b / c, rounded down or up; the product is exact. c == 0 or too large a quotient: UINT64_MAX. */
QOS_API uint64_t qos_mul_div_floor(uint64_t a, uint64_t b, uint64_t c);
QOS_API uint64_t qos_mul_div_ceil(uint64_t a, uint64_t b, uint64_t c);

/* Zero bits above the highest and below the lowest bit that is set; 64 if none is. */
QOS_API unsigned qos_clz64(uint64_t v);
QOS_API unsigned qos_ctz64(uint64_t v);

/* ns from `from_ns` to `to_ns`, 0 if time went backwards. */
QOS_API uint64_t qos_elapsed_ns(uint64_t from_ns, uint64_t to_ns);

/* Token bucket. rate_per_s 0..QOS_RATE_MAX (0: never refills), burst_tokens 1..QOS_TOKENS_MAX; QOS_ERANGE
 * otherwise. It starts empty: no credit accrues before init. Single owner, like all calls on buckets. */
QOS_API QOS_NODISCARD enum qos_status qos_bucket_init(struct qos_bucket *bucket, uint64_t now_ns, uint64_t rate_per_s,
                                                      uint64_t burst_tokens);
/* New rate and burst from now on. Tokens earned at the old rate stay, up to the new burst; a debt stays too. */
QOS_API QOS_NODISCARD enum qos_status qos_bucket_set_rate(struct qos_bucket *bucket, uint64_t now_ns,
                                                          uint64_t rate_per_s, uint64_t burst_tokens);
/* QOS_OK: n tokens taken; 0 tokens also in debt. QOS_EAGAIN: too few, see qos_bucket_next_ns. QOS_ERANGE: n >
 * QOS_TOKENS_MAX. */
QOS_API QOS_NODISCARD enum qos_status qos_bucket_take(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n);
/* Takes n tokens at once, in debt if need be. QOS_EDEBT, and nothing is taken, while more than debt_max_tokens
 * (0..QOS_TOKENS_MAX) are owed. So the debt never exceeds debt_max_tokens + n. */
QOS_API QOS_NODISCARD enum qos_status qos_bucket_force(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n,
                                                       uint64_t debt_max_tokens);
/* Gives back n tokens that were not used; what does not fit into the bucket is lost. */
QOS_API QOS_NODISCARD enum qos_status qos_bucket_put(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n);
/* Exact first time at which a take of n tokens succeeds if nobody else takes; QOS_NEVER if never. */
QOS_API uint64_t qos_bucket_next_ns(const struct qos_bucket *bucket, uint64_t now_ns, uint64_t n);
/* Credits the time since the last refill. */
QOS_API void qos_bucket_refill(struct qos_bucket *bucket, uint64_t now_ns);

/* The bucket's arithmetic on a bare level, for headers that keep buckets in their own layout. All O(1); only
 * qos_level_wait_ns divides. level and depth as in struct qos_bucket, rate_per_s 0..QOS_RATE_MAX, n_sub sub-tokens,
 * 0..QOS_TOKENS_MAX tokens of them. A level above its depth, of a bucket that was made smaller or earned more for a
 * while, gains nothing and keeps what it has. */
QOS_API int64_t qos_level_refill(int64_t level, int64_t depth, uint64_t rate_per_s, uint64_t elapsed_ns);
/* The gate of a request of n_sub sub-tokens: the least level at which it is granted. */
QOS_API int64_t qos_level_gate(int64_t depth, int64_t n_sub);
/* ns until the level reaches `gate` (0 if it has), QOS_NEVER if the rate is 0. Rounded up: never too early. */
QOS_API uint64_t qos_level_wait_ns(int64_t level, int64_t gate, uint64_t rate_per_s);
/* Charges without a gate. The level stops at the debt floor of -2 * QOS_TOKENS_MAX tokens. */
QOS_API int64_t qos_level_charge(int64_t level, int64_t n_sub);
/* Tokens owed, rounded up. */
QOS_API uint64_t qos_level_debt(int64_t level);

/* Cost of a request, at least 1, at most QOS_TOKENS_MAX (saturates). Rounded up: the device gains. */
QOS_API uint64_t qos_cost(const struct qos_cost_model *model, enum qos_op op, uint64_t len_bytes);
/* Coefficients of one operation from two measured points (size, cost), sizes increasing, 1..2^40 bytes, costs
 * 1..QOS_TOKENS_MAX. The model gives at least the measured costs; at the small size exactly, unless its fixed part is
 * 0. A cost that falls with the size is taken as flat. QOS_ERANGE (also more than 2^40 tokens per MiB), QOS_EINVAL (no
 * such operation): model unchanged. */
QOS_API QOS_NODISCARD enum qos_status qos_cost_fit(struct qos_cost_model *model, enum qos_op op, uint64_t small_bytes,
                                                   uint64_t small_cost, uint64_t large_bytes, uint64_t large_cost);

/* Seeded generator: any seed; uniform 64 bits; uniform in [0, bound), bound 0 gives 0. */
QOS_API void qos_rng_seed(struct qos_rng *rng, uint64_t seed);
QOS_API uint64_t qos_rng_u64(struct qos_rng *rng);
QOS_API uint64_t qos_rng_below(struct qos_rng *rng, uint64_t bound);

/* CRC32C of len_bytes bytes, continued from crc (0 to begin). */
QOS_API uint32_t qos_crc32c(uint32_t crc, const void *data, size_t len_bytes);

/* Little-endian loads and stores at any alignment. */
QOS_API uint16_t qos_get_le16(const void *p);
QOS_API uint32_t qos_get_le32(const void *p);
QOS_API uint64_t qos_get_le64(const void *p);
QOS_API void qos_put_le16(void *p, uint16_t v);
QOS_API void qos_put_le32(void *p, uint32_t v);
QOS_API void qos_put_le64(void *p, uint64_t v);

QOS_API void qos_writer_init(struct qos_writer *writer, void *buf, size_t size_bytes);
QOS_API void qos_write_u8(struct qos_writer *writer, uint8_t v);
QOS_API void qos_write_u16(struct qos_writer *writer, uint16_t v);
QOS_API void qos_write_u32(struct qos_writer *writer, uint32_t v);
QOS_API void qos_write_u64(struct qos_writer *writer, uint64_t v);
QOS_API void qos_reader_init(struct qos_reader *reader, const void *buf, size_t size_bytes);
QOS_API uint8_t qos_read_u8(struct qos_reader *reader); /* 0 past the end, and reader->bad */
QOS_API uint16_t qos_read_u16(struct qos_reader *reader);
QOS_API uint32_t qos_read_u32(struct qos_reader *reader);
QOS_API uint64_t qos_read_u64(struct qos_reader *reader);

/* Frames. seal: the payload already lies at buf + QOS_FRAME_HEADER_BYTES; writes the header before it; *len_bytes is
 * the length of the whole frame. QOS_EMEMORY: size_bytes is too small. open: checks everything; *frame is set only on
 * QOS_OK. QOS_ECORRUPT: not a frame of this magic, or damaged; QOS_EVERSION: newer than version_max; QOS_ETRUNCATED:
 * more bytes are needed (a torn tail, or a stream that goes on). A damaged length never asks for more bytes: the header
 * has a checksum of its own. QOS_EINVAL: a pointer is NULL. */
QOS_API QOS_NODISCARD enum qos_status qos_frame_seal(const struct qos_frame *frame, void *buf, size_t size_bytes,
                                                     size_t *len_bytes);
QOS_API QOS_NODISCARD enum qos_status qos_frame_open(const void *buf, size_t size_bytes, uint32_t magic,
                                                     uint16_t version_max, struct qos_frame *frame);

/* `value`, or `if_zero` where value is 0: a setting and its default. */
QOS_API uint64_t qos_default(uint64_t value, uint64_t if_zero);
/* The sentence of the first of `count` rules that does not hold; NULL: all hold. */
QOS_API const char *qos_first_broken(const struct qos_rule *rule, size_t count);

/* Layout: begins on the memory, or on NULL to measure only. */
QOS_API void qos_layout_begin(struct qos_layout *layout, void *mem);
/* Adds `count` items of `item_bytes` at `align` (a power of two). Returns where they lie; NULL while measuring, or if
 * the layout overflowed. */
QOS_API void *qos_layout_part(struct qos_layout *layout, size_t count, size_t item_bytes, size_t align);
/* Sets the pointer to `count` items of its type, at a cache line. */
#define QOS_LAYOUT_SET(layout, pointer, count)                                                                         \
    ((pointer) = (__typeof__(pointer))qos_layout_part(layout, count, sizeof *(pointer), QOS_CACHE_LINE))
/* Bytes to allocate: the size, padded to its alignment; 0 if it does not fit in size_t. */
QOS_API size_t qos_layout_size_bytes(const struct qos_layout *layout);
/* Is the memory right for what was measured? QOS_EINVAL: it is NULL. QOS_EALIGN, QOS_EMEMORY. QOS_ERANGE: the layout
 * overflowed. */
QOS_API QOS_NODISCARD enum qos_status qos_layout_check(const struct qos_layout *layout, const void *mem,
                                                       size_t size_bytes);

/* Single-writer counters: only the owner adds, any thread reads at any time. Wait-free; relaxed, because no other data
 * depends on a counter. Without a lock-free 64-bit word only the owner may read. qos_counters_read sets debt to 0. */
QOS_API void qos_counter_add(qos_counter_t *counter, uint64_t n);
QOS_API uint64_t qos_counter_read(const qos_counter_t *counter);
QOS_API void qos_counters_read(const struct qos_counters *counters, struct qos_stats *out);

#if QOS_HAS_ATOMIC64 || defined(QOS_ATOMIC_HOOK)
/* Atomics on shared words. The suffix is the C11 order. cas: true if *word was *expected and is now desired;
 * otherwise *expected is what *word held. Strong: no spurious failure. */
QOS_API uint64_t qos_atomic_load_relaxed(const qos_word_t *word);
QOS_API uint64_t qos_atomic_load_acquire(const qos_word_t *word);
QOS_API uint64_t qos_atomic_load_seq_cst(const qos_word_t *word);
QOS_API void qos_atomic_store_relaxed(qos_word_t *word, uint64_t v);
QOS_API void qos_atomic_store_release(qos_word_t *word, uint64_t v);
QOS_API uint64_t qos_atomic_add_relaxed(qos_word_t *word, uint64_t v); /* returns the old value; wraps */
QOS_API bool qos_atomic_cas_relaxed(qos_word_t *word, uint64_t *expected, uint64_t desired);
QOS_API bool qos_atomic_cas_release(qos_word_t *word, uint64_t *expected, uint64_t desired);
QOS_API bool qos_atomic_cas_seq_cst(qos_word_t *word, uint64_t *expected, uint64_t desired);
#endif

#ifdef QOS_ATOMIC_HOOK
/* You provide these. `order` is one of __ATOMIC_RELAXED, _ACQUIRE, _RELEASE. */
uint64_t qos_hook_load(const qos_word_t *word, int order);
void qos_hook_store(qos_word_t *word, uint64_t v, int order);
uint64_t qos_hook_add(qos_word_t *word, uint64_t v, int order);
bool qos_hook_cas(qos_word_t *word, uint64_t *expected, uint64_t desired, int order);
#endif

/* ==== chapter: integers ==========================================================================
 *
 *   Everything that can exceed 64 bits goes through these functions. Nothing wraps but qos_wrap_*.
 *   Division of 128 by 64 bits is Knuth's algorithm D with digits of 32 bits: two steps, each corrected at most twice
 *   (TAOCP vol. 2, 4.3.1). So no target needs a library's __udivti3.
 */

#ifndef QOS_DECLARE_ONLY

QOS_API const char *qos_strerror(int status)
{
    switch (status) {
    case QOS_OK: return "ok";
    case QOS_EINVAL: return "invalid argument: a pointer is NULL, or two settings contradict each other";
    case QOS_ERANGE: return "number out of range: see the range beside the argument";
    case QOS_EMEMORY: return "memory too small: the header's memsize function says how much is needed";
    case QOS_EALIGN: return "memory not aligned: align it to a cache line (64 bytes)";
    case QOS_ENOENT: return "no such id: it was not created, or it is not below the configured number";
    case QOS_EEXIST: return "the id is in use: release it first, or choose another";
    case QOS_EFULL: return "the pool is full: release something, or configure a larger one";
    case QOS_EADMISSION: return "the reservation does not fit: the call reports how much would";
    case QOS_EAGAIN: return "not now: try again at the time that next_ns gives";
    case QOS_EDEBT: return "debt bound reached: wait until the debt is paid off";
    case QOS_EBUSY: return "in use: remove what depends on it first";
    case QOS_ETRUNCATED: return "truncated: the data ends inside a record";
    case QOS_ECORRUPT: return "corrupt: checksum or structure is wrong";
    case QOS_EVERSION: return "written by a newer version: update this program";
    case QOS_ESTALE: return "stale: something newer is known already";
    case QOS_ELIMIT: return "rejected: the client is at its limit";
    case QOS_EIO: return "the storage callback failed: see the caller's own error";
    default: return "unknown status";
    }
}

/* The overflow builtins return the wrapped result, and no sanitizer reports them. */
QOS_API uint64_t qos_wrap_add(uint64_t a, uint64_t b)
{
    uint64_t r;
    (void)__builtin_add_overflow(a, b, &r);
    return r;
}

QOS_API uint64_t qos_wrap_sub(uint64_t a, uint64_t b)
{
    uint64_t r;
    (void)__builtin_sub_overflow(a, b, &r);
    return r;
}

QOS_API uint64_t qos_wrap_mul(uint64_t a, uint64_t b)
{
    uint64_t r;
    (void)__builtin_mul_overflow(a, b, &r);
    return r;
}

QOS_API bool qos_checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b > UINT64_MAX - a)
        return false;
    *out = a + b;
    return true;
}

QOS_API bool qos_checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

QOS_API uint64_t qos_sat_add(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

QOS_API uint64_t qos_sat_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

QOS_API uint64_t qos_sat_mul(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

QOS_API uint64_t qos_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

QOS_API uint64_t qos_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

QOS_API struct qos_u128 qos_mul_wide(uint64_t a, uint64_t b)
{
    struct qos_u128 r;
#if QOS_HAS_INT128
    __extension__ typedef unsigned __int128 qos_priv_u128;
    qos_priv_u128 p = (qos_priv_u128)a * b;
    r.hi = (uint64_t)(p >> 64);
    r.lo = (uint64_t)(p & UINT64_MAX);
#else
    uint64_t al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    uint64_t ll = al * bl, lh = al * bh, hl = ah * bl;
    uint64_t mid = (ll >> 32) + (lh & 0xffffffffu) + (hl & 0xffffffffu); /* < 3 * 2^32 */
    r.lo = (mid & 0xffffffffu) << 32 | (ll & 0xffffffffu);
    r.hi = ah * bh + (lh >> 32) + (hl >> 32) + (mid >> 32);
#endif
    return r;
}

QOS_API struct qos_u128 qos_add_wide(struct qos_u128 a, struct qos_u128 b)
{
    struct qos_u128 r;
    uint64_t carry = __builtin_add_overflow(a.lo, b.lo, &r.lo) ? 1 : 0;
    r.hi = qos_wrap_add(qos_wrap_add(a.hi, b.hi), carry);
    return r;
}

QOS_API struct qos_u128 qos_sub_wide(struct qos_u128 a, struct qos_u128 b)
{
    struct qos_u128 r;
    r.lo = qos_wrap_sub(a.lo, b.lo);
    r.hi = qos_wrap_sub(qos_wrap_sub(a.hi, b.hi), a.lo < b.lo);
    return r;
}

QOS_API int qos_cmp_wide(struct qos_u128 a, struct qos_u128 b)
{
    if (a.hi != b.hi)
        return a.hi < b.hi ? -1 : 1;
    return a.lo < b.lo ? -1 : a.lo > b.lo;
}

/* A target without the instruction would call libgcc for the builtin: riscv64 before the Zbb extension, and 32-bit
 * targets for trailing zeros. */
#if defined(__riscv) && !defined(__riscv_zbb)
#define QOS_PRIV_CLZ 0
#define QOS_PRIV_CTZ 0
#else
#define QOS_PRIV_CLZ 1
#define QOS_PRIV_CTZ (UINTPTR_MAX > 0xffffffffu)
#endif

QOS_API unsigned qos_clz64(uint64_t v)
{
#if QOS_PRIV_CLZ
    return v ? (unsigned)__builtin_clzll(v) : 64;
#else
    unsigned zeros = 0, step;
    if (v == 0)
        return 64;
    for (step = 32; step != 0; step /= 2)
        if (v >> (64 - step) == 0) {
            v <<= step;
            zeros += step;
        }
    return zeros;
#endif
}

QOS_API unsigned qos_ctz64(uint64_t v)
{
#if QOS_PRIV_CTZ
    return v ? (unsigned)__builtin_ctzll(v) : 64;
#else
    return v ? 63 - qos_clz64(v & qos_wrap_sub(0, v)) : 64;
#endif
}

/* One digit of algorithm D: (u2 u1 : u0) / (v1 v0), digits of 32 bits, v1 normalised, u2u1 < v. */
QOS_PRIV uint64_t qos_priv_div_digit(uint64_t u21, uint64_t u0, uint64_t v, uint64_t *rem)
{
    uint64_t v1 = v >> 32, v0 = v & 0xffffffffu;
    uint64_t q, r;
    QOS_ASSERT(v1 >> 31 == 1 && u21 < v);
    q = u21 / v1;
    r = u21 % v1;
    while (q >> 32 || q * v0 > (r << 32 | u0)) { /* at most twice */
        q--;
        r += v1;
        if (r >> 32)
            break;
    }
    *rem = qos_wrap_sub(qos_wrap_add(qos_wrap_mul(u21, UINT64_C(1) << 32), u0), qos_wrap_mul(q, v));
    return q;
}

QOS_API uint64_t qos_div_wide(struct qos_u128 n, uint64_t d, uint64_t *rem)
{
    uint64_t r = 0, q = UINT64_MAX;
    if (d == 0 || n.hi >= d) {
        /* no 64-bit quotient */
    } else if (n.hi == 0) {
        q = n.lo / d;
        r = n.lo % d;
    } else {
        unsigned s = qos_clz64(d);
        uint64_t v = d << s;
        uint64_t hi = s ? n.hi << s | n.lo >> (64 - s) : n.hi; /* n.hi < d: no bit is lost */
        uint64_t lo = qos_wrap_mul(n.lo, UINT64_C(1) << s);
        uint64_t q1 = qos_priv_div_digit(hi, lo >> 32, v, &r);
        uint64_t q0 = qos_priv_div_digit(r, lo & 0xffffffffu, v, &r);
        q = q1 << 32 | q0;
        r >>= s;
    }
    if (rem)
        *rem = r;
    return q;
}

QOS_API uint64_t qos_mul_div_floor(uint64_t a, uint64_t b, uint64_t c)
{
    return qos_div_wide(qos_mul_wide(a, b), c, NULL);
}

QOS_API uint64_t qos_mul_div_ceil(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t rem, q = qos_div_wide(qos_mul_wide(a, b), c, &rem);
    return qos_sat_add(q, rem != 0);
}

QOS_API uint64_t qos_elapsed_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* ==== chapter: buckets and cost ==================================================================
 *
 *   A level is a signed number of sub-tokens.
 *
 *     refill   level + rate * elapsed, at most depth. Exact: 1 token/s = 1 sub-token/ns.
 *     take     if level >= min(n, depth): level - n, else refused.
 *     force    level - n in any case, as long as the debt before it was bounded.
 *
 *   Invariants
 *     1. -2 * QOS_TOKENS_MAX tokens <= level <= depth: no sum or difference of two levels leaves 64 bits.
 *     2. Each ns since init is credited once: a refill moves last_ns forward, never back.
 *     3. A full bucket loses what does not fit: over w seconds at most rate * w + max(depth, n) is granted.
 */

QOS_API int64_t qos_level_refill(int64_t level, int64_t depth, uint64_t rate_per_s, uint64_t elapsed_ns)
{
    /* depth - level may exceed INT64_MAX, never UINT64_MAX: 4 * 10^18 + 8 * 10^18 < 2^64. */
    uint64_t gain, room = qos_wrap_sub((uint64_t)depth, (uint64_t)level);
    if (level >= depth)
        return level;
    if (QOS_LIKELY(elapsed_ns < UINT64_C(1) << 23)) /* times at most 2^40: cannot overflow */
        gain = elapsed_ns * rate_per_s;
    else if (__builtin_mul_overflow(elapsed_ns, rate_per_s, &gain))
        return depth;
    if (gain >= room)
        return depth;
    return (int64_t)qos_wrap_add((uint64_t)level, gain);
}

QOS_API int64_t qos_level_gate(int64_t depth, int64_t n_sub)
{
    return n_sub < depth ? n_sub : depth;
}

QOS_API uint64_t qos_level_wait_ns(int64_t level, int64_t gate, uint64_t rate_per_s)
{
    uint64_t lack;
    if (level >= gate)
        return 0;
    if (rate_per_s == 0)
        return QOS_NEVER;
    lack = qos_wrap_sub((uint64_t)gate, (uint64_t)level);
    return lack / rate_per_s + (lack % rate_per_s != 0);
}

QOS_API int64_t qos_level_charge(int64_t level, int64_t n_sub)
{
    const int64_t lowest = -2 * (int64_t)QOS_TOKENS_MAX * QOS_SUBTOKENS;
    return level < lowest + n_sub ? lowest : level - n_sub;
}

QOS_API uint64_t qos_level_debt(int64_t level)
{
    uint64_t owed = level < 0 ? (uint64_t)-level : 0;
    return owed / (uint64_t)QOS_SUBTOKENS + (owed % (uint64_t)QOS_SUBTOKENS != 0);
}

QOS_API enum qos_status qos_bucket_init(struct qos_bucket *bucket, uint64_t now_ns, uint64_t rate_per_s,
                                        uint64_t burst_tokens)
{
    QOS_ASSERT(bucket != NULL);
    if (rate_per_s > QOS_RATE_MAX || burst_tokens == 0 || burst_tokens > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    bucket->level = 0;
    bucket->depth = (int64_t)burst_tokens * QOS_SUBTOKENS;
    bucket->rate_per_s = rate_per_s;
    bucket->last_ns = now_ns;
    return QOS_OK;
}

/* The level at now_ns. A refused call stores nothing: a now_ns that was wrong once credits nothing by asking. */
QOS_PRIV int64_t qos_priv_bucket_level(const struct qos_bucket *bucket, uint64_t now_ns)
{
    return now_ns <= bucket->last_ns
               ? bucket->level
               : qos_level_refill(bucket->level, bucket->depth, bucket->rate_per_s, now_ns - bucket->last_ns);
}

QOS_PRIV void qos_priv_bucket_set(struct qos_bucket *bucket, uint64_t now_ns, int64_t level)
{
    bucket->level = level;
    bucket->last_ns = qos_max(bucket->last_ns, now_ns);
}

QOS_API void qos_bucket_refill(struct qos_bucket *bucket, uint64_t now_ns)
{
    QOS_ASSERT(bucket != NULL);
    qos_priv_bucket_set(bucket, now_ns, qos_priv_bucket_level(bucket, now_ns));
}

QOS_API enum qos_status qos_bucket_take(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n)
{
    int64_t n_sub, level;
    QOS_ASSERT(bucket != NULL);
    if (n > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    n_sub = (int64_t)n * QOS_SUBTOKENS;
    level = qos_priv_bucket_level(bucket, now_ns);
    if (n != 0 && level < qos_level_gate(bucket->depth, n_sub))
        return QOS_EAGAIN;
    qos_priv_bucket_set(bucket, now_ns, level - n_sub);
    return QOS_OK;
}

QOS_API enum qos_status qos_bucket_force(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n,
                                         uint64_t debt_max_tokens)
{
    int64_t level;
    QOS_ASSERT(bucket != NULL);
    if (n > QOS_TOKENS_MAX || debt_max_tokens > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    level = qos_priv_bucket_level(bucket, now_ns);
    if (level < -(int64_t)debt_max_tokens * QOS_SUBTOKENS)
        return QOS_EDEBT;
    qos_priv_bucket_set(bucket, now_ns, qos_level_charge(level, (int64_t)n * QOS_SUBTOKENS));
    return QOS_OK;
}

QOS_API enum qos_status qos_bucket_put(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n)
{
    int64_t n_sub, level;
    QOS_ASSERT(bucket != NULL);
    if (n > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    n_sub = (int64_t)n * QOS_SUBTOKENS;
    level = qos_priv_bucket_level(bucket, now_ns);
    qos_priv_bucket_set(bucket, now_ns, level > bucket->depth - n_sub ? bucket->depth : level + n_sub);
    return QOS_OK;
}

QOS_API uint64_t qos_bucket_next_ns(const struct qos_bucket *bucket, uint64_t now_ns, uint64_t n)
{
    uint64_t wait;
    int64_t level;
    QOS_ASSERT(bucket != NULL);
    if (n > QOS_TOKENS_MAX)
        return QOS_NEVER;
    level = qos_priv_bucket_level(bucket, now_ns);
    wait = n == 0 ? 0
                  : qos_level_wait_ns(level, qos_level_gate(bucket->depth, (int64_t)n * QOS_SUBTOKENS),
                                      bucket->rate_per_s);
    return wait == 0 ? now_ns : qos_sat_add(qos_max(now_ns, bucket->last_ns), wait);
}

QOS_API enum qos_status qos_bucket_set_rate(struct qos_bucket *bucket, uint64_t now_ns, uint64_t rate_per_s,
                                            uint64_t burst_tokens)
{
    QOS_ASSERT(bucket != NULL);
    if (rate_per_s > QOS_RATE_MAX || burst_tokens == 0 || burst_tokens > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    qos_bucket_refill(bucket, now_ns);
    bucket->rate_per_s = rate_per_s;
    bucket->depth = (int64_t)burst_tokens * QOS_SUBTOKENS;
    if (bucket->level > bucket->depth)
        bucket->level = bucket->depth;
    return QOS_OK;
}

#define QOS_PRIV_MIB (UINT64_C(1) << 20)

QOS_API uint64_t qos_cost(const struct qos_cost_model *model, enum qos_op op, uint64_t len_bytes)
{
    unsigned way = op == QOS_READ ? 0 : 1; /* a value outside the enum reads nothing beyond the arrays */
    struct qos_u128 p;
    uint64_t bytes_part, cost;
    QOS_ASSERT(model != NULL);
    p = qos_mul_wide(len_bytes, model->per_mib_cost[way]);
    if (p.hi != 0) /* 2^64 and more: far above the cap */
        return QOS_TOKENS_MAX;
    bytes_part = p.lo / QOS_PRIV_MIB + (p.lo % QOS_PRIV_MIB != 0);
    cost = qos_sat_add(model->fixed_cost[way], bytes_part);
    return qos_min(qos_max(cost, 1), QOS_TOKENS_MAX);
}

QOS_API enum qos_status qos_cost_fit(struct qos_cost_model *model, enum qos_op op, uint64_t small_bytes,
                                     uint64_t small_cost, uint64_t large_bytes, uint64_t large_cost)
{
    const uint64_t most = UINT64_C(1) << 40;
    uint64_t per_mib, slope_part;
    QOS_ASSERT(model != NULL);
    if (op != QOS_READ && op != QOS_WRITE)
        return QOS_EINVAL;
    if (small_bytes == 0 || small_bytes >= large_bytes || large_bytes > most)
        return QOS_ERANGE;
    if (small_cost == 0 || small_cost > QOS_TOKENS_MAX || large_cost == 0 || large_cost > QOS_TOKENS_MAX)
        return QOS_ERANGE;
    per_mib = qos_mul_div_ceil(qos_sat_sub(large_cost, small_cost), QOS_PRIV_MIB, large_bytes - small_bytes);
    if (per_mib > most)
        return QOS_ERANGE;
    slope_part = qos_mul_div_ceil(small_bytes, per_mib, QOS_PRIV_MIB);
    model->per_mib_cost[op] = per_mib;
    model->fixed_cost[op] = qos_sat_sub(small_cost, slope_part);
    return QOS_OK;
}

/* ==== chapter: random numbers ====================================================================
 *
 *   splitmix64 (Steele, Lea, Flood, OOPSLA 2014); unbiased bounded numbers after Lemire (ACM TOMACS 29(1), 2019).
 */

QOS_API void qos_rng_seed(struct qos_rng *rng, uint64_t seed)
{
    QOS_ASSERT(rng != NULL);
    rng->state = seed;
}

QOS_API uint64_t qos_rng_u64(struct qos_rng *rng)
{
    uint64_t z;
    QOS_ASSERT(rng != NULL);
    z = rng->state = qos_wrap_add(rng->state, UINT64_C(0x9e3779b97f4a7c15));
    z = qos_wrap_mul(z ^ z >> 30, UINT64_C(0xbf58476d1ce4e5b9));
    z = qos_wrap_mul(z ^ z >> 27, UINT64_C(0x94d049bb133111eb));
    return z ^ z >> 31;
}

QOS_API uint64_t qos_rng_below(struct qos_rng *rng, uint64_t bound)
{
    struct qos_u128 p = qos_mul_wide(qos_rng_u64(rng), bound);
    if (p.lo < bound) {
        uint64_t threshold = qos_wrap_sub(0, bound) % bound; /* 2^64 mod bound; bound > p.lo >= 0 */
        while (p.lo < threshold)
            p = qos_mul_wide(qos_rng_u64(rng), bound);
    }
    return p.hi;
}

/* ==== chapter: bytes =============================================================================
 *
 *   Numbers are little-endian at any alignment. CRC32C is that of RFC 3720, appendix B.4. A frame:
 *
 *     offset   0        4        6        8              12                16              20
 *              magic    version  type     payload bytes  CRC32C of 0..11   CRC32C of all   payload ...
 *
 *   A frame is valid if and only if: 1. there are 20 bytes; 2. the magic is the expected one; 3. the CRC32C of bytes
 *   0..11 matches; 4. the version is known; 5. the payload is there; 6. the CRC32C of bytes 0..15 and the payload
 *   matches. They are checked in this order, so a length is believed only after 3.
 */

QOS_API uint32_t qos_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
    /* What each value of each half byte, the low one first, adds to the CRC of a block of 8 bytes. The last two rows
       are those of a block of one byte. */
    static const uint32_t add[16][16] = {
        {0x00000000u, 0x493c7d27u, 0x9278fa4eu, 0xdb448769u, 0x211d826du, 0x6821ff4au, 0xb3657823u, 0xfa590504u,
         0x423b04dau, 0x0b0779fdu, 0xd043fe94u, 0x997f83b3u, 0x632686b7u, 0x2a1afb90u, 0xf15e7cf9u, 0xb86201deu},
        {0x00000000u, 0x847609b4u, 0x0d006599u, 0x89766c2du, 0x1a00cb32u, 0x9e76c286u, 0x1700aeabu, 0x9376a71fu,
         0x34019664u, 0xb0779fd0u, 0x3901f3fdu, 0xbd77fa49u, 0x2e015d56u, 0xaa7754e2u, 0x230138cfu, 0xa777317bu},
        {0x00000000u, 0x68032cc8u, 0xd0065990u, 0xb8057558u, 0xa5e0c5d1u, 0xcde3e919u, 0x75e69c41u, 0x1de5b089u,
         0x4e2dfd53u, 0x262ed19bu, 0x9e2ba4c3u, 0xf628880bu, 0xebcd3882u, 0x83ce144au, 0x3bcb6112u, 0x53c84ddau},
        {0x00000000u, 0x9c5bfaa6u, 0x3d5b83bdu, 0xa100791bu, 0x7ab7077au, 0xe6ecfddcu, 0x47ec84c7u, 0xdbb77e61u,
         0xf56e0ef4u, 0x6935f452u, 0xc8358d49u, 0x546e77efu, 0x8fd9098eu, 0x1382f328u, 0xb2828a33u, 0x2ed97095u},
        {0x00000000u, 0xef306b19u, 0xdb8ca0c3u, 0x34bccbdau, 0xb2f53777u, 0x5dc55c6eu, 0x697997b4u, 0x8649fcadu,
         0x6006181fu, 0x8f367306u, 0xbb8ab8dcu, 0x54bad3c5u, 0xd2f32f68u, 0x3dc34471u, 0x097f8fabu, 0xe64fe4b2u},
        {0x00000000u, 0xc00c303eu, 0x85f4168du, 0x45f826b3u, 0x0e045bebu, 0xce086bd5u, 0x8bf04d66u, 0x4bfc7d58u,
         0x1c08b7d6u, 0xdc0487e8u, 0x99fca15bu, 0x59f09165u, 0x120cec3du, 0xd200dc03u, 0x97f8fab0u, 0x57f4ca8eu},
        {0x00000000u, 0x38116facu, 0x7022df58u, 0x4833b0f4u, 0xe045beb0u, 0xd854d11cu, 0x906761e8u, 0xa8760e44u,
         0xc5670b91u, 0xfd76643du, 0xb545d4c9u, 0x8d54bb65u, 0x2522b521u, 0x1d33da8du, 0x55006a79u, 0x6d1105d5u},
        {0x00000000u, 0x8f2261d3u, 0x1ba8b557u, 0x948ad484u, 0x37516aaeu, 0xb8730b7du, 0x2cf9dff9u, 0xa3dbbe2au,
         0x6ea2d55cu, 0xe180b48fu, 0x750a600bu, 0xfa2801d8u, 0x59f3bff2u, 0xd6d1de21u, 0x425b0aa5u, 0xcd796b76u},
        {0x00000000u, 0xdd45aab8u, 0xbf672381u, 0x62228939u, 0x7b2231f3u, 0xa6679b4bu, 0xc4451272u, 0x1900b8cau,
         0xf64463e6u, 0x2b01c95eu, 0x49234067u, 0x9466eadfu, 0x8d665215u, 0x5023f8adu, 0x32017194u, 0xef44db2cu},
        {0x00000000u, 0xe964b13du, 0xd725148bu, 0x3e41a5b6u, 0xaba65fe7u, 0x42c2eedau, 0x7c834b6cu, 0x95e7fa51u,
         0x52a0c93fu, 0xbbc47802u, 0x8585ddb4u, 0x6ce16c89u, 0xf90696d8u, 0x106227e5u, 0x2e238253u, 0xc747336eu},
        {0x00000000u, 0xa541927eu, 0x4f6f520du, 0xea2ec073u, 0x9edea41au, 0x3b9f3664u, 0xd1b1f617u, 0x74f06469u,
         0x38513ec5u, 0x9d10acbbu, 0x773e6cc8u, 0xd27ffeb6u, 0xa68f9adfu, 0x03ce08a1u, 0xe9e0c8d2u, 0x4ca15aacu},
        {0x00000000u, 0x70a27d8au, 0xe144fb14u, 0x91e6869eu, 0xc76580d9u, 0xb7c7fd53u, 0x26217bcdu, 0x56830647u,
         0x8b277743u, 0xfb850ac9u, 0x6a638c57u, 0x1ac1f1ddu, 0x4c42f79au, 0x3ce08a10u, 0xad060c8eu, 0xdda47104u},
        {0x00000000u, 0x13a29877u, 0x274530eeu, 0x34e7a899u, 0x4e8a61dcu, 0x5d28f9abu, 0x69cf5132u, 0x7a6dc945u,
         0x9d14c3b8u, 0x8eb65bcfu, 0xba51f356u, 0xa9f36b21u, 0xd39ea264u, 0xc03c3a13u, 0xf4db928au, 0xe7790afdu},
        {0x00000000u, 0x3fc5f181u, 0x7f8be302u, 0x404e1283u, 0xff17c604u, 0xc0d23785u, 0x809c2506u, 0xbf59d487u,
         0xfbc3faf9u, 0xc4060b78u, 0x844819fbu, 0xbb8de87au, 0x04d43cfdu, 0x3b11cd7cu, 0x7b5fdfffu, 0x449a2e7eu},
        {0x00000000u, 0xf26b8303u, 0xe13b70f7u, 0x1350f3f4u, 0xc79a971fu, 0x35f1141cu, 0x26a1e7e8u, 0xd4ca64ebu,
         0x8ad958cfu, 0x78b2dbccu, 0x6be22838u, 0x9989ab3bu, 0x4d43cfd0u, 0xbf284cd3u, 0xac78bf27u, 0x5e133c24u},
        {0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
         0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u, 0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u},
    };
    const uint8_t *p = (const uint8_t *)data;
    crc = ~crc;
    for (; len_bytes >= 8; len_bytes -= 8, p += 8) {
        uint64_t v = qos_get_le64(p) ^ crc;
        crc = add[0][v & 15] ^ add[1][v >> 4 & 15] ^ add[2][v >> 8 & 15] ^ add[3][v >> 12 & 15] ^ add[4][v >> 16 & 15] ^
              add[5][v >> 20 & 15] ^ add[6][v >> 24 & 15] ^ add[7][v >> 28 & 15] ^ add[8][v >> 32 & 15] ^
              add[9][v >> 36 & 15] ^ add[10][v >> 40 & 15] ^ add[11][v >> 44 & 15] ^ add[12][v >> 48 & 15] ^
              add[13][v >> 52 & 15] ^ add[14][v >> 56 & 15] ^ add[15][v >> 60];
    }
    for (; len_bytes > 0; len_bytes--, p++) {
        uint32_t v = (crc ^ *p) & 0xffu;
        crc = crc >> 8 ^ add[14][v & 15] ^ add[15][v >> 4];
    }
    return ~crc;
}

QOS_API uint16_t qos_get_le16(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint16_t)(b[0] | b[1] << 8);
}

QOS_API uint32_t qos_get_le32(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

QOS_API uint64_t qos_get_le64(const void *p)
{
    return qos_get_le32(p) | (uint64_t)qos_get_le32((const uint8_t *)p + 4) << 32;
}

QOS_API void qos_put_le16(void *p, uint16_t v)
{
    uint8_t *b = (uint8_t *)p;
    b[0] = (uint8_t)(v & 0xffu);
    b[1] = (uint8_t)(v >> 8);
}

QOS_API void qos_put_le32(void *p, uint32_t v)
{
    qos_put_le16(p, (uint16_t)(v & 0xffffu));
    qos_put_le16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

QOS_API void qos_put_le64(void *p, uint64_t v)
{
    qos_put_le32(p, (uint32_t)(v & 0xffffffffu));
    qos_put_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

/* Is there room for n more bytes? If not, `bad` is set and stays set. */
QOS_PRIV uint8_t *qos_priv_writer_room(struct qos_writer *writer, size_t n)
{
    uint8_t *at;
    QOS_ASSERT(writer != NULL);
    if (writer->bad || writer->size_bytes - writer->pos < n) {
        writer->bad = true;
        return NULL;
    }
    at = writer->buf + writer->pos;
    writer->pos += n;
    return at;
}

QOS_PRIV const uint8_t *qos_priv_reader_room(struct qos_reader *reader, size_t n)
{
    const uint8_t *at;
    QOS_ASSERT(reader != NULL);
    if (reader->bad || reader->size_bytes - reader->pos < n) {
        reader->bad = true;
        return NULL;
    }
    at = reader->buf + reader->pos;
    reader->pos += n;
    return at;
}

QOS_API void qos_writer_init(struct qos_writer *writer, void *buf, size_t size_bytes)
{
    QOS_ASSERT(writer != NULL);
    writer->buf = (uint8_t *)buf;
    writer->size_bytes = size_bytes;
    writer->pos = 0;
    writer->bad = false;
}

QOS_API void qos_write_u8(struct qos_writer *writer, uint8_t v)
{
    uint8_t *p = qos_priv_writer_room(writer, 1);
    if (p)
        *p = v;
}

QOS_API void qos_write_u16(struct qos_writer *writer, uint16_t v)
{
    uint8_t *p = qos_priv_writer_room(writer, 2);
    if (p)
        qos_put_le16(p, v);
}

QOS_API void qos_write_u32(struct qos_writer *writer, uint32_t v)
{
    uint8_t *p = qos_priv_writer_room(writer, 4);
    if (p)
        qos_put_le32(p, v);
}

QOS_API void qos_write_u64(struct qos_writer *writer, uint64_t v)
{
    uint8_t *p = qos_priv_writer_room(writer, 8);
    if (p)
        qos_put_le64(p, v);
}

QOS_API void qos_reader_init(struct qos_reader *reader, const void *buf, size_t size_bytes)
{
    QOS_ASSERT(reader != NULL);
    reader->buf = (const uint8_t *)buf;
    reader->size_bytes = size_bytes;
    reader->pos = 0;
    reader->bad = false;
}

QOS_API uint8_t qos_read_u8(struct qos_reader *reader)
{
    const uint8_t *p = qos_priv_reader_room(reader, 1);
    return p ? *p : (uint8_t)0;
}

QOS_API uint16_t qos_read_u16(struct qos_reader *reader)
{
    const uint8_t *p = qos_priv_reader_room(reader, 2);
    return p ? qos_get_le16(p) : (uint16_t)0;
}

QOS_API uint32_t qos_read_u32(struct qos_reader *reader)
{
    const uint8_t *p = qos_priv_reader_room(reader, 4);
    return p ? qos_get_le32(p) : 0;
}

QOS_API uint64_t qos_read_u64(struct qos_reader *reader)
{
    const uint8_t *p = qos_priv_reader_room(reader, 8);
    return p ? qos_get_le64(p) : 0;
}

QOS_API enum qos_status qos_frame_seal(const struct qos_frame *frame, void *buf, size_t size_bytes, size_t *len_bytes)
{
    uint8_t *b = (uint8_t *)buf;
    uint32_t crc;
    if (!frame || !buf || !len_bytes)
        return QOS_EINVAL;
    if (size_bytes < QOS_FRAME_HEADER_BYTES || size_bytes - QOS_FRAME_HEADER_BYTES < frame->payload_bytes)
        return QOS_EMEMORY;
    qos_put_le32(b, frame->magic);
    qos_put_le16(b + 4, frame->version);
    qos_put_le16(b + 6, frame->type);
    qos_put_le32(b + 8, frame->payload_bytes);
    qos_put_le32(b + 12, qos_crc32c(0, b, 12));
    crc = qos_crc32c(0, b, 16);
    qos_put_le32(b + 16, qos_crc32c(crc, b + QOS_FRAME_HEADER_BYTES, frame->payload_bytes));
    *len_bytes = (size_t)frame->payload_bytes + QOS_FRAME_HEADER_BYTES;
    return QOS_OK;
}

QOS_API enum qos_status qos_frame_open(const void *buf, size_t size_bytes, uint32_t magic, uint16_t version_max,
                                       struct qos_frame *frame)
{
    const uint8_t *b = (const uint8_t *)buf;
    uint32_t payload_bytes, crc;
    if (!buf || !frame)
        return QOS_EINVAL;
    if (size_bytes < QOS_FRAME_HEADER_BYTES)
        return QOS_ETRUNCATED;
    if (qos_get_le32(b) != magic || qos_get_le32(b + 12) != qos_crc32c(0, b, 12))
        return QOS_ECORRUPT;
    if (qos_get_le16(b + 4) > version_max)
        return QOS_EVERSION;
    payload_bytes = qos_get_le32(b + 8);
    if (size_bytes - QOS_FRAME_HEADER_BYTES < payload_bytes)
        return QOS_ETRUNCATED;
    crc = qos_crc32c(0, b, 16);
    if (qos_get_le32(b + 16) != qos_crc32c(crc, b + QOS_FRAME_HEADER_BYTES, payload_bytes))
        return QOS_ECORRUPT;
    frame->magic = magic;
    frame->version = qos_get_le16(b + 4);
    frame->type = qos_get_le16(b + 6);
    frame->payload_bytes = payload_bytes;
    return QOS_OK;
}

/* ==== chapter: settings and memory ===============================================================
 *
 *   A header states the rules of a configuration in one array, so that X_config_error and X_init check the same.
 *
 *   A header describes its memory once, in one function that calls qos_layout_part for every part. X_memsize runs it on
 *   NULL, X_init runs it twice: on NULL to check the size, then on the memory to set the pointers.
 */

QOS_API uint64_t qos_default(uint64_t value, uint64_t if_zero)
{
    return value ? value : if_zero;
}

QOS_API const char *qos_first_broken(const struct qos_rule *rule, size_t count)
{
    for (; count > 0; count--, rule++)
        if (!rule->holds)
            return rule->why;
    return NULL;
}

QOS_API void qos_layout_begin(struct qos_layout *layout, void *mem)
{
    QOS_ASSERT(layout != NULL);
    layout->mem = (unsigned char *)mem;
    layout->size_bytes = 0;
    layout->align = 1;
    layout->overflow = false;
}

QOS_API void *qos_layout_part(struct qos_layout *layout, size_t count, size_t item_bytes, size_t align)
{
    size_t offset = 0, bytes = 0;
    QOS_ASSERT(layout != NULL);
    QOS_ASSERT(align != 0 && (align & (align - 1)) == 0);
    if (align > layout->align)
        layout->align = align;
    if (__builtin_mul_overflow(count, item_bytes, &bytes) ||
        __builtin_add_overflow(layout->size_bytes, align - 1, &offset))
        layout->overflow = true;
    if (layout->overflow)
        return NULL;
    offset &= ~(align - 1);
    if (__builtin_add_overflow(offset, bytes, &layout->size_bytes))
        layout->overflow = true;
    return layout->mem && !layout->overflow ? layout->mem + offset : NULL;
}

QOS_API size_t qos_layout_size_bytes(const struct qos_layout *layout)
{
    size_t padded;
    QOS_ASSERT(layout != NULL);
    if (layout->overflow || __builtin_add_overflow(layout->size_bytes, layout->align - 1, &padded))
        return 0;
    return padded & ~(layout->align - 1);
}

QOS_API enum qos_status qos_layout_check(const struct qos_layout *layout, const void *mem, size_t size_bytes)
{
    size_t need = qos_layout_size_bytes(layout);
    if (!mem)
        return QOS_EINVAL;
    if (need == 0 && (layout->size_bytes != 0 || layout->overflow))
        return QOS_ERANGE;
    if (((uintptr_t)mem & (layout->align - 1)) != 0)
        return QOS_EALIGN;
    return size_bytes < need ? QOS_EMEMORY : QOS_OK;
}

/* ==== chapter: shared words ======================================================================
 *
 *   Counters do not use the hook: no protocol depends on them, and they would multiply the interleavings.
 */

#if defined(QOS_ATOMIC_HOOK)
#define QOS_PRIV_LOAD(w, order) qos_hook_load(w, order)
#define QOS_PRIV_STORE(w, v, order) qos_hook_store(w, v, order)
#define QOS_PRIV_ADD(w, v, order) qos_hook_add(w, v, order)
#define QOS_PRIV_CAS(w, e, d, order) qos_hook_cas(w, e, d, order)
#else
#define QOS_PRIV_LOAD(w, order) __atomic_load_n(w, order)
#define QOS_PRIV_STORE(w, v, order) __atomic_store_n(w, v, order)
#define QOS_PRIV_ADD(w, v, order) __atomic_fetch_add(w, v, order)
#define QOS_PRIV_CAS(w, e, d, order) __atomic_compare_exchange_n(w, e, d, false, order, __ATOMIC_RELAXED)
#endif

QOS_API void qos_counter_add(qos_counter_t *counter, uint64_t n)
{
    QOS_ASSERT(counter != NULL);
#if QOS_HAS_ATOMIC64
    __atomic_store_n(counter, qos_wrap_add(*counter, n), __ATOMIC_RELAXED); /* nobody else writes it */
#else
    *counter = qos_wrap_add(*counter, n);
#endif
}

QOS_API uint64_t qos_counter_read(const qos_counter_t *counter)
{
    QOS_ASSERT(counter != NULL);
#if QOS_HAS_ATOMIC64
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
#else
    return *counter;
#endif
}

QOS_API void qos_counters_read(const struct qos_counters *counters, struct qos_stats *out)
{
    QOS_ASSERT(counters != NULL);
    out->granted = qos_counter_read(&counters->granted);
    out->borrowed = qos_counter_read(&counters->borrowed);
    out->refused = qos_counter_read(&counters->refused);
    out->waited = qos_counter_read(&counters->waited);
    out->debt = 0;
}

#if QOS_HAS_ATOMIC64 || defined(QOS_ATOMIC_HOOK)
QOS_API uint64_t qos_atomic_load_relaxed(const qos_word_t *word)
{
    return QOS_PRIV_LOAD(word, __ATOMIC_RELAXED);
}

QOS_API uint64_t qos_atomic_load_acquire(const qos_word_t *word)
{
    return QOS_PRIV_LOAD(word, __ATOMIC_ACQUIRE);
}

QOS_API uint64_t qos_atomic_load_seq_cst(const qos_word_t *word)
{
    return QOS_PRIV_LOAD(word, __ATOMIC_SEQ_CST);
}

QOS_API void qos_atomic_store_relaxed(qos_word_t *word, uint64_t v)
{
    QOS_PRIV_STORE(word, v, __ATOMIC_RELAXED);
}

QOS_API void qos_atomic_store_release(qos_word_t *word, uint64_t v)
{
    QOS_PRIV_STORE(word, v, __ATOMIC_RELEASE);
}

QOS_API uint64_t qos_atomic_add_relaxed(qos_word_t *word, uint64_t v)
{
    return QOS_PRIV_ADD(word, v, __ATOMIC_RELAXED);
}

QOS_API bool qos_atomic_cas_relaxed(qos_word_t *word, uint64_t *expected, uint64_t desired)
{
    return QOS_PRIV_CAS(word, expected, desired, __ATOMIC_RELAXED);
}

QOS_API bool qos_atomic_cas_release(qos_word_t *word, uint64_t *expected, uint64_t desired)
{
    return QOS_PRIV_CAS(word, expected, desired, __ATOMIC_RELEASE);
}

QOS_API bool qos_atomic_cas_seq_cst(qos_word_t *word, uint64_t *expected, uint64_t desired)
{
    return QOS_PRIV_CAS(word, expected, desired, __ATOMIC_SEQ_CST);
}

#endif

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_H */
