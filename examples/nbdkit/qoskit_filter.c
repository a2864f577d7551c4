/* qoskit_filter.c - an nbdkit filter: exports of an NBD server as tenants, scheduled by htb.h.
 *
 * Stock clients (nbdcopy, qemu-img, qemu, the kernel's nbd, fio) and the plugin behind the filter need no change:
 *
 *     nbdkit --filter=build/examples/nbdkit-qoskit-filter.so file dir=/srv/disks \
 *            qos-rate=400M qos-class=gold.img,reserve=200M,limit=300M qos-class=bulk.img,weight=2
 *
 * nbdkit-qoskit-filter.1 is the manual. A token is a byte. One tree under one lock:
 *
 *     thread of a request            tree                     the clerk, one thread
 *     admit: htb_submit  ------->  |r r r|  <-- htb_dispatch  sleeps until htb_dispatch_next_ns (a timerfd),
 *       goes at once, or sleeps    |r|                        grants what is due, reads the control file when
 *       until it is granted        |r r|                      inotify reports a change, writes statistics
 *     plugin                         |
 *     finish: adds to a done list    |   the next holder of the lock empties it: htb_complete. If a request waits,
 *                              <-----'   finish takes the lock itself and grants what is due
 *
 * While no request waits, small ones need no lock: a class takes tokens for a millisecond ahead, and its requests use
 * this credit. It is divided among the processors: a request uses the part of the one that it runs on, so parts are
 * seldom in two caches at the same time. A request that finds none takes the lock, and half of the other parts' credit.
 *
 * The thread that grants a request wakes the request's thread, after releasing the lock: one wake-up for each request
 * that waited. A thread that waits for long checks once a second whether its client is still there. */
#define _GNU_SOURCE
#include "settings.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-filter.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define LOG_EVERY_NS UINT64_C(50000000)
#define LOOK_EVERY_NS (QOS_NS_PER_S / 2) /* at the control file */
#define LEAST_SLEEP_NS UINT64_C(50000)   /* of the clerk's grants: grants within 50 us are made together */
#define LOOK_EVERY_S 1
#define AHEAD_PER_S 1000u /* a class takes tokens for 1/1000 s ahead */
#define AHEAD_CHUNKS 16u  /* and at most this many chunks */
#define PARTS_MAX 16u     /* of a class's credit; a power of two */
#define ONE_REQUEST (UINT64_C(1) << 48)

enum kind { READ, WRITE, ZERO, TRIM, CACHE, FLUSH, EXTENTS };

/* A connection. */
struct handle {
    char *export_name;
    uint32_t id;      /* its class */
    uint32_t gone;    /* the client is gone, or the server ends */
    uint32_t leaving; /* 1: a thread replies to a client that is gone */
    struct handle *next, *prev;
};

/* A client's request. */
struct op {
    enum kind kind;
    bool emulated; /* zeroes written as data by nbdkit: the plugin has no zero call */
    uint32_t flags;
    uint64_t count, offset;
    unsigned char *buf;
    const unsigned char *data;
    struct nbdkit_extents *extents;
};

/* One piece of a request. Reused, never freed while the server runs. */
struct waiter {
    struct htb_request r; /* first member */
    uint64_t since_ns;
    struct waiter *next; /* on one list: to be woken, done, or free */
    bool handed_out;     /* under the lock: htb_dispatch returned it */
    bool failed;
    uint64_t cost;    /* cost of the piece; the tree also charges the tokens taken ahead */
    uint32_t granted; /* the futex: the granter's last write */
};

/* A class's data on one processor; used without the lock. Two cache lines, as processors fetch them in pairs. */
struct part {
    uint64_t credit;                     /* tokens taken ahead, not yet used */
    uint64_t at_plugin;                  /* on credit: requests * ONE_REQUEST + their cost */
    uint64_t done, failed;               /* requests on credit */
    uint64_t most, most_at_plugin;       /* cost of a request on credit, and of those at the plugin */
    uint64_t request_cost, no_data_cost; /* of the settings in force */
} __attribute__((aligned(128)));

/* An export that was named as a class at any time; [HTB_BEST_EFFORT]: all others. A name keeps its id, so a class that
 * is removed and added again keeps its debt. */
struct slot {
    char *export_name;
    bool present;
    uint64_t reserve, limit;
    uint32_t weight;
    uint64_t ahead; /* most tokens taken ahead and not used */
    uint64_t requests, failed, abandoned, wait_ns, wait_max_ns, returned;
    uint64_t idle_ns, idle_since_ns; /* time without a waiting request; since when, while `waiting` is 0 */
    uint32_t waiting;
};

struct seen { /* of a file; inode 0: there is none */
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec changed;
};

static struct {
    pthread_mutex_t lock;
    struct htb tree;
    struct htb_config config;
    void *memory;
    struct settings *parameters, *now; /* from the start; in force */
    struct slot slot[CLASSES_MAX];
    uint32_t slots;
    uint32_t parts; /* of each slot's credit; a power of two */
    struct handle *handles;
    uint64_t chunk_bytes;
    struct waiter *done; /* completed, not yet known to the tree; without the lock */
    struct waiter *free;
    uint64_t waiting;                                 /* changed under the lock, read without it */
    uint64_t submitted, completed, failed, abandoned; /* requests; pieces of large ones count */
    uint64_t slept, wakeups, looks;                   /* of threads that waited */
    uint64_t armed_ns;                                /* the timer; QOS_NEVER: not armed */
    uint64_t start_ns, settings_number;
    char refused[WHY_MAX]; /* the error in the control file; "": none */
    int timer_fd, watch_fd, stop_fd;
    struct seen seen; /* the control file that is in force, or was refused */
    struct seen last; /* as the clerk last saw it */
    char *control_path, *stats_path, *log_path;
    uint64_t stats_every_ns;
    FILE *log;
    pthread_t clerk;
    bool clerk_runs;
    pthread_key_t leaver; /* of a thread: the handle whose `leaving` it set */
    bool leaver_made;
} qos = {.lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
         .config.bound = HTB_BY_RATE,
         .slots = 1,
         .chunk_bytes = 262144,
         .armed_ns = QOS_NEVER,
         .stats_every_ns = QOS_NS_PER_S,
         .timer_fd = -1,
         .watch_fd = -1,
         .stop_fd = -1};

