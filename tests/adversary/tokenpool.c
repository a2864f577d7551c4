// proves: whatever one client of tokenpool.h does (takes, claims, returns, force, ticks and clocks at will, lies in
// proves: its report, death and return) or its monitors do (pauses at any step, restarts, two at once), the tokens of
// proves: an epoch and of any window of T stay within the stated bounds, and a victim keeps its reservation and its
// proves: pool.
// scale: 3
#include "adversary/adversary.h"
#include "tokenpool.h"

enum { VICTIM, RIVAL, CLIENTS, MONITORS = 2, EPOCHS = 64, PERIODS = 8, STEPS = 256 };
#define STEP_NS UINT64_C(40)
#define PERIOD_NS (STEPS * STEP_NS)
#define CHECK_NS (PERIOD_NS / 64)
#define CAPACITY 1000
#define OVERRUN 50
#define BATCH 20
#define VICTIM_R 400
#define RIVAL_R 300
#define DEBT 16
#define FORCE_MAX 16

enum { TAKE, SLEEP, WORK, REPORT, GARBAGE, PUT_BACK, FORCE, COMPLETE, QUEUE, HINT, DIE, CLOCK, CLIENT_OPS };
static const struct adversary_op client_ops[CLIENT_OPS] = {
    {"take", 1, CAPACITY, 1, 64},              /* b times a tokens */
    {"sleep", 1, 3 * STEPS, 0, 0},             /* sleeps for a steps */
    {"work", 1, STEPS, 0, CAPACITY},           /* works for a steps; wants b tokens */
    {"report", 0, 1 << 27, 0, 1 << 27},        /* K = a and N = b in its report of the current epoch */
    {"garbage", 0, UINT64_MAX, 0, 0},          /* the word a as its report */
    {"put_back", 1, CAPACITY, 0, 0},           /* returns a tokens */
    {"force", 1, FORCE_MAX, 0, 0},             /* forces a tokens */
    {"complete", 1, UINT64_MAX / 2, 0, 0},     /* reports a completed requests, more than there were */
    {"queue", 0, UINT64_MAX, 0, 0},            /* reports a queued requests, too few or too many */
    {"hint", 0, 0, 0, 0},                      /* says that a period may have begun */
    {"die", 0, 2 * STEPS, 0, 0},               /* dies; attaches anew after a steps */
    {"clock", 0, PERIOD_NS * 3, 0, PERIOD_NS}, /* from now on its clock is a - b ns fast */
};
enum { RUN, PAUSE, RESTART, MONITOR_OPS };
static const struct adversary_op monitor_ops[MONITOR_OPS] = {
    {"run", 1, 2 * STEPS, 0, MONITORS - 1},   /* monitor b runs for a steps as documented */
    {"pause", 1, 3 * STEPS, 0, MONITORS - 1}, /* monitor b begins its next operation, and ends it after a steps */
    {"restart", 0, 1, 0, MONITORS - 1},       /* monitor b is replaced by a new one */
};

enum { ADD, SWAP, PAUSE_POOL, POOL_OPS };
static const struct adversary_op pool_ops[POOL_OPS] = {
    {"add", 0, UINT64_MAX, 0, 63}, /* adds a << b to the pool word: what a client's key permits */
    {"swap", 0, UINT64_MAX, 0, 0}, /* swaps it for a */
    {"pause", 1, STEPS, 0, 0},     /* does nothing for a steps */
};

static struct {
    struct tokenpool_config config;
    struct tokenpool_monitor monitor[MONITORS];
    struct tokenpool_client client[CLIENTS];
    struct tokenpool_op held[MONITORS]; /* begun, not performed */
    uint64_t held_until[MONITORS];
    bool born[MONITORS], holds[MONITORS];
    uint64_t storage[128] __attribute__((aligned(64)));
    uint64_t memory[MONITORS][256] __attribute__((aligned(64)));
    uint64_t now, at_step;
    /* the oracle's counts */
    uint64_t spent[EPOCHS][CLIENTS], forced[EPOCHS], window[PERIODS * STEPS];
    uint64_t started[EPOCHS], last_take_ns, longest_ns;
    uint32_t forged; /* epoch of the last report that the rival wrote itself */
    bool lied, passive, monitors_play, pool_plays;
    /* the rival */
    uint64_t wake_step, work_step, work_need;
    int64_t clock;
    bool dead;
} w;

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        CHECK_EQ(status, QOS_OK);
}

