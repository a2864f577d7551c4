// proves: the redirect table says for every byte what a byte map says, over long random runs of create, local write,
// proves: query, pull, compaction and recovery (paper, Sections V-B and V-C); its tree keeps its own rules meanwhile.
#include "property/twochoice_disk.h"

#define OBJECTS 3
#define CELLS 4096
#define PULLS 4

/* A cell is `scale` bytes of an object. The map knows where it is and which operation put it there. */
struct cell {
    uint32_t target; /* TWOCHOICE_LOCAL or a server */
    uint64_t op;
};
static struct cell map[OBJECTS][CELLS];

static uint64_t scale, base_offset, op;
static bool with_pulls;
static const uint64_t object_id[OBJECTS] = {0, 5, UINT64_MAX};
static struct check_rng rng;
static struct twochoice_table t;

struct pull {
    bool open, ready;
    uint32_t id;
    unsigned object, from, to;
    uint64_t op[CELLS];
};
static struct pull pulls[PULLS];

static uint64_t offset_of(unsigned cell)
{
    return base_offset + cell * scale;
}

static void check_query(unsigned object, unsigned from, unsigned to)
{
    static struct twochoice_piece p[CELLS + 1];
    size_t max = check_between(&rng, 0, 3) ? CELLS + 1 : (size_t)check_between(&rng, 1, 3), n, i;
    uint64_t at = offset_of(from);
    n = twochoice_table_query(&t, object_id[object], at, offset_of(to) - at, p, max);
    CHECK(n >= 1 && n <= max);
    for (i = 0; i < n; i++) {
        uint64_t c;
        CHECK_EQ(p[i].offset, at);
        CHECK_EQ(p[i].object, object_id[object]);
        CHECK(p[i].end > at && (p[i].end - base_offset) % scale == 0);
        for (c = (at - base_offset) / scale; c < (p[i].end - base_offset) / scale; c++)
            CHECK_EQ(p[i].target, map[object][c].target);
        CHECK((p[i].version == 0) == (p[i].target == TWOCHOICE_LOCAL));
        at = p[i].end;
    }
    if (n < max)
        CHECK_EQ(at, offset_of(to));
    else
        CHECK_LE(at, offset_of(to));
}

static uint64_t runs_of_map(void)
{
    uint64_t runs = 0;
    unsigned o, c;
    for (o = 0; o < OBJECTS; o++)
        for (c = 0; c < CELLS; c++)
            runs += map[o][c].target != TWOCHOICE_LOCAL && (c == 0 || map[o][c].target != map[o][c - 1].target);
    return runs;
}

static void check_all(void)
{
    unsigned o;
    uint64_t redirected = 0, seen = 0, object = 0, offset = 0;
    struct twochoice_piece p;
    for (o = 0; o < OBJECTS; o++) {
        unsigned c;
        check_query(o, 0, CELLS);
        for (c = 0; c < CELLS; c++)
            redirected += map[o][c].target != TWOCHOICE_LOCAL;
    }
    while (twochoice_table_next(&t, object, offset, &p)) {
        CHECK(p.object > object || (p.object == object && p.offset >= offset));
        seen += (p.end - p.offset) / scale;
        object = p.object;
        offset = p.end;
    }
    CHECK_EQ(seen, redirected);
    if (!with_pulls) /* equal neighbours are one fragment, wherever in the tree they meet */
        CHECK_EQ(t.fragments, runs_of_map());
    CHECK_EQ(twochoice_table_verify(&t), QOS_OK);
}

static void pick_range(unsigned *object, unsigned *from, unsigned *to)
{
    unsigned most = check_between(&rng, 0, 9) == 0 ? 600 : check_between(&rng, 0, 3) ? 3 : 20;
    *object = (unsigned)check_between(&rng, 0, OBJECTS - 1);
    *from = (unsigned)check_between(&rng, 0, CELLS - 1);
    *to = *from + (unsigned)check_between(&rng, 1, most);
    if (*to > CELLS)
        *to = CELLS;
}

