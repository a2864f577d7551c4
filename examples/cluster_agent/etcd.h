/* etcd.h - keys of etcd by its JSON gateway (/v3/kv, /v3/watch), by libcurl. No call waits for the network.
 *
 * All keys are below a prefix; the calls name them without it. One thread uses it.
 */
#ifndef CLUSTER_AGENT_ETCD_H
#define CLUSTER_AGENT_ETCD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_REQUEST_MS 2000
#define ETCD_BODY_BYTES_MAX (4u << 20) /* a longer reply is an error */

struct etcd_config {
    const char *endpoints;  /* "http://10.0.0.1:2379,http://10.0.0.2:2379" */
    const char *prefix;     /* "qos/" */
    const char *login;      /* NULL: no user; a file with one line, NAME:PASSWORD */
    const char *ca;         /* NULL: the system's; a file of certificates that https: endpoints are checked by */
    const char *cert, *key; /* NULL: none; files for endpoints that ask for a client's certificate */
};

struct etcd_pair {
    char *key, *value;
    uint64_t revision; /* of the key's last change */
};
struct etcd_reply {
    const char *error;      /* NULL: etcd has answered. Otherwise the outcome is not known: read the key */
    bool succeeded;         /* of a swap. If not, what the key holds follows */
    uint64_t store;         /* revision of the store; after a swap that succeeded, of the key */
    struct etcd_pair *pair; /* what was found, by key */
    size_t pairs;
};
/* Called from etcd_step. The reply is valid until it returns. */
typedef void (*etcd_done)(const struct etcd_reply *reply);

void etcd_open(const struct etcd_config *config);
/* Sends, receives, calls back. Call it every few milliseconds. */
void etcd_step(void);
void etcd_read(const char *key, etcd_done done);       /* linearizable, like all reads */
void etcd_read_all(const char *begin, etcd_done done); /* all keys that begin so */
void etcd_put(const char *key, const char *value, etcd_done done);
/* Puts the value if the key's last change is this revision (0: it does not exist). */
void etcd_swap(const char *key, uint64_t revision, const char *value, etcd_done done);
/* Calls once: when a key that begins so has changed since this revision of the store, or when the watch has ended, for any
 * reason. Then read all again, and watch from there. */
void etcd_watch(const char *begin, uint64_t after, void (*changed)(void));

/* reply.c: a reply in JSON. false: it is none; reply->error says so, or has etcd's words. */
bool etcd_parse(const char *text, size_t prefix_bytes, struct etcd_reply *reply);
void etcd_forget(struct etcd_reply *reply);
/* The token in the reply to a login; NULL: there is none. The caller frees it. */
char *etcd_token(const char *text);

#endif
