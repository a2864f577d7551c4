// proves: tokenpool.h keeps its promises in worlds that nobody drew for it: engines and monitors as processes with clocks of
// proves: their own, killed, paused, started again, stopped at any shared word, beside stray stores, by seed; the oracles are
// proves: written from the first page; in small worlds without races each answer is compared with plain accounts;
// proves: a central account passes the oracles of engines (--reference)
// flags: -DQOS_ATOMIC_HOOK
// scale: 2
#define WORLD_HEADER "tokenpool"
#define WORLD_REFERENCE
#define WORLD_AGAIN "no shifted permuted"
#define WORLD_AGAIN_PERMILLE 150
#define WORLD_LATER F_AGAIN
#define WORLD_LATER_COHORT F_COHORT
#define WORLD_DRAW_MORE(w, r) draw_mode(w)
#define WORLD_FIELDS(X)                                                                                                \
    X(MODE, "mode", "processes exact monitors device")                                                                 \
    X(LENGTH, "periods", "10 5 24 60")                                                                                 \
    X(PERIOD, "period_us", "1000000 1000 8000 20000 100000 10000000")                                                  \
    X(CAPACITY, "capacity", "2000 100 20000")                                                                          \
    X(BATCH, "batch", "0 1 10 100")                                                                                    \
    X(CHECK, "check", "default 16 1024 1")                                                                             \
    X(ORDERED, "ordered", "no yes")                                                                                    \
    X(GUARD, "guard", "no yes")                                                                                        \
    X(FREE, "estimate", "fixed free")                                                                                  \
    X(OVERRUN, "overrun", "none default 200")                                                                          \
    X(GO_ON, "go_on", "no yes")                                                                                        \
    X(SILENT, "silent", "1 never 3")                                                                                   \
    X(MONITORS, "monitors", "1 2 3")                                                                                   \
    X(MONITOR_RUNS, "monitor_runs", "0 3000 700 100")                                                                  \
    X(MONITOR_DOWN, "monitor_down", "100 10 1500")                                                                     \
    X(MONITOR_PAUSE, "monitor_pause", "0 50 500 2500")                                                                 \
    X(MONITOR_CLOCK, "monitor_clock", "true back_1 stall")                                                             \
    X(MONITOR_DRIFT, "monitor_drift", "0 40 -40")                                                                      \
    X(LATE, "late", "0 1 20")                                                                                          \
    X(RARITY, "points", "0 30000 3000 300 30")                                                                         \
    X(MOST, "acts", "1 2 10 0")                                                                                        \
    X(ACTS, "act", "switch stall step kill any")                                                                       \
    X(STALL, "stall", "10 300 3000")                                                                                   \
    X(STEP, "step_back", "0 100 2000")                                                                                 \
    X(STRAYS, "strays", "0 1 3")                                                                                       \
    X(BASE, "start_ns", "1 1000000000 4000000000000000000")                                                            \
    X(QUIET, "quiet", "6 12")                                                                                          \
    X(PUT_BACK, "put_back", "0 30 300")                                                                                \
    X(WRONG, "wrong_calls", "0 20 200")                                                                                \
    X(AGAIN, "again", WORLD_AGAIN)
#define WORLD_COHORT(X)                                                                                                \
    X(NUMBER, "clients", "0 1 2 3 10 30")                                                                              \
    X(WANTS, "wants", "all half most idle bursts tail")                                                                \
    X(RESERVED, "reserved", "300 0 100 20")                                                                            \
    X(LIMIT, "limit", "0 1000 1500")                                                                                   \
    X(SIZE, "size", "1 3 40")                                                                                          \
    X(CALLS, "calls", "told 2048 512 64 7 4 3 1")                                                                      \
    X(IO, "io", "0 4 1")                                                                                               \
    X(TRANSPORT, "transport", "local remote slow")                                                                     \
    X(LOST, "lost", "0 20 200")                                                                                        \
    X(CLOCK, "clock", "true cached back jump stall")                                                                   \
    X(CLOCK_BY, "clock_by", "0 1 1000")                                                                                \
    X(DRIFT, "drift_ppm", "0 40 -40")                                                                                  \
    X(RUNS, "runs", "0 100 700 3000")                                                                                  \
    X(DOWN, "down", "1 30 1200")                                                                                       \
    X(PAUSE, "pause", "0 100 2000")                                                                                    \
    X(TWIN, "twin", "no yes")                                                                                          \
    X(FORCE, "forced", "0 50")                                                                                         \
    X(CHURN, "churn", "none change leave grow")                                                                        \
    X(LIES, "lies", "no yes")                                                                                          \
    X(QUEUED, "queued", "no yes")
struct world;
static void draw_mode(struct world *w);
#include "world_test.h"
#include "tokenpool.h"
#include "examples/world/processes.h"

#define MONITORS 3u
#define SLOTS 96u
#define EPOCHS (1u << 20)
#define JOURNAL 1000000u
#define TURNS 150000u /* about so many until the quiet end begins */

enum wants { ALL = 0, HALF, MOST, IDLE, BURSTS, TAIL }; /* TAIL: most of it in the second half of each epoch */

/* A client, and what the world saw of it. Times are true ones, in ns; 0: never. */
struct slot {
    uint32_t id, cohort, engine; /* engine: the process that attached last */
    enum wants wants;
    bool joined, remote, uncertain; /* uncertain: a change of its terms may or may not have happened */
    uint64_t reservation, limit, size, gap_ns, io_ns;
    double per_ns, due; /* tokens wanted: by time, and so far */
    uint64_t due_ns;
    uint64_t clean_ns;           /* nothing happened to it since */
    uint64_t called_ns, rare_ns; /* its last call; when it last came too late */
    uint64_t called_before_ns;   /* the call before */
    uint64_t had_ns, left_ns;    /* since when its last engine has it; left */
    uint64_t epoch, spent, forced, starts;
    uint64_t refused_ns, first_call_ns;
};

/* An engine is a process. */
struct engine {
    struct tokenpool_client client;
    uint32_t slot;
    bool attached, twin;
    uint64_t seen_ns, shown_ns, hidden_ns, hidden_at_ns; /* last reading: true time, shown; what its clock hid */
    uint64_t told_epochs;                                /* epochs that began since another attached; of its calls */
    uint64_t had_ns;
};

struct epoch {
    uint64_t run, begun_ns, ended_ns, sum, debts, bound, monitor_starts;
    bool begun, ended, opened; /* opened: the period word said that its terms are there */
};

static struct slot slot[SLOTS];
static struct engine engine[WORLD_PROCESSES];
static struct tokenpool_monitor monitor[MONITORS];
static struct epoch epochs[EPOCHS];
static uint64_t storage[1024] __attribute__((aligned(64))), memory[MONITORS][4096] __attribute__((aligned(64)));
static struct spend {
    uint64_t at_ns, n;
} journal[JOURNAL];
static uint64_t digest, runs;

static struct {
    struct world *w;
    struct world_processes ps;
    struct world_rng rng;
    struct tokenpool_config config;
    uint64_t T, C, batch, overrun, apart_ns, check_ns;
    uint32_t slots, twins, monitors, epoch, before, owner;
    size_t storage_bytes;
    uint64_t shown, last_ns; /* epoch in the period word; when the last epoch began that it showed, */
    bool last;               /* if there was one */
    uint64_t number, begun_ns, before_ns, late_ns, disturbed_ns, stray_ns, stray_number, alone_number, strayed, bound,
        spends, quiet_ns, kills;
    bool strays, go_on, lost;
    /* surplus, over the epochs of the quiet end */
    uint64_t quiet_epochs, quiet_spent, quiet_idle;
} run;

static struct world_processes *ps = &run.ps;

static void fold(uint64_t x)
{
    digest = check_wrap_mul(digest ^ x, UINT64_C(0x100000001b3));
}

