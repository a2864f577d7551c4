// compiler: mpicc
// links: -lmemcached -luring -lzmq -lcurl -ljson-c -pthread
// shares: cluster_agent
// flags: -D_GNU_SOURCE
// pshift_cluster: storage nodes with token schedulers, and the pShift controller, over MPI or as processes over ZeroMQ.
#include "cluster.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings settings = {
    .reserve = 0.6,
    .limit = 0,
    .buckets = 10,
    .intervals = 5,
    .active_max = 6,
    .window = 5,
    .seed = 1,
    .lead = 1,
    .headroom = 0.8,
    .profile_ns = 2 * QOS_NS_PER_S,
    .memcached = "memcached",
    .dir = ".",
    .port = 21311,
    .objects = 10000,
    .workers = 4,
    .size_bytes = UINT64_C(1) << 30,
    .keys = ".",
    .owner = "file:pshift.owner",
};

static uint64_t node_number(const char *text, const char *what)
{
    uint64_t node = 0;
    opt_check("--fault", what, text, opt_count(text, &node));
    if (node < 1 || node > settings.nodes)
        tool_die(TOOL_USAGE, "--fault %s: there is no node %" PRIu64, what, node);
    return node - 1;
}

/* kill:2@1.5s or stop:3@2.3s/400ms */
static void on_fault(const char *text)
{
    char *copy = tool_copy(text), *at = strchr(copy, '@'), *colon = strchr(copy, ':'), *slash = strchr(copy, '/');
    struct fault *f = &settings.fault[settings.faults];
    if (settings.faults == FAULTS_MAX)
        tool_die(TOOL_USAGE, "at most %d faults", FAULTS_MAX);
    if (!colon || !at || at < colon)
        tool_die(TOOL_USAGE, "--fault %s: write kill:NODE@TIME or stop:NODE@TIME/HOW-LONG", text);
    *colon = *at = 0;
    if (slash)
        *slash = 0;
    if (strcmp(copy, "kill") != 0 && strcmp(copy, "stop") != 0)
        tool_die(TOOL_USAGE, "--fault %s: kill or stop", text);
    f->kind = strcmp(copy, "stop") == 0 ? FAULT_STOP : FAULT_KILL;
    f->node = (uint32_t)node_number(colon + 1, text);
    opt_check("--fault", text, NULL, opt_time(at + 1, &f->at_ns));
    if (f->kind == FAULT_STOP && !slash)
        tool_die(TOOL_USAGE, "--fault %s: for how long? e.g. stop:3@2s/400ms", text);
    if (slash)
        opt_check("--fault", text, NULL, opt_time(slash + 1, &f->for_ns));
    settings.faults++;
    free(copy);
}

/* reserve=0.6,limit=1.2,on=1+3-5 */
static void on_bucket(const char *text)
{
    char *copy = tool_copy(text), *rest = copy, *key, *value;
    struct spec *s = &settings.spec[settings.specs];
    if (settings.specs == SPECS_MAX)
        tool_die(TOOL_USAGE, "at most %d buckets by --bucket", SPECS_MAX);
    while (opt_next_pair(&rest, &key, &value)) {
        if (!value)
            tool_die(TOOL_USAGE, "--bucket %s: %s needs a value", text, key);
        if (strcmp(key, "reserve") == 0)
            opt_check("--bucket", key, value, opt_real(value, &s->reserve));
        else if (strcmp(key, "limit") == 0)
            opt_check("--bucket", key, value, opt_real(value, &s->limit));
        else if (strcmp(key, "on") == 0 && strlen(value) < sizeof s->on)
            memcpy(s->on, value, strlen(value) + 1);
        else
            tool_die(TOOL_USAGE, "--bucket %s: reserve=, limit= and on= are known", text);
    }
    settings.specs++;
    free(copy);
}

static const char about[] =
    "storage nodes with token schedulers and the pShift controller, over MPI: rank 0 is the controller, "
    "each other rank a node with its own memcached or file. As processes without MPI: keys, node, controller";
