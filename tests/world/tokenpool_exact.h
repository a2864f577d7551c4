/* tokenpool_exact.h - small worlds without races: one storage, one monitor at a time, 1 to 4 clients, steady clocks
 *
 * Nobody is stopped inside a call, so each answer has one right value, or a narrow range, and plain accounts, kept from the
 * contract's sentences, know it: what was issued, claimed, spent, put back, forced and reported in each epoch, what each
 * monitor was told, what was refused. Included by tokenpool.c; X_ and x_ are of these worlds. */
#ifndef QOS_TESTS_WORLD_TOKENPOOL_EXACT_H
#define QOS_TESTS_WORLD_TOKENPOOL_EXACT_H

#ifdef WORLD_V02 /* had no weights */
#define TOKENPOOL_WEIGHT_MAX 1024u
#define tokenpool_monitor_set_weight(m, id, w) ((void)(m), (void)(id), (void)(w), QOS_OK)
#endif
#define X_SLOTS 4u
#define X_CLIENTS 70u /* of a storage: more than a block of reports */
#define X_MONITOR 100u
#define X_NOBODY UINT32_MAX
#define X_MASK TOKENPOOL_TOKENS_MAX
#define X_FULL (1u << 26) /* the level that leaves all */

/* A client as the monitor was told, and what it was issued. */
struct x_slot {
    uint32_t id, engine, holder; /* engine: the one that attached last; X_NOBODY; holder: that began an epoch last */
    bool again;                  /* joined in this epoch: what was issued to who left is void */
    bool joined, fresh, silent;  /* fresh: not given terms yet; silent: nothing was heard of it for too long */
    bool changed, weighed;       /* its terms, its weight changed in this epoch */
    uint32_t joins;              /* in this epoch */
    uint64_t reservation, limit, weight, generation;
    uint64_t silences, under, used, done, beyond, demand;
    uint64_t wrote;  /* number of the epoch in which its report was written last; 0: never */
    uint64_t report; /* as the monitor read it last */
    uint64_t failed; /* claims from an empty pool since the last fill */
    uint64_t before; /* spent when a stray store came */
    uint64_t size, gap_ns;
    double per_ns;
    enum wants wants;
    bool remote, slow, lies, many, lied, delays, turns,
        backs; /* delays: each operation; turns: some, to the next epoch */
    uint32_t lost, forced, runs, cohort;
};

/* What the slots got in an epoch. */
struct x_epoch {
    uint64_t epoch, bound, capacity, reserved, forced, far, spent, claimed; /* far: forced behind a transport */
    struct {
        uint64_t issued, limit, spent, peak, forced, claimed,
            starts;   /* peak: the most that was spent, before some came back */
        bool changed; /* its terms, as far as the next epoch is here */
    } of[X_SLOTS];
};

struct x_engine {
    struct tokenpool_client client;
    struct tokenpool_client_state info; /* after its last call */
    uint32_t slot;
    bool used, out, has, first, pending, performed, lost;
    bool vague; /* it began with what a lie said: its debt is not known */
    uint64_t epoch, spent, took, open, carried,
        before; /* of its epoch; open: I/Os under way; debt; forced without one */
    uint64_t claims, kept;
    uint64_t offset_ns, next_ns, perform_ns, answer_ns, answer;
    uint64_t found; /* its slot's report, as another left it */
    uint64_t attached_ns, called_ns, called_before_ns, rare_ns, unsteady_ns, debt_ns;
    uint64_t had_ns;              /* since when it has the slot */
    uint64_t rich_ns, rich_epoch; /* since when the pool holds what it was refused; of which epoch */
    uint64_t took_ns, odd, missed,
        lent;           /* epoch in which it wanted otherwise than before; in which it then missed tokens,
                                            beside those that the pool gave it */
    uint64_t seldom_ns; /* when it was last called more than T / 512 after the call before */
    uint64_t asks, got, got_epoch, now_got,
        base; /* what the take under way wants; claimed in its epoch; gained when it began, less that */
    struct {
        int64_t over, low, high; /* in epochs that are over; since this one began, least and most */
    } granted, borrowed;
    int64_t opened;                 /* spent when this one began */
    uint64_t voided, debt, owed_ns; /* tokens that ended unspent, as it told; its debt, and since when */
    bool waits, unsure;             /* its last take was refused; its counters are not known */
    uint64_t shown_ns;              /* by its clock, the last call */
    bool hinted, looked, older;     /* told of a period; read the period word since; of an older storage */
    uint64_t back_ns, touched;      /* when its clock went back; words that it read or wrote */
    double due;
    struct tokenpool_op op;
};

struct x_monitor {
    struct tokenpool_monitor m;
    bool lives, started, ended, adopts, scanned, begun; /* ended: it began the period that ended last, too */
    bool pending, performed, lost, unsure;              /* behind a transport; unsure: an answer was lost */
    uint64_t offset_ns, next_ns, perform_ns, answer_ns, answer, back_ns;
    uint64_t right_ns, latest_ns; /* by its clock: the last right reading; the latest one since the clock was set */
    struct tokenpool_op op;
    uint64_t claimed, refused, granted, borrowed;
    struct tokenpool_monitor_state info;
};

static struct {
    bool on;
    struct world *w;
    struct world_rng rng;
    struct tokenpool_config config;
    uint64_t T, C, batch, least, check_ns, lease_ns, client_capacity, debt_max, overrun, silent_periods, alert_periods;
    uint32_t slots, clients, actor, engines, owner;
    bool ordered, guard, fixed, twins, lies, lied, churns, two, weighs; /* two: monitors; weighs: weights change */
    struct x_slot slot[X_SLOTS];
    struct x_engine engine[2 * X_SLOTS];
    struct x_monitor monitor[2];
    struct x_epoch epoch[4];
    uint64_t now, number, began, begun_ns, before_ns, shown, shown_ns, put, claimed, served, dead_ns, allowed_ns, calls;
    uint64_t lied_number;
    struct world_rng more, odd, last, clocks, old; /* of stray stores; of what came later; of what came last */
    bool far, fails;                               /* the monitor is behind a transport, which fails */
    uint64_t failed_number;
    uint64_t quiet_epochs, quiet_lost,
        quiet_most; /* epochs whose surplus is judged; lost in all; the most that others left */
    uint64_t last_put, last_claimed, last_used; /* of the period that ended */
    uint8_t slot_of[X_CLIENTS + 8];             /* by id; 0: none, else its slot + 1 */
    uint32_t hits;                              /* still to come */
    bool hit;
    uint64_t hit_number, hit_bound, hit_ns, hit_at; /* hit_at: number of the epoch of the next one */
    uint64_t over, lost;                            /* what the last one cost */
    bool hit_early, taken;                          /* taken: a takeover in this epoch */
    /* since tokens that are not served, reservations that are all of C, numbers near their end, values at their ends,
     * another storage in the same memory */
    bool turns, full, wraps, extreme, renews, renewing, backs, heavy; /* heavy: large weights */
    bool set_back, olds; /* the monitors' clocks go back; some of their readings are old ones */
    uint64_t busy, busy_left, largest, of_pool, returning; /* of the reports at the last check */
    uint64_t capacity, capacity_before, capacity_former, grown, least_used, most_used,
        most_before; /* the estimate; growths in a row; of this monitor */
    size_t bytes;
} x;

static struct x_epoch *x_of(uint64_t e)
{
    return &x.epoch[e % 4];
}
static struct x_epoch *x_current(void)
{
    return x_of(tokenpool_word_epoch(storage[0]));
}
static uint64_t x_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
static uint64_t x_apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}
static bool x_chance(uint32_t permille)
{
    return permille && world_chance(&x.rng, permille);
}
static qos_word_t *x_report(const struct x_slot *s)
{
    return &storage[tokenpool_storage_report(x.clients, s->id) / 8];
}
/* Fields of a report, as the chapter on words has them. */
static uint64_t x_tag(uint64_t epoch)
{
    return epoch % 31 + 1;
}
static uint64_t x_phase(uint64_t report)
{
    uint64_t how = report >> 52 & 15;
    return how == 3 || how >= 14 ? 2 : how >> 2; /* 3, 14, 15: a last one */
}
static uint64_t x_demand(uint64_t report)
{
    return (report >> 52 & 15) == 15 ? 1 : report >> 52 & 3;
}
static bool x_rests(uint64_t report)
{
    return (report >> 52 & 3) == 0 && x_phase(report) != 3;
}
/* A lie may cost what the contract says: its epoch and the two after it are not judged by sums. */
static bool x_lied(void)
{
    return x.lied && x.number < x.lied_number + 3;
}
/* So may a stray store, and after three periods all is as it was. */
static bool x_strayed(void)
{
    return x.hit && x.number < x.hit_number + 4;
}

/* An epoch may be longer than T by that. */
static uint64_t x_slack_ns(void)
{
    return x.allowed_ns + (x.far || x.olds ? x.T / 256 : 0) + (x_strayed() ? 3 * x.T : 0);
}
/* An operation of the monitor failed in this epoch, or in the one before. */
static bool x_failed(void)
{
    return x.fails && x.number < x.failed_number + 2;
}

/* ---- what happens to the words ------------------------------------------------------------------------------------------ */

/* K of a report for who was issued so much, at most; *left: of it unspent. rises: who begins to take again will find what
 * the level leaves. */
static uint64_t x_kept(uint64_t report, uint64_t issued, uint64_t epoch, bool rises, uint64_t *left)
{
    uint64_t level = storage[TOKENPOOL_OFFSET_PERIOD / 8 + 4], spent = report & X_MASK, kept;
    *left = issued;
    if (report >> 59 != x_tag(epoch))
        return issued;
    kept = min_of(report >> 26 & X_MASK, issued);
    level = tokenpool_word_epoch(level) == epoch ? level >> 32 : X_FULL;
    if ((x_rests(report) || (rises && (report >> 52 & 15) == 12)) && level < X_FULL)
        kept = min_of(kept, spent + (issued * level + X_FULL - 1) / X_FULL);
    *left = x_sub(kept, spent);
    return kept;
}

/* The period that ends, for a monitor that began it: who was heard, and of whom the next period withholds R. */
static void x_finish(const struct x_monitor *m)
{
    const struct x_epoch *e = x_of(m->info.epoch);
    uint32_t i;
    x.last_used = 0;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        uint64_t kept = (x_rests(s->report) ? s->report : s->report >> 26) & X_MASK, issued = e->of[i].issued;
        uint64_t said = s->report & X_MASK;
        bool heard = s->wrote == x.number && s->report >> 59 == x_tag(e->epoch);
        bool rises = heard && (s->report >> 52 & 15) == 12; /* does not say when: it excuses one silence */
        bool last = heard && x_phase(s->report) > 0 && !rises;
        struct tokenpool_slot_state state = {0};
        (void)tokenpool_monitor_slot_info(&m->m, s->id, &state);
        if (s->lied)
            s->used = state.used; /* even of a slot that was not its own yet */
        if (!s->joined || s->fresh)
            continue;
        x.last_used += state.used;
        /* Promise `report`: reports are clamped to what their client was given. */
        if (!heard ? state.used != 0 : said <= issued ? state.used != said : state.used > issued + e->claimed)
            world_fail(x.w, "report", x.now,
                       "client %" PRIu32 ": %" PRIu64 " used, it said %" PRIu64 ", %" PRIu64 " issued", s->id,
                       state.used, said, issued);
        s->used = state.used;
        s->done += state.used;
        s->beyond += x_sub(state.used, issued);
        s->demand = heard ? x_demand(s->report) : 0;
        if (heard && kept >= issued)
            s->under = 0;
        else if (!heard || kept + issued / 8 < issued || state.under_used)
            s->under++;
        else
            s->under = 0;
        if (last || (heard && s->silent)) {
            s->silences = 0;
            s->silent = false;
        } else if (x.silent_periods != QOS_UNLIMITED) {
            s->silences++;
            s->silent |= s->silences > x.silent_periods || (s->silences == x.silent_periods && !rises);
        }
    }
}

/* A client that always wants more, and came each T / 512 since the epoch before. */
static bool x_backlogged(const struct x_slot *s)
{
    const struct x_engine *g = s->engine == X_NOBODY ? NULL : &x.engine[s->engine];
    return g && g->has && g->epoch == x.shown && s->wants == ALL && !s->remote && s->joined && !s->changed &&
           !s->weighed && s->limit == TOKENPOOL_TOKENS_MAX && s->gap_ns <= x.T / 512 && !s->forced && !s->runs &&
           !s->lies && g->attached_ns < x.before_ns && g->rare_ns < x.before_ns && s->size <= x.least &&
           g->called_ns + x.T / 256 > x.now && (!g->back_ns || g->back_ns + 2 * x.T < x.now) &&
           !world_choice(x.w, world_of(s->cohort, F_PAUSE));
}

/* Promise `surplus`: of what idle clients leave, up to 0.9 C, backlogged ones get 99 % if all are called each T / 512; of
 * what others leave, up to 0.6 C, but for what a trial keeps: a trial comes once in two periods at most. */
static void x_judge_surplus(const struct x_monitor *m)
{
    const struct x_epoch *e = x_of(x.began);
    uint64_t idle = 0, others = 0, size = 0, all, lost;
    bool greedy = false, quiet;
    uint32_t i;
    for (i = 0; i < x.slots; i++) {
        const struct x_slot *s = &x.slot[i];
        const struct x_engine *g = s->engine == X_NOBODY ? NULL : &x.engine[s->engine];
        uint64_t issued = e->of[i].issued, spent = e->of[i].spent;
        if (s->changed || s->weighed || (s->joined && issued != s->reservation))
            return;
        if (!s->joined)
            continue;
        if (!g || !g->has || g->epoch != x.began || g->seldom_ns >= x.before_ns || g->called_ns + x.T / 512 < x.now ||
            g->attached_ns + x.T / 8 >= x.before_ns || s->slow || s->lost || s->lies || s->many || g->vague ||
            g->debt_ns + 3 * x.T > x.now || (g->back_ns && g->back_ns + 2 * x.T > x.now) || e->of[i].forced ||
            s->size > x.least || world_choice(x.w, world_of(s->cohort, F_PAUSE)))
            return;
        greedy |= s->wants == ALL && s->limit == TOKENPOOL_TOKENS_MAX;
        size += s->size + 1 + (x.ordered ? s->weight * x.batch / 4 : 0); /* tickets that are not served at the end */
        if (s->wants == ALL && s->limit == TOKENPOOL_TOKENS_MAX)
            continue;
        *(spent ? &others : &idle) += x_sub(issued, spent);
        size += e->of[i].claimed; /* it may have needed one token more, and claimed a batch, seeds 15489 and 9049 */
    }
    quiet = m->started && !x.far && !x.guard && !x.twins && !x.taken && !x.lied && !x.hit && x.number >= 4 &&
            x.begun_ns - x.before_ns <= x.T + x.T / 512 && x.now - x.begun_ns <= x.T + x.T / 512 &&
            !world_choice(x.w, F_PUT_BACK);
    if (others && e->reserved * 20 > 19 * x.C)
        return; /* open: if all is reserved, what others leave is not lent, seed 7639 */
    if (!greedy || !quiet || !x.fixed || e->reserved > x.C || idle * 10 > 9 * x.C || others * 10 > 6 * x.C)
        return;
    if (x.ordered && x.heavy)
        return;
    all = x.C;
    lost = x_sub(all, e->spent);
    x.quiet_epochs++;
    x.quiet_lost += x_sub(lost, idle / 100 + size + x.C / 1000 + others / 100);
    x.quiet_most = max_of(x.quiet_most, others);
    if ((double)x_sub(lost, others) > (double)(idle + others) / 100 + (double)size + (double)x.C / 1000)
        world_fail(x.w, "surplus", x.now,
                   "%" PRIu64 " of %" PRIu64 " tokens of epoch %" PRIu64 " are used; idle clients leave %" PRIu64
                   ", others %" PRIu64,
                   e->spent, all, e->epoch, idle, others);
}

/* Tokens for T / 64, or for two checks. */
static uint64_t x_paced(uint64_t capacity)
{
    return (uint64_t)((__uint128_t)capacity * max_of(2 * x.check_ns, x.T / 64) / x.T);
}

/* Promise `weights`: ordered, what backlogged clients got of the pool, by weight, differs by two claims and a token
 * at most: of two that are served at once the second may look first, and so claim first. */
static void x_judge_weights(void)
{
    double late = (double)x.C / 256 < 1 ? 1 : (double)x.C / 256; /* since the last calls */
    uint64_t weights = 0, claim;
    uint32_t i, j;
    for (i = 0; i < x.slots; i++)
        weights += x_backlogged(&x.slot[i]) ? x.slot[i].weight : 0;
    if (!x.ordered || !weights || x.heavy) /* heavy: more weights than the pool has tokens */
        return;
    claim = max_of(x.batch, x_paced(x_of(x.shown)->capacity) / weights);
    for (i = 0; x.ordered && !x.twins && !x.taken && !x_strayed() && x.number > 2 && i < x.slots; i++)
        for (j = 0; j < x.slots; j++) {
            const struct x_slot *s = &x.slot[i], *t = &x.slot[j];
            double a, b;
            if (i == j || !x_backlogged(s) || !x_backlogged(t))
                continue;
            a = (double)x.engine[s->engine].info.gained / (double)s->weight;
            b = (double)x.engine[t->engine].info.gained / (double)t->weight;
            if (a > b + 2 * (double)claim + late)
                world_fail(x.w, "weights", x.now,
                           "client %" PRIu32 ", weight %" PRIu64 ", got %.0f batches by weight, client %" PRIu32
                           ", weight %" PRIu64 ", %.2f",
                           s->id, s->weight, a / (double)x.batch, t->id, t->weight, b / (double)x.batch);
        }
}

