// proves: beside tenants as they come, on devices as they are, htb.h keeps rates, latencies and throughput of the best
// proves: fixed bound on what is at the device: a few of 1,008 cells, the others by hand (htb_cells --help)
#include "check.h"
#include "htb.h"
#include "examples/world/clients.h"
#include "examples/world/devices.h"
#include "htb_reference.h"
#include <fnmatch.h>
#include <math.h>

/* 0: a header whose struct htb_class has no latency_ns. */
#ifndef HTB_CELLS_LATENCY
#define HTB_CELLS_LATENCY 1
#endif

#define MS UINT64_C(1000000)
#define SECOND WORLD_NS_PER_S

/* ---- the cells: devices x clients x reservations x latencies ---------------------------------------------------------
 *
 * Tokens are ns of device time; admission uses 0.9 of a second each second, the device gives 1.31. A tenant `db` has the
 * reservation R and comes as the cell says, with requests of 7.7 us; `scan` reserves 0.2 and always has 96 requests of
 * 72.9 us outstanding. */

#define DB_COST 7700
#define SCAN_COST 72900
#define SCAN_RATE 0.2
#define SCAN_OUT 96
#define ROOT 0.9

static const struct {
    const char *name;
    struct world_device_config device;
} devices[] = {
    {"1ch30", {.channels = 1, .spread = WORLD_THIRTY}},
    {"8ch10", {.channels = 8, .spread = WORLD_TEN}},
    {"8hash30", {.channels = 8, .hashed = true, .spread = WORLD_THIRTY}},
    {"32ch2size", {.channels = 32, .spread = WORLD_TWO_SIZES}},
    {"64ch10", {.channels = 64, .spread = WORLD_TEN}},
    {"64ch30", {.channels = 64, .spread = WORLD_THIRTY}},
    {"64exp", {.channels = 64, .spread = WORLD_EXPONENTIAL}},
    {"64hashlog", {.channels = 64, .hashed = true, .spread = WORLD_LOGNORMAL}},
    {"16any", {.channels = 16, .spread = WORLD_THIRTY, .order = WORLD_ANY}},
    {"64prov", {.channels = 64, .spread = WORLD_TEN, .provisioned = 1000}},
    {"64pause20", {.channels = 64, .spread = WORLD_THIRTY, .pause_every_ns = 300 * MS, .pause_ns = 20 * MS}},
    {"64pause200", {.channels = 64, .spread = WORLD_THIRTY, .pause_every_ns = 1000 * MS, .pause_ns = 200 * MS}},
    {"16gc200",
     {.channels = 16, .spread = WORLD_THIRTY, .pause_every_ns = 300 * MS, .pause_ns = 200 * MS, .pause_channel = true}},
    {"64step", {.channels = 64, .spread = WORLD_THIRTY, .step_ns = 500 * MS, .step_capacity = 1000}},
#define DEVICES 14 /* these are the grid's; the others change, and the bound must follow: see `changes` */
    {"64dip",
     {.channels = 64, .spread = WORLD_TEN, .step_ns = 3 * SECOND, .step_capacity = 655, .back_ns = 5 * SECOND}},
    {"8dip",
     {.channels = 8, .spread = WORLD_THIRTY, .step_ns = 3 * SECOND, .step_capacity = 655, .back_ns = 5 * SECOND}},
    {"8large", {.channels = 8, .spread = WORLD_TEN}}, /* all requests are 70 times as large */
};

static double scale = 1; /* of all requests, times and bounds but the header's own */

static double larger(uint32_t device)
{
    return strcmp(devices[device].name, "8large") == 0 ? 70 : scale;
}

static const struct {
    const char *name;
    enum world_arrivals arrivals;
    uint32_t outstanding, load; /* load: permille of the reservation */
} clients[] = {
    {"one", WORLD_CLOSED, 1, 0},       {"two", WORLD_CLOSED, 2, 0},       {"four", WORLD_CLOSED, 4, 0},
    {"thirty2", WORLD_CLOSED, 32, 0},  {"open10", WORLD_POISSON, 1, 100}, {"open50", WORLD_POISSON, 1, 500},
    {"open90", WORLD_POISSON, 1, 900}, {"onoff50", WORLD_ON_OFF, 1, 500}, {"burst50", WORLD_BURSTS, 1000, 500},
};
#define CLIENTS (sizeof clients / sizeof *clients)
static const uint32_t rates[] = {20, 100, 200, 600}; /* permille */
#define RATES (sizeof rates / sizeof *rates)
static const uint32_t latencies[] = {10000, 1000}; /* us */
#define LATENCIES (sizeof latencies / sizeof *latencies)

