// Buckets: classification of requests, scheduling, statistics.
//
// A request costs 1 and a part for its bytes. What it will be is known of a set; of a get it is what the bucket's last
// replies were, and the difference is charged to the bucket's next request. Surplus requests are sent while fewer than
// --depth requests and FLIGHT_BYTES are at memcached; requests by reservation are sent at once, as reservations are few
// enough. So a reservation waits for no others' large values, however deep the pipeline is.
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
/* Small requests that a client gets in a row before the other clients of its bucket, if each was there when the one
 * before it was sent: so the replies to a pipeline are sent at a time. */
#define IN_A_ROW 16

#define FLIGHT_BYTES (UINT64_C(4) << 20)
/* Bytes that take the time of one more request: 8 KiB are copied four times in 5 us. */
#define COST_BYTES 8192
#define BLOCKED_NS 1000000 /* a reservation may be due before the next reply */

struct bucket_spec bucket_spec[BUCKETS_LIMIT];
uint32_t bucket_count, bucket_other;
pthread_mutex_t buckets_lock = PTHREAD_MUTEX_INITIALIZER;
struct pshift_scheduler *buckets_pshift;

struct bucket {
    struct client *head, *tail; /* its queue */
    uint64_t waiting;
    uint64_t since_ns, since_grant; /* when a request has waited since, in time and in grants to any bucket */
    uint64_t reply_bytes;           /* mean of the last replies */
    int64_t owed_bytes;             /* what requests had more than they were charged for; negative: less */
    struct bucket_stats stats;
};

struct bucket_counts { /* atomic, without the lock */
    uint64_t refused[REFUSED_REASONS], memory_bytes, clients;
};

static struct {
    struct bucket *bucket;
    struct bucket_counts *counts;
    struct tags tags;
    uint32_t *by_prefix, *parent; /* [prefixes] sorted; the longest other prefix of this one, or QOS_NONE */
    uint32_t prefixes;
    bool several; /* connections are of several buckets */
    uint32_t live;
    uint32_t at_memcached;
    uint64_t flight_bytes; /* of these, as expected */
    uint64_t grants, cost_max;
    bool blocked;     /* surplus requests wait for room at memcached */
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
    b.prefixes = 0;
    for (k = 0; k < bucket_count; k++)
        if (bucket_spec[k].prefix[0] && bucket_spec[k].state == BUCKET_LIVE)
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
    if (from->ss_family != AF_INET && from->ss_family != AF_INET6)
        return bucket_other; /* a local socket */
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
    if (__atomic_add_fetch(held, bytes, __ATOMIC_RELAXED) <= gate_settings.memory_bytes / b.live || force)
        return true;
    bucket_uncharge(bucket, bytes);
    return false;
}

bool bucket_over(uint32_t bucket)
{
    return __atomic_load_n(&b.counts[bucket].memory_bytes, __ATOMIC_RELAXED) > gate_settings.memory_bytes / b.live;
}

bool bucket_enter(uint32_t bucket)
{
    uint64_t own = __atomic_add_fetch(&b.counts[bucket].clients, 1, __ATOMIC_RELAXED);
    if (gate_clients() + (b.several ? own : 1) <= gate_settings.clients_max)
        return true;
    bucket_exit(bucket);
    return false;
}

bool buckets_several(void)
{
    return b.live > 1;
}

void bucket_move(uint32_t from, uint32_t to)
{
    bucket_exit(from);
    __atomic_add_fetch(&b.counts[to].clients, 1, __ATOMIC_RELAXED);
}

void bucket_exit(uint32_t bucket)
{
    __atomic_sub_fetch(&b.counts[bucket].clients, 1, __ATOMIC_RELAXED);
}

void bucket_uncharge(uint32_t bucket, uint64_t bytes)
{
    __atomic_sub_fetch(&b.counts[bucket].memory_bytes, bytes, __ATOMIC_RELAXED);
}

void bucket_refused(uint32_t bucket, enum refused why)
{
    __atomic_add_fetch(&b.counts[bucket].refused[why], 1, __ATOMIC_RELAXED);
}

