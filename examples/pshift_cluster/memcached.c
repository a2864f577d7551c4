// Backend: this node's own memcached daemon on a loopback port, and a few connections to it.
//
// A request is a blocking libmemcached call in one of --workers threads. Each thread has its own connection, so up to
// that many requests are in flight. Idle threads sleep. A batch (the picks of one tick of the node) wakes as many as it
// can use; finished requests wait for the node's next tick and wake no thread. So a request costs little more than its
// system calls.
//
// The daemon dies with this process (PR_SET_PDEATHSIG). It is identified by its process id, as another daemon may own
// the port. If it dies, it is restarted and reloaded. The node resends failed requests.
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <libmemcached/memcached.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST "127.0.0.1"
#define VALUE_BYTES 4096
#define WORKERS_MAX 32
#define PORT_TRIES 32
#define PER_WAKE 2 /* requests that one thread serves in sequence before another one is woken */
#define START_NS (5 * QOS_NS_PER_S)
#define TIMEOUT_MS 2000                      /* timeout of a call; a daemon may be stopped for less */
#define RESTART_NS (100 * UINT64_C(1000000)) /* a daemon that died is started again */
#define AGAIN_NS (100 * UINT64_C(1000000))   /* after a call failed although the daemon lives */

enum state { STOPPED, DEAD, LOADING, READY };

static struct {
    pthread_mutex_t lock;
    struct worker {
        pthread_t thread;
        pthread_cond_t wake;
        struct worker *below; /* in the stack of idle threads */
        bool called;
    } worker[WORKERS_MAX], *idle; /* the last to sleep is woken first: its caches are warm */
    pthread_t loader;
    struct request *first, **last, *done;
    uint32_t queued, workers, connections; /* connections: generation; workers reconnect when it changes */
    bool quit;
    /* the loader's answer */
    bool loaded, load_failed;
    char trouble[160];
    /* the node's thread alone */
    enum state state;
    bool loading;
    pid_t pid;
    uint16_t port;
    uint32_t node;
    uint64_t start_again_ns, continue_ns, rest_until_ns, cpu_gone_ns;
} m = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- calls ------------------------------------------------------------------------------------------------ */

