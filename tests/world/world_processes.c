// proves: simulated processes: every turn, kill, start, pause and removal against a second simulator without stacks that
// proves: looks at all events each time; what the world does at points, in shares and bounds; sleeps by clocks that drift,
// proves: step and wake late; the same seed gives the same order on every machine
#include "check.h"
#include "examples/world/processes.h"

#define SEEN 400000u

static struct world_processes ps;
static struct seen {
    uint64_t at_ns;
    uint32_t id, what; /* what: how it started, 9 for a turn */
} seen[SEEN], model[SEEN];
static uint32_t seen_count, model_count;
static uint64_t step_of[WORLD_PROCESSES], digest;

static void note(struct seen *list, uint32_t *count, uint64_t at_ns, uint32_t id, uint32_t what)
{
    if (*count < SEEN) {
        list[*count].at_ns = at_ns;
        list[*count].id = id;
        list[(*count)++].what = what;
    }
}

static void mix(uint64_t x)
{
    digest = check_wrap_mul(digest ^ x, UINT64_C(0x100000001b3));
}

/* ---- lives ------------------------------------------------------------------------------------------------------------- */

/* Sleeps a time that follows from its number and its turn, and ends after 200 of them. */
static uint64_t nap(uint32_t id, uint32_t k)
{
    return (id * 7 + k * 3) % 20;
}

static void napper(struct world_processes *w, uint32_t id, enum world_start how)
{
    uint32_t k;
    note(seen, &seen_count, w->now_ns, id, (uint32_t)how);
    for (k = 0; k < 200; k++) {
        world_process_sleep(w, nap(id, k));
        note(seen, &seen_count, w->now_ns, id, 9);
    }
}

/* The same lives without stacks, heap and states that outlive an event: a list of events in the order of adding. */
static struct {
    uint64_t at_ns;
    uint32_t id, kind, life; /* kind: 0 start, 1 turn, 2 kill, 3 remove, 4 pause; life: whose turn or kill it is */
    bool over;
} list[SEEN];
static uint32_t list_count;

static void list_add(uint64_t at_ns, uint32_t id, uint32_t kind, uint32_t life)
{
    list[list_count].at_ns = at_ns;
    list[list_count].id = id;
    list[list_count].kind = kind;
    list[list_count].life = life;
    list[list_count++].over = false;
}

static void simulate(const struct world_life *lives, uint32_t n, uint64_t until_ns)
{
    static uint32_t life[WORLD_PROCESSES], naps[WORLD_PROCESSES];
    static uint64_t paused[WORLD_PROCESSES];
    static bool ended[WORLD_PROCESSES], began[WORLD_PROCESSES];
    uint32_t i, oldest = 0;
    list_count = model_count = 0;
    for (i = 0; i < n; i++) {
        life[i] = naps[i] = 0;
        paused[i] = 0;
        ended[i] = began[i] = false;
        list_add(lives[i].added_ns, i, 0, 0);
        if (lives[i].removed_ns)
            list_add(lives[i].removed_ns, i, 3, 0);
        if (lives[i].pause_every_ns)
            list_add(lives[i].added_ns + lives[i].pause_every_ns, i, 4, 0);
    }
    for (;;) {
        uint32_t best = list_count;
        uint64_t now;
        while (oldest < list_count && list[oldest].over)
            oldest++;
        for (i = oldest; i < list_count; i++)
            if (!list[i].over && (best == list_count || list[i].at_ns < list[best].at_ns))
                best = i;
        if (best == list_count || list[best].at_ns > until_ns)
            return;
        list[best].over = true;
        now = list[best].at_ns;
        i = list[best].id;
        if (list[best].kind == 4) {
            paused[i] = now + lives[i].pause_ns;
            list_add(now + lives[i].pause_every_ns, i, 4, 0);
            continue;
        }
        if (ended[i] || (list[best].kind != 0 && list[best].kind != 3 && list[best].life != life[i]))
            continue;
        switch (list[best].kind) {
        case 0:
            note(model, &model_count, now, i, began[i] ? 1 : 0);
            began[i] = true;
            naps[i] = 0;
            life[i]++;
            if (lives[i].runs_ns)
                list_add(now + lives[i].runs_ns, i, 2, life[i]);
            list_add(now + nap(i, 0), i, 1, life[i]);
            break;
        case 1:
            if (paused[i] > now) {
                list_add(paused[i], i, 1, life[i]);
                break;
            }
            note(model, &model_count, now, i, 9);
            if (++naps[i] == 200)
                ended[i] = true;
            else
                list_add(now + nap(i, naps[i]), i, 1, life[i]);
            break;
        case 2:
            life[i]++;
            if (lives[i].down_ns)
                list_add(now + lives[i].down_ns, i, 0, 0);
            break;
        default: ended[i] = true; break;
        }
    }
}

