/* ngx_http_qos_filter.c - where a request takes tokens, and how it waits.
 *
 *     start      preaccess phase: the fixed cost, and the part of the body that came with the header. Or 429, or 503.
 *     body       c->recv is ours during the request: it reads no more than the tokens taken, so a client that sends too
 *                much finds its TCP window closed. The streams of HTTP/2 share a connection: they take tokens for their
 *                whole body before they read it, and must declare its length. A request may be answered before its tenant
 *                is known (`return`, 413): nothing of its body is thrown away before the header filter asks for the tenant.
 *     response   a body filter passes on what has tokens and keeps the remainder of the chain: buffers that refer to
 *                parts of files, or nginx's own output buffers. It takes tokens for a chunk when the client has taken
 *                the last one, and for several chunks at once if the client is fast: each call has a fixed cost. So a
 *                slow or aborted download pays for what moved and one such step more. It stands behind the filters that
 *                put pages and slices together (all come as the main request's) or make them longer, and before gzip.
 *
 * While no request waits, a worker takes tokens for small requests ahead: all workers together hold at most what the
 * tenant's limit gives in a millisecond, and for all tenants what the zone's rate gives in one.
 */
#include "ngx_http_qos.h"

#define QOS_FREE_BODY 16384 /* bytes read of a refused request's body, so that a small one costs no connection */
#define QOS_BUFFERED 0x40   /* in c->buffered: of the bits for filters behind the postpone filter */

/* Of a main request; its subrequests (parts of a page, slices of a file) are charged to it. */
struct qos_ctx {
    struct qos_zone *zone; /* NULL: its tenant is not known yet, or it has none */
    uint32_t id;
    struct qos_side request, response;
    off_t start;              /* bytes that need tokens before it goes on */
    ngx_recv_pt recv;         /* that of the connection; NULL: not replaced */
    ngx_chain_t *in;          /* not passed on yet */
    ngx_chain_t *free, *busy; /* our own buffers */
    size_t ahead;             /* chunks that go at once; grows while the client takes them at once */
    bool delayed;             /* c->write->delayed is ours */
    bool begun;               /* counted as a request; not if only a part of it is charged */
    bool accepted;            /* and not refused as it began: it may take a connection to an upstream */
    bool refused;             /* its answer is free: it must not wait for what its tenant has not */
    bool unread, ends;        /* of its body no more is read than request.credit; then the connection ends at once */
};

static ngx_http_output_header_filter_pt next_header_filter;
static ngx_http_output_body_filter_pt next_body_filter;

static void go_start(struct qos_side *side);
static void go_response(struct qos_side *side);

static void let_read(struct qos_ctx *ctx)
{
    ngx_connection_t *c = ctx->request.r->connection;
    if (ctx->recv) {
        c->recv = ctx->recv;
        c->read->delayed = 0;
    }
    ctx->recv = NULL;
}

static void on_cleanup(void *data)
{
    struct qos_ctx *ctx = data;
    ngx_connection_t *c = ctx->request.r->connection;
    qos_zone_leave(ctx->zone, &ctx->request);
    qos_zone_leave(ctx->zone, &ctx->response);
    let_read(ctx);
    if (ctx->delayed)
        c->write->delayed = 0;
    ctx->delayed = false;
    c->buffered &= ~QOS_BUFFERED & 0xff;
    if (ctx->begun)
        qos_zone_end(ctx->zone, ctx->id, ctx->accepted);
    ctx->begun = false;
}

static struct qos_ctx *new_context(ngx_http_request_t *r)
{
    struct qos_ctx *ctx = ngx_pcalloc(r->pool, sizeof *ctx);
    ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
    if (!ctx || !cleanup)
        return NULL;
    ctx->request.r = ctx->response.r = r;
    ctx->request.go = go_start;
    ctx->response.go = go_response;
    ctx->ahead = 1;
    cleanup->handler = on_cleanup;
    cleanup->data = ctx;
    ngx_http_set_ctx(r, ctx, ngx_http_qos_module);
    return ctx;
}

/* Of the main request `r`. An internal redirect drops the contexts of modules, but keeps the cleanups. */
static struct qos_ctx *find_context(ngx_http_request_t *r)
{
    struct qos_ctx *ctx = ngx_http_get_module_ctx(r, ngx_http_qos_module);
    ngx_http_cleanup_t *cleanup;
    if (ctx || (!r->internal && !r->filter_finalize))
        return ctx;
    for (cleanup = r->cleanup; cleanup && !ctx; cleanup = cleanup->next)
        if (cleanup->handler == on_cleanup)
            ctx = cleanup->data;
    if (ctx)
        ngx_http_set_ctx(r, ctx, ngx_http_qos_module);
    return ctx;
}