static memcached_st *connect_to(uint16_t port)
{
    memcached_st *c = memcached_create(NULL);
    if (!c || memcached_server_add(c, HOST, port) != MEMCACHED_SUCCESS)
        tool_die(TOOL_FAILED, "libmemcached: no memory");
    memcached_behavior_set(c, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    memcached_behavior_set(c, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, TIMEOUT_MS);
    memcached_behavior_set(c, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, TIMEOUT_MS);
    memcached_behavior_set(c, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 0);
    memcached_behavior_set(c, MEMCACHED_BEHAVIOR_DEAD_TIMEOUT, 0);
    return c;
}

static size_t key_of(char key[16], uint64_t object)
{
    return (size_t)snprintf(key, 16, "o%08" PRIu64, object);
}

/* Each value begins with its object's number, so that a wrong answer is detected. */
static void fill_value(char *value, uint64_t object)
{
    memcpy(value, &object, sizeof object);
}

static void do_request(memcached_st *c, struct request *r, char *value)
{
    char key[16];
    size_t n = key_of(key, r->object), got = 0;
    uint32_t flags;
    memcached_return_t rc;
    r->failed = r->wrong = false;
    if (r->set) {
        fill_value(value, r->object);
        rc = memcached_set(c, key, n, value, VALUE_BYTES, 0, 0);
        r->failed = rc != MEMCACHED_SUCCESS;
    } else {
        char *text = memcached_get(c, key, n, &got, &flags, &rc);
        r->wrong = rc == MEMCACHED_NOTFOUND ||
                   (rc == MEMCACHED_SUCCESS && (got != VALUE_BYTES || memcmp(text, &r->object, sizeof r->object) != 0));
        r->failed = rc != MEMCACHED_SUCCESS && rc != MEMCACHED_NOTFOUND;
        free(text);
    }
}

static void *work(void *arg)
{
    struct worker *me = arg;
    memcached_st *c = NULL;
    char *value = tool_alloc(VALUE_BYTES);
    uint32_t mine = 0;
    memset(value, 'v', VALUE_BYTES);
    pthread_mutex_lock(&m.lock);
    for (;;) {
        struct request *r = m.first;
        if (m.quit)
            break;
        if (!r) {
            me->below = m.idle;
            m.idle = me;
            for (me->called = false; !me->called;)
                pthread_cond_wait(&me->wake, &m.lock);
            continue;
        }
        m.first = r->next;
        if (!m.first)
            m.last = &m.first;
        m.queued--;
        if (!c || mine != m.connections) {
            if (c)
                memcached_free(c);
            c = connect_to(m.port);
            mine = m.connections;
        }
        pthread_mutex_unlock(&m.lock);
        do_request(c, r, value);
        if (r->failed)
            memcached_quit(c);
        pthread_mutex_lock(&m.lock);
        r->next = m.done;
        m.done = r;
    }
    pthread_mutex_unlock(&m.lock);
    if (c)
        memcached_free(c);
    free(value);
    return NULL;
}

/* ---- the daemon --------------------------------------------------------------------------------------------- */

/* In the child: only calls that are safe between fork and exec. Writes errno to the pipe if memcached cannot be run. */
static void become_daemon(int tell, uint16_t port, pid_t parent)
{
    char port_text[8], listen[] = "-l", host[] = HOST, tcp[] = "-p", udp[] = "-U", none[] = "0", threads[] = "-t",
                       one[] = "1", memory[] = "-m", megabytes[] = "128", user[] = "-u", root[] = "root";
    char *argv[] = {(char *)(uintptr_t)settings.memcached,
                    listen,
                    host,
                    tcp,
                    port_text,
                    udp,
                    none,
                    threads,
                    one,
                    memory,
                    megabytes,
                    NULL,
                    NULL,
                    NULL};
    int null = open("/dev/null", O_RDWR), err;
    snprintf(port_text, sizeof port_text, "%u", (unsigned)port);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) { /* memcached refuses root without -u */
        argv[11] = user;
        argv[12] = root;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after setuid, which would clear it */
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0); /* Ctrl-C is for the node */
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    execvp(argv[0], argv);
    err = errno;
    (void)!write(tell, &err, sizeof err);
    _exit(127);
}

/* false: memcached cannot be run at all. */
static bool spawn(uint16_t port, char *why, size_t size)
{
    pid_t parent = getpid();
    int tell[2], err = 0;
    ssize_t n;
    if (pipe2(tell, O_CLOEXEC) != 0) {
        snprintf(why, size, "no pipe: %s", strerror(errno));
        return false;
    }
    m.pid = fork();
    if (m.pid == 0)
        become_daemon(tell[1], port, parent);
    close(tell[1]);
    if (m.pid < 0) {
        snprintf(why, size, "cannot fork: %s", strerror(errno));
        close(tell[0]);
        return false;
    }
    do
        n = read(tell[0], &err, sizeof err);
    while (n < 0 && errno == EINTR);
    close(tell[0]);
    if (n == 0)
        return true;
    waitpid(m.pid, NULL, 0);
    m.pid = 0;
    snprintf(
        why, size,
        "%s cannot be run (%s); on Debian: apt-get install memcached (or name it: --memcached PATH, or do without: "
        "--backend file)",
        settings.memcached, strerror(err));
    return false;
}

/* Has the daemon ended? The node's thread reaps it later. */
static bool gone(pid_t pid)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    return pid <= 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Reads a statistic of the daemon behind c; false if there is none. */
static bool told(memcached_st *c, const char *what, uint64_t *value)
{
    memcached_return_t rc;
    memcached_stat_st *st = memcached_stat(c, NULL, &rc);
    char *text = st && rc == MEMCACHED_SUCCESS ? memcached_stat_get_value(c, st, what, &rc) : NULL;
    if (text)
        *value = strtoull(text, NULL, 10);
    free(text);
    if (st)
        memcached_stat_free(c, st);
    return text != NULL;
}

