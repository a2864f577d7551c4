// Statistics: as lines of `stats qos`, or for Prometheus by its conventions (a HELP and a TYPE for each family, base units,
// histograms with their sum and count, labels escaped), in a file or over HTTP.
#include "gate.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAX 4096
#define SCRAPERS 16                   /* at a time */
#define SCRAPE_NS (10 * QOS_NS_PER_S) /* to ask and to take the reply; Prometheus itself waits no longer by default */

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

/* One thread for all scrapers. None waits for another: each has a deadline, and when all places are taken, a new one
 * gets that of the one that has been silent for the longest time. */
static struct scraper {
    int fd;
    char asked[REQUEST_MAX], *reply; /* NULL: the request is not whole yet */
    size_t asked_bytes, bytes, sent;
    uint64_t end_ns;
} scraper[SCRAPERS];
static uint32_t scrapers; /* by age */
static int http_fd;

static void end_scraper(uint32_t k)
{
    close(scraper[k].fd);
    free(scraper[k].reply);
    memmove(&scraper[k], &scraper[k + 1], (--scrapers - k) * sizeof *scraper);
}

static void answer(struct scraper *s)
{
    const char *status = "200 OK", *type = "text/plain; version=0.0.4; charset=utf-8";
    size_t bytes = 0;
    char *body;
    FILE *f = open_memstream(&s->reply, &s->bytes);
    if (strncmp(s->asked, "GET /metrics ", 13) == 0 || strncmp(s->asked, "GET /metrics?", 13) == 0) {
        body = metrics_text(true, &bytes);
    } else {
        status = strncmp(s->asked, "GET ", 4) == 0 ? "404 Not Found" : "405 Method Not Allowed";
        type = "text/plain";
        body = tool_copy("statistics are at /metrics\n");
        bytes = strlen(body);
    }
    if (!f)
        tool_die(TOOL_FAILED, "out of memory");
    fprintf(f, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status, type,
            bytes);
    fwrite(body, 1, bytes, f);
    fclose(f);
    free(body);
}

/* Goes on with what the socket has or takes; false: the connection ends. */
static bool goes_on(struct scraper *s)
{
    ssize_t n;
    if (!s->reply) {
        n = recv(s->fd, s->asked + s->asked_bytes, REQUEST_MAX - 1 - s->asked_bytes, 0);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR);
        s->asked_bytes += (size_t)n;
        if (!strstr(s->asked, "\r\n\r\n") && !strstr(s->asked, "\n\n"))
            return s->asked_bytes < REQUEST_MAX - 1;
        answer(s);
    }
    n = send(s->fd, s->reply + s->sent, s->bytes - s->sent, MSG_NOSIGNAL);
    s->sent += n > 0 ? (size_t)n : 0;
    return n < 0 ? errno == EAGAIN || errno == EINTR : s->sent < s->bytes;
}

static void accept_scraper(void)
{
    int fd = accept4(http_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint32_t k = 0;
    if (fd < 0) {
        usleep(10000); /* no more files, perhaps */
        return;
    }
    if (scrapers == SCRAPERS) {
        while (k + 1 < SCRAPERS && scraper[k].reply)
            k++;
        end_scraper(scraper[k].reply ? 0 : k); /* the oldest one, if all have asked */
    }
    scraper[scrapers++] = (struct scraper){.fd = fd, .end_ns = tool_now_ns() + SCRAPE_NS};
}

static void *serve(void *arg)
{
    struct pollfd p[SCRAPERS + 1] = {{.fd = http_fd, .events = POLLIN}};
    (void)arg;
    for (;;) {
        uint32_t k;
        for (k = 0; k < scrapers; k++)
            p[k + 1] = (struct pollfd){.fd = scraper[k].fd, .events = scraper[k].reply ? POLLOUT : POLLIN};
        if (poll(p, scrapers + 1, scrapers ? 100 : -1) < 0)
            continue;
        for (k = scrapers; k-- > 0;)
            if ((p[k + 1].revents && !goes_on(&scraper[k])) || tool_now_ns() >= scraper[k].end_ns)
                end_scraper(k);
        if (p[0].revents) /* one at a time: those that have asked are answered before one makes place */
            accept_scraper();
    }
    return NULL;
}

void metrics_listen(const char *address)
{
    pthread_t thread;
    http_fd = gate_socket("--metrics", address, SOCK_NONBLOCK);
    if (pthread_create(&thread, NULL, serve, NULL) != 0)
        tool_die(TOOL_FAILED, "a thread cannot be started");
    pthread_detach(thread);
}
