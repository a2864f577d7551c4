/* golden.h - bytes of a wire or disk format as they have always been: tests/golden/NAME.hex, on every target the same.
 *
 * golden_same() compares what was written now; golden_read() gives what was written then. QOS_GOLDEN_WRITE=1 writes the
 * file anew: only for a new format or a new version of one. A test of each format runs natively and, as all unit tests,
 * under emulation: what one byte order wrote the other reads. */
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