static const char examples[] =
    "The paper's experiments (3 needs 5 ranks, 4 and 5 need 9):\n"
    "  mpirun -n 9 pshift_cluster --experiment 3,4,5 --figures figures --json result.json\n"
    "  mpirun -n 9 --hostfile hosts pshift_cluster --experiment 4 --profile     # one node on each host\n"
    "Free form: three buckets, the second one only on nodes 1 and 2; node 1's memcached is killed:\n"
    "  mpirun -n 5 pshift_cluster --bucket reserve=0.5,limit=1 --bucket reserve=0.3,on=1-2 \\\n"
    "      --bucket reserve=1 --fault kill:1@1.5s --periods 3\n"
    "As root, or with more ranks than cores, mpirun needs: --oversubscribe, and OMPI_ALLOW_RUN_AS_ROOT=1\n"
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 in the environment.\n"
    "Processes over ZeroMQ, which may die and come back. All get the same nodes, controllers and buckets:\n"
    "  cluster=\"--node-count 2 --controllers 10.0.0.1:7000,10.0.0.2:7000 --keys keys\"\n"
    "  pshift_cluster keys --node-count 2 --controllers 10.0.0.1:7000,10.0.0.2:7000 --keys keys\n"
    "  pshift_cluster controller --number 1 $cluster --buckets 4 --reserve 0.3 --limit 0.6 --owner file:p\n"
    "  pshift_cluster node --number 1 $cluster --buckets 4 --reserve 0.3 --limit 0.6\n"
    "With etcd, whose keys are the contracts and the members, memcached_gate and nginx as nodes:\n"
    "  pshift_cluster keys --name c1 --keys keys\n"
    "  pshift_cluster controller --name c1 --keys keys --cluster http://10.0.0.1:2379\n"
    "Exit status: 0 all promises kept, 1 not, 2 wrong usage, 3 inconclusive (the machine was too busy),\n"
    "130 stopped.\n";

