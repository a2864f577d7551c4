/* Runs a fuzz target without a fuzzer: replays its corpus, then random inputs; or the files named on the command
 * line (AFL++ runs it this way too). libFuzzer does not use this file. */
#include "check.h"
#include <dirent.h>

#ifndef FUZZ_NAME
#error "-DFUZZ_NAME=\"subject\" names the corpus"
#endif
#define FUZZ_INPUT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run_file(const char *path)
{
    static uint8_t input[1 << 20];
    FILE *f = fopen(path, "rb");
    size_t n;
    if (!f) {
        perror(path);
        exit(1);
    }
    n = fread(input, 1, sizeof input, f);
    fclose(f);
    CHECK_CONTEXT("input %.140s", path);
    LLVMFuzzerTestOneInput(input, n);
}

/* Built by afl-clang-fast: runs thousands of inputs in one process. */
#ifdef __AFL_HAVE_MANUAL_CONTROL
__AFL_FUZZ_INIT();
static int run_afl(void)
{
    const uint8_t *input;
    __AFL_INIT();
    input = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(10000))
        LLVMFuzzerTestOneInput(input, (size_t)__AFL_FUZZ_TESTCASE_LEN);
    return 0;
}
#else
static int run_afl(void)
{
    return 1;
}
#endif

int main(int argc, char **argv)
{
    uint64_t i, runs, files = 0;
    int a;
    struct check_rng rng;
    DIR *corpus;
    check_begin("fuzz/" FUZZ_NAME);
    for (a = 1; a < argc; a++)
        run_file(argv[a]);
    if (argc > 1)
        return 0;
    if (getenv("QOS_FUZZ_AFL"))
        return run_afl();
    corpus = opendir("tests/fuzz/corpus/" FUZZ_NAME);
    if (corpus) {
        struct dirent *e;
        while ((e = readdir(corpus)) != NULL) {
            char path[512];
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "tests/fuzz/corpus/" FUZZ_NAME "/%s", e->d_name);
            run_file(path);
            files++;
        }
        closedir(corpus);
    }
    if (files == 0)
        check_fail(__FILE__, __LINE__, "there is a corpus tests/fuzz/corpus/" FUZZ_NAME);
    check_rng_init(&rng, 99);
    runs = check_scaled(20000);
    for (i = 0; i < runs; i++) {
        uint8_t input[FUZZ_INPUT_MAX];
        size_t n = (size_t)check_between(&rng, 0, check_between(&rng, 1, FUZZ_INPUT_MAX)), k;
        /* Half of the inputs hold mostly small numbers: they reach more states. */
        uint8_t mask = (uint8_t)(check_between(&rng, 0, 1) ? 0xff : 0x0f);
        for (k = 0; k < n; k++)
            input[k] = (uint8_t)(check_rand(&rng) & mask);
        CHECK_CONTEXT("random input %" PRIu64 " of %zu bytes", i, n);
        LLVMFuzzerTestOneInput(input, n);
        check_state.checks++;
    }
    return check_end();
}
