// proves: the worked example of qos.h: a bucket of 3 tokens/s grants its first token at ceil(10^9 / 3) ns, however it
// proves: is polled
#include "qos.h"
#include "check.h"

int main(void)
{
    struct qos_bucket b;
    uint64_t now;
    check_begin("unit/qos_bucket");
    CHECK_EQ(qos_bucket_init(&b, 0, 3, 1), QOS_OK);
    CHECK_EQ(qos_bucket_next_ns(&b, 0, 1), 333333334);
    for (now = 7; now < 333333334; now += 7 * 1001)
        CHECK_EQ(qos_bucket_take(&b, now, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_take(&b, 333333333, 1), QOS_EAGAIN);
    CHECK_EQ(qos_bucket_take(&b, 333333334, 1), QOS_OK);
    return check_end();
}
