/* A one-word sequential pool as oracle, and a transport that delays everything: every operation of every engine and of
 * the monitor is prepared, performed and answered at different times, in any order; clients and monitors die between.
 * The oracle performs the operations itself, counts who got what from which period in plain integers, and shares no
 * arithmetic with tokenpool.h but the position of the fields in the pool word.
 * The includer defines MODEL_CHECK(cond) and `uint64_t model_choose(uint64_t low, uint64_t high)`. */
#ifndef QOS_TESTS_TOKENPOOL_MODEL_H
#define QOS_TESTS_TOKENPOOL_MODEL_H

#include "tokenpool.h"
#include <string.h>

enum { MODEL_CLIENTS = 4, MODEL_EPOCHS = 256 };
struct model_flight {
    struct tokenpool_op op;
    uint64_t answer;
    bool flying, landed;
};
struct model {
    struct tokenpool_config cfg;
    struct tokenpool monitor;
    struct tokenpool_client client[MODEL_CLIENTS];
    struct model_flight flight[MODEL_CLIENTS + 1]; /* the last is the monitor's */
    uint64_t clock[MODEL_CLIENTS + 1];             /* each has its own, and they drift */
    bool backlogged[MODEL_CLIENTS];
    uint64_t storage[128] __attribute__((aligned(64)));
    uint64_t control[128] __attribute__((aligned(64)));
    /* the oracle's books, by epoch */
    int64_t spent[MODEL_EPOCHS][MODEL_CLIENTS], got[MODEL_EPOCHS][MODEL_CLIENTS], claimed[MODEL_EPOCHS];
    uint64_t reserved[MODEL_EPOCHS][MODEL_CLIENTS], limit[MODEL_EPOCHS][MODEL_CLIENTS];
    int64_t bound[MODEL_EPOCHS];
    bool known[MODEL_EPOCHS];
    uint32_t epoch;
    uint64_t takes, claims, deaths, resumes, periods;
};

/* Any outcome is right, as long as it is one. */
static void model_any(enum qos_status s)
{
    MODEL_CHECK(s <= QOS_OK && s >= QOS_STATUS_LAST);
}

static int64_t model_count(uint64_t word)
{
    int64_t count = (int64_t)(word / (UINT64_C(1) << 28));
    return count >= INT64_C(1) << 35 ? count - (INT64_C(1) << 36) : count;
}

/* When a period opens: its terms as the clients can read them. */
static void model_note_period(struct model *m)
{
    uint32_t epoch = (uint32_t)(m->storage[0] >> 20) & 0xffffu;
    int64_t sum = 0;
    unsigned i, n = 0;
    if (!(m->storage[0] & 1) || epoch >= MODEL_EPOCHS || m->known[epoch])
        return;
    m->known[epoch] = true;
    m->periods++;
    for (i = 0; i < m->cfg.clients; i++) {
        uint64_t terms = m->storage[24 + i];
        m->reserved[epoch][i] = terms >> 32;
        m->limit[epoch][i] = terms & 0xffffffffu;
        sum += (int64_t)(terms >> 32);
        n += (terms & 0xffffffffu) != 0;
    }
    if (m->monitor.started && m->monitor.info.epoch == epoch) {
        int64_t capacity = (int64_t)m->monitor.info.capacity;
        m->bound[epoch] = sum > capacity ? sum : capacity;
        MODEL_CHECK(m->monitor.info.clients >= n || m->cfg.clients >= n);
        if (m->cfg.overrun != TOKENPOOL_NO_OVERRUN)
            m->bound[epoch] += (int64_t)m->cfg.overrun * (int64_t)m->monitor.info.clients * (int64_t)m->cfg.batch;
        if (epoch > 1 && m->known[epoch - 1] && m->monitor.info.last_bound && !(m->cfg.flags & TOKENPOOL_ORDERED))
            MODEL_CHECK((int64_t)m->monitor.info.last_claimed == m->claimed[epoch - 1]);
    }
}

