// The rank of an object server: asks for writes, answers probes at once, passes other requests to the I/O process, reports
// its death.
#include "twochoice_mpi.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_NS UINT64_C(200000000) /* interval of checks of free space */

enum stage { FREE, WAITS_FOR_BUFFER, RECEIVING, AT_IO, SENDING };

/* A client's request on its way through. */
struct pending {
    enum stage stage;
    int from;
    uint32_t buffer;
    bool moved; /* data received or sent */
    uint64_t status;
    struct note n; /* head only */
};

/* A request of the I/O process to another server. */
struct outward {
    bool used, receiving, moved;
    uint32_t server;
    uint64_t cookie;
    uint32_t buffer;
    struct note answer; /* head only, kept while data is received */
};

/* Preassign (Section III-C): half of a probe's bytes, until it is decided; then what comes, until it is here. */
#define GUESSES 256u
struct guess {
    int from;
    uint64_t request, bytes, until_ns;
};

static struct {
    struct twochoice_intake intake;
    struct guess guess[GUESSES]; /* a ring */
    uint64_t guesses;
    struct shared *shared;
    uint8_t *buffers;
    bool *buffer_taken;
    int io;
    pid_t io_pid;
    bool io_alive, stopping;
    struct pending **pending; /* allocated one by one: MPI holds pointers into them */
    size_t pendings;
    struct outward outward[64];
    struct job **unsent; /* waiting for a full socket; in order */
    size_t unsents;
    bool full;
    uint64_t look_ns, probes;
} server;

static void answer_head(int to, const struct note *n, uint64_t status)
{
    struct note a;
    memcpy(&a, n, sizeof(uint64_t) * NOTE_HEAD);
    a.op = n->op + OP_ANSWER;
    a.status = status;
    a.words = 0;
    link_send_note(to, &a);
}

/* ---- the I/O process ------------------------------------------------------------------------------------- */

static void release_buffer(struct pending *p)
{
    if (p->buffer != NO_BUFFER)
        server.buffer_taken[p->buffer] = false;
    p->buffer = NO_BUFFER;
}

static bool carries_load(const struct note *n)
{
    return n->op == OP_WRITE || n->op == OP_READ;
}

static void end_pending(struct pending *p)
{
    if (carries_load(&p->n))
        twochoice_intake_end(&server.intake, tool_now_ns(), p->n.len);
    release_buffer(p);
    p->stage = FREE;
}

static void fail_pending(struct pending *p, uint64_t status)
{
    answer_head(p->from, &p->n, status);
    end_pending(p);
}

/* The I/O process died; the rank goes on. Its jobs fail, and so do later requests. */
static void io_gone(void)
{
    int status = 0;
    size_t i;
    if (!server.io_alive)
        return;
    server.io_alive = false;
    if (waitpid(server.io_pid, &status, 0) < 0)
        status = 0;
    if (WIFSIGNALED(status))
        tool_warn("server %u: its I/O process was killed by signal %d; its objects cannot be reached until a restart "
                  "with --recover",
                  settings.server, WTERMSIG(status));
    else
        tool_warn("server %u: its I/O process is gone (status %d); it takes no writes", settings.server,
                  WEXITSTATUS(status));
    for (i = 0; i < server.pendings; i++)
        if (server.pending[i]->stage == AT_IO)
            fail_pending(server.pending[i], ST_DOWN);
}

static void to_io(const struct job *j)
{
    struct job *copy;
    if (!server.io_alive)
        return;
    if (server.unsents == 0 && job_send(server.io, j, false))
        return;
    if (server.unsents == 0 && errno != EAGAIN && errno != ENOBUFS) {
        io_gone();
        return;
    }
    copy = tool_alloc(sizeof *copy);
    memcpy(copy, j, offsetof(struct job, n) + sizeof(uint64_t) * (NOTE_HEAD + j->n.words));
    server.unsent = tool_grow(server.unsent, (server.unsents + 1) * sizeof(struct job *));
    server.unsent[server.unsents++] = copy;
}

static void send_unsent(void)
{
    while (server.unsents && server.io_alive && job_send(server.io, server.unsent[0], false)) {
        free(server.unsent[0]);
        memmove(server.unsent, server.unsent + 1, --server.unsents * sizeof(struct job *));
    }
}