/* Waits until the daemon on this port answers with our child's process id. false: it ended, or another one answers. */
static bool answers(uint16_t port, pid_t pid)
{
    uint64_t end_ns = tool_now_ns() + START_NS;
    while (!gone(pid) && tool_now_ns() < end_ns && !stop_asked()) {
        memcached_st *c = connect_to(port);
        uint64_t told_pid = 0;
        bool mine = told(c, "pid", &told_pid) && told_pid == (uint64_t)pid;
        memcached_free(c);
        if (mine)
            return true;
        tool_sleep_until_ns(tool_now_ns() + 10000000);
    }
    return false;
}

static void reap(void)
{
    if (m.pid > 0) {
        kill(m.pid, SIGKILL);
        kill(m.pid, SIGCONT);
        waitpid(m.pid, NULL, 0);
        m.pid = 0;
    }
}

/* Starts a daemon on the first free port, from `port` on; the step is the number of nodes. */
static bool launch(uint64_t port, char *why, size_t size)
{
    uint32_t k;
    for (k = 0; k < PORT_TRIES && port <= UINT16_MAX && !stop_asked(); k++, port += settings.nodes) {
        if (!spawn((uint16_t)port, why, size))
            return false;
        if (answers((uint16_t)port, m.pid)) {
            if (k) {
                char note[160];
                int n = snprintf(note, sizeof note, "node %u: port %" PRIu64 " is taken; memcached is on port %" PRIu64,
                                 m.node + 1, port - k * settings.nodes, port);
                mail_send(0, MAIL_NOTE, note, (size_t)n);
            }
            m.port = (uint16_t)port;
            return true;
        }
        reap();
    }
    snprintf(why, size, "no free port from %" PRIu64 " on; choose others with --port", settings.port + m.node);
    return false;
}

/* A thread that waits for the daemon, stores all objects without waiting for each answer, then counts them. */
static void *load(void *arg)
{
    memcached_st *c = connect_to(m.port);
    char *value = tool_alloc(VALUE_BYTES), key[16];
    uint64_t o, items = 0, end_ns = tool_now_ns() + START_NS;
    bool ok = answers(m.port, m.pid);
    (void)arg;
    memset(value, 'v', VALUE_BYTES);
    memcached_behavior_set(c, MEMCACHED_BEHAVIOR_NOREPLY, 1);
    for (o = 0; ok && o < settings.objects && !stop_asked(); o++) {
        fill_value(value, o);
        ok = memcached_set(c, key, key_of(key, o), value, VALUE_BYTES, 0, 0) == MEMCACHED_SUCCESS;
    }
    memcached_free(c);
    c = connect_to(m.port);
    while (ok && items < settings.objects && tool_now_ns() < end_ns && !stop_asked()) {
        ok = told(c, "curr_items", &items);
        if (items < settings.objects)
            tool_sleep_until_ns(tool_now_ns() + 5000000);
    }
    memcached_free(c);
    free(value);
    pthread_mutex_lock(&m.lock);
    m.loaded = true;
    m.load_failed = !ok || items < settings.objects;
    pthread_mutex_unlock(&m.lock);
    return NULL;
}

static void begin_load(void)
{
    m.loaded = false;
    m.loading = pthread_create(&m.loader, NULL, load, NULL) == 0;
    if (!m.loading)
        tool_die(TOOL_FAILED, "no thread");
    m.state = LOADING;
}

static bool loaded(void)
{
    bool is;
    pthread_mutex_lock(&m.lock);
    is = m.loaded;
    pthread_mutex_unlock(&m.lock);
    return is;
}

static void end_load(void)
{
    if (m.loading)
        pthread_join(m.loader, NULL);
    m.loading = false;
    pthread_mutex_lock(&m.lock);
    m.connections++;
    pthread_mutex_unlock(&m.lock);
    m.state = m.load_failed ? DEAD : READY;
}

/* ---- the backend ---------------------------------------------------------------------------------------------- */

static bool start(uint32_t node, char *why, size_t size)
{
    uint32_t k;
    m.node = node;
    m.last = &m.first;
    m.quit = false;
    m.workers = (uint32_t)settings.workers;
    if (!launch(settings.port + node, why, size))
        return false;
    begin_load();
    end_load(); /* waits for the loader */
    if (m.state != READY) {
        snprintf(why, size, "memcached on port %u did not take %" PRIu64 " objects", (unsigned)m.port,
                 settings.objects);
        reap();
        return false;
    }
    for (k = 0; k < m.workers; k++)
        if (pthread_cond_init(&m.worker[k].wake, NULL) != 0 ||
            pthread_create(&m.worker[k].thread, NULL, work, &m.worker[k]) != 0)
            tool_die(TOOL_FAILED, "no thread");
    return true;
}

