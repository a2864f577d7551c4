/* tokenpool_verbs - Haechi over RDMA verbs: RDMA READ for records, FETCH_AND_ADD for claims, 8-byte RDMA WRITE for reports,
 * SEND to announce a period. One process is the data node (--serve), each client another (--id), on any hosts. */
// links: -lrdmacm -libverbs
// flags: -pthread

/* A client reads up to 16 records at a time. Words to write wait for the next reads and are posted after them. Only the
 * last operation of a chain is signalled. wire.h lists what a client may reach, and by which operation.
 *
 * The monitor reaches the pool word through the device too, by a connection to itself: most devices promise atomicity
 * among RDMA atomics only (ATOMIC_HCA), and a CPU atomic between them would lose claims. */
#define _GNU_SOURCE
#include "examples/tokenpool_verbs/wire.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/random.h>

enum { LOOPBACK = NODE_CLIENTS_MAX, RECEIVES = 8, WRITES = 8, CHAIN = NODE_BURST + WRITES + 1 };
/* After this time without an answer the data node counts as gone. The device gives up earlier: after 8 times 4.096 us
 * x 2^15. */
#define PATIENCE_NS UINT64_C(1500000000)
enum { ACK_TIMEOUT = 15, RETRIES = 7 };
/* Client memory that the device accesses: the answer of a word operation, received messages, records. */
enum { AT_ANSWER = 0, AT_MESSAGES = 64, AT_RECORDS = NODE_RECORD, SCRATCH = AT_RECORDS + NODE_BURST * NODE_RECORD };

struct connection {
    struct node_link link; /* first: a node_link is its connection */
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_cq *sent, *received;
    struct ibv_mr *scratch_key;
    struct wire_welcome to;
    struct {
        uint64_t offset, value;
    } write[WRITES]; /* not posted yet */
    unsigned writes;
    char *scratch;
};

static uint32_t node_self = LOOPBACK; /* which client this process is */

static void broken(const char *what)
{
    tool_warn("%s: %s", what, strerror(errno));
}

/* ---- client's side of a connection (the monitor is a client of itself) */

/* A refusal is a sentence from the data node: text of another host. */
static void say_refusal(const struct rdma_conn_param *param)
{
    char text[WIRE_REFUSAL_BYTES + 1] = "";
    size_t n = qos_min(param->private_data_len, WIRE_REFUSAL_BYTES), i;
    if (param->private_data)
        memcpy(text, param->private_data, n);
    for (i = 0; i < n && text[i]; i++)
        text[i] = isprint((unsigned char)text[i]) ? text[i] : '?';
    tool_warn("the data node refused: %s",
              text[0] ? text : "it does not say why (is there one at this address and port?)");
}

static bool await_event(struct connection *c, enum rdma_cm_event_type want, uint64_t until_ns, void *copy, size_t size)
{
    struct pollfd f = {.fd = c->channel->fd, .events = POLLIN};
    struct rdma_cm_event *e;
    uint64_t now_ns;
    bool ok;
    do {
        now_ns = tool_now_ns();
        if (now_ns >= until_ns || stop_asked()) {
            tool_warn("the data node does not answer");
            return false;
        }
    } while (poll(&f, 1, (int)((until_ns - now_ns) / 1000000 + 1)) <= 0);
    if (rdma_get_cm_event(c->channel, &e) != 0) {
        broken("connection events");
        return false;
    }
    ok = e->event == want;
    if (e->event == RDMA_CM_EVENT_REJECTED)
        say_refusal(&e->param.conn);
    else if (!ok)
        tool_warn("the data node does not answer as it should: %s (status %d)", rdma_event_str(e->event), e->status);
    if (ok && copy && e->param.conn.private_data_len >= size)
        memcpy(copy, e->param.conn.private_data, size);
    rdma_ack_cm_event(e);
    return ok;
}

static bool post_receive(struct connection *c, uint32_t slot)
{
    struct ibv_sge s = {(uintptr_t)c->scratch + AT_MESSAGES + 16 * slot, 16, c->scratch_key->lkey};
    struct ibv_recv_wr w = {.wr_id = slot, .sg_list = &s, .num_sge = 1}, *bad;
    return ibv_post_recv(c->id->qp, &w, &bad) == 0;
}

