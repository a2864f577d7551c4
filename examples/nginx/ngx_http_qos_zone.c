/* ngx_http_qos_zone.c - accounts and trees of htb.h in shared memory, used by the workers of all configurations.
 *
 * Accounts. The master reserves a zone's memory when it first reads the zone's name, and keeps it over reloads, so
 * pointers into it mean the same in every worker, and the workers of an old and a new configuration charge the same
 * account. A reload that fails changes nothing: the master gives accounts to the lines when nginx has committed the
 * configuration, and the first worker of the configuration makes a tree from it (a plan) and puts it in place of the
 * last one.
 *
 *     account   free --- a line has its key --> named --- no line has it --> ended --- no process that --> free
 *                                                 ^                           |        knows it lives
 *                                                 +--- a line has it again ---+
 *     An ended account keeps its limit and weight; its reservation is the others'. Nobody else gets its id.
 *
 *     plan      used --- another is made --> left --- all requests that wait have moved --> spare
 *     A plan is made beside the one in use, so nobody waits for that. Then the requests that wait move, in their order,
 *     a few with each use of the lock (move_some). A plan begins with empty buckets: who waits for tokens has none, and a
 *     tenant that does not wait loses one bucket at most.
 *
 * Locks. `plans` is for accounts' keys and terms, the list of workers, and the plan that is not used; no request takes it.
 * `trees` is for all else, and is held for microseconds. Both are robust: if a holder dies, the next one knows. It makes
 * the used tree anew (with empty buckets, so no tenant gains) and queues all waiting requests again.
 *
 * A request that has to wait is queued in the tree (htb_submit), so reservations, turns and weights hold over all
 * workers. Each worker with waiting requests sets a timer for the time that htb_dispatch_next_ns gives. The worker
 * whose timer comes first dispatches for all. It puts another worker's requests into that worker's list; that worker's
 * own timer is for the same time.
 *
 * In a cluster, a request that finds none of its tokens is held: it has a place as those that wait in the tree, but it is in the
 * list of its worker, not in the tree (ngx_http_qos_cluster.c).
 *
 * While no request waits, small takes need no lock: a worker takes tokens ahead for a tenant. The workers of a
 * configuration together hold at most the tokens of a millisecond at the tenant's limit; for all tenants together, of a
 * millisecond at the zone's rate. So that much more may go after a pause.
 */
#include "ngx_http_qos.h"
#include <sys/mman.h>

#define NOBODY QOS_NONE
#define COUNTS 8      /* counters of each account; a worker uses those of its process slot modulo this */
#define MOVE_STEP 256 /* requests and accounts that move while the lock is held once: below 0.2 ms */

/* One wait for tokens. `owner` and `granted` show what a killed worker left of it. */
struct qos_wait {
    struct htb_request request; /* first member */
    struct qos_side *side;      /* in the memory of its owner; NULL: the request has ended meanwhile */
    uint64_t since_ns;
    uint32_t owner; /* process slot + 1; 0: free */
    uint32_t next;  /* next free place, or next one granted to the same owner */
    uint32_t plan;  /* whose tree it waits in */
    bool granted;
    bool held;       /* it has no tokens of the cluster, and is in no tree */
    bool dispatched; /* held: it was in the tree already, or needs nothing of it */
    uint64_t period; /* qos_cluster_period, when it was paid */
    enum qos_op op;
};

struct qos_plan {
    struct htb tree;
    struct htb_config config;
    void *memory; /* of the tree */
};

struct qos_shared {
    pthread_mutex_t plans, trees;
    /* under plans */
    uint32_t serial; /* of the last configuration that was committed */
    struct {
        pid_t pid;
        uint32_t serial;
    } worker[NGX_MAX_PROCESSES];
    uint32_t accounts; /* places ever used */
    size_t tree_room;
    /* under trees */
    uint32_t applied; /* serial of the configuration in use */
    uint32_t use;     /* the plan in use */
    uint32_t
        moved; /* accounts whose requests wait in that plan; those of the others may be in the plan that was left */
    struct qos_plan plan[2];
    uint64_t rebuilt, abandoned;         /* trees made anew; waits left by dead workers */
    uint64_t waiting, held;              /* requests of all tenants; those of them that are held */
    uint64_t grant;                      /* the last one of the cluster that the tree knows */
    uint32_t waits, used, free;          /* number of places; number of them ever used; first free one of these */
    uint32_t granted[NGX_MAX_PROCESSES]; /* for each process slot */
    struct qos_account *account;
    struct qos_count *count; /* COUNTS of each account */
    struct qos_wait *wait;
};

/* In the master: the memory of each zone's name, while a configuration names it or a worker uses it. */
struct area {
    struct area *next;
    struct qos_shared *shared;
    size_t size, name_len;
    ngx_uint_t configurations;
    u_char name[];
};
static struct area *areas;

static ngx_uint_t requests; /* of this process, in all zones; those that are refused take no more connections */

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Counts one waiting request more, or less. */
static void count_wait(struct qos_shared *s, uint32_t id, bool more, uint64_t now_ns)
{
    struct qos_account *t = &s->account[id];
    if (t->waiting == 0)
        t->waits_since_ns = now_ns;
    t->waiting = more ? t->waiting + 1 : t->waiting - 1;
    s->waiting = more ? s->waiting + 1 : s->waiting - 1;
    if (t->waiting == 0)
        t->waited_ns += now_ns - t->waits_since_ns;
}

