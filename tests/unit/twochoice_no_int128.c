// proves: as unit/twochoice_table, where the compiler has no 128-bit integers: keys are compared in two words
// flags: -O1 -DQOS_NO_INT128
// variants: native
// coverage: no
#include "unit/twochoice_table.c"
