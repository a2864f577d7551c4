/* ngx_http_qos_zone.c - one tree of htb.h in a shared memory zone, used by all workers.
 *
 * The master maps the zone before it forks, so its pointers mean the same in every worker. The slab pool's mutex guards
 * all of it; the master unlocks it when its holder dies. `changing` shows that a change was cut short like this: the
 * next holder makes the tree anew (with empty buckets, so no tenant gains) and queues all waiting requests again.
 *
 * A request that has to wait is queued in the tree (htb_submit), so reservations, turns and weights hold over all
 * workers. Each worker with waiting requests sets a timer for the time that htb_dispatch_next_ns gives. The worker
 * whose timer comes first dispatches for all. It puts another worker's requests into that worker's list; that worker's
 * own timer is for the same time.
 *
 * While no request waits, small takes need no lock: a worker takes tokens ahead for a tenant. All workers together
 * hold at most the tokens of a millisecond at the tenant's limit; for all tenants together, of a millisecond at the
 * zone's rate. So that much more may go after a pause.
 */
#include "ngx_http_qos.h"

#define NOBODY QOS_NONE
#define COUNTS 8 /* counters of each tenant; a worker uses those of its process slot modulo this */

/* One wait for tokens. `owner` and `granted` show what a killed worker left of it. */
struct qos_wait {
    struct htb_request request; /* first member */
    struct qos_side *side;      /* in the memory of its owner; NULL: the request has ended meanwhile */
    uint64_t since_ns;
    uint32_t owner; /* process slot + 1; 0: free */
    uint32_t next;  /* next free place, or next one granted to the same owner */
    bool granted;
    enum qos_op op;
};

struct qos_shared {
    struct htb tree;
    bool changing;
    uint64_t rebuilt, abandoned; /* trees made anew; waits left by dead workers */
    uint64_t waiting;            /* requests of all tenants */
    uint32_t waits, used, free;  /* number of places; number of them ever used; first free one of these */
    pid_t worker[NGX_MAX_PROCESSES];
    uint32_t granted[NGX_MAX_PROCESSES]; /* for each process slot */
    struct htb_config config;
    struct qos_tenant *tenant; /* config.classes */
    struct qos_count *count;   /* COUNTS of each tenant */
    void *memory;              /* of the tree */
    struct qos_wait *wait;
};

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Counts one waiting request more, or less. */
static void count_wait(struct qos_shared *s, uint32_t id, bool more, uint64_t now_ns)
{
    struct qos_tenant *t = &s->tenant[id];
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
static void note_wait(struct qos_tenant *t, uint64_t waited_ns)
{
    const uint64_t us = waited_ns / 1000;
    t->wait[us ? qos_min(64 - (uint64_t)__builtin_clzll(us), QOS_WAIT_STEPS - 1) : 1]++;
}

/* ---- the tree, made and changed */

/* htb.h refuses nothing here: the same lines were tried when they were read. */
static void must(struct qos_zone *zone, enum qos_status status)
{
    if (status != QOS_OK)
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0, "qos zone \"%V\": %s", &zone->shm_zone->shm.name,
                      qos_strerror(status));
}

static void make_tree(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    const uint64_t now_ns = clock_ns();
    uint32_t id;
    s->config.start_ns = now_ns;
    s->config.best_effort = s->tenant[0].terms;
    must(zone, htb_init(&s->tree, s->memory, htb_memsize(&s->config), &s->config));
    for (id = 1; id < s->config.classes; id++)
        if (s->tenant[id].key_len != 0)
            must(zone, htb_reserve(&s->tree, now_ns, id, &s->tenant[id].terms, NULL));
}

static void rebuild(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    const uint64_t now_ns = clock_ns();
    uint32_t i;
    make_tree(zone);
    for (i = 0; i < s->config.classes; i++)
        s->tenant[i].waiting = 0;
    s->waiting = 0;
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
        } else {
            w->request.state = HTB_IDLE;
            must(zone, htb_submit(&s->tree, now_ns, &w->request));
            count_wait(s, w->request.class_id, true, now_ns);
        }
    }
}

