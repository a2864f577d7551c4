// proves: the reservation and the limit of a client hold for the sum of several schedulers: of one server that share
// proves: tags (tags_shared_*), or of several servers that its requests tell of each other (tags_tracker_*), in worlds
// proves: that a seed draws: any placement, pauses, lost and cancelled requests, forced ones, servers that join the others
// proves: or whose schedulers begin anew; and by weight alone none gets more at one of them than the first page says
// scale: 2
#define WORLD_HEADER "tags_servers"
#define WORLD_DRAW_MORE(w, r) draw_more(w, r)
#define WORLD_FIELDS(X)                                                                                                \
    X(LENGTH, "length_ms", "2000 200 20000")                                                                           \
    X(SERVERS, "servers", "2 1 3 8")                                                                                   \
    X(JOINED, "joined_by", "words tracker")                                                                            \
    X(SERVICE, "service_us", "1000 100 10000")                                                                         \
    X(DEPTH, "at_device", "1 2 8")                                                                                     \
    X(MODE, "mode", "ps reward")                                                                                       \
    X(COUNT_COST, "count_cost", "no yes")                                                                              \
    X(LIMIT_BURST, "limit_burst_ms", "100 0 10 1000")                                                                  \
    X(LAG, "reserve_lag_ms", "1000 100")                                                                               \
    X(ANEW, "anew", "no joins once often")                                                                             \
    WORLD_DEVICE_FIELDS(X)
#define WORLD_LATER F_SEEK
#define WORLD_LATER_COHORT F_ON
#define WORLD_COHORT(X)                                                                                                \
    X(NUMBER, "clients", "1 0 2 3 10")                                                                                 \
    X(ARRIVALS, "arrivals", "closed constant poisson on_off bursts")                                                   \
    X(OUT, "outstanding", "4 2 1 32 200")                                                                              \
    X(SIZES, "sizes", "one two any")                                                                                   \
    X(RESERVATION, "reservation", "0 20 100")                                                                          \
    X(LIMIT, "limit", "0 200 100 50")                                                                                  \
    X(WEIGHT, "weight", "1 10")                                                                                        \
    X(PLACE, "place", "in_turn any first")                                                                             \
    X(LOST, "lost", "0 20 300")                                                                                        \
    X(CANCEL, "cancel", "0 20 300")                                                                                    \
    X(FORCE, "forced", "0 20 300")                                                                                     \
    X(AWAY, "away", "no once often")                                                                                   \
    X(TERMS, "terms", "same lower higher")                                                                             \
    WORLD_CLIENT_FIELDS(X)                                                                                             \
    X(STAYS, "stays_ms", "0 10 30 100 500")                                                                            \
    X(CANCEL_AFTER, "cancel_after_ms", "0 1 100 2000")
struct world;
struct world_rng;
static void draw_more(struct world *w, struct world_rng *r);
/* Judge by the first page of 0.2, for tests/world/v02. */
#ifndef WORLD_TAGS_V02
#define WORLD_TAGS_V02 0
#endif
#include "device_fields.h"
#include "tags.h"

#define MS UINT64_C(1000000)
#define CLIENTS 30u
#define SERVERS 8u
#define REQUESTS 16384u

struct request {
    uint64_t cost;
    uint32_t next, client, server, rho, delta, times;
    double elsewhere;     /* units, by the world's count: what delta should say */
    bool cancel, in_time; /* cancelled before its charge to the limit is as old as the burst */
    struct tags_grant grant;
};

struct place { /* of a client at a server */
    struct tags_tracker_server told;
    uint32_t first, last, queued;
    uint64_t since_ns; /* it has requests queued */
    /* trackers: units answered here; answered elsewhere, of which it was told; of its last request, and when that went */
    double done, told_units, last_units;
    uint64_t sent_ns;
    bool known;            /* to the scheduler: it was sent a request here */
    double passed, left;   /* per weight: while nothing of it waited here since its last request; where that left */
    double ahead[CLIENTS]; /* of each other, per weight, while this waits; below 0: served elsewhere */
};

struct account { /* what was sent above a rate: a bucket that leaks */
    double above;
    uint64_t last_ns;
};

struct tenant {
    struct world_client client;
    struct tags_client terms;
    struct tags_tracker tracker;
    struct place at[SERVERS];
    uint32_t cohort, turn, out, out_most; /* out: requests on their way, queued or at a device */
    double reservation, limit, largest;   /* units per ns; of a request */
    double given_back;                    /* units of those that hung and were cancelled */
    double done;                          /* units answered, by all */
    struct account all, reserved;
    double owed, owed_reserved; /* units that it was not sent, though only its limit held it back; of its reservation */
    uint64_t wakes_ns, sent_ns; /* sent_ns: the last request, by any server */
    uint32_t at_device, lost[2], lost_most[2]; /* lost: at a device, and will be cancelled [in time] */
    bool forced, changes, leaves;              /* changes: its terms will; leaves: it is no client until they do */
};

