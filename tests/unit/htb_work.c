// proves: what calls cost, counted in basic blocks that are run, not in time: an exchange of joined trees O(classes with
// proves: demand); a take there twice one in a tree alone, O(depth) while nothing waits, else O(64 * depth * depth), once
// proves: more for each claim that ends first; a queued request O(depth * (depth + log classes)); htb_reserve, htb_release
// proves: and an expiry the logarithm of 100,000 classes, in any order, or a look at those with tokens of their own
// flags: -O1 -fsanitize-coverage=trace-pc -DCOUNTS_BLOCKS
// variants: native
// coverage: no
#include "blocks.h"
#include "check.h"
#include "htb.h"

#define MS UINT64_C(1000000)

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

/* Blocks of a take that passes, the takes so far apart. */
static double take(bool joined, uint64_t apart_ns)
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
        granted += htb_take(&tree[0], i * apart_ns, 1, 2000) == QOS_OK;
    CHECK_EQ(granted, 1000);
    return (double)(blocks - before) / 1000;
}

/* A chain of groups of this depth below the root, and `classes` leaves at its end. Classes that wait: by a claim at the
 * gate, or with a request in the queue. */
enum waits { NOBODY, AT_THE_GATE, IN_QUEUES };
static double chain(uint32_t depth, uint32_t classes, enum waits waits)
{
    static struct htb_request request[10000];
    struct htb_config config;
    struct htb_class c;
    struct check_mem memory;
    uint64_t now = 0, calls = 0, passed = 0, before, sum = 0;
    uint32_t i, first = depth, parent = 0;
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    config.classes = first + classes;
    config.depth_max = depth;
    config.rate_per_s[0] = 1000000;
    config.bound = HTB_BY_RATE;
    check_mem_new(&memory, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(&tree[0], memory.mem, memory.size, &config), QOS_OK);
    for (i = 1; i < first + classes; i++) {
        c.parent = parent;
        c.group = i < first;
        CHECK_EQ(htb_reserve(&tree[0], 0, i, &c, NULL), QOS_OK);
        parent = c.group ? i : parent;
    }
    memset(request, 0, sizeof request);
    for (i = 0; i < classes; i++) {
        request[i].class_id = first + i;
        request[i].tokens[0] = 1000;
        if (waits == IN_QUEUES)
            CHECK_EQ(htb_submit(&tree[0], now, &request[i]), QOS_OK);
        else if (waits == AT_THE_GATE)
            passed += htb_take(&tree[0], now, first + i, 1000) == QOS_OK;
    }
    while (calls < 1000) { /* each ms the root has the tokens of a request; at the gate four ask */
        now += waits == AT_THE_GATE ? MS / 4 : MS;
        before = blocks;
        if (waits == IN_QUEUES) {
            struct htb_request *r = htb_dispatch(&tree[0], now);
            if (!r)
                continue;
            CHECK_EQ(htb_complete(&tree[0], now, HTB_DONE, NULL, r), QOS_OK);
            CHECK_EQ(htb_submit(&tree[0], now, r), QOS_OK);
        } else {
            passed += htb_take(&tree[0], now, first + (uint32_t)(calls * 7919 % classes), 1000) == QOS_OK;
        }
        sum += blocks - before;
        calls++;
    }
    if (waits != IN_QUEUES)
        CHECK_WITHIN((double)passed, waits == NOBODY ? 1000 : 200, waits == NOBODY ? 1000 : 600);
    CHECK(check_mem_free(&memory));
    return (double)sum / (double)calls;
}

/* Blocks of htb_expired, of so many classes, of which ACTIVE have tokens of their own and expire one after the other. */
static double expiry(uint32_t classes)
{
    static struct htb_request request[ACTIVE];
    struct htb_config config;
    struct htb_class c;
    struct check_mem memory;
    uint64_t before;
    uint32_t i;
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    memset(request, 0, sizeof request);
    config.classes = classes + 1;
    config.rate_per_s[0] = 1000000;
    c.rate_per_s[0] = 1;
    check_mem_new(&memory, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(&tree[0], memory.mem, memory.size, &config), QOS_OK);
    for (i = 0; i < ACTIVE; i++) {
        c.expires_ns = (2000 + i) * MS;
        CHECK_EQ(htb_reserve(&tree[0], 0, i + 1, &c, NULL), QOS_OK);
        request[i].class_id = i + 1;
        CHECK_EQ(htb_submit(&tree[0], MS, &request[i]), QOS_OK);
    }
    before = blocks;
    for (i = 0; i < ACTIVE; i++) {
        CHECK_EQ(htb_expired(&tree[0], (2000 + i) * MS), i + 1);
        CHECK_EQ(htb_expired(&tree[0], (2000 + i) * MS), QOS_NONE);
    }
    before = blocks - before;
    CHECK(check_mem_free(&memory));
    return (double)before / ACTIVE;
}