/* A worker dies between two instructions, and the next holder of its lock sees all its earlier stores. So only the
 * compiler must not move `changing`. */
static void lock(struct qos_zone *zone)
{
    ngx_shmtx_lock(&zone->pool->mutex);
    if (zone->shared->changing)
        rebuild(zone);
    zone->shared->changing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void unlock(struct qos_zone *zone)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    zone->shared->changing = false;
    ngx_shmtx_unlock(&zone->pool->mutex);
}

static uint32_t find(struct qos_shared *s, const u_char *key, size_t len)
{
    uint32_t id;
    for (id = 1; id < s->config.classes; id++)
        if (s->tenant[id].key_len == len && ngx_memcmp(s->tenant[id].key, key, len) == 0)
            return id;
    return 0;
}

static void set_tenant(struct qos_shared *s, const struct qos_line *line)
{
    struct qos_tenant *t = &s->tenant[line->id];
    ngx_memzero(&s->count[(size_t)line->id * COUNTS], COUNTS * sizeof *s->count);
    t->rejected = t->waited_ns = 0;
    ngx_memzero(t->wait, sizeof t->wait);
    t->terms = line->terms;
    ngx_memcpy(t->key, line->node.str.data, line->node.str.len);
    t->key_len = (uint32_t)line->node.str.len;
}

/* A reload: first the changes that free rate, then those that need it. Tenants that stay keep their buckets and debts.
   */
static void change_tree(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    struct qos_line *line = zone->lines.elts;
    const uint64_t now_ns = clock_ns();
    struct htb_class less;
    ngx_uint_t i;
    uint32_t id;
    for (i = 0; i < zone->lines.nelts; i++)
        line[i].id = find(s, line[i].node.str.data, line[i].node.str.len);
    for (id = 0; id < s->config.classes; id++) {
        const struct htb_class *to = id == 0 ? &zone->others : NULL;
        for (i = 0; i < zone->lines.nelts && !to; i++)
            to = line[i].id == id ? &line[i].terms : NULL;
        if (to) {
            less = *to;
            less.rate_per_s[0] = qos_min(to->rate_per_s[0], s->tenant[id].terms.rate_per_s[0]);
            must(zone, htb_change(&s->tree, now_ns, id, &less, NULL));
            s->tenant[id].terms = *to;
        } else if (s->tenant[id].key_len != 0) {
            must(zone, htb_release(&s->tree, now_ns, id));
            s->tenant[id].key_len = 0; /* its waiting requests are best effort now, and are still counted here */
        }
    }
    must(zone, htb_change_root(&s->tree, now_ns, zone->config.rate_per_s));
    s->config.rate_per_s[0] = zone->config.rate_per_s[0];
    must(zone, htb_change(&s->tree, now_ns, 0, &zone->others, NULL));
    for (i = 0; i < zone->lines.nelts; i++) {
        if (line[i].id != 0) {
            must(zone, htb_change(&s->tree, now_ns, line[i].id, &line[i].terms, NULL));
            continue;
        }
        for (id = 1; s->tenant[id].key_len != 0; id++) /* there is a place: no more lines than tenants= */
            ;
        must(zone, htb_reserve(&s->tree, now_ns, id, &line[i].terms, NULL));
        line[i].id = id;
        set_tenant(s, &line[i]);
    }
}

/* ---- the zone */

static size_t fixed_size(const struct htb_config *config)
{
    return sizeof(struct qos_shared) +
           config->classes * (sizeof(struct qos_tenant) + COUNTS * sizeof(struct qos_count)) + htb_memsize(config) +
           (size_t)5 * QOS_CACHE_LINE;
}

