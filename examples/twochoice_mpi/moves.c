// What a server does of itself: pulls redirected bytes home when both sides are idle (Section V-C), tells others to
// drop what nobody refers to any more, sweeps up after a crash, checks.
//
// A drop can never meet a newer write of the same bytes at the same server: who redirects reserves first, at the home;
// the home sends no drop for what is reserved, and lets a reservation wait while a drop of its bytes is on its way.
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COOKIE_PULL = 1, COOKIE_DROP, COOKIE_LOAD, COOKIE_SWEEP, COOKIE_CHECK };
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
    n.server = server;
    store_call(s, cookie, &n, buffer);
}

void moves_init(struct store *s, bool all)
{
    struct twochoice_maintainer_config cfg = {0};
    cfg.rate_bytes_per_s = all ? QOS_UNLIMITED : s->s->pull_rate;
    cfg.piece_bytes = s->s->part_bytes;
    cfg.idle_load = all ? UINT64_MAX : s->s->idle_load;
    cfg.idle_ns = all ? 1000000 : s->s->idle_ns;
    if (twochoice_maintainer_init(&s->maintainer, tool_now_ns(), &cfg) != QOS_OK)
        tool_die(TOOL_FAILED, "server %u: --pull-rate or --part is out of range", s->s->server);
    s->maintain_at_ns = 0;
    s->paused = !all && !s->s->pull;
}

bool moves_quiet(const struct store *s)
{
    uint32_t i;
    for (i = 0; i < STORE_BUFFERS; i++)
        if (s->pull[i].used)
            return false;
    for (i = 0; i < DROPS_FLYING; i++)
        if (s->flying[i].end)
            return false;
    return !s->asking;
}

/* ---- drops ----------------------------------------------------------------------------------------------- */

void moves_stale(struct store *s, const struct twochoice_piece *p, uint32_t n)
{
    uint32_t i;
    for (i = 0; i < n && s->drops < DROPS_MAX; i++, s->drops++) /* what finds no place is left to a sweep */
        s->drop[(s->drop_first + s->drops) % DROPS_MAX] = p[i];
}

bool moves_dropping(const struct store *s, uint64_t object, uint64_t offset, uint64_t end, uint64_t server)
{
    uint32_t i;
    for (i = 0; i < DROPS_FLYING; i++) {
        const struct twochoice_piece *p = &s->flying[i];
        if (p->end && p->object == object && p->target == server && p->offset < end && offset < p->end)
            return true;
    }
    return false;
}

/* The next part of *p that the table does not map to its server, and nobody is about to: that may be dropped. */
static bool next_stale(const struct store *s, struct twochoice_piece *p, struct twochoice_piece *part)
{
    while (p->offset < p->end) {
        struct twochoice_piece now;
        twochoice_table_find(&s->table, p->object, p->offset, &now);
        *part = *p;
        part->end = qos_min(now.end, p->end);
        p->offset = part->end;
        if (now.target != p->target && !store_redirecting(s, p->object, part->offset, part->end, p->target))
            return true;
    }
    return false;
}

/* Only while the log is durable up to what the table says. */
static void send_drops(struct store *s)
{
    uint32_t i;
    for (i = 0; i < DROPS_FLYING && s->drops && !s->to_commit.first; i++) {
        struct twochoice_piece *p = &s->drop[s->drop_first];
        if (s->flying[i].end)
            continue;
        if (next_stale(s, p, &s->flying[i])) {
            call(s, COOKIE(COOKIE_DROP, i), OP_DROP, &s->flying[i], s->flying[i].target, NO_BUFFER);
        } else {
            s->flying[i].end = 0;
            s->drop_first = (s->drop_first + 1) % DROPS_MAX;
            s->drops--;
        }
    }
}

static bool is_held(const struct twochoice_piece *p)
{
    return p->target != TWOCHOICE_LOCAL;
}

bool moves_held(const struct store *s, uint64_t object, uint64_t offset, uint64_t len)
{
    struct twochoice_piece p;
    uint64_t at;
    for (at = offset; at < offset + len; at = p.end) {
        twochoice_table_find(&s->held, object, at, &p);
        if (!is_held(&p))
            return false;
    }
    return true;
}

