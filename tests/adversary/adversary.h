/* adversary.h - searches for the behaviour of one tenant (or message, or clock) that does another the most harm.
 *
 * HOW TO USE IT
 *
 *     // proves: ...
 *     #include "adversary/adversary.h"
 *     #include "htb.h"
 *
 *     // What the adversary can do. Each step has two numbers, a and b, from these ranges; small ones are as likely.
 *     static const struct adversary_op ops[] = {
 *         {"send", 1, 64, 1, 1000000},       // a requests, each of cost b
 *         {"pause", 1, 1000000000, 0, 0},    // ns
 *     };
 *
 *     // Plays one program against the victim and reports the harm done and what the header's formula allows.
 *     static void play(const struct adversary_program *program, struct adversary_score *score)
 *     {
 *         struct check_rng rng;
 *         adversary_rng(program, &rng);              // for other random choices in the game
 *         for (step = 0; step < ...; step++) {
 *             const struct adversary_step *s = adversary_at(program, step);    // the program repeats without end
 *             ...
 *         }
 *         score->harm = ...;
 *         score->bound = ...;
 *     }
 *
 *     int main(void)
 *     {
 *         static const struct adversary_game games[] = {
 *             {"weight", ops, 2, play, "tokens", 2000},  // 2,000 programs are tried
 *         };
 *         return adversary_main("adversary/htb", games, 1);  // no program's harm may exceed its bound
 *     }
 *
 *   The bound is the header's formula. The test computes it from what the oracle saw, without that header.
 *   A game may have several victims: report the one with the largest ratio.
 *
 * HOW IT SEARCHES
 *
 *   A round is a start and a climb. The start is the most harmful of 16 random programs; in every fourth round it is
 *   the most harmful program so far. The climb makes one or two random changes at a time (a number, a step, the order,
 *   the length, the seed) and keeps those that do at least as much harm. It ends after 64 changes without gain.
 *   The seed and the number of programs determine everything.
 *
 *   QOS_TEST_SEED=n            another search
 *   QOS_ADVERSARY_PROGRAMS=n   programs for each game, instead of the number in the source
 *   QOS_TEST_CASE=name         only this game
 *   QOS_TEST_FAILURES=1        the search ends at the first program that breaks its bound
 *   QOS_ADVERSARY_REPLAY=text  plays one program, as the table prints it: "game seed step,a,b step,a,b ..."
 */
#ifndef QOS_TESTS_ADVERSARY_H
#define QOS_TESTS_ADVERSARY_H

#include "check.h"

#define ADVERSARY_STEPS_MAX 12
#define ADVERSARY_GAMES_MAX 32
#define ADVERSARY_START 16
#define ADVERSARY_PATIENCE 64

struct adversary_op {
    const char *name;
    uint64_t a_min, a_max, b_min, b_max;
};

struct adversary_step {
    uint32_t op; /* index into the game's ops */
    uint64_t a, b;
};

struct adversary_program {
    uint64_t seed;
    uint32_t steps; /* 1..ADVERSARY_STEPS_MAX */
    struct adversary_step step[ADVERSARY_STEPS_MAX];
};

struct adversary_score {
    double harm, bound; /* in the game's unit; bound > 0 */
};

struct adversary_game {
    const char *name; /* one word */
    const struct adversary_op *op;
    uint32_t ops;
    void (*play)(const struct adversary_program *program, struct adversary_score *score);
    const char *unit;  /* unit of harm and bound, for the table; may be NULL */
    uint64_t programs; /* programs to try; divided by QOS_TEST_SCALE */
};

struct adversary_worst {
    const struct adversary_game *game;
    struct adversary_program program;
    struct adversary_score score;
    double ratio;
    uint64_t programs;
};

static struct {
    struct adversary_worst game[ADVERSARY_GAMES_MAX];
    uint32_t games, reported, searches;
} adversary_state;

static CHECK_UNUSED const struct adversary_step *adversary_at(const struct adversary_program *p, uint64_t step)
{
    return &p->step[step % p->steps];
}

/* The game's own random numbers: the same for the same program. */
static CHECK_UNUSED void adversary_rng(const struct adversary_program *p, struct check_rng *rng)
{
    check_rng_init(rng, p->seed % 65536);
}

/* In [low, high], its number of bits uniform: small numbers are as likely as large ones. */
static CHECK_UNUSED uint64_t adversary_draw(struct check_rng *rng, uint64_t low, uint64_t high)
{
    uint64_t span = high - low, bits = 0, most;
    while (bits < 64 && (span >> bits) != 0)
        bits++;
    bits = check_between(rng, 0, bits);
    most = bits == 0 ? 0 : UINT64_MAX >> (64 - bits);
    return low + check_between(rng, 0, most < span ? most : span);
}

