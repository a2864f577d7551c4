// The I/O process of a server: one thread, one io_uring for data and for the socket to its rank.
//
// Order before an acknowledgement. Data: written with RWF_DSYNC, so that a completion means durable. Record: appended
// when the data is durable, and one commit of the log then serves every record that waits. Answer: after the commit.
#include "store.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define RING_ENTRIES 256u
#define JOBS_AT_ONCE 64u
#define COMPACT_RECORDS 512u

static int receive_mark; /* user_data of the poll on the socket */

/* ---- the socket ------------------------------------------------------------------------------------------ */

static size_t job_bytes(const struct job *j)
{
    return offsetof(struct job, n) + sizeof(uint64_t) * (NOTE_HEAD + j->n.words);
}

bool job_send(int fd, const struct job *j, bool wait)
{
    for (;;) {
        if (send(fd, j, job_bytes(j), MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) >= 0)
            return true;
        if (errno != EINTR)
            return false;
    }
}

int job_receive(int fd, struct job *j)
{
    ssize_t n;
    do
        n = recv(fd, j, sizeof *j, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    return (size_t)n >= offsetof(struct job, n) + sizeof(uint64_t) * NOTE_HEAD && (size_t)n == job_bytes(j) ? 1 : -1;
}

/* The rank never blocks, so this ends; without a rank the process ends. */
static void tell(struct store *s, const struct job *j)
{
    if (!job_send(s->fd, j, true))
        _exit(TOOL_FAILED);
}

void store_call(struct store *s, uint64_t cookie, const struct note *n, uint32_t buffer)
{
    struct job j;
    j.kind = CALL;
    j.cookie = cookie;
    j.buffer = buffer;
    memcpy(&j.n, n, sizeof(uint64_t) * (NOTE_HEAD + n->words));
    tell(s, &j);
}

/* ---- lists of tasks -------------------------------------------------------------------------------------- */

void task_add(struct task_list *l, struct task *t)
{
    if (!l->first)
        l->end = &l->first;
    t->next = NULL;
    *l->end = t;
    l->end = &t->next;
}

struct task *task_take(struct task_list *l)
{
    struct task *t = l->first;
    if (t)
        l->first = t->next;
    return t;
}

static enum qos_status cancel(struct store *s, uint64_t stamp)
{
    enum qos_status st = twochoice_table_write_cancel(&s->table, stamp);
    if (st == QOS_EIO && s->left_count < sizeof s->left / sizeof *s->left) {
        s->left[s->left_count++] = stamp;
        s->wants_commit = true;
    }
    return st;
}

void store_answer(struct store *s, struct task *t, uint64_t status)
{
    if (t->stamp) { /* the write was not recorded */
        (void)!cancel(s, t->stamp);
        s->changed = true;
    }
    t->job.kind = JOB_DONE;
    t->job.n.status = status;
    tell(s, &t->job);
    free(t);
}

/* ---- data ------------------------------------------------------------------------------------------------ */

static void submit_data(struct store *s, struct task *t)
{
    struct io_uring_sqe *sqe;
    unsigned left = (unsigned)(t->len - t->done);
    while (!(sqe = io_uring_get_sqe(&s->ring)))
        io_uring_submit(&s->ring);
    if (t->writing) {
        io_uring_prep_write(sqe, t->file->fd, t->data + t->done, left, t->offset + t->done);
        sqe->rw_flags = RWF_DSYNC;
    } else {
        io_uring_prep_read(sqe, t->file->fd, t->data + t->done, left, t->offset + t->done);
    }
    io_uring_sqe_set_data(sqe, t);
}

static uint64_t status_of(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? ST_NO_SPACE : ST_IO;
}

void store_data(struct store *s, struct task *t, uint64_t object, uint64_t stamp, bool write)
{
    uint64_t now_ns = tool_now_ns();
    t->done = 0;
    t->writing = write;
    t->due_ns = 0;
    if (s->s->own_rate) {
        s->device_free_ns = qos_max(s->device_free_ns, now_ns) + t->len * QOS_NS_PER_S / s->s->own_rate;
        t->due_ns = s->device_free_ns;
    }
    t->file = files_get(&s->files, object, stamp, write);
    if (!t->file && !write && errno == ENOENT && stamp) {
        t->then(s, t, ST_GONE);
        return;
    }
    if (!t->file && !write && errno == ENOENT) { /* never written: zeros */
        memset(t->data, 0, t->len);
        t->then(s, t, ST_OK);
        return;
    }
    if (!t->file) {
        int error = errno;
        if (status_of(error) != ST_NO_SPACE)
            tool_warn("server %u: object %016" PRIx64 ": %s", s->s->server, object, strerror(error));
        t->then(s, t, status_of(error));
        return;
    }
    t->file->users++;
    submit_data(s, t);
}

static void data_ended(struct store *s, struct task *t, uint64_t status)
{
    t->file->users--;
    if (status == ST_OK && t->due_ns > tool_now_ns()) {
        task_add(&s->paced, t);
        return;
    }
    t->then(s, t, status);
}

static void data_completed(struct store *s, struct task *t, int result)
{
    if (result == -EAGAIN || result == -EINTR) {
        submit_data(s, t);
        return;
    }
    if (result < 0 || (result == 0 && t->writing)) {
        if (result != 0 && status_of(-result) == ST_IO)
            tool_warn("server %u: %s of %" PRIu64 " bytes at %" PRIu64 " of object %016" PRIx64 ": %s", s->s->server,
                      t->writing ? "write" : "read", t->len, t->offset, t->file->object, strerror(-result));
        data_ended(s, t, result == 0 ? ST_NO_SPACE : status_of(-result));
        return;
    }
    t->done += (uint64_t)result;
    if (result == 0) { /* after the end of the file: zeros */
        memset(t->data + t->done, 0, t->len - t->done);
        t->done = t->len;
    }
    if (t->done < t->len)
        submit_data(s, t);
    else
        data_ended(s, t, ST_OK);
}

static void go_on_paced(struct store *s, uint64_t now_ns)
{
    struct task_list all = s->paced;
    struct task *t;
    s->paced.first = NULL;
    while ((t = task_take(&all)) != NULL) {
        if (t->due_ns <= now_ns)
            t->then(s, t, ST_OK);
        else
            task_add(&s->paced, t);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------------------ */

/* Records a write whose data is durable. The pieces that it replaced are dropped when the record is durable. */
static uint64_t record(struct store *s, uint64_t stamp)
{
    enum qos_status st;
    size_t n;
    while ((st = twochoice_table_write_end(&s->table, stamp, s->old, s->olds, &n)) == QOS_EAGAIN)
        moves_more_room(s);
    moves_stale(s, n);
    if (st == QOS_EFULL)
        store_compact(s);
    return st == QOS_OK ? ST_OK : st == QOS_EFULL ? ST_FULL : st == QOS_ENOENT ? ST_NO : ST_IO;
}

static void home_written(struct store *s, struct task *t, uint64_t status)
{
    const struct note *n = &t->job.n;
    if (status == ST_OK) {
        trace_line("data", n->write);
        status = record(s, t->stamp);
    }
    if (status != ST_OK) {
        store_answer(s, t, status);
        return;
    }
    t->stamp = 0;
    s->changed = true; /* other writes may wait for these bytes */
    s->word[COUNT_HOME_BYTES] += n->len;
    task_add(&s->to_commit, t);
}

static void away_written(struct store *s, struct task *t, uint64_t status)
{
    const struct note *n = &t->job.n;
    if (status == ST_OK) {
        trace_line("data", n->write);
        s->word[COUNT_AWAY_BYTES] += n->len;
    }
    store_answer(s, t, status);
}

static void write_job(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    bool home = OBJECT_HOME(n->object) == s->s->server;
    enum qos_status st;
    t->data = s->buffers + t->job.buffer * s->s->part_bytes;
    t->offset = n->offset;
    t->len = n->len;
    t->then = home ? home_written : away_written;
    if (home != (n->stamp == 0)) {
        store_answer(s, t, ST_NO);
        return;
    }
    if (home) {
        st = twochoice_table_write_begin(&s->table, n->object, TWOCHOICE_LOCAL, n->offset, n->len, &t->stamp);
        if (st == QOS_EAGAIN || st == QOS_EFULL) { /* another write is open there: tried again later */
            if (st == QOS_EFULL)
                store_compact(s);
            task_add(&s->waiting, t);
            return;
        }
        if (st != QOS_OK) {
            store_answer(s, t, ST_IO);
            return;
        }
    }
    store_data(s, t, n->object, n->stamp, true);
}

static void read_job(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    t->data = s->buffers + t->job.buffer * s->s->part_bytes;
    t->offset = n->offset;
    t->len = n->len;
    t->then = store_answer;
    store_data(s, t, n->object, n->stamp, false);
}

static void query_job(struct store *s, struct task *t)
{
    struct twochoice_piece p[NOTE_PIECES];
    struct note *n = &t->job.n;
    size_t count = twochoice_table_query(&s->table, n->object, n->offset, n->len, p, NOTE_PIECES), i;
    for (i = 0; i < count; i++) {
        n->word[4 * i] = p[i].offset;
        n->word[4 * i + 1] = p[i].end;
        n->word[4 * i + 2] = p[i].target == TWOCHOICE_LOCAL ? s->s->server : p[i].target;
        n->word[4 * i + 3] = p[i].version;
    }
    n->words = 4 * count;
    store_answer(s, t, ST_OK);
}

static void begin_job(struct store *s, struct task *t)
{
    struct note *n = &t->job.n;
    enum qos_status st =
        twochoice_table_write_begin(&s->table, n->object, (uint32_t)n->server, n->offset, n->len, &n->stamp);
    if (st == QOS_EFULL)
        store_compact(s);
    store_answer(s, t, st == QOS_OK ? ST_OK : st == QOS_EFULL || st == QOS_EAGAIN ? ST_FULL : ST_IO);
}

static void bind_job(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    store_answer(s, t, twochoice_table_write_bind(&s->table, n->stamp, (uint32_t)n->server) == QOS_OK ? ST_OK : ST_NO);
}

static void cancel_job(struct store *s, struct task *t)
{
    store_answer(s, t, cancel(s, t->job.n.stamp) == QOS_OK ? ST_OK : ST_NO);
}

static void end_job(struct store *s, struct task *t)
{
    uint64_t status = record(s, t->job.n.stamp);
    if (status == ST_OK) {
        task_add(&s->to_commit, t);
        return;
    }
    (void)!cancel(s, t->job.n.stamp);
    store_answer(s, t, status);
}

/* A target asks about a piece that it holds. "Not needed" is true when all changes so far are durable, and stays true.
   */
static void refers_job(struct store *s, struct task *t)
{
    const struct note *n = &t->job.n;
    if (twochoice_table_refers(&s->table, n->object, n->stamp, 0, UINT64_MAX))
        store_answer(s, t, ST_OK);
    else
        task_add(&s->to_commit, t);
}

/* The oldest redirects, by their stamps. */
static void list_job(struct store *s, struct task *t)
{
    struct twochoice_piece p[NOTE_WORDS / 5], q;
    struct note *n = &t->job.n;
    size_t count = 0, i;
    memset(&q, 0, sizeof q);
    while (twochoice_table_next(&s->table, q.object, q.end, &q)) {
        if (count == NOTE_WORDS / 5 && p[count - 1].version <= q.version)
            continue;
        count += count < NOTE_WORDS / 5;
        for (i = count - 1; i > 0 && p[i - 1].version > q.version; i--)
            p[i] = p[i - 1];
        p[i] = q;
    }
    for (i = 0; i < count; i++) {
        n->word[5 * i] = p[i].object;
        n->word[5 * i + 1] = p[i].offset;
        n->word[5 * i + 2] = p[i].end;
        n->word[5 * i + 3] = p[i].target;
        n->word[5 * i + 4] = p[i].version;
    }
    n->words = 5 * count;
    store_answer(s, t, ST_OK);
}

static void counts_job(struct store *s, struct task *t)
{
    struct twochoice_table_state c;
    (void)twochoice_table_info(&s->table, &c);
    s->word[COUNT_FRAGMENTS] = c.fragments;
    s->word[COUNT_PEAK] = qos_max(s->word[COUNT_PEAK], c.fragments);
    s->word[COUNT_VERSION] = c.stamp;
    s->word[COUNT_LOG_BYTES] = c.log_bytes;
    memcpy(t->job.n.word, s->word, sizeof s->word);
    t->job.n.words = COUNTS;
    store_answer(s, t, ST_OK);
}

static bool new_tables(struct store *s)
{
    if (!s->table_memory)
        s->table_memory = tool_alloc_aligned(twochoice_table_memsize(&s->table_config), 64);
    return twochoice_table_init(&s->table, s->table_memory, twochoice_table_memsize(&s->table_config),
                                &s->table_config) == QOS_OK;
}

static void reset_job(struct store *s, struct task *t)
{
    bool ok = !s->to_commit.first && !s->flight.under_way && s->resting && moves_quiet(s);
    if (ok) {
        s->drops = 0;
        s->resting = false;
        s->device_free_ns = 0;
        files_clear(&s->files, false);
        memset(s->word, 0, sizeof s->word);
        ok = new_tables(s) && twochoice_table_format(&s->table) == QOS_OK;
        moves_init(s, false);
    }
    store_answer(s, t, ok ? ST_OK : ST_IO);
}

static void start_job(struct store *s, struct task *t)
{
    switch (t->job.n.op) {
    case OP_WRITE: write_job(s, t); break;
    case OP_READ: read_job(s, t); break;
    case OP_QUERY: query_job(s, t); break;
    case OP_BEGIN: begin_job(s, t); break;
    case OP_BIND: bind_job(s, t); break;
    case OP_CANCEL: cancel_job(s, t); break;
    case OP_END: end_job(s, t); break;
    case OP_REFERS: refers_job(s, t); break;
    case OP_DROP: moves_drop_here(s, t); break;
    case OP_HAS: moves_has(s, t); break;
    case OP_SWEEP: moves_sweep(s, t); break;
    case OP_CHECK: moves_check(s, t); break;
    case OP_LIST: list_job(s, t); break;
    case OP_DRAIN:
        moves_init(s, true);
        store_answer(s, t, ST_OK);
        break;
    case OP_GO:
        s->paused = !s->s->pull;
        s->maintain_at_ns = 0;
        store_answer(s, t, ST_OK);
        break;
    case OP_REST:
        s->resting = true;
        store_answer(s, t, moves_quiet(s) ? ST_OK : ST_NO);
        break;
    case OP_COUNTS: counts_job(s, t); break;
    case OP_RESET: reset_job(s, t); break;
    default: store_answer(s, t, ST_NO); break;
    }
}

static void retry_waiting(struct store *s)
{
    struct task_list all = s->waiting;
    struct task *t;
    s->waiting.first = NULL;
    s->changed = false;
    while ((t = task_take(&all)) != NULL)
        start_job(s, t);
}

/* ---- the log --------------------------------------------------------------------------------------------- */

void store_compact(struct store *s)
{
    if (twochoice_table_compact_start(&s->table) == QOS_OK)
        s->word[COUNT_COMPACTIONS]++;
}

static void step_compaction(struct store *s)
{
    struct twochoice_table_state c;
    enum twochoice_compact_todo todo = TWOCHOICE_COMPACT_STEP;
    enum qos_status st = QOS_OK;
    (void)twochoice_table_info(&s->table, &c);
    s->word[COUNT_PEAK] = qos_max(s->word[COUNT_PEAK], c.fragments);
    if (!c.compacting) {
        if (c.log_bytes > c.max_log_bytes / 2 || c.log_broken)
            store_compact(s);
        return;
    }
    st = twochoice_table_compact_step(&s->table, COMPACT_RECORDS, &todo);
    s->wants_commit = s->compaction_waits = st == QOS_OK && todo == TWOCHOICE_COMPACT_COMMIT;
    if (st == QOS_OK && todo == TWOCHOICE_COMPACT_SWAP)
        st = twochoice_table_compact_end(&s->table, s->storage.swap(s->storage.ctx, (int)c.next_log) == 0);
    if (st != QOS_OK)
        tool_warn("server %u: compaction failed; the log goes on as it was", s->s->server);
}

static void end_commit(struct store *s)
{
    struct flight *f = &s->flight;
    enum qos_status st = f->begun == QOS_OK ? twochoice_table_commit_end(&s->table, &f->commit, f->good) : f->begun;
    struct task_list all = f->tasks;
    struct task *t;
    f->under_way = s->compaction_waits = false;
    f->tasks.first = NULL;
    while (st == QOS_OK && s->left_count &&
           twochoice_table_write_cancel(&s->table, s->left[s->left_count - 1]) != QOS_EIO)
        s->left_count--;
    if (st != QOS_OK && st != QOS_EAGAIN)
        tool_warn("server %u: the redirect log cannot be made durable: %s", s->s->server, qos_strerror((int)st));
    while ((t = task_take(&all)) != NULL) {
        if (st == QOS_EAGAIN) { /* a compaction ended meanwhile */
            task_add(&s->to_commit, t);
            continue;
        }
        s->word[COUNT_RECORDS]++;
        if (t->pull) {
            moves_pull_committed(s, t, st == QOS_OK);
        } else if (t->job.n.op == OP_REFERS) {
            store_answer(s, t, st == QOS_OK ? ST_NO : ST_OK);
        } else {
            if (st == QOS_OK)
                trace_line("record", t->job.n.write);
            store_answer(s, t, st == QOS_OK ? ST_OK : ST_IO);
        }
    }
}

static void log_synced(struct store *s, int result)
{
    s->flight.good = s->flight.good && result == 0;
    if (--s->flight.syncs == 0)
        end_commit(s);
}

/* Begins a commit for all that wait for one. The kernel syncs the logs; queries and writes go on meanwhile. */
static void commit(struct store *s)
{
    struct flight *f = &s->flight;
    int log;
    if (f->under_way || (!s->to_commit.first && !s->wants_commit))
        return;
    f->tasks = s->to_commit;
    s->to_commit.first = NULL;
    s->wants_commit = false;
    f->under_way = true;
    f->syncs = 1;
    f->good = true;
    f->begun = twochoice_table_commit_begin(&s->table, &f->commit);
    s->word[COUNT_COMMITS]++;
    for (log = 0; f->begun == QOS_OK && log <= TWOCHOICE_MARK_LOG; log++) {
        struct io_uring_sqe *sqe;
        if ((f->commit.logs & 1u << log) == 0)
            continue;
        while (!(sqe = io_uring_get_sqe(&s->ring)))
            io_uring_submit(&s->ring);
        io_uring_prep_fsync(sqe, s->files.log_fd[log], IORING_FSYNC_DATASYNC);
        io_uring_sqe_set_data(sqe, f);
        f->syncs++;
    }
    io_uring_submit(&s->ring); /* at once, as the file may be closed later */
    log_synced(s, 0);
}

/* ---- the loop -------------------------------------------------------------------------------------------- */

/* Takes everything that the rank has sent. False: the rank is gone. */
static bool receive_jobs(struct store *s)
{
    struct job j;
    uint32_t i;
    for (i = 0; i < JOBS_AT_ONCE; i++) {
        int got = job_receive(s->fd, &j);
        if (got < 0)
            return false;
        if (got == 0)
            return true;
        if (j.kind == CALL_DONE) {
            moves_answered(s, &j);
        } else {
            struct task *t = tool_alloc(sizeof *t);
            memcpy(&t->job, &j, offsetof(struct job, n) + sizeof(uint64_t) * (NOTE_HEAD + j.n.words));
            t->job.n.words = 0;
            start_job(s, t);
        }
    }
    return true;
}

static void watch_socket(struct store *s)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&s->ring)))
        io_uring_submit(&s->ring);
    io_uring_prep_poll_add(sqe, s->fd, POLLIN);
    io_uring_sqe_set_data(sqe, &receive_mark);
    s->receiving = true;
}

