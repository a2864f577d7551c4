// proves: htb.h's heap always shows the least (key, id) of what was put in, as a plain list does
// coverage: no
// (a private part of the header: its bodies must be in sight)
#include "htb.h"
#include "check.h"

#define IDS 200

/* The list: for each id whether it is in, and its key. */
struct list {
    bool in[IDS];
    uint64_t key[IDS];
};

static uint32_t least_id(const struct list *l, uint32_t ids)
{
    uint32_t i, best = UINT32_MAX;
    for (i = 0; i < ids; i++)
        if (l->in[i] && (best == UINT32_MAX || l->key[i] < l->key[best]))
            best = i;
    return best;
}

static void run(struct check_rng *rng, uint32_t ids, uint64_t steps, uint64_t keys)
{
    static struct htb_priv_heap_entry entry[IDS];
    static uint32_t pos[IDS];
    struct htb_priv_heap h;
    struct list l;
    uint64_t step;
    uint32_t count = 0, least;
    memset(&l, 0, sizeof l);
    htb_priv_heap_init(&h, entry, pos, ids);
    for (step = 0; step < steps; step++) {
        uint32_t id = (uint32_t)check_between(rng, 0, ids - 1);
        uint64_t key = check_between(rng, 0, keys);
        CHECK_CONTEXT("%u ids, step %" PRIu64 ": id %u, key %" PRIu64, ids, step, id, key);
        switch (check_between(rng, 0, 4)) {
        case 0:
        case 1:
        case 2:
            htb_priv_heap_set(&h, id, key);
            count += !l.in[id];
            l.in[id] = true;
            l.key[id] = key;
            break;
        case 3:
            htb_priv_heap_remove(&h, id);
            count -= l.in[id];
            l.in[id] = false;
            break;
        default:
            least = htb_priv_heap_min_id(&h);
            if (least != HTB_PRIV_NIL) {
                htb_priv_heap_remove(&h, least);
                count -= 1;
                if (least < ids)
                    l.in[least] = false;
            }
            break;
        }
        least = least_id(&l, ids);
        CHECK_EQ(htb_priv_heap_min_id(&h), least);
        CHECK_EQ(htb_priv_heap_min_key(&h), least == UINT32_MAX ? UINT64_MAX : l.key[least]);
        CHECK_EQ(h.count, count);
    }
    /* Emptied: everything comes out, once, in order. */
    for (least = least_id(&l, ids); least != UINT32_MAX; least = least_id(&l, ids)) {
        CHECK_EQ(htb_priv_heap_min_id(&h), least);
        htb_priv_heap_remove(&h, least);
        l.in[least] = false;
    }
    CHECK_EQ(h.count, 0);
}

int main(void)
{
    struct check_rng rng;
    uint64_t n;
    uint32_t ids;
    check_begin("property/htb_heap");
    check_rng_init(&rng, 5);
    n = check_scaled(40000);
    for (ids = 1; ids <= 25; ids++)
        run(&rng, ids, n / 20 + 1, ids % 2 ? 3 : 1000); /* few keys: many ties */
    run(&rng, IDS, n, 50);
    run(&rng, IDS, n, UINT64_MAX);
    return check_end();
}
