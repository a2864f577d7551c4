// proves: in every interleaving of a pull, redirected writes and writes at home of the same bytes, a reader finds bytes
// proves: that a write put there last (Figure 10, Section V-C), and the pull converts all that it may.
#include "check.h"
#include "twochoice.h"

#define BYTES 12
#define SERVERS 4
#define HOME 0
#define ACTORS 3

/* What each server holds, and which write may be the latest of each byte: the last acknowledged one, or one that was
 * under way together with it. */
struct world {
    struct twochoice_table t;
    unsigned char mem[16384] __attribute__((aligned(64)));
    unsigned held[SERVERS][BYTES];
    unsigned step[ACTORS];
    unsigned acknowledged[BYTES], begun_at[16], acknowledged_at[16], clock;
    uint32_t pull, hold;
    bool pulling, holding, pull_void;
    struct twochoice_piece piece, out[BYTES];
    size_t n, copied;
    unsigned buffer[BYTES];
    unsigned conversions;
};

static uint64_t schedules;

/* The scenario: a home-write actor of [h0, h1), a redirecting actor of [r0, r1), a pull of everything. */
struct scenario {
    unsigned h0, h1, r0, r1, target;
};

static void begin_write(struct world *w, unsigned write)
{
    w->begun_at[write] = ++w->clock;
}

static void end_write(struct world *w, unsigned write, unsigned from, unsigned to)
{
    w->acknowledged_at[write] = ++w->clock;
    for (; from < to; from++)
        w->acknowledged[from] = write;
}

/* One step of an actor; false: it has to wait. Each step is what a server does without giving way. */
static bool step(struct world *w, unsigned actor, const struct scenario *s)
{
    unsigned i, at = w->step[actor];
    if (actor == 0) { /* the maintainer */
        switch (at) {
        case 0: {
            enum qos_status st = twochoice_table_pull_start(&w->t, 1, 0, BYTES, &w->pull, &w->piece);
            CHECK(st == QOS_OK || st == QOS_ENOENT);
            w->pull_void = st != QOS_OK;
            break;
        }
        case 1: /* the first half of the bytes is read, later the second */
        case 2:
            for (i = (unsigned)w->piece.offset; !w->pull_void && i < w->piece.end; i++)
                if ((i % 2 == 0) == (at == 1))
                    w->buffer[i] = w->held[w->piece.target][i];
            break;
        case 3:
            if (!w->pull_void) {
                enum qos_status st = twochoice_table_pull_ready(&w->t, w->pull, w->out, BYTES, &w->n);
                if (st == QOS_EAGAIN)
                    return false;
                CHECK_EQ(st, QOS_OK);
            }
            break;
        case 4: /* the write at home takes its time: even bytes, odd bytes */
        case 5: {
            size_t k;
            for (k = 0; !w->pull_void && k < w->n; k++)
                for (i = (unsigned)w->out[k].offset; i < w->out[k].end; i++)
                    if ((i % 2 == 0) == (at == 4))
                        w->held[HOME][i] = w->buffer[i];
            break;
        }
        default:
            if (!w->pull_void) {
                uint64_t before = w->t.version;
                CHECK_EQ(twochoice_table_pull_finish(&w->t, w->pull), QOS_OK);
                w->conversions += w->t.version > before;
            }
        }
    } else if (actor == 1) { /* a client whose write goes to another server */
        if (at == 0)
            begin_write(w, 2);
        if (at < 2)
            for (i = s->r0; i < s->r1; i++)
                if ((i % 2 == 0) == (at == 0))
                    w->held[s->target][i] = 2;
        if (at == 2) {
            CHECK_EQ(twochoice_table_create(&w->t, 1, s->target, s->r0, s->r1 - s->r0, false), QOS_OK);
            end_write(w, 2, s->r0, s->r1);
        }
    } else { /* a client whose write lands at home */
        if (at == 0) {
            enum qos_status st = twochoice_table_write_begin(&w->t, 1, s->h0, s->h1 - s->h0, &w->hold);
            if (st == QOS_EAGAIN)
                return false;
            CHECK_EQ(st, QOS_OK);
            begin_write(w, 3);
        }
        if (at == 0 || at == 1)
            for (i = s->h0; i < s->h1; i++)
                if ((i % 2 == 0) == (at == 0))
                    w->held[HOME][i] = 3;
        if (at == 2) {
            CHECK_EQ(twochoice_table_local(&w->t, 1, s->h0, s->h1 - s->h0), QOS_OK);
            twochoice_table_write_end(&w->t, w->hold);
            end_write(w, 3, s->h0, s->h1);
        }
    }
    w->step[actor]++;
    return true;
}

