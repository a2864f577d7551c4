// proves: Figure 9 step by step, with the corrected answer and the paper's stale one (Section V-B); the race of Figure
// proves: 10 (Section V-C); the data loss of the Min/Max pair. Data are simulated: a byte is the number of its write.
#include "paper/twochoice_paper_log.h"
#include "twochoice.h"
#include "twochoice_calls.h"

#define SERVERS 6
#define HOME 1
#define BYTES 1000

/* What each server holds of the object, and what a reader must find: the number of the latest write of each byte. */
static unsigned held[SERVERS][BYTES], latest[BYTES], writes;
static struct twochoice_table t;
static struct paper_log paper;

static void begin(struct twochoice_table_config *config, void *mem, size_t size, bool min_max)
{
    memset(held, 0, sizeof held);
    memset(latest, 0, sizeof latest);
    writes = 0;
    CHECK_EQ(twochoice_table_init(&t, mem, size, config), QOS_OK);
    paper_init(&paper, min_max);
}

static void redirected_write(unsigned from, unsigned to, uint32_t target)
{
    unsigned i;
    writes++;
    for (i = from; i < to; i++)
        held[target][i] = latest[i] = writes;
    CHECK_EQ(redirect(&t, 1, from, to - from, target), QOS_OK);
    paper_create(&paper, from, to, target);
}

/* The bytes that a reader gets through the table are those written last. */
static void check_reads(void)
{
    unsigned i;
    for (i = 0; i < BYTES; i++) {
        struct twochoice_piece p;
        twochoice_table_find(&t, 1, i, &p);
        CHECK_EQ(held[p.target == TWOCHOICE_LOCAL ? HOME : p.target][i], latest[i]);
    }
}

static void check_pieces(unsigned from, unsigned to, const struct twochoice_piece *want, size_t n)
{
    struct twochoice_piece p[8];
    size_t i;
    CHECK_EQ(twochoice_table_query(&t, 1, from, to - from, p, 8), n);
    for (i = 0; i < n; i++) {
        CHECK_EQ(p[i].offset, want[i].offset);
        CHECK_EQ(p[i].end, want[i].end);
        CHECK_EQ(p[i].target, want[i].target);
    }
}

static void copy_home(const struct twochoice_piece *p)
{
    uint64_t i;
    for (i = p->offset; i < p->end; i++)
        held[HOME][i] = held[p->target][i];
}

static void finish(uint32_t pull)
{
    struct twochoice_piece out[8];
    size_t n = 0, i;
    CHECK_EQ(twochoice_table_pull_ready(&t, pull, out, 8, &n), QOS_OK);
    for (i = 0; i < n; i++)
        copy_home(&out[i]);
    CHECK_EQ(finish_pull(&t, pull), QOS_OK);
}

/* The first five entries; of entries 2 and 3 the text only says that both lie in 300-900. */
static void figure_9_entries(uint32_t *early_pull)
{
    struct twochoice_piece p;
    const struct twochoice_piece four[] = {{1, 0, 200, 0, TWOCHOICE_LOCAL},
                                           {1, 200, 500, 3, 3},
                                           {1, 500, 600, 1, 2},
                                           {1, 600, 800, 2, 3},
                                           {1, 800, 1000, 0, TWOCHOICE_LOCAL}};
    const struct twochoice_piece five[] = {
        {1, 0, 200, 0, TWOCHOICE_LOCAL}, {1, 200, 300, 3, 3}, {1, 300, 900, 4, 4}, {1, 900, 1000, 0, TWOCHOICE_LOCAL}};
    redirected_write(400, 600, 2);
    redirected_write(600, 800, 3);
    redirected_write(200, 500, 3);
    check_pieces(0, 1000, four, 5);
    CHECK_EQ(paper.n, 4);
    if (early_pull) {
        CHECK_EQ(start_pull_behind(&t, 1, 200, 1000, early_pull, &p), QOS_OK);
        CHECK(p.offset == 200 && p.end == 500 && p.target == 3);
    }
    redirected_write(300, 900, 4);
    CHECK_EQ(paper.n, 3); /* "the second and third entries will be removed" */
    check_pieces(0, 1000, five, 4);
    check_reads();
}

static void figure_9(struct twochoice_table_config *config, void *mem, size_t size)
{
    const struct twochoice_piece mended[] = {{1, 200, 300, 0, TWOCHOICE_LOCAL}, {1, 300, 600, 4, 4}};
    struct twochoice_piece p;
    uint32_t pull;
    unsigned i;
    /* The maintainer starts after the fifth entry: it gets what entry 4 still holds. */
    begin(config, mem, size, false);
    figure_9_entries(NULL);
    CHECK_EQ(start_pull_behind(&t, 1, 0, 1000, &pull, &p), QOS_OK);
    CHECK(p.offset == 200 && p.end == 300 && p.target == 3);
    finish(pull);
    check_pieces(200, 600, mended, 2);
    check_reads();
    /* It started before the fifth entry: it copied all of 200-500, and only 200-300 of that is converted. */
    begin(config, mem, size, false);
    figure_9_entries(&pull);
    finish(pull);
    check_pieces(200, 600, mended, 2);
    check_reads();
    /* The paper: pulls entry 4 (200-500) from OSD-3, appends the sixth entry, and answers "[200, 500] is local". */
    for (i = 200; i < 500; i++)
        held[HOME][i] = held[3][i];
    paper_delete(&paper, 200, 500, paper.now);
    CHECK_EQ(paper_query(&paper, 200), PAPER_LOCAL);
    CHECK_EQ(paper_query(&paper, 499), PAPER_LOCAL);
    CHECK_EQ(paper_query(&paper, 500), 4);
    for (i = 300; i < 500; i++)
        CHECK(held[HOME][i] != latest[i]); /* stale: the latest write of these bytes is on OSD-4 */
}

