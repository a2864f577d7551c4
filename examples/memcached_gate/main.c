// links: -lzmq -lcurl -ljson-c -pthread
// shares: cluster_agent
// flags: -D_GNU_SOURCE
// memcached_gate: a proxy for memcached that gives its buckets reservations, limits and weights.
#include "gate.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct gate_settings defaults = {
    .memcached = "127.0.0.1:11211",
    .clients_max = 10000,
    .connections_max = 1000,
    .depth = 128,
    .memory_bytes = UINT64_C(1) << 30,
    .value_bytes_max = UINT64_C(1) << 20,
    .burst_ns = 20000000,
    .timeout_ns = 2 * QOS_NS_PER_S,
    .drain_ns = 5 * QOS_NS_PER_S,
    .patience_ns = 20 * QOS_NS_PER_S,
};
struct gate_settings gate_settings;

static const char *settings_file;
static bool check_only;
static const char *where_now = ""; /* file and line */
static const char *listen_at[LISTENERS_MAX];
static uint32_t listens;

static void on_listen(const char *text)
{
    if (listens == LISTENERS_MAX)
        tool_die(TOOL_USAGE, "--listen: at most %d", LISTENERS_MAX);
    listen_at[listens++] = text;
}

/* 10.1.0.0/16, ::1 */
static const char *network(const char *text, struct bucket_spec *s)
{
    char address[64];
    const char *slash = strchr(text, '/');
    uint64_t most = strchr(text, ':') ? 128 : 32, bits = most;
    memset(s->from, 0, sizeof s->from);
    snprintf(address, sizeof address, "%.*s", slash ? (int)(slash - text) : (int)strlen(text), text);
    if (most == 32)
        memset(s->from + 10, 0xff, 2);
    if (inet_pton(most == 32 ? AF_INET : AF_INET6, address, most == 32 ? s->from + 12 : s->from) != 1 ||
        (slash && !protocol_number(slash + 1, strlen(slash + 1), most, &bits)))
        return "not an address or a network; write e.g. 10.1.0.0/16";
    s->from_bits = (uint32_t)(bits + 128 - most);
    s->has_from = true;
    return NULL;
}

static const char *text_of(const char *text, char *to, size_t size)
{
    const char *at;
    if (!*text || strlen(text) >= size)
        return "1 to 63 characters for a name, 1 to 250 for a key";
    for (at = text; *at; at++)
        if (!isgraph((unsigned char)*at) || *at == '"')
            return "printable characters without spaces";
    snprintf(to, size, "%s", text);
    return NULL;
}

static const char *setting(struct bucket_spec *s, const char *key, const char *value)
{
    const char *wrong;
    if (strcmp(key, "name") == 0)
        return text_of(value, s->name, sizeof s->name);
    if (strcmp(key, "key") == 0)
        return text_of(value, s->prefix, sizeof s->prefix);
    if (strcmp(key, "from") == 0)
        return network(value, s);
    if (strcmp(key, "port") == 0) {
        wrong = opt_count(value, &s->port);
        return wrong || (s->port >= 1 && s->port <= 65535) ? wrong : "1 to 65535";
    }
    if (strcmp(key, "reserve") == 0)
        return opt_count(value, &s->terms.reservation_per_s);
    if (strcmp(key, "limit") == 0)
        return opt_count(value, &s->terms.limit_per_s);
    if (strcmp(key, "weight") == 0) {
        wrong = opt_count(value, &s->terms.weight);
        return wrong || s->terms.weight ? wrong : "1 or more";
    }
    return "not a setting; name, key, port, from, reserve, limit and weight are";
}