/* Of all clocks. Those of `shifted` begin where none of their steps back meets 0. */
static uint64_t start_ns(const struct world *w)
{
    return (uint64_t)world_value(w, F_BASE) +
           (world_choice(w, F_AGAIN) == (uint32_t)WORLD_SHIFTED ? UINT64_C(1000000000000000) : 0) +
           (world_again == WORLD_SHIFTED ? WORLD_SHIFT_NS : 0);
}

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct epoch *epoch_of(uint64_t e)
{
    struct epoch *x = &epochs[e % EPOCHS];
    if (x->run != runs) {
        memset(x, 0, sizeof *x);
        x->run = runs;
    }
    return x;
}

/* A stray store may cost what the contract says for three periods. */
static bool strayed(uint64_t since_ns)
{
    return run.stray_ns && (since_ns < run.stray_ns + 4 * run.T || run.number < run.stray_number + 5);
}

/* ---- oracles ---------------------------------------------------------------------------------------------------------- */

static uint64_t monitor_starts(void)
{
    uint64_t i, n = 0;
    for (i = 0; i < run.monitors; i++)
        n += ps->process[i].starts;
    return n;
}

/* By more than 1 ns: after a step ahead or a stall, too. */
static bool goes_back(const struct slot *t)
{
    uint32_t fault = world_choice(run.w, world_of(t->cohort, F_CLOCK));
    return fault >= WORLD_CLOCK_BACK && world_choice(run.w, world_of(t->cohort, F_CLOCK_BY));
}

/* Promise `reservation`: R in each epoch, for who calls each T / 4 and wants it; for rarer calls if one came in the first
 * quarter, and it was heard of at the end of the epoch before. Each start costs at most X. */
static void judge_reservation(struct slot *t, uint64_t e, uint64_t begun, uint64_t ended)
{
    uint64_t got = t->epoch == e ? t->spent : 0, starts = t->epoch == e ? t->starts : 0, want, x, waiting = 0;
    bool often = t->rare_ns < run.before_ns && t->called_ns + run.T / 4 >= ended;
    if (!t->joined || t->uncertain || t->reservation == 0 || t->wants == IDLE || t->wants >= BURSTS)
        return;
    if (run.lost || world_choice(run.w, world_of(t->cohort, F_FORCE)))
        return; /* it pays its debt */
    if (t->io_ns && (world_choice(run.w, F_LATE) || world_choice(run.w, world_of(t->cohort, F_CLOCK)) ||
                     world_choice(run.w, world_of(t->cohort, F_PAUSE)) || t->gap_ns > run.T / 500))
        return; /* it wants what its I/Os let it, and they end late */
    if (t->io_ns && ((t->remote && max_of(max_of(t->clean_ns, t->had_ns), run.late_ns) + 4 * run.T > begun) ||
                     begun - run.before_ns > run.T + run.T / 8))
        return; /* they lose as much time as a late epoch, or a start, put it out of step, seeds 501401 and 906297; it counts
                 * with an end T after it last read of the one before, seed 5280001029 */
    if (t->io_ns * t->reservation > run.T * t->size)
        return; /* its reservation has grown above what its I/Os let it, seed 1903 */
    if (!run.before_ns || t->clean_ns >= run.before_ns || strayed(run.before_ns) || t->engine == UINT32_MAX)
        return;
    if (engine[t->engine].hidden_ns > run.T / 4)
        return; /* its clock stood still for so long: it was silent */
    if (run.go_on &&
        (ended - begun > run.T + run.T / 8 || begun - run.before_ns > run.T + run.T / 8 ||
         monitor_starts() != epoch_of(run.before)->monitor_starts || ps->stepped || !epoch_of(run.before)->opened ||
         (run.number < run.alone_number + 3 && t->had_ns + 4 * run.T > begun) ||
         world_choice(run.w, world_of(t->cohort, F_CHURN)) || goes_back(t)))
        return; /* It went on, on account of the next epochs: of several, if its reservation is less now; of the one after
                 * an epoch that nobody announced (seed 21115 of three monitors); who started anew meanwhile pays pool tokens
                 * from the reservation, too (18287, open: X at most). Who went back waits (8014549). */
    if (!epoch_of(e)->opened)
        return; /* its monitor died, or was replaced (seed 917351), before it announced the epoch: no token is of it */
    if (ps->stepped && t->gap_ns > run.T / 8)
        return; /* open: a call of the last quarter between two ticks may not report, seeds 37593 and 45809 of three monitors */
    /* Behind a slow transport who starts waits for the next epoch: also who did right before this one (seed 26111005534 of
     * three monitors). So does a clock that went back. */
    if (world_choice(run.w, world_of(t->cohort, F_TRANSPORT)) == 2 &&
        (starts || t->had_ns >= begun || ps->stepped || goes_back(t)))
        return;
    if (!often || (t->wants == ALL && t->refused_ns < begun + (t->io_ns ? run.T / 8 : 0)))
        return;
    want = t->reservation;
    if (t->wants != ALL) {
        waiting = t->due > 0 ? (uint64_t)t->due : 0;
        want = min_of(want, got + waiting);
    }
    x = max_of(run.batch, t->reservation / 8) * starts;
    /* what is left is less than a request; what is wanted comes at its calls */
    x += t->size - 1 + (t->wants != ALL ? (uint64_t)(t->per_ns * (double)(run.T / 4)) + t->size : 0);
    x += t->wants != ALL ? 2 : 0; /* this product and the next one are rounded down, seed 600002677 */
    if (ended - begun > run.T)    /* what it wanted after T waits for the next epoch, seeds 804766 and 77000338 */
        x += (uint64_t)(t->per_ns * (double)(ended - begun - run.T));
    if ((got + x) * 1000 < want * 999)
        world_fail(run.w, starts ? "restart" : "reservation", ps->now_ns,
                   "client %" PRIu32 ": %" PRIu64 " of %" PRIu64 " in epoch %" PRIu64 ", %" PRIu64 " waiting, %" PRIu64
                   " starts",
                   t->id, got, t->reservation, e, waiting, starts);
}

/* Promise `surplus`: of what idle clients leave, a backlogged one gets 99 or 98 %. Summed over the quiet end. */
static void judge_surplus(uint64_t e)
{
    uint64_t i, spent = 0, idle = 0;
    if (!run.quiet_ns || run.before_ns < run.quiet_ns)
        return;
    for (i = 0; i < run.slots; i++) /* one may still be down, or start in this epoch, seed 1046141 */
        if (slot[i].had_ns > run.before_ns || slot[i].called_ns + run.T / 4 < ps->now_ns)
            return;
    for (i = 0; i < run.slots; i++) /* one that was away for an epoch knows no deadline, and waits, seed 77100846 */
        if (world_choice(run.w, world_of(slot[i].cohort, F_TRANSPORT)) == 2 && slot[i].rare_ns > run.before_ns)
            return;
    for (i = 0; i < run.slots; i++) {
        uint64_t got = slot[i].epoch == e ? slot[i].spent : 0;
        spent += got;
        if (slot[i].wants != ALL && got < slot[i].reservation)
            idle += slot[i].reservation - got;
    }
    run.quiet_epochs++;
    run.quiet_spent += spent;
    run.quiet_idle += idle;
}

/* The pool word shows another epoch. */
static void epoch_begins(uint32_t e)
{
    struct epoch *x = epoch_of(e);
    uint64_t now = ps->now_ns, i;
    if (run.epoch) {
        struct epoch *old = epoch_of(run.epoch);
        old->ended_ns = now;
        old->ended = true;
        /* Promise `apart`: epochs start at least T - T / 4096 apart; those that the period word shows, or that were used. */
        if (run.shown == run.epoch || old->sum) {
            run.last = true;
            run.last_ns = run.begun_ns;
        }
        if (now - run.begun_ns > run.T + run.T / 64)
            run.late_ns = now;
        if (now - run.begun_ns > run.T + run.T / 8)
            run.alone_number = run.number;
        if (run.last && !strayed(run.begun_ns) && now - run.last_ns < run.apart_ns)
            world_fail(run.w, "apart", now, "epoch %" PRIu32 " after %.4f T", e,
                       (double)(now - run.last_ns) / (double)run.T);
        for (i = 0; i < run.slots; i++)
            judge_reservation(&slot[i], run.epoch, run.begun_ns, now);
        judge_surplus(run.epoch);
    }
    memset(x, 0, sizeof *x);
    x->run = runs;
    x->begun_ns = now;
    x->begun = true;
    x->monitor_starts = monitor_starts();
    run.before_ns = run.begun_ns;
    run.begun_ns = now;
    run.before = run.epoch;
    run.epoch = e;
    run.number++;
    world_trace(now, 99, "epoch", e);
}