/* ---- response */

/* The client has not taken what was passed on, and an event will tell when it has. `ready` says so for all: sockets, TLS
 * (whose buffer may hold a part of a record that waits for more bytes from us), streams of HTTP/2 (flow control).
 * limit_rate delays with a timer. The gzip filter holds bytes, too, and no event ends that: it waits for us. */
static bool client_is_behind(const struct qos_ctx *ctx, const ngx_connection_t *c)
{
    return (!c->write->ready || (c->write->delayed && !ctx->delayed)) &&
           (c->buffered & (NGX_HTTP_WRITE_BUFFERED | NGX_LOWLEVEL_BUFFERED)) != 0;
}

/* Takes `size` bytes off the front of ctx->in, and the buffers without bytes after them (the last buffer). */
static ngx_chain_t *cut(ngx_http_request_t *r, struct qos_ctx *ctx, off_t size)
{
    ngx_chain_t *out = NULL, **last = &out, *cl;
    ngx_buf_t *from, *b;
    while ((cl = ctx->in) != NULL && ngx_buf_size(cl->buf) <= size) {
        size -= ngx_buf_size(cl->buf);
        ctx->in = cl->next;
        *last = cl;
        last = &cl->next;
    }
    *last = NULL;
    if (!cl || size == 0)
        return out;
    from = cl->buf;
    cl = ngx_chain_get_free_buf(r->pool, &ctx->free);
    if (!cl)
        return NULL;
    b = cl->buf;
    *b = *from;
    b->tag = (ngx_buf_tag_t)&ngx_http_qos_module;
    b->shadow = NULL;
    b->last_shadow = b->recycled = b->flush = b->last_buf = b->last_in_chain = 0;
    if (ngx_buf_in_memory(from)) {
        from->pos += size;
        b->last = from->pos;
    }
    if (from->in_file) {
        from->file_pos += size;
        b->file_last = from->file_pos;
    }
    cl->next = NULL;
    *last = cl;
    return out;
}

/* Keeps the remainder until the client is ready or the tokens are there. */
static ngx_int_t hold(ngx_http_request_t *r, struct qos_ctx *ctx)
{
    ngx_connection_t *c = r->connection;
    ngx_event_t *write = c->write;
    c->buffered |= QOS_BUFFERED;
    if (ctx->response.wait && !write->delayed) { /* as limit_rate does it: the delay is ours, not the client's */
        /* what TLS has of the last chunk goes before the pause */
        if (write->ready && (c->buffered & NGX_LOWLEVEL_BUFFERED) && next_body_filter(r, NULL) == NGX_ERROR)
            return NGX_ERROR;
        if (write->delayed || !ctx->response.wait)
            return NGX_AGAIN;
        write->delayed = 1;
        ctx->delayed = true;
        if (write->timer_set)
            ngx_del_timer(write);
    }
    return NGX_AGAIN;
}

/* Bytes of a chain; of a long one, at most this many. */
static size_t chain_size(const ngx_chain_t *cl, size_t most)
{
    off_t size = 0;
    for (; cl && size < (off_t)most; cl = cl->next)
        size += ngx_buf_size(cl->buf);
    return (size_t)ngx_min(size, (off_t)most);
}

/* Takes tokens for `size` bytes, until it has to wait. */
static ngx_int_t take_for(struct qos_ctx *ctx, size_t size)
{
    struct qos_side *side = &ctx->response;
    ngx_int_t rc = NGX_OK;
    while (rc == NGX_OK && side->credit < size)
        rc = qos_zone_take(ctx->zone, ctx->id, QOS_READ, size - side->credit, side);
    return rc;
}

