// A worker's connection to memcached. Requests of all its clients go out in a pipeline; replies return in that order.
//
// Replies are always read at once: a client that does not read stops only itself. A reply that cannot be parsed ends
// the connection, and its requests fail: one tenant's data must never appear in another one's reply.
#include "gate.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_BYTES (256 * 1024)
#define FULL_BYTES (256 * 1024) /* above this nothing is added until some has been sent */
#define REPLY_LINE_MAX 8192
#define RETRY_NS 50000000
#define NOT_THERE "SERVER_ERROR memcached does not answer"
#define NO_ROOM "SERVER_ERROR out of memory writing get response"

static struct sockaddr_storage address;
static socklen_t address_bytes;

static void resolve(void)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[256];
    const char *colon = strrchr(gate_settings.memcached, ':');
    int wrong;
    if (!colon || (size_t)(colon - gate_settings.memcached) >= sizeof host)
        tool_die(TOOL_USAGE, "--memcached %s: write ADDRESS:PORT", gate_settings.memcached);
    snprintf(host, sizeof host, "%.*s", (int)(colon - gate_settings.memcached), gate_settings.memcached);
    wrong = getaddrinfo(host, colon + 1, &hints, &found);
    if (wrong)
        tool_die(TOOL_USAGE, "--memcached %s: %s", gate_settings.memcached, gai_strerror(wrong));
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
}

/* ---- the connection ---------------------------------------------------------------------------------------------- */

static void connect_now(struct worker *w)
{
    struct backend *b = &w->backend;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = b};
    int one = 1;
    b->source.fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    b->retry_ns = w->now_ns + RETRY_NS;
    if (b->source.fd < 0)
        return;
    setsockopt(b->source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if ((connect(b->source.fd, (const struct sockaddr *)&address, address_bytes) != 0 && errno != EINPROGRESS) ||
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, b->source.fd, &e) != 0) {
        close(b->source.fd);
        return;
    }
    __atomic_store_n(&b->state, BACKEND_CONNECTING, __ATOMIC_RELAXED);
    b->retry_ns = w->now_ns + gate_settings.timeout_ns;
}

void backend_open(struct worker *w)
{
    struct backend *b = &w->backend;
    if (!address_bytes)
        resolve();
    b->source.kind = SOURCE_BACKEND;
    b->in = tool_alloc(IN_BYTES);
    b->out_size = FULL_BYTES;
    b->out = tool_alloc(b->out_size);
    for (b->ring_size = 1; b->ring_size < gate_settings.depth;)
        b->ring_size *= 2;
    b->ring = tool_alloc(b->ring_size * sizeof *b->ring);
    connect_now(w);
}

static void say(struct client *c, const char *text)
{
    client_append(c, text, strlen(text));
    client_append(c, "\r\n", 2);
}

/* An error ends a get: the client does not get the replies to its other keys. */
static void first_line(struct request *r)
{
    if (r->first && !r->seen)
        r->client->get_failed = false;
    r->seen = true;
    r->mute |= r->of_get && r->client->get_failed;
}

/* The reply is complete, or never will be. */
static void end_reply(struct worker *w, enum outcome outcome)
{
    struct backend *b = &w->backend;
    const struct request *r = &b->ring[b->first];
    b->first = (b->first + 1) & (b->ring_size - 1);
    __atomic_store_n(&b->count, b->count - 1, __ATOMIC_RELAXED); /* the main thread reads it */
    worker_done(w, &r->grant, outcome);
    client_replied(r->client);
}

void backend_close(struct worker *w)
{
    struct backend *b = &w->backend;
    if (b->state == BACKEND_DOWN)
        return;
    close(b->source.fd);
    __atomic_store_n(&b->state, BACKEND_DOWN, __ATOMIC_RELAXED);
    b->retry_ns = w->now_ns + RETRY_NS;
    b->out_begin = b->out_end = b->in_begin = b->in_end = 0;
    b->body_bytes = 0;
    while (b->count) {
        struct request *r = &b->ring[b->first];
        first_line(r);
        if (r->inside)
            client_gone(r->client); /* part of a value was already sent */
        else if (!r->quiet && !(r->of_get && r->client->get_failed))
            say(r->client, NOT_THERE);
        r->client->get_failed |= r->of_get;
        bucket_refused(r->grant.bucket);
        end_reply(w, OUTCOME_FAILED);
    }
}

