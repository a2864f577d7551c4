// proves: a claim on shared tags does nothing undefined and wraps nowhere, whatever the shared words hold, at any
// time, for any rate and any number of units (value analysis: Eva)
// eva: -eva-precision 3 -eva-use-spec qos_sat_add,qos_sat_sub,qos_elapsed_ns,qos_mul_div_floor,qos_mul_div_ceil
// plant: tags.h|next = qos_sat_add(qos_max(seen, lowest), units);|next = qos_max(seen, lowest) + units;
#include "__fc_builtin.h"
#include "plain.h"
#include "proved.h"
#include "tags.h"

#define ANY Frama_C_unsigned_long_interval(0, UINT64_MAX)

int main(void)
{
    static struct tags tags;
    struct tags_shared shared = {ANY, ANY, ANY, ANY};
    struct tags_priv_rate own = {ANY, Frama_C_unsigned_long_interval(1, QOS_RATE_MAX), ANY};
    qos_word_t word = ANY;
    bool force = Frama_C_nondet(0, 1) != 0;
    tags.config.shared = &shared;
    tags.now_ns = ANY;
    return tags_priv_claim_one(&tags, &own, &word, ANY, ANY, force);
}
