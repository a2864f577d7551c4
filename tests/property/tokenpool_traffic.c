// proves: the engines' own operations on the data node, all clients backlogged: at most 5 % of the I/Os with 10 to
// proves: 1,000 clients and 20 % with 10,000, at 1,570,000 tokens a period, none with more than 105 % of its capacity.
// proves: Of 1 to 1,000 clients that do what the node can: at most 16 operations a client and period, 17 if all begin
// proves: later with a reservation, 23 with 20 to 99 % reserved, 45 ordered; guard: 30, of a large C 520; one alone
// proves: gets 99 % of what idle ones leave, 0.85 if these use half of 0.6 C. Ten alike: each a quarter of its share
// variants: native
// scale: 3
// coverage: report
#include "tokenpool.h"
#include "check.h"

enum { MOST = 10000, PERIODS = 3 };
static struct tokenpool_client client[MOST];
static double credit[MOST];

static void *room(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes) != 0)
        abort();
    memset(p, 0, bytes);
    return p;
}

static uint64_t operations, ios;
static void *memory, *storage;

static bool drive(struct tokenpool_client *c, uint64_t now, uint64_t need, bool counted)
{
    struct tokenpool_op op;
    bool any = false;
    while (tokenpool_client_next(c, now, need, &op)) {
        operations += counted;
        tokenpool_client_done(c, tokenpool_storage_run(storage, &op));
        any = true;
    }
    return any;
}

/* A monitor and its clients, all backlogged, each with the same reservation. */
static void begin(struct tokenpool_monitor *m, const struct tokenpool_config *config, uint64_t reservation)
{
    const size_t bytes = tokenpool_monitor_memsize(config), storage_bytes = tokenpool_storage_memsize(config);
    uint32_t i;
    memory = room(bytes);
    storage = room(storage_bytes);
    CHECK_EQ(tokenpool_monitor_init(m, memory, bytes, storage, storage_bytes, config), QOS_OK);
    for (i = 0; i < config->clients; i++) {
        CHECK_EQ(tokenpool_monitor_join(m, i, reservation, 0, NULL), QOS_OK);
        CHECK_EQ(
            tokenpool_client_attach_remote(&client[i], i, 0, (char *)storage + TOKENPOOL_OFFSET_HEAD, storage_bytes),
            QOS_OK);
        tokenpool_client_set_queued(&client[i], TOKENPOOL_BACKLOGGED);
        credit[i] = 0;
    }
    operations = ios = 0;
}

/* Clients can do twice their share, so that they run out of tokens in the middle of the period. */
static void run(uint32_t clients, bool reserved, double most_percent)
{
    static struct tokenpool_monitor m;
    struct tokenpool_config config;
    const uint64_t step = clients > 1000 ? 2000000 : 500000;
    uint64_t now;
    uint32_t i;
    double percent;
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.capacity = 1570000;
    config.flags = TOKENPOOL_FIXED;
    begin(&m, &config, reserved ? config.capacity * 9 / 10 / clients : 0);
    for (now = 0; now < PERIODS * QOS_NS_PER_S; now += step) {
        bool counted = now >= QOS_NS_PER_S;
        double each = 2 * 1570000e-9 * (double)step / clients;
        while (tokenpool_monitor_next_ns(&m, now) <= now)
            tokenpool_monitor_run(&m, now);
        for (i = 0; i < clients; i++) {
            struct tokenpool_client *c = &client[i];
            (void)drive(c, now, 1, counted);
            credit[i] = credit[i] + each > 64 + each ? 64 + each : credit[i] + each;
            while (credit[i] >= 1) {
                if (tokenpool_client_take(c, now, 1) != QOS_OK &&
                    (!drive(c, now, 1, counted) || tokenpool_client_take(c, now, 1) != QOS_OK))
                    break;
                tokenpool_client_complete(c, 1);
                ios += counted;
                credit[i] -= 1;
            }
        }
    }
    percent = 100.0 * (double)operations / (double)ios;
    printf("%u clients, %s reserved: %.1f %% of %.0f I/Os a period, %.0f operations for each client\n", clients,
           reserved ? "90 %" : "nothing", percent, (double)ios / (PERIODS - 1),
           (double)operations / (PERIODS - 1) / clients);
    CHECK_CONTEXT("%u clients, %d", clients, reserved);
    CHECK_WITHIN(percent, 0, most_percent);
    CHECK_GE(ios, (PERIODS - 1) * config.capacity / 100 * 98);
    CHECK_LE(ios, (PERIODS - 1) * config.capacity / 100 * 105 + 2 * clients);
    free(memory);
    free(storage);
}

