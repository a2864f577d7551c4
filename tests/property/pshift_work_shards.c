// proves: the same with parts of few rows, and with a search that begins with a window of few rows
// variants: native san
// flags: -DPSHIFT_SHARDS=5 -DPSHIFT_SHARD_ENTRIES=300 -DPSHIFT_WINDOW_ROWS=40
#define WORK_SHARDS
#include "pshift_work.c"