struct server {
    struct tags tags;
    struct world_device device;
    unsigned char *memory;
    size_t memory_bytes;
    uint32_t at_device, times; /* times: that its scheduler began */
    uint64_t told_ns, anew_ns;
    double passed; /* units per weight that it sent */
};

static struct tenant tenant[CLIENTS];
static struct server server[SERVERS];
static struct request request[REQUESTS];
static uint32_t unused[REQUESTS], unused_count, tenants, servers;
static unsigned char *words;
static struct {
    struct world *w;
    struct world_rng rng;
    struct world_queue wakes, ends; /* ends: of lost and cancelled requests */
    uint64_t now, end_ns;
    uint64_t judged_ns;
    uint32_t depth, steps, begun; /* begun: schedulers that began anew */
    bool
        reservations_hold; /* they fit into one server, whoever goes to it, and the devices are as fast as configured */
    double burst_ns, lag_ns, cost_max;
    bool tracker, draining, by_weight; /* by_weight: weights alone decide */
    struct tags_config config;
} run;

static void draw_more(struct world *w, struct world_rng *r)
{
    uint32_t k;
    if (WORLD_TAGS_V02)
        return;
    if (w->seed % 8 == 1)
        world_draw_later(w, r);
    for (k = 0; k < WORLD_COHORTS && w->seed % 8 == 5; k++) { /* shared words, requests that are cancelled late */
        w->choice[F_JOINED] = 0;
        w->choice[world_of(k, F_CANCEL)] = (uint8_t)world_between(r, 0, 2);
        w->choice[world_of(k, F_CANCEL_AFTER)] = (uint8_t)world_between(r, 0, 3);
    }
    if (w->seed % 8 != 3 && w->seed % 8 != 7)
        return;
    w->choice[F_JOINED] = 1; /* clients that use one server after the other */
    if (w->seed % 8 == 7)
        w->choice[F_ANEW] = (uint8_t)world_between(r, 0, 3);
    for (k = 0; k < WORLD_COHORTS; k++) {
        static const uint32_t none[] = {F_RESERVATION, F_LIMIT, F_SIZES, F_LOST, F_CANCEL, F_FORCE};
        uint32_t i;
        w->choice[world_of(k, F_STAYS)] = (uint8_t)world_between(r, 0, 4);
        for (i = 0; w->seed % 16 == 7 && i < sizeof none / sizeof none[0]; i++) /* by weight alone */
            w->choice[world_of(k, none[i])] = 0;
    }
    if (w->seed % 16 == 7)
        w->choice[F_MODE] = 0;
}

static uint32_t choice(uint32_t cohort, uint32_t field)
{
    return world_choice(run.w, world_of(cohort, field));
}

static double units(double cost)
{
    return world_choice(run.w, F_COUNT_COST) ? cost : 1;
}

/* One of them: what it was sent above the rate. With trackers each server learns of the others with its next request, so it
 * may be wrong by what is on its way: and each has a burst of its own. */
static void judge_rate(const char *oracle, const struct tenant *t, struct account *a, double rate, double n,
                       double allowed)
{
    const double most = units(t->largest), above = a->above - rate * (double)(run.now - a->last_ns);
    if (run.tracker)
        allowed = (servers + run.begun) * (allowed + (t->out_most + servers) * most);
    allowed += t->given_back;
    a->above = (above > 0 ? above : 0) + n;
    a->last_ns = run.now;
    if (a->above > allowed + 1e-3)
        world_fail(run.w, oracle, run.now, "client %td: %.2f above its rate, allowed %.2f", t - tenant, a->above,
                   allowed);
}

/* By how much it may be above its limit: as with one scheduler, one request more where limit_burst_ns is less than one,
 * and for each that forces (0.2 did not say that). */
static double limit_allows(const struct tenant *t)
{
    const double most = units(t->largest), burst = t->limit * run.burst_ns;
    if (WORLD_TAGS_V02)
        return burst + (burst < most ? 2 : 1) * most + (t->forced ? 65 * units(run.cost_max) : 0);
    return burst + 2 * most + (t->forced ? (65 + servers) * units(run.cost_max) : 0);
}

/* `owed_sum`: with trackers, who waits at a server that has room has in the sum what its limit lets it have, and who waits
 * anywhere what it reserved, but for what that may miss of it each time: besides what servers have not been told yet. */
