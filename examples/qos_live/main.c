// qos_live: shows what the tenants of running servers get, for nginx with the module of examples/nginx and for
// memcached_gate.
#include "common.h"
#include "qos.h"
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SERVERS_MAX 64
#define TENANTS_MAX 1024
#define NAME_BYTES 128
#define STEPS 32 /* step k of a server's histogram: below 2^k us */
#define ANSWER_BYTES (UINT64_C(4) << 20)

enum kind { NGINX, GATE };
static struct server {
    enum kind kind;
    const char *url; /* as given */
    char host[128], port[16], path[256];
} server[SERVERS_MAX];
static uint32_t servers;
static uint64_t every_ns, run_ns = QOS_NEVER;

struct sample {
    uint64_t got, reserve, limit, waiting, step[STEPS];
    char waits_for[32];
};
/* A tenant at one server. */
static struct tenant {
    char name[NAME_BYTES];
    const struct server *at;
    bool seen; /* in this query */
    struct sample now, last;
} tenant[TENANTS_MAX];
static uint32_t tenants;

/* ---- query of a server */

static void on_server(enum kind kind, const char *text)
{
    struct server *s = &server[servers];
    const char *at = text, *slash, *colon;
    if (servers == SERVERS_MAX)
        tool_die(TOOL_USAGE, "at most %d servers", SERVERS_MAX);
    if (kind == NGINX && strncmp(at, "http://", 7) == 0)
        at += 7;
    slash = strchr(at, '/');
    slash = slash ? slash : at + strlen(at);
    for (colon = slash; colon > at && *colon != ':';)
        colon--;
    if (*colon != ':' || colon == at || colon + 1 == slash || (kind == NGINX) != (*slash == '/') ||
        (size_t)(colon - at) >= sizeof s->host || (size_t)(slash - colon) > sizeof s->port ||
        strlen(slash) >= sizeof s->path)
        tool_die(TOOL_USAGE, "--%s %s: give %s", kind == NGINX ? "nginx" : "gate", text,
                 kind == NGINX ? "http://ADDRESS:PORT/PATH" : "ADDRESS:PORT");
    s->kind = kind;
    s->url = text;
    snprintf(s->host, sizeof s->host, "%.*s", (int)(colon - at), at);
    snprintf(s->port, sizeof s->port, "%.*s", (int)(slash - colon - 1), colon + 1);
    snprintf(s->path, sizeof s->path, "%s", slash);
    servers++;
}

static void on_nginx(const char *text)
{
    on_server(NGINX, tool_copy(text));
}

static void on_gate(const char *text)
{
    on_server(GATE, tool_copy(text));
}

