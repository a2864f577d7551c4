/* qoskit_filter.c - an nbdkit filter: exports of an NBD server as tenants, scheduled by htb.h.
 *
 * Stock clients (nbdcopy, qemu-img, qemu, the kernel's nbd, fio) see the rates; neither they nor the plugin behind
 * the filter know of it:
 *
 *     nbdkit --filter=build/examples/nbdkit-qoskit-filter.so file dir=/srv/disks \
 *            qos-rate=400M qos-class=gold.img,reserve=200M,limit=300M qos-class=bulk.img,weight=2
 *
 * A request of export E belongs to the class named E, or to best effort. It waits in the queue of its class
 * (htb_submit); whichever thread comes by hands out what may go (htb_dispatch). Flushes are urgent: they never wait
 * behind a tenant's bulk I/O, and are paid for later. A token is a byte; qos-request adds a fixed cost to each request.
 */
#include "htb.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-filter.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLASSES_MAX 64 /* best effort included */
#define LOG_EVERY_NS UINT64_C(50000000)

struct waiter {
    struct htb_request r; /* first member */
    pthread_cond_t go;
    bool dispatched;
};

static struct {
    pthread_mutex_t lock;
    struct htb tree;
    struct htb_config config;
    struct htb_class class_of[CLASSES_MAX];
    char *name[CLASSES_MAX];
    uint32_t classes;
    struct qos_cost_model cost;
    bool zero_is_free; /* zeroing costs what a request costs, without its bytes */
    const char *log_path;
    FILE *log;
    uint64_t log_next_ns, submitted, completed, failed;
    void *memory;
} qos = {.lock = PTHREAD_MUTEX_INITIALIZER, .classes = 1};

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- parameters */

static int parse_rate(const char *what, const char *text, uint64_t *per_s)
{
    int64_t n = nbdkit_parse_size(text);
    if (n <= 0 || (uint64_t)n > QOS_RATE_MAX) {
        nbdkit_error("%s=%s: bytes per second, such as 20M, at most 1T", what, text);
        return -1;
    }
    *per_s = (uint64_t)n;
    return 0;
}

static int parse_class(const char *value)
{
    struct htb_class *c = &qos.class_of[qos.classes];
    char *text = strdup(value), *rest = NULL, *part;
    unsigned weight;
    uint32_t id;
    if (!text || qos.classes == CLASSES_MAX) {
        nbdkit_error("qos-class: at most %d classes", CLASSES_MAX - 1);
        free(text);
        return -1;
    }
    part = strtok_r(text, ",", &rest);
    for (id = 1; part && id < qos.classes && strcmp(qos.name[id], part) != 0; id++)
        ;
    if (!part || value[0] == ',' || id < qos.classes) {
        nbdkit_error("qos-class=%s: %s", value,
                     part && value[0] != ',' ? "this export has a class already" : "it names no export");
        free(text);
        return -1;
    }
    qos.name[qos.classes] = strdup(part);
    while ((part = strtok_r(NULL, ",", &rest)) != NULL) {
        int bad = 1;
        if (strncmp(part, "reserve=", 8) == 0) {
            bad = parse_rate("reserve", part + 8, &c->rate_per_s[0]);
        } else if (strncmp(part, "limit=", 6) == 0) {
            bad = parse_rate("limit", part + 6, &c->limit_per_s[0]);
        } else if (strncmp(part, "weight=", 7) == 0) {
            bad = nbdkit_parse_unsigned("weight", part + 7, &weight) || weight == 0 || weight > HTB_WEIGHT_MAX;
            c->weight = bad ? 0 : weight;
        }
        if (bad) {
            nbdkit_error("qos-class=%s: \"%s\" is wrong; write NAME,reserve=20M,limit=60M,weight=2", value, part);
            free(text);
            return -1;
        }
    }
    free(text);
    if (htb_class_error(c)) {
        nbdkit_error("qos-class=%s: %s", value, htb_class_error(c));
        return -1;
    }
    qos.classes++;
    return 0;
}

static int qoskit_config(nbdkit_next_config *next, nbdkit_backend *nxdata, const char *key, const char *value)
{
    if (strcmp(key, "qos-rate") == 0)
        return parse_rate(key, value, &qos.config.rate_per_s[0]);
    if (strcmp(key, "qos-request") == 0) {
        int64_t n = nbdkit_parse_size(value);
        qos.cost.fixed_cost[QOS_READ] = qos.cost.fixed_cost[QOS_WRITE] = n < 0 ? 0 : (uint64_t)n;
        return n < 0 || (uint64_t)n > QOS_TOKENS_MAX ? -1 : 0;
    }
    if (strcmp(key, "qos-class") == 0)
        return parse_class(value);
    if (strcmp(key, "qos-other-limit") == 0)
        return parse_rate(key, value, &qos.config.best_effort.limit_per_s[0]);
    if (strcmp(key, "qos-burst") == 0) {
        unsigned ms;
        if (nbdkit_parse_unsigned(key, value, &ms) == -1 || ms == 0 || ms > 10000) {
            nbdkit_error("qos-burst=%s: milliseconds, 1 to 10000", value);
            return -1;
        }
        qos.config.burst_ns = (uint64_t)ms * 1000000;
        return 0;
    }
    if (strcmp(key, "qos-zero") == 0) {
        if (strcmp(value, "bytes") != 0 && strcmp(value, "request") != 0) {
            nbdkit_error("qos-zero=%s: bytes or request", value);
            return -1;
        }
        qos.zero_is_free = strcmp(value, "request") == 0;
        return 0;
    }
    if (strcmp(key, "qos-log") == 0) {
        qos.log_path = strdup(value);
        return 0;
    }
    return next(nxdata, key, value);
}

