// Statistics: as lines of `stats qos`, or for Prometheus by its conventions (a HELP and a TYPE for each family, base units,
// histograms with their sum and count, labels escaped), in a file or over HTTP.
#include "gate.h"
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAX 4096
#define CLIENT_NS QOS_NS_PER_S /* a scraper has this long to ask */

static const char *const reason[REFUSED_REASONS] = {"memory", "connections", "idle", "memcached_down"};

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static void text_of_bucket(FILE *f, const struct bucket_stats *s)
{
    const struct {
        const char *name;
        uint64_t value;
    } line[] = {{"reserve", s->spec.terms.reservation_per_s},
                {"limit", s->spec.terms.limit_per_s},
                {"weight", qos_max(s->spec.terms.weight, 1)},
                {"requests_total", s->requests},
                {"by_reservation_total", s->reserved},
                {"failed_total", s->failed},
                {"refused_total", s->refused[0] + s->refused[1] + s->refused[2] + s->refused[3]},
                {"waiting", s->waiting},
                {"waited_ns_total", s->backlog_ns},
                {"emptied_total", s->emptied},
                {"chances_total", s->chances},
                {"memory_bytes", s->memory_bytes},
                {"clients", s->clients}};
    size_t k;
    for (k = 0; k < sizeof line / sizeof *line; k++)
        fprintf(f, "STAT %s:%s %" PRIu64 "\r\n", s->spec.name, line[k].name, line[k].value);
    fprintf(f, "STAT %s:latency_log2_us ", s->spec.name);
    for (k = 0; k < TIME_STEPS; k++)
        fprintf(f, "%s%" PRIu64, k ? "," : "", s->latency.step[k]);
    fprintf(f, "\r\nSTAT %s:waits_for %s\r\n", s->spec.name, s->waits_for);
}

/* ---- for Prometheus ---------------------------------------------------------------------------------------------- */

static void family(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP memcached_gate_%s %s\n# TYPE memcached_gate_%s %s\n", name, help, name, type);
}

/* {bucket="..."; names are printable and have no quotes. */
static void label(FILE *f, const char *name, const char *suffix, const char *bucket)
{
    fprintf(f, "memcached_gate_%s%s{bucket=\"", name, suffix);
    for (; *bucket; bucket++)
        fprintf(f, *bucket == '\\' ? "\\\\" : "%c", *bucket);
    fputc('"', f);
}

static void histogram(FILE *f, const char *name, const char *bucket, const struct times *t)
{
    uint64_t below = 0;
    uint32_t k;
    for (k = 0; k < TIME_STEPS; k++) {
        below += t->step[k];
        label(f, name, "_bucket", bucket);
        if (k + 1 < TIME_STEPS)
            fprintf(f, ",le=\"%.6f\"} %" PRIu64 "\n", (double)(UINT64_C(1) << k) / 1e6, below);
        else
            fprintf(f, ",le=\"+Inf\"} %" PRIu64 "\n", below);
    }
    label(f, name, "_sum", bucket);
    fprintf(f, "} %.9f\n", (double)t->sum_ns / 1e9);
    label(f, name, "_count", bucket);
    fprintf(f, "} %" PRIu64 "\n", below);
}

static double reserve(const struct bucket_stats *s)
{
    return (double)s->spec.terms.reservation_per_s;
}
static double limit(const struct bucket_stats *s)
{
    return (double)s->spec.terms.limit_per_s;
}
static double weight(const struct bucket_stats *s)
{
    return (double)qos_max(s->spec.terms.weight, 1);
}
static double requests(const struct bucket_stats *s)
{
    return (double)s->requests;
}
static double reserved(const struct bucket_stats *s)
{
    return (double)s->reserved;
}
static double failed(const struct bucket_stats *s)
{
    return (double)s->failed;
}
static double waiting(const struct bucket_stats *s)
{
    return (double)s->waiting;
}
static double backlogged(const struct bucket_stats *s)
{
    return (double)s->backlog_ns / 1e9;
}
static double memory(const struct bucket_stats *s)
{
    return (double)s->memory_bytes;
}
static double clients(const struct bucket_stats *s)
{
    return (double)s->clients;
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const struct bucket_stats *s);
} of_bucket[] = {
    {"reserved_requests_per_second", "gauge", "Reservation of the bucket; 0: none.", reserve},
    {"limit_requests_per_second", "gauge", "Limit of the bucket; 0: none.", limit},
    {"weight", "gauge", "Weight of the bucket for the surplus.", weight},
    {"requests_total", "counter", "Requests that were sent to memcached or answered by the gate.", requests},
    {"by_reservation_requests_total", "counter", "Those of them that the reservation paid for.", reserved},
    {"failed_requests_total", "counter", "Requests that got an error, as memcached did not answer or refused them.",
     failed},
    {"waiting_requests", "gauge", "Requests that wait for their grant.", waiting},
    {"backlogged_seconds_total", "counter", "Time in which at least one request waited.", backlogged},
    {"memory_bytes", "gauge", "Memory that is charged to the bucket.", memory},
    {"clients", "gauge", "Connections of clients that belong to the bucket.", clients},
};

