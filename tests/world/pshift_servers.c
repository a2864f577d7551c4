// proves: pshift.h between servers that each run tags.h or htb.h keeps the promises of both, as docs/which-header.md
// proves: joins them: limits and reservations hold over the cluster, surplus goes by weight, no device idles
// scale: 2
#define WORLD_SERVERS 1
#define WORLD_HEADER "pshift_servers"
#define WORLD_LATER F_SEEK
#define WORLD_LATER_COHORT F_ON
#define WORLD_DRAW_MORE(w, r)                                                                                          \
    if ((w)->seed % 8 == 1)                                                                                            \
    world_draw_later(w, r)
#define WORLD_OWN_LATER(X) WORLD_DEVICE_FIELDS(X)
#define WORLD_OWN(X)                                                                                                   \
    X(SCHEDULER, "scheduler", "tags htb htb_by_rate")                                                                  \
    X(GREEDY, "greedy", "10 1 0")                                                                                      \
    X(CHANNELS, "channels", "1 2 8")                                                                                   \
    X(DEPTH, "at_device", "4 1 32")                                                                                    \
    X(ORDER, "device_order", "in_order elevator shortest any")                                                         \
    X(VARIES, "varies", "fixed 10 30")                                                                                 \
    X(OVER, "faster", "1110 1500 3000")
#define WORLD_OWN_COHORT(X)                                                                                            \
    X(WEIGHT, "weight", "1 2 10")                                                                                      \
    WORLD_CLIENT_FIELDS(X)
#define WORLD_BUCKETS "1 0 2 4"
#include "pshift.c"
#include "htb.h"
#include "tags.h"

#define INSIDE 32u                          /* most requests of a bucket that a server's scheduler has */
#define REQUESTS (BUCKETS * INSIDE + 4096u) /* and those at the device, forced ones too */
#define TOKENS 1000u                        /* of htb.h, for a request */

enum life { NOWHERE = 0, WAITS, AT_DEVICE, AT_DEVICE_FORCED };

/* What server j runs. A device works on by itself; the server looks at it in serve(). */
static struct own {
    struct tags tags;
    struct htb tree;
    struct world_device device;
    struct request {
        struct htb_request htb;
        struct tags_grant grant;
        enum life life;
        uint32_t bucket;
    } request[REQUESTS];
    uint32_t unused[REQUESTS], unused_count, depth, at_device;
    uint32_t line[BUCKETS][INSIDE], inside[BUCKETS]; /* those that wait inside, the oldest first (htb.h: which) */
    uint64_t rate[BUCKETS], serve_ns;                /* reservation set there; when serve() is due */
    double ahead[BUCKETS][BUCKETS], low[BUCKETS][BUCKETS], high[BUCKETS][BUCKETS]; /* `surplus`: i beside k */
    double part, most_part[BUCKETS]; /* of its capacity that is reserved now; the most since then: */
    uint64_t since_ns[BUCKETS];      /* `waits`: i waits, and was given nothing */
    uint64_t crowded_ns;             /* when more than 0.9 of it was last reserved */
    bool device_on;
} own[SERVERS];
static unsigned char own_memory[SERVERS][1 << 17] __attribute__((aligned(64)));

static bool by_tags(void)
{
    return world_choice(run.w, F_SCHEDULER) == 0;
}

/* `greedy`: the weight of one more bucket, which reserves nothing and wants three times what there is; 0: there is
 * none. Its cohort's fields are all 0. */
static void serve_draw(void)
{
    struct bucket *b = &bucket[run.buckets];
    struct taken *journal = b->journal;
    size_t room = b->room;
    uint32_t j;
    if (world_value(run.w, F_GREEDY) < 1 || run.buckets == BUCKETS)
        return;
    memset(b, 0, sizeof *b);
    b->journal = journal;
    b->room = room;
    b->cohort = WORLD_COHORTS;
    b->id = 1 + run.buckets++ * UINT64_C(0x1000193);
    b->limit = QOS_UNLIMITED;
    for (j = 0; j < run.servers; j++) {
        b->at[j] = true;
        b->rate[j] = 3 * (double)server[j].capacity;
    }
}

