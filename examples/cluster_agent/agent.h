/* agent.h - a server as a node of a cluster: reports the demand for its tenants to every controller and installs the tokens that
 * are granted. Everything else is in etcd. A node without a grant has no tokens.
 *
 * The server has the scheduler. agent_step may run in a thread of its own; it takes the lock around the scheduler.
 */
#ifndef CLUSTER_AGENT_AGENT_H
#define CLUSTER_AGENT_AGENT_H

#include "table.h"

struct agent_config {
    struct cluster_options options;
    struct pshift_scheduler *scheduler; /* initialised */
    uint32_t tenants_max;               /* its queues */
    void (*lock)(void);
    void (*unlock)(void);
    bool (*waits)(uint32_t queue); /* do requests wait? Their arrivals only follow their service; under the lock */
    bool (*up)(void);              /* can the server serve anything now? */
    /* Tokens are about to be reported, or (changes) to be replaced: `granted` follows. Under the lock; may be NULL. */
    void (*before)(bool changes);
    void (*granted)(void); /* tokens have changed, or have ended; not under the lock */
};

void agent_open(const struct agent_config *config);
/* The tenant's queue: 0 for the first call, 1 for the second ..., and the same for the same name. Call it before tokens are
 * needed, at any time; under the lock once agent_step runs. QOS_NONE: all are in use. */
uint32_t agent_tenant(const char *name);
void agent_forget(const char *name); /* it was removed from the server */
/* Call it every millisecond. true: the table of etcd may have changed. */
bool agent_step(uint64_t now_ns);
/* The period, and when its tokens are void. All 0 before the first one. Under the lock. */
struct pshift_agent_state agent_state(void);

#endif
