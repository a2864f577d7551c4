// flags: -D_GNU_SOURCE
/* quickstart/pshift.c - three servers and a controller, each a process, keep the contracts of two buckets by pshift.h.
 * quickstart_pshift 7001 /var/tmp: the controller has UDP port 7001 on loopback, server i 7002 + i; a file in /var/tmp
 * says who owns a period. A client sends "7\n" to any server and gets "served\n" once bucket 7 has a token there. SIGTERM
 * to the controller ends all. */
#include "pshift.h"
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define SERVERS 3
#define QUEUES 64
#define INTERVAL_NS 200000000u
#define PERIOD_NS QOS_NS_PER_S
#define CAPACITY 1000u /* requests that a server serves per second */
static uint8_t wire[QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + QUEUES * PSHIFT_REPORT_ENTRY_BYTES];
static unsigned char mem[2][1 << 20] __attribute__((aligned(64)));
static struct pshift_report_entry report[QUEUES];
static struct pshift_grant_entry grant[QUEUES];

static uint64_t now_ns(void) /* an elapsed clock: nobody sets it */
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct qos_u128 nonce(void)
{
    struct qos_u128 n;
    if (getrandom(&n, sizeof n, 0) != sizeof n)
        err(1, "getrandom");
    return n;
}

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){AF_INET, htons((uint16_t)port), {htonl(INADDR_LOOPBACK)}, {0}};
}

static int open_port(unsigned port)
{
    struct sockaddr_in at = loopback(port);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof at) != 0)
        errx(1, "port %u is taken: choose another", port);
    return s;
}

static void post(int s, struct sockaddr_in to, const void *bytes, size_t len_bytes)
{
    (void)!sendto(s, bytes, len_bytes, 0, (struct sockaddr *)&to, sizeof to); /* if lost, the next round repeats it */
}

/* 1. A server takes requests, picks by tokens and answers. It reports in each interval, and installs grants. */
static _Noreturn void server(unsigned port, uint32_t j)
{
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_scheduler_config queues = {QUEUES, 0};
    struct pshift_agent_config config = {&scheduler, j, nonce(), PERIOD_NS, 0, 0};
    struct pshift_message m;
    struct pshift_pick pick;
    struct sockaddr_in client[QUEUES], from; /* the last client of each bucket */
    uint64_t now = now_ns(), slot = now / (PERIOD_NS / CAPACITY), told = 0;
    bool answer = false;
    int s = open_port(port + 1 + j);
    char *end;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0) /* the server ends with the controller */
        err(1, "prctl");
    if (pshift_scheduler_init(&scheduler, mem[0], sizeof mem[0], &queues) != QOS_OK ||
        pshift_agent_init(&agent, mem[1], sizeof mem[1], &config) != QOS_OK)
        errx(1, "memory too small");
    for (;; now = now_ns()) {
        ssize_t n;
        uint32_t queue;
        if (now - told >= INTERVAL_NS) {
            pshift_agent_measure(&agent, now);
            told = now;
            answer = true;
        }
        while (answer && pshift_agent_report(&agent, &m, report, QUEUES) == QOS_OK) {
            size_t bytes;
            struct pshift_agent_state state;
            (void)pshift_agent_info(&agent, &state);
            m.capacity = CAPACITY * (state.ends_ns > now ? state.ends_ns - now : PERIOD_NS) / PERIOD_NS;
            if (pshift_report_encode(&m, report, wire, sizeof wire, &bytes) == QOS_OK)
                post(s, loopback(port), wire, bytes);
        }
        answer = false;
        for (; slot < now / (PERIOD_NS / CAPACITY); slot++) /* the device: one request in a slot */
            if (pshift_scheduler_pick(&scheduler, now, &pick) == QOS_OK)
                post(s, client[pick.queue], "served\n", 7);
        (void)poll(&(struct pollfd){.fd = s, .events = POLLIN}, 1, 1);
        while ((n = recvfrom(s, wire, sizeof wire - 1, 0, (struct sockaddr *)&from, &(socklen_t){sizeof from})) > 0) {
            wire[n] = 0;
            if (pshift_grant_decode(wire, (size_t)n, &m, grant, QUEUES) == QOS_OK) {
                answer |= pshift_agent_install(&agent, now_ns(), &m, grant) == QOS_OK; /* at once: tokens may move */
                continue;
            }
            uint64_t bucket = strtoull((char *)wire, &end, 10);
            if (wire[0] < '0' || wire[0] > '9' || *end != '\n' || bucket < 7 ||
                bucket > 8) /* unknown buckets open no queue */
                post(s, from, "error: send the number of a bucket\n", 35);
            else if (pshift_agent_open(&agent, bucket, &queue) == QOS_OK &&
                     pshift_scheduler_arrive(&scheduler, queue, 1) == QOS_OK)
                client[queue] = from;
        }
    }
}

