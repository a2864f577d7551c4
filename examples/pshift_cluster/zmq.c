// Transport: ZeroMQ between processes that start, die and come back in any order.
//
// A node has a DEALER to each controller; a controller has one ROUTER. They reconnect by themselves. Both sides have
// CURVE keys. A node talks only to controllers whose public keys it has. A controller admits only nodes whose keys are
// in its directory (ZAP). It identifies a sender by the key, not by the message. It answers on the connection that
// brought the newest message of that key, so no node gets another's messages by taking its name.
//
// Limits for a peer with a key: a message has at most INBOX_BYTES, and at most LOOK_MESSAGES are taken per poll.
// (libzmq keeps the parts of a message until the last one arrives, without a bound: so a host with a key is trusted
// not to send endless parts.)
//
// A link that is down or slow holds LINK_MESSAGES messages. Then the oldest is dropped: the newest is more useful.
#include "cluster.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define LINK_MESSAGES 8
#define HEAD_BYTES 8           /* tag and zero, little-endian */
#define INBOX_BYTES (1u << 20) /* more than 4,096 buckets */
#define LOOK_MESSAGES 64
#define NAME_BYTES 255 /* of a connection, by ZMTP at most */
#define KEY_TEXT 41    /* Z85, with its end */

struct parcel {
    size_t bytes;
    uint8_t *data;
};
struct link { /* messages to be sent to one rank */
    struct parcel parcel[LINK_MESSAGES];
    uint32_t first, count;
    uint8_t name[NAME_BYTES]; /* router: of the connection */
    size_t name_bytes;        /* 0: it has sent nothing yet */
};

static void *context, *zap, *router, *dealer[CONTROLLERS_MAX];
static uint32_t dealers, next_dealer, links;
static struct link *link_of; /* [links] */
static uint8_t (*node_key)[32];
static uint64_t inbox[INBOX_BYTES / 8];
static char address[CONTROLLERS_MAX][128];

static void must(int result, const char *what)
{
    if (result < 0)
        tool_die(TOOL_FAILED, "%s: %s", what, zmq_strerror(errno));
}

/* ---- keys ---------------------------------------------------------------------------------------------------- */

static void key_path(char *path, size_t size, const char *who, uint64_t number, const char *half)
{
    snprintf(path, size, "%s/%s-%" PRIu64 ".%s", settings.keys, who, number, half);
}

static void read_key(char key[KEY_TEXT], const char *who, uint64_t number, const char *half)
{
    char path[512];
    FILE *f;
    key_path(path, sizeof path, who, number, half);
    f = fopen(path, "r");
    if (!f || fread(key, 1, KEY_TEXT - 1, f) != KEY_TEXT - 1)
        tool_die(TOOL_FAILED, "%s: no key; pshift_cluster keys makes them", path);
    key[KEY_TEXT - 1] = 0;
    fclose(f);
}

static void write_key(const char *key, const char *who, uint64_t number, const char *half, mode_t mode)
{
    char path[512];
    FILE *f;
    mode_t old = umask((mode_t)~mode & 0777);
    key_path(path, sizeof path, who, number, half);
    f = fopen(path, "w");
    umask(old);
    if (!f || fputs(key, f) < 0 || fclose(f) != 0)
        tool_die(TOOL_FAILED, "%s: %s", path, strerror(errno));
}

static void make_pair(const char *who, uint64_t number)
{
    char public_key[KEY_TEXT], secret_key[KEY_TEXT];
    must(zmq_curve_keypair(public_key, secret_key), "libzmq makes no keys");
    write_key(public_key, who, number, "public", 0644);
    write_key(secret_key, who, number, "secret", 0600);
}

static uint32_t split_addresses(void)
{
    const char *at = settings.controllers;
    uint32_t n = 0;
    while (at && *at) {
        size_t length = strcspn(at, ",");
        if (n == CONTROLLERS_MAX || length >= sizeof address[0])
            tool_die(TOOL_USAGE, "--controllers: at most %d addresses", CONTROLLERS_MAX);
        snprintf(address[n++], sizeof address[0], "tcp://%.*s", (int)length, at);
        at += length + (at[length] == ',');
    }
    return n;
}

int zmq_make_keys(void)
{
    uint32_t n = split_addresses(), k;
    if (!plot_mkdir(settings.keys))
        tool_die(TOOL_FAILED, "%s: cannot be created", settings.keys);
    for (k = 1; k <= n; k++)
        make_pair("controller", k);
    for (k = 1; k <= settings.nodes; k++)
        make_pair("node", k);
    printf("keys of %u controllers and %u nodes are in %s; give each process its own secret and the public ones\n", n,
           settings.nodes, settings.keys);
    return TOOL_OK;
}

