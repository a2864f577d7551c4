// A journal of acknowledged writes: a file for each compute node, or one for all. It uses none of the headers that are
// tested here. A write is recorded before it is sent, and again when it was acknowledged or has failed. So the order
// in the file is the order of writes, without a clock. The bytes of a write follow from its number, which node and
// count make unique.
#include "journal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTENT = 1, DONE = 2, FAILED = 3, START = 4 };

struct record {
    uint32_t magic, kind;
    uint64_t number, offset, len;
};
#define MAGIC 0x6c6e7233u
#define NODE_SHIFT 40

struct entry {
    uint64_t number, offset, end;
    uint64_t begun, over; /* places in the file; after `over` the write can change nothing */
    int acknowledged;
};

struct journal {
    int fd;
    struct entry *entry;                        /* in the order of the file */
    uint64_t entries, room, records, open_from; /* open_from: all entries before it are over */
    uint64_t next;                              /* this node's next number */
};

static struct entry *entry_of(struct journal *j, uint64_t number)
{
    uint64_t i;
    for (i = j->entries; i > j->open_from; i--)
        if (j->entry[i - 1].number == number)
            return &j->entry[i - 1];
    return NULL;
}

static int apply(struct journal *j, const struct record *r)
{
    struct entry *e;
    uint64_t at = ++j->records, i;
    if (r->kind == START) { /* writes that were open died with their job */
        for (i = j->open_from; i < j->entries; i++)
            if (j->entry[i].over == UINT64_MAX)
                j->entry[i].over = at;
        j->open_from = j->entries;
        return 1;
    }
    if (r->kind == INTENT && !entry_of(j, r->number)) {
        if (j->entries == j->room) {
            j->room = j->room ? 2 * j->room : 1024;
            j->entry = realloc(j->entry, j->room * sizeof *j->entry);
            if (!j->entry)
                return 0;
        }
        j->entry[j->entries++] = (struct entry){r->number, r->offset, r->offset + r->len, at, UINT64_MAX, 0};
        if (r->number >> NODE_SHIFT == j->next >> NODE_SHIFT && r->number >= j->next)
            j->next = r->number + 1;
        return 1;
    }
    e = entry_of(j, r->number);
    if ((r->kind != DONE && r->kind != FAILED) || !e)
        return 0;
    e->over = at;
    e->acknowledged = r->kind == DONE;
    return 1;
}

/* One write call: after SIGKILL the page cache has the whole record or nothing. */
static void append(struct journal *j, uint32_t kind, uint64_t number, uint64_t offset, uint64_t len)
{
    struct record r = {MAGIC, kind, number, offset, len};
    if (write(j->fd, &r, sizeof r) != (ssize_t)sizeof r || !apply(j, &r)) {
        fprintf(stderr, "journal: %s\n", strerror(errno));
        exit(1);
    }
}

struct journal *journal_open(const char *path, uint32_t node)
{
    struct journal *j = calloc(1, sizeof *j);
    struct record r;
    ssize_t n;
    if (!j)
        return NULL;
    j->next = (uint64_t)node << NODE_SHIFT;
    j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (j->fd < 0) {
        fprintf(stderr, "journal: %s: %s\n", path, strerror(errno));
        free(j);
        return NULL;
    }
    while ((n = read(j->fd, &r, sizeof r)) == (ssize_t)sizeof r)
        if (r.magic != MAGIC || !apply(j, &r)) {
            fprintf(stderr, "journal: %s: record %llu makes no sense\n", path, (unsigned long long)j->records);
            n = -1;
            break;
        }
    if (n != 0) {
        fprintf(stderr, "journal: %s: %s\n", path, n < 0 ? "cannot be read" : "ends within a record");
        journal_close(j);
        return NULL;
    }
    append(j, START, 0, 0, 0);
    return j;
}

void journal_close(struct journal *j)
{
    close(j->fd);
    free(j->entry);
    free(j);
}

uint64_t journal_intent(struct journal *j, uint64_t offset, uint64_t len)
{
    uint64_t number = j->next;
    append(j, INTENT, number, offset, len);
    return number;
}