static void count(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static struct qos_count *count_of(struct qos_zone *zone, uint32_t id)
{
    return &zone->shared->count[(size_t)id * COUNTS + (size_t)ngx_process_slot % COUNTS];
}

static void count_take(struct qos_count *c, enum qos_op op, uint64_t tokens)
{
    count(&c->takes, 1);
    count(&c->bytes[op], tokens);
}

/* Records how long a take waited. */
static void note_wait(struct qos_account *t, uint64_t waited_ns)
{
    const uint64_t us = waited_ns / 1000;
    t->wait[us ? qos_min(64 - (uint64_t)__builtin_clzll(us), QOS_WAIT_STEPS - 1) : 1]++;
    t->wait_ns += waited_ns;
}

/* Counts a request that is held, or no more. */
static void count_held(struct qos_shared *s, struct qos_wait *w, bool held, uint64_t now_ns)
{
    w->held = held;
    s->held = held ? s->held + 1 : s->held - 1;
    count_wait(s, w->request.class_id, held, now_ns);
}

/* ---- trees */

/* htb.h refuses nothing here: the same lines were tried when they were read. */
static void must(struct qos_zone *zone, enum qos_status status)
{
    if (status != QOS_OK)
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0, "qos zone \"%V\": %s", &zone->name, qos_strerror(status));
}

static void make_tree(struct qos_zone *zone, uint32_t plan)
{
    struct qos_shared *s = zone->shared;
    struct qos_plan *p = &s->plan[plan];
    const uint64_t now_ns = clock_ns();
    uint32_t id;
    p->config.start_ns = now_ns;
    p->config.best_effort = s->account[0].terms[plan];
    must(zone, htb_init(&p->tree, p->memory, s->tree_room, &p->config));
    for (id = 1; id < p->config.classes; id++)
        if (s->account[id].in[plan])
            must(zone, htb_reserve(&p->tree, now_ns, id, &s->account[id].terms[plan], NULL));
}

/* A worker died while it held the lock: what it left may be a half of a change. */
static void rebuild(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    const uint64_t now_ns = clock_ns();
    uint32_t i;
    if (s->applied == 0)
        return;
    make_tree(zone, s->use);
    s->moved = s->plan[s->use].config.classes;
    for (i = 0; i < s->plan[s->use].config.classes; i++)
        s->account[i].waiting = 0;
    s->waiting = s->held = 0;
    s->rebuilt++;
    s->free = NOBODY;
    for (i = 0; i < NGX_MAX_PROCESSES; i++)
        s->granted[i] = NOBODY;
    for (i = 0; i < s->used; i++) {
        struct qos_wait *w = &s->wait[i];
        uint32_t *list = w->owner == 0 ? &s->free : w->granted ? &s->granted[w->owner - 1] : NULL;
        if (list) {
            w->next = *list;
            *list = i;
        } else if (w->held) {
            count_held(s, w, true, now_ns);
        } else {
            w->plan = s->use;
            w->request.state = HTB_IDLE;
            must(zone, htb_submit(&s->plan[s->use].tree, now_ns, &w->request));
            count_wait(s, w->request.class_id, true, now_ns);
        }
    }
}

/* A step of the move from the plan that was left to the one in use. */
static void move_some(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    struct qos_plan *from = &s->plan[1 - s->use], *to = &s->plan[s->use];
    const uint64_t now_ns = clock_ns();
    struct qos_stats stats;
    struct htb_request *r;
    uint32_t steps;
    for (steps = 0; s->moved < to->config.classes && steps < MOVE_STEP; steps++) {
        r = s->moved < from->config.classes ? htb_queue_next(&from->tree, s->moved, NULL) : NULL;
        if (r) {
            must(zone, htb_cancel(&from->tree, now_ns, r));
            ((struct qos_wait *)(void *)r)->plan = s->use;
            must(zone, htb_submit(&to->tree, now_ns, r));
            continue;
        }
        if (s->account[s->moved].in[1 - s->use] && htb_stats(&from->tree, s->moved, &stats) == QOS_OK)
            s->account[s->moved].borrowed += stats.borrowed;
        s->moved++;
    }
}

static void lock(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    if (pthread_mutex_lock(&s->trees) == EOWNERDEAD) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "qos zone \"%V\": a worker died in the middle of a change: the tree is made anew", &zone->name);
        rebuild(zone);
        (void)pthread_mutex_consistent(&s->trees);
    }
    if (s->moved < s->plan[s->use].config.classes)
        move_some(zone);
}

static void unlock(struct qos_zone *zone)
{
    (void)pthread_mutex_unlock(&zone->shared->trees);
}

/* ---- accounts and plans; under the lock of the plans */

static void lock_plans(struct qos_shared *s)
{
    if (pthread_mutex_lock(&s->plans) == EOWNERDEAD) /* a plan that is half made is made anew: it is not yet used */
        (void)pthread_mutex_consistent(&s->plans);
}

static bool lives(pid_t pid)
{
    return pid != 0 && (kill(pid, 0) == 0 || ngx_errno != ESRCH);
}

/* The oldest configuration that a process may use. */
static uint32_t oldest_serial(const struct qos_shared *s)
{
    uint32_t oldest = s->serial, i;
    for (i = 0; i < NGX_MAX_PROCESSES; i++)
        if (lives(s->worker[i].pid))
            oldest = ngx_min(oldest, s->worker[i].serial);
    return oldest;
}

