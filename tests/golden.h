/* golden.h - recorded bytes of a wire or disk format: tests/golden/NAME.hex, the same on every target.
 *
 * golden_same() compares the bytes written now with the recorded ones; golden_read() reads the recorded ones.
 * QOS_GOLDEN_WRITE=1 records again: only for a new format or a new version of one. The tests also run under emulation,
 * like all unit tests, so each byte order reads what the other wrote. */
#ifndef QOS_TESTS_GOLDEN_H
#define QOS_TESTS_GOLDEN_H

#include "check.h"

static size_t golden_read(const char *name, uint8_t *bytes, size_t most)
{
    char path[160], line[256];
    size_t n = 0;
    FILE *f;
    (void)snprintf(path, sizeof path, "tests/golden/%s.hex", name);
    f = fopen(path, "r");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        const char *at = line;
        char *end;
        if (line[0] == '#')
            continue;
        for (;; at = end) {
            unsigned long v = strtoul(at, &end, 16);
            if (end == at || n == most)
                break;
            bytes[n++] = (uint8_t)v;
        }
    }
    (void)fclose(f);
    return n;
}

static void golden_write(const char *name, const uint8_t *bytes, size_t len)
{
    char path[160];
    size_t i;
    FILE *f;
    (void)snprintf(path, sizeof path, "tests/golden/%s.hex", name);
    f = fopen(path, "w");
    CHECK(f != NULL);
    if (!f)
        return;
    for (i = 0; i < len; i++)
        (void)fprintf(f, "%02x%c", bytes[i], i % 16 == 15 || i + 1 == len ? '\n' : ' ');
    (void)fclose(f);
}

static CHECK_UNUSED void golden_same(const char *name, const uint8_t *bytes, size_t len)
{
    static uint8_t then[65536];
    size_t n, i;
    if (check_env("QOS_GOLDEN_WRITE", 0))
        golden_write(name, bytes, len);
    n = golden_read(name, then, sizeof then);
    CHECK_CONTEXT("%s", name);
    CHECK_EQ(n, len);
    for (i = 0; i < n && i < len; i++) {
        CHECK_CONTEXT("%s, byte %zu", name, i);
        CHECK_EQ(bytes[i], then[i]);
    }
}

#endif
