// proves: as unit/tags_api, where the compiler has no 128-bit integers: tags are compared in two words
// flags: -DQOS_NO_INT128
// variants: native
// coverage: no
#include "unit/tags_api.c"
