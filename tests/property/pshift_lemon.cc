// proves: on random instances, degenerate ones included, Phi is the maximum flow that LEMON finds (Section III-B)
// links: tests/lemon_flow.cc
// flags: -std=gnu++17 -Wno-maybe-uninitialized
#define LEMON_TEST "pshift_lemon"
#define LEMON_SEARCHES 0
#include "pshift_lemon.h"
