// proves: real threads on one storage: a monitor, clients that take and wait, one that restarts; no token is spent beyond
// the bound of its period or beyond what the client was given; what a period start publishes is whole; under the thread
// sanitizer no access races (the payload is plain memory)
// flags: -pthread
// variants: native tsan aarch64
#include "tokenpool.h"
#include "check.h"
#include <pthread.h>

enum { CLIENTS = 4, EPOCHS = 2000 };
static struct tokenpool_config cfg;
static struct tokenpool monitor;
static uint64_t storage[64] __attribute__((aligned(64))), control[128] __attribute__((aligned(64)));
static qos_word_t stop, clock_ns; /* time is the number of tries */
static uint64_t spent[CLIENTS][EPOCHS], bound[EPOCHS], lowest_ok = 1;

/* Clients' reservations change with every epoch: R = 3 + (epoch + id) % 5, limit = R + 40. A torn pair shows. */
static uint64_t reservation_of(uint64_t epoch, uint32_t id)
{
    return 3 + (epoch + id) % 5;
}

static void *client(void *arg)
{
    uint32_t id = (uint32_t)(uintptr_t)arg;
    struct tokenpool_client c;
    struct check_rng rng;
    uint64_t bad = 0, steps = 0;
    check_rng_init(&rng, id);
    if (tokenpool_client_init(&c, &cfg, id) != QOS_OK)
        return (void *)1;
    while (!qos_atomic_load_relaxed(&stop)) {
        uint64_t now_ns = qos_atomic_add_relaxed(&clock_ns, 10), n = check_between(&rng, 1, 4);
        if (tokenpool_take_local(&c, storage, now_ns, n) == QOS_OK) {
            if (c.epoch < EPOCHS)
                spent[id][c.epoch] += n;
            tokenpool_complete(&c, n);
            bad += c.reservation != reservation_of(c.epoch, id) || c.limit != c.reservation + 40;
        }
        if (id == 3 && ++steps % 5000 == 0 && tokenpool_client_init(&c, &cfg, id) != QOS_OK)
            bad++; /* dies and comes back */
    }
    return (void *)(uintptr_t)bad;
}

int main(void)
{
    pthread_t thread[CLIENTS];
    uint64_t epoch = 0, epochs, i, total = 0;
    uint32_t id;
    check_begin("property/tokenpool_threads");
    epochs = check_scaled(200);
    cfg.clients = CLIENTS;
    cfg.batch = 7;
    cfg.capacity = 200;
    cfg.period_ns = 100000;
    cfg.check_ns = 1000;
    cfg.flags = TOKENPOOL_FIXED;
    cfg.silent_periods = TOKENPOOL_NEVER_SILENT;
    CHECK_EQ(tokenpool_init(&monitor, control, sizeof control, storage, sizeof storage, &cfg), QOS_OK);
    for (id = 0; id < CLIENTS; id++)
        CHECK_EQ(tokenpool_join(&monitor, id, reservation_of(1, id), reservation_of(1, id) + 40, NULL), QOS_OK);
    for (id = 0; id < CLIENTS; id++)
        CHECK(pthread_create(&thread[id], NULL, client, (void *)(uintptr_t)id) == 0);
    while (epoch < epochs) {
        struct tokenpool_info info;
        tokenpool_run(&monitor, qos_atomic_load_relaxed(&clock_ns));
        tokenpool_get_info(&monitor, &info);
        lowest_ok &= tokenpool_word_count(qos_atomic_load_relaxed(&storage[8])) >= -(int64_t)CLIENTS * 7;
        if (info.epoch != epoch) {
            epoch = info.epoch;
            bound[epoch] = info.capacity + (uint64_t)CLIENTS * 7;
            for (id = 0; id < CLIENTS; id++)
                CHECK_EQ(tokenpool_change(&monitor, id, reservation_of(epoch + 1, id),
                                          reservation_of(epoch + 1, id) + 40, NULL),
                         QOS_OK);
        }
    }
    qos_atomic_store_relaxed(&stop, 1);
    for (id = 0; id < CLIENTS; id++) {
        void *bad = NULL;
        CHECK(pthread_join(thread[id], &bad) == 0);
        CHECK_EQ((uintptr_t)bad, 0);
    }
    for (i = 1; i < epoch; i++) {
        uint64_t sum = 0;
        for (id = 0; id < CLIENTS; id++) {
            sum += spent[id][i];
            CHECK_LE(spent[id][i], reservation_of(i, id) + 40);
        }
        CHECK_LE(sum, bound[i]);
        total += sum;
    }
    CHECK(lowest_ok);
    printf("%" PRIu64 " tokens in %" PRIu64 " periods\n", total, epoch);
    CHECK(total > 0);
    return check_end();
}
