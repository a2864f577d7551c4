// ZeroMQ between processes that start, die and come back in any order.
//
// A node has a DEALER to each controller; a controller has one ROUTER. They reconnect by themselves. Both sides have
// CURVE keys. A node talks only to controllers whose public keys it was given. A controller admits only nodes whose keys it was
// given (ZAP). It identifies a sender by the key, not by the message, and answers on the connection that brought the newest
// message of that key, so no node gets another's messages by taking its name.
//
// Limits for a peer with a key: a message has at most INBOX_BYTES, and at most LOOK_MESSAGES are taken per poll.
#include "links.h"
#include "common.h"
#include "qos.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define LINK_MESSAGES 8
#define HEAD_BYTES 8           /* tag and zero, little-endian */
#define INBOX_BYTES (1u << 20) /* more than 4,096 buckets */
#define LOOK_MESSAGES 64
#define FILES_MIN 64u
#define NAME_BYTES 255 /* of a connection, by ZMTP at most */

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

static void *context, *zap, *router, *dealer[LINKS_CONTROLLERS_MAX];
static uint32_t next_dealer, links;
static struct link *link_of;        /* [links] */
static char (*node_key)[LINKS_KEY]; /* of each node, in Z85; "": nobody may have this number */
static char own_public[LINKS_KEY], own_secret[LINKS_KEY], reached[LINKS_CONTROLLERS_MAX][LINKS_ADDRESS + LINKS_KEY];
static uint64_t inbox[INBOX_BYTES / 8];

static void must(int result, const char *what)
{
    if (result < 0)
        tool_die(TOOL_FAILED, "%s: %s", what, zmq_strerror(errno));
}

/* ---- who may connect ------------------------------------------------------------------------------------------- */

static uint32_t number_of(const char *key)
{
    uint32_t k = 0;
    while (k < links && strcmp(node_key[k], key) != 0)
        k++;
    return k;
}

