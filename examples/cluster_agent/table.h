/* table.h - what a cluster is, as etcd has it: contracts, servers, controllers. Plain text under qos/:
 *
 *     qos/config/period            1s
 *     qos/config/tenant/NAME       reserve=2000,limit=3000               requests per second, over all servers
 *                                  reserve=20M,limit=30M,token=64k       bytes per second; a token is a block of 64 KiB
 *     qos/config/server/NAME       number=1,capacity=5000,key=PUBLIC     tokens per second that it can serve
 *     qos/config/controller/NAME   address=10.0.0.1:7000,key=PUBLIC
 *     qos/owner                    who owns the period (pshift_cluster/owner.c)
 *     qos/status/tenant/NAME       what is in force, or why a contract is refused; written by the owner
 *     qos/status/...               the same for servers, controllers, the period and the owner
 *
 * A server's number is from 1 and no other server's. Everything is read again when etcd tells of a change, and every 10 s.
 */
#ifndef CLUSTER_AGENT_TABLE_H
#define CLUSTER_AGENT_TABLE_H

#include "etcd.h"
#include "links.h"
#include "pshift.h"

#define CLUSTER_NAME 64
#define CLUSTER_TEXT 200
#define CLUSTER_TENANTS_MAX 4096
#define CLUSTER_SERVERS_MAX 1024
#define CLUSTER_INTERVALS 5 /* of a period */

/* A contract per period, in tokens. */
struct cluster_contract {
    uint64_t reservation, limit; /* limit: QOS_UNLIMITED for none */
    uint64_t reserve_per_s;      /* tokens; for admission */
    uint64_t token_bytes;        /* of a block; 0: a token is a request */
};
struct cluster_tenant {
    char name[CLUSTER_NAME];
    uint64_t id;                                   /* in messages: a hash of the name */
    char text[CLUSTER_TEXT], status[CLUSTER_TEXT]; /* "": no such key */
    uint64_t revision;                             /* of the text */
};
struct cluster_member { /* a server or a controller */
    char name[CLUSTER_NAME], address[LINKS_ADDRESS], key[LINKS_KEY];
    uint32_t number;
    uint64_t capacity_per_s;
    char wrong[CLUSTER_TEXT], status[CLUSTER_TEXT]; /* wrong: "" or why it is none */
};
struct cluster_table {
    uint64_t period_ns;                                             /* 0: not known yet */
    char period[24], period_asked[24], period_status[CLUSTER_TEXT]; /* the first that was read; the one that is there */
    struct cluster_tenant tenant[CLUSTER_TENANTS_MAX];              /* by name */
    struct cluster_member server[CLUSTER_SERVERS_MAX], controller[LINKS_CONTROLLERS_MAX];
    uint32_t tenants, servers, controllers;
};
extern struct cluster_table cluster; /* what was read last */

/* How a process finds its cluster. */
struct cluster_options {
    const char *endpoints, *name, *keys, *login, *ca, *cert, *key;
};
#define CLUSTER_OPTIONS(o)                                                                                             \
    {                                                                                                                  \
        "cluster", OPT_TEXT, &(o).endpoints, "LIST", "etcd's addresses, http://HOST:PORT,...; contracts are there",    \
        NULL},                                                                                                         \
        {"name", OPT_TEXT, &(o).name, "NAME", "with --cluster: this process's, as in etcd", NULL},                     \
        {"etcd-login", OPT_TEXT, &(o).login, "FILE", "with one line NAME:PASSWORD, a user of etcd", NULL},             \
        {"etcd-ca", OPT_TEXT, &(o).ca, "FILE", "certificates by which https addresses are checked", NULL},             \
        {"etcd-cert", OPT_TEXT, &(o).cert, "FILE", "a certificate that etcd asks for", NULL},                          \
    {                                                                                                                  \
        "etcd-key", OPT_TEXT, &(o).key, "FILE", "and its key", NULL                                                    \
    }

void cluster_open(const struct cluster_options *options);
/* Speaks with etcd. true: the table may have changed. Call it every few milliseconds. */
bool cluster_step(uint64_t now_ns);
bool cluster_is_name(const char *name);
uint64_t cluster_id(const char *name);
/* NULL: `out` is the contract; otherwise why the text is none. */
const char *cluster_contract(const char *text, uint64_t period_ns, struct cluster_contract *out);
/* The contract in force, as the status says; false: none is. text may be NULL. */
bool cluster_in_force(const char *status, uint64_t period_ns, struct cluster_contract *out, char text[CLUSTER_TEXT]);
const struct cluster_member *cluster_find(const struct cluster_member *list, uint32_t count, const char *name);

struct qos_u128 cluster_nonce(void); /* random, not 0 */

#endif
