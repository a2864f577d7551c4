// proves: the tree of the redirect table gives for every byte what a byte map gives, and keeps its own rules, while its
// proves: leaves change between their two forms. Objects are dense, sparse, or many and small, and grow and empty in
// proves: turn. No pattern needs more memory than the header states.
#include "check.h"
#include "twochoice.h"
#include "twochoice_calls.h"

#define OBJECTS 60
#define CELLS 2048

/* Cells of `scale` bytes: in the first object all lie within 4 GiB, in the second 64 neighbours do, in the third only
 * 2. */
static struct object {
    uint64_t id, scale, base;
    uint32_t cells;
} object[OBJECTS];
static uint32_t map[OBJECTS][CELLS], op[OBJECTS][CELLS], ops;
static struct check_rng rng;
static struct twochoice_table t;

static void set_up(void)
{
    uint32_t o;
    for (o = 0; o < OBJECTS; o++) {
        bool big = o % 20 == 10;
        object[o].id = o == OBJECTS - 1 ? UINT64_MAX : (uint64_t)o * 3;
        object[o].cells = big ? CELLS : 16;
        object[o].scale = !big ? UINT64_C(1) << 20 : o == 10 ? 4096 : o == 30 ? UINT64_C(1) << 26 : UINT64_C(1) << 31;
        object[o].base = o == 50 || o == OBJECTS - 1 ? UINT64_MAX - object[o].cells * object[o].scale : 0;
    }
    memset(map, 0, sizeof map);
}

static uint64_t offset_of(uint32_t o, uint32_t c)
{
    return object[o].base + c * object[o].scale;
}

static void compare(uint32_t o)
{
    uint32_t c = 0;
    while (c < object[o].cells) {
        struct twochoice_piece p;
        twochoice_table_find(&t, object[o].id, offset_of(o, c), &p);
        CHECK(p.end > offset_of(o, c));
        for (; c < object[o].cells && offset_of(o, c) < p.end; c++)
            CHECK_EQ(p.target, map[o][c] ? map[o][c] : TWOCHOICE_LOCAL);
    }
}

static uint64_t runs_of_map(void)
{
    uint64_t runs = 0;
    uint32_t o, c;
    for (o = 0; o < OBJECTS; o++)
        for (c = 0; c < object[o].cells; c++)
            runs += map[o][c] && (c == 0 || !map[o][c - 1] || op[o][c] != op[o][c - 1]);
    return runs;
}

static void change(uint32_t o, uint32_t from, uint32_t to, uint32_t target)
{
    uint64_t len = (to - from) * object[o].scale;
    CHECK_EQ(redirect(&t, object[o].id, offset_of(o, from), len, target ? target : TWOCHOICE_LOCAL), QOS_OK);
    ops++;
    for (; from < to; from++) {
        map[o][from] = target;
        op[o][from] = ops;
    }
}

static void open_table(struct check_mem *m)
{
    struct twochoice_table_config config;
    memset(&config, 0, sizeof config);
    config.max_fragments = 3 * CELLS + OBJECTS * 16 + 2;
    config.home = 9;
    check_mem_new(m, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, m->mem, m->size, &config), QOS_OK);
    set_up();
}

/* Tables of a few leaves, one of which grows: the root's only two children may be small. */
static void small_tables(void)
{
    uint64_t round, rounds = check_scaled(300);
    for (round = 0; round < rounds; round++) {
        struct check_mem m;
        uint32_t step, o, c, grows = (uint32_t)check_between(&rng, 0, 1) ? 10 : 30;
        uint32_t first = (uint32_t)check_between(&rng, 0, 40);
        CHECK_CONTEXT("seed %u, round %u", (unsigned)check_seed(), (unsigned)round);
        open_table(&m);
        for (step = 0; step < 200; step++) {
            o = step < first || check_between(&rng, 0, 9) == 0 ? (uint32_t)check_between(&rng, 0, OBJECTS - 1) : grows;
            c = (uint32_t)check_between(&rng, 0, o == grows ? 99 : object[o].cells - 1);
            change(o, c, c + 1, (uint32_t)check_between(&rng, 0, step < 150 ? 7 : 1));
            CHECK(check_tree(&t));
        }
        for (o = 0; o < OBJECTS; o++)
            compare(o);
        CHECK(check_mem_free(&m));
    }
}

