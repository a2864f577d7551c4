// A server's background work: pulls redirected bytes home when both sides are idle (Section V-C), tells other servers
// to drop pieces that no byte refers to, finds pieces that a crash left behind, checks.
//
// None of these excludes another: the table's stamps make that safe. A piece is dropped by its stamp, and no stamp is
// given twice.
#include "store.h"
#include "../common/twochoice_check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COOKIE_PULL = 1, COOKIE_DROP, COOKIE_LOAD, COOKIE_SWEEP, COOKIE_CHECK };
#define PULL_BYTES_PER_S (UINT64_C(64) << 20) /* of a maintainer, at most */
#define COOKIE(kind, index) ((uint64_t)(kind) << 32 | (uint64_t)(index))

static void call(struct store *s, uint64_t cookie, uint64_t op, const struct twochoice_piece *p, uint32_t server,
                 uint32_t buffer)
{
    struct note n;
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    n.op = op;
    n.object = p->object;
    n.offset = p->offset;
    n.len = p->end - p->offset;
    n.stamp = p->version;
    n.server = server;
    store_call(s, cookie, &n, buffer);
}

void moves_init(struct store *s, bool all)
{
    struct twochoice_maintainer_config config = {0};
    config.servers = (uint32_t)s->s->servers;
    config.rate_bytes_per_s = all ? QOS_UNLIMITED : PULL_BYTES_PER_S;
    config.piece_bytes = s->s->part_bytes;
    config.idle_load = all ? UINT64_MAX : s->s->idle_load;
    config.idle_ns = all ? 1000000 : s->s->idle_ns;
    if (!s->maintainer_memory)
        s->maintainer_memory = tool_alloc_aligned(twochoice_maintainer_memsize(&config) + 64, 64);
    if (twochoice_maintainer_init(&s->maintainer, s->maintainer_memory, twochoice_maintainer_memsize(&config),
                                  &config) != QOS_OK)
        tool_die(TOOL_FAILED, "server %u: --part is out of range", s->s->server);
    s->maintain_at_ns = 0;
    s->paused = !all && !s->s->pull;
    if (!s->old)
        moves_more_room(s);
}

bool moves_quiet(const struct store *s)
{
    uint32_t i;
    for (i = 0; i < STORE_BUFFERS; i++)
        if (s->pull[i].used)
            return false;
    return !s->asking && s->flying == 0;
}

/* ---- drops ----------------------------------------------------------------------------------------------- */

void moves_more_room(struct store *s)
{
    s->olds = s->olds ? 2 * s->olds : 16;
    s->old = tool_grow(s->old, s->olds * sizeof *s->old);
}

void moves_stale(struct store *s, size_t n)
{
    const struct twochoice_piece *p = s->old;
    struct twochoice_table_state c;
    size_t i;
    (void)twochoice_table_info(&s->table, &c);
    for (i = 0; i < n && s->drops < DROPS_MAX; i++) { /* a sweep finds the pieces for which there is no room here */
        struct stale *d = &s->drop[(s->drop_first + s->drops) % DROPS_MAX];
        uint64_t from = qos_sat_sub(p[i].offset, s->s->part_bytes), to = p[i].end + s->s->part_bytes;
        if (twochoice_table_refers(&s->table, p[i].object, p[i].version, from, to - from))
            continue;
        d->piece = p[i];
        d->changes = c.changes;
        s->drops++;
    }
}

static void send_drops(struct store *s)
{
    struct twochoice_table_state c;
    (void)twochoice_table_info(&s->table, &c);
    for (; s->flying < DROPS_FLYING && s->drops && s->drop[s->drop_first].changes <= c.durable_changes; s->drops--) {
        const struct twochoice_piece *p = &s->drop[s->drop_first].piece;
        s->drop_first = (s->drop_first + 1) % DROPS_MAX;
        s->flying++;
        call(s, COOKIE(COOKIE_DROP, 0), OP_DROP, p, p->target, NO_BUFFER);
    }
}

