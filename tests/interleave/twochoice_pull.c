// proves: in every interleaving of a pull, a redirected write, a write at home and a delete of the same bytes, each
// proves: with its device's steps: a reader finds at every moment bytes that may be the latest (Figure 10, Section
// proves: V-C), nothing waits without end, and an undisturbed pull converts all that it may.
#include "check.h"
#include "twochoice.h"
#include "twochoice_calls.h"

#define BYTES 8u
#define SERVERS 4u
#define STAMPS 16u
#define HOME 0u
#define ACTORS 3u
#define STEPS 24u

/* What the home holds in place, and what each piece holds. Values are write numbers: 1 is there from the beginning. */
static struct twochoice_table t;
static unsigned char mem[65536] __attribute__((aligned(64)));
static struct twochoice_table_config config;
static unsigned home[BYTES], piece_data[STAMPS][BYTES], buffer[BYTES];
static unsigned at_step[ACTORS], acknowledged[BYTES], begun_at[8], ended_at[8], now, conversions;
static uint64_t stamp[ACTORS];
static size_t room[ACTORS];
static uint32_t pull;
static bool no_pull;
static struct twochoice_piece piece, part[BYTES];
static size_t parts;
static uint64_t schedules, moments;

/* A redirected write of [r0, r1), a write at home of [h0, h1) (it deletes the bytes behind h1), a pull of all. */
static const struct scenario {
    unsigned h0, h1, r0, r1, target;
    bool cancel; /* the pull is cancelled while it writes */
} scenarios[] = {
    {0, 8, 0, 8, 2, false}, {0, 8, 0, 8, 3, false}, {2, 5, 4, 7, 2, false}, {2, 5, 4, 7, 3, true},
    {0, 2, 6, 8, 3, false}, {3, 6, 3, 6, 2, true},  {5, 8, 0, 3, 3, false},
};

static void end_write(unsigned write, unsigned from, unsigned to)
{
    ended_at[write] = ++now;
    for (; from < to; from++)
        acknowledged[from] = write;
}

/* First with room for one piece. If there are more, nothing changes, and the call is repeated later with room for all.
   */
static bool end_at_home_or_away(unsigned actor)
{
    struct twochoice_piece replaced[BYTES];
    const struct twochoice_table_state before = counts_of(&t);
    size_t n;
    enum qos_status st = twochoice_table_write_end(&t, stamp[actor], replaced, room[actor], &n);
    CHECK(st == QOS_OK || (st == QOS_EAGAIN && n == room[actor] && counts_of(&t).changes == before.changes));
    room[actor] = BYTES;
    return st == QOS_OK;
}

/* One step of an actor; false: it has to wait. */
static bool step(unsigned actor, const struct scenario *s)
{
    unsigned i, at = at_step[actor];
    size_t k;
    if (actor == 0) { /* the maintainer */
        switch (at) {
        case 0: no_pull = start_pull_behind(&t, 1, 0, BYTES, &pull, &piece) != QOS_OK; break;
        case 1:
            for (i = (unsigned)piece.offset; !no_pull && i < piece.end; i++)
                buffer[i] = piece_data[piece.version][i];
            break;
        case 2:
            if (!no_pull) {
                enum qos_status st = twochoice_table_pull_ready(&t, pull, part, BYTES, &parts);
                if (st == QOS_EAGAIN)
                    return false;
                CHECK_EQ(st, QOS_OK);
            }
            break;
        case 3: /* a write at home has two steps: even bytes, then odd bytes */
        case 4:
            if (at == 4 && s->cancel && !no_pull)
                CHECK_EQ(twochoice_table_pull_cancel(&t, pull), QOS_EBUSY);
            for (k = 0; !no_pull && k < parts; k++)
                for (i = (unsigned)part[k].offset; i < part[k].end; i++)
                    if ((i % 2 == 0) == (at == 3))
                        home[i] = buffer[i];
            break;
        default:
            if (!no_pull) {
                struct twochoice_piece replaced[BYTES];
                size_t n;
                enum qos_status st = twochoice_table_pull_finish(&t, pull, replaced, room[0], &n);
                CHECK(st == QOS_OK || (st == QOS_EAGAIN && n == room[0]));
                room[0] = BYTES;
                if (st == QOS_EAGAIN)
                    return true; /* tries again, after steps of other actors */
                conversions += (unsigned)n;
            }
            break;
        }
    } else if (actor == 1) { /* a client whose write goes to another server, into a piece of its own */
        if (at == 0) {
            begun_at[2] = ++now;
            CHECK_EQ(twochoice_table_write_begin(&t, 1, s->target, s->r0, s->r1 - s->r0, &stamp[1]), QOS_OK);
        } else if (at == 1) {
            for (i = s->r0; i < s->r1; i++)
                piece_data[stamp[1]][i] = 2;
        } else {
            if (!end_at_home_or_away(1))
                return true;
            end_write(2, s->r0, s->r1);
        }
    } else { /* a client that writes at home, in place */
        if (at == 0) {
            enum qos_status st = twochoice_table_write_begin(&t, 1, TWOCHOICE_LOCAL, s->h0, s->h1 - s->h0, &stamp[2]);
            if (st == QOS_EAGAIN)
                return false;
            CHECK_EQ(st, QOS_OK);
            begun_at[3] = ++now;
        } else if (at <= 2) {
            for (i = s->h0; i < s->h1; i++)
                if ((i % 2 == 0) == (at == 1))
                    home[i] = 3;
        } else {
            if (!end_at_home_or_away(2))
                return true;
            end_write(3, s->h0, s->h1);
        }
    }
    at_step[actor]++;
    return true;
}