static int dial(const struct server *s)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = 5};
    struct addrinfo *list = NULL, *a;
    int fd = -1;
    if (getaddrinfo(s->host, s->port, &hints, &list) != 0)
        return -1;
    for (a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

/* The answer, to the end of the connection; the caller frees it. NULL: it does not answer. */
static char *ask(const struct server *s)
{
    char question[512];
    size_t bytes = 0, room = 0;
    char *text = NULL;
    ssize_t n = 1;
    int length, fd = dial(s);
    if (fd < 0)
        return NULL;
    length = s->kind == GATE
                 ? snprintf(question, sizeof question, "stats qos\r\nquit\r\n")
                 : snprintf(question, sizeof question, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", s->path, s->host);
    if (send(fd, question, (size_t)length, MSG_NOSIGNAL) != length)
        n = -1;
    while (n > 0 && bytes < ANSWER_BYTES) {
        if (room - bytes < 4096) {
            room = room * 2 + 16384;
            text = tool_grow(text, room);
        }
        n = recv(fd, text + bytes, room - bytes - 1, 0);
        bytes += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (n == 0 && bytes == 0)
        errno = ECONNRESET;
    if (n > 0)
        errno = EMSGSIZE;
    if (n != 0 || bytes == 0) {
        free(text);
        return NULL;
    }
    text[bytes] = 0;
    return text;
}

/* ---- reading its answer */

/* NULL: there are too many. */
static struct sample *sample_of(const struct server *at, const char *name)
{
    uint32_t k;
    for (k = 0; k < tenants; k++)
        if (tenant[k].at == at && strcmp(tenant[k].name, name) == 0)
            break;
    if (k == TENANTS_MAX)
        return NULL;
    if (k == tenants) {
        tenants++;
        snprintf(tenant[k].name, sizeof tenant[k].name, "%s", name);
        tenant[k].at = at;
    }
    tenant[k].seen = true;
    return &tenant[k].now;
}

static void add_steps(struct sample *s, char *list)
{
    uint32_t k;
    for (k = 0; k < STEPS && *list; k++) {
        s->step[k] += strtoull(list, &list, 10);
        list += *list == ',';
    }
}

/* STAT gold:requests_total 12 */
static void read_gate(const struct server *at, char *line)
{
    char *name = line + 5, *value, *what;
    struct sample *s;
    if (strncmp(line, "STAT ", 5) != 0 || !(value = strchr(name, ' ')))
        return;
    *value++ = 0;
    what = strrchr(name, ':');
    if (!what)
        return;
    *what++ = 0;
    s = sample_of(at, name);
    if (!s)
        return;
    if (strcmp(what, "requests_total") == 0)
        s->got += strtoull(value, NULL, 10);
    else if (strcmp(what, "reserve") == 0)
        s->reserve += strtoull(value, NULL, 10);
    else if (strcmp(what, "limit") == 0)
        s->limit += strtoull(value, NULL, 10);
    else if (strcmp(what, "waiting") == 0)
        s->waiting += strtoull(value, NULL, 10);
    else if (strcmp(what, "latency_log2_us") == 0)
        add_steps(s, value);
    else if (strcmp(what, "waits_for") == 0 && (!s->waits_for[0] || strcmp(value, "nothing") != 0))
        snprintf(s->waits_for, sizeof s->waits_for, "%s", value);
}

/* zone disks: at_ns 1, rate 2, ... ; then a heading; then a line for each tenant */
static void read_nginx(const struct server *at, char *line, char zone[NAME_BYTES])
{
    enum {
        NAME,
        RESERVE,
        LIMIT,
        WEIGHT,
        REQUESTS,
        REJECTED,
        RESPONSE,
        REQUEST,
        BORROWED,
        WAITS,
        WAITING,
        WAITED,
        STEPS_AT,
        CELLS
    };
    char *cell[CELLS + 1], *rest = line, name[2 * NAME_BYTES];
    uint32_t n = 0;
    struct sample *s;
    if (sscanf(line, "zone %127[^:]:", zone) == 1)
        return;
    while (n <= CELLS && (cell[n] = strsep(&rest, " ")) != NULL)
        n++;
    if (n != CELLS || !zone[0] || strcmp(cell[NAME], "tenant") == 0)
        return;
    snprintf(name, sizeof name, "%.40s/%.64s", zone, cell[NAME]);
    s = sample_of(at, name);
    if (!s)
        return;
    s->reserve += strtoull(cell[RESERVE], NULL, 10);
    s->limit += strtoull(cell[LIMIT], NULL, 10);
    s->got += strtoull(cell[RESPONSE], NULL, 10) + strtoull(cell[REQUEST], NULL, 10);
    s->waiting += strtoull(cell[WAITING], NULL, 10);
    add_steps(s, cell[STEPS_AT]);
}

/* false: it does not answer; its last values stay. */
static bool look_at(const struct server *s)
{
    char *text = ask(s), *rest = text, *line, zone[NAME_BYTES] = "";
    uint32_t k;
    for (k = 0; k < tenants; k++) {
        if (tenant[k].at != s)
            continue;
        tenant[k].last = tenant[k].now;
        if (text)
            memset(&tenant[k].now, 0, sizeof tenant[k].now);
        tenant[k].seen = !text;
    }
    while ((line = strsep(&rest, "\n")) != NULL) {
        line[strcspn(line, "\r")] = 0;
        if (s->kind == GATE)
            read_gate(s, line);
        else
            read_nginx(s, line, zone);
    }
    free(text);
    return text != NULL;
}

/* ---- showing it */

/* The end of the step that 99 % do not exceed; 0: there are none. */
static uint64_t p99_ns(const uint64_t *step)
{
    uint64_t all = 0, seen = 0;
    uint32_t k;
    for (k = 0; k < STEPS; k++)
        all += step[k];
    for (k = 0; k < STEPS && all; k++) {
        seen += step[k];
        if (seen * 100 >= all * 99)
            return 1000 * (UINT64_C(1) << k);
    }
    return 0;
}

static const char *waits_for(const struct sample *sum, double got)
{
    if (sum->waits_for[0])
        return sum->waits_for;
    if (sum->waiting == 0)
        return "nothing";
    return sum->limit && got >= 0.95 * (double)sum->limit ? "its limit" : "its turn";
}

/* The change since the last query, at one server. After a restart of the server the counts start at 0. */
static void add(struct sample *sum, const struct tenant *t)
{
    const bool anew = t->now.got < t->last.got;
    uint32_t k;
    sum->got += t->now.got - (anew ? 0 : t->last.got);
    sum->reserve += t->now.reserve;
    sum->limit += t->now.limit;
    sum->waiting += t->now.waiting;
    for (k = 0; k < STEPS; k++)
        sum->step[k] += t->now.step[k] - (anew ? 0 : qos_min(t->last.step[k], t->now.step[k]));
    if (!sum->waits_for[0] || strcmp(t->now.waits_for, "nothing") != 0)
        memcpy(sum->waits_for, t->now.waits_for, sizeof sum->waits_for);
}

static uint32_t rows_of(struct live_row *row, struct sample *sum, double seconds)
{
    uint32_t k, i, n = 0;
    for (k = 0; k < tenants; k++) {
        if (!tenant[k].seen)
            continue;
        for (i = 0; i < n && strcmp(row[i].name, tenant[k].name) != 0;)
            i++;
        if (i == n) {
            row[n++].name = tenant[k].name;
            memset(&sum[i], 0, sizeof sum[i]);
        }
        add(&sum[i], &tenant[k]);
    }
    for (i = 0; i < n; i++) {
        row[i].got = (double)sum[i].got / seconds;
        row[i].reserve = sum[i].reserve;
        row[i].limit = sum[i].limit;
        row[i].p99_ns = p99_ns(sum[i].step);
        row[i].waits = waits_for(&sum[i], row[i].got);
        row[i].waits_ns = UINT64_MAX;
    }
    return n;
}

static void watch(enum kind kind)
{
    struct live *view = live_new(stdout, kind == NGINX ? human_rate : human_count);
    struct live_row *row = tool_alloc(TENANTS_MAX * sizeof *row);
    struct sample *sum = tool_alloc(TENANTS_MAX * sizeof *sum);
    const uint64_t start_ns = tool_now_ns(), each_ns = every_ns ? every_ns : live_every_ns(view);
    uint64_t last_ns = start_ns, now_ns, next_ns = start_ns + each_ns;
    char heading[64];
    uint32_t k, silent;
    for (k = 0; k < servers; k++)
        if (!look_at(&server[k]))
            tool_die(TOOL_FAILED, "%s: does not answer: %s", server[k].url, strerror(errno));
    if (tenants == 0)
        tool_die(TOOL_FAILED, "%s: shows no tenants; is this the page of qos_status, or a memcached_gate?",
                 server[0].url);
    while (!stop_asked() && qos_elapsed_ns(start_ns, tool_now_ns()) < run_ns) {
        tool_sleep_until_ns(next_ns);
        if (stop_asked())
            break;
        for (k = silent = 0; k < servers; k++)
            silent += !look_at(&server[k]);
        now_ns = tool_now_ns();
        snprintf(heading, sizeof heading, silent ? "%.1f s, %u silent" : "%.1f s", (double)(now_ns - start_ns) / 1e9,
                 silent);
        live_show(view, heading, row, rows_of(row, sum, (double)(now_ns - last_ns) / 1e9));
        last_ns = now_ns;
        next_ns = qos_max(next_ns + each_ns, now_ns);
    }
    free(row);
    free(sum);
    live_free(view);
}

int main(int argc, char **argv)
{
    const struct opt opts[] = {
        {"nginx", OPT_EACH, NULL, "URL", "page of the directive qos_status, as text: http://ADDRESS:PORT/PATH",
         on_nginx},
        {"gate", OPT_EACH, NULL, "ADDRESS:PORT", "a memcached_gate; of several, buckets of the same name are summed",
         on_gate},
        {"every", OPT_TIME, &every_ns, "TIME", "time between two updates; default 500ms on a terminal, otherwise 1s",
         NULL},
        {"time", OPT_TIME, &run_ns, "TIME", "for how long; default: until it is stopped", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    int k =
        opt_parse(argc, argv, opts,
                  "shows what each tenant of running servers gets, was promised, how long its requests take (p99, to a "
                  "power of two; of nginx: how long they waited), and what they wait for",
                  "A terminal shows a table with a line of bars for each tenant; elsewhere a line of text each:\n"
                  "  qos_live --nginx http://127.0.0.1:8080/qos\n"
                  "  qos_live --gate 127.0.0.1:11311 --gate 127.0.0.2:11311 --time 10s\n"
                  "Exit status: 0 done or stopped, 1 failed, 2 wrong usage.\n");
    uint32_t i;
    if (k < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[k]);
    if (servers == 0)
        tool_die(TOOL_USAGE, "give --nginx URL or --gate ADDRESS:PORT");
    for (i = 1; i < servers; i++)
        if (server[i].kind != server[0].kind)
            tool_die(TOOL_USAGE, "--nginx or --gate, not both: bytes and requests do not fit in one table");
    if (every_ns && every_ns < 50000000)
        tool_die(TOOL_USAGE, "--every: at least 50ms");
    stop_on_signals();
    watch(server[0].kind);
    return TOOL_OK;
}