struct cell {
    char name[64];
    uint32_t device, client, column; /* the column: of tests/world/htb_cells.txt */
    double rate, latency_ns;
};

static void cell_name(struct cell *c, uint32_t device, uint32_t client, uint32_t rate, uint32_t latency)
{
    (void)snprintf(c->name, sizeof c->name, "%s/%s/R%u/T%u", devices[device].name, clients[client].name, rates[rate],
                   latencies[latency]);
    c->device = device;
    c->client = client;
    c->column = (uint32_t)LATENCIES * rate + latency;
    c->rate = rates[rate] / 1000.0;
    c->latency_ns = latencies[latency] * 1000.0 * larger(device);
}

/* ---- one run ------------------------------------------------------------------------------------------------------------- */

#define TENANTS 2
#define RECOVERY_NS (50 * MS)
#define REQUESTS 16384

struct outcome {
    double total;                /* tokens per ns, both tenants */
    double rate[TENANTS];        /* of what was promised: min(R, offered, N n / T) */
    double on_time[TENANTS];     /* part of the requests that were done by S + T */
    double p50_ns, p99_ns;       /* of db */
    double bound_ns;             /* the header's, at the end */
    double after, after_on_time; /* total and on_time, of db, from RECOVERY_NS to twice that after each pause */
};

static struct htb tree;
static unsigned char memory[1 << 17] __attribute__((aligned(64)));
static struct htb_request request[REQUESTS];
static struct reference reference;
static uint64_t cost[REQUESTS];
static uint64_t arrived_ns[REQUESTS];
static bool open[REQUESTS];
static double due_ns[REQUESTS];
static uint32_t tenant_of[REQUESTS], unused[REQUESTS], unused_count;
static double latency[4 << 20];

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void header_begin(const struct cell *c, double bound_ns)
{
    struct htb_config config;
    struct htb_class terms;
    memset(&config, 0, sizeof config);
    config.classes = 4;
    config.rate_per_s[0] = (uint64_t)(ROOT * 1e9);
    config.start_ns = 1;
    config.order = HTB_FIFO;
    config.dispatch_max = config.device_max = 2048;
    if (bound_ns > 0)
        config.flight_min_ns = config.flight_max_ns = (uint64_t)bound_ns;
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = (uint64_t)(c->rate * 1e9);
#if HTB_CELLS_LATENCY
    terms.latency_ns = (uint64_t)c->latency_ns;
#endif
    memset(request, 0, sizeof request);
    if (htb_init(&tree, memory, sizeof memory, &config) != QOS_OK || htb_reserve(&tree, 1, 1, &terms, NULL) != QOS_OK) {
        printf("cell %s: the header refuses it\n", c->name);
        exit(1);
    }
    memset(&terms, 0, sizeof terms);
    terms.rate_per_s[0] = (uint64_t)(SCAN_RATE * 1e9);
    if (htb_reserve(&tree, 1, 2, &terms, NULL) != QOS_OK)
        exit(1);
}

/* How much of the time is between RECOVERY_NS and twice that after a pause of the whole device. */
static double after_pauses_ns(const struct world_device_config *d, uint64_t from, uint64_t to)
{
    double ns = 0;
    uint64_t at;
    for (at = RECOVERY_NS; !d->pause_channel && d->pause_every_ns && at < to; at += d->pause_every_ns)
        ns += fmax(0, fmin((double)(at + RECOVERY_NS), (double)to) - fmax((double)at, (double)from));
    return ns;
}

static bool is_after_pause(const struct world_device_config *d, uint64_t t)
{
    return !d->pause_channel && d->pause_every_ns && t % d->pause_every_ns / RECOVERY_NS == 1;
}

