// flags: -D_GNU_SOURCE
/* quickstart/htb.c - an epoll server on loopback that shares 40 MB/s among three tenants by htb.h. Copy steps 1 to 5.
 * quickstart_htb 7001: tenant i has port 7000 + i. A client sends "4096\n" and gets 4096 bytes. SIGTERM ends it. */
#include "htb.h"
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_MAX 1048576u
#define TENANTS 3
#define FILES_MAX 1024
#define FILES_OTHER 16             /* no connections */
#define ACCEPT_AGAIN_NS 100000000u /* after an accept that failed, or at a tenant that has all its places */
static const struct htb_class terms[TENANTS] = {
    {.rate_per_s = {10000000}},                          /* 10 MB/s reserved, and half of the surplus */
    {.rate_per_s = {5000000}, .limit_per_s = {8000000}}, /* 5 MB/s reserved, never more than 8 */
    {.weight = 1 /* a share of the surplus, as the first; no rate */}};

static struct source {          /* 1. what epoll points to: a listener, or a connection with its request */
    struct htb_request request; /* first, so that the pointers convert; class_id is the tenant */
    int fd;
    bool listens;
    size_t left, line_len; /* bytes still to send; bytes in line */
    char line[16];
} sources[FILES_MAX]; /* by file descriptor */
static struct htb tree;
static struct source *listeners[TENANTS];
static uint64_t places[TENANTS], places_max; /* connections of a tenant; at most its share of the files */
static uint64_t accept_ns = QOS_NEVER;       /* when all listeners accept again; QOS_NEVER: they do */
static int epoll_fd;
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    stop = number;
}

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void must(bool good, const char *what)
{
    if (!good)
        errx(2, "%s", what);
}

static void watch(struct source *s, uint32_t events, int how)
{
    struct epoll_event e = {.events = events, .data = {.ptr = s}};
    must(epoll_ctl(epoll_fd, how, s->fd, &e) == 0, "epoll_ctl failed");
}

static void hang_up(struct source *s) /* 5. a client that goes takes its request with it */
{
    (void)!htb_cancel(&tree, clock_ns(), &s->request); /* if it waits */
    places[s->request.class_id - 1]--;
    close(s->fd);
}

