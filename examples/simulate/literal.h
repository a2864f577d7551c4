/* literal.h - Algorithms 1 and 2 of the reward paper to the letter, for a few clients, as a reference beside tags.h:
 * tags lie in real time (AdjustTags), so that a pause erases a charge, and nothing keeps a reservation from moving a
 * share tag ahead (Figure 6(a)). Scans all clients; doubles in seconds; shares no code with the header.
 */
#ifndef EXAMPLES_LITERAL_H
#define EXAMPLES_LITERAL_H

#include <stdbool.h>
#include <stdint.h>

#define LITERAL_CLIENTS 8
#define LITERAL_WINDOW 50 /* the N of the mean service time */

struct literal_client {
    double weight, reservation, limit; /* per second; 0: none */
    double reserve_tag, limit_tag, share_tag;
    double service[LITERAL_WINDOW]; /* the last ones */
    uint32_t services, queued, at_device;
};

struct literal {
    bool reward; /* share tags advance by the mean service time over the weight; else by 1 / weight */
    uint32_t clients;
    struct literal_client client[LITERAL_CLIENTS];
};

static inline double literal_later(double a, double b)
{
    return a > b ? a : b;
}

static inline double literal_spacing(const struct literal *l, const struct literal_client *c)
{
    uint32_t i, n = c->services < LITERAL_WINDOW ? c->services : LITERAL_WINDOW;
    double sum = 0;
    for (i = 0; i < n; i++)
        sum += c->service[i];
    return l->reward ? (n ? sum / n : 1e-3) / c->weight : 1 / c->weight;
}

/* AdjustTags: the share tags of active clients move as a block, so that the smallest is now. */
static inline void literal_adjust(struct literal *l, double now)
{
    double least = 0;
    uint32_t i, active = 0;
    for (i = 0; i < l->clients; i++)
        if (l->client[i].queued && (active++ == 0 || l->client[i].share_tag < least))
            least = l->client[i].share_tag;
    for (i = 0; i < l->clients; i++)
        if (l->client[i].queued)
            l->client[i].share_tag += now - least;
}

/* A client that was idle: the tags of the others come to now, then its own. */
static inline void literal_arrive(struct literal *l, double now, uint32_t id, uint32_t count)
{
    struct literal_client *c = &l->client[id];
    if (c->queued == 0 && c->at_device == 0) {
        literal_adjust(l, now);
        c->reserve_tag = literal_later(c->reserve_tag, now);
        c->limit_tag = literal_later(c->limit_tag, now);
        c->share_tag = literal_later(c->share_tag, now);
    }
    c->queued += count;
}

/* The next client: by reservation if a tag is due, else by share. false: none. */
static inline bool literal_pull(struct literal *l, double now, uint32_t *id)
{
    uint32_t i, found = LITERAL_CLIENTS, phase;
    struct literal_client *c;
    for (phase = 0; phase < 2 && found == LITERAL_CLIENTS; phase++)
        for (i = 0; i < l->clients; i++) {
            const struct literal_client *best = &l->client[found == LITERAL_CLIENTS ? 0 : found];
            c = &l->client[i];
            if (c->queued == 0 || (c->limit > 0 && c->limit_tag > now) ||
                (phase == 0 && (c->reservation <= 0 || c->reserve_tag > now)))
                continue;
            if (found == LITERAL_CLIENTS ||
                (phase ? c->share_tag < best->share_tag : c->reserve_tag < best->reserve_tag))
                found = i;
        }
    if (found == LITERAL_CLIENTS)
        return false;
    c = &l->client[found];
    if (phase == 1) /* left after the first round */
        c->reserve_tag += 1 / c->reservation;
    if (c->limit > 0)
        c->limit_tag = literal_later(c->limit_tag, now) + 1 / c->limit;
    c->share_tag += literal_spacing(l, c);
    c->queued--;
    c->at_device++;
    *id = found;
    return true;
}

static inline void literal_complete(struct literal *l, double now, uint32_t id, double service)
{
    struct literal_client *c = &l->client[id];
    c->service[c->services++ % LITERAL_WINDOW] = service;
    c->at_device--;
    literal_adjust(l, now);
}

#endif
