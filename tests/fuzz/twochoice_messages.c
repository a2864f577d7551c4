// proves: the decoder of messages takes any bytes without harm and reads none past the end.
// proves: Messages that it accepts encode to the same bytes again.
#include "twochoice.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t frame[4096], again[4096];
    struct twochoice_message m;
    size_t len = 0;
    if (size > 2048)
        return 0;
    if (twochoice_message_decode(data, size, &m) == QOS_OK) {
        FUZZ_CHECK(twochoice_message_encode(&m, again, sizeof again, &len) == QOS_OK);
        FUZZ_CHECK(len <= size && memcmp(again, data, len) == 0);
    }
    /* The same bytes in a valid frame: they get past the checksum. */
    if (size >= 2) {
        struct qos_frame f = {TWOCHOICE_MESSAGE_MAGIC, (uint16_t)(data[0] % 3), (uint16_t)(data[1] % 6),
                              (uint32_t)(size - 2)};
        enum qos_status st;
        memcpy(frame + QOS_FRAME_HEADER_BYTES, data + 2, size - 2);
        FUZZ_CHECK(qos_frame_seal(&f, frame, sizeof frame, &len) == QOS_OK);
        st = twochoice_message_decode(frame, QOS_FRAME_HEADER_BYTES + size - 2, &m);
        FUZZ_CHECK(st == QOS_OK || st == QOS_ECORRUPT || st == QOS_EVERSION);
        if (st == QOS_OK) {
            FUZZ_CHECK(twochoice_message_encode(&m, again, sizeof again, &len) == QOS_OK);
            FUZZ_CHECK(len == QOS_FRAME_HEADER_BYTES + size - 2);
            FUZZ_CHECK(memcmp(again + 16, frame + 16, len - 16) == 0);
        }
    }
    return 0;
}