/* Promise `stray`: one costs at most the tokens of one period, those that are spent beyond the bounds of the epochs, and
 * those that backlogged clients miss of their reservations. */
static void x_judge_cost(const struct x_epoch *e)
{
    uint64_t over = x.over + x_sub(e->spent, e->bound + e->forced);
    if (x_strayed() && e->epoch == x.began && e->bound && (over > x.hit_bound || x.lost > x.hit_bound))
        world_fail(x.w, "stray", x.now,
                   "a stray store in epoch %" PRIu64 " costs %" PRIu64 " tokens above the bound, %" PRIu64
                   " of reservations, %" PRIu64 " allowed",
                   x.hit_number, over, x.lost, x.hit_bound);
}

/* An epoch after a stray store ends: what the monitor makes of it may be anything. */
static void x_heals(struct x_monitor *m)
{
    const struct x_epoch *e = x_of(x.began);
    struct tokenpool_slot_state state = {0};
    uint32_t i;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        if (s->wants == ALL && s->joined && !s->remote && s->gap_ns <= x.T / 64 && !s->forced && !s->runs && !s->lies &&
            !world_choice(x.w, world_of(s->cohort, F_PAUSE)) && !x.twins && !s->changed && x.began)
            x.lost += x_sub(min_of(e->of[i].issued, e->of[i].limit), e->of[i].spent + 2 * s->size); /* as x_can */
        (void)tokenpool_monitor_slot_info(&m->m, s->id, &state);
        s->silent = state.silent;
        s->demand = s->report >> 59 == x_tag(x.began) && s->wrote == x.number ? x_demand(s->report) : 0;
    }
    x_judge_cost(e);
    x.over += e->bound ? x_sub(e->spent, e->bound + e->forced) : 0;
    m->adopts = true;
}

/* The pool word shows another epoch: monitor `m` swapped it in. */
static void x_epoch_begins(struct x_monitor *m, uint64_t pool, uint64_t old)
{
    uint64_t e = tokenpool_word_epoch(pool), apart = x.now - x.begun_ns;
    struct x_epoch *n = x_of(e);
    int64_t count = tokenpool_word_count(old);
    uint64_t claimed = x.ordered ? min_of(count > 0 ? (uint64_t)count : 0, x.served) : x.claimed;
    uint32_t i;
    /* one that the period word never showed is none, seed 215694 */
    if (x.number && x.now - (x.shown == x.began ? x.begun_ns : x.before_ns) < x.T - x.T / 4096 && !x_strayed())
        world_fail(x.w, "apart", x.now, "epoch %" PRIu64 " after %.4f T", e, (double)apart / (double)x.T);
    /* Promise `takeover`: a monitor comes at its next_ns, so an epoch is T long; the first takeover in it starts the next
     * at most T + lease_ns later, and each other one costs what passed since the last heartbeat. */
    if (x.number && apart > x.T + x_slack_ns())
        world_fail(x.w, "takeover", x.now, "epoch %" PRIu64 " after %.4f T, %.4f more allowed", e,
                   (double)apart / (double)x.T, (double)x_slack_ns() / (double)x.T);
    x_judge_weights();
    x_judge_surplus(m);
    m->ended = m->started && !x_strayed() && x.failed_number != x.number;
    if (x_strayed() || (m->started && m->info.epoch != x.began)) {
        x_heals(m); /* or its answer was lost, and it has not looked since */
    } else if (m->started) {
        x_finish(m);
        m->granted += m->info.reserved + claimed;
        m->borrowed += claimed;
    }
    memset(n, 0, sizeof *n);
    n->epoch = e;
    x.last_put = x.put;
    x.last_claimed = claimed;
    m->started = m->begun = true;
    m->claimed = x.claimed = x.served = x.allowed_ns = 0;
    for (i = 0; i < 2; i++) /* their time stands still */
        x.allowed_ns += x_sub(x.monitor[i].latest_ns, x.now + x.monitor[i].offset_ns);
    x.taken = false;
    x.put = x.ordered ? 0 : (uint64_t)tokenpool_word_count(pool);
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        x_of(x.began)->of[i].changed = s->changed;
        s->again = s->fresh = s->changed = s->lied = s->weighed = false;
        s->joins = 0;
        s->failed = 0;
        n->of[i].issued = s->joined && !s->silent ? s->reservation : 0;
        n->of[i].limit = s->joined ? s->limit : 0;
        n->reserved += n->of[i].issued;
    }
    x.number++;
    x.before_ns = x.begun_ns;
    x.begun_ns = x.now;
    x.began = e;
    world_trace(x.now, 99, "epoch", e);
}

/* The period word says that the terms are there. */
static void x_opened(uint64_t e)
{
    const struct x_epoch *n = x_of(e);
    uint32_t i;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        uint64_t terms = storage[TOKENPOOL_OFFSET_TERMS / 8 + s->id];
        const struct x_engine *g = s->engine == X_NOBODY ? NULL : &x.engine[s->engine];
        if (x_strayed() || x_failed())
            continue;
        if (terms >> 38 != n->of[i].issued || (terms >> 12 & X_MASK) != n->of[i].limit ||
            (s->joined && (terms >> 5 & 0x7f) != s->generation) || (terms & 31) != x_tag(e))
            world_fail(x.w, "terms", x.now,
                       "client %" PRIu32 " is issued %" PRIu64 ", limit %" PRIu64 "; it was told %" PRIu64
                       " and %" PRIu64 "%s",
                       s->id, terms >> 38, terms >> 12 & X_MASK, s->reservation, s->limit,
                       s->silent ? ", and is silent" : "");
        /* Calls at most T / 4 apart keep the reservation. A call of the last quarter between two ticks (seed 2433) may not
         * report: open. */
        if (g && s->joined && s->silent && x.config.poll_ns <= x.T / 8 && !x_lied() &&
            (!x.hit || x.number > x.hit_number + 5) && !s->slow && !s->lost && x.number > 2 && g->has && !x_failed() &&
            g->attached_ns + x.T / 8 < x.before_ns && g->rare_ns < x.before_ns &&
            g->called_ns + x.T / 4 >= x.now + (g->called_ns - g->called_before_ns < x.T / 8 ? x.T / 16 : 0))
            world_fail(x.w, "reservation", x.now,
                       "client %" PRIu32 " comes each T / 4, and its reservation is withheld", s->id);
    }
}

/* What could be spent of this epoch, if all were: it stays below the bound. */
static void x_judge_potential(void)
{
    const struct x_epoch *e = x_current();
    int64_t count = tokenpool_word_count(storage[0]);
    uint64_t sum = e->claimed + (count > 0 ? (uint64_t)count : 0), left, kept;
    uint32_t i;
    if (!e->bound || e->epoch != tokenpool_word_epoch(storage[0]) || x_lied() || x_strayed() || x.twins)
        return;
    if (x.ordered)
        sum = min_of(count > 0 ? (uint64_t)count : 0, x.served);
    for (i = 0; i < x.slots; i++) {
        const struct x_slot *s = &x.slot[i];
        const struct x_engine *g = s->engine == X_NOBODY ? NULL : &x.engine[s->engine];
        uint64_t word = *x_report(s);
        if (s->changed) /* its report was cleared */
            return;
        if ((word >> 52 & 15) == 12) /* it begins to take again: S may be of what it asks for */
            word = (word & ~X_MASK) | min_of(word & X_MASK, e->of[i].spent);
        kept = x_kept(word, e->of[i].issued, e->epoch, true, &left);
        if (word >> 59 == x_tag(e->epoch)) /* what counts as spent since a start, and is not */
            kept = x_sub(kept, x_sub(word & X_MASK, e->of[i].spent));
        if (g && g->info.running && g->info.epoch == e->epoch)
            kept = min_of(kept, x_sub(g->info.kept, x_sub(g->spent, e->of[i].spent)));
        if (!g || g->had_ns >= x.begun_ns || !g->info.running) /* of a former engine: S may be of a debt */
            kept = x_sub(kept, min_of(x_sub(kept, left), e->of[i].forced));
        sum += kept;
    }
    /* behind a transport, who rests forces what the monitor may have given to others: a debt */
    if (sum > e->bound + e->far)
        world_fail(x.w, "bound", x.now,
                   "%" PRIu64 " tokens of epoch %" PRIu64 " are spent, kept or in the pool, %" PRIu64 " allowed", sum,
                   e->epoch, e->bound + e->far);
}

/* Who wants nothing claims nothing; who wants claims a batch, less only up to its limit, and of 1000 or more near the end of a pool. Ordered: at most a batch for
 * each of its weight, or what the estimate has for T / 64 or two checks, and at least half of its part, by weight among all, of an eighth of the period's tokens. A request above the batch is
 * claimed in one piece. */
static void x_judge_claim(const struct x_engine *g, uint64_t n)
{
    const struct x_slot *s = &x.slot[g->slot];
    const struct tokenpool_client_state *info = &g->info;
    uint64_t most = x.batch * (x.ordered ? s->weight : 1), room, lack, weights = 0;
    bool same = true;
    uint32_t i;
    if (s->slow || s->lost || x.twins || x_lied() || x_strayed() || g->vague || x_failed())
        return;
    lack = g->asks + x_sub(g->has ? g->spent : g->carried + g->before, g->has ? info->kept + info->gained : 0);
    if (g->asks == 0 || (n > (x.ordered ? max_of(most, x_paced(x_of(x.shown)->capacity)) : most) &&
                         (x.ordered ? !s->weighed && !s->changed && !x.taken && g->epoch == x.shown : n > lack)))
        world_fail(x.w, "claims", x.now, "client %" PRIu32 " wants %" PRIu64 ", and claims %" PRIu64, s->id, g->asks,
                   n);
    room = x_sub(info->limit, info->kept + g->base + (g->got_epoch == g->epoch ? g->got : 0));
    for (i = 0; i < x.slots; i++) {
        same = same && !x.slot[i].weighed && !x.slot[i].changed;
        weights += x.slot[i].joined ? x.slot[i].weight : 0;
    }
    if (x.ordered)
        most = min_of(most, max_of(1, x_of(x.shown)->bound / 8 * s->weight / max_of(2 * weights, 1)));
    most = x.ordered ? most : min_of(most, 1000); /* near the end of a pool */
    if (g->has && g->epoch == x.shown && n < min_of(most, room) && !s->changed && !x.taken &&
        (!x.ordered || (same && info->limit == TOKENPOOL_TOKENS_MAX)))
        world_fail(x.w, "claims", x.now,
                   "client %" PRIu32 " wants %" PRIu64 ", and claims %" PRIu64 "; %" PRIu64 " below its limit", s->id,
                   g->asks, n, room);
}

static void x_claims(uint64_t old, uint64_t v)
{
    struct x_epoch *e = x_of(tokenpool_word_epoch(v));
    int64_t count = tokenpool_word_count(old);
    int64_t more = (int64_t)(v >> 32) - (int64_t)(old >> 32); /* mod 2^32 */
    uint64_t n = (uint64_t)(x.ordered ? more : -more) & UINT32_MAX;
    uint64_t got = x.ordered ? n : count <= 0 ? 0 : min_of((uint64_t)count, n);
    struct x_engine *g = &x.engine[x.actor];
    uint32_t i = g->slot;
    if (!g->older)
        x_judge_claim(g, n);
    if (!g->older) {
        g->got = (g->got_epoch == e->epoch ? g->got : 0) + got;
        g->got_epoch = e->epoch;
        g->now_got += got;
    }
    e->of[i].claimed += got;
    e->claimed += got;
    x.claimed += got;
    /* Promise `count`: each client makes at most one failed claim between two fills. */
    if (!x.ordered && got == 0 && !g->older && ++x.slot[i].failed > 1 && !x.twins && !x_lied() && !x_strayed())
        world_fail(x.w, "count", x.now, "client %" PRIu32 " claims from an empty pool for the second time",
                   x.slot[i].id);
}

/* A monitor took the storage: all that it knows of a client is its admission. */
static void x_taken(uint32_t k)
{
    uint32_t i;
    x.owner = k;
    x.monitor[k].started = false;
    x.monitor[k].adopts = true;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *t = &x.slot[i];
        t->fresh = t->joined;
        t->silent = false;
        t->silences = t->under = t->used = t->done = t->beyond = 0;
        t->demand = t->joined ? 3 : 0;
    }
}

/* An engine reads or writes a word: the pool, its own report, or, to read, what is between the pool and the reports. */
static void x_touches(const qos_word_t *word, bool writes)
{
    struct x_engine *g = &x.engine[x.actor];
    const struct x_slot *s = &x.slot[g->slot];
    uint64_t at;
    if (word < storage || word >= storage + sizeof storage / 8)
        return; /* words of ours */
    at = (uint64_t)(word - storage) * 8;
    g->touched++;
    g->looked |= at == TOKENPOOL_OFFSET_PERIOD;
    if (at != TOKENPOOL_OFFSET_POOL && word != x_report(s) &&
        (writes || at < TOKENPOOL_OFFSET_PERIOD || at >= tokenpool_storage_report(x.clients, 0)))
        world_fail(x.w, "regions", x.now, "client %" PRIu32 " %s the word at %" PRIu64, s->id,
                   writes ? "writes" : "reads", at);
}

/* Somebody wrote a word. */
static void x_wrote(const qos_word_t *word, uint64_t old)
{
    uint64_t v = *word, epoch = tokenpool_word_epoch(v);
    bool client = x.actor < X_MONITOR;
    uint32_t i;
    if (x.renewing)
        return;
    if (client)
        x_touches(word, true);
    if (word == &storage[0] && !client) {
        struct x_monitor *m = &x.monitor[x.actor - X_MONITOR];
        if (epoch != (x.hit ? x.began : tokenpool_word_epoch(old))) {
            x_epoch_begins(m, v, old);
            return;
        }
        m->claimed = x.ordered ? m->claimed : x.claimed;
        if (x.ordered || tokenpool_word_count(v) == tokenpool_word_count(old))
            return;
        x.put = x.claimed + (uint64_t)tokenpool_word_count(v);
        for (i = 0; i < x.slots; i++)
            x.slot[i].failed = 0;
    } else if (word == &storage[0]) {
        x_claims(old, v);
    } else if (word == &storage[TOKENPOOL_OFFSET_PERIOD / 8]) {
        epoch = v >> 28 & 0xfffff;
        if (epoch != x.shown) {
            x.shown = epoch;
            x.shown_ns = x.now;
        }
        if (x.owner != x.actor - X_MONITOR)
            x_taken(x.actor - X_MONITOR);
        if ((v & 1) && !(old & 1))
            x_opened(epoch);
    } else if (word == &storage[TOKENPOOL_OFFSET_SERVED / 8]) {
        x.put = x.served = epoch == tokenpool_word_epoch(storage[0]) ? v >> 32 : 0;
    } else if (client) {
        for (i = 0; i < x.slots; i++)
            if (word == x_report(&x.slot[i])) {
                x.slot[i].wrote = x.number;
                if (!x.engine[x.actor].first) {
                    x.slot[i].holder = x.actor;
                    x.engine[x.actor].found = old;
                }
                world_trace(x.now, x.slot[i].id, "report", v);
            }
    }
}

/* The monitor reads a word. */
static void x_read(const qos_word_t *word)
{
    struct x_monitor *m = &x.monitor[x.actor - X_MONITOR];
    int64_t count = tokenpool_word_count(storage[0]);
    uint32_t i;
    if (word == &storage[0])
        m->claimed = x.ordered ? min_of(count > 0 ? (uint64_t)count : 0, x.served) : x.claimed;
    if (word < &storage[tokenpool_storage_report(x.clients, 0) / 8])
        return;
    m->scanned = true;
    i = x.slot_of[word - &storage[tokenpool_storage_report(x.clients, 0) / 8]];
    if (i)
        x.slot[i - 1].report = *word;
}

/* A swap or an addition begins. */
static void x_tries(const qos_word_t *word)
{
    if (x.actor >= X_MONITOR)
        x_read(word);
    else if (word == &storage[0] && !x.slot[x.engine[x.actor].slot].remote)
        x.engine[x.actor].claims++;
}

/* ---- the monitor's answers ------------------------------------------------------------------------------------------------ */