static void judge_owed(void)
{
    const double ns = (double)(run.now - run.judged_ns);
    uint32_t i, k;
    run.judged_ns = run.now;
    for (i = 0; run.tracker && i < tenants; i++) {
        struct tenant *t = &tenant[i];
        const double most = servers * (t->out_most + servers) * units(t->largest);
        const double reserved = most + t->reservation * run.depth * run.cost_max * world_value(run.w, F_SERVICE) * 1000;
        bool queued = false, room = false;
        for (k = 0; k < servers; k++) {
            queued = queued || t->at[k].queued;
            room = room || (t->at[k].queued && server[k].at_device < run.depth);
        }
        t->owed += room ? t->limit * ns : 0;
        t->owed_reserved += queued ? t->reservation * ns : 0;
        if (t->forced || t->limit <= 0 || choice(t->cohort, F_LOST) || choice(t->cohort, F_ARRIVALS) ||
            choice(t->cohort, F_CANCEL_AFTER))
            t->owed = 0; /* what a lost request told, or one that was queued for long, is charged late */
        if (!run.reservations_hold || choice(t->cohort, F_ARRIVALS) ||
            (t->limit > 0 && t->limit < 1.2 * t->reservation))
            t->owed_reserved = 0;
        if (t->owed > most || t->owed_reserved > reserved)
            world_fail(run.w, "owed_sum", run.now, "client %" PRIu32 " was sent %.2f less than its %s, allowed %.2f", i,
                       t->owed > most ? t->owed : t->owed_reserved, t->owed > most ? "limit" : "reservation",
                       t->owed > most ? most : reserved);
    }
}

/* `share_sum`: weights alone decide. While one waits at a server, no other is sent more there per weight, but for the bound
 * of the first page, two lags (of what passed, too), and what the one was served elsewhere beyond what passed here while
 * nothing of it waited. */
static void judge_share(uint32_t id)
{
    const struct request *r = &request[id];
    struct server *s = &server[r->server];
    struct place *own = &tenant[r->client].at[r->server];
    const double one = 1 / (double)tenant[r->client].terms.weight;
    double weights = 0, lag = 0, beyond = own->known ? r->elsewhere * one - own->passed : 0;
    uint32_t i;
    for (i = 0; i < tenants; i++)
        lag = 1 / (double)tenant[i].terms.weight > lag ? 1 / (double)tenant[i].terms.weight : lag;
    for (i = 0; i < tenants; i++) {
        struct place *at = &tenant[i].at[r->server];
        if (i != r->client && at->queued == 0)
            continue;
        weights += (double)tenant[i].terms.weight;
        at->ahead[r->client] += i == r->client ? 0 : one;
        if (at->ahead[r->client] > one + 1 / (double)tenant[i].terms.weight + 2 * lag + 1e-6)
            world_fail(run.w, "share_sum", run.now,
                       "client %" PRIu32 " is %.2f units per weight ahead of client %" PRIu32 " at server %" PRIu32,
                       r->client, at->ahead[r->client], i, r->server);
    }
    beyond = beyond > 0 ? beyond : 0;
    for (i = 0; i < tenants; i++) {
        const double ahead = own->ahead[i], floor = ahead < 0 ? ahead : 0;
        own->ahead[i] = (ahead - one > floor && own->queued ? ahead - one : floor) - beyond;
    }
    s->passed += own->sent_ns > own->since_ns ? 1 / weights : 0; /* V waits for who comes to it */
    own->passed = 0;
    own->left = s->passed;
}

/* `limit_sum`, `reserve_sum`: what one client is sent by all of them. */
static void judge(struct tenant *t, uint32_t phase, double cost)
{
    const double n = units(cost), most = units(t->largest);
    t->owed = t->owed > n ? t->owed - n : 0;
    t->owed_reserved = t->owed_reserved > n ? t->owed_reserved - n : 0;
    if (phase == TAGS_PHASE_FORCED)
        t->forced = true;
    if (t->limit > 0)
        judge_rate("limit_sum", t, &t->all, t->limit, n, limit_allows(t) + t->lost_most[!t->forced] * most);
    if (t->reservation > 0 && phase == TAGS_PHASE_RESERVATION)
        judge_rate("reserve_sum", t, &t->reserved, t->reservation, n,
                   t->reservation * run.lag_ns + (1 + servers + t->lost_most[0]) * most);
}

static void wake(uint32_t i, uint64_t at_ns)
{
    if (at_ns == WORLD_NEVER || at_ns >= tenant[i].wakes_ns)
        return;
    tenant[i].wakes_ns = at_ns;
    world_queue_add(&run.wakes, at_ns, 0, i);
}