/* Thread 1 pulls (r1, r2, OSD-1); meanwhile the same data is redirected to OSD-2. */
static void figure_10(struct twochoice_table_config *config, void *mem, size_t size)
{
    struct twochoice_piece p;
    uint32_t pull;
    uint64_t started;
    begin(config, mem, size, false);
    redirected_write(100, 200, 5);
    CHECK_EQ(start_pull_behind(&t, 1, 0, 1000, &pull, &p), QOS_OK);
    started = paper.now;
    redirected_write(100, 200, 2);
    finish(pull);
    paper_delete(&paper, 100, 200, started);
    twochoice_table_find(&t, 1, 150, &p);
    CHECK_EQ(p.target, 2);
    CHECK_EQ(paper_query(&paper, 150), 2); /* the paper's start time mends this case too */
    check_reads();
    /* Half of the range, to the same server: still a newer write. */
    begin(config, mem, size, false);
    redirected_write(100, 200, 5);
    CHECK_EQ(start_pull_behind(&t, 1, 0, 1000, &pull, &p), QOS_OK);
    held[HOME][0] = 0;
    for (started = 100; started < 200; started++)
        held[HOME][started] = held[5][started]; /* copied before the newer write */
    redirected_write(150, 160, 5);
    CHECK_EQ(twochoice_table_pull_ready(&t, pull, &p, 1, &(size_t){0}), QOS_OK);
    CHECK(p.offset == 100 && p.end == 150);
    CHECK_EQ(finish_pull(&t, pull), QOS_OK);
    check_reads();
    twochoice_table_find(&t, 1, 155, &p);
    CHECK_EQ(p.target, 5);
}

static void min_max(struct twochoice_table_config *config, void *mem, size_t size)
{
    struct twochoice_piece p;
    uint32_t pull;
    uint64_t started;
    begin(config, mem, size, true);
    redirected_write(0, 100, 2);
    redirected_write(100, 200, 2);
    CHECK_EQ(start_pull_behind(&t, 1, 0, 100, &pull, &p), QOS_OK);
    started = paper.now;
    redirected_write(50, 80, 3);
    finish(pull);
    paper_delete(&paper, 0, 100, started);
    CHECK_EQ(paper_query(&paper, 60), PAPER_LOCAL); /* below Min: the newer redirect is lost */
    paper.use_min_max = false;
    CHECK_EQ(paper_query(&paper, 60), 3); /* the list without the pair is right */
    twochoice_table_find(&t, 1, 60, &p);
    CHECK_EQ(p.target, 3);
    check_reads();
    /* A newer redirect that only overlaps the end of the pulled range. */
    begin(config, mem, size, true);
    redirected_write(0, 100, 2);
    CHECK_EQ(start_pull_behind(&t, 1, 0, 100, &pull, &p), QOS_OK);
    started = paper.now;
    redirected_write(90, 150, 3);
    finish(pull);
    paper_delete(&paper, 0, 100, started);
    CHECK_EQ(paper_query(&paper, 95), PAPER_LOCAL);
    twochoice_table_find(&t, 1, 95, &p);
    CHECK_EQ(p.target, 3);
    check_reads();
}

/* Without pulls, the paper's log and the table give the same answers. */
static void same_meaning(struct twochoice_table_config *config, void *mem, size_t size)
{
    struct check_rng rng;
    uint64_t step;
    check_rng_init(&rng, 5);
    begin(config, mem, size, true);
    for (step = 0; step < check_scaled(2000); step++) {
        unsigned from = (unsigned)check_between(&rng, 0, BYTES - 1), i;
        unsigned to = from + (unsigned)check_between(&rng, 1, 100);
        struct twochoice_piece p;
        redirected_write(from, to < BYTES ? to : BYTES, (uint32_t)check_between(&rng, 2, 5));
        i = (unsigned)check_between(&rng, 0, BYTES - 1);
        twochoice_table_find(&t, 1, i, &p);
        CHECK_EQ(p.target, paper_query(&paper, i));
    }
    check_reads();
}

int main(void)
{
    struct twochoice_table_config config = {0};
    void *mem;
    size_t size;
    check_begin("twochoice_redirect");
    config.max_fragments = 2000;
    config.home = HOME;
    size = twochoice_table_memsize(&config);
    mem = aligned_alloc(64, size);
    figure_9(&config, mem, size);
    figure_10(&config, mem, size);
    min_max(&config, mem, size);
    same_meaning(&config, mem, size);
    free(mem);
    return check_end();
}
