// A hostile node of pshift_cluster with a valid key: pshift_hostile KEYS NODE CONTROLLER ADDRESS SECONDS
//
// It uses another node's name, reports for another node, and claims periods: the largest number, and the next ones. As
// its own node, just started, it reports unlimited service of buckets, and that it has every grant.
// It sends numbers at the ends of their ranges, wrong lengths and endless parts, as fast as the library takes them.
// Prints how many it sent.
#include "pshift.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#define ENTRIES 64 /* more than the cluster has buckets */
#define REPORT 64  /* MAIL_REPORT of cluster.h */

static uint8_t wire[1 << 21];

static void read_key(char key[41], const char *dir, const char *who, const char *number, const char *half)
{
    char path[512];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s-%s.%s", dir, who, number, half);
    f = fopen(path, "r");
    if (!f || fread(key, 1, 40, f) != 40)
        exit(2);
    key[40] = 0;
    fclose(f);
}

static void *connect_as(char **argv, const char *name)
{
    static void *context;
    char server[41], mine[41], secret[41];
    void *socket;
    const int now = 0;
    if (!context)
        context = zmq_ctx_new();
    socket = zmq_socket(context, ZMQ_DEALER);
    read_key(server, argv[1], "controller", argv[3], "public");
    read_key(mine, argv[1], "node", argv[2], "public");
    read_key(secret, argv[1], "node", argv[2], "secret");
    zmq_setsockopt(socket, ZMQ_LINGER, &now, sizeof now);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, name, strlen(name));
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, 41);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, mine, 41);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret, 41);
    if (zmq_connect(socket, argv[4]) != 0)
        exit(2);
    return socket;
}

/* A report of this node with the given faults in it; returns its length with the head. */
static size_t report(uint32_t server, uint64_t answers, uint64_t period, uint32_t count, uint64_t number)
{
    static struct pshift_report_entry entry[ENTRIES];
    struct pshift_message m = {0};
    size_t bytes = 0;
    uint32_t k;
    for (k = 0; k < count; k++) {
        entry[k].bucket = k + (number > 1000 ? number - k : 0);
        entry[k].served = entry[k].demand = entry[k].held = number;
    }
    m.server = server;
    m.count = count;
    m.boot.lo = 1;
    m.owner.lo = 1;
    m.answers = answers;
    m.seq = number;
    m.period = period;
    m.capacity = number;
    memset(wire, 0, 8);
    wire[0] = REPORT;
    if (pshift_report_encode(&m, entry, wire + 8, sizeof wire - 8, &bytes) != QOS_OK)
        exit(2);
    return 8 + bytes;
}

/* A valid report of this node, started now, that has heard of no period: all 8 buckets, or only those that are on node 8,
 * were served `number` times. */
static size_t lie(uint32_t server, bool all, uint64_t number)
{
    static const uint8_t here[8] = {0, 0, 1, 1, 0, 1, 1, 1};
    static uint64_t seq;
    struct pshift_report_entry entry[8];
    struct pshift_message m = {0};
    size_t bytes = 0;
    uint32_t k;
    for (k = 0; k < 8; k++) {
        if (!all && !here[k])
            continue;
        entry[m.count].bucket = k;
        entry[m.count].served = entry[m.count].demand = entry[m.count].held = number;
        entry[m.count++].grant_seq = 0;
    }
    m.server = server;
    m.boot.lo = seq / 5 + 2; /* it restarts all the time */
    m.seq = ++seq;
    m.answers = UINT64_MAX;
    m.capacity = number;
    memset(wire, 0, 8);
    wire[0] = REPORT;
    if (pshift_report_encode(&m, entry, wire + 8, sizeof wire - 8, &bytes) != QOS_OK)
        exit(2);
    return 8 + bytes;
}

static int put(void *socket, const void *data, size_t bytes, int flags)
{
    return zmq_send(socket, data, bytes, flags | ZMQ_DONTWAIT) >= 0;
}

static int send_kind(void *socket, uint32_t me, unsigned long kind)
{
    size_t bytes;
    switch (kind % 12) {
    case 0: return put(socket, wire, 0, 0);
    case 1: return put(socket, wire, kind % 23, 0);
    case 2: return put(socket, wire, report((me + 4) % 8, 0, 1, 1, 1), 0); /* for another node */
    case 3: return put(socket, wire, report(me, UINT64_MAX, UINT64_MAX, 1, 1), 0);
    case 4: return put(socket, wire, report(me, UINT64_MAX, 1, ENTRIES, UINT64_MAX), 0);
    case 5: return put(socket, wire, report(UINT32_MAX, 0, 1, 0, UINT64_MAX), 0);
    case 6: bytes = report(me, 0, 1, 2, 7); return put(socket, wire, bytes - 1 - kind % 40, 0);
    case 7: return put(socket, wire, 40, ZMQ_SNDMORE) && put(socket, wire, 40, ZMQ_SNDMORE) && put(socket, wire, 1, 0);
    case 8: return put(socket, wire, report(me, 0, kind % 64, 1, 1), 0);
    case 9:
    case 10: return put(socket, wire, lie(me, kind % 12 == 9, UINT64_C(1) << 40), 0);
    default: memset(wire, 0xff, 4096); return put(socket, wire, 4096, 0);
    }
}

int main(int argc, char **argv)
{
    const struct timespec pause = {0, 2000000};
    unsigned long sent = 0, kind = 0, burst;
    void *socket, *large;
    time_t end;
    if (argc != 6)
        return 2;
    socket = connect_as(argv, "node-5");
    large = connect_as(argv, "large");
    end = time(NULL) + atoi(argv[5]);
    while (time(NULL) < end) {
        for (burst = 0; burst < 200; burst++)
            sent += (unsigned)send_kind(socket, (uint32_t)atoi(argv[2]) - 1, kind++);
        (void)put(large, wire, sizeof wire, 0);
        nanosleep(&pause, NULL);
    }
    printf("%lu sent\n", sent);
    return sent > 1000 ? 0 : 1;
}