static uint32_t epoch_of(uint64_t pool)
{
    return (uint32_t)(pool >> 12) & 0xfffffu; /* as the header documents the word */
}

static void attach(unsigned who)
{
    must(tokenpool_client_attach(&w.client[who], who, 0, w.storage, sizeof w.storage));
}

static void setup(bool passive, bool monitors_play)
{
    bool pool_plays = w.pool_plays;
    memset(&w, 0, sizeof w);
    w.pool_plays = pool_plays;
    w.passive = passive;
    w.monitors_play = monitors_play;
    w.config.clients = CLIENTS;
    w.config.batch = BATCH;
    w.config.capacity = CAPACITY;
    w.config.period_ns = PERIOD_NS;
    w.config.check_ns = CHECK_NS;
    w.config.overrun = OVERRUN;
    w.config.debt_max = DEBT;
    w.config.flags = TOKENPOOL_FIXED;
    must(
        tokenpool_monitor_init(&w.monitor[0], w.memory[0], sizeof w.memory[0], w.storage, sizeof w.storage, &w.config));
    w.born[0] = true;
    must(tokenpool_monitor_join(&w.monitor[0], VICTIM, VICTIM_R, 0, NULL));
    must(tokenpool_monitor_join(&w.monitor[0], RIVAL, RIVAL_R, 0, NULL));
    attach(VICTIM);
    attach(RIVAL);
    tokenpool_client_set_queued(&w.client[VICTIM], TOKENPOOL_BACKLOGGED);
    tokenpool_client_run(&w.client[VICTIM], 0, 0);
    tokenpool_client_run(&w.client[RIVAL], 0, 0);
}

static void spend(unsigned who, uint64_t n)
{
    uint32_t epoch = (uint32_t)tokenpool_client_epoch(&w.client[who]);
    if (epoch < EPOCHS)
        w.spent[epoch][who] += n;
    w.window[w.at_step] += n;
}

/* The victim could use twice the data node's capacity. Its loop is that of the header's first page. */
static void victim_works(void)
{
    uint64_t most = 2 * CAPACITY / STEPS + 1;
    while (most > 0 && tokenpool_client_take(&w.client[VICTIM], w.now, 1) == QOS_OK) {
        tokenpool_client_complete(&w.client[VICTIM], 1);
        spend(VICTIM, 1);
        most--;
        if (w.last_take_ns && w.now - w.last_take_ns > w.longest_ns)
            w.longest_ns = w.now - w.last_take_ns;
        w.last_take_ns = w.now;
    }
}

static void write_report(uint64_t word)
{
    w.storage[tokenpool_storage_report(CLIENTS, RIVAL) / 8] = word;
    w.lied = true;
    w.forged = epoch_of(w.storage[0]);
}

/* One step of the rival's program; false: it has to wait. */
static bool act(const struct adversary_step *s)
{
    struct tokenpool_client *c = &w.client[RIVAL];
    uint64_t clock = (uint64_t)((int64_t)w.now + w.clock), epoch, i;
    if ((int64_t)clock < 0)
        clock = 0;
    switch (s->op) {
    case TAKE:
        for (i = 0; i < s->b && !w.passive && tokenpool_client_take(c, clock, s->a) == QOS_OK; i++)
            spend(RIVAL, s->a);
        break;
    case SLEEP: w.wake_step = w.at_step + s->a; return false;
    case WORK:
        w.work_step = w.at_step + s->a;
        w.work_need = w.passive ? 0 : s->b;
        return false;
    case REPORT:
        write_report(((uint64_t)epoch_of(w.storage[0]) % 31 + 1) << 59 | (s->a & 15) << 52 | (s->a & 0x3ffffff) << 26 |
                     (s->b & 0x7ffffff));
        break;
    case GARBAGE: write_report(s->a); break;
    case PUT_BACK:
        epoch = tokenpool_client_epoch(c);
        if (tokenpool_client_put_back(c, clock, epoch, s->a) == QOS_OK && epoch < EPOCHS)
            w.spent[epoch][RIVAL] -= s->a < w.spent[epoch][RIVAL] ? s->a : w.spent[epoch][RIVAL];
        break;
    case FORCE:
        if (!w.passive && tokenpool_client_force(c, clock, s->a) == QOS_OK) {
            spend(RIVAL, s->a);
            w.forced[tokenpool_client_epoch(c) % EPOCHS] += s->a;
        }
        break;
    case COMPLETE:
        tokenpool_client_complete(c, s->a);
        w.lied = true;
        break;
    case QUEUE: tokenpool_client_set_queued(c, s->a); break;
    case HINT: tokenpool_client_hint(c); break;
    case DIE:
        w.dead = true;
        w.wake_step = w.at_step + s->a;
        return false;
    default: w.clock = (int64_t)s->a - (int64_t)s->b;
    }
    return true;
}

