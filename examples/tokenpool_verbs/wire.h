/* wire.h - the messages of data node and client at connection, and the memory that a client may access.
 *
 * A key is valid for every queue pair of its protection domain. So each client has a domain of its own, with five regions:
 *
 *     region   what                               the client may
 *     pool     the pool word                      change it by RDMA atomics
 *     terms    storage without pool and reports    read
 *     report   its own report                     change it by RDMA atomics
 *     row      its own row of results             write
 *     table    control page and records           read
 */
#ifndef EXAMPLES_TOKENPOOL_WIRE_H
#define EXAMPLES_TOKENPOOL_WIRE_H

#include "examples/tokenpool_common/node.h"
#include <infiniband/verbs.h>

enum { WIRE_POOL, WIRE_TERMS, WIRE_REPORT, WIRE_ROW, WIRE_TABLE, WIRE_REGIONS };

/* A connection request. The data node's connection to itself carries a secret as proof. */
struct wire_request {
    uint64_t secret;
    uint32_t client, version;
};

/* The answer to an accepted client; a refusal is a sentence. */
struct wire_welcome {
    uint64_t address, period_ns, table_bytes;
    uint32_t key[WIRE_REGIONS], clients, batch, flags, version;
};
#define WIRE_VERSION 3u
#define WIRE_REFUSAL_BYTES 100

struct wire_region {
    uint64_t offset, bytes;
    int access;
};

static inline struct wire_region wire_region(const struct node_setup *s, uint32_t client, unsigned region)
{
    const uint64_t reports = tokenpool_storage_report(s->clients, 0);
    switch (region) {
    case WIRE_POOL: return (struct wire_region){TOKENPOOL_OFFSET_POOL, 8, IBV_ACCESS_REMOTE_ATOMIC};
    case WIRE_TERMS:
        return (struct wire_region){TOKENPOOL_OFFSET_PERIOD, reports - TOKENPOOL_OFFSET_PERIOD, IBV_ACCESS_REMOTE_READ};
    case WIRE_REPORT:
        return (struct wire_region){tokenpool_storage_report(s->clients, client), 8, IBV_ACCESS_REMOTE_ATOMIC};
    case WIRE_ROW: return (struct wire_region){node_results(s, client), NODE_RESULTS * 8, IBV_ACCESS_REMOTE_WRITE};
    default: return (struct wire_region){node_control(s), NODE_PAGE + s->table_bytes, IBV_ACCESS_REMOTE_READ};
    }
}

#endif
