// proves: the same for blocks of 16 rows, as with vectors of 512 bits; for processors that have none the compiler makes
// proves: other code of them
// variants: native
// flags: -DPSHIFT_LANES=16
#include "pshift_shares.c"
