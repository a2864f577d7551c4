/* etcd.h - reads and swaps keys of etcd by its JSON gateway (/v3/kv), by libcurl. No call waits for the network.
 *
 * All keys are below a prefix; the calls name them without it. One thread uses it.
 */
#ifndef CLUSTER_AGENT_ETCD_H
#define CLUSTER_AGENT_ETCD_H

#include <stdbool.h>
#include <stdint.h>

#define ETCD_REQUEST_MS 2000

struct etcd_config {
    const char *endpoints; /* "http://10.0.0.1:2379,http://10.0.0.2:2379" */
    const char *prefix;    /* "qos/" */
};

struct etcd_reply {
    const char *error; /* NULL: etcd has answered. Otherwise the outcome is not known: read the key */
    bool succeeded;    /* of a swap. If not, what the key holds follows */
    uint64_t store;    /* revision of the store; after a swap that succeeded, of the key */
    char *value;       /* NULL: the key does not exist */
    uint64_t revision; /* of the key's last change */
};
/* Called from etcd_step. The reply is valid until it returns. */
typedef void (*etcd_done)(const struct etcd_reply *reply);

void etcd_open(const struct etcd_config *config);
/* Sends, receives, calls back. Call it every few milliseconds. */
void etcd_step(void);
void etcd_read(const char *key, etcd_done done); /* linearizable */
/* Puts the value if the key's last change is this revision (0: it does not exist). */
void etcd_swap(const char *key, uint64_t revision, const char *value, etcd_done done);

#endif