/* 2. Who owns a period: a file, locked by one controller at a time, so nobody else changes it. It is never removed. */
static void own(struct pshift_owner *owner, int file)
{
    uint64_t key[3] = {0, 0, 0}, number;
    ssize_t n = pread(file, key, sizeof key, 0);
    if (n != 0 && n != sizeof key)
        err(1, "the owner's file is damaged: its first 8 bytes must be a number above all that were used");
    pshift_owner_saw(owner, now_ns(), key[0], (struct qos_u128){key[1], key[2]});
    if (pshift_owner_ask(owner, now_ns(), &number) != QOS_OK)
        return;
    key[0] = number;
    key[1] = owner->config.nonce.hi;
    key[2] = owner->config.nonce.lo;
    if (pwrite(file, key, sizeof key, 0) != sizeof key || fdatasync(file) != 0)
        err(1, "the owner's file");
    pshift_owner_saw(owner, now_ns(), key[0], owner->config.nonce);
}

/* 3. The controller: contracts, a plan each interval, grants. */
int main(int argc, char **argv)
{
    const struct pshift_owner_config own_config = {nonce(), PERIOD_NS, 0};
    const struct pshift_controller_config config = {SERVERS, QUEUES, QUEUES * SERVERS, own_config.nonce, PERIOD_NS, 0};
    struct pshift_controller_state state = {0};
    struct pshift_owner owner;
    struct pshift_controller c;
    struct pshift_message m;
    char path[4096];
    unsigned port = argc == 3 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    while ((unsigned)open("/dev/null", O_RDWR) < STDERR_FILENO) /* no message goes into the owner's file */
        ;
    if (port == 0 || port > 65000)
        errx(2, "usage: quickstart_pshift PORT DIRECTORY");
    (void)snprintf(path, sizeof path, "%s/quickstart_pshift.%u", argv[2], port);
    int s = open_port(port), file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || flock(file, LOCK_EX) != 0)
        err(1, "%s", path);
    for (uint32_t j = 0; j < SERVERS; j++)
        if (fork() == 0)
            server(port, j);
    if (pshift_owner_init(&owner, &own_config) != QOS_OK ||
        pshift_controller_init(&c, mem[0], sizeof mem[0], &config) != QOS_OK ||
        pshift_controller_change(&c, 7, 300, 600) != QOS_OK || /* bucket 7: 300 to 600 requests per second */
        pshift_controller_change(&c, 8, 500, 0) != QOS_OK)     /* bucket 8: at least 500, no limit */
        errx(1, "%s", pshift_controller_config_error(&config));
    for (uint64_t planned = 0, now = now_ns(), period, start;; now = now_ns()) {
        bool due = now - planned >= INTERVAL_NS, news = false;
        size_t bytes;
        ssize_t n;
        if (pshift_owner_next_ns(&owner, now) <= now)
            own(&owner, file);
        if (pshift_owner_holds(&owner, now, &period, &start) == QOS_OK)
            due |= pshift_controller_begin(&c, start, period) == QOS_OK;
        while ((n = recv(s, wire, sizeof wire, 0)) > 0)
            if (pshift_report_decode(wire, (size_t)n, &m, report, QUEUES) == QOS_OK) /* late, repeated ones: refused */
                news |= pshift_controller_report(&c, now_ns(), &m, report) == QOS_OK;
        due |= news && (state.withheld | state.awaited) != 0;
        if (due && pshift_controller_plan(&c, NULL) == QOS_OK) {
            planned = now;
            (void)pshift_controller_info(&c, &state);
            for (uint32_t j = 0; j < SERVERS; j++)
                while (pshift_controller_grant(&c, now_ns(), j, &m, grant, QUEUES) == QOS_OK)
                    if (pshift_grant_encode(&m, grant, wire, sizeof wire, &bytes) == QOS_OK)
                        post(s, loopback(port + 1 + j), wire, bytes);
        }
        (void)poll(&(struct pollfd){.fd = s, .events = POLLIN}, 1, 5);
    }
}