/* Performs an operation, as a device would; keeps the books of claims. */
static void model_land(struct model *m, unsigned who)
{
    struct model_flight *f = &m->flight[who];
    uint64_t *w = &m->storage[f->op.offset / 8], old = *w;
    f->landed = true;
    f->answer = old;
    if (f->op.kind == TOKENPOOL_WRITE)
        *w = f->op.operand;
    else if (f->op.kind == TOKENPOOL_FETCH_ADD)
        (void)__builtin_add_overflow(old, f->op.operand, w);
    else if (f->op.kind == TOKENPOOL_COMPARE_SWAP && old == f->op.compare)
        *w = f->op.operand;
    if (who < MODEL_CLIENTS && f->op.offset == 64) {
        uint32_t epoch = (uint32_t)(old >> 12) & 0xffffu;
        if (epoch < MODEL_EPOCHS && !(m->cfg.flags & TOKENPOOL_ORDERED)) {
            int64_t asked = model_count(old) - model_count(*w), left = model_count(old);
            int64_t got = left <= 0 ? 0 : left < asked ? left : asked;
            MODEL_CHECK(asked >= 1 && asked <= (int64_t)m->cfg.batch);
            m->got[epoch][who] += got;
            m->claimed[epoch] += got;
        }
        m->claims++;
    }
    if (!(m->cfg.flags & TOKENPOOL_ORDERED))
        MODEL_CHECK(model_count(m->storage[8]) >= -(int64_t)m->cfg.clients * (int64_t)m->cfg.batch);
}

static void model_check_epoch(const struct model *m, uint32_t epoch, unsigned who)
{
    int64_t sum = 0;
    unsigned i;
    if (epoch >= MODEL_EPOCHS || !m->known[epoch])
        return;
    for (i = 0; i < m->cfg.clients; i++)
        sum += m->spent[epoch][i];
    MODEL_CHECK(m->bound[epoch] == 0 || sum <= m->bound[epoch]);
    MODEL_CHECK(m->spent[epoch][who] <= (int64_t)m->limit[epoch][who]);
    if (!(m->cfg.flags & TOKENPOOL_ORDERED))
        MODEL_CHECK(m->spent[epoch][who] <= (int64_t)m->reserved[epoch][who] + m->got[epoch][who]);
}

