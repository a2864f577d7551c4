/* ngx_http_qos.h - shared by the three parts of the module. The manual is in ngx_http_qos_config.c. */
#ifndef NGX_HTTP_QOS_H
#define NGX_HTTP_QOS_H

#include "htb.h"
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#define QOS_KEY_MAX 63     /* bytes of a tenant's key */
#define QOS_WAIT_STEPS 24  /* step 0: did not wait; k: below 2^k us */
#define QOS_STEP_CHUNKS 16 /* most chunks that go at once */

extern ngx_module_t ngx_http_qos_module;

/* A request takes tokens for its start and its body on one side, for its response on the other. */
struct qos_side {
    ngx_http_request_t *r;
    struct qos_wait *wait; /* in shared memory while it waits, else NULL */
    size_t credit;         /* bytes that it may move now */
    void (*go)(struct qos_side *side);
};

/* Counters of a tenant, changed by each request: without the lock, and by workers on other cores in other cache lines.
   */
struct qos_count {
    uint64_t requests, takes, bytes[2]; /* of bodies, by enum qos_op: QOS_WRITE what clients send */
} __attribute__((aligned(QOS_CACHE_LINE)));

/* A tenant, in shared memory, under the lock. Its number is its id in the tree; tenant 0 is all tenants without a
 * line. */
struct qos_tenant {
    uint64_t wait[QOS_WAIT_STEPS]; /* takes that waited, by how long */
    struct htb_class terms;
    uint64_t rejected, waited_ns, waits_since_ns; /* time with requests waiting, up to the last begin; that begin */
    uint32_t waiting;                             /* requests that wait */
    uint32_t key_len;                             /* 0: a free place, except for tenant 0 */
    u_char key[QOS_KEY_MAX];
};

/* A zone as one process knows it. */
struct qos_zone {
    /* settings */
    ngx_shm_zone_t *shm_zone;
    struct htb_config config;
    struct htb probe;        /* reservations are tried here, line by line */
    size_t chunk;            /* most bytes that a request waits for at once */
    size_t request_cost;     /* cost of each request, besides its bytes */
    ngx_array_t lines;       /* struct qos_line, for tenants 1.. */
    struct htb_class others; /* terms of tenant 0 */
    bool others_set;
    /* at work */
    struct qos_shared *shared;
    ngx_slab_pool_t *pool;
    ngx_rbtree_t ids; /* struct qos_line by key */
    ngx_rbtree_node_t sentinel;
    ngx_event_t timer;
    ngx_uint_t waiting; /* sides of this process that wait */
    ngx_uint_t workers;
    uint64_t *ahead, ahead_all; /* of each tenant, and of all: tokens that this process has taken and not used */
};

struct qos_line {
    ngx_str_node_t node; /* first; its str is the key */
    struct htb_class terms;
    uint32_t id;
};

struct qos_main_conf {
    ngx_array_t zones; /* struct qos_zone * */
};

struct qos_loc_conf {
    struct qos_zone *zone;         /* NULL: off; NGX_CONF_UNSET_PTR: not set */
    ngx_int_t variable;            /* the key, if that is one variable */
    ngx_http_complex_value_t *key; /* otherwise this */
    ngx_uint_t reject;
};

/* What the status page shows of a tenant. */
struct qos_report {
    struct qos_tenant tenant; /* its wait[0]: takes that did not wait */
    struct qos_count count;
    struct qos_stats stats;
};

/* The same for the zone. */
struct qos_totals {
    struct htb_state state;
    uint64_t at_ns, rebuilt, abandoned;
};

/* ngx_http_qos_zone.c: the tree in shared memory. */
size_t qos_zone_least_size(const struct htb_config *config);
ngx_int_t qos_zone_init(ngx_shm_zone_t *shm_zone, void *old);
bool qos_zone_same_structure(const struct qos_zone *a, const struct qos_zone *b);
void qos_zone_attach(struct qos_zone *zone, ngx_log_t *log); /* a process begins */
uint32_t qos_zone_id(struct qos_zone *zone, ngx_str_t *key);
/* NGX_OK: taken, all or a part. NGX_AGAIN: side->go is called when it is. Both raise side->credit. NGX_ERROR: the zone is
 * full. */
ngx_int_t qos_zone_take(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens, struct qos_side *side);
/* A side that goes away: it waits no more. */
void qos_zone_leave(struct qos_zone *zone, struct qos_side *side);
/* A request begins. Returns 0, or, if it may be rejected, the ns until its tenant can send a chunk again. */
uint64_t qos_zone_begin(struct qos_zone *zone, uint32_t id, bool reject);
/* Tenant number id; false: there is none. */
bool qos_zone_report(struct qos_zone *zone, uint32_t id, struct qos_report *report);
void qos_zone_totals(struct qos_zone *zone, struct qos_totals *totals);

/* ngx_http_qos_filter.c: requests. */
ngx_int_t qos_filter_install(ngx_conf_t *cf);

#endif
