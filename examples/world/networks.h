/* networks.h - a simulated network                                                     SPDX-License-Identifier: MIT
 *
 * Messages between numbered nodes, each link in one direction. A message is lost, repeated, damaged, delayed by a little
 * (so that others overtake it) or by very much, by seed. A link may be cut: what is sent meanwhile is lost, what is
 * under way arrives. Zero is the simplest value in every field: every message arrives once, whole, at once. */
#ifndef QOS_WORLD_NETWORKS_H
#define QOS_WORLD_NETWORKS_H

#include "world.h"

#define WORLD_NODES 64 /* most nodes of a network */

struct world_network_config {
    uint32_t lost, repeated, damaged, late; /* permille of messages, of copies for damaged and late */
    uint64_t delay_ns;                      /* of every message */
    uint64_t jitter_ns;                     /* up to so much more, uniform: messages overtake each other */
    bool exponential;                       /* instead: exponential, so much more on the average */
    uint64_t late_ns;                       /* a late one: up to so much more, uniform */
    bool in_order;                          /* a message waits for those that were sent before it on its link */
};

struct world_packet {
    uint32_t from, to;
    uint64_t sent_ns;
    size_t size;
    uint8_t *bytes; /* of a taken packet: valid until the next call of world_network_take or _free */
    bool damaged;   /* for reports: the receiver must find out by itself */
};

struct world_network {
    struct world_network_config config;
    struct world_rng rng;
    struct world_queue due; /* index: a slot */
    struct world_packet *slot;
    uint32_t *unused;
    size_t slots, slot_room, unused_count, unused_room;
    uint64_t last_ns[WORLD_NODES][WORLD_NODES]; /* of in_order: the latest arrival so far */
    bool cut[WORLD_NODES][WORLD_NODES];
    uint8_t *taken;
    /* how often each was met, for reports */
    uint64_t sent, lost, repeated, damaged, late, cuts, arrived;
};

void world_network_init(struct world_network *n, const struct world_network_config *config, uint64_t seed);
void world_network_free(struct world_network *n);
void world_network_send(struct world_network *n, uint64_t now_ns, uint32_t from, uint32_t to, const void *bytes,
                        size_t size);
/* When the next message arrives; WORLD_NEVER: none is under way. */
uint64_t world_network_next_ns(const struct world_network *n);
/* Takes the next message that has arrived by now_ns. */
bool world_network_take(struct world_network *n, uint64_t now_ns, struct world_packet *out);
/* Nodes with a bit in `group` hear nothing of the others, and the others nothing of them; all other links are whole. */
void world_network_part(struct world_network *n, uint64_t group);

#endif