static uint32_t weight_of(uint32_t i)
{
    if (bucket[i].cohort == WORLD_COHORTS)
        return (uint32_t)world_value(run.w, F_GREEDY);
    return (uint32_t)world_value(run.w, world_of(bucket[i].cohort, F_WEIGHT));
}

/* The time of a request on a device that does `capacity` of them in a period. */
static double request_ns(uint32_t j)
{
    return (double)T / (double)server[j].capacity;
}

static uint32_t channels(void)
{
    return world_value(run.w, F_CAPACITY) < 200 ? 1 : (uint32_t)world_value(run.w, F_CHANNELS);
}

/* Its devices give what they should at any time. */
static bool own_steady(void)
{
    return !(world_choice(run.w, F_SEEK) || world_choice(run.w, F_CREDIT) || world_choice(run.w, F_LINK) ||
             world_choice(run.w, F_HANGS) || world_choice(run.w, F_FASTER));
}

/* Requests at the device: at least two for each channel, at most a tenth of what a period serves. */
static uint32_t depth_of(uint32_t j)
{
    uint32_t depth = (uint32_t)world_value(run.w, F_DEPTH), least = 2 * channels();
    depth = depth > server[j].capacity / 10 ? (uint32_t)(server[j].capacity / 10) : depth;
    return depth < least ? least : depth;
}

/* Devices that do not give what they should at any time keep no reservations (nor waits).
 * What a tenant may miss beyond what pshift.h's rounds cost: at each server two requests (tags.h; htb.h: one and a
 * bucket) and what it reserved for the time of those at the device (htb.h: of one request of each class). */
static double serve_slack(uint32_t i)
{
    double most_ns = own_steady() ? 0 : 1e18;
    uint32_t j;
    for (j = 0; j < run.servers; j++) {
        double ns = by_tags() ? (depth_of(j) + 1) * request_ns(j) : run.buckets * request_ns(j) + 2e7;
        most_ns = ns > most_ns ? ns : most_ns;
    }
    return 2.0 * run.servers + (double)bucket[i].reservation * most_ns / (double)T;
}

/* The tokens of bucket i at server j, as its agent says. They end when the period does, but for buckets without a
 * limit. */
static uint64_t tokens_of(uint32_t j, uint32_t i, uint64_t shown, struct pshift_scheduler_state *info)
{
    struct pshift_agent_state agent;
    (void)pshift_scheduler_info(&server[j].scheduler, server[j].queue[i], info);
    (void)pshift_agent_info(&server[j].agent, &agent);
    if (info->l_tokens == QOS_UNLIMITED)
        return QOS_UNLIMITED;
    return shown < agent.ends_ns ? info->r_tokens + info->l_tokens : 0;
}

/* ---- oracles --------------------------------------------------------------------------------------------------- */

/* The usual lag of tags.h, per weight: a request of each that waits beside bucket k, bucket i among them, over the sum of
 * their weights. It is the largest when the lightest ones wait. */
static double lag_of(uint32_t i, uint32_t k)
{
    double most = 0;
    uint32_t b, heaviest;
    for (heaviest = 0; heaviest < run.buckets; heaviest++) {
        double requests = 0, weights = 0;
        for (b = 0; b < run.buckets; b++)
            if (b == i || (b != k && weight_of(b) <= weight_of(heaviest))) {
                requests++;
                weights += weight_of(b);
            }
        most = requests / weights > most ? requests / weights : most;
    }
    return most;
}

/* Promise `surplus`: of two tenants without a reservation that both wait at a server with tokens, what each was given
 * per weight differs by at most a request of each. By tags.h such a one is ahead of one with a reservation by at most
 * its own request, 16 of the other (lead_requests), and the usual lag. */