size_t qos_zone_least_size(const struct htb_config *config)
{
    return ngx_align(fixed_size(config) + 1024 * sizeof(struct qos_wait) + 16 * ngx_pagesize, ngx_pagesize);
}

bool qos_zone_same_structure(const struct qos_zone *a, const struct qos_zone *b)
{
    return a->config.classes == b->config.classes && a->config.burst_ns == b->config.burst_ns && a->chunk == b->chunk;
}

static void *part(u_char **at, size_t size)
{
    u_char *p = ngx_align_ptr(*at, QOS_CACHE_LINE);
    *at = p + size;
    return p;
}

ngx_int_t qos_zone_init(ngx_shm_zone_t *shm_zone, void *old)
{
    struct qos_zone *zone = shm_zone->data, *before = old;
    struct qos_line *line = zone->lines.elts;
    ngx_uint_t i;
    zone->pool = (ngx_slab_pool_t *)(void *)shm_zone->shm.addr;
    if (before) { /* a reload */
        zone->shared = before->shared;
        lock(zone);
        change_tree(zone);
        unlock(zone);
    } else {
        size_t room = zone->pool->pfree * ngx_pagesize;
        u_char *at = ngx_slab_alloc(zone->pool, room), *end = at ? at + room : NULL;
        struct qos_shared *s;
        if (!at)
            return NGX_ERROR;
        zone->shared = s = part(&at, sizeof *s);
        ngx_memzero(s, sizeof *s);
        s->config = zone->config;
        s->tenant = part(&at, s->config.classes * sizeof *s->tenant);
        ngx_memzero(s->tenant, s->config.classes * sizeof *s->tenant);
        s->count = part(&at, s->config.classes * COUNTS * sizeof *s->count);
        ngx_memzero(s->count, s->config.classes * COUNTS * sizeof *s->count);
        s->memory = part(&at, htb_memsize(&s->config));
        s->wait = part(&at, 0);
        s->waits = (uint32_t)((size_t)(end - at) / sizeof *s->wait);
        s->free = NOBODY;
        for (i = 0; i < NGX_MAX_PROCESSES; i++)
            s->granted[i] = NOBODY;
        s->tenant[0].terms = zone->others;
        for (i = 0; i < zone->lines.nelts; i++) {
            line[i].id = (uint32_t)i + 1;
            set_tenant(s, &line[i]);
        }
        make_tree(zone);
    }
    ngx_rbtree_init(&zone->ids, &zone->sentinel, ngx_str_rbtree_insert_value);
    for (i = 0; i < zone->lines.nelts; i++) {
        line[i].node.node.key = ngx_crc32_long(line[i].node.str.data, line[i].node.str.len);
        ngx_rbtree_insert(&zone->ids, &line[i].node.node);
    }
    return NGX_OK;
}

uint32_t qos_zone_id(struct qos_zone *zone, ngx_str_t *key)
{
    ngx_str_node_t *node = ngx_str_rbtree_lookup(&zone->ids, key, ngx_crc32_long(key->data, key->len));
    return node ? ((struct qos_line *)(void *)node)->id : HTB_BEST_EFFORT;
}

/* ---- waiting; shared waits are changed under the lock */