static void prometheus_text(FILE *f, const struct bucket_stats *s, uint32_t count, const struct gate_stats *all)
{
    uint32_t k, n, up = gate_backend_up();
    for (k = 0; k < sizeof of_bucket / sizeof *of_bucket; k++) {
        family(f, of_bucket[k].name, of_bucket[k].type, of_bucket[k].help);
        for (n = 0; n < count; n++) {
            label(f, of_bucket[k].name, "", s[n].spec.name);
            fprintf(f, "} %.17g\n", of_bucket[k].value(&s[n]));
        }
    }
    family(f, "refused_total", "counter", "Requests and clients that were refused or closed, by reason.");
    for (n = 0; n < count; n++)
        for (k = 0; k < REFUSED_REASONS; k++) {
            label(f, "refused_total", "", s[n].spec.name);
            fprintf(f, ",reason=\"%s\"} %" PRIu64 "\n", reason[k], s[n].refused[k]);
        }
    family(f, "wait_seconds", "histogram", "Time from a request's arrival to its grant.");
    for (n = 0; n < count; n++)
        histogram(f, "wait_seconds", s[n].spec.name, &s[n].wait);
    family(f, "latency_seconds", "histogram", "Time from a request's arrival to the end of its reply.");
    for (n = 0; n < count; n++)
        histogram(f, "latency_seconds", s[n].spec.name, &s[n].latency);
    family(f, "connected_clients", "gauge", "Connections of clients.");
    fprintf(f, "memcached_gate_connected_clients %u\n", gate_clients());
    family(f, "at_memcached_requests", "gauge", "Requests that memcached has not answered yet.");
    fprintf(f, "memcached_gate_at_memcached_requests %u\n", all->at_memcached);
    family(f, "memcached_up", "gauge", "1 if memcached is connected.");
    fprintf(f, "memcached_gate_memcached_up %u\n", up);
}

pthread_mutex_t metrics_lock = PTHREAD_MUTEX_INITIALIZER;

/* Removed buckets are left out. */
static uint32_t live(struct bucket_stats *s)
{
    uint32_t k, n = 0;
    for (k = 0; k < bucket_count; k++)
        if (s[k].spec.state == BUCKET_LIVE)
            s[n++] = s[k];
    return n;
}

char *metrics_text(bool prometheus, size_t *bytes)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, bytes);
    /* Copies: printing takes long, and the lock must not be held for it. */
    struct bucket_stats *s;
    struct gate_stats all;
    uint32_t k, count;
    if (!f)
        tool_die(TOOL_FAILED, "out of memory");
    pthread_mutex_lock(&metrics_lock);
    s = tool_alloc(bucket_count * sizeof *s);
    buckets_look(s, &all);
    count = live(s);
    pthread_mutex_unlock(&metrics_lock);
    if (prometheus) {
        prometheus_text(f, s, count, &all);
    } else {
        for (k = 0; k < count; k++)
            text_of_bucket(f, &s[k]);
        fprintf(f,
                "STAT clients %u\r\nSTAT at_memcached %u\r\nSTAT memcached_up %d\r\nSTAT now_ns %" PRIu64
                "\r\nSTAT pid %d\r\nEND\r\n",
                gate_clients(), all.at_memcached, gate_backend_up(), all.now_ns, (int)getpid());
    }
    fclose(f);
    free(s);
    return text;
}

/* ---- over HTTP --------------------------------------------------------------------------------------------------- */

static int http_fd;

static void reply(int fd, const char *status, const char *type, const char *body, size_t bytes)
{
    char head[256];
    size_t at = 0, head_bytes = (size_t)snprintf(head, sizeof head,
                                                 "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                                                 "Connection: close\r\n\r\n",
                                                 status, type, bytes);
    ssize_t n = send(fd, head, head_bytes, MSG_NOSIGNAL | MSG_MORE);
    while (n > 0 && at < bytes) {
        n = send(fd, body + at, bytes - at, MSG_NOSIGNAL);
        at += n > 0 ? (size_t)n : 0;
    }
}

/* Reads to the end of the head, or for a second. */
static bool read_head(int fd, char *text)
{
    uint64_t end_ns = tool_now_ns() + CLIENT_NS;
    size_t bytes = 0;
    while (bytes < REQUEST_MAX - 1 && tool_now_ns() < end_ns) {
        ssize_t n = recv(fd, text + bytes, REQUEST_MAX - 1 - bytes, 0);
        if (n <= 0)
            return false;
        bytes += (size_t)n;
        text[bytes] = 0;
        if (strstr(text, "\r\n\r\n") || strstr(text, "\n\n"))
            return true;
    }
    return false;
}

static void *serve(void *arg)
{
    static const char elsewhere[] = "statistics are at /metrics\n";
    (void)arg;
    for (;;) {
        const struct timeval second = {CLIENT_NS / QOS_NS_PER_S, 0};
        char text[REQUEST_MAX];
        int fd = accept4(http_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            usleep(10000); /* no more files, perhaps */
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
        if (read_head(fd, text)) {
            if (strncmp(text, "GET /metrics ", 13) == 0 || strncmp(text, "GET /metrics?", 13) == 0) {
                size_t bytes = 0;
                char *body = metrics_text(true, &bytes);
                reply(fd, "200 OK", "text/plain; version=0.0.4; charset=utf-8", body, bytes);
                free(body);
            } else {
                bool get = strncmp(text, "GET ", 4) == 0;
                reply(fd, get ? "404 Not Found" : "405 Method Not Allowed", "text/plain", elsewhere,
                      sizeof elsewhere - 1);
            }
        }
        close(fd);
    }
    return NULL;
}

void metrics_listen(const char *address)
{
    pthread_t thread;
    http_fd = gate_socket("--metrics", address, 0);
    if (pthread_create(&thread, NULL, serve, NULL) != 0)
        tool_die(TOOL_FAILED, "a thread cannot be started");
    pthread_detach(thread);
}
