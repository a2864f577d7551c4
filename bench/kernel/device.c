// A file of known speed, to be the backing file of a loop device.     usage: device FILE SIZE_MIB OPS_PER_S BYTES_PER_S
//
// Mounts itself over FILE (FUSE, without a library: its one node is the file) and answers reads with zeros, when a
// device of that speed would. Requests are served first in, first out. A request is done when both its share of the
// operations and its share of the bytes have passed. So the speed is known, without the bursts of 100 ms of
// blk-throttle. Writes take as long; their data is dropped.
//
// SIGUSR1 halves both rates, SIGUSR2 restores them. SIGTERM, SIGINT or umount end it, and so does the end of its parent.
// SIGHUP prints a line: the part of the time since the last line (or the start) in which an answer was due for more than
// 0.5 ms, as this process got no processor. Then the device is not of its speed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define WAITING_MAX 2048u                /* requests that wait here; more than the kernel may send */
#define BACKGROUND_MAX 1024u             /* requests that the kernel may have outstanding */
#define LENGTH_MAX (UINT32_C(1) << 20)   /* bytes of one request */
#define MESSAGE_MAX (LENGTH_MAX + 4096u) /* a write with its headers */
#define NS_PER_S 1e9
#define LATE_MIN_NS 500000.0

struct waiting {
    uint64_t unique;
    double due_ns;
    uint32_t read_bytes, written_bytes;
};

static struct waiting waiting[WAITING_MAX]; /* a ring, first in first out */
static uint32_t first, count;
static uint64_t size_bytes;
/* the device is free when all earlier requests have passed */
static double ops_per_s, bytes_per_s, ops_free_ns, bytes_free_ns;
static uint8_t zeros[LENGTH_MAX], message[MESSAGE_MAX];
static double since_ns, late_ns; /* the last line; answers that were more than LATE_MIN_NS late, by how much */
static volatile sig_atomic_t halved, ended, asked;

static void on_signal(int number)
{
    if (number == SIGUSR1 || number == SIGUSR2)
        halved = number == SIGUSR1;
    else if (number == SIGHUP)
        asked = 1;
    else
        ended = 1;
}

static double clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * NS_PER_S + (double)t.tv_nsec;
}

static void reply(int fd, uint64_t unique, int error, const void *body, size_t length)
{
    struct fuse_out_header head;
    struct iovec part[2];
    head.len = (uint32_t)(sizeof head + length);
    head.error = -error;
    head.unique = unique;
    part[0] = (struct iovec){&head, sizeof head};
    part[1] = (struct iovec){(void *)(uintptr_t)body, length};
    if (writev(fd, part, 2) < 0 && errno != ENOENT) /* ENOENT: no process waits for it any more */
        perror("device: reply");
}

static void enqueue(int fd, uint64_t unique, uint32_t read_bytes, uint32_t written_bytes)
{
    struct waiting *w = &waiting[(first + count) % WAITING_MAX];
    double now_ns = clock_ns(), slower = halved ? 2 : 1;
    if (count == WAITING_MAX || read_bytes > LENGTH_MAX) {
        reply(fd, unique, EIO, NULL, 0);
        return;
    }
    count++;
    ops_free_ns = (ops_free_ns > now_ns ? ops_free_ns : now_ns) + slower * NS_PER_S / ops_per_s;
    bytes_free_ns = (bytes_free_ns > now_ns ? bytes_free_ns : now_ns) +
                    slower * NS_PER_S * (read_bytes + written_bytes) / bytes_per_s;
    w->unique = unique;
    w->due_ns = ops_free_ns > bytes_free_ns ? ops_free_ns : bytes_free_ns;
    w->read_bytes = read_bytes;
    w->written_bytes = written_bytes;
}

static void answer_init(int fd, uint64_t unique, const struct fuse_init_in *in)
{
    struct fuse_init_out out;
    memset(&out, 0, sizeof out);
    out.major = FUSE_KERNEL_VERSION;
    out.minor = FUSE_KERNEL_MINOR_VERSION;
    out.max_readahead = in->max_readahead;
    out.flags = (FUSE_ASYNC_DIO | FUSE_BIG_WRITES | FUSE_MAX_PAGES) & in->flags;
    out.max_background = BACKGROUND_MAX;
    out.congestion_threshold = BACKGROUND_MAX;
    out.max_write = LENGTH_MAX;
    out.time_gran = 1;
    out.max_pages = LENGTH_MAX / 4096;
    reply(fd, unique, 0, &out, sizeof out);
}

