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
    static struct {
        struct tags_shared head;
        struct tags_priv_shared_client client;
    } shared = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    struct tags_priv_rate own = {ANY, Frama_C_unsigned_long_interval(1, QOS_RATE_MAX), 0, ANY};
    own.rest = Frama_C_unsigned_long_interval(0, QOS_RATE_MAX - 1);
    shared.head.base_ns = ANY;
    shared.head.reserve_lag_ns = ANY;
    shared.head.limit_burst_ns = ANY;
    shared.client.reserved = ANY;
    shared.client.limited = ANY;
    tags.limit = tags.reserve = &own;
    tags.config.shared = &shared.head;
    tags.now_ns = ANY;
    return tags_priv_claim_one(&tags, 0, Frama_C_nondet(0, 1) != 0,
                               Frama_C_unsigned_long_interval(0, UINT64_C(1) << 33), Frama_C_nondet(0, 1) != 0);
}