static bool make_queues(struct connection *c, struct ibv_context *device)
{
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC, .cap = {CHAIN, RECEIVES, 1, 1, 16}};
    struct ibv_pd *pd;
    uint32_t i;
    c->scratch = (char *)tool_alloc_aligned(SCRATCH, NODE_PAGE);
    if (!(pd = ibv_alloc_pd(device)) || !(c->sent = ibv_create_cq(device, CHAIN, NULL, NULL, 0)) ||
        !(c->received = ibv_create_cq(device, RECEIVES, NULL, NULL, 0)) ||
        !(c->scratch_key = ibv_reg_mr(pd, c->scratch, SCRATCH, IBV_ACCESS_LOCAL_WRITE))) {
        broken("setting up the connection (is ulimit -l large enough?)");
        return false;
    }
    qp.send_cq = c->sent;
    qp.recv_cq = c->received;
    if (rdma_create_qp(c->id, pd, &qp) != 0) {
        broken("queue pair");
        return false;
    }
    for (i = 0; i < RECEIVES; i++)
        if (!post_receive(c, i))
            return false;
    return true;
}

static bool connect_to(struct connection *c, const char *address, uint64_t port, uint32_t who, uint64_t secret)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct wire_request request = {secret, who, WIRE_VERSION};
    struct rdma_conn_param param = {.private_data = &request,
                                    .private_data_len = sizeof request,
                                    .responder_resources = 1,
                                    .initiator_depth = 16,
                                    .retry_count = RETRIES,
                                    .rnr_retry_count = 7};
    uint64_t until_ns = tool_now_ns() + PATIENCE_NS;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    uint8_t timeout = ACK_TIMEOUT;
    struct ibv_device_attr device;
    if (inet_pton(AF_INET, address, &a.sin_addr) != 1) {
        tool_warn("\"%s\" is not an IPv4 address", address);
        return false;
    }
    if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
        tool_warn("no RDMA here (%s); is a device there, and rdma_ucm loaded?", strerror(errno));
        return false;
    }
    c->channel = channel;
    c->id = id;
    if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000) != 0 ||
        !await_event(c, RDMA_CM_EVENT_ADDR_RESOLVED, until_ns, NULL, 0) || rdma_resolve_route(id, 1000) != 0 ||
        !await_event(c, RDMA_CM_EVENT_ROUTE_RESOLVED, until_ns, NULL, 0)) {
        tool_warn("no RDMA device reaches %s", address);
        return false;
    }
    if (ibv_query_device(id->verbs, &device) != 0 || device.atomic_cap == IBV_ATOMIC_NONE) {
        tool_warn("device %s has no atomics", ibv_get_device_name(id->verbs->device));
        return false;
    }
    (void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout); /* best effort */
    if (!make_queues(c, id->verbs) || rdma_connect(id, &param) != 0 ||
        !await_event(c, RDMA_CM_EVENT_ESTABLISHED, until_ns, &c->to, sizeof c->to))
        return false;
    if (c->to.version != WIRE_VERSION) {
        tool_warn("the data node speaks another version");
        return false;
    }
    return true;
}

/* The connection manager reports that the other side or the device is gone. */
static bool verbs_lost(struct node_link *l)
{
    struct connection *c = (struct connection *)l;
    struct pollfd f = {.fd = c->channel->fd, .events = POLLIN};
    if (stop_asked() || poll(&f, 1, 0) <= 0)
        return false;
    tool_warn("the data node is gone");
    return true;
}

