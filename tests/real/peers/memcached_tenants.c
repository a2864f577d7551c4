// Two tenants of a gate, each beside a memcached of its own. Each lane of a tenant sends the same random requests to the
// gate and to memcached, and compares the replies, byte by byte. All bytes that a tenant chooses have its mark in them (0xc1
// or 0xc2), so any byte of another tenant's shows, whatever the reply. Includes nothing of the gate.
// usage: [OTHER_WORDS=1] memcached_tenants GATE-PORT MEMCACHED-PORT REPLIES SEED [LANES]
// Prints a line: replies, foreign bytes, replies that differ. Status 1 if there are any of the last two, 2 if it could
// not run, 3 if nothing is heard for a minute.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LANES_MAX 64
#define KEYS 6
#define TEXT_MAX (4u << 20)

struct text {
    char *at;
    size_t bytes;
};
struct lane {
    int tenant, number, generation;
    int fd[2];              /* the gate's, memcached's */
    struct text request[2]; /* those of one batch; they differ where the gate refuses what memcached must not see */
    struct text reply[2];
    size_t sent[2], framed[2];
    bool done[2];
};
static struct lane lane[LANES_MAX];
static unsigned long long replies, foreign, different;
static uint64_t rng;
static int port[2];
static bool other_words; /* another version of memcached: it refuses wrong lines otherwise, so none is sent */

static uint64_t draw(uint64_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (rng >> 16) % below;
}

static void add(struct text *t, const void *data, size_t bytes)
{
    if (t->bytes + bytes > TEXT_MAX) {
        fprintf(stderr, "a batch is too long\n");
        exit(2);
    }
    memcpy(t->at + t->bytes, data, bytes);
    t->bytes += bytes;
}

static void both(struct lane *l, const char *data, size_t bytes)
{
    add(&l->request[0], data, bytes);
    add(&l->request[1], data, bytes);
}

static void say(struct lane *l, const char *text)
{
    both(l, text, strlen(text));
}

static char mark(const struct lane *l)
{
    return (char)(0xc1 + l->tenant);
}

/* A key of this lane only: in its tenant's bucket, or in that of all others. What is counted is never read beside it:
 * memcached changes a number in its place, or makes a new item if a reply still holds the old one. */
static size_t plain_key(const struct lane *l, char key[], bool counter)
{
    return (size_t)sprintf(key, "%s%c%d.%d.%d", draw(4) ? (l->tenant ? "b:" : "a:") : "o:", mark(l), l->number,
                           l->generation, (int)draw(KEYS) + (counter ? KEYS : 0));
}

static const char *const fake[] = {"STORED\r\n",
                                   "END\r\n",
                                   "HD\r\n",
                                   "EN\r\n",
                                   "VALUE a:x 0 4\r\nEVIL\r\nEND\r\n",
                                   "VA 4\r\nEVIL\r\n",
                                   "VALUE b:x 0 4\r\nEVIL\r\nEND\r\n",
                                   "NOT_FOUND\r\n",
                                   "SERVER_ERROR out of memory\r\n",
                                   "MN\r\n",
                                   "1\r\n",
                                   "\r\n",
                                   "\n",
                                   "ERROR\r\n",
                                   "get b:x\r\n",
                                   "mn\r\n",
                                   "\0\r\n"};

static void add_fake(const struct lane *l, struct text *t)
{
    const char *f = fake[draw(sizeof fake / sizeof *fake)];
    char m = mark(l);
    add(t, f, strlen(f) ? strlen(f) : 3);
    add(t, &m, 1);
}

static size_t base64(const char *from, size_t bytes, char *to)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t k, n = 0;
    for (k = 0; k < bytes; k += 3) {
        unsigned v = (unsigned)(unsigned char)from[k] << 16;
        v |= k + 1 < bytes ? (unsigned)(unsigned char)from[k + 1] << 8 : 0;
        v |= k + 2 < bytes ? (unsigned)(unsigned char)from[k + 2] : 0;
        to[n++] = digit[v >> 18];
        to[n++] = digit[v >> 12 & 63];
        to[n++] = k + 1 < bytes ? digit[v >> 6 & 63] : '=';
        to[n++] = k + 2 < bytes ? digit[v & 63] : '=';
    }
    return n;
}

