// proves: any configuration, reservation, limit, clock and bytes in the storage give at worst an error value
#include "tokenpool.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t storage[128] __attribute__((aligned(64))), memory[512] __attribute__((aligned(64)));
    static struct tokenpool_monitor m;
    static struct tokenpool_client c;
    struct fuzz_input in = {data, size};
    struct tokenpool_config config;
    struct tokenpool_client_state state;
    struct tokenpool_slot_state slot;
    uint64_t i, fits = 0, now = 0;
    bool wild = fuzz_between(&in, 0, 1) == 1;
    memset(&config, 0, sizeof config);
    config.clients = (uint32_t)fuzz_between(&in, 0, wild ? UINT32_MAX : 10);
    config.batch = (uint32_t)fuzz_between(&in, 0, wild ? UINT32_MAX : 4096);
    config.flags = (uint32_t)fuzz_between(&in, 0, 15);
    config.overrun = fuzz_between(&in, 0, wild ? UINT64_MAX : 1000);
    config.history = (uint32_t)fuzz_between(&in, 0, 70);
    config.period_ns = fuzz_between(&in, 0, wild ? UINT64_MAX : TOKENPOOL_PERIOD_NS_MAX);
    config.capacity = fuzz_between(&in, 0, wild ? UINT64_MAX : TOKENPOOL_TOKENS_MAX);
    config.client_capacity = fuzz_between(&in, 0, 1) ? 0 : fuzz_between(&in, 0, UINT64_MAX);
    if (tokenpool_config_error(&config)) {
        FUZZ_CHECK(tokenpool_monitor_memsize(&config) == 0 && tokenpool_storage_memsize(&config) == 0);
        FUZZ_CHECK(tokenpool_monitor_init(&m, memory, sizeof memory, storage, sizeof storage, &config) != QOS_OK);
        return 0;
    }
    if (tokenpool_monitor_init(&m, memory, sizeof memory, storage, sizeof storage, &config) != QOS_OK) {
        FUZZ_CHECK(tokenpool_monitor_memsize(&config) > sizeof memory ||
                   tokenpool_storage_memsize(&config) > sizeof storage);
        return 0;
    }
    FUZZ_CHECK(tokenpool_client_attach(&c, 0, 0, storage, sizeof storage) == QOS_OK);
    for (i = 0; i < 40; i++) {
        uint64_t n = fuzz_between(&in, 0, TOKENPOOL_TOKENS_MAX + 1);
        if (fuzz_between(&in, 0, 15) == 0)
            now = fuzz_bytes(&in, 8); /* a clock that jumps */
        else
            now += fuzz_between(&in, 0, 1) ? fuzz_between(&in, 0, UINT32_MAX) : fuzz_between(&in, 0, 255);
        if (now > UINT64_MAX / 2)
            now = UINT64_MAX / 2;
        switch (fuzz_between(&in, 0, 11)) {
        case 0: /* the fit that admission reports can be admitted */
            if (tokenpool_monitor_join(&m, 0, n, 0, &fits) == QOS_EADMISSION) {
                FUZZ_CHECK(fits < n);
                FUZZ_CHECK(tokenpool_monitor_join(&m, 0, fits, 0, NULL) == QOS_OK);
            }
            break;
        case 1: tokenpool_monitor_run(&m, now); break;
        case 2: tokenpool_client_run(&c, now, fuzz_between(&in, 0, 1) * n); break;
        case 3:
            n %= UINT64_C(64) * config.batch + 2; /* with one claim per batch; more would only take longer */
            if (tokenpool_client_take(&c, now, n) == QOS_OK)
                FUZZ_CHECK(n > 0 && n <= config.capacity);
            break;
        case 4:
            if (tokenpool_client_force(&c, now, n) == QOS_OK)
                FUZZ_CHECK(n > 0);
            break;
        case 5:
            if (tokenpool_client_put_back(&c, now, tokenpool_client_epoch(&c), n) == QOS_OK)
                FUZZ_CHECK(tokenpool_client_epoch(&c) != 0);
            break;
        case 6: tokenpool_client_complete(&c, n); break;
        case 7: tokenpool_client_set_queued(&c, fuzz_bytes(&in, 8)); break;
        case 8: storage[fuzz_between(&in, 0, 127)] = fuzz_bytes(&in, 8); break; /* a wild write into the storage */
        case 9: tokenpool_client_hint(&c); break;
        case 10:
            if (tokenpool_monitor_resume(&m, memory, sizeof memory, storage, sizeof storage, &config) == QOS_OK)
                tokenpool_monitor_run(&m, now);
            break;
        default:
            FUZZ_CHECK(tokenpool_client_next_ns(&c, now, n) >= now);
            FUZZ_CHECK(tokenpool_monitor_next_ns(&m, now) >= now);
            if (tokenpool_monitor_leave(&m, 0) == QOS_OK)
                FUZZ_CHECK(tokenpool_monitor_slot_info(&m, 0, &slot) == QOS_OK && slot.reservation == 0);
        }
        FUZZ_CHECK(tokenpool_client_info(&c, &state) == QOS_OK);
        FUZZ_CHECK(state.kept <= state.reservation && state.held <= state.kept + state.gained);
    }
    return 0;
}