/* The last operation of a chain is complete, so all are. */
static bool await_chain(struct connection *c)
{
    uint64_t now_ns = tool_now_ns(), until_ns = now_ns + PATIENCE_NS, look_ns = now_ns + 10000000;
    struct ibv_wc done;
    int n;
    while ((n = ibv_poll_cq(c->sent, 1, &done)) == 0) {
        sched_yield();
        now_ns = tool_now_ns();
        if (now_ns > look_ns) {
            look_ns = now_ns + 10000000;
            if (c->link.lost && verbs_lost(&c->link))
                return false;
        }
        if (now_ns > until_ns) {
            tool_warn("the data node does not answer any more");
            return false;
        }
    }
    if (n < 0 || done.status != IBV_WC_SUCCESS) {
        tool_warn("%s", n < 0                                  ? "the completion queue is broken"
                        : done.status == IBV_WC_REM_ACCESS_ERR ? "refused: wrong key or address (remote access error)"
                        : done.status == IBV_WC_RETRY_EXC_ERR || done.status == IBV_WC_WR_FLUSH_ERR
                            ? "the data node is gone"
                            : ibv_wc_status_str(done.status));
        return false;
    }
    return true;
}

/* The region at this offset, and its key. */
static void aim(const struct connection *c, uint64_t offset, uint64_t *address, uint32_t *key)
{
    unsigned i;
    *address = c->to.address + offset;
    *key = 0;
    for (i = 0; i < WIRE_REGIONS; i++) {
        struct wire_region r = wire_region(&node_options, node_self, i);
        if (offset >= r.offset && offset - r.offset < r.bytes)
            *key = c->to.key[i];
    }
}

/* Posts n operations, then the words that wait to be written, and waits for all. */
static bool post_chain(struct connection *c, struct ibv_send_wr *w, unsigned n)
{
    struct ibv_sge word[WRITES];
    struct ibv_send_wr *bad;
    unsigned i;
    for (i = 0; i < c->writes; i++) {
        struct ibv_send_wr *at = &w[n++];
        memset(at, 0, sizeof *at);
        word[i] = (struct ibv_sge){(uintptr_t)&c->write[i].value, 8, 0};
        at->sg_list = &word[i];
        at->num_sge = 1;
        at->opcode = IBV_WR_RDMA_WRITE;
        at->send_flags = IBV_SEND_INLINE;
        aim(c, c->write[i].offset, &at->wr.rdma.remote_addr, &at->wr.rdma.rkey);
    }
    c->writes = 0;
    if (n == 0)
        return true;
    for (i = 0; i + 1 < n; i++)
        w[i].next = &w[i + 1];
    w[n - 1].next = NULL;
    w[n - 1].send_flags |= IBV_SEND_SIGNALED;
    errno = ibv_post_send(c->id->qp, w, &bad);
    if (errno) {
        broken("posting operations");
        return false;
    }
    return await_chain(c);
}

static bool verbs_op(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer)
{
    struct connection *c = (struct connection *)l;
    struct ibv_sge s = {(uintptr_t)c->scratch + AT_ANSWER, 8, c->scratch_key->lkey};
    struct ibv_send_wr w[CHAIN] = {{.sg_list = &s, .num_sge = 1}};
    bool swap = op->kind == TOKENPOOL_COMPARE_SWAP;
    if (op->kind == TOKENPOOL_WRITE) { /* no answer needed: posted after the next reads */
        c->write[c->writes].offset = op->offset_bytes;
        c->write[c->writes++].value = op->operand;
        return c->writes < WRITES || post_chain(c, w, 0);
    }
    if (op->kind == TOKENPOOL_READ && op->offset_bytes != TOKENPOOL_OFFSET_POOL) {
        w[0].opcode = IBV_WR_RDMA_READ;
        aim(c, op->offset_bytes, &w[0].wr.rdma.remote_addr, &w[0].wr.rdma.rkey);
    } else { /* the pool word is read by adding 0 */
        w[0].opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
        aim(c, op->offset_bytes, &w[0].wr.atomic.remote_addr, &w[0].wr.atomic.rkey);
        w[0].wr.atomic.compare_add = swap ? op->compare : op->operand;
        w[0].wr.atomic.swap = op->operand;
    }
    if (!post_chain(c, w, 1))
        return false;
    memcpy(answer, c->scratch + AT_ANSWER, 8);
    return true;
}

