/* tags_reference.h - a scheduler that keeps the promises of tags.h in the plainest way: every choice looks at every
 * client. PS only, requests counted one by one; it includes none of our headers. */
#ifndef QOS_TESTS_WORLD_TAGS_REFERENCE_H
#define QOS_TESTS_WORLD_TAGS_REFERENCE_H

#include "examples/world/world.h"

struct tags_reference_client {
    double weight, reservation, limit; /* requests per ns; 0: none */
    double share, due, room, room_ns;  /* share tag; when its next reserved request begins; limit bucket */
    uint64_t queued;
    bool held; /* by its limit */
};

struct tags_reference {
    struct tags_reference_client *client;
    uint32_t clients;
    double v, limit_burst_ns, lead, lag_ns, behind_ns, longest_ns;
    bool allow;
};

/* From when on the limit allows a request. */
static double tags_reference_allowed(const struct tags_reference *s, const struct tags_reference_client *c, double now)
{
    double most = 1 + c->limit * s->limit_burst_ns, room = c->room + c->limit * (now - c->room_ns);
    if (c->limit <= 0)
        return now;
    room = room > most ? most : room;
    return room >= 1 - 1e-9 ? now : now + (1 - room) / c->limit;
}

/* The next client; UINT32_MAX: none, *at: when a limit ends (-1: none waits). *reserved: by reservation. */
static WORLD_UNUSED uint32_t tags_reference_choose(struct tags_reference *s, double now, bool *reserved, double *at)
{
    uint32_t i, by_deadline = UINT32_MAX, by_share = UINT32_MAX, above = UINT32_MAX;
    double least = 0, least_share = 0, least_above = 0;
    *at = -1;
    for (i = 0; i < s->clients; i++) {
        struct tags_reference_client *c = &s->client[i];
        double t;
        if (c->queued == 0)
            continue;
        t = tags_reference_allowed(s, c, now);
        if (c->held && t <= now && c->share < s->v) /* who waited at its limit does not make up for that */
            c->share = s->v;
        c->held = t > now;
        if (t > now) {
            if (*at < 0 || t < *at)
                *at = t;
            if (above == UINT32_MAX || c->share < least_above) {
                above = i;
                least_above = c->share;
            }
            continue;
        }
        if (c->reservation > 0 && c->due <= now - s->behind_ns &&
            (by_deadline == UINT32_MAX || c->due + 1 / c->reservation < least)) {
            by_deadline = i;
            least = c->due + 1 / c->reservation;
        }
        if (by_share == UINT32_MAX || c->share < least_share) {
            by_share = i;
            least_share = c->share;
        }
    }
    *reserved = by_deadline != UINT32_MAX;
    if (*reserved)
        return by_deadline;
    return by_share != UINT32_MAX || !s->allow ? by_share : above;
}

static WORLD_UNUSED void tags_reference_arrive(struct tags_reference *s, double now, uint32_t i)
{
    struct tags_reference_client *c = &s->client[i];
    if (c->queued++ > 0)
        return;
    if (c->share < s->v)
        c->share = s->v;
    if (c->due < now - s->behind_ns)
        c->due = now - s->behind_ns;
}

static WORLD_UNUSED void tags_reference_dispatch(struct tags_reference *s, double now, uint32_t i, bool reserved,
                                                 double cost)
{
    struct tags_reference_client *c = &s->client[i];
    double most = 1 + c->limit * s->limit_burst_ns;
    c->queued--;
    if (c->limit > 0) {
        c->room += c->limit * (now - c->room_ns);
        c->room = (c->room > most ? most : c->room) - 1;
        c->room_ns = now;
    }
    if (reserved) {
        if (now - s->behind_ns - c->due > s->lag_ns)
            s->behind_ns = now - c->due - s->lag_ns;
        c->due += 1 / c->reservation;
        if (c->share + cost / c->weight >
            s->v + s->lead * cost / c->weight) /* reservations lead the shares by so much */
            return;
    } else {
        s->v = c->share > s->v ? c->share : s->v;
    }
    c->share += cost / c->weight;
}

#endif