/* Blocks of a call of each kind, of so many classes with a request each and no tokens yet: all are reserved, of two one
 * is released and one expires, each in this order. The most of any htb_reserve and htb_release, an expiry in the mean. */
enum order { ASCENDING, DESCENDING, SHUFFLED, AT_ONCE };
struct ends {
    double reserve, release, expired;
};
static uint32_t in_order(uint32_t i, uint32_t classes, enum order order)
{
    return 1 + (order == DESCENDING ? classes - 1 - i : order == SHUFFLED ? i * 7919 % classes : i);
}

static struct ends ends(uint32_t classes, enum order order)
{
    static struct htb_request request[100000];
    struct htb_config config;
    struct htb_class c;
    struct check_mem memory;
    struct ends out = {0, 0, 0};
    uint64_t before;
    uint32_t i, id, count = 0;
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    memset(request, 0, sizeof request);
    config.classes = classes + 1;
    config.rate_per_s[0] = 1000000;
    c.rate_per_s[0] = 1; /* the first token comes after a second */
    check_mem_new(&memory, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(&tree[0], memory.mem, memory.size, &config), QOS_OK);
    for (i = 0; i < classes; i++) {
        id = in_order(i, classes, order);
        c.expires_ns = i % 2 == 0 ? 0 : MS + (order == AT_ONCE ? 1 : i);
        before = blocks;
        CHECK_EQ(htb_reserve(&tree[0], 0, id, &c, NULL), QOS_OK);
        out.reserve = blocks - before > out.reserve ? (double)(blocks - before) : out.reserve;
        request[i].class_id = id;
        request[i].tokens[0] = 1;
        CHECK_EQ(htb_submit(&tree[0], 0, &request[i]), QOS_OK);
    }
    before = blocks;
    for (i = 0; i <= classes; i++)
        while (htb_expired(&tree[0], i == classes ? 2 * MS : MS + i) != QOS_NONE)
            count++;
    out.expired = (double)(blocks - before) / (double)classes * 2;
    CHECK_EQ(count, classes / 2);
    for (i = 0; i < classes; i += 2) {
        before = blocks;
        CHECK_EQ(htb_release(&tree[0], 2 * MS, in_order(i, classes, order)), QOS_OK);
        out.release = blocks - before > out.release ? (double)(blocks - before) : out.release;
    }
    CHECK(check_mem_free(&memory));
    return out;
}

static void costs_of_ends(void)
{
    static const char *const name[] = {"ascending", "descending", "shuffled", "at once"};
    enum order order;
    for (order = ASCENDING; order <= AT_ONCE; order++) {
        const struct ends few = ends(100, order), many = ends(100000, order);
        CHECK_CONTEXT("classes come and go, %s", name[order]);
        printf("%-10s of 100 classes: reserve %4.0f, release %4.0f, an expiry %4.0f blocks; of 100,000: %4.0f, %4.0f, "
               "%4.0f\n",
               name[order], few.reserve, few.release, few.expired, many.reserve, many.release, many.expired);
        CHECK_WITHIN(many.reserve / few.reserve, 0, 3); /* log 100,000 is 2.5 times log 100 */
        CHECK_WITHIN(many.release / few.release, 0, 3);
        CHECK_WITHIN(many.expired / few.expired, 0, 3);
    }
}

/* Blocks of htb_next_ns for a class beside claims, both at the ends of chains that meet half way. If they end first: the
 * claims are where these meet, and a quarter of them ends one after the other before the class's turn. */
