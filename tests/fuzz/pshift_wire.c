// proves: any bytes do the decoders of reports and grants no harm. Messages that they accept encode to the same bytes
// proves: again
#include "pshift.h"
#include "fuzz/fuzz.h"

#define MOST 8

static void *room(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    FUZZ_CHECK(p != NULL);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pshift_scheduler scheduler;
    static struct pshift_agent agent;
    static struct pshift_controller controller;
    static void *mem[3];
    struct pshift_scheduler_config sc = {MOST, 0};
    struct pshift_agent_config ac = {NULL, 1, {0, 3}, 0, 0, 0};
    struct pshift_controller_config cc = {4, MOST, 16, {0, 2}, 0, 0};
    struct pshift_message m, again_head;
    struct pshift_report_entry re[MOST];
    struct pshift_grant_entry ge[MOST];
    uint8_t bytes[4096], again[4096];
    size_t n = size < sizeof bytes ? size : sizeof bytes, len = 0;
    uint32_t crc, i, queue;
    bool grants = size > 0 && (data[0] & 2) == 0;
    ac.scheduler = &scheduler;
    if (!mem[0])
        mem[0] = room(pshift_scheduler_memsize(&sc));
    FUZZ_CHECK(pshift_scheduler_init(&scheduler, mem[0], pshift_scheduler_memsize(&sc), &sc) == QOS_OK);
    if (!mem[1]) {
        mem[1] = room(pshift_agent_memsize(&ac));
        mem[2] = room(pshift_controller_memsize(&cc));
    }
    FUZZ_CHECK(pshift_agent_init(&agent, mem[1], pshift_agent_memsize(&ac), &ac) == QOS_OK);
    FUZZ_CHECK(pshift_controller_init(&controller, mem[2], pshift_controller_memsize(&cc), &cc) == QOS_OK);
    FUZZ_CHECK(pshift_controller_begin(&controller, 0, 1) == QOS_OK);
    for (i = 0; i < MOST; i++)
        FUZZ_CHECK(pshift_agent_open(&agent, i, &queue) == QOS_OK);
    FUZZ_CHECK(pshift_controller_change(&controller, 3, 5, 9) == QOS_OK);
    memcpy(bytes, data, n);
    if (n >= QOS_FRAME_HEADER_BYTES && (data[0] & 1)) { /* makes the frame valid, so that the payload is reached */
        const uint32_t entry = grants ? PSHIFT_GRANT_ENTRY_BYTES : PSHIFT_REPORT_ENTRY_BYTES;
        qos_put_le32(bytes, PSHIFT_WIRE_MAGIC);
        qos_put_le16(bytes + 4, PSHIFT_WIRE_VERSION);
        qos_put_le16(bytes + 6, grants ? PSHIFT_WIRE_GRANT : PSHIFT_WIRE_REPORT);
        if (n >= QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES) {
            uint32_t count = (uint32_t)((n - QOS_FRAME_HEADER_BYTES - PSHIFT_WIRE_HEAD_BYTES) / entry);
            n = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + count * entry;
            if (data[0] & 4)
                qos_put_le32(bytes + QOS_FRAME_HEADER_BYTES + 4, count);
        }
        qos_put_le32(bytes + 8, (uint32_t)(n - QOS_FRAME_HEADER_BYTES));
        qos_put_le32(bytes + 12, qos_crc32c(0, bytes, 12));
        crc = qos_crc32c(0, bytes, 16);
        qos_put_le32(bytes + 16, qos_crc32c(crc, bytes + QOS_FRAME_HEADER_BYTES, n - QOS_FRAME_HEADER_BYTES));
    }
    if (pshift_report_decode(bytes, n, &m, re, MOST) == QOS_OK) {
        FUZZ_CHECK(m.count <= MOST);
        FUZZ_CHECK(pshift_report_encode(&m, re, again, sizeof again, &len) == QOS_OK);
        FUZZ_CHECK(len == n && memcmp(again, bytes, n) == 0);
        m.period = data[0] & 8 ? 1 : m.period;
        if (data[0] & 16) {
            m.owner.hi = 0;
            m.owner.lo = 2;
        }
        for (i = 0; i < m.count && (data[0] & 32); i++)
            re[i].bucket %= MOST;
        if (pshift_controller_report(&controller, 0, &m, re) == QOS_OK)
            FUZZ_CHECK(pshift_controller_report(&controller, 0, &m, re) == QOS_ESTALE);
        if (pshift_controller_plan(&controller, NULL) == QOS_OK)
            (void)!pshift_controller_grant(&controller, 0, m.server, &m, ge, MOST);
    }
    if (pshift_grant_decode(bytes, n, &m, ge, MOST) == QOS_OK) {
        FUZZ_CHECK(m.count <= MOST);
        FUZZ_CHECK(pshift_grant_encode(&m, ge, again, sizeof again, &len) == QOS_OK);
        FUZZ_CHECK(len == n && memcmp(again, bytes, n) == 0);
        if (data[0] & 8) {
            m.server = 1;
            m.boot.hi = 0;
            m.boot.lo = 3;
            m.period = 1;
            m.answers = 1;
        }
        for (i = 0; i < m.count && (data[0] & 32); i++)
            ge[i].bucket %= MOST;
        pshift_agent_measure(&agent, 1);
        FUZZ_CHECK(pshift_agent_report(&agent, &again_head, re, MOST) == QOS_OK);
        if (pshift_agent_install(&agent, 2, &m, ge) == QOS_OK && m.count > 0 && m.seq > 0)
            (void)!pshift_agent_install(&agent, 2, &m, ge);
        pshift_agent_measure(&agent, 3);
        FUZZ_CHECK(pshift_agent_report(&agent, &m, re, MOST) == QOS_OK);
    }
    FUZZ_CHECK(pshift_report_decode(bytes, n < 15 ? n : 15, &m, re, MOST) != QOS_OK);
    return 0;
}
