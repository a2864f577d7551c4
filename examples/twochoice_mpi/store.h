/* store.h - inside the I/O process: store.c (the loop and the jobs), moves.c (pulls, drops, sweeps, the check). */
#ifndef TWOCHOICE_MPI_STORE_H
#define TWOCHOICE_MPI_STORE_H

#include "twochoice_mpi.h"
#include <liburing.h>

#define PULL_PIECES 16u /* that one pull writes */
#define DROPS_MAX 1024u
#define DROPS_FLYING 4u

struct store;

/* An operation under way: a job of the rank, a write of a pull, a request to another server. */
struct task {
    struct job job;
    void (*then)(struct store *s, struct task *t, uint64_t status); /* when its data is written or read */
    struct object_file *file;
    uint8_t *data;
    uint64_t offset, len, done; /* of the data */
    uint64_t due_ns;            /* the time when the paced device is ready */
    uint64_t stamp;             /* stamp of an open write at home; 0: none */
    bool writing;
    struct pull *pull;
    struct task *next;
};

struct task_list {
    struct task *first, **end;
};

struct pull {
    bool used, here;     /* here: the data has come, and waits for a write at home to end */
    uint32_t id, writes; /* writes that are not done */
    uint64_t status;
    struct twochoice_piece piece;
};

struct store {
    const struct settings *s;
    struct shared *shared;
    uint8_t *buffers;
    int fd; /* to the rank */
    struct io_uring ring;
    bool receiving, changed, resting; /* resting: starts nothing of itself */
    struct files files;
    struct twochoice_storage storage;
    struct twochoice_table_config table_config;
    struct twochoice_table table;
    void *table_memory, *maintainer_memory;
    struct task_list waiting, paced, to_commit; /* for a write at home to end; for the device; for the log */
    /* The commit under way: the kernel syncs, this thread goes on. */
    struct flight {
        struct twochoice_commit commit;
        struct task_list tasks; /* records that it acknowledges */
        unsigned syncs;         /* syncs that have not come back */
        enum qos_status begun;
        bool under_way, good;
    } flight;
    uint64_t left[64]; /* writes whose records failed: cancelled after a commit; beyond these: at the next start */
    unsigned left_count;
    bool wants_commit, compaction_waits; /* a compaction: wants one, and has nothing else to do */
    uint64_t device_free_ns;
    uint64_t word[COUNTS];
    /* moves.c */
    struct twochoice_maintainer maintainer;
    uint64_t maintain_at_ns;
    bool asking, paused;
    struct pull pull[STORE_BUFFERS];
    struct stale {
        struct twochoice_piece piece;
        uint64_t changes; /* may be dropped when this many changes are durable */
    } drop[DROPS_MAX];    /* a ring */
    size_t drop_first, drops;
    struct twochoice_piece *old; /* pieces that a change replaced */
    size_t olds;                 /* number of pieces that fit in it */
    uint32_t flying;             /* drops sent and not yet answered */
    struct sweep {
        struct task *task;
        uint64_t *name; /* object and stamp in turn */
        size_t names, index;
    } sweep;
    struct check {
        struct task *task;
        struct twochoice_piece *piece;
        int *has;
        size_t pieces, index;
    } check;
};

/* store.c */
void task_add(struct task_list *l, struct task *t);
struct task *task_take(struct task_list *l); /* NULL: none */
void store_answer(struct store *s, struct task *t, uint64_t status);
/* Reads or writes t->len bytes at t->offset of an object; t->then when they are there, or durable. */
void store_data(struct store *s, struct task *t, uint64_t object, uint64_t stamp, bool write);
void store_call(struct store *s, uint64_t cookie, const struct note *n, uint32_t buffer);
void store_compact(struct store *s);

/* moves.c: what the store does by itself, and answers to its requests */
void moves_init(struct store *s, bool all);
void moves_step(struct store *s, uint64_t now_ns);
void moves_answered(struct store *s, const struct job *j);
void moves_pull_committed(struct store *s, struct task *t, bool durable);
bool moves_quiet(const struct store *s); /* nothing of this is under way */
/* After QOS_EAGAIN (a change replaces more pieces than s->old has room for): makes more room. */
void moves_more_room(struct store *s);
/* A change replaced the first n of s->old: pieces that no byte needs are dropped when the change is durable. */
void moves_stale(struct store *s, size_t n);
void moves_drop_here(struct store *s, struct task *t);
void moves_has(struct store *s, struct task *t);
void moves_sweep(struct store *s, struct task *t);
void moves_check(struct store *s, struct task *t);

#endif