/* Each client is called when it asks for it, and together they can do C; at T = 1 s and shorter, with the defaults. In the
 * first `idle` periods, which do not count, they want nothing, but one of them; nor in the part of the next one. */
static void run_small(uint32_t clients, uint64_t capacity, uint64_t period_ns, unsigned percent, uint64_t idle,
                      double part, uint32_t flags, double bound)
{
    static struct tokenpool_monitor m;
    static uint64_t next[MOST];
    struct tokenpool_config config;
    const uint64_t step = period_ns / 8000, periods = idle > 1 ? 1 : 3;
    const double most = capacity / clients > 32000 ? (double)capacity / 4000 / clients : 8;
    uint64_t now;
    uint32_t i;
    double each;
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.capacity = capacity;
    config.period_ns = period_ns;
    config.flags = TOKENPOOL_FIXED | flags;
    begin(&m, &config, capacity * percent / 100 / clients);
    memset(next, 0, sizeof next);
    for (now = 0; now < (idle + periods) * period_ns; now += step) {
        while (tokenpool_monitor_next_ns(&m, now) <= now)
            tokenpool_monitor_run(&m, now);
        for (i = 0; i < clients; i++) {
            struct tokenpool_client *c = &client[i];
            bool wants = (double)now >= ((double)idle + part) * (double)period_ns || idle == 1 || i == 0;
            credit[i] += wants ? (double)capacity / 8000 / clients : 0;
            credit[i] = credit[i] > most ? most : credit[i];
            tokenpool_client_set_queued(c, wants ? TOKENPOOL_BACKLOGGED : 0);
            if (now < next[i])
                continue;
            (void)drive(c, now, wants, now >= idle * period_ns);
            while (credit[i] >= 1 && tokenpool_client_held(c) && tokenpool_client_take(c, now, 1) == QOS_OK) {
                tokenpool_client_complete(c, 1);
                ios += now >= idle * period_ns;
                credit[i] -= 1;
            }
            next[i] = wants && tokenpool_client_held(c) ? now + step : tokenpool_client_next_ns(c, now, wants);
        }
    }
    each = (double)operations / (double)periods / clients;
    printf("%u clients, C %" PRIu64
           ", T %g ms, %u %% reserved%s%s: %.1f operations a client and period, %.1f %% of C\n",
           clients, capacity, (double)period_ns / 1e6, percent,
           flags & TOKENPOOL_GUARD     ? ", guard"
           : flags & TOKENPOOL_ORDERED ? ", ordered"
                                       : "",
           part > 0   ? ", later"
           : idle > 1 ? ", all at once"
                      : "",
           each, 100 * (double)ios / (double)(periods * capacity));
    CHECK_CONTEXT("%u clients, C %" PRIu64 ", T %g ms, %u %% reserved, flags %u", clients, capacity,
                  (double)period_ns / 1e6, percent, flags);
    CHECK_WITHIN(each, 0, bound);
    CHECK_GE((double)ios, /* of an I/O no part */
             (double)(periods * capacity) * ((idle > 1 ? 0.89
                                              : flags  ? 0.88
                                                       : 0.97) -
                                             part));
    free(memory);
    free(storage);
}

static void test_small(void)
{
    static const struct {
        uint32_t clients;
        uint64_t capacity, period_ns;
    } row[] = {{10, 10000, 1000000000},    {100, 10000, 1000000000},   {100, 100000, 1000000000},
               {1000, 10000, 1000000000},  {1000, 100000, 1000000000}, {100, 15700, 10000000},
               {100, 1570, 1000000},       {10, 10000, 10000000000},   {10, 1570000, 1000000000},
               {100, 1570000, 1000000000}, {1, 1570000, 1000000000}};
    unsigned i;
    for (i = 0; i < sizeof row / sizeof *row; i++) {
        run_small(row[i].clients, row[i].capacity, row[i].period_ns, 0, 1, 0, 0, 16);
        run_small(row[i].clients, row[i].capacity, row[i].period_ns, 90, 1, 0, 0, 16);
        run_small(row[i].clients, row[i].capacity, row[i].period_ns, 0, 6, 0, 0, 16);
        run_small(row[i].clients, row[i].capacity, row[i].period_ns, 90, 6, 0, 0, 16);
    }
    for (i = 0; i < 6; i++) /* 10 clients */
        run_small(row->clients, row->capacity, row->period_ns, i % 2 ? 90 : 0, 6,
                  i < 2   ? 0.002
                  : i < 4 ? 0.01
                          : 0.1,
                  0, i % 2 ? 17 : 16);
    for (i = 0; i < 4; i++) { /* where the chapter's limit is above 16 */
        static const unsigned percent[] = {20, 50, 70, 99};
        static const double most[] = {18, 18.5, 22, 23};
        run_small(10, 10000, QOS_NS_PER_S, percent[i], 1, 0, 0, most[i]);
        run_small(50, 100000, QOS_NS_PER_S, percent[i], 1, 0, 0, most[i]);
        run_small(10, 1570000, QOS_NS_PER_S, percent[i], 1, 0, 0, most[i]);
        run_small(10, 10000, QOS_NS_PER_S, percent[i], 1, 0, TOKENPOOL_GUARD, 30);
        run_small(10, 1570000, QOS_NS_PER_S, percent[i], 1, 0, TOKENPOOL_GUARD, 520);
        run_small(10, 10000, QOS_NS_PER_S, percent[i], 1, 0, TOKENPOOL_ORDERED, 45);
        run_small(10, 1570000, QOS_NS_PER_S, percent[i], 1, 0, TOKENPOOL_ORDERED, 45);
    }
    run_small(10, 1570000, QOS_NS_PER_S, 0, 1, 0, TOKENPOOL_GUARD, 520);
    run_small(10, 10000, QOS_NS_PER_S, 0, 1, 0, TOKENPOOL_ORDERED, 45);
}

