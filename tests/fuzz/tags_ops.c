// proves: no sequence of calls, with terms and times at the ends of their ranges, overflows, stalls, loses a request,
// proves: accepts a grant twice, makes next_ns wrong or breaks a limit. The axis is rebased many times.
// flags: -DTAGS_AXIS_BITS=12
#include "tags.h"
#include "fuzz/fuzz.h"

#define CLIENTS 24
#define GROUPS 3 /* if any: of 8 ids each */
#define GRANTS 32

static struct tags tags;
static struct tags_config config;
static unsigned char memory[1 << 16] __attribute__((aligned(64)));
static bool set_back;
static uint64_t now, latest, limit[CLIENTS], reservation[CLIENTS], group_limit[GROUPS], group_reservation[GROUPS];
static struct tags_grant grant[GRANTS], stale;
static unsigned grants, queued[CLIENTS], at_device[CLIENTS];
static bool present[CLIENTS];

/* A number whose count of bits is uniform, so that both ends occur. */
static uint64_t any(struct fuzz_input *in, uint64_t most)
{
    unsigned bits = (unsigned)fuzz_between(in, 0, 64);
    uint64_t v = bits == 0 ? 0 : fuzz_bytes(in, (bits + 7) / 8) & (UINT64_MAX >> (64 - bits));
    return v > most ? most : v;
}

static uint64_t any_or_nothing(struct fuzz_input *in, uint64_t most)
{
    return fuzz_between(in, 0, 7) == 0 ? QOS_NOTHING : any(in, most);
}

/* A client's group must have no limit either, if it is to be served at once. */
static bool limited(uint32_t i)
{
    return limit[i] || (config.groups && group_limit[i / 8]);
}

/* What the clients of a group have reserved, or hold. */
static uint64_t sum_of(uint32_t g, const uint64_t *of)
{
    uint64_t sum = 0;
    uint32_t i;
    for (i = 8 * g; i < 8 * g + 8; i++)
        sum += present[i] ? of[i] : 0;
    return sum;
}

/* The counters equal the test's own counts. */
static void check_report(void)
{
    struct tags_state r;
    uint64_t sum_queued = 0, sum_device = 0, sum_reserved = 0;
    uint32_t i;
    for (i = 0; i < CLIENTS; i++) {
        FUZZ_CHECK((tags_info(&tags, i, &r) == QOS_OK) == present[i]);
        sum_device += at_device[i];
        if (!present[i])
            continue;
        FUZZ_CHECK(r.queued == queued[i]);
        FUZZ_CHECK(config.no_completions || r.at_device == at_device[i]);
        FUZZ_CHECK(r.reserved_per_s == reservation[i]);
        FUZZ_CHECK(!r.waiting_at_limit || (queued[i] && limit[i]));
        sum_queued += queued[i];
        sum_reserved += reservation[i];
    }
    for (i = 0; i < config.groups; i++) {
        uint64_t group_queued = 0, group_device = 0;
        uint32_t k;
        for (k = 8 * i; k < 8 * i + 8; k++) {
            group_queued += queued[k];
            group_device += at_device[k];
        }
        FUZZ_CHECK(tags_info(&tags, CLIENTS + i, &r) == QOS_OK);
        FUZZ_CHECK(r.queued == group_queued && r.reserved_per_s == group_reservation[i]);
        FUZZ_CHECK(config.no_completions || r.at_device == group_device);
        FUZZ_CHECK(!r.waiting_at_limit || r.queued);
        FUZZ_CHECK(sum_of(i, reservation) <= group_reservation[i]);
        sum_reserved += group_reservation[i] - sum_of(i, reservation);
    }
    FUZZ_CHECK(tags_info(&tags, QOS_NONE, &r) == QOS_OK);
    FUZZ_CHECK(r.queued == sum_queued && r.reserved_per_s == sum_reserved);
    FUZZ_CHECK(config.no_completions || r.at_device == sum_device);
}

