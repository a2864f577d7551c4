// proves: a claim on shared tags does nothing undefined and wraps nowhere, whatever the shared words hold, at any
// time, for any rate and any cost of a request (value analysis: Eva)
// eva: -eva-precision 3 -eva-use-spec qos_sat_add,qos_sat_sub,qos_elapsed_ns,qos_mul_div_floor,qos_mul_div_ceil
// plant: tags.h|next = qos_sat_add(qos_max(seen, lowest), units);|next = qos_max(seen, lowest) + units;
#include "__fc_builtin.h"
#include "plain.h"
#include "proved.h"
#include "tags.h"

#define ANY Frama_C_unsigned_long_interval(0, UINT64_MAX)

static struct {
    struct tags_shared head;
    struct tags_priv_shared_client client;
} shared; /* the clients follow the head */

int main(void)
{
    static struct tags tags;
    static struct tags_priv_rate rate[2];
    const bool limit = Frama_C_nondet(0, 1) != 0, force = Frama_C_nondet(0, 1) != 0;
    uint32_t i;
    for (i = 0; i < 2; i++) {
        rate[i].tag_ns = ANY;
        rate[i].rate_per_s = Frama_C_unsigned_long_interval(1, QOS_RATE_MAX);
        rate[i].rest = Frama_C_unsigned_long_interval(0, QOS_RATE_MAX - 1);
    }
    shared.head.base_ns = ANY;
    shared.head.reserve_lag_ns = ANY;
    shared.head.limit_burst_ns = ANY;
    shared.client.reserved = ANY;
    shared.client.limited = ANY;
    tags.config.shared = &shared.head;
    tags.reserve = &rate[0];
    tags.limit = &rate[1];
    tags.now_ns = ANY;
    return tags_priv_claim_one(&tags, 0, limit, Frama_C_unsigned_long_interval(0, UINT32_MAX), force);
}