/* After each write to the storage. */
static void look(const qos_word_t *word)
{
    uint64_t pool = storage[TOKENPOOL_OFFSET_POOL / 8];
    uint32_t e = tokenpool_word_epoch(pool);
    if (word == &storage[TOKENPOOL_OFFSET_PERIOD / 8] && ps->inside && ps->current < run.monitors) {
        run.lost |= run.owner != ps->current && strayed(ps->now_ns); /* it may find an admission that was hit */
        run.owner = ps->current;
    }
    if (word == &storage[TOKENPOOL_OFFSET_PERIOD / 8] && (*word & 1))
        epoch_of(*word >> 28 & 0xfffff)->opened = true;
    if (word == &storage[TOKENPOOL_OFFSET_PERIOD / 8] && run.shown != (*word >> 28 & 0xfffff)) {
        if (epoch_of(run.shown)->ended)
            epoch_of(run.shown)->ended_ns = ps->now_ns; /* now its clients can know */
        run.shown = *word >> 28 & 0xfffff;
    }
    if (word != &storage[TOKENPOOL_OFFSET_POOL / 8])
        return;
    if (e != run.epoch)
        epoch_begins(e);
    /* Promise `count`: it stays above -(clients x batch). */
    if (!world_choice(run.w, F_ORDERED) && !strayed(ps->now_ns) &&
        tokenpool_word_count(pool) < -(int64_t)((run.slots + run.twins) * run.batch))
        world_fail(run.w, "count", ps->now_ns, "the pool word counts %" PRId64, tokenpool_word_count(pool));
}

/* n tokens of epoch e were spent by a call that began at `begin`, when its clock had been read at `read`. */
static void spend(struct slot *t, const struct engine *g, uint64_t e, uint64_t n, uint64_t read, bool forced)
{
    struct epoch *x = epoch_of(e);
    uint64_t at = read, bound, limit;
    world_trace(ps->now_ns, t->id, "given", n);
    fold(ps->now_ns ^ (uint64_t)t->id << 56 ^ n);
    world_got(ps->now_ns, t->id, (double)n);
    if (t->epoch != e) {
        t->epoch = e;
        t->spent = t->forced = 0;
        t->starts = 0;
    }
    t->spent += n;
    x->sum += n;
    if (forced) {
        t->forced += n;
        x->debts += n;
    }
    /* Promise `outside`: a token is spent in the epoch that issued it, or never. An epoch lasts until the period word
     * shows the next one. A clock that hid time is as late as that. */
    if (!forced && !run.go_on && !strayed(run.begun_ns) && e != run.shown &&
        (!x->begun || (x->ended && x->ended_ns + g->hidden_ns < read)))
        world_fail(run.w, "outside", ps->now_ns,
                   "client %" PRIu32 " spent %" PRIu64 " tokens of epoch %" PRIu64 ", which ended %.6f ms before",
                   t->id, n, e, x->ended ? (double)(read - x->ended_ns) / 1e6 : 0.0);
    /* Promise `bound`: max(C, sum of R_i) + overrun + debts. */
    bound = (world_choice(run.w, F_FREE) ? x->bound : run.C + run.overrun) + x->debts;
    if (!run.go_on && !strayed(run.begun_ns) && bound > x->debts && x->sum > bound)
        world_fail(run.w, "bound", ps->now_ns, "%" PRIu64 " tokens in epoch %" PRIu64 ", %" PRIu64 " allowed", x->sum,
                   e, bound);
    /* Promise `limit`. */
    limit = t->limit;
    if (limit && !run.go_on && !t->uncertain && t->clean_ns < run.before_ns && !strayed(run.begun_ns) &&
        t->spent > limit + t->forced)
        world_fail(run.w, "limit", ps->now_ns, "client %" PRIu32 ": %" PRIu64 " in epoch %" PRIu64 ", limit %" PRIu64,
                   t->id, t->spent, e, limit);
    /* `left`: who left has no tokens from the next period on. */
    if (!t->joined && !t->uncertain && !forced && !run.go_on && x->begun_ns > t->left_ns && !strayed(run.begun_ns))
        world_fail(run.w, "left", ps->now_ns, "client %" PRIu32 " left and spent a token of epoch %" PRIu64, t->id, e);
    if (at < x->begun_ns)
        at = x->begun_ns;
    if (run.spends < JOURNAL && g->hidden_ns == 0) {
        journal[run.spends].at_ns = at;
        journal[run.spends++].n = n;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct spend *x = (const struct spend *)a, *y = (const struct spend *)b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* Promise `window`: any window of T - T / 4096 sees at most twice the bound of an epoch. */
static void judge_window(void)
{
    uint64_t most = 2 * (world_choice(run.w, F_FREE) ? run.bound : run.C + run.overrun), first = 0, sum = 0, i,
             debts = 0;
    if (run.strays || run.spends == JOURNAL)
        return;
    for (i = 0; i < run.slots; i++) { /* debts are judged by the bound of each epoch; an advance on old terms is one */
        debts += world_choice(run.w, world_of(slot[i].cohort, F_FORCE)) != 0;
        debts += run.go_on && world_choice(run.w, world_of(slot[i].cohort, F_CHURN));
    }
    if (debts)
        return;
    qsort(journal, run.spends, sizeof *journal, by_time);
    for (i = 0; i < run.spends; i++) {
        sum += journal[i].n;
        while (journal[first].at_ns + run.apart_ns <= journal[i].at_ns)
            sum -= journal[first++].n;
        if (sum > most) {
            world_fail(run.w, "window", journal[i].at_ns,
                       "%" PRIu64 " tokens in less than a period, %" PRIu64 " allowed", sum, most);
            return;
        }
    }
}

#include "tokenpool_reference.h"
#include "tokenpool_exact.h"
#include "tokenpool_device.h"

static bool quiet; /* no races, nobody looks at the words */

/* ---- shared words: each access is a point where the world may act ---------------------------------------------------------- */

uint64_t qos_hook_load(const qos_word_t *word, int order)
{
    (void)order;
    if (quiet)
        return *word;
    if (x.on) {
        if (x.actor >= X_MONITOR)
            x_read(word);
        else
            x_touches(word, false);
        return *word;
    }
    world_process_point(ps);
    return *word;
}
void qos_hook_store(qos_word_t *word, uint64_t v, int order)
{
    uint64_t old = *word;
    (void)order;
    if (!x.on && !quiet)
        world_process_point(ps);
    *word = v;
    if (quiet)
        return;
    if (x.on)
        x_wrote(word, old);
    else
        look(word);
}
uint64_t qos_hook_add(qos_word_t *word, uint64_t v, int order)
{
    uint64_t old;
    (void)order;
    if (x.on)
        x_tries(word);
    else if (!quiet)
        world_process_point(ps);
    old = *word;
    *word = qos_wrap_add(old, v);
    if (quiet)
        return old;
    if (x.on)
        x_wrote(word, old);
    else
        look(word);
    return old;
}
bool qos_hook_cas(qos_word_t *word, uint64_t *expected, uint64_t desired, int order)
{
    uint64_t old;
    (void)order;
    if (!x.on && !quiet)
        world_process_point(ps);
    old = *word;
    if (x.on)
        x_tries(word);
    if (old != *expected) {
        *expected = old;
        return false;
    }
    *word = desired;
    if (quiet)
        return true;
    if (x.on)
        x_wrote(word, old);
    else
        look(word);
    return true;
}

/* ---- clients ---------------------------------------------------------------------------------------------------------------- */

/* Reads the engine's clock. *read: the true time that it shows; what it hides is noted. */
static uint64_t read_clock(struct engine *g, uint64_t *read)
{
    struct world_process *p = &ps->process[ps->current];
    uint64_t shown = world_process_clock(ps), at;
    int64_t plain = (int64_t)shown - p->step_ns;
    at = p->clock.config.fault == WORLD_CLOCK_TRUE ? ps->now_ns
                                                   : world_clock_when(&p->clock, plain > 0 ? (uint64_t)plain : 0);
    *read = min_of(at, ps->now_ns);
    if (ps->now_ns >
        max_of(g->hidden_at_ns, slot[g->slot].rare_ns) +
            (slot[g->slot].remote && run.T > 10000000 ? 10 : 6) * run.T) /* found by calls late in an epoch */
        g->hidden_ns = 0;
    if (g->seen_ns && shown + run.T / 8192 >= g->shown_ns && *read > g->seen_ns) { /* a hair back stands still */
        uint64_t passed = shown > g->shown_ns ? shown - g->shown_ns : 0;
        if (*read - g->seen_ns > passed + (*read - g->seen_ns) / 10000 + 1) {
            g->hidden_ns += *read - g->seen_ns - passed;
            g->hidden_at_ns = ps->now_ns;
        }
    }
    g->shown_ns = shown;
    g->seen_ns = *read;
    return shown;
}

/* An operation of a transport: it may be slow, and its answer may be lost. */
static void perform(struct slot *t, struct engine *g, const struct tokenpool_op *op)
{
    bool lost = world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_LOST)));
    bool slow = world_choice(run.w, world_of(t->cohort, F_TRANSPORT)) == 2;
    uint64_t answer = 0;
    if (slow)
        world_process_sleep(ps, world_between(&run.rng, 0, run.T / 4096));
    if (!lost || world_chance(&run.rng, 500))
        answer = tokenpool_storage_run(storage, op);
    if (slow)
        world_process_sleep(ps, world_between(&run.rng, 0, run.T / 4096));
    if (lost) {
        tokenpool_client_fail(&g->client);
        t->clean_ns = ps->now_ns;
    } else {
        tokenpool_client_done(&g->client, answer);
    }
}