static void x_judge_slots(const struct x_monitor *m)
{
    uint32_t i;
    for (i = 0; i < x.slots; i++) {
        const struct x_slot *s = &x.slot[i];
        struct tokenpool_slot_state state;
        struct qos_stats stats;
        memset(&state, 0xa5, sizeof state);
        memset(&stats, 0xa5, sizeof stats);
        if (tokenpool_monitor_slot_info(&m->m, s->id, &state) != QOS_OK ||
            tokenpool_monitor_stats(&m->m, s->id, &stats) != QOS_OK)
            world_fail(x.w, "status", x.now, "no news of client %" PRIu32, s->id);
        if (state.joined != s->joined ||
            (s->joined && (state.reservation != s->reservation || state.limit != s->limit ||
                           state.generation != s->generation || state.silent != s->silent)) ||
            state.alert != (s->joined && state.under_used >= x.alert_periods))
            world_fail(x.w, "slot_info", x.now,
                       "client %" PRIu32 ": joined %d, reservation %" PRIu64 ", limit %" PRIu64 ", silent %d, %" PRIu32
                       " periods unused, alert %d",
                       s->id, state.joined, state.reservation, state.limit, state.silent, state.under_used,
                       state.alert);
        if (s->joined && (state.used != s->used || state.under_used != s->under || stats.granted != s->done ||
                          stats.borrowed != s->beyond))
            world_fail(x.w, "slot_info", x.now,
                       "client %" PRIu32 ": used %" PRIu64 " of %" PRIu64 ", %" PRIu32 " periods unused of %" PRIu64
                       ", in all %" PRIu64 " of %" PRIu64 ", beyond %" PRIu64 " of %" PRIu64,
                       s->id, state.used, s->used, state.under_used, s->under, stats.granted, s->done, stats.borrowed,
                       s->beyond);
    }
}

/* The sums of the reports, when a check read them. */
static void x_judge_sums(const struct x_monitor *m, const struct tokenpool_monitor_state *info)
{
    const struct x_epoch *e = x_of(info->epoch);
    uint64_t kept = 0, left = 0, used = 0, largest = 0, busy = 0, busy_left = 0, of_pool = 0;
    uint64_t level = storage[TOKENPOOL_OFFSET_PERIOD / 8 + 4];
    uint32_t i;
    level = tokenpool_word_epoch(level) == info->epoch ? level >> 32 : X_FULL;
    x.returning = 0;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        uint64_t word = *x_report(s), rest, k;
        uint64_t issued = s->again && !m->begun ? 0 : e->of[i].issued;
        bool fresh = word >> 59 == x_tag(info->epoch) && !m->begun;
        k = rest = issued;
        if (!m->begun)
            k = x_kept(word, issued, info->epoch, false, &rest);
        kept += k;
        left += rest;
        x.returning += !fresh || (word >> 53 & 1) || level >= X_FULL /* who has no queue is at its pace now */
                           ? 0
                           : x_sub(rest, (issued * level + X_FULL - 1) / X_FULL);
        used += fresh ? word & X_MASK : 0;
        of_pool += fresh ? x_sub(word & X_MASK, k) : 0;
        if (fresh ? (word >> 52 & 3) != 0 : s->demand != 0) {
            busy += s->joined && (!m->begun || !s->silent);
            largest = max_of(largest, rest);
            busy_left += rest;
        }
    }
    x.busy = busy, x.busy_left = busy_left, x.largest = largest, x.of_pool = of_pool;
    if (info->kept != kept || info->left != left || (info->used != used && !x.lied))
        world_fail(x.w, "sums", x.now,
                   "kept %" PRIu64 " of %" PRIu64 ", left %" PRIu64 " of %" PRIu64 ", used %" PRIu64 " of %" PRIu64,
                   info->kept, kept, info->left, left, info->used, used);
    if ((x.guard || m->begun) && !x.churns && (info->busy != busy || info->largest != largest))
        world_fail(x.w, "sums", x.now, "busy %" PRIu32 " of %" PRIu64 ", largest %" PRIu64 " of %" PRIu64, info->busy,
                   busy, info->largest, largest);
}

/* With the guard: what the pool may hold, as the chapter on periods has it. While the largest reservation that is left, r, is
 * above C / n, the tokens of the others and the pool are at most (S left - r) x C (n - 1) / (n S - C). S is the rate of one of
 * k or k + 1 clients, k of them enough for C. One client does client_capacity, of the profile's C: S is at most that, and of
 * an estimate above the profile k is the profile's. */
static double x_guards(const struct tokenpool_monitor_state *info, uint64_t left_ns, double *off)
{
    uint64_t n = max_of(x.busy, 1), c = info->capacity, k = 1, s = c;
    while (k * x.client_capacity < min_of(c, x.C))
        k++;
    if (k > 1) /* the mean number of clients is k + 1/2 */
        s = 2 * c / (2 * k + 1);
    s = min_of(s, x.client_capacity);
    double part = (double)left_ns / (double)x.T, spare = (double)s * part - (double)x.largest, w;
    double others = (double)(x.busy_left - x.largest) + (double)x_sub(info->claimed, x.of_pool);
    if (!x.guard || (double)x.largest <= (double)c * part / (double)n || n * x.client_capacity <= c)
        return 1e18;
    w = n * s > c ? (double)c * (double)(n - 1) / (double)(n * s - c) : 0;
    *off += 2 * w; /* rounded down before */
    w *= spare > 0 ? spare : 0;
    return w > others ? w - others : 0;
}

/* A check of a period whose pool is used: the pool is set to min(max(C (T - t) / T - L, 0), C + overrun - sum K - claimed),
 * of L only C's part, and less with the guard, which leaves the overrun out. L counts who has no queue by the time, as reports lag. */
static void x_judge_fill(const struct x_monitor *m, const struct tokenpool_monitor_state *info)
{
    uint64_t age_ns = x_sub(m->latest_ns, info->start_ns), left_ns = x_sub(x.T, age_ns);
    double room = (double)info->capacity * (double)left_ns / (double)x.T, off = 2,
           guard = x_guards(info, left_ns, &off), target;
    double part = (double)info->capacity / (double)max_of(info->capacity, info->reserved);
    double budget = (double)(x.guard ? info->capacity : info->bound) - (double)info->kept - (double)info->claimed,
           pool = (double)x_sub(x.put, x.claimed);
    if (x.ordered || x.far || m->begun || !m->scanned || !info->converting || x.churns || age_ns >= x.T)
        return;
    room -= (double)(info->left - x.returning) * part;
    target = room < budget ? room : budget;
    target = target < guard ? target : guard;
    target = target < 0 ? 0 : target;
    if (pool > target + off || pool + off < target)
        world_fail(
            x.w, "fills", x.now,
            "the pool holds %.0f tokens after a check, not %.1f: room for %.1f, %.1f below the bound, guard %.1f", pool,
            target, room, budget, guard);
}

/* The estimate: a period begins with the one that the last period had, or moved as the chapter on capacity says: up by
 * capacity_step if clients waited, below the profile by more, or to what was used, or what a fall took (of the period before, or
 * of two before if it stayed since), or, if two have a queue, to what it was before several falls, of which one client may have
 * told alone, and a step more; down to no less than what was used in a period before, and only if somebody has a queue. */
static void x_judge_estimate(const struct x_monitor *m, const struct tokenpool_monitor_state *info)
{
    uint64_t was = x.capacity, is = info->capacity, most = max_of(was, x.capacity_before), i, step, step_up, waits = 0,
             queues = 0;
    bool known = x.capacity && !x_strayed() && !x_failed() && !x.far && !x.lied;
    for (i = 0; i < x.slots; i++) {
        waits += x.slot[i].demand == 3;
        queues += x.slot[i].demand >= 2;
    }
    most = x.capacity_before ? most : QOS_NEVER; /* a fall that is taken back is not known */
    if (x.capacity_before == was)                /* it stayed: the fall before may be taken back */
        most = x.capacity_former ? max_of(most, x.capacity_former) : QOS_NEVER;
    x.capacity_former = x.capacity_before;
    x.capacity_before = was;
    x.capacity = is;
    if (known && !m->ended && !x.fixed && is != was)
        world_fail(x.w, "estimate", x.now, "after a takeover the estimate is %" PRIu64 ", it was %" PRIu64, is, was);
    if (!m->ended || x.fixed || !known) {
        x.grown = known ? 0 : 20;
        x.most_used = known ? 0 : QOS_NEVER;
        x.most_before = known ? is : QOS_NEVER;
        x.least_used = known ? QOS_NEVER : 0;
        return;
    }
    step = x.config.capacity_step == QOS_NOTHING ? 0
           : x.config.capacity_step              ? x.config.capacity_step
                                                 : (x.C + 19) / 20;
    step_up = step;
    if (step && was + step < x.C)
        step = min_of(step << min_of(x.grown, 20), x.C - was);
    most = max_of(most, waits ? max_of(info->last_used, was + step) : info->last_used);
    x.least_used = min_of(x.least_used, info->last_used);
    x.most_used = max_of(x.most_used, info->last_used);
    most = queues ? max_of(most, x.most_used) : most; /* a mean of records */
    most = queues > 1 ? max_of(most, x.most_before + min_of(step_up, QOS_NEVER - x.most_before)) : most;
    x.most_before = max_of(x.most_before, is);
    if (is > most || (is < was && (is < x.least_used || !queues)))
        world_fail(x.w, "estimate", x.now,
                   "the estimate goes from %" PRIu64 " to %" PRIu64 ": %" PRIu64 " used, at least %" PRIu64
                   " before, %" PRIu64 " of the clients waited, %" PRIu64 " had a queue; at most %" PRIu64,
                   was, is, info->last_used, x.least_used, waits, queues, most);
    x.grown = is > was ? x.grown + 1 : is < was ? 0 : x.grown;
}

/* The period's own counts. */
static void x_judge_counts(struct x_monitor *m, const struct tokenpool_monitor_state *info)
{
    struct x_epoch *e = x_of(info->epoch);
    uint64_t joined = 0, bound;
    struct qos_stats stats;
    uint32_t i;
    for (i = 0; i < x.slots; i++)
        joined += x.slot[i].joined;
    bound = max_of(info->capacity, e->reserved) + (x.config.overrun ? x.overrun : info->capacity / 20);
    if (info->epoch != tokenpool_word_epoch(storage[0]) || info->reserved != e->reserved || info->bound != bound ||
        (x.fixed && info->capacity != x.C) || (m->begun && info->clients != joined))
        world_fail(x.w, "counts", x.now,
                   "epoch %" PRIu64 ": capacity %" PRIu64 ", reserved %" PRIu64 " of %" PRIu64 ", bound %" PRIu64
                   " of %" PRIu64 ", %" PRIu32 " clients of %" PRIu64,
                   info->epoch, info->capacity, info->reserved, e->reserved, info->bound, bound, info->clients, joined);
    e->bound = bound;
    e->capacity = info->capacity;
    if (m->begun)
        x_judge_estimate(m, info);
    if (!x_failed() && (info->put != x.put || info->claimed != m->claimed))
        world_fail(x.w, "counts", x.now, "put %" PRIu64 " of %" PRIu64 ", claimed %" PRIu64 " of %" PRIu64, info->put,
                   x.put, info->claimed, m->claimed);
    if (m->begun && m->ended &&
        (info->last_reserved != m->info.reserved || info->last_bound != m->info.bound ||
         info->last_capacity != m->info.capacity || info->last_put != x.last_put ||
         info->last_claimed != x.last_claimed ||
         (!x.lied && !x.hit &&
          (info->last_used > min_of(x.last_used, m->info.reserved + x.last_claimed) ||
           info->last_used < min_of(x.last_used, m->info.reserved + m->info.claimed)))))
        world_fail(x.w, "counts", x.now,
                   "of the last period: reserved %" PRIu64 " of %" PRIu64 ", bound %" PRIu64 " of %" PRIu64
                   ", used %" PRIu64 " of %" PRIu64 ", put %" PRIu64 " of %" PRIu64 ", claimed %" PRIu64 " of %" PRIu64,
                   info->last_reserved, m->info.reserved, info->last_bound, m->info.bound, info->last_used, x.last_used,
                   info->last_put, x.last_put, info->last_claimed, x.last_claimed);
    if (!x_failed() && !x.far && !x.ordered && !x.olds && !m->begun && m->back_ns < x.now + 2 * x.T &&
        m->scanned != (info->converting && info->epoch == x.began))
        world_fail(x.w, "counts", x.now, "the pool is %sin use, and the reports were %sread",
                   info->converting ? "" : "not ", m->scanned ? "" : "not ");
    if (!x_failed() && !x.ordered && (info->claimed != 0) > info->converting)
        world_fail(x.w, "counts", x.now, "%" PRIu64 " tokens are claimed, and the pool is not in use", info->claimed);
    if (!x.hit && info->lost)
        world_fail(x.w, "counts", x.now, "%" PRIu32 " admissions cannot be read", info->lost);
    if (m->begun && !x_failed() && x_apart(info->start_ns, x.begun_ns + m->offset_ns) > x.T / (x.far ? 512 : 8192))
        world_fail(x.w, "counts", x.now, "epoch %" PRIu64 " began at %" PRIu64 ", it says %" PRIu64, info->epoch,
                   x.begun_ns + m->offset_ns, info->start_ns);
    (void)tokenpool_monitor_stats(&m->m, QOS_NONE, &stats);
    if (stats.granted != m->granted || stats.borrowed != m->borrowed || stats.refused != m->refused)
        world_fail(x.w, "stats", x.now,
                   "the monitor granted %" PRIu64 " of %" PRIu64 ", lent %" PRIu64 " of %" PRIu64 ", refused %" PRIu64
                   " of %" PRIu64,
                   stats.granted, m->granted, stats.borrowed, m->borrowed, stats.refused, m->refused);
}

/* It took the storage: of periods past it knows what it saw itself. */
static void x_adopts(struct x_monitor *m)
{
    struct qos_stats stats = {0};
    uint32_t i;
    m->adopts = false;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        struct tokenpool_slot_state state = {0};
        (void)tokenpool_monitor_slot_info(&m->m, s->id, &state);
        (void)tokenpool_monitor_stats(&m->m, s->id, &stats);
        s->used = state.used;
        s->under = state.under_used;
        s->done = stats.granted;
        s->beyond = stats.borrowed;
    }
    if (!x.hit && !x.fails)
        return;
    (void)tokenpool_monitor_stats(&m->m, QOS_NONE, &stats);
    m->granted = stats.granted;
    m->borrowed = stats.borrowed;
    m->refused = stats.refused;
}

static void x_judge_monitor(struct x_monitor *m)
{
    struct tokenpool_monitor_state info;
    uint64_t next, shown = x.now + m->offset_ns;
    bool begun = false;
    if (m->adopts && !m->unsure && x.owner == (uint32_t)(m - x.monitor))
        x_adopts(m);
    (void)tokenpool_monitor_info(&m->m, &info);
    next = tokenpool_monitor_next_ns(&m->m, shown);
    if (next < shown || next > shown + max_of(x.check_ns, x.T / 1024 + 1))
        world_fail(x.w, "monitor_waits", x.now, "the monitor is told to wait for %.3f T",
                   (double)(next - shown) / (double)x.T);
    if (m->begun && info.active && !m->unsure && !x.far && !x.olds && next != shown)
        world_fail(x.w, "monitor_waits", x.now, "a period began, and the monitor is not told to come at once");
    if (info.active && m->started && !m->unsure && x.owner == (uint32_t)(m - x.monitor)) {
        if (x_strayed())
            x.capacity = x.capacity_before = x.capacity_former = 0;
        if (x_strayed())
            x_of(info.epoch)->bound =
                max_of(info.capacity, x_of(info.epoch)->reserved) + (x.config.overrun ? x.overrun : info.capacity / 20);
        else
            x_judge_counts(m, &info);
        if (!x_strayed() && !x_failed() && (m->scanned || m->begun)) {
            x_judge_sums(m, &info);
            x_judge_fill(m, &info);
        }
        m->info = info;
        begun = m->begun;
        m->begun = false;
    }
    if (x.owner == (uint32_t)(m - x.monitor) && !x_strayed() && !m->unsure && (begun || x_chance(20)))
        x_judge_slots(m);
    /* it knows by its next look; the call right after it began an epoch makes none, nor one at an old reading */
    if (info.active && x.owner < 2 && x.owner != (uint32_t)(m - x.monitor) && !x_strayed() && !m->unsure && !x.far &&
        x.now > x.begun_ns && !x.olds && m->back_ns < x.now + 2 * x.T)
        world_fail(x.w, "fenced", x.now, "monitor %" PRIu32 " says that it is active, and %" PRIu32 " has the storage",
                   (uint32_t)(m - x.monitor), x.owner);
    m->adopts = m->adopts || x_failed();
    x_judge_potential();
    if (x.number && x.now > x.begun_ns + x.T + x_slack_ns())
        world_fail(x.w, "takeover", x.now, "no epoch after %.4f T", (double)(x.now - x.begun_ns) / (double)x.T);
}

/* A monitor died, or starts. From now on its epoch may last T + lease_ns longer, the first time; each other time costs what
 * passed since the last heartbeat. */
static void x_allow(uint64_t lease_ns)
{
    x.allowed_ns +=
        (x.taken ? 0 : x_sub(x.now, x.begun_ns) + x.lease_ns) + x_sub(x.now, x.dead_ns) + 2 * x.check_ns + lease_ns;
    x.taken = true;
}

static void x_resume(uint32_t k)
{
    struct x_monitor *m = &x.monitor[k];
    enum qos_status s;
    memset(m, 0, sizeof *m);
    m->offset_ns = start_ns(x.w) + (x.set_back ? 100 * x.T : 0);
    s = tokenpool_monitor_resume(&m->m, memory[k], sizeof memory[k], storage, x.bytes, &x.config);
    if (s != QOS_OK)
        world_fail(x.w, "resume", x.now, "monitor %" PRIu32 ": %s", k, qos_strerror(s));
    m->lives = true;
    m->next_ns = x.now;
    if (x.owner == k)
        x.owner = X_NOBODY;           /* so that its first operation is seen as a takeover */
    x_allow(x.olds ? x.check_ns : 0); /* its look may wait for a right reading */
}

