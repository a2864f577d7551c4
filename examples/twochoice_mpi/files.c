// Object files and the two logs, below one directory:
//
//     objects/ID     what is at home here           redirect.log    the table's log
//     away/ID-STAMP  kept for another home          redirect.next   the one that a compaction writes
//                                                   redirect.mark   how much of the log is durable
#include "twochoice_mpi.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_OPEN 200u
#define LOCK_TRIES 300u /* in 3 s */

static const char *const log_name[3] = {"redirect.log", "redirect.next", "redirect.mark"};
#define ACTIVE_NAME log_name[0]
#define NEXT_NAME log_name[1]

static void path_of(const struct files *f, char *path, size_t size, uint64_t object, uint64_t stamp)
{
    if (stamp)
        snprintf(path, size, "%s/away/%016" PRIx64 "-%012" PRIx64, f->dir, object, stamp);
    else
        snprintf(path, size, "%s/objects/%016" PRIx64, f->dir, object);
}

/* Makes names in the directory durable. */
static bool sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool sub_dir(const struct files *f, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return plot_mkdir(path) && sync_dir(path) && sync_dir(f->dir); /* a killed process may have made a name there */
}

/* Reserves room for all records: then a full disk stops data, but not the table. */
static bool keep_room(struct files *f, int log)
{
    uint64_t bytes = log == TWOCHOICE_MARK_LOG ? 1024 : f->log_bytes;
    if (fallocate(f->log_fd[log], FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
        return true;
    tool_warn("%s: no room for %s of the log: %s", f->dir, human_bytes((double)bytes).text, strerror(errno));
    return false;
}

/* first: the server has no log yet; without room for one it does not begin. */
static bool open_log(struct files *f, int log, const char *name, bool first)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    f->log_fd[log] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->log_fd[log] < 0)
        return false;
    return keep_room(f, log) || !first;
}

/* Does this name have any bytes? */
static bool has_bytes(const struct files *f, int log)
{
    char path[600];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", f->dir, log_name[log]);
    return stat(path, &st) == 0 && st.st_size != 0;
}

/* Two processes would each replace the other's log. That of a job which was killed may still be ending. */
static bool lock_dir(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* held until this process ends */
    unsigned tried;
    for (tried = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; tried++) {
        if (errno != EWOULDBLOCK || tried == LOCK_TRIES)
            return false;
        usleep(10000);
    }
    return fd >= 0;
}

bool files_open(struct files *f, const char *dir, uint64_t log_bytes, bool recover)
{
    bool first;
    memset(f, 0, sizeof *f);
    f->log_bytes = log_bytes;
    snprintf(f->dir, sizeof f->dir, "%s", dir);
    if (!plot_mkdir(dir) || !lock_dir(dir)) {
        tool_warn("%s: %s", dir, errno == EWOULDBLOCK ? "another job has it" : strerror(errno));
        return false;
    }
    first = !has_bytes(f, 0) && !has_bytes(f, TWOCHOICE_MARK_LOG);
    if (!recover && !first) {
        tool_warn("%s holds the objects of an earlier run: --recover goes on with them", dir);
        return false;
    }
    if (!sub_dir(f, "objects") || !sub_dir(f, "away") || !open_log(f, 0, ACTIVE_NAME, first) ||
        !open_log(f, 1, NEXT_NAME, first) || !open_log(f, TWOCHOICE_MARK_LOG, log_name[TWOCHOICE_MARK_LOG], first) ||
        !sync_dir(dir)) {
        tool_warn("%s: %s", dir, strerror(errno));
        return false;
    }
    f->file = tool_alloc(FILES_OPEN * sizeof *f->file);
    return true;
}

/* ---- the log's storage ----------------------------------------------------------------------------------- */

