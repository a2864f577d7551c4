/* A one-word sequential pool as oracle, and a transport that delays everything: every operation of every engine and of
 * two monitors is prepared, performed and answered at different times, in any order, or lost; clients and monitors die,
 * and monitors that were replaced go on. The oracle performs the operations itself. It counts in plain integers which
 * client got how many tokens of which period. It shares no arithmetic with tokenpool.h, only the position of the
 * fields in the words. The includer defines MODEL_CHECK(cond) and `uint64_t model_choose(uint64_t low, uint64_t
 * high)`. */
#ifndef QOS_TESTS_TOKENPOOL_MODEL_H
#define QOS_TESTS_TOKENPOOL_MODEL_H

#include "tokenpool.h"
#include <string.h>

enum { MODEL_CLIENTS = 4, MODEL_MONITORS = 2, MODEL_EPOCHS = 256, MODEL_ALL = MODEL_CLIENTS + MODEL_MONITORS };
struct model_flight {
    struct tokenpool_op op;
    uint64_t answer;
    bool flying, landed;
};
struct model {
    struct tokenpool_config config;
    struct tokenpool_monitor monitor[MODEL_MONITORS];
    struct tokenpool_client client[MODEL_CLIENTS];
    struct model_flight flight[MODEL_ALL]; /* the last ones are the monitors' */
    uint64_t time, clock[MODEL_ALL];       /* each has its own, which drifts, and rarely jumps */
    bool backlogged[MODEL_CLIENTS], born[MODEL_MONITORS];
    uint64_t entered[MODEL_CLIENTS]; /* an engine's first epoch: it continues from what its slot reported */
    uint64_t storage[128] __attribute__((aligned(64)));
    uint64_t memory[MODEL_MONITORS][256] __attribute__((aligned(64)));
    /* the oracle's counts, by epoch */
    int64_t spent[MODEL_EPOCHS][MODEL_CLIENTS], got[MODEL_EPOCHS][MODEL_CLIENTS], claimed[MODEL_EPOCHS];
    uint64_t reserved[MODEL_EPOCHS][MODEL_CLIENTS], limit[MODEL_EPOCHS][MODEL_CLIENTS];
    int64_t bound[MODEL_EPOCHS];
    bool known[MODEL_EPOCHS];
    uint64_t takes, claims, deaths, resumes, periods, losses;
};

/* Any existing status is right. */
static void model_any(enum qos_status s)
{
    MODEL_CHECK(s <= QOS_OK && s >= QOS_STATUS_LAST);
}

static int64_t model_count(uint64_t word)
{
    int64_t count = (int64_t)(word / (UINT64_C(1) << 32));
    return count >= INT64_C(1) << 31 ? count - (INT64_C(1) << 32) : count;
}

/* When a period opens: its terms as the clients can read them, and the bound that its monitor promises. */
static void model_note_period(struct model *m, const struct tokenpool_monitor *monitor)
{
    uint64_t period = m->storage[TOKENPOOL_OFFSET_PERIOD / 8];
    uint32_t epoch = (uint32_t)(period >> 28) & 0xfffffu;
    struct tokenpool_monitor_state info;
    int64_t sum = 0, capacity;
    unsigned i;
    if (!(period & 1) || epoch >= MODEL_EPOCHS || m->known[epoch])
        return;
    m->known[epoch] = true;
    m->periods++;
    for (i = 0; i < m->config.clients; i++) {
        uint64_t terms = m->storage[TOKENPOOL_OFFSET_TERMS / 8 + i];
        m->reserved[epoch][i] = terms >> 38;
        m->limit[epoch][i] = terms >> 12 & 0x3ffffffu;
        sum += (int64_t)(terms >> 38);
    }
    model_any(tokenpool_monitor_info(monitor, &info));
    MODEL_CHECK(info.active && info.epoch == epoch); /* it has just opened it */
    capacity = (int64_t)info.capacity;
    m->bound[epoch] = sum > capacity ? sum : capacity;
    if (m->config.overrun == 0)
        m->bound[epoch] += capacity / 20;
    else if (m->config.overrun != QOS_NOTHING)
        m->bound[epoch] += (int64_t)m->config.overrun;
    MODEL_CHECK((int64_t)info.bound == m->bound[epoch]);
    if (epoch > 1 && m->known[epoch - 1] && info.last_bound && !(m->config.flags & TOKENPOOL_ORDERED))
        MODEL_CHECK((int64_t)info.last_claimed == m->claimed[epoch - 1]);
}