/* One client asks, as often as it may; the others sleep. With checks as long as T / parts. */
static void run_alone(uint32_t clients, unsigned parts, unsigned percent)
{
    static struct tokenpool_monitor m;
    struct tokenpool_config config;
    const uint64_t T = QOS_NS_PER_S, periods = 6;
    uint64_t now, got = 0, idle;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.capacity = 100000;
    config.check_ns = T / parts;
    config.flags = TOKENPOOL_FIXED;
    config.overrun = QOS_NOTHING;
    config.silent_periods = QOS_UNLIMITED;
    begin(&m, &config, config.capacity * percent / 100 / clients);
    for (now = 0; now < periods * T; now += T / 2048) {
        while (tokenpool_monitor_next_ns(&m, now) <= now)
            tokenpool_monitor_run(&m, now);
        for (i = 0; i < clients; i++) {
            tokenpool_client_set_queued(&client[i], i ? 0 : TOKENPOOL_BACKLOGGED);
            (void)drive(&client[i], now, i == 0, false);
        }
        while (tokenpool_client_held(&client[0]) && tokenpool_client_take(&client[0], now, 1) == QOS_OK) {
            got += now >= 2 * T;
            tokenpool_client_complete(&client[0], 1);
            (void)drive(&client[0], now, 1, false);
        }
    }
    idle = config.capacity * percent / 100;
    printf("one of %u clients asks, checks each T / %u, %u %% reserved by the others: %.1f %% of C\n", clients, parts,
           percent, 100 * (double)got / (double)((periods - 2) * config.capacity));
    CHECK_CONTEXT("%u clients, checks each T / %u, %u %%", clients, parts, percent);
    CHECK_GE(got + (periods - 2) * (idle / 100 + config.capacity / 1000), (periods - 2) * config.capacity);
    free(memory);
    free(storage);
}

/* Two clients use half of what they reserve, all the time, and a third one wants everything. Trials come after 1, 2, 4, ...
 * periods: none of them in those that count. */
static void run_partly(uint64_t capacity, unsigned percent, uint64_t least_permille)
{
    static struct tokenpool_monitor m;
    struct tokenpool_config config;
    const uint64_t T = QOS_NS_PER_S, periods = 28, from = 18;
    uint64_t now, sum[3] = {0}, left, got;
    double due[3] = {0};
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.clients = 3;
    config.capacity = capacity;
    config.flags = TOKENPOOL_FIXED;
    config.overrun = QOS_NOTHING;
    begin(&m, &config, 0);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(tokenpool_monitor_change(&m, i, i ? capacity * percent / 200 : 0, 0, NULL), QOS_OK);
        CHECK_EQ(tokenpool_client_attach(&client[i], i, 0, storage, tokenpool_storage_memsize(&config)), QOS_OK);
    }
    for (now = 0; now < periods * T; now += T / 2048) {
        while (tokenpool_monitor_next_ns(&m, now) <= now)
            tokenpool_monitor_run(&m, now);
        for (i = 0; i < 3; i++) {
            due[i] = i ? due[i] + (double)capacity * percent / 400 / 2048 : (double)capacity;
            tokenpool_client_run(&client[i], now, 0);
            for (; due[i] >= 1 && tokenpool_client_take(&client[i], now, 1) == QOS_OK; due[i] -= 1) {
                tokenpool_client_complete(&client[i], 1);
                sum[i] += now >= from * T;
            }
        }
    }
    left = (periods - from) * (capacity * percent / 100) - sum[1] - sum[2];
    got = sum[0] - (periods - from) * (capacity - capacity * percent / 100);
    printf("C %" PRIu64 ", %u %% reserved, half of it used: of the rest %.2f\n", capacity, percent,
           (double)got / (double)left);
    CHECK_CONTEXT("C %" PRIu64 ", %u %% reserved", capacity, percent);
    CHECK_GE((sum[1] + sum[2]) * 1000, (periods - from) * capacity * percent / 200 * 999);
    CHECK_GE(got * 1000, left * least_permille);
    free(memory);
    free(storage);
}