static bool is_of(const struct qos_account *t, const ngx_str_t *key)
{
    return t->key_len == key->len && ngx_memcmp(t->key, key->data, key->len) == 0;
}

/* A tenant that was there keeps its account. No process can know an account that was not named since the oldest one
 * began. */
void qos_zone_commit(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    struct qos_line **line = zone->lines.elts;
    struct qos_account *t;
    uint32_t oldest, next = 1, id;
    ngx_uint_t i;
    lock_plans(s);
    oldest = oldest_serial(s);
    zone->serial = ++s->serial;
    for (id = 1; id < s->accounts; id++) {
        ngx_str_t key = {s->account[id].key_len, s->account[id].key};
        struct qos_line *same = key.len ? qos_zone_line(zone, &key) : NULL;
        if (same)
            same->id = id;
        else if (s->account[id].named < oldest)
            s->account[id].key_len = 0;
    }
    for (i = 0; i < zone->lines.nelts; i++) {
        if (line[i]->id == 0) {
            while (next < s->accounts && s->account[next].key_len != 0)
                next++;
            if (next == QOS_ACCOUNTS_MAX) {
                ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                              "qos zone \"%V\": no account is free, %V is one of the others: old workers still serve "
                              "tenants that were removed, see worker_shutdown_timeout",
                              &zone->name, &line[i]->node.str);
                continue;
            }
            t = &s->account[next];
            ngx_memzero(t, sizeof *t);
            ngx_memzero(&s->count[(size_t)next * COUNTS], COUNTS * sizeof *s->count);
            ngx_memcpy(t->key, line[i]->node.str.data, line[i]->node.str.len);
            t->key_len = (uint32_t)line[i]->node.str.len;
            line[i]->id = next;
            s->accounts = ngx_max(s->accounts, next + 1);
        }
        s->account[line[i]->id].named = zone->serial;
    }
    (void)pthread_mutex_unlock(&s->plans);
}

/* The first worker of a configuration. */
static void apply(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    struct qos_line **line = zone->lines.elts;
    const uint32_t oldest = oldest_serial(s), spare = 1 - s->use;
    struct qos_plan *plan = &s->plan[spare];
    uint32_t id, moved = 0;
    ngx_uint_t i;
    while (moved < s->plan[s->use].config.classes) { /* from the plan that is now made anew */
        lock(zone);
        moved = s->moved;
        unlock(zone);
    }
    plan->config = zone->config;
    plan->config.classes = s->accounts;
    s->account[0].terms[spare] = zone->others;
    s->account[0].in[spare] = true;
    for (id = 1; id < s->accounts; id++) {
        struct qos_account *t = &s->account[id];
        t->in[spare] = t->key_len != 0 && t->in[s->use] && t->named >= oldest;
        t->terms[spare] = t->terms[s->use];
        ngx_memzero(t->terms[spare].rate_per_s, sizeof t->terms[spare].rate_per_s);
    }
    for (i = 0; i < zone->lines.nelts; i++)
        if (line[i]->id != 0) {
            s->account[line[i]->id].terms[spare] = line[i]->terms;
            s->account[line[i]->id].in[spare] = true;
        }
    make_tree(zone, spare);
    lock(zone);
    s->use = spare;
    s->moved = 0;
    s->waits = zone->places;
    s->applied = zone->serial;
    s->grant = 0; /* the new plan knows none */
    unlock(zone);
    for (moved = 0; moved < plan->config.classes;) {
        lock(zone);
        moved = s->moved;
        unlock(zone);
    }
}

/* ---- the zone */

static size_t fixed_size(const struct htb_config *config)
{
    return sizeof(struct qos_shared) +
           config->classes * (sizeof(struct qos_account) + COUNTS * sizeof(struct qos_count)) + 2 * htb_memsize(config);
}

size_t qos_zone_least_size(const struct htb_config *config)
{
    return ngx_align(fixed_size(config) + 1024 * sizeof(struct qos_wait) + 16 * ngx_pagesize, ngx_pagesize);
}

static size_t part(size_t *end, size_t size)
{
    const size_t at = ngx_align(*end, ngx_pagesize);
    *end = at + size;
    return at;
}

static bool in_use(const struct area *area)
{
    uint32_t i;
    for (i = 0; i < NGX_MAX_PROCESSES; i++)
        if (lives(area->shared->worker[i].pid))
            return true;
    return area->configurations != 0;
}

static void drop_areas(void)
{
    struct area **at = &areas, *area;
    while ((area = *at) != NULL)
        if (in_use(area)) {
            at = &area->next;
        } else {
            *at = area->next;
            (void)munmap(area->shared, area->size);
            ngx_free(area);
        }
}

static void close_zone(void *data)
{
    struct area *area = data;
    area->configurations--;
    drop_areas();
}

