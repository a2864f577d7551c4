// proves: qos_frame_open and the reader read nothing outside the given bytes, whatever these bytes are
// (value analysis: Eva). Every length up to LONGEST is analysed by itself, at the end of its array.
// eva: -eva-precision 1 -eva-split-return auto
// slow plants
// plant: qos.h|reader->size_bytes - reader->pos < n|reader->size_bytes - reader->pos + 1 < n
// plant: qos.h|if (size_bytes - QOS_FRAME_HEADER_BYTES < payload_bytes)|if (size_bytes < payload_bytes)
#include "__fc_builtin.h"
#include "plain.h"
#include "qos.h"

#define LONGEST 24
static uint8_t bytes[LONGEST];

static void any_bytes(void)
{
    Frama_C_make_unknown((char *)bytes, sizeof bytes);
}

static void open_any_frame(const uint8_t *at, size_t size_bytes)
{
    struct qos_frame frame;
    uint32_t magic = Frama_C_nondet(0, 0x716f736b);
    if (qos_frame_open(at, size_bytes, magic, (uint16_t)Frama_C_interval(0, 0xffff), &frame) == QOS_OK) {
        //@ check initialized: \initialized(&frame);
        //@ check inside: frame.payload_bytes + QOS_FRAME_HEADER_BYTES <= size_bytes;
        Frama_C_show_each_opened(frame.payload_bytes);
    }
}

static void read_any_way(const uint8_t *at, size_t size_bytes)
{
    struct qos_reader reader;
    unsigned i;
    qos_reader_init(&reader, at, size_bytes);
    //@ loop unroll 12;
    for (i = 0; i < 12; i++) {
        switch (Frama_C_interval(0, 3)) {
        case 0: (void)qos_read_u8(&reader); break;
        case 1: (void)qos_read_u16(&reader); break;
        case 2: (void)qos_read_u32(&reader); break;
        default: (void)qos_read_u64(&reader); break;
        }
        //@ check inside: reader.pos <= reader.size_bytes;
    }
}

static void write_any_way(uint8_t *at, size_t size_bytes)
{
    struct qos_writer writer;
    unsigned i;
    qos_writer_init(&writer, at, size_bytes);
    //@ loop unroll 12;
    for (i = 0; i < 12; i++) {
        switch (Frama_C_interval(0, 3)) {
        case 0: qos_write_u8(&writer, (uint8_t)Frama_C_interval(0, 0xff)); break;
        case 1: qos_write_u16(&writer, 0x1234); break;
        case 2: qos_write_u32(&writer, 0x12345678); break;
        default: qos_write_u64(&writer, UINT64_C(0x123456789abcdef0)); break;
        }
        //@ check inside: writer.pos <= writer.size_bytes;
    }
}

int main(void)
{
    size_t size_bytes;
    //@ loop unroll LONGEST + 1;
    for (size_bytes = 0; size_bytes <= LONGEST; size_bytes++) {
        any_bytes();
        open_any_frame(bytes + LONGEST - size_bytes, size_bytes);
        if (size_bytes <= 12) {
            read_any_way(bytes + LONGEST - size_bytes, size_bytes);
            write_any_way(bytes + LONGEST - size_bytes, size_bytes);
        }
    }
    return 0;
}