/* Bytes of an object that nobody asks for any more: the space goes back. */
static void forget_here(struct store *s, uint64_t object, uint64_t offset, uint64_t end)
{
    const struct object_file *file = files_get(&s->files, object, true, false);
    s->drops_done++;
    if (twochoice_table_local(&s->held, object, offset, end - offset) != QOS_OK || !file)
        return; /* a table too full to be split keeps the bytes: a sweep finds them */
    fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)(end - offset));
    s->word[COUNT_DROPPED_BYTES] += end - offset;
}

/* A file that keeps nothing goes, unless something is just being written to it. */
static void unlink_if_empty(struct store *s, uint64_t object)
{
    struct object_file *file = files_get(&s->files, object, true, false);
    struct twochoice_piece p;
    if (file && file->users == 0 && (!twochoice_table_next(&s->held, object, 0, &p) || p.object != object))
        files_unlink(&s->files, file);
}

void moves_drop_here(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    forget_here(s, n->object, n->offset, n->offset + n->len);
    unlink_if_empty(s, n->object);
    store_answer(s, t, ST_OK);
}

void moves_has(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    struct object_file *file = files_get(&s->files, n->object, true, false);
    off_t hole = file ? lseek(file->fd, (off_t)n->offset, SEEK_HOLE) : -1;
    bool has = moves_held(s, n->object, n->offset, n->len) && hole >= (off_t)(n->offset + n->len);
    store_answer(s, t, has ? ST_OK : ST_NO);
}

/* ---- pulls ----------------------------------------------------------------------------------------------- */

static void end_pull(struct store *s, struct pull *p)
{
    p->used = p->here = false;
    s->changed = true; /* a write at home may have waited for it */
    s->maintain_at_ns = 0;
}

static void cancel_pull(struct store *s, struct pull *p)
{
    twochoice_table_pull_cancel(&s->table, p->id);
    end_pull(s, p);
}

static void finish_pull(struct store *s, struct pull *p)
{
    struct task *t;
    enum qos_status st = p->status == ST_OK ? twochoice_table_pull_finish(&s->table, p->id) : QOS_EIO;
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

/* The data is here: writes at home what is still to be pulled. */
static void write_pull(struct store *s, struct pull *p)
{
    struct twochoice_piece part[PULL_PIECES];
    uint8_t *data = s->buffers + (s->s->buffers + (uint64_t)(p - s->pull)) * s->s->part_bytes;
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
    p->writes = (uint32_t)n + 1; /* one for ourselves, as a write may end at once */
    for (i = 0; i < n; i++) {
        struct task *t = tool_alloc(sizeof *t);
        t->pull = p;
        t->then = piece_written;
        t->offset = part[i].offset;
        t->len = part[i].end - part[i].offset;
        t->data = data + (part[i].offset - p->piece.offset);
        s->word[COUNT_PULLED_BYTES] += t->len;
        store_data(s, t, p->piece.object, false, true);
    }
    if (--p->writes == 0)
        finish_pull(s, p);
}

void moves_pull_committed(struct store *s, struct task *t, bool durable)
{
    if (durable)
        moves_stale(s, &t->pull->piece, 1);
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
             (uint32_t)(s->s->buffers + (uint64_t)(p - s->pull)));
    }
    s->maintain_at_ns = now_ns + s->s->idle_ns; /* an answer wakes us before */
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
    if (status == ST_OK) {
        write_pull(s, p);
        return;
    }
    twochoice_table_find(&s->table, p->piece.object, p->piece.offset, &now);
    /* Not because some of it was written anew meanwhile, which is nobody's fault. */
    if (status == ST_GONE && now.version == p->piece.version && now.end >= p->piece.end && told++ < 8)
        tool_warn("server %u: server %u does not have bytes %" PRIu64 "-%" PRIu64 " of object %016" PRIx64
                  ", which it should keep for us",
                  s->s->server, p->piece.target, p->piece.offset, p->piece.end, p->piece.object);
    cancel_pull(s, p);
    s->maintain_at_ns = tool_now_ns() + s->s->idle_ns;
}

/* ---- the sweep: after a start, a server learns from the homes what it holds, and forgets the rest -------- */

