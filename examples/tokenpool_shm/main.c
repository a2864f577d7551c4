/* tokenpool_shm - Haechi over POSIX shared memory: a monitor and clients as processes that read records one-sidedly.
 *
 * This process supervises: it starts them, kills whom it is told to kill with SIGKILL, replaces a monitor that died, and
 * prints the table. The transport is a mapping: operations are CPU atomics, a read is a copy. */
// links: -lrt
#define _GNU_SOURCE
#include "examples/tokenpool_common/node.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct shm_link {
    struct node_link link;
    void *region;
};

static bool shm_op(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer)
{
    *answer = tokenpool_storage_run(((struct shm_link *)l)->region, op);
    return true;
}

static bool shm_read(struct node_link *l, uint64_t offset, void *to, uint32_t bytes)
{
    memcpy(to, (const char *)((struct shm_link *)l)->region + offset, bytes);
    return true;
}

static void shm_idle(struct node_link *l, uint64_t until_ns)
{
    (void)l;
    if (until_ns > tool_now_ns())
        tool_sleep_until_ns(until_ns);
    else
        sched_yield();
}

static struct shm_link shm = {.link = {.op = shm_op, .read = shm_read, .idle = shm_idle}};
static struct node_log *shm_log;

static pid_t start(bool monitor, uint32_t id, bool resume)
{
    const pid_t supervisor = getpid();
    pid_t p = fork();
    if (p < 0)
        tool_die(TOOL_FAILED, "fork: %s", strerror(errno));
    if (p > 0)
        return p;
    /* Whatever kills the supervisor: nobody goes on alone. */
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

int main(int argc, char **argv)
{
    static uint64_t kill_client = UINT64_MAX, kill_monitor, kill_at = 4;
    const struct opt opts[] = {
        NODE_OPTIONS,
        {"kill-client", OPT_COUNT, &kill_client, "N", "SIGKILL to this client", NULL},
        {"kill-at", OPT_COUNT, &kill_at, "PERIOD", "in the middle of this period; default 4", NULL},
        {"kill-monitor", OPT_COUNT, &kill_monitor, "PERIOD", "SIGKILL to the monitor then; another takes over", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    struct node_setup *s = &node_options;
    char name[64];
    pid_t monitor, client[NODE_CLIENTS_MAX];
    uint32_t i, dead = UINT32_MAX, living;
    uint64_t half_ns = 0;
    size_t bytes;
    bool ok = true, replaced = false;
    int fd;
    struct node_verdict v;
    i = (uint32_t)opt_parse(argc, argv, opts,
                            "Clients read 4 KiB records of a table in shared memory; tokens decide how many.",
                            "tokenpool_shm --periods 20\ntokenpool_shm --kill-client 1 --kill-at 4 --json out.json\n");
    if ((int)i < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[i]);
    node_check_options();
    if (kill_client != UINT64_MAX && kill_client >= s->clients)
        tool_die(TOOL_USAGE, "--kill-client %" PRIu64 ": clients are 0 to %u", kill_client, s->clients - 1);
    if (kill_at < 1 || (kill_client != UINT64_MAX && kill_at > s->periods) || kill_monitor > s->periods)
        tool_die(TOOL_USAGE, "--kill-at and --kill-monitor: periods are 1 to %u", s->periods);
    stop_on_signals();
    bytes = (size_t)(node_bytes(s) + sizeof(struct node_log));
    snprintf(name, sizeof name, "/qoskit-tokenpool-%ld", (long)getpid());
    fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        tool_die(TOOL_FAILED, "shared memory of %zu bytes: %s", bytes, strerror(errno));
    shm.region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shm_unlink(name); /* the mapping lives on; nothing is left behind, however this ends */
    close(fd);
    if (shm.region == MAP_FAILED)
        tool_die(TOOL_FAILED, "mmap of %zu bytes: %s", bytes, strerror(errno));
    node_fill(s, shm.region);
    shm_log = (struct node_log *)(void *)((char *)shm.region + node_bytes(s));
    memset(shm_log, 0, sizeof *shm_log);
    monitor = start(true, 0, false);
    for (i = 0; i < s->clients; i++)
        client[i] = start(false, i, false);
    living = s->clients;
    while (living > 0) {
        int status;
        pid_t p = waitpid(-1, &status, WNOHANG);
        uint64_t epoch = epoch_now(), now_ns = tool_now_ns();
        if (stop_asked())
            node_set_phase(s, shm.region, NODE_STOP);
        if (kill_client < s->clients && dead == UINT32_MAX && epoch == kill_at) {
            half_ns = half_ns ? half_ns : now_ns + s->period_ns / 2;
            if (now_ns >= half_ns) {
                dead = (uint32_t)kill_client;
                kill(client[dead], SIGKILL);
                printf("killed client %u in the middle of period %" PRIu64 "\n", dead, epoch);
            }
        }
        if (kill_monitor && !replaced && epoch == kill_monitor) {
            tool_sleep_until_ns(now_ns + s->period_ns / 3);
            kill(monitor, SIGKILL);
            waitpid(monitor, NULL, 0);
            printf("killed the monitor in period %" PRIu64 "; another takes over\n", epoch);
            fflush(stdout);
            replaced = true;
            monitor = start(true, 0, true);
        }
        if (p > 0 && p != monitor) {
            living--;
            ok = ok && ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (dead < s->clients && p == client[dead]));
        } else if (p == monitor) {
            ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            if (!ok)
                node_set_phase(s, shm.region, NODE_STOP);
        } else if (p == 0) {
            tool_sleep_until_ns(now_ns + 1000000);
        }
    }
    kill(monitor, SIGTERM);
    waitpid(monitor, NULL, 0);
    v = node_report(s, shm.region, shm_log, dead, kill_at, node_json, node_figures, "tokenpool_shm");
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