static int qoskit_config_complete(nbdkit_next_config_complete *next, nbdkit_backend *nxdata)
{
    uint64_t fits = 0, now = clock_ns();
    uint32_t id;
    size_t size;
    qos.config.classes = qos.classes;
    qos.config.start_ns = now;
    qos.config.order = HTB_FIFO;
    qos.cost.per_mib_cost[QOS_READ] = qos.cost.per_mib_cost[QOS_WRITE] = UINT64_C(1) << 20; /* a token a byte */
    if (htb_config_error(&qos.config)) {
        nbdkit_error("qos-rate=BYTES_PER_SECOND is needed: what the disk surely does (%s)",
                     htb_config_error(&qos.config));
        return -1;
    }
    size = htb_memsize(&qos.config);
    if (posix_memalign(&qos.memory, QOS_CACHE_LINE, size) != 0 ||
        htb_init(&qos.tree, qos.memory, size, &qos.config) != QOS_OK) {
        nbdkit_error("out of memory");
        return -1;
    }
    for (id = 1; id < qos.classes; id++) {
        enum qos_status status = htb_reserve(&qos.tree, now, id, &qos.class_of[id], &fits);
        if (status != QOS_OK) {
            nbdkit_error("qos-class=%s: %s; %llu bytes per second are left to reserve", qos.name[id],
                         qos_strerror(status), (unsigned long long)fits);
            return -1;
        }
    }
    if (qos.log_path && !(qos.log = fopen(qos.log_path, "w"))) {
        nbdkit_error("qos-log=%s: %s", qos.log_path, strerror(errno));
        return -1;
    }
    return next(nxdata);
}

#define QOSKIT_HELP                                                                                                    \
    "qos-rate=RATE       (required) bytes per second that the disk surely does\n"                                      \
    "qos-class=EXPORT[,reserve=RATE][,limit=RATE][,weight=N]   one tenant; may be repeated\n"                          \
    "qos-other-limit=RATE limit of all exports without a class together (default none)\n"                              \
    "qos-burst=MS        burst of every class in milliseconds (default 10); more absorbs a busy host\n"                \
    "qos-zero=bytes|request  what zeroing costs: its bytes (default), or a request only\n"                             \
    "qos-request=SIZE    what a request costs beside its bytes (default 0)\n"                                          \
    "qos-log=FILE        the scheduler's own log: ns, class, tokens granted so far"

/* ---- the queue; all under the lock */

static void log_grants(uint64_t now, bool last)
{
    uint32_t id;
    if (!qos.log || (now < qos.log_next_ns && !last))
        return;
    qos.log_next_ns = now + LOG_EVERY_NS;
    for (id = 0; id < qos.classes; id++) {
        struct qos_stats s;
        if (htb_stats(&qos.tree, id, &s) != QOS_OK)
            continue;
        (void)fprintf(qos.log, "%llu %s %llu\n", (unsigned long long)now, id ? qos.name[id] : "-",
                      (unsigned long long)s.granted);
    }
    if (last)
        (void)fprintf(qos.log, "submitted %llu completed %llu failed %llu\n", (unsigned long long)qos.submitted,
                      (unsigned long long)qos.completed, (unsigned long long)qos.failed);
    (void)fflush(qos.log);
}

static void hand_out(uint64_t now)
{
    struct htb_request *r;
    while ((r = htb_dispatch(&qos.tree, now)) != NULL) {
        struct waiter *w = (struct waiter *)(void *)r;
        w->dispatched = true;
        pthread_cond_signal(&w->go);
    }
    log_grants(now, false);
}

/* Waits until the request may go. False: its cost is out of range. */
static bool admit(struct waiter *w, uint32_t class_id, uint64_t cost, uint64_t offset, bool urgent)
{
    pthread_condattr_t monotonic;
    enum qos_status status;
    memset(w, 0, sizeof *w);
    w->r.class_id = class_id;
    w->r.tokens[0] = cost;
    w->r.offset = offset;
    w->r.urgent = urgent;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->go, &monotonic);
    pthread_condattr_destroy(&monotonic);

    pthread_mutex_lock(&qos.lock);
    status = htb_submit(&qos.tree, clock_ns(), &w->r);
    if (status == QOS_EDEBT) { /* too many urgent ones: this one queues */
        w->r.urgent = false;
        status = htb_submit(&qos.tree, clock_ns(), &w->r);
    }
    qos.submitted += status == QOS_OK;
    while (status == QOS_OK) {
        uint64_t now = clock_ns(), next;
        struct timespec until;
        hand_out(now);
        if (w->dispatched)
            break;
        next = qos_min(htb_dispatch_next_ns(&qos.tree, now), now + QOS_NS_PER_S);
        until.tv_sec = (time_t)(next / QOS_NS_PER_S);
        until.tv_nsec = (long)(next % QOS_NS_PER_S);
        pthread_cond_timedwait(&w->go, &qos.lock, &until);
    }
    pthread_mutex_unlock(&qos.lock);
    return status == QOS_OK;
}

