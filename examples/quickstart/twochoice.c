// flags: -D_GNU_SOURCE
/* quickstart/twochoice.c - three directories as object servers: a write avoids a busy server, and a log at its home
 * remembers the place, even after kill -9. Copy steps 1 to 5. quickstart_twochoice DIR [BUSY-SERVER] < lines:
 *     write OBJECT OFFSET TEXT      "ok SERVER" when it is durable; OBJECT's home is server OBJECT modulo 3
 *     read OBJECT OFFSET LENGTH     its bytes; zeros where nothing was written */
#include "twochoice.h"
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SERVERS 3u
#define FRAGMENTS 1000u /* in a table */
#define MUST(good, what) ((good) ? (void)0 : err(2, "%s", what))
static struct server {
    struct twochoice_table table;   /* of the objects whose home this is */
    struct twochoice_intake intake; /* how fast it is, and whom it asks for the next write */
    int dir, log[3];
    const char *file[3];
    unsigned char memory[262144] __attribute__((aligned(64))), reserved[8192] __attribute__((aligned(64)));
} servers[SERVERS];
static struct twochoice_placement clients;
static char data[4096], name[4096];

static int log_create(void *server, int log) /* 1. the log: files "log", which counts, "new" and "mark" */
{
    struct server *s = server;
    close(s->log[log]); /* a new log is a new file: it never overwrites an old one */
    (void)!unlinkat(s->dir, s->file[log], 0);
    s->log[log] = openat(s->dir, s->file[log], O_RDWR | O_CREAT | O_EXCL, 0600);
    return s->log[log] < 0 || fsync(s->dir) != 0;
}
static int log_read(void *s, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    *got = (size_t)pread(((struct server *)s)->log[log], buf, len, (off_t)offset);
    return *got > len;
}
static int log_write(void *s, int log, uint64_t offset, const void *buf, size_t len)
{
    return pwrite(((struct server *)s)->log[log], buf, len, (off_t)offset) != (ssize_t)len;
}
static int log_sync(void *s, int log)
{
    return fdatasync(((struct server *)s)->log[log]);
}
static int log_swap(void *server, int log)
{
    struct server *s = server;
    s->file[log] = "log";
    s->file[1 - log] = "new";
    MUST(renameat(s->dir, "new", s->dir, "log") == 0 && fsync(s->dir) == 0, "swap");
    return 0;
}
static void start(uint32_t id, const char *dir) /* 2. the table from its log; an empty one the first time */
{
    static const char *const file[] = {"log", "new", "mark"};
    struct server *s = &servers[id];
    struct twochoice_storage storage = {s, log_create, log_read, log_write, log_sync, log_swap};
    struct twochoice_table_config config = {.max_fragments = FRAGMENTS, .home = id, .storage = &storage};
    struct twochoice_intake_config intake = {.server = id, .max_reservations = 16};
    enum qos_status status;
    MUST(snprintf(name, sizeof name, "%s/%u", dir, id) < (int)sizeof name, "DIR is too long");
    MUST((mkdir(name, 0700) == 0 || access(name, W_OK) == 0) && (s->dir = open(name, O_DIRECTORY)) >= 0, name);
    MUST(flock(s->dir, LOCK_EX | LOCK_NB) == 0, name); /* a second process would replace the log of this one */
    for (int i = 0; i < 3; i++)
        MUST((s->log[i] = openat(s->dir, s->file[i] = file[i], O_RDWR | O_CREAT, 0600)) >= 0, file[i]);
    MUST(twochoice_table_init(&s->table, s->memory, sizeof s->memory, &config) == QOS_OK, "twochoice_table_init");
    MUST(twochoice_intake_init(&s->intake, s->reserved, sizeof s->reserved, &intake) == QOS_OK,
         "twochoice_intake_init");
    status = twochoice_table_recover(&s->table, 0, NULL);
    status = status == QOS_ENOENT ? twochoice_table_format(&s->table) : status;
    if (status != QOS_OK)
        errx(2, "the log of server %u: %s", id, qos_strerror(status));
}

