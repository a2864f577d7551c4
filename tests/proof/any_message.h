/* any_message.h - the main of the value analysis of a decoder. It calls decode_any(), which the source defines after
 * the include, with any bytes, of every length up to LONGEST, each at the end of its array. With SPARSE, but for `make prove`,
 * payloads below it go by 42; above it, where fields of 8 bytes end, each end and a byte less. */
#if !defined SPARSE || defined EVERY_LENGTH
#define STEP(payload_bytes) 1
#else
#define STEP(payload_bytes) ((payload_bytes) < SPARSE ? 42 : (payload_bytes) % 8 == 0 ? 7 : 1)
#endif
static uint8_t bytes[LONGEST];
static void decode_any(const uint8_t *at, size_t size_bytes);

int main(void)
{
    //@ loop unroll LONGEST - QOS_FRAME_HEADER_BYTES + 1;
    for (any_frame_payload_bytes = 0; any_frame_payload_bytes <= LONGEST - QOS_FRAME_HEADER_BYTES;
         any_frame_payload_bytes += STEP(any_frame_payload_bytes)) {
        Frama_C_make_unknown((char *)bytes, sizeof bytes);
        decode_any(bytes + LONGEST - QOS_FRAME_HEADER_BYTES - any_frame_payload_bytes,
                   QOS_FRAME_HEADER_BYTES + any_frame_payload_bytes);
    }
    return 0;
}