static void on_bucket(const char *text)
{
    char *copy = tool_copy(text), *rest = copy, *key, *value;
    struct bucket_spec *s = &bucket_spec[bucket_count];
    uint32_t k;
    if (bucket_count == BUCKETS_LIMIT - 1)
        tool_die(TOOL_USAGE, "--bucket: at most %d", BUCKETS_LIMIT - 1);
    while (opt_next_pair(&rest, &key, &value)) {
        if (!value)
            tool_die(TOOL_USAGE, "--bucket %s: %s needs a value", text, key);
        opt_check("--bucket", key, value, setting(s, key, value));
    }
    if (!s->name[0])
        tool_die(TOOL_USAGE, "--bucket %s: name= is missing", text);
    for (k = 0; k < bucket_count; k++)
        if (strcmp(bucket_spec[k].name, s->name) == 0 ||
            (s->prefix[0] && strcmp(bucket_spec[k].prefix, s->prefix) == 0) ||
            (s->port && bucket_spec[k].port == s->port))
            tool_die(TOOL_USAGE, "--bucket %s: bucket %s has this name, key or port", text, bucket_spec[k].name);
    if (s->terms.limit_per_s && s->terms.limit_per_s < s->terms.reservation_per_s)
        opt_check("--bucket", s->name, NULL, "limit= is below reserve=: give at least as much, or no limit=");
    opt_check("--bucket", s->name, NULL, tags_client_error(&s->terms));
    snprintf(s->where, sizeof s->where, *where_now ? "%.120s:" : "%s", where_now);
    bucket_count++;
    free(copy);
}

static const struct opt opts[] = {
    {"listen", OPT_EACH, NULL, "ADDRESS",
     "for clients: ADDRESS:PORT, or the path of a socket; may be repeated; default 127.0.0.1:11311", on_listen},
    {"memcached", OPT_TEXT, &gate_settings.memcached, "ADDRESS",
     "ADDRESS:PORT, or the path of a socket; default 127.0.0.1:11211", NULL},
    {"bucket", OPT_EACH, NULL, "SPEC",
     "name=NAME, then key=PREFIX, port=PORT or from=ADDRESS[/BITS], and reserve=N, limit=N (requests per second), "
     "weight=N. The longest key prefix decides, else the port, else the narrowest network. With a port or an address "
     "too, a prefix is for these connections only. A bucket with only a name gets all other requests",
     on_bucket},
    {"settings", OPT_TEXT, &settings_file, "FILE",
     "options, one in a line without the dashes: bucket name=a,key=a:", NULL},
    {"policy", OPT_CHOICE, &gate_settings.policy, "ps|reward",
     "what weights share: requests, or memcached's time; default ps", NULL},
    {"depth", OPT_COUNT, &gate_settings.depth, "N", "requests at memcached at a time; default 128", NULL},
    {"burst", OPT_TIME, &gate_settings.burst_ns, "TIME", "unused limit that is kept; default 20ms", NULL},
    {"threads", OPT_COUNT, &gate_settings.threads, "N", "default: one for each core, if --connections allows it", NULL},
    {"clients", OPT_COUNT, &gate_settings.clients_max, "N",
     "most connections; with ports or addresses, a bucket has at most as many as are free; default 10000", NULL},
    {"connections", OPT_COUNT, &gate_settings.connections_max, "N",
     "most connections to memcached: one for each thread and bucket; keep it below memcached's own -c, which is 1024; "
     "default 1000",
     NULL},
    {"memory", OPT_SIZE, &gate_settings.memory_bytes, "SIZE",
     "for requests and replies above 8 KiB, in equal parts for the buckets; default 1G", NULL},
    {"value", OPT_SIZE, &gate_settings.value_bytes_max, "SIZE", "largest value; default 1M, as memcached's -I", NULL},
    {"timeout", OPT_TIME, &gate_settings.timeout_ns, "TIME",
     "memcached counts as dead after this time without an answer; default 2s", NULL},
    {"patience", OPT_TIME, &gate_settings.patience_ns, "TIME",
     "a client that leaves a request unfinished for this time, and a second for each 128 KiB of it, or takes nothing "
     "of its replies "
     "for three times as long, is closed; default 20s",
     NULL},
    {"idle", OPT_TIME, &gate_settings.idle_ns, "TIME",
     "a client that asks for nothing for this time is closed; default: never", NULL},
    {"drain", OPT_TIME, &gate_settings.drain_ns, "TIME",
     "on SIGTERM clients get what they have asked for, for this time at most; default 5s", NULL},
    {"check", OPT_FLAG, &check_only, NULL, "says whether the settings are right, and ends", NULL},
    {"allow-flush", OPT_FLAG, &gate_settings.allow_flush, NULL,
     "clients may flush_all, and change settings of memcached, though there are several buckets", NULL},
    {"metrics", OPT_TEXT, &gate_settings.metrics, "ADDRESS:PORT", "serves statistics for Prometheus at /metrics", NULL},
    {"stats", OPT_TEXT, &gate_settings.stats_file, "FILE", "written every second, for Prometheus", NULL},
    {"capacity", OPT_COUNT, &gate_cluster.capacity, "N",
     "requests per second that memcached sustains; reservations must fit; default: not known", NULL},
    CLUSTER_OPTIONS(gate_cluster.options),
    {"keys", OPT_TEXT, &gate_cluster.options.keys, "DIR", "with --cluster: of NAME.secret, by `pshift_cluster keys`",
     NULL},
    {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
};
static const char about[] = "a proxy beside memcached that gives its buckets (key prefixes, ports or client addresses) "
                            "reservations, limits and "
                            "weights. Clients speak the text protocol to it; `stats qos` shows what each bucket got";
static const char examples[] =
    "Reserve 20,000 requests per second for keys that begin with gold:\n"
    "  memcached_gate --bucket name=gold,key=gold:,reserve=20k --bucket name=bulk,key=bulk:,limit=50k\n"
    "With a cluster, reservations and limits hold over all hosts: see examples/README.md.\n"
    "Exit status: 0 stopped, 1 failed, 2 wrong usage.\n";

/* The file's text, so that what a child process has found good is what is used; NULL and errno: it cannot be read. */
static char *text_of_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), error;
    size_t bytes = 0;
    ssize_t n = -1;
    char *text = NULL;
    while (fd >= 0) {
        text = tool_grow(text, bytes + 65536);
        n = read(fd, text + bytes, 65535);
        if (n <= 0)
            break;
        bytes += (size_t)n;
    }
    error = errno;
    if (fd >= 0)
        close(fd);
    if (n == 0) {
        text[bytes] = 0;
        return text;
    }
    free(text);
    errno = error;
    return NULL;
}

