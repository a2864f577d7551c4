// proves: the maintainer pulls everything home, only while the home and the target are idle, within its rate, whatever
// proves: is cancelled on the way; the checker names each disagreement of table, log and data, and changes nothing
// proves: (paper, Section V-C).
#include "property/twochoice_disk.h"

#define FRAGMENTS 200
#define BYTES 10000
#define HOME 1

static struct check_rng rng;
static struct twochoice_table t, scratch;
static struct disk disk;

static void run(uint64_t rate, uint64_t piece)
{
    struct twochoice_table_config cfg;
    struct twochoice_maintainer_config mc;
    struct twochoice_maintainer m;
    struct twochoice_storage storage;
    uint64_t now = 5, local = 0, load[8], pulled = 0, started_ns = 0, first_ns = QOS_NEVER, quiet_ns = 0, i, asked = 0;
    uint64_t copies = 0, cancelled = 0, known_at[8], known[8];
    void *mem;
    memset(&cfg, 0, sizeof cfg);
    memset(&mc, 0, sizeof mc);
    memset(known_at, 0, sizeof known_at);
    memset(known, 0, sizeof known);
    disk_init(&disk, &rng, &storage);
    cfg.max_fragments = 1000;
    cfg.home = HOME;
    cfg.storage = &storage;
    mem = aligned_alloc(64, twochoice_table_memsize(&cfg));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < FRAGMENTS; i++)
        CHECK_EQ(twochoice_table_create(&t, i % 5, 2 + (uint32_t)(i % 6), i / 5 * 2 * BYTES,
                                        check_between(&rng, 1, BYTES), false),
                 QOS_OK);
    mc.rate_bytes_per_s = rate;
    mc.piece_bytes = piece;
    mc.idle_load = 100;
    mc.idle_ns = 1000;
    CHECK_EQ(twochoice_maintainer_init(&m, now, &mc), QOS_OK);
    for (i = 0; i < 8; i++)
        load[i] = 0;
    for (i = 0; t.fragments != 0 && i < 2000000; i++) {
        struct twochoice_order o;
        if (check_between(&rng, 0, 30) == 0) {
            local = check_between(&rng, 0, 2) ? check_between(&rng, 0, 100) : 101;
            load[check_between(&rng, 2, 7)] = check_between(&rng, 0, 120);
        }
        if (local > 100)
            quiet_ns = QOS_NEVER;
        else if (quiet_ns == QOS_NEVER)
            quiet_ns = now;
        if (i == 0)
            quiet_ns = now;
        CHECK_EQ(twochoice_maintainer_step(&m, now, &t, local, &o), QOS_OK);
        if (o.todo != TWOCHOICE_WAIT) {
            CHECK_LE(local, 100);
            CHECK(now - quiet_ns >= 1000);
        }
        if (o.todo == TWOCHOICE_WAIT) {
            CHECK(o.next_ns > now); /* and it can be slept until then, if nothing changes */
            now = o.next_ns == QOS_NEVER ? now + 1000 : check_between(&rng, 0, 3) ? o.next_ns : now + 10;
        } else if (o.todo == TWOCHOICE_ASK_LOAD) {
            asked++;
            known_at[o.piece.target] = now;
            known[o.piece.target] = load[o.piece.target];
            twochoice_maintainer_remote_load(&m, now, o.piece.target, load[o.piece.target]);
        } else {
            struct twochoice_piece out[4];
            size_t n = 0;
            CHECK_LE(o.piece.end - o.piece.offset, piece);
            CHECK(now - known_at[o.piece.target] < 1000);
            CHECK_LE(known[o.piece.target], 100);
            if (first_ns == QOS_NEVER)
                first_ns = now;
            pulled += o.piece.end - o.piece.offset;
            copies++;
            if (rate != QOS_UNLIMITED) /* what came over the rate, at most one piece */
                CHECK_LE(pulled, piece + (now - 5) * (rate / 1000000) / 1000 + 1);
            started_ns = now;
            if (check_between(&rng, 0, 4) == 0) {
                twochoice_table_pull_cancel(&t, o.pull);
                cancelled++;
            } else {
                CHECK_EQ(twochoice_table_pull_ready(&t, o.pull, out, 4, &n), QOS_OK);
                CHECK_EQ(n, 1);
                CHECK_EQ(twochoice_table_pull_finish(&t, o.pull), QOS_OK);
            }
        }
    }
    CHECK_EQ(t.fragments, 0);
    CHECK_GE(asked, 6);
    CHECK_GE(cancelled, copies / 20);
    CHECK_LE(first_ns, started_ns);
    { /* nothing is left: rest for ever, but for a busy home */
        struct twochoice_order o;
        CHECK_EQ(twochoice_maintainer_step(&m, now + 5000, &t, 0, &o), QOS_OK);
        CHECK_EQ(twochoice_maintainer_step(&m, now + 9000, &t, 0, &o), QOS_OK);
        CHECK(o.todo == TWOCHOICE_WAIT && o.next_ns == QOS_NEVER);
        CHECK_EQ(twochoice_maintainer_step(&m, now + 9000, &t, 101, &o), QOS_OK);
        CHECK(o.todo == TWOCHOICE_WAIT && o.next_ns == now + 10000);
        /* a single piece that is being pulled already; no hold left */
        CHECK_EQ(twochoice_table_create(&t, 1, 2, 0, 10, false), QOS_OK);
        twochoice_maintainer_remote_load(&m, now + 20000, 2, 0);
        CHECK_EQ(twochoice_maintainer_step(&m, now + 19000, &t, 0, &o), QOS_OK);
        CHECK_EQ(twochoice_maintainer_step(&m, now + 20000, &t, 0, &o), QOS_OK);
        CHECK_EQ(o.todo, rate == QOS_UNLIMITED ? TWOCHOICE_COPY : o.todo);
        if (o.todo == TWOCHOICE_COPY) {
            CHECK_EQ(twochoice_maintainer_step(&m, now + 20001, &t, 0, &o), QOS_OK);
            CHECK(o.todo == TWOCHOICE_WAIT && o.next_ns == now + 21001);
        }
        mc.piece_bytes = QOS_TOKENS_MAX + 1;
        CHECK_EQ(twochoice_maintainer_init(&m, now, &mc), QOS_ERANGE);
        mc.piece_bytes = 0;
        mc.rate_bytes_per_s = QOS_RATE_MAX + 1;
        CHECK_EQ(twochoice_maintainer_init(&m, now, &mc), QOS_ERANGE);
        mc.rate_bytes_per_s = mc.idle_ns = 0;
        CHECK_EQ(twochoice_maintainer_init(&m, now, &mc), QOS_OK);
        CHECK(m.piece_bytes == 1 << 20 && m.idle_ns == 100000000);
    }
    free(mem);
    disk_free(&disk);
}

