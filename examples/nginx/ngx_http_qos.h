/* ngx_http_qos.h - shared by the parts of the module. The manual is in ngx_http_qos_config.c. */
#ifndef NGX_HTTP_QOS_H
#define NGX_HTTP_QOS_H

/* first: it chooses what the system's headers declare */
#include <ngx_config.h>

#include "htb.h"
#include <ngx_core.h>
#include <ngx_http.h>
#include <pthread.h>

#define QOS_KEY_MAX 63     /* bytes of a tenant's key */
#define QOS_WAIT_STEPS 24  /* step 0: did not wait; k: below 2^k us */
#define QOS_STEP_CHUNKS 16 /* most chunks that go at once */

/* Addresses are reserved for this much; memory is used only for what a zone has. */
#define QOS_TENANTS_MAX (sizeof(void *) > 4 ? 65535u : 4095u) /* lines of a zone */
#define QOS_ACCOUNTS_MAX (4 * (QOS_TENANTS_MAX + 1))          /* with those that ended, but are still used */
#define QOS_WAITS_MAX (sizeof(void *) > 4 ? 1048576u : 65536u)

extern ngx_module_t ngx_http_qos_module;

/* A request takes tokens for its start and its body on one side, for its response on the other. */
struct qos_side {
    ngx_http_request_t *r;
    struct qos_wait *wait; /* in shared memory while it waits, else NULL */
    ngx_queue_t held;      /* while it is held */
    size_t credit;         /* bytes that it may move now */
    void (*go)(struct qos_side *side);
};

/* Counters of a tenant, changed by each request: without the lock, and by workers on other cores in other cache lines.
   */
struct qos_count {
    uint64_t requests, takes, bytes[2]; /* of bodies, by enum qos_op: QOS_WRITE what clients send */
} __attribute__((aligned(QOS_CACHE_LINE)));

/* Why a request is refused. */
enum qos_refusal {
    QOS_ACCEPTED,
    QOS_OVER_LIMIT,       /* over=429: it would have to wait */
    QOS_OVER_CONNECTIONS, /* its tenant holds as many connections as it leaves free */
    QOS_OVER_PLACES,      /* no place is left for a waiting request */
    QOS_REFUSALS
};

/* An account, in shared memory: a tenant for as long as a configuration names it, or a worker lives that knows it. Its
 * place is its id in the trees. Only then may another tenant get the place. Account 0 is all tenants without a line. */
struct qos_account {
    /* under the lock of the trees */
    uint64_t wait[QOS_WAIT_STEPS];      /* takes that waited, by how long */
    uint64_t wait_ns;                   /* sum over them */
    uint64_t waited_ns, waits_since_ns; /* time with requests waiting, up to the last begin; that begin */
    uint64_t borrowed;                  /* in the trees before */
    uint32_t waiting;                   /* requests that wait */
    /* under the lock of the plans */
    struct htb_class terms[2]; /* in each plan */
    bool in[2];                /* is it in the plan? */
    uint32_t named;            /* serial of the last configuration that names it */
    uint32_t key_len;          /* 0: a free place, except for account 0 */
    u_char key[QOS_KEY_MAX];
    uint64_t refused[QOS_REFUSALS]; /* without a lock */
};

/* A tenant in a configuration. */
struct qos_line {
    ngx_str_node_t node; /* first; its str is the key */
    struct htb_class terms;
    uint32_t id;
};

/* A zone as one configuration describes it, and as one process knows it. */
struct qos_zone {
    /* settings */
    ngx_str_t name;
    struct htb_config config;
    struct htb probe;    /* reservations are tried here, line by line */
    size_t chunk;        /* most bytes that a request waits for at once */
    size_t request_cost; /* cost of each request, besides its bytes */
    uint32_t places;     /* for waiting requests */
    ngx_array_t lines;   /* struct qos_line * */
    ngx_rbtree_t ids;    /* the same by key */
    ngx_rbtree_node_t sentinel;
    struct htb_class others; /* terms of account 0 */
    bool others_set;
    ngx_str_t cluster_path; /* tokens.h; empty: no cluster */
    /* at work */
    uint32_t serial; /* of the configuration, for this zone; 0: nginx has not committed it */
    struct qos_shared *shared;
    ngx_event_t timer;
    ngx_uint_t waiting;     /* sides of this process that wait */
    ngx_queue_t held_sides; /* those of them that have no tokens of the cluster, in their order */
    struct qos_cluster *cluster;
    ngx_uint_t workers;
    uint64_t *ahead, ahead_all; /* of each account, and of all: tokens that this process has taken and not used */
    uint32_t *held;             /* of each account: requests of this process */
    time_t logged;              /* when a refusal was last logged */
    uint64_t unlogged;
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
    struct qos_account account; /* its wait[0]: takes that did not wait */
    struct htb_class terms;
    struct qos_count count;
};