/* Decides who may connect: a node whose key is known. From then on the key is its name: numbers may change hands. */
static void answer_zap(void)
{
    char frame[8][256], user[LINKS_KEY] = "";
    int size[8] = {0}, n = 0, more = 1;
    size_t length = sizeof more;
    /* A temporary failure, as the key may come: then libzmq tells the node nothing and it connects again. At 400 it often
     * does not (libzmq's issue 3519), so one that was sooner than its controller to read its own key stayed silent. */
    const char *code = "300", *text = "unknown key";
    while (more && n < 8) {
        size[n] = zmq_recv(zap, frame[n], sizeof frame[n] - 1, n == 0 ? ZMQ_DONTWAIT : 0);
        if (size[n] < 0)
            return;
        must(zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &length), "ZAP");
        size[n] = (int)qos_min((uint64_t)size[n], sizeof frame[n] - 1);
        n++;
    }
    if (n >= 7 && size[6] == 32 && zmq_z85_encode(user, (const uint8_t *)frame[6], 32) && number_of(user) < links) {
        code = "200";
        text = "OK";
    } else {
        user[0] = 0;
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

void links_send(uint32_t to, int tag, const void *data, size_t bytes)
{
    uint32_t k;
    struct link *l;
    struct parcel *p;
    if (to >= links || (!router && !dealer[to]))
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

void links_push(void)
{
    uint32_t k;
    for (k = 0; k < links; k++)
        push(k);
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

/* One message; false: there is none, or it is not in our format. */
static bool unpack(struct links_mail *m, const uint8_t *data, size_t bytes, uint32_t from)
{
    if (bytes < HEAD_BYTES || bytes - HEAD_BYTES > sizeof inbox)
        return false;
    m->from = from;
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
static bool from_node(struct links_mail *m, zmq_msg_t *name, zmq_msg_t *body)
{
    const char *user = zmq_msg_gets(body, "User-Id");
    const uint32_t node = user && *user ? number_of(user) : links;
    struct link *l;
    if (node >= links || zmq_msg_size(name) > NAME_BYTES || zmq_msg_more(body) ||
        !unpack(m, zmq_msg_data(body), zmq_msg_size(body), node))
        return false;
    l = &link_of[node];
    l->name_bytes = zmq_msg_size(name);
    memcpy(l->name, zmq_msg_data(name), l->name_bytes);
    return true;
}

static bool take_from_router(struct links_mail *m)
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

bool links_take(struct links_mail *m)
{
    uint32_t k, looks;
    zmq_msg_t body;
    links_push();
    if (router) {
        answer_zap();
        return take_from_router(m);
    }
    for (k = 0; k < LINKS_CONTROLLERS_MAX; k++) {
        uint32_t from = next_dealer++ % LINKS_CONTROLLERS_MAX;
        for (looks = 0; dealer[from] && looks < LOOK_MESSAGES && receive(dealer[from], &body, ZMQ_DONTWAIT); looks++) {
            bool got = !zmq_msg_more(&body) && unpack(m, zmq_msg_data(&body), zmq_msg_size(&body), from);
            zmq_msg_close(&body);
            if (got)
                return true;
        }
    }
    return false;
}

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
    set(socket, ZMQ_RCVHWM, 4 * (int)links + 16);
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
    struct rlimit files;
    if (!zmq_has("curve"))
        tool_die(TOOL_FAILED, "this libzmq knows no CURVE");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_MIN) /* libzmq would abort */
        tool_die(TOOL_FAILED, "%u open files are too few: ulimit -n %u", (unsigned)files.rlim_cur, FILES_MIN);
    links = n;
    link_of = tool_alloc(n * sizeof *link_of);
    context = zmq_ctx_new();
}

void links_join(const char *public_key, const char *secret_key)
{
    open_links(LINKS_CONTROLLERS_MAX);
    snprintf(own_public, sizeof own_public, "%s", public_key);
    snprintf(own_secret, sizeof own_secret, "%s", secret_key);
}

bool links_reach(uint32_t k, const char *address, const char *key)
{
    char wanted[sizeof reached[0]], url[LINKS_ADDRESS + 8];
    snprintf(wanted, sizeof wanted, "%s %s", address, key);
    if (strcmp(wanted, reached[k]) == 0)
        return true;
    memcpy(reached[k], wanted, sizeof wanted);
    if (dealer[k])
        zmq_close(dealer[k]);
    dealer[k] = NULL;
    while (link_of[k].count)
        drop_oldest(&link_of[k]);
    if (!*address)
        return true;
    dealer[k] = open_socket(ZMQ_DEALER);
    set(dealer[k], ZMQ_IMMEDIATE, 1); /* nothing is queued for a link that is down */
    must(zmq_setsockopt(dealer[k], ZMQ_CURVE_PUBLICKEY, own_public, LINKS_KEY), "the node's public key");
    must(zmq_setsockopt(dealer[k], ZMQ_CURVE_SECRETKEY, own_secret, LINKS_KEY), "the node's secret key");
    must(zmq_setsockopt(dealer[k], ZMQ_CURVE_SERVERKEY, key, LINKS_KEY), "the controller's public key");
    snprintf(url, sizeof url, "tcp://%s", address);
    if (zmq_connect(dealer[k], url) == 0)
        return true;
    zmq_close(dealer[k]);
    dealer[k] = NULL;
    return false;
}

void links_admit(uint32_t number, const char *key)
{
    if (strcmp(node_key[number], key) == 0)
        return;
    memcpy(node_key[number], key, strlen(key) + 1);
    link_of[number].name_bytes = 0; /* its new owner has sent nothing yet */
}

void links_serve(const char *address, const char *secret_key, uint32_t nodes)
{
    char url[LINKS_ADDRESS + 8];
    open_links(nodes);
    node_key = tool_alloc(nodes * sizeof *node_key);
    zap = open_socket(ZMQ_REP);
    must(zmq_bind(zap, "inproc://zeromq.zap.01"), "ZAP");
    router = open_socket(ZMQ_ROUTER);
    set(router, ZMQ_ROUTER_MANDATORY, 1);
    set(router, ZMQ_CURVE_SERVER, 1);
    must(zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY, secret_key, LINKS_KEY), "the controller's secret key");
    must(zmq_setsockopt(router, ZMQ_ZAP_DOMAIN, "pshift", 6), "ZeroMQ");
    snprintf(url, sizeof url, "tcp://%s", address);
    must(zmq_bind(router, url), url);
}

bool links_is_key(const char *key)
{
    uint8_t bytes[32];
    return strlen(key) == LINKS_KEY - 1 && zmq_z85_decode(bytes, key) != NULL;
}

/* ---- keys in files ---------------------------------------------------------------------------------------------- */

static void key_path(char *path, size_t size, const char *dir, const char *name, const char *half)
{
    snprintf(path, size, "%s/%s.%s", dir, name, half);
}

void links_read_key(char key[LINKS_KEY], const char *dir, const char *name, const char *half)
{
    char path[512];
    FILE *f;
    key_path(path, sizeof path, dir, name, half);
    f = fopen(path, "r");
    if (!f && errno != ENOENT)
        tool_die(TOOL_FAILED, "%s: %s", path, strerror(errno));
    if (!f || fread(key, 1, LINKS_KEY - 1, f) != LINKS_KEY - 1)
        tool_die(TOOL_FAILED, "%s: no key; pshift_cluster keys makes them", path);
    key[LINKS_KEY - 1] = 0;
    fclose(f);
    if (!links_is_key(key))
        tool_die(TOOL_FAILED, "%s: this key is damaged", path);
}

/* Never overwrites a key. */
static void write_key(const char *key, const char *dir, const char *name, const char *half, mode_t mode)
{
    char path[512];
    FILE *f;
    mode_t old = umask((mode_t)~mode & 0777);
    key_path(path, sizeof path, dir, name, half);
    f = fopen(path, "wx");
    umask(old);
    if (!f || fputs(key, f) < 0 || fclose(f) != 0)
        tool_die(TOOL_FAILED, "%s: %s", path, strerror(errno));
}

bool links_make_keys(const char *dir, const char *name)
{
    char public_key[LINKS_KEY], secret_key[LINKS_KEY], path[512];
    bool there;
    key_path(path, sizeof path, dir, name, "secret");
    there = access(path, F_OK) == 0;
    key_path(path, sizeof path, dir, name, "public");
    if (there || access(path, F_OK) == 0)
        return false;
    must(zmq_curve_keypair(public_key, secret_key), "libzmq makes no keys");
    write_key(public_key, dir, name, "public", 0644);
    write_key(secret_key, dir, name, "secret", 0600);
    return true;
}
