// Buckets: classification of requests, scheduling, statistics.
//
// All workers share one lock. A worker takes it once in a turn: it hands in arrivals and completions, then grants while
// memcached has room. A grant for another worker's client wakes that worker. So shares are exact over all workers, and
// one hold of the lock serves many requests.
#include "gate.h"
#include "pshift.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Grants under one hold of the lock. A client has one request in the queue, and the next one of a pipeline must be there
 * before its turn has passed. This worker reads its own clients' next requests at once; another worker does so later.
 * */
#define GRANTS_AT_ONCE 32
#define GRANTS_TO_OTHERS 4
/* Requests that a client gets in a row before the other clients of its bucket: so several replies are sent at a time.
   */
#define IN_A_ROW 8

#define LATENCY_STEPS 32 /* step k: below 2^k us */

struct bucket_spec bucket_spec[BUCKETS_LIMIT];
uint32_t bucket_count, bucket_other;
pthread_mutex_t buckets_lock = PTHREAD_MUTEX_INITIALIZER;
struct pshift_scheduler *buckets_pshift;

struct bucket {
    struct client *head, *tail; /* its queue */
    uint64_t waiting, requests, reserved, failed;
    uint64_t backlog_ns, since_ns; /* time with a request waiting; since when */
    uint64_t chances, since_grant; /* the same, counted in grants to any bucket */
    uint64_t emptied;              /* how often the last waiting request was sent */
    uint64_t latency[LATENCY_STEPS];
};

struct bucket_counts { /* atomic, without the lock */
    uint64_t refused, memory_bytes, clients;
};

static struct {
    struct bucket *bucket;
    struct bucket_counts *counts;
    struct tags tags;
    uint32_t *by_prefix, *parent; /* [prefixes] sorted; the longest other prefix of this one, or QOS_NONE */
    uint32_t prefixes;
    bool several; /* connections are of several buckets */
    uint32_t at_memcached;
    uint64_t grants;
    uint32_t watcher; /* the worker that checks again at watch_ns */
    uint64_t watch_ns, now_ns;
} b;

static void must(enum qos_status st)
{
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "scheduler: %s", qos_strerror(st));
}

/* ---- classification ---------------------------------------------------------------------------------------------- */

static int compare_keys(const char *a, size_t a_bytes, const char *c, size_t c_bytes)
{
    int order = memcmp(a, c, qos_min(a_bytes, c_bytes));
    return order ? order : (a_bytes > c_bytes) - (a_bytes < c_bytes);
}

static int by_prefix(const void *x, const void *y)
{
    const char *p = bucket_spec[*(const uint32_t *)x].prefix, *q = bucket_spec[*(const uint32_t *)y].prefix;
    return compare_keys(p, strlen(p), q, strlen(q));
}

static bool begins_with(const char *key, size_t bytes, uint32_t bucket)
{
    size_t n = strlen(bucket_spec[bucket].prefix);
    return n <= bytes && memcmp(key, bucket_spec[bucket].prefix, n) == 0;
}

static void sort_prefixes(void)
{
    uint32_t k, p;
    b.by_prefix = tool_alloc(bucket_count * sizeof *b.by_prefix);
    b.parent = tool_alloc(bucket_count * sizeof *b.parent);
    for (k = 0; k < bucket_count; k++)
        if (bucket_spec[k].prefix[0])
            b.by_prefix[b.prefixes++] = k;
    qsort(b.by_prefix, b.prefixes, sizeof *b.by_prefix, by_prefix);
    for (k = 0; k < b.prefixes; k++) {
        const char *prefix = bucket_spec[b.by_prefix[k]].prefix;
        for (p = k ? k - 1 : QOS_NONE; p != QOS_NONE && !begins_with(prefix, strlen(prefix), b.by_prefix[p]);)
            p = b.parent[p];
        b.parent[k] = p;
    }
}

static bool has_connections(uint32_t bucket)
{
    return bucket_spec[bucket].port || bucket_spec[bucket].has_from;
}

