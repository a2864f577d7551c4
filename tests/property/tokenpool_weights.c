// proves: TOKENPOOL_ORDERED, default batch: over many periods backlogged clients get the pool by weight, though they are
// proves: called in the same order in each of them, or in another one at each step, and though monitors take over from
// proves: each other twice in each period
// variants: native
// coverage: report
#include "tokenpool.h"
#include "check.h"

enum { MOST = 8, STEPS = 2048 };

struct one {
    struct tokenpool_client engine;
    uint64_t weight, under_way, done, before;
};

static struct one client[MOST];
static struct tokenpool_monitor monitor;
static struct tokenpool_config config;
static uint64_t storage[512] __attribute__((aligned(64))), memory[512] __attribute__((aligned(64)));

/* With the defaults of batch and check. */
static void ordered(unsigned clients, uint64_t period_ns, uint64_t capacity, uint64_t overrun)
{
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.capacity = capacity;
    config.period_ns = period_ns;
    config.overrun = overrun;
    config.flags = TOKENPOOL_ORDERED | TOKENPOOL_FIXED;
    CHECK_EQ(tokenpool_monitor_init(&monitor, memory, sizeof memory, storage, sizeof storage, &config), QOS_OK);
}

static void enter(unsigned id, uint64_t reservation, uint64_t weight)
{
    CHECK_EQ(tokenpool_monitor_join(&monitor, id, reservation, 0, NULL), QOS_OK);
    CHECK_EQ(tokenpool_monitor_set_weight(&monitor, id, (uint32_t)weight), QOS_OK);
    CHECK_EQ(tokenpool_client_attach(&client[id].engine, id, 0, storage, sizeof storage), QOS_OK);
}

/* A node that serves all who have I/Os there in turn, `capacity` in a period of 1 s, at most `depth` of each. taken: another
 * monitor takes over after so many steps, on the average; 0: none. */
static void node(struct check_rng *rng, uint64_t capacity, const uint64_t *weight, unsigned n, bool drawn,
                 uint64_t taken)
{
    const unsigned periods = capacity > 100000 ? 15 : 60, first = 10; /* first: that is judged */
    uint64_t now = 1000000, depth = capacity / 150 + 2, sum = 0, all = 0, credit = 0;
    struct tokenpool_monitor_state state = {0};
    unsigned i, k, order[MOST], turn = 0, step;
    memset(client, 0, sizeof client);
    ordered(n, 0, capacity, 0);
    for (i = 0; i < n; i++) {
        order[i] = i;
        client[i].weight = weight[i];
        sum += weight[i];
        enter(i, 0, weight[i]);
    }
    for (step = 0; step < periods * STEPS; step++) {
        now += QOS_NS_PER_S / STEPS;
        if (taken && check_between(rng, 1, taken) == 1)
            CHECK_EQ(tokenpool_monitor_resume(&monitor, memory, sizeof memory, storage, sizeof storage, &config),
                     QOS_OK);
        tokenpool_monitor_run(&monitor, now);
        for (i = n - 1; drawn && i > 0; i--) {
            unsigned j = (unsigned)check_between(rng, 0, i), was = order[i];
            order[i] = order[j];
            order[j] = was;
        }
        for (k = 0; k < n; k++) {
            struct one *c = &client[order[k]];
            while (c->under_way < depth && tokenpool_client_take(&c->engine, now, 1) == QOS_OK)
                c->under_way++;
            tokenpool_client_set_queued(&c->engine, TOKENPOOL_BACKLOGGED);
        }
        for (credit += capacity, k = 0; credit >= STEPS && k < n; turn = (turn + 1) % n) {
            struct one *c = &client[turn];
            k = c->under_way ? 0 : k + 1;
            if (!c->under_way)
                continue;
            c->under_way--;
            c->done++;
            credit -= STEPS;
            tokenpool_client_complete(&c->engine, 1);
        }
        credit = k < n ? credit : 0;
        for (i = 0; step == first * STEPS && i < n; i++)
            client[i].before = client[i].done;
    }
    CHECK_EQ(tokenpool_monitor_info(&monitor, &state), QOS_OK);
    for (i = 0; i < n; i++)
        all += client[i].done - client[i].before;
    CHECK(all >= capacity * (periods - first) * 99 / 100);
    for (i = 0; i < n; i++) {
        uint64_t got = (client[i].done - client[i].before) * sum * 1000, fair = all * client[i].weight;
        CHECK_CONTEXT("capacity %u, client %u of %u, %s order, takeovers each %u steps", (unsigned)capacity, i, n,
                      drawn ? "drawn" : "fixed", (unsigned)taken);
        CHECK(got >= 960 * fair);
        CHECK(got <= 1060 * fair);
    }
}

