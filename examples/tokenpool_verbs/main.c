/* tokenpool_verbs - Haechi over RDMA verbs: RDMA READ for records, FETCH_AND_ADD for claims, 8-byte RDMA WRITE for reports,
 * SEND to say that a period began. One process is the data node (--serve), each client another (--connect), on any hosts.
 *
 * The monitor reaches the pool word through the device too, by a connection to itself: most devices promise atomicity
 * among RDMA atomics only (ATOMIC_HCA), and a CPU atomic between them would lose claims. */
// links: -lrdmacm -libverbs
// flags: -pthread
#define _GNU_SOURCE
#include "examples/tokenpool_common/node.h"
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>

enum { LOOPBACK_ID = 1000, RECEIVES = 8 };
#define PATIENCE_NS (2 * QOS_NS_PER_S) /* an operation without an answer for so long: the data node is gone */

/* What a client learns when it is accepted: where the region is, and the set-up. */
struct invitation {
    uint64_t address, period_ns, table_bytes;
    uint32_t key, clients, periods, batch, flags, format;
};

struct connection {
    struct node_link link; /* first: a node_link is its connection */
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_cq *sent, *received;
    struct ibv_mr *scratch_key;
    struct invitation to;
    char *scratch; /* an operation's answer, a record, then received messages */
};

static void broken(const char *what)
{
    tool_warn("%s: %s", what, strerror(errno));
}

/* ---- client's side of a connection (the monitor is a client of itself) */

static bool await_event(struct connection *c, enum rdma_cm_event_type want, void *copy, size_t size)
{
    struct pollfd f = {.fd = c->channel->fd, .events = POLLIN};
    struct rdma_cm_event *e;
    bool ok;
    if (poll(&f, 1, 5000) == 0) {
        tool_warn("the data node does not answer");
        return false;
    }
    if (rdma_get_cm_event(c->channel, &e) != 0) {
        broken("connection events");
        return false;
    }
    ok = e->event == want;
    if (!ok)
        tool_warn("the data node does not answer as it should: %s (status %d)", rdma_event_str(e->event), e->status);
    if (ok && copy && e->param.conn.private_data_len >= size)
        memcpy(copy, e->param.conn.private_data, size);
    rdma_ack_cm_event(e);
    return ok;
}

static bool post_receive(struct connection *c, uint32_t slot)
{
    struct ibv_sge s = {(uintptr_t)c->scratch + NODE_RECORD + 64 + 16 * slot, 16, c->scratch_key->lkey};
    struct ibv_recv_wr w = {.wr_id = slot, .sg_list = &s, .num_sge = 1}, *bad;
    return ibv_post_recv(c->id->qp, &w, &bad) == 0;
}

static bool connect_to(struct connection *c, const char *address, uint64_t port, uint32_t who)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct rdma_conn_param param = {.private_data = &who,
                                    .private_data_len = sizeof who,
                                    .responder_resources = 1,
                                    .initiator_depth = 16,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC, .cap = {16, RECEIVES, 1, 1, 0}};
    struct ibv_device_attr device;
    struct ibv_pd *pd;
    uint32_t i;
    if (inet_pton(AF_INET, address, &a.sin_addr) != 1) {
        tool_warn("\"%s\" is not an IPv4 address", address);
        return false;
    }
    if (!(c->channel = rdma_create_event_channel()) || rdma_create_id(c->channel, &c->id, NULL, RDMA_PS_TCP) != 0) {
        tool_warn("no RDMA here (%s); is a device there, and rdma_ucm loaded?", strerror(errno));
        return false;
    }
    if (rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&a, 3000) != 0 ||
        !await_event(c, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0) || rdma_resolve_route(c->id, 3000) != 0 ||
        !await_event(c, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0)) {
        tool_warn("no RDMA device reaches %s", address);
        return false;
    }
    if (ibv_query_device(c->id->verbs, &device) != 0 || device.atomic_cap == IBV_ATOMIC_NONE) {
        tool_warn("device %s has no atomics", ibv_get_device_name(c->id->verbs->device));
        return false;
    }
    c->scratch = (char *)tool_alloc_aligned(2 * NODE_RECORD, NODE_RECORD);
    if (!(pd = ibv_alloc_pd(c->id->verbs)) || !(c->sent = ibv_create_cq(c->id->verbs, 32, NULL, NULL, 0)) ||
        !(c->received = ibv_create_cq(c->id->verbs, RECEIVES, NULL, NULL, 0)) ||
        !(c->scratch_key = ibv_reg_mr(pd, c->scratch, 2 * NODE_RECORD, IBV_ACCESS_LOCAL_WRITE))) {
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
    if (rdma_connect(c->id, &param) != 0 || !await_event(c, RDMA_CM_EVENT_ESTABLISHED, &c->to, sizeof c->to))
        return false;
    if (c->to.format != sizeof c->to) {
        tool_warn("the data node speaks another version");
        return false;
    }
    return true;
}

