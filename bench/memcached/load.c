// A closed loop of memcached clients: each connection keeps `--pipeline` requests outstanding, a tenth of them sets.
// Prints one line of JSON: requests, errors, requests per second, p50, p99. bench/memcached_gate.sh runs it.
#include "common.h"
#include "qos.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEYS 10000
#define IN_BYTES 65536

static uint64_t port, connections = 50, pipeline = 1, value_bytes = 100, for_ns = QOS_NS_PER_S;

struct connection {
    int fd;
    uint64_t sent_ns, missing, lines; /* replies of the batch, and lines of them, that are still to come */
    uint64_t body;                    /* bytes of a value that are still to come */
    size_t partial;
    char line[128];
};
static struct hist latency;
static struct qos_rng rng;
static uint64_t done, errors;
static char *value;

static void must(bool good, const char *what)
{
    if (!good)
        tool_die(TOOL_FAILED, "%s: %s", what, strerror(errno));
}

static void send_batch(struct connection *c)
{
    static char out[1 << 20];
    size_t bytes = 0, sent = 0;
    uint64_t k;
    for (k = 0; k < pipeline; k++) {
        unsigned key = (unsigned)qos_rng_below(&rng, KEYS);
        if (qos_rng_below(&rng, 10) == 0) {
            bytes += (size_t)sprintf(out + bytes, "set key%u 0 0 %" PRIu64 "\r\n", key, value_bytes);
            memcpy(out + bytes, value, value_bytes + 2);
            bytes += value_bytes + 2;
        } else {
            bytes += (size_t)sprintf(out + bytes, "get key%u\r\n", key);
        }
    }
    c->missing = pipeline;
    c->sent_ns = tool_now_ns();
    while (sent < bytes) {
        ssize_t n = send(c->fd, out + sent, bytes - sent, MSG_NOSIGNAL);
        must(n > 0, "send");
        sent += (size_t)n;
    }
}

static void on_line(struct connection *c)
{
    unsigned long bytes = 0;
    if (memcmp(c->line, "VALUE ", 6) == 0) {
        const char *at = strchr(c->line + 6, ' ');
        at = at ? strchr(at + 1, ' ') : NULL;
        bytes = at ? strtoul(at + 1, NULL, 10) : 0;
        c->body = bytes + 2;
        return;
    }
    errors += strncmp(c->line, "END", 3) != 0 && strncmp(c->line, "STORED", 6) != 0;
    done++;
    c->missing--;
}

static void receive(struct connection *c)
{
    static char in[IN_BYTES];
    ssize_t n = recv(c->fd, in, sizeof in, 0), k;
    must(n > 0, "the server closed a connection");
    for (k = 0; k < n;) {
        if (c->body) {
            uint64_t skip = qos_min(c->body, (uint64_t)(n - k));
            c->body -= skip;
            k += (ssize_t)skip;
            continue;
        }
        c->line[c->partial] = in[k];
        c->partial += c->partial < sizeof c->line - 1;
        if (in[k++] == '\n') {
            c->line[c->partial] = 0;
            c->partial = 0;
            on_line(c);
        }
    }
    if (c->missing == 0) {
        hist_add(&latency, tool_now_ns() - c->sent_ns);
        send_batch(c);
    }
}

static void open_one(struct connection *c, int epoll)
{
    const struct sockaddr_in a = {AF_INET, htons((uint16_t)port), {htonl(0x7f000001)}, {0}};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(c->fd >= 0 && connect(c->fd, (const struct sockaddr *)&a, sizeof a) == 0, "connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e) == 0, "epoll");
}

int main(int argc, char **argv)
{
    const struct opt opts[] = {{"port", OPT_COUNT, &port, "N", "of 127.0.0.1", NULL},
                               {"connections", OPT_COUNT, &connections, "N", "default 50", NULL},
                               {"pipeline", OPT_COUNT, &pipeline, "N", "requests of a connection; default 1", NULL},
                               {"value", OPT_SIZE, &value_bytes, "SIZE", "default 100", NULL},
                               {"time", OPT_TIME, &for_ns, "TIME", "default 1s", NULL},
                               {NULL, OPT_FLAG, NULL, NULL, NULL, NULL}};
    struct epoll_event event[64];
    struct connection *c;
    uint64_t k, begin_ns, now_ns;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    double seconds;
    (void)opt_parse(argc, argv, opts, "a closed loop of memcached clients", NULL);
    if (pipeline * (value_bytes + 64) > 1 << 20 || connections > 20000 || port > 65535)
        tool_die(TOOL_USAGE, "a batch is at most 1 MiB, connections at most 20000");
    value = tool_alloc(value_bytes + 3);
    memset(value, 'x', value_bytes);
    value[value_bytes] = '\r';
    value[value_bytes + 1] = '\n';
    qos_rng_seed(&rng, 1);
    hist_clear(&latency);
    c = tool_alloc(connections * sizeof *c);
    for (k = 0; k < connections; k++)
        open_one(&c[k], epoll);
    begin_ns = tool_now_ns();
    for (k = 0; k < connections; k++)
        send_batch(&c[k]);
    for (now_ns = begin_ns; now_ns < begin_ns + for_ns; now_ns = tool_now_ns()) {
        int n = epoll_wait(epoll, event, 64, 100), i;
        for (i = 0; i < n; i++)
            receive(event[i].data.ptr);
    }
    seconds = (double)(now_ns - begin_ns) / 1e9;
    printf("{\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"per_s\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n", done,
           errors, (double)done / seconds, (double)hist_quantile(&latency, 0.5) / 1e3,
           (double)hist_quantile(&latency, 0.99) / 1e3);
    return errors ? TOOL_FAILED : TOOL_OK;
}
