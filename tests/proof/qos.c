// proves: arithmetic, 128-bit numbers, token buckets and cost keep their contracts for every argument, and only
// proves: qos_wrap_* wrap (deductive: WP, z3). The lists below are what the script proves and what it does not.
// wp: plain_add_overflow plain_sub_overflow qos_wrap_add qos_wrap_sub qos_wrap_mul qos_checked_add qos_checked_mul
// wp: qos_sat_add qos_sat_sub qos_sat_mul qos_min qos_max qos_default qos_elapsed_ns qos_add_wide qos_sub_wide
// wp: qos_cmp_wide qos_level_refill qos_level_gate qos_level_wait_ns qos_level_charge qos_level_debt qos_bucket_init
// wp: qos_priv_bucket_level qos_priv_bucket_set qos_bucket_refill qos_bucket_take qos_bucket_force qos_bucket_put qos_bucket_set_rate qos_cost
// plant: qos.h|if (QOS_LIKELY(elapsed_ns < UINT64_C(1) << 23))|if (QOS_LIKELY(elapsed_ns < UINT64_C(1) << 25))|qos_level_refill
// plant: qos.h|if (n != 0 && level < qos_level_gate|if (n != 0 && level <= qos_level_gate|qos_bucket_take
// slow plants
// open: qos_mul_wide qos_div_wide qos_bucket_next_ns
//
// Open are: the product without __int128 and the division (products of unknown digits: the prover does not finish;
// they are tested exhaustively with digits of 4 and 8 bits instead of 32, tests/build/narrow.sh), and that
// qos_bucket_next_ns names the exact time (two nested products; world/qos tests it). A contract of these is
// assumed where they are called, as are gcc's manual for the overflow of a product and C11 for conversions to a signed
// type and back.
#define PLAIN_PROVE
#include "plain.h"
#include "qos.h"

/*@ logic integer wide(struct qos_u128 x) = x.hi * 18446744073709551616 + x.lo; */