/* Performs an operation, as a device would; counts claims. */
static void model_land(struct model *m, unsigned who)
{
    struct model_flight *f = &m->flight[who];
    uint64_t *w = &m->storage[f->op.offset_bytes / 8], old = *w;
    f->landed = true;
    f->answer = old;
    if (f->op.kind == TOKENPOOL_WRITE)
        *w = f->op.operand;
    else if (f->op.kind == TOKENPOOL_FETCH_ADD)
        (void)__builtin_add_overflow(old, f->op.operand, w);
    else if (f->op.kind == TOKENPOOL_COMPARE_SWAP && old == f->op.compare)
        *w = f->op.operand;
    if (who < MODEL_CLIENTS && f->op.offset_bytes == TOKENPOOL_OFFSET_POOL && *w != old) {
        uint32_t epoch = (uint32_t)(old >> 12) & 0xfffffu;
        MODEL_CHECK((uint32_t)old == (uint32_t)*w); /* a client changes the count only */
        if (epoch < MODEL_EPOCHS && !(m->config.flags & TOKENPOOL_ORDERED)) {
            int64_t asked = model_count(old) - model_count(*w), left = model_count(old);
            int64_t got = left <= 0 ? 0 : left < asked ? left : asked;
            MODEL_CHECK(asked >= 1 && (asked <= (int64_t)m->config.batch || got == asked));
            m->got[epoch][who] += got;
            m->claimed[epoch] += got;
        }
        m->claims++;
    }
    if (!(m->config.flags & TOKENPOOL_ORDERED))
        MODEL_CHECK(model_count(m->storage[0]) >= -(int64_t)m->config.clients * (int64_t)m->config.batch);
}

static void model_check_epoch(const struct model *m, uint64_t epoch, unsigned who)
{
    int64_t sum = 0;
    unsigned i;
    if (epoch >= MODEL_EPOCHS || !m->known[epoch])
        return;
    for (i = 0; i < m->config.clients; i++)
        sum += m->spent[epoch][i];
    MODEL_CHECK(m->bound[epoch] == 0 || sum <= m->bound[epoch]);
    MODEL_CHECK(m->spent[epoch][who] <= (int64_t)m->limit[epoch][who]);
    if (!(m->config.flags & TOKENPOOL_ORDERED))
        MODEL_CHECK(m->spent[epoch][who] <= (int64_t)m->reserved[epoch][who] + m->got[epoch][who]);
}

static void model_tick(struct model *m, unsigned who)
{
    m->time += model_choose(0, m->config.period_ns / 32);
    m->clock[who] = m->time + model_choose(0, m->config.period_ns / 64);
    if (model_choose(0, 127) == 0)
        m->clock[who] = model_choose(0, 2 * m->time);
}

static void model_client(struct model *m, unsigned who)
{
    struct tokenpool_client *c = &m->client[who];
    struct model_flight *f = &m->flight[who];
    struct tokenpool_client_state info;
    uint64_t need = model_choose(0, 3 * m->config.batch), n;
    switch (model_choose(0, 7)) {
    case 0: model_tick(m, who); break;
    case 1:
    case 2:
        n = model_choose(1, m->config.batch);
        if (tokenpool_client_take(c, m->clock[who], n) == QOS_OK) {
            uint64_t epoch = tokenpool_client_epoch(c);
            MODEL_CHECK(epoch < MODEL_EPOCHS);
            if (epoch >= MODEL_EPOCHS)
                return;
            m->spent[epoch][who] += (int64_t)n;
            m->takes += n;
            model_check_epoch(m, epoch, who);
        }
        break;
    case 3: tokenpool_client_complete(c, model_choose(0, m->config.batch)); break;
    case 4:
        if (!m->backlogged[who])
            tokenpool_client_set_queued(c, model_choose(0, 8));
        break;
    default:
        if (f->flying && f->landed) {
            f->flying = f->landed = false;
            tokenpool_client_done(c, f->answer);
        } else if (f->flying) {
            model_land(m, who);
        } else if (tokenpool_client_next(c, m->clock[who], need, &f->op)) {
            f->flying = true;
        }
    }
    model_any(tokenpool_client_info(c, &info));
    if (info.running && !m->entered[who])
        m->entered[who] = info.epoch;
    if (m->backlogged[who] && info.running && info.epoch != m->entered[who])
        MODEL_CHECK(info.kept == info.reservation); /* none of it is lost to the decay */
    MODEL_CHECK(info.kept <= info.reservation && info.held <= info.kept + info.gained);
}

static void model_monitor(struct model *m, unsigned which)
{
    unsigned who = MODEL_CLIENTS + which;
    struct model_flight *f = &m->flight[who];
    if (!m->born[which])
        return;
    if (f->flying && f->landed) {
        f->flying = f->landed = false;
        tokenpool_monitor_done(&m->monitor[which], f->answer);
        model_note_period(m, &m->monitor[which]);
    } else if (f->flying) {
        model_land(m, who);
    } else if (tokenpool_monitor_next(&m->monitor[which], m->clock[who], &f->op)) {
        f->flying = true;
    } else if (model_choose(0, 1)) {
        model_tick(m, who);
    }
}

