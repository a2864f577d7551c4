// proves: recovery takes any bytes as a log: it returns an error or a sound table. That table can be used, and
// proves: recovery from the log that it writes gives the same table.
#include "twochoice.h"
#include "twochoice_calls.h"
#include "fuzz/fuzz.h"

#define MOST 8192

static uint8_t bytes[3][MOST + 4096];
static size_t length[3];
static int active;

static int log_read(void *ctx, int log, uint64_t offset, void *buf, size_t len, size_t *got)
{
    (void)ctx;
    *got = offset >= length[log] ? 0 : length[log] - (size_t)offset;
    if (*got > len)
        *got = len;
    if (*got)
        memcpy(buf, bytes[log] + offset, *got);
    return 0;
}

static int log_write(void *ctx, int log, uint64_t offset, const void *buf, size_t len)
{
    (void)ctx;
    FUZZ_CHECK(offset <= length[log]);
    if (offset + len > sizeof bytes[log])
        return -1;
    memcpy(bytes[log] + offset, buf, len);
    if (length[log] < offset + len)
        length[log] = (size_t)offset + len;
    return 0;
}

static int log_sync(void *ctx, int log)
{
    (void)ctx;
    (void)log;
    return 0;
}

static int log_create(void *ctx, int log)
{
    (void)ctx;
    length[log] = 0;
    return 0;
}

static int log_swap(void *ctx, int log)
{
    (void)ctx;
    active = log;
    return 0;
}

/* A new start: log 0 is the active log. */
static void restart(void)
{
    if (active == 1) {
        memcpy(bytes[0], bytes[1], sizeof bytes[0]);
        length[0] = length[1];
    }
    length[1] = 0;
    active = 0;
}

static const struct twochoice_storage storage = {NULL, log_create, log_read, log_write, log_sync, log_swap};
static unsigned char mem[2][96 * 1024] __attribute__((aligned(64)));

static enum qos_status open_table(struct twochoice_table *t, int i, uint32_t flags, struct twochoice_recovery *r)
{
    struct twochoice_table_config config;
    restart();
    memset(&config, 0, sizeof config);
    config.max_fragments = 150;
    config.max_writes = 8;
    config.home = 1;
    config.storage = &storage;
    FUZZ_CHECK(twochoice_table_memsize(&config) <= sizeof mem[i]);
    FUZZ_CHECK(twochoice_table_init(t, mem[i], sizeof mem[i], &config) == QOS_OK);
    return twochoice_table_recover(t, flags, r);
}

static void same(const struct twochoice_table *a, const struct twochoice_table *b)
{
    struct twochoice_piece x = {0}, y = {0};
    uint64_t object = 0, offset = 0;
    for (;;) {
        bool more = twochoice_table_next(a, object, offset, &x);
        FUZZ_CHECK(more == twochoice_table_next(b, object, offset, &y));
        if (!more)
            return;
        FUZZ_CHECK(x.object == y.object && x.offset == y.offset && x.target == y.target);
        object = x.object;
        offset = x.end < y.end ? x.end : y.end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twochoice_table t, again;
    struct twochoice_recovery r;
    enum qos_status st;
    uint32_t flags, crc = 0;
    size_t i, before;
    if (size < 2 || size > MOST)
        return 0;
    flags = data[0] & 1;
    active = 0;
    length[0] = size - 2;
    length[1] = 0;
    memcpy(bytes[0], data + 2, length[0]);
    length[2] = data[0] & 4 ? 0 : 1024; /* no mark, or a mark with a low or, sometimes, too high value */
    memset(bytes[2], 0, 1024);
    bytes[2][4] = TWOCHOICE_LOG_VERSION;
    bytes[2][5] = 6;
    qos_put_le64(bytes[2] + 8, 1);
    qos_put_le64(bytes[2] + 24, data[1] % 16 ? 1 : data[1]);
    qos_put_le64(bytes[2] + 32, 1);
    qos_put_le32(bytes[2], qos_crc32c(0, bytes[2] + 4, 44));
    for (i = 0; (data[0] & 2) && i + 48 <= length[0]; i += 48) { /* valid records of any content, perhaps except one */
        uint8_t *b = bytes[0] + i;
        b[4] = b[4] % 64 ? TWOCHOICE_LOG_VERSION : b[4];
        b[5] = (uint8_t)(i == 0 ? 1 : 2 + b[5] % 4);
        if (i == 0) {
            qos_put_le64(b + 8, 1);
            memset(b + 16, 0, 8);
            memset(b + 25, 0, 7);
            b[24] &= 1;
            qos_put_le64(b + 32, UINT64_C(1) << 44);
        } else if (b[5] >= 4) {
            b[37] = 0xff; /* a bound above all stamps */
        }
        b[38] = b[39] = 0;
        crc = qos_crc32c(crc, b + 4, 44);
        qos_put_le32(b, crc);
        if (i / 48 == data[1])
            b[4 + data[0] % 40] ^= (uint8_t)(data[0] >> 2);
    }
    before = length[0];
    st = open_table(&t, 0, flags, &r);
    FUZZ_CHECK(st == QOS_OK || st == QOS_ECORRUPT || st == QOS_EVERSION || st == QOS_EINVAL || st == QOS_EFULL ||
               st == QOS_ENOENT);
    FUZZ_CHECK(check_tree(&t));
    if (st != QOS_OK) {
        FUZZ_CHECK(counts_of(&t).fragments == 0 && length[0] == before); /* nothing changed */
        return 0;
    }
    FUZZ_CHECK(r.valid_bytes <= before && r.records <= before / 48);
    st = redirect(&t, 3, 1000, 10, 2);
    FUZZ_CHECK(st == QOS_OK || st == QOS_EFULL);
    FUZZ_CHECK(check_tree(&t));
    FUZZ_CHECK(twochoice_table_commit(&t) == QOS_OK);
    FUZZ_CHECK(open_table(&again, 1, 0, &r) == QOS_OK);
    FUZZ_CHECK(check_tree(&again));
    FUZZ_CHECK(r.dropped_bytes == 0 && counts_of(&again).stamp >= counts_of(&t).stamp);
    same(&t, &again);
    if (twochoice_table_compact(&t) == QOS_OK) {
        /* header, fragments, perhaps two groups of writes that have ended, end */
        FUZZ_CHECK(counts_of(&t).log_bytes / 48 - counts_of(&t).fragments - 2 <= 2);
        FUZZ_CHECK(open_table(&again, 1, 0, &r) == QOS_OK);
        FUZZ_CHECK(check_tree(&t) && check_tree(&again));
        FUZZ_CHECK(counts_of(&again).stamp >= counts_of(&t).stamp);
        same(&t, &again);
    }
    return 0;
}