static void change(uint32_t target)
{
    unsigned object, from, to;
    enum qos_status st;
    uint64_t offset, len;
    bool reserved = false;
    pick_range(&object, &from, &to);
    offset = offset_of(from);
    len = offset_of(to) - offset;
    if (target == TWOCHOICE_LOCAL) {
        st = twochoice_table_local(&t, object_id[object], offset, len);
    } else {
        if (check_between(&rng, 0, 1)) {
            st = twochoice_table_reserve(&t);
            CHECK(st == QOS_OK || st == QOS_EFULL);
            reserved = st == QOS_OK;
        }
        st = twochoice_table_create(&t, object_id[object], target, offset, len, reserved);
        CHECK(st == QOS_OK || !reserved);
    }
    CHECK(st == QOS_OK || (st == QOS_EFULL && t.fragments + 2 > t.max_fragments));
    op++;
    for (; st == QOS_OK && from < to; from++) {
        map[object][from].target = target;
        map[object][from].op = op;
    }
}

static void start_pull(struct pull *p)
{
    unsigned object, from, to, c;
    struct twochoice_piece piece;
    enum qos_status st;
    pick_range(&object, &from, &to);
    st = twochoice_table_pull_start(&t, object_id[object], offset_of(from), (to - from) * scale, &p->id, &piece);
    if (st != QOS_OK) {
        CHECK_EQ(st, QOS_ENOENT);
        return;
    }
    p->open = true;
    p->ready = false;
    for (p->object = 0; object_id[p->object] != piece.object; p->object++)
        continue;
    p->from = (unsigned)((piece.offset - base_offset) / scale);
    p->to = (unsigned)((piece.end - base_offset) / scale);
    CHECK_LE(p->to - p->from, to - from);
    for (c = p->from; c < p->to; c++) {
        CHECK_EQ(map[p->object][c].target, piece.target);
        p->op[c] = map[p->object][c].op;
    }
}

/* A cell may be pulled home if nothing has changed it since the pull began. */
static bool unchanged(const struct pull *p, unsigned c)
{
    return map[p->object][c].target != TWOCHOICE_LOCAL && map[p->object][c].op == p->op[c];
}

static void go_on_pull(struct pull *p)
{
    struct twochoice_piece out[8];
    unsigned c;
    size_t n = 0, i;
    uint64_t what = check_between(&rng, 0, 9);
    if (what == 0) {
        twochoice_table_pull_cancel(&t, p->id);
        p->open = false;
    } else if (!p->ready) {
        unsigned to = p->to;
        CHECK_EQ(twochoice_table_pull_ready(&t, p->id, out, 8, &n), QOS_OK);
        if (n == 8)
            to = (unsigned)((out[7].end - base_offset) / scale);
        for (c = p->from; c < to; c++) {
            bool inside = false;
            for (i = 0; i < n; i++)
                inside |= offset_of(c) >= out[i].offset && offset_of(c) < out[i].end;
            CHECK_EQ(inside, unchanged(p, c));
        }
        p->to = to;
        p->ready = true;
    } else {
        enum qos_status st = twochoice_table_pull_finish(&t, p->id);
        if (st == QOS_EFULL) {
            twochoice_table_pull_cancel(&t, p->id);
            p->open = false;
            CHECK_GE(t.fragments + 1, t.max_fragments);
            /* Some bytes may be home already: ask the table which, they must be unchanged ones. */
            for (c = p->from; c < p->to; c++) {
                struct twochoice_piece now;
                twochoice_table_find(&t, object_id[p->object], offset_of(c), &now);
                if (now.target == TWOCHOICE_LOCAL && unchanged(p, c))
                    map[p->object][c].target = TWOCHOICE_LOCAL;
            }
            return;
        }
        CHECK_EQ(st, QOS_OK);
        p->open = false;
        op++;
        for (c = p->from; c < p->to; c++)
            if (unchanged(p, c)) {
                map[p->object][c].target = TWOCHOICE_LOCAL;
                map[p->object][c].op = op;
            }
    }
}