/* Fifteen fragments far apart and, behind them, a growing number that lie close. The root's first child keeps its
 * fifteen until the second has 60; then both share. The table is emptied from the front, and from the back. */
static void two_children(bool from_front)
{
    const uint64_t far = 15, all = far + 61;
    struct check_mem m;
    uint64_t i;
    open_table(&m);
    for (i = 0; i < all; i++) {
        uint64_t offset = i < far ? i << 40 : (UINT64_C(1) << 50) + (i << 11);
        CHECK_EQ(redirect(&t, 1, offset, 1024, 2), QOS_OK);
        CHECK(check_tree(&t));
        CHECK_EQ(counts_of(&t).nodes_used, i < 30 ? 1 : 3); /* the root and two leaves */
    }
    for (i = 0; i < all; i++) {
        uint64_t k = from_front ? i : all - 1 - i, offset = k < far ? k << 40 : (UINT64_C(1) << 50) + (k << 11);
        CHECK_EQ(redirect(&t, 1, offset, 1024, TWOCHOICE_LOCAL), QOS_OK);
        CHECK(check_tree(&t));
    }
    CHECK_EQ(counts_of(&t).fragments, 0);
    /* An empty leaf that was narrow takes any fragment. */
    CHECK_EQ(redirect(&t, 2, 0, UINT64_MAX - 1, 3), QOS_OK);
    CHECK(check_tree(&t));
    CHECK(check_mem_free(&m));
}

int main(void)
{
    static const uint64_t shares[6][3] = {{100, 0, 0}, {0, 100, 0}, {30, 30, 30}, {0, 0, 100}, {0, 0, 0}, {10, 10, 60}};
    struct check_mem m;
    uint64_t step, steps, most = 0, dense = 1000, sparse = 0;
    uint32_t o;
    check_begin("twochoice_leaves");
    check_rng_init(&rng, check_seed());
    small_tables();
    two_children(true);
    two_children(false);
    steps = check_scaled(300000);
    open_table(&m);
    for (step = 0; step < steps; step++) {
        const uint64_t *share = shares[step / 1500 % 6];
        bool shrink = step / 4000 % 3 == 2;
        uint64_t what = check_between(&rng, 0, 99), room;
        uint32_t from, to;
        CHECK_CONTEXT("seed %u, step %u", (unsigned)check_seed(), (unsigned)step);
        o = what < share[0]                         ? 10
            : what < share[0] + share[1]            ? 30
            : what < share[0] + share[1] + share[2] ? 50
                                                    : (uint32_t)check_between(&rng, 0, OBJECTS - 1);
        from = (uint32_t)check_between(&rng, 0, object[o].cells - 1);
        to = from + (uint32_t)check_between(&rng, 1, check_between(&rng, 0, 19) == 0 ? 64 : shrink ? 8 : 2);
        if (to > object[o].cells)
            to = object[o].cells;
        change(o, from, to, check_between(&rng, 0, 9) < (shrink ? 8 : 1) ? 0 : (uint32_t)check_between(&rng, 1, 4));
        if (step % 16 == 0) {
            compare(o);
            CHECK(check_tree(&t));
        }
        /* 64 bytes a fragment, plus the size of an empty tree. */
        if (counts_of(&t).fragments > 1000) {
            uint64_t bytes = counts_of(&t).nodes_used * UINT64_C(1024) / counts_of(&t).fragments;
            dense = bytes < dense ? bytes : dense;
            sparse = bytes > sparse ? bytes : sparse;
        }
        room = 64 * (uint64_t)counts_of(&t).fragments + 8 * 1024;
        CHECK_LE(counts_of(&t).nodes_used * 1024, room);
        most = counts_of(&t).fragments > most ? counts_of(&t).fragments : most;
    }
    for (o = 0; o < OBJECTS; o++)
        compare(o);
    CHECK_EQ(counts_of(&t).fragments, runs_of_map());
    CHECK(check_tree(&t));
    if (steps >= 100000)
        CHECK_GE(most, 2000);
    CHECK(dense < 40 && sparse > 35); /* bytes a fragment: each form of leaf was the rule at times */
    for (o = 0; o < OBJECTS; o++)
        change(o, 0, object[o].cells, 0);
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK_EQ(counts_of(&t).nodes_used, 1);
    CHECK(check_mem_free(&m));
    printf("bytes a fragment: %u to %u, most fragments %u\n", (unsigned)dense, (unsigned)sparse, (unsigned)most);
    return check_end();
}
