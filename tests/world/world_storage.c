// proves: simulated files: after a power cut each byte has its synced value or one written since, a good sync leaves no choice, a
// proves: renamed file is there whole, and every kind of loss is met; what a call that fails leaves
#include "check.h"
#include "examples/world/storage.h"

#define BYTES 3000

/* The model: for each byte the values that a cut may leave, as a set of at most 256. */
static uint8_t now[BYTES];
static bool may[BYTES][256];
static uint64_t longest; /* that the file may have */

static void settled(void)
{
    uint64_t i;
    memset(may, 0, sizeof may);
    for (i = 0; i < BYTES; i++)
        may[i][now[i]] = true;
}

static void one_life(struct world_rng *r, uint64_t seed)
{
    struct world_storage_config config;
    struct world_storage s;
    uint8_t bytes[BYTES];
    uint64_t i, n, got, len = 0, step, steps = world_between(r, 1, 40);
    int file;
    memset(&config, 0, sizeof config);
    config.kept_permille = 1001;
    config.sync_fails_permille = world_chance(r, 300) ? 300 : 0;
    world_storage_init(&s, &config, seed);
    file = world_storage_create(&s, 0);
    CHECK(file >= 0);
    CHECK_EQ(world_storage_write(&s, file, 0, "x", 1), 0);
    while (world_storage_sync(&s, file)) {
    }
    memset(now, 0, sizeof now);
    now[0] = 'x';
    len = longest = 1;
    /* A sync that failed once and then succeeded leaves the byte there or not. */
    settled();
    may[0][0] = true;
    for (step = 0; step < steps; step++) {
        uint64_t at = world_between(r, 0, len < BYTES - 1 ? len : BYTES - 1);
        switch (world_between(r, 0, 5)) {
        case 0: /* truncate: the bytes behind may be there or not */
            CHECK_EQ(world_storage_truncate(&s, file, at), 0);
            for (i = at; i < BYTES; i++) {
                now[i] = 0;
                may[i][0] = true;
            }
            len = at < len ? at : len;
            break;
        case 1:
            if (world_storage_sync(&s, file) == 0 && s.failed_syncs == 0) {
                settled();
                longest = len;
            }
            break;
        default:
            n = world_between(r, 1, BYTES - at);
            memset(bytes, (int)(step + 1), n);
            CHECK_EQ(world_storage_write(&s, file, at, bytes, n), 0);
            for (i = at; i < at + n; i++) {
                now[i] = (uint8_t)(step + 1);
                may[i][now[i]] = may[i][0] = true; /* 0: a hole before a sector that was kept */
            }
            len = at + n > len ? at + n : len;
            longest = len > longest ? len : longest;
        }
        CHECK_EQ(world_storage_read(&s, file, 0, bytes, BYTES, &got), 0);
        CHECK_EQ(got, len);
        CHECK(memcmp(bytes, now, len) == 0);
    }
    if (world_chance(r, 300)) { /* the process dies, the power stays: nothing is lost */
        world_storage_boot(&s);
        file = world_storage_open(&s, 0);
        CHECK_EQ(world_storage_read(&s, file, 0, bytes, BYTES, &got), 0);
        CHECK(got == len && memcmp(bytes, now, len) == 0);
    }
    if (world_chance(r, 300)) { /* a new file takes the name: atomic and durable, with what was synced */
        int next = world_storage_create(&s, 1);
        bool synced;
        CHECK_EQ(world_storage_write(&s, next, 0, "new", 3), 0);
        synced = world_storage_sync(&s, next) == 0;
        CHECK_EQ(world_storage_rename(&s, next, 0), 0);
        world_storage_cut(&s);
        CHECK(world_storage_write(&s, next, 0, "y", 1) != 0);
        world_storage_boot(&s);
        file = world_storage_open(&s, 0);
        CHECK_EQ(file, next);
        CHECK_EQ(world_storage_read(&s, file, 0, bytes, BYTES, &got), 0);
        CHECK(!synced || (got == 3 && memcmp(bytes, "new", 3) == 0));
    } else {
        world_storage_cut(&s);
        world_storage_boot(&s);
        file = world_storage_open(&s, 0);
        CHECK(file >= 0 || config.sync_fails_permille);
        CHECK_EQ(world_storage_read(&s, file, 0, bytes, BYTES, &got), 0);
        CHECK_LE(got, longest);
        for (i = 0; i < got; i++)
            CHECK(may[i][bytes[i]]);
    }
    world_storage_free(&s);
}

/* Calls that fail, in their shares: of a write the beginning is there and nothing else; a truncate or a rename changes
 * nothing; a sync that is to be believed once gives up its file. */
