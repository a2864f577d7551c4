// A client's connection. It is read one request at a time. While a request waits for its grant, at most one buffer is
// read, so TCP slows down a client that sends faster than its bucket is served.
#include "gate.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_HIGH_BYTES 65536   /* no further request while a client has so much unread */
#define SEND_BYTES 131072      /* kernel buffer of what a client has not read; by default it grows to megabytes */
#define TURN_BYTES 16384       /* requests of one client in one turn */
#define LOOKS_PER_S 20         /* calls of clients_tick; each client is looked at once a second */
#define KEEPALIVE_S 60         /* idle time before a client's host is probed, unless the system's is shorter */
#define ROOM_WAIT_NS 200000000 /* the longest wait for memory that other workers' clients hold */
#define ROOM_LOOK_NS 50000000  /* between looks at who waits so, if nothing was made free */
#define SLOW_PER_S 131072      /* bytes of a request that give its client one second more */

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

void buffer_release(struct worker *w, struct buffer *b)
{
    if (b->charged) {
        bucket_uncharge(b->payer, b->charged);
        free(b->data);
    } else if (b->data) {
        block_give(w, b->data);
    }
    *b = (struct buffer){0};
}

size_t buffer_held(const struct buffer *b)
{
    return b->end - b->begin;
}

static const char *unread(const struct client *c)
{
    return c->in.data ? c->in.data + c->in.begin : "";
}

bool buffer_grow(struct worker *w, struct buffer *b, uint32_t payer, size_t bytes, bool force)
{
    char *data;
    size_t size = BLOCK_BYTES;
    if (b->size - b->begin >= bytes)
        return true;
    if (b->size < bytes && bytes > BLOCK_BYTES) {
        size = bytes + bytes / 8;
        if (!bucket_charge(payer, size, force))
            return false;
    } else if (b->size >= bytes) {
        memmove(b->data, b->data + b->begin, buffer_held(b));
        b->end -= b->begin;
        b->begin = 0;
        return true;
    }
    data = bytes > BLOCK_BYTES ? tool_alloc(size) : block_take(w);
    if (b->data)
        memcpy(data, b->data + b->begin, buffer_held(b));
    bytes = buffer_held(b);
    buffer_release(w, b);
    *b = (struct buffer){.data = data, .size = size, .end = bytes};
    if (size > BLOCK_BYTES) {
        b->payer = payer;
        b->charged = size;
    }
    return true;
}

bool client_room(struct client *c, uint32_t payer, size_t bytes)
{
    return c->gone || buffer_grow(c->worker, &c->out, payer, buffer_held(&c->out) + bytes, false);
}

void client_append(struct client *c, const char *data, size_t bytes)
{
    if (c->gone)
        return;
    (void)buffer_grow(c->worker, &c->out, c->bucket, buffer_held(&c->out) + bytes, true);
    memcpy(c->out.data + c->out.end, data, bytes);
    c->out.end += bytes;
    worker_dirty(c);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

/* A host that vanished is noticed: after KEEPALIVE_S, five probes, 10 s apart; sooner where the system is set so. */
static void keep_alive(int fd)
{
    static const struct {
        int option, most;
    } set[] = {{TCP_KEEPIDLE, KEEPALIVE_S}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 5}};
    int on = 1, value;
    size_t k;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    for (k = 0; k < sizeof set / sizeof *set; k++) {
        socklen_t bytes = sizeof value;
        if (getsockopt(fd, IPPROTO_TCP, set[k].option, &value, &bytes) == 0 && value > set[k].most)
            setsockopt(fd, IPPROTO_TCP, set[k].option, &set[k].most, sizeof set[k].most);
    }
}

void client_open(struct worker *w, int fd, uint32_t bucket)
{
    struct client *c = tool_alloc(sizeof *c);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    int one = 1, send_bytes = SEND_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* of no effect on a local socket */
    keep_alive(fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    c->source = (struct source){SOURCE_CLIENT, fd};
    c->worker = w;
    c->bucket = c->grant.bucket = c->payer = bucket;
    c->writable = true;
    c->window = 2;
    __atomic_add_fetch(&w->clients, 1, __ATOMIC_RELAXED);
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) == 0)
        return; /* from now on its worker owns it */
    __atomic_sub_fetch(&w->clients, 1, __ATOMIC_RELAXED);
    bucket_exit(bucket);
    close(fd);
    free(c);
}