static bool verbs_read(struct node_link *l, const uint64_t *offset, unsigned n, void *to)
{
    struct connection *c = (struct connection *)l;
    struct ibv_sge s[NODE_BURST];
    struct ibv_send_wr w[CHAIN];
    unsigned i;
    memset(w, 0, sizeof w);
    for (i = 0; i < n; i++) {
        s[i] =
            (struct ibv_sge){(uintptr_t)c->scratch + AT_RECORDS + i * NODE_RECORD, NODE_RECORD, c->scratch_key->lkey};
        w[i].sg_list = &s[i];
        w[i].num_sge = 1;
        w[i].opcode = IBV_WR_RDMA_READ;
        aim(c, offset[i], &w[i].wr.rdma.remote_addr, &w[i].wr.rdma.rkey);
    }
    if (!post_chain(c, w, n))
        return false;
    memcpy(to, c->scratch + AT_RECORDS, n * NODE_RECORD);
    return true;
}

/* Did a message announce a period? */
static bool verbs_hint(struct node_link *l)
{
    struct connection *c = (struct connection *)l;
    struct ibv_wc done;
    bool got = false;
    while (ibv_poll_cq(c->received, 1, &done) > 0 && done.status == IBV_WC_SUCCESS)
        got = post_receive(c, (uint32_t)done.wr_id);
    return got;
}

static void verbs_idle(struct node_link *l, uint64_t until_ns)
{
    struct ibv_send_wr w[CHAIN];
    uint64_t now_ns = tool_now_ns();
    if (!post_chain((struct connection *)l, w, 0))
        exit(TOOL_FAILED);
    if (until_ns > now_ns)
        tool_sleep_until_ns(qos_min(until_ns, now_ns + 250000)); /* a message may come */
    else
        sched_yield();
}

/* ---- the data node */

struct peer { /* one for each client, and one for the connection to ourselves */
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_mr *region[WIRE_REGIONS];
    bool connected, joined, warned;
};
static struct {
    struct node_link link; /* first */
    struct connection loop;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct ibv_cq *cq;
    char *region;
    struct peer peer[NODE_CLIENTS_MAX + 1];
    const char *address;
    uint64_t port, secret;
    struct node_log log;
    bool looped, joined;
} node;

static void drop(struct peer *p)
{
    uint32_t who = (uint32_t)(p - node.peer), i;
    if (!p->id)
        return;
    (void)rdma_disconnect(p->id);
    if (p->id->qp)
        rdma_destroy_qp(p->id);
    for (i = 0; i < WIRE_REGIONS; i++)
        if (p->region[i])
            ibv_dereg_mr(p->region[i]);
    if (p->pd)
        ibv_dealloc_pd(p->pd);
    if (p->connected && who < LOOPBACK) {
        printf("client %u is gone\n", who);
        fflush(stdout);
        node_gone(&node_options, &node.log, who);
    }
    (void)rdma_destroy_id(p->id);
    p->id = NULL;
    p->pd = NULL;
    p->connected = false;
    memset(p->region, 0, sizeof p->region);
}

/* Its domain, its regions with their rights, its queue pair. */
static bool make_peer(struct peer *p, struct wire_welcome *in)
{
    const struct node_setup *s = &node_options;
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC, .cap = {RECEIVES, 1, 1, 1, 16}};
    uint32_t who = (uint32_t)(p - node.peer), i, regions = who == LOOPBACK ? WIRE_POOL + 1 : WIRE_REGIONS;
    if (!(p->pd = ibv_alloc_pd(p->id->verbs)) ||
        (!node.cq && !(node.cq = ibv_create_cq(p->id->verbs, (NODE_CLIENTS_MAX + 1) * RECEIVES, NULL, NULL, 0))))
        return false;
    for (i = 0; i < regions; i++) {
        struct wire_region r = wire_region(s, who, i);
        int local = r.access == IBV_ACCESS_REMOTE_READ ? 0 : IBV_ACCESS_LOCAL_WRITE; /* required by verbs */
        p->region[i] = ibv_reg_mr(p->pd, node.region + r.offset, (size_t)r.bytes, (unsigned)(r.access | local));
        if (!p->region[i])
            return false;
        in->key[i] = p->region[i]->rkey;
    }
    qp.send_cq = qp.recv_cq = node.cq;
    return rdma_create_qp(p->id, p->pd, &qp) == 0;
}