/* The transport gives up. The operation may have been performed. */
static void model_lose(struct model *m, unsigned who)
{
    struct model_flight *f = &m->flight[who];
    if (!f->flying)
        return;
    if (!f->landed && model_choose(0, 1))
        model_land(m, who);
    f->flying = f->landed = false;
    m->losses++;
    if (who < MODEL_CLIENTS) {
        tokenpool_client_fail(&m->client[who]);
    } else {
        tokenpool_monitor_fail(&m->monitor[who - MODEL_CLIENTS]);
        model_note_period(m, &m->monitor[who - MODEL_CLIENTS]);
    }
}

static void model_attach(struct model *m, unsigned who)
{
    MODEL_CHECK(tokenpool_client_attach_remote(&m->client[who], who, 0, &m->storage[TOKENPOOL_OFFSET_HEAD / 8],
                                               sizeof m->storage) == QOS_OK);
    m->entered[who] = 0;
    m->backlogged[who] = model_choose(0, 1);
    tokenpool_client_set_queued(&m->client[who], m->backlogged[who] ? TOKENPOOL_BACKLOGGED : 0);
}

static void model_rare(struct model *m)
{
    unsigned who = (unsigned)model_choose(0, m->config.clients - 1), which = (unsigned)model_choose(0, 1);
    struct tokenpool_monitor *monitor = &m->monitor[which];
    uint64_t fits = 0, r, limit;
    switch (model_choose(0, 7)) {
    case 0: /* a client dies, its operation is performed or not, and a new client takes its slot */
        m->deaths++;
        if (m->flight[who].flying && !m->flight[who].landed && model_choose(0, 1))
            model_land(m, who);
        m->flight[who].flying = m->flight[who].landed = false;
        model_attach(m, who);
        break;
    case 1: /* a monitor dies, or one is started beside the other, which goes on; it uses the storage as it is */
        if (m->storage[TOKENPOOL_OFFSET_PERIOD / 8] && model_choose(0, 3) == 0) {
            unsigned slot = MODEL_CLIENTS + which;
            m->resumes++;
            if (m->flight[slot].flying && !m->flight[slot].landed && model_choose(0, 1))
                model_land(m, slot);
            m->flight[slot].flying = m->flight[slot].landed = false;
            MODEL_CHECK(tokenpool_monitor_resume(monitor, m->memory[which], sizeof m->memory[which], m->storage,
                                                 sizeof m->storage, &m->config) == QOS_OK);
            m->born[which] = true;
        }
        break;
    case 2: model_lose(m, (unsigned)model_choose(0, m->config.clients - 1)); break;
    case 3: model_lose(m, MODEL_CLIENTS + which); break;
    case 4:
        if (m->born[which])
            model_any(tokenpool_monitor_leave(monitor, who));
        break;
    default:
        if (!m->born[which])
            break;
        r = model_choose(0, m->config.capacity);
        limit = model_choose(0, 1) ? 0 : model_choose(r ? r : 1, m->config.capacity);
        if (tokenpool_monitor_join(monitor, who, r, limit, &fits) == QOS_EADMISSION)
            MODEL_CHECK(fits < r && tokenpool_monitor_join(monitor, who, fits, 0, NULL) == QOS_OK);
        else
            model_any(tokenpool_monitor_change(monitor, who, r, limit, NULL));
    }
}

static void model_run(struct model *m, uint64_t steps)
{
    uint64_t i, fits;
    unsigned who;
    memset(m, 0, sizeof *m);
    m->config.clients = (uint32_t)model_choose(1, MODEL_CLIENTS);
    m->config.batch = (uint32_t)model_choose(1, 8);
    m->config.capacity = model_choose(1, 60);
    m->config.period_ns = model_choose(8, 2000);
    m->config.overrun = model_choose(0, 1) ? QOS_NOTHING : model_choose(0, 24);
    m->config.flags = (uint32_t)model_choose(0, 7);
    m->config.silent_periods = model_choose(0, 1) ? QOS_UNLIMITED : 0;
    MODEL_CHECK(tokenpool_monitor_init(&m->monitor[0], m->memory[0], sizeof m->memory[0], m->storage, sizeof m->storage,
                                       &m->config) == QOS_OK);
    m->born[0] = true;
    for (who = 0; who < m->config.clients; who++) {
        model_any(tokenpool_monitor_join(&m->monitor[0], who, model_choose(0, m->config.capacity / m->config.clients),
                                         0, &fits));
        model_attach(m, who);
    }
    for (i = 0; i < steps; i++) {
        uint64_t what = model_choose(0, 127);
        if ((m->storage[0] >> 12 & 0xfffffu) >= MODEL_EPOCHS - 8)
            break;
        if (what == 0)
            model_rare(m);
        else if (what < 40)
            model_monitor(m, what & 1);
        else
            model_client(m, (unsigned)model_choose(0, m->config.clients - 1));
    }
}

#endif
