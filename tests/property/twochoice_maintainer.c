// proves: the maintainer pulls everything home, only while the home and the target are idle, within its rate, even if
// proves: pulls are cancelled. examples/common/twochoice_check.h reports each difference between table, log and data, and changes nothing
// proves: (paper, Section V-C).
#include "property/twochoice_disk.h"
#include "../../examples/common/twochoice_check.h"

#define FRAGMENTS 200
#define BYTES 10000
#define HOME 0

static struct check_rng rng;
static struct twochoice_table t, scratch;
static struct disk disk;

static struct twochoice_maintainer maintainer;
static void *maintainer_mem;

static void open_maintainer(const struct twochoice_maintainer_config *mc)
{
    free(maintainer_mem);
    maintainer_mem = aligned_alloc(64, twochoice_maintainer_memsize(mc));
    CHECK_EQ(twochoice_maintainer_init(&maintainer, maintainer_mem, twochoice_maintainer_memsize(mc), mc), QOS_OK);
}

/* A table in memory; its memory is the caller's to free. */
static void *open_table(uint32_t fragments)
{
    struct twochoice_table_config config;
    void *mem;
    memset(&config, 0, sizeof config);
    config.max_fragments = fragments;
    config.home = HOME;
    mem = aligned_alloc(64, twochoice_table_memsize(&config));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    return mem;
}

static enum twochoice_todo next_todo(uint64_t now, uint64_t local, struct twochoice_order *o)
{
    CHECK_EQ(twochoice_maintainer_step(&maintainer, now, &t, local, o), QOS_OK);
    return o->todo;
}

static void run(uint64_t rate, uint64_t piece)
{
    struct twochoice_maintainer_config mc;
    uint64_t now = 5, local = 0, load[8], pulled = 0, quiet_ns = QOS_NEVER, i, asked = 0;
    uint64_t copies = 0, cancelled = 0, known_at[8], known[8], steps_at_once = 0, begun = 1;
    void *mem = open_table(1000);
    memset(&mc, 0, sizeof mc);
    memset(known_at, 0, sizeof known_at);
    memset(known, 0, sizeof known);
    for (i = 0; i < FRAGMENTS; i++)
        CHECK_EQ(redirect(&t, i % 5, i / 5 * 2 * BYTES, check_between(&rng, 1, BYTES), 2 + (uint32_t)(i % 6)), QOS_OK);
    mc.servers = 8;
    mc.rate_bytes_per_s = rate;
    mc.piece_bytes = piece;
    mc.idle_load = 100;
    mc.idle_ns = 1000;
    open_maintainer(&mc);
    for (i = 0; i < 8; i++)
        load[i] = 0;
    for (i = 0; counts_of(&t).fragments != 0 && i < 2000000; i++) {
        struct twochoice_order o;
        if (check_between(&rng, 0, 30) == 0) {
            local = check_between(&rng, 0, 2) ? check_between(&rng, 0, 100) : 101;
            load[check_between(&rng, 2, 7)] = check_between(&rng, 0, 120);
        }
        if (check_between(&rng, 0, 2000) == 0) { /* the home's process, or its maintainer, begins anew */
            open_maintainer(&mc);
            memset(known_at, 0, sizeof known_at);
            quiet_ns = QOS_NEVER;
            begun++;
        }
        if (local > 100)
            quiet_ns = QOS_NEVER;
        else if (quiet_ns == QOS_NEVER)
            quiet_ns = now;
        (void)next_todo(now, local, &o);
        if (o.todo != TWOCHOICE_WAIT) {
            CHECK_LE(local, 100);
            CHECK(now - quiet_ns >= 1000);
        }
        if (o.todo == TWOCHOICE_WAIT) {
            CHECK_GE(o.next_ns, now); /* until then nothing is to be done, unless something changes */
            steps_at_once = o.next_ns == now ? steps_at_once + 1 : 0;
            CHECK_LE(steps_at_once, 20);
            now = o.next_ns == QOS_NEVER ? now + 1000 : check_between(&rng, 0, 3) ? o.next_ns : now + 10;
        } else if (o.todo == TWOCHOICE_ASK_LOAD) {
            asked++;
            CHECK(known_at[o.piece.target] == 0 || now - known_at[o.piece.target] >= 998); /* once per idle_ns */
            known_at[o.piece.target] = now;
            known[o.piece.target] = load[o.piece.target];
            /* who takes the answers reads a clock of its own, some ticks ahead or behind */
            twochoice_maintainer_remote_load(&maintainer, now + check_between(&rng, 0, 4) - 2, o.piece.target,
                                             load[o.piece.target]);
        } else {
            struct twochoice_piece out[4];
            size_t n = 0;
            CHECK_LE(o.piece.end - o.piece.offset, piece);
            CHECK(now - known_at[o.piece.target] < 1002);
            CHECK_LE(known[o.piece.target], 100);
            pulled += o.piece.end - o.piece.offset;
            copies++;
            if (rate != QOS_UNLIMITED) /* at most one piece of each maintainer above the rate */
                CHECK_LE(pulled, begun * piece + now * (rate / 1000000) / 1000 + 1);
            if (check_between(&rng, 0, 4) == 0) {
                CHECK_EQ(twochoice_table_pull_cancel(&t, o.pull), QOS_OK);
                cancelled++;
            } else {
                CHECK_EQ(twochoice_table_pull_ready(&t, o.pull, out, 4, &n), QOS_OK);
                CHECK_EQ(n, 1);
                CHECK_EQ(finish_pull(&t, o.pull), QOS_OK);
            }
        }
    }
    CHECK_EQ(counts_of(&t).fragments, 0);
    CHECK_GE(asked, 6);
    CHECK_GE(cancelled, copies / 20);
    { /* nothing is left: no more events, except for a busy home */
        struct twochoice_order o;
        while (next_todo(now + 9000, 0, &o) != TWOCHOICE_WAIT || o.next_ns == now + 10000)
            now += 1000;
        CHECK_EQ(o.next_ns, QOS_NEVER);
        CHECK_EQ(next_todo(now + 9000, 101, &o), TWOCHOICE_WAIT);
        CHECK_EQ(o.next_ns, now + 10000);
    }
    free(mem);
}