/* Wakes the thread that began to sleep last. Needs the lock. */
static void wake_one(void)
{
    struct worker *w = m.idle;
    m.idle = w->below;
    w->called = true;
    pthread_cond_signal(&w->wake);
}

static void submit(struct request *list)
{
    uint32_t n = 0;
    if (!list)
        return;
    pthread_mutex_lock(&m.lock);
    *m.last = list;
    for (; *m.last; m.last = &(*m.last)->next)
        n++;
    m.queued += n;
    for (n = (m.queued + PER_WAKE - 1) / PER_WAKE; n > 0 && m.idle; n--)
        wake_one();
    pthread_mutex_unlock(&m.lock);
}

static struct request *collect(void)
{
    struct request *list, *r;
    pthread_mutex_lock(&m.lock);
    list = m.done;
    m.done = NULL;
    pthread_mutex_unlock(&m.lock);
    for (r = list; r; r = r->next)
        if (r->failed)
            m.rest_until_ns = tool_now_ns() + AGAIN_NS;
    return list;
}

/* utime and stime are fields 14 and 15; field 2 ends with the last parenthesis. */
static uint64_t cpu_of(pid_t pid)
{
    char path[64], text[512], *at;
    uint64_t ticks = 0;
    size_t n;
    FILE *f;
    int field;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = pid > 0 ? fopen(path, "r") : NULL;
    if (!f)
        return 0;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    at = strrchr(text, ')');
    for (field = 3; at && field <= 15; field++) {
        at = strchr(at + 1, ' ');
        if (at && field >= 14)
            ticks += strtoull(at, NULL, 10);
    }
    return ticks * (QOS_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t cpu_ns(void)
{
    return m.cpu_gone_ns + cpu_of(m.pid);
}

static void poll_daemon(uint64_t now_ns)
{
    char why[256];
    if (m.continue_ns && now_ns >= m.continue_ns && m.pid > 0) {
        kill(m.pid, SIGCONT);
        m.continue_ns = 0;
    }
    if (m.state == READY && gone(m.pid)) {
        reap();
        m.state = DEAD;
        m.start_again_ns = qos_max(m.start_again_ns, now_ns + RESTART_NS);
    }
    if (m.state == DEAD && now_ns >= m.start_again_ns) {
        reap();
        if (spawn(m.port, why, sizeof why))
            begin_load();
        else
            m.start_again_ns = now_ns + QOS_NS_PER_S;
    }
    if (m.state == LOADING && loaded()) {
        end_load();
        if (m.state == DEAD) { /* perhaps another process took the port */
            m.port = (uint16_t)(m.port + settings.nodes);
            m.start_again_ns = now_ns + RESTART_NS;
        }
    }
}

static bool ready(void)
{
    return m.state == READY && tool_now_ns() >= m.rest_until_ns;
}

static void fault(const struct fault *f, uint64_t now_ns)
{
    if (m.pid <= 0)
        return;
    if (f->kind == FAULT_KILL) {
        m.cpu_gone_ns += cpu_of(m.pid);
        m.start_again_ns = now_ns + RESTART_NS;
        kill(m.pid, SIGKILL);
    } else {
        kill(m.pid, SIGSTOP);
        m.continue_ns = now_ns + f->for_ns;
    }
}

static void stop(void)
{
    uint32_t k;
    reap(); /* pending calls fail at once */
    pthread_mutex_lock(&m.lock);
    m.quit = true;
    while (m.idle)
        wake_one();
    pthread_mutex_unlock(&m.lock);
    if (m.state != STOPPED)
        for (k = 0; k < m.workers; k++)
            pthread_join(m.worker[k].thread, NULL);
    if (m.loading)
        pthread_join(m.loader, NULL);
    m.loading = false;
    m.state = STOPPED;
}

const struct backend backend_memcached = {"memcached", 2000,  16,    start,  submit, collect,
                                          poll_daemon, ready, fault, cpu_ns, stop,   true};