/* Its operations behind a transport: some arrive later, of some the answer is lost. */
static void x_monitor_operate(struct x_monitor *m)
{
    while (!m->pending && tokenpool_monitor_next(&m->m, x.now + m->offset_ns, &m->op)) {
        bool lost = x.fails && world_chance(&x.odd, 30);
        if (lost || world_chance(&x.odd, 200)) {
            m->pending = true;
            m->performed = m->scanned = false;
            m->lost = lost;
            m->perform_ns = x.now + world_between(&x.odd, 0, x.T / 16384);
            m->answer_ns = m->perform_ns + world_between(&x.odd, 0, x.T / 16384);
            if (lost && world_chance(&x.odd, 500))
                m->perform_ns = WORLD_NEVER;
            return;
        }
        m->unsure = m->unsure && m->op.kind != TOKENPOOL_READ;
        tokenpool_monitor_done(&m->m, tokenpool_storage_run(storage, &m->op));
    }
}

/* An operation arrives, or its answer, or nothing does. */
static void x_monitor_arrives(struct x_monitor *m)
{
    if (!m->performed && m->perform_ns <= m->answer_ns) {
        m->performed = true;
        m->answer = tokenpool_storage_run(storage, &m->op);
        return;
    }
    m->pending = false;
    if (m->lost) {
        m->unsure = m->adopts = true;
        x.failed_number = x.number;
        x.allowed_ns += x.check_ns + x.T / 512;
        tokenpool_monitor_fail(&m->m);
    } else {
        m->unsure = m->unsure && m->op.kind != TOKENPOOL_READ;
        tokenpool_monitor_done(&m->m, m->answer);
    }
}

static void x_monitor_call(uint32_t k)
{
    struct x_monitor *m = &x.monitor[k];
    uint64_t shown = x.now + m->offset_ns, by;
    x.actor = X_MONITOR + k;
    m->scanned = false;
    world_trace(x.now, X_MONITOR + k, "check", shown);
    if (x.set_back && !m->pending && x.now >= m->back_ns && world_chance(&x.clocks, k == x.owner ? 2 : 20)) {
        by = x.check_ns + world_between(&x.clocks, 1, world_chance(&x.clocks, 500) ? x.T / 16 : 3 * x.T);
        if (x.config.flags &
            TOKENPOOL_GO_ON) /* the clock is set: an epoch that is late by T / 8 leaves engines alone */
            by += x.T / 4;
        if (shown > by) {
            m->offset_ns -= by;
            shown -= by;
            world_trace(x.now, X_MONITOR + k, "back", by);
            m->back_ns = x.now + 3 * x.T;
            m->right_ns = 0;
            /* what passed since its last call is not known; one that waits begins to wait anew */
            x.allowed_ns += x.check_ns + x.T / 512 + (k == x.owner ? 0 : x.lease_ns);
            /* it could be an old reading, so time stands still */
            x.allowed_ns += m->latest_ns > shown + x.T / 4 ? 0 : by;
        }
    }
    if (x.olds && !m->pending && m->right_ns && world_chance(&x.old, 140))
        shown = max_of(m->offset_ns, min_of(m->right_ns, x_sub(m->latest_ns, world_between(&x.old, 0, x.T / 4))));
    else
        m->right_ns = shown;
    m->latest_ns = m->latest_ns > shown + x.T / 4 ? shown : max_of(m->latest_ns, shown);
    if (m->pending)
        x_monitor_arrives(m);
    if (!x.far)
        tokenpool_monitor_run(&m->m, shown);
    else if (!m->pending)
        x_monitor_operate(m);
    if (m->pending) {
        m->next_ns = m->performed ? m->answer_ns : min_of(m->perform_ns, m->answer_ns);
        return;
    }
    x_judge_monitor(m);
    m->next_ns = max_of(tokenpool_monitor_next_ns(&m->m, shown) - m->offset_ns, x.now);
}

/* ---- the engine's answers --------------------------------------------------------------------------------------------------- */

/* X: what a start may cost. */
static uint64_t x_start_costs(uint64_t reservation)
{
    return max_of(x.batch, reservation / 8);
}

/* The first epoch of an engine. Promise `restart`: a start costs at most X of what is left of the reservation. */
static void x_started(const struct x_engine *g, const struct tokenpool_client_state *info, uint64_t n, uint64_t report)
{
    const struct x_slot *s = &x.slot[g->slot];
    const struct x_epoch *e = x_of(info->epoch);
    uint64_t had = min_of(min_of(report >> 26 & X_MASK, info->reservation), info->limit);
    bool last = x.now + x.T / 64 + x.T / 1024 >= x.begun_ns + x.T; /* it does not say what was spent */
    if (report >> 59 != x_tag(info->epoch) || x_phase(report) == 3 || (x_phase(report) == 2 && last) ||
        x_rests(report) || x.twins || (s->lies && x.lied) || x_strayed() || s->lost || s->slow || s->forced)
        return;
    if (info->held + n + x_start_costs(info->reservation) +
            max_of(x_phase(report) == 2 ? 0 : report & X_MASK, e->of[g->slot].peak) <
        had)
        world_fail(x.w, "restart", x.now,
                   "client %" PRIu32 ": %" PRIu64 " left of %" PRIu64 ", %" PRIu64 " reported, %" PRIu64
                   " spent, and a start costs %" PRIu64,
                   s->id, info->held, had, report & X_MASK, e->of[g->slot].peak, x_start_costs(info->reservation));
}

/* Promise `issued`, before it is broken: what the engine that has the slot may spend now, with all that was spent of this
 * epoch by those before it. */
static void x_judge_issued(const struct x_slot *s, const struct x_epoch *e, int64_t n, uint64_t held)
{
    uint32_t i = (uint32_t)(s - x.slot);
    uint64_t got = e->of[i].issued + e->of[i].claimed + e->of[i].forced + (n > 0 ? (uint64_t)n : 0);
    uint64_t spent = n < 0 ? x_sub(e->of[i].spent, (uint64_t)-n) : e->of[i].spent + (uint64_t)n;
    if (!x_lied() && !x_strayed() && !s->lied && spent + held > got)
        world_fail(x.w, "issued", x.now,
                   "client %" PRIu32 " holds %" PRIu64 " tokens of epoch %" PRIu64 " after %" PRIu64 " spent, %" PRIu64
                   " issued and claimed",
                   s->id, held, e->epoch, spent, got);
}

/* Of what it spent since its epoch began, what was beyond K: a debt of before is none of it, even if K falls below it. */
static int64_t x_beyond(const struct x_engine *g, uint64_t kept)
{
    return (int64_t)x_sub(g->spent, max_of(kept, (uint64_t)g->opened));
}

/* Its epoch ended: what it spent since it began counts; *voided: what may have ended unspent. A part of it may have been
 * returned in this call. */
static void x_counts_end(struct x_engine *g, uint64_t *voided)
{
    g->granted.over += (int64_t)g->spent - g->opened;
    g->borrowed.over += x_beyond(g, g->info.kept);
    g->granted.low = g->granted.high = g->borrowed.low = g->borrowed.high = 0;
    *voided = g->info.held;
}

static void x_counts_begin(struct x_engine *g, const struct tokenpool_client_state *info)
{
    g->owed_ns = x.now;
    g->opened = (int64_t)g->spent;
    g->granted.low = g->granted.high = g->borrowed.low = g->borrowed.high = 0;
    g->base = info->gained - (g->got_epoch == info->epoch && !x.ordered ? min_of(g->got, info->gained) : 0);
    if (g->first && g->base && !x.ordered && !x.slot[g->slot].slow && !x.slot[g->slot].lost && !g->vague)
        world_fail(x.w, "gained", x.now,
                   "client %" PRIu32 " begins with %" PRIu64 " tokens of the pool, %" PRIu64 " claimed",
                   x.slot[g->slot].id, info->gained, g->got);
}

/* Its counters: as of the last tick, so between the least and the most since the epoch began. */
static void x_judge_counters(struct x_engine *g, const struct tokenpool_client_state *info, uint64_t voided)
{
    const struct x_slot *s = &x.slot[g->slot];
    bool lossy = s->slow || s->lost;
    uint64_t debt = g->has ? x_sub(g->spent, min_of(info->kept + info->gained, info->limit)) : g->debt, pool;
    int64_t granted = (int64_t)g->spent - g->opened, beyond = x_beyond(g, info->kept), got, lent;
    struct qos_stats stats = {0};
    g->unsure = g->unsure || g->vague || x_strayed() || x_lied() || s->lied;
    if (tokenpool_client_stats(&g->client, x.now % 2 ? QOS_NONE : s->id, &stats) != QOS_OK)
        world_fail(x.w, "status", x.now, "client %" PRIu32 " has no counters", s->id);
    if (g->has) {
        g->granted.low = granted < g->granted.low ? granted : g->granted.low;
        g->granted.high = granted > g->granted.high ? granted : g->granted.high;
        g->borrowed.low = beyond < g->borrowed.low ? beyond : g->borrowed.low;
        g->borrowed.high = beyond > g->borrowed.high ? beyond : g->borrowed.high;
    }
    got = (int64_t)stats.granted - g->granted.over;
    lent = (int64_t)stats.borrowed - g->borrowed.over;
    if (!g->unsure && g->first &&
        (got < g->granted.low || got > g->granted.high || lent < g->borrowed.low || lent > g->borrowed.high ||
         stats.waited > stats.refused))
        world_fail(x.w, "client_stats", x.now,
                   "client %" PRIu32 " counts %" PRId64 " granted in this epoch, %" PRId64 " to %" PRId64 ", %" PRId64
                   " lent, %" PRId64 " to %" PRId64 ", %" PRIu64 " waited, %" PRIu64 " refused",
                   s->id, got, g->granted.low, g->granted.high, lent, g->borrowed.low, g->borrowed.high, stats.waited,
                   stats.refused);
    g->owed_ns = debt == g->debt ? g->owed_ns : x.now;
    /* a tick came in between: one is due after check_ns */
    if (!g->unsure && !lossy && g->has &&
        x.now >= max_of(g->owed_ns, g->back_ns ? g->back_ns + x.check_ns : 0) + x.check_ns && stats.debt != debt)
        world_fail(x.w, "client_stats", x.now, "client %" PRIu32 " owes %" PRIu64 ", it counts %" PRIu64, s->id, debt,
                   stats.debt);
    g->debt = debt;
    pool = x_sub(g->info.gained, x_sub(g->info.gained + g->info.kept, g->info.held + g->info.kept));
    pool = min_of(pool, voided);
    voided += x.ordered ? g->base + g->got : g->now_got; /* what it got in this call */
    g->now_got = 0;
    if (!g->unsure && !lossy && (info->voided > g->voided + voided || info->voided < g->voided + pool))
        world_fail(x.w, "client_stats", x.now,
                   "client %" PRIu32 " voids %" PRIu64 " tokens, %" PRIu64 " to %" PRIu64 " were left", s->id,
                   info->voided - g->voided, pool, voided);
    g->voided = info->voided;
    pool = g->base + (g->got_epoch == g->epoch ? g->got : 0);
    if (g->has && !g->unsure && !lossy && (g->got_epoch == g->epoch || (x.shown == g->epoch && x.began == g->epoch)) &&
        (x.ordered ? info->gained > pool : info->gained != pool))
        world_fail(x.w, "gained", x.now,
                   "client %" PRIu32 " has %" PRIu64 " tokens of the pool, %" PRIu64 " claimed, %" PRIu64 " before",
                   s->id, info->gained, g->got, g->base);
    if (g->has && !g->unsure && s->joined && !s->changed && s->engine == (uint32_t)(g - x.engine) &&
        g->epoch == x.shown && x.began == x.shown && !x.twins && info->generation != s->generation)
        world_fail(x.w, "account", x.now, "client %" PRIu32 " is of generation %" PRIu32 ", joined as %" PRIu64, s->id,
                   info->generation, s->generation);
}

/* A call of the engine ended; it spent n tokens (< 0: so many were put back). report: the slot's, before the call. */
static void x_account(struct x_engine *g, int64_t n, uint64_t report)
{
    struct x_slot *s = &x.slot[g->slot];
    struct tokenpool_client_state info;
    const struct x_epoch *e;
    uint64_t allowance, held, spent = n > 0 ? (uint64_t)n : 0, voided = 0;
    memset(&info, 0xa5, sizeof info);
    (void)tokenpool_client_info(&g->client, &info);
    e = x_of(info.epoch);
    if (g->has && (!info.running || info.epoch != g->epoch)) {
        g->has = false;
        x_counts_end(g, &voided);
        /* who rested and forced learns now how much of it was held */
        g->vague = g->vague || (s->forced && x_rests(report));
        g->carried = x_sub(g->spent, min_of(g->info.kept + g->info.gained, g->info.limit));
    }
    allowance = min_of(info.kept + info.gained, info.limit);
    if (!g->has && info.running) {
        g->has = true;
        g->epoch = info.epoch;
        /* Who starts anew begins with what its slot's report says, or that and a debt of its own. */
        g->spent = g->first || (g->found >> 59 != x_tag(info.epoch) && x_phase(g->found) != 3)
                       ? g->carried + g->before
                       : allowance - info.held - spent;
        g->kept = info.reservation;
        g->vague = (s->lies && x.lied) || x_strayed() || (g->vague && s->forced) ||
                   (!g->first && g->before && g->found >> 59 == x_tag(info.epoch));
        g->before = 0;
        g->took = g->open = 0;
        x_counts_begin(g, &info);
        if (!g->first)
            x_started(g, &info, spent, report);
        if (!g->first)
            g->had_ns = x.now;
        g->first = true;
    }
    if (g->has) {
        g->spent = n < 0 ? x_sub(g->spent, (uint64_t)-n) : g->spent + spent;
        held = x_sub(allowance, g->spent);
        if (g->vague)
            held = info.held;
        if (info.held != held || tokenpool_client_held(&g->client) != held || info.kept > g->kept ||
            tokenpool_client_epoch(&g->client) != g->epoch)
            world_fail(x.w, "account", x.now,
                       "client %" PRIu32 " holds %" PRIu64 " tokens of epoch %" PRIu64 ": kept %" PRIu64
                       " after %" PRIu64 ", gained %" PRIu64 ", limit %" PRIu64 ", spent %" PRIu64,
                       s->id, info.held, info.epoch, info.kept, g->kept, info.gained, info.limit, g->spent);
        /* Promise `terms`: they are clamped to client_capacity. */
        if (info.reservation > x.client_capacity ||
            (e->epoch == g->epoch && !x_strayed() &&
             (info.reservation != e->of[g->slot].issued || info.limit != e->of[g->slot].limit)))
            world_fail(x.w, "terms", x.now,
                       "client %" PRIu32 " has reservation %" PRIu64 " and limit %" PRIu64 ", issued %" PRIu64
                       " and %" PRIu64,
                       s->id, info.reservation, info.limit, e->of[g->slot].issued, e->of[g->slot].limit);
        g->kept = info.kept;
        if (e->epoch == g->epoch && s->holder == (uint32_t)(g - x.engine))
            x_judge_issued(s, e, n, held);
        /* Until when they are valid: not beyond the earliest start of the next epoch. */
        if (e->epoch == g->epoch && x.shown == g->epoch && !x_strayed() &&
            info.deadline_ns > max_of((x.far ? x.shown_ns : x.begun_ns) + x.T, x.now + 1) + g->offset_ns)
            world_fail(x.w, "outside", x.now, "client %" PRIu32 " holds tokens until %.4f T after its epoch began",
                       s->id, (double)(info.deadline_ns - g->offset_ns - x.begun_ns) / (double)x.T);
    } else {
        g->before += spent; /* forced */
    }
    if (info.claims != g->claims || (!info.running && (info.deadline_ns || info.held)))
        world_fail(x.w, "account", x.now,
                   "client %" PRIu32 " made %" PRIu64 " claims, %" PRIu64 " counted, and holds %" PRIu64, s->id,
                   g->claims, info.claims, info.held);
    x_judge_counters(g, &info, voided);
    g->info = info;
}

/* Promise `known`: what a client spends, the monitor has counted as kept by it, or it was claimed: so what others are given
 * meanwhile is not spent twice. Promise `heir`: and another engine that starts now in its place could not spend it once
 * more: what its report lets that one have, less X, is not spent yet. */
static void x_judge_known(const struct x_slot *s, const struct x_epoch *e, uint64_t n)
{
    uint32_t i = (uint32_t)(s - x.slot);
    uint64_t word = *x_report(s), issued = e->of[i].issued, spent = e->of[i].spent, left, kept, heirs = 0;
    uint64_t got = e->of[i].claimed + e->of[i].forced, said = (word & X_MASK) + x_start_costs(issued);
    if (x.twins || s->changed || e->of[i].changed || s->lies || x.config.flags & TOKENPOOL_GO_ON)
        return;
    kept = x_kept(word, issued, e->epoch, false, &left);
    if (spent > kept + got)
        world_fail(x.w, "known", x.now,
                   "client %" PRIu32 " spent %" PRIu64 " tokens of epoch %" PRIu64 ", now %" PRIu64 "; it kept %" PRIu64
                   " by its report, and got %" PRIu64,
                   s->id, spent, e->epoch, n, kept, got);
    if (word >> 59 != x_tag(e->epoch))
        heirs = issued;
    else if (x_phase(word) != 2)
        heirs = x_sub(x_kept(word, issued, e->epoch, true, &left), said);
    if (spent + heirs > issued + got ||
        (e->of[i].limit < TOKENPOOL_TOKENS_MAX && x_phase(word) != 2 && spent > said + e->of[i].forced))
        world_fail(x.w, "heir", x.now,
                   "client %" PRIu32 " spent %" PRIu64 " of %" PRIu64 " tokens of epoch %" PRIu64
                   ", and reported %" PRIu64 ": one that starts now has %" PRIu64,
                   s->id, spent, issued + got, e->epoch, word & X_MASK, heirs);
}