static uint64_t wake_at(const struct store *s, uint64_t now_ns)
{
    uint64_t at_ns = s->maintain_at_ns;
    const struct task *t;
    struct twochoice_table_state c;
    for (t = s->paced.first; t; t = t->next)
        at_ns = qos_min(at_ns, t->due_ns);
    (void)twochoice_table_info(&s->table, &c);
    if (s->changed || (c.compacting && !s->compaction_waits) || (s->to_commit.first && !s->flight.under_way))
        at_ns = now_ns;
    return qos_min(at_ns, now_ns + UINT64_C(1000000000));
}

static void wait_for_something(struct store *s)
{
    uint64_t now_ns = tool_now_ns(), at_ns = wake_at(s, now_ns), nap_ns = qos_sat_sub(at_ns, now_ns);
    struct __kernel_timespec t = {(long long)(nap_ns / QOS_NS_PER_S), (long long)(nap_ns % QOS_NS_PER_S)};
    struct io_uring_cqe *cqe;
    io_uring_submit_and_wait_timeout(&s->ring, &cqe, nap_ns ? 1 : 0, &t, NULL);
}

static bool take_completions(struct store *s)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&s->ring, &cqe) == 0 && cqe) {
        void *data = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&s->ring, cqe);
        if (data == &receive_mark) {
            s->receiving = false;
            if (!receive_jobs(s))
                return false;
        } else if (data == &s->flight) {
            log_synced(s, result);
        } else if (data) {
            data_completed(s, data, result);
        }
    }
    return true;
}