static void finish(struct waiter *w, bool failed)
{
    pthread_mutex_lock(&qos.lock);
    if (htb_complete(&qos.tree, clock_ns(), failed ? HTB_NOT_DONE : HTB_DONE, NULL, &w->r) != QOS_OK)
        nbdkit_error("qoskit: a request completed that was not dispatched");
    qos.completed += !failed;
    qos.failed += failed;
    hand_out(clock_ns());
    pthread_mutex_unlock(&qos.lock);
    pthread_cond_destroy(&w->go);
}

/* ---- NBD requests */

static void *qoskit_open(nbdkit_next_open *next, nbdkit_context *context, int readonly, const char *exportname,
                         int is_tls)
{
    uint32_t id;
    (void)is_tls;
    if (next(context, readonly, exportname) == -1)
        return NULL;
    for (id = 1; id < qos.classes; id++)
        if (strcmp(qos.name[id], exportname) == 0)
            return &qos.class_of[id];
    return &qos.class_of[HTB_BEST_EFFORT];
}

static uint32_t class_of(const void *handle)
{
    return (uint32_t)((const struct htb_class *)handle - qos.class_of);
}

static bool too_large(int *err)
{
    *err = EINVAL;
    nbdkit_error("request larger than %llu bytes", (unsigned long long)QOS_TOKENS_MAX);
    return true;
}

static int qoskit_pread(nbdkit_next *next, void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags,
                        int *err)
{
    struct waiter w;
    int rc;
    if (!admit(&w, class_of(handle), qos_cost(&qos.cost, QOS_READ, count), offset, false) && too_large(err))
        return -1;
    rc = next->pread(next, buf, count, offset, flags, err);
    finish(&w, rc == -1);
    return rc;
}

static int qoskit_pwrite(nbdkit_next *next, void *handle, const void *buf, uint32_t count, uint64_t offset,
                         uint32_t flags, int *err)
{
    struct waiter w;
    int rc;
    if (!admit(&w, class_of(handle), qos_cost(&qos.cost, QOS_WRITE, count), offset, false) && too_large(err))
        return -1;
    rc = next->pwrite(next, buf, count, offset, flags, err);
    finish(&w, rc == -1);
    return rc;
}

/* Zeroing may write all its bytes, and costs them unless qos-zero=request. Trimming costs what a request costs. */
static int qoskit_zero(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    struct waiter w;
    int rc;
    if (!admit(&w, class_of(handle), qos_cost(&qos.cost, QOS_WRITE, qos.zero_is_free ? 0 : count), offset, false) &&
        too_large(err))
        return -1;
    rc = next->zero(next, count, offset, flags, err);
    finish(&w, rc == -1);
    return rc;
}

static int qoskit_trim(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
    struct waiter w;
    int rc;
    if (!admit(&w, class_of(handle), qos_cost(&qos.cost, QOS_WRITE, 0), offset, false) && too_large(err))
        return -1;
    rc = next->trim(next, count, offset, flags, err);
    finish(&w, rc == -1);
    return rc;
}

static int qoskit_flush(nbdkit_next *next, void *handle, uint32_t flags, int *err)
{
    struct waiter w;
    int rc;
    if (!admit(&w, class_of(handle), qos_cost(&qos.cost, QOS_WRITE, 0), 0, true) && too_large(err))
        return -1;
    rc = next->flush(next, flags, err);
    finish(&w, rc == -1);
    return rc;
}

static void qoskit_unload(void)
{
    uint32_t id;
    if (qos.log) {
        log_grants(clock_ns(), true);
        if (fclose(qos.log) != 0)
            nbdkit_error("qos-log=%s: %s", qos.log_path, strerror(errno));
    }
    for (id = 0; id < qos.classes; id++)
        free(qos.name[id]);
    free(qos.memory);
}

static struct nbdkit_filter filter = {
    .name = "qoskit",
    .longname = "qoskit storage quality of service",
    .description = "reservations, limits and fair sharing for the exports of one server",
    .unload = qoskit_unload,
    .config = qoskit_config,
    .config_complete = qoskit_config_complete,
    .config_help = QOSKIT_HELP,
    .open = qoskit_open,
    .pread = qoskit_pread,
    .pwrite = qoskit_pwrite,
    .zero = qoskit_zero,
    .trim = qoskit_trim,
    .flush = qoskit_flush,
};

NBDKIT_REGISTER_FILTER(filter)