static CHECK_UNUSED void adversary_draw_step(struct check_rng *rng, const struct adversary_game *g,
                                             struct adversary_step *s)
{
    s->op = (uint32_t)check_between(rng, 0, g->ops - 1);
    s->a = adversary_draw(rng, g->op[s->op].a_min, g->op[s->op].a_max);
    s->b = adversary_draw(rng, g->op[s->op].b_min, g->op[s->op].b_max);
}

static CHECK_UNUSED void adversary_draw_program(struct check_rng *rng, const struct adversary_game *g,
                                                struct adversary_program *p)
{
    uint32_t i;
    memset(p, 0, sizeof *p);
    p->seed = check_between(rng, 0, 65535);
    p->steps = (uint32_t)check_between(rng, 1, check_between(rng, 1, ADVERSARY_STEPS_MAX));
    for (i = 0; i < p->steps; i++)
        adversary_draw_step(rng, g, &p->step[i]);
}

/* A number nearby, an end of the range, or any number in it. */
static CHECK_UNUSED uint64_t adversary_nudge(struct check_rng *rng, uint64_t v, uint64_t low, uint64_t high)
{
    uint64_t d = (v - low) / 8 + 1;
    switch (check_between(rng, 0, 4)) {
    case 0: return v - low > d ? v - d : low;
    case 1: return high - v > d ? v + d : high;
    case 2: return check_between(rng, 0, 1) ? low : high;
    case 3: return v > low && check_between(rng, 0, 1) ? v - 1 : v < high ? v + 1 : v;
    default: return adversary_draw(rng, low, high);
    }
}

static CHECK_UNUSED void adversary_mutate(struct check_rng *rng, const struct adversary_game *g,
                                          struct adversary_program *p)
{
    uint32_t i = (uint32_t)check_between(rng, 0, p->steps - 1), j = (uint32_t)check_between(rng, 0, p->steps - 1);
    struct adversary_step *s = &p->step[i], other;
    const struct adversary_op *op = &g->op[s->op];
    switch (check_between(rng, 0, 8)) {
    case 0:
    case 1: s->a = adversary_nudge(rng, s->a, op->a_min, op->a_max); break;
    case 2:
    case 3: s->b = adversary_nudge(rng, s->b, op->b_min, op->b_max); break;
    case 4: adversary_draw_step(rng, g, s); break;
    case 5: /* swaps two steps */
        other = *s;
        *s = p->step[j];
        p->step[j] = other;
        break;
    case 6: /* adds a step: a new one or a copy */
        if (p->steps == ADVERSARY_STEPS_MAX)
            break;
        memmove(s + 1, s, (p->steps - i) * sizeof *s);
        p->steps++;
        if (check_between(rng, 0, 1))
            adversary_draw_step(rng, g, s);
        break;
    case 7: /* removes a step */
        if (p->steps == 1)
            break;
        p->steps--;
        memmove(s, s + 1, (p->steps - i) * sizeof *s);
        break;
    default: p->seed = check_between(rng, 0, 65535);
    }
}

static CHECK_UNUSED double adversary_play(const struct adversary_game *g, const struct adversary_program *p,
                                          struct adversary_score *score)
{
    score->harm = 0;
    score->bound = 1;
    g->play(p, score);
    CHECK(score->bound > 0);
    return score->harm / score->bound;
}

static CHECK_UNUSED void adversary_print(FILE *to, const struct adversary_game *g, const struct adversary_program *p)
{
    uint32_t i;
    fprintf(to, "    QOS_TEST_SEED=%" PRIu64 " QOS_ADVERSARY_REPLAY='%s %" PRIu64, check_seed(), g->name, p->seed);
    for (i = 0; i < p->steps; i++)
        fprintf(to, " %s,%" PRIu64 ",%" PRIu64, g->op[p->step[i].op].name, p->step[i].a, p->step[i].b);
    fprintf(to, "' %s\n", check_state.name);
}

/* False: the text is not a program of this game. */
static CHECK_UNUSED bool adversary_parse(const struct adversary_game *g, const char *text, struct adversary_program *p)
{
    size_t name = strlen(g->name);
    char *end;
    memset(p, 0, sizeof *p);
    if (strncmp(text, g->name, name) != 0 || text[name] != ' ')
        return false;
    p->seed = strtoull(text + name, &end, 10);
    while (*end == ' ' && p->steps < ADVERSARY_STEPS_MAX) {
        struct adversary_step *s = &p->step[p->steps];
        size_t len = strcspn(++end, ",");
        for (s->op = 0; s->op < g->ops; s->op++)
            if (strlen(g->op[s->op].name) == len && strncmp(g->op[s->op].name, end, len) == 0)
                break;
        if (s->op == g->ops || end[len] != ',')
            return false;
        s->a = strtoull(end + len + 1, &end, 10);
        if (*end != ',')
            return false;
        s->b = strtoull(end + 1, &end, 10);
        p->steps++;
    }
    return p->steps > 0 && *end == 0;
}