static int log_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    const struct files *f = ctx;
    *got = 0;
    while (*got < len) {
        ssize_t n = pread(f->log_fd[log], (char *)buf + *got, len - *got, (off_t)(offset + *got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return 0;
}

static int log_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    const struct files *f = ctx;
    size_t at = 0;
    while (at < len) {
        ssize_t n = pwrite(f->log_fd[log], (const char *)buf + at, len - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

static int log_sync(void *ctx, int log)
{
    const struct files *f = ctx;
    return fdatasync(f->log_fd[log]);
}

/* A new file in new blocks. (The kernel finishes a sync of the old one that is still under way.) */
static int log_create(void *ctx, int log)
{
    struct files *f = ctx;
    const char *name = log == TWOCHOICE_MARK_LOG || log == f->active ? log_name[log == f->active ? 0 : log] : NEXT_NAME;
    char path[600];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    if (unlink(path) != 0 && errno != ENOENT)
        return -1;
    close(f->log_fd[log]);
    return open_log(f, log, name, false) && sync_dir(f->dir) ? 0 : -1;
}

static int log_swap(void *ctx, int log)
{
    struct files *f = ctx;
    char from[600], to[600];
    snprintf(from, sizeof from, "%s/%s", f->dir, NEXT_NAME);
    snprintf(to, sizeof to, "%s/%s", f->dir, ACTIVE_NAME);
    if (rename(from, to) != 0)
        return -1;
    f->active = log;
    /* The rename is done and cannot be undone, so a failure must not be reported from here on: the process ends. */
    if (!sync_dir(f->dir))
        tool_die(TOOL_FAILED, "%s: after a compaction: %s", f->dir, strerror(errno));
    return 0;
}

void files_storage(struct files *f, struct twochoice_storage *storage)
{
    storage->ctx = f;
    storage->create = log_create;
    storage->read = log_read;
    storage->write = log_write;
    storage->sync = log_sync;
    storage->swap = log_swap;
}

/* ---- objects --------------------------------------------------------------------------------------------- */

/* A place for one more file. If all are taken: the place of the least recently used file. */
static bool make_place(struct files *f)
{
    struct object_file *oldest = NULL;
    size_t i;
    if (f->files < FILES_OPEN)
        return true;
    for (i = 0; i < f->files; i++)
        if (f->file[i].users == 0 && (!oldest || f->file[i].used_at < oldest->used_at))
            oldest = &f->file[i];
    if (!oldest) {
        errno = EMFILE;
        return false;
    }
    /* The place stays, as tasks point into the array. */
    close(oldest->fd);
    oldest->fd = -1;
    return true;
}

struct object_file *files_get(struct files *f, uint64_t object, uint64_t stamp, bool create)
{
    char path[600];
    struct object_file *file = NULL;
    bool made = false;
    size_t i;
    int fd;
    for (i = 0; i < f->files; i++)
        if (f->file[i].fd >= 0 && f->file[i].object == object && f->file[i].stamp == stamp) {
            f->file[i].used_at = ++f->clock;
            return &f->file[i];
        }
    if (!make_place(f))
        return NULL;
    path_of(f, path, sizeof path, object, stamp);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && create) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        made = fd >= 0;
    }
    if (fd < 0)
        return NULL;
    if (made) {
        char dir[600];
        snprintf(dir, sizeof dir, "%s/%s", f->dir, stamp ? "away" : "objects");
        if (!sync_dir(dir)) {
            unlink(path);
            close(fd);
            return NULL;
        }
    }
    for (i = 0; i < f->files && !file; i++)
        if (f->file[i].fd < 0)
            file = &f->file[i];
    if (!file)
        file = &f->file[f->files++];
    file->object = object;
    file->stamp = stamp;
    file->fd = fd;
    file->users = 0;
    file->used_at = ++f->clock;
    return file;
}

void files_unlink(struct files *f, struct object_file *file)
{
    char path[600];
    path_of(f, path, sizeof path, file->object, file->stamp);
    unlink(path);
    close(file->fd);
    file->fd = -1;
}

size_t files_away(struct files *f, uint64_t **names)
{
    char path[600];
    struct dirent *e;
    size_t n = 0;
    DIR *d;
    *names = NULL;
    snprintf(path, sizeof path, "%s/away", f->dir);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL) {
        char *dash, *end;
        uint64_t object = strtoull(e->d_name, &dash, 16), stamp;
        if (strlen(e->d_name) != 29 || *dash != '-')
            continue;
        stamp = strtoull(dash + 1, &end, 16);
        if (*end)
            continue;
        if ((n & (n - 1)) == 0)
            *names = tool_grow(*names, (n ? 4 * n : 2) * sizeof **names);
        (*names)[2 * n] = object;
        (*names)[2 * n + 1] = stamp;
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static void clear_dir(const struct files *f, const char *name, bool remove_it)
{
    char path[600];
    struct dirent *e;
    DIR *d;
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL)
        if (strlen(e->d_name) == 16 || strlen(e->d_name) == 29)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    if (remove_it)
        rmdir(path);
}

void files_clear(struct files *f, bool remove_all)
{
    char path[600];
    int log;
    for (; f->files > 0; f->files--)
        if (f->file[f->files - 1].fd >= 0)
            close(f->file[f->files - 1].fd);
    if (f->active == 1) { /* the numbers of the logs are as at a start */
        int fd = f->log_fd[1];
        f->log_fd[1] = f->log_fd[0];
        f->log_fd[0] = fd;
        f->active = 0;
    }
    clear_dir(f, "objects", remove_all);
    clear_dir(f, "away", remove_all);
    for (log = 0; log < 3 && remove_all; log++) {
        close(f->log_fd[log]);
        snprintf(path, sizeof path, "%s/%s", f->dir, log_name[log]);
        unlink(path);
    }
    if (remove_all)
        rmdir(f->dir);
}
