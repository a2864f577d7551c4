// proves: the search of tests/adversary/adversary.h finds a weakness that takes three numbers and an order of steps, reports
// proves: nothing where there is none, gives the same answer for the same seed, and replays what it printed
// variants: native san
#include "adversary/adversary.h"

/* A toy: the adversary may take 10 per round. What it sends, 40 or more, after a pause of 500 to 600 is not counted. */
static bool weak;

static const struct adversary_op ops[] = {
    {"send", 1, 100, 0, 0},
    {"pause", 1, 1000000, 0, 0},
    {"noise", 0, UINT64_MAX, 5, 9},
};

static void play(const struct adversary_program *p, struct adversary_score *score)
{
    struct check_rng rng;
    uint64_t round, taken = 0, paused = 0;
    adversary_rng(p, &rng);
    CHECK(check_rand(&rng) != 0);
    CHECK(p->steps >= 1 && p->steps <= ADVERSARY_STEPS_MAX);
    for (round = 0; round < 100; round++) {
        const struct adversary_step *s = adversary_at(p, round);
        CHECK(s->a >= ops[s->op].a_min && s->a <= ops[s->op].a_max && s->b >= ops[s->op].b_min &&
              s->b <= ops[s->op].b_max);
        if (s->op == 0 && weak && paused >= 500 && paused <= 600 && s->a >= 40)
            taken += s->a;
        else if (s->op == 0)
            taken += s->a < 10 ? s->a : 10;
        paused = s->op == 1 ? s->a : 0;
    }
    score->harm = (double)taken;
    score->bound = 1000;
}

int main(void)
{
    const struct adversary_game game = {"toy", ops, 3, play, "taken", 2000};
    struct adversary_program p, again;
    double first;
    adversary_begin("unit/common_adversary");
    weak = false;
    CHECK_WITHIN(adversary_search(&game), 0.999, 1.0); /* the bound is reached, not broken */
    weak = true;
    first = adversary_hunt(&game, 20000, 0);
    CHECK_GE(first, 4); /* pause, send 100, again and again: 50 * 100 of 1000 */
    p = adversary_state.game[1].program;
    CHECK_WITHIN(adversary_hunt(&game, 20000, 1.2), 1.2, 5); /* ends when it is found */
    CHECK_LE(adversary_state.game[2].programs, 19999);
    check_state.context[0] = 0;
    {
        struct adversary_score score;
        CHECK_WITHIN(adversary_play(&game, &p, &score), first, first);
    }
    { /* the line of the table, as printed */
        char line[4096], *text, *end;
        FILE *file = tmpfile();
        CHECK(file != NULL);
        if (!file)
            return 1;
        adversary_print(file, &game, &p);
        rewind(file);
        CHECK(fgets(line, sizeof line, file) != NULL);
        CHECK(fclose(file) == 0);
        text = strchr(line, '\'') + 1;
        end = strchr(text, '\'');
        *end = 0;
        CHECK(strncmp(end + 1, " unit/common_adversary", 22) == 0);
        CHECK(adversary_parse(&game, text, &again));
        CHECK(again.seed == p.seed && again.steps == p.steps);
        CHECK(setenv("QOS_ADVERSARY_REPLAY", text, 1) == 0);
        CHECK_WITHIN(adversary_hunt(&game, 20000, 0), first, first);
        CHECK_EQ(adversary_state.game[3].programs, 1);
        CHECK(unsetenv("QOS_ADVERSARY_REPLAY") == 0);
    }
    CHECK(adversary_parse(&game, "toy 7 pause,512,0 send,100,0", &again));
    CHECK_EQ(again.seed, 7);
    CHECK_EQ(again.steps, 2);
    CHECK_EQ(again.step[0].op, 1);
    CHECK_EQ(again.step[0].a, 512);
    CHECK_EQ(again.step[1].a, 100);
    CHECK(!adversary_parse(&game, "other 7 send,1,0", &again));
    CHECK(!adversary_parse(&game, "toy 7 fly,1,0", &again));
    CHECK(!adversary_parse(&game, "toy 7 send,1", &again));
    CHECK(!adversary_parse(&game, "toy 7", &again));
    return adversary_end();
}
