/* tokenpool_shm - Haechi over shared memory: a monitor and clients as processes that read records one-sidedly.
 *
 * Without --name this process starts all of them. With --name and --serve it is a data node that clients of other tools
 * attach to. It replaces a monitor that died, and sends SIGKILL to the processes that the options name. The transport
 * is a mapping: operations are CPU atomics, a read is a copy.
 *
 * Attaching. The memory has no name in a file system. A client connects to an abstract socket, which exists as long as
 * its data node. The data node checks it (SO_PEERCRED) and passes two descriptors: the words that clients write, and
 * the control page and table, sealed against writing. A broken connection tells each side that the other died. */
#define _GNU_SOURCE
#include "examples/tokenpool_common/node.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TABLE_BYTES_MAX (UINT64_C(1) << 46)

struct shm_link {
    struct node_link link;
    char *region;
    int words_fd, table_fd, data_node; /* data_node: a client's connection to it, or -1 */
};

static bool shm_op(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer)
{
    *answer = tokenpool_storage_run(((struct shm_link *)l)->region, op);
    return true;
}

static bool shm_read(struct node_link *l, const uint64_t *offset, unsigned n, void *to)
{
    unsigned i;
    for (i = 0; i < n; i++)
        memcpy((char *)to + i * NODE_RECORD, ((struct shm_link *)l)->region + offset[i], NODE_RECORD);
    return true;
}

static void shm_idle(struct node_link *l, uint64_t until_ns)
{
    uint64_t now_ns = tool_now_ns();
    if (until_ns <= now_ns)
        sched_yield();
    else if (((struct shm_link *)l)->data_node < 0)
        tool_sleep_until_ns(until_ns);
    else
        tool_sleep_until_ns(qos_min(until_ns, now_ns + QOS_NS_PER_S / 10)); /* the data node may die meanwhile */
}

static bool shm_lost(struct node_link *l)
{
    struct pollfd f = {.fd = ((struct shm_link *)l)->data_node, .events = POLLIN};
    if (f.fd < 0 || poll(&f, 1, 0) == 0 || stop_asked())
        return false;
    tool_warn("the data node is gone");
    return true;
}

static struct shm_link shm = {.link = {.op = shm_op, .read = shm_read, .idle = shm_idle, .lost = shm_lost},
                              .data_node = -1};
static struct node_log *shm_log;

/* ---- memory: first the words that clients write, then the read-only parts */

static bool map_region(const struct node_setup *s, bool client)
{
    const size_t words = (size_t)node_control(s), all = (size_t)node_bytes(s);
    char *at = (char *)mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    shm.region = at;
    return mmap(at, words, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shm.words_fd, 0) != MAP_FAILED &&
           mmap(at + words, all - words, client ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                shm.table_fd, 0) != MAP_FAILED;
}

static void create_region(const struct node_setup *s)
{
    const size_t words = (size_t)node_control(s), all = (size_t)node_bytes(s);
    shm.words_fd = memfd_create("qoskit-words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shm.table_fd = memfd_create("qoskit-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shm_log = (struct node_log *)mmap(NULL, sizeof *shm_log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shm.words_fd < 0 || shm.table_fd < 0 || ftruncate(shm.words_fd, (off_t)words) != 0 ||
        ftruncate(shm.table_fd, (off_t)(all - words)) != 0 || shm_log == MAP_FAILED || !map_region(s, false))
        tool_die(TOOL_FAILED, "shared memory of %zu bytes: %s", all, strerror(errno));
    /* Sealed: no process can shrink the memory, and only this mapping writes the table. */
    if (fcntl(shm.words_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        fcntl(shm.table_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
        tool_die(TOOL_FAILED, "sealing the memory: %s", strerror(errno));
    node_fill(s, shm.region);
}

/* ---- attaching by name */

struct invitation {
    char refused[96]; /* the reason; empty: accepted, with two descriptors */
    uint64_t period_ns, table_bytes;
    uint32_t clients, batch, flags;
};

static socklen_t socket_name(const char *name, struct sockaddr_un *a)
{
    int n;
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX; /* first byte 0: an abstract socket name */
    n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "qoskit-tokenpool/%s", name);
    if (*name == 0 || n >= (int)sizeof a->sun_path - 1)
        tool_die(TOOL_USAGE, "--name: 1 to %zu characters", sizeof a->sun_path - 19);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int listen_as(const char *name)
{
    struct sockaddr_un a;
    socklen_t size = socket_name(name, &a);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) != 0)
        tool_die(TOOL_FAILED, "--name %s: %s", name, errno == EADDRINUSE ? "a data node has it" : strerror(errno));
    if (listen(fd, 16) != 0)
        tool_die(TOOL_FAILED, "--name %s: %s", name, strerror(errno));
    return fd;
}

static bool allowed(int fd, gid_t group)
{
    struct ucred who;
    gid_t groups[256];
    socklen_t size = sizeof who, n = sizeof groups;
    unsigned i;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return false;
    if (who.uid == 0 || who.uid == geteuid() || (group != (gid_t)-1 && who.gid == group))
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n) != 0)
        return false;
    for (i = 0; i < n / sizeof groups[0]; i++)
        if (group != (gid_t)-1 && groups[i] == group)
            return true;
    return false;
}

