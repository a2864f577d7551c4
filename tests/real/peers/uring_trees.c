// N threads read one file through io_uring, each with its own tree, and the trees share their classes:
//     uring_trees FILE SECONDS TREES [apart]
//
// Tenants: db (a reservation, 8 requests at once, all in thread 0 in the first half, all in the last thread in the
// second), scan (a reservation) and backup (a limit), in all threads. Before and after, the same requests run without
// QoS: the device's rate then is the control, and the first of these runs sets the rates. `apart`: the trees do not
// join; the limit must break. Judges by its log of all dispatches. Ends with 0: held, 1: broken, 3: the device or the
// host gave no verdict.
#include "htb.h"
#include <err.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DB = 1, SCAN, BACKUP, TENANTS = 3, THREADS_MAX = 4, BLOCK = 16384, IOS_MAX = 64 };
#define BURST_NS UINT64_C(10000000)
#define SETTLE_NS UINT64_C(500000000) /* after the start and after a move of the demand */
static const uint32_t depth[TENANTS + 1] = {0, 8, 16, 32};

struct io {
    struct htb_request request; /* first, so that the pointers convert */
    uint64_t *data;
    bool busy;
};
struct event {
    uint64_t at_ns;
    uint32_t tenant;
};
static struct reactor {
    struct htb tree;
    struct io_uring ring;
    struct io io[IOS_MAX];
    uint32_t number, ios;
    uint64_t random, late_ns; /* late_ns: total time by which its loop came back late */
    struct event *log;
    size_t events, room;
    pthread_t thread;
} reactor[THREADS_MAX];
static struct htb_shared *shared;
static int fd;
static uint32_t threads;
static uint64_t blocks, start_ns, end_ns, rate_per_s, limit_per_s, reserved_per_s;
static bool qos, apart;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void must(bool good, const char *what)
{
    if (!good)
        errx(2, "%s", what);
}

static void *memory(size_t size)
{
    void *p = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    must(p != NULL, "no memory");
    memset(p, 0, size);
    return p;
}

/* The thread that has the demand of db. */
static uint32_t home_of_db(uint64_t now_ns)
{
    return qos && now_ns >= start_ns + (end_ns - start_ns) / 2 ? threads - 1 : 0;
}

static void send_io(struct reactor *r, struct io *io, uint64_t now_ns)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    must(sqe != NULL, "the ring is full");
    io_uring_prep_read(sqe, fd, io->data, BLOCK, io->request.offset);
    io_uring_sqe_set_data(sqe, io);
    if (r->events == r->room) {
        r->room = r->room ? 2 * r->room : 1 << 16;
        r->log = realloc(r->log, r->room * sizeof *r->log);
        must(r->log != NULL, "no memory");
    }
    r->log[r->events++] = (struct event){now_ns, io->request.class_id};
}

/* New requests for all idle places that are wanted here. */
static void ask(struct reactor *r, uint64_t now_ns)
{
    for (uint32_t i = 0; i < r->ios; i++) {
        struct io *io = &r->io[i];
        if (io->busy || (io->request.class_id == DB && home_of_db(now_ns) != r->number))
            continue;
        r->random = r->random * UINT64_C(6364136223846793005) + 1;
        io->request.offset = (r->random >> 20) % blocks * BLOCK;
        io->busy = true;
        if (qos)
            must(htb_submit(&r->tree, now_ns, &io->request) == QOS_OK, "htb_submit failed");
        else
            send_io(r, io, now_ns);
    }
}

static void reap(struct reactor *r)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&r->ring, &cqe) == 0) {
        struct io *io = io_uring_cqe_get_data(cqe);
        must(cqe->res == BLOCK, "a read failed or was short");
        for (uint32_t i = 0; i < BLOCK / 8; i += 512)
            must(io->data[i] == io->request.offset / BLOCK, "a read returned other data");
        io_uring_cqe_seen(&r->ring, cqe);
        io->busy = false;
        if (qos)
            must(htb_complete(&r->tree, clock_ns(), HTB_DONE, NULL, &io->request) == QOS_OK, "htb_complete failed");
    }
}

/* Cancels queued requests, and waits for those at the device. */
static void drain(struct reactor *r)
{
    for (uint32_t i = 0; i < r->ios; i++) {
        struct io *io = &r->io[i];
        if (qos && io->busy && htb_cancel(&r->tree, clock_ns(), &io->request) == QOS_OK)
            io->busy = false;
    }
    for (uint32_t i = 0; i < r->ios; i++)
        while (r->io[i].busy) {
            struct io_uring_cqe *cqe;
            must(io_uring_wait_cqe(&r->ring, &cqe) == 0, "the ring failed");
            reap(r);
        }
}

