/* cluster.h - shared by the parts of pshift_cluster.
 *
 *     main.c        options; rank 0 becomes the controller, every other rank a storage node
 *     scene.c       the paper's Experiments 3, 4, 5 and free form: contracts, demand; the certificate
 *     mail.c        transport: MPI messages without spinning
 *     zmq.c         transport: the links of cluster_agent, between processes that come and go
 *     service.c     `pshift_cluster controller`: the controller as a separate process, active or standing by
 *     controller.c  rounds: reports in, tokens out; starts scenes and gathers the nodes' logs
 *     node.c        a storage node: pacing, load, token scheduler, agent, log
 *     owner.c       who owns a period: a key in a file, or in etcd
 *     contracts.c   the contracts that etcd has: which are in force, and which are refused
 *     memcached.c   backend: the node's own daemon, and the worker threads that talk to it
 *     file.c        backend: random reads of a file through io_uring
 *     judge.c       checks the promises on the logs
 *     report.c      tables, JSON
 *     figures.c     the paper's Figures 8, 9 and 10
 *
 * Times in logs are microseconds since the node began the scene, by its own clock: clocks of different hosts are never
 * compared.
 */
#ifndef PSHIFT_CLUSTER_H
#define PSHIFT_CLUSTER_H

#include "common.h"
#include "pshift.h"
#include "../cluster_agent/table.h"

#define NODES_MAX 1024
#define BUCKETS_MAX 4096
#define FAULTS_MAX 16
#define SPECS_MAX 64
#define ACTIVE_MIN 2u /* nodes on which a bucket is active at least */

/* ---- settings ------------------------------------------------------------------------------------------ */

enum fault_kind { FAULT_KILL, FAULT_STOP };
struct fault {
    enum fault_kind kind;
    uint32_t node;          /* from 0 */
    uint64_t at_ns, for_ns; /* since the start of the first judged period; how long it is stopped */
};

/* A bucket of free form. */
struct spec {
    double reserve, limit; /* of a node's capacity; limit < 0: none */
    char on[128];          /* "1,3-5", "" for random nodes */
};

enum backend_kind { BACKEND_AUTO, BACKEND_MEMCACHED, BACKEND_FILE };
enum qos_mode { QOS_BOTH, QOS_WITH, QOS_WITHOUT };

struct settings {
    uint32_t nodes; /* ranks - 1 */
    const char *experiment;
    int backend, mode, load;
    uint64_t capacity, buckets, periods, intervals, period_ns, changes, active_max, window, seed;
    double reserve, limit, lead;
    bool profile, live;
    double headroom;
    uint64_t profile_ns;
    const char *memcached, *dir, *json, *figures;
    uint64_t port, objects, workers, size_bytes;
    struct fault fault[FAULTS_MAX];
    uint32_t faults;
    struct spec spec[SPECS_MAX];
    uint32_t specs;
    /* processes without MPI */
    uint64_t node_count, number;
    const char *controllers, *keys, *owner, *journal;
    struct cluster_options cluster; /* endpoints NULL: all is on the command line */
};
extern struct settings settings;

#define CONTROLLERS_MAX 8

/* ---- scene.c ---------------------------------------------------------------------------------------------- */

/* From at_ns on, the bucket sends rate[node] requests per period (open) or keeps as many outstanding (closed). */
struct phase {
    uint64_t at_ns; /* since the start of the first judged period */
    uint32_t bucket;
    uint32_t next;  /* phase of the same bucket, NO_PHASE after the last */
    uint32_t *rate; /* [nodes] */
};
#define NO_PHASE UINT32_MAX

struct scene {
    const char *key, *title;
    int experiment; /* 3, 4, 5; 0: free form */
    uint32_t nodes, buckets, intervals, periods;
    uint64_t capacity, period_ns; /* capacity: requests per second, of each node */
    bool qos, open, unlimited;    /* unlimited: no bucket has a limit */
    enum backend_kind backend;
    uint64_t *reservation, *limit; /* [buckets] requests per period */
    uint64_t seed;
    struct phase *phase; /* ascending in time; those at 0 come first */
    uint32_t phases;
    uint32_t *first; /* [buckets] the bucket's phase at 0 */
};

uint32_t scene_count(void);
/* Everything about scene `index`; the same on every rank for the same arguments. capacity 0: the backend's default. */
void scene_make(struct scene *s, uint32_t index, uint64_t seed, uint64_t capacity);
void scene_free(struct scene *s);
bool scene_names(const char *list, uint32_t node); /* "1,3-5": node 0, 2, 3 or 4? */
uint64_t scene_capacity(const struct scene *s);    /* requests of one node in one period */
/* The certificate: can a controller meet every period's reservations if it learns of a change at the start of the next
 * interval? Returns the shortfall over all periods, in requests, proved by a cut. */
