// proves: split into parts, each with its own quotas, the problem has the same maximum flow (Section III-C1)
// links: tests/lemon_flow.cc
// flags: -std=gnu++17 -Wno-maybe-uninitialized -O3 -march=native
#define LEMON_TEST "pshift_lemon_shards"
#define LEMON_SEARCHES 0
#define PSHIFT_SHARDS 5
#define PSHIFT_SHARD_ENTRIES 1
#include "pshift_lemon.h"