static void attach(struct slot *t, struct engine *g)
{
    enum qos_status s;
    if (t->epoch != run.epoch) {
        t->epoch = run.epoch;
        t->spent = t->forced = t->starts = 0;
    }
    t->starts++;
    if (use_reference)
        s = QOS_OK;
    else if (t->remote)
        s = tokenpool_client_attach_remote(&g->client, t->id, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8],
                                           run.storage_bytes);
    else
        s = tokenpool_client_attach(&g->client, t->id, 0, storage, run.storage_bytes);
    g->attached = s == QOS_OK;
    if (s != QOS_OK && !strayed(ps->now_ns))
        world_fail(run.w, "attach", ps->now_ns, "client %" PRIu32 ": %s", t->id, qos_strerror(s));
    if (s != QOS_OK)
        return;
    if (t->engine == UINT32_MAX || engine[t->engine].hidden_ns > run.T / 4) /* that one was silent, seed 26111027378 */
        t->clean_ns = ps->now_ns;
    t->engine = ps->current;
    g->had_ns = 0;
    if (!use_reference && tokenpool_client_epoch(&g->client) != 0)
        world_fail(run.w, "attach", ps->now_ns, "client %" PRIu32 " begins with tokens", t->id);
}

/* A call of the engine begins or ended; its clock had been read at `read`. */
static void called(struct slot *t, uint64_t read)
{
    if (ps->current != t->engine)
        return;
    if (t->called_ns && ps->now_ns - t->called_ns > run.T / 4)
        t->rare_ns = ps->now_ns;
    if (read > t->called_ns)
        t->called_ns = read;
}

/* `hang`: the engine says when to call again, at the latest T + check_ns later. */
static uint64_t next_of(struct slot *t, struct engine *g, uint64_t shown, uint64_t n)
{
    uint64_t next = use_reference ? shown + run.T / 512 : tokenpool_client_next_ns(&g->client, shown, n);
    if (next == QOS_NEVER)
        world_fail(run.w, "never", ps->now_ns, "client %" PRIu32 " is told to call never again", t->id);
    else if (next > shown + run.T + run.check_ns)
        world_fail(run.w, "waits", ps->now_ns, "client %" PRIu32 " is told to wait for %.3f T", t->id,
                   (double)(next - shown) / (double)run.T);
    return next;
}

/* Does the engine have the slot? From the first time on, any other one had it before. */
static bool has_slot(struct slot *t, struct engine *g, struct tokenpool_client_state *info)
{
    (void)tokenpool_client_info(&g->client, info);
    if (use_reference)
        info->running = !(info->stale = t->engine != ps->current) || g->had_ns;
    if (!g->had_ns && info->running)
        g->had_ns = t->had_ns = ps->now_ns;
    return info->running;
}

/* Takes n tokens if it can. */
static enum qos_status take(struct slot *t, struct engine *g, uint64_t n, uint64_t *shown)
{
    struct tokenpool_client_state info;
    struct tokenpool_op op;
    enum qos_status s;
    uint64_t read, number = run.number;
    uint32_t k;
    bool forced = world_chance(&run.rng, (uint32_t)world_value(run.w, world_of(t->cohort, F_FORCE)));
    *shown = read_clock(g, &read);
    if (use_reference) { /* it asks for nothing from other places; here the world may act */
        world_process_point(ps);
        *shown = read_clock(g, &read);
    }
    for (k = 0; !use_reference && t->remote && k < 300 && tokenpool_client_next(&g->client, *shown, n, &op); k++) {
        called(t, read); /* the engine is called now, perhaps for the first time (seed 26000014539) */
        perform(t, g, &op);
        (void)has_slot(t, g, &info);   /* many slow operations come before the take, seed 934460 */
        *shown = read_clock(g, &read); /* the take has the last one: a lower one would need an operation first */
    }
    if (n == 0 && !t->remote && !use_reference)
        tokenpool_client_run(&g->client, *shown, 0);
    if (n == 0) {
        (void)has_slot(t, g, &info);
        called(t, read);
        return info.stale ? QOS_ESTALE : QOS_EAGAIN;
    }
    s = use_reference ? central_take(t, n, forced)
        : forced      ? tokenpool_client_force(&g->client, *shown, n)
                      : tokenpool_client_take(&g->client, *shown, n);
    if (s == QOS_OK) {
        spend(t, g, use_reference ? run.epoch : tokenpool_client_epoch(&g->client), n, read, forced);
        if (forced)
            t->clean_ns = ps->now_ns; /* it pays its debt */
        if (!use_reference)
            tokenpool_client_complete(&g->client, n);
    }
    /* a reservation is withheld from who was not heard, so it counts for who came often since the epoch before, and has
     * seen this one (seed 1017951) */
    if (s == QOS_ERANGE && tokenpool_client_epoch(&g->client) == run.epoch && !strayed(run.begun_ns) &&
        n <= t->reservation && t->joined && t->rare_ns < run.before_ns && t->called_ns + run.T / 4 >= ps->now_ns &&
        t->clean_ns < run.before_ns)
        world_fail(run.w, "range", ps->now_ns, "client %" PRIu32 ": %" PRIu64 " tokens are out of range", t->id, n);
    if (s == QOS_ERANGE)
        s = QOS_EAGAIN;
    /* Promise `fenced_engine`: an engine that had the slot before gets QOS_ESTALE, once it heard of another epoch. An engine
     * has the slot from its first epoch on: the client may not be joined when it attaches. */
    if (has_slot(t, g, &info) && s == QOS_OK && g->had_ns < t->had_ns) {
        if (run.before_ns > t->had_ns && number == run.number && !world_choice(run.w, world_of(t->cohort, F_CLOCK)) &&
            !strayed(run.before_ns) && !run.go_on)
            world_fail(run.w, "fenced_engine", ps->now_ns,
                       "client %" PRIu32 ": an engine spends a token two epochs after another one got the slot", t->id);
    }
    if (s != QOS_OK && t->engine == ps->current && ps->now_ns < run.begun_ns + run.T - run.T / 512)
        t->refused_ns = ps->now_ns; /* later ones may only wait for the next epoch */
    called(t, read);
    return s;
}