static void parse(int argc, char **argv)
{
    const struct opt opts[] = {
        {"experiment", OPT_TEXT, &settings.experiment, "LIST", "the paper's: 3, 4, 5 or 3,4,5; default: free form",
         NULL},
        {"qos", OPT_CHOICE, &settings.mode, "both|with|without", "which runs; default both", NULL},
        {"backend", OPT_CHOICE, &settings.backend, "auto|memcached|file", "default: memcached; file for Experiment 5",
         NULL},
        {"capacity", OPT_COUNT, &settings.capacity, "N", "requests per second, of each node; default 2000 (file: 1000)",
         NULL},
        {"profile", OPT_FLAG, &settings.profile, NULL, "measure the capacity instead", NULL},
        {"headroom", OPT_REAL, &settings.headroom, "X", "of the measured capacity; default 0.8", NULL},
        {"profile-time", OPT_TIME, &settings.profile_ns, "TIME", "default 2s", NULL},
        {"periods", OPT_COUNT, &settings.periods, "N", "default 10 (Experiment 3), 4 (4), 2 (5), 4", NULL},
        {"period", OPT_TIME, &settings.period_ns, "TIME", "default 1s, Experiment 5: 5s", NULL},
        {"intervals", OPT_COUNT, &settings.intervals, "N", "token redistributions in a period; default 5", NULL},
        {"buckets", OPT_COUNT, &settings.buckets, "N", "free form: default 10", NULL},
        {"reserve", OPT_REAL, &settings.reserve, "X", "free form: of a node's capacity, each bucket; default 0.6",
         NULL},
        {"limit", OPT_REAL, &settings.limit, "X",
         "free form: of a node's capacity (open load: of the reservation); default none", NULL},
        {"bucket", OPT_EACH, NULL, "SPEC", "free form: reserve=X,limit=X,on=1+3-5; one for each of the first buckets",
         on_bucket},
        {"active-max", OPT_COUNT, &settings.active_max, "N",
         "free form: a bucket is active on two nodes to N; default 6", NULL},
        {"changes", OPT_COUNT, &settings.changes, "N", "free form: demand changes of a bucket in a period; default 0",
         NULL},
        {"load", OPT_CHOICE, &settings.load, "closed|open",
         "free form: outstanding requests, or arrivals at 1.5 times the reservation, Zipf", NULL},
        {"window", OPT_COUNT, &settings.window, "N", "outstanding requests of a bucket on a node; default 5", NULL},
        {"lead", OPT_REAL, &settings.lead, "X", "plan tokens to be spent X intervals before the end; default 1", NULL},
        {"seed", OPT_COUNT, &settings.seed, "N", "first to try; default 1", NULL},
        {"fault", OPT_EACH, NULL, "WHAT", "kill:NODE@TIME or stop:NODE@TIME/HOW-LONG of a memcached; with QoS only",
         on_fault},
        {"memcached", OPT_TEXT, &settings.memcached, "PATH", "default: memcached in PATH", NULL},
        {"port", OPT_COUNT, &settings.port, "N",
         "of node 1, the next one for node 2 ...; ports in use are skipped; default 21311", NULL},
        {"objects", OPT_COUNT, &settings.objects, "N", "of 4 KiB in each memcached; default 10000", NULL},
        {"workers", OPT_COUNT, &settings.workers, "N", "connections of a node to its memcached; default 4", NULL},
        {"dir", OPT_TEXT, &settings.dir, "DIR", "of the nodes' files; default .", NULL},
        {"size", OPT_SIZE, &settings.size_bytes, "SIZE", "of a node's file; default 1G", NULL},
        {"live", OPT_FLAG, &settings.live, NULL, "redraw a table of the buckets that lack most at each interval", NULL},
        {"json", OPT_TEXT, &settings.json, "FILE", "writes the results as JSON", NULL},
        {"figures", OPT_TEXT, &settings.figures, "DIR", "draws figures like the paper's 8, 9 and 10 there, as SVG",
         NULL},
        {"node-count", OPT_COUNT, &settings.node_count, "N", "keys, node, controller: nodes of the cluster", NULL},
        {"number", OPT_COUNT, &settings.number, "N", "node, controller: which one this is, from 1", NULL},
        {"controllers", OPT_TEXT, &settings.controllers, "LIST", "ADDRESS:PORT of each controller", NULL},
        {"owner", OPT_TEXT, &settings.owner, "file:PATH",
         "controller: the key that says who owns a period, the same for all on one host; default file:pshift.owner",
         NULL},
        CLUSTER_OPTIONS(settings.cluster),
        {"keys", OPT_TEXT, &settings.keys, "DIR", "of the keys; default .", NULL},
        {"journal", OPT_TEXT, &settings.journal, "FILE",
         "node: appends period, bucket and requests, before they are served", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    int i = opt_parse(argc, argv, opts, about, examples);
    if (i < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[i]);
}

static void range(const char *what, uint64_t value, uint64_t low, uint64_t high)
{
    if (value < low || value > high)
        tool_die(TOOL_USAGE, "--%s: from %" PRIu64 " to %" PRIu64, what, low, high);
}

static void check(void)
{
    uint32_t k;
    const char *e = settings.experiment;
    for (; e && *e; e++)
        if (!strchr("345,", *e))
            tool_die(TOOL_USAGE, "--experiment %s: 3, 4 or 5, or several: 3,4", settings.experiment);
    for (k = 0; k < settings.specs; k++)
        if (settings.spec[k].reserve < 0)
            tool_die(TOOL_USAGE, "--bucket: a reservation is not negative");
    settings.buckets = qos_max(settings.buckets, settings.specs);
    if (settings.specs && settings.specs < settings.buckets && settings.buckets == 10)
        settings.buckets = settings.specs;
    range("buckets", settings.buckets, 1, BUCKETS_MAX);
    range("intervals", settings.intervals, 1, 100);
    range("window", settings.window, 1, 1000);
    range("workers", settings.workers, 1, 32);
    range("objects", settings.objects, settings.buckets, 10000000);
    range("port", settings.port, 1024, 65000);
    range("active-max", settings.active_max, ACTIVE_MIN, NODES_MAX);
    if (settings.capacity)
        range("capacity", settings.capacity, 50, 10000000);
    if (settings.period_ns)
        range("period", settings.period_ns / 1000000, 50, 3600000);
    if (settings.size_bytes < 1 << 20 || settings.size_bytes % (1 << 20))
        tool_die(TOOL_USAGE, "--size: whole megabytes");
    if (settings.faults && settings.backend == BACKEND_FILE)
        tool_die(TOOL_USAGE, "--fault: of a memcached, not with --backend file");
    if (settings.reserve < 0 || settings.lead < 0 || settings.headroom <= 0 || settings.headroom > 1)
        tool_die(TOOL_USAGE, "--reserve and --lead are not negative, --headroom is above 0 and at most 1");
    if (settings.nodes < 1 || settings.nodes > NODES_MAX)
        tool_die(TOOL_USAGE, "one rank is the controller, each other one a node: mpirun -n 5 for 4 nodes");
    for (k = 0; k < scene_count(); k++) {
        struct scene s;
        scene_make(&s, k, settings.seed, settings.capacity);
        if (s.nodes > settings.nodes)
            tool_die(TOOL_USAGE, "Experiment %d has %u nodes: mpirun -n %u or more", s.experiment, s.nodes,
                     s.nodes + 1);
        scene_free(&s);
    }
}

/* Its own pair of keys, if it has none; prints the public one, for etcd. */
static int own_keys(void)
{
    char key[LINKS_KEY];
    if (!cluster_is_name(settings.cluster.name))
        tool_die(TOOL_USAGE, "--name: up to %d letters, digits, '.', '_' and '-'", CLUSTER_NAME - 1);
    if (!plot_mkdir(settings.keys))
        tool_die(TOOL_FAILED, "%s: cannot be created", settings.keys);
    (void)links_make_keys(settings.keys, settings.cluster.name);
    links_read_key(key, settings.keys, settings.cluster.name, "public");
    puts(key);
    return TOOL_OK;
}

/* A process without MPI. */
static int serve(const char *role, int argc, char **argv)
{
    uint32_t k;
    for (k = 1; k < (uint32_t)argc; k++) /* first: --fault and --bucket name nodes */
        if (strcmp(argv[k], "--node-count") == 0 && k + 1 < (uint32_t)argc)
            opt_check("--node-count", argv[k + 1], NULL, opt_count(argv[k + 1], &settings.node_count));
    settings.nodes = (uint32_t)qos_min(settings.node_count, NODES_MAX + 1);
    settings.mode = QOS_WITH;
    parse(argc, argv);
    settings.cluster.keys = settings.keys;
    if (settings.cluster.name && strcmp(role, "keys") == 0)
        return own_keys();
    if (settings.cluster.endpoints) {
        if (strcmp(role, "controller") != 0 || !settings.cluster.name || settings.node_count || settings.controllers ||
            settings.specs)
            tool_die(TOOL_USAGE,
                     "--cluster: controller --name NAME --keys DIR; contracts, servers and controllers are in etcd");
        stop_on_signals();
        stop_not_for_readers();
        controller_serve();
        return TOOL_OK;
    }
    if (settings.nodes < 1 || settings.nodes > NODES_MAX)
        tool_die(TOOL_USAGE, "--node-count: from 1 to %d", NODES_MAX);
    if (!settings.controllers)
        tool_die(TOOL_USAGE, "--controllers: the address and port of each controller");
    if (settings.experiment || settings.faults || settings.profile || settings.changes)
        tool_die(TOOL_USAGE, "--experiment, --fault, --profile and --changes are for runs over MPI");
    if (strcmp(role, "keys") == 0)
        return zmq_make_keys();
    settings.mode = QOS_WITH;
    check();
    if (settings.number < 1 || settings.number > (strcmp(role, "node") == 0 ? settings.nodes : CONTROLLERS_MAX))
        tool_die(TOOL_USAGE, "--number: which %s this is, from 1", role);
    stop_on_signals();
    stop_not_for_readers();
    if (strcmp(role, "node") == 0)
        node_serve();
    else
        controller_serve();
    return TOOL_OK;
}

int main(int argc, char **argv)
{
    int i, said_to = -1, null, status;
    if (argc > 1 &&
        (strcmp(argv[1], "node") == 0 || strcmp(argv[1], "controller") == 0 || strcmp(argv[1], "keys") == 0)) {
        const char *role = argv[1];
        argv[1] = argv[0];
        return serve(role, argc - 1, argv + 1);
    }
    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            parse(argc, argv); /* without MPI: also outside of mpirun */
    mail_open(&argc, &argv);
    if (mail_rank() != 0) { /* only one rank reports errors in the options */
        said_to = dup(STDERR_FILENO);
        null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        close(null);
    }
    settings.nodes = (uint32_t)mail_ranks() - 1;
    parse(argc, argv);
    check();
    if (mail_rank() != 0) {
        dup2(said_to, STDERR_FILENO);
        close(said_to);
    }
    stop_on_signals();
    if (mail_rank() != 0) {
        node_main();
        return TOOL_OK;
    }
    if (settings.figures && !plot_mkdir(settings.figures))
        tool_die(TOOL_FAILED, "%s: cannot be created", settings.figures);
    status = controller_main();
    return status;
}