/* Removes a piece; a read under way keeps its open file. */
static void forget_here(struct store *s, uint64_t object, uint64_t stamp)
{
    struct object_file *file = stamp ? files_get(&s->files, object, stamp, false) : NULL;
    struct stat st;
    if (!file || file->users != 0)
        return; /* not here, or in use: a later sweep removes it */
    if (fstat(file->fd, &st) == 0)
        s->word[COUNT_DROPPED_BYTES] += (uint64_t)st.st_blocks * 512;
    files_unlink(&s->files, file);
}

void moves_drop_here(struct store *s, struct task *t)
{
    forget_here(s, t->job.n.object, t->job.n.stamp);
    store_answer(s, t, ST_OK);
}

void moves_has(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    struct object_file *file = n->stamp ? files_get(&s->files, n->object, n->stamp, false) : NULL;
    off_t hole = file ? lseek(file->fd, (off_t)n->offset, SEEK_HOLE) : -1;
    store_answer(s, t, hole >= (off_t)(n->offset + n->len) ? ST_OK : ST_NO);
}

/* ---- pulls ----------------------------------------------------------------------------------------------- */

static void end_pull(struct store *s, struct pull *p)
{
    p->used = p->here = false;
    s->changed = true; /* a write at home may have waited for the pull */
    s->maintain_at_ns = 0;
}

static void cancel_pull(struct store *s, struct pull *p)
{
    struct twochoice_piece none;
    size_t n;
    if (twochoice_table_pull_cancel(&s->table, p->id) == QOS_EBUSY) /* its writes have ended */
        (void)!twochoice_table_pull_finish(&s->table, p->id, &none, 1, &n);
    end_pull(s, p);
}

static void finish_pull(struct store *s, struct pull *p)
{
    struct task *t;
    enum qos_status st = QOS_EIO;
    size_t n = 0;
    if (p->status == ST_OK)
        while ((st = twochoice_table_pull_finish(&s->table, p->id, s->old, s->olds, &n)) == QOS_EAGAIN)
            moves_more_room(s);
    moves_stale(s, n);
    if (st == QOS_EFULL)
        store_compact(s);
    if (st != QOS_OK) {
        cancel_pull(s, p);
        s->maintain_at_ns = tool_now_ns() + s->s->idle_ns;
        return;
    }
    t = tool_alloc(sizeof *t);
    t->pull = p;
    task_add(&s->to_commit, t);
}

static void piece_written(struct store *s, struct task *t, uint64_t status)
{
    struct pull *p = t->pull;
    if (status != ST_OK)
        p->status = status;
    free(t);
    if (--p->writes == 0)
        finish_pull(s, p);
}

/* The data is here: writes those bytes at home whose redirect is unchanged. */
static void write_pull(struct store *s, struct pull *p)
{
    struct twochoice_piece part[PULL_PIECES];
    uint8_t *data = s->buffers + (SERVER_BUFFERS + (uint64_t)(p - s->pull)) * s->s->part_bytes;
    size_t n = 0, i;
    enum qos_status st = twochoice_table_pull_ready(&s->table, p->id, part, PULL_PIECES, &n);
    p->here = st == QOS_EAGAIN;
    if (st == QOS_EAGAIN) /* a write at home is under way there; moves_step tries again */
        return;
    if (st != QOS_OK) {
        cancel_pull(s, p);
        return;
    }
    p->status = ST_OK;
    p->writes = (uint32_t)n + 1; /* counts one more until all are submitted, as a write may end at once */
    for (i = 0; i < n; i++) {
        struct task *t = tool_alloc(sizeof *t);
        t->pull = p;
        t->then = piece_written;
        t->offset = part[i].offset;
        t->len = part[i].end - part[i].offset;
        t->data = data + (part[i].offset - p->piece.offset);
        s->word[COUNT_PULLED_BYTES] += t->len;
        store_data(s, t, p->piece.object, 0, true);
    }
    if (--p->writes == 0)
        finish_pull(s, p);
}

void moves_pull_committed(struct store *s, struct task *t, bool durable)
{
    (void)durable; /* the pieces that it replaced wait in a list of their own */
    end_pull(s, t->pull);
    free(t);
}

