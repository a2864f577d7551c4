// Workers: a thread for each core, each with its own epoll, clients and connection to memcached. A turn: handle
// epoll's events; read and grant requests until nothing is left to do; send everything, in few system calls.
#include "gate.h"
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#define EVENTS 256
#define TICK_NS 50000000 /* between reads of the clock */
#define ROUNDS 64        /* rounds of reading and granting in one turn */
#define ACCEPTS 64       /* new clients of a port in one turn */
#define LATER 64         /* clients in one turn that exceeded their part in the last turn */
#define FREE_STATS_PER_S 100

struct worker *workers;
uint32_t worker_count;

struct listener {
    struct source source; /* its descriptor is -1: not used */
    uint32_t bucket;
    uint64_t port; /* of the bucket */
};
static struct listener listener[LISTENERS_MAX];
static uint32_t listeners;
static bool ended;     /* atomic: workers stop */
static bool draining;  /* atomic: clients that wait for nothing are closed */
static bool again;     /* atomic: SIGHUP has come */
static int spare = -1; /* atomic: a descriptor, given up to tell a client that there is none; -1: it is */
const char *gate_address;

/* Pauses: a worker stops between two turns. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool wanted; /* atomic */
    uint32_t paused;
} pause_all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- lists of a worker ------------------------------------------------------------------------------------------- */

void worker_run_later(struct client *c)
{
    if (c->running || c->dead)
        return;
    c->running = true;
    c->next_run = c->worker->run;
    c->worker->run = c;
}

void worker_run_next_turn(struct client *c)
{
    struct worker *w = c->worker;
    if (c->running || c->dead)
        return;
    c->running = true;
    c->next_run = NULL;
    if (w->later)
        w->later_last->next_run = c;
    else
        w->later = c;
    w->later_last = c;
}

void worker_dirty(struct client *c)
{
    if (c->dirty || c->dead)
        return;
    c->dirty = true;
    c->next_dirty = c->worker->dirty;
    c->worker->dirty = c;
}

void worker_bury(struct client *c)
{
    if (c->dead)
        return;
    c->dead = true;
    c->next_dead = c->worker->dead;
    c->worker->dead = c;
}

void worker_done(struct worker *w, const struct grant *grant, enum outcome outcome, uint64_t bytes)
{
    if (w->done_count == w->done_size) {
        w->done_size = w->done_size * 2 + 256;
        w->done = tool_grow(w->done, w->done_size * sizeof *w->done);
    }
    w->done[w->done_count++] = (struct done){*grant, outcome, bytes};
}

void worker_poke(struct worker *w)
{
    const uint64_t one = 1;
    ssize_t n = write(w->wake.fd, &one, sizeof one);
    (void)n; /* full: the worker wakes anyway */
}

void worker_close(const struct worker *w, int fd)
{
    (void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

struct spare { /* a free block */
    struct spare *next;
};

char *block_take(struct worker *w)
{
    struct spare *s = w->spare;
    if (!s)
        return tool_alloc(BLOCK_BYTES);
    w->spare = s->next;
    return (char *)s;
}

void block_give(struct worker *w, char *block)
{
    struct spare *s = (struct spare *)(void *)block;
    s->next = w->spare;
    w->spare = s;
}

static void bury_all(struct worker *w)
{
    struct client *c = w->dead, *next;
    w->dead = NULL;
    for (; c; c = next) {
        next = c->next_dead;
        if (c->running || c->dirty) { /* still on a list */
            c->next_dead = w->dead;
            w->dead = c;
            continue;
        }
        __atomic_sub_fetch(&w->clients, 1, __ATOMIC_RELAXED);
        bucket_exit(c->bucket);
        free(c);
    }
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

static void listen_too(struct worker *w, struct listener *l)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = l};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, l->source.fd, &e) != 0)
        tool_die(TOOL_FAILED, "epoll: %s", strerror(errno));
}

