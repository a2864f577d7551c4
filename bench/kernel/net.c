// Packets of several classes over one link: shaped by Linux's htb, or by htb.h in this process.
//     net tc TREE                 prints the tc commands for the device $DEV
//     net send tc|htb TREE IP S   sends for S seconds, as much as allowed; prints the processor time per packet
//     net receive TREE S          prints a line for each leaf: name, reserved, limit, exact share, received (Mbit/s)
// TREE: nodes "id:parent:rate:limit:name" with commas between them, rates in Mbit/s; the first is the root, parents come
// before their children, a node without children is a leaf and always has packets.
//
// The exact share: each node gives its children their rates, and the remainder of its own share to all of them alike,
// up to their limits, level by level. It is computed here, without htb.h.
#define _GNU_SOURCE
#include "htb.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NODES_MAX 16u
#define PAYLOAD_BYTES 1400u
#define PACKET_BYTES (PAYLOAD_BYTES + 42u) /* with UDP, IP and Ethernet headers, as the kernel counts */
#define PORT 5000u
#define MBIT_BYTES 125000u
/* the smallest burst of the kernel's buckets; else 2 ms of the rate: its timers are punctual */
#define BURST_MIN_BYTES 6000u
#define BURST_NS UINT64_C(20000000) /* this process may wake up this late without loss */
#define WAITING 8u                  /* packets of each leaf in our queues */

struct node {
    double rate, limit, share;
    char name[16];
    uint32_t parent; /* index */
    bool leaf;
};
static struct node node[NODES_MAX];
static uint32_t nodes;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The remainder of a node's share goes to all its children alike; a child at its limit drops out. */
static void share_out(uint32_t group)
{
    double left = node[group].share, each;
    bool open[NODES_MAX];
    uint32_t i, takers;
    for (i = 1; i < nodes; i++) {
        open[i] = node[i].parent == group;
        node[i].share = open[i] ? node[i].rate : node[i].share;
        left -= open[i] ? node[i].rate : 0;
    }
    do {
        takers = 0;
        for (i = 1; i < nodes; i++)
            takers += open[i];
        each = takers ? left / takers : 0;
        for (i = 1; i < nodes; i++) {
            double room = node[i].limit - node[i].share, more = room < each ? room : each;
            if (!open[i])
                continue;
            node[i].share += more;
            left -= more;
            open[i] = room > each;
        }
    } while (takers && left > 1e-9);
    for (i = 1; i < nodes; i++)
        if (node[i].parent == group && !node[i].leaf)
            share_out(i);
}

/* The number at *at, which ends with a ':'. */
static double number(char **at)
{
    char *end;
    double n = strtod(*at, &end);
    if (end == *at || *end != ':' || n < 0) {
        fprintf(stderr, "net: %s: not id:parent:rate:limit:name\n", *at);
        exit(2);
    }
    *at = end + 1;
    return n;
}

static void parse(char *tree)
{
    char *text;
    for (text = strtok(tree, ","); text && nodes < NODES_MAX; text = strtok(NULL, ","), nodes++) {
        uint32_t id = (uint32_t)number(&text);
        node[nodes].parent = (uint32_t)number(&text);
        node[nodes].rate = number(&text);
        node[nodes].limit = number(&text);
        snprintf(node[nodes].name, sizeof node[nodes].name, "%s", text);
        if (id != nodes || (nodes && node[nodes].parent >= nodes)) {
            fprintf(stderr, "net: node %u: ids begin with 0, and parents come first\n", id);
            exit(2);
        }
        node[nodes].leaf = true;
        if (nodes)
            node[node[nodes].parent].leaf = false;
    }
    node[0].share = node[0].rate;
    share_out(0);
}

static void print_tc(void)
{
    uint32_t i;
    uint64_t burst;
    puts("tc qdisc add dev $DEV root handle 1: htb");
    for (i = 0; i < nodes; i++) {
        burst = qos_max((uint64_t)(node[i].limit * MBIT_BYTES / 500), BURST_MIN_BYTES);
        printf("tc class add dev $DEV parent 1:");
        if (i)
            printf("%x", node[i].parent + 1);
        printf(" classid 1:%x htb rate %.0fkbit ceil %.0fkbit burst %" PRIu64 " cburst %" PRIu64 " quantum %u\n", i + 1,
               node[i].rate * 1e3, node[i].limit * 1e3, burst, burst, PACKET_BYTES);
    }
}

static int open_socket(uint32_t leaf, const char *ip)
{
    struct sockaddr_in to;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), priority = (int)(0x10000 + leaf + 1), size = 1 << 21;
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)(PORT + leaf));
    to.sin_addr.s_addr = ip ? inet_addr(ip) : htonl(INADDR_ANY);
    if (!ip)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    else if (setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority) == 0) /* the class of Linux's htb */
        /* its queue is long enough while this process is late */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    if (fd < 0 || (ip ? connect : bind)(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        perror("net: socket");
        exit(1);
    }
    return fd;
}

static uint64_t send_tc(const int *fd, const char *packet, uint64_t end_ns)
{
    struct pollfd ready[NODES_MAX];
    uint64_t sent = 0;
    uint32_t i, k;
    for (i = 0; i < nodes; i++)
        ready[i] = (struct pollfd){fd[i], POLLOUT, 0}; /* -1 is left out */
    while (clock_ns() < end_ns && poll(ready, nodes, 100) >= 0)
        for (i = 0; i < nodes; i++)
            for (k = 0; k < WAITING && (ready[i].revents & POLLOUT); k++) {
                if (send(fd[i], packet, PAYLOAD_BYTES, 0) < 0)
                    break;
                sent++;
            }
    return sent;
}