/* bound_ns > 0: the reference with this bound, else the header (fixed_ns > 0: with this fixed bound). */
static struct outcome run(const struct cell *c, double bound_ns, double fixed_ns, uint64_t seed, double seconds,
                          double warm_seconds)
{
    static struct world_device device;
    static struct world_client tenant[TENANTS];
    struct world_client_config k;
    struct world_device_config d = devices[c->device].device;
    uint64_t now = 1, end = (uint64_t)(seconds * 1e9), warm = (uint64_t)(warm_seconds * 1e9),
             due_count[TENANTS] = {0, 0};
    uint64_t in_time[TENANTS] = {0, 0}, offered = 0, after = 0, after_in_time = 0;
    double work[TENANTS] = {0, 0}, s_ns[TENANTS] = {0, 0}, at, promised;
    double rate_of[TENANTS] = {c->rate, SCAN_RATE}, t_of[TENANTS] = {c->latency_ns, 1e7};
    double times = larger(c->device);
    bool header = bound_ns <= 0;
    struct outcome o;
    uint32_t i, latencies_seen = 0;
    memset(&o, 0, sizeof o);
    memset(open, 0, sizeof open);
    d.capacity = 1310;
    world_device_init(&device, &d, seed);
    memset(&k, 0, sizeof k);
    k.arrivals = clients[c->client].arrivals;
    k.outstanding = clients[c->client].outstanding;
    k.cost_min = (uint64_t)(DB_COST * times);
    k.backlog_max = 12000;
    k.interval_ns =
        (uint64_t)(DB_COST * times / c->rate * 1000 / (clients[c->client].load ? clients[c->client].load : 1));
    if (k.arrivals == WORLD_BURSTS)
        k.interval_ns *= k.outstanding;
    if (k.arrivals == WORLD_ON_OFF) {
        k.interval_ns /= 2;
        k.on_ns = k.off_ns = 20 * MS;
    }
    world_client_init(&tenant[0], &k, seed, 0);
    memset(&k, 0, sizeof k);
    k.outstanding = SCAN_OUT;
    k.cost_min = (uint64_t)(SCAN_COST * times);
    world_client_init(&tenant[1], &k, seed, 1);
    for (unused_count = 0; unused_count < REQUESTS; unused_count++)
        unused[unused_count] = REQUESTS - 1 - unused_count;
    if (header) {
        header_begin(c, fixed_ns);
    } else {
        reference_init(&reference, 3, bound_ns, 1e9, cost);
        reference_class(&reference, 1, 1, 0, false, c->rate, 0, 1, 1e7, c->latency_ns);
        reference_class(&reference, 1, 2, 0, false, SCAN_RATE, 0, 1, 1e7, 1e7);
    }
    while (now < end) {
        struct world_io io;
        struct world_request q;
        uint64_t next = world_device_next_ns(&device), t;
        for (i = 0; i < TENANTS; i++) {
            t = world_client_next_ns(&tenant[i]);
            next = t < next ? t : next;
        }
        memset(&io, 0, sizeof io);
        while (true) { /* what may go now */
            uint32_t id;
            at = -1;
            if (header) {
                struct htb_request *r = htb_dispatch(&tree, now);
                id = r ? (uint32_t)(r - request) : UINT32_MAX;
            } else {
                id = reference_dispatch(&reference, now, &at);
            }
            if (id == UINT32_MAX)
                break;
            io.id = id;
            io.cost_ns = cost[id];
            io.offset = request[id].offset;
            world_device_submit(&device, now, &io);
        }
        t = world_device_next_ns(&device);
        next = t < next ? t : next;
        if (header) {
            t = htb_dispatch_next_ns(&tree, now);
            next = t < next ? t : next;
        } else if (at >= 0 && (uint64_t)at + 1 < next) {
            next = (uint64_t)at + 1;
        }
        now = next > now ? next : now + 1;
        while (world_device_take(&device, now, &io)) {
            uint32_t who = tenant_of[io.id];
            if (header) {
                if (htb_complete(&tree, now, HTB_DONE, NULL, &request[io.id]) != QOS_OK)
                    exit(1);
            } else {
                reference_complete(&reference, io.id);
            }
            if (now > warm)
                work[who] += (double)cost[io.id];
            if (now > warm && is_after_pause(&d, now))
                o.after += (double)cost[io.id] / after_pauses_ns(&d, warm, end);
            if (arrived_ns[io.id] > warm && !world_device_pauses(&d, arrived_ns[io.id], now)) {
                due_count[who]++;
                in_time[who] += (double)now <= due_ns[io.id];
                if (who == 0 && is_after_pause(&d, arrived_ns[io.id])) {
                    after++;
                    after_in_time += (double)now <= due_ns[io.id];
                }
                if (who == 0 && latencies_seen < sizeof latency / sizeof *latency)
                    latency[latencies_seen++] = (double)(now - arrived_ns[io.id]);
            }
            world_client_done(&tenant[who], now);
            open[io.id] = false;
            unused[unused_count++] = io.id;
        }
        for (i = 0; i < TENANTS; i++)
            while (unused_count && world_client_next(&tenant[i], now, &q)) {
                uint32_t id = unused[--unused_count];
                open[id] = true;
                tenant_of[id] = i;
                cost[id] = q.cost;
                arrived_ns[id] = now;
                due_ns[id] = (s_ns[i] > (double)now ? s_ns[i] : (double)now);
                s_ns[i] = due_ns[id] + (double)q.cost / rate_of[i];
                due_ns[id] += t_of[i];
                offered += i == 0 && now > warm ? q.cost : 0;
                request[id].offset = q.offset;
                if (header) {
                    request[id].class_id = i + 1;
                    request[id].tokens[0] = q.cost;
                    if (htb_submit(&tree, now, &request[id]) != QOS_OK)
                        exit(1);
                } else {
                    reference_submit(&reference, now, i + 1, id);
                }
            }
    }
    for (i = 0; i < REQUESTS; i++) /* late and still not done */
        if (open[i] && due_ns[i] < (double)end && arrived_ns[i] > warm && !world_device_pauses(&d, arrived_ns[i], end))
            due_count[tenant_of[i]]++;
    for (i = 0; i < TENANTS; i++) {
        double time = (double)(end - warm);
        promised = rate_of[i];
        if (i == 0 && clients[c->client].arrivals != WORLD_CLOSED && (double)offered / time < promised)
            promised = (double)offered / time;
        if (i == 0 && clients[c->client].arrivals == WORLD_CLOSED &&
            clients[c->client].outstanding * DB_COST * times / c->latency_ns < promised)
            promised = clients[c->client].outstanding * DB_COST * times / c->latency_ns;
        o.rate[i] = work[i] / time / promised;
        o.on_time[i] = due_count[i] ? (double)in_time[i] / (double)due_count[i] : 1;
        o.total += work[i] / time;
    }
    o.after_on_time = after ? (double)after_in_time / (double)after : 1;
    if (latencies_seen) {
        qsort(latency, latencies_seen, sizeof *latency, by_size);
        o.p50_ns = latency[latencies_seen / 2];
        o.p99_ns = latency[(uint32_t)(latencies_seen * 0.99)];
    }
    if (header) {
        struct htb_state s;
        if (htb_info(&tree, &s) == QOS_OK)
            o.bound_ns = (double)s.flight_bound_ns;
    } else {
        o.bound_ns = bound_ns;
        reference_free(&reference);
    }
    world_device_free(&device);
    for (i = 0; i < TENANTS; i++)
        world_client_free(&tenant[i]);
    return o;
}

