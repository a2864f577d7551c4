/* twochoice_mpi - object servers and compute nodes over MPI: burst writes placed by two choices, redirects that survive
 * a crash, a maintainer that pulls bytes home. See twochoice_mpi.h for the parts. */
// compiler: mpicc
// links: -luring
// flags: -D_GNU_SOURCE
#include "twochoice_mpi.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct settings settings = {
    .servers = 4,
    .procs = 4,
    .dir = "twochoice_objects",
    .schedulers = "fixed,dynamic,informed",
    .seed = 1,
    .probe_timeout_ns = 100000000,
    .fragments = TWOCHOICE_MAX_FRAGMENTS,
    .idle_ns = 100000000,
};

static const struct command {
    const char *name;
    int (*run)(void);
    bool lasting; /* a command that keeps its objects */
    uint64_t write_bytes, per_process, rounds;
    const char *what;
} commands[] = {
    {"burst", workload_burst, false, 256 << 10, 4 << 20, 1, "all write at once; completion times (Figure 14)"},
    {"mix", workload_mix, false, 128 << 10, 1 << 20, 1, "21 applications of three sizes (Table II, Figure 13)"},
    {"probe", workload_probe, false, 1 << 20, 0, 100, "how long probes take, for 1 to all nodes (Figure 11)"},
    {"delay", workload_delay, false, 4 << 20, 0, 5, "what probing adds to writes of 1, 2 and 4 MiB (Table I)"},
    {"table", workload_table, false, 256 << 10, 8 << 20, 1, "length and times of the redirect table (Figure 12)"},
    {"stress", workload_stress, true, 128 << 10, 4 << 20, 1, "random writes with a journal, until stopped or killed"},
    {"verify", workload_verify, true, 128 << 10, 4 << 20, 1, "reads back what the journals say was acknowledged"},
    {"list", workload_list, true, 0, 0, 1, "redirects by age"},
    {"check", workload_check, true, 0, 0, 1, "compares table, log and data of every server"},
    {"drain", workload_drain, true, 0, 0, 1, "pulls everything home"},
};
static const struct command *command;
#define LEAVE_US 300000u

/* ---- traces and pids ------------------------------------------------------------------------------------- */

static int trace_fd = -1;

static int open_in(const char *dir, const char *who, uint32_t number, const char *suffix, int flags)
{
    char path[600];
    int fd;
    snprintf(path, sizeof path, "%s/%s-%u.%s", dir, who, number, suffix);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        tool_die(TOOL_FAILED, "%s: %s", path, strerror(errno));
    return fd;
}

void trace_open(const char *who, uint32_t number)
{
    if (settings.trace)
        trace_fd = open_in(settings.trace, who, number, "trace", O_APPEND);
}

void trace_line(const char *what, uint64_t write_number)
{
    char line[80];
    int n;
    if (trace_fd < 0)
        return;
    n = snprintf(line, sizeof line, "%s %" PRIu64 " %" PRIu64 "\n", what, write_number, tool_now_ns());
    if (write(trace_fd, line, (size_t)n) != n)
        tool_die(TOOL_FAILED, "trace: %s", strerror(errno));
}

void pids_write(const char *who, uint32_t number)
{
    char stat[1024] = "", line[64], *at;
    int fd, i, n;
    ssize_t got;
    if (!settings.pids)
        return;
    fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    got = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0)
        close(fd);
    at = got > 0 ? strrchr(stat, ')') : NULL; /* field 2 may hold anything; field 22 is the start time */
    for (i = 2; at && i < 22; i++)
        at = strchr(at + 1, ' ');
    n = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), at ? strtok(at, " ") : "0");
    fd = open_in(settings.pids, who, number, "pid", O_TRUNC);
    if (write(fd, line, (size_t)n) != n)
        tool_die(TOOL_FAILED, "%s: %s", settings.pids, strerror(errno));
    close(fd);
}

/* ---- options --------------------------------------------------------------------------------------------- */

