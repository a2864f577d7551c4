// proves: the same for blocks of 16 rows, as with vectors of 512 bits; where the processor lacks them, the compiler
// proves: splits them
// variants: native
// flags: -DPSHIFT_LANES=16
#include "pshift_shares.c"