static const unsigned steps_of[ACTORS] = {7, 3, 3};

/* Outside a write's own time, a reader gets the bytes of a write that may be the last: none was begun after the end
 * of it and has ended. */
static void check_reads(struct world *w)
{
    unsigned i, v;
    for (i = 0; i < BYTES; i++) {
        struct twochoice_piece p;
        unsigned got;
        twochoice_table_find(&w->t, 1, i, &p);
        got = w->held[p.target == TWOCHOICE_LOCAL ? HOME : p.target][i];
        if (got == w->acknowledged[i])
            continue;
        CHECK(w->begun_at[got] != 0); /* some write's byte */
        for (v = 1; v <= 3; v++)
            if (w->acknowledged_at[v] != 0 && v == w->acknowledged[i] && w->acknowledged_at[got] != 0)
                CHECK(!(w->begun_at[v] > w->acknowledged_at[got]));
    }
}

static void explore(const struct world *w, const struct scenario *s, unsigned *best)
{
    struct world next;
    unsigned a;
    bool moved = false;
    for (a = 0; a < ACTORS; a++) {
        if (w->step[a] == steps_of[a])
            continue;
        memcpy(&next, w, sizeof next);
        next.t.node = (struct twochoice_priv_node *)(void *)(next.mem + ((unsigned char *)w->t.node - w->mem));
        next.t.hold = (struct twochoice_priv_hold *)(void *)(next.mem + ((unsigned char *)w->t.hold - w->mem));
        if (!step(&next, a, s))
            continue;
        moved = true;
        check_reads(&next);
        explore(&next, s, best);
    }
    if (!moved) { /* all have ended: nobody waits for ever */
        for (a = 0; a < ACTORS; a++)
            CHECK_EQ(w->step[a], steps_of[a]);
        CHECK_EQ(w->t.pulls_open, 0);
        schedules++;
        if (w->conversions > *best)
            *best = w->conversions;
    }
}

int main(void)
{
    static struct world w;
    static const struct scenario scenarios[] = {
        {0, 12, 0, 12, 2}, {0, 12, 0, 12, 3}, {2, 6, 4, 10, 2}, {2, 6, 4, 10, 3}, {0, 3, 9, 12, 3}, {4, 8, 4, 8, 2},
    };
    struct twochoice_table_config cfg = {0};
    unsigned i, k;
    check_begin("twochoice_pull");
    cfg.max_fragments = 60;
    cfg.max_holds = 4;
    cfg.home = HOME;
    for (i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        unsigned best = 0;
        CHECK_CONTEXT("scenario %u", i);
        memset(&w, 0, sizeof w);
        CHECK_LE(twochoice_table_memsize(&cfg), sizeof w.mem);
        CHECK_EQ(twochoice_table_init(&w.t, w.mem, sizeof w.mem, &cfg), QOS_OK);
        begin_write(&w, 1); /* all bytes were redirected to server 2 */
        for (k = 0; k < BYTES; k++)
            w.held[2][k] = 1;
        CHECK_EQ(twochoice_table_create(&w.t, 1, 2, 0, BYTES, false), QOS_OK);
        end_write(&w, 1, 0, BYTES);
        explore(&w, &scenarios[i], &best);
        printf("scenario %u: %" PRIu64 " schedules so far\n", i, schedules);
        CHECK_GE(best, 1); /* undisturbed, the pull brings them home */
    }
    printf("%" PRIu64 " schedules\n", schedules);
    CHECK_GE(schedules, 1000);
    return check_end();
}
