// proves: real threads on one storage: a monitor, clients that take and wait, one that restarts. No token is spent
// proves: beyond the bound of its period or beyond the client's own tokens. Terms that a period start publishes are
// proves: never torn. Another thread reads the counters. Under the thread sanitizer no access races (the payload is plain)
// flags: -pthread
// variants: native tsan aarch64
// scale: 4
// coverage: report
#include "tokenpool.h"
#include "check.h"
#include <pthread.h>
#include <sched.h>

enum { CLIENTS = 4, EPOCHS = 2000 };
static struct tokenpool_config config;
static struct tokenpool_monitor monitor;
static uint64_t storage[64] __attribute__((aligned(64))), memory[128] __attribute__((aligned(64)));
static qos_word_t stop, clock_ns, tries[CLIENTS]; /* the monitor moves the clock; each client tries between two moves */
static uint64_t spent[CLIENTS][EPOCHS], bound[EPOCHS], lowest_ok = 1, stats_ok = 1;
static struct tokenpool_client engine[CLIENTS]; /* attached before the threads begin */

/* Clients' reservations change with every epoch: R = 3 + (epoch + id) % 5, limit = R + 40. A torn pair shows. */
static uint64_t reservation_of(uint64_t epoch, uint32_t id)
{
    return 3 + (epoch + id) % 5;
}

static void *client(void *arg)
{
    uint32_t id = (uint32_t)(uintptr_t)arg;
    struct tokenpool_client *c = &engine[id];
    struct tokenpool_client_state info;
    struct check_rng random_state;
    uint64_t bad = 0, steps = 0;
    check_rng_init(&random_state, id);
    while (!qos_atomic_load_relaxed(&stop)) {
        uint64_t now_ns = qos_atomic_load_relaxed(&clock_ns), n = check_between(&random_state, 1, 4);
        if (tokenpool_client_take(c, now_ns, n) == QOS_OK) {
            if (tokenpool_client_info(c, &info) != QOS_OK)
                bad++;
            if (info.epoch < EPOCHS)
                spent[id][info.epoch] += n;
            tokenpool_client_complete(c, n);
            bad += info.reservation != reservation_of(info.epoch, id) || info.limit != info.reservation + 40;
        }
        if (++steps % 8 == 0) {
            (void)qos_atomic_add_relaxed(&tries[id], 1);
            sched_yield();
        }
        if (id == 3 && steps % 5000 == 0 && tokenpool_client_attach(c, id, 0, storage, sizeof storage) != QOS_OK)
            bad++; /* dies and comes back */
    }
    return (void *)(uintptr_t)bad;
}

int main(void)
{
    pthread_t thread[CLIENTS];
    uint64_t epoch = 0, epochs, i, total = 0, granted[CLIENTS] = {0};
    uint32_t id;
    check_begin("property/tokenpool_threads");
    epochs = qos_max(check_scaled(60), 3); /* a period may pass before anyone runs */
    config.clients = CLIENTS;
    config.batch = 7;
    config.capacity = 200;
    config.period_ns = 2000000;
    config.check_ns = 20000;
    config.flags = TOKENPOOL_FIXED;
    config.silent_periods = QOS_UNLIMITED;
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
    for (id = 0; id < CLIENTS; id++)
        CHECK_EQ(tokenpool_monitor_join(&monitor, id, reservation_of(1, id), reservation_of(1, id) + 40, NULL), QOS_OK);
    for (id = 0; id < CLIENTS; id++)
        CHECK_EQ(tokenpool_client_attach(&engine[id], id, 0, storage, sizeof storage), QOS_OK);
    for (id = 0; id < CLIENTS; id++)
        CHECK(pthread_create(&thread[id], NULL, client, (void *)(uintptr_t)id) == 0);
    while (epoch < epochs) {
        struct tokenpool_monitor_state info;
        uint64_t seen[CLIENTS];
        struct qos_stats stats;
        for (id = 0; id < CLIENTS; id++)
            seen[id] = qos_atomic_load_relaxed(&tries[id]);
        tokenpool_monitor_run(&monitor, qos_atomic_add_relaxed(&clock_ns, 10000));
        for (id = 0; id < CLIENTS; id++)
            while (qos_atomic_load_relaxed(&tries[id]) == seen[id])
                sched_yield();
        for (id = 0; id < 3; id++) { /* the fourth one attaches again */
            stats_ok &= tokenpool_client_stats(&engine[id], QOS_NONE, &stats) == QOS_OK && stats.granted >= granted[id];
            granted[id] = stats.granted;
        }
        CHECK_EQ(tokenpool_monitor_info(&monitor, &info), QOS_OK);
        lowest_ok &=
            tokenpool_word_count(qos_atomic_load_relaxed(&storage[TOKENPOOL_OFFSET_POOL / 8])) >= -(int64_t)CLIENTS * 7;
        if (info.epoch != epoch) {
            epoch = info.epoch;
            bound[epoch] = info.capacity + info.capacity / 20;
            for (id = 0; id < CLIENTS; id++)
                CHECK_EQ(tokenpool_monitor_change(&monitor, id, reservation_of(epoch + 1, id),
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
    CHECK(lowest_ok && stats_ok);
    printf("%" PRIu64 " tokens in %" PRIu64 " periods\n", total, epoch);
    CHECK(total > 0);
    return check_end();
}
