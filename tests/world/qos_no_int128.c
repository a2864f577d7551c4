// proves: the same worlds without __int128
// variants: native
#define QOS_NO_INT128
#include "qos.c"
