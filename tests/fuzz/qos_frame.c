// proves: only a whole and undamaged frame opens, whatever the bytes; readers and writers stay inside their buffers
#include "fuzz/fuzz.h"
#include "qos.h"

/* CRC32C bit by bit, from the polynomial alone. */
static uint32_t crc_bitwise(uint32_t crc, const uint8_t *p, size_t n)
{
    size_t i;
    int k;
    crc = ~crc;
    for (i = 0; i < n; i++) {
        crc ^= p[i];
        for (k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Any bytes: a frame opens if and only if the format says so. */
static void any_bytes(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* of the exact size: the address sanitizer sees a read past the end */
    struct qos_frame f;
    uint32_t payload;
    copy[0] = 0;
    if (size)
        memcpy(copy, data, size);
    if (qos_frame_open(copy, size, 0x51534f51u, 7, &f) == QOS_OK) {
        FUZZ_CHECK(size >= 20);
        payload = le32(data + 8);
        FUZZ_CHECK(payload <= size - 20 && f.payload_bytes == payload);
        FUZZ_CHECK((data[4] | data[5] << 8) <= 7);
    }
    free(copy);
}

/* The same bytes as a payload: sealed, they open; with one bit flipped or one byte cut off they do not. */
static void sealed(struct fuzz_input *in)
{
    uint16_t version = (uint16_t)fuzz_between(in, 0, 3);
    size_t n = in->left, flip, len;
    uint8_t *buf = malloc(n + 20);
    struct qos_frame f = {0x51534f51u, 0, 9, 0}, g;
    f.version = version;
    f.payload_bytes = (uint32_t)n;
    if (n)
        memcpy(buf + 20, in->data, n);
    FUZZ_CHECK(qos_frame_seal(&f, buf, n + 20, &len) == QOS_OK && len == n + 20);
    FUZZ_CHECK(crc_bitwise(0, buf, 12) == le32(buf + 12));
    FUZZ_CHECK(crc_bitwise(crc_bitwise(0, buf, 16), buf + 20, n) == le32(buf + 16));
    FUZZ_CHECK(qos_frame_open(buf, n + 20, f.magic, 3, &g) == QOS_OK);
    FUZZ_CHECK(g.payload_bytes == n && g.type == 9 && g.version == version && g.magic == f.magic);
    FUZZ_CHECK(qos_frame_open(buf, n + 19, f.magic, 3, &g) == QOS_ETRUNCATED);
    if (version > 0)
        FUZZ_CHECK(qos_frame_open(buf, n + 20, f.magic, (uint16_t)(version - 1), &g) == QOS_EVERSION);
    flip = n ? in->data[n - 1] % (n + 20) : 0;
    buf[flip] = (uint8_t)(buf[flip] ^ 1 << (n & 7));
    FUZZ_CHECK(qos_frame_open(buf, n + 20, f.magic, 3, &g) == QOS_ECORRUPT);
    FUZZ_CHECK(flip >= 16 || qos_frame_open(buf, 20, f.magic, 3, &g) == QOS_ECORRUPT);
    free(buf);
}

/* A program of writes of random widths into a small buffer, then read back. */
static void round_trip(struct fuzz_input *in)
{
    size_t room = (size_t)fuzz_between(in, 0, 64), pos = 0, i, n = (size_t)fuzz_between(in, 0, 40);
    uint8_t *buf = malloc(room ? room : 1);
    uint64_t value[40];
    unsigned width[40];
    bool bad = false;
    struct qos_writer w;
    struct qos_reader r;
    qos_writer_init(&w, buf, room);
    for (i = 0; i < n; i++) {
        width[i] = 1u << fuzz_between(in, 0, 3);
        value[i] = fuzz_bytes(in, width[i]);
        bad = bad || room - pos < width[i];
        if (!bad)
            pos += width[i];
        switch (width[i]) {
        case 1: qos_write_u8(&w, (uint8_t)value[i]); break;
        case 2: qos_write_u16(&w, (uint16_t)value[i]); break;
        case 4: qos_write_u32(&w, (uint32_t)value[i]); break;
        default: qos_write_u64(&w, value[i]); break;
        }
        FUZZ_CHECK(w.bad == bad && w.pos == pos);
    }
    qos_reader_init(&r, buf, pos);
    for (i = 0, room = 0; i < n; i++) {
        uint64_t got;
        switch (width[i]) {
        case 1: got = qos_read_u8(&r); break;
        case 2: got = qos_read_u16(&r); break;
        case 4: got = qos_read_u32(&r); break;
        default: got = qos_read_u64(&r); break;
        }
        if (!r.bad)
            room += width[i];
        FUZZ_CHECK(got == (r.bad ? 0 : value[i]) && room == r.pos);
    }
    FUZZ_CHECK(r.pos == pos);
    free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    any_bytes(data, size);
    switch (fuzz_between(&in, 0, 1)) {
    case 0: sealed(&in); break;
    default: round_trip(&in); break;
    }
    return 0;
}
