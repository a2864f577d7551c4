// proves: any configuration, reservation, limit and any bytes in the storage: errors are values, nothing is broken
#include "tokenpool.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t storage[128] __attribute__((aligned(64))), control[512] __attribute__((aligned(64)));
    static struct tokenpool m;
    static struct tokenpool_client c;
    struct fuzz_input in = {data, size};
    struct tokenpool_config cfg;
    uint64_t i, fits = 0, now = 0;
    bool wild = fuzz_between(&in, 0, 1) == 1;
    memset(&cfg, 0, sizeof cfg);
    cfg.clients = (uint32_t)fuzz_between(&in, 0, wild ? UINT32_MAX : 16);
    cfg.batch = (uint32_t)fuzz_between(&in, 0, wild ? UINT32_MAX : 4096);
    cfg.flags = (uint32_t)fuzz_between(&in, 0, 31);
    cfg.overrun = (uint32_t)fuzz_between(&in, 0, wild ? UINT32_MAX : 1000);
    cfg.history = (uint32_t)fuzz_between(&in, 0, 70);
    cfg.period_ns = fuzz_between(&in, 0, wild ? UINT64_MAX : TOKENPOOL_PERIOD_NS_MAX);
    cfg.capacity = fuzz_between(&in, 0, wild ? UINT64_MAX : TOKENPOOL_TOKENS_MAX);
    cfg.capacity_min = fuzz_between(&in, 0, 1) ? 0 : fuzz_between(&in, 0, UINT64_MAX);
    cfg.client_capacity = fuzz_between(&in, 0, 1) ? 0 : fuzz_between(&in, 0, UINT64_MAX);
    if (tokenpool_check(&cfg) != QOS_OK) {
        FUZZ_CHECK(tokenpool_memsize(&cfg) == 0 && tokenpool_storage_size(&cfg) == 0);
        FUZZ_CHECK(tokenpool_init(&m, control, sizeof control, storage, sizeof storage, &cfg) != QOS_OK);
        FUZZ_CHECK(tokenpool_client_init(&c, &cfg, 0) != QOS_OK);
        return 0;
    }
    if (tokenpool_init(&m, control, sizeof control, storage, sizeof storage, &cfg) != QOS_OK) {
        FUZZ_CHECK(tokenpool_memsize(&cfg) > sizeof control || tokenpool_storage_size(&cfg) > sizeof storage);
        return 0;
    }
    FUZZ_CHECK(tokenpool_client_init(&c, &cfg, 0) == QOS_OK);
    tokenpool_client_start_now(&c);
    for (i = 0; i < 40; i++) {
        uint64_t n = fuzz_between(&in, 0, TOKENPOOL_TOKENS_MAX + 1), held;
        now += fuzz_between(&in, 0, 1) ? fuzz_between(&in, 0, UINT32_MAX) : fuzz_between(&in, 0, 255);
        switch (fuzz_between(&in, 0, 9)) {
        case 0: /* admission says what fits, and that fits */
            if (tokenpool_join(&m, 0, n, TOKENPOOL_NO_LIMIT, &fits) == QOS_EADMISSION) {
                FUZZ_CHECK(fits < n);
                FUZZ_CHECK(tokenpool_join(&m, 0, fits, TOKENPOOL_NO_LIMIT, NULL) == QOS_OK);
            }
            break;
        case 1: tokenpool_run(&m, now); break;
        case 2: tokenpool_tick_local(&c, storage, now); break;
        case 3: /* a take gives exactly what it says */
            held = tokenpool_held(&c);
            n %= UINT64_C(64) * c.cfg.batch + 2; /* a claim per batch: more would only take longer */
            if (tokenpool_take_local(&c, storage, now, n) == QOS_OK)
                FUZZ_CHECK(held < n || tokenpool_held(&c) == held - n);
            break;
        case 4:
            if (tokenpool_force(&c, n) == QOS_OK)
                FUZZ_CHECK(n > 0);
            break;
        case 5: tokenpool_put_back(&c, n); break;
        case 6: tokenpool_complete(&c, n); break;
        case 7: tokenpool_set_queued(&c, fuzz_bytes(&in, 8)); break;
        case 8: storage[fuzz_between(&in, 0, 127)] = fuzz_bytes(&in, 8); break; /* a wild write into the storage */
        default:
            held = tokenpool_client_next_ns(&c, now, n);
            FUZZ_CHECK(held >= now);
            if (tokenpool_leave(&m, 0) == QOS_OK)
                FUZZ_CHECK(m.total == 0);
        }
        FUZZ_CHECK(c.kept <= c.reservation && c.ready <= (int64_t)c.allowance);
    }
    return 0;
}
