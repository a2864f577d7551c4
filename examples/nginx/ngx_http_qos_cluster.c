/* ngx_http_qos_cluster.c - a zone whose tenants have contracts of a cluster: tokens come from cluster_agent, by a file that each
 * worker maps (examples/cluster_agent/tokens.h).
 *
 * A token is a request, taken when it begins, or a block of bytes. A worker takes whole blocks; what is left of one is its own.
 * Bytes that are paid wait in the tree for the zone's rate as others do. If they still wait when their period is over, they are
 * paid again (qos_cluster_valid).
 *
 * A request without tokens is held: it has a place in the zone, and waits in a list of its worker, which looks every few
 * milliseconds whether there are some. Without an agent, or without a grant, there are none.
 *
 * The tokens of a reservation become the tenant's reserved rate in the tree until the next grant.
 */
#include "ngx_http_qos.h"
#include "examples/cluster_agent/tokens.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define LOOK_MS 4 /* while requests are held */
#define LOOK_IDLE_MS 50
#define OPEN_AGAIN_NS 1000000000

/* What a worker knows of an account. */
struct known {
    uint64_t id;    /* a hash of its name; 0: it is not of the cluster */
    uint32_t place; /* in the file, or QOS_NONE */
    size_t paid;    /* bytes of blocks that it has taken and not used */
};

/* Of a worker. */
struct qos_cluster {
    struct tokens_file *file; /* NULL: not there yet */
    ino_t inode;
    uint64_t opened_ns, changed, granted;
    struct known *known; /* of each account */
    uint32_t accounts;
    ngx_event_t timer;
};

/* ---- the file */

static void drop_file(struct qos_cluster *c)
{
    if (c->file)
        (void)munmap(c->file, sizeof *c->file);
    c->file = NULL;
}

/* The agent may come later than this worker, and its file may be another one some day. */
static void open_file(struct qos_zone *zone)
{
    struct qos_cluster *c = zone->cluster;
    struct tokens_file *file;
    struct stat st;
    int fd;
    if (c->file && stat((char *)zone->cluster_path.data, &st) == 0 && st.st_ino == c->inode)
        return;
    fd = open((char *)zone->cluster_path.data, O_RDWR | O_CLOEXEC);
    if (fd < 0) { /* what it has mapped stays */
        if (!c->file && c->opened_ns == 0)
            ngx_log_error(
                NGX_LOG_WARN, ngx_cycle->log, ngx_errno,
                "qos zone \"%V\": %V cannot be opened: its tenants are not served until cluster_agent has made it",
                &zone->name, &zone->cluster_path);
        return;
    }
    if (fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof *file) {
        file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (file != MAP_FAILED && tokens_read(&file->magic) == TOKENS_MAGIC) {
            drop_file(c);
            c->file = file;
            c->inode = st.st_ino;
            c->changed = c->granted = UINT64_MAX;
        } else if (file != MAP_FAILED) {
            (void)munmap(file, sizeof *file);
        }
    }
    (void)close(fd);
}

