// proves: no sequence of calls, with terms and times at the ends of their ranges, overflows, stalls, loses a request, breaks
// proves: a tree or makes next_ns lie; the axis is moved back again and again
#include "tags.h"
#include "fuzz/fuzz.h"

#define CLIENTS 21
#define GRANTS 32

static struct tags t;
static unsigned char memory[1 << 16] __attribute__((aligned(64)));
static uint64_t now;
static struct tags_grant grant[GRANTS];
static unsigned grants, queued[CLIENTS];
static bool present[CLIENTS], leaving[CLIENTS]; /* removed, with requests at the device */
static unsigned at_device[CLIENTS];

/* A number whose size is uniform, so that both ends come up. */
static uint64_t any(struct fuzz_input *in, uint64_t most)
{
    unsigned bits = (unsigned)fuzz_between(in, 0, 64);
    uint64_t v = bits == 0 ? 0 : fuzz_bytes(in, (bits + 7) / 8) & (UINT64_MAX >> (64 - bits));
    return v > most ? most : v;
}

static struct tags_priv_key least(struct tags_priv_key a, struct tags_priv_key b)
{
    return b.hi < a.hi || (b.hi == a.hi && b.lo < a.lo) ? b : a;
}

static uint64_t due(const struct tags_priv_rate *p)
{
    uint64_t ns = (uint64_t)p->tag_hi << 32 | p->tag_lo, rest = (uint64_t)p->rest_hi << 32 | p->rest_lo;
    uint64_t rate = (uint64_t)p->rate_hi << 32 | p->rate_lo;
    FUZZ_CHECK(rate <= QOS_RATE_MAX && (rest == 0 || rest < rate));
    if (rest && ns < UINT64_MAX)
        ns++;
    return ns < UINT64_MAX ? ns : UINT64_MAX - 1;
}

/* Place i of the l tree is the unused place of the s tree. */
static uint64_t l_leaf(size_t i)
{
    return t.s[i].hi == TAGS_PRIV_ABSENT ? t.s[i].lo : TAGS_PRIV_ABSENT;
}

/* The trees hold exactly what the clients' states say, and every inner node is the least of its children. */
static void check_trees(void)
{
    uint32_t k;
    size_t i;
    for (i = 0; i < CLIENTS; i++) {
        const struct tags_priv_hot *h = &t.hot[i];
        bool waiting = (h->packed & TAGS_PRIV_WAITING) != 0, active = h->queued != 0 || h->at_device != 0;
        FUZZ_CHECK(h->queued == queued[i]);
        FUZZ_CHECK(t.config.no_completions || h->at_device == at_device[i]);
        FUZZ_CHECK(((h->packed & TAGS_PRIV_CLIENT) != 0) == present[i]);
        FUZZ_CHECK(((h->packed & TAGS_PRIV_LEAVING) != 0) == leaving[i]);
        FUZZ_CHECK((t.s[i].hi != TAGS_PRIV_ABSENT) == (h->queued != 0 && !waiting));
        FUZZ_CHECK((t.r[i] != TAGS_PRIV_ABSENT) ==
                   (h->queued != 0 && !waiting && (h->packed & TAGS_PRIV_RESERVED) != 0));
        FUZZ_CHECK((l_leaf(i) != TAGS_PRIV_ABSENT) == waiting);
        FUZZ_CHECK(!waiting || (h->queued != 0 && (h->packed & TAGS_PRIV_LIMITED) != 0));
        FUZZ_CHECK(((h->packed & TAGS_PRIV_VIRTUAL) != 0) == (active && !waiting));
        if (t.s[i].hi != TAGS_PRIV_ABSENT)
            FUZZ_CHECK(t.s[i].hi == h->tag.hi && (uint32_t)t.s[i].lo == i && t.s[i].lo >> 32 == h->tag.lo >> 32);
        if (t.r[i] != TAGS_PRIV_ABSENT)
            FUZZ_CHECK(t.r[i] == due(&t.reserve[i]));
        if (waiting)
            FUZZ_CHECK(t.s[i].lo == due(&t.limit[i]));
        if (t.queued_cost)
            FUZZ_CHECK(h->queued != 0 || t.queued_cost[i] == 0);
    }
    for (k = 0; k + 1 < t.s_levels; k++)
        for (i = 0; i < t.s_base[k + 1] - t.s_base[k]; i += 4) {
            struct tags_priv_key *g = &t.s[t.s_base[k] + i], *up = &t.s[t.s_base[k + 1] + i / 4];
            struct tags_priv_key m = least(least(g[0], g[1]), least(g[2], g[3]));
            FUZZ_CHECK(m.hi == up->hi && m.lo == up->lo);
        }
    for (k = 0; k + 1 < t.t_levels; k++)
        for (i = 0; i < t.t_base[k + 1] - t.t_base[k]; i += 8) {
            uint64_t r = UINT64_MAX, l = UINT64_MAX;
            size_t j, up = t.t_base[k + 1] + i / 8;
            for (j = 0; j < 8; j++) {
                r = qos_min(r, t.r[t.t_base[k] + i + j]);
                l = qos_min(l, k == 0 ? l_leaf(i + j) : t.l[t.t_base[k] - t.t_base[1] + i + j]);
            }
            FUZZ_CHECK(r == t.r[up] && l == t.l[up - t.t_base[1]]);
        }
}