static void open_tags(struct fuzz_input *in)
{
    const struct tags_client bare = {1, 0, 0};
    struct tags_config *c = &config;
    uint32_t g;
    memset(c, 0, sizeof *c);
    c->clients = CLIENTS;
    c->at_device_max = (uint32_t)fuzz_between(in, 1, GRANTS);
    c->mode = fuzz_between(in, 0, 1) ? TAGS_PS : TAGS_REWARD;
    c->at_limit = (enum tags_at_limit)fuzz_between(in, 0, 2);
    c->count_cost = fuzz_between(in, 0, 1);
    c->no_completions = c->mode == TAGS_PS && fuzz_between(in, 0, 1);
    c->attribute = c->mode == TAGS_REWARD && fuzz_between(in, 0, 1);

    c->channels = c->attribute ? (uint32_t)fuzz_between(in, 0, 9) : 0;
    c->window = (uint32_t)fuzz_between(in, 0, 9);
    c->count_by_client = fuzz_between(in, 0, 1);
    c->lead_requests = (uint32_t)fuzz_between(in, 0, 3);
    c->weight_share_permille = fuzz_between(in, 0, 1) ? 0 : (uint32_t)fuzz_between(in, 0, 999);
    c->moves_max = fuzz_between(in, 0, 3) ? 0 : (uint32_t)fuzz_between(in, 1, 5);
    c->cost_max = any(in, QOS_TOKENS_MAX);
    c->capacity_per_s = any(in, UINT64_MAX);
    c->limit_burst_ns = any_or_nothing(in, UINT64_C(1) << 62);
    c->reserve_lag_ns = any_or_nothing(in, UINT64_C(1) << 62);
    c->reject_after_ns = any(in, UINT64_MAX);
    c->force_debt_requests = any_or_nothing(in, 65536);
    c->service_ns = any(in, QOS_TOKENS_MAX);
    c->service_floor_ns = any_or_nothing(in, QOS_NS_PER_S);
    c->groups = fuzz_between(in, 0, 1) ? GROUPS : 0;
    now = latest = any(in, UINT64_MAX);
    set_back = false;
    memset(group_limit, 0, sizeof group_limit);
    memset(group_reservation, 0, sizeof group_reservation);
    memset(queued, 0, sizeof queued);
    memset(present, 0, sizeof present);
    memset(at_device, 0, sizeof at_device);
    memset(limit, 0, sizeof limit);
    memset(reservation, 0, sizeof reservation);
    memset(&stale, 0, sizeof stale);
    grants = 0;
    FUZZ_CHECK(tags_memsize(c) != 0 && tags_memsize(c) <= sizeof memory);
    FUZZ_CHECK(tags_init(&tags, memory, sizeof memory, c) == QOS_OK);
    for (g = 0; g < c->groups; g++)
        FUZZ_CHECK(tags_group_add(&tags, now, CLIENTS + g, &bare, 8 * g, 8) == QOS_OK);
    if (c->no_completions)
        c->at_device_max = GRANTS;
    c->cost_max = c->cost_max ? c->cost_max : 1;
}

static struct tags_client any_terms(struct fuzz_input *in)
{
    struct tags_client x;
    x.weight = any(in, TAGS_WEIGHT_MAX + 1);
    x.reservation_per_s = any(in, QOS_RATE_MAX + 1);
    x.limit_per_s = fuzz_between(in, 0, 1) ? 0 : any(in, QOS_RATE_MAX + 1);
    return x;
}