static int by_id(const void *a, const void *b)
{
    const struct known *x = *(struct known *const *)a, *y = *(struct known *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void find_places(struct qos_cluster *c)
{
    struct known **sorted = ngx_alloc(c->accounts * sizeof(void *), ngx_cycle->log), key, *of = &key, **found;
    uint32_t id, place, n = 0;
    if (!sorted)
        return;
    for (id = 0; id < c->accounts; id++) {
        c->known[id].place = QOS_NONE;
        if (c->known[id].id != 0)
            sorted[n++] = &c->known[id];
    }
    qsort(sorted, n, sizeof(void *), by_id);
    for (place = 0; place < TOKENS_TENANTS; place++) {
        key.id = tokens_read(&c->file->tenant[place].id);
        found = key.id ? bsearch(&of, sorted, n, sizeof(void *), by_id) : NULL;
        if (found)
            (*found)->place = place;
    }
    ngx_free(sorted);
}

/* ---- tokens */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct known *known_of(const struct qos_zone *zone, uint32_t id)
{
    struct qos_cluster *c = zone->cluster;
    return c && id < c->accounts && c->known[id].id != 0 ? &c->known[id] : NULL;
}

/* NULL: the cluster has no contract of it, or none is known yet. */
static struct tokens_tenant *tenant_of(const struct qos_zone *zone, const struct known *k)
{
    struct tokens_file *file = zone->cluster->file;
    struct tokens_tenant *t = file && k->place != QOS_NONE ? &file->tenant[k->place] : NULL;
    return t && tokens_read(&t->id) == k->id ? t : NULL;
}

static uint64_t spend(const struct qos_zone *zone, const struct known *k, struct tokens_tenant *t, uint64_t n)
{
    const uint64_t at_ns = now_ns(), spent = tokens_spend(zone->cluster->file, k->place, k->id, n, at_ns);
    if (spent < n)
        tokens_write(&t->wanted_ns, at_ns);
    return spent;
}

bool qos_cluster_admits(struct qos_zone *zone, uint32_t id, bool only_look)
{
    struct known *k = known_of(zone, id);
    struct tokens_tenant *t;
    if (!k)
        return true;
    t = tenant_of(zone, k);
    if (!t)
        return false;
    if (t->token_bytes == 0)
        return spend(zone, k, t, 1) != 0;
    return !only_look || k->paid != 0 || qos_cluster_wait_ns(zone, id) == 0;
}

size_t qos_cluster_pay(struct qos_zone *zone, uint32_t id, size_t bytes)
{
    struct known *k = known_of(zone, id);
    struct tokens_tenant *t;
    size_t n;
    if (!k || bytes == 0)
        return bytes;
    t = tenant_of(zone, k);
    if (!t)
        return 0;
    if (t->token_bytes == 0) /* its request was paid */
        return bytes;
    if (k->paid < bytes)
        k->paid += (size_t)(spend(zone, k, t, (bytes - k->paid - 1) / t->token_bytes + 1) * t->token_bytes);
    n = ngx_min(k->paid, bytes);
    k->paid -= n;
    return n;
}

void qos_cluster_back(struct qos_zone *zone, uint32_t id, size_t bytes)
{
    struct known *k = known_of(zone, id);
    struct tokens_tenant *t = k ? tenant_of(zone, k) : NULL;
    if (t && t->token_bytes != 0)
        k->paid += bytes;
}

uint64_t qos_cluster_period(struct qos_zone *zone, uint32_t id)
{
    const struct known *k = known_of(zone, id);
    const struct tokens_tenant *t = k ? tenant_of(zone, k) : NULL;
    return t && t->token_bytes != 0 ? tokens_read(&zone->cluster->file->period) : 0;
}

bool qos_cluster_valid(struct qos_zone *zone, uint32_t id, uint64_t period)
{
    const struct known *k = known_of(zone, id);
    const struct tokens_tenant *t = k && period != 0 ? tenant_of(zone, k) : NULL;
    if (!t || (tokens_read(&t->word) & TOKENS_COUNT) != 0)
        return true;
    return period == tokens_read(&zone->cluster->file->period) && now_ns() < tokens_read(&zone->cluster->file->ends_ns);
}

uint64_t qos_cluster_wait_ns(struct qos_zone *zone, uint32_t id)
{
    const struct known *k = known_of(zone, id);
    const struct tokens_tenant *t = k ? tenant_of(zone, k) : NULL;
    const uint64_t at_ns = now_ns();
    uint64_t word, ends_ns;
    if (!k)
        return 0;
    if (!t)
        return QOS_NS_PER_S;
    word = tokens_read(&t->word);
    ends_ns = tokens_read(&zone->cluster->file->ends_ns);
    if ((word & TOKENS_COUNT) != 0 || (at_ns < ends_ns && (word & (TOKENS_COUNT - 1)) != 0))
        return 0;
    return at_ns < ends_ns ? ends_ns - at_ns : QOS_NS_PER_S;
}

/* Bytes per second that the reservation's tokens are, until the period ends. false: the plan in force stays. */
static bool reserved_rate(struct qos_zone *zone, uint32_t id, uint64_t *per_s)
{
    const struct known *k = known_of(zone, id);
    const struct tokens_tenant *t = k ? tenant_of(zone, k) : NULL;
    const uint64_t at_ns = now_ns(), ends_ns = tokens_read(&zone->cluster->file->ends_ns);
    *per_s = 0;
    if (k && t && at_ns >= ends_ns)
        return false;
    if (k && t)
        *per_s = qos_mul_div_floor(tokens_read(&t->reserved), QOS_NS_PER_S, qos_max(ends_ns - at_ns, 1000000));
    if (t && t->token_bytes != 0)
        *per_s = qos_mul_div_floor(*per_s, t->token_bytes, 1);
    else
        *per_s = qos_mul_div_floor(*per_s, qos_zone_request_bytes(zone, id), 1);
    return k != NULL;
}

/* Those that fall first, so that those that rise fit. */
static void reserve_all(struct qos_zone *zone)
{
    uint64_t per_s;
    uint32_t id, rise;
    for (rise = 0; rise < 2; rise++)
        for (id = 1; id < zone->cluster->accounts; id++)
            if (reserved_rate(zone, id, &per_s) && (rise || per_s < qos_zone_reserved(zone, id)))
                qos_zone_reserve(zone, id, per_s);
}

/* ---- looking */

static void look(ngx_event_t *event)
{
    struct qos_zone *zone = event->data;
    struct qos_cluster *c = zone->cluster;
    const uint64_t at_ns = now_ns();
    if (at_ns - c->opened_ns >= OPEN_AGAIN_NS) {
        open_file(zone);
        c->opened_ns = at_ns;
    }
    if (c->file) {
        tokens_write(&c->file->served_ns, at_ns);
        if (c->changed != tokens_read(&c->file->changed)) {
            c->changed = tokens_read(&c->file->changed);
            find_places(c);
        }
        if (c->granted != tokens_read(&c->file->granted)) {
            c->granted = tokens_read(&c->file->granted);
            if (qos_zone_is_first(zone, c->granted))
                reserve_all(zone);
        }
    }
    qos_zone_release(zone);
    qos_cluster_look_soon(zone);
}

void qos_cluster_look_soon(struct qos_zone *zone)
{
    ngx_event_t *timer = &zone->cluster->timer;
    const bool held = !ngx_queue_empty(&zone->held_sides);
    timer->cancelable = !held; /* a worker that ends goes on until its last request has ended */
    if (timer->timer_set && held && (ngx_msec_int_t)(timer->timer.key - ngx_current_msec) > LOOK_MS)
        ngx_del_timer(timer);
    if (!timer->timer_set)
        ngx_add_timer(timer, held ? LOOK_MS : LOOK_IDLE_MS);
}

ngx_int_t qos_cluster_attach(struct qos_zone *zone, ngx_log_t *log, uint32_t accounts)
{
    struct qos_cluster *c;
    struct qos_line **line = zone->lines.elts;
    ngx_uint_t i;
    if (zone->cluster_path.len == 0)
        return NGX_OK;
    c = ngx_calloc(sizeof *c, log);
    if (!c || !(c->known = ngx_calloc(accounts * sizeof *c->known, log)))
        return NGX_ERROR;
    for (i = 0; i < zone->lines.nelts; i++) {
        struct known *k = &c->known[line[i]->id];
        k->place = QOS_NONE;
        if (line[i]->id != 0)
            k->id = tokens_id((char *)line[i]->node.str.data, line[i]->node.str.len);
    }
    c->accounts = accounts;
    c->timer.handler = look;
    c->timer.data = zone;
    c->timer.log = log;
    zone->cluster = c;
    look(&c->timer);
    return NGX_OK;
}
