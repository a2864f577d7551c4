// Tenants and the files that they use.
#include "uring_files.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILL_BYTES (UINT64_C(1) << 20)
#define ALIGN_DEFAULT 4096u
#define DEPTH_OF_RATE UINT64_C(128) /* places of a tenant that does not wait for its requests */

const char *const access_name[] = {"randread", "randwrite", "read", "write", "randrw"};

bool tenant_uses(const struct tenant *t, enum qos_op op)
{
    if (t->rw == RANDRW)
        return true;
    return (t->rw == RANDWRITE || t->rw == WRITE) == (op == QOS_WRITE);
}

bool access_random(enum access_kind rw)
{
    return rw != READ && rw != WRITE;
}

/* A rate, or a percentage of the profiled rate. */
static const char *rate_or_percent(char *value, uint64_t *rate, uint64_t *percent)
{
    size_t n = strlen(value);
    const char *why;
    if (n == 0 || value[n - 1] != '%')
        return opt_rate(value, rate);
    value[n - 1] = 0;
    why = opt_count(value, percent);
    value[n - 1] = '%';
    return why || *percent == 0 || *percent > 100 ? "1% to 100% of what the tenant would get alone" : NULL;
}

uint64_t tenant_turn_ns(const struct tenant *t)
{
    return t->reserve ? qos_mul_div_ceil(t->bs, QOS_NS_PER_S, t->reserve) : 0;
}

bool tenant_timed(const struct tenant *t)
{
    return t->due_ns && (t->latency_ns || t->rate || t->think_ns);
}

static void set_key(struct tenant *t, const char *where, const char *key, char *value)
{
    const char *why = NULL;
    if (!value) {
        opt_check(where, key, NULL, "needs a value, e.g. bs=4k");
        return;
    }
    if (strcmp(key, "rw") == 0) {
        int choice = opt_choice(value, ACCESS_CHOICES);
        opt_check(where, key, value, choice < 0 ? "must be one of " ACCESS_CHOICES : NULL);
        t->rw = (enum access_kind)choice;
    } else if (strcmp(key, "bs") == 0) {
        why = opt_size(value, &t->bs);
        if (!why && (t->bs == 0 || t->bs > BLOCK_MAX_BYTES))
            why = "a block has 1 byte to 16 MiB";
    } else if (strcmp(key, "depth") == 0) {
        why = opt_count(value, &t->depth);
        if (!why && (t->depth == 0 || t->depth > DEPTH_MAX))
            why = "1 to 4096 requests at once";
    } else if (strcmp(key, "reserve") == 0) {
        why = rate_or_percent(value, &t->reserve, &t->reserve_percent);
    } else if (strcmp(key, "limit") == 0) {
        why = rate_or_percent(value, &t->limit, &t->limit_percent);
    } else if (strcmp(key, "weight") == 0) {
        why = opt_count(value, &t->weight);
        if (!why && (t->weight == 0 || t->weight > HTB_WEIGHT_MAX))
            why = "1 to 1000000";
    } else if (strcmp(key, "start") == 0) {
        why = opt_time(value, &t->start_ns);
    } else if (strcmp(key, "rate") == 0) {
        why = opt_rate(value, &t->rate);
        if (!why && t->rate == 0)
            why = "more than 0; without it, a request is made when one is done";
    } else if (strcmp(key, "arrivals") == 0) {
        int choice = opt_choice(value, "poisson|constant");
        t->constant = choice == 1;
        why = choice < 0 ? "must be one of poisson|constant" : NULL;
    } else if (strcmp(key, "burst") == 0) {
        why = opt_count(value, &t->burst);
        if (!why && (t->burst == 0 || t->burst > DEPTH_MAX))
            why = "1 to 4096 requests at a time";
    } else if (strcmp(key, "think") == 0) {
        why = opt_time(value, &t->think_ns);
    } else if (strcmp(key, "latency") == 0) {
        why = opt_time(value, &t->latency_ns);
        if (!why && (t->latency_ns == 0 || t->latency_ns > LATENCY_MAX_NS))
            why = "more than 0, at most 10s";
    } else if (strcmp(key, "area") == 0) {
        why = opt_size(value, &t->area);
    } else if (strcmp(key, "write") == 0) {
        why = opt_count(value, &t->write_percent);
        if (!why && t->write_percent > 100)
            why = "percent of writes in randrw: 0 to 100";
    } else if (strcmp(key, "file") == 0) {
        t->file = tool_copy(value);
    } else {
        why =
            "no such key; rw, bs, depth, rate, arrivals, burst, think, reserve, limit, latency, weight, start, write, "
            "area, file are";
    }
    opt_check(where, key, value, why);
}

