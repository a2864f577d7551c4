// proves: borrowers of one lender share by weight at any scale of the weights and over all resources, and none waits longer than
// proves: (n * W / w + the largest request of each other borrower) / Q
// variants: native san i386
// scale: 2
//
// Oracle: arithmetic on the cost of each class's requests. It uses only the header's calls.
#include "htb.h"
#include "check.h"

#define S UINT64_C(1000000000)

static struct htb tree;
static void *memory;

static void open_tree(struct htb_config *config)
{
    size_t size = htb_memsize(config);
    free(memory);
    memory = NULL;
    CHECK(size != 0 && posix_memalign(&memory, 64, size) == 0);
    CHECK_EQ(htb_init(&tree, memory, size, config), QOS_OK);
}

static struct htb_config config_of(uint32_t classes, uint64_t rate_per_s)
{
    struct htb_config c;
    memset(&c, 0, sizeof c);
    c.classes = classes;
    c.rate_per_s[0] = rate_per_s;
    c.order = HTB_FIFO;
    c.bound = HTB_BY_RATE;
    c.dispatch_max = c.device_max = 4;
    return c;
}

static void reserve(uint32_t id, uint64_t rate_per_s, uint32_t weight, uint64_t now)
{
    struct htb_class c;
    memset(&c, 0, sizeof c);
    c.rate_per_s[0] = rate_per_s;
    c.weight = weight;
    CHECK_EQ(htb_reserve(&tree, now, id, &c, NULL), QOS_OK);
}

/* Borrowers only. In every interval the service per weight of two that always wait differs by at most one request of
 * each, divided by its weight. */
static void shares(struct check_rng *rng, uint32_t scale, uint32_t resources)
{
    enum { CLASSES = 7, DEPTH = 4 };
    static struct htb_request request[CLASSES][DEPTH];
    struct htb_config config = config_of(CLASSES + 1, 100000000);
    uint64_t now = S, got[CLASSES] = {0}, size[CLASSES], weight[CLASSES], last[CLASSES], worst[CLASSES] = {0}, sum = 0;
    uint64_t largest = 0;
    unsigned i, k;
    CHECK_CONTEXT("weights times %u, %u resources", scale, resources);
    config.resources = resources;
    config.rate_per_s[1] = 100000000;
    config.dispatch_max = config.device_max = 1;
    config.burst_ns = 1000;
    open_tree(&config);
    memset(request, 0, sizeof request);
    for (i = 0; i < CLASSES; i++) {
        weight[i] = check_between(rng, 1, 9);
        size[i] = check_between(rng, 0, 1) ? check_between(rng, 100, 2000) : check_between(rng, 10000, 100000);
        largest = size[i] > largest ? size[i] : largest;
        sum += weight[i];
        last[i] = now;
        reserve(i + 1, 0, (uint32_t)weight[i] * scale, now);
        for (k = 0; k < DEPTH; k++) {
            request[i][k].class_id = i + 1;
            request[i][k].tokens[i % resources] = size[i];
            CHECK_EQ(htb_submit(&tree, now, &request[i][k]), QOS_OK);
        }
    }
    while (now < 4 * S) {
        struct htb_request *r;
        while ((r = htb_dispatch(&tree, now)) != NULL) {
            i = r->class_id - 1;
            got[i] += size[i];
            worst[i] = now - last[i] > worst[i] ? now - last[i] : worst[i];
            last[i] = now;
            CHECK_EQ(htb_complete(&tree, now, HTB_DONE, NULL, r), QOS_OK);
            CHECK_EQ(htb_submit(&tree, now, r), QOS_OK);
            if (resources > 1)
                continue;
            for (k = 0; k < CLASSES; k++) {
                double apart = (double)got[i] / (double)weight[i] - (double)got[k] / (double)weight[k];
                CHECK_WITHIN(apart, -(double)size[i] / (double)weight[i] - (double)size[k] / (double)weight[k] - 1,
                             (double)size[i] / (double)weight[i] + (double)size[k] / (double)weight[k] + 1);
            }
        }
        now = htb_dispatch_next_ns(&tree, now);
    }
    for (i = 0; i < CLASSES; i++) {
        /* The longest wait: n * W / w for its own request, and one request of each other borrower. */
        double bound = (double)size[i] * (double)sum / (double)weight[i] + (double)CLASSES * (double)largest;
        CHECK_LE(worst[i], (uint64_t)(bound * 10) + 1000000);
        for (k = 0; k < CLASSES; k++)
            CHECK_WITHIN((double)got[i] / (double)weight[i] / ((double)got[k] / (double)weight[k]), 0.97, 1.03);
    }
}

int main(void)
{
    struct check_rng rng;
    uint64_t i;
    check_begin("property/htb_shares");
    check_rng_init(&rng, 3);
    for (i = check_scaled(6); i > 0; i--) {
        shares(&rng, 1, 1);
        shares(&rng, 100, 1);
        shares(&rng, HTB_WEIGHT_MAX / 9, 1);
        shares(&rng, 1, 2);
        shares(&rng, HTB_WEIGHT_MAX / 9, 2);
    }
    free(memory);
    return check_end();
}
