// Backend: random 4 KiB reads of a file through io_uring, O_DIRECT where the file system has it.
//
// The file is written once, each block with its number, and unlinked at once: it disappears with the process, however
// that ends. Each tick of the node submits once and checks completions once.
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u
#define DEPTH 64u
#define CHUNK_BYTES (1u << 20)

static struct {
    struct io_uring ring;
    int fd;
    uint8_t *buffers, *free_buffer[DEPTH];
    uint32_t free_buffers;
    struct request *waiting, **waiting_end; /* at most DEPTH requests come at a time, but failed ones may queue up */
    bool open;
} f = {.fd = -1};

static bool fill(char *why, size_t size)
{
    uint8_t *chunk = tool_alloc_aligned(CHUNK_BYTES, BLOCK_BYTES);
    uint64_t at, block, b;
    bool ok = true;
    for (at = 0; ok && at < settings.size_bytes && !stop_asked(); at += CHUNK_BYTES) {
        for (b = 0; b < CHUNK_BYTES; b += BLOCK_BYTES) {
            block = (at + b) / BLOCK_BYTES;
            memcpy(chunk + b, &block, sizeof block);
        }
        ok = pwrite(f.fd, chunk, CHUNK_BYTES, (off_t)at) == (ssize_t)CHUNK_BYTES;
        if (!ok)
            snprintf(why, size, "cannot write a file of %s in %s: %s", human_bytes((double)settings.size_bytes).text,
                     settings.dir, errno ? strerror(errno) : "the disk is full");
    }
    if (ok && fdatasync(f.fd) != 0) {
        snprintf(why, size, "cannot write to %s: %s", settings.dir, strerror(errno));
        ok = false;
    }
    free(chunk);
    return ok;
}

static bool start(uint32_t node, char *why, size_t size)
{
    char path[4096];
    int rc;
    uint32_t k;
    snprintf(path, sizeof path, "%s/pshift_cluster-%d-%u", settings.dir, (int)getpid(), node + 1);
    f.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0600);
    if (f.fd < 0 && errno == EINVAL) /* tmpfs */
        f.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (f.fd < 0) {
        snprintf(why, size, "cannot create %s: %s", path, strerror(errno));
        return false;
    }
    unlink(path);
    rc = io_uring_queue_init(DEPTH, &f.ring, 0);
    if (rc < 0) {
        snprintf(why, size, "no io_uring: %s", strerror(-rc));
        close(f.fd);
        return false;
    }
    f.open = true;
    f.buffers = tool_alloc_aligned((size_t)DEPTH * BLOCK_BYTES, BLOCK_BYTES);
    for (k = 0; k < DEPTH; k++)
        f.free_buffer[k] = f.buffers + (size_t)k * BLOCK_BYTES;
    f.free_buffers = DEPTH;
    f.waiting = NULL;
    f.waiting_end = &f.waiting;
    return fill(why, size);
}

static void submit(struct request *list)
{
    *f.waiting_end = list;
    while (*f.waiting_end)
        f.waiting_end = &(*f.waiting_end)->next;
    while (f.waiting && f.free_buffers) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&f.ring);
        struct request *r = f.waiting;
        if (!sqe)
            break;
        f.waiting = r->next;
        r->buffer = f.free_buffer[--f.free_buffers];
        io_uring_prep_read(sqe, f.fd, r->buffer, BLOCK_BYTES, r->object * BLOCK_BYTES);
        io_uring_sqe_set_data(sqe, r);
    }
    if (!f.waiting)
        f.waiting_end = &f.waiting;
    io_uring_submit(&f.ring);
}

static struct request *collect(void)
{
    struct request *list = NULL;
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&f.ring, &cqe) == 0) {
        struct request *r = io_uring_cqe_get_data(cqe);
        r->failed = cqe->res < 0;
        r->wrong = !r->failed && (cqe->res != (int)BLOCK_BYTES || memcmp(r->buffer, &r->object, sizeof r->object) != 0);
        f.free_buffer[f.free_buffers++] = r->buffer;
        r->next = list;
        list = r;
        io_uring_cqe_seen(&f.ring, cqe);
    }
    return list;
}

static void look_after(uint64_t now_ns)
{
    (void)now_ns;
    if (f.waiting)
        submit(NULL);
}

static bool ready(void)
{
    return f.open;
}

static void fault(const struct fault *what, uint64_t now_ns)
{
    (void)what; /* main.c refuses faults with files */
    (void)now_ns;
}

static uint64_t cpu_ns(void)
{
    return 0;
}

static void stop(void)
{
    if (!f.open)
        return;
    io_uring_queue_exit(&f.ring); /* waits for requests in flight, or cancels them */
    close(f.fd);
    if (f.free_buffers == DEPTH) /* otherwise the kernel may still write to them; the process ends anyway */
        free(f.buffers);
    f.open = false;
}

const struct backend backend_file = {"file",     1000,  DEPTH, start,  submit, collect,
                                     look_after, ready, fault, cpu_ns, stop,   false};