static void ended(uint32_t id)
{
    uint32_t i = request[id].client;
    unused[unused_count++] = id;
    tenant[i].out--;
    world_client_done(&tenant[i].client, run.now);
    wake(i, world_client_next_ns(&tenant[i].client));
}

/* A window may begin when they are there. */
static void count_lost(struct tenant *t, uint32_t kind, bool more)
{
    t->lost[kind] += more;
    t->lost_most[kind] = t->lost[kind] > t->lost_most[kind] ? t->lost[kind] : t->lost_most[kind];
}

static void to_device(uint32_t id, uint32_t phase)
{
    struct request *r = &request[id];
    struct server *s = &server[r->server];
    struct world_io io;
    world_trace(run.now, r->client, "given", r->cost);
    s->at_device++;
    tenant[r->client].at_device++;
    r->times = s->times;
    if (run.by_weight)
        judge_share(id);
    tenant[r->client].sent_ns = tenant[r->client].at[r->server].sent_ns = run.now;
    tenant[r->client].at[r->server].last_units =
        units((double)r->cost) + (tenant[r->client].at[r->server].known ? r->elsewhere : 0);
    tenant[r->client].at[r->server].known = tenant[r->client].at[r->server].known || phase != TAGS_PHASE_FORCED;
    if (r->cancel) { /* before anything else happens, or late */
        const uint64_t after_ns = (uint64_t)world_value(run.w, world_of(tenant[r->client].cohort, F_CANCEL_AFTER)) * MS;
        struct tenant *t = &tenant[r->client];
        r->in_time = after_ns > 0 && (double)after_ns <= run.burst_ns + units(t->largest) / t->limit;
        count_lost(t, 0, after_ns > 0);
        count_lost(t, 1, r->in_time);
        world_queue_add(&run.ends, run.now + after_ns, 1, id);
        return;
    }
    judge(&tenant[r->client], phase, (double)r->cost);
    memset(&io, 0, sizeof io);
    io.id = id;
    io.cost_ns = (uint64_t)((double)r->cost * world_value(run.w, F_SERVICE) * 1000);
    world_device_submit(&s->device, run.now, &io);
}

static void not_told(struct place *at, const struct request *r)
{
    at->told_units -= r->elsewhere;
    tags_tracker_server_lost(&at->told, r->rho, r->delta);
}

static void make(uint32_t i, const struct world_request *q)
{
    struct tenant *t = &tenant[i];
    uint32_t id = unused[--unused_count], place = choice(t->cohort, F_PLACE);
    struct request *r = &request[id];
    struct place *at;
    uint64_t stays_ns;
    bool lost = world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_LOST)));
    memset(r, 0, sizeof *r);
    r->cost = q->cost;
    r->client = i;
    stays_ns = (uint64_t)world_value(run.w, world_of(t->cohort, F_STAYS)) * MS;
    r->server = stays_ns     ? (uint32_t)(run.now / stays_ns + i) % servers
                : place == 2 ? 0
                : place == 1 ? (uint32_t)world_rand(&run.rng) % servers
                             : t->turn++ % servers;
    r->cancel = world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_CANCEL)));
    if (server[r->server].times == 0) /* it joins later */
        r->server = 0;
    at = &t->at[r->server];
    t->out_most = ++t->out > t->out_most ? t->out : t->out_most;
    if (run.tracker)
        tags_tracker_send(&t->tracker, &at->told, &r->rho, &r->delta);
    r->elsewhere = run.tracker ? t->done - at->done - at->told_units : 0;
    at->told_units += r->elsewhere;
    if (run.tracker && lost) { /* it never comes; the client finds out later */
        world_queue_add(&run.ends, run.now + 5 * MS, 0, id);
        return;
    }
    if (world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_FORCE))) && !t->leaves &&
        tags_force(&server[r->server].tags, run.now, i, r->cost, &r->grant) == QOS_OK) {
        r->cancel = false;
        if (run.tracker) { /* it carries nothing: the next one tells it */
            not_told(at, r);
            r->rho = r->delta = 0;
            r->elsewhere = 0;
        }
        to_device(id, TAGS_PHASE_FORCED);
        return;
    }
    if (!t->leaves && tags_arrive(&server[r->server].tags, run.now, i, 1, r->cost) != QOS_OK)
        world_fail(run.w, "once", run.now, "an arrival is refused");
    if (at->queued++ == 0) {
        const double missed = 2 + t->reservation * run.depth * run.cost_max * world_value(run.w, F_SERVICE) * 1000;
        at->first = id;
        at->since_ns = run.now;
        at->passed += server[r->server].passed - at->left;
        t->owed_reserved = t->owed_reserved > missed ? t->owed_reserved - missed : 0;
    } else {
        request[at->last].next = id;
    }
    at->last = id;
}

