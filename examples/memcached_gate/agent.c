// A gate as a node of a cluster: its buckets are the tenants of these names. Contracts are in etcd; bucket k has queue k.
#include "../cluster_agent/agent.h"
#include "gate.h"

#define LOOK_NS 1000000 /* between checks for messages, as cluster_agent */

struct gate_cluster gate_cluster;

static struct {
    struct pshift_scheduler scheduler;
    pthread_t thread;
} a;

static void lock(void)
{
    pthread_mutex_lock(&buckets_lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&buckets_lock);
}

static bool waits(uint32_t queue)
{
    return bucket_waiting(queue) != 0;
}

static void *serve(void *arg)
{
    (void)arg;
    while (!gate_ended()) { /* while the gate drains, too: what waits needs tokens */
        const uint64_t now_ns = tool_now_ns();
        (void)agent_step(now_ns);
        tool_sleep_until_ns(now_ns + LOOK_NS);
    }
    return NULL;
}

void gate_agent_open(void)
{
    const struct pshift_scheduler_config sc = {.queues = bucket_count};
    const struct agent_config config = {.options = gate_cluster.options,
                                        .scheduler = &a.scheduler,
                                        .tenants_max = bucket_count,
                                        .lock = lock,
                                        .unlock = unlock,
                                        .waits = waits,
                                        .up = gate_backend_up,
                                        .granted = workers_wake};
    uint32_t k;
    if (pshift_scheduler_init(&a.scheduler, tool_alloc_aligned(pshift_scheduler_memsize(&sc), 64),
                              pshift_scheduler_memsize(&sc), &sc) != QOS_OK)
        tool_die(TOOL_FAILED, "the scheduler cannot be opened");
    agent_open(&config);
    for (k = 0; k < bucket_count; k++)
        if (agent_tenant(bucket_spec[k].name) != k)
            tool_die(TOOL_USAGE, "bucket %s: its name is not the only one", bucket_spec[k].name);
    buckets_pshift = &a.scheduler;
}

void gate_agent_serve(void)
{
    if (pthread_create(&a.thread, NULL, serve, NULL) != 0)
        tool_die(TOOL_FAILED, "a thread cannot be started");
}

void gate_agent_end(void)
{
    pthread_join(a.thread, NULL);
}