/* Whatever the loads: no pull from a server that reported to be busy. A busy or silent server is probed once per
 * idle_ns, however many fragments it has, and does not delay the others. */
static void busy_servers(uint32_t servers, uint32_t busy, uint32_t silent)
{
    struct twochoice_maintainer_config mc;
    struct twochoice_order o;
    uint64_t now, i, asks = 0, rests = 0, copies = 0, steps = 0, first_left = 0;
    void *mem = open_table(20000);
    memset(&mc, 0, sizeof mc);
    mc.servers = servers;
    mc.rate_bytes_per_s = QOS_UNLIMITED;
    mc.idle_ns = 100000000;
    open_maintainer(&mc);
    for (i = 0; i < 10000; i++) {
        uint32_t target = i % 10 == 0 ? busy : i % 10 == 5 ? silent : 2 + (uint32_t)(i % 10) + 10;
        CHECK_EQ(redirect(&t, 7, i * 100, 50, target), QOS_OK);
        first_left += target == busy || target == silent;
    }
    for (now = 100000000; now < UINT64_C(10100000000) && steps < 1000000; steps++) {
        (void)next_todo(now, 0, &o);
        if (o.todo == TWOCHOICE_ASK_LOAD) {
            asks++;
            now += 100000; /* a round trip */
            if (o.piece.target != silent)
                twochoice_maintainer_remote_load(&maintainer, now, o.piece.target,
                                                 o.piece.target == busy ? 1u << 30 : 0);
        } else if (o.todo == TWOCHOICE_COPY) {
            struct twochoice_piece out[4];
            size_t n = 0;
            CHECK(o.piece.target != busy && o.piece.target != silent);
            copies++;
            CHECK_EQ(twochoice_table_pull_ready(&t, o.pull, out, 4, &n), QOS_OK);
            CHECK_EQ(finish_pull(&t, o.pull), QOS_OK);
        } else {
            rests++;
            CHECK(o.next_ns >= now);
            now = o.next_ns > now ? o.next_ns : now + 1000;
        }
    }
    CHECK_EQ(copies, 10000 - first_left);
    CHECK_LE(asks, 2 * 101 + 8 * 101); /* the idle servers were probed while they had fragments */
    CHECK_LE(rests, 6000);
    CHECK_EQ(counts_of(&t).fragments, first_left);
    free(mem);
}

