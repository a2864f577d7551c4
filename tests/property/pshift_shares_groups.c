// proves: the same for rows that are started in groups, with vectors of 512 bits; for processors that have none the
// proves: compiler makes other code of them
// variants: native
// flags: -DPSHIFT_GROUPS=1
#include "pshift_shares.c"
