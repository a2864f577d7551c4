// proves: examples/common: parsers round as documented, histogram quantiles stay within 1/64, JSON strings are
// proves: escaped, temporary files are removed
// flags: -Iexamples/common
// links: examples/common/*.c -lm
// variants: native san
#include "qos.h"
#include "common.h"
#include "check.h"
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void parsers(void)
{
    static const struct {
        const char *(*parse)(const char *, uint64_t *);
        const char *text;
        uint64_t want;
    } good[] = {
        {opt_size, "0", 0},
        {opt_size, "512", 512},
        {opt_size, "4k", 4096},
        {opt_size, "1.5k", 1536},
        {opt_size, "20M", 20971520},
        {opt_size, "2GiB", UINT64_C(2147483648)},
        {opt_size, "0.3k", 307}, /* 307.2, rounded down */
        {opt_size, ".5M", 524288},
        {opt_rate, "20M/s", 20971520},
        {opt_rate, "1k", 1024},
        {opt_time, "1.5s", 1500000000},
        {opt_time, "2", 2000000000},
        {opt_time, "7us", 7000},
        {opt_time, "2m", UINT64_C(120000000000)},
        {opt_time, "0.0000000019s", 1},
        {opt_count, "10k", 10000},
        {opt_count, "18446744073709551615", UINT64_MAX},
    };
    static const struct {
        const char *(*parse)(const char *, uint64_t *);
        const char *text;
    } bad[] = {
        {opt_size, ""},     {opt_size, "2X"},    {opt_size, "M"},    {opt_size, "-1"},
        {opt_size, "1 k"},  {opt_size, "."},     {opt_size, "1..2"}, {opt_size, "18446744073709551616"},
        {opt_rate, "/s"},   {opt_rate, "5M/m"},  {opt_time, "5S"},   {opt_size, "16777216T"},
        {opt_count, "1K5"}, {opt_count, "0x10"},
    };
    size_t i;
    double d = 3;
    for (i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t got = 77;
        CHECK_CONTEXT("%s", good[i].text);
        CHECK(good[i].parse(good[i].text, &got) == NULL);
        CHECK_EQ(got, good[i].want);
    }
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t got = 77;
        CHECK_CONTEXT("'%s' is refused", bad[i].text);
        CHECK(bad[i].parse(bad[i].text, &got) != NULL);
        CHECK_EQ(got, 77);
    }
    CHECK_CONTEXT("reals and choices");
    CHECK(opt_real("0.95", &d) == NULL && d > 0.949 && d < 0.951);
    CHECK(opt_real("nan", &d) && opt_real("1e999", &d) && opt_real("", &d));
    CHECK(opt_choice("htb", "none|htb|tags") == 1 && opt_choice("tags", "none|htb|tags") == 2);
    CHECK(opt_choice("ht", "none|htb") == -1 && opt_choice("", "none|htb") == -1);
}

static void pairs(void)
{
    char text[] = "rw=randread,fast,bs=";
    char *rest = text, *key, *value;
    CHECK_CONTEXT("pairs");
    CHECK(opt_next_pair(&rest, &key, &value) && strcmp(key, "rw") == 0 && strcmp(value, "randread") == 0);
    CHECK(opt_next_pair(&rest, &key, &value) && strcmp(key, "fast") == 0 && value == NULL);
    CHECK(opt_next_pair(&rest, &key, &value) && strcmp(key, "bs") == 0 && strcmp(value, "") == 0);
    CHECK(!opt_next_pair(&rest, &key, &value));
}

/* Quantiles against a sorted array of the same values; sizes of all magnitudes; merged from two halves. */
static void histogram(void)
{
    enum { N = 20000 };
    static uint64_t v[N];
    struct hist *a = tool_alloc(sizeof *a), *b = tool_alloc(sizeof *b);
    struct check_rng rng;
    size_t i;
    int p;
    hist_clear(a);
    hist_clear(b);
    check_rng_init(&rng, 1);
    for (i = 0; i < N; i++) {
        v[i] = check_rand(&rng) >> (i % 60);
        hist_add(i % 2 ? a : b, v[i]);
    }
    hist_merge(a, b);
    CHECK_EQ(a->count, N);
    for (i = 1; i < N; i++) { /* insertion sort; N is small */
        uint64_t x = v[i];
        size_t low = 0, high = i;
        while (low < high)
            if (v[(low + high) / 2] <= x)
                low = (low + high) / 2 + 1;
            else
                high = (low + high) / 2;
        memmove(v + low + 1, v + low, (i - low) * sizeof *v);
        v[low] = x;
    }
    for (p = 1; p <= 1000; p++) {
        size_t rank = ((size_t)p * N + 999) / 1000;
        uint64_t want = v[rank - 1], got = hist_quantile(a, (double)p / 1000);
        CHECK_CONTEXT("quantile %d/1000", p);
        CHECK_GE(got, want);
        CHECK_LE(got - want, want / 64);
    }
    CHECK_EQ(hist_quantile(a, 1), v[N - 1]);
    CHECK_EQ(a->min, v[0]);
    hist_clear(b);
    CHECK_EQ(hist_quantile(b, 0.5), 0);
    hist_add(b, UINT64_MAX);
    hist_add(b, UINT64_MAX);
    CHECK_EQ(hist_quantile(b, 0.5), UINT64_MAX);
    CHECK(hist_mean(b) > 1.84e19 && hist_mean(b) < 1.85e19);
    free(a);
    free(b);
}

