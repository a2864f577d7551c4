// proves: bit scans find every bit, alone and among others, and give 64 for zero
#include "qos.h"
#include "check.h"

int main(void)
{
    struct check_rng rng;
    unsigned i, k;
    check_begin("unit/qos_bits");
    check_rng_init(&rng, 1);
    CHECK_EQ(qos_clz64(0), 64);
    CHECK_EQ(qos_ctz64(0), 64);
    for (i = 0; i < 64; i++) {
        uint64_t bit = UINT64_C(1) << i, below = bit - 1, above = ~below & ~bit;
        CHECK_EQ(qos_clz64(bit), 63 - i);
        CHECK_EQ(qos_ctz64(bit), i);
        for (k = 0; k < 100; k++) {
            CHECK_EQ(qos_clz64(bit | (check_rand(&rng) & below)), 63 - i);
            CHECK_EQ(qos_ctz64(bit | (check_rand(&rng) & above)), i);
        }
    }
    return check_end();
}
