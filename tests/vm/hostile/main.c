/* A client of tokenpool_verbs that breaks the rules: hostile ADDRESS PORT GUESSES
 *
 * It connects as two clients. Over the connection of client 0 it tries READ, WRITE and FETCH_AND_ADD with its own keys
 * beyond their regions and rights, with the keys of client 1, and with guessed ones. A device ends a connection at the
 * first wrong key, so each try has its own. Exit 0: a client's needed operations were done, and all others were
 * refused. */
#define _GNU_SOURCE
#include "examples/tokenpool_verbs/wire.h"
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

struct session {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct wire_welcome to;
    char refusal[WIRE_REFUSAL_BYTES + 1];
};
static const char *address;
static uint64_t port;
static uint64_t scratch[NODE_PAGE / 8] __attribute__((aligned(4096)));
static unsigned tries, breaches, denied;

static bool event(struct session *s, enum rdma_cm_event_type want)
{
    struct pollfd f = {.fd = s->channel->fd, .events = POLLIN};
    struct rdma_cm_event *e;
    bool ok;
    if (poll(&f, 1, 3000) <= 0 || rdma_get_cm_event(s->channel, &e) != 0)
        return false;
    ok = e->event == want;
    memset(s->refusal, 0, sizeof s->refusal);
    if (e->event == RDMA_CM_EVENT_REJECTED && e->param.conn.private_data)
        memcpy(s->refusal, e->param.conn.private_data, qos_min(e->param.conn.private_data_len, sizeof s->refusal - 1));
    if (ok && want == RDMA_CM_EVENT_ESTABLISHED)
        memcpy(&s->to, e->param.conn.private_data, sizeof s->to);
    rdma_ack_cm_event(e);
    return ok;
}

static void leave(struct session *s)
{
    if (s->id && s->id->qp) {
        (void)rdma_disconnect(s->id);
        rdma_destroy_qp(s->id);
    }
    if (s->mr)
        ibv_dereg_mr(s->mr);
    if (s->cq)
        ibv_destroy_cq(s->cq);
    if (s->pd)
        ibv_dealloc_pd(s->pd);
    if (s->id)
        rdma_destroy_id(s->id);
    if (s->channel)
        rdma_destroy_event_channel(s->channel);
    memset(s, 0, sizeof *s);
}

static bool join(struct session *s, uint32_t who, uint32_t version, uint8_t bytes)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct wire_request request = {0, who, version};
    struct rdma_conn_param param = {
        .private_data = &request, .private_data_len = bytes, .initiator_depth = 16, .retry_count = 3};
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    memset(s, 0, sizeof *s);
    inet_pton(AF_INET, address, &a.sin_addr);
    if (!(s->channel = rdma_create_event_channel()) || rdma_create_id(s->channel, &s->id, NULL, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&a, 1000) != 0 || !event(s, RDMA_CM_EVENT_ADDR_RESOLVED) ||
        rdma_resolve_route(s->id, 1000) != 0 || !event(s, RDMA_CM_EVENT_ROUTE_RESOLVED) ||
        !(s->pd = ibv_alloc_pd(s->id->verbs)) || !(s->cq = ibv_create_cq(s->id->verbs, 8, NULL, NULL, 0)) ||
        !(s->mr = ibv_reg_mr(s->pd, scratch, sizeof scratch, IBV_ACCESS_LOCAL_WRITE)))
        return false;
    qp.send_cq = qp.recv_cq = s->cq;
    return rdma_create_qp(s->id, s->pd, &qp) == 0 && rdma_connect(s->id, &param) == 0 &&
           event(s, RDMA_CM_EVENT_ESTABLISHED);
}

static void join_again(struct session *s, uint32_t who)
{
    unsigned i;
    for (i = 0; i < 100; i++) { /* the data node may not have noticed yet that the last client is gone */
        if (join(s, who, WIRE_VERSION, sizeof(struct wire_request)))
            return;
        leave(s);
        usleep(10000);
    }
    fprintf(stderr, "hostile: it cannot come back\n");
    exit(2);
}

static bool perform(struct session *s, enum ibv_wr_opcode opcode, uint64_t at, uint32_t key)
{
    struct ibv_sge part = {(uintptr_t)scratch, 8, s->mr->lkey};
    struct ibv_send_wr w = {.sg_list = &part, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc done;
    int n = 0;
    time_t until = time(NULL) + 4;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        w.wr.atomic.remote_addr = at;
        w.wr.atomic.rkey = key;
    } else {
        w.wr.rdma.remote_addr = at;
        w.wr.rdma.rkey = key;
    }
    scratch[0] = 0;
    if (ibv_post_send(s->id->qp, &w, &bad) != 0)
        return false;
    while (n == 0 && time(NULL) < until)
        n = ibv_poll_cq(s->cq, 1, &done);
    if (n == 0) {
        fprintf(stderr, "hostile: no answer\n");
        exit(2);
    }
    return n > 0 && done.status == IBV_WC_SUCCESS;
}