void journal_over(struct journal *j, uint64_t number, bool acknowledged)
{
    append(j, acknowledged ? DONE : FAILED, number, 0, 0);
}

static uint64_t word_of(uint64_t number, uint64_t index)
{
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u ^ (index + 1) * 0xd1342543de82ef95u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 29;
}

static uint8_t byte_of(uint64_t number, uint64_t at)
{
    return (uint8_t)(word_of(number, at / 8) >> (at % 8 * 8));
}

void journal_fill(uint64_t number, uint64_t offset, uint8_t *data, uint64_t len)
{
    uint64_t i = 0;
    while (i < len) {
        uint64_t at = offset + i, w;
        if (at % 8 != 0 || len - i < 8) {
            data[i++] = byte_of(number, at);
            continue;
        }
        w = word_of(number, at / 8);
        for (at = 0; at < 8; at++)
            data[i++] = (uint8_t)(w >> (8 * at));
    }
}

/* ---- judging --------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns how many bytes of [from, to) are wrong; the same writes cover all of it. *first: the first wrong one. */
static uint64_t judge(const struct journal *j, const uint64_t *cover, size_t covers, uint64_t from, uint64_t to,
                      const uint8_t *data, uint64_t *first)
{
    uint64_t last_begun = 0, wrong = 0, at;
    size_t i;
    for (i = 0; i < covers; i++) /* an acknowledged write hides writes that were over before it began */
        if (j->entry[cover[i]].acknowledged && j->entry[cover[i]].begun > last_begun)
            last_begun = j->entry[cover[i]].begun;
    for (at = from; at < to; at++) {
        uint8_t is = data[at - from];
        int right = last_begun == 0 && is == 0;
        for (i = 0; i < covers && !right; i++)
            right = j->entry[cover[i]].over > last_begun && is == byte_of(j->entry[cover[i]].number, at);
        if (!right && wrong++ == 0)
            *first = at;
    }
    return wrong;
}

uint64_t journal_wrong(const struct journal *j, uint64_t offset, const uint8_t *data, uint64_t len, uint64_t *first)
{
    uint64_t *cut = malloc((2 * j->entries + 2) * sizeof *cut), *touch = malloc((j->entries + 1) * sizeof *touch),
             *cover = malloc((j->entries + 1) * sizeof *cover);
    uint64_t end = offset + len, wrong = 0, i, where = 0;
    size_t cuts = 0, touches = 0, covers, k, c;
    if (!cut || !touch || !cover) {
        fprintf(stderr, "journal: out of memory\n");
        exit(1);
    }
    cut[cuts++] = offset;
    cut[cuts++] = end;
    for (i = 0; i < j->entries; i++) {
        const struct entry *e = &j->entry[i];
        if (e->offset >= end || e->end <= offset)
            continue;
        touch[touches++] = i;
        if (e->offset > offset)
            cut[cuts++] = e->offset;
        if (e->end < end)
            cut[cuts++] = e->end;
    }
    qsort(cut, cuts, sizeof *cut, by_value);
    for (c = 0; c + 1 < cuts; c++) {
        uint64_t found;
        if (cut[c] == cut[c + 1])
            continue;
        for (k = covers = 0; k < touches; k++)
            if (j->entry[touch[k]].offset <= cut[c] && cut[c] < j->entry[touch[k]].end)
                cover[covers++] = touch[k];
        found = judge(j, cover, covers, cut[c], cut[c + 1], data + (cut[c] - offset), &where);
        if (found && wrong == 0)
            *first = where;
        wrong += found;
    }
    free(cut);
    free(touch);
    free(cover);
    return wrong;
}

void journal_totals(const struct journal *j, uint64_t *writes, uint64_t *acknowledged, uint64_t *bytes)
{
    uint64_t i;
    *writes = j->entries;
    *acknowledged = *bytes = 0;
    for (i = 0; i < j->entries; i++)
        if (j->entry[i].acknowledged) {
            ++*acknowledged;
            *bytes += j->entry[i].end - j->entry[i].offset;
        }
}
