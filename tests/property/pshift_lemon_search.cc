// proves: the level search alone, with an index that grows from two rows, finds the maximum flow (Algorithm 5)
// links: tests/lemon_flow.cc
// flags: -std=gnu++17 -Wno-maybe-uninitialized
#define LEMON_TEST "pshift_lemon_search"
#define LEMON_SEARCHES 1
#define PSHIFT_TURNS 0
#define PSHIFT_WINDOW_ROWS 2
#include "pshift_lemon.h"
