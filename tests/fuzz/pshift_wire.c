// proves: the decoders of reports and grants accept any bytes; what they accept encodes to the same bytes and harms nobody
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
    static struct pshift_sched sched;
    static struct pshift_agent agent;
    static struct pshift_control control;
    static struct pshift solver;
    static void *mem[4];
    struct pshift_sched_config sc = {MOST, 0};
    struct pshift_agent_config ac = {MOST, 1, 3, 0, 0};
    struct pshift_control_config cc = {4, MOST, 16, 2, 0, false};
    struct pshift_config pc = {4, MOST, 16};
    struct pshift_message m;
    struct pshift_report_entry re[MOST];
    struct pshift_grant_entry ge[MOST];
    uint8_t bytes[4096], again[4096];
    size_t n = size < sizeof bytes ? size : sizeof bytes, k;
    uint32_t crc;
    if (!mem[0]) {
        mem[0] = room(pshift_sched_memsize(&sc));
        mem[1] = room(pshift_agent_memsize(&ac));
        mem[2] = room(pshift_control_memsize(&cc));
        mem[3] = room(pshift_memsize(&pc));
    }
    FUZZ_CHECK(pshift_sched_init(&sched, mem[0], pshift_sched_memsize(&sc), &sc) == QOS_OK);
    FUZZ_CHECK(pshift_agent_init(&agent, mem[1], pshift_agent_memsize(&ac), &ac, &sched) == QOS_OK);
    FUZZ_CHECK(pshift_control_init(&control, mem[2], pshift_control_memsize(&cc), &cc) == QOS_OK);
    FUZZ_CHECK(pshift_init(&solver, mem[3], pshift_memsize(&pc), &pc) == QOS_OK);
    FUZZ_CHECK(pshift_agent_begin(&agent, 1) == QOS_OK && pshift_control_begin(&control, 1) == QOS_OK);
    memcpy(bytes, data, n);
    if (n > 0 && n >= QOS_FRAME_HEADER_BYTES && (data[0] & 1)) { /* mend the frame, so that the payload is reached */
        qos_put_le32(bytes, PSHIFT_WIRE_MAGIC);
        qos_put_le16(bytes + 4, PSHIFT_WIRE_VERSION);
        qos_put_le16(bytes + 6, data[0] & 2 ? PSHIFT_WIRE_REPORT : PSHIFT_WIRE_GRANT);
        if (n >= QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES) {
            uint32_t count =
                (uint32_t)((n - QOS_FRAME_HEADER_BYTES - PSHIFT_WIRE_HEAD_BYTES) / PSHIFT_WIRE_ENTRY_BYTES);
            n = QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + count * PSHIFT_WIRE_ENTRY_BYTES;
            if (data[0] & 4)
                qos_put_le32(bytes + QOS_FRAME_HEADER_BYTES + 4, count);
        }
        qos_put_le32(bytes + 8, (uint32_t)(n - QOS_FRAME_HEADER_BYTES));
        crc = qos_crc32c(0, bytes, 12);
        qos_put_le32(bytes + 12, qos_crc32c(crc, bytes + QOS_FRAME_HEADER_BYTES, n - QOS_FRAME_HEADER_BYTES));
    }
    if (pshift_report_decode(bytes, n, &m, re, MOST) == QOS_OK) {
        FUZZ_CHECK(m.count <= MOST);
        k = pshift_report_encode(again, sizeof again, &m, re);
        FUZZ_CHECK(k == QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + m.count * PSHIFT_WIRE_ENTRY_BYTES);
        m.period = data[0] & 8 ? 1 : m.period;
        if (pshift_control_report(&control, &m, re) == QOS_OK)
            FUZZ_CHECK(pshift_control_report(&control, &m, re) == QOS_ESTALE);
        FUZZ_CHECK(pshift_control_plan(&control, &solver, NULL) == QOS_OK);
        (void)!pshift_control_grant(&control, m.server, &m, ge, MOST);
    }
    if (pshift_grant_decode(bytes, n, &m, ge, MOST) == QOS_OK) {
        FUZZ_CHECK(m.count <= MOST);
        k = pshift_grant_encode(again, sizeof again, &m, ge);
        FUZZ_CHECK(k == QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + m.count * PSHIFT_WIRE_ENTRY_BYTES);
        if (data[0] & 8) {
            m.server = 1;
            m.server_epoch = 3;
            m.period = 1;
        }
        if (pshift_agent_install(&agent, &m, ge) == QOS_OK)
            FUZZ_CHECK(pshift_agent_install(&agent, &m, ge) == QOS_ESTALE);
    }
    FUZZ_CHECK(pshift_report_decode(bytes, n < 15 ? n : 15, &m, re, MOST) != QOS_OK);
    return 0;
}