/* Periods shorter than the usual check, which is the default: three clients take all they get, five of large weight nothing.
 * In each period what the three got differs by two batches at most. */
static void short_periods(uint64_t period_ns)
{
    const uint64_t capacity = 12800, batch = capacity / (7 * MOST) + 1;
    struct tokenpool_monitor_state state = {0};
    uint64_t now, epoch = 0, judged = 0, got[3] = {0}, next[MOST];
    unsigned i;
    ordered(MOST, period_ns, capacity, 0);
    for (i = 0; i < MOST; i++) {
        enter(i, 0, i < 3 ? 1 : 8);
        next[i] = i * (period_ns / 7000);
    }
    for (now = 0; now < 20 * period_ns; now += period_ns / 20000) {
        if (tokenpool_monitor_next_ns(&monitor, now) <= now)
            tokenpool_monitor_run(&monitor, now);
        CHECK_EQ(tokenpool_monitor_info(&monitor, &state), QOS_OK);
        for (; state.epoch != epoch; epoch = state.epoch, got[0] = got[1] = got[2] = 0)
            for (i = 0; epoch >= 5 && i < 3; i++, judged++) {
                CHECK_CONTEXT("T %u us: %u and %u tokens", (unsigned)(period_ns / 1000), (unsigned)got[i],
                              (unsigned)got[(i + 1) % 3]);
                CHECK_LE(got[i], got[(i + 1) % 3] + 2 * batch);
                CHECK_LE(got[(i + 1) % 3], got[i] + 2 * batch);
            }
        for (i = 0; i < MOST; i++) {
            enum qos_status s = QOS_EAGAIN;
            if (now < next[i])
                continue;
            tokenpool_client_run(&client[i].engine, now, i < 3);
            while (i < 3 && (s = tokenpool_client_take(&client[i].engine, now, 1)) == QOS_OK) {
                tokenpool_client_complete(&client[i].engine, 1);
                got[i]++;
            }
            next[i] = qos_min(now + period_ns / 520, tokenpool_client_next_ns(&client[i].engine, now, i < 3));
        }
    }
    CHECK(judged >= 30);
}

/* Some want all and are called each T / 520, the others nothing: what these leave is used, in each period but for one part in
 * a hundred, and what the backlogged ones got of the pool, by weight, differs by two claims at most: batches, or what the
 * estimate has for T / 64, but not more than half of a client's part. Requests are of `size` tokens. */