/* A server that never answers is not asked any more when nothing is redirected. */
static void nothing_left(void)
{
    struct twochoice_maintainer_config mc;
    struct twochoice_order o;
    uint64_t now = 1000000, asks = 0, i;
    void *mem = open_table(100);
    memset(&mc, 0, sizeof mc);
    mc.servers = 8;
    mc.idle_ns = 1000000;
    open_maintainer(&mc);
    CHECK_EQ(redirect(&t, 7, 0, 100, 2), QOS_OK);
    CHECK_EQ(next_todo(0, 0, &o), TWOCHOICE_WAIT);
    for (i = 0; i < 5000; i++, now += 1000)
        asks += next_todo(now, 0, &o) == TWOCHOICE_ASK_LOAD;
    CHECK_WITHIN(asks, 4, 6);
    CHECK_EQ(redirect(&t, 7, 0, 100, TWOCHOICE_LOCAL), QOS_OK);
    for (i = 0; i < 5000; i++, now += 1000)
        CHECK_EQ(next_todo(now, 0, &o), TWOCHOICE_WAIT);
    CHECK_EQ(o.next_ns, QOS_NEVER);
    free(mem);
}

/* While a pull from an idle server is open, the next server, which is busy, is not pulled from in its place. */
static void open_pull(void)
{
    struct twochoice_maintainer_config mc;
    struct twochoice_order o;
    uint64_t now = 1000000, i;
    void *mem = open_table(100);
    memset(&mc, 0, sizeof mc);
    mc.servers = 8;
    mc.rate_bytes_per_s = QOS_UNLIMITED;
    mc.idle_ns = 1000000;
    open_maintainer(&mc);
    CHECK_EQ(redirect(&t, 7, 0, 100, 2), QOS_OK);
    CHECK_EQ(redirect(&t, 7, 500, 100, 3), QOS_OK);
    CHECK_EQ(next_todo(0, 0, &o), TWOCHOICE_WAIT);
    for (i = 0; i < 2000; i++, now += 1000) {
        if (next_todo(now, 0, &o) == TWOCHOICE_ASK_LOAD)
            twochoice_maintainer_remote_load(&maintainer, now, o.piece.target, o.piece.target == 3 ? 1u << 30 : 0);
        else if (o.todo == TWOCHOICE_COPY)
            CHECK_EQ(o.piece.target, 2); /* this pull stays open */
    }
    /* A clock that is once an hour ahead, and loads that no probe asked for, cause a delay only. */
    CHECK_EQ(next_todo(now + UINT64_C(3600000000000), 0, &o) == TWOCHOICE_COPY, 0);
    for (i = 0; i < 5000 && o.todo != TWOCHOICE_COPY; i++, now += 1000)
        if (next_todo(now, 0, &o) == TWOCHOICE_ASK_LOAD)
            twochoice_maintainer_remote_load(&maintainer, now, o.piece.target, 0);
    CHECK_EQ(o.todo, TWOCHOICE_COPY);
    CHECK_EQ(o.piece.target, 3);
    twochoice_maintainer_remote_load(&maintainer, now, 8, 0); /* no such server */
    twochoice_maintainer_remote_load(&maintainer, now, UINT32_MAX, 0);
    free(mem);
}

/* With max_pulls pulls open no further one starts. A piece that is gone, or that another caller pulls, is
 * skipped. */
