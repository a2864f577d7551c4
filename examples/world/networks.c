#include "networks.h"

void world_network_init(struct world_network *n, const struct world_network_config *config, uint64_t seed)
{
    memset(n, 0, sizeof *n);
    n->config = *config;
    world_rng_init(&n->rng, seed, 0x4e370000);
}

void world_network_free(struct world_network *n)
{
    struct world_event e;
    while (world_queue_take(&n->due, WORLD_NEVER, &e))
        free(n->slot[e.index].bytes);
    world_queue_free(&n->due);
    free(n->slot);
    free(n->unused);
    free(n->taken);
    memset(n, 0, sizeof *n);
}

static uint32_t new_slot(struct world_network *n)
{
    if (n->unused_count)
        return n->unused[--n->unused_count];
    n->slot = (struct world_packet *)world_grow(n->slot, n->slots, &n->slot_room, sizeof *n->slot);
    return (uint32_t)n->slots++;
}

static void send_copy(struct world_network *n, uint64_t now_ns, uint32_t from, uint32_t to, const void *bytes,
                      size_t size)
{
    const uint32_t s = new_slot(n);
    struct world_packet *p = &n->slot[s];
    uint64_t at_ns = now_ns + n->config.delay_ns;
    at_ns += n->config.exponential ? (uint64_t)(world_exponential(&n->rng) * (double)n->config.jitter_ns)
                                   : world_between(&n->rng, 0, n->config.jitter_ns);
    if (world_chance(&n->rng, n->config.late)) {
        at_ns += world_between(&n->rng, 0, n->config.late_ns);
        n->late++;
    }
    if (n->config.in_order && at_ns < n->last_ns[from][to])
        at_ns = n->last_ns[from][to];
    if (at_ns > n->last_ns[from][to])
        n->last_ns[from][to] = at_ns;
    p->from = from;
    p->to = to;
    p->sent_ns = now_ns;
    p->size = size;
    p->bytes = (uint8_t *)world_alloc(size, 1);
    if (size)
        memcpy(p->bytes, bytes, size);
    p->damaged = size && world_chance(&n->rng, n->config.damaged);
    if (p->damaged) { /* one bit, or a byte that may be any other one */
        uint64_t at = world_between(&n->rng, 0, size - 1);
        uint64_t by =
            world_chance(&n->rng, 500) ? UINT64_C(1) << world_between(&n->rng, 0, 7) : world_between(&n->rng, 1, 255);
        p->bytes[at] = (uint8_t)(p->bytes[at] ^ by);
        n->damaged++;
    }
    world_queue_add(&n->due, at_ns, 0, s);
}

void world_network_send(struct world_network *n, uint64_t now_ns, uint32_t from, uint32_t to, const void *bytes,
                        size_t size)
{
    n->sent++;
    if (n->cut[from][to]) {
        n->cuts++;
        return;
    }
    if (world_chance(&n->rng, n->config.lost)) {
        n->lost++;
        return;
    }
    send_copy(n, now_ns, from, to, bytes, size);
    if (world_chance(&n->rng, n->config.repeated)) {
        n->repeated++;
        send_copy(n, now_ns, from, to, bytes, size);
    }
}

uint64_t world_network_next_ns(const struct world_network *n)
{
    return world_queue_next_ns(&n->due);
}

bool world_network_take(struct world_network *n, uint64_t now_ns, struct world_packet *out)
{
    struct world_event e;
    if (!world_queue_take(&n->due, now_ns, &e))
        return false;
    free(n->taken);
    *out = n->slot[e.index];
    n->taken = out->bytes;
    n->unused = (uint32_t *)world_grow(n->unused, n->unused_count, &n->unused_room, sizeof *n->unused);
    n->unused[n->unused_count++] = e.index;
    n->arrived++;
    return true;
}

void world_network_part(struct world_network *n, uint64_t group)
{
    uint32_t a, b;
    for (a = 0; a < WORLD_NODES; a++)
        for (b = 0; b < WORLD_NODES; b++)
            n->cut[a][b] = (group >> a & 1) != (group >> b & 1);
}