/* Accepts a client, or refuses it with the reason. */
static bool welcome(struct rdma_cm_event *e)
{
    const struct node_setup *s = &node_options;
    struct wire_welcome in = {.address = (uintptr_t)node.region,
                              .period_ns = s->period_ns,
                              .table_bytes = s->table_bytes,
                              .clients = s->clients,
                              .batch = (uint32_t)s->batch,
                              .flags = s->flags,
                              .version = WIRE_VERSION};
    struct rdma_conn_param param = {.private_data = &in,
                                    .private_data_len = sizeof in,
                                    .responder_resources = 16,
                                    .initiator_depth = 1,
                                    .retry_count = RETRIES,
                                    .rnr_retry_count = 7};
    struct wire_request request = {0, UINT32_MAX, 0};
    char why[WIRE_REFUSAL_BYTES] = "";
    struct peer *p = NULL;
    if (e->param.conn.private_data_len >= sizeof request)
        memcpy(&request, e->param.conn.private_data, sizeof request);
    if (request.version != WIRE_VERSION)
        snprintf(why, sizeof why, "it speaks another version");
    else if (request.client >= s->clients && (request.client != LOOPBACK || request.secret != node.secret))
        snprintf(why, sizeof why, "clients are 0 to %u", s->clients - 1);
    else if (node.peer[request.client].id) /* two engines on one slot would both spend its tokens */
        snprintf(why, sizeof why, "client %u is here already", request.client);
    if (!why[0]) {
        p = &node.peer[request.client];
        p->id = e->id;
        if (!make_peer(p, &in)) {
            broken("registering memory for a client (is ulimit -l large enough?)");
            snprintf(why, sizeof why, "it cannot register memory");
        } else if (rdma_accept(p->id, &param) != 0) {
            broken("accepting a client");
            snprintf(why, sizeof why, "it cannot accept");
        }
    }
    if (why[0])
        (void)rdma_reject(e->id, why, (uint8_t)sizeof why);
    return !why[0];
}

static bool serve_events(int timeout_ms)
{
    struct pollfd f = {.fd = node.channel->fd, .events = POLLIN};
    while (poll(&f, 1, timeout_ms) > 0) {
        struct rdma_cm_event *e;
        struct rdma_cm_id *id;
        enum rdma_cm_event_type event;
        uint32_t i;
        bool known = false, in = false;
        timeout_ms = 0;
        if (rdma_get_cm_event(node.channel, &e) != 0)
            return false;
        id = e->id;
        event = e->event;
        if (event == RDMA_CM_EVENT_CONNECT_REQUEST)
            in = welcome(e);
        rdma_ack_cm_event(e);
        for (i = 0; i <= LOOPBACK; i++) {
            struct peer *p = &node.peer[i];
            if (p->id != id)
                continue;
            known = true;
            if (event == RDMA_CM_EVENT_ESTABLISHED) {
                p->connected = true;
                if (i < LOOPBACK)
                    printf("client %u is here\n", i);
                fflush(stdout);
            } else if (!in) /* it left, died, or could not be accepted */
                drop(p);
        }
        if (!known && event == RDMA_CM_EVENT_CONNECT_REQUEST)
            (void)rdma_destroy_id(id); /* refused */
    }
    return true;
}

static void serve_idle(struct node_link *l, uint64_t until_ns)
{
    (void)l;
    if (!serve_events(0))
        stop_now();
    if (until_ns > tool_now_ns())
        tool_sleep_until_ns(qos_min(until_ns, tool_now_ns() + 1000000));
}

/* Monitor's operations: the pool word through the device, by the connection to ourselves. */
static bool node_op(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer)
{
    (void)l;
    return verbs_op(&node.loop.link, op, answer);
}

/* From the next period on a client that is gone has no reservation, and a client that returned has its reservation
 * again. */