/* Opens (or drops) bytes: an object's own, at its home (stamp 0), or a piece, which its stamp identifies. */
static int open_bytes(const struct server *s, uint64_t object, uint64_t stamp, int flags)
{
    snprintf(name, sizeof name, "%ju.%ju", (uintmax_t)object, (uintmax_t)stamp);
    return flags < 0 ? unlinkat(s->dir, name, 0) : openat(s->dir, name, flags, 0600);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* 3. which server gets this write? Until one does, or there is nothing to say; a network would carry the messages */
static void talk(struct twochoice_place_order *todo)
{
    struct twochoice_message m, answer;
    while (twochoice_placement_step(&clients, now_ns(), todo), todo->todo == TWOCHOICE_PLACE_SEND) {
        if (twochoice_intake_heard(&servers[todo->server].intake, now_ns(), &todo->message, &m))
            (void)twochoice_placement_heard(&clients, now_ns(), &m, &answer);
        for (uint32_t id = 0; id < SERVERS; id++)
            while (twochoice_intake_ask(&servers[id].intake, now_ns(), &m))
                if (twochoice_placement_heard(&clients, now_ns(), &m, &answer))
                    (void)twochoice_intake_heard(&servers[id].intake, now_ns(), &answer, &m);
    }
}

static enum qos_status write_bytes(uint64_t object, uint64_t at, const char *bytes, size_t len)
{
    struct server *home = &servers[object % SERVERS], *there;
    const struct twochoice_write w = {.home = (uint32_t)(object % SERVERS), .len_bytes = len};
    struct twochoice_place_order todo;
    static struct twochoice_piece old[FRAGMENTS]; /* room for all pieces that it may replace */
    uint64_t stamp, request;
    size_t n;
    enum qos_status status = /* 4. begin, bind, data durable, end, commit: then it may be acknowledged */
        twochoice_table_write_begin(&home->table, object, TWOCHOICE_UNBOUND, at, len, &stamp);
    if (status != QOS_OK)
        return status;
    MUST(twochoice_placement_begin(&clients, now_ns(), &w, 1, 0, &request) == QOS_OK, "twochoice_placement_begin");
    do
        talk(&todo);
    while (todo.todo != TWOCHOICE_PLACE_BIND);
    there = &servers[todo.server];
    twochoice_intake_arrived(&there->intake, now_ns(), 0, request, todo.message.turn, len);
    MUST(twochoice_table_write_bind(&home->table, stamp, there == home ? TWOCHOICE_LOCAL : todo.server) == QOS_OK,
         "bind");
    const int fd = open_bytes(there, object, there == home ? 0 : stamp, O_WRONLY | O_CREAT);
    MUST(pwrite(fd, bytes, len, (off_t)at) == (ssize_t)len && fsync(fd) == 0 && fsync(there->dir) == 0, name);
    close(fd);
    twochoice_intake_end(&there->intake, now_ns(), len);
    MUST(twochoice_placement_ended(&clients, now_ns(), request, 0, true) == QOS_OK, "ended");
    talk(&todo); /* the other server is told that no write comes */
    MUST(twochoice_table_write_end(&home->table, stamp, old, FRAGMENTS, &n) == QOS_OK, "end");
    MUST(twochoice_table_commit(&home->table) == QOS_OK, "commit");
    while (n-- > 0) /* a piece that no byte refers to any more is dropped */
        if (!twochoice_table_refers(&home->table, object, old[n].version, old[n].offset, old[n].end - old[n].offset))
            (void)!open_bytes(&servers[old[n].target], object, old[n].version, -1);
    printf("ok %d\n", (int)(there - servers));
    return QOS_OK;
}

static enum qos_status read_bytes(uint64_t object, uint64_t at, size_t len) /* 5. reads each piece from its place */
{
    struct server *home = &servers[object % SERVERS];
    struct twochoice_piece p;
    if (len - 1 >= sizeof data)
        return QOS_ERANGE;
    for (uint64_t next = at; next < at + len; next = p.end) {
        twochoice_table_find(&home->table, object, next, &p);
        p.end = qos_min(p.end, at + len);
        const int fd = open_bytes(p.target == TWOCHOICE_LOCAL ? home : &servers[p.target], object, p.version, O_RDONLY);
        MUST(fd >= 0 || (p.version == 0 && errno == ENOENT), name);
        memset(data + (next - at), 0, p.end - next);
        MUST(fd < 0 || pread(fd, data + (next - at), p.end - next, (off_t)next) >= 0, name);
        close(fd);
    }
    return fwrite(data, 1, len, stdout) == len && putchar('\n') > 0 ? QOS_OK : QOS_EIO;
}

int main(int argc, char **argv)
{
    static struct twochoice_placement_config config = {.servers = SERVERS, .min_write_bytes = QOS_NOTHING};
    static unsigned char memory[131072] __attribute__((aligned(64)));
    static char line[sizeof data + 64];
    while ((unsigned)open("/dev/null", O_RDWR) < STDERR_FILENO) /* no message goes into a file of ours */
        ;
    if (argc < 2)
        errx(2, "usage: quickstart_twochoice DIR [BUSY-SERVER], with commands on standard input");
    MUST(twochoice_placement_init(&clients, memory, sizeof memory, &config) == QOS_OK, "twochoice_placement_init");
    for (uint32_t id = 0; id < SERVERS; id++)
        start(id, argv[1]);
    if (argc > 2)
        twochoice_intake_begin(&servers[strtoul(argv[2], NULL, 10) % SERVERS].intake, now_ns(), 1 << 30);
    while (fgets(line, sizeof line, stdin)) {
        const bool writes = strncmp(line, "write ", 6) == 0, reads = strncmp(line, "read ", 5) == 0;
        char *second = line, *text = line;
        const uint64_t object = strtoull(line + (writes ? 6 : 5), &second, 10), at = strtoull(second, &text, 10);
        const size_t len = strcspn(text, "\n");
        const bool good = text > second && *text == ' ' && len > 1 && len < sizeof data && at < INT64_MAX / 2;
        const enum qos_status status = good && writes  ? write_bytes(object, at, text + 1, len - 1)
                                       : good && reads ? read_bytes(object, at, strtoul(text, NULL, 10))
                                                       : QOS_EINVAL;
        if (status != QOS_OK)
            printf("error: %s\n", status == QOS_EINVAL ? "say write OBJECT OFFSET TEXT, or read OBJECT OFFSET BYTES"
                                                       : qos_strerror(status));
        fflush(stdout);
    }
}