/* One operation, to its end. */
static bool perform(struct connection *c, enum ibv_wr_opcode opcode, uint64_t offset, uint32_t bytes, uint64_t operand,
                    uint64_t compare)
{
    struct ibv_sge s = {(uintptr_t)c->scratch, bytes, c->scratch_key->lkey};
    struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc done;
    uint64_t until_ns;
    int n;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        w.wr.atomic.remote_addr = c->to.address + offset;
        w.wr.atomic.rkey = c->to.key;
        w.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? operand : compare;
        w.wr.atomic.swap = operand;
    } else {
        w.wr.rdma.remote_addr = c->to.address + offset;
        w.wr.rdma.rkey = c->to.key;
        memcpy(c->scratch, &operand, opcode == IBV_WR_RDMA_WRITE ? 8 : 0);
    }
    errno = ibv_post_send(c->id->qp, &w, &bad);
    if (errno) {
        broken("posting an operation");
        return false;
    }
    until_ns = tool_now_ns() + PATIENCE_NS;
    while ((n = ibv_poll_cq(c->sent, 1, &done)) == 0) {
        sched_yield();
        if (tool_now_ns() > until_ns) {
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

static bool verbs_op(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer)
{
    struct connection *c = (struct connection *)l;
    static const enum ibv_wr_opcode opcode[4] = {[TOKENPOOL_READ] = IBV_WR_RDMA_READ,
                                                 [TOKENPOOL_WRITE] = IBV_WR_RDMA_WRITE,
                                                 [TOKENPOOL_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                 [TOKENPOOL_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP};
    bool atomic_read = op->kind == TOKENPOOL_READ && op->offset_bytes == TOKENPOOL_OFFSET_POOL;
    if (!perform(c, atomic_read ? IBV_WR_ATOMIC_FETCH_AND_ADD : opcode[op->kind], op->offset_bytes, 8, op->operand,
                 op->compare))
        return false;
    memcpy(answer, c->scratch, 8);
    return true;
}

static bool verbs_read(struct node_link *l, uint64_t offset, void *to, uint32_t bytes)
{
    struct connection *c = (struct connection *)l;
    if (!perform(c, IBV_WR_RDMA_READ, offset, bytes, 0, 0))
        return false;
    memcpy(to, c->scratch, bytes);
    return true;
}

/* Did a message say that a period began? */
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
    uint64_t now_ns = tool_now_ns();
    (void)l;
    if (until_ns > now_ns)
        tool_sleep_until_ns(qos_min(until_ns, now_ns + 250000)); /* a message may come */
    else
        sched_yield();
}

/* ---- the data node */

struct peer {
    struct rdma_cm_id *id;
    uint32_t who;
    bool connected, gone, left;
};
static struct {
    struct node_link link; /* first */
    struct connection loop;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_mr *message_key;
    char *messages; /* 16 bytes for each peer */
    void *region;
    struct peer peer[2 * NODE_CLIENTS_MAX];
    uint32_t peers;
    const char *address;
    uint64_t port, announce;
    bool looped;
} node;

static bool accept_peer(struct rdma_cm_event *e)
{
    const struct node_setup *s = &node_options;
    struct invitation in = {.period_ns = s->period_ns,
                            .table_bytes = s->table_bytes,
                            .clients = s->clients,
                            .periods = s->periods,
                            .batch = (uint32_t)s->batch,
                            .flags = s->flags,
                            .format = sizeof in};
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC, .cap = {RECEIVES, 1, 1, 1, 16}};
    struct rdma_conn_param param = {.private_data = &in,
                                    .private_data_len = sizeof in,
                                    .responder_resources = 16,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
    struct peer *p = &node.peer[node.peers];
    uint32_t i;
    if (node.peers == 2 * NODE_CLIENTS_MAX || e->param.conn.private_data_len < sizeof p->who)
        return rdma_reject(e->id, NULL, 0) == 0;
    memcpy(&p->who, e->param.conn.private_data, sizeof p->who);
    for (i = 0; i < node.peers; i++)
        if (node.peer[i].who == p->who &&
            !node.peer[i].gone) { /* two engines on one slot would both spend its tokens */
            tool_warn("client %u is here already: another of this id was refused", p->who);
            return rdma_reject(e->id, NULL, 0) == 0;
        }
    if (!node.pd) { /* one protection domain and one registration for all */
        node.pd = ibv_alloc_pd(e->id->verbs);
        node.cq = ibv_create_cq(e->id->verbs, 256, NULL, NULL, 0);
        node.mr = ibv_reg_mr(node.pd, node.region, (size_t)node_bytes(s),
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_ATOMIC);
        node.message_key = node.pd ? ibv_reg_mr(node.pd, node.messages, NODE_PAGE, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (!node.pd || !node.cq || !node.mr || !node.message_key) {
            broken("registering memory (is ulimit -l large enough?)");
            return false;
        }
    }
    qp.send_cq = qp.recv_cq = node.cq;
    if (rdma_create_qp(e->id, node.pd, &qp) != 0) {
        broken("queue pair");
        return false;
    }
    in.address = (uintptr_t)node.region;
    in.key = node.mr->rkey;
    p->id = e->id;
    node.peers++;
    if (rdma_accept(e->id, &param) != 0) {
        broken("accepting");
        return false;
    }
    return true;
}

static bool serve_events(int timeout_ms)
{
    struct pollfd f = {.fd = node.channel->fd, .events = POLLIN};
    while (poll(&f, 1, timeout_ms) > 0) {
        struct rdma_cm_event *e;
        struct rdma_cm_id *gone = NULL;
        uint32_t i;
        bool ok = true;
        if (rdma_get_cm_event(node.channel, &e) != 0)
            return false;
        if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
            ok = accept_peer(e);
        for (i = 0; i < node.peers; i++) {
            struct peer *p = &node.peer[i];
            if (p->id != e->id)
                continue;
            if (e->event == RDMA_CM_EVENT_ESTABLISHED)
                p->connected = true;
            if (e->event == RDMA_CM_EVENT_DISCONNECTED && !p->gone) {
                p->connected = false;
                p->gone = true;
                gone = p->id;
                if (p->who < node_options.clients)
                    printf("client %u is gone\n", p->who);
            }
        }
        rdma_ack_cm_event(e);
        if (gone)
            rdma_disconnect(gone);
        if (!ok)
            return false;
        timeout_ms = 0;
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

/* The message that a period began, and what the connection manager knows of the dead. */
static void node_started(struct node_link *l, struct tokenpool_monitor *m)
{
    struct ibv_wc done[16];
    uint32_t i;
    struct tokenpool_monitor_state info;
    (void)l;
    (void)tokenpool_monitor_info(m, &info);
    if (info.epoch == node.announce) { /* whoever is to kill a client in this period waits for the line */
        printf("period %" PRIu64 " begins\n", info.epoch);
        fflush(stdout);
    }
    while (ibv_poll_cq(node.cq, 16, done) > 0)
        ;
    for (i = 0; i < node.peers; i++) {
        struct peer *p = &node.peer[i];
        struct ibv_sge s = {(uintptr_t)node.messages + 16 * i, 16, node.message_key->lkey};
        struct ibv_send_wr w = {.sg_list = &s,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
                           *bad;
        if (p->who >= node_options.clients)
            continue;
        if (p->gone && !p->left) { /* from the next period on its reservation is the pool's */
            p->left = true;
            if (tokenpool_monitor_leave(m, p->who) != QOS_OK)
                tool_warn("client %u had left already", p->who);
        }
        if (!p->connected)
            continue;
        memcpy(node.messages + 16 * i, &info.epoch, sizeof info.epoch);
        if (ibv_post_send(p->id->qp, &w, &bad) != 0)
            tool_warn("client %u: no period start sent", p->who);
    }
}

static void *loop_thread(void *arg)
{
    (void)arg;
    node.looped = connect_to(&node.loop, node.address, node.port, LOOPBACK_ID);
    return NULL;
}

static int serve(uint32_t dead, uint64_t dead_at)
{
    struct node_setup *s = &node_options;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)node.port)};
    static struct node_log log;
    struct ibv_device_attr device;
    pthread_t thread;
    struct node_verdict v;
    bool ok;
    size_t bytes = (size_t)node_bytes(s);
    if (inet_pton(AF_INET, node.address, &a.sin_addr) != 1)
        tool_die(TOOL_USAGE, "\"%s\" is not an IPv4 address", node.address);
    node.region = tool_alloc_aligned(bytes, NODE_PAGE);
    node.messages = (char *)tool_alloc_aligned(NODE_PAGE, NODE_PAGE);
    node_fill(s, node.region);
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
    if (pthread_create(&thread, NULL, loop_thread, NULL) != 0)
        tool_die(TOOL_FAILED, "thread: %s", strerror(errno));
    while (!(node.peers > 0 && node.peer[0].connected) && !stop_asked())
        if (!serve_events(100))
            tool_die(TOOL_FAILED, "the data node cannot be reached by itself");
    pthread_join(thread, NULL);
    if (!node.looped)
        return TOOL_FAILED;
    node.link.op = node_op;
    node.link.idle = serve_idle;
    node.link.started = node_started;
    ok = node_bare(&node.link, s, node.region, &log) && node_monitor(&node.link, s, node.region, &log, false);
    { /* the clients see NODE_STOP, write their last results, and leave */
        uint64_t until_ns = tool_now_ns() + QOS_NS_PER_S;
        while (tool_now_ns() < until_ns)
            serve_idle(&node.link, tool_now_ns() + 5000000);
    }
    v = node_report(s, node.region, &log, dead, dead_at, node_json, node_figures, "tokenpool_verbs");
    if (dead < s->clients && dead_at + 2 <= log.periods) {
        uint64_t before = log.of[dead_at].reserved, after = log.of[dead_at + 2].reserved;
        printf("reserved in period %" PRIu64 ": %" PRIu64 ", two later: %" PRIu64 "\n", dead_at, before, after);
        ok = ok && before - after == node_share(&log, s->reserve[dead]);
    }
    if (stop_asked())
        return TOOL_STOPPED;
    return node_status(&v, ok);
}

int main(int argc, char **argv)
{
    static bool is_server, wrong_key;
    static uint64_t port = 7471, id, kill_client = UINT64_MAX, kill_at = 4;
    static const char *address;
    static struct connection c;
    const struct opt opts[] = {
        {"serve", OPT_FLAG, &is_server, NULL, "be the data node, at --address", NULL},
        {"address", OPT_TEXT, &address, "IPV4", "of the data node's RDMA device", NULL},
        {"port", OPT_COUNT, &port, "N", "default 7471", NULL},
        {"id", OPT_COUNT, &id, "N", "client: which one, from 0", NULL},
        {"kill-client", OPT_COUNT, &kill_client, "N", "data node: expect this client to be killed", NULL},
        {"kill-at", OPT_COUNT, &kill_at, "PERIOD", "in this period; default 4", NULL},
        {"wrong-key", OPT_FLAG, &wrong_key, NULL, "client: try a read with a wrong key, and end", NULL},
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
    if (is_server) {
        node_check_options();
        node.address = address;
        node.port = port;
        node.announce = kill_client < node_options.clients ? kill_at : 0;
        return serve((uint32_t)qos_min(kill_client, UINT32_MAX), kill_at);
    }
    if (!connect_to(&c, address, port, (uint32_t)id))
        return TOOL_FAILED;
    if (wrong_key) {
        char record[NODE_RECORD];
        c.to.key ^= 0x55;
        if (verbs_read(&c.link, 0, record, NODE_RECORD))
            tool_die(TOOL_FAILED, "a read with a wrong key was answered");
        rdma_disconnect(c.id);
        return TOOL_FAILED;
    }
    if (id >= c.to.clients || c.to.clients > NODE_CLIENTS_MAX)
        tool_die(TOOL_USAGE, "--id: the data node has %u clients", c.to.clients);
    node_options.clients = c.to.clients;
    node_options.periods = c.to.periods;
    node_options.period_ns = c.to.period_ns;
    node_options.batch = c.to.batch;
    node_options.flags = c.to.flags;
    node_options.table_bytes = c.to.table_bytes;
    c.link.op = verbs_op;
    c.link.read = verbs_read;
    c.link.hint = verbs_hint;
    c.link.idle = verbs_idle;
    node_client(&c.link, &node_options, (uint32_t)id);
    rdma_disconnect(c.id);
    return TOOL_OK;
}