/* A group gets other terms, or ends and begins again. */
static void group_op(struct fuzz_input *in, uint32_t g)
{
    const uint64_t one[CLIENTS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct tags_client x = any_terms(in);
    struct tags_state r;
    enum qos_status status;
    FUZZ_CHECK(tags_info(&tags, CLIENTS + g, &r) == QOS_OK);
    if (fuzz_between(in, 0, 3) == 0) {
        status = tags_remove(&tags, now, CLIENTS + g, NULL);
        FUZZ_CHECK(status == (sum_of(g, one) || r.at_device ? QOS_EBUSY : QOS_OK));
        if (status != QOS_OK)
            return;
        x.reservation_per_s = 0;
        status = tags_group_add(&tags, now, CLIENTS + g, &x, 8 * g, 8);
        if (status != QOS_OK) {
            FUZZ_CHECK(status == QOS_ERANGE && tags_client_error(&x));
            x.weight = 1;
            x.limit_per_s = 0;
            FUZZ_CHECK(tags_group_add(&tags, now, CLIENTS + g, &x, 8 * g, 8) == QOS_OK);
        }
    } else {
        status = tags_change(&tags, now, CLIENTS + g, &x);
        FUZZ_CHECK((status == QOS_ERANGE) == (tags_client_error(&x) != NULL));
        FUZZ_CHECK(status == QOS_ERANGE || (status == QOS_OK) == (x.reservation_per_s <= r.admissible_per_s &&
                                                                  x.reservation_per_s >= sum_of(g, reservation)));
        if (status != QOS_OK)
            return;
    }
    group_limit[g] = x.limit_per_s;
    group_reservation[g] = x.reservation_per_s;
}

static void client_op(struct fuzz_input *in, uint32_t id)
{
    struct tags_client x = any_terms(in);
    struct tags_state r;
    uint32_t dropped = 0;
    enum qos_status status;
    if (fuzz_between(in, 0, 7) == 0) {
        status = tags_remove(&tags, now, id, &dropped);
        FUZZ_CHECK((status == QOS_ENOENT) == !present[id]);
        if (status == QOS_OK) {
            FUZZ_CHECK(dropped == queued[id]);
            queued[id] = 0;
            present[id] = false;
        }
        return;
    }
    FUZZ_CHECK(tags_info(&tags, present[id] ? id : QOS_NONE, &r) == QOS_OK);
    if (config.groups && !present[id])
        r.admissible_per_s = group_reservation[id / 8] - sum_of(id / 8, reservation);
    status = present[id] ? tags_change(&tags, now, id, &x) : tags_add(&tags, now, id, &x);
    FUZZ_CHECK(status == QOS_OK || status == QOS_ERANGE || status == QOS_EADMISSION);
    FUZZ_CHECK((status == QOS_ERANGE) == (tags_client_error(&x) != NULL));
    FUZZ_CHECK((status == QOS_EADMISSION) == (status != QOS_ERANGE && x.reservation_per_s > r.admissible_per_s));
    if (status == QOS_OK) {
        present[id] = true;
        limit[id] = x.limit_per_s;
        reservation[id] = x.reservation_per_s;
    }
}

/* grant[grants] is at the device now. */
static void taken(void)
{
    if (config.no_completions)
        return;
    at_device[grant[grants].client]++;
    grants++;
}

static void dispatch_op(struct fuzz_input *in)
{
    struct tags_choice choice = {0, TAGS_PHASE_WEIGHT};
    uint64_t cost = any(in, config.cost_max), next = tags_next_ns(&tags, now), sum = 0;
    uint32_t delta = (uint32_t)any(in, UINT32_MAX), rho = (uint32_t)any(in, delta), i;
    enum qos_status status = tags_choose(&tags, now, &choice);
    bool full = !config.no_completions && grants >= config.at_device_max;
    FUZZ_CHECK(!full || next == QOS_NEVER);
    for (i = 0; i < CLIENTS; i++)
        sum += queued[i];
    FUZZ_CHECK(next >= now);
    if (status == QOS_EAGAIN) {
        FUZZ_CHECK((next == QOS_NEVER) == (sum == 0 || full) || now == QOS_NEVER || (next == now && config.moves_max));
        if (config.moves_max)
            return;
        for (i = 0; i < CLIENTS; i++) /* every client without a limit is served */
            FUZZ_CHECK(queued[i] == 0 || limited(i));
        /* A time more than a year (2^55 ns) ahead counts as an error of the clock. */
        if (next != QOS_NEVER && next > now && next - now < UINT64_C(1) << 55 && fuzz_between(in, 0, 1)) {
            FUZZ_CHECK(tags_choose(&tags, next - 1, &choice) == QOS_EAGAIN || next - 1 == now);
            now = next;
            for (i = 0; tags_choose(&tags, now, &choice) == QOS_EAGAIN; i++) { /* time stands still after a setback */
                FUZZ_CHECK(set_back && i < 16);
                next = tags_next_ns(&tags, now);
                if (next == QOS_NEVER || next - now >= UINT64_C(1) << 55)
                    return;
                now = next;
            }
        }
        return;
    }
    FUZZ_CHECK(status == QOS_OK && (next == now || config.moves_max || full) && queued[choice.client] > 0);
    if (grants == GRANTS)
        return;
    status = tags_dispatch(&tags, now, &choice, cost, rho, delta, &grant[grants]);
    FUZZ_CHECK((status == QOS_EFULL) == (grants >= config.at_device_max));
    FUZZ_CHECK(status == QOS_OK || status == QOS_EFULL);
    if (status != QOS_OK)
        return;
    queued[choice.client]--;
    taken();
}

static void give_back(unsigned i, enum qos_status status)
{
    FUZZ_CHECK(status == QOS_OK);
    at_device[grant[i].client]--;
    stale = grant[i];
    FUZZ_CHECK(tags_cancel(&tags, now, &stale) == QOS_ESTALE);
    FUZZ_CHECK(tags_complete(&tags, now, &stale, 1) == QOS_ESTALE);
    grant[i] = grant[--grants];
}

static void completion_op(struct fuzz_input *in)
{
    unsigned i = (unsigned)fuzz_between(in, 0, grants - 1), k;
    uint64_t service = any(in, UINT64_MAX);
    struct tags_grant lost;
    if (fuzz_between(in, 0, 3) == 0)
        grant[i].cost = (uint32_t)any(in, config.cost_max);
    switch (fuzz_between(in, 0, 4)) {
    case 0: give_back(i, tags_cancel(&tags, now, &grant[i])); break;
    case 1: give_back(i, tags_fail(&tags, now, &grant[i], service)); break;
    case 2: /* the oldest: the least serial number */
        for (i = 0, k = 1; k < grants; k++)
            if (grant[k].serial < grant[i].serial)
                i = k;
        if (tags_give_up(&tags, now, any(in, UINT64_MAX), &lost) != QOS_OK)
            break;
        FUZZ_CHECK(lost.serial == grant[i].serial && lost.client == grant[i].client);
        give_back(i, QOS_OK);
        break;
    default: give_back(i, tags_complete(&tags, now, &grant[i], service)); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct qos_stats stats, one;
    uint64_t count;
    uint32_t id;
    enum qos_status status;
    open_tags(&in);
    while (in.left > 0) {
        id = (uint32_t)fuzz_between(&in, 0, CLIENTS - 1);
        switch (fuzz_between(&in, 0, 11)) {
        case 0:
        case 1:
            if (config.groups && fuzz_between(&in, 0, 3) == 0)
                group_op(&in, id / 8);
            else
                client_op(&in, id);
            break;
        case 2:
        case 3:
        case 4:
            count = any(&in, UINT32_MAX);
            status = tags_arrive(&tags, now, id, (uint32_t)count, any(&in, config.cost_max));
            if (status == QOS_OK)
                queued[id] += (uint32_t)count;
            FUZZ_CHECK(status == QOS_OK || !present[id] || count == 0 || status == QOS_ELIMIT || status == QOS_EFULL);
            break;
        case 5:
            count = fuzz_between(&in, 0, 1) ? queued[id] : any(&in, queued[id]);
            status = tags_withdraw(&tags, now, id, (uint32_t)count);
            FUZZ_CHECK((status == QOS_OK) == (present[id] && count));
            if (status == QOS_OK)
                queued[id] -= (uint32_t)count;
            break;
        case 6: /* time: forward, backward, to its end */
            count = any(&in, UINT64_MAX);
            latest = now > latest ? now : latest;
            now = fuzz_between(&in, 0, 7) ? qos_sat_add(now, count) : count;
            set_back |= now < latest || now - latest >= UINT64_C(1) << 55;
            break;
        case 7:
            if (grants >= GRANTS)
                break;
            status = tags_force(&tags, now, id, any(&in, config.cost_max), &grant[grants]);
            if (status == QOS_OK)
                taken();
            FUZZ_CHECK(status == QOS_OK || status == QOS_EDEBT || status == QOS_EFULL || !present[id]);
            break;
        case 8:
        case 9: dispatch_op(&in); break;
        default:
            if (grants)
                completion_op(&in);
        }
        check_report();
    }
    FUZZ_CHECK(tags_stats(&tags, QOS_NONE, &stats) == QOS_OK && stats.borrowed <= stats.granted);
    if (config.count_by_client) {
        for (count = 0, id = 0; id < CLIENTS; id++) {
            FUZZ_CHECK(tags_stats(&tags, id, &one) == QOS_OK);
            count += one.granted;
        }
        FUZZ_CHECK(count == stats.granted);
    }
    while (grants) /* completes everything: nothing is at the device */
        give_back(grants - 1, tags_complete(&tags, now, &grant[grants - 1], 1000));
    check_report();
    return 0;
}