void tenant_add(struct settings *s, const char *spec)
{
    char *copy = tool_copy(spec), *rest = strchr(copy, ':'), *key, *value, where[64];
    struct tenant *t = &s->tenant[s->tenants];
    uint32_t i;
    if (s->tenants == TENANTS_MAX)
        tool_die(TOOL_USAGE, "at most %d tenants", TENANTS_MAX);
    if (rest)
        *rest++ = 0;
    if (!*copy)
        tool_die(TOOL_USAGE, "tenant %u: has no name; write e.g. --tenant mail:rw=randread,bs=4k", s->tenants + 1);
    memset(t, 0, sizeof *t);
    t->name = tool_copy(copy);
    t->rw = RANDREAD;
    t->bs = 4096;
    t->weight = 1;
    t->burst = 1;
    t->write_percent = 50;
    snprintf(where, sizeof where, "tenant %u (%.40s)", s->tenants + 1, t->name);
    for (i = 0; i < s->tenants; i++)
        if (strcmp(s->tenant[i].name, t->name) == 0)
            tool_die(TOOL_USAGE, "%s: that name is taken by tenant %u", where, i + 1);
    while (opt_next_pair(&rest, &key, &value))
        set_key(t, where, key, value);
    if (t->area && t->area < t->bs)
        tool_die(TOOL_USAGE, "%s: its area is smaller than a block", where);
    if (t->limit && t->limit < t->reserve)
        tool_die(TOOL_USAGE, "%s: the limit is below the reservation", where);
    if (t->rate && t->think_ns)
        tool_die(TOOL_USAGE, "%s: rate= says when it asks, think= says that it waits; give one of them", where);
    if (!t->rate && (t->burst > 1 || t->constant))
        tool_die(TOOL_USAGE, "%s: burst= and arrivals= need a rate=", where);
    if (t->latency_ns && !t->reserve && !t->reserve_percent)
        tool_die(TOOL_USAGE, "%s: latency= needs a reserve=: a request's turn comes at that rate", where);
    if (!t->depth)
        t->depth = t->rate ? qos_max(DEPTH_OF_RATE, t->burst) : 16;
    s->tenants++;
    free(copy);
}

/* Fills a new file with incompressible data, so that reads reach the device. */
static void create_file(struct target *t, uint64_t size, uint64_t seed)
{
    uint64_t *block = tool_alloc_aligned(FILL_BYTES, ALIGN_DEFAULT), at, i;
    struct qos_rng rng;
    int fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), wrong;
    if (fd < 0)
        tool_die(TOOL_FAILED, "%s: cannot create: %s", t->path, strerror(errno));
    t->created = true;
    temp_add(t->path);
    wrong = posix_fallocate(fd, 0, (off_t)size);
    if (wrong == ENOSPC || wrong == EFBIG)
        tool_die(TOOL_FAILED, "%s: %s do not fit on this file system", t->path, human_bytes((double)size).text);
    qos_rng_seed(&rng, seed);
    for (i = 0; i < FILL_BYTES / sizeof *block; i++)
        block[i] = qos_rng_u64(&rng);
    for (at = 0; at < size && !stop_asked();) {
        uint64_t left = size - at;
        ssize_t n;
        block[at / FILL_BYTES % (FILL_BYTES / sizeof *block)] ^= at + 1; /* no two blocks alike */
        n = pwrite(fd, block, (size_t)qos_min(left, FILL_BYTES), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            tool_die(TOOL_FAILED, "%s: cannot write: %s", t->path, strerror(n < 0 ? errno : ENOSPC));
        at += (uint64_t)n;
    }
    if (fdatasync(fd) != 0)
        tool_die(TOOL_FAILED, "%s: cannot write: %s", t->path, strerror(errno));
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    free(block);
}

/* Alignment that O_DIRECT requires; from the file system if it reports one. */
static uint32_t direct_align(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 && (x.stx_mask & STATX_DIOALIGN) &&
        x.stx_dio_offset_align)
        return x.stx_dio_offset_align > x.stx_dio_mem_align ? x.stx_dio_offset_align : x.stx_dio_mem_align;
#endif
    (void)fd;
    return 512;
}