/* Passes on the held data, as far as tokens and the client's buffer allow. */
static ngx_int_t pass_on(ngx_http_request_t *r, struct qos_ctx *ctx)
{
    ngx_connection_t *c = r->connection;
    ngx_chain_t *out;
    ngx_int_t rc = NGX_OK;
    while (ctx->in) {
        size_t size = chain_size(ctx->in, ctx->ahead * ctx->zone->chunk);
        if (client_is_behind(ctx, c))
            return hold(r, ctx);
        if (!ctx->response.wait && take_for(ctx, size) == NGX_ERROR)
            return NGX_ERROR;
        if (size > 0 && ctx->response.credit == 0)
            return hold(r, ctx);
        size = ngx_min(size, ctx->response.credit);
        ctx->response.credit -= size;
        out = cut(r, ctx, (off_t)size);
        if (!out)
            return NGX_ERROR;
        rc = next_body_filter(r, out);
        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t)&ngx_http_qos_module);
        if (rc == NGX_ERROR)
            return rc;
        ctx->ahead = client_is_behind(ctx, c) ? 1 : ngx_min(2 * ctx->ahead, QOS_STEP_CHUNKS);
    }
    c->buffered &= ~QOS_BUFFERED & 0xff;
    return rc;
}

static ngx_int_t body_filter(ngx_http_request_t *part, ngx_chain_t *in)
{
    ngx_http_request_t *r = part->main;
    struct qos_ctx *ctx = find_context(r);
    ngx_connection_t *c = r->connection;
    ngx_int_t rc;
    size_t size;
    if (!ctx || !ctx->zone || ctx->refused)
        return next_body_filter(part, in);
    if (in && !ctx->in && !ctx->response.wait && ctx->response.credit == 0 && !client_is_behind(ctx, c) &&
        (size = chain_size(in, ctx->zone->chunk + 1)) <= ctx->zone->chunk) { /* most responses: whole, without copies */
        rc = take_for(ctx, size);
        ctx->response.credit = 0;
        if (rc != NGX_AGAIN)
            return rc == NGX_OK ? next_body_filter(r, in) : rc;
    }
    if (in && ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK)
        return NGX_ERROR;
    if (!ctx->in) /* woken, but everything was sent: the write filter must not be called with nothing */
        return r->out || c->buffered ? next_body_filter(r, NULL) : NGX_OK;
    if (ctx->response.wait)
        return hold(r, ctx);
    if (c->buffered & (NGX_HTTP_WRITE_BUFFERED | NGX_LOWLEVEL_BUFFERED))
        if (next_body_filter(r, NULL) == NGX_ERROR)
            return NGX_ERROR;
    return pass_on(r, ctx);
}

static void go_response(struct qos_side *side)
{
    ngx_http_request_t *r = side->r, *part;
    ngx_connection_t *c = r->connection;
    struct qos_ctx *ctx = find_context(r);
    ngx_http_set_log_request(c->log, r);
    if (ctx->delayed) {
        c->write->delayed = 0;
        ctx->delayed = false;
    }
    if (body_filter(r, NULL) == NGX_ERROR)
        ngx_http_finalize_request(r, NGX_ERROR);
    else {
        part = c->data; /* whose bytes go to the client now */
        part->write_event_handler(part);
    }
    ngx_http_run_posted_requests(c);
}

/* ---- body of the request */

static ssize_t recv_some(ngx_connection_t *c, u_char *buf, size_t size)
{
    ngx_http_request_t *r = ((ngx_http_request_t *)c->data)->main;
    struct qos_ctx *ctx = find_context(r);
    ngx_int_t rc = ctx->request.wait ? NGX_AGAIN : NGX_OK;
    ssize_t n;
    if (!ctx->zone && r->request_body) /* another module reads the body so early */
        return ctx->recv(c, buf, size);
    if (!ctx->zone) {
        c->read->ready = 0;
        return NGX_AGAIN;
    }
    if (ctx->unread && ctx->request.credit == 0) { /* an error ends the connection: not before the answer is sent */
        c->read->ready = 0;
        return r->header_sent && (ctx->ends || c->read->pending_eof) ? NGX_ERROR : NGX_AGAIN;
    }
    if (rc == NGX_OK && ctx->request.credit == 0)
        rc = qos_zone_take(ctx->zone, ctx->id, QOS_WRITE, ngx_min(size, ctx->zone->chunk), &ctx->request);
    if (rc != NGX_OK) {
        c->read->ready = 0;
        c->read->delayed = 1; /* without a timeout: the delay is ours, not the client's */
        return rc;
    }
    n = ctx->recv(c, buf, ngx_min(size, ctx->request.credit));
    if (n > 0)
        ctx->request.credit -= (size_t)n;
    return n;
}