/* Ten clients, called alike, share what another one leaves, which uses all its R evenly; they ask for twice as much.
 * rare: nine of them do one I/O in each quarter of a period, and the first one wants all. Without overrun. */
static void run_shares(unsigned percent, uint64_t size, bool rare)
{
    static struct tokenpool_monitor m;
    struct tokenpool_config config;
    const uint64_t T = QOS_NS_PER_S, step = T / 4000;
    uint64_t now, got[11] = {0}, least = QOS_UNLIMITED, sum = 0;
    uint32_t i, k;
    memset(&config, 0, sizeof config);
    config.clients = percent ? 11 : 10;
    config.capacity = 1570000;
    config.flags = TOKENPOOL_FIXED;
    config.overrun = QOS_NOTHING;
    begin(&m, &config, 0);
    if (percent)
        CHECK_EQ(tokenpool_monitor_change(&m, 10, config.capacity * percent / 100, 0, NULL), QOS_OK);
    for (now = 0; now < 8 * T; now += step) {
        while (tokenpool_monitor_next_ns(&m, now) <= now)
            tokenpool_monitor_run(&m, now);
        for (k = 0; k < config.clients; k++) {
            double want = (double)config.capacity;
            i = (uint32_t)((k + now / step * 7) % config.clients); /* in turn first */
            want *= i == 10 ? percent / 100.0 : rare ? 2 : (100 - percent) / 500.0;
            if (rare && i)
                want = 4.0 * (double)size;
            credit[i] =
                credit[i] + want / 4000 > want / 16 + (double)size ? want / 16 + (double)size : credit[i] + want / 4000;
            for (; credit[i] >= (double)size; credit[i] -= (double)size) {
                if (tokenpool_client_take(&client[i], now, size) != QOS_OK &&
                    (!drive(&client[i], now, size, false) || tokenpool_client_take(&client[i], now, size) != QOS_OK))
                    break;
                tokenpool_client_complete(&client[i], size);
                got[i] += size;
            }
            (void)drive(&client[i], now, 0, false);
        }
        if ((now + step) % T)
            continue;
        for (i = 0; i < config.clients; i++) {
            least = now > 2 * T && i < 10 ? qos_min(least, got[i]) : least;
            sum += now > 2 * T ? got[i] : 0;
            got[i] = 0;
        }
    }
    printf("%u %% reserved, I/Os of %" PRIu64 "%s: in all %.3f of C, the least share of a period %.2f\n", percent, size,
           rare ? ", one wants all" : "", (double)sum / 6 / (double)config.capacity,
           (double)least * 1000 / (double)((100 - percent) * config.capacity));
    CHECK_CONTEXT("%u %%, I/Os of %" PRIu64 ", %u", percent, size, rare);
    CHECK_GE(sum * 100, 6 * config.capacity * 98);
    if (!rare)
        CHECK_GE(least * 1000, config.capacity * (100 - percent) / 4);
    free(memory);
    free(storage);
}

int main(void)
{
    unsigned reserved;
    check_begin("property/tokenpool_traffic");
    test_small();
    run_alone(70, 16, 0);
    run_alone(70, 16, 60);
    run_alone(300, 8, 60);
    run_alone(300, 1000, 60);
    run_shares(0, 10, true);
    run_shares(90, 10, false);
    run_shares(95, 10, false);
    run_shares(0, 4096, false);
    run_shares(0, 16000, false);
    for (reserved = 0; reserved < 2; reserved++) {
        run_partly(reserved ? 200000 : 2000, 60, 850);
        run_partly(reserved ? 200000 : 2000, 90, 500);
        run_partly(reserved ? 200000 : 2000, 100, 0);
    }
    for (reserved = 0; reserved < 2; reserved++) {
        if (check_state.scale == 1 || (check_state.scale == 2 && reserved)) /* the dearest */
            run(10000, reserved, 20);
        run(1000, reserved, 5);
        run(100, reserved, 5);
        run(10, reserved, 5);
    }
    return check_end();
}