static struct area *new_area(ngx_conf_t *cf, const struct qos_zone *zone)
{
    struct htb_config most = zone->config;
    struct area *area = ngx_alloc(sizeof *area + zone->name.len, cf->log);
    pthread_mutexattr_t robust;
    struct qos_shared *s;
    size_t end = sizeof *s, room, account, counters, tree[2], wait;
    uint32_t i;
    most.classes = QOS_ACCOUNTS_MAX;
    room = htb_memsize(&most);
    account = part(&end, QOS_ACCOUNTS_MAX * sizeof *s->account);
    counters = part(&end, QOS_ACCOUNTS_MAX * COUNTS * sizeof *s->count);
    tree[0] = part(&end, room);
    tree[1] = part(&end, room);
    wait = part(&end, QOS_WAITS_MAX * sizeof *s->wait);
    s = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!area || s == MAP_FAILED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno, "qos_zone: no room for %uz bytes of addresses", end);
        return NULL;
    }
    area->shared = s;
    area->size = end;
    area->name_len = zone->name.len;
    area->configurations = 0;
    ngx_memcpy(area->name, zone->name.data, zone->name.len);
    area->next = areas;
    areas = area;
    s->account = (void *)((u_char *)s + account);
    s->count = (void *)((u_char *)s + counters);
    s->plan[0].memory = (u_char *)s + tree[0];
    s->plan[1].memory = (u_char *)s + tree[1];
    s->wait = (void *)((u_char *)s + wait);
    s->tree_room = room;
    s->accounts = 1;
    s->free = NOBODY;
    for (i = 0; i < NGX_MAX_PROCESSES; i++)
        s->granted[i] = NOBODY;
    if (pthread_mutexattr_init(&robust) != 0 || pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) != 0 ||
        pthread_mutex_init(&s->plans, &robust) != 0 || pthread_mutex_init(&s->trees, &robust) != 0)
        return NULL;
    return area;
}

ngx_int_t qos_zone_open(ngx_conf_t *cf, struct qos_zone *zone, size_t size)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    struct area *area;
    drop_areas();
    for (area = areas; area; area = area->next)
        if (area->name_len == zone->name.len && ngx_memcmp(area->name, zone->name.data, zone->name.len) == 0)
            break;
    if (!cleanup || (!area && !(area = new_area(cf, zone))))
        return NGX_ERROR;
    area->configurations++;
    cleanup->handler = close_zone;
    cleanup->data = area;
    zone->shared = area->shared;
    zone->places = (uint32_t)qos_min((size - fixed_size(&zone->config)) / sizeof(struct qos_wait), QOS_WAITS_MAX);
    return NGX_OK;
}

struct qos_line *qos_zone_line(struct qos_zone *zone, const ngx_str_t *key)
{
    /* nginx does not change the key that it looks up */
    ngx_str_t name = *key;
    return (struct qos_line *)(void *)ngx_str_rbtree_lookup(&zone->ids, &name, ngx_crc32_long(key->data, key->len));
}

uint32_t qos_zone_id(struct qos_zone *zone, const ngx_str_t *key)
{
    const struct qos_line *line = qos_zone_line(zone, key);
    return line ? line->id : HTB_BEST_EFFORT;
}

/* ---- waiting; under the lock of the trees */

static void cancel(struct qos_zone *zone, struct qos_wait *w)
{
    const uint64_t now_ns = clock_ns();
    if (w->held) {
        count_held(zone->shared, w, false, now_ns);
        return;
    }
    must(zone, htb_cancel(&zone->shared->plan[w->plan].tree, now_ns, &w->request));
    count_wait(zone->shared, w->request.class_id, false, now_ns);
}

static void free_wait(struct qos_shared *s, struct qos_wait *w)
{
    w->owner = 0;
    w->next = s->free;
    s->free = (uint32_t)(w - s->wait);
}

static void timer_at(struct qos_zone *zone, uint64_t at_ns)
{
    const uint64_t now_ns = clock_ns();
    /* At the latest in a second: a reload may have changed the rates, a worker may have died. */
    const uint64_t wait_ms = at_ns > now_ns ? qos_min((at_ns - now_ns - 1) / 1000000 + 1, 1000) : 0;
    const ngx_msec_t key = ngx_current_msec + (ngx_msec_t)wait_ms;
    if (wait_ms == 0) {
        ngx_post_event(&zone->timer, &ngx_posted_events);
        return;
    }
    if (zone->timer.timer_set && (ngx_msec_int_t)(zone->timer.timer.key - key) <= 0)
        return;
    if (zone->timer.timer_set)
        ngx_del_timer(&zone->timer); /* ngx_add_timer alone would keep a timer that is a little later */
    ngx_add_timer(&zone->timer, (ngx_msec_t)wait_ms);
}

static void queue_wait(struct qos_zone *zone, struct qos_wait *w, uint64_t now_ns)
{
    struct qos_shared *s = zone->shared;
    const uint32_t id = w->request.class_id;
    w->plan = s->use;
    must(zone, htb_submit(&s->plan[s->use].tree, now_ns, &w->request));
    count_wait(s, id, true, now_ns);
}

static void hold(struct qos_zone *zone, struct qos_wait *w, uint64_t now_ns)
{
    count_held(zone->shared, w, true, now_ns);
    ngx_queue_insert_tail(&zone->held_sides, &w->side->held);
}

static bool pay_all(struct qos_zone *zone, uint32_t id, size_t bytes)
{
    const size_t paid = qos_cluster_pay(zone, id, bytes);
    if (paid == bytes)
        return true;
    qos_cluster_back(zone, id, paid);
    return false;
}

