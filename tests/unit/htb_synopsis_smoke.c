// proves: smoke
#include "htb.h"
#include "check.h"
int main(void)
{
    struct htb_config config;
    struct htb tree;
    struct htb_class c;
    struct check_mem m;
    uint64_t fits = 0, now, got[4] = {0};
    void *mem;
    uint32_t i;
    check_begin("x");
    memset(&config, 0, sizeof config);
    memset(&c, 0, sizeof c);
    config.classes = 4;
    config.rate_per_s[0] = 40000;
    config.best_effort_per_s[0] = HTB_NONE;
    mem = check_mem_new(&m, htb_memsize(&config), 64, 0);
    CHECK_EQ(htb_init(&tree, mem, htb_memsize(&config), &config), QOS_OK);
    for (i = 1; i < 4; i++) {
        c.rate_per_s[0] = i == 1 ? 5000 : i == 2 ? 15000 : 20000;
        CHECK_EQ(htb_reserve(&tree, i, &c, 0, &fits), QOS_OK);
        printf("fits %lu\n", (unsigned long)fits);
    }
    {
        static struct htb_request r[4][4];
        struct htb_request *q;
        int phase;
        memset(r, 0, sizeof r);
        now = 0;
        for (phase = 1; phase <= 3; phase++) {
            for (i = 0; i < 4; i++) {
                r[phase][i].class_id = (uint32_t)phase;
                r[phase][i].tokens[0] = 512;
                CHECK_EQ(htb_submit(&tree, &r[phase][i], now), QOS_OK);
            }
            memset(got, 0, sizeof got);
            while (now < 30000000000u * (uint64_t)phase) {
                uint64_t next;
                while ((q = htb_dispatch(&tree, now)) != NULL) {
                    got[q->class_id] += 512;
                    CHECK_EQ(htb_complete(&tree, q), QOS_OK);
                    CHECK_EQ(htb_submit(&tree, q, now), QOS_OK);
                }
                next = htb_dispatch_next_ns(&tree, now);
                CHECK(next > now);
                now = next;
            }
            printf("%f %f %f\n", (double)got[1] / 30, (double)got[2] / 30, (double)got[3] / 30);
        }
    }
    CHECK(check_mem_free(&m));
    return check_end();
}