static struct pull *free_pull(struct store *s)
{
    uint32_t i;
    for (i = 0; i < STORE_BUFFERS; i++)
        if (!s->pull[i].used)
            return &s->pull[i];
    return NULL;
}

static void maintain(struct store *s, uint64_t now_ns)
{
    struct twochoice_order order;
    struct pull *p;
    while (!s->asking && (p = free_pull(s)) != NULL) {
        if (twochoice_maintainer_step(&s->maintainer, now_ns, &s->table, qos_atomic_load_relaxed(&s->shared->load),
                                      &order) != QOS_OK)
            order.todo = TWOCHOICE_WAIT;
        if (order.todo == TWOCHOICE_WAIT) {
            s->maintain_at_ns = qos_min(qos_max(order.next_ns, now_ns + 1000000), now_ns + s->s->idle_ns);
            return;
        }
        if (order.todo == TWOCHOICE_ASK_LOAD) {
            s->asking = true;
            call(s, COOKIE(COOKIE_LOAD, order.piece.target), OP_LOAD, &order.piece, order.piece.target, NO_BUFFER);
            break;
        }
        p->used = true;
        p->id = order.pull;
        p->piece = order.piece;
        call(s, COOKIE(COOKIE_PULL, p - s->pull), OP_READ, &p->piece, p->piece.target,
             (uint32_t)(SERVER_BUFFERS + (uint64_t)(p - s->pull)));
    }
    s->maintain_at_ns = now_ns + s->s->idle_ns; /* an answer comes earlier */
}

void moves_step(struct store *s, uint64_t now_ns)
{
    uint32_t i;
    for (i = 0; i < STORE_BUFFERS; i++)
        if (s->pull[i].used && s->pull[i].here)
            write_pull(s, &s->pull[i]);
    if (!s->resting)
        send_drops(s);
    if (s->paused || s->resting || s->check.task)
        s->maintain_at_ns = QOS_NEVER;
    else if (now_ns >= s->maintain_at_ns)
        maintain(s, now_ns);
}

static void pull_arrived(struct store *s, struct pull *p, uint64_t status)
{
    static uint32_t told;
    struct twochoice_piece now;
    bool still;
    if (status == ST_OK) {
        write_pull(s, p);
        return;
    }
    twochoice_table_find(&s->table, p->piece.object, p->piece.offset, &now);
    /* A piece that was written again meanwhile is not an error. */
    still = now.version == p->piece.version && now.end >= p->piece.end;
    if (status == ST_GONE && still && told++ < 8)
        tool_warn("server %u: server %u does not have bytes %" PRIu64 "-%" PRIu64 " of object %016" PRIx64
                  ", which it should keep for us",
                  s->s->server, p->piece.target, p->piece.offset, p->piece.end, p->piece.object);
    if (status != ST_GONE || still) /* pieces of other servers come home meanwhile */
        twochoice_maintainer_remote_load(&s->maintainer, tool_now_ns(), p->piece.target, UINT64_MAX);
    cancel_pull(s, p);
}

/* ---- the sweep: after a start, a server asks the homes about its pieces, and drops those that are not needed -- */

static void end_sweep(struct store *s)
{
    struct sweep *w = &s->sweep;
    free(w->name);
    w->name = NULL;
    store_answer(s, w->task, ST_OK);
    w->task = NULL;
}

static void sweep_on(struct store *s)
{
    struct sweep *w = &s->sweep;
    struct twochoice_piece p;
    memset(&p, 0, sizeof p);
    for (; w->index < w->names; w->index++) {
        p.object = w->name[2 * w->index];
        p.version = w->name[2 * w->index + 1];
        if (OBJECT_HOME(p.object) < s->s->servers) {
            call(s, COOKIE(COOKIE_SWEEP, 0), OP_REFERS, &p, OBJECT_HOME(p.object), NO_BUFFER);
            return;
        }
    }
    end_sweep(s);
}

static void sweep_answered(struct store *s, const struct note *n)
{
    struct sweep *w = &s->sweep;
    if (n->status == ST_NO) /* otherwise it is needed, or the home did not answer */
        forget_here(s, w->name[2 * w->index], w->name[2 * w->index + 1]);
    w->index++;
    sweep_on(s);
}