/* Clients that attached by name: one connection each, and one whose client is not known yet. */
static struct {
    int listener, fd[NODE_CLIENTS_MAX], asking;
    uint64_t asking_ns;
    gid_t group;
} door = {.listener = -1, .asking = -1, .group = (gid_t)-1};

static void answer(int fd, const struct node_setup *s, uint32_t id)
{
    struct invitation in = {.period_ns = s->period_ns,
                            .table_bytes = s->table_bytes,
                            .clients = s->clients,
                            .batch = (uint32_t)s->batch,
                            .flags = s->flags};
    struct iovec part = {&in, sizeof in};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[2] = {shm.words_fd, shm.table_fd};
    if (!allowed(fd, door.group))
        snprintf(in.refused, sizeof in.refused, "this user may not attach");
    else if (id >= s->clients)
        snprintf(in.refused, sizeof in.refused, "clients are 0 to %u", s->clients - 1);
    else if (door.fd[id] >= 0)
        snprintf(in.refused, sizeof in.refused, "client %u is here already", id);
    if (!in.refused[0]) {
        memset(&control, 0, sizeof control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof fds);
        memcpy(CMSG_DATA(&control.head), fds, sizeof fds);
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
    }
    if (sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof in || in.refused[0]) {
        close(fd);
        return;
    }
    door.fd[id] = fd;
    printf("client %u is here\n", id);
    fflush(stdout);
}

