// proves: the words of a storage hold the same values as in every earlier version (tests/golden/tokenpool_words.hex),
// proves: and a client can read an old storage. A peer of the other byte order is refused: its checksum of the head
// proves: differs. Numbers are recorded
#include "golden.h"
#include "tokenpool.h"

enum { CLIENTS = 3, WORDS_MAX = 128 };
static uint64_t storage[WORDS_MAX] __attribute__((aligned(64)));
static char memory[8192] __attribute__((aligned(64)));

static void attach(struct tokenpool_client *c, uint32_t id, size_t bytes)
{
    CHECK_EQ(tokenpool_client_attach(c, id, 0, storage, bytes), QOS_OK);
    tokenpool_client_set_queued(c, TOKENPOOL_BACKLOGGED);
}

static void run(struct tokenpool_monitor *m, uint64_t now)
{
    while (tokenpool_monitor_next_ns(m, now) <= now)
        tokenpool_monitor_run(m, now);
}

/* Takes up to n tokens, one at a time, each completed at once, until 200 ms have passed. */
static uint64_t take(struct tokenpool_monitor *m, struct tokenpool_client *c, uint64_t now, uint64_t n)
{
    uint64_t got = 0, end = now + QOS_NS_PER_S / 5;
    while (got < n && now < end) {
        run(m, now);
        if (tokenpool_client_take(c, now, 1) == QOS_OK) {
            tokenpool_client_complete(c, 1);
            got++;
        } else {
            now = qos_min(tokenpool_client_next_ns(c, now, 1), tokenpool_monitor_next_ns(m, now));
        }
    }
    return got;
}

static void write_words(size_t len, const struct tokenpool_config *config)
{
    static struct tokenpool_monitor m;
    static struct tokenpool_client c;
    uint8_t bytes[WORDS_MAX * 8];
    size_t i;
    CHECK_EQ(tokenpool_monitor_init(&m, memory, sizeof memory, storage, len, config), QOS_OK);
    CHECK_EQ(tokenpool_monitor_join(&m, 0, 20000, 0, NULL), QOS_OK);
    CHECK_EQ(tokenpool_monitor_join(&m, 1, 30000, 40000, NULL), QOS_OK);
    run(&m, 0);
    attach(&c, 0, len);
    CHECK_EQ(take(&m, &c, 1000000, 20300), 20300); /* 300 of them from the pool */
    run(&m, 10000000);
    tokenpool_client_run(&c, 11000000, 1); /* its report */
    for (i = 0; i < len / 8; i++)
        qos_put_le64(bytes + 8 * i, storage[i]);
    golden_same("tokenpool_words", bytes, len);
}

/* Another monitor takes the recorded storage over, with its admissions, and a client gets its reservation. */
static void read_words(size_t len, const struct tokenpool_config *config)
{
    static struct tokenpool_monitor m;
    static struct tokenpool_client c;
    uint8_t bytes[WORDS_MAX * 8];
    const uint64_t one = 1; /* other bytes, if this machine is big-endian */
    uint64_t pool, now = 5 * QOS_NS_PER_S;
    size_t i;
    CHECK_EQ(golden_read("tokenpool_words", bytes, sizeof bytes), len);
    memset(storage, 0, sizeof storage);
    for (i = 0; i < len / 8; i++)
        storage[i] = qos_get_le64(bytes + 8 * i);
    if (qos_get_le64(&one) != 1) {
        CHECK_EQ(tokenpool_client_attach(&c, 1, 0, storage, len), QOS_ECORRUPT);
        return;
    }
    pool = storage[TOKENPOOL_OFFSET_POOL / 8];
    CHECK_EQ(tokenpool_word_epoch(pool), 1);
    CHECK(tokenpool_word_count(pool) > 0 && tokenpool_word_count(pool) < 55000);
    CHECK_EQ(tokenpool_monitor_resume(&m, memory, sizeof memory, storage, len, config), QOS_OK);
    while (tokenpool_word_epoch(storage[TOKENPOOL_OFFSET_POOL / 8]) == 1 && now < 10 * QOS_NS_PER_S) {
        run(&m, now);
        now = tokenpool_monitor_next_ns(&m, now);
    }
    CHECK(tokenpool_word_epoch(storage[TOKENPOOL_OFFSET_POOL / 8]) > 1);
    attach(&c, 1, len); /* it reserved 30,000 and has a limit of 40,000 */
    CHECK_EQ(take(&m, &c, now, 60000), 40000);
}

int main(void)
{
    const uint64_t one = 1;
    struct tokenpool_config config;
    size_t len;
    check_begin("unit/tokenpool_golden");
    memset(&config, 0, sizeof config);
    config.clients = CLIENTS;
    config.capacity = 100000;
    config.batch = 100;
    config.flags = TOKENPOOL_FIXED;
    len = tokenpool_storage_memsize(&config);
    CHECK(len <= sizeof storage && tokenpool_monitor_memsize(&config) <= sizeof memory);
    if (qos_get_le64(&one) == 1)
        write_words(len, &config);
    read_words(len, &config);
    return check_end();
}
