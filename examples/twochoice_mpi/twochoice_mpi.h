/* twochoice_mpi.h - how the parts of the tool work together.
 *
 * Ranks 0..servers-1 are object servers, the others compute nodes. A server is two processes:
 *
 *     the rank itself (server.c)     uses MPI, detects load, never blocks: a slow disk does not delay a probe's answer
 *     its I/O process (store.c)      owns the directory: object files through io_uring, the redirect table and its log,
 *                                    the maintainer. Forked before MPI starts. If it dies, the rank goes on and tells
 * all others. The death of a rank would end the whole job
 *
 * Both share memory for data and a socket for small messages. A compute rank (client.c) is the node of `procs`
 * processes: one scheduler places all their writes. link.c is MPI; journal.c records what the crash test expects.
 *
 * Objects are named home << 48 | file << 32 | index, so that every rank knows an object's home.
 */
#ifndef TWOCHOICE_MPI_H
#define TWOCHOICE_MPI_H

#include "common.h"
#include "twochoice.h"
#include "two_choice.h"

#define OBJECT(home, file, index) ((uint64_t)(home) << 48 | (uint64_t)(file) << 32 | (uint64_t)(index))
#define OBJECT_HOME(object) ((uint32_t)((object) >> 48))
#define SERVERS_MAX 1024u  /* ranks: far below what the header allows */
#define SERVER_BUFFERS 16u /* parts that a server takes at once */
#define STORE_BUFFERS 4u   /* the I/O process's: pulls in flight */
#define NO_BUFFER UINT32_MAX

/* ---- messages ------------------------------------------------------------------------------------------- */

/* Requests to a server, by C a client or S a server. The I/O process answers, unless the rank is named. */
enum op {
    OP_NONE,
    OP_WRITE, /* C; object, offset, len, and the data. Answered when durable; at home, when also recorded */
    OP_READ,  /* C, S; the data comes with the answer */
    OP_QUERY, /* C, S; answer: pieces, four words each: offset, end, server, stamp */
    OP_BEGIN, /* C; to the home, before data goes to `server`, or TWOCHOICE_UNBOUND: reserves table space. answer: stamp,
                  the piece's name */
    OP_BIND,  /* C; to the home: data goes to `server`; the write began as TWOCHOICE_UNBOUND */
    OP_CANCEL, /* C; the write of this stamp is cancelled */
    OP_END,    /* C; after a durable write of the piece at `server` */
    OP_DROP,   /* S; the piece is no longer needed */
    OP_REFERS, /* S; to the home: is the piece needed? answer: status */
    OP_HAS,    /* S; is the piece there? answer: status */
    OP_LOAD,   /* S; answer by the rank: len is the load */
    OP_PROBE,  /* C; the paper's rules: len bytes may come. Answer by the rank: len is the load */
    OP_DECIDE, /* C; to each probed server: len bytes come, perhaps 0. No answer */
    OP_SWEEP,  /* C; after a start: drop pieces that no home knows */
    OP_GO,     /* C; all have swept: the maintainers may begin */
    OP_CHECK,  /* C; table, log and data compared; answer: len disagreements */
    OP_LIST,   /* C; answer: the oldest redirects, five words each: object, offset, end, server, version */
    OP_DRAIN,  /* C; from now on pull everything home, idle or not */
    OP_COUNTS, /* C; answer: words of enum count */
    OP_RESET,  /* C; when all are idle: clear everything for the next measurement */
    OP_REST,   /* C; start no background work. status: ST_NO while some is in progress: ask again */
    OP_STOP    /* C; end the job, when all are idle */
};
#define OP_ANSWER 64u /* added to op */

enum status { ST_OK, ST_GONE, ST_FULL, ST_NO_SPACE, ST_IO, ST_DOWN, ST_NO };
const char *status_text(uint64_t status);

#define NOTE_WORDS 192u
#define NOTE_PIECES (NOTE_WORDS / 4)
#define NOTE_HEAD 12u
struct note { /* on the wire: only the 64-bit words in use, so that hosts may differ */
    uint64_t op, id;
    uint64_t write;   /* a client's write part, for the trace */
    uint64_t request; /* of the decision that sent the write */
    uint64_t turn;    /* and of the reservation; 0: none */
    uint64_t object, offset, len;
    uint64_t stamp; /* of the piece; 0: at home */
    uint64_t server, status, words;
    uint64_t word[NOTE_WORDS];
};

