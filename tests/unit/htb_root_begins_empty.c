// proves: the root's bucket starts empty, without debt: a borrower's first request goes ceil(n / rate) after htb_init
#include "htb.h"
#include "check.h"

int main(void)
{
    struct htb_config config;
    struct htb_class borrower;
    struct htb tree;
    size_t size;
    struct check_mem memory;
    check_begin("unit/htb_root_begins_empty");
    memset(&config, 0, sizeof config);
    memset(&borrower, 0, sizeof borrower);
    config.classes = 2;
    config.rate_per_s[0] = 766000000;
    config.start_ns = 1000;
    size = htb_memsize(&config);
    check_mem_new(&memory, size, 64, 0);
    CHECK_EQ(htb_init(&tree, memory.mem, size, &config), QOS_OK);
    borrower.rate_per_s[0] = 0;
    CHECK_EQ(htb_reserve(&tree, 1000, 1, &borrower, NULL), QOS_OK);
    CHECK_EQ(htb_next_ns(&tree, 1000, 1, 90000), 1000 + 117494); /* 90,000 / 0.766 per ns */
    CHECK_EQ(htb_take(&tree, 1000 + 117493, 1, 90000), QOS_EAGAIN);
    CHECK_EQ(htb_take(&tree, 1000 + 117494, 1, 90000), QOS_OK);
    CHECK(check_mem_free(&memory));
    return check_end();
}
