// proves: messages and logs are written byte for byte as in every earlier version, and the old bytes can be read, in
// proves: either byte order
#include "golden.h"
#include "twochoice.h"
#include "../property/twochoice_disk.h"

static void check_message(void)
{
    struct twochoice_message m, got;
    uint8_t bytes[256];
    size_t len = 0, n;
    memset(&m, 0, sizeof m);
    memset(&got, 0, sizeof got);
    m.type = TWOCHOICE_ANSWER;
    m.server = 0x31323334;
    m.state = TWOCHOICE_FULL;
    m.count = 0x0102;
    m.client = UINT64_C(0x4142434445464748);
    m.request = UINT64_C(0x5152535455565758);
    m.turn = UINT64_C(0x6162636465666768);
    m.len_bytes = UINT64_C(0x7172737475767778);
    m.wait_ns = UINT64_C(0x8182838485868788);
    m.service_ns = UINT64_C(0x9192939495969798);
    m.idle_ns = UINT64_C(0xa1a2a3a4a5a6a7a8);
    CHECK_EQ(twochoice_message_encode(&m, bytes, sizeof bytes, &len), QOS_OK);
    golden_same("twochoice_message", bytes, len);
    n = golden_read("twochoice_message", bytes, sizeof bytes);
    CHECK_EQ(twochoice_message_decode(bytes, n, &got), QOS_OK);
    CHECK(memcmp(&got, &m, sizeof m) == 0);
}

/* Contents of the log: 100..199 on server 7, of it 120..139 at home again; another object on server 300. */
static void check_table(const struct twochoice_table *table)
{
    struct twochoice_piece p[4];
    CHECK_EQ(twochoice_table_query(table, UINT64_C(0xa1a2a3a4a5a6a7a8), 100, 100, p, 4), 3);
    CHECK(p[0].target == 7 && p[0].offset == 100 && p[0].end == 120 && p[0].version == 1);
    CHECK(p[1].target == TWOCHOICE_LOCAL && p[1].end == 140);
    CHECK(p[2].target == 7 && p[2].end == 200);
    CHECK_EQ(twochoice_table_query(table, 9, UINT64_C(0x0102030405060708), 16, p, 4), 1);
    CHECK(p[0].target == 300 && p[0].version == 2);
}

static void check_log(void)
{
    static struct twochoice_table table;
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    struct twochoice_recovery recovery;
    struct check_mem mem;
    struct disk disk;
    uint8_t bytes[1024];
    size_t n;
    int i;
    disk_init(&disk, NULL, &storage);
    memset(&config, 0, sizeof config);
    config.max_fragments = 16;
    config.home = 0x2122;
    config.storage = &storage;
    check_mem_new(&mem, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&table, mem.mem, mem.size, &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&table), QOS_OK);
    CHECK_EQ(redirect(&table, UINT64_C(0xa1a2a3a4a5a6a7a8), 100, 100, 7), QOS_OK);
    CHECK_EQ(redirect(&table, 9, UINT64_C(0x0102030405060708), 16, 300), QOS_OK);
    CHECK_EQ(redirect(&table, UINT64_C(0xa1a2a3a4a5a6a7a8), 120, 20, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(twochoice_table_commit(&table), QOS_OK);
    check_table(&table);
    golden_same("twochoice_log", disk.log[0].data, disk.log[0].len);
    golden_same("twochoice_mark", disk.log[TWOCHOICE_MARK_LOG].data, disk.log[TWOCHOICE_MARK_LOG].len);

    for (i = 0; i < 2; i++) { /* version 2, too */
        disk_restart(&disk);
        n = golden_read(i ? "twochoice_log_2" : "twochoice_log", bytes, sizeof bytes);
        disk_resize(&disk.log[0], n);
        memcpy(disk.log[0].data, bytes, n);
        n = golden_read(i ? "twochoice_mark_2" : "twochoice_mark", bytes, sizeof bytes);
        disk_resize(&disk.log[TWOCHOICE_MARK_LOG], n);
        memcpy(disk.log[TWOCHOICE_MARK_LOG].data, bytes, n);
        CHECK_EQ(twochoice_table_init(&table, mem.mem, mem.size, &config), QOS_OK);
        CHECK_EQ(twochoice_table_recover(&table, 0, &recovery), QOS_OK);
        CHECK_EQ(recovery.records, 3);
        CHECK_EQ(recovery.dropped_bytes, 0);
        check_table(&table);
        /* A compaction of version 2 kept no length of whole pieces, so of such a log any byte of the object may be in it. */
        CHECK_EQ(twochoice_table_refers(&table, 9, 2, 0, 1), i == 1);
    }
    CHECK(check_mem_free(&mem));
    disk_free(&disk);
}

int main(void)
{
    check_begin("unit/twochoice_golden");
    check_message();
    check_log();
    return check_end();
}