/* Other terms: of shared words, when no scheduler has the client or a request of it at the device. Then it is back, with
 * what it had queued. */
static void new_terms(uint32_t i)
{
    struct tenant *t = &tenant[i];
    uint32_t k, j, id;
    if (!t->leaves) {
        t->leaves = true;
        for (k = 0; k < servers; k++)
            if (tags_remove(&server[k].tags, run.now, i, NULL) != QOS_OK)
                world_fail(run.w, "once", run.now, "a client cannot leave");
    }
    if (t->at_device)
        return;
    for (j = 0; j < 2; j++) {
        uint64_t *rate = j ? &t->terms.limit_per_s : &t->terms.reservation_per_s;
        if (*rate)
            *rate = choice(t->cohort, F_TERMS) == 1 ? 1 + *rate / 30 : *rate * 3;
    }
    t->reservation = (double)t->terms.reservation_per_s / 1e9;
    t->limit = (double)t->terms.limit_per_s / 1e9;
    t->all.above = t->reserved.above = 0;
    t->leaves = t->changes = false;
    if (tags_shared_change((struct tags_shared *)(void *)words, run.now, i, &t->terms) != QOS_OK)
        world_fail(run.w, "once", run.now, "other terms are refused");
    for (k = 0; k < servers; k++) {
        struct place *at = &t->at[k];
        if (tags_add(&server[k].tags, run.now, i, &t->terms) != QOS_OK)
            world_fail(run.w, "once", run.now, "a client cannot come back");
        for (j = 0, id = at->first; j < at->queued; j++, id = request[id].next)
            if (tags_arrive(&server[k].tags, run.now, i, 1, request[id].cost) != QOS_OK)
                world_fail(run.w, "once", run.now, "an arrival is refused");
        at->since_ns = run.now;
    }
}

static void begin_scheduler(struct server *s)
{
    uint32_t i;
    if (tags_init(&s->tags, s->memory, s->memory_bytes, &run.config) != QOS_OK)
        world_fail(run.w, "init", 0, "%s", tags_config_error(&run.config) ? tags_config_error(&run.config) : "refused");
    for (i = 0; i < tenants; i++)
        if (tags_add(&s->tags, run.now > 1 ? run.now : 1, i, &tenant[i].terms) != QOS_OK)
            world_fail(run.w, "init", 0, "a client is refused");
    s->times++;
}

/* A server joins, or its scheduler begins anew and knows of nobody what it was served: what is queued comes again. */
static void anew(uint32_t k)
{
    struct server *s = &server[k];
    uint32_t i, j, id;
    s->anew_ns = world_choice(run.w, F_ANEW) == 3 ? run.now + run.end_ns / 10 : WORLD_NEVER;
    run.begun++;
    begin_scheduler(s);
    for (i = 0; i < tenants; i++) {
        struct place *at = &tenant[i].at[k];
        at->known = false;
        memset(at->ahead, 0, sizeof at->ahead);
        for (j = 0, id = at->first; j < at->queued; j++, id = request[id].next)
            if (tags_arrive(&s->tags, run.now, i, 1, request[id].cost) != QOS_OK)
                world_fail(run.w, "once", run.now, "an arrival is refused");
        at->since_ns = run.now;
    }
}

/* `wait_sum`: while its server has room, no client waits longer than its limit lets the sum of them. With trackers that is at
 * each server what its last request cost and what it had been served elsewhere until then, and what its reservation may be
 * early. */
static void judge_waits(void)
{
    uint32_t i, k;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        double most = 2 * units(t->largest) + (t->forced ? (65 + servers) * units(run.cost_max) : 0);
        for (k = 0; k < servers; k++) {
            const struct place *at = &t->at[k];
            const uint64_t sent_ns = run.tracker ? at->sent_ns : t->sent_ns;
            const uint64_t since = at->since_ns > sent_ns ? at->since_ns : sent_ns;
            const double here = run.tracker ? most + at->last_units + t->reservation * run.lag_ns : most;
            if (at->queued == 0 || t->leaves || server[k].at_device >= run.depth)
                continue;
            if (run.now > since + (t->limit > 0 ? (uint64_t)(here / t->limit) : 0) + 1000)
                world_fail(run.w, "wait_sum", run.now,
                           "client %" PRIu32 " waits at server %" PRIu32 ", which has room, for %.3f ms", i, k,
                           (double)(run.now - since) / 1e6);
        }
    }
}