/* In base64: an ordinary key, or one with lines in it that look like replies. */
static size_t binary_key(const struct lane *l, char key[], bool counter, bool *lines)
{
    char raw[400];
    struct text t = {raw, plain_key(l, raw, counter)};
    *lines = draw(2);
    if (*lines) {
        add(&t, "\r\n", 2);
        add_fake(l, &t);
        if (draw(2))
            add_fake(l, &t);
    }
    return base64(t.at, t.bytes, key);
}

static size_t value(const struct lane *l, char *out)
{
    struct text t = {out, 0};
    char m = mark(l);
    size_t n;
    switch (draw(5)) {
    case 0: return (size_t)sprintf(out, "%d", (int)draw(1000000)); /* a number */
    case 1: add_fake(l, &t); break;
    case 2:
        for (n = draw(6); n; n--)
            add_fake(l, &t);
        break;
    case 3:
        for (n = draw(40); n; n--) {
            char any = (char)draw(0xc0);
            add(&t, &any, 1);
        }
        add(&t, &m, 1);
        break;
    default:
        n = draw(60) ? draw(200) : draw(draw(10) ? 20000 : 300000);
        memset(out, m, n);
        t.bytes = n;
    }
    return t.bytes;
}

static void classic(struct lane *l)
{
    static char data[400000];
    static const char *const store[] = {"set", "set", "add", "replace", "append", "prepend", "cas"};
    char key[400];
    unsigned kind = (unsigned)draw(16);
    size_t bytes = plain_key(l, key, kind >= 11 || (kind < 6 && draw(3) == 0)), n;
    const char *quiet = draw(6) ? "" : " noreply";
    key[bytes] = 0;
    if (kind < 6) {
        const char *name = store[draw(sizeof store / sizeof *store)];
        bool cas = strcmp(name, "cas") == 0;
        char line[600];
        n = value(l, data);
        both(l, line,
             (size_t)sprintf(line, "%s %s %d 0 %zu%s%s\r\n", name, key, (int)draw(1 << 16), n,
                             cas ? " 99999999999" : "", quiet));
        both(l, data, n);
        say(l, other_words || draw(200) ? "\r\n" : "xx\r\n"); /* two bytes too many: two lines of memcached */
    } else if (kind < 11) {
        static const char *const get[] = {"get", "get", "gets", "gat 0", "gats 0"};
        say(l, get[draw(5)]);
        for (n = 1 + (draw(3) ? 0 : draw(5)); n; n--) {
            say(l, " ");
            both(l, key, strlen(key));
            key[plain_key(l, key, false)] = 0;
        }
        say(l, "\r\n");
    } else {
        static const char *const rest[] = {"delete %s%s\r\n", "incr %s 3%s\r\n", "decr %s 2%s\r\n", "touch %s 0%s\r\n"};
        char line[600];
        both(l, line, (size_t)sprintf(line, rest[draw(4)], key, quiet));
    }
}

/* All flags of meta commands, each at most once, some with wrong arguments. */
static size_t flags(const struct lane *l, char *out, bool base64_key, bool *asks_key)
{
    static const char *const flag[] = {
        "c",  "f",  "h",  "k",       "k",       "l",  "q",       "s",  "t",  "u",
        "v",  "v",  "N0", "N100000", "R200000", "T0", "T100000", "F5", "F5", "C99999999999",
        "ME", "MA", "MP", "MR",      "MS",      "MI", "MD",      "M+", "J0", "J13",
        "D5", "I",  "O",  "O",       "P",       "L",  "E9",      "Z",  "Nx", "MX"};
    size_t n = draw(7), bytes = 0;
    bool seen[128] = {false};
    *asks_key = false;
    if (base64_key)
        n++;
    for (; n; n--) {
        const char *f = n == 1 && base64_key ? "b" : flag[draw(sizeof flag / sizeof *flag)];
        if (seen[(int)f[0]])
            continue;
        seen[(int)f[0]] = true;
        *asks_key |= *f == 'k';
        bytes += (size_t)sprintf(out + bytes, " %s", f);
        if (*f == 'O')
            bytes += (size_t)sprintf(out + bytes, "%c%d", mark(l), (int)draw(100000));
    }
    return bytes;
}

