// proves: over all interleavings, stale values included: schedulers that share a client's tags grant exactly what is
// proves: due. A cancelled request is given back once, credit beyond the burst is dropped once, and forced requests
// proves: are charged.
#include "interleave/explore.h"
#include "tags.h"

enum { MOST = 3, TRIES = 3 };
static uint64_t storage[64];
static struct tags_shared *const shared = (struct tags_shared *)storage;
static struct tags scheduler[MOST];
static uint64_t memory[MOST][2048] __attribute__((aligned(64)));
static unsigned granted[MOST], refused[MOST], forced[MOST];

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        abort();
}

/* One client, 1000 per second: 1 ms apart, known to all schedulers and queued at all of them. */
static void set_up(uint64_t limit_per_s, uint64_t reservation_per_s, uint64_t burst_ns)
{
    struct tags_shared_config shared_config;
    struct tags_config config;
    struct tags_client terms;
    unsigned i;
    memset(&shared_config, 0, sizeof shared_config);
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    memset(granted, 0, sizeof granted);
    memset(refused, 0, sizeof refused);
    memset(forced, 0, sizeof forced);
    shared_config.clients = 1;
    shared_config.limit_burst_ns = shared_config.reserve_lag_ns = burst_ns;
    terms.limit_per_s = limit_per_s;
    terms.reservation_per_s = reservation_per_s;
    must(tags_shared_init(shared, 0, sizeof storage, &shared_config));
    must(tags_shared_change(shared, 0, 0, &terms));
    config.clients = 1;
    config.mode = TAGS_PS;
    config.at_device_max = 8;
    config.shared = shared;
    for (i = 0; i < MOST; i++) {
        must(tags_init(&scheduler[i], memory[i], sizeof memory[i], &config));
        must(tags_add(&scheduler[i], 0, 0, &terms));
    }
}

/* Sends one request, if one is due. */
static bool take(unsigned who, uint64_t now_ns, struct tags_grant *grant)
{
    if (tags_pull(&scheduler[who], now_ns, 1, grant) == QOS_OK) {
        granted[who]++;
        return true;
    }
    refused[who]++;
    EXPLORE_CHECK(tags_next_ns(&scheduler[who], now_ns) > now_ns); /* the scheduler knows what is not due */
    return false;
}

/* At 2 ms three units are due: at 0, 1 and 2 ms. Two schedulers try three times each. */
static void setup_limit(void)
{
    set_up(1000, 0, 3000000);
}

static void actor_limit(unsigned who)
{
    struct tags_grant grant;
    unsigned i;
    must(tags_arrive(&scheduler[who], 2000000, 0, TRIES, 1));
    for (i = 0; i < TRIES; i++)
        (void)take(who, 2000000, &grant);
}

static void check_limit(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] == 3 && refused[0] + refused[1] == 3);
}

/* Three schedulers, one try each, at 1 ms: two are due. */
static void actor_once(unsigned who)
{
    struct tags_grant grant;
    must(tags_arrive(&scheduler[who], 1000000, 0, 2, 1));
    (void)take(who, 1000000, &grant);
}

static void check_once(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] + granted[2] == 2);
}

/* Idle for 10 ms: of the credit of ten units three ms are kept. So the units of 7, 8, 9 and 10 ms are due, at any
 * scheduler. */
static void actor_idle(unsigned who)
{
    struct tags_grant grant;
    unsigned i;
    must(tags_arrive(&scheduler[who], 10000000, 0, TRIES, 1));
    for (i = 0; i < TRIES; i++)
        (void)take(who, 10000000, &grant);
}

static void check_idle(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] == 4);
}

/* The first one forces a request and cancels another: what is granted and kept equals what is due plus what was
 * forced. */
static void actor_back(unsigned who)
{
    struct tags_grant grant;
    must(tags_arrive(&scheduler[who], 1000000, 0, 2, 1));
    if (who == 0) {
        must(tags_force(&scheduler[0], 1000000, 0, 1, &grant));
        forced[0]++;
        must(tags_cancel(&scheduler[0], 1000000, &grant));
        forced[0]--;
    }
    (void)take(who, 1000000, &grant);
    (void)take(who, 1000000, &grant);
}

static void check_back(void)
{
    unsigned kept = granted[0] + granted[1];
    EXPLORE_CHECK(kept >= 1 && kept <= 2); /* while the request was forced, one less was due */
}

/* A reservation and a limit of 1000 per second: at 1 ms the units of 0 and 1 ms are the reservation's; a third may be sent by
 * weight only if the limit allows it, and it does not. */
static void setup_both(void)
{
    set_up(1000, 1000, 3000000);
}

static void actor_both(unsigned who)
{
    struct tags_grant grant;
    must(tags_arrive(&scheduler[who], 1000000, 0, TRIES, 1));
    (void)take(who, 1000000, &grant);
    (void)take(who, 1000000, &grant);
}

static void check_both(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] == 2 && refused[0] + refused[1] == 2);
}

int main(void)
{
    struct explore e;
    check_begin("interleave/tags_shared");
    memset(&e, 0, sizeof e);
    e.name = "two schedulers, three units due";
    e.actors = 2;
    e.setup = setup_limit;
    e.actor = actor_limit;
    e.check = check_limit;
    explore(&e);
    e.name = "credit that was forgotten";
    e.actor = actor_idle;
    e.check = check_idle;
    explore(&e);
    e.name = "a forced request that is cancelled";
    e.actor = actor_back;
    e.check = check_back;
    explore(&e);
    e.name = "reservation and limit";
    e.setup = setup_both;
    e.actor = actor_both;
    e.check = check_both;
    explore(&e);
    e.name = "three schedulers, two units due";
    e.setup = setup_limit;
    e.actors = 3;
    e.actor = actor_once;
    e.check = check_once;
    explore(&e);
    return check_end();
}
