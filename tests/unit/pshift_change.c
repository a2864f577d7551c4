// proves: messages follow changes. If nothing changes, the reports and grants of an interval have no entries.
// proves: Otherwise they have at most six for each (bucket, server) pair whose demand changed, whatever the number of
// proves: buckets. Each server still gets a report and a grant in every interval
// variants: native san
#include "pshift_rig.h"

enum { SERVERS = 8, COPIES = 4, INTERVALS = 10, PART = 512, PERIOD_NS = 100000, INTERVAL_NS = 1000 };

static uint64_t entries, bytes, messages, now_ns;

static void open_all(uint32_t buckets)
{
    uint32_t i, j, queue = 0;
    rig_controller(SERVERS, buckets, buckets * COPIES, PERIOD_NS);
    CHECK_EQ(pshift_controller_begin(&controller, 0, 1), QOS_OK);
    for (i = 0; i < buckets; i++)
        CHECK_EQ(pshift_controller_change(&controller, i, 30, 100), QOS_OK);
    for (j = 0; j < SERVERS; j++) {
        rig_server(j, buckets / 2 + 1, PERIOD_NS, 0);
        for (i = j % 2; i < buckets; i += 2) {
            CHECK_EQ(pshift_agent_open(&node[j].agent, i, &queue), QOS_OK);
            CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, queue, 5), QOS_OK);
        }
    }
}

static void count(const struct pshift_message *m, uint64_t entry_bytes)
{
    entries += m->count;
    messages++;
    bytes += QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + m->count * entry_bytes;
}

static void interval(void)
{
    static struct pshift_report_entry report[PART];
    static struct pshift_grant_entry grant[PART];
    struct pshift_message m;
    uint32_t j;
    now_ns += INTERVAL_NS;
    for (j = 0; j < SERVERS; j++) {
        pshift_agent_measure(&node[j].agent, now_ns);
        while (pshift_agent_report(&node[j].agent, &m, report, PART) == QOS_OK) {
            m.capacity = UINT64_C(1) << 40;
            CHECK_EQ(pshift_controller_report(&controller, now_ns, &m, report),
                     now_ns == INTERVAL_NS ? QOS_EAGAIN : QOS_OK);
            count(&m, PSHIFT_REPORT_ENTRY_BYTES);
        }
    }
    CHECK_EQ(pshift_controller_plan(&controller, NULL), QOS_OK);
    for (j = 0; j < SERVERS; j++)
        while (pshift_controller_grant(&controller, now_ns, j, &m, grant, PART) == QOS_OK) {
            CHECK_EQ(pshift_agent_install(&node[j].agent, now_ns, &m, grant), QOS_OK);
            count(&m, PSHIFT_GRANT_ENTRY_BYTES);
        }
}

/* `changed` buckets get one more request at each of their servers; other buckets in each interval. */
static void run(uint32_t buckets, uint32_t changed)
{
    uint32_t k, n, j, queue = 0;
    now_ns = 0;
    open_all(buckets);
    for (k = 0; k < 8; k++) /* everything is reported and settles */
        interval();
    entries = bytes = messages = 0;
    for (k = 0; k < INTERVALS; k++) {
        for (n = 0; n < changed; n++)
            for (j = (k * changed + n) % buckets % 2; j < SERVERS; j += 2) {
                CHECK_EQ(pshift_agent_open(&node[j].agent, (k * changed + n) % buckets, &queue), QOS_OK);
                CHECK_EQ(pshift_scheduler_arrive(&node[j].scheduler, queue, k % 2 ? 5 : 1),
                         QOS_OK); /* not a steady rate */
            }
        interval();
    }
    printf("%6u buckets, %5u changed: %8.1f entries, %8.0f bytes an interval\n", buckets, changed,
           (double)entries / INTERVALS, (double)bytes / INTERVALS);
    CHECK_CONTEXT("%u buckets, %u changed", buckets, changed);
    /* A burst is two changes: it begins and it ends. Each is reported and granted, and the grant is confirmed. */
    CHECK_LE(entries, 6 * COPIES * INTERVALS * (uint64_t)changed);
    CHECK_GE(entries, COPIES * (INTERVALS - 1) * (uint64_t)changed); /* the change is reported */
    CHECK_GE(messages, 2 * SERVERS * INTERVALS);
    CHECK_LE(messages, 2 * SERVERS * INTERVALS + entries / PART + 2 * SERVERS * INTERVALS);
    rig_close(SERVERS);
}

int main(void)
{
    static const uint32_t sizes[3] = {100, 1000, 10000};
    uint32_t k, changed;
    check_begin("unit/pshift_change");
    for (k = 0; k < 3; k++) {
        run(sizes[k], 0);
        for (changed = 1; changed <= sizes[k]; changed *= 10)
            run(sizes[k], changed);
    }
    return check_end();
}