void moves_sweep(struct store *s, struct task *t)
{
    struct sweep *w = &s->sweep;
    if (w->task) {
        store_answer(s, t, ST_NO);
        return;
    }
    w->task = t;
    w->names = files_away(&s->files, &w->name);
    w->index = 0;
    sweep_on(s);
}

/* ---- the check ------------------------------------------------------------------------------------------- */

static int has_data(void *ctx, const struct twochoice_piece *piece)
{
    const struct check *c = &((struct store *)ctx)->check;
    size_t i;
    for (i = 0; i < c->pieces; i++)
        if (c->piece[i].object == piece->object && c->piece[i].offset <= piece->offset && piece->end <= c->piece[i].end)
            return c->has[i];
    return -1;
}

static void report(void *ctx, enum check_finding what, const struct twochoice_piece *table,
                   const struct twochoice_piece *log)
{
    static uint32_t told;
    static const char *const text[] = {"",
                                       "the tree breaks its own rules",
                                       "the log is damaged",
                                       "table and log name different places",
                                       "the bytes are not there",
                                       "no server could tell whether the bytes are there"};
    const struct store *s = ctx;
    if (told++ >= 50)
        return;
    tool_warn("server %u: %s: object %016" PRIx64 " %" PRIu64 "-%" PRIu64 ", table: %d, log: %d (-1: here)",
              s->s->server, text[what], table->object, table->offset, table->end, (int)table->target, (int)log->target);
}

static void end_check(struct store *s)
{
    struct check *c = &s->check;
    const struct check_calls calls = {.ctx = s, .has_data = has_data, .report = report};
    struct twochoice_table log;
    void *memory = tool_alloc_aligned(twochoice_table_memsize(&s->table_config), 64);
    c->task->job.n.len = check_redirects(&calls, &s->table, &s->table_config, &log, memory);
    free(memory);
    free(c->piece);
    free(c->has);
    store_answer(s, c->task, ST_OK);
    memset(c, 0, sizeof *c);
    s->maintain_at_ns = 0;
}

static void check_on(struct store *s)
{
    struct check *c = &s->check;
    if (c->index == c->pieces)
        end_check(s);
    else
        call(s, COOKIE(COOKIE_CHECK, 0), OP_HAS, &c->piece[c->index], c->piece[c->index].target, NO_BUFFER);
}

void moves_check(struct store *s, struct task *t)
{
    struct check *c = &s->check;
    struct twochoice_piece p;
    size_t room = 64;
    if (c->task) {
        store_answer(s, t, ST_NO);
        return;
    }
    memset(&p, 0, sizeof p);
    c->task = t;
    c->piece = tool_alloc(room * sizeof *c->piece);
    while (twochoice_table_next(&s->table, p.object, p.end, &p)) {
        if (c->pieces == room) {
            room *= 2;
            c->piece = tool_grow(c->piece, room * sizeof *c->piece);
        }
        c->piece[c->pieces++] = p;
    }
    c->has = tool_alloc((c->pieces + 1) * sizeof *c->has);
    check_on(s);
}

/* ---- answers of other servers -------------------------------------------------------------------------------- */

void moves_answered(struct store *s, const struct job *j)
{
    uint64_t index = j->cookie & UINT32_MAX;
    switch (j->cookie >> 32) {
    case COOKIE_PULL: pull_arrived(s, &s->pull[index], j->n.status); break;
    case COOKIE_DROP: s->flying--; break;
    case COOKIE_LOAD:
        twochoice_maintainer_remote_load(&s->maintainer, tool_now_ns(), (uint32_t)index,
                                         j->n.status == ST_OK ? j->n.len : UINT64_MAX);
        s->asking = false;
        s->maintain_at_ns = 0;
        break;
    case COOKIE_SWEEP: sweep_answered(s, &j->n); break;
    default:
        s->check.has[s->check.index++] = j->n.status == ST_OK ? 1 : j->n.status == ST_NO ? 0 : -1;
        check_on(s);
        break;
    }
}