static const unsigned steps_of[ACTORS] = {6, 3, 4};

/* A reader gets a write that may be the latest: no other write that began after its end has ended. */
static void check_reads(void)
{
    unsigned i;
    moments++;
    for (i = 0; i < BYTES; i++) {
        struct twochoice_piece p;
        unsigned got, last = acknowledged[i];
        twochoice_table_find(&t, 1, i, &p);
        got = p.target == TWOCHOICE_LOCAL ? home[i] : piece_data[p.version][i];
        CHECK(got >= 1 && got <= 3);
        if (got != last && ended_at[got] != 0)
            CHECK(begun_at[last] <= ended_at[got]);
    }
}

static void begin(void)
{
    unsigned i;
    uint64_t first = 0;
    struct twochoice_piece replaced;
    size_t n;
    memset(home, 0, sizeof home);
    memset(piece_data, 0, sizeof piece_data);
    memset(at_step, 0, sizeof at_step);
    memset(begun_at, 0, sizeof begun_at);
    memset(ended_at, 0, sizeof ended_at);
    for (i = 0; i < ACTORS; i++)
        room[i] = 1;
    now = conversions = 0;
    CHECK_EQ(twochoice_table_init(&t, mem, sizeof mem, &config), QOS_OK);
    begun_at[1] = ++now; /* all bytes were redirected to server 2 */
    CHECK_EQ(twochoice_table_write_begin(&t, 1, 2, 0, BYTES, &first), QOS_OK);
    for (i = 0; i < BYTES; i++)
        piece_data[first][i] = 1;
    CHECK_EQ(twochoice_table_write_end(&t, first, &replaced, 1, &n), QOS_OK);
    end_write(1, 0, BYTES);
}

/* Runs every schedule. It repeats the choices so far and adds one, so no state is copied. */
static void explore(unsigned *choice, unsigned depth, const struct scenario *s, unsigned *best)
{
    unsigned a, k;
    bool moved = false;
    for (a = 0; a < ACTORS; a++) {
        begin();
        for (k = 0; k < depth; k++)
            CHECK(step(choice[k], s));
        if (at_step[a] == steps_of[a] || !step(a, s))
            continue;
        moved = true;
        check_reads();
        CHECK(depth + 1 < STEPS);
        choice[depth] = a;
        explore(choice, depth + 1, s, best);
    }
    if (moved)
        return;
    for (a = 0; a < ACTORS; a++) /* all actors have ended: none waits without end */
        CHECK_EQ(at_step[a], steps_of[a]);
    CHECK_EQ(counts_of(&t).pulls_open, 0);
    CHECK_EQ(counts_of(&t).writes_open, 0);
    schedules++;
    *best = conversions > *best ? conversions : *best;
}

int main(void)
{
    unsigned choice[STEPS], i;
    check_begin("twochoice_pull");
    config.max_fragments = 60;
    config.max_writes = 4;
    config.max_pulls = 4;
    config.home = HOME;
    CHECK_LE(twochoice_table_memsize(&config), sizeof mem);
    for (i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        unsigned best = 0;
        CHECK_CONTEXT("scenario %u", i);
        explore(choice, 0, &scenarios[i], &best);
        if (!scenarios[i].cancel)
            CHECK_GE(best, 1); /* an undisturbed pull brings bytes home */
        else
            CHECK_EQ(best, 0);
    }
    printf("%" PRIu64 " schedules, %" PRIu64 " moments\n", schedules, moments);
    CHECK_GE(schedules, 1000);
    return check_end();
}