static void go_body(struct qos_side *side)
{
    ngx_event_t *read = side->r->connection->read;
    read->delayed = 0;
    read->ready = 1;
    read->handler(read);
}

static void read_some(struct qos_ctx *ctx)
{
    ngx_connection_t *c = ctx->request.r->connection;
    if (!ctx->recv)
        ctx->recv = c->recv;
    c->recv = recv_some;
}

/* The body of a refused request has no tokens, and must not wait for them: a little of it is read. A client that sends more
 * finds its TCP window closed until nginx's lingering_timeout, or, where its tenant has too many connections, is cut off. */
static void read_little(struct qos_ctx *ctx, bool ends)
{
    ngx_http_request_t *r = ctx->request.r;
    const off_t came = r->header_in->last - r->header_in->pos;
    if (!ctx->recv)
        return;
    ctx->unread = true;
    ctx->ends = ends;
    ctx->request.credit = QOS_FREE_BODY;
    if (r->headers_in.chunked || r->headers_in.content_length_n > came + QOS_FREE_BODY)
        r->keepalive = 0;
}

/* ---- start */

/* Takes the tokens that are due before the request goes on, chunk by chunk. */
static ngx_int_t take_start(struct qos_ctx *ctx)
{
    ngx_int_t rc = NGX_OK;
    while (rc == NGX_OK && ctx->start > 0) {
        const size_t n = (size_t)ngx_min(ctx->start, (off_t)ctx->zone->chunk);
        ctx->start -= (off_t)n;
        rc = qos_zone_take(ctx->zone, ctx->id, QOS_WRITE, n, &ctx->request);
    }
    if (rc == NGX_OK) {
        ctx->request.credit = 0;
        ctx->request.go = go_body;
    }
    return rc;
}

static void go_start(struct qos_side *side)
{
    ngx_http_request_t *r = side->r;
    ngx_connection_t *c = r->connection;
    ngx_int_t rc = take_start(find_context(r));
    if (rc == NGX_AGAIN)
        return;
    ngx_http_set_log_request(c->log, r);
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    if (rc == NGX_OK)
        ngx_http_core_run_phases(r);
    else
        ngx_http_finalize_request(r, NGX_HTTP_SERVICE_UNAVAILABLE);
    ngx_http_run_posted_requests(c);
}

static ngx_int_t refuse(ngx_http_request_t *r, const struct qos_loc_conf *conf, uint64_t wait_ns)
{
    ngx_table_elt_t *h = ngx_list_push(&r->headers_out.headers);
    u_char *value = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (!h || !value)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_memzero(h, sizeof *h);
    h->hash = 1;
    ngx_str_set(&h->key, "Retry-After");
    h->value.data = value;
    h->value.len =
        (size_t)(ngx_sprintf(value, "%uL", qos_min(qos_sat_sub(wait_ns, 1) / QOS_NS_PER_S + 1, 3600)) - value);
    return conf->reject ? NGX_HTTP_TOO_MANY_REQUESTS : NGX_HTTP_SERVICE_UNAVAILABLE;
}

static bool find_key(ngx_http_request_t *r, const struct qos_loc_conf *conf, ngx_str_t *key)
{
    const ngx_http_variable_value_t *value;
    if (conf->key)
        return ngx_http_complex_value(r, conf->key, key) == NGX_OK;
    value = ngx_http_get_flushed_variable(r, (ngx_uint_t)conf->variable);
    key->data = value ? value->data : NULL;
    key->len = value && !value->not_found ? value->len : 0;
    return true;
}