static void pulls_of_others(void)
{
    struct twochoice_maintainer_config mc;
    struct twochoice_order o;
    struct twochoice_piece piece;
    uint64_t now = 1000000, i, first;
    uint32_t pull, others;
    void *mem = open_table(100);
    memset(&mc, 0, sizeof mc);
    mc.servers = 8;
    mc.rate_bytes_per_s = QOS_UNLIMITED;
    mc.idle_ns = 1000000;
    open_maintainer(&mc);
    for (i = 0; i < 4; i++)
        CHECK_EQ(redirect(&t, 7, i * 500, 100, 2), QOS_OK);
    CHECK_EQ(next_todo(0, 0, &o), TWOCHOICE_WAIT);
    do
        if (next_todo(now, 0, &o) == TWOCHOICE_ASK_LOAD)
            twochoice_maintainer_remote_load(&maintainer, now, 2, 0);
    while (o.todo != TWOCHOICE_COPY);
    /* Of the other three one is written at home, and one is pulled by another caller. */
    pull = o.pull;
    first = o.piece.offset;
    CHECK_EQ(redirect(&t, 7, (first + 500) % 2000, 100, TWOCHOICE_LOCAL), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 7, (first + 1000) % 2000, 100, &others, &piece), QOS_OK);
    CHECK_EQ(next_todo(now, 0, &o), TWOCHOICE_COPY);
    CHECK_EQ(o.piece.offset, (first + 1500) % 2000);
    CHECK_EQ(twochoice_table_pull_cancel(&t, pull), QOS_OK);
    CHECK_EQ(twochoice_table_pull_cancel(&t, o.pull), QOS_OK);
    /* Small pulls by another caller, until no more can be open. */
    CHECK_EQ(redirect(&t, 8, 0, 1000, 3), QOS_OK);
    for (i = 0; counts_of(&t).pulls_open < TWOCHOICE_MAX_PULLS; i++)
        CHECK_EQ(twochoice_table_pull_start(&t, 8, i, 1, &others, &piece), QOS_OK);
    for (i = 0; i < 100; i++, now += 100000)
        if (next_todo(now, 0, &o) == TWOCHOICE_ASK_LOAD)
            twochoice_maintainer_remote_load(&maintainer, now, o.piece.target, 0);
        else
            CHECK_EQ(o.todo, TWOCHOICE_WAIT);
    CHECK_EQ(o.next_ns, QOS_NEVER); /* until a pull ends: whoever sleeps until then does not spin */
    CHECK_EQ(twochoice_table_pull_cancel(&t, others), QOS_OK);
    for (i = 0; i < 100 && o.todo != TWOCHOICE_COPY; i++, now += 100000)
        if (next_todo(now, 0, &o) == TWOCHOICE_ASK_LOAD)
            twochoice_maintainer_remote_load(&maintainer, now, o.piece.target, 0);
    CHECK_EQ(o.todo, TWOCHOICE_COPY);
    free(mem);
}

/* The checker's reports: counts by kind, and the bytes of the differences. */
struct said {
    unsigned times[6];
    uint64_t differing_bytes, missing_bytes;
    uint64_t missing_object;
};

static int has_data(void *ctx, const struct twochoice_piece *p)
{
    return p->object == ((struct said *)ctx)->missing_object ? (p->target == 4 ? -1 : 0) : 1;
}

static void report(void *ctx, enum check_finding what, const struct twochoice_piece *table,
                   const struct twochoice_piece *log)
{
    struct said *s = (struct said *)ctx;
    s->times[what]++;
    if (what == CHECK_LOG_DIFFERS) {
        CHECK((table->target != log->target || table->version != log->version) && table->offset == log->offset &&
              table->end == log->end);
        s->differing_bytes += table->end - table->offset;
    } else if (what == CHECK_DATA_MISSING || what == CHECK_DATA_UNKNOWN) {
        CHECK_EQ(table->object, s->missing_object);
        s->missing_bytes += table->end - table->offset;
    }
}

