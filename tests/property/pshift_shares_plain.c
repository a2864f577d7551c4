// proves: the same of the initial allocation in plain C, which vector code must equal row by row
// variants: native
#define PSHIFT_PLAIN
#include "pshift_shares.c"