/* A wait that was granted its tokens of the tree: the side that goes on, or NULL. What it paid to the cluster may be void by now. */
static struct qos_side *granted(struct qos_zone *zone, struct qos_wait *w, uint64_t now_ns)
{
    struct qos_side *side = w->side;
    const uint32_t id = w->request.class_id;
    const size_t n = (size_t)w->request.tokens[0];
    w->granted = false;
    w->dispatched = true;
    if (side && !qos_cluster_valid(zone, id, w->period) && !pay_all(zone, id, n)) {
        hold(zone, w, now_ns);
        return NULL;
    }
    if (side) {
        side->wait = NULL;
        side->credit += n;
        zone->waiting--;
    }
    free_wait(zone->shared, w);
    return side;
}

/* The next of this worker's sides that was granted its tokens, or NULL. */
static struct qos_side *next_granted(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    uint32_t *list = &s->granted[ngx_process_slot];
    struct qos_side *side = NULL;
    while (!side && *list != NOBODY) {
        struct qos_wait *w = &s->wait[*list];
        *list = w->next;
        side = granted(zone, w, clock_ns());
    }
    return side;
}

static uint64_t next_event(struct qos_shared *s, uint64_t now_ns)
{
    struct qos_plan *plan = &s->plan[s->use];
    return s->moved < plan->config.classes ? now_ns : htb_dispatch_next_ns(&plan->tree, now_ns);
}

static void on_timer(ngx_event_t *event)
{
    struct qos_zone *zone = event->data;
    struct qos_shared *s = zone->shared;
    struct htb_request *r;
    struct qos_side *side;
    uint64_t next_ns, now_ns;
    lock(zone);
    now_ns = clock_ns();
    while ((r = htb_dispatch(&s->plan[s->use].tree, now_ns)) != NULL) {
        struct qos_wait *w = (struct qos_wait *)(void *)r;
        w->granted = true;
        w->next = s->granted[w->owner - 1];
        s->granted[w->owner - 1] = (uint32_t)(w - s->wait);
        count_wait(s, r->class_id, false, now_ns);
        count_take(count_of(zone, r->class_id), w->op, r->tokens[0]);
        note_wait(&s->account[r->class_id], qos_sat_sub(now_ns, w->since_ns));
    }
    next_ns = next_event(s, now_ns);
    side = next_granted(zone);
    unlock(zone);
    while (side) {
        side->go(side);
        lock(zone);
        side = next_granted(zone);
        unlock(zone);
    }
    if (zone->waiting != 0)
        timer_at(zone, next_ns);
}

/* Takes as much of this as possible now. While no request waits: in one step, and some tokens ahead; otherwise at most
 * a chunk. 0: it has to wait. */
static size_t take_now(struct qos_zone *zone, uint64_t now_ns, uint32_t id, size_t tokens)
{
    struct qos_shared *s = zone->shared;
    struct htb *tree = &s->plan[s->use].tree;
    const uint64_t workers_ms = 1000 * zone->workers, limit = s->account[id].terms[s->use].limit_per_s[0],
                   all = s->plan[s->use].config.rate_per_s[0] / workers_ms, most = limit ? limit / workers_ms : all;
    uint64_t n = qos_min(most, QOS_STEP_CHUNKS * zone->chunk);
    if (tokens > n / 4 || zone->ahead_all + n > all)
        n = tokens;
    if (s->waiting == s->held && n <= most && htb_take(tree, now_ns, id, n) == QOS_OK) {
        zone->ahead[id] += n - tokens;
        zone->ahead_all += n - tokens;
        return tokens;
    }
    tokens = ngx_min(tokens, zone->chunk);
    return htb_take(tree, now_ns, id, tokens) == QOS_OK ? tokens : 0;
}

/* A place for a wait, or NULL. A tenant may have as many places as it leaves free: a tenant that floods gets half of
 * them, two get a third each, and there is always one for a tenant that has none. */
static struct qos_wait *new_wait(struct qos_shared *s, uint32_t id)
{
    struct qos_wait *w = NULL;
    if (s->account[id].waiting + s->waiting >= s->waits)
        return NULL;
    if (s->free != NOBODY) {
        w = &s->wait[s->free];
        s->free = w->next;
    } else if (s->used < QOS_WAITS_MAX) {
        w = &s->wait[s->used];
        w->owner = 0;
        s->used++;
    }
    return w;
}

/* Counts a refusal, and logs it: once in a second and process. */
static void refused(struct qos_zone *zone, uint32_t id, enum qos_refusal why)
{
    static const char *const reasons[] = {"", "over its limit", "its requests hold too many of worker_connections",
                                          "too many of its requests wait: give the zone a larger size"};
    struct qos_account *t = &zone->shared->account[id];
    const ngx_uint_t level = why == QOS_OVER_LIMIT ? NGX_LOG_NOTICE : NGX_LOG_ERR;
    ngx_str_t others = ngx_string("*"), key = {t->key_len, t->key};
    count(&t->refused[why], 1);
    zone->unlogged++;
    if (zone->logged == ngx_time())
        return;
    ngx_log_error(level, ngx_cycle->log, 0,
                  "qos zone \"%V\": a request of \"%V\" is refused: %s (%uL refusals since the last such line)",
                  &zone->name, id ? &key : &others, reasons[why], zone->unlogged);
    zone->logged = ngx_time();
    zone->unlogged = 0;
}

static ngx_int_t credit(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens, struct qos_side *side)
{
    count_take(count_of(zone, id), op, tokens);
    side->credit += tokens;
    return NGX_OK;
}