static const struct opt options[] = {
    {"servers", OPT_COUNT, &settings.servers, "N", "ranks 0..N-1 are object servers, the others compute nodes (4)",
     NULL},
    {"dir", OPT_TEXT, &settings.dir, "PATH",
     "objects; % becomes a server's number, without it they go to PATH/serverN (twochoice_objects)", NULL},
    {"procs", OPT_COUNT, &settings.procs, "N", "processes on each compute node (4)", NULL},
    {"k", OPT_COUNT, &settings.k, "N", "most writes that one decision places (as many as processes)", NULL},
    {"schedulers", OPT_TEXT, &settings.schedulers, "LIST",
     "of fixed, random, native, dynamic, informed (fixed,dynamic,informed)", NULL},
    {"write", OPT_SIZE, &settings.write_bytes, "SIZE", "of each write (by command)", NULL},
    {"per-process", OPT_SIZE, &settings.per_process, "SIZE", "that each process writes (by command)", NULL},
    {"object", OPT_SIZE, &settings.object_bytes, "SIZE", "largest object (1M): a file is cut into objects of this size",
     NULL},
    {"part", OPT_SIZE, &settings.part_bytes, "SIZE", "most that goes to a server at once (as --write)", NULL},
    {"rounds", OPT_COUNT, &settings.rounds, "N", "probe, delay: repetitions (by command)", NULL},
    {"run", OPT_TIME, &settings.run_ns, "TIME", "stress: ends after this time (until stopped)", NULL},
    {"rate", OPT_RATE, &settings.rate, "RATE", "a device's rate: data is answered no faster (as the disk does)", NULL},
    {"slow", OPT_TEXT, &settings.slow, "S[:FACTOR]", "server S has a device slower by FACTOR (5); needs --rate", NULL},
    {"probe-timeout", OPT_TIME, &settings.probe_timeout_ns, "TIME",
     "a server that has not answered by then counts as down (100ms)", NULL},
    {"fragments", OPT_COUNT, &settings.fragments, "N", "most redirects that a server records (65536)", NULL},
    {"log", OPT_SIZE, &settings.log_bytes, "SIZE", "of a server's redirect log (96 bytes x fragments)", NULL},
    {"recover", OPT_FLAG, &settings.recover, NULL,
     "continue with the contents of the directories, after a stop or a crash", NULL},
    {"accept-prefix", OPT_FLAG, &settings.accept_prefix, NULL, "with --recover: a damaged log is used up to the damage",
     NULL},
    {"journal", OPT_TEXT, &settings.journal, "DIR", "stress, verify: journals of acknowledged writes", NULL},
    {"shared", OPT_FLAG, &settings.shared, NULL, "stress, verify: all nodes write to the same bytes", NULL},
    {"no-pull", OPT_FLAG, &settings.no_pull, NULL, "the maintainers pull nothing", NULL},
    {"idle", OPT_TIME, &settings.idle_ns, "TIME", "a server must have been idle for this time (100ms)", NULL},
    {"idle-load", OPT_SIZE, &settings.idle_load, "SIZE", "a server is idle up to this load (0)", NULL},
    {"verify", OPT_FLAG, &settings.verify, NULL, "burst: reads everything back and compares", NULL},
    {"seed", OPT_COUNT, &settings.seed, "N", "of all draws (1)", NULL},
    {"json", OPT_TEXT, &settings.json, "FILE", "results as JSON", NULL},
    {"figures", OPT_TEXT, &settings.figures, "DIR", "the paper's figure as SVG", NULL},
    {"progress", OPT_FLAG, &settings.progress, NULL, "a live line, also when stderr is no terminal", NULL},
    {"pids", OPT_TEXT, &settings.pids, "DIR", "every process writes its pid and start time there", NULL},
    {"trace", OPT_TEXT, &settings.trace, "DIR",
     "every process writes there when data, records and answers were durable", NULL},
    {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
};

static void usage(FILE *f)
{
    size_t i;
    fprintf(f, "usage: mpirun -n RANKS [--hostfile HOSTS] twochoice_mpi COMMAND [options]\n\n");
    for (i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(f, "  %-8s %s\n", commands[i].name, commands[i].what);
    fprintf(f, "\ntwochoice_mpi COMMAND --help lists the options. The first --servers ranks are object servers, each\n"
               "with a directory of its own on its host; they need not share one.\n");
}

static void check_range(const char *name, uint64_t value, uint64_t least, uint64_t most)
{
    if (value < least || value > most)
        tool_die(TOOL_USAGE, "--%s: %" PRIu64 " is not within %" PRIu64 "..%" PRIu64, name, value, least, most);
}

static void read_slow(void)
{
    char *end;
    uint64_t of;
    settings.server = UINT32_MAX;
    settings.slow_by = 5;
    if (!settings.slow)
        return;
    of = strtoull(settings.slow, &end, 10);
    if (end == settings.slow || (*end && *end != ':') || of >= settings.servers ||
        (*end && (settings.slow_by = strtoull(end + 1, &end, 10)) == 0) || *end)
        tool_die(TOOL_USAGE, "--slow=%s: write a server, or a server and a factor: 0:5", settings.slow);
    if (!settings.rate)
        tool_die(TOOL_USAGE, "--slow needs --rate: a device's own rate is not known");
    settings.server = (uint32_t)of;
}

static void read_options(int argc, char **argv)
{
    static char name[32];
    size_t i;
    int at;
    tool_set_name("twochoice_mpi");
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        usage(argc < 2 ? stderr : stdout);
        exit(argc < 2 ? TOOL_USAGE : TOOL_OK);
    }
    for (i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            command = &commands[i];
    if (!command) {
        usage(stderr);
        tool_die(TOOL_USAGE, "%s: no such command", argv[1]);
    }
    settings.write_bytes = command->write_bytes;
    settings.per_process = command->per_process;
    settings.rounds = command->rounds;
    settings.command = command->name;
    snprintf(name, sizeof name, "twochoice_mpi %s", command->name);
    argv[1] = name;
    at = opt_parse(argc - 1, argv + 1, options, command->what,
                   "mpirun -n 8 twochoice_mpi burst --servers 4 --rate 50M --slow 0\n");
    tool_set_name("twochoice_mpi");
    if (at < argc - 1)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[at + 1]);
    settings.pull = !settings.no_pull;
    settings.keep = command->lasting;
    if (!settings.part_bytes)
        settings.part_bytes = settings.write_bytes ? settings.write_bytes : 1 << 20;
    if (!settings.object_bytes)
        settings.object_bytes = command->run == workload_delay ? settings.part_bytes : 1 << 20;
    if (!settings.k)
        settings.k = command->run == workload_delay ? 8 : settings.procs;
    if (!settings.log_bytes)
        settings.log_bytes = 2 * TWOCHOICE_RECORD_BYTES * (settings.fragments + 2);
    check_range("servers", settings.servers, 1, SERVERS_MAX);
    check_range("procs", settings.procs, 1, 4096);
    check_range("k", settings.k, 1, 4096);
    check_range("part", settings.part_bytes, 1, 64 << 20);
    check_range("object", settings.object_bytes, 1, UINT64_C(1) << 40);
    check_range("fragments", settings.fragments, 2, 1 << 26);
    check_range("log", settings.log_bytes, 2 * TWOCHOICE_RECORD_BYTES * (settings.fragments + 2), UINT64_C(1) << 40);
    read_slow();
}

/* ---- two processes for every rank ------------------------------------------------------------------------ */

static void become_server(uint32_t number)
{
    static char dir[500];
    const char *percent = strchr(settings.dir, '%');
    settings.own_rate = settings.rate;
    if (settings.slow && settings.server == number)
        settings.own_rate = qos_max(settings.rate / settings.slow_by, 1);
    settings.server = number;
    if (percent)
        snprintf(dir, sizeof dir, "%.*s%u%s", (int)(percent - settings.dir), settings.dir, number, percent + 1);
    else
        snprintf(dir, sizeof dir, "%s/server%u", settings.dir, number);
    settings.dir = dir;
}

/* The I/O process learns which rank it belongs to, and whether that is a server. */
_Noreturn static void io_process(int fd, struct shared *shared, uint8_t *buffers)
{
    struct job role;
    int got;
    while ((got = job_receive(fd, &role)) == 0)
        link_nap(300, fd);
    if (got < 0)
        _exit(TOOL_OK);
    become_server((uint32_t)role.cookie);
    store_main(fd, shared, buffers);
}

static int serve(uint32_t number, int fd, struct shared *shared, uint8_t *buffers, pid_t io)
{
    struct job role;
    memset(&role, 0, sizeof role);
    role.cookie = number;
    become_server(number);
    if (!job_send(fd, &role, true))
        tool_warn("server %u: its I/O process does not listen", number);
    return server_main(fd, shared, buffers, io);
}

static int compute(int rank, int ranks)
{
    int status;
    trace_open("rank", (uint32_t)rank);
    client_open(rank, (uint32_t)settings.servers);
    nodes_open(rank, ranks);
    if (settings.recover)
        nodes_tell(OP_SWEEP, 0, NULL);
    if (command->run != workload_stress &&
        command->run != workload_verify) /* they read first, while the maintainers wait */
        nodes_tell(OP_GO, 0, NULL);
    nodes_barrier();
    status = command->run();
    client_finish();
    nodes_barrier();
    nodes_stop();
    return stop_asked() ? TOOL_STOPPED : status;
}

int main(int argc, char **argv)
{
    const char *of_mpi = getenv("OMPI_COMM_WORLD_RANK");
    uint8_t *buffers;
    struct shared *shared;
    size_t bytes;
    int pair[2], rank, ranks, status;
    pid_t io;
    if (of_mpi && strcmp(of_mpi, "0") != 0) { /* only one rank prints what is wrong with the options */
        int error = dup(2), out = dup(1), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, 1);
        dup2(null, 2);
        read_options(argc, argv);
        dup2(out, 1);
        dup2(error, 2);
        close(out);
        close(error);
        close(null);
    } else {
        read_options(argc, argv);
    }
    bytes = (size_t)((SERVER_BUFFERS + STORE_BUFFERS) * settings.part_bytes);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    buffers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED || buffers == MAP_FAILED)
        tool_die(TOOL_FAILED, "%zu bytes of shared memory: %s", bytes, strerror(errno));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        tool_die(TOOL_FAILED, "socketpair: %s", strerror(errno));
    fflush(NULL);
    io = fork(); /* before MPI starts */
    if (io < 0)
        tool_die(TOOL_FAILED, "fork: %s", strerror(errno));
    /* Written at once, as the job may be killed while MPI starts. A rank that has no number from MPI uses its pid. */
    pids_write(io ? "rank" : "io", of_mpi ? (uint32_t)strtoul(of_mpi, NULL, 10) : (uint32_t)getpid());
    if (io == 0) {
        close(pair[0]);
        io_process(pair[1], shared, buffers);
    }
    close(pair[1]);
    link_open(&argc, &argv, &rank, &ranks);
    stop_on_signals();
    if ((uint64_t)ranks <= settings.servers) {
        if (rank == 0)
            tool_warn("%d ranks are %" PRIu64 " servers and no compute node: mpirun -n %" PRIu64 " or more", ranks,
                      settings.servers, settings.servers + 1);
        link_close();
        return TOOL_USAGE;
    }
    link_split((uint64_t)rank >= settings.servers);
    if ((uint64_t)rank < settings.servers) {
        status = serve((uint32_t)rank, pair[0], shared, buffers, io);
    } else {
        close(pair[0]);
        waitpid(io, NULL, 0);
        munmap(buffers, bytes);
        status = compute(rank, ranks);
    }
    link_close();
    if (status != TOOL_OK) /* mpirun kills the others as soon as one fails: gives them time to remove shared memory */
        usleep(LEAVE_US);
    return status;
}