/* What it wants now, in tokens. */
static void want(struct slot *t)
{
    uint64_t now = ps->now_ns;
    double most = (double)t->reservation;
    if (t->wants == BURSTS) {
        if (world_rand(&run.rng) % 16 == 0)
            t->due += most;
    } else if (t->wants == TAIL) {
        if (now > run.begun_ns + run.T / 2 && t->due_ns <= run.begun_ns + run.T / 2)
            t->due += most;
    } else {
        t->due += t->per_ns * (double)(now - t->due_ns);
    }
    t->due_ns = now;
    if (t->due > most)
        t->due = most;
}

static void client_body(struct world_processes *w, uint32_t id, enum world_start how)
{
    struct engine *g = &engine[id];
    struct slot *t = &slot[g->slot];
    uint32_t spins = 0;
    (void)how;
    (void)w;
    memset(&g->client, 0, sizeof g->client);
    g->attached = false;
    if (g->hidden_ns > run.T / 4)
        t->clean_ns = ps->now_ns; /* so was the engine before, seed 6370 of three monitors */
    g->seen_ns = g->shown_ns = g->hidden_ns = 0;
    for (;;) {
        uint64_t shown = 0, next, k;
        enum qos_status s = QOS_EAGAIN;
        if (!g->attached) {
            attach(t, g);
            if (!g->attached) {
                world_process_sleep(ps, run.T / 8 + 1);
                continue;
            }
        }
        want(t);
        if (t->wants == IDLE)
            s = take(t, g, 0, &shown);
        for (k = 0; t->wants != IDLE && k < 4096; k++) {
            if (t->wants != ALL && t->due < (double)t->size) {
                if (k == 0)
                    s = take(t, g, 0, &shown);
                break;
            }
            s = take(t, g, t->size, &shown);
            if (s != QOS_OK)
                break;
            t->due -= (double)t->size;
            if (t->io_ns)
                world_process_sleep(ps, t->io_ns);
        }
        if (s == QOS_ESTALE) {
            g->attached = false;
            t->clean_ns = max_of(t->clean_ns, g->twin || t->left_ns ? ps->now_ns : 0);
            if (t->engine == id && !g->twin && !t->left_ns && !run.strays && t->joined && !t->uncertain)
                world_fail(run.w, "stale", ps->now_ns,
                           "client %" PRIu32 " has the slot and is told that another has it", t->id);
            world_process_sleep(ps, t->engine == id ? 1 : run.T); /* its successor goes first */
            continue;
        }
        next = next_of(t, g, shown, t->wants == IDLE || (t->wants != ALL && t->due < (double)t->size) ? 0 : t->size);
        if (t->gap_ns) {
            world_process_sleep(ps, t->gap_ns);
        } else if (next > shown) {
            spins = 0;
            world_process_wait(ps, next);
        } else { /* told to come at once: a clock that stands still, or a fault */
            world_process_sleep(ps, spins++ < 10 ? 1 : run.T / 4096 + 1);
        }
    }
}

/* ---- monitors ---------------------------------------------------------------------------------------------------------------- */

/* A neighbour may have grown since. */
static uint64_t reserved_by_others(const struct slot *t)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < run.slots; i++)
        sum += slot[i].joined && i != t->id ? slot[i].reservation : 0;
    return sum;
}

/* New terms, or a client leaves or comes back: the owner is asked, or one that was replaced. */
static void churn(uint32_t id)
{
    struct tokenpool_monitor *m = &monitor[id];
    struct slot *t;
    bool owned = run.owner == id;
    uint64_t number = run.number, r;
    uint32_t kind;
    enum qos_status s;
    if (run.quiet_ns || run.slots == 0 || world_rand(&run.rng) % 512 != 0)
        return;
    t = &slot[world_between(&run.rng, 0, run.slots - 1)];
    kind = world_choice(run.w, world_of(t->cohort, F_CHURN));
    if (kind == 0 || t->uncertain)
        return;
    r = world_between(&run.rng, 0, t->reservation);
    t->uncertain = true;
    t->clean_ns = ps->now_ns;
    if (use_reference && kind == 3 && t->joined)
        r = t->limit ? t->limit : 2 * t->reservation + r;
    if (use_reference)
        s = kind == 2 && t->joined ? QOS_OK
                                   : central_terms(reserved_by_others(t), t->joined ? r : t->reservation, t->limit);
    else if (kind == 2 && t->joined)
        s = tokenpool_monitor_leave(m, t->id);
    else if (!t->joined)
        s = tokenpool_monitor_join(m, t->id, t->reservation, t->limit, NULL);
    else
        s = tokenpool_monitor_change(m, t->id, kind == 3 ? r = t->limit ? t->limit : 2 * t->reservation + r : r,
                                     t->limit, NULL);
    t->clean_ns = ps->now_ns;
    if (s == QOS_OK) {
        if (kind == 2 && t->joined)
            t->left_ns = max_of(1, ps->now_ns); /* 0: never */
        else if (t->joined)
            t->reservation = r;
        t->joined = !(kind == 2 && t->joined);
        /* Promise `fenced`: of two monitors one has the storage. */
        if (!owned && run.owner != id && !strayed(ps->now_ns))
            world_fail(run.w, "fenced", ps->now_ns,
                       "monitor %" PRIu32 " changes the terms of client %" PRIu32 ", and %" PRIu32 " has the storage",
                       id, t->id, run.owner);
    } else if (owned && run.owner == id && number == run.number && !strayed(ps->now_ns) && !run.lost && kind != 3 &&
               reserved_by_others(t) + t->reservation <= run.C && !world_choice(run.w, F_FREE)) {
        world_fail(run.w, "admission", ps->now_ns, "client %" PRIu32 ": terms that fit are refused: %s", t->id,
                   qos_strerror(s));
    }
    t->uncertain = false;
}

/* Promise `takeover`: while one of the monitors lives and is called, periods follow each other: the next one starts at
 * most T + lease_ns after the other died. */
static void judge_progress(uint32_t id)
{
    uint64_t i, kills = 0, lease = run.config.lease_ns ? run.config.lease_ns : 16 * run.check_ns, limit;
    for (i = 0; i < run.monitors; i++)
        kills += ps->process[i].kills + ps->process[i].pauses + ps->process[i].starts;
    kills += ps->stalled + ps->stepped + ps->switched + run.strayed;
    if (kills != run.kills) {
        run.kills = kills;
        run.disturbed_ns = ps->now_ns;
    }
    limit = max_of(run.begun_ns + run.T, run.disturbed_ns + (run.strays ? 4 * run.T : 0)) + run.T + lease +
            8 * run.check_ns;
    if (ps->now_ns > limit + run.T / 8)
        world_fail(run.w, "takeover", ps->now_ns,
                   "monitor %" PRIu32 " runs, and no period has begun for %.3f T, nothing happened for %.3f T", id,
                   (double)(ps->now_ns - run.begun_ns) / (double)run.T,
                   (double)(ps->now_ns - run.disturbed_ns) / (double)run.T);
}