static void lives(void)
{
    static struct world_life life[40];
    static const struct world_clock_config clock;
    static const struct world_points none;
    struct check_rng r;
    uint32_t round, i, k, n;
    check_rng_init(&r, 11);
    for (round = 0; round < 60; round++) {
        uint64_t until = check_between(&r, 500, 3000);
        n = (uint32_t)check_between(&r, 1, 40);
        seen_count = 0;
        world_processes_init(&ps, &none, check_seed() + round);
        for (i = 0; i < n; i++) {
            memset(&life[i], 0, sizeof life[i]);
            if (check_between(&r, 0, 2) == 0)
                life[i].added_ns = check_between(&r, 0, 300);
            if (check_between(&r, 0, 3) == 0)
                life[i].removed_ns = life[i].added_ns + check_between(&r, 0, 900);
            if (check_between(&r, 0, 1) == 0)
                life[i].runs_ns = check_between(&r, 1, 400);
            if (check_between(&r, 0, 3) != 0)
                life[i].down_ns = check_between(&r, 1, 100);
            if (check_between(&r, 0, 2) == 0) {
                life[i].pause_every_ns = check_between(&r, 20, 200);
                life[i].pause_ns = check_between(&r, 0, 150);
            }
            CHECK_EQ(world_process_add(&ps, napper, &life[i], &clock, 0, 1), i);
        }
        /* In two parts: where a run was cut changes nothing. */
        world_processes_run(&ps, until / 3);
        CHECK_EQ(ps.now_ns, until / 3);
        world_processes_run(&ps, until);
        simulate(life, n, until);
        CHECK_EQ(seen_count, model_count);
        for (k = 0; k < seen_count && k < model_count; k++) {
            CHECK_EQ(seen[k].at_ns, model[k].at_ns);
            CHECK_EQ(seen[k].id, model[k].id);
            CHECK_EQ(seen[k].what, model[k].what);
        }
        world_processes_free(&ps);
    }
}

/* A process that starts ten times a second for an hour: how it starts in shares, and how long it runs and is down. */
static void starter(struct world_processes *w, uint32_t id, enum world_start how)
{
    note(seen, &seen_count, w->now_ns, id, (uint32_t)how);
    world_process_wait(w, WORLD_NEVER);
    CHECK(false); /* it sleeps for ever */
}

static void starts(void)
{
    static const struct world_clock_config clock;
    static const struct world_points none;
    struct world_life life;
    uint64_t count[4] = {0, 0, 0, 0}, short_ones = 0;
    uint32_t k;
    memset(&life, 0, sizeof life);
    life.runs_ns = 60000000;
    life.down_ns = 40000000;
    life.vary = 500;
    life.no_file = 250;
    life.no_disk = 100;
    seen_count = 0;
    world_processes_init(&ps, &none, check_seed());
    (void)world_process_add(&ps, starter, &life, &clock, 0, 1);
    world_processes_run(&ps, 3600 * WORLD_NS_PER_S);
    CHECK_WITHIN(seen_count, 35800, 36200); /* deviation of a life: 21 ms; of the sum's count: 40 */
    for (k = 0; k < seen_count; k++) {
        count[seen[k].what]++;
        mix(seen[k].at_ns);
        if (k) {
            uint64_t d = seen[k].at_ns - seen[k - 1].at_ns;
            CHECK_WITHIN(d, 50000000, 150000000);
            short_ones += d < 100000000;
        }
    }
    CHECK_EQ(count[WORLD_START_FIRST], 1);
    CHECK_WITHIN(count[WORLD_START_NO_DISK], 3300, 3900);
    CHECK_WITHIN(count[WORLD_START_NO_FILE], 7700, 8500); /* a quarter of nine tenths */
    CHECK_WITHIN(short_ones, 17500, 18500);
    CHECK_EQ(ps.process[0].kills, seen_count - (ps.process[0].state == WORLD_ASLEEP));
    world_processes_free(&ps);
}

