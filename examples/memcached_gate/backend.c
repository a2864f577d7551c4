// A worker's connections to memcached: one for each bucket. Requests of that bucket go out in a pipeline; replies return
// in that order.
//
// Replies are always read at once: a client that does not read stops only itself. Each line is checked against its
// request. One that does not fit, and an error that the request cannot have, ends the connection: all requests on it
// fail. One tenant's data must never appear in another one's reply.
#include "gate.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define IN_BYTES (256 * 1024)   /* read of a connection in one turn */
#define FULL_BYTES (256 * 1024) /* above this nothing is added until some has been sent */
#define REPLY_LINE_MAX BLOCK_BYTES
#define RETRY_NS 50000000
#define NOT_THERE "SERVER_ERROR memcached does not answer"
#define NO_ROOM "SERVER_ERROR out of memory writing get response"

static struct sockaddr_storage address;
static socklen_t address_bytes;

/* ---- the connection ---------------------------------------------------------------------------------------------- */

static void set_state(struct backend *b, enum backend_state state)
{
    uint32_t *up = &b->worker->backends_up;
    __atomic_store_n(up, *up + (state == BACKEND_UP) - (b->state == BACKEND_UP), __ATOMIC_RELAXED);
    b->state = state;
}

static void connect_now(struct backend *b)
{
    struct worker *w = b->worker;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = b};
    int one = 1;
    b->source.fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    b->retry_ns = w->now_ns + RETRY_NS;
    if (b->source.fd < 0)
        return;
    if (address.ss_family != AF_UNIX)
        setsockopt(b->source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if ((connect(b->source.fd, (const struct sockaddr *)&address, address_bytes) != 0 && errno != EINPROGRESS) ||
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, b->source.fd, &e) != 0) {
        close(b->source.fd);
        return;
    }
    set_state(b, BACKEND_CONNECTING);
    b->retry_ns = w->now_ns + gate_settings.timeout_ns;
}

static struct backend *backend_of(struct worker *w, uint32_t bucket)
{
    struct backend *b = w->backend[bucket];
    if (b)
        return b;
    b = tool_alloc(sizeof *b);
    b->source.kind = SOURCE_BACKEND;
    b->worker = w;
    b->bucket = bucket;
    w->backend[bucket] = b;
    return b;
}

