/* agent.h - a gate as a node of a pShift cluster: joins gate.h and the cluster.h of pshift_cluster. */
#ifndef MEMCACHED_GATE_AGENT_H
#define MEMCACHED_GATE_AGENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pshift_scheduler;

struct agent_config {
    const char *controllers, *keys; /* controllers: NULL: a gate without a cluster */
    uint64_t nodes, number, period_ns, intervals;
    uint64_t capacity; /* requests per second that memcached sustains; without a cluster, for admission; 0: unknown */
};
extern struct agent_config agent_config;

/* The scheduler of `buckets` queues. limits: some bucket has one, so nothing is served before the first grant. */
void agent_open(uint32_t buckets, bool limits);
void agent_serve(void); /* starts a thread, which ends when the gate is stopped */
void agent_end(void);

/* What agent.c needs from the gate. The lock covers the scheduler. */
extern pthread_mutex_t buckets_lock;
extern struct pshift_scheduler *buckets_pshift;
uint64_t bucket_waiting(uint32_t bucket);
void workers_wake(void); /* after new tokens */
bool gate_backend_up(void);
bool gate_ended(void);

#endif