static CHECK_UNUSED void adversary_begin(const char *name)
{
    check_begin(name);
    adversary_state.games = adversary_state.reported = adversary_state.searches = 0;
}

static CHECK_UNUSED void adversary_keep(struct adversary_worst *w, const struct adversary_program *p,
                                        const struct adversary_score *score, double ratio)
{
    if (w->programs == 1 || ratio > w->ratio) {
        w->program = *p;
        w->score = *score;
        w->ratio = ratio;
    }
}

static CHECK_UNUSED double adversary_try(struct adversary_worst *w, const struct adversary_program *p)
{
    struct adversary_score score;
    double ratio = adversary_play(w->game, p, &score);
    w->programs++;
    adversary_keep(w, p, &score, ratio);
    return ratio;
}

/* Tries `programs` programs and returns the largest ratio of harm to bound. It ends early when the ratio reaches
 * stop_at (0: never). It checks nothing: use it for a search that must find something. */
static CHECK_UNUSED double adversary_hunt(const struct adversary_game *g, uint64_t programs, double stop_at)
{
    struct adversary_worst *w = &adversary_state.game[adversary_state.games];
    struct adversary_program here, next;
    struct check_rng rng;
    const char *text = getenv("QOS_ADVERSARY_REPLAY");
    uint64_t round;
    adversary_state.searches++;
    if (!check_case(g->name))
        return 0;
    if (adversary_state.games == ADVERSARY_GAMES_MAX) {
        printf("too many games: raise ADVERSARY_GAMES_MAX\n");
        exit(1);
    }
    memset(w, 0, sizeof *w);
    w->game = g;
    if (text && *text) {
        if (!adversary_parse(g, text, &here))
            return 0;
        adversary_state.games++;
        return adversary_try(w, &here);
    }
    adversary_state.games++;
    programs = check_env("QOS_ADVERSARY_PROGRAMS", programs);
    check_rng_init(&rng, 1000003 * adversary_state.searches);
    for (round = 0; w->programs < programs; round++) {
        double best = -1, ratio;
        unsigned i, idle = 0;
        for (i = 0; i < ADVERSARY_START && w->programs < programs; i++) {
            adversary_draw_program(&rng, g, &next);
            ratio = adversary_try(w, &next);
            if (ratio > best) {
                best = ratio;
                here = next;
            }
        }
        if (round % 4 == 3) {
            here = w->program;
            best = w->ratio;
        }
        while (idle < ADVERSARY_PATIENCE && w->programs < programs) {
            next = here;
            adversary_mutate(&rng, g, &next);
            if (check_between(&rng, 0, 1))
                adversary_mutate(&rng, g, &next);
            ratio = adversary_try(w, &next);
            idle = ratio > best ? 0 : idle + 1;
            if (ratio >= best) {
                best = ratio;
                here = next;
            }
            if (stop_at > 0 && w->ratio >= stop_at)
                return w->ratio;
        }
        if (stop_at > 0 && w->ratio >= stop_at)
            return w->ratio;
    }
    return w->ratio;
}

/* Prints the rows that are not printed yet, at once: so a long run that is killed has shown what it found. */
static CHECK_UNUSED void adversary_report(void)
{
    for (; adversary_state.reported < adversary_state.games; adversary_state.reported++) {
        const struct adversary_worst *w = &adversary_state.game[adversary_state.reported];
        if (adversary_state.reported == 0)
            printf("%-18s %10s %14s %14s %8s  %s\n", "game", "programs", "worst found", "bound", "ratio", "unit");
        printf("%-18s %10" PRIu64 " %14.6g %14.6g %8.3f  %s\n", w->game->name, w->programs, w->score.harm,
               w->score.bound, w->ratio, w->game->unit ? w->game->unit : "");
        adversary_print(stdout, w->game, &w->program);
    }
    fflush(stdout);
}

#define ADVERSARY_MOST (1 + 1e-9) /* of harm / bound: both are sums of doubles */

/* Tries the game's programs. None may do more harm than its bound allows. Returns the largest ratio. */
static CHECK_UNUSED double adversary_search(const struct adversary_game *g)
{
    double stop_at = check_state.most_failures == 1 ? ADVERSARY_MOST + 1e-9 : 0;
    double ratio = adversary_hunt(g, check_scaled(g->programs), stop_at);
    adversary_report();
    CHECK_CONTEXT("game %s: the worst program is in the table", g->name);
    CHECK_WITHIN(ratio, 0, ADVERSARY_MOST);
    return ratio;
}

/* Prints the remaining rows; returns check_end(). */
static CHECK_UNUSED int adversary_end(void)
{
    adversary_report();
    return check_end();
}

static CHECK_UNUSED int adversary_main(const char *name, const struct adversary_game *games, size_t count)
{
    size_t i;
    adversary_begin(name);
    for (i = 0; i < count; i++)
        adversary_search(&games[i]);
    return adversary_end();
}

#endif