/* Errors name the file and the line. */
static void read_settings(const char *path, char *text)
{
    char where[300], *line;
    unsigned number = 0;
    while ((line = strsep(&text, "\n")) != NULL) {
        char *name = line + strspn(line, " \t"), *value, *end, option[64];
        char *argv[4] = {where, option, NULL, NULL};
        snprintf(where, sizeof where, "%.250s:%u", path, ++number);
        name[strcspn(name, "\r")] = 0;
        if (!*name || *name == '#')
            continue;
        value = name + strcspn(name, " \t");
        if (*value)
            *value++ = 0;
        value += strspn(value, " \t");
        for (end = value + strlen(value); end > value && isspace((unsigned char)end[-1]);)
            *--end = 0;
        snprintf(option, sizeof option, "--%s", name);
        argv[2] = *value ? value : NULL;
        where_now = where;
        (void)opt_parse(*value ? 3 : 2, argv, opts, about, NULL);
    }
    where_now = "";
}

static void range(const char *what, uint64_t value, uint64_t low, uint64_t high, const char *text)
{
    if (value < low || value > high)
        tool_die(TOOL_USAGE, "--%s: from %s", what, text);
}

/* Addresses are right, and ports of buckets have one. */
static void check_addresses(void)
{
    const char *first = gate_address ? gate_address : listen_at[0];
    struct sockaddr_storage address;
    uint32_t k, ports = listens;
    for (k = 0; k < listens; k++)
        (void)gate_address_of("--listen", listen_at[k], &address);
    (void)gate_address_of("--memcached", gate_settings.memcached, &address);
    if (gate_settings.metrics)
        (void)gate_address_of("--metrics", gate_settings.metrics, &address);
    for (k = 0; k < bucket_count; k++) {
        ports += bucket_spec[k].port != 0;
        if (bucket_spec[k].port && first[0] == '/')
            tool_die(TOOL_USAGE, "--bucket %s: port= needs ADDRESS:PORT as the first --listen", bucket_spec[k].name);
    }
    if (ports > LISTENERS_MAX)
        tool_die(TOOL_USAGE, "at most %d ports", LISTENERS_MAX);
}