static struct part all_parts[CLASSES_MAX * PARTS_MAX]; /* qos.parts of each slot */

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- grants; all under the lock, except wake, sleep_until_granted and their callers */

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* A failed piece costs as much as a request without data: cheap, but not free. */
static void take_done(uint64_t now)
{
    struct waiter *w = __atomic_exchange_n(&qos.done, NULL, __ATOMIC_SEQ_CST), *next;
    for (; w; w = next) {
        struct slot *s = &qos.slot[w->r.class_id];
        uint64_t cost[HTB_RESOURCES_MAX] = {w->r.tokens[0]};
        next = w->next;
        if (w->failed)
            cost[0] -= w->cost - qos_min(w->cost, qos.now->no_data_cost);
        if (htb_complete(&qos.tree, now, HTB_DONE, cost, &w->r) != QOS_OK)
            nbdkit_error("qoskit: a request completed that was not dispatched");
        qos.completed += !w->failed;
        qos.failed += w->failed;
        s->failed += w->failed;
        s->returned += w->r.tokens[0] - cost[0];
        w->next = qos.free;
        qos.free = w;
    }
}

static void waits_no_more(struct slot *s, uint64_t now)
{
    __atomic_fetch_sub(&qos.waiting, 1, __ATOMIC_SEQ_CST);
    if (--s->waiting == 0)
        s->idle_since_ns = now;
}

/* Grants what is due. Returns the waiters to wake after releasing the lock; `self` is not among them. */
static struct waiter *hand_out(uint64_t now, const struct waiter *self)
{
    struct waiter *woken = NULL, **end = &woken;
    struct htb_request *r;
    take_done(now);
    while (qos.waiting > 0 && (r = htb_dispatch(&qos.tree, now)) != NULL) {
        struct waiter *w = (struct waiter *)(void *)r;
        struct slot *s = &qos.slot[r->class_id];
        uint64_t wait_ns = qos_sat_sub(now, w->since_ns);
        waits_no_more(s, now);
        s->wait_ns += wait_ns;
        s->wait_max_ns = qos_max(s->wait_max_ns, wait_ns);
        w->handed_out = true;
        if (w == self)
            continue;
        w->next = NULL;
        *end = w;
        end = &w->next;
    }
    return woken;
}

