// flags: -D_GNU_SOURCE
/* twochoice_log - shows a redirect log: its records, its marks, and what a recovery would do and why. It changes nothing:
 * the recovery runs on a copy in memory.
 *
 *     twochoice_log LOG MARK [--all] [--accept-prefix] */
#include "../common/common.h"
#include "twochoice.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAGMENTS_MOST (1u << 26)

static struct bytes {
    uint8_t *data;
    size_t len;
} logs[3];

static void read_file(struct bytes *b, const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t got;
    if (!f)
        tool_die(TOOL_FAILED, "%s: %s", path, strerror(errno));
    do {
        b->data = tool_grow(b->data, b->len + 65536);
        got = fread(b->data + b->len, 1, 65536, f);
        b->len += got;
    } while (got != 0);
    fclose(f);
}

/* ---- the storage: copies in memory ---------------------------------------------------------------------- */

static int memory_create(void *ctx, int log)
{
    (void)ctx;
    logs[log].len = 0;
    return 0;
}

static int memory_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    (void)ctx;
    *got = offset >= logs[log].len ? 0 : (size_t)qos_min(len, logs[log].len - offset);
    if (*got)
        memcpy(buf, logs[log].data + offset, *got);
    return 0;
}

static int memory_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    struct bytes *b = &logs[log];
    (void)ctx;
    b->data = tool_grow(b->data, (size_t)qos_max(offset + len, b->len));
    memcpy(b->data + offset, buf, len);
    b->len = (size_t)qos_max(offset + len, b->len);
    return 0;
}

static int memory_sync(void *ctx, int log)
{
    (void)ctx, (void)log;
    return 0;
}

/* ---- records, by the table of bytes in twochoice.h -------------------------------------------------------- */

static const char *const types[] = {"?", "header", "redirect", "home", "ceiling", "end", "mark", "ended"};

static void print_record(const uint8_t *b, uint64_t at, uint32_t before, bool mark)
{
    const uint32_t type = b[5] < sizeof types / sizeof *types ? b[5] : 0;
    const uint64_t object = qos_get_le64(b + 8), x = qos_get_le64(b + 16), y = qos_get_le64(b + 24);
    const uint64_t version = qos_get_le64(b + 32);
    const bool fits = qos_get_le32(b) == qos_crc32c(mark ? 0 : before, b + 4, TWOCHOICE_RECORD_BYTES - 4);
    printf("%10" PRIu64 "  %-8s %-9s ", at, types[type], fits ? "" : "DOES NOT FIT");
    if (type == 2)
        printf("object %" PRIu64 ", bytes %" PRIu64 "..%" PRIu64 " to server %u, stamp %" PRIu64, object, x, y,
               qos_get_le16(b + 6), version);
    else if (type == 3)
        printf("object %" PRIu64 ", bytes %" PRIu64 "..%" PRIu64 " at home, stamp %" PRIu64, object, x, y, version);
    else if (type == 1)
        printf("log %" PRIu64 " of server %" PRIu64 "%s; stamps up to %" PRIu64, x, object,
               y ? ", compacted: it must have an end" : "", version);
    else if (type == 4)
        printf("stamps up to %" PRIu64, version);
    else if (type == 5)
        printf("the compacted part is complete; stamps up to %" PRIu64 "; longest redirect %" PRIu64 " bytes", version,
               y);
    else if (type == 6)
        printf("%" PRIu64 " records of log %" PRIu64 " of server %" PRIu64 " are durable; stamps up to %" PRIu64, y, x,
               object, version);
    else if (type == 7)
        printf("%d writes from stamp %" PRIu64 " on have ended", __builtin_popcountll(x) + __builtin_popcountll(y),
               version);
    if (!mark && qos_get_le32(b + 40) != 0)
        printf("; %u before it were not synced", qos_get_le32(b + 40));
    putchar('\n');
}

static void print_log(bool all)
{
    const size_t n = logs[0].len / TWOCHOICE_RECORD_BYTES;
    size_t i, bad = n;
    uint32_t before = 0;
    for (i = 0; i < n; i++) { /* the first that does not fit; all after it depend on its checksum */
        const uint8_t *b = logs[0].data + i * TWOCHOICE_RECORD_BYTES;
        const uint32_t crc = qos_get_le32(b);
        if (bad == n && crc != qos_crc32c(before, b + 4, TWOCHOICE_RECORD_BYTES - 4))
            bad = i;
        if (all || i < 5 || i + 5 >= n || (i + 3 >= bad && i < bad + 4))
            print_record(b, i * TWOCHOICE_RECORD_BYTES, before, false);
        else if (i == 5)
            printf("       ...  (--all shows all records)\n");
        before = crc;
    }
    if (logs[0].len % TWOCHOICE_RECORD_BYTES != 0)
        printf("%10zu  a part of a record: %zu bytes\n", n * TWOCHOICE_RECORD_BYTES,
               logs[0].len % TWOCHOICE_RECORD_BYTES);
}

