// proves: one layout serves memsize and init: parts are aligned and do not overlap; overflow is an error; memory
// that is NULL, a byte short or misaligned is refused; counters and atomics work as documented
#include "qos.h"
#include "check.h"

static void check_layout(void)
{
    struct qos_layout l;
    unsigned char mem[256];
    unsigned char *at = mem;
    while ((uintptr_t)at % 64)
        at++;
    /* A layout without parts needs no bytes, but a pointer. */
    qos_layout_begin(&l, NULL);
    CHECK_EQ(qos_layout_size_bytes(&l), 0);
    CHECK_EQ(qos_layout_check(&l, at, 0), QOS_OK);
    CHECK_EQ(qos_layout_check(&l, NULL, 0), QOS_EINVAL);

    CHECK(qos_layout_part(&l, 3, 1, 1) == NULL);
    CHECK(qos_layout_part(&l, 2, 8, 8) == NULL);
    CHECK(qos_layout_part(&l, 0, 8, 8) == NULL);
    CHECK(qos_layout_part(&l, 1, 5, 4) == NULL);
    CHECK(qos_layout_part(&l, 1, 2, 64) == NULL);
    CHECK_EQ(qos_layout_size_bytes(&l), 128);
    CHECK_EQ(qos_layout_check(&l, at, 128), QOS_OK);
    CHECK_EQ(qos_layout_check(&l, at, 127), QOS_EMEMORY);
    CHECK_EQ(qos_layout_check(&l, at + 32, 128), QOS_EALIGN);
    CHECK_EQ(qos_layout_check(&l, NULL, 128), QOS_EINVAL);

    /* The same calls with the memory give the pointers. */
    qos_layout_begin(&l, at);
    CHECK(qos_layout_part(&l, 3, 1, 1) == at);
    CHECK(qos_layout_part(&l, 2, 8, 8) == at + 8);
    CHECK(qos_layout_part(&l, 0, 8, 8) == at + 24);
    CHECK(qos_layout_part(&l, 1, 5, 4) == at + 24);
    CHECK(qos_layout_part(&l, 1, 2, 64) == at + 64);
    CHECK_EQ(qos_layout_size_bytes(&l), 128);

    /* The alignment is the largest of all parts, not that of the last one. */
    qos_layout_begin(&l, NULL);
    (void)qos_layout_part(&l, 1, 64, 64);
    (void)qos_layout_part(&l, 1, 4, 4);
    CHECK_EQ(qos_layout_size_bytes(&l), 128);
    CHECK_EQ(qos_layout_check(&l, at + 32, 128), QOS_EALIGN);

    /* Three ways to overflow: the product, the sum, the padding. Later parts fail, too. */
    qos_layout_begin(&l, at);
    CHECK(qos_layout_part(&l, 1, 16, 1) == at);
    CHECK(qos_layout_part(&l, SIZE_MAX / 2, 3, 1) == NULL);
    CHECK(qos_layout_part(&l, 1, 1, 1) == NULL);
    CHECK_EQ(qos_layout_size_bytes(&l), 0); /* not the 16 that fitted */
    CHECK_EQ(qos_layout_check(&l, at, 128), QOS_ERANGE);
    qos_layout_begin(&l, NULL);
    (void)qos_layout_part(&l, 1, SIZE_MAX - 2, 1);
    CHECK_EQ(qos_layout_size_bytes(&l), SIZE_MAX - 2);
    (void)qos_layout_part(&l, 1, 3, 1);
    CHECK_EQ(qos_layout_size_bytes(&l), 0);
    CHECK_EQ(qos_layout_check(&l, at, SIZE_MAX), QOS_ERANGE);
    qos_layout_begin(&l, NULL);
    (void)qos_layout_part(&l, 1, SIZE_MAX - 2, 1);
    (void)qos_layout_part(&l, 1, 1, 64);
    CHECK_EQ(qos_layout_check(&l, at, SIZE_MAX), QOS_ERANGE);
    qos_layout_begin(&l, NULL);
    (void)qos_layout_part(&l, 1, SIZE_MAX - 2, 64);
    CHECK_EQ(qos_layout_size_bytes(&l), 0);
    CHECK_EQ(qos_layout_check(&l, at, SIZE_MAX), QOS_ERANGE);
}

static void check_shared_words(void)
{
    qos_counter_t c = 0;
    qos_counter_add(&c, 5);
    qos_counter_add(&c, UINT64_MAX);
    CHECK_EQ(qos_counter_read(&c), 4);
    {
        struct qos_counters live = {1, 2, 3, 4};
        struct qos_stats out = {9, 9, 9, 9, 9};
        qos_counters_read(&live, &out);
        CHECK(out.granted == 1 && out.borrowed == 2 && out.refused == 3 && out.waited == 4 && out.debt == 0);
    }
#if QOS_HAS_ATOMIC64
    {
        qos_word_t w = 1;
        uint64_t expected = 9;
        CHECK_EQ(qos_atomic_load_relaxed(&w), 1);
        qos_atomic_store_relaxed(&w, 2);
        CHECK_EQ(qos_atomic_load_acquire(&w), 2);
        qos_atomic_store_release(&w, UINT64_MAX);
        CHECK_EQ(qos_atomic_add_relaxed(&w, 3), UINT64_MAX);
        CHECK(!qos_atomic_cas_relaxed(&w, &expected, 30));
        CHECK_EQ(expected, 2);
        CHECK(qos_atomic_cas_relaxed(&w, &expected, 30));
        CHECK_EQ(qos_atomic_load_relaxed(&w), 30);
        CHECK(!qos_atomic_cas_release(&w, &expected, 31));
        CHECK_EQ(expected, 30);
        CHECK(qos_atomic_cas_release(&w, &expected, 31));
        CHECK(!qos_atomic_cas_seq_cst(&w, &expected, 32));
        CHECK_EQ(expected, 31);
        CHECK(qos_atomic_cas_seq_cst(&w, &expected, 32));
        CHECK_EQ(qos_atomic_load_seq_cst(&w), 32);
    }
#endif
}

int main(void)
{
    check_begin("unit/qos_memory");
    check_layout();
    check_shared_words();
    return check_end();
}
