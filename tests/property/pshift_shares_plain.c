// proves: the same for the initial allocation in plain C; vector code must equal it row by row
// variants: native
#define PSHIFT_PLAIN
#include "pshift_shares.c"