static void admit(struct tokenpool_monitor *m, uint32_t who)
{
    const struct node_setup *s = &node_options;
    struct peer *p = &node.peer[who];
    enum qos_status status = QOS_OK;
    if (p->joined == p->connected)
        return;
    if (p->joined)
        status = tokenpool_monitor_leave(m, who);
    else
        status = tokenpool_monitor_join(m, who, node_share(&node.log, s->reserve[who]),
                                        s->limit[who] > 0 ? node_share(&node.log, s->limit[who]) : 0, NULL);
    p->joined = p->connected;
    if (status != QOS_OK)
        tool_warn("client %u: %s", who, qos_strerror(status));
}

/* Sends the message that a period began; takes deaths from the connection manager. */
static void node_started(struct node_link *l, struct tokenpool_monitor *m)
{
    struct tokenpool_monitor_state info;
    struct ibv_wc done;
    uint32_t i;
    (void)l;
    (void)tokenpool_monitor_info(m, &info);
    while (ibv_poll_cq(node.cq, 1, &done) > 0)
        if (done.status != IBV_WC_SUCCESS && node.peer[done.wr_id].id && node.peer[done.wr_id].id->qp &&
            node.peer[done.wr_id].id->qp->qp_num == done.qp_num) /* it does not answer, or used a wrong key */
            drop(&node.peer[done.wr_id]);
    for (i = 0; i < node_options.clients; i++) {
        struct peer *p = &node.peer[i];
        struct ibv_sge s = {(uintptr_t)&info.epoch, sizeof info.epoch, 0};
        struct ibv_send_wr w = {.wr_id = i,
                                .sg_list = &s,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
                           *bad;
        p->joined = p->joined || !node.joined; /* node_monitor joined all */
        admit(m, i);
        if (p->connected && ibv_post_send(p->id->qp, &w, &bad) != 0 && !p->warned) {
            p->warned = true;
            tool_warn("client %u takes no messages", i);
        }
    }
    node.joined = true;
}

static void *loop_thread(void *arg)
{
    (void)arg;
    node.looped = connect_to(&node.loop, node.address, node.port, LOOPBACK, node.secret);
    return NULL;
}

static void listen_here(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)node.port)};
    struct ibv_device_attr device;
    if (inet_pton(AF_INET, node.address, &a.sin_addr) != 1)
        tool_die(TOOL_USAGE, "\"%s\" is not an IPv4 address", node.address);
    if (!(node.channel = rdma_create_event_channel()) ||
        rdma_create_id(node.channel, &node.listener, NULL, RDMA_PS_TCP) != 0)
        tool_die(TOOL_FAILED, "no RDMA here (%s); is a device there, and rdma_ucm loaded?", strerror(errno));
    if (rdma_bind_addr(node.listener, (struct sockaddr *)&a) != 0 || !node.listener->verbs ||
        rdma_listen(node.listener, 32) != 0)
        tool_die(TOOL_FAILED, "no RDMA device has the address %s (%s)", node.address, strerror(errno));
    if (ibv_query_device(node.listener->verbs, &device) != 0 || device.atomic_cap == IBV_ATOMIC_NONE)
        tool_die(TOOL_FAILED, "device %s has no atomics", ibv_get_device_name(node.listener->verbs->device));
    printf("device %s, atomic_cap %s: the monitor uses loopback atomics\n",
           ibv_get_device_name(node.listener->verbs->device),
           device.atomic_cap == IBV_ATOMIC_HCA ? "ATOMIC_HCA (among RDMA atomics only)"
                                               : "ATOMIC_GLOB (with the CPU too)");
    fflush(stdout);
}

