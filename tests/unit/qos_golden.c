// proves: frames and numbers are written byte for byte as in every earlier version, and the old bytes can be read, in
// proves: either byte order
#include "golden.h"
#include "qos.h"

int main(void)
{
    uint8_t bytes[64];
    struct qos_frame frame, got;
    struct qos_writer writer;
    struct qos_reader reader;
    size_t len = 0, n;
    check_begin("unit/qos_golden");
    memset(&frame, 0, sizeof frame);
    memset(&got, 0, sizeof got);
    frame.magic = 0x12345678;
    frame.version = 0x0102;
    frame.type = 0xfffe;
    frame.payload_bytes = 15;
    qos_writer_init(&writer, bytes + QOS_FRAME_HEADER_BYTES, 15);
    qos_write_u8(&writer, 0x9a);
    qos_write_u16(&writer, 0xbcde);
    qos_write_u32(&writer, 0xf0010203);
    qos_write_u64(&writer, UINT64_C(0x0405060708090a0b));
    CHECK(!writer.bad && writer.pos == 15);
    CHECK_EQ(qos_frame_seal(&frame, bytes, sizeof bytes, &len), QOS_OK);
    golden_same("qos_frame", bytes, len);

    n = golden_read("qos_frame", bytes, sizeof bytes);
    CHECK_EQ(qos_frame_open(bytes, n, 0x12345678, 0x0102, &got), QOS_OK);
    CHECK_EQ(got.version, 0x0102);
    CHECK_EQ(got.type, 0xfffe);
    CHECK_EQ(got.payload_bytes, 15);
    qos_reader_init(&reader, bytes + QOS_FRAME_HEADER_BYTES, got.payload_bytes);
    CHECK_EQ(qos_read_u8(&reader), 0x9a);
    CHECK_EQ(qos_read_u16(&reader), 0xbcde);
    CHECK_EQ(qos_read_u32(&reader), 0xf0010203);
    CHECK_EQ(qos_read_u64(&reader), UINT64_C(0x0405060708090a0b));
    CHECK(!reader.bad && reader.pos == reader.size_bytes);
    return check_end();
}