/* Sets the timer for the next grant, unless it is set to an earlier time. */
static void arm(uint64_t now)
{
    struct itimerspec at = {{0, 0}, {0, 0}};
    uint64_t next = qos.waiting ? htb_dispatch_next_ns(&qos.tree, now) : QOS_NEVER;
    if (next >= qos.armed_ns)
        return;
    qos.armed_ns = qos_max(next, now + LEAST_SLEEP_NS);
    at.it_value.tv_sec = (time_t)(qos.armed_ns / QOS_NS_PER_S);
    at.it_value.tv_nsec = (long)(qos.armed_ns % QOS_NS_PER_S);
    (void)timerfd_settime(qos.timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Once its word is set, a waiter may continue and wait for another request. Then the wake-up
 * finds no waiter, or one that checks its word again. */
static void wake(struct waiter *w)
{
    while (w) {
        struct waiter *next = w->next;
        __atomic_store_n(&w->granted, 1, __ATOMIC_RELEASE);
        (void)futex(&w->granted, FUTEX_WAKE, 1, NULL);
        w = next;
    }
}

/* Takes back a request that was not granted. */
static void take_back(struct waiter *w, uint64_t now)
{
    if (htb_cancel(&qos.tree, now, &w->r) != QOS_OK)
        nbdkit_error("qoskit: a request was taken back that did not wait");
    waits_no_more(&qos.slot[w->r.class_id], now);
    w->next = qos.free;
    qos.free = w;
}

/* The client is gone, or the server ends: takes the request back. False: granted meanwhile. */
static bool abandon(struct waiter *w)
{
    struct waiter *woken = NULL;
    uint64_t now;
    bool taken_back;
    pthread_mutex_lock(&qos.lock);
    now = clock_ns();
    taken_back = !w->handed_out;
    if (taken_back) {
        take_back(w, now);
        qos.abandoned++;
        qos.slot[w->r.class_id].abandoned++;
        woken = hand_out(now, NULL);
        arm(now);
    }
    pthread_mutex_unlock(&qos.lock);
    wake(woken);
    return taken_back;
}

/* False: it was abandoned. */
static bool sleep_until_granted(struct handle *h, struct waiter *w)
{
    static const struct timespec look = {LOOK_EVERY_S, 0};
    uint64_t wakeups = 0, looks = 0;
    bool there = true;
    while (there && !__atomic_load_n(&w->granted, __ATOMIC_ACQUIRE)) {
        bool timed_out = futex(&w->granted, FUTEX_WAIT, 0, &look) == -1 && errno == ETIMEDOUT;
        if (!timed_out) {
            wakeups++;
            continue;
        }
        looks++;
        if (!__atomic_load_n(&h->gone, __ATOMIC_RELAXED) && nbdkit_nanosleep(0, 0) == -1)
            __atomic_store_n(&h->gone, 1, __ATOMIC_RELAXED);
        there = !__atomic_load_n(&h->gone, __ATOMIC_RELAXED) || !abandon(w);
    }
    __atomic_fetch_add(&qos.slept, there, __ATOMIC_RELAXED);
    __atomic_fetch_add(&qos.wakeups, wakeups, __ATOMIC_RELAXED);
    __atomic_fetch_add(&qos.looks, looks, __ATOMIC_RELAXED);
    return there;
}

/* nbdkit 1.32 ends with a failed assertion if two threads reply at the same time to a client that is gone: one closes
 * the socket that the other is about to write to. So they reply one by one: each waits until the thread before it has
 * ended, or has come back with another request. */
static void left(void *handle)
{
    struct handle *h = handle;
    __atomic_store_n(&h->leaving, 0, __ATOMIC_RELEASE);
    (void)futex(&h->leaving, FUTEX_WAKE, 1, NULL);
}

static void come_back(void)
{
    struct handle *h = pthread_getspecific(qos.leaver);
    if (h) {
        (void)pthread_setspecific(qos.leaver, NULL);
        left(h);
    }
}

/* A thread of another filter is not a worker of nbdkit. It may neither end nor come back, so others wait for it at
 * most a second. */
static void leave(struct handle *h)
{
    static const struct timespec most = {1, 0};
    if (!__atomic_load_n(&h->gone, __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(&h->leaving, 1, __ATOMIC_ACQUIRE))
        if (futex(&h->leaving, FUTEX_WAIT, 1, &most) == -1 && errno == ETIMEDOUT)
            return;
    if (pthread_setspecific(qos.leaver, h) != 0)
        left(h);
}

/* Cost and bytes of a request's next piece: at most the remaining bytes, and at most a chunk of cost. */
static uint64_t cost_of(const struct op *op, bool first, uint64_t *bytes)
{
    static const struct charge whole = {true, 100, QOS_TOKENS_MAX};
    const struct charge *c = op->kind == ZERO && !op->emulated ? &qos.now->zero
                             : op->kind == TRIM                ? &qos.now->trim
                                                               : &whole;
    if (op->kind == FLUSH || op->kind == EXTENTS)
        return qos.now->no_data_cost;
    if (c->percent != 0 && c->most_bytes == QOS_TOKENS_MAX)
        *bytes = qos_min(*bytes, qos.chunk_bytes * 100 / c->percent / 65536 * 65536);
    return charge_of(c, *bytes) + (first ? qos.now->request_cost : 0);
}

/* Submits a free waiter, under the lock. ahead: extra tokens for the credit of the class. NULL: no memory. */
static struct waiter *submit(const struct handle *h, const struct op *op, uint64_t cost, uint64_t ahead, uint64_t now)
{
    struct waiter *w = qos.free;
    enum qos_status status;
    if (w)
        qos.free = w->next;
    else if (!(w = calloc(1, sizeof *w)))
        return NULL;
    w->since_ns = now;
    w->handed_out = false;
    w->granted = 0;
    w->cost = cost;
    w->r.class_id = h->id;
    w->r.tokens[0] = cost + ahead;
    w->r.urgent = op->kind == FLUSH || op->kind == EXTENTS;
    status = htb_submit(&qos.tree, now, &w->r);
    if (status == QOS_EDEBT) { /* too much urgent work: this one queues */
        w->r.urgent = false;
        status = htb_submit(&qos.tree, now, &w->r);
    }
    if (status == QOS_OK) {
        struct slot *s = &qos.slot[h->id];
        __atomic_fetch_add(&qos.waiting, 1, __ATOMIC_SEQ_CST);
        if (s->waiting++ == 0)
            s->idle_ns += qos_sat_sub(now, s->idle_since_ns);
        return w;
    }
    w->next = qos.free;
    qos.free = w;
    return NULL;
}

/* ---- credit. At most slot.ahead tokens of a class are taken ahead and not used. Tokens of failed requests come back;
 * they are at most as many again, as no more can be at the plugin. */

static struct part *parts_of(uint32_t id)
{
    return &all_parts[(size_t)id * qos.parts];
}

static struct part *part_here(uint32_t id)
{
    return &parts_of(id)[(unsigned)sched_getcpu() & (qos.parts - 1)];
}

/* The sum over all parts of a class. */
static struct part credit_of(uint32_t id)
{
    struct part sum = {0};
    uint32_t i;
    for (i = 0; i < qos.parts; i++) {
        const struct part *p = &parts_of(id)[i];
        sum.credit += __atomic_load_n(&p->credit, __ATOMIC_RELAXED);
        sum.at_plugin += __atomic_load_n(&p->at_plugin, __ATOMIC_RELAXED);
        sum.done += __atomic_load_n(&p->done, __ATOMIC_RELAXED);
        sum.failed += __atomic_load_n(&p->failed, __ATOMIC_RELAXED);
    }
    return sum;
}

/* Most requests that are at the plugin on the credit of one part. */
static uint64_t part_depth(void)
{
    return (qos.config.device_max + 1) / 2 / qos.parts;
}

static bool fits_credit(const struct op *op, uint64_t cost, const struct part *p)
{
    return (op->kind == READ || op->kind == WRITE) && cost != 0 && cost <= __atomic_load_n(&p->most, __ATOMIC_RELAXED);
}

/* False: the part does not have as many. */
static bool take_tokens(struct part *p, uint64_t n)
{
    uint64_t credit = __atomic_load_n(&p->credit, __ATOMIC_RELAXED);
    while (credit >= n)
        if (__atomic_compare_exchange_n(&p->credit, &credit, credit - n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
    return false;
}

/* Takes a whole request from the credit. 0: no. */
static uint64_t take_credit(struct part *p, const struct op *op)
{
    uint64_t cost = op->count + __atomic_load_n(&p->request_cost, __ATOMIC_RELAXED), at_plugin;
    if (!fits_credit(op, cost, p) || __atomic_load_n(&p->credit, __ATOMIC_RELAXED) < cost)
        return 0;
    at_plugin = __atomic_fetch_add(&p->at_plugin, ONE_REQUEST + cost, __ATOMIC_RELAXED);
    if (at_plugin / ONE_REQUEST < part_depth() &&
        at_plugin % ONE_REQUEST + cost <= __atomic_load_n(&p->most_at_plugin, __ATOMIC_RELAXED) && take_tokens(p, cost))
        return cost;
    __atomic_fetch_sub(&p->at_plugin, ONE_REQUEST + cost, __ATOMIC_RELAXED);
    return 0;
}

static void finish_on_credit(struct part *p, uint64_t cost, bool failed)
{
    if (failed) {
        uint64_t back = cost - qos_min(cost, __atomic_load_n(&p->no_data_cost, __ATOMIC_RELAXED));
        __atomic_fetch_add(&p->credit, back, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(failed ? &p->failed : &p->done, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&p->at_plugin, ONE_REQUEST + cost, __ATOMIC_RELAXED);
}

/* Under the lock, for a request that found no credit: how many tokens to take ahead besides its own. 0: none, or half
 * of the other parts' credit was moved here. */
static uint64_t take_ahead(uint32_t id, const struct op *op, uint64_t cost)
{
    struct part *here = part_here(id), *p = parts_of(id), *end = p + qos.parts;
    uint64_t ahead = qos.slot[id].ahead, unused = credit_of(id).credit;
    if (qos.waiting != 0 || !fits_credit(op, cost, here) || __atomic_load_n(&here->credit, __ATOMIC_RELAXED) >= cost)
        return 0;
    if (unused <= ahead / 2)
        return ahead - unused - cost;
    for (; p < end; p++) {
        uint64_t half = __atomic_load_n(&p->credit, __ATOMIC_RELAXED) / 2;
        if (p != here && take_tokens(p, half))
            __atomic_fetch_add(&here->credit, half, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Waits until the next piece of a request may go. NULL: it never may. */
static struct waiter *admit(struct handle *h, const struct op *op, bool first, uint64_t *bytes)
{
    struct waiter *w, *woken = NULL;
    bool at_once = false;
    uint64_t now, cost, ahead;
    if (__atomic_load_n(&h->gone, __ATOMIC_RELAXED))
        return NULL;
    pthread_mutex_lock(&qos.lock);
    now = clock_ns();
    cost = cost_of(op, first, bytes);
    ahead = take_ahead(h->id, op, cost);
    w = submit(h, op, cost, ahead, now);
    if (w) {
        woken = hand_out(now, w);
        if (!w->handed_out && ahead) { /* it must wait: takes only the tokens for itself */
            take_back(w, now);
            ahead = 0;
            w = submit(h, op, cost, 0, now);
            woken = w ? hand_out(now, w) : NULL; /* no request waited before */
        }
    }
    if (w) {
        qos.submitted++;
        qos.slot[h->id].requests++;
        __atomic_fetch_add(&part_here(h->id)->credit, ahead, __ATOMIC_RELAXED);
        at_once = w->handed_out;
    }
    arm(now);
    pthread_mutex_unlock(&qos.lock);
    wake(woken);
    if (!w)
        nbdkit_error("qoskit: no memory for a request of %llu bytes", (unsigned long long)*bytes);
    return !w || at_once || sleep_until_granted(h, w) ? w : NULL;
}

/* The tree learns of the completion at the next submission, or now if a request waits: either may need the freed
 * place. It learns of it now, too, if the tree measures how late completions are. All accesses
 * are sequentially consistent: finish sees the waiting request, or that request's hand_out sees the done list. */
static void finish(struct waiter *w, bool failed)
{
    struct waiter *woken;
    uint64_t now;
    w->failed = failed;
    w->next = __atomic_load_n(&qos.done, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&qos.done, &w->next, w, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    if (qos.config.bound == HTB_BY_RATE && __atomic_load_n(&qos.waiting, __ATOMIC_SEQ_CST) == 0)
        return;
    pthread_mutex_lock(&qos.lock);
    now = clock_ns();
    woken = hand_out(now, NULL);
    arm(now);
    pthread_mutex_unlock(&qos.lock);
    wake(woken);
}

/* ---- settings in force; under the lock */

static uint32_t find_slot(const char *name)
{
    uint32_t id;
    for (id = 1; id < qos.slots && strcmp(qos.slot[id].export_name, name) != 0; id++)
        ;
    return id;
}

static uint32_t class_of(const char *export_name)
{
    uint32_t id = find_slot(export_name);
    return id < qos.slots && qos.slot[id].present ? id : HTB_BEST_EFFORT;
}

/* Names keep their slots, so slots may run out over time. */
static bool slots_suffice(const struct settings *s)
{
    uint32_t i, fresh = 0;
    for (i = 0; i < s->classes; i++)
        fresh += find_slot(s->class_of[i].export_name) == qos.slots;
    return qos.slots + fresh <= CLASSES_MAX;
}

/* Tokens that were taken ahead are not used any more. */
static void set_credit(uint32_t id, const struct settings *s)
{
    struct slot *slot = &qos.slot[id];
    struct part *p = parts_of(id), *end = p + qos.parts;
    slot->ahead =
        qos_min(qos_default(slot->limit, QOS_RATE_MAX), qos_default(s->rate_per_s, QOS_RATE_MAX)) / AHEAD_PER_S;
    slot->ahead = qos_min(slot->ahead, AHEAD_CHUNKS * qos.chunk_bytes);
    if (qos.config.bound == HTB_BY_FLIGHT) /* the tree has to know which requests are at the plugin */
        slot->ahead = 0;
    for (; p < end; p++) {
        uint64_t share = slot->ahead / qos.parts;
        __atomic_store_n(&p->credit, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&p->most_at_plugin, share, __ATOMIC_RELAXED);
        __atomic_store_n(&p->most, qos_min(share, slot->ahead / 4), __ATOMIC_RELAXED);
        __atomic_store_n(&p->request_cost, s->request_cost, __ATOMIC_RELAXED);
        __atomic_store_n(&p->no_data_cost, s->no_data_cost, __ATOMIC_RELAXED);
    }
}

/* Applies the settings to one class, with a reservation of at most `most`: shrinking reservations are applied first. */
static enum qos_status set_class(uint32_t id, const struct htb_class *terms, uint64_t most, const struct settings *s,
                                 uint64_t now)
{
    struct slot *slot = &qos.slot[id];
    struct htb_class c = *terms;
    enum qos_status status;
    c.burst_ns = qos_default(c.burst_ns, qos.config.burst_ns);
    c.rate_per_s[0] = qos_min(c.rate_per_s[0], most);
    status = slot->present || id == HTB_BEST_EFFORT ? htb_change(&qos.tree, now, id, &c, NULL)
                                                    : htb_reserve(&qos.tree, now, id, &c, NULL);
    slot->present = slot->present || status == QOS_OK;
    slot->reserve = c.rate_per_s[0];
    slot->limit = c.limit_per_s[0];
    slot->weight = (uint32_t)qos_default(c.weight, 1);
    set_credit(id, s);
    return status;
}

/* The settings are checked. Reservations that shrink come first, those that grow last: so the sum never exceeds the
 * root's rate. */
static enum qos_status apply(const struct settings *s, uint64_t now)
{
    uint64_t root = qos.now ? qos.now->rate_per_s : qos.config.rate_per_s[0];
    enum qos_status status = QOS_OK;
    uint32_t i, id;
    bool keep[CLASSES_MAX] = {false};
    for (i = 0; i < s->classes; i++)
        keep[find_slot(s->class_of[i].export_name)] = true;
    for (id = 1; id < qos.slots; id++) {
        if (!qos.slot[id].present || keep[id])
            continue;
        status = status == QOS_OK ? htb_release(&qos.tree, now, id) : status;
        qos.slot[id].present = false;
    }
    if (status == QOS_OK)
        status = set_class(HTB_BEST_EFFORT, &s->others, qos.slot[HTB_BEST_EFFORT].reserve, s, now);
    for (i = 0; status == QOS_OK && i < s->classes; i++) {
        id = find_slot(s->class_of[i].export_name);
        if (id < qos.slots && qos.slot[id].present)
            status = set_class(id, &s->class_of[i].terms, qos.slot[id].reserve, s, now);
    }
    if (status == QOS_OK && s->rate_per_s > root)
        status = htb_change_root(&qos.tree, now, &s->rate_per_s);
    if (status == QOS_OK)
        status = set_class(HTB_BEST_EFFORT, &s->others, QOS_RATE_MAX, s, now);
    for (i = 0; status == QOS_OK && i < s->classes; i++) {
        id = find_slot(s->class_of[i].export_name);
        if (id == qos.slots) {
            qos.slot[id].export_name = strdup(s->class_of[i].export_name);
            if (!qos.slot[id].export_name)
                return QOS_EMEMORY;
            qos.slots++;
        }
        status = set_class(id, &s->class_of[i].terms, QOS_RATE_MAX, s, now);
    }
    if (status == QOS_OK && s->rate_per_s < root)
        status = htb_change_root(&qos.tree, now, &s->rate_per_s);
    return status;
}

/* Applies the parameters, overridden by the control file. -1: refused; the settings in force stay. missing: a missing
 * file counts as empty. */
static int reload(bool missing)
{
    char why[WHY_MAX] = "";
    struct settings *file = settings_new(), *fresh = NULL, *old = NULL;
    enum qos_status status = QOS_OK;
    struct waiter *woken = NULL;
    struct handle *h;
    uint64_t now;
    if (!file) {
        nbdkit_error("out of memory");
        return -1;
    }
    if (!qos.control_path || settings_read(file, qos.control_path, why) == 0 || (missing && errno == ENOENT))
        fresh = settings_merged(qos.parameters, file, why);
    if (!fresh && qos.control_path && !strstr(why, qos.control_path)) {
        char what[WHY_MAX];
        memcpy(what, why, sizeof what);
        (void)snprintf(why, sizeof why, "%.*s: %.*s", WHY_MAX / 3, qos.control_path, WHY_MAX / 2, what);
    }
    settings_free(file);
    pthread_mutex_lock(&qos.lock);
    now = clock_ns();
    if (fresh && !slots_suffice(fresh)) {
        (void)snprintf(why, sizeof why, "qos-class: give at most %u names as long as the server runs", CLASSES_MAX - 1);
        settings_free(fresh);
        fresh = NULL;
    }
    if (fresh) {
        status = apply(fresh, now);
        old = qos.now;
        qos.now = fresh;
        qos.settings_number++;
        for (h = qos.handles; h; h = h->next)
            __atomic_store_n(&h->id, class_of(h->export_name), __ATOMIC_RELAXED);
        woken = hand_out(now, NULL);
        arm(now);
    }
    memcpy(qos.refused, why, sizeof why);
    if (fresh)
        qos.refused[0] = 0;
    pthread_mutex_unlock(&qos.lock);
    wake(woken);
    settings_free(old);
    if (status != QOS_OK)
        nbdkit_error("qoskit: checked settings do not fit: %s", qos_strerror(status));
    else if (!fresh)
        nbdkit_error("%s%s", why, qos.settings_number ? "; the settings in force stay" : "");
    return fresh && status == QOS_OK ? 0 : -1;
}

/* ---- statistics: taken under the lock, written without it */

/* Returns how many requests are at the plugin on credit. */
static uint64_t print_totals(FILE *f)
{
    uint64_t submitted = qos.submitted, done = qos.completed, failed = qos.failed, at_plugin = 0;
    uint32_t id;
    for (id = 0; id < qos.slots; id++) {
        const struct part sum = credit_of(id);
        done += sum.done;
        failed += sum.failed;
        at_plugin += sum.at_plugin / ONE_REQUEST;
        submitted += sum.done + sum.failed + sum.at_plugin / ONE_REQUEST;
    }
    (void)fprintf(f, "submitted %llu completed %llu failed %llu abandoned %llu", (unsigned long long)submitted,
                  (unsigned long long)done, (unsigned long long)failed, (unsigned long long)qos.abandoned);
    return at_plugin;
}

static void print_class(FILE *f, uint32_t id, uint64_t now)
{
    static const char *const waits[] = {"-", "limit", "group-limit", "turn", "rate"};
    const struct slot *s = &qos.slot[id];
    const struct part sum = credit_of(id);
    const uint64_t requests = s->requests + sum.done + sum.failed + sum.at_plugin / ONE_REQUEST;
    struct htb_class_state state = {.since_ns = QOS_NEVER};
    struct qos_stats stats;
    char word[WORD_MAX], limit[24] = "-";
    const struct handle *h;
    unsigned connections = 0;
    (void)htb_stats(&qos.tree, id, &stats);
    (void)htb_class_info(&qos.tree, id, &state);
    for (h = qos.handles; h; h = h->next)
        connections += h->id == id;
    if (s->limit)
        (void)snprintf(limit, sizeof limit, "%llu", (unsigned long long)s->limit);
    (void)fprintf(f, "%-20s %12llu %12s %6u %5u %10llu %8llu %8llu %15llu %15llu %12llu %6u %6u %9.3f %9.3f %9.3f %s\n",
                  id ? export_word(s->export_name, word) : "*", (unsigned long long)s->reserve, limit, s->weight,
                  connections, (unsigned long long)requests, (unsigned long long)s->failed + sum.failed,
                  (unsigned long long)s->abandoned, (unsigned long long)stats.granted,
                  (unsigned long long)stats.borrowed, (unsigned long long)s->returned, state.queued, state.outstanding,
                  (double)s->wait_ns / 1e6 / (double)qos_max(requests, 1), (double)s->wait_max_ns / 1e6,
                  state.since_ns == QOS_NEVER ? 0.0 : (double)qos_sat_sub(now, state.since_ns) / 1e6,
                  waits[state.waits]);
}

static void print_flight(FILE *f, const struct htb_state *tree)
{
    char word[WORD_MAX];
    uint32_t by = tree->flight_by;
    (void)fprintf(f, "flight-us %llu bound-us %llu narrowed-by %s cost-permille %llu\n",
                  (unsigned long long)tree->flight_ns / 1000, (unsigned long long)tree->flight_bound_ns / 1000,
                  by == QOS_NONE          ? "-"
                  : by == HTB_BEST_EFFORT ? "*"
                                          : export_word(qos.slot[by].export_name, word),
                  (unsigned long long)tree->flight_cost_permille);
}

static void print_stats(FILE *f, uint64_t now)
{
    struct htb_state tree;
    uint64_t at_plugin;
    uint32_t id;
    take_done(now);
    (void)htb_info(&qos.tree, &tree);
    (void)fprintf(f, "seconds %.3f settings %llu rate ", (double)(now - qos.start_ns) / 1e9,
                  (unsigned long long)qos.settings_number);
    if (tree.rate_per_s[0] == QOS_RATE_MAX)
        (void)fputs("-", f);
    else
        (void)fprintf(f, "%llu", (unsigned long long)tree.rate_per_s[0]);
    (void)fprintf(f, " reserved %llu\n", (unsigned long long)tree.reserved_per_s[0]);
    at_plugin = tree.at_device + print_totals(f);
    (void)fprintf(f, " waiting %llu at-plugin %llu\n", (unsigned long long)qos.waiting, (unsigned long long)at_plugin);
    (void)fprintf(f, "slept %llu wakeups %llu looks %llu\n",
                  (unsigned long long)__atomic_load_n(&qos.slept, __ATOMIC_RELAXED),
                  (unsigned long long)__atomic_load_n(&qos.wakeups, __ATOMIC_RELAXED),
                  (unsigned long long)__atomic_load_n(&qos.looks, __ATOMIC_RELAXED));
    if (qos.config.bound == HTB_BY_FLIGHT)
        print_flight(f, &tree);
    if (qos.refused[0])
        (void)fprintf(f, "refused %s\n", qos.refused);
    (void)fprintf(f, "%-20s %12s %12s %6s %5s %10s %8s %8s %15s %15s %12s %6s %6s %9s %9s %9s %s\n", "# export",
                  "reserve/s", "limit/s", "weight", "conns", "requests", "failed", "abandon", "granted", "borrowed",
                  "returned", "queued", "plugin", "mean-ms", "max-ms", "now-ms", "waits-for");
    for (id = 0; id < qos.slots; id++)
        if (id == HTB_BEST_EFFORT || qos.slot[id].present)
            print_class(f, id, now);
}

static uint64_t idle_ns(const struct slot *s, uint64_t now)
{
    return s->idle_ns + (s->waiting ? 0 : qos_sat_sub(now, s->idle_since_ns));
}

static void print_log(FILE *f, uint64_t now)
{
    char word[WORD_MAX];
    struct qos_stats stats;
    uint32_t id;
    take_done(now);
    for (id = 0; id < qos.slots; id++)
        if (htb_stats(&qos.tree, id, &stats) == QOS_OK)
            (void)fprintf(f, "%llu %s %llu %llu\n", (unsigned long long)now,
                          id ? export_word(qos.slot[id].export_name, word) : "*", (unsigned long long)stats.granted,
                          (unsigned long long)idle_ns(&qos.slot[id], now));
}

/* A reader sees the whole file, old or new. */
static void write_stats(void)
{
    static bool told; /* the error is logged once */
    char *text = NULL, *path = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length), *out = NULL;
    bool good = f && asprintf(&path, "%s.new", qos.stats_path) != -1;
    if (f) {
        pthread_mutex_lock(&qos.lock);
        print_stats(f, clock_ns());
        pthread_mutex_unlock(&qos.lock);
        good = fclose(f) == 0 && good;
    }
    out = good ? fopen(path, "we") : NULL;
    good = out && fwrite(text, 1, length, out) == length;
    if (out)
        good = fclose(out) == 0 && good; /* also on a full disk */
    good = good && rename(path, qos.stats_path) == 0;
    if (!good && !told)
        nbdkit_error("qos-stats=%s: %s", qos.stats_path, strerror(errno));
    told = !good;
    free(path);
    free(text);
}

static void write_log(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    if (!f)
        return;
    pthread_mutex_lock(&qos.lock);
    print_log(f, clock_ns());
    pthread_mutex_unlock(&qos.lock);
    if (fclose(f) == 0)
        (void)fwrite(text, 1, length, qos.log);
    free(text);
}

/* ---- the clerk */

/* What the path of the control file leads to, through all links. */
static struct seen look(void)
{
    struct stat st;
    if (stat(qos.control_path, &st) != 0)
        return (struct seen){0};
    return (struct seen){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
}

static bool same(const struct seen *a, const struct seen *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Is there another control file, by whatever link, or another text in it, that nobody has touched since the last look? */
static bool control_is_new(void)
{
    const struct seen now = look(), before = qos.last;
    qos.last = now;
    return now.inode != 0 && !same(&now, &qos.seen) && same(&now, &before);
}

/* Returns whether the control file was written to its end or replaced. */
static bool control_written(void)
{
    char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    const char *name = strrchr(qos.control_path, '/') + 1;
    bool changed = false;
    ssize_t n, at;
    while ((n = read(qos.watch_fd, buffer, sizeof buffer)) > 0)
        for (at = 0; at < n;) {
            const struct inotify_event *e = (const struct inotify_event *)(const void *)(buffer + at);
            changed = changed || (e->mask & IN_Q_OVERFLOW) || (e->len && strcmp(e->name, name) == 0);
            at += (ssize_t)(sizeof *e + e->len);
        }
    return changed;
}

static void on_timer(void)
{
    struct waiter *woken;
    uint64_t times, now;
    if (read(qos.timer_fd, &times, sizeof times) != (ssize_t)sizeof times)
        return;
    pthread_mutex_lock(&qos.lock);
    now = clock_ns();
    qos.armed_ns = QOS_NEVER;
    woken = hand_out(now, NULL);
    arm(now);
    pthread_mutex_unlock(&qos.lock);
    wake(woken);
}

static void reload_control(void)
{
    qos.seen = look();
    (void)reload(false);
}

static void *clerk(void *unused)
{
    struct pollfd fd[] = {{qos.timer_fd, POLLIN, 0}, {qos.stop_fd, POLLIN, 0}, {qos.watch_fd, POLLIN, 0}};
    uint64_t log_ns = qos.log ? 0 : QOS_NEVER, stats_ns = qos.stats_path ? 0 : QOS_NEVER;
    uint64_t look_ns = qos.control_path ? 0 : QOS_NEVER;
    (void)unused;
    while (!fd[1].revents) {
        uint64_t now = clock_ns(), next;
        struct timespec sleep;
        if (now >= log_ns) {
            write_log();
            log_ns = now + LOG_EVERY_NS;
        }
        if (now >= stats_ns) {
            write_stats();
            stats_ns = now + qos.stats_every_ns;
        }
        if (now >= look_ns) {
            if (control_is_new())
                reload_control();
            look_ns = now + LOOK_EVERY_NS;
        }
        next = qos_min(look_ns, qos_min(log_ns, stats_ns));
        sleep.tv_sec = (time_t)(qos_sat_sub(next, now) / QOS_NS_PER_S);
        sleep.tv_nsec = (long)(qos_sat_sub(next, now) % QOS_NS_PER_S);
        if (ppoll(fd, 3, next == QOS_NEVER ? NULL : &sleep, NULL) <= 0)
            continue;
        if (fd[0].revents)
            on_timer();
        if (fd[2].revents && control_written())
            reload_control();
    }
    return NULL;
}

/* ---- parameters */

static int set_path(char **path, const char *key, const char *value)
{
    if (*path) {
        nbdkit_error("%s=%s: it is given twice; give it once", key, value);
        return -1;
    }
    *path = nbdkit_absolute_path(value); /* the server may change its directory */
    return *path ? 0 : -1;
}

static int set_number(const char *key, const char *value, const char *what, unsigned least, unsigned most, unsigned *n)
{
    if (nbdkit_parse_unsigned(key, value, n) == 0 && *n >= least && *n <= most)
        return 0;
    nbdkit_error("%s=%s: give %s, %u to %u", key, value, what, least, most);
    return -1;
}

static int qoskit_config(nbdkit_next_config *next, nbdkit_backend *nxdata, const char *key, const char *value)
{
    char why[WHY_MAX] = "";
    unsigned n = 0;
    if (!qos.parameters && !(qos.parameters = settings_new())) {
        nbdkit_error("out of memory");
        return -1;
    }
    switch (settings_set(qos.parameters, key, value, why)) {
    case 1: return 0;
    case -1: nbdkit_error("%s", why); return -1;
    default: break;
    }
    if (strcmp(key, "qos-control") == 0)
        return set_path(&qos.control_path, key, value);
    if (strcmp(key, "qos-stats") == 0)
        return set_path(&qos.stats_path, key, value);
    if (strcmp(key, "qos-log") == 0)
        return set_path(&qos.log_path, key, value);
    if (strcmp(key, "qos-stats-interval") == 0) {
        if (set_number(key, value, "milliseconds", 10, 3600000, &n) == -1)
            return -1;
        qos.stats_every_ns = (uint64_t)n * 1000000;
    } else if (strcmp(key, "qos-burst") == 0) {
        if (set_number(key, value, "milliseconds", 1, 10000, &n) == -1)
            return -1;
        qos.config.burst_ns = (uint64_t)n * 1000000;
    } else if (strcmp(key, "qos-depth") == 0) {
        if (set_number(key, value, "requests", 1, HTB_DISPATCH_MAX, &qos.config.dispatch_max) == -1)
            return -1;
    } else if (strcmp(key, "qos-bound") == 0) {
        if (strcmp(value, "rate") != 0 && strcmp(value, "flight") != 0) {
            nbdkit_error("qos-bound=%s: give rate or flight", value);
            return -1;
        }
        qos.config.bound = value[0] == 'r' ? HTB_BY_RATE : HTB_BY_FLIGHT;
    } else if (strcmp(key, "qos-chunk") == 0) {
        int64_t chunk = nbdkit_parse_size(value);
        if (chunk < 65536 || chunk > (int64_t)REQUEST_COST_MAX || chunk % 65536 != 0) {
            nbdkit_error("qos-chunk=%s: give a multiple of 64K, 64K to 64M", value);
            return -1;
        }
        qos.chunk_bytes = (uint64_t)chunk;
    } else if (strncmp(key, "qos-", 4) == 0) {
        nbdkit_error("%s: no such parameter; see nbdkit --help --filter=qoskit", key);
        return -1;
    } else {
        return next(nxdata, key, value);
    }
    return 0;
}

static int make_tree(void)
{
    size_t size;
    const uint64_t processors = (uint64_t)qos_max((uint64_t)sysconf(_SC_NPROCESSORS_ONLN), 1);
    qos.start_ns = clock_ns();
    qos.config.classes = CLASSES_MAX;
    qos.config.start_ns = qos.start_ns;
    qos.config.order = HTB_FIFO;
    qos.config.rate_per_s[0] = QOS_RATE_MAX; /* until the settings are applied */
    qos.config.burst_ns = qos_default(qos.config.burst_ns, 50000000);
    qos.config.debt_ns = qos.config.burst_ns;
    qos.config.request_max_tokens = qos.chunk_bytes;
    qos.config.dispatch_max = (uint32_t)qos_default(qos.config.dispatch_max, 64);
    qos.config.device_max = qos.config.dispatch_max;
    for (qos.parts = 1; qos.parts * 2 <= qos_min(processors, PARTS_MAX) && qos.parts * 32 <= qos.config.device_max;)
        qos.parts *= 2; /* on each at least 8 requests */
    size = htb_memsize(&qos.config);
    if (size == 0 || posix_memalign(&qos.memory, QOS_CACHE_LINE, size) != 0 ||
        htb_init(&qos.tree, qos.memory, size, &qos.config) != QOS_OK) {
        nbdkit_error("qoskit: %s", htb_config_error(&qos.config) ? htb_config_error(&qos.config) : "out of memory");
        return -1;
    }
    return 0;
}

/* Watches the directory, as an editor may replace the file. What the directory does not tell (a link that leads elsewhere,
 * a file system of another host) is seen by the clerk within a second. */
static int watch_control(void)
{
    char *directory = strdup(qos.control_path);
    int rc = -1;
    qos.watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (directory && qos.watch_fd != -1) {
        *(strrchr(directory, '/') + 1) = 0;
        rc = inotify_add_watch(qos.watch_fd, directory, IN_CLOSE_WRITE | IN_MOVED_TO);
    }
    if (rc == -1)
        nbdkit_error("qos-control=%s: %s; give a file in a directory that exists", qos.control_path, strerror(errno));
    free(directory);
    return rc == -1 ? -1 : 0;
}

static int qoskit_config_complete(nbdkit_next_config_complete *next, nbdkit_backend *nxdata)
{
    if (!qos.parameters && !(qos.parameters = settings_new())) {
        nbdkit_error("out of memory");
        return -1;
    }
    if (qos.config.bound == HTB_BY_FLIGHT && qos.parameters->rate_per_s == 0) {
        nbdkit_error("qos-bound=flight: give qos-rate too; it says how long a request takes the disk");
        return -1;
    }
    if (make_tree() == -1 || (qos.control_path && watch_control() == -1))
        return -1;
    if (qos.control_path)
        qos.seen = qos.last = look();
    if (reload(true) == -1)
        return -1;
    if (qos.log_path && !(qos.log = fopen(qos.log_path, "we"))) {
        nbdkit_error("qos-log=%s: %s", qos.log_path, strerror(errno));
        return -1;
    }
    qos.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    qos.stop_fd = eventfd(0, EFD_CLOEXEC);
    if (qos.timer_fd == -1 || qos.stop_fd == -1) {
        nbdkit_error("qoskit: timer: %s", strerror(errno));
        return -1;
    }
    return next(nxdata);
}

#define QOSKIT_HELP                                                                                                    \
    "qos-rate=RATE            bytes per second that the disk sustains; needed to reserve\n"                            \
    "qos-class=EXPORT[,reserve=RATE][,limit=RATE][,weight=N][,burst=MS]\n"                                             \
    "                         one tenant; may be repeated; \"\" is the default export, * all others\n"                 \
    "qos-bound=rate|flight    limit of the total: qos-rate (default), or the disk itself; with flight,\n"              \
    "                         requests wait while a reservation is not met\n"                                          \
    "qos-burst=MS             burst of every class in milliseconds (default 50)\n"                                     \
    "qos-zero=PERCENT%|SIZE   cost of zeroes: a part of their bytes, or at most SIZE (default 100%)\n"                 \
    "qos-trim=PERCENT%|SIZE   cost of trims (default 64K)\n"                                                           \
    "qos-no-data=SIZE         cost of a flush, a query of extents, a failed request (default 4K)\n"                    \
    "qos-request=SIZE         what a request costs besides its bytes (default 0)\n"                                    \
    "qos-chunk=SIZE           requests go to the plugin in pieces of this size (default 256K)\n"                       \
    "qos-depth=N              most requests at the plugin (default 64)\n"                                              \
    "qos-control=FILE         lines as these that change while the server runs\n"                                      \
    "qos-stats=FILE           statistics as text, replaced every qos-stats-interval=MS (default 1000)\n"               \
    "qos-log=FILE             what was granted so far, every 50 ms"

/* If the whole server takes one request at a time, a tenant that waits blocks all others. */
static int qoskit_get_ready(int thread_model)
{
    if (thread_model > NBDKIT_THREAD_MODEL_SERIALIZE_ALL_REQUESTS)
        return 0;
    nbdkit_error("qoskit: this plugin or a filter serves one request at a time, so a tenant that waits would hold up "
                 "all others; use a plugin with parallel requests (nbdkit --dump-plugin tells thread_model)");
    return -1;
}

static int qoskit_after_fork(nbdkit_backend *backend)
{
    sigset_t all, before;
    int error = pthread_key_create(&qos.leaver, left);
    (void)backend;
    if (error) {
        nbdkit_error("qoskit: thread: %s", strerror(error));
        return -1;
    }
    qos.leaver_made = true;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are nbdkit's */
    error = pthread_create(&qos.clerk, NULL, clerk, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    qos.clerk_runs = error == 0;
    if (error)
        nbdkit_error("qoskit: thread: %s", strerror(error));
    return error ? -1 : 0;
}

static void qoskit_cleanup(nbdkit_backend *backend)
{
    uint64_t one = 1;
    (void)backend;
    if (!qos.clerk_runs || write(qos.stop_fd, &one, sizeof one) != (ssize_t)sizeof one)
        return;
    (void)pthread_join(qos.clerk, NULL);
    qos.clerk_runs = false;
    if (qos.stats_path)
        write_stats();
    if (qos.log) {
        write_log();
        (void)print_totals(qos.log);
        (void)fputs("\n", qos.log);
    }
}

static void qoskit_unload(void)
{
    const int fds[] = {qos.timer_fd, qos.stop_fd, qos.watch_fd};
    uint32_t i;
    if (qos.log && fclose(qos.log) != 0)
        nbdkit_error("qos-log=%s: %s", qos.log_path, strerror(errno));
    for (i = 0; i < 3; i++)
        if (fds[i] != -1)
            (void)close(fds[i]);
    if (qos.leaver_made)
        (void)pthread_key_delete(qos.leaver);
    for (i = 1; i < qos.slots; i++)
        free(qos.slot[i].export_name);
    while (qos.free) {
        struct waiter *next = qos.free->next;
        free(qos.free);
        qos.free = next;
    }
    settings_free(qos.parameters);
    settings_free(qos.now);
    free(qos.control_path);
    free(qos.stats_path);
    free(qos.log_path);
    free(qos.memory);
}

/* ---- NBD requests */

static void *qoskit_open(nbdkit_next_open *next, nbdkit_context *context, int readonly, const char *exportname,
                         int is_tls)
{
    struct handle *h = NULL;
    (void)is_tls;
    if (next(context, readonly, exportname) == -1)
        return NULL;
    h = calloc(1, sizeof *h);
    if (!h || !(h->export_name = strdup(exportname))) {
        free(h);
        nbdkit_error("out of memory");
        return NULL;
    }
    pthread_mutex_lock(&qos.lock);
    h->id = class_of(exportname);
    h->next = qos.handles;
    if (h->next)
        h->next->prev = h;
    qos.handles = h;
    pthread_mutex_unlock(&qos.lock);
    return h;
}

static void qoskit_close(void *handle)
{
    struct handle *h = handle;
    come_back();
    pthread_mutex_lock(&qos.lock);
    if (h->next)
        h->next->prev = h->prev;
    if (h->prev)
        h->prev->next = h->next;
    else
        qos.handles = h->next;
    pthread_mutex_unlock(&qos.lock);
    free(h->export_name);
    free(h);
}

static int pass_on(nbdkit_next *next, const struct op *op, uint64_t done, uint64_t bytes, int *err)
{
    uint64_t offset = op->offset + done;
    uint32_t count = (uint32_t)bytes;
    switch (op->kind) {
    case READ: return next->pread(next, op->buf + done, count, offset, op->flags, err);
    case WRITE: return next->pwrite(next, op->data + done, count, offset, op->flags, err);
    case ZERO: return next->zero(next, count, offset, op->flags, err);
    case TRIM: return next->trim(next, count, offset, op->flags, err);
    case CACHE: return next->cache(next, count, offset, op->flags, err);
    case FLUSH: return next->flush(next, op->flags, err);
    case EXTENTS: return next->extents(next, count, offset, op->flags, op->extents, err);
    default: *err = EINVAL; return -1;
    }
}

/* On credit, or piece by piece. */
static int serve(nbdkit_next *next, struct handle *h, const struct op *op, int *err)
{
    struct part *part = part_here(__atomic_load_n(&h->id, __ATOMIC_RELAXED));
    uint64_t done = 0, cost;
    int rc;
    come_back();
    cost = take_credit(part, op);
    if (cost) {
        rc = pass_on(next, op, 0, op->count, err);
        finish_on_credit(part, cost, rc == -1);
        leave(h);
        return rc;
    }
    do {
        uint64_t bytes = op->count - done;
        struct waiter *w = admit(h, op, done == 0, &bytes);
        if (!w) {
            *err = ESHUTDOWN;
            rc = -1;
            break;
        }
        rc = pass_on(next, op, done, bytes, err);
        finish(w, rc == -1);
        done += bytes;
    } while (rc != -1 && done < op->count);
    leave(h);
    return rc;
}

static int qoskit_pread(nbdkit_next *next, void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags,
                        int *err)
{
    const struct op op = {.kind = READ, .buf = buf, .count = count, .offset = offset, .flags = flags};
    return serve(next, handle, &op, err);
}

static int qoskit_pwrite(nbdkit_next *next, void *handle, const void *buf, uint32_t count, uint64_t offset,
                         uint32_t flags, int *err)
{
    const struct op op = {.kind = WRITE, .data = buf, .count = count, .offset = offset, .flags = flags};
    return serve(next, handle, &op, err);
}

static int qoskit_zero(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    const struct op op = {.kind = ZERO,
                          .emulated = next->can_zero(next) == NBDKIT_ZERO_EMULATE,
                          .count = count,
                          .offset = offset,
                          .flags = flags};
    return serve(next, handle, &op, err);
}

static int qoskit_trim(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    const struct op op = {.kind = TRIM, .count = count, .offset = offset, .flags = flags};
    return serve(next, handle, &op, err);
}

static int qoskit_cache(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    const struct op op = {.kind = CACHE, .count = count, .offset = offset, .flags = flags};
    return serve(next, handle, &op, err);
}

static int qoskit_flush(nbdkit_next *next, void *handle, uint32_t flags, int *err)
{
    const struct op op = {.kind = FLUSH, .flags = flags};
    return serve(next, handle, &op, err);
}

static int qoskit_extents(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                          struct nbdkit_extents *extents, int *err)
{
    const struct op op = {.kind = EXTENTS, .count = count, .offset = offset, .flags = flags, .extents = extents};
    return serve(next, handle, &op, err);
}

static struct nbdkit_filter filter = {
    .name = "qoskit",
    .longname = "qoskit storage quality of service",
    .description = "reservations, limits and fair sharing for the exports of one server",
    .unload = qoskit_unload,
    .config = qoskit_config,
    .config_complete = qoskit_config_complete,
    .config_help = QOSKIT_HELP,
    .get_ready = qoskit_get_ready,
    .after_fork = qoskit_after_fork,
    .cleanup = qoskit_cleanup,
    .open = qoskit_open,
    .close = qoskit_close,
    .pread = qoskit_pread,
    .pwrite = qoskit_pwrite,
    .zero = qoskit_zero,
    .trim = qoskit_trim,
    .flush = qoskit_flush,
    .extents = qoskit_extents,
    .cache = qoskit_cache,
};

NBDKIT_REGISTER_FILTER(filter)