/* All prefixes of a key are in one chain of parents: it begins at the last prefix that does not come after the key. */
uint32_t bucket_of_key(const char *key, size_t bytes, uint32_t of_connection)
{
    uint32_t low = 0, high = b.prefixes, k;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const char *prefix = bucket_spec[b.by_prefix[mid]].prefix;
        if (compare_keys(prefix, strlen(prefix), key, bytes) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    for (k = low ? low - 1 : QOS_NONE; k != QOS_NONE; k = b.parent[k]) {
        uint32_t bucket = b.by_prefix[k];
        if (begins_with(key, bytes, bucket) && (bucket == of_connection || !has_connections(bucket)))
            return bucket;
    }
    return of_connection;
}

static bool address_in(const uint8_t address[16], const struct bucket_spec *s)
{
    uint32_t whole = s->from_bits / 8, rest = s->from_bits % 8;
    if (memcmp(address, s->from, whole) != 0)
        return false;
    return rest == 0 || ((address[whole] ^ s->from[whole]) & (0xff00 >> rest & 0xff)) == 0;
}

/* The port's bucket; otherwise that of the narrowest network that contains the address; otherwise the bucket of all
 * others. */
uint32_t bucket_of_connection(uint32_t port_bucket, const struct sockaddr_storage *from)
{
    uint8_t address[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    uint32_t k, best = bucket_other, bits = 0;
    if (port_bucket < bucket_count)
        return port_bucket;
    if (from->ss_family == AF_INET)
        memcpy(address + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else
        memcpy(address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    for (k = 0; k < bucket_count; k++)
        if (bucket_spec[k].has_from && bucket_spec[k].from_bits >= bits && address_in(address, &bucket_spec[k])) {
            best = k;
            bits = bucket_spec[k].from_bits + 1;
        }
    return best;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

bool bucket_charge(uint32_t bucket, uint64_t bytes, bool force)
{
    uint64_t *held = &b.counts[bucket].memory_bytes;
    if (__atomic_add_fetch(held, bytes, __ATOMIC_RELAXED) <= gate_settings.memory_bytes / bucket_count || force)
        return true;
    bucket_uncharge(bucket, bytes);
    return false;
}

bool bucket_over(uint32_t bucket)
{
    return __atomic_load_n(&b.counts[bucket].memory_bytes, __ATOMIC_RELAXED) >
           gate_settings.memory_bytes / bucket_count;
}

bool bucket_enter(uint32_t bucket)
{
    uint64_t own = __atomic_add_fetch(&b.counts[bucket].clients, 1, __ATOMIC_RELAXED);
    if (gate_clients() + (b.several ? own : 1) <= gate_settings.clients_max)
        return true;
    bucket_exit(bucket);
    return false;
}

void bucket_exit(uint32_t bucket)
{
    __atomic_sub_fetch(&b.counts[bucket].clients, 1, __ATOMIC_RELAXED);
}

void bucket_uncharge(uint32_t bucket, uint64_t bytes)
{
    __atomic_sub_fetch(&b.counts[bucket].memory_bytes, bytes, __ATOMIC_RELAXED);
}

void bucket_refused(uint32_t bucket)
{
    __atomic_add_fetch(&b.counts[bucket].refused, 1, __ATOMIC_RELAXED);
}

/* ---- scheduling -------------------------------------------------------------------------------------------------- */

static void open_tags(void)
{
    struct tags_config config = {.clients = bucket_count, .limit_burst_ns = gate_settings.burst_ns};
    const char *wrong;
    uint32_t k;
    config.mode = gate_settings.policy == POLICY_PS ? TAGS_PS : TAGS_REWARD;
    config.attribute = config.mode == TAGS_REWARD;
    config.at_device_max = (uint32_t)gate_settings.depth;
    config.capacity_per_s = agent_config.capacity;
    wrong = tags_config_error(&config);
    if (wrong)
        tool_die(TOOL_USAGE, "%s", wrong);
    must(tags_init(&b.tags, tool_alloc_aligned(tags_memsize(&config), QOS_CACHE_LINE), tags_memsize(&config), &config));
    for (k = 0; k < bucket_count; k++) {
        enum qos_status st;
        struct tags_state state;
        wrong = tags_client_error(&bucket_spec[k].terms);
        if (wrong)
            tool_die(TOOL_USAGE, "bucket %s: %s", bucket_spec[k].name, wrong);
        st = tags_add(&b.tags, tool_now_ns(), k, &bucket_spec[k].terms);
        must(tags_info(&b.tags, QOS_NONE, &state));
        if (st == QOS_EADMISSION)
            tool_die(TOOL_USAGE,
                     "bucket %s: reserve=%" PRIu64 " does not fit: %" PRIu64 " of --capacity are left to reserve",
                     bucket_spec[k].name, bucket_spec[k].terms.reservation_per_s, state.admissible_per_s);
        must(st);
    }
}

void buckets_open(void)
{
    bool limits = false;
    uint32_t k;
    b.bucket = tool_alloc(bucket_count * sizeof *b.bucket);
    b.counts = tool_alloc(bucket_count * sizeof *b.counts);
    b.watch_ns = QOS_NEVER;
    sort_prefixes();
    for (k = 0; k < bucket_count; k++) {
        limits |= bucket_spec[k].terms.limit_per_s != 0;
        b.several |= has_connections(k);
    }
    if (agent_config.controllers)
        agent_open(bucket_count, limits);
    else
        open_tags();
}

static void put_between(struct bucket *q, struct client *before, struct client *c, struct client *after)
{
    c->prev = before;
    c->next = after;
    *(before ? &before->next : &q->head) = c;
    *(after ? &after->prev : &q->tail) = c;
}

static void arrive(struct client *c, bool first)
{
    struct bucket *q = &b.bucket[c->grant.bucket];
    c->queued = true;
    if (first)
        put_between(q, NULL, c, q->head);
    else
        put_between(q, q->tail, c, NULL);
    if (q->waiting++ == 0) {
        q->since_ns = b.now_ns;
        q->since_grant = b.grants;
    }
    if (buckets_pshift)
        must(pshift_scheduler_arrive(buckets_pshift, c->grant.bucket, 1));
    else
        must(tags_arrive(&b.tags, b.now_ns, c->grant.bucket, 1, 1));
}

static void unqueue(struct client *c)
{
    struct bucket *q = &b.bucket[c->grant.bucket];
    if (c->prev)
        c->prev->next = c->next;
    else
        q->head = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        q->tail = c->prev;
    c->queued = false;
    if (--q->waiting == 0) {
        q->emptied++;
        q->backlog_ns += qos_sat_sub(b.now_ns, q->since_ns);
        q->chances += b.grants - q->since_grant;
    }
}

static void leave(struct client *c)
{
    if (!c->queued)
        return; /* granted meanwhile; its worker returns the grant */
    unqueue(c);
    if (buckets_pshift)
        must(pshift_scheduler_cancel(buckets_pshift, c->grant.bucket, 1));
    else
        must(tags_withdraw(&b.tags, b.now_ns, c->grant.bucket, 1));
    c->state = CLIENT_CLOSE;
    if (c->outstanding == 0)
        worker_bury(c);
}

/* From its queue to its reply. */
static void note_latency(struct bucket *q, uint64_t ns)
{
    const uint64_t us = ns / 1000;
    q->latency[us ? qos_min(64 - (uint64_t)__builtin_clzll(us), LATENCY_STEPS - 1) : 0]++;
}

static void give_back(const struct done *d)
{
    struct bucket *q = &b.bucket[d->grant.bucket];
    b.at_memcached--;
    q->failed += d->outcome == OUTCOME_FAILED || d->outcome == OUTCOME_NOT_SENT;
    if (d->outcome == OUTCOME_DONE)
        note_latency(q, qos_sat_sub(b.now_ns, d->grant.asked_ns));
    if (buckets_pshift)
        return; /* its token is spent in any case */
    if (d->outcome == OUTCOME_NOT_SENT)
        must(tags_cancel(&b.tags, b.now_ns, &d->grant.tags));
    else if (d->outcome == OUTCOME_FAILED)
        must(tags_fail(&b.tags, b.now_ns, &d->grant.tags, 0));
    else
        must(tags_complete(&b.tags, b.now_ns, &d->grant.tags, 0));
}

/* The next request to send. False: none now. */
static bool pick(struct grant *grant)
{
    struct pshift_pick pick;
    bool reserved;
    if (b.at_memcached >= gate_settings.depth)
        return false;
    if (buckets_pshift) {
        if (pshift_scheduler_pick(buckets_pshift, &pick) != QOS_OK)
            return false;
        grant->bucket = pick.queue;
        reserved = pick.backing == PSHIFT_RESERVATION;
    } else {
        if (tags_pull(&b.tags, b.now_ns, 1, &grant->tags) != QOS_OK)
            return false;
        grant->bucket = grant->tags.client;
        reserved = grant->tags.phase == TAGS_PHASE_RESERVATION;
    }
    b.at_memcached++;
    b.grants++;
    b.bucket[grant->bucket].requests++;
    b.bucket[grant->bucket].reserved += reserved;
    return true;
}

/* Appends to its worker's list; a sleeping worker is woken afterwards. */
static void hand_over(struct client *c, const struct grant *grant, bool wake[])
{
    struct worker *w = c->worker;
    c->grant = *grant;
    c->next_granted = NULL;
    if (w->granted)
        w->granted_last->next_granted = c;
    else
        w->granted = c;
    w->granted_last = c;
    wake[w->number] = true;
}

/* One worker checks again when a limit allows the next request; the others may sleep. */
static void watch(struct worker *w)
{
    uint64_t next_ns = buckets_pshift ? QOS_NEVER : tags_next_ns(&b.tags, b.now_ns);
    if (b.at_memcached >= gate_settings.depth)
        next_ns = QOS_NEVER; /* a reply comes first */
    w->look_ns = QOS_NEVER;
    if (b.watcher == w->number || next_ns < b.watch_ns || b.watch_ns < b.now_ns) {
        b.watcher = w->number;
        b.watch_ns = w->look_ns = next_ns;
    }
}

/* Sends the request of this worker's client; its next one arrives. */
static void send_now(struct client *c, const struct grant *grant)
{
    struct worker *w = c->worker;
    c->grant = *grant;
    c->in_a_row++;
    if (!client_granted_small(c)) {
        c->in_a_row = 0;
        return;
    }
    w->arrived = c->next_granted; /* the client is the first in that list */
    c->in_a_row *= c->grant.bucket == grant->bucket && c->in_a_row < IN_A_ROW;
    arrive(c, c->in_a_row != 0);
}

/* True: there may be more to grant. */
static bool grant_all(struct worker *w, bool wake[])
{
    struct grant grant = {0};
    uint32_t k, others = 0;
    bool found = true;
    w->granting = true;
    for (k = 0; k < (others ? GRANTS_TO_OTHERS : GRANTS_AT_ONCE) && (found = pick(&grant)); k++) {
        struct client *c = b.bucket[grant.bucket].head;
        grant.asked_ns = c->grant.asked_ns;
        unqueue(c);
        if (c->worker == w && client_is_small(c)) {
            send_now(c, &grant);
            continue;
        }
        others++;
        hand_over(c, &grant, wake);
    }
    w->granting = false;
    return found;
}

bool buckets_turn(struct worker *w)
{
    bool wake[256] = {false}, more;
    struct client *c;
    uint32_t k;
    pthread_mutex_lock(&buckets_lock);
    /* since the turn began this thread may have been without a processor */
    b.now_ns = qos_max(b.now_ns, tool_now_ns());
    for (c = w->arrived; c; c = c->next_granted)
        arrive(c, false);
    for (c = w->left; c; c = c->next_left)
        leave(c);
    for (k = 0; k < w->done_count; k++)
        give_back(&w->done[k]);
    w->arrived = w->left = NULL;
    w->done_count = 0;
    more = grant_all(w, wake);
    watch(w);
    if (!w->mine) {
        w->mine = w->granted;
        w->granted = NULL;
    }
    more |= w->mine != NULL;
    __atomic_store_n(&w->sleeping, !more, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&buckets_lock);
    for (k = 0; k < worker_count; k++)
        if (wake[k] && k != w->number && __atomic_exchange_n(&workers[k].sleeping, false, __ATOMIC_RELAXED))
            worker_poke(&workers[k]);
    return more;
}

void workers_wake(void)
{
    worker_poke(&workers[0]); /* it grants for all workers */
}

uint64_t bucket_waiting(uint32_t bucket)
{
    return b.bucket[bucket].waiting;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static void number(FILE *f, bool prometheus, const char *bucket, const char *name, uint64_t value)
{
    if (prometheus)
        fprintf(f, "memcached_gate_%s{bucket=\"%s\"} %" PRIu64 "\n", name, bucket, value);
    else
        fprintf(f, "STAT %s:%s %" PRIu64 "\r\n", bucket, name, value);
}

/* What the bucket's next request waits for. */
static const char *waits_for(uint32_t k)
{
    struct tags_state state;
    if (b.bucket[k].waiting == 0)
        return "nothing";
    if (!gate_backend_up())
        return "memcached, which does not answer";
    if (buckets_pshift)
        return b.at_memcached >= gate_settings.depth ? "memcached" : "tokens";
    if (tags_info(&b.tags, k, &state) == QOS_OK && state.waiting_at_limit)
        return "its limit";
    return b.at_memcached >= gate_settings.depth ? "memcached" : "its turn";
}

/* In the text, step k has its own count; in Prometheus, `le` counts all below it. */
static void latency_stats(FILE *f, bool prometheus, const struct bucket *q, const char *name)
{
    uint64_t below = 0;
    uint32_t k;
    for (k = 0; k < LATENCY_STEPS; k++) {
        below += q->latency[k];
        if (prometheus && k + 1 < LATENCY_STEPS)
            fprintf(f, "memcached_gate_latency_seconds_bucket{bucket=\"%s\",le=\"%.6f\"} %" PRIu64 "\n", name,
                    (double)(UINT64_C(1) << k) / 1e6, below);
        else if (prometheus)
            fprintf(f, "memcached_gate_latency_seconds_bucket{bucket=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, below);
        else
            fprintf(f, "%s%" PRIu64, k ? "," : "", q->latency[k]);
    }
}

static void bucket_stats(FILE *f, bool prometheus, uint32_t k, const struct bucket *q, const char *waits,
                         uint64_t now_ns)
{
    const struct bucket_spec *s = &bucket_spec[k];
    uint64_t backlog_ns = q->backlog_ns + (q->waiting ? qos_sat_sub(now_ns, q->since_ns) : 0);
    number(f, prometheus, s->name, "reserve", s->terms.reservation_per_s);
    number(f, prometheus, s->name, "limit", s->terms.limit_per_s);
    number(f, prometheus, s->name, "weight", qos_max(s->terms.weight, 1));
    number(f, prometheus, s->name, "requests_total", q->requests);
    number(f, prometheus, s->name, "by_reservation_total", q->reserved);
    number(f, prometheus, s->name, "failed_total", q->failed);
    number(f, prometheus, s->name, "refused_total", __atomic_load_n(&b.counts[k].refused, __ATOMIC_RELAXED));
    number(f, prometheus, s->name, "waiting", q->waiting);
    number(f, prometheus, s->name, "waited_ns_total", backlog_ns);
    number(f, prometheus, s->name, "emptied_total", q->emptied);
    number(f, prometheus, s->name, "chances_total", q->chances);
    number(f, prometheus, s->name, "memory_bytes", __atomic_load_n(&b.counts[k].memory_bytes, __ATOMIC_RELAXED));
    if (!prometheus)
        fprintf(f, "STAT %s:latency_log2_us ", s->name);
    latency_stats(f, prometheus, q, s->name);
    if (!prometheus)
        fprintf(f, "\r\nSTAT %s:waits_for %s\r\n", s->name, waits);
}

char *buckets_stats(bool prometheus, size_t *bytes)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, bytes);
    /* Copies: printing takes long, and the lock must not be held for it. */
    struct bucket *q = tool_alloc(bucket_count * sizeof *q);
    const char **waits = tool_alloc(bucket_count * sizeof *waits);
    uint64_t now_ns;
    uint32_t k, at_memcached;
    if (!f)
        tool_die(TOOL_FAILED, "out of memory");
    pthread_mutex_lock(&buckets_lock);
    now_ns = tool_now_ns();
    for (k = 0; k < bucket_count; k++) {
        q[k] = b.bucket[k];
        q[k].chances += q[k].waiting ? b.grants - q[k].since_grant : 0;
        waits[k] = waits_for(k);
    }
    at_memcached = b.at_memcached;
    pthread_mutex_unlock(&buckets_lock);
    for (k = 0; k < bucket_count; k++)
        bucket_stats(f, prometheus, k, &q[k], waits[k], now_ns);
    free(q);
    free(waits);
    if (prometheus) {
        fprintf(f, "memcached_gate_clients %u\nmemcached_gate_at_memcached %u\nmemcached_gate_memcached_up %d\n",
                gate_clients(), at_memcached, gate_backend_up());
    } else {
        fprintf(f,
                "STAT clients %u\r\nSTAT at_memcached %u\r\nSTAT memcached_up %d\r\nSTAT now_ns %" PRIu64
                "\r\nSTAT pid %d\r\n"
                "END\r\n",
                gate_clients(), at_memcached, gate_backend_up(), now_ns, (int)getpid());
    }
    fclose(f);
    return text;
}
