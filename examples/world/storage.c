// Simulated files on a disk that forgets: see storage.h.
#include "storage.h"

static void *grown(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

static void forget_changes(struct world_file *f)
{
    size_t i;
    for (i = 0; i < f->change_count; i++)
        free(f->changes[i].data);
    f->change_count = 0;
}

static void add_change(struct world_file *f, uint64_t offset, const void *data, uint64_t len)
{
    struct world_change *c;
    if (f->change_count == f->change_room) {
        f->change_room = f->change_room ? 2 * f->change_room : 16;
        f->changes = (struct world_change *)grown(f->changes, f->change_room * sizeof *f->changes);
    }
    c = &f->changes[f->change_count++];
    c->offset = offset;
    c->len = len;
    c->data = NULL;
    if (data) {
        c->data = (uint8_t *)grown(NULL, len ? (size_t)len : 1);
        memcpy(c->data, data, (size_t)len);
    }
}

static void put(uint8_t *bytes, uint64_t *len, uint64_t offset, const uint8_t *data, uint64_t n)
{
    memcpy(bytes + offset, data, (size_t)n);
    if (offset + n > *len)
        *len = offset + n;
}

static void cut_to(uint8_t *bytes, uint64_t *len, uint64_t to)
{
    if (to < *len) {
        memset(bytes + to, 0, (size_t)(*len - to));
        *len = to;
    }
}

/* The sectors of the changes that reach the disk: each with this chance, in order. */
static void settle(struct world_storage *s, struct world_file *f, uint32_t permille)
{
    size_t i;
    for (i = 0; i < f->change_count; i++) {
        const struct world_change *c = &f->changes[i];
        uint64_t at = c->offset, end = c->offset + c->len, kept = 0, parts = 0;
        if (!c->data) {
            if (world_chance(&s->rng, permille))
                cut_to(f->disk, &f->disk_len, c->offset);
            continue;
        }
        while (at < end) {
            uint64_t next = (at / WORLD_STORAGE_SECTOR + 1) * WORLD_STORAGE_SECTOR;
            next = next < end ? next : end;
            parts++;
            if (world_chance(&s->rng, permille)) {
                put(f->disk, &f->disk_len, at, c->data + (at - c->offset), next - at);
                kept++;
            }
            at = next;
        }
        s->torn += kept > 0 && kept < parts;
        s->kept += kept == parts;
        s->lost += kept == 0;
    }
    forget_changes(f);
}

void world_storage_init(struct world_storage *s, const struct world_storage_config *config, uint64_t seed)
{
    int i;
    memset(s, 0, sizeof *s);
    s->config = *config;
    s->cut_at = UINT64_MAX;
    world_rng_init(&s->rng, seed, 77);
    for (i = 0; i < WORLD_STORAGE_NAMES; i++)
        s->on_disk[i] = -1;
}

void world_storage_free(struct world_storage *s)
{
    int i;
    for (i = 0; i < WORLD_STORAGE_FILES; i++) {
        forget_changes(&s->file[i]);
        free(s->file[i].changes);
        free(s->file[i].now);
        free(s->file[i].disk);
    }
    memset(s->file, 0, sizeof s->file); /* a world that ends early frees what it has not begun anew */
}

void world_storage_cut_in(struct world_storage *s, uint64_t after)
{
    s->cut_at = s->calls + after;
}

void world_storage_cut(struct world_storage *s)
{
    s->off = true;
    s->cuts++;
    s->cut_at = UINT64_MAX;
}

/* Each call begins here: 1 if the power is off or goes now. A cut in a call is before or after its effect, by chance:
 * *after is true where the effect still happens. */
static int begin(struct world_storage *s, bool *after)
{
    *after = false;
    if (s->off)
        return 1;
    if (s->calls++ < s->cut_at)
        return 0;
    *after = world_chance(&s->rng, 500);
    world_storage_cut(s);
    return 1;
}

static struct world_file *opened(struct world_storage *s, int file)
{
    return file >= 0 && file < WORLD_STORAGE_FILES && s->file[file].open ? &s->file[file] : NULL;
}

static bool named(const struct world_storage *s, int file)
{
    int n;
    for (n = 0; n < WORLD_STORAGE_NAMES; n++)
        if (s->on_disk[n] == file)
            return true;
    return false;
}

int world_storage_create(struct world_storage *s, int name)
{
    struct world_file *f;
    bool after;
    int i = 0;
    if (name < 0 || name >= WORLD_STORAGE_NAMES || (begin(s, &after) && !after))
        return -1;
    while (i < WORLD_STORAGE_FILES && (s->file[i].open || named(s, i)))
        i++;
    if (i == WORLD_STORAGE_FILES)
        return -1;
    f = &s->file[i];
    if (!f->now) {
        f->now = (uint8_t *)grown(NULL, WORLD_STORAGE_BYTES);
        f->disk = (uint8_t *)grown(NULL, WORLD_STORAGE_BYTES);
    }
    forget_changes(f);
    memset(f->now, 0, WORLD_STORAGE_BYTES);
    memset(f->disk, 0, WORLD_STORAGE_BYTES);
    f->now_len = f->disk_len = 0;
    f->name = name;
    f->open = true;
    f->bad = false;
    return s->off ? -1 : i;
}

int world_storage_open(struct world_storage *s, int name)
{
    bool after;
    int file = name >= 0 && name < WORLD_STORAGE_NAMES && !begin(s, &after) ? s->on_disk[name] : -1;
    if (file >= 0)
        s->file[file].open = true;
    return file;
}

void world_storage_close(struct world_storage *s, int file)
{
    struct world_file *f = opened(s, file);
    if (f && !named(s, file))
        forget_changes(f);
    if (f)
        f->open = false;
}

int world_storage_read(struct world_storage *s, int file, uint64_t offset, void *buf, uint64_t len, uint64_t *got)
{
    struct world_file *f = opened(s, file);
    bool after;
    *got = 0;
    if (begin(s, &after) || !f)
        return 1;
    if (offset < f->now_len) {
        *got = f->now_len - offset < len ? f->now_len - offset : len;
        memcpy(buf, f->now + offset, (size_t)*got);
    }
    return 0;
}

static uint64_t used_bytes(const struct world_storage *s)
{
    uint64_t sum = 0;
    int i;
    for (i = 0; i < WORLD_STORAGE_FILES; i++)
        sum += s->file[i].open || named(s, i) ? s->file[i].now_len : 0;
    return sum;
}

int world_storage_write(struct world_storage *s, int file, uint64_t offset, const void *buf, uint64_t len)
{
    struct world_file *f = opened(s, file);
    bool after, fails;
    if (!f || offset + len > WORLD_STORAGE_BYTES || (begin(s, &after) && !after) || f->bad || offset > f->now_len)
        return 1;
    fails = world_chance(&s->rng, s->config.write_fails_permille);
    if (s->config.capacity_bytes && offset + len > f->now_len &&
        used_bytes(s) + (offset + len - f->now_len) > s->config.capacity_bytes) {
        s->full++;
        fails = true;
    }
    if (fails) {
        s->failed_writes++;
        len = world_between(&s->rng, 0, len); /* a part of it is there */
    }
    if (len) {
        put(f->now, &f->now_len, offset, (const uint8_t *)buf, len);
        add_change(f, offset, buf, len);
    }
    return fails || s->off;
}

int world_storage_truncate(struct world_storage *s, int file, uint64_t len)
{
    struct world_file *f = opened(s, file);
    bool after;
    if (!f || (begin(s, &after) && !after) || f->bad)
        return 1;
    if (world_chance(&s->rng, s->config.truncate_fails_permille))
        return 1;
    cut_to(f->now, &f->now_len, len);
    add_change(f, len, NULL, 0);
    return s->off;
}

int world_storage_sync(struct world_storage *s, int file)
{
    struct world_file *f = opened(s, file);
    bool after;
    if (!f || (begin(s, &after) && !after) || f->bad)
        return 1;
    if (world_chance(&s->rng, s->config.sync_fails_permille)) {
        /* What was not written is marked clean all the same: the next sync does not write it either. */
        s->failed_syncs++;
        settle(s, f, (uint32_t)world_between(&s->rng, 0, 3) * 300);
        f->bad = s->config.sync_sticky;
        return 1;
    }
    settle(s, f, 1000);
    if (f->name >= 0)
        s->on_disk[f->name] = file;
    f->name = -1;
    return s->off;
}

int world_storage_rename(struct world_storage *s, int file, int name)
{
    struct world_file *f = opened(s, file);
    bool after;
    int n;
    if (name < 0 || name >= WORLD_STORAGE_NAMES || !f || (begin(s, &after) && !after))
        return 1;
    if (world_chance(&s->rng, s->config.rename_fails_permille))
        return 1;
    for (n = 0; n < WORLD_STORAGE_NAMES; n++)
        if (s->on_disk[n] == file)
            s->on_disk[n] = -1;
    s->on_disk[name] = file;
    f->name = -1;
    return s->off;
}

void world_storage_boot(struct world_storage *s)
{
    uint32_t permille = s->config.kept_permille;
    int i;
    if (permille > 1000)
        permille = world_chance(&s->rng, 500) ? (uint32_t)world_between(&s->rng, 0, 1) * 1000
                                              : (uint32_t)world_between(&s->rng, 1, 9) * 100;
    for (i = 0; i < WORLD_STORAGE_FILES; i++) {
        struct world_file *f = &s->file[i];
        if (!f->open && !named(s, i))
            continue;
        /* A new entry may have reached the disk by itself; the kernel, if it lives, knows it. */
        if (f->open && f->name >= 0 && (!s->off || world_chance(&s->rng, permille)))
            s->on_disk[f->name] = i;
        if (s->off) {
            settle(s, f, permille);
            memcpy(f->now, f->disk, WORLD_STORAGE_BYTES);
            f->now_len = f->disk_len;
        }
        f->name = -1;
        f->open = f->bad = false;
    }
    s->off = false;
    s->cut_at = UINT64_MAX;
}