static void texts(void)
{
    char got[512] = "", path[] = "/tmp/qoskit-common-XXXXXX";
    size_t n;
    struct json j;
    struct table *t = table_new("<name|rate");
    FILE *f = tmpfile();
    int fd = mkstemp(path);
    CHECK_CONTEXT("human");
    CHECK(strcmp(human_bytes(20971520).text, "20.0 MiB") == 0);
    CHECK(strcmp(human_bytes(1023.9).text, "1.00 KiB") == 0);
    CHECK(strcmp(human_rate(512).text, "512 B/s") == 0);
    CHECK(strcmp(human_ns(1500).text, "1.50 us") == 0);
    CHECK(strcmp(human_count(123456).text, "123 k") == 0);
    CHECK_CONTEXT("table");
    table_cell(t, "a");
    table_cellf(t, "%d", 12345);
    table_print(t, f);
    rewind(f);
    n = fread(got, 1, sizeof got - 1, f);
    got[n] = 0;
    CHECK(strcmp(got, "name   rate\n-----------\na     12345\n") == 0);
    fclose(f);
    table_free(t);
    CHECK_CONTEXT("json");
    CHECK(fd >= 0 && json_open(&j, path));
    json_text(&j, "a\"b", "x\\\n\x01");
    json_array(&j, "list");
    json_u64(&j, NULL, UINT64_MAX);
    json_real(&j, NULL, (double)NAN);
    json_end(&j);
    json_object(&j, "empty");
    CHECK(json_close(&j));
    n = (size_t)pread(fd, got, sizeof got - 1, 0);
    got[n] = 0;
    CHECK(strcmp(got,
                 "{\n  \"a\\\"b\": \"x\\\\\\n\\u0001\",\n  \"list\": [\n    18446744073709551615,\n    null\n  ],\n"
                 "  \"empty\": {}\n}\n") == 0);
    CHECK(json_open(&j, "/dev/full") && !json_close(&j));
    CHECK(!json_open(&j, "/nonexistent/x"));
    CHECK(json_open(&j, NULL)); /* /dev/null */
    json_u64(&j, "n", 1);
    CHECK(json_close(&j));
    unlink(path);
    close(fd);
}

/* What is left of a child's files after the child ends in each of three ways. */
static void tidying(void)
{
    static const char *const ways[] = {"exit", "one signal, then exit", "two signals"};
    int way;
    for (way = 0; way < 3; way++) {
        char dir[64] = "/tmp/qoskit-tidy-XXXXXX";
        char file[128], kept[128];
        int status = 0, wanted = way == 2 ? TOOL_STOPPED : way;
        pid_t child;
        CHECK_CONTEXT("%s", ways[way]);
        CHECK(mkdtemp(dir) != NULL);
        snprintf(file, sizeof file, "%s/file", dir);
        snprintf(kept, sizeof kept, "%s/kept", dir);
        child = fork();
        if (child == 0) {
            stop_on_signals();
            if (close(creat(file, 0600)) != 0 || close(creat(kept, 0600)) != 0)
                _exit(9);
            temp_add(file);
            temp_add(kept);
            temp_forget(kept);
            if (way > 0)
                raise(SIGTERM);
            if (way > 1)
                raise(SIGINT);
            exit(stop_asked() ? 1 : 0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), wanted);
        CHECK(access(file, F_OK) != 0 && unlink(kept) == 0);
        CHECK(rmdir(dir) == 0);
    }
}

/* RFC 4648, chapter 10, and what is none. */
static void base64(void)
{
    static const char *const text[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    static const char *const code[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    static const char *const none[] = {"Z", "Zg", "Zg=", "Zg===", "Z===", "Zg==Zm8=", "Zm9*", "Zm 9v", "=Zm9"};
    unsigned char all[256], back[256];
    char coded[BASE64_ROOM(256)], room[16];
    size_t k;
    for (k = 0; k < 7; k++) {
        base64_encode(text[k], strlen(text[k]), coded);
        CHECK(strcmp(coded, code[k]) == 0 && strlen(coded) + 1 == BASE64_ROOM(strlen(text[k])));
        CHECK_EQ(base64_decode(code[k], strlen(code[k]), room), strlen(text[k]));
        CHECK(memcmp(room, text[k], strlen(text[k])) == 0);
    }
    for (k = 0; k < sizeof none / sizeof *none; k++)
        CHECK_EQ(base64_decode(none[k], strlen(none[k]), room), 0);
    CHECK_EQ(base64_decode("Zm\0v", 4, room), 0);
    for (k = 0; k < 256; k++)
        all[k] = (unsigned char)(k * 7);
    base64_encode(all, 256, coded);
    CHECK_EQ(base64_decode(coded, strlen(coded), back), 256);
    CHECK(memcmp(all, back, 256) == 0);
}

int main(void)
{
    check_begin("unit/common_parts");
    base64();
    parsers();
    pairs();
    histogram();
    texts();
    tidying();
    return check_end();
}
