// proves: whatever the words that tokenpool.h reads from shared or remote memory hold, a client does nothing
// proves: undefined. It takes, runs and completes in any order, at any times, and its operations give any answer (value
// analysis: Eva)
// eva: -eva-precision 1 -eva-split-return auto -eva-slevel 2 -no-warn-unsigned-overflow -eva-use-spec qos_sat_add,qos_sat_sub,qos_sat_mul,qos_elapsed_ns,qos_mul_div_floor,qos_mul_div_ceil
// slow plants
// plant: tokenpool.h|(int64_t)((pool >> 32) ^ (UINT64_C(1) << 31)) - (INT64_C(1) << 31)|(int64_t)(pool ^ (UINT64_C(1) << 63)) - (INT64_C(1) << 31)
#include "__fc_builtin.h"
#include "plain.h"
#include "proved.h"
#include "tokenpool.h"

#define ANY Frama_C_unsigned_long_interval(0, UINT64_MAX)

static void any_words(void)
{
    uint64_t word = ANY;
    (void)tokenpool_word_count(word);
    (void)tokenpool_word_epoch(word);
    (void)tokenpool_priv_seq(word);
    (void)tokenpool_priv_period_epoch(word);
    (void)tokenpool_priv_period_valid(word);
    (void)tokenpool_priv_reservation(word);
    (void)tokenpool_priv_limit(word);
    (void)tokenpool_priv_generation(word);
}

static void any_client(void)
{
    static struct tokenpool_client client;
    uint64_t head[TOKENPOOL_HEAD_BYTES / 8];
    struct tokenpool_op op;
    Frama_C_make_unknown((char *)head, sizeof head);
    if (tokenpool_client_attach_remote(&client, 3, 1, head, ANY) != QOS_OK)
        return;
    while (Frama_C_nondet(0, 1)) {
        switch (Frama_C_interval(0, 6)) {
        case 0:
            if (tokenpool_client_next(&client, ANY, ANY, &op))
                tokenpool_client_done(&client, ANY);
            break;
        case 1: tokenpool_client_fail(&client); break;
        case 2: (void)tokenpool_client_take(&client, ANY, ANY); break;
        case 3: (void)tokenpool_client_force(&client, ANY, ANY); break;
        case 4: tokenpool_client_complete(&client, ANY); break;
        case 5: tokenpool_client_set_queued(&client, ANY); break;
        default: (void)tokenpool_client_next_ns(&client, ANY, ANY); break;
        }
    }
}

int main(void)
{
    any_words();
    any_client();
    return 0;
}