static void judge_surplus(uint32_t j, uint32_t i)
{
    struct own *o = &own[j];
    uint32_t k;
    for (k = 0; k < run.buckets; k++) {
        double most = 1.0 / weight_of(i) + 1.0 / weight_of(k);
        if (k == i || o->inside[k] == 0)
            continue;
        if (bucket[i].reservation && !bucket[k].reservation) {
            o->ahead[k][i] -= 1.0 / weight_of(i);
            o->ahead[k][i] = o->ahead[k][i] > 0 ? o->ahead[k][i] : 0;
        }
        if (bucket[k].reservation && !bucket[i].reservation) {
            o->ahead[i][k] += 1.0 / weight_of(i);
            if (by_tags() && o->ahead[i][k] > most + 15.0 / weight_of(k) + lag_of(i, k) + 0.001)
                world_fail(run.w, "surplus", run.now,
                           "server %" PRIu32 ": bucket %" PRIu32 " is %.3f requests per weight ahead of %" PRIu32
                           ", which waits",
                           j, i, o->ahead[i][k], k);
        }
        if (bucket[i].reservation || bucket[k].reservation)
            continue;
        o->ahead[i][k] += 1.0 / weight_of(i);
        o->ahead[k][i] = -o->ahead[i][k];
        o->high[i][k] = o->ahead[i][k] > o->high[i][k] ? o->ahead[i][k] : o->high[i][k];
        o->low[k][i] = -o->high[i][k];
        if (o->high[i][k] - o->low[i][k] > most * 1.001)
            world_fail(run.w, "surplus", run.now,
                       "server %" PRIu32 ": buckets %" PRIu32 " and %" PRIu32
                       " wait, and differ by %.3f requests per weight, allowed %.3f",
                       j, i, k, o->high[i][k] - o->low[i][k], most);
    }
}

/* Promise `waits`: who waits with tokens gets a request after those of each other tenant, as many as its weight is
 * larger, and those at the device, in the time that reservations leave; when nothing fails, and for a period they have
 * left a tenth: what they missed is made up first. By htb.h two bursts of all may go before: that was theirs. */
static void judge_wait(uint32_t j, uint32_t i)
{
    struct own *o = &own[j];
    double weights = 0, most, part = o->most_part[i];
    uint32_t k;
    for (k = 0; k < run.buckets; k++)
        weights += weight_of(k);
    if (by_tags() && bucket[i].reservation) /* reservations may let its share lead by lead_requests */
        weights *= 16;
    most = (weights / weight_of(i) + run.buckets + o->depth + 2) * request_ns(j);
    most = (most + (by_tags() ? 0 : 2e7)) / (1 - part);
    most *= world_choice(run.w, F_VARIES) ? 1.2 : 1;
    if (run.quiet && own_steady() && o->since_ns[i] > run.quiet_ns && o->since_ns[i] > o->crowded_ns + T &&
        (double)(run.now - o->since_ns[i]) > most)
        world_fail(run.w, "waits", run.now, "server %" PRIu32 ": bucket %" PRIu32 " waits for %.3f ms, allowed %.3f", j,
                   i, (double)(run.now - o->since_ns[i]) / 1e6, most / 1e6);
    o->since_ns[i] = run.now;
    o->most_part[i] = o->part;
}

/* Bucket i begins or ends to wait inside. */
static void waits_anew(struct own *o, uint32_t i)
{
    uint32_t k;
    o->since_ns[i] = run.now;
    o->most_part[i] = o->part;
    for (k = 0; k < run.buckets; k++)
        o->ahead[i][k] = o->ahead[k][i] = o->low[i][k] = o->low[k][i] = o->high[i][k] = o->high[k][i] = 0;
}

/* Promise `idle`: tags.h leaves no place at the device free while a request waits that has a token; htb.h by flight
 * leaves the device no time without work. */