static void rival_works(const struct adversary_program *program, uint64_t *at)
{
    unsigned budget = 4; /* actions that remain in this step */
    if (w.at_step < w.wake_step)
        return;
    if (w.dead) { /* a forged report is like an I/O without a token: an engine that continues from it is not judged */
        if (w.lied && epoch_of(w.storage[0]) == w.forged)
            return;
        attach(RIVAL);
        w.dead = false;
    }
    if (w.at_step < w.work_step) {
        uint64_t clock = (uint64_t)((int64_t)w.now + w.clock);
        tokenpool_client_run(&w.client[RIVAL], (int64_t)clock < 0 ? 0 : clock, w.work_need);
        return;
    }
    while (budget-- > 0 && act(adversary_at(program, (*at)++)))
        ;
}

static void note_epoch(void)
{
    uint32_t epoch = (uint32_t)(w.storage[TOKENPOOL_OFFSET_PERIOD / 8] >> 28) & 0xfffffu;
    if (epoch < EPOCHS && w.started[epoch] == 0)
        w.started[epoch] = w.now;
}

static void monitor_works(unsigned which)
{
    struct tokenpool_monitor *m = &w.monitor[which];
    if (!w.born[which])
        return;
    if (w.holds[which]) {
        if (w.at_step < w.held_until[which])
            return;
        w.holds[which] = false;
        tokenpool_monitor_done(m, tokenpool_storage_run(w.storage, &w.held[which]));
    }
    while (tokenpool_monitor_next_ns(m, w.now) <= w.now)
        tokenpool_monitor_run(m, w.now);
}

static void monitors_play(const struct adversary_program *program, uint64_t *at)
{
    unsigned budget = 4;
    while (w.at_step >= w.wake_step && budget-- > 0) {
        const struct adversary_step *s = adversary_at(program, (*at)++);
        struct tokenpool_monitor *m = &w.monitor[s->b];
        if (s->op == RUN) {
            w.wake_step = w.at_step + s->a;
        } else if (s->op == RESTART) {
            must(tokenpool_monitor_resume(m, w.memory[s->b], sizeof w.memory[0], w.storage, sizeof w.storage,
                                          &w.config));
            w.born[s->b] = true;
            w.holds[s->b] = false;
        } else if (w.born[s->b] && !w.holds[s->b] && tokenpool_monitor_next(m, w.now, &w.held[s->b])) {
            w.holds[s->b] = true;
            w.held_until[s->b] = w.at_step + s->a;
        } else {
            w.wake_step = w.at_step + 1; /* no operation to pause in: tries again */
            (*at)--;
        }
    }
    monitor_works(0);
    monitor_works(1);
}

/* A client that uses the pool's key as it likes, and nothing else. */
static void pool_plays(const struct adversary_program *program, uint64_t *at)
{
    const struct adversary_step *s;
    if (w.at_step < w.wake_step)
        return;
    s = adversary_at(program, (*at)++);
    if (s->op == ADD)
        (void)__builtin_add_overflow(w.storage[0], s->a << s->b, &w.storage[0]);
    else if (s->op == SWAP)
        w.storage[0] = s->a;
    else
        w.wake_step = w.at_step + s->a;
}

