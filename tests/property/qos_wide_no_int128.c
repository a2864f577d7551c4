// proves: the same arithmetic where the compiler has no __int128
// coverage: no
#define QOS_NO_INT128
#include "qos_wide.c"