/* ---- scheduling -------------------------------------------------------------------------------------------------- */

static void open_tags(void)
{
    struct tags_config config = {.clients = BUCKETS_LIMIT, .limit_burst_ns = gate_settings.burst_ns};
    const char *wrong;
    uint32_t k;
    config.mode = gate_settings.policy == POLICY_PS ? TAGS_PS : TAGS_REWARD;
    config.attribute = config.mode == TAGS_REWARD;
    config.channels = config.attribute ? TAGS_CHANNELS_ALL : 0; /* a server with many threads */
    config.at_device_max = DEPTH_MAX;
    config.cost_max = b.cost_max = 2 + 2 * gate_settings.value_bytes_max / COST_BYTES;
    config.capacity_per_s = gate_cluster.capacity;
    wrong = tags_config_error(&config);
    if (wrong)
        tool_die(TOOL_USAGE, "%s", wrong);
    must(tags_init(&b.tags, tool_alloc_aligned(tags_memsize(&config), QOS_CACHE_LINE), tags_memsize(&config), &config));
    for (k = 0; k < bucket_count; k++) {
        enum qos_status st;
        struct tags_state state;
        wrong = tags_client_error(&bucket_spec[k].terms);
        if (wrong)
            tool_die(TOOL_USAGE, "%s bucket %s: %s", bucket_spec[k].where, bucket_spec[k].name, wrong);
        st = tags_add(&b.tags, tool_now_ns(), k, &bucket_spec[k].terms);
        must(tags_info(&b.tags, QOS_NONE, &state));
        if (st == QOS_EADMISSION)
            tool_die(TOOL_USAGE,
                     "%s bucket %s: reserve=%" PRIu64 " does not fit: %" PRIu64 " of --capacity are left to reserve",
                     bucket_spec[k].where, bucket_spec[k].name, bucket_spec[k].terms.reservation_per_s,
                     state.admissible_per_s);
        must(st);
    }
}

void buckets_open(void)
{
    uint32_t k;
    b.bucket = tool_alloc(BUCKETS_LIMIT * sizeof *b.bucket);
    b.counts = tool_alloc(BUCKETS_LIMIT * sizeof *b.counts);
    b.by_prefix = tool_alloc(BUCKETS_LIMIT * sizeof *b.by_prefix);
    b.parent = tool_alloc(BUCKETS_LIMIT * sizeof *b.parent);
    b.live = bucket_count;
    b.watch_ns = QOS_NEVER;
    sort_prefixes();
    for (k = 0; k < bucket_count; k++) {
        b.several |= has_connections(k);
    }
    if (gate_cluster.options.endpoints)
        gate_agent_open();
    else
        open_tags();
}

/* ---- new settings ------------------------------------------------------------------------------------------------ */

static uint32_t find(const char *name)
{
    uint32_t k;
    for (k = 0; k < bucket_count; k++)
        if (bucket_spec[k].state != BUCKET_FREE && strcmp(bucket_spec[k].name, name) == 0)
            return k;
    return QOS_NONE;
}

/* Nothing of a removed bucket is left: its number is free. */
static void let_go(uint32_t k)
{
    uint32_t n;
    bool used = b.bucket[k].waiting || __atomic_load_n(&b.counts[k].memory_bytes, __ATOMIC_RELAXED);
    for (n = 0; n < worker_count; n++)
        used |= backend_used(&workers[n], k) || clients_use(&workers[n], k);
    if (used || tags_remove(&b.tags, tool_now_ns(), k, NULL) != QOS_OK)
        return;
    for (n = 0; n < worker_count; n++)
        backend_drop(&workers[n], k);
    memset(&b.bucket[k], 0, sizeof b.bucket[k]);
    memset(&b.counts[k], 0, sizeof b.counts[k]);
    memset(&bucket_spec[k], 0, sizeof bucket_spec[k]);
    bucket_spec[k].state = BUCKET_FREE;
}

