/* tokenpool_reference.h - one account in the middle that all clients ask: what tokenpool.h's promises come to without monitors,
 * reports and words
 *
 * It judges the oracles of engines, --reference. It begins an epoch each T, and knows at any time what each client may still
 * want of its reservation: the rest of C is there for whoever asks. Nothing of it is killed, and it sees true time, so
 * what is promised of monitors, of words, of stray stores, and of who goes on without a monitor is not judged. Worlds of
 * `exact` run as `processes`: their accounts are of words. It includes none of our headers. */
#ifndef QOS_TESTS_WORLD_TOKENPOOL_REFERENCE_H
#define QOS_TESTS_WORLD_TOKENPOOL_REFERENCE_H

static struct {
    uint64_t sum; /* in this epoch */
    struct {
        uint64_t reservation, spent, debt; /* as of the beginning; in this epoch, with paid debts; for the next ones */
        bool joined;
    } of[SLOTS];
} central;

static void central_epoch(void)
{
    uint32_t i;
    if (run.epoch)
        epoch_of(run.epoch)->ended_ns = ps->now_ns;
    run.shown = run.epoch + 1;
    epoch_begins(run.epoch + 1);
    epoch_of(run.epoch)->opened = true;
    epoch_of(run.epoch)->bound = run.bound = run.C;
    central.sum = 0;
    for (i = 0; i < run.slots; i++) {
        central.of[i].joined = slot[i].joined;
        central.of[i].reservation = slot[i].joined ? slot[i].reservation : 0;
        central.of[i].spent = min_of(central.of[i].debt, central.of[i].reservation);
        central.of[i].debt -= central.of[i].spent;
        central.sum += central.of[i].spent;
    }
}

/* What the client may still want of its reservation in this epoch. */
static uint64_t central_holds(uint32_t i)
{
    const struct slot *t = &slot[i];
    const uint64_t r = central.of[i].reservation, end_ns = run.begun_ns + run.T,
                   left = r > central.of[i].spent ? r - central.of[i].spent : 0;
    double most = t->due > 0 ? t->due : 0;
    if (t->wants == IDLE)
        return 0;
    if (t->wants == ALL || t->wants >= BURSTS)
        return left;
    most += end_ns > t->due_ns ? t->per_ns * (double)(end_ns - t->due_ns) : 0;
    return min_of(left, (uint64_t)most + 1);
}

/* The engine that attached last has the slot. */
static enum qos_status central_take(const struct slot *t, uint64_t n, bool forced)
{
    uint64_t held = 0;
    uint32_t i;
    if (t->engine != ps->current)
        return QOS_ESTALE;
    if (forced) {
        central.of[t->id].debt += n;
        return QOS_OK;
    }
    if (!central.of[t->id].joined || (t->limit && central.of[t->id].spent + n > t->limit))
        return QOS_EAGAIN;
    for (i = 0; i < run.slots; i++)
        held += i == t->id ? 0 : central_holds(i);
    if (central.of[t->id].spent + n > central.of[t->id].reservation && central.sum + held + n > run.C)
        return QOS_EAGAIN;
    central.of[t->id].spent += n;
    central.sum += n;
    return QOS_OK;
}

/* Terms hold from the next epoch on. */
static enum qos_status central_terms(uint64_t others, uint64_t reservation, uint64_t limit)
{
    return limit && reservation > limit ? QOS_ERANGE : others + reservation > run.C ? QOS_EFULL : QOS_OK;
}

static void churn(uint32_t id);
static void central_body(struct world_processes *w, uint32_t id, enum world_start how)
{
    (void)w;
    (void)id;
    (void)how;
    memset(&central, 0, sizeof central);
    for (;;) {
        uint32_t k;
        central_epoch();
        for (k = 0; k < 128; k++) {
            world_process_sleep(ps, k < 127 ? run.T / 128 : run.T - 127 * (run.T / 128));
            churn(0);
        }
    }
}

#endif
