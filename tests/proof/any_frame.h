/* any_frame.h - replaces qos_frame_open in the value analysis of decoders: it returns a frame whose header and
 * checksum are right, of any type and any known version, or any error. qos_bytes.c shows that the real one accepts a
 * frame only if its payload lies within the given bytes. The main of each source goes through the lengths of payloads,
 * one analysis for each. */
static uint32_t any_frame_payload_bytes;

QOS_API enum qos_status qos_frame_open(const void *buf, size_t size_bytes, uint32_t magic, uint16_t version_max,
                                       struct qos_frame *frame);
QOS_API enum qos_status qos_frame_open(const void *buf, size_t size_bytes, uint32_t magic, uint16_t version_max,
                                       struct qos_frame *frame)
{
    (void)buf;
    if (Frama_C_nondet(0, 1) || size_bytes < QOS_FRAME_HEADER_BYTES + any_frame_payload_bytes)
        return (enum qos_status)Frama_C_interval(QOS_STATUS_LAST, -1);
    frame->magic = magic;
    frame->version = (uint16_t)Frama_C_interval(0, version_max);
    frame->type = (uint16_t)Frama_C_interval(0, 0xffff);
    frame->payload_bytes = any_frame_payload_bytes;
    return QOS_OK;
}