static void cancel(struct qos_zone *zone, struct qos_wait *w)
{
    const uint64_t now_ns = clock_ns();
    must(zone, htb_cancel(&zone->shared->tree, now_ns, &w->request));
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

/* The next of this worker's sides that was granted its tokens, or NULL. */
static struct qos_side *next_granted(struct qos_zone *zone)
{
    struct qos_shared *s = zone->shared;
    uint32_t *list = &s->granted[ngx_process_slot];
    struct qos_side *side = NULL;
    while (!side && *list != NOBODY) {
        struct qos_wait *w = &s->wait[*list];
        *list = w->next;
        side = w->side;
        if (side) {
            side->wait = NULL;
            side->credit += (size_t)w->request.tokens[0];
            zone->waiting--;
        }
        free_wait(s, w);
    }
    return side;
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
    while ((r = htb_dispatch(&s->tree, now_ns)) != NULL) {
        struct qos_wait *w = (struct qos_wait *)(void *)r;
        w->granted = true;
        w->next = s->granted[w->owner - 1];
        s->granted[w->owner - 1] = (uint32_t)(w - s->wait);
        count_wait(s, r->class_id, false, now_ns);
        count_take(count_of(zone, r->class_id), w->op, r->tokens[0]);
        note_wait(&s->tenant[r->class_id], qos_sat_sub(now_ns, w->since_ns));
    }
    next_ns = htb_dispatch_next_ns(&s->tree, now_ns);
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
    const uint64_t workers_ms = 1000 * zone->workers, limit = s->tenant[id].terms.limit_per_s[0],
                   all = s->config.rate_per_s[0] / workers_ms, most = limit ? limit / workers_ms : all;
    uint64_t n = qos_min(most, QOS_STEP_CHUNKS * zone->chunk);
    if (tokens > n / 4 || zone->ahead_all + n > all)
        n = tokens;
    if (s->waiting == 0 && n <= most && htb_take(&s->tree, now_ns, id, n) == QOS_OK) {
        zone->ahead[id] += n - tokens;
        zone->ahead_all += n - tokens;
        return tokens;
    }
    tokens = ngx_min(tokens, zone->chunk);
    return htb_take(&s->tree, now_ns, id, tokens) == QOS_OK ? tokens : 0;
}

/* A place for a wait, or NULL. A tenant may have as many places as it leaves free: a tenant that floods gets half of
 * them, two get a third each, and there is always one for a tenant that has none. */
static struct qos_wait *new_wait(struct qos_shared *s, uint32_t id)
{
    struct qos_wait *w = NULL;
    if (s->tenant[id].waiting + s->waiting >= s->waits)
        return NULL;
    if (s->free != NOBODY) {
        w = &s->wait[s->free];
        s->free = w->next;
    } else if (s->used < s->waits) {
        w = &s->wait[s->used];
        w->owner = 0;
        s->used++;
    }
    return w;
}

static ngx_int_t credit(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens, struct qos_side *side)
{
    count_take(count_of(zone, id), op, tokens);
    side->credit += tokens;
    return NGX_OK;
}

ngx_int_t qos_zone_take(struct qos_zone *zone, uint32_t id, enum qos_op op, size_t tokens, struct qos_side *side)
{
    struct qos_shared *s = zone->shared;
    struct qos_wait *w;
    uint64_t next_ns, now_ns;
    size_t taken;
    if (zone->ahead[id] >= tokens) {
        zone->ahead[id] -= tokens;
        zone->ahead_all -= tokens;
        return credit(zone, id, op, tokens, side);
    }
    now_ns = clock_ns(); /* before the lock, to hold the lock for less time */
    lock(zone);
    taken = take_now(zone, now_ns, id, tokens);
    if (taken != 0) {
        unlock(zone);
        return credit(zone, id, op, taken, side);
    }
    w = new_wait(s, id);
    if (!w) {
        unlock(zone);
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "qos zone \"%V\": too many requests of one tenant wait (places: %uD): give it a larger size",
                      &zone->shm_zone->shm.name, s->waits);
        return NGX_ERROR;
    }
    ngx_memzero(w, sizeof *w);
    w->request.class_id = id;
    w->request.gate = true;
    w->request.tokens[0] = ngx_min(tokens, zone->chunk);
    w->side = side;
    w->since_ns = now_ns;
    w->op = op;
    /* everything that rebuild reads is there */
    __atomic_store_n(&w->owner, (uint32_t)ngx_process_slot + 1, __ATOMIC_RELEASE);
    must(zone, htb_submit(&s->tree, now_ns, &w->request));
    count_wait(s, id, true, now_ns);
    next_ns = htb_dispatch_next_ns(&s->tree, now_ns);
    unlock(zone);
    side->wait = w;
    zone->waiting++;
    timer_at(zone, next_ns);
    return NGX_AGAIN;
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

/* The master starts a new worker when one has died. It may have the dead worker's process slot. */
void qos_zone_attach(struct qos_zone *zone, ngx_log_t *log)
{
    struct qos_shared *s = zone->shared;
    uint32_t slot;
    lock(zone);
    for (slot = 0; slot < NGX_MAX_PROCESSES; slot++)
        if (s->worker[slot] != 0 && (slot == (uint32_t)ngx_process_slot || kill(s->worker[slot], 0) == -1) &&
            (slot == (uint32_t)ngx_process_slot || ngx_errno == ESRCH)) {
            reap(zone, slot);
            s->worker[slot] = 0;
        }
    s->worker[ngx_process_slot] = ngx_pid;
    unlock(zone);
    ngx_memzero(&zone->timer, sizeof zone->timer);
    zone->timer.handler = on_timer;
    zone->timer.data = zone;
    zone->timer.log = log;
    zone->waiting = 0;
    zone->workers = (ngx_uint_t)qos_max(
        (uint64_t)((ngx_core_conf_t *)ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module))->worker_processes, 1);
}

