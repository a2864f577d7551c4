/* twochoice_disk.h - a storage for the log that can fail and crash: writes and cuts since the last sync may be undone,
 * cut at any byte, or lose any of their sectors. What a failed sync did not write is never written, until the log is
 * created anew. Shared by the tests of twochoice.h. */
#ifndef QOS_TESTS_TWOCHOICE_DISK_H
#define QOS_TESTS_TWOCHOICE_DISK_H

#include "check.h"
#include "twochoice.h"
#include "twochoice_calls.h"

struct disk_file {
    uint8_t *data;
    size_t len, capacity, durable; /* bytes [0, durable) survive a crash */
    bool stuck;                    /* a sync failed: nothing more becomes durable */
};

struct disk {
    struct disk_file log[3];         /* two logs and the mark */
    int active;                      /* index of the active log */
    uint64_t operations, stop_after; /* the operation of this number fails half done; all later ones do not happen */
    struct check_rng *rng;
    bool stopped;
    bool lies;            /* the syncs after one that failed succeed, and do nothing */
    unsigned fail_one_in; /* each operation fails once in so many; 0: never */
    uint64_t failures, creates;
    uint8_t mark[1024]; /* the mark as it was synced: it is overwritten in place */
    size_t mark_len;
};

static CHECK_UNUSED void disk_resize(struct disk_file *f, size_t len)
{
    if (len > f->capacity) {
        f->capacity = len * 2 + 4096;
        f->data = (uint8_t *)realloc(f->data, f->capacity);
        if (!f->data) {
            printf("out of memory\n");
            exit(1);
        }
    }
    if (len > f->len)
        memset(f->data + f->len, 0, len - f->len);
    f->len = len;
    if (f->durable > len)
        f->durable = len;
}

/* True if this operation is the one that stops the machine, or a later one. */
static CHECK_UNUSED bool disk_stops(struct disk *d, bool *half)
{
    *half = false;
    if (d->stopped)
        return true;
    if (d->fail_one_in && check_between(d->rng, 1, d->fail_one_in) == 1) {
        d->failures++;
        return true;
    }
    if (++d->operations != d->stop_after)
        return false;
    d->stopped = true;
    *half = true;
    return true;
}

static CHECK_UNUSED int disk_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    struct disk_file *f = &((struct disk *)ctx)->log[log];
    *got = offset >= f->len ? 0 : f->len - (size_t)offset < len ? f->len - (size_t)offset : len;
    if (*got)
        memcpy(buf, f->data + offset, *got);
    return 0;
}

static CHECK_UNUSED int disk_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    struct disk *d = (struct disk *)ctx;
    bool half, stops = disk_stops(d, &half);
    if (stops && !half)
        return -1;
    CHECK_LE(offset, d->log[log].len);
    if (log == TWOCHOICE_MARK_LOG)
        d->log[log].stuck = false;
    if (half)
        len = (size_t)check_between(d->rng, 0, len);
    if (offset + len > d->log[log].len)
        disk_resize(&d->log[log], (size_t)offset + len);
    if (len)
        memcpy(d->log[log].data + offset, buf, len);
    return stops ? -1 : 0;
}

static CHECK_UNUSED int disk_sync(void *ctx, int log)
{
    struct disk *d = (struct disk *)ctx;
    bool half, stops = disk_stops(d, &half);
    if (stops && (!half || check_between(d->rng, 0, 1))) {
        d->log[log].stuck = true;
        return -1;
    }
    if (d->log[log].stuck)
        return stops || !d->lies ? -1 : 0;
    d->log[log].durable = d->log[log].len;
    if (log == TWOCHOICE_MARK_LOG) {
        d->mark_len = d->log[log].len < sizeof d->mark ? d->log[log].len : sizeof d->mark;
        if (d->mark_len)
            memcpy(d->mark, d->log[log].data, d->mark_len);
    }
    return stops ? -1 : 0;
}

static CHECK_UNUSED int disk_create(void *ctx, int log)
{
    struct disk *d = (struct disk *)ctx;
    bool half, stops = disk_stops(d, &half);
    if (stops && (!half || check_between(d->rng, 0, 1)))
        return -1;
    d->creates++;
    disk_resize(&d->log[log], 0);
    d->log[log].stuck = false;
    return stops ? -1 : 0;
}

/* Atomic: after a stop it is done or not done, and the caller does not learn which. */
static CHECK_UNUSED int disk_swap(void *ctx, int log)
{
    struct disk *d = (struct disk *)ctx;
    bool half, stops = disk_stops(d, &half);
    if (stops && (!half || check_between(d->rng, 0, 1)))
        return -1;
    d->active = log;
    return stops ? -1 : 0;
}

/* A new start: the active log becomes log 0, the other one is gone. */
static CHECK_UNUSED void disk_restart(struct disk *d)
{
    struct disk_file old = d->log[0];
    if (d->active == 1) {
        d->log[0] = d->log[1];
        d->log[1] = old;
    }
    d->active = 0;
    disk_resize(&d->log[1], 0);
    d->log[TWOCHOICE_MARK_LOG].stuck = false; /* another process does not learn of it */
}

/* Each sector of the mark is as at the last sync, or as written since, or torn between the two. */
static CHECK_UNUSED void disk_crash_mark(struct disk *d)
{
    struct disk_file *f = &d->log[TWOCHOICE_MARK_LOG];
    size_t at;
    if (f->len > d->mark_len && check_between(d->rng, 0, 1))
        disk_resize(f, d->mark_len);
    for (at = 0; at < f->len && at < d->mark_len; at += 512) {
        size_t from = (size_t)check_between(d->rng, 0, 512), to = 512;
        if (check_between(d->rng, 0, 2) == 0)
            from = 0;
        if (at + to > f->len)
            to = f->len - at;
        if (at + to > d->mark_len)
            to = d->mark_len - at;
        if (from < to && check_between(d->rng, 0, 1))
            memcpy(f->data + at + from, d->mark + at + from, to - from);
    }
    if (f->len)
        memcpy(d->mark, f->data, f->len < sizeof d->mark ? f->len : sizeof d->mark);
    d->mark_len = f->len;
    f->durable = f->len;
}

/* The power comes back: bytes that were not durable are cut at any byte, or have lost any of their sectors. */
static CHECK_UNUSED void disk_crash(struct disk *d)
{
    int i;
    disk_crash_mark(d);
    for (i = 0; i < 2; i++) {
        struct disk_file *f = &d->log[i];
        f->stuck = false;
        if (check_between(d->rng, 0, 1)) {
            disk_resize(f, (size_t)check_between(d->rng, f->durable, f->len));
        } else {
            size_t at = f->durable, next;
            for (; at < f->len; at = next) {
                next = at / 512 * 512 + 512;
                if (next > f->len)
                    next = f->len;
                if (check_between(d->rng, 0, 1))
                    memset(f->data + at, 0, next - at);
            }
        }
        f->durable = f->len;
    }
    disk_restart(d);
    d->stopped = false;
    d->stop_after = 0;
    d->operations = 0;
}

static CHECK_UNUSED void disk_init(struct disk *d, struct check_rng *rng, struct twochoice_storage *s)
{
    memset(d, 0, sizeof *d);
    d->rng = rng;
    s->ctx = d;
    s->create = disk_create;
    s->read = disk_read;
    s->write = disk_write;
    s->sync = disk_sync;
    s->swap = disk_swap;
}

static CHECK_UNUSED void disk_free(struct disk *d)
{
    int i;
    for (i = 0; i < 3; i++) {
        free(d->log[i].data);
    }
}

#endif