static void open_tags(struct fuzz_input *in)
{
    struct tags_config c;
    memset(&c, 0, sizeof c);
    c.clients = CLIENTS;
    c.mode = fuzz_between(in, 0, 1) ? TAGS_PS : TAGS_REWARD;
    c.at_limit = (enum tags_at_limit)fuzz_between(in, 0, 2);
    c.count_cost = fuzz_between(in, 0, 1);
    c.no_completions = c.mode == TAGS_PS && fuzz_between(in, 0, 1);
    c.window = (uint32_t)fuzz_between(in, 0, 9);
    c.exact_window = fuzz_between(in, 0, 1);
    c.count_by_client = fuzz_between(in, 0, 1);
    c.phase_requests = (uint32_t)fuzz_between(in, 0, 3);
    c.capacity_per_s = any(in, UINT64_MAX);
    c.limit_burst_ns = any(in, UINT64_C(1) << 62);
    c.reserve_lag_ns = any(in, UINT64_C(1) << 62);
    c.reject_after_ns = any(in, UINT64_MAX);
    c.force_debt_ns = any(in, UINT64_C(1) << 62);
    c.service_ns = any(in, QOS_TOKENS_MAX);
    now = any(in, UINT64_MAX);
    memset(queued, 0, sizeof queued);
    memset(present, 0, sizeof present);
    memset(leaving, 0, sizeof leaving);
    memset(at_device, 0, sizeof at_device);
    grants = 0;
    FUZZ_CHECK(tags_memsize(&c) <= sizeof memory);
    FUZZ_CHECK(tags_init(&t, memory, sizeof memory, &c) == QOS_OK);
    t.v.hi = (UINT64_C(1) << 62) - any(in, UINT64_C(1) << 62); /* so that the axis is moved back within the run */
}

static void client_op(struct fuzz_input *in, uint32_t id)
{
    struct tags_client x;
    uint32_t dropped = 0;
    enum qos_status st;
    x.weight = any(in, TAGS_WEIGHT_MAX + 1);
    x.reservation_per_s = any(in, QOS_RATE_MAX + 1);
    x.limit_per_s = fuzz_between(in, 0, 1) ? 0 : any(in, QOS_RATE_MAX + 1);
    if (fuzz_between(in, 0, 7) == 0) {
        st = tags_remove(&t, now, id, &dropped);
        FUZZ_CHECK((st == QOS_ENOENT) == !present[id]);
        if (st == QOS_OK) {
            FUZZ_CHECK(dropped == queued[id]);
            queued[id] = 0;
            present[id] = false;
            leaving[id] = at_device[id] > 0;
        }
    } else if (present[id]) {
        st = tags_set(&t, now, id, &x);
        FUZZ_CHECK(st == QOS_OK || st == QOS_ERANGE || st == QOS_EINVAL || st == QOS_EADMISSION);
    } else {
        st = tags_add(&t, now, id, &x);
        present[id] = st == QOS_OK;
        FUZZ_CHECK((st == QOS_EBUSY) == leaving[id]);
        FUZZ_CHECK(st != QOS_EADMISSION || x.reservation_per_s > tags_admissible(&t));
    }
}

/* grant[grants] is at the device now. */
static void taken(void)
{
    if (t.config.no_completions)
        return;
    at_device[grant[grants].client]++;
    grants++;
}

static void given_back(unsigned i)
{
    uint32_t id = grant[i].client;
    at_device[id]--;
    leaving[id] = leaving[id] && at_device[id] > 0;
    grant[i] = grant[--grants];
}