static void monitor_body(struct world_processes *w, uint32_t id, enum world_start how)
{
    struct tokenpool_monitor *m = &monitor[id];
    struct tokenpool_monitor_state info;
    uint64_t expected = 0, shown, next;
    uint64_t others = 0, others_shown = 0; /* the end of its first call that did not notice another owner */
    (void)w;
    if (how != WORLD_START_FIRST || id > 0) {
        enum qos_status s;
        for (;;) {
            run.lost |= strayed(ps->now_ns);
            s = tokenpool_monitor_resume(m, memory[id], sizeof memory[id], storage, run.storage_bytes, &run.config);
            if (s == QOS_OK)
                break;
            if (!strayed(ps->now_ns))
                world_fail(run.w, "resume", ps->now_ns, "monitor %" PRIu32 ": %s", id, qos_strerror(s));
            world_process_sleep(ps, run.T / 8 + 1);
        }
    }
    for (;;) {
        bool owned = run.owner == id;
        uint64_t begin = ps->now_ns;
        if (begin > expected + run.check_ns)
            run.disturbed_ns = begin; /* it comes late */
        shown = world_process_clock(ps);
        if (world_choice(run.w, F_MONITOR_CLOCK) == 2 && world_rand(&run.rng) % 97 == 0)
            world_process_sleep(ps, world_between(&run.rng, 0, run.T / 50));
        tokenpool_monitor_run(m, shown);
        if (ps->now_ns > begin + run.check_ns)
            run.disturbed_ns = ps->now_ns;
        (void)tokenpool_monitor_info(m, &info);
        others = !info.active || owned || run.owner == id ? 0 : others ? others : ps->now_ns;
        others_shown = others == ps->now_ns ? shown : min_of(others_shown, shown);
        /* by its clock, too: one that steps back below 0 shows 0, stands still for longer, and no check is due */
        if (others && ps->now_ns > others + run.T / 4 + 2 * run.check_ns &&
            shown > others_shown + run.T / 4 + 2 * run.check_ns && !strayed(ps->now_ns))
            world_fail(run.w, "fenced", ps->now_ns,
                       "monitor %" PRIu32 " says that it is active, and %" PRIu32 " has it", id, run.owner);
        if (info.active && run.owner == id && info.bound) {
            epoch_of(info.epoch)->bound = max_of(epoch_of(info.epoch)->bound, info.bound);
            run.bound = max_of(run.bound, info.bound);
        }
        judge_progress(id);
        churn(id);
        shown = world_process_clock(ps);
        next = tokenpool_monitor_next_ns(m, shown);
        if (next == QOS_NEVER || next > shown + 2 * run.T + max_of(run.check_ns, run.config.lease_ns))
            world_fail(run.w, "monitor_waits", ps->now_ns, "monitor %" PRIu32 " is told to wait for %.3f T", id,
                       (double)(next - shown) / (double)run.T);
        expected =
            ps->now_ns + (next > shown ? next - shown : 0) + (uint64_t)world_value(run.w, F_LATE) * run.T / 10000;
        world_process_wait(ps, next);
    }
}

/* Stray stores into any word. */
static void vandal_body(struct world_processes *w, uint32_t id, enum world_start how)
{
    uint32_t k;
    (void)how;
    (void)w;
    (void)id;
    for (k = 0; k < (uint32_t)world_value(run.w, F_STRAYS); k++) {
        uint64_t *word;
        world_process_sleep(ps, world_between(&run.rng, 2 * run.T, 10 * run.T));
        if (run.quiet_ns)
            return;
        word = &storage[world_between(&run.rng, 0, run.storage_bytes / 8 - 1)];
        run.stray_ns = ps->now_ns;
        run.stray_number = run.number;
        run.strayed++;
        world_trace(ps->now_ns, 99, "stray", (uint64_t)(word - storage) * 8);
        *word = world_chance(&run.rng, 300)   ? world_rand(&run.rng)
                : world_chance(&run.rng, 500) ? *word ^ UINT64_C(1) << world_between(&run.rng, 0, 63)
                                              : 0;
        look(word);
        run.stray_ns = ps->now_ns;
    }
}

/* ---- a world ------------------------------------------------------------------------------------------------------------------ */

static void draw_config(void)
{
    struct world *w = run.w;
    struct tokenpool_config *c = &run.config;
    uint64_t parts = (uint64_t)world_value(w, F_CHECK);
    run.T = (uint64_t)world_value(w, F_PERIOD) * 1000;
    run.C = (uint64_t)world_value(w, F_CAPACITY);
    c->clients = run.slots ? run.slots : 1;
    c->capacity = run.C;
    c->period_ns = run.T;
    c->batch = (uint32_t)world_value(w, F_BATCH);
    run.batch = c->batch ? c->batch : (run.C + 7 * c->clients - 1) / (7 * c->clients);
    run.batch = run.batch < 1 ? 1 : run.batch;
    if (world_choice(w, F_GUARD) && !c->batch && run.batch > 1000)
        run.batch = 1000;
    c->check_ns = parts ? run.T / parts : 0;
    run.check_ns = c->check_ns ? c->check_ns : min_of(1000000, run.T / (world_choice(w, F_ORDERED) ? 128 : 8));
    run.overrun = world_choice(w, F_OVERRUN) == 0 ? 0 : world_choice(w, F_OVERRUN) == 1 ? run.C / 20 : run.C / 5;
    c->overrun = world_choice(w, F_OVERRUN) == 0   ? QOS_NOTHING
                 : world_choice(w, F_OVERRUN) == 1 ? 0
                                                   : (run.overrun ? run.overrun : 1);
    run.go_on = world_choice(w, F_GO_ON) != 0;
    c->flags = (world_choice(w, F_ORDERED) ? TOKENPOOL_ORDERED : 0) | (world_choice(w, F_GUARD) ? TOKENPOOL_GUARD : 0) |
               (world_choice(w, F_FREE) ? 0 : TOKENPOOL_FIXED) | (run.go_on ? TOKENPOOL_GO_ON : 0);
    c->silent_periods = world_choice(w, F_SILENT) == 0 ? 0 : world_choice(w, F_SILENT) == 1 ? QOS_UNLIMITED : 3;
    run.apart_ns = run.T - run.T / 4096;
}

static void draw_slots(void)
{
    struct world *w = run.w;
    uint32_t k, i, told = 0;
    run.slots = 0;
    for (k = 0; k < WORLD_COHORTS; k++) {
        uint32_t n = (uint32_t)world_value(w, world_of(k, F_NUMBER));
        double part = world_value(w, world_of(k, F_RESERVED)) / 1000;
        for (i = 0; i < n; i++) {
            struct slot *t = &slot[run.slots];
            uint64_t c = (uint64_t)world_value(w, F_CAPACITY), T = (uint64_t)world_value(w, F_PERIOD) * 1000,
                     calls = (uint64_t)world_value(w, world_of(k, F_CALLS));
            memset(t, 0, sizeof *t);
            t->id = run.slots++;
            t->cohort = k;
            t->engine = UINT32_MAX;
            t->wants = (enum wants)world_choice(w, world_of(k, F_WANTS));
            t->remote = world_choice(w, world_of(k, F_TRANSPORT)) > 0;
            t->reservation = (uint64_t)((double)c * part / n);
            t->limit = (uint64_t)((double)t->reservation * world_value(w, world_of(k, F_LIMIT)) / 1000);
            t->size = (uint64_t)world_value(w, world_of(k, F_SIZE));
            t->size = t->size > c / 4 ? c / 4 : t->size;
            if (t->limit && t->size > t->limit)
                t->size = t->limit;
            t->size = t->size ? t->size : 1;
            if (calls == 0 && told++ >= 3)
                calls = 64;
            t->gap_ns = calls ? T / calls - (calls == 4 || calls == 3 ? T / 64 : 0) : 0;
            if (world_choice(w, world_of(k, F_IO)) && t->reservation)
                t->io_ns = (uint64_t)((double)(T * t->size) /
                                      ((world_choice(w, world_of(k, F_IO)) == 1 ? 4 : 1.05) * (double)t->reservation));
            if (t->io_ns > T / 16)
                t->io_ns = T / 16;
            t->per_ns = t->wants == HALF   ? 0.5 * (double)t->reservation / (double)T
                        : t->wants == MOST ? 0.9 * (double)t->reservation / (double)T
                                           : 0;
        }
    }
}