socklen_t gate_address_of(const char *option, const char *text, struct sockaddr_storage *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    const char *colon = strrchr(text, ':');
    socklen_t bytes = sizeof path;
    uint64_t port;
    char host[256];
    int wrong;
    if (text[0] == '/') {
        if (strlen(text) >= sizeof path.sun_path)
            tool_die(TOOL_USAGE, "%s %s: this path is too long for a socket", option, text);
        memcpy(path.sun_path, text, strlen(text));
        memcpy(address, &path, sizeof path);
        return bytes;
    }
    if (!colon || (size_t)(colon - text) >= sizeof host || !protocol_number(colon + 1, strlen(colon + 1), 65535, &port))
        tool_die(TOOL_USAGE, "%s %s: write ADDRESS:PORT, with a port up to 65535, or the path of a socket", option,
                 text);
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    wrong = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &found);
    if (wrong)
        tool_die(TOOL_USAGE, "%s %s: %s", option, text, gai_strerror(wrong));
    bytes = found->ai_addrlen;
    memcpy(address, found->ai_addr, bytes);
    freeaddrinfo(found);
    return bytes;
}

int gate_socket(const char *option, const char *text, int flags)
{
    struct sockaddr_storage address;
    const socklen_t bytes = gate_address_of(option, text, &address);
    const struct sockaddr *a = (const struct sockaddr *)&address;
    struct stat st;
    int one = 1, fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && address.ss_family == AF_UNIX) {
        if (connect(fd, a, bytes) == 0)
            tool_die(TOOL_FAILED, "%s: another process listens there", text);
        if (errno == ECONNREFUSED && stat(text, &st) == 0 && S_ISSOCK(st.st_mode)) /* a process before us has left it */
            (void)unlink(text);
    }
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 || bind(fd, a, bytes) != 0 ||
        listen(fd, 4096) != 0) {
        if (!worker_count)
            tool_die(TOOL_FAILED, "%s: %s", text, strerror(errno));
        tool_warn("%s: %s", text, strerror(errno)); /* a port of new settings */
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    return fd;
}

void gate_listen(const char *address, uint32_t bucket)
{
    uint32_t k = 0;
    int fd;
    while (k < listeners && listener[k].source.fd >= 0)
        k++;
    if (k == LISTENERS_MAX && !worker_count)
        tool_die(TOOL_USAGE, "at most %d ports", LISTENERS_MAX);
    if (k == LISTENERS_MAX) {
        tool_warn("%s: at most %d ports", address, LISTENERS_MAX);
        return;
    }
    fd = gate_socket("--listen", address, SOCK_NONBLOCK);
    if (fd < 0)
        return;
    listener[k] =
        (struct listener){{SOURCE_LISTENER, fd}, bucket, bucket < BUCKETS_LIMIT ? bucket_spec[bucket].port : 0};
    if (k == listeners)
        listeners++;
    for (uint32_t w = 0; w < worker_count; w++)
        listen_too(&workers[w], &listener[k]);
}

uint32_t gate_clients(void)
{
    uint32_t k, sum = 0;
    for (k = 0; k < worker_count; k++)
        sum += __atomic_load_n(&workers[k].clients, __ATOMIC_RELAXED);
    return sum;
}

bool gate_backend_up(void)
{
    uint32_t k, up = 0;
    for (k = 0; k < worker_count; k++)
        up += __atomic_load_n(&workers[k].backends_up, __ATOMIC_RELAXED);
    return up != 0;
}

bool gate_ended(void)
{
    return __atomic_load_n(&ended, __ATOMIC_RELAXED);
}

static struct worker *idlest(void)
{
    uint32_t k, best = 0;
    for (k = 1; k < worker_count; k++)
        if (__atomic_load_n(&workers[k].clients, __ATOMIC_RELAXED) <
            __atomic_load_n(&workers[best].clients, __ATOMIC_RELAXED))
            best = k;
    return &workers[best];
}