static void end_sweep(struct store *s)
{
    struct sweep *w = &s->sweep;
    free(w->object);
    w->object = NULL;
    store_answer(s, w->task, ST_OK);
    w->task = NULL;
}

static void sweep_on(struct store *s)
{
    struct sweep *w = &s->sweep;
    struct twochoice_piece p;
    memset(&p, 0, sizeof p);
    for (; w->index < w->objects; w->index++, w->at = w->size = 0) {
        p.object = w->object[w->index];
        if (w->size == 0) {
            struct object_file *file = files_get(&s->files, p.object, true, false);
            struct stat st;
            if (file && fstat(file->fd, &st) == 0 && OBJECT_HOME(p.object) < s->s->servers)
                w->size = (uint64_t)st.st_size;
        }
        if (w->at < w->size) {
            p.offset = w->at;
            p.end = w->size;
            call(s, COOKIE(COOKIE_SWEEP, 0), OP_QUERY, &p, OBJECT_HOME(p.object), NO_BUFFER);
            return;
        }
        unlink_if_empty(s, p.object);
    }
    end_sweep(s);
}

static void hold(struct store *s, uint64_t object, uint64_t offset, uint64_t end)
{
    if (twochoice_table_create(&s->held, object, 0, offset, end - offset, false) != QOS_OK)
        tool_warn("server %u: more pieces are kept for others than --fragments allows", s->s->server);
}

static void sweep_answered(struct store *s, const struct note *n)
{
    struct sweep *w = &s->sweep;
    uint64_t object = w->object[w->index], i;
    if (n->status != ST_OK || n->words < 3) { /* the home is not there: keep all */
        hold(s, object, w->at, w->size);
        w->at = w->size;
    }
    for (i = 0; n->status == ST_OK && i + 3 <= n->words; i += 3) {
        uint64_t from = n->word[i], to = qos_min(n->word[i + 1], w->size);
        if (from != w->at || to <= from)
            continue;
        if (n->word[i + 2] == s->s->server)
            hold(s, object, from, to);
        else
            forget_here(s, object, from, to);
        w->at = to;
    }
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
    w->objects = files_away(&s->files, &w->object);
    w->index = 0;
    w->at = w->size = 0;
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

static void report(void *ctx, enum twochoice_disagreement what, const struct twochoice_piece *table,
                   const struct twochoice_piece *log)
{
    static uint32_t told;
    static const char *const text[] = {"",
                                       "the tree breaks its own rules",
                                       "the log is damaged",
                                       "table and log name different places",
                                       "the bytes are not there",
                                       "nobody could say whether the bytes are there"};
    const struct store *s = ctx;
    if (told++ >= 50)
        return;
    tool_warn("server %u: %s: object %016" PRIx64 " %" PRIu64 "-%" PRIu64 ", table: %d, log: %d (-1: here)",
              s->s->server, text[what], table->object, table->offset, table->end, (int)table->target, (int)log->target);
}

static void end_check(struct store *s)
{
    struct check *c = &s->check;
    struct twochoice_checker checker = {.ctx = s, .has_data = has_data, .report = report};
    struct twochoice_table scratch;
    void *memory = tool_alloc_aligned(twochoice_table_memsize(&s->table_config), 64);
    uint64_t found = 0;
    enum qos_status st =
        twochoice_table_init(&scratch, memory, twochoice_table_memsize(&s->table_config), &s->table_config);
    if (st == QOS_OK)
        st = twochoice_checker_run(&checker, &s->table, &scratch, &found);
    free(memory);
    free(c->piece);
    free(c->has);
    c->task->job.n.len = found;
    store_answer(s, c->task, st == QOS_OK ? ST_OK : ST_IO);
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

/* ---- what others answered -------------------------------------------------------------------------------- */

void moves_answered(struct store *s, const struct job *j)
{
    uint64_t index = j->cookie & UINT32_MAX;
    switch (j->cookie >> 32) {
    case COOKIE_PULL: pull_arrived(s, &s->pull[index], j->n.status); break;
    case COOKIE_DROP:
        s->flying[index].end = 0;
        s->changed = true; /* a reservation may have waited for it */
        break;
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