static void judge_idle(uint32_t j, uint64_t shown)
{
    const struct own *o = &own[j];
    /* Over a link what is on its way back is work, too; until a request counts as one that hangs it takes room. */
    const bool busy = world_choice(run.w, F_LINK) || world_choice(run.w, F_HANGS) ? o->at_device : o->device.working;
    struct pshift_scheduler_state info;
    uint32_t i;
    if (by_tags() ? o->at_device >= o->depth : busy || world_choice(run.w, F_SCHEDULER) == 2)
        return;
    for (i = 0; i < run.buckets; i++)
        if (server[j].open[i] && tokens_of(j, i, shown, &info) && info.pending)
            world_fail(run.w, "idle", run.now,
                       "server %" PRIu32 " has room, and bucket %" PRIu32 " waits with tokens for it", j, i);
}

/* ---- the join: docs/which-header.md ---------------------------------------------------------------------------- */

/* As many requests of bucket i as it has tokens wait inside, at most INSIDE. */
static void align(uint32_t j, uint32_t i, uint64_t shown)
{
    struct own *o = &own[j];
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    uint64_t most = server[j].open[i] ? tokens_of(j, i, shown, &info) : 0;
    uint32_t before = o->inside[i], now;
    most = most < info.pending ? most : info.pending;
    now = most < INSIDE ? (uint32_t)most : INSIDE;
    if (by_tags()) {
        if ((now > before && tags_arrive(&o->tags, shown, i, now - before, 1) != QOS_OK) ||
            (now < before && tags_withdraw(&o->tags, shown, i, before - now) != QOS_OK))
            world_fail(run.w, "once", run.now, "server %" PRIu32 ": a request cannot come or go", j);
        o->inside[i] = now;
    }
    while (o->inside[i] != now && !run.w->broken) {
        uint32_t id = o->inside[i] < now ? o->unused[--o->unused_count] : o->line[i][o->inside[i] - 1];
        struct request *r = &o->request[id];
        if (o->inside[i] < now) {
            r->htb.class_id = i + 1;
            r->htb.tokens[0] = TOKENS;
            r->bucket = i;
            r->life = WAITS;
            o->line[i][o->inside[i]++] = id;
            if (htb_submit(&o->tree, shown, &r->htb) != QOS_OK)
                world_fail(run.w, "once", run.now, "server %" PRIu32 ": a request is refused", j);
        } else {
            r->life = NOWHERE;
            o->unused[o->unused_count++] = id;
            o->inside[i]--;
            if (htb_cancel(&o->tree, shown, &r->htb) != QOS_OK)
                world_fail(run.w, "once", run.now, "server %" PRIu32 ": a queued request cannot be cancelled", j);
        }
    }
    if ((before != 0) != (now != 0))
        waits_anew(o, i);
}

static void to_device(uint32_t j, uint32_t id, enum life life)
{
    struct own *o = &own[j];
    struct world_io io;
    memset(&io, 0, sizeof io);
    io.id = id;
    io.cost_ns = (uint64_t)request_ns(j);
    io.offset = world_rand(&run.rng) >> 32;
    o->request[id].life = life;
    o->at_device += life == AT_DEVICE;
    world_device_submit(&o->device, run.now, &io);
}

static void serve_forced(uint32_t j, uint32_t i)
{
    struct own *o = &own[j];
    uint32_t id = o->unused[--o->unused_count];
    o->request[id].bucket = i;
    to_device(j, id, AT_DEVICE_FORCED);
}

