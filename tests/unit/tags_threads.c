// proves: real threads: four shards that share tags keep one client's limit and another's reservation like one
// proves: scheduler, while a further thread reads every counter without stopping them. Under the thread sanitizer no
// proves: access races
// flags: -pthread
// variants: native tsan aarch64
#include "tags.h"
#include "check.h"
#include <pthread.h>

enum { SHARDS = 4, CLIENTS = 3, LIMIT = 10000, RESERVED = 5000 };
static struct tags shard[SHARDS];
static struct tags_shared *sh;
static uint64_t sent[SHARDS][CLIENTS], steps;
static qos_word_t clock_ns, stop;

/* There is always a request. Client 0 has a limit, client 1 a reservation and almost no weight, and client 2 gets the
   remainder. */
static void *serve(void *arg)
{
    uint32_t k = (uint32_t)(uintptr_t)arg;
    uint64_t bad = 0, i;
    for (i = 0; i < steps; i++) {
        uint64_t now = qos_atomic_add_relaxed(&clock_ns, 1000);
        struct tags_grant g;
        if (tags_pull(&shard[k], now, 1, &g) != QOS_OK) {
            bad++;
            continue;
        }
        sent[k][g.client]++;
        bad += tags_arrive(&shard[k], now, g.client, 1, 1) != QOS_OK;
        if (g.client == 0 && i % 64 == 0) {
            sent[k][0]--;
            bad += tags_cancel(&shard[k], now, &g) != QOS_OK;
        } else {
            bad += tags_complete(&shard[k], now, &g, 1000) != QOS_OK;
        }
    }
    return (void *)(uintptr_t)bad;
}

/* Counters only grow, whichever thread reads them, and when. */
static void *watch(void *arg)
{
    uint64_t before[SHARDS][4], bad = 0, rounds = 0;
    uint32_t k;
    (void)arg;
    memset(before, 0, sizeof before);
    while (!qos_atomic_load_relaxed(&stop) || rounds == 0) {
        for (k = 0; k < SHARDS; k++) {
            uint64_t seen[4];
            struct qos_stats all = {0, 0, 0, 0, 0}, one = {0, 0, 0, 0, 0};
            unsigned j;
            bad += tags_stats(&shard[k], QOS_NONE, &all) != QOS_OK;
            bad += tags_stats(&shard[k], 1, &one) != QOS_OK;
            seen[0] = all.granted;
            seen[1] = all.borrowed;
            seen[2] = one.granted;
            seen[3] = one.borrowed;
            for (j = 0; j < 4; j++) {
                bad += seen[j] < before[k][j];
                before[k][j] = seen[j];
            }
        }
        rounds++;
    }
    return (void *)(uintptr_t)bad;
}

int main(void)
{
    struct tags_config c;
    const struct tags_shared_config shared_config = {CLIENTS, UINT64_C(1000000000), 1000000};
    struct tags_client terms[CLIENTS];
    struct check_mem memory[SHARDS], shared_memory;
    pthread_t thread[SHARDS], watcher;
    uint64_t total[CLIENTS] = {0}, elapsed;
    uint32_t k, i;
    void *bad;
    check_begin("unit/tags_threads");
    steps = check_scaled(200000);
    memset(&c, 0, sizeof c);
    memset(terms, 0, sizeof terms);
    terms[0].limit_per_s = LIMIT;
    terms[1].reservation_per_s = RESERVED;
    terms[2].weight = 1000000;
    terms[0].weight = 1000000;
    sh = (struct tags_shared *)check_mem_new(&shared_memory, tags_shared_memsize(&shared_config), 8, 0);
    CHECK_EQ(tags_shared_init(sh, 0, shared_memory.size, &shared_config), QOS_OK);
    c.clients = CLIENTS;
    c.shared = sh;
    c.count_by_client = true;
    for (i = 0; i < CLIENTS; i++)
        CHECK_EQ(tags_shared_change(sh, 0, i, &terms[i]), QOS_OK);
    for (k = 0; k < SHARDS; k++) {
        check_mem_new(&memory[k], tags_memsize(&c), 64, 0);
        CHECK_EQ(tags_init(&shard[k], memory[k].mem, memory[k].size, &c), QOS_OK);
        for (i = 0; i < CLIENTS; i++) {
            CHECK_EQ(tags_add(&shard[k], 0, i, &terms[i]), QOS_OK);
            CHECK_EQ(tags_arrive(&shard[k], 0, i, 4, 1), QOS_OK);
        }
    }
    CHECK_EQ(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (k = 0; k < SHARDS; k++)
        CHECK_EQ(pthread_create(&thread[k], NULL, serve, (void *)(uintptr_t)k), 0);
    for (k = 0; k < SHARDS; k++) {
        CHECK_EQ(pthread_join(thread[k], &bad), 0);
        CHECK_EQ((uintptr_t)bad, 0);
    }
    qos_atomic_store_relaxed(&stop, 1);
    CHECK_EQ(pthread_join(watcher, &bad), 0);
    CHECK_EQ((uintptr_t)bad, 0);
    elapsed = clock_ns;
    for (k = 0; k < SHARDS; k++) {
        for (i = 0; i < CLIENTS; i++)
            total[i] += sent[k][i];
        CHECK(check_mem_free(&memory[k]));
    }
    CHECK(check_mem_free(&shared_memory));
    printf("%" PRIu64 " of at most %" PRIu64 ", %" PRIu64 " of at least %" PRIu64 ", %" PRIu64 " others\n", total[0],
           LIMIT * elapsed / 1000000000 + 11, total[1], RESERVED * elapsed / 1000000000, total[2]);
    CHECK_LE(total[0], LIMIT * elapsed / 1000000000 + 10 + 1); /* a burst of 1 ms, and one */
    CHECK_GE(total[1] + 1, RESERVED * elapsed / 1000000000);
    CHECK_GE(total[2], steps);
    return check_end();
}