/* A wait of this side, held or not; NULL: there is no place. */
static struct qos_wait *begin_wait(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens,
                                   struct qos_side *side, bool held)
{
    struct qos_wait *w = new_wait(zone->shared, id);
    if (!w)
        return NULL;
    ngx_memzero(w, sizeof *w);
    w->request.class_id = id;
    w->request.gate = true;
    w->request.tokens[0] = tokens;
    w->side = side;
    w->since_ns = clock_ns();
    w->op = op;
    w->plan = zone->shared->use;
    w->held = held;
    w->dispatched = tokens == 0;
    w->period = qos_cluster_period(zone, id);
    /* everything that rebuild reads is there */
    __atomic_store_n(&w->owner, (uint32_t)ngx_process_slot + 1, __ATOMIC_RELEASE);
    side->wait = w;
    zone->waiting++;
    if (held)
        hold(zone, w, w->since_ns);
    else
        queue_wait(zone, w, w->since_ns);
    return w;
}

ngx_int_t qos_zone_take(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens, struct qos_side *side)
{
    struct qos_shared *s = zone->shared;
    const size_t paid = qos_cluster_pay(zone, id, tokens);
    const bool held = paid == 0 && tokens != 0;
    const struct qos_wait *w;
    uint64_t next_ns, now_ns;
    size_t taken = 0, step;
    if (!held && zone->ahead[id] >= paid) {
        zone->ahead[id] -= paid;
        zone->ahead_all -= paid;
        return credit(zone, id, op, paid, side);
    }
    now_ns = clock_ns(); /* before the lock, to hold the lock for less time */
    lock(zone);
    if (!held)
        taken = take_now(zone, now_ns, id, paid);
    if (taken != 0) {
        unlock(zone);
        qos_cluster_back(zone, id, paid - taken);
        return credit(zone, id, op, taken, side);
    }
    step = ngx_min(held ? tokens : paid, zone->chunk);
    w = begin_wait(zone, id, op, step, side, held);
    next_ns = next_event(s, now_ns);
    unlock(zone);
    if (!held)
        qos_cluster_back(zone, id, w ? paid - step : paid);
    if (!w) {
        refused(zone, id, QOS_OVER_PLACES);
        return NGX_ERROR;
    }
    timer_at(zone, next_ns);
    if (held)
        qos_cluster_look_soon(zone);
    return NGX_AGAIN;
}

ngx_int_t qos_zone_admit(struct qos_zone *zone, uint32_t id, bool reject, struct qos_side *side, uint64_t *wait_ns)
{
    const struct qos_wait *w;
    if (qos_cluster_admits(zone, id, reject))
        return NGX_OK;
    if (reject) {
        *wait_ns = qos_cluster_wait_ns(zone, id);
        refused(zone, id, QOS_OVER_LIMIT);
        return NGX_DECLINED;
    }
    lock(zone);
    w = begin_wait(zone, id, QOS_WRITE, 0, side, true);
    unlock(zone);
    if (!w) {
        refused(zone, id, QOS_OVER_PLACES);
        return NGX_ERROR;
    }
    qos_cluster_look_soon(zone);
    return NGX_AGAIN;
}

/* Is there something for a held wait to go on with? *paid: how many bytes. */
static bool pay_wait(struct qos_zone *zone, const struct qos_wait *w, size_t *paid)
{
    const uint32_t id = w->request.class_id;
    *paid = (size_t)w->request.tokens[0];
    if (*paid == 0)
        return qos_cluster_admits(zone, id, false);
    if (w->dispatched)
        return pay_all(zone, id, *paid);
    *paid = qos_cluster_pay(zone, id, *paid);
    return *paid != 0;
}

/* A held wait has paid: it goes on, or waits in the tree. */
static void release(struct qos_zone *zone, struct qos_side *side, size_t paid)
{
    struct qos_shared *s = zone->shared;
    struct qos_wait *w = side->wait;
    const uint32_t id = w->request.class_id;
    const enum qos_op op = w->op;
    uint64_t next_ns, now_ns;
    size_t taken = paid;
    bool dispatched;
    lock(zone);
    now_ns = clock_ns();
    dispatched = w->dispatched;
    count_held(s, w, false, now_ns);
    if (!dispatched)
        taken = take_now(zone, now_ns, id, paid);
    if (!dispatched && taken == 0) {
        w->request.tokens[0] = paid;
        w->period = qos_cluster_period(zone, id);
        queue_wait(zone, w, now_ns);
        next_ns = next_event(s, now_ns);
        unlock(zone);
        timer_at(zone, next_ns);
        return;
    }
    if (paid == 0 || !dispatched)
        note_wait(&s->account[id], qos_sat_sub(now_ns, w->since_ns));
    free_wait(s, w);
    unlock(zone);
    side->wait = NULL;
    zone->waiting--;
    if (dispatched)
        side->credit += taken;
    else
        (void)credit(zone, id, op, taken, side);
    qos_cluster_back(zone, id, paid - taken);
    side->go(side);
}