/* The reason why O_DIRECT cannot be used although the file was opened with it, or NULL. */
static const char *direct_obstacle(const struct settings *s, uint32_t index, char *why, size_t size)
{
    uint32_t i;
    for (i = 0; i < s->tenants; i++)
        if (s->tenant[i].target == index && s->tenant[i].bs % s->target[index].align != 0) {
            snprintf(why, size, "the blocks of tenant %s are no multiple of %u bytes", s->tenant[i].name,
                     s->target[index].align);
            return why;
        }
    return NULL;
}

static void open_target(struct settings *s, uint32_t index)
{
    struct target *t = &s->target[index];
    int flags = (t->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    const char *obstacle = NULL;
    char why[128];
    struct stat st;
    bool exists = stat(t->path, &st) == 0;
    if (!exists && errno != ENOENT)
        tool_die(TOOL_FAILED, "%s: %s", t->path, strerror(errno));
    if (!exists && s->size == 0)
        tool_die(TOOL_USAGE, "%s: does not exist; with --size 2G it is created, and removed at the end", t->path);
    if (exists && S_ISDIR(st.st_mode))
        tool_die(TOOL_USAGE, "%s: is a directory; name a file in it", t->path);
    if (exists && t->writable && !s->overwrite)
        tool_die(TOOL_USAGE, "%s: exists, and a tenant would write to it; --overwrite allows that", t->path);
    if (!exists)
        create_file(t, s->size, s->seed);
    t->fd = -1;
    t->align = 1;
    if (s->direct != 2) { /* auto or yes */
        t->fd = open(t->path, flags | O_DIRECT);
        if (t->fd < 0 && errno != EINVAL)
            tool_die(TOOL_FAILED, "%s: cannot open: %s", t->path, strerror(errno));
        t->direct = t->fd >= 0;
        t->align = t->direct ? direct_align(t->fd) : 1;
        obstacle = t->direct ? direct_obstacle(s, index, why, sizeof why) : "this file system has no O_DIRECT";
        if (obstacle && s->direct == 1)
            tool_die(TOOL_FAILED, "%s: --direct yes, but %s", t->path, obstacle);
        if (obstacle)
            tool_warn("%s: %s: buffered I/O instead, so the page cache answers", t->path, obstacle);
    }
    if (obstacle || s->direct == 2) {
        if (t->fd >= 0)
            close(t->fd);
        t->fd = open(t->path, flags);
        t->direct = false;
        t->align = 1;
    }
    if (t->fd < 0 || fstat(t->fd, &st) != 0)
        tool_die(TOOL_FAILED, "%s: cannot open: %s", t->path, strerror(errno));
    t->size_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : s->size;
    if (S_ISBLK(st.st_mode) && ioctl(t->fd, BLKGETSIZE64, &t->size_bytes) != 0)
        tool_die(TOOL_FAILED, "%s: cannot ask for its size: %s", t->path, strerror(errno));
    if (t->size_bytes < s->size)
        tool_die(TOOL_FAILED, "%s: has %s, --size asks for %" PRIu64 " bytes; leave --size out to use what is there",
                 t->path, human_bytes((double)t->size_bytes).text, s->size);
    if (s->size)
        t->size_bytes = s->size;
}

void targets_open(struct settings *s)
{
    uint32_t i, k;
    for (i = 0; i < s->tenants; i++) {
        struct tenant *t = &s->tenant[i];
        const char *path = t->file ? t->file : s->file;
        if (!path)
            tool_die(TOOL_USAGE, "tenant %s has no file; give --file PATH, or file=PATH in the tenant", t->name);
        for (k = 0; k < s->targets && strcmp(s->target[k].path, path) != 0; k++)
            ;
        if (k == s->targets)
            s->target[s->targets++].path = tool_copy(path);
        t->target = k;
        s->target[k].writable |= tenant_uses(t, QOS_WRITE);
    }
    for (k = 0; k < s->targets; k++)
        open_target(s, k);
    for (i = 0; i < s->tenants; i++)
        if (s->target[s->tenant[i].target].size_bytes < s->tenant[i].bs)
            tool_die(TOOL_FAILED, "%s: has %" PRIu64 " bytes, less than one block of tenant %s",
                     s->target[s->tenant[i].target].path, s->target[s->tenant[i].target].size_bytes, s->tenant[i].name);
}

void targets_close(struct settings *s)
{
    uint32_t k;
    for (k = 0; k < s->targets; k++) {
        close(s->target[k].fd);
        if (s->target[k].created && s->keep)
            temp_forget(s->target[k].path);
    }
}