static void remove_bucket(uint32_t k)
{
    struct bucket_spec *s = &bucket_spec[k];
    s->state = BUCKET_REMOVED;
    s->prefix[0] = 0;
    s->has_from = false;
    s->port = 0;
    s->terms = (struct tags_client){0};
    s->terms.weight = 1;
    must(tags_change(&b.tags, tool_now_ns(), k, &s->terms)); /* what it reserved is free at once */
}

static void change_terms(uint32_t k, const struct bucket_spec *s)
{
    enum qos_status st = tags_change(&b.tags, tool_now_ns(), k, &s->terms);
    if (st != QOS_OK)
        tool_warn("bucket %s keeps its terms: %s", s->name, qos_strerror(st));
    else
        bucket_spec[k].terms = s->terms;
}

static uint32_t new_bucket(const struct bucket_spec *s)
{
    uint32_t k = 0;
    enum qos_status st;
    while (k < bucket_count && bucket_spec[k].state != BUCKET_FREE)
        k++;
    if (k == BUCKETS_LIMIT) {
        tool_warn("bucket %s: no number is free before those of removed buckets are; send SIGHUP again", s->name);
        return QOS_NONE;
    }
    st = tags_add(&b.tags, tool_now_ns(), k, &s->terms);
    if (st != QOS_OK) {
        tool_warn("bucket %s is left out: %s", s->name, qos_strerror(st));
        return QOS_NONE;
    }
    bucket_spec[k] = *s;
    if (k == bucket_count)
        bucket_count++;
    return k;
}

/* First all that need less, then all that need more: so the sum fits at every step. */
void buckets_change(const struct bucket_spec *spec, uint32_t count, uint32_t other)
{
    static uint32_t number[BUCKETS_LIMIT]; /* by place in spec */
    static bool kept[BUCKETS_LIMIT];
    uint32_t k, old = bucket_count;
    memset(kept, 0, sizeof kept);
    pthread_mutex_lock(&buckets_lock);
    for (k = 0; k < count; k++) {
        number[k] = find(spec[k].name);
        if (number[k] != QOS_NONE)
            kept[number[k]] = true;
    }
    for (k = 0; k < old; k++)
        if (!kept[k] && bucket_spec[k].state == BUCKET_LIVE)
            remove_bucket(k);
    for (k = 0; k < count; k++)
        if (number[k] != QOS_NONE && spec[k].terms.reservation_per_s <= bucket_spec[number[k]].terms.reservation_per_s)
            change_terms(number[k], &spec[k]);
    for (k = 0; k < count; k++) {
        struct tags_client terms;
        if (number[k] == QOS_NONE)
            continue;
        if (spec[k].terms.reservation_per_s > bucket_spec[number[k]].terms.reservation_per_s)
            change_terms(number[k], &spec[k]);
        terms = bucket_spec[number[k]].terms;
        bucket_spec[number[k]] = spec[k];
        bucket_spec[number[k]].terms = terms;
    }
    for (k = 0; k < count; k++)
        if (number[k] == QOS_NONE)
            number[k] = new_bucket(&spec[k]);
    bucket_other = number[other] == QOS_NONE ? bucket_other : number[other];
    sort_prefixes();
    b.several = false;
    b.live = 0;
    for (k = 0; k < bucket_count; k++) {
        b.several |= has_connections(k);
        b.live += bucket_spec[k].state == BUCKET_LIVE;
    }
    for (k = 0; k < worker_count; k++)
        clients_sort(&workers[k]);
    for (k = 0; k < bucket_count; k++)
        if (bucket_spec[k].state == BUCKET_REMOVED)
            let_go(k);
    pthread_mutex_unlock(&buckets_lock);
}

/* ---- queues and grants ------------------------------------------------------------------------------------------- */

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

