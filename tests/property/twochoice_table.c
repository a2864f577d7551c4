// proves: the redirect table gives for every byte what a byte map gives, over long random runs of create, local write,
// proves: query, pull, compaction and recovery (paper, Sections V-B and V-C); its tree keeps its own rules meanwhile.
#include "property/twochoice_disk.h"

#define OBJECTS 3
#define CELLS 4096
#define PULLS 4

/* A cell is `scale` bytes of an object. The map keeps where the cell is and which operation put it there. */
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
            runs += map[o][c].target != TWOCHOICE_LOCAL && (c == 0 || map[o][c].op != map[o][c - 1].op);
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
    if (!with_pulls) /* each stretch that remains of a write is one fragment */
        CHECK_EQ(counts_of(&t).fragments, runs_of_map());
    CHECK(check_tree(&t));
}

/* in one of long_ones + 1 cases the range may be long; many long ranges keep the tree small */
static unsigned long_ones;

static void pick_range(unsigned *object, unsigned *from, unsigned *to)
{
    unsigned most = check_between(&rng, 0, long_ones) == 0 ? 600 : check_between(&rng, 0, 3) ? 3 : 20;
    *object = (unsigned)check_between(&rng, 0, OBJECTS - 1);
    *from = (unsigned)check_between(&rng, 0, CELLS - 1);
    *to = *from + (unsigned)check_between(&rng, 1, most);
    if (*to > CELLS)
        *to = CELLS;
}

/* Open writes; they end in any order. */
#define OPEN 6
static struct {
    uint64_t stamp;
    unsigned object, from, to;
    uint32_t target;
} begun[OPEN];

static void end_write(unsigned i)
{
    static struct twochoice_piece replaced[CELLS];
    size_t max = check_between(&rng, 0, 1) ? (size_t)check_between(&rng, 1, 4) : CELLS, n = 0, k;
    unsigned object = begun[i].object, c = begun[i].from;
    enum qos_status st;
    op++;
    while ((st = twochoice_table_write_end(&t, begun[i].stamp, replaced, max, &n)) == QOS_EAGAIN) {
        CHECK(n == max && max < CELLS);
        max = check_between(&rng, 0, 1) ? max + 1 : CELLS; /* nothing has changed: the next call sees the same pieces */
    }
    CHECK(st == QOS_OK || (st == QOS_EFULL && n == 0 && begun[i].target == TWOCHOICE_LOCAL));
    for (k = 0; k < n; k++) { /* the replaced pieces, in order, with target and stamp */
        for (; c < begun[i].to && offset_of(c) < replaced[k].offset; c++)
            CHECK_EQ(map[object][c].target, TWOCHOICE_LOCAL);
        CHECK_EQ(offset_of(c), replaced[k].offset);
        for (; c < begun[i].to && offset_of(c) < replaced[k].end; c++)
            CHECK_EQ(map[object][c].target, replaced[k].target);
    }
    if (st == QOS_OK)
        for (; c < begun[i].to; c++)
            CHECK_EQ(map[object][c].target, TWOCHOICE_LOCAL);
    for (c = begun[i].from; st == QOS_OK && c < begun[i].to; c++) {
        map[object][c].target = begun[i].target;
        map[object][c].op = op;
    }
    if (st == QOS_EFULL)
        CHECK_EQ(twochoice_table_write_cancel(&t, begun[i].stamp), QOS_OK);
    begun[i].stamp = 0;
}

static bool overlaps_open_pull(unsigned object, unsigned from, unsigned to)
{
    unsigned i;
    for (i = 0; i < PULLS; i++)
        if (pulls[i].open && pulls[i].ready && pulls[i].object == object && pulls[i].from < to && from < pulls[i].to)
            return true;
    return false;
}

