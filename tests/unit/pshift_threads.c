// proves: any thread may call pshift_scheduler_stats while the owner serves: no race, no torn value, counters only grow
// flags: -pthread
// variants: native tsan
#include "pshift.h"
#include "check.h"
#include <pthread.h>

enum { QUEUES = 3, READERS = 2 };
static struct pshift_scheduler scheduler;
static uint64_t done; /* through __atomic_ only */

struct reader {
    uint64_t reads, wrong;
};

static void *read_stats(void *arg)
{
    struct reader *me = (struct reader *)arg;
    struct qos_stats last[QUEUES + 1], s;
    memset(last, 0, sizeof last);
    do {
        uint32_t k;
        for (k = 0; k <= QUEUES; k++) {
            me->wrong += pshift_scheduler_stats(&scheduler, k < QUEUES ? k : QOS_NONE, &s) != QOS_OK;
            me->wrong += s.granted < last[k].granted || s.borrowed < last[k].borrowed || s.debt > 8 * QUEUES;
            me->wrong += s.refused < last[k].refused || s.waited < last[k].waited;
            last[k] = s;
        }
        me->wrong += pshift_scheduler_stats(&scheduler, QUEUES, &s) != QOS_ENOENT;
        me->reads++;
    } while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE));
    return NULL;
}

int main(void)
{
    struct pshift_scheduler_config config = {QUEUES, 8};
    struct reader reader[READERS];
    pthread_t thread[READERS];
    struct qos_stats all;
    struct check_mem m;
    uint64_t i, steps, served = 0;
    unsigned k;
    check_begin("unit/pshift_threads");
    steps = check_scaled(400000);
    check_mem_new(&m, pshift_scheduler_memsize(&config), 64, 0);
    CHECK_EQ(pshift_scheduler_init(&scheduler, m.mem, m.size, &config), QOS_OK);
    memset(reader, 0, sizeof reader);
    for (k = 0; k < READERS; k++)
        CHECK_EQ(pthread_create(&thread[k], NULL, read_stats, &reader[k]), 0);
    for (i = 0; i < steps; i++) {
        const uint32_t queue = (uint32_t)(i % QUEUES);
        struct pshift_pick pick;
        if (i % 64 == 0)
            for (k = 0; k < QUEUES; k++)
                CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, k, 8, 8 * k), QOS_OK);
        CHECK_EQ(pshift_scheduler_arrive(&scheduler, queue, 1), QOS_OK);
        served += pshift_scheduler_pick(&scheduler, i, &pick) == QOS_OK;
        if (i % 16 == 0) {
            CHECK_EQ(pshift_scheduler_arrive(&scheduler, queue, 1), QOS_OK);
            served += pshift_scheduler_force(&scheduler, i, queue) == QOS_OK;
        }
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (k = 0; k < READERS; k++) {
        CHECK_EQ(pthread_join(thread[k], NULL), 0);
        CHECK_EQ(reader[k].wrong, 0);
        CHECK_GE(reader[k].reads, 1);
    }
    CHECK_EQ(pshift_scheduler_stats(&scheduler, QOS_NONE, &all), QOS_OK);
    CHECK_EQ(all.granted, served);
    CHECK_GE(served, steps / 4);
    CHECK(check_mem_free(&m));
    return check_end();
}