/* Its worker has heard of it. */
static void join(struct client *c)
{
    struct worker *w = c->worker;
    c->active_ns = w->now_ns;
    c->after = w->all;
    if (w->all)
        w->all->ahead = c;
    w->all = c;
}

static void leave(struct client *c)
{
    struct worker *w = c->worker;
    if (!c->active_ns)
        return;
    if (w->next_looked == c)
        w->next_looked = c->after;
    *(c->ahead ? &c->ahead->after : &w->all) = c->after;
    if (c->after)
        c->after->ahead = c->ahead;
}

/* Closes its socket. The record stays while one of its requests waits or is at memcached. */
void client_gone(struct client *c)
{
    struct worker *w = c->worker;
    if (c->gone)
        return;
    c->gone = true;
    leave(c);
    worker_close(w, c->source.fd);
    buffer_release(w, &c->in);
    buffer_release(w, &c->out);
    if (c->state == CLIENT_QUEUE) {
        c->next_left = w->left;
        w->left = c;
    } else if (c->outstanding == 0) {
        worker_bury(c);
    }
}

void client_replied(struct client *c)
{
    c->outstanding--;
    c->window = buffer_held(&c->out) > OUT_HIGH_BYTES ? 1 : (uint32_t)qos_min(2 * c->window, WINDOW_REQUESTS);
    if (!c->gone)
        worker_run_later(c);
    else if (c->outstanding == 0 && c->state != CLIENT_QUEUE)
        worker_bury(c);
}

static bool at_rest(const struct client *c)
{
    return c->state == CLIENT_LINE && !c->outstanding && !buffer_held(&c->in) && !buffer_held(&c->out);
}

static bool expired(const struct client *c)
{
    const uint64_t now_ns = c->worker->now_ns, patience_ns = gate_settings.patience_ns;
    uint64_t more_ns = c->head.data_bytes * QOS_NS_PER_S / SLOW_PER_S;
    if (c->half_ns && now_ns > c->half_ns + patience_ns + more_ns)
        return true;
    if (buffer_held(&c->out) && c->unread_ns && now_ns > c->unread_ns + 3 * patience_ns)
        return true;
    return gate_settings.idle_ns && at_rest(c) && now_ns > c->active_ns + gate_settings.idle_ns;
}

void clients_tick(struct worker *w)
{
    uint32_t k, count = __atomic_load_n(&w->clients, __ATOMIC_RELAXED) / LOOKS_PER_S + 1;
    for (k = 0; k < count; k++) {
        struct client *c = w->next_looked ? w->next_looked : w->all;
        if (!c)
            return;
        w->next_looked = c->after;
        if (!expired(c))
            continue;
        bucket_refused(c->bucket, REFUSED_IDLE);
        client_gone(c);
    }
}