/* ---- the reference: the best fixed bound ---------------------------------------------------------------------------------- */

#define SEEDS_MAX 5
static double seconds = 3.5, warm_seconds = 1.5;
static uint32_t seeds = 2;

/* Which promises an outcome keeps: bits 0, 1: rates; 2, 3: deadlines. */
static uint32_t kept(const struct outcome *o)
{
    uint32_t i, bits = 0;
    for (i = 0; i < TENANTS; i++)
        bits |= (o->rate[i] >= 0.98 ? 1u << i : 0) | (o->on_time[i] >= 0.99 ? 4u << i : 0);
    return bits;
}

struct best {
    double bound_ns, total, p50_ns, p99_ns;
    uint32_t keeps;
};

/* Mean of `count` seeds from `first` on; *keeps: the promises that each of them keeps. */
static struct outcome mean_of(const struct cell *c, double bound_ns, double fixed_ns, uint64_t first, uint32_t count,
                              uint32_t *keeps)
{
    struct outcome sum, o;
    uint32_t i, j;
    memset(&sum, 0, sizeof sum);
    *keeps = 15;
    for (i = 0; i < count; i++) {
        o = run(c, bound_ns, fixed_ns, first + i, seconds, warm_seconds);
        *keeps &= kept(&o);
        sum.total += o.total / count;
        sum.p50_ns += o.p50_ns / count;
        sum.p99_ns += o.p99_ns / count;
        sum.bound_ns += o.bound_ns / count;
        sum.after += o.after / count;
        sum.after_on_time += o.after_on_time / count;
        for (j = 0; j < TENANTS; j++) {
            sum.rate[j] += o.rate[j] / count;
            sum.on_time[j] += o.on_time[j] / count;
        }
    }
    return sum;
}

