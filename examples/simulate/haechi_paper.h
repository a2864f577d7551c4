/* haechi_paper.h - the Haechi paper's engines and monitor to the letter, in one process, as a reference beside tokenpool.h:
 * Sections II-D and II-E and Algorithm 1. Nothing is lost, late or concurrent here, so there are no epochs, no words and
 * no fences. Basic Haechi is the same without the conversion of unused reservations (step T2).
 */
#ifndef EXAMPLES_HAECHI_PAPER_H
#define EXAMPLES_HAECHI_PAPER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { HAECHI_PAPER_HISTORY = 5 }; /* M */

struct haechi_paper_client {
    double reserved, kept;      /* R; K: reservation tokens spent or kept */
    uint64_t own, batch, spent; /* of K spent; tokens from the pool in hand; all that were spent in this period */
};

struct haechi_paper {
    double omega, least, step; /* the estimate; Omega_prof - 3 sigma; eta */
    double pool, window[HAECHI_PAPER_HISTORY];
    uint64_t batch; /* B */
    unsigned records;
    bool basic, used; /* used: a client claimed in this period, step S2 */
};

static inline void haechi_paper_begin(struct haechi_paper *p, struct haechi_paper_client *const *client, unsigned n)
{
    unsigned i;
    p->pool = p->omega;
    p->used = false;
    for (i = 0; i < n; i++) {
        p->pool -= client[i]->reserved;
        client[i]->kept = client[i]->reserved;
        client[i]->own = client[i]->batch = client[i]->spent = 0;
    }
}

/* Up to n tokens for I/Os: of the reservation, then of the batch, then of the pool. */
static inline uint64_t haechi_paper_take(struct haechi_paper *p, struct haechi_paper_client *c, uint64_t n)
{
    uint64_t got = 0;
    while (got < n) {
        if ((double)c->own + 1 <= c->kept) {
            c->own++;
        } else {
            if (c->batch == 0 && p->pool >= 1) { /* fetch-and-add of -B */
                c->batch = p->pool < (double)p->batch ? (uint64_t)p->pool : p->batch;
                p->pool -= (double)p->batch;
                p->used = true;
            }
            if (c->batch == 0)
                break;
            c->batch--;
        }
        c->spent++;
        got++;
    }
    return got;
}

/* Token decay, at `part` of the period: the client keeps R - (rho - D). */
static inline void haechi_paper_decay(struct haechi_paper_client *c, double part, uint64_t queued)
{
    double lag = c->reserved * part - (double)(c->spent + queued);
    if (lag > 0 && c->reserved - lag < c->kept)
        c->kept = c->reserved - lag;
}

/* A check of the monitor: step T2. done: completed I/Os of each client. */
static inline void haechi_paper_check(struct haechi_paper *p, struct haechi_paper_client *const *client, unsigned n,
                                      const uint64_t *done, double part)
{
    double left = 0, tokens;
    unsigned i;
    if (!p->used || p->basic)
        return;
    for (i = 0; i < n; i++)
        if (client[i]->kept > (double)done[i])
            left += client[i]->kept - (double)done[i];
    tokens = p->omega * (1 - part) - left;
    p->pool = tokens > 0 ? tokens : 0;
}

/* Algorithm 1, at the end of a period with `total` completed I/Os. */
static inline void haechi_paper_estimate(struct haechi_paper *p, double total)
{
    unsigned i, n;
    double sum = 0;
    if (total >= p->omega) {
        p->omega += p->step;
    } else if (total >= p->least) {
        p->window[p->records++ % HAECHI_PAPER_HISTORY] = total;
        n = p->records < HAECHI_PAPER_HISTORY ? p->records : HAECHI_PAPER_HISTORY;
        for (i = 0; i < n; i++)
            sum += p->window[i];
        p->omega = sum / n;
    }
}

#endif
