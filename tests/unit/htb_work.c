// proves: an exchange of joined trees costs O(classes with demand), counted in basic blocks that are run, not in time:
// proves: 100 times as many classes that ask for nothing, but did so once, may cost 1.2 times as much. A take in a joined
// proves: tree costs at most twice what one costs in a tree alone
// flags: -fsanitize-coverage=trace-pc -DCOUNTS_BLOCKS
// variants: native
// coverage: no
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)

#ifdef __clang__ /* only looks for faults here */
#define NOT_COUNTED __attribute__((no_sanitize("coverage")))
#else
#define NOT_COUNTED __attribute__((no_sanitize_coverage))
#endif

/* The compiler calls it at the begin of each basic block, of the bodies in this program, too (-D). */
static volatile uint64_t blocks;
void __sanitizer_cov_trace_pc(void);
NOT_COUNTED void __sanitizer_cov_trace_pc(void)
{
    blocks = blocks + 1;
}

enum { ACTIVE = 10, ROUNDS = 100 };
static struct htb tree[2];

/* Blocks of an exchange while ACTIVE classes ask, of so many; once all of them did. A class asks tree 0, or both trees
 * in turn, so that its tokens move. */
static double exchange(uint32_t classes, bool moves)
{
    struct htb_shared_config shared;
    struct htb_config config;
    struct htb_class c;
    struct check_mem memory[2], words;
    uint64_t now = 0, sum = 0, granted = 0, before;
    uint32_t k, id, round;
    memset(&shared, 0, sizeof shared);
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    shared.trees = 2;
    shared.classes = config.classes = classes + 1;
    config.rate_per_s[0] = 2000000000;
    c.rate_per_s[0] = 1000;
    check_mem_new(&words, htb_shared_memsize(&shared), 64, 0);
    CHECK_EQ(htb_shared_init((struct htb_shared *)words.mem, words.size, &shared), QOS_OK);
    for (k = 0; k < 2; k++) {
        check_mem_new(&memory[k], htb_memsize(&config), 64, 0);
        CHECK_EQ(htb_init(&tree[k], memory[k].mem, memory[k].size, &config), QOS_OK);
        CHECK_EQ(htb_join(&tree[k], 0, (struct htb_shared *)words.mem, k), QOS_OK);
        for (id = 1; id <= classes; id++)
            CHECK_EQ(htb_reserve(&tree[k], 0, id, &c, NULL), QOS_OK);
    }
    for (id = 1; id <= classes; id++)
        granted += htb_take(&tree[id % 2], 100 * MS, id, 1) == QOS_OK;
    for (round = 0; round < 2 * ROUNDS; round++) {
        now = (200 + 5 * round) * MS;
        for (id = 1; id <= ACTIVE; id++)
            granted += htb_take(&tree[moves ? (round / 10 + id) % 2 : 0], now, id * (classes / ACTIVE), 1) == QOS_OK;
        for (k = 0; k < 2; k++) {
            before = blocks;
            (void)htb_exchange(&tree[k], now);
            sum += round >= ROUNDS ? blocks - before : 0;
        }
    }
    for (k = 0; k < 2; k++)
        CHECK(check_mem_free(&memory[k]));
    CHECK(check_mem_free(&words));
    CHECK_GE(granted, classes + ACTIVE * ROUNDS);
    return (double)sum / ROUNDS / 2;
}

/* Blocks of a take that passes. */
static double take(bool joined)
{
    static unsigned char memory[16384] __attribute__((aligned(64))), words[16384] __attribute__((aligned(64)));
    struct htb_shared_config shared;
    struct htb_config config;
    struct htb_class c;
    uint64_t before, granted = 0;
    uint32_t i;
    memset(&shared, 0, sizeof shared);
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    shared.trees = 1;
    config.rate_per_s[0] = 2000000000;
    c.rate_per_s[0] = 1000000;
    CHECK_EQ(htb_shared_init((struct htb_shared *)(void *)words, sizeof words, &shared), QOS_OK);
    CHECK_EQ(htb_init(&tree[0], memory, sizeof memory, &config), QOS_OK);
    CHECK_EQ(htb_reserve(&tree[0], 0, 1, &c, NULL), QOS_OK);
    if (joined)
        CHECK_EQ(htb_join(&tree[0], 0, (struct htb_shared *)(void *)words, 0), QOS_OK);
    before = blocks;
    for (i = 1; i <= 1000; i++)
        granted += htb_take(&tree[0], i * MS, 1, 2000) == QOS_OK;
    CHECK_EQ(granted, 1000);
    return (double)(blocks - before) / 1000;
}

int main(void)
{
    const double alone = take(false), joined = take(true);
    int moves;
    check_begin("unit/htb_work");
    printf("a take: %.1f blocks, in a joined tree %.1f\n", alone, joined);
    CHECK_WITHIN(joined / alone, 0, 2);
    for (moves = 0; moves < 2; moves++) {
        const double few = exchange(ACTIVE * 10, moves != 0), many = exchange(ACTIVE * 1000, moves != 0);
        printf("demand %-20s %7.1f blocks an exchange, %7.1f with 100 times as many classes\n",
               moves ? "moves" : "in one tree", few, many);
        CHECK_CONTEXT("demand %s", moves ? "moves" : "in one tree");
        CHECK_WITHIN(few, 100, 1e6);
        CHECK_WITHIN(many / few, 0, 1.2);
    }
    return check_end();
}