static void refused(struct lane *l, const char *line, size_t bytes, const char *words)
{
    char own[300];
    add(&l->request[0], line, bytes);
    add(&l->request[1], own,
        (size_t)sprintf(own, "verbosity %s\r\n", words)); /* replaced in the comparison; see same() */
}

static void meta(struct lane *l)
{
    static char data[400000];
    static const char *const name[] = {"mg", "mg", "mg", "ms", "ms", "ma", "md", "me"};
    const char *what = name[draw(sizeof name / sizeof *name)];
    char key[1000], option[400], line[2000];
    bool lines = false, in_base64 = draw(2), asks_key = false;
    bool counter = what[1] == 'a' || (what[1] != 'g' && what[1] != 'e' && draw(3) == 0);
    size_t bytes = in_base64 ? binary_key(l, key, counter, &lines) : plain_key(l, key, counter), n, head;
    if (bytes > 250)
        return;
    option[flags(l, option, in_base64, &asks_key)] = 0;
    if (strcmp(what, "me") == 0)
        strcpy(option, in_base64 ? " b" : "");
    asks_key |= what[1] == 'e';
    /* memcached 1.6.18 is not quiet when a quiet ma makes its item; the gate is */
    if (what[1] == 'a' && strstr(option, " q") && strstr(option, " N"))
        return;
    key[bytes] = 0;
    n = what[1] == 's' ? value(l, data) : 0;
    head = (size_t)(what[1] == 's' ? sprintf(line, "ms %s %zu%s\r\n", key, n, option)
                                   : sprintf(line, "%s %s%s\r\n", what, key, option));
    if (lines && asks_key) {
        if (what[1] == 's') { /* its data is skipped */
            memcpy(line + head, "xy\r\n", 4);
            head = (size_t)sprintf(line, "ms %s 2%s\r\nxy\r\n", key, option);
        }
        refused(l, line, head, "refused refused refused");
        return;
    }
    both(l, line, head);
    if (what[1] == 's') {
        both(l, data, n);
        say(l, "\r\n");
    }
}

static void wrong(struct lane *l)
{
    static const char *const line[] = {"foo\r\n",       "\r\n",        "get\r\n",     "set a\r\n",       "incr a\r\n",
                                       "mg\r\n",        "delete\r\n",  "touch a\r\n", "set a 0 0 x\r\n", "mn\r\n",
                                       "cas a 0 0\r\n", "gat x a\r\n", "ma\r\n"};
    const char *w = line[draw(sizeof line / sizeof *line)];
    if (strcmp(w, "mn\r\n") != 0 && !other_words)
        say(l, w);
}

