// proves: the engines' own operations on the data node, all clients backlogged: at most 5 % of the I/Os with 10 to
// proves: 1,000 clients and 20 % with 10,000, at 1,570,000 tokens a period. No period issues more than 105 % of its
// proves: capacity
// variants: native
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

static bool drive(struct tokenpool_client *c, void *storage, uint64_t now, bool counted)
{
    struct tokenpool_op op;
    bool any = false;
    while (tokenpool_client_next(c, now, 1, &op)) {
        operations += counted;
        tokenpool_client_done(c, tokenpool_storage_run(storage, &op));
        any = true;
    }
    return any;
}

/* Clients can do twice their share, so that they run out of tokens in the middle of the period. */
static void run(uint32_t clients, bool reserved, double most_percent)
{
    static struct tokenpool_monitor m;
    struct tokenpool_config config;
    const uint64_t step = clients > 1000 ? 2000000 : 500000;
    size_t bytes, storage_bytes;
    void *memory, *storage;
    uint64_t now;
    uint32_t i;
    double percent;
    memset(&config, 0, sizeof config);
    config.clients = clients;
    config.capacity = 1570000;
    config.flags = TOKENPOOL_FIXED;
    bytes = tokenpool_monitor_memsize(&config);
    storage_bytes = tokenpool_storage_memsize(&config);
    memory = room(bytes);
    storage = room(storage_bytes);
    CHECK_EQ(tokenpool_monitor_init(&m, memory, bytes, storage, storage_bytes, &config), QOS_OK);
    for (i = 0; i < clients; i++) {
        CHECK_EQ(tokenpool_monitor_join(&m, i, reserved ? config.capacity * 9 / 10 / clients : 0, 0, NULL), QOS_OK);
        CHECK_EQ(
            tokenpool_client_attach_remote(&client[i], i, 0, (char *)storage + TOKENPOOL_OFFSET_HEAD, storage_bytes),
            QOS_OK);
        tokenpool_client_set_queued(&client[i], TOKENPOOL_BACKLOGGED);
        credit[i] = 0;
    }
    operations = ios = 0;
    for (now = 0; now < PERIODS * QOS_NS_PER_S; now += step) {
        bool counted = now >= QOS_NS_PER_S;
        double each = 2 * 1570000e-9 * (double)step / clients;
        while (tokenpool_monitor_next_ns(&m, now) <= now)
            tokenpool_monitor_run(&m, now);
        for (i = 0; i < clients; i++) {
            struct tokenpool_client *c = &client[i];
            (void)drive(c, storage, now, counted);
            credit[i] = credit[i] + each > 64 + each ? 64 + each : credit[i] + each;
            while (credit[i] >= 1) {
                if (tokenpool_client_take(c, now, 1) != QOS_OK &&
                    (!drive(c, storage, now, counted) || tokenpool_client_take(c, now, 1) != QOS_OK))
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

int main(void)
{
    unsigned reserved;
    check_begin("property/tokenpool_traffic");
    for (reserved = 0; reserved < 2; reserved++) {
        if (check_state.scale <= 2)
            run(10000, reserved, 20);
        run(1000, reserved, 5);
        run(100, reserved, 5);
        run(10, reserved, 5);
    }
    return check_end();
}