static void change(uint32_t target)
{
    unsigned i = (unsigned)check_between(&rng, 0, OPEN - 1), j;
    enum qos_status st;
    bool home = false;
    if (begun[i].stamp != 0) {
        if (check_between(&rng, 0, 5) == 0) {
            CHECK_EQ(twochoice_table_write_cancel(&t, begun[i].stamp), QOS_OK);
            begun[i].stamp = 0;
        } else {
            end_write(i);
        }
        return;
    }
    pick_range(&begun[i].object, &begun[i].from, &begun[i].to);
    begun[i].target = target;
    for (j = 0; j < OPEN; j++)
        home |= begun[j].stamp && begun[j].target == TWOCHOICE_LOCAL && begun[j].object == begun[i].object &&
                begun[j].from < begun[i].to && begun[i].from < begun[j].to;
    home |= overlaps_open_pull(begun[i].object, begun[i].from, begun[i].to);
    st = twochoice_table_write_begin(&t, object_id[begun[i].object], target, offset_of(begun[i].from),
                                     offset_of(begun[i].to) - offset_of(begun[i].from), &begun[i].stamp);
    CHECK_EQ(st == QOS_EAGAIN, target == TWOCHOICE_LOCAL && home);
    if (st == QOS_EFULL)
        CHECK_GE(counts_of(&t).fragments + 2 * OPEN + 2, counts_of(&t).max_fragments);
    else if (st != QOS_EAGAIN)
        CHECK_EQ(st, QOS_OK);
    if (st != QOS_OK)
        begun[i].stamp = 0;
    else if (check_between(&rng, 0, 1)) /* at once, or later */
        end_write(i);
}