static void dispatch_op(struct fuzz_input *in)
{
    struct tags_choice choice;
    uint64_t cost = any(in, QOS_TOKENS_MAX), next = tags_next_ns(&t, now), sum = 0, seen;
    uint32_t delta = (uint32_t)any(in, UINT32_MAX), rho = (uint32_t)any(in, delta), i;
    enum qos_status st = tags_choose(&t, now, &choice);
    for (i = 0; i < CLIENTS; i++)
        sum += queued[i];
    seen = t.now_ns;
    if (st == QOS_EAGAIN) {
        FUZZ_CHECK(next > seen);
        FUZZ_CHECK((next == QOS_NEVER) == (sum == 0));
        for (i = 0; i < CLIENTS; i++) /* nobody without a limit is left waiting */
            FUZZ_CHECK(queued[i] == 0 || (t.hot[i].packed & TAGS_PRIV_LIMITED));
        if (next != QOS_NEVER && fuzz_between(in, 0, 1)) {
            if (next > seen + 1)
                FUZZ_CHECK(tags_choose(&t, next - 1, &choice) == QOS_EAGAIN);
            now = next;
            FUZZ_CHECK(tags_choose(&t, now, &choice) == QOS_OK);
        }
        return;
    }
    FUZZ_CHECK(st == QOS_OK && next == now && queued[choice.client] > 0);
    if (grants == GRANTS)
        return;
    FUZZ_CHECK(tags_dispatch(&t, now, &choice, cost, rho, delta, &grant[grants]) == QOS_OK);
    queued[choice.client]--;
    taken();
}

static void completion_op(struct fuzz_input *in)
{
    unsigned i = (unsigned)fuzz_between(in, 0, grants - 1);
    uint64_t service = any(in, UINT64_MAX);
    switch (fuzz_between(in, 0, 3)) {
    case 0: FUZZ_CHECK(tags_cancel(&t, now, &grant[i]) == QOS_OK); break;
    case 1: FUZZ_CHECK(tags_fail(&t, now, &grant[i], service) == QOS_OK); break;
    default: FUZZ_CHECK(tags_complete(&t, now, &grant[i], service) == QOS_OK); break;
    }
    given_back(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct qos_stats stats;
    struct tags_client_state state;
    uint64_t count;
    uint32_t id;
    enum qos_status st;
    open_tags(&in);
    while (in.left > 0) {
        id = (uint32_t)fuzz_between(&in, 0, CLIENTS - 1);
        switch (fuzz_between(&in, 0, 11)) {
        case 0:
        case 1: client_op(&in, id); break;
        case 2:
        case 3:
        case 4:
            count = any(&in, UINT32_MAX);
            st = tags_arrive_cost(&t, now, id, (uint32_t)count, any(&in, QOS_TOKENS_MAX));
            if (st == QOS_OK)
                queued[id] += (uint32_t)count;
            FUZZ_CHECK(st == QOS_OK || !present[id] || count == 0 || st == QOS_ELIMIT || st == QOS_EFULL);
            break;
        case 5:
            count = fuzz_between(&in, 0, 1) ? queued[id] : any(&in, queued[id]);
            st = tags_withdraw(&t, now, id, (uint32_t)count);
            if (st == QOS_OK)
                queued[id] -= (uint32_t)count;
            break;
        case 6: /* forward, backward, to the end */
            count = any(&in, UINT64_MAX);
            now = fuzz_between(&in, 0, 7) ? qos_sat_add(now, count) : count;
            break;
        case 7:
            if (grants < GRANTS && tags_force(&t, now, id, any(&in, QOS_TOKENS_MAX), &grant[grants]) == QOS_OK)
                taken();
            break;
        case 8:
        case 9: dispatch_op(&in); break;
        default:
            if (grants)
                completion_op(&in);
        }
        FUZZ_CHECK(t.v.hi >> 63 == 0);
        check_trees();
    }
    tags_stats(&t, &stats);
    FUZZ_CHECK(stats.borrowed <= stats.granted);
    (void)tags_debt(&t, now);
    if (t.by_client) { /* of those who are clients still, no more than of all */
        for (count = 0, id = 0; id < CLIENTS; id++)
            count += tags_client_counters(&t, id)->units;
        FUZZ_CHECK(count <= stats.granted);
    }
    for (count = 0; count < CLIENTS; count++)
        if (tags_client_stats(&t, now, (uint32_t)count, &state) == QOS_OK)
            FUZZ_CHECK(state.queued == queued[count]);
    while (grants) { /* everything comes back: nothing is at the device */
        FUZZ_CHECK(tags_complete(&t, now, &grant[grants - 1], 1000) == QOS_OK);
        given_back(grants - 1);
    }
    FUZZ_CHECK(t.at_device == 0);
    check_trees();
    return 0;
}