enum count {
    COUNT_FRAGMENTS,
    COUNT_PEAK,
    COUNT_VERSION,
    COUNT_LOG_BYTES,
    COUNT_HOME_BYTES, /* written by clients */
    COUNT_AWAY_BYTES, /* written by clients, for other homes */
    COUNT_PULLED_BYTES,
    COUNT_DROPPED_BYTES,
    COUNT_COMMITS,
    COUNT_RECORDS, /* made durable by those commits */
    COUNT_COMPACTIONS,
    COUNT_RECOVERED,
    COUNT_TORN_BYTES,
    COUNT_PROBES,   /* from here: counted by the rank itself */
    COUNT_GIVEN_UP, /* asks for a write that had no answer */
    COUNTS
};

/* ---- link.c: MPI, without waiting ------------------------------------------------------------------------ */

struct link_handler {
    void *ctx;
    void (*note)(void *ctx, int from, const struct note *n);
    void (*message)(void *ctx, int from, const struct twochoice_message *m);
};
void link_open(int *argc, char ***argv, int *rank, int *ranks);
void link_close(void);
void link_send_note(int to, const struct note *n);
void link_send_message(int to, const struct twochoice_message *m);
/* Sends or receives a note's data, under its id. Until *done is true the buffer is MPI's. */
void link_send_data(int to, uint64_t id, const void *data, size_t len, bool *done);
void link_receive_data(int from, uint64_t id, void *data, size_t len, bool *done);
/* Handles all that has arrived or ended. True: there was something. */
bool link_poll(const struct link_handler *h);
bool link_sending(void);
/* Collective over the ranks that are nodes. Does not wait: one at a time; test until done. */
void link_split(bool node);
void link_gather(const void *mine, size_t bytes, void *all);
bool link_gathered(void);
/* Sleeps, longer after more idle rounds; wakes when fd (-1: none) is readable. */
void link_nap(uint32_t idle_rounds, int fd);

/* ---- store.c: the I/O process ---------------------------------------------------------------------------- */

enum job_kind { JOB = 1, JOB_DONE, CALL, CALL_DONE, READY };
struct job { /* over the socket; CALL: the I/O process's request to another server, through its rank */
    uint64_t kind, cookie, buffer;
    struct note n; /* only the words in use are sent */
};
struct shared {
    qos_word_t load; /* of this server, as its rank sees it */
};
/* The child's main function: serves the socket until the other end closes. */
_Noreturn void store_main(int fd, struct shared *shared, uint8_t *buffers);
bool job_send(int fd, const struct job *j, bool wait);
/* 1: *j was received; 0: nothing yet; -1: the other end is gone. */
int job_receive(int fd, struct job *j);

/* files.c: object files and the storage of the redirect table's log; used by the I/O process only. */
struct object_file {
    uint64_t object, stamp, used_at; /* stamp: of a piece kept for another home; 0: an object of this home */
    int fd;
    uint32_t users; /* operations in flight */
};
struct files {
    char dir[512];
    int log_fd[3];      /* the logs 0 and 1, and the mark */
    int active;         /* which log is in use */
    uint64_t log_bytes; /* room kept for each log */
    struct object_file *file;
    size_t files;
    uint64_t clock;
};
/* Opens or makes the directory. false: failed, reason printed. recover: it may hold an earlier run. */
bool files_open(struct files *f, const char *dir, uint64_t log_bytes, bool recover);
void files_storage(struct files *f, struct twochoice_storage *storage);
/* create: makes it durably if missing. NULL: see errno; ENOENT: missing, without create. */
struct object_file *files_get(struct files *f, uint64_t object, uint64_t stamp, bool create);
void files_unlink(struct files *f, struct object_file *file);
/* Pieces kept for other homes, as pairs of object and stamp. Returns the count; the caller frees *names. */
size_t files_away(struct files *f, uint64_t **names);
/* Removes all objects; remove_all: the directory too. */
void files_clear(struct files *f, bool remove_all);