static void check_cluster(void)
{
    uint32_t k;
    const char *wrong = NULL;
    if (!gate_cluster.options.endpoints)
        return;
    if (!gate_cluster.options.name || !gate_cluster.options.keys || gate_cluster.capacity)
        tool_die(TOOL_USAGE, "--cluster: needs --name and --keys, and no --capacity, which is in etcd");
    for (k = 0; k < bucket_count && !wrong; k++)
        if (bucket_spec[k].terms.reservation_per_s || bucket_spec[k].terms.limit_per_s)
            wrong = bucket_spec[k].name;
    if (wrong)
        tool_die(TOOL_USAGE, "--cluster: reserve= and limit= of bucket %s are in etcd: qos/config/tenant/%s", wrong,
                 wrong);
}

static void check(void)
{
    uint32_t k;
    bucket_other = QOS_NONE;
    for (k = 0; k < bucket_count; k++)
        if (!bucket_spec[k].prefix[0] && !bucket_spec[k].port && !bucket_spec[k].has_from) {
            if (bucket_other != QOS_NONE)
                tool_die(TOOL_USAGE, "--bucket: %s and %s have neither key, port nor from; only one bucket may",
                         bucket_spec[bucket_other].name, bucket_spec[k].name);
            bucket_other = k;
        }
    if (bucket_other == QOS_NONE) {
        bucket_other = bucket_count;
        on_bucket("name=other");
    }
    range("connections", gate_settings.connections_max, 1, 1000000, "1 to 1000000");
    if (gate_settings.threads == 0) {
        gate_settings.threads = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
        gate_settings.threads =
            qos_min(gate_settings.threads, qos_max(gate_settings.connections_max / bucket_count, 1));
        gate_settings.threads = qos_min(gate_settings.threads, 256);
    }
    range("threads", gate_settings.threads, 1, 256, "1 to 256");
    if (gate_settings.threads * bucket_count > gate_settings.connections_max)
        tool_die(TOOL_USAGE,
                 "--connections: %" PRIu64 " threads and %u buckets need %" PRIu64
                 " connections to memcached: raise this limit and memcached's -c, or give fewer threads or buckets",
                 gate_settings.threads, bucket_count, gate_settings.threads * bucket_count);
    range("clients", gate_settings.clients_max, 1, 1000000, "1 to 1000000");
    range("depth", gate_settings.depth, 1, DEPTH_MAX, "1 to 4096");
    range("burst", gate_settings.burst_ns / 1000000, 1, 10000, "1ms to 10s");
    range("timeout", gate_settings.timeout_ns / 1000000, 10, 3600000, "10ms to 60m");
    range("patience", gate_settings.patience_ns / 1000000, 10, 3600000, "10ms to 60m");
    range("value", gate_settings.value_bytes_max, 1024, UINT64_C(1) << 30, "1K to 1G");
    if (gate_settings.memory_bytes / bucket_count < 2 * gate_settings.value_bytes_max)
        tool_die(TOOL_USAGE, "--memory: at least two of --value for each of %u buckets", bucket_count);
    check_addresses();
    check_cluster();
}

static struct {
    int argc;
    char **argv;
    char *text; /* of the settings file */
} given;

/* The file, then the command line, which overrides it. Settings point into the file's text; some stay as they were at the
 * start. */