/* The scheduler gave a request of bucket i: it takes its token. */
static void given(uint32_t j, uint32_t i, uint32_t id, uint64_t shown)
{
    struct own *o = &own[j];
    struct server *s = &server[j];
    struct pshift_scheduler_state info;
    uint64_t debt;
    (void)pshift_scheduler_info(&s->scheduler, s->queue[i], &info);
    debt = info.debt;
    if (pshift_scheduler_force(&s->scheduler, shown, s->queue[i]) != QOS_OK)
        world_fail(run.w, "once", run.now, "server %" PRIu32 " gives a request of bucket %" PRIu32 ", and none waits",
                   j, i);
    (void)pshift_scheduler_info(&s->scheduler, s->queue[i], &info);
    if (info.debt > debt) /* Promise `token`: a request that is given has one. */
        world_fail(run.w, "token", run.now, "server %" PRIu32 " gives a request of bucket %" PRIu32 " without a token",
                   j, i);
    took(j, i, false);
    if (s->served[i] + s->cancelled[i] > s->arrived[i])
        world_fail(run.w, "once", run.now, "bucket %" PRIu32 ": more requests served than arrived", i);
    judge_surplus(j, i);
    judge_wait(j, i);
    to_device(j, id, AT_DEVICE);
    o->inside[i]--;
    if (o->inside[i] == 0)
        waits_anew(o, i);
    align(j, i, shown);
}

static void completed(uint32_t j, const struct world_io *io, uint64_t shown, bool aborted)
{
    struct own *o = &own[j];
    struct request *r = &o->request[io->id];
    enum qos_status s = QOS_OK;
    if (r->life == AT_DEVICE) {
        o->at_device--;
        s = !by_tags() ? htb_complete(&o->tree, shown, aborted ? HTB_NOT_DONE : HTB_DONE, NULL, &r->htb)
            : aborted  ? tags_cancel(&o->tags, shown, &r->grant)
                       : tags_complete(&o->tags, shown, &r->grant, io->end_ns - io->begin_ns);
    }
    if (s != QOS_OK || r->life < AT_DEVICE)
        world_fail(run.w, "once", run.now, "server %" PRIu32 ": a completion is refused", j);
    r->life = NOWHERE;
    o->unused[o->unused_count++] = io->id;
}

/* The next request that server j's scheduler gives; false: none. */
static bool dispatch(uint32_t j, uint64_t shown)
{
    struct own *o = &own[j];
    struct htb_request *h;
    uint32_t id, i, k;
    if (by_tags()) {
        struct tags_grant grant;
        if (o->at_device >= o->depth || tags_pull(&o->tags, shown, 1, &grant) != QOS_OK)
            return false;
        id = o->unused[--o->unused_count];
        o->request[id].grant = grant;
        o->request[id].bucket = grant.client;
        given(j, grant.client, id, shown);
        return true;
    }
    h = htb_dispatch(&o->tree, shown);
    if (!h)
        return false;
    id = (uint32_t)((struct request *)(void *)h - o->request);
    i = o->request[id].bucket;
    for (k = 0; k < o->inside[i] && o->line[i][k] != id; k++) {
    }
    if (k == o->inside[i] || o->request[id].life != WAITS) {
        world_fail(run.w, "once", run.now, "server %" PRIu32 " gives a request that does not wait", j);
        return false;
    }
    memmove(&o->line[i][k], &o->line[i][k + 1], (o->inside[i] - k - 1) * sizeof o->line[i][0]);
    given(j, i, id, shown);
    return true;
}

static void serve(uint32_t j)
{
    struct own *o = &own[j];
    struct world_io io;
    uint64_t shown = clock_of(&server[j].node), next, told;
    uint32_t i;
    while (world_device_take(&o->device, run.now, &io))
        completed(j, &io, shown, false);
    for (i = 0; i < run.buckets; i++)
        align(j, i, shown);
    while (!run.w->broken && dispatch(j, shown)) {
    }
    judge_idle(j, shown);
    next = world_device_next_ns(&o->device);
    told = by_tags() ? tags_next_ns(&o->tags, shown) : htb_dispatch_next_ns(&o->tree, shown);
    if (told != QOS_NEVER)
        told = world_clock_when(&server[j].node.clock, told);
    next = told < next ? told : next;
    next = next > run.now ? next : run.now + 1000;
    if (next != WORLD_NEVER && (next < o->serve_ns || o->serve_ns <= run.now)) {
        o->serve_ns = next;
        world_queue_add(&run.due, next, SERVE, j | (uint32_t)(server[j].node.life & 0xffffff) << 8);
    }
}

