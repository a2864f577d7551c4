#include "clients.h"

/* A time within the client's absence is moved to its return. */
static uint64_t present(const struct world_client *c, uint64_t at_ns)
{
    uint64_t begun_ns;
    if (at_ns < c->config.start_ns)
        at_ns = c->config.start_ns;
    begun_ns = c->config.away_every_ns ? at_ns - at_ns % c->config.away_every_ns : 0;
    return c->config.back_ns > c->config.away_ns && at_ns - begun_ns >= c->config.away_ns &&
                   at_ns - begun_ns < c->config.back_ns
               ? begun_ns + c->config.back_ns
               : at_ns;
}

static uint64_t interval(struct world_client *c)
{
    uint64_t mean = c->config.interval_ns ? c->config.interval_ns : 1000000;
    if (c->config.arrivals == WORLD_CONSTANT || c->config.arrivals == WORLD_BURSTS)
        return mean;
    return (uint64_t)(world_exponential(&c->rng) * (double)mean) + 1;
}

/* Of an open loop: the arrival after the one at next_ns. */
static void advance(struct world_client *c)
{
    uint64_t t = c->next_ns + interval(c);
    if (c->config.arrivals == WORLD_ON_OFF) {
        while (t >= c->on_until_ns) { /* what is left of the interval runs on in the next time on */
            t += c->config.off_ns;
            c->on_until_ns += c->config.on_ns + c->config.off_ns;
            if (c->config.on_ns + c->config.off_ns == 0)
                c->on_until_ns = WORLD_NEVER;
        }
    }
    c->next_ns = present(c, t);
    if (c->config.arrivals == WORLD_ON_OFF)
        while (c->next_ns >= c->on_until_ns)
            c->on_until_ns += c->config.on_ns + c->config.off_ns;
    c->due = c->config.arrivals == WORLD_BURSTS ? c->config.outstanding : 1;
}

void world_client_init(struct world_client *c, const struct world_client_config *config, uint64_t seed, uint64_t number)
{
    memset(c, 0, sizeof *c);
    c->config = *config;
    if (c->config.outstanding == 0)
        c->config.outstanding = 1;
    if (c->config.cost_min == 0)
        c->config.cost_min = 1;
    if (c->config.cost_max < c->config.cost_min)
        c->config.cost_max = c->config.cost_min;
    if (c->config.backlog_max == 0)
        c->config.backlog_max = 4096;
    world_rng_init(&c->rng, seed, 0xc11e0000 + number);
    if (c->config.arrivals == WORLD_CLOSED) {
        c->ready = c->config.outstanding;
        c->ready_ns = c->config.start_ns;
        return;
    }
    c->next_ns = c->config.start_ns;
    c->on_until_ns = c->config.start_ns + c->config.on_ns;
    if (c->config.arrivals == WORLD_POISSON || c->config.arrivals == WORLD_ON_OFF)
        advance(c);
    c->due = c->config.arrivals == WORLD_BURSTS ? c->config.outstanding : 1;
}

void world_client_free(struct world_client *c)
{
    world_queue_free(&c->thinks);
}

uint64_t world_client_next_ns(const struct world_client *c)
{
    if (c->config.arrivals != WORLD_CLOSED)
        return c->next_ns;
    if (c->ready)
        return present(c, c->ready_ns);
    return c->thinks.count ? present(c, world_queue_next_ns(&c->thinks)) : WORLD_NEVER;
}

bool world_client_next(struct world_client *c, uint64_t now_ns, struct world_request *out)
{
    struct world_event e;
    uint64_t cost = c->config.cost_min;
    do {
        out->at_ns = world_client_next_ns(c);
        if (out->at_ns > now_ns)
            return false;
        if (c->config.arrivals == WORLD_CLOSED) {
            if (c->ready)
                c->ready--;
            else
                (void)world_queue_take(&c->thinks, now_ns, &e);
            break;
        }
        if (--c->due == 0)
            advance(c);
        if (c->out < c->config.backlog_max)
            break;
        c->dropped++;
    } while (true);
    if (c->config.sizes == WORLD_TWO_COSTS && world_rand(&c->rng) % 10 == 0)
        cost = c->config.cost_max;
    if (c->config.sizes == WORLD_ANY_SIZE)
        cost = world_scale(&c->rng, c->config.cost_min, c->config.cost_max);
    out->cost = cost;
    out->claim = c->config.estimate ? (uint64_t)((double)cost * c->config.estimate / 1000.0) : cost;
    if (out->claim == 0)
        out->claim = 1;
    out->offset = world_rand(&c->rng) >> 32;
    out->write = world_chance(&c->rng, c->config.writes);
    c->made++;
    c->out++;
    return true;
}

void world_client_done(struct world_client *c, uint64_t now_ns)
{
    c->out--;
    if (c->config.arrivals != WORLD_CLOSED)
        return;
    if (c->config.think_ns) {
        world_queue_add(&c->thinks, now_ns + (uint64_t)(world_exponential(&c->rng) * (double)c->config.think_ns), 0, 0);
        return;
    }
    c->ready++;
    c->ready_ns = now_ns;
}