static void model_client(struct model *m, unsigned who)
{
    struct tokenpool_client *c = &m->client[who];
    struct model_flight *f = &m->flight[who];
    uint64_t need = model_choose(0, 2 * m->cfg.batch), n;
    switch (model_choose(0, 7)) {
    case 0: m->clock[who] += model_choose(0, m->cfg.period_ns / (model_choose(0, 7) ? 32 : 2)); break;
    case 1:
    case 2:
        n = model_choose(1, m->cfg.batch);
        if (tokenpool_take(c, n) == QOS_OK) {
            MODEL_CHECK(c->epoch < MODEL_EPOCHS);
            m->spent[c->epoch][who] += (int64_t)n;
            m->takes += n;
            model_check_epoch(m, c->epoch, who);
        }
        break;
    case 3: tokenpool_complete(c, model_choose(0, m->cfg.batch)); break;
    case 4:
        if (!m->backlogged[who])
            tokenpool_set_queued(c, model_choose(0, 8));
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
    if (m->backlogged[who] && c->running)
        MODEL_CHECK(c->kept == c->reservation); /* none of it is lost to the decay */
    MODEL_CHECK(c->ready >= 0 && c->kept <= c->reservation);
}

static void model_monitor(struct model *m)
{
    struct model_flight *f = &m->flight[MODEL_CLIENTS];
    if (f->flying && f->landed) {
        f->flying = f->landed = false;
        tokenpool_done(&m->monitor, f->answer);
        model_note_period(m);
    } else if (f->flying) {
        model_land(m, MODEL_CLIENTS);
    } else if (tokenpool_next(&m->monitor, m->clock[MODEL_CLIENTS], &f->op)) {
        f->flying = true;
    } else if (model_choose(0, 1)) {
        m->clock[MODEL_CLIENTS] += model_choose(0, m->cfg.period_ns / 16);
    }
}

static void model_rare(struct model *m)
{
    unsigned who = (unsigned)model_choose(0, m->cfg.clients - 1);
    uint64_t fits = 0, r, limit;
    switch (model_choose(0, 5)) {
    case 0: /* a client dies, its operation lands or not, and a new one takes its slot */
        m->deaths++;
        if (m->flight[who].flying && !m->flight[who].landed && model_choose(0, 1))
            model_land(m, who);
        m->flight[who].flying = m->flight[who].landed = false;
        MODEL_CHECK(tokenpool_client_init(&m->client[who], &m->cfg, who) == QOS_OK);
        m->backlogged[who] = model_choose(0, 1);
        tokenpool_set_queued(&m->client[who], m->backlogged[who] ? TOKENPOOL_BACKLOGGED : 0);
        break;
    case 1: /* the monitor dies; the next one finds the storage as it is */
        if (m->monitor.started && model_choose(0, 3) == 0) {
            m->resumes++;
            if (m->flight[MODEL_CLIENTS].flying && !m->flight[MODEL_CLIENTS].landed && model_choose(0, 1))
                model_land(m, MODEL_CLIENTS);
            m->flight[MODEL_CLIENTS].flying = m->flight[MODEL_CLIENTS].landed = false;
            MODEL_CHECK(tokenpool_resume(&m->monitor, m->control, sizeof m->control, m->storage, sizeof m->storage,
                                         &m->cfg) == QOS_OK);
        }
        break;
    case 2: model_any(tokenpool_leave(&m->monitor, who)); break;
    default:
        r = model_choose(0, m->cfg.capacity);
        limit = model_choose(0, 1) ? TOKENPOOL_NO_LIMIT : model_choose(r ? r : 1, m->cfg.capacity);
        if (tokenpool_join(&m->monitor, who, r, limit, &fits) == QOS_EADMISSION)
            MODEL_CHECK(fits < r && tokenpool_join(&m->monitor, who, fits, TOKENPOOL_NO_LIMIT, NULL) == QOS_OK);
        else
            model_any(tokenpool_change(&m->monitor, who, r, limit, NULL));
    }
}

static void model_run(struct model *m, uint64_t steps)
{
    uint64_t i, fits;
    unsigned who;
    memset(m, 0, sizeof *m);
    m->cfg.clients = (uint32_t)model_choose(1, MODEL_CLIENTS);
    m->cfg.batch = (uint32_t)model_choose(1, 8);
    m->cfg.capacity = model_choose(1, 60);
    m->cfg.period_ns = model_choose(8, 2000);
    m->cfg.overrun = model_choose(0, 1) ? TOKENPOOL_NO_OVERRUN : (uint32_t)model_choose(1, 3);
    m->cfg.flags = (uint32_t)model_choose(0, 15);
    m->cfg.capacity_min = model_choose(0, 1) ? TOKENPOOL_NO_FLOOR : 0;
    m->cfg.silent_periods = model_choose(0, 1) ? TOKENPOOL_NEVER_SILENT : 0;
    MODEL_CHECK(tokenpool_init(&m->monitor, m->control, sizeof m->control, m->storage, sizeof m->storage, &m->cfg) ==
                QOS_OK);
    for (who = 0; who < m->cfg.clients; who++) {
        model_any(tokenpool_join(&m->monitor, who, model_choose(0, m->cfg.capacity / m->cfg.clients),
                                 TOKENPOOL_NO_LIMIT, &fits));
        MODEL_CHECK(tokenpool_client_init(&m->client[who], &m->cfg, who) == QOS_OK);
        tokenpool_client_start_now(&m->client[who]);
        m->backlogged[who] = model_choose(0, 1);
        if (m->backlogged[who])
            tokenpool_set_queued(&m->client[who], TOKENPOOL_BACKLOGGED);
        m->clock[who] = model_choose(0, 1000);
    }
    for (i = 0; i < steps && m->monitor.info.epoch < MODEL_EPOCHS - 8; i++) {
        uint64_t what = model_choose(0, 127);
        if (what == 0)
            model_rare(m);
        else if (what < 40)
            model_monitor(m);
        else
            model_client(m, (unsigned)model_choose(0, m->cfg.clients - 1));
    }
}

#endif