static void few(uint64_t period_ns, uint64_t capacity, unsigned wants, const uint64_t *weight, uint64_t own,
                uint64_t theirs, uint64_t size)
{
    struct tokenpool_monitor_state state = {0};
    struct tokenpool_client_state info[MOST];
    uint64_t now, epoch = 0, judged = 0, used = 0, sum = 0, claim, next[MOST];
    unsigned i;
    ordered(MOST, period_ns, capacity, QOS_NOTHING);
    for (i = 0; i < MOST; i++) {
        enter(i, i < wants ? own : theirs, weight[i]);
        next[i] = i * (period_ns / 7000);
        sum += i < wants ? weight[i] : 0;
    }
    claim = qos_min(qos_max(capacity / (64 * sum), capacity / (7 * MOST)), capacity / (2 * sum)) + 1;
    for (now = 0; now < 12 * period_ns; now += period_ns / 8000) {
        if (tokenpool_monitor_next_ns(&monitor, now) <= now)
            tokenpool_monitor_run(&monitor, now);
        CHECK_EQ(tokenpool_monitor_info(&monitor, &state), QOS_OK);
        for (; state.epoch != epoch; epoch = state.epoch, used = 0) {
            CHECK_CONTEXT("T %u us, %u of %u: %u used", (unsigned)(period_ns / 1000), wants, MOST, (unsigned)used);
            CHECK(epoch < 5 || used + wants * size >= capacity - (capacity - wants * own) / 100);
            for (i = 0; epoch >= 5 && i < wants; i++, judged++) {
                unsigned j = (i + 1) % wants;
                CHECK_LE(info[i].gained / weight[i], info[j].gained / weight[j] + 2 * claim);
                CHECK_LE(info[j].gained / weight[j], info[i].gained / weight[i] + 2 * claim);
            }
        }
        for (i = 0; i < MOST; i++) {
            if (now < next[i])
                continue;
            tokenpool_client_run(&client[i].engine, now, i < wants ? size : 0);
            while (i < wants && tokenpool_client_take(&client[i].engine, now, size) == QOS_OK) {
                tokenpool_client_complete(&client[i].engine, size);
                used += size;
            }
            next[i] = now + period_ns / 520;
            if (tokenpool_client_epoch(&client[i].engine) == epoch)
                CHECK_EQ(tokenpool_client_info(&client[i].engine, &info[i]), QOS_OK);
        }
    }
    CHECK(judged >= 6 * wants);
}

int main(void)
{
    static const uint64_t alike[] = {1, 1, 1, 1, 1, 1, 1, 1}, heavy[] = {2, 1, 2, 900, 600, 1, 1, 1};
    static const uint64_t a[] = {10, 20, 30, 40}, b[] = {10, 10, 10, 10, 10}, c[] = {5, 5, 5, 5, 5},
                          d[] = {5, 1, 5, 6, 5, 7, 8, 3}, e[] = {1, 1, 1}, f[] = {1, 19}, g[] = {3, 7, 1, 9},
                          h[] = {1, 2, 4, 8}, k[] = {1, 3};
    struct check_rng rng;
    unsigned drawn;
    uint64_t taken, period_ns;
    check_begin("property/tokenpool_weights");
    check_rng_init(&rng, 1);
    for (taken = 0; taken <= 2 * STEPS; taken = 4 * taken + STEPS / 2)
        for (drawn = 0; drawn < 2; drawn++) {
            node(&rng, 10000, a, 4, drawn, taken);
            node(&rng, 10000, b, 5, drawn, taken);
            node(&rng, 30000, c, 5, drawn, taken);
            node(&rng, 10000, d, 8, drawn, taken);
            node(&rng, 10000, e, 3, drawn, taken);
            node(&rng, 1000, f, 2, drawn, taken);
            node(&rng, 100000, g, 4, drawn, taken);
        }
    node(&rng, 1000000, h, 4, false, 0);
    node(&rng, 5000000, k, 2, false, 0);
    for (period_ns = 1000000; period_ns <= 100000000; period_ns *= 10)
        short_periods(period_ns);
    few(QOS_NS_PER_S, 1517873, 2, alike, 226516, 177000, 1);
    few(QOS_NS_PER_S, 1177045, 1, alike, 716705, 20400, 1);
    few(QOS_NS_PER_S / 10, 491891, 1, alike, 36082, 42000, 1);
    few(QOS_NS_PER_S / 10, 1602774, 3, heavy, 0, 0, 1452);
    few(QOS_NS_PER_S / 100, 1602774, 3, heavy, 40000, 0, 3);
    return check_end();
}