/* One operation as client 0. expected: a client needs this operation. */
static void attempt(struct session *s, enum ibv_wr_opcode opcode, uint64_t at, uint32_t key, bool expected,
                    const char *what)
{
    bool done = perform(s, opcode, at, key);
    const char *name = opcode == IBV_WR_RDMA_READ ? "READ" : opcode == IBV_WR_RDMA_WRITE ? "WRITE" : "FETCH_AND_ADD";
    tries++;
    if (done && !expected) {
        printf("hostile: BREACH: %s at offset %" PRIu64 " by key %#x: %s\n", name, at - s->to.address, key, what);
        exit(1);
    }
    if (!done && expected) {
        denied++;
        printf("hostile: a client needs this, and is refused: %s: %s\n", name, what);
    }
    if (!done) {
        leave(s);
        join_again(s, 0);
    }
}

static const enum ibv_wr_opcode opcode[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD};
static const int right[] = {IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC};

static void with_own_keys(struct session *s, const struct node_setup *setup)
{
    unsigned i, j, k;
    for (i = 0; i < WIRE_REGIONS; i++) {
        struct wire_region r = wire_region(setup, 0, i), other;
        for (j = 0; j < 3; j++) {
            bool may = r.access == right[j];
            attempt(s, opcode[j], s->to.address + r.offset, s->to.key[i], may, "own region, first word");
            if (!may)
                continue;
            attempt(s, opcode[j], s->to.address + r.offset + r.bytes - 8, s->to.key[i], true, "own region, last word");
            attempt(s, opcode[j], s->to.address + r.offset - 8, s->to.key[i], false, "before its own region");
            attempt(s, opcode[j], s->to.address + r.offset + r.bytes, s->to.key[i], false, "behind its own region");
            for (k = 0; k < WIRE_REGIONS; k++) {
                other = wire_region(setup, 1, k);
                if (k == i && k != WIRE_REPORT && k != WIRE_ROW)
                    continue; /* pool, terms and table are the same for all */
                attempt(s, opcode[j], s->to.address + other.offset, s->to.key[i], false, "another region, own key");
            }
        }
    }
}

/* The keys of client 1, each where it is valid for that client, by any operation. */
static void with_keys_of(struct session *s, const struct node_setup *setup, const struct session *victim)
{
    unsigned i, j;
    for (i = 0; i < WIRE_REGIONS; i++)
        for (j = 0; j < 3; j++)
            attempt(s, opcode[j], s->to.address + wire_region(setup, 1, i).offset, victim->to.key[i], false,
                    "the key of another client");
}

/* A key is the region's number and a byte that changes. Tries the numbers around the known ones, with every kind of
 * operation. */
static void with_guesses(struct session *s, const struct node_setup *setup, const struct session *victim, unsigned n)
{
    struct qos_rng rng;
    unsigned i, j;
    qos_rng_seed(&rng, 1);
    for (i = 0; i < n; i++) {
        uint32_t near = victim->to.key[qos_rng_below(&rng, WIRE_REGIONS)] >> 8;
        uint32_t key = (near + (uint32_t)qos_rng_below(&rng, 9) - 4) << 8 | (uint32_t)qos_rng_below(&rng, 256);
        bool own = false;
        for (j = 0; j < WIRE_REGIONS; j++)
            own = own || key == s->to.key[j];
        if (!own)
            attempt(s, opcode[i % 3], s->to.address + wire_region(setup, 1, i % WIRE_REGIONS).offset, key, false,
                    "a guessed key");
    }
}

static void refused(uint32_t who, uint32_t version, uint8_t bytes, const char *word)
{
    struct session s;
    tries++;
    if (join(&s, who, version, bytes) || !strstr(s.refusal, word)) {
        breaches++;
        printf("hostile: client %u, version %u, %u bytes: let in, or refused without a reason: \"%s\"\n", who, version,
               bytes, s.refusal);
    }
    leave(&s);
}

int main(int argc, char **argv)
{
    static struct session me, victim;
    struct node_setup setup = {0};
    if (argc != 4)
        return 2;
    address = argv[1];
    port = strtoul(argv[2], NULL, 10);
    join_again(&victim, 1);
    join_again(&me, 0);
    setup.clients = me.to.clients;
    setup.table_bytes = me.to.table_bytes;
    refused(0, WIRE_VERSION, sizeof(struct wire_request), "already");
    refused(1, WIRE_VERSION, sizeof(struct wire_request), "already");
    refused(NODE_CLIENTS_MAX, WIRE_VERSION, sizeof(struct wire_request), "clients are"); /* the monitor's connection */
    refused(me.to.clients, WIRE_VERSION, sizeof(struct wire_request), "clients are");
    refused(2, WIRE_VERSION + 1, sizeof(struct wire_request), "version");
    refused(2, WIRE_VERSION, 4, "version");
    with_keys_of(&me, &setup, &victim);
    with_own_keys(&me, &setup);
    with_guesses(&me, &setup, &victim, (unsigned)strtoul(argv[3], NULL, 10));
    if (!perform(&victim, IBV_WR_RDMA_READ, victim.to.address + wire_region(&setup, 1, WIRE_TABLE).offset,
                 victim.to.key[WIRE_TABLE])) {
        denied++;
        printf("hostile: the other client lost its connection\n");
    }
    leave(&me);
    leave(&victim);
    printf("hostile: %u tries, %u let in, %u of a client's own operations refused\n", tries, breaches, denied);
    return breaches || denied ? 1 : 0;
}