static void hand_over(struct pending *p, size_t index)
{
    struct job j;
    if (!server.io_alive) {
        fail_pending(p, ST_DOWN);
        return;
    }
    p->stage = AT_IO;
    j.kind = JOB;
    j.cookie = index;
    j.buffer = p->buffer;
    memcpy(&j.n, &p->n, sizeof(uint64_t) * NOTE_HEAD);
    j.n.words = 0;
    to_io(&j);
}

static void job_done(const struct job *j)
{
    struct pending *p = server.pending[j->cookie];
    struct note n;
    if (p->stage != AT_IO)
        return;
    memcpy(&n, &j->n, sizeof(uint64_t) * (NOTE_HEAD + j->n.words));
    n.op = p->n.op + OP_ANSWER;
    n.id = p->n.id;
    if (p->n.op == OP_COUNTS && n.words == COUNTS) {
        struct twochoice_intake_state state;
        (void)twochoice_intake_info(&server.intake, &state);
        n.word[COUNT_PROBES] = server.probes;
        n.word[COUNT_GIVEN_UP] = state.lost;
    }
    if (n.status == ST_NO_SPACE) {
        server.full = true;
        server.look_ns = tool_now_ns() + LOOK_NS;
    }
    link_send_note(p->from, &n);
    if (p->n.op == OP_READ && n.status == ST_OK) {
        p->stage = SENDING;
        link_send_data(p->from, p->n.id, server.buffers + (size_t)p->buffer * settings.part_bytes, (size_t)p->n.len,
                       &p->moved);
        return;
    }
    end_pending(p);
}

static void call_out(const struct job *j)
{
    struct job failed;
    struct note n;
    uint32_t i;
    for (i = 0; i < 64 && server.outward[i].used; i++)
        ;
    if (i == 64 || j->n.server >= settings.servers) {
        failed = *j;
        failed.kind = CALL_DONE;
        failed.n.status = ST_DOWN;
        to_io(&failed);
        return;
    }
    server.outward[i].used = true;
    server.outward[i].receiving = server.outward[i].moved = false;
    server.outward[i].server = (uint32_t)j->n.server;
    server.outward[i].cookie = j->cookie;
    server.outward[i].buffer = (uint32_t)j->buffer;
    memcpy(&n, &j->n, sizeof(uint64_t) * NOTE_HEAD);
    n.id = i;
    n.words = 0;
    link_send_note((int)j->n.server, &n);
}

static void call_done(struct outward *o, const struct note *answer)
{
    struct job j;
    j.kind = CALL_DONE;
    j.cookie = o->cookie;
    j.buffer = o->buffer;
    memcpy(&j.n, answer, sizeof(uint64_t) * (NOTE_HEAD + answer->words));
    o->used = false;
    to_io(&j);
}

static void call_answered(const struct note *n)
{
    struct outward *o;
    if (n->id >= 64 || !server.outward[n->id].used)
        return;
    o = &server.outward[n->id];
    if (n->op == OP_READ + OP_ANSWER && n->status == ST_OK) {
        memcpy(&o->answer, n, sizeof(uint64_t) * NOTE_HEAD);
        o->receiving = true;
        link_receive_data((int)o->server, n->id, server.buffers + (size_t)o->buffer * settings.part_bytes,
                          (size_t)n->len, &o->moved);
        return;
    }
    call_done(o, n);
}

static bool poll_io(void)
{
    struct job j;
    uint32_t i;
    for (i = 0; i < 64 && server.io_alive; i++) {
        int got = job_receive(server.io, &j);
        if (got == 0)
            return i != 0;
        if (got < 0)
            io_gone();
        else if (j.kind == JOB_DONE)
            job_done(&j);
        else if (j.kind == CALL)
            call_out(&j);
    }
    return i != 0;
}

/* ---- what is under way ----------------------------------------------------------------------------------- */

static struct pending *new_pending(size_t *index)
{
    size_t i;
    for (i = 0; i < server.pendings && server.pending[i]->stage != FREE; i++)
        ;
    if (i == server.pendings) {
        server.pending = tool_grow(server.pending, (i + 1) * sizeof(struct pending *));
        server.pending[i] = tool_alloc(sizeof(struct pending));
        server.pendings++;
    }
    *index = i;
    return server.pending[i];
}