static void run(const struct adversary_program *program, bool passive, bool monitors)
{
    uint64_t at = 0;
    setup(passive, monitors);
    for (w.at_step = 0; w.at_step < PERIODS * STEPS; w.at_step++, w.now += STEP_NS) {
        if (monitors)
            monitors_play(program, &at);
        else
            monitor_works(0);
        note_epoch();
        if (w.at_step % 2)
            victim_works();
        if (w.pool_plays)
            pool_plays(program, &at);
        else if (!monitors)
            rival_works(program, &at);
        else
            while (tokenpool_client_take(&w.client[RIVAL], w.now, 1) == QOS_OK && w.spent[1][RIVAL] < UINT32_MAX)
                spend(RIVAL, 1);
        if (w.at_step % 2 == 0)
            victim_works();
    }
}

/* Tokens of an epoch: at most C + overrun + forced tokens. If the rival reports less than it holds, its reservation is
 * issued once more. */
static void play_tokens(const struct adversary_program *program, struct adversary_score *score)
{
    unsigned e;
    run(program, false, false);
    for (e = 1; e < EPOCHS; e++) {
        double sum = (double)(w.spent[e][VICTIM] + w.spent[e][RIVAL]);
        double bound = CAPACITY + OVERRUN + (double)w.forced[e] + (w.lied ? RIVAL_R : 0);
        if (e == 1 || sum / bound > score->harm / score->bound) {
            score->harm = sum;
            score->bound = bound;
        }
    }
}

/* The victim's reservation in a full period: its demand is twice the capacity. */
static void play_reservation(const struct adversary_program *program, struct adversary_score *score)
{
    unsigned e;
    run(program, false, false);
    score->bound = VICTIM_R;
    for (e = 1; e < EPOCHS && w.started[e] + PERIOD_NS < w.now; e++)
        /* below its reservation: counts as more than the whole bound */
        if (w.started[e] && w.spent[e][VICTIM] < VICTIM_R)
            score->harm = 2 * VICTIM_R - (double)w.spent[e][VICTIM];
}

/* The same, against a client with the pool's key. */
static void play_pool_key(const struct adversary_program *program, struct adversary_score *score)
{
    w.pool_plays = true;
    play_reservation(program, score);
    w.pool_plays = false;
}

/* The longest wait of the victim: until its next period, T + check. */
static void play_wait(const struct adversary_program *program, struct adversary_score *score)
{
    run(program, false, false);
    score->bound = (double)(PERIOD_NS + CHECK_NS);
    score->harm = (double)w.longest_ns;
}

/* The victim's pool, if the rival lies but takes nothing: C minus the rival's R, minus a batch and two checks. */
static void play_pool(const struct adversary_program *program, struct adversary_score *score)
{
    unsigned e;
    run(program, true, false);
    score->bound = RIVAL_R + BATCH + (double)CAPACITY * 2 * CHECK_NS / PERIOD_NS;
    for (e = 1; e < EPOCHS && w.started[e] + PERIOD_NS < w.now; e++) {
        double lost = CAPACITY - (double)w.spent[e][VICTIM];
        if (w.started[e] && lost > score->harm)
            score->harm = lost;
    }
}

/* Monitors that pause and restart: tokens in any window of T, and tokens of an epoch (doubled, so that both have one
 * scale). */
static void play_monitors(const struct adversary_program *program, struct adversary_score *score)
{
    uint64_t sum = 0, i, e, worst = 0;
    run(program, false, true);
    score->bound = 2 * (CAPACITY + OVERRUN);
    for (i = 0; i < PERIODS * STEPS; i++) {
        sum += w.window[i] - (i >= STEPS ? w.window[i - STEPS] : 0);
        worst = sum > worst ? sum : worst;
    }
    for (e = 1; e < EPOCHS; e++) {
        uint64_t twice = 2 * (w.spent[e][VICTIM] + w.spent[e][RIVAL]);
        worst = twice > worst ? twice : worst;
    }
    score->harm = (double)worst;
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"tokens", client_ops, CLIENT_OPS, play_tokens, "tokens of an epoch", 3000},
        {"reservation", client_ops, CLIENT_OPS, play_reservation, "tokens", 3000},
        {"pool_key", pool_ops, POOL_OPS, play_pool_key, "tokens", 3000},
        {"wait", client_ops, CLIENT_OPS, play_wait, "ns", 3000},
        {"pool", client_ops, CLIENT_OPS, play_pool, "tokens lost of C", 3000},
        {"monitors", monitor_ops, MONITOR_OPS, play_monitors, "tokens", 3000},
    };
    return adversary_main("adversary/tokenpool", games, sizeof games / sizeof *games);
}
