// flags: -D_GNU_SOURCE
// links: -lrt
/* quickstart/tokenpool.c - a data node and its clients as processes over shared memory; tokens decide how many records of
 * 4 KiB each client reads. Copy steps 1 to 5.
 *   quickstart_tokenpool node /name             the data node: 100,000 records a second, until SIGTERM, or until the
 *                                               process that started it is gone
 *   quickstart_tokenpool client /name ID SECS   client ID reads for SECS seconds, and prints how many records it got
 * Client 0 reserves 50,000 records a second, client 1 20,000 with a limit of 30,000, client 2 nothing. */
#include "tokenpool.h"
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 3, RECORDS = 4096, RECORD_BYTES = 4096, TABLE_BYTES = RECORDS * RECORD_BYTES };
static const uint64_t reservation[CLIENTS] = {50000, 20000, 0}, limit[CLIENTS] = {0, 30000, 0};
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    stop = number;
}

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t at_ns) /* a signal ends it early */
{
    struct timespec t = {(time_t)(at_ns / QOS_NS_PER_S), (long)(at_ns % QOS_NS_PER_S)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static struct tokenpool_config settings(void) /* 1. the data node's capacity, from a profile */
{
    struct tokenpool_config config = {0};
    config.clients = CLIENTS;
    config.capacity = 100000;
    config.flags = TOKENPOOL_FIXED | TOKENPOOL_GO_ON;
    return config;
}

static void *map(const char *name, bool create, size_t *bytes) /* 2. the storage, then the table of records */
{
    struct stat st;
    void *at;
    int fd = shm_open(name, create ? O_RDWR | O_CREAT : O_RDWR, 0600);
    if (fd < 0)
        err(2, "%s: no shared memory of this name%s", name, create ? " can be made" : "; start the data node first");
    if (create && flock(fd, LOCK_EX | LOCK_NB) != 0) /* held, by the open fd, until this process ends */
        errx(2, "%s: another data node has it; stop it first", name);
    if (create && ftruncate(fd, (off_t)*bytes) != 0)
        err(2, "%zu bytes of shared memory", *bytes);
    if (fstat(fd, &st) != 0 || st.st_size < TABLE_BYTES)
        errx(2, "%s: this is not a data node's memory", name);
    *bytes = (size_t)st.st_size;
    at = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        err(2, "mmap of %s", name);
    return at;
}

static int node(const char *name)
{
    struct tokenpool_config config = settings();
    static struct tokenpool_monitor monitor;
    size_t bytes = tokenpool_monitor_memsize(&config), storage_bytes = tokenpool_storage_memsize(&config);
    size_t shared_bytes = storage_bytes + TABLE_BYTES;
    void *memory = aligned_alloc(QOS_CACHE_LINE, bytes), *storage = map(name, true, &shared_bytes);
    const pid_t parent = getppid();
    enum qos_status status;
    uint64_t now_ns;
    uint32_t i;
    if (!memory)
        errx(2, "out of memory");
    /* 3. A storage of a data node that died is taken over, with its clients; otherwise it is a fresh one. */
    status = tokenpool_monitor_resume(&monitor, memory, bytes, storage, storage_bytes, &config);
    if (status != QOS_OK)
        status = tokenpool_monitor_init(&monitor, memory, bytes, storage, storage_bytes, &config);
    else
        tokenpool_monitor_run(&monitor, clock_ns());
    if (status != QOS_OK)
        errx(2, "monitor: %s", qos_strerror(status));
    for (i = 0; i < CLIENTS; i++) {
        status = tokenpool_monitor_join(&monitor, i, reservation[i], limit[i], NULL);
        if (status != QOS_OK && status != QOS_EEXIST)
            errx(2, "client %u: %s", i, qos_strerror(status));
    }
    puts("ready");
    fflush(stdout);
    while (!stop && getppid() == parent) { /* 4. the monitor's loop: about once in a millisecond */
        now_ns = clock_ns();
        tokenpool_monitor_run(&monitor, now_ns);
        sleep_until(tokenpool_monitor_next_ns(&monitor, now_ns));
    }
    shm_unlink(name);
    return 0;
}

static int client(const char *name, const char *which, const char *how_long)
{
    char *end, *end2, record[RECORD_BYTES];
    uint64_t id = strtoull(which, &end, 10), seconds = strtoull(how_long, &end2, 10), done = 0, now_ns, until_ns;
    size_t bytes = 0;
    char *shared = (char *)map(name, false, &bytes);
    struct tokenpool_client engine;
    enum qos_status status;
    if (*end || *end2 || *which == '-' || id >= CLIENTS || seconds == 0 || seconds > 60)
        errx(2, "ID is 0 to %d, SECS 1 to 60", CLIENTS - 1);
    status = tokenpool_client_attach(&engine, (uint32_t)id, 0, shared, bytes - TABLE_BYTES);
    if (status != QOS_OK)
        errx(2, "attaching to %s: %s", name, qos_strerror(status));
    for (now_ns = clock_ns(), until_ns = now_ns + seconds * QOS_NS_PER_S; !stop && now_ns < until_ns;) {
        status = tokenpool_client_take(&engine, now_ns, 1); /* 5. the client's loop */
        if (status == QOS_OK) {
            memcpy(record, shared + bytes - TABLE_BYTES + done % RECORDS * RECORD_BYTES, sizeof record);
            tokenpool_client_complete(&engine, 1);
            done++;
        } else if (status == QOS_ESTALE) {
            errx(3, "another process is this client now, or the data node was started anew");
        } else {
            sleep_until(qos_min(tokenpool_client_next_ns(&engine, now_ns, 1), until_ns));
        }
        now_ns = clock_ns();
    }
    printf("%" PRIu64 "\n", done / seconds);
    return 0;
}

int main(int argc, char **argv)
{
    while ((unsigned)open("/dev/null", O_RDWR) < STDERR_FILENO) /* no message goes into the pool */
        ;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    if (argc == 3 && strcmp(argv[1], "node") == 0)
        return node(argv[2]);
    if (argc == 5 && strcmp(argv[1], "client") == 0)
        return client(argv[2], argv[3], argv[4]);
    errx(2, "usage: quickstart_tokenpool node /NAME | client /NAME ID SECS");
}