static void batch(struct lane *l)
{
    unsigned n = 1 + (unsigned)draw(60), way;
    for (way = 0; way < 2; way++) {
        l->request[way].bytes = l->reply[way].bytes = l->sent[way] = l->framed[way] = 0;
        l->done[way] = false;
    }
    while (n-- && l->request[0].bytes < 600000) {
        unsigned kind = (unsigned)draw(40);
        if (kind < 18)
            classic(l);
        else if (kind < 39)
            meta(l);
        else
            wrong(l);
    }
    say(l, "mn\r\n");
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* Moves over whole replies; done after MN. */
static void frame(struct lane *l, int way)
{
    const struct text *t = &l->reply[way];
    while (!l->done[way]) {
        const char *at = t->at + l->framed[way], *end = memchr(at, '\n', t->bytes - l->framed[way]);
        size_t bytes, body = 0;
        if (!end)
            return;
        bytes = (size_t)(end - at) + 1;
        if (bytes > 6 && memcmp(at, "VALUE ", 6) == 0) {
            const char *space = memchr(at + 6, ' ', bytes - 6);
            space = space ? memchr(space + 1, ' ', (size_t)(end - space) - 1) : NULL;
            body = space ? strtoul(space + 1, NULL, 10) + 2 : 0;
        } else if (bytes > 3 && memcmp(at, "VA ", 3) == 0) {
            body = strtoul(at + 3, NULL, 10) + 2;
        }
        if (body > TEXT_MAX || l->framed[way] + bytes + body > t->bytes)
            return;
        l->done[way] = bytes == 4 && memcmp(at, "MN\r\n", 4) == 0;
        if (way == 0 && !l->done[way])
            replies++;
        l->framed[way] += bytes + body;
    }
}

/* Copies a line without what may differ between two memcacheds at work: times and numbers of changes. */
static size_t steady(const char *at, size_t bytes, char *out)
{
    size_t k = 0, n = 0;
    bool gets = bytes > 6 && memcmp(at, "VALUE ", 6) == 0;
    int spaces = 0;
    if (bytes > 3 && memcmp(at, "ME ", 3) == 0) {
        const char *space = memchr(at + 3, ' ', bytes - 3);
        bytes = space ? (size_t)(space - at) : bytes;
    }
    while (k < bytes) {
        out[n++] = at[k];
        spaces += at[k] == ' ';
        if (at[k++] == ' ' &&
            ((gets && spaces == 4) || (!gets && (at[0] == 'H' || at[0] == 'V') && k < bytes && strchr("ctl", at[k]))))
            while (k < bytes && at[k] != ' ' && at[k] != '\r')
                k++;
    }
    return n;
}

static bool is_error(const char *at, size_t bytes)
{
    return (bytes > 5 && memcmp(at, "ERROR", 5) == 0) || (bytes > 12 && memcmp(at, "CLIENT_ERROR", 12) == 0);
}

static bool same(const struct lane *l)
{
    static char x[TEXT_MAX], y[TEXT_MAX];
    static const char errors[] = "CLIENT_ERROR this key has control characters or spaces";
    size_t a = 0, b = 0;
    while (a < l->reply[0].bytes && b < l->reply[1].bytes) {
        const char *p = l->reply[0].at + a, *q = l->reply[1].at + b;
        const char *pe = memchr(p, '\n', l->reply[0].bytes - a), *qe = memchr(q, '\n', l->reply[1].bytes - b);
        size_t n, m;
        if (!pe || !qe)
            break;
        n = (size_t)(pe - p) + 1;
        m = (size_t)(qe - q) + 1;
        a += n;
        b += m;
        /* what only the gate refuses; memcached was asked for something else, which is an error of this form */
        if (n > sizeof errors && memcmp(p, errors, sizeof errors - 1) == 0 && m > 6 && memcmp(q, "ERROR\r", 6) == 0)
            continue;
        if (other_words && is_error(p, n) && is_error(q, m))
            continue;
        n = steady(p, n, x);
        m = steady(q, m, y);
        if (n != m || memcmp(x, y, n) != 0) {
            fprintf(stderr, "tenant %d lane %d: the gate: %.*s   memcached: %.*s", l->tenant, l->number, (int)n, x,
                    (int)m, y);
            return false;
        }
    }
    return a == l->reply[0].bytes && b == l->reply[1].bytes;
}

/* ---- the lanes ----------------------------------------------------------------------------------------------------- */

static int dial(int to)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to), .sin_addr = {htonl(0x7f000001)}};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        fprintf(stderr, "port %d: %s\n", to, strerror(errno));
        exit(2);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void begin_again(struct lane *l)
{
    int way;
    l->generation++;
    for (way = 0; way < 2; way++) {
        if (l->fd[way] > 0)
            close(l->fd[way]);
        l->fd[way] = dial(port[way]);
    }
    batch(l);
}