static int serve(uint32_t dead, uint64_t dead_at)
{
    struct node_setup *s = &node_options;
    pthread_t thread;
    struct node_verdict v;
    uint64_t until_ns;
    bool ok;
    node.region = (char *)tool_alloc_aligned((size_t)node_round(node_bytes(s)), NODE_PAGE);
    node_fill(s, node.region);
    listen_here();
    if (getrandom(&node.secret, sizeof node.secret, 0) != (ssize_t)sizeof node.secret)
        tool_die(TOOL_FAILED, "no random numbers: %s", strerror(errno));
    if (pthread_create(&thread, NULL, loop_thread, NULL) != 0)
        tool_die(TOOL_FAILED, "thread: %s", strerror(errno));
    until_ns = tool_now_ns() + 2 * PATIENCE_NS;
    while (!node.peer[LOOPBACK].connected && !stop_asked())
        if (!serve_events(100) || tool_now_ns() > until_ns)
            tool_die(TOOL_FAILED, "the data node cannot be reached by itself");
    pthread_join(thread, NULL);
    if (!node.looped)
        return TOOL_FAILED;
    node.link.op = node_op;
    node.link.idle = serve_idle;
    node.link.started = node_started;
    ok = node_bare(&node.link, s, node.region, &node.log) && node_monitor(&node.link, s, node.region, &node.log, false);
    node_set_phase(s, node.region, NODE_STOP); /* clients then write their last results and leave */
    until_ns = tool_now_ns() + QOS_NS_PER_S;
    while (tool_now_ns() < until_ns)
        serve_idle(&node.link, tool_now_ns() + 5000000);
    v = node_report(s, node.region, &node.log, node_json, node_figures, "tokenpool_verbs");
    if (dead < s->clients && dead_at + 2 <= node.log.periods) {
        uint64_t before = node.log.of[dead_at].reserved, after = node.log.of[dead_at + 2].reserved;
        printf("reserved in period %" PRIu64 ": %" PRIu64 ", two later: %" PRIu64 "\n", dead_at, before, after);
        ok = ok && before - after == node_share(&node.log, s->reserve[dead]);
    }
    if (stop_asked())
        return TOOL_STOPPED;
    return node_status(&v, ok);
}

static int run_client(const char *address, uint64_t port, uint32_t id)
{
    static struct connection c = {
        .link = {.op = verbs_op, .read = verbs_read, .hint = verbs_hint, .lost = verbs_lost, .idle = verbs_idle}};
    struct ibv_send_wr w[CHAIN];
    node_self = id;
    if (!connect_to(&c, address, port, id, 0))
        return TOOL_FAILED;
    node_options.clients = c.to.clients;
    node_options.period_ns = c.to.period_ns;
    node_options.batch = c.to.batch;
    node_options.flags = c.to.flags;
    node_options.table_bytes = c.to.table_bytes;
    if (c.to.clients > NODE_CLIENTS_MAX || id >= c.to.clients)
        tool_die(TOOL_FAILED, "the data node speaks another version");
    node_client(&c.link, &node_options, id);
    if (!post_chain(&c, w, 0))
        return TOOL_FAILED;
    rdma_disconnect(c.id);
    return stop_asked() ? TOOL_STOPPED : TOOL_OK;
}

int main(int argc, char **argv)
{
    static bool is_server;
    static uint64_t port = 7471, id, kill_client = UINT64_MAX, kill_at = 4;
    static const char *address;
    const struct opt opts[] = {
        {"serve", OPT_FLAG, &is_server, NULL, "be the data node, at --address", NULL},
        {"address", OPT_TEXT, &address, "IPV4", "of the data node's RDMA device", NULL},
        {"port", OPT_COUNT, &port, "N", "default 7471", NULL},
        {"id", OPT_COUNT, &id, "N", "client: which one, from 0", NULL},
        {"kill-client", OPT_COUNT, &kill_client, "N", "data node: expect this client to be killed", NULL},
        {"kill-at", OPT_COUNT, &kill_at, "PERIOD", "in this period; default 4", NULL},
        NODE_OPTIONS,
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    int i = opt_parse(argc, argv, opts, "Clients read 4 KiB records of a data node by RDMA; tokens decide how many.",
                      "tokenpool_verbs --serve --address 10.9.0.1\ntokenpool_verbs --address 10.9.0.1 --id 0\n");
    if (i < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[i]);
    if (!address)
        tool_die(TOOL_USAGE, "--address is missing; see --help");
    stop_on_signals();
    if (!is_server)
        return run_client(address, port, (uint32_t)qos_min(id, UINT32_MAX));
    node_check_options();
    node.address = address;
    node.port = port;
    return serve((uint32_t)qos_min(kill_client, UINT32_MAX), kill_at);
}
