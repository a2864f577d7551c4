/* devices.h - simulated devices                                                        SPDX-License-Identifier: MIT
 *
 * A device works on its requests by itself in virtual time. Give it requests (world_device_submit), ask when the next
 * one is done (world_device_next_ns), and take that one at that time (world_device_take).
 *
 *     submit --> queue (one, or one per channel) --> channel 0 [====  ]--\
 *                        ^ the order decides     --> channel 1 [==    ]---+--> take
 *                                                --> ...                 /
 *
 * A request has a cost: the ns that it would take if the whole device, at nominal capacity, worked on nothing else. One
 * of M channels needs M times as long. Service times vary around that by `spread`. Zero is the simplest value in every
 * field of the configuration: one channel, in order, fixed times, no pauses. */
#ifndef QOS_WORLD_DEVICES_H
#define QOS_WORLD_DEVICES_H

#include "world.h"

#define WORLD_CHANNELS_MAX 256u

/* Which waiting request is next. */
enum world_order {
    WORLD_IN_ORDER = 0, /* of arrival */
    WORLD_ELEVATOR = 1, /* ascending offsets, then back to the lowest */
    WORLD_SHORTEST = 2, /* the least cost */
    WORLD_ANY = 3,      /* by chance */
    WORLD_NEAREST = 4   /* the least time to reach it, as a disk with command queueing chooses; it may starve one */
};
#define WORLD_ORDERS 5

/* How service times vary. Each has mean 1 times the cost, except WORLD_READ_WRITE. */
enum world_spread {
    WORLD_FIXED = 0,
    WORLD_TEN = 1,         /* uniform, +-10 % */
    WORLD_THIRTY = 2,      /* uniform, +-30 % */
    WORLD_EXPONENTIAL = 3, /* */
    WORLD_LOGNORMAL = 4,   /* sigma 0.7: one of 100 takes four times the mean */
    WORLD_TWO_SIZES = 5,   /* nine of ten take half, one takes 5.5 times */
    WORLD_READ_WRITE = 6   /* a write takes four times as long as a read of the same cost */
};
#define WORLD_SPREADS 7

struct world_device_config {
    uint32_t channels;         /* 1..WORLD_CHANNELS_MAX; 0: 1 */
    bool hashed;               /* a queue for each channel, chosen by the request's offset; else one for all */
    enum world_order order;    /* */
    enum world_spread spread;  /* */
    uint32_t capacity;         /* permille of the nominal one; 0: 1000 */
    uint64_t step_ns;          /* from this time on ... */
    uint32_t step_capacity;    /* ... the capacity is this; 0: no step */
    uint64_t back_ns;          /* from then on it is the former one; 0: never */
    uint64_t step_every_ns;    /* not 0: instead it is step_capacity in each second such time */
    uint64_t pause_every_ns;   /* it pauses once in each such time, counted from 0; 0: never */
    uint64_t pause_ns;         /* for so long, at the end of that time */
    bool pause_channel;        /* one channel pauses at a time, each in its turn; else all */
    uint64_t seek_ns, turn_ns; /* a disk: seek over all its offsets and time of a rotation; 0: no disk */
    uint32_t provisioned;      /* permille of the nominal capacity, 2 ms of it in advance; what is above is held
                                * until it fits, rounded up to 3 ms; 0: not provisioned */
    uint64_t credit_ns;        /* not 0: a provisioned volume is not held: it has its capacity while it has credit, of
                                * so much work, full at the beginning, and without credit its provisioned one */
    bool shares;               /* processor sharing: all requests are at work, each at a part of the capacity: one of
                                * as many as there are, or of as many as there are channels, if those are more. It
                                * has no pauses and no order, and is no disk */
    uint64_t link_ns;          /* the way to the device and back: costs it nothing, ends are seen as much later */
    uint64_t hang_every_ns;    /* requests hang: the first `hangs` that would begin after each such time are at no */
    uint64_t hang_ns;          /* channel, and end so much later; WORLD_NEVER: only world_device_abort ends them */
    uint32_t hangs;
};

#define WORLD_OFFSETS (UINT64_C(1) << 32) /* offsets of a device */

struct world_io {
    uint64_t cost_ns; /* see above */
    uint64_t offset;  /* 0..WORLD_OFFSETS - 1 */
    uint32_t id;      /* the user's */
    bool write;
    bool hung;                            /* the device's */
    uint64_t submit_ns, begin_ns, end_ns; /* the device's: submitted, begun, done */
};

struct world_lane { /* requests that wait, in order of arrival: list[first..count) */
    struct world_io *list;
    size_t first, count, room;
};

struct world_aside { /* what is at no channel: hung, or on its way back */
    struct world_io io;
    bool used, aborted;
};

struct world_shared { /* a request of a device that shares */
    struct world_io io;
    double end; /* in work of each since the beginning */
};

struct world_device {
    struct world_device_config config;
    struct world_rng rng;
    struct world_lane *lane;                       /* one, or one per channel */
    struct world_io busy[WORLD_CHANNELS_MAX];      /* what each channel works on */
    uint64_t idle[WORLD_CHANNELS_MAX / 64];        /* bits: channels without work */
    struct world_queue ends;                       /* of what the channels work on, and of what is aside */
    struct world_aside *aside;                     /* */
    size_t asides, aside_room;                     /* */
    struct world_shared *shared;                   /* at work, if it shares */
    size_t shareds, shared_room;                   /* */
    double share;                                  /* work that each of them has got since the beginning */
    uint64_t share_at_ns, share_ns;                /* as of then; when the first of them ends */
    uint64_t hang_period, hung;                    /* requests that have hung in this period */
    uint64_t head[WORLD_CHANNELS_MAX];             /* offset where each channel's last request ended */
    double credit_ns;                              /* provisioned: work in advance */
    uint64_t credit_at_ns;                         /* ... as of then */
    uint64_t stopped_ns;                           /* world_device_stop: nothing moves until then */
    uint64_t waiting, working, done, done_cost_ns; /* requests; cost of those done */
};

void world_device_init(struct world_device *d, const struct world_device_config *config, uint64_t seed);
void world_device_free(struct world_device *d);
void world_device_submit(struct world_device *d, uint64_t now_ns, const struct world_io *io);
/* When the next request is done; WORLD_NEVER if the device has none. */
static inline uint64_t world_device_next_ns(const struct world_device *d)
{
    const uint64_t next_ns = world_queue_next_ns(&d->ends);
    return d->shareds && d->share_ns < next_ns ? d->share_ns : next_ns;
}
/* A request that is done by now_ns; the channel begins the next one at the time when this one was done. Over a link the
 * time of world_device_next_ns may be one at which a channel becomes free, and no request is done. */
bool world_device_take(struct world_device *d, uint64_t now_ns, struct world_io *out);
/* Gives up a request that hangs; false: none does. */
bool world_device_abort(struct world_device *d, uint64_t now_ns, struct world_io *out);
/* It stops at once, until then: what is at work ends as much later. Not one that shares. */
void world_device_stop(struct world_device *d, uint64_t now_ns, uint64_t until_ns);

/* Nominal work (cost) that the device can do in from_ns..to_ns, capacity step and pauses counted, with mean times and
 * always enough requests. Not for disks; without credit. */
double world_device_could_ns(const struct world_device_config *config, uint64_t from_ns, uint64_t to_ns);
/* True if a pause overlaps from_ns..to_ns. */
bool world_device_pauses(const struct world_device_config *config, uint64_t from_ns, uint64_t to_ns);

#endif
