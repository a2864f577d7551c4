// proves: reports and grants encode to the golden bytes, and the golden bytes decode, in either byte order
#include "golden.h"
#include "pshift.h"

static struct pshift_message message(bool grant)
{
    struct pshift_message m;
    uint32_t k;
    memset(&m, 0, sizeof m);
    m.server = 0x01020304;
    m.count = 2;
    m.boot.hi = UINT64_C(0x1112131415161718);
    m.boot.lo = UINT64_C(0x191a1b1c1d1e1f10);
    m.owner.hi = UINT64_C(0x2122232425262728);
    m.owner.lo = UINT64_C(0x292a2b2c2d2e2f20);
    m.seq = UINT64_C(0x3132333435363738);
    m.answers = UINT64_C(0x4142434445464748);
    m.period = UINT64_C(0x6162636465666768);
    m.left_ns = grant ? UINT64_C(0x8182838485868788) : 0;
    m.capacity = grant ? 0 : UINT64_C(0x7172737475767778);
    for (k = 0; k < PSHIFT_RANGES && grant; k++) {
        m.ack[k].last = UINT64_C(0x9192939495969798) - 1000 * k;
        m.ack[k].first = m.ack[k].last - 3 - k;
    }
    return m;
}

static void same_message(const struct pshift_message *a, const struct pshift_message *b)
{
    CHECK_EQ(a->server, b->server);
    CHECK_EQ(a->count, b->count);
    CHECK_EQ(a->period, b->period);
    CHECK_EQ(a->seq, b->seq);
    CHECK_EQ(a->answers, b->answers);
    CHECK_EQ(a->left_ns, b->left_ns);
    CHECK_EQ(a->capacity, b->capacity);
    CHECK(memcmp(&a->boot, &b->boot, sizeof a->boot) == 0 && memcmp(&a->owner, &b->owner, sizeof a->owner) == 0);
    CHECK(memcmp(a->ack, b->ack, sizeof a->ack) == 0);
}

int main(void)
{
    struct pshift_report_entry report[2] = {{UINT64_C(0xa1a2a3a4a5a6a7a8), 2, 3, 4, 5},
                                            {6, 7, 8, UINT64_MAX, UINT64_C(0xb1b2b3b4b5b6b7b8)}};
    struct pshift_grant_entry grant[2] = {{UINT64_C(0xc1c2c3c4c5c6c7c8), 2, 3}, {4, 5, UINT64_MAX}};
    struct pshift_report_entry report_got[2];
    struct pshift_grant_entry grant_got[2];
    struct pshift_message m = message(false), got;
    uint8_t bytes[512];
    size_t len = 0, n;
    check_begin("unit/pshift_golden");
    memset(&got, 0, sizeof got);
    CHECK_EQ(pshift_report_encode(&m, report, bytes, sizeof bytes, &len), QOS_OK);
    golden_same("pshift_report", bytes, len);
    n = golden_read("pshift_report", bytes, sizeof bytes);
    CHECK_EQ(pshift_report_decode(bytes, n, &got, report_got, 2), QOS_OK);
    same_message(&got, &m);
    CHECK(memcmp(report, report_got, sizeof report) == 0);

    m = message(true);
    CHECK_EQ(pshift_grant_encode(&m, grant, bytes, sizeof bytes, &len), QOS_OK);
    golden_same("pshift_grant", bytes, len);
    n = golden_read("pshift_grant", bytes, sizeof bytes);
    CHECK_EQ(pshift_grant_decode(bytes, n, &got, grant_got, 2), QOS_OK);
    same_message(&got, &m);
    CHECK(memcmp(grant, grant_got, sizeof grant) == 0);
    return check_end();
}
