// proves: in all interleavings of exchanges, stale values included: trees that share classes never hold more tokens
// proves: than one tree would, and they give them to the tree that has the demand.
#include "interleave/explore.h"
#include "htb.h"

#define RATE UINT64_C(1048576) /* tokens/s: one per part */

enum { MOST = 2 };
static uint64_t storage[256] __attribute__((aligned(64)));
static struct htb_shared *const shared = (struct htb_shared *)storage;
static struct htb tree[MOST];
static uint64_t memory[MOST][1024] __attribute__((aligned(64)));
static unsigned trees;

static void must(bool good)
{
    if (!good)
        abort();
}

static uint64_t rate_of(unsigned k)
{
    struct htb_state state;
    must(htb_info(&tree[k], &state) == QOS_OK);
    return state.rate_per_s[0];
}

static void open_trees(unsigned count)
{
    struct htb_shared_config shared_config;
    struct htb_config config;
    unsigned k;
    trees = count;
    memset(&shared_config, 0, sizeof shared_config);
    memset(&config, 0, sizeof config);
    shared_config.trees = count;
    shared_config.classes = 1;
    shared_config.interval_ns = 1000000;
    must(htb_shared_init(shared, sizeof storage, &shared_config) == QOS_OK);
    config.classes = 1;
    config.rate_per_s[0] = RATE;
    for (k = 0; k < count; k++) {
        must(htb_init(&tree[k], memory[k], sizeof memory[k], &config) == QOS_OK);
        must(htb_join(&tree[k], 0, shared, k) == QOS_OK);
        (void)htb_exchange(&tree[k], 0);
    }
}

static void setup_two(void)
{
    open_trees(2);
    must(htb_take(&tree[0], 900000, 0, 400) == QOS_OK);
}

/* Tree 1 has given half of the parts to the pool; now both trees want them. */
static void setup_pool(void)
{
    open_trees(2);
    must(htb_take(&tree[0], 900000, 0, 400) == QOS_OK);
    (void)htb_exchange(&tree[0], 1000000);
    (void)htb_exchange(&tree[1], 1000000);
    must(rate_of(0) == RATE / 2 && rate_of(1) == 0);
    must(htb_take(&tree[0], 1900000, 0, 400) == QOS_OK);
    must(htb_take(&tree[1], 1900000, 0, 100) == QOS_EAGAIN);
}

static void actor(unsigned who)
{
    uint64_t sum = 0;
    unsigned k;
    (void)htb_exchange(&tree[who], 2000000);
    for (k = 0; k < trees; k++)
        sum += rate_of(k);
    EXPLORE_CHECK(sum <= RATE);
}

/* After two more rounds the parts are where the demand is; at most a fifth is in the pool, as demand still changes. */
static void check(void)
{
    uint64_t sum = 0, i;
    unsigned k;
    for (i = 3; i <= 4; i++)
        for (k = 0; k < trees; k++)
            (void)htb_exchange(&tree[k], i * 1000000);
    for (k = 0; k < trees; k++)
        sum += rate_of(k);
    EXPLORE_CHECK(sum <= RATE && sum * 5 >= RATE * 4);
    EXPLORE_CHECK(rate_of(0) * 2 >= RATE);
}

int main(void)
{
    struct explore e;
    check_begin("interleave/htb_trees");
    memset(&e, 0, sizeof e);
    e.actor = actor;
    e.check = check;
    e.actors = 2;
    e.history = 1; /* stale values would take too long here */
    e.name = "both want what is in the pool";
    e.setup = setup_pool;
    explore(&e);
    e.history = 2; /* stale values too */
    e.name = "demand in one of two trees";
    e.setup = setup_two;
    explore(&e);
    return check_end();
}
