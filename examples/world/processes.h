/* processes.h - simulated processes                                                    SPDX-License-Identifier: MIT
 *
 * A process is a function that runs on a stack of its own and sleeps in virtual time. Its life is drawn: when it is added
 * and removed, how long it runs until it is killed, when it starts again, and whether it then finds its file and its
 * disk; when it is paused and for how long. Inside it runs until it sleeps, but for its points: a point (each access to a
 * word that processes share, if the user says so) is a place where the world may act, by seed. The others may run first,
 * the process may stall, its clock may step, it may be killed. Few such points find more than many, as bugs need one
 * or two changes at the right places (Burckhardt et al., 2010): so there are `rarity` and `most`.
 *
 * Zero is the simplest value in every field: a process that is there from the beginning to the end.
 * One world at a time. */
#ifndef QOS_WORLD_PROCESSES_H
#define QOS_WORLD_PROCESSES_H

#include "clocks.h"

#define WORLD_PROCESSES 256

/* What a process finds when it starts. */
enum world_start {
    WORLD_START_FIRST = 0,
    WORLD_START_AGAIN = 1, /* its file is as it left it */
    WORLD_START_NO_FILE = 2 /* its own file is gone; the disk, and what lies there for all, is not */,
    WORLD_START_NO_DISK = 3 /* everything that it kept is gone */
};

struct world_life {
    uint64_t added_ns, removed_ns; /* 0: from the beginning; to the end */
    uint64_t runs_ns;              /* killed so long after each start; 0: never */
    uint64_t down_ns;              /* starts again so long after its end; 0: never */
    uint32_t vary;                 /* each of both times is longer or shorter by up to so many permille */
    uint32_t no_file, no_disk;     /* permille of the starts after the first */
    uint64_t pause_every_ns, pause_ns;
    uint64_t late_ns; /* a sleep ends up to so much late */
};

struct world_points {
    uint32_t rarity;                         /* the world acts at one of so many points; 0: never */
    uint32_t most;                           /* acts at most so often; 0: no bound */
    uint32_t switches, stalls, steps, kills; /* how likely, against each other */
    uint64_t stall_ns;                       /* up to, each order of magnitude alike */
    uint64_t back_ns, ahead_ns;              /* a clock steps up to so much; both: either way */
};

struct world_processes;
typedef void world_body(struct world_processes *ps, uint32_t id, enum world_start start);

enum world_process_state { WORLD_DOWN = 0, WORLD_ASLEEP, WORLD_RUNNING, WORLD_GONE };

struct world_process {
    world_body *body;
    struct world_life life;
    struct world_clock clock;
    enum world_process_state state;
    enum world_start start;
    int64_t step_ns; /* what its clock stepped so far */
    uint64_t paused_ns, run_event, kill_event, due_ns;
    uint64_t starts, kills, pauses, runs; /* how often each was met, for reports */
    uint64_t stepped_ns;                  /* when its clock stepped last; WORLD_NEVER: not yet */
};

struct world_processes {
    struct world_process process[WORLD_PROCESSES];
    uint32_t count, current; /* current: inside a body */
    bool inside, stop;       /* stop: set by the user, ends world_processes_run */
    struct world_points points;
    struct world_rng rng;
    struct world_queue due;
    uint64_t now_ns, turns;
    uint64_t met, switched, stalled, stepped, killed; /* points, and what the world did there */
    void *user;
};

void world_processes_init(struct world_processes *ps, const struct world_points *points, uint64_t seed);
void world_processes_free(struct world_processes *ps);
/* One more process, of a clock that shows base_ns at 0. Its number: 0, 1, 2, ... */
uint32_t world_process_add(struct world_processes *ps, world_body *body, const struct world_life *life,
                           const struct world_clock_config *clock, uint64_t base_ns, uint64_t seed);
/* Runs everything that is due by until_ns. */
void world_processes_run(struct world_processes *ps, uint64_t until_ns);

/* For bodies, about themselves. */
uint64_t world_process_clock(struct world_processes *ps);          /* what its clock shows */
void world_process_sleep(struct world_processes *ps, uint64_t ns); /* of true time */
void world_process_wait(struct world_processes *ps,
                        uint64_t shown_ns); /* until its clock shows it; WORLD_NEVER: for ever */
void world_process_point(struct world_processes *ps);

#endif