static bool take_buffer(struct pending *p)
{
    uint32_t i;
    for (i = 0; i < SERVER_BUFFERS; i++)
        if (!server.buffer_taken[i]) {
            server.buffer_taken[i] = true;
            p->buffer = i;
            return true;
        }
    return false;
}

static void start_data(struct pending *p, size_t index)
{
    if (!take_buffer(p)) {
        p->stage = WAITS_FOR_BUFFER;
        return;
    }
    if (p->n.op == OP_READ) {
        hand_over(p, index);
        return;
    }
    p->stage = RECEIVING; /* even without an I/O process: the sender waits until its data is received */
    link_receive_data(p->from, p->n.id, server.buffers + (size_t)p->buffer * settings.part_bytes, (size_t)p->n.len,
                      &p->moved);
}

static void reset_intake(void)
{
    struct twochoice_intake_config config = {.server = settings.server};
    static void *memory;
    if (!memory)
        memory = tool_alloc_aligned(twochoice_intake_memsize(&config), 64);
    if (twochoice_intake_init(&server.intake, memory, twochoice_intake_memsize(&config), &config) != QOS_OK)
        tool_die(TOOL_FAILED, "intake: its configuration is out of range");
    memset(server.guess, 0, sizeof server.guess);
    server.probes = 0;
}

static uint64_t load_now(void)
{
    struct twochoice_intake_state state;
    (void)twochoice_intake_info(&server.intake, &state);
    return state.cost_bytes;
}

/* ---- the paper's rules: probes and decisions --------------------------------------------------------------------- */

static struct guess *guess_of(int from, uint64_t request)
{
    uint32_t i;
    for (i = 0; i < GUESSES; i++)
        if (server.guess[i].bytes && server.guess[i].from == from && server.guess[i].request == request)
            return &server.guess[i];
    return NULL;
}

static void probed(int from, const struct note *n, uint64_t now_ns)
{
    struct guess *g = &server.guess[server.guesses++ % GUESSES];
    struct note a;
    uint32_t i;
    memcpy(&a, n, sizeof(uint64_t) * NOTE_HEAD);
    a.len = load_now();
    for (i = 0; i < GUESSES; i++)
        a.len += server.guess[i].until_ns > now_ns ? server.guess[i].bytes : 0;
    *g = (struct guess){from, n->request, n->len / 2, now_ns + 4 * settings.probe_timeout_ns};
    server.probes++;
    answer_head(from, &a, !server.io_alive ? ST_DOWN : server.full ? ST_NO_SPACE : ST_OK);
}

static void decided(int from, const struct note *n)
{
    struct guess *g = guess_of(from, n->request);
    if (g)
        g->bytes = n->len;
}

static void came(int from, const struct note *n)
{
    struct guess *g = guess_of(from, n->request);
    if (g)
        g->bytes -= qos_min(g->bytes, n->len);
}

/* ---- requests ------------------------------------------------------------------------------------------------------ */

static void on_note(void *ctx, int from, const struct note *n)
{
    uint64_t now_ns = tool_now_ns();
    struct pending *p;
    size_t index;
    (void)ctx;
    if (n->op >= OP_ANSWER) {
        call_answered(n);
        return;
    }
    if (n->op == OP_STOP) {
        server.stopping = true;
        return;
    }
    if (n->op == OP_PROBE || n->op == OP_DECIDE) {
        if (n->op == OP_PROBE)
            probed(from, n, now_ns);
        else
            decided(from, n);
        return;
    }
    if (n->op == OP_LOAD) {
        struct note a;
        memcpy(&a, n, sizeof(uint64_t) * NOTE_HEAD);
        a.len = server.io_alive ? load_now() : UINT64_MAX;
        answer_head(from, &a, ST_OK);
        return;
    }
    if (n->op == OP_RESET)
        reset_intake();
    p = new_pending(&index);
    memcpy(&p->n, n, sizeof(uint64_t) * NOTE_HEAD);
    p->from = from;
    p->buffer = NO_BUFFER;
    p->moved = false;
    if (carries_load(n) && (n->len == 0 || n->len > settings.part_bytes))
        tool_die(TOOL_FAILED, "rank %d asks for %" PRIu64 " bytes at once, more than --part", from, n->len);
    if (n->op == OP_WRITE) {
        twochoice_intake_arrived(&server.intake, now_ns, (uint64_t)from, n->request, n->turn, n->len);
        came(from, n);
    } else if (n->op == OP_READ) {
        twochoice_intake_begin(&server.intake, now_ns, n->len);
    }
    if (carries_load(n))
        start_data(p, index);
    else
        hand_over(p, index);
}