static bool open_table(struct store *s)
{
    struct twochoice_recovery r = {0};
    enum qos_status st;
    if (!files_open(&s->files, s->s->dir, s->s->log_bytes, s->s->recover))
        return false;
    files_storage(&s->files, &s->storage);
    s->table_config.max_fragments = (uint32_t)s->s->fragments;
    s->table_config.home = s->s->server;
    s->table_config.max_log_bytes = s->s->log_bytes;
    s->table_config.max_writes = 4096;
    s->table_config.storage = &s->storage;
    if (!new_tables(s)) {
        tool_warn("server %u: the table's configuration is out of range", s->s->server);
        return false;
    }
    st = twochoice_table_recover(&s->table, s->s->accept_prefix ? TWOCHOICE_ACCEPT_PREFIX : 0, &r);
    if (st == QOS_ENOENT) /* never formatted; a log that was emptied is QOS_ECORRUPT */
        st = twochoice_table_format(&s->table);
    if (st != QOS_OK) {
        tool_warn("server %u: %s/redirect.log: %s, at byte %" PRIu64 "%s", s->s->server, s->s->dir,
                  qos_strerror((int)st), r.valid_bytes,
                  st == QOS_ECORRUPT ? "; --accept-prefix keeps the records before it, and loses those after it" : "");
        return false;
    }
    s->word[COUNT_RECOVERED] = r.records;
    s->word[COUNT_TORN_BYTES] = r.dropped_bytes;
    return true;
}