static void must(enum qos_status status, const char *what)
{
    if (status != QOS_OK) {
        fprintf(stderr, "net: %s: %s\n", what, qos_strerror(status));
        exit(1);
    }
}

static void make_tree(struct htb *tree, uint64_t now_ns)
{
    struct htb_config c;
    uint32_t i;
    void *mem;
    memset(&c, 0, sizeof c);
    c.classes = nodes;
    c.rate_per_s[0] = (uint64_t)(node[0].rate * MBIT_BYTES);
    c.bound = HTB_BY_RATE; /* the root's rate is the link's */
    c.order = HTB_FIFO;
    c.burst_ns = BURST_NS;
    c.request_max_tokens = PACKET_BYTES;
    c.start_ns = now_ns;
    mem = aligned_alloc(64, (htb_memsize(&c) + 63) / 64 * 64);
    must(htb_init(tree, mem, htb_memsize(&c), &c), "htb_init");
    for (i = 1; i < nodes; i++) {
        struct htb_class class;
        memset(&class, 0, sizeof class);
        class.parent = node[i].parent;
        class.group = !node[i].leaf;
        class.rate_per_s[0] = (uint64_t)(node[i].rate * MBIT_BYTES);
        class.limit_per_s[0] = node[i].limit < node[0].rate ? (uint64_t)(node[i].limit * MBIT_BYTES) : 0;
        must(htb_reserve(tree, now_ns, i, &class, NULL), node[i].name);
    }
}

static uint64_t send_htb(const int *fd, const char *packet, uint64_t end_ns)
{
    static struct htb tree;
    static struct htb_request request[NODES_MAX][WAITING];
    uint64_t now_ns = clock_ns(), sent = 0;
    uint32_t i, k;
    make_tree(&tree, now_ns);
    for (i = 1; i < nodes; i++)
        for (k = 0; k < WAITING && node[i].leaf; k++) {
            request[i][k].class_id = i;
            request[i][k].tokens[0] = PACKET_BYTES;
            must(htb_submit(&tree, now_ns, &request[i][k]), "htb_submit");
        }
    while ((now_ns = clock_ns()) < end_ns) {
        struct htb_request *r;
        uint64_t wait_ns;
        struct timespec wait;
        while ((r = htb_dispatch(&tree, now_ns)) != NULL) {
            sent += send(fd[r->class_id], packet, PAYLOAD_BYTES, 0) > 0;
            must(htb_complete(&tree, now_ns, HTB_DONE, NULL, r), "htb_complete");
            must(htb_submit(&tree, now_ns, r), "htb_submit");
        }
        wait_ns = qos_elapsed_ns(now_ns, qos_min(htb_dispatch_next_ns(&tree, now_ns), now_ns + QOS_NS_PER_S / 10));
        wait = (struct timespec){0, (long)qos_max(wait_ns, 20000)}; /* several packets for one wake-up */
        nanosleep(&wait, NULL);
    }
    return sent;
}

static int send_all(bool tc, const char *ip, double seconds)
{
    static char packet[PAYLOAD_BYTES];
    struct rusage used;
    int fd[NODES_MAX];
    uint64_t end_ns = clock_ns() + (uint64_t)(seconds * 1e9), sent;
    uint32_t i;
    double cpu_us;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (i = 0; i < nodes; i++)
        fd[i] = node[i].leaf ? open_socket(i, ip) : -1;
    sent = tc ? send_tc(fd, packet, end_ns) : send_htb(fd, packet, end_ns);
    getrusage(RUSAGE_SELF, &used);
    cpu_us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
             (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    printf("%.3f\n", sent ? cpu_us / (double)sent : 0);
    return 0;
}

/* Counts from half a second after the first packet to the end. */
static int receive(double seconds)
{
    static char buffer[2048];
    struct pollfd ready[NODES_MAX];
    uint64_t bytes[NODES_MAX] = {0}, from_ns = QOS_NEVER, end_ns = QOS_NEVER, now_ns;
    uint32_t i, k;
    for (i = 0; i < nodes; i++)
        ready[i] = (struct pollfd){node[i].leaf ? open_socket(i, NULL) : -1, POLLIN, 0};
    while ((now_ns = clock_ns()) < end_ns) {
        if (poll(ready, nodes, end_ns == QOS_NEVER ? 10000 : 100) == 0 && end_ns == QOS_NEVER)
            return 1; /* no packets are sent */
        if (end_ns == QOS_NEVER) {
            from_ns = now_ns + QOS_NS_PER_S / 2;
            end_ns = from_ns + (uint64_t)(seconds * 1e9);
        }
        for (i = 0; i < nodes; i++)
            for (k = 0; k < 64 && (ready[i].revents & POLLIN) && recv(ready[i].fd, buffer, sizeof buffer, 0) > 0; k++)
                bytes[i] += now_ns >= from_ns ? PACKET_BYTES : 0;
    }
    for (i = 0; i < nodes; i++)
        if (node[i].leaf)
            printf("%s %.2f %.2f %.3f %.3f\n", node[i].name, node[i].rate, node[i].limit, node[i].share,
                   (double)bytes[i] / seconds / MBIT_BYTES);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "tc") == 0)
        return parse(argv[2]), print_tc(), 0;
    if (argc == 6 && strcmp(argv[1], "send") == 0)
        return parse(argv[3]), send_all(strcmp(argv[2], "tc") == 0, argv[4], strtod(argv[5], NULL));
    if (argc == 4 && strcmp(argv[1], "receive") == 0)
        return parse(argv[2]), receive(strtod(argv[3], NULL));
    fputs("usage: net tc TREE | net send tc|htb TREE IP SECONDS | net receive TREE SECONDS\n", stderr);
    return 2;
}