void backend_open(struct worker *w)
{
    if (!address_bytes)
        address_bytes = gate_address_of("--memcached", gate_settings.memcached, &address);
    w->in = tool_alloc(IN_BYTES);
    connect_now(backend_of(w, bucket_other));
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
static void end_reply(struct backend *b, enum outcome outcome)
{
    struct worker *w = b->worker;
    const struct request *r = &b->ring[b->first];
    b->first = (b->first + 1) & (b->ring_size - 1);
    b->count--;
    __atomic_store_n(&w->at_memcached, w->at_memcached - 1, __ATOMIC_RELAXED); /* the main thread reads it */
    worker_done(w, &r->grant, outcome, r->bytes);
    client_replied(r->client);
}

/* Is a granted request to wait? */
static bool held_up(const struct backend *b)
{
    return b->state == BACKEND_CONNECTING || (b->state == BACKEND_UP && buffer_held(&b->out) >= FULL_BYTES);
}

static void send_held(struct backend *b)
{
    while (b->held && !held_up(b)) {
        struct client *c = b->held;
        b->held = c->next_granted;
        client_granted(c);
    }
}

static void backend_close(struct backend *b)
{
    struct worker *w = b->worker;
    if (b->state == BACKEND_DOWN)
        return;
    worker_close(w, b->source.fd);
    set_state(b, BACKEND_DOWN);
    b->retry_ns = w->now_ns + RETRY_NS;
    buffer_release(w, &b->out);
    b->partial_bytes = 0;
    b->body_bytes = 0;
    b->ending = false;
    while (b->count) {
        struct request *r = &b->ring[b->first];
        first_line(r);
        if (r->inside)
            client_gone(r->client); /* part of a value was already sent */
        else if (!r->quiet && !(r->of_get && r->client->get_failed))
            say(r->client, NOT_THERE);
        r->client->get_failed |= r->of_get;
        bucket_refused(r->grant.bucket, REFUSED_DOWN);
        end_reply(b, OUTCOME_FAILED);
    }
    send_held(b);
}

static void tick(struct backend *b, bool late)
{
    const struct worker *w = b->worker;
    if (late && b->state == BACKEND_CONNECTING)
        b->retry_ns = w->now_ns + gate_settings.timeout_ns;
    if ((b->count && w->now_ns > qos_max(b->ring[b->first].sent_ns, w->awake_ns) + gate_settings.timeout_ns) ||
        (b->state == BACKEND_CONNECTING && w->now_ns > b->retry_ns))
        backend_close(b);
    if (b->bucket == bucket_other && b->state == BACKEND_DOWN && w->now_ns >= b->retry_ns)
        connect_now(b);
}

void backend_tick(struct worker *w, uint64_t late_ns)
{
    /* If the whole machine stood still, memcached could not answer either: all its timeouts start again. */
    bool late = late_ns > gate_settings.timeout_ns / 4;
    uint32_t k;
    if (late)
        w->awake_ns = w->now_ns;
    for (k = 0; k < bucket_count; k++)
        if (w->backend[k])
            tick(w->backend[k], late);
}

bool backend_used(const struct worker *w, uint32_t bucket)
{
    const struct backend *b = w->backend[bucket];
    return b && (b->count || b->held || b->dirty || b->readable);
}

void backend_drop(struct worker *w, uint32_t bucket)
{
    struct backend *b = w->backend[bucket];
    if (!b)
        return;
    backend_close(b);
    if (b->partial)
        block_give(w, b->partial);
    free(b->ring);
    free(b);
    w->backend[bucket] = NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

bool backend_ready(const struct worker *w, uint32_t bucket)
{
    const struct backend *b = w->backend[bucket];
    return b && b->state == BACKEND_UP && !b->held && !held_up(b);
}

void backend_grant(struct worker *w, struct client *c)
{
    struct backend *b = backend_of(w, c->grant.bucket);
    if (b->state == BACKEND_DOWN && w->now_ns >= b->retry_ns && !c->answers && !c->gone)
        connect_now(b);
    if (c->answers || c->gone || (!b->held && !held_up(b))) {
        client_granted(c);
        return;
    }
    c->next_granted = NULL;
    if (b->held)
        b->held_last->next_granted = c;
    else
        b->held = c;
    b->held_last = c;
}

static void put(struct backend *b, const char *data, size_t bytes)
{
    (void)buffer_grow(b->worker, &b->out, b->bucket, buffer_held(&b->out) + bytes, true);
    memcpy(b->out.data + b->out.end, data, bytes);
    b->out.end += bytes;
}

/* The line as the client wrote it, without noreply or q; a meta command has an opaque. */
static void put_line(struct backend *b, const char *data, const struct head *h, struct tie *tie)
{
    uint32_t from = 0;
    if (h->length_bytes) {
        char digits[24];
        put(b, data, h->length_at);
        put(b, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, h->data_bytes - 2));
        from = h->length_at + h->length_bytes;
    }
    if (h->cut_bytes) {
        put(b, data + from, h->cut_at - from);
        from = h->cut_at + h->cut_bytes;
    }
    put(b, data + from, h->text_bytes - from);
    if (h->opaque_bytes) {
        tie->opaque_bytes = h->opaque_bytes;
        memcpy(tie->opaque, data + h->opaque_at, h->opaque_bytes);
    } else if (h->shape->kind == REPLY_META) {
        uint32_t number = ++b->opaque, digits = 0;
        char *at = tie->opaque;
        for (*at++ = 'O'; digits == 0 || number; digits++, number >>= 4)
            *at++ = (char)('a' + (number & 15));
        tie->opaque_bytes = digits + 1;
        tie->own_opaque = true;
        tie->letters |= protocol_letter('O');
        put(b, " ", 1);
        put(b, tie->opaque, tie->opaque_bytes);
    }
    put(b, "\r\n", 2);
}

static struct request *next_request(struct backend *b)
{
    if (b->count == b->ring_size) {
        uint32_t k, size = b->ring_size ? 2 * b->ring_size : 16;
        struct request *ring = tool_alloc(size * sizeof *ring);
        for (k = 0; k < b->count; k++)
            ring[k] = b->ring[(b->first + k) & (b->ring_size - 1)];
        free(b->ring);
        b->ring = ring;
        b->ring_size = size;
        b->first = 0;
    }
    return &b->ring[(b->first + b->count++) & (b->ring_size - 1)];
}

void backend_send(struct worker *w, struct client *c)
{
    struct backend *b = w->backend[c->grant.bucket];
    const struct head *h = &c->head;
    const char *data = c->in.data + c->in.begin;
    struct request *r = next_request(b);
    struct tie *tie = &r->tie;
    __atomic_store_n(&w->at_memcached, w->at_memcached + 1, __ATOMIC_RELAXED);
    r->client = c;
    r->grant = c->grant;
    r->sent_ns = w->now_ns;
    r->hide = h->hide;
    r->instead = h->answer;
    r->quiet = h->quiet;
    r->of_get = h->of_get;
    r->first = h->of_get && c->get_first;
    r->last = h->last;
    r->bytes = 0;
    r->seen = r->value_seen = r->mute = r->inside = false;
    tie->shape = h->answer ? &protocol_unlink : h->of_get ? c->get_shape : h->shape;
    tie->letters = h->letters;
    tie->own_opaque = false;
    tie->opaque_bytes = 0;
    tie->key_bytes = h->key_bytes ? (uint32_t)protocol_key_text(data, h, tie->key) : 0;
    if (h->answer) { /* refused: memcached removes the old value */
        put(b, "delete ", 7);
        put(b, data + h->key_at, h->key_bytes);
        put(b, "\r\n", 2);
    } else if (h->of_get) {
        put(b, c->lead, c->lead_bytes);
        put(b, data + h->key_at, h->key_bytes);
        put(b, "\r\n", 2);
    } else {
        put_line(b, data, h, tie);
        put(b, data + h->bytes, h->data_bytes);
    }
    if (!b->dirty) {
        b->dirty = true;
        b->next_dirty = w->backend_dirty;
        w->backend_dirty = b;
    }
}

static void flush(struct backend *b)
{
    while (b->state == BACKEND_UP && buffer_held(&b->out)) {
        ssize_t n = send(b->source.fd, b->out.data + b->out.begin, buffer_held(&b->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                backend_close(b);
            return;
        }
        b->out.begin += (size_t)n;
        send_held(b);
    }
    if (b->out.data && !buffer_held(&b->out))
        buffer_release(b->worker, &b->out);
}

void backend_flush(struct worker *w)
{
    struct backend *b;
    while ((b = w->backend_dirty) != NULL) {
        w->backend_dirty = b->next_dirty;
        b->dirty = false;
        flush(b);
    }
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static bool hidden(const struct request *r, const char *line)
{
    return r->quiet ||
           (r->hide && (memcmp(r->hide, line, 2) == 0 || (r->hide[2] && memcmp(r->hide + 3, line, 2) == 0)));
}

/* Makes room for a line and a body. Without room the client gets memcached's own error; the remainder is skipped. */
static void show(struct request *r, const char *line, size_t bytes, const struct reply *reply)
{
    struct client *c = r->client;
    size_t after = reply->strip_at + reply->strip_bytes;
    if (r->mute)
        return;
    if ((reply->body_bytes || reply->more) &&
        !client_room(c, r->grant.bucket, bytes + reply->body_bytes + sizeof NO_ROOM)) {
        bucket_refused(r->grant.bucket, REFUSED_MEMORY);
        r->mute = true;
        c->get_failed |= r->of_get;
        say(c, NO_ROOM);
        return;
    }
    if (reply->strip_bytes) {
        client_append(c, line, reply->strip_at);
        client_append(c, line + after, bytes - after);
    } else {
        client_append(c, line, bytes);
    }
    r->inside = reply->body_bytes != 0;
}

/* A line that ends a reply, or begins its last body. */
static void last_line(struct request *r, const char *line, size_t bytes, const struct reply *reply)
{
    struct client *c = r->client;
    if (r->instead) {
        if (!r->quiet)
            say(c, r->instead);
    } else if (r->of_get) {
        if ((reply->error || r->last) && !c->get_failed)
            show(r, line, bytes, reply);
        c->get_failed |= reply->error;
    } else if (!reply->error && hidden(r, line)) {
        r->mute = true;
    } else if (!r->quiet) {
        show(r, line, bytes, reply);
    }
}

/* False: this line cannot be a reply to the request. */
static bool reply_line(struct backend *b, const char *line, size_t bytes)
{
    struct request *r = &b->ring[b->first];
    struct reply reply;
    if (b->count == 0 || !protocol_reply(&r->tie, line, bytes, &reply) || (r->of_get && reply.more && r->value_seen))
        return false;
    first_line(r);
    r->bytes += bytes + reply.body_bytes;
    b->body_bytes = reply.body_bytes;
    if (reply.more) {
        r->value_seen = true;
        show(r, line, bytes, &reply);
        return true;
    }
    last_line(r, line, bytes, &reply);
    if (!reply.body_bytes)
        end_reply(b, reply.error ? OUTCOME_FAILED : OUTCOME_DONE);
    return true;
}

/* Bytes of a value, which ends with the end of a line; a meta reply ends with its value. */
static bool reply_body(struct backend *b, const char *data, size_t bytes)
{
    struct request *r = &b->ring[b->first];
    uint64_t before = b->body_bytes;
    if ((before >= 2 && before - 2 < bytes && data[before - 2] != '\r') ||
        (before <= bytes && data[before - 1] != '\n'))
        return false;
    if (!r->mute)
        client_append(r->client, data, bytes);
    b->body_bytes -= bytes;
    if (b->body_bytes == 0) {
        r->inside = false;
        if (r->tie.shape->kind == REPLY_META)
            end_reply(b, OUTCOME_DONE);
    }
    return true;
}

/* Returns the bytes that were used; a start of a line is left. SIZE_MAX: a reply does not fit. */
static size_t replies(struct backend *b, const char *data, size_t bytes)
{
    size_t at = 0, n;
    while (at < bytes) {
        if (b->body_bytes) {
            n = qos_min(bytes - at, b->body_bytes);
            if (!reply_body(b, data + at, n))
                return SIZE_MAX;
        } else {
            const char *end = memchr(data + at, '\n', bytes - at);
            if (!end)
                return bytes - at < REPLY_LINE_MAX ? at : SIZE_MAX;
            n = (size_t)(end - data) + 1 - at;
            if (!reply_line(b, data + at, n))
                return SIZE_MAX;
        }
        at += n;
    }
    return at;
}

static void read_later(struct backend *b)
{
    struct worker *w = b->worker;
    if (b->readable)
        return;
    b->readable = true;
    b->next_readable = w->backend_readable;
    w->backend_readable = b;
}

/* Once a second at most. */
static void complain(const struct backend *b)
{
    static uint64_t next_ns; /* atomic */
    const struct worker *w = b->worker;
    if (w->now_ns < __atomic_load_n(&next_ns, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&next_ns, w->now_ns + QOS_NS_PER_S, __ATOMIC_RELAXED);
    tool_warn("bucket %s: memcached's reply is not to what was asked (%s); its connection is made anew",
              bucket_spec[b->bucket].name, b->count ? b->ring[b->first].tie.shape->name : "nothing");
}

/* Reads at most IN_BYTES, so that no bucket's replies make all others wait. */
static void receive(struct backend *b)
{
    struct worker *w = b->worker;
    size_t bytes = b->partial_bytes, room = IN_BYTES - bytes, used;
    ssize_t n;
    if (b->state != BACKEND_UP)
        return;
    if (bytes)
        memcpy(w->in, b->partial, bytes);
    do
        n = recv(b->source.fd, w->in + bytes, room, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        backend_close(b);
        return;
    }
    bytes += (size_t)n;
    used = replies(b, w->in, bytes);
    if (used == SIZE_MAX) {
        complain(b);
        backend_close(b);
        return;
    }
    b->partial_bytes = bytes - used;
    if (b->partial_bytes && !b->partial)
        b->partial = block_take(w);
    if (b->partial_bytes)
        memcpy(b->partial, w->in + used, b->partial_bytes);
    if ((size_t)n == room || b->ending) /* edge-triggered: more data wakes us */
        read_later(b);
}

void backend_read(struct worker *w)
{
    struct backend *b = w->backend_readable, *next;
    w->backend_readable = NULL;
    for (; b; b = next) {
        next = b->next_readable;
        b->readable = false;
        receive(b);
    }
}

void backend_event(struct backend *b, uint32_t events)
{
    if (b->state == BACKEND_CONNECTING && events & (EPOLLERR | EPOLLHUP)) {
        backend_close(b);
        return;
    }
    if (b->state == BACKEND_CONNECTING && events & EPOLLOUT) {
        set_state(b, BACKEND_UP);
        send_held(b);
    }
    if (events & EPOLLOUT)
        flush(b);
    b->ending |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (events & EPOLLIN || b->ending)
        read_later(b);
}