void backend_tick(struct worker *w, uint64_t late_ns)
{
    struct backend *b = &w->backend;
    bool late;
    /* If the whole machine stood still, memcached could not answer either: all its timeouts start again. */
    if (late_ns > gate_settings.timeout_ns / 4) {
        b->awake_ns = w->now_ns;
        if (b->state == BACKEND_CONNECTING)
            b->retry_ns = w->now_ns + gate_settings.timeout_ns;
    }
    late = b->count && w->now_ns > qos_max(b->ring[b->first].sent_ns, b->awake_ns) + gate_settings.timeout_ns;
    if (late || (b->state == BACKEND_CONNECTING && w->now_ns > b->retry_ns))
        backend_close(w);
    if (b->state == BACKEND_DOWN && w->now_ns >= b->retry_ns)
        connect_now(w);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

bool backend_full(const struct worker *w)
{
    return w->backend.out_end - w->backend.out_begin >= FULL_BYTES;
}

static void put(struct backend *b, const char *data, size_t bytes)
{
    if (b->out_size - b->out_end < bytes) {
        memmove(b->out, b->out + b->out_begin, b->out_end - b->out_begin);
        b->out_end -= b->out_begin;
        b->out_begin = 0;
    }
    if (b->out_size - b->out_end < bytes) {
        b->out_size = qos_max(b->out_size * 2, b->out_end + bytes + 4096);
        b->out = tool_grow(b->out, b->out_size);
    }
    memcpy(b->out + b->out_end, data, bytes);
    b->out_end += bytes;
}

/* The line as the client wrote it, without noreply or q. */
static void put_line(struct backend *b, const char *data, const struct head *h)
{
    if (h->cut_bytes) {
        put(b, data, h->cut_at);
        put(b, data + h->cut_at + h->cut_bytes, h->text_bytes - h->cut_at - h->cut_bytes);
    } else {
        put(b, data, h->text_bytes);
    }
    put(b, "\r\n", 2);
}

void backend_send(struct worker *w, struct client *c)
{
    struct backend *b = &w->backend;
    const struct head *h = &c->head;
    const char *data = c->in.data + c->in.begin;
    bool of_get = h->reply == REPLY_VALUES;
    struct request *r = &b->ring[(b->first + b->count) & (b->ring_size - 1)];
    __atomic_store_n(&b->count, b->count + 1, __ATOMIC_RELAXED);
    *r = (struct request){.client = c, .grant = c->grant, .sent_ns = w->now_ns, .reply = h->reply};
    r->quiet = h->quiet;
    r->hide = h->hide;
    r->of_get = of_get;
    r->first = of_get && c->get_first;
    r->last = h->last;
    if (of_get)
        r->key_hash = protocol_hash(data + h->key_at, h->key_bytes);
    if (h->answer) { /* refused: memcached removes the old value */
        r->instead = h->answer;
        r->reply = REPLY_LINE;
        put(b, "delete ", 7);
        put(b, data + h->key_at, h->key_bytes);
        put(b, "\r\n", 2);
    } else if (of_get) {
        put(b, c->lead, c->lead_bytes);
        put(b, data + h->key_at, h->key_bytes);
        put(b, "\r\n", 2);
    } else {
        put_line(b, data, h);
        put(b, data + h->bytes, h->data_bytes);
    }
}

void backend_flush(struct worker *w)
{
    struct backend *b = &w->backend;
    while (b->state == BACKEND_UP && b->out_begin < b->out_end) {
        ssize_t n = send(b->source.fd, b->out + b->out_begin, b->out_end - b->out_begin, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                backend_close(w);
            return;
        }
        b->out_begin += (size_t)n;
    }
    if (b->out_begin == b->out_end)
        b->out_begin = b->out_end = 0;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static bool begins(const char *line, size_t bytes, const char *word)
{
    size_t n = strlen(word);
    return bytes >= n && memcmp(line, word, n) == 0;
}

static bool is_error(const char *line, size_t bytes)
{
    return begins(line, bytes, "ERROR") || begins(line, bytes, "CLIENT_ERROR") || begins(line, bytes, "SERVER_ERROR");
}

static bool hidden(const struct request *r, const char *line, size_t bytes)
{
    return r->quiet || (r->hide && begins(line, bytes, r->hide));
}

/* Makes room for a line and a body. Without room the client gets memcached's own error; the remainder is skipped. */
static void show(struct request *r, const char *line, size_t bytes, uint64_t body_bytes)
{
    struct client *c = r->client;
    if (r->mute)
        return;
    if ((body_bytes || r->reply == REPLY_STATS) &&
        !client_room(c, r->grant.bucket, bytes + body_bytes + sizeof NO_ROOM)) {
        bucket_refused(r->grant.bucket);
        r->mute = true;
        c->get_failed |= r->of_get;
        say(c, NO_ROOM);
        return;
    }
    client_append(c, line, bytes);
    r->inside = body_bytes != 0;
}

/* Reads the length at token `index` of a line; the body has two bytes more. */
static bool body_length(const char *line, size_t bytes, uint32_t index, uint64_t *body)
{
    const char *end = line + bytes;
    while (index--) {
        line = memchr(line, ' ', (size_t)(end - line));
        if (!line)
            return false;
        line++;
    }
    bytes = 0;
    while (line + bytes < end && line[bytes] >= '0' && line[bytes] <= '9')
        bytes++;
    if (!protocol_number(line, bytes, INT32_MAX - 2, body))
        return false;
    *body += 2;
    return true;
}

/* VALUE key flags bytes [cas]: is it the requested key? */
static bool value_line(struct backend *b, struct request *r, const char *line, size_t bytes)
{
    const char *key = line + 6, *space = memchr(key, ' ', bytes - 6);
    if (!space || protocol_hash(key, (size_t)(space - key)) != r->key_hash ||
        !body_length(line, bytes, 3, &b->body_bytes))
        return false;
    show(r, line, bytes, b->body_bytes);
    return true;
}

/* A line that ends a reply, or begins its last body. */
static void last_line(struct worker *w, struct request *r, const char *line, size_t bytes)
{
    struct client *c = r->client;
    if (r->instead) {
        if (!r->quiet)
            say(c, r->instead);
    } else if (r->of_get) {
        bool wrong = is_error(line, bytes);
        if ((wrong || r->last) && !c->get_failed)
            show(r, line, bytes, 0);
        c->get_failed |= wrong;
    } else if (!hidden(r, line, bytes)) {
        show(r, line, bytes, 0);
    }
    end_reply(w, is_error(line, bytes) ? OUTCOME_FAILED : OUTCOME_DONE);
}

/* False: this line cannot be a reply to the request. */
static bool reply_line(struct worker *w, const char *line, size_t bytes)
{
    struct backend *b = &w->backend;
    struct request *r = &b->ring[b->first];
    if (b->count == 0)
        return false;
    first_line(r);
    if (r->reply == REPLY_VALUES && begins(line, bytes, "VALUE "))
        return value_line(b, r, line, bytes);
    if (r->reply == REPLY_META && begins(line, bytes, "VA ")) {
        if (!body_length(line, bytes, 1, &b->body_bytes))
            return false;
        show(r, line, bytes, b->body_bytes);
        return true;
    }
    if (r->reply == REPLY_VALUES && !begins(line, bytes, "END\r\n") && !is_error(line, bytes))
        return false;
    if (r->reply == REPLY_STATS &&
        (begins(line, bytes, "STAT ") || begins(line, bytes, "ITEM ") || begins(line, bytes, "PREFIX "))) {
        show(r, line, bytes, 0);
        return true;
    }
    last_line(w, r, line, bytes);
    return true;
}

/* Bytes of a value; a meta reply ends with its value. */
static void reply_body(struct worker *w, const char *data, size_t bytes)
{
    struct backend *b = &w->backend;
    struct request *r = &b->ring[b->first];
    if (!r->mute)
        client_append(r->client, data, bytes);
    b->body_bytes -= bytes;
    if (b->body_bytes == 0) {
        r->inside = false;
        if (r->reply == REPLY_META)
            end_reply(w, OUTCOME_DONE);
    }
}

static bool replies(struct worker *w)
{
    struct backend *b = &w->backend;
    while (b->in_begin < b->in_end) {
        char *data = b->in + b->in_begin;
        size_t bytes = b->in_end - b->in_begin;
        if (b->body_bytes) {
            bytes = qos_min(bytes, b->body_bytes);
            reply_body(w, data, bytes);
        } else {
            const char *end = memchr(data, '\n', bytes);
            if (!end)
                return bytes < REPLY_LINE_MAX;
            bytes = (size_t)(end - data) + 1;
            if (!reply_line(w, data, bytes))
                return false;
        }
        b->in_begin += bytes;
    }
    return true;
}

/* ends: the connection was closed; data sent before is still read. */
static void receive(struct worker *w, bool ends)
{
    struct backend *b = &w->backend;
    while (b->state == BACKEND_UP) {
        size_t room;
        ssize_t n;
        memmove(b->in, b->in + b->in_begin, b->in_end - b->in_begin);
        b->in_end -= b->in_begin;
        b->in_begin = 0;
        room = IN_BYTES - b->in_end;
        n = recv(b->source.fd, b->in + b->in_end, room, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            backend_close(w);
            return;
        }
        b->in_end += (size_t)n;
        if (!replies(w)) {
            tool_warn("memcached's reply is not to what was asked; its connection is made anew");
            backend_close(w);
            return;
        }
        if ((size_t)n < room && !ends)
            return; /* edge-triggered: more data wakes us */
    }
}

void backend_event(struct worker *w, uint32_t events)
{
    struct backend *b = &w->backend;
    if (b->state == BACKEND_CONNECTING && events & (EPOLLERR | EPOLLHUP)) {
        backend_close(w);
        return;
    }
    if (b->state == BACKEND_CONNECTING && events & EPOLLOUT)
        __atomic_store_n(&b->state, BACKEND_UP, __ATOMIC_RELAXED);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        receive(w, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}
