/* storage.h - simulated files on a disk that forgets                                    SPDX-License-Identifier: MIT
 *
 * A few small files in a page cache above a disk. What was written is seen at once, and is durable after a sync. A power
 * cut ends the process: of each file the disk has what the last good sync left and, of each change since then (sector
 * by sector for writes, whole for truncates), the new or the old state, in any mixture. A file that was made new, or
 * renamed without a sync, is there or not.
 *
 *     now        what the process sees        = disk + changes, in order
 *     disk       what a power cut leaves      = disk + any part of changes
 *     changes    since the last good sync; a failed sync may lose any part of them, and later syncs do not know
 *
 * Faults, all by seed: a write that fails (with a part of it written), a sync that fails once and then "succeeds", or
 * fails until the file is given up; a full disk; a power cut before, in or after any call, as far away as is asked.
 * All functions return 0 for success; after a power cut every call fails until world_storage_boot. */
#ifndef QOS_WORLD_STORAGE_H
#define QOS_WORLD_STORAGE_H

#include "world.h"

#define WORLD_STORAGE_NAMES 4  /* names in the only directory: 0..3 */
#define WORLD_STORAGE_FILES 16 /* at once: open, or with a name */
#define WORLD_STORAGE_SECTOR 512
#define WORLD_STORAGE_BYTES (128 * 1024) /* the longest file */

struct world_storage_config {
    uint32_t write_fails_permille, sync_fails_permille, truncate_fails_permille, rename_fails_permille;
    bool sync_sticky;        /* after a failed sync every call for this file fails, as a careful caller makes it */
    uint64_t capacity_bytes; /* of all files together; 0: no limit */
    uint32_t
        kept_permille; /* of the unsynced sectors a cut keeps; above 1000: drawn at each cut: none, all, or a part */
};

struct world_change {
    uint64_t offset, len;
    uint8_t *data; /* NULL: truncate to offset */
};

struct world_file {
    uint8_t *now, *disk;
    uint64_t now_len, disk_len;
    struct world_change *changes;
    size_t change_count, change_room;
    int name; /* the directory entry that it was made under and that is not durable yet; -1: none */
    bool open, bad;
};

struct world_storage {
    struct world_storage_config config;
    struct world_rng rng;
    struct world_file file[WORLD_STORAGE_FILES];
    int on_disk[WORLD_STORAGE_NAMES]; /* the directory on the disk: a file, or -1 */
    bool off;
    uint64_t calls, cut_at; /* the power goes in this call; UINT64_MAX: never */
    /* how often each was met, for reports */
    uint64_t cuts, torn, lost, kept, failed_writes, failed_syncs, full;
};

void world_storage_init(struct world_storage *s, const struct world_storage_config *config, uint64_t seed);
void world_storage_free(struct world_storage *s);

/* A new, empty file: new blocks. The directory has it under this name after the next sync of it, which replaces the file
 * that had the name. The result is its number for the calls below, or -1. */
int world_storage_create(struct world_storage *s, int name);
/* The file that has this name on the disk: its number, or -1. After a boot. */
int world_storage_open(struct world_storage *s, int name);
/* The process has it no longer. */
void world_storage_close(struct world_storage *s, int file);
int world_storage_read(struct world_storage *s, int file, uint64_t offset, void *buf, uint64_t len, uint64_t *got);
int world_storage_write(struct world_storage *s, int file, uint64_t offset, const void *buf, uint64_t len);
int world_storage_truncate(struct world_storage *s, int file, uint64_t len);
int world_storage_sync(struct world_storage *s, int file);
/* The file gets this name, in place of the file that had it: atomic and durable, or nothing changed. */
int world_storage_rename(struct world_storage *s, int file, int name);

/* The power goes in the call number `after` from now, 0: the next one. */
void world_storage_cut_in(struct world_storage *s, uint64_t after);
/* The power goes now. */
void world_storage_cut(struct world_storage *s);
/* The process begins again. After a cut the disk is all there is; otherwise the process died alone, and the page cache is as
 * it was. No file is open. */
void world_storage_boot(struct world_storage *s);

#endif