static ngx_int_t on_preaccess(ngx_http_request_t *r)
{
    struct qos_loc_conf *conf = ngx_http_get_module_loc_conf(r, ngx_http_qos_module);
    struct qos_ctx *ctx = find_context(r->main);
    ngx_connection_t *c = r->connection;
    enum qos_refusal why;
    ngx_str_t key;
    uint64_t wait_ns;
    ngx_int_t rc;
    if (ctx && ctx->zone)
        return r == r->main && ctx->request.wait ? NGX_AGAIN : NGX_DECLINED;
    if (!conf->zone && ctx)
        let_read(ctx);
    if (!conf->zone ||
        (r != r->main && (r->header_only || r->subrequest_in_memory))) /* the client gets nothing of it */
        return NGX_DECLINED;
    if (!conf->zone->held) /* a reload with master_process off: no process has begun */
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    if (!find_key(r, conf, &key) || (!ctx && !(ctx = new_context(r->main))))
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ctx->id = qos_zone_id(conf->zone, &key);
    ctx->zone = conf->zone;
    if (r != r->main) /* a part of a request that was free: from here on it is charged */
        return NGX_DECLINED;

    ctx->begun = true;
    why = qos_zone_begin(ctx->zone, ctx->id, conf->reject != 0, &wait_ns);
    ctx->accepted = why == QOS_ACCEPTED;
    ctx->refused = !ctx->accepted;
    rc = ctx->refused ? NGX_DECLINED : qos_zone_admit(ctx->zone, ctx->id, conf->reject != 0, &ctx->request, &wait_ns);
    if (rc == NGX_DECLINED) {
        ctx->refused = true;
        read_little(ctx, why == QOS_OVER_CONNECTIONS);
        return refuse(r, conf, wait_ns);
    }
    ctx->start = (off_t)ctx->zone->request_cost;
    if (r->http_version >= NGX_HTTP_VERSION_20) {
        if (r->headers_in.content_length_n < 0 && r->headers_in.chunked)
            return NGX_HTTP_LENGTH_REQUIRED;
        ctx->start += ngx_max(r->headers_in.content_length_n, 0);
    } else if (r->headers_in.content_length_n > 0 || r->headers_in.chunked) {
        const off_t came = r->header_in->last - r->header_in->pos;
        ctx->start += r->headers_in.chunked ? came : ngx_min(came, r->headers_in.content_length_n);
        read_some(ctx);
    }
    if (rc == NGX_OK)
        rc = take_start(ctx);
    if (rc == NGX_AGAIN) {
        r->read_event_handler = ngx_http_test_reading;
        r->write_event_handler = ngx_http_request_empty_handler;
        return ngx_handle_read_event(c->read, 0) == NGX_OK ? NGX_AGAIN : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    return rc == NGX_OK ? NGX_DECLINED : NGX_HTTP_SERVICE_UNAVAILABLE;
}

/* The body of a request whose tenant is not known yet waits. */
static ngx_int_t on_post_read(ngx_http_request_t *r)
{
    const struct qos_main_conf *conf = ngx_http_get_module_main_conf(r, ngx_http_qos_module);
    struct qos_ctx *ctx;
    if (r != r->main || conf->zones.nelts == 0 || r->http_version >= NGX_HTTP_VERSION_20 || find_context(r) ||
        (r->headers_in.content_length_n <= 0 && !r->headers_in.chunked))
        return NGX_DECLINED;
    ctx = new_context(r);
    if (!ctx)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    read_some(ctx);
    return NGX_DECLINED;
}

/* The answer came before the tenant was known: it is free. What is thrown away of the body takes tokens, if the tenant may
 * hold one more connection for that. */
static ngx_int_t header_filter(ngx_http_request_t *r)
{
    const struct qos_loc_conf *conf = ngx_http_get_module_loc_conf(r, ngx_http_qos_module);
    struct qos_ctx *ctx = r == r->main ? find_context(r) : NULL;
    ngx_event_t *read = r->connection->read;
    ngx_str_t key;
    uint64_t wait_ns;
    if (ctx && !ctx->zone && ctx->recv) {
        if (conf->zone && conf->zone->held && find_key(r, conf, &key)) {
            ctx->id = qos_zone_id(conf->zone, &key);
            ctx->zone = conf->zone;
            ctx->refused = ctx->begun = true;
            ctx->request.go = go_body;
        }
        if (ctx->zone) {
            ctx->accepted = qos_zone_begin(ctx->zone, ctx->id, false, &wait_ns) == QOS_ACCEPTED;
            if (!ctx->accepted)
                read_little(ctx, true);
        } else {
            let_read(ctx);
        }
    }
    if (ctx && r->discard_body) { /* it waited, and an event that came is not told again */
        read->ready = 1;
        ngx_post_event(read, &ngx_posted_events);
    }
    return next_header_filter(r);
}

ngx_int_t qos_filter_install(ngx_conf_t *cf)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *first = ngx_array_push(&core->phases[NGX_HTTP_POST_READ_PHASE].handlers),
                        *handler = ngx_array_push(&core->phases[NGX_HTTP_PREACCESS_PHASE].handlers);
    if (!first || !handler)
        return NGX_ERROR;
    *first = on_post_read;
    *handler = on_preaccess;
    next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = header_filter;
    next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = body_filter;
    return NGX_OK;
}