static void on_listener(struct source *listener)
{
    uint64_t *taken = &places[listener->request.class_id - 1];
    const bool full = *taken >= places_max; /* so no tenant takes the files of another */
    const int fd = full ? -1 : accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (!full && fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return;                      /* that client has gone */
    if (fd < 0 || fd >= FILES_MAX) { /* no place: this tenant's clients who are here are served on, others wait */
        if (fd >= 0)
            close(fd);
        watch(listener, 0, EPOLL_CTL_MOD);
        accept_ns = qos_min(accept_ns, clock_ns() + ACCEPT_AGAIN_NS);
        return;
    }
    ++*taken;
    sources[fd] = (struct source){.request = {.class_id = listener->request.class_id}, .fd = fd};
    watch(&sources[fd], EPOLLIN, EPOLL_CTL_ADD);
}

static void ask(struct source *s) /* 2. it waits in its tenant's queue */
{
    s->request.tokens[0] = s->left;
    if (htb_submit(&tree, clock_ns(), &s->request) != QOS_OK)
        hang_up(s);
    else
        watch(s, EPOLLRDHUP, EPOLL_CTL_MOD);
}

static void send_some(struct source *s) /* 4. as much as the connection takes, and its tenant pays for that */
{
    static const char data[65536];
    uint64_t sent;
    ssize_t n = 1;
    while (s->left > 0 && (n = send(s->fd, data, qos_min(s->left, sizeof data), MSG_NOSIGNAL)) > 0)
        s->left -= (size_t)n;
    sent = s->request.tokens[0] - s->left;
    must(htb_complete(&tree, clock_ns(), HTB_DONE, &sent, &s->request) == QOS_OK, "it was not sent");
    if (n <= 0 && errno != EAGAIN)
        hang_up(s);
    else /* a client that does not read keeps no place at the device: it asks for what is left once it reads again */
        watch(s, s->left > 0 ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
}

static void on_line(struct source *s)
{
    static const char wrong[] = "error: send one number of bytes in a line, 1 to 1048576\n";
    char *end;
    ssize_t got = read(s->fd, s->line + s->line_len, sizeof s->line - 1 - s->line_len);
    s->line_len += got > 0 ? (size_t)got : 0;
    s->line[s->line_len] = 0;
    if (got > 0 && !strchr(s->line, '\n') && s->line_len < sizeof s->line - 1)
        return; /* not whole yet */
    s->left = strtoul(s->line, &end, 10);
    if (got > 0 && (s->line[0] < '0' || s->line[0] > '9' || strcmp(end, "\n") != 0 || s->left - 1 >= REQUEST_MAX)) {
        (void)!send(s->fd, wrong, sizeof wrong - 1, MSG_NOSIGNAL); /* it may have gone: that must not end the server */
        got = 0;
    }
    s->line_len = 0;
    if (got <= 0)
        hang_up(s);
    else
        ask(s);
}

static void add_tenant(uint32_t id, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(0x7f000001)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(htb_reserve(&tree, clock_ns(), id, &terms[id - 1], NULL) == QOS_OK, "a reservation does not fit");
    must(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 64) == 0, "the port is taken");
    sources[fd] = (struct source){.request = {.class_id = id}, .fd = fd, .listens = true};
    listeners[id - 1] = &sources[fd];
    watch(&sources[fd], EPOLLIN, EPOLL_CTL_ADD);
}

int main(int argc, char **argv)
{
    static unsigned char memory[16384] __attribute__((aligned(64)));
    static struct htb_config config = {.rate_per_s = {40000000}, .order = HTB_FIFO, .bound = HTB_BY_RATE};
    struct epoll_event e;
    struct qos_stats stats;
    const int port = argc == 2 ? (int)strtol(argv[1], NULL, 10) : 0;
    must(port >= 1024 && port <= 65000, "usage: quickstart_htb PORT (1024..65000)");
    must(htb_init(&tree, memory, sizeof memory, &config) == QOS_OK, "htb_init: see htb_config_error");
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t id = 1; id <= TENANTS; id++)
        add_tenant(id, port + (int)id - 1);
    places_max = qos_sat_sub(qos_min((uint64_t)sysconf(_SC_OPEN_MAX), FILES_MAX), FILES_OTHER) / TENANTS;
    signal(SIGTERM, on_signal);
    while (!stop) {
        const uint64_t now_ns = clock_ns();
        uint64_t next_ns;
        struct timespec wait;
        struct source *s;
        if (now_ns >= accept_ns) {
            accept_ns = QOS_NEVER;
            for (int i = 0; i < TENANTS; i++)
                watch(listeners[i], EPOLLIN, EPOLL_CTL_MOD);
        }
        while ((s = (struct source *)(void *)htb_dispatch(&tree, now_ns)) != NULL) /* 3. send what may go, */
            send_some(s);
        next_ns = qos_min(htb_dispatch_next_ns(&tree, now_ns), accept_ns);
        wait = (struct timespec){.tv_nsec = (long)qos_min(next_ns - now_ns, QOS_NS_PER_S - 1)};
        if (epoll_pwait2(epoll_fd, &e, 1, &wait, NULL) != 1) /* then sleep */
            continue;
        s = e.data.ptr; /* one event at a time: a later one may be of a connection that this one closed */
        if (s->listens)
            on_listener(s);
        else if (s->left == 0)
            on_line(s);
        else
            (e.events & EPOLLOUT) ? ask(s) : hang_up(s);
    }
    for (uint32_t id = 1; id <= TENANTS && htb_stats(&tree, id, &stats) == QOS_OK; id++)
        printf("tenant %u: granted %ju borrowed %ju\n", id, (uintmax_t)stats.granted, (uintmax_t)stats.borrowed);
}