/* All that a server's scheduler gives now. */
static void dispatch(uint32_t k)
{
    struct server *s = &server[k];
    uint32_t again = 0;
    while (s->at_device < run.depth && !run.w->broken) {
        struct tags_choice c;
        struct place *at;
        struct request *r;
        uint32_t id;
        enum qos_status e = tags_choose(&s->tags, run.now, &c);
        if (e != QOS_OK && (tags_next_ns(&s->tags, run.now) > run.now || again++ > 10000))
            break;
        if (e != QOS_OK)
            continue;
        at = &tenant[c.client].at[k];
        if (at->queued == 0) {
            world_fail(run.w, "once", run.now, "client %" PRIu32 " is chosen and has nothing queued", c.client);
            break;
        }
        id = at->first;
        r = &request[id];
        e = tags_dispatch(&s->tags, run.now, &c, r->cost, r->rho, r->delta, &r->grant);
        if (e == QOS_EAGAIN && !run.tracker && again++ < 10000) /* another scheduler was faster */
            continue;
        if (e != QOS_OK) {
            world_fail(run.w, "once", run.now, "the dispatch of a choice is refused: %d", (int)e);
            break;
        }
        at->first = r->next;
        at->queued--;
        to_device(id, (uint32_t)c.phase);
    }
    s->told_ns = s->at_device < run.depth ? tags_next_ns(&s->tags, run.now) : WORLD_NEVER;
    if (s->told_ns <= run.now)
        s->told_ns = run.now + 1;
}

static void draw_tenants(void)
{
    struct world *w = run.w;
    double one = world_value(w, F_SERVICE) * 1000;
    uint32_t k, j;
    for (k = tenants = 0; k < WORLD_COHORTS; k++) {
        uint32_t count = (uint32_t)world_value(w, world_of(k, F_NUMBER));
        for (j = 0; j < (k == 0 && count == 0 ? 1 : count); j++) {
            struct tenant *t = &tenant[tenants];
            struct world_client_config c;
            memset(t, 0, sizeof *t);
            memset(&c, 0, sizeof c);
            c.sizes = (enum world_sizes)choice(k, F_SIZES);
            c.cost_min = 1;
            c.cost_max = c.sizes == WORLD_ONE_SIZE ? 1 : 30;
            t->cohort = k;
            t->largest = (double)c.cost_max;
            t->terms.weight = (uint64_t)world_value(w, world_of(k, F_WEIGHT));
            /* permille of one server, if all are of the largest size */
            t->reservation = world_value(w, world_of(k, F_RESERVATION)) / 1000 / one / t->largest * units(t->largest);
            t->terms.reservation_per_s = (uint64_t)(t->reservation * 1e9);
            t->reservation = (double)t->terms.reservation_per_s / 1e9;
            if (choice(k, F_LIMIT)) {
                double limit = world_value(w, world_of(k, F_LIMIT)) / 1000 / one / t->largest * units(t->largest);
                t->terms.limit_per_s = (uint64_t)(limit * 1e9) + 1;
                if (t->terms.limit_per_s < t->terms.reservation_per_s)
                    t->terms.limit_per_s = t->terms.reservation_per_s;
                t->limit = (double)t->terms.limit_per_s / 1e9;
            }
            c.arrivals = (enum world_arrivals)choice(k, F_ARRIVALS);
            c.outstanding = (uint32_t)(world_value(w, world_of(k, F_OUT)) * world_value(w, world_of(k, F_CROWD)));
            c.outstanding = c.outstanding > REQUESTS / 2 / CLIENTS ? REQUESTS / 2 / CLIENTS : c.outstanding;
            c.backlog_max = REQUESTS / 64;
            c.interval_ns = (uint64_t)(one * 3 * t->largest) + 1;
            if (c.arrivals == WORLD_ON_OFF)
                c.on_ns = c.off_ns = 10 * c.interval_ns;
            if (c.arrivals == WORLD_BURSTS)
                c.interval_ns *= c.outstanding;
            draw_absence(w, k, choice(k, F_AWAY) == 1, run.end_ns, &c);
            if (choice(k, F_AWAY) == 2) { /* half a second between bursts */
                c.arrivals = WORLD_BURSTS;
                c.interval_ns = 500 * MS;
            }
            c.start_ns = 1;
            world_client_init(&t->client, &c, w->seed, tenants);
            t->wakes_ns = WORLD_NEVER;
            t->changes = choice(k, F_TERMS) > 0 && !run.tracker;
            run.cost_max = t->largest > run.cost_max ? t->largest : run.cost_max;
            tenants++;
        }
    }
}