/* What the checker said: kinds counted, and the bytes of the differences. */
struct said {
    unsigned times[6];
    uint64_t differing_bytes, missing_bytes;
    uint64_t missing_object;
};

static int has_data(void *ctx, const struct twochoice_piece *p)
{
    return p->object == ((struct said *)ctx)->missing_object ? (p->target == 4 ? -1 : 0) : 1;
}

static void report(void *ctx, enum twochoice_disagreement what, const struct twochoice_piece *table,
                   const struct twochoice_piece *log)
{
    struct said *s = (struct said *)ctx;
    s->times[what]++;
    if (what == TWOCHOICE_LOG_DIFFERS) {
        CHECK(table->target != log->target && table->offset == log->offset && table->end == log->end);
        s->differing_bytes += table->end - table->offset;
    } else if (what == TWOCHOICE_DATA_MISSING || what == TWOCHOICE_DATA_UNKNOWN) {
        CHECK_EQ(table->object, s->missing_object);
        s->missing_bytes += table->end - table->offset;
    }
}

static struct said check_it(const struct twochoice_table_config *cfg, void *mem, uint64_t missing_object)
{
    struct said s;
    struct twochoice_checker c = {&s, has_data, report};
    uint64_t found = 0, sum = 0, len = disk.log[0].len, operations = disk.operations;
    unsigned i;
    memset(&s, 0, sizeof s);
    s.missing_object = missing_object;
    CHECK_EQ(twochoice_table_init(&scratch, mem, twochoice_table_memsize(cfg), cfg), QOS_OK);
    CHECK_EQ(twochoice_checker_run(&c, &t, &scratch, &found), QOS_OK);
    for (i = 0; i < 6; i++)
        sum += s.times[i];
    CHECK_EQ(found, sum);
    CHECK(disk.log[0].len == len && disk.operations == operations); /* it only read */
    if (found == 0)
        CHECK_EQ(scratch.version, t.version);
    return s;
}