static void start_pull(struct pull *p)
{
    unsigned object, from, to, c;
    struct twochoice_piece piece;
    enum qos_status st;
    pick_range(&object, &from, &to);
    if (!twochoice_table_next(&t, object_id[object], offset_of(from), &piece))
        return;
    st = twochoice_table_pull_start(&t, piece.object, piece.offset, (to - from) * scale, &p->id, &piece);
    if (st != QOS_OK) {
        CHECK_EQ(st, QOS_EBUSY);
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

/* A pull may convert a cell if nothing has changed it since the pull began. */
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
    if (what == 0 && !p->ready) {
        CHECK_EQ(twochoice_table_pull_cancel(&t, p->id), QOS_OK);
        p->open = false;
    } else if (!p->ready) {
        unsigned to = p->to;
        enum qos_status st = twochoice_table_pull_ready(&t, p->id, out, 8, &n);
        bool home = false;
        for (i = 0; i < OPEN; i++)
            home |= begun[i].stamp && begun[i].target == TWOCHOICE_LOCAL && begun[i].object == p->object &&
                    begun[i].from < p->to && p->from < begun[i].to;
        CHECK_EQ(st, home ? QOS_EAGAIN : QOS_OK);
        if (st != QOS_OK)
            return;
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
        bool cancelled = what == 0;
        enum qos_status st = cancelled ? twochoice_table_pull_cancel(&t, p->id) : finish_pull(&t, p->id);
        if (st == QOS_EFULL || cancelled) {
            CHECK_EQ(twochoice_table_pull_cancel(&t, p->id), QOS_EBUSY);
            CHECK_EQ(finish_pull(&t, p->id), QOS_OK);
            p->open = false;
            CHECK(cancelled || counts_of(&t).fragments + 2 * OPEN + 1 >= counts_of(&t).max_fragments);
            /* Some bytes may be at home already. The table reports which; only unchanged cells may be. */
            for (c = p->from; c < p->to && !cancelled; c++) {
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
    struct twochoice_table_config config;
    struct check_mem m;
    uint64_t step;
    unsigned i, o, c;
    uint32_t deepest = 0;
    void *mem;
    check_rng_init(&rng, seed);
    disk_init(&disk, &rng, &storage);
    memset(&config, 0, sizeof config);
    memset(pulls, 0, sizeof pulls);
    memset(begun, 0, sizeof begun);
    config.max_fragments = max_fragments;
    config.home = 9;
    config.storage = logged ? &storage : NULL;
    for (o = 0; o < OBJECTS; o++)
        for (c = 0; c < CELLS; c++) {
            map[o][c].target = TWOCHOICE_LOCAL;
            map[o][c].op = 0;
        }
    mem = check_mem_new(&m, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    if (logged)
        CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (step = 0; step < steps; step++) {
        uint64_t what = check_between(&rng, 0, 99);
        struct pull *p = &pulls[check_between(&rng, 0, PULLS - 1)];
        bool shrink = (step / 2000) % 3 == 2; /* the table grows, and empties again */
        if (counts_of(&t).nodes_used > deepest)
            deepest = counts_of(&t).nodes_used;
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
            if (check_between(&rng, 0, 9) == 0) {
                CHECK_EQ(twochoice_table_compact(&t), counts_of(&t).compacting ? QOS_EBUSY : QOS_OK);
            } else {
                enum twochoice_compact_todo todo;
                if (!counts_of(&t).compacting)
                    CHECK_EQ(twochoice_table_compact_start(&t), QOS_OK);
                CHECK_EQ(twochoice_table_compact_step(&t, (uint32_t)check_between(&rng, 1, 500), &todo), QOS_OK);
                if (todo == TWOCHOICE_COMPACT_COMMIT)
                    CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
                if (todo == TWOCHOICE_COMPACT_SWAP && check_between(&rng, 0, 1)) {
                    int next = (int)counts_of(&t).next_log;
                    CHECK_EQ(twochoice_table_compact_end(&t, storage.swap(storage.ctx, next) == 0), QOS_OK);
                }
            }
        } else if (logged && what == 98 && check_between(&rng, 0, 9) == 0) {
            struct twochoice_recovery r;
            uint64_t stamp = counts_of(&t).stamp;
            memset(pulls, 0, sizeof pulls);
            memset(begun, 0, sizeof begun);
            CHECK_EQ(twochoice_table_commit(&t), QOS_OK);
            disk_restart(&disk);
            CHECK_EQ(twochoice_table_init(&t, mem, m.size, &config), QOS_OK);
            CHECK_EQ(twochoice_table_recover(&t, 0, &r), QOS_OK);
            CHECK_EQ(r.dropped_bytes, 0);
            CHECK_GE(counts_of(&t).stamp, stamp); /* no stamp is given twice */
            check_all();
        } else if (what == 99 && check_between(&rng, 0, 3) == 0) {
            check_all();
        }
    }
    for (i = 0; i < PULLS; i++)
        if (pulls[i].open)
            CHECK_EQ(twochoice_table_pull_cancel(&t, pulls[i].id), pulls[i].ready ? QOS_EBUSY : QOS_OK);
    check_all();
    if (steps > 10000 && max_fragments > 1000)
        CHECK_GE(deepest, long_ones == 9 ? 20 : 60); /* nodes: with 60 there are two levels above the leaves */
    CHECK(check_mem_free(&m));
    disk_free(&disk);
}

int main(void)
{
    uint64_t i;
    check_begin("twochoice_table");
    for (i = 0; i < 8; i++) {
        /* Cells of an object within 4 GiB: all, less than one, 64 or 4. So some leaves are narrow and some are wide. */
        scale = i == 6 ? 1 << 26 : i == 7 ? 1 << 30 : i % 3 == 0 ? 1 : i % 3 == 1 ? 1 << 20 : UINT64_C(1) << 51;
        base_offset = i < 3 ? 0 : UINT64_MAX - CELLS * scale; /* up to the last possible byte of an object */
        with_pulls = i != 0 && i != 3;
        long_ones = i % 4 < 2 ? 9 : 99;
        run(i, i % 2 == 1, i == 5 ? 40 : i == 4 ? 700 : 6000, check_scaled(150000));
    }
    return check_end();
}