/* Nothing happens, some always want more, and all are called often: what is left over is judged. */
static void draw_plain(struct world *w, struct world_rng *r)
{
    static const uint8_t fields[] = {F_GUARD, F_FREE, F_MONITOR_RUNS, F_STRAYS, F_PUT_BACK};
    static const uint8_t cohort[] = {F_LOST, F_RUNS, F_PAUSE, F_TWIN, F_FORCE, F_CHURN, F_LIES, F_QUEUED, F_SIZE};
    uint32_t k, i;
    for (i = 0; i < sizeof fields; i++)
        w->choice[fields[i]] = 0;
    if (world_chance(r, 700))
        w->choice[F_BATCH] = world_chance(r, 500) ? 0 : 3;
    for (k = 0; k < WORLD_COHORTS; k++) {
        for (i = 0; i < sizeof cohort; i++)
            w->choice[world_of(k, cohort[i])] = 0;
        w->choice[world_of(k, F_NUMBER)] = (uint8_t)world_between(r, k < 2, 2);
        w->choice[world_of(k, F_CALLS)] = 1;
        w->choice[world_of(k, F_TRANSPORT)] = world_chance(r, 200);
        w->choice[world_of(k, F_LIMIT)] = k ? w->choice[world_of(k, F_LIMIT)] : 0;
        w->choice[world_of(k, F_WANTS)] = (uint8_t)(k == 0                 ? ALL
                                                    : world_chance(r, 500) ? IDLE
                                                    : world_chance(r, 300) ? ALL
                                                                           : world_between(r, HALF, TAIL));
    }
}

/* The same with any sizes, estimate, guard and order, clocks and twins, until the quiet end. */
static void draw_often(struct world *w, struct world_rng *r)
{
    static const uint8_t fields[] = {F_LATE, F_MONITOR_CLOCK, F_MONITOR_RUNS, F_STRAYS, F_PUT_BACK};
    static const uint8_t cohort[] = {F_LOST, F_RUNS, F_PAUSE, F_CHURN, F_LIES};
    uint32_t k, i;
    for (i = 0; i < sizeof fields; i++)
        w->choice[fields[i]] = 0;
    for (k = 0; k < WORLD_COHORTS; k++) {
        for (i = 0; i < sizeof cohort; i++)
            w->choice[world_of(k, cohort[i])] = 0;
        w->choice[world_of(k, F_NUMBER)] = (uint8_t)world_between(r, k < 2, 2);
        w->choice[world_of(k, F_CALLS)] = (uint8_t)world_between(r, 1, 2);
        w->choice[world_of(k, F_TRANSPORT)] = world_chance(r, 200);
    }
    w->choice[world_of(0, F_WANTS)] = ALL;
    w->choice[world_of(0, F_LIMIT)] = w->choice[world_of(0, F_IO)] = 0;
}

/* Most worlds are small: they take a twentieth of the others' time. Of 32 one is of any size, two are three monitors
 * and few clients, where nearly each has something that happens to the monitors. */
static void draw_mode(struct world *w)
{
    static const uint8_t checks[] = {1, 1, 1, 1, 0, 3}, calls[] = {3, 3, 4, 4, 2, 5};
    struct world_rng r;
    uint32_t k;
    w->choice[F_MODE] = w->seed % 32 == 0 ? 0 : w->seed % 16 == 5 ? 2 : w->seed % 16 == 7 ? 3 : 1;
#ifdef WORLD_V02 /* other words: the plain accounts are not of it */
    w->choice[F_MODE] = 0;
#endif
    world_rng_init(&r, w->seed, 0x3333);
    if (w->choice[F_MODE] == 1 && world_chance(&r, 120))
        draw_plain(w, &r);
    if (w->choice[F_MODE] == 0 && world_chance(&r, 250))
        draw_often(w, &r);
    if (w->choice[F_MODE] != 2 || world_chance(&r, 50)) /* each pair of values is met */
        return;
    w->choice[F_MONITORS] = 2;
    w->choice[F_CHECK] = checks[world_rand(&r) % 6];
    if (w->choice[F_CHECK] == 0 && w->choice[F_PERIOD] != 2)
        w->choice[F_PERIOD] = 1;                   /* a check is T / 8 */
    w->choice[F_CAPACITY] = world_chance(&r, 700); /* 100 */
    if (world_chance(&r, 600))
        w->choice[F_MONITOR_RUNS] = (uint8_t)world_between(&r, 0, 3);
    if (world_chance(&r, 500))
        w->choice[F_MONITOR_DOWN] = (uint8_t)world_between(&r, 0, 2);
    if (world_chance(&r, 500))
        w->choice[F_MONITOR_PAUSE] = (uint8_t)world_between(&r, 0, 3);
    if (world_chance(&r, 800)) {
        w->choice[F_RARITY] = (uint8_t)world_between(&r, 2, 4);
        w->choice[F_MOST] = (uint8_t)world_between(&r, 0, 3);
        w->choice[F_ACTS] = (uint8_t)world_between(&r, 0, 4);
        w->choice[F_STALL] = (uint8_t)world_between(&r, 0, 2);
        w->choice[F_STEP] = (uint8_t)world_between(&r, 0, 2);
    }
    if (world_chance(&r, 300))
        w->choice[F_STRAYS] = (uint8_t)world_between(&r, 1, 2);
    for (k = 0; k < WORLD_COHORTS; k++) {
        w->choice[world_of(k, F_NUMBER)] = (uint8_t)world_between(&r, k == 0, k == 0 ? 3 : 1);
        w->choice[world_of(k, F_CALLS)] = calls[world_rand(&r) % 6];
        if (world_chance(&r, 300))
            w->choice[world_of(k, F_CHURN)] = (uint8_t)world_between(&r, 0, 2);
    }
}

static uint64_t of_T(double permille)
{
    return (uint64_t)((double)run.T * permille / 1000);
}

static void add_processes(void)
{
    struct world *w = run.w;
    struct world_clock_config clock;
    struct world_life life;
    uint32_t i, twins, id;
    uint64_t base = start_ns(w);
    for (i = 0; i < run.monitors; i++) {
        memset(&life, 0, sizeof life);
        memset(&clock, 0, sizeof clock);
        life.added_ns = i * (run.T / 3);
        life.runs_ns = of_T(world_value(w, F_MONITOR_RUNS));
        life.down_ns = of_T(world_value(w, F_MONITOR_DOWN));
        life.vary = 500;
        life.pause_ns = of_T(world_value(w, F_MONITOR_PAUSE));
        life.pause_every_ns = life.pause_ns ? 3 * run.T + run.T / 7 * (i + 1) : 0;
        life.late_ns = (uint64_t)world_value(w, F_LATE) * run.T / 10000;
        clock.fault = world_choice(w, F_MONITOR_CLOCK) == 1 ? WORLD_CLOCK_BACK : WORLD_CLOCK_TRUE;
        clock.drift_ppm = (int32_t)world_value(w, F_MONITOR_DRIFT);
        (void)world_process_add(ps, monitor_body, &life, &clock, base, w->seed);
    }
    for (twins = 0; twins < 2; twins++)
        for (i = 0; i < run.slots; i++) {
            struct slot *t = &slot[i];
            uint32_t k = t->cohort, by = world_choice(w, world_of(k, F_CLOCK_BY));
            if (twins && !(world_choice(w, world_of(k, F_TWIN)) && i % 4 == 0))
                continue;
            memset(&life, 0, sizeof life);
            memset(&clock, 0, sizeof clock);
            life.added_ns = (twins ? 3 * run.T : 0) + world_between(&run.rng, 0, run.T);
            life.runs_ns = twins ? 0 : of_T(world_value(w, world_of(k, F_RUNS)));
            life.down_ns = of_T(world_value(w, world_of(k, F_DOWN))) + 1;
            life.vary = 500;
            life.pause_ns = of_T(world_value(w, world_of(k, F_PAUSE)));
            life.pause_every_ns = life.pause_ns ? 4 * run.T + run.T / 9 * (i % 8 + 1) : 0;
            life.late_ns = (uint64_t)world_value(w, F_LATE) * run.T / 10000;
            clock.fault = (enum world_clock_fault)world_choice(w, world_of(k, F_CLOCK));
            clock.by_ns = by == 0 ? 1 : by == 1 ? run.T / 1000 : run.T;
            clock.at_ns = 5 * run.T;
            clock.drift_ppm = (int32_t)world_value(w, world_of(k, F_DRIFT));
            id = world_process_add(ps, client_body, &life, &clock, base, w->seed);
            memset(&engine[id], 0, sizeof engine[id]);
            engine[id].slot = i;
            run.twins += 2 * twins;
            engine[id].twin = twins || world_choice(w, world_of(k, F_TWIN));
        }
    memset(&life, 0, sizeof life);
    memset(&clock, 0, sizeof clock);
    if (use_reference)
        (void)world_process_add(ps, central_body, &life, &clock, base, w->seed);
    if (run.strays)
        (void)world_process_add(ps, vandal_body, &life, &clock, base, w->seed);
}