/* Decides who may connect: a node whose key is known. From then on its number is its name. */
static void answer_zap(void)
{
    char frame[8][256], user[24] = "";
    int size[8] = {0}, n = 0, more = 1;
    uint32_t k;
    size_t length = sizeof more;
    const char *code = "400", *text = "unknown key";
    while (more && n < 8) {
        size[n] = zmq_recv(zap, frame[n], sizeof frame[n] - 1, n == 0 ? ZMQ_DONTWAIT : 0);
        if (size[n] < 0)
            return;
        must(zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &length), "ZAP");
        size[n] = (int)qos_min((uint64_t)size[n], sizeof frame[n] - 1);
        n++;
    }
    for (k = 0; n >= 7 && size[6] == 32 && k < settings.nodes; k++)
        if (memcmp(frame[6], node_key[k], 32) == 0) {
            code = "200";
            text = "OK";
            snprintf(user, sizeof user, "%u", k + 1);
        }
    must(zmq_send(zap, "1.0", 3, ZMQ_SNDMORE), "ZAP");
    must(zmq_send(zap, frame[1], (size_t)qos_max(0, (uint64_t)size[1]), ZMQ_SNDMORE), "ZAP");
    must(zmq_send(zap, code, 3, ZMQ_SNDMORE), "ZAP");
    must(zmq_send(zap, text, strlen(text), ZMQ_SNDMORE), "ZAP");
    must(zmq_send(zap, user, strlen(user), ZMQ_SNDMORE), "ZAP");
    must(zmq_send(zap, "", 0, 0), "ZAP");
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

