/* nginx_client - many clients of an HTTP/1.1 server that count what they get, for tests/real/nginx*.sh.
 *
 *     nginx_client PORT SECONDS FILE NAME:CONNECTIONS:PATH...
 *
 * Each connection of a group asks for PATH with "X-Tenant: NAME", again and again, until the time is over. What comes is
 * compared with FILE. Prints a line for each group and 100 ms: "at NAME SECONDS BYTES" (bytes of bodies since the
 * start), and at the end "end NAME SECONDS BYTES RESPONSES WRONG REFUSED ENDED". WRONG: other bytes, or a response that
 * ended early. REFUSED: a status other than 200. ENDED: connections that the server ended between two responses. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct group {
    const char *name;
    int connections;
    char request[512];
    uint64_t bytes, responses, wrong, refused, ended;
};

struct client {
    struct group *group;
    int fd;
    char head[4096];
    size_t head_len;
    int64_t left; /* bytes of the body; -1: in the header */
    size_t at;    /* in FILE */
    int status;
};

static struct group groups[16];
static struct client clients[4096];
static char *file;
static size_t file_len;
static uint16_t port;
static int queue;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void ask(struct client *c)
{
    const size_t len = strlen(c->group->request);
    c->head_len = 0;
    c->left = -1;
    c->at = 0;
    if (send(c->fd, c->group->request, len, MSG_NOSIGNAL) != (ssize_t)len)
        c->left = -2; /* seen at the next read */
}

static void begin(struct client *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0 || fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(queue, EPOLL_CTL_ADD, c->fd, &event) != 0) {
        perror("nginx_client: connect");
        exit(2);
    }
    ask(c);
}

/* Takes n bytes that came. Returns how many belong to this response. */
static size_t take_header(struct client *c, const char *p, size_t n)
{
    const size_t had = c->head_len, room = sizeof c->head - 1 - had, more = n < room ? n : room;
    char *end, *length;
    memcpy(c->head + had, p, more);
    c->head[c->head_len = had + more] = '\0';
    end = strstr(c->head, "\r\n\r\n");
    if (!end)
        return more;
    length = strcasestr(c->head, "\r\nContent-Length:");
    c->status = (int)strtol(c->head + 9, NULL, 10);
    c->left = length && length < end ? strtoll(length + 17, NULL, 10) : 0;
    if (c->status != 200)
        c->group->refused++;
    return (size_t)(end + 4 - c->head) - had;
}

static size_t take_body(struct client *c, const char *p, size_t n)
{
    if ((int64_t)n > c->left)
        n = (size_t)c->left;
    if (c->status == 200) {
        c->group->bytes += n;
        if (c->at + n > file_len || memcmp(file + c->at, p, n) != 0)
            c->group->wrong++;
        c->at += n;
    }
    c->left -= (int64_t)n;
    return n;
}

static void on_read(struct client *c)
{
    static char buffer[262144];
    const ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    size_t at = 0, n = got > 0 ? (size_t)got : 0;
    if (got < 0 && errno == EAGAIN)
        return;
    while (at < n) {
        at += c->left == -1 ? take_header(c, buffer + at, n - at) : take_body(c, buffer + at, n - at);
        if (c->left == 0) {
            if (c->status == 200) {
                c->group->responses++;
                c->group->wrong += c->at != file_len;
            }
            ask(c);
        }
    }
    if (got <= 0) {
        if (c->left > 0 || c->head_len != 0)
            c->group->wrong++;
        else
            c->group->ended++;
        close(c->fd);
        begin(c);
    }
}

int main(int argc, char **argv)
{
    struct epoll_event events[256];
    double start, now, end, next;
    FILE *f = argc > 4 ? fopen(argv[3], "rb") : NULL;
    int i, k, n, count = argc - 4, used = 0;
    if (!f || count > 16) {
        fprintf(stderr, "usage: nginx_client PORT SECONDS FILE NAME:CONNECTIONS:PATH...\n");
        return 2;
    }
    fseek(f, 0, SEEK_END);
    file_len = (size_t)ftell(f);
    rewind(f);
    file = malloc(file_len + 1);
    if (!file || fread(file, 1, file_len, f) != file_len)
        return 2;
    fclose(f);
    port = (uint16_t)strtol(argv[1], NULL, 10);
    queue = epoll_create1(0);
    start = seconds();
    end = start + strtod(argv[2], NULL);
    for (i = 0; i < count; i++) {
        struct group *g = &groups[i];
        g->name = strtok(argv[4 + i], ":");
        g->connections = (int)strtol(strtok(NULL, ":"), NULL, 10);
        snprintf(g->request, sizeof g->request, "GET %s HTTP/1.1\r\nHost: a\r\nX-Tenant: %s\r\n\r\n", strtok(NULL, ""),
                 g->name);
        for (k = 0; k < g->connections; k++) {
            if (used == 4096)
                return 2;
            clients[used].group = g;
            begin(&clients[used++]);
        }
    }
    for (next = start; (now = seconds()) < end;) {
        n = epoll_wait(queue, events, 256, 10);
        for (i = 0; i < n; i++)
            on_read(events[i].data.ptr);
        if ((now = seconds()) >= next) {
            for (i = 0; i < count; i++)
                printf("at %s %.4f %llu\n", groups[i].name, now - start, (unsigned long long)groups[i].bytes);
            next = now + 0.1; /* no two lines of one time, even after a pause */
        }
    }
    for (i = 0; i < count; i++)
        printf("end %s %.4f %llu %llu %llu %llu %llu\n", groups[i].name, now - start,
               (unsigned long long)groups[i].bytes, (unsigned long long)groups[i].responses,
               (unsigned long long)groups[i].wrong, (unsigned long long)groups[i].refused,
               (unsigned long long)groups[i].ended);
    return 0;
}
