// proves: any thread may call htb_stats while the owner takes, queues, reserves and releases: no race, no torn value,
// and counters only grow while a class is reserved
// variants: native tsan
// flags: -pthread
#include "htb_world.h"
#include <pthread.h>

static struct world w;
static uint64_t done; /* through __atomic_ only */

struct reader {
    uint64_t reads, wrong;
};

static void *read_stats(void *arg)
{
    struct reader *me = (struct reader *)arg;
    struct qos_stats last[3], s;
    memset(last, 0, sizeof last);
    do {
        uint32_t id;
        for (id = 0; id < 3; id++) { /* class 3 is released and reserved again; 8 is not an id */
            htb_stats(&w.tree, id, &s);
            me->wrong += s.granted < last[id].granted || s.borrowed < last[id].borrowed;
            me->wrong += s.refused < last[id].refused || s.waited < last[id].waited || s.granted % 10 != 0;
            me->wrong += s.debt > 301000;
            last[id] = s;
        }
        htb_stats(&w.tree, 3, &s);
        me->wrong += s.granted % 10 != 0;
        htb_stats(&w.tree, 8, &s);
        me->wrong += s.granted != 0;
        me->reads++;
    } while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE));
    return NULL;
}

int main(void)
{
    struct htb_config config = world_config();
    static struct htb_request request[4];
    struct reader reader[2];
    pthread_t thread[2];
    uint64_t i, steps, now = 0, granted = 0;
    unsigned k;
    check_begin("unit/htb_threads");
    steps = check_scaled(400000);
    world_open(&w, &config);
    reserve(&w, 1, 0, 300000, 0, 0);
    reserve(&w, 2, 0, 200000, 400000, 0);
    memset(reader, 0, sizeof reader);
    for (k = 0; k < 2; k++)
        CHECK_EQ(pthread_create(&thread[k], NULL, read_stats, &reader[k]), 0);
    for (i = 0; i < steps; i++) {
        struct htb_request *r = &request[i % 4];
        now += 13000;
        granted += htb_take(&w.tree, now, (uint32_t)(i % 3), 10) == QOS_OK;
        if (i % 1000 == 0)
            granted += force(&w, 1, 1000, 0, now) == QOS_OK;
        if (i % 64 == 0) {
            reserve(&w, 3, 0, 1000, 0, now);
            granted += htb_take(&w.tree, now, 3, 10) == QOS_OK;
        }
        if (i % 64 == 32)
            CHECK_EQ(htb_release(&w.tree, now, 3), QOS_OK);
        if (r->state == HTB_IDLE) {
            r->class_id = (uint32_t)(i % 4);
            r->tokens[0] = 10;
            r->offset = i;
            CHECK_EQ(htb_submit(&w.tree, now, r), QOS_OK);
        }
        while ((r = htb_dispatch(&w.tree, now)) != NULL)
            CHECK_EQ(htb_complete(&w.tree, now, HTB_DONE, NULL, r), QOS_OK);
        (void)htb_maximize(&w.tree, now, false);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (k = 0; k < 2; k++) {
        CHECK_EQ(pthread_join(thread[k], NULL), 0);
        CHECK_EQ(reader[k].wrong, 0);
        CHECK_GE(reader[k].reads, 1);
    }
    CHECK_GE(granted, steps / 4); /* the others get queued requests: a take does not overtake those */
    world_close(&w);
    return check_end();
}
