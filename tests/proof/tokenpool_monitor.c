// proves: whatever the words of a storage hold at each call, a monitor does nothing undefined. It begins, takes over,
// proves: admits, runs, watches, reads reports and estimates, at any times, and its operations give any answer or fail
// (value analysis: Eva)
// eva: -eva-precision 1 -eva-split-return auto -eva-slevel 8 -no-warn-unsigned-overflow -eva-use-spec qos_sat_add,qos_sat_sub,qos_sat_mul,qos_elapsed_ns,qos_mul_div_floor,qos_mul_div_ceil
// slow
// plant: tokenpool.h|above = (high & mask) - most;|above = high - most;
// plant: tokenpool.h|monitor->generation[i] = tokenpool_priv_generation(terms);|monitor->used[tokenpool_priv_generation(terms)] = 0;
//
// In make test: proof/tokenpool_words analyses the same decoders of the shared words, and unit/tokenpool_stray runs this
// monitor, sanitized, after hostile stores into any word.
#include "__fc_builtin.h"
#include "plain.h"
#include "proved.h"
#include "tokenpool.h"

#define ANY Frama_C_unsigned_long_interval(0, UINT64_MAX)
enum { CLIENTS = 3 };

static uint64_t storage[64] __attribute__((aligned(64)));
static uint64_t memory[128] __attribute__((aligned(64)));
static struct tokenpool_monitor monitor;
static struct tokenpool_config config;

static void any_storage(void)
{
    Frama_C_make_unknown((char *)storage, sizeof storage);
}

static void any_monitor(void)
{
    struct tokenpool_op op;
    uint64_t fits;
    /*@ loop widen_hints "all", 63, 64; */
    while (Frama_C_nondet(0, 1)) {
        any_storage();
        switch (Frama_C_interval(0, 6)) {
        case 0:
            if (tokenpool_monitor_next(&monitor, ANY, &op))
                tokenpool_monitor_done(&monitor, ANY);
            break;
        case 1: tokenpool_monitor_fail(&monitor); break;
        case 2: (void)tokenpool_monitor_join(&monitor, Frama_C_interval(0, CLIENTS), ANY, ANY, &fits); break;
        case 3: (void)tokenpool_monitor_change(&monitor, Frama_C_interval(0, CLIENTS), ANY, ANY, NULL); break;
        case 4: (void)tokenpool_monitor_leave(&monitor, Frama_C_interval(0, CLIENTS)); break;
        case 5: (void)tokenpool_monitor_next_ns(&monitor, ANY); break;
        default: tokenpool_monitor_done(&monitor, ANY); break;
        }
    }
}

int main(void)
{
    config.clients = CLIENTS;
    config.batch = 10;
    config.history = TOKENPOOL_HISTORY_MAX;
    config.capacity = Frama_C_unsigned_long_interval(1, TOKENPOOL_TOKENS_MAX);
    config.flags = (uint32_t)Frama_C_interval(0, 15);
    any_storage();
    if (Frama_C_nondet(0, 1)) {
        if (tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config) != QOS_OK)
            return 1;
    } else if (tokenpool_monitor_resume(&monitor, memory, sizeof memory, storage, sizeof storage, &config) != QOS_OK) {
        return 1;
    }
    any_monitor();
    return 0;
}