static void serve(struct store *s)
{
    struct job ready;
    memset(&ready, 0, sizeof ready);
    ready.kind = READY;
    tell(s, &ready);
    for (;;) {
        if (!s->receiving)
            watch_socket(s);
        wait_for_something(s);
        if (!take_completions(s))
            break;
        go_on_paced(s, tool_now_ns());
        commit(s);
        if (s->changed)
            retry_waiting(s);
        step_compaction(s);
        moves_step(s, tool_now_ns());
    }
}

_Noreturn void store_main(int fd, struct shared *shared, uint8_t *buffers)
{
    struct store *s = tool_alloc(sizeof *s);
    int rc;
    /* Ctrl-C reaches the whole job. The rank decides when to end, and closes the socket. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    s->s = &settings;
    s->shared = shared;
    s->fd = fd;
    s->buffers = buffers;
    trace_open("io", s->s->server);
    rc = io_uring_queue_init(RING_ENTRIES, &s->ring, 0);
    if (rc < 0) {
        tool_warn("server %u: io_uring: %s%s", s->s->server, strerror(-rc),
                  rc == -EPERM || rc == -ENOSYS ? " (the kernel is too old, or it is forbidden)" : "");
        _exit(TOOL_FAILED);
    }
    if (!open_table(s))
        _exit(TOOL_FAILED);
    moves_init(s, false);
    s->paused = true; /* until all servers have swept */
    serve(s);
    if (!s->s->keep)
        files_clear(&s->files, true);
    _exit(TOOL_OK);
}