uint64_t scene_shortfall(const struct scene *s);
/* Sets sure[bucket] if its reservation in `period` (from 0) can be met while node `down` serves nothing. UINT32_MAX:
 * all nodes serve. */
void scene_sure(const struct scene *s, uint32_t period, uint32_t down, bool *sure);
/* The first seed, from `seed` on, with a feasible schedule; *skipped: how many were not. */
uint64_t scene_feasible_seed(uint32_t index, uint64_t seed, uint64_t capacity, uint32_t *skipped);

/* ---- mail.c ------------------------------------------------------------------------------------------------- */

enum mail_tag {
    MAIL_BACKEND = 1,         /* to a node: start this backend (words: kind) */
    MAIL_READY,               /* from a node: words: 1 */
    MAIL_TROUBLE,             /* from a node: bytes: the error */
    MAIL_NOTE,                /* from a node: bytes: a remark for the user */
    MAIL_PROFILE,             /* words: ns; answered with MAIL_RATE */
    MAIL_RATE,                /* words: requests per second */
    MAIL_SCENE,               /* words: index, seed, capacity */
    MAIL_BEGIN,               /* words: period */
    MAIL_GRANT = LINKS_GRANT, /* bytes: a grant */
    MAIL_GRANT_ASK,           /* bytes: a grant; the node reports again at once */
    MAIL_END,                 /* of the scene */
    MAIL_PICKS,               /* words: struct log_pick */
    MAIL_INSTALLS,            /* words: struct log_install */
    MAIL_PERIODS,             /* words: struct log_period */
    MAIL_QUIT,
    MAIL_REPORT = LINKS_REPORT /* + 2 * round, + 1 for an answer to MAIL_GRANT_ASK. bytes: a report */
};

struct mail {
    int rank, tag;
    size_t bytes;
    const void *data; /* until the next mail_take */
};
/* A transport carries whole messages; it may lose, delay and repeat them. */
struct transport {
    void (*send)(int rank, int tag, const void *data, size_t bytes); /* copies; does not wait */
    bool (*take)(struct mail *m);                                    /* false: nothing has arrived */
    void (*flush)(void);                                             /* waits until everything sent has left */
};
extern const struct transport *transport;
void mail_open(int *argc, char ***argv); /* MPI */
int mail_rank(void);
int mail_ranks(void);
/* Words travel as MPI_UINT64_T, so hosts may differ in byte order. */
static inline void mail_send(int rank, int tag, const void *data, size_t bytes)
{
    transport->send(rank, tag, data, bytes);
}
static inline void mail_words(int rank, int tag, const uint64_t *word, size_t words)
{
    transport->send(rank, tag, word, words * 8);
}
static inline bool mail_take(struct mail *m)
{
    return transport->take(m);
}
static inline void mail_flush(void)
{
    transport->flush();
}

/* ---- zmq.c -------------------------------------------------------------------------------------------------- */

/* Ranks here: a node sends to controllers 0, 1 ...; a controller sends to nodes 1, 2 ... and identifies a sender by its
 * key. Each direction of a link holds at most LINK_MESSAGES; then the oldest is dropped. */
void zmq_open_node(void);
void zmq_open_controller(void);
/* `pshift_cluster keys`: writes a pair of keys for each controller and each node to --keys. */
int zmq_make_keys(void);

/* ---- backends ----------------------------------------------------------------------------------------------- */

struct request {
    struct request *next;
    uint64_t object;
    uint32_t bucket, pick; /* pick: index in the log */
    bool set;
    bool failed; /* not done; may be sent again */
    bool wrong;  /* done, but the data is not the stored data */
    void *buffer;
};

struct backend {
    const char *name;
    uint64_t capacity; /* default: requests per second */
    uint32_t depth;    /* most requests in flight */
    /* false: `why` tells the user what to do. May take seconds. */
    bool (*start)(uint32_t node, char *why, size_t size);
    void (*submit)(struct request *list);
    struct request *(*collect)(void); /* completed requests, or NULL */
    void (*poll)(uint64_t now_ns);    /* upkeep, a few microseconds */
    bool (*ready)(void);
    void (*fault)(const struct fault *f, uint64_t now_ns);
    uint64_t (*cpu_ns)(void); /* of the backend's other processes */
    void (*stop)(void);
    bool keyed; /* --objects objects, chosen by Zipf's law; else the blocks of --size */
};
extern const struct backend backend_memcached, backend_file;
const struct backend *backend_of(enum backend_kind kind);
uint64_t backend_objects(const struct backend *b);

/* ---- contracts.c, owner.c ----------------------------------------------------------------------------------------- */