/* A client that is in a row has sent a request to the bucket `at_bucket` before. */
static void arrive_next(struct client *c)
{
    if (c->at_bucket != c->grant.bucket || c->in_a_row >= IN_A_ROW || !client_is_small(c))
        c->in_a_row = 0;
    arrive(c, c->in_a_row != 0);
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
        q->stats.emptied++;
        q->stats.backlog_ns += qos_sat_sub(b.now_ns, q->since_ns);
        q->stats.chances += b.grants - q->since_grant;
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

static void note(struct times *t, uint64_t ns)
{
    const uint64_t us = ns / 1000;
    t->step[us ? qos_min(64 - (uint64_t)__builtin_clzll(us), TIME_STEPS - 1) : 0]++;
    t->sum_ns += ns;
}

static void give_back(const struct done *d)
{
    struct bucket *q = &b.bucket[d->grant.bucket];
    b.at_memcached--;
    b.flight_bytes -= d->grant.bytes;
    q->stats.failed += d->outcome == OUTCOME_FAILED || d->outcome == OUTCOME_NOT_SENT;
    if (d->outcome == OUTCOME_DONE)
        q->reply_bytes = (q->reply_bytes * 7 + d->bytes + 7) / 8;
    if (d->outcome != OUTCOME_NOT_SENT) /* that is not charged at all */
        q->owed_bytes += (int64_t)d->bytes - (int64_t)d->grant.reply_bytes;
    if (d->outcome == OUTCOME_DONE)
        note(&q->stats.latency, qos_sat_sub(b.now_ns, d->grant.asked_ns));
    if (buckets_pshift)
        return; /* its token is spent in any case */
    if (d->outcome == OUTCOME_NOT_SENT)
        must(tags_cancel(&b.tags, b.now_ns, &d->grant.tags));
    else if (d->outcome == OUTCOME_FAILED)
        must(tags_fail(&b.tags, b.now_ns, &d->grant.tags, 0));
    else
        must(tags_complete(&b.tags, b.now_ns, &d->grant.tags, 0));
}

static bool room(void)
{
    return b.at_memcached < gate_settings.depth && b.flight_bytes < FLIGHT_BYTES;
}

/* What the bucket's next request is expected to move, and its cost. What was charged too little or too much before is
 * in it. */
static uint64_t expect(struct bucket *q, struct grant *grant)
{
    int64_t bytes;
    uint64_t cost;
    grant->reply_bytes = q->reply_bytes;
    grant->bytes = q->head->head.data_bytes + grant->reply_bytes;
    bytes = (int64_t)grant->bytes + q->owed_bytes;
    cost = bytes > 0 ? qos_min(1 + (uint64_t)bytes / COST_BYTES, b.cost_max) : 1;
    q->owed_bytes += (int64_t)grant->bytes - (int64_t)((cost - 1) * COST_BYTES);
    return cost;
}

static bool pick_pshift(struct grant *grant, bool *reserved)
{
    struct pshift_pick pick;
    if (!room() || pshift_scheduler_pick(buckets_pshift, tool_now_ns(), &pick) != QOS_OK)
        return false;
    grant->bucket = pick.queue;
    *reserved = pick.backing == PSHIFT_RESERVATION;
    (void)expect(&b.bucket[pick.queue], grant);
    return true;
}

static bool pick_tags(struct grant *grant, bool *reserved)
{
    struct tags_choice choice;
    if (b.at_memcached >= DEPTH_MAX || tags_choose(&b.tags, b.now_ns, &choice) != QOS_OK)
        return false;
    *reserved = choice.phase == TAGS_PHASE_RESERVATION;
    if (!*reserved && !room()) {
        b.blocked = true;
        return false;
    }
    grant->bucket = choice.client;
    must(tags_dispatch(&b.tags, b.now_ns, &choice, expect(&b.bucket[choice.client], grant), 0, 0, &grant->tags));
    return true;
}

/* The next request to send. False: none now. */
static bool pick(struct grant *grant)
{
    bool reserved = false;
    struct bucket *q;
    b.blocked = false;
    if (!(buckets_pshift ? pick_pshift(grant, &reserved) : pick_tags(grant, &reserved)))
        return false;
    q = &b.bucket[grant->bucket];
    b.at_memcached++;
    b.flight_bytes += grant->bytes;
    b.grants++;
    q->stats.requests++;
    q->stats.reserved += reserved;
    note(&q->stats.wait, qos_sat_sub(b.now_ns, q->head->grant.asked_ns));
    return true;
}

/* Appends to its worker's list; a sleeping worker is woken afterwards. */
static void hand_over(struct client *c, const struct grant *grant, bool wake[])
{
    struct worker *w = c->worker;
    c->grant = *grant;
    c->in_a_row++;
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
    uint64_t next_ns = QOS_NEVER;
    if (b.blocked)
        next_ns = b.now_ns + BLOCKED_NS;
    else if (!buckets_pshift && b.at_memcached < DEPTH_MAX)
        next_ns = tags_next_ns(&b.tags, b.now_ns);
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
    if (!client_granted_small(c))
        return;
    w->arrived = c->next_granted; /* the client is the first in that list */
    arrive_next(c);
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

#ifdef GATE_LOCK_TIMES /* bench/memcached_lock.sh: what the lock costs, a line for each of the first turns */
#include <time.h>
static uint64_t own_ns(void) /* processor time of this thread: it neither sleeps nor is it without a processor in it */
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}
static void lock_times(const uint64_t own[3], uint64_t waited_ns, uint64_t granted)
{
    static __thread uint64_t last_ns, turns;
    if (last_ns && turns++ < GATE_LOCK_TIMES)
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", own[0] - last_ns, waited_ns, own[2] - own[1],
               granted);
    last_ns = own_ns();
}
#define LOCK_TIMES(...) __VA_ARGS__
#else
#define LOCK_TIMES(...)
#endif