#define BOUNDS_MAX 64

/* Of all bounds: those that keep most promises; of these the highest total; of those within 0.5 % of it, as that is what
 * seeds differ by, the one with the least median latency. */
static struct best choose(const struct best *b, uint32_t count)
{
    struct best best;
    uint32_t i, most = 0;
    double total = 0;
    memset(&best, 0, sizeof best);
    for (i = 0; i < count; i++)
        if ((uint32_t)__builtin_popcount(b[i].keeps) > most)
            most = (uint32_t)__builtin_popcount(b[i].keeps);
    for (i = 0; i < count; i++)
        if ((uint32_t)__builtin_popcount(b[i].keeps) == most && b[i].total > total)
            total = b[i].total;
    for (i = 0; i < count; i++)
        if ((uint32_t)__builtin_popcount(b[i].keeps) == most && b[i].total >= 0.995 * total &&
            (best.bound_ns <= 0 || b[i].p50_ns < best.p50_ns))
            best = b[i];
    return best;
}

static struct best at_bound(const struct cell *c, double bound_ns)
{
    struct best b;
    struct outcome o = mean_of(c, bound_ns, 0, 1000, seeds, &b.keeps);
    b.bound_ns = bound_ns;
    b.total = o.total;
    b.p50_ns = o.p50_ns;
    b.p99_ns = o.p99_ns;
    return b;
}

/* known_ns: what the search found before, or 0. */
static struct best find_best(const struct cell *c, double known_ns)
{
    struct best b[BOUNDS_MAX], best;
    uint32_t count = 0, pass, keeps;
    memset(&best, 0, sizeof best);
    if (known_ns > 0)
        best = at_bound(c, known_ns);
    for (pass = 0; pass < 2 && known_ns <= 0; pass++) { /* steps of 1.4 over all, of 1.1 around the best of them */
        double bound = pass ? best.bound_ns / 1.5 : 8e3, high = pass ? best.bound_ns * 1.5 : 8e7;
        for (; bound <= high && count < BOUNDS_MAX; bound *= pass ? 1.1 : 1.4)
            b[count++] = at_bound(c, bound);
        best = choose(b, count);
    }
    (void)mean_of(c, best.bound_ns, 0, 2000, SEEDS_MAX,
                  &keeps); /* a promise counts if it is kept on five other seeds */
    best.keeps &= keeps;
    return best;
}

/* The bounds that --best found: lines of a device and clients with a bound, in ns, for each reservation and latency, in
 * the order of --list. 0: not there. */
static double known_bound(const struct cell *c)
{
    FILE *f = fopen("tests/world/htb_cells.txt", "r");
    const size_t name = strcspn(c->name, "/") + 1 + strcspn(strchr(c->name, '/') + 1, "/");
    double bound_ns = 0;
    char line[256];
    while (f && bound_ns <= 0 && fgets(line, sizeof line, f))
        if (strncmp(line, c->name, name) == 0 && line[name] == ' ') {
            char *rest = line + name;
            uint32_t i;
            for (i = 0; i <= c->column; i++)
                bound_ns = strtod(rest, &rest);
        }
    if (f)
        fclose(f);
    return bound_ns;
}

/* ---- the verdict ---------------------------------------------------------------------------------------------------------- */

#define FIXED_BEST -1.0 /* the header with the best bound of the reference */

/* With all promises slack, the median latency of a tenant that sends one request at a time is at most 1.5 times that of
 * the best bound. */
static uint32_t slack_cells, slow_cells;

static bool is_slow(const struct cell *c, const struct best *b, const struct outcome *o)
{
    const bool slack = b->keeps == 15 && c->latency_ns >= 1e7, one = strcmp(clients[c->client].name, "one") == 0;
    const bool slow = slack && one && o->p50_ns > 1.5 * b->p50_ns;
    slack_cells += slack && one;
    slow_cells += slow;
    return slow;
}