/* Takes the next caller who may attach. Strangers are refused at once, so that they keep nobody out. */
static void next_caller(const struct node_setup *s)
{
    uint32_t id, most = 64;
    int fd;
    while (most-- > 0 && (fd = accept4(door.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (allowed(fd, door.group)) {
            door.asking = fd;
            door.asking_ns = tool_now_ns();
            return;
        }
        (void)shutdown(fd, SHUT_RD); /* what it sent is read: else it would see a reset, not the answer */
        (void)!recv(fd, &id, sizeof id, MSG_DONTWAIT);
        answer(fd, s, 0);
    }
}

/* How long a caller may be silent: those that wait behind it want its place. */
static uint64_t patience_ns(void)
{
    struct pollfd f = {.fd = door.listener, .events = POLLIN};
    return poll(&f, 1, 0) > 0 ? QOS_NS_PER_S / 100 : QOS_NS_PER_S;
}

/* Handles arrivals and departures. Never waits: a silent caller is dropped. */
static void attend(const struct node_setup *s)
{
    uint32_t id;
    for (id = 0; id < s->clients; id++) {
        struct pollfd f = {.fd = door.fd[id], .events = POLLIN};
        if (f.fd >= 0 && poll(&f, 1, 0) > 0) {
            close(f.fd);
            door.fd[id] = -1;
            node_gone(s, shm_log, id);
            printf("client %u is gone\n", id);
            fflush(stdout);
        }
    }
    if (door.listener < 0)
        return;
    if (door.asking < 0)
        next_caller(s);
    if (door.asking >= 0) {
        ssize_t n = recv(door.asking, &id, sizeof id, MSG_DONTWAIT);
        if (n == (ssize_t)sizeof id)
            answer(door.asking, s, id);
        else if (n >= 0 || errno != EAGAIN || tool_now_ns() - door.asking_ns > patience_ns())
            close(door.asking);
        else
            return;
        door.asking = -1;
    }
}

/* It has so many bytes, and keeps them: who has the name may be a stranger. */
static bool sealed(int fd, uint64_t bytes)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes;
}

static int attach_by_name(const char *name, uint32_t id)
{
    struct node_setup *s = &node_options;
    struct sockaddr_un a;
    socklen_t size = socket_name(name, &a);
    struct invitation in;
    struct iovec part = {&in, sizeof in};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct timeval patience = {.tv_sec = 10};
    struct tokenpool_config config;
    int fds[2];
    shm.data_node = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (shm.data_node < 0 || connect(shm.data_node, (struct sockaddr *)&a, size) != 0)
        tool_die(TOOL_FAILED, "--name %s: %s", name, errno == ECONNREFUSED ? "no data node has it" : strerror(errno));
    (void)!send(shm.data_node, &id, sizeof id, MSG_NOSIGNAL); /* refused before: the answer is there */
    if (setsockopt(shm.data_node, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        recvmsg(shm.data_node, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof in)
        tool_die(TOOL_FAILED, "--name %s: the data node does not answer", name);
    in.refused[sizeof in.refused - 1] = 0;
    if (in.refused[0])
        tool_die(TOOL_FAILED, "--name %s: refused: %s", name, in.refused);
    if (m.msg_controllen == 0 || control.head.cmsg_type != SCM_RIGHTS ||
        control.head.cmsg_len != CMSG_LEN(sizeof fds) || in.clients > NODE_CLIENTS_MAX)
        tool_die(TOOL_FAILED, "--name %s: the data node speaks another version", name);
    memcpy(fds, CMSG_DATA(&control.head), sizeof fds);
    shm.words_fd = fds[0];
    shm.table_fd = fds[1];
    s->clients = in.clients;
    s->period_ns = in.period_ns;
    s->table_bytes = in.table_bytes;
    s->batch = in.batch;
    s->flags = in.flags;
    config = node_config(s, 1000000);
    if (tokenpool_config_error(&config) || s->table_bytes < NODE_RECORD || s->table_bytes > TABLE_BYTES_MAX ||
        !sealed(fds[0], node_control(s)) || !sealed(fds[1], node_bytes(s) - node_control(s)))
        tool_die(TOOL_FAILED, "--name %s: what the data node gives is no memory of one", name);
    if (!map_region(s, true))
        tool_die(TOOL_FAILED, "mapping the data node's memory: %s", strerror(errno));
    close(fds[0]);
    close(fds[1]);
    node_client(&shm.link, s, id);
    return stop_asked() ? TOOL_STOPPED : TOOL_OK;
}

/* ---- the data node */

static pid_t start(bool monitor, uint32_t id, bool resume)
{
    const pid_t supervisor = getpid();
    pid_t p = fork();
    if (p < 0)
        tool_die(TOOL_FAILED, "fork: %s", strerror(errno));
    if (p > 0)
        return p;
    /* If the supervisor is killed, by anything, its processes end too. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != supervisor)
        _exit(TOOL_FAILED);
    if (!monitor)
        node_client(&shm.link, &node_options, id);
    else if ((!resume && !node_bare(&shm.link, &node_options, shm.region, shm_log)) ||
             !node_monitor(&shm.link, &node_options, shm.region, shm_log, resume))
        _exit(TOOL_FAILED);
    _exit(TOOL_OK);
}

static uint64_t epoch_now(void)
{
    return tokenpool_word_epoch(qos_atomic_load_acquire(node_local(shm.region, TOKENPOOL_OFFSET_POOL)));
}

static uint64_t kill_client = UINT64_MAX, kill_monitor, kill_at = 4;

/* Sends SIGKILL to the process that the options name, in the middle of the named period. */
static uint32_t kill_whom(const pid_t *client, pid_t *monitor)
{
    static uint64_t half_ns;
    static bool killed, replaced;
    const uint64_t epoch = epoch_now(), now_ns = tool_now_ns();
    if (kill_client < node_options.clients && !killed && epoch == kill_at) {
        half_ns = half_ns ? half_ns : now_ns + node_options.period_ns / 2;
        if (now_ns >= half_ns) {
            killed = true;
            kill(client[kill_client], SIGKILL);
            node_gone(&node_options, shm_log, (uint32_t)kill_client);
            printf("killed client %" PRIu64 " in the middle of period %" PRIu64 "\n", kill_client, epoch);
        }
    }
    if (kill_monitor && !replaced && epoch == kill_monitor) {
        tool_sleep_until_ns(now_ns + node_options.period_ns / 3);
        kill(*monitor, SIGKILL);
        waitpid(*monitor, NULL, 0);
        printf("killed the monitor in period %" PRIu64 "; another takes over\n", epoch);
        fflush(stdout);
        replaced = true;
        *monitor = start(true, 0, true);
    }
    return killed ? (uint32_t)kill_client : UINT32_MAX;
}

/* Waits until all have ended. True: only the killed one failed. by_name: clients are not our children. */
static bool supervise(bool by_name, uint32_t *dead)
{
    struct node_setup *s = &node_options;
    pid_t client[NODE_CLIENTS_MAX], monitor = start(true, 0, false);
    uint32_t i, living = by_name ? 0 : s->clients;
    bool ok = true, monitoring = true;
    for (i = 0; i < living; i++)
        client[i] = start(false, i, false);
    while (living > 0 || monitoring) {
        int status;
        pid_t p = waitpid(-1, &status, WNOHANG);
        if (stop_asked())
            node_set_phase(s, shm.region, NODE_STOP);
        if (!by_name || kill_monitor)
            *dead = kill_whom(client, &monitor);
        attend(s);
        if (p > 0 && p != monitor) {
            living--;
            ok = ok && ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (*dead < s->clients && p == client[*dead]));
        } else if (p == monitor && WIFSIGNALED(status) && !stop_asked() && shm_log->epoch_now) {
            printf("the monitor was killed; another takes over\n");
            fflush(stdout);
            monitor = start(true, 0, true);
        } else if (p == monitor) {
            monitoring = false;
            ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            if (!ok)
                node_set_phase(s, shm.region, NODE_STOP);
        } else if (p == 0) {
            tool_sleep_until_ns(tool_now_ns() + 1000000);
        }
    }
    return ok;
}

/* Clients that attached by name write their last results and leave; stragglers are not waited for. */
static void farewell(const struct node_setup *s)
{
    uint64_t until_ns = tool_now_ns() + QOS_NS_PER_S;
    uint32_t i, here = 1;
    while (here > 0 && tool_now_ns() < until_ns) {
        attend(s);
        for (i = here = 0; i < s->clients; i++)
            here += door.fd[i] >= 0;
        tool_sleep_until_ns(tool_now_ns() + 5000000);
    }
}

static int serve(bool by_name)
{
    struct node_setup *s = &node_options;
    struct node_verdict v;
    uint32_t dead = UINT32_MAX;
    bool ok;
    create_region(s);
    ok = supervise(by_name, &dead);
    farewell(s);
    if (stop_asked() && shm_log->periods == 0) {
        tool_warn(by_name ? "stopped while it waited for clients" : "stopped before the first period");
        return TOOL_STOPPED;
    }
    v = node_report(s, shm.region, shm_log, node_json, node_figures, "tokenpool_shm");
    if (dead < s->clients && kill_at + 2 <= shm_log->periods) {
        uint64_t before = shm_log->of[kill_at].reserved, after = shm_log->of[kill_at + 2].reserved;
        printf("reserved in period %" PRIu64 ": %" PRIu64 ", two later: %" PRIu64
               " (the dead client's share is in the pool)\n",
               kill_at, before, after);
        ok = ok && before - after == node_share(shm_log, s->reserve[dead]);
    }
    if (stop_asked())
        return TOOL_STOPPED;
    return node_status(&v, ok && shm_log->periods >= s->periods);
}

int main(int argc, char **argv)
{
    static bool is_server;
    static uint64_t id = UINT64_MAX;
    static const char *name, *group;
    const struct opt opts[] = {
        {"name", OPT_TEXT, &name, "NAME", "attach by name: with --serve the data node, with --id a client", NULL},
        {"serve", OPT_FLAG, &is_server, NULL, "be the data node of that name", NULL},
        {"group", OPT_TEXT, &group, "GROUP", "data node: users of this group may attach, too", NULL},
        {"id", OPT_COUNT, &id, "N", "client: which one, from 0", NULL},
        NODE_OPTIONS,
        {"kill-client", OPT_COUNT, &kill_client, "N", "SIGKILL to this client", NULL},
        {"kill-at", OPT_COUNT, &kill_at, "PERIOD", "in the middle of this period; default 4", NULL},
        {"kill-monitor", OPT_COUNT, &kill_monitor, "PERIOD", "SIGKILL to the monitor then; another takes over", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    struct node_setup *s = &node_options;
    const struct group *entry = NULL;
    uint32_t i = (uint32_t)opt_parse(
        argc, argv, opts, "Clients read 4 KiB records of a table in shared memory; tokens decide how many.",
        "tokenpool_shm --periods 4 --table 256M\ntokenpool_shm --periods 4 --kill-client 1 --kill-at 2 --json "
        "out.json\ntokenpool_shm --name db --serve\ntokenpool_shm --name db --id 0\n");
    if ((int)i < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[i]);
    if ((name && is_server == (id != UINT64_MAX)) || (!name && (is_server || id != UINT64_MAX || group)))
        tool_die(TOOL_USAGE, "--name wants either --serve or --id; these want --name");
    if (group && !(entry = getgrnam(group)))
        tool_die(TOOL_USAGE, "--group %s: no such group", group);
    if (name && !is_server) {
        stop_on_signals();
        return attach_by_name(name, (uint32_t)qos_min(id, UINT32_MAX));
    }
    node_check_options();
    if (kill_client != UINT64_MAX && (name || kill_client >= s->clients))
        tool_die(TOOL_USAGE, "--kill-client %" PRIu64 ": clients are 0 to %u, without --name", kill_client,
                 s->clients - 1);
    if (kill_at < 1 || (kill_client != UINT64_MAX && kill_at > s->periods) || kill_monitor > s->periods)
        tool_die(TOOL_USAGE, "--kill-at and --kill-monitor: periods are 1 to %u", s->periods);
    stop_on_signals();
    for (i = 0; i < NODE_CLIENTS_MAX; i++)
        door.fd[i] = -1;
    if (entry)
        door.group = entry->gr_gid;
    if (name) {
        stop_not_for_readers();
        door.listener = listen_as(name);
    }
    return serve(name != NULL);
}
