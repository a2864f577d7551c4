// proves: when V reaches the end of a short axis (TAGS_AXIS_BITS) and all tags are rebased, a client that returns then
// proves: loses and gains nothing: it and the one that was busy all the time take turns
// variants: native san
// flags: -DTAGS_AXIS_BITS=8
#include "tags.h"
#include "check.h"

static struct tags tags;

static int serve(void)
{
    struct tags_grant g;
    if (tags_pull(&tags, 1, 1, &g) != QOS_OK)
        return -1;
    CHECK_EQ(tags_complete(&tags, 1, &g, 0), QOS_OK);
    return (int)g.client;
}

int main(void)
{
    struct tags_client terms;
    struct tags_config config;
    struct check_mem memory;
    uint32_t before, i;
    int ahead;
    check_begin("unit/tags_axis");
    memset(&config, 0, sizeof config);
    memset(&terms, 0, sizeof terms);
    config.clients = 2;
    config.mode = TAGS_PS;
    terms.weight = 1;
    for (before = 1000; before < 1050; before++) { /* the axis has 1,024 units of work per weight */
        CHECK_CONTEXT("%u requests before", before);
        check_mem_new(&memory, tags_memsize(&config), 64, 0);
        CHECK_EQ(tags_init(&tags, memory.mem, memory.size, &config), QOS_OK);
        CHECK_EQ(tags_add(&tags, 0, 0, &terms), QOS_OK);
        CHECK_EQ(tags_add(&tags, 0, 1, &terms), QOS_OK);
        CHECK_EQ(tags_arrive(&tags, 0, 0, before + 50, 1), QOS_OK);
        for (i = 0; i < before; i++)
            CHECK_EQ(serve(), 0);
        CHECK_EQ(tags_arrive(&tags, 1, 1, 50, 1), QOS_OK);
        for (i = 0, ahead = 0; i < 100; i++) {
            ahead += serve() == 0 ? 1 : -1;
            CHECK(ahead >= -1 && ahead <= 1);
        }
        CHECK(check_mem_free(&memory));
    }
    return check_end();
}
