// proves: CRC32C by the vectors of RFC 3720, B.4; little-endian codecs; readers and writers stop at the
// end; a frame with any byte cut off or any bit flipped does not open
#include "qos.h"
#include "check.h"

#define PAYLOAD 37

static void check_crc(void)
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

static void check_codec(void)
{
    static const uint8_t bytes[9] = {0xee, 0xf8, 0xe7, 0xd6, 0xc5, 0xb4, 0xa3, 0x92, 0x81};
    uint8_t out[9];
    CHECK_EQ(qos_get_le16(bytes + 1), 0xe7f8u);
    CHECK_EQ(qos_get_le32(bytes + 1), 0xc5d6e7f8u);
    CHECK_EQ(qos_get_le64(bytes + 1), UINT64_C(0x8192a3b4c5d6e7f8));
    memset(out, 0xee, sizeof out);
    qos_put_le64(out + 1, UINT64_C(0x8192a3b4c5d6e7f8));
    CHECK(memcmp(out, bytes, 9) == 0);
    memset(out, 0xee, sizeof out);
    qos_put_le32(out + 1, 0xc5d6e7f8u);
    CHECK(memcmp(out, bytes, 5) == 0 && out[5] == 0xee);
    memset(out, 0xee, sizeof out);
    qos_put_le16(out + 1, 0xe7f8u);
    CHECK(memcmp(out, bytes, 3) == 0 && out[3] == 0xee);
}

/* A writer and a reader over every size from nothing to more than all four fields need (15 bytes). */
static void check_ends(void)
{
    size_t size;
    for (size = 0; size < 20; size++) {
        struct check_mem m;
        uint8_t *buf = (uint8_t *)check_mem_new(&m, size, 1, 1);
        struct qos_writer w;
        struct qos_reader r;
        CHECK_CONTEXT("%zu bytes", size);
        qos_writer_init(&w, buf, size);
        qos_write_u64(&w, UINT64_C(0x1122334455667788));
        qos_write_u32(&w, 0x99aabbccu);
        qos_write_u16(&w, 0xddeeu);
        qos_write_u8(&w, 0x5a);
        CHECK_EQ(w.bad, size < 15);
        CHECK_EQ(w.pos, size < 8 ? 0 : size < 12 ? 8 : size < 14 ? 12 : size < 15 ? 14 : 15);
        qos_reader_init(&r, buf, w.pos);
        CHECK_EQ(qos_read_u64(&r), size < 8 ? 0 : UINT64_C(0x1122334455667788));
        CHECK_EQ(qos_read_u32(&r), size < 12 ? 0 : 0x99aabbccu);
        CHECK_EQ(qos_read_u16(&r), size < 14 ? 0 : 0xddeeu);
        CHECK_EQ(qos_read_u8(&r), size < 15 ? 0 : 0x5a);
        CHECK_EQ(r.bad, size < 15);
        CHECK_EQ(r.pos, w.pos);
        if (w.bad) { /* `bad` stays: a field that would still fit is not written either */
            size_t pos = w.pos;
            qos_write_u8(&w, 1);
            CHECK(w.bad && w.pos == pos);
            CHECK_EQ(qos_read_u8(&r), 0);
        }
        CHECK(check_mem_free(&m));
    }
}

static void check_frames(void)
{
    struct check_mem m;
    uint8_t *buf = (uint8_t *)check_mem_new(&m, QOS_FRAME_HEADER_BYTES + PAYLOAD, 1, 1);
    struct qos_frame f, g, untouched;
    size_t size, len = 7;
    unsigned bit;
    for (size = 0; size < PAYLOAD; size++)
        buf[QOS_FRAME_HEADER_BYTES + size] = (uint8_t)(size * 11);
    f.magic = 0x31736f71u;
    f.version = 3;
    f.type = 0x0102;
    f.payload_bytes = PAYLOAD;
    size = QOS_FRAME_HEADER_BYTES + PAYLOAD;
    CHECK_EQ(qos_frame_seal(&f, NULL, size, &len), QOS_EINVAL);
    CHECK_EQ(qos_frame_seal(NULL, buf, size, &len), QOS_EINVAL);
    CHECK_EQ(qos_frame_seal(&f, buf, size - 1, &len), QOS_EMEMORY);
    CHECK_EQ(qos_frame_seal(&f, buf, QOS_FRAME_HEADER_BYTES - 1, &len), QOS_EMEMORY);
    CHECK_EQ(qos_frame_seal(&f, buf, size, NULL), QOS_EINVAL);
    CHECK_EQ(len, 7);
    CHECK_EQ(qos_frame_seal(&f, buf, size, &len), QOS_OK);
    CHECK_EQ(len, size);
    /* The layout, byte by byte. */
    CHECK(memcmp(buf, "qos1\x03\x00\x02\x01\x25\x00\x00\x00", 12) == 0);

    CHECK_EQ(qos_frame_open(buf, size, f.magic, 3, &g), QOS_OK);
    CHECK(g.magic == f.magic && g.version == 3 && g.type == 0x0102 && g.payload_bytes == PAYLOAD);
    CHECK_EQ(qos_frame_open(buf, size + 100, f.magic, UINT16_MAX, &g), QOS_OK);
    memset(&g, 0x77, sizeof g);
    untouched = g;
    CHECK_EQ(qos_frame_open(NULL, size, f.magic, 3, &g), QOS_EINVAL);
    CHECK_EQ(qos_frame_open(buf, size, f.magic, 3, NULL), QOS_EINVAL);
    CHECK_EQ(qos_frame_open(buf, size, f.magic + 1, 3, &g), QOS_ECORRUPT);
    CHECK_EQ(qos_frame_open(buf, size, f.magic, 2, &g), QOS_EVERSION);
    for (; size > 0; size--)
        CHECK_EQ(qos_frame_open(buf, size - 1, f.magic, 3, &g), QOS_ETRUNCATED);
    size = QOS_FRAME_HEADER_BYTES + PAYLOAD;
    for (bit = 0; bit < size * 8; bit++) {
        enum qos_status got;
        buf[bit / 8] = (uint8_t)(buf[bit / 8] ^ 1u << bit % 8);
        got = qos_frame_open(buf, size, f.magic, 3, &g);
        CHECK_CONTEXT("bit %u", bit);
        CHECK_EQ(got, QOS_ECORRUPT); /* of the length, too: a reader of a stream must not wait for 4 GiB */
        /* Known as damaged from the header alone, before a stream brought the payload. */
        if (bit / 8 < 16)
            CHECK_EQ(qos_frame_open(buf, QOS_FRAME_HEADER_BYTES, f.magic, 3, &g), QOS_ECORRUPT);
        buf[bit / 8] = (uint8_t)(buf[bit / 8] ^ 1u << bit % 8);
    }
    CHECK(memcmp(&g, &untouched, sizeof g) == 0);
    CHECK_EQ(qos_frame_open(buf, size, f.magic, 3, &g), QOS_OK);
    CHECK(check_mem_free(&m));
}

int main(void)
{
    check_begin("unit/qos_wire");
    check_crc();
    check_codec();
    check_ends();
    check_frames();
    return check_end();
}