/* n tokens were spent. */
static void x_spend(struct x_engine *g, uint64_t n, bool forced)
{
    struct x_slot *s = &x.slot[g->slot];
    struct x_epoch *e = x_of(g->epoch);
    fold(x.now ^ (uint64_t)s->id << 56 ^ n);
    world_got(x.now, g->slot, (double)n);
    world_trace(x.now, s->id, forced ? "forced" : "given", n);
    if (forced)
        g->debt_ns = x.now;
    /* Promise `fenced_engine`: who had the slot before is told so in the epoch after another one got it, at the latest. */
    if (!forced && s->engine != (uint32_t)(g - x.engine) && s->engine != X_NOBODY && x.engine[s->engine].had_ns &&
        x.engine[s->engine].had_ns < x.before_ns && g->had_ns < x.engine[s->engine].had_ns && x.number > 2 &&
        !s->remote && !x_strayed() && !x_lied() && !g->back_ns && !(x.config.flags & TOKENPOOL_GO_ON) && !g->older)
        world_fail(x.w, "fenced_engine", x.now,
                   "client %" PRIu32 ": an engine spends a token two epochs after another one got the slot", s->id);
    if (!g->has || e->epoch != g->epoch)
        return;
    g->took += n;
    e->spent += n;
    e->of[g->slot].spent += n;
    e->of[g->slot].peak = max_of(e->of[g->slot].peak, e->of[g->slot].spent);
    e->forced += forced ? n : 0;
    e->far += forced && s->remote ? n : 0;
    e->of[g->slot].forced += forced && x.debt_max ? n : 0; /* else of what it held */
    x_judge_cost(e);
    if (x_strayed())
        return;
    if (!forced && g->epoch != x.shown && x.shown_ns < x.now)
        world_fail(x.w, "outside", x.now,
                   "client %" PRIu32 " spent %" PRIu64 " tokens of epoch %" PRIu64 ", which ended %.6f ms before",
                   s->id, n, g->epoch, (double)(x.now - x.shown_ns) / 1e6);
    if (x_lied() || s->lied)
        return;
    if (!forced)
        x_judge_known(s, e, n);
    if (e->spent > e->bound + e->forced && e->bound)
        world_fail(x.w, "bound", x.now, "%" PRIu64 " tokens of epoch %" PRIu64 ", %" PRIu64 " allowed", e->spent,
                   g->epoch, e->bound + e->forced);
    /* Promise `issued`: by the client that got it. */
    if (e->of[g->slot].spent > e->of[g->slot].issued + e->of[g->slot].claimed + e->of[g->slot].forced)
        world_fail(x.w, "issued", x.now,
                   "client %" PRIu32 " spent %" PRIu64 " tokens of epoch %" PRIu64 ", %" PRIu64 " issued, %" PRIu64
                   " claimed",
                   s->id, e->of[g->slot].spent, g->epoch, e->of[g->slot].issued, e->of[g->slot].claimed);
    if (e->of[g->slot].limit < TOKENPOOL_TOKENS_MAX &&
        e->of[g->slot].spent > e->of[g->slot].limit + e->of[g->slot].forced)
        world_fail(x.w, "limit", x.now, "client %" PRIu32 ": %" PRIu64 " in epoch %" PRIu64 ", limit %" PRIu64, s->id,
                   e->of[g->slot].spent, g->epoch, e->of[g->slot].limit);
}

/* The status of a refusal, for an engine on local memory. */
static void x_judge_status(const struct x_engine *g, uint64_t n, enum qos_status status)
{
    const struct x_slot *s = &x.slot[g->slot];
    const struct x_epoch *e = x_of(g->epoch);
    const struct tokenpool_client_state *info = &g->info;
    uint64_t debt = x_sub(g->spent, min_of(info->kept + info->gained, info->limit));
    uint64_t lack = n + debt - min_of(info->held, n), room = x_sub(info->limit, info->kept + info->gained);
    bool never = n > info->limit;
    if (n > x.least && n > info->reservation + x_sub(e->capacity, e->reserved))
        never = true;
    if (status == QOS_ERANGE && !never)
        world_fail(x.w, "range", x.now, "client %" PRIu32 ": %" PRIu64 " tokens are out of range", s->id, n);
    if (n > info->held && (status == QOS_EAGAIN || status == QOS_ELIMIT) && n > info->limit)
        world_fail(x.w, "range", x.now, "client %" PRIu32 ": %" PRIu64 " tokens are above the limit %" PRIu64, s->id, n,
                   info->limit);
    if (n > info->held && ((status == QOS_EAGAIN && lack > room) || (status == QOS_ELIMIT && lack <= room)))
        world_fail(x.w, "range", x.now,
                   "client %" PRIu32 ": %" PRIu64 " tokens are lacking, %" PRIu64 " below the limit: %s", s->id, lack,
                   room, qos_strerror(status));
}

/* A refused request that the pool could serve: its client looks again after a quarter of the time left at most, so it does
 * not stay refused for a third of the period, called all the time, while the pool holds enough. */
static void x_judge_pool(struct x_engine *g, uint64_t n, enum qos_status status)
{
    int64_t count = tokenpool_word_count(storage[0]);
    bool enough = status == QOS_EAGAIN && !x.ordered && g->has && g->epoch == x.shown && x.began == x.shown &&
                  g->rich_epoch == g->epoch && count > 0 && (uint64_t)count >= n + g->debt &&
                  n + g->debt <= x_sub(x_current()->capacity, x_current()->reserved) && g->back_ns == 0 &&
                  !x.slot[g->slot].remote && x.clients <= 50 && !x_strayed() && !x_failed() && !x.twins && !g->vague;
    if (!enough || x.now > g->called_before_ns + x.T / 64)
        g->rich_ns = x.now;
    g->rich_epoch = g->epoch;
    if (x.now > g->rich_ns + x.T / 3 + 2 * x.check_ns)
        world_fail(x.w, "waits", x.now,
                   "client %" PRIu32 " is refused %" PRIu64 " for %.3f T, and the pool holds %" PRId64,
                   x.slot[g->slot].id, n, (double)(x.now - g->rich_ns) / (double)x.T, count);
}

/* A take of n was refused. What it was entitled to, whatever it did before: R x the time left less two checks, for who
 * comes each T / 4; for who takes all that comes at a rate up to R / T, or always wants more, all of R. */
static void x_refused(struct x_engine *g, uint64_t n, enum qos_status status)
{
    const struct x_slot *s = &x.slot[g->slot];
    const struct x_epoch *e = x_current();
    uint64_t spent = e->of[g->slot].spent, left, issued = e->of[g->slot].issued, since = x.now - x.begun_ns;
    bool mine = s->engine == (uint32_t)(g - x.engine), steady, learned;
    if (g->info.stale || status == QOS_ESTALE) {
        if ((status == QOS_ESTALE) != g->info.stale ||
            (mine && s->joined && !x.lied && !x.hit && !x.churns && !x.twins))
            world_fail(x.w, "stale", x.now, "client %" PRIu32 " is told %s", s->id, qos_strerror(status));
        return;
    }
    if (g->has && e->epoch == g->epoch && !s->remote && !g->vague)
        x_judge_status(g, n, status);
    x_judge_pool(g, n, status);
    if (!mine || !s->joined || s->slow || s->lost || x_lied() || x_strayed() || x.twins || x.shown != e->epoch ||
        x.taken || x_failed() || x.number < 3 || s->changed || !(storage[TOKENPOOL_OFFSET_PERIOD / 8] & 1) ||
        e->of[g->slot].starts || g->debt_ns + 2 * x.T > x.now || g->attached_ns + x.T / 8 >= x.before_ns ||
        (g->rare_ns >= x.before_ns && (since > x.T / 4 || !g->has || g->back_ns)) ||
        /* rarer ones: in the first quarter */ spent + n > min_of(e->of[g->slot].limit, issued) ||
        ((!g->has || g->epoch != x.shown) && (s->remote || since <= x.T / 4 || x.config.poll_ns > x.T / 8)))
        return;
    steady = g->unsteady_ns < x.begun_ns && g->has && (s->wants == ALL || (s->wants < BURSTS && !s->forced));
    /* What it returned in an epoch, and then missed, it keeps in those that are like it. */
    if (s->wants == TAIL && g->missed <= g->odd)
        g->missed = x.number, g->lent = 0;
    if (g->missed == x.number)
        g->lent = max_of(g->lent, g->info.gained);
    learned = s->wants == TAIL && g->has && x.number > g->missed + 1 && s->gap_ns <= x.T / 64 && !s->forced &&
              !world_choice(x.w, world_of(s->cohort, F_PAUSE)); /* seed 1225 */
    if (g->has && g->epoch == x.shown)
        spent = max_of(spent, g->spent); /* with debts */
    else if (g->carried || g->before || (g->has && g->spent > min_of(g->info.kept + g->info.gained, g->info.limit)))
        return;
    issued -= learned ? min_of(issued, g->lent) : 0;
    left = learned ? x.T - x.T / 10 : steady ? x.T : x_sub(x.T, since + 2 * x.check_ns);
    left = (uint64_t)((double)issued * (double)left / (double)x.T * 0.999);
    if (steady && s->wants != ALL &&
        (double)issued * (double)x_sub(x.T, since) < (double)(2 * s->size + 2) * (double)x.T)
        return; /* it wants whole requests, and returns the rest of R at the end */
    if (spent + n + (steady || learned ? s->size : 0) + 2 <= left)
        world_fail(x.w, "reservation", x.now,
                   "client %" PRIu32 " is refused %" PRIu64 " tokens (%s): %" PRIu64 " spent of %" PRIu64
                   ", %.4f T after the epoch began",
                   s->id, n, qos_strerror(status), spent, issued, (double)since / (double)x.T);
}

/* When it should come. */
static uint64_t x_told(const struct x_engine *g, uint64_t need)
{
    uint64_t shown = x.now + g->offset_ns;
    return tokenpool_client_next_ns(&g->client, shown, need);
}

/* Operations of a transport. Those that are slow, or are lost, end later, at another event. */
static void x_transport(struct x_engine *g, uint64_t need)
{
    struct x_slot *s = &x.slot[g->slot];
    uint64_t report, told = x_told(g, need);
    uint32_t k;
    if (g->pending && tokenpool_client_next(&g->client, x.now + g->offset_ns, need, &g->op))
        world_fail(x.w, "waits", x.now, "client %" PRIu32 " has an operation while one is under way", s->id);
    for (k = 0; k < 300 && !g->pending && tokenpool_client_next(&g->client, x.now + g->offset_ns, need, &g->op); k++) {
        bool turns = s->turns && x.number && x_sub(x.begun_ns + x.T, x.now) < x.T / 32 && world_chance(&x.last, 300);
        bool lost = x_chance(s->lost) || (turns && s->lost && world_chance(&x.last, 400));
        g->claims += g->op.offset_bytes == 0 && g->op.kind != TOKENPOOL_READ;
        if (k == 0 && told > x.now + g->offset_ns)
            world_fail(x.w, "waits", x.now, "client %" PRIu32 " is told to come %.6f T later, and has an operation now",
                       s->id, (double)(told - x.now - g->offset_ns) / (double)x.T);
        if (s->delays || lost || turns) {
            g->pending = true;
            g->performed = false;
            g->lost = lost;
            g->perform_ns = x.now + world_between(&x.rng, 0, x.T / (s->delays ? 64 : 4096));
            if (turns) /* it arrives when the next epoch has begun */
                g->perform_ns = x.begun_ns + x.T + world_between(&x.last, 0, x.T / 256);
            g->answer_ns = g->perform_ns + world_between(&x.rng, 0, x.T / (s->delays ? 64 : 4096));
            if (lost && !turns && x_chance(500))
                g->perform_ns = WORLD_NEVER; /* it never arrives */
            return;
        }
        report = *x_report(s);
        tokenpool_client_done(&g->client, tokenpool_storage_run(storage, &g->op));
        x_account(g, 0, report);
    }
}

/* All operations that are due. */
static void x_operate(struct x_engine *g, uint64_t need)
{
    const struct x_slot *s = &x.slot[g->slot];
    uint64_t report = *x_report(s);
    uint64_t told = x_told(g, need), touched = g->touched;
    g->asks = need;
    if (s->remote)
        x_transport(g, need);
    else
        tokenpool_client_run(&g->client, x.now + g->offset_ns, need);
    if (!s->remote && touched != g->touched && told > x.now + g->offset_ns)
        world_fail(x.w, "waits", x.now, "client %" PRIu32 " is told to come %.6f T later, and has an operation now",
                   s->id, (double)(told - x.now - g->offset_ns) / (double)x.T);
    x_account(g, 0, report);
}

static void x_attach(struct x_engine *g)
{
    struct x_slot *s = &x.slot[g->slot];
    enum qos_status st;
    bool knows = s->joined && !s->fresh && !s->changed && x.shown;
    uint32_t generation = x_chance(300) && knows ? (uint32_t)s->generation : 0, k = g->slot;
    uint64_t offset = g->offset_ns, next = g->next_ns, back = g->back_ns;
    memset(g, 0, sizeof *g);
    g->slot = k;
    g->used = true;
    g->offset_ns = offset;
    g->next_ns = next;
    g->back_ns = back;
    if (s->remote)
        st =
            tokenpool_client_attach_remote(&g->client, s->id, generation, &storage[TOKENPOOL_OFFSET_HEAD / 8], x.bytes);
    else
        st = tokenpool_client_attach(&g->client, s->id, generation, storage, x.bytes);
    g->out = st != QOS_OK; /* the head was hit: tries again */
    if (g->out && !x_strayed())
        world_fail(x.w, "attach", x.now, "client %" PRIu32 ": %s", s->id, qos_strerror(st));
    g->attached_ns = g->rare_ns = g->seldom_ns = g->unsteady_ns = g->called_ns = x.now;
    s->engine = (uint32_t)(g - x.engine);
    x_current()->of[k].starts++;
    world_trace(x.now, s->id, "attach", s->engine);
}

/* A request that has to wait counts once as refused, and once as one that waited when it can be granted. */
static void x_judge_refusals(struct x_engine *g, uint64_t n, enum qos_status st, const struct qos_stats *before)
{
    const struct x_slot *s = &x.slot[g->slot];
    struct qos_stats stats = {0};
    bool lacks = (st == QOS_EAGAIN || st == QOS_ELIMIT) && g->has && n > g->info.held;
    bool plain = s->wants != BURSTS && !s->forced && !world_choice(x.w, F_PUT_BACK) && !s->remote && !x.hit;
    uint64_t more;
    (void)tokenpool_client_stats(&g->client, QOS_NONE, &stats);
    more = stats.refused - before->refused;
    if (more > lacks || (plain && lacks && !g->waits && more == 0) ||
        (plain && st == QOS_OK && stats.waited != stats.refused))
        world_fail(x.w, "client_stats", x.now,
                   "client %" PRIu32 ", a take of %" PRIu64 ": %s; %" PRIu64 " refused before, now %" PRIu64
                   ", %" PRIu64 " waited",
                   s->id, n, qos_strerror(st), before->refused, stats.refused, stats.waited);
    g->waits = st == QOS_OK ? false : g->waits || lacks;
}

static enum qos_status x_take(struct x_engine *g, uint64_t n)
{
    struct x_slot *s = &x.slot[g->slot];
    uint64_t shown = x.now + g->offset_ns, report;
    bool sure;
    enum qos_status st;
    struct qos_stats before = {0};
    if (s->remote)
        x_operate(g, n);
    g->asks = n;
    report = *x_report(s);
    sure = g->has && n <= g->info.held && shown < g->info.deadline_ns && n <= x.client_capacity && !s->remote &&
           g->info.limit == TOKENPOOL_TOKENS_MAX && !x.twins && !x.lied && !x.hit && !x.churns;
    if (sure && n <= tokenpool_client_held(&g->client) && x.now == g->called_ns &&
        tokenpool_client_next_ns(&g->client, shown, n) != shown)
        world_fail(x.w, "waits", x.now, "client %" PRIu32 " holds %" PRIu64 ", and is told to come later for %" PRIu64,
                   s->id, g->info.held, n);
    (void)tokenpool_client_stats(&g->client, QOS_NONE, &before);
    st = tokenpool_client_take(&g->client, shown, n);
    x_account(g, st == QOS_OK ? (int64_t)n : 0, report);
    x_judge_refusals(g, n, st, &before);
    if (st == QOS_OK) {
        x_spend(g, n, false);
        g->took_ns = x.now;
        g->open += n;
        if (!x_chance(world_choice(x.w, F_PUT_BACK) ? 300 : 50)) {
            tokenpool_client_complete(&g->client, g->open);
            g->open = 0;
        }
        return st;
    }
    if (sure && n <= g->info.held)
        world_fail(x.w, "account", x.now, "client %" PRIu32 " holds %" PRIu64 " tokens, and is refused %" PRIu64 ": %s",
                   s->id, g->info.held, n, qos_strerror(st));
    x_refused(g, n, st);
    if (!g->info.stale && !s->remote && !x.lied && !x_strayed() && !s->forced &&
        tokenpool_client_next_ns(&g->client, shown, n) <= shown)
        world_fail(x.w, "waits", x.now, "client %" PRIu32 " is refused, and told to come at once", s->id);
    return st;
}

