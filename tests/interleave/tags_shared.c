// proves: over all interleavings, stale values included, shards that claim one word grant exactly what is due, a refund
// proves: is never lost, forgotten credit is forgotten once, and two whole schedulers on one client's tags send as one
#include "interleave/explore.h"
#include "tags.h"

enum { MOST = 4 };
static uint64_t storage[64];
static struct tags_shared *sh = (struct tags_shared *)storage;
static unsigned granted[MOST];
static uint64_t tag[MOST][8], due_ns;

/* One client, 1000 per second: 1 ms apart. */
static void one_client(uint64_t base_ns, uint64_t reservation, uint64_t limit)
{
    struct tags_client terms;
    memset(&terms, 0, sizeof terms);
    memset(granted, 0, sizeof granted);
    memset(tag, 0, sizeof tag);
    terms.reservation_per_s = reservation;
    terms.limit_per_s = limit;
    if (tags_shared_init(sh, sizeof storage, 1, base_ns, 3000000, 3000000) != QOS_OK ||
        tags_shared_set(sh, base_ns, 0, &terms) != QOS_OK)
        abort();
}

static qos_word_t *word(void)
{
    return &((struct tags_shared_client *)(sh + 1))->reserved;
}

static bool claim(unsigned who, uint64_t now_ns, bool force)
{
    uint64_t tag_ns;
    if (!tags_shared_claim(sh, word(), now_ns, 1000, 3000000, 1, force, &tag_ns)) {
        EXPLORE_CHECK(tag_ns > now_ns); /* what is not due is known not to be */
        return false;
    }
    tag[who][granted[who]++] = tag_ns;
    return true;
}

/* Nobody got the same unit: all tags differ. */
static void distinct(unsigned actors)
{
    unsigned a, b, i, j;
    for (a = 0; a < actors; a++)
        for (i = 0; i < granted[a]; i++)
            for (b = 0; b < actors; b++)
                for (j = 0; j < granted[b]; j++)
                    EXPLORE_CHECK((a == b && i == j) || tag[a][i] != tag[b][j]);
}

/* At 2 ms, three units are due: at 0, 1 and 2 ms. Three shards try twice each. */
static void setup_exact(void)
{
    one_client(0, 1000, 0);
}

static void actor_exact(unsigned who)
{
    (void)claim(who, 2000000, false);
    (void)claim(who, 2000000, false);
}

static void check_exact(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] + granted[2] == 3);
    EXPLORE_CHECK(*word() == 3);
    distinct(3);
}

/* Forced claims are never refused; a refund comes back whatever happens between. */
static void actor_refund(unsigned who)
{
    if (who == 0) {
        (void)claim(who, 1000000, true);
        (void)qos_atomic_add_relaxed(word(), qos_wrap_sub(0, 1));
    } else {
        (void)claim(who, 1000000, who == 1);
        (void)claim(who, 1000000, false);
    }
}

static void check_refund(void)
{
    unsigned kept = granted[0] + granted[1] + granted[2] - 1;
    EXPLORE_CHECK(*word() == kept);
    EXPLORE_CHECK(granted[1] >= 1 && kept <= 3 && kept >= 1);
}

/* Idle for 10 ms: of the credit of ten units three ms are kept, so 7, 8, 9, 10 are due, by whomever they are asked for.
 */
static void actor_idle(unsigned who)
{
    unsigned i;
    for (i = 0; i < 3; i++)
        (void)claim(who, 10000000, false);
}

static void check_idle(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] == 4);
    EXPLORE_CHECK(*word() == 11);
    distinct(2);
}

/* Two schedulers, one client with a reservation and a limit of 1000 per second, queued at both. At 1 ms: of the units
 * at 0 and 1 ms, both are its reservation's; a third may be sent by weight only if its lTag allows it, and it does not.
 */
static struct tags shard[2];
static uint64_t memory[2][2048] __attribute__((aligned(64)));
static unsigned refused[2];

static void setup_shards(void)
{
    struct tags_config c;
    struct tags_client terms;
    unsigned i;
    one_client(0, 1000, 1000);
    memset(&c, 0, sizeof c);
    memset(&terms, 0, sizeof terms);
    memset(refused, 0, sizeof refused);
    c.clients = 1;
    c.mode = TAGS_PS;
    c.shared = sh;
    terms.reservation_per_s = terms.limit_per_s = 1000;
    due_ns = 1000000;
    for (i = 0; i < 2; i++) {
        if (tags_init(&shard[i], memory[i], sizeof memory[i], &c) != QOS_OK ||
            tags_add(&shard[i], 0, 0, &terms) != QOS_OK)
            abort();
    }
}

static void actor_shards(unsigned who)
{
    struct tags_grant g;
    unsigned i;
    if (tags_arrive(&shard[who], due_ns, 0, 3) != QOS_OK)
        abort();
    for (i = 0; i < 2; i++) {
        if (tags_pull(&shard[who], due_ns, 1, &g) == QOS_OK) {
            granted[who]++;
        } else {
            refused[who]++;
            EXPLORE_CHECK(tags_next_ns(&shard[who], due_ns) > due_ns);
        }
    }
}

static void check_shards(void)
{
    EXPLORE_CHECK(granted[0] + granted[1] == 2);
    EXPLORE_CHECK(refused[0] + refused[1] == 2);
}

int main(void)
{
    struct explore e;
    check_begin("interleave/tags_shared");
    memset(&e, 0, sizeof e);
    e.name = "three shards, three units due";
    e.actors = 3;
    e.setup = setup_exact;
    e.actor = actor_exact;
    e.check = check_exact;
    explore(&e);
    e.name = "a forced claim and a refund";
    e.actor = actor_refund;
    e.check = check_refund;
    explore(&e);
    e.name = "credit that was forgotten";
    e.actors = 2;
    e.actor = actor_idle;
    e.check = check_idle;
    explore(&e);
    e.name = "two schedulers, one client";
    e.setup = setup_shards;
    e.actor = actor_shards;
    e.check = check_shards;
    explore(&e);
    return check_end();
}
