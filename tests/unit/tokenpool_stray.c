// proves: after one stray 64-bit store into any word of the storage, of any of a set of hostile values, at any of
// several phases of a period, the tokens of a window of T stay within a stated bound, and within a stated number of
// periods the pool recovers by itself
// variants: native san i386
#include "unit/tokenpool_rig.h"

enum { CLIENTS = 3, CAPACITY = 2000, RESERVED = 400, PERIODS = 9, STEPS = 40 }; /* STEPS: calls of each in a period */

/* Hostile values in place of `old`. */
static uint64_t hostile(unsigned k, uint64_t old)
{
    switch (k) {
    case 0: return 0;
    case 1: return UINT64_MAX;
    case 2: return UINT64_C(1) << 63;
    case 3: return UINT64_C(0x9e3779b97f4a7c15);
    case 4: return old ^ UINT64_C(1) << 62; /* a bit of each field */
    case 5: return old ^ UINT64_C(1) << 40;
    case 6: return old ^ UINT64_C(1) << 30;
    case 7: return old ^ UINT64_C(1) << 12;
    case 8: return old ^ 1;
    case 9: return (old & UINT32_MAX) | UINT64_C(1000000) << 32;     /* a pool of 1,000,000 tokens */
    case 10: return (old & UINT32_MAX) | UINT64_C(0x80000000) << 32; /* of -2^31 */
    default: return UINT64_C(0x5555555555555555);
    }
}

static struct tokenpool_client client[CLIENTS];

/* Tokens of each period of a run with one stray store; most: the maximum of any STEPS steps in a row. */
static void run(uint64_t word, unsigned value, unsigned phase, uint64_t *sums, uint64_t *most)
{
    uint64_t now = 0, p, i, recent[STEPS] = {0}, window = 0;
    uint32_t c;
    rig_config(CLIENTS, 20, CAPACITY, 0);
    config.client_capacity = CAPACITY / 2;
    config.check_ns = S / STEPS / 2;
    config.lease_ns = S / 10;
    rig_init();
    for (c = 0; c < CLIENTS; c++) {
        rig_join(c, RESERVED, 0);
        rig_engine(&client[c], c);
        tokenpool_client_set_queued(&client[c], TOKENPOOL_BACKLOGGED);
    }
    *most = 0;
    for (p = 0; p < PERIODS; p++) {
        sums[p] = 0;
        for (i = 0; i < STEPS; i++, now += S / STEPS) {
            uint64_t got = 0;
            rig_run(&monitor, now);
            if (p == 2 && i == phase)
                storage[word] = hostile(value, storage[word]);
            for (c = 0; c < CLIENTS; c++) {
                unsigned k;
                enum qos_status status = QOS_OK;
                for (k = 0; k < 60 && (status = tokenpool_client_take(&client[c], now, 1)) == QOS_OK; k++)
                    got++;
                if (status == QOS_ESTALE) { /* its report was hit: it is told to attach again */
                    rig_engine(&client[c], c);
                    tokenpool_client_set_queued(&client[c], TOKENPOOL_BACKLOGGED);
                }
                tokenpool_client_complete(&client[c], k);
            }
            sums[p] += got;
            window = window + got - recent[i];
            recent[i] = got;
            if (window > *most)
                *most = window;
        }
    }
}

int main(void)
{
    static const unsigned phases[] = {0, 1, 13, 27, 38, 39};
    uint64_t sums[PERIODS], most, words, w, worst_sum = 0, worst_heal = 0;
    unsigned v, f, p, step;
    check_begin("unit/tokenpool_stray");
    rig_config(CLIENTS, 20, CAPACITY, 0);
    words = tokenpool_storage_memsize(&config) / 8;
    step = check_state.scale > 20 ? 3 : check_state.scale > 1 ? 2 : 1;
    for (w = 0; w < words; w++)
        for (v = (unsigned)(step > 2 ? w % 2 : 0); v<12; v += step> 2 ? 2 : 1)
            for (f = 0; f < sizeof phases / sizeof phases[0]; f += step) {
                uint64_t heal = 0;
                run(w, v, phases[f], sums, &most);
                CHECK_CONTEXT("word %" PRIu64 ", value %u, phase %u", w, v, phases[f]);
                for (p = 2; p < PERIODS; p++)
                    if (sums[p] < CAPACITY * 95 / 100 || sums[p] > CAPACITY)
                        heal = p - 1;
                CHECK_LE(heal, 3);
                CHECK_LE(most, 2 * CAPACITY + CLIENTS * 20);
                worst_sum = most > worst_sum ? most : worst_sum;
                worst_heal = heal > worst_heal ? heal : worst_heal;
            }
    printf("most in a window of T: %" PRIu64 " of %d; as before after at most %" PRIu64 " periods\n", worst_sum,
           CAPACITY, worst_heal);
    return check_end();
}