/* 50 ms after a pause all is as without one: the device is in use, and if the best bound keeps db's deadlines, those who
 * come then are in time. */
static bool recovers_after_pauses(const struct cell *c, const struct best *b, const struct outcome *o)
{
    const struct world_device_config *d = &devices[c->device].device;
    const double awake = 1 - (double)d->pause_ns / (double)(d->pause_every_ns + (d->pause_every_ns == 0));
    return after_pauses_ns(d, 0, d->pause_every_ns) <= 0 ||
           (o->after >= 0.97 * b->total / awake && (!(b->keeps & 4) || o->after_on_time >= 0.99));
}

/* Runs the header in a cell and prints a line. True if it keeps what the best bound keeps. *slow: see above. */
static bool judge(const struct cell *c, double fixed_ns, bool *slow)
{
    const struct best b = find_best(c, known_bound(c));
    uint32_t keeps, misses;
    struct outcome o;
    bool ok, recovered;
    /* The reference counts tokens, the header time at the root's rate. */
    o = mean_of(c, 0, fixed_ns < 0 ? b.bound_ns / ROOT : fixed_ns, 1, seeds, &keeps);
    *slow = is_slow(c, &b, &o);
    /* The mean of the seeds decides, as single runs scatter. */
    keeps = kept(&o);
    misses = b.keeps & ~keeps;
    recovered = recovers_after_pauses(c, &b, &o);
    ok = misses == 0 && o.total >= 0.97 * b.total && recovered;
    printf("%-30s %s total %.3f of %.3f  rate %5.2f %5.2f  on time %.3f %.3f  p50 %7.3f of %7.3f ms  p99 %7.3f of "
           "%7.3f  bound "
           "%8.3f, best %8.3f ms%s%s%s%s%s%s%s\n",
           c->name, ok ? "ok  " : "FAIL", o.total, b.total, o.rate[0], o.rate[1], o.on_time[0], o.on_time[1],
           o.p50_ns / 1e6, b.p50_ns / 1e6, o.p99_ns / 1e6, b.p99_ns / 1e6, o.bound_ns / 1e6, b.bound_ns / ROOT / 1e6,
           misses & 1 ? " db-rate" : "", misses & 2 ? " scan-rate" : "", misses & 4 ? " db-late" : "",
           misses & 8 ? " scan-late" : "", o.total < 0.97 * b.total ? " total" : "", *slow ? " slow" : "",
           recovered ? "" : " recovery");
    fflush(stdout);
    return ok;
}

/* ---- changes ---------------------------------------------------------------------------------------------------------- */

/* After a change that lasts, the bound is where it should be within a second: what was kept for two seconds before the
 * device went at half of its speed for a while is kept again; what a tree keeps in the long run it keeps a second after
 * it began. */
static const struct {
    const char *cell;
    double before_s, change_s; /* kept from then on for two seconds; and again a second after that */
} changes[] = {
    {"64dip/one/R200/T1000", 1, 5},     {"64dip/four/R100/T1000", 1, 5},       {"64dip/open10/R200/T1000", 1, 5},
    {"8dip/one/R200/T1000", 1, 5},      {"8dip/four/R100/T1000", 1, 5},        {"8dip/open50/R200/T1000", 1, 5},
    {"8dip/open10/R200/T1000", 1, 5},   {"8dip/thirty2/R200/T1000", 1, 5},     {"8large/one/R20/T10000", 20, 0},
    {"8large/four/R200/T10000", 20, 0}, {"8large/thirty2/R600/T10000", 20, 0},
};

/* The mean of the seeds decides, as single runs scatter. */
static struct outcome mean_from(const struct cell *c, double from_s)
{
    const double before[] = {seconds, warm_seconds};
    struct outcome o;
    uint32_t keeps;
    seconds = from_s + 2;
    warm_seconds = from_s;
    o = mean_of(c, 0, 0, 1, seeds, &keeps);
    seconds = before[0];
    warm_seconds = before[1];
    return o;
}

