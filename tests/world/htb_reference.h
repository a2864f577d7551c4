/* htb_reference.h - a scheduler that keeps the promises of htb.h in the plainest way: every choice looks at every class
 *
 * It judges the oracles (a correct scheduler passes all worlds) and gives the cells their reference: what the best
 * fixed bound on the requests at the device reaches. It includes none of our headers. Doubles hold token counts; a
 * limit is kept with a margin of one token. */
#ifndef QOS_TESTS_WORLD_HTB_REFERENCE_H
#define QOS_TESTS_WORLD_HTB_REFERENCE_H

#include "examples/world/world.h"

#define REFERENCE_CLASSES 1024u

struct reference_class {
    double rate, limit, weight, burst_ns; /* tokens per ns; 0: none */
    double latency_ns;
    double own_ns;        /* when its next own request may begin: S of the promise in time */
    double share;         /* share tag: work per weight */
    double room, room_ns; /* limit bucket: tokens left, as of then */
    uint32_t parent;      /* 0: the root */
    bool used, group;
    uint32_t *queue; /* ids of requests, a ring of 2^bits */
    size_t first, count, room_queue;
};

struct reference {
    struct reference_class class_of[REFERENCE_CLASSES];
    uint32_t classes;
    double bound;  /* tokens at the device */
    double flight; /* tokens at the device now */
    double v;      /* share tag of the last borrower */
    double lag_ns, behind_ns;
    const uint64_t *cost; /* of each request id */
    uint64_t queued;
};

static WORLD_UNUSED void reference_init(struct reference *s, uint32_t classes, double bound, double lag_ns,
                                        const uint64_t *cost)
{
    memset(s, 0, sizeof *s);
    s->classes = classes;
    s->bound = bound;
    s->lag_ns = lag_ns;
    s->cost = cost;
}

static WORLD_UNUSED void reference_free(struct reference *s)
{
    uint32_t i;
    for (i = 0; i < s->classes; i++)
        free(s->class_of[i].queue);
}

static WORLD_UNUSED void reference_class(struct reference *s, uint64_t now_ns, uint32_t id, uint32_t parent, bool group,
                                         double rate, double limit, double weight, double burst_ns, double latency_ns)
{
    struct reference_class *c = &s->class_of[id];
    c->used = true;
    c->group = group;
    c->parent = parent;
    c->rate = rate;
    c->limit = limit;
    c->weight = weight;
    c->burst_ns = burst_ns;
    c->latency_ns = latency_ns;
    c->own_ns = c->room_ns = (double)now_ns;
}

static WORLD_UNUSED void reference_submit(struct reference *s, uint64_t now_ns, uint32_t id, uint32_t request)
{
    struct reference_class *c = &s->class_of[id];
    if (c->first + c->count == c->room_queue) {
        if (c->first > c->count) {
            memmove(c->queue, c->queue + c->first, c->count * sizeof *c->queue);
            c->first = 0;
        } else {
            c->queue = (uint32_t *)world_grow(c->queue, c->first + c->count, &c->room_queue, sizeof *c->queue);
        }
    }
    if (c->count == 0) {
        if (c->own_ns < (double)now_ns - s->behind_ns)
            c->own_ns = (double)now_ns - s->behind_ns;
        if (c->share < s->v)
            c->share = s->v;
    }
    c->queue[c->first + c->count++] = request;
    s->queued++;
}

/* When the limits of the class allow it n tokens; a request larger than a burst waits for a full bucket. */
static WORLD_UNUSED double reference_allowed_ns(struct reference *s, uint32_t id, double n, double now_ns)
{
    double at = now_ns;
    for (;; id = s->class_of[id].parent) {
        struct reference_class *c = &s->class_of[id];
        if (id && c->limit > 0) {
            double most = c->limit * c->burst_ns, need = n < most ? n : most, t;
            if (now_ns > c->room_ns) {
                c->room += c->limit * (now_ns - c->room_ns);
                c->room = c->room > most ? most : c->room;
                c->room_ns = now_ns;
            }
            t = now_ns + (need - c->room) / c->limit;
            at = c->room < need && t > at ? t : at;
        }
        if (id == 0 || c->parent == 0)
            return at;
    }
}

/* The class whose request goes next; 0: none. *at_ns: when a limit ends, if that is why. */
static WORLD_UNUSED uint32_t reference_choose(struct reference *s, double now_ns, double *at_ns, bool *own)
{
    uint32_t i, best = 0, borrow = 0;
    double key, least = 0, least_share = 0;
    *at_ns = -1;
    for (i = 1; i < s->classes; i++) {
        struct reference_class *c = &s->class_of[i];
        double t, n;
        if (!c->used || c->group || c->count == 0)
            continue;
        n = (double)s->cost[c->queue[c->first]];
        t = reference_allowed_ns(s, i, n, now_ns);
        if (t > now_ns) {
            if (*at_ns < 0 || t < *at_ns)
                *at_ns = t;
            continue;
        }
        if (c->rate > 0 && c->own_ns <= now_ns - s->behind_ns) {
            key = c->own_ns + c->latency_ns;
            if (best == 0 || key < least) {
                best = i;
                least = key;
            }
        }
        if (borrow == 0 || c->share < least_share) {
            borrow = i;
            least_share = c->share;
        }
    }
    *own = best != 0;
    return best ? best : borrow;
}

/* The next request for the device; UINT32_MAX: none now, see *at_ns (-1: until something happens). */
static WORLD_UNUSED uint32_t reference_dispatch(struct reference *s, uint64_t now_ns, double *at_ns)
{
    bool own;
    uint32_t id = s->queued ? reference_choose(s, (double)now_ns, at_ns, &own) : 0, request, up;
    struct reference_class *c = &s->class_of[id];
    double n;
    if (s->queued == 0)
        *at_ns = -1;
    if (id == 0)
        return UINT32_MAX;
    request = c->queue[c->first];
    n = (double)s->cost[request];
    if (s->flight > 0 && s->flight + n > s->bound) {
        *at_ns = -1;
        return UINT32_MAX;
    }
    c->first++;
    c->count--;
    s->queued--;
    s->flight += n;
    for (up = id; up; up = s->class_of[up].parent)
        if (s->class_of[up].limit > 0)
            s->class_of[up].room -= n;
    if (own) {
        if ((double)now_ns - s->behind_ns - c->own_ns > s->lag_ns) /* lost for all alike */
            s->behind_ns = (double)now_ns - c->own_ns - s->lag_ns;
        c->own_ns += n / c->rate;
    } else {
        s->v = c->share;
        c->share += n / c->weight;
    }
    return request;
}

static WORLD_UNUSED void reference_complete(struct reference *s, uint32_t request)
{
    s->flight -= (double)s->cost[request];
}

#endif