static double beside(uint32_t depth, uint32_t claims, bool end_first)
{
    struct htb_config config;
    struct htb_class c;
    struct check_mem memory;
    uint64_t before, told;
    uint32_t i;
    const uint32_t top = claims + 1, end = top + depth - 2, fork = top + depth / 2, asks = end + depth; /* ids */
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    config.classes = asks + 1;
    config.depth_max = 2 * depth;
    config.rate_per_s[0] = 1000000;
    config.bound = HTB_BY_RATE;
    check_mem_new(&memory, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(&tree[0], memory.mem, memory.size, &config), QOS_OK);
    for (i = top; i <= asks; i++) {
        c.group = i < asks;
        c.parent = i == top ? 0 : i == end + 1 ? fork : i - 1;
        CHECK_EQ(htb_reserve(&tree[0], 0, i, &c, NULL), QOS_OK);
    }
    c.parent = end_first ? fork : end;
    c.burst_ns = end_first ? 500 * claims : 0;
    for (i = 1; i <= claims; i++)
        CHECK_EQ(htb_reserve(&tree[0], 0, i, &c, NULL), QOS_OK);
    for (i = 1; i <= claims; i++) /* nobody has tokens yet */
        CHECK_EQ(htb_take(&tree[0], i, i, 1), QOS_EAGAIN);
    before = blocks;
    told = htb_next_ns(&tree[0], claims, asks, 1);
    before = blocks - before;
    CHECK_WITHIN((double)told, end_first ? 600 * claims : 2000, end_first ? 900 * claims : 2000);
    CHECK(check_mem_free(&memory));
    return (double)before;
}

static void costs_beside(void)
{
    const double few = beside(8, 8, false), many = beside(8, 64, false), deep = beside(32, 64, false);
    const double few_end = beside(8, 8, true), many_end = beside(8, 64, true);
    printf("a time told: %.0f blocks beside 8 claims, %.0f beside 64, %.0f of these at depth 32 for 8\n", few, many,
           deep);
    printf("if they end first: %.0f blocks beside 8, %.0f beside 64\n", few_end, many_end);
    CHECK_WITHIN(many / few, 1, 9);
    CHECK_WITHIN(deep / many, 1, 8);
    CHECK_WITHIN(many_end / few_end, 1, 64);
}

static void costs(void)
{
    const double free_low = chain(2, 100, NOBODY), free_deep = chain(32, 100, NOBODY);
    const double few = chain(8, 100, AT_THE_GATE), many = chain(8, 10000, AT_THE_GATE),
                 deep = chain(32, 100, AT_THE_GATE);
    const double queue_few = chain(8, 100, IN_QUEUES), queue_many = chain(8, 10000, IN_QUEUES);
    const double end_few = expiry(100), end_many = expiry(10000);
    printf("a take, nothing waits: %.1f blocks at depth 2, %.1f at 32\n", free_low, free_deep);
    printf("a take beside claims: %.1f blocks with 100 classes, %.1f with 10,000, %.1f at depth 32 for 8\n", few, many,
           deep);
    printf("a request in the queue: %.1f blocks with 100 classes, %.1f with 10,000\n", queue_few, queue_many);
    printf("an expiry: %.1f blocks with 100 classes, %.1f with 10,000\n", end_few, end_many);
    CHECK_WITHIN(end_many / end_few, 0, 2);
    CHECK_WITHIN(free_deep / free_low, 1, 16);
    CHECK_WITHIN(few, 1, 5 * 64 * 8 * 8);
    CHECK_WITHIN(many / few, 0, 2);
    CHECK_WITHIN(deep / few, 1, 8);
    CHECK_WITHIN(queue_many / queue_few, 0, 2);
}

int main(void)
{
    const double alone = take(false, MS), joined = take(true, MS), dense = take(false, 1000),
                 dense_joined = take(true, 1000);
    int moves;
    check_begin("unit/htb_work");
    printf("a take: %.1f blocks, in a joined tree %.1f; a microsecond apart %.1f, %.1f\n", alone, joined, dense,
           dense_joined);
    CHECK_WITHIN(joined / alone, 0, 2);
    CHECK_WITHIN(dense_joined / dense, 0, 1.25);
    costs();
    costs_beside();
    costs_of_ends();
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