/* From here on nothing happens any more: nobody is killed, paused or late, no clock steps. */
static void be_quiet(void)
{
    uint32_t i;
    run.quiet_ns = ps->now_ns;
    ps->points.rarity = 0;
    for (i = 0; i < ps->count; i++) {
        struct world_process *p = &ps->process[i];
        p->life.runs_ns = p->life.pause_ns = 0;
        p->kill_event = WORLD_NEVER;
    }
}

static void begin(void)
{
    struct world *w = run.w;
    struct world_points points;
    uint32_t act = world_choice(w, F_ACTS), i;
    memset(&points, 0, sizeof points);
    points.rarity = (uint32_t)world_value(w, F_RARITY);
    points.most = (uint32_t)world_value(w, F_MOST);
    points.switches = act == 0 || act == 4;
    points.stalls = act == 1 || act == 4;
    points.steps = act == 2 || act == 4;
    points.kills = act == 3 || act == 4;
    points.stall_ns = of_T(world_value(w, F_STALL));
    points.back_ns = world_choice(w, F_STEP) == 0 ? 1 : of_T(world_value(w, F_STEP));
    world_processes_init(ps, &points, w->seed);
    memset(storage, 0, sizeof storage);
    run.storage_bytes = tokenpool_storage_memsize(&run.config);
    for (i = 0; use_reference && i < run.slots; i++)
        slot[i].joined = true;
    if (use_reference) {
        add_processes();
        return;
    }
    if (run.storage_bytes == 0 || run.storage_bytes > sizeof storage ||
        tokenpool_monitor_memsize(&run.config) > sizeof memory[0] ||
        tokenpool_monitor_init(&monitor[0], memory[0], sizeof memory[0], storage, run.storage_bytes, &run.config) !=
            QOS_OK) {
        world_fail(w, "init", 0, "a configuration within the ranges is refused: %s",
                   tokenpool_config_error(&run.config) ? tokenpool_config_error(&run.config) : "memory");
        return;
    }
    for (i = 0; i < run.slots; i++) {
        enum qos_status s = tokenpool_monitor_join(&monitor[0], i, slot[i].reservation, slot[i].limit, NULL);
        if (s != QOS_OK)
            world_fail(w, "admission", 0, "client %" PRIu32 ": a reservation that fits is refused: %s", i,
                       qos_strerror(s));
        slot[i].joined = true;
        world_trace_promise(i, (double)slot[i].reservation / (double)run.T);
    }
    add_processes();
}

/* Every client is called often enough, one of them always wants more, and nothing but time limits it. */
static void judge_quiet(void)
{
    uint64_t i, often = UINT64_MAX, rest = 0, lost, allowed;
    bool greedy = false, plain = true;
    for (i = 0; i < run.slots; i++) {
        const struct slot *t = &slot[i];
        uint64_t calls = t->gap_ns ? run.T / t->gap_ns : 512;
        often = min_of(often, calls);
        /* what is left is less than a request, or a ticket that is not served at the end */
        rest += t->size + (world_choice(run.w, F_ORDERED) ? run.batch / 4 : 0);
        /* behind a slow transport a claim takes T / 4096, seed 834684 */
        greedy |= t->wants == ALL && t->limit == 0 && t->size <= min_of(run.batch, 1000) && t->io_ns == 0 &&
                  (world_choice(run.w, world_of(t->cohort, F_TRANSPORT)) != 2 || run.batch * 2048 >= run.C);
        plain &= t->joined && !t->uncertain && world_choice(run.w, world_of(t->cohort, F_LOST)) == 0;
    }
    if (!plain || !greedy || often < 512 || run.quiet_epochs < 5 || world_choice(run.w, F_LATE) ||
        world_choice(run.w, F_MONITOR_CLOCK) == 2)
        return;
    /* All of C is used but 1 or 2 % of what idle clients leave; a trial may keep one period's part of each. */
    lost = run.quiet_epochs * run.C > run.quiet_spent ? run.quiet_epochs * run.C - run.quiet_spent : 0;
    allowed =
        run.quiet_idle * (often >= 2048 ? 10 : 20) / 1000 + run.quiet_epochs * rest + run.C * run.quiet_epochs / 1000;
    allowed += run.quiet_idle / run.quiet_epochs * 3;
    if (lost > allowed)
        world_fail(run.w, "surplus", ps->now_ns,
                   "%" PRIu64 " tokens of %" PRIu64 " epochs are not used, %" PRIu64 " left by idle ones, %" PRIu64
                   " allowed",
                   lost, run.quiet_epochs, run.quiet_idle, allowed);
}

/* Promise `lost`: after all that happened the monitor that has the storage knows each client as it was told. */
static void judge_lost(void)
{
    uint32_t i;
    if (run.lost || run.owner >= run.monitors || strayed(run.begun_ns))
        return;
    for (i = 0; i < run.slots; i++) {
        const struct slot *t = &slot[i];
        struct tokenpool_slot_state state;
        if (t->uncertain || tokenpool_monitor_slot_info(&monitor[run.owner], t->id, &state) != QOS_OK)
            continue;
        if (state.joined != t->joined || (t->joined && state.reservation != t->reservation))
            world_fail(run.w, "lost", ps->now_ns,
                       "client %" PRIu32 ", reservation %" PRIu64 ", %s: the monitor knows %" PRIu64 ", %s", t->id,
                       t->reservation, t->joined ? "joined" : "gone", state.reservation,
                       state.joined ? "joined" : "gone");
    }
}

static void world_run(struct world *w)
{
    uint64_t until, k;
    quiet = world_choice(w, F_MODE) == 3;
    if (world_choice(w, F_MODE) == 1 && !use_reference) {
        x_run(w);
        return;
    }
    x.on = false; /* the last one may have hung */
    memset(&run, 0, sizeof run);
    run.w = w;
    runs++;
    world_rng_init(&run.rng, w->seed, 0x7001);
    if (quiet) {
        n_run(w);
        return;
    }
    run.monitors = (uint32_t)world_value(w, F_MONITORS);
    run.strays = world_choice(w, F_STRAYS) > 0;
    draw_slots();
    draw_config();
    if (use_reference) {
        run.monitors = 0;
        run.strays = run.go_on = false;
    }
    begin();
    until = (uint64_t)world_value(w, F_LENGTH) * run.T;
    for (k = 1; !w->broken && k * run.T <= until && ps->turns < TURNS; k++)
        world_processes_run(ps, k * run.T);
    be_quiet();
    until = ps->now_ns + (uint64_t)world_value(w, F_QUIET) * run.T;
    while (!w->broken && ps->now_ns < until && ps->turns < 4 * TURNS)
        world_processes_run(ps, ps->now_ns + run.T);
    if (!w->broken)
        judge_window();
    if (!w->broken)
        judge_quiet();
    if (!w->broken)
        judge_lost();
    w->events = ps->met + ps->turns;
    world_processes_free(ps);
}

/* `shifted`: no time is special. `permuted`, in worlds without races: where a client's report lies does not matter, but to a
 * monitor behind a transport, which reads them one after the other, and to a stray store. */
static double world_again_slack(const struct world *w, uint32_t client, double got)
{
    (void)client;
    (void)got;
    return world_again == WORLD_PERMUTED && (world_choice(w, F_MODE) != 1 || x.far || world_choice(w, F_STRAYS)) ? -1
                                                                                                                 : 0;
}

int main(int argc, char **argv)
{
    int rc = world_main(argc, argv, "tests/world/tokenpool.worlds", 3000, NULL);
    printf("digest %016" PRIx64 "\n", digest);
    return rc;
}