static void run(uint64_t seed, bool logged, uint32_t max_fragments, uint64_t steps)
{
    static struct disk disk;
    struct twochoice_storage storage;
    struct twochoice_table_config cfg;
    struct check_mem m;
    uint64_t step;
    unsigned i, o, c;
    uint32_t deepest = 0;
    void *mem;
    check_rng_init(&rng, seed);
    disk_init(&disk, &rng, &storage);
    memset(&cfg, 0, sizeof cfg);
    memset(pulls, 0, sizeof pulls);
    cfg.max_fragments = max_fragments;
    cfg.home = 9;
    cfg.storage = logged ? &storage : NULL;
    for (o = 0; o < OBJECTS; o++)
        for (c = 0; c < CELLS; c++) {
            map[o][c].target = TWOCHOICE_LOCAL;
            map[o][c].op = 0;
        }
    mem = check_mem_new(&m, twochoice_table_memsize(&cfg), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    if (logged)
        CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (step = 0; step < steps; step++) {
        uint64_t what = check_between(&rng, 0, 99);
        struct pull *p = &pulls[check_between(&rng, 0, PULLS - 1)];
        bool shrink = (step / 2000) % 3 == 2; /* the table grows, and empties again */
        if (t.height > deepest)
            deepest = t.height;
        CHECK_CONTEXT("run %u, step %u of object map", (unsigned)seed, (unsigned)step);
        if (what < (shrink ? 15 : 50)) {
            change((uint32_t)check_between(&rng, 0, 5));
        } else if (what < 60) {
            change(TWOCHOICE_LOCAL);
        } else if (what < 75) {
            if (!with_pulls)
                continue;
            if (p->open)
                go_on_pull(p);
            else
                start_pull(p);
        } else if (what < 97) {
            unsigned from, to;
            pick_range(&o, &from, &to);
            check_query(o, from, to);
        } else if (logged && what == 97) {
            bool done;
            if (!t.compacting)
                CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
            CHECK_EQ(twochoice_table_compact_step(&t, (uint32_t)check_between(&rng, 1, 500), &done), QOS_OK);
        } else if (logged && what == 98 && check_between(&rng, 0, 9) == 0) {
            struct twochoice_recovery r;
            uint64_t version = t.version;
            memset(pulls, 0, sizeof pulls);
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
            CHECK_EQ(twochoice_table_init(&t, mem, m.size, &cfg), QOS_OK);
            CHECK_EQ(twochoice_table_recover(&t, 0, &r), QOS_OK);
            CHECK_EQ(r.dropped_bytes, 0);
            CHECK_EQ(t.version, version);
            check_all();
        } else if (what == 99 && check_between(&rng, 0, 3) == 0) {
            check_all();
        }
    }
    for (i = 0; i < PULLS; i++)
        if (pulls[i].open)
            twochoice_table_pull_cancel(&t, pulls[i].id);
    check_all();
    if (steps > 10000 && max_fragments > 1000)
        CHECK_GE(deepest, 2); /* the run did build a tree */
    CHECK(check_mem_free(&m));
    disk_free(&disk);
}

int main(void)
{
    uint64_t i;
    check_begin("twochoice_table");
    for (i = 0; i < 8; i++) {
        /* Within 4 GiB lie all cells of an object, or less than one; at last 64, and 4: leaves of either form. */
        scale = i == 6 ? 1 << 26 : i == 7 ? 1 << 30 : i % 3 == 0 ? 1 : i % 3 == 1 ? 1 << 20 : UINT64_C(1) << 51;
        base_offset = i < 3 ? 0 : UINT64_MAX - CELLS * scale; /* up to the last byte that an object can have */
        with_pulls = i != 0 && i != 3;
        run(i, i % 2 == 1, i == 5 ? 40 : i == 4 ? 700 : 6000, check_scaled(150000));
    }
    return check_end();
}