/* A configuration with one value out of its range, or, if it holds, at its end. */
static struct tokenpool_config x_odd_config(bool *holds, enum qos_status *want)
{
    struct tokenpool_config c = x.config;
    const uint64_t tokens = TOKENPOOL_TOKENS_MAX, period = TOKENPOOL_PERIOD_NS_MAX;
    uint64_t more = world_between(&x.odd, 0, 1);
    *holds = more == 0;
    *want = QOS_ERANGE;
    switch (world_between(&x.odd, 0, 18)) {
    case 14: c.lease_ns = x.check_ns - (x.check_ns > 1 ? more : 0), *holds = *holds || x.check_ns == 1; break;
    case 15: c.batch = (uint32_t)(TOKENPOOL_BATCH_MAX + more); break;
    case 16: c.clients = TOKENPOOL_CLIENTS_MAX, c.batch = (uint32_t)(1024 + more); break;
    case 17: c.clients = (uint32_t)(TOKENPOOL_CLIENTS_MAX + more), c.batch = 1; break;
    case 18: *(world_chance(&x.odd, 500) ? &c.equal_within : &c.capacity_step) = tokens + more; break;
    case 0: c.clients = more ? 0 : 1; break;
    case 1: c.history = (uint32_t)(TOKENPOOL_HISTORY_MAX + more); break;
    case 2: c.silent_periods = UINT32_MAX + more; break;
    case 3: c.period_ns = 8 - more, c.check_ns = c.poll_ns = c.lease_ns = 0; break;
    case 4: c.period_ns = period + more, c.lease_ns = 0; break;
    case 5: c.check_ns = x.T + more, c.poll_ns = c.lease_ns = 0; break;
    case 6: c.poll_ns = x.check_ns + more; break;
    case 7: c.lease_ns = period + more; break;
    case 8: c.capacity = tokens + more, c.batch = c.batch ? c.batch : 1; break;
    case 9: c.client_capacity = x.C + more; break;
    case 10: c.overrun = tokens + more; break;
    case 11: c.debt_max = tokens + more; break;
    case 12: c.equal_within = c.capacity_step = tokens + more; break;
    default: c.flags |= more ? 16 : TOKENPOOL_GO_ON, *want = QOS_EINVAL; break;
    }
    return c;
}

/* Operations on words of ours, and the fields of a pool word. */
static bool x_words(void)
{
    static uint64_t words[4];
    uint64_t old = world_rand(&x.last), v = world_rand(&x.last), at = world_between(&x.last, 0, 3), answer, want;
    bool same = world_chance(&x.last, 500);
    struct tokenpool_op op = {TOKENPOOL_READ, 8 * at, v, 0};
    int64_t count = (int64_t)(old >> 32) - (old >> 63 ? INT64_C(0x100000000) : 0);
    op.kind = (enum tokenpool_kind)world_between(&x.last, TOKENPOOL_READ, TOKENPOOL_COMPARE_SWAP);
    op.compare = same ? old : ~old;
    memset(words, 0, sizeof words);
    words[at] = old;
    answer = tokenpool_storage_run(words, &op);
    want = op.kind == TOKENPOOL_WRITE || (op.kind == TOKENPOOL_COMPARE_SWAP && same) ? v
           : op.kind == TOKENPOOL_FETCH_ADD                                          ? qos_wrap_add(old, v)
                                                                                     : old;
    return (op.kind == TOKENPOOL_WRITE || answer == old) && words[at] == want && words[(at + 1) % 4] == 0 &&
           tokenpool_word_count(old) == count && tokenpool_word_epoch(old) == (old >> 12 & 0xfffff);
}

/* Calls that begin something, with wrong arguments: of an engine, or of a monitor. */
static enum qos_status x_wrong_begin(const struct x_slot *s, enum qos_status *want)
{
    static struct tokenpool_client client;
    static struct tokenpool_monitor m;
    static uint64_t mem[4096] __attribute__((aligned(64))), head[TOKENPOOL_HEAD_BYTES / 8];
    size_t bytes = tokenpool_monitor_memsize(&x.config);
    struct tokenpool_config config = x.config;
    struct tokenpool_slot_state slot_state;
    struct qos_stats slot_stats;
    bool holds;
    memcpy(head, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof head);
    head[world_between(&x.odd, 0, 7)] ^= UINT64_C(1) << world_between(&x.odd, 0, 63);
    if (world_chance(&x.last, 200)) {
        *want = QOS_OK;
        return x_words() ? QOS_OK : QOS_ECORRUPT;
    }
    switch (world_between(&x.odd, 0, 15)) {
    case 11:
        memcpy(head, &storage[TOKENPOOL_OFFSET_HEAD / 8], sizeof head);
        head[0] ^= UINT64_C(1) << world_between(&x.odd, 16, 31);
        head[7] = qos_crc32c(0, head, 7 * sizeof *head);
        *want = QOS_EVERSION;
        return tokenpool_client_attach_remote(&client, s->id, 0, head, x.bytes);
    case 12:
        *want = QOS_ENOENT;
        return tokenpool_client_attach_remote(&client, x.clients, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], x.bytes);
    case 13:
        *want = QOS_EMEMORY;
        return tokenpool_client_attach_remote(&client, s->id, 0, &storage[TOKENPOOL_OFFSET_HEAD / 8], x.bytes - 8);
    case 14:
        *want = QOS_ENOENT;
        if (x.owner >= 2)
            return QOS_ENOENT;
        return tokenpool_monitor_slot_info(&x.monitor[x.owner].m, x.clients, &slot_state);
    case 15:
        *want = QOS_ENOENT;
        if (x.owner >= 2)
            return QOS_ENOENT;
        return tokenpool_monitor_stats(&x.monitor[x.owner].m, x.clients, &slot_stats);
    case 0: *want = QOS_EINVAL; return tokenpool_client_attach(&client, s->id, 0, NULL, x.bytes);
    case 1: *want = QOS_EALIGN; return tokenpool_client_attach(&client, s->id, 0, storage + 1, x.bytes);
    case 2: *want = QOS_ESTALE; return tokenpool_client_attach(&client, s->id, 200, storage, x.bytes);
    case 3: *want = QOS_EINVAL; return tokenpool_client_attach_remote(&client, s->id, 0, NULL, x.bytes);
    case 4: *want = QOS_ECORRUPT; return tokenpool_client_attach_remote(&client, s->id, 0, head, x.bytes);
    case 5: *want = QOS_EMEMORY; return tokenpool_monitor_init(&m, mem, bytes - 64, storage, x.bytes, &config);
    case 6: *want = QOS_EALIGN; return tokenpool_monitor_resume(&m, mem + 1, sizeof mem - 8, storage, x.bytes, &config);
    case 7: *want = QOS_EMEMORY; return tokenpool_monitor_init(&m, mem, sizeof mem, storage, x.bytes - 8, &config);
    case 8:
        *want = QOS_ECORRUPT;
        if (world_chance(&x.odd, 500))
            config.flags ^= TOKENPOOL_GUARD;
        else if (world_chance(&x.odd, 500))
            config.check_ns = x.check_ns > 1 ? x.check_ns - 1 : 2, config.lease_ns = x.T, config.poll_ns = 1;
        else
            config.debt_max = x.debt_max > 1 ? x.debt_max - 1 : 2;
        return tokenpool_monitor_resume(&m, mem, sizeof mem, storage, x.bytes, &config);
    default: config = x_odd_config(&holds, want); break;
    }
    if (!holds && tokenpool_config_error(&config) && !tokenpool_storage_memsize(&config) &&
        !tokenpool_monitor_memsize(&config))
        return tokenpool_monitor_init(&m, mem, sizeof mem, storage, x.bytes, &config);
    if (holds && !tokenpool_config_error(&config) && tokenpool_storage_memsize(&config) &&
        tokenpool_monitor_memsize(&config))
        return *want;
    return holds ? QOS_ESTALE : QOS_OK; /* refused, or not */
}

/* A call that must be refused, and change nothing. */
static void x_wrong(struct x_engine *g)
{
    static uint64_t copy[1024];
    const struct x_slot *s = &x.slot[g->slot];
    struct tokenpool_client before = g->client;
    uint64_t shown = x.now + g->offset_ns;
    enum qos_status st = QOS_OK, want = QOS_ERANGE;
    struct qos_stats stats;
    memcpy(copy, storage, x.bytes);
    if (world_chance(&x.odd, 500)) {
        st = x_wrong_begin(s, &want);
    } else
        switch (world_between(&x.rng, 0, 6)) {
        case 0: st = tokenpool_client_take(&g->client, shown, 0); break;
        case 1: st = tokenpool_client_take(&g->client, shown, x.client_capacity + 1); break;
        case 2: st = tokenpool_client_force(&g->client, shown, 0); break;
        case 3: st = tokenpool_client_force(&g->client, shown, TOKENPOOL_TOKENS_MAX + 1); break;
        case 4: want = QOS_ENOENT, st = tokenpool_client_stats(&g->client, s->id + 1, &stats); break;
        case 5: want = QOS_ENOENT, st = tokenpool_client_attach(&g->client, x.clients, 0, storage, x.bytes); break;
        default: want = QOS_EMEMORY, st = tokenpool_client_attach(&g->client, s->id, 0, storage, x.bytes - 8); break;
        }
    if (st != want || memcmp(&before, &g->client, sizeof before) != 0 || memcmp(copy, storage, x.bytes) != 0)
        world_fail(x.w, "unchanged", x.now, "client %" PRIu32 ": a wrong call says %s, %s", s->id, qos_strerror(st),
                   st != want ? "not what is promised" : "and changes something");
}

static void x_put_back(struct x_engine *g)
{
    const struct x_slot *s = &x.slot[g->slot];
    struct x_epoch *e = x_of(g->epoch);
    uint64_t shown = x.now + g->offset_ns, epoch = g->info.epoch, n = world_between(&x.rng, 1, 2 * s->size), was;
    uint64_t report = *x_report(s);
    enum qos_status st;
    if (x_chance(400))
        epoch = x_chance(500) ? x_sub(epoch, 1) : epoch + 1;
    if (g->spent != g->took || g->took != g->open) /* no debts, and nothing that was done */
        n = min_of(n, g->open);
    was = g->spent;
    st = tokenpool_client_put_back(&g->client, shown, epoch, n);
    if ((st == QOS_OK) != (g->has && epoch == g->epoch) || (st != QOS_OK && st != QOS_ESTALE))
        world_fail(x.w, "outside", x.now,
                   "client %" PRIu32 " puts back tokens of epoch %" PRIu64 " in epoch %" PRIu64 ": %s", s->id, epoch,
                   g->epoch, qos_strerror(st));
    world_trace(x.now, s->id, "put_back", st == QOS_OK ? n : 0);
    x_account(g, st == QOS_OK ? -(int64_t)n : 0, report);
    if (st != QOS_OK || e->epoch != g->epoch)
        return;
    n = min_of(min_of(n, was), e->of[g->slot].spent);
    e->spent -= n;
    e->of[g->slot].spent -= n;
    g->took = x_sub(g->took, n);
    g->open = x_sub(g->open, n);
    g->unsteady_ns = x.now;
    g->odd = x.number;
}

static void x_force(struct x_engine *g)
{
    const struct x_slot *s = &x.slot[g->slot];
    uint64_t shown = x.now + g->offset_ns, n = world_between(&x.rng, 1, 2 * s->size), debt, held, report, spent;
    uint64_t unreported;
    bool must;
    enum qos_status st;
    report = *x_report(s);
    g->asks = n;
    st = tokenpool_client_force(&g->client, shown, n);
    x_account(g, st == QOS_OK ? (int64_t)n : 0, report);
    spent = g->spent - (st == QOS_OK && g->has ? n : 0);
    held = g->has ? x_sub(min_of(g->info.kept + g->info.gained, g->info.limit), spent) : 0;
    debt = g->has ? x_sub(spent, min_of(g->info.kept + g->info.gained, g->info.limit))
                  : g->carried + g->before - (st == QOS_OK ? n : 0);
    must = n > held && (x.debt_max == 0 || debt > x.debt_max);
    /* behind a transport more needs a report, and of who rests all */
    unreported = x.debt_max + (s->slow || s->lost || !(report >> 52 & 3) ? 0 : x_start_costs(g->info.reservation));
    if (!g->vague && !(x.hit && (s->slow || s->lost)) && /* its debt may be of what a stray store said */
        (g->info.stale        ? st != QOS_ESTALE
         : s->remote && !must ? st == QOS_EDEBT && spent + n <= unreported
                              : (st == QOS_EDEBT) != must))
        world_fail(x.w, "debt", x.now,
                   "client %" PRIu32 " forces %" PRIu64 ": %" PRIu64 " held, a debt of %" PRIu64 ": %s", s->id, n, held,
                   debt, qos_strerror(st));
    if (st == QOS_OK)
        x_spend(g, n, true);
}

/* A client lies: any report of its own. */
static void x_lie(struct x_engine *g)
{
    struct x_slot *s = &x.slot[g->slot];
    uint64_t k = x_chance(500) ? X_MASK : world_between(&x.rng, 0, X_MASK);
    uint64_t n = x_chance(500) ? X_MASK : world_between(&x.rng, 0, 2 * x.C);
    *x_report(s) = x_tag(x.shown) << 59 | world_between(&x.rng, 1, 7) << 56 | world_between(&x.rng, 0, 3) << 54 |
                   world_between(&x.rng, 0, 3) << 52 | k << 26 | n;
    s->wrote = x.number;
    s->lied = x.lied = true;
    x.lied_number = x.number;
    s->engine = X_NOBODY;
    g->used = false;
}

/* One client can do client_capacity in a period. Beside a stray store that counts: all of it is not taken at once. */
static bool x_can(const struct x_engine *g)
{
    uint64_t since = x.number == x.hit_number ? x.hit_ns : x.begun_ns, spent = x_of(x.began)->of[g->slot].spent;
    double age = (double)(x.now - since) / (double)x.T + 1.0 / 64;
    spent = x_sub(spent, x.number == x.hit_number ? x.slot[g->slot].before : 0);
    return !x_strayed() || (double)(spent + 2 * x.slot[g->slot].size) <= (double)x.client_capacity * age;
}

/* What its process wants from its engine in one call. */
static void x_work(struct x_engine *g)
{
    struct x_slot *s = &x.slot[g->slot];
    enum qos_status st = QOS_OK;
    uint32_t k;
    if (s->wants == BURSTS && x_chance(700)) {
        for (k = (uint32_t)world_between(&x.rng, 1, 20); k > 0 && x_can(g); k--)
            if (x_take(g, min_of(world_between(&x.rng, 1, 2 * s->size), x.client_capacity)) != QOS_OK)
                break;
        return;
    }
    if (s->wants == IDLE || s->wants == BURSTS || (s->wants != ALL && g->due < (double)s->size)) {
        g->unsteady_ns = x.now;
        x_operate(g, 0);
        return;
    }
    for (k = 0; k < 5000 && st == QOS_OK && (s->wants == ALL || g->due >= (double)s->size) && x_can(g); k++) {
        st = x_take(g, s->size);
        g->due -= st == QOS_OK ? (double)s->size : 0;
    }
    if (st != QOS_OK && s->wants != ALL)
        g->unsteady_ns = x.now;
}

/* Of who wants most of it late: 0.15 R until T / 2, all of it until 0.95 T. */
static double x_arrives(const struct x_slot *s, uint64_t age_ns)
{
    double age = (double)age_ns / (double)x.T, r = (double)s->reservation;
    return age < 0.5 ? 0.3 * age * r : age < 0.95 ? (0.15 + (age - 0.5) * 0.85 / 0.45) * r : r;
}

/* A call of an engine of the storage before: it has tokens until the end of its epoch, and then attaches again. */
static void x_older_call(struct x_engine *g)
{
    struct x_slot *s = &x.slot[g->slot];
    uint64_t shown = x.now + g->offset_ns;
    enum qos_status st = QOS_EAGAIN;
    if (!s->remote)
        st = tokenpool_client_take(&g->client, shown, 1);
    if (s->remote || st == QOS_ESTALE || x.now > g->called_ns + 3 * x.T) {
        g->older = false;
        g->used = s->engine == X_NOBODY;
        if (!s->remote && st != QOS_ESTALE)
            world_fail(x.w, "stale", x.now,
                       "client %" PRIu32 " has an engine of another storage for %.3f T, and is told %s", s->id,
                       (double)(x.now - g->called_ns) / (double)x.T, qos_strerror(st));
        if (g->used)
            x_attach(g);
    } else if (st == QOS_OK && shown >= g->info.deadline_ns && x.shown)
        world_fail(x.w, "outside", x.now, "client %" PRIu32 " spends a token of another storage", s->id);
    g->next_ns = x.now + x.T / 64 + 1;
}