/* The reservation of each bucket: its R-tokens left, over the time left but an interval, or half of it. */
static void set_reservations(uint32_t j, bool first)
{
    struct own *o = &own[j];
    struct server *s = &server[j];
    struct pshift_scheduler_state info;
    struct pshift_agent_state agent;
    uint64_t shown = clock_of(&s->node), rate[BUCKETS];
    double left, sum = 0, part = 1;
    uint32_t i, lower;
    (void)pshift_agent_info(&s->agent, &agent);
    left = agent.ends_ns > shown ? (double)(agent.ends_ns - shown) : (double)T;
    left -=
        (double)T / world_value(run.w, F_INTERVALS) < left / 2 ? (double)T / world_value(run.w, F_INTERVALS) : left / 2;
    left = left > (double)T / 64 ? left : (double)T / 64;
    for (i = 0; i < run.buckets; i++) {
        rate[i] = 0;
        if (s->open[i] && tokens_of(j, i, shown, &info))
            rate[i] = (uint64_t)ceil((double)info.r_tokens * 1e9 / left);
        sum += (double)rate[i];
    }
    if (!by_tags() && sum > (double)s->capacity) /* htb.h admits what fits: all are cut alike */
        part = (double)s->capacity / sum;
    o->part = sum / (double)s->capacity;
    o->crowded_ns = o->part > 0.9 ? run.now : o->crowded_ns;
    for (i = 0; i < run.buckets; i++)
        o->most_part[i] = o->part > o->most_part[i] ? o->part : o->most_part[i];
    for (lower = 2; lower-- > 0;)
        for (i = 0; i < run.buckets; i++) {
            struct tags_client client = {weight_of(i), rate[i], 0};
            struct htb_class class;
            enum qos_status status;
            uint64_t r = by_tags() ? rate[i] : (uint64_t)((double)rate[i] * TOKENS * part);
            if (first ? lower : r == o->rate[i] || (r < o->rate[i]) != (lower == 1))
                continue;
            memset(&class, 0, sizeof class);
            class.weight = weight_of(i);
            class.rate_per_s[0] = r;
            status = by_tags()
                         ? first ? tags_add(&o->tags, shown, i, &client) : tags_change(&o->tags, shown, i, &client)
                     : first ? htb_reserve(&o->tree, shown, i + 1, &class, NULL)
                             : htb_change(&o->tree, shown, i + 1, &class, NULL);
            if (status != QOS_OK)
                world_fail(run.w, "admission", run.now, "server %" PRIu32 ": terms that fit are refused: %s", j,
                           qos_strerror(status));
            o->rate[i] = r;
        }
}

static void serve_grant(uint32_t j)
{
    set_reservations(j, false);
    serve(j);
}