void qos_zone_release(struct qos_zone *zone)
{
    uint32_t without = NOBODY; /* an account that has no tokens */
    ngx_queue_t list, *q;
    size_t paid;
    if (ngx_queue_empty(&zone->held_sides))
        return;
    ngx_queue_init(&list);
    ngx_queue_add(&list, &zone->held_sides);
    ngx_queue_init(&zone->held_sides);
    while (!ngx_queue_empty(&list)) { /* others may leave it meanwhile */
        struct qos_side *side;
        uint32_t id;
        q = ngx_queue_head(&list);
        ngx_queue_remove(q);
        side = ngx_queue_data(q, struct qos_side, held);
        id = side->wait->request.class_id;
        if (id != without && pay_wait(zone, side->wait, &paid)) {
            release(zone, side, paid);
        } else {
            ngx_queue_insert_tail(&zone->held_sides, q);
            without = id;
        }
    }
}

void qos_zone_leave(struct qos_zone *zone, struct qos_side *side)
{
    struct qos_wait *w = side->wait;
    if (!w)
        return;
    lock(zone);
    if (w->granted) {
        w->side = NULL; /* next_granted frees it */
    } else {
        if (w->held) {
            ngx_queue_remove(&side->held); /* more than one statement */
        }
        cancel(zone, w);
        free_wait(zone->shared, w);
    }
    unlock(zone);
    side->wait = NULL;
    zone->waiting--;
}

/* Drops the waits of a worker that was killed: no process would use their grants. */
static void reap(struct qos_zone *zone, uint32_t slot)
{
    struct qos_shared *s = zone->shared;
    uint32_t i;
    s->granted[slot] = NOBODY;
    for (i = 0; i < s->used; i++) {
        struct qos_wait *w = &s->wait[i];
        if (w->owner != slot + 1)
            continue;
        if (!w->granted)
            cancel(zone, w);
        free_wait(s, w);
        s->abandoned++;
    }
}

/* The master starts a new worker when one has died. It may have the dead worker's process slot. An account may have
 * become another tenant's before this process was known to use it: then its tenant is one of the others. */
ngx_int_t qos_zone_attach(struct qos_zone *zone, ngx_log_t *log)
{
    struct qos_shared *s = zone->shared;
    struct qos_line **line = zone->lines.elts;
    ngx_uint_t i;
    uint32_t slot, accounts;
    lock_plans(s);
    lock(zone);
    for (slot = 0; slot < NGX_MAX_PROCESSES; slot++)
        if (s->worker[slot].pid != 0 && (slot == (uint32_t)ngx_process_slot || !lives(s->worker[slot].pid))) {
            reap(zone, slot);
            s->worker[slot].pid = 0;
        }
    unlock(zone);
    s->worker[ngx_process_slot].pid = ngx_pid;
    s->worker[ngx_process_slot].serial = zone->serial;
    for (i = 0; i < zone->lines.nelts; i++)
        if (!is_of(&s->account[line[i]->id], &line[i]->node.str))
            line[i]->id = 0;
    zone->ahead = ngx_calloc(s->accounts * sizeof *zone->ahead, log);
    zone->held = ngx_calloc(s->accounts * sizeof *zone->held, log);
    if (zone->ahead && zone->held && zone->serial > s->applied)
        apply(zone);
    accounts = s->accounts;
    (void)pthread_mutex_unlock(&s->plans);
    ngx_memzero(&zone->timer, sizeof zone->timer);
    zone->timer.handler = on_timer;
    zone->timer.data = zone;
    zone->timer.log = log;
    zone->waiting = 0;
    ngx_queue_init(&zone->held_sides);
    zone->workers = (ngx_uint_t)qos_max(
        (uint64_t)((ngx_core_conf_t *)ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module))->worker_processes, 1);
    return zone->ahead && zone->held ? qos_cluster_attach(zone, log, accounts) : NGX_ERROR;
}

/* What waits for a process that had to end at once is taken away like that of a killed one. */
void qos_zone_detach(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    if (zone->waiting != 0 || s->worker[ngx_process_slot].pid != ngx_pid)
        return;
    lock_plans(s);
    s->worker[ngx_process_slot].pid = 0;
    (void)pthread_mutex_unlock(&s->plans);
}

/* ---- requests and reports */

/* Each tenant is served, whatever requests others have. `left`: connections that are left in this process. A tenant that
 * waits may hold as many requests as there would be if each request in progress took one more (to an upstream): alone a
 * third of the connections (a quarter with upstreams), two a fifth each; and a sixteenth of what is left in any case. One
 * that holds none finds some. A tenant that does not wait, as its clients are slow, may hold 16 times what is left. */
static bool too_many(struct qos_zone *zone, uint32_t id)
{
    const uint64_t left = ngx_cycle->free_connection_n + ngx_cycle->reusable_connections_n;
    const bool waits = __atomic_load_n(&zone->shared->account[id].waiting, __ATOMIC_RELAXED) != 0;
    const uint64_t most = waits ? qos_max(qos_sat_sub(left, requests), left / 16) : 16 * left;
    return zone->held[id] != 0 && zone->held[id] >= most;
}