static void on_message(void *ctx, int from, const struct twochoice_message *m)
{
    struct twochoice_message mine = *m, answer;
    (void)ctx;
    mine.client = (uint64_t)from; /* nobody speaks for others */
    if (mine.type == TWOCHOICE_RESERVE && (!server.io_alive || server.full)) {
        answer = mine;
        answer.type = TWOCHOICE_ANSWER;
        answer.state = server.full ? TWOCHOICE_FULL : TWOCHOICE_DOWN;
        answer.server = settings.server;
        link_send_message(from, &answer);
        return;
    }
    server.probes += mine.type == TWOCHOICE_RESERVE;
    if (twochoice_intake_heard(&server.intake, tool_now_ns(), &mine, &answer))
        link_send_message(from, &answer);
}

static bool ask_for_writes(void)
{
    struct twochoice_message ask;
    bool any = false;
    while (server.io_alive && twochoice_intake_ask(&server.intake, tool_now_ns(), &ask)) {
        link_send_message((int)ask.client, &ask);
        any = true;
    }
    return any;
}

/* Advances requests whose data was received or sent, and those that wait for a buffer. */
static bool advance(void)
{
    bool any = false;
    size_t i;
    for (i = 0; i < server.pendings; i++) {
        struct pending *p = server.pending[i];
        if (p->stage == RECEIVING && p->moved)
            hand_over(p, i);
        else if (p->stage == SENDING && p->moved)
            end_pending(p);
        else
            continue;
        any = true;
    }
    for (i = 0; i < server.pendings; i++)
        if (server.pending[i]->stage == WAITS_FOR_BUFFER)
            start_data(server.pending[i], i);
    for (i = 0; i < 64; i++) {
        struct outward *o = &server.outward[i];
        if (o->used && o->receiving && o->moved) {
            call_done(o, &o->answer);
            any = true;
        }
    }
    return any;
}

/* Is there room again? Requires twice the size of all buffers: otherwise all clients would come at once and be
   refused. */
static void look_at_space(uint64_t now_ns)
{
    struct statvfs v;
    if (!server.full || now_ns < server.look_ns)
        return;
    server.look_ns = now_ns + LOOK_NS;
    if (statvfs(settings.dir, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize >= 2 * SERVER_BUFFERS * settings.part_bytes)
        server.full = false;
}

static bool wait_for_io(void)
{
    struct job j;
    uint32_t idle = 0;
    for (;;) {
        int got = job_receive(server.io, &j);
        if (got > 0)
            return j.kind == READY;
        if (got < 0)
            return false;
        link_nap(idle++, server.io);
    }
}

int server_main(int io_fd, struct shared *shared, uint8_t *buffers, int io_pid)
{
    static const struct link_handler handler = {NULL, on_note, on_message};
    uint32_t idle = 0;
    server.shared = shared;
    server.buffers = buffers;
    server.buffer_taken = tool_alloc(SERVER_BUFFERS * sizeof(bool));
    server.io = io_fd;
    server.io_pid = io_pid;
    server.io_alive = true;
    reset_intake();
    if (!wait_for_io())
        io_gone();
    while (!server.stopping || link_sending()) {
        uint64_t now_ns = tool_now_ns();
        bool any = link_poll(&handler);
        any |= poll_io();
        any |= advance();
        send_unsent();
        any |= ask_for_writes();
        look_at_space(now_ns);
        qos_atomic_store_relaxed(&shared->load, load_now());
        idle = any ? 0 : idle + 1;
        if (!any)
            link_nap(idle, server.io_alive ? server.io : -1);
    }
    close(io_fd);
    if (server.io_alive)
        waitpid(io_pid, NULL, 0); /* it removes its files */
    return TOOL_OK;
}