/* The same for the zone. */
struct qos_totals {
    struct htb_state state;
    uint64_t at_ns, rebuilt, abandoned;
};

/* ngx_http_qos_zone.c: the accounts and trees in shared memory. */
size_t qos_zone_least_size(const struct htb_config *config);
/* The configuration is read: finds or makes the shared memory. Nothing changes in it. */
ngx_int_t qos_zone_open(ngx_conf_t *cf, struct qos_zone *zone, size_t size);
void qos_zone_commit(struct qos_zone *zone);                      /* in the master, when nginx has committed it */
ngx_int_t qos_zone_attach(struct qos_zone *zone, ngx_log_t *log); /* a process begins; the first one makes the tree */
void qos_zone_detach(struct qos_zone *zone);                      /* it ends */
struct qos_line *qos_zone_line(struct qos_zone *zone, const ngx_str_t *key); /* or NULL */
uint32_t qos_zone_id(struct qos_zone *zone, const ngx_str_t *key);
/* NGX_OK: taken, all or a part. NGX_AGAIN: side->go is called when it is. Both raise side->credit. NGX_ERROR: no place is
 * left. */
ngx_int_t qos_zone_take(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens, struct qos_side *side);
/* The same for what the cluster asks of a request before it begins. If it would have to wait, with `reject`: NGX_DECLINED,
 * and *wait_ns is the time until there may be tokens. */
ngx_int_t qos_zone_admit(struct qos_zone *zone, uint32_t id, bool reject, struct qos_side *side, uint64_t *wait_ns);
/* A side that goes away: it waits no more. */
void qos_zone_leave(struct qos_zone *zone, struct qos_side *side);
/* A request begins: may it? `reject`: not if it had to wait. If it may not, *wait_ns is the time until its tenant can send
 * a chunk again. Each request that begins ends. */
enum qos_refusal qos_zone_begin(struct qos_zone *zone, uint32_t id, bool reject, uint64_t *wait_ns);
void qos_zone_end(struct qos_zone *zone, uint32_t id, bool accepted);
uint32_t qos_zone_accounts(struct qos_zone *zone); /* their ids are below this */
/* Account id; false: there is none. */
bool qos_zone_report(struct qos_zone *zone, uint32_t id, struct qos_report *report);
void qos_zone_totals(struct qos_zone *zone, struct qos_totals *totals);

/* Held sides that have tokens now go on. */
void qos_zone_release(struct qos_zone *zone);
/* Is this the first process that tells of this grant? */
bool qos_zone_is_first(struct qos_zone *zone, uint64_t grant);
uint64_t qos_zone_reserved(struct qos_zone *zone, uint32_t id);            /* bytes per second */
void qos_zone_reserve(struct qos_zone *zone, uint32_t id, uint64_t per_s); /* or what fits */
uint64_t qos_zone_request_bytes(struct qos_zone *zone, uint32_t id);       /* mean of a request */

/* ngx_http_qos_cluster.c: tokens of a cluster. Without one, and for account 0, all is paid. */
ngx_int_t qos_cluster_attach(struct qos_zone *zone, ngx_log_t *log, uint32_t accounts);
/* May a request begin? If its token is a request, it is paid. `only_look`: a request whose tokens are blocks may not begin
 * if it would have to wait. */
bool qos_cluster_admits(struct qos_zone *zone, uint32_t id, bool only_look);
/* Pays for bytes: how many may move, 0: none now. */
size_t qos_cluster_pay(struct qos_zone *zone, uint32_t id, size_t bytes);
void qos_cluster_back(struct qos_zone *zone, uint32_t id, size_t bytes); /* paid a moment ago, and not used */
/* The period that bytes are paid in; 0: they stay paid. Do they still count? */
uint64_t qos_cluster_period(struct qos_zone *zone, uint32_t id);
bool qos_cluster_valid(struct qos_zone *zone, uint32_t id, uint64_t period);
uint64_t qos_cluster_wait_ns(struct qos_zone *zone, uint32_t id); /* until there may be tokens; 0: there are some */
void qos_cluster_look_soon(struct qos_zone *zone);                /* a side is held */

/* ngx_http_qos_filter.c: requests. */
ngx_int_t qos_filter_install(ngx_conf_t *cf);

#endif