/* One line a second at most; it tells how many there were since the last one. */
static void log_refused(uint32_t bucket, const struct sockaddr_storage *from, bool place)
{
    static uint64_t next_ns, silent; /* atomic */
    uint64_t now_ns = tool_now_ns(), next = __atomic_load_n(&next_ns, __ATOMIC_RELAXED);
    char host[NI_MAXHOST] = "a local socket";
    if (now_ns < next || !__atomic_compare_exchange_n(&next_ns, &next, now_ns + QOS_NS_PER_S, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
        __atomic_add_fetch(&silent, 1, __ATOMIC_RELAXED);
        return;
    }
    if (from->ss_family != AF_UNIX)
        (void)getnameinfo((const struct sockaddr *)from, sizeof *from, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    tool_warn("a client at %s is refused: no %s for bucket %s (%s); %" PRIu64 " more since the last such line", host,
              place ? "place" : "descriptor", bucket_spec[bucket].name, place ? "--clients" : "ulimit -n",
              __atomic_exchange_n(&silent, 0, __ATOMIC_RELAXED));
}

static void refuse(int fd, uint32_t bucket, const struct sockaddr_storage *from, bool place)
{
    static const char full[] = "ERROR Too many open connections\r\n";
    ssize_t n = send(fd, full, sizeof full - 1, MSG_NOSIGNAL);
    (void)n;
    close(fd);
    bucket_refused(bucket, REFUSED_PLACES);
    log_refused(bucket, from, place);
}

static void keep_spare(void)
{
    int none = -1, fd = __atomic_load_n(&spare, __ATOMIC_ACQUIRE) < 0 ? eventfd(0, EFD_CLOEXEC) : -1;
    if (fd >= 0 && !__atomic_compare_exchange_n(&spare, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        close(fd);
}

/* Without a free descriptor the spare one is given up, and who gets it is told. Else clients would wait, and the listener
 * wake all workers again and again. */
static void accept_all(const struct listener *l)
{
    struct sockaddr_storage from = {0};
    uint32_t k, bucket;
    for (k = 0; k < ACCEPTS; k++) {
        socklen_t bytes = sizeof from;
        int given, fd = accept4(l->source.fd, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if ((given = __atomic_exchange_n(&spare, -1, __ATOMIC_ACQ_REL)) >= 0) {
                close(given);
                continue;
            }
            usleep(1000); /* another thread got that one; the listener wakes this one until there is one again */
        }
        if (fd < 0)
            break;
        bucket = bucket_of_connection(l->bucket, &from);
        if (__atomic_load_n(&spare, __ATOMIC_ACQUIRE) < 0)
            refuse(fd, bucket, &from, false);
        else if (bucket_enter(bucket))
            client_open(idlest(), fd, bucket);
        else
            refuse(fd, bucket, &from, true);
        keep_spare();
    }
    keep_spare();
}

/* ---- a worker ---------------------------------------------------------------------------------------------------- */

static void on_event(const struct epoll_event *e)
{
    struct source *s = e->data.ptr;
    uint64_t count;
    ssize_t n;
    switch (s->kind) {
    case SOURCE_CLIENT: client_event((struct client *)(void *)s, e->events); break;
    case SOURCE_BACKEND: backend_event((struct backend *)(void *)s, e->events); break;
    case SOURCE_LISTENER: accept_all((const struct listener *)(const void *)s); break;
    case SOURCE_WAKE:
    case SOURCE_TICK: /* read, it goes on */
        n = read(s->fd, &count, sizeof count);
        (void)n;
        break;
    }
}

static void send_granted(struct worker *w)
{
    while (w->mine) {
        struct client *c = w->mine;
        w->mine = c->next_granted;
        backend_grant(w, c);
    }
}

static void run_all(struct worker *w)
{
    struct client *c = w->run, *next;
    w->run = NULL;
    for (; c; c = next) {
        next = c->next_run;
        c->running = false;
        client_run(c);
    }
}

static void run_later(struct worker *w)
{
    uint32_t k;
    w->turns++;
    for (k = 0; k < LATER && w->later; k++) {
        struct client *c = w->later;
        w->later = c->next_run;
        c->running = false;
        client_run(c);
    }
}

static void flush_all(struct worker *w)
{
    struct client *c = w->dirty, *next;
    w->dirty = NULL;
    backend_flush(w);
    for (; c; c = next) {
        next = c->next_dirty;
        c->dirty = false;
        client_flush(c);
    }
}

static void turn(struct worker *w)
{
    uint32_t round = 0;
    bool granted;
    backend_read(w);
    run_later(w);
    do {
        run_all(w);
        granted = buckets_turn(w);
        send_granted(w);
    } while ((w->run || granted) && ++round < ROUNDS);
    flush_all(w);
    bury_all(w);
}

/* Sleeps until the next event; not at all if something is left to do. A timeout of epoll costs a kernel timer each
 * time, so the tick has a timer of its own. */
static int sleep_ms(struct worker *w)
{
    uint64_t now_ns;
    if (w->run || w->later || w->dirty || w->backend_dirty || w->backend_readable || w->done_count || w->arrived ||
        w->left || !__atomic_load_n(&w->sleeping, __ATOMIC_RELAXED))
        return 0;
    if (w->look_ns == QOS_NEVER)
        return -1;
    now_ns = tool_now_ns();
    return w->look_ns <= now_ns ? 0 : (int)qos_min((w->look_ns - now_ns + 999999) / 1000000, TICK_NS / 1000000);
}

static void pause_here(void)
{
    pthread_mutex_lock(&pause_all.lock);
    pause_all.paused++;
    pthread_cond_broadcast(&pause_all.changed);
    while (__atomic_load_n(&pause_all.wanted, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&pause_all.changed, &pause_all.lock);
    pause_all.paused--;
    pthread_mutex_unlock(&pause_all.lock);
}

void gate_pause(void)
{
    uint32_t k;
    __atomic_store_n(&pause_all.wanted, true, __ATOMIC_RELEASE);
    for (k = 0; k < worker_count; k++)
        worker_poke(&workers[k]);
    pthread_mutex_lock(&pause_all.lock);
    while (pause_all.paused < worker_count)
        pthread_cond_wait(&pause_all.changed, &pause_all.lock);
    pthread_mutex_unlock(&pause_all.lock);
}

/* The next pause may only begin when all have left this one. */
void gate_resume(void)
{
    pthread_mutex_lock(&pause_all.lock);
    __atomic_store_n(&pause_all.wanted, false, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pause_all.changed);
    pthread_mutex_unlock(&pause_all.lock);
    for (;;) {
        uint32_t paused;
        pthread_mutex_lock(&pause_all.lock);
        paused = pause_all.paused;
        pthread_mutex_unlock(&pause_all.lock);
        if (paused == 0)
            return;
        usleep(100);
    }
}

static void *serve(void *arg)
{
    struct worker *w = arg;
    struct epoll_event event[EVENTS];
    uint64_t tick_ns = tool_now_ns();
    while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
        int n = epoll_wait(w->epoll, event, EVENTS, sleep_ms(w)), k;
        w->now_ns = tool_now_ns();
        __atomic_store_n(&w->sleeping, false, __ATOMIC_RELAXED);
        for (k = 0; k < n; k++)
            on_event(&event[k]);
        if (__atomic_load_n(&pause_all.wanted, __ATOMIC_ACQUIRE))
            pause_here();
        if (w->now_ns >= tick_ns) {
            backend_tick(w, w->now_ns - tick_ns);
            clients_tick(w);
            if (__atomic_load_n(&draining, __ATOMIC_RELAXED))
                clients_leave(w);
            tick_ns = w->now_ns + TICK_NS;
        }
        clients_make_room(w);
        turn(w);
    }
    return NULL;
}

static void open_worker(struct worker *w, uint32_t number)
{
    const struct itimerspec every = {{0, TICK_NS}, {0, TICK_NS}};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &w->wake}, t = {.events = EPOLLIN, .data.ptr = &w->tick};
    uint32_t k;
    w->number = number;
    w->now_ns = tool_now_ns();
    w->look_ns = QOS_NEVER;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = (struct source){SOURCE_WAKE, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    w->tick = (struct source){SOURCE_TICK, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
    if (w->epoll < 0 || w->wake.fd < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake.fd, &e) != 0 || w->tick.fd < 0 ||
        timerfd_settime(w->tick.fd, 0, &every, NULL) != 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->tick.fd, &t) != 0 ||
        qos_bucket_init(&w->free_stats, w->now_ns, FREE_STATS_PER_S, FREE_STATS_PER_S) != QOS_OK)
        tool_die(TOOL_FAILED, "epoll: %s", strerror(errno));
    for (k = 0; k < listeners; k++)
        listen_too(w, &listener[k]);
    backend_open(w);
}

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

/* Writes a new file and renames it over the old: readers see one or the other, whole. */
static void write_stats(void)
{
    char path[512];
    size_t bytes = 0;
    char *text;
    FILE *f;
    bool good;
    if (!gate_settings.stats_file)
        return;
    text = metrics_text(true, &bytes);
    snprintf(path, sizeof path, "%s.new", gate_settings.stats_file);
    f = fopen(path, "w");
    good = f && fwrite(text, 1, bytes, f) == bytes;
    if (f)
        good = fclose(f) == 0 && good; /* also on a full disk */
    if (!good || rename(path, gate_settings.stats_file) != 0)
        tool_warn("%s: %s", gate_settings.stats_file, strerror(errno));
    free(text);
}

static void raise_files(void)
{
    const rlim_t want =
        gate_settings.clients_max + 64 + 8 * gate_settings.threads + gate_settings.threads * bucket_count;
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return;
    r.rlim_cur = want;
    r.rlim_max = qos_max(r.rlim_max, want);
    if (setrlimit(RLIMIT_NOFILE, &r) != 0)
        tool_die(TOOL_FAILED, "--clients: this process may not open %" PRIu64 " files (ulimit -n)", (uint64_t)want);
}

/* Ports of buckets that have gone are closed, those of new ones opened. */
void gate_ports(void)
{
    const char *colon = strrchr(gate_address, ':');
    char address[300];
    uint32_t k, n;
    for (n = 0; n < listeners; n++)
        if (listener[n].source.fd >= 0 && listener[n].bucket < BUCKETS_LIMIT &&
            listener[n].port != bucket_spec[listener[n].bucket].port) {
            close(listener[n].source.fd);
            listener[n].source.fd = -1;
        }
    for (k = 0; k < bucket_count; k++) {
        for (n = 0; n < listeners && !(listener[n].source.fd >= 0 && listener[n].bucket == k);)
            n++;
        if (!bucket_spec[k].port || n < listeners)
            continue;
        if (gate_address[0] == '/' || !colon)
            tool_die(TOOL_USAGE, "--bucket %s: port= needs ADDRESS:PORT as the first --listen", bucket_spec[k].name);
        snprintf(address, sizeof address, "%.*s:%" PRIu64, (int)(colon - gate_address), gate_address,
                 bucket_spec[k].port);
        gate_listen(address, k);
    }
}

static void on_hangup(int signal)
{
    (void)signal;
    __atomic_store_n(&again, true, __ATOMIC_RELAXED);
}

void gate_signals(void)
{
    const struct sigaction hangup = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    stop_on_signals();
    stop_not_for_readers();
    sigaction(SIGHUP, &hangup, NULL);
}

void gate_serve(void)
{
    uint64_t end_ns;
    uint32_t k;
    raise_files();
    keep_spare();
    worker_count = (uint32_t)gate_settings.threads;
    workers = tool_alloc(worker_count * sizeof *workers);
    for (k = 0; k < worker_count; k++)
        open_worker(&workers[k], k);
    for (k = 0; k < worker_count; k++)
        if (pthread_create(&workers[k].thread, NULL, serve, &workers[k]) != 0)
            tool_die(TOOL_FAILED, "a thread cannot be started");
    if (gate_cluster.options.endpoints)
        gate_agent_serve();
    if (gate_settings.metrics)
        metrics_listen(gate_settings.metrics);
    while (!stop_asked()) {
        uint64_t next_ns = tool_now_ns() + QOS_NS_PER_S;
        write_stats();
        keep_spare();
        while (!stop_asked() && tool_now_ns() < next_ns) {
            if (__atomic_exchange_n(&again, false, __ATOMIC_RELAXED))
                settings_again();
            tool_sleep_until_ns(qos_min(next_ns, tool_now_ns() + 100000000));
        }
    }
    for (k = 0; k < listeners; k++) /* no new clients; what the others have asked for is still answered */
        if (listener[k].source.fd >= 0)
            close(listener[k].source.fd);
    __atomic_store_n(&draining, true, __ATOMIC_RELAXED);
    for (end_ns = tool_now_ns() + gate_settings.drain_ns; gate_clients() && tool_now_ns() < end_ns;)
        usleep(1000);
    __atomic_store_n(&ended, true, __ATOMIC_RELAXED);
    for (k = 0; k < worker_count; k++)
        worker_poke(&workers[k]);
    for (k = 0; k < worker_count; k++)
        pthread_join(workers[k].thread, NULL);
    if (gate_cluster.options.endpoints)
        gate_agent_end();
    write_stats();
}
