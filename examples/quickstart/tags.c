// flags: -D_GNU_SOURCE
// links: -luring
/* quickstart/tags.c - an io_uring server on loopback that sends parts of a file; tags.h decides whose turn it is.
 * quickstart_tags 7001 FILE: "TENANT OFFSET LENGTH\n" gets LENGTH bytes. SIGTERM ends it. Copy steps 1 to 6. */
#include "tags.h"
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TENANTS = 3, DEPTH = 16, LENGTH_MAX = 131072, WAIT_MAX_NS = 200000000, SILENT_MAX_S = 10 };
static const struct tags_client terms[TENANTS] = {
    {.weight = 2, .reservation_per_s = 2000000}, /* 2 MB/s reserved, and half of the device's time */
    {.weight = 1, .limit_per_s = 4000000},       /* never more than 4 MB/s */
    {.weight = 1}};
enum event { ACCEPTED, HUNG_UP, LINE, READ, SENT, TIMED }; /* in the low bits of user_data */
struct client {                                            /* or the listener */
    struct tags_request request;                           /* 1. first, so that the pointers convert */
    int fd;
    unsigned operations; /* in the ring */
    bool waits, gone;    /* in its tenant's queue; only its operations are left */
    size_t line_len, offset, length;
    char line[48], data[LENGTH_MAX];
};
static struct tags tags;
static struct io_uring ring;
static struct client listener;
static uint64_t accept_ns; /* when to accept; QOS_NEVER: it does */

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

/* An entry of the ring, to be prepared (from liburing 2.2 on that leaves user_data alone). */
static struct io_uring_sqe *entry(struct client *c, enum event event)
{
    struct io_uring_sqe *sqe;
    if (io_uring_sq_space_left(&ring) < 2 && event != TIMED)
        io_uring_submit(&ring);
    sqe = io_uring_get_sqe(&ring);
    sqe->user_data = (uintptr_t)c | (unsigned)event;
    c->operations++;
    return sqe;
}

/* A client that sends or takes nothing for so long goes: it holds a file that others want. */
static void limit_time(struct client *c, struct io_uring_sqe *sqe)
{
    static struct __kernel_timespec most = {SILENT_MAX_S, 0};
    sqe->flags |= IOSQE_IO_LINK;
    io_uring_prep_link_timeout(entry(c, TIMED), &most, 0);
}

static void on_line(struct client *c, uint64_t now_ns)
{
    static const char wrong[] = "error: send TENANT OFFSET LENGTH in a line, LENGTH 1 to 131072\n";
    char *at = c->line;
    c->line[c->line_len] = 0;
    if (!strchr(c->line, '\n') && c->line_len < sizeof c->line - 1) { /* not whole yet */
        struct io_uring_sqe *sqe = entry(c, LINE);
        io_uring_prep_recv(sqe, c->fd, c->line + c->line_len, sizeof c->line - 1 - c->line_len, 0);
        limit_time(c, sqe);
        return;
    }
    c->line_len = 0;
    const unsigned long tenant = strtoul(at, &at, 10);
    c->offset = strtoul(at, &at, 10);
    c->length = strtoul(at, &at, 10);
    if (strspn(c->line, "0123456789 \n") == strlen(c->line) && strcmp(at, "\n") == 0 && tenant < TENANTS &&
        c->length - 1 < LENGTH_MAX && c->offset <= INT64_MAX) {
        c->waits = true; /* 2. its cost is bytes; it waits in its tenant's queue */
        c->request.cost = c->length;
        must(tags_push(&tags, now_ns, (uint32_t)tenant, &c->request) == QOS_OK, "a valid request was refused");
        return;
    }
    (void)!send(c->fd, wrong, sizeof wrong - 1, MSG_NOSIGNAL); /* it may have gone: that must not end the server */
    shutdown(c->fd, SHUT_RDWR);
}

static void accept_next(void)
{
    io_uring_prep_accept(entry(&listener, ACCEPTED), listener.fd, NULL, NULL, SOCK_CLOEXEC);
    accept_ns = QOS_NEVER;
}

static void on_accepted(int fd, uint64_t now_ns)
{
    struct client *fresh = fd >= 0 ? calloc(1, sizeof *fresh) : NULL;
    if (!fresh) { /* no more files or memory: again a while later, whatever else happens */
        if (fd >= 0)
            close(fd);
        accept_ns = now_ns + WAIT_MAX_NS;
        return;
    }
    fresh->fd = fd;
    io_uring_prep_poll_add(entry(fresh, HUNG_UP), fd, POLLRDHUP);
    on_line(fresh, now_ns);
    accept_next();
}

