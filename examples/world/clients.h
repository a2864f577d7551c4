/* clients.h - simulated clients                                                        SPDX-License-Identifier: MIT
 *
 * A client makes requests in virtual time: ask when (world_client_next_ns), take the request at that time
 * (world_client_next), and say when one has ended (world_client_done), which a closed loop waits for. Zero is the
 * simplest value in every field: one request at a time, each of cost 1, for ever. */
#ifndef QOS_WORLD_CLIENTS_H
#define QOS_WORLD_CLIENTS_H

#include "world.h"

enum world_arrivals {
    WORLD_CLOSED = 0,   /* `outstanding` at a time, each followed by the next after think_ns */
    WORLD_CONSTANT = 1, /* one each interval_ns */
    WORLD_POISSON = 2,  /* the same on the average */
    WORLD_ON_OFF = 3,   /* Poisson for on_ns, nothing for off_ns */
    WORLD_BURSTS = 4    /* `outstanding` at once, each interval_ns */
};
#define WORLD_ARRIVALS 5

enum world_sizes {
    WORLD_ONE_SIZE = 0,  /* cost_min */
    WORLD_TWO_COSTS = 1, /* nine of ten have cost_min, one has cost_max */
    WORLD_ANY_SIZE = 2   /* each order of magnitude of cost_min..cost_max as likely as any other */
};
#define WORLD_SIZES 3

struct world_client_config {
    enum world_arrivals arrivals;
    uint32_t outstanding; /* 0: 1 */
    uint64_t think_ns;    /* mean of an exponential time; 0: none */
    uint64_t interval_ns; /* 0: 1 ms */
    uint64_t on_ns, off_ns;
    enum world_sizes sizes;
    uint64_t cost_min, cost_max; /* 0: 1; cost_max at least cost_min */
    uint32_t estimate;           /* permille of the cost that the client claims, at least 1; 0: 1000 */
    uint32_t writes;             /* permille */
    uint64_t start_ns;           /* its first request at the earliest */
    uint64_t away_ns, back_ns;   /* no requests between; 0: never away */
    uint64_t away_every_ns;      /* not 0: both are times in each such time; back_ns is at most this */
    uint64_t backlog_max;        /* an open loop drops what comes while so many wait; 0: 4096 */
};

struct world_request {
    uint64_t cost, claim, offset; /* claim: what the client says that it costs */
    uint64_t at_ns;               /* when it was due */
    bool write;
};

struct world_client {
    struct world_client_config config;
    struct world_rng rng;
    struct world_queue thinks; /* ends of think times */
    uint64_t next_ns, due;     /* next arrival of an open loop, and how many at that time */
    uint64_t ready;            /* a closed loop's requests that may be made at once */
    uint64_t ready_ns;         /* since when */
    uint64_t on_until_ns;
    uint64_t made, dropped, out; /* requests; out: not yet ended */
};

void world_client_init(struct world_client *c, const struct world_client_config *config, uint64_t seed,
                       uint64_t number);
void world_client_free(struct world_client *c);
/* Time of the next request if none ends before; WORLD_NEVER: none. */
uint64_t world_client_next_ns(const struct world_client *c);
/* The request that is due by now_ns. */
bool world_client_next(struct world_client *c, uint64_t now_ns, struct world_request *out);
/* A request has ended: done, failed, refused or cancelled. */
void world_client_done(struct world_client *c, uint64_t now_ns);

#endif