static void x_engine_call(struct x_engine *g)
{
    struct x_slot *s = &x.slot[g->slot];
    bool mine = s->engine == (uint32_t)(g - x.engine);
    uint64_t shown = x.now + g->offset_ns, next;
    x.actor = (uint32_t)(g - x.engine);
    world_trace(x.now, s->id, "call", x.actor);
    if (g->older) {
        x_older_call(g);
        return;
    }
    if (s->backs && (!g->pending || s->delays) && !x_strayed() && x.now > g->back_ns + 2 * x.T &&
        world_chance(&x.last, 20)) {
        /* it may have taken since its last tick without a note of the time */
        uint64_t by =
            max_of(x.check_ns, x.T / 8192) + world_between(&x.last, 1, world_chance(&x.last, 500) ? x.T / 16 : 2 * x.T);
        if (g->shown_ns >= x.now + by) {
            shown = g->shown_ns - by;
            g->offset_ns = shown - x.now;
            g->back_ns = x.now;
            g->odd = x.number; /* nothing decays until the next epoch */
        }
        world_trace(x.now, s->id, "back", g->offset_ns);
    }
    g->shown_ns = shown;
    if (x.now > g->called_ns + x.T / 4)
        g->rare_ns = x.now;
    if (x.now > g->called_ns + x.T / 512 + 1)
        g->seldom_ns = x.now;
    if (x.now > g->took_ns + x.T / 8 || x.taken || s->changed)
        g->odd = x.number;
    if (s->wants == TAIL)
        g->due += x_arrives(s, x_sub(x.now, x.begun_ns)) - x_arrives(s, x_sub(g->called_ns, x.begun_ns));
    else if (x.now > g->called_ns)
        g->due += s->per_ns * (double)(x.now - g->called_ns);
    g->due = g->due > (double)s->reservation ? (double)s->reservation : g->due;
    g->called_before_ns = g->called_ns;
    g->called_ns = x.now;
    if (g->out) {
        g->next_ns = x.now + 1 + x.T / 64;
        x_attach(g);
        return;
    }
    if (!x_strayed() && x_chance((uint32_t)world_value(x.w, F_WRONG)))
        x_wrong(g);
    if (x_chance(20)) {
        tokenpool_client_hint(&g->client);
        g->hinted = g->has && !s->remote && !x_strayed();
        g->looked = false;
    }
    x_work(g);
    if (g->hinted && !g->looked && !g->info.stale)
        world_fail(x.w, "hint", x.now, "client %" PRIu32 " is told of a period, and does not look", s->id);
    g->hinted = false;
    if (x_chance((uint32_t)world_value(x.w, F_PUT_BACK)))
        x_put_back(g);
    if (x_chance(s->forced))
        x_force(g);
    if (s->many && x_chance(30))
        tokenpool_client_set_queued(&g->client, x_chance(500)   ? 0
                                                : x_chance(500) ? TOKENPOOL_BACKLOGGED
                                                                : world_between(&x.rng, 1, x.C));
    g->next_ns = x.now + 1 + x.T / 64;
    if (g->info.stale && !mine) {
        g->used = false; /* it was replaced, and knows it */
        return;
    }
    if (g->info.stale) {
        x_attach(g);
        return;
    }
    next = tokenpool_client_next_ns(&g->client, shown, s->wants == ALL ? s->size : 0);
    if (next > shown + (g->info.running ? 0 : x.T) + x.check_ns)
        world_fail(x.w, "waits", x.now, "client %" PRIu32 " is told to wait for %.3f T", s->id,
                   (double)(next - shown) / (double)x.T);
    if (s->gap_ns == 0)
        g->next_ns = x.now + max_of(next - shown, x.ordered ? x.T / 1024 : x.T / 256);
    else
        g->next_ns = x.now + (x_chance(300) ? world_between(&x.rng, 1, s->gap_ns) : s->gap_ns);
    if (world_choice(x.w, world_of(s->cohort, F_PAUSE)) && x_chance(4))
        g->next_ns += world_between(&x.rng, 1, (x_chance(200) ? 40 : 3) * x.T);
}

/* The process of a client starts anew; the former one may go on for a while. */
static void x_restart(struct x_slot *s)
{
    uint32_t k, i = (uint32_t)(s - x.slot);
    struct x_engine *g = NULL;
    if (!x.twins && s->engine != X_NOBODY)
        x.engine[s->engine].used = false;
    for (k = 0; k < x.engines; k++)
        if (!x.engine[k].used && x.engine[k].slot == i)
            g = &x.engine[k];
    if (!g)
        return;
    x.actor = (uint32_t)(g - x.engine);
    g->next_ns = x.now + world_between(&x.rng, 0, s->gap_ns + x.T / 64);
    if (x_chance(300))
        g->next_ns += world_between(&x.rng, 0, (x_chance(200) ? 40 : 3) * x.T); /* it was away */
    x_attach(g);
}

/* ---- terms ---------------------------------------------------------------------------------------------------------------------- */

static uint64_t x_others(const struct x_slot *s)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < x.slots; i++)
        sum += &x.slot[i] != s && x.slot[i].joined ? x.slot[i].reservation : 0;
    return sum;
}

static void x_rate(struct x_slot *s)
{
    double all = (double)s->reservation / (double)x.T;
    s->per_ns = s->wants == HALF ? 0.5 * all : s->wants == MOST ? all : 0;
}

/* It joined. */
static void x_joined(struct x_monitor *m, struct x_slot *s)
{
    struct tokenpool_slot_state state = {0};
    s->joined = s->fresh = s->again = true;
    s->silent = false;
    s->silences = s->under = s->used = s->done = s->beyond = 0;
    s->demand = 3;
    s->weight = 1;
    (void)tokenpool_monitor_slot_info(&m->m, s->id, &state);
    if (state.generation == s->generation || state.generation == 0 || state.generation > 127)
        world_fail(x.w, "slot_info", x.now, "client %" PRIu32 " joins, and its generation is %" PRIu32, s->id,
                   state.generation);
    s->generation = state.generation;
}

/* join and change, right and wrong ones. *want: what it should say. */
static enum qos_status x_admit(struct x_monitor *m, struct x_slot *s, uint32_t id, bool holds, enum qos_status *want)
{
    uint64_t r = world_between(&x.rng, 0, x_chance(300) ? x.C : x.C / x.slots), fits = QOS_NEVER;
    uint64_t limit = x_chance(500) ? 0 : r + world_between(&x.rng, 0, x.C / 4), most;
    bool joins = !s->joined || x_chance(50);
    enum qos_status st;
    if (joins && ++s->joins > 5) /* incarnations repeat after seven */
        id = x.clients;
    if (x_chance(150))
        limit = x_chance(300) ? QOS_UNLIMITED : x_sub(r, 1); /* below it */
    if (x_chance(30))
        r = TOKENPOOL_TOKENS_MAX + 1;
    most = max_of(min_of(x_sub(x.C, x_others(s)), x.client_capacity), s->joined ? s->reservation : 0);
    *want =
        id >= x.clients      ? QOS_ENOENT
        : joins && s->joined ? QOS_EEXIST
        : r > TOKENPOOL_TOKENS_MAX || (limit != QOS_UNLIMITED && (limit > TOKENPOOL_TOKENS_MAX || (limit && limit < r)))
            ? QOS_ERANGE
        : !holds   ? QOS_ESTALE
        : r > most ? QOS_EADMISSION
                   : QOS_OK;
    st = joins ? tokenpool_monitor_join(&m->m, id, r, limit, &fits)
               : tokenpool_monitor_change(&m->m, id, r, limit, &fits);
    if (!x.fixed && (st == QOS_EADMISSION || *want == QOS_EADMISSION))
        *want = st;
    m->refused += st == QOS_EADMISSION;
    if (st == QOS_EADMISSION && x.fixed && fits != most)
        world_fail(x.w, "admission", x.now, "%" PRIu64 " would fit, not %" PRIu64, most, fits);
    if (st != QOS_OK)
        return st;
    s->reservation = r;
    s->limit = limit && limit != QOS_UNLIMITED ? limit : TOKENPOOL_TOKENS_MAX;
    s->changed = true;
    if (s->engine != X_NOBODY)
        x.engine[s->engine].unsteady_ns = x.now;
    if (joins)
        x_joined(m, s);
    x_rate(s);
    return st;
}

static void x_terms(struct x_monitor *m, struct x_slot *s)
{
    uint32_t id = s->id, kind = (uint32_t)world_between(&x.rng, x.weighs ? 9 : 0, 9);
    uint32_t weight = (uint32_t)world_between(&x.rng, 0, 5), i;
    uint64_t weights = 0;
    enum qos_status st, want;
    struct tokenpool_monitor_state info;
    bool holds;
    (void)tokenpool_monitor_info(&m->m, &info);
    holds = info.active;
    x.actor = X_MONITOR + (uint32_t)(m - x.monitor);
    if (x_chance(30))
        id = x.clients + (uint32_t)world_between(&x.rng, 0, 1);
    if (kind == 9) {
        weight = x_chance(100) ? TOKENPOOL_WEIGHT_MAX + 1 : weight;
        if (world_chance(&x.last, 100))
            weight = (uint32_t)world_between(&x.last, 1, TOKENPOOL_WEIGHT_MAX + 1), x.heavy = true;
        for (i = 0; i < x.slots; i++)
            weights += x.slot[i].joined && &x.slot[i] != s ? x.slot[i].weight : 0;
        want = id >= x.clients || !s->joined                         ? QOS_ENOENT
               : weight == 0 || weight > TOKENPOOL_WEIGHT_MAX        ? QOS_ERANGE
               : (weights + weight) * x.batch > TOKENPOOL_CLAIMS_MAX ? QOS_EADMISSION
               : holds                                               ? QOS_OK
                                                                     : QOS_ESTALE;
        st = tokenpool_monitor_set_weight(&m->m, id, weight);
        s->weight = st == QOS_OK ? weight : s->weight;
        s->weighed = s->weighed || st == QOS_OK;
    } else if (kind >= 6) {
        want = id >= x.clients || !s->joined ? QOS_ENOENT : holds ? QOS_OK : QOS_ESTALE;
        st = tokenpool_monitor_leave(&m->m, id);
        if (st == QOS_OK) {
            s->joined = s->fresh = s->silent = false;
            s->changed = true;
        }
    } else {
        st = x_admit(m, s, id, holds, &want);
    }
    world_trace(x.now, s->id, kind == 9 ? "weight" : kind >= 6 ? "leave" : "terms", (uint64_t)st);
    if (st != want)
        world_fail(x.w, "status", x.now, "client %" PRIu32 ", call %" PRIu32 ": %s, not %s", id, kind, qos_strerror(st),
                   qos_strerror(want));
    x_judge_slots(m);
}

/* ---- a world ---------------------------------------------------------------------------------------------------------------------- */

static uint64_t x_pick(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t k = world_rand(&x.rng) % 8;
    return k == 0 ? b : k == 1 ? c : k == 2 ? d : a;
}

static void x_draw(void)
{
    struct world *w = x.w;
    struct tokenpool_config *c = &x.config;
    static const uint64_t checks[] = {64, 16, 0, 1};
    uint64_t parts = checks[world_choice(w, F_CHECK)];
    bool rare = x_chance(400); /* any value in any field */
    uint32_t k, i, n;
    x.T = (uint64_t)world_value(w, F_PERIOD) * 1000;
    x.C = (uint64_t)world_value(w, F_CAPACITY);
    for (k = 0; k < WORLD_COHORTS; k++) {
        n = world_choice(w, world_of(k, F_NUMBER));
        for (i = 0; i < (n ? 1 + n % 3 : k == 0) && x.slots < X_SLOTS; i++) {
            x.slot[x.slots].cohort = k;
            x.slot[x.slots++].engine = X_NOBODY;
        }
    }
    x.clients = x_chance(700) ? x.slots : x_chance(500) ? X_SLOTS + 4 : X_CLIENTS;
    for (i = 0; i < x.slots; i++)
        x.slot[i].id = x.clients == x.slots ? i : i == 0 ? x.clients - 1 : i * 2 - 1;
    for (i = 0; i < x.slots && world_again == WORLD_PERMUTED; i++)
        x.slot[i].id = x.clients - 1 - x.slot[i].id;
    for (i = 0; i < x.slots; i++)
        x.slot_of[x.slot[i].id] = (uint8_t)(i + 1);
    c->batch = (uint32_t)world_value(w, F_BATCH);
    if (x.extreme) { /* values at their ends */
        static const uint64_t capacities[] = {1, 2, 7, TOKENPOOL_TOKENS_MAX, TOKENPOOL_TOKENS_MAX - 1, 1000000};
        k = (uint32_t)world_between(&x.last, 0, 9);
        x.C = k < 6 ? capacities[k] : x.C;
        x.T = k < 3 || k > 6 ? x.T : k == 3 ? TOKENPOOL_PERIOD_NS_MAX : k == 4 ? 65536 : x.T;
        c->batch = world_chance(&x.last, 400) ? (uint32_t)world_between(&x.last, 1, TOKENPOOL_BATCH_MAX) : c->batch;
    }
    c->clients = x.clients;
    c->capacity = x.C;
    c->period_ns = x.T;
    x.batch = min_of(max_of(1, (x.C + 7 * c->clients - 1) / (7 * c->clients)),
                     world_choice(w, F_GUARD) ? 1000 : TOKENPOOL_BATCH_MAX);
    x.batch = c->batch ? c->batch : x.batch;
    x.least = min_of(x.batch, max_of(1000, x.batch / 8)); /* a larger request is claimed in one piece */
    c->check_ns = parts ? x.T / parts : 0;
    x.check_ns = c->check_ns ? c->check_ns : min_of(1000000, x.T / (world_choice(w, F_ORDERED) ? 128 : 8));
    x.overrun = world_choice(w, F_OVERRUN) == 0 ? 0 : max_of(x.C / 5, 1);
    c->overrun = world_choice(w, F_OVERRUN) == 0 ? QOS_NOTHING : world_choice(w, F_OVERRUN) == 1 ? 0 : x.overrun;
    x.ordered = world_choice(w, F_ORDERED) != 0;
    x.guard = world_choice(w, F_GUARD) != 0;
    x.two = world_choice(w, F_MONITORS) != 0;
    x.weighs = x.ordered && x_chance(500);
    x.fixed = world_choice(w, F_FREE) == 0;
    c->flags = (x.ordered ? TOKENPOOL_ORDERED : 0) | (x.guard ? TOKENPOOL_GUARD : 0) | (x.fixed ? TOKENPOOL_FIXED : 0);
    c->silent_periods = world_choice(w, F_SILENT) == 0 ? 0 : world_choice(w, F_SILENT) == 1 ? QOS_UNLIMITED : 3;
    if ((x.two || x.hits || x.fails) &&
        c->silent_periods == 3) /* open: a monitor that takes the storage back goes on counting, seed 4786 */
        c->silent_periods = 1;
    if (rare) {
        c->alert_periods = (uint32_t)x_pick(0, 1, 2, 3);
        c->history = (uint32_t)x_pick(0, 1, 3, TOKENPOOL_HISTORY_MAX);
        c->poll_ns = x_pick(0, 1, x.check_ns, max_of(x.check_ns / 2, 1));
        c->lease_ns = min_of(x_pick(0, x.check_ns, x.T, 2 * x.check_ns), TOKENPOOL_PERIOD_NS_MAX);
        c->client_capacity = x_pick(0, x.C / 2, x.C, x.C);
        c->debt_max = x_pick(0, QOS_NOTHING, 1, x.C);
        c->equal_within = x_pick(0, QOS_NOTHING, 1, x.C);
        c->capacity_step = x_pick(0, QOS_NOTHING, 1, x.C);
    }
    x.lease_ns = c->lease_ns ? c->lease_ns : 16 * x.check_ns;
    x.client_capacity = c->client_capacity ? c->client_capacity : x.C;
    x.debt_max = c->debt_max == QOS_NOTHING ? 0 : c->debt_max ? c->debt_max : x.batch;
    x.silent_periods = c->silent_periods ? c->silent_periods : 1;
    x.alert_periods = c->alert_periods ? c->alert_periods : 10;
}