/*@ assigns \nothing; ensures \result == (a + b > UINT64_MAX ? a + b - UINT64_MAX - 1 : a + b); */
QOS_API uint64_t qos_wrap_add(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == (a < b ? a - b + UINT64_MAX + 1 : a - b); */
QOS_API uint64_t qos_wrap_sub(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == (uint64_t)(a * b); ensures a * b <= UINT64_MAX ==> \result == a * b; */
QOS_API uint64_t qos_wrap_mul(uint64_t a, uint64_t b);

/*@ requires \valid(out);
    assigns *out;
    ensures a + b <= UINT64_MAX ==> \result && *out == a + b;
    ensures a + b > UINT64_MAX ==> !\result && *out == \old(*out); */
QOS_API bool qos_checked_add(uint64_t a, uint64_t b, uint64_t *out);

/*@ requires \valid(out);
    assigns *out;
    ensures a * b <= UINT64_MAX ==> \result && *out == a * b;
    ensures a * b > UINT64_MAX ==> !\result && *out == \old(*out); */
QOS_API bool qos_checked_mul(uint64_t a, uint64_t b, uint64_t *out);

/*@ assigns \nothing; ensures \result == (a + b > UINT64_MAX ? UINT64_MAX : a + b); */
QOS_API uint64_t qos_sat_add(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == (a > b ? a - b : 0); */
QOS_API uint64_t qos_sat_sub(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == (a * b > UINT64_MAX ? UINT64_MAX : a * b); */
QOS_API uint64_t qos_sat_mul(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == \min(a, b); */
QOS_API uint64_t qos_min(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == \max(a, b); */
QOS_API uint64_t qos_max(uint64_t a, uint64_t b);

/*@ assigns \nothing; ensures \result == (value != 0 ? value : if_zero); */
QOS_API uint64_t qos_default(uint64_t value, uint64_t if_zero);

/*@ assigns \nothing; ensures \result == (to_ns > from_ns ? to_ns - from_ns : 0); */
QOS_API uint64_t qos_elapsed_ns(uint64_t from_ns, uint64_t to_ns);

/*@ assigns \nothing;
    ensures \let s = wide(a) + wide(b); \let m = 340282366920938463463374607431768211456;
            wide(\result) == (s >= m ? s - m : s); */
QOS_API struct qos_u128 qos_add_wide(struct qos_u128 a, struct qos_u128 b);

/*@ assigns \nothing;
    ensures \let d = wide(a) - wide(b); \let m = 340282366920938463463374607431768211456;
            wide(\result) == (d < 0 ? d + m : d); */
QOS_API struct qos_u128 qos_sub_wide(struct qos_u128 a, struct qos_u128 b);

/*@ assigns \nothing;
    ensures \result < 0 <==> wide(a) < wide(b);
    ensures \result > 0 <==> wide(a) > wide(b); */
QOS_API int qos_cmp_wide(struct qos_u128 a, struct qos_u128 b);

/*@ assigns \nothing; ensures wide(\result) == a * b; */
QOS_API struct qos_u128 qos_mul_wide(uint64_t a, uint64_t b);

/*@ requires 0 < d;
    requires rem == \null || \valid(rem);
    assigns *rem;
    ensures d != 0 && n.hi < d ==> \result == wide(n) / d;
    ensures d != 0 && n.hi < d && rem != \null ==> *rem == wide(n) % d; */
QOS_API uint64_t qos_div_wide(struct qos_u128 n, uint64_t d, uint64_t *rem);

/* Conversions, as C11 6.3.1.3 and gcc's manual, 4.5, have them: the prover knows only those that change nothing. */
/*@ axiomatic conversions {
        axiom as_unsigned: \forall int64_t x; (uint64_t)x == (x >= 0 ? x : x + 18446744073709551616);
        axiom as_signed: \forall uint64_t x; (int64_t)x == (x <= INT64_MAX ? x : x - 18446744073709551616);
    }
    lemma division: \forall integer a, b; 0 <= a && 0 < b ==> a == b * (a / b) + a % b && 0 <= a % b < b; */

/*@ predicate level_ok(integer v) = -8000000000000000000 <= v <= 4000000000000000000; */

/*@ requires level_ok(level) && 0 <= depth <= 4000000000000000000;
    requires rate_per_s <= 1 << 40;
    assigns \nothing;
    ensures \result == \max(level, \min(depth, level + elapsed_ns * rate_per_s)); */
QOS_API int64_t qos_level_refill(int64_t level, int64_t depth, uint64_t rate_per_s, uint64_t elapsed_ns);

/*@ assigns \nothing; ensures \result == \min(n_sub, depth); */
QOS_API int64_t qos_level_gate(int64_t depth, int64_t n_sub);

/*@ requires level_ok(level) && level_ok(gate);
    requires rate_per_s <= 1 << 40;
    assigns \nothing;
    ensures level >= gate ==> \result == 0;
    ensures level < gate && rate_per_s == 0 ==> \result == UINT64_MAX;
    ensures never_early: level < gate && rate_per_s > 0 ==> level + \result * rate_per_s >= gate;
    ensures never_late: level < gate && rate_per_s > 0 ==> level + (\result - 1) * rate_per_s < gate; */
QOS_API uint64_t qos_level_wait_ns(int64_t level, int64_t gate, uint64_t rate_per_s);

/*@ requires level_ok(level) && 0 <= n_sub <= 4000000000000000000;
    assigns \nothing;
    ensures \result == \max(-8000000000000000000, level - n_sub); */
QOS_API int64_t qos_level_charge(int64_t level, int64_t n_sub);

/*@ requires level_ok(level);
    assigns \nothing;
    ensures level >= 0 ==> \result == 0;
    ensures level < 0 ==> (\result - 1) * 1000000000 < -level <= \result * 1000000000; */
QOS_API uint64_t qos_level_debt(int64_t level);

/*@ predicate bucket_ok(struct qos_bucket *b) =
        \valid(b) && -8000000000000000000 <= b->level <= b->depth && 1000000000 <= b->depth <= 4000000000000000000 &&
        b->rate_per_s <= 1 << 40;
    logic integer credit(struct qos_bucket *b, integer now_ns) = now_ns <= b->last_ns ? b->level :
        \min(b->depth, b->level + (now_ns - b->last_ns) * b->rate_per_s); */

/*@ requires \valid(bucket);
    assigns *bucket;
    ensures \result == QOS_OK ==> bucket_ok(bucket) && bucket->level == 0 && bucket->last_ns == now_ns &&
            bucket->rate_per_s == rate_per_s && bucket->depth == burst_tokens * 1000000000;
    ensures \result == QOS_OK <==> rate_per_s <= 1 << 40 && 1 <= burst_tokens <= 4000000000;
    ensures \result != QOS_OK ==> \result == QOS_ERANGE && *bucket == \old(*bucket); */
QOS_API enum qos_status qos_bucket_init(struct qos_bucket *bucket, uint64_t now_ns, uint64_t rate_per_s,
                                        uint64_t burst_tokens);

/*@ requires bucket_ok(bucket);
    assigns \nothing;
    ensures \result == credit(bucket, now_ns); */
QOS_PRIV int64_t qos_priv_bucket_level(const struct qos_bucket *bucket, uint64_t now_ns);

/*@ requires \valid(bucket);
    assigns bucket->level, bucket->last_ns;
    ensures bucket->level == level;
    ensures bucket->last_ns == \max(\old(bucket->last_ns), now_ns); */
QOS_PRIV void qos_priv_bucket_set(struct qos_bucket *bucket, uint64_t now_ns, int64_t level);

/*@ requires bucket_ok(bucket);
    assigns bucket->level, bucket->last_ns;
    ensures bucket_ok(bucket);
    ensures bucket->level == \old(credit(bucket, now_ns));
    ensures bucket->last_ns == \max(\old(bucket->last_ns), now_ns); */
QOS_API void qos_bucket_refill(struct qos_bucket *bucket, uint64_t now_ns);

/*@ requires bucket_ok(bucket);
    assigns bucket->level, bucket->last_ns;
    ensures bucket_ok(bucket);
    ensures n > 4000000000 ==> \result == QOS_ERANGE && *bucket == \old(*bucket);
    ensures \result == QOS_OK <==> n == 0 ||
            n <= 4000000000 && \old(credit(bucket, now_ns)) >= \min(bucket->depth, n * 1000000000);
    ensures \result == QOS_OK ==> bucket->level == \old(credit(bucket, now_ns)) - n * 1000000000;
    ensures \result == QOS_OK || \result == QOS_EAGAIN || \result == QOS_ERANGE;
    ensures \result == QOS_EAGAIN ==> *bucket == \old(*bucket); */
QOS_API enum qos_status qos_bucket_take(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n);

/*@ requires bucket_ok(bucket);
    assigns bucket->level, bucket->last_ns;
    ensures bucket_ok(bucket);
    ensures \result == QOS_OK ==> \old(credit(bucket, now_ns)) >= -debt_max_tokens * 1000000000 &&
            bucket->level == \max(-8000000000000000000, \old(credit(bucket, now_ns)) - n * 1000000000);
    ensures \result == QOS_EDEBT ==> \old(credit(bucket, now_ns)) < -debt_max_tokens * 1000000000 &&
            *bucket == \old(*bucket);
    ensures \result == QOS_ERANGE <==> n > 4000000000 || debt_max_tokens > 4000000000;
    ensures \result == QOS_OK || \result == QOS_EDEBT || \result == QOS_ERANGE; */
QOS_API enum qos_status qos_bucket_force(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n,
                                         uint64_t debt_max_tokens);

/*@ requires bucket_ok(bucket);
    assigns bucket->level, bucket->last_ns;
    ensures bucket_ok(bucket);
    ensures \result == QOS_OK <==> n <= 4000000000;
    ensures \result == QOS_OK ==>
            bucket->level == \min(bucket->depth, \old(credit(bucket, now_ns)) + n * 1000000000); */
QOS_API enum qos_status qos_bucket_put(struct qos_bucket *bucket, uint64_t now_ns, uint64_t n);

/*@ requires bucket_ok(bucket);
    assigns bucket->level, bucket->last_ns, bucket->depth, bucket->rate_per_s;
    ensures bucket_ok(bucket);
    ensures \result == QOS_OK ==> bucket->depth == burst_tokens * 1000000000 && bucket->rate_per_s == rate_per_s &&
            bucket->level == \min(bucket->depth, \old(credit(bucket, now_ns)));
    ensures \result != QOS_OK ==> *bucket == \old(*bucket); */
QOS_API enum qos_status qos_bucket_set_rate(struct qos_bucket *bucket, uint64_t now_ns, uint64_t rate_per_s,
                                            uint64_t burst_tokens);

/*@ requires bucket_ok(bucket);
    assigns \nothing;
    ensures n > 4000000000 ==> \result == UINT64_MAX;
    ensures n == 0 ==> \result == now_ns;
    ensures never_early: \result < UINT64_MAX && n != 0 ==>
            credit(bucket, \result) >= \min(bucket->depth, n * 1000000000);
    ensures never_late: \result > now_ns && n <= 4000000000 ==>
            credit(bucket, \result - 1) < \min(bucket->depth, n * 1000000000); */
QOS_API uint64_t qos_bucket_next_ns(const struct qos_bucket *bucket, uint64_t now_ns, uint64_t n);

/*@ requires \valid_read(model);
    requires op == QOS_READ || op == QOS_WRITE;
    assigns \nothing;
    ensures \let p = len_bytes * model->per_mib_cost[op];
            \let c = model->fixed_cost[op] + p / 1048576 + (p % 1048576 != 0 ? 1 : 0);
            \result == (c < 1 ? 1 : c > 4000000000 ? 4000000000 : c); */
QOS_API uint64_t qos_cost(const struct qos_cost_model *model, enum qos_op op, uint64_t len_bytes);
