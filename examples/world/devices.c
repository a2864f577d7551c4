#include "devices.h"

static uint32_t channels_of(const struct world_device_config *c)
{
    return c->channels ? c->channels : 1;
}

static double capacity_at(const struct world_device_config *c, uint64_t now_ns)
{
    if (c->step_capacity && now_ns >= c->step_ns && (c->back_ns == 0 || now_ns < c->back_ns))
        return c->step_capacity / 1000.0;
    return (c->capacity ? c->capacity : 1000) / 1000.0;
}

/* A pause number k is at the end of the k-th period; of a device whose channels pause in turn it is that of channel
 * k mod M. The first pause of this channel that ends after now_ns. */
static bool next_pause(const struct world_device_config *c, uint32_t channel, uint64_t now_ns, uint64_t *from_ns,
                       uint64_t *to_ns)
{
    uint64_t k;
    if (c->pause_every_ns == 0 || c->pause_ns == 0)
        return false;
    for (k = now_ns / c->pause_every_ns;; k++) {
        *to_ns = (k + 1) * c->pause_every_ns;
        *from_ns = *to_ns - c->pause_ns;
        if (!c->pause_channel || k % channels_of(c) == channel)
            return true;
    }
}

/* When work of `left` ns that begins at now_ns on this channel is done. */
static uint64_t end_of(const struct world_device_config *c, uint32_t channel, uint64_t now_ns, uint64_t left)
{
    uint64_t from_ns, to_ns;
    while (next_pause(c, channel, now_ns, &from_ns, &to_ns)) {
        if (now_ns < from_ns) {
            if (left <= from_ns - now_ns)
                break;
            left -= from_ns - now_ns;
        }
        now_ns = to_ns;
    }
    return now_ns + left;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

/* A disk: the seek grows with the root of the distance, a fifth of the longest at least; then the platter turns until
 * the offset is below the head. Each of 2^16 tracks is one turn. */
static uint64_t reach_ns(const struct world_device *d, uint32_t channel, uint64_t now_ns, uint64_t offset)
{
    const struct world_device_config *c = &d->config;
    uint64_t seek = 0, there, angle;
    if (c->seek_ns == 0 && c->turn_ns == 0)
        return 0;
    if (d->head[channel] / 65536 != offset / 65536)
        seek = (uint64_t)((double)c->seek_ns *
                          (0.2 + 0.8 * sqrt((double)distance(d->head[channel], offset) / (double)WORLD_OFFSETS)));
    if (c->turn_ns == 0)
        return seek;
    there = (now_ns + seek) % c->turn_ns;
    angle = (uint64_t)((double)(offset % 65536) / 65536 * (double)c->turn_ns);
    return seek + (angle >= there ? angle - there : c->turn_ns - there + angle);
}

static double variation(struct world_device *d, const struct world_io *io)
{
    switch (d->config.spread) {
    case WORLD_FIXED: break;
    case WORLD_TEN: return 0.9 + 0.2 * world_unit(&d->rng);
    case WORLD_THIRTY: return 0.7 + 0.6 * world_unit(&d->rng);
    case WORLD_EXPONENTIAL: return world_exponential(&d->rng);
    case WORLD_LOGNORMAL: return world_lognormal(&d->rng, 0.7);
    case WORLD_TWO_SIZES: return world_rand(&d->rng) % 10 ? 0.5 : 5.5;
    case WORLD_READ_WRITE: return io->write ? 4 : 1;
    }
    return 1;
}

/* Provisioned: for how long the volume holds a request of this cost. */
static uint64_t hold_ns(struct world_device *d, uint64_t now_ns, double cost)
{
    double rate = d->config.provisioned / 1000.0, most = rate * 2e6;
    uint64_t held = 0;
    if (d->config.provisioned == 0)
        return 0;
    d->credit_ns += rate * (double)(now_ns - d->credit_at_ns);
    d->credit_at_ns = now_ns;
    if (d->credit_ns > most)
        d->credit_ns = most;
    d->credit_ns -= cost;
    if (d->credit_ns < 0)
        held = ((uint64_t)(-d->credit_ns / (rate * 3e6)) + 1) * 3000000;
    return held;
}

static void begin(struct world_device *d, uint32_t channel, uint64_t now_ns, const struct world_io *io)
{
    struct world_io *b = &d->busy[channel];
    double work;
    uint64_t extra;
    *b = *io;
    b->begin_ns = now_ns;
    work = (double)b->cost_ns * variation(d, b) * channels_of(&d->config) / capacity_at(&d->config, now_ns);
    extra = reach_ns(d, channel, now_ns, b->offset) + hold_ns(d, now_ns, (double)b->cost_ns);
    b->end_ns = end_of(&d->config, channel, now_ns, (uint64_t)work + 1 + extra);
    d->head[channel] = b->offset;
    d->idle[channel / 64] &= ~(UINT64_C(1) << channel % 64);
    d->working++;
    world_queue_add(&d->ends, b->end_ns, 0, channel);
}

/* Index in the lane of the request that the channel does next; the lane is not empty. */
static size_t chosen(struct world_device *d, const struct world_lane *l, uint32_t channel, uint64_t now_ns)
{
    size_t i, best = l->first;
    uint64_t key, least = UINT64_MAX;
    switch (d->config.order) {
    case WORLD_IN_ORDER: return l->first;
    case WORLD_ANY: return l->first + (size_t)(world_rand(&d->rng) % (l->count - l->first));
    case WORLD_ELEVATOR:
    case WORLD_SHORTEST:
    case WORLD_NEAREST: break;
    }
    for (i = l->first; i < l->count; i++) {
        const struct world_io *io = &l->list[i];
        if (d->config.order == WORLD_SHORTEST)
            key = io->cost_ns;
        else if (d->config.order == WORLD_ELEVATOR)
            key = io->offset >= d->head[channel] ? io->offset - d->head[channel] : WORLD_OFFSETS + io->offset;
        else if (d->config.seek_ns || d->config.turn_ns)
            key = reach_ns(d, channel, now_ns, io->offset);
        else
            key = distance(d->head[channel], io->offset);
        if (key < least) {
            least = key;
            best = i;
        }
    }
    return best;
}

static void begin_next(struct world_device *d, uint32_t channel, uint64_t now_ns)
{
    struct world_lane *l = &d->lane[d->config.hashed ? channel : 0];
    struct world_io io;
    size_t i;
    if (l->first == l->count)
        return;
    i = chosen(d, l, channel, now_ns);
    io = l->list[i];
    if (i != l->first)
        memmove(&l->list[l->first + 1], &l->list[l->first], (i - l->first) * sizeof *l->list);
    l->first++;
    d->waiting--;
    begin(d, channel, now_ns, &io);
}

void world_device_init(struct world_device *d, const struct world_device_config *config, uint64_t seed)
{
    uint32_t i, m = channels_of(config);
    memset(d, 0, sizeof *d);
    d->config = *config;
    world_rng_init(&d->rng, seed, 0xde71ce);
    d->lane = (struct world_lane *)world_alloc(config->hashed ? m : 1, sizeof *d->lane);
    for (i = 0; i < m; i++)
        d->idle[i / 64] |= UINT64_C(1) << i % 64;
}

void world_device_free(struct world_device *d)
{
    uint32_t i;
    for (i = 0; i < (d->config.hashed ? channels_of(&d->config) : 1); i++)
        free(d->lane[i].list);
    free(d->lane);
    world_queue_free(&d->ends);
}

void world_device_submit(struct world_device *d, uint64_t now_ns, const struct world_io *io)
{
    struct world_io copy = *io;
    struct world_lane *l;
    uint32_t i, channel = UINT32_MAX;
    copy.submit_ns = now_ns;
    if (d->config.hashed) {
        /* Fibonacci hashing: neighbours in offset lie on different channels. */
        channel = (uint32_t)(((copy.offset & UINT32_MAX) * UINT64_C(2654435769) % WORLD_OFFSETS) *
                             channels_of(&d->config) / WORLD_OFFSETS);
        l = &d->lane[channel];
        if (!(d->idle[channel / 64] >> channel % 64 & 1))
            channel = UINT32_MAX;
    } else {
        l = &d->lane[0];
        for (i = 0; i < WORLD_CHANNELS_MAX / 64 && channel == UINT32_MAX; i++)
            if (d->idle[i])
                channel = 64 * i + (uint32_t)__builtin_ctzll(d->idle[i]);
    }
    if (channel != UINT32_MAX) {
        begin(d, channel, now_ns, &copy);
        return;
    }
    if (l->count == l->room && l->first > l->count / 2) { /* reuse the room of those that have begun */
        memmove(l->list, &l->list[l->first], (l->count - l->first) * sizeof *l->list);
        l->count -= l->first;
        l->first = 0;
    }
    l->list = (struct world_io *)world_grow(l->list, l->count, &l->room, sizeof *l->list);
    l->list[l->count++] = copy;
    d->waiting++;
}

bool world_device_take(struct world_device *d, uint64_t now_ns, struct world_io *out)
{
    struct world_event e;
    if (!world_queue_take(&d->ends, now_ns, &e))
        return false;
    *out = d->busy[e.index];
    d->idle[e.index / 64] |= UINT64_C(1) << e.index % 64;
    d->working--;
    d->done++;
    d->done_cost_ns += out->cost_ns;
    begin_next(d, e.index, out->end_ns);
    return true;
}

static double could_without_pauses(const struct world_device_config *c, uint64_t from_ns, uint64_t to_ns)
{
    const uint64_t last = c->back_ns && c->back_ns < to_ns ? c->back_ns : to_ns;
    const uint64_t first = c->step_ns > from_ns ? c->step_ns : from_ns;
    double all, step, rate;
    if (to_ns <= from_ns)
        return 0;
    all = (double)(to_ns - from_ns);
    step = c->step_capacity && last > first ? (double)(last - first) : 0;
    rate = (all - step) * (c->capacity ? c->capacity : 1000) / 1000.0 + step * c->step_capacity / 1000.0;
    return c->provisioned && rate > all * c->provisioned / 1000.0 ? all * c->provisioned / 1000.0 : rate;
}

double world_device_could_ns(const struct world_device_config *c, uint64_t from_ns, uint64_t to_ns)
{
    double could = could_without_pauses(c, from_ns, to_ns), part = c->pause_channel ? 1.0 / channels_of(c) : 1;
    uint64_t t = from_ns, begin_ns, end_ns;
    struct world_device_config all = *c;
    all.pause_channel = false;
    while (t < to_ns && next_pause(&all, 0, t, &begin_ns, &end_ns)) {
        if (begin_ns < t)
            begin_ns = t;
        t = end_ns;
        if (begin_ns < to_ns)
            could -= part * could_without_pauses(c, begin_ns, end_ns < to_ns ? end_ns : to_ns);
    }
    return could;
}

bool world_device_pauses(const struct world_device_config *c, uint64_t from_ns, uint64_t to_ns)
{
    struct world_device_config all = *c;
    uint64_t begin_ns, end_ns;
    all.pause_channel = false;
    return next_pause(&all, 0, from_ns, &begin_ns, &end_ns) && begin_ns < to_ns;
}