/* The contracts of etcd's table to the controller, before a period begins, and what is in force or refused to qos/status/. */
void contracts_apply(struct pshift_controller *controller);
bool contracts_have(uint64_t bucket); /* a tenant, or one that was removed a moment ago */
void contracts_status(const char *key, const char *text);
void owner_open(const char *where, uint64_t period_ns);
void owner_step(uint64_t now_ns);
bool owner_holds(uint64_t now_ns, uint64_t *period, uint64_t *start_ns);
struct qos_u128 owner_own_nonce(void);
/* This server has heard of a period above the one that is owned: the key was removed, or an old one was put back. */
void owner_behind(uint32_t server, uint64_t heard);

/* ---- node.c -------------------------------------------------------------------------------------------------- */

/* The scheduler's log. at: time of the pick; done: time of completion, 0 for never. */
struct log_pick {
    uint64_t at_us, done_us, bucket, period;
    uint64_t reserved; /* 1: an R-token was consumed; 0: an L-token */
    uint64_t ended;    /* 1: the period of the node's grants was over: tokens of a bucket without limit, renewed */
};
#define LOG_PICK_WORDS 6
struct log_install {
    uint64_t period, bucket, r_total, total, served, r_held, l_held; /* held: before it was installed */
    uint64_t stale;                                                  /* 1: came too late, was not installed */
    uint64_t ends_us;                                                /* the grant's tokens are void then */
};
#define LOG_INSTALL_WORDS 9
/* How a node used its paced slots in a period, and the cost. */
struct log_period {
    uint64_t period, begin_us, slots, served, idle, lost, failed, wrong, faulty, cpu_us, backend_cpu_us, reports,
        waited_us, waited_max_us, bytes_up, bytes_down;
};
#define LOG_PERIOD_WORDS 16

void node_main(void);
void node_serve(void); /* `pshift_cluster node` */

/* ---- controller.c ---------------------------------------------------------------------------------------------- */

struct node_log {
    struct log_pick *pick;
    struct log_install *install;
    struct log_period *period;
    size_t picks, installs, periods;
};

struct scene_run {
    struct scene scene;
    struct node_log *node;                           /* [nodes] */
    uint64_t plan_ns, plan_max_ns, busy_ns, wall_ns; /* of the controller: planning; CPU; whole scene */
    uint64_t rounds, asked, missed, bytes, messages; /* missed: late reports */
    uint64_t shortfall;                              /* by the certificate, in requests of all periods */
    uint32_t skipped;                                /* seeds that the certificate refused */
    bool retried, stopped;
};

int controller_main(void); /* exit status */

/* ---- service.c -------------------------------------------------------------------------------------------------- */

void controller_serve(void); /* `pshift_cluster controller` */
/* ---- judge.c --------------------------------------------------------------------------------------------------- */

/* Figures of the judged (bucket, period) pairs; the same figures without QoS, for comparison. */
struct verdict {
    uint64_t *got, *picked; /* [periods * buckets] by the period of the pick: completed, picked */
    bool *eligible;         /* [periods] */
    bool *faulty;           /* [periods] a fault was active on some node */
    double *share;          /* [periods * nodes] served or idle, of the paced slots */
    uint32_t eligible_periods;
    uint64_t judged, met, nearly; /* pairs; with their reservation; with at least `nearly_share` of it */
    double nearly_share;
    uint64_t limited, kept;            /* pairs with a limit; of these, not above it */
    double worst_reserve, worst_limit; /* least got / reservation; most picked / limit */
    double ratio[4];                   /* Experiment 3: of bucket i, with 48 for the sum */
    double done_ms;                    /* Experiment 3: when bucket 4's reservation is met, mean of eligible periods */
    double communication, busy;        /* of a period: report to grant; the controller's CPU */
    double bytes;                      /* of reports and grants per period */
    double cores;                      /* CPU seconds per second, of all ranks and daemons */
    uint64_t p50_us, p99_us, failed, wrong;
    bool hard_ok, soft_ok, inconclusive;
    char text[4096];
};
void judge(const struct scene_run *run, struct verdict *v);
/* When a pick was completed, in microseconds since its period began on its node; UINT64_MAX: never. */
uint64_t done_in_period_us(const struct node_log *l, const struct log_pick *p);
void judge_free(struct verdict *v);

/* ---- report.c --------------------------------------------------------------------------------------------------- */

void report_scene(const struct scene_run *run, const struct verdict *v);
void report_json_begin(void);
void report_json(const struct scene_run *run, const struct verdict *v);
bool report_json_end(int status);

/* ---- figures.c --------------------------------------------------------------------------------------------------- */

/* Writes one scene's figures to --figures. false: the error is on stderr. */
bool figures(const struct scene_run *run, const struct verdict *v);

#endif