static void answer_attributes(int fd, uint64_t unique)
{
    struct fuse_attr_out out;
    memset(&out, 0, sizeof out);
    out.attr_valid = 3600;
    out.attr.ino = FUSE_ROOT_ID;
    out.attr.mode = S_IFREG | 0600;
    out.attr.nlink = 1;
    out.attr.size = size_bytes;
    out.attr.blocks = size_bytes / 512;
    out.attr.blksize = 4096;
    reply(fd, unique, 0, &out, sizeof out);
}

static void answer_open(int fd, uint64_t unique)
{
    struct fuse_open_out out;
    memset(&out, 0, sizeof out);
    out.open_flags = FOPEN_DIRECT_IO;
    reply(fd, unique, 0, &out, sizeof out);
}

static void handle(int fd)
{
    const struct fuse_in_header *head = (const void *)message;
    const void *body = message + sizeof *head;
    switch (head->opcode) {
    case FUSE_INIT: answer_init(fd, head->unique, body); break;
    case FUSE_GETATTR:
    case FUSE_SETATTR: answer_attributes(fd, head->unique); break;
    case FUSE_OPEN: answer_open(fd, head->unique); break;
    case FUSE_READ: enqueue(fd, head->unique, ((const struct fuse_read_in *)body)->size, 0); break;
    case FUSE_WRITE: enqueue(fd, head->unique, 0, ((const struct fuse_write_in *)body)->size); break;
    case FUSE_FLUSH:
    case FUSE_FSYNC:
    case FUSE_RELEASE:
    case FUSE_DESTROY: reply(fd, head->unique, 0, NULL, 0); break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: break; /* these want no answer */
    default: reply(fd, head->unique, ENOSYS, NULL, 0); break;
    }
}

static void serve_due(int fd)
{
    double now_ns = clock_ns();
    if (count != 0 && waiting[first].due_ns + LATE_MIN_NS < now_ns)
        late_ns += now_ns - waiting[first].due_ns;
    while (count != 0 && waiting[first].due_ns <= now_ns) {
        const struct waiting *w = &waiting[first];
        struct fuse_write_out written = {w->written_bytes, 0};
        reply(fd, w->unique, 0, w->written_bytes ? (const void *)&written : zeros,
              w->written_bytes ? sizeof written : w->read_bytes);
        first = (first + 1) % WAITING_MAX;
        count--;
    }
}

/* Runs until the kernel reports that the mount is gone (ENODEV), or a signal ends it. */
static int serve(int fd)
{
    while (!ended) {
        struct pollfd ready = {fd, POLLIN, 0};
        struct timespec wait;
        double wait_ns = count ? waiting[first].due_ns - clock_ns() : 0;
        ssize_t n;
        wait_ns = wait_ns > 0 ? wait_ns : 0;
        wait.tv_sec = (time_t)(wait_ns / NS_PER_S);
        wait.tv_nsec = (long)(wait_ns - (double)wait.tv_sec * NS_PER_S);
        (void)ppoll(&ready, 1, count ? &wait : NULL, NULL);
        while ((n = read(fd, message, sizeof message)) > 0)
            handle(fd);
        if (n < 0 && errno == ENODEV)
            return 0;
        serve_due(fd);
        if (asked) {
            double now_ns = clock_ns();
            printf("%.4f\n", late_ns / (now_ns - since_ns));
            fflush(stdout);
            since_ns = now_ns;
            late_ns = 0;
            asked = 0;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    char options[64];
    int fd, status;
    if (argc != 5 || (ops_per_s = strtod(argv[3], NULL)) <= 0 || (bytes_per_s = strtod(argv[4], NULL)) <= 0) {
        fputs("usage: device FILE SIZE_MIB OPS_PER_S BYTES_PER_S\n", stderr);
        return 2;
    }
    size_bytes = (uint64_t)strtod(argv[2], NULL) << 20;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1UL);
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=0,group_id=0", fd, S_IFREG | 0600);
    if (fd < 0 || mount("device", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        perror("device: FUSE");
        return 1;
    }
    since_ns = clock_ns();
    status = serve(fd);
    umount2(argv[1], MNT_DETACH);
    return status;
}