static bool reservations_hold(void)
{
    const double one = world_value(run.w, F_SERVICE) * 1000;
    double reserved = 0;
    uint32_t i, f;
    for (f = F_SEEK; f < (uint32_t)F_COUNT; f++)
        if (world_choice(run.w, f))
            return false;
    for (i = 0; i < tenants; i++) {
        const struct tenant *t = &tenant[i];
        reserved += t->reservation * t->largest / units(t->largest) * one;
        if (choice(t->cohort, F_LOST) || choice(t->cohort, F_CANCEL) || choice(t->cohort, F_FORCE) ||
            4 * run.depth * t->largest * one > run.lag_ns)
            return false;
    }
    return reserved < 0.8;
}

static bool weights_decide(void)
{
    uint32_t i;
    for (i = 0; i < tenants; i++) {
        const uint32_t k = tenant[i].cohort;
        if (tenant[i].limit > 0 || tenant[i].reservation > 0 || choice(k, F_LOST) || choice(k, F_CANCEL) ||
            choice(k, F_FORCE) || choice(k, F_SIZES))
            return false;
    }
    return !WORLD_TAGS_V02 && run.tracker && world_choice(run.w, F_MODE) == 0;
}

static void setup(void)
{
    struct world *w = run.w;
    struct world_device_config d;
    struct tags_shared_config sc;
    struct tags_config c;
    struct tags_shared *shared = NULL;
    uint32_t i, k;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    memset(&sc, 0, sizeof sc);
    c.clients = sc.clients = tenants;
    c.limit_burst_ns = sc.limit_burst_ns = run.burst_ns > 0 ? (uint64_t)run.burst_ns : QOS_NOTHING;
    c.reserve_lag_ns = sc.reserve_lag_ns = (uint64_t)run.lag_ns;
    c.cost_max = (uint64_t)run.cost_max;
    c.count_cost = world_choice(w, F_COUNT_COST) == 1;
    c.at_device_max = 4096; /* forced ones, too */
    c.mode = world_choice(w, F_MODE) ? TAGS_REWARD : TAGS_PS;
    if (!run.tracker) {
        words = (unsigned char *)realloc(words, tags_shared_memsize(&sc));
        shared = (struct tags_shared *)(void *)words;
        if (tags_shared_init(shared, 1, tags_shared_memsize(&sc), &sc) != QOS_OK)
            world_fail(w, "init", 0, "%s", tags_shared_config_error(&sc) ? tags_shared_config_error(&sc) : "refused");
        for (i = 0; i < tenants; i++)
            if (tags_shared_change(shared, 1, i, &tenant[i].terms) != QOS_OK)
                world_fail(w, "init", 0, "shared terms are refused");
    }
    c.shared = shared;
    run.config = c;
    for (k = 0; k < servers; k++) {
        struct server *s = &server[k];
        size_t bytes = tags_memsize(&c);
        if (bytes > s->memory_bytes) {
            free(s->memory);
            s->memory_bytes = bytes;
            s->memory = (unsigned char *)aligned_alloc(QOS_CACHE_LINE, (bytes + 63) / 64 * 64);
        }
        s->times = 0;
        if (!run.tracker || k == 0 || world_choice(w, F_ANEW) != 1)
            begin_scheduler(s);
        s->anew_ns = run.tracker && k && world_choice(w, F_ANEW) ? run.end_ns * k / (2 * servers) : WORLD_NEVER;
        s->at_device = 0;
        s->passed = 0;
        s->told_ns = WORLD_NEVER;
        draw_device(w, run.end_ns, &d);
        world_device_init(&s->device, &d, w->seed + k);
    }
}

static void cancelled(uint32_t k, uint32_t id)
{
    struct request *r = &request[id];
    if (r->times == server[k].times && tags_cancel(&server[k].tags, run.now, &r->grant) != QOS_OK)
        world_fail(run.w, "once", run.now, "a cancel is refused");
    server[k].at_device--;
    tenant[r->client].at_device--;
    ended(id);
}

static void completed(uint32_t k, const struct world_io *io)
{
    struct request *r = &request[io->id];
    struct tenant *t = &tenant[r->client];
    if (r->times == server[k].times &&
        tags_complete(&server[k].tags, run.now, &r->grant, io->end_ns - io->begin_ns) != QOS_OK)
        world_fail(run.w, "once", run.now, "a completion is refused");
    if (run.tracker)
        tags_tracker_done(&t->tracker, r->grant.phase, (uint32_t)units((double)r->cost), &t->at[k].told);
    t->done += units((double)r->cost);
    t->at[k].done += units((double)r->cost);
    server[k].at_device--;
    t->at_device--;
    ended(io->id);
}