static bool recovers(const struct cell *c, double before_s, double change_s)
{
    const struct outcome before = mean_from(c, before_s), after = mean_from(c, change_s + 1);
    const bool ok = (kept(&before) & ~kept(&after)) == 0 && after.total >= 0.97 * before.total;
    printf("%-30s %s total %.3f, then %.3f  rate %5.2f %5.2f, then %5.2f %5.2f  on time %.3f %.3f, then %.3f %.3f\n",
           c->name, ok ? "ok  " : "FAIL", before.total, after.total, before.rate[0], before.rate[1], after.rate[0],
           after.rate[1], before.on_time[0], before.on_time[1], after.on_time[0], after.on_time[1]);
    return ok;
}

/* Where the bound begins does not matter: all else is 50 times as fast, or 180 or 24 times as slow, so it begins at 100
 * times the best bound or at 1/100 of it. From then on the same is kept, the total is alike and, from above, the median
 * latency. */
static const struct {
    const char *cell;
    double scale, from_s;
} starts[] = {
    {"8ch10/one/R200/T10000", 0.02, 0.05}, {"64ch10/one/R200/T1000", 0.02, 0.05}, {"8ch10/one/R200/T1000", 180, 1},
    {"8ch10/four/R100/T1000", 180, 1},     {"8ch10/open50/R200/T1000", 180, 4},   {"8ch10/one/R200/T1000", 0.02, 1.2},
    {"64ch10/one/R200/T10000", 24, 2.5},
};

static struct cell cell_of(const char *name);

static bool ends_alike(const char *name, double by, double from_s)
{
    struct cell c = cell_of(name);
    const double before[] = {seconds, warm_seconds};
    struct outcome usual, o;
    uint32_t keeps;
    bool ok;
    usual = mean_of(&c, 0, 0, 1, seeds, &keeps);
    scale = by;
    c = cell_of(name);
    seconds = from_s + fmax(2, by / 20) * fmin(1, by);
    warm_seconds = from_s;
    o = mean_of(&c, 0, 0, 1, seeds, &keeps);
    seconds = before[0];
    warm_seconds = before[1];
    scale = 1;
    ok = (kept(&usual) & ~kept(&o)) == 0 && o.total >= 0.97 * usual.total &&
         (by > 1 || o.p50_ns <= 1.5 * by * usual.p50_ns);
    printf("%-30s %s times %6.2f, from %.2f s: total %.3f of %.3f  rate %5.2f %5.2f  on time %.3f %.3f  p50 %.3f of "
           "%.3f ms\n",
           c.name, ok ? "ok  " : "FAIL", by, from_s, o.total, usual.total, o.rate[0], o.rate[1], o.on_time[0],
           o.on_time[1], o.p50_ns / by / 1e6, usual.p50_ns / 1e6);
    return ok;
}

static const char *part_of(const char *name, uint32_t part)
{
    while (part-- > 0)
        name = strchr(name, '/') + 1;
    return name;
}

/* The cell of this name. */
static struct cell cell_of(const char *name)
{
    struct cell c;
    uint32_t d = 0, k = 0, r = 0, t = 0, *index[] = {&d, &k, &r, &t}, part;
    for (cell_name(&c, d, k, r, t), part = 0; part < 4; cell_name(&c, d, k, r, t))
        if (strncmp(part_of(c.name, part), part_of(name, part), strcspn(part_of(name, part), "/") + 1) != 0)
            ++*index[part];
        else
            part++;
    return c;
}

/* Cells that are judged in make test. */
static const char *fixed_cells[] = {
    "1ch30/open90/R200/T10000",    "8ch10/open50/R20/T1000",       "64ch10/four/R100/T1000",
    "64ch10/onoff50/R20/T10000",   "64ch30/four/R600/T10000",      "16any/one/R100/T1000",
    "16any/one/R200/T10000",       "64prov/two/R200/T10000",       "64pause20/two/R200/T10000",
    "64pause200/four/R100/T10000", "64pause200/open50/R100/T1000", "16gc200/open10/R600/T1000",
    "64step/two/R100/T10000",      "64ch10/one/R200/T10000",       NULL};

static void usage(void)
{
    printf("usage: htb_cells [options] PATTERN...   judges the header in the cells of these names (shell patterns)\n"
           "    --list         prints the names\n"
           "    --best         finds the best fixed bound of each (tests/world/htb_cells.txt has the bounds)\n"
           "    --sweep        prints what each fixed bound of the reference reaches in a cell\n"
           "    --fixed NS     the header with this fixed bound; 'best': with the best one of the reference\n"
           "    --seeds N      runs of each (2)     --seconds S    length of a run (3.5), of which --warm S (1.5) not "
           "counted\n"
           "A cell is DEVICE/CLIENT/R<permille>/T<us>, as 64ch30/open50/R200/T10000; 'coarse' is one of 18, 'changes' "
           "those "
           "of devices that change.\n");
}