static void on_event(struct client *c, enum event event, int result, uint64_t now_ns)
{
    c->operations--;
    if (event == ACCEPTED) { /* c is the listener */
        on_accepted(result, now_ns);
        return;
    }
    if (event == READ) /* 4. the device is done; all that are reaped together carry one time */
        must((result < 0 ? tags_fail : tags_complete)(&tags, now_ns, &c->request.grant, 0) == QOS_OK, "twice");
    if (event == HUNG_UP) {
        c->gone = true;
        if (c->waits) /* 5. a client that goes takes its request with it */
            must(tags_unlink(&tags, now_ns, &c->request) == QOS_OK, "a request that waits is not queued");
    } else if (event == TIMED) { /* it was in time; or what it limits ends, too, with less than asked for */
    } else if (result <= 0 || (event == SENT && (size_t)result < c->length) || c->gone) {
        shutdown(c->fd, SHUT_RDWR); /* the end of the file, an error, the client's end: HUNG_UP comes */
    } else if (event == READ) {
        struct io_uring_sqe *sqe = entry(c, SENT);
        c->length = (size_t)result;
        io_uring_prep_send(sqe, c->fd, c->data, c->length, MSG_WAITALL | MSG_NOSIGNAL);
        limit_time(c, sqe);
    } else {
        c->line_len += event == LINE ? (size_t)result : 0;
        on_line(c, now_ns);
    }
    if (c->gone && c->operations == 0) {
        close(c->fd);
        free(c);
    }
}

int main(int argc, char **argv)
{
    static unsigned char memory[16384] __attribute__((aligned(64)));
    static struct tags_config config = {.clients = TENANTS, .at_device_max = DEPTH, .cost_max = LENGTH_MAX};
    const int port = argc == 3 ? (int)strtol(argv[1], NULL, 10) : 0,
              file = argc == 3 ? open(argv[2], O_RDONLY | O_CLOEXEC) : -1;
    const struct sockaddr_in a = {AF_INET, htons((uint16_t)port), {htonl(0x7f000001)}, {0}};
    struct qos_stats stats;
    sigset_t ends;
    must(port >= 1024 && port <= 65000 && file >= 0, "usage: quickstart_tags PORT FILE (PORT 1024..65000)");
    config.attribute = config.intrusive = config.count_cost = config.count_by_client = true;
    config.channels = TAGS_CHANNELS_ALL; /* a hard disk: 1 */
    must(tags_init(&tags, memory, sizeof memory, &config) == QOS_OK, "tags_init: see tags_config_error");
    for (uint32_t i = 0; i < TENANTS; i++)
        must(tags_add(&tags, clock_ns(), i, &terms[i]) == QOS_OK, "tags_add: see tags_client_error");
    listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(!bind(listener.fd, (const struct sockaddr *)&a, sizeof a) && !listen(listener.fd, 64), "the port is taken");
    must(io_uring_queue_init(256, &ring, 0) == 0, "no io_uring on this machine");
    must(!sigemptyset(&ends) && !sigaddset(&ends, SIGTERM) && !sigprocmask(SIG_BLOCK, &ends, NULL), "signals");
    while (sigtimedwait(&ends, NULL, &(struct timespec){0, 0}) != SIGTERM) {
        struct io_uring_cqe *cqe;
        struct tags_request *r;
        uint64_t now_ns = clock_ns(), next_ns;
        struct __kernel_timespec wait = {0, WAIT_MAX_NS};
        while (tags_pop(&tags, now_ns, &r) == QOS_OK) { /* 3. whose turn it is, with up to DEPTH at the device */
            struct client *c = (struct client *)(void *)r;
            c->waits = false;
            io_uring_prep_read(entry(c, READ), file, c->data, (unsigned)c->length, c->offset);
        }
        next_ns =
            tags_next_ns(&tags, now_ns); /* 6. sleep until then; now_ns: DEPTH are at the device, an event comes */
        if (next_ns > now_ns)
            wait.tv_nsec = (long long)qos_min(next_ns - now_ns, WAIT_MAX_NS);
        io_uring_submit_and_wait_timeout(&ring, &cqe, 1, &wait, NULL);
        now_ns = clock_ns();
        if (now_ns >= accept_ns)
            accept_next();
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            struct client *c = (struct client *)(uintptr_t)(cqe->user_data & ~UINT64_C(7));
            on_event(c, (enum event)(cqe->user_data & 7), cqe->res, now_ns);
            io_uring_cqe_seen(&ring, cqe);
        }
    }
    for (uint32_t i = 0; tags_stats(&tags, i, &stats) == QOS_OK; i++)
        printf("tenant %u: granted %ju bytes\n", i, (uintmax_t)stats.granted);
}