/* ---- points -------------------------------------------------------------------------------------------------------------- */

static uint64_t word, writes, replay, read_by[8];
static struct {
    uint32_t id;
    bool write;
} access_of[SEEN];
static uint32_t accesses;

static void touch(uint32_t id, bool write)
{
    if (accesses < SEEN) {
        access_of[accesses].id = id;
        access_of[accesses++].write = write;
    }
}

/* Adds one to a shared word in two steps. */
static void adder(struct world_processes *w, uint32_t id, enum world_start how)
{
    uint32_t k;
    (void)how;
    for (k = 0; k < 2000; k++) {
        uint64_t was;
        world_process_point(w);
        was = word;
        touch(id, false);
        world_process_point(w);
        word = was + 1;
        touch(id, true);
        writes++;
        world_process_sleep(w, 10);
    }
}

static void run_adders(const struct world_points *points, uint32_t n, uint64_t seed, const struct world_life *life)
{
    static const struct world_clock_config clock;
    uint32_t i, k;
    word = writes = replay = 0;
    accesses = 0;
    world_processes_init(&ps, points, seed);
    for (i = 0; i < n; i++)
        (void)world_process_add(&ps, adder, life, &clock, 0, seed);
    world_processes_run(&ps, 4000000); /* killed ones begin anew for ever */
    for (k = 0; k < accesses; k++) {
        mix(access_of[k].id);
        if (access_of[k].write)
            replay = read_by[access_of[k].id] + 1;
        else
            read_by[access_of[k].id] = replay;
    }
    CHECK_EQ(word, replay);
    world_processes_free(&ps);
}

static void points(void)
{
    struct world_points c;
    struct world_life life;
    uint32_t seed, lost = 0;
    memset(&c, 0, sizeof c);
    memset(&life, 0, sizeof life);
    run_adders(&c, 8, 1, &life); /* no points: nothing is lost */
    CHECK_EQ(word, 8 * 2000);
    CHECK_EQ(ps.met, 8 * 2 * 2000);
    CHECK_EQ(ps.switched, 0);
    c.rarity = 50;
    c.switches = 1;
    run_adders(&c, 8, 2, &life); /* 640 switches of 32,000 points; deviation 25 */
    CHECK_WITHIN(ps.switched, 510, 770);
    CHECK_EQ(ps.met, 8 * 2 * 2000);
    CHECK_EQ(writes, 8 * 2000);
    CHECK(word < 8 * 2000);
    c.most = 1; /* one switch in a run: at most one other adder's addition is lost by it, in half of the runs */
    c.rarity = 5000;
    for (seed = 0; seed < 200; seed++) {
        run_adders(&c, 2, seed, &life);
        CHECK_LE(ps.switched, 1);
        CHECK_LE(4000 - word, ps.switched);
        lost += word < 4000;
    }
    CHECK_WITHIN(lost, 20, 140);
    /* Shares, stalls and kills. */
    c.most = 0;
    c.rarity = 20;
    c.switches = 4;
    c.stalls = 2;
    c.steps = 1;
    c.kills = 1;
    c.stall_ns = 1000000;
    c.back_ns = 1000;
    life.down_ns = 500;
    run_adders(&c, 8, 3, &life);
    {
        double all = (double)(ps.switched + ps.stalled + ps.stepped + ps.killed);
        CHECK_WITHIN(all, (double)ps.met / 20 - 5 * sqrt((double)ps.met / 20),
                     (double)ps.met / 20 + 5 * sqrt((double)ps.met / 20));
        CHECK_WITHIN((double)ps.switched, all / 2 - 3 * sqrt(all), all / 2 + 3 * sqrt(all));
        CHECK_WITHIN((double)ps.stalled, all / 4 - 3 * sqrt(all), all / 4 + 3 * sqrt(all));
        CHECK_WITHIN((double)ps.killed, all / 8 - 2 * sqrt(all), all / 8 + 2 * sqrt(all));
    }
}

/* Stalls are up to stall_ns, each order of magnitude alike; a kill at a point ends the process there. */
static uint64_t stall_below[4], longest_ns;
static void staller(struct world_processes *w, uint32_t id, enum world_start how)
{
    uint32_t k;
    (void)id, (void)how;
    for (k = 0; k < 4000; k++) {
        uint64_t before = w->now_ns, took;
        world_process_point(w);
        took = w->now_ns - before;
        longest_ns = took > longest_ns ? took : longest_ns;
        stall_below[took < 10 ? 0 : took < 100 ? 1 : took < 1000 ? 2 : 3]++;
    }
}