static void ended(struct lane *l, bool whole)
{
    size_t k;
    for (k = 0; k < l->reply[0].bytes; k++)
        foreign += l->reply[0].at[k] == (char)(0xc2 - l->tenant);
    if (whole && same(l)) {
        if (draw(300) == 0) { /* leaves in the middle of a batch */
            batch(l);
            ssize_t n = send(l->fd[0], l->request[0].at, 1 + draw(l->request[0].bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
            (void)n;
            begin_again(l);
        } else {
            batch(l);
        }
        return;
    }
    different++;
    if (!whole)
        fprintf(stderr, "tenant %d lane %d: the gate's connection ended, or a reply is missing\n", l->tenant,
                l->number);
    begin_again(l);
}

static bool work(struct lane *l, int way, short events)
{
    struct text *t = &l->reply[way];
    if (events & POLLOUT && l->sent[way] < l->request[way].bytes) {
        ssize_t n = send(l->fd[way], l->request[way].at + l->sent[way], l->request[way].bytes - l->sent[way],
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            l->sent[way] += (size_t)n;
        else if (errno != EAGAIN)
            return false;
    }
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        ssize_t n = t->bytes < TEXT_MAX ? recv(l->fd[way], t->at + t->bytes, TEXT_MAX - t->bytes, MSG_DONTWAIT) : 0;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        t->bytes += (size_t)n;
        frame(l, way);
    }
    return true;
}

int main(int argc, char **argv)
{
    unsigned long long want = argc > 3 ? strtoull(argv[3], NULL, 10) : 0, told = 0;
    int lanes = argc > 5 ? atoi(argv[5]) : 16, k, way;
    if (argc < 5 || lanes < 2 || lanes > LANES_MAX) {
        fprintf(stderr, "usage: %s GATE-PORT MEMCACHED-PORT REPLIES SEED [LANES]\n", argv[0]);
        return 2;
    }
    other_words = getenv("OTHER_WORDS") != NULL;
    port[0] = atoi(argv[1]);
    port[1] = atoi(argv[2]);
    rng = strtoull(argv[4], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    for (k = 0; k < lanes; k++) {
        struct lane *l = &lane[k];
        l->tenant = k % 2;
        l->number = k;
        l->generation = (int)getpid() * 100;
        for (way = 0; way < 2; way++) {
            l->request[way].at = malloc(TEXT_MAX);
            l->reply[way].at = malloc(TEXT_MAX);
        }
        begin_again(l);
    }
    while (replies < want && foreign == 0 && different < 200 + want / 50) {
        struct pollfd p[2 * LANES_MAX];
        for (k = 0; k < 2 * lanes; k++) {
            struct lane *l = &lane[k / 2];
            way = k % 2;
            p[k] = (struct pollfd){l->fd[way], 0, 0};
            if (!l->done[way])
                p[k].events = (short)(POLLIN | (l->sent[way] < l->request[way].bytes ? POLLOUT : 0));
        }
        if (poll(p, (nfds_t)(2 * lanes), 60000) == 0) {
            printf("nothing for a minute: %llu replies, %llu foreign bytes, %llu batches that differ\n", replies,
                   foreign, different);
            return 3;
        }
        for (k = 0; k < lanes; k++) {
            struct lane *l = &lane[k];
            bool good = true;
            for (way = 0; way < 2 && good; way++)
                if (p[2 * k + way].revents)
                    good = work(l, way, p[2 * k + way].revents);
            if (!good || (l->done[0] && l->done[1]))
                ended(l, good);
        }
        if (replies / 10000000 > told) {
            told = replies / 10000000;
            printf("%llu replies so far\n", replies);
            fflush(stdout);
        }
    }
    printf("%llu replies, %llu foreign bytes, %llu batches that differ\n", replies, foreign, different);
    return foreign || different ? 1 : 0;
}
