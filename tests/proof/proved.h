/* proved.h - arithmetic of qos.h for the value analysis, as functions that return any number: qos.c proves that they
 * never wrap, which the analysis could not find out.
 * The products and quotients among them are those that tests/build/narrow.sh tests. */
#include "qos.h"

/*@ assigns \result \from a, b; */
QOS_API uint64_t qos_sat_add(uint64_t a, uint64_t b);
/*@ assigns \result \from a, b; ensures \result <= a; */
QOS_API uint64_t qos_sat_sub(uint64_t a, uint64_t b);
/*@ assigns \result \from a, b; */
QOS_API uint64_t qos_sat_mul(uint64_t a, uint64_t b);
/*@ assigns \result \from from_ns, to_ns; */
QOS_API uint64_t qos_elapsed_ns(uint64_t from_ns, uint64_t to_ns);
/*@ assigns \result \from a, b, c; */
QOS_API uint64_t qos_mul_div_floor(uint64_t a, uint64_t b, uint64_t c);
/*@ assigns \result \from a, b, c; */
QOS_API uint64_t qos_mul_div_ceil(uint64_t a, uint64_t b, uint64_t c);