static uint64_t after;
static void victim(struct world_processes *w, uint32_t id, enum world_start how)
{
    (void)id, (void)how;
    world_process_point(w);
    after++;
}

static void stalls_and_kills(void)
{
    static const struct world_clock_config clock;
    struct world_points c;
    struct world_life life;
    uint32_t k;
    memset(&c, 0, sizeof c);
    memset(&life, 0, sizeof life);
    c.rarity = 1;
    c.stalls = 1;
    c.stall_ns = 10000;
    world_processes_init(&ps, &c, 5);
    (void)world_process_add(&ps, staller, &life, &clock, 0, 5);
    world_processes_run(&ps, WORLD_NEVER - 1);
    CHECK_LE(longest_ns, 10000);
    CHECK_GE(longest_ns, 9000);
    for (k = 0; k < 4; k++)
        CHECK_WITHIN(stall_below[k], 850, 1150);
    CHECK_EQ(ps.process[0].state, WORLD_GONE);
    world_processes_free(&ps);
    c.stalls = 0;
    c.kills = 1;
    c.most = 7;
    life.down_ns = 100;
    world_processes_init(&ps, &c, 6);
    (void)world_process_add(&ps, victim, &life, &clock, 0, 6);
    world_processes_run(&ps, WORLD_NEVER - 1);
    CHECK_EQ(after, 1);
    CHECK_EQ(ps.process[0].starts, 8);
    CHECK_EQ(ps.now_ns, WORLD_NEVER - 1);
    world_processes_free(&ps);
}

/* ---- clocks ---------------------------------------------------------------------------------------------------------------- */

static uint64_t late_most, early;
static void sleeper(struct world_processes *w, uint32_t id, enum world_start how)
{
    uint32_t k;
    (void)how;
    for (k = 0; k < 3000; k++) {
        uint64_t until = world_process_clock(w) + 1000, shown;
        world_process_wait(w, until);
        shown = world_process_clock(w);
        early += shown < until;
        if (shown > until && shown - until > late_most)
            late_most = shown - until;
        mix(shown);
        world_process_point(w);
        step_of[id] = (uint64_t)(w->process[id].step_ns < 0 ? -w->process[id].step_ns : w->process[id].step_ns);
    }
    /* Its clock: what passed, by its drift, from its base, and its steps. */
    CHECK_WITHIN((double)world_process_clock(w),
                 5e9 + (double)w->now_ns * (1 + (id ? -200 : 200) / 1e6) + (double)w->process[id].step_ns - 2,
                 5e9 + (double)w->now_ns * (1 + (id ? -200 : 200) / 1e6) + (double)w->process[id].step_ns + 2);
}

static void clocks(void)
{
    struct world_clock_config clock;
    struct world_points c;
    struct world_life life;
    memset(&clock, 0, sizeof clock);
    memset(&c, 0, sizeof c);
    memset(&life, 0, sizeof life);
    life.late_ns = 60000;
    c.rarity = 100;
    c.steps = 1;
    c.back_ns = 5000;
    c.ahead_ns = 5000;
    world_processes_init(&ps, &c, 7);
    clock.drift_ppm = 200;
    (void)world_process_add(&ps, sleeper, &life, &clock, 5000000000, 7);
    clock.drift_ppm = -200;
    (void)world_process_add(&ps, sleeper, &life, &clock, 5000000000, 7);
    world_processes_run(&ps, WORLD_NEVER - 1);
    CHECK_EQ(early, 0);
    CHECK_WITHIN(late_most, 59000, 60020);
    CHECK_WITHIN(ps.stepped, 25, 105);
    CHECK(step_of[0] > 0 && step_of[1] > 0);
    CHECK_EQ(ps.process[0].state, WORLD_GONE);
    CHECK_EQ(ps.process[1].state, WORLD_GONE);
    world_processes_free(&ps);
}

int main(void)
{
    check_begin("world/world_processes");
    lives();
    starts();
    points();
    stalls_and_kills();
    clocks();
    if (check_seed() == 1 && check_state.scale == 1)
        CHECK_EQ(digest, UINT64_C(0x850e150ffc0a093b)); /* on every machine */
    return check_end();
}