static void *run(void *argument)
{
    struct reactor *r = argument;
    uint64_t now_ns, last_ns = start_ns;
    while ((now_ns = clock_ns()) < end_ns) {
        uint64_t wait_ns = 5000000;
        struct htb_request *request;
        struct io_uring_cqe *cqe;
        r->late_ns += now_ns - last_ns > 10000000 ? now_ns - last_ns - 10000000 : 0;
        last_ns = now_ns;
        if (qos && !apart)
            wait_ns = qos_min(wait_ns, htb_exchange(&r->tree, now_ns) - now_ns);
        ask(r, now_ns);
        if (qos) {
            while ((request = htb_dispatch(&r->tree, now_ns)) != NULL)
                send_io(r, (struct io *)(void *)request, now_ns);
            wait_ns = qos_min(wait_ns, htb_dispatch_next_ns(&r->tree, now_ns) - now_ns);
        }
        must(io_uring_submit(&r->ring) >= 0, "io_uring_submit failed");
        (void)io_uring_wait_cqe_timeout(&r->ring, &cqe, &(struct __kernel_timespec){.tv_nsec = (long long)wait_ns});
        reap(r);
    }
    drain(r);
    return NULL;
}

/* A tree with all classes; every thread gives its own tree the same full rates. */
static void plant(struct reactor *r, uint64_t now_ns)
{
    struct htb_config config = {.classes = TENANTS + 1, .start_ns = now_ns, .order = HTB_FIFO, .burst_ns = BURST_NS};
    const struct htb_class terms[TENANTS + 1] = {
        {0}, {.rate_per_s = {reserved_per_s}}, {.rate_per_s = {reserved_per_s}}, {.limit_per_s = {limit_per_s}}};
    size_t size;
    config.rate_per_s[0] = rate_per_s;
    config.dispatch_max = config.device_max = IOS_MAX; /* the charge takes effect at once: the log sees it */
    size = htb_memsize(&config);
    must(htb_init(&r->tree, memory(size), size, &config) == QOS_OK, "htb_init failed");
    for (uint32_t id = 1; id <= TENANTS; id++)
        must(htb_reserve(&r->tree, now_ns, id, &terms[id], NULL) == QOS_OK, "htb_reserve failed");
    must(apart || htb_join(&r->tree, now_ns, shared, r->number) == QOS_OK, "htb_join failed");
}

/* One phase of all threads. */
static void phase(bool with, uint64_t ns)
{
    const struct htb_shared_config config = {.trees = threads, .classes = TENANTS + 1};
    const size_t size = htb_shared_memsize(&config);
    qos = with;
    shared = memory(size);
    must(htb_shared_init(shared, size, &config) == QOS_OK, "htb_shared_init failed");
    start_ns = clock_ns();
    end_ns = start_ns + ns;
    for (uint32_t i = 0; i < threads; i++) {
        reactor[i].events = reactor[i].late_ns = 0;
        if (with)
            plant(&reactor[i], start_ns);
    }
    for (uint32_t i = 0; i < threads; i++)
        must(pthread_create(&reactor[i].thread, NULL, run, &reactor[i]) == 0, "no thread");
    for (uint32_t i = 0; i < threads; i++)
        must(pthread_join(reactor[i].thread, NULL) == 0, "a thread is lost");
}

/* Bytes/s of a tenant (0: of all) by the log, between these times after the start. */
static double logged(uint32_t tenant, uint64_t from_ns, uint64_t to_ns)
{
    double bytes = 0;
    for (uint32_t i = 0; i < threads; i++)
        for (size_t k = 0; k < reactor[i].events; k++) {
            const struct event *e = &reactor[i].log[k];
            if ((tenant == 0 || e->tenant == tenant) && e->at_ns >= start_ns + from_ns && e->at_ns < start_ns + to_ns)
                bytes += BLOCK;
        }
    return bytes * 1e9 / (double)(to_ns - from_ns);
}

/* The largest rise of (bytes of backup - its limit * time) over any window. */
static double above_limit(void)
{
    size_t at[THREADS_MAX] = {0};
    double sum = 0, lowest = 0, most = 0;
    for (;;) {
        struct reactor *next = NULL;
        for (uint32_t i = 0; i < threads; i++)
            if (at[i] < reactor[i].events && (!next || reactor[i].log[at[i]].at_ns < next->log[at[next->number]].at_ns))
                next = &reactor[i];
        if (!next)
            return most;
        const struct event *e = &next->log[at[next->number]++];
        if (e->tenant == BACKUP) {
            const double before = sum - (double)limit_per_s * (double)(e->at_ns - start_ns) / 1e9;
            lowest = before < lowest ? before : lowest;
            sum += BLOCK;
            most = before + BLOCK - lowest > most ? before + BLOCK - lowest : most;
        }
    }
}