bool buckets_turn(struct worker *w)
{
    bool wake[256] = {false}, more;
    struct client *c;
    uint32_t k;
    LOCK_TIMES(uint64_t own[3] = {own_ns(), 0, 0}, wait_ns = tool_now_ns(), granted);
    pthread_mutex_lock(&buckets_lock);
    LOCK_TIMES(wait_ns = tool_now_ns() - wait_ns; own[1] = own_ns(); granted = b.grants);
    /* since the turn began this thread may have been without a processor */
    b.now_ns = qos_max(b.now_ns, tool_now_ns());
    for (c = w->arrived; c; c = c->next_granted)
        arrive_next(c);
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
    LOCK_TIMES(granted = b.grants - granted; own[2] = own_ns());
    pthread_mutex_unlock(&buckets_lock);
    LOCK_TIMES(lock_times(own, wait_ns, granted));
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

/* What the bucket's next request waits for. */
static const char *waits_for(uint32_t k)
{
    struct tags_state state;
    if (b.bucket[k].waiting == 0)
        return "nothing";
    if (!gate_backend_up())
        return "memcached, which does not answer";
    if (buckets_pshift)
        return !room() ? "memcached" : "tokens";
    if (tags_info(&b.tags, k, &state) == QOS_OK && state.waiting_at_limit)
        return "its limit";
    return !room() ? "memcached" : "its turn";
}

void buckets_look(struct bucket_stats *out, struct gate_stats *all)
{
    uint32_t k, why;
    pthread_mutex_lock(&buckets_lock);
    all->now_ns = tool_now_ns();
    all->at_memcached = b.at_memcached;
    for (k = 0; k < bucket_count; k++) {
        const struct bucket *q = &b.bucket[k];
        out[k] = q->stats;
        out[k].waiting = q->waiting;
        if (q->waiting) {
            out[k].backlog_ns += qos_sat_sub(all->now_ns, q->since_ns);
            out[k].chances += b.grants - q->since_grant;
        }
        out[k].waits_for = waits_for(k);
        out[k].spec = bucket_spec[k];
    }
    pthread_mutex_unlock(&buckets_lock);
    for (k = 0; k < bucket_count; k++) {
        for (why = 0; why < REFUSED_REASONS; why++)
            out[k].refused[why] = __atomic_load_n(&b.counts[k].refused[why], __ATOMIC_RELAXED);
        out[k].memory_bytes = __atomic_load_n(&b.counts[k].memory_bytes, __ATOMIC_RELAXED);
        out[k].clients = __atomic_load_n(&b.counts[k].clients, __ATOMIC_RELAXED);
    }
}
