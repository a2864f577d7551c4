/* device_fields.h - fields that worlds with devices share, and what they mean: devices, links, requests that hang
 *
 * Included instead of world_test.h; WORLD_FIELDS has WORLD_DEVICE_FIELDS(X) in it, and WORLD_COHORT ends with
 * WORLD_CLIENT_FIELDS(X).
 */
#ifndef QOS_TESTS_DEVICE_FIELDS_H
#define QOS_TESTS_DEVICE_FIELDS_H

#define WORLD_DEVICE_FIELDS(X)                                                                                         \
    X(SEEK, "seek_ms", "0 4 9")                                                                                        \
    X(FASTER, "speed_by", "1000 3000 10000 300")                                                                       \
    X(FASTER_EVERY, "speed_every_ms", "500 1000 3000 100")                                                             \
    X(CREDIT, "credit_ms", "0 500 2000 5000")                                                                          \
    X(LINK, "link_us", "0 100 800 6000")                                                                               \
    X(SHARING, "sharing", "no yes")                                                                                    \
    X(HANGS, "hangs", "0 1 5")                                                                                         \
    X(HANG, "hang_s", "1 10 30 never")
#define WORLD_CLIENT_FIELDS(X)                                                                                         \
    X(ON, "on_ms", "0 20 50 300")                                                                                      \
    X(CROWD, "crowd", "1 20")
#include "world_test.h"
#include "examples/world/clients.h"
#include "examples/world/devices.h"

static void draw_device(const struct world *w, uint64_t end_ns, struct world_device_config *d)
{
    if (world_choice(w, F_FASTER)) {
        d->step_every_ns = (uint64_t)world_value(w, F_FASTER_EVERY) * 1000000;
        d->step_capacity = (uint32_t)((d->capacity ? d->capacity : 1000) * world_value(w, F_FASTER) / 1000);
    }
    if (world_choice(w, F_CREDIT)) {
        d->credit_ns = (uint64_t)world_value(w, F_CREDIT) * 1000000;
        d->provisioned = 1000;
    }
    d->seek_ns = (uint64_t)world_value(w, F_SEEK) * 1000000;
    d->turn_ns = d->seek_ns / 2;
    d->link_ns = (uint64_t)world_value(w, F_LINK) * 1000;
    d->shares = world_choice(w, F_SHARING) && d->pause_ns == 0 && d->seek_ns == 0;
    d->hangs = (uint32_t)world_value(w, F_HANGS);
    d->hang_every_ns = d->hangs ? end_ns / 4 : 0;
    d->hang_ns = world_choice(w, F_HANG) == 3 ? WORLD_NEVER : (uint64_t)world_value(w, F_HANG) * WORLD_NS_PER_S;
}

/* Of a client of cohort k: away for a sixth of the run, or on and off. */
static WORLD_UNUSED void draw_absence(const struct world *w, uint32_t k, bool away, uint64_t end_ns,
                                      struct world_client_config *c)
{
    if (away) {
        c->away_ns = end_ns / 3;
        c->back_ns = end_ns / 2;
    } else if (world_choice(w, world_of(k, F_ON))) {
        c->away_ns = (uint64_t)world_value(w, world_of(k, F_ON)) * 1000000;
        c->back_ns = c->away_every_ns = 2 * c->away_ns;
    }
}

#endif