static struct said check_it(const struct twochoice_table_config *config, void *mem, uint64_t missing_object)
{
    struct said s;
    struct check_calls c = {&s, has_data, report};
    uint64_t found, sum = 0, len = disk.log[0].len, operations = disk.operations;
    unsigned i;
    memset(&s, 0, sizeof s);
    s.missing_object = missing_object;
    found = check_redirects(&c, &t, config, &scratch, mem);
    for (i = 0; i < 6; i++)
        sum += s.times[i];
    CHECK_EQ(found, sum);
    CHECK(disk.log[0].len == len && disk.operations == operations); /* it did not write */
    if (found == 0)
        CHECK_EQ(counts_of(&scratch).fragments, counts_of(&t).fragments);
    return s;
}

static void checker(void)
{
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    struct said s;
    struct check_calls c = {&s, NULL, report};
    uint64_t i, before;
    void *mem, *mem2;
    memset(&config, 0, sizeof config);
    disk_init(&disk, &rng, &storage);
    config.max_fragments = 1000;
    config.home = HOME;
    config.storage = &storage;
    mem = aligned_alloc(1024, twochoice_table_memsize(&config) / 1024 * 1024 + 1024); /* as nodes are */
    mem2 = aligned_alloc(64, twochoice_table_memsize(&config));
    CHECK_EQ(twochoice_table_init(&t, mem, twochoice_table_memsize(&config), &config), QOS_OK);
    CHECK_EQ(twochoice_table_format(&t), QOS_OK);
    for (i = 0; i < FRAGMENTS; i++)
        CHECK_EQ(redirect(&t, i % 5, i / 5 * 100, 80, 2 + (uint32_t)(i % 6)), QOS_OK);
    s = check_it(&config, mem2, 99);
    for (i = 0; i < 6; i++)
        CHECK_EQ(s.times[i], 0); /* all agree */
    s = check_it(&config, mem2, 3);
    CHECK_EQ(s.missing_bytes, FRAGMENTS / 5 * 80);
    CHECK(s.times[CHECK_DATA_MISSING] > 0 && s.times[CHECK_DATA_UNKNOWN] > 0);
    CHECK_EQ(s.times[CHECK_LOG_DIFFERS], 0);
    before = counts_of(&t).log_bytes; /* three changes that the log does not know */
    CHECK_EQ(redirect(&t, 0, 5, 10, 7), QOS_OK);
    CHECK_EQ(redirect(&t, 7, 0, 30, 7), QOS_OK);
    CHECK_EQ(redirect(&t, 2, 100, 40, TWOCHOICE_LOCAL), QOS_OK);
    disk_resize(&disk.log[0], (size_t)before);
    s = check_it(&config, mem2, 99);
    CHECK_EQ(s.times[CHECK_LOG_DIFFERS], 3);
    CHECK_EQ(s.differing_bytes, 10 + 30 + 40);
    disk.log[0].data[48 * 150 + 20] ^= 1;
    s = check_it(&config, mem2, 99);
    CHECK_EQ(s.times[CHECK_LOG_UNREADABLE], 1);
    CHECK_GE(s.times[CHECK_LOG_DIFFERS], 50);
    CHECK_EQ(check_redirects(&c, &t, &config, NULL, NULL), 0); /* the tree alone */
    memset((char *)mem + 40, 0x55, 400);                       /* a node of the tree */
    memset(&s, 0, sizeof s);
    CHECK_EQ(check_redirects(&c, &t, &config, NULL, NULL), 1);
    CHECK_EQ(s.times[CHECK_TREE_BROKEN], 1);
    free(mem);
    free(mem2);
    disk_free(&disk);
}

int main(void)
{
    check_begin("twochoice_maintainer");
    check_rng_init(&rng, 4);
    run(UINT64_C(1000000000), 4000);
    run(UINT64_C(10000000), 20000);
    run(QOS_UNLIMITED, 3000);
    busy_servers(100, 1, 65); /* equal modulo 64 */
    busy_servers(100, 2, 3);
    busy_servers(65535, 65534, 64);
    open_pull();
    nothing_left();
    pulls_of_others();
    free(maintainer_mem);
    checker();
    return check_end();
}