static void parse_all(void)
{
    static char *first, *last;
    char *text = given.text ? tool_copy(given.text) : NULL, *old = last;
    int k;
    gate_settings = defaults;
    memset(bucket_spec, 0, sizeof bucket_spec);
    bucket_count = listens = 0;
    gate_cluster.capacity = 0;
    if (text)
        read_settings(settings_file, text);
    k = opt_parse(given.argc, given.argv, opts, about, examples);
    if (k < given.argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", given.argv[k]);
    if (listens == 0)
        on_listen("127.0.0.1:11311");
    check();
    if (!first)
        first = text;
    else
        last = text;
    free(old);
}

static bool child_finds_them_right(void)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        parse_all();
        if (worker_count * bucket_count > gate_settings.connections_max)
            tool_die(TOOL_USAGE, "--connections: %u threads and %u buckets need more", worker_count, bucket_count);
        buckets_open();
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* What cannot change while the gate runs stays as it was. */
static void keep(const struct gate_settings *old, uint64_t capacity)
{
    struct gate_settings *now = &gate_settings;
    bool other = strcmp(gate_address, listen_at[0]) != 0 || strcmp(now->memcached, old->memcached) != 0;
    other |=
        now->policy != old->policy || now->burst_ns != old->burst_ns || now->value_bytes_max != old->value_bytes_max;
    other |=
        now->clients_max != old->clients_max || gate_cluster.capacity != capacity || gate_cluster.options.endpoints;
    if (other)
        tool_warn("new values of --listen, --memcached, --policy, --burst, --value, --clients, --capacity and "
                  "--cluster need a restart");
    now->memcached = old->memcached;
    now->metrics = old->metrics;
    now->policy = old->policy;
    now->burst_ns = old->burst_ns;
    now->value_bytes_max = old->value_bytes_max;
    now->clients_max = old->clients_max;
    now->threads = old->threads;
    gate_cluster = (struct gate_cluster){.capacity = capacity};
}

void settings_again(void)
{
    static struct bucket_spec old[BUCKETS_LIMIT], parsed[BUCKETS_LIMIT];
    struct gate_settings settings = gate_settings;
    uint64_t capacity = gate_cluster.capacity;
    uint32_t count = bucket_count, other = bucket_other, parsed_count, parsed_other;
    if (gate_cluster.options.endpoints) {
        tool_warn("SIGHUP: this gate's settings are its controllers'; nothing changes");
        return;
    }
    if (settings_file) {
        char *text = text_of_file(settings_file);
        if (!text) {
            tool_warn("%s: %s; nothing changes", settings_file, strerror(errno));
            return;
        }
        free(given.text);
        given.text = text;
    }
    if (!child_finds_them_right()) {
        tool_warn("the settings are wrong; nothing changes");
        return;
    }
    gate_pause();
    pthread_mutex_lock(&metrics_lock);
    memcpy(old, bucket_spec, sizeof old);
    parse_all();
    keep(&settings, capacity);
    memcpy(parsed, bucket_spec, sizeof parsed);
    parsed_count = bucket_count;
    parsed_other = bucket_other;
    memcpy(bucket_spec, old, sizeof old);
    bucket_count = count;
    bucket_other = other;
    buckets_change(parsed, parsed_count, parsed_other);
    gate_ports();
    pthread_mutex_unlock(&metrics_lock);
    gate_resume();
    printf("the settings are read again: %u buckets\n", parsed_count);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    uint32_t k;
    int n;
    given.argc = argc;
    given.argv = argv;
    tool_set_name(argv[0]);
    gate_signals(); /* a SIGHUP that comes early is heard later */
    for (n = 1; n < argc; n++)
        if (strncmp(argv[n], "--settings=", 11) == 0)
            settings_file = argv[n] + 11;
        else if (strcmp(argv[n], "--settings") == 0 && n + 1 < argc)
            settings_file = argv[n + 1];
    if (settings_file && !(given.text = text_of_file(settings_file)))
        tool_die(TOOL_USAGE, "%s: %s", settings_file, strerror(errno));
    parse_all();
    if (settings_file && !given.text)
        tool_die(TOOL_USAGE, "--settings: write its name whole");
    gate_address = listen_at[0];
    if (check_only) {
        if (!gate_cluster.options.endpoints)
            buckets_open();
        printf("the settings are right: %u buckets, %" PRIu64 " threads\n", bucket_count, gate_settings.threads);
        return TOOL_OK;
    }
    for (k = 0; k < listens; k++)
        gate_listen(listen_at[k], BUCKETS_LIMIT);
    gate_ports();
    buckets_open();
    gate_serve();
    return TOOL_OK;
}