/* One event: what is due now. */
static void step(void)
{
    struct world_event e;
    struct world_io io;
    uint32_t k;
    judge_owed();
    for (k = 0; k < servers; k++) {
        while (world_device_take(&server[k].device, run.now, &io))
            completed(k, &io);
        while (run.draining && world_device_abort(&server[k].device, run.now, &io)) {
            tenant[request[io.id].client].given_back += units((double)request[io.id].cost);
            cancelled(k, io.id);
        }
        server[k].device.config.hangs = run.draining ? 0 : server[k].device.config.hangs;
    }
    while (world_queue_take(&run.ends, run.now, &e)) {
        const struct request *r = &request[e.index];
        if (e.kind == 1) {
            tenant[r->client].lost[0] -= choice(tenant[r->client].cohort, F_CANCEL_AFTER) > 0;
            tenant[r->client].lost[1] -= r->in_time;
            cancelled(r->server, e.index);
            continue;
        }
        not_told(&tenant[r->client].at[r->server], r);
        ended(e.index);
    }
    while (world_queue_take(&run.wakes, run.now, &e)) {
        struct tenant *t = &tenant[e.index];
        struct world_request q;
        uint64_t next;
        if (e.at_ns != t->wakes_ns)
            continue;
        t->wakes_ns = WORLD_NEVER;
        while (!run.draining && unused_count > 1 && world_client_next(&t->client, run.now, &q))
            make(e.index, &q);
        next = run.draining ? WORLD_NEVER : world_client_next_ns(&t->client);
        wake(e.index, next > run.now ? next : run.now + 1000);
    }
    for (k = 0; k < tenants && run.now >= run.end_ns / 2; k++)
        if (tenant[k].changes)
            new_terms(k);
    for (k = 0; k < servers; k++) {
        if (run.now >= server[k].anew_ns && !run.draining)
            anew(k);
        if (server[k].times)
            dispatch(k);
    }
    if (++run.steps % 8 == 0)
        judge_waits();
}

static void world_run(struct world *w)
{
    bool too_long = false;
    uint64_t last_ns;
    uint32_t i, k;
    memset(&run, 0, sizeof run);
    run.w = w;
    run.end_ns = (uint64_t)world_value(w, F_LENGTH) * MS;
    last_ns = run.end_ns + 100 * WORLD_NS_PER_S;
    run.tracker = world_choice(w, F_JOINED) == 1;
    run.depth = (uint32_t)world_value(w, F_DEPTH);
    run.burst_ns = world_value(w, F_LIMIT_BURST) * 1e6;
    run.lag_ns = world_value(w, F_LAG) * 1e6;
    run.cost_max = 1;
    servers = (uint32_t)world_value(w, F_SERVERS);
    world_rng_init(&run.rng, w->seed, 79);
    for (unused_count = 0; unused_count < REQUESTS; unused_count++)
        unused[unused_count] = REQUESTS - 1 - unused_count;
    draw_tenants();
    run.reservations_hold = reservations_hold();
    run.by_weight = weights_decide();
    setup();
    for (i = 0; i < tenants; i++)
        wake(i, world_client_next_ns(&tenant[i].client));
    while (!w->broken) {
        uint64_t next = world_queue_next_ns(&run.wakes), t = world_queue_next_ns(&run.ends);
        next = t < next ? t : next;
        for (k = 0; k < servers; k++) {
            t = world_device_next_ns(&server[k].device);
            next = t < next ? t : next;
            next = server[k].told_ns < next ? server[k].told_ns : next;
        }
        if (!run.draining && next >= run.end_ns) {
            run.draining = true;
            next = run.end_ns;
        }
        too_long = next != WORLD_NEVER && (next > last_ns || w->events > 3000000);
        if (next == WORLD_NEVER || too_long) { /* cut after so many events: what waits, waits until now */
            run.now = too_long && next > last_ns ? last_ns : run.now;
            break;
        }
        run.now = next > run.now ? next : run.now + 1;
        world_goes_on(run.now);
        w->events++;
        step();
        if (run.draining && unused_count == REQUESTS)
            break;
    }
    judge_waits();
    if (!w->broken && unused_count != REQUESTS && !too_long)
        world_fail(w, "progress", run.now, "%" PRIu32 " requests still wait", REQUESTS - unused_count);
    for (i = 0; i < tenants; i++)
        world_client_free(&tenant[i].client);
    for (k = 0; k < servers; k++)
        world_device_free(&server[k].device);
    world_queue_free(&run.wakes);
    world_queue_free(&run.ends);
}

int main(int argc, char **argv)
{
    static const struct world_open open[] = {{0, NULL}};
    return world_main(argc, argv, "tests/world/tags_servers.worlds", 1000, open);
}