static void checker(void)
{
    struct twochoice_table_config cfg;
    struct twochoice_storage storage;
    struct said s;
    struct twochoice_checker c = {&s, NULL, report};
    uint64_t i, found;
    void *mem, *mem2;
    memset(&cfg, 0, sizeof cfg);
    disk_init(&disk, &rng, &storage);
    cfg.max_fragments = 1000;
    cfg.home = HOME;
    cfg.storage = &storage;
    mem = aligned_alloc(64, twochoice_table_memsize(&cfg));
    mem2 = aligned_alloc(64, twochoice_table_memsize(&cfg));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&cfg), &cfg), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < FRAGMENTS; i++)
        CHECK_EQ(twochoice_table_create(&t, i % 5, 2 + (uint32_t)(i % 6), i / 5 * 100, 80, false), QOS_OK);
    s = check_it(&cfg, mem2, 99);
    for (i = 0; i < 6; i++)
        CHECK_EQ(s.times[i], 0); /* all agree */
    s = check_it(&cfg, mem2, 3);
    CHECK_EQ(s.missing_bytes, FRAGMENTS / 5 * 80);
    CHECK(s.times[TWOCHOICE_DATA_MISSING] > 0 && s.times[TWOCHOICE_DATA_UNKNOWN] > 0);
    CHECK_EQ(s.times[TWOCHOICE_LOG_DIFFERS], 0);
    t.has_storage = false; /* three changes that the log does not know */
    CHECK_EQ(twochoice_table_create(&t, 0, 7, 5, 10, false), QOS_OK);
    CHECK_EQ(twochoice_table_create(&t, 7, 7, 0, 30, false), QOS_OK);
    CHECK_EQ(twochoice_table_local(&t, 2, 100, 40), QOS_OK);
    t.has_storage = true;
    s = check_it(&cfg, mem2, 99);
    CHECK_EQ(s.times[TWOCHOICE_LOG_DIFFERS], 3);
    CHECK_EQ(s.differing_bytes, 10 + 30 + 40);
    disk.log[0].data[48 * 150 + 20] ^= 1;
    s = check_it(&cfg, mem2, 99);
    CHECK_EQ(s.times[TWOCHOICE_LOG_UNREADABLE], 1);
    CHECK_GE(s.times[TWOCHOICE_LOG_DIFFERS], 50);
    CHECK_EQ(twochoice_checker_run(&c, &t, &scratch, &found), QOS_EBUSY);
    CHECK_EQ(twochoice_checker_run(&c, &t, NULL, &found), QOS_OK); /* the tree alone */
    CHECK_EQ(found, 0);
    t.node[t.root].u.inner.offset[1]++;
    memset(&s, 0, sizeof s);
    CHECK_EQ(twochoice_checker_run(&c, &t, NULL, &found), QOS_OK);
    CHECK_EQ(s.times[TWOCHOICE_TREE_BROKEN], 1);
    free(mem);
    free(mem2);
    disk_free(&disk);
}

int main(void)
{
    check_begin("twochoice_maintainer");
    check_rng_init(&rng, 4);
    run(UINT64_C(1000000000), 4000);
    run(UINT64_C(100000000), 20000);
    run(QOS_UNLIMITED, 3000);
    checker();
    return check_end();
}