void clients_leave(struct worker *w)
{
    struct client *c, *next;
    char byte;
    for (c = w->all; c; c = next) {
        next = c->after;
        if (at_rest(c) && recv(c->source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) /* nothing unread */
            client_gone(c);
    }
}

void clients_sort(struct worker *w)
{
    struct client *c;
    for (c = w->all; c; c = c->after) {
        struct sockaddr_storage here = {0}, from = {0};
        socklen_t here_bytes = sizeof here, from_bytes = sizeof from;
        uint64_t port = 0;
        uint32_t bucket, k;
        (void)getsockname(c->source.fd, (struct sockaddr *)&here, &here_bytes);
        (void)getpeername(c->source.fd, (struct sockaddr *)&from, &from_bytes);
        if (here.ss_family == AF_INET)
            port = ntohs(((const struct sockaddr_in *)(const void *)&here)->sin_port);
        else if (here.ss_family == AF_INET6)
            port = ntohs(((const struct sockaddr_in6 *)(const void *)&here)->sin6_port);
        for (k = 0; k < bucket_count && (!port || bucket_spec[k].port != port);)
            k++;
        bucket = bucket_of_connection(k < bucket_count ? k : BUCKETS_LIMIT, &from);
        if (bucket == c->bucket)
            continue;
        bucket_move(c->bucket, bucket);
        c->bucket = bucket;
        if (c->state == CLIENT_LINE)
            c->grant.bucket = c->payer = bucket;
    }
}

bool clients_use(const struct worker *w, uint32_t bucket)
{
    const struct client *c;
    for (c = w->all; c; c = c->after)
        if (c->bucket == bucket || (c->grant.bucket == bucket && c->state != CLIENT_LINE) || c->payer == bucket)
            return true;
    return false;
}

/* ---- room for whole requests ------------------------------------------------------------------------------------- */

/* The bucket for whose requests a worker that has no client to close asks the others, and until when. Atomic. */
static uint32_t room_for = QOS_NONE;
static uint64_t room_until_ns;
static uint32_t room_made; /* how often a worker has closed a client for others; wraps. Atomic */

/* Closes the client of this worker whose half request has held memory of this bucket for the longest time, a second at
 * least. It looks at all clients; if there is none, not again for 10 ms. */
static bool evict(struct worker *w, uint32_t payer)
{
    struct client *c, *oldest = NULL;
    if (w->now_ns < w->evicted_ns + 10000000)
        return false;
    for (c = w->all; c; c = c->after)
        if (c->state == CLIENT_DATA && c->in.charged && c->in.payer == payer && c->half_ns &&
            (!oldest || c->half_ns < oldest->half_ns))
            oldest = c;
    if (!oldest || w->now_ns < oldest->half_ns + QOS_NS_PER_S) {
        w->evicted_ns = w->now_ns;
        return false;
    }
    bucket_refused(oldest->bucket, REFUSED_IDLE);
    client_gone(oldest);
    return true;
}

static void poke_others(const struct worker *w)
{
    uint32_t k;
    for (k = 0; k < worker_count; k++)
        if (&workers[k] != w)
            worker_poke(&workers[k]);
}

/* Another worker may have a client to close. True: this one waits for that, for ROOM_WAIT_NS at most. */
static bool ask_others(struct client *c)
{
    struct worker *w = c->worker;
    if (worker_count == 1)
        return false;
    if (!c->room_ns)
        c->room_ns = w->now_ns;
    if (w->now_ns >= c->room_ns + ROOM_WAIT_NS)
        return false;
    w->room_asked = true;
    __atomic_store_n(&room_until_ns, c->room_ns + ROOM_WAIT_NS, __ATOMIC_RELAXED);
    __atomic_store_n(&room_for, c->payer, __ATOMIC_RELAXED);
    poke_others(w);
    return true;
}

void clients_make_room(struct worker *w)
{
    uint32_t payer = __atomic_load_n(&room_for, __ATOMIC_RELAXED), made;
    struct client *c;
    if (payer != QOS_NONE && w->now_ns < __atomic_load_n(&room_until_ns, __ATOMIC_RELAXED) && evict(w, payer)) {
        (void)__atomic_compare_exchange_n(&room_for, &payer, QOS_NONE, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        __atomic_add_fetch(&room_made, 1, __ATOMIC_RELAXED);
        poke_others(w);
    }
    made = __atomic_load_n(&room_made, __ATOMIC_RELAXED);
    if (!w->room_asked || (made == w->room_seen && w->now_ns < w->room_looked_ns + ROOM_LOOK_NS))
        return;
    w->room_asked = false;
    w->room_seen = made;
    w->room_looked_ns = w->now_ns;
    for (c = w->all; c; c = c->after)
        if (c->room_ns)
            worker_run_later(c);
}

void client_event(struct client *c, uint32_t events)
{
    if (c->gone)
        return;
    if (!c->active_ns)
        join(c);
    if (events & (EPOLLERR | EPOLLHUP)) {
        client_gone(c);
        return;
    }
    c->readable |= (events & (EPOLLIN | EPOLLRDHUP)) != 0;
    c->closing |= (events & EPOLLRDHUP) != 0;
    if (events & EPOLLOUT && !c->writable) {
        c->writable = true;
        worker_dirty(c);
    }
    worker_run_later(c);
}

/* Does the client leave too much unread: more than this, or a large buffer while its bucket holds more than its share?
   */
static bool high(const struct client *c)
{
    return buffer_held(&c->out) > OUT_HIGH_BYTES || (c->out.charged && bucket_over(c->out.payer));
}

void client_flush(struct client *c)
{
    while (!c->gone && c->writable && buffer_held(&c->out)) {
        ssize_t n = send(c->source.fd, c->out.data + c->out.begin, buffer_held(&c->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->writable = false;
            if (errno != EAGAIN)
                client_gone(c);
            break;
        }
        c->out.begin += (size_t)n;
        c->unread_ns = 0;
    }
    if (c->gone)
        return;
    if (buffer_held(&c->out) && !c->unread_ns)
        c->unread_ns = c->worker->now_ns;
    if (buffer_held(&c->out) == 0)
        buffer_release(c->worker, &c->out);
    if (c->state == CLIENT_CLOSE || (c->held_back && !high(c)))
        worker_run_later(c);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Reads more bytes into free room. False: none now. */
static bool more(struct client *c)
{
    struct buffer *b = &c->in;
    ssize_t n;
    size_t room;
    if (!c->readable || c->ended)
        return false;
    if (b->size == b->end && b->begin == 0 && b->data)
        return false;
    if (c->turn != c->worker->turns) {
        c->turn = c->worker->turns;
        c->read_bytes = 0;
    }
    if (c->read_bytes >= TURN_BYTES) {
        worker_run_next_turn(c);
        return false;
    }
    if (c->worker->granting) { /* no system call under the lock */
        worker_run_later(c);
        return false;
    }
    (void)buffer_grow(c->worker, b, c->bucket, b->size ? b->size : BLOCK_BYTES, true);
    room = qos_min(b->size - b->end, TURN_BYTES);
    do
        n = recv(c->source.fd, b->data + b->end, room, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        b->end += (size_t)n;
        c->read_bytes += (size_t)n;
        c->active_ns = c->worker->now_ns;
        c->readable = (size_t)n == room || c->closing; /* edge-triggered: more data wakes us */
        return true;
    }
    c->readable = false;
    c->ended = n == 0;
    if (n < 0 && errno != EAGAIN)
        client_gone(c);
    return false;
}

/* Bytes are missing: reads them. False: they have not come; if they never will, the connection ends. */
static bool need(struct client *c)
{
    if (more(c))
        return true;
    if (!c->half_ns && (c->state != CLIENT_LINE || buffer_held(&c->in)))
        c->half_ns = c->worker->now_ns;
    if (!c->ended || c->gone)
        return false;
    c->state = CLIENT_CLOSE;
    return true;
}

static void wait_for_grant(struct client *c)
{
    c->payer = c->grant.bucket;
    c->half_ns = 0;
    c->grant.asked_ns = c->worker->now_ns;
    c->state = CLIENT_QUEUE;
    c->next_granted = c->worker->arrived;
    c->worker->arrived = c;
}

static void enqueue(struct client *c)
{
    char text[KEY_BYTES_MAX];
    const struct head *h = &c->head;
    size_t bytes = h->key_bytes ? protocol_key_text(c->in.data + c->in.begin, h, text) : 0;
    c->grant.bucket = bytes ? bucket_of_key(text, bytes, c->bucket) : c->bucket;
    if (c->outstanding && c->at_bucket != c->grant.bucket)
        c->state = CLIENT_ORDER;
    else
        wait_for_grant(c);
}

/* Requests that the gate answers itself take its time: each is charged to the bucket of the request before it. */
static void answer(struct client *c)
{
    c->answers = true;
    wait_for_grant(c);
}

static void say_then(struct client *c, const char *text)
{
    c->head.answer = text;
    answer(c);
}

/* Its value is too large: gives memcached's answer, after memcached has removed the old value. */
static void refuse_value(struct client *c, const char *text)
{
    c->head.answer = text;
    if (c->head.refuse_unlinks) {
        c->head.kind = HEAD_REQUEST;
        enqueue(c);
        return;
    }
    c->in.begin += c->head.bytes;
    c->swallow_bytes = c->head.data_bytes;
    answer(c);
}

/* The data is to come. Its memory is charged to the bucket of the key, but only as it comes. */
static void want_data(struct client *c)
{
    char text[KEY_BYTES_MAX];
    size_t bytes = protocol_key_text(c->in.data + c->in.begin, &c->head, text);
    c->payer = bytes ? bucket_of_key(text, bytes, c->bucket) : c->bucket;
    c->state = CLIENT_DATA;
}

/* Makes room for more of the request, twice as much as is here. False: it is refused, or waits for other workers. */
static bool widen(struct client *c, size_t bytes)
{
    size_t want = qos_min(bytes, 2 * qos_max(buffer_held(&c->in), BLOCK_BYTES));
    if (buffer_held(&c->in) < c->in.size)
        want = c->in.size; /* moves to its begin */
    while (!buffer_grow(c->worker, &c->in, c->payer, want, false))
        if (!evict(c->worker, c->payer)) {
            if (ask_others(c))
                return false;
            c->room_ns = 0;
            bucket_refused(c->payer, REFUSED_MEMORY);
            refuse_value(c, "SERVER_ERROR out of memory storing object");
            return false;
        }
    c->room_ns = 0;
    return true;
}

static void read_request(struct client *c)
{
    const struct head *h = &c->head;
    if (h->server_wide && buckets_several() && !gate_settings.allow_flush) {
        c->in.begin += h->bytes;
        say_then(c, "CLIENT_ERROR refused: it concerns all buckets (the gate's --allow-flush allows it)");
        return;
    }
    if (h->data_bytes)
        want_data(c);
    else
        enqueue(c);
}

static bool read_line(struct client *c)
{
    struct head *h = &c->head;
    protocol_line(unread(c), buffer_held(&c->in), h);
    switch (h->kind) {
    case HEAD_MORE: return need(c);
    case HEAD_REQUEST: read_request(c); break;
    case HEAD_KEYS:
        c->get_shape = h->shape;
        c->lead_bytes = h->bytes;
        memcpy(c->lead, c->in.data + c->in.begin, h->bytes);
        if (c->lead[h->bytes - 1] != ' ')
            c->lead[c->lead_bytes++] = ' ';
        c->in.begin += h->bytes;
        c->get_first = true;
        c->state = CLIENT_KEYS;
        break;
    case HEAD_ANSWER:
        if (h->data_bytes) {
            refuse_value(c, h->answer);
            break;
        }
        c->in.begin += h->bytes;
        answer(c);
        break;
    case HEAD_STATS_QOS:
        c->in.begin += h->bytes;
        if (qos_bucket_take(&c->worker->free_stats, c->worker->now_ns, 1) == QOS_OK)
            c->state = CLIENT_SAY;
        else
            answer(c);
        break;
    case HEAD_CLOSE:
        c->in.begin += h->bytes;
        c->state = CLIENT_SAY;
        break;
    }
    return true;
}

static bool read_key(struct client *c)
{
    struct head *h = &c->head;
    protocol_key(unread(c), buffer_held(&c->in), c->get_first, h);
    if (h->kind == HEAD_REQUEST) {
        enqueue(c);
        return true;
    }
    c->in.begin += h->bytes;
    if (h->kind == HEAD_MORE)
        return need(c);
    answer(c);
    return true;
}

static bool read_data(struct client *c)
{
    const struct head *h = &c->head;
    size_t bytes = h->bytes + h->data_bytes;
    const char *end;
    if (buffer_held(&c->in) < bytes) {
        if (c->in.end == c->in.size && !widen(c, bytes))
            return c->room_ns == 0;
        return need(c);
    }
    end = c->in.data + c->in.begin + bytes;
    if (end[-2] == '\r' && end[-1] == '\n') {
        enqueue(c);
        return true;
    }
    c->in.begin += bytes;
    say_then(c, "CLIENT_ERROR bad data chunk");
    return true;
}

static bool swallow(struct client *c)
{
    size_t bytes = qos_min(c->swallow_bytes, buffer_held(&c->in));
    const char *end;
    c->in.begin += bytes;
    c->swallow_bytes -= bytes;
    if (c->swallow_bytes)
        return need(c);
    if (c->head.swallow_line) {
        end = buffer_held(&c->in) ? memchr(c->in.data + c->in.begin, '\n', buffer_held(&c->in)) : NULL;
        c->in.begin = end ? (size_t)(end - c->in.data) + 1 : c->in.end;
        if (!end)
            return need(c);
    }
    c->half_ns = 0;
    c->state = CLIENT_LINE;
    return true;
}

/* ---- answers of the gate ----------------------------------------------------------------------------------------- */

static void say(struct client *c)
{
    static const char no_room[] = "SERVER_ERROR out of memory\r\n";
    const struct head *h = &c->head;
    bool shown = !h->quiet && !(h->of_get && c->get_failed && !c->get_first);
    c->half_ns = 0;
    if (h->kind == HEAD_STATS_QOS) {
        size_t bytes = 0;
        char *text = metrics_text(false, &bytes);
        if (client_room(c, c->bucket, bytes))
            client_append(c, text, bytes);
        else
            client_append(c, no_room, sizeof no_room - 1);
        free(text);
    } else if (h->answer && shown) {
        client_append(c, h->answer, strlen(h->answer));
        client_append(c, "\r\n", 2);
    }
    c->state = h->kind == HEAD_CLOSE                 ? CLIENT_CLOSE
               : c->swallow_bytes || h->swallow_line ? CLIENT_SWALLOW
                                                     : CLIENT_LINE;
}

/* One step. False: nothing to do now. */
static bool step(struct client *c)
{
    if (c->state == CLIENT_QUEUE || c->gone)
        return false;
    if (c->state == CLIENT_SAY || c->state == CLIENT_CLOSE || c->state == CLIENT_ORDER) {
        if (c->outstanding)
            return false;
        if (c->state == CLIENT_ORDER) {
            wait_for_grant(c);
            return true;
        }
        if (c->state == CLIENT_SAY) {
            say(c);
            return true;
        }
        if (buffer_held(&c->out) == 0)
            client_gone(c);
        return false;
    }
    c->held_back = high(c);
    if (c->outstanding >= c->window || c->held_back)
        return false;
    switch (c->state) {
    case CLIENT_LINE: return read_line(c);
    case CLIENT_KEYS: return read_key(c);
    case CLIENT_DATA: return read_data(c);
    case CLIENT_SWALLOW: return swallow(c);
    default: return false;
    }
}

void client_run(struct client *c)
{
    while (step(c))
        ;
    if (c->state != CLIENT_QUEUE)
        c->in_a_row = 0;
    if (!c->gone && buffer_held(&c->in) == 0 && c->in.data)
        buffer_release(c->worker, &c->in);
}

/* ---- granted ----------------------------------------------------------------------------------------------------- */

/* Can it be sent at once: by copying a few bytes, without a system call? */
bool client_is_small(const struct client *c)
{
    return !c->gone && !c->answers && c->head.bytes + c->head.data_bytes <= BLOCK_BYTES &&
           backend_ready(c->worker, c->grant.bucket);
}

static void consume(struct client *c)
{
    const struct head *h = &c->head;
    c->in.begin += h->bytes;
    if (h->answer)
        c->swallow_bytes = h->data_bytes;
    else
        c->in.begin += h->data_bytes;
    c->state = c->swallow_bytes ? CLIENT_SWALLOW : h->of_get && !h->last ? CLIENT_KEYS : CLIENT_LINE;
}

static void send_request(struct client *c)
{
    backend_send(c->worker, c);
    c->at_bucket = c->grant.bucket;
    c->outstanding++;
    c->get_first = false;
    consume(c);
}

bool client_granted_small(struct client *c)
{
    send_request(c);
    client_run(c); /* it has a request at memcached, so this call answers nothing and closes nothing */
    return c->state == CLIENT_QUEUE;
}

void client_granted(struct client *c)
{
    struct worker *w = c->worker;
    if (c->gone) {
        worker_done(w, &c->grant, OUTCOME_NOT_SENT, 0);
        c->state = CLIENT_CLOSE;
        if (c->outstanding == 0)
            worker_bury(c);
        return;
    }
    if (c->answers) {
        c->answers = false;
        worker_done(w, &c->grant, OUTCOME_ANSWERED, 0);
        c->state = CLIENT_SAY;
    } else if (w->backend[c->grant.bucket]->state == BACKEND_UP) {
        send_request(c);
    } else {
        worker_done(w, &c->grant, OUTCOME_NOT_SENT, 0);
        bucket_refused(c->grant.bucket, REFUSED_DOWN);
        consume(c);
        c->head.swallow_line = c->state == CLIENT_KEYS;
        c->head.answer = "SERVER_ERROR memcached does not answer";
        c->state = CLIENT_SAY;
    }
    worker_run_later(c);
}