static void failures(void)
{
    struct world_storage_config config;
    struct world_storage s;
    uint64_t i, k, got, failed[4] = {0, 0, 0, 0}, count = check_scaled(3000);
    uint8_t data[1000], back[1000];
    memset(data, 2, sizeof data);
    memset(&config, 0, sizeof config);
    config.write_fails_permille = 100;
    config.truncate_fails_permille = 200;
    config.rename_fails_permille = 300;
    config.sync_fails_permille = 400;
    config.sync_sticky = true;
    for (i = 0; i < count; i++) {
        bool fails;
        int file, other;
        world_storage_init(&s, &config, check_seed() * 13 + i);
        s.config.write_fails_permille = 0;
        file = world_storage_create(&s, 1);
        other = world_storage_create(&s, 2);
        memset(back, 1, sizeof back);
        CHECK(world_storage_write(&s, file, 0, back, 1000) == 0 && world_storage_write(&s, other, 0, back, 7) == 0);
        s.config.write_fails_permille = 100;
        failed[0] += fails = world_storage_write(&s, file, 0, data, 1000) != 0;
        CHECK(world_storage_read(&s, file, 0, back, 1000, &got) == 0 && got == 1000);
        for (k = 0; k < 1000 && back[k] == 2; k++) {
        }
        CHECK(fails || k == 1000);
        for (; k < 1000; k++)
            CHECK_EQ(back[k], 1);
        failed[1] += fails = world_storage_truncate(&s, file, 10) != 0;
        CHECK(world_storage_read(&s, file, 0, back, 1000, &got) == 0 && got == (fails ? 1000 : 10));
        failed[2] += fails = world_storage_rename(&s, other, 3) != 0;
        CHECK_EQ(s.on_disk[3], fails ? -1 : other);
        failed[3] += fails = world_storage_sync(&s, file) != 0;
        CHECK_EQ(s.on_disk[1], fails ? -1 : file);
        CHECK(!fails || (world_storage_sync(&s, file) && world_storage_write(&s, file, 0, data, 1) &&
                         world_storage_truncate(&s, file, 0)));
        world_storage_free(&s);
    }
    for (i = 0; i < 4; i++)
        CHECK_WITHIN((double)failed[i] / (double)count, 0.1 * (double)(i + 1) - 0.04, 0.1 * (double)(i + 1) + 0.04);
}

int main(void)
{
    struct world_storage_config config;
    struct world_storage s;
    struct world_rng r;
    uint64_t i, n = 0, count, torn = 0, same = 0, got;
    uint8_t data[2048], back[2048];
    int file;
    check_begin("world/world_storage");
    world_rng_init(&r, check_seed(), 3);
    count = check_scaled(3000);
    for (i = 0; i < count; i++)
        one_life(&r, check_seed() * 100000 + i);

    failures();

    /* Four sectors, half of the unsynced ones kept: all 16 mixtures come, each in a sixteenth of the cuts. */
    memset(&config, 0, sizeof config);
    config.kept_permille = 500;
    for (i = 0; i < count; i++) {
        uint64_t k, kept = 0;
        world_storage_init(&s, &config, check_seed() * 7 + i);
        file = world_storage_create(&s, 0);
        memset(data, 1, sizeof data);
        CHECK(world_storage_write(&s, file, 0, data, 2048) == 0 && world_storage_sync(&s, file) == 0);
        memset(data, 2, sizeof data);
        CHECK_EQ(world_storage_write(&s, file, 0, data, 2048), 0);
        world_storage_cut(&s);
        world_storage_boot(&s);
        CHECK(world_storage_read(&s, world_storage_open(&s, 0), 0, back, 2048, &got) == 0 && got == 2048);
        for (k = 0; k < 4; k++) {
            kept += back[k * 512] == 2;
            CHECK(memcmp(back + k * 512, back + k * 512 + 1, 511) == 0); /* a sector is whole */
        }
        torn += kept > 0 && kept < 4;
        n += kept;
        world_storage_free(&s);
    }
    CHECK_WITHIN((double)torn / (double)count, 14.0 / 16 - 0.05, 14.0 / 16 + 0.05);
    CHECK_WITHIN((double)n / (double)count, 1.8, 2.2);

    /* A power cut in call k: the k calls before it happened. A full disk: an error, and no byte beyond its size. */
    config.capacity_bytes = 1000;
    for (i = 0; i < 8; i++) {
        world_storage_init(&s, &config, i + 1);
        file = world_storage_create(&s, 0);
        CHECK(world_storage_write(&s, file, 0, data, 1) == 0 && world_storage_sync(&s, file) == 0);
        world_storage_cut_in(&s, i);
        for (n = 0; n < 20 && world_storage_write(&s, file, 0, data, 1) == 0; n++) {
        }
        CHECK_EQ(n, i);
        CHECK(s.off);
        world_storage_boot(&s);
        file = world_storage_open(&s, 0);
        CHECK(world_storage_write(&s, file, 0, data, 1001) != 0);
        CHECK(world_storage_read(&s, file, 0, back, 2048, &got) == 0 && got <= 1000);
        CHECK_EQ(s.full, 1);
        world_storage_free(&s);
    }
    /* The same seed gives the same disk. */
    for (i = 0; i < 2; i++) {
        config.capacity_bytes = 0;
        world_storage_init(&s, &config, 42);
        file = world_storage_create(&s, 0);
        CHECK(world_storage_sync(&s, file) == 0 && world_storage_write(&s, file, 0, data, 2048) == 0);
        world_storage_cut(&s);
        world_storage_boot(&s);
        CHECK_EQ(world_storage_read(&s, world_storage_open(&s, 0), 0, back, 2048, &got), 0);
        for (n = 0; n < got; n++)
            same += i ? (uint64_t) - (int64_t)back[n] : back[n];
        same += i ? (uint64_t) - (int64_t)got : got;
        world_storage_free(&s);
    }
    CHECK_EQ(same, 0);
    return check_end();
}
