/* agent.h - a gate as a node of a cluster, by examples/cluster_agent. */
#ifndef MEMCACHED_GATE_AGENT_H
#define MEMCACHED_GATE_AGENT_H

#include "../cluster_agent/table.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct gate_cluster {
    struct cluster_options options; /* endpoints: NULL: a gate without a cluster */
    uint64_t capacity; /* without a cluster: requests per second that memcached sustains, for admission; 0: unknown */
};
extern struct gate_cluster gate_cluster;

/* The scheduler of the buckets, whose names are tenants in etcd. */
void gate_agent_open(void);
void gate_agent_serve(void); /* starts a thread, which ends when the gate is stopped */
void gate_agent_end(void);

/* What agent.c needs from the gate. The lock covers the scheduler. */
extern pthread_mutex_t buckets_lock;
extern struct pshift_scheduler *buckets_pshift;
uint64_t bucket_waiting(uint32_t bucket);
void workers_wake(void); /* after new tokens */
bool gate_backend_up(void);
bool gate_ended(void);

#endif