int main(int argc, char **argv)
{
    enum { JUDGE, LIST, BEST, SWEEP } what = JUDGE;
    double fixed_ns = 0;
    uint32_t cells = 0, failed = 0, d, k, r, t, number = 0;
    int i, first = argc;
    check_begin("world/htb_cells");
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0)
            what = LIST;
        else if (strcmp(argv[i], "--best") == 0)
            what = BEST;
        else if (strcmp(argv[i], "--sweep") == 0)
            what = SWEEP;
        else if (i + 1 < argc && strcmp(argv[i], "--fixed") == 0)
            fixed_ns = strcmp(argv[++i], "best") == 0 ? FIXED_BEST : atof(argv[i]);
        else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0)
            seeds = (uint32_t)atoi(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--warm") == 0)
            warm_seconds = atof(argv[++i]);
        else if (argv[i][0] == '-') {
            usage();
            return 2;
        } else {
            first = i;
            break;
        }
    }
    for (d = 0; d < DEVICES; d++)
        for (k = 0; k < CLIENTS; k++)
            for (r = 0; r < RATES; r++)
                for (t = 0; t < LATENCIES; t++, number++) {
                    struct cell c;
                    bool match = false, slow;
                    cell_name(&c, d, k, r, t);
                    for (i = first; i < argc; i++)
                        match |= fnmatch(argv[i], c.name, 0) == 0 ||
                                 (strcmp(argv[i], "coarse") == 0 && (d + 2 * k + 3 * r + 7 * t) % 18 == 0);
                    for (i = 0; first == argc && fixed_cells[i]; i++)
                        match |= strcmp(fixed_cells[i], c.name) == 0;
                    if (what == LIST)
                        puts(c.name);
                    if (!match || what == LIST)
                        continue;
                    cells++;
                    if (what == BEST) {
                        struct best b = find_best(&c, 0);
                        printf("%s %.0f %u %.4f %.0f %.0f\n", c.name, b.bound_ns, b.keeps, b.total, b.p50_ns, b.p99_ns);
                        fflush(stdout);
                    } else if (what == SWEEP) {
                        double bound;
                        for (bound = 8e3; bound < 8e7; bound *= 1.4) {
                            uint32_t keeps;
                            struct outcome o = mean_of(&c, bound, 0, 1000, seeds, &keeps);
                            printf("bound %9.3f ms  total %.3f  rate %5.2f %5.2f  on time %.3f %.3f  p50 %7.3f p99 "
                                   "%7.3f  keeps %u\n",
                                   bound / 1e6, o.total, o.rate[0], o.rate[1], o.on_time[0], o.on_time[1],
                                   o.p50_ns / 1e6, o.p99_ns / 1e6, keeps);
                        }
                    } else {
                        bool ok = judge(&c, fixed_ns, &slow);
                        failed += !ok;
                        CHECK_CONTEXT("htb_cells %s", c.name);
                        CHECK(ok || first < argc);
                        CHECK(!slow || first < argc);
                    }
                }
    for (d = 0; what == JUDGE && d < sizeof changes / sizeof *changes; d++)
        if (first == argc || strcmp(argv[first], "changes") == 0) {
            struct cell c = cell_of(changes[d].cell);
            bool ok = recovers(&c, changes[d].before_s, changes[d].change_s);
            CHECK_CONTEXT("htb_cells changes: %s", c.name);
            CHECK(ok || first < argc);
        }
    for (d = 0; what == JUDGE && d < sizeof starts / sizeof *starts; d++)
        if (first == argc || strcmp(argv[first], "changes") == 0) {
            bool ok = ends_alike(starts[d].cell, starts[d].scale, starts[d].from_s);
            CHECK_CONTEXT("htb_cells starts: %s", starts[d].cell);
            CHECK(ok || first < argc);
        }
    if (first == argc)
        return check_end();
    if (what == JUDGE)
        printf("%u cells, %u failed; of %u in which all promises are slack %u are slow\n", cells, failed, slack_cells,
               slow_cells);
    return failed != 0;
}
