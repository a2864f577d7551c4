#include "devices.h"

static uint32_t channels_of(const struct world_device_config *c)
{
    return c->channels ? c->channels : 1;
}

enum { CHANNEL = 0, ASIDE = 1 }; /* events */

static double capacity_at(const struct world_device_config *c, uint64_t now_ns)
{
    if (c->step_every_ns) {
        if (c->step_capacity && now_ns / c->step_every_ns % 2)
            return c->step_capacity / 1000.0;
    } else if (c->step_capacity && now_ns >= c->step_ns && (c->back_ns == 0 || now_ns < c->back_ns))
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

/* Provisioned: for how long the volume holds a request of this cost; or, if it has credit, its capacity. */
static uint64_t hold_ns(struct world_device *d, uint64_t now_ns, double cost, double *capacity)
{
    double rate = d->config.provisioned / 1000.0, most = d->config.credit_ns ? (double)d->config.credit_ns : rate * 2e6;
    uint64_t held = 0;
    if (d->config.provisioned == 0)
        return 0;
    d->credit_ns += rate * (double)(now_ns - d->credit_at_ns);
    d->credit_at_ns = now_ns;
    if (d->credit_ns > most)
        d->credit_ns = most;
    if (d->config.credit_ns && d->credit_ns < 0 && *capacity > rate)
        *capacity = rate;
    d->credit_ns -= cost;
    if (d->config.credit_ns == 0 && d->credit_ns < 0)
        held = ((uint64_t)(-d->credit_ns / (rate * 3e6)) + 1) * 3000000;
    return held;
}

static void set_aside(struct world_device *d, uint64_t end_ns, const struct world_io *io)
{
    size_t i = 0;
    while (i < d->asides && d->aside[i].used)
        i++;
    d->aside = (struct world_aside *)world_grow(d->aside, i, &d->aside_room, sizeof *d->aside);
    d->asides = i == d->asides ? i + 1 : d->asides;
    d->aside[i].io = *io;
    d->aside[i].io.end_ns = end_ns;
    d->aside[i].used = true;
    d->aside[i].aborted = false;
    if (end_ns != WORLD_NEVER)
        world_queue_add(&d->ends, end_ns, ASIDE, (uint32_t)i);
}

/* True: a request that would begin now hangs. */
static bool hangs(struct world_device *d, uint64_t now_ns, const struct world_io *io)
{
    const struct world_device_config *c = &d->config;
    struct world_io copy = *io;
    if (c->hang_every_ns == 0 || now_ns < c->hang_every_ns)
        return false;
    if (now_ns / c->hang_every_ns != d->hang_period) {
        d->hang_period = now_ns / c->hang_every_ns;
        d->hung = 0;
    }
    if (d->hung >= c->hangs)
        return false;
    d->hung++;
    copy.hung = true;
    copy.begin_ns = now_ns;
    set_aside(d, c->hang_ns == WORLD_NEVER ? WORLD_NEVER : now_ns + c->hang_ns, &copy);
    return true;
}

/* Work of a request at a channel; in the time that it takes its capacity does not change. */
static double work_of(struct world_device *d, uint64_t now_ns, struct world_io *io, uint64_t *extra_ns)
{
    double capacity = capacity_at(&d->config, now_ns);
    const double varied = variation(d, io);
    *extra_ns = hold_ns(d, now_ns, (double)io->cost_ns, &capacity);
    return (double)io->cost_ns * varied * channels_of(&d->config) / capacity;
}

/* False: it hangs, and the channel has no work. */
static bool begin(struct world_device *d, uint32_t channel, uint64_t now_ns, const struct world_io *io)
{
    struct world_io *b = &d->busy[channel];
    double work;
    uint64_t extra, reach;
    if (hangs(d, now_ns, io))
        return false;
    *b = *io;
    b->begin_ns = now_ns;
    work = work_of(d, now_ns, b, &extra);
    reach = reach_ns(d, channel, now_ns, b->offset);
    b->end_ns = end_of(&d->config, channel, now_ns > d->stopped_ns ? now_ns : d->stopped_ns,
                       (uint64_t)work + 1 + extra + reach);
    d->head[channel] = b->offset;
    d->idle[channel / 64] &= ~(UINT64_C(1) << channel % 64);
    d->working++;
    world_queue_add(&d->ends, b->end_ns, CHANNEL, channel);
    return true;
}

/* ---- processor sharing: the work that each request gets is one clock for all ------------------------------------------ */

/* How many requests a channel's capacity is shared by. */
static double crowd(const struct world_device *d)
{
    const double m = channels_of(&d->config), n = (double)d->shareds;
    return n > m ? n / m : 1;
}

static void share_until(struct world_device *d, uint64_t now_ns)
{
    if (d->shareds)
        d->share += (double)(now_ns - d->share_at_ns) / crowd(d);
    d->share_at_ns = now_ns;
}

static size_t share_first(const struct world_device *d)
{
    size_t i, first = 0;
    for (i = 1; i < d->shareds; i++)
        if (d->shared[i].end < d->shared[first].end)
            first = i;
    return first;
}

static void share_next(struct world_device *d)
{
    double left;
    if (d->shareds == 0)
        return;
    left = (d->shared[share_first(d)].end - d->share) * crowd(d);
    d->share_ns = d->share_at_ns + (left > 0 ? (uint64_t)left : 0) + 1;
}

static void share_begin(struct world_device *d, uint64_t now_ns, const struct world_io *io)
{
    struct world_shared *s;
    uint64_t extra;
    if (hangs(d, now_ns, io))
        return;
    share_until(d, now_ns);
    d->shared = (struct world_shared *)world_grow(d->shared, d->shareds, &d->shared_room, sizeof *d->shared);
    s = &d->shared[d->shareds++];
    s->io = *io;
    s->io.begin_ns = now_ns;
    s->end = d->share + work_of(d, now_ns, &s->io, &extra);
    s->end += (double)extra;
    d->working++;
    share_next(d);
}

static void share_end(struct world_device *d, struct world_io *out)
{
    const size_t first = share_first(d);
    share_until(d, d->share_ns);
    *out = d->shared[first].io;
    out->end_ns = d->share_ns;
    d->shared[first] = d->shared[--d->shareds];
    d->working--;
    share_next(d);
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
    do {
        if (l->first == l->count)
            return;
        i = chosen(d, l, channel, now_ns);
        io = l->list[i];
        if (i != l->first)
            memmove(&l->list[l->first + 1], &l->list[l->first], (i - l->first) * sizeof *l->list);
        l->first++;
        d->waiting--;
    } while (!begin(d, channel, now_ns, &io));
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
    d->credit_ns = (double)config->credit_ns;
}

void world_device_free(struct world_device *d)
{
    uint32_t i;
    for (i = 0; i < (d->config.hashed ? channels_of(&d->config) : 1); i++)
        free(d->lane[i].list);
    free(d->lane);
    free(d->aside);
    free(d->shared);
    world_queue_free(&d->ends);
}

void world_device_submit(struct world_device *d, uint64_t now_ns, const struct world_io *io)
{
    struct world_io copy = *io;
    struct world_lane *l;
    uint32_t i, channel = UINT32_MAX;
    copy.submit_ns = now_ns;
    copy.hung = false;
    if (d->config.shares) {
        share_begin(d, now_ns, &copy);
        return;
    }
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
        (void)begin(d, channel, now_ns, &copy);
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

/* True: it is done, and known to be. */
static bool is_done(struct world_device *d, const struct world_io *io)
{
    if (d->config.link_ns && !io->hung) {
        set_aside(d, io->end_ns + d->config.link_ns, io);
        return false;
    }
    d->done++;
    d->done_cost_ns += io->cost_ns;
    return true;
}

bool world_device_take(struct world_device *d, uint64_t now_ns, struct world_io *out)
{
    struct world_event e;
    bool done = false;
    while (!done) {
        if (d->shareds && d->share_ns <= now_ns && d->share_ns <= world_queue_next_ns(&d->ends)) {
            share_end(d, out);
            done = is_done(d, out);
            continue;
        }
        if (!world_queue_take(&d->ends, now_ns, &e))
            return false;
        if (e.kind == ASIDE) {
            *out = d->aside[e.index].io;
            d->aside[e.index].used = false;
            done = !d->aside[e.index].aborted;
            d->done += done;
            d->done_cost_ns += done ? out->cost_ns : 0;
            continue;
        }
        *out = d->busy[e.index];
        d->idle[e.index / 64] |= UINT64_C(1) << e.index % 64;
        d->working--;
        done = is_done(d, out);
        begin_next(d, e.index, d->busy[e.index].end_ns);
    }
    return true;
}

bool world_device_abort(struct world_device *d, uint64_t now_ns, struct world_io *out)
{
    size_t i;
    for (i = 0; i < d->asides; i++) {
        struct world_aside *a = &d->aside[i];
        if (!a->used || a->aborted || !a->io.hung)
            continue;
        *out = a->io;
        a->aborted = true; /* its event, if it has one, is still to come */
        a->used = out->end_ns != WORLD_NEVER;
        out->end_ns = now_ns;
        return true;
    }
    return false;
}

void world_device_stop(struct world_device *d, uint64_t now_ns, uint64_t until_ns)
{
    const uint64_t from_ns = now_ns > d->stopped_ns ? now_ns : d->stopped_ns;
    struct world_queue ends;
    struct world_event e;
    if (until_ns <= from_ns)
        return;
    memset(&ends, 0, sizeof ends);
    d->stopped_ns = until_ns;
    while (world_queue_take(&d->ends, WORLD_NEVER, &e)) {
        if (e.kind == CHANNEL)
            e.at_ns = d->busy[e.index].end_ns += until_ns - from_ns;
        world_queue_add(&ends, e.at_ns, e.kind, e.index);
    }
    world_queue_free(&d->ends);
    d->ends = ends;
}

/* Of the times in which the capacity is another one, what lies before t_ns. */
static uint64_t stepped_ns(uint64_t every_ns, uint64_t t_ns)
{
    const uint64_t rest = t_ns % (2 * every_ns);
    return t_ns / (2 * every_ns) * every_ns + (rest > every_ns ? rest - every_ns : 0);
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
    if (c->step_every_ns)
        step = c->step_capacity ? (double)(stepped_ns(c->step_every_ns, to_ns) - stepped_ns(c->step_every_ns, from_ns))
                                : 0;
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