static void x_draw_slots(void)
{
    static const uint64_t gaps[] = {0, 512, 128, 64, 7, 4, 3, 1};
    struct world *w = x.w;
    uint64_t sum = 0, left = x.C;
    uint32_t i;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        uint32_t k = s->cohort, n = 0, j;
        uint64_t calls = gaps[world_choice(w, world_of(k, F_CALLS))];
        for (j = 0; j < x.slots; j++)
            n += x.slot[j].cohort == k;
        s->wants = (enum wants)world_choice(w, world_of(k, F_WANTS));
        s->remote = world_choice(w, world_of(k, F_TRANSPORT)) > 0;
        s->slow = world_choice(w, world_of(k, F_TRANSPORT)) == 2;
        s->lost = s->remote ? (uint32_t)world_value(w, world_of(k, F_LOST)) : 0;
        s->forced = (uint32_t)world_value(w, world_of(k, F_FORCE));
        s->lies = world_choice(w, world_of(k, F_LIES)) != 0 && !x.hits;
        s->delays = s->slow;
        s->turns = s->remote && x.turns;
        s->slow = s->slow || s->turns;
        s->lost = s->turns && s->lost == 0 && world_chance(&x.last, 500) ? 20 : s->lost;
        s->backs = x.backs && !x.hits;
        s->many = world_choice(w, world_of(k, F_QUEUED)) != 0;
        s->runs = (uint32_t)world_value(w, world_of(k, F_RUNS));
        s->reservation = (uint64_t)((double)x.C * world_value(w, world_of(k, F_RESERVED)) / 1000 / n);
        s->reservation = min_of(s->reservation, x.client_capacity);
        s->limit = (uint64_t)((double)s->reservation * world_value(w, world_of(k, F_LIMIT)) / 1000);
        s->size = max_of(1, (uint64_t)world_value(w, world_of(k, F_SIZE)) * x.C / 300);
        s->size = min_of(s->size, max_of(1, x.client_capacity / 4));
        s->size = s->limit ? min_of(s->size, s->limit) : s->size;
        s->size = s->wants == TAIL ? max_of(1, min_of(s->size, s->reservation / 100)) : s->size;
        s->limit = s->limit ? s->limit : TOKENPOOL_TOKENS_MAX;
        s->weight = 1;
        s->demand = 3;
        s->gap_ns = calls ? x.T / calls : 0;
        x_rate(s);
        sum += s->reservation;
        x.twins |= world_choice(w, world_of(k, F_TWIN)) != 0;
        x.lies |= s->lies;
        x.churns |= world_choice(w, world_of(k, F_CHURN)) != 0;
    }
    for (i = 0; x.full && sum && i < x.slots; i++) { /* nothing is left for the pool */
        struct x_slot *s = &x.slot[i];
        uint64_t r = i + 1 == x.slots ? left : (uint64_t)((double)s->reservation * (double)x.C / (double)sum);
        s->reservation = min_of(min_of(r, left), x.client_capacity);
        left -= s->reservation;
        s->limit = max_of(s->limit, s->reservation);
        x_rate(s);
    }
}

/* Numbers near their ends: generations by joins, takeovers, and the epoch, which only the pool word has, so a monitor that
 * takes it over goes on from there. */
static void x_wrap(struct x_monitor *m)
{
    uint64_t n = world_between(&x.last, 118, 126), k, of = world_between(&x.last, 0, x.slots - 1);
    struct x_slot *s = &x.slot[of];
    enum qos_status st = QOS_OK;
    for (k = 0; k < n && st == QOS_OK; k++) {
        st = tokenpool_monitor_leave(&m->m, s->id);
        if (st == QOS_OK)
            st = tokenpool_monitor_join(&m->m, s->id, s->reservation, s->limit == TOKENPOOL_TOKENS_MAX ? 0 : s->limit,
                                        NULL);
        x_joined(m, s);
    }
    if (st != QOS_OK)
        world_fail(x.w, "status", 0, "client %" PRIu32 " leaves and joins: %s", s->id, qos_strerror(st));
    if (x.far || x.hits)
        return;
    x.renewing = true;
    for (k = 0; k < 98; k++, x.now += k % 2 ? 0 : x.T) /* 49 epochs, so that no number comes twice: each in two calls */
        tokenpool_monitor_run(&m->m, x.now + m->offset_ns);
    x.now -= x.T;
    x.renewing = false;
    n = UINT64_C(0xfffff) - world_between(&x.last, 0, 6);
    storage[0] = (storage[0] & ~(UINT64_C(0xfffff) << 12)) | n << 12;
    x_of(n)->epoch = x.began = n;
    x.shown = storage[TOKENPOOL_OFFSET_PERIOD / 8] >> 28 & 0xfffff;
    x.begun_ns = x.shown_ns = x.now;
    x.number = 1;
    n = world_chance(&x.last, 200) ? world_between(&x.last, 1, 130) : 1;
    for (k = 0; k < n; k++) {
        x_resume(0);
        tokenpool_monitor_run(&m->m, x.now + m->offset_ns);
    }
}

static void x_begin(void)
{
    struct tokenpool_slot_state state = {0};
    struct x_monitor *m = &x.monitor[0];
    enum qos_status st;
    uint32_t i;
    memset(storage, 0, sizeof storage);
    x.actor = X_MONITOR;
    x.capacity = x.C;
    x.bytes = tokenpool_storage_memsize(&x.config);
    st = tokenpool_monitor_init(&m->m, memory[0], sizeof memory[0], storage, x.bytes, &x.config);
    if (x.bytes == 0 || st != QOS_OK) {
        world_fail(x.w, "init", 0, "a configuration within the ranges is refused: %s",
                   tokenpool_config_error(&x.config) ? tokenpool_config_error(&x.config) : "memory");
        return;
    }
    m->lives = true;
    m->offset_ns = start_ns(x.w) + (x.set_back ? 100 * x.T : 0);
    x.engines = 2 * x.slots;
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        uint64_t limit = s->limit == TOKENPOOL_TOKENS_MAX ? 0 : s->limit;
        st = tokenpool_monitor_join(&m->m, s->id, s->reservation, limit, NULL);
        if (st != QOS_OK)
            world_fail(x.w, "admission", 0, "client %" PRIu32 ": a reservation that fits is refused: %s", s->id,
                       qos_strerror(st));
        s->joined = s->fresh = true;
        (void)tokenpool_monitor_slot_info(&m->m, s->id, &state);
        s->generation = state.generation;
    }
    if (x.wraps)
        x_wrap(m);
    for (i = 0; i < x.slots; i++) {
        x.engine[2 * i].slot = x.engine[2 * i + 1].slot = i;
        x.engine[2 * i].offset_ns = x.engine[2 * i + 1].offset_ns = (uint64_t)world_value(x.w, F_BASE) / (i + 1) +
                                                                    start_ns(x.w) - (uint64_t)world_value(x.w, F_BASE) +
                                                                    (x.slot[i].backs ? 100 * x.T : 0);
        x.engine[2 * i].next_ns = x.now + world_between(&x.rng, 0, x.T);
        x_attach(&x.engine[2 * i]);
    }
}

/* A stray store into any word: most often the pool's, or one of a client's; any value, or another one in one field. */
static void x_stray(void)
{
    static const uint64_t masks[] = {UINT64_MAX << 38, X_MASK << 12, UINT64_MAX << 32, X_MASK << 26, X_MASK};
    uint64_t first = TOKENPOOL_OFFSET_TERMS / 8, id = x.slot[world_between(&x.more, 0, x.slots - 1)].id, *word;
    uint64_t part = (tokenpool_storage_report(x.clients, 0) / 8 - first) / 3, v = world_rand(&x.more);
    uint32_t i;
    switch (world_between(&x.more, 0, 5)) {
    case 0: word = &storage[0]; break;
    case 1: word = &storage[world_between(&x.more, 0, first - 1)]; break;
    case 2: word = &storage[world_between(&x.more, 0, x.bytes / 8 - 1)]; break;
    case 3: word = &storage[first + id + part * world_between(&x.more, 1, 3)]; break;
    default: word = &storage[first + id]; break;
    }
    switch (world_between(&x.more, 0, 5)) {
    case 0: *word = v; break;
    case 1: *word = 0; break;
    case 2: *word ^= UINT64_C(1) << v % 64; break;
    default: *word ^= v & masks[word == &storage[0] ? 2 : world_between(&x.more, 0, 4)]; break;
    }
    world_trace(x.now, 99, "stray", (uint64_t)(word - storage) * 8);
    world_trace(x.now, 99, "stray_is", *word);
    x.hit = true;
    x.hits--;
    x.hit_number = x.number;
    x.hit_ns = x.now;
    for (i = 0; i < x.slots; i++)
        x.slot[i].before = x_of(x.began)->of[i].spent;
    x.hit_bound = x.slots * min_of(x.batch, x.client_capacity); /* of a pool that seems to hold any */
    x.hit_bound = max_of(max_of(x_of(x.began)->bound, x.C), x.hit_bound) + x.slots * (x.C / 64 + 1); /* as x_can */
    x.over = x.lost = 0;
    x.hit_at = x.number + world_between(&x.more, 6, 9);
    x.hit_early = world_chance(&x.more, 500);
}

/* A monitor that has not got the storage: its calls change nothing. */
static void x_standby(struct x_monitor *m)
{
    static uint64_t copy[1024];
    const struct x_slot *s = &x.slot[world_between(&x.last, 0, x.slots - 1)];
    uint64_t r = world_between(&x.last, 0, x_sub(x.C, x_others(s)) / 2);
    enum qos_status st;
    memcpy(copy, storage, x.bytes);
    x.actor = X_MONITOR + (uint32_t)(m - x.monitor);
    switch (world_between(&x.last, 0, 3)) {
    case 0: st = tokenpool_monitor_join(&m->m, s->id, min_of(r, x.client_capacity), 0, NULL); break;
    case 1: st = tokenpool_monitor_change(&m->m, s->id, min_of(r, x.client_capacity), 0, NULL); break;
    case 2: st = tokenpool_monitor_leave(&m->m, s->id); break;
    default: st = tokenpool_monitor_set_weight(&m->m, s->id, 1); break;
    }
    if ((st != QOS_ESTALE && st != QOS_ENOENT && st != QOS_EEXIST) || memcmp(copy, storage, x.bytes) != 0)
        world_fail(x.w, "fenced", x.now, "a monitor that has not got the storage changes client %" PRIu32 ": %s", s->id,
                   qos_strerror(st));
}

/* Another storage in the same memory: the engines of the one before must attach again. */
static void x_renew(struct x_monitor *m)
{
    enum qos_status st;
    uint32_t i;
    uint64_t offset = m->offset_ns;
    x.renews = false;
    x.renewing = true;
    x.actor = X_MONITOR + (uint32_t)(m - x.monitor);
    memset(m, 0, sizeof *m);
    m->lives = true;
    m->offset_ns = offset;
    m->next_ns = x.now;
    st = tokenpool_monitor_init(&m->m, memory[m - x.monitor], sizeof memory[0], storage, x.bytes, &x.config);
    if (st != QOS_OK)
        world_fail(x.w, "init", x.now, "another storage in the same memory: %s", qos_strerror(st));
    for (i = 0; i < x.engines; i++) {
        x.engine[i].older = true;
        x.engine[i].pending = false;
    }
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        uint64_t limit = s->limit == TOKENPOOL_TOKENS_MAX ? 0 : s->limit;
        s->engine = X_NOBODY;
        s->wrote = s->report = s->failed = 0;
        s->changed = s->weighed = s->lied = false;
        s->generation = 0;
        if (!s->joined)
            continue;
        st = tokenpool_monitor_join(&m->m, s->id, s->reservation, limit, NULL);
        if (st != QOS_OK)
            world_fail(x.w, "admission", x.now, "client %" PRIu32 ": a reservation that fits is refused: %s", s->id,
                       qos_strerror(st));
        x_joined(m, s);
    }
    x.renewing = false;
    x.number = x.began = x.begun_ns = x.before_ns = x.shown = x.shown_ns = x.put = x.claimed = x.served = 0;
    x.allowed_ns = 0;
    x.taken = false;
    x.capacity = x.C;
    x.capacity_before = x.capacity_former = 0;
    x.owner = (uint32_t)(m - x.monitor);
    memset(x.epoch, 0, sizeof x.epoch);
    world_trace(x.now, 99, "renew", 0);
}

/* After a check of the monitor: terms change, processes start anew, lie, die. */
static void x_happens(uint32_t who, uint64_t runs_ns)
{
    uint32_t i;
    if (x.monitor[who].pending || x.monitor[who].unsure) /* the next period may be prepared already */
        return;
    if (x.two && who == x.owner && x.monitor[!who].lives && !x_strayed() && world_chance(&x.last, 20))
        x_standby(&x.monitor[!who]);
    if (x.renews && x.number > 3 && who == x.owner && world_chance(&x.last, 20) && x_others(NULL) <= x.C) {
        x_renew(&x.monitor[who]);
        return;
    }
    if (x.hits && x.number >= x.hit_at && who == x.owner && !x.taken &&
        (x.hit_early ? x.now == x.begun_ns : world_chance(&x.more, 60)))
        x_stray();
    for (i = 0; i < x.slots; i++) {
        struct x_slot *s = &x.slot[i];
        bool churn = x.weighs || world_choice(x.w, world_of(s->cohort, F_CHURN)) != 0;
        if (who == x.owner && churn && !x_strayed() && world_rand(&x.rng) % (x.weighs ? 256 : 64) == 0)
            x_terms(&x.monitor[who], s);
        if (s->runs && world_rand(&x.rng) % s->runs == 0)
            x_restart(s);
        if (s->lies && s->engine != X_NOBODY && world_rand(&x.rng) % 64 == 0)
            x_lie(&x.engine[s->engine]);
        else if (s->lies && s->engine == X_NOBODY && world_rand(&x.rng) % 32 == 0)
            x_restart(s);
    }
    if (!runs_ns || who != x.owner || world_between(&x.rng, 0, runs_ns / x.check_ns) != 0 || x_strayed())
        return;
    x.dead_ns = x.now;
    if (!x.two) {
        x.now += world_between(&x.rng, 0, x.T / 64);
        x_resume(who);
    } else if (x.monitor[!who].lives) { /* the other one waits, and will take the storage after lease_ns */
        x.monitor[who].lives = false;
        x_allow(x.lease_ns + x.check_ns);
    } else {
        x_resume(!who);
    }
}

/* The next event: the monitor, an engine, an operation under way. */
static void x_step(uint64_t runs_ns)
{
    uint64_t at = WORLD_NEVER;
    uint32_t k, who = X_NOBODY, m = 0;
    struct x_engine *g;
    for (k = 0; k < 2; k++)
        if (x.monitor[k].lives && x.monitor[k].next_ns < at)
            at = x.monitor[k].next_ns, m = k;
    for (k = 0; k < x.engines; k++) {
        uint64_t due;
        g = &x.engine[k];
        if (!g->used)
            continue;
        due = !g->pending ? WORLD_NEVER : g->performed ? g->answer_ns : min_of(g->perform_ns, g->answer_ns);
        due = min_of(due, g->next_ns);
        if (due < at)
            at = due, who = k;
    }
    x.now = max_of(x.now, at);
    x.calls++;
    if (who == X_NOBODY) {
        x_monitor_call(m);
        x_happens(m, runs_ns);
        return;
    }
    x.actor = who;
    g = &x.engine[who];
    if (g->next_ns <= x.now) {
        x_engine_call(g);
    } else if (!g->performed && g->perform_ns <= g->answer_ns) {
        g->answer = tokenpool_storage_run(storage, &g->op);
        g->performed = true;
        if (x.slot[g->slot].runs && g->op.kind == TOKENPOOL_COMPARE_SWAP && g->op.offset_bytes &&
            world_chance(&x.last, 100)) /* it dies before it has the answer of its report */
            x_restart(&x.slot[g->slot]);
    } else {
        uint64_t report = *x_report(&x.slot[g->slot]);
        g->pending = false;
        if (g->lost)
            tokenpool_client_fail(&g->client);
        else
            tokenpool_client_done(&g->client, g->answer);
        x_account(g, 0, report);
    }
}

static void x_run(struct world *w)
{
    static const uint64_t periods[] = {6, 3, 12, 40};
    uint64_t until, runs_ns;
    memset(&x, 0, sizeof x);
    x.w = w;
    x.on = true;
    world_rng_init(&x.rng, w->seed, 0xe8ac7);
    world_rng_init(&x.more, w->seed, 0x57e4);
    world_rng_init(&x.odd, w->seed, 0x0dd);
    world_rng_init(&x.last, w->seed, 0x1a57);
    world_rng_init(&x.clocks, w->seed, 0xc10c);
    x.hits = (uint32_t)world_value(w, F_STRAYS);
    x.hit_at = world_between(&x.more, 2, 5);
    x.hit_early = world_chance(&x.more, 500);
    x.far = !x.hits && world_chance(&x.odd, 150);
    x.fails = x.far && world_chance(&x.odd, 500);
    x.extreme = world_chance(&x.last, 80);
    x.turns = world_chance(&x.last, 300);
    x.full = world_chance(&x.last, 150);
    x.wraps = world_chance(&x.last, 150);
    x.backs = world_chance(&x.last, 200);
    x.renews = world_chance(&x.last, 80);
    x.set_back = !x.hits && world_chance(&x.clocks, 200);
    world_rng_init(&x.old, w->seed, 0x01d);
    x.olds = !x.hits && world_chance(&x.old, 100);
    x_draw();
    x_draw_slots();
    /* no epoch is late by T / 8, so nobody goes on alone */
    if (world_choice(w, F_GO_ON) && !x.two && !x.far && !x.hits && !x.wraps && !x.renews && x.check_ns <= x.T / 64 &&
        x.lease_ns <= x.T / 4 && world_choice(w, F_MONITOR_RUNS) < 2)
        x.config.flags |= TOKENPOOL_GO_ON;
    x.renews = x.renews && !x.two && !x.far && !x.hits && !x.twins && !x.lies;
    x_begin();
    until = x.now + periods[world_choice(w, F_LENGTH)] * x.T;
    runs_ns = (uint64_t)(world_value(w, F_MONITOR_RUNS) * (double)x.T / 1000);
    while (!w->broken && x.now < until && x.calls < 60000)
        x_step(runs_ns);
    if (!w->broken && x.quiet_epochs >= 5 && x.quiet_lost > (3 + x.quiet_epochs / 5) * x.quiet_most)
        world_fail(w, "surplus", x.now,
                   "%" PRIu64 " tokens of %" PRIu64 " epochs are not used, %" PRIu64 " left by others in one at most",
                   x.quiet_lost, x.quiet_epochs, x.quiet_most);
    w->events = x.calls;
    x.on = false;
}

#endif