enum qos_refusal qos_zone_begin(struct qos_zone *zone, uint32_t id, bool reject, uint64_t *wait_ns)
{
    struct qos_shared *s = zone->shared;
    const struct qos_account *t = &s->account[id];
    enum qos_refusal why = QOS_ACCEPTED;
    uint64_t now_ns, next_ns = 0;
    *wait_ns = 0;
    count(&count_of(zone, id)->requests, 1); /* no lock: only takes need it */
    if (too_many(zone, id)) {
        why = QOS_OVER_CONNECTIONS;
    } else if (reject || __atomic_load_n(&t->waiting, __ATOMIC_RELAXED) != 0) {
        lock(zone);
        now_ns = clock_ns();
        if (t->waiting + s->waiting >= s->waits)
            why = QOS_OVER_PLACES;
        if (reject)
            next_ns = htb_next_ns(&s->plan[s->use].tree, now_ns, id, zone->chunk);
        if (reject && (next_ns > now_ns || t->waiting != 0)) /* or other requests of the tenant wait already */
            why = QOS_OVER_LIMIT;
        if (next_ns == QOS_NEVER && s->waiting != 0) /* requests that wait go first */
            next_ns = next_event(s, now_ns);
        *wait_ns = qos_sat_sub(next_ns, now_ns);
        unlock(zone);
    }
    zone->held[id]++;
    requests += why == QOS_ACCEPTED;
    if (why != QOS_ACCEPTED)
        refused(zone, id, why);
    return why;
}

void qos_zone_end(struct qos_zone *zone, uint32_t id, bool accepted)
{
    zone->held[id]--;
    requests -= accepted;
}

bool qos_zone_is_first(struct qos_zone *zone, uint64_t grant)
{
    bool first;
    lock(zone);
    first = zone->shared->grant != grant;
    zone->shared->grant = grant;
    unlock(zone);
    return first;
}

uint64_t qos_zone_reserved(struct qos_zone *zone, uint32_t id)
{
    return zone->shared->account[id].terms[zone->shared->use].rate_per_s[0];
}

void qos_zone_reserve(struct qos_zone *zone, uint32_t id, uint64_t per_s)
{
    struct qos_shared *s = zone->shared;
    struct qos_account *t = &s->account[id];
    struct htb_class terms;
    enum qos_status status = QOS_OK;
    uint64_t fits = 0;
    lock(zone);
    if (id < s->plan[s->use].config.classes && t->in[s->use] && t->terms[s->use].rate_per_s[0] != per_s) {
        terms = t->terms[s->use];
        terms.rate_per_s[0] = per_s;
        status = htb_change(&s->plan[s->use].tree, clock_ns(), id, &terms, &fits);
        if (status == QOS_EADMISSION || status == QOS_ERANGE) {
            terms.rate_per_s[0] = status == QOS_EADMISSION ? fits : 0;
            status = htb_change(&s->plan[s->use].tree, clock_ns(), id, &terms, NULL);
        }
        if (status == QOS_OK)
            t->terms[s->use] = terms;
        must(zone, status);
    }
    unlock(zone);
}

uint64_t qos_zone_request_bytes(struct qos_zone *zone, uint32_t id)
{
    const struct qos_count *c = &zone->shared->count[(size_t)id * COUNTS];
    uint64_t requests_of = 0, bytes = 0;
    uint32_t i;
    for (i = 0; i < COUNTS; i++) {
        requests_of += __atomic_load_n(&c[i].requests, __ATOMIC_RELAXED);
        bytes += __atomic_load_n(&c[i].bytes[0], __ATOMIC_RELAXED) + __atomic_load_n(&c[i].bytes[1], __ATOMIC_RELAXED);
    }
    return requests_of ? bytes / requests_of : zone->chunk;
}

uint32_t qos_zone_accounts(struct qos_zone *zone)
{
    return zone->shared->plan[zone->shared->use].config.classes;
}

bool qos_zone_report(struct qos_zone *zone, uint32_t id, struct qos_report *report)
{
    struct qos_shared *s = zone->shared;
    struct qos_account *t = &report->account;
    struct qos_stats stats;
    const struct qos_count *c;
    uint32_t i;
    bool is;
    ngx_memzero(report, sizeof *report);
    lock(zone);
    is = id < s->plan[s->use].config.classes && s->account[id].in[s->use];
    if (is) {
        *t = s->account[id];
        report->terms = t->terms[s->use];
        if (htb_stats(&s->plan[s->use].tree, id, &stats) == QOS_OK)
            t->borrowed += stats.borrowed;
        if (id >= s->moved && t->in[1 - s->use] && htb_stats(&s->plan[1 - s->use].tree, id, &stats) == QOS_OK)
            t->borrowed += stats.borrowed;
        for (i = 0, c = &s->count[(size_t)id * COUNTS]; i < COUNTS; i++, c++) {
            report->count.requests += __atomic_load_n(&c->requests, __ATOMIC_RELAXED);
            report->count.takes += __atomic_load_n(&c->takes, __ATOMIC_RELAXED);
            report->count.bytes[0] += __atomic_load_n(&c->bytes[0], __ATOMIC_RELAXED);
            report->count.bytes[1] += __atomic_load_n(&c->bytes[1], __ATOMIC_RELAXED);
        }
        t->wait[0] = report->count.takes;
        for (i = 1; i < QOS_WAIT_STEPS; i++)
            t->wait[0] = qos_sat_sub(t->wait[0], t->wait[i]);
        if (t->waiting != 0)
            t->waited_ns += clock_ns() - t->waits_since_ns;
    }
    unlock(zone);
    return is;
}

void qos_zone_totals(struct qos_zone *zone, struct qos_totals *totals)
{
    struct qos_shared *s = zone->shared;
    lock(zone);
    must(zone, htb_info(&s->plan[s->use].tree, &totals->state));
    totals->state.queued = s->waiting;
    totals->rebuilt = s->rebuilt;
    totals->abandoned = s->abandoned;
    totals->at_ns = clock_ns();
    unlock(zone);
}
