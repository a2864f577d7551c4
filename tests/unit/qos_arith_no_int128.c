// proves: the same ends of ranges where the compiler has no __int128
// coverage: no
#define QOS_NO_INT128
#include "qos_arith.c"