static void print_marks(void)
{
    size_t slot;
    for (slot = 0; slot < 1024; slot += 512)
        if (slot + TWOCHOICE_RECORD_BYTES <= logs[2].len && logs[2].data[slot + TWOCHOICE_RECORD_BYTES - 1] != 0)
            print_record(logs[2].data + slot, slot, 0, true);
    if (logs[2].len == 0)
        printf("            there is no mark\n");
}

/* ---- the recovery ----------------------------------------------------------------------------------------- */

static const char *meaning(enum qos_status st, const struct twochoice_recovery *r, uint64_t records)
{
    if (st == QOS_ENOENT)
        return "nothing was ever formatted here: a server formats it";
    if (st == QOS_ECORRUPT && r->valid_bytes / TWOCHOICE_RECORD_BYTES < records)
        return "a record that may have been acknowledged is damaged. ACCEPT_PREFIX keeps those before it; restore a "
               "copy "
               "of the log first, if there is one";
    if (st == QOS_ECORRUPT)
        return "records that were acknowledged are missing: the log is shorter than a mark says, lacks its end, or no "
               "mark can be read";
    if (st == QOS_EVERSION)
        return "written by another version of twochoice.h";
    return st == QOS_OK ? "the table is complete" : qos_strerror((int)st);
}

static int show_recovery(bool prefix)
{
    const struct twochoice_storage storage = {NULL, memory_create, memory_read, memory_write, memory_sync, memory_sync};
    const uint64_t records = logs[0].len / TWOCHOICE_RECORD_BYTES;
    struct twochoice_table_config config = {0};
    struct twochoice_table_state state;
    struct twochoice_recovery r;
    struct twochoice_table table;
    enum qos_status st;
    size_t size;
    void *mem;
    config.max_fragments = (uint32_t)qos_min(2 * records + 2, FRAGMENTS_MOST);
    config.home = logs[0].len >= 16 ? (uint32_t)(qos_get_le64(logs[0].data + 8) % TWOCHOICE_SERVERS_MAX) : 0;
    config.storage = &storage;
    size = twochoice_table_memsize(&config);
    mem = tool_alloc_aligned(size, 64);
    st = twochoice_table_init(&table, mem, size, &config);
    if (st == QOS_OK)
        st = twochoice_table_recover(&table, prefix ? TWOCHOICE_ACCEPT_PREFIX : 0, &r);
    (void)twochoice_table_info(&table, &state);
    printf("%s: %s\n", st == QOS_OK ? "QOS_OK" : qos_strerror((int)st), meaning(st, &r, records));
    printf("%" PRIu64 " records replayed, %" PRIu64 " bytes valid, %" PRIu64 " bytes %s\n", r.records, r.valid_bytes,
           r.dropped_bytes,
           st != QOS_OK ? "behind them are not used"
           : prefix     ? "after them are lost"
                        : "dropped: a torn tail, which was never acknowledged");
    if (st == QOS_OK)
        printf("%u fragments, next stamp %" PRIu64 ", new log of %" PRIu64 " bytes\n", state.fragments, state.stamp + 1,
               state.log_bytes);
    free(mem);
    return st == QOS_OK ? TOOL_OK : TOOL_FAILED;
}

int main(int argc, char **argv)
{
    bool all = false, prefix = false;
    const struct opt options[] = {
        {"all", OPT_FLAG, &all, NULL, "shows all records, not only the first, the last and the damaged", NULL},
        {"accept-prefix", OPT_FLAG, &prefix, NULL, "what a recovery with TWOCHOICE_ACCEPT_PREFIX would do", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    int at = opt_parse(argc, argv, options, "shows a redirect log of twochoice.h, and what a recovery would do",
                       "twochoice_log objects/server1/redirect.log objects/server1/redirect.mark\n");
    if (argc - at != 2)
        tool_die(TOOL_USAGE, "give a log and its mark; --help shows how");
    read_file(&logs[0], argv[at]);
    read_file(&logs[2], argv[at + 1]);
    printf("records of the log, by byte:\n");
    print_log(all);
    printf("marks:\n");
    print_marks();
    printf("a recovery: ");
    return show_recovery(prefix);
}