static void serve_start(uint32_t j)
{
    struct own *o = &own[j];
    struct world_device_config d;
    struct tags_config tc;
    struct htb_config hc;
    enum qos_status status;
    uint64_t shown = clock_of(&server[j].node);
    uint32_t i;
    if (o->device_on)
        world_device_free(&o->device);
    memset(&d, 0, sizeof d);
    d.channels = channels();
    d.order = (enum world_order)world_choice(run.w, F_ORDER);
    d.spread = (enum world_spread)world_choice(run.w, F_VARIES);
    d.capacity = (uint32_t)world_value(run.w, F_OVER);
    draw_device(run.w, (uint64_t)world_value(run.w, F_LENGTH) * T, &d);
    world_device_init(&o->device, &d, run.w->seed + server[j].node.boots * SERVERS + j);
    o->device_on = true;
    o->depth = depth_of(j);
    o->at_device = 0;
    o->serve_ns = WORLD_NEVER;
    o->crowded_ns = run.now;
    for (i = 0; i < REQUESTS; i++) {
        o->unused[i] = i;
        memset(&o->request[i], 0, sizeof o->request[i]);
    }
    o->unused_count = REQUESTS;
    memset(o->inside, 0, sizeof o->inside);
    for (i = 0; i < BUCKETS; i++)
        waits_anew(o, i);
    memset(&tc, 0, sizeof tc);
    memset(&hc, 0, sizeof hc);
    if (by_tags()) {
        tc.clients = run.buckets ? run.buckets : 1;
        tc.mode = TAGS_PS;
        tc.at_device_max = o->depth;
        status = tags_init(&o->tags, own_memory[j], sizeof own_memory[j], &tc);
    } else {
        hc.classes = run.buckets + 1;
        hc.rate_per_s[0] = server[j].capacity * TOKENS;
        hc.start_ns = shown;
        hc.bound = world_choice(run.w, F_SCHEDULER) == 2 ? HTB_BY_RATE : HTB_BY_FLIGHT;
        hc.order = HTB_FIFO;
        hc.dispatch_max = hc.device_max = o->depth;
        /* All channels work: a look at a narrower bound takes 64 requests, which may be a part of a period. */
        hc.flight_min_ns = (uint64_t)(2 * request_ns(j) * channels());
        hc.flight_max_ns = 2 * hc.flight_min_ns + 20000000;
        status = htb_init(&o->tree, own_memory[j], sizeof own_memory[j], &hc);
    }
    if (status != QOS_OK) {
        world_fail(run.w, "init", run.now, "a configuration within the ranges is refused: %s", qos_strerror(status));
        return;
    }
    set_reservations(j, true);
}

/* ---- a world --------------------------------------------------------------------------------------------------- */

/* `once`: what arrived is served, cancelled or waits, and what went to the device comes back from there. */
static void judge_end(uint32_t j)
{
    struct own *o = &own[j];
    struct pshift_scheduler_state info;
    struct world_io io;
    uint32_t i, waiting = 0;
    for (i = 0; i < run.buckets; i++)
        if (o->inside[i])
            judge_wait(j, i);
    while (!run.w->broken && world_device_abort(&o->device, run.now, &io))
        completed(j, &io, clock_of(&server[j].node), true);
    o->device.config.hangs = 0;
    while (!run.w->broken && world_device_take(&o->device, WORLD_NEVER - 1, &io))
        completed(j, &io, clock_of(&server[j].node), false);
    for (i = 0; i < run.buckets && !run.w->broken; i++) {
        waiting += by_tags() ? 0 : o->inside[i];
        (void)pshift_scheduler_info(&server[j].scheduler, server[j].queue[i], &info);
        if (server[j].open[i] && info.pending + server[j].served[i] + server[j].cancelled[i] != server[j].arrived[i])
            world_fail(run.w, "once", run.now, "server %" PRIu32 ": bucket %" PRIu32 " has lost requests", j, i);
    }
    if (!run.w->broken && (o->at_device || o->unused_count + waiting != REQUESTS))
        world_fail(run.w, "once", run.now, "server %" PRIu32 ": %" PRIu32 " requests never ended", j, o->at_device);
}

static void world_run(struct world *w)
{
    uint32_t i;
    memset(&run, 0, sizeof run);
    run.w = w;
    world_rng_init(&run.rng, w->seed, 0x9500);
    memset(periods, 0, sizeof periods);
    for (i = 0; i < BUCKETS; i++)
        bucket[i].taken = 0;
    cluster();
    for (i = 0; i < SERVERS; i++) {
        if (own[i].device_on && server[i].node.up)
            judge_end(i);
        if (own[i].device_on)
            world_device_free(&own[i].device);
        own[i].device_on = false;
    }
}

int main(int argc, char **argv)
{
    int rc = world_main(argc, argv, "tests/world/pshift_servers.worlds", 200, NULL);
    printf("digest %016" PRIx64 "\n", digest);
    return rc;
}
