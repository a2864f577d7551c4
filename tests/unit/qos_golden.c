// proves: frames and numbers are written byte for byte as in every earlier version, and the old bytes can be read, in
// proves: either byte order; CRC32C by the vectors of RFC 3720, B.4; the generator is splitmix64 (published sequences)
#include "golden.h"
#include "qos.h"

static void crc_vectors(void)
{
    uint8_t data[48];
    unsigned i;
    static const uint8_t read_command[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                             0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
                                             0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
                                             0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    memset(data, 0, sizeof data);
    CHECK_EQ(qos_crc32c(0, data, 32), 0x8a9136aau);
    memset(data, 0xff, sizeof data);
    CHECK_EQ(qos_crc32c(0, data, 32), 0x62a8ab43u);
    for (i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    CHECK_EQ(qos_crc32c(0, data, 32), 0x46dd794eu);
    for (i = 0; i < 32; i++)
        data[i] = (uint8_t)(31 - i);
    CHECK_EQ(qos_crc32c(0, data, 32), 0x113fdb5cu);
    CHECK_EQ(qos_crc32c(0, read_command, 48), 0xd9963a56u);
    CHECK_EQ(qos_crc32c(0, "123456789", 9), 0xe3069283u);
    CHECK_EQ(qos_crc32c(0, data, 0), 0);
    for (i = 0; i <= 48; i++)
        CHECK_EQ(qos_crc32c(qos_crc32c(0, read_command, i), read_command + i, 48 - i), 0xd9963a56u);
}

static void random_sequences(void)
{
    /* Seed 1234567: the reference sequence that the authors' code prints; seed 0 begins 0xe220a8397b1dcdaf. */
    static const uint64_t reference[5] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                          UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                          UINT64_C(16408922859458223821)};
    struct qos_rng r;
    uint64_t i;
    qos_rng_seed(&r, 1234567);
    for (i = 0; i < 5; i++)
        CHECK_EQ(qos_rng_u64(&r), reference[i]);
    qos_rng_seed(&r, 0);
    CHECK_EQ(qos_rng_u64(&r), UINT64_C(0xe220a8397b1dcdaf));
}

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
    crc_vectors();
    random_sequences();
    return check_end();
}