static bool counters_match(void)
{
    uint64_t granted = 0, events = 0;
    for (uint32_t i = 0; i < threads; i++) {
        struct qos_stats stats;
        must(htb_stats(&reactor[i].tree, QOS_NONE, &stats) == QOS_OK, "htb_stats failed");
        granted += stats.granted;
        events += reactor[i].events;
    }
    return granted == events * BLOCK;
}

static void set_up(const char *file)
{
    struct stat st;
    fd = open(file, O_RDONLY | O_DIRECT);
    if (fd < 0 || fstat(fd, &st) != 0)
        err(2, "%s", file);
    blocks = (uint64_t)st.st_size / BLOCK;
    must(blocks != 0, "the file is too small");
    for (uint32_t i = 0; i < threads; i++) {
        struct reactor *r = &reactor[i];
        r->number = i;
        r->random = i + 1;
        must(io_uring_queue_init(256, &r->ring, 0) == 0, "no io_uring");
        for (uint32_t tenant = 1; tenant <= TENANTS; tenant++)
            for (uint32_t k = 0; k < (tenant == DB ? depth[DB] : depth[tenant] / threads); k++) {
                struct io *io = &r->io[r->ios++];
                io->request.class_id = tenant;
                io->request.tokens[0] = BLOCK;
                io->data = memory(BLOCK);
            }
    }
}

/* Judges what the tenants got while db was in one thread. At least 0.98 of a reservation: held. Less than 0.9, while
 * the device gave 0.9 of the control: broken. Otherwise there is no verdict. Returns the exit status. */
static int judge(const char *name, uint64_t from_ns, uint64_t to_ns, double control)
{
    const double total = logged(0, from_ns, to_ns);
    const double db = logged(DB, from_ns, to_ns) / (double)reserved_per_s;
    const double scan = logged(SCAN, from_ns, to_ns) / (double)reserved_per_s, least = db < scan ? db : scan;
    const int status = least >= 0.98 ? 0 : least < 0.9 && total >= 0.9 * control ? 1 : 3;
    printf("    db in the %s thread: %.1f MB/s, of its reservation db has %.3f, scan %.3f%s\n", name, total / 1e6, db,
           scan, status == 1 ? ": BROKEN" : "");
    return status;
}

int main(int argc, char **argv)
{
    const uint64_t ns = (uint64_t)(argc > 2 ? strtoul(argv[2], NULL, 10) : 0) * QOS_NS_PER_S, half_ns = ns / 2;
    uint64_t late_ns = 0;
    double without[2], control, db_without, excess, allowed;
    int first = 0, second = 0;
    threads = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    apart = argc > 4;
    must(ns != 0 && threads >= 1 && threads <= THREADS_MAX, "usage: uring_trees FILE SECONDS TREES(1..4) [apart]");
    set_up(argv[1]);

    phase(false, 800000000);
    without[0] = logged(0, 200000000, 800000000);
    db_without = logged(DB, 200000000, 800000000) * 5 / without[0];
    rate_per_s = (uint64_t)without[0];
    if (rate_per_s < 100 * BLOCK)
        return puts("cannot tell: the device is too slow"), 3;
    reserved_per_s = rate_per_s / 5;
    limit_per_s = rate_per_s / 20;
    phase(true, ns);
    must(counters_match(), "the counters differ from the log");
    for (uint32_t i = 0; i < threads; i++)
        late_ns += reactor[i].late_ns;
    excess = above_limit();
    allowed = threads * (2 * (double)limit_per_s * (double)BURST_NS / 1e9 + BLOCK);
    printf("%u trees%s: without QoS %.1f MB/s, db %.3f of its reservation; backup %.0f bytes above its limit, %.0f "
           "allowed\n",
           threads, apart ? " apart" : "", without[0] / 1e6, db_without, excess, allowed);
    control = without[0];
    if (!apart) {
        first = judge("first", SETTLE_NS, half_ns, control);
        second = judge("last", half_ns + SETTLE_NS, ns, control);
    }
    phase(false, 800000000);
    without[1] = logged(0, 200000000, 800000000);
    printf("    without QoS again: %.1f MB/s; threads late by %.3f s in all\n", without[1] / 1e6,
           (double)late_ns / 1e9);

    if (excess > allowed)
        return puts("BROKEN: the limit"), 1;
    if (first == 0 && second == 0 && db_without < 0.98)
        return 0;
    if (without[0] > 1.25 * without[1] || without[1] > 1.25 * without[0] || db_without >= 0.98 || late_ns > ns / 50 ||
        (first != 1 && second != 1))
        return puts("cannot tell: the device gave too different rates, threads were late, or db needs no QoS"), 3;
    return puts("BROKEN: a reservation"), 1;
}