/* Passes one message to the library. False: the link is down, full, or not known yet. */
static bool hand_over(uint32_t to, const struct parcel *p)
{
    const struct link *l = &link_of[to];
    if (!router)
        return zmq_send(dealer[to], p->data, p->bytes, ZMQ_DONTWAIT) >= 0;
    if (l->name_bytes == 0 || zmq_send(router, l->name, l->name_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
        return false;
    return zmq_send(router, p->data, p->bytes, ZMQ_DONTWAIT) >= 0;
}

static void drop_oldest(struct link *l)
{
    free(l->parcel[l->first].data);
    l->first = (l->first + 1) % LINK_MESSAGES;
    l->count--;
}

static void push(uint32_t to)
{
    struct link *l = &link_of[to];
    while (l->count && hand_over(to, &l->parcel[l->first]))
        drop_oldest(l);
}

static void zmq_put(int rank, int tag, const void *data, size_t bytes)
{
    uint32_t to = (uint32_t)(router ? rank - 1 : rank), k;
    struct link *l;
    struct parcel *p;
    if (to >= links)
        return;
    l = &link_of[to];
    if (l->count == LINK_MESSAGES)
        drop_oldest(l);
    p = &l->parcel[(l->first + l->count++) % LINK_MESSAGES];
    p->bytes = HEAD_BYTES + bytes;
    p->data = tool_alloc(p->bytes);
    for (k = 0; k < 4; k++)
        p->data[k] = (uint8_t)((uint32_t)tag >> 8 * k);
    if (bytes)
        memcpy(p->data + HEAD_BYTES, data, bytes);
    push(to);
}

static void zmq_push_all(void)
{
    uint32_t k;
    for (k = 0; k < links; k++)
        push(k);
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

/* One message; false: there is none, or it is not in our format. */
static bool unpack(struct mail *m, const uint8_t *data, size_t bytes, int rank)
{
    if (bytes < HEAD_BYTES || bytes - HEAD_BYTES > sizeof inbox)
        return false;
    m->rank = rank;
    m->tag = data[0] | data[1] << 8 | data[2] << 16;
    m->bytes = bytes - HEAD_BYTES;
    memcpy(inbox, data + HEAD_BYTES, m->bytes); /* aligned */
    m->data = inbox;
    return true;
}

/* The next part of a message from the socket; the caller closes it. */
static bool receive(void *socket, zmq_msg_t *part, int flags)
{
    zmq_msg_init(part);
    if (zmq_msg_recv(part, socket, flags) >= 0)
        return true;
    zmq_msg_close(part);
    return false;
}

/* One message of two parts, the connection's name and ours. The key identifies the sender: `user` is its number. */
static bool from_node(struct mail *m, zmq_msg_t *name, zmq_msg_t *body)
{
    const char *user = zmq_msg_gets(body, "User-Id");
    const long node = user ? strtol(user, NULL, 10) : 0;
    struct link *l;
    if (node < 1 || (unsigned long)node > links || zmq_msg_size(name) > NAME_BYTES || zmq_msg_more(body) ||
        !unpack(m, zmq_msg_data(body), zmq_msg_size(body), (int)node))
        return false;
    l = &link_of[node - 1];
    l->name_bytes = zmq_msg_size(name);
    memcpy(l->name, zmq_msg_data(name), l->name_bytes);
    return true;
}

static bool take_from_router(struct mail *m)
{
    zmq_msg_t name, body;
    uint32_t looks;
    bool got = false;
    for (looks = 0; !got && looks < LOOK_MESSAGES && receive(router, &name, ZMQ_DONTWAIT); looks++) {
        bool more = zmq_msg_more(&name) && receive(router, &body, 0);
        if (more) {
            got = from_node(m, &name, &body);
            while (zmq_msg_more(&body)) { /* too many parts: not our format */
                zmq_msg_close(&body);
                if (!receive(router, &body, 0))
                    break;
            }
            zmq_msg_close(&body);
        }
        zmq_msg_close(&name);
    }
    return got;
}

static bool zmq_take(struct mail *m)
{
    uint32_t k, looks;
    zmq_msg_t body;
    zmq_push_all();
    if (router) {
        answer_zap();
        return take_from_router(m);
    }
    for (k = 0; k < dealers; k++) {
        uint32_t from = next_dealer++ % dealers;
        for (looks = 0; looks < LOOK_MESSAGES && receive(dealer[from], &body, ZMQ_DONTWAIT); looks++) {
            bool got = !zmq_msg_more(&body) && unpack(m, zmq_msg_data(&body), zmq_msg_size(&body), (int)from);
            zmq_msg_close(&body);
            if (got)
                return true;
        }
    }
    return false;
}

static const struct transport zeromq = {zmq_put, zmq_take, zmq_push_all};

/* ---- opening ------------------------------------------------------------------------------------------------- */

static void set(void *socket, int option, int value)
{
    must(zmq_setsockopt(socket, option, &value, sizeof value), "ZeroMQ");
}

static void *open_socket(int type)
{
    void *socket = zmq_socket(context, type);
    const int64_t longest = HEAD_BYTES + INBOX_BYTES; /* a peer that sends more is cut off */
    if (!socket)
        tool_die(TOOL_FAILED, "ZeroMQ: %s", zmq_strerror(errno));
    set(socket, ZMQ_LINGER, 0);
    must(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest), "ZeroMQ");
    set(socket, ZMQ_SNDHWM, 4);
    set(socket, ZMQ_RCVHWM, 4 * (int)settings.nodes + 16);
    set(socket, ZMQ_HEARTBEAT_IVL, 200);
    set(socket, ZMQ_HEARTBEAT_TIMEOUT, 1000);
    set(socket, ZMQ_HEARTBEAT_TTL, 1000);
    set(socket, ZMQ_HANDSHAKE_IVL, 1000);
    set(socket, ZMQ_CONNECT_TIMEOUT, 1000);
    set(socket, ZMQ_RECONNECT_IVL, 50);
    set(socket, ZMQ_RECONNECT_IVL_MAX, 200);
    return socket;
}

static void open_links(uint32_t n)
{
    if (!zmq_has("curve"))
        tool_die(TOOL_FAILED, "this libzmq knows no CURVE");
    transport = &zeromq;
    links = n;
    link_of = tool_alloc(n * sizeof *link_of);
    memset(link_of, 0, n * sizeof *link_of);
    context = zmq_ctx_new();
}

void zmq_open_node(void)
{
    char public_key[KEY_TEXT], secret_key[KEY_TEXT], server_key[KEY_TEXT];
    uint32_t k;
    dealers = split_addresses();
    open_links(dealers);
    read_key(public_key, "node", settings.number, "public");
    read_key(secret_key, "node", settings.number, "secret");
    for (k = 0; k < dealers; k++) {
        read_key(server_key, "controller", k + 1, "public");
        dealer[k] = open_socket(ZMQ_DEALER);
        set(dealer[k], ZMQ_IMMEDIATE, 1); /* nothing is queued for a link that is down */
        must(zmq_setsockopt(dealer[k], ZMQ_CURVE_PUBLICKEY, public_key, KEY_TEXT), "the node's public key");
        must(zmq_setsockopt(dealer[k], ZMQ_CURVE_SECRETKEY, secret_key, KEY_TEXT), "the node's secret key");
        must(zmq_setsockopt(dealer[k], ZMQ_CURVE_SERVERKEY, server_key, KEY_TEXT), "the controller's public key");
        must(zmq_connect(dealer[k], address[k]), address[k]);
    }
}

void zmq_open_controller(void)
{
    char key[KEY_TEXT];
    uint32_t k;
    if (settings.number > split_addresses())
        tool_die(TOOL_USAGE, "--controllers: it names no controller %" PRIu64, settings.number);
    open_links(settings.nodes);
    node_key = tool_alloc(settings.nodes * sizeof *node_key);
    for (k = 0; k < settings.nodes; k++) {
        read_key(key, "node", k + 1, "public");
        if (!zmq_z85_decode(node_key[k], key))
            tool_die(TOOL_FAILED, "the public key of node %u is damaged", k + 1);
    }
    zap = open_socket(ZMQ_REP);
    must(zmq_bind(zap, "inproc://zeromq.zap.01"), "ZAP");
    router = open_socket(ZMQ_ROUTER);
    set(router, ZMQ_ROUTER_MANDATORY, 1);
    set(router, ZMQ_CURVE_SERVER, 1);
    read_key(key, "controller", settings.number, "secret");
    must(zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY, key, KEY_TEXT), "the controller's secret key");
    must(zmq_setsockopt(router, ZMQ_ZAP_DOMAIN, "pshift", 6), "ZeroMQ");
    must(zmq_bind(router, address[settings.number - 1]), address[settings.number - 1]);
}