/* ---- client.c: a compute node ---------------------------------------------------------------------------- */

struct file_layout { /* round robin over `width` servers, starting at `first` */
    uint32_t number, first, width;
};
struct transfer { /* one read or write of a process */
    bool write, failed, done;
    uint32_t process, parts;
    const struct file_layout *layout;
    uint64_t offset, len, start_ns, end_ns, status; /* status: reason of a failure */
    uint64_t probe_ns;                              /* longest wait for a decision, over its parts */
    uint8_t *data;
    uint64_t tag; /* the caller's */
};
struct client_tally { /* can be summed over nodes */
    uint64_t failed, parts, redirected;
    uint64_t decisions, probes, no_answer, said_full, said_down, redone, requeries, late_answers;
};
void client_tally_add(struct client_tally *sum, const struct client_tally *one);
void client_tally_json(struct json *j, const struct client_tally *t);
struct client_counts {
    struct client_tally tally;
    uint64_t writes, reads, bytes_to[SERVERS_MAX];
    struct hist decide, create, query, write;
};
void client_open(int rank, uint32_t servers);
void client_policy(int policy, uint64_t seed, bool include_home);
extern struct client_counts client_counts;
/* Starts a transfer; client_poll advances it and sets `done`. Until then it and its data must stay valid. */
void client_start(struct transfer *t);
bool client_poll(void); /* true: something happened */
void client_wait(void); /* sleeps once */
uint32_t client_under_way(void);
void client_finish(void); /* waits until nothing is in flight */
/* Sends one request and waits for its answer; transfers go on meanwhile. */
void client_ask(uint32_t server, struct note *n);
/* Probes servers 0..n-1 once; returns the ns until the slowest answer. */
uint64_t client_probe_all(uint32_t servers);

/* ---- main.c: settings ------------------------------------------------------------------------------------ */

enum { SCHED_FIXED, SCHED_RANDOM, SCHED_NATIVE, SCHED_DYNAMIC, SCHED_INFORMED, SCHEDS };
extern const char *const scheduler_name[SCHEDS];

struct settings {
    const char *command, *dir, *pids, *journal, *trace, *json, *figures, *schedulers, *slow;
    uint64_t servers, procs, k, write_bytes, per_process, object_bytes, part_bytes, rate, slow_by, seed, rounds, run_ns;
    uint64_t probe_timeout_ns, fragments, log_bytes;
    uint64_t idle_ns, idle_load;
    bool shared, recover, keep, pull, no_pull, accept_prefix, verify, progress;
    uint32_t server;   /* of this rank, or its I/O process */
    uint64_t own_rate; /* of its device; 0: unlimited */
};
extern struct settings settings;
/* Writes "what write ns" as one line: the order of events across processes of a host can be read later. */
void trace_open(const char *who, uint32_t number);
void trace_line(const char *what, uint64_t write);
/* WHO-NUMBER.pid in --pids: pid and start time, so that a later kill cannot hit another process. */
void pids_write(const char *who, uint32_t number);

int server_main(int io_fd, struct shared *shared, uint8_t *buffers, int io_pid);

/* ---- workloads ------------------------------------------------------------------------------------------- */

/* nodes.c: what all compute nodes do together. Node 0 acts for all. */
extern struct nodes {
    uint32_t node, count;
} nodes;
void nodes_open(int rank, int ranks);
void nodes_barrier(void);
/* Gathers `bytes` at `mine` of every node, in order of nodes, into `all` on every node. */
void nodes_gather(const void *mine, size_t bytes, void *all);
/* Node 0 sends one request to each server; answers[i]: server i's answer (head and words); NULL: not wanted. Returns
 * how many did not answer ST_OK. */
uint32_t nodes_tell(enum op op, uint64_t len, struct note *answers);
/* A sum over all servers that answer; node 0. */
uint64_t nodes_count(enum count which);
bool nodes_reset(void); /* collective: empties all servers; false on node 0: failed */
void nodes_stop(void);

int workload_burst(void);
int workload_mix(void);
int workload_probe(void);
int workload_delay(void);
int workload_table(void);
int workload_stress(void);
int workload_verify(void);
int workload_list(void);
int workload_check(void);
int workload_drain(void);

#endif