/* ---- requests and reports */

uint64_t qos_zone_begin(struct qos_zone *zone, uint32_t id, bool reject)
{
    struct qos_tenant *t = &zone->shared->tenant[id];
    uint64_t now_ns, next_ns;
    count(&count_of(zone, id)->requests, 1); /* no lock: only takes need it */
    if (!reject)
        return 0;
    lock(zone);
    now_ns = clock_ns();
    next_ns = htb_next_ns(&zone->shared->tree, now_ns, id, zone->chunk);
    if (next_ns <= now_ns && t->waiting != 0)
        next_ns = now_ns + 1; /* other requests of the tenant wait already */
    next_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    t->rejected += next_ns != 0;
    unlock(zone);
    return next_ns;
}

bool qos_zone_report(struct qos_zone *zone, uint32_t id, struct qos_report *report)
{
    struct qos_shared *s = zone->shared;
    struct htb_class_state state;
    const struct qos_count *c;
    uint64_t now_ns;
    uint32_t i;
    bool is;
    ngx_memzero(report, sizeof *report);
    lock(zone);
    is = id < s->config.classes && htb_class_info(&s->tree, id, &state) == QOS_OK &&
         htb_stats(&s->tree, id, &report->stats) == QOS_OK;
    if (is) {
        report->tenant = s->tenant[id];
        for (i = 0, c = &s->count[(size_t)id * COUNTS]; i < COUNTS; i++, c++) {
            report->count.requests += __atomic_load_n(&c->requests, __ATOMIC_RELAXED);
            report->count.takes += __atomic_load_n(&c->takes, __ATOMIC_RELAXED);
            report->count.bytes[0] += __atomic_load_n(&c->bytes[0], __ATOMIC_RELAXED);
            report->count.bytes[1] += __atomic_load_n(&c->bytes[1], __ATOMIC_RELAXED);
        }
        report->tenant.wait[0] = report->count.takes;
        for (i = 1; i < QOS_WAIT_STEPS; i++)
            report->tenant.wait[0] = qos_sat_sub(report->tenant.wait[0], report->tenant.wait[i]);
        now_ns = clock_ns();
        if (report->tenant.waiting != 0)
            report->tenant.waited_ns += now_ns - report->tenant.waits_since_ns;
    }
    unlock(zone);
    return is;
}

void qos_zone_totals(struct qos_zone *zone, struct qos_totals *totals)
{
    lock(zone);
    must(zone, htb_info(&zone->shared->tree, &totals->state));
    totals->rebuilt = zone->shared->rebuilt;
    totals->abandoned = zone->shared->abandoned;
    totals->at_ns = clock_ns();
    unlock(zone);
}
